/* mpt.h -- mixed-precision training for C: see where FP16 loses your numbers, and keep them.
 *
 * Use it: copy mpt_half.h and mpt.h next to your code. In exactly one C file
 *
 *     #define MPT_IMPLEMENTATION
 *     #include "mpt.h"
 *
 * and everywhere else only the #include; link with -lm. Around a training loop of your own:
 *
 *     mpt_scaler scaler;  mpt_scaler_init(&scaler, NULL);          // dynamic loss scale
 *     mpt_step   step = {0};
 *     mpt_tensor grads[] = {mpt_tensor_grad_f32("w", dw, n)};      // one line per gradient array
 *     for (...) {
 *         float seed = mpt_scaler_scale(&scaler, dloss);           // 1 scale
 *         backward(seed, dw);                                      // 2 backward, your code
 *         mpt_unscale(&scaler, &step, grads, 1);                   // 3 check
 *         if (!step.found_inf) your_optimizer(w, dw);              // 4 step
 *         mpt_scaler_update(&scaler);                              // 5 update
 *     }
 *
 * What it does NOT do: your forward and backward pass; allocate, print or exit; threads (one thread per
 * scaler and per tensor list); any promise of bits under -ffast-math or x87 arithmetic, where steps 3 and 4
 * stay right but may differ in the last bit (the conversions of mpt_half.h do not).
 *
 * Contents (search for the mark):
 *   >>M1 configuration                                 >>M12 formulas, one element each, shared with the GPU
 *   >>M2 tensors                                       >>M13 implementation: tensors
 *   >>M3 range report                                  >>M14 implementation: reports
 *   >>M4 other reports                                 >>M15 implementation: scaler, check, clip
 *   >>M5 loss scaler                                   >>M16 implementation: optimizers, rows
 *   >>M6 check, unscale, clip                          >>M17 implementation: checkpoint
 *   >>M7 optimizers                                    >>M18 implementation: policy
 *   >>M8 rows, lint, memory                            >>M19 implementation: graph
 *   >>M9 checkpoint                                    >>M20 to add an optimizer, a scaler dialect, a report
 *   >>M10 precision policy                             >>M21 licence
 *   >>M11 graph rewrite
 */
#include "mpt_half.h"   /* above the guard: a second include with MPT_IMPLEMENTATION still emits all */

#ifndef MPT_H
#define MPT_H

#include <math.h>

// >>M1 configuration ------------------------------------------------------------------------------
/* MPT_NO_STDIO   define it to leave out mpt_range_print and with it <stdio.h>.
 * MPT_STATIC, MPT_DEF, MPT_SIMD: see mpt_half.h. */
#ifndef MPT_NO_STDIO
#include <stdio.h>
#endif

// >>M2 tensors ------------------------------------------------------------------------------------
/* One parameter array of the network with all that belongs to it. A zeroed struct with the fields
 * you have is enough: each call says which fields it needs. The memory is yours. */
typedef struct mpt_tensor {
    const char *name;           /* for reports; may be NULL */
    size_t      n;              /* number of elements of each array below */
    float      *master;         /* [n] FP32 weights, the ones that persist */
    void       *param;          /* [n] copy in param_format for forward and backward; NULL: none */
    void       *grad;           /* [n] gradient in grad_format */
    float      *m;              /* [n] momentum, first moment */
    float      *v;              /* [n] second moment */
    mpt_format  param_format;   /* MPT_F32, MPT_F16 or MPT_BF16 */
    mpt_format  grad_format;    /* MPT_F32, MPT_F16 or MPT_BF16 */
} mpt_tensor;

/* mpt_tensor_grad_f32 -- a tensor of which mpt sees only an FP32 gradient.  Threads: any. */
MPT_DEF mpt_tensor mpt_tensor_grad_f32(const char *name, float *grad, size_t n);

/* What a call asks of a tensor; mpt_tensors_validate takes these or-ed. */
#define MPT_NEEDS_MASTER 1u
#define MPT_NEEDS_PARAM  2u
#define MPT_NEEDS_GRAD   4u
#define MPT_NEEDS_M      8u
#define MPT_NEEDS_V      16u

/* Which tensor is wrong, and in what. */
typedef struct mpt_fault {
    size_t      tensor;         /* index in the list */
    const char *why;            /* an English sentence that lives forever; NULL when nothing is wrong */
} mpt_fault;

/* mpt_tensors_validate -- test a tensor list as the other calls do before they touch anything; call
 * it when one of them returned MPT_E_ARG or MPT_E_UNSUPPORTED, to learn why.
 *   tensors  in   [count]; NULL allowed if count is 0
 *   needs    in   MPT_NEEDS_* or-ed
 *   fault    out  NULL, or where and what
 * Returns: MPT_OK.  Errors: MPT_E_ARG (NULL), MPT_E_UNSUPPORTED (a format).  Threads: any. */
MPT_DEF mpt_status mpt_tensors_validate(const mpt_tensor *tensors, size_t count, unsigned needs,
                                        mpt_fault *fault);

/* mpt_publish -- write the low-precision copies from the masters, after you stepped those yourself.
 *   tensors  in   [count]; each needs master and param
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; then nothing is written.
 * Exact: nearest-even.  Threads: one caller per list. */
MPT_DEF mpt_status mpt_publish(const mpt_tensor *tensors, size_t count);

// >>M3 range report -------------------------------------------------------------------------------
/* The binades of FP64, and with them those of every other format: floor(log2|x|) from -1074 (its least
 * subnormal) to 1023. */
#define MPT_RANGE_EMIN (-1074)
#define MPT_RANGE_BINS 2098

/* What would become of a set of numbers if each was rounded to `format`. Counts are exact; merging the
 * reports of any parts in any order gives the report of the whole, to the last byte. */
typedef struct mpt_range {
    uint64_t   count, zero;
    uint64_t   flushed;         /* nonzero, rounds to zero */
    uint64_t   subnormal;       /* rounds to a subnormal: some bits are lost */
    uint64_t   normal;
    uint64_t   overflow;        /* finite, rounds to Inf (or NaN where there is no Inf) */
    uint64_t   inf, nan;
    uint64_t   binade[MPT_RANGE_BINS];  /* finite nonzero values with floor(log2|x|) = i + MPT_RANGE_EMIN */
    double     max_abs, min_abs;        /* of the finite nonzero values; 0 if there are none */
    uint64_t   least_kept, least_normal, least_overflow;    /* |x| as FP64 pattern where the classes begin */
    mpt_format format;
    uint32_t   reserved;                /* 0 */
} mpt_range;

/* mpt_range_init -- an empty report against a format.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL, MPT_E_UNSUPPORTED for an unknown format and for e8m0,
 * which holds no zero and no sign.  Threads: any. */
MPT_DEF mpt_status mpt_range_init(mpt_range *r, mpt_format format);

/* mpt_range_add_f32, _f64, _f16, _bf16 -- count n more numbers, one pass.
 *   x  in  [n]
 * Returns: MPT_OK.  Errors: MPT_E_ARG (nothing is counted).  Threads: one caller per report. */
MPT_DEF mpt_status mpt_range_add_f32(mpt_range *r, const float *x, size_t n);
MPT_DEF mpt_status mpt_range_add_f64(mpt_range *r, const double *x, size_t n);
MPT_DEF mpt_status mpt_range_add_f16(mpt_range *r, const mpt_f16 *x, size_t n);
MPT_DEF mpt_status mpt_range_add_bf16(mpt_range *r, const mpt_bf16 *x, size_t n);

/* mpt_range_add -- the same where the format of the numbers is known only at run time.
 *   from  in  of the array: f64, f32, f16, bf16, or one of at most 8 bits: then one code per byte
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_UNSUPPORTED for tf32, e8m0, unknown (nothing is counted). */
MPT_DEF mpt_status mpt_range_add(mpt_range *r, mpt_format from, const void *x, size_t n);

/* mpt_range_add_signed -- the same by sign: each number goes to one of two reports, by its sign bit (-0
 * and negative NaNs count as negative). Merged, they are the report without signs.
 *   negative, positive  in/out  two reports; their formats may differ
 * Returns: MPT_OK.  Errors: as mpt_range_add; MPT_E_ARG if both are the same. */
MPT_DEF mpt_status mpt_range_add_signed(mpt_range *negative, mpt_range *positive, mpt_format from,
                                        const void *x, size_t n);

/* mpt_range_merge -- add the counts of src to dst.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL or reports against different formats. */
MPT_DEF mpt_status mpt_range_merge(mpt_range *dst, const mpt_range *src);

/* mpt_range_nonzero -- how many values are finite and not zero: what shares are best taken of. */
static inline uint64_t mpt_range_nonzero(const mpt_range *r)
{
    return r->flushed + r->subnormal + r->normal + r->overflow;
}

/* mpt_range_percentile -- where in the histogram a percentile of the magnitudes lies: floor(log2) of the
 * nearest-rank percentile of the finite nonzero |x|. Resolution: one binade, a factor of 2; exact in that.
 *   percent   in   0 (the smallest) to 100 (the largest)
 *   exponent  out  the percentile lies in 2^exponent .. 2^(exponent + 1)
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_DATA if there are no finite nonzero values.  Threads: any. */
MPT_DEF mpt_status mpt_range_percentile(const mpt_range *r, double percent, int *exponent);

/* Against every format at once: one pass, one histogram. `cell` counts what lies between two neighbouring
 * class limits of any format, so the report of each one derives from it exactly. Merges as mpt_range. */
#define MPT_RANGES_EDGES (3 * (int)MPT_FORMAT_COUNT)     /* three for each format of the table */
typedef struct mpt_ranges {
    uint64_t count, zero, inf, nan;
    uint64_t binade[MPT_RANGE_BINS];            /* as in mpt_range */
    uint64_t edge[MPT_RANGES_EDGES];            /* |x| as FP64 pattern, ascending */
    uint64_t cell[MPT_RANGES_EDGES + 1];        /* finite nonzero values from edge[i - 1] to below edge[i] */
    double   max_abs, min_abs;                  /* as in mpt_range */
} mpt_ranges;

/* mpt_ranges_init -- an empty report against all formats that mpt_range_init takes.
 * Returns: MPT_OK.  Errors: MPT_E_ARG.  Threads: any. */
MPT_DEF mpt_status mpt_ranges_init(mpt_ranges *a);

