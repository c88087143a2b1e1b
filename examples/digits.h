/* digits.h -- 1797 handwritten digits, for the examples that learn to read them. It compiles as C99, C++ and
 * CUDA, and does not use mpt. Include it in one source file of a program: its data is static. */
#ifndef DIGITS_H
#define DIGITS_H

#include "examples/program.h"

enum { DIGIT_PIXELS = 64, DIGIT_KINDS = 10, DIGITS_MOST = 1797 };

typedef struct digit {
    float x[DIGIT_PIXELS + 1];  /* 0, 1/16 ... 1, exact in FP16, BF16; then a 1, whose weight is the bias */
    int   label;                /* 0 to 9 */
} digit;

static digit  digits[DIGITS_MOST];          /* in a random order, which is the same in every program */
static size_t digits_count, digits_train;   /* the first digits_train are to train on, the rest to test */

/* Parse a line: 64 pixels from 0 to 16, then the label, separated by commas. Returns 0 for any other line. */
static inline int digit_parse(digit *d, const char *line)
{
    int   k;
    char *end;
    for (k = 0; k <= DIGIT_PIXELS; k++, line = end + 1) {
        const long v = strtol(line, &end, 10);
        if (end == line || v < 0 || v > (k < DIGIT_PIXELS ? 16 : DIGIT_KINDS - 1) ||
            (k < DIGIT_PIXELS && *end != ','))
            return 0;
        if (k < DIGIT_PIXELS)
            d->x[k] = (float)v / 16.0f;
        else
            d->label = (int)v;
    }
    d->x[DIGIT_PIXELS] = 1.0f;
    return !end[strspn(end, " \r\n")];
}

/* Read the digits from a file such as examples/data/digits.csv and shuffle them. Exits on any error. */
static inline void digits_load(const char *path)
{
    char   line[512], wrong[100];
    size_t n;
    FILE  *f = fopen(path, "r");
    if (!f)
        die(path, "cannot open the digits (run this from the top folder, or name the file)");
    for (n = 0; n < DIGITS_MOST && fgets(line, (int)sizeof line, f); n++) {
        (void)snprintf(wrong, sizeof wrong, "line %u: expected 64 pixels of 0..16, then a label of 0..9",
                       (unsigned)n + 1u);
        if (!digit_parse(&digits[n], line))
            die(path, wrong);
    }
    if (ferror(f) || n < 100 || fgets(line, 2, f))
        die(path, ferror(f) ? "read error" : "expected 100 to 1797 digits");
    (void)fclose(f);
    digits_count = n;
    digits_train = n * 8 / 10;
    random_state = 20240801;
    for (; n > 1; n--) {
        const size_t j = random_below(n);
        const digit  last = digits[n - 1];
        digits[n - 1] = digits[j];
        digits[j] = last;
    }
}

/* Copy the pixels and the labels of the n digits whose indices are in `order`. */
static inline void digits_batch(const size_t *order, size_t n, float *x, uint32_t *label)
{
    size_t b;
    for (b = 0; b < n; b++) {
        memcpy(x + b * DIGIT_PIXELS, digits[order[b]].x, DIGIT_PIXELS * sizeof *x);
        label[b] = (uint32_t)digits[order[b]].label;
    }
}

/* The label to which a network gives the highest of its ten scores. */
static inline int digit_best(const float *score)
{
    int k, best = 0;
    for (k = 1; k < DIGIT_KINDS; k++)
        best = score[k] > score[best] ? k : best;
    return best;
}

/* The number of digits, among n, that get the right label; score is [n][10]. */
static inline size_t digits_right(const float *score, const uint32_t *label, size_t n)
{
    size_t k, right = 0;
    for (k = 0; k < n; k++)
        right += digit_best(score + k * DIGIT_KINDS) == (int)label[k];
    return right;
}
#endif
