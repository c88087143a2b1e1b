/* 02_where_fp16_dies.c -- how FP16 arithmetic comes to a stop: gaps, lost updates, stuck sums.
 *
 *     cc -O2 -I. examples/02_where_fp16_dies.c -o 02_where_fp16_dies -lm && ./02_where_fp16_dies
 *
 * Training adds small numbers to large ones: an update to a weight, a term to a sum. A format has
 * gaps, and what is less than half a gap vanishes without a trace. This program measures the gaps,
 * watches updates vanish, and watches sums stop while terms still come in. It is the reason for two
 * habits of mixed precision: master weights in FP32, accumulators in FP32. */
#define MPT_HALF_IMPLEMENTATION
#include "mpt_half.h"

#include <stdio.h>

static const mpt_format formats[3] = {MPT_F16, MPT_BF16, MPT_F32};
static const char *const names[3] = {"FP16", "BF16", "FP32"};

/* Round to a format, once. These are the fast conversions; mpt_encode would serve any format. */
static double rounded(mpt_format format, double x)
{
    if (format == MPT_F16)
        return mpt_f64_from_f16(mpt_f16_from_f64(x));
    if (format == MPT_BF16)
        return mpt_f64_from_bf16(mpt_bf16_from_f64(x));
    return (double)(float)x;
}

static double power_of_two(int e)
{
    double x = 1.0;
    for (; e > 0; e--) x *= 2.0;
    for (; e < 0; e++) x *= 0.5;
    return x;
}

/* floor(log2 x), for x in the table */
static int log2_of(double x)
{
    int e = 0;
    for (; x >= 2.0; e++) x *= 0.5;
    for (; x < 1.0; e--) x *= 2.0;
    return e;
}

/* ---- 1. the gaps ---- */

static void gaps_at(const char *text, double w)
{
    const double half = mpt_ulp(MPT_F16, w) / 2.0;
    int          f;
    printf("  %-9s %-10.5g", text, w);
    for (f = 0; f < 3; f++)
        printf("   2^%-4d", log2_of(mpt_ulp(formats[f], w)));
    printf("      %-9.3g  w / %.0f\n", half, w / half);
}

static void show_gaps(void)
{
    static const int       exponents[] = {-24, -20, -16, -14, -10, -7, -4, -1, 0, 1, 4, 8, 11, 15};
    const mpt_format_info *f16 = mpt_format_get(MPT_F16);
    char                   text[16];
    size_t                 i;

    printf("1. The gaps. Next to a weight w the numbers of a format lie one gap apart. An update\n"
           "   u moves w up only if it exceeds half of that gap; exactly half is a tie, and the\n"
           "   even neighbour wins.\n\n");
    printf("  weight w               gap next to w in           u must exceed, in FP16\n"
           "                         FP16     BF16     FP32     half a gap that is\n");
    for (i = 0; i < sizeof exponents / sizeof exponents[0]; i++) {
        (void)snprintf(text, sizeof text, "2^%d", exponents[i]);
        gaps_at(text, power_of_two(exponents[i]));
    }
    gaps_at("largest", f16->max_finite);
    printf("\n   From 2^%d up the FP16 gap grows with w; below, it cannot shrink any more. FP32\n"
           "   has %d more bits than FP16; BF16 has %d fewer, and the exponents of FP32.\n",
           f16->emin, mpt_format_get(MPT_F32)->mantissa_bits - f16->mantissa_bits,
           f16->mantissa_bits - mpt_format_get(MPT_BF16)->mantissa_bits);
}

/* ---- 2. lost updates ---- */

static void show_updates(void)
{
    int e, f;
    printf("\n2. Lost updates. The weight is 1, the update u; what is 1 + u, rounded?\n\n");
    printf("  u                           FP16           BF16           FP32\n");
    for (e = -7; e >= -14; e--) {
        const double u = power_of_two(e);
        printf("  2^%-4d %-10.3g", e, u);
        for (f = 0; f < 3; f++) {
            const double sum = rounded(formats[f], 1.0 + u);
            if (sum > 1.0)
                printf("%15.5f", sum);
            else
                printf("%15s", "1, lost");
        }
        printf("\n");
    }
}