/* mpt_ranges_add_f32, mpt_ranges_add -- count n more numbers, as mpt_range_add_f32 and mpt_range_add. */
MPT_DEF mpt_status mpt_ranges_add_f32(mpt_ranges *a, const float *x, size_t n);
MPT_DEF mpt_status mpt_ranges_add(mpt_ranges *a, mpt_format from, const void *x, size_t n);

/* mpt_ranges_merge -- add the counts of src to dst.
 * Returns: MPT_OK.  Errors: MPT_E_ARG. */
MPT_DEF mpt_status mpt_ranges_merge(mpt_ranges *dst, const mpt_ranges *src);

/* mpt_ranges_get -- the report against one format, to the last byte what mpt_range_add had made.
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; then *r is kept.  Threads: any. */
MPT_DEF mpt_status mpt_ranges_get(const mpt_ranges *a, mpt_format format, mpt_range *r);

/* A power of two to multiply the numbers with, and what it does to them. */
typedef struct mpt_range_choice {
    float    scale;             /* 2^log2_scale */
    int      log2_scale;
    int      headroom;          /* further doublings before the largest magnitude overflows; < 0: it does */
    uint64_t flushed, subnormal, overflow;  /* with that scale, counted by whole binades */
} mpt_range_choice;

/* Losses that a choice of scale may accept, as shares of the finite nonzero values, 0 to 1 each. */
typedef struct mpt_range_tolerance {
    double flushed;             /* may become zero */
    double subnormal;           /* may become zero or subnormal: lose bits */
    double overflow;            /* may overflow */
} mpt_range_tolerance;

/* mpt_range_choose_scale -- the power of two that loses least: nothing overflows, and `headroom`
 * further doublings stay possible; then fewest flushed to zero, then fewest subnormal, then nearest 1.
 * Without a tolerance no loss is accepted that can be avoided, so a few tiny outliers can ask for a large
 * scale. It is a normal float, 2^-126 to 2^127.
 *   headroom   in  bits to keep free above the largest magnitude, 0..30; 3 if you are unsure
 *   tolerated  in  NULL: nothing. What is tolerated counts as no loss; overflow above 0: the largest
 *                  values are left aside, and headroom counts above the largest of the others' binade
 * Returns: MPT_OK (scale 1 if there are no finite nonzero numbers).  Errors: MPT_E_ARG.  Threads: any. */
MPT_DEF mpt_status mpt_range_choose_scale(const mpt_range *r, int headroom,
                                          const mpt_range_tolerance *tolerated, mpt_range_choice *choice);

/* mpt_range_at_scale -- what one scale would do: a point of the curve "scale -> share flushed, subnormal,
 * overflowing", all of which comes from one histogram. A binade counts as flushed if it lies below half of
 * the least subnormal, as subnormal if it lies below the least normal, as overflowing if it lies above the
 * largest finite number; so each count is off by at most the values in the binade of the limit.
 *   log2_scale  in  -126..127
 * Returns: MPT_OK.  Errors: MPT_E_ARG.  Threads: any. */
MPT_DEF mpt_status mpt_range_at_scale(const mpt_range *r, int log2_scale, mpt_range_choice *choice);

#ifndef MPT_NO_STDIO
/* mpt_range_print -- draw the exponent histogram of the nonzero values against the format's window, a
 * binade a row.
 *   out    in  an open stream
 *   title  in  the first words of the drawing
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_DATA if the stream failed. */
MPT_DEF mpt_status mpt_range_print(FILE *out, const mpt_range *r, const char *title);

/* mpt_ranges_print -- a table, a format a line: what is flushed, subnormal, normal, overflows, and the scale
 * that mpt_range_choose_scale would take with a headroom of 3.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_DATA if the stream failed. */
MPT_DEF mpt_status mpt_ranges_print(FILE *out, const mpt_ranges *a, const char *title);
#endif

// >>M4 other reports -------------------------------------------------------------------------------

// >>M5 loss scaler ---------------------------------------------------------------------------------
/* One row per rule for the scale: enum, name, first scale, growth, backoff, interval.
 *   static   the scale never moves; a bad step is still skipped
 *   pytorch  torch.amp.GradScaler: bad step: scale * backoff, count to 0; good step: count + 1, and at
 *            `interval` scale * growth unless that is not finite, count to 0. No floor, no cap. */
#define MPT_SCALER_DIALECTS(X)                                  \
    X(MPT_SCALER_STATIC,  "static",   1024.0f, 1.0, 1.0,    1)  \
    X(MPT_SCALER_PYTORCH, "pytorch", 65536.0f, 2.0, 0.5, 2000)

typedef enum mpt_scaler_dialect {
#define MPTI_X(id, name, init, growth, backoff, interval) id,
    MPT_SCALER_DIALECTS(MPTI_X)
#undef MPTI_X
    MPT_SCALER_DIALECT_COUNT
} mpt_scaler_dialect;

typedef struct mpt_scaler_config {
    double   growth;            /* above 1; static: unused */
    double   backoff;           /* above 0, below 1; static: unused */
    float    init_scale;        /* finite, above 0 */
    int32_t  interval;          /* good steps before the scale grows, 1 and more; static: unused */
    int32_t  dialect;           /* mpt_scaler_dialect */
    uint32_t reserved;          /* 0 */
} mpt_scaler_config;

/* All state of a loss scale: copy it, compare it with memcmp, write it to a file. */
typedef struct mpt_scaler {
    mpt_scaler_config config;
    uint64_t updates;           /* calls of mpt_scaler_update so far */
    uint64_t skipped;           /* those of them with found_inf */
    float    scale;
    int32_t  good_steps;        /* since the scale last moved */
    uint32_t found_inf;         /* since the last update */
    uint32_t checks;            /* gradient checks since the last update */
    uint32_t in_use;            /* mpt_scaler_scale was called at least once */
    uint32_t reserved;          /* 0 */
} mpt_scaler;

/* mpt_scaler_preset -- the published defaults of a dialect, to change and pass to mpt_scaler_init.
 * Returns: the configuration; for an unknown dialect one that mpt_scaler_init refuses.  Threads: any. */
MPT_DEF mpt_scaler_config mpt_scaler_preset(mpt_scaler_dialect dialect);

/* mpt_scaler_init -- a scaler before its first step.
 *   config  in  NULL for mpt_scaler_preset(MPT_SCALER_PYTORCH)
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL or a value out of range (*s is kept). */
MPT_DEF mpt_status mpt_scaler_init(mpt_scaler *s, const mpt_scaler_config *config);

/* mpt_scaler_scale -- multiply the loss, or the gradient that starts the backward pass, by the scale.
 *   s  in/out  an initialised scaler; the first call puts it in use
 *   x  in      loss, or one element of its gradient
 * Returns: x * scale (FP32); a NaN for NULL or a scaler that was never initialised.
 * Threads: one caller per scaler.  Source: Micikevicius et al. 2018, section 3.2. */
static inline float mpt_scaler_scale(mpt_scaler *s, float x)
{
    if (!s || !mpti_f32_bits(s->config.init_scale))
        return mpti_f32_make(0x7fc00000u);
    s->in_use = 1u;
    return x * s->scale;
}

/* mpt_scaler_record -- tell the scaler what a check of your own found (other ranks, a GPU, an
 * optimizer that looks for itself), in place of mpt_check.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_ORDER before the first mpt_scaler_scale. */
MPT_DEF mpt_status mpt_scaler_record(mpt_scaler *s, int found_inf);

/* mpt_scaler_update -- grow or back off the loss scale after one step, once for all optimizers.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_ORDER if nothing was checked since the last update.
 * Exact: factors in double, the scale rounded to FP32.  Parity: bit-exact host/device.
 * Threads: one caller per scaler.  Source: Micikevicius et al. 2018, section 3.2; PyTorch
 * GradScaler.update and _amp_update_scale_. */
MPT_DEF mpt_status mpt_scaler_update(mpt_scaler *s);

// >>M6 check, unscale, clip ------------------------------------------------------------------------
typedef enum mpt_stage {
    MPT_STAGE_READY, MPT_STAGE_CHECKED, MPT_STAGE_UNSCALED, MPT_STAGE_STEPPED
} mpt_stage;

/* What is known of one optimizer's step: its own record, so that of two optimizers under one scaler a
 * bad one skips only itself. Start from zero (mpt_step step = {0}); a later check reuses it. */
typedef struct mpt_step {
    uint64_t update;            /* scaler->updates + 1 at the check: which step this is about */
    double   sumsq;             /* sum of the squares of the finite unscaled gradients */
    double   norm;              /* global L2 norm of the unscaled gradients; +Inf if found_inf */
    float    grad_factor;       /* turns what grad holds into the unscaled gradient */
    float    clip_factor;       /* 1, or what mpt_clip made it */
    uint32_t found_inf;         /* nonzero: skip this step */
    uint32_t stage;             /* mpt_stage */
} mpt_step;

/* mpt_check -- read all gradients once: found_inf and the global norm of the gradient divided by the
 * scale. Gradients are not changed; mpt_*_step unscales them on the fly. A gradient counts as bad if
 * it, or its unscaled value, is Inf or NaN (a scale below 1 can overflow a finite one).
 *   s        in/out  in use; found_inf is merged into it
 *   step     out     the record that mpt_clip and mpt_*_step need
 *   tensors  in      [count]; each needs grad
 * Returns: MPT_OK, also when found_inf.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; MPT_E_ORDER before the
 *   first mpt_scaler_scale and for a second check of the same step before the update. An error changes
 *   nothing but step->found_inf, which it sets: who ignores the status skips the step.
 * Exact: factor FP32(1 / FP64(scale)); squares and sum in double on a fixed tree.  Parity: bit-exact
 *   host/device, whatever the thread count or grid.  Threads: one caller per scaler. */
MPT_DEF mpt_status mpt_check(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count);

/* mpt_unscale -- the same in one pass that also writes the unscaled gradients back (each rounded to
 * its format; one that overflows there counts as bad too), for optimizers of your own. If found_inf
 * is set, do not use them. Otherwise as mpt_check. */
MPT_DEF mpt_status mpt_unscale(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count);

