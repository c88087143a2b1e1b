/* 14_paper_effects.c -- what FP16 does to training, effect by effect, on real digits.
 *
 *     cc -O2 -I. examples/14_paper_effects.c -o 14_paper_effects -lm
 *     ./14_paper_effects                  from the top folder, under a minute; --seeds N, default 3
 *
 * "Mixed Precision Training" (arXiv 1710.03740) names three ways in which FP16 fails: activation gradients
 * become zero (its SSD network diverges until the loss is scaled by 8), small updates are lost against large
 * weights, and constants that FP32 can hold, such as an epsilon of 1e-8, become zero. Here each is shown
 * with a multilayer perceptron that trains in a second. Beside each number stands that of an earlier study of
 * the same effects, which gives the network, the loss factor and some rates. What it does not give (batch,
 * epochs, initial deviation, seeds, other rates) is chosen here such that the numbers agree within a point.
 *
 * The loss times 2^-k with the learning rate times 2^k is the same training in exact arithmetic, and in FP32.
 * It shifts the gradients to where they are in networks whose loss is a mean over many more terms. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/digits.h"

enum { PIXELS = DIGIT_PIXELS, WIDTH = 64, CLASSES = DIGIT_KINDS, MAX_LAYERS = 6, MAX_BATCH = 64 };
enum { MATRIX = (WIDTH + 1) * WIDTH, MAX_SEEDS = 10 };

typedef enum activation { TANH, SIGMOID } activation;

/* What all rows of one table have in common. */
typedef struct setup {
    size_t     layers, batch;
    activation kind;
    int        epochs, log2_loss;       /* loss: mean over the batch, times 2^log2_loss */
    float      rate, momentum, gain;    /* weights start with deviation gain / sqrt(n_in) */
    int        first_seed, seed_step;
} setup;

typedef struct way {                    /* one row of a table */
    const char *title;
    mpt_format  format;
    float       scale;                  /* loss scale; 0: dynamic, by the default dialect */
    mpt_storage storage;
    float       eps;                    /* 0: SGD; above 0: Adam, with this eps and the moments in FP16 */
    double      study;                  /* the accuracy in the study, percent */
} way;

typedef struct run {
    double    accuracy;
    uint64_t  updates, lost;            /* nonzero updates, lost ones; counted with MPT_STORE_NEAREST only */
    mpt_range gradients;                /* activation gradients times the scale, before they are stored */
} run;

static int seeds = 3;

/* ---- the network ---- */

typedef struct net {
    const setup *s;
    const way   *w;
    size_t       size[MAX_LAYERS + 1];
    mpt_tensor   weights[MAX_LAYERS];   /* [n_in + 1][n_out] each, the last row is the bias */
    mpt_scaler   scaler;
    mpt_step     step;
    mpt_sgd      sgd;
    mpt_adam     adam;
    float        master[MAX_LAYERS][MATRIX], param[MAX_LAYERS][MATRIX], extra[MAX_LAYERS][MATRIX];
    float        grad[MAX_LAYERS][MATRIX], m[MAX_LAYERS][MATRIX], v[MAX_LAYERS][MATRIX];
    float        in[MAX_LAYERS + 1][MAX_BATCH][WIDTH];      /* stored in `format` */
} net;

static net t;

static void net_init(const setup *s, const way *w, int seed)
{
    size_t l, i;
    memset(&t, 0, sizeof t);
    t.s = s;
    t.w = w;
    random_state = (uint64_t)seed * 1000003u;
    for (l = 0; l <= s->layers; l++)
        t.size[l] = l == 0 ? PIXELS : l < s->layers ? WIDTH : CLASSES;
    for (l = 0; l < s->layers; l++) {
        const double range = (double)s->gain * sqrt(3.0 / (double)t.size[l]);
        mpt_tensor  *p = &t.weights[l];
        p->n = (t.size[l] + 1) * t.size[l + 1];
        p->storage = w->storage;
        p->seed = (uint64_t)seed;
        p->param_format = p->grad_format = w->format;
        p->grad = t.grad[l];
        p->m = t.m[l];
        p->param = w->format == MPT_F32 ? NULL : t.param[l];
        p->master = w->storage == MPT_STORE_MASTER ? t.master[l] : NULL;
        p->extra = w->storage == MPT_STORE_KAHAN ? t.extra[l] : NULL;
        for (i = 0; i < p->n - t.size[l + 1]; i++)
            t.master[l][i] = random_weight(range);
        if (p->param)
            store(p->param, w->format, t.master[l], p->n);
    }
}

