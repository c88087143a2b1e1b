/* A digit recogniser in plain C: a two-layer network, minibatch Adam with separate gradients.
 *
 *     cc -O2 -I. examples/dropin/before_adam.c -o before_adam -lm && ./before_adam
 *     cc -O2 -I. examples/dropin/after_adam.c -o after_adam -lm && ./after_adam
 *     diff examples/dropin/before_adam.c examples/dropin/after_adam.c
 *
 * This file exists twice. before_adam.c is all FP32. after_adam.c keeps FP32 masters and moments, and
 * FP16 copies of the weights, which the forward and the backward pass read. Its optimizer is mpt's fused
 * step, which unscales, updates and copies in one pass; each of the two tensors is listed in one line.
 *
 * Data: examples/data/digits.csv, or the file named on the command line; four fifths are for training.
 * Sums are in double, rate and decays have few bits, so that all compilers print the same digits. */
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
#define EPOCHS 10
#define RATE   0.0078125f
#define BETA1  0.875f
#define BETA2  0.9990234375f
#define EPS    1e-8f

static float w1[N1], dw1[N1], m1[N1], v1[N1];   /* [32][IN] */
static float w2[N2], dw2[N2], m2[N2], v2[N2];   /* [OUT][HIDDEN] */
static mpt_f16 c1[N1], c2[N2];                  /* copies of w1, w2 */
static float h[BATCH][HIDDEN], p[BATCH][OUT];

static void forward(const digit *d, float *hidden, float *prob)
{
    double z[OUT], max = -1e30, total = 0.0;
    int    i, j;
    for (i = 0; i < HIDDEN - 1; i++) {
        double sum = 0.0;
        for (j = 0; j < IN; j++)
            sum += mpt_f64_from_f16(c1[i * IN + j]) * (double)d->x[j];
        hidden[i] = sum > 0.0 ? (float)sum : 0.0f;
    }
    hidden[HIDDEN - 1] = 1.0f;
    for (i = 0; i < OUT; i++) {
        z[i] = 0.0;
        for (j = 0; j < HIDDEN; j++)
            z[i] += mpt_f64_from_f16(c2[i * HIDDEN + j]) * (double)hidden[j];
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
                sum += mpt_f64_from_f16(c2[i * HIDDEN + j]) * (double)dz[b][i];
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
    mpt_tensor  room[2];
    mpt_tensors list;
    mpt_scaler  scaler;  mpt_step step = {0};
    mpt_adam    adam = {RATE, BETA1, BETA2, EPS, 0.0f, 0, 0};
    mpt_scaler_init(&scaler, NULL);
    mpt_tensors_init(&list, room, 2, MPT_F16, MPT_F32);
    mpt_tensors_add(&list, "w1", N1, c1, dw1, w1, m1, v1);
    mpt_tensors_add(&list, "w2", N2, c2, dw2, w2, m2, v2);

    digits_load(argc > 1 ? argv[1] : "examples/data/digits.csv");
    for (i = 0; i < N1; i++)
        w1[i] = random_weight(0.125);
    for (i = 0; i < N2; i++)
        w2[i] = random_weight(0.175);
    mpt_publish(list.item, list.count);

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
            dloss = mpt_scaler_scale(&scaler, dloss);
            backward(d, dloss);
            mpt_check(&scaler, &step, list.item, list.count, NULL);
            mpt_adam_step(&adam, &step, list.item, list.count);
            mpt_scaler_update(&scaler);
        }
        if (epoch % 2 == 0)
            printf("epoch %2d  loss %.6f  test accuracy %.1f%%\n",
                   epoch, loss / (double)seen, test_accuracy());
    }
    return 0;
}
