/* 02_where_fp16_dies.c -- storage, update or sum: which of them does FP16 break?
 *
 *     cc -O2 -I. examples/02_where_fp16_dies.c -o 02_where_fp16_dies -lm && ./02_where_fp16_dies
 *
 * Training adds small numbers to large ones: an update to a weight, a term to a sum. Between neighbouring
 * numbers of a format there are gaps, and an addend of less than half a gap changes nothing. The reports of
 * mpt.h measure this for storage, updates, sums and single operations. The results are the reason for two
 * habits of mixed precision: master weights in FP32 and accumulators in FP32. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"

#include <stdio.h>

#define COUNT 16384

static const mpt_format formats[3] = {MPT_F16, MPT_BF16, MPT_F32};
static const char *const names[3] = {"FP16", "BF16", "FP32"};
static float weight[COUNT], gradient[COUNT], update[COUNT];

static void show_gaps(void)
{
    static const double w[] = {1.0 / 16777216.0, 1.0 / 16384.0, 1.0 / 128.0, 1.0, 1.5, 2048.0, 65504.0};
    size_t              i;
    int                 f;
    printf("1. Gaps. Next to a weight w the numbers of a format are one gap apart. An update u changes w\n"
           "   only if it exceeds half of that gap; exactly half is a tie: the even neighbour wins.\n\n"
           "  weight w     u must exceed, in FP16         in BF16              in FP32\n");
    for (i = 0; i < sizeof w / sizeof w[0]; i++) {
        printf("  %-11.5g", w[i]);
        for (f = 0; f < 3; f++) {
            const double half = mpt_ulp(formats[f], w[i]) / 2.0;
            printf("  %8.3g w / %-8.0f", half, w[i] / half);
        }
        printf("\n");
    }
}

/* Weights and gradients between -1 and 1: a 64-bit linear congruential generator (Knuth, MMIX). */
static void init(void)
{
    uint64_t state = 2017;
    int      i;
    for (i = 0; i < 2 * COUNT; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        (i < COUNT ? weight : gradient)[i % COUNT] = (float)(state >> 40) / 8388608.0f - 1.0f;
    }
}

static void show_storage(void)
{
    static mpt_roundoff  r;
    mpt_roundoff_figures g;
    int                  f;
    printf("\n2. Storage. %d weights between -1 and 1, rounded once (mpt_roundoff).\n\n"
           "         become 0   mean error   largest    signal to noise\n", COUNT);
    for (f = 0; f < 2; f++) {
        (void)mpt_roundoff_init(&r, formats[f], NULL, 0);
        (void)mpt_roundoff_add(&r, MPT_F32, weight, COUNT);
        if (mpt_roundoff_get(&r, &g) == MPT_OK)
            printf("  %s %10d %11.3f%% %8.3f%% %12.0f dB\n", names[f], (int)r.flushed,
                   100.0 * g.mean_relative, 100.0 * g.max_relative, g.sqnr_db);
    }
    printf("\n   Storage does no harm: the error of FP16 is at most one part in 2048.\n");
}

static void show_updates(void)
{
    static mpt_stagnation r[3];
    static float          kept[COUNT];
    int                   e, f, i, factor = 0;
    printf("\n3. Updates. The same weights, changed once by learning rate * gradient (mpt_stagnation).\n\n"
           "                 updates lost, if weights are stored in\n"
           "  learning rate     FP16      BF16      FP32\n");
    for (e = 0; e >= -24; e -= 4) {
        printf("  2^%-12d", e);
        for (i = 0; i < COUNT; i++)
            update[i] = -ldexpf(gradient[i], e);
        for (f = 0; f < 3; f++) {
            (void)mpt_stagnation_init(&r[f], formats[f]);
            (void)mpt_quantize_n(kept, weight, COUNT, formats[f], NULL);   /* as they are stored */
            (void)mpt_stagnation_add(&r[f], kept, update, COUNT);
            printf("%9.1f%%", 100.0 * (double)r[f].lost / (double)(r[f].count - r[f].none));
        }
        printf("\n");
    }
    printf("\n   The report of one learning rate tells at which rate half of the updates are lost:\n  ");
    for (f = 0; f < 3; f++) {
        (void)mpt_stagnation_vanishing(&r[f], 0.5, &factor);
        printf(" %s 2^%d%s", names[f], factor - 24, f < 2 ? "," : ".\n");
    }
}

