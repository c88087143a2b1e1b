/* 03_loss_scale.c -- gradients that FP16 cannot see, and the one multiplication that saves them.
 *
 *     cc -O2 -I. examples/03_loss_scale.c -o 03_loss_scale -lm && ./03_loss_scale
 *
 * A small network is run forward and backward once, in FP32. Its loss is a mean over many outputs,
 * so each output starts the backward pass with a small gradient, and every layer on the way down
 * makes it smaller. We draw where these gradients lie against the window of FP16, let mpt choose a
 * power of two, multiply, and draw again. At the end we do not trust the drawing: we convert every
 * gradient to FP16 and back, and count.
 *
 * The output is the same with every compiler and libm: weights come from an integer generator, the
 * activation is softsign, x / (1 + |x|), and dot products are summed in double: the product of two
 * floats is exact there, so it does not matter whether a compiler fuses it with the addition. */
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
static float unscaled[COUNT], back[LAYER_COUNT];
static mpt_f16 half[LAYER_COUNT];

/* Uniform in [-1, 1): 24 bits of a 64-bit linear congruential generator (Knuth, MMIX). */
static float uniform(void)
{
    static uint64_t state = 2017;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(state >> 40) / 8388608.0f - 1.0f;
}

static void init(void)
{
    int l, i, j;
    for (l = 0; l < LAYERS; l++)
        for (i = 0; i < WIDTH; i++)
            for (j = 0; j < WIDTH; j++)
                weight[l][i][j] = uniform() / 8.0f;         /* 1 / sqrt(WIDTH) */
    for (i = 0; i < BATCH; i++)
        for (j = 0; j < WIDTH; j++)
            act[0][i][j] = uniform();
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

/* What FP16 makes of the gradients of one layer: how many nonzero ones come back as zero. */
static int flushed_in_layer(int layer, int *nonzero)
{
    const float *g = &grad[layer][0][0];
    int          i, flushed = 0;

    (void)mpt_f16_from_f32_n(half, g, LAYER_COUNT);
    (void)mpt_f32_from_f16_n(back, half, LAYER_COUNT);
    *nonzero = 0;
    for (i = 0; i < LAYER_COUNT; i++) {
        *nonzero += g[i] != 0.0f;
        flushed += g[i] != 0.0f && back[i] == 0.0f;
    }
    return flushed;
}

static void look(mpt_range *r, const char *title)
{
    (void)mpt_range_init(r, MPT_F16);
    (void)mpt_range_add_f32(r, &grad[0][0][0], COUNT);
    (void)mpt_range_print(stdout, r, title);
}

int main(void)
{
    mpt_range        before, after;
    mpt_range_choice choice;
    int              lost[2][LAYERS], total[2] = {0, 0}, nonzero = 0, differ = 0, l, i, n;
    char             title[64];

    init();
    forward();

    backward(1.0f);
    look(&before, "Gradients as they are");
    for (l = 0; l < LAYERS; l++) {
        total[0] += lost[0][l] = flushed_in_layer(l, &n);
        nonzero += n;
    }

    /* Leave 3 doublings of room: the next batch may have larger gradients than this one. */
    (void)mpt_range_choose_scale(&before, 3, NULL, &choice);
    printf("\nChosen: loss x 2^%d = %.0f. That leaves room for %d more doublings.\n\n",
           choice.log2_scale, (double)choice.scale, choice.headroom);

    /* Scaling the loss means: start the backward pass with the scale in place of 1. A power of two
     * changes exponents only, so every gradient must be exactly that much larger. */
    memcpy(unscaled, grad, sizeof grad);
    backward(choice.scale);
    for (i = 0; i < COUNT; i++)
        differ += unscaled[i] * choice.scale != (&grad[0][0][0])[i];
    (void)snprintf(title, sizeof title, "Gradients of loss x 2^%d", choice.log2_scale);
    look(&after, title);
    printf("\n%d of %d differ from the plain gradient x 2^%d: the scale moves exponents, not"
           " digits.\n", differ, COUNT, choice.log2_scale);
    for (l = 0; l < LAYERS; l++)
        total[1] += lost[1][l] = flushed_in_layer(l, &n);

    printf("\nEvery gradient converted to FP16 and back; nonzero ones that came back as zero:\n\n"
           "  layer            plain loss     loss x 2^%d\n", choice.log2_scale);
    for (l = LAYERS - 1; l >= 0; l--)
        printf("  %2d %-10s %6d %5.1f%%  %6d %5.1f%%\n", l + 1,
               l == LAYERS - 1 ? "(output)" : l ? "" : "(input)", lost[0][l],
               100.0 * lost[0][l] / LAYER_COUNT, lost[1][l], 100.0 * lost[1][l] / LAYER_COUNT);
    printf("\nLayers near the input lose most: their gradients came the longest way. The output\n"
           "layer loses too: most of its targets are 0, and so, nearly, are its outputs.\n");
    printf("\nVerdict: FP16 loses %d of %d gradients (%.1f%%) unscaled, %d (%.1f%%) with the"
           " scale.\n",
           total[0], nonzero, 100.0 * total[0] / nonzero, total[1], 100.0 * total[1] / nonzero);
    return 0;
}
