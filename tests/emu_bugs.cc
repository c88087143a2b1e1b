/* emu_bugs.cc -- planted kernel bugs: does the emulation in tests/emu detect them?
 *
 *     c++ -x c++ -std=c++17 -O1 -g -Itests/emu tests/emu_bugs.cc -o emu_bugs
 *     ./emu_bugs NAME          run one; exit 0: clean
 *     ./emu_bugs --list        lines "name|variant|text": the build that must catch it, and what it prints
 *
 * Every bug but the deadlock has a healthy sibling of the same shape, and some healthy cases test the
 * emulation's own services. Their lines read "name|clean|". tests/run_emu_bugs.sh runs all.
 */
#include <cuda_runtime.h>

#define FULL 0xffffffffu

static int wrong;

static void check(bool good, const char *what)
{
    if (good) return;
    wrong++;
    fprintf(stderr, "emu_bugs: wrong result: %s\n", what);
}
#define CHECK(condition) check((condition), #condition)

/* The launch template as the library has it: the same text for nvcc and for the emulation. */
template <class T> struct same { typedef T type; };
template <class... P>
static void launch_on(cudaStream_t s, void (*kernel)(P...), unsigned grid, unsigned block,
                      typename same<P>::type... a)
{
    void *args[] = {(void *)&a...};
    CHECK(cudaLaunchKernel(kernel, dim3(grid), dim3(block), args, 0, s) == cudaSuccess);
}
template <class... P>
static void launch(void (*kernel)(P...), unsigned grid, unsigned block, typename same<P>::type... a)
{
    launch_on(nullptr, kernel, grid, block, a...);
}

/* Device memory of n zeros; at() copies one element back. */
template <class T> struct Array {
    T *p = nullptr;
    size_t n;
    explicit Array(size_t n_) : n(n_)
    {
        CHECK(cudaMalloc(&p, n * sizeof(T)) == cudaSuccess);
        CHECK(cudaMemset(p, 0, n * sizeof(T)) == cudaSuccess);
    }
    ~Array() { CHECK(cudaFree(p) == cudaSuccess); }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    T at(size_t i) const
    {
        T v;
        CHECK(cudaMemcpy(&v, p + i, sizeof v, cudaMemcpyDeviceToHost) == cudaSuccess);
        return v;
    }
};

/* ---- out of bounds, unwritten, misaligned ---- */

static __global__ void k_write_to(float *p, unsigned last)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= last) p[i] = 1.f;
}

static void write_to(unsigned last)
{
    Array<float> a(64);
    launch(k_write_to, 2, 64, a.p, last);
    CHECK(a.at(63) == 1.f);
}
static void oob_global() { write_to(64); }
static void oob_global_ok() { write_to(63); }

static __global__ void k_read_at(float *p, unsigned i) { p[0] = p[i]; }

static void oob_read()
{
    Array<float> a(64);
    launch(k_read_at, 1, 1, a.p, 64);
}
static void oob_read_ok()
{
    Array<float> a(64);
    launch(k_read_at, 1, 1, a.p, 63);
    CHECK(a.at(0) == 0.f);
}

static __global__ void k_oob_shared(float *p, unsigned shift)
{
    MPT_SHARED(float, s, 32);
    float *q = s;                    /* through a pointer: UBSan cannot see it, ASan must */
    q[threadIdx.x + shift] = 1.f;
    __syncthreads();
    p[threadIdx.x] = q[threadIdx.x + shift];
}
static void oob_shared()
{
    Array<float> a(32);
    launch(k_oob_shared, 1, 32, a.p, 1);
}
static void oob_shared_ok()
{
    Array<float> a(32);
    launch(k_oob_shared, 1, 32, a.p, 0);
    CHECK(a.at(31) == 1.f);
}

static __global__ void k_unwritten(float *p, unsigned from)
{
    MPT_SHARED(float, s, 64);
    if (threadIdx.x >= from) s[threadIdx.x] = 1.f;
    __syncthreads();
    p[threadIdx.x] = s[threadIdx.x];
}
static void run_unwritten(unsigned from)
{
    Array<float> a(64);
    launch(k_unwritten, 1, 64, a.p, from);
    float x = a.at(0);
    CHECK(!(x != x) && "poison was read");
}
static void unwritten_shared() { run_unwritten(1); }
static void unwritten_shared_ok() { run_unwritten(0); }

