/* mpt_half.h -- small floating-point formats for C: FP16, BF16, TF32, FP8, FP6, FP4.
 *
 * Use it: copy this one file next to your code. In exactly one C file
 *
 *     #define MPT_HALF_IMPLEMENTATION
 *     #include "mpt_half.h"
 *
 * and everywhere else only the #include. Then
 *
 *     mpt_f16 h = mpt_f16_from_f32(0.1f);           // 0x2e66
 *     float   f = mpt_f32_from_f16(h);              // 0.0999755859375
 *     mpt_f16_from_f32_n(halves, floats, n);        // arrays, by vectors where there are any
 *     mpt_quantize_n(x, x, n, MPT_E4M3, NULL);      // what FP8 would make of floats, in place
 *     mpt_fields a = mpt_anatomy(MPT_E4M3, 0.1);    // sign, exponent, mantissa, what was lost
 *
 * Needs a C99 (or C++11) compiler and <stdint.h> <stddef.h> <string.h>; no libm, no malloc, no
 * globals. The codec works on bit patterns with integers only, so it gives the same bits under
 * -ffast-math, flush-to-zero, x87 and any rounding mode of the processor.
 *
 * What it does NOT do: arithmetic in formats other than f16 and bf16 (decode, compute, encode); types of
 * their own for formats other than f16, bf16, e4m3 and e5m2 (mpt_encode and mpt_convert_n take all); speed
 * for most options other than the defaults (those take one element at a time); decimal formats, posits,
 * formats wider than binary64.
 *
 * Contents (search for the mark):
 *   >>H1 configuration                   >>H12 text
 *   >>H2 version and status              >>H13 arrays
 *   >>H3 formats                         >>H14 blocks
 *   >>H4 any format, one value           >>H15 implementation: formats, codec
 *   >>H5 bit helpers                     >>H16 implementation: arithmetic
 *   >>H6 scalar conversion: f16          >>H17 implementation: text
 *   >>H7 scalar conversion: bf16         >>H18 implementation: arrays
 *   >>H8 scalar conversion: FP8          >>H19 implementation: blocks
 *   >>H9 classify, neighbours, ulp       >>H20 to add a format
 *   >>H10 random bits                    >>H21 licence
 *   >>H11 arithmetic
 */
#ifndef MPT_HALF_H
#define MPT_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// >>H1 configuration ------------------------------------------------------------------------------
/* MPT_STATIC   define it to make every function static in this file; it implies the implementation.
 * MPT_DEF      linkage of the non-inline functions; default: extern "C" in C++, extern in C.
 * MPT_SIMD     1 (default): array functions choose their vector instructions at run time, where the
 *              compiler is gcc or clang and the processor x86 or aarch64; 0: the portable path only;
 *              2 SSE2 or NEON, 3 AVX2 or NEON with its half-precision instructions, 4 AVX-512 (F, BW, DQ,
 *              VL), 5 AVX-512 with BF16, and with VBMI and FP16 where the processor has them: at most that.
 *              Same bits on all. aarch64's FP16 arithmetic is used where the compiler is told of it
 *              (-march=armv8.2-a+fp16).
 * No macro changes a struct or a prototype. */
#ifndef MPT_SIMD
#define MPT_SIMD 1
#endif
#if MPT_SIMD < 0 || MPT_SIMD > 5
#error "MPT_SIMD must be 0 (portable path only), 1 (choose at run time) or 2 to 5 (at most that path)"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define MPTI_UNUSED __attribute__((unused))
#else
#define MPTI_UNUSED
#endif

#ifdef MPT_STATIC
#ifdef MPT_DEF
#error "MPT_STATIC and MPT_DEF exclude each other"
#endif
#define MPTI_STATIC_CHOSEN 1
#define MPT_DEF static MPTI_UNUSED
#endif
#ifndef MPT_DEF
#ifdef __cplusplus
#define MPT_DEF extern "C"
#else
#define MPT_DEF extern
#endif
#endif

/* MPT_HD marks the per-element functions that host and device share: one formula, two places. */
#ifdef __CUDACC__
#define MPT_HD static __host__ __device__ __forceinline__
#else
#define MPT_HD static inline
#endif

// >>H2 version and status -------------------------------------------------------------------------
#define MPT_VERSION_MAJOR 0
#define MPT_VERSION_MINOR 1
#define MPT_VERSION_PATCH 0
#define MPT_VERSION (MPT_VERSION_MAJOR * 10000 + MPT_VERSION_MINOR * 100 + MPT_VERSION_PATCH)

/* mpt_version -- the MPT_VERSION that the linked implementation was compiled with.
 * Exact: yes.  Threads: any. */
MPT_DEF int mpt_version(void);

/* Inf, NaN and overflow are results, never errors; a status tells of wrong calls and failed systems. */
#define MPT_STATUSES(X)                                                                              \
    X(MPT_OK,             0, "no error")                                                             \
    X(MPT_E_ARG,         -1, "bad argument: NULL with a size above zero, or a value out of range")   \
    X(MPT_E_ORDER,       -2, "wrong call order: each step is scale, check, step, update, once each") \
    X(MPT_E_MEMORY,      -3, "out of memory")                                                        \
    X(MPT_E_DATA,        -4, "bad data: the input is damaged or of another version")                 \
    X(MPT_E_UNSUPPORTED, -5, "not supported: this call does not take this format or device")         \
    X(MPT_E_CUDA,        -6, "a CUDA call failed: see mpt_cuda_error_text")                          \
    X(MPT_E_CUBLAS,      -7, "a cuBLAS call failed: see mpt_cuda_error_text")                        \
    X(MPT_E_RANGE,       -8, "out of range: a number does not fit the format it is to be stored in") \
    X(MPT_E_SCALE,       -9, "no loss scale works: see the verdict of the scaler")

typedef enum mpt_status {
#define MPTI_X(id, value, text) id = value,
    MPT_STATUSES(MPTI_X)
#undef MPTI_X
} mpt_status;

/* mpt_status_text -- one English sentence for a status; "unknown status" for anything else.
 * Returns: a string that lives forever.  Threads: any. */
MPT_DEF const char *mpt_status_text(mpt_status status);

// >>H3 formats ------------------------------------------------------------------------------------
/* Every format is one row: enum name, text name, sign bits, exponent bits, stored mantissa bits, bias,
 * specials. All limits, codes and tables derive from these seven facts.
 *   IEEE    all-ones exponent is Inf or NaN (IEEE 754-2019, clause 3.4)
 *   FN      no Inf; only the all-ones code is NaN (OCP OFP8 v1.0 E4M3; without a sign the scale of NVFP4)
 *   FNUZ    no Inf, no -0; the code of -0 is the only NaN (LLVM/ONNX "fnuz")
 *   FINITE  every code is a finite number (OCP MX v1.0 FP6, FP4)
 *   SCALE   unsigned powers of two without zero; all ones is NaN (OCP MX v1.0 E8M0) */
#define MPT_FORMATS(X)                                              \
    X(MPT_F64,      "f64",      1, 11, 52, 1023, MPT_SPECIALS_IEEE)   \
    X(MPT_F32,      "f32",      1,  8, 23,  127, MPT_SPECIALS_IEEE)   \
    X(MPT_TF32,     "tf32",     1,  8, 10,  127, MPT_SPECIALS_IEEE)   \
    X(MPT_F16,      "f16",      1,  5, 10,   15, MPT_SPECIALS_IEEE)   \
    X(MPT_BF16,     "bf16",     1,  8,  7,  127, MPT_SPECIALS_IEEE)   \
    X(MPT_E5M2,     "e5m2",     1,  5,  2,   15, MPT_SPECIALS_IEEE)   \
    X(MPT_E4M3,     "e4m3",     1,  4,  3,    7, MPT_SPECIALS_FN)     \
    X(MPT_E5M2FNUZ, "e5m2fnuz", 1,  5,  2,   16, MPT_SPECIALS_FNUZ)   \
    X(MPT_E4M3FNUZ, "e4m3fnuz", 1,  4,  3,    8, MPT_SPECIALS_FNUZ)   \
    X(MPT_E3M2,     "e3m2",     1,  3,  2,    3, MPT_SPECIALS_FINITE) \
    X(MPT_E2M3,     "e2m3",     1,  2,  3,    1, MPT_SPECIALS_FINITE) \
    X(MPT_E2M1,     "e2m1",     1,  2,  1,    1, MPT_SPECIALS_FINITE) \
    X(MPT_E8M0,     "e8m0",     0,  8,  0,  127, MPT_SPECIALS_SCALE)  \
    X(MPT_UE4M3,    "ue4m3",    0,  4,  3,    7, MPT_SPECIALS_FN)

typedef enum mpt_format {
#define MPTI_X(id, name, s, e, m, bias, specials) id,
    MPT_FORMATS(MPTI_X)
#undef MPTI_X
    MPT_FORMAT_COUNT
} mpt_format;

typedef enum mpt_specials {
    MPT_SPECIALS_IEEE, MPT_SPECIALS_FN, MPT_SPECIALS_FNUZ, MPT_SPECIALS_FINITE, MPT_SPECIALS_SCALE
} mpt_specials;

/* Types for the 16-bit and 8-bit formats: structs, so that formats cannot be mixed up. The layout is that
 * of uint16_t or uint8_t, so arrays may be cast to uint16_t *, __half *, _Float16 * and back. */
typedef struct mpt_f16 { uint16_t bits; } mpt_f16;
typedef struct mpt_bf16 { uint16_t bits; } mpt_bf16;
typedef struct mpt_e4m3 { uint8_t bits; } mpt_e4m3;
typedef struct mpt_e5m2 { uint8_t bits; } mpt_e5m2;

/* A code is the bit pattern in the low `bits` bits: sign, exponent field, mantissa field. */
typedef struct mpt_format_info {
    const char  *name;
    int          bits, sign_bits, exponent_bits, mantissa_bits, bias;
    mpt_specials specials;
    int          emin, emax;        /* exponents of the smallest normal and the largest finite number */
    int          has_inf, has_nan;
    int          bytes;             /* of one element in an array: 1, 2, 4 or 8; the code in the low bits */
    uint64_t     max_code;          /* the largest finite number */
    uint64_t     inf_code;          /* +Inf; 0 where the format has none */
    uint64_t     nan_code;          /* the quiet NaN without payload; 0 where the format has none */
    double       max_finite, min_normal, min_subnormal;
    double       epsilon;           /* distance from 1 to the next number: 2^-mantissa_bits */
} mpt_format_info;

/* mpt_format_get -- the facts of a format of the table.
 * Returns: a pointer that lives forever; NULL for an unknown format.  Threads: any. */
MPT_DEF const mpt_format_info *mpt_format_get(mpt_format format);

/* mpt_format_find -- the format with this text name ("f16", "e4m3", ...).
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL; MPT_E_UNSUPPORTED for an unknown name (*format is kept). */
MPT_DEF mpt_status mpt_format_find(const char *name, mpt_format *format);

/* mpt_format_define -- describe a format of your own, for mpt_encode_as and mpt_decode_as.
 *   info           out  not NULL; the limits are derived
 *   name           in   not NULL; kept, not copied
 *   exponent_bits  in   2..10 (1..10 for SCALE)
 *   mantissa_bits  in   1..52 (0 for SCALE)
 *   bias           in   such that every value, subnormals too, is a normal double
 * Signed, except SCALE.  Returns: MPT_OK.  Errors: MPT_E_ARG (*info is kept).  Threads: any. */
MPT_DEF mpt_status mpt_format_define(mpt_format_info *info, const char *name, int exponent_bits,
                                     int mantissa_bits, int bias, mpt_specials specials);

// >>H4 any format, one value ----------------------------------------------------------------------
/* Rounding directions: IEEE 754-2019, clause 4.3; to odd as in Boldo & Melquiond 2008; stochastic:
 * up in magnitude with probability (discarded part) / (gap), from 32 random bits. */
#define MPT_ROUNDINGS(X)                            \
    X(MPT_RND_NEAREST_EVEN, "nearest-even")         \
    X(MPT_RND_NEAREST_AWAY, "nearest-away")         \
    X(MPT_RND_TOWARD_ZERO,  "toward-zero")          \
    X(MPT_RND_UP,           "up")                   \
    X(MPT_RND_DOWN,         "down")                 \
    X(MPT_RND_ODD,          "to-odd")               \
    X(MPT_RND_STOCHASTIC,   "stochastic")

typedef enum mpt_rounding {
#define MPTI_X(id, text) id,
    MPT_ROUNDINGS(MPTI_X)
#undef MPTI_X
    MPT_ROUNDING_COUNT
} mpt_rounding;

/* What becomes of a finite value beyond the largest finite number.
 *   IEEE      Inf or the largest finite number, as the rounding direction says; NaN stands for Inf in a
 *             format without Inf, the largest finite number for NaN in a format without NaN
 *   SATURATE  the largest finite number, and the same for Inf (what "saturating" FP8 conversions do)
 *   NAN       NaN whatever the direction (the largest finite number in a format without NaN); Inf stays */
typedef enum mpt_overflow { MPT_OVERFLOW_IEEE, MPT_OVERFLOW_SATURATE, MPT_OVERFLOW_NAN } mpt_overflow;

/* A NaN becomes quiet; it keeps its sign and the top of its payload, or is the one positive quiet NaN
 * without payload. */
typedef enum mpt_nan_rule { MPT_NAN_KEEP, MPT_NAN_CANONICAL } mpt_nan_rule;

/* When a result counts as tiny: after rounding with a free exponent, as x86 and RISC-V do, or before
 * rounding, as ARM does (IEEE 754-2019, clause 7.5). It decides about MPT_FLAG_UNDERFLOW only. */
typedef enum mpt_tininess { MPT_TININESS_AFTER, MPT_TININESS_BEFORE } mpt_tininess;

#define MPT_FLUSH_RESULTS 1u    /* a subnormal result becomes a zero of its sign: UNDERFLOW and INEXACT */
#define MPT_FLUSH_INPUTS  2u    /* a subnormal of the source's format counts as a zero of its sign: no flag */

/* Zero-initialised options are the defaults: nearest-even, IEEE overflow, subnormals kept, NaN kept.
 * Stochastic rounding of one value takes `random`. In an array call element i takes randoms[i], or if
 * that is NULL mpt_philox(seed, stream, step, first_element + i): whoever splits an array into chunks
 * sets first_element to the chunk's place in the whole, and gets the same bits. */
typedef struct mpt_opts {
    mpt_rounding    rounding;
    mpt_overflow    overflow;
    unsigned        flush;          /* MPT_FLUSH_RESULTS, MPT_FLUSH_INPUTS or both */
    mpt_nan_rule    nan;
    mpt_tininess    tininess;
    uint32_t        random;         /* one value: uniform bits, fresh for each value */
    const uint32_t *randoms;        /* arrays: one word per element; NULL: the header's Philox */
    uint64_t        seed, first_element;
    uint32_t        stream, step;   /* say, the number of the tensor and of the training step */
} mpt_opts;

/* Exception flags (IEEE 754-2019, clause 7), sticky: calls or them in and never clear one. UNDERFLOW is
 * raised by results that are tiny and inexact. */
#define MPT_FLAG_INVALID   1u
#define MPT_FLAG_DIVBYZERO 2u
#define MPT_FLAG_OVERFLOW  4u
#define MPT_FLAG_UNDERFLOW 8u
#define MPT_FLAG_INEXACT   16u

/* mpt_encode -- round a value to any format of the table: the slow, obvious path that judges the
 * fast ones. One rounding. NaN becomes a quiet NaN that keeps its sign and the top of its payload.
 *   format   in      a format of the table
 *   value    in      any double
 *   opts     in      NULL for the defaults
 *   flags    in/out  NULL, or exception flags that are or-ed in
 * Returns: the code. Where the format lacks what is needed: overflow and Inf without Inf give NaN, or the
 *   largest finite number if there is no NaN either; NaN without NaN gives the largest finite number and
 *   INVALID; a negative number in an unsigned format gives NaN and INVALID;
 *   zero and values below the least in SCALE give the least power of two. A finite value never
 *   rounds stochastically to Inf; the probability is truncated to 32 bits (bias below 2^-32 of a gap).
 * Errors: an unknown format or option gives code 0 (or NaN) and MPT_FLAG_INVALID.
 * Where arguments pass through x87 registers, a signaling NaN is quiet before we see it.
 * Exact: correctly rounded.  Threads: any.  Source: IEEE 754-2019, clauses 4.3, 5.4.2, 7. */
MPT_DEF uint64_t mpt_encode(mpt_format format, double value, const mpt_opts *opts, unsigned *flags);

/* mpt_encode_as -- the same for a format described by mpt_format_define or mpt_format_get. */
MPT_DEF uint64_t mpt_encode_as(const mpt_format_info *info, double value, const mpt_opts *opts,
                               unsigned *flags);

/* mpt_decode -- the value of a code; bits above the format's width are ignored.
 * Returns: the value, always exact in double; a quiet NaN for an unknown format.  Threads: any. */
MPT_DEF double mpt_decode(mpt_format format, uint64_t code);

/* mpt_decode_as -- the same for a described format. */
MPT_DEF double mpt_decode_as(const mpt_format_info *info, uint64_t code);

/* mpt_encode_i64, mpt_encode_u64, mpt_encode_i32, mpt_encode_u32 -- mpt_encode of an integer, one rounding
 * (IEEE 754-2019, convertFromInt): no double in between, so 64-bit integers are exact to the last bit. */
MPT_DEF uint64_t mpt_encode_i64(mpt_format format, int64_t value, const mpt_opts *opts, unsigned *flags);
MPT_DEF uint64_t mpt_encode_u64(mpt_format format, uint64_t value, const mpt_opts *opts, unsigned *flags);
MPT_DEF uint64_t mpt_encode_i32(mpt_format format, int32_t value, const mpt_opts *opts, unsigned *flags);
MPT_DEF uint64_t mpt_encode_u32(mpt_format format, uint32_t value, const mpt_opts *opts, unsigned *flags);

/* mpt_decode_i64, mpt_decode_u64, mpt_decode_i32, mpt_decode_u32 -- the integer of a code, rounded once.
 *   opts   in      NULL for the defaults; the rounding counts (MPT_RND_TOWARD_ZERO is what a C cast does),
 *                  and MPT_FLUSH_INPUTS
 *   flags  in/out  NULL, or flags or-ed in: INEXACT for a code that is no integer, INVALID (alone) for NaN
 *                  and for what rounds to an integer out of range
 * Returns: the integer; the nearest end of the range if out of range, 0 for NaN (as ARM does, and SoftFloat's
 *   "ARM-VFPv2" flavour), for an unknown format and for an unknown option (INVALID).
 * Exact: correctly rounded.  Threads: any.  Source: IEEE 754-2019, clause 5.8, convertToIntegerExact. */
MPT_DEF int64_t  mpt_decode_i64(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags);
MPT_DEF uint64_t mpt_decode_u64(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags);
MPT_DEF int32_t  mpt_decode_i32(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags);
MPT_DEF uint32_t mpt_decode_u32(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags);

/* mpt_is_exact -- does the format have this very number? Then every rounding keeps it. -0 is a number of its
 * own, which unsigned and FNUZ formats lack; a NaN counts as had by every format with a NaN.
 * Returns: 1 or 0; 0 for an unknown format.  Threads: any. */
MPT_DEF int mpt_is_exact(mpt_format format, double value);

/* mpt_is_exact_i64, mpt_is_exact_u64 -- the same for integers. */
MPT_DEF int mpt_is_exact_i64(mpt_format format, int64_t value);
MPT_DEF int mpt_is_exact_u64(mpt_format format, uint64_t value);

/* Classes of IEEE 754-2019, clause 5.7.2. */
#define MPT_CLASSES(X)                              \
    X(MPT_CLASS_SIGNALING_NAN,  "signaling NaN")    \
    X(MPT_CLASS_QUIET_NAN,      "quiet NaN")        \
    X(MPT_CLASS_NEG_INF,        "-Inf")             \
    X(MPT_CLASS_NEG_NORMAL,     "-normal")          \
    X(MPT_CLASS_NEG_SUBNORMAL,  "-subnormal")       \
    X(MPT_CLASS_NEG_ZERO,       "-0")               \
    X(MPT_CLASS_POS_ZERO,       "+0")               \
    X(MPT_CLASS_POS_SUBNORMAL,  "+subnormal")       \
    X(MPT_CLASS_POS_NORMAL,     "+normal")          \
    X(MPT_CLASS_POS_INF,        "+Inf")

typedef enum mpt_class {
#define MPTI_X(id, text) id,
    MPT_CLASSES(MPTI_X)
#undef MPTI_X
    MPT_CLASS_COUNT
} mpt_class;

/* mpt_class_text -- "+normal", "-0", "quiet NaN" ...; "unknown class" otherwise.  Threads: any. */
MPT_DEF const char *mpt_class_text(mpt_class c);

/* mpt_classify -- the class of a code of any format of the table.
 * Errors: an unknown format is a MPT_CLASS_SIGNALING_NAN.  Threads: any. */
MPT_DEF mpt_class mpt_classify(mpt_format format, uint64_t code);

/* mpt_ulp -- the gap between neighbours of a format in the binade of |value| (of the least normal
 * binade below it): what the last kept bit of a number of that size is worth.
 * Returns: the gap; Inf for Inf, NaN for NaN and for an unknown format.  Exact: yes.  Threads: any. */
MPT_DEF double mpt_ulp(mpt_format format, double value);

/* The parts of a number in a format: value = (-1)^sign * significand * 2^exponent when finite. */
typedef struct mpt_fields {
    mpt_format format;
    mpt_class  kind;
    uint64_t   code;
    unsigned   sign;
    uint64_t   exponent_field, mantissa_field;  /* as stored */
    uint64_t   significand;                     /* with the hidden bit; 0 for Inf and NaN */
    int        exponent;                        /* of the last bit of the significand */
    double     value;       /* what the code stands for */
    double     error;       /* value minus what was asked for; exact unless the format saturated */
    unsigned   flags;                           /* MPT_FLAG_* of the conversion */
} mpt_fields;

/* mpt_anatomy -- round a value to a format (nearest-even) and take the result apart.
 * Returns: the parts; for an unknown format a NaN with MPT_FLAG_INVALID.  Threads: any. */
MPT_DEF mpt_fields mpt_anatomy(mpt_format format, double value);

#define MPT_BITS_TEXT_MAX 67    /* room for every format's text: 64 bits, 2 blanks, the end */

/* mpt_bits_text -- write a code as binary text, fields apart: "0 10010 1010011000".
 *   buf  out  at least cap bytes; always terminated if cap > 0
 * Returns: the length of the whole text, also when it did not fit; 0 for an unknown format. */
MPT_DEF size_t mpt_bits_text(char *buf, size_t cap, mpt_format format, uint64_t code);

// >>H5 bit helpers --------------------------------------------------------------------------------
/* The side on which numbers normal in both formats are comes first. */
#if defined(__GNUC__) || defined(__clang__)
#define MPTI_LIKELY(condition) __builtin_expect((condition) != 0, 1)
#else
#define MPTI_LIKELY(condition) ((condition) != 0)
#endif

MPT_HD uint32_t mpti_f32_bits(float x)
{
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
#endif
}

MPT_HD float mpti_f32_make(uint32_t u)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(u);
#else
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
#endif
}

MPT_HD uint64_t mpti_f64_bits(double x)
{
#ifdef __CUDA_ARCH__
    return (uint64_t)__double_as_longlong(x);
#else
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
#endif
}

MPT_HD double mpti_f64_make(uint64_t u)
{
#ifdef __CUDA_ARCH__
    return __longlong_as_double((long long)u);
#else
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
#endif
}

/* Tests by bits, because isnan() and isinf() fold to false under -ffast-math. */
MPT_HD int mpti_f32_is_finite(float x) { return (mpti_f32_bits(x) & 0x7f800000u) != 0x7f800000u; }
MPT_HD int mpti_f64_is_finite(double x) { return ((mpti_f64_bits(x) >> 52) & 0x7ffu) != 0x7ffu; }

/* Number of zero bits above the highest one bit; x must not be 0. */
MPT_HD int mpti_clz32(uint32_t x)
{
#if defined(__CUDA_ARCH__)
    return __clz((int)x);
#elif defined(__GNUC__) || defined(__clang__)
    return __builtin_clz(x);
#else
    int n = 0;
    for (; !(x & 0x80000000u); x <<= 1) n++;
    return n;
#endif
}

MPT_HD int mpti_clz64(uint64_t x)
{
    const uint32_t high = (uint32_t)(x >> 32);
    return high ? mpti_clz32(high) : 32 + mpti_clz32((uint32_t)x);
}

/* sig >> shift, rounded to nearest, ties to even; 1 <= shift <= 31 (63), and sig leaves room for the sum.
 * Adding half of the last place, less one if the last bit is even, carries into it exactly when due. */
MPT_HD uint32_t mpti_shift_rne32(uint32_t sig, int shift)
{
    return (sig + ((1u << (shift - 1)) - 1u) + ((sig >> shift) & 1u)) >> shift;
}

MPT_HD uint64_t mpti_shift_rne64(uint64_t sig, int shift)
{
    const uint64_t one = 1;
    return (sig + ((one << (shift - 1)) - 1u) + ((sig >> shift) & 1u)) >> shift;
}

/* Narrow the pattern of a double to an IEEE format of at most 32 bits (f16: ebits 5, mbits 10; bf16: 8, 7).
 * Both are constants at every call, so the branches on them fold away.
 *
 *   f64   s eeeeeeeeeee mmmmmmmmmm mmmmmm...mmmm
 *   f16   s       eeeee mmmmmmmmmm|<- 42 bits dropped, one rounding
 */
MPT_HD uint32_t mpti_narrow_f64(uint64_t u, int ebits, int mbits)
{
    const uint64_t one = 1, hidden = one << 52, a = u & ~(one << 63);
    const int      bias = (1 << (ebits - 1)) - 1, drop = 52 - mbits;
    const int      exp_min_normal = 1023 - bias + 1;
    const uint32_t sign = (uint32_t)(u >> 63) << (ebits + mbits);
    const uint32_t inf = ((1u << ebits) - 1u) << mbits;
    const int      exp = (int)(a >> 52);

    if (a > (uint64_t)0x7ff << 52)  /* NaN: set the quiet bit, keep the top of the payload */
        return sign | inf | (1u << (mbits - 1)) | (uint32_t)((a & (hidden - 1u)) >> drop);
    if (exp >= 1023 + bias + 1)     /* Inf, or at least 2^(emax+1) */
        return sign | inf;
    if (exp >= exp_min_normal)      /* rebias; a carry out of the mantissa rightly grows the exponent */
        return sign | (uint32_t)mpti_shift_rne64(a - ((uint64_t)(1023 - bias) << 52), drop);
    {   /* Subnormal or zero: align to the format's last bit. From 54 on, all is below half of it. */
        const int shift = drop + exp_min_normal - exp;
        if (shift > 53) return sign;
        return sign | (uint32_t)mpti_shift_rne64((a & (hidden - 1u)) | hidden, shift);
    }
}

/* Widen a code of an IEEE format of at most 32 bits to the pattern of a double. Exact. */
MPT_HD uint64_t mpti_widen_f64(uint32_t code, int ebits, int mbits)
{
    const int      bias = (1 << (ebits - 1)) - 1;
    const uint64_t sign = (uint64_t)(code >> (ebits + mbits)) << 63;
    const uint32_t exp = (code >> mbits) & ((1u << ebits) - 1u);
    const uint64_t man = code & ((1u << mbits) - 1u), quiet = (uint64_t)1 << 51;

    if (exp == (1u << ebits) - 1u)
        return sign | ((uint64_t)0x7ff << 52) | (man << (52 - mbits)) | (man ? quiet : 0u);
    if (exp)
        return sign | ((uint64_t)(exp + 1023u - (uint32_t)bias) << 52) | (man << (52 - mbits));
    if (!man)
        return sign;
    {   /* Subnormal: shift the highest one bit into the hidden place. */
        const int up = mpti_clz64(man) - (63 - mbits);
        const uint64_t field = (uint64_t)(1023 - bias + 1 - up);
        return sign | (field << 52) | ((man << (52 - mbits + up)) & (((uint64_t)1 << 52) - 1u));
    }
}

// >>H6 scalar conversion: f16 ---------------------------------------------------------------------
/* f32 pattern -> f16 code.
 *
 *   f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *   f16   s    eeeee mmmmmmmmmm|<- 13 bits dropped; ties to even
 *
 *   |x|  0 ........ 2^-25 ........ 2^-14 ............... 65520 ...... Inf   NaN
 *        -> 0 (and 2^-25)  subnormal       normal               Inf         quiet NaN
 */
MPT_HD uint16_t mpti_f16_encode(uint32_t u)
{
    const uint32_t a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
#ifndef __CUDA_ARCH__               /* normal: rebias by 112 = 127 - 15, round off 13 bits */
    if (MPTI_LIKELY(a - 0x38800000u < 0x47800000u - 0x38800000u))
        return (uint16_t)(sign | mpti_shift_rne32(a - 0x38000000u, 13));
    if (a <= 0x33000000u)           /* up to 2^-25, the tie that goes to the even zero */
        return (uint16_t)sign;
#endif
    if (a > 0x7f800000u)            /* NaN: quiet bit set, top of the payload kept */
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
#ifdef __CUDA_ARCH__
    {   /* one instruction; only its NaN differs from ours */
        uint16_t h;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(__uint_as_float(u)));
        return h;
    }
#else
    if (a >= 0x47800000u)           /* 65536 and above; [65520, 65536) rounded up to Inf above */
        return (uint16_t)(sign | 0x7c00u);
    return (uint16_t)(sign | mpti_shift_rne32((a & 0x7fffffu) | 0x800000u, 126 - (int)(a >> 23)));
#endif
}

/* f16 code -> f32 pattern. Exact, except that a signaling NaN becomes quiet. */
MPT_HD uint32_t mpti_f16_decode(uint16_t h)
{
    const uint32_t a = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
#ifndef __CUDA_ARCH__               /* normal: one added to an exponent of zeros or ones leaves no bit here */
    const uint32_t up = (uint32_t)(int32_t)(int16_t)h << 13;
    if (MPTI_LIKELY((up + 0x800000u) & 0xf000000u))
        return (up & 0x8fffe000u) + 0x38000000u;
    if (!a)
        return sign;
#endif
    if (a > 0x7c00u)
        return sign | 0x7fc00000u | (a & 0x3ffu) << 13;
#ifdef __CUDA_ARCH__
    {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
        return __float_as_uint(f);
    }
#else
    if (a == 0x7c00u)
        return sign | 0x7f800000u;
    {   /* subnormal a * 2^-24: the highest one bit becomes the hidden bit */
        const int above = mpti_clz32(a) - 21;
        return sign | (((uint32_t)(113 - above) << 23) + ((a << (13 + above)) & 0x7fffffu));
    }
#endif
}

/* mpt_f16_from_f32 -- float to FP16, nearest, ties to even; one rounding.
 * Overflow (|x| >= 65520) gives Inf, |x| <= 2^-25 gives zero, NaN stays NaN.
 * Exact: correctly rounded.  Parity: bit-exact host/device.  Threads: any.
 * Source: IEEE 754-2019, clauses 3.4 (binary16), 4.3.1, 5.4.2. */
MPT_HD mpt_f16 mpt_f16_from_f32(float x)
{
    mpt_f16 h;
    h.bits = mpti_f16_encode(mpti_f32_bits(x));
    return h;
}

/* mpt_f32_from_f16 -- FP16 to float. Exact; a signaling NaN becomes quiet.  Threads: any. */
MPT_HD float mpt_f32_from_f16(mpt_f16 h) { return mpti_f32_make(mpti_f16_decode(h.bits)); }

/* mpt_f16_from_f64 -- double to FP16 with one rounding (going through float would round twice).
 * Exact: correctly rounded.  Threads: any. */
MPT_HD mpt_f16 mpt_f16_from_f64(double x)
{
    mpt_f16 h;
    h.bits = (uint16_t)mpti_narrow_f64(mpti_f64_bits(x), 5, 10);
    return h;
}

/* mpt_f64_from_f16 -- FP16 to double. Exact; a signaling NaN becomes quiet.  Threads: any. */
MPT_HD double mpt_f64_from_f16(mpt_f16 h) { return mpti_f64_make(mpti_widen_f64(h.bits, 5, 10)); }

// >>H7 scalar conversion: bf16 --------------------------------------------------------------------
/* f32 pattern -> bf16 code: the upper half of a float, rounded.
 *
 *   f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *   bf16  s eeeeeeee mmmmmmm|<- 16 bits dropped; ties to even
 *
 * The exponent range is float's, so one formula serves zero, subnormals, normals and Inf. */
MPT_HD uint16_t mpti_bf16_encode(uint32_t u)
{
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

MPT_HD uint32_t mpti_bf16_decode(uint16_t b)
{
    const uint32_t u = (uint32_t)b << 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : u;
}

/* mpt_bf16_from_f32 -- float to BF16, nearest, ties to even; one rounding; NaN stays NaN.
 * Exact: correctly rounded.  Parity: bit-exact host/device.  Threads: any. */
MPT_HD mpt_bf16 mpt_bf16_from_f32(float x)
{
    mpt_bf16 b;
    b.bits = mpti_bf16_encode(mpti_f32_bits(x));
    return b;
}

/* mpt_f32_from_bf16 -- BF16 to float. Exact; a signaling NaN becomes quiet.  Threads: any. */
MPT_HD float mpt_f32_from_bf16(mpt_bf16 b) { return mpti_f32_make(mpti_bf16_decode(b.bits)); }

/* mpt_bf16_from_f64 -- double to BF16 with one rounding.  Threads: any. */
MPT_HD mpt_bf16 mpt_bf16_from_f64(double x)
{
    mpt_bf16 b;
    b.bits = (uint16_t)mpti_narrow_f64(mpti_f64_bits(x), 8, 7);
    return b;
}

/* mpt_f64_from_bf16 -- BF16 to double. Exact; a signaling NaN becomes quiet.  Threads: any. */
MPT_HD double mpt_f64_from_bf16(mpt_bf16 b) { return mpti_f64_make(mpti_widen_f64(b.bits, 8, 7)); }

// >>H8 scalar conversion: FP8 ----------------------------------------------------------------------
/* f32 pattern -> E4M3 code; `beyond` is what Inf and finite values that overflow become (7 bits).
 *
 *   f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *   e4m3  s     eeee mmm|<- 20 bits dropped; ties to even
 *
 *   |x|  0 ........ 2^-10 ....... 2^-6 ............ 464 ...... Inf   NaN
 *        -> 0 (and 2^-10)  subnormal      normal (and 464)  beyond   NaN
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define MPTI_PTX_FP8 1      /* one instruction encodes what does not overflow and is no NaN */
#endif
MPT_HD uint8_t mpti_e4m3_encode_to(uint32_t u, uint32_t beyond)
{
    const uint32_t a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
    if (a > 0x43e80000u)            /* above 464, the tie that goes to the even 448 */
        return (uint8_t)(sign | (a > 0x7f800000u ? 0x7fu : beyond));
#ifdef MPTI_PTX_FP8
    {   /* two at once, the first one into the upper byte */
        uint16_t pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(__uint_as_float(u)));
        return (uint8_t)pair;
    }
#else
    if (a >= 0x3c800000u)           /* normal: rebias by 120 = 127 - 7 */
        return (uint8_t)(sign | mpti_shift_rne32(a - 0x3c000000u, 20));
    if (a <= 0x3a800000u)
        return (uint8_t)sign;
    return (uint8_t)(sign | mpti_shift_rne32((a & 0x7fffffu) | 0x800000u, 141 - (int)(a >> 23)));
#endif
}

/* f32 pattern -> E5M2 code: the upper byte of an f16, had that been rounded to 2 mantissa bits. A finite
 * value from 61440 on, the tie above 57344, becomes `beyond`, and so does Inf. */
MPT_HD uint8_t mpti_e5m2_encode_to(uint32_t u, uint32_t beyond)
{
    const uint32_t a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
    if (a > 0x7f800000u)            /* NaN: quiet bit set, top of the payload kept */
        return (uint8_t)(sign | 0x7eu | ((a >> 21) & 3u));
    if (a >= 0x47700000u)
        return (uint8_t)(sign | beyond);
#ifdef MPTI_PTX_FP8
    {
        uint16_t pair;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(__uint_as_float(u)));
        return (uint8_t)pair;
    }
#else
    if (a >= 0x38800000u)           /* normal: rebias by 112 = 127 - 15 */
        return (uint8_t)(sign | mpti_shift_rne32(a - 0x38000000u, 21));
    if (a <= 0x37000000u)           /* up to 2^-17, the tie that goes to the even zero */
        return (uint8_t)sign;
    return (uint8_t)(sign | mpti_shift_rne32((a & 0x7fffffu) | 0x800000u, 134 - (int)(a >> 23)));
#endif
}

MPT_HD uint8_t mpti_e4m3_encode(uint32_t u) { return mpti_e4m3_encode_to(u, 0x7fu); }
MPT_HD uint8_t mpti_e5m2_encode(uint32_t u) { return mpti_e5m2_encode_to(u, 0x7cu); }

MPT_HD uint32_t mpti_e4m3_decode(uint8_t c)
{
    const uint32_t sign = (uint32_t)(c & 0x80u) << 24, a = c & 0x7fu;
    if (a == 0x7fu)
        return sign | 0x7fc00000u;
    if (a >= 8u)
        return sign | ((a << 20) + 0x3c000000u);
    if (!a)
        return sign;
    {   /* subnormal a * 2^-9: the highest one bit becomes the hidden bit */
        const int up = mpti_clz32(a) - 28;
        return sign | (((uint32_t)(121 - up) << 23) + ((a << (20 + up)) & 0x7fffffu));
    }
}

/* Every E5M2 code is the upper byte of the f16 code of the same number. */
MPT_HD uint32_t mpti_e5m2_decode(uint8_t c) { return mpti_f16_decode((uint16_t)((uint32_t)c << 8)); }

/* A double rounded to odd as a float: truncated, and the last bit set if anything was cut off. That bit
 * keeps every tie apart from its neighbours, so rounding the float to 22 bits or fewer gives what one
 * rounding of the double gives. Beyond float's range it is the largest float; a NaN stays a NaN. */
MPT_HD uint32_t mpti_f32_odd_from_f64(uint64_t u)
{
    const uint64_t a = u & 0x7fffffffffffffffu;
    const uint32_t sign = (uint32_t)(u >> 32) & 0x80000000u;
    if (a > (uint64_t)0x7ff << 52)
        return sign | 0x7fc00000u | ((uint32_t)(a >> 29) & 0x7fffffu);
    if (a == (uint64_t)0x7ff << 52)
        return sign | 0x7f800000u;
    if (a >= (uint64_t)(1023 + 128) << 52)
        return sign | 0x7f7fffffu;
    if (a < (uint64_t)(1023 - 126) << 52)   /* far below half the least number of the formats in question */
        return sign | (a != 0u);
    return sign | (uint32_t)((a - ((uint64_t)(1023 - 127) << 52)) >> 29) | ((a & 0x1fffffffu) != 0u);
}

/* mpt_e4m3_from_f32, mpt_e5m2_from_f32 -- float to FP8, nearest, ties to even; one rounding. As by
 * mpt_encode's defaults: in E4M3, which has no Inf, overflow (|x| > 464) and Inf give NaN; in E5M2
 * overflow (|x| >= 61440) gives Inf. NaN stays NaN.
 * Exact: correctly rounded.  Parity: bit-exact host/device.  Threads: any.
 * Source: OCP 8-bit Floating Point Specification (OFP8) v1.0, sections 5.1 and 5.2. */
MPT_HD mpt_e4m3 mpt_e4m3_from_f32(float x)
{
    mpt_e4m3 c;
    c.bits = mpti_e4m3_encode(mpti_f32_bits(x));
    return c;
}
MPT_HD mpt_e5m2 mpt_e5m2_from_f32(float x)
{
    mpt_e5m2 c;
    c.bits = mpti_e5m2_encode(mpti_f32_bits(x));
    return c;
}

/* mpt_e4m3_from_f32_sat, mpt_e5m2_from_f32_sat -- the same, saturating: overflow and Inf become the
 * largest finite number of their sign (448, 57344). NaN stays NaN.  Threads: any. */
MPT_HD mpt_e4m3 mpt_e4m3_from_f32_sat(float x)
{
    mpt_e4m3 c;
    c.bits = mpti_e4m3_encode_to(mpti_f32_bits(x), 0x7eu);
    return c;
}
MPT_HD mpt_e5m2 mpt_e5m2_from_f32_sat(float x)
{
    mpt_e5m2 c;
    c.bits = mpti_e5m2_encode_to(mpti_f32_bits(x), 0x7bu);
    return c;
}

/* mpt_f32_from_e4m3, mpt_f32_from_e5m2 -- FP8 to float. Exact; a NaN becomes quiet.  Threads: any. */
MPT_HD float mpt_f32_from_e4m3(mpt_e4m3 c) { return mpti_f32_make(mpti_e4m3_decode(c.bits)); }
MPT_HD float mpt_f32_from_e5m2(mpt_e5m2 c) { return mpti_f32_make(mpti_e5m2_decode(c.bits)); }

/* mpt_e4m3_from_f64, mpt_e5m2_from_f64 -- double to FP8 with one rounding, as from float.  Threads: any. */
MPT_HD mpt_e4m3 mpt_e4m3_from_f64(double x)
{
    mpt_e4m3 c;
    c.bits = mpti_e4m3_encode(mpti_f32_odd_from_f64(mpti_f64_bits(x)));
    return c;
}
MPT_HD mpt_e5m2 mpt_e5m2_from_f64(double x)
{
    mpt_e5m2 c;
    c.bits = mpti_e5m2_encode(mpti_f32_odd_from_f64(mpti_f64_bits(x)));
    return c;
}

/* mpt_f64_from_e4m3, mpt_f64_from_e5m2 -- FP8 to double. Exact; a NaN becomes quiet.  Threads: any. */
MPT_HD double mpt_f64_from_e4m3(mpt_e4m3 c)
{
    return mpti_f64_make(mpti_widen_f64(mpti_e4m3_decode(c.bits), 8, 23));
}
MPT_HD double mpt_f64_from_e5m2(mpt_e5m2 c)
{
    return mpti_f64_make(mpti_widen_f64(mpti_e5m2_decode(c.bits), 8, 23));
}

/* mpt_f16_bits_from_f32, mpt_f32_from_f16_bits and so on -- the same conversions for code that keeps small
 * floats in plain integers.  Threads: any. */
MPT_HD uint16_t mpt_f16_bits_from_f32(float x) { return mpti_f16_encode(mpti_f32_bits(x)); }
MPT_HD uint16_t mpt_f16_bits_from_f64(double x) { return (uint16_t)mpti_narrow_f64(mpti_f64_bits(x), 5, 10); }
MPT_HD float    mpt_f32_from_f16_bits(uint16_t bits) { return mpti_f32_make(mpti_f16_decode(bits)); }
MPT_HD double   mpt_f64_from_f16_bits(uint16_t bits) { return mpti_f64_make(mpti_widen_f64(bits, 5, 10)); }
MPT_HD uint16_t mpt_bf16_bits_from_f32(float x) { return mpti_bf16_encode(mpti_f32_bits(x)); }
MPT_HD uint16_t mpt_bf16_bits_from_f64(double x) { return (uint16_t)mpti_narrow_f64(mpti_f64_bits(x), 8, 7); }
MPT_HD float    mpt_f32_from_bf16_bits(uint16_t bits) { return mpti_f32_make(mpti_bf16_decode(bits)); }
MPT_HD double   mpt_f64_from_bf16_bits(uint16_t bits) { return mpti_f64_make(mpti_widen_f64(bits, 8, 7)); }
MPT_HD uint8_t  mpt_e4m3_bits_from_f32(float x) { return mpti_e4m3_encode(mpti_f32_bits(x)); }
MPT_HD float    mpt_f32_from_e4m3_bits(uint8_t bits) { return mpti_f32_make(mpti_e4m3_decode(bits)); }
MPT_HD uint8_t  mpt_e5m2_bits_from_f32(float x) { return mpti_e5m2_encode(mpti_f32_bits(x)); }
MPT_HD float    mpt_f32_from_e5m2_bits(uint8_t bits) { return mpti_f32_make(mpti_e5m2_decode(bits)); }

// >>H9 classify, neighbours, ulp -------------------------------------------------------------------
/* Both 16-bit formats are sign-magnitude codes that differ only in where the exponent starts, so
 * these helpers take the number of mantissa bits (f16: 10, bf16: 7). */
MPT_HD mpt_class mpti_class16(uint16_t code, int mbits)
{
    const int      negative = code >> 15;
    const unsigned a = code & 0x7fffu, inf = 0x7fffu >> mbits << mbits;
    if (a > inf)
        return (a >> (mbits - 1)) & 1u ? MPT_CLASS_QUIET_NAN : MPT_CLASS_SIGNALING_NAN;
    if (a == inf)
        return negative ? MPT_CLASS_NEG_INF : MPT_CLASS_POS_INF;
    if (a >> mbits)
        return negative ? MPT_CLASS_NEG_NORMAL : MPT_CLASS_POS_NORMAL;
    if (a)
        return negative ? MPT_CLASS_NEG_SUBNORMAL : MPT_CLASS_POS_SUBNORMAL;
    return negative ? MPT_CLASS_NEG_ZERO : MPT_CLASS_POS_ZERO;
}

MPT_HD uint16_t mpti_next_up16(uint16_t code, int mbits)
{
    const unsigned a = code & 0x7fffu, inf = 0x7fffu >> mbits << mbits;
    if (a > inf)
        return (uint16_t)(code | (1u << (mbits - 1)));
    if (!a)
        return 1u;                          /* both zeros go up to the least subnormal */
    if (code & 0x8000u)
        return (uint16_t)(code - 1u);
    return a == inf ? code : (uint16_t)(code + 1u);
}

/* nextDown(x) = -nextUp(-x) */
MPT_HD uint16_t mpti_next_down16(uint16_t code, int mbits)
{
    return (uint16_t)(mpti_next_up16((uint16_t)(code ^ 0x8000u), mbits) ^ 0x8000u);
}

/* mpt_f16_classify, mpt_bf16_classify -- the IEEE class of a number (clause 5.7.2).  Threads: any. */
MPT_HD mpt_class mpt_f16_classify(mpt_f16 h) { return mpti_class16(h.bits, 10); }
MPT_HD mpt_class mpt_bf16_classify(mpt_bf16 b) { return mpti_class16(b.bits, 7); }

/* mpt_f16_next_up, mpt_f16_next_down, and for bf16 -- the neighbour above or below
 * (IEEE 754-2019, clause 5.3.1): the largest finite number goes up to +Inf, +Inf stays, both zeros go
 * to the least subnormal of the direction, the least subnormal goes back to the zero of its sign;
 * a NaN becomes quiet.  Threads: any. */
MPT_HD mpt_f16 mpt_f16_next_up(mpt_f16 h)
{
    h.bits = mpti_next_up16(h.bits, 10);
    return h;
}
MPT_HD mpt_f16 mpt_f16_next_down(mpt_f16 h)
{
    h.bits = mpti_next_down16(h.bits, 10);
    return h;
}
MPT_HD mpt_bf16 mpt_bf16_next_up(mpt_bf16 b)
{
    b.bits = mpti_next_up16(b.bits, 7);
    return b;
}
MPT_HD mpt_bf16 mpt_bf16_next_down(mpt_bf16 b)
{
    b.bits = mpti_next_down16(b.bits, 7);
    return b;
}

/* mpt_f16_ulp, mpt_bf16_ulp -- the gap between neighbours at a number, as in mpt_ulp. */
MPT_DEF float mpt_f16_ulp(mpt_f16 h);
MPT_DEF float mpt_bf16_ulp(mpt_bf16 b);

// >>H10 random bits --------------------------------------------------------------------------------
typedef struct mpt_philox_words { uint32_t word[4]; } mpt_philox_words;

/* mpt_philox_block -- four random words from a counter and a key: Philox4x32-10. Any counter may be asked
 * for in any order, so results depend on neither threads nor vectors.
 * Exact: integers.  Parity: bit-exact host/device.  Threads: any.
 * Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". */
MPT_HD mpt_philox_words mpt_philox_block(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key)
{
    uint32_t         k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    mpt_philox_words r;
    int              i;
    for (i = 0; i < 10; i++) {
        const uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;      /* golden ratio, and square root of 3 less 1 */
        k1 += 0xbb67ae85u;
    }
    r.word[0] = c0;
    r.word[1] = c1;
    r.word[2] = c2;
    r.word[3] = c3;
    return r;
}

/* The other element's view of a word that two share. */
MPT_HD uint32_t mpti_swap_halves(uint32_t word)
{
    return word << 16 | word >> 16;
}

/* mpt_philox -- the random word of one element: word (element mod 4) of the block at counter
 * (low half of element / 8, high half, stream, step) under key seed. What stochastic rounding of arrays uses.
 * Elements 4 to 7 of every eight have the words of elements 0 to 3 with their halves swapped: half the work,
 * and as good. A rounding that drops 16 bits or fewer, as that of any float to bf16 or to a normal f16, looks
 * at the upper half only, so the two are independent; for others they are but for 2^-16.
 * Returns: 32 uniform bits.  Parity: bit-exact host/device.  Threads: any. */
MPT_HD uint32_t mpt_philox(uint64_t seed, uint32_t stream, uint32_t step, uint64_t element)
{
    const uint64_t         block = element >> 3;
    const mpt_philox_words r = mpt_philox_block((uint32_t)block, (uint32_t)(block >> 32), stream, step, seed);
    return element & 4u ? mpti_swap_halves(r.word[element & 3u]) : r.word[element & 3u];
}

// >>H11 arithmetic ---------------------------------------------------------------------------------
/* Arithmetic of f16 and bf16, correctly rounded, in integers only: the same bits and flags on every
 * machine, at any setting of the processor, on the device too. Both formats share each formula.
 *
 * One naming rule, here for f16, the same for bf16:
 *   mpt_f16_add(a, b)                      nearest-even, exceptions not reported
 *   mpt_f16_add_r(a, b, rounding, flags)   any direction; exceptions are or-ed into *flags (or NULL)
 *   mpt_f16_add_sr(a, b, random)           stochastic, with 32 random bits of yours
 * An operation that never rounds takes no rounding in its _r form. An unknown rounding, and stochastic in
 * an _r form, is a wrong call: the quiet NaN and MPT_FLAG_INVALID.
 *
 * NaN: if operands are NaN, the result is the first of them in the order of the arguments, made quiet, its
 * sign and payload kept; a signaling one raises INVALID. An invalid operation without a NaN operand gives
 * the quiet NaN without payload and sign (nan_code of the table). Tininess is detected after rounding; an
 * exact subnormal raises nothing. To-odd and toward-zero overflow to the largest finite number, stochastic
 * too. Sources: IEEE 754-2019, clauses 5 to 7; to odd: Boldo & Melquiond 2008. */
typedef struct mpti_num { uint64_t sig; int exp; unsigned sign; } mpti_num; /* (-1)^sign * sig * 2^exp */

/* What an operation works under: the format, the direction, and the exceptions met so far. */
typedef struct mpti_env {
    int          mbits;             /* f16: 10, bf16: 7; the exponent has the rest of 15 bits */
    mpt_rounding rounding;
    uint32_t     random;
    unsigned     flags;
} mpti_env;

MPT_HD mpti_env mpti_env_make(int mbits, mpt_rounding rounding, uint32_t random)
{
    mpti_env e;
    e.mbits = mbits;
    e.rounding = rounding;
    e.random = random;
    e.flags = 0u;
    return e;
}

MPT_HD unsigned mpti_inf16(const mpti_env *e) { return 0x7fffu >> e->mbits << e->mbits; }
MPT_HD unsigned mpti_nan16(const mpti_env *e) { return mpti_inf16(e) | 1u << (e->mbits - 1); }
MPT_HD int mpti_is_nan16(const mpti_env *e, unsigned code) { return (code & 0x7fffu) > mpti_inf16(e); }
MPT_HD int mpti_is_inf16(const mpti_env *e, unsigned code) { return (code & 0x7fffu) == mpti_inf16(e); }
MPT_HD int mpti_is_snan16(const mpti_env *e, unsigned code)
{
    return mpti_is_nan16(e, code) && !((code >> (e->mbits - 1)) & 1u);
}

MPT_HD unsigned mpti_invalid16(mpti_env *e)
{
    e->flags |= MPT_FLAG_INVALID;
    return mpti_nan16(e);
}

/* The result of an operation with a NaN operand; pass an operand twice where there are fewer. */
MPT_HD unsigned mpti_pick_nan16(mpti_env *e, unsigned a, unsigned b, unsigned c)
{
    if (mpti_is_snan16(e, a) || mpti_is_snan16(e, b) || mpti_is_snan16(e, c))
        e->flags |= MPT_FLAG_INVALID;
    return (mpti_is_nan16(e, a) ? a : mpti_is_nan16(e, b) ? b : c) | 1u << (e->mbits - 1);
}

MPT_HD int mpti_least_exp16(const mpti_env *e) { return 2 - (1 << (14 - e->mbits)) - e->mbits; }

/* A finite code as a number. */
MPT_HD mpti_num mpti_unpack16(const mpti_env *e, unsigned code)
{
    const unsigned field = (code & 0x7fffu) >> e->mbits, man = code & ((1u << e->mbits) - 1u);
    mpti_num       x;
    x.sign = code >> 15;
    x.sig = field ? man | 1u << e->mbits : man;
    x.exp = mpti_least_exp16(e) + (field ? (int)field - 1 : 0);
    return x;
}

/* sig >> shift for shift >= 0, the last bit or-ed with whether anything was lost. */
MPT_HD uint64_t mpti_shift_jam(uint64_t sig, int shift)
{
    if (shift > 63)
        return sig != 0u;
    return sig >> shift | (uint64_t)((sig & (((uint64_t)1 << shift) - 1u)) != 0u);
}

/* Whether dropping the last `shift` bits (1..63) of sig rounds the magnitude up. */
MPT_HD int mpti_drop_goes_up(const mpti_env *e, unsigned sign, uint64_t sig, int shift)
{
    const uint64_t one = 1, rest = sig & ((one << shift) - 1u), half = one << (shift - 1);
    const int      odd = (int)((sig >> shift) & 1u);
    if (!rest)
        return 0;
    switch (e->rounding) {
    case MPT_RND_NEAREST_AWAY: return rest >= half;
    case MPT_RND_TOWARD_ZERO:  return 0;
    case MPT_RND_UP:           return !sign;
    case MPT_RND_DOWN:         return sign != 0u;
    case MPT_RND_ODD:          return !odd;
    case MPT_RND_STOCHASTIC:   return e->random < (shift > 32 ? rest >> (shift - 32) : rest << (32 - shift));
    case MPT_RND_NEAREST_EVEN:
    case MPT_ROUNDING_COUNT:
    default: return rest > half || (rest == half && odd);
    }
}

MPT_HD unsigned mpti_overflow16(mpti_env *e, unsigned sign)
{
    const int to_inf = e->rounding == MPT_RND_NEAREST_EVEN || e->rounding == MPT_RND_NEAREST_AWAY ||
                       e->rounding == (sign ? MPT_RND_DOWN : MPT_RND_UP);
    e->flags |= MPT_FLAG_OVERFLOW | MPT_FLAG_INEXACT;
    return sign << 15 | (mpti_inf16(e) - (to_inf ? 0u : 1u));
}

/* The one place where arithmetic rounds. x.sig is not 0; if its bits are not all of the number, it has
 * mbits + 3 bits or more and the last one is set whatever the rest is. */
MPT_HD unsigned mpti_round16(mpti_env *e, mpti_num x)
{
    const int least = mpti_least_exp16(e), up = mpti_clz64(x.sig), normal_shift = 63 - e->mbits;
    int       exp = x.exp - up, shift = normal_shift, tiny = 0;
    uint64_t  sig = x.sig << up;
    unsigned  code;
    if (exp + shift < least) {          /* subnormal, or tiny numbers that may round up to normal */
        const int deeper = least - exp - shift;
        tiny = deeper > 1 || (sig >> shift) + (uint64_t)mpti_drop_goes_up(e, x.sign, sig, shift) <
                                 (uint64_t)2 << e->mbits;
        if (deeper > e->mbits) {
            sig = mpti_shift_jam(sig, deeper - e->mbits);
            shift = 63;
        } else
            shift += deeper;
        exp = least - shift;
    }
    code = (unsigned)(sig >> shift);
    if (exp + shift - least > 0x7fff >> e->mbits)
        return mpti_overflow16(e, x.sign);
    code += (unsigned)(exp + shift - least) << e->mbits;
    code += (unsigned)mpti_drop_goes_up(e, x.sign, sig, shift);
    if (code >= mpti_inf16(e))
        return mpti_overflow16(e, x.sign);
    if (sig << (64 - shift))
        e->flags |= MPT_FLAG_INEXACT | (tiny ? MPT_FLAG_UNDERFLOW : 0u);
    return x.sign << 15 | code;
}

/* x + y, both not zero, no sig of more than 22 bits. What lies more than 38 bits below the higher number's
 * last bit only sets the last bit of the sum: enough for every direction and for 32 random bits. */
MPT_HD mpti_num mpti_align_add(mpti_num x, mpti_num y)
{
    mpti_num high = x.exp >= y.exp ? x : y, low = x.exp >= y.exp ? y : x;
    int      gap = high.exp - low.exp;
    if (gap > 38) {
        low.sig = mpti_shift_jam(low.sig, gap - 38);
        gap = 38;
    }
    high.sig <<= gap;
    high.exp -= gap;
    if (high.sign == low.sign)
        high.sig += low.sig;
    else if (high.sig >= low.sig)
        high.sig -= low.sig;
    else {
        high.sig = low.sig - high.sig;
        high.sign = low.sign;
    }
    return high;
}

MPT_HD unsigned mpti_sum16(mpti_env *e, mpti_num x, mpti_num y)
{
    mpti_num sum = x.sig && y.sig ? mpti_align_add(x, y) : x.sig ? x : y;
    if (sum.sig)
        return mpti_round16(e, sum);
    if (x.sign == y.sign)
        return x.sign << 15;
    return e->rounding == MPT_RND_DOWN ? 0x8000u : 0u;
}

MPT_HD unsigned mpti_a_add(mpti_env *e, unsigned a, unsigned b)
{
    if (mpti_is_nan16(e, a) || mpti_is_nan16(e, b))
        return mpti_pick_nan16(e, a, b, b);
    if (mpti_is_inf16(e, a) && mpti_is_inf16(e, b) && a != b)
        return mpti_invalid16(e);
    if (mpti_is_inf16(e, a) || mpti_is_inf16(e, b))
        return mpti_is_inf16(e, a) ? a : b;
    return mpti_sum16(e, mpti_unpack16(e, a), mpti_unpack16(e, b));
}

MPT_HD unsigned mpti_a_sub(mpti_env *e, unsigned a, unsigned b)
{
    return mpti_a_add(e, a, mpti_is_nan16(e, b) ? b : b ^ 0x8000u);
}

MPT_HD mpti_num mpti_product(mpti_num x, mpti_num y)
{
    x.sig *= y.sig;
    x.exp += y.exp;
    x.sign ^= y.sign;
    return x;
}

MPT_HD unsigned mpti_a_mul(mpti_env *e, unsigned a, unsigned b)
{
    const unsigned sign = (a ^ b) & 0x8000u;
    mpti_num       product;
    if (mpti_is_nan16(e, a) || mpti_is_nan16(e, b))
        return mpti_pick_nan16(e, a, b, b);
    if (mpti_is_inf16(e, a) || mpti_is_inf16(e, b))
        return a << 1 & 0xffffu && b << 1 & 0xffffu ? sign | mpti_inf16(e) : mpti_invalid16(e);
    product = mpti_product(mpti_unpack16(e, a), mpti_unpack16(e, b));
    return product.sig ? mpti_round16(e, product) : sign;
}

MPT_HD unsigned mpti_a_div(mpti_env *e, unsigned a, unsigned b)
{
    const unsigned sign = (a ^ b) & 0x8000u;
    mpti_num       x, y;
    uint64_t       rest;
    int            up;
    if (mpti_is_nan16(e, a) || mpti_is_nan16(e, b))
        return mpti_pick_nan16(e, a, b, b);
    if (mpti_is_inf16(e, a))
        return mpti_is_inf16(e, b) ? mpti_invalid16(e) : sign | mpti_inf16(e);
    if (mpti_is_inf16(e, b))
        return sign;
    x = mpti_unpack16(e, a);
    y = mpti_unpack16(e, b);
    if (!y.sig) {
        if (!x.sig)
            return mpti_invalid16(e);
        e->flags |= MPT_FLAG_DIVBYZERO;
        return sign | mpti_inf16(e);
    }
    if (!x.sig)
        return sign;
    up = mpti_clz64(x.sig);             /* the quotient gets 52 bits or more, and tells of the rest */
    x.sig <<= up;
    x.exp -= y.exp + up;
    x.sign ^= y.sign;
    rest = x.sig % y.sig;
    x.sig = x.sig / y.sig | (uint64_t)(rest != 0u);
    return mpti_round16(e, x);
}

MPT_HD unsigned mpti_a_fma(mpti_env *e, unsigned a, unsigned b, unsigned c)
{
    const unsigned sign = (a ^ b) & 0x8000u;
    const int      inf = mpti_is_inf16(e, a) || mpti_is_inf16(e, b);
    const int      nan = mpti_is_nan16(e, a) || mpti_is_nan16(e, b);
    if (!nan && inf && !(a << 1 & 0xffffu && b << 1 & 0xffffu)) {
        const unsigned none = mpti_invalid16(e);    /* Inf * 0 is invalid even if a quiet NaN is added */
        return mpti_is_nan16(e, c) ? mpti_pick_nan16(e, c, c, c) : none;
    }
    if (nan || mpti_is_nan16(e, c))
        return mpti_pick_nan16(e, a, b, c);
    if (inf && mpti_is_inf16(e, c) && (c & 0x8000u) != sign)
        return mpti_invalid16(e);
    if (inf)
        return sign | mpti_inf16(e);
    if (mpti_is_inf16(e, c))
        return c;
    return mpti_sum16(e, mpti_product(mpti_unpack16(e, a), mpti_unpack16(e, b)), mpti_unpack16(e, c));
}

MPT_HD unsigned mpti_a_sqrt(mpti_env *e, unsigned a)
{
    mpti_num x;
    uint32_t rest, root = 0u, bit;
    int      up;
    if (mpti_is_nan16(e, a))
        return mpti_pick_nan16(e, a, a, a);
    x = mpti_unpack16(e, a);
    if (!x.sig)
        return a;
    if (x.sign)
        return mpti_invalid16(e);
    if (mpti_is_inf16(e, a))
        return a;
    up = mpti_clz32((uint32_t)x.sig);
    up -= (x.exp - up) & 1;             /* the exponent left over is even */
    rest = (uint32_t)x.sig << up;
    for (bit = 0x40000000u; bit; bit >>= 2) {       /* 16 bits of root, one a turn */
        const uint32_t trial = root + bit;
        root >>= 1;
        if (rest >= trial) {
            rest -= trial;
            root += bit;
        }
    }
    x.sig = (uint64_t)root << 1 | (uint64_t)(rest != 0u);
    x.exp = (x.exp - up) / 2 - 1;
    return mpti_round16(e, x);
}

/* x - n * y, n the integer nearest to x / y, ties to even: always exact. */
MPT_HD unsigned mpti_a_rem(mpti_env *e, unsigned a, unsigned b)
{
    mpti_num x, y;
    uint64_t quotient;
    int      gap;
    if (mpti_is_nan16(e, a) || mpti_is_nan16(e, b))
        return mpti_pick_nan16(e, a, b, b);
    x = mpti_unpack16(e, a);
    y = mpti_unpack16(e, b);
    if (mpti_is_inf16(e, a) || !y.sig)
        return mpti_invalid16(e);
    gap = x.exp - y.exp;
    if (mpti_is_inf16(e, b) || !x.sig || gap < -13)
        return a;                       /* below half of y */
    if (gap < 0) {
        y.sig <<= -gap;
        y.exp += gap;
        gap = 0;
    }
    quotient = x.sig / y.sig;
    x.sig %= y.sig;
    while (gap > 0) {                   /* bring down 32 bits a turn */
        const int step = gap < 32 ? gap : 32;
        quotient = (x.sig << step) / y.sig;
        x.sig = (x.sig << step) % y.sig;
        gap -= step;
    }
    x.exp = y.exp;
    if (2u * x.sig > y.sig || (2u * x.sig == y.sig && quotient & 1u)) {
        x.sig = y.sig - x.sig;
        x.sign ^= 1u;
    }
    return x.sig ? mpti_round16(e, x) : a & 0x8000u;
}

MPT_HD unsigned mpti_a_integral(mpti_env *e, unsigned a, int tell_inexact)
{
    mpti_num x;
    int      shift;
    if (mpti_is_nan16(e, a))
        return mpti_pick_nan16(e, a, a, a);
    x = mpti_unpack16(e, a);
    if (x.exp >= 0 || !x.sig)
        return a;
    shift = -x.exp;
    if (shift > 20) {                   /* below one half: only that it is not 0 counts */
        x.sig = 1u;
        shift = 20;
    }
    if (tell_inexact && x.sig & (((uint64_t)1 << shift) - 1u))
        e->flags |= MPT_FLAG_INEXACT;
    x.sig = (x.sig >> shift) + (uint64_t)mpti_drop_goes_up(e, x.sign, x.sig, shift);
    x.exp = 0;
    return x.sig ? mpti_round16(e, x) : x.sign << 15;
}
MPT_HD unsigned mpti_a_to_integral(mpti_env *e, unsigned a) { return mpti_a_integral(e, a, 0); }
MPT_HD unsigned mpti_a_to_integral_exact(mpti_env *e, unsigned a) { return mpti_a_integral(e, a, 1); }

MPT_HD unsigned mpti_a_scaleb(mpti_env *e, unsigned a, int n)
{
    mpti_num x;
    if (mpti_is_nan16(e, a))
        return mpti_pick_nan16(e, a, a, a);
    x = mpti_unpack16(e, a);
    if (mpti_is_inf16(e, a) || !x.sig)
        return a;
    x.exp += n > 1000 ? 1000 : n < -1000 ? -1000 : n;   /* no format here spans as much */
    return mpti_round16(e, x);
}

MPT_HD unsigned mpti_a_logb(mpti_env *e, unsigned a)
{
    mpti_num x;
    int      exponent;
    if (mpti_is_nan16(e, a))
        return mpti_pick_nan16(e, a, a, a);
    if (mpti_is_inf16(e, a))
        return mpti_inf16(e);
    x = mpti_unpack16(e, a);
    if (!x.sig) {
        e->flags |= MPT_FLAG_DIVBYZERO;
        return 0x8000u | mpti_inf16(e);
    }
    exponent = x.exp + 63 - mpti_clz64(x.sig);
    if (!exponent)
        return 0u;
    x.sign = exponent < 0;
    x.sig = (uint64_t)(exponent < 0 ? -exponent : exponent);
    x.exp = 0;
    return mpti_round16(e, x);
}

/* The codes in the order of the numbers, -0 below +0, NaN outside. */
MPT_HD int mpti_rank16(unsigned code)
{
    return code & 0x8000u ? -(int)(code & 0x7fffu) - 1 : (int)code;
}

/* Where a stands to b: below, equal, above, or not in any order. */
enum { MPTI_LT = 1, MPTI_EQ = 2, MPTI_GT = 4, MPTI_UN = 8 };
MPT_HD int mpti_relation16(mpti_env *e, unsigned a, unsigned b, int signaling)
{
    if (mpti_is_nan16(e, a) || mpti_is_nan16(e, b)) {
        if (signaling || mpti_is_snan16(e, a) || mpti_is_snan16(e, b))
            e->flags |= MPT_FLAG_INVALID;
        return MPTI_UN;
    }
    if (a == b || !((a | b) & 0x7fffu))
        return MPTI_EQ;
    return mpti_rank16(a) < mpti_rank16(b) ? MPTI_LT : MPTI_GT;
}

MPT_HD unsigned mpti_extreme16(mpti_env *e, unsigned a, unsigned b, int largest, int magnitude, int number)
{
    const unsigned size_a = a & 0x7fffu, size_b = b & 0x7fffu;
    const int      nan_a = mpti_is_nan16(e, a), nan_b = mpti_is_nan16(e, b);
    if (nan_a || nan_b) {
        const unsigned nan = mpti_pick_nan16(e, a, b, b);
        return !number || (nan_a && nan_b) ? nan : nan_a ? b : a;
    }
    if (magnitude && size_a != size_b)
        return (size_a < size_b) == !largest ? a : b;
    return (mpti_rank16(a) < mpti_rank16(b)) == !largest ? a : b;
}
#define MPTI_EXTREMES(X)                             \
    X(minimum, 0, 0, 0) X(maximum, 1, 0, 0)          \
    X(minimum_number, 0, 0, 1) X(maximum_number, 1, 0, 1) \
    X(minimum_magnitude, 0, 1, 0) X(maximum_magnitude, 1, 1, 0) \
    X(minimum_magnitude_number, 0, 1, 1) X(maximum_magnitude_number, 1, 1, 1)
#define MPTI_X(op, largest, magnitude, number)                                      \
    MPT_HD unsigned mpti_a_##op(mpti_env *e, unsigned a, unsigned b)                \
    {                                                                               \
        return mpti_extreme16(e, a, b, largest, magnitude, number);                 \
    }
MPTI_EXTREMES(MPTI_X)
#undef MPTI_X

/* totalOrder: negative NaN < -Inf < ... < -0 < +0 < ... < +Inf < NaN, signaling below quiet, by payload. */
MPT_HD int mpti_total_order16(unsigned a, unsigned b) { return mpti_rank16(a) <= mpti_rank16(b); }

/* The typed names. k: number of operands. */
#define MPTI_P1(T) mpt_##T a
#define MPTI_P2(T) mpt_##T a, mpt_##T b
#define MPTI_P3(T) mpt_##T a, mpt_##T b, mpt_##T c
#define MPTI_A1 a.bits
#define MPTI_A2 a.bits, b.bits
#define MPTI_A3 a.bits, b.bits, c.bits
/* Run `call` under rounding and random; return a T. */
#define MPTI_RUN(T, M, rounding_, random_, flags_, call)                                       \
    mpti_env e = mpti_env_make(M, rounding_, random_);                                         \
    unsigned *const raised = (flags_);                                                         \
    mpt_##T r;                                                                                 \
    r.bits = (uint16_t)(call);                                                                 \
    if (raised)                                                                                \
        *raised |= e.flags;                                                                    \
    return r;
#define MPTI_ROUNDS(rounding) ((unsigned)(rounding) < (unsigned)MPT_RND_STOCHASTIC)
#define MPTI_OP_PLAIN(T, M, k, op)                                                             \
    MPT_HD mpt_##T mpt_##T##_##op(MPTI_P##k(T))                                                \
    {                                                                                          \
        MPTI_RUN(T, M, MPT_RND_NEAREST_EVEN, 0u, (unsigned *)0, mpti_a_##op(&e, MPTI_A##k))    \
    }
#define MPTI_OP_ROUNDED(T, M, k, op)                                                           \
    MPT_HD mpt_##T mpt_##T##_##op##_r(MPTI_P##k(T), mpt_rounding rounding, unsigned *flags)    \
    {                                                                                          \
        MPTI_RUN(T, M, rounding, 0u, flags,                                                    \
                 MPTI_ROUNDS(rounding) ? mpti_a_##op(&e, MPTI_A##k) : mpti_invalid16(&e))      \
    }
#define MPTI_OP_FLAGGED(T, M, k, op)                                                           \
    MPT_HD mpt_##T mpt_##T##_##op##_r(MPTI_P##k(T), unsigned *flags)                           \
    {                                                                                          \
        MPTI_RUN(T, M, MPT_RND_NEAREST_EVEN, 0u, flags, mpti_a_##op(&e, MPTI_A##k))            \
    }
#define MPTI_OP_STOCHASTIC(T, M, k, op)                                                        \
    MPT_HD mpt_##T mpt_##T##_##op##_sr(MPTI_P##k(T), uint32_t random)                          \
    {                                                                                          \
        MPTI_RUN(T, M, MPT_RND_STOCHASTIC, random, (unsigned *)0, mpti_a_##op(&e, MPTI_A##k))  \
    }

/* mpt_f16_add, sub, mul, div, fma -- a + b, a - b, a * b, a / b, a * b + c with one rounding; each with
 * its _r form and its _sr form, and the same for bf16.
 * In _sr the probability to go up in magnitude is (discarded part) / (gap), cut to 32 bits: exact results
 * never move, the bias is below 2^-32 of a gap.
 * Exact: correctly rounded.  Parity: bit-exact host/device.  Threads: any.
 * Source: IEEE 754-2019, clauses 5.4.1, 6.2, 6.3, 7; Inf * 0 + NaN is invalid, as in Berkeley TestFloat. */
#define MPTI_ARITHMETIC(T, M, k, op)    \
    MPTI_OP_PLAIN(T, M, k, op)          \
    MPTI_OP_ROUNDED(T, M, k, op)        \
    MPTI_OP_STOCHASTIC(T, M, k, op)
MPTI_ARITHMETIC(f16, 10, 2, add)
MPTI_ARITHMETIC(f16, 10, 2, sub)
MPTI_ARITHMETIC(f16, 10, 2, mul)
MPTI_ARITHMETIC(f16, 10, 2, div)
MPTI_ARITHMETIC(f16, 10, 3, fma)
MPTI_ARITHMETIC(bf16, 7, 2, add)
MPTI_ARITHMETIC(bf16, 7, 2, sub)
MPTI_ARITHMETIC(bf16, 7, 2, mul)
MPTI_ARITHMETIC(bf16, 7, 2, div)
MPTI_ARITHMETIC(bf16, 7, 3, fma)

/* mpt_f16_sqrt, mpt_f16_sqrt_r, and for bf16 -- the square root; of -0 it is -0, below that invalid.
 * mpt_f16_rem, mpt_f16_rem_r(a, b, flags) -- a - n * b, n the integer nearest to a / b, ties to even; exact,
 *   a zero has the sign of a (remainder() of C, clause 5.3.1).
 * mpt_f16_to_integral, mpt_f16_to_integral_r(a, rounding, flags) -- the integral number nearest in the
 *   rounding's direction; INEXACT is not raised (roundToIntegralTiesToEven ... of clause 5.3.1).
 * mpt_f16_to_integral_exact_r(a, rounding, flags) -- the same, raising INEXACT (roundToIntegralExact).
 * mpt_f16_scaleb(a, n), mpt_f16_scaleb_r(a, n, rounding, flags) -- a * 2^n with one rounding; any n.
 * mpt_f16_logb, mpt_f16_logb_r(a, flags) -- floor(log2 |a|), subnormals as if normal; Inf for Inf; -Inf and
 *   DIVBYZERO for 0 (clause 5.3.3).
 * All of them for bf16 too.
 * Exact: correctly rounded.  Parity: bit-exact host/device.  Threads: any. */
#define MPTI_ARITHMETIC_ONE(T, M)                                                              \
    MPTI_OP_PLAIN(T, M, 1, sqrt)                                                               \
    MPTI_OP_ROUNDED(T, M, 1, sqrt)                                                             \
    MPTI_OP_PLAIN(T, M, 2, rem)                                                                \
    MPTI_OP_FLAGGED(T, M, 2, rem)                                                              \
    MPTI_OP_PLAIN(T, M, 1, to_integral)                                                        \
    MPTI_OP_ROUNDED(T, M, 1, to_integral)                                                      \
    MPTI_OP_ROUNDED(T, M, 1, to_integral_exact)                                                \
    MPTI_OP_PLAIN(T, M, 1, logb)                                                               \
    MPTI_OP_FLAGGED(T, M, 1, logb)                                                             \
    MPT_HD mpt_##T mpt_##T##_scaleb_r(mpt_##T a, int n, mpt_rounding rounding, unsigned *flags) \
    {                                                                                          \
        MPTI_RUN(T, M, rounding, 0u, flags,                                                    \
                 MPTI_ROUNDS(rounding) ? mpti_a_scaleb(&e, a.bits, n) : mpti_invalid16(&e))    \
    }                                                                                          \
    MPT_HD mpt_##T mpt_##T##_scaleb(mpt_##T a, int n)                                          \
    {                                                                                          \
        return mpt_##T##_scaleb_r(a, n, MPT_RND_NEAREST_EVEN, (unsigned *)0);                  \
    }
MPTI_ARITHMETIC_ONE(f16, 10)
MPTI_ARITHMETIC_ONE(bf16, 7)

/* mpt_f16_minimum, maximum, minimum_number, maximum_number, minimum_magnitude, maximum_magnitude,
 * minimum_magnitude_number, maximum_magnitude_number; each with its _r(a, b, flags); and for bf16 -- as in
 * IEEE 754-2019, clause 9.6: -0 is below +0; a NaN operand makes a NaN, but in the _number forms only if both
 * are NaN; a signaling NaN raises INVALID; equal magnitudes are decided by the plain form.
 * Exact: yes.  Threads: any. */
#define MPTI_X(op, largest, magnitude, number) \
    MPTI_OP_PLAIN(f16, 10, 2, op)              \
    MPTI_OP_FLAGGED(f16, 10, 2, op)            \
    MPTI_OP_PLAIN(bf16, 7, 2, op)              \
    MPTI_OP_FLAGGED(bf16, 7, 2, op)
MPTI_EXTREMES(MPTI_X)
#undef MPTI_X

/* mpt_f16_eq, ne, lt, le, gt, ge, unordered -- 1 or 0; -0 equals +0; with a NaN only ne and unordered are 1.
 *   mpt_f16_lt(a, b)                   exceptions not reported
 *   mpt_f16_lt_quiet(a, b, flags)      INVALID for a signaling NaN (compareQuietLess ...)
 *   mpt_f16_lt_signaling(a, b, flags)  INVALID for any NaN (compareSignalingLess ...; C's < behaves so)
 * and for bf16.  Exact: yes.  Threads: any.  Source: IEEE 754-2019, clause 5.11. */
#define MPTI_COMPARE(T, M, name, relations)                                                    \
    MPT_HD int mpt_##T##_##name(mpt_##T a, mpt_##T b)                                          \
    {                                                                                          \
        mpti_env e = mpti_env_make(M, MPT_RND_NEAREST_EVEN, 0u);                               \
        return (mpti_relation16(&e, a.bits, b.bits, 0) & (relations)) != 0;                    \
    }                                                                                          \
    MPTI_COMPARE_FLAGGED(T, M, name##_quiet, relations, 0)                                     \
    MPTI_COMPARE_FLAGGED(T, M, name##_signaling, relations, 1)
#define MPTI_COMPARE_FLAGGED(T, M, name, relations, signaling)                                 \
    MPT_HD int mpt_##T##_##name(mpt_##T a, mpt_##T b, unsigned *flags)                         \
    {                                                                                          \
        mpti_env  e = mpti_env_make(M, MPT_RND_NEAREST_EVEN, 0u);                              \
        const int relation = mpti_relation16(&e, a.bits, b.bits, signaling);                   \
        if (flags)                                                                             \
            *flags |= e.flags;                                                                 \
        return (relation & (relations)) != 0;                                                  \
    }
#define MPTI_COMPARES(T, M)                                                                    \
    MPTI_COMPARE(T, M, eq, MPTI_EQ)                                                            \
    MPTI_COMPARE(T, M, ne, MPTI_LT | MPTI_GT | MPTI_UN)                                        \
    MPTI_COMPARE(T, M, lt, MPTI_LT)                                                            \
    MPTI_COMPARE(T, M, le, MPTI_LT | MPTI_EQ)                                                  \
    MPTI_COMPARE(T, M, gt, MPTI_GT)                                                            \
    MPTI_COMPARE(T, M, ge, MPTI_GT | MPTI_EQ)                                                  \
    MPTI_COMPARE(T, M, unordered, MPTI_UN)
MPTI_COMPARES(f16, 10)
MPTI_COMPARES(bf16, 7)

/* mpt_f16_total_order(a, b), mpt_f16_total_order_mag(a, b) -- whether a stands at or before b in the order
 * of all codes: -NaN, -Inf, numbers, -0, +0, numbers, +Inf, NaN; signaling NaN nearer to Inf than quiet; the
 * second form compares |a| and |b|.
 * mpt_f16_neg, mpt_f16_abs, mpt_f16_copysign(a, b) -- only the sign bit changes (to b's), of a NaN too.
 * All for bf16 too.  Exact: yes.  Threads: any.  Source: IEEE 754-2019, clauses 5.10, 5.5.1. */
#define MPTI_SIGNS(T)                                                                          \
    MPT_HD int mpt_##T##_total_order(mpt_##T a, mpt_##T b)                                     \
    {                                                                                          \
        return mpti_total_order16(a.bits, b.bits);                                             \
    }                                                                                          \
    MPT_HD int mpt_##T##_total_order_mag(mpt_##T a, mpt_##T b)                                 \
    {                                                                                          \
        return mpti_total_order16(a.bits & 0x7fffu, b.bits & 0x7fffu);                         \
    }                                                                                          \
    MPT_HD mpt_##T mpt_##T##_neg(mpt_##T a)                                                    \
    {                                                                                          \
        a.bits = (uint16_t)(a.bits ^ 0x8000u);                                                 \
        return a;                                                                              \
    }                                                                                          \
    MPT_HD mpt_##T mpt_##T##_abs(mpt_##T a)                                                    \
    {                                                                                          \
        a.bits = (uint16_t)(a.bits & 0x7fffu);                                                 \
        return a;                                                                              \
    }                                                                                          \
    MPT_HD mpt_##T mpt_##T##_copysign(mpt_##T a, mpt_##T b)                                    \
    {                                                                                          \
        a.bits = (uint16_t)((a.bits & 0x7fffu) | (b.bits & 0x8000u));                          \
        return a;                                                                              \
    }
MPTI_SIGNS(f16)
MPTI_SIGNS(bf16)

/* mpt_f16_add_n, sub_n, mul_n(dst, a, b, n), mpt_f16_fma_n(dst, a, b, c, n), and for bf16 -- arrays: each
 * element as by mpt_f16_add and so on.
 *   dst      out  [n]
 *   a, b, c  in   [n]
 * In place: dst may be a, b or c itself; no other overlap. With AVX2, AVX-512 or AVX512-FP16, chosen at run
 * time, at some elements a cycle; elsewhere the scalar integers.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0 (nothing is written).
 * Exact: bit for bit the scalar function, NaN included, on every path and at any setting of the processor
 * (rounding, flush to zero), which is found unchanged.  Threads: any. */
MPT_DEF mpt_status mpt_f16_add_n(mpt_f16 *dst, const mpt_f16 *a, const mpt_f16 *b, size_t n);
MPT_DEF mpt_status mpt_f16_sub_n(mpt_f16 *dst, const mpt_f16 *a, const mpt_f16 *b, size_t n);
MPT_DEF mpt_status mpt_f16_mul_n(mpt_f16 *dst, const mpt_f16 *a, const mpt_f16 *b, size_t n);
MPT_DEF mpt_status mpt_f16_fma_n(mpt_f16 *dst, const mpt_f16 *a, const mpt_f16 *b, const mpt_f16 *c,
                                 size_t n);
MPT_DEF mpt_status mpt_bf16_add_n(mpt_bf16 *dst, const mpt_bf16 *a, const mpt_bf16 *b, size_t n);
MPT_DEF mpt_status mpt_bf16_sub_n(mpt_bf16 *dst, const mpt_bf16 *a, const mpt_bf16 *b, size_t n);
MPT_DEF mpt_status mpt_bf16_mul_n(mpt_bf16 *dst, const mpt_bf16 *a, const mpt_bf16 *b, size_t n);
MPT_DEF mpt_status mpt_bf16_fma_n(mpt_bf16 *dst, const mpt_bf16 *a, const mpt_bf16 *b, const mpt_bf16 *c,
                                  size_t n);

// >>H12 text ---------------------------------------------------------------------------------------
/* Decimal and hexadecimal text of every format of the table and of described ones. Locale-independent: the
 * point is '.'. Rounded once, from the text to the format, never through double.
 *
 * Written form: the fewest decimal digits that nearest-even reads back as the same code (of those the one
 * nearest to the value, an even last digit if two are), as if the format went on beyond its largest number.
 * Plain where the first digit stands for 10^-4 ... 10^15 ("0.0001", "65500", which reads as 65504), with an
 * exponent elsewhere ("6e-8", "3.39e38"). Hexadecimal: "0x1.8p-3", always with a leading 1, but "0x0p+0" for
 * zero. Inf and NaN: "inf", "nan", "nan(0x1f)" with a payload, "snan(0x1)" for a signaling one, each with
 * "-" in front if the sign bit is set. What was written reads back as the same code, of a NaN too.
 *
 * Read form, in full, no blanks, letters of either case:
 *   [+-] digits [. digits] [e [+-] digits]             digits before or after the point may lack, not both
 *   [+-] 0x hexdigits [. hexdigits] [p [+-] digits]    the exponent is one of 2
 *   [+-] inf | infinity | nan | snan | nan(payload) | snan(payload)     payload: decimal or 0x and hex */
#define MPT_TEXT_MAX 32     /* room for the text of any code of any format of 64 bits or less, and its end */
#define MPT_TEXT_TO_NUL ((size_t)-1)

/* mpt_to_text, mpt_to_hex_text -- the text of a code.
 *   buf  out  at least cap bytes; always terminated if cap > 0; MPT_TEXT_MAX is enough
 * Returns: the length of the whole text, also when it did not fit (as snprintf); 0 for an unknown format.
 * Exact: yes, see above.  Threads: any.  Source: Steele & White 1990; Burger & Dybvig 1996. */
MPT_DEF size_t mpt_to_text(char *buf, size_t cap, mpt_format format, uint64_t code);
MPT_DEF size_t mpt_to_hex_text(char *buf, size_t cap, mpt_format format, uint64_t code);

/* mpt_to_text_as, mpt_to_hex_text_as -- the same for a described format. */
MPT_DEF size_t mpt_to_text_as(char *buf, size_t cap, const mpt_format_info *info, uint64_t code);
MPT_DEF size_t mpt_to_hex_text_as(char *buf, size_t cap, const mpt_format_info *info, uint64_t code);

/* mpt_from_text -- the code of a text, correctly rounded whatever its length.
 *   text    in      not NULL; need not be terminated if length tells where it ends
 *   length  in      bytes of text, or MPT_TEXT_TO_NUL
 *   opts    in      NULL for the defaults, as in mpt_encode
 *   flags   in/out  NULL, or exceptions that are or-ed in, as in mpt_encode
 *   code    out     not NULL; kept on an error
 *   end     out     NULL, or where reading ended: the length, or in malformed text the first byte with which
 *                   it can no longer become a number (the length if it merely stops too early)
 * A signaling NaN stays one and raises nothing.  Returns: MPT_OK.  Errors: MPT_E_DATA for malformed text and
 * for a payload that the format has no room for; MPT_E_ARG for NULL, an unknown format or rounding.
 * Exact: correctly rounded, any length, any exponent.  Threads: any.  Source: IEEE 754-2019, clause 5.12. */
MPT_DEF mpt_status mpt_from_text(mpt_format format, const char *text, size_t length, const mpt_opts *opts,
                                 unsigned *flags, uint64_t *code, size_t *end);

/* mpt_from_text_as -- the same for a described format. */
MPT_DEF mpt_status mpt_from_text_as(const mpt_format_info *info, const char *text, size_t length,
                                    const mpt_opts *opts, unsigned *flags, uint64_t *code, size_t *end);

/* mpt_f16_to_text, mpt_f16_to_hex_text, and for bf16, e4m3, e5m2 -- mpt_to_text of the type's format. */
MPT_DEF size_t mpt_f16_to_text(char *buf, size_t cap, mpt_f16 h);
MPT_DEF size_t mpt_bf16_to_text(char *buf, size_t cap, mpt_bf16 b);
MPT_DEF size_t mpt_e4m3_to_text(char *buf, size_t cap, mpt_e4m3 q);
MPT_DEF size_t mpt_e5m2_to_text(char *buf, size_t cap, mpt_e5m2 q);
MPT_DEF size_t mpt_f16_to_hex_text(char *buf, size_t cap, mpt_f16 h);
MPT_DEF size_t mpt_bf16_to_hex_text(char *buf, size_t cap, mpt_bf16 b);
MPT_DEF size_t mpt_e4m3_to_hex_text(char *buf, size_t cap, mpt_e4m3 q);
MPT_DEF size_t mpt_e5m2_to_hex_text(char *buf, size_t cap, mpt_e5m2 q);

/* mpt_f16_from_text, and for bf16, e4m3, e5m2 -- a terminated text, nearest-even; *value is kept on an error.
 * Returns: MPT_OK.  Errors: MPT_E_DATA, MPT_E_ARG as mpt_from_text, which also tells where. */
MPT_DEF mpt_status mpt_f16_from_text(const char *text, mpt_f16 *value);
MPT_DEF mpt_status mpt_bf16_from_text(const char *text, mpt_bf16 *value);
MPT_DEF mpt_status mpt_e4m3_from_text(const char *text, mpt_e4m3 *value);
MPT_DEF mpt_status mpt_e5m2_from_text(const char *text, mpt_e5m2 *value);

// >>H13 arrays -------------------------------------------------------------------------------------
/* Every ordered pair of f64, f32, f16, bf16, e4m3, e5m2, one row each: destination, source, their C types,
 * and the conversion of the source's pattern in_. Whatever fits into a float goes through its pattern, which
 * is exact; doubles are rounded once. */
#define MPT_PAIRS(X)                                                                                    \
    X(f64,  f32,  double,   float,    mpti_widen_f64(in_, 8, 23))                                       \
    X(f64,  f16,  double,   mpt_f16,  mpti_widen_f64(in_, 5, 10))                                       \
    X(f64,  bf16, double,   mpt_bf16, mpti_widen_f64(in_, 8, 7))                                        \
    X(f64,  e4m3, double,   mpt_e4m3, mpti_widen_f64(mpti_e4m3_decode(in_), 8, 23))                     \
    X(f64,  e5m2, double,   mpt_e5m2, mpti_widen_f64(mpti_e5m2_decode(in_), 8, 23))                     \
    X(f32,  f64,  float,    double,   mpti_narrow_f64(in_, 8, 23))                                      \
    X(f32,  f16,  float,    mpt_f16,  mpti_f16_decode(in_))                                             \
    X(f32,  bf16, float,    mpt_bf16, mpti_bf16_decode(in_))                                            \
    X(f32,  e4m3, float,    mpt_e4m3, mpti_e4m3_decode(in_))                                            \
    X(f32,  e5m2, float,    mpt_e5m2, mpti_e5m2_decode(in_))                                            \
    X(f16,  f64,  mpt_f16,  double,   mpti_narrow_f64(in_, 5, 10))                                      \
    X(f16,  f32,  mpt_f16,  float,    mpti_f16_encode(in_))                                             \
    X(f16,  bf16, mpt_f16,  mpt_bf16, mpti_f16_encode(mpti_bf16_decode(in_)))                           \
    X(f16,  e4m3, mpt_f16,  mpt_e4m3, mpti_f16_encode(mpti_e4m3_decode(in_)))                           \
    X(f16,  e5m2, mpt_f16,  mpt_e5m2, mpti_f16_encode(mpti_e5m2_decode(in_)))                           \
    X(bf16, f64,  mpt_bf16, double,   mpti_narrow_f64(in_, 8, 7))                                       \
    X(bf16, f32,  mpt_bf16, float,    mpti_bf16_encode(in_))                                            \
    X(bf16, f16,  mpt_bf16, mpt_f16,  mpti_bf16_encode(mpti_f16_decode(in_)))                           \
    X(bf16, e4m3, mpt_bf16, mpt_e4m3, mpti_bf16_encode(mpti_e4m3_decode(in_)))                          \
    X(bf16, e5m2, mpt_bf16, mpt_e5m2, mpti_bf16_encode(mpti_e5m2_decode(in_)))                          \
    X(e4m3, f64,  mpt_e4m3, double,   mpti_e4m3_encode(mpti_f32_odd_from_f64(in_)))                     \
    X(e4m3, f32,  mpt_e4m3, float,    mpti_e4m3_encode(in_))                                            \
    X(e4m3, f16,  mpt_e4m3, mpt_f16,  mpti_e4m3_encode(mpti_f16_decode(in_)))                           \
    X(e4m3, bf16, mpt_e4m3, mpt_bf16, mpti_e4m3_encode(mpti_bf16_decode(in_)))                          \
    X(e4m3, e5m2, mpt_e4m3, mpt_e5m2, mpti_e4m3_encode(mpti_e5m2_decode(in_)))                          \
    X(e5m2, f64,  mpt_e5m2, double,   mpti_e5m2_encode(mpti_f32_odd_from_f64(in_)))                     \
    X(e5m2, f32,  mpt_e5m2, float,    mpti_e5m2_encode(in_))                                            \
    X(e5m2, f16,  mpt_e5m2, mpt_f16,  mpti_e5m2_encode(mpti_f16_decode(in_)))                           \
    X(e5m2, bf16, mpt_e5m2, mpt_bf16, mpti_e5m2_encode(mpti_bf16_decode(in_)))                          \
    X(e5m2, e4m3, mpt_e5m2, mpt_e4m3, mpti_e5m2_encode(mpti_e4m3_decode(in_)))

/* mpt_DST_from_SRC_n -- convert n numbers, DST and SRC any two of f64, f32, f16, bf16, e4m3, e5m2:
 *
 *     mpt_status mpt_f16_from_f32_n(mpt_f16 *dst, const float *src, size_t n);
 *
 *   dst  out  [n], any alignment
 *   src  in   [n], any alignment; nothing before or after the n elements is read
 * Nearest, ties to even, one rounding, as by the scalar function of the same name (pairs without one: as by
 * mpt_encode of mpt_decode). In place: a call may write over its own source where an element of dst is no
 * larger than one of src (both start at the same address); any other overlap is not allowed.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0 (nothing is written).
 * Exact: the same bits on every path, NaN included.  Threads: any. */
#define MPTI_X(d, s, dst_type, src_type, convert) \
    MPT_DEF mpt_status mpt_##d##_from_##s##_n(dst_type *dst, const src_type *src, size_t n);
MPT_PAIRS(MPTI_X)
#undef MPTI_X

/* mpt_e4m3_from_f32_sat_n, mpt_e5m2_from_f32_sat_n -- the same, saturating, as by mpt_e4m3_from_f32_sat. */
MPT_DEF mpt_status mpt_e4m3_from_f32_sat_n(mpt_e4m3 *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_e5m2_from_f32_sat_n(mpt_e5m2 *dst, const float *src, size_t n);

/* mpt_f16_bits_from_f32_n, mpt_f32_from_f16_bits_n, and for bf16 -- the same on arrays of plain integers. */
MPT_DEF mpt_status mpt_f16_bits_from_f32_n(uint16_t *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_f32_from_f16_bits_n(float *dst, const uint16_t *src, size_t n);
MPT_DEF mpt_status mpt_bf16_bits_from_f32_n(uint16_t *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_f32_from_bf16_bits_n(float *dst, const uint16_t *src, size_t n);

/* mpt_convert_n -- convert n numbers between any two formats of the table, known at run time.
 *   dst    out     [n] elements of mpt_format_get(dst_format)->bytes each, any alignment
 *   src    in      [n] likewise; in TF32 and formats below 8 bits each element holds one code in its low bits
 *   opts   in      NULL for the defaults
 *   flags  in/out  NULL, or exception flags of all elements, or-ed in
 * Element by element as mpt_encode of the source's value; a signaling NaN raises INVALID. In place as above.
 * Without options and flags, and between the six formats of MPT_PAIRS, as fast as the typed functions,
 * and from a format to itself a copy, codes unchanged; otherwise every element takes the slow path.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, an unknown format or option (nothing is
 * written).  Threads: any. */
MPT_DEF mpt_status mpt_convert_n(mpt_format dst_format, void *dst, mpt_format src_format, const void *src,
                                 size_t n, const mpt_opts *opts, unsigned *flags);

/* mpt_convert_strided -- the same with dst_stride and src_stride bytes from one element to the next: columns,
 * fields of records, every k-th sample. Strides may be negative, then the pointer is that of the first
 * element converted and the last one in memory; a source stride of 0 repeats one element. Bytes between the
 * elements are not touched. Elements may be at any alignment, but must not overlap in dst. Source and
 * destination do not overlap, or start at the same address with the same stride.
 * Errors: as mpt_convert_n.  Threads: any. */
MPT_DEF mpt_status mpt_convert_strided(mpt_format dst_format, void *dst, ptrdiff_t dst_stride,
                                       mpt_format src_format, const void *src, ptrdiff_t src_stride,
                                       size_t n, const mpt_opts *opts, unsigned *flags);

/* The order of the bytes of one element in memory. */
typedef enum mpt_byte_order { MPT_NATIVE_ENDIAN, MPT_LITTLE_ENDIAN, MPT_BIG_ENDIAN } mpt_byte_order;

/* mpt_convert_bytes_n -- the same as mpt_convert_n for the bytes of a file or a message, in the byte order of
 * each side: big-endian halves of an image into native floats, native floats into little-endian doubles.
 * Errors: as mpt_convert_n; MPT_E_ARG for an unknown order.  Threads: any. */
MPT_DEF mpt_status mpt_convert_bytes_n(mpt_format dst_format, void *dst, mpt_byte_order dst_order,
                                       mpt_format src_format, const void *src, mpt_byte_order src_order,
                                       size_t n, const mpt_opts *opts, unsigned *flags);

/* mpt_convert_checked_n -- mpt_convert_n for those who take overflow for an error: every element is checked
 * before anything is written.
 *   bad  out  NULL, or the index of the first element that does not fit; kept if there is none
 * An element does not fit if it is finite and rounds beyond the largest finite number, also where it would
 * saturate; if it is Inf or NaN and the format has none; if it is negative and the format has no sign.
 * Inexact results and underflow are no errors (see mpt_inexact_n).
 * Returns: MPT_OK.  Errors: MPT_E_RANGE, and as mpt_convert_n (nothing is written to dst).  Threads: any. */
MPT_DEF mpt_status mpt_convert_checked_n(mpt_format dst_format, void *dst, mpt_format src_format,
                                         const void *src, size_t n, const mpt_opts *opts, size_t *bad);

/* mpt_inexact_n -- how many of n elements another format does not have (mpt_is_exact), and the first of them.
 *   count  out  NULL, or the number of such elements
 *   first  out  NULL, or the index of the first one; n if there is none
 * Returns: MPT_OK.  Errors: MPT_E_ARG as mpt_convert_n (nothing is written).  Threads: any. */
MPT_DEF mpt_status mpt_inexact_n(mpt_format format, mpt_format src_format, const void *src, size_t n,
                                 size_t *count, size_t *first);

/* mpt_decode_n, mpt_encode_n -- mpt_convert_n to float and from float, with the defaults. */
MPT_DEF mpt_status mpt_decode_n(float *dst, mpt_format format, const void *src, size_t n);
MPT_DEF mpt_status mpt_encode_n(void *dst, mpt_format format, const float *src, size_t n);

/* mpt_quantize_n, mpt_quantize_f64_n -- round n numbers to a format and keep them as floats or doubles.
 *   dst     out  [n], may be src
 *   src     in   [n]
 *   format  in   any of the table
 *   opts    in   NULL for the defaults
 * Element by element the value mpt_decode gives for mpt_encode's code, as a float (in formats beyond float's
 * range a number may round to 2^128: that is Inf).
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, an unknown format or option (nothing is written).
 * Threads: any. */
MPT_DEF mpt_status mpt_quantize_n(float *dst, const float *src, size_t n, mpt_format format,
                                  const mpt_opts *opts);
MPT_DEF mpt_status mpt_quantize_f64_n(double *dst, const double *src, size_t n, mpt_format format,
                                      const mpt_opts *opts);

/* mpt_quantize_as_n, mpt_quantize_as_f64_n -- the same for a format of your own (mpt_format_define). */
MPT_DEF mpt_status mpt_quantize_as_n(float *dst, const float *src, size_t n, const mpt_format_info *info,
                                     const mpt_opts *opts);
MPT_DEF mpt_status mpt_quantize_as_f64_n(double *dst, const double *src, size_t n,
                                         const mpt_format_info *info, const mpt_opts *opts);

/* mpt_simd_name -- which path the array functions take on this processor: "portable", "sse2", "avx2",
 * "avx512", "avx512bf16", "neon" or "neonhp". */
MPT_DEF const char *mpt_simd_name(void);

// >>H14 blocks -------------------------------------------------------------------------------------
/* Block formats: small elements that share a scale. Name, format of the elements, of the scale, elements per
 * block. A number is element * scale (* tensor scale for NVFP4).
 * Source: OCP Microscaling Formats (MX) v1.0, section 5.1; NVFP4 as in NVIDIA's cuBLAS and cuDNN. */
#define MPT_BLOCKS(X)                                          \
    X(MPT_MXFP8_E4M3, "mxfp8_e4m3", MPT_E4M3, MPT_E8M0,  32)   \
    X(MPT_MXFP8_E5M2, "mxfp8_e5m2", MPT_E5M2, MPT_E8M0,  32)   \
    X(MPT_MXFP6_E3M2, "mxfp6_e3m2", MPT_E3M2, MPT_E8M0,  32)   \
    X(MPT_MXFP6_E2M3, "mxfp6_e2m3", MPT_E2M3, MPT_E8M0,  32)   \
    X(MPT_MXFP4,      "mxfp4",      MPT_E2M1, MPT_E8M0,  32)   \
    X(MPT_NVFP4,      "nvfp4",      MPT_E2M1, MPT_UE4M3, 16)

typedef enum mpt_block {
#define MPTI_X(id, name, element, scale, size) id,
    MPT_BLOCKS(MPTI_X)
#undef MPTI_X
    MPT_BLOCK_COUNT
} mpt_block;

typedef struct mpt_block_info {
    const char *name;
    mpt_format  element, scale;
    int         size;               /* elements per block; the last block of an array may be shorter */
} mpt_block_info;

/* mpt_block_get -- the facts of a block format.
 * Returns: a pointer that lives forever; NULL for an unknown format.  Threads: any. */
MPT_DEF const mpt_block_info *mpt_block_get(mpt_block block);

/* How the scale of a block follows from amax, its largest magnitude.
 *             E8M0 (MX)                                          UE4M3 (NVFP4)
 *   FLOOR     2^(floor(log2 amax) - emax): MX v1.0, section 6.3    amax / (6 * tensor scale) rounded down
 *   CEIL      the least power of two that needs no clamping        ... rounded up
 *   ROUND     FLOOR after amax is rounded to the element's bits    ... rounded to nearest, ties to even
 *   DEFAULT   FLOOR                                                ROUND
 * emax is the exponent of the element format's largest number. The scale is clamped to its format's finite
 * range; a block that is not all zeros never gets the scale zero but the least one above. */
typedef enum mpt_scale_rule {
    MPT_SCALE_DEFAULT, MPT_SCALE_FLOOR, MPT_SCALE_CEIL, MPT_SCALE_ROUND
} mpt_scale_rule;

/* Zero-initialised options are the defaults: the format's own scale rule, one code a byte, tensor scale 1,
 * elements rounded to nearest-even. */
typedef struct mpt_block_opts {
    mpt_scale_rule scale_rule;
    int            packed;          /* nonzero: element codes lie side by side, as mpt_pack_n does it */
    float          tensor_scale;    /* NVFP4 only: finite and positive; 0 stands for 1 */
    mpt_opts       element;         /* of the elements' rounding; overflow always saturates */
} mpt_block_opts;

/* mpt_block_quantize_n -- n floats to element codes and scales.
 *   codes   out  [n], or [mpt_packed_size(n, bits)] if packed
 *   scales  out  [(n + size - 1) / size]
 *   src     in   [n]
 *   opts    in   NULL for the defaults
 * Each element is x / (the scale as stored * tensor scale), that quotient rounded once; beyond the largest
 * element it is clamped; -0 stays -0. A block of zeros gets scale code 0. A block with a NaN or an Inf in it
 * gets the scale NaN and zero elements, so that all of it comes back as NaN. The last block may be partial.
 * The arrays do not overlap.  Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, an unknown block,
 * option or tensor scale (nothing is written).  Exact: yes.  Threads: any. */
MPT_DEF mpt_status mpt_block_quantize_n(mpt_block block, uint8_t *codes, uint8_t *scales, const float *src,
                                        size_t n, const mpt_block_opts *opts);

/* mpt_block_dequantize_n -- element codes and scales to n floats: element * scale * tensor scale, rounded
 * once to nearest, ties to even (exact in MX, but for numbers beyond the largest float, which give Inf). A
 * NaN scale or element gives the positive quiet NaN. Bits above a code's width are ignored. Of the options
 * packed and tensor_scale count.
 * Returns: MPT_OK.  Errors: as above.  Exact: yes.  Threads: any. */
MPT_DEF mpt_status mpt_block_dequantize_n(mpt_block block, float *dst, const uint8_t *codes,
                                          const uint8_t *scales, size_t n, const mpt_block_opts *opts);

/* mpt_block_tensor_scale -- the tensor scale for NVFP4 with which no block's scale needs clamping: the
 * largest finite magnitude of n floats / (6 * 448), as a float, and at least the least float; 1 if there is
 * none above zero, and for the MX formats.
 * Returns: MPT_OK.  Errors: MPT_E_ARG (*scale is kept).  Threads: any. */
MPT_DEF mpt_status mpt_block_tensor_scale(mpt_block block, const float *src, size_t n, float *scale);

/* mpt_packed_size -- bytes that n codes of `bits` bits (1..8) take side by side.  Threads: any. */
MPT_DEF size_t mpt_packed_size(size_t n, int bits);

/* mpt_pack_n, mpt_unpack_n -- n codes of 1..8 bits, one a byte, to side by side, and back. Bit k of code i is
 * bit (i * bits + k) of the packed string, and bit j of that string is bit j mod 8 of byte j / 8: the first
 * of two 4-bit codes is the low half of the byte. Bits above `bits` are ignored; unused bits of the last
 * byte are zero. Packing may work in place; unpacking may not.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0 or other bits (nothing is written).
 * Threads: any. */
MPT_DEF mpt_status mpt_pack_n(uint8_t *packed, const uint8_t *codes, size_t n, int bits);
MPT_DEF mpt_status mpt_unpack_n(uint8_t *codes, const uint8_t *packed, size_t n, int bits);

#endif /* MPT_HALF_H */

#if defined(MPT_STATIC) && !defined(MPTI_STATIC_CHOSEN)
#error "define MPT_STATIC before the first include of any mpt header in this file"
#endif
#if (defined(MPT_IMPLEMENTATION) || defined(MPT_STATIC)) && !defined(MPT_HALF_IMPLEMENTATION)
#define MPT_HALF_IMPLEMENTATION
#endif

// >>H15 implementation: formats, codec -------------------------------------------------------------
#if defined(MPT_HALF_IMPLEMENTATION) && !defined(MPTI_HALF_IMPLEMENTED)
#define MPTI_HALF_IMPLEMENTED

MPT_DEF int mpt_version(void) { return MPT_VERSION; }

MPT_DEF const char *mpt_status_text(mpt_status status)
{
    switch ((int)status) {
#define MPTI_X(id, value, text) case value: return text;
        MPT_STATUSES(MPTI_X)
#undef MPTI_X
    default: return "unknown status";
    }
}

/* ---- which vector instructions ---- */

/* tcc has no intrinsics, nvcc's host pass does not take target attributes on them, and MSVC has no
 * __builtin_cpu_supports: portable there. */
#if MPT_SIMD && (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__)) && \
    !defined(__TINYC__) && !defined(__CUDACC__)
#define MPTI_X86 1
#include <immintrin.h>
#else
#define MPTI_X86 0
#endif
#if MPT_SIMD && defined(__aarch64__) && !defined(__AARCH64EB__) && \
    (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__) && !defined(__CUDACC__)
#define MPTI_ARM 1
#include <arm_neon.h>
#else
#define MPTI_ARM 0
#endif

/* The paths in order, as numbered by MPT_SIMD; each may use what those before it use. SSE2 and NEON are the
 * baseline of x86-64 and aarch64. AVX2 stands for FMA and F16C too: every processor with AVX2 has them, and
 * clang 14's __builtin_cpu_supports knows no "f16c". AVX512 is F, BW, DQ and VL. NEONHP is what every aarch64
 * has for half precision, while its control register stands as a program finds it. */
enum {
    MPTI_PATH_PORTABLE = 0, MPTI_PATH_SSE2 = 2, MPTI_PATH_NEON = 2, MPTI_PATH_AVX2 = 3, MPTI_PATH_NEONHP = 3,
    MPTI_PATH_AVX512 = 4, MPTI_PATH_AVX512BF16 = 5
};

/* The last path allowed; tests and benchmarks put a variable of theirs here. gcc for Windows aligns the stack
 * to 16 bytes, even where it puts longer vectors there. */
#ifndef MPTI_LAST_PATH
#if MPT_SIMD && defined(_WIN32) && !defined(__clang__)
#define MPTI_LAST_PATH MPTI_PATH_SSE2
#elif MPT_SIMD == 1
#define MPTI_LAST_PATH MPTI_PATH_AVX512BF16
#else
#define MPTI_LAST_PATH MPT_SIMD
#endif
#endif

#if MPTI_ARM
/* Whether the control register asks for nothing: no direction, flushing, default NaN, alternative half
 * precision or trap. */
static inline int mpti_control_is_plain(void)
{
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control == 0u;
}
#endif

/* The path of this call; a few loads and tests, no state. */
static inline int mpti_path(void)
{
    const int last = MPTI_LAST_PATH;
#if MPTI_X86
    if (last >= MPTI_PATH_AVX512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return last > MPTI_PATH_AVX512 && __builtin_cpu_supports("avx512bf16") ? MPTI_PATH_AVX512BF16
                                                                               : MPTI_PATH_AVX512;
    if (last >= MPTI_PATH_AVX2 && __builtin_cpu_supports("avx2"))
        return MPTI_PATH_AVX2;
    if (last >= MPTI_PATH_SSE2 && __builtin_cpu_supports("sse2"))
        return MPTI_PATH_SSE2;
#elif MPTI_ARM
    if (last >= MPTI_PATH_NEONHP && mpti_control_is_plain())
        return MPTI_PATH_NEONHP;
    if (last >= MPTI_PATH_NEON)
        return MPTI_PATH_NEON;
#endif
    (void)last;
    return MPTI_PATH_PORTABLE;
}

#if MPTI_X86
/* Arrays that cannot stay in the cache are stored around it: plain stores would first read what they are
 * about to overwrite. Never where dst is src, whose lines are at hand, or where dst is not aligned. */
#ifndef MPTI_BYPASS_BYTES       /* tests put a variable here */
#define MPTI_BYPASS_BYTES ((size_t)32 << 20)
#endif
static int mpti_bypasses(const void *dst, const void *src, size_t n, size_t out, size_t in)
{
    return n > MPTI_BYPASS_BYTES / (out + in) && dst != src && (uintptr_t)dst % out == 0u;
}

/* Ask for what will be read four pages further on, which the processor does not do by itself across pages,
 * and for what will be read a page further on once more, now into the first cache: with both, kernels that
 * compute for as long as memory takes are 1.2 times as fast as with the first alone. It may lie behind the
 * array: nothing is read there. */
#define MPTI_FAR_BYTES 16384u
#define MPTI_NEAR_BYTES 4096u
__attribute__((target("sse2"), always_inline)) static inline void
mpti_fetch_ahead(const void *p, size_t bytes)
{
    size_t i;
    for (i = 0; i < bytes; i += 64u) {
        _mm_prefetch((const char *)((uintptr_t)p + MPTI_FAR_BYTES + i), _MM_HINT_T1);
        _mm_prefetch((const char *)((uintptr_t)p + MPTI_NEAR_BYTES + i), _MM_HINT_T0);
    }
}

/* The number of elements up to a boundary of `line` bytes; 0 where there is none or it does not matter. */
static size_t mpti_up_to_line(const void *dst, size_t n, size_t out, size_t line)
{
    const size_t past = (uintptr_t)dst % line;
    return past && past % out == 0u && n >= 4u * line / out ? (line - past) / out : 0u;
}
#endif

/* Define `name` as the inline function `loop`, compiled twice where the processor may have AVX2: wider
 * vectors, and fmaf as an instruction in place of a library call. Both copies give the same bits. Loops
 * over MPTI_BLOCK elements of arrays that do not overlap are what compilers vectorize at plain -O2. */
#define MPTI_BLOCK 256
#if defined(__GNUC__) || defined(__clang__)
#define MPTI_RESTRICT __restrict__
#else
#define MPTI_RESTRICT
#endif
#if MPTI_X86
#define MPTI_INLINE static inline __attribute__((always_inline))
#else
#define MPTI_INLINE static inline
#endif
#if MPTI_X86 && !(defined(__AVX2__) && defined(__FMA__))
#define MPTI_TWICE(name, loop, parameters, arguments)                         \
    __attribute__((target("avx2,fma"))) static void name##_avx2 parameters    \
    {                                                                         \
        loop arguments;                                                       \
    }                                                                         \
    static void name parameters                                               \
    {                                                                         \
        if (mpti_path() >= MPTI_PATH_AVX2)                                    \
            name##_avx2 arguments;                                            \
        else                                                                  \
            loop arguments;                                                   \
    }
#else
#define MPTI_TWICE(name, loop, parameters, arguments) \
    static void name parameters                       \
    {                                                 \
        loop arguments;                               \
    }
#endif

/* The same, compiled a third time for AVX-512 with vectors of 64 bytes: for loops that keep up with
 * memory only so. MPTI_AVX512_TARGET is what may be used there; clang 14 breaks down over such code where it
 * is asked for both the address and the undefined-behaviour sanitizer, so only the first looks at it. */
#if MPTI_X86
#ifdef __clang__
#define MPTI_AVX512_TARGET                                                     \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"), \
                   no_sanitize("undefined")))
#else
#define MPTI_AVX512_TARGET \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#endif
#if MPTI_X86 && !defined(__AVX512F__)
#define MPTI_THRICE(name, loop, parameters, arguments)                        \
    MPTI_TWICE(name##_narrow, loop, parameters, arguments)                    \
    MPTI_AVX512_TARGET static void name##_avx512 parameters                   \
    {                                                                         \
        loop arguments;                                                       \
    }                                                                         \
    static void name parameters                                               \
    {                                                                         \
        if (mpti_path() >= MPTI_PATH_AVX512)                                  \
            name##_avx512 arguments;                                          \
        else                                                                  \
            name##_narrow arguments;                                          \
    }
#else
#define MPTI_THRICE MPTI_TWICE
#endif

/* ---- the format table ---- */

/* 2^k as a constant expression: C has no constant ldexp, and hexadecimal floats are not C++11. */
#define MPTI_P(k, i) (((k) >> (i)) & 1 ? (double)((uint64_t)1 << (1 << (i))) : 1.0)
#define MPTI_P32 4294967296.0
#define MPTI_P128 (MPTI_P32 * MPTI_P32 * MPTI_P32 * MPTI_P32)
#define MPTI_P512 (MPTI_P128 * MPTI_P128 * MPTI_P128 * MPTI_P128)
#define MPTI_PPOS(k)                                                                          \
    (MPTI_P(k, 0) * MPTI_P(k, 1) * MPTI_P(k, 2) * MPTI_P(k, 3) * MPTI_P(k, 4) *               \
     (((k) >> 5) & 1 ? MPTI_P32 : 1.0) * (((k) >> 6) & 1 ? MPTI_P32 * MPTI_P32 : 1.0) *       \
     (((k) >> 7) & 1 ? MPTI_P128 : 1.0) * (((k) >> 8) & 1 ? MPTI_P128 * MPTI_P128 : 1.0) *    \
     (((k) >> 9) & 1 ? MPTI_P512 : 1.0))
/* in two factors below 2^-1000, since 2^1074 is no double */
#define MPTI_POW2(k) \
    ((k) >= 0 ? MPTI_PPOS((k) < 0 ? 0 : (k)) \
     : (k) > -1000 ? 1.0 / MPTI_PPOS((k) > -1000 && (k) < 0 ? -(k) : 0) \
     : 1.0 / MPTI_PPOS(1000) / MPTI_PPOS((k) <= -1000 ? -(k) - 1000 : 0))

#define MPTI_ONE ((uint64_t)1)
#define MPTI_ALL_ONES(e, m) ((MPTI_ONE << ((e) + (m))) - 1u)    /* exponent and mantissa fields */
#define MPTI_EMIN(bias, sp) ((sp) == MPT_SPECIALS_SCALE ? -(bias) : 1 - (bias))
#define MPTI_EMAX(e, bias, sp) \
    ((1 << (e)) - ((sp) == MPT_SPECIALS_IEEE || (sp) == MPT_SPECIALS_SCALE ? 2 : 1) - (bias))
#define MPTI_MAX_CODE(e, m, sp)                                                               \
    ((sp) == MPT_SPECIALS_IEEE ? (((MPTI_ONE << (e)) - 1u) << (m)) - 1u                       \
     : (sp) == MPT_SPECIALS_FN || (sp) == MPT_SPECIALS_SCALE ? MPTI_ALL_ONES(e, m) - 1u       \
                                                             : MPTI_ALL_ONES(e, m))
#define MPTI_INF_CODE(e, m, sp) ((sp) == MPT_SPECIALS_IEEE ? ((MPTI_ONE << (e)) - 1u) << (m) : 0u)
#define MPTI_NAN_CODE(e, m, sp)                                                               \
    ((sp) == MPT_SPECIALS_IEEE ? ((MPTI_ONE << ((e) + 1)) - 1u) << ((m) > 0 ? (m) - 1 : 0)    \
     : (sp) == MPT_SPECIALS_FNUZ ? MPTI_ONE << ((e) + (m))                                    \
     : (sp) == MPT_SPECIALS_FINITE ? 0u : MPTI_ALL_ONES(e, m))
/* significand of the largest finite number: its stored mantissa with the hidden bit */
#define MPTI_MAX_SIG(e, m, sp) \
    ((MPTI_MAX_CODE(e, m, sp) & ((MPTI_ONE << (m)) - 1u)) | (MPTI_ONE << (m)))

#define MPTI_BYTES(bits) ((bits) <= 8 ? 1 : (bits) <= 16 ? 2 : (bits) <= 32 ? 4 : 8)

/* The one place where the limits of a format are worked out, for the table and for custom formats. */
#define MPTI_FORMAT_INFO(name, s, e, m, bias, sp)                                             \
    {                                                                                         \
        name, (s) + (e) + (m), s, e, m, bias, sp,                                             \
        MPTI_EMIN(bias, sp), MPTI_EMAX(e, bias, sp),                                          \
        (sp) == MPT_SPECIALS_IEEE, (sp) != MPT_SPECIALS_FINITE, MPTI_BYTES((s) + (e) + (m)),  \
        MPTI_MAX_CODE(e, m, sp), MPTI_INF_CODE(e, m, sp), MPTI_NAN_CODE(e, m, sp),            \
        (double)MPTI_MAX_SIG(e, m, sp) * MPTI_POW2(MPTI_EMAX(e, bias, sp) - (m)),             \
        MPTI_POW2(MPTI_EMIN(bias, sp)), MPTI_POW2(MPTI_EMIN(bias, sp) - (m)), MPTI_POW2(-(m)) \
    }

MPT_DEF const mpt_format_info *mpt_format_get(mpt_format format)
{
#define MPTI_X(id, name, s, e, m, bias, sp) MPTI_FORMAT_INFO(name, s, e, m, bias, sp),
    static const mpt_format_info table[] = {MPT_FORMATS(MPTI_X)};
#undef MPTI_X
    return (unsigned)format < (unsigned)MPT_FORMAT_COUNT ? &table[format] : NULL;
}

MPT_DEF mpt_status mpt_format_find(const char *name, mpt_format *format)
{
    int i;
    if (!name || !format)
        return MPT_E_ARG;
    for (i = 0; i < (int)MPT_FORMAT_COUNT; i++)
        if (!strcmp(name, mpt_format_get((mpt_format)i)->name)) {
            *format = (mpt_format)i;
            return MPT_OK;
        }
    return MPT_E_UNSUPPORTED;
}

MPT_DEF mpt_status mpt_format_define(mpt_format_info *info, const char *name, int exponent_bits,
                                     int mantissa_bits, int bias, mpt_specials specials)
{
    const int scale = specials == MPT_SPECIALS_SCALE;
    if (!info || !name || (unsigned)specials > (unsigned)MPT_SPECIALS_SCALE)
        return MPT_E_ARG;
    if (exponent_bits < (scale ? 1 : 2) || exponent_bits > 10)
        return MPT_E_ARG;
    if (scale ? mantissa_bits != 0 : (mantissa_bits < 1 || mantissa_bits > 52))
        return MPT_E_ARG;
    if (bias < -1022 || bias > 2048 || MPTI_EMIN(bias, specials) - mantissa_bits < -1022 ||
        MPTI_EMAX(exponent_bits, bias, specials) > 1023)
        return MPT_E_ARG;
    {
        const mpt_format_info made =
            MPTI_FORMAT_INFO(name, scale ? 0 : 1, exponent_bits, mantissa_bits, bias, specials);
        *info = made;
    }
    return MPT_OK;
}

/* ---- encode and decode, any format ---- */

/* sig * 2^exponent as the pattern of a double; exact for every value of every format we take. */
static uint64_t mpti_f64_compose(unsigned sign, uint64_t sig, int exponent)
{
    const uint64_t s = (uint64_t)sign << 63;
    int            up, field;
    if (!sig)
        return s;
    up = mpti_clz64(sig) - 11;          /* the highest one bit goes to bit 52 */
    sig = up >= 0 ? sig << up : sig >> -up;
    field = exponent - up + 52 + 1023;
    if (field <= 0)
        return s | sig >> (1 - field);
    return s | ((uint64_t)field << 52) | (sig & ((MPTI_ONE << 52) - 1u));
}

static unsigned mpti_is_nan_code(const mpt_format_info *f, uint64_t magnitude, unsigned sign)
{
    switch (f->specials) {
    case MPT_SPECIALS_IEEE: return magnitude > f->inf_code;
    case MPT_SPECIALS_FNUZ: return !magnitude && sign;
    case MPT_SPECIALS_FN:
    case MPT_SPECIALS_SCALE: return magnitude == f->nan_code;
    case MPT_SPECIALS_FINITE:
    default: return 0u;
    }
}

/* A code taken apart; kind tells what the numbers mean. */
static mpt_fields mpti_take_apart(const mpt_format_info *f, uint64_t code)
{
    const int  m = f->mantissa_bits;
    mpt_fields p;
    uint64_t   magnitude;
    memset(&p, 0, sizeof p);
    if (f->bits < 64)
        code &= (MPTI_ONE << f->bits) - 1u;
    magnitude = code & MPTI_ALL_ONES(f->exponent_bits, m);
    p.code = code;
    p.sign = f->sign_bits ? (unsigned)(code >> (f->bits - 1)) : 0u;
    p.exponent_field = magnitude >> m;
    p.mantissa_field = magnitude & ((MPTI_ONE << m) - 1u);
    if (mpti_is_nan_code(f, magnitude, p.sign)) {
        const int signaling = f->has_inf && !((magnitude >> (m - 1)) & 1u);
        p.kind = signaling ? MPT_CLASS_SIGNALING_NAN : MPT_CLASS_QUIET_NAN;
        return p;
    }
    if (f->has_inf && magnitude == f->inf_code) {
        p.kind = p.sign ? MPT_CLASS_NEG_INF : MPT_CLASS_POS_INF;
        return p;
    }
    if (f->specials == MPT_SPECIALS_SCALE || p.exponent_field) {
        p.kind = p.sign ? MPT_CLASS_NEG_NORMAL : MPT_CLASS_POS_NORMAL;
        p.significand = p.mantissa_field | MPTI_ONE << m;
        p.exponent = (int)p.exponent_field - f->bias - m;
        return p;
    }
    p.significand = p.mantissa_field;
    p.exponent = f->emin - m;
    if (p.significand)
        p.kind = p.sign ? MPT_CLASS_NEG_SUBNORMAL : MPT_CLASS_POS_SUBNORMAL;
    else
        p.kind = p.sign ? MPT_CLASS_NEG_ZERO : MPT_CLASS_POS_ZERO;
    return p;
}

MPT_DEF double mpt_decode_as(const mpt_format_info *info, uint64_t code)
{
    const uint64_t inf = (uint64_t)0x7ff << 52, quiet = MPTI_ONE << 51;
    mpt_fields     p;
    uint64_t       sign;
    if (!info)
        return mpti_f64_make(inf | quiet);
    p = mpti_take_apart(info, code);
    sign = (uint64_t)p.sign << 63;
    if (p.kind == MPT_CLASS_QUIET_NAN || p.kind == MPT_CLASS_SIGNALING_NAN) {
        const uint64_t payload = info->has_inf ? p.mantissa_field << (52 - info->mantissa_bits) : 0u;
        return mpti_f64_make((info->specials == MPT_SPECIALS_FNUZ ? 0u : sign) | inf | quiet | payload);
    }
    if (p.kind == MPT_CLASS_NEG_INF || p.kind == MPT_CLASS_POS_INF)
        return mpti_f64_make(sign | inf);
    return mpti_f64_make(mpti_f64_compose(p.sign, p.significand, p.exponent));
}

MPT_DEF double mpt_decode(mpt_format format, uint64_t code)
{
    return mpt_decode_as(mpt_format_get(format), code);
}

#define MPTI_PLAIN_OPTS                                                                          \
    {                                                                                            \
        MPT_RND_NEAREST_EVEN, MPT_OVERFLOW_IEEE, 0u, MPT_NAN_KEEP, MPT_TININESS_AFTER, 0u, NULL, \
        0u, 0u, 0u, 0u                                                                           \
    }

static int mpti_bad_opts(const mpt_opts *o)
{
    return (unsigned)o->rounding >= (unsigned)MPT_ROUNDING_COUNT ||
           (unsigned)o->overflow > (unsigned)MPT_OVERFLOW_NAN ||
           (unsigned)o->nan > (unsigned)MPT_NAN_CANONICAL ||
           (unsigned)o->tininess > (unsigned)MPT_TININESS_BEFORE || o->flush > 3u;
}

/* What a right shift by `shift` (0 and more) discards, and whether that rounds the magnitude up. */
static int mpti_round_up(uint64_t sig, int shift, const mpt_opts *o, unsigned sign, unsigned odd,
                         int *inexact)
{
    /* from 64 on every bit of sig is discarded, and its 63 bits are below half of the gap */
    const int      beyond = shift > 63;
    const uint64_t rest = beyond ? sig : shift ? sig & ((MPTI_ONE << shift) - 1u) : 0u;
    const uint64_t half = beyond || !shift ? 0u : MPTI_ONE << (shift - 1);
    const int      above = !beyond && rest > half, tie = !beyond && shift && rest == half;
    uint64_t       gap32;                            /* the discarded part in 2^-32 of the gap */
    *inexact = rest != 0u;
    if (!rest)
        return 0;
    switch (o->rounding) {
    case MPT_RND_NEAREST_AWAY: return above || tie;
    case MPT_RND_TOWARD_ZERO:  return 0;
    case MPT_RND_UP:           return !sign;
    case MPT_RND_DOWN:         return sign != 0u;
    case MPT_RND_ODD:          return !odd;
    case MPT_RND_STOCHASTIC:
        gap32 = shift <= 32 ? rest << (32 - shift) : shift - 32 > 63 ? 0u : rest >> (shift - 32);
        return o->random < gap32;
    case MPT_RND_NEAREST_EVEN:
    case MPT_ROUNDING_COUNT:
    default: return above || (tie && odd);
    }
}

static uint64_t mpti_encode_nan(const mpt_format_info *f, uint64_t sign_bit, uint64_t payload52,
                                const mpt_opts *o)
{
    if (!f->has_nan)
        return f->max_code;
    if (o->nan == MPT_NAN_CANONICAL)
        return f->nan_code;
    if (f->has_inf)
        return sign_bit | f->nan_code | payload52 >> (52 - f->mantissa_bits);
    return f->specials == MPT_SPECIALS_FNUZ ? f->nan_code : sign_bit | f->nan_code;
}

/* An Inf, or a finite value beyond the largest one, in direction `rounding`. */
static uint64_t mpti_encode_overflow(const mpt_format_info *f, uint64_t sign_bit, const mpt_opts *o,
                                     int was_inf)
{
    const int toward_finite =
        o->rounding == MPT_RND_TOWARD_ZERO || o->rounding == MPT_RND_ODD ||
        o->rounding == MPT_RND_STOCHASTIC || (o->rounding == MPT_RND_UP && sign_bit) ||
        (o->rounding == MPT_RND_DOWN && !sign_bit);
    const int to_nan = o->overflow == MPT_OVERFLOW_NAN && !was_inf;
    if (!f->has_nan || o->overflow == MPT_OVERFLOW_SATURATE || (!was_inf && toward_finite && !to_nan))
        return sign_bit | f->max_code;
    return f->has_inf && !to_nan ? sign_bit | f->inf_code : mpti_encode_nan(f, sign_bit, 0u, o);
}

/* Round a finite nonzero sig * 2^q, its highest one bit at `top` (up to 62), to a magnitude code, as if
 * exponents had no upper end; the caller deals with overflow. */
static uint64_t mpti_encode_finite(const mpt_format_info *f, uint64_t sig, int q, int top, unsigned sign,
                                   const mpt_opts *o, unsigned *flags)
{
    const int scale = f->specials == MPT_SPECIALS_SCALE, m = f->mantissa_bits;
    const int e = q + top, floor_e = e < f->emin ? f->emin : e;
    const int shift = floor_e - m - q;
    uint64_t  code = ((uint64_t)(floor_e - f->emin) << m) + (shift > 63 ? 0u : sig >> shift);
    int       inexact, tiny = 0, unused;
    if (scale && e < f->emin) {         /* no zero to round to: the least power of two */
        *flags |= MPT_FLAG_UNDERFLOW | MPT_FLAG_INEXACT;
        return 0u;
    }
    if (scale)
        code -= 1u;                     /* its field 0 is a number, not the subnormals */
    code += (uint64_t)mpti_round_up(sig, shift, o, sign, (unsigned)(code & 1u), &inexact);
    if (e < f->emin) {                  /* tiny unless rounding with a free exponent reaches 2^emin */
        const int      free_shift = top - m;
        const uint64_t kept = sig >> free_shift;
        const int up = mpti_round_up(sig, free_shift, o, sign, (unsigned)(kept & 1u), &unused);
        tiny = o->tininess == MPT_TININESS_BEFORE || e < f->emin - 1 ||
               kept + (uint64_t)up < MPTI_ONE << (m + 1);
    }
    if (inexact)
        *flags |= MPT_FLAG_INEXACT | (tiny ? MPT_FLAG_UNDERFLOW : 0u);
    if ((o->flush & MPT_FLUSH_RESULTS) && !scale && code && !(code >> m)) {
        *flags |= MPT_FLAG_UNDERFLOW | MPT_FLAG_INEXACT;
        return 0u;
    }
    return code;
}

/* A finite nonzero number to a code of its sign, overflow included. */
static uint64_t mpti_encode_number(const mpt_format_info *f, uint64_t sig, int q, int top, unsigned sign,
                                   const mpt_opts *o, unsigned *flags)
{
    const uint64_t sign_bit = f->sign_bits ? (uint64_t)sign << (f->bits - 1) : 0u;
    uint64_t       code;
    if (!f->sign_bits && sign) {
        *flags |= MPT_FLAG_INVALID;
        return f->nan_code;
    }
    code = mpti_encode_finite(f, sig, q, top, sign, o, flags);
    if (code > f->max_code) {
        *flags |= MPT_FLAG_OVERFLOW | MPT_FLAG_INEXACT;
        return mpti_encode_overflow(f, sign_bit, o, 0);
    }
    if (!code && f->specials == MPT_SPECIALS_FNUZ)
        return 0u;                      /* no negative zero: its code is the NaN */
    return sign_bit | code;
}

static uint64_t mpti_encode_zero(const mpt_format_info *f, uint64_t sign_bit, unsigned *flags)
{
    if (f->specials == MPT_SPECIALS_SCALE)
        *flags |= MPT_FLAG_UNDERFLOW | MPT_FLAG_INEXACT;
    return f->specials == MPT_SPECIALS_FNUZ ? 0u : sign_bit;
}

static uint64_t mpti_encode_bits(const mpt_format_info *f, uint64_t u, const mpt_opts *o, unsigned *flags)
{
    const unsigned sign = (unsigned)(u >> 63);
    const uint64_t sign_bit = f->sign_bits ? (uint64_t)sign << (f->bits - 1) : 0u;
    const uint64_t hidden = MPTI_ONE << 52, man = u & (hidden - 1u);
    const int      field = (int)((u >> 52) & 0x7ffu);
    uint64_t       sig = field ? man | hidden : man;
    int            q = (field ? field : 1) - 1075;

    if (field == 0x7ff && man) {
        if (!(man >> 51) || !f->has_nan)
            *flags |= MPT_FLAG_INVALID;
        return mpti_encode_nan(f, sign_bit, man, o);
    }
    if (!field && (o->flush & MPT_FLUSH_INPUTS))
        sig = 0u;
    if (!f->sign_bits && sign && sig) {
        *flags |= MPT_FLAG_INVALID;
        return f->nan_code;
    }
    if (field == 0x7ff) {
        if (!f->has_inf || o->overflow == MPT_OVERFLOW_SATURATE)
            *flags |= MPT_FLAG_OVERFLOW | MPT_FLAG_INEXACT;
        return mpti_encode_overflow(f, sign_bit, o, 1);
    }
    if (!sig)
        return mpti_encode_zero(f, sign_bit, flags);
    for (; !(sig & hidden); q--)        /* a subnormal double */
        sig <<= 1;
    return mpti_encode_number(f, sig, q, 52, sign, o, flags);
}

MPT_DEF uint64_t mpt_encode_as(const mpt_format_info *info, double value, const mpt_opts *opts,
                               unsigned *flags)
{
    const mpt_opts plain = MPTI_PLAIN_OPTS;
    unsigned       raised = 0u;
    uint64_t       code;
    if (!opts)
        opts = &plain;
    if (!info || mpti_bad_opts(opts)) {
        if (flags)
            *flags |= MPT_FLAG_INVALID;
        return info ? info->nan_code : 0u;
    }
    code = mpti_encode_bits(info, mpti_f64_bits(value), opts, &raised);
    if (flags)
        *flags |= raised;
    return code;
}

MPT_DEF uint64_t mpt_encode(mpt_format format, double value, const mpt_opts *opts, unsigned *flags)
{
    return mpt_encode_as(mpt_format_get(format), value, opts, flags);
}

/* ---- integers ---- */

/* An integer of 64 bits loses its last one to a sticky bit: no format has as many. */
static uint64_t mpti_encode_int(mpt_format format, unsigned sign, uint64_t magnitude, const mpt_opts *opts,
                                unsigned *flags)
{
    const mpt_format_info *f = mpt_format_get(format);
    const mpt_opts         plain = MPTI_PLAIN_OPTS;
    const mpt_opts        *o = opts ? opts : &plain;
    unsigned               raised = 0u;
    uint64_t               code;
    if (!f || mpti_bad_opts(o)) {
        raised = MPT_FLAG_INVALID;
        code = f ? f->nan_code : 0u;
    } else if (!magnitude)
        code = mpti_encode_zero(f, 0u, &raised);
    else {
        const int      up = mpti_clz64(magnitude) - 1;
        const uint64_t sig = up < 0 ? magnitude >> 1 | (magnitude & 1u) : magnitude << up;
        code = mpti_encode_number(f, sig, -up, 62, sign, o, &raised);
    }
    if (flags)
        *flags |= raised;
    return code;
}

MPT_DEF uint64_t mpt_encode_u64(mpt_format format, uint64_t value, const mpt_opts *opts, unsigned *flags)
{
    return mpti_encode_int(format, 0u, value, opts, flags);
}

MPT_DEF uint64_t mpt_encode_i64(mpt_format format, int64_t value, const mpt_opts *opts, unsigned *flags)
{
    const uint64_t u = (uint64_t)value;
    return mpti_encode_int(format, value < 0, value < 0 ? 0u - u : u, opts, flags);
}

MPT_DEF uint64_t mpt_encode_u32(mpt_format format, uint32_t value, const mpt_opts *opts, unsigned *flags)
{
    return mpt_encode_u64(format, value, opts, flags);
}

MPT_DEF uint64_t mpt_encode_i32(mpt_format format, int32_t value, const mpt_opts *opts, unsigned *flags)
{
    return mpt_encode_i64(format, value, opts, flags);
}

/* A code as an integer between -most_negative and most: the magnitude, and the sign beside it. */
static uint64_t mpti_decode_int(mpt_format format, uint64_t code, uint64_t most_negative, uint64_t most,
                                unsigned *sign, const mpt_opts *opts, unsigned *flags)
{
    const mpt_format_info *f = mpt_format_get(format);
    const mpt_opts         plain = MPTI_PLAIN_OPTS;
    const mpt_opts        *o = opts ? opts : &plain;
    unsigned               raised = MPT_FLAG_INVALID;
    uint64_t               r = 0u;
    *sign = 0u;
    if (f && !mpti_bad_opts(o)) {
        const mpt_fields p = mpti_take_apart(f, code);
        const int        nan = p.kind == MPT_CLASS_QUIET_NAN || p.kind == MPT_CLASS_SIGNALING_NAN;
        const int        subnormal = p.kind == MPT_CLASS_POS_SUBNORMAL || p.kind == MPT_CLASS_NEG_SUBNORMAL;
        const uint64_t   end = p.sign ? most_negative : most;
        const uint64_t   sig = subnormal && (o->flush & MPT_FLUSH_INPUTS) ? 0u : p.significand;
        *sign = nan ? 0u : p.sign;
        if (!nan)
            r = end;
        if (p.kind != MPT_CLASS_POS_INF && p.kind != MPT_CLASS_NEG_INF && !nan) {
            const int shift = -p.exponent;
            int       inexact = 0, fits = 1;
            uint64_t  whole = sig;
            if (shift > 0) {
                whole = shift > 63 ? 0u : sig >> shift;
                whole += (uint64_t)mpti_round_up(sig, shift, o, p.sign, (unsigned)(whole & 1u), &inexact);
            } else if (sig) {
                fits = -shift <= mpti_clz64(sig);
                whole = fits ? sig << -shift : 0u;
            }
            if (fits && whole <= end) {
                r = whole;
                raised = inexact ? MPT_FLAG_INEXACT : 0u;
            }
        }
    }
    if (flags)
        *flags |= raised;
    return r;
}

MPT_DEF uint64_t mpt_decode_u64(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags)
{
    unsigned sign;
    return mpti_decode_int(format, code, 0u, UINT64_MAX, &sign, opts, flags);
}

MPT_DEF uint32_t mpt_decode_u32(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags)
{
    unsigned sign;
    return (uint32_t)mpti_decode_int(format, code, 0u, 0xffffffffu, &sign, opts, flags);
}

MPT_DEF int64_t mpt_decode_i64(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags)
{
    const uint64_t most = ~(uint64_t)0 >> 1;
    unsigned       sign;
    const uint64_t r = mpti_decode_int(format, code, most + 1u, most, &sign, opts, flags);
    return sign && r ? -(int64_t)(r - 1u) - 1 : (int64_t)r;
}

MPT_DEF int32_t mpt_decode_i32(mpt_format format, uint64_t code, const mpt_opts *opts, unsigned *flags)
{
    unsigned       sign;
    const uint64_t r = mpti_decode_int(format, code, 0x80000000u, 0x7fffffffu, &sign, opts, flags);
    return (int32_t)(sign ? -(int64_t)r : (int64_t)r);
}

/* ---- exactly representable? ---- */

static int mpti_is_exact(const mpt_format_info *f, uint64_t u)
{
    const mpt_opts plain = MPTI_PLAIN_OPTS;
    unsigned       unused = 0u;
    if ((u & ~(MPTI_ONE << 63)) > (uint64_t)0x7ff << 52)
        return f->has_nan;
    return mpti_f64_bits(mpt_decode_as(f, mpti_encode_bits(f, u, &plain, &unused))) == u;
}

MPT_DEF int mpt_is_exact(mpt_format format, double value)
{
    const mpt_format_info *f = mpt_format_get(format);
    return f ? mpti_is_exact(f, mpti_f64_bits(value)) : 0;
}

MPT_DEF int mpt_is_exact_i64(mpt_format format, int64_t value)
{
    unsigned flags = 0u;
    (void)mpt_encode_i64(format, value, NULL, &flags);
    return !flags;
}

MPT_DEF int mpt_is_exact_u64(mpt_format format, uint64_t value)
{
    unsigned flags = 0u;
    (void)mpt_encode_u64(format, value, NULL, &flags);
    return !flags;
}

/* ---- looking at one number ---- */

MPT_DEF const char *mpt_class_text(mpt_class c)
{
#define MPTI_X(id, text) text,
    static const char *const texts[] = {MPT_CLASSES(MPTI_X)};
#undef MPTI_X
    return (unsigned)c < (unsigned)MPT_CLASS_COUNT ? texts[c] : "unknown class";
}

MPT_DEF mpt_class mpt_classify(mpt_format format, uint64_t code)
{
    const mpt_format_info *f = mpt_format_get(format);
    return f ? mpti_take_apart(f, code).kind : MPT_CLASS_SIGNALING_NAN;
}

MPT_DEF double mpt_ulp(mpt_format format, double value)
{
    const mpt_format_info *f = mpt_format_get(format);
    const uint64_t         a = mpti_f64_bits(value) & ~(MPTI_ONE << 63);
    int                    e = (int)(a >> 52) - 1023;   /* -1023 for zero and subnormals: below all emin */
    if (!f)
        return mpti_f64_make((uint64_t)0xfff << 51);
    if (e == 1024)
        return mpti_f64_make(a << 12 ? a | MPTI_ONE << 51 : a);
    if (e < f->emin)
        e = f->emin;
    return mpti_f64_make(mpti_f64_compose(0u, 1u, e - f->mantissa_bits));
}

/* Every gap of f16 and bf16 is a float; its pattern is that of the narrowed double. */
MPT_DEF float mpt_f16_ulp(mpt_f16 h)
{
    return mpt_f32_from_f16(mpt_f16_from_f64(mpt_ulp(MPT_F16, mpt_f64_from_f16(h))));
}

MPT_DEF float mpt_bf16_ulp(mpt_bf16 b)
{
    return mpt_f32_from_bf16(mpt_bf16_from_f64(mpt_ulp(MPT_BF16, mpt_f64_from_bf16(b))));
}

/* rounded - value, without arithmetic where flush-to-zero could spoil it: on subnormal doubles, which
 * round to themselves or to zero. */
static double mpti_error_of(double rounded, double value)
{
    const uint64_t r = mpti_f64_bits(rounded), v = mpti_f64_bits(value), sign = MPTI_ONE << 63;
    const int      finite = (r & ~sign) < (uint64_t)0x7ff << 52;
    if (finite && r == v)
        return 0.0;
    if (!(r & ~sign) && (v & ~sign))
        return mpti_f64_make(v ^ sign);
    return rounded - value;
}

MPT_DEF mpt_fields mpt_anatomy(mpt_format format, double value)
{
    const mpt_format_info *f = mpt_format_get(format);
    unsigned               flags = 0u;
    mpt_fields             p;
    if (!f) {
        memset(&p, 0, sizeof p);
        p.kind = MPT_CLASS_SIGNALING_NAN;
        p.value = p.error = mpti_f64_make((uint64_t)0xfff << 51);
        p.flags = MPT_FLAG_INVALID;
    } else {
        p = mpti_take_apart(f, mpt_encode_as(f, value, NULL, &flags));
        p.value = mpt_decode_as(f, p.code);
        p.error = mpti_error_of(p.value, value);
        p.flags = flags;
    }
    p.format = format;
    return p;
}

MPT_DEF size_t mpt_bits_text(char *buf, size_t cap, mpt_format format, uint64_t code)
{
    const mpt_format_info *f = mpt_format_get(format);
    size_t                 length = 0;
    int                    i;
    for (i = f ? f->bits - 1 : -1; i >= 0; i--) {
        if (length + 1 < cap)
            buf[length] = (char)('0' + (int)((code >> i) & 1u));
        length++;
        if (i == f->mantissa_bits + f->exponent_bits || (i == f->mantissa_bits && i > 0)) {
            if (length + 1 < cap)
                buf[length] = ' ';
            length++;
        }
    }
    if (cap)
        buf[length < cap ? length : cap - 1] = '\0';
    return length;
}

// >>H16 implementation: arithmetic -----------------------------------------------------------------
/* Arrays by way of float, and why one more rounding does no harm.
 *
 * +, -, *: the exact result is rounded to float's 24 bits, then to p = 11 (f16) or 8 (bf16). Twice is as
 * good as once if the wider format has at least 2p + 2 bits (Figueroa 1995, "When is double rounding
 * innocuous?"): 24 >= 2 * 11 + 2. Subnormal results: sums of f16 are multiples of 2^-24 and exact in float,
 * products of f16 have 22 bits, none below 2^-48, and are exact; bf16 has float's exponents, so its
 * subnormals keep float's 16 extra bits, one more than where a product of 8-bit significands could lie next
 * to a tie without being one. (The tests try all pairs.)
 * fma: 2p + 2 bits are not enough. The exact sum is rounded to odd: of the floats below and above take the
 * one whose last bit is 1. That is as good as a sticky bit, and 24 >= p + 2 bits suffice (Boldo & Melquiond
 * 2008). Both come from one direction: with the processor rounding down, up(x) = -down(-x).
 *
 * The operations are assembler: no -ffast-math, no contraction and no swapped operands reach them. The
 * processor's control word is set for the loop and then restored. NaN results are rare; they are made from
 * the codes, by the rule of >>H11. */
typedef void (*mpti_kernel)(uint16_t *dst, const uint16_t *a, const uint16_t *b, const uint16_t *c, size_t n,
                            int bypass);
#define MPTI_KERNEL(name) \
    void name(uint16_t *dst, const uint16_t *a, const uint16_t *b, const uint16_t *c, size_t n, int bypass)

#if MPTI_ARM && defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#define MPTI_ARM_FP16 1
#else
#define MPTI_ARM_FP16 0
#endif
#if MPTI_X86 || MPTI_ARM_FP16
#define MPTI_LANE_INLINE static inline __attribute__((always_inline))
enum { MPTI_ARITH_LANES = 64, MPTI_CSR_NEAREST = 0x1f80, MPTI_CSR_DOWN = 0x3f80 };

/* Give the NaN lanes of results what the rule of >>H11 says. */
__attribute__((noinline, cold)) static void mpti_patch_nans(uint16_t *r, const uint16_t *a, const uint16_t *b,
                                                            const uint16_t *c, int mbits)
{
    mpti_env e = mpti_env_make(mbits, MPT_RND_NEAREST_EVEN, 0u);
    int      i;
    for (i = 0; i < MPTI_ARITH_LANES; i++)
        if (mpti_is_nan16(&e, r[i])) {
            const int from = mpti_is_nan16(&e, a[i]) || mpti_is_nan16(&e, b[i]) || mpti_is_nan16(&e, c[i]);
            r[i] = (uint16_t)(from ? mpti_pick_nan16(&e, a[i], b[i], c[i]) : mpti_nan16(&e));
        }
}
#endif

#if MPTI_X86
#define MPTI_AVX2 __attribute__((target("avx2,fma,f16c")))
/* Store the 64 results of a, b, c: around the cache if told so, from a boundary of 32 bytes on. */
MPTI_AVX2 MPTI_LANE_INLINE void mpti_store_lanes(uint16_t *dst, const __m256i *r, int some_nan,
                                                 const uint16_t *a, const uint16_t *b, const uint16_t *c,
                                                 int mbits, int bypass)
{
    uint16_t patched[MPTI_ARITH_LANES], *const to = some_nan ? patched : dst;
    int      i;
    if (bypass) {
        mpti_fetch_ahead(a, sizeof patched);
        mpti_fetch_ahead(b, sizeof patched);
        if (c != b)
            mpti_fetch_ahead(c, sizeof patched);
    }
    for (i = 0; i < MPTI_ARITH_LANES / 16; i++)
        if (bypass && !some_nan)
            _mm256_stream_si256((__m256i *)(void *)(to + 16 * i), r[i]);
        else
            _mm256_storeu_si256((__m256i *)(void *)(to + 16 * i), r[i]);
    if (__builtin_expect(some_nan, 0)) {
        mpti_patch_nans(patched, a, b, c, mbits);
        memcpy(dst, patched, sizeof patched);
    }
}

/* The operations on vectors of type V with the load and select of their width. */
#define MPTI_VECTOR_OPS(target, w, V)                                                              \
    target MPTI_LANE_INLINE V mpti_add_##w(V a, V b, V c)                                          \
    {                                                                                              \
        V r;                                                                                       \
        (void)c;                                                                                   \
        __asm__("vaddps {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));                      \
        return r;                                                                                  \
    }                                                                                              \
    target MPTI_LANE_INLINE V mpti_sub_##w(V a, V b, V c)                                          \
    {                                                                                              \
        V r;                                                                                       \
        (void)c;                                                                                   \
        __asm__("vsubps {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));                      \
        return r;                                                                                  \
    }                                                                                              \
    target MPTI_LANE_INLINE V mpti_mul_##w(V a, V b, V c)                                          \
    {                                                                                              \
        V r;                                                                                       \
        (void)c;                                                                                   \
        __asm__("vmulps {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));                      \
        return r;                                                                                  \
    }                                                                                              \
    target MPTI_LANE_INLINE V mpti_fma_##w(V a, V b, V c)                                          \
    {                                                                                              \
        V down = c, minus_up = c;                                                                  \
        __asm__("vfmadd231ps {%2, %1, %0|%0, %1, %2}" : "+v"(down) : "v"(a), "v"(b));              \
        __asm__("vfnmsub231ps {%2, %1, %0|%0, %1, %2}" : "+v"(minus_up) : "v"(a), "v"(b));         \
        return mpti_pick_odd_##w(down, minus_up);                                                  \
    }

MPTI_AVX2 MPTI_LANE_INLINE __m256 mpti_pick_odd_256(__m256 down, __m256 minus_up)
{
    const __m256i d = _mm256_castps_si256(down), sign = _mm256_set1_epi32((int)0x80000000u);
    const __m256  up = _mm256_castsi256_ps(_mm256_xor_si256(_mm256_castps_si256(minus_up), sign));
    return _mm256_blendv_ps(up, down, _mm256_castsi256_ps(_mm256_slli_epi32(d, 31)));
}

MPTI_AVX512_TARGET MPTI_LANE_INLINE __m512 mpti_pick_odd_512(__m512 down, __m512 minus_up)
{
    const __m512i d = _mm512_castps_si512(down), sign = _mm512_set1_epi32((int)0x80000000u);
    const __m512i up = _mm512_xor_si512(_mm512_castps_si512(minus_up), sign);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(up, _mm512_test_epi32_mask(d, _mm512_set1_epi32(1)), d));
}
MPTI_VECTOR_OPS(MPTI_AVX2, 256, __m256)
MPTI_VECTOR_OPS(MPTI_AVX512_TARGET, 512, __m512)

/* With all lanes chosen the maskz forms are the plain ones, without what gcc 12 warns of in those. */
#define MPTI_ALL_16 ((__mmask16)0xffffu)
MPTI_AVX2 MPTI_LANE_INLINE __m256 mpti_f16_widen_256(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
MPTI_AVX2 MPTI_LANE_INLINE __m256 mpti_bf16_widen_256(const uint16_t *p)
{
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m512 mpti_f16_widen_512(const uint16_t *p)
{
    return _mm512_maskz_cvtph_ps(MPTI_ALL_16, _mm256_loadu_si256((const __m256i *)(const void *)p));
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m512 mpti_bf16_widen_512(const uint16_t *p)
{
    const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m512i u = _mm512_maskz_cvtepu16_epi32(MPTI_ALL_16, b);
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(MPTI_ALL_16, u, 16));
}

MPTI_AVX2 MPTI_LANE_INLINE __m256i mpti_f16_narrow_256(__m256 low, __m256 high)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT)),
        _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT), 1);
}
MPTI_AVX2 MPTI_LANE_INLINE __m256i mpti_bf16_round_256(__m256 x)
{
    const __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16),
                                                                     _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
}
MPTI_AVX2 MPTI_LANE_INLINE __m256i mpti_bf16_narrow_256(__m256 low, __m256 high)
{
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi32(mpti_bf16_round_256(low), mpti_bf16_round_256(high)), 0xd8);
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m256i mpti_f16_narrow_512(__m512 x)
{
    return _mm512_maskz_cvtps_ph(MPTI_ALL_16, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m256i mpti_bf16_narrow_512(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(MPTI_ALL_16, u, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_maskz_cvtepi32_epi16(MPTI_ALL_16, _mm512_maskz_srli_epi32(MPTI_ALL_16, up, 16));
}

/* Whether a or b has a NaN. */
MPTI_AVX2 MPTI_LANE_INLINE int mpti_some_nan_256(__m256 a, __m256 b)
{
    __m256 r;
    __asm__("vcmpunordps {%2, %1, %0|%0, %1, %2}" : "=x"(r) : "x"(a), "x"(b));
    return _mm256_movemask_ps(r);
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE int mpti_some_nan_512(__m512 a, __m512 b)
{
    __mmask16 r;
    __asm__("vcmpunordps {%2, %1, %0|%0, %1, %2}" : "=k"(r) : "v"(a), "v"(b));
    return (int)r;
}

/* 32 results of `op` from the codes at a, b, c. Returns: whether there is a NaN among them. */
#define MPTI_32_LANES(T, op)                                                                       \
    MPTI_AVX2 MPTI_LANE_INLINE int mpti_##T##_##op##_32_avx2(__m256i *r, const uint16_t *a,        \
                                                             const uint16_t *b, const uint16_t *c) \
    {                                                                                              \
        int i, some_nan = 0;                                                                       \
        for (i = 0; i < 2; i++, a += 16, b += 16, c += 16) {                                       \
            const __m256 x = mpti_##op##_256(mpti_##T##_widen_256(a), mpti_##T##_widen_256(b),     \
                                             mpti_##T##_widen_256(c));                             \
            const __m256 y = mpti_##op##_256(mpti_##T##_widen_256(a + 8), mpti_##T##_widen_256(b + 8), \
                                             mpti_##T##_widen_256(c + 8));                         \
            r[i] = mpti_##T##_narrow_256(x, y);                                                    \
            some_nan |= mpti_some_nan_256(x, y);                                                   \
        }                                                                                          \
        return some_nan;                                                                           \
    }                                                                                              \
    MPTI_AVX512_TARGET MPTI_LANE_INLINE int mpti_##T##_##op##_32_avx512(                           \
        __m256i *r, const uint16_t *a, const uint16_t *b, const uint16_t *c)                       \
    {                                                                                              \
        const __m512 x = mpti_##op##_512(mpti_##T##_widen_512(a), mpti_##T##_widen_512(b),         \
                                         mpti_##T##_widen_512(c));                                 \
        const __m512 y = mpti_##op##_512(mpti_##T##_widen_512(a + 16), mpti_##T##_widen_512(b + 16), \
                                         mpti_##T##_widen_512(c + 16));                            \
        r[0] = mpti_##T##_narrow_512(x);                                                           \
        r[1] = mpti_##T##_narrow_512(y);                                                           \
        return mpti_some_nan_512(x, y);                                                            \
    }

/* Kernels take a multiple of MPTI_ARITH_LANES elements; with two operands c is b. Not inlined: the control
 * word is set around the call. name##_64 does 64 elements; whether they bypass the cache is a constant in
 * both loops, without which the results would go through memory. */
#define MPTI_KERNEL_BY_64(target, name)                                                            \
    target __attribute__((noinline)) static MPTI_KERNEL(name)                                      \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; bypass && i < n; i += MPTI_ARITH_LANES)                                        \
            name##_64(dst + i, a + i, b + i, c + i, 1);                                            \
        for (; i < n; i += MPTI_ARITH_LANES)                                                       \
            name##_64(dst + i, a + i, b + i, c + i, 0);                                            \
    }
#define MPTI_X86_KERNEL(target, T, M, op, isa)                                                     \
    target MPTI_LANE_INLINE void mpti_##T##_##op##_##isa##_64(                                     \
        uint16_t *dst, const uint16_t *a, const uint16_t *b, const uint16_t *c, int bypass)        \
    {                                                                                              \
        __m256i r[MPTI_ARITH_LANES / 16];                                                          \
        int     some_nan = mpti_##T##_##op##_32_##isa(r, a, b, c);                                 \
        some_nan |= mpti_##T##_##op##_32_##isa(r + 2, a + 32, b + 32, c + 32);                     \
        mpti_store_lanes(dst, r, some_nan, a, b, c, M, bypass);                                    \
    }                                                                                              \
    MPTI_KERNEL_BY_64(target, mpti_##T##_##op##_##isa)
#define MPTI_X86_KERNELS(T, M, op)                                                                 \
    MPTI_32_LANES(T, op)                                                                           \
    MPTI_X86_KERNEL(MPTI_AVX2, T, M, op, avx2)                                                     \
    MPTI_X86_KERNEL(MPTI_AVX512_TARGET, T, M, op, avx512)

/* Processors with AVX512-FP16 compute in f16: one rounding, subnormals at any setting, all in nearest-even.
 * Only gcc is asked: older clang's __builtin_cpu_supports does not know the name, and gcc 12 comes with an
 * assembler that knows the instructions. */
#if defined(__clang__)
#define MPTI_FP16 0
#else
#define MPTI_FP16 (__GNUC__ >= 12)
#endif
#if MPTI_FP16
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m512i mpti_add_ph(__m512i a, __m512i b, __m512i c)
{
    __m512i r;
    (void)c;
    __asm__("vaddph {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));
    return r;
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m512i mpti_sub_ph(__m512i a, __m512i b, __m512i c)
{
    __m512i r;
    (void)c;
    __asm__("vsubph {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));
    return r;
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m512i mpti_mul_ph(__m512i a, __m512i b, __m512i c)
{
    __m512i r;
    (void)c;
    __asm__("vmulph {%2, %1, %0|%0, %1, %2}" : "=v"(r) : "v"(a), "v"(b));
    return r;
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE __m512i mpti_fma_ph(__m512i a, __m512i b, __m512i c)
{
    __asm__("vfmadd231ph {%2, %1, %0|%0, %1, %2}" : "+v"(c) : "v"(a), "v"(b));
    return c;
}
MPTI_AVX512_TARGET MPTI_LANE_INLINE int mpti_some_nan_ph(__m512i a, __m512i b)
{
    __mmask32 r;
    __asm__("vcmpph {$3, %2, %1, %0|%0, %1, %2, 3}" : "=k"(r) : "v"(a), "v"(b));
    return r != 0u;
}

#define MPTI_FP16_KERNEL(op)                                                                       \
    MPTI_AVX512_TARGET MPTI_LANE_INLINE void mpti_f16_##op##_fp16_64(                              \
        uint16_t *dst, const uint16_t *a, const uint16_t *b, const uint16_t *c, int bypass)        \
    {                                                                                              \
        __m256i       r[MPTI_ARITH_LANES / 16];                                                    \
        const __m512i x = mpti_##op##_ph(_mm512_loadu_si512(a), _mm512_loadu_si512(b),             \
                                         _mm512_loadu_si512(c));                                   \
        const __m512i y = mpti_##op##_ph(_mm512_loadu_si512(a + 32), _mm512_loadu_si512(b + 32),   \
                                         _mm512_loadu_si512(c + 32));                              \
        r[0] = _mm512_maskz_extracti64x4_epi64(0xff, x, 0);                                        \
        r[1] = _mm512_maskz_extracti64x4_epi64(0xff, x, 1);                                        \
        r[2] = _mm512_maskz_extracti64x4_epi64(0xff, y, 0);                                        \
        r[3] = _mm512_maskz_extracti64x4_epi64(0xff, y, 1);                                        \
        mpti_store_lanes(dst, r, mpti_some_nan_ph(x, y), a, b, c, 10, bypass);                     \
    }                                                                                              \
    MPTI_KERNEL_BY_64(MPTI_AVX512_TARGET, mpti_f16_##op##_fp16)
MPTI_FP16_KERNEL(add)
MPTI_FP16_KERNEL(sub)
MPTI_FP16_KERNEL(mul)
MPTI_FP16_KERNEL(fma)

/* Used with the last path only, which all processors with FP16 have. */
static inline int mpti_has_fp16(void)
{
    return mpti_path() >= MPTI_PATH_AVX512BF16 && __builtin_cpu_supports("avx512fp16");
}
#define MPTI_RUN_FP16_f16(op)                                                          \
    if (mpti_has_fp16()) {                                                             \
        mpti_run_kernel(mpti_f16_##op##_fp16, MPTI_CSR_NEAREST, (uint16_t *)dst,       \
                        (const uint16_t *)a, (const uint16_t *)b, (const uint16_t *)c, n); \
        return MPT_OK;                                                                 \
    }
#else
#define MPTI_RUN_FP16_f16(op)
#endif
#define MPTI_RUN_FP16_bf16(op)

#endif

#if MPTI_ARM_FP16
/* aarch64's FP16 instructions compute in f16: one rounding, under a plain control register to nearest-even
 * and with subnormals. */
#define MPTI_ARM_OP(op, before, instruction)                                                       \
    MPTI_LANE_INLINE uint16x8_t mpti_##op##_neonhp(uint16x8_t a, uint16x8_t b, uint16x8_t c)       \
    {                                                                                              \
        uint16x8_t r = before;                                                                     \
        (void)c;                                                                                   \
        __asm__(instruction " %0.8h, %1.8h, %2.8h" : "+w"(r) : "w"(a), "w"(b));                    \
        return r;                                                                                  \
    }
#define MPTI_ARM_KERNEL(op, before, instruction)                                                   \
    MPTI_ARM_OP(op, before, instruction)                                                           \
    static MPTI_KERNEL(mpti_f16_##op##_neonhp)                                                     \
    {                                                                                              \
        const uint16x8_t magnitude = vdupq_n_u16(0x7fffu), inf = vdupq_n_u16(0x7c00u);             \
        uint16_t         r[MPTI_ARITH_LANES];                                                      \
        size_t           i, k;                                                                     \
        (void)bypass;                                                                              \
        for (i = 0; i < n; i += MPTI_ARITH_LANES) {                                                \
            uint16x8_t nan = vdupq_n_u16(0u);                                                      \
            for (k = 0; k < MPTI_ARITH_LANES; k += 8u) {                                           \
                const size_t     j = i + k;                                                        \
                const uint16x8_t x = mpti_##op##_neonhp(vld1q_u16(a + j), vld1q_u16(b + j),        \
                                                        vld1q_u16(c + j));                         \
                nan = vorrq_u16(nan, vcgtq_u16(vandq_u16(x, magnitude), inf));                     \
                vst1q_u16(r + k, x);                                                               \
            }                                                                                      \
            if (vmaxvq_u16(nan))                                                                   \
                mpti_patch_nans(r, a + i, b + i, c + i, 10);                                       \
            memcpy(dst + i, r, sizeof r);                                                          \
        }                                                                                          \
    }
MPTI_ARM_KERNEL(add, a, "fadd")
MPTI_ARM_KERNEL(sub, a, "fsub")
MPTI_ARM_KERNEL(mul, a, "fmul")
MPTI_ARM_KERNEL(fma, c, "fmla")
#define MPTI_RUN_NEONHP_f16(op)                                                                    \
    if (mpti_path() >= MPTI_PATH_NEONHP) {                                                         \
        mpti_run_kernel(mpti_f16_##op##_neonhp, 0u, (uint16_t *)dst, (const uint16_t *)a,          \
                        (const uint16_t *)b, (const uint16_t *)c, n);                              \
        return MPT_OK;                                                                             \
    }
#else
#define MPTI_RUN_NEONHP_f16(op)
#endif
#define MPTI_RUN_NEONHP_bf16(op)

#if MPTI_X86 || MPTI_ARM_FP16
/* Set the control word, return what it was; and where the elements before a line end if the results are to
 * bypass the cache, which only x86 does. */
#if MPTI_X86
__attribute__((target("sse"))) static inline unsigned mpti_control_swap(unsigned control)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(control);
    return before;
}
static int mpti_arith_bypasses(const uint16_t *dst, const uint16_t *a, const uint16_t *b, const uint16_t *c,
                               size_t n, size_t *up)
{
    const int bypass = dst != b && dst != c && mpti_bypasses(dst, a, n, 2u, b == c ? 4u : 6u);
    *up = bypass ? mpti_up_to_line(dst, n, 2u, 64u) : 0u;
    return bypass && (uintptr_t)(dst + *up) % 64u == 0u;
}
__attribute__((target("sse"))) static inline void mpti_arith_settle(void) { _mm_sfence(); }
#else
static inline unsigned mpti_control_swap(unsigned control) { return control; }  /* it is plain */
static int mpti_arith_bypasses(const uint16_t *dst, const uint16_t *a, const uint16_t *b, const uint16_t *c,
                               size_t n, size_t *up)
{
    (void)dst, (void)a, (void)b, (void)c, (void)n;
    *up = 0u;
    return 0;
}
static inline void mpti_arith_settle(void) {}
#endif

/* Fewer elements than a kernel takes, in a copy. */
static void mpti_run_few(mpti_kernel kernel, uint16_t *dst, const uint16_t *a, const uint16_t *b,
                         const uint16_t *c, size_t n)
{
    uint16_t copy[3][MPTI_ARITH_LANES];
    memset(copy, 0, sizeof copy);
    memcpy(copy[0], a, n * sizeof *a);
    memcpy(copy[1], b, n * sizeof *b);
    memcpy(copy[2], c, n * sizeof *c);
    kernel(copy[0], copy[0], copy[1], copy[2], MPTI_ARITH_LANES, 0);
    memcpy(dst, copy[0], n * sizeof *dst);
}

/* Run a kernel with the control word it wants: no traps, no flushing. */
static void mpti_run_kernel(mpti_kernel kernel, unsigned control, uint16_t *dst, const uint16_t *a,
                            const uint16_t *b, const uint16_t *c, size_t n)
{
    size_t         up, i, end;
    const int      bypass = mpti_arith_bypasses(dst, a, b, c, n, &up);
    const unsigned before = mpti_control_swap(control);
    if (up)
        mpti_run_few(kernel, dst, a, b, c, up);
    i = up;
    end = n - (n - i) % MPTI_ARITH_LANES;
    if (i < end)
        kernel(dst + i, a + i, b + i, c + i, end - i, bypass);
    if (bypass)
        mpti_arith_settle();
    if (end < n)
        mpti_run_few(kernel, dst + end, a + end, b + end, c + end, n - end);
    (void)mpti_control_swap(before);
}
#endif

#if MPTI_X86
#define MPTI_RUN_X86(T, op, control)                                                   \
    MPTI_RUN_FP16_##T(op)                                                              \
    if (mpti_path() >= MPTI_PATH_AVX2) {                                               \
        mpti_run_kernel(mpti_path() >= MPTI_PATH_AVX512 ? mpti_##T##_##op##_avx512     \
                                                        : mpti_##T##_##op##_avx2,      \
                        control, (uint16_t *)dst, (const uint16_t *)a,                 \
                        (const uint16_t *)b, (const uint16_t *)c, n);                  \
        return MPT_OK;                                                                 \
    }
#else
#define MPTI_X86_KERNELS(T, M, op)
#define MPTI_RUN_X86(T, op, control)
#endif

#define MPTI_ARITHMETIC_N(T, M, op, plain, control)                                                \
    MPTI_X86_KERNELS(T, M, op)                                                                     \
    static mpt_status mpti_##T##_##op##_n(mpt_##T *dst, const mpt_##T *a, const mpt_##T *b,        \
                                          const mpt_##T *c, size_t n)                              \
    {                                                                                              \
        size_t i;                                                                                  \
        if (n && (!dst || !a || !b || !c))                                                         \
            return MPT_E_ARG;                                                                      \
        MPTI_RUN_NEONHP_##T(op)                                                                    \
        MPTI_RUN_X86(T, op, control)                                                               \
        for (i = 0; i < n; i++)                                                                    \
            dst[i] = plain;                                                                        \
        return MPT_OK;                                                                             \
    }
MPTI_ARITHMETIC_N(f16, 10, add, mpt_f16_add(a[i], b[i]), MPTI_CSR_NEAREST)
MPTI_ARITHMETIC_N(f16, 10, sub, mpt_f16_sub(a[i], b[i]), MPTI_CSR_NEAREST)
MPTI_ARITHMETIC_N(f16, 10, mul, mpt_f16_mul(a[i], b[i]), MPTI_CSR_NEAREST)
MPTI_ARITHMETIC_N(f16, 10, fma, mpt_f16_fma(a[i], b[i], c[i]), MPTI_CSR_DOWN)
MPTI_ARITHMETIC_N(bf16, 7, add, mpt_bf16_add(a[i], b[i]), MPTI_CSR_NEAREST)
MPTI_ARITHMETIC_N(bf16, 7, sub, mpt_bf16_sub(a[i], b[i]), MPTI_CSR_NEAREST)
MPTI_ARITHMETIC_N(bf16, 7, mul, mpt_bf16_mul(a[i], b[i]), MPTI_CSR_NEAREST)
MPTI_ARITHMETIC_N(bf16, 7, fma, mpt_bf16_fma(a[i], b[i], c[i]), MPTI_CSR_DOWN)

#define MPTI_TWO_ARRAYS(T, op)                                                                     \
    MPT_DEF mpt_status mpt_##T##_##op##_n(mpt_##T *dst, const mpt_##T *a, const mpt_##T *b, size_t n) \
    {                                                                                              \
        return mpti_##T##_##op##_n(dst, a, b, b, n);                                               \
    }
MPTI_TWO_ARRAYS(f16, add)
MPTI_TWO_ARRAYS(f16, sub)
MPTI_TWO_ARRAYS(f16, mul)
MPTI_TWO_ARRAYS(bf16, add)
MPTI_TWO_ARRAYS(bf16, sub)
MPTI_TWO_ARRAYS(bf16, mul)

MPT_DEF mpt_status mpt_f16_fma_n(mpt_f16 *dst, const mpt_f16 *a, const mpt_f16 *b, const mpt_f16 *c, size_t n)
{
    return mpti_f16_fma_n(dst, a, b, c, n);
}

MPT_DEF mpt_status mpt_bf16_fma_n(mpt_bf16 *dst, const mpt_bf16 *a, const mpt_bf16 *b, const mpt_bf16 *c,
                                  size_t n)
{
    return mpti_bf16_fma_n(dst, a, b, c, n);
}

// >>H17 implementation: text -----------------------------------------------------------------------
/* A natural number of at most MPTI_BIG_WORDS * 32 bits, least word first, no zero word on top. The largest
 * one here is 5^1201 (2789 bits): 801 digits that stand 400 places below the point. */
enum { MPTI_BIG_WORDS = 92, MPTI_DIGITS_KEPT = 800, MPTI_DECIMAL_RANGE = 400 };
typedef struct mpti_big { int n; uint32_t w[MPTI_BIG_WORDS]; } mpti_big;

/* b * factor + addend */
static void mpti_big_scale(mpti_big *b, uint32_t factor, uint32_t addend)
{
    uint64_t carry = addend;
    int      i;
    for (i = 0; i < b->n; i++) {
        carry += (uint64_t)b->w[i] * factor;
        b->w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry)
        b->w[b->n++] = (uint32_t)carry;
}

static void mpti_big_set(mpti_big *b, uint64_t x)
{
    b->n = x >> 32 ? 2 : x ? 1 : 0;
    b->w[0] = (uint32_t)x;
    b->w[1] = (uint32_t)(x >> 32);
}

static void mpti_big_times_power(mpti_big *b, uint32_t base, int exponent)
{
    for (; exponent > 0; exponent--)
        mpti_big_scale(b, base, 0u);
}

static void mpti_big_shift(mpti_big *b, int bits)
{
    const int words = bits / 32, rest = bits % 32;
    int       i;
    if (!b->n || !bits)
        return;
    b->w[b->n] = 0u;
    for (i = b->n; i >= 0; i--)         /* from the top: in place */
        b->w[i + words] = (b->w[i] << rest) | (rest && i ? b->w[i - 1] >> (32 - rest) : 0u);
    for (i = 0; i < words; i++)
        b->w[i] = 0u;
    b->n += words + (b->w[b->n + words] != 0u);
}

static int mpti_big_cmp(const mpti_big *a, const mpti_big *b)
{
    int i;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (i = a->n - 1; i >= 0; i--)
        if (a->w[i] != b->w[i])
            return a->w[i] < b->w[i] ? -1 : 1;
    return 0;
}

/* a - b, not negative */
static void mpti_big_minus(mpti_big *a, const mpti_big *b)
{
    uint64_t borrow = 0u;
    int      i;
    for (i = 0; i < a->n; i++) {
        const uint64_t d = (uint64_t)a->w[i] - (i < b->n ? b->w[i] : 0u) - borrow;
        a->w[i] = (uint32_t)d;
        borrow = d >> 63;
    }
    while (a->n && !a->w[a->n - 1])
        a->n--;
}

/* a + b, compared with c */
static int mpti_big_sum_cmp(const mpti_big *a, const mpti_big *b, const mpti_big *c)
{
    mpti_big rest = *c;
    if (mpti_big_cmp(a, c) > 0)
        return 1;
    mpti_big_minus(&rest, a);
    return mpti_big_cmp(b, &rest);
}

static int mpti_big_bits(const mpti_big *b) { return b->n ? b->n * 32 - mpti_clz32(b->w[b->n - 1]) : 0; }

/* ---- writing ---- */

typedef struct mpti_writer { char *buf; size_t cap, length; } mpti_writer;

static void mpti_put(mpti_writer *w, char c)
{
    if (w->length + 1 < w->cap)
        w->buf[w->length] = c;
    w->length++;
}

static void mpti_put_text(mpti_writer *w, const char *s)
{
    for (; *s; s++)
        mpti_put(w, *s);
}

static void mpti_put_int(mpti_writer *w, int x)
{
    char digits[12];
    int  n = 0;
    if (x < 0)
        mpti_put(w, '-');
    x = x < 0 ? -x : x;
    do {
        digits[n++] = (char)('0' + x % 10);
        x /= 10;
    } while (x);
    while (n)
        mpti_put(w, digits[--n]);
}

static char mpti_hex_digit(unsigned d) { return "0123456789abcdef"[d & 15u]; }

static size_t mpti_writer_end(mpti_writer *w)
{
    if (w->cap)
        w->buf[w->length < w->cap ? w->length : w->cap - 1] = '\0';
    return w->length;
}

/* Sign, Inf and NaN.  Returns: whether that was all. */
static int mpti_put_special(mpti_writer *w, const mpt_format_info *f, const mpt_fields *p)
{
    const int nan = p->kind == MPT_CLASS_QUIET_NAN || p->kind == MPT_CLASS_SIGNALING_NAN;
    uint64_t  payload = f->has_inf && f->mantissa_bits
                            ? p->mantissa_field & ((MPTI_ONE << (f->mantissa_bits - 1)) - 1u) : 0u;
    int       shift;
    if (p->sign && !(nan && f->specials == MPT_SPECIALS_FNUZ))
        mpti_put(w, '-');
    if (p->kind == MPT_CLASS_POS_INF || p->kind == MPT_CLASS_NEG_INF) {
        mpti_put_text(w, "inf");
        return 1;
    }
    if (!nan)
        return 0;
    mpti_put_text(w, p->kind == MPT_CLASS_QUIET_NAN ? "nan" : "snan");
    if (payload) {
        mpti_put_text(w, "(0x");
        for (shift = (63 - mpti_clz64(payload)) / 4 * 4; shift >= 0; shift -= 4)
            mpti_put(w, mpti_hex_digit((unsigned)(payload >> shift)));
        mpti_put(w, ')');
    }
    return 1;
}

MPT_DEF size_t mpt_to_hex_text_as(char *buf, size_t cap, const mpt_format_info *info, uint64_t code)
{
    mpti_writer w;
    mpt_fields  p;
    uint64_t    sig;
    int         up;
    w.buf = buf;
    w.cap = cap;
    w.length = 0;
    if (!info)
        return mpti_writer_end(&w);
    p = mpti_take_apart(info, code);
    if (mpti_put_special(&w, info, &p))
        return mpti_writer_end(&w);
    if (!p.significand) {
        mpti_put_text(&w, "0x0p+0");
        return mpti_writer_end(&w);
    }
    up = mpti_clz64(p.significand);
    mpti_put_text(&w, "0x1");
    sig = p.significand << up << 1;     /* without the leading one */
    if (sig)
        mpti_put(&w, '.');
    for (; sig; sig <<= 4)
        mpti_put(&w, mpti_hex_digit((unsigned)(sig >> 60)));
    mpti_put(&w, 'p');
    if (p.exponent + 63 - up >= 0)
        mpti_put(&w, '+');
    mpti_put_int(&w, p.exponent + 63 - up);
    return mpti_writer_end(&w);
}

/* The shortest digits of a finite number that is not 0: value ~ 0.d1d2d3... * 10^(*point).
 * Returns: how many; at most 17. Steele & White's digit generation: r / s is what is left of the value,
 * above / s and below / s half the gaps to the neighbours. */
static int mpti_shortest(const mpt_format_info *f, const mpt_fields *p, char *digits, int *point)
{
    const int even = !(p->code & 1u);   /* then nearest-even reads the ends of the interval as this code */
    const int first = !p->mantissa_field && (f->specials == MPT_SPECIALS_SCALE || p->exponent_field > 1u);
    const int up = p->exponent > 0 ? p->exponent : 0, down = p->exponent < 0 ? -p->exponent : 0;
    const int e = p->exponent + 63 - mpti_clz64(p->significand);
    int       k = (e + 2000) * 78913 / 262144 - 603, n = 0;     /* not above log10 of the value */
    mpti_big  r, s, above, below;
    mpti_big_set(&r, p->significand);
    mpti_big_set(&s, 4u);
    mpti_big_set(&above, 2u);
    mpti_big_set(&below, first ? 1u : 2u);      /* the numbers below a power of two lie closer */
    mpti_big_shift(&r, up + 2);
    mpti_big_shift(&above, up);
    mpti_big_shift(&below, up);
    mpti_big_shift(&s, down);
    mpti_big_times_power(&s, 10u, k);
    mpti_big_times_power(&r, 10u, -k);
    mpti_big_times_power(&above, 10u, -k);
    mpti_big_times_power(&below, 10u, -k);
    for (; mpti_big_cmp(&r, &s) >= 0; k++)
        mpti_big_scale(&s, 10u, 0u);
    *point = k;
    for (;;) {
        int d = 0, low, high, half;
        mpti_big_scale(&r, 10u, 0u);
        mpti_big_scale(&above, 10u, 0u);
        mpti_big_scale(&below, 10u, 0u);
        for (; mpti_big_cmp(&r, &s) >= 0; d++)
            mpti_big_minus(&r, &s);
        low = mpti_big_cmp(&r, &below) < even;              /* d is in the interval */
        high = mpti_big_sum_cmp(&r, &above, &s) > -even;    /* d + 1 is */
        if (low || high) {
            half = mpti_big_sum_cmp(&r, &r, &s);
            if (high && (!low || half > 0 || (half == 0 && d & 1)))
                d++;
            if (d == 10) {              /* only at the first digit */
                d = 1;
                *point += 1;
            }
            digits[n++] = (char)('0' + d);
            return n;
        }
        digits[n++] = (char)('0' + d);
    }
}

MPT_DEF size_t mpt_to_text_as(char *buf, size_t cap, const mpt_format_info *info, uint64_t code)
{
    char        digits[24];
    mpti_writer w;
    mpt_fields  p;
    int         n, i, point = 0;
    w.buf = buf;
    w.cap = cap;
    w.length = 0;
    if (!info)
        return mpti_writer_end(&w);
    p = mpti_take_apart(info, code);
    if (mpti_put_special(&w, info, &p))
        return mpti_writer_end(&w);
    if (!p.significand) {
        mpti_put(&w, '0');
        return mpti_writer_end(&w);
    }
    n = mpti_shortest(info, &p, digits, &point);
    if (point < -3 || point > 16) {
        mpti_put(&w, digits[0]);
        for (i = 1; i < n; i++) {
            if (i == 1)
                mpti_put(&w, '.');
            mpti_put(&w, digits[i]);
        }
        mpti_put(&w, 'e');
        mpti_put_int(&w, point - 1);
        return mpti_writer_end(&w);
    }
    for (i = point < 1 ? point - 1 : 0; i < n || i < point; i++) {
        if (i == point)
            mpti_put(&w, '.');
        mpti_put(&w, i >= 0 && i < n ? digits[i] : '0');
    }
    return mpti_writer_end(&w);
}

MPT_DEF size_t mpt_to_text(char *buf, size_t cap, mpt_format format, uint64_t code)
{
    return mpt_to_text_as(buf, cap, mpt_format_get(format), code);
}

MPT_DEF size_t mpt_to_hex_text(char *buf, size_t cap, mpt_format format, uint64_t code)
{
    return mpt_to_hex_text_as(buf, cap, mpt_format_get(format), code);
}

/* ---- reading ---- */

/* What a text stands for. A number is sig * 2^exp with its highest one bit in bit 62; its last bit is also
 * set if there is anything below. */
enum { MPTI_READ_NUMBER, MPTI_READ_INF, MPTI_READ_NAN, MPTI_READ_SNAN };
typedef struct mpti_read {
    int         kind;
    unsigned    sign;
    uint64_t    sig;                    /* or the payload */
    int         exp;
    const char *text;
    size_t      length, at;
} mpti_read;

/* The byte ahead, letters in lower case; 0 at the end. */
static int mpti_peek(const mpti_read *r)
{
    const int c = r->at < r->length ? (int)(unsigned char)r->text[r->at] : 0;
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

static int mpti_eat(mpti_read *r, int c)
{
    if (r->at == r->length || mpti_peek(r) != c)
        return 0;
    r->at++;
    return 1;
}

/* The value of the digit ahead, -1 if there is none. */
static int mpti_digit(const mpti_read *r, int base)
{
    const int c = mpti_peek(r);
    if (c >= '0' && c <= '9')
        return c - '0';
    return base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* [+-] digits, at least one; clamped far beyond what any text that fits in memory can bring back.
 * Returns: 0 if malformed. */
static int mpti_read_exponent(mpti_read *r, int64_t *exponent)
{
    const int64_t limit = (int64_t)1 << 60;
    int64_t       x = 0;
    int           negative, d;
    negative = mpti_eat(r, '-');
    if (!negative)
        (void)mpti_eat(r, '+');
    if (mpti_digit(r, 10) < 0)
        return 0;
    for (; (d = mpti_digit(r, 10)) >= 0; r->at++)
        x = x < limit / 16 ? x * 10 + d : limit;
    *exponent = negative ? -x : x;
    return 1;
}

static int mpti_clamp(int64_t x, int limit)
{
    return x > limit ? limit : x < -limit ? -limit : (int)x;
}

/* digits * 10^scale, exactly divided: 63 bits of quotient and whether there is a rest. */
static void mpti_read_divide(mpti_read *r, mpti_big *num, int scale)
{
    mpti_big den;
    int      shift, i;
    mpti_big_set(&den, 1u);
    for (i = scale; i <= -13; i += 13)
        mpti_big_scale(&den, 1220703125u, 0u);      /* 5^13 */
    mpti_big_times_power(&den, 5u, -i);
    mpti_big_times_power(num, 5u, scale);
    shift = mpti_big_bits(&den) - mpti_big_bits(num);
    mpti_big_shift(num, shift > 0 ? shift : 0);
    mpti_big_shift(&den, shift < 0 ? -shift : 0);
    if (mpti_big_cmp(num, &den) < 0) {
        mpti_big_shift(num, 1);
        shift++;
    }
    r->sig = 0u;
    for (i = 0; i < 63; i++) {
        const int one = mpti_big_cmp(num, &den) >= 0;
        if (one)
            mpti_big_minus(num, &den);
        r->sig = r->sig << 1 | (uint64_t)one;
        mpti_big_shift(num, 1);
    }
    r->sig |= (uint64_t)(num->n != 0);
    r->exp = scale - shift - 62;
}

static int mpti_read_decimal(mpti_read *r)
{
    mpti_big big;
    int64_t  scale = 0, exponent = 0;
    int      d, any = 0, kept = 0, lost = 0, point = 0;
    mpti_big_set(&big, 0u);
    for (;; r->at++) {
        if (!point && mpti_peek(r) == '.') {
            point = 1;
            continue;
        }
        d = mpti_digit(r, 10);
        if (d < 0)
            break;
        any = 1;
        if (kept == MPTI_DIGITS_KEPT) {     /* more can only tell that there is more */
            lost |= d != 0;
            scale += !point;
            continue;
        }
        if (kept || d) {
            mpti_big_scale(&big, 10u, (uint32_t)d);
            kept++;
        }
        scale -= point;
    }
    if (!any || (mpti_eat(r, 'e') && !mpti_read_exponent(r, &exponent)))
        return 0;
    if (!kept)
        return 1;
    if (lost) {
        mpti_big_scale(&big, 10u, 1u);
        scale--;
        kept++;
    }
    scale += exponent;
    if (scale + kept > MPTI_DECIMAL_RANGE || scale + kept < -MPTI_DECIMAL_RANGE) {
        r->sig = (MPTI_ONE << 62) + 1u;     /* far above or below every format */
        r->exp = scale > 0 ? 1100 - 62 : -1500 - 62;
        return 1;
    }
    mpti_read_divide(r, &big, (int)scale);
    return 1;
}

static int mpti_read_hex(mpti_read *r)
{
    int64_t exp = 0, exponent = 0;
    int     d, any = 0, point = 0, up;
    for (;; r->at++) {
        if (!point && mpti_peek(r) == '.') {
            point = 1;
            continue;
        }
        d = mpti_digit(r, 16);
        if (d < 0)
            break;
        any = 1;
        if (r->sig >> 59) {
            r->sig |= (uint64_t)(d != 0);
            exp += point ? 0 : 4;
        } else {
            r->sig = r->sig << 4 | (uint64_t)d;
            exp -= point ? 4 : 0;
        }
    }
    if (!any || (mpti_eat(r, 'p') && !mpti_read_exponent(r, &exponent)))
        return 0;
    if (r->sig) {
        up = mpti_clz64(r->sig) - 1;
        r->sig <<= up;
        exp += exponent - up;
        r->exp = mpti_clamp(exp + 62, 1100) - 62;
        if (exp + 62 < -1100)
            r->exp -= 400;              /* below the least subnormal double, not only at it */
    }
    return 1;
}

static int mpti_read_payload(mpti_read *r)
{
    const int base = mpti_eat(r, '0') ? (mpti_eat(r, 'x') ? 16 : 8) : 10;
    int       d;
    r->sig = 0u;
    if (base != 8 && mpti_digit(r, base) < 0)
        return 0;
    for (; (d = mpti_digit(r, base == 8 ? 10 : base)) >= 0; r->at++) {
        const uint64_t factor = base == 16 ? 16u : 10u;
        r->sig = r->sig < MPTI_ONE << 58 ? r->sig * factor + (uint64_t)d : MPTI_ONE << 62;
    }
    return mpti_eat(r, ')');
}

/* Letters that must follow.  Returns: 0 where they do not. */
static int mpti_eat_text(mpti_read *r, const char *s)
{
    while (*s && mpti_eat(r, *s))
        s++;
    return !*s;
}

static int mpti_read_text(mpti_read *r, size_t *payload_at)
{
    r->sign = (unsigned)mpti_eat(r, '-');
    if (!r->sign)
        (void)mpti_eat(r, '+');
    if (mpti_eat(r, 'i')) {
        r->kind = MPTI_READ_INF;
        return mpti_eat_text(r, "nf") && (mpti_peek(r) != 'i' || mpti_eat_text(r, "inity"));
    }
    if (mpti_peek(r) == 's' || mpti_peek(r) == 'n') {
        r->kind = mpti_eat(r, 's') ? MPTI_READ_SNAN : MPTI_READ_NAN;
        r->sig = r->kind == MPTI_READ_SNAN;
        if (!mpti_eat_text(r, "nan"))
            return 0;
        if (!mpti_eat(r, '('))
            return 1;
        *payload_at = r->at;
        return mpti_read_payload(r);
    }
    if (mpti_peek(r) == '0' && r->at + 1 < r->length && (r->text[r->at + 1] | 32) == 'x') {
        r->at += 2;
        return mpti_read_hex(r);
    }
    return mpti_read_decimal(r);
}

/* Returns: 0 if the format has no room for the payload. */
static int mpti_read_nan(const mpt_format_info *f, const mpti_read *r, const mpt_opts *o, unsigned *flags,
                         uint64_t *code)
{
    const uint64_t quiet = f->has_inf ? MPTI_ONE << (f->mantissa_bits - 1) : 1u;
    const uint64_t sign_bit = f->sign_bits ? (uint64_t)r->sign << (f->bits - 1) : 0u;
    const int      signaling = r->kind == MPTI_READ_SNAN;
    if (!f->has_inf || o->nan == MPT_NAN_CANONICAL) {
        if (r->sig >= quiet && !(signaling && r->sig == 1u))
            return 0;
        *code = mpti_encode_bits(f, (uint64_t)r->sign << 63 | (uint64_t)0xfff << 51, o, flags);
        if (!(f->specials == MPT_SPECIALS_SCALE))
            return 1;
        *code = f->nan_code;            /* unsigned: the sign of a NaN is no error */
        return 1;
    }
    if (r->sig >= quiet || (signaling && !r->sig))
        return 0;
    *code = sign_bit | f->inf_code | (signaling ? 0u : quiet) | r->sig;
    return 1;
}

MPT_DEF mpt_status mpt_from_text_as(const mpt_format_info *info, const char *text, size_t length,
                                    const mpt_opts *opts, unsigned *flags, uint64_t *code, size_t *end)
{
    const uint64_t inf = (uint64_t)0x7ff << 52;
    mpt_opts       plain;
    mpti_read      r;
    unsigned       raised = 0u;
    size_t         payload_at = 0;
    uint64_t       result = 0u;
    int            ok;
    memset(&plain, 0, sizeof plain);
    memset(&r, 0, sizeof r);
    if (!opts)
        opts = &plain;
    if (!info || !text || !code || (unsigned)opts->rounding >= (unsigned)MPT_ROUNDING_COUNT)
        return MPT_E_ARG;
    r.text = text;
    r.length = length == MPT_TEXT_TO_NUL ? strlen(text) : length;
    ok = mpti_read_text(&r, &payload_at) && r.at == r.length;
    if (ok && r.kind >= MPTI_READ_NAN && !mpti_read_nan(info, &r, opts, &raised, &result)) {
        r.at = payload_at;
        ok = 0;
    }
    if (end)
        *end = r.at;
    if (!ok)
        return MPT_E_DATA;
    if (r.kind == MPTI_READ_INF)
        result = mpti_encode_bits(info, (uint64_t)r.sign << 63 | inf, opts, &raised);
    else if (r.kind == MPTI_READ_NUMBER && !r.sig)
        result = mpti_encode_bits(info, (uint64_t)r.sign << 63, opts, &raised);
    else if (r.kind == MPTI_READ_NUMBER)
        result = mpti_encode_number(info, r.sig, r.exp, 62, r.sign, opts, &raised);
    *code = result;
    if (flags)
        *flags |= raised;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_from_text(mpt_format format, const char *text, size_t length, const mpt_opts *opts,
                                 unsigned *flags, uint64_t *code, size_t *end)
{
    return mpt_from_text_as(mpt_format_get(format), text, length, opts, flags, code, end);
}

#define MPTI_TEXT(T, id, bits_type)                                                                \
    MPT_DEF size_t mpt_##T##_to_text(char *buf, size_t cap, mpt_##T value)                         \
    {                                                                                              \
        return mpt_to_text(buf, cap, id, value.bits);                                              \
    }                                                                                              \
    MPT_DEF size_t mpt_##T##_to_hex_text(char *buf, size_t cap, mpt_##T value)                     \
    {                                                                                              \
        return mpt_to_hex_text(buf, cap, id, value.bits);                                          \
    }                                                                                              \
    MPT_DEF mpt_status mpt_##T##_from_text(const char *text, mpt_##T *value)                       \
    {                                                                                              \
        uint64_t         code = 0u;                                                                \
        const mpt_status status =                                                                  \
            value ? mpt_from_text(id, text, MPT_TEXT_TO_NUL, NULL, NULL, &code, NULL) : MPT_E_ARG; \
        if (status == MPT_OK)                                                                      \
            value->bits = (bits_type)code;                                                         \
        return status;                                                                             \
    }
MPTI_TEXT(f16, MPT_F16, uint16_t)
MPTI_TEXT(bf16, MPT_BF16, uint16_t)
MPTI_TEXT(e4m3, MPT_E4M3, uint8_t)
MPTI_TEXT(e5m2, MPT_E5M2, uint8_t)

// >>H18 implementation: arrays ---------------------------------------------------------------------

/* ---- vector kernels ---- */

/* Every kernel converts the first elements of an array, and returns how many; the caller's portable loop
 * does the rest. The bits are those of the scalar functions, whatever the processor's control register
 * says: no kernel rounds in a direction that it does not name, adds where the order of signs or zeros
 * matters, or takes or gives a subnormal float where flushing could lose it. Vectors are loaded before the
 * bytes they become are stored, from lower to higher addresses, so narrowing works in place. */
#if MPTI_X86
/* Volatile, so that it stays behind the operations whose flags it reads. */
__attribute__((target("sse"))) static inline unsigned mpti_control_word(void)
{
    unsigned r;
    __asm__ volatile("stmxcsr %0" : "=m"(r));
    return r;
}
static inline int mpti_subnormals_count(void) { return !(mpti_control_word() & 0x40u); }
static inline int mpti_no_traps(void) { return (mpti_control_word() & 0x1f80u) == 0x1f80u; }

/* SSE2: groups of sixteen in which every number is zero or normal in both formats. Any other group, and so
 * every NaN, Inf and subnormal, is done one by one. */
#define MPTI_IN_SSE2 __attribute__((target("sse2"), always_inline)) static inline

MPTI_IN_SSE2 __m128i mpti_load_sse2(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

MPTI_IN_SSE2 void mpti_store_sse2(unsigned char *p, __m128i x) { _mm_storeu_si128((__m128i *)(void *)p, x); }

/* The f16 codes of float patterns without their signs, in 32 bits: below f16's normal numbers too small, and
 * negative for zero. Ties to even: half less one is added, and the bit that will be last. */
MPTI_IN_SSE2 __m128i mpti_f16_round_sse2(__m128i u)
{
    const __m128i rebias = _mm_set1_epi32(0xfff - 0x38000000), magnitude = _mm_set1_epi32(0x7fffffff);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 13), _mm_set1_epi32(1));
    return _mm_srai_epi32(_mm_add_epi32(_mm_add_epi32(_mm_and_si128(u, magnitude), rebias), odd), 13);
}

/* The codes h with the signs of u and v. Where h is the least number, it becomes zero. */
MPTI_IN_SSE2 __m128i mpti_f16_sign_sse2(__m128i h, __m128i u, __m128i v)
{
    const __m128i sign = _mm_set1_epi16(-0x8000);
    return _mm_xor_si128(h, _mm_and_si128(_mm_xor_si128(h, _mm_packs_epi32(u, v)), sign));
}

/* Eight floats as f16 codes without their signs. Packing saturates: below 2^-47, and so zero, to the least
 * number, which is its own negative. */
MPTI_IN_SSE2 __m128i mpti_f16_eight_sse2(const unsigned char *p)
{
    const __m128i low = mpti_f16_round_sse2(mpti_load_sse2(p));
    return _mm_packs_epi32(low, mpti_f16_round_sse2(mpti_load_sse2(p + 16)));
}

MPTI_IN_SSE2 void mpti_f16_put_sse2(unsigned char *to, __m128i h, const unsigned char *p)
{
    mpti_store_sse2(to, mpti_f16_sign_sse2(h, mpti_load_sse2(p), mpti_load_sse2(p + 16)));
}

/* Whether all numbers are zero or normal in f16, from the largest codes and the largest negated ones. */
MPTI_IN_SSE2 int mpti_f16_plain_sse2(__m128i most, __m128i minus_least)
{
    const __m128i odd = _mm_or_si128(_mm_cmpgt_epi16(most, _mm_set1_epi16(0x7c00)),
                                     _mm_cmpgt_epi16(minus_least, _mm_set1_epi16(-0x400)));
    return !_mm_movemask_epi8(odd);
}

MPTI_IN_SSE2 void mpti_f16_sixteen_sse2(unsigned char *to, const unsigned char *from)
{
    const __m128i zero = _mm_setzero_si128();
    const __m128i h0 = mpti_f16_eight_sse2(from), h1 = mpti_f16_eight_sse2(from + 32);
    size_t        k;
    if (mpti_f16_plain_sse2(_mm_max_epi16(h0, h1),
                            _mm_max_epi16(_mm_sub_epi16(zero, h0), _mm_sub_epi16(zero, h1)))) {
        mpti_f16_put_sse2(to, h0, from);
        mpti_f16_put_sse2(to + 16, h1, from + 32);
        return;
    }
    for (k = 0; k < 16u; k++) {
        uint32_t x;
        uint16_t y;
        memcpy(&x, from + 4u * k, sizeof x);
        y = mpti_f16_encode(x);
        memcpy(to + 2u * k, &y, sizeof y);
    }
}

/* Two groups are looked at together: one instruction less in 42 for each, 1.04 times as fast. */
__attribute__((target("sse2"))) static size_t mpti_f16_from_f32_sse2(void *dst, const void *src, size_t n)
{
    const __m128i        zero = _mm_setzero_si128();
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    size_t               i;
    for (i = 0; n - i >= 32u; i += 32u, to += 64, from += 128) {
        const __m128i h0 = mpti_f16_eight_sse2(from), h1 = mpti_f16_eight_sse2(from + 32);
        const __m128i h2 = mpti_f16_eight_sse2(from + 64), h3 = mpti_f16_eight_sse2(from + 96);
        const __m128i most = _mm_max_epi16(_mm_max_epi16(h0, h1), _mm_max_epi16(h2, h3));
        const __m128i minus_least = _mm_max_epi16(
            _mm_max_epi16(_mm_sub_epi16(zero, h0), _mm_sub_epi16(zero, h1)),
            _mm_max_epi16(_mm_sub_epi16(zero, h2), _mm_sub_epi16(zero, h3)));
        if (MPTI_LIKELY(mpti_f16_plain_sse2(most, minus_least))) {
            mpti_f16_put_sse2(to, h0, from);
            mpti_f16_put_sse2(to + 16, h1, from + 32);
            mpti_f16_put_sse2(to + 32, h2, from + 64);
            mpti_f16_put_sse2(to + 48, h3, from + 96);
        } else {
            mpti_f16_sixteen_sse2(to, from);
            mpti_f16_sixteen_sse2(to + 32, from + 64);
        }
    }
    if (n - i >= 16u) {
        mpti_f16_sixteen_sse2(to, from);
        i += 16u;
    }
    return i;
}

/* Doubled codes that are near zero in 16 bits, on either side, but not zero: Inf, NaN or subnormal. */
MPTI_IN_SSE2 __m128i mpti_f16_odd_sse2(__m128i twice, __m128i is_zero)
{
    const __m128i above = _mm_add_epi16(twice, _mm_set1_epi16(0x7800));
    return _mm_andnot_si128(is_zero, _mm_cmpgt_epi16(above, _mm_set1_epi16(0x6fff)));
}

/* Eight floats of normal numbers and zeros: sign, exponent and mantissa in their places, and rebiased. */
MPTI_IN_SSE2 void mpti_f32_from_eight_f16_sse2(unsigned char *to, __m128i h, __m128i is_zero)
{
    const __m128i keep = _mm_set1_epi16((short)0x8fff), rebias = _mm_set1_epi16(0x3800);
    const __m128i low = _mm_slli_epi16(h, 13);
    const __m128i high = _mm_add_epi16(_mm_and_si128(_mm_srai_epi16(h, 3), keep),
                                       _mm_andnot_si128(is_zero, rebias));
    mpti_store_sse2(to, _mm_unpacklo_epi16(low, high));
    mpti_store_sse2(to + 16, _mm_unpackhi_epi16(low, high));
}

__attribute__((target("sse2"))) static size_t mpti_f32_from_f16_sse2(void *dst, const void *src, size_t n)
{
    const __m128i        zero = _mm_setzero_si128();
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    size_t               i, k;
    for (i = 0; n - i >= 16u; i += 16u) {
        const __m128i h0 = mpti_load_sse2(from + 2u * i), h1 = mpti_load_sse2(from + 2u * i + 16u);
        const __m128i twice0 = _mm_add_epi16(h0, h0), twice1 = _mm_add_epi16(h1, h1);
        const __m128i zero0 = _mm_cmpeq_epi16(twice0, zero), zero1 = _mm_cmpeq_epi16(twice1, zero);
        const __m128i odd = _mm_or_si128(mpti_f16_odd_sse2(twice0, zero0), mpti_f16_odd_sse2(twice1, zero1));
        if (MPTI_LIKELY(!_mm_movemask_epi8(odd))) {
            mpti_f32_from_eight_f16_sse2(to + 4u * i, h0, zero0);
            mpti_f32_from_eight_f16_sse2(to + 4u * i + 32u, h1, zero1);
        } else
            for (k = i; k < i + 16u; k++) {
                uint16_t x;
                uint32_t y;
                memcpy(&x, from + 2u * k, sizeof x);
                y = mpti_f16_decode(x);
                memcpy(to + 4u * k, &y, sizeof y);
            }
    }
    return i;
}

/* AVX2: from `in` bytes at p to a vector, and a loop over it. */
#define MPTI_AVX2_TARGET __attribute__((target("avx2,fma,f16c")))
#define MPTI_IN_AVX2 MPTI_AVX2_TARGET __attribute__((always_inline)) static inline

MPTI_IN_AVX2 __m256i mpti_load_avx2(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

MPTI_IN_AVX2 __m256i mpti_join_avx2(__m128i low, __m128i high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

MPTI_IN_AVX2 __m256i mpti_f16_from_f32_in_avx2(const unsigned char *p)
{
    return mpti_join_avx2(
        _mm256_cvtps_ph(_mm256_castsi256_ps(mpti_load_avx2(p)), _MM_FROUND_TO_NEAREST_INT),
        _mm256_cvtps_ph(_mm256_castsi256_ps(mpti_load_avx2(p + 32)), _MM_FROUND_TO_NEAREST_INT));
}

MPTI_IN_AVX2 __m256i mpti_f32_from_f16_in_avx2(const unsigned char *p)
{
    return _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* A double's bits below float's last one become one bit, in float's last place: then the conversion to float
 * is exact and rounds the same in every direction, but for numbers that are zero or Inf in f16 anyway. */
MPTI_IN_AVX2 __m128i mpti_f16_from_four_f64_in_avx2(const unsigned char *p, const unsigned char *q)
{
    const __m256i low = _mm256_set1_epi64x(0x1fffffff), last = _mm256_set1_epi64x(0x20000000);
    __m256i       x = mpti_load_avx2(p), y = mpti_load_avx2(q);
    x = _mm256_or_si256(x, _mm256_and_si256(_mm256_add_epi64(_mm256_and_si256(x, low), low), last));
    y = _mm256_or_si256(y, _mm256_and_si256(_mm256_add_epi64(_mm256_and_si256(y, low), low), last));
    x = _mm256_andnot_si256(low, x);
    y = _mm256_andnot_si256(low, y);
    return _mm256_cvtps_ph(
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(_mm256_castsi256_pd(x))),
                             _mm256_cvtpd_ps(_mm256_castsi256_pd(y)), 1),
        _MM_FROUND_TO_NEAREST_INT);
}

MPTI_IN_AVX2 __m256i mpti_f16_from_f64_in_avx2(const unsigned char *p)
{
    return mpti_join_avx2(mpti_f16_from_four_f64_in_avx2(p, p + 32),
                          mpti_f16_from_four_f64_in_avx2(p + 64, p + 96));
}

MPTI_IN_AVX2 __m256i mpti_bf16_round_avx2(__m256i u)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), inf = _mm256_set1_epi32(0x7f800000);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i closest = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), inf);
    return _mm256_srli_epi32(_mm256_blendv_epi8(closest, quiet, nan), 16);
}

MPTI_IN_AVX2 __m256i mpti_bf16_from_f32_in_avx2(const unsigned char *p)
{
    const __m256i a = mpti_bf16_round_avx2(mpti_load_avx2(p));
    const __m256i b = mpti_bf16_round_avx2(mpti_load_avx2(p + 32));
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

MPTI_IN_AVX2 __m256i mpti_f32_from_bf16_in_avx2(const unsigned char *p)
{
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    const __m128i nan = _mm_cmpgt_epi16(_mm_and_si128(b, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(0x7f80));
    const __m128i quiet = _mm_or_si128(b, _mm_and_si128(nan, _mm_set1_epi16(0x40)));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(quiet), 16);
}

/* Stores around the cache need a boundary: the first vector goes to where the array begins, the next ones
 * to the boundaries behind it, which converts some elements twice. */
#define MPTI_LOOP_AVX2(name, in, out)                                                                   \
    MPTI_AVX2_TARGET static size_t name##_avx2(void *dst, const void *src, size_t n)                    \
    {                                                                                                   \
        enum { GROUP = 32 / (out) };                                                                    \
        unsigned char       *to = (unsigned char *)dst;                                                 \
        const unsigned char *from = (const unsigned char *)src;                                         \
        size_t               i = 0;                                                                     \
        if (mpti_bypasses(dst, src, n, out, in)) {                                                      \
            _mm256_storeu_si256((__m256i *)(void *)to, name##_in_avx2(from));                           \
            for (i = (32u - (uintptr_t)dst % 32u) / (out); n - i >= GROUP; i += GROUP)                  \
                _mm256_stream_si256((__m256i *)(void *)(to + i * (out)), name##_in_avx2(from + i * (in))); \
            _mm_sfence();                                                                               \
        }                                                                                               \
        for (; n - i >= 2u * GROUP; i += 2u * GROUP) {                                                  \
            _mm256_storeu_si256((__m256i *)(void *)(to + i * (out)), name##_in_avx2(from + i * (in)));  \
            _mm256_storeu_si256((__m256i *)(void *)(to + (i + GROUP) * (out)),                          \
                                name##_in_avx2(from + (i + GROUP) * (in)));                             \
        }                                                                                               \
        return i;                                                                                       \
    }
MPTI_LOOP_AVX2(mpti_f16_from_f32, 4, 2)
MPTI_LOOP_AVX2(mpti_f32_from_f16, 2, 4)
MPTI_LOOP_AVX2(mpti_f16_from_f64, 8, 2)
MPTI_LOOP_AVX2(mpti_bf16_from_f32, 4, 2)
MPTI_LOOP_AVX2(mpti_f32_from_bf16, 2, 4)

/* AVX-512: sixteen elements of any format as float patterns, and floats into any format; k has a bit for each
 * element that there is, and nothing else is read. Its conversions take their rounding, and that they raise
 * no exception, from the instruction. Doubles are rounded to odd. */
#define MPTI_IN_AVX512 MPTI_AVX512_TARGET __attribute__((always_inline)) static inline
#define MPTI_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define MPTI_TRUNCATE (_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)
/* Intrinsics with all of a mask of 8, 16 or 32 places, because gcc's without one begin with a variable that
 * they leave uninitialized, and warn of it. The code is the same. Without optimization they are macros, which
 * warn of their casts: some of them with a mask, others without one. */
#if defined(__OPTIMIZE__) || defined(__clang__)
#define MPTI_Z8(op, ...) _mm512_maskz_##op((__mmask8)0xffu, __VA_ARGS__)
#define MPTI_Z16(op, ...) _mm512_maskz_##op((__mmask16)0xffffu, __VA_ARGS__)
#define MPTI_Z32(op, ...) _mm512_maskz_##op((__mmask32)0xffffffffu, __VA_ARGS__)
#else
#define MPTI_Z8(op, ...) _mm512_##op(__VA_ARGS__)
#define MPTI_Z16(op, ...) _mm512_##op(__VA_ARGS__)
#define MPTI_Z32(op, ...) _mm512_##op(__VA_ARGS__)
#endif
#define MPTI_FLOATS(h) MPTI_Z16(cvt_roundph_ps, h, _MM_FROUND_NO_EXC)

/* Floats as f16. Assembler, because gcc 12 leaves {sae} out, and without it an overflow traps where a program
 * asked for traps. */
MPTI_IN_AVX512 __m256i mpti_halves_nearest_avx512(__m512 x)
{
    __m256i r;
    __asm__("vcvtps2ph {$0, %{sae%}, %1, %0|%0, %1, %{sae%}, 0}" : "=v"(r) : "v"(x));
    return r;
}

MPTI_IN_AVX512 __m256i mpti_halves_truncated_avx512(__m512 x)
{
    __m256i r;
    __asm__("vcvtps2ph {$3, %{sae%}, %1, %0|%0, %1, %{sae%}, 3}" : "=v"(r) : "v"(x));
    return r;
}

MPTI_IN_AVX512 __m512i mpti_load_f32_avx512(const unsigned char *p, uint64_t k)
{
    return (k & 0xffffu) == 0xffffu ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi32((__mmask16)k, p);
}

MPTI_IN_AVX512 __m256i mpti_load_words_avx512(const unsigned char *p, uint64_t k)
{
    return (k & 0xffffu) == 0xffffu ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                                    : _mm256_maskz_loadu_epi16((__mmask16)k, p);
}

MPTI_IN_AVX512 __m256i mpti_load_bytes_avx512(const unsigned char *p, uint64_t k)
{
    return _mm256_cvtepu8_epi16((k & 0xffffu) == 0xffffu ? _mm_loadu_si128((const __m128i *)(const void *)p)
                                                         : _mm_maskz_loadu_epi8((__mmask16)k, p));
}

MPTI_IN_AVX512 __m512i mpti_load_f16_avx512(const unsigned char *p, uint64_t k)
{
    return _mm512_castps_si512(MPTI_FLOATS(mpti_load_words_avx512(p, k)));
}

/* x, or where the float pattern u is a NaN, u made quiet: VFIXUPIMM with a table that says so. */
MPTI_IN_AVX512 __m512i mpti_unless_nan_avx512(__m512i x, __m512i u)
{
#if defined(__OPTIMIZE__) || defined(__clang__)
    return _mm512_castps_si512(_mm512_fixupimm_round_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(u),
                                                        _mm512_set1_epi32(0x22), 0, _MM_FROUND_NO_EXC));
#else
    const __m512i   inf = _mm512_set1_epi32((int)0xff000000u);
    const __mmask16 nan = _mm512_cmpgt_epu32_mask(_mm512_add_epi32(u, u), inf);
    return _mm512_mask_or_epi32(x, nan, u, _mm512_set1_epi32(0x400000));
#endif
}

MPTI_IN_AVX512 __m512i mpti_load_bf16_avx512(const unsigned char *p, uint64_t k)
{
    const __m512i u = MPTI_Z16(cvtepu16_epi32, mpti_load_words_avx512(p, k));
    return mpti_unless_nan_avx512(MPTI_Z16(slli_epi32, u, 16), MPTI_Z16(slli_epi32, u, 16));
}

/* An E4M3 code seven bits up is the f16 code of the number divided by 2^8, subnormals too; not the NaN. */
MPTI_IN_AVX512 __m512i mpti_load_e4m3_avx512(const unsigned char *p, uint64_t k)
{
    const __m512    scale = _mm512_castsi512_ps(_mm512_set1_epi32((127 + 8) << 23));
    const __m256i   c = _mm256_slli_epi16(mpti_load_bytes_avx512(p, k), 8);
    const __m256i   h = _mm256_and_si256(_mm256_srai_epi16(c, 1), _mm256_set1_epi16((short)0xbf80));
    const __m256i   sign = _mm256_and_si256(c, _mm256_set1_epi16((short)0x8000));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_or_si256(c, _mm256_set1_epi16((short)0x8000)),
                                                  _mm256_set1_epi16((short)0xff00));
    const __m256i   quiet = _mm256_or_si256(sign, _mm256_set1_epi16(0x7e00));
    const __m256i   whole = _mm256_mask_mov_epi16(h, nan, quiet);
    return _mm512_castps_si512(
        MPTI_Z16(mul_round_ps, MPTI_FLOATS(whole), scale, MPTI_TRUNCATE));
}

MPTI_IN_AVX512 __m512i mpti_load_e5m2_avx512(const unsigned char *p, uint64_t k)
{
    return _mm512_castps_si512(
        MPTI_FLOATS(_mm256_slli_epi16(mpti_load_bytes_avx512(p, k), 8)));
}

/* Into f16 and narrower formats only: what is below 2^-126 in absolute value may come out as zero. */
MPTI_IN_AVX512 __m256i mpti_load_eight_f64_avx512(const unsigned char *p, uint64_t k)
{
    const __m512i  x = (k & 0xffu) == 0xffu ? _mm512_loadu_si512(p)
                                            : _mm512_maskz_loadu_epi64((__mmask8)k, p);
    const __mmask8 some = _mm512_test_epi64_mask(x, _mm512_set1_epi64(0x1fffffff));
    const __m512i  odd = _mm512_mask_or_epi64(x, some, x, _mm512_set1_epi64(0x20000000));
    return _mm256_castps_si256(MPTI_Z8(cvt_roundpd_ps, _mm512_castsi512_pd(odd), MPTI_TRUNCATE));
}

MPTI_IN_AVX512 __m512i mpti_join_avx512(__m256i low, __m256i high)
{
    return MPTI_Z8(inserti64x4, _mm512_castsi256_si512(low), high, 1);
}

MPTI_IN_AVX512 __m512i mpti_load_f64_avx512(const unsigned char *p, uint64_t k)
{
    return mpti_join_avx512(mpti_load_eight_f64_avx512(p, k), mpti_load_eight_f64_avx512(p + 64, k >> 8));
}

MPTI_IN_AVX512 void mpti_store_f16_avx512(unsigned char *p, __m512i x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, mpti_halves_nearest_avx512(_mm512_castsi512_ps(x)));
}

MPTI_IN_AVX512 __m512i mpti_pack_f16_avx512(__m512i a, __m512i b)
{
    return mpti_join_avx512(mpti_halves_nearest_avx512(_mm512_castsi512_ps(a)),
                            mpti_halves_nearest_avx512(_mm512_castsi512_ps(b)));
}

/* The bf16 code in the upper half of each float's place; the lower half is what it happens to be. Subtracting
 * 1 - odd - 0x8000 adds half less one, and the bit that will be last. */
MPTI_IN_AVX512 __m512i mpti_bf16_round_avx512(__m512i u)
{
    const __m512i minus = _mm512_ternarylogic_epi32(MPTI_Z16(srli_epi32, u, 16), _mm512_set1_epi32(1),
                                                    _mm512_set1_epi32(-0x8000), 0xae);  /* (~a & b) | c */
    return mpti_unless_nan_avx512(_mm512_sub_epi32(u, minus), u);
}

/* The upper halves of a, then those of b. */
MPTI_IN_AVX512 __m512i mpti_upper_halves_avx512(__m512i a, __m512i b)
{
    const __m512i places = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,
                                            30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i both = _mm512_mask_mov_epi16(MPTI_Z16(srli_epi32, a, 16), 0xaaaaaaaau, b);
    return MPTI_Z32(permutexvar_epi16, places, both);
}

MPTI_IN_AVX512 __m512i mpti_pack_bf16_avx512(__m512i a, __m512i b)
{
    return mpti_upper_halves_avx512(mpti_bf16_round_avx512(a), mpti_bf16_round_avx512(b));
}

/* Floats truncated to f16, after all that is below bit 17 became that one bit. It is far enough down not to
 * be kept by an FP8 format, and far enough up to survive where f16 is subnormal and FP8 may be a tie. */
MPTI_IN_AVX512 __m256i mpti_f16_sticky_avx512(__m512i u)
{
    const __mmask16 some = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x1ffff));
    const __m512i   odd = _mm512_mask_or_epi32(u, some, u, _mm512_set1_epi32(0x20000));
    return mpti_halves_truncated_avx512(_mm512_castsi512_ps(odd));
}

MPTI_IN_AVX512 __m512i mpti_words_down_avx512(__m512i h, int drop)
{
    return drop == 7   ? _mm512_srli_epi16(h, 7)
           : drop == 8 ? _mm512_srli_epi16(h, 8)
                       : _mm512_srli_epi16(h, 9);
}

/* The magnitude without its last seven, eight or nine bits in 16-bit places, nearest, ties to even:
 * subtracting 1 - odd - half adds half less one, and the bit that will be last. */
MPTI_IN_AVX512 __m512i mpti_round_words_avx512(__m512i magnitude, int drop)
{
    const __m512i half = _mm512_set1_epi16((short)-(1 << (drop - 1)));
    const __m512i minus = _mm512_ternarylogic_epi32(mpti_words_down_avx512(magnitude, drop),
                                                    _mm512_set1_epi16(1), half, 0xae);      /* (~a & b) | c */
    return mpti_words_down_avx512(_mm512_sub_epi16(magnitude, minus), drop);
}

/* 32 floats as f16. Divided by 2^8 a float's f16 code begins with the E4M3 code. */
MPTI_IN_AVX512 __m512i mpti_e4m3_halves_avx512(__m512i a, __m512i b)
{
    const __m512 scale = _mm512_castsi512_ps(_mm512_set1_epi32((127 - 8) << 23));
    const __m512 x = MPTI_Z16(mul_round_ps, _mm512_castsi512_ps(a), scale, MPTI_TRUNCATE);
    const __m512 y = MPTI_Z16(mul_round_ps, _mm512_castsi512_ps(b), scale, MPTI_TRUNCATE);
    return mpti_join_avx512(mpti_f16_sticky_avx512(_mm512_castps_si512(x)),
                            mpti_f16_sticky_avx512(_mm512_castps_si512(y)));
}

/* E4M3 codes in 16-bit places, without their signs. Whatever is beyond 448, Inf and NaN too, comes out above
 * 0x7e, and 0x7f is the NaN. */
MPTI_IN_AVX512 __m512i mpti_e4m3_words_avx512(__m512i h, int saturate)
{
    const __m512i magnitude = _mm512_and_si512(h, _mm512_set1_epi16(0x7fff));
    const __m512i code = mpti_round_words_avx512(magnitude, 7);
    __mmask32     nan;
    if (!saturate)
        return _mm512_min_epu16(code, _mm512_set1_epi16(0x7f));
    nan = _mm512_cmpgt_epu16_mask(magnitude, _mm512_set1_epi16(0x7c00));
    return _mm512_mask_mov_epi16(_mm512_min_epu16(code, _mm512_set1_epi16(0x7e)), nan,
                                 _mm512_set1_epi16(0x7f));
}

/* The same for E5M2, whose codes are the upper bytes of f16's; a NaN is truncated, not rounded. */
MPTI_IN_AVX512 __m512i mpti_e5m2_halves_avx512(__m512i a, __m512i b)
{
    return mpti_join_avx512(mpti_f16_sticky_avx512(a), mpti_f16_sticky_avx512(b));
}

MPTI_IN_AVX512 __m512i mpti_e5m2_words_avx512(__m512i h, int saturate)
{
    const __m512i   magnitude = _mm512_and_si512(h, _mm512_set1_epi16(0x7fff));
    const __mmask32 nan = _mm512_cmpgt_epu16_mask(magnitude, _mm512_set1_epi16(0x7c00));
    __m512i         code = mpti_round_words_avx512(magnitude, 8);
    if (saturate)
        code = _mm512_min_epu16(code, _mm512_set1_epi16(0x7b));
    return _mm512_mask_srli_epi16(code, nan, magnitude, 8);
}

/* The low bytes of 32 words a, then those of b, with the signs of x and y: packing with signed saturation
 * keeps them. */
MPTI_IN_AVX512 __m512i mpti_bytes_avx512(__m512i a, __m512i b, __m512i x, __m512i y)
{
    const __m512i bytes = _mm512_ternarylogic_epi32(_mm512_packus_epi16(a, b), _mm512_packs_epi16(x, y),
                                                    _mm512_set1_epi8((char)0x80), 0xf8);    /* a | (b & c) */
    return MPTI_Z8(permutexvar_epi64, _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), bytes);
}

#define MPTI_BITS_BELOW(n) ((n) < 64u ? ((uint64_t)1 << (n)) - 1u : ~(uint64_t)0)

/* Fill one vector of the destination from p: 16 floats, 32 halves or 64 bytes. _put stores it, in two parts
 * where that saves joining them. */
#define MPTI_PUT_WHOLE(name)                                                                            \
    MPTI_IN_AVX512 void name##_put_avx512(unsigned char *to, const unsigned char *p)                    \
    {                                                                                                   \
        _mm512_storeu_si512(to, name##_in_avx512(p, ~(uint64_t)0));                                     \
    }
#define MPTI_PUT_HALVES(name, load, in)                                                                 \
    MPTI_IN_AVX512 void name##_put_avx512(unsigned char *to, const unsigned char *p)                    \
    {                                                                                                   \
        mpti_store_f16_avx512(to, load(p, 0xffffu));                                                    \
        mpti_store_f16_avx512(to + 32, load(p + 16 * (in), 0xffffu));                                   \
    }
#define MPTI_GROUP_OF_16(name, load, in)                                                                \
    MPTI_IN_AVX512 __m512i name##_in_avx512(const unsigned char *p, uint64_t k) { return load(p, k); }  \
    MPTI_PUT_WHOLE(name)
#define MPTI_GROUP_OF_32(name, load, in, pack)                                                          \
    MPTI_IN_AVX512 __m512i name##_in_avx512(const unsigned char *p, uint64_t k)                         \
    {                                                                                                   \
        return pack(load(p, k), load(p + 16 * (in), k >> 16));                                          \
    }
#define MPTI_GROUP_OF_64(name, load, in, fp8, saturate)                                                 \
    MPTI_IN_AVX512 __m512i name##_in_avx512(const unsigned char *p, uint64_t k)                         \
    {                                                                                                   \
        const __m512i x = mpti_##fp8##_halves_avx512(load(p, k), load(p + 16 * (in), k >> 16));         \
        const __m512i y = mpti_##fp8##_halves_avx512(load(p + 32 * (in), k >> 32),                      \
                                                     load(p + 48 * (in), k >> 48));                     \
        return mpti_bytes_avx512(mpti_##fp8##_words_avx512(x, saturate),                                \
                                 mpti_##fp8##_words_avx512(y, saturate), x, y);                         \
    }                                                                                                   \
    MPTI_PUT_WHOLE(name)

MPTI_IN_AVX512 void mpti_store_avx512(unsigned char *p, __m512i x, size_t n, int out)
{
    const uint64_t k = MPTI_BITS_BELOW(n);
    switch (out) {
    case 4: _mm512_mask_storeu_epi32(p, (__mmask16)k, x); break;
    case 2: _mm512_mask_storeu_epi16(p, (__mmask32)k, x); break;
    default: _mm512_mask_storeu_epi8(p, (__mmask64)k, x); break;
    }
}

/* Whole vectors wherever there is room for one: up to a boundary and at the end they convert some elements
 * twice, which would go wrong where the first time has overwritten them. */
#define MPTI_LOOP_512(target, name, parameters, fill, put, in, out)                                     \
    target static size_t name parameters                                                                \
    {                                                                                                   \
        enum { GROUP = 64 / (out) };                                                                    \
        const uint64_t       all = MPTI_BITS_BELOW((unsigned)GROUP);                                    \
        const int            twice = dst != src && n >= GROUP;                                          \
        unsigned char       *to = (unsigned char *)dst;                                                 \
        const unsigned char *from = (const unsigned char *)src;                                         \
        size_t               i = mpti_up_to_line(dst, n, out, 64u);                                     \
        if (i && twice)                                                                                 \
            _mm512_storeu_si512(to, fill(from, all));                                                   \
        else if (i)                                                                                     \
            mpti_store_avx512(to, fill(from, MPTI_BITS_BELOW(i)), i, out);                              \
        if (mpti_bypasses(dst, src, n, out, in)) {                                                      \
            for (; n - i >= GROUP; i += GROUP) {                                                        \
                mpti_fetch_ahead(from + i * (in), GROUP * (in));                                        \
                _mm512_stream_si512((__m512i *)(void *)(to + i * (out)), fill(from + i * (in), all));   \
            }                                                                                           \
            _mm_sfence();                                                                               \
        }                                                                                               \
        for (; n - i >= 2u * GROUP; i += 2u * GROUP) {                                                  \
            put(to + i * (out), from + i * (in));                                                       \
            put(to + (i + GROUP) * (out), from + (i + GROUP) * (in));                                   \
        }                                                                                               \
        if (n - i >= GROUP) {                                                                           \
            put(to + i * (out), from + i * (in));                                                       \
            i += GROUP;                                                                                 \
        }                                                                                               \
        if (i < n && twice)                                                                             \
            _mm512_storeu_si512(to + (n - GROUP) * (out), fill(from + (n - GROUP) * (in), all));        \
        else if (i < n)                                                                                 \
            mpti_store_avx512(to + i * (out), fill(from + i * (in), MPTI_BITS_BELOW(n - i)), n - i, out); \
        return n;                                                                                       \
    }
#define MPTI_LOOP_AVX512(name, in, out)                                                                 \
    MPTI_LOOP_512(MPTI_AVX512_TARGET, name##_avx512, (void *dst, const void *src, size_t n),            \
                  name##_in_avx512, name##_put_avx512, in, out)

/* All pairs of f64, f32, f16, bf16, e4m3, e5m2 but those between a double and f32 or bf16, where flushing
 * could lose a subnormal, and into doubles. Source, its bytes. */
#define MPTI_KERNELS_INTO_F32(X) X(f16, 2) X(bf16, 2) X(e4m3, 1) X(e5m2, 1)
#define MPTI_KERNELS_INTO_F16(X) X(f64, 8) X(f32, 4) X(bf16, 2) X(e4m3, 1) X(e5m2, 1)
#define MPTI_KERNELS_INTO_BF16(X) X(f32, 4) X(f16, 2) X(e4m3, 1) X(e5m2, 1)
#define MPTI_KERNELS_INTO_E4M3(X) X(f64, 8) X(f32, 4) X(f16, 2) X(bf16, 2) X(e5m2, 1)
#define MPTI_KERNELS_INTO_E5M2(X) X(f64, 8) X(f32, 4) X(f16, 2) X(bf16, 2) X(e4m3, 1)
#define MPTI_X(s, in)                                                                   \
    MPTI_GROUP_OF_16(mpti_f32_from_##s, mpti_load_##s##_avx512, in)                     \
    MPTI_LOOP_AVX512(mpti_f32_from_##s, in, 4)
MPTI_KERNELS_INTO_F32(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in)                                                                   \
    MPTI_GROUP_OF_32(mpti_f16_from_##s, mpti_load_##s##_avx512, in, mpti_pack_f16_avx512) \
    MPTI_PUT_HALVES(mpti_f16_from_##s, mpti_load_##s##_avx512, in)                      \
    MPTI_LOOP_AVX512(mpti_f16_from_##s, in, 2)
MPTI_KERNELS_INTO_F16(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in)                                                                   \
    MPTI_GROUP_OF_32(mpti_bf16_from_##s, mpti_load_##s##_avx512, in, mpti_pack_bf16_avx512) \
    MPTI_PUT_WHOLE(mpti_bf16_from_##s)                                                  \
    MPTI_LOOP_AVX512(mpti_bf16_from_##s, in, 2)
MPTI_KERNELS_INTO_BF16(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in)                                                                   \
    MPTI_GROUP_OF_64(mpti_e4m3_from_##s, mpti_load_##s##_avx512, in, e4m3, 0) \
    MPTI_LOOP_AVX512(mpti_e4m3_from_##s, in, 1)
MPTI_KERNELS_INTO_E4M3(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in)                                                                   \
    MPTI_GROUP_OF_64(mpti_e5m2_from_##s, mpti_load_##s##_avx512, in, e5m2, 0) \
    MPTI_LOOP_AVX512(mpti_e5m2_from_##s, in, 1)
MPTI_KERNELS_INTO_E5M2(MPTI_X)
#undef MPTI_X
MPTI_GROUP_OF_64(mpti_e4m3_sat_from_f32, mpti_load_f32_avx512, 4, e4m3, 1)
MPTI_LOOP_AVX512(mpti_e4m3_sat_from_f32, 4, 1)
MPTI_GROUP_OF_64(mpti_e5m2_sat_from_f32, mpti_load_f32_avx512, 4, e5m2, 1)
MPTI_LOOP_AVX512(mpti_e5m2_sat_from_f32, 4, 1)

#if MPTI_FP16
/* AVX512-FP16 rounds a double once. Joining four results for one store would cost more than four stores. */
MPTI_IN_AVX512 __m128i mpti_f16_from_eight_f64_fp16(const unsigned char *p, uint64_t k)
{
    const __m512i x = (k & 0xffu) == 0xffu ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi64((__mmask8)k, p);
    __m128i       r;
    __asm__("vcvtpd2ph {%{rn-sae%}, %1, %0|%0, %1, %{rn-sae%}}" : "=v"(r) : "v"(x));
    return r;
}

MPTI_IN_AVX512 __m512i mpti_f16_from_f64_in_fp16(const unsigned char *p, uint64_t k)
{
    return mpti_join_avx512(
        mpti_join_avx2(mpti_f16_from_eight_f64_fp16(p, k), mpti_f16_from_eight_f64_fp16(p + 64, k >> 8)),
        mpti_join_avx2(mpti_f16_from_eight_f64_fp16(p + 128, k >> 16),
                       mpti_f16_from_eight_f64_fp16(p + 192, k >> 24)));
}

MPTI_IN_AVX512 void mpti_f16_from_f64_put_fp16(unsigned char *to, const unsigned char *p)
{
    mpti_store_sse2(to, mpti_f16_from_eight_f64_fp16(p, 0xffu));
    mpti_store_sse2(to + 16, mpti_f16_from_eight_f64_fp16(p + 64, 0xffu));
    mpti_store_sse2(to + 32, mpti_f16_from_eight_f64_fp16(p + 128, 0xffu));
    mpti_store_sse2(to + 48, mpti_f16_from_eight_f64_fp16(p + 192, 0xffu));
}
MPTI_LOOP_512(MPTI_AVX512_TARGET, mpti_f16_from_f64_fp16, (void *dst, const void *src, size_t n),
              mpti_f16_from_f64_in_fp16, mpti_f16_from_f64_put_fp16, 8, 2)
#endif

/* Store a vector, around the cache if told so: p is at a boundary of 64 bytes then. */
MPTI_IN_AVX512 void mpti_put_avx512(unsigned char *p, __m512i x, int bypass)
{
    if (bypass)
        _mm512_stream_si512((__m512i *)(void *)p, x);
    else
        _mm512_storeu_si512(p, x);
}

/* E4M3 to float by 64 codes, whose NaNs, should there be one, are looked for once. */
MPTI_IN_AVX512 __m512 mpti_e4m3_finite_avx512(const unsigned char *p)
{
    const __m512  scale = _mm512_castsi512_ps(_mm512_set1_epi32((127 + 8) << 23));
    const __m256i c = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i h = _mm256_and_si256(_mm256_slli_epi16(c, 7), _mm256_set1_epi16((short)0xbf80));
    return MPTI_Z16(mul_round_ps, MPTI_FLOATS(h), scale, MPTI_TRUNCATE);
}

MPTI_AVX512_TARGET static size_t mpti_f32_from_many_e4m3_avx512(void *dst, const void *src, size_t n)
{
    const __m512i        sign = _mm512_set1_epi8((char)0x80), nan = _mm512_set1_epi8((char)0xff);
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    const int            bypass = mpti_bypasses(dst, src, n, 4, 1);
    size_t               i = mpti_up_to_line(dst, n, 4u, 64u), k;
    if (i)
        (void)mpti_f32_from_e4m3_avx512(dst, src, i);
    for (; n - i >= 64u; i += 64u) {
        if (_mm512_cmpeq_epi8_mask(_mm512_or_si512(_mm512_loadu_si512(from + i), sign), nan)) {
            (void)mpti_f32_from_e4m3_avx512(to + 4u * i, from + i, 64u);
            continue;
        }
        for (k = i; k < i + 64u; k += 32u) {
            const __m512 x = mpti_e4m3_finite_avx512(from + k), y = mpti_e4m3_finite_avx512(from + k + 16u);
            mpti_put_avx512(to + 4u * k, _mm512_castps_si512(x), bypass);
            mpti_put_avx512(to + 4u * k + 64u, _mm512_castps_si512(y), bypass);
        }
    }
    if (bypass)
        _mm_sfence();
    if (i < n)
        (void)mpti_f32_from_e4m3_avx512(to + 4u * i, from + i, n - i);
    return n;
}

/* E4M3 to float by tables of 128 bytes, with AVX512-VBMI. The upper half of the float that a code without its
 * sign stands for: NaN, normal, subnormal with the highest bit 2, 1, 0, or zero. */
#define MPTI_E4M3_UPPER(c)                                        \
    ((c) == 127 ? 0x7fc0 : (c) > 7 ? 0x3c00 + (c) * 16            \
     : (c) > 3 ? 0x3c00 + ((c) - 4) * 32 : (c) > 1 ? 0x3b80 + ((c) - 2) * 64 : (c) * 0x3b00)
#define MPTI_4(X, c) X(c), X((c) + 1), X((c) + 2), X((c) + 3)
#define MPTI_16(X, c) MPTI_4(X, c), MPTI_4(X, (c) + 4), MPTI_4(X, (c) + 8), MPTI_4(X, (c) + 12)
#define MPTI_64(X, c) MPTI_16(X, c), MPTI_16(X, (c) + 16), MPTI_16(X, (c) + 32), MPTI_16(X, (c) + 48)
#define MPTI_VBMI_TARGET \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")))

MPTI_VBMI_TARGET static size_t mpti_f32_from_e4m3_vbmi(void *dst, const void *src, size_t n)
{
#define MPTI_X(c) MPTI_E4M3_UPPER(c) >> 8
    static const uint8_t first[128] = {MPTI_64(MPTI_X, 0), MPTI_64(MPTI_X, 64)};
#undef MPTI_X
#define MPTI_X(c) MPTI_E4M3_UPPER(c) & 0xff
    static const uint8_t second[128] = {MPTI_64(MPTI_X, 0), MPTI_64(MPTI_X, 64)};
#undef MPTI_X
    /* byte c goes where unpacking leaves the codes of one float vector in the lower halves of 32-bit places,
     * those of the next one in the upper halves */
#define MPTI_X(c) ((c) & 8) * 4 + ((c) & 1) * 16 + (c) / 16 * 4 + ((c) & 7) / 2
    static const uint8_t places[64] = {MPTI_64(MPTI_X, 0)};
#undef MPTI_X
    const __m512i        first0 = _mm512_loadu_si512(first), first1 = _mm512_loadu_si512(first + 64);
    const __m512i        second0 = _mm512_loadu_si512(second), second1 = _mm512_loadu_si512(second + 64);
    const __m512i        place = _mm512_loadu_si512(places), sign = _mm512_set1_epi8((char)0x80);
    const __m512i        upper = _mm512_set1_epi32((int)0xffff0000u);
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    const int            bypass = mpti_bypasses(dst, src, n, 4, 1);
    size_t               i = mpti_up_to_line(dst, n, 4u, 64u);
    if (i)
        (void)mpti_f32_from_e4m3_avx512(dst, src, i);
    for (; n - i >= 64u; i += 64u) {
        const __m512i c = _mm512_maskz_permutexvar_epi8(~(__mmask64)0, place, _mm512_loadu_si512(from + i));
        const __m512i a = _mm512_permutex2var_epi8(first0, c, first1);
        const __m512i b = _mm512_permutex2var_epi8(second0, c, second1);
        const __m512i high = _mm512_ternarylogic_epi32(a, c, sign, 0xf8);           /* a | (c & sign) */
        const __m512i x = _mm512_unpacklo_epi8(b, high), y = _mm512_unpackhi_epi8(b, high);
        mpti_put_avx512(to + 4u * i, MPTI_Z16(slli_epi32, x, 16), bypass);
        mpti_put_avx512(to + 4u * i + 64u, _mm512_and_si512(x, upper), bypass);
        mpti_put_avx512(to + 4u * i + 128u, MPTI_Z16(slli_epi32, y, 16), bypass);
        mpti_put_avx512(to + 4u * i + 192u, _mm512_and_si512(y, upper), bypass);
    }
    if (bypass)
        _mm_sfence();
    if (i < n)
        (void)mpti_f32_from_e4m3_avx512(to + 4u * i, from + i, n - i);
    return n;
}

static int mpti_has_vbmi(void)
{
    return MPTI_LAST_PATH >= MPTI_PATH_AVX512BF16 && __builtin_cpu_supports("avx512vbmi");
}

/* VCVTNE2PS2BF16 takes subnormals for zeros: where one is among the floats, integers do it. VFPCLASSPS finds
 * them, unless the control register says that subnormals count as zeros: then this kernel is not for use. */
#ifdef __clang__
#define MPTI_AVX512_BF16_TARGET \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#else
#define MPTI_AVX512_BF16_TARGET                                                                       \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16," \
                          "prefer-vector-width=512")))
#endif
MPTI_AVX512_BF16_TARGET __attribute__((always_inline)) static inline __m512i
mpti_bf16_from_f32_in_avx512bf16(const unsigned char *p, uint64_t k)
{
    const __m512i a = mpti_load_f32_avx512(p, k), b = mpti_load_f32_avx512(p + 64, k >> 16);
    const __m512i closest = (__m512i)_mm512_cvtne2ps_pbh(_mm512_castsi512_ps(b), _mm512_castsi512_ps(a));
    const __mmask16 tiny_a = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(a), 0x20);
    const __mmask16 tiny_b = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(b), 0x20);
    return MPTI_LIKELY(!(tiny_a | tiny_b)) ? closest : mpti_pack_bf16_avx512(a, b);
}
MPTI_AVX512_BF16_TARGET __attribute__((always_inline)) static inline void
mpti_bf16_from_f32_put_avx512bf16(unsigned char *to, const unsigned char *p)
{
    _mm512_storeu_si512(to, mpti_bf16_from_f32_in_avx512bf16(p, ~(uint64_t)0));
}
MPTI_LOOP_512(MPTI_AVX512_BF16_TARGET, mpti_bf16_from_f32_checked_avx512bf16,
              (void *dst, const void *src, size_t n), mpti_bf16_from_f32_in_avx512bf16,
              mpti_bf16_from_f32_put_avx512bf16, 4, 2)


/* VFPCLASSPS and VCVTNE2PS2BF16 wait for the same port. Of 4096 floats at a time VMAXPS, on another one, asks
 * instead, for nothing but its flags: a subnormal sets the second, a NaN, which hides a subnormal that it is
 * compared with, the first. Then nothing is kept of these 4096, nor of the flags. In the cache 1.2 times as
 * fast. Writing the control word costs more than is won: flags that are set already and unmasked exceptions
 * are not for this kernel, subnormals that count as zeros for neither. Returns: how many elements are done,
 * 0 to n. */
#define MPTI_QUICK_RUN 4096u
#define MPTI_CSR_ASKED 0x1f83u      /* the masks, and the two flags */
#define MPTI_CSR_QUIET 0x1f80u
#define MPTI_CSR_SEEN 3u
MPTI_AVX512_BF16_TARGET static size_t mpti_bf16_from_normal_f32_avx512bf16(void *dst, const void *src,
                                                                           size_t n)
{
    const unsigned       before = mpti_control_word();
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    size_t               i = mpti_up_to_line(dst, n, 2u, 64u), k;
    if ((before & MPTI_CSR_ASKED) != MPTI_CSR_QUIET)
        return 0;
    if (i)
        (void)mpti_bf16_from_f32_checked_avx512bf16(dst, src, i);
    while (n - i >= 32u) {
        const size_t run = n - i < MPTI_QUICK_RUN ? (n - i) / 32u * 32u : MPTI_QUICK_RUN;
        for (k = i; k < i + run; k += 32u) {
            const __m512 a = _mm512_loadu_ps(from + 4u * k), b = _mm512_loadu_ps(from + 4u * k + 64u);
            __m512       unused;
            __asm__ volatile("vmaxps {%2, %1, %0|%0, %1, %2}" : "=v"(unused) : "v"(a), "v"(b));
            _mm512_storeu_si512(to + 2u * k, (__m512i)_mm512_cvtne2ps_pbh(b, a));
        }
        if (mpti_control_word() & MPTI_CSR_SEEN) {
            _mm_setcsr(before);
            return i;
        }
        i += run;
    }
    return i;
}

/* Out of the cache memory is what takes its time. */
static size_t mpti_bf16_from_f32_avx512bf16(void *dst, const void *src, size_t n)
{
    size_t i = 0;
    if (n >= 512u && dst != src && !mpti_bypasses(dst, src, n, 2u, 4u))
        i = mpti_bf16_from_normal_f32_avx512bf16(dst, src, n);
    if (i == n)
        return n;
    return i + mpti_bf16_from_f32_checked_avx512bf16((unsigned char *)dst + 2u * i,
                                                     (const unsigned char *)src + 4u * i, n - i);
}
#endif

#if MPTI_ARM
/* NEON: the scalar formulas four at a time, in integers, for a control register that asks for something. A
 * shift by a negative count goes to the right. */
static inline uint16x4_t mpti_f16_from_four_neon(uint32x4_t u)
{
    const uint32x4_t one = vdupq_n_u32(1u), a = vandq_u32(u, vdupq_n_u32(0x7fffffffu));
    const uint32x4_t sign = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(0x8000u));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(a, 13), one);
    const uint32x4_t sum = vaddq_u32(vaddq_u32(a, odd), vdupq_n_u32(0xfffu - 0x38000000u));
    const uint32x4_t closest = vshrq_n_u32(sum, 13);
    /* subnormal: 126 - field bits are dropped; from 25 on nothing is left */
    const uint32x4_t sig = vorrq_u32(vandq_u32(a, vdupq_n_u32(0x7fffffu)), vdupq_n_u32(0x800000u));
    const int32x4_t  drop = vminq_s32(vsubq_s32(vdupq_n_s32(126), vreinterpretq_s32_u32(vshrq_n_u32(a, 23))),
                                      vdupq_n_s32(25));
    const uint32x4_t half = vsubq_u32(vshlq_u32(one, vsubq_s32(drop, vdupq_n_s32(1))), one);
    const uint32x4_t last = vandq_u32(vshlq_u32(sig, vnegq_s32(drop)), one);
    const uint32x4_t tiny = vshlq_u32(vaddq_u32(vaddq_u32(sig, half), last), vnegq_s32(drop));
    const uint32x4_t payload = vandq_u32(vshrq_n_u32(a, 13), vdupq_n_u32(0x3ffu));
    const uint32x4_t nan = vorrq_u32(vdupq_n_u32(0x7e00u), payload);
    uint32x4_t       h = vbslq_u32(vcltq_u32(a, vdupq_n_u32(0x38800000u)), tiny, closest);
    h = vbslq_u32(vcgeq_u32(a, vdupq_n_u32(0x47800000u)), vdupq_n_u32(0x7c00u), h);
    h = vbslq_u32(vcgtq_u32(a, vdupq_n_u32(0x7f800000u)), nan, h);
    return vmovn_u32(vorrq_u32(h, sign));
}

static inline uint32x4_t mpti_four_from_f16_neon(uint32x4_t h)
{
    const uint32x4_t sign = vshlq_n_u32(vandq_u32(h, vdupq_n_u32(0x8000u)), 16);
    const uint32x4_t a = vandq_u32(h, vdupq_n_u32(0x7fffu)), wide = vshlq_n_u32(a, 13);
    /* subnormal: the highest one bit becomes the hidden bit; zero stays */
    const int32x4_t  up = vsubq_s32(vreinterpretq_s32_u32(vclzq_u32(a)), vdupq_n_s32(21));
    const uint32x4_t field = vreinterpretq_u32_s32(vshlq_n_s32(vsubq_s32(vdupq_n_s32(112), up), 23));
    const uint32x4_t tiny = vaddq_u32(vshlq_u32(wide, up), field);
    uint32x4_t       u = vaddq_u32(wide, vdupq_n_u32(0x38000000u));
    u = vbslq_u32(vcltq_u32(a, vdupq_n_u32(0x400u)), vandq_u32(tiny, vcgtq_u32(a, vdupq_n_u32(0u))), u);
    u = vbslq_u32(vcgeq_u32(a, vdupq_n_u32(0x7c00u)), vaddq_u32(wide, vdupq_n_u32(0x70000000u)), u);
    u = vbslq_u32(vcgtq_u32(a, vdupq_n_u32(0x7c00u)), vorrq_u32(u, vdupq_n_u32(0x400000u)), u);
    return vorrq_u32(u, sign);
}

/* A loop over mpti_NAME_in_ISA, which converts `group` elements. */
#define MPTI_LOOP_NEON(name, isa, in, out, group)                                       \
    static size_t name##_##isa(void *dst, const void *src, size_t n)                    \
    {                                                                                   \
        unsigned char       *to = (unsigned char *)dst;                                 \
        const unsigned char *from = (const unsigned char *)src;                         \
        size_t               i;                                                         \
        for (i = 0; n - i >= (group); i += (group))                                     \
            name##_in_##isa(to + i * (out), from + i * (in));                           \
        return i;                                                                       \
    }

static inline void mpti_f16_from_f32_in_neon(unsigned char *to, const unsigned char *from)
{
    const uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(from));
    const uint32x4_t b = vreinterpretq_u32_u8(vld1q_u8(from + 16));
    vst1q_u8(to, vreinterpretq_u8_u16(vcombine_u16(mpti_f16_from_four_neon(a), mpti_f16_from_four_neon(b))));
}

static inline void mpti_f32_from_f16_in_neon(unsigned char *to, const unsigned char *from)
{
    const uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(from));
    vst1q_u8(to, vreinterpretq_u8_u32(mpti_four_from_f16_neon(vmovl_u16(vget_low_u16(h)))));
    vst1q_u8(to + 16, vreinterpretq_u8_u32(mpti_four_from_f16_neon(vmovl_u16(vget_high_u16(h)))));
}
MPTI_LOOP_NEON(mpti_f16_from_f32, neon, 4, 2, 8u)
MPTI_LOOP_NEON(mpti_f32_from_f16, neon, 2, 4, 8u)

/* The processor's own conversions, while its control register is plain. Doubles are rounded to odd first. */
static inline void mpti_f16_from_f32_in_neonhp(unsigned char *to, const unsigned char *from)
{
    const uint8x16_t a = vld1q_u8(from), b = vld1q_u8(from + 16);
    uint8x16_t       r;
    __asm__("fcvtn %0.4h, %1.4s\n\tfcvtn2 %0.8h, %2.4s" : "=&w"(r) : "w"(a), "w"(b));
    vst1q_u8(to, r);
}

static inline void mpti_f32_from_f16_in_neonhp(unsigned char *to, const unsigned char *from)
{
    const uint8x16_t h = vld1q_u8(from);
    uint8x16_t       a, b;
    __asm__("fcvtl %0.4s, %1.4h" : "=w"(a) : "w"(h));
    __asm__("fcvtl2 %0.4s, %1.8h" : "=w"(b) : "w"(h));
    vst1q_u8(to, a);
    vst1q_u8(to + 16, b);
}

static inline void mpti_f16_from_f64_in_neonhp(unsigned char *to, const unsigned char *from)
{
    const uint8x16_t a = vld1q_u8(from), b = vld1q_u8(from + 16);
    uint8x16_t       odd;
    uint8x8_t        r;
    __asm__("fcvtxn %0.2s, %1.2d\n\tfcvtxn2 %0.4s, %2.2d" : "=&w"(odd) : "w"(a), "w"(b));
    __asm__("fcvtn %0.4h, %1.4s" : "=w"(r) : "w"(odd));
    vst1_u8(to, r);
}
MPTI_LOOP_NEON(mpti_f16_from_f32, neonhp, 4, 2, 8u)
MPTI_LOOP_NEON(mpti_f32_from_f16, neonhp, 2, 4, 8u)
MPTI_LOOP_NEON(mpti_f16_from_f64, neonhp, 8, 2, 4u)
#endif

static int mpti_bad_array(const void *dst, const void *src, size_t n) { return n && (!dst || !src); }

/* What the array functions need to know of each type: its format and the integer of its size. */
#define MPTI_FORMAT_f64 MPT_F64
#define MPTI_FORMAT_f32 MPT_F32
#define MPTI_FORMAT_f16 MPT_F16
#define MPTI_FORMAT_bf16 MPT_BF16
#define MPTI_FORMAT_e4m3 MPT_E4M3
#define MPTI_FORMAT_e5m2 MPT_E5M2
typedef uint64_t mpti_bits_f64;
typedef uint32_t mpti_bits_f32;
typedef uint16_t mpti_bits_f16;
typedef uint16_t mpti_bits_bf16;
typedef uint8_t  mpti_bits_e4m3;
typedef uint8_t  mpti_bits_e5m2;
#define MPTI_PAIR(dst_format, src_format) ((int)(dst_format) * (int)MPT_FORMAT_COUNT + (int)(src_format))

/* The vector kernels' door: convert as many of the first elements as there is a kernel for, and return how
 * many (0: none). The portable loop does the rest. Both formats are constants at every call. */
MPTI_INLINE size_t mpti_simd_convert(mpt_format dst_format, void *dst, mpt_format src_format,
                                     const void *src, size_t n)
{
#if MPTI_X86
    const int path = mpti_path(), pair = MPTI_PAIR(dst_format, src_format);
    if (path >= MPTI_PATH_AVX512BF16 && pair == MPTI_PAIR(MPT_BF16, MPT_F32) && mpti_subnormals_count())
        return mpti_bf16_from_f32_avx512bf16(dst, src, n);
#if MPTI_FP16
    if (pair == MPTI_PAIR(MPT_F16, MPT_F64) && mpti_has_fp16())
        return mpti_f16_from_f64_fp16(dst, src, n);
#endif
    if (path >= MPTI_PATH_AVX512 && pair == MPTI_PAIR(MPT_F32, MPT_E4M3) && mpti_has_vbmi())
        return mpti_f32_from_e4m3_vbmi(dst, src, n);
    if (path >= MPTI_PATH_AVX512 && pair == MPTI_PAIR(MPT_F32, MPT_E4M3))
        return mpti_f32_from_many_e4m3_avx512(dst, src, n);
    if (path >= MPTI_PATH_AVX512)
        switch (pair) {
#define MPTI_Y(d, s) \
    case MPTI_PAIR(MPTI_FORMAT_##d, MPTI_FORMAT_##s): return mpti_##d##_from_##s##_avx512(dst, src, n);
#define MPTI_X(s, in) MPTI_Y(f32, s)
        MPTI_KERNELS_INTO_F32(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in) MPTI_Y(f16, s)
        MPTI_KERNELS_INTO_F16(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in) MPTI_Y(bf16, s)
        MPTI_KERNELS_INTO_BF16(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in) MPTI_Y(e4m3, s)
        MPTI_KERNELS_INTO_E4M3(MPTI_X)
#undef MPTI_X
#define MPTI_X(s, in) MPTI_Y(e5m2, s)
        MPTI_KERNELS_INTO_E5M2(MPTI_X)
#undef MPTI_X
#undef MPTI_Y
        default: break;
        }
    else if (path == MPTI_PATH_AVX2 && mpti_no_traps())     /* its instructions raise exceptions */
        switch (pair) {
        case MPTI_PAIR(MPT_F16, MPT_F32):  return mpti_f16_from_f32_avx2(dst, src, n);
        case MPTI_PAIR(MPT_F32, MPT_F16):  return mpti_f32_from_f16_avx2(dst, src, n);
        case MPTI_PAIR(MPT_F16, MPT_F64):  return mpti_f16_from_f64_avx2(dst, src, n);
        case MPTI_PAIR(MPT_BF16, MPT_F32): return mpti_bf16_from_f32_avx2(dst, src, n);
        case MPTI_PAIR(MPT_F32, MPT_BF16): return mpti_f32_from_bf16_avx2(dst, src, n);
        default: break;
        }
    else if (path == MPTI_PATH_SSE2)
        switch (pair) {
        case MPTI_PAIR(MPT_F16, MPT_F32): return mpti_f16_from_f32_sse2(dst, src, n);
        case MPTI_PAIR(MPT_F32, MPT_F16): return mpti_f32_from_f16_sse2(dst, src, n);
        default: break;
        }
#elif MPTI_ARM
    const int path = mpti_path(), pair = MPTI_PAIR(dst_format, src_format);
    if (path >= MPTI_PATH_NEONHP)
        switch (pair) {
        case MPTI_PAIR(MPT_F16, MPT_F32): return mpti_f16_from_f32_neonhp(dst, src, n);
        case MPTI_PAIR(MPT_F32, MPT_F16): return mpti_f32_from_f16_neonhp(dst, src, n);
        case MPTI_PAIR(MPT_F16, MPT_F64): return mpti_f16_from_f64_neonhp(dst, src, n);
        default: break;
        }
    else if (path >= MPTI_PATH_NEON)
        switch (pair) {
        case MPTI_PAIR(MPT_F16, MPT_F32): return mpti_f16_from_f32_neon(dst, src, n);
        case MPTI_PAIR(MPT_F32, MPT_F16): return mpti_f32_from_f16_neon(dst, src, n);
        default: break;
        }
#endif
    (void)dst_format, (void)src_format, (void)dst, (void)src, (void)n;
    return 0;
}

/* The portable loop of an array function, from the formula for one pattern in_. A block goes in and out by
 * memcpy, so any aliasing and alignment is fine and narrowing may work in place: a block is read before
 * anything is written. */
#define MPTI_PORTABLE(name, to_bits, from_bits, convert)                                            \
    MPTI_INLINE void name##_loop(to_bits *MPTI_RESTRICT out, const from_bits *MPTI_RESTRICT in)     \
    {                                                                                               \
        size_t i;                                                                                   \
        for (i = 0; i < MPTI_BLOCK; i++) {                                                          \
            const from_bits in_ = in[i];                                                            \
            out[i] = (to_bits)convert;                                                              \
        }                                                                                           \
    }                                                                                               \
    MPTI_TWICE(name##_block, name##_loop,                                                           \
               (to_bits *MPTI_RESTRICT out, const from_bits *MPTI_RESTRICT in), (out, in))          \
    static void name##_portable(void *dst, const void *src, size_t n)                               \
    {                                                                                               \
        unsigned char       *to = (unsigned char *)dst;                                             \
        const unsigned char *from = (const unsigned char *)src;                                     \
        from_bits            in[MPTI_BLOCK];                                                        \
        to_bits              out[MPTI_BLOCK];                                                       \
        const size_t         whole = n - n % MPTI_BLOCK;                                            \
        size_t               i;                                                                     \
        for (i = 0; i < whole; i += MPTI_BLOCK) {                                                   \
            memcpy(in, from + i * sizeof *in, sizeof in);                                           \
            name##_block(out, in);                                                                  \
            memcpy(to + i * sizeof *out, out, sizeof out);                                          \
        }                                                                                           \
        for (i = whole; i < n; i++) {                                                               \
            from_bits in_;                                                                          \
            memcpy(&in_, from + i * sizeof in_, sizeof in_);                                        \
            out[0] = (to_bits)convert;                                                              \
            memcpy(to + i * sizeof *out, out, sizeof *out);                                         \
        }                                                                                           \
    }
#define MPTI_X(d, s, dst_type, src_type, convert)                                                   \
    MPTI_PORTABLE(mpti_##d##_from_##s, mpti_bits_##d, mpti_bits_##s, convert)                       \
    MPT_DEF mpt_status mpt_##d##_from_##s##_n(dst_type *dst, const src_type *src, size_t n)         \
    {                                                                                               \
        unsigned char       *to = (unsigned char *)dst;                                             \
        const unsigned char *from = (const unsigned char *)src;                                     \
        size_t               done;                                                                  \
        if (mpti_bad_array(dst, src, n))                                                            \
            return MPT_E_ARG;                                                                       \
        done = mpti_simd_convert(MPTI_FORMAT_##d, dst, MPTI_FORMAT_##s, src, n);                    \
        if (done < n)                                                                               \
            mpti_##d##_from_##s##_portable(to + done * sizeof *dst, from + done * sizeof *src,      \
                                           n - done);                                               \
        return MPT_OK;                                                                              \
    }
MPT_PAIRS(MPTI_X)
#undef MPTI_X

MPTI_PORTABLE(mpti_e4m3_from_f32_sat, uint8_t, uint32_t, mpti_e4m3_encode_to(in_, 0x7eu))
MPTI_PORTABLE(mpti_e5m2_from_f32_sat, uint8_t, uint32_t, mpti_e5m2_encode_to(in_, 0x7bu))

MPT_DEF mpt_status mpt_e4m3_from_f32_sat_n(mpt_e4m3 *dst, const float *src, size_t n)
{
    if (mpti_bad_array(dst, src, n))
        return MPT_E_ARG;
#if MPTI_X86
    if (mpti_path() >= MPTI_PATH_AVX512) {
        (void)mpti_e4m3_sat_from_f32_avx512(dst, src, n);
        return MPT_OK;
    }
#endif
    mpti_e4m3_from_f32_sat_portable(dst, src, n);
    return MPT_OK;
}

MPT_DEF mpt_status mpt_e5m2_from_f32_sat_n(mpt_e5m2 *dst, const float *src, size_t n)
{
    if (mpti_bad_array(dst, src, n))
        return MPT_E_ARG;
#if MPTI_X86
    if (mpti_path() >= MPTI_PATH_AVX512) {
        (void)mpti_e5m2_sat_from_f32_avx512(dst, src, n);
        return MPT_OK;
    }
#endif
    mpti_e5m2_from_f32_sat_portable(dst, src, n);
    return MPT_OK;
}

MPT_DEF const char *mpt_simd_name(void)
{
    switch (mpti_path()) {
    case MPTI_PATH_AVX512BF16: return "avx512bf16";
    case MPTI_PATH_AVX512:     return "avx512";
    case MPTI_PATH_AVX2:       return MPTI_ARM ? "neonhp" : "avx2";
    case MPTI_PATH_SSE2:       return MPTI_ARM ? "neon" : "sse2";
    default:                   return "portable";
    }
}

MPT_DEF mpt_status mpt_f16_bits_from_f32_n(uint16_t *dst, const float *src, size_t n)
{
    return mpt_f16_from_f32_n((mpt_f16 *)(void *)dst, src, n);
}

MPT_DEF mpt_status mpt_f32_from_f16_bits_n(float *dst, const uint16_t *src, size_t n)
{
    return mpt_f32_from_f16_n(dst, (const mpt_f16 *)(const void *)src, n);
}

MPT_DEF mpt_status mpt_bf16_bits_from_f32_n(uint16_t *dst, const float *src, size_t n)
{
    return mpt_bf16_from_f32_n((mpt_bf16 *)(void *)dst, src, n);
}

MPT_DEF mpt_status mpt_f32_from_bf16_bits_n(float *dst, const uint16_t *src, size_t n)
{
    return mpt_f32_from_bf16_n(dst, (const mpt_bf16 *)(const void *)src, n);
}

/* ---- any two formats, with options ---- */

static int mpti_is_plain(const mpt_opts *o)
{
    return !o || (o->rounding == MPT_RND_NEAREST_EVEN && o->overflow == MPT_OVERFLOW_IEEE && !o->flush &&
                  o->nan == MPT_NAN_KEEP);
}

static uint64_t mpti_load_code(const void *p, int bytes)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    switch (bytes) {
    case 8: memcpy(&u64, p, 8u); return u64;
    case 4: memcpy(&u32, p, 4u); return u32;
    case 2: memcpy(&u16, p, 2u); return u16;
    default: return *(const unsigned char *)p;
    }
}

static void mpti_store_code(void *p, int bytes, uint64_t code)
{
    const uint32_t u32 = (uint32_t)code;
    const uint16_t u16 = (uint16_t)code;
    switch (bytes) {
    case 8: memcpy(p, &code, 8u); break;
    case 4: memcpy(p, &u32, 4u); break;
    case 2: memcpy(p, &u16, 2u); break;
    default: *(unsigned char *)p = (unsigned char)code; break;
    }
}

/* The pattern of the double that a code stands for; unlike mpt_decode_as it leaves a signaling NaN
 * signaling, so that encoding raises INVALID, and flushes on request. */
static uint64_t mpti_f64_of_code(const mpt_format_info *f, uint64_t code, unsigned flush)
{
    const mpt_fields p = mpti_take_apart(f, code);
    const uint64_t   sign = (uint64_t)p.sign << 63;
    switch (p.kind) {
    case MPT_CLASS_SIGNALING_NAN:
        return sign | (uint64_t)0x7ff << 52 | p.mantissa_field << (52 - f->mantissa_bits);
    case MPT_CLASS_NEG_SUBNORMAL:
    case MPT_CLASS_POS_SUBNORMAL:
        if (flush & MPT_FLUSH_INPUTS)
            return sign;
        break;
    default: break;
    }
    return mpti_f64_bits(mpt_decode_as(f, code));
}

/* The options of element i of an array. */
static mpt_opts mpti_opts_at(const mpt_opts *o, uint64_t i)
{
    mpt_opts r = *o;
    if (o->rounding == MPT_RND_STOCHASTIC)
        r.random = o->randoms ? o->randoms[i] : mpt_philox(o->seed, o->stream, o->step, o->first_element + i);
    return r;
}

/* The fast functions as a table of one signature. Returns: whether there was one. */
static int mpti_convert_fast(mpt_format df, void *dst, mpt_format sf, const void *src, size_t n)
{
    switch (MPTI_PAIR(df, sf)) {
#define MPTI_X(d, s, dst_type, src_type, convert)                                   \
    case MPTI_PAIR(MPTI_FORMAT_##d, MPTI_FORMAT_##s):                               \
        (void)mpt_##d##_from_##s##_n((dst_type *)dst, (const src_type *)src, n);    \
        return 1;
        MPT_PAIRS(MPTI_X)
#undef MPTI_X
    default: return 0;
    }
}

/* One side of a conversion: where the elements are and how they lie there. */
typedef struct mpti_side {
    mpt_format             format;
    const mpt_format_info *info;
    ptrdiff_t              stride;
    int                    swap;    /* the bytes of an element are not in this machine's order */
} mpti_side;

static int mpti_is_big_endian(void)
{
    const uint16_t one = 1u;
    unsigned char  first;
    memcpy(&first, &one, 1u);
    return !first;
}

static mpti_side mpti_side_of(mpt_format format, mpt_byte_order order)
{
    mpti_side side;
    side.format = format;
    side.info = mpt_format_get(format);
    side.stride = side.info ? side.info->bytes : 0;
    side.swap = order != MPT_NATIVE_ENDIAN && (order == MPT_BIG_ENDIAN) != mpti_is_big_endian();
    return side;
}

static int mpti_is_packed(const mpti_side *side) { return side->stride == side->info->bytes && !side->swap; }

static void mpti_swap_bytes(unsigned char *p, size_t bytes, size_t n)
{
    size_t i, k;
    for (i = 0; i < n; i++, p += bytes)
        for (k = 0; k < bytes / 2u; k++) {
            const unsigned char t = p[k];
            p[k] = p[bytes - 1u - k];
            p[bytes - 1u - k] = t;
        }
}

/* n elements from memory into a block, and back. */
static void mpti_gather(void *block, const unsigned char *p, const mpti_side *side, size_t n)
{
    const size_t   bytes = (size_t)side->info->bytes;
    unsigned char *to = (unsigned char *)block;
    size_t         i;
    if (side->stride == side->info->bytes)
        memcpy(to, p, n * bytes);
    else
        for (i = 0; i < n; i++)
            memcpy(to + i * bytes, p + (ptrdiff_t)i * side->stride, bytes);
    if (side->swap)
        mpti_swap_bytes(to, bytes, n);
}

static void mpti_scatter(unsigned char *p, void *block, const mpti_side *side, size_t n)
{
    const size_t   bytes = (size_t)side->info->bytes;
    unsigned char *from = (unsigned char *)block;
    size_t         i;
    if (side->swap)
        mpti_swap_bytes(from, bytes, n);
    if (side->stride == side->info->bytes)
        memcpy(p, from, n * bytes);
    else
        for (i = 0; i < n; i++)
            memcpy(p + (ptrdiff_t)i * side->stride, from + i * bytes, bytes);
}

/* One block between two packed buffers of this machine's byte order, element by element. */
static void mpti_convert_slow(const mpti_side *d, void *dst, const mpti_side *s, const void *src, size_t n,
                              const mpt_opts *o, uint64_t first, unsigned *flags)
{
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    size_t               i;
    for (i = 0; i < n; i++) {
        const uint64_t code = mpti_load_code(from + i * (size_t)s->info->bytes, s->info->bytes);
        const mpt_opts at = mpti_opts_at(o, first + i);
        mpti_store_code(to + i * (size_t)d->info->bytes, d->info->bytes,
                        mpti_encode_bits(d->info, mpti_f64_of_code(s->info, code, o->flush), &at, flags));
    }
}

/* mpt_philox_block for many counters in a row: 4 * blocks words; blocks is a multiple of MPTI_PHILOX_BLOCKS.
 * Vectors have a counter's word in each 64-bit place, of which only the low half counts, so that a product
 * need not be cut; words 0 and 1 of a counter end in one place, 2 and 3 in another. The places hold the
 * counters in the order in which unpacking puts them right. Compilers find none of this. */
#define MPTI_PHILOX_BLOCKS (MPTI_BLOCK / 8)     /* for a block of elements; a multiple of 32 */
#if MPTI_X86
typedef struct mpti_philox_keys { uint32_t first[10], second[10], stream, step; } mpti_philox_keys;

static mpti_philox_keys mpti_philox_schedule(uint64_t seed, uint32_t stream, uint32_t step)
{
    mpti_philox_keys key;
    uint32_t         i;
    key.stream = stream;
    key.step = step;
    for (i = 0; i < 10u; i++) {
        key.first[i] = (uint32_t)seed + i * 0x9e3779b9u;
        key.second[i] = (uint32_t)(seed >> 32) + i * 0xbb67ae85u;
    }
    return key;
}

#define MPTI_PHILOX_AVX2 __attribute__((target("avx2")))

MPTI_PHILOX_AVX2 static void mpti_philox_avx2(uint32_t *out, uint64_t block, size_t blocks,
                                              const mpti_philox_keys *key)
{
    const __m256i m0 = _mm256_set1_epi32((int)0xd2511f53u), m1 = _mm256_set1_epi32((int)0xcd9e8d57u);
    size_t        i, k;
    for (i = 0; i < blocks; i += 4u) {
        __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x((long long)(block + i)),
                                      _mm256_set_epi64x(3, 1, 2, 0));
        __m256i c1 = _mm256_srli_epi64(c0, 32);
        __m256i c2 = _mm256_set1_epi32((int)key->stream);
        __m256i c3 = _mm256_set1_epi32((int)key->step);
        for (k = 0; k < 10u; k++) {
            const __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
            c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1),
                                  _mm256_set1_epi32((int)key->first[k]));
            c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3),
                                  _mm256_set1_epi32((int)key->second[k]));
            c1 = p1;
            c3 = p0;
        }
        c0 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
        c2 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
        _mm256_storeu_si256((__m256i *)(void *)(out + 4u * i), _mm256_unpacklo_epi64(c0, c2));
        _mm256_storeu_si256((__m256i *)(void *)(out + 4u * i + 8u), _mm256_unpackhi_epi64(c0, c2));
    }
}

typedef struct mpti_philox_512 { __m512i c0, c1, c2, c3; } mpti_philox_512;

/* The state after two rounds of counters that agree in all but c0: what does not depend on c0 is computed
 * once for all of them, which leaves half of these rounds. */
typedef struct mpti_philox_start { uint32_t c2, c3, first, second; } mpti_philox_start;

static mpti_philox_start mpti_philox_prepare(uint32_t c1, const mpti_philox_keys *key)
{
    const uint64_t    p1 = (uint64_t)0xcd9e8d57u * key->stream;
    const uint64_t    p0 = (uint64_t)0xd2511f53u * ((uint32_t)(p1 >> 32) ^ c1 ^ key->first[0]);
    mpti_philox_start s;
    s.first = key->step ^ key->second[0];
    s.second = (uint32_t)p1 ^ key->first[1];
    s.c2 = (uint32_t)(p0 >> 32) ^ key->second[1];
    s.c3 = (uint32_t)p0;
    return s;
}

MPTI_IN_AVX512 mpti_philox_512 mpti_philox_begin_avx512(uint64_t block, const mpti_philox_start *s)
{
    const __m512i   c0 = _mm512_add_epi64(_mm512_set1_epi64((long long)block),
                                          _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0));
    const __m512i   p0 = MPTI_Z8(mul_epu32, _mm512_set1_epi32((int)0xd2511f53u), c0);
    const __m512i   c2 = _mm512_xor_si512(MPTI_Z8(srli_epi64, p0, 32), _mm512_set1_epi32((int)s->first));
    const __m512i   p1 = MPTI_Z8(mul_epu32, _mm512_set1_epi32((int)0xcd9e8d57u), c2);
    mpti_philox_512 x;
    x.c0 = _mm512_xor_si512(MPTI_Z8(srli_epi64, p1, 32), _mm512_set1_epi32((int)s->second));
    x.c1 = p1;
    x.c2 = _mm512_xor_si512(p0, _mm512_set1_epi32((int)s->c2));
    x.c3 = _mm512_set1_epi32((int)s->c3);
    return x;
}

/* One upper half by a shuffle, the other one by a shift: they are done in different places. */
MPTI_IN_AVX512 mpti_philox_512 mpti_philox_round_avx512(mpti_philox_512 x, __m512i k0, __m512i k1)
{
    const __m512i p0 = MPTI_Z8(mul_epu32, _mm512_set1_epi32((int)0xd2511f53u), x.c0);
    const __m512i p1 = MPTI_Z8(mul_epu32, _mm512_set1_epi32((int)0xcd9e8d57u), x.c2);
    x.c0 = _mm512_ternarylogic_epi32(MPTI_Z8(srli_epi64, p1, 32), x.c1, k0, 0x96);
    x.c2 = _mm512_ternarylogic_epi32(MPTI_Z16(shuffle_epi32, p0, (_MM_PERM_ENUM)0xf5), x.c3, k1, 0x96);
    x.c1 = p1;
    x.c3 = p0;
    return x;
}

MPTI_IN_AVX512 void mpti_philox_end_avx512(uint32_t *out, mpti_philox_512 x)
{
    const __m512i low = _mm512_mask_shuffle_epi32(x.c0, 0xaaaa, x.c1, (_MM_PERM_ENUM)0xa0);
    const __m512i high = _mm512_mask_shuffle_epi32(x.c2, 0xaaaa, x.c3, (_MM_PERM_ENUM)0xa0);
    _mm512_storeu_si512(out, MPTI_Z8(unpacklo_epi64, low, high));  /* four blocks, which are in even places */
    _mm512_storeu_si512(out + 16, MPTI_Z8(unpackhi_epi64, low, high));
}

/* Four times eight blocks at a time, because each waits for its products; while the counter's low half does
 * not pass its end. */
MPTI_AVX512_TARGET static void mpti_philox_avx512(uint32_t *out, uint64_t block, size_t blocks,
                                                  const mpti_philox_keys *key)
{
    const mpti_philox_start s = mpti_philox_prepare((uint32_t)(block >> 32), key);
    size_t                  i, k;
    for (i = 0; i < blocks; i += 32u) {
        mpti_philox_512 a = mpti_philox_begin_avx512(block + i, &s);
        mpti_philox_512 b = mpti_philox_begin_avx512(block + i + 8u, &s);
        mpti_philox_512 c = mpti_philox_begin_avx512(block + i + 16u, &s);
        mpti_philox_512 d = mpti_philox_begin_avx512(block + i + 24u, &s);
        for (k = 2; k < 10u; k++) {
            const __m512i k0 = _mm512_set1_epi32((int)key->first[k]);
            const __m512i k1 = _mm512_set1_epi32((int)key->second[k]);
            a = mpti_philox_round_avx512(a, k0, k1);
            b = mpti_philox_round_avx512(b, k0, k1);
            c = mpti_philox_round_avx512(c, k0, k1);
            d = mpti_philox_round_avx512(d, k0, k1);
        }
        mpti_philox_end_avx512(out + 4u * i, a);
        mpti_philox_end_avx512(out + 4u * i + 32u, b);
        mpti_philox_end_avx512(out + 4u * i + 64u, c);
        mpti_philox_end_avx512(out + 4u * i + 96u, d);
    }
}

static void mpti_philox_vectors(uint32_t *out, uint64_t block, size_t blocks, const mpti_philox_keys *key)
{
    if (mpti_path() >= MPTI_PATH_AVX512 && (uint32_t)block <= 0u - (uint32_t)blocks)
        mpti_philox_avx512(out, block, blocks, key);
    else
        mpti_philox_avx2(out, block, blocks, key);
}
#endif

static MPTI_UNUSED void mpti_philox_fill(uint32_t *out, uint64_t block, size_t blocks, uint32_t stream,
                                         uint32_t step, uint64_t seed)
{
    size_t i;
#if MPTI_X86
    if (mpti_path() >= MPTI_PATH_AVX2) {
        const mpti_philox_keys key = mpti_philox_schedule(seed, stream, step);
        mpti_philox_vectors(out, block, blocks, &key);
        return;
    }
#endif
    for (i = 0; i < blocks; i++) {
        const uint64_t         at = block + i;
        const mpt_philox_words r =
            mpt_philox_block((uint32_t)at, (uint32_t)(at >> 32), stream, step, seed);
        memcpy(out + 4u * i, r.word, sizeof r.word);
    }
}

/* mpt_philox of a block of elements from `first` on, a multiple of eight. */
static MPTI_UNUSED void mpti_random_fill(uint32_t out[MPTI_BLOCK], uint64_t first, uint32_t stream,
                                         uint32_t step, uint64_t seed)
{
    uint32_t words[4 * MPTI_PHILOX_BLOCKS];
    size_t   i, k;
    mpti_philox_fill(words, first >> 3, MPTI_PHILOX_BLOCKS, stream, step, seed);
    for (i = 0; i < MPTI_PHILOX_BLOCKS; i++)
        for (k = 0; k < 4u; k++) {
            out[8u * i + k] = words[4u * i + k];
            out[8u * i + 4u + k] = mpti_swap_halves(words[4u * i + k]);
        }
}

#if MPTI_X86
/* Rounding up with probability (what is dropped) / (the gap) is to add the complement of the random bits and
 * to truncate: they carry exactly if the bits are less. So the words come as complements. */
typedef struct mpti_words_512 { __m512i low, high; } mpti_words_512;

/* Sixteen words, each four of which serve twice, for 32 elements. */
MPTI_IN_AVX512 mpti_words_512 mpti_words_avx512(const uint32_t *words)
{
    const __m512i  first = _mm512_xor_si512(_mm512_loadu_si512(words), _mm512_set1_epi32(-1));
    const __m512i  second = MPTI_Z16(ror_epi32, first, 16);
    mpti_words_512 w;
    w.low = _mm512_permutex2var_epi64(first, _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), second);
    w.high = _mm512_permutex2var_epi64(first, _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4), second);
    return w;
}

/* Numbers that are subnormal in f16, put in the places k of h: of these 126 - field bits are dropped, the
 * hidden one perhaps too. */
MPTI_AVX512_TARGET __attribute__((noinline)) static __m256i
mpti_f16_stochastic_tiny_avx512(__m256i h, __mmask16 k, __m512i u, __m512i word)
{
    const __m512i   one = _mm512_set1_epi32(1), mantissa = _mm512_set1_epi32(0x7fffff);
    const __m512i   field = MPTI_Z16(srli_epi32, _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)), 23);
    const __mmask16 normal = _mm512_test_epi32_mask(field, field);
    const __m512i   own = MPTI_Z16(max_epu32, field, one), fraction = _mm512_and_si512(u, mantissa);
    const __m512i   sig = _mm512_mask_or_epi32(fraction, normal, fraction, _mm512_set1_epi32(0x800000));
    const __m512i   drop = _mm512_sub_epi32(_mm512_set1_epi32(126), own), width = _mm512_set1_epi32(32);
    const __m512i   gap = _mm512_or_si512(MPTI_Z16(sllv_epi32, sig, _mm512_sub_epi32(width, drop)),
                                          MPTI_Z16(srlv_epi32, sig, _mm512_sub_epi32(drop, width)));
    const __m512i   rest = _mm512_sub_epi32(_mm512_setzero_si512(), gap);
    const __mmask16 up = _mm512_mask_cmpge_epu32_mask(_mm512_test_epi32_mask(gap, gap), word, rest);
    const __m512i   kept = MPTI_Z16(srlv_epi32, sig, drop), code = _mm512_mask_add_epi32(kept, up, kept, one);
    const __m512i   sign = _mm512_and_si512(MPTI_Z16(srli_epi32, u, 16), _mm512_set1_epi32(0x8000));
    return _mm256_mask_mov_epi16(h, k, MPTI_Z16(cvtepi32_epi16, _mm512_or_si512(code, sign)));
}

/* Numbers that are normal in f16 drop 13 bits. Truncation then never makes a finite number Inf. *tiny: those
 * for the function above. */
MPTI_IN_AVX512 __m256i mpti_f16_stochastic_avx512(__m512i u, __m512i word, __mmask16 *tiny)
{
    const __m512i   a = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 within = _mm512_cmplt_epu32_mask(a, _mm512_set1_epi32(0x47800000));
    const __m512i   t = _mm512_mask_add_epi32(u, within, u, MPTI_Z16(srli_epi32, word, 19));
    *tiny = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(a, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x387fffff));
    return mpti_halves_truncated_avx512(_mm512_castsi512_ps(t));
}

MPTI_IN_AVX512 __m512i mpti_f16_stochastic_both_avx512(__m512i a, __m512i b, mpti_words_512 w)
{
    __mmask16 tiny_a, tiny_b;
    __m256i   low = mpti_f16_stochastic_avx512(a, w.low, &tiny_a);
    __m256i   high = mpti_f16_stochastic_avx512(b, w.high, &tiny_b);
    if (tiny_a | tiny_b) {
        low = mpti_f16_stochastic_tiny_avx512(low, tiny_a, a, w.low);
        high = mpti_f16_stochastic_tiny_avx512(high, tiny_b, b, w.high);
    }
    return mpti_join_avx512(low, high);
}

/* The same for bf16, in the upper halves of the places: 16 bits are dropped all over. */
MPTI_IN_AVX512 __m512i mpti_bf16_stochastic_avx512(__m512i u, __m512i word)
{
    const __m512i   magnitude = _mm512_set1_epi32(0x7fffffff), inf = _mm512_set1_epi32(0x7f800000);
    const __m512i   a = _mm512_and_si512(u, magnitude);
    const __mmask16 finite = _mm512_cmplt_epu32_mask(a, inf), nan = _mm512_cmpgt_epu32_mask(a, inf);
    const __m512i   up = _mm512_add_epi32(a, MPTI_Z16(srli_epi32, word, 16));
    __m512i         t = _mm512_mask_min_epu32(a, finite, up, _mm512_set1_epi32(0x7f7fffff));
    t = _mm512_mask_or_epi32(t, nan, t, _mm512_set1_epi32(0x400000));
    return _mm512_ternarylogic_epi32(t, u, _mm512_set1_epi32((int)0x80000000u), 0xf8);
}

/* 32 floats, of which there are those in k, to f16 or bf16. */
MPTI_IN_AVX512 __m512i mpti_stochastic_in_avx512(const unsigned char *p, const uint32_t *words, uint64_t k,
                                                 int brain)
{
    const __m512i        a = mpti_load_f32_avx512(p, k), b = mpti_load_f32_avx512(p + 64, k >> 16);
    const mpti_words_512 w = mpti_words_avx512(words);
    return brain ? mpti_upper_halves_avx512(mpti_bf16_stochastic_avx512(a, w.low),
                                            mpti_bf16_stochastic_avx512(b, w.high))
                 : mpti_f16_stochastic_both_avx512(a, b, w);
}

/* n floats with the words from element `first` on, a multiple of eight. Around the cache the first few go up
 * to a line's boundary: so many that the next ones begin with a block of random words, too; and the words are
 * made for few elements at a time, so that memory does not stand still meanwhile: 1.2 times as fast. */
MPTI_IN_AVX512 void mpti_stochastic_loop_avx512(unsigned char *to, const unsigned char *from, size_t n,
                                                const mpt_opts *o, uint64_t first, int brain)
{
    const mpti_philox_keys key = mpti_philox_schedule(o->seed, o->stream, o->step);
    const int              large = mpti_bypasses(to, from, n, 2u, 4u);
    const int              bypass = large && (uintptr_t)to % 16u == 0u;
    const size_t           up = bypass ? mpti_up_to_line(to, n, 2u, 64u) : 0u;
    uint32_t               words[32 * MPTI_PHILOX_BLOCKS];
    const size_t           most = large ? 8u * MPTI_PHILOX_BLOCKS : 2u * sizeof words / sizeof *words;
    size_t                 i, k, count;
    for (i = 0; i < n; i += count) {
        count = !i && up ? up : n - i < most ? n - i : most;
        k = (count + 7u) / 8u + MPTI_PHILOX_BLOCKS - 1u;
        mpti_philox_vectors(words, (first + i) >> 3, k - k % MPTI_PHILOX_BLOCKS, &key);
        for (k = 0; count - k >= 32u; k += 32u) {
            if (large)
                mpti_fetch_ahead(from + 4u * (i + k), 128u);
            mpti_put_avx512(to + 2u * (i + k),
                            mpti_stochastic_in_avx512(from + 4u * (i + k), words + k / 2u,
                                                      MPTI_BITS_BELOW(32u), brain), bypass);
        }
        if (k < count)
            mpti_store_avx512(to + 2u * (i + k),
                              mpti_stochastic_in_avx512(from + 4u * (i + k), words + k / 2u,
                                                        MPTI_BITS_BELOW(count - k), brain), count - k, 2);
    }
    if (bypass)
        _mm_sfence();
}

MPTI_AVX512_TARGET static void mpti_stochastic_avx512(unsigned char *to, const unsigned char *from, size_t n,
                                                      int brain, const mpt_opts *o, uint64_t first)
{
    if (brain)
        mpti_stochastic_loop_avx512(to, from, n, o, first, 1);
    else
        mpti_stochastic_loop_avx512(to, from, n, o, first, 0);
}
#endif

/* The vector kernels' door for stochastic rounding with the header's Philox and no other option: as
 * mpti_simd_convert. Elements before the first whole Philox block take the slow path. */
static size_t mpti_simd_stochastic(const mpti_side *d, unsigned char *to, const mpti_side *s,
                                   const unsigned char *from, size_t n, const mpt_opts *o)
{
#if MPTI_X86
    const size_t ahead = (size_t)(((o->first_element + 7u) & ~(uint64_t)7) - o->first_element);
    const size_t head = ahead < n ? ahead : n;
    unsigned     unused = 0u;
    if (o->rounding == MPT_RND_STOCHASTIC && !o->randoms && o->overflow == MPT_OVERFLOW_IEEE && !o->flush &&
        o->nan == MPT_NAN_KEEP && s->format == MPT_F32 && (d->format == MPT_F16 || d->format == MPT_BF16) &&
        o->first_element <= ~(uint64_t)0 - n && mpti_path() >= MPTI_PATH_AVX512) {
        mpti_convert_slow(d, to, s, from, head, o, 0u, &unused);
        mpti_stochastic_avx512(to + 2u * head, from + 4u * head, n - head, d->format == MPT_BF16, o,
                               o->first_element + head);
        return n;
    }
#endif
    (void)d, (void)to, (void)s, (void)from, (void)n, (void)o;
    return 0u;
}

/* The engine of all conversions with formats known at run time. */
static mpt_status mpti_convert(const mpti_side *d, void *dst, const mpti_side *s, const void *src, size_t n,
                               const mpt_opts *opts, unsigned *flags)
{
    const mpt_opts       plain = MPTI_PLAIN_OPTS;
    const int            fast = !flags && mpti_is_plain(opts);
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    uint64_t             in[MPTI_BLOCK], out[MPTI_BLOCK];
    unsigned             raised = 0u;
    size_t               i;
    if (mpti_bad_array(dst, src, n) || !d->info || !s->info || (opts && mpti_bad_opts(opts)))
        return MPT_E_ARG;
    if (n && fast && mpti_is_packed(d) && mpti_is_packed(s)) {
        if (d->format == s->format) {
            memmove(dst, src, n * (size_t)d->info->bytes);
            return MPT_OK;
        }
        if (mpti_convert_fast(d->format, dst, s->format, src, n))
            return MPT_OK;
    }
    i = 0;
    if (opts && !flags && mpti_is_packed(d) && mpti_is_packed(s))
        i = mpti_simd_stochastic(d, to, s, from, n, opts);
    for (; i < n; i += MPTI_BLOCK) {
        const size_t take = n - i < MPTI_BLOCK ? n - i : MPTI_BLOCK;
        mpti_gather(in, from + (ptrdiff_t)i * s->stride, s, take);
        if (fast && d->format == s->format)
            memcpy(out, in, take * (size_t)d->info->bytes);
        else if (!fast || !mpti_convert_fast(d->format, out, s->format, in, take))
            mpti_convert_slow(d, out, s, in, take, opts ? opts : &plain, i, &raised);
        mpti_scatter(to + (ptrdiff_t)i * d->stride, out, d, take);
    }
    if (flags)
        *flags |= raised;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_convert_n(mpt_format dst_format, void *dst, mpt_format src_format, const void *src,
                                 size_t n, const mpt_opts *opts, unsigned *flags)
{
    const mpti_side d = mpti_side_of(dst_format, MPT_NATIVE_ENDIAN);
    const mpti_side s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    return mpti_convert(&d, dst, &s, src, n, opts, flags);
}

MPT_DEF mpt_status mpt_convert_strided(mpt_format dst_format, void *dst, ptrdiff_t dst_stride,
                                       mpt_format src_format, const void *src, ptrdiff_t src_stride,
                                       size_t n, const mpt_opts *opts, unsigned *flags)
{
    mpti_side d = mpti_side_of(dst_format, MPT_NATIVE_ENDIAN);
    mpti_side s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    d.stride = dst_stride;
    s.stride = src_stride;
    return mpti_convert(&d, dst, &s, src, n, opts, flags);
}

MPT_DEF mpt_status mpt_convert_bytes_n(mpt_format dst_format, void *dst, mpt_byte_order dst_order,
                                       mpt_format src_format, const void *src, mpt_byte_order src_order,
                                       size_t n, const mpt_opts *opts, unsigned *flags)
{
    const mpti_side d = mpti_side_of(dst_format, dst_order), s = mpti_side_of(src_format, src_order);
    if ((unsigned)dst_order > (unsigned)MPT_BIG_ENDIAN || (unsigned)src_order > (unsigned)MPT_BIG_ENDIAN)
        return MPT_E_ARG;
    return mpti_convert(&d, dst, &s, src, n, opts, flags);
}

MPT_DEF mpt_status mpt_decode_n(float *dst, mpt_format format, const void *src, size_t n)
{
    return mpt_convert_n(MPT_F32, dst, format, src, n, NULL, NULL);
}

MPT_DEF mpt_status mpt_encode_n(void *dst, mpt_format format, const float *src, size_t n)
{
    return mpt_convert_n(format, dst, MPT_F32, src, n, NULL, NULL);
}

static int mpti_fits(const mpt_format_info *f, uint64_t u, const mpt_opts *o)
{
    const int nan = (u & ~(MPTI_ONE << 63)) > (uint64_t)0x7ff << 52;
    unsigned  flags = 0u;
    (void)mpti_encode_bits(f, u, o, &flags);
    if (nan)
        return f->has_nan;
    if ((u & ~(MPTI_ONE << 63)) == (uint64_t)0x7ff << 52)
        return f->has_inf;
    return !(flags & (MPT_FLAG_OVERFLOW | MPT_FLAG_INVALID));
}

MPT_DEF mpt_status mpt_convert_checked_n(mpt_format dst_format, void *dst, mpt_format src_format,
                                         const void *src, size_t n, const mpt_opts *opts, size_t *bad)
{
    const mpti_side      d = mpti_side_of(dst_format, MPT_NATIVE_ENDIAN);
    const mpti_side      s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    const mpt_opts       plain = MPTI_PLAIN_OPTS;
    const mpt_opts      *o = opts ? opts : &plain;
    const unsigned char *p = (const unsigned char *)src;
    size_t               i;
    if (mpti_bad_array(dst, src, n) || !d.info || !s.info || mpti_bad_opts(o))
        return MPT_E_ARG;
    for (i = 0; i < n; i++, p += s.stride) {
        const mpt_opts at = mpti_opts_at(o, i);
        const uint64_t code = mpti_load_code(p, s.info->bytes);
        if (!mpti_fits(d.info, mpti_f64_of_code(s.info, code, o->flush), &at)) {
            if (bad)
                *bad = i;
            return MPT_E_RANGE;
        }
    }
    return mpti_convert(&d, dst, &s, src, n, opts, NULL);
}

MPT_DEF mpt_status mpt_inexact_n(mpt_format format, mpt_format src_format, const void *src, size_t n,
                                 size_t *count, size_t *first)
{
    const mpti_side        s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    const mpt_format_info *f = mpt_format_get(format);
    const unsigned char   *p = (const unsigned char *)src;
    size_t                 i, found = 0, at = n;
    if ((n && !src) || !f || !s.info)
        return MPT_E_ARG;
    for (i = 0; i < n; i++, p += s.stride)
        if (!mpti_is_exact(f, mpti_f64_of_code(s.info, mpti_load_code(p, s.info->bytes), 0u))) {
            at = found ? at : i;
            found++;
        }
    if (count)
        *count = found;
    if (first)
        *first = at;
    return MPT_OK;
}

/* ---- quantize ---- */

/* What rounding of float patterns needs to know of a format whose numbers are all floats. */
typedef struct mpti_quantizer {
    uint32_t shift;         /* bits dropped from a normal number's mantissa: 1 to 22 */
    uint32_t least_field;   /* float's exponent field of the least normal number */
    uint32_t limit;         /* patterns from here on are not rounded but encoded: overflow, Inf, NaN */
    uint32_t zero_sign;     /* 0x80000000, or 0 where the format has no -0 */
} mpti_quantizer;

/* Returns: whether the format is one of those. */
static int mpti_quantizer_init(mpti_quantizer *q, const mpt_format_info *f)
{
    if (!f->sign_bits || f->specials == MPT_SPECIALS_SCALE || f->mantissa_bits < 1 ||
        f->mantissa_bits > 22 || f->emin < -126 || f->emax > 127)
        return 0;
    q->shift = (uint32_t)(23 - f->mantissa_bits);
    q->least_field = (uint32_t)(f->emin + 127);
    q->limit = mpti_narrow_f64(mpti_f64_bits(f->max_finite), 8, 23) + 1u;
    q->zero_sign = f->specials == MPT_SPECIALS_FNUZ ? 0u : 0x80000000u;
    return 1;
}

/* Round a float pattern below the limit to the format's grid, nearest, ties to even. A carry out of the
 * mantissa rightly grows the exponent. Where the grid is coarser than the number's own binade (23 bits and
 * more dropped) the hidden bit, which no pattern shows, is the last bit kept or the first one dropped; a
 * subnormal has none. */
MPT_HD uint32_t mpti_quantize_f32(uint32_t u, const mpti_quantizer *q)
{
    const uint32_t a = u & 0x7fffffffu, field = a >> 23, own = field > 1u ? field : 1u;
    const uint32_t drop = q->shift + (q->least_field > own ? q->least_field - own : 0u);
    const uint32_t shift = drop < 23u ? drop : 23u, mask = (1u << shift) - 1u;
    const uint32_t odd = drop < 23u ? (a >> shift) & 1u : (uint32_t)(field != 0u);
    const uint32_t closest = (a + (mask >> 1) + odd) & ~mask;
    const uint32_t least = field && (a & 0x7fffffu) ? (field + 1u) << 23 : 0u;     /* above half of it */
    const uint32_t r = drop < 24u ? closest : drop == 24u ? least : 0u;
    return r | (u & (r ? 0x80000000u : q->zero_sign));
}

MPTI_INLINE void mpti_quantize_loop(uint32_t *MPTI_RESTRICT out, const uint32_t *MPTI_RESTRICT in,
                                    const mpti_quantizer *q, uint32_t *special)
{
    const mpti_quantizer k = *q;
    uint32_t             any = 0u;
    size_t               i;
    for (i = 0; i < MPTI_BLOCK; i++) {
        out[i] = mpti_quantize_f32(in[i], &k);
        any |= (uint32_t)((in[i] & 0x7fffffffu) >= k.limit);
    }
    *special = any;
}
MPTI_TWICE(mpti_quantize_block, mpti_quantize_loop,
           (uint32_t *MPTI_RESTRICT out, const uint32_t *MPTI_RESTRICT in, const mpti_quantizer *q,
            uint32_t *special), (out, in, q, special))

#if MPTI_X86
/* f16 there and back. */
MPTI_IN_AVX512 __m512i mpti_quantize_f16_in_avx512(const unsigned char *p, uint64_t k)
{
    const __m512 x = _mm512_castsi512_ps(mpti_load_f32_avx512(p, k));
    return _mm512_castps_si512(MPTI_FLOATS(mpti_halves_nearest_avx512(x)));
}
MPTI_PUT_WHOLE(mpti_quantize_f16)
MPTI_LOOP_AVX512(mpti_quantize_f16, 4, 4)

/* What rounding sixteen float patterns needs to know of a format. What overflow and NaN become is part of
 * the pattern and some bits more. */
typedef struct mpti_quantize_vectors {
    uint32_t shift, least, most, magic;
    uint32_t over_keep, over_bits, nan_keep, nan_bits, zero_sign;
} mpti_quantize_vectors;

/* Returns: whether half of the format's least number is no subnormal float, which flushing could lose, and
 * the sum with `magic` is a float. bf16 and its like have the subnormals of floats, and round at one bit. */
static int mpti_quantize_vectors_init(mpti_quantize_vectors *v, const mpti_quantizer *q,
                                      const mpt_format_info *f)
{
    const uint32_t sign = 0x80000000u, low = (1u << q->shift) - 1u;
    const int      ieee = f->specials == MPT_SPECIALS_IEEE, finite = f->specials == MPT_SPECIALS_FINITE;
    const int      magic_field = f->emin - f->mantissa_bits + 23 + 127;
    const int      own_subnormals = q->least_field == 1u;
    if (!own_subnormals && (f->emin - f->mantissa_bits < -125 || magic_field > 254))
        return 0;
    v->shift = q->shift;
    v->least = own_subnormals ? 0u : q->least_field << 23;
    v->most = q->limit - 1u;
    v->magic = own_subnormals ? 0u : (uint32_t)magic_field << 23;
    v->over_keep = f->specials == MPT_SPECIALS_FNUZ ? 0u : sign;
    v->over_bits = ieee ? 0x7f800000u : finite ? v->most : 0x7fc00000u;
    v->nan_keep = ieee ? ~low : f->specials == MPT_SPECIALS_FN ? sign : 0u;
    v->nan_bits = ieee ? 0x400000u : v->over_bits;
    v->zero_sign = q->zero_sign;
    return 1;
}

/* Above the least normal number of the format integers round at a fixed bit. Below it, adding a power of two
 * whose last bit is the format's last one rounds there, and subtracting it is exact. */
MPTI_IN_AVX512 __m512i mpti_quantize_in_avx512(const unsigned char *p, uint64_t k,
                                               const mpti_quantize_vectors *v)
{
    const __m512i   u = mpti_load_f32_avx512(p, k), inf = _mm512_set1_epi32(0x7f800000);
    const __m512i   a = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    const __m512i   low = _mm512_set1_epi32((int)((1u << v->shift) - 1u));
    const __m512i   half = _mm512_set1_epi32((int)((1u << (v->shift - 1u)) - 1u));
    const __m512i   odd = _mm512_and_si512(MPTI_Z16(srlv_epi32, a, _mm512_set1_epi32((int)v->shift)),
                                           _mm512_set1_epi32(1));
    const __m512i   closest = MPTI_Z16(andnot_epi32, low, _mm512_add_epi32(_mm512_add_epi32(a, half), odd));
    const __m512    magic = _mm512_castsi512_ps(_mm512_set1_epi32((int)v->magic));
    const __m512    sum = MPTI_Z16(add_round_ps, _mm512_castsi512_ps(a), magic, MPTI_NEAREST);
    const __m512    tiny = MPTI_Z16(sub_round_ps, sum, magic, MPTI_NEAREST);
    const __mmask16 below = _mm512_cmplt_epu32_mask(a, _mm512_set1_epi32((int)v->least));
    const __mmask16 nan = _mm512_cmpgt_epu32_mask(a, inf);
    const __m512i   r = _mm512_mask_mov_epi32(closest, below, _mm512_castps_si512(tiny));
    const __mmask16 over = _mm512_cmpgt_epu32_mask(r, _mm512_set1_epi32((int)v->most));
    __m512i         sign = _mm512_set1_epi32((int)0x80000000u), x;
    if (!v->zero_sign)
        sign = _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(r, r), sign);
    x = _mm512_ternarylogic_epi32(r, u, sign, 0xf8);                        /* r | (u & sign) */
    x = _mm512_mask_mov_epi32(x, over,
                              _mm512_ternarylogic_epi32(_mm512_set1_epi32((int)v->over_bits), u,
                                                        _mm512_set1_epi32((int)v->over_keep), 0xf8));
    return _mm512_mask_mov_epi32(x, nan,
                                 _mm512_ternarylogic_epi32(_mm512_set1_epi32((int)v->nan_bits), u,
                                                           _mm512_set1_epi32((int)v->nan_keep), 0xf8));
}
#define MPTI_FILL(p, k) mpti_quantize_in_avx512(p, k, &v)
#define MPTI_PUT(to, p) _mm512_storeu_si512(to, MPTI_FILL(p, ~(uint64_t)0))
MPTI_LOOP_512(MPTI_AVX512_TARGET, mpti_quantize_avx512,
              (void *dst, const void *src, size_t n, const mpti_quantize_vectors v), MPTI_FILL, MPTI_PUT,
              4, 4)
#undef MPTI_PUT
#undef MPTI_FILL
#endif

/* The vector kernels' door for quantizing: as mpti_simd_convert. */
MPTI_INLINE size_t mpti_simd_quantize(float *dst, const float *src, size_t n, const mpti_quantizer *q,
                                      const mpt_format_info *f)
{
#if MPTI_X86
    mpti_quantize_vectors v;
    if (mpti_path() >= MPTI_PATH_AVX512) {
        if (f->specials == MPT_SPECIALS_IEEE && f->emin == -14 && f->emax == 15 && f->mantissa_bits == 10)
            return mpti_quantize_f16_avx512(dst, src, n);
        if (mpti_quantize_vectors_init(&v, q, f))
            return mpti_quantize_avx512(dst, src, n, v);
    }
#endif
    (void)dst, (void)src, (void)n, (void)q, (void)f;
    return 0;
}

static uint64_t mpti_quantize_slow(const mpt_format_info *wide, const mpt_format_info *f, uint64_t code,
                                   const mpt_opts *o)
{
    unsigned       unused = 0u;
    const uint64_t u = mpti_f64_of_code(wide, code, o->flush);
    return mpti_f64_bits(mpt_decode_as(f, mpti_encode_bits(f, u, o, &unused)));
}

static void mpti_quantize_plain(float *dst, const float *src, size_t n, const mpt_format_info *f,
                                const mpti_quantizer *q)
{
    const mpt_format_info *f32 = mpt_format_get(MPT_F32);
    const mpt_opts         plain = MPTI_PLAIN_OPTS;
    unsigned char         *to = (unsigned char *)dst;
    const unsigned char   *from = (const unsigned char *)src;
    uint32_t               in[MPTI_BLOCK], out[MPTI_BLOCK], special;
    size_t                 i, k;
    memset(in, 0, sizeof in);
    for (i = 0; i < n; i += MPTI_BLOCK) {
        const size_t take = n - i < MPTI_BLOCK ? n - i : MPTI_BLOCK;
        memcpy(in, from + i * sizeof *in, take * sizeof *in);
        mpti_quantize_block(out, in, q, &special);
        for (k = 0; special && k < take; k++)
            if ((in[k] & 0x7fffffffu) >= q->limit)
                out[k] = mpti_narrow_f64(mpti_quantize_slow(f32, f, in[k], &plain), 8, 23);
        memcpy(to + i * sizeof *out, out, take * sizeof *out);
    }
}

MPT_DEF mpt_status mpt_quantize_as_n(float *dst, const float *src, size_t n, const mpt_format_info *info,
                                     const mpt_opts *opts)
{
    const mpt_format_info *f32 = mpt_format_get(MPT_F32);
    const mpt_opts         plain = MPTI_PLAIN_OPTS;
    unsigned char         *to = (unsigned char *)dst;
    const unsigned char   *from = (const unsigned char *)src;
    mpti_quantizer         q;
    size_t                 i;
    if (mpti_bad_array(dst, src, n) || !info || (opts && mpti_bad_opts(opts)))
        return MPT_E_ARG;
    if (mpti_is_plain(opts) && mpti_quantizer_init(&q, info)) {
        const size_t done = n ? mpti_simd_quantize(dst, src, n, &q, info) : 0u;
        if (done < n)
            mpti_quantize_plain(dst + done, src + done, n - done, info, &q);
        return MPT_OK;
    }
    for (i = 0; i < n; i++) {
        const mpt_opts at = mpti_opts_at(opts ? opts : &plain, i);
        const uint64_t u = mpti_quantize_slow(f32, info, mpti_load_code(from + 4u * i, 4), &at);
        mpti_store_code(to + 4u * i, 4, mpti_narrow_f64(u, 8, 23));
    }
    return MPT_OK;
}

MPT_DEF mpt_status mpt_quantize_as_f64_n(double *dst, const double *src, size_t n,
                                         const mpt_format_info *info, const mpt_opts *opts)
{
    const mpt_format_info *f64 = mpt_format_get(MPT_F64);
    const mpt_opts         plain = MPTI_PLAIN_OPTS;
    unsigned char         *to = (unsigned char *)dst;
    const unsigned char   *from = (const unsigned char *)src;
    size_t                 i;
    if (mpti_bad_array(dst, src, n) || !info || (opts && mpti_bad_opts(opts)))
        return MPT_E_ARG;
    for (i = 0; i < n; i++) {
        const mpt_opts at = mpti_opts_at(opts ? opts : &plain, i);
        mpti_store_code(to + 8u * i, 8, mpti_quantize_slow(f64, info, mpti_load_code(from + 8u * i, 8), &at));
    }
    return MPT_OK;
}

MPT_DEF mpt_status mpt_quantize_n(float *dst, const float *src, size_t n, mpt_format format,
                                  const mpt_opts *opts)
{
    return mpt_quantize_as_n(dst, src, n, mpt_format_get(format), opts);
}

MPT_DEF mpt_status mpt_quantize_f64_n(double *dst, const double *src, size_t n, mpt_format format,
                                      const mpt_opts *opts)
{
    return mpt_quantize_as_f64_n(dst, src, n, mpt_format_get(format), opts);
}

// >>H19 implementation: blocks ---------------------------------------------------------------------

MPT_DEF size_t mpt_packed_size(size_t n, int bits)
{
    const size_t b = (size_t)bits;
    return n / 8u * b + (n % 8u * b + 7u) / 8u;
}

MPT_DEF mpt_status mpt_pack_n(uint8_t *packed, const uint8_t *codes, size_t n, int bits)
{
    const uint32_t mask = (1u << (bits & 15)) - 1u;
    uint32_t       pending = 0u;
    int            have = 0;
    size_t         i;
    if (mpti_bad_array(packed, codes, n) || bits < 1 || bits > 8)
        return MPT_E_ARG;
    for (i = 0; i < n; i++) {
        pending |= (codes[i] & mask) << have;
        have += bits;
        if (have >= 8) {
            *packed++ = (uint8_t)pending;
            pending >>= 8;
            have -= 8;
        }
    }
    if (have)
        *packed = (uint8_t)pending;
    return MPT_OK;
}

MPT_DEF mpt_status mpt_unpack_n(uint8_t *codes, const uint8_t *packed, size_t n, int bits)
{
    const uint32_t mask = (1u << (bits & 15)) - 1u;
    uint32_t       pending = 0u;
    int            have = 0;
    size_t         i;
    if (mpti_bad_array(codes, packed, n) || bits < 1 || bits > 8)
        return MPT_E_ARG;
    for (i = 0; i < n; i++) {
        if (have < bits) {
            pending |= (uint32_t)*packed++ << have;
            have += 8;
        }
        codes[i] = (uint8_t)(pending & mask);
        pending >>= bits;
        have -= bits;
    }
    return MPT_OK;
}

MPT_DEF const mpt_block_info *mpt_block_get(mpt_block block)
{
#define MPTI_X(id, name, element, scale, size) {name, element, scale, size},
    static const mpt_block_info table[] = {MPT_BLOCKS(MPTI_X)};
#undef MPTI_X
    return (unsigned)block < (unsigned)MPT_BLOCK_COUNT ? &table[block] : NULL;
}

#define MPTI_BLOCK_SIZE_MAX 32

/* What quantizing and dequantizing need, worked out once per call. */
typedef struct mpti_blocks {
    const mpt_block_info  *block;
    const mpt_format_info *element, *scale;
    mpt_scale_rule         rule;
    int                    packed, plain;   /* plain: elements rounded to nearest-even without options */
    uint64_t               tensor_sig;      /* tensor scale = tensor_sig * 2^tensor_exp */
    int                    tensor_exp;
    mpt_opts               opts;            /* of the elements */
} mpti_blocks;

/* sig * 2^exp of a positive finite float, sig in [2^23, 2^24). */
static uint64_t mpti_f32_split(uint32_t a, int *exp)
{
    uint64_t sig = a >> 23 ? (a & 0x7fffffu) | 0x800000u : a;
    *exp = (int)(a >> 23 ? a >> 23 : 1u) - 150;
    for (; sig < 0x800000u; (*exp)--)
        sig <<= 1;
    return sig;
}

static mpt_status mpti_blocks_init(mpti_blocks *b, mpt_block block, const mpt_block_opts *o)
{
    const mpt_opts plain = MPTI_PLAIN_OPTS;
    uint32_t       t = 0x3f800000u;
    b->block = mpt_block_get(block);
    if (!b->block)
        return MPT_E_ARG;
    if (o && ((unsigned)o->scale_rule > (unsigned)MPT_SCALE_ROUND || mpti_bad_opts(&o->element)))
        return MPT_E_ARG;
    b->element = mpt_format_get(b->block->element);
    b->scale = mpt_format_get(b->block->scale);
    b->rule = o ? o->scale_rule : MPT_SCALE_DEFAULT;
    if (b->rule == MPT_SCALE_DEFAULT)
        b->rule = b->block->scale == MPT_E8M0 ? MPT_SCALE_FLOOR : MPT_SCALE_ROUND;
    b->packed = o ? o->packed : 0;
    b->plain = !o || mpti_is_plain(&o->element);
    b->opts = o ? o->element : plain;
    b->opts.overflow = MPT_OVERFLOW_SATURATE;
    if (o && b->block->scale != MPT_E8M0 && (mpti_f32_bits(o->tensor_scale) & 0x7fffffffu))
        t = mpti_f32_bits(o->tensor_scale);
    if (t >= 0x7f800000u)               /* Inf, NaN, or with a sign */
        return MPT_E_ARG;
    b->tensor_sig = mpti_f32_split(t, &b->tensor_exp);
    return MPT_OK;
}

/* (-1)^sign * num * 2^num_exp / (den * 2^den_exp) as the pattern of a double, rounded to odd at 35 bits or
 * more, so that rounding it again to 32 bits or fewer is one rounding. num < 2^24, 0 < den < 2^28. */
static uint64_t mpti_ratio(unsigned sign, uint64_t num, int num_exp, uint64_t den, int den_exp)
{
    uint64_t q;
    if (!num)
        return (uint64_t)sign << 63;
    for (; num < 0x800000u; num_exp--)
        num <<= 1;
    for (; den < 0x8000000u; den_exp--)
        den <<= 1;
    q = (num << 39) / den;
    q |= (num << 39) % den != 0u;
    return mpti_f64_compose(sign, q, num_exp - 39 - den_exp);
}

/* The power of two that scales a block with this amax (a finite positive pattern), as an E8M0 code. */
static uint32_t mpti_power_scale(const mpti_blocks *b, uint32_t amax)
{
    const int m = b->element->mantissa_bits;
    int       exp, e;
    uint64_t  sig = mpti_f32_split(amax, &exp), max_sig;
    if (b->rule == MPT_SCALE_ROUND)
        sig = mpti_shift_rne64(sig, 23 - m) << (23 - m);
    e = exp + 23 + (sig >> 24 ? 1 : 0) - b->element->emax;
    max_sig = ((b->element->max_code & ((MPTI_ONE << m) - 1u)) | MPTI_ONE << m) << (23 - m);
    if (b->rule == MPT_SCALE_CEIL && sig > max_sig)
        e++;
    e = e < -127 ? -127 : e > 127 ? 127 : e;
    return (uint32_t)(e + 127);
}

/* The scale of NVFP4: amax / (largest element * tensor scale), rounded by the rule. */
static uint32_t mpti_small_scale(const mpti_blocks *b, uint32_t amax)
{
    mpt_opts       o = MPTI_PLAIN_OPTS;
    unsigned       unused = 0u;
    int            exp;
    const uint64_t sig = mpti_f32_split(amax, &exp);
    uint64_t       code;
    o.rounding = b->rule == MPT_SCALE_FLOOR  ? MPT_RND_TOWARD_ZERO
                 : b->rule == MPT_SCALE_CEIL ? MPT_RND_UP
                                             : MPT_RND_NEAREST_EVEN;
    o.overflow = MPT_OVERFLOW_SATURATE;
    code = mpti_encode_bits(b->scale, mpti_ratio(0u, sig, exp, 3u * b->tensor_sig, b->tensor_exp + 1), &o,
                            &unused);
    return (uint32_t)(code ? code : 1u);
}

/* Round |x| to an element, nearest-even: rel is the float pattern of |x| / scale, clamped at zero. The number
 * of dropped bits grows below the least normal element; from 25 on nothing is left. */
MPT_HD uint32_t mpti_element_encode(uint32_t rel, uint32_t least_field, uint32_t m, uint32_t max_code)
{
    const uint32_t field = rel >> 23, sig = (rel & 0x7fffffu) | 0x800000u;
    const uint32_t below = least_field > field ? least_field - field : 0u, drop = 23u - m + below;
    const uint32_t shift = drop < 25u ? drop : 25u, mask = (1u << shift) - 1u;
    const uint32_t rounded = (sig + (mask >> 1) + ((sig >> shift) & 1u)) >> shift;
    const uint32_t code = ((below ? 0u : field - least_field) << m) + rounded;
    return code < max_code ? code : max_code;
}

/* One full MX block whose numbers are so large that no quotient that matters is subnormal. */
MPTI_INLINE void mpti_mx_loop(uint8_t *MPTI_RESTRICT codes, const uint32_t *MPTI_RESTRICT in,
                              const mpti_blocks *b, int scale_exp)
{
    const uint32_t least_field = (uint32_t)(b->element->emin + 127), m = (uint32_t)b->element->mantissa_bits;
    const uint32_t max_code = (uint32_t)b->element->max_code, sign_at = (uint32_t)b->element->bits - 1u;
    int            i;
    for (i = 0; i < MPTI_BLOCK_SIZE_MAX; i++) {
        const int32_t  rel = (int32_t)(in[i] & 0x7fffffffu) - scale_exp * 0x800000;
        const uint32_t code = mpti_element_encode(rel > 0 ? (uint32_t)rel : 0u, least_field, m, max_code);
        codes[i] = (uint8_t)(code | in[i] >> 31 << sign_at);
    }
}
MPTI_TWICE(mpti_mx_block, mpti_mx_loop,
           (uint8_t *MPTI_RESTRICT codes, const uint32_t *MPTI_RESTRICT in, const mpti_blocks *b,
            int scale_exp), (codes, in, b, scale_exp))

/* Any block, element by element. */
static void mpti_block_slow(uint8_t *codes, const uint32_t *in, size_t n, const mpti_blocks *b,
                            uint32_t scale_code, uint64_t first)
{
    const mpt_fields s = mpti_take_apart(b->scale, scale_code);
    unsigned         unused = 0u;
    size_t           i;
    for (i = 0; i < n; i++) {
        const mpt_opts o = mpti_opts_at(&b->opts, first + i);
        const unsigned sign = in[i] >> 31;
        uint32_t       a = in[i] & 0x7fffffffu;
        uint64_t       u = (uint64_t)sign << 63;
        if ((o.flush & MPT_FLUSH_INPUTS) && a < 0x800000u)
            a = 0u;
        if (a && s.significand) {
            int            exp;
            const uint64_t sig = mpti_f32_split(a, &exp);
            u = mpti_ratio(sign, sig, exp, s.significand * b->tensor_sig, s.exponent + b->tensor_exp);
        }
        codes[i] = (uint8_t)mpti_encode_bits(b->element, u, &o, &unused);
    }
}

/* Largest magnitude of a block, as a pattern: Inf and NaN are the largest. */
static uint32_t mpti_amax(const uint32_t *in, size_t n)
{
    uint32_t most = 0u;
    size_t   i;
    for (i = 0; i < n; i++) {
        const uint32_t a = in[i] & 0x7fffffffu;
        most = a > most ? a : most;
    }
    return most;
}

/* Quantize one block of n numbers; returns its scale code. in has room for a full block. */
static uint32_t mpti_block_quantize(uint8_t *codes, const uint32_t *in, size_t n, const mpti_blocks *b,
                                    uint64_t first)
{
    const uint32_t amax = mpti_amax(in, n);
    uint32_t       scale;
    if (amax >= 0x7f800000u) {
        memset(codes, 0, n);
        return (uint32_t)b->scale->nan_code;
    }
    if (b->block->scale != MPT_E8M0)
        scale = amax ? mpti_small_scale(b, amax) : 0u;
    else
        scale = amax ? mpti_power_scale(b, amax) : 0u;
    if (b->plain && b->block->scale == MPT_E8M0 && amax >= (uint32_t)(127 - 80) << 23)
        mpti_mx_block(codes, in, b, (int)scale - 127);
    else
        mpti_block_slow(codes, in, n, b, scale, first);
    return scale;
}

/* One number of a block as the pattern of a float: the product is exact in a double, and rounded once. */
static uint32_t mpti_block_value(const mpti_blocks *b, const mpt_fields *scale, uint32_t code)
{
    const mpt_fields p = mpti_take_apart(b->element, code);
    const uint64_t   sign = (uint64_t)p.sign << 63;
    if (scale->kind == MPT_CLASS_QUIET_NAN || p.kind == MPT_CLASS_QUIET_NAN ||
        p.kind == MPT_CLASS_SIGNALING_NAN)
        return 0x7fc00000u;
    if (p.kind == MPT_CLASS_POS_INF || p.kind == MPT_CLASS_NEG_INF)
        return scale->significand ? (uint32_t)(sign >> 32) | 0x7f800000u : 0x7fc00000u;
    return mpti_narrow_f64(mpti_f64_compose(p.sign, p.significand * scale->significand * b->tensor_sig,
                                            p.exponent + scale->exponent + b->tensor_exp), 8, 23);
}

/* Dequantize one block of n numbers. */
static void mpti_block_dequantize(const mpti_blocks *b, unsigned char *to, const uint8_t *codes,
                                  uint32_t scale_code, size_t n)
{
    const mpt_fields scale = mpti_take_apart(b->scale, scale_code);
    uint32_t         out[MPTI_BLOCK_SIZE_MAX];
    uint8_t          in[MPTI_BLOCK_SIZE_MAX];
    size_t           k;
    if (b->packed)
        (void)mpt_unpack_n(in, codes, n, b->element->bits);
    else
        memcpy(in, codes, n);
    for (k = 0; k < n; k++)
        out[k] = mpti_block_value(b, &scale, in[k]);
    memcpy(to, out, n * sizeof *out);
}

#if MPTI_X86
/* The largest magnitudes of 32 floats' places modulo four: the largest of those is the block's. */
MPTI_IN_AVX512 __m128i mpti_four_largest_avx512(const unsigned char *p)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i x = MPTI_Z16(max_epu32, _mm512_and_si512(_mm512_loadu_si512(p), magnitude),
                               _mm512_and_si512(_mm512_loadu_si512(p + 64), magnitude));
    const __m256i y = _mm256_max_epu32(MPTI_Z8(extracti64x4_epi64, x, 0), MPTI_Z8(extracti64x4_epi64, x, 1));
    return _mm_max_epu32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

/* The codes of a block whose floats, times the factor, are E2M1's numbers divided by 2^14: then their f16
 * codes begin with the E2M1 codes, as in mpti_e4m3_halves_avx512, and nine bits are dropped. */
MPTI_IN_AVX512 void mpti_mxfp4_codes_avx512(uint8_t *codes, const unsigned char *p, __m512 factor,
                                            int packed)
{
    const __m512 a = MPTI_Z16(mul_round_ps, _mm512_loadu_ps(p), factor, MPTI_TRUNCATE);
    const __m512 b = MPTI_Z16(mul_round_ps, _mm512_loadu_ps(p + 64), factor, MPTI_TRUNCATE);
    const __m512i h = mpti_join_avx512(mpti_f16_sticky_avx512(_mm512_castps_si512(a)),
                                       mpti_f16_sticky_avx512(_mm512_castps_si512(b)));
    const __m512i m = _mm512_and_si512(h, _mm512_set1_epi16(0x7fff));
    __m512i       code = _mm512_min_epu16(mpti_round_words_avx512(m, 9), _mm512_set1_epi16(7));
    code = _mm512_ternarylogic_epi32(code, _mm512_srli_epi16(h, 12), _mm512_set1_epi16(8), 0xf8);
    if (packed)
        _mm_storeu_si128((__m128i *)(void *)codes,
                         MPTI_Z16(cvtepi32_epi8, _mm512_madd_epi16(code, _mm512_set1_epi32(0x100001))));
    else
        _mm256_storeu_si256((__m256i *)(void *)codes, MPTI_Z32(cvtepi16_epi8, code));
}

/* Exponent fields of largest magnitudes with which the vectors do a block: what it is multiplied by is a
 * normal float, and it has neither Inf nor NaN. The scale is 2^(field - 127 - 2), the factor its reciprocal
 * times 2^-14. */
#define MPTI_MXFP4_LEAST 47
#define MPTI_MXFP4_MOST 240
#define MPTI_MXFP4_FACTOR(field) (127 + 127 + 2 - 14 - (field))

/* One block; returns 0 if the caller has to do it. */
MPTI_IN_AVX512 int mpti_mxfp4_in_avx512(uint8_t *codes, uint8_t *scale, const unsigned char *p, int packed)
{
    const __m128i  x = mpti_four_largest_avx512(p), y = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
    const __m128i  z = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1));
    const int      field = (int)((uint32_t)_mm_cvtsi128_si32(z) >> 23);
    if (field < MPTI_MXFP4_LEAST || field > MPTI_MXFP4_MOST)
        return 0;
    *scale = (uint8_t)(field - 2);
    mpti_mxfp4_codes_avx512(codes, p, _mm512_castsi512_ps(_mm512_set1_epi32(MPTI_MXFP4_FACTOR(field) << 23)),
                            packed);
    return 1;
}

MPTI_IN_AVX512 void mpti_sixteen_largest_avx512(uint32_t *largest, const unsigned char *p)
{
    int k;
    for (k = 0; k < 16; k++)
        _mm_storeu_si128((__m128i *)(void *)(largest + 4 * k), mpti_four_largest_avx512(p + 128 * k));
}

/* Sixteen words, just stored by fours: as a whole they would have to be in the cache first. */
MPTI_IN_AVX512 __m512i mpti_four_fours_avx512(const uint32_t *p)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
    x = MPTI_Z16(inserti32x4, x, _mm_loadu_si128((const __m128i *)(const void *)(p + 4)), 1);
    x = MPTI_Z16(inserti32x4, x, _mm_loadu_si128((const __m128i *)(const void *)(p + 8)), 2);
    return MPTI_Z16(inserti32x4, x, _mm_loadu_si128((const __m128i *)(const void *)(p + 12)), 3);
}

/* Sixteen blocks, whose scales are worked out side by side from their four largest magnitudes each; returns 0
 * if the caller has to do them. Those of the next sixteen, if there are so many, take their place: reading
 * ahead of the work keeps memory busy. */
MPTI_IN_AVX512 int mpti_mxfp4_many_avx512(uint8_t *codes, uint8_t *scales, const unsigned char *p,
                                          int packed, uint32_t *largest, int next)
{
    float     factor[16];
    __m512i   a, b, c, d, field;
    __mmask16 within;
    int       k;
    a = mpti_four_fours_avx512(largest);
    b = mpti_four_fours_avx512(largest + 16);
    c = mpti_four_fours_avx512(largest + 32);
    d = mpti_four_fours_avx512(largest + 48);
    a = MPTI_Z16(max_epu32, MPTI_Z16(unpacklo_epi32, a, b), MPTI_Z16(unpackhi_epi32, a, b));
    c = MPTI_Z16(max_epu32, MPTI_Z16(unpacklo_epi32, c, d), MPTI_Z16(unpackhi_epi32, c, d));
    a = MPTI_Z16(max_epu32, MPTI_Z8(unpacklo_epi64, a, c), MPTI_Z8(unpackhi_epi64, a, c));
    field = MPTI_Z16(permutexvar_epi32,
                     _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0),
                     MPTI_Z16(srli_epi32, a, 23));
    within = _mm512_mask_cmple_epu32_mask(
        _mm512_cmpge_epu32_mask(field, _mm512_set1_epi32(MPTI_MXFP4_LEAST)), field,
        _mm512_set1_epi32(MPTI_MXFP4_MOST));
    if (within != 0xffffu)
        return 0;
    _mm_storeu_si128((__m128i *)(void *)scales,
                     MPTI_Z16(cvtepi32_epi8, _mm512_sub_epi32(field, _mm512_set1_epi32(2))));
    _mm512_storeu_si512(
        factor, MPTI_Z16(slli_epi32, _mm512_sub_epi32(_mm512_set1_epi32(MPTI_MXFP4_FACTOR(0)), field), 23));
    for (k = 0; k < 16; k++) {
        mpti_fetch_ahead(p + 2048 + 128 * k, 128u);
        mpti_mxfp4_codes_avx512(codes + (packed ? 16 : 32) * k, p + 128 * k, _mm512_set1_ps(factor[k]),
                                packed);
        if (next)
            _mm_storeu_si128((__m128i *)(void *)(largest + 4 * k),
                             mpti_four_largest_avx512(p + 2048 + 128 * k));
    }
    return 1;
}

MPTI_AVX512_TARGET static size_t mpti_mxfp4_avx512(const mpti_blocks *b, uint8_t *codes, uint8_t *scales,
                                                   const void *src, size_t n)
{
    const unsigned char *from = (const unsigned char *)src;
    const size_t         whole = n - n % 32u;
    uint32_t             in[32], largest[64];
    uint8_t              out[32];
    size_t               i = 0, end;
    int                  known = 0;
    while (i < whole) {
        end = i + 32u;
        if (whole - i >= 512u) {
            end = i + 512u;
            if (!known)
                mpti_sixteen_largest_avx512(largest, from + 4u * i);
            known = whole - i >= 1024u;
            if (mpti_mxfp4_many_avx512(codes + (b->packed ? i / 2u : i), scales + i / 32u, from + 4u * i,
                                       b->packed, largest, known))
                i = end;
            else
                known = 0;
        }
        for (; i < end; i += 32u) {
            uint8_t *to = codes + (b->packed ? i / 2u : i);
            if (mpti_mxfp4_in_avx512(to, scales + i / 32u, from + 4u * i, b->packed))
                continue;
            memcpy(in, from + 4u * i, sizeof in);
            scales[i / 32u] = (uint8_t)mpti_block_quantize(out, in, 32u, b, i);
            if (b->packed)
                (void)mpt_pack_n(to, out, 32u, 4);
            else
                memcpy(to, out, 32u);
        }
    }
    return i;
}

/* Four bytes to the lower eight places, the next four to the upper ones. */
MPTI_IN_AVX512 __m512i mpti_two_words_avx512(const uint8_t *p)
{
    int32_t low, high;
    memcpy(&low, p, sizeof low);
    memcpy(&high, p + 4, sizeof high);
    return _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high);
}

/* A block from a table of its elements' values, looked up by the low four bits of each place. */
MPTI_IN_AVX512 void mpti_from_mxfp4_in_avx512(__m512i *r, const uint8_t *codes, float scale, int packed)
{
    const __m512  values = _mm512_set_ps(-6.0f, -4.0f, -3.0f, -2.0f, -1.5f, -1.0f, -0.5f, -0.0f,
                                         6.0f, 4.0f, 3.0f, 2.0f, 1.5f, 1.0f, 0.5f, 0.0f);
    const __m512i shifts = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    const __m512  scaled = MPTI_Z16(mul_round_ps, values, _mm512_set1_ps(scale), MPTI_TRUNCATE);
    __m512i       x, y;
    if (packed) {
        x = MPTI_Z16(srlv_epi32, mpti_two_words_avx512(codes), shifts);
        y = MPTI_Z16(srlv_epi32, mpti_two_words_avx512(codes + 8), shifts);
    } else {
        x = MPTI_Z16(cvtepu8_epi32, _mm_loadu_si128((const __m128i *)(const void *)codes));
        y = MPTI_Z16(cvtepu8_epi32, _mm_loadu_si128((const __m128i *)(const void *)(codes + 16)));
    }
    r[0] = _mm512_castps_si512(MPTI_Z16(permutexvar_ps, x, scaled));
    r[1] = _mm512_castps_si512(MPTI_Z16(permutexvar_ps, y, scaled));
}

/* Vectors one after the other, stored around the cache at the lines of an array that does not begin at one:
 * a line is the end of one vector and the beginning of the next. */
typedef struct mpti_lines {
    unsigned char *at;          /* the line that waits for the next vector */
    __m512i        last, places;
} mpti_lines;

/* After the vector `last`, which is stored at p as a whole; p is aligned to its elements of four bytes. */
MPTI_IN_AVX512 void mpti_lines_begin(mpti_lines *l, unsigned char *p, __m512i last)
{
    const unsigned past = (unsigned)((uintptr_t)p % 64u), up = 64u - past;
    _mm512_storeu_si512(p, last);
    l->at = p + up;
    l->last = last;
    l->places = _mm512_add_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                 _mm512_set1_epi32((int)(up / 4u)));
}

MPTI_IN_AVX512 void mpti_lines_put(mpti_lines *l, __m512i next)
{
    _mm512_stream_si512((__m512i *)(void *)l->at, _mm512_permutex2var_epi32(l->last, l->places, next));
    l->at += 64;
    l->last = next;
}

/* The rest of the last vector. */
MPTI_IN_AVX512 void mpti_lines_end(const mpti_lines *l)
{
    const __mmask16 rest = _mm512_cmplt_epu32_mask(l->places, _mm512_set1_epi32(16));
    _mm512_mask_storeu_epi32(l->at, rest, _mm512_permutex2var_epi32(l->last, l->places, l->last));
    _mm_sfence();
}

/* Whole blocks, sixteen and their scales at a time. Scales outside of 2 to 252 are NaN, or not all their
 * products are normal floats. */
MPTI_IN_AVX512 size_t mpti_from_mxfp4_loop_avx512(const mpti_blocks *b, unsigned char *to,
                                                  const uint8_t *codes, const uint8_t *scales, size_t n,
                                                  int packed, int bypass)
{
    const size_t whole = n - n % 32u, bytes = packed ? 16u : 32u;
    mpti_lines   lines = {to, _mm512_setzero_si512(), _mm512_setzero_si512()};
    float        factor[16];
    size_t       i, k;
    for (i = 0; i < whole; i += 512u) {
        const size_t    count = whole - i < 512u ? (whole - i) / 32u : 16u;
        const __mmask16 there = (__mmask16)MPTI_BITS_BELOW(count);
        const __m512i   scale = MPTI_Z16(cvtepu8_epi32, _mm_maskz_loadu_epi8(there, scales + i / 32u));
        const __m512i   past_least = _mm512_sub_epi32(scale, _mm512_set1_epi32(2));
        const __mmask16 odd = _mm512_mask_cmpgt_epu32_mask(there, past_least, _mm512_set1_epi32(250));
        _mm512_storeu_si512(factor, MPTI_Z16(slli_epi32, scale, 23));
        for (k = 0; k < count; k++) {
            const uint8_t *from = codes + (i / 32u + k) * bytes;
            unsigned char *out = to + 4u * i + 128u * k;
            __m512i        r[2];
            if (MPTI_LIKELY(!(odd >> k & 1u)))
                mpti_from_mxfp4_in_avx512(r, from, factor[k], packed);
            else
                mpti_block_dequantize(b, (unsigned char *)r, from, scales[i / 32u + k], 32u);
            if (bypass && i + k) {
                mpti_lines_put(&lines, r[0]);
                mpti_lines_put(&lines, r[1]);
            } else {
                _mm512_storeu_si512(out, r[0]);
                _mm512_storeu_si512(out + 64, r[1]);
            }
            if (bypass && !(i + k))
                mpti_lines_begin(&lines, out + 64, r[1]);
        }
    }
    if (bypass && whole)
        mpti_lines_end(&lines);
    return whole;
}

MPTI_AVX512_TARGET static size_t mpti_from_mxfp4_avx512(const mpti_blocks *b, void *dst, const uint8_t *codes,
                                                        const uint8_t *scales, size_t n)
{
    unsigned char *to = (unsigned char *)dst;
    if (mpti_bypasses(to, codes, n, 4u, 1u))
        return b->packed ? mpti_from_mxfp4_loop_avx512(b, to, codes, scales, n, 1, 1)
                         : mpti_from_mxfp4_loop_avx512(b, to, codes, scales, n, 0, 1);
    return b->packed ? mpti_from_mxfp4_loop_avx512(b, to, codes, scales, n, 1, 0)
                     : mpti_from_mxfp4_loop_avx512(b, to, codes, scales, n, 0, 0);
}
#endif

/* The vector kernels' doors for blocks: quantize or dequantize as many whole blocks from the start as there
 * is a kernel for, and return the number of elements done (0: none). */
MPTI_INLINE size_t mpti_simd_block_quantize(const mpti_blocks *b, uint8_t *codes, uint8_t *scales,
                                            const float *src, size_t n)
{
#if MPTI_X86
    if (b->plain && b->rule == MPT_SCALE_FLOOR && b->block->element == MPT_E2M1 &&
        b->block->scale == MPT_E8M0 && mpti_path() >= MPTI_PATH_AVX512)
        return mpti_mxfp4_avx512(b, codes, scales, src, n);
#endif
    (void)b, (void)codes, (void)scales, (void)src, (void)n;
    return 0;
}

MPTI_INLINE size_t mpti_simd_block_dequantize(const mpti_blocks *b, float *dst, const uint8_t *codes,
                                              const uint8_t *scales, size_t n)
{
#if MPTI_X86
    if (b->block->element == MPT_E2M1 && b->block->scale == MPT_E8M0 && mpti_path() >= MPTI_PATH_AVX512)
        return mpti_from_mxfp4_avx512(b, dst, codes, scales, n);
#endif
    (void)b, (void)dst, (void)codes, (void)scales, (void)n;
    return 0;
}

MPT_DEF mpt_status mpt_block_quantize_n(mpt_block block, uint8_t *codes, uint8_t *scales, const float *src,
                                        size_t n, const mpt_block_opts *opts)
{
    const unsigned char *from = (const unsigned char *)src;
    uint32_t             in[MPTI_BLOCK_SIZE_MAX];
    uint8_t              out[MPTI_BLOCK_SIZE_MAX];
    mpti_blocks          b;
    size_t               i, size, take;
    if (mpti_bad_array(codes, src, n) || mpti_bad_array(scales, src, n) ||
        mpti_blocks_init(&b, block, opts) != MPT_OK)
        return MPT_E_ARG;
    size = (size_t)b.block->size;
    for (i = n ? mpti_simd_block_quantize(&b, codes, scales, src, n) : 0u; i < n; i += take) {
        take = n - i < size ? n - i : size;
        memcpy(in, from + i * sizeof *in, take * sizeof *in);
        if (take < MPTI_BLOCK_SIZE_MAX)
            memset(in + take, 0, sizeof in - take * sizeof *in);
        scales[i / size] = (uint8_t)mpti_block_quantize(out, in, take, &b, i);
        if (b.packed)
            (void)mpt_pack_n(codes + mpt_packed_size(i, b.element->bits), out, take, b.element->bits);
        else
            memcpy(codes + i, out, take);
    }
    return MPT_OK;
}

MPT_DEF mpt_status mpt_block_dequantize_n(mpt_block block, float *dst, const uint8_t *codes,
                                          const uint8_t *scales, size_t n, const mpt_block_opts *opts)
{
    unsigned char *to = (unsigned char *)dst;
    mpti_blocks    b;
    size_t         i, size, take;
    if (mpti_bad_array(dst, codes, n) || mpti_bad_array(dst, scales, n) ||
        mpti_blocks_init(&b, block, opts) != MPT_OK)
        return MPT_E_ARG;
    size = (size_t)b.block->size;
    for (i = n ? mpti_simd_block_dequantize(&b, dst, codes, scales, n) : 0u; i < n; i += take) {
        take = n - i < size ? n - i : size;
        mpti_block_dequantize(&b, to + i * sizeof *dst,
                              codes + (b.packed ? mpt_packed_size(i, b.element->bits) : i), scales[i / size],
                              take);
    }
    return MPT_OK;
}

MPT_DEF mpt_status mpt_block_tensor_scale(mpt_block block, const float *src, size_t n, float *scale)
{
    const mpt_block_info *b = mpt_block_get(block);
    const unsigned char  *from = (const unsigned char *)src;
    uint32_t              amax = 0u, r = 0x3f800000u;
    size_t                i;
    if (!b || !scale || (n && !src))
        return MPT_E_ARG;
    for (i = 0; i < n; i++) {
        const uint32_t a = (uint32_t)mpti_load_code(from + 4u * i, 4) & 0x7fffffffu;
        if (a < 0x7f800000u && a > amax)
            amax = a;
    }
    if (amax && b->scale != MPT_E8M0) {
        int            exp;
        const uint64_t sig = mpti_f32_split(amax, &exp);
        r = mpti_narrow_f64(mpti_ratio(0u, sig, exp, 6u * 448u, 0), 8, 23);
        r = r ? r : 1u;
    }
    *scale = mpti_f32_make(r);
    return MPT_OK;
}

#endif /* MPT_HALF_IMPLEMENTATION */

// >>H20 to add a format ----------------------------------------------------------------------------
/* 1. Add its row to MPT_FORMATS (>>H3). Limits, codes, names, mpt_encode, mpt_decode, mpt_anatomy and
 *    the README's table follow; the format tests in tests/test_half.c pick it up by themselves.
 * 2. If it has specials of a new kind, add the kind to mpt_specials and to the places that switch on
 *    it: MPTI_EMIN .. MPTI_NAN_CODE, mpti_is_nan_code, mpti_encode_nan (all in >>H15).
 * 3. If it needs a type and fast conversions, model them on >>H7 or >>H8, with its pairs as rows of
 *    MPT_PAIRS (>>H13) and its MPTI_FORMAT_ and mpti_bits_ lines in >>H18; prototypes, arrays, the fast path
 *    of mpt_convert_n and tests/test_half_array.c follow. The judge is mpt_encode.
 * 4. A block format is a row of MPT_BLOCKS (>>H14) and of the table in tests/test_half_block.c.
 * 5. The tests' own facts are the rows of tests/half_ref.h: type them from the standard, not from here.
 */

// >>H21 licence ------------------------------------------------------------------------------------
/* MIT License
 *
 * Copyright (c) 2026 the mpt authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE. */
