/* mpt_cuda.h -- the mixed-precision step of mpt.h on an NVIDIA GPU, without synchronizing with the host.
 *
 * Use it: your C and C++ files only #include "mpt_cuda.h", and need no CUDA header for that. One file,
 * compiled by nvcc, contains the implementation:
 *
 *     // mpt_impl.cu:   nvcc -O2 -arch=native -c mpt_impl.cu        (CUDA 12.0 or newer)
 *     #define MPT_IMPLEMENTATION          // mpt_half.h, mpt.h and mpt_cuda.h
 *     #include "mpt_cuda.h"
 *
 * (If C files already implement mpt_half.h and mpt.h, define MPT_CUDA_IMPLEMENTATION here instead: it
 * implements mpt_cuda.h alone.) Then, with an array of mpt_tensor whose pointers point to device memory:
 *
 *     mpt_cuda *gpu; mpt_cuda_list *list; mpt_cuda_state *state;
 *     mpt_cuda_create(&gpu, 0);
 *     mpt_cuda_list_create(gpu, &list, tensors, count);
 *     mpt_cuda_state_create(gpu, &state, &scaler, lr);
 *     for (...) {                         // or capture one round in a CUDA graph and replay it
 *         mpt_cuda_scaler_scale_n(gpu, state, MPT_F32, dlogits, n, stream);    // 1 scale, before FP16
 *         backward(stream);                                            // 2 backward, your code
 *         mpt_cuda_check(gpu, list, state, stream);                    // 3 check
 *         mpt_cuda_adamw_step(gpu, list, state, &adamw, stream);       // 4 step
 *         mpt_cuda_scaler_update(gpu, state, stream);                  // 5 update
 *     }
 *
 * Each of these calls returns an mpt_status. A program that stops at the first error can wrap them:
 *
 *     #define GPU(call) do { if ((call) != MPT_OK) die(mpt_cuda_error_text(gpu)); } while (0)
 *
 * A kernel that fails while it runs makes a later call return an error, such as cudaErrorIllegalAddress, for
 * good: synchronize before you save. What only the device knows is in the state: look there now and then
 * (mpt_cuda_state_get). misuse above 0 means calls in the wrong order, scaler.verdict above 0 that
 * mpt_scaler_update would return MPT_E_SCALE. Fill copies before the first forward: mpt_cuda_convert_n.
 *
 * Scale, found_inf, step count, norm and learning rate live in one struct in device memory. So the calls only
 * queue work on a stream; they do not wait for the GPU, allocate device memory or read anything back, except
 * those named create, open, destroy, _sync or state_get, and reductions of yours. The kernels use the
 * per-element functions of mpt_half.h and mpt.h and add in the same order: results equal those of the CPU bit
 * for bit (but for the bits of NaNs, and cublasLt's products), if it was compiled without fast-math.
 *
 * What it does NOT do: your forward and backward pass; managed memory; FP8 optimizer state; Adafactor; row
 * calls; a step count or record for each list (all lists of a state have one); mpt_weights_set, mpt_publish,
 * mpt_grad_get and NVFP4's tensor scale: compute these on the host, and copy. Matrix products need cublasLt
 * (MPT_USE_CUBLASLT); several GPUs need NCCL (MPT_USE_NCCL) or your own reduction, such as MPI.
 *
 * Contents (search for the mark):
 *   >>C1 configuration              >>C12 kernel helpers
 *   >>C2 types                      >>C13 implementation: context
 *   >>C3 context                    >>C14 implementation: list, state
 *   >>C4 list, state                >>C15 implementation: conversion
 *   >>C5 conversion                 >>C16 implementation: FP8 delayed scaling
 *   >>C6 FP8 delayed scaling        >>C17 implementation: the step
 *   >>C7 the step                   >>C18 implementation: optimizers
 *   >>C8 GPUs and advice            >>C19 implementation: matrix products
 *   >>C9 matrix products            >>C20 implementation: range reports
 *   >>C10 range reports             >>C21 to add a kernel, an optimizer
 *   >>C11 advice, without a GPU     >>C22 licence
 */
#include "mpt.h"    /* outside the guard: a second #include with MPT_IMPLEMENTATION still emits all of it */

#ifndef MPT_ONLY_CONVERSIONS

#ifndef MPT_CUDA_H
#define MPT_CUDA_H

// >>C1 configuration -------------------------------------------------------------------------------
/* Choose the file with the implementation, and parts to leave out, as in mpt_half.h and mpt.h: MPT_NO_BLOCKS,
 * MPT_NO_FP8, MPT_NO_REPORTS act here too, and MPT_ONLY_CONVERSIONS leaves out this whole header.
 *
 * Define these in the file that implements mpt_cuda.h:
 * MPT_USE_CUBLASLT  for mpt_cuda_gemm: needs <cublasLt.h> and -lcublasLt
 * MPT_USE_NCCL      for mpt_cuda_nccl_reduce: needs <nccl.h> and -lnccl
 *
 * MPT_CUDA_DEF  linkage of the calls that need a GPU: MPT_DEF. But a C file with MPT_STATIC, which cannot
 *               implement these calls, finds them in the .cu file that does. Advice (>>C8) is inline. */
#if !defined(MPT_STATIC) || defined(__CUDACC__) || defined(MPT_CUDA_EMU)
#define MPT_CUDA_DEF MPT_DEF
#elif defined(__cplusplus)
#define MPT_CUDA_DEF extern "C"
#else
#define MPT_CUDA_DEF extern
#endif

// >>C2 types ---------------------------------------------------------------------------------------
/* The struct tag is the CUDA Toolkit's: pass a cudaStream_t without a cast. NULL is the default stream. */
struct CUstream_st;
typedef struct CUstream_st *mpt_stream;

typedef struct mpt_cuda      mpt_cuda;         /* context of one device: its properties, the last error */
typedef struct mpt_cuda_list mpt_cuda_list;    /* a tensor list as a table in device memory */

/* The state of a training run, in device memory, without pointers: it and the arrays are a checkpoint. */
typedef struct mpt_cuda_state {
    mpt_scaler scaler;          /* as in mpt.h */
    mpt_step   step;            /* as in mpt.h: found_inf, norm, clip factor of the current step */
    uint64_t   t;               /* optimizer steps taken; skipped ones not counted */
    float      lr;              /* learning rate; change it with mpt_cuda_lr_set */
    uint32_t   misuse;          /* number of calls in the wrong order (see >>C7) */
    uint32_t   blocks_done, chunks_taken;   /* 0 between kernels: mpt_cuda_scaler_update resets them */
    uint32_t   bad;             /* nonzero: a bad gradient was found; 0 between kernels, as all below */
    unsigned long long bad_first;   /* complement of the least chunk * 2^16 + element * 4 + cause (0 to 2) */
    unsigned long long bad_count[3];    /* by cause: Inf, NaN, out of range */
} mpt_cuda_state;

// >>C3 context -------------------------------------------------------------------------------------
/* A call that returns an mpt_status returns MPT_OK, MPT_E_ARG or MPT_E_CUDA, or what its block adds. */

/* mpt_cuda_create, mpt_cuda_destroy -- make a context for a device, and make the device current. With several
 * GPUs, create a context for each, and make its device current (cudaSetDevice) before calls with it: while
 * another device is current, launches and allocations are refused with MPT_E_CUDA. Destroying accepts NULL,
 * and may come before or after that of lists and states.
 *   out     out  the context, also on an error, for its error text: destroy it in any case; NULL: no memory
 *   device  in   CUDA's device number, from 0
 * Errors: also MPT_E_MEMORY; MPT_E_ARG for a device below 0; MPT_E_CUDA: also no driver, no such device.
 * May wait for the device.  Threads: one caller per context. */
MPT_CUDA_DEF mpt_status mpt_cuda_create(mpt_cuda **out, int device);
MPT_CUDA_DEF void mpt_cuda_destroy(mpt_cuda *c);

/* mpt_cuda_error_text, mpt_cuda_error_code -- which call of this context failed last, why, and what to do
 * about it; and its cudaError_t, 0 if no call failed, or not in CUDA.
 * Returns: a string that lives until the next call; "no error" if there was none. */
MPT_CUDA_DEF const char *mpt_cuda_error_text(const mpt_cuda *c);
MPT_CUDA_DEF int mpt_cuda_error_code(const mpt_cuda *c);

// >>C4 list, state ---------------------------------------------------------------------------------
/* The create calls allocate and wait for the device; on an error they set *out to NULL and leak nothing. The
 * destroy calls wait too, and accept NULL. */

/* mpt_cuda_list_create, mpt_cuda_list_destroy -- put a tensor list into a device table, so that one launch
 * serves all tensors; and free the table, but not the arrays. List, state and arrays must outlive what was
 * queued with them, also in graphs that are replayed.
 *   tensors  in   [count], in host memory; the arrays they point to are in device memory. Formats, storage
 *                 and moments may be any of mpt.h's, and differ from tensor to tensor; each tensor needs
 *                 grad (a step tests its other needs). Parts of tensors need no `sums`. The table is a
 *                 copy: later changes have no effect.
 * Use a list on one stream at a time: it contains the partial sums of mpt_cuda_check.
 * Errors: also MPT_E_UNSUPPORTED, MPT_E_MEMORY. */
MPT_CUDA_DEF mpt_status mpt_cuda_list_create(mpt_cuda *c, mpt_cuda_list **out, const mpt_tensor *tensors,
                                             size_t count);
MPT_CUDA_DEF void mpt_cuda_list_destroy(mpt_cuda_list *list);

/* mpt_cuda_state_create, mpt_cuda_state_destroy -- the device-resident state of one training run. Use it on
 * one stream at a time, as a list: kernels count their finished blocks in it.
 *   out     out  in device memory; your own kernels may read it
 *   scaler  in   in host memory, from mpt_scaler_init. To resume a run, call mpt_cuda_state_set: t is 0 here
 *   lr      in   learning rate, 0 or more
 * Errors: also MPT_E_MEMORY. */
MPT_CUDA_DEF mpt_status mpt_cuda_state_create(mpt_cuda *c, mpt_cuda_state **out, const mpt_scaler *scaler,
                                              float lr);
MPT_CUDA_DEF void mpt_cuda_state_destroy(mpt_cuda_state *state);

/* mpt_cuda_state_set, mpt_cuda_lr_set -- queue the replacement of the whole state, for instance by that of a
 * checkpoint, or of its learning rate alone, 0 or more. *host and lr are copied at the call, also under graph
 * capture: they are the same in every replay, which does not read host memory again. */