/* mpt_clip -- from here on the step scales all gradients by min(1, max_norm / norm).
 *   max_norm  in  above 0; finite
 * A bad step keeps factor 1: it is skipped anyway, and no Inf/Inf can make a NaN.
 * Returns: MPT_OK.  Errors: MPT_E_ARG; MPT_E_ORDER unless after a check and before the step.
 * Source: Pascanu et al. 2013, section 3.2. */
MPT_DEF mpt_status mpt_clip(mpt_step *step, float max_norm);

/* mpt_clip_apply -- multiply gradients that mpt_unscale wrote back by the clip factor, for optimizers
 * of your own; the factor then is 1 again.
 * Returns: MPT_OK.  Errors: as mpt_unscale; MPT_E_ORDER unless mpt_unscale came before. */
MPT_DEF mpt_status mpt_clip_apply(mpt_step *step, const mpt_tensor *tensors, size_t count);

// >>M7 optimizers ----------------------------------------------------------------------------------
/* SGD.  g += weight_decay * w;  m = momentum * m + g;  w -= lr * (nesterov ? g + momentum * m : m). */
typedef struct mpt_sgd {
    float    lr;                /* 0 and more */
    float    momentum;          /* 0 (then m is not needed) to below 1 */
    float    weight_decay;      /* 0 and more */
    uint32_t nesterov;          /* nonzero needs momentum above 0 */
    uint64_t t;                 /* steps taken, skipped ones not counted */
} mpt_sgd;

/* AdamW.  w -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * w). */
typedef struct mpt_adamw {
    float    lr;                /* 0 and more */
    float    beta1, beta2;      /* 0 to below 1 */
    float    eps;               /* above 0 */
    float    weight_decay;      /* 0 and more */
    uint32_t reserved;          /* 0 */
    uint64_t t;                 /* steps taken, skipped ones not counted */
} mpt_adamw;

/* mpt_adamw_defaults -- lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay 0.01, no steps taken. */
MPT_DEF mpt_adamw mpt_adamw_defaults(void);

/* mpt_sgd_step, mpt_adamw_step -- one fused pass: unscale, clip, update the FP32 masters, write the
 * low-precision copies. If step->found_inf, nothing changes: not the weights, not the moments, not t;
 * a schedule that reads t does not advance either.
 *   o        in/out  hyperparameters and t
 *   step     in/out  from mpt_check or mpt_unscale
 *   tensors  in/out  [count], the list that was checked; each needs master and grad, m (SGD only with
 *                    momentum), v (AdamW); writes param where it is not NULL
 * Returns: MPT_OK.  Errors: MPT_E_ARG, MPT_E_UNSUPPORTED; MPT_E_ORDER without a check, or for a second
 *   step on one check. On an error nothing is changed. (That the gradients are still those that were
 *   checked is up to you: the record cannot see it.)
 * Exact: every multiply-add is one fma; constants in double.  Parity: bit-exact host/device.
 * Threads: one caller per list.  Source: Sutskever et al. 2013 and PyTorch SGD; Loshchilov & Hutter
 * 2019, algorithm 2. */
MPT_DEF mpt_status mpt_sgd_step(mpt_sgd *o, mpt_step *step, const mpt_tensor *tensors, size_t count);
MPT_DEF mpt_status mpt_adamw_step(mpt_adamw *o, mpt_step *step, const mpt_tensor *tensors, size_t count);

// >>M8 rows, lint, memory --------------------------------------------------------------------------

// >>M9 checkpoint ----------------------------------------------------------------------------------

// >>M10 precision policy ---------------------------------------------------------------------------

// >>M11 graph rewrite ------------------------------------------------------------------------------

// >>M12 formulas, one element each, shared with the GPU --------------------------------------------
/* Arithmetic that no compiler may contract: a plain a * b + c becomes an fma or not at each one's
 * taste. PTX and bits in place of operators and intrinsics, since under --use_fast_math those flush
 * subnormals, even in a negation, a comparison or a conversion. */
#ifdef __CUDA_ARCH__
MPT_HD float mpti_fma(float a, float b, float c)
{
    float d;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}
MPT_HD float mpti_mul(float a, float b)
{
    float d;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}
MPT_HD float mpti_div(float a, float b)
{
    float d;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}
MPT_HD float mpti_sqrt(float a)
{
    float d;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(d) : "f"(a));
    return d;
}
MPT_HD double mpti_mul64(double a, double b)
{
    double d;
    asm("mul.rn.f64 %0, %1, %2;" : "=d"(d) : "d"(a), "d"(b));
    return d;
}
MPT_HD float mpti_neg(float a)
{
    float d;
    asm("neg.f32 %0, %1;" : "=f"(d) : "f"(a));
    return d;
}
MPT_HD double mpti_to_f64(float a)
{
    double d;
    asm("cvt.f64.f32 %0, %1;" : "=d"(d) : "f"(a));
    return d;
}
MPT_HD float mpti_to_f32(double a)
{
    float d;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(d) : "d"(a));
    return d;
}
#else
MPT_HD float mpti_fma(float a, float b, float c) { return fmaf(a, b, c); }
MPT_HD float mpti_mul(float a, float b) { return a * b; }   /* its result only feeds fmaf, / or a store */
MPT_HD float mpti_div(float a, float b) { return a / b; }
MPT_HD float mpti_sqrt(float a) { return sqrtf(a); }
/* Its result does feed a subtraction; volatile keeps the compiler from contracting the two. It runs
 * a few times per step, not per element. */
MPT_HD double mpti_mul64(double a, double b)
{
    const volatile double d = a * b;
    return d;
}
MPT_HD double mpti_to_f64(float a) { return (double)a; }
MPT_HD float mpti_to_f32(double a) { return (float)a; }
MPT_HD float mpti_neg(float a) { return -a; }
#endif
MPT_HD int mpti_is_nonzero(float a) { return (mpti_f32_bits(a) & 0x7fffffffu) != 0u; }

/* The tree of every sum of squares. Element i of a chunk adds to lane i mod MPTI_LANES, in order; the
 * lanes of a chunk are added in adjacent pairs; chunk c of the whole list adds to slot
 * c mod MPTI_SLOTS, in order; the slots are added in adjacent pairs. So neither threads, nor vector
 * width, nor grid can change the result. On the GPU a block is 256 threads of 8 lanes each. */
#define MPTI_LANES 2048
#define MPTI_CHUNK 16384
#define MPTI_SLOTS 256

/* Unscale one gradient; *bad becomes nonzero if it is, or becomes, Inf or NaN. */
MPT_HD float mpti_unscale_1(float g, float factor, unsigned *bad)
{
    const float u = mpti_mul(g, factor);
    *bad |= (unsigned)!mpti_f32_is_finite(g) | (unsigned)!mpti_f32_is_finite(u);
    return u;
}

/* Add a square. The product of two floats is exact in double, so it does not matter whether the
 * compiler contracts this one. Non-finite values count as 0: they are told by found_inf, and a NaN
 * in the sum would have other bits on other machines. */
MPT_HD double mpti_sumsq_1(double sum, float x)
{
    /* by a mask, not a branch: loops over it vectorize */
    const float finite = mpti_f32_make(mpti_f32_bits(x) & (0u - (uint32_t)mpti_f32_is_finite(x)));
    return sum + mpti_to_f64(finite) * mpti_to_f64(finite);
}

/* FP32(1 / FP64(scale)), as PyTorch has it. */
MPT_HD float mpti_inverse_scale(float scale) { return mpti_to_f32(1.0 / mpti_to_f64(scale)); }

/* Norm and clip factor from the finished sum. */
MPT_HD double mpti_norm_from_sumsq(double sumsq, unsigned found_inf)
{
    return found_inf ? mpti_f64_make((uint64_t)0x7ff << 52) : sqrt(sumsq);
}

MPT_HD float mpti_clip_factor(double norm, float max_norm, unsigned found_inf)
{
    const double most = mpti_to_f64(max_norm);
    return found_inf || !(norm > most) ? 1.0f : mpti_to_f32(most / norm);
}

/* One update of the scale, by what the checks since the last one found. */
MPT_HD void mpti_scaler_advance(mpt_scaler *s)
{
    if (s->config.dialect == (int32_t)MPT_SCALER_PYTORCH) {
        if (s->found_inf) {
            s->scale = mpti_to_f32(mpti_mul64(mpti_to_f64(s->scale), s->config.backoff));
            s->good_steps = 0;
        } else if (s->good_steps + 1 == s->config.interval) {
            const float grown = mpti_to_f32(mpti_mul64(mpti_to_f64(s->scale), s->config.growth));
            if (mpti_f32_is_finite(grown))
                s->scale = grown;
            s->good_steps = 0;
        } else {
            s->good_steps++;
        }
    }
    s->updates++;
    s->skipped += s->found_inf ? 1u : 0u;
    s->found_inf = 0u;
    s->checks = 0u;
}

/* A record that already holds a check of the step that the scaler is in. */
MPT_HD int mpti_is_second_check(const mpt_scaler *s, const mpt_step *step)
{
    return s->checks && step->update == s->updates + 1u;
}

/* A step may be taken, or clipped, after a check and once. */
MPT_HD int mpti_step_is_open(const mpt_step *step)
{
    return step->stage == (uint32_t)MPT_STAGE_CHECKED || step->stage == (uint32_t)MPT_STAGE_UNSCALED;
}

/* The legal hyperparameters. NaN is told by its bits: -ffast-math may turn a comparison around. */
MPT_HD int mpti_is_rate(float x) { return x >= 0.0f && mpti_f32_is_finite(x); }
MPT_HD int mpti_is_decay(float x) { return mpti_is_rate(x) && x < 1.0f; }

MPT_HD int mpti_sgd_ok(const mpt_sgd *o)
{
    return o && mpti_is_rate(o->lr) && mpti_is_decay(o->momentum) && mpti_is_rate(o->weight_decay) &&
           (!o->nesterov || mpti_is_nonzero(o->momentum));
}

MPT_HD int mpti_adamw_ok(const mpt_adamw *o)
{
    return o && mpti_is_rate(o->lr) && mpti_is_decay(o->beta1) && mpti_is_decay(o->beta2) &&
           mpti_is_rate(o->eps) && o->eps > 0.0f && mpti_is_rate(o->weight_decay);
}

