/* 12_reports.c -- which gradients, weights, updates and sums survive FP16: the reports on a small network.
 *
 *     cc -O2 -I. examples/12_reports.c -o 12_reports -lm && ./12_reports
 *     ./12_reports DIR        also writes DIR/growth.csv, heat.csv and track.jsonl for examples/12_plot.gp
 *
 * A network of ten layers is trained in FP32 for 400 steps, and every 10 steps mpt looks at its activation
 * gradients. The reports say what would have happened in FP16 or another format; the training itself rounds
 * nothing to these formats. The arithmetic is that of 03_loss_scale.c: the same bits on every machine. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/program.h"

#define BATCH  64
#define WIDTH  32
#define LAYERS 10
#define STEPS  400
#define EVERY  10
#define COUNT  (BATCH * WIDTH)

static float weight[LAYERS][WIDTH][WIDTH], update[LAYERS][WIDTH][WIDTH];    /* [layer][to][from] */
static float act[LAYERS + 1][BATCH][WIDTH], slope[LAYERS][BATCH][WIDTH], grad[LAYERS][BATCH][WIDTH];
static float target[BATCH][WIDTH];

/* Uniform in [-1, 1): 24 bits of a 64-bit linear congruential generator (Knuth, MMIX). */
static float uniform(void)
{
    static uint64_t state = 1710;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(state >> 40) / 8388608.0f - 1.0f;
}

static void init(void)
{
    int l, i, j;
    for (l = 0; l < LAYERS; l++)
        for (i = 0; i < WIDTH; i++)
            for (j = 0; j < WIDTH; j++)
                weight[l][i][j] = uniform() * 0.24f;
    for (i = 0; i < BATCH; i++)
        for (j = 0; j < WIDTH; j++) {
            act[0][i][j] = uniform();
            target[i][j] = i % WIDTH == j ? 0.5f : 0.0f;
        }
}

static void forward(void)
{
    int l, b, i, j;
    for (l = 0; l < LAYERS; l++)
        for (b = 0; b < BATCH; b++)
            for (i = 0; i < WIDTH; i++) {
                double sum = 0.0;
                float  x, r;
                for (j = 0; j < WIDTH; j++)
                    sum += (double)weight[l][i][j] * (double)act[l][b][j];
                x = (float)sum;
                r = 1.0f / (1.0f + fabsf(x));
                act[l + 1][b][i] = x * r;
                slope[l][b][i] = r * r;
            }
}

static void backward(void)
{
    int l, b, i, j;
    for (b = 0; b < BATCH; b++)
        for (i = 0; i < WIDTH; i++)
            grad[LAYERS - 1][b][i] =
                (act[LAYERS][b][i] - target[b][i]) / (16.0f * COUNT) * slope[LAYERS - 1][b][i];
    for (l = LAYERS - 2; l >= 0; l--)
        for (b = 0; b < BATCH; b++)
            for (j = 0; j < WIDTH; j++) {
                double sum = 0.0;
                for (i = 0; i < WIDTH; i++)
                    sum += (double)weight[l + 1][i][j] * (double)grad[l + 1][b][i];
                grad[l][b][j] = (float)sum * slope[l][b][j];
            }
}

static void step(float rate)
{
    int l, b, i, j;
    for (l = 0; l < LAYERS; l++)
        for (i = 0; i < WIDTH; i++)
            for (j = 0; j < WIDTH; j++) {
                double sum = 0.0;
                for (b = 0; b < BATCH; b++)
                    sum += (double)grad[l][b][i] * (double)act[l][b][j];
                update[l][i][j] = -rate * (float)sum;
                weight[l][i][j] += update[l][i][j];
            }
}

/* Write one column of the heat map: the percentage of each layer's nonzero gradients that FP16 makes zero. */
static void write_heat(FILE *f, int now)
{
    static mpt_range r;
    int              l;
    for (l = 0; f && l < LAYERS; l++) {
        (void)mpt_range_init(&r, MPT_F16);
        (void)mpt_range_add(&r, MPT_F32, &grad[l][0][0], COUNT);
        (void)fprintf(f, "%d,%d,%.4f\n", now, l + 1,
                      100.0 * (double)r.flushed / (double)mpt_range_nonzero(&r));
    }
}

static void train(const char *dir)
{
    static char name[LAYERS][16];
    mpt_track   track[LAYERS];
    FILE       *lines = file_create(dir, "track.jsonl"), *heat = file_create(dir, "heat.csv");
    size_t      first;
    int         l, t;
    for (l = 0; l < LAYERS; l++) {
        (void)snprintf(name[l], sizeof name[l], "layer %d", l + 1);
        (void)mpt_track_init(&track[l], name[l], MPT_F16, EVERY, mpt_writer_file(lines));
    }
    if (heat)
        (void)fputs("step,layer,flushed\n", heat);
    printf("1. Tracking. ");
    for (t = 0; t < STEPS; t++) {
        forward();
        backward();
        for (l = 0; l < LAYERS; l++)
            (void)mpt_track_add(&track[l], (uint64_t)t, MPT_F32, &grad[l][0][0], COUNT);
        if (t % EVERY == 0)
            write_heat(heat, t);
        if (t % (4 * EVERY) == 0)
            (void)mpt_track_write(track, LAYERS, (uint64_t)t, t ? NULL : "Gradients in f16",
                                  mpt_writer_file(stdout));
        step(1024.0f);
    }
    file_close(lines, "track.jsonl");
    file_close(heat, "heat.csv");
    if (mpt_track_first(track, LAYERS, 0, &first) == MPT_OK)
        printf("   The first tensor to lose gradients to zero: %s, at step %llu.\n",
               track[first].name, (unsigned long long)(track[first].first_flushed - 1u));
    if (mpt_track_first(track, LAYERS, 1, &first) == MPT_E_DATA)
        printf("   None overflowed.\n");
}

