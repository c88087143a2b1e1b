/* mpt_cuda.h -- the mixed-precision step of mpt.h on an NVIDIA GPU, without a host sync.
 *
 * Use it: your C and C++ files only #include "mpt_cuda.h"; it needs no CUDA header there. One file,
 * compiled by nvcc, holds the rest:
 *
 *     // mpt_impl.cu:   nvcc -O2 -c mpt_impl.cu
 *     #define MPT_IMPLEMENTATION          // mpt_half.h, mpt.h and mpt_cuda.h
 *     #include "mpt_cuda.h"
 *
 * (MPT_CUDA_IMPLEMENTATION in its place emits this header alone, where a C file emits the other two.)
 * Then, with tensors whose pointers are device memory:
 *
 *     mpt_cuda *gpu; mpt_cuda_list *list; mpt_cuda_state *state;
 *     mpt_cuda_create(&gpu, 0);
 *     mpt_cuda_list_create(gpu, &list, tensors, count);
 *     mpt_cuda_state_create(gpu, &state, &scaler, lr);
 *     for (...) {                         // or capture one round in a CUDA graph and replay it
 *         mpt_cuda_scaler_scale_n(gpu, state, dlogits, n, stream);     // 1 scale
 *         backward(stream);                                            // 2 backward, your code
 *         mpt_cuda_check(gpu, list, state, stream);                    // 3 check
 *         mpt_cuda_adamw_step(gpu, list, state, &adamw, stream);       // 4 step
 *         mpt_cuda_scaler_update(gpu, state, stream);                  // 5 update
 *     }
 *
 * Scale, found_inf, step count, norm and learning rate live in one struct in device memory, so no call
 * between create and destroy waits for the GPU, allocates, or reads anything back; each only queues
 * work on its stream. The kernels call the per-element functions of mpt_half.h and mpt.h and add on
 * the same tree, so results equal those of the CPU bit for bit (compiled without fast-math there).
 *
 * What it does NOT do: your forward and backward pass; several GPUs; FP8; managed memory.
 *
 * Contents (search for the mark):
 *   >>C1 types                    >>C6 kernel helpers
 *   >>C2 context                  >>C7 context, list, state
 *   >>C3 conversion               >>C8 kernels: conversion
 *   >>C4 list and state           >>C9 kernels: scale, check, clip, update
 *   >>C5 the step                 >>C10 kernels: optimizers
 *   >>C11 to add a kernel         >>C12 licence
 */
#include "mpt.h"    /* above the guard: a second include with MPT_IMPLEMENTATION still emits all */

#ifndef MPT_CUDA_H
#define MPT_CUDA_H

// >>C1 types --------------------------------------------------------------------------------------
/* The CUDA Toolkit's own tag, so that a cudaStream_t passes without a cast, in C and in C++.
 * NULL is the default stream. */
struct CUstream_st;
typedef struct CUstream_st *mpt_stream;

typedef struct mpt_cuda      mpt_cuda;         /* one device: what we know of it, the last error */
typedef struct mpt_cuda_list mpt_cuda_list;    /* a tensor list as a table in device memory */

/* Lives in device memory; plain and free of pointers, so a copy of it is a checkpoint. */
typedef struct mpt_cuda_state {
    mpt_scaler scaler;          /* as in mpt.h */
    mpt_step   step;            /* as in mpt.h: found_inf, norm, clip factor of the current step */
    uint64_t   t;               /* optimizer steps taken; skipped ones not counted */
    float      lr;              /* learning rate; change it with mpt_cuda_lr_set */
    uint32_t   misuse;          /* calls in a wrong order; each of them changed nothing else */
    uint32_t   blocks_done;     /* between kernels: 0 */
    uint32_t   bad;             /* between kernels: 0 */
} mpt_cuda_state;

// >>C2 context ------------------------------------------------------------------------------------
/* mpt_cuda_create -- look at a device and make it current.
 *   out     out  set even on an error (unless out of memory: NULL), so that the error text can be read;
 *                destroy it in any case
 *   device  in   CUDA's device number, 0 and more
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_MEMORY, MPT_E_CUDA (no driver, no such device).
 * May wait for the device.  Threads: one caller per context. */
MPT_DEF mpt_status mpt_cuda_create(mpt_cuda **out, int device);

/* mpt_cuda_destroy -- free a context; NULL is allowed. Lists and states are destroyed before it. */
MPT_DEF void mpt_cuda_destroy(mpt_cuda *c);

/* mpt_cuda_error_text -- the last failed call of this context: which one, why, and what to do.
 * Returns: a string that lives until the next call; "no error" if there was none. */
MPT_DEF const char *mpt_cuda_error_text(const mpt_cuda *c);

/* mpt_cuda_error_code -- the cudaError_t of the last failed call; 0 if none or if not CUDA's. */
MPT_DEF int mpt_cuda_error_code(const mpt_cuda *c);

// >>C3 conversion ---------------------------------------------------------------------------------
/* mpt_cuda_f16_from_f32_n and the three others -- as their twins in mpt_half.h, on device memory.
 *   dst     out  [n], aligned to its element; 16-byte aligned arrays go at full speed
 *   src     in   [n]; must not overlap dst
 *   stream  in   queued there, nothing waits
 * Returns: MPT_OK.  Errors: MPT_E_ARG (NULL with n > 0), MPT_E_CUDA.
 * Parity: bit-exact host/device, NaN included. */
MPT_DEF mpt_status mpt_cuda_f16_from_f32_n(mpt_cuda *c, mpt_f16 *dst, const float *src, size_t n,
                                           mpt_stream stream);
MPT_DEF mpt_status mpt_cuda_f32_from_f16_n(mpt_cuda *c, float *dst, const mpt_f16 *src, size_t n,
                                           mpt_stream stream);
MPT_DEF mpt_status mpt_cuda_bf16_from_f32_n(mpt_cuda *c, mpt_bf16 *dst, const float *src, size_t n,
                                            mpt_stream stream);
