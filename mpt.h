/* mpt.h -- mixed-precision training for C: see where FP16 loses your numbers, and keep them.
 *
 * Use it: copy mpt_half.h and mpt.h next to your code. In a program of one file, write two lines before the
 * #include. MPT_STATIC keeps only the functions that this file calls, and compiles much faster:
 *
 *     #define MPT_STATIC
 *     #define MPT_IMPLEMENTATION
 *     #include "mpt.h"
 *
 * In a program of several files, define only MPT_IMPLEMENTATION, in one .c file made for this purpose.
 * Link with -lm. The calls in a training loop of your own:
 *
 *     mpt_scaler scaler;  mpt_scaler_init(&scaler, NULL);          // dynamic loss scale
 *     mpt_step   step = {0};
 *     mpt_tensor grads[] = {mpt_tensor_grad_f32("w", dw, n)};      // one line per gradient array
 *     for (...) {
 *         float seed = mpt_scaler_scale(&scaler, dloss);           // 1 scale
 *         backward(seed, dw);                                      // 2 backward, your code
 *         mpt_unscale(&scaler, &step, grads, 1, NULL);             // 3 check
 *         if (!step.found_inf) your_optimizer(w, dw);              // 4 step
 *         if (mpt_scaler_update(&scaler)) break;                   // 5 update; stop if a call was refused
 *     }
 *
 * What it does NOT do: it does not run your forward and backward pass, allocate, print or exit; it starts no
 * threads (it can use yours: see the configuration in mpt_half.h), and only one thread at a time may call it
 * for the same scaler or tensor list. Under -ffast-math, x87 arithmetic or another rounding mode it does not
 * promise the same bits: steps 3 and 4 stay correct but may differ in the last bit (the conversions of
 * mpt_half.h do not). Toward zero, up or down, what overflows may become FLT_MAX, and pass; where subnormals
 * are flushed (FTZ, DAZ), those of FP32, and mpt_roundoff's of FP64, count as 0. Where it uses fma in double
 * (mpt_shadow, mpt_axpy_publish_f64), libm's must round once; newlib's and MinGW's do not always.
 *
 * Contents (search for the mark):
 *   >>M1 configuration                                 >>M16 implementation: tensors
 *   >>M2 tensors                                       >>M17 implementation: scaler, check, clip
 *   >>M3 loss scaler                                   >>M18 implementation: optimizers
 *   >>M4 check, unscale, clip                          >>M19 implementation: FP8 delayed scaling
 *   >>M5 optimizers                                    >>M20 implementation: checkpoint
 *   >>M6 FP8 delayed scaling                           >>M21 implementation: lint, memory
 *   >>M7 checkpoint                                    >>M22 implementation: reports
 *   >>M8 lint, memory                                  >>M23 implementation: rows
 *   >>M9 range report                                  >>M24 implementation: products, activations, losses
 *   >>M10 other reports                                >>M25 implementation: policy
 *   >>M11 rows                                         >>M26 implementation: graph
 *   >>M12 products, activations, losses                >>M27 to add an optimizer, a scaler dialect, a report
 *   >>M13 precision policy                             >>M28 licence
 *   >>M14 graph rewrite
 *   >>M15 core: the formulas, one element each, shared with the GPU
 */
#if (defined(MPT_IMPLEMENTATION) || defined(MPT_STATIC)) && !defined(MPT_TRAIN_IMPLEMENTATION)
#define MPT_TRAIN_IMPLEMENTATION
#endif
#include "mpt_half.h"   /* outside the guard: a second include, with MPT_IMPLEMENTATION, must reach it */

#ifndef MPT_ONLY_CONVERSIONS

#ifndef MPT_H
#define MPT_H

#include <math.h>

// >>M1 configuration ------------------------------------------------------------------------------
/* Which file compiles the implementation, and what MPT_DEF and MPT_SIMD do: see mpt_half.h, >>H1.
 *
 * Macros that leave out a part. It then has no declarations: its use is a compile error (tcc: of the linker).
 * MPT_NO_FP8         >>M6
 * MPT_NO_CHECKPOINT  >>M7
 * MPT_NO_REPORTS     >>M9 and >>M10, mpt_graph_range
 * MPT_NO_OPS         >>M11 and >>M12
 * MPT_NO_GRAPH       >>M13 and >>M14
 * MPT_ONLY_TRAINING  leaves out all of these but >>M7, and the three parts of mpt_half.h
 * MPT_NO_STDIO       mpt_writer_file, the functions that print graphs, <stdio.h>; drawings are refused
 * With MPT_ONLY_CONVERSIONS nothing of mpt.h is left.
 *
 * Other settings:
 * MPT_MALLOC, MPT_FREE  memory for graphs without an arena: define both or none, where MPT_IMPLEMENTATION is.
 * MPT_USE_CBLAS         mpt_gemm calls cblas_sgemm of <cblas.h> on FP32 panels; link the library. */
#ifdef MPT_ONLY_TRAINING
#undef MPT_NO_FP8
#undef MPT_NO_REPORTS
#undef MPT_NO_OPS
#undef MPT_NO_GRAPH
#define MPT_NO_FP8
#define MPT_NO_REPORTS
#define MPT_NO_OPS
#define MPT_NO_GRAPH
#endif
#if (defined(MPT_NO_FP8) || defined(MPT_NO_CHECKPOINT) || defined(MPT_NO_REPORTS) || defined(MPT_NO_OPS) || \
     defined(MPT_NO_GRAPH) || defined(MPT_NO_STDIO)) && defined(__GNUC__) && !defined(__cplusplus)
#pragma GCC diagnostic error "-Wimplicit-function-declaration"
#endif
#ifndef MPT_NO_STDIO
#include <stdio.h>
#endif

// >>M2 tensors ------------------------------------------------------------------------------------
/* Where the weights of a tensor are stored. Rows: enum, name, needs a master, needs an extra array.
 *   master      The master holds the weights in FP32; param is their rounded copy for forward and backward.
 *   nearest     No master: param (f16 or bf16) is the weight, rounded to nearest after each step. An update
 *               below half an ulp (a quarter, downward from 2^k) is lost: for study, and for large steps.
 *   stochastic  No master: param is the weight, rounded stochastically, so that small updates survive on
 *               average (the sum is first rounded to FP32: constant updates near 2^-23 of the weight may be
 *               off by a third, those below 2^-25 are lost); k steps add noise, up to sqrt(k) / 2 gaps rms. A
 *               run that diverges ends at the largest number, or Inf if the sum is. Random bits:
 *               Philox4x32-10 of (element, tensor, steps), key seed.
 *   kahan       No master: extra keeps, in param_format, what the rounding of param lost, for the next step
 *               (in f16 times 2^11, a power of two that keeps it clear of f16's subnormals). In bf16 extra
 *               has 8 bits, too: updates below 2^-15 of the weight are off by 10% and more, from 2^-17 on
 *               some weights lose all of theirs, and below 2^-18 nearly all do; split keeps them.
 *   split       No master: param and extra are the two halves of the FP32 weight, exactly. param is the
 *               weight rounded to nearest bf16, ties away from zero; extra is the 16 bits to add to it. bf16
 *               only: 2^30 floats round to the f16 zero, and 16 bits cannot tell them apart. */
#define MPT_STORAGES(X)                                     \
    X(MPT_STORE_MASTER,     "FP32 master", 1, 0)            \
    X(MPT_STORE_NEAREST,    "nearest",     0, 0)            \
    X(MPT_STORE_STOCHASTIC, "stochastic",  0, 0)            \
    X(MPT_STORE_KAHAN,      "Kahan",       0, 1)            \
    X(MPT_STORE_SPLIT,      "split",       0, 1)

typedef MPTI_ENUM(mpt_storage) { MPT_STORAGES(MPTI_ID) MPT_STORAGE_COUNT } mpt_storage;

/* mpt_storage_name -- "FP32 master", "Kahan" ...; "unknown storage" otherwise.  Threads: any. */
MPT_DEF const char *mpt_storage_name(mpt_storage storage);

/* How moments are stored. In bf16 half an ulp is 2^-9 to 2^-8 of the value. Rounded to nearest, a moment
 * stands still when a step changes it by less: at beta2 0.999 Adam's v never falls again. Rounded
 * stochastically it is right on average, with random bits like those of MPT_STORE_STOCHASTIC. */
typedef MPTI_ENUM(mpt_moments) {
    MPT_MOMENTS_F32,
    MPT_MOMENTS_BF16,           /* rounded stochastically */
    MPT_MOMENTS_BF16_NEAREST,
    MPT_MOMENTS_COUNT
} mpt_moments;

/* One parameter array and all that belongs to it. Zero the struct, set the fields that you have and formats
 * (0, MPT_F64, is refused); each call says which it needs. The memory is yours, aligned as elements need. */
typedef struct mpt_tensor {
    const char *name;           /* for reports and checkpoints, not copied; may be NULL */
    size_t      n;              /* number of elements of each array below */
    float      *master;         /* [n] FP32 master weights */
    void       *param;          /* [n] weights for forward and backward, in param_format; NULL: none */
    void       *grad;           /* [n] gradient in grad_format */
    void       *m;              /* [n] momentum or first moment: float or mpt_bf16, as `moments` says */
    void       *v;              /* [n] second moment, likewise */
    void       *v_max;          /* [n] largest v so far, for MPT_STEP_AMSGRAD; likewise, rounded to nearest */
    mpt_format  param_format;   /* MPT_F32, MPT_F16 or MPT_BF16 */
    mpt_format  grad_format;    /* MPT_F32, MPT_F16 or MPT_BF16 */
    void       *extra;          /* [n] 16-bit values that complete param, where storage needs them */
    mpt_storage storage;        /* 0: FP32 master */
    mpt_moments moments;        /* 0: FP32 */
    uint64_t    seed;           /* key of stochastic rounding; with one seed two lists have the same bits */
    size_t      columns;        /* Adafactor: the tensor is matrices [rows][columns], and v holds, in float,
                                 * all n / columns row means, then all n / rows column means; 0: v is [n] */
    size_t      rows;           /* rows of each matrix; 0: n / columns, one matrix */
    float       lr_times;       /* parameter groups: factors of the optimizer's lr and weight_decay; ... */
    float       decay_times;    /* ... 0 counts as 1, so that a zeroed struct changes nothing: a schedule
                                 * that ends at 0 writes 1e-30f */
    uint32_t    no_decay;       /* nonzero: no weight decay, as usual for biases and norms */
    mpt_format  rounded;        /* 0, or MPT_F16 or MPT_BF16: the floats of param are rounded to that format;
                                 * needs a master; for hosts that compute in FP32 */
    void       *param_at;       /* NULL, or where mpt_tensors_place writes the address of param ... */
    void       *grad_at;        /* ... and that of grad */
    size_t      whole;          /* 0; or this is a part of a tensor of `whole` elements ... */
    size_t      first;          /* ... that begins here, at a multiple of 16384: see mpt_tensors_shard */
    double     *sums;           /* of a part: [n / 16384, rounded up] sums of squares of 16384 gradients each,
                                 * which mpt_check leaves for mpt_step_combine */
} mpt_tensor;

/* mpt_tensor_grad_f32 -- a tensor that has only an FP32 gradient, for your own optimizer.  Threads: any. */
MPT_DEF mpt_tensor mpt_tensor_grad_f32(const char *name, float *grad, size_t n);

/* What a call needs of each tensor; mpt_tensors_validate takes these flags or-ed. */
#define MPT_NEEDS_MASTER 1u
#define MPT_NEEDS_PARAM  2u
#define MPT_NEEDS_GRAD   4u
#define MPT_NEEDS_M      8u
#define MPT_NEEDS_V      16u
#define MPT_NEEDS_WEIGHT 32u    /* the weight in its storage: master, or param with or without extra */
#define MPT_NEEDS_FACTORS 64u   /* v for Adafactor: [n], or row and column means */
#define MPT_NEEDS_V_MAX  128u
#define MPT_NEEDS_WHOLE  1024u  /* not a part of a tensor: norms or means are over the whole tensor */

/* Which tensor is wrong, and why. */
typedef struct mpt_fault {
    size_t      tensor;         /* index in the list */
    const char *why;            /* an English sentence, a static string; NULL when nothing is wrong */
} mpt_fault;

/* mpt_tensors_validate -- make the tests that other calls make before they touch anything. Call it when one
 * of them returned MPT_E_ARG or MPT_E_UNSUPPORTED, to learn why (if not, a hyperparameter was refused).
 *   tensors  in   [count]; NULL allowed if count is 0
 *   needs    in   MPT_NEEDS_* or-ed; for a step: mpt_optimizer_get(MPT_OPTIMIZER_...)->needs; amsgrad: _V_MAX
 *   fault    out  NULL, or which tensor and why
 * Returns: MPT_OK.  Errors: MPT_E_ARG (NULL; two arrays of a tensor overlap, or two of different tensors
 * unless both are only read: MPT_NEEDS_MASTER, _GRAD), MPT_E_UNSUPPORTED (an unknown format, or one that the
 * storage cannot hold). Calls that take a list test each tensor every time, but overlaps between tensors only
 * in mpt_tensors_add, in an optimizer's first step (t 0) and where gradients are changed.  Threads: any. */
MPT_DEF mpt_status mpt_tensors_validate(const mpt_tensor *tensors, size_t count, unsigned needs,
                                        mpt_fault *fault);

/* A list of tensors, in an array of yours, to which you add a tensor in one line. You may change items
 * between steps: where gradients move, as in an autograd, set item[i].grad before the check. */
typedef struct mpt_tensors {
    mpt_tensor *item;           /* [count], to pass to the calls that take a list */
    size_t      count, capacity;
    mpt_tensor  model;          /* formats, storage, moments, seed and group of the tensors added next */
    mpt_status  status;         /* the first error of any addition; test it once, at the end */
    unsigned    needs;          /* MPT_NEEDS_M, _V ...: moments that mpt_tensors_place adds to all items */
    size_t      bytes;          /* what mpt_tensors_place still needs; 63 of it align the arrays */
} mpt_tensors;

/* mpt_tensors_init -- start an empty list.
 *   item          in  [capacity]; the list keeps the pointer and does not copy the array
 *   param_format  in  format of the copies, or of the weights themselves; grad_format: of the gradients
 * For another storage, moments, seed or group (lr_times, no_decay ...) set list->model, which is zeroed
 * here, before you add a tensor. list->needs starts as that of Adam: m and v.
 * Passes take a tensor as a multiple of 256 elements: with tiny ones put biases behind their weights.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_UNSUPPORTED for a format.  Threads: any. */
MPT_DEF mpt_status mpt_tensors_init(mpt_tensors *list, mpt_tensor *item, size_t capacity,
                                    mpt_format param_format, mpt_format grad_format);

/* mpt_tensors_add -- append a tensor, with the formats and storage of list->model; list and checkpoints keep
 * the pointers, that to the name, too. Pass NULL for an array that the optimizer does not need, or that
 * mpt_tensors_place is to provide. To freeze a tensor, set its n to 0 for check and step, and back for all
 * else: mpt_state_save, mpt_publish and mpt_grads_zero leave out a tensor without elements, as
 * MPT_STEP_ZERO_GRADS does: zero its gradient before you unfreeze it. One that is never to step (a base below
 * LoRA's adapters) is no part of the list. One that starts late, or rests for long, needs an optimizer of its
 * own with its own t, whose step is not called meanwhile: t counts calls, even if every n is 0.
 *   weight  in  [n] FP32 master; where storage has none, the 16-bit extra (Kahan, split) or NULL
 * Returns: MPT_OK.  Errors: MPT_E_ARG, also if n is above 0 and param, grad and weight are NULL, or an array
 * overlaps another one of the list (only gradients may overlap each other); MPT_E_UNSUPPORTED for a format
 * that the storage cannot have; MPT_E_MEMORY when the list is full. After an error nothing is added any more:
 * list->status stays, and list->count tells which addition, from 0, was refused. */
MPT_DEF mpt_status mpt_tensors_add(mpt_tensors *list, const char *name, size_t n, void *param, void *grad,
                                   void *weight, void *m, void *v);

/* mpt_tensors_new_f16, mpt_tensors_new_bf16 -- append a tensor of which you have the FP32 weights;
 * mpt_tensors_place will provide copy, gradient and moments. So each array of a trainer takes one line:
 *
 *     mpt_tensors_new_f16(&list, "wq", n, wq_master, &wq, &dwq);               // mpt_f16 *wq, *dwq;
 *     ...
 *     mpt_tensors_place(&list, calloc(list.bytes, 1), list.bytes);            // now they point to arrays
 *
 *   master       in   [n]; NULL: mpt_tensors_place provides it, in item[].master (or extra, for a storage
 *                     without a master); then set the weights with mpt_weights_set
 *   param, grad  out  pointers that mpt_tensors_place sets to the arrays; they must exist until then; or NULL
 *                     (if you choose the format at run time, use mpt_tensors_add, then read item[].param)
 * Returns, Errors: as mpt_tensors_add.
 *
 * mpt_tensors_place -- give every tensor of the list the arrays that it lacks: copy (an FP32 one is the
 * master itself), gradient, extra, and the moments of list->needs, all zero; and a master, which starts as
 * the copy if there is one. All are aligned to 64 bytes or, beside a master of yours, so that all begin a
 * cache line at the same element. Then it calls mpt_publish. Unless sharded it may grow: mpt_tensors_add.
 *   memory  in  [bytes], list->bytes or more; keep it as long as the list
 * Returns: MPT_OK.  Errors: list->status; MPT_E_MEMORY where memory is NULL or too small: nothing is placed,
 * and list->bytes counts anew (it is too small if list->needs grew after an addition).
 * Threads: one caller per list. */
MPT_DEF mpt_status mpt_tensors_new_f16(mpt_tensors *list, const char *name, size_t n, float *master,
                                       mpt_f16 **param, mpt_f16 **grad);
MPT_DEF mpt_status mpt_tensors_new_bf16(mpt_tensors *list, const char *name, size_t n, float *master,
                                        mpt_bf16 **param, mpt_bf16 **grad);
MPT_DEF mpt_status mpt_tensors_place(mpt_tensors *list, void *memory, size_t bytes);

/* mpt_tensors_shard -- turn a list into that of one rank of many. Each rank steps a part of the weights, so
 * that masters and moments take only a part of the memory (as in ZeRO's first stage). The elements of the
 * list are counted through all tensors; a rank gets about 1 / parts of them, cut at the start of a tensor or
 * at a multiple of 16384 in it. Tensors of other ranks stay in the list, with n 0. Arrays that it has, such
 * as copies and gradients of the whole, are advanced to the part; mpt_tensors_place provides the others, for
 * the part only. Random bits, norm and all results then have the bits of the whole list on one rank:
 *
 *     mpt_tensors_add(&list, "w", n, copy, grad, NULL, NULL, NULL);        // all of copy and grad
 *     mpt_tensors_shard(&list, rank, ranks);
 *     mpt_tensors_place(&list, calloc(list.bytes, 1), list.bytes);         // master, m, v of the part
 *     ...
 *     reduce-scatter of the gradients: each rank gets the sums of its part, into item[].grad
 *     mpt_check, mpt_step_combine: one decision and one norm (before it, a step of parts is refused)
 *     mpt_clip, mpt_adamw_step, mpt_scaler_update
 *     all-gather of the copies, from item[].param; zero the whole gradients: a list knows its part only
 *
 * To learn the parts of other ranks, for counts and displacements, shard copies of the list's items. On a GPU
 * do not place the list: give the items device memory for their n elements, before mpt_cuda_list_create. LAMB
 * and Adafactor, which look at whole tensors, refuse parts with MPT_E_UNSUPPORTED.
 *   part, parts  in  rank and number of ranks; part below parts, parts below 2^32
 * Returns: MPT_OK.  Errors: MPT_E_ARG, also for tensors that are parts already, that have columns, or whose
 * param_at or grad_at wait for mpt_tensors_place; list->status; then nothing is changed.
 * Threads: one caller per list.  Source: Rajbhandari et al. 2020, section 5.1. */
MPT_DEF mpt_status mpt_tensors_shard(mpt_tensors *list, size_t part, size_t parts);

/* mpt_weights_set, mpt_weights_get -- copy FP32 values into a tensor's storage (rounded to nearest where it
 * must round), or out of it (from the master, if any): to start training, to evaluate, to export.
 *   t    in/out  needs its weight; mpt_weights_set also writes param beside a master
 *   src  in      [n], for a part its n; may be an FP32 param itself, which a file was read into: then the
 *                master follows it
 *   dst  out     [n]
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; nothing written.  Threads: one caller per tensor.
 * Exact: master and split hold every number exactly (split makes NaNs quiet), Kahan all but the last bits. */
MPT_DEF mpt_status mpt_weights_set(const mpt_tensor *t, const float *src);
MPT_DEF mpt_status mpt_weights_get(const mpt_tensor *t, float *dst);

/* mpt_publish -- write the low-precision copies of a whole list from its masters. Call it after anything
 * other than a step of mpt or mpt_state_load has changed masters: weights from a file, first values, your own
 * optimizer, a test that sets them. Otherwise forward and backward go on with stale copies. To evaluate an
 * average of weights, keep them by mpt_weights_get and set it by mpt_weights_set, and back: a second list
 * with other masters would publish into the FP32 weights themselves, where they are their own copies.
 *   tensors  in   [count]; each needs its weight; one without a copy, or without a master, is left alone
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; then nothing is written.
 * Exact: nearest-even.  Threads: one caller per list. */
MPT_DEF mpt_status mpt_publish(const mpt_tensor *tensors, size_t count);

// >>M3 loss scaler --------------------------------------------------------------------------------
/* The rule of a dialect, as bits: nothing else tells them apart. With none (static) the scale never moves. */
#define MPTI_LATE         0x0001u   /* a move takes effect one update later; `wide` has made it already */
#define MPTI_F64          0x0002u   /* the original keeps its scale in double (Python's float) */
#define MPTI_F32_FACTOR   0x0004u   /* rounds factors to FP32 first; otherwise FP32(scale * FP64 factor) */
#define MPTI_DIVIDE       0x0008u   /* backs off to scale / growth; config.backoff is not used */
#define MPTI_KEEP_FINITE  0x0010u   /* growth to Inf is refused; otherwise the scale becomes Inf */
#define MPTI_COUNT_FIRST  0x0020u   /* compares the count before it counts: the period is interval + 1 */
#define MPTI_AT_LEAST     0x0040u   /* grows at a count of `interval` or more; otherwise at exactly that */
#define MPTI_BY_ITERATION 0x0080u   /* grows if the distance to the last bad step is a multiple of interval */
#define MPTI_ONE_LATER    0x0100u   /* ... that distance less one, and not at 0 */
#define MPTI_BAD_COUNT    0x0200u   /* backs off at every `hysteresis`th bad step */
#define MPTI_BAD_IN_ROW   0x0400u   /* ... counting only bad steps in a row */
#define MPTI_PATIENT      0x0800u   /* the first hysteresis - 1 bad steps only count down hysteresis_left */
#define MPTI_REARM_GOOD   0x1000u   /* ... which a good step resets; otherwise growth does */
#define MPTI_STAYS_AT_ONE 0x2000u   /* ... which stops at 1; otherwise it goes on below 0 */
#define MPTI_MAY_RAISE    0x4000u   /* a bad step at the floor is an error, with MPT_SCALER_RAISE */
#define MPTI_RATE         0x8000u   /* backs off at a share of bad steps, tolerance; raises at min_scale */
#define MPTI_OURS        0x10000u   /* the rule of the default dialect */
#define MPTI_PAST_FLOOR  0x20000u   /* backs off while it is above the floor, and may so fall below it */
#define MPTI_FLT_MIN 1.1754943508222875e-38
#define MPTI_FLT_MAX 3.4028234663852886e+38

/* One row per rule for the scale (dialect): enum, name, first scale, growth, backoff, interval, hysteresis,
 * floor, cap, flags, rule bits, where the scale can get stuck. The numbers are the originals' defaults.
 *   mpt              the default: see below
 *   static           the scale never moves; a bad step is still skipped
 *   pytorch          torch.amp.GradScaler and _amp_update_scale_ of PyTorch 2.15
 *   tensorflow       tf.keras.mixed_precision.LossScaleOptimizer of TensorFlow 2 (tf_keras)
 *   tf_contrib       tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager of TensorFlow 1.15; it has
 *                    no defaults for the first scale and the interval, so those of tensorflow stand in
 *   keras3           keras.optimizers.LossScaleOptimizer of Keras 3.15
 *   flax             flax.training.dynamic_scale.DynamicScale of Flax 0.12.7
 *   jmp              jmp.DynamicLossScale of jmp 0.0.4, like mindspore.amp; first scale of its manual: 2^15
 *   apex             apex.amp.LossScaler, which apex removed in 2025; its floor is optional and off
 *   apex_hysteresis  update_scale_hysteresis of apex 25.09, without defaults: those of pytorch, hysteresis 2
 *   deepspeed_fused  FP16_Optimizer of DeepSpeed 0.19.5
 *   deepspeed        DynamicLossScaler of DeepSpeed 0.17.1 and later, with the defaults of its configuration
 *                    file; flags MPT_SCALER_CONSECUTIVE (off there) and MPT_SCALER_RAISE (on there)
 *   deepspeed_0_17_0 the same until 0.17.0, which grows one step earlier
 *   megatron         DynamicGradScaler of Megatron Core 0.19
 *   fairseq          DynamicLossScaler of fairseq 0.12.2; interval 2^14: for one worker; raises at floor
 *   paddle           paddle.amp.GradScaler of dynamic graphs, as in Paddle 3
 *   paddle_static    update_loss_scaling, Paddle's kernel for static graphs
 *   mxnet            mxnet.amp.LossScaler of MXNet 2; its moves take effect one step later
 *   openseq2seq      BackoffScaler of OpenSeq2Seq, last commit
 *   mindspore        DynamicLossScaleUpdateCell of mindspore.DynamicLossScaleManager, MindSpore 2
 *   marian           Marian 1.12 under --cost-scaling 8 (its --fp16 adds multiplier 1: static at 8). Marian
 *                    calls a step bad only for NaN, clips Inf, and at the floor replaces NaN by 0 */
#define MPT_SCALER_DIALECTS(X)                                                                             \
    X(MPT_SCALER_MPT, "mpt", 65536.0f, 2.0, 0.5, 2000, 1, 9.5367431640625e-07, 1099511627776.0, 0u,        \
      MPTI_OURS, "nowhere: it says when no scale works")                                                   \
    X(MPT_SCALER_STATIC, "static", 1024.0f, 1.0, 1.0, 1, 1, 0.0, 0.0, 0u,                                  \
      0u, "everywhere: it never moves")                                                                    \
    X(MPT_SCALER_PYTORCH, "pytorch", 65536.0f, 2.0, 0.5, 2000, 1, 0.0, 0.0, 0u,                            \
      MPTI_KEEP_FINITE, "at 0, after enough bad steps")                                                    \
    X(MPT_SCALER_TENSORFLOW, "tensorflow", 32768.0f, 2.0, 0.5, 2000, 1, 1.0, 0.0, 0u,                      \
      MPTI_KEEP_FINITE | MPTI_F32_FACTOR | MPTI_DIVIDE | MPTI_AT_LEAST, "at 1, skipping in silence")       \
    X(MPT_SCALER_TF_CONTRIB, "tf_contrib", 32768.0f, 2.0, 0.8, 2000, 2, 1.0, 0.0, 0u,                      \
      MPTI_KEEP_FINITE | MPTI_F32_FACTOR | MPTI_AT_LEAST | MPTI_BAD_COUNT, "at 1, skipping in silence")    \
    X(MPT_SCALER_KERAS3, "keras3", 32768.0f, 2.0, 0.5, 2000, 1, 0.0, 0.0, 0u,                              \
      MPTI_F32_FACTOR, "at 0 and at Inf")                                                                  \
    X(MPT_SCALER_FLAX, "flax", 65536.0f, 2.0, 0.5, 2000, 1, MPTI_FLT_MIN, MPTI_FLT_MAX, 0u,                \
      MPTI_F32_FACTOR | MPTI_COUNT_FIRST, "at 2^-126, skipping in silence")                                \
    X(MPT_SCALER_JMP, "jmp", 32768.0f, 2.0, 0.5, 2000, 1, 1.0, 0.0, 0u,                                    \
      MPTI_KEEP_FINITE | MPTI_F32_FACTOR | MPTI_DIVIDE, "at 1, skipping in silence")                       \
    X(MPT_SCALER_APEX, "apex", 65536.0f, 2.0, 0.5, 2000, 1, 0.0, 16777216.0, 0u,                           \
      MPTI_F64 | MPTI_DIVIDE, "at 0, after enough bad steps")                                              \
    X(MPT_SCALER_APEX_HYSTERESIS, "apex_hysteresis", 65536.0f, 2.0, 0.5, 2000, 2, 0.0, 0.0, 0u,            \
      MPTI_KEEP_FINITE | MPTI_PATIENT | MPTI_REARM_GOOD, "at 0; where every other step is bad")            \
    X(MPT_SCALER_DEEPSPEED_FUSED, "deepspeed_fused", 65536.0f, 2.0, 0.5, 1000, 1, 1.0, 0.0, 0u,            \
      MPTI_F64 | MPTI_DIVIDE | MPTI_BY_ITERATION | MPTI_ONE_LATER, "at 1, in silence")                     \
    X(MPT_SCALER_DEEPSPEED, "deepspeed", 65536.0f, 2.0, 0.5, 1000, 2, 1.0, 0.0, MPT_SCALER_RAISE,          \
      MPTI_F64 | MPTI_DIVIDE | MPTI_BY_ITERATION | MPTI_ONE_LATER | MPTI_PATIENT |                         \
      MPTI_STAYS_AT_ONE | MPTI_MAY_RAISE, "nowhere: it raises at 1 and ends the run")                      \
    X(MPT_SCALER_DEEPSPEED_0_17_0, "deepspeed_0_17_0", 65536.0f, 2.0, 0.5, 1000, 2, 1.0, 0.0,              \
      MPT_SCALER_RAISE, MPTI_F64 | MPTI_DIVIDE | MPTI_BY_ITERATION | MPTI_PATIENT |                        \
      MPTI_STAYS_AT_ONE | MPTI_MAY_RAISE, "nowhere: it raises at 1 and ends the run")                      \
    X(MPT_SCALER_MEGATRON, "megatron", 4294967296.0f, 2.0, 0.5, 1000, 2, 1.0, 0.0, 0u,                     \
      MPTI_F32_FACTOR | MPTI_PATIENT, "at 1, skipping in silence, and at Inf")                             \
    X(MPT_SCALER_FAIRSEQ, "fairseq", 128.0f, 2.0, 0.5, 16384, 1, 1e-4, 0.0, 0u,                            \
      MPTI_F64 | MPTI_DIVIDE | MPTI_BY_ITERATION | MPTI_RATE,                                              \
      "nowhere: it raises at 1e-4 and ends the run")                                                       \
    X(MPT_SCALER_PADDLE, "paddle", 65536.0f, 2.0, 0.5, 2000, 1, 0.0, 0.0, 0u,                              \
      MPTI_F32_FACTOR | MPTI_BAD_COUNT | MPTI_BAD_IN_ROW, "at 0 and at Inf")                               \
    X(MPT_SCALER_PADDLE_STATIC, "paddle_static", 65536.0f, 2.0, 0.5, 2000, 1, 1.0, 0.0, 0u,                \
      MPTI_KEEP_FINITE | MPTI_F32_FACTOR | MPTI_BAD_COUNT | MPTI_BAD_IN_ROW, "at 1, skipping in silence")  \
    X(MPT_SCALER_MXNET, "mxnet", 65536.0f, 2.0, 0.5, 2000, 1, 0.0, 16777216.0, 0u,                         \
      MPTI_F64 | MPTI_DIVIDE | MPTI_LATE, "at 0, after enough bad steps")                                  \
    X(MPT_SCALER_OPENSEQ2SEQ, "openseq2seq", 16777216.0f, 2.0, 0.5, 2000, 1, 1.0, 16777216.0, 0u,          \
      MPTI_F32_FACTOR | MPTI_DIVIDE | MPTI_BY_ITERATION, "at 1, skipping in silence")                      \
    X(MPT_SCALER_MINDSPORE, "mindspore", 16777216.0f, 2.0, 0.5, 2000, 1, 1.0, 0.0, 0u,                     \
      MPTI_F32_FACTOR | MPTI_AT_LEAST, "at 1, skipping in silence, and at Inf")                            \
    X(MPT_SCALER_MARIAN, "marian", 8.0f, 2.0, 0.5, 2000, 1, 1.0, 0.0, 0u,                                  \
      MPTI_F32_FACTOR | MPTI_DIVIDE | MPTI_PAST_FLOOR, "at 1, and at Inf")

typedef MPTI_ENUM(mpt_scaler_dialect) {
    MPT_SCALER_DIALECTS(MPTI_ID)
    MPT_SCALER_DIALECT_COUNT
} mpt_scaler_dialect;

#define MPT_SCALER_RAISE       1u   /* deepspeed: a bad step at the floor is an error */
#define MPT_SCALER_CONSECUTIVE 2u   /* deepspeed: good steps, too, restore the hysteresis, not only growth */

/* The settings of a scaler; static uses only init_scale. */
typedef struct mpt_scaler_config {
    double   growth;            /* factor when the scale grows, above 1 */
    double   backoff;           /* factor when it backs off, above 0, below 1; not used by dialects that
                                 * divide by growth instead (MPTI_DIVIDE in the table) */
    double   min_scale;         /* floor, 0: none; fairseq: an error at or below it; mpt: must be above 0 */
    double   max_scale;         /* cap, 0: none; mpt: must be above 0 */
    double   tolerance;         /* fairseq: bad steps only skip while their share is below this, 0 and more */
    double   threshold;         /* fairseq: floor, 0: none */
    float    init_scale;        /* finite, above 0 */
    int32_t  interval;          /* good steps before the scale grows, 1 and more */
    int32_t  dialect;           /* mpt_scaler_dialect */
    int32_t  hysteresis;        /* number of the bad step that first moves the scale, 1 and more */
    int32_t  patience;          /* mpt: bad steps at the floor before the verdict, 1 and more */
    uint32_t flags;             /* MPT_SCALER_* or-ed */
} mpt_scaler_config;

/* Why a step was bad. */
#define MPT_CAUSE_INF   1u      /* a gradient is Inf */
#define MPT_CAUSE_NAN   2u      /* a gradient is NaN */
#define MPT_CAUSE_RANGE 4u      /* a finite gradient overflows when it is unscaled (check: FP32) */

/* What the updates so far say. A verdict stays until the next good step (mpt) or update (others). */
#define MPT_VERDICTS(X)                                                                                    \
    X(MPT_VERDICT_OK,       "no verdict")                                                                  \
    X(MPT_VERDICT_OVERFLOW, "no scale works: gradients are Inf even at the smallest scale; the forward "   \
                            "pass overflows, the loss diverges, min_scale is too high, or gradients "      \
                            "were not zeroed after a bad step")                                            \
    X(MPT_VERDICT_NAN,      "no scale works: gradients are NaN from the first scale down to the "          \
                            "smallest; look for a NaN in data, weights or forward pass, and for an Inf "   \
                            "among activations")                                                           \
    X(MPT_VERDICT_RANGE,    "no scale works: gradients are finite, but unscaled they exceed the range "    \
                            "of the format they are stored in")                                            \
    X(MPT_VERDICT_RAISED,   "a bad step at the lowest scale: here the dialect's original ends the run")      \
    X(MPT_VERDICT_OFTEN,    "two in five steps or more are bad at every scale; look for an Inf or NaN "     \
                            "in data and among activations")

typedef MPTI_ENUM(mpt_scaler_verdict) { MPT_VERDICTS(MPTI_ID) MPT_VERDICT_COUNT } mpt_scaler_verdict;

/* mpt_verdict_text -- an English sentence, a static string; "unknown verdict" otherwise.  Threads: any. */
MPT_DEF const char *mpt_verdict_text(uint32_t verdict);

/* The default dialect, mpt, is made not to get stuck. Its scales are powers of two in [min_scale, max_scale].
 * Not every bad step is the scale's fault, and neither Inf nor NaN says whether it is: an overflow may reach
 * the gradients as either, and so may a bad batch. The test is whether a lower scale has fewer bad steps.
 *
 * Growth. After `interval` steps without an alarm the scale is multiplied by `growth` (2).
 *
 * Alarm. While no base rate is known, every bad step is an alarm, and every alarm backs off by a factor, from
 * the ninth on, in a run of bad steps or in the search below, by 2, 4, 8 ... 32 factors at once. After a run
 * of at least two the scale climbs back, a factor at a time: the more factors it fell, the faster; each climb
 * that fails makes it four times as slow, up to `interval`.
 *
 * Base rate. Some bad steps have a cause that no scale cures, such as a NaN in the data. The scaler assumes
 * so when a run of bad steps, or a single one, has come at the lowest scale that had worked, four times and
 * then four more (in 256 steps or more), and the second four took at most four times the steps of the first;
 * or after `patience` alarms at min_scale. (Rare batches with gradients that are larger than the others' by
 * more than these eight factors are bad data by this rule. If they must train, lower max_scale, or use
 * dialect pytorch.) The rate of bad steps becomes the base rate, and the scale climbs back to where this
 * search began. Meanwhile the base rate is on trial: an alarm at a level that the scale has climbed to
 * refutes it, or, where bad steps come in runs, says that the scale is to stay lower.
 * With a base rate b, alarms are raised by a run of bad steps that b makes improbable (2^-20), and when bad
 * steps exceed b plus a tolerance by more than a number that grows with log2(b), from 1 to 11. The tolerance
 * is b, but at least 1/64, at most the larger of 1/32 and b/4, and never above (1-b)/2. Bad batches may come
 * in runs: where these have the mean length r, only a run longer by 6 (r - 1), or r times the number, is an
 * alarm. So 5 NaN in 100 batches, one by one or all in a row, cost these steps and, after some 300 to 1000
 * steps that may lead to min_scale and back, no scale, while a scale at fault is still noticed. A run of 12
 * and more that was bad at min_scale, too, ends where it began (12 from 2^16 just reach it, which proves
 * nothing: such runs keep the scale low). The base rate follows the observed rate, never far above what was
 * learned, and is none when steps are good, or after 4096 bad steps or 63 in a row: the search begins anew.
 *
 * Verdict, until the next good step. OVERFLOW or NAN, whichever was found last: when `patience` + 12 steps in
 * a row were bad, `patience` of them at min_scale. The scale is then where the last good step was. RANGE:
 * after `patience` steps in a row whose gradients are finite, but overflow their format when unscaled. No
 * scale cures that, and such steps leave the scale as it is. OFTEN: at each bad step while the base rate is
 * 2/5 or more, from the 64th after it was learned, and while half of 256 steps or more were bad since a
 * search began: where bad steps become frequent slowly, that may take several hundred of them.
 *
 * Defaults: 2^16 first, 2^-20 to 2^40, patience 4: from 2^16 to a verdict takes 16 bad steps. The hysteresis
 * is not used. tests/bench/bench_scaler.c prints what each dialect loses in many trainings. */

/* All state of a loss scale, without pointers: copy it, compare it with memcmp, checkpoint it. Read any
 * field; only updates may change `scale`, nothing `config`. For another one call mpt_scaler_init between two
 * steps: for no scaling MPT_SCALER_STATIC with init_scale 1, which still skips bad steps. To go on from the
 * state_dict of a GradScaler, use its numbers with dialect pytorch; its _growth_tracker is good_steps. */
typedef struct mpt_scaler {
    mpt_scaler_config config;
    uint64_t updates;           /* calls of mpt_scaler_update so far, refused ones too */
    uint64_t skipped;           /* updates with found_inf */
    uint64_t skipped_nan;       /* mpt: updates with a NaN and no Inf, where causes were recorded */
    double   wide;              /* the scale, in dialects that keep it in double (mxnet: the next one); else a
                                 * copy of `scale` */
    int64_t  iteration;         /* deepspeed, fairseq, openseq2seq: their own count of steps; mpt: bad steps
                                 * since the base rate was learned */
    int64_t  last_bad;          /* `iteration` at the last bad step, -1 before; mpt: the mean number of bad
                                 * steps in a row, less 1, times 16 */
    int64_t  last_moved;        /* fairseq: `iteration` at the last change of scale, -1 before; mpt: bits
                                 * of the lowest scale of a good step in this search, a float */
    float    scale;             /* the current scale; multiply the loss by it (mpt_scaler_scale does) */
    float    home;              /* mpt: the scale to climb back to after a search */
    float    last_good;         /* mpt: the scale of the last good step, at first init_scale */
    int32_t  good_steps;        /* since the last bad step or growth; mpt: since the last alarm or move */
    int32_t  bad_steps;         /* tf_contrib, paddle, fairseq: their count of bad steps; mpt: bad in a row */
    int32_t  hysteresis_left;
    int32_t  wait;              /* mpt: steps before the next factor towards home */
    int32_t  depth;             /* mpt: runs of this search that began at its lowest scale, less climbs */
    int32_t  search_steps;      /* mpt: steps since the search began, or since its first half ended ... */
    int32_t  search_bad;        /* ... the bad ones among them ... */
    int32_t  before_steps;      /* ... and steps of the half before */
    int32_t  at_floor;          /* mpt: alarms at min_scale */
    int32_t  range_steps;       /* mpt: steps in a row whose only cause is RANGE */
    uint32_t base;              /* mpt: base rate of bad steps, in units of 2^-24; 0: none is known ... */
    uint32_t base_most;         /* ... and its upper limit, until the next search */
    uint32_t excess;            /* mpt: bad steps beyond the expected number, in units of 2^-24 */
    uint32_t climb;             /* mpt, or-ed: 1: the last move was upwards; 2: the base rate is on trial */
    uint32_t verdict;           /* mpt_scaler_verdict */
    uint32_t found_inf;         /* nonzero: a bad gradient was found since the last update */
    uint32_t cause;             /* MPT_CAUSE_* or-ed, since the last update */
    uint32_t checks;            /* gradient checks since the last update */
    uint32_t in_use;            /* or-ed: 2: mpt_scaler_scale was called; 1: since the last update; 4: a check
                                 * since then was refused, so that the update will be */
} mpt_scaler;

/* mpt_scaler_defaults -- the published defaults of a dialect, to change and pass to mpt_scaler_init.
 * Returns: the configuration; for an unknown dialect one that mpt_scaler_init refuses.  Threads: any. */
MPT_DEF mpt_scaler_config mpt_scaler_defaults(mpt_scaler_dialect dialect);

/* mpt_scaler_name -- the name of a dialect as in the table; "unknown" for anything else.  Threads: any. */
MPT_DEF const char *mpt_scaler_name(mpt_scaler_dialect dialect);

/* mpt_scaler_init -- set up a scaler before its first step.
 *   config  in  NULL for mpt_scaler_defaults(MPT_SCALER_MPT)
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL or a value out of range; then *s is zeroed, which every other
 * call refuses. In dialect mpt growth, backoff, all scales are powers of two, and the first within limits. */
MPT_DEF mpt_status mpt_scaler_init(mpt_scaler *s, const mpt_scaler_config *config);

/* mpt_scaler_scale -- multiply the loss, or the gradient that starts the backward pass, by the scale.
 *   s  in/out  an initialised scaler, which notes the call: without one in each step the check is refused
 *   x  in      loss, or one element of its gradient
 * Returns: x * scale (FP32); NaN for NULL or a scaler that was never initialised.
 * Threads: one caller per scaler.  Source: Micikevicius et al. 2018, section 3.2. */
MPT_DEF float mpt_scaler_scale(mpt_scaler *s, float x);

/* mpt_scaler_record -- tell the scaler what a check of your own found (on other ranks, on a GPU, in an
 * optimizer that looks for itself), in place of mpt_check.
 *   found_inf  in  nonzero: a gradient is bad
 *   cause      in  MPT_CAUSE_* or-ed, which also say that one is bad; 0 for a good step, or if unknown
 * Returns: MPT_OK.  Errors: MPT_E_ARG (also for an unknown cause); MPT_E_ORDER before any scale. */
MPT_DEF mpt_status mpt_scaler_record(mpt_scaler *s, int found_inf, unsigned cause);

/* mpt_scaler_update -- grow or back off the loss scale after a step: one call for all optimizers.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_ORDER without a check since the last update, or after a refused
 * one (the scale stays); MPT_E_SCALE while none works, or hardly (OFTEN), and where deepspeed and fairseq
 * raise an error: the update was made, s->verdict says why; train on if you expect the cause to go away.
 * Exact: as the original of the dialect, in its own arithmetic.  Parity: bit-exact host/device.
 * Threads: one caller per scaler.  Source: Micikevicius et al. 2018, section 3.2; the originals. */
MPT_DEF mpt_status mpt_scaler_update(mpt_scaler *s);

// >>M4 check, unscale, clip -----------------------------------------------------------------------
typedef MPTI_ENUM(mpt_stage) {
    MPT_STAGE_READY, MPT_STAGE_CHECKED, MPT_STAGE_UNSCALED, MPT_STAGE_STEPPED,
    MPT_STAGE_PART = 4,         /* or-ed: the list has parts of tensors, so mpt_step_combine is due */
    MPT_STAGE_CLIPPED = 8,      /* or-ed: mpt_clip was called, so the norm is final */
    MPT_STAGE_REFUSED = 256     /* or-ed: a clip or an optimizer's step was refused since the check */
} mpt_stage;

/* What is known of one optimizer's step. Each optimizer has its own record, so that of two under one scaler a
 * bad one skips only itself. Start from zero (mpt_step step = {0}, in C++ {}); a later check reuses it. */
typedef struct mpt_step {
    uint64_t update;            /* scaler->updates + 1 at the check: the step that this is about */
    double   sumsq;             /* sum of squares of the finite unscaled gradients */
    double   norm;              /* global L2 norm of the unscaled gradients; +Inf if found_inf */
    uint64_t inf_count;         /* gradients that are Inf ... */
    uint64_t nan_count;         /* ... that are NaN ... */
    uint64_t range_count;       /* ... that are finite, but overflow when unscaled and stored */
    uint64_t bad_tensor;        /* the first bad gradient: index of its tensor in the list ... */
    uint64_t bad_index;         /* ... and of the element in it; 0 and 0 while there is none */
    float    grad_factor;       /* multiply what grad holds by this for the unscaled gradient */
    float    clip_factor;       /* 1, or the factor that mpt_clip computed */
    uint32_t found_inf;         /* nonzero: skip this step, and do not advance a learning-rate schedule */
    uint32_t stage;             /* mpt_stage */
    uint32_t cause;             /* MPT_CAUSE_* or-ed, of all bad gradients; 0 if there is none */
    uint32_t bad_cause;         /* MPT_CAUSE_* of the first bad gradient */
    uint64_t sizes;             /* filter of checked sizes, the only ones to step; 0, as when loaded: any */
} mpt_step;

/* The same counts for one tensor: see mpt_check. */
typedef struct mpt_tensor_report {
    uint64_t inf_count, nan_count, range_count;
    uint64_t bad_index;         /* first bad element; 0 while there is none */
    uint32_t bad_cause;         /* MPT_CAUSE_* of that element; 0: the tensor is good */
    uint32_t reserved;          /* 0 */
} mpt_tensor_report;

/* mpt_check -- read all gradients once and set found_inf, its cause, and the global norm of the unscaled
 * gradient. They are not changed, and must not be until mpt_*_step unscales them on the fly. One is bad if it
 * or its unscaled value is Inf or NaN (a scale below 1 can make a finite one overflow). Two tensors may share
 * a gradient: it then counts twice, in the norm and among the bad. The record says which tensor and element
 * was bad first, in list order; for this only a chunk of 16384 elements with a bad one is read twice. A
 * number above 1.8e19 passes, but its square is Inf: Adam's v stays Inf, so that its weight no longer moves,
 * and with Adafactor the weight becomes NaN.
 *   s        in/out  in use; found_inf and cause are merged into it
 *   step     out     the record that mpt_clip and mpt_*_step need
 *   tensors  in      [count]; each needs grad
 *   report   out     [count], what was bad in each tensor, or NULL; not written on an error
 * Returns: MPT_OK, also when found_inf.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; MPT_E_ORDER without a
 * mpt_scaler_scale since the last update, after a refused mpt_*_step or mpt_clip, and for a second check of
 * the same step before the update, also of another list. An error sets step->found_inf and makes
 * mpt_scaler_update refuse: whoever ignores the status skips the step, and is told by the update. As a step
 * after a refused check may be refused, too, a loop that goes on may be refused for good: then zero `step`.
 * Two backward passes for one step (SAM) need a record each: step with the second, never with the first on
 * its gradients; restore and publish the weights also where it was bad.
 * Exact: factor FP32(1 / FP64(scale)). Squares of 64 elements are added in float, these sums in double, on a
 * fixed tree: the norm is off by at most 2^-21 of itself (far less where gradients differ); no square
 * overflows or vanishes.  Parity: bit-exact host/device, for any number of threads, vector width or grid.
 * Threads: one caller per scaler. */
MPT_DEF mpt_status mpt_check(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                             mpt_tensor_report *report);

/* mpt_unscale -- mpt_check in one pass that also writes the unscaled gradients back, for optimizers of your
 * own. Each is rounded to its format, as the norm has it; one that overflows there is bad, too. If found_inf
 * is set, do not use them; what you change later, no step checks. Otherwise as mpt_check, with one more
 * MPT_E_ARG: gradients of two tensors that overlap would be divided twice. The test for that takes one pass
 * if addresses rise along the list. */
MPT_DEF mpt_status mpt_unscale(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                               mpt_tensor_report *report);

/* mpt_steps_join -- make several records act as one: a bad one makes all skip, and each gets the norm over
 * all of them; then mpt_clip each with one bound. For optimizers that must step together, or a scale for each
 * tensor: give each tensor its own scaler, list and record, and join the records after the checks. A scale
 * that is a power of two costs no rounding between the subnormals and the overflow of the gradient's format.
 *   steps  in/out  [count], each checked, not clipped or stepped yet, nor joined (a second join counts
 *                  twice, and no error tells); each keeps its own cause
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_ORDER; then nothing is changed.
 * Exact: their sums of squares are added in order.  Threads: one caller. */
MPT_DEF mpt_status mpt_steps_join(mpt_step *steps, size_t count);

/* The reduction that mpt_step_combine calls: replace values[0 .. n-1] by their sums over all ranks, the same
 * bits on every rank. Return 0, or anything else if it failed. */
typedef int mpt_reduce_fn(void *user, double *values, size_t n);

/* mpt_step_combine -- one decision for all ranks: a bad gradient anywhere makes every rank skip and back off,
 * and the norm is that over all ranks. It is for ranks that each checked their own part of the summed
 * gradient, or of the model; ranks that all checked the same sum need no call. Before the sum it only tells
 * earlier: the sum needs its own check, as it may overflow where no term did, and its norm is another. Every
 * rank must call it once per step, between check and step, also after a refused check: the others wait for
 * it. (A rank without a batch still calls mpt_scaler_scale.) It does not see whether the ranks' scales are
 * equal: after one rank skipped or resumed alone, give all of them the scaler of one.
 *   s        in/out  the scaler of the check; the scalers of all ranks then make the same update
 *   step     in/out  found_inf, cause, counts, sumsq and norm become those of all ranks; bad_tensor,
 *                    bad_index (in its part) and bad_cause stay those of this rank
 *   tensors  in      [count], the list that was checked
 *   reduce   in      such as a call of MPI_Allreduce with MPI_SUM on n doubles. It sums six values. Before
 *                    them, where the tensors are parts, it sums their sums of squares: one for every 16384
 *                    elements of the whole list, at most 2048 in a call. Every rank but one passes 0 there,
 *                    so that the norm has the bits of the whole list's norm. Without parts the norm is of the
 *                    ranks' sums, in the reduction's order
 *   user     in      passed to reduce
 * Returns: MPT_OK.  Errors: MPT_E_ARG, without a reduction, also for a part without sums, or beside whole
 * tensors (those need a list and record of their own: see mpt_steps_join); MPT_E_ORDER on all ranks, with
 * found_inf, if one is not between check and clip or step; MPT_E_DATA if a reduction failed, without those
 * that follow: step->found_inf is set. After MPT_E_ARG and MPT_E_DATA other ranks wait: do not go on. */
MPT_DEF mpt_status mpt_step_combine(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                                    mpt_reduce_fn *reduce, void *user);

/* mpt_accumulate -- dst.grad += src.grad, element by element, for k micro-batches in one step: run each
 * with the same scale (an update may change it: sums over several updates are for mpt_grad_get in FP32, or
 * need a scaler of their own), accumulate, then check, step and update once.
 * Fold 1/k into the loss, or each one's share. To leave out a bad micro-batch check it with a copy of the
 * scaler and an mpt_step of its own. Gradients per sample (DP-SGD) are a step of the scaler each, or bad ones
 * count as bad batches: scale, check, clip, mpt_grad_get into FP32 sums, update; then add noise, unscaled.
 * FP32 accumulators lose least; in a 16-bit format each addition rounds, and a sum may overflow where its
 * terms did not, which the check finds.
 *   dst  in/out  [count]; each needs grad
 *   src  in      [count]; the same sizes; formats may differ
 * Returns: MPT_OK.  Errors: MPT_E_ARG (also where a sum overlaps anything else), MPT_E_UNSUPPORTED; then
 * nothing is changed.  Exact: one FP32 sum, rounded to the format of dst.  Threads: one caller per list. */
MPT_DEF mpt_status mpt_accumulate(const mpt_tensor *dst, const mpt_tensor *src, size_t count);

/* mpt_grads_zero -- set all gradients to 0, before a backward pass that adds to them. Optimizer steps do it
 * in their own pass if their options hold MPT_STEP_ZERO_GRADS.
 *   tensors  in/out  [count]; each needs grad
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; nothing written.  Threads: one caller per list. */
MPT_DEF mpt_status mpt_grads_zero(const mpt_tensor *tensors, size_t count);

/* mpt_clip -- make the step scale all gradients by min(1, max_norm / norm).
 *   max_norm  in  above 0; finite
 * A bad step keeps factor 1: it is skipped anyway, and so Inf / Inf cannot make a NaN. The step multiplies by
 * this factor / scale, a float: below 2^-126 it is inexact, then 0.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_ORDER unless after a check and before the step. A refused clip
 * makes the step be refused, too, and the next check and its update.  Source: Pascanu et al. 2013, 3.2. */
MPT_DEF mpt_status mpt_clip(mpt_step *step, float max_norm);

/* mpt_clip_apply -- change gradients that mpt_unscale wrote back, for optimizers of your own: multiply them
 * by the clip factor, which is then set back to 1, and after that limit each to [-max_abs, max_abs]. The
 * record keeps the norm from before, so that another mpt_clip would clip twice; a bad step is left alone.
 *   max_abs  in  finite; 0: no limit; where the format does not have it, the next smaller number counts
 * Returns: MPT_OK.  Errors: as mpt_unscale, which is due; MPT_E_ARG for max_abs; no gradient is changed, and
 * the record is marked as by a refused mpt_clip. */
MPT_DEF mpt_status mpt_clip_apply(mpt_step *step, const mpt_tensor *tensors, size_t count, float max_abs);

/* mpt_grad_get -- copy one tensor's gradient to FP32, unscaled and clipped, for an optimizer of your own.
 * After mpt_check 16-bit gradients still have all that the scale saved (mpt_unscale rounds the unscaled ones
 * to 16 bits), and the factor of mpt_clip cannot be forgotten. To step by mpt what you made of it, which is
 * unscaled, check it under a static scaler of 1.
 *   step  in   after the check, and after mpt_clip if you like
 *   t     in   needs grad
 *   dst   out  [n], not grad itself; zeros for a bad step, which your optimizer should skip
 * Errors (dst is kept): MPT_E_ARG, MPT_E_UNSUPPORTED; MPT_E_ORDER unless between a check and a step of mpt.
 * Exact: one FP32 product with FP32(grad_factor * clip_factor), as in mpt_*_step.  Threads: any. */
MPT_DEF mpt_status mpt_grad_get(const mpt_step *step, const mpt_tensor *t, float *dst);

/* mpt_order_text -- say which call is due, when one returned MPT_E_ORDER.
 *   step  in  the record of the step, or NULL
 * Returns: an English sentence, a static string.  Threads: any. */
MPT_DEF const char *mpt_order_text(const mpt_scaler *s, const mpt_step *step);

// >>M5 optimizers ---------------------------------------------------------------------------------
/* One row per optimizer: enum, name, the struct of its hyperparameters (mpt_sgd ...), what it needs of each
 * tensor beside weight and gradient (SGD m only with momentum), its passes, whether mpt_cuda.h has it.
 * Passes: ONE over a tensor does all; L2: the ONE of the optimizer that the struct is named after, with
 * weight decay in the gradient; OWN passes. Steps, needs and the GPU's calls are made from this table. */
#define MPT_OPTIMIZERS(X)                                                                                  \
    X(MPT_OPTIMIZER_SGD,       sgd,       sgd,       MPT_NEEDS_M, ONE, 1)                                  \
    X(MPT_OPTIMIZER_ADAMW,     adamw,     adamw,     MPT_NEEDS_M | MPT_NEEDS_V, ONE, 1)                    \
    X(MPT_OPTIMIZER_ADAM,      adam,      adamw,     MPT_NEEDS_M | MPT_NEEDS_V, L2,  1)                    \
    X(MPT_OPTIMIZER_LAMB,      lamb,      adamw,     MPT_NEEDS_M | MPT_NEEDS_V | MPT_NEEDS_WHOLE, OWN, 1)  \
    X(MPT_OPTIMIZER_LION,      lion,      lion,      MPT_NEEDS_M, ONE, 1)                                  \
    X(MPT_OPTIMIZER_ADAFACTOR, adafactor, adafactor, MPT_NEEDS_FACTORS | MPT_NEEDS_WHOLE, OWN, 0)

/* The structs of hyperparameters, in the order of a checkpoint: an even number of 32-bit fields, then t. */
#define MPT_HYPERPARAMETERS(X) X(sgd) X(adamw) X(lion) X(adafactor)

typedef MPTI_ENUM(mpt_optimizer) { MPT_OPTIMIZERS(MPTI_ID) MPT_OPTIMIZER_COUNT } mpt_optimizer;

typedef struct mpt_optimizer_info {
    const char *name;           /* "adamw" */
    unsigned    needs;          /* MPT_NEEDS_*, for mpt_tensors_validate and mpt_memory_report */
    int         on_device;      /* nonzero: mpt_cuda.h has it */
} mpt_optimizer_info;

/* mpt_optimizer_get -- the facts of an optimizer.
 * Returns: a pointer to a static struct; NULL for an unknown optimizer.  Threads: any. */
MPT_DEF const mpt_optimizer_info *mpt_optimizer_get(mpt_optimizer optimizer);

/* Options of all optimizers, or-ed; an optimizer refuses those that it does not know. */
#define MPT_STEP_ZERO_GRADS 1u  /* gradients are 0 afterwards, even if skipped, but not if refused */
#define MPT_STEP_MAXIMIZE   2u  /* ascend: use the gradient with the opposite sign */
#define MPT_STEP_STAYS_OPEN 4u  /* more steps on this check follow: optimizers that share the checked list, a
                                 * part each, set it in all steps but the last (t counts calls, not checks) */

/* SGD.  g += weight_decay * w;  m = momentum * m + (1 - dampening) * g, at t 0 without dampening;
 * w -= lr * (nesterov ? g + momentum * m : m). Without momentum: w -= lr * g. */
typedef struct mpt_sgd {
    float    lr;                /* 0 and more */
    float    momentum;          /* 0 (then m is not needed) to below 1 */
    float    weight_decay;      /* 0 and more */
    uint32_t nesterov;          /* nonzero needs momentum above 0 and no dampening */
    float    dampening;         /* 0 to 1 */
    uint32_t options;           /* MPT_STEP_* */
    uint64_t t;                 /* steps taken, skipped ones not counted */
} mpt_sgd;

#define MPT_STEP_AMSGRAD    8u  /* AdamW and Adam: v_hat is made of the largest v so far, which v_max keeps */

/* AdamW.  w -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * w). */
typedef struct mpt_adamw {
    float    lr;                /* 0 and more */
    float    beta1, beta2;      /* 0 to below 1 */
    float    eps;               /* above 0 */
    float    weight_decay;      /* 0 and more */
    uint32_t options;           /* MPT_STEP_* */
    uint64_t t;                 /* steps taken, skipped ones not counted */
} mpt_adamw;

/* Adam.  g += weight_decay * w;  w -= lr * m_hat / (sqrt(v_hat) + eps). */
typedef mpt_adamw mpt_adam;

/* LAMB.  r = m_hat / (sqrt(v_hat) + eps) + weight_decay * w;  w -= lr * (|w| / |r|) * r, with norms of the
 * whole tensor; |w| / |r| is 1 if one of them is 0. */
typedef mpt_adamw mpt_lamb;

/* Lion.  w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w);
 * m = beta2 * m + (1 - beta2) * g. */
typedef struct mpt_lion {
    float    lr;                /* 0 and more */
    float    beta1, beta2;      /* 0 to below 1 */
    float    weight_decay;      /* 0 and more */
    uint32_t options;           /* MPT_STEP_* */
    uint32_t reserved;          /* 0 */
    uint64_t t;                 /* steps taken, skipped ones not counted */
} mpt_lion;

/* Adafactor.  1 - beta2 = t^-0.8. With columns, in each matrix: r and c are the row and column means of g^2,
 * averaged over time by beta2, and v = r * c / max(mean r, eps1). Without: v = beta2 * v + (1 - beta2) * g^2.
 * u = g / max(sqrt(v), eps1);  w -= lr * weight_decay * w + alpha * u / max(1, rms(u) / clip), where alpha =
 * max(eps2, rms(w)) * min(lr, t^-0.5). On the host only; other optimizers with v refuse columns. */
typedef struct mpt_adafactor {
    float    lr;                /* 0 and more */
    float    eps1;              /* 2^-60 and more */
    float    eps2;              /* 0 and more */
    float    clip;              /* above 0 */
    float    weight_decay;      /* 0 and more */
    uint32_t options;           /* MPT_STEP_* */
    uint64_t t;                 /* steps taken, skipped ones not counted */
} mpt_adafactor;

/* mpt_adamw_defaults ... -- AdamW: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay 0.01; Adam: the same,
 * no decay; LAMB: AdamW's, eps 1e-6; Lion: lr 1e-4, betas 0.9 and 0.99, no decay; Adafactor: lr 1e-2,
 * eps1 2^-23, eps2 1e-3, clip 1, no decay. No steps taken. */
MPT_DEF mpt_adamw mpt_adamw_defaults(void);
MPT_DEF mpt_adam mpt_adam_defaults(void);
MPT_DEF mpt_lamb mpt_lamb_defaults(void);
MPT_DEF mpt_lion mpt_lion_defaults(void);
MPT_DEF mpt_adafactor mpt_adafactor_defaults(void);

/* mpt_sgd_step, mpt_adamw_step ... -- one fused pass: unscale, clip, update the weights in the storage of
 * each tensor, write the low-precision copies. LAMB, for its norms, reads three times, Adafactor four. If
 * step->found_inf is set, nothing changes: neither weights nor moments nor t, and so neither the random bits
 * nor a schedule that reads t. Each tensor's lr and weight_decay are those of o times its own factors.
 *   o        in/out  hyperparameters and t; at t 0 all moments must be 0, also after another optimizer
 *   step     in/out  from mpt_check or mpt_unscale; without a step it stays valid after the update, too
 *   tensors  in/out  [count], the list that was checked; each needs its weight and grad, m (SGD only with
 *                    momentum; not Adafactor), v (all but SGD and Lion); beside a master, param is written if
 *                    not NULL
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; MPT_E_ORDER without a check, of parts without
 * mpt_step_combine, for a second step on one check, or for a tensor of a size that was not checked (all that
 * the record knows of the list). On an error nothing is changed but step->stage: unless you try again, the
 * next check and its update are refused.
 * Exact: every multiply-add is one fma; constants in double; the weight decay is part of the update, which is
 * added with one rounding; moments in bf16 are rounded when stored, and LAMB and Adafactor compute with the
 * rounded ones.  Parity: bit-exact host/device.
 * Threads: one caller per list.  Source: Sutskever et al. 2013 and PyTorch SGD; Kingma & Ba 2015;
 * Loshchilov & Hutter 2019, algorithm 2; You et al. 2020, algorithm 2; Chen et al. 2023, algorithm 2;
 * Shazeer & Stern 2018, algorithms 4 and 5, and PyTorch Adafactor. */
MPT_DEF mpt_status mpt_sgd_step(mpt_sgd *o, mpt_step *step, const mpt_tensor *tensors, size_t count);
MPT_DEF mpt_status mpt_adamw_step(mpt_adamw *o, mpt_step *step, const mpt_tensor *tensors, size_t count);
MPT_DEF mpt_status mpt_adam_step(mpt_adam *o, mpt_step *step, const mpt_tensor *tensors, size_t count);
MPT_DEF mpt_status mpt_lamb_step(mpt_lamb *o, mpt_step *step, const mpt_tensor *tensors, size_t count);
MPT_DEF mpt_status mpt_lion_step(mpt_lion *o, mpt_step *step, const mpt_tensor *tensors, size_t count);
MPT_DEF mpt_status mpt_adafactor_step(mpt_adafactor *o, mpt_step *step, const mpt_tensor *tensors,
                                      size_t count);

/* mpt_optimizer_step -- check, clip, step and update in one call: all that follows a backward pass if only
 * one optimizer uses the scaler, and tensors are whole.
 *   optimizer, o  in, in/out  which one, and its struct, MPT_OPTIMIZER_ADAMW and an mpt_adamw: no compiler
 *                             notices another struct
 *   max_norm      in          as in mpt_clip; 0: no clipping
 * Returns: MPT_OK, also for a bad step (step->found_inf).  Errors: the first error of the four calls. After
 * an error the weights are as they were; the scaler is updated if the check was made.
 * Threads: one caller per list and scaler. */
static inline mpt_status mpt_optimizer_step(mpt_optimizer optimizer, void *o, mpt_scaler *s, mpt_step *step,
                                            const mpt_tensor *tensors, size_t count, float max_norm)
{
    mpt_status updated, status = s && s->in_use & 4u ? MPT_E_ORDER      /* the update will be refused */
                                                     : mpt_check(s, step, tensors, count, NULL);
    if (status == MPT_OK && mpti_f32_bits(max_norm) << 1)
        status = mpt_clip(step, max_norm);
    if (status == MPT_OK)
        switch ((int)optimizer) {
#define MPTI_STEP_CASE(id, name, hyper, needs, passes, device) \
        case id: status = mpt_##name##_step((mpt_##name *)o, step, tensors, count); break;
        MPT_OPTIMIZERS(MPTI_STEP_CASE)
        default: status = MPT_E_ARG;
        }
    if (step)
        step->stage &= 3u;                  /* the caller learns of a refused step here */
    updated = mpt_scaler_update(s);
    return status == MPT_OK ? updated : status;
}

// >>M6 FP8 delayed scaling ------------------------------------------------------------------------
#ifndef MPT_NO_FP8
/* Each FP8 tensor needs a scale of its own. Delayed scaling takes it from the largest |x| ("amax") of earlier
 * steps, so that one pass converts: in step t mpt_fp8_encode_n multiplies by the scale and records amax;
 * mpt_fp8_update, once a step, makes the scales of step t + 1 from the amax recorded. The loss scale (>>M3)
 * is separate: the product that reads an FP8 tensor undoes the scale of the tensor, with `inverse`.
 * Current scaling takes two passes: mpt_fp8_encode_n without dst, mpt_fp8_update of this tensor alone with a
 * history of 1 (or, for weights and rows, scale = largest / amax, unless it is 0 or not finite); then encode.
 * Source: NVIDIA Transformer Engine, recipes DelayedScaling, Float8CurrentScaling. */
typedef MPTI_ENUM(mpt_amax_choice) {
    MPT_AMAX_MAX,           /* the largest of the history */
    MPT_AMAX_MOST_RECENT,   /* the last one */
    MPT_AMAX_CHOICE_COUNT
} mpt_amax_choice;

typedef struct mpt_fp8_recipe {
    mpt_format      format;     /* MPT_E4M3: weights, activations (forward); MPT_E5M2: gradients */
    mpt_amax_choice choice;     /* which amax of the history counts */
    uint32_t        length;     /* steps in the history, 1 and more */
    int32_t         margin;     /* binades of the format left unused, -32 .. 32 */
    uint32_t        power_of_two;   /* nonzero: round scales down to powers of two: scaling is exact */
    uint32_t        drop_bad;   /* nonzero: forget an amax that is Inf or NaN. Zero, as in the original: it
                                 * freezes the scale until it has left the history */
} mpt_fp8_recipe;

/* The scales of some tensors, in arrays of yours: zero the struct, then fill it. On the GPU: with device
 * pointers. On many ranks: reduce amax by maximum before the update, as uint32_t, so that NaN wins. */
typedef struct mpt_fp8_scaling {
    mpt_fp8_recipe recipe;
    uint64_t       count;
    float         *scale;       /* [count] multiply by it before the conversion */
    float         *inverse;     /* [count] 1 / scale, for the product: a_scale, b_scale of mpt_cuda.h */
    float         *amax;        /* [count] largest |x| since the last update */
    float         *history;     /* [count][length] the amax of earlier steps, oldest first */
    uint64_t       inverse_step;    /* floats from one inverse to the next; 0 counts as 1. 4 saves a copy in
                                     * mpt_cuda_gemm: cublasLt wants multiples of 16 bytes */
} mpt_fp8_scaling;

/* mpt_fp8_defaults -- the defaults of the original: the largest of 1024 steps, margin 0.
 *   format  in  MPT_E4M3 or MPT_E5M2; anything else is refused by the calls below */
MPT_DEF mpt_fp8_recipe mpt_fp8_defaults(mpt_format format);

/* mpt_fp8_init -- set all scales to 1, nothing recorded. Far from 1 the first step is useless with delayed
 * scaling: let it be one of current scaling.
 * Returns: MPT_OK.  Errors: MPT_E_ARG (NULL with count > 0, a recipe out of range), MPT_E_UNSUPPORTED (a
 * format other than E4M3 and E5M2); nothing is written. */
MPT_DEF mpt_status mpt_fp8_init(const mpt_fp8_scaling *s);

/* mpt_fp8_update -- make the next scale of every tensor: (largest / amax) / 2^margin, in FP32, where
 * `largest` is the largest number of the format and amax the one that the recipe chooses. Then the history
 * has moved on, and s->amax is 0. An amax of 0, Inf or NaN keeps the old scale; with MPT_AMAX_MAX so does any
 * Inf or NaN in the history. A scale beyond FP32's normal range becomes the end of that range.
 * Returns, Errors: as mpt_fp8_init.
 * Exact: a correctly rounded division.  Parity: bit-exact host/device.  Threads: one caller per s. */
MPT_DEF mpt_status mpt_fp8_update(const mpt_fp8_scaling *s);

/* mpt_fp8_encode_n -- convert x * scale to FP8 with saturation, and record the largest |x|.
 *   dst_format  in      MPT_E4M3 or MPT_E5M2
 *   dst         out     [n]; may be src; or NULL: only amax is recorded
 *   src_format  in      MPT_F32, MPT_F16 or MPT_BF16
 *   scale       in      NULL: 1
 *   amax        in/out  becomes the largest of amax and |x|, as bit patterns: Inf beats all numbers, NaN
 *                       beats Inf. NULL: not recorded
 * A value beyond the largest number (448, 57344), finite or Inf, becomes that number, with its sign; NaN
 * stays NaN, with its sign. The product is rounded to FP32 first, which does nothing for a power of two.
 * Returns: MPT_OK.  Errors: MPT_E_ARG (NULL, overlap), MPT_E_UNSUPPORTED (formats); nothing is written.
 * Exact: one FP32 product, nearest-even.  Parity: bit-exact host/device.  Threads: any. */
MPT_DEF mpt_status mpt_fp8_encode_n(mpt_format dst_format, void *dst, mpt_format src_format, const void *src,
                                    size_t n, const float *scale, float *amax);

/* mpt_fp8_encode_transpose -- the same for a matrix, and its transpose in the same pass: products want FP8
 * operands contiguous along k, so training needs each matrix both ways.
 *   dst         out  [rows][cols], or NULL for the transpose alone
 *   transposed  out  [cols][rows]
 *   src         in   [rows][cols]; the three must not overlap
 * Everything else as above. */
MPT_DEF mpt_status mpt_fp8_encode_transpose(mpt_format dst_format, void *dst, void *transposed,
                                            mpt_format src_format, const void *src, size_t rows, size_t cols,
                                            const float *scale, float *amax);
#endif /* MPT_NO_FP8 */

// >>M7 checkpoint ---------------------------------------------------------------------------------
#ifndef MPT_NO_CHECKPOINT
/* What a checkpoint holds: pointers to your objects, NULL and 0 for those that you do not have. Lists and
 * sizes must be the same when loading: names, formats, storage, decay and parts are compared (not lr_times,
 * which a schedule may set); nothing is allocated or guessed. State of your own (epoch, position in the data,
 * counters of random generators) goes into counters; arrays of yours (FP8 scales) as the master of a tensor.
 * With mpt_tensors_shard each rank saves its part. To go on with another number of ranks, each loads the old
 * parts one by one, into lists sharded by the old number, and copies its own. */
typedef struct mpt_state {
    mpt_scaler       *scalers;  /* [scaler_count] */
    size_t            scaler_count;
    mpt_step         *steps;    /* [step_count]; needed to stop between check and update */
    size_t            step_count;
    mpt_sgd          *sgd;      /* one of each struct of MPT_HYPERPARAMETERS */
    mpt_adamw        *adamw;    /* Adam and LAMB too */
    mpt_lion         *lion;
    mpt_adafactor    *adafactor;
    uint64_t         *counters; /* [counter_count] */
    size_t            counter_count;
    const mpt_tensor *tensors;  /* [tensor_count]: master, param, m, v, v_max, extra, as far as present */
    size_t            tensor_count;
    uint32_t          gradients;    /* nonzero: grad as well, to stop during accumulation */
    mpt_fault        *fault;    /* NULL, or what save or load found; tensor is -1 where it is about none */
} mpt_state;

#define MPT_STATE_VERSION 5u      /* versions 3 and 4, which have other checksums, can be loaded, too */

/* mpt_state_size -- the number of bytes that mpt_state_save needs.
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED (a format).  Threads: any. */
MPT_DEF mpt_status mpt_state_size(const mpt_state *state, size_t *bytes);

/* mpt_state_save -- write a run to a buffer: the same bytes on every machine, little-endian.
 *   buffer  out  [bytes]; must not overlap the state
 *   bytes   in   exactly what mpt_state_size said
 * Where memory is short, save several states, each with some of the tensors.
 * Returns: MPT_OK.  Errors: MPT_E_ARG, also for what mpt_state_load would refuse, such as an lr of NaN, and
 * for a tensor that would save nothing, as it has only a gradient; MPT_E_UNSUPPORTED; then nothing is
 * written.  Threads: one caller per state. */
MPT_DEF mpt_status mpt_state_save(const mpt_state *state, void *buffer, size_t bytes);

/* mpt_state_load -- read a run back. Everything is verified before anything is written: length, version,
 * checksum (64 bits; it always notices a change of one word of eight bytes), that the state has the
 * shape of the saved one, and that scalers, steps and hyperparameters hold values that their functions accept
 * and can produce: changed values with a fitting checksum cause no undefined step. Arrays may hold anything.
 * Returns: MPT_OK, and the run goes on as if it had never stopped, to the bit.  Errors: MPT_E_ARG; MPT_E_DATA
 * for a buffer that is damaged, cut, of another version or of another shape (state->fault tells where); then
 * nothing is changed. For another model save the weights yourself, by mpt_weights_get.
 * Threads: one caller per state. */
MPT_DEF mpt_status mpt_state_load(const mpt_state *state, const void *buffer, size_t bytes);
#endif /* MPT_NO_CHECKPOINT */

// >>M8 lint, memory -------------------------------------------------------------------------------
/* Problems of a constant, an update or a scale in a format, or of copies. From MPT_LINT_FATAL on: fatal. */
#define MPT_LINTS(X)                                                                                \
    X(MPT_LINT_OK,          "nothing found")                                                        \
    X(MPT_LINT_SUBNORMAL,   "the constant is subnormal in this format: it keeps few bits, and flushing " \
                            "makes it zero")                                                        \
    X(MPT_LINT_UPDATE_FEW,  "the update is below an ulp of what it moves: rounding changes most of it")  \
    X(MPT_LINT_SCALE_ODD,   "the scale is no power of two: scaling rounds")                         \
    X(MPT_LINT_UNKNOWN,     "not a number, a format or a list")                                     \
    X(MPT_LINT_VANISHES,    "the constant rounds to zero in this format")                           \
    X(MPT_LINT_OVERFLOWS,   "it overflows this format, or is Inf or NaN (rows of masks give NaN)")        \
    X(MPT_LINT_UPDATE_LOST, "the update is below half an ulp of what it moves: it is lost")         \
    X(MPT_LINT_SCALE_HIGH,  "the largest magnitude times this scale overflows the format")          \
    X(MPT_LINT_STALE,       "a copy is not what its master rounds to: mpt_publish is missing, or, if the "  \
                            "copy has the right weights, mpt_weights_set")
#define MPT_LINT_FATAL MPT_LINT_UNKNOWN

typedef MPTI_ENUM(mpt_lint) { MPT_LINTS(MPTI_ID) MPT_LINT_COUNT } mpt_lint;

/* mpt_lint_text -- one English sentence for a finding.  Threads: any. */
MPT_DEF const char *mpt_lint_text(mpt_lint lint);

/* mpt_lint_constant -- what is left of a constant in a format (E8M0 or NaN: UNKNOWN): an eps, a mask
 *                      constant (-1e9), a clamp?
 * mpt_lint_update   -- does an update of this size (lr times a typical direction) change a weight of this
 *                      size in a storage, away from 0? It is lost below half an ulp: of the weight in
 *                      MPT_STORE_NEAREST, of what extra holds in MPT_STORE_KAHAN, of a float in others. For
 *                      moments in bf16: weight v, update (1 - beta2) * v, storage MPT_STORE_NEAREST, or
 *                      MPT_STORE_STOCHASTIC for MPT_MOMENTS_BF16.
 * mpt_lint_scale    -- does a loss scale fit gradients of at most max_abs before scaling?
 * mpt_lint_copies   -- are the low-precision copies what mpt_publish would write (STALE), and they, and
 *                      weights without a copy, finite (OVERFLOWS)? If one is not, its number in the list
 *                      goes to *which, unless NULL. Reads all weights: call it when in doubt.
 * Returns: the worst finding.  Threads: any. */
MPT_DEF mpt_lint mpt_lint_constant(mpt_format format, double value);
MPT_DEF mpt_lint mpt_lint_update(mpt_storage storage, mpt_format format, double weight, double update);
MPT_DEF mpt_lint mpt_lint_scale(mpt_format format, double scale, double max_abs);
MPT_DEF mpt_lint mpt_lint_copies(const mpt_tensor *tensors, size_t count, size_t *which);

/* Memory in bytes, by kind of array. */
typedef struct mpt_memory {
    uint64_t parameters;        /* elements of all tensors */
    uint64_t master, param, extra, grad, m, v, total;
    double   per_parameter;     /* total / parameters; 0 without parameters */
} mpt_memory;

/* mpt_memory_report -- how much memory a configuration takes. The arrays need not exist: only n, columns,
 * rows, formats, storage and moments are read.
 *   needs  in  MPT_NEEDS_WEIGHT, _PARAM (a copy apart from a master), _GRAD, _M, _V, _V_MAX (counted as v) or
 *              _FACTORS or-ed
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED (*report is kept).  Threads: any. */
MPT_DEF mpt_status mpt_memory_report(const mpt_tensor *tensors, size_t count, unsigned needs,
                                     mpt_memory *report);

/* To see what any format does to your numbers (no memory is saved), use mpt_quantize_n of mpt_half.h. */

// >>M9 range report -------------------------------------------------------------------------------
#ifndef MPT_NO_REPORTS
/* Calls of reports (>>M9, >>M10) return MPT_OK or, beside what stands at each: MPT_E_ARG for NULL, a value
 * out of range, reports that do not merge, or one that a failed init has zeroed; MPT_E_UNSUPPORTED for an
 * unknown format, e8m0, which has no zero, numbers in tf32, a style (drawings, curves): then nothing is
 * counted; MPT_E_DATA if the writer failed.  Threads: one caller per report, but any number may read it. */

/* The binades of FP64, which include those of every other format: floor(log2|x|) from -1074 to 1023. */
#define MPT_RANGE_EMIN (-1074)
#define MPT_RANGE_BINS 2098

/* What would become of a set of numbers if each were rounded to `format`. Counts are exact: merging the
 * reports of any parts, in any order, gives the report of the whole, byte for byte. */
typedef struct mpt_range {
    uint64_t   count, zero;
    uint64_t   flushed;         /* nonzero, but rounds to zero */
    uint64_t   subnormal;       /* rounds to a subnormal: bits may be lost */
    uint64_t   normal;
    uint64_t   overflow;        /* finite, rounds to Inf (without Inf: NaN, or the largest number) */
    uint64_t   inf, nan;
    uint64_t   binade[MPT_RANGE_BINS];  /* finite nonzero values with floor(log2|x|) = i + MPT_RANGE_EMIN */
    double     max_abs, min_abs;        /* of the finite nonzero values; 0 if there are none */
    uint64_t   least_kept, least_normal, least_overflow;    /* FP64 bits of the |x| where classes begin */
    mpt_format format;
    uint32_t   reserved;                /* 0 */
} mpt_range;

/* mpt_range_init -- start an empty report against a format. Signs do not count, not even in ue4m3. */
MPT_DEF mpt_status mpt_range_init(mpt_range *r, mpt_format format);

/* mpt_range_add -- count n more numbers, in one pass.
 *   from  in  their format: f64, f32, f16, bf16, or one of at most 8 bits, with one code in each byte
 *   x     in  [n], at any alignment */
MPT_DEF mpt_status mpt_range_add(mpt_range *r, mpt_format from, const void *x, size_t n);

/* mpt_range_add_signed -- the same by sign: each number goes into one of two reports, by its sign bit (-0 and
 * negative NaNs count as negative). Merged, the two give the report without signs.
 *   negative, positive  in/out  two reports, not the same one (MPT_E_ARG); their formats may differ */
MPT_DEF mpt_status mpt_range_add_signed(mpt_range *negative, mpt_range *positive, mpt_format from,
                                        const void *x, size_t n);

/* mpt_range_merge -- add the counts of src to dst, a report against the same format. */
MPT_DEF mpt_status mpt_range_merge(mpt_range *dst, const mpt_range *src);

/* mpt_range_nonzero -- how many values are finite and not zero: the usual whole for shares. */
static inline uint64_t mpt_range_nonzero(const mpt_range *r)
{
    return r->flushed + r->subnormal + r->normal + r->overflow;
}

/* mpt_range_percentile -- the binade of a percentile of the magnitudes: floor(log2) of the nearest-rank
 * percentile of the finite nonzero |x|. Resolution: one binade, a factor of 2; exact in that.
 *   percent   in   0 (the smallest) to 100 (the largest)
 *   exponent  out  the percentile lies from 2^exponent to below 2^(exponent + 1)
 * Errors: MPT_E_DATA if there are no finite nonzero values. */
MPT_DEF mpt_status mpt_range_percentile(const mpt_range *r, double percent, int *exponent);

/* A survey: the same numbers against every format at once, in one pass. `cell` counts the values between two
 * neighbouring class limits of all formats; each one's report follows exactly. Surveys merge, too. */
#define MPT_SURVEY_EDGES (3 * (int)MPT_FORMAT_COUNT)    /* three for each format of the table */
typedef struct mpt_survey {
    uint64_t count, zero, inf, nan;
    uint64_t binade[MPT_RANGE_BINS];            /* as in mpt_range */
    uint64_t edge[MPT_SURVEY_EDGES];            /* FP64 bits of |x|, ascending */
    uint64_t cell[MPT_SURVEY_EDGES + 1];        /* finite nonzero values from edge[i - 1] to below edge[i] */
    double   max_abs, min_abs;                  /* as in mpt_range */
} mpt_survey;

/* mpt_survey_init -- start an empty survey of all formats that mpt_range_init takes.
 * mpt_survey_add, _merge -- as mpt_range_add and mpt_range_merge. */
MPT_DEF mpt_status mpt_survey_init(mpt_survey *a);
MPT_DEF mpt_status mpt_survey_add(mpt_survey *a, mpt_format from, const void *x, size_t n);
MPT_DEF mpt_status mpt_survey_merge(mpt_survey *dst, const mpt_survey *src);

/* mpt_survey_get -- the report against one format, byte for byte as by mpt_range_add; none after an error. */
MPT_DEF mpt_status mpt_survey_get(const mpt_survey *a, mpt_format format, mpt_range *r);

/* A power of two to multiply the numbers by, and what it does to them. */
typedef struct mpt_range_choice {
    float    scale;             /* 2^log2_scale */
    int      log2_scale;
    int      headroom;          /* doublings left before the largest magnitude overflows; < 0: it does */
    uint64_t flushed, subnormal, overflow;  /* with that scale, by whole binades: see headroom, too */
} mpt_range_choice;

/* Losses that the choice of a scale may accept, as shares of the finite nonzero values, 0 to 1 each. */
typedef struct mpt_range_tolerance {
    double flushed;             /* may become zero */
    double subnormal;           /* may become zero or subnormal: lose bits */
    double overflow;            /* may overflow */
} mpt_range_tolerance;

/* mpt_range_choose_scale -- find the power of two, 2^-126 to 2^127, that loses least: nothing overflows, and
 * `headroom` doublings stay possible; among those, fewest flushed to zero, then fewest subnormal, then
 * nearest 1. What overflows at every scale is left aside. Without a tolerance no avoidable loss is accepted:
 * a few tiny outliers, or a huge one (-FLT_MAX for missing data), can ask for a scale that suits no other.
 *   headroom   in  bits to keep free above the largest magnitude, 0..30: 3 if you are unsure, 0 for FP4, FP6
 *   tolerated  in  NULL: nothing. What is tolerated counts as no loss. With overflow above 0 whole binades
 *                  of largest values are left aside, and headroom counts above the highest of the others
 * Returns: MPT_OK (scale 1 if there are no finite nonzero numbers). */
MPT_DEF mpt_status mpt_range_choose_scale(const mpt_range *r, int headroom,
                                          const mpt_range_tolerance *tolerated, mpt_range_choice *choice);

/* mpt_range_at_scale -- what one scale would do: a point of the curve "scale -> share flushed, subnormal,
 * overflowing", all of which follows from one histogram. Whole binades are counted: as flushed below half of
 * the least subnormal, as subnormal below the least normal, as overflowing above the largest finite number;
 * so each count is off by at most the values in the binade of the limit.
 *   log2_scale  in  -126..127; -k for what numbers that were scaled by 2^k would lose without the scale */
MPT_DEF mpt_status mpt_range_at_scale(const mpt_range *r, int log2_scale, mpt_range_choice *choice);

// >>M10 other reports -----------------------------------------------------------------------------
/* Where reports are written: a function of yours that takes the next n bytes, however few, and returns 0, or
 * anything else to stop. Except in drawings, numbers ignore the locale; 12 digits, FP64's subnormals as 0.
 * JSON has null for NaN and Inf, CSV nothing. */
typedef struct mpt_writer { int (*write)(void *user, const char *text, size_t n); void *user; } mpt_writer;

/* TEXT: a line for each figure. CSV_HEAD: the names of the columns. CSV: a row (RFC 4180). JSON: an object on
 * a line; surveys have a line for each format, sums one for each method. DRAWING: a picture made of
 * characters, for a terminal; MPT_E_UNSUPPORTED with MPT_NO_STDIO, as it takes vsnprintf. */
typedef MPTI_ENUM(mpt_style) {
    MPT_STYLE_TEXT, MPT_STYLE_CSV_HEAD, MPT_STYLE_CSV, MPT_STYLE_JSON, MPT_STYLE_DRAWING
} mpt_style;

#ifndef MPT_NO_STDIO
/* mpt_writer_file -- write to an open stream.  Threads: as the stream. */
MPT_DEF mpt_writer mpt_writer_file(FILE *file);
#endif

/* mpt_range_write -- write the figures of a range report. JSON also has the histogram: "first" is the
 * exponent of the first of "binades". The drawing: the histogram beside the format's range, a row per binade.
 * mpt_survey_write -- the same for each format. The drawing is a table, a line per format: what is flushed,
 * subnormal, normal, overflows, and the scale that mpt_range_choose_scale takes with a headroom of 3.
 *   name  in  the name of the numbers, for the first column; not NULL */
MPT_DEF mpt_status mpt_range_write(const mpt_range *r, mpt_style style, const char *name, mpt_writer out);
MPT_DEF mpt_status mpt_survey_write(const mpt_survey *a, mpt_style style, const char *name, mpt_writer out);

/* mpt_range_write_histogram -- write CSV: log2,count,zone, from the first binade that holds something to the
 * last. Zone 0 becomes zero, 1 is subnormal, 2 normal, 3 overflows. */
MPT_DEF mpt_status mpt_range_write_histogram(const mpt_range *r, mpt_writer out);

/* mpt_range_write_curve -- write what each scale from 2^first to 2^last would do; see mpt_range_at_scale.
 *   style  in  MPT_STYLE_CSV: log2_scale,flushed,subnormal,overflow as shares of the nonzero, below a line of
 *              these names. MPT_STYLE_DRAWING: a row for each scale (or each second, third ...: at most 44
 *              rows), the shares as a bar of four characters, and a mark at the scale that
 *              mpt_range_choose_scale takes with a headroom of 3. Other styles: MPT_E_UNSUPPORTED
 *   name   in  the first words of a drawing; not NULL */
MPT_DEF mpt_status mpt_range_write_curve(const mpt_range *r, int first, int last, mpt_style style,
                                         const char *name, mpt_writer out);

/* ---- exact sums ---- */

/* A sum without any rounding: a fixed-point number wide enough for every double and every product of two
 * doubles (Kulisch's accumulator). A zeroed struct is an empty sum. */
#define MPT_EXACT_LIMBS 136
typedef struct mpt_exact {
    int64_t  limb[MPT_EXACT_LIMBS];     /* limb[i] * 2^(32 i - 2176) */
    uint32_t pending;                   /* additions since the carries were last propagated */
    uint32_t not_finite;                /* or-ed: 1 a NaN, 2 +Inf, 4 -Inf was added */
} mpt_exact;

/* mpt_exact_add -- add x * y to s (not NULL), the product not rounded; y = 1 adds x. The order never matters.
 * Threads: one caller per sum.  Source: Kulisch, Computer Arithmetic and Validity, 2008, chapter 8. */
MPT_DEF void mpt_exact_add(mpt_exact *s, double x, double y);

/* mpt_exact_merge -- add all of src to dst. (Neither is NULL, nor is s below.)
 * mpt_exact_value -- the sum, correctly rounded to double (nearest-even).  Threads: any. */
MPT_DEF void mpt_exact_merge(mpt_exact *dst, const mpt_exact *src);
MPT_DEF double mpt_exact_value(const mpt_exact *s);

/* ---- rounding report ---- */

/* What rounding did to numbers. Sums are exact or in fixed point, so reports merge like range reports. */
typedef struct mpt_roundoff {
    uint64_t  count, zero, inf, nan;    /* of the numbers before scale and rounding */
    uint64_t  exact;                    /* finite nonzero: rounding keeps them */
    uint64_t  changed;                  /* finite nonzero: rounded, flushed or overflowed */
    uint64_t  flushed;                  /* of the changed: became zero, also by the scale alone */
    uint64_t  overflow;                 /* of the changed: became Inf or NaN; not in the errors below */
    uint64_t  relative[2];              /* sum of |error / x| in 2^-40, low and high word */
    uint64_t  ulps[2], bias[2];         /* sum of |error|, and of the error, in 2^-24 ulp; two's complement */
    mpt_exact signal, noise;            /* sums of x^2, after the scale, and of error^2 */
    double    max_relative, max_ulps;
    uint64_t  seed, first_element, step;        /* of stochastic rounding, as in mpt_opts */
    uint32_t  stream;
    int32_t   log2_scale;
    uint32_t  format, rounding, overflow_mode, flush;   /* mpt_format, mpt_rounding, mpt_overflow, as opts */
    uint32_t  ready;
} mpt_roundoff;

/* mpt_roundoff_init -- start an empty report.
 *   opts        in  NULL for the defaults; randoms must be NULL
 *   log2_scale  in  the numbers are multiplied by 2^log2_scale first; -1000..1000 */
MPT_DEF mpt_status mpt_roundoff_init(mpt_roundoff *r, mpt_format format, const mpt_opts *opts,
                                     int log2_scale);

/* mpt_roundoff_add -- round n more numbers and count what happens.
 *   from, x  in  as in mpt_range_add
 * Stochastic rounding takes the random word of element first_element + (numbers seen so far): for a part of
 * an array set first_element to its place.
 * Exact: relative errors are rounded to 24 bits, for the sum to 2^-40 (at most 2^22), in ulp (mpt_ulp of the
 * number) to 2^-24 (at most 2^38), nearest-even, if that is the processor's mode; the sums are exact. */
MPT_DEF mpt_status mpt_roundoff_add(mpt_roundoff *r, mpt_format from, const void *x, size_t n);

/* mpt_roundoff_merge -- add src to dst, a report with the same format, scale and options. */
MPT_DEF mpt_status mpt_roundoff_merge(mpt_roundoff *dst, const mpt_roundoff *src);

/* The figures. Of zeros alone means and SQNR are NaN; SQNR is -Inf with overflow, else +Inf without noise. */
typedef struct mpt_roundoff_figures {
    double max_relative, mean_relative;
    double max_ulps, mean_ulps;
    double bias_ulps;                   /* mean signed error */
    double sqnr_db;                     /* 10 log10(sum of squares / of squared errors) */
} mpt_roundoff_figures;

/* mpt_roundoff_get -- the figures of a report.
 * mpt_roundoff_write -- write them, as mpt_range_write. The drawing: bars of what stays exact, is rounded,
 * becomes 0, overflows; mean and largest relative error on an axis of powers of two; bias and SQNR. */
MPT_DEF mpt_status mpt_roundoff_get(const mpt_roundoff *r, mpt_roundoff_figures *figures);
MPT_DEF mpt_status mpt_roundoff_write(const mpt_roundoff *r, mpt_style style, const char *name,
                                      mpt_writer out);

/* ---- stagnation report ---- */

/* What becomes of updates w + u if weights are stored in `format`: training stagnates where they are lost. A
 * gap is the distance from a stored weight to the next number of the format. Merges like a range report. */
#define MPT_STAGNATION_MARGINS 128
typedef struct mpt_stagnation {
    uint64_t   count;
    uint64_t   none;            /* not looked at: u is zero, or w, u or the stored w is Inf or NaN */
    uint64_t   lost;            /* the stored weight does not change */
    uint64_t   half_lost;       /* its change is off by half of u or more: lost, or blown up to a gap */
    uint64_t   sign_wrong;      /* it lies on the wrong side of w; only where w is not in the format */
    uint64_t   overflow;        /* it becomes Inf or NaN */
    uint64_t   margin[MPT_STAGNATION_MARGINS];  /* [i]: floor(log2(|u| / half a gap)) = i - 64, or beyond */
    mpt_format format;
    uint32_t   ready;
} mpt_stagnation;

/* mpt_stagnation_init -- start an empty report.
 * mpt_stagnation_add, _merge -- look at n more pairs; add src to dst.
 *   w, u  in  [n] weights as they are stored, and what is added to them: minus learning rate times gradient.
 *             If yours are not stored in the format yet, round them first (mpt_quantize_n): otherwise too few
 *             updates count as lost. Take both of a run in FP32 or FP64 (one that is stuck has no updates),
 *             while it still moves: near a steady state lost updates do little harm
 * Exact: w + u is rounded once, to nearest-even. */
MPT_DEF mpt_status mpt_stagnation_init(mpt_stagnation *r, mpt_format format);
MPT_DEF mpt_status mpt_stagnation_add(mpt_stagnation *r, const float *w, const float *u, size_t n);
MPT_DEF mpt_status mpt_stagnation_merge(mpt_stagnation *dst, const mpt_stagnation *src);

/* mpt_stagnation_vanishing -- the largest factor of the learning rate at which updates vanish: the largest
 * power of two such that at least `share` of all updates, multiplied by it, are below half a gap.
 *   share   in   above 0, at most 1
 *   factor  out  its log2, -64..64; 64: they vanish at any rate; -64: at 2^-64 of the rate or less
 * Errors: MPT_E_DATA without a nonzero update. */
MPT_DEF mpt_status mpt_stagnation_vanishing(const mpt_stagnation *r, double share, int *factor);

/* mpt_stagnation_write -- as mpt_range_write. The drawing: |update| / half a gap, lost below 1. */
MPT_DEF mpt_status mpt_stagnation_write(const mpt_stagnation *r, mpt_style style, const char *name,
                                        mpt_writer out);

/* ---- accumulation report ---- */

/* Ways to add up, one row each: enum, name. Products of FP32 numbers enter exactly and each addition rounds
 * once; but Kahan, Neumaier and pairwise summation add FP32 numbers: products are rounded to FP32 first.
 *   blocks  add blocks of MPT_SUM_BLOCK terms in FP32, then the block sums in FP32 */
#define MPT_SUM_BLOCK 256
#define MPT_SUM_METHODS(X)                  \
    X(MPT_SUM_F16,      "f16")              \
    X(MPT_SUM_BF16,     "bf16")             \
    X(MPT_SUM_F32,      "f32")              \
    X(MPT_SUM_BLOCKS,   "f32 in blocks")    \
    X(MPT_SUM_KAHAN,    "Kahan")            \
    X(MPT_SUM_NEUMAIER, "Neumaier")         \
    X(MPT_SUM_PAIRWISE, "pairwise")         \
    X(MPT_SUM_F64,      "f64")

typedef MPTI_ENUM(mpt_sum_method) { MPT_SUM_METHODS(MPTI_ID) MPT_SUM_METHOD_COUNT } mpt_sum_method;

/* mpt_sum_method_name -- its name in the table; "unknown" otherwise.  Threads: any. */
MPT_DEF const char *mpt_sum_method_name(mpt_sum_method method);

/* The same sum in all ways, and exactly; zeroed it is empty. It depends on the order: there is no merge. */
typedef struct mpt_sums {
    uint64_t  n;
    double    f16, bf16, f64;
    float     f32, block_sum, block;
    float     kahan, kahan_rest, neumaier, neumaier_rest;
    float     pair[64];                 /* pair[k]: sum of a full tree of 2^k terms, if n has bit k */
    mpt_exact exact, magnitude;         /* sums of the terms, and of their absolute values */
} mpt_sums;

/* mpt_sums_add -- add n more terms.
 *   x         in  [n]
 *   y         in  [n]: the terms are x[i] * y[i]; NULL: the terms are x[i]
 *   backward  in  nonzero: from the last term to the first
 * Exact: no bits are promised under -ffast-math or x87 arithmetic. Under DAZ the FP32 sums lose subnormal
 * terms, as the program's own would; the exact sum does not.
 * Source: Kahan 1965; Neumaier 1974; Higham, Accuracy and Stability, chapter 4. */
MPT_DEF mpt_status mpt_sums_add(mpt_sums *s, const float *x, const float *y, size_t n, int backward);

typedef struct mpt_sums_figures {
    double exact;                               /* the sum, correctly rounded to double */
    double condition;                           /* sum of |term| over |sum|: how hard it is */
    double value[MPT_SUM_METHOD_COUNT];
    double error[MPT_SUM_METHOD_COUNT];         /* value - sum, correctly rounded */
    double relative[MPT_SUM_METHOD_COUNT];      /* |error / sum|; NaN if the sum is 0 */
} mpt_sums_figures;

/* mpt_sums_get -- the figures so far.
 * mpt_sums_write -- write them, as mpt_range_write, a row for each method. The drawing is one row: the
 * relative errors on an axis of powers of two, a letter for each method, below a legend (without it if name
 * is NULL). Draw a row whenever the number of terms has doubled, and the rows show how errors grow. */
MPT_DEF mpt_status mpt_sums_get(const mpt_sums *s, mpt_sums_figures *figures);
MPT_DEF mpt_status mpt_sums_write(const mpt_sums *s, mpt_style style, const char *name, mpt_writer out);

/* ---- shadow run ---- */

/* What an operation itself did to a value, beside the same value computed in double (its shadow): a row each.
 * Cancellation: a sum two or more binades below its larger term at least doubles the error (Kahan's rest does
 * so by design). Absorption: it equals one of its terms (of an fma: c). Underflow: it is subnormal and
 * inexact. Invalid: a new NaN; division by zero; below 0 in an unsigned format. Rounding: other inexact. */
#define MPT_SHADOW_CAUSES(X)                                \
    X(MPT_SHADOW_NONE,         "none")                      \
    X(MPT_SHADOW_ROUNDING,     "rounding")                  \
    X(MPT_SHADOW_CANCELLATION, "catastrophic cancellation") \
    X(MPT_SHADOW_ABSORPTION,   "absorption")                \
    X(MPT_SHADOW_UNDERFLOW,    "underflow")                 \
    X(MPT_SHADOW_OVERFLOW,     "overflow")                  \
    X(MPT_SHADOW_INVALID,      "invalid operation")

typedef MPTI_ENUM(mpt_shadow_cause) { MPT_SHADOW_CAUSES(MPTI_ID) MPT_SHADOW_CAUSE_COUNT } mpt_shadow_cause;

/* The operations; VALUE brings a number into the run. */
typedef MPTI_ENUM(mpt_shadow_op) {
    MPT_SHADOW_OP_VALUE, MPT_SHADOW_OP_ADD, MPT_SHADOW_OP_SUB, MPT_SHADOW_OP_MUL, MPT_SHADOW_OP_DIV,
    MPT_SHADOW_OP_SQRT, MPT_SHADOW_OP_FMA, MPT_SHADOW_OP_COUNT
} mpt_shadow_op;

/* mpt_shadow_cause_name, mpt_shadow_op_name -- "overflow", "fma" ...; "unknown" otherwise.  Threads: any. */
MPT_DEF const char *mpt_shadow_cause_name(mpt_shadow_cause cause);
MPT_DEF const char *mpt_shadow_op_name(mpt_shadow_op op);

/* A value of the format, and its shadow: what it would be if all operations had rounded only to double. */
typedef struct mpt_shadowed { double low, exact; } mpt_shadowed;

/* An operation worth reporting. */
typedef struct mpt_shadow_event {
    uint64_t         at;        /* number of the operation, from 1; 0: there was none */
    mpt_shadow_op    op;
    mpt_shadow_cause cause;
    mpt_shadowed     in[3], out;
    double           before, after;     /* relative errors: the largest of the inputs; that of the result */
    int              cancelled;         /* binades by which a sum is smaller than its larger term */
    uint32_t         reserved;          /* 0 */
} mpt_shadow_event;

/* Counts, the first operation that was invalid or took a value beyond `tolerance` from its shadow, and the
 * one that added most error (the counts show many small losses). Errors: |low - exact| / |exact|. */
typedef struct mpt_shadow {
    uint64_t         operations;
    uint64_t         causes[MPT_SHADOW_CAUSE_COUNT];    /* number of operations for each cause */
    mpt_shadow_event first, worst;
    double           tolerance;
    mpt_format       format;
    uint32_t         ready;
} mpt_shadow;

/* mpt_shadow_init -- start a run.
 *   tolerance  in  relative, above 0; 0.01: report when a value is off by more than one in a hundred
 * Errors: MPT_E_UNSUPPORTED also for f64. */
MPT_DEF mpt_status mpt_shadow_init(mpt_shadow *s, mpt_format format, double tolerance);

/* mpt_shadow_value -- bring a number into the run: it is rounded to the format; its shadow is the number. (Or
 * fill in both: low a decoded FP8 operand, for products that are added in a run of FP32.)
 * mpt_shadow_apply -- apply an operation to values of the run, rounded once to the format; beside it the same
 * in double. fma is a * b + c; operands that an operation does not have may be anything:
 *     mpt_shadowed x = mpt_shadow_value(&s, 300.0), y = mpt_shadow_apply(&s, MPT_SHADOW_OP_MUL, x, x, x);
 *     y = mpt_shadow_apply(&s, MPT_SHADOW_OP_SQRT, y, y, y);                       // y.low, y.exact
 * NaN for a run that was never initialised, an unknown operation.  Exact: yes.  Threads: one per run. */
MPT_DEF mpt_shadowed mpt_shadow_value(mpt_shadow *s, double x);
MPT_DEF mpt_shadowed mpt_shadow_apply(mpt_shadow *s, mpt_shadow_op op, mpt_shadowed a, mpt_shadowed b,
                                      mpt_shadowed c);

/* mpt_shadow_write -- as mpt_range_write. The drawing: how often each cause occurred; both events. */
MPT_DEF mpt_status mpt_shadow_write(const mpt_shadow *s, mpt_style style, const char *name, mpt_writer out);

/* ---- tracking over time ---- */

/* One tensor of a training run, sampled at regular steps. Record and writer are yours. Zeroed, it is off. */
typedef struct mpt_track {
    const char *name;
    mpt_writer  out;                    /* write NULL: no output, but the figures below are updated */
    uint64_t    every;                  /* 0: off */
    uint64_t    samples;
    uint64_t    first_flushed, first_overflow;  /* step + 1; 0: not so far. Inf and NaN count as overflow */
    uint64_t    nonzero, flushed, overflow;     /* of the last sample; Inf and NaN are overflow */
    mpt_format  format;
    uint32_t    reserved;               /* 0 */
} mpt_track;

/* mpt_track_init -- watch a tensor against a format, in multiples of `every` steps; 0: off. Keeps `name`. */
MPT_DEF mpt_status mpt_track_init(mpt_track *t, const char *name, mpt_format format, uint64_t every,
                                  mpt_writer out);

/* mpt_track_add -- call it at every step. Where the step is a multiple of `every`, it counts the tensor and
 * writes one line of JSON: step, name, format, count, zero, flushed, subnormal, normal, overflow, inf, nan,
 * log2 of the largest and of the median magnitude. Otherwise it costs a comparison.
 *   from, x  in  as in mpt_range_add */
MPT_DEF mpt_status mpt_track_add(mpt_track *t, uint64_t step, mpt_format from, const void *x, size_t n);

/* mpt_track_first -- find the tensor that was the first to flush; if `overflow` is not 0, to overflow.
 *   index  out  its index in the list; the earliest step wins, then the lowest index: list gradients from
 *               the last layer to the first. One number is enough: see its share, too
 * Errors: MPT_E_DATA if none did. */
MPT_DEF mpt_status mpt_track_first(const mpt_track *tracks, size_t count, int overflow, size_t *index);

/* mpt_track_write -- draw a row of a heat map: for each tensor the share flushed in its last sample, from
 * blank (none) over .:-=+*#% to @ (nearly all); ! means an overflow, ? no sample.
 *   title  in  title of the map, drawn with a legend above the row; NULL: only the row, to continue a map */
MPT_DEF mpt_status mpt_track_write(const mpt_track *tracks, size_t count, uint64_t step, const char *title,
                                   mpt_writer out);
#endif /* MPT_NO_REPORTS */

// >>M11 rows --------------------------------------------------------------------------------------
#ifndef MPT_NO_OPS
/* Rows for inner loops: weights, gradients and activations in F32, F16 or BF16, arithmetic in FP32. A call of
 * mpt_dot or mpt_axpy takes some 8 ns, and from 256 elements on no longer than a vectorized loop of floats;
 * mpt_axpy_publish takes 2 or 3 times as long, mpt_row_update without a master 50 to 200 ns up to 128. For a
 * squared distance subtract by mpt_axpy in floats, then mpt_dot the difference: a a - 2 a b + b b cancels. */

/* mpt_dot -- the sum of a[i] * x[i].
 *   a, x  in  [n], aligned as elements are, each in its format: F32, F16 or BF16; convert rows in FP8 or in
 *             blocks to floats first
 * Returns: the sum; 0 for n 0, NULL, or an n that no array has; NaN for another format.  Threads: any.
 * Exact: the row is padded with zeros to a multiple of 64; element i is added to lane i mod 64 by one fma, in
 *   order; then lane j + 32 is added to lane j, then j + 16 to j, and so on down to one; zeros add up to +0.
 *   The bits are the same on every path, but for those of NaNs, unless the program flushes subnormals.
 *
 * mpt_axpy -- y[i] += a * x[i], each with one fma and one rounding to y's format; also 16-bit dw += d * x.
 *   y  in/out  [n]
 *   x  in      [n]; must not overlap y
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; nothing is written.  Threads: any.
 *
 * mpt_dot_strided, mpt_axpy_strided -- the same, with a stride in bytes from each element to the next: for a
 * field of an array of structs (not packed ones: aligned, too), a column of a matrix.
 * Errors: MPT_E_ARG also if elements of y meet each other or x (of another stride: its span); y may be x. */
MPT_DEF float mpt_dot(const void *a, mpt_format a_format, const void *x, mpt_format x_format, size_t n);
MPT_DEF mpt_status mpt_axpy(void *y, mpt_format y_format, float a, const void *x, mpt_format x_format,
                            size_t n);
MPT_DEF float mpt_dot_strided(const void *a, mpt_format a_format, ptrdiff_t a_stride, const void *x,
                              mpt_format x_format, ptrdiff_t x_stride, size_t n);
MPT_DEF mpt_status mpt_axpy_strided(void *y, mpt_format y_format, ptrdiff_t y_stride, float a, const void *x,
                                    mpt_format x_format, ptrdiff_t x_stride, size_t n);

/* mpt_axpy_publish -- for code that updates inside backprop, without a gradient buffer: master += a * x, then
 * the copy from it. a is -lr for descent, +lr for ascent; fold 1 / batch and 1 / scale into it as well. If
 * a, any x, or a * x, is Inf or NaN, the whole row stays; a master beyond its range is Inf in the copy.
 *   param      out     [n] in `format`, or NULL
 *   master     in/out  [n]
 *   x          in      [n] what backprop gives for this row
 *   found_inf  in/out  NULL, or set to 1 where the row stayed
 *
 * mpt_axpy_publish_f64 -- the same for masters and gradients in double: an fma in double, one rounding.
 *
 * Returns: MPT_OK, also when found_inf.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; nothing is written.
 * Exact: one fma each, the copy nearest-even.  Threads: one caller per row. */
MPT_DEF mpt_status mpt_axpy_publish(void *param, mpt_format format, float *master, float a, const float *x,
                                    size_t n, uint32_t *found_inf);
MPT_DEF mpt_status mpt_axpy_publish_f64(void *param, mpt_format format, double *master, double a,
                                        const double *x, size_t n, uint32_t *found_inf);

/* How mpt_row_update moves a row. Zero the struct and set what you need. */
typedef struct mpt_row_rule {
    float    a;                 /* w += a * d; for descent -lr */
    float    factor;            /* d = factor * x: 1 / scale if x is scaled (m is unscaled); 0 counts as 1 */
    float    momentum;          /* above 0: m = momentum * m + factor * x, and d = m */
    uint32_t nesterov;          /* nonzero: d = momentum * m + factor * x, with the new m */
    uint32_t found_inf;         /* in/out: set to 1 where a row stayed */
    uint32_t stream;            /* of random bits: with one stream, seed and count they are the same */
    uint64_t count;             /* in/out: rows updated; random bits depend on it, so save it with the rest */
} mpt_row_rule;

/* mpt_row_update -- move elements first .. first + n - 1 of a tensor by a * x inside backprop, in whatever
 * storage its weights are: masters and their copy, param alone, or param with what Kahan or split storage
 * keep. With MPT_STORE_STOCHASTIC an embedding table takes 2 bytes a weight:
 *
 *     mpt_tensor   table = {0};                                    // mpt_f16 codes[rows * width]
 *     mpt_row_rule rule = {0};                                     // one for each thread
 *     table.n = rows * width, table.storage = MPT_STORE_STOCHASTIC;
 *     table.param = codes, table.param_format = MPT_F16;           // to fill it: mpt_weights_set
 *     rule.a = -lr;
 *     mpt_row_update(&rule, &table, row * width, width, gradient);
 *
 *   rule  in/out  see above; without momentum a * factor is multiplied first; it may serve several tables
 *   t     in      its arrays are written, and must not overlap (mpt_tensors_validate tells); grad and
 *                 lr_times are not read; m in F32, if there is momentum
 *   x     in      [n] what backprop gives for this row; must not overlap the tensor's arrays
 * A row in which a, or any factor * x (without momentum a * x), is Inf or NaN stays, and so does count: look
 * at found_inf, as no NaN reaches the weights of a run that diverges. A sum beyond the format's range is Inf,
 * or stochastically its largest number (Inf beyond FP32's). Fastest where 8 divides first, 64 n.
 * Returns: MPT_OK, also when found_inf.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; nothing is written, so ask
 * mpt_tensors_validate once before the loop (storage 0, the default, needs a master; t->n is all rows).
 * Threads: one caller per row and rule. Several threads may share a row without locks (Hogwild), each with
 * its own rule: C calls it a data race, but machines move aligned elements whole, and what is lost is at most
 * one of two updates of the same element. In Kahan and split storage the two halves may come from two
 * updates, which costs at most an ulp of param. The bits then depend on which thread was first. */
MPT_DEF mpt_status mpt_row_update(mpt_row_rule *rule, const mpt_tensor *t, size_t first, size_t n,
                                  const float *x);

// >>M12 products, activations, losses -------------------------------------------------------------
/* ---- the ops of a small trainer, on F32, F16 and BF16 arrays ----
 * All of them compute in FP32 and round once, when they store. A matrix of rows x cols is row-major and
 * dense. Each array is aligned as its elements require. They return MPT_OK, MPT_E_ARG (NULL with a size above
 * 0, more than an array can hold, or a result that overlaps what is read) or MPT_E_UNSUPPORTED (a format); on
 * an error nothing is written.  Threads: any, on different outputs. */

/* The values are those of CBLAS, so that its enums can be cast. */
typedef MPTI_ENUM(mpt_order) { MPT_ROW_MAJOR = 101, MPT_COL_MAJOR = 102 } mpt_order;
typedef MPTI_ENUM(mpt_trans) { MPT_NO_TRANS = 111, MPT_TRANS = 112 } mpt_trans;

/* mpt_gemm -- C = alpha * op(A) * op(B) + beta * C, in the argument order of BLAS, with a format per matrix.
 *   m, n, k  in      op(A) is m x k, op(B) k x n, C m x n
 *   lda ...  in      leading dimension: elements from one row (MPT_ROW_MAJOR) or column to the next
 *   c        in/out  not read if beta is 0, so it may be uninitialised or hold NaN; may be other columns of a
 *                    matrix that holds a or b
 *   work     in      memory for panels, used only with MPT_USE_CBLAS; NULL: panels on the stack
 * Matrices in FP8 or in blocks: dequantize some rows to floats, multiply them, and take the next ones.
 * Stack: 48 KiB of panels, 108 KiB with MPT_USE_CBLAS, even if work is given.
 * A and B are not read if alpha is 0. A zero does not hide the NaN or Inf that it is multiplied by.
 * Errors: MPT_E_ARG also for a leading dimension that is too small and for sizes that overflow.
 * Thin products, with m, n or k at most 16, use no panels: with AVX-512 and from about 300 x 300 on as
 * fast as your own loops over floats (dW in bf16 is not; see tests/bench/bench_rows.c). A layer with weights
 * W of rows x cols and a batch of vectors:
 *   y = x W'     (MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, batch, rows, cols,
 *                 1, x, MPT_F32, cols, W, MPT_F16, cols, 0, y, MPT_F32, rows, NULL, 0)
 *   dx += dy W   (MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, batch, cols, rows,
 *                 1, dy, MPT_F32, rows, W, MPT_F16, cols, 1, dx, MPT_F32, cols, NULL, 0)
 *   dW += dy' x  (MPT_ROW_MAJOR, MPT_TRANS, MPT_NO_TRANS, rows, cols, batch,
 *                 1, dy, MPT_F32, rows, x, MPT_F32, cols, 1, dW, MPT_F16, cols, NULL, 0)
 * A convolution through im2col: y = W p, dp = W' dy, dW += dy p', image by image. Add the images' dW in FP32,
 * and then once to 16 bits (mpt_axpy): each sum in 16 bits is rounded.
 * Exact: FP32 fma in order of k, then fma(alpha, sum, beta * c), one rounding to C's format: the same bits on
 * every machine, in any layout. Two exceptions. (1) Where k, alpha and beta are 1: fma(a, b, c), as in
 * mpt_axpy. (2) Where m or n is at most 4, or at most 16 and k above 16: the sum is that of mpt_dot if the
 * matrix of the longer side (of equal ones B; in MPT_COL_MAJOR A) lies along k, and the other does, too, or k
 * is at most 4096 (9216 with MPT_USE_CBLAS). With MPT_USE_CBLAS products that are not thin, or too long for
 * (2), add in the library's order.  Source: Dongarra et al. 1990, level 3 BLAS. */
MPT_DEF mpt_status mpt_gemm(mpt_order order, mpt_trans transa, mpt_trans transb, size_t m, size_t n, size_t k,
                            float alpha, const void *a, mpt_format a_format, size_t lda, const void *b,
                            mpt_format b_format, size_t ldb, float beta, void *c, mpt_format c_format,
                            size_t ldc, void *work, size_t work_bytes);

/* mpt_gemm_work_bytes -- the size of `work` with which mpt_gemm calls CBLAS once; a tenth of it does nearly
 * as well.  Returns: bytes; 0 without MPT_USE_CBLAS, or if they do not fit a size_t. */
MPT_DEF size_t mpt_gemm_work_bytes(size_t m, size_t n, size_t k);

/* mpt_bias_add, mpt_bias_grad -- x[r][c] += bias[c];  grad[c] = (not +=) the sum of dy[r][c] over r,
 * in FP32, upwards. To add: mpt_gemm of a row of ones and dy, with beta 1. */
MPT_DEF mpt_status mpt_bias_add(void *x, mpt_format x_format, const void *bias, mpt_format bias_format,
                                size_t rows, size_t cols);
MPT_DEF mpt_status mpt_bias_grad(void *grad, mpt_format grad_format, const void *dy, mpt_format dy_format,
                                 size_t rows, size_t cols);

typedef MPTI_ENUM(mpt_activation) {
    MPT_ACT_RELU, MPT_ACT_GELU, MPT_ACT_TANH, MPT_ACT_SIGMOID, MPT_ACT_COUNT
} mpt_activation;

/* mpt_activate, mpt_activate_grad -- y = f(x);  dx = dy * f'(x), from the input x of the forward pass. y may
 * be x, and dx may be dy or x, if the formats are the same. NaN stays NaN. GELU is x * Phi(x), in double, as
 * its tail is a product of large and tiny. All activations and softmax are a reference: loops of yours that
 * compilers vectorize are many times as fast.  Errors: MPT_E_ARG also for an unknown f.
 * Exact: within a few units in the last place of FP32, as libm's tanhf and expf are; ReLU bit for bit; its
 * dx is 0 where x <= 0, even if dy is Inf or NaN there. */
MPT_DEF mpt_status mpt_activate(mpt_activation f, void *y, mpt_format y_format, const void *x,
                                mpt_format x_format, size_t n);
MPT_DEF mpt_status mpt_activate_grad(mpt_activation f, void *dx, mpt_format dx_format, const void *dy,
                                     mpt_format dy_format, const void *x, mpt_format x_format, size_t n);

/* mpt_softmax -- y[r] = softmax(x[r]), row by row, in FP32, sums in double. The largest element is subtracted
 * first: no overflow. -Inf gives 0; NaN, +Inf or only -Inf make a row NaN. y may be x, in the same format. */
MPT_DEF mpt_status mpt_softmax(void *y, mpt_format y_format, const void *x, mpt_format x_format, size_t rows,
                               size_t cols);

/* mpt_softmax_grad -- dx = y * (dy - sum(y * dy)) row by row, from the result y.  dx may be dy or y. */
MPT_DEF mpt_status mpt_softmax_grad(void *dx, mpt_format dx_format, const void *dy, mpt_format dy_format,
                                    const void *y, mpt_format y_format, size_t rows, size_t cols);

/* mpt_cross_entropy -- mean over the rows of -log softmax(logits[r])[label[r]], and its gradient.
 *   label    in   [rows] below cols, otherwise MPT_E_DATA
 *   loss     out  the mean, in FP32 from a sum in double; NULL: not wanted
 *   dlogits  out  [rows][cols] (softmax - one-hot) * seed / rows, where seed is the result of
 *                 mpt_scaler_scale(s, 1); NULL: not wanted; may be logits if the formats are the same */
MPT_DEF mpt_status mpt_cross_entropy(const void *logits, mpt_format logits_format, const uint32_t *label,
                                     size_t rows, size_t cols, float *loss, void *dlogits,
                                     mpt_format dlogits_format, float seed);
#endif /* MPT_NO_OPS */

// >>M13 precision policy --------------------------------------------------------------------------
#ifndef MPT_NO_GRAPH
/* How an op runs under a policy that mixes formats: enum, name, and the reason given. */
#define MPT_RULES(X)                                                                                   \
    X(MPT_RULE_LOW,     "low",          "it multiplies and adds: low inputs, FP32 sums")               \
    X(MPT_RULE_FP32,    "FP32",         "small errors or a small range would spoil its result")        \
    X(MPT_RULE_OUTPUT,  "FP32 output",  "it may read low inputs, but its result needs FP32")           \
    X(MPT_RULE_WIDEST,  "widest input", "its inputs must agree, so the widest one decides")            \
    X(MPT_RULE_AS_IS,   "as it comes",  "it runs as well in the format that its input has")            \
    X(MPT_RULE_REFUSED, "refused",      "its result or gradient leaves the range of a low format")

typedef MPTI_ENUM(mpt_rule) { MPT_RULES(MPTI_ID) MPT_RULE_COUNT } mpt_rule;

/* The op table, a row for ops that are treated alike: rule; rule under PyTorch's autocast for CPUs (see
 * MPT_POLICIES); list in a graph rewrite (>>M14: allow, infer, deny, clear, or none); source; names. Sources:
 * PT PyTorch 2.15's autocast lists (ATen/autocast_mode.h, and its CPU lists), TF TensorFlow's AMP lists
 * (grappler/optimizers/auto_mixed_precision_lists.h), MP Micikevicius et al. 2018, section 3.
 * "output" is the last layer whatever its kind, "loss" any loss without a row of its own. An op that the
 * graph makes low reads and writes low; norms, softmax and sums must compute in FP32 inside. */
#define MPT_OPS(X)                                                                                        \
    X(LOW, LOW, ALLOW, "PT TF", "matmul batch_matmul einsum conv2d conv3d")                               \
    X(LOW, LOW, ALLOW, "PT", "mm bmm addmm addbmm baddbmm linear chain_matmul linalg_multi_dot "          \
      "linalg_vecdot conv1d convolution conv_tbc conv_transpose conv_transpose1d conv_transpose2d "       \
      "conv_transpose3d attention scaled_dot_product_attention rnn_cell rnn_tanh_cell rnn_relu_cell")     \
    X(LOW, WIDEST, ALLOW, "PT", "gemv mv addmv addr")                                                     \
    X(LOW, AS_IS, ALLOW, "PT TF", "lstm_cell gru_cell")                                                   \
    X(LOW, LOW, ALLOW, "TF", "conv_grad_input conv_grad_filter")                                          \
    X(LOW, LOW, INFER, "PT", "prelu")                                                                     \
    X(FP32, AS_IS, DENY, "PT TF", "exp expm1 pow norm")                                                   \
    X(FP32, AS_IS, INFER, "PT TF", "log log1p reciprocal softplus")                                       \
    X(FP32, AS_IS, INFER, "MP TF", "batch_norm")                                                          \
    X(FP32, AS_IS, INFER, "PT", "log2 log10 rsqrt layer_norm native_layer_norm group_norm rms_norm "        \
      "interpolate upsample upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d "  \
      "upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d")                                      \
    X(FP32, AS_IS, DENY, "PT", "tan sinh cosh acos asin erfinv logsumexp pdist renorm frobenius_norm "    \
      "nuclear_norm")                                                                                     \
    X(FP32, WIDEST, DENY, "PT", "dist cosine_similarity")                                                 \
    X(FP32, FP32, DENY, "PT", "cdist kl_div l1_loss smooth_l1_loss mse_loss huber_loss nll_loss "         \
      "nll_loss2d poisson_nll_loss cosine_embedding_loss hinge_embedding_loss margin_ranking_loss "       \
      "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss bce_with_logits "    \
      "binary_cross_entropy_with_logits")                                                                 \
    X(FP32, FP32, DENY, "PT TF", "cross_entropy")                                                         \
    X(FP32, FP32, DENY, "MP PT", "loss ctc_loss")                                                         \
    X(FP32, AS_IS, DENY, "TF", "mean")                                                                    \
    X(OUTPUT, OUTPUT, NONE, "MP", "output")                                                               \
    X(OUTPUT, AS_IS, INFER, "PT TF MP", "softmax log_softmax")                                            \
    X(OUTPUT, AS_IS, DENY, "PT TF", "sum")                                                                \
    X(OUTPUT, FP32, INFER, "PT TF", "prod")                                                               \
    X(OUTPUT, AS_IS, DENY, "PT", "cumsum cumprod linalg_vector_norm linalg_matrix_norm")                  \
    X(WIDEST, WIDEST, INFER, "TF", "add sub mul div bias_add")                                            \
    X(WIDEST, WIDEST, INFER, "PT", "addcmul addcdiv atan2 bilinear cross dot vdot scatter_add")           \
    X(WIDEST, LOW, INFER, "PT", "tensordot")                                                              \
    X(WIDEST, FP32, INFER, "PT", "grid_sample grid_sampler")                                              \
    X(WIDEST, WIDEST, CLEAR, "PT", "index_put")                                                           \
    X(WIDEST, WIDEST, CLEAR, "PT TF", "concat cat stack")                                                 \
    X(WIDEST, WIDEST, CLEAR, "TF", "select where maximum minimum merge")                                  \
    X(AS_IS, AS_IS, INFER, "TF", "sqrt tanh sigmoid gelu elu leaky_relu avg_pool")                        \
    X(AS_IS, FP32, INFER, "TF", "avg_pool3d")                                                             \
    X(AS_IS, FP32, CLEAR, "TF", "max_pool3d")                                                             \
    X(AS_IS, AS_IS, CLEAR, "TF", "relu relu_grad max_pool neg abs clip clamp reshape view transpose "     \
      "permute flatten squeeze unsqueeze expand slice split chunk pad gather embedding dropout identity " \
      "enter exit switch next_iteration")                                                                 \
    X(REFUSED, FP32, DENY, "PT", "bce binary_cross_entropy")

/* A row of yours, laid over the table: a new op, or another rule for a known one. */
typedef struct mpt_policy_row {
    const char *op;
    mpt_rule    rule;
    const char *source;         /* where the rule is from; may be NULL */
} mpt_policy_row;

/* One row per policy: name, whether ops follow the rules for CPUs, compute, variable and output format. Where
 * all three are one, every op runs in that format (float16 and bfloat16 are for study: they lose updates).
 * cpu_bfloat16 is torch.autocast("cpu"): exp, softmax, sums and norms stay in BF16; losses, prod in FP32. */
#define MPT_POLICIES(X)                                             \
    X("float32",        0, MPT_F32,  MPT_F32,  MPT_F32)             \
    X("mixed_float16",  0, MPT_F16,  MPT_F32,  MPT_F32)             \
    X("mixed_bfloat16", 0, MPT_BF16, MPT_F32,  MPT_F32)             \
    X("cpu_bfloat16",   1, MPT_BF16, MPT_F32,  MPT_F32)             \
    X("tf32",           0, MPT_TF32, MPT_F32,  MPT_F32)             \
    X("float16",        0, MPT_F16,  MPT_F16,  MPT_F16)             \
    X("bfloat16",       0, MPT_BF16, MPT_BF16, MPT_BF16)            \
    X("float64",        0, MPT_F64,  MPT_F64,  MPT_F64)

/* Which formats a network computes in. Copy a policy and change it; rows are yours and must outlive it. */
typedef struct mpt_policy {
    const char *name;
    int         cpu;            /* nonzero: follow the rules for CPUs */
    mpt_format  compute;        /* what `low` means: MPT_F16, MPT_BF16, MPT_TF32 (inputs rounded), MPT_F32 */
    mpt_format  variable;       /* format of the weights that are kept, and what `FP32` means in the rules */
    mpt_format  output;         /* format of the last layer's result and of the loss */
    const mpt_policy_row *rows; /* [row_count] laid over MPT_OPS; of several for one op the last counts */
    size_t      row_count;
} mpt_policy;

/* What a policy says of one op. */
typedef struct mpt_policy_answer {
    mpt_rule    rule;
    mpt_format  input;          /* cast the inputs to this format */
    mpt_format  output;         /* the result has this format */
    const char *why;            /* an English sentence, a static string */
    const char *source;         /* of the row */
} mpt_policy_answer;

/* mpt_policy_find -- look up a preset by its name.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL; MPT_E_UNSUPPORTED for an unknown name (*p is kept).
 * Threads: any.  Source: Keras' dtype policies; PyTorch autocast. */
MPT_DEF mpt_status mpt_policy_find(const char *name, mpt_policy *p);

/* mpt_policy_name -- the name of preset i; NULL past the last. */
MPT_DEF const char *mpt_policy_name(size_t i);

/* mpt_policy_format -- say in which formats one op should run, and why.
 *   op      in   its kind: a name of your rows, of MPT_OPS, or of TensorFlow's lists ("MatMul"), where allow
 *                means low, deny FP32, and infer and clear the widest input
 *   inputs  in   [count] formats of its floating-point inputs: F64, F32, TF32, F16, BF16; count 0 allowed
 *   answer  out  for a refused op the formats are F32: convert, or use an op that is safe
 * An F64 input is left alone: the op runs as it comes. The last layer's result ("output") and the loss are in
 * p->output, FP32 in the mixed presets; a row of yours overrides even that.
 * Returns: MPT_OK, also when the rule is MPT_RULE_REFUSED.  Errors: MPT_E_ARG (NULL, a row without op or with
 * an unknown rule); MPT_E_UNSUPPORTED (a format; a name that is nowhere: if any format will do, add a row
 * with MPT_RULE_AS_IS); then *answer is kept.  Threads: any.
 * Source: PyTorch autocast's op classes; see MPT_OPS. */
MPT_DEF mpt_status mpt_policy_format(const mpt_policy *p, const char *op, const mpt_format *inputs,
                                     size_t count, mpt_policy_answer *answer);

// >>M14 graph rewrite -----------------------------------------------------------------------------
/* TensorFlow's "Automatic Mixed Precision" for a graph of your own: which ops run in F16 or BF16, and where
 * casts go. Build the graph (nodes, their types, ports, edges), rewrite it, read it back.
 *
 *     mpt_graph g;  mpt_graph_init(&g, memory, sizeof memory);
 *     mpt_graph_op(&g, "x", "placeholder", NULL, 0, 4096, &x);     // name, op, inputs, elements, its output
 *     mpt_graph_op(&g, "w", "variable", NULL, 0, 65536, &w);
 *     in[0] = x; in[1] = w;
 *     mpt_graph_op(&g, "h", "matmul", in, 2, 4096, &h);
 *     if (mpt_graph_rewrite(&g, NULL, &summary) != MPT_OK) puts(g.fault.why);
 *     mpt_graph_print(stdout, &g);                                 // "h (matmul): low, because ..." */

/* The lists of a graph rewrite. allow: fast and safe; infer: safe unless it carries a result of a deny op;
 * deny: unsafe; clear: neither gains nor harms; none: unknown, stays FP32 and passes nothing on. */
typedef MPTI_ENUM(mpt_list) {
    MPT_LIST_NONE, MPT_LIST_ALLOW, MPT_LIST_INFER, MPT_LIST_DENY, MPT_LIST_CLEAR, MPT_LIST_COUNT
} mpt_list;

/* Built-in lists: MPT_OPS (>>M13); TensorFlow's for CUDA 9.1, cuDNN 8 and later; its oneDNN BF16 pass's. */
typedef MPTI_ENUM(mpt_op_lists) {
    MPT_LISTS_COMPACT, MPT_LISTS_TF_CUDA, MPT_LISTS_TF_BF16, MPT_LISTS_COUNT
} mpt_op_lists;

/* tensorflow: the passes of TensorFlow 2.21, step for step; mpt_graph_rewrite says where it differs. They
 * take nodes in the order of their addition: add a node after its inputs. min_cut, in any order: the same
 * safety, but infer and clear ops become low or FP32 so that casts move the fewest bytes (a minimum cut).
 * tensorflow_2_19: the rule until then: infer ops right behind low ones became low only under BF16 lists. */
typedef MPTI_ENUM(mpt_graph_mode) {
    MPT_GRAPH_TENSORFLOW, MPT_GRAPH_MIN_CUT, MPT_GRAPH_TENSORFLOW_2_19, MPT_GRAPH_MODE_COUNT
} mpt_graph_mode;

/* A list row of yours, applied in order: add (fails if another list has the op), override (moves), remove. */
typedef MPTI_ENUM(mpt_list_edit) { MPT_LIST_ADD, MPT_LIST_OVERRIDE, MPT_LIST_REMOVE } mpt_list_edit;
typedef struct mpt_list_row {
    const char   *op;
    mpt_list      list;         /* unused for MPT_LIST_REMOVE */
    mpt_list_edit edit;
} mpt_list_row;

#define MPT_GRAPH_NONE 0xffffffffu      /* no such node, type or port */
#define MPT_TYPE_OTHER (-1)             /* a type that is no floating-point format: int, bool, string */
#define MPT_TYPE_HANDLE (-2)            /* a handle of a list of tensors */

#define MPT_NODE_FETCHED  1u    /* its results leave the graph, or it is fed: it is kept as it is */
#define MPT_NODE_STATEFUL 2u    /* keeps state in its own format: it is kept as it is */
#define MPT_NODE_VARIABLE 4u    /* as the ops Variable, VariableV2, variable: low_casts omits its casts */
#define MPT_NODE_CONST    8u    /* as the ops Const, const: likewise */
#define MPT_NODE_CAST    16u    /* added by a rewrite */
/* The op has no low-precision kernel for this type; but lists of tensors follow, as in TensorFlow. */
#define MPT_TYPE_FIXED    1u

/* A node. Its types, and their ports, are chains of indices. Read any field; before a rewrite you may set
 * `flags` and `device`, a type's `flags` and `format` and an output's `range`, but no other. */
typedef struct mpt_graph_node {
    const char *name, *op;
    const char *device;         /* NULL: any device */
    uint32_t    flags;          /* MPT_NODE_* */
    uint32_t    first_type, last_type;
    uint32_t    input_count, output_count;
} mpt_graph_node;

/* A type attribute: the ports of a node that have one format. The rewrite makes a type low or leaves it. */
typedef struct mpt_graph_type {
    const char *name;
    int32_t     format;         /* mpt_format or MPT_TYPE_*; a rewrite changes it */
    uint32_t    flags;          /* MPT_TYPE_FIXED */
    uint32_t    node, next;     /* its node; the node's next type */
    uint32_t    first_input, last_input, first_output, last_output;
    uint32_t    group;          /* union-find: types that must agree */
    uint32_t    why;            /* mpt_graph_why of the last rewrite; via, to: the types that it depends on */
    uint32_t    via, to;
    uint32_t    via_end, to_end;        /* where the paths along via and to end: the ops that decided */
} mpt_graph_type;

typedef struct mpt_graph_input {
    uint32_t type, index;       /* index: which input of the node */
    uint32_t source;            /* the output that it reads */
    uint32_t next, next_use;    /* next input of the type; next reader of the source */
} mpt_graph_input;

/* What a calibration run saw at an output. */
typedef struct mpt_port_range {
    double   flushed;           /* share of the nonzero values that become zero in the low format */
    uint32_t overflow;          /* nonzero: some overflow */
    uint32_t reserved;
} mpt_port_range;

typedef struct mpt_graph_output {
    uint64_t       elements;    /* 1 and more */
    uint32_t       type, index;
    uint32_t       next, first_use;
    mpt_port_range range;
} mpt_graph_output;

/* What is wrong, and with which node. */
typedef struct mpt_graph_fault {
    const char *node;           /* its name (or the op of a list row); NULL if it is about none */
    const char *why;            /* a static string; NULL when nothing is wrong */
} mpt_graph_fault;

typedef struct mpt_graph {
    mpt_graph_node   *nodes;
    mpt_graph_type   *types;
    mpt_graph_input  *inputs;
    mpt_graph_output *outputs;
    uint32_t          node_count, type_count, input_count, output_count;
    uint32_t          node_room, type_room, input_room, output_room;
    mpt_graph_fault   fault;    /* of the last call that failed */
    unsigned char    *arena;    /* NULL: MPT_MALLOC */
    size_t            low, high, bytes; /* the arena: kept data below low, scratch above high */
    void             *kept, *scratch;   /* blocks from MPT_MALLOC, chained */
} mpt_graph;

/* Why a type has its format: enum and words, low types first; via and to name the ops that decided. */
#define MPT_GRAPH_WHYS(X)                                                                          \
    X(MPT_WHY_NONE,       "no rewrite has run")                                                    \
    X(MPT_WHY_ALLOW,      "its op is on the allow list")                                           \
    X(MPT_WHY_BETWEEN,    "it lies between allow ops")                                             \
    X(MPT_WHY_FOLLOWS,    "it follows a low op, and no deny op feeds it")                          \
    X(MPT_WHY_CLEAR,      "clear ops join it to a low op")                                         \
    X(MPT_WHY_GROUP_LOW,  "a type that it must match is low")                                      \
    X(MPT_WHY_CAST_LOW,   "it is a cast that only low ops read")                                   \
    X(MPT_WHY_CUT_LOW,    "low moves the fewest bytes through casts")                              \
    X(MPT_WHY_ADDED,      "the rewrite added it")                                                  \
    X(MPT_WHY_ALREADY,    "it is not FP32 to begin with")                                          \
    X(MPT_WHY_KEPT,       "it is fetched, fed or stateful")                                        \
    X(MPT_WHY_DEVICE,     "it is on another device")                                               \
    X(MPT_WHY_OVERFLOW,   "values that it reads or makes overflow in the low format")              \
    X(MPT_WHY_FLUSHED,    "too many of its values would be flushed to zero, even as scaled")       \
    X(MPT_WHY_DENY,       "its op is on the deny list")                                            \
    X(MPT_WHY_AFTER_DENY, "it carries what a deny op made")                                        \
    X(MPT_WHY_NO_KERNEL,  "its op has no low-precision kernel for this type")                      \
    X(MPT_WHY_GROUP_FP32, "a type that it must match stays FP32")                                  \
    X(MPT_WHY_VARIABLE,   "it reads a variable")                                                   \
    X(MPT_WHY_UNLISTED,   "no list names its op")                                                  \
    X(MPT_WHY_INFER,      "it is on the infer list, not between allow ops, nor after low ones")    \
    X(MPT_WHY_APART,      "it is on the clear list and no clear ops join it to a low op")          \
    X(MPT_WHY_CUT_FP32,   "FP32 moves no more bytes through casts")                                \
    X(MPT_WHY_NOTHING,    "the graph has no allow op")

typedef MPTI_ENUM(mpt_graph_why) { MPT_GRAPH_WHYS(MPTI_ID) MPT_WHY_COUNT } mpt_graph_why;

/* How to rewrite; mpt_graph_defaults gives {tensorflow, compact lists, F16, any device, no rows, 0.01}. */
typedef struct mpt_graph_options {
    mpt_graph_mode      mode;
    mpt_op_lists        lists;
    mpt_format          low;            /* MPT_F16 or MPT_BF16 */
    const char         *device;         /* only nodes whose device contains it, such as "gpu"; NULL: all */
    const mpt_list_row *rows;           /* [row_count] */
    size_t              row_count;
    double              most_flushed;   /* tolerated share of flushed values */
} mpt_graph_options;

/* TensorFlow's counters, and the cost of casts. As there, the first six count types, even two of a node. */
typedef struct mpt_graph_summary {
    uint64_t processable, recognized, converted, allow_converted, deny_blocking, blocked_by_deny;
    uint64_t nodes;                     /* of the graph before the rewrite */
    uint64_t low_casts;                 /* casts to the low format, except of constants and variables */
    uint64_t casts, cast_bytes;         /* all casts added; the bytes they read and write */
    mpt_format low;
} mpt_graph_summary;

/* mpt_graph_init -- start an empty graph in memory of yours.
 *   arena, bytes  in  it holds everything, and the scratch data of a rewrite (mpt_graph_bytes says how much
 *                     is enough); NULL, 0: memory comes from MPT_MALLOC(bytes), if it and MPT_FREE(p) are
 *                     defined where MPT_IMPLEMENTATION is, and mpt_graph_free returns it
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_UNSUPPORTED for NULL without MPT_MALLOC. */
MPT_DEF mpt_status mpt_graph_init(mpt_graph *g, void *arena, size_t bytes);
MPT_DEF void mpt_graph_free(mpt_graph *g);

/* mpt_graph_bytes -- size of an arena to build and rewrite a graph, with names of up to 95 letters, after
 * mpt_graph_reserve of as much; without it three times as much.  Returns: bytes; 0 if they fit no size_t. */
MPT_DEF size_t mpt_graph_bytes(size_t nodes, size_t inputs);

/* mpt_graph_reserve -- make room for so many nodes and inputs, with one type and output per node.
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_MEMORY. */
MPT_DEF mpt_status mpt_graph_reserve(mpt_graph *g, size_t nodes, size_t inputs);

/* mpt_graph_node_add, _type_add, _output_add, _input_add -- build a graph. Strings are kept by pointer and
 * must outlive it. An input may be added with source MPT_GRAPH_NONE and connected later, as the back edge of
 * a loop must be. A loop runs through NextIteration (next_iteration) into Merge (merge).
 *   elements  in   size of the tensor; 0 counts as 1
 *   id        out  the index in g->nodes, types, outputs, inputs; may be NULL
 * Returns: MPT_OK.  Errors: MPT_E_ARG (NULL, an index out of range, elements above 2^40), MPT_E_MEMORY; then
 * the graph is as before.  Threads: one caller per graph. */
MPT_DEF mpt_status mpt_graph_node_add(mpt_graph *g, const char *name, const char *op, const char *device,
                                      uint32_t flags, uint32_t *id);
MPT_DEF mpt_status mpt_graph_type_add(mpt_graph *g, uint32_t node, const char *name, int32_t format,
                                      uint32_t flags, uint32_t *id);
MPT_DEF mpt_status mpt_graph_output_add(mpt_graph *g, uint32_t type, uint64_t elements, uint32_t *id);
MPT_DEF mpt_status mpt_graph_input_add(mpt_graph *g, uint32_t type, uint32_t source, uint32_t *id);
MPT_DEF mpt_status mpt_graph_connect(mpt_graph *g, uint32_t input, uint32_t source);

/* mpt_graph_op -- the common case in one call: a node with one FP32 type, inputs and one output. */
MPT_DEF mpt_status mpt_graph_op(mpt_graph *g, const char *name, const char *op, const uint32_t *sources,
                                size_t count, uint64_t elements, uint32_t *output);

/* mpt_graph_group -- make two types have one format, such as the ends of a queue: FP32 if one of them must
 * be, else low if one of them is, whatever list the other is on. (The rewrite finds what belongs to a list of
 * tensors by its handles, and loops by their merges.) */
MPT_DEF mpt_status mpt_graph_group(mpt_graph *g, uint32_t type, uint32_t other);

#ifndef MPT_NO_REPORTS
/* mpt_graph_range -- record what a calibration run saw at an output, to be multiplied by 2^log2_scale (0: no
 * scale), in a report against the low format that the rewrite will use; a second call replaces the first. An
 * op that reads or makes values that overflow, or of which more than most_flushed are flushed, stays FP32. */
MPT_DEF mpt_status mpt_graph_range(mpt_graph *g, uint32_t output, const mpt_range *seen, mpt_format low,
                                   int log2_scale);
#endif

/* mpt_graph_defaults -- options to change and pass on. */
MPT_DEF mpt_graph_options mpt_graph_defaults(void);

/* mpt_graph_check -- refuse a malformed graph: an input that reads nothing, an index or format out of range,
 * an edge between different formats, a node that feeds itself, a cycle without a merge, a NextIteration that
 * feeds anything but merges.
 * Returns: MPT_OK.  Errors: MPT_E_DATA with g->fault; MPT_E_ARG, MPT_E_MEMORY. */
MPT_DEF mpt_status mpt_graph_check(mpt_graph *g);

/* mpt_graph_rewrite -- choose the formats, change the types and insert the casts: one per output at each
 * change of format, shared by all its readers, named NODE-PORT-CastToFp16-AutoMixedPrecision.
 *   o        in   NULL for mpt_graph_defaults()
 *   summary  out  may be NULL
 * A second rewrite with the same options changes nothing. For other options or nodes build the graph anew.
 * Differences from TensorFlow's pass: (1) loops are repaired until nothing changes; TensorFlow does one
 * round, which may leave an edge with two formats if loops feed each other; (2) MPT_TYPE_FIXED says whether
 * an op has a kernel; TensorFlow asks its registry; (3) FusedBatchNorm and its gradient become V2 by their
 * name alone. V2 keeps its statistics in FP32: give those ports a type of their own; (4) a Cast and a
 * NextIteration that are fetched, stateful, fixed or on another device stay FP32, as all other ops do.
 * Returns: MPT_OK, also if there is nothing to do.  Errors: MPT_E_DATA (mpt_graph_check; an op in two lists)
 * with g->fault; MPT_E_ARG; MPT_E_UNSUPPORTED (low); MPT_E_MEMORY. On an error the graph is as before.
 * Cost: tensorflow is linear in nodes and edges; min_cut adds a maximum flow (Dinic), near linear on the
 * graphs of networks, far slower on grids of elementwise ops.  No recursion.
 * Threads: one caller per graph.
 * Source: tensorflow/core/grappler/optimizers/auto_mixed_precision.cc; Dinic 1970; Lawler 1973 for the
 * cast that several ops share (one price for a set of ends). */
MPT_DEF mpt_status mpt_graph_rewrite(mpt_graph *g, const mpt_graph_options *o, mpt_graph_summary *summary);

/* mpt_graph_is_low -- whether a rewrite made this type low. */
MPT_DEF int mpt_graph_is_low(const mpt_graph *g, uint32_t type);

/* mpt_graph_explain -- write "NAME (OP): low, because ..." (NAME/TYPE if the node has several types), with
 * the path to the op that decided, cut to fit. Of a long path it names the six nodes nearest to this one and
 * the deciding op, with "..." between them, so that the cost does not grow with the path.
 * Returns: the length of the whole text without the final 0; 0 for NULL or an unknown type. */
MPT_DEF size_t mpt_graph_explain(const mpt_graph *g, uint32_t type, char *buf, size_t cap);

#ifndef MPT_NO_STDIO
/* mpt_graph_print -- explain every FP32 and low type, except those of casts, a line each; in linear time.
 * mpt_graph_dot -- the graph for Graphviz: low green, FP32 blue, casts orange, other types white.
 * mpt_graph_summary_print -- TensorFlow's summary: its one line of today, its seven lines of earlier
 * versions, and the bytes of the casts.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_DATA if the stream failed. */
MPT_DEF mpt_status mpt_graph_print(FILE *out, const mpt_graph *g);
MPT_DEF mpt_status mpt_graph_dot(FILE *out, const mpt_graph *g);
MPT_DEF mpt_status mpt_graph_summary_print(FILE *out, const mpt_graph_summary *s);
#endif
#endif /* MPT_NO_GRAPH */

// >>M15 core: the formulas, one element each, shared with the GPU ---------------------------------
/* Arithmetic that no compiler contracts to an fma. On the GPU it is PTX, or works on bits: --use_fast_math
 * flushes subnormals in operators and intrinsics, even in a negation, a comparison or a conversion. */
#ifdef __CUDA_ARCH__
#define MPTI_PTX(type, name, parameters, text, out, ...) \
    MPT_HD type name parameters                          \
    {                                                    \
        type d;                                          \
        asm(text ";" : out(d) : __VA_ARGS__);            \
        return d;                                        \
    }
MPTI_PTX(float, mpti_fma, (float a, float b, float c), "fma.rn.f32 %0, %1, %2, %3", "=f", "f"(a), "f"(b),
         "f"(c))
MPTI_PTX(float, mpti_mul, (float a, float b), "mul.rn.f32 %0, %1, %2", "=f", "f"(a), "f"(b))
MPT_HD float mpti_add(float a, float b) { return mpti_fma(a, 1.0f, b); }
MPTI_PTX(float, mpti_div, (float a, float b), "div.rn.f32 %0, %1, %2", "=f", "f"(a), "f"(b))
MPTI_PTX(float, mpti_sqrt, (float a), "sqrt.rn.f32 %0, %1", "=f", "f"(a))
MPTI_PTX(double, mpti_mul64, (double a, double b), "mul.rn.f64 %0, %1, %2", "=d", "d"(a), "d"(b))
MPTI_PTX(double, mpti_div64, (double a, double b), "div.rn.f64 %0, %1, %2", "=d", "d"(a), "d"(b))
MPTI_PTX(float, mpti_neg, (float a), "neg.f32 %0, %1", "=f", "f"(a))
MPTI_PTX(double, mpti_to_f64, (float a), "cvt.f64.f32 %0, %1", "=d", "f"(a))
MPTI_PTX(float, mpti_to_f32, (double a), "cvt.rn.f32.f64 %0, %1", "=f", "d"(a))
#else
#if !defined(__FP_FAST_FMAF) && (defined(__NEWLIB__) || (defined(__MINGW32__) && !defined(__clang__)))
/* These libraries' fmaf rounds twice. This product is exact; the sum is rounded to odd, then to float. */
MPT_HD float mpti_fma(float a, float b, float c)
{
    const double p = (double)a * (double)b, s = p + (double)c, t = s - p;
    const double rest = (p - (s - t)) + ((double)c - t);
    uint64_t     u = mpti_f64_bits(s);
    if (!(u & 1u) && (rest > 0.0 || rest < 0.0))
        u += (rest > 0.0) == (s > 0.0) ? 1u : ~(uint64_t)0;
    return (float)mpti_f64_make(u);
}
#else
MPT_HD float mpti_fma(float a, float b, float c) { return fmaf(a, b, c); }
#endif
MPT_HD float mpti_mul(float a, float b) { return a * b; }   /* no caller uses + or - on a product */
MPT_HD float mpti_add(float a, float b) { return mpti_f32_make(mpti_f32_bits(a + b)); } /* x87 rounds, too */
MPT_HD float mpti_div(float a, float b) { return a / b; }
MPT_HD float mpti_sqrt(float a) { return sqrtf(a); }
/* Unlike mpti_mul's, these results feed additions: volatile prevents contraction. A few calls per step. */
MPT_HD double mpti_mul64(double a, double b)
{
    const volatile double d = a * b;
    return d;
}
MPT_HD double mpti_div64(double a, double b)
{
    const volatile double d = a / b;
    return d;
}
MPT_HD double mpti_to_f64(float a) { return (double)a; }
MPT_HD float mpti_to_f32(double a) { return (float)a; }
MPT_HD float mpti_neg(float a) { return -a; }
#endif
MPT_HD int mpti_f64_is_zero(double a) { return !(mpti_f64_bits(a) << 1); }
MPT_HD int mpti_is_nonzero(float a) { return (mpti_f32_bits(a) & 0x7fffffffu) != 0u; }

/* The tree of every sum of squares, which threads, vector width and grid size cannot change. Element i of a
 * chunk adds to lane i mod MPTI_LANES, in order of i; then lanes are added in adjacent pairs. Chunk c of a
 * list adds to slot c mod MPTI_SLOTS, in order of c; then slots, likewise. On the GPU a block is 256 threads
 * of 8 lanes. All is double, but a check's lanes and sums of 8 lanes: most GPUs have few double units. */
#define MPTI_LANES 2048
#define MPTI_CHUNK 16384
#define MPTI_SLOTS 256

MPT_HD size_t mpti_chunks(size_t n) { return n / MPTI_CHUNK + (n % MPTI_CHUNK != 0u); }

/* The formats of weights, gradients and activations, and the two of FP8 tensors. */
MPT_HD int mpti_is_train_format(mpt_format f)
{
    return (unsigned)f < 8u && (1u << MPT_F32 | 1u << MPT_F16 | 1u << MPT_BF16) >> (unsigned)f & 1u;
}
MPT_HD int mpti_is_fp8(mpt_format f) { return f == MPT_E4M3 || f == MPT_E5M2; }
MPT_HD size_t mpti_format_bytes(mpt_format f) { return f == MPT_F32 ? sizeof(float) : sizeof(uint16_t); }

/* Unscale one gradient. *bad becomes nonzero if the gradient or the result is Inf or NaN. */
MPT_HD float mpti_unscale_1(float g, float factor, unsigned *bad)
{
    const float u = mpti_mul(g, factor);
    *bad |= (unsigned)!mpti_f32_is_finite(g) | (unsigned)!mpti_f32_is_finite(u);
    return u;
}

/* The cause (MPT_CAUSE_*) of a bad gradient g whose unscaled, stored value is u; 0 if both are finite. */
MPT_HD unsigned mpti_cause_1(float g, float u)
{
    const uint32_t a = mpti_f32_bits(g) & 0x7fffffffu;
    if (a >= 0x7f800000u)
        return a > 0x7f800000u ? MPT_CAUSE_NAN : MPT_CAUSE_INF;
    return mpti_f32_is_finite(u) ? 0u : MPT_CAUSE_RANGE;
}

/* Add the square of x to a sum. That square is exact in double, so a contraction to an fma would not matter.
 * Inf and NaN count as 0, since the bits of a NaN in the sum would differ between machines. */
MPT_HD double mpti_sumsq_1(double sum, float x)
{
    /* a mask instead of a branch, so that compilers vectorize loops over this function */
    const float finite = mpti_f32_make(mpti_f32_bits(x) & (0u - (uint32_t)mpti_f32_is_finite(x)));
    return sum + mpti_to_f64(finite) * mpti_to_f64(finite);
}

/* The mask changes no square, but keeps the compiler from making product and sum an fma, which is slow on
 * processors without that instruction. Only a finite x adds to a lane. mpti_lanes_sum_8 adds 8 lanes. */
MPT_HD float mpti_square_1(float x) { return mpti_f32_make(mpti_f32_bits(mpti_mul(x, x)) & 0x7fffffffu); }
MPT_HD float mpti_lane_add_1(float lane, float x)
{
    return mpti_f32_is_finite(x) ? mpti_add(lane, mpti_square_1(x)) : lane;
}
MPT_HD double mpti_lanes_sum_8(const float *x)
{
    const float low = mpti_add(mpti_add(x[0], x[1]), mpti_add(x[2], x[3]));
    return mpti_to_f64(mpti_add(low, mpti_add(mpti_add(x[4], x[5]), mpti_add(x[6], x[7]))));
}

/* In float, squares under 2^-149 become 0, over 2^128 Inf (FLT_MAX in other rounding modes). So a chunk's sum
 * below 2^-96 or from 2^127 on is made again, from x times 2^100 or 2^-100. Others lose at most 2^-39. */
MPT_HD int mpti_sum_is_sound(double sum)
{
    return mpti_f64_bits(sum) - ((uint64_t)(1023 - 96) << 52) < (uint64_t)(127 + 96) << 52;
}
MPT_HD float mpti_shift_for(double sum)
{
    return mpti_f32_make((mpti_f64_bits(sum) >> 62 ? 127u - 100u : 127u + 100u) << 23);
}
MPT_HD double mpti_unshift(double sum, float shift)
{
    const double back = 1.0 / mpti_to_f64(shift);
    return sum * back * back;
}

/* FP32(1 / FP64(scale)), as PyTorch computes it. */
MPT_HD float mpti_inverse_scale(float scale) { return mpti_to_f32(1.0 / mpti_to_f64(scale)); }

MPT_HD double mpti_norm_from_sumsq(double sumsq, unsigned found_inf)
{
    return found_inf ? mpti_f64_make((uint64_t)0x7ff << 52) : sqrt(sumsq);
}

/* ---- the loss scale ---- */

MPT_HD uint32_t mpti_scaler_rule(int32_t dialect)
{
    switch (dialect) {
#define MPTI_RULE(id, name, init, growth, backoff, interval, hysteresis, floor, cap, flags, rule, stuck) \
    case id: return rule;
    MPT_SCALER_DIALECTS(MPTI_RULE)
    default: return 0u;
    }
}

/* scale * factor, or scale / factor with `divide`, in the arithmetic of the rule (the bits of a dialect, see
 * >>M3). Where the rule keeps its scale in FP32, the result is exactly a float. */
MPT_HD double mpti_scaler_times(const mpt_scaler *s, uint32_t rule, double factor, int divide)
{
    const float x = s->scale, f = mpti_to_f32(factor);
    if (rule & MPTI_F64)
        return divide ? mpti_div64(s->wide, factor) : mpti_mul64(s->wide, factor);
    if (rule & MPTI_F32_FACTOR)
        return mpti_to_f64(divide ? mpti_div(x, f) : mpti_mul(x, f));
    return mpti_to_f64(mpti_to_f32(mpti_mul64(mpti_to_f64(x), factor)));
}

MPT_HD void mpti_scaler_set(mpt_scaler *s, double scale)
{
    s->wide = scale;
    s->scale = mpti_to_f32(scale);
}

/* Move the scale up or down by one factor, within its limit. An FP32 rule rounds its limit to FP32 too. */
MPT_HD void mpti_scaler_move(mpt_scaler *s, uint32_t rule, int up)
{
    const int    divide = !up && (rule & MPTI_DIVIDE);
    const double moved =
        mpti_scaler_times(s, rule, up || divide ? s->config.growth : s->config.backoff, divide);
    double       limit = up ? s->config.max_scale
        : rule & MPTI_RATE ? s->config.threshold : s->config.min_scale;
    if (!(rule & MPTI_F64))
        limit = mpti_to_f64(mpti_to_f32(limit));
    if (!up && (rule & MPTI_PAST_FLOOR))
        limit = s->wide > limit ? 0.0 : s->wide;
    if (up) {
        s->good_steps = 0;
        if (!(rule & MPTI_REARM_GOOD))
            s->hysteresis_left = s->config.hysteresis;
    }
    if (up ? !mpti_f64_is_zero(limit) && !(moved < limit) : moved < limit)
        mpti_scaler_set(s, limit);
    else if (!up || !(rule & MPTI_KEEP_FINITE) || mpti_f64_is_finite(moved))
        mpti_scaler_set(s, moved);
}

/* Count a bad step; nonzero if it moves the scale, by the hysteresis of the rule. fairseq compares with its
 * tolerance: bad steps since the last back-off / steps since the last move, of which 0 count as 1000. */
MPT_HD int mpti_scaler_is_due(mpt_scaler *s, uint32_t rule)
{
    if (rule & MPTI_RATE) {     /* fairseq */
        const int64_t since = s->iteration - s->last_moved;
        s->bad_steps++;
        return (double)s->bad_steps / (double)(since ? since : 1000) >= s->config.tolerance;
    }
    if (rule & MPTI_BAD_COUNT) {
        if (++s->bad_steps < s->config.hysteresis)
            return 0;
        s->bad_steps = 0;
        return 1;
    }
    if (rule & MPTI_PATIENT) {
        const int32_t left = s->hysteresis_left;
        s->hysteresis_left -= left > (rule & MPTI_STAYS_AT_ONE ? 1 : -0x7fffffff);
        return left <= 1;
    }
    return 1;
}

MPT_HD mpt_status mpti_scaler_bad(mpt_scaler *s, uint32_t rule)
{
    const double before = s->wide;
    s->good_steps = 0;
    if (mpti_scaler_is_due(s, rule)) {
        if ((rule & MPTI_MAY_RAISE) && (s->config.flags & MPT_SCALER_RAISE) &&
            !(s->wide < s->config.min_scale) && !(s->wide > s->config.min_scale))
            return MPT_E_SCALE;
        mpti_scaler_move(s, rule, 0);
        if (rule & MPTI_RATE) {
            s->last_moved = s->iteration;
            s->bad_steps = 0;
        }
    }
    s->last_bad = s->iteration;
    if ((rule & MPTI_RATE) && s->wide <= s->config.min_scale) {     /* fairseq raises, and undoes the move */
        mpti_scaler_set(s, before);
        return MPT_E_SCALE;
    }
    s->iteration++;
    return MPT_OK;
}

MPT_HD void mpti_scaler_good(mpt_scaler *s, uint32_t rule)
{
    const int32_t now = s->good_steps + (rule & MPTI_COUNT_FIRST ? 0 : 1), interval = s->config.interval;
    const int64_t late = rule & MPTI_ONE_LATER ? 1 : 0, stable = s->iteration - s->last_bad - late;
    if ((rule & MPTI_REARM_GOOD) || (s->config.flags & MPT_SCALER_CONSECUTIVE))
        s->hysteresis_left = s->config.hysteresis;
    if (rule & MPTI_BAD_IN_ROW)
        s->bad_steps = 0;
    if (rule & MPTI_BY_ITERATION ? stable >= late && stable % interval == 0
        : now == interval || ((rule & MPTI_AT_LEAST) && now > interval)) {
        mpti_scaler_move(s, rule, 1);
        if (rule & MPTI_BY_ITERATION)
            s->last_moved = s->iteration;
        if (rule & MPTI_BAD_COUNT)
            s->bad_steps = 0;
    } else {
        s->good_steps += s->good_steps < 0x7ffffffe;    /* more only in a state that was made up */
    }
    s->iteration += (rule & MPTI_BY_ITERATION) != 0u;
}

/* ---- the default dialect: see >>M3 ---- */
#define MPTI_UNIT    0x1000000u /* 1.0 in `base`, and one bad step in `excess` */
#define MPTI_SURE    20         /* -log2 of the probability at which bad steps in a row are an alarm ... */
#define MPTI_LONGER  6          /* ... and how many more for each by which runs are longer than 1 */
#define MPTI_RUN     16         /* 1 in the mean length of runs, and the longest length that is told apart */
#define MPTI_LEVELS  4          /* runs in each half of a search; the steps of its halves are compared */
#define MPTI_IN_ROW  12         /* bad steps in a row before the verdict, in addition to `patience` */
#define MPTI_FORGET  4096       /* the base rate is forgotten after so many bad steps, ... */
#define MPTI_LAPSE   64         /* ... or after so many in a row */
#define MPTI_SEARCH  256        /* least number of steps in each half of a search but the first */
#define MPTI_CLIMBED  1u        /* the last move was up */
#define MPTI_ON_TRIAL 2u        /* no climb back to `home` has confirmed the base rate yet */

MPT_HD int32_t mpti_count_up(int32_t x) { return x < 0x7fffffff ? x + 1 : x; }
MPT_HD int32_t mpti_most(int32_t a, int32_t b) { return a > b ? a : b; }
MPT_HD int32_t mpti_least(int32_t a, int32_t b) { return a < b ? a : b; }

/* a < b for numbers >= 0, by their bits: under --use_fast_math a comparison flushes subnormals. */
MPT_HD int mpti_below(float a, float b) { return mpti_f32_bits(a) < mpti_f32_bits(b); }

/* Set the scale, within its limits. No product rounds: all scales, factors and limits are powers of two. */
MPTI_HD_CALL void mpti_ours_set(mpt_scaler *s, float scale)
{
    const float least = mpti_to_f32(s->config.min_scale), most = mpti_to_f32(s->config.max_scale);
    mpti_scaler_set(s, mpti_to_f64(mpti_below(scale, least)  ? least
                                   : mpti_below(most, scale) ? most : scale));
    s->good_steps = 0;
    s->climb &= ~MPTI_CLIMBED;
}

/* This scale is the lowest of a good step in this search: only a run that begins here counts. */
MPT_HD void mpti_ours_lowest(mpt_scaler *s) { s->last_moved = (int64_t)mpti_f32_bits(s->scale); }

/* How far bad steps may exceed a rate: the tolerance of >>M3, with another least value. */
MPT_HD uint32_t mpti_ours_room(uint32_t rate, uint32_t least)
{
    const uint32_t most = rate / 4u > MPTI_UNIT / 32u ? rate / 4u : MPTI_UNIT / 32u;
    const uint32_t room = rate < least ? least : rate > most ? most : rate, half = (MPTI_UNIT - rate) / 2u;
    return room < half ? room : half;
}

/* The search's rate of bad steps becomes the base rate. The climb back is slow, to show a scale at fault. */
MPT_HD void mpti_ours_learn(mpt_scaler *s)
{
    const uint32_t steps = (uint32_t)mpti_most(s->search_steps, 1), bad = (uint32_t)s->search_bad;
    const uint32_t rate = bad < steps ? (uint32_t)((uint64_t)bad * MPTI_UNIT / steps) : MPTI_UNIT - 1u;
    s->base = rate > s->base ? rate : s->base;
    s->base_most = s->base + mpti_ours_room(s->base / 2u, 0u);
    s->base_most = s->base_most < MPTI_UNIT ? s->base_most : MPTI_UNIT - 1u;
    s->wait = s->base ? (int32_t)(MPTI_UNIT / s->base / 8u) : s->config.interval;
    s->wait = mpti_least(s->config.interval, mpti_most(8, mpti_least(s->config.interval / 8, s->wait)));
    s->climb = mpti_below(s->scale, s->home) ? MPTI_ON_TRIAL : 0u;
    s->iteration = 0;
    s->depth = s->at_floor = s->good_steps = 0;
}

/* An alarm: more bad steps than the base rate explains; the `levels`th since the last good step. */
MPT_HD void mpti_ours_alarm(mpt_scaler *s, int32_t levels)
{
    const int32_t interval = s->config.interval;
    const int     failed = (s->climb & MPTI_CLIMBED) && s->wait < interval;
    const int     nan = (s->cause & (MPT_CAUSE_NAN | MPT_CAUSE_INF)) == MPT_CAUSE_NAN;
    const float   floor = mpti_to_f32(s->config.min_scale);
    const int     trial = s->climb == (MPTI_ON_TRIAL | MPTI_CLIMBED), lowest = !mpti_below(floor, s->scale);
    const int     in_row = s->bad_steps - MPTI_IN_ROW >= s->config.patience;
    float         lower = s->scale;
    int32_t       down = 1;
    int           learn = 0;
    s->excess = 0u;
    if (trial) {                /* the rate does depend on the scale, or `home` is too high for long runs */
        s->climb = 0u;
        s->base = s->last_bad > MPTI_RUN / 2 ? s->base : 0u;
        s->depth = 0;
        s->wait = interval;
    } else if (lowest) {
        s->good_steps = 0;
        s->at_floor = mpti_count_up(s->at_floor);
        if (s->at_floor < s->config.patience || (s->bad_steps >= s->config.patience && !in_row))
            return;
        learn = 1;
    } else {
        if (!s->depth) {
            s->search_steps = s->search_bad = 0;
            s->home = s->wait < interval ? s->home : s->scale;
            mpti_ours_lowest(s);
        }
        if (levels > 1 && !failed)
            s->wait = mpti_least(s->wait, mpti_most(8, interval / (levels * levels)));
        if ((int64_t)mpti_f32_bits(s->scale) == s->last_moved &&       /* once in a run of bad steps */
            (++s->depth == MPTI_LEVELS ||
             (s->depth >= 2 * MPTI_LEVELS && s->search_steps >= MPTI_SEARCH))) {
            learn = s->depth > MPTI_LEVELS && s->search_steps / 4 <= s->before_steps;
            if (!learn) {
                s->before_steps = s->search_steps;
                s->search_steps = s->search_bad = 0;
                s->depth = MPTI_LEVELS;
            }
        }
        if (failed && !learn)
            s->wait = s->wait > interval / 4 ? interval : s->wait * 4;
        down <<= mpti_least(mpti_most(mpti_most(levels, s->depth) - 2 * MPTI_LEVELS, 0), 5);
    }
    if (learn) {
        mpti_ours_learn(s);
        if (lowest && in_row) {
            s->verdict = (uint32_t)(nan ? MPT_VERDICT_NAN : MPT_VERDICT_OVERFLOW);
            s->climb = 0u;
            s->wait = mpti_below(s->last_good, s->home) ? s->wait : interval;
            mpti_ours_set(s, s->last_good);
        }
        return;
    }
    for (; down > 0 && mpti_below(floor, lower); down--)
        lower = mpti_mul(lower, mpti_to_f32(s->config.backoff));
    mpti_ours_set(s, lower);
    if (trial)
        s->home = s->scale;
    else if (!mpti_below(floor, s->scale))
        s->search_steps = s->search_bad = s->at_floor = 0;
}

MPT_HD void mpti_ours_climb(mpt_scaler *s)
{
    const float grown = mpti_mul(s->scale, mpti_to_f32(s->config.growth));
    mpti_ours_set(s, mpti_below(s->scale, s->home) && mpti_below(s->home, grown) ? s->home : grown);
    s->climb |= MPTI_CLIMBED;
    s->excess = 0u;
    s->at_floor = 0;
    if (s->wait >= s->config.interval) {        /* a climb back after a run proves less */
        s->depth -= s->depth > 0;
        mpti_ours_lowest(s);
    }
    if (!mpti_below(s->scale, s->home)) {
        s->depth = 0;
        s->home = s->scale;
        s->wait = s->config.interval;
        s->climb = MPTI_CLIMBED;
    }
}

/* The base rate follows the steps, as a moving average over about sixteen bad ones, up to base_most. While it
 * falls, the scale does not grow above `home`. */
MPT_HD void mpti_ours_follow(mpt_scaler *s, int bad)
{
    const uint64_t gain = s->base / 8u > MPTI_UNIT >> 13 ? s->base / 8u : MPTI_UNIT >> 13;
    if (!bad)
        s->base -= (uint32_t)((uint64_t)s->base * gain / MPTI_UNIT);
    else if (++s->iteration >= MPTI_FORGET || s->bad_steps % MPTI_LAPSE == MPTI_LAPSE - 1)
        s->base = s->climb = 0u;
    else
        s->base += (uint32_t)((uint64_t)(MPTI_UNIT - s->base) * gain / MPTI_UNIT);
    s->base = s->base > s->base_most ? s->base_most : s->base < MPTI_UNIT >> 11 ? 0u : s->base;
    if (s->base_most > 2u * s->base) {
        s->base_most = 2u * s->base;
        if (s->wait >= s->config.interval || !mpti_below(s->scale, s->home))
            s->good_steps = 0;
    }
}

MPT_HD void mpti_ours_step(mpt_scaler *s, int bad)
{
    const int32_t wait = mpti_below(s->scale, s->home) ? s->wait : s->config.interval, run = s->bad_steps;
    const int     lower = mpti_below(s->scale, s->last_good);
    uint32_t      expected = 0u;
    int32_t       needed = 0, row = 1;          /* 12 - needed is about -log2(base) */
    const int32_t more = s->last_bad > 0 ? (int32_t)s->last_bad : 0;
    if (!bad && lower && run >= MPTI_IN_ROW && s->at_floor) {
        mpti_ours_set(s, s->last_good);         /* it was bad down to min_scale: not the scale's fault */
        s->at_floor = 0;
    }
    if (!bad && (int64_t)mpti_f32_bits(s->scale) < s->last_moved)
        mpti_ours_lowest(s);
    s->bad_steps = bad ? mpti_count_up(run) : 0;
    s->last_good = bad ? s->last_good : s->scale;
    s->good_steps = mpti_count_up(s->good_steps);
    s->search_steps = mpti_count_up(s->search_steps);
    s->search_bad = bad ? mpti_count_up(s->search_bad) : s->search_bad;
    if (s->base) {
        mpti_ours_follow(s, bad);
        expected = s->base + mpti_ours_room(s->base, MPTI_UNIT / 64u);
        while (s->base >> 13 >> needed)
            needed++;
    }
    s->excess += bad ? MPTI_UNIT : 0u;
    s->excess -= s->excess < expected ? s->excess : expected;
    if (s->base)
        row = needed < 10 ? (MPTI_SURE + 11 - needed) / (12 - needed) + MPTI_LONGER * more / MPTI_RUN
                          : 0x7fffffff;
    if (bad && (s->bad_steps >= row ||
                s->excess > (uint32_t)(needed * (MPTI_RUN + more)) * (MPTI_UNIT / MPTI_RUN)))
        mpti_ours_alarm(s, mpti_least(mpti_most(s->bad_steps - row + 1, 1), MPTI_LAPSE));
    else if (!bad && s->good_steps >= wait)
        mpti_ours_climb(s);
    if (!bad && run && (!s->base || run < row || lower))        /* not of a climb that failed at once */
        s->last_bad = (more + MPTI_RUN * mpti_least(run - 1, MPTI_RUN - 1)) / 2;
}

MPT_HD mpt_status mpti_ours_advance(mpt_scaler *s)
{
    if (s->found_inf && s->cause == MPT_CAUSE_RANGE) {
        s->range_steps = mpti_count_up(s->range_steps);
        if (s->range_steps >= s->config.patience)
            s->verdict = (uint32_t)MPT_VERDICT_RANGE;
    } else {
        if (s->verdict == (uint32_t)MPT_VERDICT_OFTEN)
            s->verdict = 0u;                /* is about one step */
        else if (s->verdict && !s->found_inf)
            s->base = s->verdict = 0u;      /* a good step: the cause of the verdict is gone */
        s->skipped_nan += (s->cause & (MPT_CAUSE_NAN | MPT_CAUSE_INF)) == MPT_CAUSE_NAN;
        s->range_steps = 0;
        mpti_ours_step(s, s->found_inf != 0u);
        if (!s->verdict && s->found_inf &&
            ((s->base >= MPTI_UNIT * 2u / 5u && s->iteration >= MPTI_LAPSE) ||
             (s->search_steps >= MPTI_SEARCH && s->search_bad >= s->search_steps / 2)))
            s->verdict = (uint32_t)MPT_VERDICT_OFTEN;
    }
    return s->verdict ? MPT_E_SCALE : MPT_OK;
}

/* One update of the scale, from what checks found since the last. After a refused one, or none, it stays. */
MPT_HD mpt_status mpti_scaler_advance(mpt_scaler *s)
{
    const uint32_t rule = mpti_scaler_rule(s->config.dialect);
    mpt_status     status = MPT_OK;
    if (!s->checks || s->in_use & 4u) {
        status = MPT_E_ORDER;
    } else if (rule & MPTI_OURS) {
        status = mpti_ours_advance(s);
    } else if (rule) {
        const double before = s->wide;
        s->verdict = (uint32_t)MPT_VERDICT_OK;
        if (!s->found_inf)
            mpti_scaler_good(s, rule);
        else if ((status = mpti_scaler_bad(s, rule)) != MPT_OK)
            s->verdict = (uint32_t)MPT_VERDICT_RAISED;
        if (rule & MPTI_LATE)
            s->scale = mpti_to_f32(before);
    }
    s->updates++;
    s->skipped += s->found_inf ? 1u : 0u;
    s->found_inf = 0u;
    s->cause = 0u;
    s->checks = 0u;
    s->in_use &= 2u;
    return status;
}

/* A Bloom filter of sizes of (whole) tensors, less `known`. Not of addresses, which may change in a step; a
 * tensor that was frozen (n 0) since the check has no size. */
MPTI_HD_CALL uint64_t mpti_sizes_filter(const mpt_tensor *tensors, size_t count, uint64_t known)
{
    uint64_t bits = 0u;
    size_t   i;
    for (i = 0; i < count; i++) {
        const uint64_t n = tensors[i].whole ? tensors[i].whole : tensors[i].n;
        bits |= (uint64_t)(n != 0u) << (n * 0x9e3779b97f4a7c15u >> 58);
    }
    return bits & ~known;
}

/* MPT_STAGE_PART if tensors are parts of larger ones, else 0. *mixed: are only some of the tensors parts? */
MPTI_HD_CALL uint32_t mpti_parts_of(const mpt_tensor *t, size_t count, int *mixed)
{
    uint32_t stage = 0u;
    int      parts = 0, wholes = 0;
    size_t   i;
    for (i = 0; i < count; i++) {
        stage = t[i].whole > t[i].n ? (uint32_t)MPT_STAGE_PART : stage;
        parts |= t[i].whole != 0u;
        wholes |= !t[i].whole && t[i].n;
    }
    *mixed = parts && wholes;
    return stage;
}

/* What ranks exchange about their checks: numbers that are all summed over the ranks. If one says that its
 * check was refused, no rank reads the others: they only wait for its numbers. */
#define MPTI_COMBINED 6
MPT_HD void mpti_combine_pack(const mpt_step *step, int refused, double *values)
{
    values[0] = (double)step->inf_count;
    values[1] = (double)step->nan_count;
    values[2] = (double)step->range_count;
    values[3] = step->found_inf ? 1.0 : 0.0;
    values[4] = refused ? 1.0 : 0.0;
    values[5] = step->sumsq;
}

MPT_HD void mpti_step_counts(mpt_step *s, uint64_t inf, uint64_t nan, uint64_t range)
{
    s->inf_count = inf;
    s->nan_count = nan;
    s->range_count = range;
    s->cause = (inf ? MPT_CAUSE_INF : 0u) | (nan ? MPT_CAUSE_NAN : 0u) | (range ? MPT_CAUSE_RANGE : 0u);
}

/* Nonzero if the record already holds a check of the scaler's current step. */
MPT_HD int mpti_is_second_check(const mpt_scaler *s, const mpt_step *step)
{
    return s->checks && step->update == s->updates + 1u;
}

/* A refused step marks its record, and the next check is refused: so a caller who ignores its status is told
 * by the update. A record that was never zeroed is unlikely to pass for one. */
MPT_HD void mpti_refuse_step(mpt_step *r) { r->stage = (r->stage & 7u) | (uint32_t)MPT_STAGE_REFUSED; }
MPT_HD int mpti_was_refused(const mpt_scaler *s, const mpt_step *step)
{
    return (step->stage & ~7u) == (uint32_t)MPT_STAGE_REFUSED && step->update <= s->updates;
}
MPT_HD int mpti_may_check(const mpt_scaler *s, const mpt_step *step)
{
    return !mpti_is_second_check(s, step) && !mpti_was_refused(s, step);
}

MPT_HD void mpti_count_check(mpt_scaler *s, uint32_t found_inf, uint32_t cause)
{
    s->found_inf |= found_inf;
    s->cause |= cause;
    s->checks++;
}

/* Complete the record of a check, which holds the causes that it found, and tell the scaler. */
MPT_HD void mpti_step_checked(mpt_scaler *s, mpt_step *step, double sumsq, float factor, uint32_t stage)
{
    step->update = s->updates + 1u;
    step->sumsq = sumsq;
    step->found_inf = step->cause ? 1u : 0u;
    step->norm = mpti_norm_from_sumsq(sumsq, step->found_inf);
    step->grad_factor = factor;
    step->clip_factor = 1.0f;
    step->stage = stage;
    mpti_count_check(s, step->found_inf, step->cause);
}

/* See the errors of mpt_check. */
MPTI_HD_CALL void mpti_refuse_check(mpt_scaler *s, mpt_step *step)
{
    if (s)
        s->in_use |= 4u;
    if (step) {                         /* and what an older check found is not told again */
        mpti_step_counts(step, 0u, 0u, 0u);
        step->bad_tensor = step->bad_index = step->bad_cause = 0u;
        step->found_inf = 1u;
        step->stage &= 7u;
    }
}

MPT_HD int mpti_is_checked(uint32_t stage)
{
    return stage == (uint32_t)MPT_STAGE_CHECKED || stage == (uint32_t)MPT_STAGE_UNSCALED;
}

/* Nonzero between a check, or for parts mpt_step_combine, and the step: then it may be clipped or taken. */
MPT_HD int mpti_step_is_open(const mpt_step *step) { return mpti_is_checked(step->stage & 7u); }
MPT_HD int mpti_is_clipped(const mpt_step *step) { return (step->stage & (uint32_t)MPT_STAGE_CLIPPED) != 0u; }

/* A refused clip closes the record like a refused step: no step may go unclipped.  Returns: 0 then. */
MPT_HD int mpti_clip_step(mpt_step *step, float max_norm)
{
    const double most = mpti_to_f64(max_norm);
    const int    open = mpti_step_is_open(step);
    if (open)
        step->clip_factor = step->found_inf || !(step->norm > most) ? 1.0f : mpti_to_f32(most / step->norm);
    step->stage = open ? step->stage | (uint32_t)MPT_STAGE_CLIPPED : (uint32_t)MPT_STAGE_REFUSED;
    return open;
}

/* Ranks may combine their records after a check and before the clip and the step. */
MPTI_HD_CALL int mpti_may_combine(const mpt_scaler *s, const mpt_step *step)
{
    return mpti_is_checked(step->stage & 3u) && !mpti_is_clipped(step) && mpti_is_second_check(s, step) &&
           !(s->in_use & 4u);
}

/* Returns: 0 if the check of any rank was refused; then so is this one. */
MPT_HD int mpti_combine_unpack(mpt_scaler *s, mpt_step *step, const double *values)
{
    step->stage &= ~(uint32_t)MPT_STAGE_PART;
    if (values[4] > 0.0) {
        mpti_refuse_check(s, step);
        return 0;
    }
    mpti_step_counts(step, (uint64_t)values[0], (uint64_t)values[1], (uint64_t)values[2]);
    step->found_inf = values[3] > 0.0 ? 1u : 0u;
    step->sumsq = values[5];
    step->norm = mpti_norm_from_sumsq(step->sumsq, step->found_inf);
    s->found_inf |= step->found_inf;
    s->cause |= step->cause;
    return 1;
}

/* The valid hyperparameters. NaN is detected by its bits: -ffast-math may invert a comparison. */
MPT_HD int mpti_is_rate(float x) { return x >= 0.0f && mpti_f32_is_finite(x); }
MPT_HD int mpti_is_decay(float x) { return mpti_is_rate(x) && x < 1.0f; }

/* The options that every optimizer knows. AdamW and Adam also know MPT_STEP_AMSGRAD. */
#define MPTI_STEP_OPTIONS (MPT_STEP_ZERO_GRADS | MPT_STEP_MAXIMIZE | MPT_STEP_STAYS_OPEN)

MPTI_HD_CALL int mpti_sgd_ok(const mpt_sgd *o)
{
    return o && mpti_is_rate(o->lr) && mpti_is_decay(o->momentum) && mpti_is_rate(o->weight_decay) &&
           mpti_is_rate(o->dampening) && o->dampening <= 1.0f && !(o->options & ~MPTI_STEP_OPTIONS) &&
           (!o->nesterov || (mpti_is_nonzero(o->momentum) && !mpti_is_nonzero(o->dampening)));
}

MPTI_HD_CALL int mpti_adamw_ok(const mpt_adamw *o)
{
    return o && mpti_is_rate(o->lr) && mpti_is_decay(o->beta1) && mpti_is_decay(o->beta2) &&
           mpti_is_rate(o->eps) && o->eps > 0.0f && mpti_is_rate(o->weight_decay) &&
           !(o->options & ~(MPTI_STEP_OPTIONS | MPT_STEP_AMSGRAD));
}

MPTI_HD_CALL int mpti_lion_ok(const mpt_lion *o)
{
    return o && mpti_is_rate(o->lr) && mpti_is_decay(o->beta1) && mpti_is_decay(o->beta2) &&
           mpti_is_rate(o->weight_decay) && !(o->options & ~MPTI_STEP_OPTIONS);
}

MPTI_HD_CALL int mpti_adafactor_ok(const mpt_adafactor *o)
{
    return o && mpti_is_rate(o->lr) && mpti_is_rate(o->eps1) && o->eps1 >= 8.673617379884035e-19f &&
           mpti_is_rate(o->eps2) && mpti_is_rate(o->clip) && o->clip > 0.0f &&
           mpti_is_rate(o->weight_decay) && !(o->options & ~MPTI_STEP_OPTIONS);
}

#define MPTI_NEEDS_STEP (MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD)
#define MPTI_ZEROES     256u    /* bits beside MPT_NEEDS_*: the step zeroes the gradients; ... */
#define MPTI_STAYS_OPEN 512u    /* ... another step on the same check follows */
MPTI_HD_CALL unsigned mpti_needs_of(uint32_t options)
{
    return (options & MPT_STEP_ZERO_GRADS ? MPTI_ZEROES : 0u) |
           (options & MPT_STEP_STAYS_OPEN ? MPTI_STAYS_OPEN : 0u) |
           (options & MPT_STEP_AMSGRAD ? MPT_NEEDS_V_MAX : 0u);
}
/* Arrays that an optimizer does not need with these hyperparameters. */
MPT_HD unsigned mpti_sgd_spares(const mpt_sgd *o)
{
    return o && mpti_is_nonzero(o->momentum) ? 0u : MPT_NEEDS_M;
}
MPT_HD unsigned mpti_adamw_spares(const mpt_adamw *o) { return (void)o, 0u; }
MPT_HD unsigned mpti_lion_spares(const mpt_lion *o) { return (void)o, 0u; }
MPT_HD unsigned mpti_adafactor_spares(const mpt_adafactor *o) { return (void)o, 0u; }
#define MPTI_NEEDS(id, name, hyper, needs, passes, device)                              \
    MPT_HD unsigned mpti_##name##_needs(const mpt_##hyper *o)                           \
    {                                                                                   \
        const unsigned own = o ? mpti_needs_of(o->options) : 0u;                        \
        return MPTI_NEEDS_STEP | own | ((needs) & ~mpti_##hyper##_spares(o));           \
    }
MPT_OPTIMIZERS(MPTI_NEEDS)

MPT_HD mpt_format mpti_moments_format(const mpt_tensor *t)
{
    return t->moments == MPT_MOMENTS_F32 ? MPT_F32 : MPT_BF16;
}

/* Random streams: a weight's is the index of its tensor; those of the moments are that index XOR these. */
#define MPTI_STREAM_M 0x80000000u
#define MPTI_STREAM_V 0x40000000u

/* Every mpti_*_k struct begins with these constants. Parameter groups change the first three. l2: decay that
 * is added to the gradient; factor: grad_factor * clip_factor, negated to maximize. */
typedef struct mpti_rates { float minus_lr, decay, l2, factor; } mpti_rates;

MPT_HD float mpti_times(float x, float times) { return mpti_is_nonzero(times) ? mpti_mul(x, times) : x; }

MPT_HD mpti_rates mpti_rates_of(mpti_rates all, const mpt_tensor *t)
{
    all.minus_lr = mpti_times(all.minus_lr, t->lr_times);
    all.decay = t->no_decay ? 0.0f : mpti_times(all.decay, t->decay_times);
    all.l2 = t->no_decay ? 0.0f : mpti_times(all.l2, t->decay_times);
    return all;
}

MPT_HD mpti_rates mpti_rates_make(float lr, float decay, float l2, const mpt_step *step, uint32_t options)
{
    const float      factor = mpti_mul(step->grad_factor, step->clip_factor);
    const mpti_rates r = {mpti_neg(lr), decay, l2, options & MPT_STEP_MAXIMIZE ? mpti_neg(factor) : factor};
    return r;
}

/* Constants of one step of each optimizer. */
typedef struct mpti_sgd_k { mpti_rates rates; float momentum, fresh; uint32_t nesterov; } mpti_sgd_k;
typedef struct mpti_adamw_k {
    mpti_rates rates;
    uint32_t   amsgrad;
    float      beta1, one_minus_beta1, beta2, one_minus_beta2, eps, v_factor;
} mpti_adamw_k;
typedef struct mpti_lion_k {
    mpti_rates rates;
    float      beta1, one_minus_beta1, beta2, one_minus_beta2;
} mpti_lion_k;

MPT_HD mpti_sgd_k mpti_sgd_consts(const mpt_sgd *o, const mpt_step *step)
{
    mpti_sgd_k k;
    k.rates = mpti_rates_make(o->lr, 0.0f, o->weight_decay, step, o->options);
    k.momentum = o->momentum;
    k.fresh = o->t ? mpti_fma(o->dampening, -1.0f, 1.0f) : 1.0f;
    k.nesterov = o->nesterov;
    return k;
}

/* base^t by repeated squaring, because the bits of pow differ between math libraries. */
MPTI_HD_CALL double mpti_powi(double base, uint64_t t)
{
    double r = 1.0;
    for (; t; t >>= 1) {
        if (t & 1u)
            r = mpti_mul64(r, base);
        base = mpti_mul64(base, base);
    }
    return r;
}

/* The constants of step t = o->t + 1. v_factor and eps contain the bias corrections of both moments: (m /
 * bias1) / (sqrt(v / bias2) + eps) = m / (sqrt(v) * v_factor + eps * bias1), the latter at least FLT_MIN. */
MPT_HD mpti_adamw_k mpti_adamw_consts(const mpt_adamw *o, const mpt_step *step)
{
    const double bias1 = 1.0 - mpti_powi(mpti_to_f64(o->beta1), o->t + 1u);
    const double bias2 = 1.0 - mpti_powi(mpti_to_f64(o->beta2), o->t + 1u);
    const double eps = mpti_mul64(mpti_to_f64(o->eps), bias1);
    mpti_adamw_k k;
    k.rates = mpti_rates_make(o->lr, o->weight_decay, 0.0f, step, o->options);
    k.amsgrad = o->options & MPT_STEP_AMSGRAD;
    k.beta1 = o->beta1;
    k.one_minus_beta1 = mpti_fma(o->beta1, -1.0f, 1.0f);
    k.beta2 = o->beta2;
    k.one_minus_beta2 = mpti_fma(o->beta2, -1.0f, 1.0f);
    k.eps = mpti_to_f32(eps < MPTI_FLT_MIN ? MPTI_FLT_MIN : eps);
    k.v_factor = mpti_to_f32(bias1 / sqrt(bias2));
    return k;
}

typedef struct mpti_adafactor_k {
    mpti_rates rates;
    float      fresh, least, least_mean;            /* fresh: 1 - beta2; least: of v */
    double     eps2, most, clip;                    /* most: upper limit of the learning rate */
} mpti_adafactor_k;

/* t^(1/5) by Newton's method from above, without pow (see mpti_powi). t^-0.8 is 1 over its fourth power. */
MPT_HD double mpti_root5(double t)
{
    double y = 1.0;
    int    i;
    while (mpti_powi(y, 5u) < t)
        y = mpti_mul64(y, 2.0);
    for (i = 0; i < 8; i++)
        y = mpti_mul64(mpti_mul64(4.0, y) + mpti_div64(t, mpti_powi(y, 4u)), 0.2);
    return y;
}

MPT_HD mpti_adafactor_k mpti_adafactor_consts(const mpt_adafactor *o, const mpt_step *step)
{
    const double     t = (double)(o->t + 1u);
    mpti_adafactor_k k;
    k.rates = mpti_rates_make(o->lr, o->weight_decay, 0.0f, step, o->options);
    k.fresh = mpti_to_f32(1.0 / mpti_powi(mpti_root5(t), 4u));
    k.least = mpti_mul(o->eps1, o->eps1);
    k.least_mean = o->eps1;
    k.eps2 = mpti_to_f64(o->eps2);
    k.most = 1.0 / sqrt(t);
    k.clip = mpti_to_f64(o->clip);
    return k;
}

MPT_HD mpti_lion_k mpti_lion_consts(const mpt_lion *o, const mpt_step *step)
{
    mpti_lion_k k;
    k.rates = mpti_rates_make(o->lr, o->weight_decay, 0.0f, step, o->options);
    k.beta1 = o->beta1;
    k.one_minus_beta1 = mpti_fma(o->beta1, -1.0f, 1.0f);
    k.beta2 = o->beta2;
    k.one_minus_beta2 = mpti_fma(o->beta2, -1.0f, 1.0f);
    return k;
}

/* One element of SGD: g as it is stored in grad; w and m are updated. Without momentum, m is not touched. */
MPT_HD void mpti_sgd_1(float g, float *w, float *m, const mpti_sgd_k *k)
{
    g = mpti_fma(k->rates.l2, *w, mpti_mul(g, k->rates.factor));
    if (mpti_is_nonzero(k->momentum)) {
        *m = mpti_fma(k->momentum, *m, mpti_mul(k->fresh, g));
        g = k->nesterov ? mpti_fma(k->momentum, *m, g) : *m;
    }
    *w = mpti_fma(k->rates.minus_lr, g, *w);
}

/* The parts of AdamW, Adam, LAMB: moments; direction; weight. AdamW and LAMB have decay, Adam has l2. */
MPT_HD void mpti_adamw_moments_1(float g, float w, float *m, float *v, const mpti_adamw_k *k)
{
    const float decayed = mpti_fma(k->rates.l2, w, mpti_mul(g, k->rates.factor));
    g = mpti_is_nonzero(k->rates.l2) ? decayed : mpti_mul(g, k->rates.factor);
    *m = mpti_fma(k->beta1, *m, mpti_mul(k->one_minus_beta1, g));
    *v = mpti_fma(k->beta2, *v, mpti_mul(k->one_minus_beta2, mpti_mul(g, g)));
}

MPT_HD float mpti_adamw_direction_1(float w, float m, float root_of_v, const mpti_adamw_k *k)
{
    return mpti_fma(k->rates.decay, w, mpti_div(m, mpti_fma(root_of_v, k->v_factor, k->eps)));
}

MPT_HD void mpti_adamw_weight_1(float *w, float m, float root_of_v, const mpti_adamw_k *k)
{
    *w = mpti_fma(k->rates.minus_lr, mpti_adamw_direction_1(*w, m, root_of_v, k), *w);
}

/* max(v, least) of numbers >= 0 */
MPT_HD float mpti_at_least(float v, float least) { return mpti_below(v, least) ? least : v; }

/* All three parts. Without AMSGrad the caller sets *v_max to 0. */
MPT_HD void mpti_adamw_1(float g, float *w, float *m, float *v, float *v_max, const mpti_adamw_k *k)
{
    mpti_adamw_moments_1(g, *w, m, v, k);
    *v_max = mpti_at_least(*v_max, *v);
    mpti_adamw_weight_1(w, *m, mpti_sqrt(*v_max), k);
}

MPT_HD void mpti_rates_l2(mpti_rates *r)
{
    r->l2 = r->decay;
    r->decay = 0.0f;
}

/* LAMB: the factor of the update, from squared norms of weights and directions (of the moments as stored). */
MPT_HD float mpti_lamb_factor(double w_sumsq, double r_sumsq, const mpti_adamw_k *k)
{
    if (!(w_sumsq > 0.0) || !(r_sumsq > 0.0))
        return k->rates.minus_lr;
    return mpti_to_f32(mpti_mul64(mpti_to_f64(k->rates.minus_lr), sqrt(w_sumsq) / sqrt(r_sumsq)));
}

/* 1 with the sign of a, or 0 for 0; by the bits, since a flush-to-zero mode takes a subnormal for 0. */
MPT_HD float mpti_sign(float a)
{
    const uint32_t u = mpti_f32_bits(a), one = (0u - (uint32_t)mpti_is_nonzero(a)) & 0x3f800000u;
    return mpti_f32_make((u & 0x80000000u) | one);
}

MPT_HD void mpti_lion_1(float g, float *w, float *m, const mpti_lion_k *k)
{
    const float u = mpti_mul(g, k->rates.factor);
    const float blend = mpti_fma(k->beta1, *m, mpti_mul(k->one_minus_beta1, u));
    *w = mpti_fma(k->rates.minus_lr, mpti_fma(k->rates.decay, *w, mpti_sign(blend)), *w);
    *m = mpti_fma(k->beta2, *m, mpti_mul(k->one_minus_beta2, u));
}

/* Adafactor: one step of a moving average over time. */
MPT_HD float mpti_average(float old, float now, float fresh)
{
    return mpti_fma(fresh, mpti_fma(old, -1.0f, now), old);
}

#ifndef MPT_NO_FP8
/* The bit pattern of x * scale, for FP8. Machines differ in the NaN of a product; here a NaN x stays as it
 * is, and a new NaN (Inf * 0) is positive. Masks, not branches, so that compilers vectorize this. */
MPT_HD uint32_t mpti_fp8_scaled(uint32_t x, float scale)
{
    const uint32_t y = mpti_f32_bits(mpti_mul(mpti_f32_make(x), scale));
    const uint32_t was = 0u - (uint32_t)((x & 0x7fffffffu) > 0x7f800000u);
    const uint32_t is = 0u - (uint32_t)((y & 0x7fffffffu) > 0x7f800000u);
    return (x & was) | (((y & ~is) | (0x7fc00000u & is)) & ~was);
}

MPT_HD uint64_t mpti_inverse_at(uint64_t i, uint64_t step) { return step ? i * step : i; }

/* The next scale, from the pattern of amax. Patterns are compared: no fast-math build can flush them. */
MPT_HD float mpti_fp8_next_scale(float scale, uint32_t amax, const mpt_fp8_recipe *r)
{
    const float largest = r->format == MPT_E5M2 ? 57344.0f : 448.0f;
    const float margin = mpti_f32_make((uint32_t)(127 - r->margin) << 23);
    uint32_t    next;
    if (!amax || amax >= 0x7f800000u)
        return scale;
    next = mpti_f32_bits(mpti_mul(mpti_div(largest, mpti_f32_make(amax)), margin));
    next = next > 0x7f7fffffu ? 0x7f7fffffu : next < 0x00800000u ? 0x00800000u : next;
    return mpti_f32_make(r->power_of_two ? next & 0x7f800000u : next);
}
#endif /* MPT_NO_FP8 */

/* Split a float's bits into a bf16 (ties away from zero) and the rest to add to it: -2^15 .. 2^15 - 1. */
MPT_HD void mpti_split(uint32_t u, uint16_t *high, uint16_t *low)
{
    const int nan = (u & 0x7fffffffu) > 0x7f800000u;
    *high = (uint16_t)(nan ? u >> 16 | 0x40u : (u + 0x8000u) >> 16);
    *low = (uint16_t)(nan ? 0u : u & 0xffffu);
}

MPT_HD uint32_t mpti_unsplit(uint16_t high, uint16_t low)
{
    return ((uint32_t)high << 16) + low - ((uint32_t)(low & 0x8000u) << 1);
}

/* Kahan: f16 keeps the rest times 2^11; so |rest| <= 16 fits, and it is subnormal only below 2^-25. */
MPT_HD float mpti_kahan_join(float param, float rest, int is_f16)
{
    return mpti_fma(rest, is_f16 ? 0.00048828125f : 1.0f, param);
}
/* 0 where param overflowed to Inf: Inf - Inf would be a NaN */
MPT_HD float mpti_kahan_rest(float w, float param, int is_f16)
{
    const uint32_t finite = 0u - (uint32_t)mpti_f32_is_finite(param);
    const float    rest = mpti_mul(mpti_fma(param, -1.0f, w), is_f16 ? 2048.0f : 1.0f);
    return mpti_f32_make(mpti_f32_bits(rest) & finite);
}

#endif /* MPT_H */

// >>M16 implementation: tensors -------------------------------------------------------------------
#if defined(MPT_TRAIN_IMPLEMENTATION) && !defined(MPTI_IMPLEMENTED)
#define MPTI_IMPLEMENTED

static size_t mpti_min(size_t a, size_t b) { return a < b ? a : b; }

MPT_DEF mpt_tensor mpt_tensor_grad_f32(const char *name, float *grad, size_t n)
{
    mpt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = name, t.n = n;
    t.grad = grad, t.grad_format = MPT_F32;
    return t;
}

#define MPTI_NAME(id, name, ...) name,
#define MPTI_STORAGE_NAMES(X) MPT_STORAGES(MPTI_NAME)
MPT_DEF MPTI_TEXT_OF_ROW(mpt_storage_name, mpt_storage, MPTI_STORAGE_NAMES, "unknown storage")

#define MPTI_IF_MASTER(id, name, master, extra) || ((master) && t->storage == id)
#define MPTI_IF_EXTRA(id, name, master, extra) || ((extra) && t->storage == id)
static int mpti_has_master(const mpt_tensor *t) { return 0 MPT_STORAGES(MPTI_IF_MASTER); }
static int mpti_has_extra(const mpt_tensor *t) { return 0 MPT_STORAGES(MPTI_IF_EXTRA); }

/* The number of rows of each matrix of a tensor with columns (Adafactor). */
static size_t mpti_rows(const mpt_tensor *t)
{
    return t->rows ? t->rows : t->n > t->columns ? t->n / t->columns : 1u;
}
/* Do the columns not divide the tensor into rows, or the rows into matrices? */
static int mpti_misfit(const mpt_tensor *t)
{
    return t->columns && (t->n % t->columns || t->n / t->columns % mpti_rows(t));
}

static const char *mpti_tensor_missing(const mpt_tensor *t, unsigned needs)
{
    if (!t->n)
        return NULL;
    if (mpti_no_array(t, t->n, sizeof(float)))
        return "n is more than any array can hold";
    if (t->first % MPTI_CHUNK || (t->whole ? t->first > t->whole || t->n > t->whole - t->first : t->first))
        return "first must be a multiple of 16384, and first + n at most whole";
    if ((needs & MPT_NEEDS_MASTER) && !mpti_has_master(t))
        return "storage has no FP32 master, which this call needs";
    if ((needs & MPT_NEEDS_WEIGHT) && !mpti_has_master(t) && !t->param)
        return "param is NULL: without a master it is the weight";
    if ((needs & MPT_NEEDS_WEIGHT) && mpti_has_extra(t) && !t->extra)
        return "extra is NULL: this storage keeps the rest of the weight there";
    if (((needs & MPT_NEEDS_MASTER) || ((needs & MPT_NEEDS_WEIGHT) && mpti_has_master(t))) && !t->master)
        return "master is NULL: this call steps the FP32 weights";
    if ((needs & MPT_NEEDS_PARAM) && !t->param)
        return "param is NULL: this call writes the low-precision copy";
    if ((needs & MPT_NEEDS_WEIGHT) && (!mpti_is_rate(t->lr_times) || !mpti_is_rate(t->decay_times)))
        return "lr_times and decay_times must be finite and at least 0";
    if ((needs & MPT_NEEDS_GRAD) && !t->grad)
        return "grad is NULL";
    if ((needs & MPT_NEEDS_M) && !t->m)
        return "m is NULL: this optimizer keeps a first moment (momentum)";
    if ((needs & MPT_NEEDS_V) && !t->v)
        return "v is NULL: this optimizer keeps a second moment";
    if ((needs & MPT_NEEDS_V_MAX) && !t->v_max)
        return "v_max is NULL: AMSGrad keeps the largest second moment";
    if ((needs & MPT_NEEDS_FACTORS) && !t->v)
        return "v is NULL: this optimizer keeps second moments, or their row and column means";
    if ((needs & MPT_NEEDS_FACTORS) && (mpti_misfit(t) || (t->rows && !t->columns)))
        return "columns must divide n, and rows must divide n / columns";
    return NULL;
}

static const char *mpti_tensor_unsupported(const mpt_tensor *t, unsigned needs)
{
    if ((unsigned)t->storage >= (unsigned)MPT_STORAGE_COUNT)
        return "storage is not a value of mpt_storage";
    if ((needs & MPT_NEEDS_GRAD) && t->grad && !mpti_is_train_format(t->grad_format))
        return "grad_format must be MPT_F32, MPT_F16 or MPT_BF16";
    if ((needs & MPT_NEEDS_WEIGHT) && !mpti_has_master(t) && t->param_format != MPT_F16 &&
        t->param_format != MPT_BF16)
        return "param_format must be MPT_F16 or MPT_BF16 without a master: FP32 weights are a master";
    if ((needs & (MPT_NEEDS_PARAM | MPT_NEEDS_MASTER | MPT_NEEDS_WEIGHT)) && t->param &&
        !mpti_is_train_format(t->param_format))
        return "param_format must be MPT_F32, MPT_F16 or MPT_BF16";
    if (t->rounded && (t->param_format != MPT_F32 || (t->rounded != MPT_F16 && t->rounded != MPT_BF16)))
        return "rounded must be 0, or MPT_F16 or MPT_BF16 with a param of MPT_F32";
    if ((unsigned)t->moments >= (unsigned)MPT_MOMENTS_COUNT)
        return "moments is not a value of mpt_moments";
    if ((needs & MPT_NEEDS_WHOLE) && t->n && t->whole && t->n != t->whole)
        return "this optimizer looks at whole tensors, and this one is a part";
    if ((needs & MPT_NEEDS_V) && t->columns)
        return "columns must be 0: only Adafactor takes row and column means for v";
    if ((needs & MPT_NEEDS_WEIGHT) && t->storage == MPT_STORE_SPLIT && t->param_format != MPT_BF16)
        return "split storage needs MPT_BF16: 16 bits cannot tell apart all the floats that f16 rounds to 0";
    return NULL;
}

/* The arrays of a tensor, in the order of a checkpoint: where mpt_tensor has them, which needs touch them. */
enum {
    MPTI_MASTER, MPTI_PARAM, MPTI_M, MPTI_V, MPTI_V_MAX, MPTI_EXTRA, MPTI_GRAD,
    MPTI_SUMS,                              /* not in a checkpoint */
    MPTI_ARRAYS
};
static const struct mpti_array_row { size_t offset; unsigned needs; } mpti_array_rows[MPTI_ARRAYS] = {
    {offsetof(mpt_tensor, master), MPT_NEEDS_WEIGHT | MPT_NEEDS_MASTER},
    {offsetof(mpt_tensor, param), MPT_NEEDS_WEIGHT | MPT_NEEDS_MASTER | MPT_NEEDS_PARAM},
    {offsetof(mpt_tensor, m), MPT_NEEDS_M}, {offsetof(mpt_tensor, v), MPT_NEEDS_V | MPT_NEEDS_FACTORS},
    {offsetof(mpt_tensor, v_max), MPT_NEEDS_V_MAX},
    {offsetof(mpt_tensor, extra), MPT_NEEDS_WEIGHT | MPT_NEEDS_MASTER},
    {offsetof(mpt_tensor, grad), MPT_NEEDS_GRAD}, {offsetof(mpt_tensor, sums), MPT_NEEDS_GRAD}
};
typedef struct mpti_array { void *at; size_t count, width; } mpti_array;

/* What a call with these needs may touch; other arrays, and those that the storage lacks, have width 0. */
static void mpti_arrays_of(const mpt_tensor *t, unsigned needs, mpti_array *a)
{
    const size_t moment = mpti_format_bytes(mpti_moments_format(t));
    const size_t width[MPTI_ARRAYS] = {
        mpti_has_master(t) ? sizeof(float) : 0u, mpti_format_bytes(t->param_format), moment,
        t->columns ? sizeof(float) : moment, moment, mpti_has_extra(t) ? sizeof(uint16_t) : 0u,
        mpti_format_bytes(t->grad_format), t->whole ? sizeof(double) : 0u};
    size_t       i;
    for (i = 0; i < MPTI_ARRAYS; i++) {
        memcpy(&a[i].at, (const unsigned char *)t + mpti_array_rows[i].offset, sizeof a[i].at);
        a[i].count = t->n;
        a[i].width = needs & mpti_array_rows[i].needs ? width[i] : 0u;
    }
    if (t->columns)
        a[MPTI_V].count = t->n / t->columns + t->n / mpti_rows(t);
    if (t->param && t->param == (void *)t->master && t->param_format == MPT_F32 && !t->rounded)
        a[MPTI_PARAM].width = 0u;           /* the same array as the master: see mpt_tensors_place */
    a[MPTI_SUMS].count = mpti_chunks(t->n);
}

/* Addresses of an array, and whether the call writes it. */
typedef struct mpti_span { uintptr_t begin, end; int written; } mpti_span;

/* What a call touches (MPT_NEEDS_*): a list and, unless NULL, a second list whose gradients it only reads. */
typedef struct mpti_touch { const mpt_tensor *list, *other; unsigned needs, writes; } mpti_touch;

static mpti_span mpti_span_of(const void *array, size_t bytes, int written)
{
    const uintptr_t begin = (uintptr_t)array;
    const mpti_span span = {begin, array && bytes ? begin + bytes : 0u, written};   /* end 0: it meets none */
    return span;
}

static int mpti_spans_meet(const mpti_span *a, const mpti_span *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* Does an array of one tensor overlap one of another, and is one of the two written? */
static int mpti_items_clash(const mpti_span *a, const mpti_span *b)
{
    size_t i, j;
    for (i = 0; i < MPTI_ARRAYS; i++)
        for (j = 0; j < MPTI_ARRAYS; j++)
            if ((a[i].written || b[j].written) && mpti_spans_meet(&a[i], &b[j]))
                return 1;
    return 0;
}

/* The arrays of tensor i as MPTI_ARRAYS spans; an array that is not touched has an empty span. */
static void mpti_spans(const mpti_touch *touch, size_t i, mpti_span *span)
{
    const unsigned    writes = touch->writes, weight = writes & MPT_NEEDS_WEIGHT;
    const mpt_tensor *other = touch->other ? &touch->other[i] : NULL;
    mpti_array        a[MPTI_ARRAYS];
    size_t            k;
    mpti_arrays_of(&touch->list[i], touch->needs, a);
    for (k = 0; k < MPTI_ARRAYS; k++) {
        const unsigned written = k == MPTI_GRAD ? writes & MPT_NEEDS_GRAD
            : k == MPTI_MASTER || k == MPTI_EXTRA ? weight : 1u;
        span[k] = mpti_span_of(a[k].at, a[k].count * a[k].width, written != 0u);
    }
    if (other)                          /* in the master's place: such a call touches no weights */
        span[MPTI_MASTER] = mpti_span_of(other->grad, other->n * mpti_format_bytes(other->grad_format), 0);
}

static int mpti_meets_earlier(const mpti_span *now, const mpti_touch *touch, size_t count)
{
    mpti_span earlier[MPTI_ARRAYS];
    size_t    i;
    for (i = 0; i < count; i++) {
        mpti_spans(touch, i, earlier);
        if (mpti_items_clash(now, earlier))
            return 1;
    }
    return 0;
}

/* The index of the first tensor with an array that overlaps an earlier tensor's, where either is written, or
 * count. Only a tensor that meets a hull of earlier arrays, one for each kind, is compared with each: so a
 * list in order of addresses, up or down, takes one pass, also if each kind of array has its own memory. */
static size_t mpti_first_clash(const mpti_touch *touch, size_t count)
{
    mpti_span hull[MPTI_ARRAYS], now[MPTI_ARRAYS];
    size_t    i, j;
    memset(hull, 0, sizeof hull);
    for (i = 0; i < count; i++) {
        mpti_spans(touch, i, now);
        if (mpti_items_clash(now, hull) && mpti_meets_earlier(now, touch, i))
            return i;
        for (j = 0; j < MPTI_ARRAYS; j++)
            if (now[j].end) {
                hull[j].begin = hull[j].end && hull[j].begin < now[j].begin ? hull[j].begin : now[j].begin;
                hull[j].end = now[j].end > hull[j].end ? now[j].end : hull[j].end;
                hull[j].written |= now[j].written;
            }
    }
    return count;
}

/* Where gradients are written, weights count: a gradient that is the master, too, would be unscaled. */
static const char *mpti_tensor_overlap(const mpt_tensor *t, unsigned needs)
{
    const mpti_touch touch = {t, NULL, needs & MPTI_ZEROES ? needs | MPT_NEEDS_WEIGHT : needs, 0u};
    mpti_span        span[MPTI_ARRAYS];
    size_t           i, j;
    mpti_spans(&touch, 0, span);
    for (i = 0; i < MPTI_ARRAYS; i++)
        for (j = 0; j < i; j++)
            if (mpti_spans_meet(&span[i], &span[j]))
                return "two arrays of this tensor overlap";
    return NULL;
}

/* What every call that takes a list tests every time: each tensor by itself. fault may be NULL. */
static mpt_status mpti_tensors_ok(const mpt_tensor *tensors, size_t count, unsigned needs, mpt_fault *fault)
{
    mpt_fault        unread;
    mpt_fault *const f = fault ? fault : &unread;
    size_t           i;
    f->tensor = 0;
    f->why = "the tensor list is NULL, or too long for any array";
    if (mpti_no_array(tensors, count, sizeof *tensors))
        return MPT_E_ARG;
    for (i = 0; i < count; i++) {
        f->tensor = i;
        if ((f->why = mpti_tensor_missing(&tensors[i], needs)) != NULL)
            return MPT_E_ARG;
        if ((f->why = mpti_tensor_unsupported(&tensors[i], needs)) != NULL)
            return MPT_E_UNSUPPORTED;
        if ((f->why = mpti_tensor_overlap(&tensors[i], needs)) != NULL)
            return MPT_E_ARG;
    }
    f->tensor = 0;
    f->why = NULL;
    return MPT_OK;
}

MPT_DEF MPTI_NOINLINE mpt_status mpt_tensors_validate(const mpt_tensor *tensors, size_t count,
                                                      unsigned needs, mpt_fault *fault)
{
    const mpti_touch touch = {tensors, NULL, needs, needs & MPTI_ZEROES ? needs : needs & ~MPT_NEEDS_GRAD};
    const mpt_status status = mpti_tensors_ok(tensors, count, needs, fault);
    const size_t     at = status == MPT_OK ? mpti_first_clash(&touch, count) : count;
    if (at == count)
        return status;
    if (fault) {
        fault->tensor = at;
        fault->why = "an array of this tensor overlaps one of an earlier tensor";
    }
    return MPT_E_ARG;
}

MPT_DEF MPTI_NOINLINE mpt_status mpt_tensors_init(mpt_tensors *list, mpt_tensor *item, size_t capacity,
                                                  mpt_format param_format, mpt_format grad_format)
{
    if (list)
        memset(list, 0, sizeof *list);
    if (!list || mpti_no_array(item, capacity, sizeof *item))
        return MPT_E_ARG;
    if (!mpti_is_train_format(param_format) || !mpti_is_train_format(grad_format))
        return MPT_E_UNSUPPORTED;
    list->item = item;
    list->capacity = capacity;
    list->model.param_format = param_format;
    list->model.grad_format = grad_format;
    list->needs = MPT_NEEDS_M | MPT_NEEDS_V;
    list->bytes = 63u;                      /* room to align the first array */
    return MPT_OK;
}

#define MPTI_NEEDS_ANY (MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD | MPT_NEEDS_M | MPT_NEEDS_V | MPT_NEEDS_V_MAX)

/* Place the arrays that a tensor lacks, zeroed, one after the other from `at` on. Returns the bytes that they
 * take; with `at` NULL it does only that. A cache line begins at the same element of each and of the master,
 * which malloc often puts 16 bytes behind a line's start: otherwise a step takes 1.6 times as long. */
static size_t mpti_tensor_place(mpt_tensor *t, unsigned needs, unsigned char *at)
{
    const size_t odd = ((size_t)0 - (uintptr_t)t->master) % 64u / sizeof(float);
    mpti_array   a[MPTI_ARRAYS];
    size_t       total = 0, i;
    mpti_arrays_of(t, needs | MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD, a);
    if (mpti_has_master(t) && t->param_format == MPT_F32 && !t->rounded)
        a[MPTI_PARAM].width = 0;            /* the master is the copy too */
    for (i = 0; i < MPTI_ARRAYS; i++) {
        const size_t bytes = a[i].count * a[i].width, lead = ((size_t)0 - odd * a[i].width) % 64u;
        if (!a[i].at && bytes) {
            if (at) {
                a[i].at = memset(at + total + lead, 0, bytes);
                memcpy((unsigned char *)t + mpti_array_rows[i].offset, &a[i].at, sizeof a[i].at);
            }
            total += (lead + bytes + 63u) / 64u * 64u;
        }
    }
    return total;
}

/* Append a tensor, unless `status` is an error already. The list keeps its first error. */
static mpt_status mpti_tensors_append(mpt_tensors *list, mpt_tensor *t, mpt_status status)
{
    const size_t most = (size_t)-1 / 64u;
    const size_t bytes = t->n < most ? mpti_tensor_place(t, list->needs, NULL) : most;
    mpti_touch   touch = {t, NULL, MPTI_NEEDS_ANY, MPT_NEEDS_WEIGHT};
    mpti_span    now[MPTI_ARRAYS];
    mpti_spans(&touch, 0, now);
    touch.list = list->item;
    if (list->status != MPT_OK)
        status = list->status;
    else if (list->count >= list->capacity)
        status = MPT_E_MEMORY;
    else if (status == MPT_OK && mpti_tensor_unsupported(t, MPT_NEEDS_WEIGHT))
        status = MPT_E_UNSUPPORTED;
    else if (status == MPT_OK && (bytes >= most || list->bytes >= most ||
                                  mpti_tensor_overlap(t, MPTI_NEEDS_ANY) ||
                                  mpti_meets_earlier(now, &touch, list->count)))
        status = MPT_E_ARG;
    else if (status == MPT_OK) {
        list->item[list->count++] = *t;
        list->bytes += bytes;
    }
    list->status = status;
    return status;
}

MPT_DEF mpt_status mpt_tensors_add(mpt_tensors *list, const char *name, size_t n, void *param, void *grad,
                                   void *weight, void *m, void *v)
{
    mpt_tensor t;
    if (!list)
        return MPT_E_ARG;
    t = list->model;
    t.name = name, t.n = n;
    t.param = param, t.grad = grad, t.m = m, t.v = v;
    if (mpti_has_master(&t))
        t.master = (float *)weight;
    else
        t.extra = weight;
    return mpti_tensors_append(
        list, &t, mpti_no_array(param ? param : grad ? grad : weight, n, sizeof(float)) ? MPT_E_ARG : MPT_OK);
}

/* `param`, `grad`: addresses of pointers to mpt_f16 or mpt_bf16, which have the same representation. */
static mpt_status mpti_tensors_new(mpt_tensors *list, mpt_format format, const char *name, size_t n,
                                   float *master, void *param, void *grad)
{
    mpt_tensor t;
    if (!list)
        return MPT_E_ARG;
    t = list->model;
    t.name = name, t.n = n;
    t.param_format = t.grad_format = format;
    t.master = master, t.param_at = param, t.grad_at = grad;
    return mpti_tensors_append(list, &t, master && !mpti_has_master(&t) ? MPT_E_ARG : MPT_OK);
}

MPT_DEF mpt_status mpt_tensors_new_f16(mpt_tensors *list, const char *name, size_t n, float *master,
                                       mpt_f16 **param, mpt_f16 **grad)
{
    return mpti_tensors_new(list, MPT_F16, name, n, master, (void *)param, (void *)grad);
}

MPT_DEF mpt_status mpt_tensors_new_bf16(mpt_tensors *list, const char *name, size_t n, float *master,
                                        mpt_bf16 **param, mpt_bf16 **grad)
{
    return mpti_tensors_new(list, MPT_BF16, name, n, master, (void *)param, (void *)grad);
}

/* Elements first .. first + n - 1 of an array in one of the three training formats, as floats. */
MPTI_NOINLINE static void mpti_row_load(float *dst, const void *src, mpt_format format, size_t first,
                                        size_t n)
{
    if (format == MPT_F16)
        (void)mpt_f32_from_f16_n(dst, (const mpt_f16 *)src + first, n);
    else if (format == MPT_BF16)
        (void)mpt_f32_from_bf16_n(dst, (const mpt_bf16 *)src + first, n);
    else
        memmove(dst, (const float *)src + first, n * sizeof *dst);
}

/* The same, with zeros up to a whole tile. */
MPTI_NOINLINE static void mpti_tile_load(float *tile, const void *src, mpt_format format, size_t first,
                                         size_t n)
{
    mpti_row_load(tile, src, format, first, n);
    if (n < MPTI_TILE)
        memset(tile + n, 0, (MPTI_TILE - n) * sizeof *tile);
}

MPTI_NOINLINE static void mpti_row_store(void *dst, mpt_format format, size_t first, const float *src,
                                         size_t n)
{
    if (format == MPT_F16)
        (void)mpt_f16_from_f32_n((mpt_f16 *)dst + first, src, n);
    else if (format == MPT_BF16)
        (void)mpt_bf16_from_f32_n((mpt_bf16 *)dst + first, src, n);
    else
        memmove((float *)dst + first, src, n * sizeof *src);
}

/* Write elements first .. first + n - 1 of the copy. With `rounded` it is an array of floats: they are
 * converted to 16 bits and back, with conversions that a step needs anyway. */
MPTI_NOINLINE static void mpti_param_store(const mpt_tensor *t, size_t first, const float *src, size_t n)
{
    uint16_t row[MPTI_TILE];
    size_t   i, take;
    if (!t->rounded) {
        mpti_row_store(t->param, t->param_format, first, src, n);
        return;
    }
    for (i = 0; i < n; i += take) {
        take = mpti_min(n - i, MPTI_TILE);
        mpti_row_store(row, t->rounded, 0, src + i, take);
        mpti_row_load((float *)t->param + first + i, row, t->rounded, 0, take);
    }
}

MPT_DEF mpt_status mpt_tensors_place(mpt_tensors *list, void *memory, size_t bytes)
{
    unsigned char *at;
    size_t         i, total = 0;
    if (!list)
        return MPT_E_ARG;
    for (i = 0; i < list->count; i++)       /* not list->bytes: list->needs may have changed */
        total += mpti_tensor_place(&list->item[i], list->needs, NULL);
    if (list->status != MPT_OK)
        return list->status;
    if (total && (!memory || bytes < total + 63u)) {
        list->bytes = total + 63u;
        return MPT_E_MEMORY;
    }
    at = (unsigned char *)(total ? memory : list);      /* if total is 0, nothing is written there */
    at += (64u - (uintptr_t)at % 64u) % 64u;
    for (i = 0; i < list->count; i++) {
        mpt_tensor *const t = &list->item[i];
        const void *const weights = t->master ? NULL : t->param;
        at += mpti_tensor_place(t, list->needs, at);
        if (t->n && !t->param)
            t->param = t->master;
        if (weights && t->master && mpti_is_train_format(t->param_format))
            mpti_row_load(t->master, weights, t->param_format, 0, t->n);
        if (t->param_at)
            memcpy(t->param_at, &t->param, sizeof t->param);
        if (t->grad_at)
            memcpy(t->grad_at, &t->grad, sizeof t->grad);
        t->param_at = t->grad_at = NULL;
    }
    list->bytes = 63u;
    return total ? mpt_publish(list->item, list->count) : MPT_OK;
}

/* A tensor of n elements begins at element `at` of its list. Returns which of its elements is the first of
 * the part that should begin at element `cut` of the list: the next start of a chunk, or n. */
static size_t mpti_part_from(size_t n, size_t at, size_t cut)
{
    return cut > at ? mpti_min(n, mpti_chunks(cut - at) * MPTI_CHUNK) : 0u;
}

MPT_DEF mpt_status mpt_tensors_shard(mpt_tensors *list, size_t part, size_t parts)
{
    mpti_array a[MPTI_ARRAYS];
    size_t     total = 0, at = 0, i, k, begin, end;
    if (!list || part >= parts || (uint64_t)parts >> 32)
        return MPT_E_ARG;
    if (list->status != MPT_OK)
        return list->status;
    for (i = 0; i < list->count; total += list->item[i++].n) {
        const mpt_tensor *const t = &list->item[i];
        if (t->whole || t->columns || t->param_at || t->grad_at || t->n > (size_t)-1 / sizeof(float) - total)
            return MPT_E_ARG;
    }
    begin = total / parts * part + (size_t)((uint64_t)(total % parts) * part / parts);
    end = total / parts * (part + 1u) + (size_t)((uint64_t)(total % parts) * (part + 1u) / parts);
    list->bytes = 63u;
    for (i = 0; i < list->count; i++) {
        mpt_tensor *const t = &list->item[i];
        mpti_arrays_of(t, ~0u, a);
        t->whole = t->n;
        t->first = mpti_part_from(t->whole, at, begin);
        t->n = mpti_part_from(t->whole, at, end) - t->first;
        at += t->whole;
        for (k = 0; k < MPTI_SUMS; k++)
            if (a[k].at) {
                a[k].at = (unsigned char *)a[k].at + t->first * a[k].width;
                memcpy((unsigned char *)t + mpti_array_rows[k].offset, &a[k].at, sizeof a[k].at);
            }
        if (!a[MPTI_PARAM].width)           /* master and param are one array */
            t->param = t->master;
        list->bytes += mpti_tensor_place(t, list->needs, NULL);
    }
    return MPT_OK;
}

/* ---- passes over lists ---- */

/* A piece of a list: elements first .. end - 1 of one tensor. first is a multiple of MPTI_CHUNK, and the
 * chunk that begins there is number `chunk` of the list. No piece touches what another one writes. */
typedef struct mpti_piece { const mpt_tensor *t; size_t tensor, first, end, chunk; } mpti_piece;
typedef void mpti_piece_fn(void *context, const mpti_piece *piece);

/* A position in a list. A range of a list ends at the position where the next range begins. */
typedef struct mpti_place { size_t tensor, first, chunk; } mpti_place;

/* A piece has at most MPTI_WINDOW chunks, so that an array of that size has room for a result of each. */
enum { MPTI_WINDOW = 8 * MPTI_PARTS };

/* Call fn, and then `then` unless NULL, for each piece of a range, in order. */
static void mpti_pieces_between(const mpt_tensor *tensors, mpti_place from, const mpti_place *to,
                                mpti_piece_fn *fn, mpti_piece_fn *then, void *context)
{
    /* the last tensor only if some of its elements are in the range */
    while (from.tensor < to->tensor + (from.first < to->first)) {
        const size_t stop = from.tensor < to->tensor ? tensors[from.tensor].n : to->first;
        const size_t end = from.first + mpti_min(stop - from.first, MPTI_WINDOW * (size_t)MPTI_CHUNK);
        const mpti_piece piece = {&tensors[from.tensor], from.tensor, from.first, end, from.chunk};
        from.chunk += mpti_chunks(end - piece.first);
        from.first = end == stop ? 0u : end;
        from.tensor += end == stop;
        if (piece.first < end) {
            fn(context, &piece);
            if (then)
                then(context, &piece);
        }
    }
}

#ifdef MPT_PARALLEL_FOR
/* A list is processed window by window, each of at most MPTI_WINDOW chunks. A window is cut into parts of
 * about equal size; the sizes of the tensors decide where, not the number of threads. */
enum { MPTI_PER_TENSOR = 256 };         /* the cost of a tensor, in elements */

typedef struct mpti_window {
    const mpt_tensor *tensors;
    mpti_piece_fn    *fn;
    void             *context;
    mpti_place        at[MPTI_PARTS + 1];
} mpti_window;

static void mpti_window_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_window *w = (const mpti_window *)context;
    mpti_pieces_between(w->tensors, w->at[begin], &w->at[end], w->fn, NULL, w->context);
}

static size_t mpti_window_cut(mpti_window *w, size_t count, size_t most)
{
    mpti_place   at = w->at[0];
    const size_t chunks = at.chunk + MPTI_WINDOW;
    size_t       parts = 0, load = 0;
    while (at.tensor < count && at.chunk < chunks && parts < MPTI_PARTS) {
        const size_t rest = w->tensors[at.tensor].n - at.first;
        const size_t room = mpti_min(mpti_chunks(most - load), chunks - at.chunk);
        const size_t take = mpti_min(rest, room * MPTI_CHUNK);
        load += take + MPTI_PER_TENSOR;
        at.first += take;
        at.chunk += mpti_chunks(take);
        if (take == rest)
            at.tensor++, at.first = 0;
        if (load >= most)
            w->at[++parts] = at, load = 0;
    }
    if (load)
        w->at[++parts] = at;
    return parts;
}
#endif

/* Run `beside` on all pieces of a list, in parallel, and `then`, unless NULL, on all in order: on a chunk
 * after `beside`, but before `beside` reaches the chunk MPTI_WINDOW further on. */
static void mpti_pieces(const mpt_tensor *tensors, size_t count, mpti_piece_fn *beside, mpti_piece_fn *then,
                        void *context)
{
#ifdef MPT_PARALLEL_FOR
    size_t      most = MPTI_FAST_PART, total = 0, parts;
    mpti_window w;
    for (parts = 0; parts < count; parts++)
        total += tensors[parts].n;
    while (most * MPTI_PARTS < total && most < MPTI_WINDOW * (size_t)MPTI_CHUNK / MPTI_PARTS)
        most *= 2u;
    memset(w.at, 0, sizeof w.at);
    w.tensors = tensors, w.fn = beside, w.context = context;
    for (; (parts = mpti_window_cut(&w, count, most)) != 0; w.at[0] = w.at[parts]) {
        (void)MPTI_IN_PARTS(parts, 1, mpti_window_range, &w);
        if (then)
            mpti_pieces_between(tensors, w.at[0], &w.at[parts], then, NULL, context);
    }
#else
    const mpti_place from = {0, 0, 0}, to = {count, 0, 0};
    mpti_pieces_between(tensors, from, &to, beside, then, context);
#endif
}

/* Called for whole tensors: small ones in parallel; large ones one by one, and it splits their work. */
typedef void mpti_whole_fn(void *context, const mpt_tensor *tensors, size_t i);

#ifdef MPT_PARALLEL_FOR
typedef struct mpti_wholes {
    const mpt_tensor *tensors;
    mpti_whole_fn    *fn;
    void             *context;
    size_t            base;
} mpti_wholes;

static void mpti_wholes_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_wholes *w = (const mpti_wholes *)context;
    for (; begin < end; begin++)
        w->fn(w->context, w->tensors, w->base + begin);
}
#endif

static void mpti_each_tensor(const mpt_tensor *tensors, size_t count, mpti_whole_fn *fn, void *context)
{
    size_t i;
#ifdef MPT_PARALLEL_FOR
    for (i = 0; i < count;) {
        size_t      many = 0, total = 0;
        mpti_wholes w = {tensors, fn, context, i};
        for (; i + many < count && tensors[i + many].n <= MPTI_FAST_PART; many++)
            total += tensors[i + many].n + MPTI_PER_TENSOR;
        (void)MPTI_IN_PARTS(many, total > MPTI_FAST_PART ? 1 : many, mpti_wholes_range, &w);
        for (i += many; i < count && tensors[i].n > MPTI_FAST_PART; i++)
            fn(context, tensors, i);
    }
#else
    for (i = 0; i < count; i++)
        fn(context, tensors, i);
#endif
}

static void mpti_publish_tensor(MPTI_UNUSED void *context, const mpt_tensor *tensors, size_t i)
{
    const mpt_tensor *t = &tensors[i];
    if (t->n && t->param && mpti_has_master(t))
        mpti_param_store(t, 0, t->master, t->n);
}

MPT_DEF mpt_status mpt_publish(const mpt_tensor *tensors, size_t count)
{
    const mpt_status status = mpti_tensors_ok(tensors, count, MPT_NEEDS_WEIGHT, NULL);
    if (status == MPT_OK)
        mpti_each_tensor(tensors, count, mpti_publish_tensor, NULL);
    return status;
}

// >>M17 implementation: scaler, check, clip -------------------------------------------------------
MPT_DEF mpt_scaler_config mpt_scaler_defaults(mpt_scaler_dialect dialect)
{
#define MPTI_CONFIG(id, name, init, growth, backoff, interval, hysteresis, floor, cap, flags, rule, stuck) \
    {growth, backoff, floor, cap, 0.0, 0.0, init, interval, (int32_t)id, hysteresis, 4, flags},
    static const mpt_scaler_config table[] = {
        MPT_SCALER_DIALECTS(MPTI_CONFIG) {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0f, 0, -1, 0, 0, 0u}};
    return table[(unsigned)dialect < (unsigned)MPT_SCALER_DIALECT_COUNT ? dialect : MPT_SCALER_DIALECT_COUNT];
}

#define MPTI_DIALECT_NAMES(X) MPT_SCALER_DIALECTS(MPTI_NAME)
MPT_DEF MPTI_TEXT_OF_ROW(mpt_scaler_name, mpt_scaler_dialect, MPTI_DIALECT_NAMES, "unknown")
MPT_DEF MPTI_TEXT_OF_ROW(mpt_verdict_text, uint32_t, MPT_VERDICTS, "unknown verdict")

/* Is x a power of two and a normal float, and its inverse too? */
static int mpti_is_normal_pow2(double x)
{
    const uint64_t bits = mpti_f64_bits(x);
    return (bits << 12) == 0u && x >= 2.0 * MPTI_FLT_MIN && x <= 1.0 / (2.0 * MPTI_FLT_MIN);
}

/* Can the default dialect have this scale? */
static int mpti_is_our_scale(const mpt_scaler_config *c, float scale)
{
    const double x = mpti_to_f64(scale);
    return mpti_is_normal_pow2(x) && c->min_scale <= x && x <= c->max_scale;
}

static int mpti_scaler_config_ok(const mpt_scaler_config *c)
{
    const double   value[] = {c->growth, c->backoff, c->min_scale, c->max_scale, c->tolerance, c->threshold};
    const uint32_t rule = mpti_scaler_rule(c->dialect);
    size_t         i;
    if (c->dialect < 0 || c->dialect >= (int32_t)MPT_SCALER_DIALECT_COUNT ||
        !mpti_f32_is_finite(c->init_scale) || !(c->init_scale > 0.0f))
        return 0;
    if (!rule)
        return 1;
    if (!(c->growth > 1.0) || c->interval < 1 || c->hysteresis < 1 ||
        (!(rule & MPTI_DIVIDE) && !(c->backoff > 0.0 && c->backoff < 1.0)) ||
        c->flags & ~(rule & MPTI_MAY_RAISE ? MPT_SCALER_RAISE | MPT_SCALER_CONSECUTIVE : 0u))
        return 0;
    for (i = 0; i < sizeof value / sizeof *value; i++)      /* the last four: 0 for none */
        if ((!mpti_f64_is_finite(value[i]) && !(i == 1 && rule & MPTI_DIVIDE)) ||
            (i > 1 && (!(value[i] >= 0.0) || value[i] > MPTI_FLT_MAX)) ||
            (i < 4 && rule & MPTI_OURS && !mpti_is_normal_pow2(value[i])))
            return 0;
    return (!(c->max_scale > 0.0) || c->min_scale <= c->max_scale) &&
           (!(rule & MPTI_OURS) || (mpti_is_our_scale(c, c->init_scale) && c->patience >= 1));
}

/* Not inlined, nor is mpt_tensors_init: seeing the early return, gcc warns callers who ignore the status. */
MPT_DEF MPTI_NOINLINE mpt_status mpt_scaler_init(mpt_scaler *s, const mpt_scaler_config *config)
{
    const mpt_scaler_config c = config ? *config : mpt_scaler_defaults(MPT_SCALER_MPT);
    if (!s)
        return MPT_E_ARG;
    memset(s, 0, sizeof *s);
    if (!mpti_scaler_config_ok(&c))
        return MPT_E_ARG;
    s->config = c;
    s->scale = s->home = s->last_good = c.init_scale;
    s->wide = mpti_to_f64(c.init_scale);
    s->hysteresis_left = c.hysteresis;
    s->wait = c.interval;
    s->last_bad = s->last_moved = -1;
    return MPT_OK;
}

#ifndef MPT_NO_CHECKPOINT
/* Not negative and not NaN. */
static int mpti_is_size(double x) { return mpti_f64_bits(x) <= (uint64_t)0x7ff << 52; }

/* Can a scaler have this state after some sequence of steps? Then every further step is defined, too. */
static int mpti_scaler_possible(const mpt_scaler *s)
{
    const mpt_scaler_config *c = &s->config;
    const uint32_t           rule = mpti_scaler_rule(c->dialect);
    const int64_t            good = s->good_steps, bad = s->bad_steps, left = s->hysteresis_left;
    if (!mpti_scaler_config_ok(c) || s->skipped > s->updates || s->skipped_nan > s->skipped ||
        !mpti_is_size(s->wide) || !mpti_is_size(mpti_to_f64(s->scale)) ||
        (!(rule & MPTI_LATE) && mpti_f32_bits(s->scale) != mpti_f32_bits(mpti_to_f32(s->wide))) ||
        s->verdict >= (uint32_t)MPT_VERDICT_COUNT || s->found_inf > 1u ||
        s->cause > (s->found_inf ? 7u : 0u) || s->in_use > 7u)
        return 0;
    if (s->iteration < 0 || s->iteration >> 62 || (uint64_t)s->iteration > s->updates || s->last_bad < -1 ||
        s->last_bad > (rule & MPTI_OURS ? MPTI_RUN * (MPTI_RUN - 1) : s->iteration) || s->last_moved < -1 ||
        s->last_moved > (rule & MPTI_OURS ? 0x7f7fffff : s->iteration))
        return 0;
    if (!rule)
        return !good && !bad && left == c->hysteresis &&
               mpti_f64_bits(s->wide) == mpti_f64_bits(mpti_to_f64(c->init_scale));
    if (good < 0 || bad < 0 ||
        (!(rule & MPTI_OURS) && (good == 0x7fffffff || bad >> 30 ||
                                 good + !(rule & (MPTI_COUNT_FIRST | MPTI_BY_ITERATION)) > c->interval)) ||
        (bad >= c->hysteresis && rule & MPTI_BAD_COUNT) || left > c->hysteresis ||
        left < ((rule & (MPTI_PATIENT | MPTI_STAYS_AT_ONE)) == MPTI_PATIENT ? -0x7fffffff : 1))
        return 0;
    return !(rule & MPTI_OURS) ||
           (mpti_is_our_scale(c, s->scale) && mpti_is_our_scale(c, s->home) &&
            mpti_is_our_scale(c, s->last_good) && s->wait >= 1 && s->wait <= c->interval && s->depth >= 0 &&
            s->depth < 1 << 30 && s->search_bad >= 0 && s->search_bad <= s->search_steps &&
            s->before_steps >= 0 && s->at_floor >= 0 && s->range_steps >= 0 && s->base <= s->base_most &&
            s->base_most < MPTI_UNIT && s->excess <= 12u * MPTI_RUN * MPTI_UNIT &&
            s->climb <= (MPTI_CLIMBED | MPTI_ON_TRIAL));
}
#endif

static mpt_status mpti_scaler_usable(const mpt_scaler *s)
{
    return !s ? MPT_E_ARG : s->in_use & 3u ? MPT_OK : MPT_E_ORDER;
}

MPT_DEF float mpt_scaler_scale(mpt_scaler *s, float x)
{
    if (!s || !mpti_f32_bits(s->config.init_scale))
        return mpti_f32_make(0x7fc00000u);
    s->in_use |= 3u;
    return x * s->scale;
}

MPT_DEF mpt_status mpt_scaler_record(mpt_scaler *s, int found_inf, unsigned cause)
{
    const mpt_status status =
        s && cause & ~(MPT_CAUSE_INF | MPT_CAUSE_NAN | MPT_CAUSE_RANGE) ? MPT_E_ARG : mpti_scaler_usable(s);
    if (status == MPT_OK)
        mpti_count_check(s, (uint32_t)(found_inf || cause), cause);
    return status;
}

MPT_DEF mpt_status mpt_scaler_update(mpt_scaler *s) { return s ? mpti_scaler_advance(s) : MPT_E_ARG; }

/* ---- check, unscale, clip ---- */

/* Add lane[0 .. n-1] in adjacent pairs; n is a power of two. */
MPTI_NOINLINE static double mpti_pair_sum(double *lane, size_t n)
{
    size_t i;
    for (; n > 1; n /= 2)
        for (i = 0; i < n / 2; i++)
            lane[i] = lane[2 * i] + lane[2 * i + 1];
    return lane[0];
}

/* A loop over i in a tile, in `copies`, after `before`. A tile is whole: constant counts vectorize at -O2. */
#define MPTI_TILE_LOOP(copies, name, parameters, arguments, before, ...) \
    MPTI_INLINE void name##_loop parameters                              \
    {                                                                    \
        size_t i;                                                        \
        before;                                                          \
        for (i = 0; i < MPTI_TILE; i++)                                  \
            __VA_ARGS__;                                                 \
    }                                                                    \
    copies(name, name##_loop, parameters, arguments)

MPTI_TILE_LOOP(MPTI_TWICE, mpti_unscale_tile,
               (float *MPTI_RESTRICT u, const float *MPTI_RESTRICT g, float factor, unsigned *bad),
               (u, g, factor, bad), (void)0, u[i] = mpti_unscale_1(g[i], factor, bad))

/* Not inlined: the call costs no time, and each of three callers would get a copy of the code. */
MPTI_NOINLINE MPTI_UNUSED static void mpti_sumsq_tile(double *lane, const float *row);
MPTI_TILE_LOOP(MPTI_TWICE, mpti_sumsq_tile, (double *lane, const float *row), (lane, row), (void)0,
               lane[i] = mpti_sumsq_1(lane[i], row[i]))

/* Squares that are not finite are added too: the caller sees them in the sum of the lanes. */
MPTI_TILE_LOOP(MPTI_ONCE, mpti_lanes_tile,
               (float *MPTI_RESTRICT lane, const float *MPTI_RESTRICT row, float factor), (lane, row, factor),
               (void)0, lane[i] = mpti_add(lane[i], mpti_square_1(mpti_mul(row[i], factor))))

static unsigned char *mpti_grad_from(const mpt_tensor *t, size_t first)
{
    return (unsigned char *)t->grad + first * mpti_format_bytes(t->grad_format);
}

/* Load n elements of a gradient, but at most a tile, times a factor. Returns how many; zeros follow them. */
MPTI_NOINLINE static size_t mpti_scaled_tile(float *tile, const mpt_tensor *t, size_t first, size_t n,
                                             float factor)
{
    const size_t take = mpti_min(n, MPTI_TILE);
    float        g[MPTI_TILE];
    unsigned     bad = 0u;
    mpti_tile_load(g, t->grad, t->grad_format, first, take);
    mpti_unscale_tile(tile, g, factor, &bad);
    return take;
}

/* What all chunks of one check share. */
typedef struct mpti_checking {
    mpt_step          *step;
    mpt_tensor_report *report;      /* [count] or NULL */
    float              factor;
    int                write_back;
    double             slot[MPTI_SLOTS];
    double             sum[MPTI_WINDOW];    /* of each chunk of a window; NaN: look again, in order */
} mpti_checking;

/* Whether the fast path writes a chunk back before it knows that no element is bad: with AVX2, if no product
 * can exceed its gradient: what was written tells the causes. 1.2 to 1.4 times as fast as after the sum. */
static int mpti_writes_ahead(const mpti_checking *c)
{
    return c->write_back && mpti_path() >= MPTI_PATH_AVX2 && mpti_f32_bits(c->factor) <= 0x3f800000u;
}

static void mpti_note_bad(mpti_checking *c, size_t tensor, size_t i, unsigned cause)
{
    mpt_step *const step = c->step;
#define MPTI_COUNT_CAUSE(of)                        \
    (of)->inf_count += cause == MPT_CAUSE_INF;      \
    (of)->nan_count += cause == MPT_CAUSE_NAN;      \
    (of)->range_count += cause == MPT_CAUSE_RANGE;
    MPTI_COUNT_CAUSE(step)
    if (!step->cause) {
        step->bad_tensor = tensor;
        step->bad_index = i;
        step->bad_cause = cause;
    }
    step->cause |= cause;
    if (c->report) {
        mpt_tensor_report *const r = &c->report[tensor];
        MPTI_COUNT_CAUSE(r)
        r->bad_index = r->bad_cause ? r->bad_index : i;
        r->bad_cause = r->bad_cause ? r->bad_cause : cause;
    }
}

/* Load n 16-bit values into a tile, padded with zeros. */
MPTI_NOINLINE static void mpti_codes_in(uint16_t *tile, const void *array, size_t first, size_t n)
{
    memcpy(tile, (const uint16_t *)array + first, n * sizeof *tile);
    if (n < MPTI_TILE)
        memset(tile + n, 0, (MPTI_TILE - n) * sizeof *tile);
}

/* The number of lanes that n elements reach, as a power of two; the others are 0 and add nothing. */
MPTI_NOINLINE static size_t mpti_lane_count(size_t n)
{
    size_t lanes = MPTI_TILE;
    while (lanes < n && lanes < MPTI_LANES)
        lanes *= 2;
    return lanes;
}

MPTI_NOINLINE static double mpti_lanes_sum(const float *lane, size_t lanes)
{
    double sum[MPTI_LANES / 8];
    size_t j;
    for (j = 0; j < lanes / 8; j++)
        sum[j] = mpti_lanes_sum_8(lane + 8 * j);
    return mpti_pair_sum(sum, lanes / 8);
}

/* Check elements first .. first + n - 1, at most one chunk. Returns the sum of squares of the elements times
 * `shift`. This is the reference for faster paths. With `tensor`, its index in the list, bad elements are
 * recorded and gradients written back; with NULL nothing is written, and a bad element gives NaN. */
static double mpti_check_shifted(mpti_checking *c, const mpt_tensor *t, const size_t *tensor, size_t first,
                                 size_t n, float shift)
{
    const size_t lanes = mpti_lane_count(n);
    const int    again = mpti_f32_bits(shift) != 0x3f800000u;
    const int    stored = mpti_writes_ahead(c) || (c->write_back && tensor && again);
    float        lane[MPTI_LANES], g[MPTI_TILE], u[MPTI_TILE], kept[MPTI_TILE];
    size_t       i, j;
    memset(lane, 0, lanes * sizeof *lane);
    for (i = 0; i < n; i += MPTI_TILE) {
        const size_t take = mpti_min(n - i, MPTI_TILE);
        float       *last = u;
        unsigned     bad = 0u;
        mpti_tile_load(g, t->grad, t->grad_format, first + i, take);
        mpti_unscale_tile(u, g, stored ? 1.0f : c->factor, &bad);
        if (c->write_back && !stored) {     /* check the values that the array holds in the end */
            void *const to = tensor ? t->grad : kept;
            mpti_row_store(to, t->grad_format, tensor ? first + i : 0, u, take);
            mpti_row_load(u, to, t->grad_format, tensor ? first + i : 0, take);
            mpti_unscale_tile(kept, u, 1.0f, &bad);
            last = kept;
        }
        if (bad && !tensor)
            return mpti_f64_make((uint64_t)0x7ff8 << 48);
        for (j = 0; bad && j < take; j++) {
            const unsigned cause = mpti_cause_1(g[j], last[j]);
            if (cause && !again)
                mpti_note_bad(c, *tensor, first + i + j, cause);
            last[j] = cause ? 0.0f : last[j];
        }
        mpti_lanes_tile(lane + i % MPTI_LANES, last, shift);
    }
    return mpti_lanes_sum(lane, lanes);
}

static double mpti_check_chunk(mpti_checking *c, const mpt_tensor *t, const size_t *tensor, size_t first,
                               size_t n)
{
    const double sum = mpti_check_shifted(c, t, tensor, first, n, 1.0f);
    const float  shift = mpti_shift_for(sum);
    return mpti_sum_is_sound(sum) || mpti_f64_bits(sum) >> 51 == 0xfffu     /* NaN: a bad element */
               ? sum : mpti_unshift(mpti_check_shifted(c, t, tensor, first, n, shift), shift);
}

#if MPTI_X86
/* mpti_lanes_tile of a gradient; lane may be NULL. With `back` the products are written back, and the
 * squares are of these. A loop for each format: with tests inside of one, f16 took 1.2 times as long. */
MPTI_AVX2_TARGET static void mpti_lanes_avx2(float *lane, unsigned char *g, mpt_format format, float factor,
                                             int back)
{
    const mpti_v8 f = mpti_all_256(mpti_f32_bits(factor));
    mpti_v8       v[4];
    size_t        j;
#define MPTI_LANES_BY(bytes, in, ...)                                                                     \
    for (j = 0; j < MPTI_TILE; j += 32, g += 32 * (bytes)) {                                              \
        MPTI_EACH_4(q, v[q] = mpti_mul_ps_256(in(g + 8 * (bytes) * q), f);)                               \
        if (back) {                                                                                       \
            __VA_ARGS__                                                                                   \
        }                                                                                                 \
        if (lane)                                                                                         \
            MPTI_EACH_4(q, mpti_put_256((unsigned char *)lane,                                            \
                                        mpti_add_ps_256(mpti_load_256(lane),                              \
                                                        mpti_mul_ps_256(v[q], v[q])), 0); lane += 8;)     \
    }
    if (format == MPT_F32) {
        MPTI_LANES_BY(4, mpti_load_256, MPTI_EACH_4(q, mpti_put_256(g + 32 * q, v[q], 0);))
    } else if (format == MPT_F16) {
        mpti_w8 h;
        MPTI_LANES_BY(2, mpti_f16_8_256,
                      MPTI_EACH_4(q, h = mpti_halves_256(v[q]); mpti_put_w8(g + 16 * q, h, 0);
                                  v[q] = mpti_floats_256(h);))
    } else if (!lane) {         /* in any order: 0.7 of the time */
        for (j = 0; j < MPTI_TILE; j += 32, g += 64) {
            mpti_bf16_in_256(v, g);
            MPTI_EACH_4(q, v[q] = mpti_mul_ps_256(v[q], f);)
            mpti_bf16_out_256(g, v, 0);
        }
    } else {                    /* in order, as mpti_bf16_in_256 is not */
        MPTI_LANES_BY(2, mpti_bf16_8_256,
                      MPTI_EACH_4(q, v[q] = mpti_bf16_round_256(v[q]);)
                      mpti_put_256(g, mpti_upper_halves_256(v[0], v[1]), 0);
                      mpti_put_256(g + 32, mpti_upper_halves_256(v[2], v[3]), 0);
                      MPTI_EACH_4(q, v[q] &= 0xffff0000u;))
    }
    MPTI_NARROW();
}

/* mpti_lanes_sum: a check in cache takes 0.85 of the time with it. */
MPTI_BINARY(MPTI_IN_256, mpti_v8, mpti_pairs_256, mpti_v8, MPTI_OF_3("vhaddps"))
MPTI_AVX2_TARGET static double mpti_lanes_sum_avx2(const float *lane, size_t lanes)
{
    double sum[MPTI_LANES / 8];
    size_t j, k;
    for (j = 0; j < lanes / 8; j += 4, lane += 32) {
        const mpti_v8 a = mpti_pairs_256(mpti_load_256(lane), mpti_load_256(lane + 8));
        const mpti_v8 b = mpti_pairs_256(mpti_load_256(lane + 16), mpti_load_256(lane + 24));
        const mpti_v8 quads = mpti_pairs_256(a, b);
        float         q[8];
        memcpy(q, &quads, sizeof q);
        for (k = 0; k < 4; k++)
            sum[j + k] = mpti_to_f64(mpti_add(q[k], q[4 + k]));
    }
    MPTI_NARROW();
    return mpti_pair_sum(sum, lanes / 8);
}
#endif

/* Multiply elements first .. first + n - 1 of a gradient by a factor, in place. */
MPTI_NOINLINE static void mpti_grads_scale(const mpt_tensor *t, size_t first, size_t n, float factor)
{
    const size_t end = first + n;
    float        row[MPTI_TILE];
    for (; first < end; first += n) {
#if MPTI_X86
        if (mpti_path() >= MPTI_PATH_AVX2 && end - first >= MPTI_TILE) {
            mpti_lanes_avx2(NULL, mpti_grad_from(t, first), t->grad_format, factor, 1);
            n = MPTI_TILE;
            continue;
        }
#endif
        n = mpti_scaled_tile(row, t, first, end - first, factor);
        mpti_row_store(t->grad, t->grad_format, first, row, n);
    }
}

/* The sum of squares of a chunk without bad elements, times a factor; with `back` (AVX2) they are written. */
MPTI_NOINLINE static double mpti_sum_of(const mpt_tensor *t, size_t first, size_t n, float factor, int back)
{
    unsigned char *const g = mpti_grad_from(t, first);
    const size_t         lanes = mpti_lane_count(n), bytes = mpti_format_bytes(t->grad_format);
    float                lane[MPTI_LANES] MPTI_ALIGNED, u[MPTI_TILE];
    size_t               i;
    memset(lane, 0, lanes * sizeof *lane);
    for (i = 0; i < n; i += MPTI_TILE) {
        const size_t take = mpti_min(n - i, MPTI_TILE);
        void        *from = g + i * bytes;
#if MPTI_X86
        if (mpti_path() >= MPTI_PATH_AVX2) {
            size_t k;
            if (take < MPTI_TILE)
                from = memcpy(memset(u, 0, sizeof u), from, take * bytes);
            /* Out of cache up to a quarter faster (on a Xeon more), in the third cache a tenth slower. */
            for (k = 0; t->n >> 18 && k < MPTI_TILE * bytes; k += 64u)
                __builtin_prefetch((const void *)((uintptr_t)from + 16384u + k), 0, 2);
            mpti_lanes_avx2(lane + i % MPTI_LANES, (unsigned char *)from, t->grad_format, factor, back);
            if (back && take < MPTI_TILE)
                memcpy(g + i * bytes, from, take * bytes);
            continue;
        }
#endif
        if (t->grad_format != MPT_F32 || take < MPTI_TILE) {
            mpti_tile_load(u, g, t->grad_format, i, take);
            from = u;
        }
        mpti_lanes_tile(lane + i % MPTI_LANES, (const float *)from, factor);
    }
#if MPTI_X86
    if (mpti_path() >= MPTI_PATH_AVX2)
        return mpti_lanes_sum_avx2(lane, lanes);
#endif
    (void)back;
    return mpti_lanes_sum(lane, lanes);
}

/* Check a chunk the fast way. Returns nonzero, with the sum, and with the gradients written back if asked, if
 * the chunk has no bad element. Returns 0 if the chunk, or this path, needs the reference. */
static int mpti_check_chunk_fast(const mpti_checking *c, const mpt_tensor *t, size_t first, size_t n,
                                 double *sum)
{
    const int ahead = mpti_writes_ahead(c);
    if (mpti_path() < MPTI_PATH_SSE2 || (c->write_back && !ahead && t->grad_format != MPT_F32))
        return 0;
    *sum = mpti_sum_of(t, first, n, c->factor, ahead);
    /* A sum of 0 is right if all are 0, as in unused rows of embeddings: then so is that of (x * 2^100)^2. */
    if (!mpti_sum_is_sound(*sum) &&
        (!mpti_f64_is_zero(*sum) || !mpti_f64_is_zero(mpti_sum_of(t, first, n, mpti_shift_for(*sum), 0))))
        return 0;
    if (c->write_back && !ahead)
        mpti_grads_scale(t, first, n, c->factor);
    return 1;
}

/* Sum chunks, write good ones back. With threads bad elements wait for mpti_check_piece, to be in order. */
static void mpti_check_beside(void *context, const mpti_piece *piece)
{
    mpti_checking *const c = (mpti_checking *)context;
    size_t               first = piece->first, chunk = piece->chunk, n;
    for (; first < piece->end; first += MPTI_CHUNK, chunk++) {
        double *const sum = &c->sum[chunk % MPTI_WINDOW];
        n = mpti_min(piece->end - first, MPTI_CHUNK);
        if (mpti_check_chunk_fast(c, piece->t, first, n, sum))
            continue;
        *sum = mpti_check_chunk(c, piece->t, MPTI_PARTS == 1 ? &piece->tensor : NULL, first, n);
        if (MPTI_PARTS > 1 && c->write_back && !mpti_writes_ahead(c) && mpti_f64_is_finite(*sum))
            mpti_grads_scale(piece->t, first, n, c->factor);
    }
}

static void mpti_check_piece(void *context, const mpti_piece *piece)
{
    mpti_checking *const c = (mpti_checking *)context;
    size_t               first = piece->first, chunk = piece->chunk;
    for (; first < piece->end; first += MPTI_CHUNK, chunk++) {
        double sum = c->sum[chunk % MPTI_WINDOW];
        if (MPTI_PARTS > 1 && !mpti_f64_is_finite(sum))
            sum = mpti_check_chunk(c, piece->t, &piece->tensor, first,
                                   mpti_min(piece->end - first, MPTI_CHUNK));
        if (piece->t->whole && piece->t->sums)
            piece->t->sums[first / MPTI_CHUNK] = sum;
        c->slot[chunk % MPTI_SLOTS] += sum;
    }
}

static mpt_status mpti_check(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                             mpt_tensor_report *report, int write_back)
{
    mpt_status    status = mpti_scaler_usable(s);
    mpti_checking c;
    uint32_t      stage;
    int           mixed;
    if (status == MPT_OK && !step)
        status = MPT_E_ARG;
    if (status == MPT_OK && (!mpti_may_check(s, step) || !(s->in_use & 1u)))
        status = MPT_E_ORDER;
    if (status == MPT_OK)
        status = write_back ? mpt_tensors_validate(tensors, count, MPT_NEEDS_GRAD | MPTI_ZEROES, NULL)
                            : mpti_tensors_ok(tensors, count, MPT_NEEDS_GRAD, NULL);
    if (status != MPT_OK) {
        mpti_refuse_check(s, step);
        return status;
    }
    memset(step, 0, sizeof *step);
    if (report)
        memset(report, 0, count * sizeof *report);
    memset(c.slot, 0, sizeof c.slot);
    c.step = step, c.report = report;
    c.write_back = write_back, c.factor = mpti_inverse_scale(s->scale);
    mpti_pieces(tensors, count, mpti_check_beside, mpti_check_piece, &c);
    stage = mpti_parts_of(tensors, count, &mixed);
    stage |= (uint32_t)(write_back ? MPT_STAGE_UNSCALED : MPT_STAGE_CHECKED);
    mpti_step_checked(s, step, mpti_pair_sum(c.slot, MPTI_SLOTS), write_back ? 1.0f : c.factor, stage);
    step->sizes = mpti_sizes_filter(tensors, count, 0u);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_check(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                             mpt_tensor_report *report)
{
    return mpti_check(s, step, tensors, count, report, 0);
}

MPT_DEF mpt_status mpt_unscale(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                               mpt_tensor_report *report)
{
    return mpti_check(s, step, tensors, count, report, 1);
}

MPT_DEF mpt_status mpt_steps_join(mpt_step *steps, size_t count)
{
    double   sumsq = 0.0;
    unsigned bad = 0u;
    size_t   i;
    if (mpti_no_array(steps, count, sizeof *steps))
        return MPT_E_ARG;
    for (i = 0; i < count; i++) {
        if (!mpti_step_is_open(&steps[i]) || mpti_is_clipped(&steps[i]))
            return MPT_E_ORDER;
        bad |= steps[i].found_inf;
        sumsq += steps[i].sumsq;
    }
    for (i = 0; i < count; i++) {
        steps[i].sumsq = sumsq;
        steps[i].found_inf = bad ? 1u : 0u;
        steps[i].norm = mpti_norm_from_sumsq(sumsq, bad);
    }
    return MPT_OK;
}

/* The sum of squares of a list of which each rank has parts, on the tree of the whole list: the sums of its
 * chunks are reduced, some at a time; the rank that has a chunk gives its sum, the others give 0. */
static int mpti_combine_parts(const mpt_tensor *tensors, size_t count, size_t chunks, mpt_reduce_fn *reduce,
                              void *user, double *sumsq)
{
    double slot[MPTI_SLOTS], sum[8 * MPTI_SLOTS];
    size_t at, many, base, i, k;
    memset(slot, 0, sizeof slot);
    for (at = 0; at < chunks; at += many) {
        many = mpti_min(chunks - at, sizeof sum / sizeof *sum);
        memset(sum, 0, sizeof sum);
        for (i = base = 0; i < count; base += mpti_chunks(tensors[i++].whole)) {
            const size_t first = base + tensors[i].first / MPTI_CHUNK;
            const size_t end = mpti_min(first + mpti_chunks(tensors[i].n), at + many);
            for (k = first > at ? first : at; k < end; k++)
                sum[k - at] = tensors[i].sums[k - first];
        }
        if (reduce(user, sum, many))
            return 1;
        for (k = 0; k < many; k++)
            slot[k % MPTI_SLOTS] += sum[k];
    }
    *sumsq = mpti_pair_sum(slot, MPTI_SLOTS);
    return 0;
}

MPT_DEF mpt_status mpt_step_combine(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                                    mpt_reduce_fn *reduce, void *user)
{
    const mpt_status status = mpti_tensors_ok(tensors, count, 0u, NULL);
    double           values[MPTI_COMBINED], sumsq = 0.0;
    size_t           chunks = 0, i;
    int              bad;
    if (!s || !step || !reduce)
        return MPT_E_ARG;
    if (status != MPT_OK)
        return status;
    (void)mpti_parts_of(tensors, count, &bad);
    for (i = 0; i < count; i++) {
        chunks += mpti_chunks(tensors[i].whole);
        bad |= tensors[i].whole && tensors[i].n && !tensors[i].sums;
    }
    if (bad)
        return MPT_E_ARG;
    mpti_combine_pack(step, !mpti_may_combine(s, step), values);
    step->found_inf = 1u;               /* stays if a reduction fails, or throws an exception */
    if (mpti_combine_parts(tensors, count, chunks, reduce, user, &sumsq) ||
        reduce(user, values, MPTI_COMBINED))
        return MPT_E_DATA;
    if (chunks)
        values[MPTI_COMBINED - 1] = sumsq;
    return mpti_combine_unpack(s, step, values) ? MPT_OK : MPT_E_ORDER;
}

static void mpti_accumulate_piece(void *context, const mpti_piece *piece)
{
    const mpt_tensor *const dst = piece->t, *const src = (const mpt_tensor *)context + piece->tensor;
    float                   a[MPTI_TILE] MPTI_ALIGNED, b[MPTI_TILE] MPTI_ALIGNED;
    size_t                  j, first;
    for (first = piece->first; first < piece->end; first += MPTI_TILE) {
        const size_t take = mpti_min(piece->end - first, MPTI_TILE);
        mpti_tile_load(a, dst->grad, dst->grad_format, first, take);
        mpti_tile_load(b, src->grad, src->grad_format, first, take);
        for (j = 0; j < MPTI_TILE; j++)         /* a constant number: this vectorizes */
            a[j] = a[j] + b[j];
        mpti_row_store(dst->grad, dst->grad_format, first, a, take);
    }
}

MPT_DEF mpt_status mpt_accumulate(const mpt_tensor *dst, const mpt_tensor *src, size_t count)
{
    const mpti_touch touch = {dst, src, MPT_NEEDS_GRAD, MPT_NEEDS_GRAD};
    mpt_status       status = mpti_tensors_ok(dst, count, MPT_NEEDS_GRAD | MPTI_ZEROES, NULL);
    mpti_span        span[MPTI_ARRAYS];
    size_t           i;
    if (status == MPT_OK)
        status = mpti_tensors_ok(src, count, MPT_NEEDS_GRAD, NULL);
    for (i = 0; i < count && status == MPT_OK; i++) {
        mpti_spans(&touch, i, span);
        if (dst[i].n != src[i].n || mpti_spans_meet(&span[MPTI_GRAD], &span[MPTI_MASTER]))
            status = MPT_E_ARG;
    }
    if (status == MPT_OK && mpti_first_clash(&touch, count) < count)
        status = MPT_E_ARG;
    if (status == MPT_OK)
        mpti_pieces(dst, count, mpti_accumulate_piece, NULL, (void *)(uintptr_t)src);
    return status;
}

static void mpti_zero_piece(MPTI_UNUSED void *context, const mpti_piece *piece)
{
    memset(mpti_grad_from(piece->t, piece->first), 0,
           (piece->end - piece->first) * mpti_format_bytes(piece->t->grad_format));
}

MPT_DEF mpt_status mpt_grads_zero(const mpt_tensor *tensors, size_t count)
{
    const mpt_status status = mpti_tensors_ok(tensors, count, MPT_NEEDS_GRAD | MPTI_ZEROES, NULL);
    if (status == MPT_OK)
        mpti_pieces(tensors, count, mpti_zero_piece, NULL, NULL);
    return status;
}

static mpt_status mpti_clip_refused(mpt_step *step, mpt_status status)
{
    step->stage = (uint32_t)MPT_STAGE_REFUSED;
    return status;
}

MPT_DEF mpt_status mpt_clip(mpt_step *step, float max_norm)
{
    if (!step)
        return MPT_E_ARG;
    if (!(max_norm > 0.0f) || !mpti_f32_is_finite(max_norm))
        return mpti_clip_refused(step, MPT_E_ARG);
    return mpti_clip_step(step, max_norm) ? MPT_OK : MPT_E_ORDER;
}

/* The clip factor (1: none), and the limit (0: none). */
typedef struct mpti_clipping { float factor, max_abs; mpt_opts down; } mpti_clipping;

/* Magnitudes are compared and replaced as bit patterns, which have the same order; the sign stays. */
static void mpti_clip_piece(void *context, const mpti_piece *piece)
{
    const mpti_clipping *const c = (const mpti_clipping *)context;
    const mpt_tensor *const    t = piece->t;
    const uint32_t most = (uint32_t)mpt_encode(t->grad_format, mpti_to_f64(c->max_abs), &c->down, NULL);
    size_t         i;
    if (mpti_f32_bits(c->factor) != 0x3f800000u)
        mpti_grads_scale(t, piece->first, piece->end - piece->first, c->factor);
    for (i = piece->first; i < piece->end && mpti_is_nonzero(c->max_abs); i++)
        if (t->grad_format == MPT_F32) {
            float *const   g = (float *)t->grad + i;
            const uint32_t bits = mpti_f32_bits(*g);
            if ((bits & 0x7fffffffu) > most)
                *g = mpti_f32_make((bits & 0x80000000u) | most);
        } else {
            uint16_t *const g = (uint16_t *)t->grad + i;
            if ((*g & 0x7fffu) > most)
                *g = (uint16_t)((*g & 0x8000u) | most);
        }
}

MPT_DEF mpt_status mpt_clip_apply(mpt_step *step, const mpt_tensor *tensors, size_t count, float max_abs)
{
    mpti_clipping c = {1.0f, max_abs, mpti_plain_opts};
    mpt_status    status;
    if (!step)
        return MPT_E_ARG;
    if (!(max_abs >= 0.0f) || !mpti_f32_is_finite(max_abs))
        return mpti_clip_refused(step, MPT_E_ARG);
    if ((step->stage & 3u) != (uint32_t)MPT_STAGE_UNSCALED)     /* only unscaled gradients can be changed */
        return mpti_clip_refused(step, MPT_E_ORDER);
    status = mpt_tensors_validate(tensors, count, MPT_NEEDS_GRAD | MPTI_ZEROES, NULL);
    if (status != MPT_OK)
        return mpti_clip_refused(step, status);
    if (step->found_inf)
        return MPT_OK;
    c.factor = step->clip_factor;
    c.down.rounding = MPT_RND_TOWARD_ZERO;
    c.down.overflow = MPT_OVERFLOW_SATURATE;
    mpti_pieces(tensors, count, mpti_clip_piece, NULL, &c);
    step->clip_factor = 1.0f;
    return MPT_OK;
}

typedef struct mpti_getting { float *dst, factor; } mpti_getting;

static void mpti_gradient_piece(void *context, const mpti_piece *piece)
{
    const mpti_getting c = *(const mpti_getting *)context;
    float              row[MPTI_TILE];
    size_t             first, take;
    for (first = piece->first; first < piece->end; first += take) {
        take = mpti_scaled_tile(row, piece->t, first, piece->end - first, c.factor);
        memcpy(c.dst + first, row, take * sizeof *row);
    }
}

MPT_DEF mpt_status mpt_grad_get(const mpt_step *step, const mpt_tensor *t, float *dst)
{
    mpt_status   status = !step ? MPT_E_ARG : !mpti_step_is_open(step) ? MPT_E_ORDER : MPT_OK;
    mpti_getting c = {dst, 0.0f};
    if (status == MPT_OK)
        status = mpti_tensors_ok(t, 1, MPT_NEEDS_GRAD, NULL);
    if (status != MPT_OK)
        return status;
    if ((t->n && !dst) ||
        mpti_meet(dst, t->n * sizeof *dst, t->grad, t->n * mpti_format_bytes(t->grad_format)))
        return MPT_E_ARG;
    c.factor = mpti_mul(step->grad_factor, step->clip_factor);
    if (step->found_inf && t->n)
        memset(dst, 0, t->n * sizeof *dst);
    else
        mpti_pieces(t, 1, mpti_gradient_piece, NULL, &c);
    return MPT_OK;
}

MPT_DEF const char *mpt_order_text(const mpt_scaler *s, const mpt_step *step)
{
    if (!s || !mpti_f32_bits(s->config.init_scale))
        return "mpt_scaler_init is due: none was called, or it refused its configuration";
    if (!(s->in_use & 3u))
        return "mpt_scaler_scale is due: nothing has multiplied a loss by this scale";
    if (step && step->stage & (uint32_t)MPT_STAGE_REFUSED)
        return "a clip or an optimizer's step was refused, such as one without a check (status; on a GPU "
               "misuse); to go on: mpt_scaler_update, and zero the mpt_step";
    if (s->in_use & 4u)
        return "a check was refused: by its status, after a refused step, or as a second one before the "
               "update (lists share one); to go on: mpt_scaler_update, and zero the mpt_step";
    if (!(s->in_use & 1u))
        return "mpt_scaler_scale is due: nothing has multiplied the loss of this step by the scale, or the "
               "last update was a second one or had no check";
    if (!s->checks || (step && step->update != s->updates + 1u))
        return "mpt_check or mpt_unscale is due: none has read this step's gradients";
    if (step && mpti_may_combine(s, step) && !mpti_step_is_open(step))
        return "mpt_step_combine is due: the list has parts of tensors, so each rank knows a part only";
    if (step && mpti_step_is_open(step))
        return "an optimizer's step, then mpt_scaler_update are due: gradients (of these sizes) were checked";
    return "mpt_scaler_update is due: gradients were checked, and this step was taken";
}

// >>M18 implementation: optimizers ----------------------------------------------------------------
/* ---- weights, wherever they live ---- */

MPTI_TILE_LOOP(MPTI_THRICE, mpti_split_tile,
               (uint16_t *MPTI_RESTRICT high, uint16_t *MPTI_RESTRICT low, const float *MPTI_RESTRICT w),
               (high, low, w), (void)0, mpti_split(mpti_f32_bits(w[i]), &high[i], &low[i]))
MPTI_TILE_LOOP(MPTI_THRICE, mpti_unsplit_tile,
               (float *MPTI_RESTRICT w, const uint16_t *MPTI_RESTRICT high,
                const uint16_t *MPTI_RESTRICT low),
               (w, high, low), (void)0, w[i] = mpti_f32_make(mpti_unsplit(high[i], low[i])))
MPTI_TILE_LOOP(MPTI_TWICE, mpti_kahan_join_tile,
               (float *MPTI_RESTRICT w, const float *MPTI_RESTRICT rest, int is_f16), (w, rest, is_f16),
               (void)0, w[i] = mpti_kahan_join(w[i], rest[i], is_f16))
MPTI_TILE_LOOP(MPTI_TWICE, mpti_kahan_rest_tile,
               (float *MPTI_RESTRICT rest, const float *MPTI_RESTRICT w, int is_f16), (rest, w, is_f16),
               (void)0, rest[i] = mpti_kahan_rest(w[i], rest[i], is_f16))

/* Elements first .. first + n - 1 of an array as floats. Whole tiles of a float array are returned in place;
 * others in `local`, a last one padded with zeros. If array is NULL, no caller reads the result. */
MPTI_NOINLINE static float *mpti_tile_in(float *local, void *array, mpt_format format, size_t first, size_t n)
{
    if (!array)
        return local;
    if (format == MPT_F32 && n % MPTI_TILE == 0)
        return (float *)array + first;
    mpti_tile_load(local, array, format, first, n);
    return local;
}

/* Store n elements of a tile, unless it is the array itself. */
MPTI_NOINLINE static void mpti_tile_out(const float *tile, void *array, mpt_format format, size_t first,
                                        size_t n)
{
    if (format != MPT_F32 || tile != (float *)array + first)
        mpti_row_store(array, format, first, tile, n);
}

static float *mpti_weight_in(float *local, const mpt_tensor *t, size_t first, size_t n)
{
    if (t->storage == MPT_STORE_MASTER)
        return mpti_tile_in(local, t->master, MPT_F32, first, n);
    if (t->storage == MPT_STORE_SPLIT) {
        uint16_t high[MPTI_TILE] MPTI_ALIGNED, low[MPTI_TILE] MPTI_ALIGNED;
        mpti_codes_in(high, t->param, first, n);
        mpti_codes_in(low, t->extra, first, n);
        mpti_unsplit_tile(local, high, low);
        return local;
    }
    mpti_tile_load(local, t->param, t->param_format, first, n);
    if (t->storage == MPT_STORE_KAHAN) {
        float rest[MPTI_TILE] MPTI_ALIGNED;
        mpti_tile_load(rest, t->extra, t->param_format, first, n);
        mpti_kahan_join_tile(local, rest, t->param_format == MPT_F16);
    }
    return local;
}

/* What selects a tensor's random bits, beside its seed: the steps taken and its index in the list. */
typedef struct mpti_random_at { uint64_t step; uint32_t stream; } mpti_random_at;

static void mpti_stochastic_out(const float *tile, const mpt_tensor *t, void *array, mpt_format format,
                                size_t first, size_t n, mpti_random_at at)
{
    mpt_opts o = mpti_plain_opts;
    o.seed = t->seed;
    o.stream = at.stream, o.step = at.step;
    o.first_element = (uint64_t)t->first + first;
    (void)mpt_stochastic_n(format, (unsigned char *)array + first * sizeof(uint16_t), tile, n, &o);
}

/* Store one of a tensor's moments: `stream` is MPTI_STREAM_M or MPTI_STREAM_V. */
MPTI_NOINLINE static void mpti_moment_out(const float *tile, const mpt_tensor *t, void *array, size_t first,
                                          size_t n, mpti_random_at at, uint32_t stream)
{
    at.stream ^= stream;
    if (t->moments == MPT_MOMENTS_BF16)
        mpti_stochastic_out(tile, t, array, MPT_BF16, first, n, at);
    else
        mpti_tile_out(tile, array, mpti_moments_format(t), first, n);
}

static void mpti_weight_out(const float *tile, const mpt_tensor *t, size_t first, size_t n, mpti_random_at at)
{
    uint16_t high[MPTI_TILE] MPTI_ALIGNED, low[MPTI_TILE] MPTI_ALIGNED;
    float    rest[MPTI_TILE] MPTI_ALIGNED;
    if (t->storage == MPT_STORE_STOCHASTIC)
        mpti_stochastic_out(tile, t, t->param, t->param_format, first, n, at);
    else if (t->storage == MPT_STORE_KAHAN) {
        mpti_row_store(t->param, t->param_format, first, tile, n);
        mpti_tile_load(rest, t->param, t->param_format, first, n);
        mpti_kahan_rest_tile(rest, tile, t->param_format == MPT_F16);
        mpti_row_store(t->extra, t->param_format, first, rest, n);
    } else if (t->storage == MPT_STORE_SPLIT) {
        mpti_split_tile(high, low, tile);
        memcpy((uint16_t *)t->param + first, high, n * sizeof *high);
        memcpy((uint16_t *)t->extra + first, low, n * sizeof *low);
    } else {
        if (t->storage == MPT_STORE_MASTER)
            mpti_tile_out(tile, t->master, MPT_F32, first, n);
        if (t->param)
            mpti_param_store(t, first, tile, n);
    }
}

/* Copy weights to an array of floats that stands in the place of the gradient or, if `set`, from it. */
static void mpti_weights_piece(void *set, const mpti_piece *piece)
{
    const mpti_random_at nowhere = {0u, 0u};
    float *const         array = (float *)piece->t->grad;
    float                local[MPTI_TILE];
    size_t               first;
    for (first = piece->first; first < piece->end; first += MPTI_TILE) {
        const size_t n = mpti_min(piece->end - first, MPTI_TILE);
        if (set) {
            mpti_tile_load(local, array, MPT_F32, first, n);
            mpti_weight_out(local, piece->t, first, n, nowhere);
        } else {
            memcpy(array + first, mpti_weight_in(local, piece->t, first, n), n * sizeof *array);
        }
    }
}

static mpt_status mpti_weights_copy(const mpt_tensor *t, const float *array, int set)
{
    mpt_status status = mpti_tensors_ok(t, 1, MPT_NEEDS_WEIGHT, NULL);
    mpt_tensor with;
    if (status != MPT_OK)
        return status;
    with = *t;
    with.grad = (void *)(uintptr_t)array, with.grad_format = MPT_F32, with.sums = NULL;
    if (t->storage == MPT_STORE_STOCHASTIC)
        with.storage = MPT_STORE_NEAREST;
    if (!set || !array || array != t->param || t->param_format != MPT_F32)
        status = mpti_tensors_ok(&with, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD, NULL);
    if (status == MPT_OK)
        mpti_pieces(&with, 1, mpti_weights_piece, NULL, set ? &with : NULL);
    return status;
}

MPT_DEF mpt_status mpt_weights_set(const mpt_tensor *t, const float *src)
{
    return mpti_weights_copy(t, src, 1);
}

MPT_DEF mpt_status mpt_weights_get(const mpt_tensor *t, float *dst) { return mpti_weights_copy(t, dst, 0); }

/* ---- optimizers: a function for one tile of one tensor, padded with zeros; k: its constants ---- */

#define MPTI_TILE_PARAMETERS (const float *MPTI_RESTRICT g, float *MPTI_RESTRICT w, float *MPTI_RESTRICT m, \
                              float *MPTI_RESTRICT v, void *k)
typedef void mpti_tile_fn MPTI_TILE_PARAMETERS;

/* Compilers do not vectorize sqrtf, which may set errno. So a loop's last argument is a function for a strip
 * of roots, with the same bits on every path. MPTI_ROOTED defines the copies of a loop, each with its own. */
#define MPTI_STRIP 16
typedef void mpti_roots_fn(float *root, const float *v);
static void mpti_roots(float *root, const float *v)
{
    size_t i;
    for (i = 0; i < MPTI_STRIP; i++)
        root[i] = mpti_sqrt(v[i]);
}
#if MPTI_X86
MPTI_UNARY(MPTI_IN_256, mpti_v8, mpti_sqrt_8_256, mpti_v8, MPTI_OF_2("vsqrtps"))

MPTI_AVX2_TARGET static inline void mpti_roots_256(float *root, const float *v)
{
    mpti_put_256((unsigned char *)root, mpti_sqrt_8_256(mpti_load_256(v)), 0);
    mpti_put_256((unsigned char *)(root + 8), mpti_sqrt_8_256(mpti_load_256(v + 8)), 0);
}

#define MPTI_ROOTED(name, loop, parameters, ...)                                                    \
    MPTI_COPY(MPTI_AVX2_TARGET, name##_avx2, loop, parameters, (__VA_ARGS__, mpti_roots_256))       \
    MPTI_CHOICE(MPTI_PATH_AVX2, name, parameters, name##_avx2(__VA_ARGS__), loop(__VA_ARGS__, mpti_roots))
#else
#define MPTI_ROOTED(name, loop, parameters, ...) MPTI_ONCE(name, loop, parameters, (__VA_ARGS__, mpti_roots))
#endif

/* Prefetch bytes of an array from `first` on, to write them; beyond its end that has no effect. */
MPTI_INLINE void mpti_prefetch(const void *array, size_t first, size_t bytes)
{
#if defined(__GNUC__) || defined(__clang__)
    size_t i;
    for (i = first; i < first + bytes; i += 64u)
        __builtin_prefetch((const void *)((uintptr_t)array + i), 1);
#endif
    (void)array, (void)first, (void)bytes;
}

/* Prefetches the next tile of w: out of cache a tenth faster. The Adam family would lose an eighth by it. */
MPTI_INLINE void mpti_sgd_loop MPTI_TILE_PARAMETERS
{
    const mpti_sgd_k c = *(const mpti_sgd_k *)k;
    size_t           i;
    (void)v;
    mpti_prefetch(w, MPTI_TILE * sizeof *w, MPTI_TILE * sizeof *w);
    if (mpti_is_nonzero(c.momentum))            /* outside the loops, so that they vectorize */
        for (i = 0; i < MPTI_TILE; i++)
            mpti_sgd_1(g[i], &w[i], &m[i], &c);
    else
        for (i = 0; i < MPTI_TILE; i++)
            mpti_sgd_1(g[i], &w[i], &m[i], &c);
}

MPTI_TILE_LOOP(MPTI_TWICE, mpti_lion_tile, MPTI_TILE_PARAMETERS, (g, w, m, v, k),
               const mpti_lion_k c = *(const mpti_lion_k *)k; (void)v,
               mpti_lion_1(g[i], &w[i], &m[i], &c))

/* The Adam family, in strips of one vector; the processor has several strips in flight at once. */
MPTI_INLINE void mpti_adamw_loop(const float *MPTI_RESTRICT g, float *MPTI_RESTRICT w,
                                 float *MPTI_RESTRICT m, float *MPTI_RESTRICT v, void *k,
                                 mpti_roots_fn *roots)
{
    const mpti_adamw_k c = *(const mpti_adamw_k *)k;
    float              root[MPTI_STRIP];
    size_t             at, i;
    for (at = 0; at < MPTI_TILE; at += MPTI_STRIP) {
        for (i = 0; i < MPTI_STRIP; i++)
            mpti_adamw_moments_1(g[at + i], w[at + i], &m[at + i], &v[at + i], &c);
        if (c.amsgrad)
            for (i = 0; i < MPTI_STRIP; i++)
                v[MPTI_TILE + at + i] = mpti_at_least(v[MPTI_TILE + at + i], v[at + i]);
        roots(root, v + (c.amsgrad ? MPTI_TILE : 0u) + at);
        for (i = 0; i < MPTI_STRIP; i++)
            mpti_adamw_weight_1(&w[at + i], m[at + i], root[i], &c);
    }
}

/* The first of LAMB's three passes: the moments. */
MPTI_TILE_LOOP(MPTI_TWICE, mpti_lamb_tile, MPTI_TILE_PARAMETERS, (g, w, m, v, k),
               const mpti_adamw_k c = *(const mpti_adamw_k *)k,
               mpti_adamw_moments_1(g[i], w[i], &m[i], &v[i], &c))

MPTI_INLINE void mpti_lamb_direction_loop(float *MPTI_RESTRICT r, const float *MPTI_RESTRICT w,
                                          const float *MPTI_RESTRICT m, const float *MPTI_RESTRICT v,
                                          const mpti_adamw_k *k, mpti_roots_fn *roots)
{
    const mpti_adamw_k c = *k;
    float              root[MPTI_STRIP];
    size_t             at, i;
    for (at = 0; at < MPTI_TILE; at += MPTI_STRIP) {
        roots(root, v + at);
        for (i = 0; i < MPTI_STRIP; i++)
            r[at + i] = mpti_adamw_direction_1(w[at + i], m[at + i], root[i], &c);
    }
}

MPTI_TILE_LOOP(MPTI_TWICE, mpti_along, (float *MPTI_RESTRICT w, const float *MPTI_RESTRICT r, float factor),
               (w, r, factor), (void)0, w[i] = mpti_fma(factor, r[i], w[i]))

MPTI_TWICE(mpti_sgd_tile, mpti_sgd_loop, MPTI_TILE_PARAMETERS, (g, w, m, v, k))
MPTI_ROOTED(mpti_adamw_tile, mpti_adamw_loop, MPTI_TILE_PARAMETERS, g, w, m, v, k)
MPTI_ROOTED(mpti_lamb_direction, mpti_lamb_direction_loop,
            (float *r, const float *w, const float *m, const float *v, const mpti_adamw_k *k), r, w, m, v, k)

/* ---- passes over a tensor ---- */

/* A turn is one round of the loop in mpti_pass_piece; mpti_turn holds its tiles. Arrays of floats are updated
 * in place, and a turn takes up to MPTI_BLOCK elements: a tenth faster. The first of several turns takes only
 * those before a cache line begins: with no vector across two lines, a step takes 0.6 of the time. */
#define MPTI_BLOCK (16u * MPTI_TILE)
#define MPTI_STRETCH (2u * MPTI_TILE)       /* to convert at once: a call for each tile cost a tenth more */
typedef struct mpti_turn {
    float g[MPTI_STRETCH] MPTI_ALIGNED, w[MPTI_TILE], m[MPTI_TILE], v[2 * MPTI_TILE];
} mpti_turn;

/* One pass, tile by tile. reads and writes: MPT_NEEDS_GRAD, _WEIGHT, _M, _V, _V_MAX, MPTI_ZEROES. */
typedef struct mpti_pass {
    unsigned       reads, writes;
    mpti_tile_fn  *tile;
    void          *k;
    size_t         strip;       /* elements of a cache line; 1: whole tiles, for functions that count them */
    mpti_random_at at;          /* of the list's first tensor */
} mpti_pass;

/* Does an update in place of a tensor prefetch arrays, and store the 16-bit copy around the cache, as
 * conversions of 6 bytes an element do? Out of cache SGD then takes 0.7 of the time, Lion 0.83, AdamW 0.9
 * (bench_step with AVX2, threads.c on a Xeon with AVX-512). The kernel for f16 must not meet traps. */
static int mpti_is_large(const mpt_tensor *t)
{
#if MPTI_X86
    return t->n > MPTI_AROUND_BYTES / 6u && mpti_path() >= MPTI_PATH_AVX2 && mpti_no_traps();
#else
    return (void)t, 0;
#endif
}

/* Store elements of the copy around the cache. Returns 0 if the copy, or its place, needs mpti_weight_out. */
static int mpti_param_around(const mpt_tensor *t, size_t first, const float *src, size_t n)
{
#if MPTI_X86
    unsigned char *const to = (unsigned char *)t->param + first * sizeof(uint16_t);
    if (t->param && t->param_format != MPT_F32 && !((uintptr_t)to % 64u)) {
        (t->param_format == MPT_F16 ? mpti_f16_from_f32_256 : mpti_bf16_from_f32_256)
            (to, (const unsigned char *)src, NULL, NULL, n / MPTI_GROUP, MPTI_AROUND);
        return 1;
    }
#endif
    (void)t, (void)first, (void)src, (void)n;
    return 0;
}

static void mpti_pass_piece(void *context, const mpti_piece *piece)
{
    const mpti_pass  p = *(const mpti_pass *)context;
    const mpt_tensor *const t = piece->t;
    void *const      t_g = p.reads & MPT_NEEDS_GRAD ? t->grad : NULL;
    void *const      t_m = p.reads & MPT_NEEDS_M ? t->m : NULL;
    void *const      t_v = p.reads & MPT_NEEDS_V ? t->v : NULL;
    const mpt_format format = mpti_moments_format(t);
    const size_t     grad_bytes = mpti_format_bytes(t->grad_format);
    const int        in_place = t->storage == MPT_STORE_MASTER && format == MPT_F32 &&
                                !(p.reads & MPT_NEEDS_V_MAX);
    const int        large = in_place && mpti_is_large(t);
    const float *const floats = t->storage == MPT_STORE_MASTER ? t->master
                                : format == MPT_F32            ? (const float *)t_m : NULL;
    mpti_random_at   at = p.at;
    mpti_turn        local;
    size_t           first, n, i, j, take;
    at.stream += (uint32_t)piece->tensor;
    for (first = piece->first; first < piece->end; first += n) {
        float *w, *m, *v;
        const size_t odd = ((uintptr_t)floats / sizeof *floats + first) % p.strip;
        n = mpti_min(piece->end - first, odd && piece->end - first > MPTI_BLOCK ? p.strip - odd
                                         : in_place ? MPTI_BLOCK : MPTI_TILE);
        n -= n > MPTI_TILE ? n % MPTI_TILE : 0u;
        w = p.reads & MPT_NEEDS_WEIGHT ? mpti_weight_in(local.w, t, first, n) : local.w;
        m = mpti_tile_in(local.m, t_m, format, first, n);
        if (p.reads & MPT_NEEDS_V_MAX) {            /* v_max is the tile behind v */
            mpti_tile_load(v = local.v, t_v, format, first, n);
            mpti_tile_load(v + MPTI_TILE, t->v_max, format, first, n);
        } else {
            v = mpti_tile_in(local.v, t_v, format, first, n);
        }
        for (i = 0; i < n; i += take) {             /* n above a tile is whole tiles */
            float *const w_i = w == local.w ? w : w + i;
            const float *g;
            take = mpti_min(n - i, MPTI_STRETCH);
            g = mpti_tile_in(local.g, t_g, t->grad_format, first + i, take);
            if (large)
                mpti_prefetch(t_g, (first + i + take) * grad_bytes, take * grad_bytes);
            for (j = 0; j < take; j += MPTI_TILE) {
                if (large && t_m && !t_v)       /* AdamW, with more arrays and arithmetic, would lose by it */
                    mpti_prefetch(m, (i + j + MPTI_TILE) * sizeof *m, MPTI_TILE * sizeof *m);
                p.tile(g + j, w_i + j, m == local.m ? m : m + i + j, v == local.v ? v : v + i + j, p.k);
            }
            if (p.writes & MPT_NEEDS_WEIGHT &&
                !(large && w != local.w && mpti_param_around(t, first + i, w_i, take)))
                mpti_weight_out(w_i, t, first + i, take, at);
        }
        if (p.writes & MPT_NEEDS_M)
            mpti_moment_out(m, t, t_m, first, n, at, MPTI_STREAM_M);
        if (p.writes & MPT_NEEDS_V)
            mpti_moment_out(v, t, t_v, first, n, at, MPTI_STREAM_V);
        if (p.writes & MPT_NEEDS_V_MAX)
            mpti_tile_out(v + MPTI_TILE, t->v_max, format, first, n);
        if (p.writes & MPTI_ZEROES)
            memset((unsigned char *)t_g + first * grad_bytes, 0, n * grad_bytes);
    }
#if MPTI_X86
    if (large)
        __asm__ volatile("sfence" : : : "memory");
#endif
}

/* Sums of squares of a tensor's weights and of its directions, each on the tree of >>M15; a short tensor uses
 * fewer lanes and slots. The sums of a window's chunks are added to the slots in order. */
typedef struct mpti_norms { double sum[2][MPTI_WINDOW], slot[2][MPTI_SLOTS]; } mpti_norms;

/* State of the tile functions of LAMB and Adafactor, which need norms: the tensor and the position in it, the
 * norms, and at last the factor of the update. Each piece has its own copy, and lanes. */
typedef struct mpti_along_turn {
    mpti_pass         pass;
    const void       *k;
    const mpt_tensor *t;
    size_t            first;
    size_t            matrix;           /* Adafactor: index of the current matrix ... */
    float             mean;             /* ... and the mean of its row means */
    float             factor;
    double          (*lane)[MPTI_LANES];        /* [2]: of weights, of directions */
    mpti_norms       *norms;
} mpti_along_turn;

/* Add a tile, and move on to the next one. */
static void mpti_norms_add(mpti_along_turn *turn, const float *w, const float *direction)
{
    const size_t at = turn->first % MPTI_LANES, chunk = turn->first / MPTI_CHUNK % MPTI_WINDOW;
    int          i;
    mpti_sumsq_tile(turn->lane[0] + at, w);
    mpti_sumsq_tile(turn->lane[1] + at, direction);
    turn->first += MPTI_TILE;
    for (i = 0; i < 2 && (turn->first % MPTI_CHUNK == 0 || turn->first >= turn->t->n); i++) {
        const size_t lanes = mpti_lane_count(turn->t->n);
        turn->norms->sum[i][chunk] = mpti_pair_sum(turn->lane[i], lanes);
        memset(turn->lane[i], 0, lanes * sizeof(double));
    }
}

/* A piece of one of the two passes below. The first, which writes nothing, sums in lanes. */
static void mpti_turn_piece(void *context, const mpti_piece *piece)
{
    mpti_along_turn turn = *(const mpti_along_turn *)context;
    const size_t    bytes = turn.pass.writes ? 0u : mpti_lane_count(turn.t->n) * sizeof(double);
    double          lane[2][MPTI_LANES] MPTI_ALIGNED;
    memset(lane[0], 0, bytes);
    memset(lane[1], 0, bytes);
    turn.lane = lane, turn.first = piece->first;
    turn.pass.k = &turn, turn.pass.strip = 1;
    mpti_pass_piece(&turn.pass, piece);
}

static void mpti_norms_then(void *context, const mpti_piece *piece)
{
    mpti_norms *const norms = ((const mpti_along_turn *)context)->norms;
    size_t            first = piece->first, chunk = piece->chunk;
    for (; first < piece->end; first += MPTI_CHUNK, chunk++) {
        norms->slot[0][chunk % MPTI_SLOTS] += norms->sum[0][chunk % MPTI_WINDOW];
        norms->slot[1][chunk % MPTI_SLOTS] += norms->sum[1][chunk % MPTI_WINDOW];
    }
}

/* Two passes over a tensor. In the first, which writes nothing, `tile` sums squares of weights and of
 * directions; `factor` makes a factor of both sums; in the second, `tile` moves weights along directions. */
typedef float mpti_factor_fn(double weights, double directions, size_t n, const void *k);
static void mpti_along_tensor(const mpt_tensor *t, const mpti_pass *step, unsigned reads, unsigned writes,
                              mpti_tile_fn *tile, mpti_factor_fn *factor)
{
    size_t          slots = 1;
    mpti_norms      norms;
    mpti_along_turn turn = {*step, step->k, t, 0, (size_t)-1, 0.0f, 0.0f, NULL, &norms};
    memset(norms.slot, 0, sizeof norms.slot);
    turn.pass.reads = reads, turn.pass.writes = 0u, turn.pass.tile = tile;
    mpti_pieces(t, 1, mpti_turn_piece, mpti_norms_then, &turn);
    while (slots < MPTI_SLOTS && slots * MPTI_CHUNK < t->n)
        slots *= 2;
    turn.factor = factor(mpti_pair_sum(norms.slot[0], slots), mpti_pair_sum(norms.slot[1], slots), t->n,
                         turn.k);
    turn.pass.writes = writes;
    mpti_pieces(t, 1, mpti_turn_piece, NULL, &turn);
}

/* ---- LAMB, in three passes: the moments; the norms; the update, which computes the directions again ---- */

static void mpti_lamb_along_tile MPTI_TILE_PARAMETERS
{
    mpti_along_turn *const turn = (mpti_along_turn *)k;
    float                  r[MPTI_TILE] MPTI_ALIGNED;
    (void)g;
    mpti_lamb_direction(r, w, m, v, (const mpti_adamw_k *)turn->k);
    if (turn->pass.writes)
        mpti_along(w, r, turn->factor);
    else
        mpti_norms_add(turn, w, r);
}

static float mpti_lamb_far(double weights, double directions, MPTI_UNUSED size_t n, const void *k)
{
    return mpti_lamb_factor(weights, directions, (const mpti_adamw_k *)k);
}

static void mpti_lamb_tensor(const mpt_tensor *t, const mpti_pass *step)
{
    mpti_pass moments = *step;
    moments.writes = MPT_NEEDS_M | MPT_NEEDS_V | (step->writes & MPTI_ZEROES);
    moments.tile = mpti_lamb_tile;
    mpti_pieces(t, 1, mpti_pass_piece, NULL, &moments);
    mpti_along_tensor(t, step, step->reads & ~MPT_NEEDS_GRAD, MPT_NEEDS_WEIGHT, mpti_lamb_along_tile,
                      mpti_lamb_far);
}

/* ---- Adafactor: the second moments, or their row and column means; the norms; the update, from them ---- */

MPTI_TILE_LOOP(MPTI_TWICE, mpti_adafactor_v_tile, MPTI_TILE_PARAMETERS, (g, w, m, v, k),
               const mpti_adafactor_k c = *(const mpti_adafactor_k *)k; (void)w; (void)m, {
                   const float u = mpti_mul(g[i], c.rates.factor);
                   v[i] = mpti_fma(c.fresh, mpti_fma(u, u, mpti_neg(v[i])), v[i]);
               })

/* The direction: gradients over the roots of their second moments. */
MPTI_INLINE void mpti_over_roots_loop(float *MPTI_RESTRICT u, const float *MPTI_RESTRICT g,
                                      const float *MPTI_RESTRICT v, const mpti_adafactor_k *k,
                                      mpti_roots_fn *roots)
{
    float  moments[MPTI_STRIP], root[MPTI_STRIP];
    size_t at, i;
    for (at = 0; at < MPTI_TILE; at += MPTI_STRIP) {
        for (i = 0; i < MPTI_STRIP; i++)
            moments[i] = mpti_at_least(v[at + i], k->least);
        roots(root, moments);
        for (i = 0; i < MPTI_STRIP; i++)
            u[at + i] = mpti_div(mpti_mul(g[at + i], k->rates.factor), root[i]);
    }
}
MPTI_ROOTED(mpti_over_roots, mpti_over_roots_loop,
            (float *u, const float *g, const float *v, const mpti_adafactor_k *k), u, g, v, k)

/* The update, with weight decay, in place of the direction. mpti_along adds it to the weights: in one loop
 * -ffast-math would add the decay last, with a rounding of its own. */
MPTI_TILE_LOOP(MPTI_TWICE, mpti_with_decay,
               (float *MPTI_RESTRICT u, const float *MPTI_RESTRICT w, float factor, float decay),
               (u, w, factor, decay), (void)0, u[i] = mpti_fma(decay, w[i], mpti_mul(factor, u[i])))

/* Row and column means of the squared gradients, in double. Element j of a row adds to lane j mod 256, and
 * lanes are added in pairs; a column is added from its first row to its last. */
typedef struct mpti_factoring { const mpt_tensor *t; const mpti_adafactor_k *k; } mpti_factoring;

static void mpti_rows_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_factoring c = *(const mpti_factoring *)context;
    const size_t         columns = c.t->columns;
    float *const         row = (float *)c.t->v;
    double               lane[MPTI_TILE];
    float                g[MPTI_TILE];
    size_t               i, j;
    for (i = begin; i < end; i++) {
        memset(lane, 0, sizeof lane);
        for (j = 0; j < columns; j += MPTI_TILE) {
            (void)mpti_scaled_tile(g, c.t, i * columns + j, columns - j, c.k->rates.factor);
            mpti_sumsq_tile(lane, g);
        }
        row[i] = mpti_average(row[i], mpti_to_f32(mpti_pair_sum(lane, MPTI_TILE) / (double)columns),
                              c.k->fresh);
    }
}

/* Columns are numbered through all matrices of the tensor. */
static void mpti_columns_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_factoring c = *(const mpti_factoring *)context;
    const size_t         columns = c.t->columns, rows = mpti_rows(c.t);
    float *const         column = (float *)c.t->v + c.t->n / columns;
    double               lane[MPTI_TILE];
    float                g[MPTI_TILE];
    size_t               i, n;
    for (; begin < end; begin += n) {
        const size_t first = begin / columns * rows * columns + begin % columns;
        n = mpti_min(end - begin, mpti_min(columns - begin % columns, MPTI_TILE));
        memset(lane, 0, sizeof lane);
        for (i = 0; i < rows; i++) {
            (void)mpti_scaled_tile(g, c.t, first + i * columns, n, c.k->rates.factor);
            mpti_sumsq_tile(lane, g);
        }
        for (i = 0; i < n; i++)
            column[begin + i] =
                mpti_average(column[begin + i], mpti_to_f32(lane[i] / (double)rows), c.k->fresh);
    }
}

/* Second moments of a tile, from row and column means. */
static void mpti_factors_tile(float *v, mpti_along_turn *turn)
{
    const mpt_tensor *const t = turn->t;
    const size_t       first = turn->first, n = mpti_min(t->n - first, MPTI_TILE);
    const size_t       columns = t->columns, rows = mpti_rows(t);
    const float *const row = (const float *)t->v, *const column = row + t->n / columns;
    size_t             e, r, i = first / columns, j = first % columns;
    double             sum;
    float              share;
    for (e = 0; e < n; i++, j = 0) {
        const size_t stop = mpti_min(n, e + columns - j);
        if (i / rows != turn->matrix) {
            turn->matrix = i / rows;
            for (sum = 0.0, r = 0; r < rows; r++)
                sum += mpti_to_f64(row[turn->matrix * rows + r]);
            turn->mean = mpti_at_least(mpti_to_f32(sum / (double)rows),
                                       ((const mpti_adafactor_k *)turn->k)->least_mean);
        }
        share = mpti_div(row[i], turn->mean);
        for (j += turn->matrix * columns; e < stop; e++, j++)
            v[e] = mpti_mul(share, column[j]);
    }
}

static void mpti_adafactor_along_tile MPTI_TILE_PARAMETERS
{
    mpti_along_turn *const  turn = (mpti_along_turn *)k;
    const mpti_adafactor_k *c = (const mpti_adafactor_k *)turn->k;
    float                   u[MPTI_TILE], means[MPTI_TILE] = {0.0f};
    (void)m;
    if (turn->t->columns)
        mpti_factors_tile(means, turn);
    mpti_over_roots(u, g, turn->t->columns ? means : v, c);
    if (!turn->pass.writes) {
        mpti_norms_add(turn, w, u);
        return;
    }
    mpti_with_decay(u, w, turn->factor, mpti_mul(c->rates.minus_lr, c->rates.decay));
    mpti_along(w, u, 1.0f);
    turn->first += MPTI_TILE;
}

static float mpti_adafactor_far(double weights, double directions, size_t n, const void *k)
{
    const mpti_adafactor_k *const c = (const mpti_adafactor_k *)k;
    const double w_rms = sqrt(weights / (double)n), over = sqrt(directions / (double)n) / c->clip;
    const double lr = -mpti_to_f64(c->rates.minus_lr), rate = lr < c->most ? lr : c->most;
    return mpti_to_f32(-((w_rms > c->eps2 ? w_rms : c->eps2) * rate / (over > 1.0 ? over : 1.0)));
}

static void mpti_adafactor_tensor(const mpt_tensor *t, const mpti_pass *step)
{
    const unsigned v = t->columns ? 0u : MPT_NEEDS_V;
    mpti_pass      moments = *step;
    mpti_factoring c = {t, (const mpti_adafactor_k *)step->k};
    if (t->columns) {
        const size_t columns = t->n / mpti_rows(t);
        (void)MPTI_IN_PARTS(t->n / t->columns, MPTI_FAST_PART / t->columns + 1u, mpti_rows_range, &c);
        (void)MPTI_IN_PARTS(columns, t->n > MPTI_FAST_PART ? MPTI_TILE : columns, mpti_columns_range, &c);
    } else {
        moments.reads = MPT_NEEDS_GRAD | MPT_NEEDS_V, moments.writes = MPT_NEEDS_V;
        moments.tile = mpti_adafactor_v_tile;
        mpti_pieces(t, 1, mpti_pass_piece, NULL, &moments);
    }
    mpti_along_tensor(t, step, MPTI_NEEDS_STEP | v, MPT_NEEDS_WEIGHT | (step->writes & MPTI_ZEROES),
                      mpti_adafactor_along_tile, mpti_adafactor_far);
}

/* ---- the calls ---- */

#define MPTI_K_OF(hyper) mpti_##hyper##_k hyper;
typedef union mpti_any_k { MPT_HYPERPARAMETERS(MPTI_K_OF) } mpti_any_k;

/* What the pieces or the tensors of one step share. */
typedef void mpti_tensor_fn(const mpt_tensor *t, const mpti_pass *step);
typedef struct mpti_stepping { mpti_pass pass; mpti_tensor_fn *tensor; } mpti_stepping;

/* The pass for one tensor: `own` gets the constants, with the tensor's own rates. */
MPTI_NOINLINE static mpti_pass mpti_step_of(mpti_pass pass, const mpt_tensor *t, mpti_any_k *own)
{
    *own = *(const mpti_any_k *)pass.k;
    own->sgd.rates = mpti_rates_of(own->sgd.rates, t);      /* every struct in the union begins with rates */
    pass.k = own;
    return pass;
}

static void mpti_step_piece(void *context, const mpti_piece *piece)
{
    mpti_any_k own;
    mpti_pass  pass = mpti_step_of(((const mpti_stepping *)context)->pass, piece->t, &own);
    mpti_pass_piece(&pass, piece);
}

static void mpti_step_tensor(void *context, const mpt_tensor *tensors, size_t i)
{
    const mpti_stepping *const s = (const mpti_stepping *)context;
    mpti_any_k                 own;
    mpti_pass                  pass = mpti_step_of(s->pass, &tensors[i], &own);
    pass.at.stream = (uint32_t)i;
    if (tensors[i].n)
        s->tensor(&tensors[i], &pass);
}

/* One step, by a function for a tile or, where the optimizer has its OWN passes, for a tensor. All tests come
 * before the first write. Overlaps of tensors are tested in the first step (*t is 0), those of gradients that
 * become 0 in each. On found_inf nothing changes but the stage and such gradients. */
static mpt_status mpti_step_run(mpt_step *step, const mpt_tensor *tensors, size_t count, unsigned needs,
                                mpti_tile_fn *tile, mpti_tensor_fn *tensor, mpti_any_k *k, uint64_t *t)
{
    mpti_stepping s = {{needs, needs & ~MPT_NEEDS_GRAD, tile, k, MPTI_STRIP, {*t, 0u}}, tensor};
    mpt_status    status;
    if (needs & MPT_NEEDS_V_MAX && tensor)
        return MPT_E_ARG;
    if (!mpti_step_is_open(step))
        return MPT_E_ORDER;
    status = *t ? mpti_tensors_ok(tensors, count, needs, NULL)
                : mpt_tensors_validate(tensors, count, needs, NULL);
    if (status == MPT_OK && needs & MPTI_ZEROES)
        status = mpt_tensors_validate(tensors, count, MPT_NEEDS_GRAD | MPTI_ZEROES, NULL);
    if (status == MPT_OK && step->sizes && mpti_sizes_filter(tensors, count, step->sizes))
        status = MPT_E_ORDER;
    if (status != MPT_OK)
        return status;
    if (!(needs & MPTI_STAYS_OPEN))
        step->stage = (uint32_t)MPT_STAGE_STEPPED;
    if (step->found_inf)
        return needs & MPTI_ZEROES ? mpt_grads_zero(tensors, count) : MPT_OK;
    if (tensor)
        mpti_each_tensor(tensors, count, mpti_step_tensor, &s);
    else
        mpti_pieces(tensors, count, mpti_step_piece, NULL, &s);
    (*t)++;
    return MPT_OK;
}

/* The step of all optimizers that have a struct of hyperparameters. l2: weight decay is in the gradient. */
#define MPTI_RUN_OF(hyper)                                                                          \
    MPTI_NOINLINE static mpt_status mpti_##hyper##_run(                                             \
        mpt_##hyper *o, mpt_step *step, const mpt_tensor *tensors, size_t count, unsigned needs,    \
        mpti_tile_fn *tile, mpti_tensor_fn *tensor, int l2)                                         \
    {                                                                                               \
        mpt_status status = MPT_E_ARG;                                                              \
        mpti_any_k k;                                                                               \
        if (step && mpti_##hyper##_ok(o)) {                                                         \
            memset(&k, 0, sizeof k);                                                                \
            k.hyper = mpti_##hyper##_consts(o, step);                                               \
            if (l2)                                                                                 \
                mpti_rates_l2(&k.hyper.rates);                                                      \
            status = mpti_step_run(step, tensors, count, needs, tile, tensor, &k, &o->t);           \
        }                                                                                           \
        if (step && status != MPT_OK)                                                               \
            mpti_refuse_step(step);                                                                 \
        return status;                                                                              \
    }
MPT_HYPERPARAMETERS(MPTI_RUN_OF)

#define MPTI_STEP_ONE(name, hyper) mpti_##name##_tile, NULL, 0
#define MPTI_STEP_L2(name, hyper) mpti_##hyper##_tile, NULL, 1
#define MPTI_STEP_OWN(name, hyper) NULL, mpti_##name##_tensor, 0
#define MPTI_STEP(id, name, hyper, needs, passes, device)                                           \
    MPT_DEF mpt_status mpt_##name##_step(mpt_##name *o, mpt_step *step, const mpt_tensor *tensors,  \
                                         size_t count)                                              \
    {                                                                                               \
        return mpti_##hyper##_run(o, step, tensors, count, mpti_##name##_needs(o),                  \
                                  MPTI_STEP_##passes(name, hyper));                                 \
    }
MPT_OPTIMIZERS(MPTI_STEP)

MPT_DEF const mpt_optimizer_info *mpt_optimizer_get(mpt_optimizer optimizer)
{
#define MPTI_OPTIMIZER(id, name, hyper, needs, passes, device) {#name, MPTI_NEEDS_STEP | (needs), device},
    static const mpt_optimizer_info table[] = {MPT_OPTIMIZERS(MPTI_OPTIMIZER)};
    return (unsigned)optimizer < (unsigned)MPT_OPTIMIZER_COUNT ? &table[optimizer] : NULL;
}

#define MPTI_DEFAULTS(type, function, ...)                                                          \
    MPT_DEF type function(void)                                                                     \
    {                                                                                               \
        const type o = {__VA_ARGS__};                                                               \
        return o;                                                                                   \
    }
MPTI_DEFAULTS(mpt_adafactor, mpt_adafactor_defaults, 1e-2f, 1.1920928955078125e-07f, 1e-3f, 1.0f, 0.0f, 0u,
              0u)
MPTI_DEFAULTS(mpt_adamw, mpt_adamw_defaults, 1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 0u, 0u)
MPTI_DEFAULTS(mpt_adam, mpt_adam_defaults, 1e-3f, 0.9f, 0.999f, 1e-8f, 0.0f, 0u, 0u)
MPTI_DEFAULTS(mpt_lamb, mpt_lamb_defaults, 1e-3f, 0.9f, 0.999f, 1e-6f, 0.01f, 0u, 0u)
MPTI_DEFAULTS(mpt_lion, mpt_lion_defaults, 1e-4f, 0.9f, 0.99f, 0.0f, 0u, 0u, 0u)

// >>M19 implementation: FP8 delayed scaling -------------------------------------------------------
#ifndef MPT_NO_FP8
MPT_DEF mpt_fp8_recipe mpt_fp8_defaults(mpt_format format)
{
    const mpt_fp8_recipe r = {format, MPT_AMAX_MAX, 1024u, 0, 0u, 0u};
    return r;
}

static mpt_status mpti_fp8_scaling_ok(const mpt_fp8_scaling *s)
{
    const mpt_fp8_recipe *r = s ? &s->recipe : NULL;
    const size_t          most = (size_t)-1 / 2u / sizeof(float);
    if (!s || (s->count && (!s->scale || !s->inverse || !s->amax || !s->history ||
                            s->count > most / (r->length ? r->length : 1u) ||
                            s->count > most / (s->inverse_step ? s->inverse_step : 1u))))
        return MPT_E_ARG;
    if (!mpti_is_fp8(r->format))
        return MPT_E_UNSUPPORTED;
    return r->length && r->margin >= -32 && r->margin <= 32 &&
           (unsigned)r->choice < (unsigned)MPT_AMAX_CHOICE_COUNT ? MPT_OK : MPT_E_ARG;
}

MPT_DEF mpt_status mpt_fp8_init(const mpt_fp8_scaling *s)
{
    const mpt_status status = mpti_fp8_scaling_ok(s);
    size_t           i;
    if (status != MPT_OK)
        return status;
    for (i = 0; i < s->count; i++) s->scale[i] = s->inverse[mpti_inverse_at(i, s->inverse_step)] = 1.0f;
    for (i = 0; i < s->count; i++) s->amax[i] = 0.0f;
    for (i = 0; i < (size_t)s->count * s->recipe.length; i++) s->history[i] = 0.0f;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_fp8_update(const mpt_fp8_scaling *s)
{
    const mpt_status status = mpti_fp8_scaling_ok(s);
    size_t           i, k;
    if (status != MPT_OK)
        return status;
    for (i = 0; i < s->count; i++) {
        const size_t length = s->recipe.length;
        float *const h = s->history + i * length;
        uint32_t     last = mpti_f32_bits(s->amax[i]), amax;
        if (s->recipe.drop_bad && last >= 0x7f800000u)
            last = 0u;
        amax = last;
        memmove(h, h + 1, (length - 1) * sizeof *h);
        for (k = 0; k + 1 < length && s->recipe.choice == MPT_AMAX_MAX; k++)
            if (mpti_f32_bits(h[k]) > amax)
                amax = mpti_f32_bits(h[k]);
        h[length - 1] = mpti_f32_make(last);
        s->scale[i] = mpti_fp8_next_scale(s->scale[i], amax, &s->recipe);
        s->inverse[mpti_inverse_at(i, s->inverse_step)] = mpti_div(1.0f, s->scale[i]);
        s->amax[i] = 0.0f;
    }
    return MPT_OK;
}

#define MPTI_FP8_SQUARE 64    /* side of the squares to transpose: a row or column fills a cache line */

/* Scale MPTI_FP8_SQUARE floats, and raise *amax, a bit pattern, to the largest |x| before the scaling. */
MPTI_INLINE void mpti_fp8_scale_loop(float *x, float scale, uint32_t *amax)
{
    uint32_t most = *amax;
    size_t   j;
    for (j = 0; j < MPTI_FP8_SQUARE; j++) {
        const uint32_t u = mpti_f32_bits(x[j]), a = u & 0x7fffffffu;
        most = a > most ? a : most;
        x[j] = mpti_f32_make(mpti_fp8_scaled(u, scale));
    }
    *amax = most;
}
MPTI_TWICE(mpti_fp8_scale, mpti_fp8_scale_loop, (float *x, float scale, uint32_t *amax), (x, scale, amax))

#define MPTI_FP8_ROWS (MPTI_FAST_PART / MPTI_FP8_SQUARE)

typedef struct mpti_fp8_work {
    const void    *from;
    unsigned char *to, *flipped;
    size_t         rows, cols;
    mpt_format     to_format, from_format;
    float          scale;
    uint32_t       most[MPTI_PARTS];
} mpti_fp8_work;

/* Convert n elements, at most MPTI_TILE.  Returns: amax, a bit pattern, raised to their largest |x|. */
static uint32_t mpti_fp8_tile(const mpti_fp8_work *w, unsigned char *dst, size_t first, size_t n,
                              uint32_t amax)
{
    float  x[MPTI_TILE];
    size_t i;
    mpti_tile_load(x, w->from, w->from_format, first, n);
    for (i = 0; i < n; i += MPTI_FP8_SQUARE)
        mpti_fp8_scale(x + i, w->scale, &amax);
    if (dst && w->to_format == MPT_E4M3)
        (void)mpt_e4m3_from_f32_sat_n((mpt_e4m3 *)(void *)dst, x, n);
    else if (dst)
        (void)mpt_e5m2_from_f32_sat_n((mpt_e5m2 *)(void *)dst, x, n);
    return amax;
}

/* Elements begin .. end of the only row; with a transpose, rows begin .. end, square by square. */
static void mpti_fp8_range(void *context, size_t part, size_t begin, size_t end)
{
    mpti_fp8_work *const w = (mpti_fp8_work *)context;
    const size_t         side = w->flipped ? MPTI_FP8_SQUARE : MPTI_TILE;
    const size_t         columns = w->flipped ? w->cols : end;
    unsigned char        square[MPTI_FP8_SQUARE][MPTI_FP8_SQUARE];
    uint32_t             most = 0u;
    size_t               i, j, r, c;
    for (i = w->flipped ? begin : 0; i < (w->flipped ? end : 1u); i += MPTI_FP8_SQUARE)
        for (j = w->flipped ? 0 : begin; j < columns; j += side) {
            const size_t high = mpti_min(w->rows - i, MPTI_FP8_SQUARE), wide = mpti_min(columns - j, side);
            for (r = 0; r < high; r++) {
                const size_t at = (i + r) * w->cols + j;
                most = mpti_fp8_tile(w, w->flipped ? square[r] : w->to ? w->to + at : NULL, at, wide, most);
                if (w->flipped && w->to)
                    memcpy(w->to + at, square[r], wide);
            }
            for (c = 0; w->flipped && c < wide; c++)
                for (r = 0; r < high; r++) w->flipped[(j + c) * w->rows + i + r] = square[r][c];
        }
    w->most[part] = most;
}

MPTI_NOINLINE static mpt_status mpti_fp8_encode(mpti_fp8_work *w, float *amax, int bad)
{
    size_t parts;
    if (!mpti_is_fp8(w->to_format) || !mpti_is_train_format(w->from_format))
        return MPT_E_UNSUPPORTED;
    if (bad)
        return MPT_E_ARG;
    parts = MPTI_IN_PARTS(w->flipped ? w->rows : w->cols,
                          w->flipped ? (w->cols < MPTI_FP8_ROWS ? MPTI_FP8_ROWS : MPTI_FP8_SQUARE)
                                     : mpti_part_least(MPTI_FAST_PART, w->to, 1, w->from,
                                                       (ptrdiff_t)mpti_format_bytes(w->from_format), w->cols),
                          mpti_fp8_range, w);
    while (parts--)
        if (amax && w->most[parts] > mpti_f32_bits(*amax))
            *amax = mpti_f32_make(w->most[parts]);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_fp8_encode_n(mpt_format dst_format, void *dst, mpt_format src_format, const void *src,
                                    size_t n, const float *scale, float *amax)
{
    mpti_fp8_work w = {src, (unsigned char *)dst, NULL, 1, n, dst_format, src_format,
                       scale ? *scale : 1.0f, {0u}};
    return mpti_fp8_encode(&w, amax,
                           (n && !dst && !amax) || mpti_no_array(src, n, sizeof(float)) ||
                           (dst != src && mpti_meet(dst, n, src, n * mpti_format_bytes(src_format))));
}

MPT_DEF mpt_status mpt_fp8_encode_transpose(mpt_format dst_format, void *dst, void *transposed,
                                            mpt_format src_format, const void *src, size_t rows, size_t cols,
                                            const float *scale, float *amax)
{
    const size_t  n = rows * cols, bytes = n * mpti_format_bytes(src_format);
    mpti_fp8_work w = {src, (unsigned char *)dst, (unsigned char *)transposed, n ? rows : 0, cols,
                       dst_format, src_format, scale ? *scale : 1.0f, {0u}};
    return mpti_fp8_encode(&w, amax,
                           (rows && cols && (!transposed || !src)) ||
                           (cols && rows > ~(size_t)0 / 8u / cols) ||
                           mpti_some_meet(dst, n, transposed, n, src, bytes));
}
#endif /* MPT_NO_FP8 */

// >>M20 implementation: checkpoint ----------------------------------------------------------------
#ifndef MPT_NO_CHECKPOINT
/* The same walk over a state measures, saves, verifies or loads it, as its mode says. A field is an array of
 * `count` words of `width` bytes; a fact is a number that is saved and must be the same when loading. */
typedef enum mpti_walk_mode {
    MPTI_WALK_SIZE, MPTI_WALK_SAVE, MPTI_WALK_VERIFY, MPTI_WALK_LOAD        /* from VERIFY on they read */
} mpti_walk_mode;
#define MPTI_ASIDE(hyper) mpt_##hyper hyper;
typedef struct mpti_walk {
    mpti_walk_mode mode;
    unsigned char *to;              /* SAVE */
    const unsigned char *from;      /* VERIFY, LOAD; SIZE: NULL, or `bytes` bytes that no field may overlap */
    size_t         bytes;
    size_t         at, end, tensor; /* tensor: the one that it is at; -1 before the first */
    uint64_t       version;
    int            failed;
    int            judge;           /* refuse impossible values: SIZE before SAVE, and VERIFY */
    /* VERIFY: the struct whose values are checked */
    union { mpt_scaler scaler; mpt_step step; MPT_HYPERPARAMETERS(MPTI_ASIDE) } aside;
} mpti_walk;

/* A copy of words from memory to the buffer or back. The buffer is little-endian. */
typedef struct mpti_raw { unsigned char *to; const unsigned char *from; size_t width; } mpti_raw;

static void mpti_raw_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_raw w = *(const mpti_raw *)context;
    const uint16_t   one = 1u;
    size_t           i, k;
    if (*(const unsigned char *)&one)
        memcpy(w.to + begin * w.width, w.from + begin * w.width, (end - begin) * w.width);
    else
        for (i = begin; i < end; i++)
            for (k = 0; k < w.width; k++)
                w.to[i * w.width + k] = w.from[i * w.width + w.width - 1u - k];
}

static void mpti_copy_words(void *to, const void *from, size_t count, size_t width)
{
    mpti_raw w = {(unsigned char *)to, (const unsigned char *)from, width};
    (void)MPTI_IN_PARTS(count, MPTI_FAST_PART, mpti_raw_range, &w);
}

MPTI_NOINLINE static void mpti_walk_words(mpti_walk *w, void *data, size_t count, size_t width)
{
    w->failed = w->failed || count > (w->end - w->at) / width;
    if (w->failed || !count)
        return;
    if (w->mode == MPTI_WALK_SIZE)
        w->failed = mpti_meet(data, count * width, w->from, w->bytes);
    if (w->mode == MPTI_WALK_SAVE)
        mpti_copy_words(w->to + w->at, data, count, width);
    if (data && w->mode >= MPTI_WALK_VERIFY)
        mpti_copy_words(data, w->from + w->at, count, width);
    w->at += count * width;
}

MPTI_NOINLINE static void mpti_walk_fact(mpti_walk *w, uint64_t fact)
{
    uint64_t value = fact;
    mpti_walk_words(w, &value, 1, sizeof value);
    w->failed |= value != fact;
}

/* Walk the members from byte `first` to before byte `end` of *p, all of them `width` bytes wide. */
#define MPTI_WALK_MEMBERS(w, p, first, end, width)                                  \
    mpti_walk_words(w, (unsigned char *)(p) + (first), ((end) - (first)) / (width), width)

/* A struct whose values are checked. VERIFY, which must not write, has a copy `aside`, NULL for arrays. */
static void *mpti_walk_begin(mpti_walk *w, void *p)
{
    return w->mode == MPTI_WALK_VERIFY ? (void *)&w->aside : p;
}

static void mpti_walk_scaler(mpti_walk *w, mpt_scaler *s)
{
    const size_t floats = offsetof(mpt_scaler_config, init_scale), config = sizeof(mpt_scaler_config);
    s = (mpt_scaler *)mpti_walk_begin(w, s);
    MPTI_WALK_MEMBERS(w, s, 0u, floats, 8u);
    MPTI_WALK_MEMBERS(w, s, floats, config, 4u);
    MPTI_WALK_MEMBERS(w, s, config, offsetof(mpt_scaler, scale), 8u);
    MPTI_WALK_MEMBERS(w, s, offsetof(mpt_scaler, scale), sizeof *s, 4u);
    w->failed |= w->judge && !mpti_scaler_possible(s);
}

static void mpti_walk_step(mpti_walk *w, mpt_step *s)
{
    s = (mpt_step *)mpti_walk_begin(w, s);
    MPTI_WALK_MEMBERS(w, s, 0u, offsetof(mpt_step, grad_factor), 8u);
    MPTI_WALK_MEMBERS(w, s, offsetof(mpt_step, grad_factor), offsetof(mpt_step, sizes), 4u);
    if (w->mode == MPTI_WALK_LOAD)
        s->sizes = 0u;                      /* is not saved */
    w->failed |= w->judge &&
                 !(mpti_is_size(s->sumsq) && mpti_f64_is_finite(s->sumsq) && mpti_is_size(s->norm) &&
                   mpti_is_size(mpti_to_f64(s->grad_factor)) && mpti_is_size(mpti_to_f64(s->clip_factor)) &&
                   s->clip_factor <= 1.0f && s->found_inf <= 1u && s->cause <= 7u && s->bad_cause <= 7u &&
                   !(s->stage & ~(15u | (uint32_t)MPT_STAGE_REFUSED)));
}

/* Walk `bytes` bytes of 32-bit words, then the count of steps. Returns the struct to check now, or NULL. */
MPTI_NOINLINE static const void *mpti_walk_optimizer(mpti_walk *w, void *o, size_t bytes)
{
    mpti_walk_fact(w, o != NULL);
    if (!o)
        return NULL;
    o = mpti_walk_begin(w, o);
    MPTI_WALK_MEMBERS(w, o, 0u, bytes, 4u);
    MPTI_WALK_MEMBERS(w, o, bytes, bytes + 8u, 8u);
    return w->judge ? o : NULL;
}

static void mpti_walk_tensor(mpti_walk *w, const mpt_tensor *t, int gradients)
{
    uint64_t    name = (uint64_t)0xcbf29ce484222325u;   /* FNV-1a hash: finds tensors that are mixed up */
    uint64_t    times = (uint64_t)mpti_f32_bits(t->lr_times) << 32 | mpti_f32_bits(t->decay_times);
    const char *c;
    mpti_array  a[MPTI_ARRAYS];
    size_t      i;
    int         nothing = t->n && w->judge && w->mode == MPTI_WALK_SIZE;
    for (c = t->name; c && *c; c++)
        name = (name ^ (unsigned char)*c) * (uint64_t)0x100000001b3u;
    mpti_walk_fact(w, name);
    mpti_walk_fact(w, t->n);
    mpti_walk_fact(w, (uint64_t)t->storage << 32 | (uint64_t)t->moments);
    mpti_walk_fact(w, (uint64_t)t->param_format << 32 | (uint64_t)t->grad_format);
    mpti_walk_fact(w, t->seed);
    mpti_walk_fact(w, t->columns);
    mpti_walk_words(w, &times, 1, sizeof times);
    w->failed |= (uint32_t)times != mpti_f32_bits(t->decay_times);      /* lr_times may follow a schedule */
    mpti_walk_fact(w, (uint64_t)t->no_decay << 32 | (uint64_t)t->rounded);
    mpti_walk_fact(w, t->rows);
    if (t->whole) {
        mpti_walk_fact(w, t->first);
        mpti_walk_fact(w, t->whole);
    }
    mpti_arrays_of(t, gradients ? ~0u : ~MPT_NEEDS_GRAD, a);
    for (i = 0; i < MPTI_SUMS; i++) {
        mpti_walk_fact(w, a[i].at ? a[i].width : 0u);
        if (!a[i].at || !a[i].width)
            continue;
        mpti_walk_words(w, w->mode == MPTI_WALK_VERIFY ? NULL : a[i].at, a[i].count, a[i].width);
        nothing = 0;
    }
    w->failed |= nothing;
}

/* Walk a whole state. The header is magic, version, length. The checksum at the end is left to the caller. */
static void mpti_walk_state(mpti_walk *w, const mpt_state *s)
{
    const void *o;
    size_t      i;
    mpti_walk_fact(w, (uint64_t)0x65746174732d706du);      /* "mp-state" */
    mpti_walk_fact(w, w->version);
    mpti_walk_fact(w, w->end);
    mpti_walk_fact(w, s->scaler_count);
    for (i = 0; i < s->scaler_count; i++)
        mpti_walk_scaler(w, &s->scalers[i]);
    mpti_walk_fact(w, s->step_count);
    for (i = 0; i < s->step_count; i++)
        mpti_walk_step(w, &s->steps[i]);
#define MPTI_WALK(hyper)                                                    \
    o = mpti_walk_optimizer(w, s->hyper, offsetof(mpt_##hyper, t));         \
    w->failed |= o && !mpti_##hyper##_ok((const mpt_##hyper *)o);
    MPT_HYPERPARAMETERS(MPTI_WALK)
    mpti_walk_fact(w, s->counter_count);
    mpti_walk_words(w, w->mode == MPTI_WALK_VERIFY ? NULL : s->counters, s->counter_count, 8u);
    mpti_walk_fact(w, s->tensor_count);
    w->tensor = (size_t)-1;
    for (i = 0; i < s->tensor_count && !w->failed; i++) {
        w->tensor = i;
        mpti_walk_tensor(w, &s->tensors[i], s->gradients != 0u);
    }
}

/* A bijection of h and of the word. Since version 5 a round of xxHash64: before, three signs could cancel. */
static uint64_t mpti_sum_step(uint64_t h, uint64_t word, uint64_t version)
{
    const uint64_t m = (uint64_t)0xff51afd7ed558ccdu, old = (h ^ word) * m;
    h += word * (uint64_t)0x9e3779b97f4a7c15u;
    return version < 5u ? old ^ old >> 32 : (h << 31 | h >> 33) * m;
}

/* n bytes, split into runs of `run` bytes, each with a checksum of its own; `of` is the version. */
typedef struct mpti_summing { const unsigned char *p; size_t n, run; uint64_t of, sum[256]; } mpti_summing;

static void mpti_sum_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    mpti_summing *const c = (mpti_summing *)context;
    for (; begin < end; begin++) {
        const unsigned char *p = c->p + begin * c->run;
        size_t               n = mpti_min(c->run, c->n - begin * c->run), k;
        uint64_t             word = 0u, h = (uint64_t)0x9e3779b97f4a7c15u ^ n;
        for (; n >= 8u; n -= 8u, p += 8)
            h = mpti_sum_step(h, (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 |
                                 (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 |
                                 (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56, c->of);
        for (k = n; k; k--)
            word = word << 8 | p[k - 1u];
        c->sum[begin] = n ? mpti_sum_step(h, word, c->of) : h;
    }
}

/* The checksum of the runs' checksums. Up to version 3 there is only one run. */
static uint64_t mpti_state_checksum(const unsigned char *p, size_t n, uint64_t version)
{
    mpti_summing c;
    size_t       runs, i;
    c.p = p, c.n = n, c.of = version, c.sum[0] = 0u;
    for (c.run = (size_t)1 << 18; c.run < n && (version < 4u || c.run * 256u < n);)
        c.run *= 2u;
    runs = (n - 1u) / c.run + 1u;
    (void)MPTI_IN_PARTS(runs, n > MPTI_FAST_PART ? 1 : runs, mpti_sum_range, &c);
    for (i = 1; i < runs; i++)
        c.sum[0] = mpti_sum_step(c.sum[0], c.sum[i], version);
    return c.sum[0];
}

/* Returns: MPT_OK if nothing is wrong (why is NULL), else MPT_E_DATA. */
static mpt_status mpti_state_fault(const mpt_state *s, size_t tensor, const char *why)
{
    if (s->fault)
        s->fault->tensor = tensor, s->fault->why = why;
    return why ? MPT_E_DATA : MPT_OK;
}

static mpt_status mpti_state_measure(const mpt_state *s, const void *buffer, size_t bytes, int judge,
                                     size_t *need)
{
    mpti_walk w;
    size_t    i;
    if (!s || mpti_no_array(s->scalers, s->scaler_count, sizeof *s->scalers) ||
        mpti_no_array(s->steps, s->step_count, sizeof *s->steps) ||
        mpti_no_array(s->counters, s->counter_count, sizeof *s->counters) ||
        mpti_no_array(s->tensors, s->tensor_count, sizeof *s->tensors))
        return MPT_E_ARG;
    for (i = 0; i < s->tensor_count; i++) {
        const mpt_tensor *t = &s->tensors[i];
        if ((t->param && !mpti_is_train_format(t->param_format)) ||
            (s->gradients && t->grad && !mpti_is_train_format(t->grad_format)))
            return MPT_E_UNSUPPORTED;
        if (mpti_misfit(t))
            return MPT_E_ARG;
    }
    memset(&w, 0, sizeof w);
    w.mode = MPTI_WALK_SIZE;
    w.end = (size_t)-1 / 2u - 8u;
    w.from = bytes ? (const unsigned char *)buffer : NULL;
    w.bytes = bytes;
    w.judge = judge;
    mpti_walk_state(&w, s);
    if (w.failed) {
        (void)mpti_state_fault(s, w.tensor, "too large, in the buffer, impossible, or only a gradient");
        return MPT_E_ARG;
    }
    *need = w.at + 8u;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_state_size(const mpt_state *state, size_t *bytes)
{
    return bytes ? mpti_state_measure(state, NULL, 0u, 0, bytes) : MPT_E_ARG;
}

MPT_DEF mpt_status mpt_state_save(const mpt_state *state, void *buffer, size_t bytes)
{
    size_t           need = 0;
    const mpt_status status = mpti_state_measure(state, buffer, bytes, 1, &need);
    mpti_walk        w;
    uint64_t         sum;
    if (status != MPT_OK || !buffer || bytes != need)
        return status != MPT_OK ? status : MPT_E_ARG;
    memset(&w, 0, sizeof w);
    w.mode = MPTI_WALK_SAVE;
    w.to = (unsigned char *)buffer;
    w.end = bytes - 8u;
    w.version = MPT_STATE_VERSION;
    mpti_walk_state(&w, state);
    sum = mpti_state_checksum(w.to, w.end, w.version);
    mpti_copy_words(w.to + w.end, &sum, 1, 8u);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_state_load(const mpt_state *state, const void *buffer, size_t bytes)
{
    const size_t     none = (size_t)-1;
    size_t           size = 0;          /* not needed: the saved run knows its own */
    const mpt_status status = mpti_state_measure(state, buffer, bytes, 0, &size);
    mpti_walk        w;
    uint64_t         sum = 0u;
    if (status != MPT_OK || !buffer || mpti_no_array(buffer, bytes, 1u))
        return status != MPT_OK ? status : MPT_E_ARG;
    memset(&w, 0, sizeof w);
    w.from = (const unsigned char *)buffer;
    w.end = bytes - 8u;
    if (bytes >= 32u) {                 /* otherwise the version stays 0 */
        mpti_copy_words(&sum, w.from + w.end, 1, 8u);
        mpti_copy_words(&w.version, w.from + 8, 1, 8u);     /* after "mp-state" */
    }
    if (w.version - 3u > MPT_STATE_VERSION - 3u)
        return mpti_state_fault(state, none, "no saved run, or one of another version");
    if (sum != mpti_state_checksum(w.from, w.end, w.version))
        return mpti_state_fault(state, none, "damaged or cut");
    w.mode = MPTI_WALK_VERIFY;
    w.judge = 1;
    mpti_walk_state(&w, state);
    if (w.failed || w.at != w.end)
        return mpti_state_fault(state, w.tensor, w.tensor == none
                                ? "other numbers of scalers, records, optimizers, counters or tensors, or "
                                  "values they cannot have"
                                : "the tensor's name, sizes, arrays, formats, storage, seed or group were "
                                  "others");
    w.mode = MPTI_WALK_LOAD;
    w.at = 0;
    mpti_walk_state(&w, state);
    return mpti_state_fault(state, none, NULL);
}
#endif /* MPT_NO_CHECKPOINT */

// >>M21 implementation: lint, memory --------------------------------------------------------------
MPT_DEF MPTI_TEXT_OF_ROW(mpt_lint_text, mpt_lint, MPT_LINTS, "unknown finding")

MPT_DEF mpt_lint mpt_lint_constant(mpt_format format, double value)
{
    unsigned       flags = 0u;
    const uint64_t code = mpt_encode(format, value, NULL, &flags);
    mpt_class      kind;
    if (!mpt_format_get(format) || format == MPT_E8M0 || mpti_f64_is_nan(value))
        return MPT_LINT_UNKNOWN;
    if (flags & (MPT_FLAG_OVERFLOW | MPT_FLAG_INVALID) || !mpti_f64_is_finite(value))
        return MPT_LINT_OVERFLOWS;
    kind = mpt_classify(format, code);
    if (kind == MPT_CLASS_NEG_SUBNORMAL || kind == MPT_CLASS_POS_SUBNORMAL)
        return MPT_LINT_SUBNORMAL;
    return (kind == MPT_CLASS_NEG_ZERO || kind == MPT_CLASS_POS_ZERO) && !mpti_f64_is_zero(value)
               ? MPT_LINT_VANISHES : MPT_LINT_OK;
}

MPT_DEF mpt_lint mpt_lint_update(mpt_storage storage, mpt_format format, double weight, double update)
{
    /* The update moves the weight, in FP32 or in `format`; with Kahan its rest, here 3/4 of its maximum. */
    const int        kahan = storage == MPT_STORE_KAHAN;
    const double     times = kahan && format == MPT_F16 ? 2048.0 : 1.0, u = fabs(update) * times;
    const mpt_format in = kahan || storage == MPT_STORE_NEAREST ? format : MPT_F32;
    unsigned         flags = 0u;
    const uint64_t   code =
        mpt_encode(in, (kahan ? 0.375 * mpt_ulp(format, weight) : fabs(weight)) * times, NULL, &flags);
    const double     at = mpt_decode(in, code);
    const uint64_t   moved = mpt_encode(in, at + u, NULL, &flags);
    if (!mpt_format_get(format) || (unsigned)storage >= (unsigned)MPT_STORAGE_COUNT ||
        !mpti_f64_is_finite(weight) || !mpti_f64_is_finite(update))
        return MPT_LINT_UNKNOWN;
    if (mpti_f64_is_zero(update))
        return MPT_LINT_OK;
    if (flags & MPT_FLAG_OVERFLOW && !kahan)
        return MPT_LINT_OVERFLOWS;
    if (moved == code)
        return MPT_LINT_UPDATE_LOST;
    return u < mpt_ulp(in, at) ? MPT_LINT_UPDATE_FEW : MPT_LINT_OK;
}

MPT_DEF mpt_lint mpt_lint_scale(mpt_format format, double scale, double max_abs)
{
    unsigned flags = 0u;
    if (!mpt_format_get(format) || !(scale > 0.0) || !mpti_f64_is_finite(scale) || !(max_abs >= 0.0) ||
        !mpti_f64_is_finite(max_abs))
        return MPT_LINT_UNKNOWN;
    (void)mpt_encode(format, scale * max_abs, NULL, &flags);
    if ((flags & MPT_FLAG_OVERFLOW) || !mpti_f64_is_finite(scale * max_abs))
        return MPT_LINT_SCALE_HIGH;
    return mpti_f64_bits(scale) << 12 ? MPT_LINT_SCALE_ODD : MPT_LINT_OK;
}

MPT_DEF mpt_lint mpt_lint_copies(const mpt_tensor *tensors, size_t count, size_t *which)
{
    mpt_lint worst = MPT_LINT_OK;
    float    row[MPTI_TILE], value[MPTI_TILE];
    size_t   i, k, first, at = 0;
    if (mpti_tensors_ok(tensors, count, MPT_NEEDS_WEIGHT, NULL) != MPT_OK)
        return MPT_LINT_UNKNOWN;
    for (i = 0; i < count; i++) {
        mpt_tensor   t = tensors[i];
        const size_t width = mpti_format_bytes(t.param_format);
        const int    copied = t.param && mpti_has_master(&t);
        for (first = 0; first < t.n; first += MPTI_TILE) {
            const size_t n = mpti_min(t.n - first, MPTI_TILE);
            const float *weight = mpti_weight_in(value, &tensors[i], first, n);
            mpt_lint     found = MPT_LINT_OK;
            if (copied) {
                t.param = row;
                mpti_param_store(&t, 0, t.master + first, n);
                mpti_row_load(value, row, t.param_format, 0, n);
                weight = value;
            }
            for (k = 0; k < n; k++)
                found = mpti_f32_is_finite(weight[k]) ? found : MPT_LINT_OVERFLOWS;
            if (copied && memcmp(row, (const char *)tensors[i].param + first * width, n * width))
                found = MPT_LINT_STALE;
            at = found > worst ? i : at;
            worst = found > worst ? found : worst;
        }
    }
    if (which && worst != MPT_LINT_OK)
        *which = at;
    return worst;
}

MPT_DEF mpt_status mpt_memory_report(const mpt_tensor *tensors, size_t count, unsigned needs,
                                     mpt_memory *report)
{
    mpt_memory      r;
    /* in the order of the enum from MPTI_MASTER on */
    uint64_t *const to[MPTI_SUMS] = {&r.master, &r.param, &r.m, &r.v, &r.v, &r.extra, &r.grad};
    size_t          i;
    memset(&r, 0, sizeof r);
    if (!report || mpti_no_array(tensors, count, sizeof *tensors))
        return MPT_E_ARG;
    for (i = 0; i < count; i++) {
        const mpt_tensor *t = &tensors[i];
        const char *const why = mpti_tensor_unsupported(t, needs & MPT_NEEDS_WEIGHT);
        const int         copy = (needs & MPT_NEEDS_PARAM) != 0u;
        mpti_array        a[MPTI_ARRAYS];
        size_t            k;
        if (t->n > (size_t)-1 / 2u / sizeof(float) || mpti_misfit(t))
            return MPT_E_ARG;
        if (why || (copy && !mpti_is_train_format(t->param_format)) ||
            ((needs & MPT_NEEDS_GRAD) && !mpti_is_train_format(t->grad_format)))
            return MPT_E_UNSUPPORTED;
        mpti_arrays_of(t, needs & ~MPT_NEEDS_MASTER, a);
        if (!copy && mpti_has_master(t))
            a[MPTI_PARAM].width = 0u;
        r.parameters += t->n;
        for (k = 0; k < MPTI_SUMS; k++) {
            *to[k] += (uint64_t)a[k].count * a[k].width;
            r.total += (uint64_t)a[k].count * a[k].width;
        }
    }
    r.per_parameter = r.parameters ? (double)r.total / (double)r.parameters : 0.0;
    *report = r;
    return MPT_OK;
}

// >>M22 implementation: reports -------------------------------------------------------------------
#ifndef MPT_NO_REPORTS
#include <stdarg.h>

#define MPTI_F64_INF ((uint64_t)0x7ff << 52)
#define MPTI_F64_SIGN (MPTI_ONE << 63)

static uint64_t mpti_magnitude(double x) { return mpti_f64_bits(x) & ~MPTI_F64_SIGN; }
static int mpti_is_negative(double x) { return (int)(mpti_f64_bits(x) >> 63); }
static double mpti_nan(void) { return mpti_f64_make((uint64_t)0xfff << 51); }

/* floor(log2) of the positive finite double with bit pattern a. */
MPTI_NOINLINE static int mpti_range_log2(uint64_t a)
{
    const int field = (int)(a >> 52);
    return field ? field - 1023 : -1011 - mpti_clz64(a);
}

/* The format's table row; NULL if there are no reports against the format (e8m0, unknown formats). */
static const mpt_format_info *mpti_report_format(mpt_format format)
{
    const mpt_format_info *f = mpt_format_get(format);
    return f && f->specials != MPT_SPECIALS_SCALE ? f : NULL;
}

MPTI_NOINLINE static mpt_status mpti_report_init(void *report, size_t bytes, mpt_format format)
{
    if (!report)
        return MPT_E_ARG;
    memset(report, 0, bytes);               /* so that other calls refuse it if this one fails */
    return mpti_report_format(format) ? MPT_OK : MPT_E_UNSUPPORTED;
}

/* The adjacent 64-bit members of a report that begin at byte `at`. */
static uint64_t *mpti_counts_at(void *report, size_t at)
{
    return (uint64_t *)(void *)((unsigned char *)report + at);
}

/* Add src's 64-bit counts from byte `at` to before byte `end` to those of dst, a report of the same kind. */
MPTI_NOINLINE static void mpti_counts_merge(void *dst, const void *src, size_t at, size_t end)
{
    for (; at < end; at += sizeof(uint64_t))
        *mpti_counts_at(dst, at) += *(const uint64_t *)(const void *)((const unsigned char *)src + at);
}

/* Load elements first .. first + n - 1 of an array as doubles. */
static void mpti_source_load(double *dst, mpt_format from, const void *x, size_t first, size_t n)
{
    const size_t bytes = (size_t)mpt_format_get(from)->bytes;
    (void)mpt_convert_n(MPT_F64, dst, from, (const unsigned char *)x + first * bytes, n, NULL, NULL);
}

/* ---- range: counting ---- */

/* The least |x| that is not flushed, that becomes normal, that overflows, as patterns of doubles: halfway
 * from a code to the next; or the double above, if a tie goes to the lower code, which is even. */
MPTI_NOINLINE static void mpti_range_limits(const mpt_format_info *f, uint64_t *edge)
{
    const uint64_t hidden = MPTI_ONE << 52, gap = hidden >> f->mantissa_bits;   /* of normal numbers */
    const uint64_t least = mpti_f64_bits(f->min_subnormal);
    edge[0] = (least < hidden ? 0u : least - hidden) + 1u;      /* FP64 has nothing halfway */
    edge[1] = mpti_f64_bits(f->min_normal) - (gap & ~MPTI_ONE);
    edge[2] = mpti_f64_bits(f->max_finite) + (gap + 1u) / 2u + !(f->max_code & 1u);
}

/* The counters of a pass over an array, for range reports and surveys. Magnitudes are bit patterns of |x|
 * and compared as integers: floating-point comparisons would take subnormals for 0 under DAZ. */
typedef struct mpti_tally {
    const uint64_t *edge;       /* [edges] class limits, ascending */
    int             edges;
    uint64_t       *cell;       /* [edges + 1] */
    uint64_t       *binade, *zero, *inf, *nan;
    double         *max_abs, *min_abs;
} mpti_tally;

/* Let the extremes include others, given as patterns; 0 is for none, there and here. */
MPTI_NOINLINE static void mpti_extremes_add(double *max_abs, double *min_abs, uint64_t greatest,
                                            uint64_t least)
{
    if (greatest > mpti_f64_bits(*max_abs))
        *max_abs = mpti_f64_make(greatest);
    if (least - 1u < mpti_f64_bits(*min_abs) - 1u)      /* 0 wraps to all ones */
        *min_abs = mpti_f64_make(least);
}

/* Count numbers one by one. sign 0: only those without the sign bit; 1: only those with it; or both. */
#define MPTI_BOTH_SIGNS 2
static void mpti_tally_each(mpti_tally *t, mpt_format from, const unsigned char *x, size_t n, int sign)
{
    const uint64_t *const edge = t->edge, *const end = edge + t->edges;
    uint64_t              greatest = 0u, least_less_1 = ~(uint64_t)0;
    double                row[MPTI_TILE];
    size_t                i, j;
    for (i = 0; i < n; i += MPTI_TILE) {
        const size_t take = mpti_min(n - i, MPTI_TILE);
        mpti_source_load(row, from, x, i, take);
        for (j = 0; j < take; j++) {
            const uint64_t  a = mpti_magnitude(row[j]);
            const uint64_t *next = edge;
            if (sign + mpti_is_negative(row[j]) == 1)
                continue;
            if (!a || a >= MPTI_F64_INF) {
                *(!a ? t->zero : a == MPTI_F64_INF ? t->inf : t->nan) += 1u;
                continue;
            }
            while (next < end && a >= *next)
                next++;
            t->cell[next - edge]++;
            t->binade[(a >> 52 ? (int)(a >> 52) - 1023 : mpti_range_log2(a)) - MPT_RANGE_EMIN]++;
            greatest = a > greatest ? a : greatest;
            least_less_1 = a - 1u < least_less_1 ? a - 1u : least_less_1;
        }
    }
    mpti_extremes_add(t->max_abs, t->min_abs, greatest, least_less_1 + 1u);
}

/* A block of an array as floats, and what mpti_floats_look finds in it. */
#define MPTI_FLOATS_MANY 1024
typedef struct mpti_floats {
    const float *x;                     /* [MPTI_FLOATS_MANY], in the array itself or `row` */
    uint32_t     greatest, least_less_1, zeros;     /* patterns of nonzero |x|; 0, ~0 if all are 0; a count */
    float        row[MPTI_FLOATS_MANY];
} mpti_floats;

MPTI_INLINE void mpti_floats_loop(mpti_floats *b, const float *x)
{
    uint32_t greatest = 0u, least_less_1 = 0xffffffffu, zeros = 0u;
    int      i;
    for (i = 0; i < MPTI_FLOATS_MANY; i++) {
        const uint32_t a = mpti_f32_bits(x[i]) & 0x7fffffffu;
        greatest = a > greatest ? a : greatest;
        least_less_1 = a - 1u < least_less_1 ? a - 1u : least_less_1;   /* a zero wraps to all ones */
        zeros += a == 0u;
    }
    b->greatest = greatest;
    b->least_less_1 = least_less_1;
    b->zeros = zeros;
}
MPTI_TWICE(mpti_floats_look, mpti_floats_loop, (mpti_floats *b, const float *x), (b, x))

/* Load n elements of an array, and fill the block up with zeros. */
static void mpti_floats_load(mpti_floats *b, mpt_format from, const unsigned char *src, size_t n)
{
    b->x = b->row;
    if (from == MPT_F32 && n == MPTI_FLOATS_MANY && (uintptr_t)src % sizeof(float) == 0u) {
        b->x = (const float *)(const void *)src;
    } else {
        (void)mpt_convert_n(MPT_F32, b->row, from, src, n, NULL, NULL);
        memset(b->row + n, 0, (MPTI_FLOATS_MANY - n) * sizeof *b->row);
    }
    mpti_floats_look(b, b->x);
}

/* A block is counted by 16-bit codes, of which a vector register holds twice as many as of floats. A code has
 * the upper 14 bits of the magnitude's pattern, then a bit that is set if any lower bit is; this equals the
 * floor plus the ceiling of pattern / 2^17. Codes keep the order of the magnitudes. A limit that lies between
 * codes, such as the least |x| that becomes a normal f16, is compared with the floats. */
#define MPTI_BELOW_CODE 0x1ffffu
#define MPTI_CODE_OF(a) ((int16_t)(((a) >> 17) + (((a) + MPTI_BELOW_CODE) >> 17)))
#define MPTI_LIMITS (256 + MPT_SURVEY_EDGES + 4)

/* reach[j] = how many floats of a block have an |x| of limit[j] or above, for j < limits, rounded up to a
 * multiple of 4. The first limits are powers of two, `powers` or more. */
MPTI_INLINE void mpti_reach_loop(uint32_t *reach, const float *x, const uint32_t *limit, size_t powers,
                                 size_t limits)
{
    int16_t code[MPTI_FLOATS_MANY] MPTI_ALIGNED, below[MPTI_LIMITS];
    size_t  i, j;
    for (i = 0; i < MPTI_FLOATS_MANY; i++)
        code[i] = MPTI_CODE_OF(mpti_f32_bits(x[i]) & 0x7fffffffu);
    for (j = 0; j < limits + 3u; j++)
        below[j] = (int16_t)(MPTI_CODE_OF(limit[j]) - 1);
    for (j = 0; j < limits; j += 4) {
        uint16_t n[4] = {0u, 0u, 0u, 0u};
        for (i = 0; i < MPTI_FLOATS_MANY; i++)
            MPTI_EACH_4(q, n[q] = (uint16_t)(n[q] + (code[i] > below[j + q]));)
        MPTI_EACH_4(q, reach[j + q] = n[q];)
    }
    for (j = powers; j < limits; j++)
        if ((limit[j] & MPTI_BELOW_CODE) > 1u) {
            const uint32_t here = limit[j];
            uint32_t       n = 0u;
            for (i = 0; i < MPTI_FLOATS_MANY; i++)
                n += (mpti_f32_bits(x[i]) & 0x7fffffffu) >= here;
            reach[j] = n;
        }
}
MPTI_TWICE(mpti_reach, mpti_reach_loop,
           (uint32_t *reach, const float *x, const uint32_t *limit, size_t powers, size_t limits),
           (reach, x, limit, powers, limits))

/* Count a block of zeros and normal floats. `edge`: the tally's edges as patterns of floats, rounded up. The
 * limits are powers of two, up to the one above all floats, and the edges that lie between the extremes. */
static void mpti_tally_floats(mpti_tally *t, const uint32_t *edge, const mpti_floats *b)
{
    const uint32_t least = b->least_less_1 + 1u, greatest = b->greatest, first = least >> 23;
    const uint32_t binades = (greatest >> 23) - first + 1u;
    uint32_t       limit[MPTI_LIMITS], reach[MPTI_LIMITS];
    uint32_t       place[MPT_SURVEY_EDGES];     /* index of each edge in limit and reach */
    uint32_t       above = MPTI_FLOATS_MANY - b->zeros, n;
    int            i;
    for (n = 0; n <= binades; n++)
        limit[n] = (first + n) << 23;
    for (i = 0; i < t->edges; i++) {
        const int inside = edge[i] > least && edge[i] <= greatest;
        place[i] = !inside ? edge[i] <= least ? 0 : binades : i && edge[i] == edge[i - 1] ? place[i - 1] : n;
        if (place[i] == n)
            limit[n++] = edge[i];
    }
    limit[n] = limit[n + 1u] = limit[n + 2u] = limit[binades];
    mpti_reach(reach, b->x, limit, binades, n);
    for (n = 0; n < binades; n++)
        t->binade[(int)(first + n) - 127 - MPT_RANGE_EMIN] += reach[n] - reach[n + 1u];
    for (i = 0; i < t->edges; above = reach[place[i++]])
        t->cell[i] += above - reach[place[i]];
    t->cell[i] += above;
    *t->zero += b->zeros;
    mpti_extremes_add(t->max_abs, t->min_abs, mpti_f64_bits((double)mpti_f32_make(greatest)),
                      mpti_f64_bits((double)mpti_f32_make(least)));
}

/* Count an array. Doubles, counts of one sign only, blocks with Inf, NaN or subnormal floats, and a tail
 * shorter than a block are counted one by one. */
static void mpti_tally_run(mpti_tally *t, mpt_format from, const unsigned char *at, size_t n, int sign)
{
    const mpt_format_info *f = mpt_format_get(from);
    uint32_t               edge[MPT_SURVEY_EDGES];
    mpti_floats            b;
    mpt_opts               up = mpti_plain_opts;
    int                    i;
    up.rounding = MPT_RND_UP;
    for (i = 0; i < t->edges && n >= MPTI_FLOATS_MANY; i++) {
        double e = mpti_f64_make(t->edge[i]);
        if (f->has_inf)                 /* round up to the array's format: it has no number between */
            e = mpt_decode_as(f, mpt_encode_as(f, e, &up, NULL));
        edge[i] = (uint32_t)mpt_encode(MPT_F32, e, &up, NULL);
    }
    for (; from != MPT_F64 && sign == MPTI_BOTH_SIGNS && n >= MPTI_FLOATS_MANY; n -= MPTI_FLOATS_MANY) {
        mpti_floats_load(&b, from, at, MPTI_FLOATS_MANY);
        if (b.greatest >= 0x7f800000u || b.least_less_1 < 0x007fffffu)
            mpti_tally_each(t, from, at, MPTI_FLOATS_MANY, sign);
        else if (b.greatest)
            mpti_tally_floats(t, edge, &b);
        else
            *t->zero += MPTI_FLOATS_MANY;
        at += MPTI_FLOATS_MANY * (size_t)f->bytes;
    }
    mpti_tally_each(t, from, at, n, sign);
}

MPT_DEF mpt_status mpt_range_init(mpt_range *r, mpt_format format)
{
    const mpt_status status = mpti_report_init(r, sizeof *r, format);
    if (status != MPT_OK)
        return status;
    mpti_range_limits(mpt_format_get(format), mpti_counts_at(r, offsetof(mpt_range, least_kept)));
    r->format = format;
    return MPT_OK;
}

typedef struct mpti_reporting {
    void                *report;
    const unsigned char *x;
    mpt_format           from;
    const void          *other;         /* second array of as many elements, or NULL */
    uint64_t             which;         /* range: signs to count; roundoff: index of the first element */
    size_t               bytes;         /* of an element of x */
    char                *lock;
} mpti_reporting;

/* Each thread counts its part of an array into a report on its own stack, and merges that into the whole at
 * the end; any order gives the same bytes. The bytes from `field` to before `end_of_it` are settings, copied
 * from the whole; all else starts at zero. Without compiler builtins for a lock the array is not split. */
#if defined(MPT_PARALLEL_FOR) && (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
#define MPTI_REPORT_PARTS(name, field, end_of_it)                                                   \
    static void mpti_##name##_part(void *context, size_t part, size_t begin, size_t end)            \
    {                                                                                               \
        const mpti_reporting *const whole = (const mpti_reporting *)context;                        \
        const size_t                at = offsetof(mpt_##name, field);                               \
        mpti_reporting              own = *whole;                                                   \
        mpt_##name                  r;                                                              \
        memset(&r, 0, sizeof r);                                                                    \
        memcpy((char *)&r + at, (const char *)whole->report + at, (end_of_it) - at);                \
        own.report = &r;                                                                            \
        mpti_##name##_count(&own, part, begin, end);                                                \
        while (__atomic_test_and_set(whole->lock, __ATOMIC_ACQUIRE)) {}                             \
        (void)mpt_##name##_merge((mpt_##name *)whole->report, &r);                                  \
        __atomic_clear(whole->lock, __ATOMIC_RELEASE);                                              \
    }
#define MPTI_REPORTS_CUT MPTI_FAST_PART
#define MPTI_COUNT_OF(name, n) (n) > MPTI_REPORTS_CUT ? mpti_##name##_part : mpti_##name##_count
#else
#define MPTI_REPORT_PARTS(name, field, end_of_it)
#define MPTI_REPORTS_CUT (size_t)-1
#define MPTI_COUNT_OF(name, n) mpti_##name##_count
#endif

/* Check the arguments (ready: the report is initialised), then count n elements by `count`, part by part. */
MPTI_NOINLINE static mpt_status mpti_report_add(void *report, int ready, mpt_format from, const void *x,
                                                size_t n, const void *other, uint64_t which,
                                                mpti_range_fn *count)
{
    const mpt_format_info *f = mpt_format_get(from);
    const size_t           bytes = f ? (size_t)f->bytes : 1u;
    char                   lock = 0;
    mpti_reporting         c = {report, (const unsigned char *)x, from, other, which, bytes, &lock};
    if (!ready || mpti_no_array(x, n, bytes))
        return MPT_E_ARG;
    if (!mpti_report_format(from) || from == MPT_TF32)
        return MPT_E_UNSUPPORTED;
    if (n)
        (void)MPTI_IN_PARTS(n, mpti_min(n, MPTI_REPORTS_CUT), count, &c);
    return MPT_OK;
}

static void mpti_range_count(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_reporting *const c = (const mpti_reporting *)context;
    mpt_range *const            r = (mpt_range *)c->report;
    mpti_tally                  t = {mpti_counts_at(r, offsetof(mpt_range, least_kept)), 3,
                                     mpti_counts_at(r, offsetof(mpt_range, flushed)), r->binade, &r->zero,
                                     &r->inf, &r->nan, &r->max_abs, &r->min_abs};
    mpti_tally_run(&t, c->from, c->x + begin * c->bytes, end - begin, (int)c->which);
    r->count = r->zero + r->inf + r->nan + mpt_range_nonzero(r);
}
MPTI_REPORT_PARTS(range, least_kept, sizeof(mpt_range))

static mpt_status mpti_range_signed(mpt_range *r, mpt_format from, const void *x, size_t n, uint64_t sign)
{
    return mpti_report_add(r, r && r->least_kept, from, x, n, NULL, sign, MPTI_COUNT_OF(range, n));
}

MPT_DEF mpt_status mpt_range_add(mpt_range *r, mpt_format from, const void *x, size_t n)
{
    return mpti_range_signed(r, from, x, n, MPTI_BOTH_SIGNS);
}

MPT_DEF mpt_status mpt_range_add_signed(mpt_range *negative, mpt_range *positive, mpt_format from,
                                        const void *x, size_t n)
{
    mpt_status status = MPT_E_ARG;
    if (negative != positive && positive && positive->least_kept)
        status = mpti_range_signed(negative, from, x, n, 1u);
    return status == MPT_OK ? mpti_range_signed(positive, from, x, n, 0u) : status;
}

MPT_DEF mpt_status mpt_range_merge(mpt_range *dst, const mpt_range *src)
{
    if (!dst || !src || !dst->least_kept || !src->least_kept || dst->format != src->format)
        return MPT_E_ARG;
    mpti_counts_merge(dst, src, 0, offsetof(mpt_range, max_abs));
    mpti_extremes_add(&dst->max_abs, &dst->min_abs, mpti_f64_bits(src->max_abs), mpti_f64_bits(src->min_abs));
    return MPT_OK;
}

/* share * whole, rounded down; exactly `whole` for a share of 1; but at least `least`. */
MPTI_NOINLINE static uint64_t mpti_share_of(double share, uint64_t whole, uint64_t least)
{
    const double   part = share * (double)whole;
    const uint64_t count = part >= (double)whole ? whole : (uint64_t)part;
    return count > least ? count : least;
}

MPT_DEF mpt_status mpt_range_percentile(const mpt_range *r, double percent, int *exponent)
{
    uint64_t nonzero, rank, seen = 0;
    int      i = 0;
    if (!r || !exponent || !r->least_kept || !(percent >= 0.0 && percent <= 100.0) ||
        !mpti_f64_is_finite(percent))
        return MPT_E_ARG;
    nonzero = mpt_range_nonzero(r);
    if (!nonzero)
        return MPT_E_DATA;
    rank = mpti_share_of(percent / 100.0, nonzero, 1u); /* nearest rank: the product, rounded up */
    rank += percent / 100.0 * (double)nonzero > (double)rank;
    while ((seen += r->binade[i]) < rank)
        i++;
    *exponent = i + MPT_RANGE_EMIN;
    return MPT_OK;
}

/* ---- survey ---- */

MPT_DEF mpt_status mpt_survey_init(mpt_survey *a)
{
    int i, j;
    if (!a)
        return MPT_E_ARG;
    memset(a, 0, sizeof *a);
    for (i = 0; i < MPT_SURVEY_EDGES; i++) {    /* sort by insertion */
        const mpt_format_info *f = mpti_report_format((mpt_format)(i / 3));
        uint64_t               limits[3] = {MPTI_F64_INF, MPTI_F64_INF, MPTI_F64_INF};
        if (f)                          /* without reports: above all finite numbers */
            mpti_range_limits(f, limits);
        for (j = i; j > 0 && a->edge[j - 1] > limits[i % 3]; j--)
            a->edge[j] = a->edge[j - 1];
        a->edge[j] = limits[i % 3];
    }
    return MPT_OK;
}

static void mpti_survey_count(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_reporting *const c = (const mpti_reporting *)context;
    mpt_survey *const           a = (mpt_survey *)c->report;
    mpti_tally                  t = {a->edge, MPT_SURVEY_EDGES, a->cell, a->binade, &a->zero, &a->inf,
                                     &a->nan, &a->max_abs, &a->min_abs};
    mpti_tally_run(&t, c->from, c->x + begin * c->bytes, end - begin, MPTI_BOTH_SIGNS);
    a->count += end - begin;
}
MPTI_REPORT_PARTS(survey, edge, offsetof(mpt_survey, cell))

MPT_DEF mpt_status mpt_survey_add(mpt_survey *a, mpt_format from, const void *x, size_t n)
{
    return mpti_report_add(a, a && a->edge[0], from, x, n, NULL, 0u, MPTI_COUNT_OF(survey, n));
}

MPT_DEF mpt_status mpt_survey_merge(mpt_survey *dst, const mpt_survey *src)
{
    if (!dst || !src || !dst->edge[0] || !src->edge[0])
        return MPT_E_ARG;
    mpti_counts_merge(dst, src, 0, offsetof(mpt_survey, edge));
    mpti_counts_merge(dst, src, offsetof(mpt_survey, cell), offsetof(mpt_survey, max_abs));
    mpti_extremes_add(&dst->max_abs, &dst->min_abs, mpti_f64_bits(src->max_abs), mpti_f64_bits(src->min_abs));
    return MPT_OK;
}

MPT_DEF mpt_status mpt_survey_get(const mpt_survey *a, mpt_format format, mpt_range *r)
{
    mpt_status status = a && a->edge[0] ? mpt_range_init(r, format) : MPT_E_ARG;
    int        i;
    if (status != MPT_OK)
        return status;
    r->count = a->count, r->zero = a->zero, r->inf = a->inf, r->nan = a->nan;
    r->max_abs = a->max_abs, r->min_abs = a->min_abs;
    memcpy(r->binade, a->binade, sizeof r->binade);
    for (i = 0; i <= MPT_SURVEY_EDGES; i++) {   /* `least`: lower bound of the cell's values */
        const uint64_t least = i ? a->edge[i - 1] : 0u;
        *(least >= r->least_overflow ? &r->overflow
          : least >= r->least_normal ? &r->normal
          : least >= r->least_kept   ? &r->subnormal
                                     : &r->flushed) += a->cell[i];
    }
    return MPT_OK;
}

/* ---- range: scales ---- */

/* mpti_range_in: the number of values in binade e. mpti_range_upto: in all binades up to and including e. */
static uint64_t mpti_range_in(const mpt_range *r, int e)
{
    const int i = e - MPT_RANGE_EMIN;
    return i >= 0 && i < MPT_RANGE_BINS ? r->binade[i] : 0u;
}

MPTI_NOINLINE static uint64_t mpti_range_upto(const mpt_range *r, int e)
{
    uint64_t sum = 0;
    int      i;
    for (i = 0; i < MPT_RANGE_BINS && i + MPT_RANGE_EMIN <= e; i++)
        sum += r->binade[i];
    return sum;
}

/* The highest binade whose values all round to zero. */
static int mpti_range_flushed_below(const mpt_format_info *f) { return f->emin - f->mantissa_bits - 2; }

/* How often the largest magnitude can be doubled without overflow; negative if it already overflows. With
 * `aside` the largest values, up to that many, are left out of account, by whole binades. */
MPTI_NOINLINE static int mpti_range_doublings(const mpt_range *r, uint64_t aside)
{
    const uint64_t a = mpti_f64_bits(r->max_abs);
    const int      emax = mpt_format_get(r->format)->emax, top = mpti_range_log2(a);
    const int      up = top < -1022 ? -1022 - top : 0;      /* to make it normal: then a doubling adds 2^52 */
    const int      exact = (int)((r->least_overflow - (a << up) - 1u + MPTI_F64_SIGN) >> 52) - 2048 + up;
    uint64_t       above = 0;
    int            e = top;
    while (aside && e > MPT_RANGE_EMIN && (above += mpti_range_in(r, e)) <= aside)
        e--;
    return e < top && emax - e > exact ? emax - e : exact;
}

/* Fill in what scale 2^k does, counted by whole binades. */
MPTI_NOINLINE static void mpti_range_with_scale(const mpt_range *r, int k, mpt_range_choice *c)
{
    const mpt_format_info *f = mpt_format_get(r->format);
    memset(c, 0, sizeof *c);
    c->log2_scale = k;
    c->scale = mpti_f32_make((uint32_t)(k + 127) << 23);
    c->headroom = mpti_f64_is_zero(r->max_abs) ? 0 : mpti_range_doublings(r, 0u) - k;
    c->flushed = mpti_range_upto(r, mpti_range_flushed_below(f) - k);
    c->subnormal = mpti_range_upto(r, f->emin - 1 - k) - c->flushed;
    c->overflow = mpt_range_nonzero(r) - mpti_range_upto(r, f->emax - k);
}

MPTI_NOINLINE static int mpti_share_ok(double share)
{
    return mpti_f64_is_finite(share) && share >= 0.0 && share <= 1.0;
}

MPT_DEF mpt_status mpt_range_choose_scale(const mpt_range *r, int headroom,
                                          const mpt_range_tolerance *tolerated, mpt_range_choice *choice)
{
    const mpt_range_tolerance none = {0.0, 0.0, 0.0}, *t = tolerated ? tolerated : &none;
    const mpt_format_info    *f = r ? mpt_format_get(r->format) : NULL;
    uint64_t                  nonzero, may_flush, may_lose, lost;
    int                       k = 0;
    if (!f || !choice || !r->least_kept || headroom < 0 || headroom > 30 || !mpti_share_ok(t->flushed) ||
        !mpti_share_ok(t->subnormal) || !mpti_share_ok(t->overflow))
        return MPT_E_ARG;
    nonzero = mpt_range_nonzero(r);
    if (nonzero)
        k = mpti_range_doublings(r, mpti_share_of(t->overflow, nonzero, 0u)) - headroom;
    if (k < -126)                           /* what no scale saves counts no more */
        mpti_range_with_scale(r, -126, choice), k = mpti_range_doublings(r, choice->overflow) - headroom;
    k = k > 127 ? 127 : k < -126 ? -126 : k;
    mpti_range_with_scale(r, k, choice);
    lost = choice->flushed + choice->subnormal;
    may_flush = mpti_share_of(t->flushed, nonzero, choice->flushed);
    may_lose = mpti_share_of(t->subnormal, nonzero, may_flush > lost ? may_flush : lost);
    for (; k > 0; k--) {        /* a smaller scale never loses less: go towards 1 while that is accepted */
        choice->flushed += mpti_range_in(r, mpti_range_flushed_below(f) - (k - 1));
        lost += mpti_range_in(r, f->emin - 1 - (k - 1));
        if (choice->flushed > may_flush || lost > may_lose)
            break;
    }
    mpti_range_with_scale(r, k, choice);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_range_at_scale(const mpt_range *r, int log2_scale, mpt_range_choice *choice)
{
    if (!r || !choice || !r->least_kept || log2_scale < -126 || log2_scale > 127)
        return MPT_E_ARG;
    mpti_range_with_scale(r, log2_scale, choice);
    return MPT_OK;
}

/* ---- writing ---- */

typedef struct mpti_out { mpt_writer w; int failed; } mpti_out;     /* failed: nothing more is written */

MPTI_NOINLINE static void mpti_tell_n(mpti_out *o, const char *text, size_t n)
{
    if (!o->failed && n && o->w.write(o->w.user, text, n))
        o->failed = 1;
}

/* Add a finite number with 12 digits, as every reader takes it: -1.25e-7. The last one may be off by one. */
MPTI_NOINLINE static void mpti_add_real(mpti_string *s, double x)
{
    char *first;
    int   e = 0;
    mpti_add_text(s, mpti_is_negative(x) ? "-0" : "0");
    first = s->buf + s->length - 1;
    x = mpti_f64_make(mpti_magnitude(x));
    if (!(mpti_f64_bits(x) >> 52))              /* a subnormal is written as 0, as DAZ would read it */
        return;
    for (; x >= 1e32; e += 32) x /= 1e32;
    for (; x >= 10.0; e++) x /= 10.0;
    for (; x < 1e-32; e -= 32) x *= 1e32;
    for (; x < 1.0; e--) x *= 10.0;
    x = x * 1e11 + 0.5;
    e += x >= 1e12;
    mpti_add_count(s, (uint64_t)x);
    first[0] = first[1];
    first[1] = '.';
    while (s->buf[s->length - 1] == '0')
        s->length--;
    s->length -= s->buf[s->length - 1] == '.';
    if (e) {
        mpti_add_char(s, 'e');
        mpti_add_int(s, e);
    }
}

/* times * part / whole; 0 if `whole` is 0. Counts are below 2^63, so int64_t holds them. */
MPTI_NOINLINE static double mpti_share(uint64_t part, uint64_t whole, double times)
{
    return whole ? times * (double)(int64_t)part / (double)(int64_t)whole : 0.0;
}

/* Write formatted text, independent of the locale: %s a string, %u a uint64_t, %d an int, %r a finite double
 * with 12 digits, %b and a character: that character as often as an int says; width and minus as in printf.
 * Only drawings use the others, which go to snprintf: %.1p and %.2p, the percentage that one uint64_t is of
 * another, where 0 and 100 mean none and all (<0.1%, >99.9%), and those of a double. */
MPTI_NOINLINE static void mpti_tell(mpti_out *o, const char *format, ...)
{
    char    buf[64];
    va_list v;
    va_start(v, format);
    for (; *format; format++) {
        const char  *text = buf, *const spec = format;
        const int    left = spec[1] == '-';
        mpti_string  s = mpti_string_in(buf, sizeof buf);
        size_t       n = strcspn(format, "%"), width = 0;
        int          x;
        if (n) {
            mpti_tell_n(o, format, n);
            format += n - 1;
            continue;
        }
        for (format += left + 1; *format >= '0' && *format <= '9'; format++)
            width = width * 10u + (size_t)(*format - '0');
        switch (*format) {
        case 's': text = va_arg(v, const char *); break;
        case 'u': mpti_add_count(&s, va_arg(v, uint64_t)); break;
        case 'd': mpti_add_int(&s, va_arg(v, int)); break;
        case 'b':
            x = va_arg(v, int);
            for (format++; x > 0; x--)
                mpti_tell_n(o, format, 1);
            break;
        case 'r': mpti_add_real(&s, va_arg(v, double)); break;
        default:
            format += strspn(format, "+.0123456789");
#ifndef MPT_NO_STDIO
            if (*format == 'p') {
                const double   least = format[-1] == '1' ? 0.1 : 0.01;
                const uint64_t part = va_arg(v, uint64_t), whole = va_arg(v, uint64_t);
                const double   real = mpti_share(part, whole, 100.0);
                const int      below = part && real < 0.5 * least;
                const int      above = part < whole && real >= 100.0 - 0.5 * least;
                s.length = (size_t)snprintf(buf, sizeof buf, "%s%.*f%%", below ? "<" : above ? ">" : "",
                                            format[-1] - '0', below ? least : above ? 100.0 - least : real);
            } else {
                char as_c[12] = {0};
                memcpy(as_c, spec, (size_t)(format + 1 - spec));
                s.length = (size_t)snprintf(buf, sizeof buf, as_c, va_arg(v, double));
            }
#endif
        }
        (void)mpti_string_end(&s);
        n = strlen(text);
        for (; !left && width > n; width--)
            mpti_tell_n(o, " ", 1);
        mpti_tell_n(o, text, n);
        for (; width > n; width--)
            mpti_tell_n(o, " ", 1);
    }
    va_end(v);
}

/* The length of the character that s begins with, of more than one byte; 0 if it is not UTF-8 (RFC 3629). */
static size_t mpti_utf8_bytes(const char *s)
{
    const unsigned c = (unsigned char)s[0], next = (unsigned char)s[1];
    const size_t   n = c < 0xe0u ? 2u : c < 0xf0u ? 3u : 4u;
    size_t         i = 1;
    if (c < 0xc2u || c > 0xf4u || (c == 0xe0u && next < 0xa0u) || (c == 0xedu && next > 0x9fu) ||
        (c == 0xf0u && next < 0x90u) || (c == 0xf4u && next > 0x8fu))
        return 0;
    while (i < n && (s[i] & 0xc0) == 0x80)
        i++;
    return i == n ? n : 0;
}

/* Write a string with the quotes and escapes that JSON or CSV need; JSON gets U+FFFD for no UTF-8. */
MPTI_NOINLINE static void mpti_tell_text(mpti_out *o, mpt_style style, const char *s)
{
    const int   json = style == MPT_STYLE_JSON;
    const char *quote = json || (style == MPT_STYLE_CSV && strpbrk(s, ",\"\r\n")) ? "\"" : "";
    size_t      n;
    mpti_tell(o, quote);
    for (; *s; s += n) {
        const int c = (unsigned char)*s;
        n = json && c > 0x7f ? mpti_utf8_bytes(s) : 1u;
        if (json && (c < 0x20 || c == 0x7f)) {
            mpti_tell(o, "\\u00%d", c / 16);
            mpti_tell_n(o, &"0123456789abcdef"[c % 16], 1);
            continue;
        }
        if (*quote && (c == '"' || (json && c == '\\')))
            mpti_tell(o, json ? "\\" : "\"");
        if (n)
            mpti_tell_n(o, s, n);
        else
            mpti_tell(o, "\\ufffd"), n = 1;
    }
    mpti_tell(o, quote);
}

MPTI_NOINLINE static void mpti_tell_real(mpti_out *o, mpt_style style, double x, int whole)
{
    if (mpti_f64_is_finite(x) && whole)
        mpti_tell(o, "%d", (int)x);
    else if (mpti_f64_is_finite(x))
        mpti_tell(o, "%r", x);
    else if (style == MPT_STYLE_JSON)
        mpti_tell(o, "null");
    else if (style == MPT_STYLE_TEXT)
        mpti_tell(o, mpti_f64_is_nan(x) ? "-" : mpti_is_negative(x) ? "-inf" : "inf");
}

/* Find the first and the last bin that is not 0.  Returns: 0 if there is none. */
MPTI_NOINLINE static int mpti_bins_used(const uint64_t *bin, int bins, int *first, int *last)
{
    for (*first = 0; *first < bins && !bin[*first]; ++*first)
        ;
    for (*last = bins - 1; *last > *first && !bin[*last]; --*last)
        ;
    return *first < bins;
}

static void mpti_tell_binades(mpti_out *o, const uint64_t *binade)
{
    int       i, first, last;
    const int any = mpti_bins_used(binade, MPT_RANGE_BINS, &first, &last);
    mpti_tell(o, any ? ",\"first\":%d" : ",\"first\":null", first + MPT_RANGE_EMIN);
    mpti_tell(o, ",\"binades\":[");
    for (i = first; i <= last; i++)
        mpti_tell(o, i > first ? ",%u" : "%u", binade[i]);
    mpti_tell(o, "]");
}

/* Write a report's figures, in any style but MPT_STYLE_DRAWING. `figures`: their names, each with the kind of
 * the next value in v: %s a string, %u a uint64_t, %r a double, %d one that holds an integer, or NaN; without
 * a kind it is of the next of `counts`. %b ends them: counts that are left are a histogram, for JSON only. */
static void mpti_tell_row(mpti_out *o, mpt_style style, const uint64_t *counts, const char *figures,
                          va_list v)
{
    const int   json = style == MPT_STYLE_JSON, lines = style == MPT_STYLE_TEXT;
    const char *before = json ? "{\"" : "";
    int         named = json || style == MPT_STYLE_CSV_HEAD;    /* in lines all but the first figure */
    for (; *figures; named = style != MPT_STYLE_CSV) {
        const size_t n = strcspn(figures, "%,");
        const char   kind = figures[n] == '%' ? figures[n + 1u] : ',';
        if (kind == 'b') {
            if (json)
                mpti_tell_binades(o, counts);
            break;
        }
        mpti_tell(o, before);
        before = json ? ",\"" : lines ? "  " : ",";
        if (named) {
            mpti_tell_n(o, figures, n);
            mpti_tell(o, json ? "\":" : lines ? "%b  " : "", 22 - (int)n);
        }
        if (style == MPT_STYLE_CSV_HEAD)
            ;                           /* only the name is written */
        else if (kind == 's')
            mpti_tell_text(o, style, va_arg(v, const char *));
        else if (kind == ',' || kind == 'u')
            mpti_tell(o, "%u", kind == 'u' ? va_arg(v, uint64_t) : *counts++);
        else
            mpti_tell_real(o, style, va_arg(v, double), kind == 'd');
        mpti_tell(o, lines ? "\n" : "");
        figures += kind == ',' ? n : n + 2u;
        figures += *figures == ',';
    }
    mpti_tell(o, json ? "}\n" : lines ? "" : "\n");
}

typedef void mpti_drawer(mpti_out *o, const void *report, const char *name);

#ifndef MPT_NO_STDIO
static int mpti_write_file(void *user, const char *text, size_t n)
{
    return fwrite(text, 1, n, (FILE *)user) != n;
}

MPT_DEF mpt_writer mpt_writer_file(FILE *file)
{
    const mpt_writer w = {file ? mpti_write_file : NULL, file};
    return w;
}
#endif

MPTI_NOINLINE static mpt_status mpti_out_open(mpti_out *o, mpt_writer w, mpt_style style)
{
    o->w = w;
    o->failed = 0;
    if (!w.write || (unsigned)style > (unsigned)MPT_STYLE_DRAWING)
        return MPT_E_ARG;
#ifdef MPT_NO_STDIO
    if (style == MPT_STYLE_DRAWING)
        return MPT_E_UNSUPPORTED;
#endif
    return MPT_OK;
}

/* Write a report: draw it, or write these figures, of which the first is its name. */
MPTI_NOINLINE static mpt_status mpti_write(mpt_writer w, mpt_style style, mpti_drawer *draw,
                                           const void *report, const uint64_t *counts,
                                           const char *figures, ...)
{
    mpti_out         o;
    va_list          v;
    const mpt_status status = mpti_out_open(&o, w, style);
    if (status != MPT_OK)
        return status;
    va_start(v, figures);
    if (style == MPT_STYLE_DRAWING)
        draw(&o, report, va_arg(v, const char *));
    else
        mpti_tell_row(&o, style, counts, figures, v);
    va_end(v);
    return o.failed ? MPT_E_DATA : MPT_OK;
}

/* ---- drawing ---- */

#define MPTI_DRAW_ROWS  44
#define MPTI_DRAW_WIDTH 50

/* The length of a bar in characters; at least 1 if `part` is not 0. */
MPTI_NOINLINE static int mpti_bar(uint64_t part, uint64_t whole)
{
    const int length = (int)(mpti_share(part, whole, 1.0) * (double)MPTI_DRAW_WIDTH + 0.5);
    return part && !length ? 1 : length;
}

/* The place of an error on an axis of powers of two: the last column is for 2^0 and above, Inf and NaN. */
MPTI_NOINLINE static char *mpti_column(char *axis, int columns, double error)
{
    int at = columns - 1;
    if (mpti_f64_is_finite(error))
        at = mpti_f64_is_zero(error) ? 0 : at + mpti_range_log2(mpti_f64_bits(error));
    return axis + (at < 0 ? 0 : at < columns ? at : columns - 1);
}

/* Does a zone end below binade e? If so, draw that, unless o is NULL. Without f: |update| / half a gap. */
MPTI_NOINLINE static int mpti_edge(mpti_out *o, const mpt_format_info *f, int e)
{
    const char *const words =
        !f                                     ? e ? NULL : "half a gap; smaller updates are lost"
        : e == f->emax + 1                     ? "and above: overflow"
        : e == f->emin                         ? "is the smallest normal binade; below: subnormal"
        : e == mpti_range_flushed_below(f) + 1 ? "is the smallest that is kept; below: becomes 0"
                                               : NULL;
    if (o && words && f)
        mpti_tell(o, "  -------+--- %s: 2^%d %s\n", f->name, e, words);
    else if (o && words)
        mpti_tell(o, "  -------+--- %s\n", words);
    return words != NULL;
}

/* Draw bins, of which the first counts binade `base`, from the last down. With many, or where nearly nothing
 * is left, a row stands for several, but never across an edge. The nearest edges beyond are drawn too. */
MPTI_NOINLINE static void mpti_draw_histogram(mpti_out *o, const uint64_t *bin, int bins, int base,
                                              uint64_t whole, const mpt_format_info *f)
{
    uint64_t most = 1, rest, c;
    int      first, last, draw, i, end, left;
    if (!mpti_bins_used(bin, bins, &first, &last))
        return;
    for (i = last + 1; f && i + base <= f->emax + 1 && !mpti_edge(o, f, i + base); i++)
        ;
    for (draw = 0; draw < 2; draw++)        /* the first round only finds the longest bar */
        for (i = last, rest = whole; i >= first; i = end - 1, rest -= c) {
            left = mpti_share(rest, whole, 100.0) < 0.05 ? bins + 1 : (last - first) / MPTI_DRAW_ROWS + 1;
            for (end = i, c = bin[i]; --left && end > first && !mpti_edge(NULL, f, end + base); )
                c += bin[--end];
            most = c > most ? c : most;
            if (!draw)
                continue;
            mpti_tell(o, "  2^%-5d|%b#", i + base, mpti_bar(c, most));
            mpti_tell(o, c ? " %.1p" : "", c, whole);
            mpti_tell(o, end < i ? " (down to 2^%d)\n" : "\n", end + base);
            (void)mpti_edge(o, f, end + base);
        }
    if (f && !mpti_edge(NULL, f, first + base))
        for (i = first - 1; i + base > mpti_range_flushed_below(f) && !mpti_edge(o, f, i + base); i--)
            ;
}

/* ---- range: writing ---- */

#define MPTI_RANGE_FIGURES "name%s,format%s,count,zero,flushed,subnormal,normal,overflow,inf,nan,"

/* The binade of a percentile as a double, or NaN. */
MPTI_NOINLINE static double mpti_range_log2_at(const mpt_range *r, double percent)
{
    int e;
    return mpt_range_percentile(r, percent, &e) == MPT_OK ? (double)e : mpti_nan();
}

MPTI_NOINLINE static void mpti_range_draw(mpti_out *o, const void *report, const char *name)
{
    const mpt_range *const r = (const mpt_range *)report;
    const mpt_format_info *f = mpt_format_get(r->format);
    const uint64_t         nonzero = mpt_range_nonzero(r);
    mpti_tell(o, "%s: %u values, %.1p zero, %u Inf, %u NaN\n  in %s, of the nonzero: %.1p become 0, "
              "%.1p subnormal, %.1p normal, %.1p overflow\n", name, r->count, r->zero, r->count, r->inf,
              r->nan, f->name, r->flushed, nonzero, r->subnormal, nonzero, r->normal, nonzero, r->overflow,
              nonzero);
    mpti_draw_histogram(o, r->binade, MPT_RANGE_BINS, MPT_RANGE_EMIN, nonzero, f);
}

MPT_DEF mpt_status mpt_range_write(const mpt_range *r, mpt_style style, const char *name, mpt_writer out)
{
    mpt_range_choice best;
    if (!name || mpt_range_choose_scale(r, 3, NULL, &best) != MPT_OK)
        return MPT_E_ARG;
    return mpti_write(out, style, mpti_range_draw, r, &r->count,
                      MPTI_RANGE_FIGURES "min_abs%r,max_abs%r,median_log2%d,best_log2_scale%d,"
                      "flushed_at_best%u,subnormal_at_best%u,%b",
                      name, mpt_format_get(r->format)->name, r->min_abs, r->max_abs,
                      mpti_range_log2_at(r, 50.0), (double)best.log2_scale, best.flushed, best.subnormal);
}

MPTI_NOINLINE static void mpti_survey_draw(mpti_out *o, const void *report, const char *name)
{
    const mpt_survey *const a = (const mpt_survey *)report;
    mpt_range               r;
    mpt_range_choice        c;
    int                     format;
    mpti_tell(o, "%s: %u values, %.1p zero, %u Inf, %u NaN; of the others, in each format\n"
              "              become 0  subnormal    normal  overflow   safe scale: then 0  subnormal\n", name,
              a->count, a->zero, a->count, a->inf, a->nan);
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
        if (mpt_survey_get(a, (mpt_format)format, &r) == MPT_OK) {
            const uint64_t nonzero = mpt_range_nonzero(&r);
            (void)mpt_range_choose_scale(&r, 3, NULL, &c);
            mpti_tell(o, "  %-11s %9.2p %10.2p %9.2p %9.2p   2^%-4d %9.2p %10.2p\n",
                      mpt_format_get(r.format)->name, r.flushed, nonzero, r.subnormal, nonzero, r.normal,
                      nonzero, r.overflow, nonzero, c.log2_scale, c.flushed, nonzero, c.subnormal, nonzero);
        }
}

MPT_DEF mpt_status mpt_survey_write(const mpt_survey *a, mpt_style style, const char *name, mpt_writer out)
{
    const int  end = style == MPT_STYLE_CSV_HEAD ? 1 : (int)MPT_FORMAT_COUNT;  /* one header for all */
    mpt_status status = MPT_OK;
    mpt_range  r;
    int        format;
    if (!a || !a->edge[0] || !name)
        return MPT_E_ARG;
    if (style == MPT_STYLE_DRAWING)
        return mpti_write(out, style, mpti_survey_draw, a, NULL, "", name);
    for (format = 0; format < end && status == MPT_OK; format++)
        if (mpt_survey_get(a, (mpt_format)format, &r) == MPT_OK)
            status = mpt_range_write(&r, style, name, out);
    return status;
}

MPT_DEF mpt_status mpt_range_write_histogram(const mpt_range *r, mpt_writer out)
{
    const mpt_format_info *f = r ? mpt_format_get(r->format) : NULL;
    mpti_out               o;
    int                    first, last, e;
    if (!f || !r->least_kept || mpti_out_open(&o, out, MPT_STYLE_CSV) != MPT_OK)
        return MPT_E_ARG;
    mpti_tell(&o, "log2,count,zone\n");
    if (mpti_bins_used(r->binade, MPT_RANGE_BINS, &first, &last))
        for (e = first + MPT_RANGE_EMIN; e <= last + MPT_RANGE_EMIN; e++)
            mpti_tell(&o, "%d,%u,%d\n", e, mpti_range_in(r, e),
                      (e > mpti_range_flushed_below(f)) + (e >= f->emin) + (e > f->emax));
    return o.failed ? MPT_E_DATA : MPT_OK;
}

/* Draw a row of a curve: what a scale does. */
static void mpti_draw_choice(mpti_out *o, const mpt_range_choice *c, uint64_t nonzero)
{
    const int zero = mpti_bar(c->flushed, nonzero), width = MPTI_DRAW_WIDTH - zero;
    int       subnormal = mpti_bar(c->subnormal, nonzero), over = mpti_bar(c->overflow, nonzero);
    over = over > width ? width : over;
    subnormal = subnormal > width - over ? width - over : subnormal;
    mpti_tell(o, "  2^%-5d|%b0%b~%b#%b!|%9.2p%11.2p%10.2p", c->log2_scale, zero, subnormal,
              width - over - subnormal, over, c->flushed, nonzero, c->subnormal, nonzero, c->overflow,
              nonzero);
}

MPT_DEF mpt_status mpt_range_write_curve(const mpt_range *r, int first, int last, mpt_style style,
                                         const char *name, mpt_writer out)
{
    mpti_out         o;
    mpt_range_choice c, best;
    uint64_t         nonzero;
    int              few, marked;
    const mpt_status status = mpti_out_open(&o, out, style);
    if (!r || !r->least_kept || !name || first < -126 || last > 127 || first > last)
        return MPT_E_ARG;
    if (status != MPT_OK || (style != MPT_STYLE_CSV && style != MPT_STYLE_DRAWING))
        return status == MPT_OK ? MPT_E_UNSUPPORTED : status;
    few = style == MPT_STYLE_DRAWING ? (last - first) / MPTI_DRAW_ROWS + 1 : 0;
    nonzero = mpt_range_nonzero(r);
    (void)mpt_range_choose_scale(r, 3, NULL, &best);
    if (few)
        mpti_tell(&o, "%s: what %s makes of the nonzero at each scale\n"
                  "         0 becomes 0, ~ subnormal, # normal, ! overflow       become 0  subnormal"
                  " overflow\n", name, mpt_format_get(r->format)->name);
    else
        mpti_tell(&o, "log2_scale,flushed,subnormal,overflow\n");
    for (; first <= last && (nonzero || !few); first += few ? few : 1) {
        mpti_range_with_scale(r, first, &c);
        if (few)
            mpti_draw_choice(&o, &c, nonzero);
        else
            mpti_tell(&o, "%d,%r,%r,%r", first, mpti_share(c.flushed, nonzero, 1.0),
                      mpti_share(c.subnormal, nonzero, 1.0), mpti_share(c.overflow, nonzero, 1.0));
        marked = best.log2_scale >= first && best.log2_scale < first + few;
        mpti_tell(&o, marked ? "  <- best: 2^%d\n" : "\n", best.log2_scale);
    }
    return o.failed ? MPT_E_DATA : MPT_OK;
}

/* ---- exact sums ---- */

#define MPTI_EXACT_BIAS 2176            /* the unit of limb 0 is 2^-2176 */

/* Propagate carries into the unique form: all limbs but the last in 0 .. 2^32 - 1, the last with the sign. */
MPTI_NOINLINE static void mpti_exact_settle(mpt_exact *s)
{
    int i;
    for (i = 0; i < MPT_EXACT_LIMBS - 1; i++) {
        const int64_t low = (int64_t)((uint64_t)s->limb[i] & 0xffffffffu);
        s->limb[i + 1] += (s->limb[i] - low) / ((int64_t)1 << 32);
        s->limb[i] = low;
    }
    s->pending = 0u;
}

/* Add (high * 2^64 + low) * 2^e, or subtract it if sign is 1. */
static void mpti_exact_add_bits(mpt_exact *s, unsigned sign, uint64_t high, uint64_t low, int e)
{
    const int at = (e + MPTI_EXACT_BIAS) >> 5, up = (e + MPTI_EXACT_BIAS) & 31;
    uint64_t  part[3];
    int       i;
    part[0] = low << up;
    part[1] = high << up | (up ? low >> (64 - up) : 0u);
    part[2] = up ? high >> (64 - up) : 0u;
    for (i = 0; i < 5; i++) {
        const int64_t limb = (int64_t)(part[i / 2] >> i % 2 * 32 & 0xffffffffu);
        s->limb[at + i] += sign ? -limb : limb;
    }
    if (++s->pending >= 0x40000000u)
        mpti_exact_settle(s);
}

/* Split a finite x: |x| = m * 2^e.  Returns: m. */
static uint64_t mpti_significand(double x, int *e)
{
    const uint64_t u = mpti_f64_bits(x), m = u & ((MPTI_ONE << 52) - 1u);
    const int      field = (int)(u >> 52) & 0x7ff;
    *e = (field ? field : 1) - 1075;
    return field ? m | MPTI_ONE << 52 : m;
}

MPT_DEF void mpt_exact_add(mpt_exact *s, double x, double y)
{
    const unsigned sign = (unsigned)(mpti_is_negative(x) != mpti_is_negative(y));
    int            ex, ey;
    uint64_t       a, b, middle, high;
    if (!mpti_f64_is_finite(x) || !mpti_f64_is_finite(y)) {
        const int nan = mpti_f64_is_nan(x) || mpti_f64_is_nan(y) || mpti_f64_is_zero(x) ||
                        mpti_f64_is_zero(y);
        s->not_finite |= nan ? 1u : sign ? 4u : 2u;
        return;
    }
    a = mpti_significand(x, &ex);
    b = mpti_significand(y, &ey);
    middle = (a >> 32) * (b & 0xffffffffu) + ((a & 0xffffffffu) * (b & 0xffffffffu) >> 32);
    middle += (a & 0xffffffffu) * (b >> 32);        /* 53 times 53 bits, by 32-bit halves: below 2^55 */
    high = (a >> 32) * (b >> 32) + (middle >> 32);
    mpti_exact_add_bits(s, sign, high, a * b, ex + ey);
}

MPT_DEF void mpt_exact_merge(mpt_exact *dst, const mpt_exact *src)
{
    int i;
    mpti_exact_settle(dst);             /* then no sum of limbs wraps: src's are below 2^62 */
    for (i = 0; i < MPT_EXACT_LIMBS; i++)
        dst->limb[i] += src->limb[i];
    dst->not_finite |= src->not_finite;
    mpti_exact_settle(dst);
}

/* A finite sum is sig * 2^e, where sig, the result, has its highest bit set and a sticky lowest bit; or 0. */
static uint64_t mpti_exact_parts(const mpt_exact *s, unsigned *sign, int *e)
{
    mpt_exact v = *s;
    uint64_t  rest = 0u;
    int       i, top = MPT_EXACT_LIMBS - 1, up;
    mpti_exact_settle(&v);
    *sign = v.limb[top] < 0;
    for (i = 0; *sign && i <= top; i++)
        v.limb[i] = -v.limb[i];
    mpti_exact_settle(&v);
    while (top > 0 && !v.limb[top])
        top--;
    if (!v.limb[top])
        return 0u;
    up = mpti_clz32((uint32_t)v.limb[top]);
    for (i = 0; i <= top; i++)
        v.limb[i] *= (int64_t)1 << up;
    mpti_exact_settle(&v);              /* now the highest bit of the highest limb is set */
    for (i = 0; i < top - 1; i++)
        rest |= (uint64_t)v.limb[i];
    *e = 32 * (top - 1) - MPTI_EXACT_BIAS - up;
    return (uint64_t)v.limb[top] << 32 | (rest != 0u) | (top ? (uint64_t)v.limb[top - 1] : 0u);
}

MPT_DEF double mpt_exact_value(const mpt_exact *s)
{
    unsigned sign;
    int      e, field;                  /* field: of the result's exponent, if it is normal */
    uint64_t sig = mpti_exact_parts(s, &sign, &e);
    if (s->not_finite)
        return s->not_finite == 2u   ? mpti_f64_make(MPTI_F64_INF)
               : s->not_finite == 4u ? mpti_f64_make(MPTI_F64_SIGN | MPTI_F64_INF)
                                     : mpti_nan();
    if (!sig)
        return 0.0;
    field = e + 63 + 1023;
    sig = mpti_shift_rne64(mpti_shift_jam(sig, field > 0 ? 9 : 10 - field), 2);
    sig += field > 1 ? (uint64_t)(field - 1) << 52 : 0u;        /* the hidden bit adds 1 to the field */
    return mpti_f64_make((uint64_t)sign << 63 | (field > 2046 ? MPTI_F64_INF : sig));
}

/* ---- rounding report ---- */

/* |x| * 2^bits, rounded to an integer, nearest-even; at most 2^62. */
static uint64_t mpti_fixed(double x, int bits)
{
    int            e;
    const uint64_t m = mpti_significand(x, &e), most = MPTI_ONE << 62;
    e += bits;
    if (e <= 0)
        return e < -60 ? 0u : e ? mpti_shift_rne64(m, -e) : m;
    return e > 10 || m << e > most ? most : m << e;
}

MPTI_INLINE void mpti_raise(double *most, double x) { *most = x > *most ? x : *most; }

/* Add to a sum of 128 bits, low word first, in two's complement. */
MPTI_NOINLINE static void mpti_wide_add(uint64_t *sum, uint64_t low, uint64_t high)
{
    sum[0] += low;
    sum[1] += high + (uint64_t)(sum[0] < low);
}

MPTI_NOINLINE static double mpti_wide_value(const uint64_t *sum)
{
    const int      negative = (int)(sum[1] >> 63);
    const uint64_t low = negative ? 0u - sum[0] : sum[0];
    const uint64_t high = negative ? ~sum[1] + (uint64_t)(sum[0] == 0u) : sum[1];
    const double   value = (double)high * 18446744073709551616.0 + (double)low;
    return negative ? -value : value;
}

MPT_DEF mpt_status mpt_roundoff_init(mpt_roundoff *r, mpt_format format, const mpt_opts *opts, int log2_scale)
{
    const mpt_status status = mpti_report_init(r, sizeof *r, format);
    const mpt_opts   o = opts ? *opts : mpti_plain_opts;
    if (o.randoms || mpt_quantize_n(NULL, NULL, 0, MPT_F32, &o) != MPT_OK || log2_scale < -1000 ||
        log2_scale > 1000)
        return MPT_E_ARG;
    if (status != MPT_OK)
        return status;
    r->format = (uint32_t)format, r->flush = o.flush;
    r->rounding = (uint32_t)o.rounding, r->overflow_mode = (uint32_t)o.overflow;
    r->seed = o.seed, r->first_element = o.first_element, r->stream = o.stream, r->step = o.step;
    r->log2_scale = log2_scale, r->ready = 1u;
    return MPT_OK;
}

/* Count one number: x as the caller gave it, `scaled` after the scale, y after rounding. */
MPTI_NOINLINE static void mpti_roundoff_add_1(mpt_roundoff *r, double x, double scaled, double y)
{
    double   error, relative, ulps;
    uint64_t fixed, sig;
    int      e, e_x;
    r->count++;
    if (!mpti_f64_is_finite(x) || mpti_f64_is_zero(x)) {
        *(mpti_f64_is_zero(x) ? &r->zero : mpti_f64_is_nan(x) ? &r->nan : &r->inf) += 1u;
        return;
    }
    if (!mpti_f64_is_finite(scaled) || !mpti_f64_is_finite(y)) {
        r->changed++, r->overflow++;
        return;
    }
    if (mpti_f64_is_zero(scaled))       /* the scale alone flushed it */
        scaled = mpti_f64_make((mpti_f64_bits(x) & MPTI_F64_SIGN) | 1u);
    error = mpti_error_of(y, scaled);
    mpt_exact_add(&r->signal, scaled, scaled);
    if (mpti_f64_is_zero(error)) {
        r->exact++;
        return;
    }
    r->changed++;
    r->flushed += (uint64_t)mpti_f64_is_zero(y);
    sig = mpti_significand(error, &e), relative = (double)sig;      /* |error / scaled|, also under DAZ */
    sig = mpti_significand(scaled, &e_x), relative = ldexp(relative / (double)sig, e - e_x);
    relative = mpti_f64_make(mpti_shift_rne64(mpti_f64_bits(relative), 29) << 29);      /* to 24 bits */
    ulps = mpti_f64_make(mpti_magnitude(error)) / mpt_ulp((mpt_format)r->format, scaled);
    mpti_raise(&r->max_relative, relative);
    mpti_raise(&r->max_ulps, ulps);
    fixed = mpti_fixed(ulps, 24);
    mpti_wide_add(r->relative, mpti_fixed(relative, 40), 0u);
    mpti_wide_add(r->ulps, fixed, 0u);
    fixed = mpti_is_negative(error) ? 0u - fixed : fixed;
    mpti_wide_add(r->bias, fixed, 0u - (fixed >> 63));
    mpt_exact_add(&r->noise, error, error);
}

static void mpti_roundoff_each(mpt_roundoff *r, mpt_format from, const unsigned char *x, size_t n,
                               uint64_t first)
{
    const mpt_format_info *f = mpt_format_get((mpt_format)r->format);
    double                 row[MPTI_TILE], scaled[MPTI_TILE], rounded[MPTI_TILE];
    mpt_opts               o = mpti_plain_opts;
    size_t                 i, j;
    o.rounding = (mpt_rounding)r->rounding, o.overflow = (mpt_overflow)r->overflow_mode;
    o.flush = r->flush, o.seed = r->seed, o.stream = r->stream, o.step = r->step;
    for (i = 0; i < n; i += MPTI_TILE) {
        const size_t take = mpti_min(n - i, MPTI_TILE);
        mpti_source_load(row, from, x, i, take);
        for (j = 0; j < take; j++)
            scaled[j] = r->log2_scale ? ldexp(row[j], r->log2_scale) : row[j];
        o.first_element = first + i;
        (void)mpt_quantize_f64_n(rounded, scaled, take, f, &o);
        for (j = 0; j < take; j++)
            mpti_roundoff_add_1(r, row[j], scaled[j], rounded[j]);
    }
}

/* Fast path for nearest-even without other options: mpt_quantize_n rounds a block of floats, and the errors
 * are floats too. To sum them in fixed point, add a constant whose last bit is the wanted unit: the addition
 * rounds to that unit, and the low bits of the result's pattern are the integer to sum. It works for numbers
 * from 2^-100 (all errors are normal floats) to the format's largest; a block with others is counted one by
 * one, and so is everything if the compiler may compute floats in another precision or reorder operations. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ == 0 && !defined(__FAST_MATH__)
#define MPTI_PLAIN_FLOATS 1
#define MPTI_LONE const                 /* for a result that must be rounded to its type, and kept */
#else
#define MPTI_PLAIN_FLOATS 0
#define MPTI_LONE const volatile
#endif

/* Count the errors of y, which is x rounded; zeros count as exact. `binade` is the pattern of 2^e, the power
 * of two at or below |x|, but at least `least`. An ulp of x is 2^(e - mantissa_bits); inverse - binade is the
 * pattern of 1 / ulp. Errors in ulp are at most 0.5: with 0.5 added, the last bit is 2^-24. Relative errors
 * are at most 1: with 6 added, the last bit is 2^-21; with `low` added to the remainder, it is 2^-40. What is
 * called here works on integers, as the upper halves of vector registers are in use. */
MPTI_INLINE void mpti_errors_loop(mpt_roundoff *r, float *MPTI_RESTRICT error, const float *MPTI_RESTRICT x,
                                  const float *MPTI_RESTRICT y, uint32_t least, uint32_t inverse)
{
    const float low = 1.1444091796875e-5f;      /* 1.5 * 2^-17 */
    uint32_t    same = 0u, ulps = 0u, minus = 0u, upper = 0u, lower = 0u, max_relative = 0u, max_ulps = 0u;
    uint64_t    bias;
    int         i;
    for (i = 0; i < MPTI_TILE; i++) {
        const uint32_t a = mpti_f32_bits(x[i]) & 0x7fffffffu, binade = (a > least ? a : least) & 0x7f800000u;
        const float    e = y[i] - x[i];
        const uint32_t size = mpti_f32_bits(e) & 0x7fffffffu;
        const float    relative = mpti_f32_make(size) / mpti_f32_make(a > 0x00800000u ? a : 0x00800000u);
        const float    in_ulps = mpti_f32_make(size) * mpti_f32_make(inverse - binade);
        const uint32_t fixed = mpti_f32_bits(in_ulps + 0.5f) - 0x3f000000u;
        const float    part = relative + 6.0f;
        error[i] = e;
        same += size == 0u;
        ulps += fixed;
        minus += fixed & (0u - (uint32_t)(e < 0.0f));
        upper += mpti_f32_bits(part);
        lower += mpti_f32_bits((relative - (part - 6.0f)) + low);
        max_relative = mpti_f32_bits(relative) > max_relative ? mpti_f32_bits(relative) : max_relative;
        max_ulps = mpti_f32_bits(in_ulps) > max_ulps ? mpti_f32_bits(in_ulps) : max_ulps;
    }
    upper -= MPTI_TILE * mpti_f32_bits(6.0f);
    lower -= MPTI_TILE * mpti_f32_bits(low);
    bias = (uint64_t)ulps - 2u * (uint64_t)minus;
    r->exact += same;
    r->changed += MPTI_TILE - same;
    mpti_wide_add(r->relative, ((uint64_t)upper << 19) + lower - ((uint64_t)(lower >> 31) << 32), 0u);
    mpti_wide_add(r->ulps, ulps, 0u);
    mpti_wide_add(r->bias, bias, 0u - (bias >> 63));
    mpti_raise(&r->max_relative, (double)mpti_f32_make(max_relative));
    mpti_raise(&r->max_ulps, (double)mpti_f32_make(max_ulps));
}
MPTI_TWICE(mpti_errors_add, mpti_errors_loop,
           (mpt_roundoff *r, float *error, const float *x, const float *y, uint32_t least, uint32_t inverse),
           (r, error, x, y, least, inverse))

/* Add squares of 48 bits each, as two sums: `high` in units of 2^u, `low` in units of 2^(u - 51). Adding
 * a square to 1.5 * 2^(52 + u) rounds it to a multiple of 2^u, which the low bits of the result hold. Adding
 * the remainder of the square to 1.5 * 2^(u + 1) is exact: the low bits hold it in units of 2^(u - 51). */
MPTI_INLINE void mpti_squares_loop(mpt_exact *s, const float *x, int u)
{
    const uint64_t upper = (uint64_t)(u + 52 + 1023) << 52 | MPTI_ONE << 51;
    const uint64_t lower = (uint64_t)(u + 1 + 1023) << 52 | MPTI_ONE << 51;
    const double   first = mpti_f64_make(upper), both = mpti_f64_make(upper + 3u);  /* + 1.5 * 2^(u + 1) */
    uint64_t       high = 0u - MPTI_FLOATS_MANY * upper, low = 0u - MPTI_FLOATS_MANY * lower, minus;
    int            i;
    for (i = 0; i < MPTI_FLOATS_MANY; i++) {
        const double v = (double)x[i], part = fma(v, v, first);
        high += mpti_f64_bits(part);
        low += mpti_f64_bits(fma(v, v, both - part));
    }
    minus = low >> 63;
    mpti_exact_add_bits(s, 0u, 0u, high, u);
    mpti_exact_add_bits(s, (unsigned)minus, 0u, minus ? 0u - low : low, u - 51);
}
MPTI_TWICE(mpti_squares_add, mpti_squares_loop, (mpt_exact *s, const float *x, int u), (s, x, u))

/* Add the squares of a block: of numbers in 2^bottom .. 2^(top + 1), or of the errors of such numbers. */
static void mpti_squares_close(mpt_exact *s, const float *x, int bottom, int top)
{
    int i;
    if (top - bottom <= 27)
        mpti_squares_add(s, x, 2 * top - 49);
    else                                /* too wide for two 51-bit parts */
        for (i = 0; i < MPTI_FLOATS_MANY; i++)
            mpt_exact_add(s, (double)x[i], (double)x[i]);
}

/* Count n numbers, at most MPTI_FLOATS_MANY.  Returns: 0 if they must be counted one by one. */
static int mpti_roundoff_floats(mpt_roundoff *r, mpt_format from, const unsigned char *at, size_t n)
{
    const mpt_format_info *f = mpt_format_get((mpt_format)r->format);
    const uint32_t         up = (uint32_t)r->log2_scale << 23;      /* scaling adds this to a pattern */
    float                  y[MPTI_FLOATS_MANY], error[MPTI_FLOATS_MANY];
    mpti_floats            b;
    int                    top, bottom;
    size_t                 i;
    mpti_floats_load(&b, from, at, n);
    top = (int)(b.greatest >> 23) + r->log2_scale - 127;
    bottom = (int)((b.least_less_1 + 1u) >> 23) + r->log2_scale - 127;
    if (b.greatest && (b.greatest >= 0x7f800000u || b.least_less_1 < 0x007fffffu || bottom < -100 ||
                       top > f->emax || b.greatest + up > mpti_f32_bits((float)f->max_finite)))
        return 0;
    if (up) {
        for (i = 0; i < n; i++)
            b.row[i] = b.x[i] * mpti_f32_make(0x3f800000u + up);
        b.x = b.row;
    }
    (void)mpt_quantize_n(y, b.x, MPTI_FLOATS_MANY, (mpt_format)r->format, NULL);
    for (i = 0; i < MPTI_FLOATS_MANY; i += MPTI_TILE)
        mpti_errors_add(r, error + i, b.x + i, y + i, (uint32_t)(f->emin > -100 ? f->emin + 127 : 27) << 23,
                        (uint32_t)(254 + f->mantissa_bits) << 23);
    mpti_squares_close(&r->signal, b.x, bottom, top);
    mpti_squares_close(&r->noise, error, bottom, top);
    for (i = 0; i < n && b.least_less_1 + up < mpti_f32_bits((float)f->min_subnormal); i++)
        r->flushed += (uint64_t)(mpti_f32_bits(b.x[i]) << 1 && !(mpti_f32_bits(y[i]) << 1));
    r->count += n;
    r->zero += n + b.zeros - MPTI_FLOATS_MANY;
    r->exact -= b.zeros;
    return 1;
}

static void mpti_roundoff_count(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_reporting *const c = (const mpti_reporting *)context;
    mpt_roundoff *const         r = (mpt_roundoff *)c->report;
    const mpt_format_info      *f = mpt_format_get((mpt_format)r->format);
    size_t                      take;
    const int                   blocks =
        MPTI_PLAIN_FLOATS && c->from != MPT_F64 && f->sign_bits && f->mantissa_bits < 23 && f->emin >= -126 &&
        r->rounding == (uint32_t)MPT_RND_NEAREST_EVEN && r->overflow_mode == (uint32_t)MPT_OVERFLOW_IEEE &&
        !r->flush && r->log2_scale >= -126 && r->log2_scale <= 126;
    for (; begin < end; begin += take) {
        const unsigned char *const at = c->x + begin * c->bytes;
        take = mpti_min(end - begin, MPTI_FLOATS_MANY);
        if (!blocks || !mpti_roundoff_floats(r, c->from, at, take))
            mpti_roundoff_each(r, c->from, at, take, c->which + begin);
    }
    mpti_exact_settle(&r->signal);
    mpti_exact_settle(&r->noise);
}
MPTI_REPORT_PARTS(roundoff, seed, sizeof(mpt_roundoff))

MPT_DEF mpt_status mpt_roundoff_add(mpt_roundoff *r, mpt_format from, const void *x, size_t n)
{
    return mpti_report_add(r, r && r->ready, from, x, n, NULL, r ? r->first_element + r->count : 0u,
                           MPTI_COUNT_OF(roundoff, n));
}

MPT_DEF mpt_status mpt_roundoff_merge(mpt_roundoff *dst, const mpt_roundoff *src)
{
    const size_t same = offsetof(mpt_roundoff, step);   /* settings: from here to `ready`, and seed */
    if (!dst || !src || !dst->ready || !src->ready || dst->seed != src->seed ||
        memcmp((const char *)dst + same, (const char *)src + same, offsetof(mpt_roundoff, ready) - same))
        return MPT_E_ARG;
    mpti_counts_merge(dst, src, 0, offsetof(mpt_roundoff, relative));
    mpti_wide_add(dst->relative, src->relative[0], src->relative[1]);
    mpti_wide_add(dst->ulps, src->ulps[0], src->ulps[1]);
    mpti_wide_add(dst->bias, src->bias[0], src->bias[1]);
    mpt_exact_merge(&dst->signal, &src->signal);
    mpt_exact_merge(&dst->noise, &src->noise);
    mpti_raise(&dst->max_relative, src->max_relative);
    mpti_raise(&dst->max_ulps, src->max_ulps);
    if (src->first_element < dst->first_element)
        dst->first_element = src->first_element;    /* the whole starts where its first part does */
    return MPT_OK;
}

MPT_DEF mpt_status mpt_roundoff_get(const mpt_roundoff *r, mpt_roundoff_figures *figures)
{
    uint64_t signal, noise;
    unsigned sign;
    int      high, low;
    double   n;
    if (!r || !figures || !r->ready)
        return MPT_E_ARG;
    n = (double)(r->exact + r->changed - r->overflow);
    signal = mpti_exact_parts(&r->signal, &sign, &high), noise = mpti_exact_parts(&r->noise, &sign, &low);
    figures->max_relative = r->max_relative;
    figures->max_ulps = r->max_ulps;
    figures->mean_relative = figures->mean_ulps = figures->bias_ulps = figures->sqnr_db = mpti_nan();
    if (r->overflow)
        figures->sqnr_db = mpti_f64_make(MPTI_F64_SIGN | MPTI_F64_INF);
    else if (signal)
        figures->sqnr_db =
            noise ? 10.0 * (log10((double)signal / (double)noise) + (high - low) * log10(2.0))
                  : mpti_f64_make(MPTI_F64_INF);
    if (n > 0.0) {
        figures->mean_relative = mpti_wide_value(r->relative) / n / 1099511627776.0;
        figures->mean_ulps = mpti_wide_value(r->ulps) / n / 16777216.0;
        figures->bias_ulps = mpti_wide_value(r->bias) / n / 16777216.0;
    }
    return MPT_OK;
}

MPTI_NOINLINE static void mpti_draw_share(mpti_out *o, const char *name, uint64_t part, uint64_t whole)
{
    const int length = mpti_bar(part, whole);
    mpti_tell(o, "  %-10s|%b#%b | %.2p\n", name, length, MPTI_DRAW_WIDTH - length, part, whole);
}

MPTI_NOINLINE static void mpti_roundoff_draw(mpti_out *o, const void *report, const char *name)
{
    const mpt_roundoff *const r = (const mpt_roundoff *)report;
    const uint64_t            all = r->exact + r->changed;
    char                      axis[MPTI_DRAW_WIDTH + 1];
    mpt_roundoff_figures      g;
    (void)mpt_roundoff_get(r, &g);
    mpti_tell(o, "%s: %u values in %s x 2^%d, %.1p zero, %u Inf, %u NaN; of the others\n", name, r->count,
              mpt_format_get((mpt_format)r->format)->name, (int)r->log2_scale,
              r->zero, r->count, r->inf, r->nan);
    mpti_draw_share(o, "exact", r->exact, all);
    mpti_draw_share(o, "rounded", r->changed - r->flushed - r->overflow, all);
    mpti_draw_share(o, "become 0", r->flushed, all);
    mpti_draw_share(o, "overflow", r->overflow, all);
    if (all == r->overflow)
        return;
    memset(axis, '.', MPTI_DRAW_WIDTH);
    axis[MPTI_DRAW_WIDTH] = '\0';
    *mpti_column(axis, MPTI_DRAW_WIDTH, g.max_relative) = 'M';
    *mpti_column(axis, MPTI_DRAW_WIDTH, g.mean_relative) = 'o';
    mpti_tell(o, "  error / x |%s| o mean %.2e, M largest %.2e\n             2^-%d%b 2^0   bias %+.4f ulp, "
              "SQNR ", axis, g.mean_relative, g.max_relative, MPTI_DRAW_WIDTH - 1, MPTI_DRAW_WIDTH - 8,
              g.bias_ulps);
    mpti_tell(o, mpti_f64_is_finite(g.sqnr_db) ? "%.1f dB\n" : r->overflow ? "-inf dB: overflow\n"
                                                                           : "without noise\n", g.sqnr_db);
}

MPT_DEF mpt_status mpt_roundoff_write(const mpt_roundoff *r, mpt_style style, const char *name,
                                      mpt_writer out)
{
    mpt_roundoff_figures g;
    if (!name || mpt_roundoff_get(r, &g) != MPT_OK)
        return MPT_E_ARG;
    return mpti_write(out, style, mpti_roundoff_draw, r, &r->count,
                      "name%s,format%s,log2_scale%d,count,zero,inf,nan,exact,changed,flushed,overflow,"
                      "max_relative%r,mean_relative%r,max_ulps%r,mean_ulps%r,bias_ulps%r,sqnr_db%r",
                      name, mpt_format_get((mpt_format)r->format)->name, (double)r->log2_scale,
                      g.max_relative, g.mean_relative, g.max_ulps, g.mean_ulps, g.bias_ulps, g.sqnr_db);
}

/* ---- stagnation report ---- */

/* One addition that the compiler may neither fuse with its neighbours nor simplify away. */
static double mpti_add64(double a, double b)
{
    MPTI_LONE double s = a + b;
    return s;
}

/* a + b, rounded to odd: rounding that again, to at most 51 bits, gives a + b as if rounded only once.
 * Source: Boldo & Melquiond 2008; the error of the sum: Knuth, TAOCP 2, 4.2.2. */
static double mpti_add_odd(double a, double b)
{
    const double s = mpti_add64(a, b), b_part = mpti_add64(s, -a), a_part = mpti_add64(s, -b_part);
    const double error = mpti_add64(mpti_add64(a, -a_part), mpti_add64(b, -b_part));
    uint64_t     u = mpti_f64_bits(s);
    if (mpti_f64_is_finite(s) && !mpti_f64_is_zero(error) && !(u & 1u))
        u = mpti_is_negative(s) == mpti_is_negative(error) ? u + 1u : u - 1u;
    return mpti_f64_make(u);
}

MPTI_NOINLINE static double mpti_round_to(mpt_format format, double x)
{
    return mpt_decode(format, mpt_encode(format, x, NULL, NULL));
}

MPT_DEF mpt_status mpt_stagnation_init(mpt_stagnation *r, mpt_format format)
{
    const mpt_status status = mpti_report_init(r, sizeof *r, format);
    if (status == MPT_OK)
        r->format = format, r->ready = 1u;
    return status;
}

/* The index in `margin` for |u| / half the gap to cross, which is half as wide from a power of two inward. */
static int mpti_stagnation_margin(const mpt_format_info *f, double w, double u)
{
    const uint64_t a = mpti_magnitude(w), inward = a && mpti_is_negative(w) != mpti_is_negative(u);
    const int      own = (int)((a - inward) >> 52) - 1023, binade = own > f->emin ? own : f->emin;
    const int      half = binade - f->mantissa_bits - 1 - MPT_STAGNATION_MARGINS / 2;
    const int      e = (int)(mpti_magnitude(u) >> 52) - 1023 - half;
    return e < 0 ? 0 : e >= MPT_STAGNATION_MARGINS ? MPT_STAGNATION_MARGINS - 1 : e;
}

static void mpti_stagnation_add_1(mpt_stagnation *r, double w, double u, double before, double after)
{
    double moved;
    if (!mpti_f64_is_finite(w) || !mpti_f64_is_finite(u) || mpti_f64_is_zero(u) ||
        !mpti_f64_is_finite(before)) {
        r->none++;
        return;
    }
    r->margin[mpti_stagnation_margin(mpt_format_get(r->format), before, u)]++;
    if (!mpti_f64_is_finite(after)) {
        r->overflow++;
        return;
    }
    moved = after - before;
    r->lost += (uint64_t)mpti_f64_is_zero(moved);
    r->half_lost += (uint64_t)(fabs(moved - u) >= 0.5 * fabs(u));
    moved = after - w;
    r->sign_wrong += (uint64_t)(!mpti_f64_is_zero(moved) && mpti_is_negative(moved) != mpti_is_negative(u));
}

static void mpti_stagnation_count(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_reporting *const c = (const mpti_reporting *)context;
    mpt_stagnation *const       r = (mpt_stagnation *)c->report;
    double                      w[MPTI_TILE], u[MPTI_TILE], before[MPTI_TILE], after[MPTI_TILE];
    size_t                      i, take;
    for (r->count += end - begin; begin < end; begin += take) {
        take = mpti_min(end - begin, MPTI_TILE);
        mpti_source_load(w, MPT_F32, c->x, begin, take);
        mpti_source_load(u, MPT_F32, c->other, begin, take);
        for (i = 0; i < take; i++)
            after[i] = r->format == MPT_F64 ? mpti_add64(w[i], u[i]) : mpti_add_odd(w[i], u[i]);
        (void)mpt_quantize_f64_n(before, w, take, mpt_format_get(r->format), NULL);
        (void)mpt_quantize_f64_n(after, after, take, mpt_format_get(r->format), NULL);
        for (i = 0; i < take; i++)
            mpti_stagnation_add_1(r, w[i], u[i], before[i], after[i]);
    }
}
MPTI_REPORT_PARTS(stagnation, format, sizeof(mpt_stagnation))

MPT_DEF mpt_status mpt_stagnation_add(mpt_stagnation *r, const float *w, const float *u, size_t n)
{
    return mpti_report_add(r, r && r->ready && (u || !n), MPT_F32, w, n, u, 0u, MPTI_COUNT_OF(stagnation, n));
}

MPT_DEF mpt_status mpt_stagnation_merge(mpt_stagnation *dst, const mpt_stagnation *src)
{
    if (!dst || !src || !dst->ready || !src->ready || dst->format != src->format)
        return MPT_E_ARG;
    mpti_counts_merge(dst, src, 0, offsetof(mpt_stagnation, format));
    return MPT_OK;
}

MPT_DEF mpt_status mpt_stagnation_vanishing(const mpt_stagnation *r, double share, int *factor)
{
    double   need;
    uint64_t below = 0;
    int      i = 0;
    if (!r || !factor || !r->ready || !mpti_share_ok(share) || !(share > 0.0))
        return MPT_E_ARG;
    if (r->count == r->none)
        return MPT_E_DATA;
    need = share * (double)(r->count - r->none);
    while ((double)(below += r->margin[i]) < need && i < MPT_STAGNATION_MARGINS - 1)
        i++;                            /* slots 0 .. i vanish once slot i is below 2^0 */
    *factor = i ? MPT_STAGNATION_MARGINS / 2 - 1 - i : MPT_STAGNATION_MARGINS / 2;
    return MPT_OK;
}

MPTI_NOINLINE static void mpti_stagnation_draw(mpti_out *o, const void *report, const char *name)
{
    const mpt_stagnation *const r = (const mpt_stagnation *)report;
    const uint64_t              looked = r->count - r->none;
    int                         factor;
    mpti_tell(o, "%s: %u updates of weights in %s, %u zero or not finite\n", name, r->count,
              mpt_format_get(r->format)->name, r->none);
    mpti_tell(o, "  of the others: %.1p lost, %.1p at least half lost, %.1p to the wrong side, "
              "%.1p overflow\n", r->lost, looked, r->half_lost, looked, r->sign_wrong, looked,
              r->overflow, looked);
    if (mpt_stagnation_vanishing(r, 0.5, &factor) != MPT_OK) {
        mpti_tell(o, "  Nothing to judge. A run that is stuck makes none: take w and u of a run in FP32\n");
        return;
    }
    mpti_tell(o, "  |update| / half a gap\n");
    mpti_draw_histogram(o, r->margin, MPT_STAGNATION_MARGINS, -MPT_STAGNATION_MARGINS / 2, looked, NULL);
    mpti_tell(o, "  half of them vanish at 2^%d times this rate (or time step) and below\n", factor);
}

MPT_DEF mpt_status mpt_stagnation_write(const mpt_stagnation *r, mpt_style style, const char *name,
                                        mpt_writer out)
{
    int              factor;
    const mpt_status status = mpt_stagnation_vanishing(r, 0.5, &factor);
    if (!name || status == MPT_E_ARG)
        return MPT_E_ARG;
    return mpti_write(out, style, mpti_stagnation_draw, r, &r->count,
                      "name%s,format%s,count,none,lost,half_lost,sign_wrong,overflow,lost_share%r,"
                      "half_vanish_at_log2%d",
                      name, mpt_format_get(r->format)->name,
                      status == MPT_OK ? mpti_share(r->lost, r->count - r->none, 1.0) : mpti_nan(),
                      status == MPT_OK ? (double)factor : mpti_nan());
}

/* ---- accumulation report ---- */

MPT_DEF MPTI_TEXT_OF_ROW(mpt_sum_method_name, mpt_sum_method, MPT_SUM_METHODS, "unknown")

static float mpti_add32(float a, float b)
{
    MPTI_LONE float s = a + b;
    return s;
}

/* The same number, also where the processor takes subnormal floats for 0 (DAZ). */
static double mpti_widened(float x) { return mpti_f64_make(mpti_f64_widen(mpti_f32_bits(x))); }

MPTI_NOINLINE static void mpti_sums_add_1(mpt_sums *s, float x, const float *y)
{
    const volatile float product = y ? x * *y : x;
    const double         wide = mpti_widened(x), t = y ? wide * mpti_widened(*y) : wide;       /* exact */
    float                term = product, sum, rest;
    int                  k;
    s->f16 = mpti_round_to(MPT_F16, mpti_add_odd(s->f16, t));
    s->bf16 = mpti_round_to(MPT_BF16, mpti_add_odd(s->bf16, t));
    s->f32 = y ? mpti_fma(x, *y, s->f32) : mpti_add32(s->f32, x);
    s->block = y ? mpti_fma(x, *y, s->block) : mpti_add32(s->block, x);
    s->f64 = mpti_add64(s->f64, t);
    mpt_exact_add(&s->exact, t, 1.0);
    mpt_exact_add(&s->magnitude, fabs(t), 1.0);
    rest = mpti_add32(term, -s->kahan_rest);
    sum = mpti_add32(s->kahan, rest);
    s->kahan_rest = mpti_add32(mpti_add32(sum, -s->kahan), -rest);
    s->kahan = sum;
    sum = mpti_add32(s->neumaier, term);
    rest = fabsf(s->neumaier) >= fabsf(term) ? mpti_add32(mpti_add32(s->neumaier, -sum), term)
                                             : mpti_add32(mpti_add32(term, -sum), s->neumaier);
    s->neumaier_rest = mpti_add32(s->neumaier_rest, rest);
    s->neumaier = sum;
    for (k = 0; s->n >> k & 1u; k++)    /* finished trees combine like the carries of a binary counter */
        term = mpti_add32(s->pair[k], term);
    s->pair[k] = term;
    if (++s->n % MPT_SUM_BLOCK == 0) {
        s->block_sum = mpti_add32(s->block_sum, s->block);
        s->block = 0.0f;
    }
}

MPT_DEF mpt_status mpt_sums_add(mpt_sums *s, const float *x, const float *y, size_t n, int backward)
{
    size_t i;
    if (!s || mpti_no_array(x, n, sizeof *x))
        return MPT_E_ARG;
    for (i = 0; i < n; i++) {
        const size_t at = backward ? n - 1u - i : i;
        mpti_sums_add_1(s, x[at], y ? y + at : NULL);
    }
    return MPT_OK;
}

MPT_DEF mpt_status mpt_sums_get(const mpt_sums *s, mpt_sums_figures *figures)
{
    float pairwise = 0.0f;
    int   i;
    if (!s || !figures)
        return MPT_E_ARG;
    for (i = 0; i < 64; i++)
        if (s->n >> i & 1u)
            pairwise = mpti_add32(s->pair[i], pairwise);
    figures->exact = mpt_exact_value(&s->exact);
    figures->condition = mpt_exact_value(&s->magnitude) / fabs(figures->exact);
    figures->value[MPT_SUM_F16] = s->f16;
    figures->value[MPT_SUM_BF16] = s->bf16;
    figures->value[MPT_SUM_F32] = (double)s->f32;
    figures->value[MPT_SUM_BLOCKS] = (double)mpti_add32(s->block_sum, s->block);
    figures->value[MPT_SUM_KAHAN] = (double)s->kahan;
    figures->value[MPT_SUM_NEUMAIER] = (double)mpti_add32(s->neumaier, s->neumaier_rest);
    figures->value[MPT_SUM_PAIRWISE] = (double)pairwise;
    figures->value[MPT_SUM_F64] = s->f64;
    for (i = 0; i < (int)MPT_SUM_METHOD_COUNT; i++) {
        mpt_exact left = s->exact;      /* sum - value: the error with its sign reversed */
        mpt_exact_add(&left, figures->value[i], -1.0);
        figures->error[i] = mpt_exact_value(&left);
        figures->error[i] = mpti_f64_is_zero(figures->error[i]) ? 0.0 : -figures->error[i];
        figures->relative[i] =
            mpti_f64_is_zero(figures->exact) ? mpti_nan() : fabs(figures->error[i] / figures->exact);
    }
    return MPT_OK;
}

MPTI_NOINLINE static void mpti_sums_draw(mpti_out *o, const void *report, const char *name)
{
    static const char letters[][3] = {" h", " b", " s", " k", " K", " N", " P", " d"};
    char              axis[MPTI_DRAW_WIDTH + 4];
    const int         columns = (int)sizeof axis - 1;
    mpt_sums_figures  g;
    int               i;
    (void)mpt_sums_get((const mpt_sums *)report, &g);
    memset(axis, '.', (size_t)columns);
    axis[columns] = '\0';
    mpti_tell(o, name ? "%s: relative error of the sum of n terms\n " : "", name);
    for (i = 0; i < (int)MPT_SUM_METHOD_COUNT; i++) {
        char *const at = mpti_column(axis, columns, mpti_f64_is_zero(g.error[i]) ? 0.0 : g.relative[i]);
        *at = *at == '.' ? letters[i][1] : '*';
        mpti_tell(o, name ? "%s %s," : "", letters[i], mpt_sum_method_name((mpt_sum_method)i));
    }
    mpti_tell(o, name ? " * several\n           n  2^-%d or exact%b 2^0\n" : "", columns - 1, columns - 17);
    mpti_tell(o, "  %10u |%s|\n", ((const mpt_sums *)report)->n, axis);
}

MPT_DEF mpt_status mpt_sums_write(const mpt_sums *s, mpt_style style, const char *name, mpt_writer out)
{
    const int        one = style == MPT_STYLE_CSV_HEAD || style == MPT_STYLE_DRAWING;
    mpt_status       status = MPT_OK;
    mpt_sums_figures g;
    int              i;
    if ((!name && style != MPT_STYLE_DRAWING) || mpt_sums_get(s, &g) != MPT_OK)
        return MPT_E_ARG;
    for (i = 0; i < (one ? 1 : (int)MPT_SUM_METHOD_COUNT) && status == MPT_OK; i++)
        status = mpti_write(out, style, mpti_sums_draw, s, &s->n,
                            "name%s,method%s,n,exact%r,condition%r,value%r,error%r,relative%r", name,
                            mpt_sum_method_name((mpt_sum_method)i), g.exact, g.condition, g.value[i],
                            g.error[i], g.relative[i]);
    return status;
}

/* ---- shadow run ---- */

MPT_DEF MPTI_TEXT_OF_ROW(mpt_shadow_cause_name, mpt_shadow_cause, MPT_SHADOW_CAUSES, "unknown")

static const struct mpti_shadow_op { const char *name; int operands; } mpti_shadow_ops[] = {
    {"value", 1}, {"+", 2}, {"-", 2}, {"*", 2}, {"/", 2}, {"sqrt", 1}, {"fma", 3}
};

MPT_DEF const char *mpt_shadow_op_name(mpt_shadow_op op)
{
    return (unsigned)op < (unsigned)MPT_SHADOW_OP_COUNT ? mpti_shadow_ops[op].name : "unknown";
}

MPT_DEF mpt_status mpt_shadow_init(mpt_shadow *s, mpt_format format, double tolerance)
{
    const mpt_status status = mpti_report_init(s, sizeof *s, format);
    if (!mpti_f64_is_finite(tolerance) || tolerance <= 0.0)
        return MPT_E_ARG;
    if (status != MPT_OK || format == MPT_F64)
        return status == MPT_OK ? MPT_E_UNSUPPORTED : status;
    s->format = format;
    s->tolerance = tolerance;
    s->ready = 1u;
    return MPT_OK;
}

/* |low - exact| / |exact|; 0 if both are equal or NaN; otherwise Inf if one is not finite or exact is 0. */
MPTI_NOINLINE static double mpti_shadow_error(mpt_shadowed v)
{
    if (mpti_f64_bits(v.low) == mpti_f64_bits(v.exact) ||
        (mpti_f64_is_zero(v.low) && mpti_f64_is_zero(v.exact)) ||
        (mpti_f64_is_nan(v.low) && mpti_f64_is_nan(v.exact)))
        return 0.0;
    if (!mpti_f64_is_finite(v.low) || !mpti_f64_is_finite(v.exact) || mpti_f64_is_zero(v.exact))
        return mpti_f64_make(MPTI_F64_INF);
    return fabs((v.low - v.exact) / v.exact);
}

/* What the operation itself lost, given its low-precision inputs; `unrounded` is their result in double. */
MPTI_NOINLINE static mpt_shadow_cause mpti_shadow_cause(mpt_format format, const mpt_shadow_event *v,
                                                        int inputs, double unrounded)
{
    const double low = v->out.low, last = v->in[inputs - 1].low * (v->op == MPT_SHADOW_OP_SUB ? -1.0 : 1.0);
    const int    is_sum = v->op == MPT_SHADOW_OP_ADD || v->op == MPT_SHADOW_OP_SUB ||
                          v->op == MPT_SHADOW_OP_FMA;
    int          i, were_finite = 1, had_nan = 0;
    unsigned     flags = 0u;
    for (i = 0; i < inputs; i++) {
        were_finite &= mpti_f64_is_finite(v->in[i].low);
        had_nan |= mpti_f64_is_nan(v->in[i].low);
    }
    if (mpti_f64_is_nan(unrounded) && !had_nan)
        return MPT_SHADOW_INVALID;
    if (!mpti_f64_is_finite(low) && !were_finite)
        return MPT_SHADOW_NONE;
    (void)mpt_encode(format, unrounded, NULL, &flags);      /* formats without Inf overflow to numbers */
    if ((were_finite && !mpti_f64_is_finite(unrounded)) || flags & MPT_FLAG_INVALID)
        return MPT_SHADOW_INVALID;
    if (flags & MPT_FLAG_OVERFLOW)
        return MPT_SHADOW_OVERFLOW;
    if (is_sum && v->cancelled >= 2 && v->after > 2.0 * v->before && mpti_f64_bits(v->before) != 0u)
        return MPT_SHADOW_CANCELLATION;
    if (low >= unrounded && low <= unrounded)       /* +0 for -0, too, in formats without it */
        return MPT_SHADOW_NONE;
    if (fabs(low) < mpt_format_get(format)->min_normal)
        return MPT_SHADOW_UNDERFLOW;
    if (is_sum && (mpti_f64_bits(low) == mpti_f64_bits(last) ||
                   (inputs == 2 && mpti_f64_bits(low) == mpti_f64_bits(v->in[0].low))))
        return MPT_SHADOW_ABSORPTION;
    return MPT_SHADOW_ROUNDING;
}

/* By how many binades the sum is smaller than its larger term; a sum of 0 lost the whole significand. */
MPTI_NOINLINE static int mpti_shadow_cancelled(const mpt_shadow *s, double a, double b, double sum)
{
    const uint64_t most = mpti_magnitude(fabs(a) > fabs(b) ? a : b);
    if (most >= MPTI_F64_INF || !most || !mpti_f64_is_finite(sum))
        return 0;
    if (mpti_f64_is_zero(sum))
        return mpt_format_get(s->format)->mantissa_bits + 1;
    return mpti_range_log2(most) - mpti_range_log2(mpti_magnitude(sum));
}

MPTI_NOINLINE static double mpti_shadow_in_double(mpt_shadow_op op, double a, double b, double c)
{
    switch ((int)op) {
    case MPT_SHADOW_OP_ADD:  return a + b;
    case MPT_SHADOW_OP_SUB:  return a - b;
    case MPT_SHADOW_OP_MUL:  return a * b;
    case MPT_SHADOW_OP_DIV:  return a / b;
    case MPT_SHADOW_OP_SQRT: return sqrt(a);
    case MPT_SHADOW_OP_FMA:  return fma(a, b, c);
    default: return a;
    }
}

MPT_DEF mpt_shadowed mpt_shadow_apply(mpt_shadow *s, mpt_shadow_op op, mpt_shadowed a, mpt_shadowed b,
                                      mpt_shadowed c)
{
    const int        fused = op == MPT_SHADOW_OP_FMA, minus = op == MPT_SHADOW_OP_SUB;
    double           low;
    mpt_shadow_event v;
    int              i, inputs;
    memset(&v, 0, sizeof v);
    v.out.low = v.out.exact = mpti_nan();
    if (!s || !s->ready || (unsigned)op >= (unsigned)MPT_SHADOW_OP_COUNT)
        return v.out;
    v.op = op;
    inputs = mpti_shadow_ops[op].operands;
    if (op == MPT_SHADOW_OP_VALUE)
        a.low = a.exact;
    for (i = 0; i < inputs; i++) {
        v.in[i] = i == 0 ? a : i == 1 ? b : c;
        mpti_raise(&v.before, mpti_shadow_error(v.in[i]));
    }
    if (fused || minus || op == MPT_SHADOW_OP_ADD) {
        const double term = fused ? a.low * b.low : a.low;      /* exact: at most 48 bits */
        const double other = fused ? c.low : minus ? -1.0 * b.low : b.low;
        low = mpti_add_odd(term, other);
        v.cancelled = mpti_shadow_cancelled(s, term, other, low);
    } else {
        low = mpti_shadow_in_double(op, a.low, b.low, c.low);
    }
    v.out.low = mpti_round_to(s->format, low);
    v.out.exact = mpti_shadow_in_double(op, a.exact, b.exact, c.exact);
    v.at = ++s->operations;
    v.after = mpti_shadow_error(v.out);
    v.cause = mpti_shadow_cause(s->format, &v, inputs, low);
    s->causes[v.cause]++;
    if (!s->first.at && (v.cause == MPT_SHADOW_INVALID ||
                         (v.after > s->tolerance && !(v.before > s->tolerance))))
        s->first = v;
    if (mpti_f64_is_finite(v.before) && v.after > v.before &&
        (!s->worst.at || v.after - v.before > s->worst.after - s->worst.before))
        s->worst = v;
    return v.out;
}

MPT_DEF mpt_shadowed mpt_shadow_value(mpt_shadow *s, double x)
{
    const mpt_shadowed v = {x, x};
    return mpt_shadow_apply(s, MPT_SHADOW_OP_VALUE, v, v, v);
}

MPTI_NOINLINE static void mpti_shadow_draw_event(mpti_out *o, const mpt_shadow_event *v)
{
    int i;
    if (!v->at) {
        mpti_tell(o, "none\n");
        return;
    }
    mpti_tell(o, "operation %u (%s): %s\n    ", v->at, mpt_shadow_op_name(v->op),
              mpt_shadow_cause_name(v->cause));
    for (i = 0; i < mpti_shadow_ops[v->op].operands; i++)
        mpti_tell(o, "%s%.6g (in double %.6g)", i ? ", " : "of ", v->in[i].low, v->in[i].exact);
    mpti_tell(o, "\n    gives %.6g (in double %.6g); off by %.2g before, by %.2g after", v->out.low,
              v->out.exact, v->before, v->after);
    mpti_tell(o, v->cancelled > 0 ? "; %d binades cancelled\n" : "\n", v->cancelled);
}

MPTI_NOINLINE static void mpti_shadow_draw(mpti_out *o, const void *report, const char *name)
{
    const mpt_shadow *const s = (const mpt_shadow *)report;
    uint64_t                most = 1;
    int                     i;
    for (i = 0; i < (int)MPT_SHADOW_CAUSE_COUNT; i++)
        most = s->causes[i] > most ? s->causes[i] : most;
    mpti_tell(o, "%s: %u operations in %s, each compared with itself in double\n", name, s->operations,
              mpt_format_get(s->format)->name);
    for (i = 0; i < (int)MPT_SHADOW_CAUSE_COUNT; i++)
        mpti_tell(o, "  %-26s|%b# %u\n", i ? mpt_shadow_cause_name((mpt_shadow_cause)i) : "nothing lost",
                  mpti_bar(s->causes[i], most), s->causes[i]);
    mpti_tell(o, "  first to be invalid, or off by more than %g: ", s->tolerance);
    mpti_shadow_draw_event(o, &s->first);
    mpti_tell(o, "  most error added: ");
    if (s->worst.at && s->worst.at == s->first.at)
        mpti_tell(o, "by the same\n");
    else
        mpti_shadow_draw_event(o, &s->worst);
}

#define MPTI_EVENT_FIGURES(event)                                                                       \
    #event "_at%u," #event "_op%s," #event "_cause%s," #event "_before%r," #event "_after%r,"           \
    #event "_low%r," #event "_exact%r"
#define MPTI_EVENT_VALUES(v)                                                                            \
    v.at, v.at ? mpti_shadow_ops[v.op].name : "", v.at ? mpt_shadow_cause_name(v.cause) : "", v.before,   \
    v.after, v.out.low, v.out.exact

MPT_DEF mpt_status mpt_shadow_write(const mpt_shadow *s, mpt_style style, const char *name, mpt_writer out)
{
    if (!s || !s->ready || !name)
        return MPT_E_ARG;
    return mpti_write(out, style, mpti_shadow_draw, s, s->causes + MPT_SHADOW_ROUNDING,
                      "name%s,format%s,operations%u,rounding,catastrophic cancellation,absorption,underflow,"
                      "overflow,invalid operation," MPTI_EVENT_FIGURES(first) "," MPTI_EVENT_FIGURES(worst),
                      name, mpt_format_get(s->format)->name, s->operations, MPTI_EVENT_VALUES(s->first),
                      MPTI_EVENT_VALUES(s->worst));
}

/* ---- tracking over time ---- */

MPT_DEF mpt_status mpt_track_init(mpt_track *t, const char *name, mpt_format format, uint64_t every,
                                  mpt_writer out)
{
    const mpt_status status = mpti_report_init(t, sizeof *t, format);
    if (status != MPT_OK || !name)
        return name ? status : MPT_E_ARG;
    t->name = name;
    t->format = format;
    t->every = every;
    t->out = out;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_track_add(mpt_track *t, uint64_t step, mpt_format from, const void *x, size_t n)
{
    mpt_range  r;
    mpt_status status;
    if (!t)
        return MPT_E_ARG;
    if (!t->every || step % t->every)
        return MPT_OK;
    status = t->name ? mpt_range_init(&r, t->format) : MPT_E_ARG;
    if (status == MPT_OK)
        status = mpt_range_add(&r, from, x, n);
    if (status != MPT_OK)
        return status;
    t->samples++;
    t->nonzero = mpt_range_nonzero(&r);
    t->flushed = r.flushed;
    t->overflow = r.overflow + r.inf + r.nan;
    if (!t->first_flushed && t->flushed)
        t->first_flushed = step + 1u;
    if (!t->first_overflow && t->overflow)
        t->first_overflow = step + 1u;
    if (!t->out.write)
        return MPT_OK;
    return mpti_write(t->out, MPT_STYLE_JSON, NULL, NULL, &r.count,
                      "step%u," MPTI_RANGE_FIGURES "max_log2%d,median_log2%d", step, t->name,
                      mpt_format_get(t->format)->name, mpti_range_log2_at(&r, 100.0),
                      mpti_range_log2_at(&r, 50.0));
}

MPT_DEF mpt_status mpt_track_first(const mpt_track *tracks, size_t count, int overflow, size_t *index)
{
    uint64_t earliest = 0;
    size_t   i, found = 0;
    if (!index || mpti_no_array(tracks, count, sizeof *tracks))
        return MPT_E_ARG;
    for (i = 0; i < count; i++) {
        const uint64_t at = overflow ? tracks[i].first_overflow : tracks[i].first_flushed;
        if (at - 1u < earliest - 1u)        /* 0, for none, wraps to ~0 */
            earliest = at, found = i;
    }
    if (!earliest)
        return MPT_E_DATA;
    *index = found;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_track_write(const mpt_track *tracks, size_t count, uint64_t step, const char *title,
                                   mpt_writer out)
{
    mpti_out         o;
    const mpt_status status = mpti_out_open(&o, out, MPT_STYLE_DRAWING);
    size_t           i;
    if (mpti_no_array(tracks, count, sizeof *tracks))
        return MPT_E_ARG;
    if (status != MPT_OK)
        return status;
    if (title) {
        mpti_tell(&o, "%s: share that becomes 0, from none over %s to @ nearly all; ! overflow\n"
                  "  from left to right: ", title, ".:-=+*#%");
        for (i = 0; i < count; i++)
            mpti_tell(&o, i ? ", %s" : "%s", tracks[i].name ? tracks[i].name : "?");
        mpti_tell(&o, "\n");
    }
    mpti_tell(&o, "  step %-9u|", step);
    for (i = 0; i < count; i++) {
        const mpt_track *const t = &tracks[i];
        const int              at = t->flushed ? 1 + (int)mpti_share(t->flushed, t->nonzero, 8.999) : 0;
        mpti_tell_n(&o, !t->samples ? "??" : t->overflow ? "!!" : &"  ..::--==++**##%%@@"[2 * at], 2);
    }
    mpti_tell(&o, "|\n");
    return o.failed ? MPT_E_DATA : MPT_OK;
}
#endif /* MPT_NO_REPORTS */

// >>M23 implementation: rows ----------------------------------------------------------------------
#ifndef MPT_NO_OPS
#define MPTI_ROW 64             /* lanes (partial sums) of a dot product */

/* One update of a row: master += a * d, where d is x, or comes from x and m (NULL without momentum). With
 * master NULL the row is only tested. It is bad, and not written, if any x or factor * x is Inf or NaN. */
typedef struct mpti_row_step {
    float       *master, *m;
    void        *param;         /* copy of the master in `format`, or NULL */
    const float *x;
    mpt_format   format;
    float        a, momentum, factor;
    int          nesterov;
    const void  *from;          /* the weights to start from, master or in 16 bits */
    mpt_format   from_format;
} mpti_row_step;

/* Part of a matrix product: rows x n sums of a[rows][k] * w[k][n], in order of k. If `begun`, the sums start
 * from s, else from 0. The results go to s, or if c is not NULL, to c = alpha * sum + beta * c. */
typedef struct mpti_thin {
    const float *a;
    const void  *w;
    float       *s;
    void        *c;
    mpt_format   w_format, c_format;
    size_t       rows, n, k, lda, ldw, lds, ldc;
    float        alpha, beta;
    int          begun;
} mpti_thin;

#if MPTI_X86
/* Blocks of sixteen floats, in one AVX-512 vector or two AVX2 vectors. `in` loads elements i .. i + 15 of a
 * row in a training format; `some` loads only n < 16 elements, followed by zeros; `any` does what n asks for.
 * `out` stores sixteen elements; `put` stores n, if n < 16. Memory behind the n elements is not touched. */
#define MPTI_FLOATS_AT(vector, p, i) (*(const vector *)(const void *)((const float *)(p) + (i)))
#define MPTI_CODES_AT(vector, p, i) (*(const vector *)(const void *)((const uint16_t *)(p) + (i)))
#define MPTI_TO_FLOATS(vector, p, i) (*(vector *)(void *)((float *)(p) + (i)))
#define MPTI_TO_CODES(vector, p, i) (*(vector *)(void *)((uint16_t *)(p) + (i)))
#define MPTI_MASKED_512(op, from) \
    __asm__(op " {%1, %0%{%2%}%{z%}|%0%{%2%}%{z%}, %1}" : "=v"(r) : "m"(from), "Yk"(first))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_row_add_512, mpti_v16, MPTI_OF_3("vaddps"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_row_mul_512, mpti_v16, MPTI_OF_3("vmulps"))
MPTI_IN_512 mpti_v16 mpti_row_reach_512(mpti_v16 d, mpti_v16 x) { return mpti_max_512(d, x & 0x7fffffffu); }
MPTI_IN_512 mpti_v16 mpti_row_madd_512(mpti_v16 a, mpti_v16 b, mpti_v16 c)
{
    __asm__(MPTI_OF_3("vfmadd231ps") : "+v"(c) : "v"(a), "v"(b));
    return c;
}
MPTI_IN_512 mpti_v16 mpti_row_all_512(float x) { return mpti_all_512(mpti_f32_bits(x)); }
MPTI_IN_512 mpti_v16 mpti_row_in_512(const void *p, mpt_format format, size_t i)
{
    mpti_v16 r;
    if (format == MPT_F32)
        return MPTI_FLOATS_AT(mpti_v16_any, p, i);
    if (format == MPT_F16) {
        __asm__(MPTI_OF_2("vcvtph2ps") : "=v"(r) : "m"(MPTI_CODES_AT(mpti_w16_any, p, i)));
        return r;
    }
    __asm__(MPTI_OF_2("vpmovzxwd") : "=v"(r) : "m"(MPTI_CODES_AT(mpti_w16_any, p, i)));
    return r << 16;
}
MPTI_IN_512 mpti_v16 mpti_row_some_512(const void *p, mpt_format format, size_t i, size_t n)
{
    const uint16_t first = (uint16_t)((1u << n) - 1u);
    mpti_v16       r;
    if (format == MPT_F32) {
        MPTI_MASKED_512("vmovups", MPTI_FLOATS_AT(mpti_v16_any, p, i));
        return r;
    }
    if (format == MPT_F16) {
        MPTI_MASKED_512("vcvtph2ps", MPTI_CODES_AT(mpti_w16_any, p, i));
        return r;
    }
    MPTI_MASKED_512("vpmovzxwd", MPTI_CODES_AT(mpti_w16_any, p, i));
    return r << 16;
}
MPTI_IN_512 mpti_w16 mpti_row_codes_512(mpt_format format, mpti_v16 x)
{
    mpti_w16 h;
    if (format == MPT_F16)
        return mpti_halves_512(x);
    __asm__("vpmovdw {%1, %0|%0, %1}" : "=v"(h) : "v"(mpti_bf16_round_512(x) >> 16));
    return h;
}
MPTI_IN_512 void mpti_row_out_512(void *p, mpt_format format, size_t i, mpti_v16 x)
{
    if (format == MPT_F32)
        MPTI_TO_FLOATS(mpti_v16_any, p, i) = x;
    else
        MPTI_TO_CODES(mpti_w16_any, p, i) = (mpti_w16_any)mpti_row_codes_512(format, x);
}
MPTI_IN_512 void mpti_row_put_512(void *p, mpt_format format, size_t i, size_t n, mpti_v16 x)
{
    const uint16_t first = (uint16_t)((1u << n) - 1u);
    if (n >= 16u)
        mpti_row_out_512(p, format, i, x);
    else if (format == MPT_F32)
        __asm__ volatile("vmovups {%1, %0%{%2%}|%0%{%2%}, %1}"
                         : "+m"(MPTI_TO_FLOATS(mpti_v16_any, p, i)) : "v"(x), "Yk"(first));
    else
        __asm__ volatile("vmovdqu16 {%1, %0%{%2%}|%0%{%2%}, %1}"
                         : "+m"(MPTI_TO_CODES(mpti_w16_any, p, i))
                         : "v"(mpti_row_codes_512(format, x)), "Yk"(first));
}

typedef struct mpti_two_256 { mpti_v8 low, high; } mpti_two_256;
MPTI_BINARY(MPTI_IN_256, mpti_v8, mpti_max_256, mpti_v8, MPTI_OF_3("vpmaxud"))
MPTI_IN_256 mpti_v8 mpti_reach_256(mpti_v8 d, mpti_v8 x) { return mpti_max_256(d, x & 0x7fffffffu); }
MPTI_BINARY(MPTI_IN_256, mpti_v4, mpti_add_ps_128, mpti_v4, MPTI_OF_3("vaddps"))
#define MPTI_TWO(name, one)                                                             \
    MPTI_IN_256 mpti_two_256 name(mpti_two_256 a, mpti_two_256 b)                       \
    {                                                                                   \
        a.low = one(a.low, b.low), a.high = one(a.high, b.high);                        \
        return a;                                                                       \
    }
MPTI_TWO(mpti_row_add_256, mpti_add_ps_256)
MPTI_TWO(mpti_row_mul_256, mpti_mul_ps_256)
MPTI_TWO(mpti_row_reach_256, mpti_reach_256)
MPTI_IN_256 mpti_two_256 mpti_row_madd_256(mpti_two_256 a, mpti_two_256 b, mpti_two_256 c)
{
    __asm__(MPTI_OF_3("vfmadd231ps") : "+x"(c.low) : "x"(a.low), "x"(b.low));
    __asm__(MPTI_OF_3("vfmadd231ps") : "+x"(c.high) : "x"(a.high), "x"(b.high));
    return c;
}
MPTI_IN_256 mpti_two_256 mpti_row_all_256(float x)
{
    mpti_two_256 r;
    r.low = r.high = mpti_all_256(mpti_f32_bits(x));
    return r;
}
MPTI_IN_256 mpti_two_256 mpti_row_in_256(const void *p, mpt_format format, size_t i)
{
    mpti_two_256 r;
    if (format == MPT_F32) {
        r.low = MPTI_FLOATS_AT(mpti_v8_any, p, i);
        r.high = MPTI_FLOATS_AT(mpti_v8_any, p, i + 8u);
    } else if (format == MPT_F16) {
        r.low = mpti_f16_8_256((const unsigned char *)((const uint16_t *)p + i));
        r.high = mpti_f16_8_256((const unsigned char *)((const uint16_t *)p + i + 8));
    } else {
        r.low = mpti_bf16_8_256((const unsigned char *)((const uint16_t *)p + i));
        r.high = mpti_bf16_8_256((const unsigned char *)((const uint16_t *)p + i + 8));
    }
    return r;
}
MPTI_IN_256 void mpti_row_out_256(void *p, mpt_format format, size_t i, mpti_two_256 x)
{
    if (format == MPT_F32) {
        MPTI_TO_FLOATS(mpti_v8_any, p, i) = x.low;
        MPTI_TO_FLOATS(mpti_v8_any, p, i + 8u) = x.high;
    } else if (format == MPT_F16)
        mpti_put_256((unsigned char *)((uint16_t *)p + i),
                     mpti_join_256(mpti_halves_256(x.low), mpti_halves_256(x.high)), 0);
    else {
        if (mpti_lanes_256(mpti_nan_of_2_256(x.low, x.high)))   /* with a branch, 0.7 of the time */
            x.low = mpti_bf16_nan_256(x.low), x.high = mpti_bf16_nan_256(x.high);
        mpti_put_256((unsigned char *)((uint16_t *)p + i), mpti_bf16_pack_256(x.low, x.high), 0);
    }
}

/* AVX2 masks loads of 32-bit words: 16-bit codes are loaded in pairs, the last of an odd number alone. */
MPTI_IN_256 mpti_v8 mpti_masked_256(const void *p, mpti_v8 mask)
{
    mpti_v8 r;
    __asm__("vpmaskmovd {%1, %2, %0|%0, %2, %1}" : "=x"(r) : "m"(*(const mpti_v8_any *)p), "x"(mask));
    return r;
}
MPTI_IN_256 mpti_two_256 mpti_row_some_256(const void *p, mpt_format format, size_t i, size_t n)
{
    const mpti_v8 place = {0, 1, 2, 3, 4, 5, 6, 7};
    mpti_two_256  r;
    if (format == MPT_F32) {
        const mpti_v8 most = mpti_all_256((uint32_t)n);
        r.low = mpti_masked_256((const float *)p + i, mpti_above_256(most, place));
        r.high = mpti_masked_256((const float *)p + i + 8, mpti_above_256(most, place + 8u));
        return r;
    } else {
        const uint16_t *const codes = (const uint16_t *)p + i;
        const mpti_v8         pairs = mpti_above_256(mpti_all_256((uint32_t)n / 2u), place);
        const mpti_v8         all = mpti_above_256(mpti_all_256((uint32_t)(n + 1u) / 2u), place);
        r.low = mpti_masked_256(codes, pairs) | ((all ^ pairs) & mpti_all_256(codes[n - 1u]));
        return mpti_row_in_256(&r.low, format, 0);
    }
}

/* Copy fewer than sixteen elements of a block: 32, 16, 8, 4, 2 bytes, each if `bytes` has that bit. */
MPTI_IN_256 void mpti_row_move(void *to, const void *from, size_t bytes)
{
    unsigned char       *d = (unsigned char *)to;
    const unsigned char *s = (const unsigned char *)from;
#define MPTI_MOVE(count)            \
    if (bytes & (count)) {          \
        memcpy(d, s, count);        \
        d += (count), s += (count); \
    }
    MPTI_MOVE(32u)
    MPTI_MOVE(16u)
    MPTI_MOVE(8u)
    MPTI_MOVE(4u)
    MPTI_MOVE(2u)
}
MPTI_IN_256 void mpti_row_put_256(void *p, mpt_format format, size_t i, size_t n, mpti_two_256 x)
{
    const size_t         bytes = format == MPT_F32 ? sizeof(float) : sizeof(uint16_t);
    unsigned char *const to = (unsigned char *)p + bytes * i;
    mpti_two_256         room;
    mpti_row_out_256(n < 16u ? (void *)&room : (void *)to, format, 0, x);
    if (n < 16u)
        mpti_row_move(to, &room, bytes * n);
}

/* y[i] += k * x[i] for fewer than sixteen elements: x holds the first eight, `high` the rest. Repeated calls
 * for one row load the same pieces that they stored, so store forwarding works and no load has to wait. */
MPTI_IN_256 void mpti_row_add_to(float *y, size_t n, mpti_v8 k, mpti_v8 x, mpti_v8 high)
{
    if (n & 8u) {
        __asm__("vfmadd213ps {%2, %1, %0|%0, %1, %2}"
                : "+x"(x) : "x"(k), "m"(MPTI_FLOATS_AT(mpti_v8_any, y, 0)));
        MPTI_TO_FLOATS(mpti_v8_any, y, 0) = x;
        x = high, y += 8;
    }
    if (n & 4u) {
        high = x;
        __asm__ volatile("vfmadd213ps {%1, %x2, %x0|%x0, %x2, %1}\n\tvmovups {%x0, %1|%1, %x0}"
                         : "+&x"(high), "+m"(MPTI_TO_FLOATS(mpti_w8_any, y, 0)) : "x"(k));
        __asm__("vextractf128 {$1, %1, %x0|%x0, %1, 1}" : "=x"(x) : "x"(x));
        y += 4;
    }
    if (n & 2u) {
        __asm__ volatile("vmovsd {%1, %x0|%x0, %1}\n\tvfmadd231ps {%x2, %x3, %x0|%x0, %x3, %x2}\n\t"
                         "vmovlps {%x0, %1|%1, %x0}"
                         : "=&x"(high), "+m"(*(mpti_b8_any *)(void *)y) : "x"(k), "x"(x));
        __asm__("vpermilps {$0xee, %x1, %x0|%x0, %x1, 0xee}" : "=x"(x) : "x"(x));
        y += 2;
    }
    if (n & 1u)
        *y = mpti_fma(mpti_f32_make(k[0]), mpti_f32_make(x[0]), *y);
}

/* The sum of sixteen lanes: add lane j + 8 to lane j, j + 4 to j, and so on. + 0.0f turns -0 into +0. */
MPTI_IN_256 float mpti_row_sum_256(mpti_two_256 t)
{
    const mpti_v8 x = mpti_add_ps_256(t.low, t.high);
    mpti_v4       a, b;
    __asm__("vmovaps {%x1, %0|%0, %x1}" : "=x"(a) : "x"(x));
    __asm__("vextractf128 {$1, %1, %0|%0, %1, 1}" : "=x"(b) : "x"(x));
    a = mpti_add_ps_128(a, b);
    __asm__("vpermilps {$0x4e, %1, %0|%0, %1, 0x4e}" : "=x"(b) : "x"(a));
    a = mpti_add_ps_128(a, b);
    __asm__("vpermilps {$0xb1, %1, %0|%0, %1, 0xb1}" : "=x"(b) : "x"(a));
    a = mpti_add_ps_128(a, b);
    return mpti_f32_make(a[0]) + 0.0f;
}
MPTI_IN_256 int mpti_row_nan_256(mpti_two_256 t)
{
    mpti_v8 nan;
    int     any;
    __asm__("vcmpunordps {%2, %2, %0|%0, %2, %2}\n\tvtestps {%0, %0|%0, %0}"
            : "=&x"(nan), "=@ccnz"(any) : "x"(mpti_add_ps_256(t.low, t.high)));
    return any;
}
MPTI_IN_256 mpti_two_256 mpti_row_two_256(mpti_two_256 x) { return x; }
MPTI_IN_512 mpti_two_256 mpti_row_two_512(mpti_v16 x)
{
    mpti_two_256 r;
    __asm__("vmovaps {%t1, %0|%0, %t1}" : "=v"(r.low) : "v"(x));
    __asm__("vextractf64x4 {$1, %1, %0|%0, %1, 1}" : "=v"(r.high) : "v"(x));
    return r;
}

/* The loops over a row. In a dot product each block of 16 after the last whole 64 goes to s[0]; then the four
 * accumulators rotate by one place, which does not change (s[0] + s[2]) + (s[1] + s[3]). The largest |x| of a
 * row, compared as integers, is Inf or NaN if any x is; a product p is Inf or NaN if p * 0 is NaN. Products
 * with a vector take many rows in one call (dots, axpys), in 0.5 to 0.9 of the time. An axpy in 16 bits moves
 * its last elements in pieces: a load of what follows, the next row of dW, waits for a masked store (1.6
 * times as long); `room` has 64 bytes, as gcc does not see that f is not MPT_F32 there. These functions are
 * not inline, or gcc warns of vectors that reach beyond a caller's array of one element. */
#define MPTI_ROW_LOOPS(target, place, V, isa)                                                                \
    place V mpti_row_any_##isa(const void *p, mpt_format format, size_t i, size_t n)                         \
    {                                                                                                        \
        return n < 16u ? mpti_row_some_##isa(p, format, i, n) : mpti_row_in_##isa(p, format, i);             \
    }                                                                                                        \
    place size_t mpti_dot_of_##isa(V *s, const void *a, mpt_format f, const float *x, size_t n)              \
    {                                                                                                        \
        size_t i;                                                                                            \
        for (i = 0; i + 64u <= n; i += 64u) {                                                                \
            MPTI_EACH_4(q, s[q] = mpti_row_madd_##isa(mpti_row_in_##isa(a, f, i + 16u * q),               \
                                                     mpti_row_in_##isa(x, MPT_F32, i + 16u * q), s[q]);)     \
        }                                                                                                    \
        return i;                                                                                            \
    }                                                                                                        \
    place float mpti_dot_row_##isa(const void *a, mpt_format f, const void *x, mpt_format g, size_t n)       \
    {                                                                                                        \
        const V zero = mpti_row_all_##isa(0.0f);                                                             \
        V       s[4], t;                                                                                     \
        size_t  i = 0;                                                                                       \
        if (n <= 16u) {                                                                                      \
            t = mpti_row_any_##isa(x, g, 0, n);                                                              \
            t = mpti_row_madd_##isa(mpti_row_any_##isa(a, f, 0, n), t, zero);                                \
            return mpti_row_sum_256(mpti_row_two_##isa(t));                                                  \
        }                                                                                                    \
        s[0] = s[1] = s[2] = s[3] = zero;                                                                    \
        if (n >= 64u && g == MPT_F32)                                                                        \
            i = f == MPT_F32   ? mpti_dot_of_##isa(s, a, MPT_F32, (const float *)x, n)                       \
                : f == MPT_F16 ? mpti_dot_of_##isa(s, a, MPT_F16, (const float *)x, n)                       \
                               : mpti_dot_of_##isa(s, a, MPT_BF16, (const float *)x, n);                     \
        for (; i + 16u <= n; i += 16u) {                                                                     \
            t = mpti_row_madd_##isa(mpti_row_in_##isa(a, f, i), mpti_row_in_##isa(x, g, i), s[0]);           \
            s[0] = s[1], s[1] = s[2], s[2] = s[3], s[3] = t;                                                 \
        }                                                                                                    \
        t = s[0];                                                                                            \
        if (i < n)                                                                                           \
            t = mpti_row_madd_##isa(mpti_row_some_##isa(a, f, i, n - i),                                     \
                                    mpti_row_some_##isa(x, g, i, n - i), t);                                 \
        t = mpti_row_add_##isa(mpti_row_add_##isa(t, s[2]), mpti_row_add_##isa(s[1], s[3]));                 \
        return mpti_row_sum_256(mpti_row_two_##isa(t));                                                      \
    }                                                                                                        \
    target MPTI_NOINLINE static float mpti_dot_##isa(const void *a, mpt_format f, const void *x,             \
                                                     mpt_format g, size_t n)                                 \
    {                                                                                                        \
        const float sum = mpti_dot_row_##isa(a, f, x, g, n);                                                 \
        MPTI_NARROW();                                                                                       \
        return sum;                                                                                          \
    }                                                                                                        \
    target MPTI_NOINLINE static int mpti_dots_##isa(float *to, size_t step, size_t rows, const void *a,      \
                                                    mpt_format f, size_t line, const void *x, mpt_format g,  \
                                                    size_t n)                                                \
    {                                                                                                        \
        size_t r;                                                                                            \
        for (r = 0; r < rows && g == MPT_F32; r++)                                                           \
            to[r * step] = mpti_dot_row_##isa((const unsigned char *)a + r * line, f, x, MPT_F32, n);        \
        for (; r < rows; r++)                                                                                \
            to[r * step] = mpti_dot_##isa((const unsigned char *)a + r * line, f, x, g, n);                  \
        MPTI_NARROW();                                                                                       \
        return 1;                                                                                            \
    }                                                                                                        \
    place size_t mpti_axpy_of_##isa(void *y, mpt_format f, V k, const void *x, mpt_format g, size_t n)       \
    {                                                                                                        \
        size_t i;                                                                                            \
        for (i = 0; i + 16u <= n; i += 16u)                                                                  \
            mpti_row_out_##isa(y, f, i, mpti_row_madd_##isa(k, mpti_row_in_##isa(x, g, i),                   \
                                                            mpti_row_in_##isa(y, f, i)));                    \
        return i;                                                                                            \
    }                                                                                                        \
    place void mpti_axpy_row_##isa(void *y, mpt_format f, float a, const void *x, mpt_format g,              \
                                   size_t n, int many)                                                       \
    {                                                                                                        \
        const V k = mpti_row_all_##isa(a);                                                                   \
        V       u;                                                                                           \
        float   room[16];                                                                                    \
        size_t  i = n < 16u ? 0                                                                              \
                    : f == MPT_F32 && g == MPT_F32 ? mpti_axpy_of_##isa(y, MPT_F32, k, x, MPT_F32, n)        \
                    : f == MPT_F32 && g == MPT_F16 ? mpti_axpy_of_##isa(y, MPT_F32, k, x, MPT_F16, n)        \
                    : f == MPT_F32                 ? mpti_axpy_of_##isa(y, MPT_F32, k, x, MPT_BF16, n)       \
                    : many && f == MPT_F16         ? mpti_axpy_of_##isa(y, MPT_F16, k, x, MPT_F32, n)        \
                    : many                         ? mpti_axpy_of_##isa(y, MPT_BF16, k, x, MPT_F32, n)       \
                                                   : mpti_axpy_of_##isa(y, f, k, x, g, n);                   \
        if (i == n)                                                                                          \
            return;                                                                                          \
        u = mpti_row_some_##isa(x, g, i, n - i);                                                             \
        if (f == MPT_F32) {                                                                                  \
            const mpti_two_256 two = mpti_row_two_##isa(u);                                                  \
            mpti_row_add_to((float *)y + i, n - i, mpti_all_256(mpti_f32_bits(a)), two.low, two.high);       \
            return;                                                                                          \
        }                                                                                                    \
        u = mpti_row_madd_##isa(k, u, mpti_row_some_##isa(y, f, i, n - i));                                  \
        mpti_row_out_##isa(room, f, 0, u);                                                                   \
        mpti_row_move((uint16_t *)y + i, room, (n - i) * sizeof(uint16_t));                                  \
    }                                                                                                        \
    target MPTI_NOINLINE static int mpti_axpy_##isa(void *y, mpt_format f, float a, const void *x,           \
                                                    mpt_format g, size_t n)                                  \
    {                                                                                                        \
        mpti_axpy_row_##isa(y, f, a, x, g, n, 0);                                                            \
        MPTI_NARROW();                                                                                       \
        return 0;                                                                                            \
    }                                                                                                        \
    target MPTI_NOINLINE static int mpti_axpys_##isa(void *y, size_t rows, size_t line, mpt_format f,        \
                                                     const float *a, size_t step, const void *x, size_t n)   \
    {                                                                                                        \
        size_t r;                                                                                            \
        for (r = 0; r < rows; r++)                                                                           \
            mpti_axpy_row_##isa((unsigned char *)y + r * line, f, a[r * step], x, MPT_F32, n, 1);            \
        MPTI_NARROW();                                                                                       \
        return 0;                                                                                            \
    }                                                                                                        \
    place void mpti_row_block_##isa(const mpti_row_step *r, V a, V k, V factor, size_t i, size_t n)          \
    {                                                                                                        \
        V d = mpti_row_any_##isa(r->x, MPT_F32, i, n), g;                                                    \
        if (r->m) {                                                                                          \
            g = mpti_row_mul_##isa(factor, d);                                                               \
            d = mpti_row_madd_##isa(k, mpti_row_any_##isa(r->m, MPT_F32, i, n), g);                          \
            mpti_row_put_##isa(r->m, MPT_F32, i, n, d);                                                      \
            if (r->nesterov)                                                                                 \
                d = mpti_row_madd_##isa(k, d, g);                                                            \
        }                                                                                                    \
        d = mpti_row_madd_##isa(a, d, mpti_row_any_##isa(r->from, r->from_format, i, n));                    \
        mpti_row_put_##isa(r->master, MPT_F32, i, n, d);                                                     \
        if (r->param)                                                                                        \
            mpti_row_put_##isa(r->param, r->format, i, n, d);                                                \
    }                                                                                                        \
    target MPTI_NOINLINE static int mpti_row_step_##isa(const mpti_row_step *o, size_t n)                    \
    {                                                                                                        \
        const mpti_row_step r = *o;                                                                          \
        const V             a = mpti_row_all_##isa(r.a), k = mpti_row_all_##isa(r.momentum);                 \
        const V             factor = mpti_row_all_##isa(r.factor), zero = mpti_row_all_##isa(0.0f);          \
        V                   d = zero;                                                                        \
        size_t              i;                                                                               \
        int                 nan;                                                                             \
        for (i = 0; i + 16u <= n; i += 16u)                                                                  \
            d = mpti_row_reach_##isa(d, mpti_row_in_##isa(r.x, MPT_F32, i));                                 \
        if (i < n)                                                                                           \
            d = mpti_row_reach_##isa(d, mpti_row_some_##isa(r.x, MPT_F32, i, n - i));                        \
        d = mpti_row_madd_##isa(mpti_row_mul_##isa(factor, d), zero, zero);                                  \
        nan = mpti_row_nan_256(mpti_row_two_##isa(d));                                                       \
        for (i = nan || !r.master ? n : 0; i + 16u <= n; i += 16u)                                           \
            mpti_row_block_##isa(&r, a, k, factor, i, 16u);                                                  \
        if (i < n)                                                                                           \
            mpti_row_block_##isa(&r, a, k, factor, i, n - i);                                                \
        MPTI_NARROW();                                                                                       \
        return !nan;                                                                                         \
    }
MPTI_ROW_LOOPS(MPTI_AVX512_TARGET, MPTI_IN_512, mpti_v16, 512)
MPTI_ROW_LOOPS(MPTI_AVX2_TARGET, MPTI_IN_256, mpti_two_256, 256)

/* Store columns j .. j + 15 of row r of a product (or the n that are left), from their sums. */
MPTI_IN_256 void mpti_thin_end(const mpti_thin *t, mpti_two_256 s, size_t r, size_t j, size_t n)
{
    void *const  to = t->c ? t->c : t->s;
    const size_t at = r * (t->c ? t->ldc : t->lds) + j;
    mpti_two_256 d = mpti_row_all_256(0.0f);
    if (t->c && mpti_is_nonzero(t->beta))
        d = mpti_row_mul_256(mpti_row_all_256(t->beta), mpti_row_any_256(to, t->c_format, at, n));
    if (t->c)
        s = mpti_row_madd_256(mpti_row_all_256(t->alpha), s, d);
    mpti_row_put_256(to, t->c ? t->c_format : MPT_F32, at, n, s);
}

/* Thin products keep sums in registers: those of 64 columns of one row or, in the columns after the last
 * whole 64, those of 16 columns of four rows. AVX-512 vectors gain nothing here. */
#define MPTI_THIN_64(f)                                                                                 \
    for (p = 0; p < t.k; p++) {                                                                         \
        const size_t at = p * t.ldw + j;                                                                \
        d = mpti_row_all_256(a[p]);                                                                     \
        MPTI_EACH_4(q, s[q] = mpti_row_madd_256(d, mpti_row_in_256(t.w, f, at + 16u * q), s[q]);)       \
    }
MPTI_AVX2_TARGET static void mpti_thin_256(const mpti_thin *o)
{
    const mpti_thin t = *o;
    mpti_two_256    s[4], d;
    float           room[64];
    size_t          r, j, p, i, many, row[4];
    for (r = 0; r < t.rows; r++) {
        const float *const a = t.k ? t.a + r * t.lda : NULL, *const sums = t.begun ? t.s + r * t.lds : NULL;
        for (j = 0; t.n - j >= 64u; j += 64u) {
            s[0] = s[1] = s[2] = s[3] = mpti_row_all_256(0.0f);
            if (sums)
                MPTI_EACH_4(q, s[q] = mpti_row_in_256(sums, MPT_F32, j + 16u * q);)
            if (t.w_format == MPT_F32) {
                MPTI_THIN_64(MPT_F32)
            } else if (t.w_format == MPT_F16) {
                MPTI_THIN_64(MPT_F16)
            } else {
                MPTI_THIN_64(MPT_BF16)
            }
            MPTI_EACH_4(q, mpti_thin_end(&t, s[q], r, j + 16u * q, 16u);)
        }
    }
    for (r = 0; r < t.rows; r += 4u)
        for (j = t.n - t.n % 64u; j < t.n; j += 16u) {
            s[0] = s[1] = s[2] = s[3] = mpti_row_all_256(0.0f);
            many = mpti_min(t.rows - r, 4u);
            for (i = 0; i < 4u; i++)            /* the last row stands in for rows behind it */
                row[i] = mpti_min(r + i, t.rows - 1u);
            if (t.begun)
                MPTI_EACH_4(q, s[q] = mpti_row_any_256(t.s, MPT_F32, row[q] * t.lds + j, t.n - j);)
            for (p = 0; many == 1u && p < t.k; p++) {
                d = mpti_row_any_256(t.w, t.w_format, p * t.ldw + j, t.n - j);
                s[0] = mpti_row_madd_256(mpti_row_all_256(t.a[r * t.lda + p]), d, s[0]);
            }
            for (; p < t.k; p++) {
                d = mpti_row_any_256(t.w, t.w_format, p * t.ldw + j, t.n - j);
                MPTI_EACH_4(q, s[q] = mpti_row_madd_256(mpti_row_all_256(t.a[row[q] * t.lda + p]), d, s[q]);)
            }
            MPTI_EACH_4(q, mpti_row_out_256(room, MPT_F32, 16u * q, s[q]);)
            for (i = 0; i < many; i++)
                mpti_thin_end(&t, mpti_row_in_256(room, MPT_F32, 16u * i), r + i, j, t.n - j);
        }
    MPTI_NARROW();
}
#define MPTI_ROW_PATHS(name, arguments)                         \
    do {                                                        \
        const int path = mpti_path_here();                      \
        if (path >= MPTI_PATH_AVX512)                           \
            return name##_512 arguments;                        \
        if (path >= MPTI_PATH_AVX2)                             \
            return name##_256 arguments;                        \
    } while (0)
#else
#define MPTI_ROW_PATHS(name, arguments) (void)0
#endif

/* Portable code, also for rows with a stride (in bytes) on all paths: it works on tiles of <= 256 floats. */
static void mpti_row_gather(float *dst, const void *row, mpt_format format, ptrdiff_t stride, size_t n)
{
    const unsigned char *at = (const unsigned char *)row;
    uint16_t             codes[MPTI_TILE];
    size_t               i;
    if (stride == (ptrdiff_t)mpti_format_bytes(format)) {
        mpti_row_load(dst, row, format, 0, n);
        return;
    }
    for (i = 0; i < n; i++, at += stride)
        if (format == MPT_F32)
            memcpy(dst + i, at, sizeof *dst);
        else
            memcpy(codes + i, at, sizeof *codes);
    if (format != MPT_F32)
        mpti_row_load(dst, codes, format, 0, n);
}

static void mpti_row_scatter(void *row, mpt_format format, ptrdiff_t stride, const float *src, size_t n)
{
    const size_t   bytes = mpti_format_bytes(format);
    unsigned char *at = (unsigned char *)row;
    float          room[MPTI_TILE];
    size_t         i;
    if (stride == (ptrdiff_t)bytes) {
        mpti_row_store(row, format, 0, src, n);
        return;
    }
    mpti_row_store(room, format, 0, src, n);
    for (i = 0; i < n; i++, at += stride)
        memcpy(at, (const unsigned char *)room + i * bytes, bytes);
}

MPTI_INLINE void mpti_dot_loop(float *MPTI_RESTRICT lane, const float *MPTI_RESTRICT a,
                               const float *MPTI_RESTRICT x, size_t n)
{
    size_t j;
    for (; n >= MPTI_ROW; n -= MPTI_ROW, a += MPTI_ROW, x += MPTI_ROW)
        for (j = 0; j < MPTI_ROW; j++)
            lane[j] = mpti_fma(a[j], x[j], lane[j]);
    for (j = 0; j < n; j++)
        lane[j] = mpti_fma(a[j], x[j], lane[j]);
}
MPTI_TWICE(mpti_dot_lanes, mpti_dot_loop, (float *lane, const float *a, const float *x, size_t n),
           (lane, a, x, n))

static mpt_status mpti_axpy_tiles(void *y, mpt_format y_format, ptrdiff_t y_stride, float a, const void *x,
                                  mpt_format x_format, ptrdiff_t x_stride, size_t n)
{
    unsigned char       *p = (unsigned char *)y;
    const unsigned char *q = (const unsigned char *)x;
    float                u[MPTI_TILE], v[MPTI_TILE];
    size_t               i, j, take;
    for (i = 0; i < n; i += take, p += (ptrdiff_t)take * y_stride, q += (ptrdiff_t)take * x_stride) {
        take = mpti_min(n - i, MPTI_TILE);
        mpti_row_gather(u, p, y_format, y_stride, take);
        mpti_row_gather(v, q, x_format, x_stride, take);
        for (j = 0; j < take; j++)
            u[j] = mpti_fma(a, v[j], u[j]);
        mpti_row_scatter(p, y_format, y_stride, u, take);
    }
    return MPT_OK;
}

/* Returns: 0 if the row is bad; then nothing is written. */
static int mpti_row_step_run(const mpti_row_step *o, size_t n)
{
    unsigned bad = 0u;
    size_t   i;
    MPTI_ROW_PATHS(mpti_row_step, (o, n));
    for (i = 0; i < n; i++)
        (void)mpti_unscale_1(o->x[i], o->factor, &bad);
    if (bad || !o->master)
        return !bad;
    mpti_row_load(o->master, o->from, o->from_format, 0, n);
    for (i = 0; i < n; i++) {
        float d = o->x[i];
        if (o->m) {
            const float g = mpti_mul(o->factor, d);
            d = o->m[i] = mpti_fma(o->momentum, o->m[i], g);
            if (o->nesterov)
                d = mpti_fma(o->momentum, d, g);
        }
        o->master[i] = mpti_fma(o->a, d, o->master[i]);
    }
    if (o->param && n)
        mpti_row_store(o->param, o->format, 0, o->master, n);
    return 1;
}

static int mpti_axpy_run(void *y, mpt_format y_format, float a, const void *x, mpt_format x_format, size_t n)
{
    MPTI_ROW_PATHS(mpti_axpy, (y, y_format, a, x, x_format, n));
    return mpti_axpy_tiles(y, y_format, (ptrdiff_t)mpti_format_bytes(y_format), a, x, x_format,
                           (ptrdiff_t)mpti_format_bytes(x_format), n);
}

/* Add a[r * step] * x to `rows` rows of n elements, `line` bytes apart. */
static int mpti_axpys_run(void *y, size_t rows, size_t line, mpt_format y_format, const float *a, size_t step,
                          const void *x, mpt_format x_format, size_t n)
{
    size_t r;
    if (x_format == MPT_F32)
        MPTI_ROW_PATHS(mpti_axpys, (y, rows, line, y_format, a, step, x, n));
    for (r = 0; r < rows; r++)
        (void)mpti_axpy_run((unsigned char *)y + r * line, y_format, a[r * step], x, x_format, n);
    return 0;
}

MPT_DEF float mpt_dot_strided(const void *a, mpt_format a_format, ptrdiff_t a_stride, const void *x,
                              mpt_format x_format, ptrdiff_t x_stride, size_t n)
{
    const unsigned char *p = (const unsigned char *)a, *q = (const unsigned char *)x;
    float                lane[MPTI_ROW], u[MPTI_TILE], v[MPTI_TILE];
    size_t               i, j, take;
    if (!n || mpti_no_strided(a, n, a_stride) || mpti_no_strided(x, n, x_stride))
        return 0.0f;
    if (!mpti_is_train_format(a_format) || !mpti_is_train_format(x_format))
        return mpti_f32_make(0x7fc00000u);
    memset(lane, 0, sizeof lane);
    for (i = 0; i < n; i += take, p += (ptrdiff_t)take * a_stride, q += (ptrdiff_t)take * x_stride) {
        take = mpti_min(n - i, MPTI_TILE);
        mpti_row_gather(u, p, a_format, a_stride, take);
        mpti_row_gather(v, q, x_format, x_stride, take);
        mpti_dot_lanes(lane, u, v, take);
    }
    for (i = MPTI_ROW / 2; i; i /= 2)   /* if n <= i, lanes i and up are zeros: not added */
        for (j = 0; j < i && i < n; j++)
            lane[j] += lane[i + j];
    return lane[0] + 0.0f;
}

/* to[r * step] = dot product of x and the row that begins r * line bytes behind a. */
static int mpti_dots_run(float *to, size_t step, size_t rows, const void *a, mpt_format a_format, size_t line,
                         const void *x, mpt_format x_format, size_t n)
{
    size_t r;
    MPTI_ROW_PATHS(mpti_dots, (to, step, rows, a, a_format, line, x, x_format, n));
    for (r = 0; r < rows; r++)
        to[r * step] = mpt_dot_strided((const unsigned char *)a + r * line, a_format,
                                       (ptrdiff_t)mpti_format_bytes(a_format), x, x_format,
                                       (ptrdiff_t)mpti_format_bytes(x_format), n);
    return 1;
}

/* Let gcc forget the array of a pointer: where it knows the size, it warns of the code for wider formats. */
#if MPTI_X86
#define MPTI_ANY_ARRAY(p) __asm__("" : "+r"(p))
#else
#define MPTI_ANY_ARRAY(p) (void)0
#endif

MPT_DEF float mpt_dot(const void *a, mpt_format a_format, const void *x, mpt_format x_format, size_t n)
{
    const int usual = a && x && n - 1u < (size_t)-1 / 16u && mpti_is_train_format(a_format) &&
                      mpti_is_train_format(x_format);
    MPTI_ANY_ARRAY(a);
    MPTI_ANY_ARRAY(x);
    if (MPTI_LIKELY(usual))
        MPTI_ROW_PATHS(mpti_dot, (a, a_format, x, x_format, n));
    return mpt_dot_strided(a, a_format, (ptrdiff_t)mpti_format_bytes(a_format), x, x_format,
                           (ptrdiff_t)mpti_format_bytes(x_format), n);
}

MPT_DEF mpt_status mpt_axpy(void *y, mpt_format y_format, float a, const void *x, mpt_format x_format,
                            size_t n)
{
    if ((n && !x) || mpti_no_array_here(y, n, sizeof(float)) ||
        mpti_meet(y, n * mpti_format_bytes(y_format), x, n * mpti_format_bytes(x_format)))
        return MPT_E_ARG;
    if (!mpti_is_train_format(y_format) || !mpti_is_train_format(x_format))
        return MPT_E_UNSUPPORTED;
    MPTI_ANY_ARRAY(y);
    MPTI_ANY_ARRAY(x);
    return (mpt_status)mpti_axpy_run(y, y_format, a, x, x_format, n);
}

MPT_DEF mpt_status mpt_axpy_strided(void *y, mpt_format y_format, ptrdiff_t y_stride, float a, const void *x,
                                    mpt_format x_format, ptrdiff_t x_stride, size_t n)
{
    const size_t y_bytes = mpti_format_bytes(y_format), x_bytes = mpti_format_bytes(x_format);
    if (mpti_no_strided(y, n, y_stride) || mpti_no_strided(x, n, x_stride) ||
        mpti_strides_clash(y, y_bytes, y_stride, x, x_bytes, x_stride, n))
        return MPT_E_ARG;
    if (!mpti_is_train_format(y_format) || !mpti_is_train_format(x_format))
        return MPT_E_UNSUPPORTED;
    return mpti_axpy_tiles(y, y_format, y_stride, a, x, x_format, x_stride, n);
}

static inline mpt_status mpti_publish_ok(const void *param, mpt_format format, const void *master,
                                         const void *x, size_t n, size_t width)
{
    const size_t bytes = n * width, copy = n * mpti_format_bytes(format);
    if ((n && !x) || mpti_no_array_here(master, n, width) || mpti_meet(master, bytes, x, bytes) ||
        mpti_meet(param, copy, master, bytes) || mpti_meet(param, copy, x, bytes))
        return MPT_E_ARG;
    return param && !mpti_is_train_format(format) ? MPT_E_UNSUPPORTED : MPT_OK;
}

MPT_DEF mpt_status mpt_axpy_publish(void *param, mpt_format format, float *master, float a, const float *x,
                                    size_t n, uint32_t *found_inf)
{
    const mpt_status status = mpti_publish_ok(param, format, master, x, n, sizeof *x);
    mpti_row_step    o = {master, NULL, param, x, format, a, 0.0f, a, 0, master, MPT_F32};
    if (status != MPT_OK)
        return status;
    MPTI_ANY_ARRAY(o.master);
    MPTI_ANY_ARRAY(o.param);
    MPTI_ANY_ARRAY(o.x);
    if ((!mpti_f32_is_finite(a) || !mpti_row_step_run(&o, n)) && found_inf)
        *found_inf = 1u;
    return MPT_OK;
}

/* Update n doubles, or see whether all a * x are finite, which they are only if x is. */
MPTI_INLINE int mpti_row_f64_some(double *MPTI_RESTRICT master, double a, const double *MPTI_RESTRICT x,
                                  size_t n, int update)
{
    const uint64_t inf = (uint64_t)0x7ff << 52;
    uint64_t       beyond = 0u;         /* its highest bit tells: a tenth faster than to test each result */
    size_t         i;
    for (i = 0; i < n && !update; i++)
        beyond |= (mpti_f64_bits(a * x[i]) & inf) + (MPTI_ONE << 52);
    for (; i < n; i++)
        master[i] = fma(a, x[i], master[i]);
    return (int)(beyond >> 63);
}

/* By 8 at a time: with a constant number this vectorizes. */
MPTI_INLINE void mpti_row_step_loop(double *master, double a, const double *x, size_t n, uint32_t *bad)
{
    size_t i;
    int    update;
    *bad = (uint32_t)!mpti_f64_is_finite(a);
    for (update = 0; update < 2 && !*bad; update++) {
        for (i = 0; i + 8u <= n; i += 8u)
            *bad |= (uint32_t)mpti_row_f64_some(master + i, a, x + i, 8, update);
        *bad |= (uint32_t)mpti_row_f64_some(master + i, a, x + i, n - i, update);
    }
}
MPTI_TWICE(mpti_row_step_f64, mpti_row_step_loop,
           (double *master, double a, const double *x, size_t n, uint32_t *bad), (master, a, x, n, bad))

MPT_DEF mpt_status mpt_axpy_publish_f64(void *param, mpt_format format, double *master, double a,
                                        const double *x, size_t n, uint32_t *found_inf)
{
    const mpt_status status = mpti_publish_ok(param, format, master, x, n, sizeof *x);
    uint32_t         bad;
    if (status != MPT_OK)
        return status;
    mpti_row_step_f64(master, a, x, n, &bad);
    if (bad && found_inf)
        *found_inf = 1u;
    return bad || !param ? MPT_OK : mpt_convert_n(format, param, MPT_F64, master, n, NULL, NULL);
}

/* A single fast test that most tensors pass; those that fail it need the slower, complete checks. */
static int mpti_row_is_plain(const mpt_tensor *t, int has_m)
{
    const int master = t->storage == MPT_STORE_MASTER;
    return (master || t->storage == MPT_STORE_STOCHASTIC) && (master ? (void *)t->master : t->param) &&
           (master || t->param_format != MPT_F32) && mpti_is_train_format(t->param_format) && !t->rounded &&
           t->n <= (size_t)-1 / 16u && (!has_m || (t->m && t->moments == MPT_MOMENTS_F32));
}

MPT_DEF mpt_status mpt_row_update(mpt_row_rule *rule, const mpt_tensor *t, size_t first, size_t n,
                                  const float *x)
{
    const int      has_m = rule && mpti_is_nonzero(rule->momentum);
    const unsigned needs = MPT_NEEDS_WEIGHT | (has_m ? MPT_NEEDS_M : 0u);
    float          local[MPTI_TILE] MPTI_ALIGNED;
    mpti_random_at at;
    mpti_row_step  o;
    size_t         i, take, bytes = n * sizeof *x;
    int            ok;
    if (!rule || !t || first > t->n || n > t->n - first || (n && !x) || !mpti_is_decay(rule->momentum))
        return MPT_E_ARG;
    if (!mpti_row_is_plain(t, has_m)) {
        if (mpti_tensor_missing(t, needs))
            return MPT_E_ARG;
        if (mpti_tensor_unsupported(t, needs) || (has_m && t->moments != MPT_MOMENTS_F32))
            return MPT_E_UNSUPPORTED;
    }
    if (mpti_meet(x, bytes, t->master, t->n * sizeof *x) ||
        mpti_meet(x, bytes, t->param, t->n * mpti_format_bytes(t->param_format)) ||
        mpti_meet(x, bytes, t->extra, t->n * sizeof(uint16_t)) ||
        (has_m && mpti_meet(x, bytes, t->m, t->n * sizeof *x)))
        return MPT_E_ARG;
    o.m = has_m ? (float *)t->m + first : NULL;
    o.a = rule->a, o.factor = mpti_is_nonzero(rule->factor) ? rule->factor : 1.0f;
    if (!has_m)
        o.a = o.factor = mpti_mul(o.a, o.factor);
    o.momentum = rule->momentum, o.nesterov = rule->nesterov != 0u;
    o.master = NULL, o.param = NULL, o.format = t->param_format;
    o.x = x, o.from = NULL, o.from_format = MPT_F32;
    ok = mpti_f32_is_finite(o.a) && mpti_f32_is_finite(o.factor);
    if (mpti_has_master(t)) {
        o.from = o.master = t->master + first;
        if (t->param && !t->rounded)
            o.param = (unsigned char *)t->param + first * mpti_format_bytes(t->param_format);
        ok = ok && mpti_row_step_run(&o, n);
        if (ok && t->rounded)
            mpti_param_store(t, first, o.master, n);
    } else {
        if (n > MPTI_TILE)              /* test all tiles before writing any; a single one tests itself */
            ok = ok && mpti_row_step_run(&o, n);
        o.from = o.master = local;
        at.stream = rule->stream, at.step = rule->count;
        for (i = 0; ok && i < n; i += take) {
            take = mpti_min(n - i, MPTI_TILE);
            o.x = x + i, o.m = has_m ? (float *)t->m + first + i : NULL;
            if (t->storage == MPT_STORE_STOCHASTIC)     /* 16-bit codes are loaded by the loop */
                o.from = (const uint16_t *)t->param + first + i, o.from_format = t->param_format;
            else
                (void)mpti_weight_in(local, t, first + i, take);
            ok = mpti_row_step_run(&o, take);
            if (ok)
                mpti_weight_out(local, t, first + i, take, at);
        }
    }
    if (ok)
        rule->count++;
    else
        rule->found_inf = 1u;
    return MPT_OK;
}

// >>M24 implementation: products, activations, losses ---------------------------------------------

#ifdef MPT_USE_CBLAS
#include <cblas.h>
#endif

/* ---- rows: the ops load blocks of a row as floats, work on them and store them ---- */

/* Work to be done on a block. The first three kinds only read; the others store a result. */
typedef enum mpti_work {
    MPTI_WORK_TOP, MPTI_WORK_EXP_SUM, MPTI_WORK_DOT,
    MPTI_WORK_SOFTMAX, MPTI_WORK_SOFTMAX_GRAD, MPTI_WORK_ADD, MPTI_WORK_SCALE,
    MPTI_WORK_ACTIVATE, MPTI_WORK_ACTIVATE_GRAD
} mpti_work;

/* The operands of an op, and the other numbers that its work on a row needs. */
typedef struct mpti_row {
    void          *out;
    const void    *x, *y;       /* NULL if the op has none */
    mpt_format     out_format, x_format, y_format;
    mpt_activation f;
    float          top;         /* the largest element */
    double         sum;         /* of exp(x - top), or of x * y: rows may be as long as a vocabulary */
    float          factor, beta;
    size_t         hot;         /* column of the label; (size_t)-1: none */
} mpti_row;

static int mpti_area_overflows(size_t rows, size_t cols)
{
    return (rows | cols) >> (sizeof(size_t) * 4u - 2u) && cols &&      /* mostly spares the slow division */
           rows > (size_t)-1 / 2u / sizeof(float) / cols;
}

static int mpti_is_nan32(float x) { return (mpti_f32_bits(x) & 0x7fffffffu) > 0x7f800000u; }

static float mpti_sigmoid(float x)
{
    const float e = expf(x > 0.0f ? -x : x);        /* at most 1: no overflow */
    return x > 0.0f ? 1.0f / (1.0f + e) : e / (1.0f + e);
}

static float mpti_act_1(mpt_activation f, float x)
{
    if (mpti_is_nan32(x))
        return x;
    switch (f) {
    case MPT_ACT_GELU:                              /* the limit at -Inf is 0, not -Inf * 0 = NaN */
        return mpti_f32_bits(x) == 0xff800000u
                   ? -0.0f : (float)(0.5 * (double)x * erfc((double)x * -0.7071067811865476));
    case MPT_ACT_TANH: return tanhf(x);
    case MPT_ACT_SIGMOID: return mpti_sigmoid(x);
    default: return mpti_f32_bits(x) >> 31 ? 0.0f : x;
    }
}

/* dy * f'(x) */
static float mpti_act_grad_1(mpt_activation f, float x, float dy)
{
    double bell;
    float  y;
    if (mpti_is_nan32(x))
        return x * dy;
    switch (f) {
    case MPT_ACT_GELU:                              /* Phi(x) + x * phi(x), with Inf * phi(Inf) = 0 */
        bell = mpti_f32_is_finite(x) ? (double)x * 0.3989422804014327 * exp(-0.5 * (double)x * (double)x)
            : 0.0;
        return dy * (float)(0.5 * erfc((double)x * -0.7071067811865476) + bell);
    case MPT_ACT_TANH:
        y = expf(-2.0f * (x < 0.0f ? -x : x));      /* 1 - tanh^2 = 4y / (1 + y)^2, without cancellation */
        return dy * (4.0f * y / ((1.0f + y) * (1.0f + y)));
    case MPT_ACT_SIGMOID: return dy * (mpti_sigmoid(x) * mpti_sigmoid(-x));
    default: return mpti_f32_bits(x) >> 31 || !mpti_is_nonzero(x) ? 0.0f : dy;
    }
}

/* Do the work on n elements of a row, from column `first` on. The result replaces x. */
static void mpti_row_work(mpti_row *row, mpti_work work, float *x, const float *y, size_t first, size_t n)
{
    const float sum = (float)row->sum;
    size_t      i;
    for (i = 0; i < n; i++)
        switch (work) {
        case MPTI_WORK_TOP:             /* a NaN counts as larger than any number */
            if (mpti_is_nan32(x[i]) || (!mpti_is_nan32(row->top) && x[i] > row->top))
                row->top = x[i];
            break;
        case MPTI_WORK_EXP_SUM: row->sum += mpti_to_f64(expf(x[i] - row->top)); break;
        case MPTI_WORK_DOT: row->sum += mpti_to_f64(y[i]) * mpti_to_f64(x[i]); break;
        case MPTI_WORK_SOFTMAX:         /* if the sum is NaN, the whole row becomes NaN */
            x[i] = expf(x[i] - row->top) / sum - (first + i == row->hot ? 1.0f : 0.0f);
            x[i] = mpti_is_nan32(sum) ? sum : x[i] * row->factor;
            break;
        case MPTI_WORK_SOFTMAX_GRAD: x[i] = y[i] * (x[i] - sum); break;
        case MPTI_WORK_ADD: x[i] += y[i]; break;
        case MPTI_WORK_SCALE: x[i] = mpti_is_nonzero(row->beta) ? mpti_mul(row->beta, x[i]) : 0.0f; break;
        case MPTI_WORK_ACTIVATE: x[i] = mpti_act_1(row->f, x[i]); break;
        case MPTI_WORK_ACTIVATE_GRAD: x[i] = mpti_act_grad_1(row->f, y[i], x[i]); break;
        }
}

/* Do the work on elements first .. first + n - 1 of x and out, with those of y from y_first on. */
static void mpti_row_run(mpti_row *row, mpti_work work, size_t first, size_t y_first, size_t n)
{
    float  x[MPTI_TILE], y[MPTI_TILE];
    size_t at, take;
    for (at = 0; at < n; at += take) {
        take = mpti_min(n - at, MPTI_TILE);
        if (row->x)
            mpti_row_load(x, row->x, row->x_format, first + at, take);
        if (row->y)
            mpti_row_load(y, row->y, row->y_format, y_first + at, take);
        mpti_row_work(row, work, x, y, at, take);
        if (work > MPTI_WORK_DOT)
            mpti_row_store(row->out, row->out_format, first + at, x, take);
    }
}

static mpt_status mpti_operand_check(const void *data, mpt_format format, size_t n)
{
    return mpti_no_array_here(data, n, sizeof(float)) ? MPT_E_ARG
           : mpti_is_train_format(format) ? MPT_OK : MPT_E_UNSUPPORTED;
}

/* Set and check the operands of an op on rows x cols elements: x and those in `which` (1: out, 2: y). */
static mpt_status mpti_row_init(mpti_row *row, int which, size_t rows, size_t cols, void *out,
                                mpt_format out_format, const void *x, mpt_format x_format, const void *y,
                                mpt_format y_format)
{
    mpt_status status = mpti_area_overflows(rows, cols) ? MPT_E_ARG : MPT_OK;
    memset(row, 0, sizeof *row);
    row->out = out, row->out_format = out_format;
    row->x = x, row->x_format = x_format;
    row->y = y, row->y_format = y_format;
    if (status == MPT_OK && which & 1)
        status = mpti_operand_check(out, out_format, rows * cols);
    if (status == MPT_OK)
        status = mpti_operand_check(x, x_format, rows * cols);
    if (status == MPT_OK && which & 2)
        status = mpti_operand_check(y, y_format, rows * cols);
    return status;
}

/* ---- products: blocks of C, from panels: parts of op(A) and op(B), converted to dense floats ---- */

#ifdef MPT_USE_CBLAS
#define MPTI_STACK_EDGE 96      /* edge of square panels on the stack; above 64, as each CBLAS call costs */
#else
#define MPTI_STACK_EDGE 64
#endif
#define MPTI_STACK_FLOATS (3 * MPTI_STACK_EDGE * MPTI_STACK_EDGE)
/* A product is thin if m, n or k is at most THIN; up to FEW vectors take dot products also for a k below. */
enum { MPTI_THIN = 16, MPTI_FEW = 4 };

static void mpti_thin_portable(const mpti_thin *o)
{
    float  s[MPTI_TILE], w[MPTI_TILE];
    size_t r, j, p, i, take;
    for (r = 0; r < o->rows; r++)
        for (j = 0; j < o->n; j += take) {
            float *const sums = o->s + r * o->lds + j;
            take = mpti_min(o->n - j, MPTI_TILE);
            memset(s, 0, sizeof s);
            if (o->begun)
                memcpy(s, sums, take * sizeof *s);
            for (p = 0; p < o->k; p++) {
                mpti_row_load(w, o->w, o->w_format, p * o->ldw + j, take);
                for (i = 0; i < take; i++)
                    s[i] = mpti_fma(o->a[r * o->lda + p], w[i], s[i]);
            }
            if (!o->c) {
                memcpy(sums, s, take * sizeof *s);
                continue;
            }
            if (mpti_is_nonzero(o->beta))
                mpti_row_load(w, o->c, o->c_format, r * o->ldc + j, take);
            for (i = 0; i < take; i++)
                s[i] = mpti_fma(o->alpha, s[i], mpti_is_nonzero(o->beta) ? mpti_mul(o->beta, w[i]) : 0.0f);
            mpti_row_store(o->c, o->c_format, r * o->ldc + j, s, take);
        }
}

static void mpti_thin_run(const mpti_thin *o)
{
    const size_t bytes = mpti_format_bytes(o->c_format);
    if (o->c && o->k == 1u && !o->begun && mpti_f32_bits(o->alpha) == 0x3f800000u &&
        mpti_f32_bits(o->beta) == 0x3f800000u) {        /* dW += dy x' of two vectors */
        (void)mpti_axpys_run(o->c, o->rows, o->ldc * bytes, o->c_format, o->a, o->lda, o->w, o->w_format,
                             o->n);
        return;
    }
#if MPTI_X86
    if (mpti_path() >= MPTI_PATH_AVX2) {
        mpti_thin_256(o);
        return;
    }
#endif
    mpti_thin_portable(o);
}

typedef struct mpti_matrix { const void *data; mpt_format format; size_t ld; int transposed; } mpti_matrix;

/* dst[r * cols + c] = o[row + r][col + c] as floats. Short stored rows without gaps are read together. */
static void mpti_gemm_pack(float *dst, const mpti_matrix *o, size_t row, size_t col, size_t rows, size_t cols)
{
    const size_t length = o->transposed ? rows : cols, lines = o->transposed ? cols : rows;
    const size_t most = o->ld == length && length <= MPTI_TILE ? MPTI_TILE / length : 1u;
    float        room[MPTI_TILE], *from;
    size_t       at, i, q, take, line, many;
    for (line = 0; line < lines; line += many) {
        many = mpti_min(lines - line, most);
        if (!o->transposed)
            mpti_row_load(dst + line * cols, o->data, o->format, (row + line) * o->ld + col, many * cols);
        for (at = 0; o->transposed && at < rows; at += take) {
            take = mpti_min(rows - at, MPTI_TILE);
            mpti_row_load(room, o->data, o->format, (col + line) * o->ld + row + at, many * take);
            for (from = room, i = 0; from < room + many * take; i++, from += take)
                for (q = 0; q < take; q++)
                    dst[(at + q) * cols + line + i] = from[q];
        }
    }
}

/* Is the leading dimension too small, or the matrix larger than an object can be? op(x) is rows x cols. */
static int mpti_bad_lines(const mpti_matrix *x, size_t rows, size_t cols)
{
    return x->ld < (x->transposed ? rows : cols) || x->ld == 0 ||
           mpti_area_overflows(x->transposed ? cols : rows, x->ld);
}

/* Would writing C change lines of x that a product reads? */
static int mpti_matrix_meets(const mpti_matrix *c, size_t m, size_t n, const mpti_matrix *x, size_t rows,
                             size_t cols)
{
    const size_t to = mpti_format_bytes(c->format), from = mpti_format_bytes(x->format);
    return mpti_lines_meet((uintptr_t)c->data, n * to, c->ld * to, m, (uintptr_t)x->data,
                           (x->transposed ? rows : cols) * from, x->ld * from, x->transposed ? cols : rows);
}

/* The data that all blocks of C share while a product x * y is computed. If `across`, c gets the transpose of
 * x * y. Thin products read an operand in place, not from a panel, where its layout allows it. */
typedef struct mpti_gemming {
    mpti_matrix x, y;
    mpti_thin   part;           /* c with its format and ldc, alpha and beta */
    float      *panels;         /* NULL: each thread has its own on its stack */
    size_t      m, n, k, edge;
    size_t      rows, cols, deep;       /* of a block: the product of any two is at most edge * edge */
    int         thin, across;
} mpti_gemming;

/* Store the block of C whose first element is at `row`, `col`, from its sums s. */
static void mpti_gemm_end(const mpti_gemming *g, float *s, size_t row, size_t col, size_t rows, size_t cols)
{
    mpti_thin o = g->part;
    const int whole = cols == o.ldc;    /* rows without gaps are one row */
    o.s = s, o.lds = o.n = whole ? rows * cols : cols, o.rows = whole ? 1u : rows;
    o.c = (unsigned char *)o.c + (row * o.ldc + col) * mpti_format_bytes(o.c_format);
    mpti_thin_run(&o);
}

static void mpti_gemm_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_gemming *const g = (const mpti_gemming *)context;
    const size_t              across = (g->n + g->cols - 1u) / g->cols;
    float                     own[MPTI_STACK_FLOATS], *const pa = g->panels ? g->panels : own;
    float *const              pb = pa + g->edge * g->edge, *const sum = pb + g->edge * g->edge;
    mpti_thin                 o = g->part;
    size_t                    p, r, b;
    o.s = sum;
    for (; begin < end; begin++) {
        const size_t i = begin / across * g->rows, j = begin % across * g->cols;
        o.rows = mpti_min(g->m - i, g->rows), o.n = o.lds = mpti_min(g->n - j, g->cols);
        o.c = NULL;
        for (p = 0; p < g->k; p += o.k) {
            o.k = mpti_min(g->k - p, g->deep), o.begun = p > 0;
            o.a = pa, o.lda = o.k;
            if (g->thin && g->x.format == MPT_F32 && !g->x.transposed)
                o.lda = g->x.ld, o.a = (const float *)g->x.data + i * o.lda + p;
            else
                mpti_gemm_pack(pa, &g->x, i, p, o.rows, o.k);
            if (g->thin && !g->y.transposed) {
                o.w_format = g->y.format, o.ldw = g->y.ld;
                o.w = (const unsigned char *)g->y.data + (p * o.ldw + j) * mpti_format_bytes(o.w_format);
            } else {
                mpti_gemm_pack(pb, &g->y, p, j, o.k, o.n);
                o.w = pb, o.w_format = MPT_F32, o.ldw = o.n;
            }
#ifdef MPT_USE_CBLAS
            if (!g->thin) {
                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)o.rows, (int)o.n, (int)o.k, 1.0f,
                            o.a, (int)o.lda, pb, (int)o.n, p ? 1.0f : 0.0f, sum, (int)o.n);
                continue;
            }
#endif
            if (!g->across && p + o.k == g->k)
                o.c = (unsigned char *)g->part.c + (i * o.ldc + j) * mpti_format_bytes(o.c_format);
            mpti_thin_run(&o);
        }
        if (g->across) {
            for (b = 0; b < o.rows; b++)
                for (r = 0; r < o.n; r++)
                    pb[r * o.rows + b] = sum[b * o.n + r];
            mpti_gemm_end(g, pb, j, i, o.n, o.rows);
        } else if (!o.c)
            mpti_gemm_end(g, sum, i, j, o.rows, o.n);
    }
}

/* A thin product whose y is contiguous along k: dot products of stored rows of y and the few rows of x. If k
 * is at most MPTI_PACKED, x is packed as floats in `room`, unless it is FP32 and contiguous along k. */
enum { MPTI_PACKED = MPTI_STACK_FLOATS / 3 };
static void mpti_gemm_dots_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_gemming *const g = (const mpti_gemming *)context;
    float            room[MPTI_PACKED], s[MPTI_PACKED];
    const size_t     bytes = g->y.ld * mpti_format_bytes(g->y.format);
    const int        packed = g->k <= MPTI_PACKED && (g->x.transposed || g->x.format != MPT_F32);
    const int        plain = g->part.c_format == MPT_F32 && mpti_f32_bits(g->part.alpha) == 0x3f800000u &&
                             !mpti_is_nonzero(g->part.beta);    /* the sums are the result */
    const mpt_format format = packed ? MPT_F32 : g->x.format;
    const size_t     line = (packed ? g->k : g->x.ld) * mpti_format_bytes(format);
    size_t           i, b, r, q, take, now, some;
    for (b = 0; b < g->m; b += now) {
        const unsigned char *x = packed ? (const unsigned char *)room : (const unsigned char *)g->x.data;
        now = packed ? mpti_min(g->m - b, MPTI_PACKED / g->k) : g->m;
        if (packed)
            mpti_gemm_pack(room, &g->x, b, 0, now, g->k);
        for (i = begin; i < end; i += take) {
            const unsigned char *w = (const unsigned char *)g->y.data + i * bytes;
            float               *to;
            size_t               ld, down, right;       /* the result of w's next row, of x's next row */
            take = mpti_min(end - i, (size_t)MPTI_PACKED / MPTI_THIN);
            ld = plain ? g->part.ldc : g->across ? now : take;
            down = g->across ? ld : 1u, right = g->across ? 1u : ld;
            to = plain ? (float *)g->part.c + i * down + b * right : s;
            for (r = 0; r < take; r += some, w += some * bytes) {       /* some rows stay in the L1 cache */
                some = mpti_min(take - r, now == 1u ? take : 1u + ((size_t)1 << 14) / bytes);
                for (q = 0; q < now; q++)
                    (void)mpti_dots_run(to + r * down + q * right, down, some, w, g->y.format, bytes,
                                        x + q * line, format, g->k);
            }
            if (!plain && g->across)
                mpti_gemm_end(g, s, i, b, take, now);
            else if (!plain)
                mpti_gemm_end(g, s, b, i, now, take);
        }
    }
}

MPT_DEF mpt_status mpt_gemm(mpt_order order, mpt_trans transa, mpt_trans transb, size_t m, size_t n, size_t k,
                            float alpha, const void *a, mpt_format a_format, size_t lda, const void *b,
                            mpt_format b_format, size_t ldb, float beta, void *c, mpt_format c_format,
                            size_t ldc, void *work, size_t work_bytes)
{
    mpti_gemming g;
    mpti_matrix x = {a, a_format, lda, transa == MPT_TRANS}, y = {b, b_format, ldb, transb == MPT_TRANS};
    const mpti_matrix to = {c, c_format, ldc, 0};
    const int   product = m && n && k && mpti_is_nonzero(alpha);
    int         few, deep, dots;
    mpti_row    row;
    size_t      r, room;
    mpt_status  status;
    if (order == MPT_COL_MAJOR) {       /* C' = op(B)' op(A)', and column-major C is row-major C' */
        const mpti_matrix z = x;
        x = y, y = z;
        r = m, m = n, n = r;
    } else if (order != MPT_ROW_MAJOR) {
        return MPT_E_ARG;
    }
    if ((transa != MPT_NO_TRANS && transa != MPT_TRANS) || (transb != MPT_NO_TRANS && transb != MPT_TRANS) ||
        mpti_bad_lines(&x, m, k) || mpti_bad_lines(&y, k, n) || mpti_bad_lines(&to, m, n))
        return MPT_E_ARG;
    /* without a product A and B are not checked: c stands in for them */
    status = mpti_row_init(&row, 3, m, n, c, c_format, product ? a : c, a_format, product ? b : c, b_format);
    if (status != MPT_OK)
        return status;
    if (!product) {
        row.x = mpti_is_nonzero(beta) ? c : NULL, row.x_format = c_format, row.y = NULL, row.beta = beta;
        for (r = 0; r < m; r++)
            mpti_row_run(&row, MPTI_WORK_SCALE, r * ldc, 0, n);
        return MPT_OK;
    }
    if (mpti_matrix_meets(&to, m, n, &x, m, k) || mpti_matrix_meets(&to, m, n, &y, k, n))
        return MPT_E_ARG;
    memset(&g.part, 0, sizeof g.part);
    g.part.c = c, g.part.c_format = c_format, g.part.ldc = ldc;
    g.part.alpha = alpha, g.part.beta = beta, g.part.begun = 1;
    g.panels = NULL, g.edge = MPTI_STACK_EDGE;
    few = m <= MPTI_THIN || n <= MPTI_THIN, deep = k > MPTI_THIN;
    g.thin = few || !deep;
    dots = (m > n ? !x.transposed : y.transposed) &&
           (deep ? few : k > 1u && (m <= MPTI_FEW || n <= MPTI_FEW));
    g.across = m > n && (dots || (few && deep) || (n <= MPTI_FEW && x.transposed && k > 1u));
    if (g.across) {                     /* compute C', so that the thin side comes first */
        const mpti_matrix z = x;
        x = y, y = z;
        x.transposed = !x.transposed, y.transposed = !y.transposed;
        r = m, m = n, n = r;
    }
    if (x.transposed && (k == 1u || (m == 1u && x.ld == 1u)))
        x.transposed = 0, x.ld = k;     /* a vector is the same in memory as its transpose: x ... */
    if (m == 1u && ldc == 1u)
        g.across = 0, g.part.ldc = n;   /* ... and C */
    g.x = x, g.y = y, g.m = m, g.n = n, g.k = k;
    if (dots && (!x.transposed || k <= MPTI_PACKED)) {
        (void)MPTI_IN_PARTS(n, 1u + ((size_t)1 << 18) / m / k, mpti_gemm_dots_range, &g);
        return MPT_OK;
    }
    g.thin = g.thin && !dots;
#ifdef MPT_USE_CBLAS
    if (!g.thin && !g.across && x.format == MPT_F32 && y.format == MPT_F32 && c_format == MPT_F32 &&
        (m | n | k | x.ld | y.ld | ldc) < (size_t)1 << 31) {
        cblas_sgemm(CblasRowMajor, x.transposed ? CblasTrans : CblasNoTrans,
                    y.transposed ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha,
                    (const float *)x.data, (int)x.ld, (const float *)y.data, (int)y.ld, beta, (float *)c,
                    (int)ldc);
        return MPT_OK;
    }
    if (!g.thin && work && work_bytes / sizeof(float) > MPTI_STACK_FLOATS) {
        g.panels = (float *)work;
        g.edge = (size_t)sqrt((double)(work_bytes / sizeof(float) / 3));
        while (g.edge > work_bytes / sizeof(float) / 3 / g.edge)
            g.edge--;                   /* the square root was rounded up */
    }
#else
    (void)work, (void)work_bytes;
#endif
    g.rows = g.cols = g.deep = g.edge, room = g.edge * g.edge;
    if (g.thin && k <= MPTI_THIN) {     /* data that is read repeatedly stays in the L1 cache */
        g.cols = mpti_min(n, room / k), g.deep = k;
        g.rows = mpti_min(m, room / (g.cols > k ? g.cols : k));
    } else if (g.thin) {
        g.rows = m;
        g.cols = mpti_min(n, room / (m > 8u ? m : 8u));
        g.deep = room / (g.cols > m ? g.cols : m);
    }
    r = (m + g.rows - 1u) / g.rows * ((n + g.cols - 1u) / g.cols);
    (void)MPTI_IN_PARTS(r, g.panels ? (size_t)-1 : 1u + ((size_t)1 << 18) / (g.rows * g.cols) / k,
                        mpti_gemm_range, &g);
    return MPT_OK;
}

MPT_DEF size_t mpt_gemm_work_bytes(size_t m, size_t n, size_t k)
{
#ifdef MPT_USE_CBLAS
    const size_t side = m > n ? m : n, edge = side > k ? side : k;
    return edge > ((size_t)1 << (sizeof(size_t) * 4 - 3)) ? 0 : 3 * edge * edge * sizeof(float);
#else
    (void)m, (void)n, (void)k;
    return 0;
#endif
}

/* ---- the other ops ---- */

/* An op on independent rows; for activations, on elements. With labels, softmax computes the cross-entropy:
 * of the rows from number `first` on, it stores each one's loss, and the gradient if row.out is not NULL. */
typedef struct mpti_on_rows {
    mpti_row        row;
    size_t          rows, cols, first;
    const uint32_t *label;
    mpti_work       work;
    double          loss[256];
} mpti_on_rows;

static void mpti_on_rows_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    mpti_on_rows *const c = (mpti_on_rows *)context;
    mpti_row            row = c->row;
    if (c->work == MPTI_WORK_ACTIVATE || c->work == MPTI_WORK_ACTIVATE_GRAD) {
        mpti_row_run(&row, c->work, begin, begin, end - begin);
        return;
    }
    for (; begin < end; begin++) {
        const size_t first = (c->first + begin) * c->cols;
        row.sum = 0.0;
        if (c->work == MPTI_WORK_SOFTMAX) {     /* the largest element, or a NaN; the sum of exp(x - top) */
            row.top = mpti_f32_make(0xff800000u);
            mpti_row_run(&row, MPTI_WORK_TOP, first, 0, c->cols);
            if (mpti_f32_is_finite(row.top))
                mpti_row_run(&row, MPTI_WORK_EXP_SUM, first, 0, c->cols);
            else
                row.sum = mpti_f64_make((uint64_t)0x7ff8 << 48);
        }
        if (c->work == MPTI_WORK_SOFTMAX_GRAD)
            mpti_row_run(&row, MPTI_WORK_DOT, first, first, c->cols);
        if (c->label) {
            float right;
            row.hot = c->label[c->first + begin];
            mpti_row_load(&right, row.x, row.x_format, first + row.hot, 1);
            c->loss[begin] = mpti_f64_is_nan(row.sum) ? row.sum : log(row.sum) +
                             ((double)row.top - (double)right);
        }
        if (row.out)
            mpti_row_run(&row, c->work, first, c->work == MPTI_WORK_ADD ? 0 : first, c->cols);
    }
}

#define MPTI_ROWS_IN_PARTS(c, rows) \
    (void)MPTI_IN_PARTS(rows, MPTI_SLOW_PART / (cols ? cols : 1u) + 1u, mpti_on_rows_range, c)

/* Do the n elements to write meet n others that are read, unless they are the same? */
static int mpti_row_meets(const mpti_row *row, const void *x, mpt_format format, size_t n, size_t x_n)
{
    return x && (x != row->out || format != row->out_format) &&
           mpti_meet(row->out, n * mpti_format_bytes(row->out_format), x, x_n * mpti_format_bytes(format));
}

/* Run an op on rows. f matters to activations only, and these and softmax have no y. */
static mpt_status mpti_run_rows(mpti_work work, mpt_activation f, size_t rows, size_t cols, void *out,
                                mpt_format out_format, const void *x, mpt_format x_format, const void *y,
                                mpt_format y_format)
{
    const int    which = work == MPTI_WORK_SOFTMAX || work == MPTI_WORK_ACTIVATE ? 1 : 3;
    const size_t n = rows * cols;
    mpti_on_rows c;
    mpt_status   status = mpti_row_init(&c.row, which, rows, cols, out, out_format, x, x_format, y, y_format);
    if ((unsigned)f >= (unsigned)MPT_ACT_COUNT ||
        (status == MPT_OK && ((work == MPTI_WORK_ADD && y == out && rows > 1) ||
                              mpti_row_meets(&c.row, x, x_format, n, n) ||
                              mpti_row_meets(&c.row, y, y_format, n, work == MPTI_WORK_ADD ? cols : n))))
        status = MPT_E_ARG;
    if (status != MPT_OK)
        return status;
    c.row.f = f, c.row.factor = 1.0f, c.row.hot = (size_t)-1;
    c.work = work, c.cols = cols, c.first = 0, c.label = NULL;
    MPTI_ROWS_IN_PARTS(&c, n ? rows : 0);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_bias_add(void *x, mpt_format x_format, const void *bias, mpt_format bias_format,
                                size_t rows, size_t cols)
{
    return mpti_run_rows(MPTI_WORK_ADD, MPT_ACT_RELU, rows, cols, x, x_format, x, x_format, bias,
                         bias_format);
}

/* Add up columns begin .. end - 1, each from its first row to its last. */
static void mpti_columns_add_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_on_rows *const c = (const mpti_on_rows *)context;
    float                     row[MPTI_TILE], sum[MPTI_TILE];
    size_t                    r, i, take;
    for (; begin < end; begin += take) {
        take = mpti_min(end - begin, MPTI_TILE);
        memset(sum, 0, sizeof sum);
        for (r = 0; r < c->rows; r++) {
            mpti_row_load(row, c->row.x, c->row.x_format, r * c->cols + begin, take);
            for (i = 0; i < take; i++)
                sum[i] += row[i];
        }
        mpti_row_store(c->row.out, c->row.out_format, begin, sum, take);
    }
}

MPT_DEF mpt_status mpt_bias_grad(void *grad, mpt_format grad_format, const void *dy, mpt_format dy_format,
                                 size_t rows, size_t cols)
{
    mpti_on_rows c;
    mpt_status   status = mpti_row_init(&c.row, 0, rows, cols, NULL, MPT_F32, dy, dy_format, NULL, MPT_F32);
    if (status == MPT_OK)
        status = mpti_operand_check(grad, grad_format, cols);
    if (status != MPT_OK)
        return status;
    if (rows && mpti_meet(grad, cols * mpti_format_bytes(grad_format), dy,
                          rows * cols * mpti_format_bytes(dy_format)))
        return MPT_E_ARG;
    c.row.out = grad, c.row.out_format = grad_format;
    c.rows = rows, c.cols = cols;
    (void)MPTI_IN_PARTS(cols, (MPTI_FAST_PART / MPTI_GROUP / (rows + 1u) + 1u) * (size_t)MPTI_GROUP,
                        mpti_columns_add_range, &c);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_activate(mpt_activation f, void *y, mpt_format y_format, const void *x,
                                mpt_format x_format, size_t n)
{
    return mpti_run_rows(MPTI_WORK_ACTIVATE, f, n, 1, y, y_format, x, x_format, NULL, MPT_F32);
}

MPT_DEF mpt_status mpt_activate_grad(mpt_activation f, void *dx, mpt_format dx_format, const void *dy,
                                     mpt_format dy_format, const void *x, mpt_format x_format, size_t n)
{
    return mpti_run_rows(MPTI_WORK_ACTIVATE_GRAD, f, n, 1, dx, dx_format, dy, dy_format, x, x_format);
}

MPT_DEF mpt_status mpt_softmax(void *y, mpt_format y_format, const void *x, mpt_format x_format, size_t rows,
                               size_t cols)
{
    return mpti_run_rows(MPTI_WORK_SOFTMAX, MPT_ACT_RELU, rows, cols, y, y_format, x, x_format, NULL,
                         MPT_F32);
}

MPT_DEF mpt_status mpt_softmax_grad(void *dx, mpt_format dx_format, const void *dy, mpt_format dy_format,
                                    const void *y, mpt_format y_format, size_t rows, size_t cols)
{
    return mpti_run_rows(MPTI_WORK_SOFTMAX_GRAD, MPT_ACT_RELU, rows, cols, dx, dx_format, dy, dy_format, y,
                         y_format);
}

MPT_DEF mpt_status mpt_cross_entropy(const void *logits, mpt_format logits_format, const uint32_t *label,
                                     size_t rows, size_t cols, float *loss, void *dlogits,
                                     mpt_format dlogits_format, float seed)
{
    const size_t n = rows * cols;
    mpti_on_rows c;
    double       total = 0.0;
    size_t       r, i, take;
    mpt_status   status = mpti_row_init(&c.row, dlogits ? 1 : 0, rows, cols, dlogits, dlogits_format, logits,
                                        logits_format, NULL, MPT_F32);
    if (status == MPT_OK && ((rows && !label) ||
                             (dlogits && (mpti_row_meets(&c.row, logits, logits_format, n, n) ||
                                          mpti_meet(dlogits, n * mpti_format_bytes(dlogits_format), label,
                                                    rows * sizeof *label)))))
        status = MPT_E_ARG;
    if (status != MPT_OK)
        return status;
    for (r = 0; r < rows; r++)
        if (label[r] >= cols)
            return MPT_E_DATA;
    c.row.factor = seed / (float)rows;
    c.work = MPTI_WORK_SOFTMAX;
    c.cols = cols;
    c.label = label;
    for (r = 0; r < rows; r += take) {
        take = mpti_min(rows - r, sizeof c.loss / sizeof *c.loss);
        c.first = r;
        MPTI_ROWS_IN_PARTS(&c, take);
        for (i = 0; i < take; i++)
            total += c.loss[i];
    }
    if (loss)
        *loss = rows ? (float)(total / (double)rows) : 0.0f;
    return MPT_OK;
}
#endif /* MPT_NO_OPS */

// >>M25 implementation: policy --------------------------------------------------------------------
#ifndef MPT_NO_GRAPH
/* Kinds of ops that a graph rewrite treats specially, with their TensorFlow and compact names. */
#define MPTI_OP_KINDS(X)                                                                                  \
    X(MERGE, "Merge RefMerge _XlaMerge merge")                                                            \
    X(NEXT, "NextIteration RefNextIteration next_iteration")                                              \
    X(IDENTITY, "Identity identity")                                                                      \
    X(ENTER, "Enter enter")                                                                               \
    X(CAST, "Cast cast")                                                                                  \
    X(VARIABLE, "Variable VariableV2 variable")                                                           \
    X(CONST, "Const const AutoReloadVariable ReadVariableOp VarHandleOp _ReadVariablesOp _VarHandlesOp")  \
    X(END, "_Arg _Retval OptionalFromValue OptionalGetValue PartitionedCall Placeholder "                 \
      "StatefulPartitionedCall placeholder")                                                              \
    X(NORM, "FusedBatchNorm FusedBatchNormGrad")

/* TensorFlow's lists, a row each: list in the CUDA pass, list in the BF16 pass, ops.
 * Source: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h. */
#define MPTI_TF_LISTS(X)                                                                                  \
    X(ALLOW, ALLOW,                                                                                       \
      "BatchMatMul BatchMatMulV2 Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D "                 \
      "Conv3DBackpropFilterV2 Conv3DBackpropInputV2 DepthwiseConv2dNative "                               \
      "DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Einsum MatMul")             \
    X(ALLOW, NONE,                                                                                        \
      "BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 Conv3DBackpropFilter Conv3DBackpropInput "     \
      "CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNV2 CudnnRNNV3 "            \
      "FastUnsortedSegmentMax FusedConv2DBiasActivation FusedSparseConvGpuV2 GRUBlockCell "               \
      "GRUBlockCellGrad LSTMBlockCell LSTMBlockCellGrad Mha MhaV2 Pmlp Tmlp TmlpV2 TmlpV3 VoxelMax")      \
    X(NONE, ALLOW, "FusedPadConv2D")                                                                      \
    X(INFER, INFER,                                                                                       \
      "Add AddN AddV2 AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BiasAdd BiasAddGrad BiasAddV1 Elu "     \
      "EluGrad Erf Erfc FloorDiv FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 "             \
      "FusedBatchNormV3 Inv LeakyRelu LeakyReluGrad Log Log1p LogSoftmax Mul Prod RealDiv Reciprocal "    \
      "Selu SeluGrad Sigmoid SigmoidGrad Softmax Softplus SoftplusGrad Softsign SoftsignGrad Sqrt Sub "   \
      "Tanh TanhGrad _FusedBatchNormEx")                                                                  \
    X(NONE, INFER, "Rsqrt Square SquaredDifference")                                                      \
    X(DENY, DENY,                                                                                         \
      "Exp Expm1 L2Loss Pow SaveV2 SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits")    \
    X(DENY, INFER, "Mean Sum")                                                                            \
    X(CLEAR, CLEAR,                                                                                       \
      "Abs ArgMax ArgMin BatchToSpace BatchToSpaceND BroadcastTo Ceil CheckNumerics ClipByValue Concat "  \
      "ConcatV2 DepthToSpace DynamicPartition DynamicStitch EnsureShape Enter Equal Exit ExpandDims "     \
      "Fill Floor Gather GatherNd GatherV2 Greater GreaterEqual Identity IdentityN IsFinite IsInf IsNan " \
      "Less LessEqual Max MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 " \
      "MaxPoolGradV2 MaxPoolV2 Maximum Merge Min Minimum MirrorPad MirrorPadGrad Neg NextIteration "      \
      "NotEqual OnesLike Pack Pad PadV2 PreventGradient Rank Relu Relu6 Relu6Grad ReluGrad Reshape "      \
      "ResizeNearestNeighbor ResizeNearestNeighborGrad Reverse ReverseSequence ReverseV2 Round Select "   \
      "SelectV2 Shape ShapeN Sign Slice Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth Split SplitV "  \
      "Squeeze StopGradient StridedSlice StridedSliceGrad Switch TensorListConcat TensorListConcatLists " \
      "TensorListConcatV2 TensorListFromTensor TensorListGather TensorListGetItem TensorListPopBack "     \
      "TensorListPushBack TensorListPushBackBatch TensorListScatter TensorListScatterIntoExistingList "   \
      "TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack Tile TopK TopKV2 Transpose " \
      "Unpack Where ZerosLike")                                                                           \
    X(CLEAR, NONE, "MaxPool3DGradGrad OneHot Size")                                                       \
    X(NONE, CLEAR, "ResizeBilinear ScatterNd StatelessWhile While")

/* The policy rule of an op that only TensorFlow's lists name, from its list. */
enum { MPTI_TF_ALLOW = MPT_RULE_LOW, MPTI_TF_DENY = MPT_RULE_FP32, MPTI_TF_INFER = MPT_RULE_WIDEST,
       MPTI_TF_CLEAR = MPT_RULE_WIDEST, MPTI_TF_NONE = MPT_RULE_COUNT };

/* Facts of an op, a bit each: its list, an mpt_list (NONE has no bit), and its kind. */
#define MPTI_ON(list)    (1u << (list) >> 1)
#define MPTI_LISTED      (MPTI_ON(MPT_LIST_COUNT) - 1u)
#define MPTI_IS(kind)    (1u << MPTI_OP_##kind)
#define MPTI_KIND_ID(kind, names) MPTI_OP_##kind,
enum { MPTI_OP_LISTS = MPT_LIST_COUNT - 2, MPTI_OP_KINDS(MPTI_KIND_ID) MPTI_OP_FACTS };

/* All known ops. One name may stand in several rows, with its rule in one and its kind in another. */
static const struct mpti_op_row {
    unsigned char rule, cpu;                /* mpt_rule; MPT_RULE_COUNT: none */
    uint16_t      facts[MPT_LISTS_COUNT];   /* for each of mpt_op_lists */
    const char   *source, *names;           /* words, separated by blanks */
} mpti_ops[] = {
#define MPTI_PT_OP(rule, cpu, list, source, names) \
    {MPT_RULE_##rule, MPT_RULE_##cpu, {MPTI_ON(MPT_LIST_##list), 0, 0}, source, names},
    MPT_OPS(MPTI_PT_OP)
#define MPTI_TF_OP(cuda, bf16, names) \
    {MPTI_TF_##cuda, MPTI_TF_##bf16, {0, MPTI_ON(MPT_LIST_##cuda), MPTI_ON(MPT_LIST_##bf16)}, "TF", names},
    MPTI_TF_LISTS(MPTI_TF_OP)
#define MPTI_KIND_ROW(bit, names) {MPT_RULE_COUNT, MPT_RULE_COUNT, {bit, bit, bit}, NULL, names},
#define MPTI_KIND_OP(kind, names) MPTI_KIND_ROW(1u << MPTI_OP_##kind, names)    /* pasted here: CONST */
    MPTI_OP_KINDS(MPTI_KIND_OP)
};
#define MPTI_OP_COUNT (sizeof mpti_ops / sizeof mpti_ops[0])

#define MPTI_POLICY(name, cpu, compute, variable, output) {name, cpu, compute, variable, output, NULL, 0},
static const mpt_policy mpti_policies[] = {MPT_POLICIES(MPTI_POLICY)};
#define MPTI_POLICY_COUNT (sizeof mpti_policies / sizeof mpti_policies[0])

MPT_DEF const char *mpt_policy_name(size_t i) { return i < MPTI_POLICY_COUNT ? mpti_policies[i].name : NULL; }

MPT_DEF mpt_status mpt_policy_find(const char *name, mpt_policy *p)
{
    size_t i;
    if (!name || !p)
        return MPT_E_ARG;
    for (i = 0; i < MPTI_POLICY_COUNT; i++)
        if (!strcmp(name, mpti_policies[i].name)) {
            *p = mpti_policies[i];
            return MPT_OK;
        }
    return MPT_E_UNSUPPORTED;
}

/* MPT_F64, F32, TF32, F16, BF16 stand in this order: each but F16 holds all values of those behind it. */
MPTI_NOINLINE static int mpti_is_policy_format(mpt_format f) { return (unsigned)f <= (unsigned)MPT_BF16; }

/* The wider of two formats; F32 for F16 and BF16, as neither holds all values of the other. */
static mpt_format mpti_widest(mpt_format a, mpt_format b)
{
    const mpt_format wider = a < b ? a : b;
    return a == b || wider < MPT_F16 ? wider : MPT_F32;
}

static int mpti_has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    size_t       n;
    for (; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (n == length && !memcmp(words, word, n))
            return 1;
    }
    return 0;
}

/* Find an op's rule and source in the policy's rows, the last first, or in mpti_ops; return whether found. */
static int mpti_policy_row(const mpt_policy *p, const char *op, mpt_policy_answer *a)
{
    size_t i;
    for (i = p->row_count; i-- > 0;)
        if (!strcmp(op, p->rows[i].op)) {
            a->rule = p->rows[i].rule;
            a->source = p->rows[i].source;
            return 1;
        }
    for (i = 0; i < MPTI_OP_COUNT; i++) {
        a->rule = (mpt_rule)(p->cpu ? mpti_ops[i].cpu : mpti_ops[i].rule);
        a->source = mpti_ops[i].source;
        if (a->rule != MPT_RULE_COUNT && mpti_has_word(mpti_ops[i].names, op))
            return 1;
    }
    return 0;
}

/* Apply the rule a->rule. On entry a->input and a->output are the widest format of the op's inputs. */
static void mpti_policy_apply(const mpt_policy *p, int is_last, mpt_policy_answer *a)
{
    if (a->rule == MPT_RULE_LOW) {
        a->input = p->compute;
        a->output = p->compute == MPT_TF32 ? MPT_F32 : p->compute;  /* TF32 only rounds inputs */
    } else if (a->rule == MPT_RULE_REFUSED) {
        a->input = a->output = MPT_F32;
        if (p->compute == MPT_TF32) {
            a->rule = MPT_RULE_FP32;
            a->why = "refused in 16 bits; under tf32 its inputs stay FP32";
        }
    } else if (a->rule == MPT_RULE_FP32 || a->rule == MPT_RULE_OUTPUT) {
        const int fp32 = a->rule == MPT_RULE_FP32;
        a->input = fp32 ? p->variable : is_last ? p->compute : a->input;
        a->output = is_last ? p->output : p->variable;
        if (is_last)
            a->why = fp32 ? "the loss and its gradient are small: they stay in the policy's output format"
                          : "the last layer feeds the loss: its result stays in the policy's output format";
    }
}

MPT_DEF mpt_status mpt_policy_format(const mpt_policy *p, const char *op, const mpt_format *inputs,
                                     size_t count, mpt_policy_answer *answer)
{
#define MPTI_WHY(id, name, why) why,
    static const char *const whys[] = {MPT_RULES(MPTI_WHY)};
    mpt_policy_answer a;
    size_t            i;
    if (!p || !op || !answer || mpti_no_array(inputs, count, sizeof *inputs) ||
        mpti_no_array(p->rows, p->row_count, sizeof *p->rows))
        return MPT_E_ARG;
    for (i = 0; i < p->row_count; i++)
        if (!p->rows[i].op || (unsigned)p->rows[i].rule >= (unsigned)MPT_RULE_COUNT)
            return MPT_E_ARG;
    if (!mpti_is_policy_format(p->compute) || !mpti_is_policy_format(p->variable) ||
        !mpti_is_policy_format(p->output) || !mpti_policy_row(p, op, &a))
        return MPT_E_UNSUPPORTED;
    a.why = whys[a.rule];
    a.input = count ? inputs[0] : p->variable;
    for (i = 0; i < count; i++) {
        if (!mpti_is_policy_format(inputs[i]))
            return MPT_E_UNSUPPORTED;
        a.input = mpti_widest(a.input, inputs[i]);
    }
    a.output = a.input;
    if (a.input == MPT_F64 && p->compute != MPT_F64) {
        a.rule = MPT_RULE_AS_IS;
        a.why = "it has an F64 input, so it runs in F64";
    } else if (p->compute == p->variable && p->compute == p->output) {
        a.input = a.output = p->compute;
        a.why = "the policy has one format for everything";
    } else {
        mpti_policy_apply(p, !strcmp(op, "output") || !strcmp(op, "loss"), &a);
    }
    *answer = a;
    return MPT_OK;
}

// >>M26 implementation: graph ---------------------------------------------------------------------

/* ---- memory: the arena gives lasting blocks from its low end, scratch from its high end ---- */

#define MPTI_ALIGN 16u

/* Allocate n * size bytes, or return NULL. A block of MPT_MALLOC begins with the address of one before it. */
MPTI_NOINLINE static void *mpti_graph_alloc(mpt_graph *g, size_t n, size_t size, int scratch)
{
    size_t bytes;
    if (n > ((size_t)-1 - 2 * MPTI_ALIGN) / size)
        return NULL;
    bytes = (n * size + MPTI_ALIGN) / MPTI_ALIGN * MPTI_ALIGN;
#ifdef MPT_MALLOC
    if (!g->arena) {
        void **chain = scratch ? &g->scratch : &g->kept;
        void **block = (void **)MPT_MALLOC(bytes + MPTI_ALIGN);
        if (!block)
            return NULL;
        *block = *chain;
        *chain = block;
        return (unsigned char *)block + MPTI_ALIGN;
    }
#endif
    if (bytes > g->high - g->low)
        return NULL;
    if (scratch)
        return g->arena + (g->high -= bytes);
    g->low += bytes;
    return g->arena + (g->low - bytes);
}

static void mpti_graph_chain_free(void **chain)
{
    while (*chain) {
        void *block = *chain;
        *chain = *(void **)block;
#ifdef MPT_MALLOC
        MPT_FREE(block);
#endif
    }
}

static void mpti_graph_scratch_free(mpt_graph *g)
{
    g->high = g->bytes;
    mpti_graph_chain_free(&g->scratch);
}

/* Make room for `more` elements after the first `count`. Returns: whether there is room. */
static int mpti_graph_grow(mpt_graph *g, void **array, uint32_t count, uint32_t *room, size_t more,
                           size_t size)
{
    size_t want = (size_t)count + more;
    void  *bigger;
    if (want <= *room)
        return 1;
    if (want >= MPT_GRAPH_NONE)
        return 0;
    if (want < 2 * (size_t)*room && 2 * (size_t)*room < MPT_GRAPH_NONE)
        want = 2 * (size_t)*room;
    want = want < 16 ? 16 : want;
    bigger = mpti_graph_alloc(g, want, size, 0);
    if (!bigger)
        return 0;
    if (count)
        memcpy(bigger, *array, count * size);
    *array = bigger;
    *room = (uint32_t)want;
    return 1;
}

MPTI_NOINLINE static mpt_status mpti_graph_fail(mpt_graph *g, mpt_status status, const char *node,
                                                const char *why)
{
    const mpt_graph_fault fault = {node, why};
    if (g)
        g->fault = fault;
    return status;
}

static mpt_status mpti_graph_memory(mpt_graph *g)
{
    return mpti_graph_fail(g, MPT_E_MEMORY, NULL, "the arena is full, or MPT_MALLOC returned NULL");
}

static mpt_status mpti_graph_room(mpt_graph *g, size_t nodes, size_t types, size_t outputs, size_t inputs)
{
    void *array;
    int   ok = 1;
#define MPTI_GROW(what)                                                                                   \
    array = g->what##s;                                                                                   \
    ok = ok && mpti_graph_grow(g, &array, g->what##_count, &g->what##_room, what##s, sizeof *g->what##s); \
    g->what##s = (mpt_graph_##what *)array;
    MPTI_GROW(node)
    MPTI_GROW(type)
    MPTI_GROW(output)
    MPTI_GROW(input)
    return ok ? MPT_OK : mpti_graph_memory(g);
}

MPT_DEF mpt_status mpt_graph_init(mpt_graph *g, void *arena, size_t bytes)
{
    const size_t skew = mpti_min((size_t)(0u - (uintptr_t)arena) % MPTI_ALIGN, bytes);
    if (!g || mpti_no_array(arena, bytes, 1))
        return MPT_E_ARG;
    memset(g, 0, sizeof *g);
#ifndef MPT_MALLOC
    if (!arena)
        return MPT_E_UNSUPPORTED;
#endif
    if (!arena)
        return MPT_OK;
    g->arena = (unsigned char *)arena + skew;
    g->bytes = g->high = (bytes - skew) / MPTI_ALIGN * MPTI_ALIGN;
    return MPT_OK;
}

MPT_DEF void mpt_graph_free(mpt_graph *g)
{
    if (!g)
        return;
    mpti_graph_chain_free(&g->scratch);
    mpti_graph_chain_free(&g->kept);
    memset(g, 0, sizeof *g);
}

/* Scratch of a rewrite: an entry in the table of ops by name; an arc of the flow network, of which `room` is
 * left, and whose reverse is arc e ^ 1. */
typedef struct mpti_op_entry { const char *name; uint32_t length, facts; } mpti_op_entry;
typedef struct mpti_arc { uint64_t room; uint32_t to, next; } mpti_arc;

MPT_DEF size_t mpt_graph_bytes(size_t nodes, size_t inputs)
{
    /* the arrays as built (node, type, output), and again with room for a cast (2 types); the cast's name */
    const size_t kept =
        3 * sizeof(mpt_graph_node) + 4 * sizeof(mpt_graph_type) + 3 * sizeof(mpt_graph_output) + 144;
    /* scratch of mpti_amp and mpti_flow per node */
    const size_t scratch = 3 + 7 * 4 + 3 * 4 + 15 * 4 + 10 * sizeof(mpti_arc);
    const size_t each = kept + scratch, in = 3 * sizeof(mpt_graph_input) + 6 * sizeof(mpti_arc) + 4;
    if (nodes > (size_t)-1 / 4 / each || inputs > (size_t)-1 / 4 / in)
        return 0;
    return nodes * each + inputs * in + 8192 * sizeof(mpti_op_entry);
}

MPT_DEF mpt_status mpt_graph_reserve(mpt_graph *g, size_t nodes, size_t inputs)
{
    return g ? mpti_graph_room(g, nodes, nodes, nodes, inputs) : MPT_E_ARG;
}

/* ---- building ---- */

/* Append the array's next element to a linked list. `next`: link of element 0; others `stride` bytes on. */
MPTI_NOINLINE static mpt_status mpti_graph_chained(uint32_t *first, uint32_t *last, uint32_t *next,
                                                   size_t stride, uint32_t *count, uint32_t *id)
{
    if (*last != MPT_GRAPH_NONE)
        first = (uint32_t *)(void *)((unsigned char *)next + *last * stride);
    if (id)
        *id = *count;
    *first = *last = (*count)++;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_graph_node_add(mpt_graph *g, const char *name, const char *op, const char *device,
                                      uint32_t flags, uint32_t *id)
{
    const mpt_graph_node n = {name, op, device, flags, MPT_GRAPH_NONE, MPT_GRAPH_NONE, 0, 0};
    if (!g || !name || !op || flags & MPT_NODE_CAST)
        return mpti_graph_fail(g, MPT_E_ARG, name, "a node needs a name, an op, and no MPT_NODE_CAST");
    if (mpti_graph_room(g, 1, 0, 0, 0) != MPT_OK)
        return MPT_E_MEMORY;
    if (id)
        *id = g->node_count;
    g->nodes[g->node_count++] = n;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_graph_type_add(mpt_graph *g, uint32_t node, const char *name, int32_t format,
                                      uint32_t flags, uint32_t *id)
{
    mpt_graph_node *n;
    mpt_graph_type *t;
    if (!g || node >= g->node_count || !name)
        return mpti_graph_fail(g, MPT_E_ARG, NULL, "a type needs a node and a name");
    if (mpti_graph_room(g, 0, 1, 0, 0) != MPT_OK)
        return MPT_E_MEMORY;
    t = &g->types[g->type_count];
    memset(t, 0xff, sizeof *t);                 /* all indices MPT_GRAPH_NONE: empty lists, no reasons yet */
    t->name = name, t->format = format, t->flags = flags, t->node = node;
    t->group = g->type_count;
    t->why = (uint32_t)MPT_WHY_NONE;
    n = &g->nodes[node];
    return mpti_graph_chained(&n->first_type, &n->last_type, &g->types->next, sizeof *t, &g->type_count, id);
}

MPT_DEF mpt_status mpt_graph_output_add(mpt_graph *g, uint32_t type, uint64_t elements, uint32_t *id)
{
    mpt_graph_output o = {elements ? elements : 1, type, 0, MPT_GRAPH_NONE, MPT_GRAPH_NONE, {0.0, 0, 0}};
    mpt_graph_type  *t;
    if (!g || type >= g->type_count || elements > (uint64_t)1 << 40)
        return mpti_graph_fail(g, MPT_E_ARG, NULL, "an output needs a type, and at most 2^40 elements");
    if (mpti_graph_room(g, 0, 0, 1, 0) != MPT_OK)
        return MPT_E_MEMORY;
    t = &g->types[type];
    o.index = g->nodes[t->node].output_count++;
    g->outputs[g->output_count] = o;
    return mpti_graph_chained(&t->first_output, &t->last_output, &g->outputs->next, sizeof o,
                              &g->output_count, id);
}

MPT_DEF mpt_status mpt_graph_input_add(mpt_graph *g, uint32_t type, uint32_t source, uint32_t *id)
{
    mpt_graph_input in = {type, 0, MPT_GRAPH_NONE, MPT_GRAPH_NONE, MPT_GRAPH_NONE};
    mpt_graph_type *t;
    if (!g || type >= g->type_count || (source != MPT_GRAPH_NONE && source >= g->output_count))
        return mpti_graph_fail(g, MPT_E_ARG, NULL, "an input needs a type, and an output to read");
    if (mpti_graph_room(g, 0, 0, 0, 1) != MPT_OK)
        return MPT_E_MEMORY;
    t = &g->types[type];
    in.index = g->nodes[t->node].input_count++;
    g->inputs[g->input_count] = in;
    (void)mpti_graph_chained(&t->first_input, &t->last_input, &g->inputs->next, sizeof in, &g->input_count,
                             id);
    return source == MPT_GRAPH_NONE ? MPT_OK : mpt_graph_connect(g, g->input_count - 1, source);
}

MPT_DEF mpt_status mpt_graph_connect(mpt_graph *g, uint32_t input, uint32_t source)
{
    if (!g || input >= g->input_count || source >= g->output_count ||
        g->inputs[input].source != MPT_GRAPH_NONE)
        return mpti_graph_fail(g, MPT_E_ARG, NULL, "connect takes an unconnected input and an output");
    g->inputs[input].source = source;
    g->inputs[input].next_use = g->outputs[source].first_use;
    g->outputs[source].first_use = input;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_graph_op(mpt_graph *g, const char *name, const char *op, const uint32_t *sources,
                                size_t count, uint64_t elements, uint32_t *output)
{
    uint32_t   node = 0u, type = 0u;
    size_t     i;
    mpt_status status;
    if (!g || mpti_no_array(sources, count, sizeof *sources) || elements > (uint64_t)1 << 40)
        return MPT_E_ARG;
    for (i = 0; i < count; i++)
        if (sources[i] != MPT_GRAPH_NONE && sources[i] >= g->output_count)
            return mpti_graph_fail(g, MPT_E_ARG, name, "it reads an output that is not there");
    status = mpti_graph_room(g, 1, 1, 1, count);        /* reserve everything first: all or nothing */
    if (status == MPT_OK)
        status = mpt_graph_node_add(g, name, op, NULL, 0u, &node);
    if (status != MPT_OK)
        return status;
    (void)mpt_graph_type_add(g, node, "T", (int32_t)MPT_F32, 0u, &type);
    for (i = 0; i < count; i++)
        (void)mpt_graph_input_add(g, type, sources[i], NULL);
    return mpt_graph_output_add(g, type, elements, output);
}

/* Union-find over types; their links are `stride` words apart. Returns: the representative of t's group. */
MPTI_NOINLINE static uint32_t mpti_root(uint32_t *group, size_t stride, uint32_t t)
{
    while (group[t * stride] != t)
        t = group[t * stride] = group[group[t * stride] * stride];
    return t;
}

MPTI_NOINLINE static void mpti_join(uint32_t *group, size_t stride, uint32_t t, uint32_t other)
{
    const uint32_t x = mpti_root(group, stride, t), y = mpti_root(group, stride, other);
    group[(x > y ? x : y) * stride] = x < y ? x : y;
}

MPT_DEF mpt_status mpt_graph_group(mpt_graph *g, uint32_t type, uint32_t other)
{
    if (!g || type >= g->type_count || other >= g->type_count)
        return MPT_E_ARG;
    mpti_join(&g->types[0].group, sizeof *g->types / sizeof(uint32_t), type, other);
    return MPT_OK;
}

#ifndef MPT_NO_REPORTS
MPT_DEF mpt_status mpt_graph_range(mpt_graph *g, uint32_t output, const mpt_range *seen, mpt_format low,
                                   int log2_scale)
{
    mpt_range_choice at;
    mpt_status       status;
    if (!g || output >= g->output_count || !seen || (low != MPT_F16 && low != MPT_BF16))
        return MPT_E_ARG;
    if (seen->format != low)
        return mpti_graph_fail(g, MPT_E_ARG, NULL, "the range report is against another format");
    status = mpt_range_at_scale(seen, log2_scale, &at);
    if (status == MPT_OK) {
        g->outputs[output].range.flushed = mpti_share(at.flushed, mpt_range_nonzero(seen), 1.0);
        g->outputs[output].range.overflow = at.overflow || seen->inf;
    }
    return status;
}
#endif

MPTI_DEFAULTS(mpt_graph_options, mpt_graph_defaults, MPT_GRAPH_TENSORFLOW, MPT_LISTS_COMPACT, MPT_F16, NULL,
              NULL, 0, 0.01)

/* ---- ops by name ---- */

/* A hash table, open addressing, at most half full. */
typedef struct mpti_op_table { mpti_op_entry *entries; size_t mask; } mpti_op_table;

/* The entry of this name, or an empty one where it would be. */
static mpti_op_entry *mpti_op_find(const mpti_op_table *table, const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    size_t   i;
    for (i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    for (i = hash & table->mask;; i = (i + 1) & table->mask) {
        mpti_op_entry *e = &table->entries[i];
        if (!e->name || (e->length == length && !memcmp(e->name, name, length)))
            return e;
    }
}

/* Enter the built-in lists, then the rows of the options. */
static mpt_status mpti_op_table_init(mpt_graph *g, mpti_op_table *table, const mpt_graph_options *o)
{
    mpti_op_entry *e;
    const char    *words;
    size_t         size = 1024, i, n;
    while (size < 1024 + 2 * o->row_count)
        size *= 2;
    table->mask = size - 1;
    table->entries = (mpti_op_entry *)mpti_graph_alloc(g, size, sizeof(mpti_op_entry), 1);
    if (!table->entries)
        return mpti_graph_memory(g);
    memset(table->entries, 0, size * sizeof(mpti_op_entry));
    for (i = 0; i < MPTI_OP_COUNT; i++) {
        const uint16_t facts = mpti_ops[i].facts[o->lists];
        for (words = mpti_ops[i].names; *words && facts; words += n + (words[n] == ' ')) {
            n = strcspn(words, " ");
            e = mpti_op_find(table, words, n);
            e->name = words, e->length = (uint32_t)n, e->facts |= facts;
        }
    }
    for (i = 0; i < o->row_count; i++) {
        const mpt_list_row *row = &o->rows[i];
        const mpt_list      list = row->edit == MPT_LIST_REMOVE ? MPT_LIST_NONE : row->list;
        if (!row->op || !row->op[0])
            return mpti_graph_fail(g, MPT_E_ARG, NULL, "a list row needs an op");
        if ((unsigned)row->edit > (unsigned)MPT_LIST_REMOVE || (unsigned)list >= (unsigned)MPT_LIST_COUNT ||
            (list == MPT_LIST_NONE) != (row->edit == MPT_LIST_REMOVE))
            return mpti_graph_fail(g, MPT_E_ARG, row->op,
                                   "a list row needs a list, and one of add, override, remove");
        e = mpti_op_find(table, row->op, strlen(row->op));
        e->name = row->op, e->length = (uint32_t)strlen(row->op);
        if (row->edit == MPT_LIST_ADD && (e->facts & MPTI_LISTED & ~MPTI_ON(list)))
            return mpti_graph_fail(g, MPT_E_DATA, row->op, "this op is in two lists");
        e->facts = (e->facts & ~MPTI_LISTED) | MPTI_ON(list);
    }
    return MPT_OK;
}

/* ---- what a rewrite works on ---- */

/* Bits of a type: below 16 the facts of its node (CAST only if it is ABLE and something reads it), and marks
 * that the passes set ("paint"). "Low" means the format o->low. */
#define MPTI_FREE        (1u << MPTI_OP_FACTS)      /* a fact of a node: it may be changed */
#define MPTI_F32         (1u << 16)
#define MPTI_HANDLE      (1u << 17)
#define MPTI_ABLE        (1u << 18)         /* FP32, with a low kernel, and its node may be changed */
#define MPTI_INNER       (1u << 19)         /* MPTI_ABLE, and its op is on the infer or clear list */
#define MPTI_VARIABLE    (1u << 20)         /* its node reads a variable */
#define MPTI_HELD        (1u << 21)         /* values that it reads or makes do not fit the low format */
#define MPTI_ROOT        (1u << 22)         /* an allow op that may be changed, and whose values fit */
#define MPTI_GROUPED     (1u << 23)         /* it must agree with other types */
#define MPTI_LOW         (1u << 24)         /* painted low */
#define MPTI_DENIED      (1u << 25)         /* it must stay FP32 */
#define MPTI_UP          (1u << 26)         /* a deny or infer op, or leads to one through clear ops only */
#define MPTI_DOWN        (1u << 27)         /* downstream of an allow op through clear and infer ops */
#define MPTI_BETWEEN     (1u << 28)         /* MPTI_DOWN, and upstream of an allow op through such ops */
#define MPTI_ELEMENT     (1u << 29)         /* the FP32 type of an op on a list of tensors */
#define MPTI_PASSED      (1u << 30)         /* a handle was reached going forward; times 2: going backward */

/* The working data of one rewrite. */
typedef struct mpti_amp {
    mpt_graph               *g;
    const mpt_graph_options *o;
    uint16_t                *facts;                     /* of each node */
    uint8_t                 *why;                       /* of each type, an mpt_graph_why */
    uint32_t                *bits, *via, *to;           /* of each type */
    uint32_t                *carry, *queue;             /* of each type, scratch of the passes */
    uint32_t                *group;                     /* union-find over the types */
    uint32_t                 queued;
} mpti_amp;

/* Loops. MPTI_FOR_BITS: over the types with all the bits `need` and none of `avoid` as it comes to them. */
#define MPTI_FOR_BITS(t, need, avoid)         \
    for (t = 0; t < a->g->type_count; t++)    \
        if ((a->bits[t] & ((need) | (avoid))) == (need))
#define MPTI_FOR_TYPES(t, node) for (t = g->nodes[node].first_type; t != MPT_GRAPH_NONE; t = g->types[t].next)
#define MPTI_FOR_INPUTS(in, t) \
    for (in = g->types[t].first_input; in != MPT_GRAPH_NONE; in = g->inputs[in].next)
#define MPTI_FOR_READERS(in, o) \
    for (in = g->outputs[o].first_use; in != MPT_GRAPH_NONE; in = g->inputs[in].next_use)
#define MPTI_FOR_ALL_READERS(in, t) \
    for (in = mpti_reader(g, t, MPT_GRAPH_NONE); in != MPT_GRAPH_NONE; in = mpti_reader(g, t, in))

/* Lookups, not inline as many passes call them. mpti_source: the type whose output an input reads. */
MPTI_NOINLINE static uint32_t mpti_source(const mpt_graph *g, uint32_t in)
{
    return g->outputs[g->inputs[in].source].type;
}

MPTI_NOINLINE static uint32_t mpti_reader_node(const mpt_graph *g, uint32_t in)
{
    return g->types[g->inputs[in].type].node;
}

/* The next input after `in` that reads an output of type t; the first one if `in` is MPT_GRAPH_NONE. */
MPTI_NOINLINE static uint32_t mpti_reader(const mpt_graph *g, uint32_t t, uint32_t in)
{
    uint32_t o;
    if (in == MPT_GRAPH_NONE) {
        o = g->types[t].first_output;
    } else {
        o = g->outputs[g->inputs[in].source].next;
        in = g->inputs[in].next_use;
    }
    for (; in == MPT_GRAPH_NONE && o != MPT_GRAPH_NONE; o = g->outputs[o].next)
        in = g->outputs[o].first_use;
    return in;
}

MPTI_NOINLINE static const char *mpti_node_name(const mpt_graph *g, uint32_t t)
{
    return g->nodes[g->types[t].node].name;
}

/* A rewrite turns FusedBatchNorm and its gradient into these V2 ops, whose list then counts. */
static const char *mpti_norm_v2(const char *op)
{
    return strcmp(op, "FusedBatchNorm") ? "FusedBatchNormGradV2" : "FusedBatchNormV2";
}

/* Whether `text` contains `part`, regardless of the case of letters. */
static int mpti_contains(const char *text, const char *part)
{
    size_t i;
    for (; *text; text++) {
        for (i = 0; part[i] && (text[i] | 32) == (part[i] | 32); i++) {}
        if (!part[i])
            return 1;
    }
    return !*part;
}

/* ---- checking ---- */

/* Check the types, outputs and inputs, one by one. */
static mpt_status mpti_check_parts(mpt_graph *g, const uint16_t *facts)
{
    const char *why = NULL;
    uint64_t    sum = 0;
    uint32_t    i, from, at = MPT_GRAPH_NONE;
    for (i = 0; !why && i < g->type_count; i++)
        if (g->types[i].node >= g->node_count || g->types[i].group >= g->type_count)
            why = "a type has an index out of range";
        else if (g->types[i].format < MPT_TYPE_HANDLE || g->types[i].format >= (int32_t)MPT_FORMAT_COUNT)
            why = "one of its types has an unknown format", at = g->types[i].node;
    for (i = 0; !why && i < g->output_count; sum += g->outputs[i++].elements)
        if (g->outputs[i].type >= g->type_count)
            why = "an output has an index out of range";
    if (!why && sum > (uint64_t)1 << 60)
        why = "the tensors have more than 2^60 elements";
    for (i = 0; !why && i < g->input_count; i++) {
        const mpt_graph_input *in = &g->inputs[i];
        at = in->type < g->type_count ? g->types[in->type].node : MPT_GRAPH_NONE;
        if (at == MPT_GRAPH_NONE)
            why = "an input has an index out of range";
        else if (in->source == MPT_GRAPH_NONE)
            why = "one of its inputs is not connected";
        else if (in->source >= g->output_count)
            why = "one of its inputs reads an output that is not there";
        else if ((from = g->types[mpti_source(g, i)].node) == at)
            why = "the node reads its own output";
        else if (g->types[mpti_source(g, i)].format != g->types[in->type].format)
            why = "one of its inputs has another format than the output it reads";
        else if ((facts[from] & MPTI_IS(NEXT)) && !(facts[at] & MPTI_IS(MERGE)))
            why = "NextIteration may feed Merge nodes only", at = from;
    }
    return why ? mpti_graph_fail(g, MPT_E_DATA, at == MPT_GRAPH_NONE ? NULL : g->nodes[at].name, why)
               : MPT_OK;
}

/* A topological sort: a node waits for the nodes that it reads, except for those that close a loop
 * (NextIteration). On a cycle without one of these the nodes wait forever, and those behind it too. */
static mpt_status mpti_check_cycles(mpt_graph *g, const uint16_t *facts, uint32_t *queue, uint32_t *waits)
{
    uint32_t i, t, in, reader, from, head = 0, tail = 0;
    memset(waits, 0, g->node_count * sizeof *waits);
    for (i = 0; i < g->input_count; i++)
        waits[mpti_reader_node(g, i)] += !(facts[g->types[mpti_source(g, i)].node] & MPTI_IS(NEXT));
    for (i = 0; i < g->node_count; i++)
        if (!waits[i])
            queue[tail++] = i;
    while (head < tail) {
        i = queue[head++];
        if (facts[i] & MPTI_IS(NEXT))
            continue;
        MPTI_FOR_TYPES(t, i)
            MPTI_FOR_ALL_READERS(in, t) {
                reader = mpti_reader_node(g, in);
                if (!--waits[reader])
                    queue[tail++] = reader;
            }
    }
    if (tail == g->node_count)
        return MPT_OK;
    for (i = 0; i < g->input_count; i++) {      /* queue[i]: now a node that node i waits for */
        from = g->types[mpti_source(g, i)].node;
        if (waits[from] && !(facts[from] & MPTI_IS(NEXT)))
            queue[mpti_reader_node(g, i)] = from;
    }
    for (i = 0; !waits[i]; i++) {}
    for (head = 0; head < g->node_count; head++)        /* node_count steps upstream end on a cycle */
        i = queue[i];
    return mpti_graph_fail(g, MPT_E_DATA, g->nodes[i].name, "it lies on a cycle that no merge closes");
}

/* Set up the working data of a rewrite, and check the graph. */
static mpt_status mpti_amp_init(mpti_amp *a, mpt_graph *g, const mpt_graph_options *o)
{
    const size_t  nodes = g->node_count + (size_t)1, types = g->type_count + (size_t)1;
    mpti_op_table ops;
    mpt_status    status;
    uint32_t      i;
    memset(a, 0, sizeof *a);
    a->g = g;
    a->o = o;
    a->facts = (uint16_t *)mpti_graph_alloc(g, 2 * nodes + types, 1, 1);
    a->bits = (uint32_t *)mpti_graph_alloc(g, 5 * types + 2 * (nodes > types ? nodes : types),
                                           sizeof(uint32_t), 1);
    if (!a->facts || !a->bits)
        return mpti_graph_memory(g);
    a->why = (uint8_t *)(a->facts + nodes);
    a->via = a->bits + types, a->to = a->via + types, a->carry = a->to + types;
    a->group = a->carry + types, a->queue = a->group + types;
    memset(a->why, 0, types);
    memset(a->via, 0xff, 2 * types * sizeof(uint32_t));
    for (i = 0; i < g->type_count; i++)
        a->group[i] = g->types[i].group;
    status = mpti_op_table_init(g, &ops, o);
    if (status != MPT_OK)
        return status;
    for (i = 0; i < g->node_count; i++) {
        const mpt_graph_node *n = &g->nodes[i];
        const mpti_op_entry  *e = mpti_op_find(&ops, n->op, strlen(n->op));
        unsigned              facts = e->facts & MPTI_IS(NORM);
        if (!(n->flags & (MPT_NODE_FETCHED | MPT_NODE_STATEFUL)) &&
            (!o->device || !n->device || mpti_contains(n->device, o->device))) {
            if (facts)
                e = mpti_op_find(&ops, mpti_norm_v2(n->op), strlen(mpti_norm_v2(n->op)));
            facts |= MPTI_FREE;
        }
        facts |= n->flags & MPT_NODE_VARIABLE ? MPTI_IS(VARIABLE) : 0u;
        facts |= n->flags & MPT_NODE_CONST ? MPTI_IS(CONST) : 0u;
        a->facts[i] = (uint16_t)(facts | e->facts);
    }
    status = mpti_check_parts(g, a->facts);
    return status == MPT_OK ? mpti_check_cycles(g, a->facts, a->queue, a->queue + g->node_count) : status;
}

MPT_DEF mpt_status mpt_graph_check(mpt_graph *g)
{
    const mpt_graph_options o = mpt_graph_defaults();
    mpti_amp                a;
    mpt_status              status;
    if (!g)
        return MPT_E_ARG;
    status = mpti_amp_init(&a, g, &o);
    mpti_graph_scratch_free(g);
    return status;
}

/* ---- painting ---- */

MPTI_NOINLINE static void mpti_paint(mpti_amp *a, uint32_t t, unsigned bits, mpt_graph_why why, uint32_t via)
{
    a->bits[t] |= bits;
    a->why[t] = (uint8_t)why;
    a->via[t] = via;
}

/* The first type of this node that has this format, or MPT_GRAPH_NONE. */
MPTI_NOINLINE static uint32_t mpti_type_like(const mpt_graph *g, uint32_t node, int32_t format)
{
    uint32_t t;
    MPTI_FOR_TYPES(t, node)
        if (g->types[t].format == format)
            break;
    return t;
}

/* Whether a node is an Identity of a variable (no resource), or such an Identity after up to 64 Enters. */
static int mpti_reads_variable(const mpti_amp *a, uint32_t node)
{
    const mpt_graph *g = a->g;
    int              enters = 0;
    while ((a->facts[node] & MPTI_IS(IDENTITY)) || ((a->facts[node] & MPTI_IS(ENTER)) && enters++ < 64)) {
        const unsigned identity = a->facts[node] & MPTI_IS(IDENTITY);
        uint32_t       t;
        MPTI_FOR_TYPES(t, node)
            if (g->types[t].first_input != MPT_GRAPH_NONE)
                break;
        if (t == MPT_GRAPH_NONE)
            return 0;
        node = g->types[mpti_source(g, g->types[t].first_input)].node;
        if (identity)
            return (a->facts[node] & MPTI_IS(VARIABLE)) != 0;
    }
    return 0;
}

/* Set the bits that are known of the types before the other passes. */
static void mpti_pass_types(mpti_amp *a)
{
    const mpt_graph *g = a->g;
    uint32_t         i;
    for (i = 0; i < g->type_count; i++) {
        const mpt_graph_type *t = &g->types[i];
        unsigned              bits = a->facts[t->node];
        bits |= bits & (MPTI_ON(MPT_LIST_DENY) | MPTI_ON(MPT_LIST_INFER)) ? MPTI_UP : 0u;
        bits |= mpti_reads_variable(a, t->node) ? MPTI_VARIABLE : 0u;
        bits |= t->format == MPT_TYPE_HANDLE ? MPTI_HANDLE : 0u;
        bits |= t->format == (int32_t)MPT_F32 ? MPTI_F32 : 0u;
        if ((bits & MPTI_F32) && (bits & MPTI_FREE) && !(t->flags & MPT_TYPE_FIXED))
            bits |= bits & (MPTI_ON(MPT_LIST_INFER) | MPTI_ON(MPT_LIST_CLEAR)) ? MPTI_ABLE | MPTI_INNER
                                                                              : MPTI_ABLE;
        if (!(bits & MPTI_ABLE) || mpti_reader(g, i, MPT_GRAPH_NONE) == MPT_GRAPH_NONE)
            bits &= ~MPTI_IS(CAST);
        a->bits[i] = bits;
    }
}

/* Mark with MPTI_HELD the types that read or make values which the low format cannot hold. */
static void mpti_pass_ranges(mpti_amp *a)
{
    const mpt_graph *g = a->g;
    uint32_t         o, in;
    for (o = 0; o < g->output_count; o++) {
        const mpt_port_range *r = &g->outputs[o].range;
        const mpt_graph_why   why = r->overflow ? MPT_WHY_OVERFLOW : MPT_WHY_FLUSHED;
        const uint32_t        t = g->outputs[o].type;
        if (!(a->bits[t] & MPTI_F32) || !(r->overflow || r->flushed > a->o->most_flushed))
            continue;
        mpti_paint(a, t, MPTI_HELD, why, MPT_GRAPH_NONE);
        MPTI_FOR_READERS(in, o)
            mpti_paint(a, g->inputs[in].type, MPTI_HELD, why, t);
    }
}

/* Connected handles are one list of tensors, and the FP32 types of the ops on it must agree. They stay FP32
 * if one of these ops may not be changed, or if the list enters or leaves the graph (MPTI_OP_END). */
static void mpti_pass_lists(mpti_amp *a)
{
    const mpt_graph *g = a->g;
    uint32_t        *list = a->queue, *first = a->carry;    /* union-find; first FP32 type on a list */
    uint32_t         i, root, f32;
    for (i = 0; i < g->type_count; i++)
        list[i] = i, first[i] = MPT_GRAPH_NONE;
    for (i = 0; i < g->input_count; i++)
        if (a->bits[g->inputs[i].type] & MPTI_HANDLE)
            mpti_join(list, 1, g->inputs[i].type, mpti_source(g, i));
    MPTI_FOR_BITS(i, MPTI_HANDLE | MPTI_FREE, 0u)
        if (first[mpti_root(list, 1, i)] == MPT_GRAPH_NONE)
            first[mpti_root(list, 1, i)] = mpti_type_like(g, g->types[i].node, (int32_t)MPT_F32);
    MPTI_FOR_BITS(i, MPTI_HANDLE, 0u) {
        root = first[mpti_root(list, 1, i)];
        if (root == MPT_GRAPH_NONE)
            continue;
        f32 = mpti_type_like(g, g->types[i].node, (int32_t)MPT_F32);
        if (f32 != MPT_GRAPH_NONE) {
            mpti_join(a->group, 1, f32, root);
            a->bits[f32] |= MPTI_ELEMENT;
            if (!(a->bits[i] & MPTI_FREE))
                mpti_paint(a, root, MPTI_DENIED, MPT_WHY_KEPT, MPT_GRAPH_NONE);
        } else if (a->bits[i] & MPTI_IS(END)) {
            mpti_paint(a, root, MPTI_DENIED, MPT_WHY_GROUP_FP32, i);
        }
    }
    for (i = 0; i < g->type_count; i++)
        if ((root = mpti_root(a->group, 1, i)) != i) {
            a->bits[i] |= MPTI_GROUPED;
            a->bits[root] |= MPTI_GROUPED;
        }
}

#define MPTI_FORWARD  1u
#define MPTI_BACKWARD 2u

/* Queue the types with all of `need` and none of `avoid`, flip `flip`; record `why` (unless NONE), `via`. */
MPTI_NOINLINE static void mpti_mark(mpti_amp *a, unsigned need, unsigned avoid, unsigned flip,
                                    mpt_graph_why why, const uint32_t *via)
{
    uint32_t i;
    a->queued = 0;
    MPTI_FOR_BITS(i, need, avoid) {
        a->bits[i] ^= flip;
        if (why != MPT_WHY_NONE)
            mpti_paint(a, i, 0u, why, via ? via[i] : MPT_GRAPH_NONE);
        a->queue[a->queued++] = i;
    }
}

/* A spread from the queue: it gives `mark` to types with all the bits `need` and none of `avoid`. */
typedef struct mpti_spreading {
    unsigned      need, avoid, mark;
    mpt_graph_why why;          /* reason to record, unless MPT_WHY_NONE */
    uint32_t     *parent;       /* of each type: the type from which it was reached */
} mpti_spreading;

static void mpti_visit(mpti_amp *a, const mpti_spreading *s, uint32_t t, uint32_t from, unsigned way)
{
    unsigned mark = s->mark;
    if (a->bits[t] & MPTI_HANDLE) {     /* pass through lists: what one op writes, another reads */
        mark = MPTI_PASSED * way;
        if (!(a->bits[t] & MPTI_FREE))
            return;
    } else if ((a->bits[t] & (s->need | s->avoid)) != s->need) {
        return;
    }
    if (a->bits[t] & mark)
        return;
    a->bits[t] |= mark;
    if (s->why != MPT_WHY_NONE)
        a->why[t] = (uint8_t)s->why;
    s->parent[t] = from;
    a->queue[a->queued++] = t;
}

/* Spread within a node between tensors and a list: it writes FP32 inputs to it, and reads outputs from it. */
static void mpti_visit_across(mpti_amp *a, const mpti_spreading *s, uint32_t t, uint32_t from, unsigned way)
{
    const mpt_graph *g = a->g;
    const int32_t    format = a->bits[t] & MPTI_HANDLE ? (int32_t)MPT_F32 : MPT_TYPE_HANDLE;
    const uint32_t   other = mpti_type_like(g, g->types[t].node, format);
    const uint32_t   reads = way == MPTI_FORWARD ? t : other, writes = way == MPTI_FORWARD ? other : t;
    if (other != MPT_GRAPH_NONE && (a->bits[t] & (MPTI_HANDLE | MPTI_F32)) &&
        g->types[reads].first_input != MPT_GRAPH_NONE && g->types[writes].first_output != MPT_GRAPH_NONE)
        mpti_visit(a, s, other, from, way);
}

/* Mark all types that can be reached from the queue, breadth first and in linear time. */
static void mpti_spread(mpti_amp *a, unsigned ways, unsigned need, unsigned avoid, unsigned mark,
                        mpt_graph_why why, uint32_t *parent)
{
    const mpt_graph     *g = a->g;
    const mpti_spreading s = {need, avoid, mark, why, parent};
    uint32_t             head, in;
    for (head = 0; head < a->queued; head++) {
        const uint32_t t = a->queue[head];
        const int      handle = (a->bits[t] & MPTI_HANDLE) != 0;
        const uint32_t from = handle ? parent[t] : t;
        const unsigned go = handle ? a->bits[t] / MPTI_PASSED : ways;
        if (go & MPTI_FORWARD) {
            MPTI_FOR_ALL_READERS(in, t)
                mpti_visit(a, &s, g->inputs[in].type, from, MPTI_FORWARD);
            mpti_visit_across(a, &s, t, from, MPTI_FORWARD);
        }
        if (go & MPTI_BACKWARD) {
            MPTI_FOR_INPUTS(in, t)
                mpti_visit(a, &s, mpti_source(g, in), from, MPTI_BACKWARD);
            mpti_visit_across(a, &s, t, from, MPTI_BACKWARD);
        }
    }
    for (head = 0; head < a->queued; head++)
        a->bits[a->queue[head]] &= MPTI_PASSED - 1u;
}

/* If one of a group is denied or fixed, all are; else if one is low, all are. Elements need no low kernel. */
static void mpti_pass_groups(mpti_amp *a)
{
    const unsigned element = MPTI_ELEMENT | MPTI_FREE;
    uint32_t      *decides = a->carry;          /* at the root of each group: the member that decides */
    uint32_t      *first, i, by;
    memset(decides, 0xff, a->g->type_count * sizeof *decides);
    MPTI_FOR_BITS(i, MPTI_GROUPED | MPTI_F32, 0u) {
        first = &decides[mpti_root(a->group, 1, i)];
        if (!(a->bits[i] & MPTI_ABLE) && (a->bits[i] & element) != element)
            a->bits[i] |= MPTI_DENIED;
        if (*first == MPT_GRAPH_NONE ? a->bits[i] & (MPTI_DENIED | MPTI_LOW)
                                     : ~a->bits[*first] & a->bits[i] & MPTI_DENIED)
            *first = i;
    }
    MPTI_FOR_BITS(i, MPTI_F32, 0u)
        if ((by = decides[mpti_root(a->group, 1, i)]) != MPT_GRAPH_NONE) {
            const unsigned denied = a->bits[by] & MPTI_DENIED;
            if (denied)
                a->bits[i] &= ~(MPTI_LOW | MPTI_ROOT);
            if (!(a->bits[i] & (denied ? MPTI_DENIED : MPTI_LOW)))
                mpti_paint(a, i, denied ? MPTI_DENIED : MPTI_LOW,
                           denied ? MPT_WHY_GROUP_FP32 : MPT_WHY_GROUP_LOW, by);
        }
}

/* Step 4 (up to TensorFlow 2.19 for the BF16 lists only): an infer op becomes low if a low op feeds it and no
 * denied op does. One scan in index order, as in TensorFlow: a chain follows if it was built in order. */
static void mpti_pass_follow(mpti_amp *a)
{
    const mpt_graph *g = a->g;
    uint32_t         i, in;
    MPTI_FOR_BITS(i, MPTI_INNER | MPTI_ON(MPT_LIST_INFER), MPTI_DENIED | MPTI_LOW) {
        uint32_t low = MPT_GRAPH_NONE;
        unsigned denied = 0u;
        MPTI_FOR_INPUTS(in, i) {
            const uint32_t s = mpti_source(g, in);
            denied |= a->bits[s] & MPTI_DENIED;
            low = a->bits[s] & MPTI_LOW ? s : low;
        }
        if (low != MPT_GRAPH_NONE && !denied)
            mpti_paint(a, i, MPTI_LOW, MPT_WHY_FOLLOWS, low);
    }
}

/* Step 6, repairs: groups again, loops, casts. Here: deny a low type of a loop. Returns: if it was low. */
MPTI_NOINLINE static int mpti_loop_lose(mpti_amp *a, uint32_t t, uint32_t fp32)
{
    if (!(a->bits[t] & MPTI_LOW))
        return 0;
    a->bits[t] &= ~MPTI_LOW;
    mpti_paint(a, t, MPTI_DENIED, MPT_WHY_GROUP_FP32, fp32);
    return 1;
}

/* The type that ends a loop step and the merges that it feeds must agree: FP32 if one of them must be, else
 * low. Returns: whether anything changed; then types of other loops or groups may have to change too. */
static int mpti_pass_loops(mpti_amp *a)
{
    const mpt_graph *g = a->g;
    uint32_t         i, in;
    int              changed = 0;
    MPTI_FOR_BITS(i, MPTI_IS(NEXT) | MPTI_F32, 0u) {
        uint32_t fp32 = (a->bits[i] & (MPTI_ABLE | MPTI_DENIED)) != MPTI_ABLE ? i : MPT_GRAPH_NONE;
        uint32_t reader = MPT_GRAPH_NONE;
        MPTI_FOR_ALL_READERS(in, i) {
            reader = g->inputs[in].type;
            fp32 = a->bits[reader] & MPTI_LOW ? fp32 : reader;
        }
        if (reader == MPT_GRAPH_NONE)
            continue;
        if (fp32 != MPT_GRAPH_NONE) {
            changed |= mpti_loop_lose(a, i, fp32);
            MPTI_FOR_ALL_READERS(in, i)
                changed |= mpti_loop_lose(a, g->inputs[in].type, fp32);
        } else if (!(a->bits[i] & MPTI_LOW)) {
            mpti_paint(a, i, MPTI_LOW, MPT_WHY_GROUP_LOW, reader);
            changed = 1;
        }
    }
    return changed;
}

/* A cast to FP32 that only low ops read becomes a cast to the low format, unless a group decides. */
static void mpti_pass_casts(mpti_amp *a)
{
    const mpt_graph *g = a->g;
    uint32_t         i, in, reader = MPT_GRAPH_NONE;
    MPTI_FOR_BITS(i, MPTI_IS(CAST), MPTI_HELD | MPTI_LOW | MPTI_GROUPED) {
        MPTI_FOR_ALL_READERS(in, i) {
            reader = g->inputs[in].type;
            if (!(a->bits[reader] & MPTI_LOW))
                break;
        }
        if (in == MPT_GRAPH_NONE)
            mpti_paint(a, i, MPTI_LOW, MPT_WHY_CAST_LOW, reader);
    }
}

/* Why a type stays FP32, where no pass has recorded a reason. any: whether step 1 made a type low. */
static void mpti_pass_reasons(mpti_amp *a, int any)
{
    const uint32_t said = 1u << MPT_WHY_DENY | 1u << MPT_WHY_AFTER_DENY | 1u << MPT_WHY_NO_KERNEL |
                          1u << MPT_WHY_GROUP_FP32 | 1u << MPT_WHY_KEPT;
    uint32_t       i;
    for (i = 0; i < a->g->type_count; i++) {
        const uint32_t bits = a->bits[i], flags = a->g->nodes[a->g->types[i].node].flags;
        const unsigned was = a->why[i], why =
            !(bits & MPTI_F32)                                  ? MPT_WHY_ALREADY
            : (bits & MPTI_LOW) || (said >> was & 1u)           ? was
            : flags & (MPT_NODE_FETCHED | MPT_NODE_STATEFUL)    ? MPT_WHY_KEPT
            : !(bits & MPTI_FREE)                               ? MPT_WHY_DEVICE
            : bits & MPTI_HELD                                  ? was
            : !(bits & MPTI_LISTED)                             ? MPT_WHY_UNLISTED
            : !any                                              ? MPT_WHY_NOTHING
            : !(bits & MPTI_ABLE)                               ? MPT_WHY_NO_KERNEL
            : bits & MPTI_VARIABLE                              ? MPT_WHY_VARIABLE
            : bits & MPTI_ON(MPT_LIST_INFER)                    ? MPT_WHY_INFER
                                                                : MPT_WHY_APART;
        if (why != was)
            mpti_paint(a, i, 0u, (mpt_graph_why)why, MPT_GRAPH_NONE);
    }
}

/* ---- min_cut: each output whose ends (writer and readers) are not all alike costs one cast ----
 * S is low, T FP32, other nodes are groups of types. An output with two nodes is an edge both ways; one with
 * more has two of its own: every end -> first, first -> second at its price, second -> every end (Lawler). */

typedef struct mpti_flow {
    mpti_arc *arcs;
    uint32_t *first, *level, *now, *queue, *path;
    uint32_t  nodes, arc_count;
} mpti_flow;

#define MPTI_FLOW_S 0u
#define MPTI_FLOW_T 1u
#define MPTI_FLOW_ANY ((uint64_t)1 << 62)

static void mpti_flow_arc(mpti_flow *f, uint32_t from, uint32_t to, uint64_t room, uint64_t back)
{
    const mpti_arc there = {room, to, f->first[from]}, reverse = {back, from, f->first[to]};
    f->arcs[f->first[from] = f->arc_count++] = there;
    f->arcs[f->first[to] = f->arc_count++] = reverse;
}

/* Set `level` to the distance from `start`, breadth first over nodes without a level, until `stop` has one.
 * Follow arcs with room >= least. With flip 1, go against the arcs: the reverse arc must have that room. */
static void mpti_flow_search(mpti_flow *f, uint32_t start, uint32_t stop, uint32_t flip, uint64_t least)
{
    uint32_t head = 0, tail = 0, e;
    f->level[start] = 0;
    f->queue[tail++] = start;
    while (head < tail && f->level[stop] == MPT_GRAPH_NONE) {
        const uint32_t v = f->queue[head++];
        for (e = f->first[v]; e != MPT_GRAPH_NONE; e = f->arcs[e].next)
            if (f->arcs[e ^ flip].room >= least && f->level[f->arcs[e].to] == MPT_GRAPH_NONE) {
                f->level[f->arcs[e].to] = f->level[v] + 1;
                f->queue[tail++] = f->arcs[e].to;
            }
    }
}

/* Dinic's algorithm; the search for paths is depth first, with a stack of arcs in place of recursion. */
static void mpti_flow_run(mpti_flow *f)
{
    for (;;) {
        uint32_t length = 0, v = MPTI_FLOW_S, i;
        memset(f->level, 0xff, f->nodes * sizeof *f->level);
        mpti_flow_search(f, MPTI_FLOW_S, MPTI_FLOW_T, 0, 1);
        if (f->level[MPTI_FLOW_T] == MPT_GRAPH_NONE)
            return;
        memcpy(f->now, f->first, f->nodes * sizeof *f->now);
        for (;;) {
            uint32_t e = f->now[v];
            if (v == MPTI_FLOW_T) {             /* push as much flow along the path as fits */
                uint64_t least = MPTI_FLOW_ANY;
                for (i = 0; i < length; i++)
                    least = f->arcs[f->path[i]].room < least ? f->arcs[f->path[i]].room : least;
                while (length > 0) {
                    f->arcs[f->path[--length]].room -= least;
                    f->arcs[f->path[length] ^ 1u].room += least;
                }
                v = MPTI_FLOW_S;
                continue;
            }
            while (e != MPT_GRAPH_NONE && !(f->arcs[e].room && f->level[f->arcs[e].to] == f->level[v] + 1))
                e = f->arcs[e].next;
            f->now[v] = e;
            if (e != MPT_GRAPH_NONE) {
                f->path[length++] = e;
                v = f->arcs[e].to;
            } else if (length) {                /* a dead end: go back, and on to the next arc */
                v = f->arcs[f->path[--length] ^ 1u].to;
                f->now[v] = f->arcs[f->now[v]].next;
            } else {
                break;
            }
        }
    }
}

/* Set side[t]: S if type t must be low, T if it must not, else its group's node.  Returns: how many nodes.
 * The cut may choose the format of low types, and of undenied casts, clear and infer ops without variable. */
static uint32_t mpti_cut_nodes(mpti_amp *a, uint32_t *side)
{
    uint32_t *group = a->carry, *s, i, n = a->g->type_count, count = 2;     /* group[root]: side */
    memset(group, 0xff, n * sizeof *group);
    MPTI_FOR_BITS(i, MPTI_F32, 0u) {
        const unsigned bits = a->bits[i];
        const int      inner = (bits & (MPTI_INNER | MPTI_VARIABLE)) == MPTI_INNER;
        s = &group[mpti_root(a->group, 1, i)];
        if (!(bits & MPTI_LOW) && ((bits & MPTI_DENIED) || !(inner || (bits & MPTI_IS(CAST)))))
            *s = MPTI_FLOW_T;
        else if ((bits & MPTI_LOW) && (bits & MPTI_ON(MPT_LIST_ALLOW)) && *s != MPTI_FLOW_T)
            *s = MPTI_FLOW_S;
    }
    for (i = 0; i < n; i++) {
        s = &group[mpti_root(a->group, 1, i)];
        if ((a->bits[i] & MPTI_F32) && *s == MPT_GRAPH_NONE)
            *s = count++;
        side[i] = a->bits[i] & MPTI_F32 ? *s : MPTI_FLOW_T;
    }
    return count;
}

/* One element of a cast outweighs all infer types: as few bytes as possible, then as few low infer types. */
static void mpti_cut_arcs(mpti_amp *a, mpti_flow *f, const uint32_t *side, uint32_t *stamp, uint32_t *ends)
{
    const mpt_graph *g = a->g;
    uint64_t         total = 0, unit = g->type_count + (uint64_t)1;
    uint32_t         o, in, i, k, count;
    for (o = 0; o < g->output_count; o++)
        total += g->outputs[o].elements;
    if (total >= MPTI_FLOW_ANY / unit)
        unit = 1;
    for (i = 0; unit > 1 && i < g->type_count; i++)
        if (side[i] > MPTI_FLOW_T && (a->bits[i] & MPTI_ON(MPT_LIST_INFER)))
            mpti_flow_arc(f, side[i], MPTI_FLOW_T, 1, 0);
    memset(stamp, 0xff, f->nodes * sizeof *stamp);
    for (o = 0; o < g->output_count; o++) {
        const uint64_t price = g->outputs[o].elements * unit;
        ends[0] = side[g->outputs[o].type], count = 1;      /* the writer's side first, ... */
        stamp[ends[0]] = o;         /* ... each other side of an end once: stamp marks those stored */
        MPTI_FOR_READERS(in, o) {
            const uint32_t s = side[g->inputs[in].type];
            if (stamp[s] != o)
                stamp[s] = o, ends[count++] = s;
        }
        if (count == 2)
            mpti_flow_arc(f, ends[0], ends[1], price, price);
        if (count > 2) {
            mpti_flow_arc(f, f->nodes, f->nodes + 1, price, 0);
            for (k = 0; k < count; k++) {
                mpti_flow_arc(f, ends[k], f->nodes, MPTI_FLOW_ANY, 0);
                mpti_flow_arc(f, f->nodes + 1, ends[k], MPTI_FLOW_ANY, 0);
            }
            f->nodes += 2;
        }
        /* a cast may be low only if all its readers are */
        for (k = 1; (a->bits[g->outputs[o].type] & MPTI_IS(CAST)) && k < count; k++)
            mpti_flow_arc(f, ends[0], ends[k], MPTI_FLOW_ANY, 0);
    }
}

static mpt_status mpti_pass_cut(mpti_amp *a)
{
    mpt_graph     *g = a->g;
    const size_t   types = g->type_count + (size_t)4, outputs = g->output_count, inputs = g->input_count;
    const size_t   nodes = types + 2 * outputs + 4, arcs = 2 * types + 8 * outputs + 6 * inputs;
    const uint32_t high = MPT_GRAPH_NONE - 1;           /* level of types that become FP32 */
    uint32_t      *side = (uint32_t *)mpti_graph_alloc(g, 2 * types + inputs + outputs, sizeof *side, 1);
    uint32_t       i, in;
    mpti_flow      f;
    memset(&f, 0, sizeof f);
    f.first = (uint32_t *)mpti_graph_alloc(g, 5 * nodes, sizeof(uint32_t), 1);
    f.arcs = (mpti_arc *)mpti_graph_alloc(g, arcs, sizeof(mpti_arc), 1);
    if (!side || !f.first || !f.arcs || arcs >= MPT_GRAPH_NONE)
        return mpti_graph_memory(g);
    f.level = f.first + nodes, f.now = f.level + nodes, f.queue = f.now + nodes, f.path = f.queue + nodes;
    memset(f.first, 0xff, nodes * sizeof *f.first);
    MPTI_FOR_BITS(i, MPTI_IS(NEXT) | MPTI_F32, 0u)      /* the types of a loop must agree */
        MPTI_FOR_ALL_READERS(in, i)
            mpti_join(a->group, 1, i, g->inputs[in].type);
    f.nodes = mpti_cut_nodes(a, side);
    mpti_cut_arcs(a, &f, side, side + types, side + 2 * types);
    mpti_flow_run(&f);
    /* The largest S side of a minimum cut is the set of nodes that cannot reach T. Of these only the ones
     * that such nodes connect to S become low, so that no part without an allow op does. */
    memset(f.level, 0xff, (f.nodes + (size_t)1) * sizeof *f.level);
    mpti_flow_search(&f, MPTI_FLOW_T, f.nodes, 1, 1);
    for (i = 0; i < f.nodes; i++)
        f.level[i] = f.level[i] != MPT_GRAPH_NONE ? high : MPT_GRAPH_NONE;
    mpti_flow_search(&f, MPTI_FLOW_S, f.nodes, 0, 0);
    for (i = 0; i < g->type_count; i++) {
        if (side[i] <= MPTI_FLOW_T)
            continue;
        if (f.level[side[i]] >= high) {
            a->bits[i] &= ~MPTI_LOW;
            mpti_paint(a, i, 0u, MPT_WHY_CUT_FP32, MPT_GRAPH_NONE);
        } else if (!(a->bits[i] & MPTI_LOW)) {
            mpti_paint(a, i, MPTI_LOW, MPT_WHY_CUT_LOW, MPT_GRAPH_NONE);
        }
    }
    return MPT_OK;
}

/* ---- the rewrite ---- */

MPTI_NOINLINE static int mpti_needs_cast(const mpti_amp *a, uint32_t o)
{
    const mpt_graph *g = a->g;
    const uint32_t   t = g->outputs[o].type;
    uint32_t         in;
    if (!(a->bits[t] & MPTI_F32))
        return 0;
    MPTI_FOR_READERS(in, o)
        if ((a->bits[g->inputs[in].type] ^ a->bits[t]) & MPTI_LOW)
            return 1;
    return 0;
}

/* Reserve memory for all casts and their names, with the longest suffix, before anything is changed. */
static mpt_status mpti_reserve_casts(mpti_amp *a, char **names)
{
    mpt_graph *g = a->g;
    size_t     casts = 0, bytes = 0;
    uint32_t   o;
    for (o = 0; o < g->output_count; o++)
        if (mpti_needs_cast(a, o)) {
            casts++;
            bytes += strlen(mpti_node_name(g, g->outputs[o].type)) +
                     sizeof "-4294967295-CastToBf16-AutoMixedPrecision";
        }
    *names = (char *)mpti_graph_alloc(g, bytes, 1, 0);
    return *names ? mpti_graph_room(g, casts, 2 * casts, casts, casts) : mpti_graph_memory(g);
}

/* Insert a cast behind output o. Memory is reserved, so the arrays do not move and pointers stay valid. */
static void mpti_insert_cast(mpti_amp *a, uint32_t o, char **names, mpt_graph_summary *s)
{
    mpt_graph            *g = a->g;
    mpt_graph_output     *from = &g->outputs[o];
    mpt_graph_type       *type = &g->types[g->type_count];
    const uint32_t        t = from->type, low = a->bits[t] & MPTI_LOW, id = g->output_count;
    const uint32_t        cast = g->node_count, src = g->type_count;
    const mpt_graph_node *node = &g->nodes[g->types[t].node];
    const int32_t         formats[2] = {(int32_t)MPT_F32, (int32_t)a->o->low};
    const char           *name = *names;
    uint32_t              in, *link;
    mpti_string           text = mpti_string_in(*names, (size_t)-1);
    mpti_add_text(&text, node->name);
    mpti_add_char(&text, '-');
    mpti_add_int(&text, (int)from->index);
    mpti_add_text(&text, low ? "-CastToFp32" : a->o->low == MPT_F16 ? "-CastToFp16" : "-CastToBf16");
    mpti_add_text(&text, "-AutoMixedPrecision");
    *names += mpti_string_end(&text) + 1;
    (void)mpt_graph_node_add(g, name, a->o->lists == MPT_LISTS_COMPACT ? "cast" : "Cast", node->device, 0u,
                             NULL);
    g->nodes[cast].flags = MPT_NODE_CAST;
    (void)mpt_graph_type_add(g, cast, "SrcT", formats[low != 0], 0u, NULL);
    (void)mpt_graph_type_add(g, cast, "DstT", formats[low == 0], 0u, NULL);
    (void)mpt_graph_output_add(g, src + 1, from->elements, NULL);
    type[0].why = type[1].why = (uint32_t)MPT_WHY_ADDED;
    type[0].via = type[1].via = t;
    g->outputs[id].range = from->range;
    for (link = &from->first_use; (in = *link) != MPT_GRAPH_NONE;) {
        mpt_graph_input *reader = &g->inputs[in];
        if ((a->bits[reader->type] & MPTI_LOW) != low) {        /* this reader now reads the cast */
            *link = reader->next_use;
            reader->source = MPT_GRAPH_NONE;
            (void)mpt_graph_connect(g, in, id);
        } else {
            link = &reader->next_use;
        }
    }
    (void)mpt_graph_input_add(g, src, o, NULL);
    s->casts++;
    s->cast_bytes += from->elements * 6u;
    s->low_casts += !(a->bits[t] & (MPTI_LOW | MPTI_IS(CONST) | MPTI_IS(VARIABLE) | MPTI_VARIABLE));
}

/* The next type on the path to the op that decided: along `via`, or onward along `to`. */
static uint32_t mpti_hop(const mpt_graph_type *t, int onward) { return onward ? t->to : t->via; }

MPTI_NOINLINE static uint32_t *mpti_path_end(mpt_graph *g, uint32_t t, int onward)
{
    return onward ? &g->types[t].to_end : &g->types[t].via_end;
}

/* Find the end of each type's path: a type without a next one, or the first with another reason. A walk stops
 * where the end is known from an earlier walk, so that all walks together take linear time. */
static void mpti_find_ends(mpt_graph *g, int onward)
{
    uint32_t i, t, next, end;
    int      last;
    for (i = 0; i < g->type_count; i++)
        *mpti_path_end(g, i, onward) = MPT_GRAPH_NONE;
    for (i = 0; i < g->type_count; i++) {
        for (t = i; *mpti_path_end(g, t, onward) == MPT_GRAPH_NONE; t = next) {
            next = mpti_hop(&g->types[t], onward);
            last = next == MPT_GRAPH_NONE || g->types[next].why != g->types[t].why;
            *mpti_path_end(g, t, onward) = last && next != MPT_GRAPH_NONE ? next : t;
            if (last)
                break;
        }
        end = *mpti_path_end(g, t, onward);
        for (t = i; t != end && *mpti_path_end(g, t, onward) == t; t = mpti_hop(&g->types[t], onward))
            *mpti_path_end(g, t, onward) = end;
    }
}

static void mpti_commit(mpti_amp *a, char *names, mpt_graph_summary *s)
{
    mpt_graph     *g = a->g;
    const uint32_t types = g->type_count, outputs = g->output_count, nodes = g->node_count;
    uint32_t       i;
    s->nodes = nodes;
    s->low = a->o->low;
    for (i = 0; i < outputs; i++)
        if (mpti_needs_cast(a, i))
            mpti_insert_cast(a, i, &names, s);
    for (i = 0; i < types; i++) {
        mpt_graph_type *t = &g->types[i];
        const unsigned  bits = a->bits[i], f32 = bits & MPTI_F32, low = f32 && (bits & MPTI_LOW);
        const unsigned  deny = a->why[i] == MPT_WHY_DENY || a->why[i] == MPT_WHY_AFTER_DENY;
        s->processable += (bits & MPTI_FREE) != 0u;
        s->recognized += (bits & MPTI_FREE) && (bits & MPTI_LISTED);
        s->converted += low;
        s->allow_converted += low && (bits & MPTI_ON(MPT_LIST_ALLOW));
        s->deny_blocking += deny && (bits & MPTI_ON(MPT_LIST_DENY));
        s->blocked_by_deny += deny && !(bits & MPTI_ON(MPT_LIST_DENY));
        if (low)
            t->format = (int32_t)a->o->low;
        /* types that an earlier rewrite made low, or added, keep their reasons */
        if ((f32 || (t->why != MPT_WHY_ADDED && !mpt_graph_is_low(g, i))) &&
            !(g->nodes[t->node].flags & MPT_NODE_CAST)) {
            t->why = a->why[i];
            t->via = a->via[i];
            t->to = a->why[i] == MPT_WHY_BETWEEN ? a->to[i] : MPT_GRAPH_NONE;
        }
    }
    for (i = 0; i < nodes; i++)
        if ((a->facts[i] & MPTI_FREE) && (a->facts[i] & MPTI_IS(NORM)))
            g->nodes[i].op = mpti_norm_v2(g->nodes[i].op);
    mpti_find_ends(g, 0);
    mpti_find_ends(g, 1);
}

static mpt_status mpti_amp_paint(mpti_amp *a)
{
    int any;
    mpti_pass_types(a);
    mpti_pass_ranges(a);
    mpti_pass_lists(a);
    /* step 1: allow ops become low */
    mpti_mark(a, MPTI_ON(MPT_LIST_ALLOW) | MPTI_FREE, MPTI_HELD, MPTI_ROOT | MPTI_LOW, MPT_WHY_ALLOW, NULL);
    any = a->queued != 0;
    /* step 2: deny spreads forward from deny ops, through infer ops, and through clear ops that lead to a
     * deny or infer op by clear ops only; types that mpti_pass_lists denied keep their reason */
    mpti_mark(a, MPTI_UP, 0u, 0u, MPT_WHY_NONE, NULL);
    mpti_spread(a, MPTI_BACKWARD, MPTI_ON(MPT_LIST_CLEAR), 0u, MPTI_UP, MPT_WHY_NONE, a->carry);
    mpti_mark(a, MPTI_ON(MPT_LIST_DENY), MPTI_DENIED, MPTI_DENIED, MPT_WHY_DENY, a->via);
    mpti_spread(a, MPTI_FORWARD, MPTI_UP, 0u, MPTI_DENIED, MPT_WHY_AFTER_DENY, a->via);
    mpti_mark(a, MPTI_HELD, MPTI_DENIED, MPTI_DENIED, MPT_WHY_NONE, NULL);
    if (any) {
        mpti_pass_groups(a);
        /* step 3: clear and infer ops behind an allow op become low if they lead to one by such ops only */
        mpti_mark(a, MPTI_ROOT, 0u, MPTI_DOWN, MPT_WHY_NONE, NULL);
        mpti_spread(a, MPTI_FORWARD, MPTI_INNER, MPTI_DENIED, MPTI_DOWN, MPT_WHY_NONE, a->carry);
        mpti_mark(a, MPTI_ROOT, 0u, MPTI_BETWEEN, MPT_WHY_NONE, NULL);
        mpti_spread(a, MPTI_BACKWARD, MPTI_DOWN, MPTI_ROOT, MPTI_BETWEEN, MPT_WHY_NONE, a->to);
        mpti_mark(a, MPTI_BETWEEN, MPTI_LOW, MPTI_LOW, MPT_WHY_BETWEEN, a->carry);
        if (a->o->mode != MPT_GRAPH_TENSORFLOW_2_19 || a->o->lists == MPT_LISTS_TF_BF16)
            mpti_pass_follow(a);
        /* step 5: low spreads both ways by clear ops */
        mpti_mark(a, MPTI_LOW, 0u, 0u, MPT_WHY_NONE, NULL);
        mpti_spread(a, MPTI_FORWARD | MPTI_BACKWARD, MPTI_ABLE | MPTI_ON(MPT_LIST_CLEAR),
                    MPTI_LOW | MPTI_DENIED | MPTI_VARIABLE, MPTI_LOW, MPT_WHY_CLEAR, a->via);
        mpti_mark(a, MPTI_LOW | MPTI_ON(MPT_LIST_ALLOW), MPTI_ABLE, MPTI_LOW, MPT_WHY_NO_KERNEL, NULL);
        do
            mpti_pass_groups(a);
        while (mpti_pass_loops(a));
        mpti_pass_casts(a);
    }
    mpti_pass_reasons(a, any);
    return any && a->o->mode == MPT_GRAPH_MIN_CUT ? mpti_pass_cut(a) : MPT_OK;
}

/* Not inlined: gcc would not see that a summary is written whenever this returns MPT_OK, and warn callers. */
MPT_DEF MPTI_NOINLINE mpt_status mpt_graph_rewrite(mpt_graph *g, const mpt_graph_options *options,
                                                   mpt_graph_summary *summary)
{
    const mpt_graph_options o = options ? *options : mpt_graph_defaults();
    mpt_graph_summary       s;
    mpti_amp                a;
    mpt_status              status;
    char                   *names = NULL;
    if (!g || (unsigned)o.lists >= (unsigned)MPT_LISTS_COUNT ||
        mpti_no_array(o.rows, o.row_count, sizeof *o.rows) ||
        (unsigned)o.mode >= (unsigned)MPT_GRAPH_MODE_COUNT || !(o.most_flushed >= 0.0))
        return mpti_graph_fail(g, MPT_E_ARG, NULL, "no valid mode, lists, rows or most_flushed");
    if (o.low != MPT_F16 && o.low != MPT_BF16)
        return mpti_graph_fail(g, MPT_E_UNSUPPORTED, NULL, "low must be MPT_F16 or MPT_BF16");
    memset(&s, 0, sizeof s);
    status = mpti_amp_init(&a, g, &o);
    if (status == MPT_OK)
        status = mpti_amp_paint(&a);
    if (status == MPT_OK)
        status = mpti_reserve_casts(&a, &names);
    if (status == MPT_OK) {
        mpti_commit(&a, names, &s);
        if (summary)
            *summary = s;
        g->fault.node = g->fault.why = NULL;
    }
    mpti_graph_scratch_free(g);
    return status;
}

MPT_DEF MPTI_NOINLINE int mpt_graph_is_low(const mpt_graph *g, uint32_t type)
{
    return g && type < g->type_count && g->types[type].why - 1u < (uint32_t)MPT_WHY_ADDED &&
           g->types[type].format != (int32_t)MPT_F32;
}

/* ---- explaining and printing ---- */

static MPTI_TEXT_OF_ROW(mpti_graph_why_text, uint32_t, MPT_GRAPH_WHYS, texts[0])

#define MPTI_TOLD 6u            /* nodes of a path that are named besides its end */

static void mpti_say_path(mpti_string *text, const mpt_graph *g, uint32_t t, int onward)
{
    const uint32_t end = onward ? g->types[t].to_end : g->types[t].via_end;
    uint32_t       hop[MPTI_TOLD + 1], n = 0, i;
    while (t != end && n <= MPTI_TOLD)
        hop[n++] = t = mpti_hop(&g->types[t], onward);
    if (t != end)
        hop[MPTI_TOLD] = end;
    for (i = 0; i < n; i++) {
        const uint32_t    place = onward ? i : n - 1 - i;       /* hops away, less 1 */
        const char *const arrow = t != end && place == MPTI_TOLD ? " -> ... -> " : " -> ";
        const char *const name = mpti_node_name(g, hop[place]);
        mpti_add_text(text, onward ? arrow : name);
        mpti_add_text(text, onward ? name : arrow);
    }
}

MPT_DEF size_t mpt_graph_explain(const mpt_graph *g, uint32_t type, char *buf, size_t cap)
{
    const mpt_graph_type *t;
    mpti_string text = mpti_string_in(buf, cap);
    if (!g || type >= g->type_count || (cap && !buf))
        return 0;
    t = &g->types[type];
    mpti_add_text(&text, mpti_node_name(g, type));
    if (g->nodes[t->node].first_type != type || t->next != MPT_GRAPH_NONE) {
        mpti_add_text(&text, "/");
        mpti_add_text(&text, t->name);
    }
    mpti_add_text(&text, " (");
    mpti_add_text(&text, g->nodes[t->node].op);
    mpti_add_text(&text, "): ");
    mpti_add_text(&text, t->format < 0 || t->format >= (int32_t)MPT_FORMAT_COUNT ? "no float, "
                         : mpt_graph_is_low(g, type)                              ? "low, because "
                         : t->format == (int32_t)MPT_F32                          ? "FP32, because "
                                                                                  : "as it was, because ");
    mpti_add_text(&text, mpti_graph_why_text(t->why));
    if (t->via != MPT_GRAPH_NONE || t->to != MPT_GRAPH_NONE) {
        mpti_add_text(&text, ": ");
        mpti_say_path(&text, g, type, 0);
        mpti_add_text(&text, mpti_node_name(g, type));
        mpti_say_path(&text, g, type, 1);
    }
    return mpti_string_end(&text);
}

#ifndef MPT_NO_STDIO
MPT_DEF mpt_status mpt_graph_print(FILE *out, const mpt_graph *g)
{
    char     line[1024];
    uint32_t i, t;
    if (!out || !g)
        return MPT_E_ARG;
    for (i = 0; i < g->node_count; i++)
        MPTI_FOR_TYPES(t, i)
            if ((g->types[t].format == (int32_t)MPT_F32 || mpt_graph_is_low(g, t)) &&
                !(g->nodes[i].flags & MPT_NODE_CAST)) {
                (void)mpt_graph_explain(g, t, line, sizeof line);
                (void)fprintf(out, "%s\n", line);
            }
    return ferror(out) ? MPT_E_DATA : MPT_OK;
}

static void mpti_dot_string(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            (void)fputc('\\', out);
        (void)fputc((unsigned char)*s < 32 ? ' ' : *s, out);
    }
}

MPT_DEF mpt_status mpt_graph_dot(FILE *out, const mpt_graph *g)
{
    uint32_t i, t;
    if (!out || !g)
        return MPT_E_ARG;
    (void)fprintf(out, "digraph amp {\n    node [shape=box, style=filled, fontname=\"Helvetica\"];\n");
    for (i = 0; i < g->node_count; i++) {
        const mpt_graph_node *n = &g->nodes[i];
        const int             cast = (n->flags & MPT_NODE_CAST) != 0;
        const char           *color = cast ? "orange" : "white";
        for (t = n->first_type; t != MPT_GRAPH_NONE && !cast; t = g->types[t].next)
            if (mpt_graph_is_low(g, t))
                color = "palegreen";
            else if (g->types[t].format == (int32_t)MPT_F32 && color[0] == 'w')
                color = "lightblue";
        (void)fprintf(out, "    n%lu [fillcolor=%s, label=\"", (unsigned long)i, color);
        if (!cast)
            mpti_dot_string(out, n->name);
        (void)fprintf(out, cast ? "" : "\\n");
        mpti_dot_string(out, n->op);
        if (cast)
            (void)fprintf(out, " to %s", mpt_format_get((mpt_format)g->types[n->last_type].format)->name);
        (void)fprintf(out, "\"];\n");
    }
    for (i = 0; i < g->input_count; i++)
        if (g->inputs[i].source != MPT_GRAPH_NONE)
            (void)fprintf(out, "    n%lu -> n%lu;\n", (unsigned long)g->types[mpti_source(g, i)].node,
                          (unsigned long)mpti_reader_node(g, i));
    (void)fprintf(out, "}\n");
    return ferror(out) ? MPT_E_DATA : MPT_OK;
}

MPT_DEF mpt_status mpt_graph_summary_print(FILE *out, const mpt_graph_summary *s)
{
#define MPTI_COUNTER(name) (unsigned long long)s->name
    const char *low;
    if (!out || !s)
        return MPT_E_ARG;
    low = s->low == MPT_BF16 ? "bfloat16" : "float16";
    (void)fprintf(out, "Converted %llu/%llu nodes to %s precision using %llu cast(s) to %s "
                       "(excluding Const and Variable casts)\n"
                       "Total processable nodes: %llu\n"
                       "Recognized nodes available for conversion: %llu\n"
                       "Total nodes converted: %llu\n"
                       "Total FP16 Cast ops used (excluding Const and Variable casts): %llu\n"
                       "Allowlisted nodes converted: %llu\n"
                       "Denylisted nodes blocking conversion: %llu\n"
                       "Nodes blocked from conversion by denylisted nodes: %llu\n"
                       "All casts: %llu, moving %llu bytes\n",
                  MPTI_COUNTER(converted), MPTI_COUNTER(nodes), low, MPTI_COUNTER(low_casts), low,
                  MPTI_COUNTER(processable), MPTI_COUNTER(recognized), MPTI_COUNTER(converted),
                  MPTI_COUNTER(low_casts), MPTI_COUNTER(allow_converted), MPTI_COUNTER(deny_blocking),
                  MPTI_COUNTER(blocked_by_deny), MPTI_COUNTER(casts), MPTI_COUNTER(cast_bytes));
    return ferror(out) ? MPT_E_DATA : MPT_OK;
}
#endif /* MPT_NO_STDIO */

#endif /* MPT_NO_GRAPH */
#endif /* MPT_TRAIN_IMPLEMENTATION */
#endif /* MPT_ONLY_CONVERSIONS */

// >>M27 to add an optimizer, a scaler dialect, a report -------------------------------------------
/* An optimizer: in >>M5, its struct of hyperparameters, or that of another one, its row in MPT_OPTIMIZERS,
 *   and the prototypes of its step and defaults; in >>M15, mpti_NAME_ok and _spares of its struct, its
 *   constants of a step and its formula for one element, shared with the GPU (fma for every multiply-add, no
 *   libm but sqrt; with v it takes v_max, too); in >>M18, MPTI_DEFAULTS, and its loop over a tile if ONE pass
 *   does all (with a root, that of AdamW is the model), else its OWN passes. A new struct also needs a row in
 *   MPT_HYPERPARAMETERS and a pointer in mpt_state; let mpti_walk_state (>>M20) pass over it where it is
 *   absent, so that older checkpoints can be read. Steps, storages, the memory report and mpt_cuda.h follow
 *   from the row. Its tests: a recipe and optimizer_... in tests/train.h, its plain formula in naive_step
 *   and book_step of tests/test_mpt_optim.c, its needs there, a line in tests/test_mpt_sizes.c, parity in
 *   tests/test_cuda_optim.cu. Then, as for a dialect: digests, .expected of examples, README's tables.
 * A storage: its row in MPT_STORAGES (>>M2), one element in >>M15, mpti_weight_in and _out in >>M18.
 * A scaler dialect: its row in MPT_SCALER_DIALECTS (>>M3), what is new in its rule from mpti_scaler_move on
 *   (>>M15), its limits in mpti_scaler_config_ok and the states that it can reach in mpti_scaler_possible
 *   (>>M17), its original and traces in tests/test_mpt_scaler.c.
 * A report: counts that merge, in a plain struct; its figures' names and values for mpti_write (>>M22);
 *   thresholds from the format's row (see mpti_range_limits); drawing kept apart from counting. */

// >>M28 licence -----------------------------------------------------------------------------------
/* MIT licence, as mpt_half.h.  Copyright (c) 2026 the mpt authors. */