static void run_unwritten_global(size_t n)
{
    float *p, x = 0;
    CHECK(cudaMalloc(&p, 4 * n) == cudaSuccess);
    launch(k_write_to, 1, 64, p, 3u);
    CHECK(cudaMemcpy(&x, p + n - 1, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(!(x != x) && "poison was read");
    CHECK(cudaFree(p) == cudaSuccess);
}
static void unwritten_global() { run_unwritten_global(5); }
static void unwritten_global_ok() { run_unwritten_global(4); }

static __global__ void k_vector(float *p, unsigned shift)
{
    uint4 v = __ldcs((const uint4 *)(const void *)(p + shift));
    __stcs((uint4 *)(void *)(p + 8), v);
}
static void run_vector(unsigned shift)
{
    Array<float> a(12);
    launch(k_vector, 1, 1, a.p, shift);
    CHECK(a.at(8) == 0.f);
}
static void misaligned_vector() { run_vector(1); }
static void misaligned_vector_ok() { run_vector(4); }

static __global__ void k_dereference(uint4 *p, unsigned shift)
{
    const uint4 *q = (const uint4 *)(const void *)((const char *)p + shift);
    p[2].x = q->x;
}
static void run_dereference(unsigned shift)
{
    Array<uint4> a(3);
    launch(k_dereference, 1, 1, a.p, shift);
    CHECK(a.at(2).x == 0);
}
static void misaligned_dereference() { run_dereference(4); }
static void misaligned_dereference_ok() { run_dereference(16); }

/* ---- races ---- */

static __global__ void k_reverse(float *p, int with_barrier)
{
    MPT_SHARED(float, s, 64);
    s[threadIdx.x] = (float)threadIdx.x;
    if (with_barrier) __syncthreads();
    p[threadIdx.x] = s[63 - threadIdx.x];
}
static void run_reverse(int with_barrier)
{
    Array<float> a(64);
    launch(k_reverse, 1, 64, a.p, with_barrier);
    for (size_t i = 0; i < 64; i++) CHECK(a.at(i) == (float)(63 - i));
}
static void missing_barrier() { run_reverse(0); }
static void missing_barrier_ok() { run_reverse(1); }

/* The race comes after a barrier: who leaves that late must not be ordered after what others do next. */
static __global__ void k_second_phase(float *p, int with_barrier)
{
    MPT_SHARED(float, s, 64);
    s[threadIdx.x] = 0.f;
    __syncthreads();
    s[threadIdx.x] = (float)threadIdx.x;
    if (with_barrier) __syncthreads();
    p[threadIdx.x] = s[(threadIdx.x + 63) % 64];
    __syncthreads();
}
static void run_second_phase(int with_barrier)
{
    Array<float> a(64);
    launch(k_second_phase, 1, 64, a.p, with_barrier);
}
static void second_phase() { run_second_phase(0); }
static void second_phase_ok() { run_second_phase(1); }

static __global__ void k_flag(unsigned *f, int atomically)
{
    if (atomically) atomicOr(f, 1u);
    else *f = 1;
}
static void run_flag(int atomically)
{
    Array<unsigned> a(1);
    launch(k_flag, 2, 64, a.p, atomically);
    CHECK(a.at(0) == 1);
}
static void racy_flag() { run_flag(0); }
static void racy_flag_ok() { run_flag(1); }

static __global__ void k_add(float *p, int atomically)
{
    MPT_SHARED(float, s, 64);
    s[threadIdx.x] = 1.f;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (atomically) atomicAdd(p, s[1]);
        else p[0] += s[1];
    }
    __syncthreads();
}
static void run_add(int atomically)
{
    Array<float> a(1);
    launch(k_add, 3, 64, a.p, atomically);
    CHECK(a.at(0) == 3.f);
}
static void racy_add() { run_add(0); }
static void racy_add_ok() { run_add(1); }

/* The last block to finish adds up the results of all: "write, fence, atomic ... fence, read". */
static __global__ void k_last_block(float *part, unsigned *done, float *sum, int fence_before,
                                    int fence_after)
{
    MPT_SHARED(unsigned, last, 1);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = 1.f;
        if (fence_before) __threadfence();
        last[0] = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last[0]) return;
    if (fence_after) __threadfence();
    if (threadIdx.x != 5) return;
    float x = 0.f;
    for (unsigned i = 0; i < gridDim.x; i++) x += part[i];
    *sum = x;
}
static void run_last_block(int fence_before, int fence_after)
{
    Array<float> part(6), sum(1);
    Array<unsigned> done(1);
    for (int i = 0; i < 2; i++) launch(k_last_block, 6, 32, part.p, done.p, sum.p, fence_before, fence_after);
    CHECK(sum.at(0) == 6.f);
    CHECK(done.at(0) == 0);
}
static void missing_release_fence() { run_last_block(0, 1); }
static void missing_acquire_fence() { run_last_block(1, 0); }
static void last_block_ok() { run_last_block(1, 1); }