MPT_CUDA_DEF mpt_status mpt_cuda_state_set(mpt_cuda *c, mpt_cuda_state *state, const mpt_cuda_state *host,
                                           mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_lr_set(mpt_cuda *c, mpt_cuda_state *state, float lr, mpt_stream stream);

/* mpt_cuda_state_get -- queue a copy to the host, valid once the stream has made it. It is asynchronous only
 * into page-locked memory (cudaMallocHost). To log scale, norm and skipped steps without a wait, queue a copy
 * and an event every step, and read the copy when cudaEventQuery succeeds, a step or two later. In an
 * mpt_state to save its scaler and step stand as they are; t and lr belong into the optimizer's struct, and
 * come back from there into a zeroed mpt_cuda_state. */
MPT_CUDA_DEF mpt_status mpt_cuda_state_get(mpt_cuda *c, mpt_cuda_state *host, const mpt_cuda_state *state,
                                           mpt_stream stream);

// >>C5 conversion ----------------------------------------------------------------------------------
/* mpt_cuda_convert_n -- mpt_convert_n on device memory, the same bits: of f64, f32, f16, bf16, e4m3 and e5m2.
 *   dst     out  [n], aligned to its element size; full speed needs dst and src aligned to 16 bytes
 *   src     in   [n], likewise; must not overlap dst
 *   opts    in   NULL for the defaults; otherwise it is copied at the call, and may ask for one of these:
 *                overflow MPT_OVERFLOW_SATURATE, to e4m3 and e5m2;
 *                rounding MPT_RND_STOCHASTIC with seed, stream, step and first_element, from f32 to 16-bit
 *                and 8-bit formats: an element's random bits depend on its index, not on the launch
 *   state   in   NULL; or, with stochastic rounding, a state: its scaler.updates is added to opts->step, so
 *                that every step of a captured graph rounds with new random bits
 *   stream  in   the conversion is queued there; the call does not wait
 * Errors: MPT_E_ARG (NULL with n > 0, an overlap, an unknown option); also MPT_E_UNSUPPORTED (another format,
 * the same format twice, other options).  Parity: bit-exact host/device, NaN included. */
MPT_CUDA_DEF mpt_status mpt_cuda_convert_n(mpt_cuda *c, mpt_format dst_format, void *dst,
                                           mpt_format src_format, const void *src, size_t n,
                                           const mpt_opts *opts, const mpt_cuda_state *state,
                                           mpt_stream stream);

#ifndef MPT_NO_BLOCKS
/* mpt_cuda_block_quantize_n -- mpt_block_quantize_n on device memory, with the same bits.
 *   src   in  [n], aligned as its elements are: f32, f16 or bf16; full speed needs arrays aligned to 16 bytes
 *   opts  in  copied at the call; elements are always rounded to nearest-even
 *   cols  in  0: scales in the order of their blocks, as on the CPU. Otherwise src is a matrix with lines of
 *             cols elements, a multiple of the block size, and scales are laid out as block-scaled products
 *             need them: uint8_t [(lines + 127) / 128][(blocks of a line + 3) / 4][512], in tiles of 128
 *             lines by 4 blocks, with line l and block k of a tile at l % 32 * 16 + l / 32 * 4 + k, and 0
 *             beyond the matrix
 * Errors: MPT_E_ARG as on the CPU, and for cols; MPT_E_UNSUPPORTED (MXFP6, other src_format or options). */
MPT_CUDA_DEF mpt_status mpt_cuda_block_quantize_n(mpt_cuda *c, mpt_block block, uint8_t *codes,
                                                  uint8_t *scales, mpt_format src_format, const void *src,
                                                  size_t n, size_t cols, const mpt_block_opts *opts,
                                                  mpt_stream stream);
#endif /* MPT_NO_BLOCKS */

// >>C6 FP8 delayed scaling -------------------------------------------------------------------------
#ifndef MPT_NO_FP8
/* mpt_cuda_fp8_init, mpt_cuda_fp8_update, mpt_cuda_fp8_encode_n, mpt_cuda_fp8_encode_transpose -- as
 * mpt_fp8_init and so on. An update computes the scales of all tensors in one launch; encoding converts,
 * records amax and transposes in one pass. Current scaling takes three calls, as in mpt.h, and does not wait.
 *   dst    out  device memory; unlike on the CPU, not src itself
 *   s      in  host memory, copied at the call; its pointers point to device memory
 *   scale  in  device memory, read when the kernel runs; NULL: 1
 *   amax   in/out  device memory; NULL: not recorded
 * Arrays are aligned as elements are. Full speed needs 16 bytes, a transpose also rows and cols % 8 == 0.
 * Errors: also as the functions of mpt.h.  Parity: bit-exact host/device, also amax, whatever the launch. */
MPT_CUDA_DEF mpt_status mpt_cuda_fp8_init(mpt_cuda *c, const mpt_fp8_scaling *s, mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_fp8_update(mpt_cuda *c, const mpt_fp8_scaling *s, mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_fp8_encode_n(mpt_cuda *c, mpt_format dst_format, void *dst,
                                              mpt_format src_format, const void *src, size_t n,
                                              const float *scale, float *amax, mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_fp8_encode_transpose(mpt_cuda *c, mpt_format dst_format, void *dst,
                                                      void *transposed, mpt_format src_format,
                                                      const void *src, size_t rows, size_t cols,
                                                      const float *scale, float *amax, mpt_stream stream);
#endif /* MPT_NO_FP8 */

// >>C7 the step ------------------------------------------------------------------------------------
/* The calls of the training step of mpt.h, queued on a stream. The device checks their order, since a graph
 * replays them without the host: a call in the wrong order adds 1 to state->misuse, and does to step and
 * scaler what a refused call does on the CPU: a loop that goes on may be refused for good, until
 * mpt_cuda_state_set with a zeroed `step`. On an error they write nothing, but for MPT_E_CUDA of LAMB. */

/* mpt_cuda_scaler_scale_n -- multiply the gradient that starts the backward pass by the scale.
 *   format  in      MPT_F32, MPT_F16 or MPT_BF16; any other is MPT_E_UNSUPPORTED
 *   x       in/out  [n], device memory; each FP32 product is rounded to the format
 * Your own kernel may multiply by state->scaler.scale; then call this once for a state, with n = 0. The
 * device asks for one call in a state's life, not for one in each step as on the CPU. */
MPT_CUDA_DEF mpt_status mpt_cuda_scaler_scale_n(mpt_cuda *c, mpt_cuda_state *state, mpt_format format,
                                                void *x, size_t n, mpt_stream stream);

/* mpt_cuda_check, mpt_cuda_unscale -- as mpt_check and mpt_unscale, in one launch over all tensors. */
MPT_CUDA_DEF mpt_status mpt_cuda_check(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                       mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_unscale(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                         mpt_stream stream);

/* mpt_cuda_accumulate, mpt_cuda_grads_zero -- as mpt_accumulate and mpt_grads_zero. Use the first, for
 * instance, to add the 16-bit gradients of each micro-batch to FP32 gradients. (A matrix product that makes a
 * gradient does not need it: let mpt_cuda_gemm add to an FP32 d, with beta 1. An epilogue's sums do not add.)
 *   dst, src  in  lists of tensors of the same sizes, otherwise MPT_E_ARG. No two of all their gradients may
 *                 overlap; this is not checked */
MPT_CUDA_DEF mpt_status mpt_cuda_accumulate(mpt_cuda *c, const mpt_cuda_list *dst, const mpt_cuda_list *src,
                                            mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_grads_zero(mpt_cuda *c, const mpt_cuda_list *list, mpt_stream stream);

/* mpt_cuda_clip -- as mpt_clip. An optimizer of your own multiplies by state->step.clip_factor. */
MPT_CUDA_DEF mpt_status mpt_cuda_clip(mpt_cuda *c, mpt_cuda_state *state, float max_norm, mpt_stream stream);

/* The reduction of mpt_cuda_combine: queue work on the stream that replaces values[0 .. n-1], in device
 * memory, by their sums over all ranks, the same bits on every rank. Returns 0, or nonzero on failure. */
typedef int mpt_cuda_reduce_fn(void *user, double *values, size_t n, mpt_stream stream);

/* mpt_cuda_combine -- as mpt_step_combine: all ranks skip a step together, and have the same norm. Every rank
 * must call it once per step, between check and step. It queues one reduction between two small kernels, and
 * does not wait. The reduction sums six doubles; if tensors are parts (mpt_tensors_shard), also one for each
 * 16384 elements of the whole list.
 *   list    in  the list that was checked
 *   reduce  in  mpt_cuda_nccl_reduce, or your own function. It may reduce on the host: copy the values
 *               there, wait, MPI_Allreduce, copy them back; but then a graph cannot capture it
 *   user    in  passed to reduce
 * Errors: MPT_E_ARG also for a list of parts and whole tensors; MPT_E_DATA if the reduction could not be
 * queued: then nothing is combined, and no rank should go on. If the check of any rank was refused, all of
 * them count a misuse, skip the step, and refuse the update. */
MPT_CUDA_DEF mpt_status mpt_cuda_combine(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                         mpt_cuda_reduce_fn *reduce, void *user, mpt_stream stream);

/* mpt_cuda_nccl_reduce -- an mpt_cuda_reduce_fn for NCCL; user is an ncclComm_t. Needs MPT_USE_NCCL, defined
 * where mpt_cuda.h is implemented, and -lnccl. Not between ncclGroupStart and ncclGroupEnd, which delay the
 * sum: let a thread or process serve each GPU.  Returns: 0, or nonzero; without MPT_USE_NCCL nonzero. */
MPT_CUDA_DEF int mpt_cuda_nccl_reduce(void *user, double *values, size_t n, mpt_stream stream);

/* mpt_cuda_sgd_step, mpt_cuda_adamw_step ... -- as mpt_sgd_step, mpt_adamw_step ..., for every storage, in
 * one launch; LAMB takes four, because of its norms.
 *   o  in  host memory; hyperparameters, copied at the call. The learning rate and the step count come from
 *          state: o->lr (though it must be valid) and o->t are ignored.
 * Parameter groups (lr_times, decay_times, no_decay) are those of the list's tensors. To use several
 * optimizers in one step, check one list of all tensors, then step lists that are parts of it, all but the
 * last with MPT_STEP_STAYS_OPEN; only the last adds 1 to state->t. For stochastic rounding, give each a seed.
 * Errors: also MPT_E_ARG wherever the CPU refuses a tensor, or if MPT_STEP_ZERO_GRADS meets a gradient that
 * two tensors share; MPT_E_ORDER if the context's last check, queued or captured, was of this state and of
 * another list (so capture check and step in one graph), or if another list has already taken the step. Of
 * earlier checks the device knows the sizes of tensors: a list with others is a misuse. */
MPT_CUDA_DEF mpt_status mpt_cuda_sgd_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                          const mpt_sgd *o, mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_adamw_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                            const mpt_adamw *o, mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_adam_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                           const mpt_adam *o, mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_lamb_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                           const mpt_lamb *o, mpt_stream stream);
MPT_CUDA_DEF mpt_status mpt_cuda_lion_step(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                           const mpt_lion *o, mpt_stream stream);

/* mpt_cuda_scaler_update -- as mpt_scaler_update; where that returns MPT_E_SCALE, verdict is above 0. */
MPT_CUDA_DEF mpt_status mpt_cuda_scaler_update(mpt_cuda *c, mpt_cuda_state *state, mpt_stream stream);

// >>C8 GPUs and advice -----------------------------------------------------------------------------
/* The formats that Tensor Cores multiply, as bits. */
#define MPT_TC_F16    1u
#define MPT_TC_BF16   2u
#define MPT_TC_TF32   4u
#define MPT_TC_FP8    8u    /* e4m3 and e5m2 */
#define MPT_TC_BLOCKS 16u   /* MXFP8, MXFP4, NVFP4: each block has a scale */

/* One row per generation: enum, name, first compute capability (10 * major + minor), MPT_TC_* bits, and which
 * formats to use there. Source: CUDA C++ Programming Guide, "Compute Capabilities". */
#define MPT_GPUS(X)                                                                                        \
    X(MPT_GPU_OLDER,     "Maxwell or older",  0, 0u, "keep FP32; FP16 only to store")                      \
    X(MPT_GPU_PASCAL,    "Pascal",           60, 0u,                                                       \
      "FP16 to store: half the memory and its traffic; products in FP32")                                  \
    X(MPT_GPU_VOLTA,     "Volta",            70, MPT_TC_F16, "FP16 with a loss scale; no bf16 products")   \
    X(MPT_GPU_TURING,    "Turing",           75, MPT_TC_F16, "FP16 with a loss scale; no bf16 products")   \
    X(MPT_GPU_AMPERE,    "Ampere",           80, MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32,                   \
      "bf16, or FP16 with a loss scale; TF32 for what stays FP32 in memory")                               \
    X(MPT_GPU_ADA,       "Ada",              89, MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32 | MPT_TC_FP8,      \
      "bf16, or FP16 with a loss scale; FP8 with a scale per tensor for large ones")                       \
    X(MPT_GPU_HOPPER,    "Hopper",           90, MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32 | MPT_TC_FP8,      \
      "bf16, or FP16 with a loss scale; FP8 with a scale per tensor for large ones")                       \
    X(MPT_GPU_BLACKWELL, "Blackwell",       100,                                                           \
      MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32 | MPT_TC_FP8 | MPT_TC_BLOCKS,                                 \
      "bf16, or FP16 with a loss scale; FP8 and block formats for large ones")

typedef MPTI_ENUM(mpt_gpu_generation) { MPT_GPUS(MPTI_ID) MPT_GPU_COUNT } mpt_gpu_generation;

typedef struct mpt_gpu {
    int                cc;              /* compute capability, 10 * major + minor: 90 for 9.0 */
    mpt_gpu_generation generation;
    unsigned           tensor_cores;    /* MPT_TC_* or-ed */
    const char        *name, *advice;   /* strings that live forever */
} mpt_gpu;

/* mpt_gpu_from_cc -- what a GPU of this compute capability can do, from the table, without a driver.
 *   cc  in  10 * major + minor; one beyond the table's last row counts as the last row
 * Returns: the facts.  Threads: any. */
static inline mpt_gpu mpt_gpu_from_cc(int cc)
{
#define MPTI_GPU(id, name, cc, tensor_cores, advice) {cc, id, tensor_cores, name, advice},
    static const mpt_gpu row[] = {MPT_GPUS(MPTI_GPU)};
    int     i = (int)MPT_GPU_COUNT - 1;
    mpt_gpu g;
    while (i > 0 && cc < row[i].cc) i--;
    g = row[i];
    g.cc = cc;
    return g;
}

/* mpt_cuda_gpu -- the same for the device of a context. On an error *gpu keeps its value. */
MPT_CUDA_DEF mpt_status mpt_cuda_gpu(mpt_cuda *c, mpt_gpu *gpu);

/* The epilogue of a product, applied before d is stored: d = epilogue(alpha * op(a) op(b) + beta * d + bias).
 * Forward: BIAS, RELU or GELU, or BIAS with one of these. RELU or GELU with AUX also writes to aux what the
 * backward pass needs. Backward: DRELU or DGELU multiplies by the derivative, found from aux; with BGRAD it
 * also computes the gradient of the bias. Or BGRAD_A or BGRAD_B sums an operand, in the product that makes
 * the gradient of the weights. Sums replace what is in `bias`, whatever beta. */
#define MPT_EPILOGUE_NONE    0u
#define MPT_EPILOGUE_BIAS    1u
#define MPT_EPILOGUE_RELU    2u
#define MPT_EPILOGUE_GELU    4u     /* the tanh approximation */
#define MPT_EPILOGUE_AUX     8u
#define MPT_EPILOGUE_DRELU   16u
#define MPT_EPILOGUE_DGELU   32u
#define MPT_EPILOGUE_BGRAD   64u    /* d summed along the dimension that the bias does not have */
#define MPT_EPILOGUE_BGRAD_A 128u   /* op(a) summed along k: [m]; a must be contiguous along m */
#define MPT_EPILOGUE_BGRAD_B 256u   /* op(b) summed along k: [n]; b must be contiguous along n */

/* One matrix product: op(a) is m x k, op(b) is k x n, d is m x n; op() transposes if trans_a or trans_b is
 * not 0. Zero the struct, then set alpha and what else you need; zeros mean column-major, as in BLAS. */
typedef struct mpt_gemm_args {
    int64_t     m, n, k;
    int64_t     lda, ldb, ldd;      /* leading dimensions: elements from column (row_major: row) to next */
    const void *a, *b;              /* device memory, as stored: before op() */
    void       *d;                  /* device memory apart from a and b; read only if beta is not 0 */
    const void *bias;               /* in bias_format. BIAS reads it, BGRAD writes it: [n] if row_major (one
                                       per output feature), otherwise [m]. BGRAD_A and BGRAD_B write it too */
    mpt_format  a_format, b_format; /* both MPT_F32, MPT_TF32 (FP32 in memory, multiplied as TF32),
                                       MPT_F16 or MPT_BF16; or each MPT_E4M3 or MPT_E5M2, but not both
                                       MPT_E5M2; or, with block_scales, both MPT_E2M1, two codes per byte */
    mpt_format  d_format;           /* MPT_F32, or that of a and b; with FP8 or FP4 operands MPT_F32, MPT_F16,
                                       MPT_BF16 or, if beta and block_scales are 0, FP8 (but not MPT_E5M2
                                       from two MPT_E4M3) */
    mpt_format  bias_format;        /* d_format; with FP8 or FP4 operands MPT_F16 if d is, else MPT_BF16 */
    uint32_t    row_major, trans_a, trans_b;
    uint32_t    epilogue;           /* MPT_EPILOGUE_* or-ed */
    float       alpha, beta;
    const void *a_scale, *b_scale;  /* FP8: device scalar (float) to multiply by, at a multiple of 16 bytes
                                       (or it is copied first); NULL: 1. With block_scales: block scales,
                                       as mpt_cuda_block_quantize_n with cols k stores them */
    const float *d_scale;           /* FP8 d: device scalar to multiply by; NULL: 1 */
    float      *d_amax;             /* FP8 d: device scalar, set to max |value| before d_scale; or NULL */
    int64_t     a_stride, b_stride, d_stride;   /* elements from one product of a batch to the next; 0 is
                                       allowed for a and b. All products of a batch share one bias */
    uint32_t    batch;              /* number of products of this shape in one call; 0 counts as 1 */
    uint32_t    fast_accumulate;    /* FP8: add in fewer bits, about 14, where that is faster (Ada, Hopper) */
    void       *aux;                /* device memory, aligned to 16. GELU: its input, in d's format and order;
                                       RELU: one bit per element, 0 if below 0, in lines of ldaux bits */
    int64_t     ldaux;              /* GELU: elements, a multiple of 8; RELU: bits, a multiple of 128 */
    uint32_t    block_scales;       /* 0; or the number of elements along k that share a scale: 32 (MXFP8) or
                                       16 (NVFP4: multiply its tensor scales into alpha) */
} mpt_gemm_args;

/* What slows a product down (0) or makes mpt_cuda_gemm refuse it (1): enum, bit, 0 or 1, text. */
#define MPT_GEMM_PROBLEMS(X)                                                                               \
    X(MPT_GEMM_NO_TENSOR_CORES, 0, 0, "this GPU has no Tensor Cores for this format: no gain in speed")    \
    X(MPT_GEMM_NO_BF16,         1, 1, "bf16 products need Ampere (compute capability 8.0) or newer")       \
    X(MPT_GEMM_NO_FP8,          2, 1, "FP8 products need Ada (compute capability 8.9) or newer")           \
    X(MPT_GEMM_FP8_LAYOUT,      3, 1, "FP8 here, and blocks, need both operands contiguous along k: "      \
                                      "row_major with trans_b, or column-major with trans_a")              \
    X(MPT_GEMM_FP8_PAIR,        4, 1, "two e5m2 operands do not multiply: make one e4m3")                  \
    X(MPT_GEMM_FORMATS,         5, 1, "no such product: see a_format, b_format, d_format, bias_format")    \
    X(MPT_GEMM_SHAPE,           6, 1, "m, n or k below 1, or a leading dimension shorter than its rows")   \
    X(MPT_GEMM_PAD_M,           7, 0, "m is not a multiple of the elements in 16 bytes: pad it")           \
    X(MPT_GEMM_PAD_N,           8, 0, "n is not a multiple of the elements in 16 bytes: pad it")           \
    X(MPT_GEMM_PAD_K,           9, 0, "k is not a multiple of the elements in 16 bytes: pad it")           \
    X(MPT_GEMM_PAD_LD,         10, 0, "a leading dimension or stride is no multiple of 16 bytes: pad it")  \
    X(MPT_GEMM_ALIGN,          11, 0, "a pointer is not a multiple of 16 bytes")                           \
    X(MPT_GEMM_FP8_PAD,        12, 1, "FP8 needs lines (what is contiguous of a, b and d), leading "       \
                                      "dimensions and pointers of multiples of 16 bytes")                  \
    X(MPT_GEMM_SCALES,         13, 1, "scales are for FP8: d_scale and d_amax for an FP8 d, the others "   \
                                      "for FP8 operands")                                                  \
    X(MPT_GEMM_EPILOGUE,       14, 1, "no such epilogue: see MPT_EPILOGUE_BIAS and so on, aux and ldaux; "  \
                                      "those of training are for one product that is not FP8")             \
    X(MPT_GEMM_NO_BLOCKS,      15, 1, "block-scaled products need Blackwell (compute capability 10.0)")    \
    X(MPT_GEMM_BLOCKS,         16, 1, "blocks: cublasLt multiplies MXFP8 and NVFP4, not MXFP4; one "       \
                                      "product, k a multiple of 32, scales at multiples of 16 bytes")

#define MPTI_PROBLEM(id, bit, refused, text) id = 1 << bit,
enum { MPT_GEMM_PROBLEMS(MPTI_PROBLEM) MPT_GEMM_FINE = 0 };

typedef struct mpt_gemm_verdict {
    unsigned problems;          /* MPT_GEMM_* or-ed; 0: full speed */
    int      refused;           /* nonzero: mpt_cuda_gemm would return an error */
    int      tensor_cores;      /* nonzero: the product runs on Tensor Cores */
    int64_t  m, n, k;           /* the sizes, padded up to what runs at full speed */
} mpt_gemm_verdict;

/* mpt_gemm_problem_text -- the sentence for one MPT_GEMM_* bit; "" for anything else.  Threads: any. */
static inline const char *mpt_gemm_problem_text(unsigned problem)
{
    switch (problem) {
#define MPTI_PROBLEM_TEXT(id, bit, refused, text) case 1u << bit: return text;
        MPT_GEMM_PROBLEMS(MPTI_PROBLEM_TEXT)
    default: return "";
    }
}

/* mpt_gemm_advice -- what keeps a product on some GPU from running at all, on Tensor Cores, or at full speed.
 * It asks no driver, so it also answers for a GPU that this machine does not have.
 *   cc  in  compute capability, 10 * major + minor
 *   g   in  not NULL; pointers that are NULL count as aligned
 * Returns: the problems, and sizes to pad to.  Threads: any.
 * Source: cuBLAS library documentation, cublasLtMatmul and "Tensor Core Usage"; for MXFP4 nvmath-python, a
 * wrapper of cublasLt, whose BlockScalingFormat has only MXFP8 and NVFP4. */
static inline mpt_gemm_verdict mpt_gemm_advice(int cc, const mpt_gemm_args *g);

// >>C9 matrix products -----------------------------------------------------------------------------
/* mpt_cuda_gemm_open -- make a context ready for mpt_cuda_gemm: a cublasLt handle and its workspace.
 *   workspace  in  your device memory, at least and aligned to 256 bytes, which outlives the context; or NULL
 *   bytes      in  size of the workspace; 0, with NULL: 32 MiB, which cuBLAS recommends for Hopper
 * Needs MPT_USE_CUBLASLT, defined where mpt_cuda.h is implemented, and -lcublasLt; else MPT_E_UNSUPPORTED.
 * A second call changes nothing.  Errors: also MPT_E_MEMORY, MPT_E_CUBLAS.  Allocates. */
MPT_CUDA_DEF mpt_status mpt_cuda_gemm_open(mpt_cuda *c, void *workspace, size_t bytes);

/* mpt_cuda_gemm -- queue one matrix product on cublasLt, with FP32 accumulation. For the first product of a
 * kind (sizes, formats, alignment) it asks cublasLt for a plan, that is, an algorithm; later products of this
 * kind, and replays of a captured graph, reuse it. The call neither allocates device memory nor waits, so a
 * graph may capture even the first product; cublasLt then loads a kernel, for which the call relaxes the
 * thread's capture mode. All products of a context share one workspace: use them on one stream at a time.
 *   g  in  copied at the call
 * Errors: also MPT_E_UNSUPPORTED (mpt_gemm_advice and mpt_cuda_error_text say why), MPT_E_ORDER before
 * mpt_cuda_gemm_open, MPT_E_CUBLAS, MPT_E_MEMORY; then nothing is written.
 * Exact: no; FP32 accumulation (unless fast_accumulate), in an order that cuBLAS chooses. */
MPT_CUDA_DEF mpt_status mpt_cuda_gemm(mpt_cuda *c, const mpt_gemm_args *g, mpt_stream stream);

// >>C10 range reports ------------------------------------------------------------------------------
#ifndef MPT_NO_REPORTS
typedef struct mpt_cuda_ranges mpt_cuda_ranges;    /* one range report per tensor of a list, on the device */

/* Which array of each tensor to count. */
typedef MPTI_ENUM(mpt_cuda_array) { MPT_CUDA_GRAD, MPT_CUDA_PARAM, MPT_CUDA_MASTER } mpt_cuda_array;

/* mpt_cuda_ranges_create, mpt_cuda_ranges_destroy -- empty reports (>>C4), one per tensor, against a format.
 *   list  in  must outlive the reports
 * Errors: also MPT_E_MEMORY, and MPT_E_UNSUPPORTED as mpt_range_init. */
MPT_CUDA_DEF mpt_status mpt_cuda_ranges_create(mpt_cuda *c, mpt_cuda_ranges **out, const mpt_cuda_list *list,
                                               mpt_format format);
MPT_CUDA_DEF void mpt_cuda_ranges_destroy(mpt_cuda_ranges *ranges);

/* mpt_cuda_ranges_add -- count the numbers in one array of all tensors that have it, in one launch.
 *   every  in  1: all numbers; k: the first of every k groups of eight, a sample at 1/k of the cost */
MPT_CUDA_DEF mpt_status mpt_cuda_ranges_add(mpt_cuda *c, mpt_cuda_ranges *ranges, mpt_cuda_array array,
                                            uint32_t every, mpt_stream stream);

/* mpt_cuda_ranges_get_sync -- the report of one tensor so far, byte for byte as mpt_range_add would have made
 * it on the CPU. Waits for the stream. On an error *r keeps its value. */
MPT_CUDA_DEF mpt_status mpt_cuda_ranges_get_sync(mpt_cuda *c, const mpt_cuda_ranges *ranges, size_t tensor,
                                                 mpt_range *r, mpt_stream stream);
#endif /* MPT_NO_REPORTS */

// >>C11 advice, without a GPU ----------------------------------------------------------------------
/* The conditions of mpt_gemm_advice, by which mpt_cuda_gemm refuses products too. */
static inline int mpti_gemm_is_narrow(mpt_format f) { return mpti_is_fp8(f) || f == MPT_E2M1; }

/* Elements in 16 bytes, the width of a Tensor Core access. */
static inline int64_t mpti_gemm_unit(mpt_format f)
{
    return f == MPT_F32 || f == MPT_TF32 ? 4 : f == MPT_E2M1 ? 32 : mpti_is_fp8(f) ? 16 : 8;
}

static inline unsigned mpti_gemm_tc(mpt_format f)
{
    return f == MPT_F16 ? MPT_TC_F16 : f == MPT_BF16 ? MPT_TC_BF16 : f == MPT_TF32 ? MPT_TC_TF32
         : mpti_is_fp8(f) ? MPT_TC_FP8 : f == MPT_E2M1 ? MPT_TC_BLOCKS : 0u;
}

/* The epilogues that use aux; those that write sums to bias; those that use bias at all. */
#define MPTI_EPILOGUE_AUX  (MPT_EPILOGUE_AUX | MPT_EPILOGUE_DRELU | MPT_EPILOGUE_DGELU)
#define MPTI_EPILOGUE_SUMS (MPT_EPILOGUE_BGRAD | MPT_EPILOGUE_BGRAD_A | MPT_EPILOGUE_BGRAD_B)
#define MPTI_EPILOGUE_BIAS (MPT_EPILOGUE_BIAS | MPTI_EPILOGUE_SUMS)

/* cublasLt is column-major: a row-major d = a b is d' = b' a' in the same bytes. So swap the operands. */
static inline mpt_gemm_args mpti_gemm_column_major(const mpt_gemm_args *g)
{
    mpt_gemm_args t = *g;
    if (!g->row_major) return t;
#define MPTI_SWAP(x, y) t.x = g->y, t.y = g->x
    MPTI_SWAP(m, n), MPTI_SWAP(a, b), MPTI_SWAP(lda, ldb), MPTI_SWAP(a_stride, b_stride);
    MPTI_SWAP(a_format, b_format), MPTI_SWAP(trans_a, trans_b), MPTI_SWAP(a_scale, b_scale);
    if (!(g->epilogue & MPT_EPILOGUE_BGRAD_A) != !(g->epilogue & MPT_EPILOGUE_BGRAD_B))
        t.epilogue ^= MPT_EPILOGUE_BGRAD_A | MPT_EPILOGUE_BGRAD_B;
    t.row_major = 0u;
    return t;
}

/* From here on `t` is column-major. The length of a line of a or b: its elements that are contiguous. */
static inline int64_t mpti_gemm_line_a(const mpt_gemm_args *t) { return t->trans_a ? t->k : t->m; }
static inline int64_t mpti_gemm_line_b(const mpt_gemm_args *t) { return t->trans_b ? t->n : t->k; }

static inline int mpti_gemm_epilogue_ok(const mpt_gemm_args *t)
{
    const uint32_t e = t->epilogue, forward = e & (MPT_EPILOGUE_RELU | MPT_EPILOGUE_GELU),
                   backward = e & (MPT_EPILOGUE_DRELU | MPT_EPILOGUE_DGELU),
                   one = forward | backward | (e & (MPT_EPILOGUE_BGRAD_A | MPT_EPILOGUE_BGRAD_B));
    const int64_t  unit = e & (MPT_EPILOGUE_RELU | MPT_EPILOGUE_DRELU) ? 128 : 8;
    if (e > 511u || one & (one - 1u) || (e & MPT_EPILOGUE_BIAS && one != forward) ||
        (e & MPT_EPILOGUE_AUX && !forward) || (e & MPT_EPILOGUE_BGRAD && !backward) ||
        (e & MPT_EPILOGUE_BGRAD_A && t->trans_a) || (e & MPT_EPILOGUE_BGRAD_B && !t->trans_b))
        return 0;
    return !(e & MPTI_EPILOGUE_AUX) ||
           (t->ldaux >= t->m && !(t->ldaux % unit) && !((uintptr_t)t->aux % 16u));
}

static inline int mpti_gemm_formats_ok(const mpt_gemm_args *g)
{
    const mpt_format a = g->a_format, b = g->b_format, d = g->d_format;
    const int        fp8 = mpti_is_fp8(a) && mpti_is_fp8(b), blocks = g->block_scales != 0u;
    const int        narrow = fp8 || (a == MPT_E2M1 && b == MPT_E2M1 && blocks);
    if (g->epilogue & MPTI_EPILOGUE_BIAS &&
        g->bias_format != (!narrow ? d : d == MPT_F16 ? MPT_F16 : MPT_BF16))
        return 0;
    if (narrow)
        return d == MPT_F32 || d == MPT_F16 || d == MPT_BF16 ||
               (mpti_is_fp8(d) && !blocks && !mpti_is_nonzero(g->beta) && !(a == b && d == MPT_E5M2));
    return a == b && (a == MPT_F32 || a == MPT_TF32 || a == MPT_F16 || a == MPT_BF16) &&
           (d == MPT_F32 || d == a);
}

static inline int mpti_gemm_blocks_ok(const mpt_gemm_args *g)
{
    return g->block_scales == (g->a_format == MPT_E2M1 ? 16u : 32u) && mpti_gemm_is_narrow(g->a_format) &&
           mpti_gemm_is_narrow(g->b_format) && g->batch < 2u && g->k % 32 == 0 &&
           !(((uintptr_t)g->a_scale | (uintptr_t)g->b_scale) % 16u);
}

static inline int mpti_gemm_shape_ok(const mpt_gemm_args *t)
{
    return t->m > 0 && t->n > 0 && t->k > 0 && t->lda >= mpti_gemm_line_a(t) &&
           t->ldb >= mpti_gemm_line_b(t) && t->ldd >= t->m && t->batch <= 0x7fffffffu &&
           (t->batch < 2u || (t->a_stride >= 0 && t->b_stride >= 0 &&
                              t->d_stride >= t->m + (t->n - 1) * t->ldd));
}

static inline unsigned mpti_gemm_refusals(unsigned problems)
{
#define MPTI_OR_REFUSED(id, bit, refused, text) | ((unsigned)refused << bit)
    return problems & (0u MPT_GEMM_PROBLEMS(MPTI_OR_REFUSED));
}

/* First collect the problems, then derive the rest of the verdict. */
static inline mpt_gemm_verdict mpt_gemm_advice(int cc, const mpt_gemm_args *g)
{
    const unsigned  cores = mpt_gpu_from_cc(cc).tensor_cores;
    const unsigned  wanted = g->block_scales ? MPT_TC_BLOCKS : mpti_gemm_tc(g->a_format);
    const int       fp8 = mpti_gemm_is_narrow(g->a_format) || mpti_gemm_is_narrow(g->b_format);
    const int       plain = g->batch < 2u && !mpti_gemm_is_narrow(g->a_format);
    const uintptr_t pointers = (uintptr_t)g->a | (uintptr_t)g->b | (uintptr_t)g->d;
    const mpt_gemm_args t = mpti_gemm_column_major(g);
    const int64_t       ua = mpti_gemm_unit(t.a_format), ub = mpti_gemm_unit(t.b_format),
                        ud = mpti_gemm_unit(t.d_format), uk = mpti_gemm_unit(g->a_format),
                        u = uk > ud ? uk : ud;
    mpt_gemm_verdict    out;
    unsigned            p = 0u;
    if (!mpti_gemm_formats_ok(g)) p |= MPT_GEMM_FORMATS;
    if (!mpti_gemm_shape_ok(&t)) p |= MPT_GEMM_SHAPE;
    if (!mpti_gemm_epilogue_ok(&t) || (g->epilogue & (MPTI_EPILOGUE_AUX | MPTI_EPILOGUE_SUMS) && !plain))
        p |= MPT_GEMM_EPILOGUE;
    if (!(cores & wanted)) p |= wanted == MPT_TC_BF16 ? MPT_GEMM_NO_BF16
                              : wanted == MPT_TC_FP8 ? MPT_GEMM_NO_FP8
                              : wanted == MPT_TC_BLOCKS ? MPT_GEMM_NO_BLOCKS : MPT_GEMM_NO_TENSOR_CORES;
    if (g->block_scales && !mpti_gemm_blocks_ok(g)) p |= MPT_GEMM_BLOCKS;
    if (g->a_format == MPT_E5M2 && g->b_format == MPT_E5M2) p |= MPT_GEMM_FP8_PAIR;
    if (fp8 && (!t.trans_a || t.trans_b) && (cc / 10 != 10 || g->block_scales))
        p |= MPT_GEMM_FP8_LAYOUT;       /* sm_100 and sm_103 take any without blocks */
    if (wanted) {       /* not plain FP32, which uses no Tensor Cores */
        if (g->m % u) p |= MPT_GEMM_PAD_M;
        if (g->n % u) p |= MPT_GEMM_PAD_N;
        if (g->k % uk) p |= MPT_GEMM_PAD_K;
        if (t.lda % ua || t.ldb % ub || t.ldd % ud) p |= MPT_GEMM_PAD_LD;
        if (t.batch > 1u && (t.a_stride % ua || t.b_stride % ub || t.d_stride % ud)) p |= MPT_GEMM_PAD_LD;
        if (pointers % 16u) p |= MPT_GEMM_ALIGN;
    }
    if (fp8 && (p & (MPT_GEMM_PAD_LD | MPT_GEMM_ALIGN) || mpti_gemm_line_a(&t) % ua ||
                mpti_gemm_line_b(&t) % ub || t.m % ud))
        p |= MPT_GEMM_FP8_PAD;
    if (((g->a_scale || g->b_scale) && !fp8) || ((g->d_scale || g->d_amax) && !mpti_is_fp8(g->d_format)))
        p |= MPT_GEMM_SCALES;
    out.problems = p;
    out.refused = mpti_gemm_refusals(p) != 0u;
    out.tensor_cores = !out.refused && (cores & wanted) != 0u;
    out.m = wanted ? (g->m + u - 1) / u * u : g->m;
    out.n = wanted ? (g->n + u - 1) / u * u : g->n;
    out.k = wanted ? (g->k + uk - 1) / uk * uk : g->k;
    return out;
}

#endif /* MPT_CUDA_H */

/* In a .cu file MPT_IMPLEMENTATION implements all three headers; in a C file only the other two. The tests
 * compile the same source against an emulation on the CPU, which defines MPT_CUDA_EMU. */
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
#if CUDART_VERSION < 12000
#error "mpt_cuda.h needs CUDA 12.0 or newer"
#endif
#ifdef MPT_USE_CUBLASLT
#include <cublasLt.h>
#endif
#ifdef MPT_USE_NCCL
#include <nccl.h>
#endif

// >>C12 kernel helpers -----------------------------------------------------------------------------
#ifndef MPT_SHARED
#define MPT_SHARED(T, name, n) __shared__ T name[n]
#endif
#ifdef __CUDA_ARCH__
#define MPTI_UNROLL _Pragma("unroll")
#else
#define MPTI_UNROLL
#endif
#define MPTI_FOR_BY(k, n, step) MPTI_UNROLL for (uint32_t k = 0; k < (n); k += step)
#define MPTI_FOR(k, n) MPTI_FOR_BY(k, n, 1)
#define MPTI_D static __device__ __forceinline__
#define MPTI_KERNEL(...) static __global__ void __launch_bounds__(__VA_ARGS__)

/* A block has 256 threads with 8 elements each, together one row of MPTI_LANES; thread t owns lanes
 * 8t .. 8t + 7. Eight 16-bit elements are one 16-byte access, the widest that exists. */
#define MPTI_THREADS 256u
#define MPTI_VEC     8u
#define MPTI_WARPS   (MPTI_THREADS / 32u)
static_assert(MPTI_THREADS * MPTI_VEC == MPTI_LANES, "a block is one row of lanes");
static_assert(MPTI_THREADS == MPTI_SLOTS, "thread t of the last block adds slot t");

/* ---- elements in memory ---- */

/* The type in which V bit patterns are loaded and stored: 16 bytes per access, or all V if they are fewer. */
template <size_t Bytes> struct mpti_access { typedef uint4 type; };
template <> struct mpti_access<8> { typedef uint2 type; };
template <> struct mpti_access<4> { typedef unsigned type; };
template <> struct mpti_access<2> { typedef unsigned short type; };
template <uint32_t V, class T> using mpti_wide = typename mpti_access<V * sizeof(T)>::type;

template <uint32_t V, class T> MPTI_D bool mpti_is_aligned(const T *p)
{
    return (uintptr_t)p % sizeof(mpti_wide<V, T>) == 0;
}

/* How many of the V elements from `at` on are below `end`. */
template <uint32_t V, class T> MPTI_D uint32_t mpti_inside(T at, T end)
{
    return at >= end ? 0u : end - at < V ? (uint32_t)(end - at) : V;
}

/* Load or store the first `count` of V patterns, one by one at an array's end or where it is not aligned; a
 * load sets the rest to 0. Wide accesses use __ldcs and __stcs (streaming; clang's CUDA has neither): arrays
 * are larger than the cache and used once per step, so they should not evict what the next layer reads. */
#if defined(__clang__) && defined(__CUDA__)
template <class T> MPTI_D T mpti_load_once(const T *p) { return *p; }
template <class T> MPTI_D void mpti_store_once(T *p, T x) { *p = x; }
#else
template <class T> MPTI_D T mpti_load_once(const T *p) { return __ldcs(p); }
template <class T> MPTI_D void mpti_store_once(T *p, T x) { __stcs(p, x); }
#endif

template <uint32_t V, class T> MPTI_D void mpti_load_wide(const T *p, T x[])
{
    MPTI_FOR_BY(i, V, sizeof(mpti_wide<V, T>) / sizeof(T)) {
        const mpti_wide<V, T> q = mpti_load_once(reinterpret_cast<const mpti_wide<V, T> *>(p + i));
        memcpy(x + i, &q, sizeof q);
    }
}
template <uint32_t V, class T> MPTI_D void mpti_load_codes(const T *p, uint32_t count, T x[])
{
    if (count >= V && mpti_is_aligned<V>(p)) return mpti_load_wide<V>(p, x);
    MPTI_FOR(k, V) x[k] = k < count ? p[k] : (T)0;
}

/* Load R rows of V patterns, `step` elements apart, of the `rest` elements from p on. Issue all loads before
 * any value is used: the bytes in flight decide how much memory bandwidth a multiprocessor gets. */
template <uint32_t R, uint32_t V, class T>
MPTI_D void mpti_load_rows(const T *p, uint64_t step, uint64_t rest, T x[R][V])
{
    if (rest >= (R - 1) * step + V && mpti_is_aligned<V>(p) && mpti_is_aligned<V>(p + step)) {
        MPTI_FOR(r, R) mpti_load_wide<V>(p + r * step, x[r]);
        return;
    }
    MPTI_FOR(r, R) mpti_load_codes<V>(p + r * step, mpti_inside<V>(r * step, rest), x[r]);
}

template <uint32_t V, class T> MPTI_D void mpti_store_codes(T *p, uint32_t count, const T x[])
{
    if (count >= V && mpti_is_aligned<V>(p)) {
        MPTI_FOR_BY(i, V, sizeof(mpti_wide<V, T>) / sizeof(T)) {
            mpti_wide<V, T> q;
            memcpy(&q, x + i, sizeof q);
            mpti_store_once(reinterpret_cast<mpti_wide<V, T> *>(p + i), q);
        }
        return;
    }
    MPTI_FOR(k, V)
        if (k < count) p[k] = x[k];
}

MPTI_D float mpti_f16_quick(uint16_t h)
{
#ifdef __CUDA_ARCH__
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
#else
    return mpti_f32_make(mpti_f16_decode(h));
#endif
}

MPTI_D uint32_t mpti_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Convert V patterns to those of floats, and back. The type gives the width of an element, and `format` which
 * of the two formats of this width it has. A whole array has one format, so the branch does not diverge. */
#define MPTI_EACH(to, value) MPTI_FOR(k, V) to[k] = value;
#define MPTI_EITHER(condition, to, value, other) \
    { if (condition) { MPTI_EACH(to, value) } else { MPTI_EACH(to, other) } }

/* odd: another rounding follows. Rounding a double to odd first makes the two act as one. */
template <uint32_t V, class T>
MPTI_D void mpti_codes_to_f32(int32_t format, const T x[], uint32_t u[], bool odd)
{
    if (sizeof(T) == 8) { MPTI_EACH(u, mpti_f32_narrow(x[k], odd)) }
    else if (sizeof(T) == 4) { MPTI_EACH(u, (uint32_t)x[k]) }
    else if (sizeof(T) == 2) MPTI_EITHER(format == MPT_F16, u, mpti_f16_decode((uint16_t)x[k]),
                                         mpti_bf16_decode((uint16_t)x[k]))
    else MPTI_EITHER(format == MPT_E4M3, u, mpti_e4m3_decode((uint8_t)x[k]), mpti_e5m2_decode((uint8_t)x[k]))
}

template <uint32_t V, class T>
MPTI_D void mpti_codes_from_f32(int32_t format, const uint32_t u[], T y[], bool saturate)
{
    if (sizeof(T) == 8) { MPTI_EACH(y, (T)mpti_f64_widen(u[k])) }
    else if (sizeof(T) == 4) { MPTI_EACH(y, (T)u[k]) }
    else if (sizeof(T) == 2) MPTI_EITHER(format == MPT_F16, y, mpti_f16_encode(u[k]), mpti_bf16_encode(u[k]))
    else { MPTI_EACH(y, (T)mpti_fp8_code(u[k], format == MPT_E5M2, saturate)) }
}

template <uint32_t V, class T>
MPTI_D void mpti_codes_stochastic(int32_t format, const uint32_t u[], const uint32_t random[], T y[])
{
    if (sizeof(T) == 2) MPTI_EITHER(format == MPT_F16, y, (T)mpti_f16_stochastic(u[k], random[k]),
                                    (T)mpti_bf16_stochastic(u[k], random[k]))
    else MPTI_EITHER(format == MPT_E4M3, y, (T)mpti_e4m3_stochastic(u[k], random[k]),
                     (T)mpti_e5m2_stochastic(u[k], random[k]))
}

/* Patterns to floats, by one instruction each; the hardware chooses the payload of a NaN. */
template <uint32_t V, class T> MPTI_D void mpti_codes_quick(int32_t format, const T x[], float y[])
{
    if (sizeof(T) == 4) { MPTI_EACH(y, mpti_f32_make((uint32_t)x[k])) }
    else MPTI_EITHER(format == MPT_F16, y, mpti_f16_quick((uint16_t)x[k]),
                     mpti_f32_make((uint32_t)x[k] << 16))
}

/* mpti_load_raw loads the first `count` of eight elements of an f32, f16 or bf16 array, from element i on, as
 * they are in memory (16-bit ones fill four words); mpti_raw_to_f32 decodes them. Two functions, and words,
 * so that a kernel issues all of its loads before it looks into the first: else AdamW takes 1.08 as long. */
MPTI_D void mpti_load_raw(const void *array, int32_t format, uint64_t i, uint32_t count,
                          uint32_t raw[MPTI_VEC])
{
    const uint16_t *const p = (const uint16_t *)array + i;
    if (format == MPT_F32) return mpti_load_codes<MPTI_VEC>((const uint32_t *)array + i, count, raw);
    if (count >= MPTI_VEC && mpti_is_aligned<MPTI_VEC>(p))
        return mpti_load_wide<MPTI_VEC / 2>((const uint32_t *)p, raw);
    MPTI_FOR(k, MPTI_VEC / 2) raw[k] = 0u;
    MPTI_FOR(k, MPTI_VEC)
        if (k < count) raw[k / 2] |= (uint32_t)p[k] << 16 * (k % 2);
}
MPTI_D void mpti_raw_to_f32(int32_t format, const uint32_t raw[MPTI_VEC], float x[MPTI_VEC])
{
    uint16_t code[MPTI_VEC];
    float    y[MPTI_VEC];
    memcpy(code, raw, sizeof code);
    mpti_codes_quick<MPTI_VEC>(format, code, y);
    MPTI_FOR(k, MPTI_VEC) x[k] = format == MPT_F32 ? mpti_f32_make(raw[k]) : y[k];    /* a branch spills */
}
MPTI_D void mpti_load_some(const void *array, int32_t format, uint64_t i, uint32_t count, float x[MPTI_VEC])
{
    uint32_t raw[MPTI_VEC] = {0u};
    mpti_load_raw(array, format, i, count, raw);
    mpti_raw_to_f32(format, raw, x);
}

MPTI_D void mpti_store_some(void *array, int32_t format, uint64_t i, uint32_t count, const float x[MPTI_VEC])
{
    uint32_t u[MPTI_VEC];
    uint16_t code[MPTI_VEC];
    MPTI_FOR(k, MPTI_VEC) u[k] = mpti_f32_bits(x[k]);
    if (format == MPT_F32) {
        mpti_store_codes<MPTI_VEC>((uint32_t *)array + i, count, u);
    } else {
        mpti_codes_from_f32<MPTI_VEC>(format, u, code, false);
        mpti_store_codes<MPTI_VEC>((uint16_t *)array + i, count, code);
    }
}

MPTI_D float mpti_rounded16(int32_t format, float x)
{
    const uint32_t u = mpti_f32_bits(x);
    return mpti_f32_make(format == MPT_F16 ? mpti_f16_decode(mpti_f16_encode(u))
                                           : mpti_bf16_decode(mpti_bf16_encode(u)));
}

/* ---- random bits ---- */

/* Move the words `By` places to the front if ahead & By is not 0. A function: written out it is slower. */
template <uint32_t By> MPTI_D void mpti_words_forward(uint32_t w[2 * MPTI_VEC], uint32_t ahead)
{
    MPTI_FOR(k, MPTI_VEC + By - 1) w[k] = ahead & By ? w[k + By] : w[k];
}

/* mpt_philox of eight elements from any `first` on. A variable index would put the words in local memory. */
MPTI_D void mpti_random8(uint64_t first, uint32_t stream, uint64_t step, uint64_t seed, uint32_t r[MPTI_VEC])
{
    const uint32_t ahead = (uint32_t)(first % 8);
    uint32_t       w[2 * MPTI_VEC];
    MPTI_FOR(q, 2) {
        const uint64_t block = (first / 8 + q) & ~(uint64_t)0 / 8;
        if (q == 1 && !ahead) continue;
        const mpt_philox_words words =
            mpt_philox4x32((uint32_t)block, (uint32_t)(block >> 32), stream, (uint32_t)step,
                           mpti_philox_key(seed, step));
        MPTI_FOR(k, 4) {
            w[8 * q + k] = words.word[k];
            w[8 * q + 4 + k] = mpti_swap_halves(words.word[k]);
        }
    }
    mpti_words_forward<4>(w, ahead);
    mpti_words_forward<2>(w, ahead);
    mpti_words_forward<1>(w, ahead);
    MPTI_FOR(k, MPTI_VEC) r[k] = w[k];
}

/* ---- a block ---- */

/* Add one value per thread in adjacent pairs, as mpti_pair_sum does; the result is valid in thread 0. The
 * butterfly of shuffles adds neighbours first, and a + b has the same bits as b + a. */
MPTI_D double mpti_block_pair_sum(double x)
{
    MPT_SHARED(double, warp, MPTI_WARPS);
    MPTI_UNROLL
    for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    __syncthreads();                    /* the previous sum has been read */
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x != 0) return 0.0;
    return ((warp[0] + warp[1]) + (warp[2] + warp[3])) + ((warp[4] + warp[5]) + (warp[6] + warp[7]));
}

/* The maximum over a warp, or the sum. */
template <bool Max> MPTI_D uint32_t mpti_warp_fold(uint32_t x)
{
    MPTI_UNROLL
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, x, distance);
        x = Max ? mpti_max(other, x) : x + other;
    }
    return x;
}

/* The maximum over a block, valid in thread 0. */
MPTI_D uint32_t mpti_block_max(uint32_t x)
{
    MPT_SHARED(uint32_t, most, MPTI_WARPS);
    x = mpti_warp_fold<true>(x);
    __syncthreads();                    /* the previous maximum has been read */
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0)
        MPTI_FOR(w, MPTI_WARPS) x = mpti_max(most[w], x);
    return x;
}

/* Raise *to, the bits of a float or an integer, to the maximum over a block, if it is not NULL. */
MPTI_D void mpti_block_raise(void *to, uint32_t mine)
{
    if (!to) return;
    mine = mpti_block_max(mine);
    if (threadIdx.x == 0) atomicMax((unsigned *)to, mine);
}

/* True in all threads of the last block, which sees what all others wrote. The counter wraps to 0. */
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

// >>C13 implementation: context ------------------------------------------------------------------
typedef struct mpti_lt mpti_lt;

struct mpt_cuda {
    int        device, multiprocessors;
    int        code;
    uint64_t   users;                       /* 1 until mpt_cuda_destroy, and 1 for each list */
    char       text[256];
    const mpt_cuda_state *stepped;          /* state whose step was closed last, and by which list */
    const mpt_cuda_list  *stepped_by;
    const mpt_cuda_state *checked;          /* likewise of the last check */
    const mpt_cuda_list  *checked_by;
    mpti_lt   *gemm;                        /* what mpt_cuda_gemm needs; NULL until mpt_cuda_gemm_open */
    void     (*gemm_close)(mpt_cuda *c);    /* frees gemm */
};

/* Set the error text to "call: why (advice)", truncated if it is too long. */
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

/* For calls that take a context c: refuse with `status`, and store the reason in the context. */
#define MPTI_REFUSE_AS(call, when, status, why)                                                            \
    do { if (when) return mpti_cuda_bad(c, status, call, why); } while (0)
#define MPTI_REFUSE(when, status, why) MPTI_REFUSE_AS(__func__, when, status, why)

static const char *mpti_cuda_advice(cudaError_t e)
{
    static const struct { cudaError_t e; const char *advice; } row[] = {
        {cudaErrorMemoryAllocation, " (free device memory or make the model or batch smaller)"},
        {cudaErrorInsufficientDriver, " (install or update the NVIDIA driver; the CPU functions of mpt.h "
                                      "need none)"},
        {cudaErrorNoDevice, " (no NVIDIA GPU is visible; the CPU functions of mpt.h need none)"},
        {cudaErrorInvalidDevice, " (device numbers start at 0)"},
        {cudaErrorNoKernelImageForDevice, " (compile with -arch for this GPU)"},
        {cudaErrorInvalidDeviceFunction, " (compile with -arch for this GPU)"},
        {cudaErrorUnsupportedPtxVersion, " (update the NVIDIA driver, or compile with -arch for this GPU)"},
        {cudaErrorInvalidResourceHandle, " (call cudaSetDevice with this context's device first, and pass a "
                                         "stream made there)"},
        {cudaErrorIllegalAddress, " (a host pointer, an array that was freed, or one shorter than was said)"},
        {cudaErrorStreamCaptureUnsupported, " (while a stream is capturing nothing can be created, destroyed "
                                            "or waited for: do it before)"}};
    for (const auto &r : row)
        if (r.e == e) return r.advice;
    return "";
}

static mpt_status mpti_cuda_result(mpt_cuda *c, cudaError_t e, const char *call)
{
    if (e == cudaSuccess) return MPT_OK;
    (void)cudaGetLastError();           /* clear it: the program's own next check should not see it */
    c->code = (int)e;
    mpti_cuda_say(c, call, cudaGetErrorString(e), mpti_cuda_advice(e));
    return e == cudaErrorMemoryAllocation ? MPT_E_MEMORY : MPT_E_CUDA;
}

/* An error unless the context's device is the current one, which launches and allocations need. */
static cudaError_t mpti_cuda_here(const mpt_cuda *c)
{
    int               now = -1;
    const cudaError_t e = cudaGetDevice(&now);
    return e != cudaSuccess || now == c->device ? e : cudaErrorInvalidResourceHandle;
}

/* Launch by a function, not by <<<>>>, so that a plain C++ compiler can read this file too. With mpti_same,
 * arguments are converted to the types of the kernel's parameters, as the array of pointers needs. */
template <class T> struct mpti_same { typedef T type; };
template <class... P>
static mpt_status mpti_launch(mpt_cuda *c, const char *call, void (*kernel)(P...), uint64_t blocks,
                              unsigned threads, mpt_stream stream, typename mpti_same<P>::type... args)
{
    void          *pointers[] = {(void *)&args...};
    const unsigned grid = blocks < 1u ? 1u : blocks < 0xffffffffu ? (unsigned)blocks : 0xffffffffu;
    cudaError_t    e = mpti_cuda_here(c);
    if (e == cudaSuccess) e = cudaLaunchKernel(kernel, dim3(grid), dim3(threads), pointers, 0, stream);
    return mpti_cuda_result(c, e, call);
}

/* Blocks for an array, each thread with `width` elements. Fewer that loop reach 0.94 of the speed (H100). */
static uint64_t mpti_blocks_of(uint64_t n, uint32_t width)
{
    return n / (MPTI_THREADS * width) + (n % (MPTI_THREADS * width) != 0u);
}

#define MPTI_UNALIGNED "an array is not at a multiple of its elements' size"
#define MPTI_OVERLAP "two arrays overlap, or one is larger than memory"

/* Unless *e is an error already: allocate a device table, copy it from the host (NULL: zeros), and wait. On
 * an error *to is NULL. cudaMemcpy returns when it has read pageable host memory, maybe before a kernel on a
 * non-blocking stream can see the copy. */
template <class T> static void mpti_cuda_table(cudaError_t *e, T **to, const void *from, size_t bytes)
{
    if (*e == cudaSuccess) *e = cudaMalloc((void **)to, bytes);
    if (*e == cudaSuccess)
        *e = from ? cudaMemcpy(*to, from, bytes, cudaMemcpyHostToDevice) : cudaMemset(*to, 0, bytes);
    if (*e == cudaSuccess) *e = cudaStreamSynchronize(NULL);
    if (*e == cudaSuccess) return;
    (void)cudaFree(*to);
    *to = NULL;
}

MPT_DEF mpt_status mpt_cuda_create(mpt_cuda **out, int device)
{
    if (!out) return MPT_E_ARG;
    *out = (mpt_cuda *)calloc(1, sizeof **out);
    if (!*out) return MPT_E_MEMORY;
    (*out)->device = device;
    (*out)->users = 1;
    if (device < 0) return mpti_cuda_bad(*out, MPT_E_ARG, __func__, "device numbers start at 0");
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&(*out)->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    return mpti_cuda_result(*out, e, __func__);
}

MPT_DEF void mpt_cuda_destroy(mpt_cuda *c)
{
    if (!c) return;
    if (c->gemm_close) c->gemm_close(c);
    if (--c->users == 0) free(c);
}

MPT_DEF const char *mpt_cuda_error_text(const mpt_cuda *c)
{
    if (!c) return "there is no context: mpt_cuda_create was never called, or ran out of memory";
    return *c->text ? c->text : "no error";
}

MPT_DEF int mpt_cuda_error_code(const mpt_cuda *c) { return c ? c->code : 0; }

// >>C14 implementation: list, state --------------------------------------------------------------
/* A tensor, and a chunk of a tensor (at most MPTI_CHUNK elements), as the kernels see them. */
typedef struct mpti_cuda_tensor {
    mpt_tensor tensor;
    uint64_t   first_chunk, whole_chunk;    /* index of its first chunk in the list; of parts, in the whole */
    float      factor;              /* LAMB: minus the step length of this tensor, in the current step */
} mpti_cuda_tensor;
typedef struct mpti_cuda_chunk { uint64_t first; uint32_t tensor, n; } mpti_cuda_chunk;

struct mpt_cuda_list {
    mpt_cuda         *context;
    mpti_cuda_tensor *tensors;      /* device, [count] */
    mpti_cuda_chunk  *chunks;       /* behind tensors, [chunk_count] */
    double           *partial;      /* device, [2 * chunk_count] */
    double           *sums;         /* behind partial, [MPTI_COMBINED + whole_count]: summed over the ranks */
    mpti_cuda_tensor *host;         /* the same as tensors and chunks, in host memory */
    uint64_t          chunk_count, tensor_count, whole_count;   /* the last: of the whole that parts are of */
    uint32_t          part;         /* MPT_STAGE_PART if a tensor is a part of a larger one, else 0 */
    uint64_t          sizes;        /* mpti_sizes_filter */
    int               mixed;        /* some tensors are parts, and others are not */
    unsigned          has;          /* MPT_NEEDS_* met by all tensors; MPTI_ZEROES: no gradient is shared */
};

/* Launch a kernel over the chunks of a list, its parameters MPTI_OF_LIST, with at most Each blocks for each
 * multiprocessor; it loops over the rest, and results do not depend on the number. Of 32, some wait, so that
 * what is done first gets more (eight take up to 1.2 times as long on an H100). One per chunk is slower. */
#define MPTI_OF_LIST const mpti_cuda_tensor *tensors, const mpti_cuda_chunk *chunks, uint64_t chunk_count
template <uint32_t Each = 32, class... P>
static mpt_status mpti_launch_list(mpt_cuda *c, const char *call, void (*kernel)(MPTI_OF_LIST, P...),
                                   const mpt_cuda_list *l, mpt_stream stream,
                                   typename mpti_same<P>::type... args)
{
    const uint64_t most = (uint64_t)c->multiprocessors * Each;
    if (l->context->device != c->device) return mpti_cuda_result(c, cudaErrorInvalidResourceHandle, call);
    return mpti_launch(c, call, kernel, l->chunk_count < most ? l->chunk_count : most, MPTI_THREADS, stream,
                       l->tensors, l->chunks, l->chunk_count, args...);
}

/* Fill the table, and copy it to the device. After a failure the caller frees what was allocated. */
static mpt_status mpti_cuda_list_fill(mpt_cuda_list *l, const mpt_tensor *tensors, size_t count)
{
    size_t chunks = 0;
    for (size_t i = 0; i < count; i++) chunks += mpti_chunks(tensors[i].n);
    const size_t bytes = count * sizeof(mpti_cuda_tensor) + chunks * sizeof(mpti_cuda_chunk) + 1;
    l->host = (mpti_cuda_tensor *)calloc(1, bytes);
    l->part = mpti_parts_of(tensors, count, &l->mixed);
    l->sizes = mpti_sizes_filter(tensors, count, 0u);
    mpti_cuda_chunk *const chunk = (mpti_cuda_chunk *)(l->host + count);
    cudaError_t            e = l->host ? mpti_cuda_here(l->context) : cudaErrorMemoryAllocation;
    for (size_t i = 0; l->host && i < count; i++) {
        const mpt_tensor *const t = &tensors[i];
        l->host[i] = {*t, l->chunk_count, l->whole_count + t->first / MPTI_CHUNK, 0.0f};
        l->whole_count += mpti_chunks(t->whole);
        for (size_t at = 0; at < t->n; at += MPTI_CHUNK)
            chunk[l->chunk_count++] = {at, (uint32_t)i,
                                       (uint32_t)(t->n - at < MPTI_CHUNK ? t->n - at : MPTI_CHUNK)};
    }
    mpti_cuda_table(&e, &l->tensors, l->host, bytes);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&l->partial, (2 * chunks + MPTI_COMBINED + l->whole_count) * sizeof(double));
    l->chunks = (mpti_cuda_chunk *)(l->tensors + count);
    l->sums = l->partial + 2 * chunks;
    return mpti_cuda_result(l->context, e, "mpt_cuda_list_create");
}

