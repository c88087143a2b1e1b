/* 04_train_digits.c -- a network that FP16 alone cannot train, and the one number that helps: the loss scale.
 *
 *     cc -O2 -I. examples/04_train_digits.c -o 04_train_digits -lm
 *     ./04_train_digits                   from the top folder, some seconds; --help for options
 *
 * A small network learns to read 1797 real handwritten digits, eight times: in FP32, in FP16 with several
 * loss scales, in BF16, and in FP16 without FP32 master weights. The forward and backward passes are written
 * out below, as in a trainer of your own. Activations, gradients and the weights that the passes read are
 * stored in the small format; sums are computed in FP32 and rounded once, when they are stored.
 *
 * Why FP16 fails here: the loss is divided by 2^23 = 8 million terms, as in a detector that averages over all
 * its boxes, or a language model whose batch holds millions of tokens. Only the 4 digits of a batch have a
 * gradient, about 2^-23 of probability minus target: around the smallest number of FP16, 2^-24, and mostly
 * below it. The learning rate, 25, is as large as the loss is small. So this is a stand-in for such a model
 * that trains in seconds. In FP32 the division changes nothing, and the program tests that, too. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/digits.h"

/* ---- the set-up ---- */

enum { PIXELS = DIGIT_PIXELS, HIDDEN = 32, CLASSES = DIGIT_KINDS, LAYERS = 3, BATCH = 4, WIDEST = PIXELS };
enum { SECOND = (PIXELS + 1) * HIDDEN, THIRD = SECOND + (HIDDEN + 1) * HIDDEN };
enum { WEIGHTS = THIRD + (HIDDEN + 1) * CLASSES, PADDED = (WEIGHTS + 3) / 4 * 4, MAX_SEEDS = 20 };

static const char *const names[LAYERS] = {"first", "second", "third"};
static const size_t      sizes[LAYERS + 1] = {PIXELS, HIDDEN, HIDDEN, CLASSES};
static const size_t      first[LAYERS] = {0, SECOND, THIRD};    /* weight of each layer, among all */
static const float       loss_terms = 8388608.0f, learning_rate = 25.0f, momentum = 0.99f;

static int         seeds = 3, epochs = 60, interval = 500;      /* good steps until a dynamic scale doubles */
static const char *data_path = "examples/data/digits.csv", *out_dir = NULL;

typedef struct config {
    const char *id, *title;
    mpt_format  format;         /* of activations, gradients and the weights that the passes read */
    float       scale;          /* loss scale; of a dynamic one, the first */
    mpt_storage storage;        /* with FP32 masters, which the optimizer steps; or FP16 weights alone */
    mpt_scaler_dialect scaler;  /* static; dynamic: doubles after `interval` good steps, halves on bad ones */
} config;

enum { FP32, X1, X8, X128, X1024, DYNAMIC, BF16, NO_MASTER, CONFIGS };
static const config configs[CONFIGS] = {
    {"fp32",           "FP32",                  MPT_F32,  1.0f,     MPT_STORE_MASTER,  MPT_SCALER_STATIC},
    {"fp16_x1",        "FP16, no scale",        MPT_F16,  1.0f,     MPT_STORE_MASTER,  MPT_SCALER_STATIC},
    {"fp16_x8",        "FP16, scale 8",         MPT_F16,  8.0f,     MPT_STORE_MASTER,  MPT_SCALER_STATIC},
    {"fp16_x128",      "FP16, scale 128",       MPT_F16,  128.0f,   MPT_STORE_MASTER,  MPT_SCALER_STATIC},
    {"fp16_x1024",     "FP16, scale 1024",      MPT_F16,  1024.0f,  MPT_STORE_MASTER,  MPT_SCALER_STATIC},
    {"fp16_dynamic",   "FP16, dynamic scale",   MPT_F16,  65536.0f, MPT_STORE_MASTER,  MPT_SCALER_MPT},
    {"bf16",           "BF16, no scale",        MPT_BF16, 1.0f,     MPT_STORE_MASTER,  MPT_SCALER_STATIC},
    {"fp16_no_master", "FP16, no FP32 masters", MPT_F16,  65536.0f, MPT_STORE_NEAREST, MPT_SCALER_MPT},
};

/* The measurements of one run: the columns of results.csv after config and seed, in this order. */
enum { ACCURACY, FLUSHED, LOST, SKIPPED, SCALE, BYTES, COLUMNS };

typedef struct run {
    double    value[COLUMNS];
    mpt_range gradients;                /* activation gradients times the scale, before they are stored */
    uint64_t  updates, lost;
    float     weights[PADDED];          /* after the training */
} run;