MPT_DEF mpt_status mpt_cuda_f32_from_bf16_n(mpt_cuda *c, float *dst, const mpt_bf16 *src, size_t n,
                                            mpt_stream stream);

// >>C4 list and state -----------------------------------------------------------------------------
/* mpt_cuda_list_create -- put a tensor list into a device table; one launch then serves all tensors.
 *   out      out  NULL on an error
 *   tensors  in   [count], in host memory; the arrays they point to are device memory. Formats may
 *                 differ from tensor to tensor. The table is a copy: later changes are not seen.
 * A list serves one stream at a time: it owns the partial sums of mpt_cuda_check.
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED, MPT_E_MEMORY, MPT_E_CUDA; nothing leaks.
 * Allocates and waits for the device. */
MPT_DEF mpt_status mpt_cuda_list_create(mpt_cuda *c, mpt_cuda_list **out, const mpt_tensor *tensors,
                                        size_t count);

/* mpt_cuda_list_destroy -- free the table, not the tensors; NULL is allowed. Waits for the device. */
MPT_DEF void mpt_cuda_list_destroy(mpt_cuda_list *list);

/* mpt_cuda_state_create -- the device-resident state of one training run.
 *   out     out  device memory, or NULL on an error; kernels of yours may read it
 *   scaler  in   in host memory, from mpt_scaler_init or an earlier run
 *   lr      in   learning rate, 0 and more
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_MEMORY, MPT_E_CUDA.  Allocates and waits for the device. */
MPT_DEF mpt_status mpt_cuda_state_create(mpt_cuda *c, mpt_cuda_state **out, const mpt_scaler *scaler,
                                         float lr);

/* mpt_cuda_state_destroy -- free it; NULL is allowed. Waits for the device. */
MPT_DEF void mpt_cuda_state_destroy(mpt_cuda_state *state);

/* mpt_cuda_state_set -- queue a whole state, for instance from a checkpoint. The value is copied at
 * the call, also under graph capture (a captured copy from host memory would be read again at each
 * replay).  Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_CUDA. */
MPT_DEF mpt_status mpt_cuda_state_set(mpt_cuda *c, mpt_cuda_state *state, const mpt_cuda_state *host,
                                      mpt_stream stream);

/* mpt_cuda_state_get -- queue a copy to the host; valid once the stream got there. Page-locked host
 * memory keeps the copy asynchronous.  Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_CUDA. */
MPT_DEF mpt_status mpt_cuda_state_get(mpt_cuda *c, mpt_cuda_state *host, const mpt_cuda_state *state,
                                      mpt_stream stream);

/* mpt_cuda_lr_set -- queue a new learning rate, 0 and more.  Errors: MPT_E_ARG, MPT_E_CUDA. */
MPT_DEF mpt_status mpt_cuda_lr_set(mpt_cuda *c, mpt_cuda_state *state, float lr, mpt_stream stream);

// >>C5 the step -----------------------------------------------------------------------------------
/* The same five verbs as in mpt.h, queued on a stream. The order of calls is checked on the device,
 * where a graph replays them: a call out of order changes nothing but state->misuse, which counts it (and
 * a refused check sets step.found_inf, as on the CPU).
 * All return MPT_OK, or MPT_E_ARG, or MPT_E_CUDA, and write nothing on an error. */

/* mpt_cuda_scaler_scale_n -- multiply the gradient that starts the backward pass by the scale.
 *   x  in/out  [n], device memory
 * A kernel of yours may instead multiply by state->scaler.scale; then call this once with n = 0, so that
 * the scale counts as in use. */
MPT_DEF mpt_status mpt_cuda_scaler_scale_n(mpt_cuda *c, mpt_cuda_state *state, float *x, size_t n,
                                           mpt_stream stream);

/* mpt_cuda_check, mpt_cuda_unscale -- as mpt_check and mpt_unscale, in one launch over all tensors. */
MPT_DEF mpt_status mpt_cuda_check(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                  mpt_stream stream);
MPT_DEF mpt_status mpt_cuda_unscale(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                    mpt_stream stream);

/* mpt_cuda_clip -- as mpt_clip. */
MPT_DEF mpt_status mpt_cuda_clip(mpt_cuda *c, mpt_cuda_state *state, float max_norm, mpt_stream stream);

/* mpt_cuda_sgd_step, mpt_cuda_adamw_step -- as mpt_sgd_step and mpt_adamw_step, in one launch.
 *   o  in  host memory; hyperparameters, copied at the call. Learning rate and step count are those of
 *          the state: o->lr and o->t are ignored. */
MPT_DEF mpt_status mpt_cuda_sgd_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                     const mpt_sgd *o, mpt_stream stream);
MPT_DEF mpt_status mpt_cuda_adamw_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                       const mpt_adamw *o, mpt_stream stream);

/* mpt_cuda_scaler_update -- as mpt_scaler_update. */
MPT_DEF mpt_status mpt_cuda_scaler_update(mpt_cuda *c, mpt_cuda_state *state, mpt_stream stream);

#endif /* MPT_CUDA_H */

/* In a .cu file MPT_IMPLEMENTATION emits all three headers; in a C file only the other two. The tests
 * compile the very same source against a CPU emulation, which says MPT_CUDA_EMU. */
#if defined(__CUDACC__) || defined(MPT_CUDA_EMU)
#if (defined(MPT_IMPLEMENTATION) || defined(MPT_STATIC)) && !defined(MPT_CUDA_IMPLEMENTATION)
#define MPT_CUDA_IMPLEMENTATION
#endif
#elif defined(MPT_CUDA_IMPLEMENTATION)
#error "MPT_CUDA_IMPLEMENTATION needs nvcc: put it in a .cu file"
#endif

#if defined(MPT_CUDA_IMPLEMENTATION) && !defined(MPTI_CUDA_IMPLEMENTED)
#define MPTI_CUDA_IMPLEMENTED

#include <cuda_runtime.h>
#include <stdlib.h>

