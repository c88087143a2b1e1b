/* cuda_runtime.h -- test-only stand-in for the CUDA runtime and kernel language.
 *
 * With -Itests/emu, g++ or clang++ compile the very .cu source that nvcc compiles, and it
 * really runs, on the CPU, without the CUDA Toolkit and without a GPU: one fiber per CUDA
 * thread, real barriers and warp collectives, shared memory, atomics, streams, events and
 * graph capture. So a debugger, AddressSanitizer, UndefinedBehaviorSanitizer and
 * ThreadSanitizer work on kernels. It checks correctness; it says nothing about speed.
 *
 * Use, in 10 lines (c++ -x c++ -std=c++17 -Itests/emu file.cu):
 *
 *     #include <cuda_runtime.h>                    // this file; defines MPT_CUDA_EMU
 *     static __global__ void fill(float *p, float x) { p[threadIdx.x] = x; }
 *     int main() {
 *         float *p, x = 1, h[32]; void *args[] = {&p, &x};
 *         mpt_emu::controls().shuffle = true;      // order of threads, blocks and streams
 *         cudaMalloc(&p, sizeof h);
 *         cudaLaunchKernel(fill, dim3(1), dim3(32), args, 0, nullptr);
 *         cudaMemcpy(h, p, sizeof h, cudaMemcpyDeviceToHost);
 *         return cudaFree(p) || mpt_emu::leaks() != 0;
 *     }
 *
 * The source must: launch by cudaLaunchKernel(kernel, ...) with the kernel itself, not a void
 * pointer to it; say MPT_SHARED(T, name, n) where CUDA says __shared__ T name[n] (define your
 * own only under #ifndef MPT_SHARED, after this include). __CUDA_ARCH__ and __CUDACC__ stay
 * undefined: a header that refuses to compile without nvcc must also accept MPT_CUDA_EMU.
 *
 * Misuse inside a kernel prints one line, "mpt_emu: error: ...", and aborts: divergent barrier,
 * barrier after thread exit, bad mask or lane in a warp collective, deadlock, misaligned vector
 * access (__ldcs and its kind), writes past the end of device or shared memory (by a canary; to
 * the byte and for reads too with ASan), too much shared memory. Misuse of the runtime returns
 * CUDA's error code. Unwritten memory reads as 0xff bytes: NaN, -1.
 *
 * What it does NOT see: inline PTX (portable C takes its place; cuda_ptx.py interprets it), plain accesses
 * that a GPU reorders, and loads that bypass coherence (lint.sh forbids these); registers, occupancy and
 * speed (cuda_ptx.py has a model); what nvcc makes of the source.
 *
 * What it does NOT do:
 * - Warps do not run in lockstep, and nothing but a barrier, a warp collective and (shuffled) an
 *   atomic lets another thread run. A thread that spins on a plain variable hangs.
 * - One host thread, one thing at a time. Streams overlap only as an order of whole operations.
 * - For TSan, barriers order the threads of a block, __syncwarp those of a warp, and __threadfence around
 *   an atomic orders blocks (so a missing fence is seen). It takes a fence without looking at which
 *   atomic was read, and does not know that plain accesses may be reordered on a real GPU.
 * - No .cu can prove host code right: in immediate mode a host read of device memory works.
 *   controls().hide (ASan) makes it an error; controls().deferred runs kernels only at the next
 *   synchronization, so that a missing one is seen. A cudaMemcpy from ordinary memory is then only
 *   staged, as in CUDA: a kernel on a non-blocking stream may run before it arrives. Kernels that
 *   read host memory are not detected.
 * - No __shared__, no dynamic shared memory, no textures, no cooperative groups, no grid-wide
 *   barrier, no device-side runtime calls, no cudaMallocAsync, no symbols, no peer access, no
 *   capture across streams, no approximate math (rsqrtf, __expf ...), no `min`/`max` globals.
 * - Dereferencing a (uint4 *) cast from another type is undefined for a host compiler: use
 *   __ldcs/__stcs, which copy bytes, or compile with -fno-strict-aliasing.
 *
 * Environment, read once: MPT_EMU_SHUFFLE=seed, MPT_EMU_DEFERRED=1, MPT_EMU_RESIDENT=blocks,
 * MPT_EMU_HIDE=1 set the controls of the same names; MPT_EMU_ERROR=35 is every call's error (an old driver).
 *
 * Contents (search for the mark):
 *   >>E1  types                          >>E8   shared memory
 *   >>E2  sanitizers                     >>E9   kernel language: indices, collectives
 *   >>E3  controls, counters, state      >>E10  kernel language: bits, memory, atomics
 *   >>E4  misuse                         >>E11  streams and operations
 *   >>E5  fibers                         >>E12  runtime: launch, device, errors
 *   >>E6  blocks and grids               >>E13  runtime: memory
 *   >>E7  barriers and warps             >>E14  runtime: streams, events, graphs
 *
 * To add a runtime call: begin with `if (cudaError_t e = mpt_emu::gate()) return e;`, put the
 * device's share of the work into mpt_emu::enqueue, and return errors through mpt_emu::fail.
 * To add an intrinsic: E10; take and return exactly CUDA's types, so that what compiles here
 * compiles there. To add an error code: one row in MPT_EMU_ERRORS.
 */
#ifndef MPT_EMU_CUDA_RUNTIME_H
#define MPT_EMU_CUDA_RUNTIME_H

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "tests/emu/cuda_runtime.h needs C++17: c++ -x c++ -std=c++17"
#endif
#ifndef MPT_CUDA_EMU
#define MPT_CUDA_EMU 1
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------ */
// >>E1 types

#define CUDART_VERSION 12000

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 { unsigned x, y, z; };

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

/* The vector types carry CUDA's alignment, so UBSan sees a misaligned dereference. */
#define MPT_EMU_VECTOR2(V, T, A) \
    struct alignas(A) V { T x, y; }; \
    inline V make_##V(T x, T y) { return V{x, y}; }
#define MPT_EMU_VECTOR4(V, T, A) \
    struct alignas(A) V { T x, y, z, w; }; \
    inline V make_##V(T x, T y, T z, T w) { return V{x, y, z, w}; }
MPT_EMU_VECTOR2(uchar2, unsigned char, 2)
MPT_EMU_VECTOR4(uchar4, unsigned char, 4)
MPT_EMU_VECTOR2(ushort2, unsigned short, 4)
MPT_EMU_VECTOR4(ushort4, unsigned short, 8)
MPT_EMU_VECTOR2(int2, int, 8)
MPT_EMU_VECTOR4(int4, int, 16)
MPT_EMU_VECTOR2(uint2, unsigned, 8)
MPT_EMU_VECTOR4(uint4, unsigned, 16)
MPT_EMU_VECTOR2(ulonglong2, unsigned long long, 16)
MPT_EMU_VECTOR2(float2, float, 8)
MPT_EMU_VECTOR4(float4, float, 16)
MPT_EMU_VECTOR2(double2, double, 16)
#undef MPT_EMU_VECTOR2
#undef MPT_EMU_VECTOR4

/* name, number and text as in CUDA: the library may print them, tests may compare them */
#define MPT_EMU_ERRORS(X) \
    X(cudaSuccess, 0, "no error") \
    X(cudaErrorInvalidValue, 1, "invalid argument") \
    X(cudaErrorMemoryAllocation, 2, "out of memory") \
    X(cudaErrorInitializationError, 3, "initialization error") \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy") \
    X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorInvalidDeviceFunction, 98, "invalid device function") \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected") \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
    X(cudaErrorUnsupportedPtxVersion, 222, "the provided PTX was compiled with an unsupported toolchain.") \
    X(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device") \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
    X(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state") \
    X(cudaErrorNotReady, 600, "device not ready") \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch") \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure") \
    X(cudaErrorNotSupported, 801, "operation not supported") \
    X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing") \
    X(cudaErrorStreamCaptureInvalidated, 901, \
      "operation failed due to a previous error during capture") \
    X(cudaErrorStreamCaptureImplicit, 906, \
      "operation would make the legacy stream depend on a capturing blocking stream") \
    X(cudaErrorCapturedEvent, 907, \
      "operation not permitted on an event last recorded in a capturing stream") \
    X(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define MPT_EMU_ROW(name, number, text) name = number,
    MPT_EMU_ERRORS(MPT_EMU_ROW)
#undef MPT_EMU_ROW
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor, multiProcessorCount, major, minor;
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;

#define cudaStreamLegacy ((cudaStream_t)0x1)
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };

/* ------------------------------------------------------------------------------------------ */
// >>E2 sanitizers: all of their hooks, so that the rest of the file has no #if

#define MPT_EMU_ASAN 0
#define MPT_EMU_TSAN 0
#if defined(__SANITIZE_ADDRESS__)
#undef MPT_EMU_ASAN
#define MPT_EMU_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#undef MPT_EMU_TSAN
#define MPT_EMU_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef MPT_EMU_ASAN
#define MPT_EMU_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#undef MPT_EMU_TSAN
#define MPT_EMU_TSAN 1
#endif
#endif

#if MPT_EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if MPT_EMU_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#endif

