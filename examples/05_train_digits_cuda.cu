/* 05_train_digits_cuda.cu -- the digits on a GPU: the host launches whole training steps and waits for none.
 *
 *     nvcc -std=c++17 -O2 -I. examples/05_train_digits_cuda.cu -lcublasLt -o 05_cuda && ./05_cuda
 *
 * and without a GPU, against the CPU emulation of the tests (this is what CI runs):
 *
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. examples/05_train_digits_cuda.cu -o 05_cuda
 *
 * A network of 64-32-10 units learns the handwritten digits of examples/data/digits.csv. Weights,
 * activations and gradients are FP16, every sum is FP32, and mpt keeps FP32 masters. cuBLAS computes the
 * matrix products, called by mpt_cuda_gemm: bias and ReLU are part of the product, and the ten outputs are
 * padded to sixteen, since Tensor Cores work best with multiples of 8. One step, from copying the batch to
 * updating the loss scale, is captured once as a CUDA graph and then only replayed. If a gradient overflows,
 * the GPU itself skips the step and halves the scale; the host learns of it at the end of the epoch, when it
 * copies the state. The scale starts too high, and mpt tries a doubled one after every 50 good steps, so some
 * steps are skipped; a skipped step changes no weight, and only its batch is lost.
 *
 * The kernels around the products write every multiply-add as fmaf and compute exp by multiplications, so
 * that no compiler changes a bit. cuBLAS chooses its own order of addition: on a GPU the last digits printed
 * may differ from 05_train_digits_cuda.expected, which is the output of the emulation. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#define MPT_USE_CUBLASLT
#include "mpt_cuda.h"
#include "examples/digits.h"

#define PIXELS  DIGIT_PIXELS
#define HIDDEN  32
#define DIGITS  DIGIT_KINDS
#define OUTPUTS 16              /* the ten digits, and six for padding, whose gradient is always 0 */
#define BATCH   64
#define EPOCHS  20
#define MOST    DIGITS_MOST
#define TRAIN   1408            /* 22 batches; the other digits are for testing */
#define THREADS 128

// the kernels: one thread per result --------------------------------------------------------------
static __device__ unsigned thread_index(void) { return blockIdx.x * blockDim.x + threadIdx.x; }

/* Copy the next batch. Its number comes from a step count in device memory, so each replay takes another. */
static __global__ void k_batch(mpt_f16 *x, int *label, const mpt_f16 *pixels, const int *labels,
                               const mpt_cuda_state *state)
{
    const unsigned i = thread_index();
    const unsigned first = (unsigned)(state->scaler.updates % (TRAIN / BATCH)) * BATCH;
    if (i < BATCH * PIXELS)
        x[i] = pixels[first * PIXELS + i];
    if (i < BATCH)
        label[i] = labels[first + i];
}

/* exp(x) for x <= 0, as (1 + x/1024)^1024: inaccurate where x is very negative and exp tiny, but of the same
 * bits everywhere. It squares by fmaf, since compilers may fuse a plain e * e with the caller's addition. */
static __device__ float small_exp(float x)
{
    float e = x > -1024.0f ? fmaf(x, 1.0f / 1024.0f, 1.0f) : 0.0f;
    for (int k = 0; k < 10; k++) e = fmaf(e, e, 0.0f);
    return e;
}

/* dlogits = (softmax(logits) - onehot(label)) / BATCH, in FP32: the backward pass begins with it. The six
 * outputs for padding keep their gradient of 0. */
static __global__ void k_softmax_grad(float *dlogits, const mpt_f16 *logits, const int *label)
{
    const unsigned row = thread_index();
    float          p[DIGITS], most = -65504.0f, sum = 0.0f;
    if (row >= BATCH)
        return;
    for (int k = 0; k < DIGITS; k++) {
        p[k] = mpt_f32_from_f16(logits[row * OUTPUTS + k]);
        most = p[k] > most ? p[k] : most;
    }
    for (int k = 0; k < DIGITS; k++) {
        p[k] = small_exp(p[k] - most);
        sum += p[k];
    }
    for (int k = 0; k < DIGITS; k++)
        dlogits[row * OUTPUTS + k] = (p[k] / sum - (k == label[row] ? 1.0f : 0.0f)) / BATCH;
}

