/* tables.c -- prints the README's tables, from tables in the headers and from calls that are compiled here:
 *
 *     tables formats|idioms|dialects */
#define MPT_STATIC
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
        const mpt_scaler_config c = mpt_scaler_defaults(rows[i].id);
        const int               none = !rows[i].rule;
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

/* What users have, and the call that replaces it: compiled, run, and printed as source text. */
#define SAY(have, call)                                \
    do {                                               \
        (void)(call);                                  \
        printf("| %s | `%s` |\n", have, #call);        \
    } while (0)

static void idioms(void)
{
    float          x = 0.1f, row[4] = {0.1f, 0.2f, 0.3f, 0.4f}, red[4], rgba[16] = {0.0f};
    double         d = 0.1;
    uint16_t       h = 0x2e66u, y[4];
    unsigned char  p[2], pixels[8] = {0};
    const size_t   n = 4;
    mpt_opts       o;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_TOWARD_ZERO;
    printf("| you have | write |\n|---|---|\n");
    SAY("`uint16_t float_to_half(float)`, `_cvtss_sh(x, 0)`, `__float2half` kept as bits",
        mpt_f16_from_f32(x).bits);
    SAY("`float half_to_float(uint16_t)`, half2float tables, `_cvtsh_ss` (C++: `mpt_f16{h}`)",
        mpt_f32_from_f16((mpt_f16){h}));
    SAY("`_cvtss_sh(x, _MM_FROUND_TO_ZERO)`; `o.rounding = MPT_RND_TOWARD_ZERO`",
        mpt_encode(MPT_F16, (double)x, &o, NULL));
    SAY("`ggml_fp32_to_fp16_row(row, y, n)`", mpt_f16_from_f32_n((mpt_f16 *)y, row, n));
    SAY("`ggml_fp16_to_fp32_row(y, row, n)`", mpt_f32_from_f16_n(row, (mpt_f16 *)y, n));
    SAY("the upper half of a float as bf16 (truncated, where ours rounds)", mpt_bf16_from_f32(x).bits);
    SAY("`PyFloat_Pack2(d, p, 0)`: big-endian bytes",
        mpt_convert_bytes_n(MPT_F16, p, MPT_BIG_ENDIAN, MPT_F64, &d, MPT_NATIVE_ENDIAN, 1, NULL, NULL));
    SAY("... and before it, to native bytes, its OverflowError",
        mpt_convert_checked_n(MPT_F16, p, MPT_F64, &d, 1, NULL, NULL) == MPT_E_RANGE);
    SAY("one of four interleaved channels of floats",
        mpt_convert_strided(MPT_F16, y, 2, MPT_F32, rgba + 3, 16, n, NULL, NULL));
    SAY("a row of halves from a file, each channel for itself (OpenEXR and its kind)",
        mpt_convert_bytes_n(MPT_F32, red, MPT_NATIVE_ENDIAN, MPT_F16, pixels, MPT_LITTLE_ENDIAN, n, NULL,
                            NULL));
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "formats"))
        formats();
    else if (argc == 2 && !strcmp(argv[1], "dialects"))
        dialects();
    else if (argc == 2 && !strcmp(argv[1], "idioms"))
        idioms();
    else {
        fprintf(stderr, "usage: tables formats|idioms|dialects\n");
        return 2;
    }
    return 0;
}
