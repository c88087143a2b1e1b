/* 15_gpt.c -- what eight ways to store numbers do to a small GPT that learns to add.
 *
 *     cc -O3 -ffast-math -I. examples/15_gpt.c -o 15_gpt -lm
 *     ./15_gpt                            from the top folder, a minute; or: ./15_gpt STEPS FOLDER
 *     ./15_gpt --long FOLDER              a better model: 4000 steps, several minutes
 *
 * The GPT is that of dropin/before_gpt.c, which is included below; its loops run in FP32. Between them this
 * program rounds the arrays that a mixed-precision trainer would store in the format: parameters that the
 * passes read, gradients, and what the blocks keep for the backward pass. mpt_quantize_n rounds floats to a
 * format and returns floats, so all runs share the code. (dropin/after_gpt.c really stores 16 bits.)
 *
 * Even without a scale FP16 can hold the gradients of this model. To show what a mean over many more terms
 * does, as with a batch of millions of tokens, the loss here is divided by 2^18, and AdamW gets the gradients
 * times 2^18: in FP32 this changes nothing. A run has 600 steps by default. With a FOLDER, the program writes
 * loss.csv and flushed.csv there, which 15_plot.gp draws. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#define main trainer_main               /* this program uses its functions and arrays, but not its main */
#include "examples/dropin/before_gpt.c"
#undef main

static const float terms = 262144.0f;

/* How a run stores weights, activations and gradients. A scale of 0 means a dynamic scale. */
typedef struct Way {
    const char *name;
    mpt_format  weights, kept, gradients;
    float       scale;
    int         masters;
} Way;

enum { WAYS = 8, GROUPS = LAYERS + 2, FIELDS = 9, EVERY = 10 };
static const Way ways[WAYS] = {
    {"FP32",                    MPT_F32,  MPT_F32,  MPT_F32,  1.0f,      1},
    {"FP16 no scale",           MPT_F16,  MPT_F16,  MPT_F16,  1.0f,      1},
    {"FP16 scale 64",           MPT_F16,  MPT_F16,  MPT_F16,  64.0f,     1},
    {"FP16 scale 2^18",         MPT_F16,  MPT_F16,  MPT_F16,  262144.0f, 1},
    {"FP16 dynamic scale",      MPT_F16,  MPT_F16,  MPT_F16,  0.0f,      1},
    {"BF16 no scale",           MPT_BF16, MPT_BF16, MPT_BF16, 1.0f,      1},
    {"E4M3 forward FP16 grads", MPT_E4M3, MPT_E4M3, MPT_F16,  0.0f,      1},
    {"FP16 no masters",         MPT_F16,  MPT_F16,  MPT_F16,  0.0f,      0},
};

static const char *const groups[GROUPS] = {"embeddings", "block 1", "block 2", "head"};
static float             master[64000];
static double            lost[GROUPS];              /* % of the last gradients that became 0, by group */
static FILE             *losses, *flushed;

static void stop(const char *why)
{
    (void)fprintf(stderr, "%s\n", why);
    exit(1);
}

/* ---- rounding ---- */

/* FP8 with delayed scaling: each array has a scale, computed from its largest magnitudes in recent steps. */
enum { SCALES = 6 + LAYERS * 12 + LAYERS * FIELDS, HISTORY = 16 };
static float           fp8_scale[SCALES], fp8_inverse[SCALES], fp8_amax[SCALES];
static float           fp8_history[SCALES * HISTORY];
static mpt_fp8_scaling fp8;

static void round_to(mpt_format format, float *to, const float *from, size_t n, size_t which)
{
    static mpt_e4m3 codes[ROWS * INNER];
    size_t          i;
    if (format == MPT_E4M3) {
        if (mpt_fp8_encode_n(MPT_E4M3, codes, MPT_F32, from, n, &fp8_scale[which], &fp8_amax[which]))
            stop("mpt_fp8_encode_n");
        mpt_f32_from_e4m3_n(to, codes, n);
        for (i = 0; i < n; i++)
            to[i] *= fp8_inverse[which];
    } else if (mpt_quantize_n(to, from, n, format, NULL) != MPT_OK) {
        stop("mpt_quantize_n");
    }
}