/* db[out] = sum over the batch of dy[row][out] */
static __global__ void k_bias_grad(mpt_f16 *db, const mpt_f16 *dy, unsigned out)
{
    const unsigned o = thread_index();
    float          sum = 0.0f;
    if (o >= out)
        return;
    for (unsigned row = 0; row < BATCH; row++) sum += mpt_f32_from_f16(dy[row * out + o]);
    db[o] = mpt_f16_from_f32(sum);
}

/* dx = 0 where ReLU has made x zero */
static __global__ void k_relu_grad(mpt_f16 *dx, const mpt_f16 *x, unsigned n)
{
    const unsigned i = thread_index();
    if (i < n && !(mpt_f32_from_f16(x[i]) > 0.0f))
        dx[i] = mpt_f16_from_f32(0.0f);
}

// the host: errors, memory, data ------------------------------------------------------------------
static mpt_cuda *gpu;

static void cuda_ok(cudaError_t e)
{
    if (e != cudaSuccess)
        die("CUDA", cudaGetErrorString(e));
}

static void mpt_ok(mpt_status status)
{
    if (status != MPT_OK)
        die(mpt_status_text(status), mpt_cuda_error_text(gpu));
}

/* Launch by a function call instead of <<<>>>, which a plain C++ compiler cannot read. */
template <class T> struct same { typedef T type; };
template <class... P>
static void launch(cudaStream_t stream, int threads, void (*kernel)(P...), typename same<P>::type... args)
{
    void *pointers[] = {(void *)&args...};
    const dim3 blocks((unsigned)(threads + THREADS - 1) / THREADS);
    cuda_ok(cudaLaunchKernel(kernel, blocks, dim3(THREADS), pointers, 0, stream));
}

template <class T> static T *device_zeros(size_t n)
{
    T *p;
    cuda_ok(cudaMalloc((void **)&p, n * sizeof(T)));
    cuda_ok(cudaMemset(p, 0, n * sizeof(T)));
    return p;
}