/* The largest update that w does not notice, by halving an interval until no double lies between.
 * Rounding is monotonic, so there is one such border. */
static double largest_lost(mpt_format format, double w)
{
    double lost = 0.0, kept = w;
    for (;;) {
        const double middle = lost + (kept - lost) / 2.0;
        if (middle <= lost || middle >= kept)
            return lost;
        if (rounded(format, w + middle) > w)
            kept = middle;
        else
            lost = middle;
    }
}

static void show_ratios(void)
{
    int f, i;
    printf("\n   Found by search: the largest update that is lost, and how much larger w is.\n\n");
    printf("             w = 1                    w = 1.5                 w just below 2\n"
           "             u lost       w / u       u lost       w / u       u lost       w / u\n");
    for (f = 0; f < 3; f++) {
        const double w[3] = {1.0, 1.5, 2.0 - mpt_ulp(formats[f], 1.0)};
        printf("  %s", names[f]);
        for (i = 0; i < 3; i++) {
            const double u = largest_lost(formats[f], w[i]);
            printf("%13.3g %11.0f", u, w[i] / u);
        }
        printf("\n");
    }
}

/* ---- 3. stuck sums ---- */

static double term_constant(long k) { (void)k; return (double)0.1f; }
static double term_harmonic(long k) { return (double)(float)(1.0 / (double)k); }

static void print_sum_line(long terms, double reference, const double *sum)
{
    int f;
    printf("  %9ld %10.6g", terms, reference);
    for (f = 0; f < 3; f++) {
        const double percent = 100.0 * (sum[f] - reference) / reference;
        if (percent > -0.005 && percent < 0.005)
            printf(" %11.6g       ok", sum[f]);
        else
            printf(" %11.6g %+7.2f%%", sum[f], percent);
    }
    printf("\n");
}

/* The terms are FP32 numbers, the same for all. Only the running sum lives in the format: it is
 * rounded once after each addition. The reference keeps its sum in double. */
static void show_sum(const char *text, double (*term)(long), long last)
{
    double sum[3] = {0.0, 0.0, 0.0}, reference = 0.0;
    long   stuck_at[3] = {0, 0, 0}, k, next_line = 10;
    int    f;

    printf("\n   %s\n\n", text);
    printf("      terms  reference    FP16 sum    error    BF16 sum    error    FP32 sum"
           "    error\n");
    for (k = 1; k <= last; k++) {
        const double t = term(k);
        reference += t;
        for (f = 0; f < 3; f++) {
            const double next = rounded(formats[f], sum[f] + t);
            if (next > sum[f])
                stuck_at[f] = 0;            /* it moved: forget that it once did not */
            else if (!stuck_at[f])
                stuck_at[f] = k;
            sum[f] = next;
        }
        if (k == next_line) {
            print_sum_line(k, reference, sum);
            next_line *= 10;
        }
    }
    printf("\n");
    for (f = 0; f < 3; f++)
        if (stuck_at[f])
            printf("   %s stops at term %ld: %.5g is no more than half a gap (%.5g) of %.6g\n",
                   names[f], stuck_at[f], term(stuck_at[f]), mpt_ulp(formats[f], sum[f]) / 2.0,
                   sum[f]);
        else
            printf("   %s still moves after %ld terms\n", names[f], last);
}

int main(void)
{
    show_gaps();
    show_updates();
    show_ratios();
    printf("\n3. Stuck sums. An accumulator in each format, the same terms for all. ok: within"
           " 0.005%%.\n");
    show_sum("0.1 + 0.1 + 0.1 + ...", term_constant, 10000);
    show_sum("1 + 1/2 + 1/3 + 1/4 + ... grows beyond every limit on paper, but not in a computer:",
             term_harmonic, 10000000);
    return 0;
}
