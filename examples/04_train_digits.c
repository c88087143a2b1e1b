/* 04_train_digits.c -- a network that FP16 cannot train, and the one number that rescues it.
 *
 *     cc -O2 -I. examples/04_train_digits.c -o 04_train_digits -lm
 *     ./04_train_digits                   from the top folder, about half a minute; --help for options
 *
 * A small network learns to read 1797 real handwritten digits, eight times: in FP32, in FP16 with one
 * loss scale after the other, in BF16, and in FP16 without FP32 master weights. Forward and backward
 * pass are written out below, as yours would be. Activations, gradients and the weights that both
 * passes read really lie in memory in the small format; sums are taken in FP32 and rounded once, when
 * they are stored. All results are counted or measured, none is typed in.
 *
 * Why FP16 fails here: the loss is a mean over 2^23 = 8 million terms, as in a detector that averages
 * over all its boxes, or a language model whose batch holds millions of tokens. Only our 4 digits carry
 * a gradient, so each gradient is about 2^-23 of p - y: around the smallest number of FP16, 2^-24, and
 * mostly below it. The learning rate, 25, is as large as the loss is small. This is a stand-in for such
 * a model, made to run in seconds; FP32 cannot tell the difference, and the program tests that, too. */
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200112L         /* for isatty and fileno under -std=c99 */
#include <unistd.h>
#define STDERR_IS_TERMINAL() isatty(fileno(stderr))
#else
#define STDERR_IS_TERMINAL() 0
#endif

#define MPT_IMPLEMENTATION
#include "mpt.h"

#include <stdlib.h>

/* ---- the set-up ---- */

enum { PIXELS = 64, HIDDEN = 32, CLASSES = 10, LAYERS = 3, BATCH = 4 };
enum { WIDEST = PIXELS, MATRIX = (PIXELS + 1) * HIDDEN };       /* the widest row, the largest matrix */
enum { MAX_DIGITS = 1797, MAX_SEEDS = 20, MEMORY = 1 << 16 };

static const size_t sizes[LAYERS + 1] = {PIXELS, HIDDEN, HIDDEN, CLASSES};
static const float  loss_terms = 8388608.0f, learning_rate = 25.0f, momentum = 0.99f;

static int         seeds = 3, epochs = 60, interval = 500;
static const char *data_path = "examples/data/digits.csv", *out_dir = NULL;

typedef struct config {
    const char *id, *title;
    mpt_format  format;         /* of activations, gradients and the weights that the passes read */
    float       scale;          /* of the loss; where the dynamic scale starts */
    int         dynamic;        /* mpt's rule: double after `interval` good steps, halve on bad ones */
    int         masters;        /* FP32 master weights are kept and stepped */
} config;

enum { FP32, X1, X8, X128, X1024, DYNAMIC, BF16, NO_MASTER, CONFIGS };
static const config configs[CONFIGS] = {
    {"fp32",           "FP32",                  MPT_F32,  1.0f,     0, 1},
    {"fp16_x1",        "FP16, no scale",        MPT_F16,  1.0f,     0, 1},
    {"fp16_x8",        "FP16, scale 8",         MPT_F16,  8.0f,     0, 1},
    {"fp16_x128",      "FP16, scale 128",       MPT_F16,  128.0f,   0, 1},
    {"fp16_x1024",     "FP16, scale 1024",      MPT_F16,  1024.0f,  0, 1},
    {"fp16_dynamic",   "FP16, dynamic scale",   MPT_F16,  65536.0f, 1, 1},
    {"bf16",           "BF16, no scale",        MPT_BF16, 1.0f,     0, 1},
    {"fp16_no_master", "FP16, no FP32 masters", MPT_F16,  65536.0f, 1, 0},
};

/* What is measured of a run: the columns of results.csv after config and seed, in this order. */
enum { ACCURACY, FLUSHED, LOST, SKIPPED, SCALE, BYTES, COLUMNS };

typedef struct run {
    double    value[COLUMNS];
    mpt_range gradients;                /* activation gradients times the scale, before they are stored */
    uint64_t  updates, lost;
    float     weights[LAYERS][MATRIX];  /* at the end */
} run;

static run    runs[CONFIGS][MAX_SEEDS];
static double mean[CONFIGS][COLUMNS];

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "04_train_digits: %s: %s\n", what, why);
    exit(1);
}