template <class T> static T *device_copy(const T *host, size_t n)
{
    T *p = device_zeros<T>(n);
    cuda_ok(cudaMemcpy(p, host, n * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

// the network -------------------------------------------------------------------------------------
enum { W1, B1, W2, B2, TENSORS };

static struct network {
    mpt_tensor      tensor[TENSORS];    /* all pointers are device memory */
    mpt_cuda_list  *list;
    mpt_cuda_state *state;
    mpt_f16        *pixels, *x, *hidden, *logits, *dlogits, *dhidden;
    float          *seed;               /* gradient of the loss with respect to the logits, FP32 */
    int            *labels, *label;
} net;

static mpt_f16 *param(int i) { return (mpt_f16 *)net.tensor[i].param; }
static mpt_f16 *grad(int i) { return (mpt_f16 *)net.tensor[i].grad; }

/* Set up tensor i in device memory; its weights are uniform in -range .. range, a power of two. */
static void add_tensor(int i, const char *name, size_t n, double range)
{
    static float w[HIDDEN * PIXELS];
    mpt_tensor  *t = &net.tensor[i];
    for (size_t k = 0; k < n; k++) w[k] = random_weight(range);
    t->name = name;
    t->n = n;
    t->master = device_copy(w, n);
    t->m = device_zeros<float>(n);
    t->param = device_zeros<mpt_f16>(n);
    t->grad = device_zeros<mpt_f16>(n);
    t->param_format = t->grad_format = MPT_F16;
    /* the first FP16 copy */
    mpt_ok(mpt_cuda_convert_n(gpu, MPT_F16, param(i), MPT_F32, t->master, n, NULL, NULL, NULL));
}

static void build_network(void)
{
    static mpt_f16    pixels[MOST][PIXELS];
    static int        labels[MOST];
    mpt_scaler_config config = mpt_scaler_defaults(MPT_SCALER_MPT);
    mpt_scaler        scaler;
    config.init_scale = 16777216.0f;    /* 2^24: too high for FP16; a few skipped steps lower it */
    config.interval = 50;
    must(mpt_scaler_init(&scaler, &config));
    add_tensor(W1, "w1", HIDDEN * PIXELS, 0.25);
    add_tensor(B1, "b1", HIDDEN, 0.0);
    add_tensor(W2, "w2", OUTPUTS * HIDDEN, 0.25);
    add_tensor(B2, "b2", OUTPUTS, 0.0);
    mpt_ok(mpt_cuda_list_create(gpu, &net.list, net.tensor, TENSORS));
    mpt_ok(mpt_cuda_state_create(gpu, &net.state, &scaler, 0.1f));
    for (int i = 0; i < MOST; i++) {
        store(pixels[i], MPT_F16, digits[i].x, PIXELS);     /* sixteenths: exact */
        labels[i] = digits[i].label;
    }
    net.pixels = device_copy(pixels[0], MOST * PIXELS);
    net.labels = device_copy(labels, MOST);
    net.x = device_zeros<mpt_f16>(BATCH * PIXELS);
    net.label = device_zeros<int>(BATCH);
    net.hidden = device_zeros<mpt_f16>(MOST * HIDDEN);
    net.logits = device_zeros<mpt_f16>(MOST * OUTPUTS);
    net.seed = device_zeros<float>(BATCH * OUTPUTS);
    net.dlogits = device_zeros<mpt_f16>(BATCH * OUTPUTS);
    net.dhidden = device_zeros<mpt_f16>(BATCH * HIDDEN);
}

static void free_network(void)
{
    void *const arrays[] = {net.pixels, net.labels, net.x, net.label, net.hidden, net.logits, net.seed,
                            net.dlogits, net.dhidden};
    mpt_cuda_list_destroy(net.list);
    mpt_cuda_state_destroy(net.state);
    for (void *p : arrays) cuda_ok(cudaFree(p));
    for (const mpt_tensor &t : net.tensor)
        for (void *p : {(void *)t.master, (void *)t.m, t.param, t.grad}) cuda_ok(cudaFree(p));
}

/* d[m][n] = op(a) op(b), row-major, all FP16; plus bias[n] if it is not NULL; then ReLU if `relu` is set. */
static void product(mpt_f16 *d, int m, int n, int k, const mpt_f16 *a, bool trans_a, const mpt_f16 *b,
                    bool trans_b, const mpt_f16 *bias, bool relu, cudaStream_t stream)
{
    mpt_gemm_args g;
    memset(&g, 0, sizeof g);
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = a;
    g.b = b;
    g.d = d;
    g.bias = bias;
    g.lda = trans_a ? m : k;
    g.ldb = trans_b ? k : n;
    g.ldd = n;
    g.a_format = g.b_format = g.d_format = g.bias_format = MPT_F16;
    g.row_major = 1;
    g.trans_a = trans_a;
    g.trans_b = trans_b;
    g.epilogue = (bias ? MPT_EPILOGUE_BIAS : 0u) | (relu ? MPT_EPILOGUE_RELU : 0u);
    g.alpha = 1.0f;
    mpt_ok(mpt_cuda_gemm(gpu, &g, stream));
}

static void forward(const mpt_f16 *x, int rows, cudaStream_t stream)
{
    product(net.hidden, rows, HIDDEN, PIXELS, x, false, param(W1), true, param(B1), true, stream);
    product(net.logits, rows, OUTPUTS, HIDDEN, net.hidden, false, param(W2), true, param(B2), false, stream);
}

static void backward(cudaStream_t stream)
{
    mpt_f16 *const h = net.hidden, *const dh = net.dhidden, *const dy = net.dlogits;
    product(grad(W2), OUTPUTS, HIDDEN, BATCH, dy, true, h, false, nullptr, false, stream);
    launch(stream, OUTPUTS, k_bias_grad, grad(B2), dy, OUTPUTS);
    product(dh, BATCH, HIDDEN, OUTPUTS, dy, false, param(W2), false, nullptr, false, stream);
    launch(stream, BATCH * HIDDEN, k_relu_grad, dh, h, BATCH * HIDDEN);
    product(grad(W1), HIDDEN, PIXELS, BATCH, dh, true, net.x, false, nullptr, false, stream);
    launch(stream, HIDDEN, k_bias_grad, grad(B1), dh, HIDDEN);
}

// training ----------------------------------------------------------------------------------------
/* Queue one training step; nothing here makes the host wait. */
static void training_step(cudaStream_t stream)
{
    const mpt_sgd sgd = {0.0f, 0.9f, 0.0f, 0u, 0.0f, 0u, 0u};     /* momentum 0.9; net.state has the lr */
    launch(stream, BATCH * PIXELS, k_batch, net.x, net.label, net.pixels, net.labels, net.state);
    forward(net.x, BATCH, stream);
    launch(stream, BATCH, k_softmax_grad, net.seed, net.logits, net.label);
    mpt_ok(mpt_cuda_scaler_scale_n(gpu, net.state, MPT_F32, net.seed, BATCH * OUTPUTS, stream));
    mpt_ok(mpt_cuda_convert_n(gpu, MPT_F16, net.dlogits, MPT_F32, net.seed, BATCH * OUTPUTS, NULL, NULL,
                              stream));
    backward(stream);
    mpt_ok(mpt_cuda_check(gpu, net.list, net.state, stream));
    mpt_ok(mpt_cuda_sgd_step(gpu, net.list, net.state, &sgd, stream));
    mpt_ok(mpt_cuda_scaler_update(gpu, net.state, stream));
}

static cudaGraphExec_t capture_step(cudaStream_t stream)
{
    cudaGraph_t     graph;
    cudaGraphExec_t exec = NULL;
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    training_step(stream);
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
    cuda_ok(cudaGraphDestroy(graph));
    return exec;
}

/* Queue a forward pass over the test digits and copies of logits and state to the host; then wait, once. */
static double look(mpt_cuda_state *state, mpt_f16 *logits, cudaStream_t stream)
{
    const int n = MOST - TRAIN;
    int       right = 0;
    forward(net.pixels + (size_t)TRAIN * PIXELS, n, stream);
    cuda_ok(cudaMemcpyAsync(logits, net.logits, (size_t)n * OUTPUTS * sizeof *logits, cudaMemcpyDeviceToHost,
                            stream));
    mpt_ok(mpt_cuda_state_get(gpu, state, net.state, stream));
    cuda_ok(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) {
        int best = 0;
        for (int k = 1; k < DIGITS; k++)
            if (mpt_f32_from_f16(logits[i * OUTPUTS + k]) > mpt_f32_from_f16(logits[i * OUTPUTS + best]))
                best = k;
        right += best == digits[TRAIN + i].label;
    }
    return 100.0 * right / n;
}

int main(int argc, char **argv)
{
    mpt_cuda_state *state;              /* page-locked, so that copies to it are asynchronous */
    mpt_f16        *logits;
    cudaStream_t    stream;
    const char *path = argc > 1 ? argv[1] : "examples/data/digits.csv";
    digits_load(path);
    if (digits_count != MOST)
        die(path, "expected 1797 digits");
    mpt_ok(mpt_cuda_create(&gpu, 0));
    mpt_ok(mpt_cuda_gemm_open(gpu, NULL, 0));
    build_network();
    cuda_ok(cudaMallocHost((void **)&state, sizeof *state));
    cuda_ok(cudaMallocHost((void **)&logits, (MOST - TRAIN) * OUTPUTS * sizeof *logits));
    cuda_ok(cudaStreamCreate(&stream));
    const cudaGraphExec_t step = capture_step(stream);

    printf("digits, %d-%d-%d, FP16 with FP32 masters, products by cuBLAS; %d steps an epoch, one graph\n"
           "launch each, and the host waits once an epoch, to print this:\n\n", PIXELS, HIDDEN, DIGITS,
           TRAIN / BATCH);
    printf("epoch   steps taken   skipped   loss scale   gradient norm   test accuracy\n");
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        if (epoch == EPOCHS / 2 + 1)
            mpt_ok(mpt_cuda_lr_set(gpu, net.state, 0.02f, stream));
        for (int i = 0; i < TRAIN / BATCH; i++) cuda_ok(cudaGraphLaunch(step, stream));
        const double accuracy = look(state, logits, stream);
        if (epoch == 1 || epoch % 2 == 0)
            printf("%5d %13llu %9llu %12.0f %15.4f %14.1f%%\n", epoch, (unsigned long long)state->t,
                   (unsigned long long)state->scaler.skipped, (double)state->scaler.scale, state->step.norm,
                   accuracy);
    }
    if (state->misuse)
        die("the device counted calls in a wrong order", "a bug in this example");

    cuda_ok(cudaGraphExecDestroy(step));
    cuda_ok(cudaStreamDestroy(stream));
    cuda_ok(cudaFreeHost(state));
    cuda_ok(cudaFreeHost(logits));
    free_network();
    mpt_cuda_destroy(gpu);
    return 0;
}