namespace mpt_emu {
namespace san {

/* ASan must be told about every change of stack. `fake` keeps the fiber's fake stack, or is
 * null when the fiber will never come back. */
#if MPT_EMU_ASAN
inline void leave(void **fake, const void *bottom, size_t size)
{
    __sanitizer_start_switch_fiber(fake, bottom, size);
}
inline void arrive(void *fake, const void **from_bottom, size_t *from_size)
{
    __sanitizer_finish_switch_fiber(fake, from_bottom, from_size);
}
inline void poison(const void *p, size_t n) { __asan_poison_memory_region(p, n); }
inline void unpoison(const void *p, size_t n) { __asan_unpoison_memory_region(p, n); }
#else
inline void leave(void **, const void *, size_t) {}
inline void arrive(void *, const void **, size_t *) {}
inline void poison(const void *, size_t) {}
inline void unpoison(const void *, size_t) {}
#endif

/* TSan must see CUDA threads as threads: each has a TSan fiber, switched without ordering. Only release and
 * acquire on a tag order them. fiber_switch must be inlined even with -O0: a function that begins in one
 * fiber and ends in another breaks the call stacks that TSan keeps. */
#if MPT_EMU_TSAN
inline void *fiber_current() { return __tsan_get_current_fiber(); }
inline void *fiber_create() { return __tsan_create_fiber(0); }
inline void fiber_destroy(void *fiber) { __tsan_destroy_fiber(fiber); }
__attribute__((always_inline)) inline void fiber_switch(void *fiber)
{
    __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
}
inline void acquire(void *tag) { __tsan_acquire(tag); }
inline void release(void *tag) { __tsan_release(tag); }
#else
inline void *fiber_current() { return nullptr; }
inline void *fiber_create() { return nullptr; }
inline void fiber_destroy(void *) {}
inline void fiber_switch(void *) {}
inline void acquire(void *) {}
inline void release(void *) {}
#endif

} /* namespace san */

/* While an object of this type lives, TSan ignores what the current fiber reads and writes: all threads of a
 * kernel share the emulation's own state, and this is no race. */
struct Ignore {
#if MPT_EMU_TSAN
    Ignore()
    {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Ignore()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
#else
    Ignore() {}
    ~Ignore() {}
#endif
    Ignore(const Ignore &) = delete;
    Ignore &operator=(const Ignore &) = delete;
};

/* ------------------------------------------------------------------------------------------ */
// >>E3 controls, counters, state

/* What a test may set, at any time between two runtime calls. */
struct Controls {
    bool shuffle = false;            /* threads, blocks, streams in random order; see seed() */
    bool deferred = false;           /* device work runs only when the host synchronizes */
    bool hide = false;               /* ASan: host code that touches device memory is an error */
    unsigned resident = 1;           /* blocks of a grid that are under way at the same time */
    int device_count = 1;
    cudaError_t device_error = cudaSuccess;   /* e.g. cudaErrorInsufficientDriver: every call fails */
    cudaError_t launch_error = cudaSuccess;   /* e.g. cudaErrorNoKernelImageForDevice: no launch works */
    int major = 9, minor = 0;        /* compute capability */
    int sms = 4;                     /* multiprocessors: kernels are launched as wide as this says */
    size_t total_memory = (size_t)8 << 30;    /* cudaMalloc beyond it is out of memory */
    int fail_malloc = 0;             /* k > 0: the k-th cudaMalloc from now fails, once */
    int fail_malloc_host = 0;        /* likewise cudaMallocHost */
    int fail_launch = 0;             /* likewise a kernel launch: cudaErrorLaunchFailure */
    int fail_copy = 0;               /* likewise a copy or memset: cudaErrorUnknown */
    size_t stack_bytes = 0;          /* stack of a CUDA thread; 0: a default; set before any launch */
};

/* What a test may read. A step that must not wait or allocate leaves syncs, mallocs, frees and
 * pageable_copies as they were. */
struct Counters {
    unsigned long launches = 0;      /* kernels launched by the host, captured ones included */
    unsigned long kernels = 0;       /* kernels that really ran, replayed ones included */
    unsigned long graph_launches = 0;
    unsigned long syncs = 0;         /* calls that wait: synchronize, cudaMemcpy, cudaFree ... */
    unsigned long mallocs = 0, frees = 0;
    unsigned long copies = 0;        /* copies and memsets */
    unsigned long pageable_copies = 0;   /* cudaMemcpyAsync of ordinary host memory: a hidden wait */
    unsigned long atomics = 0;       /* on device memory, by kernels */
    unsigned long switches = 0;
};

/* Where a call was written: the default argument of barriers, collectives and allocations. */
struct Where {
    const char *file;
    int line;
    static constexpr Where here(const char *f = __builtin_FILE(), int l = __builtin_LINE())
    {
        return Where{f, l};
    }
};

/* The address is kept inverted: LeakSanitizer must not find a pointer here and call a lost
 * allocation reachable. */
struct Allocation {
    uintptr_t hidden;
    size_t size;
    bool device;                     /* else page-locked host memory */
    unsigned long number;            /* 1 for the first of the process */
    Where where;
    char *data() const { return (char *)~hidden; }
};

struct Fiber;

#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__) && !defined(MPT_EMU_UCONTEXT)
#define MPT_EMU_SWITCH_X86_64 1
typedef void *Context;
#elif defined(__aarch64__) && defined(__LP64__) && defined(__ELF__) && !defined(MPT_EMU_UCONTEXT)
#define MPT_EMU_SWITCH_AARCH64 1
typedef void *Context;
#else
#define MPT_EMU_SWITCH_UCONTEXT 1
} /* namespace mpt_emu */
#include <ucontext.h>
namespace mpt_emu {
typedef ucontext_t Context;
#endif

struct Stack {
    char *base = nullptr;
    size_t size = 0;
};

struct TsanFiber {
    void *handle = nullptr;
    Stack stack;                    /* only under TSan */
    unsigned uses = 0;
};

/* All state of the emulation, once per process. Never destroyed, so that destructors of static objects in a
 * test may still call cudaFree. */
struct Machine {
    Controls controls;
    Counters counters;
    uint64_t random = 0x9e3779b97f4a7c15u;
    cudaError_t last_error = cudaSuccess;
    int device = 0;

    Fiber *self = nullptr;           /* the CUDA thread that is running; null: host code is */
    const std::function<void()> *body = nullptr;
    dim3 grid_dim, block_dim;
    Context host_context{};
    void *host_fake = nullptr, *host_fiber = nullptr;
    const void *host_bottom = nullptr;
    size_t host_size = 0;
    std::vector<Stack> stacks;
    std::vector<TsanFiber> fibers_idle, fibers_used;
    char start_tag = 0, end_tag = 0, fence_tag = 0;

    std::map<uintptr_t, Allocation> allocations;     /* by Allocation::hidden */
    size_t device_bytes = 0;
    unsigned long allocation_number = 0;
    int views = 0;                   /* > 0: device memory must be visible just now */
    bool hidden = false;             /* some device memory is poisoned */

    std::set<CUstream_st *> streams;
    std::set<CUevent_st *> events;
    std::set<CUgraph_st *> graphs;
    std::set<CUgraphExec_st *> execs;
    uint64_t ticket = 0;
    cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

