/* A small GPT in plain CUDA that learns to write words backward: it reads "cabd>" and writes "dbac".
 *
 *     nvcc -O2 -I. examples/10_drop_into_cuda/before.cu -o before && ./before
 *     nvcc -O2 -I. examples/10_drop_into_cuda/after.cu -o after && ./after
 *     diff examples/10_drop_into_cuda/before.cu examples/10_drop_into_cuda/after.cu
 *
 * This file exists twice. before.cu is an ordinary FP32 trainer, with one kernel per operation and AdamW at
 * the end; it does not use mpt. In after.cu weights, activations and gradients are FP16, with FP32 masters, a
 * dynamic loss scale and the fused step of mpt_cuda.h, on the same stream and without waiting for the GPU.
 * The network is built like GPT-2: embeddings of tokens and positions, blocks of attention and a feed-forward
 * net with a norm before each, a last norm, a linear head. Argument: the number of steps. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LETTERS = 6, VOCAB = LETTERS + 1, WORD = 4, LEN = 2 * WORD, TEXT = LEN + 1 };
enum { LAYERS = 1, WIDTH = 16, HEADS = 2, HEAD = WIDTH / HEADS, INNER = 2 * WIDTH };
enum { BATCH = 16, ROWS = BATCH * LEN, ANSWERS = BATCH * WORD, STEPS = 60, WARMUP = 10 };

typedef float real;             /* what weights, activations and gradients are stored in */
static __host__ __device__ float get(const real *p, int i) { return p[i]; }
static __device__ void put(real *p, int i, float x) { p[i] = x; }

static cudaStream_t stream;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(cudaError_t e)
{
    if (e != cudaSuccess) die("CUDA", cudaGetErrorString(e));
}

/* Allocate device memory that is zero. */
static void *device(size_t bytes)
{
    void *p;
    check(cudaMalloc(&p, bytes));
    check(cudaMemset(p, 0, bytes));
    return p;
}

static real *reals(int n) { return (real *)device(n * sizeof(real)); }

/* Launch one thread for each index k below n. */
#define BLOCKS(n) ((n) + 127) / 128, 128, 0, stream
#define INDEX(n)                                                  \
    const int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);   \
    if (k >= (n)) return

/* ---- parameters: each with its gradient and the moments of Adam ---- */

typedef struct Param {
    real  *w, *g;
    float *m, *v;
    int    n;
} Param;

typedef struct Layer {
    Param norm1, shift1, qkv, qkv_bias, proj, proj_bias, norm2, shift2, up, up_bias, down, down_bias;
} Layer;

static Param  tokens, positions, norm3, shift3, head, head_bias;
static Layer  layers[LAYERS];
static Param *params[6 + LAYERS * 12];
static int    param_count;

static double random_unit(void)             /* 0 to 1 */
{
    static unsigned long long state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(state >> 33) / 2147483648.0;
}

static void param_init(Param *p, int n, float value, double range)
{
    static float host[INNER * WIDTH + 3 * WIDTH * WIDTH];
    for (int i = 0; i < n; i++) host[i] = value + (float)(range * (2.0 * random_unit() - 1.0));
    float *weights = (float *)device(n * sizeof(float));
    check(cudaMemcpy(weights, host, n * sizeof(float), cudaMemcpyHostToDevice));
    p->n = n;
    p->w = weights;
    p->g = reals(n);
    p->m = (float *)device(n * sizeof(float));
    p->v = (float *)device(n * sizeof(float));
    params[param_count++] = p;
}

static void model_init(void)
{
    param_init(&tokens, VOCAB * WIDTH, 0.0f, 0.4);
    param_init(&positions, LEN * WIDTH, 0.0f, 0.4);
    for (Layer &a : layers) {
        param_init(&a.norm1, WIDTH, 1.0f, 0.0);
        param_init(&a.shift1, WIDTH, 0.0f, 0.0);
        param_init(&a.qkv, 3 * WIDTH * WIDTH, 0.0f, 0.4);
        param_init(&a.qkv_bias, 3 * WIDTH, 0.0f, 0.0);
        param_init(&a.proj, WIDTH * WIDTH, 0.0f, 0.3);
        param_init(&a.proj_bias, WIDTH, 0.0f, 0.0);
        param_init(&a.norm2, WIDTH, 1.0f, 0.0);
        param_init(&a.shift2, WIDTH, 0.0f, 0.0);
        param_init(&a.up, INNER * WIDTH, 0.0f, 0.3);
        param_init(&a.up_bias, INNER, 0.0f, 0.0);
        param_init(&a.down, WIDTH * INNER, 0.0f, 0.2);
        param_init(&a.down_bias, WIDTH, 0.0f, 0.0);
    }
    param_init(&norm3, WIDTH, 1.0f, 0.0);
    param_init(&shift3, WIDTH, 0.0f, 0.0);
    param_init(&head, VOCAB * WIDTH, 0.0f, 0.3);
    param_init(&head_bias, VOCAB, 0.0f, 0.0);
}

