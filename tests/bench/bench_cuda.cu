/* bench_cuda.cu -- mpt_cuda.h on this GPU: what the card can do at best, measured first, and every kernel
 * beside it; the whole optimizer step; matrix products beside cublasLt alone; two networks in four
 * precisions.
 *
 *     cc -O2 -I. -c tests/impl.c
 *     nvcc -std=c++17 -O3 -arch=native -I. tests/bench/bench_cuda.cu tests/impl_cuda.cu impl.o -lcublasLt \
 *         -o bench_cuda
 *     ./bench_cuda [--small] [--torch FILE] OUTPUT_FOLDER
 *
 * Writes <gpu>-<date>.md and .json there. FILE is what torch_step.py printed. --small is for the CPU
 * emulation of tests/emu, where the program is only seen to run: times mean nothing there, and the files
 * say so. */
#include "mpt_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

static struct {
    mpt_cuda    *cuda;
    cudaStream_t stream;
    bool         small;
    std::string  name, date;
    double       copy_gb_s;         /* the ceiling of everything that only moves memory */
} gpu;

/* A program may exit; the library only reports. */
static void need(bool ok, const char *what, const char *why)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}
static void cuda_ok(cudaError_t e) { need(e == cudaSuccess, "CUDA", cudaGetErrorString(e)); }
static void mpt_ok(mpt_status s) { need(s == MPT_OK, "mpt", mpt_cuda_error_text(gpu.cuda)); }
static void blas_ok(cublasStatus_t s) { need(s == CUBLAS_STATUS_SUCCESS, "cublasLt", "refused"); }

// tables, as Markdown and as JSON -----------------------------------------------------------------
struct Table {
    std::string                           title, note;
    std::vector<std::string>              columns;
    std::vector<std::vector<std::string>> rows;
};
static std::vector<Table> tables;

static std::string number(double x, int digits)
{
    char text[64];
    snprintf(text, sizeof text, "%.*f", digits, x);
    return text;
}

static bool is_number(const std::string &s)
{
    char *end = NULL;
    (void)strtod(s.c_str(), &end);
    return !s.empty() && !*end && s.find_first_not_of("+-.0123456789e") == std::string::npos;
}

static void write_markdown(FILE *f)
{
    fprintf(f, "# mpt_cuda.h on %s, %s\n\nMedians. The copy ceiling is %.0f GB/s.\n", gpu.name.c_str(),
            gpu.date.c_str(), gpu.copy_gb_s);
    if (gpu.small)
        fprintf(f, "\n**A trial run at tiny sizes: these times mean nothing.**\n");
    for (const Table &t : tables) {
        fprintf(f, "\n## %s\n\n%s\n\n|", t.title.c_str(), t.note.c_str());
        for (const std::string &c : t.columns) fprintf(f, " %s |", c.c_str());
        fprintf(f, "\n|");
        for (size_t i = 0; i < t.columns.size(); i++) fprintf(f, "---|");
        for (const auto &row : t.rows) {
            fprintf(f, "\n|");
            for (const std::string &cell : row) fprintf(f, " %s |", cell.c_str());
        }
        fprintf(f, "\n");
    }
}

static void write_json(FILE *f)
{
    fprintf(f, "{\"gpu\": \"%s\", \"date\": \"%s\", \"trial\": %s, \"copy_gb_s\": %.3f, \"tables\": [",
            gpu.name.c_str(), gpu.date.c_str(), gpu.small ? "true" : "false", gpu.copy_gb_s);
    for (size_t i = 0; i < tables.size(); i++) {
        const Table &t = tables[i];
        fprintf(f, "%s\n  {\"title\": \"%s\", \"rows\": [", i ? "," : "", t.title.c_str());
        for (size_t r = 0; r < t.rows.size(); r++) {
            fprintf(f, "%s\n    {", r ? "," : "");
            for (size_t k = 0; k < t.columns.size(); k++) {
                const char *const quote = is_number(t.rows[r][k]) ? "" : "\"";
                fprintf(f, "%s\"%s\": %s%s%s", k ? ", " : "", t.columns[k].c_str(), quote,
                        t.rows[r][k].c_str(), quote);
            }
            fprintf(f, "}");
        }
        fprintf(f, "]}");
    }
    fprintf(f, "\n]}\n");
}

// time and memory ---------------------------------------------------------------------------------
/* Median time of what `body` queues, in milliseconds of the device. */
template <class F> static float once_ms(F body)
{
    cudaEvent_t from, to;
    float       ms;
    cuda_ok(cudaEventCreate(&from));
    cuda_ok(cudaEventCreate(&to));
    cuda_ok(cudaEventRecord(from, gpu.stream));
    body();
    cuda_ok(cudaEventRecord(to, gpu.stream));
    cuda_ok(cudaEventSynchronize(to));
    cuda_ok(cudaEventElapsedTime(&ms, from, to));
    cuda_ok(cudaEventDestroy(from));
    cuda_ok(cudaEventDestroy(to));
    return ms;
}
static double median(std::vector<float> times)
{
    std::sort(times.begin(), times.end());
    return std::max(1e-6, (double)times[times.size() / 2]);
}
/* Of two bodies that take turns: a card that slows down, for its power, then does so for both. */
template <class F, class G> static std::pair<double, double> medians_ms(F one, G other)
{
    std::vector<float> first, second;
    for (int i = gpu.small ? 0 : -3; i < (gpu.small ? 1 : 15); i++) {       /* the first three warm up */
        const float a = once_ms(one), b = once_ms(other);
        if (i >= 0) first.push_back(a), second.push_back(b);
    }
    return {median(first), median(second)};
}
template <class F> static double median_ms(F body) { return medians_ms(body, [] {}).first; }