    Machine() { read_environment(); }
    void read_environment()
    {
        const char *s = getenv("MPT_EMU_SHUFFLE");
        if (s && *s) {
            controls.shuffle = true;
            random ^= strtoull(s, nullptr, 0) * 0xd1342543de82ef95u;
        }
        if ((s = getenv("MPT_EMU_DEFERRED"))) controls.deferred = atoi(s) != 0;
        if ((s = getenv("MPT_EMU_HIDE"))) controls.hide = atoi(s) != 0;
        if ((s = getenv("MPT_EMU_ERROR"))) controls.device_error = (cudaError_t)atoi(s);
        if ((s = getenv("MPT_EMU_RESIDENT"))) controls.resident = (unsigned)atoi(s);
    }
};

inline Machine &machine()
{
    static Machine *m = new Machine;
    return *m;
}
inline Controls &controls() { return machine().controls; }
inline Counters &counters() { return machine().counters; }
inline void reset_counters() { machine().counters = Counters(); }

/* Allocations, device and page-locked, not yet freed. */
inline size_t outstanding() { return machine().allocations.size(); }

/* Start the random order anew; the same seed gives the same run. */
inline void seed(uint64_t s)
{
    machine().random = 0x9e3779b97f4a7c15u ^ s * 0xd1342543de82ef95u;
    if (!machine().random) machine().random = 1;
}

inline uint64_t random_below(uint64_t n)
{
    uint64_t &x = machine().random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (x >> 11) % n;
}

template <class T> void shuffle(std::vector<T> &v)
{
    for (size_t i = v.size(); i > 1; i--) std::swap(v[i - 1], v[random_below(i)]);
}

/* A countdown to a planned failure: true once, at the k-th call. */
inline bool due(int &countdown) { return countdown > 0 && --countdown == 0; }

/* ------------------------------------------------------------------------------------------ */
// >>E4 misuse

enum { WARP = 32, MAX_THREADS = 1024, MAX_SHARED = 48 * 1024 };

enum class State { fresh, ready, at_barrier, in_warp, exited };

struct Block;

struct Fiber {
    Context context{};
    Stack stack;
    Block *block = nullptr;
    uint3 tid{0, 0, 0};
    unsigned linear = 0;
    State state = State::fresh;
    Where where{"", 0};              /* of the barrier or collective it waits in */
    uint32_t mask = 0;               /* of that collective */
    void *fake = nullptr;
    TsanFiber tsan;
    bool fenced = false;             /* has executed a __threadfence */
};

/* Where the lanes of one mask meet. Values are kept twice, since a fast lane may begin the next
 * collective before a slow lane has read this one. */
struct Exchange {
    uint32_t mask = 0, arrived = 0;
    int operation = 0;
    unsigned generation = 0;
    uint64_t value[2][WARP] = {};
    char tag[2] = {0, 0};
};

/* One Exchange for every mask seen. Lanes may be waiting in several: some with the whole warp's mask, while
 * others have yet to finish among themselves. */
typedef std::vector<std::unique_ptr<Exchange>> Warp;

struct Shared {
    const void *key;
    char *data;
    size_t size;
};

/* A block owns its tags: TSan forgets them with the memory, so no block can be ordered after
 * another by an address that happens to be the same. */
struct Block {
    uint3 bid{0, 0, 0};
    std::vector<Fiber> fibers;
    std::vector<unsigned> order;
    std::vector<Warp> warps;
    std::vector<uint32_t> left;      /* of each warp: the lanes that left the kernel */
    std::vector<Shared> shared;
    unsigned waiting = 0, exited = 0, votes = 0;
    unsigned barriers = 0;           /* barriers passed; the parity picks tag and result */
    unsigned result[2] = {0, 0};
    char barrier_tag[2] = {0, 0};
    bool used_atomic = false;
    Where barrier_where{"", 0};
};

[[noreturn]] inline void die_in(const Block *b, const Fiber *f, const char *text)
{
    fprintf(stderr, "mpt_emu: error: %s", text);
    if (b) fprintf(stderr, " [block %u,%u,%u", b->bid.x, b->bid.y, b->bid.z);
    if (f) fprintf(stderr, ", thread %u,%u,%u", f->tid.x, f->tid.y, f->tid.z);
    fprintf(stderr, b ? "]\n" : "\n");
    fflush(stderr);
    abort();
}

[[noreturn]] inline void die(const char *text)
{
    const Fiber *f = machine().self;
    die_in(f ? f->block : nullptr, f, text);
}

template <class... A> [[noreturn]] void dief(const char *format, A... a)
{
    char text[512];
    snprintf(text, sizeof text, format, a...);
    die(text);
}

/* The running CUDA thread; host code that uses the kernel language gets a clear error. */
inline Fiber &self()
{
    Fiber *f = machine().self;
    if (!f) die("kernel language used outside a kernel");
    return *f;
}

inline unsigned lane_of(const Fiber &f) { return f.linear % WARP; }

inline void check_aligned(const void *p, size_t alignment)
{
    if ((uintptr_t)p % alignment) dief("misaligned vector access: %p, needs %zu bytes", p, alignment);
}

/* ------------------------------------------------------------------------------------------ */
// >>E5 fibers

inline void fiber_main();

#if defined(MPT_EMU_SWITCH_X86_64)

/* void mpt_emu_switch(void **save_here, void *go_there): pushes the callee-saved registers.
 * MXCSR and the x87 control word are left alone, they are the same everywhere. Weak, since
 * every file that includes this one emits it. */
asm(R"(
    .pushsection .text
    .weak mpt_emu_switch
    .type mpt_emu_switch, @function
mpt_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size mpt_emu_switch, . - mpt_emu_switch
    .popsection
)");
extern "C" void mpt_emu_switch(void **save_here, void *go_there);

inline void context_switch(Context &from, Context &to) { mpt_emu_switch(&from, to); }

inline void context_make(Context &c, const Stack &s)
{
    void **sp = (void **)(((uintptr_t)s.base + s.size) & ~(uintptr_t)15);
    *--sp = nullptr;                 /* a return address nobody returns to: keeps rsp % 16 == 8 */
    *--sp = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    c = sp;
}

#elif defined(MPT_EMU_SWITCH_AARCH64)

/* As above: x19 to x30 and d8 to d15 are what a call must preserve. */
asm(R"(
    .pushsection .text
    .weak mpt_emu_switch
    .type mpt_emu_switch, %function
mpt_emu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size mpt_emu_switch, . - mpt_emu_switch
    .popsection
)");
extern "C" void mpt_emu_switch(void **save_here, void *go_there);

inline void context_switch(Context &from, Context &to) { mpt_emu_switch(&from, to); }

inline void context_make(Context &c, const Stack &s)
{
    char *sp = (char *)(((uintptr_t)s.base + s.size) & ~(uintptr_t)15) - 160;
    memset(sp, 0, 160);
    *(void **)(sp + 88) = (void *)fiber_main;    /* x30, where `ret` goes */
    c = sp;
}

#else

inline void context_switch(Context &from, Context &to) { swapcontext(&from, &to); }

inline void context_make(Context &c, const Stack &s)
{
    getcontext(&c);
    c.uc_stack.ss_sp = s.base;
    c.uc_stack.ss_size = s.size;
    c.uc_link = nullptr;
    makecontext(&c, fiber_main, 0);
}

#endif

inline void *map_stack(void *at, size_t size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    void *p = mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) die("no memory for the stack of a CUDA thread");
    return p;
}

/* A thread ends in fiber_main and to_host, which do not return: their frames, at the stack's very end, stay
 * poisoned. All others have returned. */
enum { EXIT_BYTES = 4096 };

inline Stack stack_get()
{
    Machine &m = machine();
    Stack s;
    if (!m.stacks.empty()) {
        s = m.stacks.back();
        m.stacks.pop_back();
        san::unpoison(s.base + s.size - EXIT_BYTES, EXIT_BYTES);
        return s;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t want = m.controls.stack_bytes;
    if (!want) want = MPT_EMU_ASAN ? 128 * 1024 : 64 * 1024;
    s.size = (want + page - 1) / page * page;
    char *p = (char *)map_stack(nullptr, s.size + page);
    mprotect(p, page, PROT_NONE);                /* a guard below: overflow is a fault */
    s.base = p + page;
    return s;
}

/* Mapping it anew makes TSan forget who wrote there; else the next thread on this stack would seem to race
 * with the last one. */
inline void stack_put(const Stack &s)
{
    if (MPT_EMU_TSAN) map_stack(s.base, s.size);
    machine().stacks.push_back(s);
}

/* One TSan fiber per CUDA thread of a launch. They are used again only by the next launch:
 * within one launch a used fiber would order its two threads. TSan has room for about 8000, and
 * a fiber cannot be used for ever: fiber_main never returns, so each use leaves a few frames on
 * the call stack that TSan keeps. A fiber has its own stack, on which only it has ever written. */
inline TsanFiber tsan_get()
{
    Machine &m = machine();
    TsanFiber t;
    if (m.fibers_idle.empty()) {
        t.handle = san::fiber_create();
        if (MPT_EMU_TSAN) t.stack = stack_get();
    } else {
        t = m.fibers_idle.back();
        m.fibers_idle.pop_back();
    }
    t.uses++;
    return t;
}

inline void tsan_put(TsanFiber t)
{
    Machine &m = machine();
    bool room = m.fibers_used.size() + m.fibers_idle.size() < 6000;
    if (room && t.uses < 1000) m.fibers_used.push_back(t);
    else {
        san::fiber_destroy(t.handle);
        if (MPT_EMU_TSAN) stack_put(t.stack);
    }
}

inline void to_host(bool for_ever)
{
    Machine &m = machine();
    Fiber *me = m.self;
    san::leave(for_ever ? nullptr : &me->fake, m.host_bottom, m.host_size);
    san::fiber_switch(m.host_fiber);
    context_switch(me->context, m.host_context);
    san::arrive(me->fake, nullptr, nullptr);
}

inline void to_fiber(Fiber &f)
{
    Machine &m = machine();
    m.self = &f;
    m.counters.switches++;
    if (f.state == State::fresh) {
        f.tsan = tsan_get();
        f.stack = MPT_EMU_TSAN ? f.tsan.stack : stack_get();
        f.state = State::ready;
        context_make(f.context, f.stack);
    }
    san::leave(&m.host_fake, f.stack.base, f.stack.size);
    san::fiber_switch(f.tsan.handle);
    context_switch(m.host_context, f.context);
    san::arrive(m.host_fake, nullptr, nullptr);
    m.self = nullptr;
    if (f.state == State::exited) {
        if (!MPT_EMU_TSAN) stack_put(f.stack);
        tsan_put(f.tsan);
    }
}

/* Other threads may run now; only with shuffle, so that plain runs stay easy to follow. */
inline void yield_at_random(unsigned one_in)
{
    Machine &m = machine();
    if (m.self && m.controls.shuffle && random_below(one_in) == 0) to_host(false);
}

/* ------------------------------------------------------------------------------------------ */
// >>E6 blocks and grids

inline void check_exit(const Block &b, const Fiber &f)
{
    if (b.waiting)
        dief("barrier after thread exit: threads wait at %s:%d, thread %u left without reaching it",
             b.barrier_where.file, b.barrier_where.line, f.linear);
    for (const auto &x : b.warps[f.linear / WARP])
        if (x->arrived && (x->mask >> lane_of(f) & 1))
            dief("bad mask %08x: lane %u left the kernel, others wait for it", x->mask, lane_of(f));
}

inline void thread_exit()
{
    Ignore ignore;                   /* ends here: to_host must leave a TSan fiber that is not marked */
    Fiber &me = self();
    check_exit(*me.block, me);
    me.state = State::exited;
    me.block->exited++;
    me.block->left[me.linear / WARP] |= 1u << lane_of(me);
}

inline void fiber_main()
{
    Machine &m = machine();
    san::arrive(nullptr, &m.host_bottom, &m.host_size);
    san::acquire(&m.start_tag);
    (*m.body)();
    san::release(&m.end_tag);
    thread_exit();
    to_host(true);
    abort();
}

[[noreturn]] inline void die_deadlock(const Block &b)
{
    const Fiber *at_barrier = nullptr, *in_warp = nullptr;
    unsigned barriers = 0, warps = 0;
    for (const Fiber &f : b.fibers) {
        if (f.state == State::at_barrier && !barriers++) at_barrier = &f;
        if (f.state == State::in_warp && !warps++) in_warp = &f;
    }
    char text[512];
    int n = snprintf(text, sizeof text, "deadlock:");
    if (at_barrier)
        n += snprintf(text + n, sizeof text - (size_t)n, " %u threads in a barrier (thread %u at %s:%d)",
                      barriers, at_barrier->linear, at_barrier->where.file, at_barrier->where.line);
    if (in_warp && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n,
                 " %u threads in a warp collective (thread %u at %s:%d, mask %08x)", warps, in_warp->linear,
                 in_warp->where.file, in_warp->where.line, in_warp->mask);
    die_in(&b, nullptr, text);
}

inline bool block_done(const Block &b) { return b.exited == b.fibers.size(); }

/* Every thread that can go on does so until it waits. */
inline void block_pass(Block &b)
{
    bool moved = false;
    if (machine().controls.shuffle) shuffle(b.order);
    for (unsigned i : b.order) {
        Fiber &f = b.fibers[i];
        if (f.state != State::fresh && f.state != State::ready) continue;
        to_fiber(f);
        moved = true;
    }
    if (!moved) die_deadlock(b);
}

inline std::unique_ptr<Block> block_start(uint64_t index)
{
    const dim3 g = machine().grid_dim, t = machine().block_dim;
    unsigned n = t.x * t.y * t.z;
    auto b = std::make_unique<Block>();
    b->bid = uint3{(unsigned)(index % g.x), (unsigned)(index / g.x % g.y), (unsigned)(index / g.x / g.y)};
    b->fibers = std::vector<Fiber>(n);
    b->warps = std::vector<Warp>((n + WARP - 1) / WARP);
    b->left = std::vector<uint32_t>(b->warps.size(), 0u);
    b->order.resize(n);
    for (unsigned i = 0; i < n; i++) {
        Fiber &f = b->fibers[i];
        f.block = b.get();
        f.linear = b->order[i] = i;
        f.tid = uint3{i % t.x, i / t.x % t.y, i / t.x / t.y};
    }
    return b;
}

inline void block_finish(Block &b);

/* Up to `resident` blocks are under way; when one is done the next takes its place. */
inline void run_blocks()
{
    Machine &m = machine();
    std::vector<uint64_t> order((uint64_t)m.grid_dim.x * m.grid_dim.y * m.grid_dim.z);
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    if (m.controls.shuffle) shuffle(order);
    std::vector<std::unique_ptr<Block>> running;
    size_t next = 0, limit = m.controls.resident ? m.controls.resident : 1;
    while (next < order.size() || !running.empty()) {
        while (next < order.size() && running.size() < limit) running.push_back(block_start(order[next++]));
        if (m.controls.shuffle) std::swap(running.back(), running[random_below(running.size())]);
        block_pass(*running.back());
        if (block_done(*running.back())) {
            block_finish(*running.back());
            running.pop_back();
        } else {
            std::rotate(running.begin(), running.end() - 1, running.end());
        }
    }
    m.fibers_idle.insert(m.fibers_idle.end(), m.fibers_used.begin(), m.fibers_used.end());
    m.fibers_used.clear();
}

inline void run_grid(dim3 grid, dim3 block, const std::function<void()> &body)
{
    Ignore ignore;
    Machine &m = machine();
    m.counters.kernels++;
    m.grid_dim = grid;
    m.block_dim = block;
    m.body = &body;
    m.host_fiber = san::fiber_current();
    san::release(&m.start_tag);
    run_blocks();
    san::acquire(&m.end_tag);
    m.body = nullptr;
}

/* ------------------------------------------------------------------------------------------ */
// >>E7 barriers and warps

inline void check_barrier(const Block &b, Where where)
{
    if (b.exited)
        dief("barrier after thread exit: at %s:%d, when %u threads of the block have left the kernel",
             where.file, where.line, b.exited);
    if (b.waiting && (b.barrier_where.line != where.line ||
                      (b.barrier_where.file != where.file && strcmp(b.barrier_where.file, where.file))))
        dief("divergent barrier: this thread waits at %s:%d, others at %s:%d", where.file, where.line,
             b.barrier_where.file, b.barrier_where.line);
}

inline void open_barrier(Block &b)
{
    b.result[b.barriers & 1] = b.votes;
    b.barriers++;
    b.waiting = b.votes = 0;
    for (Fiber &f : b.fibers)
        if (f.state == State::at_barrier) f.state = State::ready;
}

/* Returns how many threads of the block came with a true predicate. The tags alternate: with
 * one tag, a thread that is late to leave would also be ordered after what a quick one did
 * between this barrier and the next, and TSan would miss that race. */
inline unsigned barrier(bool predicate, Where where)
{
    Ignore ignore;
    Fiber &me = self();
    Block &b = *me.block;
    check_barrier(b, where);
    unsigned parity = b.barriers & 1;
    san::release(&b.barrier_tag[parity]);
    b.barrier_where = me.where = where;
    b.votes += predicate;
    if (++b.waiting == b.fibers.size()) {
        open_barrier(b);
        yield_at_random(1);
    } else {
        me.state = State::at_barrier;
        to_host(false);
    }
    san::acquire(&b.barrier_tag[parity]);
    return b.result[parity];
}

inline void check_mask(const Block &b, const Fiber &me, uint32_t mask, Where where)
{
    unsigned warp = me.linear / WARP, lanes = (unsigned)b.fibers.size() - warp * WARP;
    uint32_t beyond = lanes < WARP ? mask & ~0u << lanes : 0u, left = mask & b.left[warp];
    if (!(mask >> lane_of(me) & 1))
        dief("bad mask %08x at %s:%d: the calling lane is not in it", mask, where.file, where.line);
    if (left)
        dief("bad mask %08x at %s:%d: lane %d left the kernel", mask, where.file, where.line,
             __builtin_ctz(left));
    if (beyond)
        dief("bad mask %08x at %s:%d: the warp has no lane %d", mask, where.file, where.line,
             __builtin_ctz(beyond));
}

inline Exchange &exchange_of(Warp &warp, uint32_t mask, int operation, Where where)
{
    for (const auto &x : warp) {
        if (x->mask != mask) continue;
        if (x->arrived && x->operation != operation)
            dief("bad warp collective at %s:%d: other lanes of mask %08x do another operation", where.file,
                 where.line, mask);
        x->operation = operation;
        return *x;
    }
    warp.push_back(std::make_unique<Exchange>());
    warp.back()->mask = mask;
    warp.back()->operation = operation;
    return *warp.back();
}

enum { WARP_SYNC, WARP_VOTE, WARP_SHFL, WARP_SHFL_UP, WARP_SHFL_DOWN, WARP_SHFL_XOR };

/* Every lane of the mask stores a value and gets the values of all lanes, which stay valid until all have
 * arrived once more. Only __syncwarp orders what the lanes do in memory: the CUDA programming guide says of
 * votes and shuffles that they imply no memory barrier. */
inline const uint64_t *warp_exchange(uint32_t mask, uint64_t v, int operation, Where where)
{
    Ignore ignore;
    Fiber &me = self();
    Block &b = *me.block;
    check_mask(b, me, mask, where);
    Exchange &x = exchange_of(b.warps[me.linear / WARP], mask, operation, where);
    unsigned parity = x.generation & 1, first = me.linear - lane_of(me);
    x.value[parity][lane_of(me)] = v;
    x.arrived |= 1u << lane_of(me);
    if (operation == WARP_SYNC) san::release(&x.tag[parity]);
    me.where = where;
    me.mask = mask;
    if (x.arrived == mask) {
        x.arrived = 0;
        x.generation++;
        for (unsigned l = 0; l < WARP; l++)
            if ((mask >> l & 1) && l != lane_of(me)) b.fibers[first + l].state = State::ready;
        yield_at_random(1);
    } else {
        me.state = State::in_warp;
        to_host(false);
    }
    if (operation == WARP_SYNC) san::acquire(&x.tag[parity]);
    return x.value[parity];
}

/* ------------------------------------------------------------------------------------------ */
// >>E8 shared memory, and the memory behind cudaMalloc: poisoned and fenced

enum { POISON = 0xff, CANARY = 0xc5, CANARY_BYTES = MPT_EMU_ASAN ? 0 : 64 };

/* With ASan the memory is exactly as long as requested, and ASan's redzones guard it; else a canary lies
 * behind it, which is checked when the memory is freed. Returns null when there is no memory. */
inline char *fenced_alloc(size_t size, size_t alignment)
{
    void *p = nullptr;
    size_t total = size + CANARY_BYTES;
    if (total < size || posix_memalign(&p, alignment, total ? total : 1)) return nullptr;
    memset(p, POISON, size);
    memset((char *)p + size, CANARY, CANARY_BYTES);
    return (char *)p;
}

inline bool fenced_intact(const char *p, size_t size)
{
    for (size_t i = 0; i < CANARY_BYTES; i++)
        if ((unsigned char)p[size + i] != CANARY) return false;
    return true;
}

/* The block's memory for one MPT_SHARED declaration, allocated when the first thread reaches it. */
inline void *shared_memory(const void *key, size_t size, size_t alignment, Where where)
{
    Ignore ignore;
    Block &b = *self().block;
    size_t sum = size;
    for (const Shared &s : b.shared) {
        if (s.key == key) return s.data;
        sum += s.size;
    }
    if (sum > MAX_SHARED)
        dief("too much shared memory: %zu bytes at %s:%d, a block has 48 KB", sum, where.file, where.line);
    char *p = fenced_alloc(size, alignment < 16 ? 16 : alignment);
    if (!p) die("no memory for shared memory");
    b.shared.push_back(Shared{key, p, size});
    return p;
}

inline void block_finish(Block &b)
{
    for (const Shared &s : b.shared) {
        if (!fenced_intact(s.data, s.size)) die_in(&b, nullptr, "write past the end of shared memory");
        free(s.data);
    }
    b.shared.clear();
}

} /* namespace mpt_emu */

/* A reference to an array, so that sizeof and UBSan's bounds check work as on an array. The
 * static char is not shared memory, only its name: one address per declaration and template
 * instance. */
#define MPT_SHARED(T, name, n) \
    static char name##_key; \
    T(&name)[n] = *static_cast<T(*)[n]>(mpt_emu::shared_memory(&name##_key, sizeof(T) * (n), \
                                                               alignof(T), mpt_emu::Where::here()))

/* ------------------------------------------------------------------------------------------ */
// >>E9 kernel language: indices, collectives

#define threadIdx (mpt_emu::self().tid)
#define blockIdx (mpt_emu::self().block->bid)
#define blockDim (mpt_emu::machine().block_dim)
#define gridDim (mpt_emu::machine().grid_dim)
constexpr int warpSize = mpt_emu::WARP;

inline void __syncthreads(mpt_emu::Where w = mpt_emu::Where::here()) { mpt_emu::barrier(false, w); }

inline int __syncthreads_or(int p, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::barrier(p != 0, w) != 0;
}

inline int __syncthreads_and(int p, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::barrier(p == 0, w) == 0;
}

inline int __syncthreads_count(int p, mpt_emu::Where w = mpt_emu::Where::here())
{
    return (int)mpt_emu::barrier(p != 0, w);
}

namespace mpt_emu {

/* The lane that `lane` reads from; its own when the source lies outside its part of the warp. */
inline unsigned shuffle_source(int operation, unsigned lane, int n, unsigned width)
{
    unsigned base = lane & ~(width - 1), last = base + width - 1;
    int from = (int)lane;
    if (operation == WARP_SHFL) return base + ((unsigned)n & (width - 1));
    if (operation == WARP_SHFL_UP) from -= n;
    if (operation == WARP_SHFL_DOWN) from += n;
    if (operation == WARP_SHFL_XOR) from ^= n;
    if (from > (int)last || (operation == WARP_SHFL_UP && from < (int)base) || from < 0) return lane;
    return (unsigned)from;
}

template <class T> T shuffle_sync(int operation, uint32_t mask, T v, int n, int width, Where where)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "CUDA shuffles 32 and 64-bit arithmetic types");
    if (width < 1 || width > WARP || (width & (width - 1)))
        dief("bad shuffle at %s:%d: width %d", where.file, where.line, width);
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    const uint64_t *all = warp_exchange(mask, bits, operation, where);
    unsigned from = shuffle_source(operation, lane_of(self()), n, (unsigned)width);
    if (!(mask >> from & 1))
        dief("bad shuffle at %s:%d: lane %u is read but not in mask %08x", where.file, where.line, from,
             mask);
    {
        Ignore ignore;
        memcpy(&v, &all[from], sizeof v);
    }
    return v;
}