// >>C6 kernel helpers -----------------------------------------------------------------------------
#ifndef MPT_SHARED
#define MPT_SHARED(T, name, n) __shared__ T name[n]
#endif
#ifdef __CUDA_ARCH__
#define MPTI_UNROLL _Pragma("unroll")
#else
#define MPTI_UNROLL
#endif
#define MPTI_D static __device__ __forceinline__

/* A block is 256 threads of 8 elements: one row of MPTI_LANES, and thread t owns lanes 8t .. 8t + 7.
 * Eight 16-bit elements are one 16-byte access, the widest there is. */
#define MPTI_THREADS 256u
#define MPTI_VEC     8u
#define MPTI_WARPS   (MPTI_THREADS / 32u)
static_assert(MPTI_THREADS * MPTI_VEC == MPTI_LANES, "a block is one row of lanes");
static_assert(MPTI_THREADS == MPTI_SLOTS, "thread t of the last block adds slot t");

/* One tensor and one chunk of a tensor, as the kernels see them. */
typedef struct mpti_cuda_tensor {
    float   *master, *m, *v;
    void    *param, *grad;
    uint64_t n;
    int32_t  param_format, grad_format;
} mpti_cuda_tensor;
typedef struct mpti_cuda_chunk {
    uint64_t first;
    uint32_t tensor, n;
} mpti_cuda_chunk;

MPTI_D bool mpti_is_aligned16(const void *p) { return (uintptr_t)p % 16 == 0; }

/* __ldcs and __stcs: these arrays are larger than the cache and touched once per step, so they need
 * not push out what the next layer reads. */
MPTI_D void mpti_load16(const void *p, uint32_t w[4])
{
    const uint4 q = __ldcs(reinterpret_cast<const uint4 *>(p));
    w[0] = q.x;
    w[1] = q.y;
    w[2] = q.z;
    w[3] = q.w;
}

MPTI_D void mpti_store16(void *p, const uint32_t w[4])
{
    __stcs(reinterpret_cast<uint4 *>(p), make_uint4(w[0], w[1], w[2], w[3]));
}

MPTI_D uint16_t mpti_encode16(int32_t format, float x)
{
    return format == MPT_F16 ? mpti_f16_encode(mpti_f32_bits(x)) : mpti_bf16_encode(mpti_f32_bits(x));
}

MPTI_D float mpti_decode16(int32_t format, uint16_t code)
{
    return mpti_f32_make(format == MPT_F16 ? mpti_f16_decode(code) : mpti_bf16_decode(code));
}

/* Eight aligned elements as floats, in one access (two for FP32). The format is the same for a whole
 * chunk, so the branch on it does not diverge. */
MPTI_D void mpti_load8(const void *array, int32_t format, uint64_t i, float x[MPTI_VEC])
{
    uint32_t w[4];
    if (format == MPT_F32) {
        MPTI_UNROLL
        for (int half = 0; half < 2; half++) {
            mpti_load16((const float *)array + i + 4 * half, w);
            MPTI_UNROLL
            for (int k = 0; k < 4; k++) x[4 * half + k] = mpti_f32_make(w[k]);
        }
        return;
    }
    mpti_load16((const uint16_t *)array + i, w);
    MPTI_UNROLL
    for (uint32_t k = 0; k < MPTI_VEC; k++)
        x[k] = mpti_decode16(format, (uint16_t)(w[k / 2] >> (16 * (k % 2))));
}

MPTI_D void mpti_store8(void *array, int32_t format, uint64_t i, const float x[MPTI_VEC])
{
    uint32_t w[4];
    if (format == MPT_F32) {
        MPTI_UNROLL
        for (int half = 0; half < 2; half++) {
            MPTI_UNROLL
            for (int k = 0; k < 4; k++) w[k] = mpti_f32_bits(x[4 * half + k]);
            mpti_store16((float *)array + i + 4 * half, w);
        }
        return;
    }
    MPTI_UNROLL
    for (int k = 0; k < 4; k++)
        w[k] = mpti_encode16(format, x[2 * k]) | (uint32_t)mpti_encode16(format, x[2 * k + 1]) << 16;
    mpti_store16((uint16_t *)array + i, w);
}

/* The first `count` of eight elements; one by one at an array's end or where it is not aligned. */
MPTI_D void mpti_load_some(const void *array, int32_t format, uint64_t i, uint32_t count, float x[MPTI_VEC])
{
    const bool whole = count >= MPTI_VEC &&
        mpti_is_aligned16((const char *)array + i * (format == MPT_F32 ? 4 : 2));
    if (whole) {
        mpti_load8(array, format, i, x);
        return;
    }
    MPTI_UNROLL
    for (uint32_t k = 0; k < MPTI_VEC; k++)
        x[k] = k >= count           ? 0.0f
               : format == MPT_F32 ? ((const float *)array)[i + k]
                                    : mpti_decode16(format, ((const uint16_t *)array)[i + k]);
}

MPTI_D void mpti_store_some(void *array, int32_t format, uint64_t i, uint32_t count, const float x[MPTI_VEC])
{
    const bool whole = count >= MPTI_VEC &&
        mpti_is_aligned16((const char *)array + i * (format == MPT_F32 ? 4 : 2));
    if (whole) {
        mpti_store8(array, format, i, x);
        return;
    }
    MPTI_UNROLL
    for (uint32_t k = 0; k < MPTI_VEC; k++)
        if (k < count) {
            if (format == MPT_F32)
                ((float *)array)[i + k] = x[k];
            else
                ((uint16_t *)array)[i + k] = mpti_encode16(format, x[k]);
        }
}

/* True in every thread of the one block that gets here last: it sees what all others wrote. The
 * counter wraps to 0 by itself for the next kernel. */