static void read_weights(float *dst, size_t l)
{
    if (t.weights[l].param)
        load(dst, t.weights[l].param, t.w->format, t.weights[l].n);
    else
        memcpy(dst, t.master[l], t.weights[l].n * sizeof *dst);
}

static void forward(const float *pixels, size_t count, float logits[][CLASSES])
{
    float  w[MATRIX], x[WIDTH], y[WIDTH];
    size_t l, b, i;
    for (b = 0; b < count; b++)
        store(t.in[0][b], t.w->format, pixels + b * PIXELS, PIXELS);
    for (l = 0; l < t.s->layers; l++) {
        const size_t n_in = t.size[l], n_out = t.size[l + 1];
        read_weights(w, l);
        for (b = 0; b < count; b++) {
            load(x, t.in[l][b], t.w->format, n_in);
            memcpy(y, w + n_in * n_out, n_out * sizeof *y);
            for (i = 0; i < n_in; i++)
                (void)mpt_axpy(y, MPT_F32, x[i], w + i * n_out, MPT_F32, n_out);
            if (l == t.s->layers - 1) {
                memcpy(logits[b], y, sizeof logits[b]);
                continue;
            }
            for (i = 0; i < n_out; i++)
                y[i] = t.s->kind == TANH ? tanhf(y[i]) : 1.0f / (1.0f + expf(-y[i]));
            store(t.in[l + 1][b], t.w->format, y, n_out);
        }
    }
}

/* Count what FP16 would do to a row of activation gradients, then round it to the format. */
static void round_gradient(float *row, size_t n, mpt_range *seen)
{
    float low[WIDTH];
    (void)mpt_range_add(seen, MPT_F32, row, n);
    store(low, t.w->format, row, n);
    load(row, low, t.w->format, n);
}

/* The backward pass, from the gradient of the logits. */
static void backward(float logits[][CLASSES], mpt_range *seen)
{
    static float out[MAX_BATCH][WIDTH];
    float        w[MATRIX], g[MATRIX], x[WIDTH], d[WIDTH];
    size_t       l, b, i;
    for (b = 0; b < t.s->batch; b++) {
        round_gradient(logits[b], CLASSES, seen);
        memcpy(out[b], logits[b], sizeof logits[b]);
    }
    for (l = t.s->layers; l-- > 0;) {
        const size_t n_in = t.size[l], n_out = t.size[l + 1];
        read_weights(w, l);
        memset(g, 0, sizeof g);
        for (b = 0; b < t.s->batch; b++) {
            load(x, t.in[l][b], t.w->format, n_in);
            memcpy(d, out[b], n_out * sizeof *d);
            for (i = 0; i < n_in; i++)
                (void)mpt_axpy(g + i * n_out, MPT_F32, x[i], d, MPT_F32, n_out);
            (void)mpt_axpy(g + n_in * n_out, MPT_F32, 1.0f, d, MPT_F32, n_out);
            if (l == 0)
                continue;
            for (i = 0; i < n_in; i++)
                out[b][i] = mpt_dot(w + i * n_out, MPT_F32, d, MPT_F32, n_out) *
                            (t.s->kind == TANH ? 1.0f - x[i] * x[i] : x[i] * (1.0f - x[i]));
            round_gradient(out[b], n_in, seen);
        }
        store(t.weights[l].grad, t.w->format, g, t.weights[l].n);
    }
}

static float half(float x) { return mpt_f32_from_f16(mpt_f16_from_f32(x)); }

