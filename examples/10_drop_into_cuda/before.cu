/* A digit recogniser in plain CUDA: a two-layer network, minibatch SGD with momentum, all in FP32.
 *
 *     nvcc -O2 -I. examples/10_drop_into_cuda/before.cu -o before && ./before
 *     nvcc -O2 -I. examples/10_drop_into_cuda/after.cu -o after && ./after
 *     diff examples/10_drop_into_cuda/before.cu examples/10_drop_into_cuda/after.cu
 *
 * This file exists twice. before.cu knows nothing of mpt. In after.cu weights, activations and gradients are
 * FP16, with FP32 masters, a dynamic loss scale and the fused step of mpt_cuda.h, on the same stream and
 * without a wait. Data: examples/data/digits.csv, or the file named on the command line. */
#include "examples/digits.h"
#include <cuda_runtime.h>

#define IN     DIGIT_PIXELS
#define HIDDEN 32
#define OUT    DIGIT_KINDS
#define BATCH  64
#define EPOCHS 20
#define MOST   DIGITS_MOST
#define TRAIN  1408             /* 22 batches; the rest is for the test */
#define TEST   (MOST - TRAIN)

typedef float real;             /* what weights, activations and gradients are stored in */
static __host__ __device__ float get(const real *p, int i) { return p[i]; }
static __host__ __device__ void put(real *p, int i, float x) { p[i] = x; }

/* y[rows][out] = x[rows][in] w[out][in] + b[out]; one thread per result */
__global__ void dense(real *y, const real *x, const real *w, const real *b, int rows, int in, int out,
                      int relu)
{
    const int k = (int)(blockIdx.x * blockDim.x + threadIdx.x), row = k / out, o = k % out;
    if (row >= rows) return;
    float sum = get(b, o);
    for (int i = 0; i < in; i++) sum = fmaf(get(x, row * in + i), get(w, o * in + i), sum);
    put(y, k, relu && sum < 0.0f ? 0.0f : sum);
}

/* exp for x <= 0 as (1 + x/1024)^1024 */
static __device__ float small_exp(float x)
{
    float e = x > -1024.0f ? fmaf(x, 1.0f / 1024.0f, 1.0f) : 0.0f;
    for (int k = 0; k < 10; k++) e = fmaf(e, e, 0.0f);
    return e;
}

/* dy[rows][OUT] = (softmax(y) - onehot(label)) / BATCH: the gradient of the loss; one thread per row */
__global__ void loss_grad(real *dy, const real *y, const int *label, int rows)
{
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float     p[OUT], most = -65504.0f, sum = 0.0f;
    if (row >= rows) return;
    for (int k = 0; k < OUT; k++) {
        p[k] = get(y, row * OUT + k);
        most = fmaxf(most, p[k]);
    }
    for (int k = 0; k < OUT; k++) {
        p[k] = small_exp(p[k] - most);
        sum += p[k];
    }
    for (int k = 0; k < OUT; k++)
        put(dy, row * OUT + k, (p[k] / sum - (k == label[row] ? 1.0f : 0.0f)) / BATCH);
}

/* dw[out][in] = sum over rows of dy[row][out] x[row][in]; with in = 1 and no x: of the bias */
__global__ void weight_grad(real *dw, const real *dy, const real *x, int rows, int in, int out)
{
    const int k = (int)(blockIdx.x * blockDim.x + threadIdx.x), o = k / in, i = k % in;
    float     sum = 0.0f;
    if (o >= out) return;
    for (int row = 0; row < rows; row++)
        sum = fmaf(get(dy, row * out + o), x ? get(x, row * in + i) : 1.0f, sum);
    put(dw, k, sum);
}

/* dx[rows][in] = dy[rows][out] w[out][in] where x > 0 */
__global__ void input_grad(real *dx, const real *dy, const real *w, const real *x, int rows, int in, int out)
{
    const int k = (int)(blockIdx.x * blockDim.x + threadIdx.x), row = k / in, i = k % in;
    float     sum = 0.0f;
    if (row >= rows) return;
    for (int o = 0; o < out; o++) sum = fmaf(get(dy, row * out + o), get(w, o * in + i), sum);
    put(dx, k, get(x, k) > 0.0f ? sum : 0.0f);
}

/* m = 0.9 m + g;  w -= rate m */
__global__ void sgd(real *w, float *m, const real *g, int n, float rate)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    m[i] = fmaf(0.9f, m[i], get(g, i));
    w[i] = fmaf(-rate, m[i], w[i]);
}

static void check(cudaError_t e)
{
    if (e != cudaSuccess) die("CUDA", cudaGetErrorString(e));
}

/* Zeroed. */
static void *device(size_t bytes)
{
    void *p;
    check(cudaMalloc(&p, bytes));
    check(cudaMemset(p, 0, bytes));
    return p;
}

