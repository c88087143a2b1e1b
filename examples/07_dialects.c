/* 07_dialects.c -- the loss scales of all dialects side by side, over the same sequence of overflows.
 *
 *     cc -O2 -I. examples/07_dialects.c -o 07_dialects -lm && ./07_dialects
 *     ./07_dialects csv > dialects.csv && gnuplot -e "csv='dialects.csv'" examples/07_plot.gp
 *
 * A dialect is a set of rules that moves the loss scale: mpt's own, or those of PyTorch, TensorFlow, Apex ...
 * The training here is simulated: a step overflows if the scale exceeds a limit, which sinks from 2^20 to 2^6
 * and then rises to 2^16. In the middle 60 batches hold a NaN, which no scale cures, and at the end no scale
 * works. All dialects grow after 20 good steps, to make more happen; other settings are their defaults. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"

enum { STEPS = 1200, D = MPT_SCALER_DIALECT_COUNT };

/* log2 of the largest scale that works at a step. */
static int limit_at(int step)
{
    return step < 300 ? 20 : step < 500 ? 20 - (step - 300) * 14 / 200 : step < 700 ? 6 : 16;
}

static unsigned cause_at(int step, float scale)
{
    if (step >= 1100)
        return MPT_CAUSE_INF;                   /* the loss has diverged */
    if (step >= 600 && step < 660)
        return MPT_CAUSE_NAN;                   /* bad data */
    return scale > ldexpf(1.0f, limit_at(step)) ? MPT_CAUSE_INF : 0u;
}

/* The scale as text: "2^16" for a power of two, else a number of four digits. */
static const char *show(float scale, char *to, size_t n)
{
    int         e;
    const float m = frexpf(scale, &e);
    if (scale == 0.0f)
        (void)snprintf(to, n, "0");
    else if (!isfinite(scale))
        (void)snprintf(to, n, "Inf");
    else if (m == 0.5f)
        (void)snprintf(to, n, "2^%d", e - 1);
    else
        (void)snprintf(to, n, "%.4g", (double)scale);
    return to;
}

int main(int argc, char **argv)
{
    static float scale[STEPS][D];
    const int    csv = argc > 1 && !strcmp(argv[1], "csv");
    int          d, i, raised_at[D], lost[D][3];
    mpt_scaler   s[D];
    char         text[32];
    for (d = 0; d < D; d++) {
        mpt_scaler_config c = mpt_scaler_defaults((mpt_scaler_dialect)d);
        c.interval = 20;
        raised_at[d] = -1;
        lost[d][0] = lost[d][1] = lost[d][2] = 0;
        if (mpt_scaler_init(&s[d], &c) != MPT_OK)
            return 1;
        for (i = 0; i < STEPS; i++) {
            const float    now = mpt_scaler_scale(&s[d], 1.0f);
            const unsigned cause = cause_at(i, now);
            scale[i][d] = now;
            lost[d][i < 600 ? 0 : i < 660 ? 1 : 2] += cause && i < 1100;
            (void)mpt_scaler_record(&s[d], 0, cause);
            if (mpt_scaler_update(&s[d]) != MPT_OK && raised_at[d] < 0 && i >= 660)
                raised_at[d] = i;
        }
    }
    if (csv) {
        printf("step,limit");
        for (d = 0; d < D; d++)
            printf(",%s", mpt_scaler_name((mpt_scaler_dialect)d));
        for (i = 0; i < STEPS; i++) {
            printf("\n%d,%g", i, ldexp(1.0, limit_at(i)));
            for (d = 0; d < D; d++)
                printf(",%.9g", (double)scale[i][d]);
        }
        printf("\n");
        return 0;
    }
    printf("The scale before some steps, and how many steps are lost. The limit is 2^20, sinks to 2^6 in\n"
           "steps 300 to 500, and is 2^16 from 700 on; 600 to 659 have a NaN; from 1100 on nothing works.\n\n"
           "                  step 0     290     599     660     699    1099    1199   lost"
           "        lost    error\n"
           "                                                                          0-599"
           "    660-1099  at step\n");
    for (d = 0; d < D; d++) {
        static const int at[] = {0, 290, 599, 660, 699, 1099, 1199};
        size_t           k;
        printf("%-16s", mpt_scaler_name((mpt_scaler_dialect)d));
        for (k = 0; k < sizeof at / sizeof *at; k++)
            printf(" %7s", show(scale[at[k]][d], text, sizeof text));
        printf(" %6d %11d  ", lost[d][0], lost[d][2]);
        if (raised_at[d] < 0)
            printf("%7s\n", "never");
        else
            printf("%7d\n", raised_at[d]);
    }
    printf("\nOnly mpt finds out that no scale cures the NaN, and returns to the scale that worked; the\n"
           "others that move have lowered theirs as far as they can. At the end mpt reports:\n  %s.\n",
           mpt_verdict_text(s[MPT_SCALER_MPT].verdict));
    return 0;
}