/* Adam with FP32 masters, but with moments, eps and updates rounded to FP16. */
static void adam_f16(mpt_adam *o)
{
    const float eps = half(o->eps);
    float       g[MATRIX];
    size_t      l, i;
    double      c1, c2;
    if (t.step.found_inf)
        return;
    o->t++;
    c1 = 1.0 - pow((double)o->beta1, (double)o->t);
    c2 = 1.0 - pow((double)o->beta2, (double)o->t);
    for (l = 0; l < t.s->layers; l++) {
        float *m = t.m[l], *v = t.v[l];
        load(g, t.grad[l], t.w->format, t.weights[l].n);
        for (i = 0; i < t.weights[l].n; i++) {
            const float x = g[i] * t.step.grad_factor;
            m[i] = half(o->beta1 * m[i] + (1.0f - o->beta1) * x);
            v[i] = half(o->beta2 * v[i] + (1.0f - o->beta2) * x * x);
            t.master[l][i] -= o->lr * half((m[i] / (float)c1) / half(half(sqrtf(v[i] / (float)c2)) + eps));
        }
        store(t.param[l], t.w->format, t.master[l], t.weights[l].n);
    }
}

/* An update is lost if it is not zero but does not change the weight. All weights here have 16 bits. */
static void count_updates(run *r, float before[][MATRIX])
{
    size_t l, i;
    for (l = 0; l < t.s->layers; l++)
        for (i = 0; i < t.weights[l].n; i++)
            if (t.sgd.lr * t.m[l][i] != 0.0f) {
                r->updates++;
                r->lost += !memcmp((char *)before[l] + 2 * i, (char *)t.param[l] + 2 * i, 2);
            }
}

static void train_batch(const size_t *order, run *r)
{
    static float logits[MAX_BATCH][CLASSES], before[MAX_LAYERS][MATRIX];
    const size_t n = t.s->batch;
    float        pixels[MAX_BATCH * PIXELS], seed;
    uint32_t     label[MAX_BATCH];
    digits_batch(order, n, pixels, label);
    forward(pixels, n, logits);
    seed = mpt_scaler_scale(&t.scaler, ldexpf(1.0f, t.s->log2_loss));
    must(mpt_cross_entropy(logits, MPT_F32, label, n, CLASSES, NULL, logits, MPT_F32, seed));
    backward(logits, &r->gradients);
    must(mpt_check(&t.scaler, &t.step, t.weights, t.s->layers, NULL));
    memcpy(before, t.param, sizeof before);
    if (t.w->eps > 0.0f)
        adam_f16(&t.adam);
    else
        must(mpt_sgd_step(&t.sgd, &t.step, t.weights, t.s->layers));
    if (t.w->storage == MPT_STORE_NEAREST)
        count_updates(r, before);
    must(mpt_scaler_update(&t.scaler));
}

static double test_accuracy(const size_t *order, size_t n)
{
    float  logits[1][CLASSES];
    size_t k, right = 0;
    for (k = 0; k < n; k++) {
        forward(digits[order[k]].x, 1, logits);
        right += digit_best(logits[0]) == digits[order[k]].label;
    }
    return 100.0 * share(right, n);
}

static void train(const setup *s, const way *w, int seed, run *r)
{
    mpt_scaler_config scaler = mpt_scaler_defaults(w->scale > 0.0f ? MPT_SCALER_STATIC : MPT_SCALER_MPT);
    size_t            order[DIGITS_MOST], at;
    int               epoch;
    memset(r, 0, sizeof *r);
    net_init(s, w, seed);
    t.sgd.lr = ldexpf(s->rate, -s->log2_loss);
    t.sgd.momentum = s->momentum;
    t.adam = mpt_adam_defaults();
    t.adam.lr = s->rate;
    t.adam.eps = w->eps;
    scaler.init_scale = w->scale > 0.0f ? w->scale : 65536.0f;
    scaler.interval = 200;
    must(mpt_scaler_init(&t.scaler, &scaler));
    must(mpt_range_init(&r->gradients, MPT_F16));
    for (at = 0; at < digits_count; at++)
        order[at] = at;
    for (epoch = 0; epoch < s->epochs; epoch++) {
        shuffle(order, digits_train);
        for (at = 0; at + s->batch <= digits_train; at += s->batch)
            train_batch(order + at, r);
    }
    r->accuracy = test_accuracy(order + digits_train, digits_count - digits_train);
}

