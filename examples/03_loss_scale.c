/* 03_loss_scale.c -- gradients that FP16 cannot see, and the one multiplication that saves them.
 *
 *     cc -O2 -I. examples/03_loss_scale.c -o 03_loss_scale -lm && ./03_loss_scale
 *
 * A small network runs forward and backward once, in FP32. Its loss is a mean over many outputs, so the
 * backward pass begins with a small gradient at each output, and every layer that it passes through makes
 * the gradients smaller. One pass over all gradients fills a histogram. From this histogram alone mpt draws
 * which gradients FP16 can represent, and computes what every other format and every loss scale would do,
 * and which scale is best. At the end the program checks this prediction: it scales the loss, runs the
 * backward pass again, rounds every gradient to FP16, and counts the zeros.
 *
 * The output is the same with every compiler and libm: weights come from an integer generator, the
 * activation is softsign, x / (1 + |x|), and dot products are summed in double, where the product of two
 * floats is exact, so that a compiler may fuse it with the addition without changing a bit. */
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
static float grad[LAYERS][BATCH][WIDTH];            /* d loss / d (input of the softsign) */
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

/* seed is the gradient of the loss by itself: 1, or the loss scale. All gradients are proportional to it. */
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

/* The effect of every scale, and the choice among them, are computed from the same histogram. */
static mpt_range_choice choose_scale(const mpt_range *r)
{
    static const double tolerated[] = {0.01, 0.001, 0.0};
    const uint64_t      nonzero = mpt_range_nonzero(r);
    mpt_range_choice    c = {0.0f, 0, 0, 0, 0, 0};
    int                 i;
    (void)mpt_range_write_curve(r, 0, 36, MPT_STYLE_DRAWING, "\nGradients times a loss scale",
                                mpt_writer_file(stdout));
    printf("\nThe scale to choose, with room for 3 doublings in later batches (mpt_range_choose_scale):\n\n"
           "  tolerated loss   scale   become 0 or subnormal\n");
    for (i = 0; i < 3; i++) {
        const mpt_range_tolerance t = {tolerated[i], tolerated[i], 0.0};
        (void)mpt_range_choose_scale(r, 3, &t, &c);
        printf("  %9.1f%%        2^%d %18.3f%%\n", 100.0 * tolerated[i], c.log2_scale,
               percent(c.flushed + c.subnormal, nonzero));
    }
    return c;
}

/* Count the nonzero gradients of each layer that FP16 rounds to zero, by rounding, not by the histogram. */
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
    (void)mpt_survey_write(&all, MPT_STYLE_DRAWING, "\nThe same gradients in every format",
                           mpt_writer_file(stdout));
    choice = choose_scale(&f16);

    /* To scale the loss, start the backward pass with the scale in place of 1. Multiplying by a power of two
     * changes exponents only, so every gradient must be exactly that many times larger. */
    memcpy(unscaled, grad, sizeof grad);
    backward(choice.scale);
    lost_after = count_flushed(after);
    for (i = 0; i < COUNT; i++)
        differ += unscaled[i] * choice.scale != (&grad[0][0][0])[i];
    printf("\nThe backward pass again, of loss x 2^%d: %d of %d gradients differ from 2^%d times the\n"
           "plain one. With every gradient rounded to FP16, these nonzero ones became zero:\n\n"
           "  layer            plain loss     loss x 2^%d\n",
           choice.log2_scale, differ, COUNT, choice.log2_scale, choice.log2_scale);
    for (l = LAYERS - 1; l >= 0; l--)
        printf("  %2d %-10s %6d %5.1f%%  %6d %5.1f%%\n", l + 1,
               l == LAYERS - 1 ? "(output)" : l ? "" : "(input)", before[l],
               100.0 * before[l] / LAYER_COUNT, after[l], 100.0 * after[l] / LAYER_COUNT);
    printf("\nThe layers near the input lose most: their gradients have passed through most layers. The\n"
           "output layer loses many, too: most of its targets are 0, and its outputs are close to that.\n");
    printf("\nVerdict: FP16 loses %d of %d gradients (%.1f%%) unscaled, %d (%.1f%%) with the"
           " scale.\n", lost, nonzero, 100.0 * lost / nonzero, lost_after, 100.0 * lost_after / nonzero);
    return 0;
}