__global__ void adamw(Param p, float lr, int t)
{
    INDEX(p.n);
    const float m = p.m[k] = 0.9f * p.m[k] + 0.1f * p.g[k];
    const float v = p.v[k] = 0.98f * p.v[k] + 0.02f * p.g[k] * p.g[k];
    p.w[k] -= lr * (m / (1 - powf(0.9f, t)) / (sqrtf(v / (1 - powf(0.98f, t))) + 1e-8f) + 0.1f * p.w[k]);
}

/* ---- the parts of the network, forward ---- */

/* x[row] = embedding of its token + embedding of its position */
__global__ void embed(real *x, const real *token, const real *position, const int *text)
{
    INDEX(ROWS * WIDTH);
    const int row = k / WIDTH, i = k % WIDTH;
    put(x, k, get(token, text[row / LEN * TEXT + row % LEN] * WIDTH + i) +
              get(position, row % LEN * WIDTH + i));
}

/* y[row][out] = x[row][in] w[out][in] + b[out], plus `to` if that is not NULL */
__global__ void linear(real *y, const real *x, const real *w, const real *b, const real *to, int in, int out)
{
    INDEX(ROWS * out);
    const int row = k / out, o = k % out;
    float     sum = get(b, o);
    for (int i = 0; i < in; i++) sum += get(x, row * in + i) * get(w, o * in + i);
    put(y, k, to ? sum + get(to, k) : sum);
}

/* at[2 k] is the mean of row k, at[2 k + 1] one over its standard deviation. */
__global__ void norm(real *y, float *at, const real *x, const real *scale, const real *shift)
{
    INDEX(ROWS);
    float mean = 0.0f, var = 0.0f;
    for (int i = 0; i < WIDTH; i++) mean += get(x, k * WIDTH + i) / WIDTH;
    for (int i = 0; i < WIDTH; i++) {
        const float d = get(x, k * WIDTH + i) - mean;
        var += d * d / WIDTH;
    }
    at[2 * k] = mean;
    at[2 * k + 1] = 1.0f / sqrtf(var + 1e-5f);
    for (int i = 0; i < WIDTH; i++)
        put(y, k * WIDTH + i,
            (get(x, k * WIDTH + i) - mean) * at[2 * k + 1] * get(scale, i) + get(shift, i));
}

/* Causal attention, one thread per query and head. p keeps the probabilities, [BATCH][HEADS][LEN][LEN]. */
__global__ void attention(real *y, real *p, const real *qkv)
{
    INDEX(ROWS * HEADS);
    const int b = k / (HEADS * LEN), h = k / LEN % HEADS, t = k % LEN;
    const int q = (b * LEN + t) * 3 * WIDTH + h * HEAD;
    float     row[LEN], most = -1e30f, sum = 0.0f;
    for (int u = 0; u <= t; u++) {
        const int key = (b * LEN + u) * 3 * WIDTH + WIDTH + h * HEAD;
        row[u] = 0.0f;
        for (int i = 0; i < HEAD; i++) row[u] += get(qkv, q + i) * get(qkv, key + i);
        row[u] /= sqrtf(HEAD);
        most = fmaxf(most, row[u]);
    }
    for (int u = 0; u <= t; u++) sum += row[u] = expf(row[u] - most);
    for (int u = 0; u <= t; u++) put(p, k * LEN + u, row[u] / sum);
    for (int i = 0; i < HEAD; i++) {
        float mixed = 0.0f;
        for (int u = 0; u <= t; u++)
            mixed += row[u] / sum * get(qkv, (b * LEN + u) * 3 * WIDTH + 2 * WIDTH + h * HEAD + i);
        put(y, (b * LEN + t) * WIDTH + h * HEAD + i, mixed);
    }
}

/* x * sigmoid(1.702 x), close to GELU */
__global__ void gelu(real *y, const real *x, int n)
{
    INDEX(n);
    put(y, k, get(x, k) / (1.0f + expf(-1.702f * get(x, k))));
}

/* ---- and backward ---- */