/* ---- the effects: a setup for each table, and its rows ---- */

static const setup
    shares  = {5, 16, SIGMOID, 20, 0,   0.16f,   0.9f, 6.3f,  1, 1},
    diverge = {4, 32, TANH,    15, -17, 0.044f,  0.0f, 0.75f, 1, 1},
    partial = {5, 64, SIGMOID, 13, -13, 0.29f,   0.9f, 2.45f, 3, 4},
    masters = {3, 16, TANH,    26, 0,   0.0001f, 0.9f, 1.15f, 40, 1},
    epsilon = {3, 32, TANH,    5,  0,   0.001f,  0.0f, 1.0f,  1, 1};

#define MASTER MPT_STORE_MASTER
static const way scales[] = {           /* less_scales: the first five, with the study's other numbers */
    {"FP32",              MPT_F32,  1.0f,   MASTER, 0.0f, 95.7},
    {"FP16 x1",           MPT_F16,  1.0f,   MASTER, 0.0f, 11.7},
    {"FP16 x8",           MPT_F16,  8.0f,   MASTER, 0.0f, 95.6},
    {"FP16 x128",         MPT_F16,  128.0f, MASTER, 0.0f, 95.7},
    {"FP16 dynamic",      MPT_F16,  0.0f,   MASTER, 0.0f, 95.7},
    {"BF16 x1",           MPT_BF16, 1.0f,   MASTER, 0.0f, 95.7},
};
static const way less_scales[] = {
    {"FP32",              MPT_F32,  1.0f,   MASTER, 0.0f, 92.4},
    {"FP16 x1",           MPT_F16,  1.0f,   MASTER, 0.0f, 64.6},
    {"FP16 x8",           MPT_F16,  8.0f,   MASTER, 0.0f, 80.5},
    {"FP16 x128",         MPT_F16,  128.0f, MASTER, 0.0f, 93.2},
    {"FP16 dynamic",      MPT_F16,  0.0f,   MASTER, 0.0f, 92.9},
};
static const way storages[] = {
    {"FP32",              MPT_F32,  1.0f,    MASTER,               0.0f, 79.1},
    {"FP16 no master",    MPT_F16,  1024.0f, MPT_STORE_NEAREST,    0.0f, 34.5},
    {"FP16 stochastic",   MPT_F16,  1024.0f, MPT_STORE_STOCHASTIC, 0.0f, 79.1},
    {"FP16 Kahan",        MPT_F16,  1024.0f, MPT_STORE_KAHAN,      0.0f, 79.1},
    {"BF16 no master",    MPT_BF16, 1.0f,    MPT_STORE_NEAREST,    0.0f, 10.8},
    {"BF16 stochastic",   MPT_BF16, 1.0f,    MPT_STORE_STOCHASTIC, 0.0f, 79.2},
};
static const way epsilons[] = {
    {"FP16 eps 1e-8",     MPT_F16,  1024.0f, MASTER, 1e-8f, 10.0},
    {"FP16 eps 1e-4",     MPT_F16,  1024.0f, MASTER, 1e-4f, 95.3},
};

static void print_setup(const char *title, const setup *s)
{
    printf("\n%s\n  %u layers of %d, %s, weights %g/sqrt(n_in); batch %u, %d epochs; rate %g, momentum %g",
           title, (unsigned)s->layers, (int)WIDTH, s->kind == TANH ? "tanh" : "sigmoid", (double)s->gain,
           (unsigned)s->batch, s->epochs, (double)s->rate, (double)s->momentum);
    if (s->log2_loss)
        printf(";\n  loss * 2^%d, rate * 2^%d", s->log2_loss, -s->log2_loss);
    printf(";\n  seeds %d, %d ...\n", s->first_seed, s->first_seed + s->seed_step);
}

