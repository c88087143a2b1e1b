/* A digit recogniser in plain C: a two-layer network, minibatch SGD with momentum, all in double.
 *
 *     cc -O2 -I. examples/dropin/before_double.c -o before_double -lm && ./before_double
 *     cc -O2 -I. examples/dropin/after_double.c -o after_double -lm && ./after_double
 *     diff examples/dropin/before_double.c examples/dropin/after_double.c
 *
 * This file exists twice. before_double.c holds weights and gradients in double. after_double.c keeps
 * the weights and the momentum so, with its own optimizer; the forward and backward pass read FP16
 * copies, and the gradients, scaled, are stored in FP16: a quarter of the bytes of each.
 *
 * Data: examples/data/digits.csv, or the file named on the command line: 64 pixels of 0 to 16 and
 * the label, comma-separated, one digit per line. Every fifth line is kept for the test.
 * Rate and batch size are powers of two: so that compilers agree on every digit printed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define IN     65               /* 64 pixels and a constant 1, whose weight is the bias */
#define HIDDEN 33               /* 32 units and a constant 1 */
#define OUT    10
#define N1     (32 * IN)
#define N2     (OUT * HIDDEN)
#define BATCH  32
#define EPOCHS 10
#define RATE   0.0625
#define DECAY  0.875
#define MAX_DIGITS 4000

typedef struct { double x[IN]; int label; } digit;
static digit  train[MAX_DIGITS], test[MAX_DIGITS];
static size_t train_count, test_count;

static double w1[N1], m1[N1], dw1[N1];  /* [32][IN] */
static double w2[N2], m2[N2], dw2[N2];  /* [OUT][HIDDEN] */
static double h[BATCH][HIDDEN], p[BATCH][OUT];

static int parse_line(const char *s, digit *d)
{
    char *end;
    int   i;
    for (i = 0; i < 65; i++, s = end + 1) {
        const long v = strtol(s, &end, 10);
        if (end == s || v < 0 || v > (i < 64 ? 16 : 9))
            return 0;
        if (i < 64 ? *end != ',' : *end != '\n' && *end != '\r' && *end != '\0')
            return 0;
        if (i < 64)
            d->x[i] = (double)v / 16.0;
        else
            d->label = (int)v;
    }
    d->x[64] = 1.0;
    return 1;
}

static int load(const char *path)
{
    FILE *f = fopen(path, "r");
    char  line[512];
    long  number = 0;
    int   good = 1;
    digit d;
    if (!f) {
        fprintf(stderr, "%s: cannot open (run from the repository root, or name the file)\n", path);
        return 0;
    }
    while (good && number < MAX_DIGITS && fgets(line, sizeof line, f)) {
        good = parse_line(line, &d);
        if (++number % 5)
            train[train_count++] = d;
        else
            test[test_count++] = d;
    }
    fclose(f);
    if (!good)
        fprintf(stderr, "%s:%ld: not 64 pixels (0 to 16) and a label (0 to 9)\n", path, number);
    else if (train_count < BATCH || !test_count)
        fprintf(stderr, "%s: %ld digits are too few to train and test with\n", path, number);
    return good && train_count >= BATCH && test_count;
}

static double random_weight(double range)
{
    static unsigned long state = 1;
    state = (state * 1664525u + 1013904223u) & 0xfffffffful;
    return range * ((double)(state >> 8) / 8388608.0 - 1.0);
}

static void forward(const digit *d, double *hidden, double *prob)
{
    double z[OUT], max = -1e30, total = 0.0;
    int    i, j;
    for (i = 0; i < HIDDEN - 1; i++) {
        double sum = 0.0;
        for (j = 0; j < IN; j++)
            sum += w1[i * IN + j] * d->x[j];
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

/* Fills dw1 and dw2 from the batch; dloss starts it all: the weight of one digit in the loss. */
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
            sum += dh[b][i / IN] * d[b].x[i % IN];
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
    for (n = 0; n < test_count; n++) {
        int i, best = 0;
        forward(&test[n], h[0], p[0]);
        for (i = 1; i < OUT; i++)
            if (p[0][i] > p[0][best])
                best = i;
        right += best == test[n].label;
    }
    return 100.0 * (double)right / (double)test_count;
}

int main(int argc, char **argv)
{
    int    i, epoch, b;
    size_t first;

    if (!load(argc > 1 ? argv[1] : "examples/data/digits.csv"))
        return 1;
    for (i = 0; i < N1; i++)
        w1[i] = random_weight(0.125);
    for (i = 0; i < N2; i++)
        w2[i] = random_weight(0.175);

    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss = 0.0;
        size_t seen = 0;
        for (first = 0; first + BATCH <= train_count; first += BATCH, seen += BATCH) {
            const digit *d = &train[first];
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