/* One array of weights, with its gradient and momentum. */
typedef struct weights {
    real  *w, *g;
    float *m;
    int    n;
} weights;

static weights make(int n, double range)
{
    static float host[HIDDEN * IN];
    weights      t;
    for (int i = 0; i < n; i++) host[i] = random_weight(range);
    t.w = (real *)device(n * sizeof(real));
    t.g = (real *)device(n * sizeof(real));
    t.m = (float *)device(n * sizeof(float));
    t.n = n;
    check(cudaMemcpy(t.w, host, n * sizeof(float), cudaMemcpyHostToDevice));
    return t;
}

static real pixel[MOST][IN];
static int  label[MOST];

static void read_digits(const char *path)
{
    digits_load(path);
    if (digits_count != MOST) die(path, "expected 1797 digits");
    for (int i = 0; i < MOST; i++) {
        for (int k = 0; k < IN; k++) put(pixel[i], k, digits[i].x[k]);
        label[i] = digits[i].label;
    }
}

#define BLOCKS(n) ((n) + 127) / 128, 128, 0, stream

int main(int argc, char **argv)
{
    static real  y[TEST * OUT];
    cudaStream_t stream;
    read_digits(argc > 1 ? argv[1] : "examples/data/digits.csv");
    check(cudaStreamCreate(&stream));

    weights w1 = make(HIDDEN * IN, 0.25), b1 = make(HIDDEN, 0.0);
    weights w2 = make(OUT * HIDDEN, 0.25), b2 = make(OUT, 0.0);
    real   *x = (real *)device(sizeof pixel), *h = (real *)device(MOST * HIDDEN * sizeof(real));
    real   *dy = (real *)device(BATCH * OUT * sizeof(real)),
           *dh = (real *)device(BATCH * HIDDEN * sizeof(real));
    real   *out = (real *)device(MOST * OUT * sizeof(real));
    int    *t = (int *)device(sizeof label);
    check(cudaMemcpy(x, pixel, sizeof pixel, cudaMemcpyHostToDevice));
    check(cudaMemcpy(t, label, sizeof label, cudaMemcpyHostToDevice));

    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        const float rate = epoch <= EPOCHS / 2 ? 0.1f : 0.02f;
        int         right = 0;
        for (int at = 0; at < TRAIN; at += BATCH) {
            const real *xb = x + at * IN;
            dense<<<BLOCKS(BATCH * HIDDEN)>>>(h, xb, w1.w, b1.w, BATCH, IN, HIDDEN, 1);
            dense<<<BLOCKS(BATCH * OUT)>>>(out, h, w2.w, b2.w, BATCH, HIDDEN, OUT, 0);
            loss_grad<<<BLOCKS(BATCH)>>>(dy, out, t + at, BATCH);
            weight_grad<<<BLOCKS(OUT * HIDDEN)>>>(w2.g, dy, h, BATCH, HIDDEN, OUT);
            weight_grad<<<BLOCKS(OUT)>>>(b2.g, dy, NULL, BATCH, 1, OUT);
            input_grad<<<BLOCKS(BATCH * HIDDEN)>>>(dh, dy, w2.w, h, BATCH, HIDDEN, OUT);
            weight_grad<<<BLOCKS(HIDDEN * IN)>>>(w1.g, dh, xb, BATCH, IN, HIDDEN);
            weight_grad<<<BLOCKS(HIDDEN)>>>(b1.g, dh, NULL, BATCH, 1, HIDDEN);
            sgd<<<BLOCKS(w1.n)>>>(w1.w, w1.m, w1.g, w1.n, rate);
            sgd<<<BLOCKS(b1.n)>>>(b1.w, b1.m, b1.g, b1.n, rate);
            sgd<<<BLOCKS(w2.n)>>>(w2.w, w2.m, w2.g, w2.n, rate);
            sgd<<<BLOCKS(b2.n)>>>(b2.w, b2.m, b2.g, b2.n, rate);
        }
        dense<<<BLOCKS(TEST * HIDDEN)>>>(h, x + TRAIN * IN, w1.w, b1.w, TEST, IN, HIDDEN, 1);
        dense<<<BLOCKS(TEST * OUT)>>>(out, h, w2.w, b2.w, TEST, HIDDEN, OUT, 0);
        check(cudaMemcpy(y, out, sizeof y, cudaMemcpyDeviceToHost));
        for (int i = 0; i < TEST; i++) {
            int best = 0;
            for (int k = 1; k < OUT; k++)
                if (get(y, i * OUT + k) > get(y, i * OUT + best)) best = k;
            right += best == label[TRAIN + i];
        }
        if (epoch % 4 == 0) printf("epoch %2d: %.1f%% of the test digits\n", epoch, 100.0 * right / TEST);
    }
    return 0;
}
