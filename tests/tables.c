/* tables.c -- prints the README's tables from the headers' own tables:  tables formats|dialects|status */
#define MPT_IMPLEMENTATION
#include "mpt.h"

static void formats(void)
{
    int i;
    printf("| format | bits | exponent | mantissa | largest | least normal | least subnormal | epsilon "
           "| Inf | NaN |\n");
    printf("|---|---|---|---|---|---|---|---|---|---|\n");
    for (i = 0; i < (int)MPT_FORMAT_COUNT; i++) {
        const mpt_format_info *f = mpt_format_get((mpt_format)i);
        printf("| %s | %d | %d | %d | %.6g | 2^%d | ", f->name, f->bits, f->exponent_bits, f->mantissa_bits,
               f->max_finite, f->emin);
        if (f->min_subnormal < f->min_normal)
            printf("2^%d", f->emin - f->mantissa_bits);
        else
            printf("none");
        printf(" | 2^%d | %s | %s |\n", -f->mantissa_bits, f->has_inf ? "yes" : "no",
               f->has_nan ? "yes" : "no");
    }
}

static void cell(double x, int power, int none)
{
    int k = 0;
    if (none)
        printf(" - |");
    else if (power && frexp(x, &k) <= 0.5)
        printf(" 2^%d |", k - 1);
    else
        printf(" %.9g |", x);
}

static void dialects(void)
{
#define ROW(id, name, init, growth, backoff, interval, hysteresis, floor, cap, flags, rule, stuck) \
    {id, rule, name, stuck},
    static const struct { mpt_scaler_dialect id; uint32_t rule; const char *name, *stuck; } rows[] = {
        MPT_SCALER_DIALECTS(ROW)};
#undef ROW
    size_t i;
    printf("| dialect | first scale | growth | backoff | interval | hysteresis | floor | cap "
           "| gets stuck |\n|---|---|---|---|---|---|---|---|---|\n");
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        const mpt_scaler_config c = mpt_scaler_preset(rows[i].id);
        const int               none = !(rows[i].rule & MPTI_MOVES);
        printf("| %s |", rows[i].name);
        cell((double)c.init_scale, 1, 0);
        cell(c.growth, 0, none);
        cell(rows[i].rule & MPTI_DIVIDE ? 1.0 / c.growth : c.backoff, 0, none);
        cell((double)c.interval, 0, none);
        cell((double)c.hysteresis, 0, none);
        cell(c.min_scale, 1, !(c.min_scale > 0.0));
        if (c.max_scale >= MPTI_FLT_MAX)
            printf(" FLT_MAX |");
        else
            cell(c.max_scale, 1, !(c.max_scale > 0.0));
        printf(" %s |\n", rows[i].stuck);
    }
}

static void statuses(void)
{
#define ROW(id, value, text) {#id, id},
    static const struct { const char *name; mpt_status status; } rows[] = {MPT_STATUSES(ROW)};
#undef ROW
    size_t i;
    printf("| status | value | text |\n|---|---|---|\n");
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("| `%s` | %d | %s |\n", rows[i].name, (int)rows[i].status, mpt_status_text(rows[i].status));
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "formats"))
        formats();
    else if (argc == 2 && !strcmp(argv[1], "dialects"))
        dialects();
    else if (argc == 2 && !strcmp(argv[1], "status"))
        statuses();
    else {
        fprintf(stderr, "usage: tables formats|dialects|status\n");
        return 2;
    }
    return 0;
}