/* What `body` queues, captured once. */
struct Captured {
    cudaGraphExec_t exec = NULL;
    template <class F> explicit Captured(F body)
    {
        cudaGraph_t graph;
        cuda_ok(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeGlobal));
        body();
        cuda_ok(cudaStreamEndCapture(gpu.stream, &graph));
        cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
        cuda_ok(cudaGraphDestroy(graph));
    }
    ~Captured() { (void)cudaGraphExecDestroy(exec); }
    Captured(const Captured &) = delete;
    Captured &operator=(const Captured &) = delete;
    void launch() const { cuda_ok(cudaGraphLaunch(exec, gpu.stream)); }
};

struct Memory {
    void *p = nullptr;
    explicit Memory(size_t bytes)
    {
        cuda_ok(cudaMalloc(&p, bytes ? bytes : 1));
        cuda_ok(cudaMemset(p, 0, bytes));
    }
    ~Memory() { (void)cudaFree(p); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    template <class T> T *as() const { return (T *)p; }
};

static size_t free_memory(void)
{
    size_t available = 0, total = 0;
    cuda_ok(cudaMemGetInfo(&available, &total));
    return available;
}

// kernels of the benchmark itself -----------------------------------------------------------------
static __device__ uint64_t bench_index(void) { return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ uint64_t bench_threads(void) { return (uint64_t)gridDim.x * blockDim.x; }

static __global__ void k_copy(uint4 *dst, const uint4 *src, uint64_t n)
{
    for (uint64_t i = bench_index(); i < n; i += bench_threads()) __stcs(dst + i, __ldcs(src + i));
}

/* One number as each type. */
struct as_f32 {
    typedef float type;
    static const mpt_format format = MPT_F32;
    static __device__ float get(float x) { return x; }
    static __device__ float put(float x) { return x; }
};
struct as_f16 {
    typedef mpt_f16 type;
    static const mpt_format format = MPT_F16;
    static __device__ float get(mpt_f16 x) { return mpt_f32_from_f16(x); }
    static __device__ mpt_f16 put(float x) { return mpt_f16_from_f32(x); }
};
struct as_bf16 {
    typedef mpt_bf16 type;
    static const mpt_format format = MPT_BF16;
    static __device__ float get(mpt_bf16 x) { return mpt_f32_from_bf16(x); }
    static __device__ mpt_bf16 put(float x) { return mpt_bf16_from_f32(x); }
};

/* Uniform in -range .. range; with sizes spread over many binades if `spread`, as gradients have them. */
template <class A>
static __global__ void k_fill(typename A::type *x, uint64_t n, uint64_t seed, float range, int spread)
{
    for (uint64_t i = bench_index(); i < n; i += bench_threads()) {
        const uint32_t r = mpt_philox(seed, 0, 0, i);
        const float    u = ((float)(r >> 8) / 8388608.0f - 1.0f) * range;
        x[i] = A::put(spread ? u * mpti_f32_make((127u - r % 16u) << 23) : u);
    }
}

/* The gradient of mean((y - target)^2), times the scale; the sum of squares of each block on the side. */
template <class A>
static __global__ void k_loss(typename A::type *dy, const typename A::type *y, const float *target,
                              uint64_t n, const mpt_cuda_state *state, double *sums)
{
    double sum = 0.0;
    for (uint64_t i = bench_index(); i < n; i += bench_threads()) {
        const float d = A::get(y[i]) - target[i];
        dy[i] = A::put(d * (2.0f / (float)n) * state->scaler.scale);
        sum += (double)d * (double)d;
    }
    sums[bench_index()] = sum;
}

/* dx where the relu that made x let it through */
template <class A>
static __global__ void k_relu_grad(typename A::type *dx, const typename A::type *x, uint64_t n)
{
    for (uint64_t i = bench_index(); i < n; i += bench_threads())
        if (!(A::get(x[i]) > 0.0f)) dx[i] = A::put(0.0f);
}

/* Launch by function, not by <<<>>>: a plain C++ compiler reads that too. */
template <class T> struct same { typedef T type; };
template <class... P> static void launch(void (*kernel)(P...), typename same<P>::type... args)
{
    void *pointers[] = {(void *)&args...};
    cuda_ok(cudaLaunchKernel(kernel, dim3(gpu.small ? 2 : 2048), dim3(256), pointers, 0, gpu.stream));
}

template <class A> static void fill(void *x, size_t n, uint64_t seed, float range, int spread)
{
    launch(k_fill<A>, (typename A::type *)x, (uint64_t)n, seed, range, spread);
}
static void fill_as(mpt_format f, void *x, size_t n, uint64_t seed, float range, int spread)
{
    if (f == MPT_F32) fill<as_f32>(x, n, seed, range, spread);
    else if (f == MPT_F16) fill<as_f16>(x, n, seed, range, spread);
    else fill<as_bf16>(x, n, seed, range, spread);
}

// copy ceiling, conversions -----------------------------------------------------------------------
static void copy_ceiling(void)
{
    const size_t bytes = gpu.small ? 4096 : std::min((size_t)2 << 30, free_memory() / 4) / 4096 * 4096;
    const Memory a(bytes), b(bytes);
    const double call = median_ms([&] {
        cuda_ok(cudaMemcpyAsync(b.p, a.p, bytes, cudaMemcpyDeviceToDevice, gpu.stream));
    });
    const double kernel = median_ms([&] {
        launch(k_copy, b.as<uint4>(), a.as<uint4>(), (uint64_t)bytes / 16);
    });
    gpu.copy_gb_s = 2.0 * (double)bytes / std::min(call, kernel) / 1e6;
    tables.push_back({"Copy ceiling", number((double)bytes / 1048576.0, 0) + " MiB, read and written once.",
                      {"copy", "ms", "GB/s"},
                      {{"cudaMemcpyAsync", number(call, 4), number(2e-6 * (double)bytes / call, 0)},
                       {"16 bytes a thread", number(kernel, 4), number(2e-6 * (double)bytes / kernel, 0)}}});
}

static void add_row(Table &t, const char *name, size_t n, double bytes, double goal, double ms)
{
    const double gb_s = (double)n * bytes / ms / 1e6, share = gb_s / gpu.copy_gb_s;
    t.rows.push_back({name, number(bytes, 0), number(ms, 4), number(gb_s, 0), number(share, 3),
                      number(goal, 2), gpu.small ? "-" : share >= goal ? "yes" : "no"});
}

static const std::vector<std::string> kernel_columns = {"kernel", "bytes per element", "ms", "GB/s",
                                                        "of the ceiling", "goal", "reached"};

static void conversions(void)
{
    const size_t   side = gpu.small ? 32 : 16384, n = side * side;
    const Memory   x(4 * n), h(2 * n), y(2 * n), flipped(n), scale(8);
    mpt_cuda *const c = gpu.cuda;
    const mpt_stream s = gpu.stream;
    float *const     amax = scale.as<float>() + 1;
    const float      one[] = {1.0f, 0.0f};
    mpt_opts         stochastic, saturate;
    Table            t = {"Conversions", number((double)n, 0) + " elements.", kernel_columns, {}};
    memset(&stochastic, 0, sizeof stochastic);
    saturate = stochastic;
    saturate.overflow = MPT_OVERFLOW_SATURATE;
    stochastic.rounding = MPT_RND_STOCHASTIC;
    cuda_ok(cudaMemcpy(scale.p, one, sizeof one, cudaMemcpyHostToDevice));
    fill<as_f32>(x.p, n, 1, 2.0f, 0);
    fill<as_f16>(h.p, n, 2, 2.0f, 0);
#define ROW(name, bytes, goal, call) add_row(t, name, n, bytes, goal, median_ms([&] { mpt_ok(call); }))
#define CONVERT(to, from, options) \
    mpt_cuda_convert_n(c, to, y.p, from, from == MPT_F32 ? x.p : h.p, n, options, NULL, s)
    ROW("f32 -> f16", 6, 0.95, CONVERT(MPT_F16, MPT_F32, NULL));
    ROW("f32 -> bf16", 6, 0.95, CONVERT(MPT_BF16, MPT_F32, NULL));
    ROW("f32 -> e4m3", 5, 0.92, CONVERT(MPT_E4M3, MPT_F32, NULL));
    ROW("f32 -> e5m2, saturating", 5, 0.92, CONVERT(MPT_E5M2, MPT_F32, &saturate));
    ROW("f16 -> bf16", 4, 0.92, CONVERT(MPT_BF16, MPT_F16, NULL));
    ROW("f32 -> e4m3, scale, amax", 5, 0.92, mpt_cuda_fp8_encode_n(c, MPT_E4M3, y.p, MPT_F32, x.p, n,
                                                                   scale.as<float>(), amax, s));
    ROW("f16 -> e4m3, scale, amax", 3, 0.90, mpt_cuda_fp8_encode_n(c, MPT_E4M3, y.p, MPT_F16, h.p, n,
                                                                   scale.as<float>(), amax, s));
    ROW("f16 -> e4m3, scale, amax, transpose", 4, 0.80,
        mpt_cuda_fp8_encode_transpose(c, MPT_E4M3, y.p, flipped.p, MPT_F16, h.p, side, side,
                                      scale.as<float>(), amax, s));
#define BLOCKS(block, from) \
    mpt_cuda_block_quantize_n(c, block, y.as<uint8_t>(), flipped.as<uint8_t>(), from, \
                              from == MPT_F32 ? x.p : h.p, n, side, NULL, s)
    ROW("f16 -> MXFP8, tiled scales", 3 + 1.0 / 32, 0.85, BLOCKS(MPT_MXFP8_E4M3, MPT_F16));
    ROW("f32 -> MXFP4, tiled scales", 4.5 + 1.0 / 32, 0.85, BLOCKS(MPT_MXFP4, MPT_F32));
    ROW("f16 -> NVFP4, tiled scales", 2.5 + 1.0 / 16, 0.45, BLOCKS(MPT_NVFP4, MPT_F16));
#undef BLOCKS
    ROW("f32 -> f16, stochastic", 6, 0.85, CONVERT(MPT_F16, MPT_F32, &stochastic));
    ROW("f32 -> bf16, stochastic", 6, 0.85, CONVERT(MPT_BF16, MPT_F32, &stochastic));
    ROW("f32 -> e5m2, stochastic", 5, 0.80, CONVERT(MPT_E5M2, MPT_F32, &stochastic));
#undef CONVERT
    /* 16-bit to FP32 last: it overwrites the source of the others */
    ROW("f16 -> f32", 6, 0.95, mpt_cuda_convert_n(c, MPT_F32, x.p, MPT_F16, h.p, n, NULL, NULL, s));
    tables.push_back(t);
}

// training steps ----------------------------------------------------------------------------------
/* Tensors of these sizes in one piece of memory per array, with all that AdamW wants. */
struct Training {
    std::vector<mpt_tensor> tensors;
    size_t                  total = 0;
    std::vector<size_t>     at;             /* behind total, which its making counts */
    Memory                  master, param, grad, m, v;
    mpt_cuda_list          *list = nullptr;
    mpt_cuda_state         *state = nullptr;

    /* where each begins, 256 bytes apart for every type */
    static std::vector<size_t> places(const std::vector<size_t> &sizes, size_t &total)
    {
        std::vector<size_t> p;
        for (size_t n : sizes) {
            p.push_back(total);
            total += (n + 127) / 128 * 128;
        }
        return p;
    }
    Training(const std::vector<size_t> &sizes, mpt_format param_format, mpt_format grad_format)
        : at(places(sizes, total)), master(4 * total), param(2 * total),
          grad((grad_format == MPT_F32 ? 4 : 2) * total), m(4 * total), v(4 * total)
    {
        mpt_scaler scaler;
        const size_t grad_bytes = grad_format == MPT_F32 ? 4 : 2;
        for (size_t i = 0; i < sizes.size(); i++) {
            mpt_tensor t;
            memset(&t, 0, sizeof t);
            t.n = sizes[i];
            t.master = master.as<float>() + at[i];
            t.param = param.as<char>() + 2 * at[i];
            t.grad = grad.as<char>() + grad_bytes * at[i];
            t.m = m.as<float>() + at[i];
            t.v = v.as<float>() + at[i];
            t.param_format = param_format;
            t.grad_format = grad_format;
            tensors.push_back(t);
        }
        fill<as_f32>(master.p, total, 3, 0.1f, 0);
        gradients();
        need(mpt_scaler_init(&scaler, NULL) == MPT_OK, "mpt_scaler_init", "refused");
        mpt_ok(mpt_cuda_list_create(gpu.cuda, &list, tensors.data(), tensors.size()));
        mpt_ok(mpt_cuda_state_create(gpu.cuda, &state, &scaler, 1e-3f));
        mpt_ok(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, gpu.stream));
    }
    ~Training()
    {
        mpt_cuda_list_destroy(list);
        mpt_cuda_state_destroy(state);
    }
    void gradients() const { fill_as(tensors[0].grad_format, grad.p, total, 4, 1.0f, 1); }
    void check() const { mpt_ok(mpt_cuda_check(gpu.cuda, list, state, gpu.stream)); }
    void update() const { mpt_ok(mpt_cuda_scaler_update(gpu.cuda, state, gpu.stream)); }
    void whole_step() const
    {
        const mpt_adamw o = mpt_adamw_defaults();
        check();
        mpt_ok(mpt_cuda_clip(gpu.cuda, state, 1.0f, gpu.stream));
        mpt_ok(mpt_cuda_adamw_step(gpu.cuda, list, state, &o, gpu.stream));
        update();
    }
    /* of a part of the step alone, when the rest is around it: the difference of two medians */
    template <class F> double part_ms(F part) const
    {
        const double with = median_ms([&] { check(); part(); update(); });
        const double without = median_ms([&] { check(); update(); });
        return std::max(1e-6, with - without);
    }
};

/* So many elements that `bytes` of each fit in 70 % of what is free. */
static size_t elements_that_fit(size_t wanted, size_t bytes)
{
    const size_t fit = free_memory() / 10 * 7 / bytes / 4096 * 4096;
    return gpu.small ? 3000 : std::min(wanted, fit);
}

static void step_kernels(void)
{
    const mpt_format formats[] = {MPT_F16, MPT_F32};
    const size_t     n = elements_that_fit((size_t)1 << 28, 24);
    Table            t = {"Kernels of the step", number((double)n, 0) + " elements in one tensor. SGD and "
                          "AdamW: what they add to check and update.", kernel_columns, {}};
    mpt_cuda *const  c = gpu.cuda;
    for (mpt_format f : formats) {
        const Training   run({n}, MPT_F16, f);
        const double     g = f == MPT_F16 ? 2 : 4;
        const char      *const of = f == MPT_F16 ? " f16" : " f32";
        mpt_cuda_ranges *ranges;
        const auto       named = [&](const char *what) { return std::string(what) + of; };
        add_row(t, named("check and norm,").c_str(), n, g, 0.90, median_ms([&] { run.check(); run.update();
                                                                                }));
        add_row(t, named("unscale in place,").c_str(), n, 2 * g, 0.92, median_ms([&] {
            mpt_ok(mpt_cuda_unscale(c, run.list, run.state, gpu.stream));
            run.update();
        }));
        run.gradients();        /* unscaled so often they are 0, of which roots and quotients take longer */
        mpt_ok(mpt_cuda_ranges_create(c, &ranges, run.list, MPT_F16));
        add_row(t, named("range report,").c_str(), n, g, 0.70, median_ms([&] {
            mpt_ok(mpt_cuda_ranges_add(c, ranges, MPT_CUDA_GRAD, 1, gpu.stream));
        }));
        mpt_cuda_ranges_destroy(ranges);
        for (float momentum : {0.0f, 0.9f}) {
            const mpt_sgd o = {0.0f, momentum, 0.0f, 0u, 0.0f, 0u, 0u};
            add_row(t, named(momentum > 0.0f ? "SGD with momentum, gradient" : "SGD, gradient").c_str(), n,
                    (momentum > 0.0f ? 18 : 10) + g, 0.90, run.part_ms([&] {
                        mpt_ok(mpt_cuda_sgd_step(c, run.list, run.state, &o, gpu.stream));
                    }));
        }
        const mpt_adamw o = mpt_adamw_defaults();
        add_row(t, named("AdamW, gradient").c_str(), n, 26 + g, 0.90, run.part_ms([&] {
            mpt_ok(mpt_cuda_adamw_step(c, run.list, run.state, &o, gpu.stream));
        }));
    }
    tables.push_back(t);
}

/* What torch_step.py printed: a name and milliseconds a line; the first line is a comment. */
static std::map<std::string, double> read_torch(const char *path, std::string &version)
{
    std::map<std::string, double> times;
    char                          line[256], name[64];
    double                        ms;
    FILE *const                   f = path ? fopen(path, "r") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '#') version = line + 1;
        else if (sscanf(line, "%63s %lf", name, &ms) == 2 && ms > 0.0) times[name] = ms;
    }
    if (f) fclose(f);
    return times;
}