/* What is constant over one step of an optimizer; factor is unscale times clip. */
typedef struct mpti_sgd_k { float minus_lr, momentum, weight_decay, factor; uint32_t nesterov; } mpti_sgd_k;
typedef struct mpti_adamw_k {
    float beta1, one_minus_beta1, beta2, one_minus_beta2, eps, decay, minus_step_size, v_factor, factor;
} mpti_adamw_k;

MPT_HD mpti_sgd_k mpti_sgd_consts(const mpt_sgd *o, const mpt_step *step)
{
    mpti_sgd_k k;
    k.minus_lr = mpti_neg(o->lr);
    k.momentum = o->momentum;
    k.weight_decay = o->weight_decay;
    k.factor = mpti_mul(step->grad_factor, step->clip_factor);
    k.nesterov = o->nesterov;
    return k;
}

/* base^t by repeated squaring: libm's pow differs from one libm to the next. */
MPT_HD double mpti_powi(double base, uint64_t t)
{
    double r = 1.0;
    for (; t; t >>= 1) {
        if (t & 1u)
            r = mpti_mul64(r, base);
        base = mpti_mul64(base, base);
    }
    return r;
}

/* For step t = o->t + 1. */
MPT_HD mpti_adamw_k mpti_adamw_consts(const mpt_adamw *o, const mpt_step *step)
{
    const double bias1 = 1.0 - mpti_powi(mpti_to_f64(o->beta1), o->t + 1u);
    const double bias2 = 1.0 - mpti_powi(mpti_to_f64(o->beta2), o->t + 1u);
    mpti_adamw_k k;
    k.beta1 = o->beta1;
    k.one_minus_beta1 = mpti_fma(o->beta1, -1.0f, 1.0f);
    k.beta2 = o->beta2;
    k.one_minus_beta2 = mpti_fma(o->beta2, -1.0f, 1.0f);
    k.eps = o->eps;
    k.decay = mpti_fma(mpti_neg(o->lr), o->weight_decay, 1.0f);
    k.minus_step_size = mpti_neg(mpti_to_f32(mpti_to_f64(o->lr) / bias1));
    k.v_factor = mpti_to_f32(1.0 / sqrt(bias2));
    k.factor = mpti_mul(step->grad_factor, step->clip_factor);
    return k;
}

/* One element: g as it lies in grad, w and m in and out. Without momentum m is not touched. */
MPT_HD void mpti_sgd_1(float g, float *w, float *m, const mpti_sgd_k *k)
{
    g = mpti_fma(k->weight_decay, *w, mpti_mul(g, k->factor));
    if (mpti_is_nonzero(k->momentum)) {
        *m = mpti_fma(k->momentum, *m, g);
        g = k->nesterov ? mpti_fma(k->momentum, *m, g) : *m;
    }
    *w = mpti_fma(k->minus_lr, g, *w);
}

MPT_HD void mpti_adamw_moments_1(float g, float *m, float *v, const mpti_adamw_k *k)
{
    g = mpti_mul(g, k->factor);
    *m = mpti_fma(k->beta1, *m, mpti_mul(k->one_minus_beta1, g));
    *v = mpti_fma(k->beta2, *v, mpti_mul(k->one_minus_beta2, mpti_mul(g, g)));
}

MPT_HD void mpti_adamw_weight_1(float *w, float m, float root_of_v, const mpti_adamw_k *k)
{
    const float denominator = mpti_fma(root_of_v, k->v_factor, k->eps);
    *w = mpti_fma(k->minus_step_size, mpti_div(m, denominator), mpti_mul(*w, k->decay));
}

MPT_HD void mpti_adamw_1(float g, float *w, float *m, float *v, const mpti_adamw_k *k)
{
    mpti_adamw_moments_1(g, m, v, k);
    mpti_adamw_weight_1(w, *m, mpti_sqrt(*v), k);
}

#endif /* MPT_H */

// >>M13 implementation: tensors --------------------------------------------------------------------
#if (defined(MPT_IMPLEMENTATION) || defined(MPT_STATIC)) && !defined(MPTI_IMPLEMENTED)
#define MPTI_IMPLEMENTED

static size_t mpti_min(size_t a, size_t b) { return a < b ? a : b; }

static int mpti_is_train_format(mpt_format f) { return f == MPT_F32 || f == MPT_F16 || f == MPT_BF16; }

MPT_DEF mpt_tensor mpt_tensor_grad_f32(const char *name, float *grad, size_t n)
{
    mpt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = name;
    t.n = n;
    t.grad = grad;
    t.grad_format = MPT_F32;
    return t;
}

static const char *mpti_tensor_missing(const mpt_tensor *t, unsigned needs)
{
    if (!t->n)
        return NULL;
    if ((needs & MPT_NEEDS_MASTER) && !t->master)
        return "master is NULL: this call steps the FP32 weights";
    if ((needs & MPT_NEEDS_PARAM) && !t->param)
        return "param is NULL: this call writes the low-precision copy";
    if ((needs & MPT_NEEDS_GRAD) && !t->grad)
        return "grad is NULL";
    if ((needs & MPT_NEEDS_M) && !t->m)
        return "m is NULL: this optimizer keeps a first moment (momentum)";
    if ((needs & MPT_NEEDS_V) && !t->v)
        return "v is NULL: this optimizer keeps a second moment";
    return NULL;
}

static const char *mpti_tensor_unsupported(const mpt_tensor *t, unsigned needs)
{
    if ((needs & MPT_NEEDS_GRAD) && t->grad && !mpti_is_train_format(t->grad_format))
        return "grad_format must be MPT_F32, MPT_F16 or MPT_BF16";
    if ((needs & (MPT_NEEDS_PARAM | MPT_NEEDS_MASTER)) && t->param && !mpti_is_train_format(t->param_format))
        return "param_format must be MPT_F32, MPT_F16 or MPT_BF16";
    return NULL;
}

MPT_DEF mpt_status mpt_tensors_validate(const mpt_tensor *tensors, size_t count, unsigned needs,
                                        mpt_fault *fault)
{
    mpt_fault  found = {0, NULL};
    mpt_status status = MPT_OK;
    if (count && !tensors) {
        found.why = "the tensor list is NULL";
        status = MPT_E_ARG;
        count = 0;
    }
    for (; found.tensor < count && status == MPT_OK; found.tensor++) {
        const mpt_tensor *t = &tensors[found.tensor];
        if ((found.why = mpti_tensor_missing(t, needs)) != NULL)
            status = MPT_E_ARG;
        else if ((found.why = mpti_tensor_unsupported(t, needs)) != NULL)
            status = MPT_E_UNSUPPORTED;
        if (status != MPT_OK)
            break;
    }
    if (status == MPT_OK)
        found.tensor = 0;
    if (fault)
        *fault = found;
    return status;
}

/* Elements first .. first + n - 1 of an array in one of the three training formats, as floats. */
static void mpti_row_load(float *dst, const void *src, mpt_format format, size_t first, size_t n)
{
    const size_t bytes = format == MPT_F32 ? sizeof(float) : sizeof(uint16_t);
    (void)mpt_decode_n(dst, format, (const unsigned char *)src + first * bytes, n);
}

static void mpti_row_store(void *dst, mpt_format format, size_t first, const float *src, size_t n)
{
    const size_t bytes = format == MPT_F32 ? sizeof(float) : sizeof(uint16_t);
    (void)mpt_encode_n((unsigned char *)dst + first * bytes, format, src, n);
}

MPT_DEF mpt_status mpt_publish(const mpt_tensor *tensors, size_t count)
{
    const mpt_status status = mpt_tensors_validate(tensors, count, MPT_NEEDS_MASTER | MPT_NEEDS_PARAM, NULL);
    size_t           i;
    for (i = 0; i < count && status == MPT_OK; i++)
        if (tensors[i].n)
            mpti_row_store(tensors[i].param, tensors[i].param_format, 0, tensors[i].master, tensors[i].n);
    return status;
}

// >>M14 implementation: reports --------------------------------------------------------------------
/* ---- range: counting ---- */

#define MPTI_F64_INF ((uint64_t)0x7ff << 52)
#define MPTI_F64_SIGN (MPTI_ONE << 63)

/* The least |x| pattern of a double whose rounding reaches at least `code`: rounding is monotonic, so a
 * binary search over the codec itself finds it, and no limit is written down twice. */