static __global__ void k_neighbour(float *p, int with_sync)
{
    MPT_SHARED(float, s, 32);
    s[threadIdx.x] = (float)threadIdx.x;
    if (with_sync) __syncwarp();
    p[threadIdx.x] = s[(threadIdx.x + 1) % 32];
}
static void run_neighbour(int with_sync)
{
    Array<float> a(32);
    launch(k_neighbour, 1, 32, a.p, with_sync);
    for (size_t i = 0; i < 32; i++) CHECK(a.at(i) == (float)((i + 1) % 32));
}
static void lockstep() { run_neighbour(0); }
static void lockstep_ok() { run_neighbour(1); }

/* ---- barriers and warp collectives ---- */

static __global__ void k_divergent(float *p, unsigned from)
{
    if (threadIdx.x < from) {
        p[threadIdx.x] = 1.f;
        __syncthreads();
    } else {
        __syncthreads();
    }
}
static void run_divergent(unsigned from)
{
    Array<float> a(64);
    launch(k_divergent, 1, 64, a.p, from);
    CHECK(a.at(1) == 1.f);
}
static void divergent_barrier() { run_divergent(32); }
static void divergent_barrier_ok() { run_divergent(64); }

static __global__ void k_early_exit(float *p, unsigned from)
{
    if (threadIdx.x >= from) return;
    __syncthreads();
    p[threadIdx.x] = 1.f;
}
static void run_early_exit(unsigned from)
{
    Array<float> a(64);
    launch(k_early_exit, 1, 64, a.p, from);
}
static void early_exit() { run_early_exit(40); }
static void early_exit_ok() { run_early_exit(64); }

static __global__ void k_half_shuffle(float *p, unsigned mask)
{
    float x = (float)threadIdx.x;
    if (threadIdx.x < 16) x = __shfl_xor_sync(mask, x, 8);
    p[threadIdx.x] = x;
}
static void run_half_shuffle(unsigned mask)
{
    Array<float> a(32);
    launch(k_half_shuffle, 1, 32, a.p, mask);
    CHECK(a.at(1) == 9.f && a.at(15) == 7.f && a.at(16) == 16.f);
}
static void bad_mask() { run_half_shuffle(FULL); }
static void bad_mask_ok() { run_half_shuffle(0xffffu); }

static __global__ void k_source(float *p, unsigned lanes)
{
    if (threadIdx.x < 16) p[threadIdx.x] = __shfl_down_sync(0xffffu, 1.f, lanes, 16);
    else p[threadIdx.x] = __shfl_xor_sync(0xffff0000u, 1.f, (int)lanes);
}
static void run_source(unsigned lanes)
{
    Array<float> a(32);
    launch(k_source, 1, 32, a.p, lanes);
    CHECK(a.at(31) == 1.f);
}
static void bad_shuffle_source() { run_source(16); }
static void bad_shuffle_source_ok() { run_source(8); }