/* The loss of each letter of the answers; logits become the gradient of their sum times *dloss. */
__global__ void loss_grad(float *loss, real *logits, const int *text, const float *dloss)
{
    INDEX(ROWS);
    const int label = text[k / LEN * TEXT + k % LEN + 1], answer = k % LEN >= WORD;
    float     p[VOCAB], most = -1e30f, sum = 0.0f;
    for (int i = 0; i < VOCAB; i++) most = fmaxf(most, p[i] = get(logits, k * VOCAB + i));
    for (int i = 0; i < VOCAB; i++) sum += p[i] = expf(p[i] - most);
    loss[k] = answer ? -logf(p[label] / sum) : 0.0f;
    for (int i = 0; i < VOCAB; i++)
        put(logits, k * VOCAB + i, (answer ? p[i] / sum - (i == label) : 0.0f) * *dloss);
}

/* dx[row][in] = dy[row][out] w[out][in] */
__global__ void linear_dx(real *dx, const real *dy, const real *w, int in, int out)
{
    INDEX(ROWS * in);
    float sum = 0.0f;
    for (int o = 0; o < out; o++) sum += get(dy, k / in * out + o) * get(w, o * in + k % in);
    put(dx, k, sum);
}

/* dw[out][in] = sum over rows of dy[row][out] x[row][in]; with in = 1 and x NULL, the gradient of the bias */
__global__ void linear_dw(real *dw, const real *dy, const real *x, int in, int out)
{
    INDEX(out * in);
    float sum = 0.0f;
    for (int r = 0; r < ROWS; r++) sum += get(dy, r * out + k / in) * (x ? get(x, r * in + k % in) : 1.0f);
    put(dw, k, sum);
}

/* Adds to dx, which holds the gradient of the residual stream already. */
__global__ void norm_dx(real *dx, const real *dy, const float *at, const real *x, const real *scale)
{
    INDEX(ROWS);
    float sum = 0.0f, dot = 0.0f;
    for (int i = 0; i < WIDTH; i++) {
        const float d = get(dy, k * WIDTH + i) * get(scale, i) / WIDTH;
        sum += d;
        dot += d * (get(x, k * WIDTH + i) - at[2 * k]) * at[2 * k + 1];
    }
    for (int i = 0; i < WIDTH; i++) {
        const float hat = (get(x, k * WIDTH + i) - at[2 * k]) * at[2 * k + 1];
        put(dx, k * WIDTH + i, get(dx, k * WIDTH + i) +
            at[2 * k + 1] * (get(dy, k * WIDTH + i) * get(scale, i) - sum - hat * dot));
    }
}

__global__ void norm_dw(real *dscale, real *dshift, const real *dy, const float *at, const real *x)
{
    INDEX(WIDTH);
    float scale = 0.0f, shift = 0.0f;
    for (int r = 0; r < ROWS; r++) {
        scale += get(dy, r * WIDTH + k) * (get(x, r * WIDTH + k) - at[2 * r]) * at[2 * r + 1];
        shift += get(dy, r * WIDTH + k);
    }
    put(dscale, k, scale);
    put(dshift, k, shift);
}

/* One thread per sequence and head, so that sums over queries need no atomics. */
__global__ void attention_back(real *dqkv, const real *dy, const real *p, const real *qkv)
{
    INDEX(BATCH * HEADS);
    float d[LEN][3][HEAD] = {};             /* gradients of queries, keys, values */
    for (int t = 0; t < LEN; t++) {
        const int row = k / HEADS * LEN + t, h = k % HEADS * HEAD;
        float     dp[LEN], sum = 0.0f;
        for (int u = 0; u <= t; u++) {
            const float prob = get(p, (k * LEN + t) * LEN + u);
            dp[u] = 0.0f;
            for (int i = 0; i < HEAD; i++) {
                const float g = get(dy, row * WIDTH + h + i);
                dp[u] += g * get(qkv, (row - t + u) * 3 * WIDTH + 2 * WIDTH + h + i);
                d[u][2][i] += prob * g;
            }
            sum += dp[u] * prob;
        }
        for (int u = 0; u <= t; u++) {
            const float ds = get(p, (k * LEN + t) * LEN + u) * (dp[u] - sum) / sqrtf(HEAD);
            for (int i = 0; i < HEAD; i++) {
                d[t][0][i] += ds * get(qkv, (row - t + u) * 3 * WIDTH + WIDTH + h + i);
                d[u][1][i] += ds * get(qkv, row * 3 * WIDTH + h + i);
            }
        }
    }
    for (int j = 0; j < LEN * 3 * HEAD; j++)
        put(dqkv, (k / HEADS * LEN + j / (3 * HEAD)) * 3 * WIDTH + j / HEAD % 3 * WIDTH + k % HEADS * HEAD +
            j % HEAD, d[j / (3 * HEAD)][j / HEAD % 3][j % HEAD]);
}