MPT_DEF mpt_status mpt_cuda_list_create(mpt_cuda *c, mpt_cuda_list **out, const mpt_tensor *tensors,
                                        size_t count)
{
    mpt_fault fault;
    if (out) *out = NULL;
    MPTI_REFUSE(!c || !out, MPT_E_ARG, "NULL argument");
    mpt_status status = mpt_tensors_validate(tensors, count, MPT_NEEDS_GRAD, &fault);
    MPTI_REFUSE(status != MPT_OK, status, fault.why);
    MPTI_REFUSE(count > 0xffffffffu, MPT_E_ARG, "more than 2^32 - 1 tensors");
    for (size_t i = 0; i < count; i++) {
        const mpt_tensor *const t = &tensors[i];
        const uintptr_t         moments = (uintptr_t)t->m | (uintptr_t)t->v | (uintptr_t)t->v_max;
        MPTI_REFUSE((uintptr_t)t->grad % mpti_format_bytes(t->grad_format) ||
                    (uintptr_t)t->param % mpti_format_bytes(t->param_format) ||
                    moments % mpti_format_bytes(mpti_moments_format(t)) || (uintptr_t)t->master % 4u ||
                    (uintptr_t)t->extra % 2u, MPT_E_ARG, MPTI_UNALIGNED);
    }
    mpt_cuda_list *l = (mpt_cuda_list *)calloc(1, sizeof *l);
    MPTI_REFUSE(!l, MPT_E_MEMORY, "out of host memory");
    l->context = c;
    c->users++;
    l->tensor_count = count;
    for (unsigned need = MPT_NEEDS_MASTER; need <= MPT_NEEDS_WHOLE; need *= 2u)
        if (mpt_tensors_validate(tensors, count, need | (need & MPTI_ZEROES ? MPT_NEEDS_GRAD : 0u), NULL) ==
            MPT_OK) l->has |= need;
    status = mpt_tensors_validate(tensors, count, l->has % MPTI_ZEROES, &fault);      /* together */
    status = status == MPT_OK ? mpti_cuda_list_fill(l, tensors, count)
                              : mpti_cuda_bad(c, status, __func__, fault.why);
    if (status == MPT_OK)
        *out = l;
    else
        mpt_cuda_list_destroy(l);
    return status;
}