static void whole_steps(const char *torch_file)
{
    std::string         version;
    const auto          torch = read_torch(torch_file, version);
    const size_t        n = elements_that_fit(1000000000, 20);
    std::vector<size_t> many;
    for (size_t i = 0; i < (gpu.small ? 12u : 1000u); i++) many.push_back(gpu.small ? 50 * i : 1000 + 97 * i);
    const std::string beside = torch.empty() ? "PyTorch with CUDA could not be imported here: nothing to "
                                               "compare with." : "Beside it " + version + ".";
    Table t = {"The whole optimizer step",
               "Check, clip, AdamW with masters and 16-bit copy, scaler update; in PyTorch unscale_, "
               "clip_grad_norm_, fused AdamW, update, and a copy to 16 bits. " + beside +
               " Goals: 1.5 times PyTorch's speed on one flat tensor of 10^9, 3 times on 1000 small ones.",
               {"tensors", "elements", "gradients", "run as", "ms", "GB/s", "PyTorch ms", "times PyTorch"},
               {}};
    for (int flat = 1; flat >= 0; flat--)
        for (mpt_format f : {MPT_BF16, MPT_F32}) {
            const Training run(flat ? std::vector<size_t>{n} : many, MPT_BF16, f);
            const Captured graph([&] { run.whole_step(); });
            size_t         elements = 0;
            for (const mpt_tensor &x : run.tensors) elements += x.n;
            for (int captured = 0; captured < 2; captured++) {
                const double ms = median_ms([&] { if (captured) graph.launch(); else run.whole_step(); });
                const double bytes = (f == MPT_F32 ? 34.0 : 30.0) * (double)elements;
                const auto   them = torch.find(std::string(flat ? "flat_" : "small_") +
                                               (captured ? "graph" : "eager"));
                const bool   known = them != torch.end() && (!flat || n == 1000000000);
                t.rows.push_back({number((double)run.tensors.size(), 0), number((double)elements, 0),
                                  f == MPT_F32 ? "f32" : "bf16", captured ? "graph" : "calls", number(ms, 4),
                                  number(bytes / ms / 1e6, 0), known ? number(them->second, 4) : "-",
                                  known ? number(them->second / ms, 2) : "-"});
            }
        }
    tables.push_back(t);
}