inline uint32_t ballot(uint32_t mask, bool p, Where where)
{
    uint32_t r = 0;
    const uint64_t *all = warp_exchange(mask, p, WARP_VOTE, where);
    Ignore ignore;
    for (unsigned l = 0; l < WARP; l++)
        if ((mask >> l & 1) && all[l]) r |= 1u << l;
    return r;
}

} /* namespace mpt_emu */

inline void __syncwarp(unsigned mask = 0xffffffffu, mpt_emu::Where w = mpt_emu::Where::here())
{
    mpt_emu::warp_exchange(mask, 0, mpt_emu::WARP_SYNC, w);
}

template <class T>
T __shfl_sync(unsigned mask, T v, int lane, int width = 32, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::shuffle_sync(mpt_emu::WARP_SHFL, mask, v, lane, width, w);
}

template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::shuffle_sync(mpt_emu::WARP_SHFL_UP, mask, v, (int)d, width, w);
}

template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::shuffle_sync(mpt_emu::WARP_SHFL_DOWN, mask, v, (int)d, width, w);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::shuffle_sync(mpt_emu::WARP_SHFL_XOR, mask, v, bits, width, w);
}

inline unsigned __ballot_sync(unsigned mask, int p, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::ballot(mask, p != 0, w);
}

inline int __any_sync(unsigned mask, int p, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::ballot(mask, p != 0, w) != 0;
}