MPTI_D bool mpti_is_last_block(uint32_t *blocks_done)
{
    MPT_SHARED(uint32_t, last, 1);
    __syncthreads();                    /* all threads of this block are done */
    if (threadIdx.x == 0) {
        __threadfence();                /* our results before our count */
        last[0] = atomicInc(blocks_done, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();                /* their counts before their results */
    }
    __syncthreads();
    return last[0] != 0;
}

/* Launch by function, not by <<<>>>, so that a plain C++ compiler reads this file too. Arguments are
 * converted to the parameter types first, which is what the pointer array needs. */
template <class T> struct mpti_same { typedef T type; };
template <class... P>
static cudaError_t mpti_launch(void (*kernel)(P...), unsigned blocks, unsigned threads, mpt_stream stream,
                               typename mpti_same<P>::type... args)
{
    void *pointers[] = {(void *)&args...};
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), pointers, 0, stream);
}

// >>C7 context, list, state -----------------------------------------------------------------------
struct mpt_cuda {
    int  device, multiprocessors;
    int  code;
    char text[256];
};

struct mpt_cuda_list {
    mpt_cuda         *context;
    mpti_cuda_tensor *tensors;      /* device, [count] */
    mpti_cuda_chunk  *chunks;       /* device, [chunk_count] */
    double           *partial;      /* device, [chunk_count] */
    uint64_t          chunk_count;
    unsigned          has;          /* MPT_NEEDS_* that every tensor of the list meets */
};

/* "call: why (advice)"; cut off if it is too long */
static void mpti_cuda_say(mpt_cuda *c, const char *call, const char *why, const char *advice)
{
    const char *const part[] = {call, ": ", why, advice};
    size_t            length = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        for (const char *s = part[i]; *s && length + 1 < sizeof c->text; s++) c->text[length++] = *s;
    c->text[length] = '\0';
}

static mpt_status mpti_cuda_bad(mpt_cuda *c, mpt_status status, const char *call, const char *why)
{
    if (c) {
        c->code = 0;
        mpti_cuda_say(c, call, why, "");
    }
    return status;
}

/* What a person can do about the errors that befall everybody once. */
static const char *mpti_cuda_advice(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation:
        return " (free device memory or make the model or batch smaller)";
    case cudaErrorInsufficientDriver:
        return " (install or update the NVIDIA driver; the CPU functions of mpt.h need none)";
    case cudaErrorNoDevice:
        return " (no NVIDIA GPU is visible; the CPU functions of mpt.h need none)";
    case cudaErrorInvalidDevice:
        return " (device numbers start at 0)";
    case cudaErrorNoKernelImageForDevice:
        return " (compile with -arch for this GPU)";
    default:
        return "";
    }
}

static mpt_status mpti_cuda_result(mpt_cuda *c, cudaError_t e, const char *call)
{
    if (e == cudaSuccess)
        return MPT_OK;
    (void)cudaGetLastError();           /* not sticky: do not let the user's next check see it */
    c->code = (int)e;
    mpti_cuda_say(c, call, cudaGetErrorString(e), mpti_cuda_advice(e));
    return e == cudaErrorMemoryAllocation ? MPT_E_MEMORY : MPT_E_CUDA;
}

MPT_DEF mpt_status mpt_cuda_create(mpt_cuda **out, int device)
{
    const char *const name = "mpt_cuda_create";
    mpt_status status;
    if (!out)
        return MPT_E_ARG;
    *out = (mpt_cuda *)calloc(1, sizeof **out);
    if (!*out)
        return MPT_E_MEMORY;
    (*out)->device = device;
    if (device < 0)
        return mpti_cuda_bad(*out, MPT_E_ARG, name, "device numbers start at 0");
    status = mpti_cuda_result(*out, cudaSetDevice(device), name);
    if (status == MPT_OK)
        status = mpti_cuda_result(*out, cudaDeviceGetAttribute(&(*out)->multiprocessors,
                                                               cudaDevAttrMultiProcessorCount, device), name);
    return status;
}

MPT_DEF void mpt_cuda_destroy(mpt_cuda *c) { free(c); }

MPT_DEF const char *mpt_cuda_error_text(const mpt_cuda *c)
{
    if (!c)
        return "there is no context: mpt_cuda_create was never called, or ran out of memory";
    return *c->text ? c->text : "no error";
}

MPT_DEF int mpt_cuda_error_code(const mpt_cuda *c) { return c ? c->code : 0; }

/* Enough blocks to fill the machine eight times over, at most one per chunk; a kernel loops over the
 * rest. Results do not depend on this number. */
static unsigned mpti_cuda_blocks(const mpt_cuda *c, uint64_t chunks)
{
    const uint64_t most = (uint64_t)c->multiprocessors * 8u;
    return (unsigned)(chunks < 1u ? 1u : chunks < most ? chunks : most);
}

/* Fill the host images of the device tables; chunk may be NULL to count only. */
static uint64_t mpti_cuda_tabulate(const mpt_tensor *t, size_t count, mpti_cuda_tensor *row,
                                   mpti_cuda_chunk *chunk)
{
    uint64_t chunks = 0;
    for (size_t i = 0; i < count; i++) {
        if (row) {
            row[i].master = t[i].master;
            row[i].m = t[i].m;
            row[i].v = t[i].v;
            row[i].param = t[i].param;
            row[i].grad = t[i].grad;
            row[i].n = t[i].n;
            row[i].param_format = (int32_t)t[i].param_format;
            row[i].grad_format = (int32_t)t[i].grad_format;
        }
        for (uint64_t first = 0; first < t[i].n; first += MPTI_CHUNK, chunks++)
            if (chunk) {
                chunk[chunks].first = first;
                chunk[chunks].tensor = (uint32_t)i;
                chunk[chunks].n = (uint32_t)(t[i].n - first < MPTI_CHUNK ? t[i].n - first : MPTI_CHUNK);
            }
    }
    return chunks;
}