MPT_DEF void mpt_cuda_list_destroy(mpt_cuda_list *list)
{
    if (!list) return;
    (void)cudaFree(list->tensors);
    (void)cudaFree(list->partial);
    free(list->host);
    if (list->context->checked_by == list) list->context->checked = NULL;
    if (--list->context->users == 0) free(list->context);
    free(list);
}

MPTI_KERNEL(32) mpti_k_state_set(mpt_cuda_state *state, mpt_cuda_state value)
{
    *state = value;
    state->blocks_done = state->chunks_taken = 0u;
}
MPTI_KERNEL(32) mpti_k_lr_set(mpt_cuda_state *state, float lr) { state->lr = lr; }

#define MPTI_BAD_STATE "scaler not initialised, or lr below 0 or not finite"
static bool mpti_cuda_state_ok(const mpt_scaler *s, float lr) { return s->scale > 0.0f && mpti_is_rate(lr); }

MPT_DEF mpt_status mpt_cuda_state_set(mpt_cuda *c, mpt_cuda_state *state, const mpt_cuda_state *host,
                                      mpt_stream stream)
{
    MPTI_REFUSE(!c || !state || !host, MPT_E_ARG, "NULL argument");
    MPTI_REFUSE(!mpti_cuda_state_ok(&host->scaler, host->lr), MPT_E_ARG, MPTI_BAD_STATE);
    if (c->stepped == state) c->stepped = NULL;     /* any list may take the next step */
    return mpti_launch(c, __func__, mpti_k_state_set, 1, 1, stream, state, *host);
}

MPT_DEF mpt_status mpt_cuda_state_create(mpt_cuda *c, mpt_cuda_state **out, const mpt_scaler *scaler,
                                         float lr)
{
    mpt_cuda_state host = mpt_cuda_state();
    if (out) *out = NULL;
    MPTI_REFUSE(!c || !out || !scaler, MPT_E_ARG, "NULL argument");
    MPTI_REFUSE(!mpti_cuda_state_ok(scaler, lr), MPT_E_ARG, MPTI_BAD_STATE);
    host.scaler = *scaler;
    host.lr = lr;
    c->stepped = NULL;                      /* the new state may get the address of an old one */
    cudaError_t e = mpti_cuda_here(c);
    mpti_cuda_table(&e, out, &host, sizeof host);
    return mpti_cuda_result(c, e, __func__);
}

MPT_DEF void mpt_cuda_state_destroy(mpt_cuda_state *state) { (void)cudaFree(state); }

MPT_DEF mpt_status mpt_cuda_state_get(mpt_cuda *c, mpt_cuda_state *host, const mpt_cuda_state *state,
                                      mpt_stream stream)
{
    MPTI_REFUSE(!c || !state || !host, MPT_E_ARG, "NULL argument");
    cudaError_t e = mpti_cuda_here(c);
    if (e == cudaSuccess) e = cudaMemcpyAsync(host, state, sizeof *host, cudaMemcpyDeviceToHost, stream);
    return mpti_cuda_result(c, e, __func__);
}

MPT_DEF mpt_status mpt_cuda_lr_set(mpt_cuda *c, mpt_cuda_state *state, float lr, mpt_stream stream)
{
    MPTI_REFUSE(!c || !state || !mpti_is_rate(lr), MPT_E_ARG,
                "NULL argument, or lr is below 0 or not finite");
    return mpti_launch(c, __func__, mpti_k_lr_set, 1, 1, stream, state, lr);
}

// >>C15 implementation: conversion -----------------------------------------------------------------
/* Elements of a thread: 64 bytes to read, or 128 to write if that is less. They lie in rows, in which it has
 * 16 bytes on the wider side, so that neighbours access neighbouring bytes on both. */
MPT_HD constexpr uint32_t mpti_convert_each(size_t out, size_t in)
{
    return (uint32_t)(out > 2 * in ? 128 / out : 64 / in);
}

/* With a state, which the kernels of one width take, numbers are multiplied by its scale. */
template <class Out, class In>
MPTI_KERNEL(MPTI_THREADS)
mpti_k_convert(void *dst, int32_t dst_format, const void *src, int32_t src_format, uint64_t n,
               mpt_cuda_state *state, bool saturate)
{
    const uint32_t V = 16 / (sizeof(Out) > sizeof(In) ? sizeof(Out) : sizeof(In)), row = MPTI_THREADS * V;
    const uint32_t R = mpti_convert_each(sizeof(Out), sizeof(In)) / V;
    const uint64_t i = (uint64_t)blockIdx.x * R * row + threadIdx.x * V;
    const bool     scales = sizeof(Out) == sizeof(In) && state;
    const float    scale = scales ? state->scaler.scale : 1.0f;
    In             x[R][V];
    uint32_t       u[V];
    Out            y[V];
    mpti_load_rows<R, V>((const In *)src + i, row, i < n ? n - i : 0, x);
    MPTI_FOR(r, R) {
        const uint64_t at = i + r * row;
        mpti_codes_to_f32<V>(src_format, x[r], u, sizeof(Out) != 4);
        if (scales) MPTI_EACH(u, mpti_f32_bits(mpti_mul(mpti_f32_make(u[k]), scale)))
        mpti_codes_from_f32<V>(dst_format, u, y, saturate);
        mpti_store_codes<V>((Out *)dst + at, mpti_inside<V>(at, n), y);
    }
    if (scales && blockIdx.x == 0 && threadIdx.x == 0) state->scaler.in_use |= 3u;
}

template <class Out>
MPTI_KERNEL(MPTI_THREADS)
mpti_k_stochastic(void *dst, int32_t format, const void *src, uint64_t n, uint64_t seed, uint64_t first,
                  uint32_t random_stream, uint64_t step, const mpt_cuda_state *state)
{
    const uint32_t V = 16 / sizeof(Out);
    const uint64_t now = step + (state ? state->scaler.updates : 0u);
    const uint64_t i = ((uint64_t)blockIdx.x * MPTI_THREADS + threadIdx.x) * V;
    const uint32_t count = mpti_inside<V>(i, n);
    uint32_t       x[V], random[MPTI_VEC];
    Out            y[V];
    mpti_load_codes<V>((const uint32_t *)src + i, count, x);
    MPTI_FOR_BY(k, V, MPTI_VEC) {
        mpti_random8(first + i + k, random_stream, now, seed, random);
        mpti_codes_stochastic<MPTI_VEC>(format, x + k, random, y + k);
    }
    mpti_store_codes<V>((Out *)dst + i, count, y);
}

/* Bytes of an element; 0 if no kernel converts the format. */
static uint32_t mpti_convert_bytes(mpt_format format)
{
    return format == MPT_F64 ? 8u : format == MPT_F32 ? 4u : format == MPT_F16 || format == MPT_BF16 ? 2u
         : mpti_is_fp8(format) ? 1u : 0u;
}

/* The kernel for these widths. No two formats have 8 bytes: there Wide is a type that is taken anyway. */
typedef decltype(mpti_k_convert<uint8_t, uint8_t>) mpti_convert_kernel;
template <class Out, class Wide = uint64_t> static mpti_convert_kernel *mpti_convert_from(uint32_t in)
{
    return in == 8 ? mpti_k_convert<Out, Wide> : in == 4 ? mpti_k_convert<Out, uint32_t>
         : in == 2 ? mpti_k_convert<Out, uint16_t> : mpti_k_convert<Out, uint8_t>;
}
static mpti_convert_kernel *mpti_convert_to(uint32_t out, uint32_t in)
{
    return out == 8 ? mpti_convert_from<uint64_t, uint32_t>(in) : out == 4 ? mpti_convert_from<uint32_t>(in)
         : out == 2 ? mpti_convert_from<uint16_t>(in) : mpti_convert_from<uint8_t>(in);
}

/* Why the device does not convert between these formats with these options; NULL if it does. */
static const char *mpti_convert_refusal(mpt_format dst_format, mpt_format src_format, const mpt_opts *o)
{
    const bool stochastic = o->rounding == MPT_RND_STOCHASTIC;
    const bool saturate = o->overflow == MPT_OVERFLOW_SATURATE && mpti_convert_bytes(dst_format) == 1u;
    if (!mpti_convert_bytes(dst_format) || !mpti_convert_bytes(src_format))
        return "dst_format or src_format is not f64, f32, f16, bf16, e4m3 or e5m2";
    if (dst_format == src_format) return "dst_format is src_format: that is a copy";
    if (o->flush || o->nan != MPT_NAN_KEEP || (stochastic && saturate) ||
        (o->overflow != MPT_OVERFLOW_IEEE && !saturate) ||
        (o->rounding != MPT_RND_NEAREST_EVEN && !stochastic))
        return "no options but saturation to e4m3 and e5m2, or stochastic rounding";
    if (stochastic && (o->randoms || src_format != MPT_F32 || dst_format == MPT_F64))
        return "stochastic rounding is from f32, by the header's own random bits";
    return NULL;
}

MPT_DEF mpt_status mpt_cuda_convert_n(mpt_cuda *c, mpt_format dst_format, void *dst, mpt_format src_format,
                                      const void *src, size_t n, const mpt_opts *opts,
                                      const mpt_cuda_state *state, mpt_stream stream)
{
    const mpt_opts o = opts ? *opts : mpt_opts();
    if (!c || (n && (!dst || !src)) || (opts && mpti_bad_opts(opts)))
        return mpti_cuda_bad(c, MPT_E_ARG, __func__, "no context, NULL with n above 0, or an unknown option");
    const char *const refusal = mpti_convert_refusal(dst_format, src_format, &o);
    MPTI_REFUSE(refusal, MPT_E_UNSUPPORTED, refusal);
    if (!n) return MPT_OK;
    const uint32_t out = mpti_convert_bytes(dst_format), in = mpti_convert_bytes(src_format);
    MPTI_REFUSE((uintptr_t)dst % out || (uintptr_t)src % in, MPT_E_ARG, MPTI_UNALIGNED);
    MPTI_REFUSE(mpti_no_array(dst, n, sizeof(double)) || mpti_meet(dst, n * out, src, n * in), MPT_E_ARG,
                MPTI_OVERLAP);
    if (o.rounding == MPT_RND_STOCHASTIC)
        return mpti_launch(c, __func__, out == 2u ? mpti_k_stochastic<uint16_t> : mpti_k_stochastic<uint8_t>,
                           mpti_blocks_of(n, 16u / out), MPTI_THREADS, stream, dst, dst_format, src, n,
                           o.seed, o.first_element, o.stream, o.step, state);
    return mpti_launch(c, __func__, mpti_convert_to(out, in),
                       mpti_blocks_of(n, mpti_convert_each(out, in)), MPTI_THREADS, stream, dst, dst_format,
                       src, src_format, n, NULL, o.overflow == MPT_OVERFLOW_SATURATE);
}

/* The saturated FP8 codes of two numbers, `first` in the lower byte. They may be Inf, but not NaN. */
MPTI_D uint16_t mpti_fp8_pair(float first, float second, bool e5m2)
{
#ifdef MPTI_PTX_FP8
    uint16_t pair;
    if (e5m2) MPTI_PTX_FP8_PAIR("e5m2", pair, second, first);
    else MPTI_PTX_FP8_PAIR("e4m3", pair, second, first);
    return pair;
#else
    return (uint16_t)(mpti_fp8_code(mpti_f32_bits(first), e5m2, 1) |
                      mpti_fp8_code(mpti_f32_bits(second), e5m2, 1) << 8);
#endif
}

#ifndef MPT_NO_BLOCKS
/* The place of the scale of block k of a line, where a row of tiles has `tiles` of them. */
MPT_HD uint64_t mpti_scale_place(uint64_t line, uint64_t k, uint64_t tiles)
{
    return (line / 128 * tiles + k / 4) * 512 + line % 32 * 16 + line % 128 / 32 * 4 + k % 4;
}

typedef struct mpti_e2m1_at { uint32_t at[7]; } mpti_e2m1_at;