inline int __all_sync(unsigned mask, int p, mpt_emu::Where w = mpt_emu::Where::here())
{
    return mpt_emu::ballot(mask, p != 0, w) == mask;
}

/* ------------------------------------------------------------------------------------------ */
// >>E10 kernel language: bits, memory, atomics

namespace mpt_emu {

template <class To, class From> To bit_cast(From from)
{
    static_assert(sizeof(To) == sizeof(From), "bit_cast changes no size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

} /* namespace mpt_emu */

inline unsigned __float_as_uint(float x) { return mpt_emu::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return mpt_emu::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return mpt_emu::bit_cast<float>(x); }
inline float __int_as_float(int x) { return mpt_emu::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return mpt_emu::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return mpt_emu::bit_cast<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
    return r;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t low = al * bl, m1 = ah * bl + (low >> 32), m2 = al * bh + (uint32_t)m1;
    return ah * bh + (m1 >> 32) + (m2 >> 32);
}

/* Loads and stores with a cache hint. They check the alignment, and copy bytes, so that a
 * pointer cast from another type is fine here as it is for nvcc. */
namespace mpt_emu {

template <class T> T load(const T *p)
{
    check_aligned(p, alignof(T));
    T v;
    memcpy(&v, (const void *)p, sizeof v);
    return v;
}

template <class T> void store(T *p, const T &v)
{
    check_aligned(p, alignof(T));
    memcpy((void *)p, &v, sizeof v);
}

template <class T> struct Same { typedef T type; };

} /* namespace mpt_emu */

template <class T> T __ldg(const T *p) { return mpt_emu::load(p); }
template <class T> T __ldca(const T *p) { return mpt_emu::load(p); }
template <class T> T __ldcg(const T *p) { return mpt_emu::load(p); }
template <class T> T __ldcs(const T *p) { return mpt_emu::load(p); }
template <class T> void __stwb(T *p, typename mpt_emu::Same<T>::type v) { mpt_emu::store(p, v); }
template <class T> void __stcg(T *p, typename mpt_emu::Same<T>::type v) { mpt_emu::store(p, v); }
template <class T> void __stcs(T *p, typename mpt_emu::Same<T>::type v) { mpt_emu::store(p, v); }

/* PTX's cvt of a float as the PTX ISA describes it, in double arithmetic: nearest, ties to even; with
 * satfinite, NaN becomes 0x7f in both FP8 formats, and numbers beyond the largest become the largest.
 * cvt.rn.f16.f32 overflows to Inf and turns NaN into 0x7fff. For tests only: kernels take the portable
 * path. */
namespace mpt_emu {

inline unsigned ptx_round(float x, int mbits, int emin, unsigned most, bool satfinite, unsigned nan)
{
    const unsigned sign = std::signbit(x) ? 1u : 0u;
    const double   a = fabs((double)x);
    int            e = 0;
    if (x != x) return nan;
    if (a == 0.0) return sign << 31;
    frexp(a, &e);                                       /* a = f 2^e, f in [1/2, 1) */
    const int      last = (e - 1 > emin ? e - 1 : emin) - mbits;    /* exponent of the last kept bit */
    const double   units = nearbyint(ldexp(a, -last));
    /* units in the last place, and 2^mbits codes more for each binade above the lowest */
    const double   code = units + ldexp((double)(last + mbits - emin), mbits);
    return sign << 31 | (code > (double)most ? satfinite ? most : most + 1u : (unsigned)code);
}

inline unsigned char ptx_cvt_satfinite_e4m3(float x)
{
    const unsigned c = ptx_round(x, 3, -6, 0x7e, true, 0x7f);
    return (unsigned char)(c >> 24 | c);
}
inline unsigned char ptx_cvt_satfinite_e5m2(float x)
{
    const unsigned c = ptx_round(x, 2, -14, 0x7b, true, 0x7f);
    return (unsigned char)(c >> 24 | c);
}
inline unsigned short ptx_cvt_f16(float x)
{
    const unsigned c = ptx_round(x, 10, -14, 0x7bff, false, 0x7fff);
    return (unsigned short)(c >> 16 | c);
}

} /* namespace mpt_emu */

/* Fences. CUDA's atomics are relaxed; two blocks are ordered by "write, fence, atomic" in one and "atomic,
 * fence, read" in the other, where a barrier may stand between the atomic of one thread and the fence of
 * another. TSan is told exactly this, so it sees when either fence is missing. */
inline void __threadfence()
{
    mpt_emu::Machine &m = mpt_emu::machine();
    mpt_emu::Ignore ignore;
    mpt_emu::Fiber &me = mpt_emu::self();
    me.fenced = true;
    if (me.block->used_atomic) mpt_emu::san::acquire(&m.fence_tag);
}

inline void __threadfence_system() { __threadfence(); }

namespace mpt_emu {

inline bool is_device(const void *p);

inline void atomic_begins(const void *p)
{
    Ignore ignore;
    Machine &m = machine();
    if (!m.self) return;
    m.counters.atomics += is_device(p);
    yield_at_random(4);
    if (m.self->fenced) san::release(&m.fence_tag);
    m.self->block->used_atomic = true;
}

template <class T, class F> T atomic_update(T *p, F next)
{
    atomic_begins(p);
    check_aligned(p, sizeof(T));
    T old, wanted;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do wanted = next(old);
    while (!__atomic_compare_exchange(p, &old, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

template <class T> T atomic_add(T *p, T v) { return atomic_update(p, [v](T o) { return (T)(o + v); }); }
template <class T> T atomic_min(T *p, T v) { return atomic_update(p, [v](T o) { return v < o ? v : o; }); }
template <class T> T atomic_max(T *p, T v) { return atomic_update(p, [v](T o) { return v > o ? v : o; }); }
template <class T> T atomic_and(T *p, T v) { return atomic_update(p, [v](T o) { return (T)(o & v); }); }
template <class T> T atomic_or(T *p, T v) { return atomic_update(p, [v](T o) { return (T)(o | v); }); }
template <class T> T atomic_xor(T *p, T v) { return atomic_update(p, [v](T o) { return (T)(o ^ v); }); }
template <class T> T atomic_exchange(T *p, T v) { return atomic_update(p, [v](T) { return v; }); }
template <class T> T atomic_cas(T *p, T if_is, T v)
{
    return atomic_update(p, [if_is, v](T o) { return o == if_is ? v : o; });
}

} /* namespace mpt_emu */

/* Exactly CUDA's overloads: a uint64_t, `unsigned long` on Linux, fails here as it does there. */
#define MPT_EMU_ATOMIC(name, T, how) \
    inline T name(T *p, T v) { return mpt_emu::how(p, v); }
inline int atomicAdd(int *p, int v)
{
    return (int)mpt_emu::atomic_add((unsigned *)(void *)p, (unsigned)v);    /* wraps, as on the GPU */
}
MPT_EMU_ATOMIC(atomicAdd, unsigned, atomic_add)
MPT_EMU_ATOMIC(atomicAdd, unsigned long long, atomic_add)
MPT_EMU_ATOMIC(atomicAdd, float, atomic_add)
MPT_EMU_ATOMIC(atomicAdd, double, atomic_add)
MPT_EMU_ATOMIC(atomicMin, int, atomic_min)
MPT_EMU_ATOMIC(atomicMin, unsigned, atomic_min)
MPT_EMU_ATOMIC(atomicMin, long long, atomic_min)
MPT_EMU_ATOMIC(atomicMin, unsigned long long, atomic_min)
MPT_EMU_ATOMIC(atomicMax, int, atomic_max)
MPT_EMU_ATOMIC(atomicMax, unsigned, atomic_max)
MPT_EMU_ATOMIC(atomicMax, long long, atomic_max)
MPT_EMU_ATOMIC(atomicMax, unsigned long long, atomic_max)
MPT_EMU_ATOMIC(atomicAnd, int, atomic_and)
MPT_EMU_ATOMIC(atomicAnd, unsigned, atomic_and)
MPT_EMU_ATOMIC(atomicAnd, unsigned long long, atomic_and)
MPT_EMU_ATOMIC(atomicOr, int, atomic_or)
MPT_EMU_ATOMIC(atomicOr, unsigned, atomic_or)
MPT_EMU_ATOMIC(atomicOr, unsigned long long, atomic_or)
MPT_EMU_ATOMIC(atomicXor, int, atomic_xor)
MPT_EMU_ATOMIC(atomicXor, unsigned, atomic_xor)
MPT_EMU_ATOMIC(atomicXor, unsigned long long, atomic_xor)
MPT_EMU_ATOMIC(atomicExch, int, atomic_exchange)
MPT_EMU_ATOMIC(atomicExch, unsigned, atomic_exchange)
MPT_EMU_ATOMIC(atomicExch, unsigned long long, atomic_exchange)
MPT_EMU_ATOMIC(atomicExch, float, atomic_exchange)
#undef MPT_EMU_ATOMIC

inline int atomicSub(int *p, int v) { return atomicAdd(p, (int)(0u - (unsigned)v)); }
inline unsigned atomicSub(unsigned *p, unsigned v) { return atomicAdd(p, 0u - v); }

inline unsigned atomicInc(unsigned *p, unsigned last)
{
    return mpt_emu::atomic_update(p, [last](unsigned o) { return o >= last ? 0u : o + 1u; });
}

inline unsigned atomicDec(unsigned *p, unsigned last)
{
    return mpt_emu::atomic_update(p, [last](unsigned o) { return o == 0 || o > last ? last : o - 1u; });
}

inline int atomicCAS(int *p, int if_is, int v) { return mpt_emu::atomic_cas(p, if_is, v); }
inline unsigned atomicCAS(unsigned *p, unsigned if_is, unsigned v)
{
    return mpt_emu::atomic_cas(p, if_is, v);
}
inline unsigned short atomicCAS(unsigned short *p, unsigned short if_is, unsigned short v)
{
    return mpt_emu::atomic_cas(p, if_is, v);
}
inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long if_is, unsigned long long v)
{
    return mpt_emu::atomic_cas(p, if_is, v);
}

/* ------------------------------------------------------------------------------------------ */
// >>E11 streams and operations

namespace mpt_emu {

typedef std::function<void()> Work;
typedef std::shared_ptr<std::vector<Work>> Nodes;

/* One recording of an event. */
struct Mark {
    bool done = false, captured = false;
    std::chrono::steady_clock::time_point when;
};

struct Operation {
    Work work;
    std::shared_ptr<Mark> after;     /* cudaStreamWaitEvent: not before this is done */
    uint64_t ticket;                 /* the order in which the host asked */
};

} /* namespace mpt_emu */

struct CUstream_st {
    std::deque<mpt_emu::Operation> queue;
    int device = -1;                 /* where it was made; -1: the legacy stream, which is everywhere */
    bool blocking = true;            /* synchronizes with the legacy stream */
    bool capturing = false, broken = false;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    mpt_emu::Nodes captured;
    mpt_emu::Where where{"", 0};
};
struct CUevent_st {
    std::shared_ptr<mpt_emu::Mark> mark;
    bool timing = true;
    mpt_emu::Where where{"", 0};
};
struct CUgraph_st {
    mpt_emu::Nodes nodes;
    mpt_emu::Where where{"", 0};
};
struct CUgraphExec_st {
    mpt_emu::Nodes nodes;
    mpt_emu::Where where{"", 0};
};

namespace mpt_emu {

inline cudaError_t fail(cudaError_t e)
{
    machine().last_error = e;
    return e;
}

/* What every runtime call does first. */
inline cudaError_t gate()
{
    Machine &m = machine();
    if (m.self) die("a runtime call inside a kernel");
    if (m.controls.device_error) return fail(m.controls.device_error);
    if (m.controls.device_count < 1) return fail(cudaErrorNoDevice);
    return cudaSuccess;
}

/* Hidden device memory is visible as long as an object of this type lives. */
struct View {
    View() { if (machine().views++ == 0) show(true); }
    ~View() { if (--machine().views == 0) show(false); }
    View(const View &) = delete;
    View &operator=(const View &) = delete;

    static void show(bool visible)
    {
        Machine &m = machine();
        if (visible ? !m.hidden : !m.controls.hide) return;
        for (auto &entry : m.allocations) {
            const Allocation &a = entry.second;
            if (!a.device) continue;
            if (visible) san::unpoison(a.data(), a.size);
            else san::poison(a.data(), a.size);
        }
        m.hidden = !visible;
    }
};

inline CUstream_st &legacy_stream()
{
    static CUstream_st *s = new CUstream_st;
    return *s;
}

/* Null when the handle names no living stream. */
inline CUstream_st *stream_of(cudaStream_t s)
{
    if (!s || s == cudaStreamLegacy) return &legacy_stream();
    return machine().streams.count(s) ? s : nullptr;
}

/* Is there an operation in `s` that the host asked for before `ticket`? */
inline bool earlier_in(const CUstream_st &s, uint64_t ticket)
{
    return !s.queue.empty() && s.queue.front().ticket < ticket;
}

inline bool can_run(const CUstream_st &s)
{
    if (s.queue.empty()) return false;
    const Operation &o = s.queue.front();
    if (o.after && !o.after->done) return false;
    if (&s != &legacy_stream()) return !(s.blocking && earlier_in(legacy_stream(), o.ticket));
    for (const CUstream_st *other : machine().streams)
        if (other->blocking && earlier_in(*other, o.ticket)) return false;
    return true;
}

inline void run_front(CUstream_st &s)
{
    Operation o = std::move(s.queue.front());
    s.queue.pop_front();
    if (!o.work) return;
    View view;
    o.work();
}

/* A stream that can run its next operation, a random one with shuffle; null when there is none. */
inline CUstream_st *pick_stream()
{
    std::vector<CUstream_st *> able;
    if (can_run(legacy_stream())) able.push_back(&legacy_stream());
    for (CUstream_st *s : machine().streams)
        if (can_run(*s)) able.push_back(s);
    if (able.empty()) return nullptr;
    return able[controls().shuffle ? random_below(able.size()) : 0];
}

/* Run until `s` is empty, and of the other streams no more than it waits for. */
inline void drain(CUstream_st &s)
{
    while (!s.queue.empty()) {
        CUstream_st *next = can_run(s) ? &s : pick_stream();
        if (!next) die("deadlock: streams wait for each other");
        run_front(*next);
    }
}

inline void drain_all()
{
    while (CUstream_st *s = pick_stream()) run_front(*s);
}

/* The stream, if any, whose capture forbids what the host is about to do. */
inline CUstream_st *capture_in_the_way(bool blocking_only)
{
    if (machine().thread_mode == cudaStreamCaptureModeRelaxed && !blocking_only) return nullptr;
    for (CUstream_st *s : machine().streams) {
        bool strict = s->capturing && s->mode != cudaStreamCaptureModeRelaxed;
        if (strict && (s->blocking || !blocking_only)) return s;
    }
    return nullptr;
}

/* gate() of a call that waits or allocates: it invalidates a capture that is under way. */
inline cudaError_t gate_unsafe()
{
    if (cudaError_t e = gate()) return e;
    CUstream_st *s = capture_in_the_way(false);
    if (!s) return cudaSuccess;
    s->broken = true;
    return fail(cudaErrorStreamCaptureUnsupported);
}

inline cudaError_t break_capture(CUstream_st *s, cudaError_t e)
{
    s->broken = true;
    return fail(e);
}

/* Hand work to a stream: into the graph, into the queue, or done at once. */
inline cudaError_t enqueue(cudaStream_t handle, Work work, std::shared_ptr<Mark> after = nullptr)
{
    CUstream_st *s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s->capturing) {
        if (s->broken) return fail(cudaErrorStreamCaptureInvalidated);
        if (work) s->captured->push_back(std::move(work));
        return cudaSuccess;
    }
    CUstream_st *capture = s == &legacy_stream() ? capture_in_the_way(true) : nullptr;
    if (capture) return break_capture(capture, cudaErrorStreamCaptureImplicit);
    s->queue.push_back(Operation{std::move(work), std::move(after), ++machine().ticket});
    if (!controls().deferred) drain(*s);
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------------ */
// >>E12 runtime: launch, device, errors

inline bool good_device(int device) { return device >= 0 && device < controls().device_count; }

inline bool good_shape(dim3 g, dim3 b)
{
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return false;
    if (!b.x || !b.y || !b.z || b.x > 1024 || b.y > 1024 || b.z > 64) return false;
    return (uint64_t)b.x * b.y * b.z <= MAX_THREADS;
}

inline cudaError_t launch_work(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t s, Work thread)
{
    if (cudaError_t e = gate()) return e;
    if (shared_bytes) die("dynamic shared memory is not emulated");
    if (!good_shape(grid, block)) return fail(cudaErrorInvalidConfiguration);
    if (due(controls().fail_launch)) return fail(cudaErrorLaunchFailure);
    if (controls().launch_error) return fail(controls().launch_error);
    const CUstream_st *stream = stream_of(s);
    if (stream && stream->device >= 0 && stream->device != machine().device)
        return fail(cudaErrorInvalidResourceHandle);
    counters().launches++;
    return enqueue(s, [=]() { run_grid(grid, block, thread); });
}

/* Launch with the arguments themselves; they are copied, as CUDA copies them. */
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t s, A &&...a)
{
    std::tuple<std::decay_t<P>...> args(static_cast<P>(a)...);
    return launch_work(grid, block, shared_bytes, s, [=]() { std::apply(kernel, args); });
}

template <class... P, size_t... I>
cudaError_t launch_packed(void (*kernel)(P...), dim3 grid, dim3 block, void **args, size_t shared_bytes,
                          cudaStream_t s, std::index_sequence<I...>)
{
    (void)args;                      /* a kernel may have no parameters */
    return launch(kernel, grid, block, shared_bytes, s, *static_cast<std::decay_t<P> *>(args[I])...);
}

} /* namespace mpt_emu */

/* CUDA's C++ overload. The C one, with a void pointer, cannot know the parameters' types. */
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args,
                             size_t shared_bytes = 0, cudaStream_t s = nullptr)
{
    return mpt_emu::launch_packed(kernel, grid, block, args, shared_bytes, s,
                                  std::index_sequence_for<P...>());
}

inline cudaError_t cudaGetLastError()
{
    cudaError_t e = mpt_emu::machine().last_error;
    mpt_emu::machine().last_error = cudaSuccess;
    return e;
}

inline cudaError_t cudaPeekAtLastError() { return mpt_emu::machine().last_error; }

inline const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
#define MPT_EMU_ROW(name, number, text) case name: return #name;
        MPT_EMU_ERRORS(MPT_EMU_ROW)
#undef MPT_EMU_ROW
    }
    return "unrecognized error code";
}

