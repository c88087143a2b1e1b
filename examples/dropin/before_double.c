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

static double w1[N1], m1[N1], dw1[N1];  /* [32][IN] */
static double w2[N2], m2[N2], dw2[N2];  /* [OUT][HIDDEN] */
static double h[BATCH][HIDDEN], p[BATCH][OUT];

static void forward(const digit *d, double *hidden, double *prob)
{
    double z[OUT], max = -1e30, total = 0.0;
    int    i, j;
    for (i = 0; i < HIDDEN - 1; i++) {
        double sum = 0.0;
        for (j = 0; j < IN; j++)
            sum += w1[i * IN + j] * (double)d->x[j];
        hidden[i] = sum > 0.0 ? sum : 0.0;
    }
    hidden[HIDDEN - 1] = 1.0;
    for (i = 0; i < OUT; i++) {
        z[i] = 0.0;
        for (j = 0; j < HIDDEN; j++)
            z[i] += w2[i * HIDDEN + j] * hidden[j];
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
                sum += w2[i * HIDDEN + j] * dz[b][i];
            dh[b][j] = h[b][j] > 0.0 ? sum : 0.0;
        }
    }
    for (i = 0; i < N2; i++) {
        double sum = 0.0;
        for (b = 0; b < BATCH; b++)
            sum += dz[b][i / HIDDEN] * h[b][i % HIDDEN];
        dw2[i] = sum;
    }
    for (i = 0; i < N1; i++) {
        double sum = 0.0;
        for (b = 0; b < BATCH; b++)
            sum += dh[b][i / IN] * (double)d[b].x[i % IN];
        dw1[i] = sum;
    }
}

static void update(double *w, double *m, const double *dw, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        m[i] = DECAY * m[i] + dw[i];
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

    digits_load(argc > 1 ? argv[1] : "examples/data/digits.csv");
    for (i = 0; i < N1; i++)
        w1[i] = (double)random_weight(0.125);
    for (i = 0; i < N2; i++)
        w2[i] = (double)random_weight(0.175);

    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss = 0.0;
        size_t seen = 0;
        for (first = 0; first + BATCH <= digits_train; first += BATCH, seen += BATCH) {
            const digit *d = &digits[first];
            double       dloss = 1.0 / BATCH;      /* the loss is the mean over the batch */
            for (b = 0; b < BATCH; b++) {
                forward(&d[b], h[b], p[b]);
                loss -= log(p[b][d[b].label] + 1e-30);
            }
            backward(d, dloss);
            update(w1, m1, dw1, N1);
            update(w2, m2, dw2, N2);
        }
        if (epoch % 2 == 0)
            printf("epoch %2d  loss %.6f  test accuracy %.1f%%\n",
                   epoch, loss / (double)seen, test_accuracy());
    }
    return 0;
}