__global__ void gelu_back(real *dx, const real *x, int n)
{
    INDEX(n);
    const float s = 1.0f / (1.0f + expf(-1.702f * get(x, k)));
    put(dx, k, get(dx, k) * (s + 1.702f * get(x, k) * s * (1.0f - s)));
}

/* The gradient of an embedding's row is the sum of dx over the rows of x that were read from it. */
__global__ void embed_back(real *dtoken, real *dposition, const real *dx, const int *text)
{
    INDEX((VOCAB + LEN) * WIDTH);
    const int id = k / WIDTH, i = k % WIDTH;
    float     sum = 0.0f;
    for (int r = 0; r < ROWS; r++)
        if (id < VOCAB ? text[r / LEN * TEXT + r % LEN] == id : r % LEN == id - VOCAB)
            sum += get(dx, r * WIDTH + i);
    if (id < VOCAB) put(dtoken, k, sum);
    else put(dposition, k - VOCAB * WIDTH, sum);
}

/* ---- the network ---- */

/* What a block keeps for the backward pass. */
typedef struct Kept {
    real  *x, *normed, *qkv, *p, *mixed, *middle, *normed2, *inner, *active;
    float *at, *at2;
} Kept;

static Kept   kept[LAYERS];
static real  *x_last, *last, *logits, *d_x, *d_narrow, *d_wide;
static float *at_last, *losses, *dloss;
static int   *text;

static void rooms_init(void)
{
    for (Kept &a : kept) {
        a.x = reals(ROWS * WIDTH), a.normed = reals(ROWS * WIDTH), a.qkv = reals(ROWS * 3 * WIDTH);
        a.p = reals(ROWS * HEADS * LEN), a.mixed = reals(ROWS * WIDTH), a.middle = reals(ROWS * WIDTH);
        a.normed2 = reals(ROWS * WIDTH), a.inner = reals(ROWS * INNER), a.active = reals(ROWS * INNER);
        a.at = (float *)device(2 * ROWS * sizeof(float)), a.at2 = (float *)device(2 * ROWS * sizeof(float));
    }
    x_last = reals(ROWS * WIDTH), last = reals(ROWS * WIDTH), logits = reals(ROWS * VOCAB);
    d_x = reals(ROWS * WIDTH), d_narrow = reals(ROWS * WIDTH), d_wide = reals(ROWS * 3 * WIDTH);
    at_last = (float *)device(2 * ROWS * sizeof(float)), losses = (float *)device(ROWS * sizeof(float));
    dloss = (float *)device(sizeof(float));
    text = (int *)device(BATCH * TEXT * sizeof(int));
}

static void dense(real *y, const real *x, const Param &w, const Param &b, const real *to, int in, int out)
{
    linear<<<BLOCKS(ROWS * out)>>>(y, x, w.w, b.w, to, in, out);
}

static void dense_back(real *dx, const real *dy, const real *x, const Param &w, const Param &b, int in,
                       int out)
{
    linear_dx<<<BLOCKS(ROWS * in)>>>(dx, dy, w.w, in, out);
    linear_dw<<<BLOCKS(in * out)>>>(w.g, dy, x, in, out);
    linear_dw<<<BLOCKS(out)>>>(b.g, dy, NULL, 1, out);
}

static void norm_back(real *dx, const real *dy, const float *at, const real *x, const Param &scale,
                      const Param &shift)
{
    norm_dx<<<BLOCKS(ROWS)>>>(dx, dy, at, x, scale.w);
    norm_dw<<<BLOCKS(WIDTH)>>>(scale.g, shift.g, dy, at, x);
}