inline const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
#define MPT_EMU_ROW(name, number, text) case name: return text;
        MPT_EMU_ERRORS(MPT_EMU_ROW)
#undef MPT_EMU_ROW
    }
    return "unrecognized error code";
}

inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    if (cudaError_t e = mpt_emu::gate()) return e;
    *n = mpt_emu::controls().device_count;
    return cudaSuccess;
}

inline cudaError_t cudaSetDevice(int device)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::good_device(device)) return mpt_emu::fail(cudaErrorInvalidDevice);
    mpt_emu::machine().device = device;
    return cudaSuccess;
}

inline cudaError_t cudaGetDevice(int *device)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    *device = mpt_emu::machine().device;
    return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int device)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    const mpt_emu::Controls &c = mpt_emu::controls();
    if (!mpt_emu::good_device(device)) return mpt_emu::fail(cudaErrorInvalidDevice);
    switch (a) {
    case cudaDevAttrMaxThreadsPerBlock: *value = mpt_emu::MAX_THREADS; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = mpt_emu::MAX_SHARED; break;
    case cudaDevAttrWarpSize: *value = mpt_emu::WARP; break;
    case cudaDevAttrMultiProcessorCount: *value = c.sms; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *value = c.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = c.minor; break;
    default: return mpt_emu::fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    const mpt_emu::Controls &c = mpt_emu::controls();
    if (!mpt_emu::good_device(device)) return mpt_emu::fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "mpt CPU emulation");
    p->totalGlobalMem = c.total_memory;
    p->sharedMemPerBlock = mpt_emu::MAX_SHARED;
    p->warpSize = mpt_emu::WARP;
    p->maxThreadsPerBlock = mpt_emu::MAX_THREADS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->multiProcessorCount = c.sms;
    p->major = c.major;
    p->minor = c.minor;
    return cudaSuccess;
}