// products ----------------------------------------------------------------------------------------
struct Kind { const char *name; mpt_format operands, result; cudaDataType_t type; size_t bytes; };
static const Kind kinds[] = {{"f32", MPT_F32, MPT_F32, CUDA_R_32F, 4},
                             {"tf32", MPT_TF32, MPT_F32, CUDA_R_32F, 4},
                             {"f16", MPT_F16, MPT_F16, CUDA_R_16F, 2},
                             {"bf16", MPT_BF16, MPT_BF16, CUDA_R_16BF, 2},
                             {"e4m3", MPT_E4M3, MPT_BF16, CUDA_R_8F_E4M3, 1}};

/* Beside `ours`: cublasLt with a plan made beforehand, as whoever writes it by hand calls it: column-major, a
 * transposed. */
template <class F>
static std::pair<double, double> beside_raw_ms(F ours, const Kind &k, int64_t m, int64_t n, int64_t depth,
                                               const void *a, const void *b, void *d)
{
    const cublasOperation_t         op_a = CUBLAS_OP_T;
    const size_t                    bytes = (size_t)32 << 20;
    const Memory                    workspace(gpu.small ? 4096 : bytes);
    const uint64_t                  room = gpu.small ? 4096 : bytes;
    const float                     one = 1.0f, zero = 0.0f;
    const cudaDataType_t            result = k.result == MPT_F16    ? CUDA_R_16F
                                             : k.result == MPT_BF16 ? CUDA_R_16BF
                                                                    : CUDA_R_32F;
    cublasLtHandle_t                handle;
    cublasLtMatmulDesc_t            o;
    cublasLtMatrixLayout_t          la, lb, ld;
    cublasLtMatmulPreference_t      preference;
    cublasLtMatmulHeuristicResult_t plan;
    int                             found = 0;
    blas_ok(cublasLtCreate(&handle));
    blas_ok(cublasLtMatmulDescCreate(&o, k.operands == MPT_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    blas_ok(cublasLtMatmulDescSetAttribute(o, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    blas_ok(cublasLtMatrixLayoutCreate(&la, k.type, (uint64_t)depth, (uint64_t)m, depth));
    blas_ok(cublasLtMatrixLayoutCreate(&lb, k.type, (uint64_t)depth, (uint64_t)n, depth));
    blas_ok(cublasLtMatrixLayoutCreate(&ld, result, (uint64_t)m, (uint64_t)n, m));
    blas_ok(cublasLtMatmulPreferenceCreate(&preference));
    blas_ok(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                                 sizeof room));
    blas_ok(cublasLtMatmulAlgoGetHeuristic(handle, o, la, lb, ld, ld, preference, 1, &plan, &found));
    need(found == 1, "cublasLt", "knows no way");
    const auto ms = medians_ms(ours, [&] {
        blas_ok(cublasLtMatmul(handle, o, &one, a, la, b, lb, &zero, d, ld, d, ld, &plan.algo, workspace.p,
                               room, gpu.stream));
    });
    blas_ok(cublasLtMatmulPreferenceDestroy(preference));
    for (cublasLtMatrixLayout_t l : {la, lb, ld}) blas_ok(cublasLtMatrixLayoutDestroy(l));
    blas_ok(cublasLtMatmulDescDestroy(o));
    blas_ok(cublasLtDestroy(handle));
    return ms;
}

static void products(int cc)
{
    static const int64_t big[][3] = {{4096, 4096, 4096},
                                     {8192, 8192, 8192},
                                     {16384, 4096, 1024},
                                     {512, 4096, 11008}};
    static const int64_t tiny[][3] = {{16, 16, 16}, {32, 16, 48}};
    const int            count_of_shapes = gpu.small ? 2 : 4;
    Table t = {"Matrix products", "Column-major, the first operand transposed, FP32 accumulation; cublasLt "
               "alone with a plan made beforehand. Goal: 0.99 of its speed.",
               {"type", "m", "n", "k", "ms", "TFLOP/s", "cublasLt TFLOP/s", "of cublasLt", "times f32"}, {}};
    for (int i = 0; i < count_of_shapes; i++) {
        const int64_t *const shape = gpu.small ? tiny[i] : big[i];
        const int64_t m = shape[0], n = shape[1], k = shape[2];
        const Memory  a((size_t)(m * k) * 4), b((size_t)(n * k) * 4), d((size_t)(m * n) * 4);
        double        plain = 0.0;
        for (const Kind &kind : kinds) {
            mpt_gemm_args g;
            memset(&g, 0, sizeof g);
            g.m = m, g.n = n, g.k = k;
            g.lda = k, g.ldb = k, g.ldd = m;
            g.a = a.p, g.b = b.p, g.d = d.p;
            g.a_format = g.b_format = kind.operands;
            g.d_format = kind.result;
            g.trans_a = 1;
            g.alpha = 1.0f;
            if (mpt_gemm_advice(cc, &g).refused)
                continue;
            if (kind.bytes == 1) {
                const Memory wide(2 * (size_t)std::max(m, n) * (size_t)k);
                for (const Memory *x : {&a, &b}) {
                    const size_t count = (size_t)((x == &a ? m : n) * k);
                    fill<as_f16>(wide.p, count, 7, 1.0f, 0);
                    mpt_ok(mpt_cuda_convert_n(gpu.cuda, MPT_E4M3, x->p, MPT_F16, wide.p, count, NULL, NULL,
                                              gpu.stream));
                }
                cuda_ok(cudaStreamSynchronize(gpu.stream));
            } else {
                const mpt_format f = kind.operands == MPT_TF32 ? MPT_F32 : kind.operands;
                fill_as(f, a.p, (size_t)(m * k), 5, 1.0f, 0);
                fill_as(f, b.p, (size_t)(n * k), 6, 1.0f, 0);
            }
            const auto ours = [&] { mpt_ok(mpt_cuda_gemm(gpu.cuda, &g, gpu.stream)); };
            const auto both = beside_raw_ms(ours, kind, m, n, k, a.p, b.p, d.p);
            const double ms = both.first, raw = both.second;
            const double flop = 2.0 * (double)m * (double)n * (double)k;
            if (kind.operands == MPT_F32) plain = ms;
            t.rows.push_back({kind.name, number((double)m, 0), number((double)n, 0), number((double)k, 0),
                              number(ms, 4), number(flop / ms / 1e9, 1), number(flop / raw / 1e9, 1),
                              number(raw / ms, 3), plain > 0.0 ? number(plain / ms, 2) : "-"});
        }
    }
    tables.push_back(t);
}

// networks ----------------------------------------------------------------------------------------
/* Layers of these widths, relu between them, squared error; SGD with momentum. A is what activations,
 * gradients and the weights' copies are; FP32 has no copies. */
template <class A> struct Network {
    typedef typename A::type T;
    std::vector<int64_t>    width;
    int64_t                 batch;
    mpt_format              product;            /* MPT_F32 or MPT_TF32 where A is FP32 */
    std::vector<mpt_tensor> tensors;
    std::vector<Memory *>   memory;
    std::vector<T *>        y, dy;              /* [layer][batch][width] */
    float                  *target;
    double                 *sums;
    mpt_cuda_list          *list = nullptr;
    mpt_cuda_state         *state = nullptr;

    template <class U> U *array(int64_t n)
    {
        memory.push_back(new Memory((size_t)n * sizeof(U)));
        return memory.back()->template as<U>();
    }
    Network(const std::vector<int64_t> &width_, int64_t batch_, mpt_format product_, bool dynamic, float lr)
        : width(width_), batch(batch_), product(product_)
    {
        mpt_scaler_config config = mpt_scaler_defaults(dynamic ? MPT_SCALER_MPT : MPT_SCALER_STATIC);
        mpt_scaler        scaler;
        if (!dynamic) config.init_scale = 1.0f;
        for (size_t l = 0; l < width.size(); l++) {
            y.push_back(array<T>(batch * width[l]));
            dy.push_back(array<T>(batch * width[l]));
        }
        for (size_t l = 0; l + 1 < width.size(); l++) {
            const size_t n = (size_t)(width[l] * width[l + 1]);
            mpt_tensor   t;
            memset(&t, 0, sizeof t);
            t.n = n;
            t.master = array<float>((int64_t)n);
            t.m = array<float>((int64_t)n);
            t.grad = array<T>((int64_t)n);
            t.param_format = t.grad_format = A::format;
            fill<as_f32>(t.master, n, 10 + l, 1.7f / sqrtf((float)width[l]), 0);
            if (A::format != MPT_F32) {
                t.param = array<T>((int64_t)n);
                fill<A>(t.param, n, 10 + l, 1.7f / sqrtf((float)width[l]), 0);     /* the same, rounded */
            }
            tensors.push_back(t);
        }
        target = array<float>(batch * width.back());
        sums = array<double>(2048 * 256);
        need(mpt_scaler_init(&scaler, &config) == MPT_OK, "mpt_scaler_init", "refused");
        mpt_ok(mpt_cuda_list_create(gpu.cuda, &list, tensors.data(), tensors.size()));
        mpt_ok(mpt_cuda_state_create(gpu.cuda, &state, &scaler, lr));
    }
    ~Network()
    {
        mpt_cuda_list_destroy(list);
        mpt_cuda_state_destroy(state);
        for (Memory *m : memory) delete m;
    }
    Network(const Network &) = delete;
    Network &operator=(const Network &) = delete;

    const T *weights(size_t l) const { return tensors[l].param ? (const T *)tensors[l].param :
                                      (const T *)tensors[l].master; }

    /* row-major d[m][n] = op(a) op(b) */
    void multiply(T *d, int64_t m, int64_t n, int64_t k, const T *a, bool trans_a, const T *b, bool trans_b,
                  bool relu)
    {
        mpt_gemm_args g;
        memset(&g, 0, sizeof g);
        g.m = m, g.n = n, g.k = k;
        g.lda = trans_a ? m : k, g.ldb = trans_b ? k : n, g.ldd = n;
        g.a = a, g.b = b, g.d = d;
        g.a_format = g.b_format = product;
        g.d_format = A::format;
        g.row_major = 1;
        g.trans_a = trans_a, g.trans_b = trans_b;
        g.epilogue = relu ? MPT_EPILOGUE_RELU : MPT_EPILOGUE_NONE;
        g.alpha = 1.0f;
        mpt_ok(mpt_cuda_gemm(gpu.cuda, &g, gpu.stream));
    }

    void step()
    {
        const size_t  last = width.size() - 1;
        const mpt_sgd sgd = {0.0f, 0.9f, 0.0f, 0u, 0.0f, 0u, 0u};
        for (size_t l = 0; l < last; l++)
            multiply(y[l + 1], batch, width[l + 1], width[l], y[l], false, weights(l), true, l + 1 < last);
        mpt_ok(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, gpu.stream));
        launch(k_loss<A>, dy[last], y[last], target, (uint64_t)(batch * width[last]), state, sums);
        for (size_t l = last; l-- > 0;) {
            T *const dw = (T *)tensors[l].grad;
            multiply(dw, width[l + 1], width[l], batch, dy[l + 1], true, y[l], false, false);
            if (!l)
                break;
            multiply(dy[l], batch, width[l], width[l + 1], dy[l + 1], false, weights(l), false, false);
            launch(k_relu_grad<A>, dy[l], y[l], (uint64_t)(batch * width[l]));
        }
        mpt_ok(mpt_cuda_check(gpu.cuda, list, state, gpu.stream));
        mpt_ok(mpt_cuda_sgd_step(gpu.cuda, list, state, &sgd, gpu.stream));
        mpt_ok(mpt_cuda_scaler_update(gpu.cuda, state, gpu.stream));
    }

    double loss()
    {
        std::vector<double> host(2048 * 256);
        double              sum = 0.0;
        cuda_ok(cudaStreamSynchronize(gpu.stream));
        cuda_ok(cudaMemcpy(host.data(), sums, host.size() * sizeof(double), cudaMemcpyDeviceToHost));
        for (double x : host) sum += x;
        return sum / (double)(batch * width.back());
    }
};

/* Inputs and targets in FP32; NULL: random ones. */
template <class A>
static void train(Table &t, const char *network, const char *name, const std::vector<int64_t> &width,
                  int64_t batch, mpt_format product, bool dynamic, const float *x, const float *target,
                  float lr, int steps)
{
    const size_t   before = free_memory();
    Network<A>     net(width, batch, product, dynamic, lr);
    const size_t   used = before - std::min(before, free_memory());
    const size_t   inputs = (size_t)(batch * width[0]), outputs = (size_t)(batch * width.back());
    const Captured graph([&] { net.step(); });
    mpt_cuda_state state;
    std::vector<typename A::type> first(inputs);
    if (x) {
        need(mpt_convert_n(A::format, first.data(), MPT_F32, x, inputs, NULL, NULL) == MPT_OK,
             "mpt_convert_n", "refused");
        cuda_ok(cudaMemcpy(net.y[0], first.data(), inputs * sizeof first[0], cudaMemcpyHostToDevice));
        cuda_ok(cudaMemcpy(net.target, target, outputs * sizeof *target, cudaMemcpyHostToDevice));
    } else {
        fill<A>(net.y[0], inputs, 20, 1.0f, 0);
        fill<as_f32>(net.target, outputs, 21, 1.0f, 0);
    }
    graph.launch();
    const double begin = net.loss();
    const double ms = median_ms([&] { for (int i = 0; i < steps; i++) graph.launch(); }) / steps;
    const double end = net.loss();
    cuda_ok(cudaMemcpy(&state, net.state, sizeof state, cudaMemcpyDeviceToHost));
    t.rows.push_back({network, name, number(ms, 4), number((double)used / 1048576.0, 1), number(begin, 6),
                      number(end, 6), number((double)state.t, 0),
                      number((double)state.scaler.skipped, 0)});
}

static void in_four_precisions(Table &t, const char *network, const std::vector<int64_t> &width,
                               int64_t batch, int cc, const float *x, const float *target, float lr,
                               int steps)
{
    const unsigned cores = mpt_gpu_from_cc(cc).tensor_cores;
    train<as_f32>(t, network, "FP32", width, batch, MPT_F32, false, x, target, lr, steps);
    if (cores & MPT_TC_TF32)
        train<as_f32>(t, network, "TF32", width, batch, MPT_TF32, false, x, target, lr, steps);
    train<as_f16>(t, network, "FP16 + scaler", width, batch, MPT_F16, true, x, target, lr, steps);
    if (cores & MPT_TC_BF16)
        train<as_bf16>(t, network, "bf16", width, batch, MPT_BF16, false, x, target, lr, steps);
}

static void networks(int cc)
{
    static float pixels[1024][64], labels[1024][16];    /* ten digits, and six outputs that stay 0 */
    const int    batch = gpu.small ? 32 : 1024;
    FILE *const  f = fopen("examples/data/digits.csv", "r");
    Table t = {"Networks", "One graph launch a step. Memory: what the network took. The same start and steps "
               "for each precision: the losses should agree.",
               {"network", "precision", "ms per step", "MiB", "first loss", "last loss", "steps taken",
                "skipped"}, {}};
    need(f != NULL, "examples/data/digits.csv", "not found: run this from the top of the repository");
    for (int i = 0; i < batch; i++)
        for (int k = 0, value; k <= 64; k++) {
            need(fscanf(f, k ? ",%d" : "%d", &value) == 1, "examples/data/digits.csv", "is damaged");
            if (k < 64) pixels[i][k] = (float)value / 16.0f;
            else labels[i][value & 15] = 1.0f;
        }
    fclose(f);
    in_four_precisions(t, "digits 64-128-16", {64, gpu.small ? 16 : 128, 16}, batch, cc, pixels[0],
                       labels[0], 0.5f, gpu.small ? 3 : 20);
    if (gpu.small)
        in_four_precisions(t, "synthetic 16-16-16", {16, 16, 16}, 16, cc, NULL, NULL, 0.1f, 2);
    else
        in_four_precisions(t, "synthetic 3 x 4096, batch 4096", {4096, 4096, 4096, 4096}, 4096, cc, NULL,
                           NULL, 4.0f, 10);
    tables.push_back(t);
}

// -------------------------------------------------------------------------------------------------
static void write_files(const std::string &folder)
{
    std::string stem = gpu.name;
    for (char &c : stem)
        c = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a')
            : (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
    for (const char *end : {".md", ".json"}) {
        const std::string path = folder + "/" + stem + "-" + gpu.date + end;
        FILE *const       f = fopen(path.c_str(), "w");
        need(f != NULL, path.c_str(), "cannot write it");
        if (end[1] == 'm') write_markdown(f);
        else write_json(f);
        need(fclose(f) == 0, path.c_str(), "cannot write it");
    }
}

/* The last table, and the files after each, since a run may be cut off. */
static void show(const std::string &folder)
{
    write_files(folder);
    for (const auto &row : tables.back().rows) {
        for (const std::string &cell : row) printf("%s  ", cell.c_str());
        printf("\n");
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char    *folder = NULL, *torch_file = NULL;
    cudaDeviceProp properties;
    mpt_gpu        kind;
    char           date[32];
    const time_t   now = time(NULL);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--small")) gpu.small = true;
        else if (!strcmp(argv[i], "--torch") && i + 1 < argc) torch_file = argv[++i];
        else folder = argv[i];
    }
    need(folder != NULL, "usage", "bench_cuda [--small] [--torch FILE] OUTPUT_FOLDER");
    mpt_ok(mpt_cuda_create(&gpu.cuda, 0));
    mpt_ok(mpt_cuda_gpu(gpu.cuda, &kind));
    mpt_ok(mpt_cuda_gemm_open(gpu.cuda, NULL, 0));
    cuda_ok(cudaGetDeviceProperties(&properties, 0));
    cuda_ok(cudaStreamCreate(&gpu.stream));
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    gpu.name = properties.name;
    gpu.date = date;
    copy_ceiling();
    show(folder);           /* what is worth most first */
    step_kernels();
    show(folder);
    whole_steps(torch_file);
    show(folder);
    conversions();
    show(folder);
    products(kind.cc);
    show(folder);
    networks(kind.cc);
    show(folder);
    cuda_ok(cudaStreamDestroy(gpu.stream));
    mpt_cuda_destroy(gpu.cuda);
    return 0;
}