static void show_formats(void)
{
    static mpt_survey a;
    static mpt_range  r;
    (void)mpt_survey_init(&a);
    (void)mpt_survey_add(&a, MPT_F32, &grad[0][0][0], LAYERS * COUNT);
    printf("\n2. Every format, and every scale, from one pass.\n");
    (void)mpt_survey_write(&a, MPT_STYLE_DRAWING, "Gradients of the last step", mpt_writer_file(stdout));
    (void)mpt_survey_get(&a, MPT_F16, &r);
    (void)mpt_range_write_curve(&r, 0, 44, MPT_STYLE_DRAWING, "\nThe same gradients",
                                mpt_writer_file(stdout));
}

static void show_rounding(void)
{
    static const mpt_format formats[] = {MPT_F16, MPT_E4M3};
    static mpt_roundoff     r;
    int                     f;
    printf("\n3. Rounding the weights.\n");
    for (f = 0; f < 2; f++) {
        (void)mpt_roundoff_init(&r, formats[f], NULL, 0);
        (void)mpt_roundoff_add(&r, MPT_F32, &weight[0][0][0], LAYERS * WIDTH * WIDTH);
        (void)mpt_roundoff_write(&r, MPT_STYLE_DRAWING, "Weights", mpt_writer_file(stdout));
    }
}

static void show_updates(void)
{
    static float   kept[LAYERS * WIDTH * WIDTH];
    mpt_stagnation r;
    printf("\n4. Updates, if the weights themselves were kept in a small format (no FP32 master).\n");
    (void)mpt_stagnation_init(&r, MPT_F16);
    (void)mpt_quantize_n(kept, &weight[0][0][0], LAYERS * WIDTH * WIDTH, MPT_F16, NULL);
    (void)mpt_stagnation_add(&r, kept, &update[0][0][0], LAYERS * WIDTH * WIDTH);
    (void)mpt_stagnation_write(&r, MPT_STYLE_DRAWING, "The last step", mpt_writer_file(stdout));
}

/* The same sum computed in eight ways, with a report each time that the number of terms has doubled. */
static void show_sums(const char *dir)
{
    static mpt_sums s;
    FILE           *f = file_create(dir, "growth.csv");
    uint64_t        next = 16;
    if (f)
        (void)mpt_sums_write(&s, MPT_STYLE_CSV_HEAD, "uniform", mpt_writer_file(f));
    printf("\n5. Sums. ");
    while (s.n < ((uint64_t)1 << 20)) {
        const float x = 0.5f + 0.5f * uniform();
        (void)mpt_sums_add(&s, &x, NULL, 1, 0);
        if (s.n != next)
            continue;
        if (f)
            (void)mpt_sums_write(&s, MPT_STYLE_CSV, "uniform", mpt_writer_file(f));
        (void)mpt_sums_write(&s, MPT_STYLE_DRAWING, next == 16 ? "Numbers between 0 and 1" : NULL,
                             mpt_writer_file(stdout));
        next *= 2;
    }
    file_close(f, "growth.csv");
}

/* The variance of numbers far from zero by the textbook formula E[x^2] - E[x]^2, which cancels digits. */
static void show_shadow(void)
{
    mpt_shadow   s;
    mpt_shadowed sum, squares, n, mean, mean_squared, variance;
    int          i;
    (void)mpt_shadow_init(&s, MPT_F16, 0.05);
    sum = squares = mpt_shadow_value(&s, 0.0);
    n = mpt_shadow_value(&s, 8.0);
    for (i = 0; i < 8; i++) {
        const mpt_shadowed x = mpt_shadow_value(&s, 20.0 + 0.25 * (double)i);
        sum = mpt_shadow_apply(&s, MPT_SHADOW_OP_ADD, sum, x, x);
        squares = mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, x, x, squares);
    }
    mean = mpt_shadow_apply(&s, MPT_SHADOW_OP_DIV, sum, n, n);
    mean_squared = mpt_shadow_apply(&s, MPT_SHADOW_OP_MUL, mean, mean, mean);
    squares = mpt_shadow_apply(&s, MPT_SHADOW_OP_DIV, squares, n, n);
    variance = mpt_shadow_apply(&s, MPT_SHADOW_OP_SUB, squares, mean_squared, mean_squared);
    printf("\n6. A shadow run: E[x^2] - E[x]^2 in f16 gives %g, in double %g.\n", variance.low,
           variance.exact);
    (void)mpt_shadow_write(&s, MPT_STYLE_DRAWING, "The variance", mpt_writer_file(stdout));
}

int main(int argc, char **argv)
{
    const char *const dir = argc > 1 ? argv[1] : NULL;
    init();
    train(dir);
    show_formats();
    show_rounding();
    show_updates();
    show_sums(dir);
    show_shadow();
    return 0;
}