/* Round what the blocks kept for the backward pass, array by array. */
static void round_kept(mpt_format format)
{
    static const int size[FIELDS] = {ROWS * WIDTH, ROWS * WIDTH, ROWS * 3 * WIDTH, BATCH * HEADS * LEN * LEN,
                                     ROWS * WIDTH, ROWS * WIDTH, ROWS * WIDTH, ROWS * INNER, ROWS * INNER};
    int              l, f;
    for (l = 0; l < LAYERS; l++) {
        float *at = kept[l].x;
        for (f = 0; f < FIELDS; at += size[f++])
            round_to(format, at, at, (size_t)size[f], (size_t)(param_count + l * FIELDS + f));
    }
}

/* The group of parameter k: first the embeddings, then one group for each block, then the head. */
static int group_of(int k) { return k < 2 ? 0 : k < 2 + LAYERS * 12 ? 1 + (k - 2) / 12 : GROUPS - 1; }

static int is_nonzero(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffffu) != 0u;
}

/* Round the gradients as storing them would; `lost` becomes the percentage of nonzero ones that became 0. */
static void round_gradients(mpt_format format)
{
    double was[GROUPS] = {0}, is[GROUPS] = {0};
    int    k, i;
    for (k = 0; k < param_count; k++) {
        Param *p = params[k];
        for (i = 0; i < p->n; i++)
            was[group_of(k)] += is_nonzero(p->g[i]);
        round_to(format, p->g, p->g, (size_t)p->n, 0);
        for (i = 0; i < p->n; i++)
            is[group_of(k)] += is_nonzero(p->g[i]);
    }
    for (k = 0; k < GROUPS; k++)
        lost[k] = was[k] > 0.0 ? 100.0 * (1.0 - is[k] / was[k]) : 0.0;
}

/* ---- a run ---- */