static uint64_t mpti_range_limit(const mpt_format_info *f, uint64_t code)
{
    uint64_t low = 0u, high = MPTI_F64_INF;     /* below: not reached; at Inf: reached or irrelevant */
    while (high - low > 1u) {
        const uint64_t middle = low + (high - low) / 2u;
        unsigned       flags = 0u;
        const uint64_t got = mpt_encode_as(f, mpti_f64_make(middle), NULL, &flags);
        if (got >= code || (flags & MPT_FLAG_OVERFLOW))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Where `flushed` ends, where `normal` and where `overflow` begin. */
static void mpti_range_limits(const mpt_format_info *f, uint64_t *edge)
{
    edge[0] = mpti_range_limit(f, 1u);
    edge[1] = mpti_range_limit(f, MPTI_ONE << f->mantissa_bits);
    edge[2] = mpti_range_limit(f, f->max_code + 1u);
}

/* floor(log2) of the positive finite double with this pattern. */
static int mpti_range_log2(uint64_t a)
{
    const int field = (int)(a >> 52);
    return field ? field - 1023 : -1011 - mpti_clz64(a);
}

/* What a pass over numbers counts into; both reports are fed through it. Patterns are those of |x|. */
typedef struct mpti_tally {
    const uint64_t *edge;       /* ascending; edges of them */
    uint64_t       *cell;       /* [edges + 1] */
    uint64_t       *binade;
    uint64_t        zero, inf, nan;
    uint64_t        greatest, least;    /* 0 and all ones if there were none */
    int             edges;
} mpti_tally;

static int mpti_tally_cell(const mpti_tally *t, uint64_t a)
{
    int low = 0, high = t->edges;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (a >= t->edge[middle])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void mpti_tally_add(mpti_tally *t, uint64_t a, uint64_t times)
{
    if (!a) {
        t->zero += times;
    } else if (a >= MPTI_F64_INF) {
        *(a == MPTI_F64_INF ? &t->inf : &t->nan) += times;
    } else {
        t->binade[mpti_range_log2(a) - MPT_RANGE_EMIN] += times;
        t->cell[mpti_tally_cell(t, a)] += times;
        t->greatest = a > t->greatest ? a : t->greatest;
        t->least = a < t->least ? a : t->least;
    }
}

static void mpti_tally_f32(mpti_tally *t, const float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        mpti_tally_add(t, mpti_widen_f64(mpti_f32_bits(x[i]) & 0x7fffffffu, 8, 23), 1u);
}

static void mpti_tally_f64(mpti_tally *t, const double *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        mpti_tally_add(t, mpti_f64_bits(x[i]) & ~MPTI_F64_SIGN, 1u);
}

/* Codes of at most 8 bits: how often each occurs, then each once. */
static void mpti_tally_bytes(mpti_tally *t, const mpt_format_info *f, const uint8_t *x, size_t n)
{
    uint64_t times[256];
    size_t   i;
    memset(times, 0, sizeof times);
    for (i = 0; i < n; i++)
        times[x[i]]++;
    for (i = 0; i < 256; i++)
        if (times[i])
            mpti_tally_add(t, mpti_f64_bits(mpt_decode_as(f, i)) & ~MPTI_F64_SIGN, times[i]);
}

/* Is this a format whose arrays we can read? */
static int mpti_source_ok(mpt_format from)
{
    const mpt_format_info *f = mpt_format_get(from);
    return f && from != MPT_TF32 && f->specials != MPT_SPECIALS_SCALE;
}

/* Elements first .. first + n - 1 of an array as doubles; n is at most MPTI_BLOCK. */
static void mpti_source_load(double *dst, const void *src, mpt_format from, size_t first, size_t n)
{
    size_t i;
    switch ((int)from) {
    case MPT_F64:  memcpy(dst, (const double *)src + first, n * sizeof *dst); break;
    case MPT_F32:  (void)mpt_f64_from_f32_n(dst, (const float *)src + first, n); break;
    case MPT_F16:  (void)mpt_f64_from_f16_n(dst, (const mpt_f16 *)src + first, n); break;
    case MPT_BF16: (void)mpt_f64_from_bf16_n(dst, (const mpt_bf16 *)src + first, n); break;
    default:
        for (i = 0; i < n; i++)
            dst[i] = mpt_decode(from, ((const uint8_t *)src)[first + i]);
    }
}

static void mpti_tally_any(mpti_tally *t, mpt_format from, const void *x, size_t n)
{
    float  row[MPTI_BLOCK];
    size_t i;
    if (from == MPT_F32) {
        mpti_tally_f32(t, (const float *)x, n);
    } else if (from == MPT_F64) {
        mpti_tally_f64(t, (const double *)x, n);
    } else if (mpt_format_get(from)->bits <= 8) {
        mpti_tally_bytes(t, mpt_format_get(from), (const uint8_t *)x, n);
    } else {
        for (i = 0; i < n; i += MPTI_BLOCK) {
            const size_t take = mpti_min(n - i, MPTI_BLOCK);
            mpti_row_load(row, x, from, i, take);
            mpti_tally_f32(t, row, take);
        }
    }
}

/* The extremes as patterns and back. A comparison of numbers would see subnormals as 0 under DAZ. */
static void mpti_tally_open(mpti_tally *t, double max_abs, double min_abs)
{
    t->zero = t->inf = t->nan = 0u;
    t->greatest = mpti_f64_bits(max_abs);
    t->least = mpti_f64_bits(min_abs) - 1u;     /* 0, which means none, wraps to all ones */
    t->least += t->least != ~(uint64_t)0;
}

static void mpti_tally_close(const mpti_tally *t, double *max_abs, double *min_abs)
{
    *max_abs = mpti_f64_make(t->greatest);
    *min_abs = mpti_f64_make(t->least == ~(uint64_t)0 ? 0u : t->least);
}

static void mpti_tally_merge_extremes(double *max_abs, double *min_abs, double other_max, double other_min)
{
    if (mpti_f64_bits(other_max) > mpti_f64_bits(*max_abs))
        *max_abs = other_max;
    if (mpti_f64_bits(other_min) - 1u < mpti_f64_bits(*min_abs) - 1u)   /* 0 is none: wraps to last */
        *min_abs = other_min;
}

MPT_DEF mpt_status mpt_range_init(mpt_range *r, mpt_format format)
{
    const mpt_format_info *f = mpt_format_get(format);
    uint64_t               edge[3];
    if (!r)
        return MPT_E_ARG;
    if (!f || f->specials == MPT_SPECIALS_SCALE)
        return MPT_E_UNSUPPORTED;
    memset(r, 0, sizeof *r);
    mpti_range_limits(f, edge);
    r->format = format;
    r->least_kept = edge[0];
    r->least_normal = edge[1];
    r->least_overflow = edge[2];
    return MPT_OK;
}

MPT_DEF mpt_status mpt_range_add(mpt_range *r, mpt_format from, const void *x, size_t n)
{
    uint64_t   edge[3], cell[4] = {0u, 0u, 0u, 0u};
    mpti_tally t;
    if (!r || (n && !x) || !r->least_kept)
        return MPT_E_ARG;
    if (!mpti_source_ok(from))
        return MPT_E_UNSUPPORTED;
    edge[0] = r->least_kept;
    edge[1] = r->least_normal;
    edge[2] = r->least_overflow;
    mpti_tally_open(&t, r->max_abs, r->min_abs);
    t.edge = edge;
    t.cell = cell;
    t.binade = r->binade;
    t.edges = 3;
    mpti_tally_any(&t, from, x, n);
    mpti_tally_close(&t, &r->max_abs, &r->min_abs);
    r->count += n;
    r->zero += t.zero;
    r->inf += t.inf;
    r->nan += t.nan;
    r->flushed += cell[0];
    r->subnormal += cell[1];
    r->normal += cell[2];
    r->overflow += cell[3];
    return MPT_OK;
}

MPT_DEF mpt_status mpt_range_add_f32(mpt_range *r, const float *x, size_t n)
{
    return mpt_range_add(r, MPT_F32, x, n);
}

MPT_DEF mpt_status mpt_range_add_f64(mpt_range *r, const double *x, size_t n)
{
    return mpt_range_add(r, MPT_F64, x, n);
}

MPT_DEF mpt_status mpt_range_add_f16(mpt_range *r, const mpt_f16 *x, size_t n)
{
    return mpt_range_add(r, MPT_F16, x, n);
}

MPT_DEF mpt_status mpt_range_add_bf16(mpt_range *r, const mpt_bf16 *x, size_t n)
{
    return mpt_range_add(r, MPT_BF16, x, n);
}

MPT_DEF mpt_status mpt_range_add_signed(mpt_range *negative, mpt_range *positive, mpt_format from,
                                        const void *x, size_t n)
{
    double row[MPTI_BLOCK], below[MPTI_BLOCK], above[MPTI_BLOCK];
    size_t i, j;
    if (!negative || !positive || negative == positive || (n && !x) || !negative->least_kept ||
        !positive->least_kept)
        return MPT_E_ARG;
    if (!mpti_source_ok(from))
        return MPT_E_UNSUPPORTED;
    for (i = 0; i < n; i += MPTI_BLOCK) {
        const size_t take = mpti_min(n - i, MPTI_BLOCK);
        size_t       minus = 0, plus = 0;
        mpti_source_load(row, x, from, i, take);
        for (j = 0; j < take; j++)
            if (mpti_f64_bits(row[j]) >> 63)
                below[minus++] = row[j];
            else
                above[plus++] = row[j];
        (void)mpt_range_add_f64(negative, below, minus);
        (void)mpt_range_add_f64(positive, above, plus);
    }
    return MPT_OK;
}

MPT_DEF mpt_status mpt_range_merge(mpt_range *dst, const mpt_range *src)
{
    int i;
    if (!dst || !src || !dst->least_kept || !src->least_kept || dst->format != src->format)
        return MPT_E_ARG;
    dst->count += src->count;
    dst->zero += src->zero;
    dst->flushed += src->flushed;
    dst->subnormal += src->subnormal;
    dst->normal += src->normal;
    dst->overflow += src->overflow;
    dst->inf += src->inf;
    dst->nan += src->nan;
    for (i = 0; i < MPT_RANGE_BINS; i++)
        dst->binade[i] += src->binade[i];
    mpti_tally_merge_extremes(&dst->max_abs, &dst->min_abs, src->max_abs, src->min_abs);
    return MPT_OK;
}

/* ---- all formats at once ---- */

MPT_DEF mpt_status mpt_ranges_init(mpt_ranges *a)
{
    int i, j, format;
    if (!a)
        return MPT_E_ARG;
    memset(a, 0, sizeof *a);
    for (i = 0; i < MPT_RANGES_EDGES; i++)
        a->edge[i] = MPTI_F64_INF;              /* of formats that have no report: nothing lies above it */
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
        if (mpt_format_get((mpt_format)format)->specials != MPT_SPECIALS_SCALE)
            mpti_range_limits(mpt_format_get((mpt_format)format), a->edge + 3 * format);
    for (i = 1; i < MPT_RANGES_EDGES; i++)
        for (j = i; j > 0 && a->edge[j - 1] > a->edge[j]; j--) {
            const uint64_t swap = a->edge[j];
            a->edge[j] = a->edge[j - 1];
            a->edge[j - 1] = swap;
        }
    return MPT_OK;
}

MPT_DEF mpt_status mpt_ranges_add(mpt_ranges *a, mpt_format from, const void *x, size_t n)
{
    mpti_tally t;
    if (!a || (n && !x) || !a->edge[0])
        return MPT_E_ARG;
    if (!mpti_source_ok(from))
        return MPT_E_UNSUPPORTED;
    mpti_tally_open(&t, a->max_abs, a->min_abs);
    t.edge = a->edge;
    t.cell = a->cell;
    t.binade = a->binade;
    t.edges = MPT_RANGES_EDGES;
    mpti_tally_any(&t, from, x, n);
    mpti_tally_close(&t, &a->max_abs, &a->min_abs);
    a->count += n;
    a->zero += t.zero;
    a->inf += t.inf;
    a->nan += t.nan;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_ranges_add_f32(mpt_ranges *a, const float *x, size_t n)
{
    return mpt_ranges_add(a, MPT_F32, x, n);
}

MPT_DEF mpt_status mpt_ranges_merge(mpt_ranges *dst, const mpt_ranges *src)
{
    int i;
    if (!dst || !src || !dst->edge[0] || !src->edge[0])
        return MPT_E_ARG;
    dst->count += src->count;
    dst->zero += src->zero;
    dst->inf += src->inf;
    dst->nan += src->nan;
    for (i = 0; i < MPT_RANGE_BINS; i++)
        dst->binade[i] += src->binade[i];
    for (i = 0; i <= MPT_RANGES_EDGES; i++)
        dst->cell[i] += src->cell[i];
    mpti_tally_merge_extremes(&dst->max_abs, &dst->min_abs, src->max_abs, src->min_abs);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_ranges_get(const mpt_ranges *a, mpt_format format, mpt_range *r)
{
    mpt_status status;
    int        i;
    if (!a || !r || !a->edge[0])
        return MPT_E_ARG;
    status = mpt_range_init(r, format);
    if (status != MPT_OK)
        return status;
    r->count = a->count;
    r->zero = a->zero;
    r->inf = a->inf;
    r->nan = a->nan;
    r->max_abs = a->max_abs;
    r->min_abs = a->min_abs;
    memcpy(r->binade, a->binade, sizeof r->binade);
    for (i = 0; i <= MPT_RANGES_EDGES; i++) {   /* all that a cell holds is at least as large as this */
        const uint64_t least = i ? a->edge[i - 1] : 0u;
        *(least >= r->least_overflow ? &r->overflow
          : least >= r->least_normal ? &r->normal
          : least >= r->least_kept   ? &r->subnormal
                                     : &r->flushed) += a->cell[i];
    }
    return MPT_OK;
}

/* ---- range: percentiles, scales ---- */

/* Values of binade e, and of all binades up to and with it. */
static uint64_t mpti_range_in(const mpt_range *r, int e)
{
    const int i = e - MPT_RANGE_EMIN;
    return i >= 0 && i < MPT_RANGE_BINS ? r->binade[i] : 0u;
}

static uint64_t mpti_range_upto(const mpt_range *r, int e)
{
    uint64_t sum = 0;
    int      i;
    for (i = 0; i < MPT_RANGE_BINS && i + MPT_RANGE_EMIN <= e; i++)
        sum += r->binade[i];
    return sum;
}

/* share * whole, rounded down; for a share of 1 the whole. */
static uint64_t mpti_share_of(double share, uint64_t whole)
{
    const double part = share * (double)whole;
    return part >= (double)whole ? whole : (uint64_t)part;
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
    rank = mpti_share_of(percent / 100.0, nonzero);     /* how many lie below, rounded up to a rank */
    rank += percent / 100.0 * (double)nonzero > (double)rank;
    rank = rank ? rank : 1u;
    while ((seen += r->binade[i]) < rank)
        i++;
    *exponent = i + MPT_RANGE_EMIN;
    return MPT_OK;
}

/* The highest binade of which nothing is kept, and the highest below the normals, both before scaling. */
static int mpti_range_flushed_below(const mpt_format_info *f) { return f->emin - f->mantissa_bits - 2; }

static void mpti_range_with_scale(const mpt_range *r, const mpt_format_info *f, int k, mpt_range_choice *c)
{
    c->log2_scale = k;
    c->flushed = mpti_range_upto(r, mpti_range_flushed_below(f) - k);
    c->subnormal = mpti_range_upto(r, f->emin - 1 - k) - c->flushed;
    c->overflow = mpt_range_nonzero(r) - mpti_range_upto(r, f->emax - k);
}

/* The most doublings of the largest magnitude that do not overflow; below 0 if it already does. */
static int mpti_range_doublings(const mpt_range *r)
{
    const uint64_t a = mpti_f64_bits(r->max_abs), limit = r->least_overflow, hidden = MPTI_ONE << 52;
    const int      e = mpti_range_log2(a), e_limit = mpti_range_log2(limit);
    const uint64_t m = a >= hidden ? a & (hidden - 1u) : (a << (-1022 - e)) & (hidden - 1u);
    return e_limit - e - (m >= (limit & (hidden - 1u)));
}

/* The same, leaving aside that many of the largest values, by whole binades. */
static int mpti_range_doublings_but(const mpt_range *r, const mpt_format_info *f, uint64_t aside)
{
    const int exact = mpti_range_doublings(r);
    int       e = mpti_range_log2(mpti_f64_bits(r->max_abs));
    uint64_t  above = 0;
    if (!aside)
        return exact;
    while (e > MPT_RANGE_EMIN && (above += mpti_range_in(r, e)) <= aside)
        e--;
    return f->emax - e > exact ? f->emax - e : exact;
}

/* Losses only shrink as the scale grows: start at the top, walk towards 1 while nothing more is lost than
 * is tolerated. */
static mpt_range_choice mpti_range_walk(const mpt_range *r, const mpt_format_info *f, int top,
                                        uint64_t may_flush, uint64_t may_lose)
{
    mpt_range_choice c;
    uint64_t         lost, flushed;
    int              k = top > 127 ? 127 : top < -126 ? -126 : top;
    memset(&c, 0, sizeof c);
    mpti_range_with_scale(r, f, k, &c);
    flushed = c.flushed;
    lost = c.flushed + c.subnormal;
    may_flush = may_flush > flushed ? may_flush : flushed;
    may_lose = may_lose > may_flush ? may_lose : may_flush;
    may_lose = may_lose > lost ? may_lose : lost;
    for (; k > 0; k--) {
        flushed += mpti_range_in(r, mpti_range_flushed_below(f) - (k - 1));
        lost += mpti_range_in(r, f->emin - 1 - (k - 1));
        if (flushed > may_flush || lost > may_lose)
            break;
    }
    mpti_range_with_scale(r, f, k, &c);
    return c;
}

static int mpti_share_ok(double share) { return mpti_f64_is_finite(share) && share >= 0.0 && share <= 1.0; }

MPT_DEF mpt_status mpt_range_choose_scale(const mpt_range *r, int headroom,
                                          const mpt_range_tolerance *tolerated, mpt_range_choice *choice)
{
    const mpt_range_tolerance none = {0.0, 0.0, 0.0}, *t = tolerated ? tolerated : &none;
    const mpt_format_info    *f = r ? mpt_format_get(r->format) : NULL;
    mpt_range_choice          best;
    if (!f || !choice || !r->least_kept || headroom < 0 || headroom > 30 || !mpti_share_ok(t->flushed) ||
        !mpti_share_ok(t->subnormal) || !mpti_share_ok(t->overflow))
        return MPT_E_ARG;
    memset(&best, 0, sizeof best);
    if (mpti_f64_bits(r->max_abs)) {
        const uint64_t nonzero = mpt_range_nonzero(r);
        const int      top = mpti_range_doublings_but(r, f, mpti_share_of(t->overflow, nonzero)) - headroom;
        best = mpti_range_walk(r, f, top, mpti_share_of(t->flushed, nonzero),
                               mpti_share_of(t->subnormal, nonzero));
        best.headroom = mpti_range_doublings(r) - best.log2_scale;
    }
    best.scale = mpti_f32_make((uint32_t)(best.log2_scale + 127) << 23);
    *choice = best;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_range_at_scale(const mpt_range *r, int log2_scale, mpt_range_choice *choice)
{
    const mpt_format_info *f = r ? mpt_format_get(r->format) : NULL;
    mpt_range_choice       c;
    if (!f || !choice || !r->least_kept || log2_scale < -126 || log2_scale > 127)
        return MPT_E_ARG;
    memset(&c, 0, sizeof c);
    mpti_range_with_scale(r, f, log2_scale, &c);
    c.scale = mpti_f32_make((uint32_t)(log2_scale + 127) << 23);
    c.headroom = mpti_f64_bits(r->max_abs) ? mpti_range_doublings(r) - log2_scale : 0;
    *choice = c;
    return MPT_OK;
}

#ifndef MPT_NO_STDIO
#define MPTI_PRINT_ROWS  44
#define MPTI_PRINT_WIDTH 50

static double mpti_percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* The window of the format has an edge below each of these binades. */
static const char *mpti_range_edge(const mpt_format_info *f, int e)
{
    if (e == f->emax + 1)
        return "and above: overflow";
    if (e == f->emin)
        return "is the last with all bits; below: subnormal";
    if (e == f->emin - f->mantissa_bits - 1)
        return "is the last that is kept; below: becomes 0";
    return NULL;
}

/* The lowest binade of the drawing's row that starts at e: `group` binades, none across an edge, or all
 * of the tail's that hold next to nothing. */
static int mpti_range_row_end(const mpt_range *r, const mpt_format_info *f, int e, int group, int lowest)
{
    if (mpti_percent(mpti_range_upto(r, e), mpt_range_nonzero(r)) < 0.05)
        group = MPT_RANGE_BINS;
    while (--group && e > lowest && !mpti_range_edge(f, e))
        e--;
    return e;
}

static void mpti_range_print_row(FILE *out, int e, int end, uint64_t c, uint64_t most, uint64_t nonzero)
{
    int bar = (int)((double)c / (double)most * (double)MPTI_PRINT_WIDTH + 0.5);
    if (c && !bar)
        bar = 1;
    (void)fprintf(out, "  2^%-5d|", e);
    for (; bar; bar--)
        (void)fputc('#', out);
    if (c && mpti_percent(c, nonzero) < 0.05)
        (void)fputs(" <0.1%", out);
    else if (c)
        (void)fprintf(out, " %.1f%%", mpti_percent(c, nonzero));
    if (end < e)
        (void)fprintf(out, " (down to 2^%d)", end);
    (void)fputc('\n', out);
}

static void mpti_range_print_edge(FILE *out, const mpt_format_info *f, int e)
{
    if (mpti_range_edge(f, e))
        (void)fprintf(out, "  -------+--- %s: 2^%d %s\n", f->name, e, mpti_range_edge(f, e));
}

static void mpti_range_print_rows(FILE *out, const mpt_range *r, const mpt_format_info *f, int lowest,
                                  int top, uint64_t nonzero)
{
    const int group = (top - lowest) / MPTI_PRINT_ROWS + 1;
    uint64_t  most = 1;
    int       draw, e, end;
    for (e = top + 1; e <= f->emax && !mpti_range_edge(f, e); e++)
        ;                                   /* the nearest edge above tells in which zone the rows start */
    mpti_range_print_edge(out, f, e);
    for (draw = 0; draw < 2; draw++)        /* first round: the longest bar */
        for (e = end = top; e >= lowest; e = end - 1) {
            uint64_t c;
            end = mpti_range_row_end(r, f, e, group, lowest);
            c = mpti_range_upto(r, e) - mpti_range_upto(r, end - 1);
            most = c > most ? c : most;
            if (draw) {
                mpti_range_print_row(out, e, end, c, most, nonzero);
                mpti_range_print_edge(out, f, end);
            }
        }
    for (e = lowest; !mpti_range_edge(f, e) && e >= f->emin - f->mantissa_bits; e--)
        ;                                   /* and the nearest below, where they end */
    if (e < lowest)
        mpti_range_print_edge(out, f, e);
}

MPT_DEF mpt_status mpt_range_print(FILE *out, const mpt_range *r, const char *title)
{
    const mpt_format_info *f = r ? mpt_format_get(r->format) : NULL;
    uint64_t               nonzero;
    int                    first = 0, last = MPT_RANGE_BINS - 1;
    if (!out || !f || !title || !r->least_kept)
        return MPT_E_ARG;
    nonzero = mpt_range_nonzero(r);
    (void)fprintf(out, "%s: %llu values, %.1f%% zero, %llu Inf, %llu NaN\n", title,
                  (unsigned long long)r->count, mpti_percent(r->zero, r->count),
                  (unsigned long long)r->inf, (unsigned long long)r->nan);
    (void)fprintf(out, "  in %s, of the nonzero: %.1f%% become 0, %.1f%% subnormal, %.1f%% normal, "
                  "%.1f%% overflow\n", f->name, mpti_percent(r->flushed, nonzero),
                  mpti_percent(r->subnormal, nonzero), mpti_percent(r->normal, nonzero),
                  mpti_percent(r->overflow, nonzero));
    if (nonzero) {
        while (!r->binade[first]) first++;
        while (!r->binade[last]) last--;
        mpti_range_print_rows(out, r, f, first + MPT_RANGE_EMIN, last + MPT_RANGE_EMIN, nonzero);
    }
    return ferror(out) ? MPT_E_DATA : MPT_OK;
}

static mpt_status mpti_ranges_print_row(FILE *out, const mpt_ranges *a, mpt_format format)
{
    mpt_range        r;
    mpt_range_choice c;
    uint64_t         nonzero;
    mpt_status       status = mpt_ranges_get(a, format, &r);
    if (status != MPT_OK)
        return status;
    nonzero = mpt_range_nonzero(&r);
    (void)mpt_range_choose_scale(&r, 3, NULL, &c);
    (void)fprintf(out, "  %-9s %8.2f%% %9.2f%% %8.2f%% %8.2f%%   2^%-4d", mpt_format_get(format)->name,
                  mpti_percent(r.flushed, nonzero), mpti_percent(r.subnormal, nonzero),
                  mpti_percent(r.normal, nonzero), mpti_percent(r.overflow, nonzero), c.log2_scale);
    (void)fprintf(out, " %8.2f%% %9.2f%%\n", mpti_percent(c.flushed, nonzero),
                  mpti_percent(c.subnormal, nonzero));
    return MPT_OK;
}

MPT_DEF mpt_status mpt_ranges_print(FILE *out, const mpt_ranges *a, const char *title)
{
    int format;
    if (!out || !a || !title || !a->edge[0])
        return MPT_E_ARG;
    (void)fprintf(out, "%s: %llu values, %.1f%% zero, %llu Inf, %llu NaN; of the others, in each format\n",
                  title, (unsigned long long)a->count, mpti_percent(a->zero, a->count),
                  (unsigned long long)a->inf, (unsigned long long)a->nan);
    (void)fputs("            become 0  subnormal    normal  overflow   best scale: then 0  subnormal\n",
                out);
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
        (void)mpti_ranges_print_row(out, a, (mpt_format)format);
    return ferror(out) ? MPT_E_DATA : MPT_OK;
}
#endif /* MPT_NO_STDIO */

// >>M15 implementation: scaler, check, clip --------------------------------------------------------

MPT_DEF mpt_scaler_config mpt_scaler_preset(mpt_scaler_dialect dialect)
{
#define MPTI_X(id, name, init, growth, backoff, interval) {growth, backoff, init, interval, (int32_t)id, 0u},
    static const mpt_scaler_config table[] = {MPT_SCALER_DIALECTS(MPTI_X)};
#undef MPTI_X
    static const mpt_scaler_config refused = {0.0, 0.0, 0.0f, 0, -1, 0u};
    return (unsigned)dialect < (unsigned)MPT_SCALER_DIALECT_COUNT ? table[dialect] : refused;
}

static int mpti_scaler_config_ok(const mpt_scaler_config *c)
{
    const int is_static = c->dialect == (int32_t)MPT_SCALER_STATIC;
    if (c->dialect < 0 || c->dialect >= (int32_t)MPT_SCALER_DIALECT_COUNT)
        return 0;
    if (!(c->init_scale > 0.0f) || !mpti_f32_is_finite(c->init_scale))
        return 0;
    if (is_static)
        return 1;
    return mpti_f64_is_finite(c->growth) && c->growth > 1.0 && mpti_f64_is_finite(c->backoff) &&
           c->backoff > 0.0 && c->backoff < 1.0 && c->interval >= 1;
}

MPT_DEF mpt_status mpt_scaler_init(mpt_scaler *s, const mpt_scaler_config *config)
{
    const mpt_scaler_config c = config ? *config : mpt_scaler_preset(MPT_SCALER_PYTORCH);
    if (!s || !mpti_scaler_config_ok(&c))
        return MPT_E_ARG;
    memset(s, 0, sizeof *s);
    s->config = c;
    s->scale = c.init_scale;
    return MPT_OK;
}

static mpt_status mpti_scaler_usable(const mpt_scaler *s)
{
    if (!s)
        return MPT_E_ARG;
    return s->in_use ? MPT_OK : MPT_E_ORDER;
}

MPT_DEF mpt_status mpt_scaler_record(mpt_scaler *s, int found_inf)
{
    const mpt_status status = mpti_scaler_usable(s);
    if (status != MPT_OK)
        return status;
    s->found_inf |= (uint32_t)(found_inf != 0);
    s->checks++;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_scaler_update(mpt_scaler *s)
{
    const mpt_status status = mpti_scaler_usable(s);
    if (status != MPT_OK)
        return status;
    if (!s->checks)
        return MPT_E_ORDER;
    mpti_scaler_advance(s);
    return MPT_OK;
}

/* ---- check, unscale, clip ---- */

/* Add lane[0 .. n-1] in adjacent pairs; n is a power of two. */
static double mpti_pair_sum(double *lane, size_t n)
{
    size_t i;
    for (; n > 1; n /= 2)
        for (i = 0; i < n / 2; i++)
            lane[i] = lane[2 * i] + lane[2 * i + 1];
    return lane[0];
}

/* These loops run over whole blocks, padded with zeros: compilers vectorize a constant count at -O2. */
MPTI_INLINE void mpti_unscale_loop(float *row, float factor, unsigned *bad)
{
    unsigned found = 0u;
    size_t   j;
    for (j = 0; j < MPTI_BLOCK; j++)
        row[j] = mpti_unscale_1(row[j], factor, &found);
    *bad |= found;
}

MPTI_INLINE void mpti_sumsq_loop(double *lane, const float *row)
{
    size_t j;
    for (j = 0; j < MPTI_BLOCK; j++)
        lane[j] = mpti_sumsq_1(lane[j], row[j]);
}

MPTI_TWICE(mpti_unscale_block, mpti_unscale_loop, (float *row, float factor, unsigned *bad),
           (row, factor, bad))
MPTI_TWICE(mpti_sumsq_block, mpti_sumsq_loop, (double *lane, const float *row), (lane, row))

/* One chunk of one tensor: elements first .. first + n - 1, n at most MPTI_CHUNK. */
static double mpti_check_chunk(const mpt_tensor *t, size_t first, size_t n, float factor, int write_back,
                               unsigned *bad)
{
    double lane[MPTI_LANES];
    float  row[MPTI_BLOCK];
    size_t lanes = MPTI_BLOCK, i, j;
    while (lanes < n && lanes < MPTI_LANES)
        lanes *= 2;                     /* the lanes above stay 0 and add nothing */
    for (j = 0; j < lanes; j++)
        lane[j] = 0.0;
    for (i = 0; i < n; i += MPTI_BLOCK) {
        const size_t take = mpti_min(n - i, MPTI_BLOCK);
        mpti_row_load(row, t->grad, t->grad_format, first + i, take);
        for (j = take; j < MPTI_BLOCK; j++)
            row[j] = 0.0f;
        mpti_unscale_block(row, factor, bad);
        if (write_back) {               /* what counts is what the array holds in the end */
            mpti_row_store(t->grad, t->grad_format, first + i, row, take);
            mpti_row_load(row, t->grad, t->grad_format, first + i, take);
            mpti_unscale_block(row, 1.0f, bad);
        }
        mpti_sumsq_block(lane + i % MPTI_LANES, row);
    }
    return mpti_pair_sum(lane, lanes);
}

static void mpti_check_pass(mpt_step *step, const mpt_tensor *tensors, size_t count, int write_back)
{
    double   slot[MPTI_SLOTS];
    size_t   i, first, chunk = 0;
    unsigned bad = 0u;
    memset(slot, 0, sizeof slot);
    for (i = 0; i < count; i++)
        for (first = 0; first < tensors[i].n; first += MPTI_CHUNK, chunk++) {
            const size_t n = mpti_min(tensors[i].n - first, MPTI_CHUNK);
            slot[chunk % MPTI_SLOTS] +=
                mpti_check_chunk(&tensors[i], first, n, step->grad_factor, write_back, &bad);
        }
    step->sumsq = mpti_pair_sum(slot, MPTI_SLOTS);
    step->found_inf = bad ? 1u : 0u;
    step->norm = mpti_norm_from_sumsq(step->sumsq, step->found_inf);
}

static mpt_status mpti_check(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count,
                             int write_back)
{
    mpt_status status = mpti_scaler_usable(s);
    if (status == MPT_OK && !step)
        status = MPT_E_ARG;
    if (status == MPT_OK && mpti_is_second_check(s, step))
        status = MPT_E_ORDER;
    if (status == MPT_OK)
        status = mpt_tensors_validate(tensors, count, MPT_NEEDS_GRAD, NULL);
    if (status != MPT_OK) {
        if (step)
            step->found_inf = 1u;       /* who ignores the status must not step on scaled gradients */
        return status;
    }
    memset(step, 0, sizeof *step);
    step->update = s->updates + 1u;
    step->grad_factor = mpti_inverse_scale(s->scale);
    step->clip_factor = 1.0f;
    mpti_check_pass(step, tensors, count, write_back);
    if (write_back)
        step->grad_factor = 1.0f;
    step->stage = (uint32_t)(write_back ? MPT_STAGE_UNSCALED : MPT_STAGE_CHECKED);
    return mpt_scaler_record(s, (int)step->found_inf);
}

MPT_DEF mpt_status mpt_check(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count)
{
    return mpti_check(s, step, tensors, count, 0);
}

MPT_DEF mpt_status mpt_unscale(mpt_scaler *s, mpt_step *step, const mpt_tensor *tensors, size_t count)
{
    return mpti_check(s, step, tensors, count, 1);
}

MPT_DEF mpt_status mpt_clip(mpt_step *step, float max_norm)
{
    if (!step || !(max_norm > 0.0f) || !mpti_f32_is_finite(max_norm))
        return MPT_E_ARG;
    if (!mpti_step_is_open(step))
        return MPT_E_ORDER;
    step->clip_factor = mpti_clip_factor(step->norm, max_norm, step->found_inf);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_clip_apply(mpt_step *step, const mpt_tensor *tensors, size_t count)
{
    mpt_status status = step ? MPT_OK : MPT_E_ARG;
    float      row[MPTI_BLOCK];
    size_t     i, j, first;
    if (status == MPT_OK && step->stage != (uint32_t)MPT_STAGE_UNSCALED)
        status = MPT_E_ORDER;
    if (status == MPT_OK)
        status = mpt_tensors_validate(tensors, count, MPT_NEEDS_GRAD, NULL);
    if (status != MPT_OK)
        return status;
    for (i = 0; i < count; i++)
        for (first = 0; first < tensors[i].n; first += MPTI_BLOCK) {
            const size_t take = mpti_min(tensors[i].n - first, MPTI_BLOCK);
            mpti_row_load(row, tensors[i].grad, tensors[i].grad_format, first, take);
            for (j = 0; j < take; j++)
                row[j] = mpti_mul(row[j], step->clip_factor);
            mpti_row_store(tensors[i].grad, tensors[i].grad_format, first, row, take);
        }
    step->clip_factor = 1.0f;
    return MPT_OK;
}

// >>M16 implementation: optimizers, rows -----------------------------------------------------------

/* One block of one tensor, padded with zeros, through one optimizer; k points to its constants. */
#define MPTI_BLOCK_PARAMETERS                                                                       \
    (const float *MPTI_RESTRICT g, float *MPTI_RESTRICT w, float *MPTI_RESTRICT m,                  \
     float *MPTI_RESTRICT v, const void *k)
typedef void mpti_block_fn MPTI_BLOCK_PARAMETERS;

MPTI_INLINE void mpti_sgd_loop MPTI_BLOCK_PARAMETERS
{
    const mpti_sgd_k c = *(const mpti_sgd_k *)k;
    size_t           i;
    (void)v;
    if (mpti_is_nonzero(c.momentum))        /* out of the loop, so that it vectorizes */
        for (i = 0; i < MPTI_BLOCK; i++)
            mpti_sgd_1(g[i], &w[i], &m[i], &c);
    else
        for (i = 0; i < MPTI_BLOCK; i++)
            mpti_sgd_1(g[i], &w[i], &m[i], &c);
}

/* mpti_adamw_1 in three loops, since compilers do not vectorize sqrtf: it may set errno. */
MPTI_INLINE void mpti_adamw_loop MPTI_BLOCK_PARAMETERS
{
    const mpti_adamw_k c = *(const mpti_adamw_k *)k;
    float              root[MPTI_BLOCK];
    size_t             i;
    for (i = 0; i < MPTI_BLOCK; i++)
        mpti_adamw_moments_1(g[i], &m[i], &v[i], &c);
    for (i = 0; i < MPTI_BLOCK; i++)
        root[i] = mpti_sqrt(v[i]);
    for (i = 0; i < MPTI_BLOCK; i++)
        mpti_adamw_weight_1(&w[i], m[i], root[i], &c);
}

MPTI_THRICE(mpti_sgd_block, mpti_sgd_loop, MPTI_BLOCK_PARAMETERS, (g, w, m, v, k))
MPTI_THRICE(mpti_adamw_block, mpti_adamw_loop, MPTI_BLOCK_PARAMETERS, (g, w, m, v, k))

/* A block of one array in and out; an array that is not there reads as zeros. */
static void mpti_block_load(float *block, const float *array, size_t first, size_t n)
{
    if (!array)
        n = 0;
    if (n)
        memcpy(block, array + first, n * sizeof *block);
    if (n < MPTI_BLOCK)
        memset(block + n, 0, (MPTI_BLOCK - n) * sizeof *block);
}

static void mpti_block_store(float *array, const float *block, size_t first, size_t n)
{
    if (array)
        memcpy(array + first, block, n * sizeof *block);
}

/* Moments that the optimizer does not need are neither read nor written. */
static void mpti_step_tensor(const mpt_tensor *t, unsigned needs, mpti_block_fn *block, const void *k)
{
    float *const t_m = needs & MPT_NEEDS_M ? t->m : NULL, *const t_v = needs & MPT_NEEDS_V ? t->v : NULL;
    float        g[MPTI_BLOCK], w[MPTI_BLOCK], m[MPTI_BLOCK], v[MPTI_BLOCK];
    size_t       first;
    for (first = 0; first < t->n; first += MPTI_BLOCK) {
        const size_t n = mpti_min(t->n - first, MPTI_BLOCK);
        if (n < MPTI_BLOCK)
            memset(g, 0, sizeof g);
        mpti_row_load(g, t->grad, t->grad_format, first, n);
        mpti_block_load(w, t->master, first, n);
        mpti_block_load(m, t_m, first, n);
        mpti_block_load(v, t_v, first, n);
        block(g, w, m, v, k);
        mpti_block_store(t->master, w, first, n);
        mpti_block_store(t_m, m, first, n);
        mpti_block_store(t_v, v, first, n);
        if (t->param)
            mpti_row_store(t->param, t->param_format, first, w, n);
    }
}

/* Everything that can be refused, before anything is touched. */
static mpt_status mpti_step_open(const mpt_step *step, const mpt_tensor *tensors, size_t count,
                                 unsigned needs, int hyperparameters_ok)
{
    if (!step || !hyperparameters_ok)
        return MPT_E_ARG;
    if (!mpti_step_is_open(step))
        return MPT_E_ORDER;
    return mpt_tensors_validate(tensors, count, needs, NULL);
}

/* The step itself, or on found_inf nothing but its being over; t counts the steps taken. */
static void mpti_step_take(mpt_step *step, const mpt_tensor *tensors, size_t count, unsigned needs,
                           mpti_block_fn *block, const void *k, uint64_t *t)
{
    size_t i;
    step->stage = (uint32_t)MPT_STAGE_STEPPED;
    if (step->found_inf)
        return;
    for (i = 0; i < count; i++)
        mpti_step_tensor(&tensors[i], needs, block, k);
    (*t)++;
}

MPT_DEF mpt_status mpt_sgd_step(mpt_sgd *o, mpt_step *step, const mpt_tensor *tensors, size_t count)
{
    const int        ok = mpti_sgd_ok(o);
    const unsigned   moment = ok && mpti_is_nonzero(o->momentum) ? MPT_NEEDS_M : 0u;
    const unsigned   needs = MPT_NEEDS_MASTER | MPT_NEEDS_GRAD | moment;
    const mpt_status status = mpti_step_open(step, tensors, count, needs, ok);
    if (status == MPT_OK) {
        const mpti_sgd_k k = mpti_sgd_consts(o, step);
        mpti_step_take(step, tensors, count, needs, mpti_sgd_block, &k, &o->t);
    }
    return status;
}

MPT_DEF mpt_adamw mpt_adamw_defaults(void)
{
    const mpt_adamw o = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 0u, 0u};
    return o;
}

MPT_DEF mpt_status mpt_adamw_step(mpt_adamw *o, mpt_step *step, const mpt_tensor *tensors, size_t count)
{
    const unsigned   needs = MPT_NEEDS_MASTER | MPT_NEEDS_GRAD | MPT_NEEDS_M | MPT_NEEDS_V;
    const mpt_status status = mpti_step_open(step, tensors, count, needs, mpti_adamw_ok(o));
    if (status == MPT_OK) {
        const mpti_adamw_k k = mpti_adamw_consts(o, step);
        mpti_step_take(step, tensors, count, needs, mpti_adamw_block, &k, &o->t);
    }
    return status;
}

// >>M17 implementation: checkpoint -----------------------------------------------------------------

// >>M18 implementation: policy ---------------------------------------------------------------------

// >>M19 implementation: graph ----------------------------------------------------------------------

#endif /* MPT_IMPLEMENTATION */

// >>M20 to add an optimizer, a scaler dialect, a report --------------------------------------------
/* An optimizer: its struct of hyperparameters and its doc block in >>M7; its formula for one element and
 *   its per-step constants in >>M12 (fma for every multiply-add, MPT_HD, no libm but sqrt); the loop, the
 *   argument test and the call in >>M16; its kernel in mpt_cuda.h (search >>C); skip, invariance and
 *   parity tests in tests/test_mpt.c and tests/test_cuda.cu.
 * A scaler dialect: its row in MPT_SCALER_DIALECTS (>>M5), its rule in mpti_scaler_advance (>>M12), which
 *   the GPU shares, its limits in mpti_scaler_config_ok (>>M15), a trace in tests/test_mpt.c.
 * A report: counts that merge, in a plain struct, thresholds taken from the codec (see
 *   mpti_range_limit); drawing apart from counting. */

// >>M21 licence ------------------------------------------------------------------------------------
/* MIT licence, as mpt_half.h.  Copyright (c) 2026 the mpt authors. */