/* A thread has 16 elements: an NVFP4 block, or half an MX block. The limits are for scale 1, for MXFP4. */
template <class In>
MPTI_KERNEL(MPTI_THREADS)
mpti_k_blocks(uint8_t *codes, uint8_t *scales, const void *src, int32_t src_format, uint64_t n, uint64_t line,
              mpti_blocks b, uint32_t nan, mpti_e2m1_at limit)
{
    const uint32_t V = 16;
    const uint64_t i = ((uint64_t)blockIdx.x * MPTI_THREADS + threadIdx.x) * V;
    const uint64_t at = b.powers ? i / 32 : i / 16;
    const uint32_t count = mpti_inside<V>(i, n);
    In             x[V];
    float          f[V];
    uint8_t        y[V];
    uint32_t       code[V], word[V / 8] = {0u}, most = 0u;
    mpti_load_codes<V>((const In *)src + i, count, x);
    mpti_codes_quick<V>(src_format, x, f);
    MPTI_FOR(k, V) most = mpti_max(mpti_f32_bits(f[k]) & 0x7fffffffu, most);
    const uint32_t other = __shfl_xor_sync(0xffffffffu, most, 1);
    if (b.powers) most = mpti_max(other, most);
    const uint32_t scale = most < 0x7f800000u ? mpti_block_scale(&b, most) : nan;
    if (most >= 0x7f800000u) MPTI_EACH(f, 0.0f)
    if (b.powers) {         /* a product with a power of two: exact, unless the code is 0 anyway */
        const float factor = mpti_f32_make(scale < 254u ? (254u - scale) << 23 : 0x00400000u);
        MPTI_EACH(f, mpti_mul(f[k], factor))
    }
    if (b.sign_at == 3) {
        if (!b.powers) mpti_e2m1_limits(&b, scale ? scale : 1u, limit.at);
        MPTI_EACH(code, mpti_e2m1_code(limit.at, mpti_f32_bits(f[k])))
    } else {
        MPTI_FOR_BY(k, V, 2) {
            const uint16_t pair = mpti_fp8_pair(f[k], f[k + 1], b.m == 2);
            memcpy(y + k, &pair, sizeof pair);
        }
    }
    if (b.packed && b.sign_at == 3) {
        MPTI_FOR(k, V) word[k / 8] |= code[k] << 4 * (k % 8);
        memcpy(y, word, sizeof word);
        mpti_store_codes<V / 2>(codes + i / 2, (count + 1u) / 2u, y);
    } else {
        if (b.sign_at == 3) MPTI_EACH(y, (uint8_t)code[k])
        mpti_store_codes<V>(codes + i, count, y);
    }
    if (i < n && !(b.powers && i % 32))
        scales[line ? mpti_scale_place(at / line, at % line, (line + 3) / 4) : at] = (uint8_t)scale;
}

MPT_DEF mpt_status mpt_cuda_block_quantize_n(mpt_cuda *c, mpt_block block, uint8_t *codes, uint8_t *scales,
                                             mpt_format src_format, const void *src, size_t n, size_t cols,
                                             const mpt_block_opts *opts, mpt_stream stream)
{
    const mpt_block_info *const info = mpt_block_get(block);
    mpti_blocks                 b;
    MPTI_REFUSE(!c || !info || (n && (!codes || !scales || !src)) ||
                (cols && (cols % (size_t)info->size || n % cols)) ||
                mpti_blocks_init(&b, info, mpt_format_get(info->element), mpt_format_get(info->scale), opts),
                MPT_E_ARG,
                "NULL argument, an unknown block or option, or cols that n or blocks do not divide into");
    MPTI_REFUSE(!mpti_is_train_format(src_format) || !b.plain || b.sign_at == 5,
                MPT_E_UNSUPPORTED, "src_format not f32, f16 or bf16, options for elements, or MXFP6");
    mpti_e2m1_at   limit;
    const uint64_t line = cols / (size_t)info->size, lines = cols ? n / cols : 0u;
    const size_t   bytes = cols ? (size_t)mpti_scale_place((lines + 127u) / 128u * 128u, 0u, (line + 3u) / 4u)
                                : n / (size_t)info->size + (n % (size_t)info->size != 0u);
    const size_t   code_bytes = b.packed ? mpt_packed_size(n, b.element->bits) : n;
    const size_t   in = n * mpti_format_bytes(src_format);
    MPTI_REFUSE((uintptr_t)src % mpti_format_bytes(src_format), MPT_E_ARG, MPTI_UNALIGNED);
    MPTI_REFUSE(mpti_no_array(src, n, sizeof(float)) ||
                mpti_some_meet(codes, code_bytes, scales, bytes, src, in), MPT_E_ARG, MPTI_OVERLAP);
    cudaError_t    e = n ? mpti_cuda_here(c) : cudaSuccess;
    if (e == cudaSuccess && n && (line % 4u || lines % 128u)) e = cudaMemsetAsync(scales, 0, bytes, stream);
    if (e != cudaSuccess || !n) return mpti_cuda_result(c, e, __func__);
    mpti_e2m1_limits(&b, 0x38u, limit.at);
    return mpti_launch(c, __func__, src_format == MPT_F32 ? mpti_k_blocks<uint32_t> : mpti_k_blocks<uint16_t>,
                       mpti_blocks_of(n, 16u), MPTI_THREADS, stream, codes, scales, src, src_format, n, line,
                       b, (uint32_t)b.scale->nan_code, limit);
}
#endif /* MPT_NO_BLOCKS */

// >>C16 implementation: FP8 delayed scaling --------------------------------------------------------
#ifndef MPT_NO_FP8
/* Encode V patterns, and raise *amax to the largest |x|: two per instruction if all are finite, else one. */
template <uint32_t V, class In>
MPTI_D void mpti_fp8_codes(int32_t format, const In x[V], float scale, bool e5m2, uint8_t y[V],
                           uint32_t *amax)
{
    float    f[V];
    uint32_t u[V], most = 0u;
    mpti_codes_quick<V>(format, x, f);
    MPTI_FOR(k, V) most = mpti_max(mpti_f32_bits(f[k]) & 0x7fffffffu, most);
    if (most < 0x7f800000u && mpti_f32_is_finite(scale)) {
        MPTI_FOR_BY(k, V, 2) {
            const uint16_t pair = mpti_fp8_pair(mpti_mul(f[k], scale), mpti_mul(f[k + 1], scale), e5m2);
            memcpy(y + k, &pair, sizeof pair);
        }
        *amax = mpti_max(most, *amax);
        return;
    }
    mpti_codes_to_f32<V>(format, x, u, false);
    MPTI_FOR(k, V) {
        *amax = mpti_max(u[k] & 0x7fffffffu, *amax);
        y[k] = (uint8_t)mpti_fp8_code(mpti_fp8_scaled(u[k], scale), e5m2, 1);
    }
}

/* In is uint32_t for f32, uint16_t for f16 and bf16. */
template <class In>
MPTI_KERNEL(MPTI_THREADS)
mpti_k_fp8_encode(uint8_t *dst, const void *src, int32_t src_format, uint64_t n, const float *scale,
                  float *amax, bool e5m2)
{
    const uint32_t V = 16, R = 64 / (V * sizeof(In));       /* 64 bytes in flight, stores of 16 */
    const float    factor = scale ? *scale : 1.0f;
    const uint64_t row = MPTI_THREADS * V, i = (uint64_t)blockIdx.x * R * row + threadIdx.x * V;
    uint32_t       most = 0u;
    In             x[R][V];
    uint8_t        y[V];
    mpti_load_rows<R, V>((const In *)src + i, row, i < n ? n - i : 0, x);
    MPTI_FOR(r, R) {
        mpti_fp8_codes<V>(src_format, x[r], factor, e5m2, y, &most);
        if (dst) mpti_store_codes<V>(dst + i + r * row, mpti_inside<V>(i + r * row, n), y);
    }
    mpti_block_raise(amax, most);
}

/* The transpose goes through shared memory in tiles of 128 x 128 codes, so that stores fill lines of memory.
 * A thread has 8 x 8 codes: it reads eight rows, and writes eight words to the tile, one per column. */
#define MPTI_SIDE       128u
#define MPTI_SIDE_WORDS 16u             /* words in one column: 8 codes per word */

/* The place of word w of column c. Half a warp writes one w of the columns 8 t + k for t = 0 .. 15, and reads
 * all words of one column: each pair of banks is used once. */
MPT_HD uint32_t mpti_tile_place(uint32_t c, uint32_t w) { return c * MPTI_SIDE_WORDS + (w ^ c >> 3); }

template <class In>
MPTI_KERNEL(MPTI_THREADS)
mpti_k_fp8_transpose(uint8_t *dst, uint8_t *transposed, const void *src, int32_t src_format, uint64_t rows,
                     uint64_t cols, const float *scale, float *amax, bool e5m2)
{
    MPT_SHARED(uint64_t, tile, MPTI_SIDE * MPTI_SIDE_WORDS);
    const float    factor = scale ? *scale : 1.0f;
    const uint32_t x = threadIdx.x % 16 * 8, y = threadIdx.x / 16 * 8;  /* this thread's place in the tile */
    const uint32_t across = (uint32_t)((cols + MPTI_SIDE - 1) / MPTI_SIDE);
    const uint64_t row = (uint64_t)(blockIdx.x / across) * MPTI_SIDE;
    const uint64_t col = (uint64_t)(blockIdx.x % across) * MPTI_SIDE;
    const uint32_t wide = mpti_inside<8>(col + x, cols), high = mpti_inside<8>(row + y, rows);
    const uint64_t at = (row + y) * cols + col + x;
    uint32_t       most = 0u;
    uint8_t        code[8][8], column[8];
    In             v[8][8];         /* at the right edge, some are from the next row, and not stored */
    mpti_load_rows<8, 8>((const In *)src + at, cols, wide && high ? rows * cols - at : 0, v);
    MPTI_FOR(r, 8) {
        mpti_fp8_codes<8>(src_format, v[r], factor, e5m2, code[r], &most);
        if (dst && r < high) mpti_store_codes<8>(dst + at + r * cols, wide, code[r]);
    }
    MPTI_FOR(k, 8) {
        MPTI_FOR(r, 8) column[r] = code[r][k];
        memcpy(&tile[mpti_tile_place(x + k, y / 8)], column, sizeof column);
    }
    __syncthreads();
    const uint32_t w = threadIdx.x % MPTI_SIDE_WORDS, tall = mpti_inside<8>(row + 8 * w, rows);
    MPTI_FOR(k, 8) {
        const uint32_t c = threadIdx.x / MPTI_SIDE_WORDS + k * 16;
        memcpy(column, &tile[mpti_tile_place(c, w)], sizeof column);
        if (col + c < cols) mpti_store_codes<8>(transposed + (col + c) * rows + row + 8 * w, tall, column);
    }
    mpti_block_raise(amax, most);
}

/* One block per tensor. The history moves on in place, 256 entries at a time. With `init` nothing is read. */
MPTI_KERNEL(MPTI_THREADS) mpti_k_fp8_update(mpt_fp8_scaling s, bool init)
{
    const uint64_t i = blockIdx.x, length = s.recipe.length;
    float *const   h = s.history + i * length;
    const uint32_t now = init ? 0u : mpti_f32_bits(s.amax[i]);
    const uint32_t last = s.recipe.drop_bad && now >= 0x7f800000u ? 0u : now;
    uint32_t       most = last;
    for (uint64_t first = 0; first < length; first += MPTI_THREADS) {
        const uint64_t k = first + threadIdx.x;
        const uint32_t past = !init && k + 1 < length ? mpti_f32_bits(h[k + 1]) : last;
        __syncthreads();            /* all have read what their neighbours overwrite */
        if (k < length) h[k] = mpti_f32_make(past);
        if (k < length && s.recipe.choice == MPT_AMAX_MAX) most = mpti_max(past, most);
    }
    most = mpti_block_max(most);    /* after its barriers all have read amax */
    if (threadIdx.x == 0) {
        const float scale = init ? 1.0f : mpti_fp8_next_scale(s.scale[i], most, &s.recipe);
        s.scale[i] = scale;
        s.inverse[mpti_inverse_at(i, s.inverse_step)] = mpti_div(1.0f, scale);
        s.amax[i] = 0.0f;
    }
}

static mpt_status mpti_cuda_fp8_run(mpt_cuda *c, const mpt_fp8_scaling *s, bool init, mpt_stream stream,
                                    const char *name)
{
    MPTI_REFUSE_AS(name, !c || !s || (s->count && (!s->scale || !s->inverse || !s->amax || !s->history)),
                   MPT_E_ARG, "NULL argument, or NULL array with count above 0");
    MPTI_REFUSE_AS(name, !mpti_is_fp8(s->recipe.format), MPT_E_UNSUPPORTED, "format not e4m3 or e5m2");
    MPTI_REFUSE_AS(name, !s->recipe.length || s->recipe.margin < -32 || s->recipe.margin > 32 ||
                   (unsigned)s->recipe.choice >= (unsigned)MPT_AMAX_CHOICE_COUNT, MPT_E_ARG,
                   "length 0, margin beyond 32, or an unknown choice");
    return !s->count ? MPT_OK : mpti_launch(c, name, mpti_k_fp8_update, s->count,
                                            MPTI_THREADS, stream, *s, init);
}

MPT_DEF mpt_status mpt_cuda_fp8_init(mpt_cuda *c, const mpt_fp8_scaling *s, mpt_stream stream)
{
    return mpti_cuda_fp8_run(c, s, true, stream, __func__);
}

MPT_DEF mpt_status mpt_cuda_fp8_update(mpt_cuda *c, const mpt_fp8_scaling *s, mpt_stream stream)
{
    return mpti_cuda_fp8_run(c, s, false, stream, __func__);
}

#define MPTI_REFUSE_FORMATS_BUT_FP8                                                                        \
    MPTI_REFUSE(!mpti_is_fp8(dst_format), MPT_E_UNSUPPORTED, "dst_format is not e4m3 or e5m2");            \
    MPTI_REFUSE(!mpti_is_train_format(src_format), MPT_E_UNSUPPORTED, "src_format is not f32, f16 or bf16"); \
    MPTI_REFUSE((uintptr_t)src % mpti_format_bytes(src_format) || ((uintptr_t)scale | (uintptr_t)amax) % 4u, \
                MPT_E_ARG, MPTI_UNALIGNED)

MPT_DEF mpt_status mpt_cuda_fp8_encode_n(mpt_cuda *c, mpt_format dst_format, void *dst, mpt_format src_format,
                                         const void *src, size_t n, const float *scale, float *amax,
                                         mpt_stream stream)
{
    MPTI_REFUSE(!c || (n && ((!dst && !amax) || !src)), MPT_E_ARG, "NULL argument with n above 0");
    MPTI_REFUSE_FORMATS_BUT_FP8;
    MPTI_REFUSE(mpti_no_array(src, n, sizeof(float)) ||
                mpti_meet(dst, n, src, n * mpti_format_bytes(src_format)), MPT_E_ARG, MPTI_OVERLAP);
    if (!n) return MPT_OK;
    return mpti_launch(c, __func__,
                       src_format == MPT_F32 ? mpti_k_fp8_encode<uint32_t> : mpti_k_fp8_encode<uint16_t>,
                       mpti_blocks_of(n, 64u / (uint32_t)mpti_format_bytes(src_format)), MPTI_THREADS, stream,
                       (uint8_t *)dst, src, src_format, n, scale, amax, dst_format == MPT_E5M2);
}

MPT_DEF mpt_status mpt_cuda_fp8_encode_transpose(mpt_cuda *c, mpt_format dst_format, void *dst,
                                                 void *transposed, mpt_format src_format, const void *src,
                                                 size_t rows, size_t cols, const float *scale, float *amax,
                                                 mpt_stream stream)
{
    MPTI_REFUSE(!c || (rows && cols && (!transposed || !src)) || (cols && rows > ~(size_t)0 / 4u / cols),
                MPT_E_ARG, "NULL argument, or a matrix larger than memory");
    MPTI_REFUSE_FORMATS_BUT_FP8;
    if (!rows || !cols) return MPT_OK;
    const size_t n = rows * cols, bytes = n * mpti_format_bytes(src_format);
    MPTI_REFUSE(mpti_some_meet(dst, n, transposed, n, src, bytes), MPT_E_ARG, MPTI_OVERLAP);
    const uint64_t tiles = (uint64_t)((rows - 1u) / MPTI_SIDE + 1u) * ((cols - 1u) / MPTI_SIDE + 1u);
    return mpti_launch(c, __func__, src_format == MPT_F32 ? mpti_k_fp8_transpose<uint32_t>
                                                          : mpti_k_fp8_transpose<uint16_t>,
                       tiles, MPTI_THREADS, stream, (uint8_t *)dst, (uint8_t *)transposed, src, src_format,
                       rows, cols, scale, amax, dst_format == MPT_E5M2);
}
#endif /* MPT_NO_FP8 */

// >>C17 implementation: the step -------------------------------------------------------------------
MPT_DEF mpt_status mpt_cuda_scaler_scale_n(mpt_cuda *c, mpt_cuda_state *state, mpt_format format, void *x,
                                           size_t n, mpt_stream stream)
{
    MPTI_REFUSE(!c || !state || mpti_no_array(x, n, sizeof(float)), MPT_E_ARG, "NULL, or too large an array");
    MPTI_REFUSE(!mpti_is_train_format(format), MPT_E_UNSUPPORTED, "format is not f32, f16 or bf16");
    const uint32_t bytes = mpti_convert_bytes(format);
    MPTI_REFUSE((uintptr_t)x % bytes, MPT_E_ARG, MPTI_UNALIGNED);
    return mpti_launch(c, __func__, mpti_convert_to(bytes, bytes),
                       mpti_blocks_of(n, mpti_convert_each(bytes, bytes)), MPTI_THREADS, stream, x, format, x,
                       format, n, state, false);
}

/* The bad elements that a block found: how many of each cause, and the complement of the first one's key. */
typedef struct mpti_bad { unsigned long long first; uint32_t count[3]; } mpti_bad;

/* Of eight gradients and their results x, count the bad ones in *tally, a register of this thread: ten bits
 * for each cause, as a thread has 64 elements of a chunk. Keep the least key, and set each bad x to 0. */
template <class T>
MPTI_D void mpti_note_bad8(int32_t format, uint32_t first, uint32_t count, const T code[MPTI_VEC],
                           float x[MPTI_VEC], uint32_t *tally, uint32_t *least)
{
    uint32_t g[MPTI_VEC];
    mpti_codes_to_f32<MPTI_VEC>(format, code, g, false);
    MPTI_FOR(k, MPTI_VEC) {
        const uint32_t cause = mpti_cause_1(mpti_f32_make(g[k]), x[k]);
        const uint32_t which = cause / 2u, key = (first + k) << 2 | which;  /* 1, 2, 4 -> 0, 1, 2 */
        if (cause) x[k] = 0.0f;
        if (!cause || k >= count) continue;
        *tally += 1u << 10 * which;
        *least = *least < key ? *least : key;
    }
}

/* Add what a warp found to the block's counts, which go to the state at the end of the kernel: one atomic for
 * each gradient, if all are bad, would take a thousand times as long as the check. Keys are in list order, so
 * the least key is that of the first bad element, whichever block comes first. */
MPTI_D void mpti_add_bad(mpti_bad *b, uint64_t chunk, uint32_t tally, uint32_t least)
{
    if (!__any_sync(0xffffffffu, tally != 0u)) return;
    const uint32_t first = ~mpti_warp_fold<true>(~least);
    for (uint32_t which = 0; which < 3; which++) {
        const uint32_t n = mpti_warp_fold<false>(tally >> 10 * which & 1023u);
        if (n && threadIdx.x % 32 == 0) atomicAdd(&b->count[which], n);
    }
    if (threadIdx.x % 32 == 0) atomicMax(&b->first, ~((unsigned long long)chunk << 16 | first));
}

MPTI_D void mpti_block_add_bad(mpt_cuda_state *state, const mpti_bad *b)
{
    __syncthreads();                    /* all warps are done */
    if (threadIdx.x != 0 || !b->first) return;
    for (uint32_t which = 0; which < 3; which++)
        if (b->count[which]) atomicAdd(&state->bad_count[which], (unsigned long long)b->count[which]);
    atomicMax(&state->bad_first, b->first);
    atomicOr(&state->bad, 1u);
}

/* If the sum of squares of a chunk, in thread 0, is neither sound (mpti_sum_is_sound) nor 0: sum again, from
 * cache, the squares of gradient * factor * shift. The result is valid in thread 0. */
template <class T>
MPTI_D double mpti_block_sum_again(const mpt_tensor *t, const mpti_cuda_chunk *chunk, float factor,
                                   double sum)
{
    MPT_SHARED(float, shift, 1);
    if (threadIdx.x == 0)
        shift[0] = mpti_sum_is_sound(sum) || mpti_f64_is_zero(sum) ? 0.0f : mpti_shift_for(sum);
    __syncthreads();
    if (!mpti_is_nonzero(shift[0])) return sum;
    float lane[MPTI_VEC] = {0.0f};
    for (uint32_t i = threadIdx.x * MPTI_VEC; i < chunk->n; i += MPTI_LANES) {
        T     code[MPTI_VEC];
        float x[MPTI_VEC];
        mpti_load_codes<MPTI_VEC>((const T *)t->grad + chunk->first + i, chunk->n - i, code);
        mpti_codes_quick<MPTI_VEC>(t->grad_format, code, x);
        MPTI_FOR(k, MPTI_VEC) lane[k] = mpti_lane_add_1(lane[k], mpti_mul(mpti_mul(x[k], factor), shift[0]));
    }
    return mpti_unshift(mpti_block_pair_sum(mpti_lanes_sum_8(lane)), shift[0]);
}

/* Check one chunk, as mpti_check_chunk does on the CPU; with Write, store the unscaled gradients. Returns the
 * sum of squares, valid in thread 0.
 * The sum of x * 0 over eight elements is 0 unless some x is Inf or NaN; only then look at each of them. */