static __global__ void k_deadlock(unsigned *p, unsigned half)
{
    if (threadIdx.x < half) __syncthreads();
    else __syncwarp();
    *p = 1;
}
static void deadlock()
{
    Array<unsigned> a(1);
    launch(k_deadlock, 1, 32, a.p, 16);
}

/* Some lanes finish among themselves while the others already wait for the whole warp. */
static __global__ void k_nested(unsigned *p)
{
    unsigned x = 1;
    if (threadIdx.x < 16) x += (unsigned)__popc(__ballot_sync(0xffffu, 1));
    x = __shfl_sync(FULL, x, 0);
    atomicAdd(p, x);
}
static void nested_ok()
{
    Array<unsigned> a(1);
    launch(k_nested, 1, 32, a.p);
    CHECK(a.at(0) == 32 * 17);
}

/* ---- host mistakes ---- */

static void run_leak(bool freed)
{
    float *p = nullptr;
    cudaStream_t s = nullptr;
    cudaMalloc(&p, 100);
    cudaStreamCreate(&s);
    cudaStreamDestroy(s);
    CHECK(mpt_emu::outstanding() == 1);
    if (freed) cudaFree(p);
    p = nullptr;
}
static void leak() { run_leak(false); }
static void leak_ok() { run_leak(true); }

static void run_missing_sync(bool synchronized)
{
    float *h = nullptr;
    CHECK(cudaMallocHost(&h, 4) == cudaSuccess);
    *h = 0.f;
    mpt_emu::controls().deferred = true;
    cudaStream_t s = nullptr;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    {
        Array<float> a(1);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        launch_on(s, k_write_to, 1, 1, a.p, 0u);
        CHECK(cudaMemcpyAsync(h, a.p, 4, cudaMemcpyDeviceToHost, s) == cudaSuccess);
        if (synchronized) CHECK(cudaStreamSynchronize(s) == cudaSuccess);
        CHECK(*h == 1.f);
    }
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
    CHECK(cudaFreeHost(h) == cudaSuccess);
}
static void missing_sync() { run_missing_sync(false); }
static void missing_sync_ok() { run_missing_sync(true); }

