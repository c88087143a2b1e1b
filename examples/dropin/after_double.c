/* A digit recogniser in plain C: a two-layer network, minibatch SGD with momentum, all in double.
 *
 *     cc -O2 -I. examples/dropin/before_double.c -o before_double -lm && ./before_double
 *     cc -O2 -I. examples/dropin/after_double.c -o after_double -lm && ./after_double
 *     diff examples/dropin/before_double.c examples/dropin/after_double.c
 *
 * This file exists twice. before_double.c stores weights and gradients in double. after_double.c keeps the
 * weights, the momentum and its own optimizer in double. The forward and the backward pass read FP16 copies
 * of the weights, and the scaled gradients are stored in FP16: a quarter of the bytes for each of them.
 *
 * Data: examples/data/digits.csv, or the file named on the command line; four fifths are for training.
 * Rate and batch size are powers of two, so that all compilers print the same digits. */
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
#define RATE   0.0625
#define DECAY  0.875

static mpt_f16 c1[N1], dw1[N1], c2[N2], dw2[N2];
static double w1[N1], m1[N1];           /* [32][IN] */
static double w2[N2], m2[N2];           /* [OUT][HIDDEN] */
static double h[BATCH][HIDDEN], p[BATCH][OUT];

static void forward(const digit *d, double *hidden, double *prob)
{
    double z[OUT], max = -1e30, total = 0.0;
    int    i, j;
    for (i = 0; i < HIDDEN - 1; i++) {
        double sum = 0.0;
        for (j = 0; j < IN; j++)
            sum += mpt_f64_from_f16(c1[i * IN + j]) * (double)d->x[j];
        hidden[i] = sum > 0.0 ? sum : 0.0;
    }
    hidden[HIDDEN - 1] = 1.0;
    for (i = 0; i < OUT; i++) {
        z[i] = 0.0;
        for (j = 0; j < HIDDEN; j++)
            z[i] += mpt_f64_from_f16(c2[i * HIDDEN + j]) * hidden[j];
        if (z[i] > max)
            max = z[i];
    }
    for (i = 0; i < OUT; i++)
        total += z[i] = exp(z[i] - max);
    for (i = 0; i < OUT; i++)
        prob[i] = (z[i] / total);
}

/* Compute dw1 and dw2 of the batch. dloss is the weight of a digit in the loss; gradients scale with it. */
static void backward(const digit *d, double dloss)
{
    static double dz[BATCH][OUT], dh[BATCH][HIDDEN];
    int          b, i, j;
    for (b = 0; b < BATCH; b++) {
        for (i = 0; i < OUT; i++)
            dz[b][i] = (p[b][i] - (i == d[b].label ? 1.0 : 0.0)) * dloss;
        for (j = 0; j < HIDDEN - 1; j++) {
            double sum = 0.0;
            for (i = 0; i < OUT; i++)
                sum += mpt_f64_from_f16(c2[i * HIDDEN + j]) * dz[b][i];
            dh[b][j] = h[b][j] > 0.0 ? sum : 0.0;
        }
    }
    for (i = 0; i < N2; i++) {
        double sum = 0.0;
        for (b = 0; b < BATCH; b++)
            sum += dz[b][i / HIDDEN] * h[b][i % HIDDEN];
        dw2[i] = mpt_f16_from_f64(sum);
    }
    for (i = 0; i < N1; i++) {
        double sum = 0.0;
        for (b = 0; b < BATCH; b++)
            sum += dh[b][i / IN] * (double)d[b].x[i % IN];
        dw1[i] = mpt_f16_from_f64(sum);
    }
}

static void update(double *w, double *m, const mpt_f16 *dw, int n, double factor)
{
    int i;
    for (i = 0; i < n; i++) {
        m[i] = DECAY * m[i] + mpt_f64_from_f16(dw[i]) * factor;
        w[i] -= RATE * m[i];
    }
}

static double test_accuracy(void)
{
    size_t n, right = 0;
    for (n = digits_train; n < digits_count; n++) {
        int i, best = 0;
        forward(&digits[n], h[0], p[0]);
        for (i = 1; i < OUT; i++)
            if (p[0][i] > p[0][best])
                best = i;
        right += best == digits[n].label;
    }
    return 100.0 * share(right, digits_count - digits_train);
}

int main(int argc, char **argv)
{
    int    i, epoch, b;
    size_t first;
    mpt_tensor  room[2];
    mpt_tensors grads;
    mpt_scaler  scaler;  mpt_step step = {0};
    mpt_scaler_init(&scaler, NULL);
    mpt_tensors_init(&grads, room, 2, MPT_F16, MPT_F16);
    mpt_tensors_add(&grads, "w1", N1, NULL, dw1, NULL, NULL, NULL);
    mpt_tensors_add(&grads, "w2", N2, NULL, dw2, NULL, NULL, NULL);

    digits_load(argc > 1 ? argv[1] : "examples/data/digits.csv");
    for (i = 0; i < N1; i++)
        w1[i] = (double)random_weight(0.125);
    for (i = 0; i < N2; i++)
        w2[i] = (double)random_weight(0.175);
    mpt_f16_from_f64_n(c1, w1, N1);
    mpt_f16_from_f64_n(c2, w2, N2);

    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss = 0.0;
        size_t seen = 0;
        for (first = 0; first + BATCH <= digits_train; first += BATCH, seen += BATCH) {
            const digit *d = &digits[first];
            double       dloss = (double)mpt_scaler_scale(&scaler, 1.0f / BATCH);
            for (b = 0; b < BATCH; b++) {
                forward(&d[b], h[b], p[b]);
                loss -= log(p[b][d[b].label] + 1e-30);
            }
            backward(d, dloss);
            mpt_check(&scaler, &step, grads.item, grads.count, NULL);
            if (!step.found_inf) {
                update(w1, m1, dw1, N1, (double)step.grad_factor);
                update(w2, m2, dw2, N2, (double)step.grad_factor);
                mpt_f16_from_f64_n(c1, w1, N1);
                mpt_f16_from_f64_n(c2, w2, N2);
            }
            mpt_scaler_update(&scaler);
        }
        if (epoch % 2 == 0)
            printf("epoch %2d  loss %.6f  test accuracy %.1f%%\n",
                   epoch, loss / (double)seen, test_accuracy());
    }
    return 0;
}