template <bool Write, class T>
MPTI_D double mpti_block_check(const mpt_tensor *t, const mpti_cuda_chunk *chunk, uint64_t number,
                               float factor, mpti_bad *total)
{
    const uint32_t R = 64 / (MPTI_VEC * sizeof(T));     /* rows: 64 bytes in flight per thread */
    const int32_t  format = sizeof(T) == 4 ? MPT_F32 : t->grad_format;
    T *const       array = (T *)t->grad + chunk->first;
    float          lane[MPTI_VEC] = {0.0f};
    uint32_t       tally = 0u, least = 0xffffffffu, any = 0u;
    for (uint32_t i = threadIdx.x * MPTI_VEC; i < chunk->n; i += R * MPTI_LANES) {
        T code[R][MPTI_VEC];
        mpti_load_rows<R, MPTI_VEC>(array + i, MPTI_LANES, chunk->n - i, code);
        MPTI_FOR(r, R) {
            const uint32_t at = i + r * MPTI_LANES;
            const uint32_t count = mpti_inside<MPTI_VEC>(at, chunk->n);
            uint32_t       u[MPTI_VEC];
            float          x[MPTI_VEC], zero = 0.0f;
            T              out[MPTI_VEC];
            mpti_codes_quick<MPTI_VEC>(format, code[r], x);
            MPTI_FOR(k, MPTI_VEC) x[k] = mpti_mul(x[k], factor);
            if (Write) {
                MPTI_FOR(k, MPTI_VEC) u[k] = mpti_f32_bits(x[k]);
                mpti_codes_from_f32<MPTI_VEC>(format, u, out, false);
                mpti_store_codes<MPTI_VEC>(array + at, count, out);
                mpti_codes_quick<MPTI_VEC>(format, out, x);
            }
            MPTI_FOR(k, MPTI_VEC) zero = mpti_fma(x[k], 0.0f, zero);
            if (!mpti_f32_is_finite(zero)) mpti_note_bad8<T>(format, at, count, code[r], x, &tally, &least);
            MPTI_FOR(k, MPTI_VEC) lane[k] = mpti_add(lane[k], mpti_mul(x[k], x[k]));
            MPTI_FOR(k, MPTI_VEC) any |= mpti_f32_bits(x[k]);
        }
    }
    mpti_add_bad(total, number, tally, least);
    double sum = mpti_lanes_sum_8(lane);
    if (mpti_f64_is_zero(sum) && any << 1)      /* the squares underflowed: the least double vanishes */
        sum = mpti_f64_make(1);                 /* in a sound sum; otherwise the chunk is summed again */
    return mpti_block_sum_again<T>(t, chunk, Write ? 1.0f : factor, mpti_block_pair_sum(sum));
}

/* The last block adds the partial sums and writes the step record, with counts and the first bad element. */
MPTI_D void mpti_block_finish_check(mpt_cuda_state *state, const mpti_cuda_chunk *chunks,
                                    uint64_t chunk_count, const double *partial, float factor,
                                    uint32_t stage, uint64_t sizes)
{
    double slot = 0.0;
    for (uint64_t i = threadIdx.x; i < chunk_count; i += MPTI_SLOTS) slot += partial[i];
    slot = mpti_block_pair_sum(slot);
    if (threadIdx.x != 0) return;
    mpt_step *const          s = &state->step;
    const unsigned long long key = ~state->bad_first;
    mpti_step_counts(s, state->bad_count[0], state->bad_count[1], state->bad_count[2]);
    s->bad_tensor = state->bad ? chunks[key >> 16].tensor : 0u;
    s->bad_index = state->bad ? chunks[key >> 16].first + (key >> 2 & 0x3fffu) : 0u;
    s->bad_cause = state->bad ? 1u << (key & 3u) : 0u;
    mpti_step_checked(&state->scaler, s, slot, factor, stage);
    s->sizes = sizes;
    state->bad_first = state->bad_count[0] = state->bad_count[1] = state->bad_count[2] = 0u;
    state->bad = 0u;
}

/* Here a chunk goes to the block that asks first, with as many blocks as run at once: with fixed chunks, as
 * in the other kernels, the check of f16 took 1.2 times as long (H200), of 1000 tensors 1.5. A block's first
 * chunk is fixed; when it begins one, it asks for the next, and has the answer when it ends. There are as
 * many questions as chunks: the counter wraps to 0. */
#define MPTI_CHECK_BLOCKS 4u
template <bool Write>
MPTI_KERNEL(MPTI_THREADS, MPTI_CHECK_BLOCKS)
mpti_k_check(MPTI_OF_LIST, double *partial, mpt_cuda_state *state, uint32_t part, uint64_t sizes)
{
    /* all blocks read these before they count themselves as done; only the last one then changes them */
    const bool  in_order = state->scaler.in_use & 3u && mpti_may_check(&state->scaler, &state->step);
    const float factor = mpti_inverse_scale(state->scaler.scale);
    MPT_SHARED(mpti_bad, bad, 1);
    MPT_SHARED(uint32_t, next, 1);
    if (threadIdx.x == 0) bad[0] = mpti_bad();
    __syncthreads();
    for (uint64_t i = blockIdx.x; in_order && i < chunk_count; i = (uint64_t)gridDim.x + next[0]) {
        const uint32_t        answer = threadIdx.x == 0
                                           ? atomicInc(&state->chunks_taken, (uint32_t)chunk_count - 1u) : 0u;
        const mpti_cuda_chunk chunk = chunks[i];
        const mpt_tensor      t = tensors[chunk.tensor].tensor;
        const double sum = t.grad_format == MPT_F32
                               ? mpti_block_check<Write, uint32_t>(&t, &chunk, i, factor, bad)
                               : mpti_block_check<Write, uint16_t>(&t, &chunk, i, factor, bad);
        if (threadIdx.x == 0) {         /* all have read next: the sum has waited for them */
            partial[i] = sum;
            next[0] = answer;
        }
        __syncthreads();
    }
    mpti_block_add_bad(state, bad);
    if (!mpti_is_last_block(&state->blocks_done)) return;
    if (in_order)
        mpti_block_finish_check(state, chunks, chunk_count, partial, Write ? 1.0f : factor,
                                part | (Write ? MPT_STAGE_UNSCALED : MPT_STAGE_CHECKED), sizes);
    else if (threadIdx.x == 0) {
        state->misuse++;
        mpti_refuse_check(&state->scaler, &state->step);
    }
}

/* Set the gradients of a chunk to 0. Each thread writes those that it has read itself in the step. */
MPTI_D void mpti_block_zero(const mpt_tensor *t, const mpti_cuda_chunk *chunk)
{
    const float zero[MPTI_VEC] = {0.0f};
    for (uint32_t i = threadIdx.x * MPTI_VEC; i < chunk->n; i += MPTI_LANES)
        mpti_store_some(t->grad, t->grad_format, chunk->first + i, mpti_inside<MPTI_VEC>(i, chunk->n), zero);
}

/* Add the gradients of others; without others set them to 0. */
MPTI_KERNEL(MPTI_THREADS) mpti_k_accumulate(MPTI_OF_LIST, const mpti_cuda_tensor *others)
{
    for (uint64_t i = blockIdx.x; i < chunk_count; i += gridDim.x) {
        const mpti_cuda_chunk chunk = chunks[i];
        const mpt_tensor      t = tensors[chunk.tensor].tensor;
        if (!others) mpti_block_zero(&t, &chunk);
        if (!others) continue;
        const mpt_tensor o = others[chunk.tensor].tensor;
        for (uint32_t k = threadIdx.x * MPTI_VEC; k < chunk.n; k += MPTI_LANES) {
            const uint32_t count = mpti_inside<MPTI_VEC>(k, chunk.n);
            uint32_t       raw[2][MPTI_VEC] = {{0u}};
            float          sum[MPTI_VEC], x[MPTI_VEC];
            mpti_load_raw(t.grad, t.grad_format, chunk.first + k, count, raw[0]);
            mpti_load_raw(o.grad, o.grad_format, chunk.first + k, count, raw[1]);
            mpti_raw_to_f32(t.grad_format, raw[0], sum);
            mpti_raw_to_f32(o.grad_format, raw[1], x);
            MPTI_FOR(j, MPTI_VEC) sum[j] = mpti_fma(x[j], 1.0f, sum[j]);
            mpti_store_some(t.grad, t.grad_format, chunk.first + k, count, sum);
        }
    }
}

MPT_DEF mpt_status mpt_cuda_accumulate(mpt_cuda *c, const mpt_cuda_list *dst, const mpt_cuda_list *src,
                                       mpt_stream stream)
{
    bool same = c && dst && src && dst->tensor_count == src->tensor_count;
    for (uint64_t i = 0; same && i < dst->tensor_count; i++)
        same = dst->host[i].tensor.n == src->host[i].tensor.n;
    MPTI_REFUSE(!same, MPT_E_ARG, "NULL argument, or lists of other sizes");
    return mpti_launch_list(c, __func__, mpti_k_accumulate, dst, stream, src->tensors);
}

MPT_DEF mpt_status mpt_cuda_grads_zero(mpt_cuda *c, const mpt_cuda_list *list, mpt_stream stream)
{
    MPTI_REFUSE(!c || !list, MPT_E_ARG, "NULL argument");
    return mpti_launch_list(c, __func__, mpti_k_accumulate, list, stream, NULL);
}

static mpt_status mpti_cuda_check(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                  bool write_back, mpt_stream stream, const char *name)
{
    MPTI_REFUSE_AS(name, !c || !list || !state, MPT_E_ARG, "NULL argument");
    MPTI_REFUSE_AS(name, write_back && !(list->has & MPTI_ZEROES), MPT_E_ARG,
                   "two tensors of the list share a gradient, which would be divided twice");
    if (c->stepped == state) c->stepped = NULL;     /* any list may take the next step */
    c->checked = list->context == c ? state : NULL;     /* another one's list may be destroyed unseen */
    c->checked_by = list;
    return mpti_launch_list<MPTI_CHECK_BLOCKS>(c, name, write_back ? mpti_k_check<true> : mpti_k_check<false>,
                                               list, stream, list->partial, state, list->part, list->sizes);
}

MPT_DEF mpt_status mpt_cuda_check(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                  mpt_stream stream)
{
    return mpti_cuda_check(c, list, state, false, stream, __func__);
}

MPT_DEF mpt_status mpt_cuda_unscale(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                    mpt_stream stream)
{
    return mpti_cuda_check(c, list, state, true, stream, __func__);
}

MPTI_KERNEL(32) mpti_k_clip(mpt_cuda_state *state, float max_norm)
{
    state->misuse += !mpti_clip_step(&state->step, max_norm);
}

MPT_DEF mpt_status mpt_cuda_clip(mpt_cuda *c, mpt_cuda_state *state, float max_norm, mpt_stream stream)
{
    if (!c || !state || !(max_norm > 0.0f) || !mpti_f32_is_finite(max_norm))
        return mpti_cuda_bad(c, MPT_E_ARG, __func__, "NULL argument, or max_norm is not above 0 and finite");
    return mpti_launch(c, __func__, mpti_k_clip, 1, 1, stream, state, max_norm);
}

/* One block. It packs the six values and, for parts, the sum of each chunk at its place in the whole list.
 * In the wrong order, which counts as a misuse, it tells the other ranks, since they wait for its values. */
MPTI_KERNEL(MPTI_THREADS)
mpti_k_combine_pack(MPTI_OF_LIST, const double *partial, uint64_t whole, double *sums, mpt_cuda_state *state)
{
    const bool in_order = mpti_may_combine(&state->scaler, &state->step);
    for (uint64_t i = threadIdx.x; i < MPTI_COMBINED + whole; i += MPTI_THREADS) sums[i] = 0.0;
    __syncthreads();
    for (uint64_t i = threadIdx.x; in_order && whole && i < chunk_count; i += MPTI_THREADS) {
        const mpti_cuda_chunk chunk = chunks[i];
        sums[MPTI_COMBINED + tensors[chunk.tensor].whole_chunk + chunk.first / MPTI_CHUNK] = partial[i];
    }
    if (threadIdx.x != 0) return;
    state->misuse += !in_order;
    mpti_combine_pack(&state->step, !in_order, sums);
}

MPTI_KERNEL(MPTI_THREADS) mpti_k_combine_unpack(uint64_t whole, double *sums, mpt_cuda_state *state)
{
    double slot = 0.0;
    for (uint64_t i = threadIdx.x; i < whole; i += MPTI_SLOTS) slot += sums[MPTI_COMBINED + i];
    slot = mpti_block_pair_sum(slot);
    if (threadIdx.x != 0) return;
    if (whole) sums[MPTI_COMBINED - 1] = slot;
    const bool in_order = mpti_may_combine(&state->scaler, &state->step);
    state->misuse += !mpti_combine_unpack(&state->scaler, &state->step, sums) && in_order;
}

MPT_DEF mpt_status mpt_cuda_combine(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                    mpt_cuda_reduce_fn *reduce, void *user, mpt_stream stream)
{
    MPTI_REFUSE(!c || !list || !state || !reduce, MPT_E_ARG, "NULL argument");
    MPTI_REFUSE(list->mixed, MPT_E_ARG, "some tensors are parts of others, some are whole");
    const uint64_t   whole = list->whole_count;
    const mpt_status status =
        mpti_launch(c, __func__, mpti_k_combine_pack, 1, MPTI_THREADS, stream, list->tensors, list->chunks,
                    list->chunk_count, list->partial, whole, list->sums, state);
    if (status != MPT_OK) return status;
    if (reduce(user, list->sums, (size_t)(MPTI_COMBINED + whole), stream))
        return mpti_cuda_bad(c, MPT_E_DATA, __func__, "the reduction could not be queued");
    return mpti_launch(c, __func__, mpti_k_combine_unpack, 1, MPTI_THREADS, stream, whole, list->sums, state);
}

MPT_DEF int mpt_cuda_nccl_reduce(void *user, double *values, size_t n, mpt_stream stream)
{
#ifdef MPT_USE_NCCL
    return !user ||
           ncclAllReduce(values, values, n, ncclDouble, ncclSum, (ncclComm_t)user, stream) != ncclSuccess;
#else
    return (void)user, (void)values, (void)n, (void)stream, 1;
#endif
}

MPTI_KERNEL(32) mpti_k_update(mpt_cuda_state *state)
{
    state->misuse += mpti_scaler_advance(&state->scaler) == MPT_E_ORDER;    /* scaler.verdict keeps others */
    state->blocks_done = state->chunks_taken = 0u;      /* kernels that ran at once may have left others */
}

MPT_DEF mpt_status mpt_cuda_scaler_update(mpt_cuda *c, mpt_cuda_state *state, mpt_stream stream)
{
    MPTI_REFUSE(!c || !state, MPT_E_ARG, "NULL argument");
    if (c->stepped == state) c->stepped = NULL;     /* any list may take the next step */
    return mpti_launch(c, __func__, mpti_k_update, 1, 1, stream, state);
}

// >>C18 implementation: optimizers -----------------------------------------------------------------
/* The weights of eight elements, wherever the storage keeps them: as they are in memory, then as floats. */
MPTI_D void mpti_weights_raw(const mpt_tensor *t, uint64_t at, uint32_t count, uint32_t raw[MPTI_VEC])
{
    const bool pair = t->storage == MPT_STORE_SPLIT || t->storage == MPT_STORE_KAHAN;
    if (t->storage == MPT_STORE_MASTER) return mpti_load_raw(t->master, MPT_F32, at, count, raw);
    mpti_load_raw(t->param, t->param_format, at, count, raw);
    if (pair) mpti_load_raw(t->extra, MPT_F16, at, count, raw + MPTI_VEC / 2);
}
MPTI_D void mpti_weights_of(const mpt_tensor *t, const uint32_t raw[MPTI_VEC], float w[MPTI_VEC])
{
    const int is_f16 = t->param_format == MPT_F16;
    uint32_t  second[MPTI_VEC] = {0u};
    uint16_t  high[MPTI_VEC], low[MPTI_VEC];
    float     rest[MPTI_VEC];
    memcpy(high, raw, sizeof high);
    memcpy(low, raw + MPTI_VEC / 2, sizeof low);
    memcpy(second, raw + MPTI_VEC / 2, sizeof low);
    if (t->storage == MPT_STORE_SPLIT) {
        MPTI_FOR(k, MPTI_VEC) w[k] = mpti_f32_make(mpti_unsplit(high[k], low[k]));
        return;
    }
    mpti_raw_to_f32(t->storage == MPT_STORE_MASTER ? MPT_F32 : t->param_format, raw, w);
    if (t->storage != MPT_STORE_KAHAN) return;
    mpti_raw_to_f32(t->param_format, second, rest);
    MPTI_FOR(k, MPTI_VEC) w[k] = mpti_kahan_join(w[k], rest[k], is_f16);
}

/* Store eight elements, rounded to nearest or, to 16 bits, stochastically: `at` and t->first are multiples of
 * 8, stream is the tensor's index (moments: xor MPTI_STREAM_M or _V), step counts the steps before this. */
MPTI_D void mpti_store_rounded(const mpt_tensor *t, bool stochastic, void *array, int32_t format, uint64_t at,
                               uint32_t count, const float x[MPTI_VEC], uint32_t stream, uint64_t step)
{
    if (!stochastic) return mpti_store_some(array, format, at, count, x);
    uint16_t code[MPTI_VEC];
    uint32_t u[MPTI_VEC], random[MPTI_VEC];
    mpti_random8((t->first + at) / MPTI_VEC * MPTI_VEC, stream, step, t->seed, random);
    MPTI_FOR(k, MPTI_VEC) u[k] = mpti_f32_bits(x[k]);
    mpti_codes_stochastic<MPTI_VEC>(format, u, random, code);
    mpti_store_codes<MPTI_VEC>((uint16_t *)array + at, count, code);
}

MPTI_D void mpti_weights_store(const mpt_tensor *t, uint64_t at, uint32_t count,
                               const float w[MPTI_VEC], uint32_t stream, uint64_t step)
{
    const int32_t format = t->param_format;
    uint16_t      high[MPTI_VEC], low[MPTI_VEC];
    float         rest[MPTI_VEC];
    if (t->storage == MPT_STORE_SPLIT) {
        MPTI_FOR(k, MPTI_VEC) mpti_split(mpti_f32_bits(w[k]), &high[k], &low[k]);
        mpti_store_codes<MPTI_VEC>((uint16_t *)t->param + at, count, high);
        mpti_store_codes<MPTI_VEC>((uint16_t *)t->extra + at, count, low);
        return;
    }
    if (t->storage == MPT_STORE_KAHAN) {
        MPTI_FOR(k, MPTI_VEC)
            rest[k] = mpti_kahan_rest(w[k], mpti_rounded16(format, w[k]), format == MPT_F16);
        mpti_store_some(t->extra, format, at, count, rest);
    }
    if (t->storage == MPT_STORE_MASTER) mpti_store_some(t->master, MPT_F32, at, count, w);
    if (!t->param) return;
    const bool random = t->storage == MPT_STORE_STOCHASTIC;
    MPTI_FOR(k, MPTI_VEC) rest[k] = t->rounded ? mpti_rounded16(t->rounded, w[k]) : w[k];
    mpti_store_rounded(t, random, t->param, format, at, count, rest, stream, step);
}

/* What mpti_k_step uses of an optimizer, from its row in MPT_OPTIMIZERS and its formula for one element: one
 * steps an element; fit and close are for LAMB, before and after a chunk. */
#define MPTI_OPS(name, hyper, formula, is_last)                                                           \
    struct mpti_##name##_ops {                                                                            \
        typedef mpt_##hyper      config;                                                                  \
        typedef mpti_##hyper##_k consts;                                                                  \
        static const bool        reads_grad = true, writes_moments = true, last_pass = is_last;           \
        MPTI_D unsigned needs(const config *o) { return mpti_##name##_needs(o); }                         \
        MPTI_D void prepare(consts *k, const config *o, const mpt_step *step)                             \
        {                                                                                                 \
            *k = mpti_##hyper##_consts(o, step);                                                          \
        }                                                                                                 \
        MPTI_D void one(uint32_t, float g, float *w, float *m, float *v, float *v_max, const consts *k)   \
        {                                                                                                 \
            (void)v, (void)v_max;                                                                         \
            formula;                                                                                      \
        }                                                                                                 \
        MPTI_D void fit(consts *, float) {}                                                               \
        MPTI_D void close(const consts *, const config *, uint64_t) {}                                    \
    };

template <class Ops>
MPTI_D void mpti_block_step(const mpt_tensor *t, const mpti_cuda_chunk *chunk,
                            const typename Ops::config *o, typename Ops::consts *k)
{
    const bool has_m = (Ops::needs(o) & MPT_NEEDS_M) != 0, has_v = (Ops::needs(o) & MPT_NEEDS_V) != 0;
    const bool has_v_max = has_v && Ops::last_pass && (Ops::needs(o) & MPT_NEEDS_V_MAX) != 0;
    const bool    random = t->moments == MPT_MOMENTS_BF16;
    const int32_t format = mpti_moments_format(t);
    for (uint32_t i = threadIdx.x * MPTI_VEC; i < chunk->n; i += MPTI_LANES) {
        const uint32_t count = mpti_inside<MPTI_VEC>(i, chunk->n);
        const uint64_t at = chunk->first + i;
        uint32_t       raw[4][MPTI_VEC] = {{0u}};
        float          g[MPTI_VEC], w[MPTI_VEC], m[MPTI_VEC], v[MPTI_VEC], v_max[MPTI_VEC] = {0.0f};
        if (has_v_max) mpti_load_some(t->v_max, format, at, count, v_max);
        if (Ops::reads_grad) mpti_load_raw(t->grad, t->grad_format, at, count, raw[0]);
        mpti_weights_raw(t, at, count, raw[1]);
        if (has_m) mpti_load_raw(t->m, format, at, count, raw[2]);
        if (has_v) mpti_load_raw(t->v, format, at, count, raw[3]);
        mpti_raw_to_f32(t->grad_format, raw[0], g);
        mpti_weights_of(t, raw[1], w);
        mpti_raw_to_f32(format, raw[2], m);
        mpti_raw_to_f32(format, raw[3], v);
        MPTI_FOR(j, MPTI_VEC) Ops::one(j, g[j], &w[j], &m[j], &v[j], &v_max[j], k);
        if (has_m && Ops::writes_moments)
            mpti_store_rounded(t, random, t->m, format, at, count, m, chunk->tensor ^ MPTI_STREAM_M, o->t);
        if (has_v && Ops::writes_moments)
            mpti_store_rounded(t, random, t->v, format, at, count, v, chunk->tensor ^ MPTI_STREAM_V, o->t);
        if (has_v_max) mpti_store_some(t->v_max, format, at, count, v_max);
        if (Ops::last_pass) mpti_weights_store(t, at, count, w, chunk->tensor, o->t);
    }
}

