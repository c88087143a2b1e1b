/* 01_anatomy.c -- eight numbers in six formats: which bits are stored, and what rounding loses.
 *
 *     cc -O2 -I. examples/01_anatomy.c -o 01_anatomy -lm && ./01_anatomy
 *
 * Part 1 rounds each number to each format and prints the stored bits (sign, exponent, mantissa), the
 * value that they stand for, and the error. Part 2 shows what rounding does to addition: the sum depends
 * on the order of the terms. All results are computed; no result is written in the source. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt_half.h"

#include <stdio.h>

static const struct { mpt_format format; const char *name; } formats[] = {
    {MPT_F32, "FP32"}, {MPT_TF32, "TF32"}, {MPT_F16, "FP16"},
    {MPT_BF16, "BF16"}, {MPT_E4M3, "E4M3"}, {MPT_E5M2, "E5M2"}};
#define FORMATS (sizeof formats / sizeof formats[0])

/* ---- part 1: the bits ---- */

static int is_subnormal(mpt_class kind)
{
    return kind == MPT_CLASS_POS_SUBNORMAL || kind == MPT_CLASS_NEG_SUBNORMAL;
}

/* Number of significant bits. A normal number has a hidden 1 bit above its mantissa. A subnormal number
 * has none, so each leading zero of its mantissa is one bit of precision less. */
static int bits_left(uint64_t significand)
{
    int n = 0;
    for (; significand; significand >>= 1)
        n++;
    return n;
}

/* mpt_anatomy rounds x to the format and returns the parts of the result; all else here is printing. */
static void draw(mpt_format format, const char *name, double x)
{
    const mpt_fields a = mpt_anatomy(format, x);
    char             bits[80], sign[2], exponent[12], mantissa[53];

    (void)mpt_bits_text(bits, sizeof bits, format, a.code);     /* "0 10010 1010011000" */
    if (sscanf(bits, "%1s %11s %52s", sign, exponent, mantissa) != 3)
        return;
    printf("  %s  %s %8s %-23s ", name, sign, exponent, mantissa);

    if (a.flags & MPT_FLAG_OVERFLOW) {          /* E4M3 has no Inf: it overflows to NaN */
        printf("%32s  overflow to %s\n", "", a.kind == MPT_CLASS_POS_INF ? "Inf" : "NaN");
        return;
    }
    printf("%8llu * 2^%-4d %-14.9g  ", (unsigned long long)a.significand, a.exponent, a.value);
    if (!(a.flags & MPT_FLAG_INEXACT))
        printf("exact\n");
    else if (a.kind == MPT_CLASS_POS_ZERO)
        printf("flushed to zero\n");
    else
        printf("%+.2e  %.2e\n", a.error, (a.error < 0.0 ? -a.error : a.error) / x);
    if (is_subnormal(a.kind))
        printf("%17s^ subnormal, significant bits left: %d of %d\n", "", bits_left(a.significand),
               mpt_format_get(format)->mantissa_bits + 1);
}

static void draw_in_all(const char *text, double x)
{
    size_t i;
    printf("\n%s\n", text);
    printf("        s exponent mantissa                = significand * 2^e   value           error"
           "     relative\n");
    for (i = 0; i < FORMATS; i++)
        draw(formats[i].format, formats[i].name, x);
}

/* ---- part 2: the sums ---- */

/* a + b, rounded to a format: add in double, then round to the format. Rounding twice gives what rounding
 * once would give, because the 53 significant bits of double are at least 2 * 24 + 2. For FP16 alone,
 * mpt_f16_from_f32(a + b) on floats is as exact, and faster: 24 is 2 * 11 + 2. */
static double add(mpt_format format, double a, double b)
{
    return mpt_decode(format, mpt_encode(format, a + b, NULL, NULL));
}

/* Find and print the first power of two n for which n + 1 is rounded back to n. */
static void show_deaf_number(mpt_format f, const char *name)
{
    double n = 1.0;
    while (add(f, n, 1.0) > n)
        n += n;
    printf("  %s  (%8.0f + 1) + 1 = %8.0f    %8.0f + (1 + 1) = %8.0f\n", name, n,
           add(f, add(f, n, 1.0), 1.0), n, add(f, n, add(f, 1.0, 1.0)));
}

/* Of all ordered triples of 0.1, 0.2 ... 1.0, count those where (a + b) + c is not a + (b + c). FP32, BF16
 * and E4M3 have the same count, and for a reason: the binary digits of these numbers repeat with a period of
 * four, and 24, 8 and 4 significant bits end at the same place of that period. */
static void search_triples(mpt_format f, const char *name)
{
    double grid[10], left, right;
    int    i, j, k, differ = 0, first[3] = {0, 0, 0};

    for (i = 0; i < 10; i++)
        grid[i] = mpt_decode(f, mpt_encode(f, (i + 1) / 10.0, NULL, NULL));
    for (i = 0; i < 10; i++)
        for (j = 0; j < 10; j++)
            for (k = 0; k < 10; k++) {
                left = add(f, add(f, grid[i], grid[j]), grid[k]);
                right = add(f, grid[i], add(f, grid[j], grid[k]));
                if ((left < right || left > right) && !differ++)
                    first[0] = i, first[1] = j, first[2] = k;
            }
    i = first[0], j = first[1], k = first[2];
    printf("  %s  %3d of 1000 differ", name, differ);
    if (differ)
        printf("; first  (%.1f + %.1f) + %.1f = %-11.9g  %.1f + (%.1f + %.1f) = %.9g",
               (i + 1) / 10.0, (j + 1) / 10.0, (k + 1) / 10.0,
               add(f, add(f, grid[i], grid[j]), grid[k]),
               (i + 1) / 10.0, (j + 1) / 10.0, (k + 1) / 10.0,
               add(f, grid[i], add(f, grid[j], grid[k])));
    printf("\n");
}

int main(void)
{
    size_t i;

    printf("A float has a sign, an exponent, which selects a power of two, and a mantissa, which counts "
           "equal\nsteps above it: value = (-1)^s * significand * 2^e. Few bits make few numbers; all "
           "others are rounded.\n");

    draw_in_all("13.1875 = 211 / 16: needs 8 significant bits, so most formats hold it exactly",
                13.1875);
    draw_in_all("0.1: not a finite sum of powers of two, so no binary format holds it exactly", 0.1);
    draw_in_all("1/3: likewise; each format rounds the endless 010101... at its own length", 1.0 / 3.0);
    draw_in_all("65519: FP16 rounds it down to its largest number", 65519.0);
    draw_in_all("65520: one more, and FP16 overflows", 65520.0);
    draw_in_all("1e-5: below FP16's normal numbers: subnormal, with fewer significant bits", 1e-5);
    draw_in_all("2^-25: half of FP16's smallest number; a tie goes to the even neighbour, here 0",
                1.0 / 33554432.0);
    draw_in_all("1e-8: a gradient of this size becomes 0 in FP16", 1e-8);

    printf("\nThe order of a sum matters. Every format has a number n for which n + 1 is rounded to n:\n");
    for (i = 0; i < FORMATS; i++)
        show_deaf_number(formats[i].format, formats[i].name);

    printf("\nSmall numbers show it, too: all triples of 0.1, 0.2 ... 1.0, rounded to the format"
           " first:\n");
    for (i = 0; i < FORMATS; i++)
        search_triples(formats[i].format, formats[i].name);
    return 0;
}