inline cudaError_t cudaDriverGetVersion(int *v)
{
    *v = mpt_emu::controls().device_error ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

inline cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}

/* As if nothing but 2048 threads and 32 blocks limited a multiprocessor. */
template <class K>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, K, int threads, size_t)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (threads < 1 || threads > mpt_emu::MAX_THREADS) return mpt_emu::fail(cudaErrorInvalidValue);
    *blocks = 2048 / threads < 32 ? 2048 / threads : 32;
    return cudaSuccess;
}

inline cudaError_t cudaDeviceSynchronize()
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    mpt_emu::counters().syncs++;
    mpt_emu::drain_all();
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------------ */
// >>E13 runtime: memory

namespace mpt_emu {

/* The allocation that `p` points into; null for any other memory. */
inline const Allocation *allocation_of(const void *p)
{
    auto it = machine().allocations.lower_bound(~(uintptr_t)p);
    if (it == machine().allocations.end()) return nullptr;
    const Allocation &a = it->second;
    return (size_t)((const char *)p - a.data()) < a.size ? &a : nullptr;
}

inline bool inside(const Allocation &a, const void *p, size_t n)
{
    size_t offset = (size_t)((const char *)p - a.data());
    return offset <= a.size && n <= a.size - offset;
}

inline cudaError_t allocate(void **p, size_t n, bool device, Where where)
{
    Machine &m = machine();
    *p = nullptr;
    if (!n) return cudaSuccess;
    bool refused = due(device ? m.controls.fail_malloc : m.controls.fail_malloc_host);
    if (device && m.device_bytes + n > m.controls.total_memory) refused = true;
    char *data = refused ? nullptr : fenced_alloc(n, 256);
    if (!data) return fail(cudaErrorMemoryAllocation);
    uintptr_t hidden = ~(uintptr_t)data;
    m.allocations[hidden] = Allocation{hidden, n, device, ++m.allocation_number, where};
    if (device) m.device_bytes += n;
    if (device && m.controls.hide) {
        san::poison(data, n);
        m.hidden = true;
    }
    m.counters.mallocs++;
    *p = data;
    return cudaSuccess;
}

inline cudaError_t release_memory(void *p, bool device)
{
    Machine &m = machine();
    if (!p) return cudaSuccess;
    drain_all();
    m.counters.syncs++;
    auto it = m.allocations.find(~(uintptr_t)p);
    if (it == m.allocations.end() || it->second.device != device) return fail(cudaErrorInvalidValue);
    const Allocation a = it->second;
    san::unpoison(a.data(), a.size);
    if (!fenced_intact(a.data(), a.size))
        dief("write past the end of the %zu bytes allocated at %s:%d", a.size, a.where.file, a.where.line);
    m.allocations.erase(it);
    if (device) m.device_bytes -= a.size;
    m.counters.frees++;
    free(a.data());
    return cudaSuccess;
}

inline bool is_device(const void *p)
{
    const Allocation *a = allocation_of(p);
    return a && a->device;
}

/* Does the pointer lie where the direction says, and all of the range inside its allocation? */
inline bool good_end(const void *p, size_t n, bool want_device, bool any)
{
    const Allocation *a = allocation_of(p);
    if (!any && want_device != (a && a->device)) return false;
    return !a || inside(*a, p, n);
}

inline bool good_copy(const void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool any = kind == cudaMemcpyDefault;
    return good_end(to, n, to_device, any) && good_end(from, n, from_device, any);
}

inline cudaError_t check_copy(const void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    if ((unsigned)kind > cudaMemcpyDefault) return fail(cudaErrorInvalidMemcpyDirection);
    if (n && (!to || !from || !good_copy(to, from, n, kind))) return fail(cudaErrorInvalidValue);
    if (due(controls().fail_copy)) return fail(cudaErrorUnknown);
    counters().copies++;
    return cudaSuccess;
}

/* CUDA copies ordinary host memory to a staging area before the call returns; page-locked
 * memory is read when the stream gets there. A capture reads when it is replayed. */
inline Work copy_work(void *to, const void *from, size_t n, bool capturing)
{
    bool pageable = !capturing && !allocation_of(from);
    if (!pageable || !n) return [=]() { if (n) memmove(to, from, n); };
    std::vector<char> staged((const char *)from, (const char *)from + n);
    return [to, staged]() { memcpy(to, staged.data(), staged.size()); };
}

inline const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

template <class T> unsigned leaked_handles(const std::set<T *> &set, const char *what)
{
    for (const T *x : set)
        fprintf(stderr, "mpt_emu: leak: %s made at %s:%d\n", what, base_name(x->where.file), x->where.line);
    return (unsigned)set.size();
}

/* Print everything that was made and not yet given back; returns how many. */
inline unsigned leaks()
{
    Machine &m = machine();
    unsigned n = 0;
    for (const auto &entry : m.allocations) {
        const Allocation &a = entry.second;
        fprintf(stderr, "mpt_emu: leak: %zu bytes of %s memory allocated at %s:%d (allocation %lu)\n", a.size,
                a.device ? "device" : "page-locked", base_name(a.where.file), a.where.line, a.number);
        n++;
    }
    n += leaked_handles(m.streams, "stream");
    n += leaked_handles(m.events, "event");
    n += leaked_handles(m.graphs, "graph");
    return n + leaked_handles(m.execs, "executable graph");
}

} /* namespace mpt_emu */

inline cudaError_t cudaMalloc(void **p, size_t n, mpt_emu::Where w = mpt_emu::Where::here())
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    return mpt_emu::allocate(p, n, true, w);
}

template <class T> cudaError_t cudaMalloc(T **p, size_t n, mpt_emu::Where w = mpt_emu::Where::here())
{
    return cudaMalloc((void **)(void *)p, n, w);
}

inline cudaError_t cudaFree(void *p)
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    return mpt_emu::release_memory(p, true);
}

inline cudaError_t cudaMallocHost(void **p, size_t n, mpt_emu::Where w = mpt_emu::Where::here())
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    return mpt_emu::allocate(p, n, false, w);
}