/* In exact arithmetic 1 + 1/2 + 1/3 + ... grows without limit. Each accumulator gets the same FP32 terms. */
static void show_sums(void)
{
    static const mpt_sum_method ways[5] = {MPT_SUM_F16, MPT_SUM_BF16, MPT_SUM_F32, MPT_SUM_BLOCKS,
                                           MPT_SUM_KAHAN};
    static mpt_sums  s;
    mpt_sums_figures g;
    long             k, next = 4, moved[3] = {0, 0, 0};
    int              f, m;
    printf("\n4. Sums. 1 + 1/2 + 1/3 + 1/4 + ..., and the relative error of each accumulator (mpt_sums).\n\n"
           "    terms      sum");
    for (m = 0; m < 5; m++)
        printf("%14s", mpt_sum_method_name(ways[m]));
    printf("\n");
    for (k = 1; k <= 1L << 22; k++) {
        const float  term = (float)(1.0 / (double)k);
        const double f16 = s.f16, bf16 = s.bf16, f32 = (double)s.f32;
        (void)mpt_sums_add(&s, &term, NULL, 1, 0);
        if (s.f16 > f16) moved[0] = k;
        if (s.bf16 > bf16) moved[1] = k;
        if ((double)s.f32 > f32) moved[2] = k;
        if (k != next)
            continue;
        next *= 16;
        (void)mpt_sums_get(&s, &g);
        printf("  %7ld %8.4f", k, g.exact);
        for (m = 0; m < 5; m++)
            printf("%13.4f%%", 100.0 * g.relative[ways[m]]);
        printf("\n");
    }
    printf("\n");
    for (f = 0; f < 3; f++)
        printf("   %s: the terms after 1/%ld do not change the sum.\n", names[f], moved[f]);
}

static void show_shadow(const char *text, const mpt_shadow *s, mpt_shadowed result)
{
    printf("  %-36s %9.4g %9.4g   %2d, %-4s %s\n", text, result.low, result.exact, (int)s->first.at,
           mpt_shadow_op_name(s->first.op), mpt_shadow_cause_name(s->first.cause));
}

/* Four short computations. Each operation runs in FP16 and, beside it, in double. Rounding an input to FP16
 * counts as an operation too: with two inputs, the first addition or product is operation 3. */
static void show_operations(void)
{
    mpt_shadow   s;
    mpt_shadowed x, y;
    int          i;
    printf("\n5. Operations. Four computations, in FP16 and in double (mpt_shadow), and the first operation\n"
           "   after which the two differ by more than 1%%.\n\n"
           "  computation                               FP16    double   at operation, cause\n");
    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    x = mpt_shadow_value(&s, 1.0);
    y = mpt_shadow_value(&s, 0.0004);
    for (i = 0; i < 100; i++)
        x = mpt_shadow_apply(&s, MPT_SHADOW_OP_ADD, x, y, y);
    show_shadow("weight 1, plus 0.0004 a hundred times", &s, x);

    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    x = mpt_shadow_value(&s, 300.0);
    y = mpt_shadow_value(&s, 400.0);
    x = mpt_shadow_apply(&s, MPT_SHADOW_OP_MUL, x, x, x);
    y = mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, y, y, x);
    show_shadow("sqrt(300 * 300 + 400 * 400)", &s, mpt_shadow_apply(&s, MPT_SHADOW_OP_SQRT, y, y, y));

    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    x = mpt_shadow_value(&s, 0.0002);
    y = mpt_shadow_value(&s, 0.0001);
    show_shadow("a gradient: 0.0002 * 0.0001", &s, mpt_shadow_apply(&s, MPT_SHADOW_OP_MUL, x, y, y));

    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    x = mpt_shadow_value(&s, 100.7);
    y = mpt_shadow_value(&s, 100.4);
    show_shadow("a difference: 100.7 - 100.4", &s, mpt_shadow_apply(&s, MPT_SHADOW_OP_SUB, x, y, y));
}

int main(void)
{
    init();
    show_gaps();
    show_storage();
    show_updates();
    show_sums();
    show_operations();
    return 0;
}