/* Allocate the tables and copy them over. What was made before a failure is freed by the caller. */
static mpt_status mpti_cuda_list_fill(mpt_cuda_list *l, const mpt_tensor *tensors, size_t count)
{
    const char *const name = "mpt_cuda_list_create";
    mpt_cuda *const   c = l->context;
    const size_t      tensor_bytes = (count ? count : 1) * sizeof(mpti_cuda_tensor);
    const size_t      chunks = (size_t)(l->chunk_count ? l->chunk_count : 1);
    const size_t      chunk_bytes = chunks * sizeof(mpti_cuda_chunk);
    mpti_cuda_tensor *row = (mpti_cuda_tensor *)calloc(1, tensor_bytes);
    mpti_cuda_chunk  *chunk = (mpti_cuda_chunk *)calloc(1, chunk_bytes);
    cudaError_t       e = row && chunk ? cudaSuccess : cudaErrorMemoryAllocation;
    if (e == cudaSuccess)
        (void)mpti_cuda_tabulate(tensors, count, row, chunk);
    if (e == cudaSuccess) e = cudaMalloc((void **)&l->tensors, tensor_bytes);
    if (e == cudaSuccess) e = cudaMalloc((void **)&l->chunks, chunk_bytes);
    if (e == cudaSuccess) e = cudaMalloc((void **)&l->partial, chunks * sizeof(double));
    if (e == cudaSuccess) e = cudaMemcpy(l->tensors, row, tensor_bytes, cudaMemcpyHostToDevice);
    if (e == cudaSuccess) e = cudaMemcpy(l->chunks, chunk, chunk_bytes, cudaMemcpyHostToDevice);
    free(row);
    free(chunk);
    return mpti_cuda_result(c, e, name);
}

MPT_DEF mpt_status mpt_cuda_list_create(mpt_cuda *c, mpt_cuda_list **out, const mpt_tensor *tensors,
                                        size_t count)
{
    const char *const name = "mpt_cuda_list_create";
    mpt_fault         fault;
    mpt_status        status;
    if (out)
        *out = NULL;
    if (!c || !out)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    status = mpt_tensors_validate(tensors, count, MPT_NEEDS_GRAD, &fault);
    if (status != MPT_OK)
        return mpti_cuda_bad(c, status, name, fault.why);
    if (count > 0xffffffffu)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "more than 2^32 - 1 tensors");
    mpt_cuda_list *l = (mpt_cuda_list *)calloc(1, sizeof *l);
    if (!l)
        return mpti_cuda_bad(c, MPT_E_MEMORY, name, "out of host memory");
    l->context = c;
    l->chunk_count = mpti_cuda_tabulate(tensors, count, NULL, NULL);
    for (unsigned need = MPT_NEEDS_MASTER; need <= MPT_NEEDS_V; need *= 2u)
        if (mpt_tensors_validate(tensors, count, need, NULL) == MPT_OK)
            l->has |= need;
    status = mpti_cuda_list_fill(l, tensors, count);
    if (status != MPT_OK) {
        mpt_cuda_list_destroy(l);
        return status;
    }
    *out = l;
    return MPT_OK;
}

MPT_DEF void mpt_cuda_list_destroy(mpt_cuda_list *list)
{
    if (!list)
        return;
    (void)cudaFree(list->tensors);
    (void)cudaFree(list->chunks);
    (void)cudaFree(list->partial);
    free(list);
}

static __global__ void __launch_bounds__(32) mpti_k_state_set(mpt_cuda_state *state, mpt_cuda_state value)
{
    *state = value;
}

static __global__ void __launch_bounds__(32) mpti_k_lr_set(mpt_cuda_state *state, float lr)
{
    state->lr = lr;
}

MPT_DEF mpt_status mpt_cuda_state_set(mpt_cuda *c, mpt_cuda_state *state, const mpt_cuda_state *host,
                                      mpt_stream stream)
{
    const char *const name = "mpt_cuda_state_set";
    if (!c || !state || !host)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    return mpti_cuda_result(c, mpti_launch(mpti_k_state_set, 1, 1, stream, state, *host), name);
}

MPT_DEF mpt_status mpt_cuda_state_create(mpt_cuda *c, mpt_cuda_state **out, const mpt_scaler *scaler,
                                         float lr)
{
    const char *const name = "mpt_cuda_state_create";
    mpt_cuda_state    host;
    mpt_status        status;
    if (out)
        *out = NULL;
    if (!c || !out || !scaler)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    if (!(scaler->scale > 0.0f) || !(lr >= 0.0f) || !mpti_f32_is_finite(lr))
        return mpti_cuda_bad(c, MPT_E_ARG, name, "scaler not initialised, or lr below 0 or not finite");
    memset(&host, 0, sizeof host);
    host.scaler = *scaler;
    host.lr = lr;
    status = mpti_cuda_result(c, cudaMalloc((void **)out, sizeof **out), name);
    if (status == MPT_OK)
        status = mpti_cuda_result(c, cudaMemcpy(*out, &host, sizeof host, cudaMemcpyHostToDevice), name);
    if (status != MPT_OK) {
        (void)cudaFree(*out);
        *out = NULL;
    }
    return status;
}

MPT_DEF void mpt_cuda_state_destroy(mpt_cuda_state *state)
{
    if (state)
        (void)cudaFree(state);
}

MPT_DEF mpt_status mpt_cuda_state_get(mpt_cuda *c, mpt_cuda_state *host, const mpt_cuda_state *state,
                                      mpt_stream stream)
{
    const char *const name = "mpt_cuda_state_get";
    if (!c || !state || !host)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    const cudaError_t e = cudaMemcpyAsync(host, state, sizeof *host, cudaMemcpyDeviceToHost, stream);
    return mpti_cuda_result(c, e, name);
}

MPT_DEF mpt_status mpt_cuda_lr_set(mpt_cuda *c, mpt_cuda_state *state, float lr, mpt_stream stream)
{
    const char *const name = "mpt_cuda_lr_set";
    if (!c || !state || !(lr >= 0.0f) || !mpti_f32_is_finite(lr))
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument, or lr is below 0 or not finite");
    return mpti_cuda_result(c, mpti_launch(mpti_k_lr_set, 1, 1, stream, state, lr), name);
}

