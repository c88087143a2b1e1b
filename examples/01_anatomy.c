/* 01_anatomy.c -- eight numbers, six formats: which bits are stored, and what is lost.
 *
 *     cc -O2 -I. examples/01_anatomy.c -o 01_anatomy -lm && ./01_anatomy
 *
 * The first part takes numbers apart, the way a computer stores them. The second part shows what
 * rounding does to addition: the order of the terms begins to matter. Nothing printed is typed in;
 * the places where each format gives way are found by trying. */
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

/* A normal number has a hidden one bit above its mantissa; a subnormal does not, and each leading
 * zero is a bit of precision that it no longer has. */
static int bits_left(uint64_t significand)
{
    int n = 0;
    for (; significand; significand >>= 1)
        n++;
    return n;
}

/* mpt_anatomy rounds x to the format and hands back the parts; the rest is printing them. */
static void draw(mpt_format format, const char *name, double x)
{
    const mpt_fields a = mpt_anatomy(format, x);
    char             bits[80], sign[2], exponent[12], mantissa[53];

    (void)mpt_bits_text(bits, sizeof bits, format, a.code);     /* "0 10010 1010011000" */
    if (sscanf(bits, "%1s %11s %52s", sign, exponent, mantissa) != 3)
        return;
    printf("  %s  %s %8s %-23s ", name, sign, exponent, mantissa);

    if (a.flags & MPT_FLAG_OVERFLOW) {          /* E4M3 has no Inf: it can only say NaN */
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

/* a + b in a format: add exactly enough (in double), then round once to the format. For FP16 alone,
 * mpt_f16_from_f32(a + b) on floats does the same, faster: float's 24 bits are more than twice 11,
 * so rounding to float on the way can do no harm. */
static double add(mpt_format format, double a, double b)
{
    return mpt_decode(format, mpt_encode(format, a + b, NULL, NULL));
}

/* The first power of two that does not notice a 1. */
static void show_deaf_number(mpt_format f, const char *name)
{
    double n = 1.0;
    while (add(f, n, 1.0) > n)
        n += n;
    printf("  %s  (%8.0f + 1) + 1 = %8.0f    %8.0f + (1 + 1) = %8.0f\n", name, n,
           add(f, add(f, n, 1.0), 1.0), n, add(f, n, add(f, 1.0, 1.0)));
}

/* All ordered triples of 0.1, 0.2 ... 1.0: does it matter which two are added first? FP32, BF16 and
 * E4M3 come out alike, and no wonder: the bits of these numbers repeat every four, and 24, 8 and 4
 * significant bits cut them at the same place of the pattern. */
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

    printf("A float is a sign, an exponent that picks a power of two, and a mantissa that counts "
           "even steps\nabove it: value = (-1)^s * significand * 2^e. Few bits make few numbers; "
           "all others must round.\n");

    draw_in_all("13.1875 = 211 / 16: needs 8 significant bits, so most formats hold it exactly",
                13.1875);
    draw_in_all("0.1: no sum of powers of two, so no binary format holds it", 0.1);
    draw_in_all("1/3: the same; see how the mantissa is cut ever shorter", 1.0 / 3.0);
    draw_in_all("65519: FP16 rounds it down to its largest number", 65519.0);
    draw_in_all("65520: one more, and FP16 overflows", 65520.0);
    draw_in_all("1e-5: below FP16's normal numbers, where bits go missing one by one", 1e-5);
    draw_in_all("2^-25: half of FP16's smallest number; a tie goes to the even neighbour, here 0",
                1.0 / 33554432.0);
    draw_in_all("1e-8: a gradient that FP16 does not see", 1e-8);

    printf("\nThe order of a sum matters. Every format has a number that no longer notices a 1:\n");
    for (i = 0; i < FORMATS; i++)
        show_deaf_number(formats[i].format, formats[i].name);

    printf("\nAnd it takes no large numbers. All triples of 0.1, 0.2 ... 1.0, rounded to the format"
           " first:\n");
    for (i = 0; i < FORMATS; i++)
        search_triples(formats[i].format, formats[i].name);
    return 0;
}