static run       runs[CONFIGS][MAX_SEEDS], plain;
static mpt_range gradients[CONFIGS];            /* of all seeds together */
static double    mean[CONFIGS][COLUMNS];

/* ---- the network: 64 - 32 - 32 - 10, tanh between ---- */

typedef struct net {
    mpt_format format;
    mpt_tensor layer[LAYERS];                   /* [n_in + 1][n_out] weights each, the last row is the bias */
    mpt_scaler scaler;
    mpt_step   step;
    mpt_sgd    sgd;
    float      master[PADDED], m[PADDED];       /* of all layers, one after the other */
    float      param[PADDED], grad[PADDED];     /* likewise; these, in and out_grad are stored in `format` */
    float      in[LAYERS][BATCH * WIDEST];      /* [BATCH][n_in]: the input of each layer */
    float      out_grad[LAYERS][BATCH * WIDEST];        /* [BATCH][n_out]: scaled gradient of its output */
    void      *read;                            /* the weights that the passes read: param or master */
    float      w[PADDED], *kept;                /* w: `read` as floats; kept: weights that a step changes */
} net;

/* Set up the weights and list them for mpt: this list of tensors is all that mpt has to know of a network.
 * Returns the bytes per parameter that weights, gradients and momentum take. */
static double net_init(net *t, const config *c)
{
    const int   copies = c->format != MPT_F32, masters = c->storage == MPT_STORE_MASTER;
    mpt_tensors list;
    mpt_memory  size;
    size_t      l, i;
    memset(t, 0, sizeof *t);
    t->format = c->format;
    t->read = copies ? t->param : t->master;
    t->kept = masters ? t->master : t->w;
    must(mpt_tensors_init(&list, t->layer, LAYERS, c->format, c->format));
    list.model.storage = c->storage;
    for (l = 0; l < LAYERS; l++) {
        const size_t n_in = sizes[l], n_out = sizes[l + 1];
        const size_t at = first[l] * (size_t)mpt_format_get(c->format)->bytes;
        float        start[SECOND] = {0.0f};                    /* the biases start at 0 */
        for (i = 0; i < n_in * n_out; i++)
            start[i] = random_weight(sqrt(3.0 / (double)n_in)); /* uniform, with deviation 1/sqrt(n_in) */
        must(mpt_tensors_add(&list, names[l], (n_in + 1) * n_out, copies ? (char *)t->param + at : NULL,
                (char *)t->grad + at, masters ? t->master + first[l] : NULL, t->m + first[l], NULL));
        must(mpt_weights_set(&t->layer[l], start));
    }
    must(mpt_memory_report(t->layer, LAYERS, MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD | MPT_NEEDS_M |
                           (copies ? MPT_NEEDS_PARAM : 0u), &size));
    load(t->w, t->read, t->format, WEIGHTS);
    return size.per_parameter;
}

/* y[j] += a[0] x[0][j] + ... + a[3] x[3][j], in this order. Compilers vectorize a constant count of 8. */
static void add_four_rows(float *restrict y, const float a[4], const float *restrict x, size_t n)
{
    const float *const x1 = x + n, *const x2 = x1 + n, *const x3 = x2 + n;
    size_t             j, k;
    for (j = 0; j + 8 <= n; j += 8)
        for (k = 0; k < 8; k++)
            y[j + k] = y[j + k] + a[0] * x[j + k] + a[1] * x1[j + k] + a[2] * x2[j + k] + a[3] * x3[j + k];
    for (; j < n; j++)
        y[j] = y[j] + a[0] * x[j] + a[1] * x1[j] + a[2] * x2[j] + a[3] * x3[j];
}