// >>C8 kernels: conversion ------------------------------------------------------------------------
/* One kernel for all pairs: eight elements per thread, the widest accesses that both sides allow. */
static __global__ void __launch_bounds__(MPTI_THREADS)
mpti_k_convert(void *dst, int32_t dst_format, const void *src, int32_t src_format, uint64_t n)
{
    const uint64_t stride = (uint64_t)gridDim.x * MPTI_LANES;
    for (uint64_t i = (uint64_t)blockIdx.x * MPTI_LANES + threadIdx.x * MPTI_VEC; i < n; i += stride) {
        const uint32_t count = (uint32_t)(n - i < MPTI_VEC ? n - i : MPTI_VEC);
        float          x[MPTI_VEC];
        mpti_load_some(src, src_format, i, count, x);
        mpti_store_some(dst, dst_format, i, count, x);
    }
}

static mpt_status mpti_cuda_convert(mpt_cuda *c, void *dst, mpt_format dst_format, const void *src,
                                    mpt_format src_format, size_t n, mpt_stream stream, const char *name)
{
    if (!c || (n && (!dst || !src)))
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument with n above 0");
    if (!n)
        return MPT_OK;
    const unsigned blocks = mpti_cuda_blocks(c, (n - 1u) / MPTI_LANES + 1u);
    return mpti_cuda_result(c, mpti_launch(mpti_k_convert, blocks, MPTI_THREADS, stream, dst,
                                           (int32_t)dst_format, src, (int32_t)src_format, (uint64_t)n), name);
}

MPT_DEF mpt_status mpt_cuda_f16_from_f32_n(mpt_cuda *c, mpt_f16 *dst, const float *src, size_t n,
                                           mpt_stream stream)
{
    return mpti_cuda_convert(c, dst, MPT_F16, src, MPT_F32, n, stream, "mpt_cuda_f16_from_f32_n");
}

MPT_DEF mpt_status mpt_cuda_f32_from_f16_n(mpt_cuda *c, float *dst, const mpt_f16 *src, size_t n,
                                           mpt_stream stream)
{
    return mpti_cuda_convert(c, dst, MPT_F32, src, MPT_F16, n, stream, "mpt_cuda_f32_from_f16_n");
}

MPT_DEF mpt_status mpt_cuda_bf16_from_f32_n(mpt_cuda *c, mpt_bf16 *dst, const float *src, size_t n,
                                            mpt_stream stream)
{
    return mpti_cuda_convert(c, dst, MPT_BF16, src, MPT_F32, n, stream, "mpt_cuda_bf16_from_f32_n");
}

MPT_DEF mpt_status mpt_cuda_f32_from_bf16_n(mpt_cuda *c, float *dst, const mpt_bf16 *src, size_t n,
                                            mpt_stream stream)
{
    return mpti_cuda_convert(c, dst, MPT_F32, src, MPT_BF16, n, stream, "mpt_cuda_f32_from_bf16_n");
}

// >>C9 kernels: scale, check, clip, update --------------------------------------------------------
static __global__ void __launch_bounds__(MPTI_THREADS)
mpti_k_scale(mpt_cuda_state *state, float *x, uint64_t n)
{
    const float    scale = state->scaler.scale;
    const uint64_t stride = (uint64_t)gridDim.x * MPTI_THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * MPTI_THREADS + threadIdx.x; i < n; i += stride)
        x[i] = mpti_mul(x[i], scale);
    if (mpti_is_last_block(&state->blocks_done) && threadIdx.x == 0)
        state->scaler.in_use = 1u;
}

MPT_DEF mpt_status mpt_cuda_scaler_scale_n(mpt_cuda *c, mpt_cuda_state *state, float *x, size_t n,
                                           mpt_stream stream)
{
    const char *const name = "mpt_cuda_scaler_scale_n";
    if (!c || !state || (n && !x))
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    const unsigned blocks = mpti_cuda_blocks(c, n / MPTI_THREADS + 1u);
    return mpti_cuda_result(c, mpti_launch(mpti_k_scale, blocks, MPTI_THREADS, stream, state, x, (uint64_t)n),
                            name);
}

/* The sum of one value per thread in adjacent pairs, as mpti_pair_sum adds them; valid in thread 0. A
 * butterfly pairs neighbours first, and a + b is b + a to the bit. */
MPTI_D double mpti_block_pair_sum(double x)
{
    MPT_SHARED(double, warp, MPTI_WARPS);
    MPTI_UNROLL
    for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    __syncthreads();                    /* the last sum's readers are done */
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0.0;
    if (threadIdx.x == 0)
        x = ((warp[0] + warp[1]) + (warp[2] + warp[3])) + ((warp[4] + warp[5]) + (warp[6] + warp[7]));
    return x;
}

/* One chunk: what mpti_check_chunk does on the CPU. Returns the sum of squares in thread 0. */
MPTI_D double mpti_block_check(const mpti_cuda_tensor *t, const mpti_cuda_chunk *chunk, float factor,
                               bool write_back, unsigned *bad)
{
    double lane[MPTI_VEC];
    MPTI_UNROLL
    for (uint32_t k = 0; k < MPTI_VEC; k++) lane[k] = 0.0;
    for (uint32_t i = threadIdx.x * MPTI_VEC; i < chunk->n; i += MPTI_LANES) {
        const uint32_t count = chunk->n - i < MPTI_VEC ? chunk->n - i : MPTI_VEC;
        float          x[MPTI_VEC];
        mpti_load_some(t->grad, t->grad_format, chunk->first + i, count, x);
        MPTI_UNROLL
        for (uint32_t k = 0; k < MPTI_VEC; k++) x[k] = mpti_unscale_1(x[k], factor, bad);
        if (write_back) {
            mpti_store_some(t->grad, t->grad_format, chunk->first + i, count, x);
            if (t->grad_format != MPT_F32) {
                MPTI_UNROLL
                for (uint32_t k = 0; k < MPTI_VEC; k++) {
                    x[k] = mpti_decode16(t->grad_format, mpti_encode16(t->grad_format, x[k]));
                    *bad |= (unsigned)!mpti_f32_is_finite(x[k]);
                }
            }
        }
        MPTI_UNROLL
        for (uint32_t k = 0; k < MPTI_VEC; k++) lane[k] = mpti_sumsq_1(lane[k], x[k]);
    }
    return mpti_block_pair_sum(((lane[0] + lane[1]) + (lane[2] + lane[3])) +
                               ((lane[4] + lane[5]) + (lane[6] + lane[7])));
}

