/* 13_recompute.c -- activation checkpointing: most activations are not stored but recomputed, and the
 * gradients are the same, bit for bit.
 *
 *     cc -O2 -I. examples/13_recompute.c -o 13_recompute -lm && ./13_recompute
 *
 * The backward pass of a deep network needs the input of every layer. Instead of keeping all inputs, keep the
 * first of each segment of `every` layers. When the backward pass comes to a segment, run the forward pass of
 * that segment again into a small buffer. This costs one more forward pass in time and needs memory for about
 * depth / every + every inputs, least at every = sqrt(depth). In FP16 each input takes half the bytes.
 *
 * The gradients have the same bits on one condition: kept and recomputed inputs must have been rounded alike.
 * So in both passes each layer reads its input as it is stored, rounded to the format. mpt's row functions do
 * the arithmetic; they give the same bits on every machine. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/program.h"

enum { DEPTH = 36, WIDTH = 48, BATCH = 8, MATRIX = WIDTH * WIDTH };

static mpt_format format;                               /* of activations, gradients and weights */
static float      weights[DEPTH][MATRIX], grads[DEPTH][MATRIX], first[DEPTH][MATRIX], input[BATCH][WIDTH];

/* ---- storage for activations: rows of a batch in `format` ---- */

typedef struct rows {
    char  *memory;
    size_t bytes;                                       /* of one layer's input, for the whole batch */
    size_t most;                                        /* bytes used so far */
} rows;

static void rows_init(rows *r, size_t layers)
{
    r->bytes = BATCH * WIDTH * (size_t)mpt_format_get(format)->bits / 8;
    r->most = 0;
    r->memory = (char *)malloc(layers * r->bytes);
    if (!r->memory)
        die("malloc", "out of memory");
}

static void put(rows *r, size_t slot, float x[BATCH][WIDTH])
{
    const size_t end = (slot + 1) * r->bytes;
    r->most = end > r->most ? end : r->most;
    store(r->memory + slot * r->bytes, format, x[0], BATCH * WIDTH);
}

static void get(const rows *r, size_t slot, float x[BATCH][WIDTH])
{
    load(x[0], r->memory + slot * r->bytes, format, BATCH * WIDTH);
}

/* ---- the network: x = relu(x W), DEPTH times ---- */

static void layer_forward(float x[BATCH][WIDTH], const float *w)
{
    float  y[WIDTH];
    size_t b, i;
    for (b = 0; b < BATCH; b++) {
        memset(y, 0, sizeof y);
        for (i = 0; i < WIDTH; i++)
            must(mpt_axpy(y, MPT_F32, x[b][i], w + i * WIDTH, MPT_F32, WIDTH));
        for (i = 0; i < WIDTH; i++)
            x[b][i] = y[i] > 0.0f ? y[i] : 0.0f;
    }
}

/* d: gradient of this layer's x W; becomes that of the layer below, whose ReLU gave x. g: gradient of w. */
static void layer_backward(float d[BATCH][WIDTH], float x[BATCH][WIDTH], const float *w, float *g)
{
    float  to[WIDTH];
    size_t b, i;
    memset(g, 0, MATRIX * sizeof *g);
    for (b = 0; b < BATCH; b++) {
        for (i = 0; i < WIDTH; i++) {
            must(mpt_axpy(g + i * WIDTH, MPT_F32, x[b][i], d[b], MPT_F32, WIDTH));
            to[i] = x[b][i] > 0.0f ? mpt_dot(w + i * WIDTH, MPT_F32, d[b], MPT_F32, WIDTH) : 0.0f;
        }
        must(mpt_quantize_n(d[b], to, WIDTH, format, NULL));
    }
}

/* Run layers from .. to - 1, and store the input of each `every`-th of them in slots 0, 1 ... of r. */
static size_t forward(rows *r, float x[BATCH][WIDTH], size_t from, size_t to, size_t every)
{
    size_t l;
    for (l = from; l < to; l++) {
        must(mpt_quantize_n(x[0], x[0], BATCH * WIDTH, format, NULL));
        if ((l - from) % every == 0)
            put(r, (l - from) / every, x);
        layer_forward(x, weights[l]);
    }
    return to - from;                                   /* layers computed */
}

