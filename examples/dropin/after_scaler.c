/* A digit recogniser in plain C: a two-layer network, minibatch SGD, all in FP32.
 *
 *     cc -O2 -I. examples/dropin/before_scaler.c -o before_scaler -lm && ./before_scaler
 *     cc -O2 -I. examples/dropin/after_scaler.c -o after_scaler -lm && ./after_scaler
 *     diff examples/dropin/before_scaler.c examples/dropin/after_scaler.c
 *
 * This file exists twice. before_scaler.c does not use mpt; after_scaler.c puts a loss scaler around the
 * same optimizer. The scale is a power of two, so in FP32 it changes the exponents of the gradients and
 * no digit: both programs print the same. The scaler pays off once gradients are stored in FP16.
 *
 * Data: examples/data/digits.csv, or the file named on the command line; four fifths are for training.
 * Sums are in double, rate and batch size are powers of two, so that all compilers print the same digits. */
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
#define BATCH  32
#define EPOCHS 20
#define RATE   0.25f

static float w1[N1], dw1[N1];   /* [32][IN] */
static float w2[N2], dw2[N2];   /* [OUT][HIDDEN] */
static float h[BATCH][HIDDEN], p[BATCH][OUT];

static void forward(const digit *d, float *hidden, float *prob)
{
    double z[OUT], max = -1e30, total = 0.0;
    int    i, j;
    for (i = 0; i < HIDDEN - 1; i++) {
        double sum = 0.0;
        for (j = 0; j < IN; j++)
            sum += (double)w1[i * IN + j] * (double)d->x[j];
        hidden[i] = sum > 0.0 ? (float)sum : 0.0f;
    }
    hidden[HIDDEN - 1] = 1.0f;
    for (i = 0; i < OUT; i++) {
        z[i] = 0.0;
        for (j = 0; j < HIDDEN; j++)
            z[i] += (double)w2[i * HIDDEN + j] * (double)hidden[j];
        if (z[i] > max)
            max = z[i];
    }
    for (i = 0; i < OUT; i++)
        total += z[i] = exp(z[i] - max);
    for (i = 0; i < OUT; i++)
        prob[i] = (float)(z[i] / total);
}

/* Compute dw1 and dw2 of the batch. dloss is the weight of a digit in the loss; gradients scale with it. */
static void backward(const digit *d, float dloss)
{
    static float dz[BATCH][OUT], dh[BATCH][HIDDEN];
    int          b, i, j;
    for (b = 0; b < BATCH; b++) {
        for (i = 0; i < OUT; i++)
            dz[b][i] = (p[b][i] - (i == d[b].label ? 1.0f : 0.0f)) * dloss;
        for (j = 0; j < HIDDEN - 1; j++) {
            double sum = 0.0;
            for (i = 0; i < OUT; i++)
                sum += (double)w2[i * HIDDEN + j] * (double)dz[b][i];
            dh[b][j] = h[b][j] > 0.0f ? (float)sum : 0.0f;
        }
    }
    for (i = 0; i < N2; i++) {
        double sum = 0.0;
        for (b = 0; b < BATCH; b++)
            sum += (double)dz[b][i / HIDDEN] * (double)h[b][i % HIDDEN];
        dw2[i] = (float)sum;
    }
    for (i = 0; i < N1; i++) {
        double sum = 0.0;
        for (b = 0; b < BATCH; b++)
            sum += (double)dh[b][i / IN] * (double)d[b].x[i % IN];
        dw1[i] = (float)sum;
    }
}

static void update_weights(void)
{
    int i;
    for (i = 0; i < N1; i++)
        w1[i] -= RATE * dw1[i];
    for (i = 0; i < N2; i++)
        w2[i] -= RATE * dw2[i];
}

static double test_accuracy(void)
{
    size_t n, right = 0;
    for (n = digits_train; n < digits_count; n++) {
        forward(&digits[n], h[0], p[0]);
        right += digit_best(p[0]) == digits[n].label;
    }
    return 100.0 * share(right, digits_count - digits_train);
}

int main(int argc, char **argv)
{
    int    i, epoch, b;
    size_t first;
    mpt_scaler scaler;  mpt_step step = {0};  mpt_scaler_init(&scaler, NULL);
    mpt_tensor grads[] = {mpt_tensor_grad_f32("w1", dw1, N1), mpt_tensor_grad_f32("w2", dw2, N2)};

    digits_load(argc > 1 ? argv[1] : "examples/data/digits.csv");
    for (i = 0; i < N1; i++)
        w1[i] = random_weight(0.125);
    for (i = 0; i < N2; i++)
        w2[i] = random_weight(0.175);

    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss = 0.0;
        size_t seen = 0;
        for (first = 0; first + BATCH <= digits_train; first += BATCH, seen += BATCH) {
            const digit *d = &digits[first];
            float        dloss = 1.0f / BATCH;      /* the loss is the mean over the batch */
            for (b = 0; b < BATCH; b++) {
                forward(&d[b], h[b], p[b]);
                loss -= log((double)p[b][d[b].label] + 1e-30);
            }
            dloss = mpt_scaler_scale(&scaler, dloss);       /* 1 scale */
            backward(d, dloss);
            mpt_unscale(&scaler, &step, grads, sizeof grads / sizeof *grads, NULL);  /* 3 check */
            if (!step.found_inf) update_weights();          /* 4 step, or skip on Inf or NaN */
            if (mpt_scaler_update(&scaler)) return 1;       /* 5 update; stop if a call was refused */
        }
        if (epoch % 4 == 0)
            printf("epoch %2d  loss %.6f  test accuracy %.1f%%\n",
                   epoch, loss / (double)seen, test_accuracy());
    }
    return 0;
}