static void print_share(int known, uint64_t part, uint64_t whole)
{
    if (known)
        printf(" | %13.1f%%", 100.0 * share(part, whole));
    else
        printf(" | %14s", "-");
}

static void effect(const char *title, const setup *s, const way *w, size_t count)
{
    size_t i;
    int    k;
    print_setup(title, s);
    printf("  %-16s | accuracy | study | least..most | gradients lost |   updates lost\n", "");
    for (i = 0; i < count; i++) {
        double   sum = 0.0, least = 100.0, most = 0.0;
        uint64_t flushed = 0, nonzero = 0, updates = 0, lost = 0;
        run      r;
        for (k = 0; k < seeds; k++) {
            train(s, &w[i], s->first_seed + k * s->seed_step, &r);
            sum += r.accuracy;
            least = fmin(least, r.accuracy);
            most = fmax(most, r.accuracy);
            flushed += r.gradients.flushed;
            nonzero += mpt_range_nonzero(&r.gradients);
            updates += r.updates;
            lost += r.lost;
        }
        printf("  %-16s | %8.1f | %5.1f | %4.1f..%-5.1f", w[i].title, sum / seeds, w[i].study, least,
               most);
        print_share(w[i].format == MPT_F16, flushed, nonzero);
        print_share(updates > 0, lost, updates);
        printf("\n");
        (void)fflush(stdout);
    }
}

/* One FP32 training is enough for every scale: a scale only shifts the histogram of the gradients. */
static void effect_shares(void)
{
    static const int    log2_scale[] = {0, 3, 7, 10, 15};
    static const double study[] = {23.0, 10.3, 3.4, 1.3, 0.09};
    mpt_range           all;
    run                 r;
    size_t              i;
    int                 k;
    print_setup("Activation gradients that FP16 would lose, in percent of the nonzero ones", &shares);
    must(mpt_range_init(&all, MPT_F16));
    for (k = 0; k < seeds; k++) {
        train(&shares, &scales[0], shares.first_seed + k * shares.seed_step, &r);
        must(mpt_range_merge(&all, &r.gradients));
    }
    printf("  %-16s | %% lost   | study\n", "");
    for (i = 0; i < sizeof study / sizeof *study; i++) {
        mpt_range_choice c;
        char             title[24];
        must(mpt_range_at_scale(&all, log2_scale[i], &c));
        (void)snprintf(title, sizeof title, "lost at x%ld", 1L << log2_scale[i]);
        printf("  %-16s | %8.2f | %5.2f\n", title, 100.0 * share(c.flushed, mpt_range_nonzero(&all)),
               study[i]);
    }
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

int main(int argc, char **argv)
{
    const char *data = "examples/data/digits.csv";
    for ((void)argc, argv++; *argv; argv++)
        if (!option_number(&argv, "--seeds", &seeds, MAX_SEEDS) && !option_text(&argv, "--data", &data))
            option_end(*argv, "usage: 14_paper_effects [--seeds N, 1..10] [--data FILE of digits]\n");
    digits_load(data);
    printf("%d seed%s; mean test accuracy in percent; study: the number of the earlier study.\n", seeds,
           seeds > 1 ? "s" : "");
    effect_shares();
    effect("A training that diverges, cured by a scale of 8", &diverge, scales, COUNT(scales));
    effect("Partial loss: a scale of 8 cures only some of it", &partial, less_scales, COUNT(less_scales));
    effect("Small updates, and where the weights are stored", &masters, storages, COUNT(storages));
    effect("Adam with eps and moments in FP16", &epsilon, epsilons, COUNT(epsilons));
    printf("  mpt_lint_constant(MPT_F16, 1e-8): %s\n", mpt_lint_text(mpt_lint_constant(MPT_F16, 1e-8)));
    return 0;
}