static void start(const Way *way, mpt_scaler *scaler)
{
    mpt_scaler_config c = mpt_scaler_defaults(way->scale > 0.0f ? MPT_SCALER_STATIC : MPT_SCALER_MPT);
    int               i;
    if (way->scale > 0.0f)
        c.init_scale = way->scale;
    else
        c.interval = 50;                    /* so that a run of 600 steps shows the scale grow */
    if (mpt_scaler_init(scaler, &c) != MPT_OK)
        stop("mpt_scaler_init");
    random_state = 1;
    for (i = 0; i < SUMS; i++)
        order[i] = i;
    for (i = SUMS - 1; i > 0; i--) {
        const int j = (int)(random_unit() * (i + 1)), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    param_count = 0;
    steps_taken = 0.0f;
    model_init();
    fp8.recipe = mpt_fp8_defaults(MPT_E4M3);
    fp8.recipe.length = HISTORY;
    fp8.count = SCALES;
    fp8.scale = fp8_scale, fp8.inverse = fp8_inverse, fp8.amax = fp8_amax, fp8.history = fp8_history;
    if (mpt_fp8_init(&fp8) != MPT_OK)
        stop("mpt_fp8_init");
}

/* Round the parameters for the passes; `master` keeps the unrounded ones for restore_weights. */
static void round_weights(const Way *way)
{
    float *at = master;
    int    k;
    for (k = 0; k < param_count; at += params[k++]->n) {
        memcpy(at, params[k]->w, (size_t)params[k]->n * sizeof *at);
        round_to(way->weights, params[k]->w, at, (size_t)params[k]->n, (size_t)k);
    }
}

static void restore_weights(void)
{
    float *at = master;
    int    k;
    for (k = 0; k < param_count; at += params[k++]->n)
        memcpy(params[k]->w, at, (size_t)params[k]->n * sizeof *at);
}

static double one_step(const Way *way, mpt_scaler *scaler, float lr)
{
    static mpt_step   state;
    static mpt_tensor grads[6 + LAYERS * 12];
    double            loss = 0.0;
    int               micro, b, k, i;
    round_weights(way);
    for (micro = 0; micro < MICRO; micro++) {
        for (b = 0; b < BATCH; b++)
            write_sum(text[b], order[TEST + (int)(random_unit() * (SUMS - TEST))]);
        forward();
        loss += loss_of(1, mpt_scaler_scale(scaler, 1.0f / (MICRO * terms))) / MICRO;
        round_kept(way->kept);
        backward();
        round_gradients(way->gradients);
    }
    if (way->masters)
        restore_weights();
    for (k = 0; k < param_count; k++)
        grads[k] = mpt_tensor_grad_f32(NULL, params[k]->g, (size_t)params[k]->n);
    if (mpt_unscale(scaler, &state, grads, (size_t)param_count, NULL) != MPT_OK)
        stop("mpt_unscale");
    if (state.found_inf) {
        if (mpt_grads_zero(grads, (size_t)param_count) != MPT_OK)
            stop("mpt_grads_zero");
    } else {
        for (k = 0; k < param_count; k++)
            for (i = 0; i < params[k]->n; i++)
                params[k]->g[i] *= terms;
        update(lr);
    }
    if (mpt_scaler_update(scaler) != MPT_OK || mpt_fp8_update(&fp8) != MPT_OK)
        stop("the scale cannot be updated");
    return loss;
}

static void run(const Way *way, int steps)
{
    mpt_scaler    scaler;
    const clock_t begin = clock();
    double        loss, accuracy, sum = 0.0, mean[GROUPS] = {0};
    int           step, g;
    start(way, &scaler);
    for (step = 1; step <= steps; step++) {
        const float warm = step < WARMUP ? (float)step / WARMUP : 1.0f;
        sum += one_step(way, &scaler, 8e-3f * warm * (1.0f - 0.9f * (float)step / (float)steps));
        for (g = 0; g < GROUPS; g++) {
            mean[g] += lost[g] / steps;
            if (flushed && step % EVERY == 0)
                fprintf(flushed, "%s,%d,%s,%.2f\n", way->name, step, groups[g], lost[g]);
        }
        if (step % EVERY == 0) {
            if (losses)
                fprintf(losses, "%s,%d,%.5f,%g\n", way->name, step, sum / EVERY, (double)scaler.scale);
            sum = 0.0;
        }
    }
    round_weights(way);
    test(&loss, &accuracy);
    printf("%-26s %8.4f %6.1f  ", way->name, loss, accuracy);
    for (g = 0; g < GROUPS; g++)
        printf(" %5.1f", mean[g]);
    printf(" %8lu %8.0f %5.0f s\n", (unsigned long)scaler.skipped, log2((double)scaler.scale),
           (double)(clock() - begin) / CLOCKS_PER_SEC);
    fflush(stdout);
}

static FILE *create(const char *folder, const char *name, const char *heading)
{
    char  path[1024];
    FILE *f = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || !(f = fopen(path, "w")))
        stop("cannot write to that folder");
    fprintf(f, "%s\n", heading);
    return f;
}

int main(int argc, char **argv)
{
    const int steps = argc < 2 ? 600 : strcmp(argv[1], "--long") ? atoi(argv[1]) : 4000;
    int       i;
    if (steps < 1)
        stop("usage: 15_gpt [STEPS | --long [FOLDER]]");
    if (argc > 2) {
        losses = create(argv[2], "loss.csv", "way,step,loss,scale");
        flushed = create(argv[2], "flushed.csv", "way,step,group,percent");
    }
    printf("                             new sums          gradients that became 0, %%  steps  last\n"
           "                               loss  right    embed    1     2   head   skipped  log2 scale\n");
    for (i = 0; i < WAYS; i++)
        run(&ways[i], steps);
    if (losses && (fclose(losses) | fclose(flushed)))
        stop("cannot write to that folder");
    return 0;
}