static void must(mpt_status status, const char *call)   /* libraries report, programs exit */
{
    if (status != MPT_OK)
        die(call, mpt_status_text(status));
}

/* ---- random numbers (splitmix64), the same on every machine ---- */

static uint64_t random_state;

static double random_unit(void)         /* 0 up to, but not including, 1 */
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 32) / 4294967296.0;
}

static void shuffle(size_t *a, size_t n)
{
    for (; n > 1; n--) {
        const size_t j = (size_t)(random_unit() * (double)n), t = a[n - 1];
        a[n - 1] = a[j];
        a[j] = t;
    }
}

/* ---- the digits ---- */

static float  pixels[MAX_DIGITS][PIXELS];       /* 0, 1/16 ... 1: exact in every format */
static size_t label[MAX_DIGITS];
static size_t split[MAX_DIGITS];                /* the first n_train digits of it train, the others test */
static size_t n_digits, n_train;

/* One line: 64 pixels from 0 to 16, then the label, with commas between. Returns 0 if it is not so. */
static int parse_digit(const char *line, size_t digit)
{
    size_t k;
    char  *end;
    for (k = 0; k <= PIXELS; k++, line = end + 1) {
        const long v = strtol(line, &end, 10);
        if (end == line || v < 0 || v > (k < PIXELS ? 16 : CLASSES - 1) || (k < PIXELS && *end != ','))
            return 0;
        if (k < PIXELS)
            pixels[digit][k] = (float)v / 16.0f;
        else
            label[digit] = (size_t)v;
    }
    return !end[strspn(end, " \r\n")];
}

static void load_digits(void)
{
    char  line[512], wrong[100];
    FILE *f = fopen(data_path, "r");
    if (!f)
        die(data_path, "cannot open the digits (name the file with --data)");
    for (n_digits = 0; n_digits < MAX_DIGITS && fgets(line, (int)sizeof line, f); n_digits++) {
        (void)snprintf(wrong, sizeof wrong, "line %u: expected 64 pixels of 0..16, then a label of 0..9",
                       (unsigned)n_digits + 1u);
        if (!parse_digit(line, n_digits))
            die(data_path, wrong);
        split[n_digits] = n_digits;
    }
    if (ferror(f) || n_digits < 10 || fgets(line, 2, f))
        die(data_path, ferror(f) ? "read error" : "expected 10 to 1797 digits");
    (void)fclose(f);
    random_state = 20240801;            /* one split for all runs */
    shuffle(split, n_digits);
    n_train = n_digits * 8 / 10;
}

/* ---- rows of numbers: here FP16 happens ---- */

static size_t bytes_of(mpt_format format) { return (size_t)mpt_format_get(format)->bits / 8; }

static void store(void *dst, mpt_format format, size_t first, const float *src, size_t n)
{
    must(mpt_encode_n((char *)dst + first * bytes_of(format), format, src, n), "mpt_encode_n");
}

static void load(float *dst, const void *src, mpt_format format, size_t first, size_t n)
{
    must(mpt_decode_n(dst, format, (const char *)src + first * bytes_of(format), n), "mpt_decode_n");
}

static void axpy(float *y, float a, const float *x, size_t n)       /* y += a x */
{
    size_t i;
    for (i = 0; i < n; i++)
        y[i] += a * x[i];
}