/* Were gradients checked, of lists with these sizes of tensors? */
MPTI_D bool mpti_may_step(const mpt_step *step, uint64_t sizes)
{
    return mpti_step_is_open(step) && (!step->sizes || !(sizes & ~step->sizes));
}

template <class Ops>
MPTI_KERNEL(MPTI_THREADS, 2)
mpti_k_step(MPTI_OF_LIST, uint64_t sizes, mpt_cuda_state *state, typename Ops::config o, bool l2)
{
    MPT_SHARED(typename Ops::consts, k, 1);
    const bool in_order = mpti_may_step(&state->step, sizes), take = in_order && !state->step.found_inf;
    const bool zero = in_order && Ops::reads_grad && (o.options & MPT_STEP_ZERO_GRADS) != 0;
    o.lr = state->lr;
    o.t = state->t;
    if (take || zero) {
        if (threadIdx.x == 0) {         /* once per block: the constants take double arithmetic */
            k[0] = typename Ops::consts();
            Ops::prepare(&k[0], &o, &state->step);
            if (l2) mpti_rates_l2(&k[0].rates);
        }
        __syncthreads();
        for (uint64_t i = blockIdx.x; i < chunk_count; i += gridDim.x) {
            const mpti_cuda_chunk chunk = chunks[i];
            const mpt_tensor      t = tensors[chunk.tensor].tensor;
            if (take) {
                typename Ops::consts own = k[0];
                own.rates = mpti_rates_of(own.rates, &tensors[chunk.tensor].tensor);
                Ops::fit(&own, tensors[chunk.tensor].factor);
                mpti_block_step<Ops>(&t, &chunk, &o, &own);
                Ops::close(&own, &o, i);
            }
            if (zero) mpti_block_zero(&t, &chunk);
        }
    }
    /* the last kernel of a step does once: count a misuse, or close the step and count it */
    if (!Ops::last_pass || !mpti_is_last_block(&state->blocks_done) || threadIdx.x != 0) return;
    if (!mpti_may_step(&state->step, sizes)) {      /* asked again: in_order would cost a register */
        state->misuse++;
        mpti_refuse_step(&state->step);
    } else if (!(o.options & MPT_STEP_STAYS_OPEN)) {
        state->step.stage = (uint32_t)MPT_STAGE_STEPPED;
        state->t += take;
    }
}

/* ---- LAMB, four kernels: moments; norms of each chunk; factor of each tensor; weights ---- */

MPTI_OPS(lamb, adamw, mpti_adamw_moments_1(g, *w, m, v, k), false)

/* What the second and fourth kernel share: they read weights and moments as stored, not gradients. */
struct mpti_lamb_stored_ops : mpti_lamb_ops {
    struct consts : mpti_adamw_k { float factor; double sum[2][MPTI_VEC]; };
    static const bool reads_grad = false, writes_moments = false;
    MPTI_D void fit(consts *k, float factor) { k->factor = factor; }
};

/* Squared norms of chunk i's weights and directions, in mpt.h's order, to partial[2 i], partial[2 i + 1]. */
struct mpti_lamb_norms_ops : mpti_lamb_stored_ops {
    struct config : mpt_lamb { double *partial; };
    MPTI_D void one(uint32_t j, float, float *w, float *m, float *v, float *, consts *k)
    {
        k->sum[0][j] = mpti_sumsq_1(k->sum[0][j], *w);
        k->sum[1][j] = mpti_sumsq_1(k->sum[1][j], mpti_adamw_direction_1(*w, *m, mpti_sqrt(*v), k));
    }
    MPTI_D void close(const consts *k, const config *o, uint64_t i)
    {
        MPTI_FOR(which, 2) {
            const double *const s = k->sum[which];
            const double total =
                mpti_block_pair_sum(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
            if (threadIdx.x == 0) o->partial[2 * i + which] = total;
        }
    }
};

/* The last kernel moves the weights along the direction times the factor. */
struct mpti_lamb_along_ops : mpti_lamb_stored_ops {
    static const bool last_pass = true;
    MPTI_D void one(uint32_t, float, float *w, float *m, float *v, float *, const consts *k)
    {
        *w = mpti_fma(k->factor, mpti_adamw_direction_1(*w, *m, mpti_sqrt(*v), k), *w);
    }
};

/* The factor of each tensor, one block per tensor. Chunk c of a tensor adds to slot c mod 256, in order. */
MPTI_KERNEL(MPTI_THREADS)
mpti_k_lamb_factors(mpti_cuda_tensor *tensors, uint64_t tensor_count, const double *partial,
                    const mpt_cuda_state *state, mpt_lamb o)
{
    const uint64_t i = blockIdx.x;
    if (i >= tensor_count || !mpti_step_is_open(&state->step) || state->step.found_inf) return;
    o.lr = state->lr;
    o.t = state->t;
    const mpti_cuda_tensor t = tensors[i];
    const uint64_t         chunks = mpti_chunks(t.tensor.n);
    double                 sum[2] = {0.0, 0.0};
    for (uint64_t c = threadIdx.x; c < chunks; c += MPTI_SLOTS) {
        sum[0] += partial[2 * (t.first_chunk + c)];
        sum[1] += partial[2 * (t.first_chunk + c) + 1];
    }
    sum[0] = mpti_block_pair_sum(sum[0]);
    sum[1] = mpti_block_pair_sum(sum[1]);
    if (threadIdx.x == 0) {
        mpti_adamw_k k = mpti_adamw_consts(&o, &state->step);
        k.rates = mpti_rates_of(k.rates, &t.tensor);
        tensors[i].factor = mpti_lamb_factor(sum[0], sum[1], &k);
    }
}

#define MPTI_PASS(call, ops, o, l2) \
    mpti_launch_list(c, call, mpti_k_step<mpti_##ops>, list, stream, list->sizes, state, o, l2)

static mpt_status mpti_cuda_lamb(mpt_cuda *c, const char *call, const mpt_cuda_list *list,
                                 mpt_cuda_state *state, const mpt_lamb *o, mpt_stream stream)
{
    mpti_lamb_norms_ops::config norms;
    (mpt_lamb &)norms = *o;
    norms.partial = list->partial;
    mpt_status status = MPTI_PASS(call, lamb_ops, *o, false);
    if (status == MPT_OK) status = MPTI_PASS(call, lamb_norms_ops, norms, false);
    if (status == MPT_OK)
        status = mpti_launch(c, call, mpti_k_lamb_factors, list->tensor_count, MPTI_THREADS, stream,
                             list->tensors, list->tensor_count, list->partial, state, *o);
    return status == MPT_OK ? MPTI_PASS(call, lamb_along_ops, *o, false) : status;
}

/* ---- the calls ---- */

/* Are all gradients of a list in the checked one? Looked up from the last found: one pass if in order. */
static bool mpti_cuda_was_checked(const mpt_cuda_list *list, const mpt_cuda_list *checked)
{
    const uint64_t count = checked->tensor_count;
    for (uint64_t i = 0, at = 0; i < list->tensor_count && list != checked; i++) {
        const mpt_tensor *const t = &list->host[i].tensor;
        uint64_t                seen = 0;
        for (; seen < count && (checked->host[at].tensor.grad != t->grad ||
                                checked->host[at].tensor.n != t->n); seen++)
            at = at + 1 < count ? at + 1 : 0;
        if (t->n && seen == count) return false;
    }
    return true;
}

/* All refusals of a step, before anything is queued. */
static mpt_status mpti_cuda_step_ok(mpt_cuda *c, const mpt_cuda_list *list, const mpt_cuda_state *state,
                                    const void *o, bool hyperparameters_ok, unsigned needs, const char *name)
{
    MPTI_REFUSE_AS(name, !c || !list || !state || !o, MPT_E_ARG, "NULL argument");
    MPTI_REFUSE_AS(name, !hyperparameters_ok, MPT_E_ARG,
                   "a hyperparameter is out of range, or an option is not one of this optimizer");
    if (c->stepped == state && c->stepped_by != list)
        return mpti_cuda_bad(c, MPT_E_ORDER, name, "another list has taken this step: check one list of all "
                             "tensors, and step its parts, all but the last with MPT_STEP_STAYS_OPEN");
    MPTI_REFUSE_AS(name, c->checked == state && !mpti_cuda_was_checked(list, c->checked_by), MPT_E_ORDER,
                   "the gradients of this list are not those of the list that was checked");
    if ((list->has & needs) != needs)
        return mpti_cuda_bad(c, MPT_E_ARG, name, needs & ~list->has & MPTI_ZEROES
                             ? "MPT_STEP_ZERO_GRADS: two tensors of the list share a gradient"
                             : "this optimizer refuses a tensor of the list: mpt_tensors_validate says which "
                               "and why, such as that it lacks m or v");
    return MPT_OK;
}

/* The calls for the rows of MPT_OPTIMIZERS whose last column is 1. ONE: one pass of mpti_k_step, with the
 * formula for one element of `hyper`. L2: with the kernel of the row ONE above it that has the same `hyper`.
 * OWN: several passes, by a function like mpti_cuda_lamb. */
#define MPTI_ONE_sgd   mpti_sgd_1(g, w, m, k)
#define MPTI_ONE_adamw mpti_adamw_1(g, w, m, v, v_max, k)
#define MPTI_ONE_lion  mpti_lion_1(g, w, m, k)
#define MPTI_TAKES_OWN MPTI_STEP_OPTIONS
#define MPTI_TAKES_ONE (MPTI_STEP_OPTIONS | MPT_STEP_AMSGRAD)
#define MPTI_TAKES_L2  MPTI_TAKES_ONE
#define MPTI_OPS_OWN(hyper)
#define MPTI_OPS_ONE(hyper) MPTI_OPS(hyper, hyper, MPTI_ONE_##hyper, true)
#define MPTI_OPS_L2(hyper)
#define MPTI_RUN_OWN(name, hyper) mpti_cuda_##name(c, __func__, list, state, o, stream)
#define MPTI_RUN_ONE(name, hyper) MPTI_PASS(__func__, hyper##_ops, *o, false)
#define MPTI_RUN_L2(name, hyper)  MPTI_PASS(__func__, hyper##_ops, *o, true)
#define MPTI_CUDA_STEP_0(name, hyper, passes)
#define MPTI_CUDA_STEP_1(name, hyper, passes)                                                              \
    MPTI_OPS_##passes(hyper)                                                                               \
    MPT_DEF mpt_status mpt_cuda_##name##_step(mpt_cuda *c, const mpt_cuda_list *list,                      \
                                              mpt_cuda_state *state, const mpt_##name *o,                  \
                                              mpt_stream stream)                                           \
    {                                                                                                      \
        const bool ok = mpti_##hyper##_ok(o) && !(o->options & ~MPTI_TAKES_##passes);                      \
        mpt_status status = mpti_cuda_step_ok(c, list, state, o, ok, mpti_##name##_needs(o), __func__);    \
        if (status == MPT_OK) status = MPTI_RUN_##passes(name, hyper);                                     \
        if (status == MPT_OK && !(o->options & MPT_STEP_STAYS_OPEN))                                       \
            c->stepped = state, c->stepped_by = list;                                                      \
        return status;                                                                                     \
    }
#define MPTI_CUDA_STEP(id, name, hyper, needs, passes, device) MPTI_CUDA_STEP_##device(name, hyper, passes)
MPT_OPTIMIZERS(MPTI_CUDA_STEP)

// >>C19 implementation: matrix products ------------------------------------------------------------
MPT_DEF mpt_status mpt_cuda_gpu(mpt_cuda *c, mpt_gpu *gpu)
{
    int major = 0, minor = 0;
    MPTI_REFUSE(!c || !gpu, MPT_E_ARG, "NULL argument");
    cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c->device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, c->device);
    if (e == cudaSuccess) *gpu = mpt_gpu_from_cc(10 * major + minor);
    return mpti_cuda_result(c, e, __func__);
}

#ifdef MPT_USE_CUBLASLT

/* A plan: cublasLt's description of one kind of product, and the algorithm for it. Its key, compared by
 * memcmp, is an mpt_gemm_args with alpha 1, beta 0 or 1, and alignment or presence in place of pointers. */
typedef struct mpti_gemm_plan {
    mpt_gemm_args          key;
    cublasLtMatmulDesc_t   operation;
    cublasLtMatrixLayout_t layout[4];   /* a, b, c, d */
    cublasLtMatmulAlgo_t   algo;
    uint64_t               used;        /* clock at the last use; 0: the entry is free */
} mpti_gemm_plan;

#define MPTI_GEMM_PLANS 64  /* a transformer layer needs about a dozen */

struct mpti_lt {
    cublasLtHandle_t handle;
    void            *workspace;
    size_t           bytes;
    bool             owned;
    int              cc;
    uint64_t         clock;
    mpti_gemm_plan   plan[MPTI_GEMM_PLANS];
};

static mpt_status mpti_gemm_result(mpt_cuda *c, cublasStatus_t e, const char *what)
{
    if (e == CUBLAS_STATUS_SUCCESS) return MPT_OK;
    c->code = 0;
    mpti_cuda_say(c, what, cublasLtGetStatusString(e),
                  e == CUBLAS_STATUS_NOT_SUPPORTED ? " (cublasLt knows no way to do this product here)" : "");
    return e == CUBLAS_STATUS_ALLOC_FAILED ? MPT_E_MEMORY : MPT_E_CUBLAS;
}

static cudaDataType_t mpti_gemm_type(mpt_format f)
{
#if CUBLAS_VERSION >= 120800
    if (f == MPT_E2M1) return CUDA_R_4F_E2M1;
#endif
    return f == MPT_F16 ? CUDA_R_16F : f == MPT_BF16 ? CUDA_R_16BF : f == MPT_E4M3 ? CUDA_R_8F_E4M3
         : f == MPT_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_32F;
}

/* The largest power of two, up to 256 (cublasLt's default), that divides an address and a batch's stride. */
static uintptr_t mpti_gemm_alignment(const void *p, const mpt_gemm_args *g, int64_t stride, mpt_format f)
{
    const uint64_t bytes = g->batch > 1u ? (uint64_t)stride * 16u / (uint64_t)mpti_gemm_unit(f) : 0u;
    uintptr_t      a = 256;
    while (((uintptr_t)p | (uintptr_t)bytes) % a) a /= 2;
    return a;
}

#define MPTI_GEMM_KEY_BYTES (offsetof(mpt_gemm_args, block_scales) + 4)
static_assert(MPTI_GEMM_KEY_BYTES == 10 * 8 + 9 * sizeof(void *) + 13 * 4, "no padding to compare");
static mpt_gemm_args mpti_gemm_key_of(const mpt_gemm_args *g)
{
    mpt_gemm_args k = *g;
    k.a = (const void *)mpti_gemm_alignment(g->a, g, g->a_stride, g->a_format);
    k.b = (const void *)mpti_gemm_alignment(g->b, g, g->b_stride, g->b_format);
    k.d = (void *)mpti_gemm_alignment(g->d, g, g->d_stride, g->d_format);
    k.bias = g->epilogue & MPTI_EPILOGUE_BIAS ? g->bias : NULL;
    k.bias = (const void *)mpti_gemm_alignment(k.bias, g, 0, MPT_F32);
    k.bias_format = g->epilogue & MPTI_EPILOGUE_BIAS ? g->bias_format : MPT_F32;
    k.aux = NULL;
    k.ldaux = g->epilogue & MPTI_EPILOGUE_AUX ? g->ldaux : 0;
    k.a_scale = (const void *)(uintptr_t)(g->a_scale != NULL);
    k.b_scale = (const void *)(uintptr_t)(g->b_scale != NULL);
    k.d_scale = (const float *)(uintptr_t)(g->d_scale != NULL);
    k.d_amax = (float *)(uintptr_t)(g->d_amax != NULL);
    k.batch = g->batch > 1u ? g->batch : 1u;
    k.trans_a = g->trans_a != 0;
    k.trans_b = g->trans_b != 0;
    k.alpha = 1.0f;
    k.beta = mpti_is_nonzero(g->beta) ? 1.0f : 0.0f;
    return k;
}

static void mpti_gemm_plan_free(mpti_gemm_plan *p)
{
    if (p->operation) (void)cublasLtMatmulDescDestroy(p->operation);
    for (cublasLtMatrixLayout_t l : p->layout)
        if (l) (void)cublasLtMatrixLayoutDestroy(l);
    memset(p, 0, sizeof *p);
}

/* The epilogues of cublasLt are made of bits too. */
static_assert(CUBLASLT_EPILOGUE_GELU_AUX_BIAS == (CUBLASLT_EPILOGUE_GELU_AUX | CUBLASLT_EPILOGUE_BIAS) &&
              CUBLASLT_EPILOGUE_RELU_AUX_BIAS == (CUBLASLT_EPILOGUE_RELU_AUX | CUBLASLT_EPILOGUE_BIAS) &&
              CUBLASLT_EPILOGUE_DRELU_BGRAD == (CUBLASLT_EPILOGUE_DRELU | 16) &&
              CUBLASLT_EPILOGUE_DGELU_BGRAD == (CUBLASLT_EPILOGUE_DGELU | 16), "composed of bits");
static uint32_t mpti_gemm_epilogue(uint32_t e)
{
    static const uint32_t bit[] = {
        CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_GELU,
        CUBLASLT_EPILOGUE_RELU_AUX & ~CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_DRELU,
        CUBLASLT_EPILOGUE_DGELU, 16u, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
    uint32_t r = 0u;
    for (uint32_t i = 0; i < sizeof bit / sizeof *bit; i++) r |= e >> i & 1u ? bit[i] : 0u;
    return r ? r : (uint32_t)CUBLASLT_EPILOGUE_DEFAULT;
}

/* Set an attribute of a description, a layout or a preference, unless *e is an error already. */
template <class Of, class Which, class T>
static void mpti_gemm_set(cublasStatus_t *e, cublasStatus_t (*set)(Of, Which, const void *, size_t), Of of,
                          Which which, T value)
{
    if (*e == CUBLAS_STATUS_SUCCESS) *e = set(of, which, &value, sizeof value);
}

/* Put the pointers into cublasLt's description; its heuristic looks at which of them are set. */
static cublasStatus_t mpti_gemm_point(cublasLtMatmulDesc_t o, const mpt_gemm_args *g)
{
    const struct { cublasLtMatmulDescAttributes_t which; const void *pointer; } row[] = {
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, g->epilogue & MPTI_EPILOGUE_BIAS ? g->bias : NULL},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g->epilogue & MPTI_EPILOGUE_AUX ? g->aux : NULL},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, g->a_scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, g->b_scale},
        {CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, g->d_scale},
        {CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, g->d_amax}};
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;
    for (const auto &r : row)
        if (r.pointer) mpti_gemm_set(&e, cublasLtMatmulDescSetAttribute, o, r.which, r.pointer);
    return e;
}

static cublasStatus_t mpti_gemm_describe(mpti_gemm_plan *p, const mpt_gemm_args *g)
{
    const cublasComputeType_t compute =
        g->a_format == MPT_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cudaDataType_t d = mpti_gemm_type(g->d_format);
    /* cublasLt takes no FP8 c with an FP8 d. With beta 0 it does not read c, but the type must be legal. */
    const struct { cudaDataType_t type; int64_t rows, cols, ld, stride; } matrix[] = {
        {mpti_gemm_type(g->a_format), mpti_gemm_line_a(g), g->trans_a ? g->m : g->k, g->lda, g->a_stride},
        {mpti_gemm_type(g->b_format), mpti_gemm_line_b(g), g->trans_b ? g->k : g->n, g->ldb, g->b_stride},
        {mpti_is_fp8(g->d_format) ? CUDA_R_16BF : d, g->m, g->n, g->ldd, g->d_stride},
        {d, g->m, g->n, g->ldd, g->d_stride}};
    const auto                 set = cublasLtMatmulDescSetAttribute;
    cublasStatus_t             e = cublasLtMatmulDescCreate(&p->operation, compute, CUDA_R_32F);
    const cublasLtMatmulDesc_t o = p->operation;
    mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_TRANSA, g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_TRANSB, g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_EPILOGUE, mpti_gemm_epilogue(g->epilogue));
    if (g->epilogue & MPTI_EPILOGUE_BIAS)
        mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, mpti_gemm_type(g->bias_format));
    if (g->epilogue & MPTI_EPILOGUE_AUX)
        mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g->ldaux);
#if CUBLAS_VERSION >= 120800
    const auto mode = g->block_scales == 16u ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3
                                             : CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    if (g->block_scales) mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    if (g->block_scales) mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
#endif
    if (g->fast_accumulate && !g->block_scales)
        mpti_gemm_set(&e, set, o, CUBLASLT_MATMUL_DESC_FAST_ACCUM, (int8_t)1);
    if (e == CUBLAS_STATUS_SUCCESS) e = mpti_gemm_point(o, g);
    for (int i = 0; i < 4 && e == CUBLAS_STATUS_SUCCESS; i++) {
        e = cublasLtMatrixLayoutCreate(&p->layout[i], matrix[i].type, (uint64_t)matrix[i].rows,
                                       (uint64_t)matrix[i].cols, matrix[i].ld);
        if (g->batch < 2u) continue;
        mpti_gemm_set(&e, cublasLtMatrixLayoutSetAttribute, p->layout[i],
                      CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (int32_t)g->batch);
        mpti_gemm_set(&e, cublasLtMatrixLayoutSetAttribute, p->layout[i],
                      CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix[i].stride);
    }
    return e;
}