/* Two streams, one event: without the wait, the order of the two is undefined. */
static void run_missing_wait(bool waits)
{
    mpt_emu::controls().deferred = true;
    cudaStream_t s = nullptr, t = nullptr;
    cudaEvent_t e = nullptr;
    CHECK(cudaStreamCreate(&s) == cudaSuccess && cudaStreamCreate(&t) == cudaSuccess);
    CHECK(cudaEventCreate(&e) == cudaSuccess);
    for (int i = 0; i < 20; i++) {
        Array<float> a(2);
        launch_on(s, k_write_to, 1, 2, a.p, 1u);
        CHECK(cudaEventRecord(e, s) == cudaSuccess);
        if (waits) CHECK(cudaStreamWaitEvent(t, e) == cudaSuccess);
        CHECK(cudaMemsetAsync(a.p, 0, 4, t) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(a.at(0) == 0.f && a.at(1) == 1.f);
    }
    CHECK(cudaEventDestroy(e) == cudaSuccess);
    CHECK(cudaStreamDestroy(s) == cudaSuccess && cudaStreamDestroy(t) == cudaSuccess);
}
static void missing_wait() { run_missing_wait(false); }
static void missing_wait_ok() { run_missing_wait(true); }

static void run_host_access(bool direct)
{
    mpt_emu::controls().hide = true;
    Array<float> a(64);
    launch(k_write_to, 1, 64, a.p, 63u);
    float x = direct ? *(volatile float *)(a.p + 5) : a.at(5);
    CHECK(x == 1.f);
}
static void host_access() { run_host_access(true); }
static void host_access_ok() { run_host_access(false); }

/* ---- the emulation's own services ---- */

static __global__ void k_collectives(unsigned *out)
{
    unsigned t = threadIdx.x, lane = t % 32;
    unsigned good = 1;
    good &= __syncthreads_or(t == 7) == 1;
    good &= __syncthreads_or(0) == 0;
    good &= __syncthreads_and(t < 64) == 1;
    good &= __syncthreads_and(t != 3) == 0;
    good &= __syncthreads_count(t % 4 == 0) == 16;
    good &= __ballot_sync(FULL, lane % 2 == 1) == 0xaaaaaaaau;
    good &= __any_sync(FULL, lane == 9) == 1 && __any_sync(FULL, 0) == 0;
    good &= __all_sync(FULL, 1) == 1 && __all_sync(FULL, lane != 9) == 0;
    good &= __shfl_sync(FULL, lane, 5) == 5;
    good &= __shfl_sync(FULL, lane, 1, 8) == lane / 8 * 8 + 1;
    good &= __shfl_up_sync(FULL, lane, 1) == (lane ? lane - 1 : 0);
    good &= __shfl_up_sync(FULL, lane, 1, 4) == (lane % 4 ? lane - 1 : lane);
    good &= __shfl_down_sync(FULL, (double)lane, 3) == (lane < 29 ? lane + 3 : lane);
    good &= __shfl_xor_sync(FULL, (long long)lane, 16) == (long long)(lane ^ 16);
    atomicAdd(out, good);
}
static void collectives_ok()
{
    Array<unsigned> a(1);
    launch(k_collectives, 2, 64, a.p);
    CHECK(a.at(0) == 128);
}

static __global__ void k_atomics(unsigned *u, int *i, unsigned long long *l, float *f, double *d)
{
    atomicAdd(&u[0], 2u);
    atomicSub(&u[1], 1u);
    atomicMax(&u[2], threadIdx.x);
    atomicInc(&u[3], 9u);
    atomicDec(&u[4], 9u);
    atomicXor(&u[5], threadIdx.x);
    while (atomicCAS(&u[6], threadIdx.x, threadIdx.x + 1) != threadIdx.x && threadIdx.x == 0) {}
    atomicExch(&f[0], 3.f);
    atomicAdd(&i[0], -1);
    atomicMin(&i[1], -(int)threadIdx.x);
    atomicAdd(&l[0], 1ull << 40);
    atomicMax(&l[1], (unsigned long long)threadIdx.x);
    atomicAdd(&f[1], 0.5f);
    atomicAdd(&d[0], 0.25);
}
static void atomics_ok()
{
    Array<unsigned> u(7);
    Array<int> i(2);
    Array<unsigned long long> l(2);
    Array<float> f(2);
    Array<double> d(1);
    launch(k_atomics, 1, 64, u.p, i.p, l.p, f.p, d.p);
    CHECK(u.at(0) == 128 && u.at(1) == 0u - 64u && u.at(2) == 63 && u.at(3) == 4);
    CHECK(u.at(4) == 6 && u.at(5) == 0 && u.at(6) >= 1);
    CHECK(i.at(0) == -64 && i.at(1) == -63);
    CHECK(l.at(0) == 64ull << 40 && l.at(1) == 63);
    CHECK(f.at(0) == 3.f && f.at(1) == 32.f && d.at(0) == 16.0);
}

static void bits_ok()
{
    CHECK(__float_as_uint(1.f) == 0x3f800000u && __uint_as_float(0xc0000000u) == -2.f);
    CHECK(__double_as_longlong(1.0) == 0x3ff0000000000000ll && __longlong_as_double(0) == 0.0);
    CHECK(__popc(0xf0u) == 4 && __clz(1) == 31 && __clz(0) == 32 && __ffs(8) == 4 && __ffs(0) == 0);
    CHECK(__brev(1u) == 0x80000000u && __umulhi(0xffffffffu, 16u) == 15u);
    CHECK(__umul64hi(~0ull, ~0ull) == ~0ull - 1 && __umul64hi(1ull << 63, 6) == 3);
    CHECK(__clzll(1) == 63 && __popcll(~0ull) == 64 && __ffsll(1ll << 40) == 41);
}

static __global__ void k_index(unsigned *p)
{
    unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    atomicAdd(&p[b * blockDim.x * blockDim.y * blockDim.z + t], 1u);
}
static __global__ void k_nothing() {}
static void launches_ok()
{
    Array<unsigned> a(24 * 30);
    CHECK(mpt_emu::launch(k_index, dim3(2, 3, 4), dim3(5, 2, 3), 0, nullptr, a.p) == cudaSuccess);
    for (size_t i = 0; i < a.n; i++) CHECK(a.at(i) == 1);
    CHECK(mpt_emu::launch(k_nothing, dim3(1), dim3(1), 0, nullptr) == cudaSuccess);
    CHECK(cudaLaunchKernel(k_nothing, dim3(0), dim3(1), nullptr) == cudaErrorInvalidConfiguration);
    CHECK(cudaLaunchKernel(k_nothing, dim3(1), dim3(1025), nullptr) == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess);
}

static void errors_ok()
{
    mpt_emu::Controls &c = mpt_emu::controls();
    int n = -1;
    char *p = nullptr, *q = nullptr;
    c.device_count = 0;
    CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
    CHECK(cudaSetDevice(0) == cudaErrorNoDevice && cudaMalloc(&p, 4) == cudaErrorNoDevice);
    c.device_count = 1;
    c.device_error = cudaErrorInsufficientDriver;
    CHECK(cudaSetDevice(0) == 35 && !strcmp(cudaGetErrorName(cudaErrorInsufficientDriver),
                                            "cudaErrorInsufficientDriver"));
    c.device_error = cudaSuccess;
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice && cudaSetDevice(0) == cudaSuccess);
    c.major = 7, c.minor = 5;
    CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && n == 7);
    c.fail_malloc = 2;
    CHECK(cudaMalloc(&p, 16) == cudaSuccess && cudaMalloc(&q, 16) == cudaErrorMemoryAllocation && !q);
    CHECK(cudaMalloc(&q, c.total_memory) == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&q, 0) == cudaSuccess && !q);
    CHECK(cudaMemcpy(p, p + 8, 9, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(&n, p, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(&n, p, 4, cudaMemcpyDefault) == cudaSuccess && n == -1);
    c.fail_launch = c.fail_copy = 1;
    CHECK(cudaMemset(p, 0, 16) == cudaErrorUnknown && cudaMemset(p, 0, 16) == cudaSuccess);
    CHECK(cudaLaunchKernel(k_nothing, dim3(1), dim3(1), nullptr) == cudaErrorLaunchFailure);
    CHECK(cudaFree(p + 1) == cudaErrorInvalidValue && cudaFree(p) == cudaSuccess);
    CHECK(cudaFree(p) == cudaErrorInvalidValue && cudaFree(nullptr) == cudaSuccess);
}

static __global__ void k_increment(unsigned *p) { atomicAdd(p, 1u); }

static void graphs_ok()
{
    Array<unsigned> a(1);
    cudaStream_t s = nullptr;
    cudaGraph_t g = nullptr;
    cudaGraphExec_t e = nullptr;
    size_t nodes = 0;
    CHECK(cudaStreamCreate(&s) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaMemsetAsync(a.p, 0, 4, s) == cudaSuccess);
    launch_on(s, k_increment, 1, 3, a.p);
    CHECK(cudaStreamEndCapture(s, &g) == cudaSuccess);
    CHECK(cudaGraphGetNodes(g, nullptr, &nodes) == cudaSuccess && nodes == 2);
    CHECK(cudaGraphInstantiate(&e, g, 0) == cudaSuccess && cudaGraphDestroy(g) == cudaSuccess);
    launch_on(s, k_increment, 1, 5, a.p);
    mpt_emu::reset_counters();
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(e, s) == cudaSuccess);
    const mpt_emu::Counters &c = mpt_emu::counters();
    CHECK(!c.launches && !c.syncs && !c.mallocs && !c.frees && !c.pageable_copies && c.graph_launches == 3);
    CHECK(cudaGraphExecDestroy(e) == cudaSuccess && cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(c.kernels == 3 && c.syncs == 1);
    CHECK(a.at(0) == 3);
    CHECK(cudaStreamDestroy(s) == cudaSuccess && cudaStreamDestroy(s) == cudaErrorInvalidResourceHandle);
}

/* What must not be done while a stream is captured. */
static void capture_rules_ok()
{
    Array<unsigned> a(1);
    cudaStream_t s = nullptr;
    cudaGraph_t g = nullptr;
    void *p = nullptr, *args[] = {&a.p};
    CHECK(cudaStreamCreate(&s) == cudaSuccess);
    for (int i = 0; i < 4; i++) {
        CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
        if (i == 0) CHECK(cudaMalloc(&p, 4) == cudaErrorStreamCaptureUnsupported);
        if (i == 1) CHECK(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
        if (i == 2) CHECK(cudaLaunchKernel(k_increment, 1, 1, args) == cudaErrorStreamCaptureImplicit);
        if (i == 3) CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
        CHECK(cudaStreamEndCapture(s, &g) == cudaErrorStreamCaptureInvalidated && !g);
    }
    CHECK(cudaStreamEndCapture(s, &g) == cudaErrorIllegalState);
    CHECK(a.at(0) == 0);
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
}

/* Deferred: nothing happens before the host waits, and each wait runs no more than it must. */
static void deferred_ok()
{
    mpt_emu::controls().deferred = true;
    unsigned *h = nullptr, x = 7;
    cudaStream_t s = nullptr, t = nullptr;
    cudaEvent_t e = nullptr;
    CHECK(cudaMallocHost(&h, 4) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamCreate(&t) == cudaSuccess && cudaEventCreate(&e) == cudaSuccess);
    {
        Array<unsigned> a(1);
        CHECK(cudaMemcpyAsync(a.p, &x, 4, cudaMemcpyHostToDevice, t) == cudaSuccess);
        x = 9;                       /* ordinary memory: already read */
        launch_on(t, k_increment, 1, 1, a.p);
        CHECK(cudaEventRecord(e, t) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(s, e) == cudaSuccess);
        CHECK(cudaMemcpyAsync(h, a.p, 4, cudaMemcpyDeviceToHost, s) == cudaSuccess);
        launch_on(t, k_increment, 1, 1, a.p);
        CHECK(mpt_emu::counters().kernels == 0);
        CHECK(cudaEventQuery(e) == cudaErrorNotReady);
        CHECK(cudaStreamSynchronize(s) == cudaSuccess && cudaEventQuery(e) == cudaSuccess);
        CHECK(*h == 8 || (mpt_emu::controls().shuffle && *h == 9));
        CHECK(a.at(0) == 9);         /* the legacy stream waits for t */
        while (cudaStreamQuery(t) != cudaSuccess) {}
    }
    CHECK(cudaStreamDestroy(s) == cudaSuccess && cudaStreamDestroy(t) == cudaSuccess);
    CHECK(cudaEventDestroy(e) == cudaSuccess && cudaFreeHost(h) == cudaSuccess);
}

/* A table copied from ordinary memory, and read on a stream that does not wait for the default one. */
static void run_table(bool wait)
{
    mpt_emu::controls().deferred = true;
    cudaStream_t s = nullptr;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    {
        Array<unsigned> a(1);
        unsigned x = 7;
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(cudaMemcpy(a.p, &x, 4, cudaMemcpyHostToDevice) == cudaSuccess);
        x = 9;                       /* already read */
        if (wait) CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
        launch_on(s, k_increment, 1, 1, a.p);
        CHECK(cudaStreamSynchronize(s) == cudaSuccess);
        CHECK(a.at(0) == 8);
    }
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
}
static void staged_copy() { run_table(false); }
static void staged_copy_ok() { run_table(true); }

/* ---- the list ---- */

struct Expect {
    const char *variant, *text;
};
struct Case {
    const char *name;
    void (*run)();
    Expect expect[3];                /* none: must be clean */
};

#define RACE {"tsan", "WARNING: ThreadSanitizer: data race"}
#define WRONG {"plain", "emu_bugs: wrong result"}
#define EVERYWHERE(text) {{"plain", text}, {"asan", text}, {"tsan", text}}
#define BUG(name, ...) {#name, name, __VA_ARGS__}
#define CLEAN(name) {#name, name, {}}

static const Case cases[] = {
    BUG(oob_global, {{"asan", "ERROR: AddressSanitizer: heap-buffer-overflow"},
                     {"plain", "write past the end of the 256 bytes"}}),
    BUG(oob_read, {{"asan", "ERROR: AddressSanitizer: heap-buffer-overflow"}}),
    BUG(oob_shared, {{"asan", "ERROR: AddressSanitizer: heap-buffer-overflow"},
                     {"plain", "write past the end of shared memory"}}),
    BUG(unwritten_shared, EVERYWHERE("poison was read")),
    BUG(unwritten_global, EVERYWHERE("poison was read")),
    BUG(misaligned_vector, EVERYWHERE("misaligned vector access")),
    BUG(misaligned_dereference, {{"asan", "misaligned address"}}),
    BUG(missing_barrier, {RACE, WRONG}),
    BUG(second_phase, {RACE}),
    BUG(racy_flag, {RACE}),
    BUG(racy_add, {RACE}),
    BUG(missing_release_fence, {RACE}),
    BUG(missing_acquire_fence, {RACE}),
    BUG(lockstep, {RACE, WRONG}),
    BUG(divergent_barrier, EVERYWHERE("mpt_emu: error: divergent barrier")),
    BUG(early_exit, EVERYWHERE("mpt_emu: error: barrier after thread exit")),
    BUG(bad_mask, EVERYWHERE("mpt_emu: error: bad mask")),
    BUG(bad_shuffle_source, EVERYWHERE("mpt_emu: error: bad shuffle")),
    BUG(deadlock, EVERYWHERE("mpt_emu: error: deadlock: 16 threads in a barrier")),
    BUG(leak, {{"plain", "mpt_emu: leak: 100 bytes of device memory"},
               {"asan", "ERROR: LeakSanitizer: detected memory leaks"}}),
    BUG(missing_sync, {WRONG}),
    BUG(missing_wait, {WRONG}),
    BUG(staged_copy, {WRONG}),
    BUG(host_access, {{"asan", "ERROR: AddressSanitizer: use-after-poison"}}),

    CLEAN(oob_global_ok), CLEAN(oob_read_ok), CLEAN(oob_shared_ok), CLEAN(unwritten_shared_ok),
    CLEAN(unwritten_global_ok), CLEAN(misaligned_vector_ok), CLEAN(misaligned_dereference_ok),
    CLEAN(missing_barrier_ok), CLEAN(second_phase_ok), CLEAN(racy_flag_ok), CLEAN(racy_add_ok),
    CLEAN(last_block_ok), CLEAN(lockstep_ok), CLEAN(divergent_barrier_ok), CLEAN(early_exit_ok),
    CLEAN(bad_mask_ok), CLEAN(bad_shuffle_source_ok), CLEAN(nested_ok), CLEAN(leak_ok),
    CLEAN(missing_sync_ok), CLEAN(missing_wait_ok), CLEAN(host_access_ok), CLEAN(collectives_ok),
    CLEAN(staged_copy_ok),
    CLEAN(atomics_ok), CLEAN(bits_ok), CLEAN(launches_ok), CLEAN(errors_ok), CLEAN(graphs_ok),
    CLEAN(capture_rules_ok), CLEAN(deferred_ok),
};

static int list()
{
    for (const Case &c : cases) {
        if (!c.expect[0].variant) printf("%s|clean|\n", c.name);
        for (const Expect &e : c.expect)
            if (e.variant) printf("%s|%s|%s\n", c.name, e.variant, e.text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--list")) return list();
    for (const Case &c : cases) {
        if (argc != 2 || strcmp(argv[1], c.name)) continue;
        c.run();
        if (mpt_emu::leaks()) wrong++;
        printf("%s: %s\n", c.name, wrong ? "wrong" : "ran to the end");
        return wrong != 0;
    }
    fprintf(stderr, "usage: emu_bugs NAME | --list\n");
    return 2;
}