static float dot(const float *x, const float *y, size_t n)
{
    float  s[4] = {0.0f, 0.0f, 0.0f, 0.0f};     /* four sums, so that none waits for the last addition */
    size_t i;
    for (i = 0; i < n; i++)
        s[i % 4] += x[i] * y[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* ---- the network: 64 - 32 - 32 - 10, tanh between ---- */

typedef struct net {
    mpt_format format;
    void      *in[LAYERS];              /* [BATCH][n_in]  what each layer read */
    void      *out_grad[LAYERS];        /* [BATCH][n_out] scaled gradient of what it put out, before tanh */
    mpt_tensor weights[LAYERS];         /* [n_in + 1][n_out] each, the last row is the bias */
    mpt_scaler scaler;
    mpt_step   step;
    mpt_sgd    sgd;
    char      *memory;                  /* all of the arrays above */
    size_t     used;                    /* bytes of it */
} net;

static void *zeros(net *t, size_t n, mpt_format format)
{
    void *p = t->memory + t->used;
    t->used += (n * bytes_of(format) + 3) & ~(size_t)3;     /* the next one may be floats */
    if (t->used > MEMORY)
        die("net", "MEMORY is too small for these sizes");
    return p;
}

/* The registry, one entry per tensor, is all that mpt has to know of a network.
 * Returns what the weights, their gradients and their momentum take, in bytes per parameter. */
static double net_init(net *t, const config *c)
{
    size_t l, i, n = 0, bytes;
    memset(t, 0, sizeof *t);
    t->format = c->format;
    t->memory = (char *)calloc(1, MEMORY);
    if (!t->memory)
        die("calloc", "out of memory");
    for (l = 0; l < LAYERS; l++) {
        const double range = sqrt(3.0 / (double)sizes[l]);      /* uniform, with deviation 1/sqrt(n_in) */
        float        start[MATRIX] = {0.0f};                    /* the biases start at 0 */
        mpt_tensor  *w = &t->weights[l];
        w->n = (sizes[l] + 1) * sizes[l + 1];
        w->master = c->masters ? (float *)zeros(t, w->n, MPT_F32) : NULL;
        w->param = c->format == MPT_F32 ? NULL : zeros(t, w->n, c->format); /* FP32: the master is read */
        w->grad = zeros(t, w->n, c->format);
        w->m = (float *)zeros(t, w->n, MPT_F32);
        w->param_format = w->grad_format = c->format;
        for (i = 0; i < w->n - sizes[l + 1]; i++)
            start[i] = (float)((2.0 * random_unit() - 1.0) * range);
        if (w->master)
            memcpy(w->master, start, w->n * sizeof *start);
        if (w->param)
            store(w->param, w->param_format, 0, start, w->n);
        n += w->n;
    }
    bytes = t->used;
    for (l = 0; l < LAYERS; l++) {
        t->in[l] = zeros(t, BATCH * sizes[l], c->format);
        t->out_grad[l] = zeros(t, BATCH * sizes[l + 1], c->format);
    }
    return (double)bytes / (double)n;
}

/* The weights as the passes read them; or those that the step changes. */
static void get_weights(float *dst, const mpt_tensor *w, int stepped)
{
    if (w->master && (stepped || !w->param))
        memcpy(dst, w->master, w->n * sizeof *dst);
    else
        load(dst, w->param, w->param_format, 0, w->n);
}

static void forward(net *t, const size_t *digit, size_t count, float logits[BATCH][CLASSES])
{
    float  w[MATRIX], x[WIDEST], y[WIDEST];
    size_t l, b, i;
    for (b = 0; b < count; b++)
        store(t->in[0], t->format, b * PIXELS, pixels[digit[b]], PIXELS);
    for (l = 0; l < LAYERS; l++) {
        const size_t n_in = sizes[l], n_out = sizes[l + 1];
        get_weights(w, &t->weights[l], 0);
        for (b = 0; b < count; b++) {
            load(x, t->in[l], t->format, b * n_in, n_in);
            memcpy(y, w + n_in * n_out, n_out * sizeof *y);             /* the bias */
            for (i = 0; i < n_in; i++)
                axpy(y, x[i], w + i * n_out, n_out);
            if (l == LAYERS - 1) {
                memcpy(logits[b], y, sizeof logits[b]);                 /* stays FP32 for the softmax */
                continue;
            }
            for (i = 0; i < n_out; i++)
                y[i] = tanhf(y[i]);
            store(t->in[l + 1], t->format, b * n_out, y, n_out);
        }
    }
}

/* Softmax cross-entropy: its gradient is p - y, here times `seed`. */
static void softmax_gradient(float z[CLASSES], size_t right, float seed)
{
    float  most = z[0], sum = 0.0f;
    size_t k;
    for (k = 1; k < CLASSES; k++)
        most = z[k] > most ? z[k] : most;
    for (k = 0; k < CLASSES; k++)
        sum += z[k] = expf(z[k] - most);
    for (k = 0; k < CLASSES; k++)
        z[k] = (z[k] / sum - (k == right ? 1.0f : 0.0f)) * seed;
}

/* Store a row of activation gradients; first, count what the format will make of them. */
static void store_gradient(net *t, size_t l, size_t b, const float *row, mpt_range *seen)
{
    (void)mpt_range_add_f32(seen, row, sizes[l + 1]);
    store(t->out_grad[l], t->format, b * sizes[l + 1], row, sizes[l + 1]);
}

static void backward(net *t, const size_t *digit, float logits[BATCH][CLASSES], float seed, mpt_range *seen)
{
    float  w[MATRIX], g[MATRIX], x[WIDEST], d[WIDEST];
    size_t l, b, i;
    for (b = 0; b < BATCH; b++) {
        softmax_gradient(logits[b], label[digit[b]], seed);
        store_gradient(t, LAYERS - 1, b, logits[b], seen);
    }
    for (l = LAYERS; l-- > 0;) {
        const size_t n_in = sizes[l], n_out = sizes[l + 1];
        get_weights(w, &t->weights[l], 0);
        memset(g, 0, sizeof g);
        for (b = 0; b < BATCH; b++) {
            load(x, t->in[l], t->format, b * n_in, n_in);
            load(d, t->out_grad[l], t->format, b * n_out, n_out);
            for (i = 0; i < n_in; i++)
                axpy(g + i * n_out, x[i], d, n_out);
            axpy(g + n_in * n_out, 1.0f, d, n_out);                     /* the bias */
            if (l == 0)
                continue;                                               /* the pixels need no gradient */
            for (i = 0; i < n_in; i++)
                x[i] = dot(w + i * n_out, d, n_out) * (1.0f - x[i] * x[i]);
            store_gradient(t, l - 1, b, x, seen);
        }
        store(t->weights[l].grad, t->format, 0, g, t->weights[l].n);
    }
}

/* ---- the step ---- */

/* How not to do it: the FP16 weights are all there is, and an update below half the gap to the next FP16
 * number rounds away. mpt has no such step, so here is one: the same SGD, in FP32 until it is stored. */
static void step_without_masters(const net *t)
{
    float  g[MATRIX], x[MATRIX];
    size_t l, i;
    for (l = 0; l < LAYERS && !t->step.found_inf; l++) {
        const mpt_tensor *w = &t->weights[l];
        float *const      m = (float *)w->m;
        load(g, w->grad, w->grad_format, 0, w->n);
        load(x, w->param, w->param_format, 0, w->n);
        for (i = 0; i < w->n; i++) {
            m[i] = t->sgd.momentum * m[i] + g[i] * t->step.grad_factor;
            x[i] -= t->sgd.lr * m[i];
        }
        store(w->param, w->param_format, 0, x, w->n);
    }
}

/* An update is lost if it is not zero, yet leaves the weight as it was. */
static void count_updates(run *r, float before[LAYERS][MATRIX], const net *t)
{
    float  after[MATRIX];
    size_t l, i;
    for (l = 0; l < LAYERS; l++) {
        const float *const m = (const float *)t->weights[l].m;
        get_weights(after, &t->weights[l], 1);
        for (i = 0; i < t->weights[l].n; i++) {
            const int update = t->sgd.lr * m[i] != 0.0f;
            r->updates += (unsigned)update;
            r->lost += (unsigned)(update & (after[i] == before[l][i]));
        }
    }
}

/* One batch: the five verbs. */
static void train_batch(net *t, const size_t *digit, float terms, run *r)
{
    static float before[LAYERS][MATRIX];
    float        logits[BATCH][CLASSES], seed;
    size_t       l;

    forward(t, digit, BATCH, logits);
    seed = mpt_scaler_scale(&t->scaler, 1.0f / terms);                                  /* 1 scale */
    backward(t, digit, logits, seed, &r->gradients);                                    /* 2 backward */
    must(mpt_check(&t->scaler, &t->step, t->weights, LAYERS), "mpt_check");             /* 3 check */
    for (l = 0; l < LAYERS; l++)
        get_weights(before[l], &t->weights[l], 1);
    if (t->weights[0].master)                                                           /* 4 step */
        must(mpt_sgd_step(&t->sgd, &t->step, t->weights, LAYERS), "mpt_sgd_step");
    else
        step_without_masters(t);
    if (!t->step.found_inf)
        count_updates(r, before, t);
    must(mpt_scaler_update(&t->scaler), "mpt_scaler_update");                           /* 5 update */
}

static double test_accuracy(net *t)
{
    float  logits[BATCH][CLASSES];
    size_t at, b, k, right = 0;
    for (at = n_train; at < n_digits; at += BATCH) {
        const size_t count = n_digits - at < BATCH ? n_digits - at : BATCH;
        forward(t, split + at, count, logits);
        for (b = 0; b < count; b++) {
            size_t best = 0;
            for (k = 1; k < CLASSES; k++)
                best = logits[b][k] > logits[b][best] ? k : best;
            right += best == label[split[at + b]];
        }
    }
    return (double)right / (double)(n_digits - n_train);
}

static double share(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 0.0; }

static void train(const config *c, int seed, float terms, float lr, run *r)
{
    mpt_scaler_config rule = mpt_scaler_preset(c->dynamic ? MPT_SCALER_MPT : MPT_SCALER_STATIC);
    size_t            order[MAX_DIGITS], at, l;
    int               epoch;
    net               t;

    random_state = (uint64_t)seed * 1000003u;
    r->value[BYTES] = net_init(&t, c);
    t.sgd.lr = lr;
    t.sgd.momentum = momentum;
    rule.init_scale = c->scale;
    rule.interval = interval;
    must(mpt_scaler_init(&t.scaler, &rule), "mpt_scaler_init");
    must(mpt_range_init(&r->gradients, c->format), "mpt_range_init");
    memcpy(order, split, sizeof order);
    for (epoch = 0; epoch < epochs; epoch++) {
        shuffle(order, n_train);
        for (at = 0; at + BATCH <= n_train; at += BATCH)
            train_batch(&t, order + at, terms, r);
    }
    for (l = 0; l < LAYERS; l++)
        get_weights(r->weights[l], &t.weights[l], 1);
    r->value[ACCURACY] = test_accuracy(&t);
    r->value[FLUSHED] = share(r->gradients.flushed, mpt_range_nonzero(&r->gradients));
    r->value[LOST] = share(r->lost, r->updates);
    r->value[SKIPPED] = (double)t.scaler.skipped;
    r->value[SCALE] = (double)t.scaler.scale;
    free(t.memory);
}

static void train_all(run *plain, float plain_rate)
{
    const int terminal = STDERR_IS_TERMINAL();
    int       c, s, k;
    for (c = 0; c < CONFIGS; c++)
        for (s = 0; s < seeds; s++) {
            if (terminal || s == 0)
                (void)fprintf(stderr, terminal ? "\rrun %d of %d: %-22s" : "run %d of %d: %s\n",
                              c * seeds + s + 1, CONFIGS * seeds, configs[c].title);
            train(&configs[c], s + 1, loss_terms, learning_rate, &runs[c][s]);
            for (k = 0; k < COLUMNS; k++)
                mean[c][k] += runs[c][s].value[k] / seeds;
        }
    /* Is the small loss a trick? A plain mean, with a rate as much smaller, must give the same weights. */
    train(&configs[FP32], 1, (float)BATCH, plain_rate, plain);
    if (terminal)
        (void)fprintf(stderr, "\r%40s\r", "");
}

/* ---- what is printed ---- */

static void print_setup(void)
{
    printf("%u digits to train on, %u to test; %d epochs in batches of %d; %d seed%s; dynamic: x2 after %d "
           "steps\n"
           "net %d-%d-%d-%d, tanh; SGD, momentum %.2f, learning rate %g; loss: sum over the batch / 2^%g\n\n",
           (unsigned)n_train, (unsigned)(n_digits - n_train), epochs, (int)BATCH, seeds, seeds > 1 ? "s" : "",
           interval, (int)PIXELS, (int)HIDDEN, (int)HIDDEN, (int)CLASSES, (double)momentum,
           (double)learning_rate, log2((double)loss_terms));
}

static void print_table(void)
{
    int c, s;
    printf("%-22s %-19s %11s %9s %9s  %-6s %10s\n", "", "test accuracy %", "gradients", "updates", "steps",
           "final", "bytes per");
    printf("%-22s %5s  %-12s %11s %9s %9s  %-6s %10s\n", "", "mean", "least..most", "lost", "lost", "skipped",
           "scale", "parameter");
    for (c = 0; c < CONFIGS; c++) {
        double least = 1.0, most = 0.0, log2_scale = 0.0;
        for (s = 0; s < seeds; s++) {
            least = fmin(least, runs[c][s].value[ACCURACY]);
            most = fmax(most, runs[c][s].value[ACCURACY]);
            log2_scale += log2(runs[c][s].value[SCALE]) / seeds;
        }
        printf("%-22s %5.1f  %5.1f..%-5.1f %10.1f%% %8.1f%% %9.1f  2^%-4.3g %10g\n", configs[c].title,
               100.0 * mean[c][ACCURACY], 100.0 * least, 100.0 * most, 100.0 * mean[c][FLUSHED],
               100.0 * mean[c][LOST], mean[c][SKIPPED], log2_scale, mean[c][BYTES]);
    }
    printf("\ngradients lost: activation gradients, those that flow back, not zero but zero once stored;\n"
           "updates lost: not zero, but the weight stayed as it was; bytes: weights, gradient, momentum.\n");
}

static double points(int c) { return 100.0 * (mean[c][ACCURACY] - mean[FP32][ACCURACY]); }

static void print_what_you_see(const run *plain, float plain_rate)
{
    const int same = !memcmp(plain->weights, runs[FP32][0].weights, sizeof plain->weights);
    printf("\nWhat you see, in points of test accuracy against FP32:\n"
           "  no scale   %+6.1f  %.1f%% of the gradients became zero when they were stored.\n"
           "  scale 8    %+6.1f  Three binades up; %.1f%% are still lost, the smallest.\n"
           "  dynamic    %+6.1f  Nobody chose the scale: it doubles until a gradient overflows, %.1f times\n"
           "                     a run; then the step is skipped and the scale halved.\n", points(X1),
           100.0 * mean[X1][FLUSHED], points(X8), 100.0 * mean[X8][FLUSHED], points(DYNAMIC),
           mean[DYNAMIC][SKIPPED]);
    printf("  BF16       %+6.1f  No scale: its exponents reach as low as those of FP32.\n"
           "  no masters %+6.1f  Its gradients are fine (%.1f%% lost), but %.1f%% of the updates are too\n"
           "                     small to move an FP16 weight; of the FP32 masters above, %.1f%%.\n",
           points(BF16), points(NO_MASTER), 100.0 * mean[NO_MASTER][FLUSHED], 100.0 * mean[NO_MASTER][LOST],
           100.0 * mean[DYNAMIC][LOST]);
    printf("Only a stand-in? FP32 on the plain mean over the batch, learning rate %.3g, ends in %s\n"
           "weights (seed 1, %.1f%%).\n",
           (double)plain_rate, same ? "bit-identical" : "DIFFERENT", 100.0 * plain->value[ACCURACY]);
}

static void print_histogram(int c)
{
    char title[128];
    (void)snprintf(title, sizeof title, "%s: activation gradients times scale (seed 1)", configs[c].title);
    putchar('\n');
    must(mpt_range_print(stdout, &runs[c][0].gradients, title), "mpt_range_print");
}

/* ---- what is written with --out ---- */

static FILE *open_out(const char *name)
{
    char  path[1024];
    FILE *f = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", out_dir, name) < sizeof path)
        f = fopen(path, "w");
    if (!f)
        die(path, "cannot write it (does the folder exist?)");
    return f;
}

static void write_results(FILE *f)
{
    int c, s, k;
    (void)fprintf(f, "config,seed,test_accuracy,flushed_fraction,updates_lost_fraction,steps_skipped,"
                     "final_scale,bytes_per_param\n");
    for (c = 0; c < CONFIGS; c++)
        for (s = 0; s < seeds; s++) {
            (void)fprintf(f, "%s,%d", configs[c].id, s + 1);
            for (k = 0; k < COLUMNS; k++)
                (void)fprintf(f, ",%.12g", runs[c][s].value[k]);
            (void)fputc('\n', f);
        }
}

/* Percent of the nonzero gradients of seed 1 in each binade 2^e, and what FP16 makes of that binade:
 * 0 it becomes zero, 1 subnormal, 2 normal, 3 overflow. */
static void write_histogram(FILE *f)
{
    static const int       column[] = {X1, X1024, DYNAMIC};
    const mpt_format_info *f16 = mpt_format_get(MPT_F16);
    int                    e, k;
    (void)fprintf(f, "log2,%s,%s,%s,zone\n", configs[X1].id, configs[X1024].id, configs[DYNAMIC].id);
    for (e = 2 * f16->emin - f16->mantissa_bits; e <= f16->emax + 3; e++) {
        (void)fprintf(f, "%d", e);
        for (k = 0; k < 3; k++) {
            const mpt_range *r = &runs[column[k]][0].gradients;
            (void)fprintf(f, ",%.6f", 100.0 * share(r->binade[e - MPT_RANGE_EMIN], mpt_range_nonzero(r)));
        }
        (void)fprintf(f, ",%d\n",
                      (e >= f16->emin - f16->mantissa_bits - 1) + (e >= f16->emin) + (e > f16->emax));
    }
}

/* ---- options and main ---- */

static void usage(const char *wrong)
{
    if (wrong)
        (void)fprintf(stderr, "04_train_digits: %s: unknown, or its value missing or out of range\n", wrong);
    (void)fprintf(wrong ? stderr : stdout,
                  "usage: 04_train_digits [options]\n"
                  "  --data FILE   the digits; without it examples/data/digits.csv\n"
                  "  --out DIR     write results.csv and the reports into this folder, which must exist\n"
                  "  --seeds N     runs per line of the table, 1..%d, default 3\n"
                  "  --epochs N    1..1000, default 60\n"
                  "  --quick       1 seed, 15 epochs, a dynamic scale that doubles 4 times as often\n",
                  (int)MAX_SEEDS);
    exit(wrong ? 2 : 0);
}

static int number(const char *text, long most)          /* 0 if it is not in 1..most */
{
    char *end = NULL;
    long  v = text ? strtol(text, &end, 10) : 0;
    return !text || *end || v < 1 || v > most ? 0 : (int)v;
}

static void parse_options(int argc, char **argv)
{
    int i;
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = argv[i + 1];       /* argv[argc] is NULL */
        if (!strcmp(name, "--help"))
            usage(NULL);
        else if (!strcmp(name, "--quick"))
            seeds = 1, epochs = 15, interval = 125;
        else if (!strcmp(name, "--data") && value)
            data_path = argv[++i];
        else if (!strcmp(name, "--out") && value)
            out_dir = argv[++i];
        else if (!strcmp(name, "--seeds") && (seeds = number(value, MAX_SEEDS)) > 0)
            i++;
        else if (!strcmp(name, "--epochs") && (epochs = number(value, 1000)) > 0)
            i++;
        else
            usage(name);
    }
}

int main(int argc, char **argv)
{
    const float plain_rate = learning_rate * (float)BATCH / loss_terms;
    static run  plain;
    FILE       *results = NULL, *histogram = NULL, *curve = NULL, *range = NULL, *binades = NULL;

    parse_options(argc, argv);
    load_digits();
    if (out_dir) {                      /* now, so that it fails before half a minute of work */
        results = open_out("results.csv");
        histogram = open_out("histogram.csv");
        curve = open_out("curve.csv");
        range = open_out("range.csv");
        binades = open_out("binades.csv");
    }
    train_all(&plain, plain_rate);
    print_setup();
    print_table();
    print_what_you_see(&plain, plain_rate);
    print_histogram(X1);
    print_histogram(X1024);
    if (out_dir) {
        write_results(results);
        write_histogram(histogram);
        (void)mpt_range_write_curve(&runs[X1][0].gradients, -10, 46, mpt_writer_file(curve));
        (void)mpt_range_write(&runs[X1][0].gradients, MPT_STYLE_CSV_HEAD, "", mpt_writer_file(range));
        (void)mpt_range_write(&runs[X1][0].gradients, MPT_STYLE_CSV, "gradients", mpt_writer_file(range));
        (void)mpt_range_write_histogram(&runs[X1][0].gradients, mpt_writer_file(binades));
        if (ferror(results) | fclose(results) | ferror(histogram) | fclose(histogram) | ferror(curve) |
            fclose(curve) | ferror(range) | fclose(range) | ferror(binades) | fclose(binades))
            die(out_dir, "cannot write the CSV files");
    }
    return 0;
}
