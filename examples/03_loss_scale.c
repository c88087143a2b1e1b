/* 03_loss_scale.c -- gradients that FP16 cannot see, and the one multiplication that saves them.
 *
 *     cc -O2 -I. examples/03_loss_scale.c -o 03_loss_scale -lm && ./03_loss_scale
 *
 * A small network is run forward and backward once, in FP32. Its loss is a mean over many outputs,
 * so each output starts the backward pass with a small gradient, and every layer on the way down
 * makes it smaller. One pass over them makes one histogram. It draws where they lie against the window
 * of FP16, and says what every other format would do, what every scale would do, and which scale to
 * take. At the end we do not trust it: we scale the loss, run the backward pass again, round every
 * gradient to FP16, and count.
 *
 * The output is the same with every compiler and libm: weights come from an integer generator, the
 * activation is softsign, x / (1 + |x|), and dot products are summed in double: the product of two
 * floats is exact there, so it does not matter whether a compiler fuses it with the addition. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"

#include <stdio.h>

#define BATCH  256              /* samples */
#define WIDTH  64               /* units of each layer; the last layer's are the outputs */
#define LAYERS 12
#define LAYER_COUNT (BATCH * WIDTH)
#define COUNT       (LAYERS * LAYER_COUNT)

static float weight[LAYERS][WIDTH][WIDTH];          /* [layer][to][from] */
static float act[LAYERS + 1][BATCH][WIDTH];         /* act[0] is the input */
static float slope[LAYERS][BATCH][WIDTH];           /* derivative of softsign at each unit */
static float grad[LAYERS][BATCH][WIDTH];            /* d loss / d (what enters the softsign) */
static float unscaled[COUNT];

/* Uniform in [-1, 1): 24 bits of a 64-bit linear congruential generator (Knuth, MMIX). */
static float uniform(void)
{
    static uint64_t state = 2017;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(state >> 40) / 8388608.0f - 1.0f;
}

static void init(void)
{
    int i;
    for (i = 0; i < LAYERS * WIDTH * WIDTH; i++)
        (&weight[0][0][0])[i] = uniform() / 8.0f;           /* 1 / sqrt(WIDTH) */
    for (i = 0; i < LAYER_COUNT; i++)
        (&act[0][0][0])[i] = uniform();
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

/* seed: d loss / d loss = 1, or the loss scale; everything below is proportional to it. */
static void backward(float seed)
{
    const float mean = 1.0f / (float)(BATCH * WIDTH);
    int         l, b, i, j;
    for (b = 0; b < BATCH; b++)                             /* mean of (output - target)^2 / 2 */
        for (i = 0; i < WIDTH; i++) {
            const float target = i == b % WIDTH ? 1.0f : 0.0f;
            const float dloss = (act[LAYERS][b][i] - target) * mean * seed;
            grad[LAYERS - 1][b][i] = dloss * slope[LAYERS - 1][b][i];
        }
    for (l = LAYERS - 2; l >= 0; l--)
        for (b = 0; b < BATCH; b++)
            for (j = 0; j < WIDTH; j++) {
                double sum = 0.0;
                for (i = 0; i < WIDTH; i++)
                    sum += (double)weight[l + 1][i][j] * (double)grad[l + 1][b][i];
                grad[l][b][j] = (float)sum * slope[l][b][j];
            }
}

static double percent(uint64_t part, uint64_t whole) { return 100.0 * (double)part / (double)whole; }

/* Every scale is one more look at the same histogram, and so is the choice among them. */
static mpt_range_choice choose_scale(const mpt_range *r)
{
    static const double tolerated[] = {0.01, 0.001, 0.0};
    const uint64_t      nonzero = mpt_range_nonzero(r);
    mpt_range_choice    c = {0.0f, 0, 0, 0, 0, 0};
    int                 i;
    (void)mpt_range_write_curve(r, 0, 36, MPT_STYLE_DRAWING, "\nGradients times a loss scale",
                                mpt_writer_file(stdout));
    printf("\nThe one to take, if 3 doublings are left for the next batch (mpt_range_choose_scale):\n\n"
           "  tolerated loss   scale   become 0 or subnormal\n");
    for (i = 0; i < 3; i++) {
        const mpt_range_tolerance t = {tolerated[i], tolerated[i], 0.0};
        (void)mpt_range_choose_scale(r, 3, &t, &c);
        printf("  %9.1f%%        2^%d %18.3f%%\n", 100.0 * tolerated[i], c.log2_scale,
               percent(c.flushed + c.subnormal, nonzero));
    }
    return c;
}

/* Nonzero gradients that FP16 rounds to zero, layer by layer: found by rounding, not by the histogram. */
static int count_flushed(int flushed[LAYERS])
{
    static mpt_roundoff r;
    int                 l, total = 0;
    for (l = 0; l < LAYERS; l++) {
        (void)mpt_roundoff_init(&r, MPT_F16, NULL, 0);
        (void)mpt_roundoff_add(&r, MPT_F32, &grad[l][0][0], LAYER_COUNT);
        total += flushed[l] = (int)r.flushed;
    }
    return total;
}

int main(void)
{
    static mpt_survey all;
    static mpt_range  f16;
    mpt_range_choice  choice;
    int               before[LAYERS], after[LAYERS], lost, lost_after, nonzero, differ = 0, l, i;

    init();
    forward();
    backward(1.0f);
    lost = count_flushed(before);

    (void)mpt_survey_init(&all);
    (void)mpt_survey_add(&all, MPT_F32, &grad[0][0][0], COUNT);
    (void)mpt_survey_get(&all, MPT_F16, &f16);
    nonzero = (int)mpt_range_nonzero(&f16);
    (void)mpt_range_write(&f16, MPT_STYLE_DRAWING, "Gradients as they are", mpt_writer_file(stdout));
    (void)mpt_survey_write(&all, MPT_STYLE_DRAWING, "\nFrom the same pass, every format",
                           mpt_writer_file(stdout));
    choice = choose_scale(&f16);

    /* Scaling the loss means: start the backward pass with the scale in place of 1. A power of two
     * changes exponents only, so every gradient must be exactly that much larger. */
    memcpy(unscaled, grad, sizeof grad);
    backward(choice.scale);
    lost_after = count_flushed(after);
    for (i = 0; i < COUNT; i++)
        differ += unscaled[i] * choice.scale != (&grad[0][0][0])[i];
    printf("\nThe backward pass again, of loss x 2^%d: %d of %d gradients differ from 2^%d times the\n"
           "plain one. Every gradient rounded to FP16; nonzero ones that became zero:\n\n"
           "  layer            plain loss     loss x 2^%d\n",
           choice.log2_scale, differ, COUNT, choice.log2_scale, choice.log2_scale);
    for (l = LAYERS - 1; l >= 0; l--)
        printf("  %2d %-10s %6d %5.1f%%  %6d %5.1f%%\n", l + 1,
               l == LAYERS - 1 ? "(output)" : l ? "" : "(input)", before[l],
               100.0 * before[l] / LAYER_COUNT, after[l], 100.0 * after[l] / LAYER_COUNT);
    printf("\nLayers near the input lose most: their gradients came the longest way. The output\n"
           "layer loses too: most of its targets are 0, and so, nearly, are its outputs.\n");
    printf("\nVerdict: FP16 loses %d of %d gradients (%.1f%%) unscaled, %d (%.1f%%) with the"
           " scale.\n", lost, nonzero, 100.0 * lost / nonzero, lost_after, 100.0 * lost_after / nonzero);
    return 0;
}
