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
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt_cuda.h"
#include <cuda_runtime.h>

#define IN     DIGIT_PIXELS
#define HIDDEN 32
#define OUT    DIGIT_KINDS
#define BATCH  64
#define EPOCHS 20
#define MOST   DIGITS_MOST
#define TRAIN  1408             /* 22 batches; the rest is for the test */
#define TEST   (MOST - TRAIN)

typedef mpt_f16 real;           /* what weights, activations and gradients are stored in */
static __host__ __device__ float get(const real *p, int i) { return mpt_f32_from_f16(p[i]); }
static __host__ __device__ void put(real *p, int i, float x) { p[i] = mpt_f16_from_f32(x); }

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
__global__ void loss_grad(real *dy, const real *y, const int *label, int rows, const mpt_cuda_state *state)
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
        put(dy, row * OUT + k, (p[k] / sum - (k == label[row] ? 1.0f : 0.0f)) / BATCH * state->scaler.scale);
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

static void check(cudaError_t e)
{
    if (e != cudaSuccess) die("CUDA", cudaGetErrorString(e));
}

static void need(mpt_status status, const mpt_cuda *gpu)
{
    if (status != MPT_OK) die(mpt_status_text(status), mpt_cuda_error_text(gpu));
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
    float *m, *master;
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
    t.master = (float *)device(n * sizeof(float));
    check(cudaMemcpy(t.master, host, n * sizeof(float), cudaMemcpyHostToDevice));
    return t;
}

static mpt_tensor tensor(const char *name, weights t)
{
    mpt_tensor r = mpt_tensor_grad_f32(name, NULL, t.n);
    r.master = t.master;
    r.m = t.m;
    r.param = t.w;
    r.grad = t.g;
    r.param_format = r.grad_format = MPT_F16;
    return r;
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

    const mpt_tensor tensors[] = {tensor("w1", w1), tensor("b1", b1), tensor("w2", w2), tensor("b2", b2)};
    const mpt_sgd    sgd = {0.0f, 0.9f, 0.0f, 0u, 0.0f, 0u, 0u}; /* momentum 0.9; the rate is the state's */
    mpt_scaler       scaler;
    mpt_cuda        *gpu = NULL;
    mpt_cuda_list   *list;
    mpt_cuda_state  *state;
    need(mpt_scaler_init(&scaler, NULL), NULL);
    need(mpt_cuda_create(&gpu, 0), gpu);
    need(mpt_cuda_list_create(gpu, &list, tensors, 4), gpu);
    need(mpt_cuda_state_create(gpu, &state, &scaler, 0.1f), gpu);
    for (const mpt_tensor &p : tensors)
        need(mpt_cuda_convert_n(gpu, MPT_F16, p.param, MPT_F32, p.master, p.n, NULL, NULL, stream), gpu);

    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        need(mpt_cuda_lr_set(gpu, state, epoch <= EPOCHS / 2 ? 0.1f : 0.02f, stream), gpu);
        int         right = 0;
        for (int at = 0; at < TRAIN; at += BATCH) {
            const real *xb = x + at * IN;
            dense<<<BLOCKS(BATCH * HIDDEN)>>>(h, xb, w1.w, b1.w, BATCH, IN, HIDDEN, 1);
            dense<<<BLOCKS(BATCH * OUT)>>>(out, h, w2.w, b2.w, BATCH, HIDDEN, OUT, 0);
            need(mpt_cuda_scaler_scale_n(gpu, state, MPT_F32, NULL, 0, stream), gpu);
            loss_grad<<<BLOCKS(BATCH)>>>(dy, out, t + at, BATCH, state);
            weight_grad<<<BLOCKS(OUT * HIDDEN)>>>(w2.g, dy, h, BATCH, HIDDEN, OUT);
            weight_grad<<<BLOCKS(OUT)>>>(b2.g, dy, NULL, BATCH, 1, OUT);
            input_grad<<<BLOCKS(BATCH * HIDDEN)>>>(dh, dy, w2.w, h, BATCH, HIDDEN, OUT);
            weight_grad<<<BLOCKS(HIDDEN * IN)>>>(w1.g, dh, xb, BATCH, IN, HIDDEN);
            weight_grad<<<BLOCKS(HIDDEN)>>>(b1.g, dh, NULL, BATCH, 1, HIDDEN);
            need(mpt_cuda_check(gpu, list, state, stream), gpu);
            need(mpt_cuda_sgd_step(gpu, list, state, &sgd, stream), gpu);
            need(mpt_cuda_scaler_update(gpu, state, stream), gpu);
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