static void forward(void)
{
    embed<<<BLOCKS(ROWS * WIDTH)>>>(kept[0].x, tokens.w, positions.w, text);
    for (int l = 0; l < LAYERS; l++) {
        const Layer &a = layers[l];
        const Kept  &s = kept[l];
        norm<<<BLOCKS(ROWS)>>>(s.normed, s.at, s.x, a.norm1.w, a.shift1.w);
        dense(s.qkv, s.normed, a.qkv, a.qkv_bias, NULL, WIDTH, 3 * WIDTH);
        attention<<<BLOCKS(ROWS * HEADS)>>>(s.mixed, s.p, s.qkv);
        dense(s.middle, s.mixed, a.proj, a.proj_bias, s.x, WIDTH, WIDTH);
        norm<<<BLOCKS(ROWS)>>>(s.normed2, s.at2, s.middle, a.norm2.w, a.shift2.w);
        dense(s.inner, s.normed2, a.up, a.up_bias, NULL, WIDTH, INNER);
        gelu<<<BLOCKS(ROWS * INNER)>>>(s.active, s.inner, ROWS * INNER);
        dense(l + 1 < LAYERS ? kept[l + 1].x : x_last, s.active, a.down, a.down_bias, s.middle, INNER, WIDTH);
    }
    norm<<<BLOCKS(ROWS)>>>(last, at_last, x_last, norm3.w, shift3.w);
    dense(logits, last, head, head_bias, NULL, WIDTH, VOCAB);
}

static void backward(void)
{
    dense_back(d_narrow, logits, last, head, head_bias, WIDTH, VOCAB);
    check(cudaMemsetAsync(d_x, 0, ROWS * WIDTH * sizeof(real), stream));
    norm_back(d_x, d_narrow, at_last, x_last, norm3, shift3);
    for (int l = LAYERS; l--;) {
        const Layer &a = layers[l];
        const Kept  &s = kept[l];
        dense_back(d_wide, d_x, s.active, a.down, a.down_bias, INNER, WIDTH);
        gelu_back<<<BLOCKS(ROWS * INNER)>>>(d_wide, s.inner, ROWS * INNER);
        dense_back(d_narrow, d_wide, s.normed2, a.up, a.up_bias, WIDTH, INNER);
        norm_back(d_x, d_narrow, s.at2, s.middle, a.norm2, a.shift2);
        dense_back(d_narrow, d_x, s.mixed, a.proj, a.proj_bias, WIDTH, WIDTH);
        attention_back<<<BLOCKS(BATCH * HEADS)>>>(d_wide, d_narrow, s.p, s.qkv);
        dense_back(d_narrow, d_wide, s.normed, a.qkv, a.qkv_bias, WIDTH, 3 * WIDTH);
        norm_back(d_x, d_narrow, s.at, s.x, a.norm1, a.shift1);
    }
    embed_back<<<BLOCKS((VOCAB + LEN) * WIDTH)>>>(tokens.g, positions.g, d_x, text);
}

/* ---- words ---- */

static int host_text[BATCH][TEXT];

static void new_words(void)
{
    for (int *to : host_text) {
        for (int i = 0; i < WORD; i++) to[i] = to[LEN - i] = (int)(random_unit() * LETTERS);
        to[WORD] = LETTERS;
    }
    check(cudaMemcpyAsync(text, host_text, sizeof host_text, cudaMemcpyHostToDevice, stream));
}

/* The percentage of right letters in answers to new words, each predicted after the right letters. */
static double test(void)
{
    static real z[ROWS * VOCAB];
    int         right = 0, all = 0;
    for (int turn = 0; turn < 8; turn++) {
        new_words();
        forward();
        check(cudaMemcpyAsync(z, logits, sizeof z, cudaMemcpyDeviceToHost, stream));
        check(cudaStreamSynchronize(stream));
        for (int r = 0; r < ROWS; r++) {
            int best = 0;
            for (int i = 1; i < VOCAB; i++)
                if (get(z, r * VOCAB + i) > get(z, r * VOCAB + best)) best = i;
            right += r % LEN >= WORD && best == host_text[r / LEN][r % LEN + 1];
            all += r % LEN >= WORD;
        }
    }
    return 100.0 * right / all;
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : STEPS;
    int       size = 0;
    check(cudaStreamCreate(&stream));
    model_init();
    rooms_init();
    check(cudaDeviceSynchronize());
    for (const Param *p : params) size += p->n;
    printf("%d arrays, %d parameters\n", param_count, size);
    for (int step = 1; step <= steps; step++) {
        const float mean = 1.0f / ANSWERS;
        const float warm = step < WARMUP ? (float)step / WARMUP : 1.0f;
        const float lr = 2e-2f * warm * (1.0f - 0.9f * step / steps);
        new_words();
        forward();
        check(cudaMemcpy(dloss, &mean, sizeof mean, cudaMemcpyHostToDevice));
        loss_grad<<<BLOCKS(ROWS)>>>(losses, logits, text, dloss);
        backward();
        for (Param *p : params) adamw<<<BLOCKS(p->n)>>>(*p, lr, step);
        if (step % 10 == 0 || step == steps) printf("step %2d: %.1f%% of the letters\n", step, test());
    }
    return 0;
}