/* Gradients of seed * (a sum of the outputs, weighted by 1, 2 and 3). Returns the number of layers run. */
static size_t train_step(size_t every, float seed, size_t *bytes)
{
    static float x[BATCH][WIDTH], d[BATCH][WIDTH], again[BATCH][WIDTH];
    rows         kept, segment;
    size_t       l, b, i, start = DEPTH, work;
    rows_init(&kept, (DEPTH + every - 1) / every);
    rows_init(&segment, every);
    memcpy(x, input, sizeof x);
    work = forward(&kept, x, 0, DEPTH, every);
    for (b = 0; b < BATCH; b++)
        for (i = 0; i < WIDTH; i++)
            d[b][i] = x[b][i] > 0.0f ? seed * (1.0f + (float)(i % 3)) : 0.0f;
    for (l = DEPTH; l-- > 0;) {
        if (every > 1 && l < start) {                   /* the next segment below: recompute inputs */
            start = l / every * every;
            get(&kept, start / every, again);
            work += forward(&segment, again, start, l + 1, 1);
        }
        if (every > 1)
            get(&segment, l - start, x);
        else
            get(&kept, l, x);
        layer_backward(d, x, weights[l], grads[l]);
    }
    *bytes = kept.most + segment.most;
    free(kept.memory);
    free(segment.memory);
    return work;
}

/* ---- the comparison ---- */

static uint32_t fnv(const float *x, size_t n)   /* a hash of the bits, the same on every machine */
{
    uint32_t h = 2166136261u, u;
    size_t   i;
    int      k;
    for (i = 0; i < n; i++) {
        memcpy(&u, &x[i], sizeof u);
        for (k = 0; k < 4; k++, u >>= 8)
            h = (h ^ (u & 255u)) * 16777619u;
    }
    return h;
}

static void fill(float *x, size_t n, float most)        /* uniform in -most .. most, in steps of 2^-15 */
{
    static uint32_t state = 1;
    for (; n > 0; n--) {
        state = state * 1664525u + 1013904223u;
        *x++ = ((float)(state >> 16) / 32768.0f - 1.0f) * most;
    }
}

int main(void)
{
    static const mpt_format formats[] = {MPT_F32, MPT_F16};
    static const size_t     every[] = {1, 2, 6, 12};
    size_t                  f, e;
    int                     different = 0;
    fill(weights[0], DEPTH * MATRIX, 0.375f);
    fill(input[0], BATCH * WIDTH, 1.0f);
    printf("%d layers of %d, batch %d: activations kept for the backward pass\n\n", (int)DEPTH, (int)WIDTH,
           (int)BATCH);
    printf("format  keep one in  bytes   of f32, all  layers forward  hash of gradients  same bits\n");
    for (f = 0; f < 2; f++) {
        format = formats[f];
        must(mpt_quantize_n(weights[0], weights[0], DEPTH * MATRIX, format, NULL));
        for (e = 0; e < sizeof every / sizeof *every; e++) {
            size_t       bytes;
            const size_t work = train_step(every[e], 0.125f, &bytes);
            int          same;
            if (e == 0)
                memcpy(first, grads, sizeof first);
            same = !memcmp(first, grads, sizeof first);
            different |= !same;
            printf("%-6s  %11u  %6u  %10.1f%%  %14u  %17.8x  %s\n", mpt_format_get(format)->name,
                   (unsigned)every[e], (unsigned)bytes,
                   100.0 * (double)bytes / (double)(DEPTH * BATCH * WIDTH * sizeof(float)), (unsigned)work,
                   (unsigned)fnv(grads[0], DEPTH * MATRIX), same ? "yes" : "NO");
        }
    }
    return different;
}