template <class T> cudaError_t cudaMallocHost(T **p, size_t n, mpt_emu::Where w = mpt_emu::Where::here())
{
    return cudaMallocHost((void **)(void *)p, n, w);
}

template <class T>
cudaError_t cudaHostAlloc(T **p, size_t n, unsigned, mpt_emu::Where w = mpt_emu::Where::here())
{
    return cudaMallocHost((void **)(void *)p, n, w);
}

inline cudaError_t cudaFreeHost(void *p)
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    return mpt_emu::release_memory(p, false);
}

inline cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    *total = mpt_emu::controls().total_memory;
    *available = *total - mpt_emu::machine().device_bytes;
    return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                                   cudaStream_t s = nullptr)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (cudaError_t e = mpt_emu::check_copy(to, from, n, kind)) return e;
    CUstream_st *stream = mpt_emu::stream_of(s);
    bool capturing = stream && stream->capturing;
    bool pageable = !mpt_emu::allocation_of(to) || !mpt_emu::allocation_of(from);
    if (pageable) mpt_emu::counters().pageable_copies++;
    return mpt_emu::enqueue(s, mpt_emu::copy_work(to, from, n, capturing));
}

inline cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    if (cudaError_t e = mpt_emu::check_copy(to, from, n, kind)) return e;
    mpt_emu::counters().syncs++;
    /* ordinary memory is staged: the host goes on, and only the default stream waits for the copy */
    const bool staged = mpt_emu::is_device(to) && !mpt_emu::allocation_of(from);
    if (cudaError_t e = mpt_emu::enqueue(nullptr, mpt_emu::copy_work(to, from, n, !staged))) return e;
    if (!staged) mpt_emu::drain(mpt_emu::legacy_stream());
    return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s = nullptr)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    const mpt_emu::Allocation *a = mpt_emu::allocation_of(p);
    if (n && (!a || !mpt_emu::inside(*a, p, n))) return mpt_emu::fail(cudaErrorInvalidValue);
    if (mpt_emu::due(mpt_emu::controls().fail_copy)) return mpt_emu::fail(cudaErrorUnknown);
    mpt_emu::counters().copies++;
    return mpt_emu::enqueue(s, [=]() { if (n) memset(p, value, n); });
}

/* As in CUDA: on device memory it does not wait. */
inline cudaError_t cudaMemset(void *p, int value, size_t n) { return cudaMemsetAsync(p, value, n, nullptr); }

/* ------------------------------------------------------------------------------------------ */
// >>E14 runtime: streams, events, graphs

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags,
                                             mpt_emu::Where w = mpt_emu::Where::here())
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    *s = new CUstream_st;
    (*s)->blocking = !(flags & cudaStreamNonBlocking);
    (*s)->device = mpt_emu::machine().device;
    (*s)->where = w;
    mpt_emu::machine().streams.insert(*s);
    return cudaSuccess;
}

inline cudaError_t cudaStreamCreate(cudaStream_t *s, mpt_emu::Where w = mpt_emu::Where::here())
{
    return cudaStreamCreateWithFlags(s, cudaStreamDefault, w);
}

/* What is still queued is done, but the host must not count on it: no sync is counted. */
inline cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!s || !mpt_emu::machine().streams.count(s)) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    mpt_emu::drain(*s);
    mpt_emu::machine().streams.erase(s);
    delete s;
    return cudaSuccess;
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    CUstream_st *stream = mpt_emu::stream_of(s);
    if (!stream) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    if (stream->capturing) return mpt_emu::break_capture(stream, cudaErrorStreamCaptureUnsupported);
    mpt_emu::counters().syncs++;
    mpt_emu::drain(*stream);
    return cudaSuccess;
}

/* A host that polls makes the device go on by one operation, so that polling comes to an end. */
inline cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    CUstream_st *stream = mpt_emu::stream_of(s);
    if (!stream) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    if (stream->queue.empty()) return cudaSuccess;
    if (CUstream_st *next = mpt_emu::pick_stream()) mpt_emu::run_front(*next);
    return cudaErrorNotReady;
}

inline cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned = 0)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::machine().events.count(event)) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    if (!event->mark) return cudaSuccess;
    CUstream_st *stream = mpt_emu::stream_of(s);
    if (event->mark->captured && stream && !stream->capturing) return mpt_emu::fail(cudaErrorCapturedEvent);
    return mpt_emu::enqueue(s, nullptr, event->mark);
}

inline cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*function)(void *), void *data)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    return mpt_emu::enqueue(s, [=]() { function(data); });
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags,
                                            mpt_emu::Where w = mpt_emu::Where::here())
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    *event = new CUevent_st;
    (*event)->timing = !(flags & cudaEventDisableTiming);
    (*event)->where = w;
    mpt_emu::machine().events.insert(*event);
    return cudaSuccess;
}

inline cudaError_t cudaEventCreate(cudaEvent_t *event, mpt_emu::Where w = mpt_emu::Where::here())
{
    return cudaEventCreateWithFlags(event, cudaEventDefault, w);
}

inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::machine().events.erase(event)) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s = nullptr)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    CUstream_st *stream = mpt_emu::stream_of(s);
    bool known = stream && mpt_emu::machine().events.count(event);
    if (!known) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    auto mark = std::make_shared<mpt_emu::Mark>();
    event->mark = mark;
    mark->captured = stream->capturing;
    if (mark->captured) return cudaSuccess;      /* only an edge of the graph; graphs are linear here */
    return mpt_emu::enqueue(s, [mark]() {
        mark->done = true;
        mark->when = std::chrono::steady_clock::now();
    });
}

inline cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    if (!mpt_emu::machine().events.count(event)) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    if (!event->mark || event->mark->done) return cudaSuccess;
    if (event->mark->captured) return mpt_emu::fail(cudaErrorCapturedEvent);
    if (CUstream_st *next = mpt_emu::pick_stream()) mpt_emu::run_front(*next);
    return cudaErrorNotReady;
}

inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (cudaError_t e = mpt_emu::gate_unsafe()) return e;
    if (!mpt_emu::machine().events.count(event)) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    mpt_emu::counters().syncs++;
    if (!event->mark) return cudaSuccess;
    if (event->mark->captured) return mpt_emu::fail(cudaErrorCapturedEvent);
    while (!event->mark->done) {
        CUstream_st *next = mpt_emu::pick_stream();
        if (!next) mpt_emu::die("deadlock: streams wait for each other");
        mpt_emu::run_front(*next);
    }
    return cudaSuccess;
}

inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    for (cudaEvent_t event : {from, to})
        if (!mpt_emu::machine().events.count(event) || !event->timing || !event->mark)
            return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    if (!from->mark->done || !to->mark->done) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(to->mark->when - from->mark->when).count();
    return cudaSuccess;
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    CUstream_st *stream = mpt_emu::stream_of(s);
    if (!stream) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    if (stream == &mpt_emu::legacy_stream()) return mpt_emu::fail(cudaErrorStreamCaptureUnsupported);
    if (stream->capturing) return mpt_emu::fail(cudaErrorIllegalState);
    stream->capturing = true;
    stream->broken = false;
    stream->mode = mode;
    stream->captured = std::make_shared<std::vector<mpt_emu::Work>>();
    return cudaSuccess;
}

inline cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g,
                                        mpt_emu::Where w = mpt_emu::Where::here())
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    *g = nullptr;
    CUstream_st *stream = mpt_emu::stream_of(s);
    if (!stream) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    if (!stream->capturing) return mpt_emu::fail(cudaErrorIllegalState);
    stream->capturing = false;
    mpt_emu::Nodes nodes = std::move(stream->captured);
    if (stream->broken) return mpt_emu::fail(cudaErrorStreamCaptureInvalidated);
    *g = new CUgraph_st;
    (*g)->nodes = nodes;
    (*g)->where = w;
    mpt_emu::machine().graphs.insert(*g);
    return cudaSuccess;
}

/* The calling thread's rule for calls that wait or allocate, exchanged with *mode. */
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    std::swap(*mode, mpt_emu::machine().thread_mode);
    return cudaSuccess;
}

inline cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    CUstream_st *stream = mpt_emu::stream_of(s);
    if (!stream) return mpt_emu::fail(cudaErrorInvalidResourceHandle);
    *status = !stream->capturing ? cudaStreamCaptureStatusNone
              : stream->broken   ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* Only the number of nodes: `nodes` must be null. */
inline cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::machine().graphs.count(g) || nodes) return mpt_emu::fail(cudaErrorInvalidValue);
    *n = g->nodes->size();
    return cudaSuccess;
}

inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long = 0,
                                        mpt_emu::Where w = mpt_emu::Where::here())
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::machine().graphs.count(g)) return mpt_emu::fail(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st;
    (*exec)->nodes = g->nodes;
    (*exec)->where = w;
    mpt_emu::machine().execs.insert(*exec);
    return cudaSuccess;
}

inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t g,
                                                 unsigned long long flags,
                                                 mpt_emu::Where w = mpt_emu::Where::here())
{
    return cudaGraphInstantiate(exec, g, flags, w);
}

inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::machine().execs.count(exec)) return mpt_emu::fail(cudaErrorInvalidValue);
    if (mpt_emu::due(mpt_emu::controls().fail_launch)) return mpt_emu::fail(cudaErrorLaunchFailure);
    mpt_emu::counters().graph_launches++;
    mpt_emu::Nodes nodes = exec->nodes;          /* outlives the executable graph, as in CUDA */
    return mpt_emu::enqueue(s, [nodes]() {
        for (const mpt_emu::Work &work : *nodes) work();
    });
}

inline cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::machine().graphs.erase(g)) return mpt_emu::fail(cudaErrorInvalidValue);
    delete g;
    return cudaSuccess;
}

inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    if (cudaError_t e = mpt_emu::gate()) return e;
    if (!mpt_emu::machine().execs.erase(exec)) return mpt_emu::fail(cudaErrorInvalidValue);
    delete exec;
    return cudaSuccess;
}

#endif /* MPT_EMU_CUDA_RUNTIME_H */