/* The last block adds the partial sums and writes the record of the step. */
MPTI_D void mpti_block_finish_check(mpt_cuda_state *state, const double *partial, uint64_t chunks,
                                    float factor, bool write_back)
{
    double slot = 0.0;
    for (uint64_t i = threadIdx.x; i < chunks; i += MPTI_SLOTS) slot += partial[i];
    slot = mpti_block_pair_sum(slot);
    if (threadIdx.x != 0)
        return;
    mpt_step *const s = &state->step;
    s->update = state->scaler.updates + 1u;
    s->sumsq = slot;
    s->found_inf = state->bad ? 1u : 0u;
    s->norm = mpti_norm_from_sumsq(slot, s->found_inf);
    s->grad_factor = write_back ? 1.0f : factor;
    s->clip_factor = 1.0f;
    s->stage = (uint32_t)(write_back ? MPT_STAGE_UNSCALED : MPT_STAGE_CHECKED);
    state->scaler.found_inf |= s->found_inf;
    state->scaler.checks++;
    state->bad = 0u;
}

static __global__ void __launch_bounds__(MPTI_THREADS)
mpti_k_check(const mpti_cuda_tensor *tensors, const mpti_cuda_chunk *chunks, uint64_t chunk_count,
             double *partial, mpt_cuda_state *state, int write_back)
{
    /* every block reads these before the last one changes them: that one waits for all counts */
    const bool  in_order = state->scaler.in_use && !mpti_is_second_check(&state->scaler, &state->step);
    const float factor = mpti_inverse_scale(state->scaler.scale);
    unsigned    bad = 0u;
    if (in_order)
        for (uint64_t i = blockIdx.x; i < chunk_count; i += gridDim.x) {
            const mpti_cuda_chunk  chunk = chunks[i];
            const mpti_cuda_tensor t = tensors[chunk.tensor];
            const double           sum = mpti_block_check(&t, &chunk, factor, write_back != 0, &bad);
            if (threadIdx.x == 0)
                partial[i] = sum;
        }
    if (__syncthreads_or((int)bad) && threadIdx.x == 0)
        atomicOr(&state->bad, 1u);
    if (!mpti_is_last_block(&state->blocks_done))
        return;
    if (in_order)
        mpti_block_finish_check(state, partial, chunk_count, factor, write_back != 0);
    else if (threadIdx.x == 0) {
        state->misuse++;
        state->step.found_inf = 1u;     /* as mpt_check: do not step on gradients that nobody checked */
    }
}

static mpt_status mpti_cuda_check(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                  int write_back, mpt_stream stream, const char *name)
{
    if (!c || !list || !state)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    const unsigned blocks = mpti_cuda_blocks(c, list->chunk_count);
    return mpti_cuda_result(c, mpti_launch(mpti_k_check, blocks, MPTI_THREADS, stream, list->tensors,
                                           list->chunks, list->chunk_count, list->partial, state,
                                           write_back), name);
}

MPT_DEF mpt_status mpt_cuda_check(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                  mpt_stream stream)
{
    return mpti_cuda_check(c, list, state, 0, stream, "mpt_cuda_check");
}

MPT_DEF mpt_status mpt_cuda_unscale(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                    mpt_stream stream)
{
    return mpti_cuda_check(c, list, state, 1, stream, "mpt_cuda_unscale");
}

static __global__ void __launch_bounds__(32) mpti_k_clip(mpt_cuda_state *state, float max_norm)
{
    if (mpti_step_is_open(&state->step))
        state->step.clip_factor = mpti_clip_factor(state->step.norm, max_norm, state->step.found_inf);
    else
        state->misuse++;
}

MPT_DEF mpt_status mpt_cuda_clip(mpt_cuda *c, mpt_cuda_state *state, float max_norm, mpt_stream stream)
{
    const char *const name = "mpt_cuda_clip";
    if (!c || !state || !(max_norm > 0.0f) || !mpti_f32_is_finite(max_norm))
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument, or max_norm is not above 0 and finite");
    return mpti_cuda_result(c, mpti_launch(mpti_k_clip, 1, 1, stream, state, max_norm), name);
}

static __global__ void __launch_bounds__(32) mpti_k_update(mpt_cuda_state *state)
{
    if (state->scaler.in_use && state->scaler.checks)
        mpti_scaler_advance(&state->scaler);
    else
        state->misuse++;
}

MPT_DEF mpt_status mpt_cuda_scaler_update(mpt_cuda *c, mpt_cuda_state *state, mpt_stream stream)
{
    const char *const name = "mpt_cuda_scaler_update";
    if (!c || !state)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    return mpti_cuda_result(c, mpti_launch(mpti_k_update, 1, 1, stream, state), name);
}

// >>C10 kernels: optimizers -----------------------------------------------------------------------
/* What each optimizer needs of the generic kernel: its constants, its element, its moments. */
struct mpti_sgd_ops {
    typedef mpt_sgd    config;
    typedef mpti_sgd_k consts;
    MPTI_D consts prepare(const config *o, const mpt_step *step) { return mpti_sgd_consts(o, step); }
    MPTI_D void one(float g, float *w, float *m, float *, const consts *k) { mpti_sgd_1(g, w, m, k); }
    MPTI_D bool uses_m(const config *o) { return mpti_is_nonzero(o->momentum) != 0; }
    MPTI_D bool uses_v(const config *) { return false; }
};
struct mpti_adamw_ops {
    typedef mpt_adamw    config;
    typedef mpti_adamw_k consts;
    MPTI_D consts prepare(const config *o, const mpt_step *step) { return mpti_adamw_consts(o, step); }
    MPTI_D void one(float g, float *w, float *m, float *v, const consts *k) { mpti_adamw_1(g, w, m, v, k); }
    MPTI_D bool uses_m(const config *) { return true; }
    MPTI_D bool uses_v(const config *) { return true; }
};