static cublasStatus_t mpti_gemm_choose(const mpti_lt *lt, mpti_gemm_plan *p)
{
    cublasLtMatmulPreference_t      preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int                             count = 0;
    /* where k is split among blocks, add their sums in FP32 too; all ways do so if d is FP32 */
    const struct { cublasLtMatmulPreferenceAttributes_t which; uint32_t value; } row[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, p->key.d_format == MPT_F32
                                                         ? (uint32_t)CUBLASLT_REDUCTION_SCHEME_MASK
                                                         : (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)(uintptr_t)p->key.a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)(uintptr_t)p->key.b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)(uintptr_t)p->key.d},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)(uintptr_t)p->key.d}};
    cublasStatus_t e = cublasLtMatmulPreferenceCreate(&preference);
    mpti_gemm_set(&e, cublasLtMatmulPreferenceSetAttribute, preference,
                  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, lt->bytes);
    for (const auto &r : row)
        mpti_gemm_set(&e, cublasLtMatmulPreferenceSetAttribute, preference, r.which, r.value);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulAlgoGetHeuristic(lt->handle, p->operation, p->layout[0], p->layout[1], p->layout[2],
                                           p->layout[3], preference, 1, &found, &count);
    if (e == CUBLAS_STATUS_SUCCESS && (count < 1 || found.state != CUBLAS_STATUS_SUCCESS))
        e = CUBLAS_STATUS_NOT_SUPPORTED;
    if (e == CUBLAS_STATUS_SUCCESS) p->algo = found.algo;
    if (preference) (void)cublasLtMatmulPreferenceDestroy(preference);
    return e;
}

/* Find the plan of a product, or make it in a free entry or in that of the least recently used plan. */
static cublasStatus_t mpti_gemm_plan_of(mpti_lt *lt, const mpt_gemm_args *g, mpti_gemm_plan **out)
{
    const mpt_gemm_args key = mpti_gemm_key_of(g);
    mpti_gemm_plan     *oldest = lt->plan;
    lt->clock++;
    for (mpti_gemm_plan *p = lt->plan; p < lt->plan + MPTI_GEMM_PLANS; p++) {
        if (p->used && !memcmp(&p->key, &key, MPTI_GEMM_KEY_BYTES)) {
            p->used = lt->clock;
            *out = p;
            return mpti_gemm_point(p->operation, g);
        }
        if (p->used < oldest->used) oldest = p;
    }
    mpti_gemm_plan_free(oldest);
    oldest->key = key;
    oldest->used = lt->clock;
    *out = oldest;
    cublasStatus_t e = mpti_gemm_describe(oldest, g);
    if (e == CUBLAS_STATUS_SUCCESS) e = mpti_gemm_choose(lt, oldest);
    if (e != CUBLAS_STATUS_SUCCESS) mpti_gemm_plan_free(oldest);
    return e;
}

static void mpti_gemm_close(mpt_cuda *c)
{
    mpti_lt *lt = c->gemm;
    for (size_t i = 0; i < MPTI_GEMM_PLANS; i++) mpti_gemm_plan_free(&lt->plan[i]);
    if (lt->handle) (void)cublasLtDestroy(lt->handle);
    if (lt->owned) (void)cudaFree(lt->workspace);
    free(lt);
    c->gemm = NULL;
    c->gemm_close = NULL;
}

/* cublasLt (13.1, Hopper) refuses an FP8 scale off 16 bytes. Copy such a one behind the workspace. */
static cudaError_t mpti_gemm_aligned(const mpti_lt *lt, const void **scale, size_t which, mpt_stream stream)
{
    const void *const from = *scale;
    if ((uintptr_t)from % 16u == 0u) return cudaSuccess;
    *scale = (char *)lt->workspace + lt->bytes + 16u * which;
    return cudaMemcpyAsync((void *)(uintptr_t)*scale, from, sizeof(float), cudaMemcpyDeviceToDevice, stream);
}

MPT_DEF mpt_status mpt_cuda_gemm_open(mpt_cuda *c, void *workspace, size_t bytes)
{
    mpt_gpu gpu = mpt_gpu_from_cc(0);
    if (!c || (workspace && bytes < 256) || (uintptr_t)workspace % 256)
        return mpti_cuda_bad(c, MPT_E_ARG, __func__, "no context, or a workspace that is not as described");
    if (c->gemm) return MPT_OK;
    mpt_status status = mpti_cuda_result(c, mpti_cuda_here(c), __func__);
    if (status == MPT_OK) status = mpt_cuda_gpu(c, &gpu);
    if (status != MPT_OK) return status;
    c->gemm = (mpti_lt *)calloc(1, sizeof *c->gemm);
    MPTI_REFUSE(!c->gemm, MPT_E_MEMORY, "out of host memory");
    c->gemm_close = mpti_gemm_close;
    c->gemm->cc = gpu.cc;
    c->gemm->bytes = (bytes ? bytes : (size_t)32 << 20) / 16u * 16u - (workspace ? 32u : 0u);
    c->gemm->workspace = workspace;
    c->gemm->owned = !workspace;
    if (!workspace)
        status = mpti_cuda_result(c, cudaMalloc(&c->gemm->workspace, c->gemm->bytes + 32u), __func__);
    if (status == MPT_OK) status = mpti_gemm_result(c, cublasLtCreate(&c->gemm->handle), __func__);
    if (status != MPT_OK) mpti_gemm_close(c);
    return status;
}

MPT_DEF mpt_status mpt_cuda_gemm(mpt_cuda *c, const mpt_gemm_args *g, mpt_stream stream)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    mpti_gemm_plan       *plan = NULL;
    if (!c || !g || !g->a || !g->b || !g->d || (g->epilogue & MPTI_EPILOGUE_BIAS && !g->bias) ||
        (g->epilogue & MPTI_EPILOGUE_AUX && !g->aux) || (g->block_scales && !(g->a_scale && g->b_scale)))
        return mpti_cuda_bad(c, MPT_E_ARG, __func__, "NULL argument, matrix, bias, aux, or scales of blocks");
    MPTI_REFUSE(!c->gemm, MPT_E_ORDER, "call mpt_cuda_gemm_open once before");
    const mpt_gemm_verdict advice = mpt_gemm_advice(c->gemm->cc, g);
    const unsigned         refusals = mpti_gemm_refusals(advice.problems);
    if (refusals)
        return mpti_cuda_bad(c, advice.problems & MPT_GEMM_SHAPE ? MPT_E_ARG : MPT_E_UNSUPPORTED, __func__,
                             mpt_gemm_problem_text(refusals & (0u - refusals)));    /* the lowest bit */
#if CUBLAS_VERSION < 120800
    MPTI_REFUSE(g->block_scales, MPT_E_UNSUPPORTED, "block-scaled products need the cublasLt of CUDA 12.8");
#endif
    mpt_gemm_args t = mpti_gemm_column_major(g);
    cudaError_t   wrong = mpti_cuda_here(c);
    if (wrong == cudaSuccess) wrong = mpti_gemm_aligned(c->gemm, &t.a_scale, 0, stream);
    if (wrong == cudaSuccess) wrong = mpti_gemm_aligned(c->gemm, &t.b_scale, 1, stream);
    if (wrong == cudaSuccess) wrong = cudaThreadExchangeStreamCaptureMode(&mode);
    if (wrong != cudaSuccess) return mpti_cuda_result(c, wrong, __func__);
    cublasStatus_t e = mpti_gemm_plan_of(c->gemm, &t, &plan);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmul(c->gemm->handle, plan->operation, &t.alpha, t.a, plan->layout[0], t.b,
                           plan->layout[1], &t.beta, mpti_is_fp8(t.d_format) ? NULL : t.d,
                           plan->layout[2], t.d, plan->layout[3], &plan->algo, c->gemm->workspace,
                           c->gemm->bytes, stream);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);   /* relaxed so far, to load a first product's kernel */
    return mpti_gemm_result(c, e, __func__);
}

#else

static mpt_status mpti_gemm_without(mpt_cuda *c, const char *call)
{
    return mpti_cuda_bad(c, c ? MPT_E_UNSUPPORTED : MPT_E_ARG, call,
                         "compile the implementation with MPT_USE_CUBLASLT and link with -lcublasLt");
}
MPT_DEF mpt_status mpt_cuda_gemm_open(mpt_cuda *c, void *, size_t) { return mpti_gemm_without(c, __func__); }
MPT_DEF mpt_status mpt_cuda_gemm(mpt_cuda *c, const mpt_gemm_args *, mpt_stream)
{
    return mpti_gemm_without(c, __func__);
}

#endif /* MPT_USE_CUBLASLT */

// >>C20 implementation: range reports --------------------------------------------------------------
#ifndef MPT_NO_REPORTS
/* What is counted of the patterns of |x|: each by its exponent, 0 to 255; and some once more: f32's subnormal
 * numbers by their binades, flushed ones in the binade of the least kept, normal ones in that of the least
 * normal, overflow, NaN. Patterns that are not 0 lie in 277 binades, from 2^-149 to 2^127. */
#define MPTI_BINADES 277u
enum { MPTI_FLUSHED = 256 + 23, MPTI_NORMAL, MPTI_OVERFLOW, MPTI_NAN, MPTI_COUNTS };

typedef struct mpti_cuda_range {
    unsigned long long count[MPTI_COUNTS];
    uint32_t           extreme[2];  /* of finite numbers: the greatest, and 0 - the least that is not 0 */
} mpti_cuda_range;

struct mpt_cuda_ranges {
    const mpt_cuda_list *list;
    mpti_cuda_range     *range;         /* device, [tensor_count] */
    mpt_range            empty;         /* an empty report against the format */
};

/* The binade of a pattern that is not 0: floor(log2), as in mpt_range, plus 149; and where binades begin. */
MPT_HD uint32_t mpti_binade_of(uint32_t a)
{
    return a < 0x00800000u ? 31u - (uint32_t)mpti_clz32(a) : (a >> 23) + 22u;
}
MPT_HD uint32_t mpti_binade_start(uint32_t i) { return i < 23u ? 1u << i : (i - 22u) << 23; }

/* Where classes begin, where the binade of the least kept does, and where that of the least normal ends; and
 * the longer of the two ranges that this makes. */
typedef struct mpti_limits { uint32_t flushed, kept, normal, above, overflow, range; } mpti_limits;

/* Count the first n of eight patterns that need a second look: tails are 0 and were counted as such. */
MPTI_D void mpti_count_again(uint32_t *count, const uint32_t a[MPTI_VEC], uint32_t n, const mpti_limits *l,
                             uint32_t extreme[2])
{
    if (n < MPTI_VEC) atomicAdd(&count[0], n - MPTI_VEC);
    MPTI_FOR(k, MPTI_VEC) {
        if (k >= n || !a[k]) continue;
        if (a[k] < 0x00800000u) atomicAdd(&count[256u + mpti_binade_of(a[k])], 1u);
        if (a[k] - l->flushed < l->kept - l->flushed) atomicAdd(&count[MPTI_FLUSHED], 1u);
        if (a[k] - l->normal < l->above - l->normal) atomicAdd(&count[MPTI_NORMAL], 1u);
        if (a[k] > 0x7f800000u) atomicAdd(&count[MPTI_NAN], 1u);
        if (a[k] >= 0x7f800000u) continue;
        if (a[k] >= l->overflow) atomicAdd(&count[MPTI_OVERFLOW], 1u);
        extreme[0] = mpti_max(a[k], extreme[0]);
        extreme[1] = mpti_max(0u - a[k], extreme[1]);
    }
}

/* Count a chunk, or each `every`-th of its groups of eight. The kernel is bound by instructions: a group has
 * one branch, which leads to what is rare. */
template <class T>
MPTI_D void mpti_block_ranges(uint32_t *count, const T *x, int32_t format, const mpti_cuda_chunk *chunk,
                              uint64_t every, const mpti_limits *l, uint32_t extreme[2])
{
    const uint32_t R = 32 / (MPTI_VEC * sizeof(T)), groups = MPTI_CHUNK / MPTI_VEC;
    const uint64_t over = chunk->first / MPTI_VEC % every, wait = over ? every - over : 0;
    const uint32_t first = wait < groups ? (uint32_t)wait : groups;
    const uint32_t apart = MPTI_VEC * (every < groups ? (uint32_t)every : groups);
    for (uint32_t i = first * MPTI_VEC + threadIdx.x * apart; i < chunk->n; i += R * MPTI_THREADS * apart) {
        T code[R][MPTI_VEC];
        mpti_load_rows<R, MPTI_VEC>(x + chunk->first + i, MPTI_THREADS * apart, chunk->n - i, code);
        MPTI_FOR(r, R) {
            const uint32_t n = mpti_inside<MPTI_VEC>(i + r * MPTI_THREADS * apart, chunk->n);
            uint32_t       a[MPTI_VEC], most = 0u, least = 0u, beyond = 0xffffffffu;
            float          v[MPTI_VEC];
            if (!n) continue;
            mpti_codes_quick<MPTI_VEC>(format, code[r], v);
            MPTI_FOR(k, MPTI_VEC) {
                a[k] = mpti_f32_bits(v[k]) & 0x7fffffffu;
                beyond = a[k] - l->flushed < beyond ? a[k] - l->flushed : beyond;
                beyond = a[k] - l->normal < beyond ? a[k] - l->normal : beyond;
                most = mpti_max(a[k], most);
                least = mpti_max(0u - a[k], least);
                atomicAdd(&count[a[k] >> 23], 1u);
            }
            if (n < MPTI_VEC || beyond < l->range || most >= l->overflow || least > 0u - 0x00800000u)
                mpti_count_again(count, a, n, l, extreme);
            else
                extreme[0] = mpti_max(most, extreme[0]), extreme[1] = mpti_max(least, extreme[1]);
        }
    }
}

/* Count in shared memory, and add to the report where the next chunk of this block is of another tensor. */
MPTI_KERNEL(MPTI_THREADS, 4)
mpti_k_ranges(MPTI_OF_LIST, mpti_cuda_range *ranges, int32_t array, uint64_t every, mpti_limits l)
{
    MPT_SHARED(uint32_t, count, MPTI_COUNTS);
    uint32_t extreme[2] = {0u, 0u};
    bool     fresh = true;
    for (uint64_t c = blockIdx.x; c < chunk_count; c += gridDim.x) {
        const mpti_cuda_chunk  chunk = chunks[c];
        const mpt_tensor       t = tensors[chunk.tensor].tensor;
        const void *const      x = array == MPT_CUDA_GRAD    ? t.grad
                                   : array == MPT_CUDA_PARAM ? t.param : t.master;
        const int32_t          format = array == MPT_CUDA_GRAD    ? t.grad_format
                                        : array == MPT_CUDA_PARAM ? t.param_format : MPT_F32;
        mpti_cuda_range *const r = &ranges[chunk.tensor];
        if (fresh) {
            for (uint32_t i = threadIdx.x; i < MPTI_COUNTS; i += MPTI_THREADS) count[i] = 0u;
            extreme[0] = extreme[1] = 0u;
            __syncthreads();
        }
        if (x && format == MPT_F32)
            mpti_block_ranges(count, (const uint32_t *)x, format, &chunk, every, &l, extreme);
        else if (x)
            mpti_block_ranges(count, (const uint16_t *)x, format, &chunk, every, &l, extreme);
        fresh = c + gridDim.x >= chunk_count || chunks[c + gridDim.x].tensor != chunk.tensor;
        if (!fresh) continue;
        MPTI_FOR(k, 2) mpti_block_raise(&r->extreme[k], extreme[k]);    /* waits until all have counted */
        for (uint32_t i = threadIdx.x; i < MPTI_COUNTS; i += MPTI_THREADS)
            if (count[i]) atomicAdd(&r->count[i], (unsigned long long)count[i]);
        __syncthreads();                    /* all counts have been read */
    }
}

/* The pattern of the least float that reaches a limit, which is the pattern of a double. */
static uint32_t mpti_f32_limit(uint64_t limit)
{
    mpt_opts up = mpt_opts();
    up.rounding = MPT_RND_UP;
    return (uint32_t)mpt_encode(MPT_F32, mpti_f64_make(limit), &up, NULL);
}

static mpti_limits mpti_limits_of(const mpt_range *r)
{
    mpti_limits l = {0u, mpti_f32_limit(r->least_kept), mpti_f32_limit(r->least_normal), 0u,
                     mpti_f32_limit(r->least_overflow), 0u};
    l.flushed = mpti_binade_start(mpti_binade_of(l.kept));
    l.above = mpti_binade_start(mpti_binade_of(l.normal) + 1u);
    l.range = l.kept - l.flushed > l.above - l.normal ? l.kept - l.flushed : l.above - l.normal;
    return l;
}

MPT_DEF mpt_status mpt_cuda_ranges_create(mpt_cuda *c, mpt_cuda_ranges **out, const mpt_cuda_list *list,
                                          mpt_format format)
{
    if (out) *out = NULL;
    MPTI_REFUSE(!c || !out || !list, MPT_E_ARG, "NULL argument");
    mpt_range  empty;
    mpt_status status = mpt_range_init(&empty, format);
    MPTI_REFUSE(status != MPT_OK, status, mpt_status_text(status));
    mpt_cuda_ranges *const r = (mpt_cuda_ranges *)calloc(1, sizeof *r);
    MPTI_REFUSE(!r, MPT_E_MEMORY, "out of host memory");
    r->list = list;
    r->empty = empty;
    cudaError_t e = mpti_cuda_here(c);
    mpti_cuda_table(&e, &r->range, NULL, list->tensor_count * sizeof *r->range + 1);
    status = mpti_cuda_result(c, e, __func__);
    if (status == MPT_OK)
        *out = r;
    else
        mpt_cuda_ranges_destroy(r);
    return status;
}

MPT_DEF void mpt_cuda_ranges_destroy(mpt_cuda_ranges *ranges)
{
    if (!ranges) return;
    (void)cudaFree(ranges->range);
    free(ranges);
}

MPT_DEF mpt_status mpt_cuda_ranges_add(mpt_cuda *c, mpt_cuda_ranges *ranges, mpt_cuda_array array,
                                       uint32_t every, mpt_stream stream)
{
    if (!c || !ranges || !every || (unsigned)array > (unsigned)MPT_CUDA_MASTER)
        return mpti_cuda_bad(c, MPT_E_ARG, __func__, "NULL argument, unknown array, or every is 0");
    return mpti_launch_list(c, __func__, mpti_k_ranges, ranges->list, stream, ranges->range, array, every,
                            mpti_limits_of(&ranges->empty));
}

MPT_DEF mpt_status mpt_cuda_ranges_get_sync(mpt_cuda *c, const mpt_cuda_ranges *ranges, size_t tensor,
                                            mpt_range *r, mpt_stream stream)
{
    mpti_cuda_range d;
    if (!c || !ranges || !r || tensor >= ranges->list->tensor_count)
        return mpti_cuda_bad(c, MPT_E_ARG, __func__, "NULL argument, or no such tensor");
    cudaError_t e = mpti_cuda_here(c);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(&d, ranges->range + tensor, sizeof d, cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
    if (e != cudaSuccess) return mpti_cuda_result(c, e, __func__);
    *r = ranges->empty;
    const mpti_limits l = mpti_limits_of(r);
    const uint32_t    kept = mpti_binade_of(l.kept), normal = mpti_binade_of(l.normal);
    for (uint32_t i = 0; i < MPTI_BINADES; i++) {
        const uint64_t n = d.count[i < 23u ? 256u + i : i - 22u];
        r->binade[(int)i - 149 - MPT_RANGE_EMIN] = n;
        *(i < kept ? &r->flushed : i <= normal ? &r->subnormal : &r->normal) += n;
        r->zero -= i < 23u ? n : 0u;
    }
    r->flushed += d.count[MPTI_FLUSHED];
    r->subnormal -= d.count[MPTI_FLUSHED] + d.count[MPTI_NORMAL];
    r->normal += d.count[MPTI_NORMAL] - d.count[MPTI_OVERFLOW];
    r->overflow = d.count[MPTI_OVERFLOW];
    r->zero += d.count[0];
    r->nan = d.count[MPTI_NAN];
    r->inf = d.count[255] - r->nan;
    r->count = r->zero + r->flushed + r->subnormal + r->normal + r->overflow + d.count[255];
    r->max_abs = mpti_f64_make(mpti_f64_widen(d.extreme[0]));
    r->min_abs = mpti_f64_make(mpti_f64_widen(0u - d.extreme[1]));
    return MPT_OK;
}
#endif /* MPT_NO_REPORTS */

#endif /* MPT_CUDA_IMPLEMENTATION */

#elif defined(MPT_CUDA_IMPLEMENTATION) || \
    ((defined(__CUDACC__) || defined(MPT_CUDA_EMU)) && (defined(MPT_IMPLEMENTATION) || defined(MPT_STATIC)))
#error "mpt_cuda.h needs the core of mpt.h: it cannot be implemented with MPT_ONLY_CONVERSIONS"
#endif /* MPT_ONLY_CONVERSIONS */

// >>C21 to add a kernel, an optimizer --------------------------------------------------------------
/* A kernel: put the formula for one element into mpt.h or mpt_half.h, as MPT_HD, with its CPU loop. Here
 *   loop over chunks with a grid stride, and let the last block write the result into mpt_cuda_state; no host
 *   sync, no allocation. The call refuses bad arguments before it queues anything; error texts name the call.
 * An optimizer: set the last column of its row in MPT_OPTIMIZERS to 1, and declare its call in >>C7. With ONE
 *   pass, add a line to MPTI_ONE_ in >>C18; with OWN passes, write a function like mpti_cuda_lamb there.
 * A format of mpt_cuda_convert_n: add its formulas to those of its width (mpti_codes_to_f32,
 *   mpti_codes_from_f32, mpti_codes_stochastic in >>C12), and its size to mpti_convert_bytes (>>C15).
 * Tests: compare with the CPU function by memcmp in tests/test_cuda*.cu, at all sizes used there, shuffled,
 *   under ASan and TSan. tests/emu lists the parts of CUDA that it emulates; add what you need. */

// >>C22 licence ------------------------------------------------------------------------------------
/* MIT licence, as mpt_half.h.  Copyright (c) 2026 the mpt authors. */
