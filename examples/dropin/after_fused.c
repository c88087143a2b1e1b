/* A digit recogniser in plain C: a two-layer network that learns from one digit at a time.
 *
 *     cc -O2 -I. examples/dropin/before_fused.c -o before_fused -lm && ./before_fused
 *     cc -O2 -I. examples/dropin/after_fused.c -o after_fused -lm && ./after_fused
 *     diff examples/dropin/before_fused.c examples/dropin/after_fused.c
 *
 * This file exists twice. before_fused.c has no gradient buffer: the backward pass subtracts
 * rate * d * x from each weight as it goes. after_fused.c does the same to FP32 masters, row by row,
 * and keeps FP16 copies of them; the forward and the backward pass read only these copies.
 *
 * Data: examples/data/digits.csv, or the file named on the command line; four fifths are for training.
 * Products in double are exact, the rate is a power of two, so that all compilers print the same digits. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/digits.h"
#include <math.h>

#define IN     65               /* 64 pixels and a constant 1, whose weight is the bias */
#define HIDDEN 33               /* 32 units and a constant 1 */
#define OUT    10
#define N1     (32 * IN)
#define N2     (OUT * HIDDEN)
#define EPOCHS 10
#define RATE   0.015625f

static float w1[N1];            /* [32][IN] */
static float w2[N2];            /* [OUT][HIDDEN] */
static mpt_f16 c1[N1], c2[N2]; /* copies of w1, w2 */
static float h[HIDDEN], p[OUT];

static float dot(const mpt_f16 *w, const float *x, int n)
{
    return mpt_dot(w, MPT_F16, x, MPT_F32, (size_t)n);
}

static void forward(const digit *d)
{
    float  z[OUT], max = -1e30f;
    double e[OUT], total = 0.0;
    int    i;
    for (i = 0; i < HIDDEN - 1; i++) {
        const float sum = dot(&c1[i * IN], d->x, IN);
        h[i] = sum > 0.0f ? sum : 0.0f;
    }
    h[HIDDEN - 1] = 1.0f;
    for (i = 0; i < OUT; i++) {
        z[i] = dot(&c2[i * HIDDEN], h, HIDDEN);
        if (z[i] > max)
            max = z[i];
    }
    for (i = 0; i < OUT; i++)
        total += e[i] = exp((double)z[i] - (double)max);
    for (i = 0; i < OUT; i++)
        p[i] = (float)(e[i] / total);
}

/* w -= RATE * d * x, for the row of weights of one unit. */
static void update_row(mpt_f16 *copy, float *w, float d, const float *x, int n)
{
    mpt_axpy_publish(copy, MPT_F16, w, -RATE * d, x, (size_t)n, NULL);      /* a row with Inf or NaN stays */
}

/* Backpropagation of one digit; each row is updated as soon as its old weights are no longer needed. */
static void learn(const digit *d)
{
    float dz[OUT], dh[HIDDEN];
    int   i, j;
    for (i = 0; i < OUT; i++)
        dz[i] = p[i] - (i == d->label ? 1.0f : 0.0f);
    for (j = 0; j < HIDDEN - 1; j++) {
        double sum = 0.0;
        for (i = 0; i < OUT; i++)
            sum += mpt_f64_from_f16(c2[i * HIDDEN + j]) * (double)dz[i];
        dh[j] = h[j] > 0.0f ? (float)sum : 0.0f;
    }
    for (i = 0; i < OUT; i++)
        update_row(&c2[i * HIDDEN], &w2[i * HIDDEN], dz[i], h, HIDDEN);
    for (j = 0; j < HIDDEN - 1; j++)
        update_row(&c1[j * IN], &w1[j * IN], dh[j], d->x, IN);
}

static double test_accuracy(void)
{
    size_t n, right = 0;
    for (n = digits_train; n < digits_count; n++) {
        forward(&digits[n]);
        right += digit_best(p) == digits[n].label;
    }
    return 100.0 * share(right, digits_count - digits_train);
}

int main(int argc, char **argv)
{
    int    i, epoch;
    size_t n;

    digits_load(argc > 1 ? argv[1] : "examples/data/digits.csv");
    for (i = 0; i < N1; i++)
        w1[i] = random_weight(0.125);
    for (i = 0; i < N2; i++)
        w2[i] = random_weight(0.175);
    mpt_f16_from_f32_n(c1, w1, N1);  mpt_f16_from_f32_n(c2, w2, N2);

    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss = 0.0;
        for (n = 0; n < digits_train; n++) {
            forward(&digits[n]);
            loss -= log((double)p[digits[n].label] + 1e-30);
            learn(&digits[n]);
        }
        if (epoch % 2 == 0)
            printf("epoch %2d  loss %.6f  test accuracy %.1f%%\n",
                   epoch, loss / (double)digits_train, test_accuracy());
    }
    return 0;
}