template <class Ops>
MPTI_D void mpti_block_step(const mpti_cuda_tensor *t, const mpti_cuda_chunk *chunk,
                            const typename Ops::config *o, const typename Ops::consts *k)
{
    const bool has_m = Ops::uses_m(o), has_v = Ops::uses_v(o);
    for (uint32_t i = threadIdx.x * MPTI_VEC; i < chunk->n; i += MPTI_LANES) {
        const uint32_t count = chunk->n - i < MPTI_VEC ? chunk->n - i : MPTI_VEC;
        const uint64_t at = chunk->first + i;
        float          g[MPTI_VEC], w[MPTI_VEC], m[MPTI_VEC] = {0.0f}, v[MPTI_VEC] = {0.0f};
        mpti_load_some(t->grad, t->grad_format, at, count, g);
        mpti_load_some(t->master, MPT_F32, at, count, w);
        if (has_m) mpti_load_some(t->m, MPT_F32, at, count, m);
        if (has_v) mpti_load_some(t->v, MPT_F32, at, count, v);
        MPTI_UNROLL
        for (uint32_t j = 0; j < MPTI_VEC; j++) Ops::one(g[j], &w[j], &m[j], &v[j], k);
        mpti_store_some(t->master, MPT_F32, at, count, w);
        if (has_m) mpti_store_some(t->m, MPT_F32, at, count, m);
        if (has_v) mpti_store_some(t->v, MPT_F32, at, count, v);
        if (t->param) mpti_store_some(t->param, t->param_format, at, count, w);
    }
}

template <class Ops>
static __global__ void __launch_bounds__(MPTI_THREADS)
mpti_k_step(const mpti_cuda_tensor *tensors, const mpti_cuda_chunk *chunks, uint64_t chunk_count,
            mpt_cuda_state *state, typename Ops::config o)
{
    MPT_SHARED(typename Ops::consts, k, 1);
    const bool in_order = mpti_step_is_open(&state->step) != 0, take = in_order && !state->step.found_inf;
    o.lr = state->lr;
    o.t = state->t;
    if (take) {
        if (threadIdx.x == 0)           /* the constants cost double arithmetic: once per block */
            k[0] = Ops::prepare(&o, &state->step);
        __syncthreads();
        for (uint64_t i = blockIdx.x; i < chunk_count; i += gridDim.x) {
            const mpti_cuda_chunk  chunk = chunks[i];
            const mpti_cuda_tensor t = tensors[chunk.tensor];
            mpti_block_step<Ops>(&t, &chunk, &o, k);
        }
    }
    if (!mpti_is_last_block(&state->blocks_done) || threadIdx.x != 0)
        return;
    if (in_order)
        state->step.stage = (uint32_t)MPT_STAGE_STEPPED;
    else
        state->misuse++;
    if (take)
        state->t++;
}

template <class Ops>
static mpt_status mpti_cuda_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                 const typename Ops::config *o, bool hyperparameters_ok, unsigned needs,
                                 mpt_stream stream, const char *name)
{
    if (!c || !list || !state || !o)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "NULL argument");
    if (!hyperparameters_ok)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "a hyperparameter is out of range");
    if ((list->has & needs) != needs)
        return mpti_cuda_bad(c, MPT_E_ARG, name, "a tensor of the list lacks master, m or v");
    const unsigned blocks = mpti_cuda_blocks(c, list->chunk_count);
    return mpti_cuda_result(c, mpti_launch(mpti_k_step<Ops>, blocks, MPTI_THREADS, stream, list->tensors,
                                           list->chunks, list->chunk_count, state, *o), name);
}

MPT_DEF mpt_status mpt_cuda_sgd_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                     const mpt_sgd *o, mpt_stream stream)
{
    const bool     ok = mpti_sgd_ok(o) != 0;
    const unsigned needs = MPT_NEEDS_MASTER | (ok && mpti_is_nonzero(o->momentum) ? MPT_NEEDS_M : 0u);
    return mpti_cuda_step<mpti_sgd_ops>(c, list, state, o, ok, needs, stream, "mpt_cuda_sgd_step");
}

MPT_DEF mpt_status mpt_cuda_adamw_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                       const mpt_adamw *o, mpt_stream stream)
{
    const unsigned needs = MPT_NEEDS_MASTER | MPT_NEEDS_M | MPT_NEEDS_V;
    return mpti_cuda_step<mpti_adamw_ops>(c, list, state, o, mpti_adamw_ok(o) != 0, needs, stream,
                                          "mpt_cuda_adamw_step");
}

#endif /* MPT_CUDA_IMPLEMENTATION */

// >>C11 to add a kernel ---------------------------------------------------------------------------
/* 1. The formula for one element belongs to mpt.h (>>M12) or mpt_half.h, as MPT_HD, with its CPU loop.
 * 2. An optimizer: a struct like mpti_adamw_ops and its call (>>C10); the generic kernel does the rest.
 *    Anything else: a kernel in >>C8 or >>C9 by the same pattern: chunks in a grid-stride loop, the
 *    last block writes the result into mpt_cuda_state, no host sync, no allocation.
 * 3. tests/test_cuda.cu: memcmp with the CPU function at all the sizes there, shuffled, under ASan and
 *    TSan. tests/emu lists what of CUDA it knows; add what you need there. */

// >>C12 licence -----------------------------------------------------------------------------------
/* MIT licence, as mpt_half.h.  Copyright (c) 2026 the mpt authors. */