static float dot(const float *x, const float *y, size_t n)
{
    float  s[4] = {0.0f, 0.0f, 0.0f, 0.0f};     /* four, so that no addition waits for the last one */
    size_t i, k;
    for (i = 0; i + 4 <= n; i += 4)
        for (k = 0; k < 4; k++)
            s[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        s[i % 4] += x[i] * y[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* y holds a batch of pixels, and in the end the logits, in FP32 for the softmax. */
static void forward(net *t, float y[BATCH * WIDEST])
{
    float  x[BATCH * WIDEST];
    size_t l, b, i;
    store(t->in[0], t->format, y, BATCH * PIXELS);
    for (l = 0; l < LAYERS; l++) {
        const size_t       n_in = sizes[l], n_out = sizes[l + 1];
        const float *const w = t->w + first[l];
        load(x, t->in[l], t->format, BATCH * n_in);
        for (b = 0; b < BATCH; b++) {
            memcpy(y + b * n_out, w + n_in * n_out, n_out * sizeof *y);     /* the bias */
            for (i = 0; i < n_in; i += 4)
                add_four_rows(y + b * n_out, x + b * n_in + i, w + i * n_out, n_out);
        }
        if (l < LAYERS - 1)
            must(mpt_activate(MPT_ACT_TANH, t->in[l + 1], t->format, y, MPT_F32, BATCH * n_out));
    }
}

/* d: gradient of the logits. Here FP16 takes effect: gradients are counted, stored, and read as stored. */
static void backward(net *t, float d[BATCH * WIDEST], mpt_range *seen)
{
    float  g[WEIGHTS] = {0.0f}, x[BATCH * WIDEST];
    size_t l, b, i;
    for (l = LAYERS; l-- > 0;) {
        const size_t       n_in = sizes[l], n_out = sizes[l + 1];
        const float *const w = t->w + first[l];
        float              stored[BATCH * HIDDEN];
        must(mpt_range_add(seen, MPT_F32, d, BATCH * n_out));
        store(t->out_grad[l], t->format, d, BATCH * n_out);
        load(stored, t->out_grad[l], t->format, BATCH * n_out);
        load(x, t->in[l], t->format, BATCH * n_in);
        for (i = 0; i <= n_in; i++) {
            float a[BATCH] = {1.0f, 1.0f, 1.0f, 1.0f};                      /* the bias has input 1 */
            for (b = 0; b < BATCH && i < n_in; b++)
                a[b] = x[b * n_in + i];
            add_four_rows(g + first[l] + i * n_out, a, stored, n_out);
        }
        for (b = 0; b < BATCH && l > 0; b++)                                /* the pixels need no gradient */
            for (i = 0; i < n_in; i++) {
                const float in = x[b * n_in + i];
                d[b * n_in + i] = dot(w + i * n_out, stored + b * n_out, n_out) * (1.0f - in * in);
            }
    }
    store(t->grad, t->format, g, WEIGHTS);
}

/* An update is lost if it is not zero but does not change the weight. The padding after the weights is 0. */
static void count_updates(run *r, const net *t, const float before[PADDED])
{
    unsigned updates = 0, lost = 0, i;
    for (i = 0; i < PADDED; i++) {
        updates += t->sgd.lr * t->m[i] != 0.0f;
        lost += (t->sgd.lr * t->m[i] != 0.0f) & (t->kept[i] == before[i]);
    }
    r->updates += updates, r->lost += lost;
}

/* One batch, in the five steps of every training with a loss scale. */
static void train_batch(net *t, const size_t *order, float terms, run *r)
{
    float    y[BATCH * WIDEST], before[PADDED], seed;
    uint32_t label[BATCH];
    digits_batch(order, BATCH, y, label);
    memcpy(before, t->kept, sizeof before);
    forward(t, y);
    seed = mpt_scaler_scale(&t->scaler, BATCH / terms);                     /* 1 scale */
    must(mpt_cross_entropy(y, MPT_F32, label, BATCH, CLASSES, NULL, y, MPT_F32, seed));
    backward(t, y, &r->gradients);                                          /* 2 backward */
    must(mpt_check(&t->scaler, &t->step, t->layer, LAYERS, NULL));          /* 3 check */
    must(mpt_sgd_step(&t->sgd, &t->step, t->layer, LAYERS));                /* 4 step */
    load(t->w, t->read, t->format, WEIGHTS);
    if (!t->step.found_inf)
        count_updates(r, t, before);
    must(mpt_scaler_update(&t->scaler));                                    /* 5 update */
}

static double test_accuracy(net *t, const size_t *order, size_t n)
{
    float    y[BATCH * WIDEST];
    uint32_t label[BATCH];
    size_t   k, right = 0;
    for (k = 0; k + BATCH <= n; k += BATCH) {
        digits_batch(order + k, BATCH, y, label);
        forward(t, y);
        right += digits_right(y, label, BATCH);
    }
    return share(right, k);
}

static void train(const config *c, int seed, float terms, run *r)
{
    mpt_scaler_config scaler = mpt_scaler_defaults(c->scaler);
    size_t            order[DIGITS_MOST], k, epoch;
    static net        t;
    random_state = (uint64_t)seed * 1000003u;
    r->value[BYTES] = net_init(&t, c);
    t.sgd.lr = learning_rate * terms / loss_terms, t.sgd.momentum = momentum;
    scaler.init_scale = c->scale, scaler.interval = interval;
    must(mpt_scaler_init(&t.scaler, &scaler));
    must(mpt_range_init(&r->gradients, c->format));
    for (k = 0; k < digits_count; k++)
        order[k] = k;
    for (epoch = 0; epoch < (size_t)epochs; epoch++) {
        shuffle(order, digits_train);
        for (k = 0; k + BATCH <= digits_train; k += BATCH)
            train_batch(&t, order + k, terms, r);
    }
    memcpy(r->weights, t.w, sizeof t.w);
    r->value[ACCURACY] = test_accuracy(&t, order + digits_train, digits_count - digits_train);
    r->value[FLUSHED] = share(r->gradients.flushed, mpt_range_nonzero(&r->gradients));
    r->value[LOST] = share(r->lost, r->updates);
    r->value[SKIPPED] = (double)t.scaler.skipped;
    r->value[SCALE] = (double)t.scaler.scale;
}

static void train_all(void)
{
    int c, s, k;
    for (c = 0; c < CONFIGS; c++) {
        (void)fprintf(stderr, "%d of %d: %s\n", c + 1, (int)CONFIGS, configs[c].title);
        must(mpt_range_init(&gradients[c], configs[c].format));
        for (s = 0; s < seeds; s++) {
            train(&configs[c], s + 1, loss_terms, &runs[c][s]);
            must(mpt_range_merge(&gradients[c], &runs[c][s].gradients));
            for (k = 0; k < COLUMNS; k++)
                mean[c][k] += runs[c][s].value[k] / seeds;
        }
        mean[c][FLUSHED] = share(gradients[c].flushed, mpt_range_nonzero(&gradients[c]));
    }
    /* Is the small loss a trick? In FP32 a plain mean, with the rate reduced as much, must give the same. */
    train(&configs[FP32], 1, BATCH, &plain);
}

/* ---- the results: printed, and with --out written to files ---- */

#define PERCENT(c, column) (100.0 * mean[c][column])
#define POINTS(c) (PERCENT(c, ACCURACY) - PERCENT(FP32, ACCURACY))

static void print_table(void)
{
    int c, s;
    printf("%u digits to train on, %u to test; %d epochs in batches of %d; %d seed%s; dynamic: x2 after %d "
           "steps\nnet %d-%d-%d-%d, tanh; SGD, momentum %.2f, learning rate %g; loss: sum over the batch / "
           "2^%g\n\n", (unsigned)digits_train, (unsigned)(digits_count - digits_train), epochs, (int)BATCH,
           seeds, seeds > 1 ? "s" : "", interval, (int)PIXELS, (int)HIDDEN, (int)HIDDEN, (int)CLASSES,
           (double)momentum, (double)learning_rate, log2((double)loss_terms));
    printf("%-22s test accuracy %%       gradients   updates     steps  final   bytes per\n"
           "%-22s  mean  least..most         lost      lost   skipped  scale   parameter\n", "", "");
    for (c = 0; c < CONFIGS; c++) {
        double least = 1.0, most = 0.0, log2_scale = 0.0;
        for (s = 0; s < seeds; s++) {
            least = fmin(least, runs[c][s].value[ACCURACY]);
            most = fmax(most, runs[c][s].value[ACCURACY]);
            log2_scale += log2(runs[c][s].value[SCALE]) / seeds;
        }
        printf("%-22s %5.1f  %5.1f..%-5.1f %10.1f%% %8.1f%% %9.1f  2^%-4.3g %10g\n", configs[c].title,
               PERCENT(c, ACCURACY), 100.0 * least, 100.0 * most, PERCENT(c, FLUSHED), PERCENT(c, LOST),
               mean[c][SKIPPED], log2_scale, mean[c][BYTES]);
    }
    printf("\ngradients lost: activation gradients (those that flow back), not zero, but stored as zero;\n"
           "updates lost: not zero, but the weight did not change; bytes: weights, gradient, momentum.\n");
}

static void print_what_you_see(void)
{
    const int same = !memcmp(plain.weights, runs[FP32][0].weights, sizeof plain.weights);
    printf("\nWhat you see, in points of test accuracy against FP32:\n"
           "  no scale   %+6.1f  %.1f%% of the gradients became zero when they were stored.\n"
           "  scale 8    %+6.1f  Gradients are 8 times as large; the smallest, %.1f%%, are still lost.\n"
           "  dynamic    %+6.1f  The scale finds itself: it doubles until a gradient overflows (%.1f times\n"
           "                     a run); then the step is skipped and the scale is halved.\n", POINTS(X1),
           PERCENT(X1, FLUSHED), POINTS(X8), PERCENT(X8, FLUSHED), POINTS(DYNAMIC), mean[DYNAMIC][SKIPPED]);
    printf("  BF16       %+6.1f  No scale needed: its exponents reach as low as those of FP32.\n"
           "  no masters %+6.1f  Its gradients are fine (%.1f%% lost), but %.1f%% of the updates are too\n"
           "                     small to change an FP16 weight; with FP32 masters (dynamic) %.1f%%.\n"
           "Is the small loss a trick? In FP32 a plain mean over the batch, learning rate %.3g, gives\n"
           "%s weights (seed 1, %.1f%%).\n", POINTS(BF16), POINTS(NO_MASTER), PERCENT(NO_MASTER, FLUSHED),
           PERCENT(NO_MASTER, LOST), PERCENT(DYNAMIC, LOST), (double)(learning_rate * BATCH / loss_terms),
           same ? "bit-identical" : "DIFFERENT", 100.0 * plain.value[ACCURACY]);
}

enum { RESULTS, HISTOGRAM, CURVE, FILES };
static const char *const files[] = {"results.csv", "histogram.csv", "curve.csv"};

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

/* One line for each binade, 2^e up to 2^(e + 1): the percentage of the nonzero gradients in it, and its zone,
 * which says what these numbers become in FP16: 0 zero, 1 subnormal, 2 normal, 3 overflow. */
static void write_histogram(FILE *f)
{
    const mpt_format_info *f16 = mpt_format_get(MPT_F16);
    const int              column[] = {X1, X1024, DYNAMIC}, least = f16->emin - f16->mantissa_bits;
    int                    e, k;
    (void)fprintf(f, "log2,%s,%s,%s,zone\n", configs[X1].id, configs[X1024].id, configs[DYNAMIC].id);
    for (e = least + f16->emin; e <= f16->emax + 3; e++) {
        (void)fprintf(f, "%d", e);
        for (k = 0; k < 3; k++) {
            const mpt_range *r = &gradients[column[k]];
            (void)fprintf(f, ",%.6f", 100.0 * share(r->binade[e - MPT_RANGE_EMIN], mpt_range_nonzero(r)));
        }
        (void)fprintf(f, ",%d\n", (e >= least - 1) + (e >= f16->emin) + (e > f16->emax));
    }
}

static void write_files(FILE *const f[FILES])
{
    int k;
    write_results(f[RESULTS]);
    write_histogram(f[HISTOGRAM]);
    (void)mpt_range_write_curve(&gradients[X1], -10, 46, MPT_STYLE_CSV, "", mpt_writer_file(f[CURVE]));
    for (k = 0; k < FILES; k++)
        file_close(f[k], files[k]);
}

static const char usage[] =
    "usage: 04_train_digits [options]\n"
    "  --data FILE   the digits, default examples/data/digits.csv\n"
    "  --out DIR     write results.csv, histogram.csv and curve.csv into this folder, which must exist\n"
    "  --seeds N     runs per line of the table, 1..20, default 3\n"
    "  --epochs N    1..1000, default 60\n"
    "  --quick       1 seed, 15 epochs, a dynamic scale that doubles 4 times as often\n";

int main(int argc, char **argv)
{
    FILE *f[FILES];
    int   k;
    for ((void)argc, argv++; *argv; argv++)
        if (!strcmp(*argv, "--quick"))
            seeds = 1, epochs = 15, interval = 125;
        else if (!option_text(&argv, "--data", &data_path) && !option_text(&argv, "--out", &out_dir) &&
                 !option_number(&argv, "--seeds", &seeds, MAX_SEEDS) &&
                 !option_number(&argv, "--epochs", &epochs, 1000))
            option_end(*argv, usage);
    digits_load(data_path);
    for (k = 0; k < FILES; k++)
        f[k] = file_create(out_dir, files[k]);          /* now, so that an error shows before the training */
    train_all();
    print_table();
    print_what_you_see();
    must(mpt_range_write(&gradients[X1], MPT_STYLE_DRAWING, "\nFP16, no scale: activation gradients "
                         "times scale, all seeds", mpt_writer_file(stdout)));
    must(mpt_range_write(&gradients[X1024], MPT_STYLE_DRAWING, "\nFP16, scale 1024: activation gradients "
                         "times scale, all seeds", mpt_writer_file(stdout)));
    if (out_dir)
        write_files(f);
    return 0;
}
