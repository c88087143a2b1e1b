/* mpt_half.h -- small floating-point formats for C: FP16, BF16, TF32, FP8, FP6, FP4.
 *
 * Copy this one file next to your code. To convert numbers one at a time, the #include is enough:
 *
 *     #include "mpt_half.h"
 *     mpt_f16 h = mpt_f16_from_f32(0.1f);           // 0x2e66
 *     float   f = mpt_f32_from_f16(h);              // 0.0999755859375
 *
 * Arrays, text and the functions for any format need the implementation. In a program of one file, write two
 * lines before the #include; MPT_STATIC keeps only the functions that are called, and compiles in a moment.
 *
 *     #define MPT_STATIC
 *     #define MPT_IMPLEMENTATION
 *     #include "mpt_half.h"
 *     mpt_f16_from_f32_n(halves, floats, n);        // arrays, with vector instructions where there are any
 *     mpt_quantize_n(x, x, n, MPT_E4M3, NULL);      // round floats to FP8 numbers, in place
 *     mpt_fields a = mpt_anatomy(MPT_E4M3, 0.1);    // sign, exponent, mantissa, what was lost
 *
 * In a program of several files, define only MPT_IMPLEMENTATION, in one .c file of its own.
 *
 * Needs a C99 (or C++11) compiler with an int of 32 bits, <stdint.h> <stddef.h> <string.h>; no libm, no
 * malloc, no mutable globals. Conversions work on bit patterns, with integers or with instructions that give
 * the same result, so the bits are the same under -ffast-math, flush-to-zero, x87 and any rounding mode.
 *
 * What it does NOT do: arithmetic in formats other than f16 and bf16 (decode, compute in double and encode:
 * to nearest that rounds + - * / sqrt correctly up to 25 significand bits; fma, other roundings and flags
 * only if the double is exact; mpt_shadow_apply of mpt.h rounds each of them once, to nearest); C types for
 * formats other than f16, bf16, e4m3 and e5m2 (mpt_encode and mpt_convert_n handle all formats); high speed
 * with most options other than the defaults (such calls convert one element at a time, except from formats of
 * 8 bits or fewer); decimal formats, posits, formats wider than binary64.
 *
 * Contents (search for the mark):
 *   >>H1 configuration                   >>H11 core: the formulas
 *   >>H2 version and status              >>H12 implementation: lanes
 *   >>H3 formats                         >>H13 implementation: formats, one value
 *   >>H4 any format, one value           >>H14 implementation: arrays
 *   >>H5 conversions, one value          >>H15 implementation: arithmetic
 *   >>H6 random bits                     >>H16 implementation: text
 *   >>H7 arrays                          >>H17 implementation: blocks
 *   >>H8 arithmetic                      >>H18 to add a format, or an instruction set
 *   >>H9 text                            >>H19 licence
 *   >>H10 blocks
 */
#ifndef MPT_HALF_H
#define MPT_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// >>H1 configuration ------------------------------------------------------------------------------
/* Which file contains the implementation; define before the #include:
 * MPT_STATIC              this file, with every function static: functions that are not called take no room
 * MPT_IMPLEMENTATION      this file, for all of the mpt headers that it includes
 * MPT_HALF_IMPLEMENTATION, MPT_TRAIN_IMPLEMENTATION, MPT_CUDA_IMPLEMENTATION
 *                         this file, for mpt_half.h, mpt.h or mpt_cuda.h alone: each can have its own file
 *
 * What to leave out. A part that is left out has no declarations, so using it is a compile-time error:
 * MPT_NO_ARITHMETIC       >>H8
 * MPT_NO_TEXT             >>H9
 * MPT_NO_BLOCKS           >>H10
 * MPT_ONLY_CONVERSIONS    all three, and all of mpt.h
 * MPT_ONLY_TRAINING       all three, and FP8 scaling, reports, rows, products, policy and graph of mpt.h
 * mpt.h has parts of its own: see its >>M1.
 *
 * Other settings:
 * MPT_DEF      linkage of the non-inline functions (other languages see no others); default: extern "C" in
 *              C++, extern in C. To export them: __attribute__((visibility("default"))) or
 *              __declspec(dllexport), in C++ after extern "C". Two versions of mpt in one program: MPT_STATIC
 *              in one, or it is chance which runs.
 * MPT_SIMD     1 (default): array functions choose their vector instructions at run time, if the compiler is
 *              gcc or clang and the processor x86 or aarch64. 0: the portable path only. 2 (SSE2 or NEON; gcc
 *              for Windows), 3 (AVX2), 4 (AVX-512 F, BW, DQ, VL): no path above that one. All paths give the
 *              same bits (in mpt.h, but for those of a NaN that arithmetic makes).
 * MPT_USE_OPENMP          needs the compiler's -fopenmp: calls on large arrays and lists of tensors use the
 *              OpenMP team of the calling thread; inside a parallel region, the calling thread alone.
 * MPT_PARALLEL_FOR(count, body, context)   a thread pool of your own instead of OpenMP. It must call
 *              body(context, i), where body is a void (*)(void *, size_t), once for each size_t i from 0 to
 *              count - 1, in any order, on any threads, and return (not throw) when all calls are done. If
 *              neither is defined, a call runs on the calling thread. The bits do not depend on threads.
 * No macro changes a struct or a prototype. Beside -ffreestanding write -fbuiltin, or each access is a call.
 * Stack in KB at -O2: functions of one value take below 1, arrays, blocks and text up to 12, in mpt.h rows 6,
 * optimizers 14, check and reports up to 20, LAMB, Adafactor 50, mpt_gemm 54, CBLAS 130; at -O0 up to 128. */
#if defined(MPT_ONLY_CONVERSIONS) || defined(MPT_ONLY_TRAINING)
#undef MPT_NO_ARITHMETIC
#undef MPT_NO_TEXT
#undef MPT_NO_BLOCKS
#define MPT_NO_ARITHMETIC
#define MPT_NO_TEXT
#define MPT_NO_BLOCKS
#endif
/* C compilers only warn when an undeclared function is called; this makes it an error that names it. */
#if (defined(MPT_NO_ARITHMETIC) || defined(MPT_NO_TEXT) || defined(MPT_NO_BLOCKS)) && defined(__GNUC__) && \
    !defined(__cplusplus)
#pragma GCC diagnostic error "-Wimplicit-function-declaration"
#endif

#if defined(__SIZEOF_INT__) && __SIZEOF_INT__ < 4
#error "mpt needs an int of 32 bits"
#endif
typedef char mpti_needs_double_constants[sizeof 1.0 == 8u ? 1 : -1];   /* no -fsingle-precision-constant */
#ifndef MPT_SIMD
#define MPT_SIMD 1
#endif
#if MPT_SIMD < 0 || MPT_SIMD > 4
#error "MPT_SIMD must be 0 (portable path only), 1 (choose at run time) or 2 to 4 (at most that path)"
#endif

/* Enumerations have int's size, even with -fshort-enums (Arm's bare-metal ABI), and in C++ gcc's type for C:
 * otherwise -flto may lose what C++ stores. With a type they may hold numbers that are none of theirs. */
#ifdef __cplusplus
#define MPTI_ENUM_OF(type, name) enum name : type
#elif defined(__GNUC__)
#define MPTI_ENUM_OF(type, name) enum __attribute__((mode(__SI__))) name
#else
#define MPTI_ENUM_OF(type, name) enum name
#endif
#define MPTI_ENUM(name) MPTI_ENUM_OF(unsigned, name)

/* Of a row of a table: its enumerator; its other columns, as the initializer of a struct. */
#define MPTI_ID(id, ...) id,
#define MPTI_COLUMNS(id, ...) {__VA_ARGS__},

/* ALIGNED: no vector of a tile crosses a cache line. LIKELY: the usual case, such as normal numbers. */
#if defined(__GNUC__) || defined(__clang__)
#define MPTI_UNUSED __attribute__((unused))
#define MPTI_NOINLINE __attribute__((noinline))
#define MPTI_ALIGNED __attribute__((aligned(64)))
#define MPTI_RESTRICT __restrict__
#define MPTI_LIKELY(condition) __builtin_expect((condition) != 0, 1)
#else
#define MPTI_UNUSED
#define MPTI_NOINLINE
#define MPTI_ALIGNED
#define MPTI_RESTRICT
#define MPTI_LIKELY(condition) ((condition) != 0)
#endif

#if defined(MPT_STATIC) && defined(MPT_DEF)
#error "MPT_STATIC and MPT_DEF exclude each other"
#elif defined(MPT_STATIC)
#define MPTI_STATIC_CHOSEN 1
#define MPT_DEF static MPTI_UNUSED
#elif !defined(MPT_DEF)
#define MPTI_DEF_IS_PLAIN 1
#ifdef __cplusplus
#define MPT_DEF extern "C"
#else
#define MPT_DEF extern
#endif
#endif

/* MPT_HD marks the per-element functions that host and device share: each formula is written once for both.
 * MPTI_HD_CALL marks those that are not inlined on the host, where copies would cost more than a call. */
#ifdef __CUDACC__
#define MPT_HD static __host__ __device__ __forceinline__
#define MPTI_HD_CALL MPT_HD
#else
#define MPT_HD static inline
#define MPTI_HD_CALL MPTI_NOINLINE MPTI_UNUSED static
#endif

// >>H2 version and status -------------------------------------------------------------------------
#define MPT_VERSION_MAJOR 0
#define MPT_VERSION_MINOR 4
#define MPT_VERSION_PATCH 0
#define MPT_VERSION (MPT_VERSION_MAJOR * 10000 + MPT_VERSION_MINOR * 100 + MPT_VERSION_PATCH)

/* mpt_version -- the MPT_VERSION that the linked implementation was compiled with.  Threads: any. */
MPT_DEF int mpt_version(void);

/* Inf, NaN and overflow are results, never errors; a status reports a wrong call or a system failure. Where
 * MPT_E_ARG is returned for NULL with n > 0, it is also returned for an n of more than PTRDIFF_MAX bytes. */
#define MPT_STATUSES(X)                                                                              \
    X(MPT_OK,             0, "no error")                                                             \
    X(MPT_E_ARG,         -1, "bad argument: NULL, a value out of range, or arrays that overlap")     \
    X(MPT_E_ORDER,       -2, "a call out of order, or after a refused one: scale, check, step, update") \
    X(MPT_E_MEMORY,      -3, "out of memory, or a list or buffer of the caller is full")              \
    X(MPT_E_DATA,        -4, "bad data: malformed, damaged, of another version or model; a failed writer") \
    X(MPT_E_UNSUPPORTED, -5, "not supported: this call does not take this format, name or device")    \
    X(MPT_E_CUDA,        -6, "a CUDA call failed: see mpt_cuda_error_text")                          \
    X(MPT_E_CUBLAS,      -7, "a cuBLAS call failed: see mpt_cuda_error_text")                        \
    X(MPT_E_RANGE,       -8, "out of range: a number does not fit the format it is to be stored in") \
    X(MPT_E_SCALE,       -9, "no loss scale works: see the scaler's verdict")

#define MPTI_STATUS(id, value, text) id = value,
typedef MPTI_ENUM_OF(int, mpt_status) { MPT_STATUSES(MPTI_STATUS) } mpt_status;

/* mpt_status_text -- an English sentence, a static string; "unknown status" otherwise.  Threads: any. */
MPT_DEF const char *mpt_status_text(mpt_status status);

// >>H3 formats ------------------------------------------------------------------------------------
/* Every format is one row: enum name, text name, sign bits, exponent bits, stored mantissa bits, bias,
 * specials. All limits, codes and tables are derived from these seven entries. MPT_E4M3 is the E4M3 of OCP;
 * the format that ml_dtypes calls float8_e4m3, which has Inf, is MPT_E4M3IEEE.
 *   IEEE    an exponent field of all ones is Inf or NaN (IEEE 754-2019, clause 3.4)
 *   FN      no Inf; NaN has all exponent and mantissa bits one (OCP OFP8 v1.0 E4M3; unsigned: NVFP4's scale)
 *   FNUZ    no Inf, no -0; the code that would be -0 is the only NaN (LLVM/ONNX "fnuz")
 *   FINITE  every code is a finite number (OCP MX v1.0 FP6, FP4)
 *   SCALE   unsigned powers of two without zero; the code of all ones is NaN (OCP MX v1.0 E8M0) */
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
    X(MPT_UE4M3,    "ue4m3",    0,  4,  3,    7, MPT_SPECIALS_FN)     \
    X(MPT_E4M3IEEE, "e4m3ieee", 1,  4,  3,    7, MPT_SPECIALS_IEEE)   \
    X(MPT_E3M4,     "e3m4",     1,  3,  4,    3, MPT_SPECIALS_IEEE)   \
    X(MPT_E4M3B11FNUZ, "e4m3b11fnuz", 1, 4, 3, 11, MPT_SPECIALS_FNUZ)

typedef MPTI_ENUM(mpt_format) { MPT_FORMATS(MPTI_ID) MPT_FORMAT_COUNT } mpt_format;

typedef MPTI_ENUM(mpt_specials) {
    MPT_SPECIALS_IEEE, MPT_SPECIALS_FN, MPT_SPECIALS_FNUZ, MPT_SPECIALS_FINITE, MPT_SPECIALS_SCALE
} mpt_specials;

/* Types for the 16-bit and 8-bit formats: structs, so that the compiler refuses to mix formats. Their layout
 * is that of uint16_t or uint8_t, so pointers may be cast to uint16_t * and back. __half * or _Float16 * may
 * be cast for calls on arrays; in code of yours another type needs memcpy, or compilers reorder accesses. */
typedef struct mpt_f16 { uint16_t bits; } mpt_f16;
typedef struct mpt_bf16 { uint16_t bits; } mpt_bf16;
typedef struct mpt_e4m3 { uint8_t bits; } mpt_e4m3;
typedef struct mpt_e5m2 { uint8_t bits; } mpt_e5m2;

/* A code is the bit pattern in the low `bits` bits; from the top: sign, exponent field, mantissa field. */
typedef struct mpt_format_info {
    const char  *name;
    int          bits, sign_bits, exponent_bits, mantissa_bits, bias;
    mpt_specials specials;
    int          emin, emax;        /* exponents of the smallest normal and the largest finite number */
    int          has_inf, has_nan;
    int          bytes;             /* size of an array element: 1, 2, 4 or 8; the code is in its low bits */
    uint64_t     max_code;          /* code of the largest finite number */
    uint64_t     inf_code;          /* code of +Inf; 0 if the format has none */
    uint64_t     nan_code;          /* code of the quiet NaN without payload; 0 if the format has none */
    double       max_finite, min_normal, min_subnormal;
    double       epsilon;           /* distance from 1 to the next number: 2^-mantissa_bits */
} mpt_format_info;

/* mpt_format_get -- the row of a format, which lives forever; NULL for an unknown format.  Threads: any. */
MPT_DEF const mpt_format_info *mpt_format_get(mpt_format format);

/* mpt_format_find -- the format with this text name ("f16", "e4m3", ...).
 * Returns: MPT_OK.  Errors: MPT_E_ARG (NULL), MPT_E_UNSUPPORTED (unknown name); *format is unchanged. */
MPT_DEF mpt_status mpt_format_find(const char *name, mpt_format *format);

/* mpt_format_define -- describe a format of your own, for mpt_encode_as and mpt_decode_as.
 *   info           out  not NULL; its limits are computed from the other parameters
 *   name           in   not NULL; the pointer is stored, the text is not copied
 *   exponent_bits  in   2..10 (1..10 for SCALE)
 *   mantissa_bits  in   1..52 (0 for SCALE)
 *   bias           in   such that every value, even a subnormal of the format, is a normal double
 * Signed, except SCALE: for an unsigned one (R11G11B10) clamp numbers to 0 first, and clear the code's sign
 * bit, which -0 and NaN may have, and a packed neighbour's bit before mpt_decode_as.
 * Returns: MPT_OK.  Errors: MPT_E_ARG (*info is zeroed).  Threads: any. */
MPT_DEF mpt_status mpt_format_define(mpt_format_info *info, const char *name, int exponent_bits,
                                     int mantissa_bits, int bias, mpt_specials specials);

// >>H4 any format, one value ----------------------------------------------------------------------
/* Rounding directions: IEEE 754-2019, clause 4.3; to-odd: Boldo & Melquiond 2008. Stochastic rounding goes
 * up in magnitude if 32 random bits are below floor(2^32 * (discarded part) / (gap)): its bias is below 2^-32
 * of a gap. In a SCALE format every significand is 1, odd: ties to even go up in magnitude, to-odd down. */
#define MPT_ROUNDINGS(X)                            \
    X(MPT_RND_NEAREST_EVEN, "nearest-even")         \
    X(MPT_RND_NEAREST_AWAY, "nearest-away")         \
    X(MPT_RND_TOWARD_ZERO,  "toward-zero")          \
    X(MPT_RND_UP,           "up")                   \
    X(MPT_RND_DOWN,         "down")                 \
    X(MPT_RND_ODD,          "to-odd")               \
    X(MPT_RND_STOCHASTIC,   "stochastic")

typedef MPTI_ENUM(mpt_rounding) { MPT_ROUNDINGS(MPTI_ID) MPT_ROUNDING_COUNT } mpt_rounding;

/* What a finite value that rounds beyond the largest finite number becomes.
 *   IEEE      Inf to nearest and up or down on that side, else (to-odd, stochastic, toward zero) the largest
 *             finite number. A format without Inf gives NaN in place of Inf; a format without NaN always
 *             gives the largest finite number. An Inf that cannot stay Inf raises OVERFLOW and INEXACT, like
 *             a number that overflows.
 *   SATURATE  the largest finite number; Inf becomes that too (as in "saturating" FP8 conversions)
 *   NAN       NaN in every direction (the largest finite number in a format without NaN); Inf stays Inf */
typedef MPTI_ENUM(mpt_overflow) {
    MPT_OVERFLOW_IEEE, MPT_OVERFLOW_SATURATE, MPT_OVERFLOW_NAN
} mpt_overflow;

/* NaNs. KEEP: quiet, with sign (of an overflow, the number's) and upper payload. CANONICAL: nan_code. */
typedef MPTI_ENUM(mpt_nan_mode) { MPT_NAN_KEEP, MPT_NAN_CANONICAL } mpt_nan_mode;

/* When a result counts as tiny: after rounding as if the exponent were unbounded, as x86 and RISC-V do, or
 * before rounding, as ARM does (IEEE 754-2019, clause 7.5). This affects MPT_FLAG_UNDERFLOW only. */
typedef MPTI_ENUM(mpt_tininess) { MPT_TININESS_AFTER, MPT_TININESS_BEFORE } mpt_tininess;

#define MPT_FLUSH_RESULTS 1u    /* a subnormal result is 0 of its sign in any rounding: UNDERFLOW, INEXACT */
#define MPT_FLUSH_INPUTS  2u    /* a subnormal of the source's format counts as zero of its sign: no flag */

/* Zero-initialised options (C++: `mpt_opts o{};`) are the defaults: nearest-even, IEEE overflow, subnormals
 * and NaN kept. Stochastic rounding of one value uses `random`. In an array call, element i uses randoms[i]
 * or, if randoms is NULL, mpt_philox(seed, stream, step, first_element + i). A program that converts an array
 * in chunks gets the bits of one call if it sets first_element to the index of the chunk's first element in
 * the array. Give each rounding of the same array another step, such as the time step: with the same words an
 * element always rounds the same way, and small updates are lost as by nearest-even. */
typedef struct mpt_opts {
    mpt_rounding    rounding;
    mpt_overflow    overflow;
    unsigned        flush;          /* MPT_FLUSH_RESULTS, MPT_FLUSH_INPUTS or both */
    mpt_nan_mode    nan;
    mpt_tininess    tininess;
    uint32_t        random;         /* for one value: uniform bits, new ones for each value */
    const uint32_t *randoms;        /* for arrays: one word per element, apart from dst; NULL: mpt_philox */
    uint64_t        seed, first_element, step;
    uint32_t        stream;         /* for example the tensor's number */
} mpt_opts;

/* Exception flags (IEEE 754-2019, clause 7), sticky: calls never clear any. UNDERFLOW: tiny and inexact. */
#define MPT_FLAG_INVALID   1u
#define MPT_FLAG_DIVBYZERO 2u
#define MPT_FLAG_OVERFLOW  4u
#define MPT_FLAG_UNDERFLOW 8u
#define MPT_FLAG_INEXACT   16u

/* mpt_encode -- round a value to any format of the table, once. This is the slow, simple path against which
 * the fast ones are tested. A NaN becomes quiet and keeps its sign and the top bits of its payload.
 *   format   in      a format of the table
 *   value    in      any double
 *   opts     in      NULL for the defaults
 *   flags    in/out  NULL, or exception flags that are or-ed in
 * Returns: the code. If the format has no NaN, NaN gives the largest positive number and INVALID. If it is
 *   unsigned, a negative number gives NaN and INVALID. In a SCALE format, zero and values below the least
 *   power of two give that power, with UNDERFLOW and INEXACT.
 * Errors: MPT_FLAG_INVALID and code 0 for an unknown format, NaN (code 0 if there is none) for an unknown
 *   option. Where x87 registers pass the arguments, they make a signaling NaN quiet before this call sees it.
 * Exact: correctly rounded.  Threads: any.  Source: IEEE 754-2019, clauses 4.3, 5.4.2, 7. */
MPT_DEF uint64_t mpt_encode(mpt_format format, double value, const mpt_opts *opts, unsigned *flags);

/* mpt_encode_as -- mpt_encode for a format described by mpt_format_define or mpt_format_get. */
MPT_DEF uint64_t mpt_encode_as(const mpt_format_info *info, double value, const mpt_opts *opts,
                               unsigned *flags);

/* mpt_decode -- the value of a code; bits above the format's width are ignored.
 * Returns: the value, always exact in double; a quiet NaN for an unknown format.  Threads: any. */
MPT_DEF double mpt_decode(mpt_format format, uint64_t code);

/* mpt_decode_as -- mpt_decode for a described format. */
MPT_DEF double mpt_decode_as(const mpt_format_info *info, uint64_t code);

/* mpt_encode_i64, mpt_encode_u64 -- mpt_encode of an integer, with one rounding (IEEE 754-2019,
 * convertFromInt): all 64 bits count. An integer that the format can represent raises no flag. */
MPT_DEF uint64_t mpt_encode_i64(mpt_format format, int64_t value, const mpt_opts *opts, unsigned *flags);
MPT_DEF uint64_t mpt_encode_u64(mpt_format format, uint64_t value, const mpt_opts *opts, unsigned *flags);

/* mpt_decode_i64, mpt_decode_u64 -- convert a code to an integer, with one rounding.
 *   bits   in      width of the integer: 2 to 64 if signed, 1 to 64 if unsigned; 32 for an int32_t
 *   opts   in      NULL for the defaults; only rounding (MPT_RND_TOWARD_ZERO is that of a C cast), random
 *                  and MPT_FLUSH_INPUTS have an effect
 *   flags  in/out  NULL, or flags that are or-ed in: INEXACT if the code is not an integer; INVALID (alone)
 *                  for NaN and if the rounded integer is out of range
 * Returns: the integer; the nearest end of the range if out of range; 0 for NaN (as ARM does, and SoftFloat's
 *   "ARM-VFPv2" flavour); 0 and INVALID for an unknown format, width or option.
 * Exact: correctly rounded.  Threads: any.  Source: IEEE 754-2019, clause 5.8, convertToIntegerExact. */
MPT_DEF int64_t  mpt_decode_i64(mpt_format format, uint64_t code, int bits, const mpt_opts *opts,
                                unsigned *flags);
MPT_DEF uint64_t mpt_decode_u64(mpt_format format, uint64_t code, int bits, const mpt_opts *opts,
                                unsigned *flags);

/* mpt_is_exact -- whether the format can represent exactly this number, so that every rounding keeps it. -0
 * differs from +0: unsigned and FNUZ formats lack it. A NaN is exact in every format that has a NaN.
 * Returns: 1 or 0; 0 for an unknown format.  Threads: any. */
MPT_DEF int mpt_is_exact(mpt_format format, double value);

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

typedef MPTI_ENUM(mpt_class) { MPT_CLASSES(MPTI_ID) MPT_CLASS_COUNT } mpt_class;

/* mpt_class_name -- "+normal", "-0", "quiet NaN" ...; "unknown class" otherwise.  Threads: any. */
MPT_DEF const char *mpt_class_name(mpt_class c);

/* mpt_classify -- the class of a code; MPT_CLASS_SIGNALING_NAN for an unknown format.  Threads: any. */
MPT_DEF mpt_class mpt_classify(mpt_format format, uint64_t code);

/* mpt_ulp -- the gap between neighbouring numbers of a format in the binade of |value|, that is the weight of
 * the last significand bit there; below the least normal number the gap of the least normal binade.
 * Returns: the gap; Inf for Inf, NaN for NaN and for an unknown format.  Exact: yes.  Threads: any. */
MPT_DEF double mpt_ulp(mpt_format format, double value);

/* The parts of a number in a format. If it is finite, value = (-1)^sign * significand * 2^exponent. */
typedef struct mpt_fields {
    mpt_format format;
    mpt_class  kind;
    uint64_t   code;
    unsigned   sign;
    uint64_t   exponent_field, mantissa_field;  /* as stored */
    uint64_t   significand;                     /* with the hidden bit; 0 for Inf and NaN */
    int        exponent;                        /* power of two of the significand's last bit */
    double     value;       /* the number that the code stands for */
    double     error;       /* value minus the original number; exact unless the number is out of range */
    unsigned   flags;                           /* MPT_FLAG_* of the conversion */
} mpt_fields;

/* mpt_anatomy -- round a value to a format (nearest-even) and split the result into its parts.
 * Returns: the parts; a NaN with MPT_FLAG_INVALID for an unknown format.  Threads: any. */
MPT_DEF mpt_fields mpt_anatomy(mpt_format format, double value);

#define MPT_BITS_TEXT_MAX 67    /* room for the text of every format: 64 bits, 2 blanks, the final NUL */

/* mpt_bits_text -- write a code as binary text, a blank between fields: "0 10010 1010011000".
 *   buf  out  at least cap bytes; always terminated if cap > 0
 * Returns: the length of the whole text, even if it did not fit; 0 for an unknown format.  Threads: any. */
MPT_DEF size_t mpt_bits_text(char *buf, size_t cap, mpt_format format, uint64_t code);

// >>H5 conversions, one value ---------------------------------------------------------------------
/* All of these are inline, need no implementation, and run on the device too. A conversion to a small format
 * rounds once, to nearest, ties to even; a NaN becomes quiet and keeps its sign and the top bits of its
 * payload. A conversion from a small format is exact. `.bits` is the code, to be stored as an integer.
 * Exact: correctly rounded.  Parity: bit-exact host/device.  Threads: any.
 * Source: IEEE 754-2019, clauses 3.4 (binary16), 4.3.1, 5.4.2; OCP OFP8 v1.0, sections 5.1 and 5.2. */

/* mpt_f16_from_f32, mpt_f16_from_f64 -- to FP16. Overflow (|x| >= 65520) gives Inf, |x| <= 2^-25 gives zero.
 * mpt_f16_from_f64 rounds once; a conversion by way of float would round twice. */
MPT_HD mpt_f16 mpt_f16_from_f32(float x);
MPT_HD mpt_f16 mpt_f16_from_f64(double x);
MPT_HD float   mpt_f32_from_f16(mpt_f16 h);
MPT_HD double  mpt_f64_from_f16(mpt_f16 h);

/* mpt_bf16_from_f32, mpt_bf16_from_f64 -- to BF16, which has float's exponent range, subnormals included. */
MPT_HD mpt_bf16 mpt_bf16_from_f32(float x);
MPT_HD mpt_bf16 mpt_bf16_from_f64(double x);
MPT_HD float    mpt_f32_from_bf16(mpt_bf16 b);
MPT_HD double   mpt_f64_from_bf16(mpt_bf16 b);

/* mpt_e4m3_from_f32, mpt_e5m2_from_f32 -- to FP8, as mpt_encode does by default: E4M3 has no Inf, so overflow
 * (|x| > 464) and Inf give NaN; in E5M2 overflow (|x| >= 61440) gives Inf. The _sat functions saturate:
 * overflow and Inf give the largest finite number of the same sign (448, 57344). */
MPT_HD mpt_e4m3 mpt_e4m3_from_f32(float x);
MPT_HD mpt_e4m3 mpt_e4m3_from_f32_sat(float x);
MPT_HD mpt_e4m3 mpt_e4m3_from_f64(double x);
MPT_HD float    mpt_f32_from_e4m3(mpt_e4m3 c);
MPT_HD double   mpt_f64_from_e4m3(mpt_e4m3 c);
MPT_HD mpt_e5m2 mpt_e5m2_from_f32(float x);
MPT_HD mpt_e5m2 mpt_e5m2_from_f32_sat(float x);
MPT_HD mpt_e5m2 mpt_e5m2_from_f64(double x);
MPT_HD float    mpt_f32_from_e5m2(mpt_e5m2 c);
MPT_HD double   mpt_f64_from_e5m2(mpt_e5m2 c);

/* mpt_f16_next, mpt_bf16_next -- the neighbour above if `up` is nonzero, else below (nextUp and nextDown of
 * IEEE 754-2019, clause 5.3.1). Up, the largest finite number becomes +Inf, which stays, zeros the least
 * positive subnormal, and the greatest negative one -0; down is the mirror image. A NaN becomes quiet. */
MPT_HD mpt_f16  mpt_f16_next(mpt_f16 h, int up);
MPT_HD mpt_bf16 mpt_bf16_next(mpt_bf16 b, int up);

// >>H6 random bits --------------------------------------------------------------------------------
typedef struct mpt_philox_words { uint32_t word[4]; } mpt_philox_words;

/* mpt_philox4x32 -- four random words from a counter and a key: Philox4x32-10. Counters may be used in any
 * order, so results depend neither on the number of threads nor on the vector width.
 * Exact: integers.  Parity: bit-exact host/device.  Threads: any.
 * Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". */
MPT_HD mpt_philox_words mpt_philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key);

/* mpt_philox -- the random word of one element, which stochastic rounding of arrays uses: word (element mod
 * 4) of Philox4x32 at counter (low half of element / 8, high half, stream, low half of step) with the key
 * seed + (high half of step) * 0x9e3779b97f4a7c15. Of every eight elements the last four have the words of
 * the first four with their 16-bit halves swapped, which halves the work and is as good: a rounding that
 * drops 16 bits or fewer (any float to bf16, or to a normal f16) uses the upper half of a word only, so the
 * two elements are independent; for other roundings they are independent to within 2^-16.
 * Returns: 32 uniform bits.  Parity: bit-exact host/device.  Threads: any. */
MPT_HD uint32_t mpt_philox(uint64_t seed, uint32_t stream, uint64_t step, uint64_t element);

// >>H7 arrays -------------------------------------------------------------------------------------
/* mpt_f16_from_f32_n and so on -- convert n numbers.
 *   dst  out  [n], any alignment
 *   src  in   [n], any alignment; nothing before or after the n elements is read
 * Each element is converted as by the scalar function of the same name. In place: dst may be src if an
 * element of dst is no larger than an element of src; no other overlap is allowed. For pairs of formats
 * without such a function use mpt_convert_n, which is as fast. Below 64 elements a call takes as long as 20
 * to 35 scalar calls, without vectors as 60 to 200: for a few elements, call the scalar functions.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, and for arrays that overlap (nothing is written).
 * Exact: the same bits on every path, NaN included.  Threads: any. */
MPT_DEF mpt_status mpt_f16_from_f32_n(mpt_f16 *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_f16_from_f64_n(mpt_f16 *dst, const double *src, size_t n);
MPT_DEF mpt_status mpt_f32_from_f16_n(float *dst, const mpt_f16 *src, size_t n);
MPT_DEF mpt_status mpt_f64_from_f16_n(double *dst, const mpt_f16 *src, size_t n);
MPT_DEF mpt_status mpt_bf16_from_f32_n(mpt_bf16 *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_f32_from_bf16_n(float *dst, const mpt_bf16 *src, size_t n);
MPT_DEF mpt_status mpt_e4m3_from_f32_n(mpt_e4m3 *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_e4m3_from_f32_sat_n(mpt_e4m3 *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_f32_from_e4m3_n(float *dst, const mpt_e4m3 *src, size_t n);
MPT_DEF mpt_status mpt_e5m2_from_f32_n(mpt_e5m2 *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_e5m2_from_f32_sat_n(mpt_e5m2 *dst, const float *src, size_t n);
MPT_DEF mpt_status mpt_f32_from_e5m2_n(float *dst, const mpt_e5m2 *src, size_t n);

/* mpt_convert_n -- convert n numbers between any two formats of the table, chosen at run time.
 *   dst    out     [n] elements of mpt_format_get(dst_format)->bytes each, any alignment
 *   src    in      [n] likewise; in TF32 and formats below 8 bits each element holds one code in its low bits
 *   opts   in      NULL for the defaults
 *   flags  in/out  NULL, or the exception flags of all elements are or-ed in
 * Each element becomes what mpt_encode gives for its value; a signaling NaN raises INVALID, and becomes quiet
 * (but without options and flags a format to itself is a copy). In place as above. Fast, with one rounding:
 *   without options and flags, f64, f32, f16, bf16, e4m3 and e5m2 to each other and, more slowly, to the
 *   other formats of 8 bits or fewer but e8m0; any format to itself;
 *   without flags and with one option, saturation to formats of 8 bits or fewer, flushing between f32, f16
 *   and bf16, and stochastic rounding (by mpt_philox) from f32 to f16 and bf16;
 *   with flags or other options, if the rounding is nearest-even, f32 to f16, bf16, e4m3 and e5m2, for each
 *   256 elements that are all zero or in the range of the destination's normal numbers.
 * From formats of 8 bits or fewer each code is converted once and then looked up, unless the rounding is
 * stochastic. Others go element by element, faster from f32 and f64 numbers normal in the destination.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, an unknown format or option, arrays that overlap
 * (nothing is written).  Threads: any. */
MPT_DEF mpt_status mpt_convert_n(mpt_format dst_format, void *dst, mpt_format src_format, const void *src,
                                 size_t n, const mpt_opts *opts, unsigned *flags);

/* mpt_convert_strided -- mpt_convert_n with dst_stride and src_stride bytes from one element to the next: for
 * matrix columns, fields of records, channel k of c interleaved floats (src + 4 * k, src_stride 4 * c). If a
 * stride is negative, the pointer is to the first element converted, which is the last in memory; a source
 * stride of 0 repeats one element. The bytes between elements of dst are not touched. Elements may have any
 * alignment, but those of dst must not overlap. The spans of source and destination must not, unless they
 * start at the same address with the same stride; with one stride they may be two fields of the same records.
 * Errors: as mpt_convert_n; MPT_E_ARG for n > 1 if |dst_stride| is less than an element.  Threads: any. */
MPT_DEF mpt_status mpt_convert_strided(mpt_format dst_format, void *dst, ptrdiff_t dst_stride,
                                       mpt_format src_format, const void *src, ptrdiff_t src_stride,
                                       size_t n, const mpt_opts *opts, unsigned *flags);

/* The order of the bytes of one element in memory. */
typedef MPTI_ENUM(mpt_byte_order) { MPT_NATIVE_ENDIAN, MPT_LITTLE_ENDIAN, MPT_BIG_ENDIAN } mpt_byte_order;

/* mpt_convert_bytes_n -- mpt_convert_n for the bytes of a file or a message, with a byte order for each side:
 * big-endian halves of an image to native floats, native floats to little-endian doubles.
 * Errors: as mpt_convert_n; MPT_E_ARG for an unknown order.  Threads: any. */
MPT_DEF mpt_status mpt_convert_bytes_n(mpt_format dst_format, void *dst, mpt_byte_order dst_order,
                                       mpt_format src_format, const void *src, mpt_byte_order src_order,
                                       size_t n, const mpt_opts *opts, unsigned *flags);

/* mpt_stochastic_n -- mpt_convert_n from f32 to f16 or bf16 by stochastic rounding only: less code to link.
 *   opts  in  not NULL; only seed, stream, step and first_element are read
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL opts, and as mpt_convert_n; MPT_E_UNSUPPORTED for another
 * format (nothing is written).  Threads: any. */
MPT_DEF mpt_status mpt_stochastic_n(mpt_format format, void *dst, const float *src, size_t n,
                                    const mpt_opts *opts);

/* mpt_convert_checked_n -- mpt_convert_n for programs that treat overflow as an error: it checks every
 * element before it writes anything.
 *   bad  out  NULL, or the index of the first element that does not fit; unchanged if all fit
 * An element does not fit if it is finite and rounds beyond the largest finite number, even if it would
 * saturate; if it is Inf or NaN and the format has none; if it is negative and the format is unsigned. What
 * is inexact or underflows fits (see mpt_inexact_n). Fast from f32, if all fit.
 * Returns: MPT_OK.  Errors: MPT_E_RANGE, and as mpt_convert_n (nothing is written to dst).  Threads: any. */
MPT_DEF mpt_status mpt_convert_checked_n(mpt_format dst_format, void *dst, mpt_format src_format,
                                         const void *src, size_t n, const mpt_opts *opts, size_t *bad);

/* mpt_inexact_n -- count the elements that another format cannot hold exactly; for NaN see mpt_is_exact.
 *   count  out  NULL, or the number of such elements
 *   first  out  NULL, or the index of the first one; n if there is none
 * Returns: MPT_OK.  Errors: MPT_E_ARG as mpt_convert_n (nothing is written).  Threads: any. */
MPT_DEF mpt_status mpt_inexact_n(mpt_format format, mpt_format src_format, const void *src, size_t n,
                                 size_t *count, size_t *first);

/* mpt_quantize_n, mpt_quantize_as_n -- round n floats to a format of the table, or to one of your own
 * (mpt_format_define), and store the results as floats.
 *   dst           out  [n], may be src
 *   src           in   [n]
 *   format, info  in   any format of the table; not NULL
 *   opts          in   NULL for the defaults
 * Each result is mpt_decode of mpt_encode of the element, as a float (2^128, to which a format of wider range
 * may round, becomes Inf).  Threads: any.  Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, other
 * overlap, unknown formats and options; nothing is written. */
MPT_DEF mpt_status mpt_quantize_n(float *dst, const float *src, size_t n, mpt_format format,
                                  const mpt_opts *opts);
MPT_DEF mpt_status mpt_quantize_as_n(float *dst, const float *src, size_t n, const mpt_format_info *info,
                                     const mpt_opts *opts);

/* mpt_quantize_f64_n -- mpt_quantize_as_n for doubles; for a format of the table pass its mpt_format_get. */
MPT_DEF mpt_status mpt_quantize_f64_n(double *dst, const double *src, size_t n, const mpt_format_info *info,
                                      const mpt_opts *opts);

/* mpt_simd_name -- what array functions use here: "portable", "sse2", "avx2", "avx512" or "neon". */
MPT_DEF const char *mpt_simd_name(void);

// >>H8 arithmetic ----------------------------------------------------------------------------------
#ifndef MPT_NO_ARITHMETIC
/* Arithmetic of f16 and bf16, correctly rounded, with integers only: the bits and flags are the same on every
 * machine, for any setting of the processor, and on the device. The functions are inline and need no
 * implementation. Each operation has two forms, shown here for f16; those for bf16 are alike:
 *   mpt_f16_add(a, b)                     nearest-even, exceptions not reported
 *   mpt_f16_add_with(a, b, opts, flags)   the exact result, rounded as by mpt_encode: opts NULL for the
 *                                         defaults, flags NULL or exceptions that are or-ed in
 * All options have an effect: stochastic rounding uses `random`; MPT_FLUSH_INPUTS makes subnormal operands
 * zero, MPT_FLUSH_RESULTS subnormal results; MPT_OVERFLOW_SATURATE replaces every Inf result, even an exact
 * one. An unknown option gives the quiet NaN and MPT_FLAG_INVALID.
 *
 * NaN: if operands are NaN, the result is the first of them in the order of the arguments, made quiet, with
 * its sign and payload; a signaling one raises INVALID. An invalid operation without a NaN operand gives the
 * positive quiet NaN without payload (nan_code of the table). An exact subnormal result raises nothing.
 *
 *   add, sub, mul, div, fma   a + b, a - b, a * b, a / b, a * b + c with one rounding. Inf * 0 + NaN is
 *                             invalid, as in Berkeley TestFloat.
 *   sqrt         the square root; -0 for -0; invalid for other negative operands
 *   rem          a - n * b, where n is the integer nearest to a / b, ties to even; exact; a zero result has
 *                the sign of a (remainder() of C, clause 5.3.1)
 *   to_integral  a rounded to an integer in the direction of `rounding`; _with raises INEXACT if that differs
 *                from a (roundToIntegralExact, clause 5.9)
 *   scaleb       a * 2^n with one rounding, for any n
 *   logb         floor(log2 |a|), for subnormals too; Inf for Inf; -Inf and DIVBYZERO for 0 (5.3.3)
 * Exact: correctly rounded.  Parity: bit-exact host/device.  Threads: any.
 * Source: IEEE 754-2019, clauses 5 to 7; to-odd: Boldo & Melquiond 2008. */
MPT_HD mpt_f16 mpt_f16_add(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16 mpt_f16_sub(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16 mpt_f16_mul(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16 mpt_f16_div(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16 mpt_f16_fma(mpt_f16 a, mpt_f16 b, mpt_f16 c);
MPT_HD mpt_f16 mpt_f16_sqrt(mpt_f16 a);
MPT_HD mpt_f16 mpt_f16_rem(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16 mpt_f16_to_integral(mpt_f16 a);
MPT_HD mpt_f16 mpt_f16_scaleb(mpt_f16 a, int n);
MPT_HD mpt_f16 mpt_f16_logb(mpt_f16 a);
MPT_HD mpt_f16 mpt_f16_add_with(mpt_f16 a, mpt_f16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_sub_with(mpt_f16 a, mpt_f16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_mul_with(mpt_f16 a, mpt_f16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_div_with(mpt_f16 a, mpt_f16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_fma_with(mpt_f16 a, mpt_f16 b, mpt_f16 c, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_sqrt_with(mpt_f16 a, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_rem_with(mpt_f16 a, mpt_f16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_to_integral_with(mpt_f16 a, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_scaleb_with(mpt_f16 a, int n, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_f16 mpt_f16_logb_with(mpt_f16 a, const mpt_opts *opts, unsigned *flags);

/* The same for bf16. */
MPT_HD mpt_bf16 mpt_bf16_add(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_sub(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_mul(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_div(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_fma(mpt_bf16 a, mpt_bf16 b, mpt_bf16 c);
MPT_HD mpt_bf16 mpt_bf16_sqrt(mpt_bf16 a);
MPT_HD mpt_bf16 mpt_bf16_rem(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_to_integral(mpt_bf16 a);
MPT_HD mpt_bf16 mpt_bf16_scaleb(mpt_bf16 a, int n);
MPT_HD mpt_bf16 mpt_bf16_logb(mpt_bf16 a);
MPT_HD mpt_bf16 mpt_bf16_add_with(mpt_bf16 a, mpt_bf16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_sub_with(mpt_bf16 a, mpt_bf16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_mul_with(mpt_bf16 a, mpt_bf16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_div_with(mpt_bf16 a, mpt_bf16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_fma_with(mpt_bf16 a, mpt_bf16 b, mpt_bf16 c, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_sqrt_with(mpt_bf16 a, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_rem_with(mpt_bf16 a, mpt_bf16 b, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_to_integral_with(mpt_bf16 a, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_scaleb_with(mpt_bf16 a, int n, const mpt_opts *opts, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_logb_with(mpt_bf16 a, const mpt_opts *opts, unsigned *flags);

/* mpt_f16_eq, lt, le, and for bf16 -- 1 or 0, exceptions not reported; -0 equals +0; 0 if an operand is NaN.
 * mpt_f16_compare(a, b, signaling, flags) -- how a compares to b, as one bit, so that a mask asks any
 * question: `mpt_f16_compare(a, b, 1, &flags) & (MPT_GREATER | MPT_EQUAL)` is C's a >= b.
 *   signaling  in      0: only a signaling NaN raises INVALID (compareQuiet...); else any (...Signaling...)
 *   flags      in/out  NULL, or exceptions that are or-ed in
 * Exact: yes.  Threads: any.  Source: IEEE 754-2019, clause 5.11. */
typedef MPTI_ENUM(mpt_relation) {
    MPT_LESS = 1, MPT_EQUAL = 2, MPT_GREATER = 4, MPT_UNORDERED = 8
} mpt_relation;
MPT_HD int          mpt_f16_eq(mpt_f16 a, mpt_f16 b);
MPT_HD int          mpt_f16_lt(mpt_f16 a, mpt_f16 b);
MPT_HD int          mpt_f16_le(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_relation mpt_f16_compare(mpt_f16 a, mpt_f16 b, int signaling, unsigned *flags);
MPT_HD int          mpt_bf16_eq(mpt_bf16 a, mpt_bf16 b);
MPT_HD int          mpt_bf16_lt(mpt_bf16 a, mpt_bf16 b);
MPT_HD int          mpt_bf16_le(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_relation mpt_bf16_compare(mpt_bf16 a, mpt_bf16 b, int signaling, unsigned *flags);

/* mpt_f16_minimum, mpt_f16_maximum, and for bf16 -- -0 is below +0; the result is NaN if an operand is.
 * mpt_f16_extreme(a, b, kind, flags) -- any of the standard's eight minimum and maximum operations: `kind` is
 * 0 for minimum, or the sum of some of these bits. A signaling NaN raises INVALID.
 * Exact: yes.  Threads: any.  Source: IEEE 754-2019, clause 9.6. */
#define MPT_EXTREME_LARGEST   1u    /* maximum... */
#define MPT_EXTREME_MAGNITUDE 2u    /* ...Magnitude: compares |a| and |b|, and if these are equal a and b */
#define MPT_EXTREME_NUMBER    4u    /* ...Number: NaN only if both operands are NaN */
MPT_HD mpt_f16  mpt_f16_minimum(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16  mpt_f16_maximum(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16  mpt_f16_extreme(mpt_f16 a, mpt_f16 b, unsigned kind, unsigned *flags);
MPT_HD mpt_bf16 mpt_bf16_minimum(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_maximum(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_extreme(mpt_bf16 a, mpt_bf16 b, unsigned kind, unsigned *flags);

/* mpt_f16_total_order(a, b) -- 1 if a is b or comes before b in the total order of codes, else 0: -NaN, -Inf,
 * negative numbers, -0, +0, positive numbers, +Inf, NaN; a signaling NaN is nearer to Inf than a quiet one.
 * mpt_f16_neg, mpt_f16_abs, mpt_f16_copysign(a, b) -- change only a's sign bit (copysign: to b's), even of a
 * NaN. All for bf16 too.  Exact: yes.  Threads: any.  Source: IEEE 754-2019, clauses 5.10, 5.5.1. */
MPT_HD int      mpt_f16_total_order(mpt_f16 a, mpt_f16 b);
MPT_HD mpt_f16  mpt_f16_neg(mpt_f16 a);
MPT_HD mpt_f16  mpt_f16_abs(mpt_f16 a);
MPT_HD mpt_f16  mpt_f16_copysign(mpt_f16 a, mpt_f16 b);
MPT_HD int      mpt_bf16_total_order(mpt_bf16 a, mpt_bf16 b);
MPT_HD mpt_bf16 mpt_bf16_neg(mpt_bf16 a);
MPT_HD mpt_bf16 mpt_bf16_abs(mpt_bf16 a);
MPT_HD mpt_bf16 mpt_bf16_copysign(mpt_bf16 a, mpt_bf16 b);

/* mpt_f16_add_n, sub_n, mul_n(dst, a, b, n), mpt_f16_fma_n(dst, a, b, c, n), and for bf16 -- arrays: each
 * element as by mpt_f16_add and so on.
 *   dst      out  [n]
 *   a, b, c  in   [n]
 * In place: dst may be a, b or c; no other overlap. Fast (some elements per cycle) with AVX2, else scalar.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, or other overlap (nothing is written).
 * Exact: bit for bit as the scalar function, NaN included, on every path and for any setting of the processor
 * (rounding, flush to zero), which is restored at the end.  Threads: any. */
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
#endif /* MPT_NO_ARITHMETIC */

// >>H9 text ----------------------------------------------------------------------------------------
#ifndef MPT_NO_TEXT
/* Decimal and hexadecimal text of every format of the table and of described formats. Independent of the
 * locale: the decimal point is '.'. Reading rounds once, from the text to the format, never through double.
 *
 * Written form: the fewest decimal digits that nearest-even reads back as the same code, and of these texts
 * the one nearest to the value (of two equally near the even one). Beyond the largest number (and a SCALE
 * format's least) others are supposed. Without exponent if the first digit stands for 10^-4 ... 10^15
 * ("0.0001", "65500", which reads as 65504), else with one ("6e-8", "3.39e38"). Hexadecimal: "0x1.8p-3",
 * always with a leading 1, except "0x0p+0" for zero. Inf and NaN: "inf", "nan", "nan(0x1f)" with a payload,
 * "snan(0x1)" if signaling; "-" in front if the sign bit is set (not of FNUZ's NaN). All read back unchanged.
 *
 * Read form: the whole text must match, without blanks; letters may be of either case:
 *   [+-] digits [. digits] [e [+-] digits]             the digits on one side of the point may be absent
 *   [+-] 0x hexdigits [. hexdigits] [p [+-] digits]    after p: the exponent of 2
 *   [+-] inf | infinity | nan | snan | nan(payload) | snan(payload)     payload: decimal, or 0x and hex */
#define MPT_TEXT_MAX 32     /* room for any text of any format of at most 64 bits, with the final NUL */
#define MPT_TEXT_TO_NUL ((size_t)-1)

/* mpt_to_text -- the decimal text of a code.
 *   buf  out  at least cap bytes; always terminated if cap > 0; MPT_TEXT_MAX is enough
 * Returns: the length of the whole text, even if it did not fit (as snprintf); 0 for an unknown format.
 * Exact: yes, see above.  Threads: any.  Source: Steele & White 1990; Burger & Dybvig 1996. */
MPT_DEF size_t mpt_to_text(char *buf, size_t cap, mpt_format format, uint64_t code);

/* mpt_to_text_as -- mpt_to_text for a described format (or mpt_format_get's); hexadecimal if hex is not 0. */
MPT_DEF size_t mpt_to_text_as(char *buf, size_t cap, const mpt_format_info *info, uint64_t code, int hex);

/* mpt_from_text -- the code of a text of any length, correctly rounded.
 *   text    in      not NULL; need not be terminated if length is given
 *   length  in      bytes of text, or MPT_TEXT_TO_NUL
 *   opts    in      NULL for the defaults, as in mpt_encode
 *   flags   in/out  NULL, or exceptions that are or-ed in, as in mpt_encode
 *   code    out     not NULL; unchanged on an error
 *   end     out     NULL, or where reading ended: at the length; in malformed text at the first byte that no
 *                   valid text has there (at the length if the text ends too early), or at a bad payload
 * A signaling NaN stays so, if the format has one, and raises nothing.  Returns: MPT_OK.  Errors: MPT_E_DATA
 * for malformed text and a payload that does not fit the format; MPT_E_ARG: NULL, no such format, option.
 * Exact: correctly rounded, any length, any exponent; above 29 mantissa bits the probability of stochastic
 * rounding has 62 - mantissa_bits bits (f64: 10).  Threads: any.  Source: IEEE 754-2019, clause 5.12. */
MPT_DEF mpt_status mpt_from_text(mpt_format format, const char *text, size_t length, const mpt_opts *opts,
                                 unsigned *flags, uint64_t *code, size_t *end);

/* mpt_from_text_as -- mpt_from_text for a described format. */
MPT_DEF mpt_status mpt_from_text_as(const mpt_format_info *info, const char *text, size_t length,
                                    const mpt_opts *opts, unsigned *flags, uint64_t *code, size_t *end);

/* mpt_f16_to_text, mpt_bf16_to_text -- mpt_to_text of the type's format. */
MPT_DEF size_t mpt_f16_to_text(char *buf, size_t cap, mpt_f16 h);
MPT_DEF size_t mpt_bf16_to_text(char *buf, size_t cap, mpt_bf16 b);

/* mpt_f16_from_text, mpt_bf16_from_text -- a NUL-terminated text, nearest-even; *value is unchanged on an
 * error.  Returns: MPT_OK.  Errors: MPT_E_DATA, MPT_E_ARG as mpt_from_text, which also tells where. */
MPT_DEF mpt_status mpt_f16_from_text(const char *text, mpt_f16 *value);
MPT_DEF mpt_status mpt_bf16_from_text(const char *text, mpt_bf16 *value);
#endif /* MPT_NO_TEXT */

// >>H10 blocks -------------------------------------------------------------------------------------
#ifndef MPT_NO_BLOCKS
/* Block formats: small elements that share a scale. A row: enum name, text name, format of the elements,
 * format of the scale, elements per block. A number is element * scale (* tensor scale for NVFP4). A block
 * may cross from one row to the next: call row by row if that is unwanted. MXINT8, of integers, is not here.
 * Source: OCP Microscaling Formats (MX) v1.0, section 5.1; NVFP4 as in cuBLAS and cuDNN. GGUF packs elements
 * j and j + 16 of an MXFP4 block, j and j + 8 of an NVFP4 block in one byte: another order than ours. */
#define MPT_BLOCKS(X)                                          \
    X(MPT_MXFP8_E4M3, "mxfp8_e4m3", MPT_E4M3, MPT_E8M0,  32)   \
    X(MPT_MXFP8_E5M2, "mxfp8_e5m2", MPT_E5M2, MPT_E8M0,  32)   \
    X(MPT_MXFP6_E3M2, "mxfp6_e3m2", MPT_E3M2, MPT_E8M0,  32)   \
    X(MPT_MXFP6_E2M3, "mxfp6_e2m3", MPT_E2M3, MPT_E8M0,  32)   \
    X(MPT_MXFP4,      "mxfp4",      MPT_E2M1, MPT_E8M0,  32)   \
    X(MPT_NVFP4,      "nvfp4",      MPT_E2M1, MPT_UE4M3, 16)

typedef MPTI_ENUM(mpt_block) { MPT_BLOCKS(MPTI_ID) MPT_BLOCK_COUNT } mpt_block;

typedef struct mpt_block_info {
    const char *name;
    mpt_format  element, scale;
    int         size;               /* elements per block; the last block of an array may be shorter */
} mpt_block_info;

/* mpt_block_get -- the row of a block format, which lives forever; NULL for an unknown one.  Threads: any. */
MPT_DEF const mpt_block_info *mpt_block_get(mpt_block block);

/* How the scale of a block is computed from amax, the largest magnitude in the block.
 *             E8M0 (MX)                                          UE4M3 (NVFP4)
 *   FLOOR     2^(floor(log2 amax) - emax): MX v1.0, section 6.3    amax / (6 * tensor scale) rounded down
 *   CEIL      the least power of two that needs no clamping        ... rounded up
 *   ROUND     FLOOR of amax rounded to the element's precision     ... rounded to nearest, ties to even
 *   DEFAULT   FLOOR                                                ROUND
 * emax is the exponent of the element format's largest number. The scale is clamped to the finite range of
 * its format; a block that is not all zeros gets at least the least scale above zero. FLOOR and ROUND clamp
 * elements, so that only CEIL keeps stochastic rounding unbiased. The error of bell-shaped numbers is least
 * with CEIL for E4M3 (by about 1 decibel; of uniform ones by 0 to 6), with ROUND for E2M1. */
typedef MPTI_ENUM(mpt_block_scaling) {
    MPT_SCALE_DEFAULT, MPT_SCALE_FLOOR, MPT_SCALE_CEIL, MPT_SCALE_ROUND
} mpt_block_scaling;

/* Zero-initialised options are the defaults: DEFAULT scaling, one code per byte, scale 1, nearest-even. */
typedef struct mpt_block_opts {
    mpt_block_scaling scaling;
    int               packed;       /* nonzero: element codes are packed without gaps, as by mpt_pack_n */
    float             tensor_scale; /* finite and positive; 0 means 1, which MX formats demand */
    mpt_opts          element;      /* how elements (not scales) are rounded, flushed; overflow saturates */
} mpt_block_opts;

/* mpt_block_quantize_n -- quantize n floats to element codes and scales.
 *   codes   out  [n], or [mpt_packed_size(n, bits)] if packed
 *   scales  out  [(n + size - 1) / size]; products want them in tiles: see mpt_cuda_block_quantize_n
 *   src     in   [n]
 *   opts    in   NULL for the defaults
 * Each element is x / (stored scale * tensor scale), and this quotient is rounded once; beyond the largest
 * element it is clamped; -0 stays -0. A block of zeros gets scale code 0. A block that contains NaN or Inf
 * gets a NaN scale and zero elements, so that all of it dequantizes to NaN. The last block may be partial.
 * The arrays do not overlap.  Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, an unknown block,
 * option or tensor scale (nothing is written).  Exact: yes.  Threads: any. */
MPT_DEF mpt_status mpt_block_quantize_n(mpt_block block, uint8_t *codes, uint8_t *scales, const float *src,
                                        size_t n, const mpt_block_opts *opts);

/* mpt_block_dequantize_n -- convert element codes and scales to n floats: element * scale * tensor scale,
 * rounded once to nearest, ties to even (exact in MX, except that numbers beyond the largest float give Inf).
 * A NaN scale or element gives the positive quiet NaN. Bits above a code's width are ignored. Of the options
 * only packed and tensor_scale have an effect.
 * Returns: MPT_OK.  Errors: as above.  Exact: yes.  Threads: any. */
MPT_DEF mpt_status mpt_block_dequantize_n(mpt_block block, float *dst, const uint8_t *codes,
                                          const uint8_t *scales, size_t n, const mpt_block_opts *opts);

/* mpt_block_tensor_scale -- the tensor scale for NVFP4 with which no block's scale overflows (CEIL: nearly):
 * the largest finite magnitude of n floats / (6 * 448), rounded to float (if that is subnormal, coarsely, and
 * scales may be clamped), but not below the least float; 1 if all finite numbers are zero, and for the MX
 * formats. NVFP4 of small numbers needs it: without it, blocks with an amax below 6 * 2^-6 get subnormal
 * scales, which have few bits. (Some files hold its reciprocal.)
 * Returns: MPT_OK.  Errors: MPT_E_ARG (*scale is unchanged).  Threads: any. */
MPT_DEF mpt_status mpt_block_tensor_scale(mpt_block block, const float *src, size_t n, float *scale);

/* mpt_packed_size -- bytes that n codes of `bits` bits (1..8) take when packed.  Threads: any. */
MPT_DEF size_t mpt_packed_size(size_t n, int bits);

/* mpt_pack_n, mpt_unpack_n -- pack n codes of 1..8 bits, one per byte, without gaps, and unpack them. Bit k
 * of code i is bit (i * bits + k) of the packed string, and bit j of that string is bit j mod 8 of byte
 * j / 8: the first of two 4-bit codes is the low half of the byte. In codes, bits above `bits` are ignored by
 * packing; unused bits of the last packed byte are zero. Packing may work in place; unpacking may not.
 * Returns: MPT_OK.  Errors: MPT_E_ARG for NULL with n > 0, other bits, or other overlap.  Threads: any. */
MPT_DEF mpt_status mpt_pack_n(uint8_t *packed, const uint8_t *codes, size_t n, int bits);
MPT_DEF mpt_status mpt_unpack_n(uint8_t *codes, const uint8_t *packed, size_t n, int bits);
#endif /* MPT_NO_BLOCKS */

// >>H11 core: the formulas ------------------------------------------------------------------------
/* Every formula of this header stands here once, for one element, for host and device. The vector code
 * (>>H12, >>H14, >>H15, >>H17) gives the same results; tests compare it with these functions, bit for bit. */

/* ---- bits ---- */

#define MPTI_ONE ((uint64_t)1)

/* Reinterpret the bits of a floating-point number as an integer (its bit pattern), and back. */
#define MPTI_SAME_BITS(To, name, From)                                                               \
    MPT_HD To name(From x)                                                                           \
    {                                                                                                \
        To r;                                                                                        \
        memcpy(&r, &x, sizeof r);                                                                    \
        return r;                                                                                    \
    }
MPTI_SAME_BITS(uint32_t, mpti_f32_bits, float)
MPTI_SAME_BITS(float, mpti_f32_make, uint32_t)
MPTI_SAME_BITS(uint64_t, mpti_f64_bits, double)
MPTI_SAME_BITS(double, mpti_f64_make, uint64_t)

/* These tests look at the bits, because isnan() and isinf() fold to false under -ffast-math. */
MPT_HD int mpti_f32_is_finite(float x) { return (mpti_f32_bits(x) & 0x7f800000u) != 0x7f800000u; }
MPT_HD int mpti_f64_is_finite(double x) { return ((mpti_f64_bits(x) >> 52) & 0x7ffu) != 0x7ffu; }
MPT_HD int mpti_f64_is_nan(double x) { return mpti_f64_bits(x) << 1 > (uint64_t)0xffe << 52; }

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
#if defined(__GNUC__) && !defined(__CUDA_ARCH__)
    return __builtin_clzll(x);
#else
    const uint32_t high = (uint32_t)(x >> 32);
    return high ? mpti_clz32(high) : 32 + mpti_clz32((uint32_t)x);
#endif
}

/* sig >> shift, rounded to nearest, ties to even; 1 <= shift <= 31 (63), and the sum below must not wrap.
 * Adding half of the last kept place, less one if its bit is 0, carries exactly when rounding goes up. */
MPT_HD uint32_t mpti_shift_rne32(uint32_t sig, int shift)
{
    return (sig + ((1u << (shift - 1)) - 1u) + ((sig >> shift) & 1u)) >> shift;
}

MPT_HD uint64_t mpti_shift_rne64(uint64_t sig, int shift)
{
    return (sig + ((MPTI_ONE << (shift - 1)) - 1u) + ((sig >> shift) & 1u)) >> shift;
}

/* Can `array` not be n > 0 elements? It is NULL, or over half of memory: no object is, and sizes may wrap. */
static inline int mpti_no_array_here(const void *array, size_t n, size_t bytes)
{
    return n && (!array || n > (size_t)-1 / 2u / bytes);
}

/* Do two arrays share memory, or two of three? */
MPTI_UNUSED static int mpti_meet(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return a && b && (p - q < b_bytes || q - p < a_bytes);
}
MPTI_UNUSED static int mpti_some_meet(const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                                      const void *c, size_t c_bytes)
{
    return mpti_meet(a, a_bytes, b, b_bytes) || mpti_meet(a, a_bytes, c, c_bytes) ||
           mpti_meet(b, b_bytes, c, c_bytes);
}

/* Would a write of n > 0 lines of `bytes` bytes, `step` apart, change one of m others that are read? With the
 * same step both may be fields of the same records, or columns of one matrix. */
MPTI_UNUSED static int mpti_lines_meet(uintptr_t to, size_t bytes, size_t step, size_t n, uintptr_t from,
                                       size_t from_bytes, size_t from_step, size_t m)
{
    size_t at;                          /* of a line in a record of the others */
    if (to - from >= (m - 1u) * from_step + from_bytes && from - to >= (n - 1u) * step + bytes)
        return 0;
    at = to >= from ? (to - from) % step : step - (from - to - 1u) % step - 1u;
    return step != from_step || at < from_bytes || at + bytes > step;
}

/* mpti_no_array_here as a call, where its time does not matter. */
MPTI_NOINLINE MPTI_UNUSED static int mpti_no_array(const void *array, size_t n, size_t bytes)
{
    return mpti_no_array_here(array, n, bytes);
}

MPT_HD size_t mpti_apart(ptrdiff_t stride) { return stride < 0 ? 0u - (size_t)stride : (size_t)stride; }

/* Is an array of elements that are `stride` bytes apart missing, or larger than memory? */
MPTI_UNUSED static int mpti_no_strided(const void *array, size_t n, ptrdiff_t stride)
{
    return mpti_no_array(array, n, mpti_apart(stride) + !stride);
}

/* Would an element that is written overwrite another one, or one that is read other than its own? */
MPTI_UNUSED static int mpti_strides_clash(const void *dst, size_t bytes, ptrdiff_t stride, const void *src,
                                          size_t from_bytes, ptrdiff_t from_stride, size_t n)
{
    const size_t    out = mpti_apart(stride), in = mpti_apart(from_stride);
    const uintptr_t to = (uintptr_t)dst - (stride < 0 ? out * (n - 1u) : 0u);          /* lowest addresses */
    const uintptr_t from = (uintptr_t)src - (from_stride < 0 ? in * (n - 1u) : 0u);
    return n > 1u && (out < bytes || (!(dst == src && stride == from_stride) &&
                                      mpti_lines_meet(to, bytes, out, n, from, from_bytes, in, n)));
}

/* rounded - value. A subnormal double rounds to itself or 0: no arithmetic, which could flush it. */
MPT_HD double mpti_error_of(double rounded, double value)
{
    const uint64_t r = mpti_f64_bits(rounded), v = mpti_f64_bits(value), sign = MPTI_ONE << 63;
    if (r == v && !mpti_f64_is_nan(value))
        return 0.0;
    if (!(r & ~sign) && (v & ~sign))
        return mpti_f64_make(v ^ sign);
    return rounded - value;
}

/* ---- between float and the small formats ---- */

/* Round the float pattern a, without its sign and within the format's range, to a code of a small IEEE-like
 * format: to nearest, ties to even. The format has m mantissa bits; `least` is float's exponent field of its
 * least normal number. A carry out of the mantissa correctly increments the exponent.
 *
 *   f32   eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm       f16: m 10, least 113     e4m3: m 3, least 121
 *   f16      eeeee mmmmmmmmmm|<- 13 dropped     bf16: m 7, least 1       e5m2: m 2, least 113
 *
 * Below the least normal number more bits are dropped, at last the hidden bit too; 25 or more leave 0. */
MPT_HD uint32_t mpti_small_encode(uint32_t a, int m, uint32_t least)
{
    if (MPTI_LIKELY(a >= least << 23))
        return mpti_shift_rne32(a - ((least - 1u) << 23), 23 - m);
    {
        const int drop = 23 - m + (int)least - (int)(a >> 23);
        return mpti_shift_rne32((a & 0x7fffffu) | 0x800000u, drop < 25 ? drop : 25);
    }
}

/* Decode a finite code without its sign to a float pattern; exact. m and `least` as above. */
MPT_HD uint32_t mpti_small_decode(uint32_t a, int m, uint32_t least)
{
    if (MPTI_LIKELY(a >> m))
        return (a << (23 - m)) + ((least - 1u) << 23);
    if (!a)
        return 0u;
    {   /* subnormal: the highest one bit becomes the hidden bit */
        const int up = mpti_clz32(a) - (31 - m);
        return ((least - (uint32_t)up) << 23) + ((a << (23 - m + up)) & 0x7fffffu);
    }
}

/* Stochastic rounding: up in magnitude if the discarded part, in units of 2^-32 of the gap, exceeds the
 * random bits. Exactly then, adding 2^s - 1 - (the top s random bits) carries out of the s dropped bits. A
 * finite value becomes at most `most`, never Inf. Branch-free, for loops. Tests compare with mpt_encode. */
MPT_HD uint32_t mpti_small_stochastic(uint32_t a, uint32_t random, uint32_t m, uint32_t least, uint32_t most)
{
#ifdef __CUDA_ARCH__            /* not subnormal: what is below is then only this */
    if (a >= least << 23) {
        const uint32_t code = (a - ((least - 1u) << 23) + (~random >> (9u + m))) >> (23u - m);
        return code < most ? code : most;
    }
#endif
    const uint32_t exp = a >> 23 ? a >> 23 : 1u, sig = a - ((exp - 1u) << 23);
    const uint32_t below = exp >= least ? 0u : least - exp, drop = 23u - m + below;
    const uint32_t base = (exp + below - least) << m;
    const uint32_t s = drop < 31u ? drop : 31u, beyond = drop > 32u ? drop - 32u : 0u;
    const uint32_t closest = (sig + (~random >> (32u - s))) >> s;
    const uint32_t distant = (uint32_t)(sig >> (beyond < 31u ? beyond : 31u) > random);
    const uint32_t up = base + (drop > 31u ? distant : closest);
    return up < most ? up : most;
}

/* The code, without its sign, of the Inf or NaN pattern a; `inf` is the format's code with all exponent bits
 * set (E4M3: its NaN). A NaN becomes quiet and keeps the top of its payload. */
MPT_HD uint32_t mpti_small_special(uint32_t a, int m, uint32_t inf)
{
    return a > 0x7f800000u ? inf | 1u << (m - 1) | (a >> (23 - m) & ((1u << m) - 1u)) : inf;
}

/* f32 pattern -> f16 code.
 *
 *   |x|  0 ........ 2^-25 ........ 2^-14 ............... 65520 ...... Inf   NaN
 *        -> 0 (and 2^-25)  subnormal       normal               Inf         quiet NaN */
MPT_HD uint16_t mpti_f16_encode(uint32_t u)
{
    const uint32_t a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
#ifdef __CUDA_ARCH__                /* one instruction; only its NaN results differ from ours */
    uint16_t h;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | mpti_small_special(a, 10, 0x7c00u));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(__uint_as_float(u)));
    return h;
#else
    if (MPTI_LIKELY(a < 0x47800000u))   /* 65536; from 65520 on, the carry gives Inf */
        return (uint16_t)(sign | mpti_small_encode(a, 10, 113u));
    return (uint16_t)(sign | mpti_small_special(a, 10, 0x7c00u));
#endif
}

/* f16 code -> f32 pattern. Exact, except that a signaling NaN becomes quiet. */
MPT_HD uint32_t mpti_f16_decode(uint16_t h)
{
    const uint32_t a = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
#ifdef __CUDA_ARCH__
    float f;
    if (a > 0x7c00u)
        return sign | 0x7fc00000u | a << 13;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return __float_as_uint(f);
#else
    /* normal? 1 added to an exponent field of 0 or 31 leaves these bits 0; 1.2 times as fast as two tests */
    const uint32_t up = (uint32_t)(int32_t)(int16_t)h << 13;
    if (MPTI_LIKELY((up + 0x800000u) & 0xf000000u))
        return (up & 0x8fffe000u) + 0x38000000u;
    if (a >= 0x7c00u)
        return sign | 0x7f800000u | a << 13 | (uint32_t)(a > 0x7c00u) << 22;
    return sign | mpti_small_decode(a, 10, 113u);
#endif
}

/* A bf16 code is the upper half of a float, rounded. bf16 has float's exponent range, so the formula of
 * mpti_small_encode, applied to the whole pattern, serves zero, subnormals, normals and Inf. */
MPT_HD uint16_t mpti_bf16_encode(uint32_t u)
{
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)mpti_shift_rne32(u, 16);
}

MPT_HD uint32_t mpti_bf16_decode(uint16_t b)
{
    const uint32_t u = (uint32_t)b << 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : u;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define MPTI_PTX_FP8 1      /* one instruction encodes two numbers, `high` into the upper byte; overflow */
#define MPTI_PTX_FP8_PAIR(format, pair, high, low)  /* and Inf give the largest finite number */            \
    asm("cvt.rn.satfinite." format "x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low))
#endif

/* f32 pattern -> E4M3 or E5M2 code, as 32 bits, for loops (see MPTI_PORTABLE_GROUPS). Overflow and Inf give
 * `beyond`, E4M3's NaN or E5M2's Inf; with `saturate` the code before it, the largest finite number.
 *
 *   |x|  0 ........ 2^-10 ....... 2^-6 ............ 464 ...... Inf   NaN
 *   E4M3 -> 0 (and 2^-10)  subnormal      normal (and 464)  beyond   NaN
 *   |x|  0 ........ 2^-17 ....... 2^-14 ......... 61440 ...... Inf   NaN
 *   E5M2 -> 0 (and 2^-17)  subnormal      normal    (and 61440) beyond   NaN */
MPT_HD uint32_t mpti_fp8_code(uint32_t u, int e5m2, int saturate)
{
    const uint32_t a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u, beyond = e5m2 ? 0x7cu : 0x7fu;
    if (a >= (e5m2 ? 0x47700000u : 0x43e80001u))        /* tie 464 goes to 448, tie 61440 to Inf */
        return sign | (a > 0x7f800000u ? mpti_small_special(a, e5m2 ? 2 : 3, beyond)
                                       : beyond - (uint32_t)saturate);
#ifdef MPTI_PTX_FP8
    uint16_t pair;
    if (e5m2)
        MPTI_PTX_FP8_PAIR("e5m2", pair, 0.0f, __uint_as_float(u));
    else
        MPTI_PTX_FP8_PAIR("e4m3", pair, 0.0f, __uint_as_float(u));
    return (uint8_t)pair;
#else
    return sign | mpti_small_encode(a, e5m2 ? 2 : 3, e5m2 ? 113u : 121u);
#endif
}

MPT_HD uint8_t mpti_e4m3_encode(uint32_t u) { return (uint8_t)mpti_fp8_code(u, 0, 0); }
MPT_HD uint8_t mpti_e5m2_encode(uint32_t u) { return (uint8_t)mpti_fp8_code(u, 1, 0); }

MPT_HD uint32_t mpti_e4m3_decode(uint8_t c)
{
    const uint32_t sign = (uint32_t)(c & 0x80u) << 24, a = c & 0x7fu;
    return sign | (a == 0x7fu ? 0x7fc00000u : mpti_small_decode(a, 3, 121u));
}

/* Every E5M2 code is the upper byte of the f16 code of the same number. */
MPT_HD uint32_t mpti_e5m2_decode(uint8_t c) { return mpti_f16_decode((uint16_t)((uint32_t)c << 8)); }

/* Stochastic rounding of a float pattern to a code, as 32 bits too; Inf and NaN as above. One function for
 * both 16 and 8 bits would cost an eighth more instructions with nvcc for sm_100 and later. */
MPT_HD uint32_t mpti_stochastic_16(uint32_t u, uint32_t random, uint32_t m, uint32_t least)
{
    const uint32_t a = u & 0x7fffffffu, inf = 0x7fffu >> m << m;
    const uint32_t finite = mpti_small_stochastic(a, random, m, least, inf - 1u);
    return (u >> 16 & 0x8000u) | (a >= 0x7f800000u ? mpti_small_special(a, (int)m, inf) : finite);
}
MPT_HD uint32_t mpti_stochastic_8(uint32_t u, uint32_t random, uint32_t m, uint32_t least, uint32_t inf)
{
    const uint32_t a = u & 0x7fffffffu, finite = mpti_small_stochastic(a, random, m, least, inf - 1u);
    return (u >> 24 & 0x80u) | (a >= 0x7f800000u ? mpti_small_special(a, (int)m, inf) : finite);
}
MPT_HD uint32_t mpti_f16_stochastic(uint32_t u, uint32_t r) { return mpti_stochastic_16(u, r, 10, 113); }
MPT_HD uint32_t mpti_bf16_stochastic(uint32_t u, uint32_t r) { return mpti_stochastic_16(u, r, 7, 1); }
MPT_HD uint32_t mpti_e4m3_stochastic(uint32_t u, uint32_t r) { return mpti_stochastic_8(u, r, 3, 121, 127); }
MPT_HD uint32_t mpti_e5m2_stochastic(uint32_t u, uint32_t r) { return mpti_stochastic_8(u, r, 2, 113, 124); }

/* ---- between double and float ---- */

/* A double rounded to a float pattern: if `odd` is 0, to nearest, ties to even; else to odd: truncated, with
 * the last bit set if anything was cut off. This bit keeps ties apart from their neighbours, so rounding the
 * float to 22 bits or fewer equals one rounding of the double. Overflow to odd gives the largest float.
 *
 *   f64   s eeeeeeeeeee mmmmmmmmmmmmmmmmmmmmmmm mmm...mmm
 *   f32   s    eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm|<- 29 bits dropped, more for a subnormal float */
MPT_HD uint32_t mpti_f32_drop(uint64_t sig, int drop, int odd)
{
    if (odd)
        return (uint32_t)(sig >> drop) | (uint32_t)((sig & ((MPTI_ONE << drop) - 1u)) != 0u);
    return (uint32_t)mpti_shift_rne64(sig, drop);
}

MPT_HD uint32_t mpti_f32_narrow(uint64_t u, int odd)
{
    const uint64_t hidden = MPTI_ONE << 52, a = u & ~(MPTI_ONE << 63);
    const uint32_t sign = (uint32_t)(u >> 32) & 0x80000000u;
    if (MPTI_LIKELY(a - 897u * hidden < 254u * hidden))         /* normal in float */
        return sign | mpti_f32_drop(a - 896u * hidden, 29, odd);
    if (a > 0x7ffu * hidden)
        return sign | 0x7fc00000u | ((uint32_t)(a >> 29) & 0x7fffffu);
    if (a >= 1151u * hidden)
        return sign | (odd && a < 0x7ffu * hidden ? 0x7f7fffffu : 0x7f800000u);
    if (!a)
        return sign;
    {   /* subnormal in float: the hidden bit is shifted too; 54 dropped bits leave 0, or 1 to odd */
        const int below = 897 - (int)(a >> 52);
        return sign | mpti_f32_drop((a & (hidden - 1u)) | hidden, below < 25 ? 29 + below : 54, odd);
    }
}

MPT_HD uint32_t mpti_f32_from_f64(uint64_t u) { return mpti_f32_narrow(u, 0); }
MPT_HD uint32_t mpti_f32_odd_from_f64(uint64_t u) { return mpti_f32_narrow(u, 1); }

/* A double to an f16 code: directly where it is normal in f16, 1.4 times as fast; else through a float. */
MPT_HD uint16_t mpti_f16_from_f64(uint64_t u)
{
    const uint64_t a = u & ~(MPTI_ONE << 63), normal = a - ((uint64_t)1009 << 52);
    if (MPTI_LIKELY(normal < (uint64_t)30 << 52))
        return (uint16_t)((u >> 48 & 0x8000u) | mpti_shift_rne64(normal + (MPTI_ONE << 52), 42));
    return mpti_f16_encode(mpti_f32_odd_from_f64(u));
}
MPT_HD uint16_t mpti_bf16_from_f64(uint64_t u) { return mpti_bf16_encode(mpti_f32_odd_from_f64(u)); }
MPT_HD uint8_t mpti_e4m3_from_f64(uint64_t u) { return mpti_e4m3_encode(mpti_f32_odd_from_f64(u)); }
MPT_HD uint8_t mpti_e5m2_from_f64(uint64_t u) { return mpti_e5m2_encode(mpti_f32_odd_from_f64(u)); }

/* f32 pattern -> f64 pattern. Exact, except that a signaling NaN becomes quiet. */
MPT_HD uint64_t mpti_f64_widen(uint32_t u)
{
    const uint64_t sign = (uint64_t)(u & 0x80000000u) << 32;
    const uint32_t a = u & 0x7fffffffu;
    if (MPTI_LIKELY(a - 0x800000u < 0x7f000000u))               /* normal */
        return sign | (((uint64_t)a << 29) + ((uint64_t)896 << 52));
    if (a >= 0x7f800000u)
        return sign | (uint64_t)0x7ff << 52 | (uint64_t)(a & 0x7fffffu) << 29 |
               (uint64_t)(a > 0x7f800000u) << 51;
    if (!a)
        return sign;
    {   /* subnormal: the highest one bit becomes the hidden bit */
        const int up = mpti_clz32(a) - 8;
        return sign | ((uint64_t)(897 - up) << 52) | (((uint64_t)a << (29 + up)) & ((MPTI_ONE << 52) - 1u));
    }
}

/* ---- conversions of one value ---- */

#define MPTI_FROM(type, name, number, code)                                                          \
    MPT_HD type name(number x)                                                                       \
    {                                                                                                \
        const type r = {code};                                                                       \
        return r;                                                                                    \
    }
#define MPTI_CONVERSIONS(T)                                                                          \
    MPTI_FROM(mpt_##T, mpt_##T##_from_f32, float, mpti_##T##_encode(mpti_f32_bits(x)))               \
    MPTI_FROM(mpt_##T, mpt_##T##_from_f64, double, mpti_##T##_from_f64(mpti_f64_bits(x)))            \
    MPT_HD float mpt_f32_from_##T(mpt_##T x) { return mpti_f32_make(mpti_##T##_decode(x.bits)); }    \
    MPT_HD double mpt_f64_from_##T(mpt_##T x)                                                        \
    {                                                                                                \
        return mpti_f64_make(mpti_f64_widen(mpti_##T##_decode(x.bits)));                             \
    }
MPTI_CONVERSIONS(f16)
MPTI_CONVERSIONS(bf16)
MPTI_CONVERSIONS(e4m3)
MPTI_CONVERSIONS(e5m2)
MPTI_FROM(mpt_e4m3, mpt_e4m3_from_f32_sat, float, (uint8_t)mpti_fp8_code(mpti_f32_bits(x), 0, 1))
MPTI_FROM(mpt_e5m2, mpt_e5m2_from_f32_sat, float, (uint8_t)mpti_fp8_code(mpti_f32_bits(x), 1, 1))

/* Both 16-bit formats are sign-magnitude codes that differ only in the number of mantissa bits. */
MPT_HD uint16_t mpti_next_up16(uint16_t code, int mbits)
{
    const unsigned a = code & 0x7fffu, inf = 0x7fffu >> mbits << mbits;
    if (a > inf)
        return (uint16_t)(code | (1u << (mbits - 1)));
    if (!a)
        return 1u;                          /* both zeros go up to the least subnormal */
    return (uint16_t)(code & 0x8000u ? code - 1u : code + (unsigned)(a < inf));
}

/* nextDown(x) = -nextUp(-x) */
#define MPTI_NEIGHBOURS(T, M)                                                                        \
    MPT_HD mpt_##T mpt_##T##_next(mpt_##T x, int up)                                                 \
    {                                                                                                \
        const unsigned sign = up ? 0u : 0x8000u;                                                     \
        x.bits = (uint16_t)(mpti_next_up16((uint16_t)(x.bits ^ sign), M) ^ sign);                    \
        return x;                                                                                    \
    }
MPTI_NEIGHBOURS(f16, 10)
MPTI_NEIGHBOURS(bf16, 7)

/* ---- random bits ---- */

/* The upper 32 bits of a * b. nvcc makes too many instructions of a 64-bit product. */
MPT_HD uint32_t mpti_upper_product(uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    return __umulhi(a, b);
#else
    return (uint32_t)((uint64_t)a * b >> 32);
#endif
}

MPT_HD mpt_philox_words mpt_philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key)
{
    uint32_t         k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    mpt_philox_words r;
    int              i;
    for (i = 0; i < 10; i++) {
        const uint32_t m0 = 0xd2511f53u, m1 = 0xcd9e8d57u, old = c0;
        c0 = mpti_upper_product(m1, c2) ^ c1 ^ k0;
        c1 = m1 * c2;
        c2 = mpti_upper_product(m0, old) ^ c3 ^ k1;
        c3 = m0 * old;
        k0 += 0x9e3779b9u;      /* fractional parts of the golden ratio and sqrt(3) */
        k1 += 0xbb67ae85u;
    }
    r.word[0] = c0, r.word[1] = c1, r.word[2] = c2, r.word[3] = c3;
    return r;
}

/* Elements i and i + 4 of each eight share a random word; the second one takes it with its halves swapped. */
MPT_HD uint32_t mpti_swap_halves(uint32_t word) { return word << 16 | word >> 16; }

MPT_HD uint64_t mpti_philox_key(uint64_t seed, uint64_t step)
{
    return seed + (step >> 32) * (uint64_t)0x9e3779b97f4a7c15u;
}

MPT_HD uint32_t mpt_philox(uint64_t seed, uint32_t stream, uint64_t step, uint64_t element)
{
    const uint64_t         block = element >> 3;
    const mpt_philox_words r = mpt_philox4x32((uint32_t)block, (uint32_t)(block >> 32), stream,
                                              (uint32_t)step, mpti_philox_key(seed, step));
    return element & 4u ? mpti_swap_halves(r.word[element & 3u]) : r.word[element & 3u];
}

/* ---- text of bounded length ---- */

/* Text under construction: `buf` receives what fits, `length` counts the whole text. */
typedef struct mpti_string { char *buf; size_t cap, length; } mpti_string;

static inline mpti_string mpti_string_in(char *buf, size_t cap)
{
    const mpti_string s = {buf, cap, 0};
    return s;
}

MPTI_NOINLINE MPTI_UNUSED static void mpti_add_char(mpti_string *s, char c)
{
    if (s->length + 1 < s->cap)
        s->buf[s->length] = c;
    s->length++;
}

MPTI_NOINLINE MPTI_UNUSED static void mpti_add_text(mpti_string *s, const char *text)
{
    for (; *text; text++)
        mpti_add_char(s, *text);
}

MPTI_NOINLINE MPTI_UNUSED static void mpti_add_count(mpti_string *s, uint64_t x)
{
    char digits[21];
    int  at = 20;
    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + (int)(x % 10u));
    while (x /= 10u);
    mpti_add_text(s, digits + at);
}

MPTI_NOINLINE MPTI_UNUSED static void mpti_add_int(mpti_string *s, int x)
{
    mpti_add_text(s, x < 0 ? "-" : "");
    mpti_add_count(s, x < 0 ? 0u - (uint64_t)x : (uint64_t)x);
}

MPTI_NOINLINE MPTI_UNUSED static size_t mpti_string_end(mpti_string *s)
{
    if (s->cap)
        s->buf[s->length < s->cap ? s->length : s->cap - 1] = '\0';
    return s->length;
}

/* Defines `function`: the text of x in `rows` (the X-macro of an enumeration from 0 on), or `unknown`. */
#define MPTI_ROW_TEXT(id, text) text,
#define MPTI_TEXT_OF_ROW(function, type, rows, unknown)                                 \
    const char *function(type x)                                                        \
    {                                                                                   \
        static const char *const texts[] = {rows(MPTI_ROW_TEXT)};                       \
        return (size_t)x < sizeof texts / sizeof *texts ? texts[x] : unknown;           \
    }

MPT_HD int mpti_bad_opts(const mpt_opts *o)
{
    return (unsigned)o->rounding >= (unsigned)MPT_ROUNDING_COUNT ||
           (unsigned)o->overflow > (unsigned)MPT_OVERFLOW_NAN ||
           (unsigned)o->nan > (unsigned)MPT_NAN_CANONICAL ||
           (unsigned)o->tininess > (unsigned)MPT_TININESS_BEFORE || o->flush > 3u;
}

/* ---- blocks, on host and device ---- */

/* Which options are not the defaults. Tininess is not among them: it matters to flags only. */
enum { MPTI_SET_ROUNDING = 1, MPTI_SET_OVERFLOW = 2, MPTI_SET_NAN = 4, MPTI_SET_FLUSH = 8 };
MPT_HD int mpti_opts_set(const mpt_opts *o)
{
    return !o ? 0 : (o->rounding != MPT_RND_NEAREST_EVEN) | (o->overflow != MPT_OVERFLOW_IEEE) << 1 |
                    (o->nan != MPT_NAN_KEEP) << 2 | (o->flush != 0u) << 3 |
                    ((unsigned)o->tininess > (unsigned)MPT_TININESS_BEFORE) << 4;
}

#ifndef MPT_NO_BLOCKS
/* The constants of a call. Tensor scale: tensor_sig * 2^tensor_exp. The device reads none of the pointers. */
typedef struct mpti_blocks {
    const mpt_block_info  *block;
    const mpt_format_info *element, *scale;
    mpt_block_scaling      scaling;
    int                    packed, plain, powers;   /* plain: default opts; powers: scales are 2^k */
    int                    m, emax, sign_at, tensor_exp;    /* elements: mantissa bits, emax, sign's bit */
    uint32_t               least, most, tensor_sig; /* elements: emin as float's field, largest code */
    mpt_opts               opts;            /* for the elements */
} mpti_blocks;

/* sig * 2^exp of a positive finite float, sig in [2^23, 2^24). */
MPT_HD uint32_t mpti_f32_split(uint32_t a, int *exp)
{
    const int up = a >> 23 ? 0 : mpti_clz32(a) - 8;
    *exp = (int)(a >> 23 ? a >> 23 : 1u) - 150 - up;
    return a >> 23 ? (a & 0x7fffffu) | 0x800000u : a << up;
}

MPTI_NOINLINE MPTI_UNUSED static mpt_status
mpti_blocks_init(mpti_blocks *b, const mpt_block_info *block, const mpt_format_info *element,
                 const mpt_format_info *scale, const mpt_block_opts *o)
{
    uint32_t t = 0x3f800000u;
    memset(b, 0, sizeof *b);
    if (o && ((unsigned)o->scaling > (unsigned)MPT_SCALE_ROUND || mpti_bad_opts(&o->element)))
        return MPT_E_ARG;
    b->block = block, b->element = element, b->scale = scale;
    b->powers = block->scale == MPT_E8M0;
    b->m = element->mantissa_bits, b->emax = element->emax, b->sign_at = element->bits - 1;
    b->least = (uint32_t)(element->emin + 127), b->most = (uint32_t)element->max_code;
    b->plain = !o || !mpti_opts_set(&o->element);
    if (o) {
        b->scaling = o->scaling;
        b->packed = o->packed;
        b->opts = o->element;
        if (mpti_f32_bits(o->tensor_scale) & 0x7fffffffu)
            t = mpti_f32_bits(o->tensor_scale);
    }
    b->opts.overflow = MPT_OVERFLOW_SATURATE;
    if (b->scaling == MPT_SCALE_DEFAULT)
        b->scaling = b->powers ? MPT_SCALE_FLOOR : MPT_SCALE_ROUND;
    if (t >= 0x7f800000u || (b->powers && t != 0x3f800000u))    /* Inf, NaN, or with a sign; not 1 */
        return MPT_E_ARG;
    b->tensor_sig = mpti_f32_split(t, &b->tensor_exp);
    return MPT_OK;
}

/* The scale code of a block whose largest magnitude is amax, a finite float pattern. */
MPT_HD uint32_t mpti_block_scale(const mpti_blocks *b, uint32_t amax)
{
    const int m = b->m, up = mpti_clz32(3u * b->tensor_sig) - 6;
    int       exp = 0, top, drop;
    uint32_t  sig = amax ? mpti_f32_split(amax, &exp) : 0u, den, q, whole, rest;
    if (!sig)
        return 0u;
    if (b->powers) {
        if (b->scaling == MPT_SCALE_ROUND)
            sig = mpti_shift_rne32(sig, 23 - m) << (23 - m);
        exp += 23 + (int)(sig >> 24) - b->emax;
        if (b->scaling == MPT_SCALE_CEIL && sig > ((b->most & ((1u << m) - 1u)) | 1u << m) << (23 - m))
            exp++;
        return (uint32_t)(exp < -127 ? -127 : exp > 127 ? 127 : exp) + 127u;
    }
    den = 3u * b->tensor_sig << up;     /* in [2^25, 2^26); q: 6 bits or more of amax / (6 * tensor scale) */
    q = (sig << 8) / den << 1 | (uint32_t)((sig << 8) % den != 0u);
    exp += up - 10 - b->tensor_exp;
    top = exp + 31 - mpti_clz32(q) > -6 ? exp + 31 - mpti_clz32(q) : -6;
    drop = top - exp < 23 ? top - 3 - exp : 20;         /* 20: all bits are dropped */
    whole = q >> drop, rest = q - (whole << drop);
    whole += (uint32_t)(b->scaling == MPT_SCALE_CEIL    ? rest != 0u
                        : b->scaling == MPT_SCALE_ROUND ? 2u * rest + (whole & 1u) > 1u << drop : 0);
    whole += (uint32_t)(top + 6) << 3;
    return whole > 0x7eu ? 0x7eu : whole ? whole : 1u;
}

/* limit[i] is the pattern of the least float that rounds to E2M1 code i + 1, not i: the middle of the two
 * codes, times the block's scale and the tensor scale, rounded up to a float; a tie goes to the even code. */
MPT_HD void mpti_e2m1_limits(const mpti_blocks *b, uint32_t scale, uint32_t limit[7])
{
    const uint32_t field = scale >> 3, sig = ((scale & 7u) | (uint32_t)(field != 0u) << 3) * b->tensor_sig;
    int            i;
    for (i = 0; i < 7; i++) {           /* the middles are 1 3 5 7 10 14 20 quarters: odd * 2^k */
        const uint32_t middle = sig * (0x5757531u >> 4 * i & 15u);
        const int      exp = b->tensor_exp + (int)(field + !field + (0x2110000u >> 4 * i & 15u)) - 12;
        const int      top = 8 - mpti_clz32(middle), down = exp + top < -149 ? -149 - exp : top;
        const uint32_t cut = down < 31 ? (uint32_t)down : 31u, whole = middle >> cut;
        const uint32_t at = (uint32_t)(exp + down + 149) << 23, up = i % 2 == 0 || whole << cut != middle;
        limit[i] = at + whole + up < 0x7f800000u ? at + whole + up : 0x7f800000u;
    }
}

/* By halves: a GPU selects a limit in one instruction; seven comparisons take it a fifth longer (model). */
MPT_HD uint32_t mpti_e2m1_code(const uint32_t limit[7], uint32_t u)
{
    const uint32_t a = u & 0x7fffffffu, four = a >= limit[3] ? 4u : 0u;
    const uint32_t two = a >= (four ? limit[5] : limit[1]) ? 2u : 0u;
    const uint32_t low = two ? limit[2] : limit[0], high = two ? limit[6] : limit[4];
    return (u >> 28 & 8u) + four + two + (a >= (four ? high : low) ? 1u : 0u);
}
#endif /* MPT_NO_BLOCKS */

/* ---- rounding ---- */

/* Whether any of the last `shift` bits of sig is 1. */
MPT_HD int mpti_drops(uint64_t sig, int shift)
{
    return (shift > 63 ? sig : sig & ((MPTI_ONE << shift) - 1u)) != 0u;
}

/* sig >> shift for shift >= 0; the last bit is also set if any dropped bit is 1 (a sticky bit). */
MPT_HD uint64_t mpti_shift_jam(uint64_t sig, int shift)
{
    return (shift > 63 ? 0u : sig >> shift) | (uint64_t)mpti_drops(sig, shift);
}

/* Does dropping the last `shift` bits (1..63) of sig round the magnitude up? `odd` is the last bit kept. */
MPT_HD int mpti_drop_goes_up(mpt_rounding rounding, uint32_t random, unsigned sign, unsigned odd,
                             uint64_t sig, int shift)
{
    const uint64_t rest = sig & ((MPTI_ONE << shift) - 1u), half = MPTI_ONE << (shift - 1);
    if (!rest)
        return 0;
    switch (rounding) {
    case MPT_RND_NEAREST_AWAY: return rest >= half;
    case MPT_RND_TOWARD_ZERO:  return 0;
    case MPT_RND_UP:           return !sign;
    case MPT_RND_DOWN:         return sign != 0u;
    case MPT_RND_ODD:          return !odd;
    case MPT_RND_STOCHASTIC:   return random < (shift > 32 ? rest >> (shift - 32) : rest << (32 - shift));
    default:                   return rest > half || (rest == half && odd);     /* nearest-even */
    }
}

/* Whether a finite number that overflows becomes Inf, not the largest finite number. */
MPT_HD int mpti_overflows_to_inf(mpt_rounding rounding, int negative)
{
    return rounding == MPT_RND_NEAREST_EVEN || rounding == MPT_RND_NEAREST_AWAY ||
           rounding == (negative ? MPT_RND_DOWN : MPT_RND_UP);
}

/* ---- arithmetic ---- */
#ifndef MPT_NO_ARITHMETIC
typedef struct mpti_num { uint64_t sig; int exp; unsigned sign; } mpti_num; /* (-1)^sign * sig * 2^exp */

/* The environment of an operation: the format, the options, and the exception flags raised so far. */
typedef struct mpti_env {
    int          mbits;             /* mantissa bits: f16 10, bf16 7; the exponent has 15 - mbits */
    mpt_rounding rounding;
    int          overflow, canonical, before;       /* from mpt_opts: overflow, nan, tininess */
    unsigned     flush;
    uint32_t     random;
    unsigned     flags;
} mpti_env;

MPT_HD mpti_env mpti_env_make(int mbits, const mpt_opts *o)
{
    const mpti_env e = {mbits, o ? o->rounding : MPT_RND_NEAREST_EVEN,
                        o ? (int)o->overflow : (int)MPT_OVERFLOW_IEEE, o && o->nan == MPT_NAN_CANONICAL,
                        o && o->tininess == MPT_TININESS_BEFORE, o ? o->flush : 0u, o ? o->random : 0u, 0u};
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

MPT_HD int mpti_inf_times_0(const mpti_env *e, unsigned a, unsigned b)
{
    return (mpti_is_inf16(e, a) && !(b & 0x7fffu)) || (mpti_is_inf16(e, b) && !(a & 0x7fffu));
}

/* Is an operand NaN? Then mpti_pick_nan16 gives the result of any operation, and the functions mpti_a_* below
 * are not called. With fewer than three operands pass one of them again. */
MPT_HD int mpti_any_nan16(const mpti_env *e, unsigned a, unsigned b, unsigned c)
{
    return mpti_is_nan16(e, a) || mpti_is_nan16(e, b) || mpti_is_nan16(e, c);
}

MPT_HD unsigned mpti_pick_nan16(mpti_env *e, unsigned a, unsigned b, unsigned c)
{
    if (mpti_is_snan16(e, a) || mpti_is_snan16(e, b) || mpti_is_snan16(e, c) || mpti_inf_times_0(e, a, b))
        e->flags |= MPT_FLAG_INVALID;       /* Inf * 0 is invalid even if a quiet NaN is added */
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

/* sig >> shift, rounded. */
MPT_HD uint64_t mpti_shift16(const mpti_env *e, unsigned sign, uint64_t sig, int shift)
{
    const uint64_t kept = sig >> shift;
    return kept + (uint64_t)mpti_drop_goes_up(e->rounding, e->random, sign, (unsigned)kept & 1u, sig, shift);
}

/* Arithmetic rounds only here. x.sig is not 0; if inexact, it has mbits + 3 bits or more, the last sticky. */
MPT_HD unsigned mpti_round16(mpti_env *e, mpti_num x)
{
    const int least = mpti_least_exp16(e), up = mpti_clz64(x.sig);
    int       exp = x.exp - up, shift = 63 - e->mbits, tiny = 0;
    uint64_t  sig = x.sig << up;
    unsigned  code;
    if (exp + shift < least) {          /* subnormal, or tiny but perhaps rounded up to normal */
        const int deeper = least - exp - shift;
        tiny = e->before || deeper > 1 || mpti_shift16(e, x.sign, sig, shift) < (uint64_t)2 << e->mbits;
        shift += deeper;
        if (shift > 63) {
            sig = mpti_shift_jam(sig, shift - 63);
            shift = 63;
        }
        exp = least - shift;
    }
    code = ((unsigned)(exp + shift - least) << e->mbits) + (unsigned)mpti_shift16(e, x.sign, sig, shift);
    if (code >= mpti_inf16(e)) {        /* exponents up to 2^21 fit a code here */
        e->flags |= MPT_FLAG_OVERFLOW | MPT_FLAG_INEXACT;
        code = mpti_inf16(e) - (unsigned)!mpti_overflows_to_inf(e->rounding, x.sign != 0u);
        code = e->overflow == (int)MPT_OVERFLOW_NAN ? mpti_nan16(e) : code;
    } else if (sig << (64 - shift))
        e->flags |= MPT_FLAG_INEXACT | (tiny ? MPT_FLAG_UNDERFLOW : 0u);
    return x.sign << 15 | code;
}

/* x + y, neither zero, each sig of 22 bits or fewer. Bits more than 38 places below the last bit of the
 * operand with the larger exp only set a sticky bit: enough for every direction and for 32 random bits. */
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
    if (mpti_is_inf16(e, a) && mpti_is_inf16(e, b) && a != b)
        return mpti_invalid16(e);
    if (mpti_is_inf16(e, a) || mpti_is_inf16(e, b))
        return mpti_is_inf16(e, a) ? a : b;
    return mpti_sum16(e, mpti_unpack16(e, a), mpti_unpack16(e, b));
}

MPT_HD unsigned mpti_a_sub(mpti_env *e, unsigned a, unsigned b) { return mpti_a_add(e, a, b ^ 0x8000u); }

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
    const mpti_num product = mpti_product(mpti_unpack16(e, a), mpti_unpack16(e, b));
    if (mpti_is_inf16(e, a) || mpti_is_inf16(e, b))
        return mpti_inf_times_0(e, a, b) ? mpti_invalid16(e) : sign | mpti_inf16(e);
    return product.sig ? mpti_round16(e, product) : sign;
}

MPT_HD unsigned mpti_a_div(mpti_env *e, unsigned a, unsigned b)
{
    const unsigned sign = (a ^ b) & 0x8000u;
    mpti_num       x = mpti_unpack16(e, a), y = mpti_unpack16(e, b);
    int            up;
    if (mpti_is_inf16(e, a))
        return mpti_is_inf16(e, b) ? mpti_invalid16(e) : sign | mpti_inf16(e);
    if (mpti_is_inf16(e, b))
        return sign;
    if (!y.sig) {
        if (!x.sig)
            return mpti_invalid16(e);
        e->flags |= MPT_FLAG_DIVBYZERO;
        return sign | mpti_inf16(e);
    }
    if (!x.sig)
        return sign;
    up = mpti_clz64(x.sig);             /* the quotient gets 52 bits or more, and a sticky bit */
    x.sig <<= up;
    x.exp -= y.exp + up;
    x.sign ^= y.sign;
    x.sig = x.sig / y.sig | (uint64_t)(x.sig % y.sig != 0u);
    return mpti_round16(e, x);
}

MPT_HD unsigned mpti_a_fma(mpti_env *e, unsigned a, unsigned b, unsigned c)
{
    const unsigned sign = (a ^ b) & 0x8000u;
    const int      inf = mpti_is_inf16(e, a) || mpti_is_inf16(e, b);
    if (mpti_inf_times_0(e, a, b) || (inf && mpti_is_inf16(e, c) && (c & 0x8000u) != sign))
        return mpti_invalid16(e);
    if (inf)
        return sign | mpti_inf16(e);
    if (mpti_is_inf16(e, c))
        return c;
    return mpti_sum16(e, mpti_product(mpti_unpack16(e, a), mpti_unpack16(e, b)), mpti_unpack16(e, c));
}

/* The root gets 13 bits, one per turn, and a sticky bit; for 32 random bits 43, which is slower. */
MPT_HD unsigned mpti_a_sqrt(mpti_env *e, unsigned a)
{
    const int last = e->rounding == MPT_RND_STOCHASTIC ? 18 : 48;
    mpti_num  x = mpti_unpack16(e, a);
    uint64_t  rest, bit;
    int       up;
    if (!x.sig)
        return a;
    if (x.sign)
        return mpti_invalid16(e);
    if (mpti_is_inf16(e, a))
        return a;
    up = mpti_clz64(x.sig) - 2;
    up -= (x.exp - up) & 1;             /* so that the remaining exponent is even */
    rest = x.sig << up;
    x.sig = 0u;
    for (bit = MPTI_ONE << 60; bit >> last; bit >>= 1, rest <<= 1)
        if (rest >= 2u * x.sig + bit) {
            rest -= 2u * x.sig + bit;
            x.sig += bit;
        }
    x.sig |= (uint64_t)(rest != 0u);
    x.exp = (x.exp - up - 60) / 2;
    return mpti_round16(e, x);
}

/* x - n * y, where n is the integer nearest to x / y, ties to even: always exact. */
MPT_HD unsigned mpti_a_rem(mpti_env *e, unsigned a, unsigned b)
{
    mpti_num x = mpti_unpack16(e, a), y = mpti_unpack16(e, b);
    uint64_t quotient;
    int      gap = x.exp - y.exp;
    if (mpti_is_inf16(e, a) || !y.sig)
        return mpti_invalid16(e);
    if (mpti_is_inf16(e, b) || !x.sig || gap < -13)
        return a;                       /* |x| is below |y| / 2 */
    if (gap < 0) {
        y.sig <<= -gap;
        y.exp += gap;
        gap = 0;
    }
    quotient = x.sig / y.sig;
    x.sig %= y.sig;
    while (gap > 0) {                   /* long division, 32 bits per turn */
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

MPT_HD unsigned mpti_a_to_integral(mpti_env *e, unsigned a)
{
    mpti_num x = mpti_unpack16(e, a);
    int      shift;
    if (x.exp >= 0 || !x.sig)
        return a;
    shift = x.exp < -63 ? 63 : -x.exp;  /* below 2^-52, no random word rounds up */
    if (mpti_drops(x.sig, shift))
        e->flags |= MPT_FLAG_INEXACT;
    x.sig = mpti_shift16(e, x.sign, x.sig, shift);
    x.exp = 0;
    return x.sig ? mpti_round16(e, x) : x.sign << 15;
}

MPT_HD unsigned mpti_a_scaleb(mpti_env *e, unsigned a, int n)
{
    mpti_num x = mpti_unpack16(e, a);
    if (mpti_is_inf16(e, a) || !x.sig)
        return a;
    x.exp += n > 1000 ? 1000 : n < -1000 ? -1000 : n;   /* more than f16 or bf16 span */
    return mpti_round16(e, x);
}

MPT_HD unsigned mpti_a_logb(mpti_env *e, unsigned a)
{
    mpti_num x = mpti_unpack16(e, a);
    int      exponent;
    if (mpti_is_inf16(e, a))
        return mpti_inf16(e);
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

/* A rank that orders codes as totalOrder does: by value, -0 below +0, NaNs beyond the infinities. */
MPT_HD int mpti_rank16(unsigned code) { return code & 0x8000u ? ~(int)(code & 0x7fffu) : (int)code; }

MPT_HD mpt_relation mpti_relation16(mpti_env *e, unsigned a, unsigned b, int signaling)
{
    if (mpti_is_nan16(e, a) || mpti_is_nan16(e, b)) {
        if (signaling || mpti_is_snan16(e, a) || mpti_is_snan16(e, b))
            e->flags |= MPT_FLAG_INVALID;
        return MPT_UNORDERED;
    }
    if (a == b || !((a | b) & 0x7fffu))
        return MPT_EQUAL;
    return mpti_rank16(a) < mpti_rank16(b) ? MPT_LESS : MPT_GREATER;
}

MPT_HD unsigned mpti_extreme16(mpti_env *e, unsigned a, unsigned b, unsigned kind)
{
    const unsigned size_a = a & 0x7fffu, size_b = b & 0x7fffu;
    const int      nan_a = mpti_is_nan16(e, a), nan_b = mpti_is_nan16(e, b);
    const int      least = !(kind & MPT_EXTREME_LARGEST);
    if (nan_a || nan_b) {
        const unsigned nan = mpti_pick_nan16(e, a, b, b);
        return !(kind & MPT_EXTREME_NUMBER) || (nan_a && nan_b) ? nan : nan_a ? b : a;
    }
    if (kind & MPT_EXTREME_MAGNITUDE && size_a != size_b)
        return (size_a < size_b) == least ? a : b;
    return (mpti_rank16(a) < mpti_rank16(b)) == least ? a : b;
}

/* Apply the options to an operand, and to the result of an operation. */
MPT_HD unsigned mpti_operand16(const mpti_env *e, unsigned a)
{
    return e->flush & MPT_FLUSH_INPUTS && !((a & 0x7fffu) >> e->mbits) ? a & 0x8000u : a;
}

MPT_HD unsigned mpti_result16(mpti_env *e, unsigned r)
{
    if (e->canonical && mpti_is_nan16(e, r))
        return mpti_nan16(e);
    if (e->overflow == (int)MPT_OVERFLOW_SATURATE && mpti_is_inf16(e, r)) {
        e->flags |= MPT_FLAG_OVERFLOW | MPT_FLAG_INEXACT;
        return r - 1u;
    }
    if (e->flush & MPT_FLUSH_RESULTS && r & 0x7fffu && !((r & 0x7fffu) >> e->mbits)) {
        e->flags |= MPT_FLAG_UNDERFLOW | MPT_FLAG_INEXACT;
        return r & 0x8000u;
    }
    return r;
}

/* The typed functions mpt_T_op and mpt_T_op_with of k operands; k = N: one operand and an int n. P are their
 * parameters, A the arguments, B the operands as three codes. */
#define MPTI_P1(T) mpt_##T a
#define MPTI_P2(T) mpt_##T a, mpt_##T b
#define MPTI_P3(T) mpt_##T a, mpt_##T b, mpt_##T c
#define MPTI_PN(T) mpt_##T a, int n
#define MPTI_A1 mpti_operand16(&e, a.bits)
#define MPTI_A2 MPTI_A1, mpti_operand16(&e, b.bits)
#define MPTI_A3 MPTI_A2, mpti_operand16(&e, c.bits)
#define MPTI_AN MPTI_A1, n
#define MPTI_B1 a.bits, a.bits, a.bits
#define MPTI_B2 a.bits, b.bits, b.bits
#define MPTI_B3 MPTI_A3             /* a and b flushed: Inf * 0 raises a flag even if c is NaN */
#define MPTI_BN MPTI_B1
#define MPTI_APPLY(op, A, B)                                                                         \
    (MPTI_LIKELY(!mpti_any_nan16(&e, B)) ? mpti_a_##op(&e, A) : mpti_pick_nan16(&e, B))
#define MPTI_OPERATION(T, M, k, op)                                                                  \
    MPT_HD mpt_##T mpt_##T##_##op(MPTI_P##k(T))                                                      \
    {                                                                                                \
        mpti_env      e = mpti_env_make(M, (const mpt_opts *)0);                                     \
        const mpt_##T r = {(uint16_t)MPTI_APPLY(op, MPTI_A##k, MPTI_B##k)};                          \
        return r;                                                                                    \
    }                                                                                                \
    MPT_HD mpt_##T mpt_##T##_##op##_with(MPTI_P##k(T), const mpt_opts *opts, unsigned *flags)        \
    {                                                                                                \
        mpti_env e = mpti_env_make(M, opts);                                                         \
        mpt_##T  r;                                                                                  \
        if (opts && mpti_bad_opts(opts))                                                             \
            r.bits = (uint16_t)mpti_invalid16(&e);                                                   \
        else                                                                                         \
            r.bits = (uint16_t)mpti_result16(&e, MPTI_APPLY(op, MPTI_A##k, MPTI_B##k));              \
        if (flags)                                                                                   \
            *flags |= e.flags;                                                                       \
        return r;                                                                                    \
    }

/* The functions that never round. MPTI_RELATION: a test of a relation; MPTI_OF_BITS: a number by its bits. */
#define MPTI_RELATION(T, name, test)                                                                 \
    MPT_HD int mpt_##T##_##name(mpt_##T a, mpt_##T b)                                                \
    {                                                                                                \
        return mpt_##T##_compare(a, b, 0, (unsigned *)0) test;                                       \
    }
#define MPTI_OF_BITS(T, k, name, result)                                                             \
    MPT_HD mpt_##T mpt_##T##_##name(MPTI_P##k(T))                                                    \
    {                                                                                                \
        a.bits = (uint16_t)(result);                                                                 \
        return a;                                                                                    \
    }
#define MPTI_COMPARISONS(T, M)                                                                       \
    MPT_HD mpt_relation mpt_##T##_compare(mpt_##T a, mpt_##T b, int signaling, unsigned *flags)      \
    {                                                                                                \
        mpti_env           e = mpti_env_make(M, (const mpt_opts *)0);                                \
        const mpt_relation r = mpti_relation16(&e, a.bits, b.bits, signaling);                       \
        if (flags)                                                                                   \
            *flags |= e.flags;                                                                       \
        return r;                                                                                    \
    }                                                                                                \
    MPTI_RELATION(T, eq, == MPT_EQUAL)                                                               \
    MPTI_RELATION(T, lt, == MPT_LESS)                                                                \
    MPTI_RELATION(T, le, <= MPT_EQUAL)                                                               \
    MPT_HD mpt_##T mpt_##T##_extreme(mpt_##T a, mpt_##T b, unsigned kind, unsigned *flags)           \
    {                                                                                                \
        mpti_env e = mpti_env_make(M, (const mpt_opts *)0);                                          \
        a.bits = (uint16_t)mpti_extreme16(&e, a.bits, b.bits, kind);                                 \
        if (flags)                                                                                   \
            *flags |= e.flags;                                                                       \
        return a;                                                                                    \
    }                                                                                                \
    MPTI_OF_BITS(T, 2, minimum, mpt_##T##_extreme(a, b, 0u, (unsigned *)0).bits)                     \
    MPTI_OF_BITS(T, 2, maximum, mpt_##T##_extreme(a, b, MPT_EXTREME_LARGEST, (unsigned *)0).bits)    \
    MPT_HD int mpt_##T##_total_order(mpt_##T a, mpt_##T b)                                           \
    {                                                                                                \
        return mpti_rank16(a.bits) <= mpti_rank16(b.bits);                                           \
    }                                                                                                \
    MPTI_OF_BITS(T, 1, neg, a.bits ^ 0x8000u)                                                        \
    MPTI_OF_BITS(T, 1, abs, a.bits & 0x7fffu)                                                        \
    MPTI_OF_BITS(T, 2, copysign, (a.bits & 0x7fffu) | (b.bits & 0x8000u))

#define MPTI_ARITHMETIC(T, M)                                                                        \
    MPTI_OPERATION(T, M, 2, add) MPTI_OPERATION(T, M, 2, sub) MPTI_OPERATION(T, M, 2, mul)           \
    MPTI_OPERATION(T, M, 2, div) MPTI_OPERATION(T, M, 3, fma) MPTI_OPERATION(T, M, 1, sqrt)          \
    MPTI_OPERATION(T, M, 2, rem) MPTI_OPERATION(T, M, 1, to_integral)                                \
    MPTI_OPERATION(T, M, N, scaleb) MPTI_OPERATION(T, M, 1, logb) MPTI_COMPARISONS(T, M)
MPTI_ARITHMETIC(f16, 10)
MPTI_ARITHMETIC(bf16, 7)
#endif /* MPT_NO_ARITHMETIC */

#endif /* MPT_HALF_H */

#if defined(MPT_STATIC) && !defined(MPTI_STATIC_CHOSEN)
#error "define MPT_STATIC before the first include of any mpt header in this file"
#endif

/* Which headers this file implements. Where MPT_IMPLEMENTATION also implements mpt_half.h, the functions
 * of mpt_half.h are weak symbols, so that another file may implement it alone. Of what is private (mpti_)
 * only >>H11 and >>H12 are for other headers: static, >>H12 in each file that implements one of the two. */
#if (defined(MPT_IMPLEMENTATION) || defined(MPT_STATIC)) && !defined(MPT_HALF_IMPLEMENTATION)
#define MPT_HALF_IMPLEMENTATION
#if defined(MPTI_DEF_IS_PLAIN) && defined(__GNUC__) && (defined(__ELF__) || defined(__APPLE__))
#undef MPTI_DEF
#define MPTI_DEF MPT_DEF __attribute__((weak))
#endif
#endif
#ifndef MPTI_DEF
#define MPTI_DEF MPT_DEF
#endif

// >>H12 implementation: lanes ----------------------------------------------------------------------
/* What all vector code builds on: the choice of a path (the instruction set of a call), functions that load
 * each format as floats and store floats as each format, and the driver, which runs a kernel (the loop of one
 * operation) over arrays. A kernel takes whole groups of 64 elements; the driver takes care of the remainder,
 * of alignment to cache lines, and of arrays that are larger than the cache. */
#if (defined(MPT_HALF_IMPLEMENTATION) || defined(MPT_TRAIN_IMPLEMENTATION)) && !defined(MPTI_HALF_LANES)
#define MPTI_HALF_LANES

MPTI_UNUSED static const mpt_opts mpti_plain_opts =
    {MPT_RND_NEAREST_EVEN, MPT_OVERFLOW_IEEE, 0u, MPT_NAN_KEEP, MPT_TININESS_AFTER, 0u, NULL, 0u, 0u, 0u, 0u};

/* ---- the paths ---- */

/* Three compilers get the portable path only: tcc has no vector types, nvcc's host pass rejects target
 * attributes on them, and MSVC has no __builtin_cpu_supports. */
#if MPT_SIMD && (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__) && !defined(__CUDACC__)
#ifdef __SSE2__
#define MPTI_X86 1
#elif defined(__aarch64__) && !defined(__AARCH64EB__)
#define MPTI_ARM 1
#include <arm_neon.h>
#endif
#endif
#ifndef MPTI_X86
#define MPTI_X86 0
#endif
#ifndef MPTI_ARM
#define MPTI_ARM 0
#endif

/* Numbered as in MPT_SIMD; each path may use what the paths before it use. SSE2 is the baseline of x86-64.
 * AVX2 includes FMA and F16C: every processor with AVX2 has them, and clang 14's __builtin_cpu_supports knows
 * no "f16c". AVX512 is F, BW, DQ and VL. NEON stands for aarch64's half-precision instructions; it is taken
 * only while the control register (FPCR) is 0, as at the start of a program. */
enum { MPTI_PATH_PORTABLE, MPTI_PATH_SSE2 = 2, MPTI_PATH_NEON = 2, MPTI_PATH_AVX2 = 3, MPTI_PATH_AVX512 = 4 };

/* The highest path; tests define it as a variable. gcc for Windows, with stacks aligned to 16, gets SSE2. */
#ifndef MPTI_LAST_PATH
#if MPT_SIMD && defined(_WIN32) && !defined(__clang__)
#define MPTI_LAST_PATH MPTI_PATH_SSE2
#elif MPT_SIMD == 1
#define MPTI_LAST_PATH MPTI_PATH_AVX512
#else
#define MPTI_LAST_PATH MPT_SIMD
#endif
#endif

/* The floating-point control register: MXCSR on x86; FPCR on aarch64, where 0 means rounding to nearest and
 * no flushing, default NaN, alternative half precision or traps; 0 elsewhere. It changes unseen: volatile. */
#if MPTI_X86
static inline uint64_t mpti_control(void)
{
    unsigned r = 0u;                    /* for MemorySanitizer, which does not read assembly */
    __asm__ volatile("stmxcsr %0" : "=m"(r));
    return r;
}
static inline void mpti_control_set(uint64_t x)
{
    const unsigned r = (unsigned)x;
    __asm__ volatile("ldmxcsr %0" : : "m"(r));
}
enum { MPTI_CONTROL_NEAREST = 0x1f80, MPTI_CONTROL_DOWN = 0x3f80 };     /* no traps, no flushing */
static inline int mpti_no_traps(void) { return (mpti_control() & 0x1f80u) == 0x1f80u; }
static inline int mpti_control_is_plain(void) { return (mpti_control() & 0xffc0u) == MPTI_CONTROL_NEAREST; }
static inline int mpti_subnormals_count(void) { return !(mpti_control() & 0x8040u); }
#elif MPTI_ARM
static inline uint64_t mpti_control(void)
{
    uint64_t r;
    __asm__ volatile("mrs %0, fpcr" : "=r"(r));
    return r;
}
static inline void mpti_control_set(uint64_t r) { __asm__ volatile("msr fpcr, %0" : : "r"(r)); }
#else
static inline uint64_t mpti_control(void) { return 0u; }
static inline void mpti_control_set(uint64_t r) { (void)r; }
#endif

/* ---- many threads ---- */

/* MPTI_IN_PARTS splits work over n elements into parts. The size of a part follows from n and `least` alone:
 * `least`, doubled until there are at most MPTI_PARTS parts. Over array elements `least` is a multiple of the
 * sizes of tiles and blocks, or n for one part. A part is a call range(context, number, begin, end). It
 * touches nothing that another part writes, and stores its result by its number, for the caller to combine in
 * order. A single part runs on the calling thread. Where no pool is configured, MPTI_IN_PARTS is one call of
 * range and does not evaluate `least`. Returns the number of parts. */
typedef void mpti_range_fn(void *context, size_t part, size_t begin, size_t end);
#if defined(MPT_USE_OPENMP) && !defined(MPT_PARALLEL_FOR)
#ifndef _OPENMP
#error "MPT_USE_OPENMP needs the compiler's OpenMP: -fopenmp"
#endif
#include <omp.h>
/* Each thread gets neighbouring parts, so that it meets the same memory again in the next pass. */
MPTI_UNUSED static void mpti_openmp_for(size_t count, void (*body)(void *, size_t), void *context)
{
    const ptrdiff_t n = (ptrdiff_t)count;
    const int       alone = omp_in_parallel() || omp_get_max_threads() < 2;
    ptrdiff_t       i;
    _Pragma("omp parallel for schedule(static) if(!alone)")
    for (i = 0; i < n; i++)
        body(context, (size_t)i);
}
#define MPT_PARALLEL_FOR(count, body, context) mpti_openmp_for(count, body, context)
#endif
#ifdef MPT_PARALLEL_FOR
enum { MPTI_PARTS = 256 };
#ifndef MPTI_FAST_PART          /* tests define it as a variable: a power of two, at least 16384 */
#define MPTI_FAST_PART ((size_t)1 << 15)
#endif
#define MPTI_SLOW_PART (MPTI_FAST_PART / 16u)   /* for code that takes elements one by one */

typedef struct mpti_cut {
    mpti_range_fn *range;
    void          *context;
    size_t         n, part;
    uint64_t       control;     /* the calling thread's rounding direction and flushing, for all parts */
} mpti_cut;

static void mpti_cut_body(void *context, size_t index)
{
    const mpti_cut *c = (const mpti_cut *)context;
    const size_t    begin = index * c->part, rest = c->n - begin;
    const uint64_t  before = mpti_control();
    mpti_control_set(c->control);
    c->range(c->context, index, begin, begin + (rest < c->part ? rest : c->part));
    mpti_control_set(before);
}

MPTI_UNUSED static size_t mpti_in_parts(size_t n, size_t least, mpti_range_fn *range, void *context)
{
    mpti_cut c = {range, context, n, least, 0u};
    size_t   parts;
    if (n <= least) {
        range(context, 0, 0, n);
        return 1;
    }
    while (c.part * MPTI_PARTS < n)
        c.part *= 2u;
    parts = n / c.part + (n % c.part != 0u);
    c.control = mpti_control();
    MPT_PARALLEL_FOR(parts, mpti_cut_body, &c);
    return parts;
}
/* `least`, or n (one part) if elements shrink in place: a part would overwrite what another one reads. */
MPTI_UNUSED static size_t mpti_part_least(size_t least, const void *to, ptrdiff_t out_step, const void *from,
                                          ptrdiff_t in_step, size_t n)
{
    return to == from && out_step != in_step ? n : least;
}
#define MPTI_IN_PARTS mpti_in_parts
#else
enum { MPTI_PARTS = 1 };
#define MPTI_IN_PARTS(n, least, range, context) (range(context, 0, 0, n), (size_t)1)
#endif

/* The path of this call, from a few loads and tests. Inline where a call's time matters; else mpti_path. */
static inline int mpti_path_here(void)
{
    const int last = MPTI_LAST_PATH;
#if MPTI_X86
    if (last >= MPTI_PATH_AVX512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return MPTI_PATH_AVX512;
    if (last >= MPTI_PATH_AVX2 && __builtin_cpu_supports("avx2"))
        return MPTI_PATH_AVX2;
    if (last >= MPTI_PATH_SSE2)
        return MPTI_PATH_SSE2;
#elif MPTI_ARM
    if (last >= MPTI_PATH_NEON && !mpti_control())
        return MPTI_PATH_NEON;
#endif
    (void)last;
    return MPTI_PATH_PORTABLE;
}

MPTI_NOINLINE MPTI_UNUSED static int mpti_path(void) { return mpti_path_here(); }

/* Define the function `name` by the inline function `loop`, compiled ONCE; or TWICE, on x86 also for AVX2,
 * with wider vectors, and fmaf as an instruction, not a call; or THRICE, also for AVX-512, with vectors of 64
 * bytes, for loops that keep up with memory only so. All copies give the same bits. Compilers vectorize loops
 * over MPTI_TILE elements of arrays that do not overlap even at plain -O2. clang 14 crashes on AVX-512 code
 * with both the address and the undefined-behaviour sanitizer, so that code has the first one only. */
#define MPTI_TILE 256
#define MPTI_ONCE(name, loop, parameters, arguments)                              \
    MPTI_UNUSED static void name parameters { loop arguments; }
#if MPTI_X86
#define MPTI_INLINE static inline __attribute__((always_inline))
#define MPTI_AVX2_TARGET __attribute__((target("avx2,fma,f16c")))
#ifdef __clang__
#define MPTI_AVX512_TARGET \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"), no_sanitize("undefined")))
#else
#define MPTI_AVX512_TARGET \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
/* Clears the upper halves of vector registers, for which SSE instructions may wait a hundred nanoseconds. gcc
 * does this by itself from -O2 on; at -O1 and with -Os, Adafactor was six times as slow. */
#define MPTI_NARROW() __builtin_ia32_vzeroupper()
#define MPTI_COPY(target, name, loop, parameters, arguments) \
    target MPTI_UNUSED static void name parameters           \
    {                                                        \
        loop arguments;                                      \
        MPTI_NARROW();                                       \
    }
#define MPTI_CHOICE(path, name, parameters, wide, narrow)                         \
    MPTI_UNUSED static void name parameters                                       \
    {                                                                             \
        if (mpti_path() >= path)                                                  \
            wide;                                                                 \
        else                                                                      \
            narrow;                                                               \
    }
#define MPTI_TWICE(name, loop, parameters, arguments)                             \
    MPTI_COPY(MPTI_AVX2_TARGET, name##_avx2, loop, parameters, arguments)         \
    MPTI_CHOICE(MPTI_PATH_AVX2, name, parameters, name##_avx2 arguments, loop arguments)
#define MPTI_THRICE(name, loop, parameters, arguments)                            \
    MPTI_TWICE(name##_narrow, loop, parameters, arguments)                        \
    MPTI_COPY(MPTI_AVX512_TARGET, name##_avx512, loop, parameters, arguments)     \
    MPTI_CHOICE(MPTI_PATH_AVX512, name, parameters, name##_avx512 arguments, name##_narrow arguments)
#else
#define MPTI_INLINE static inline
#define MPTI_NARROW() (void)0
#define MPTI_TWICE MPTI_ONCE
#define MPTI_THRICE MPTI_TWICE
#endif

/* Statements once, twice or four times: compilers do not unroll loops at -O2. */
#define MPTI_TIMES_1(...) __VA_ARGS__
#define MPTI_TIMES_2(...) __VA_ARGS__ __VA_ARGS__
#define MPTI_TIMES_4(...) MPTI_TIMES_2(__VA_ARGS__ __VA_ARGS__)
/* Likewise with q = 0, 1, 2, 3. */
#define MPTI_EACH_4(q, ...) { size_t q = 0; MPTI_TIMES_4(__VA_ARGS__ q++;) }

/* ---- kernels ---- */

/* A kernel reads up to three arrays and writes one, in groups of 64 elements, upwards. It loads before it
 * stores, so narrowing works in place. The control register matters only where a caller checks or sets it. */
#define MPTI_KERNEL_PARAMETERS                                                                   \
    (unsigned char *to, const unsigned char *a, const unsigned char *b, const unsigned char *c, \
     size_t groups, int how)
typedef void mpti_kernel MPTI_KERNEL_PARAMETERS;
enum { MPTI_GROUP = 64, MPTI_ELEMENT_MAX = 8 };
/* Bits of `how`. AROUND: non-temporal stores, which bypass the cache, and prefetches; AHEAD: prefetches. */
enum { MPTI_AROUND = 1, MPTI_AHEAD = 2, MPTI_SATURATE = 4 };

/* The portable kernel `name` from the formula for the pattern of one element, and name_each for n elements.
 * `call` is name_each's specifier: MPTI_NOINLINE if the SSE2 kernels call it too. */
#define MPTI_PORTABLE(call, name, to_bits, from_bits, formula)                                      \
    static call MPTI_UNUSED void name##_each(unsigned char *to, const unsigned char *a, size_t n)   \
    {                                                                                               \
        for (; n; n--, to += sizeof(to_bits), a += sizeof(from_bits)) {                             \
            from_bits in;                                                                           \
            to_bits   out;                                                                          \
            memcpy(&in, a, sizeof in);                                                              \
            out = formula(in);                                                                      \
            memcpy(to, &out, sizeof out);                                                           \
        }                                                                                           \
    }                                                                                               \
    MPTI_UNUSED static void name MPTI_KERNEL_PARAMETERS                                             \
    {                                                                                               \
        (void)b, (void)c, (void)how;                                                                \
        name##_each(to, a, groups * MPTI_GROUP);                                                    \
    }
MPTI_PORTABLE(MPTI_NOINLINE, mpti_f16_from_f32, uint16_t, uint32_t, mpti_f16_encode)
MPTI_PORTABLE(MPTI_NOINLINE, mpti_f32_from_f16, uint32_t, uint16_t, mpti_f16_decode)

/* The same for a formula of `in` that compiles without branches: results in a local array let compilers
 * vectorize. By `copies` (MPTI_TWICE, or MPTI_ONCE); `before` and `after` are statements for a group. If
 * code_bits is wider than to_bits, a second loop narrows: with two sizes in one, many steps are repeated. */
#define MPTI_PORTABLE_GROUPS(copies, name, to_bits, code_bits, from_bits, before, formula, after)         \
    MPTI_INLINE void name##_loop MPTI_KERNEL_PARAMETERS                                                   \
    {                                                                                                     \
        code_bits code[MPTI_GROUP];                                                                       \
        (void)b, (void)c, (void)how;                                                                      \
        for (; groups; groups--, to += MPTI_GROUP * sizeof(to_bits), a += MPTI_GROUP * sizeof(from_bits)) {\
            size_t i;                                                                                     \
            before;                                                                                       \
            for (i = 0; i < MPTI_GROUP; i++) {                                                            \
                from_bits in;                                                                             \
                memcpy(&in, a + i * sizeof in, sizeof in);                                                \
                code[i] = formula;                                                                        \
            }                                                                                             \
            after;                                                                                        \
            for (i = 0; i < MPTI_GROUP; i++) {                                                            \
                const to_bits out = (to_bits)code[i];                                                     \
                memcpy(to + i * sizeof out, &out, sizeof out);                                            \
            }                                                                                             \
        }                                                                                                 \
    }                                                                                                     \
    copies(name, name##_loop, MPTI_KERNEL_PARAMETERS, (to, a, b, c, groups, how))

#if MPTI_X86
/* Prefetch what is read four pages later, since the processor by itself stops at page ends; and what is read
 * one page later, into the first-level cache. Kernels that compute for as long as memory takes are 1.2 times
 * as fast with both as with the first alone. Addresses beyond the array are harmless: nothing is read. */
MPTI_INLINE void mpti_fetch_ahead(const void *p, size_t bytes)
{
    size_t i;
    for (i = 0; i < bytes; i += 64u) {
        __builtin_prefetch((const char *)((uintptr_t)p + 16384u + i), 0, 2);
        __builtin_prefetch((const char *)((uintptr_t)p + 4096u + i), 0, 3);
    }
}

/* ---- AVX-512 ---- */

/* Vectors with 16 lanes of 32 bits or 32 lanes of 16 bits, and parts of such vectors. Where C has no
 * operator, inline assembler is used: its instructions name their rounding, raise no exception ({sae}), and
 * ignore -ffast-math; and including the intrinsics' header would add a tenth to the compile time. */
typedef uint32_t mpti_v16 __attribute__((vector_size(64), may_alias));
typedef uint32_t mpti_v16_any __attribute__((vector_size(64), may_alias, aligned(1)));
typedef uint64_t mpti_q8 __attribute__((vector_size(64), may_alias));
typedef uint16_t mpti_w32 __attribute__((vector_size(64), may_alias));
typedef uint16_t mpti_w16 __attribute__((vector_size(32), may_alias));
typedef uint64_t mpti_w16_any __attribute__((vector_size(32), may_alias, aligned(1)));
typedef uint16_t mpti_w8 __attribute__((vector_size(16), may_alias));
typedef uint16_t mpti_w8_any __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint8_t  mpti_b16_any __attribute__((vector_size(16), may_alias, aligned(1)));
#define MPTI_IN_512 MPTI_AVX512_TARGET __attribute__((always_inline)) static inline
#define MPTI_IN_256 MPTI_AVX2_TARGET __attribute__((always_inline)) static inline
#define MPTI_UNARY(place, R, name, A, text)         \
    place R name(A a)                               \
    {                                               \
        R r;                                        \
        __asm__(text : "=v"(r) : "v"(a));           \
        return r;                                   \
    }
#define MPTI_BINARY(place, R, name, A, text) MPTI_BINARY_IN("v", place, R, name, A, text)
#define MPTI_BINARY_IN(registers, place, R, name, A, text)                              \
    place R name(A a, A b)                                                              \
    {                                                                                   \
        R r;                                                                            \
        __asm__(text : "=" registers(r) : registers(a), registers(b));                  \
        return r;                                                                       \
    }
#define MPTI_PUT(place, name, V, any)                                                   \
    place void name(unsigned char *p, V x, int how)                                     \
    {                                                                                   \
        if (how & MPTI_AROUND)                                                          \
            __asm__ volatile("vmovntdq {%1, %0|%0, %1}" : "=m"(*(V *)(void *)p) : "v"(x));\
        else                                                                            \
            *(any *)(void *)p = (any)x;                                                 \
    }
#define MPTI_OF_2(op) op " {%1, %0|%0, %1}"
#define MPTI_OF_2_ROUNDED(op, way) op " {%{" way "%}, %1, %0|%0, %1, %{" way "%}}"
#define MPTI_OF_3(op) op " {%2, %1, %0|%0, %1, %2}"
#define MPTI_OF_3_ROUNDED(op, way) op " {%{" way "%}, %2, %1, %0|%0, %1, %2, %{" way "%}}"
/* Does a comparison into mask k1 hold in any lane? Sets the processor's flags; callers read "nz". */
#define MPTI_ANY(test) test "\n\tkortestw {%%k1, %%k1|k1, k1}"

MPTI_IN_512 mpti_v16 mpti_all_512(uint32_t x)
{
    const mpti_v16 r = {x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
    return r;
}
MPTI_IN_512 mpti_v16 mpti_load_512(const void *p) { return *(const mpti_v16_any *)p; }
MPTI_IN_512 mpti_w16 mpti_load_w16_512(const void *p) { return (mpti_w16)*(const mpti_w16_any *)p; }
MPTI_PUT(MPTI_IN_512, mpti_put_512, mpti_v16, mpti_v16_any)
MPTI_PUT(MPTI_IN_512, mpti_put_w16_512, mpti_w16, mpti_w16_any)
MPTI_PUT(MPTI_IN_256, mpti_put_w8, mpti_w8, mpti_w8_any)
MPTI_UNARY(MPTI_IN_512, mpti_v16, mpti_floats_512, mpti_w16, MPTI_OF_2_ROUNDED("vcvtph2ps", "sae"))
MPTI_UNARY(MPTI_IN_512, mpti_w16, mpti_halves_512, mpti_v16,
           "vcvtps2ph {$0, %{sae%}, %1, %0|%0, %1, %{sae%}, 0}")
MPTI_UNARY(MPTI_IN_512, mpti_w16, mpti_halves_cut_512, mpti_v16,        /* toward zero */
           "vcvtps2ph {$3, %{sae%}, %1, %0|%0, %1, %{sae%}, 3}")
MPTI_UNARY(MPTI_IN_512, mpti_v16, mpti_doubles_512, mpti_w16, MPTI_OF_2_ROUNDED("vcvtps2pd", "sae"))
MPTI_UNARY(MPTI_IN_512, mpti_w16, mpti_f64_near_8_512, mpti_v16, MPTI_OF_2_ROUNDED("vcvtpd2ps", "rn-sae"))
MPTI_UNARY(MPTI_IN_512, mpti_w16, mpti_f64_cut_8_512, mpti_v16, MPTI_OF_2_ROUNDED("vcvtpd2ps", "rz-sae"))
MPTI_UNARY(MPTI_IN_512, mpti_v16, mpti_words_in_512, mpti_w16, MPTI_OF_2("vpmovzxwd"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_mul_cut_512, mpti_v16, MPTI_OF_3_ROUNDED("vmulps", "rz-sae"))
MPTI_BINARY(MPTI_IN_512, mpti_w32, mpti_min_words_512, mpti_w32, MPTI_OF_3("vpminuw"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_max_512, mpti_v16, MPTI_OF_3("vpmaxud"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_pack_unsigned_512, mpti_w32, MPTI_OF_3("vpackuswb"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_pack_signed_512, mpti_w32, MPTI_OF_3("vpacksswb"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_join_512, mpti_w16, "vinserti64x4 {$1, %2, %g1, %0|%0, %g1, %2, 1}")

/* x; in lanes where the float u is a NaN, u made quiet. With table 0x22 vfixupimmps does this. */
MPTI_IN_512 mpti_v16 mpti_unless_nan_512(mpti_v16 x, mpti_v16 u)
{
    __asm__("vfixupimmps {$0, %{sae%}, %2, %1, %0|%0, %1, %2, %{sae%}, 0}"
            : "+v"(x) : "v"(u), "v"(mpti_all_512(0x22u)));
    return x;
}

/* x, with `bit` set in lanes where x has any of `bits` set. */
MPTI_IN_512 mpti_v16 mpti_sticky_512(mpti_v16 x, uint32_t bits, uint32_t bit)
{
    __asm__("vptestmd {%1, %0, %%k1|k1, %0, %1}\n\tvpord {%2, %0, %0%{%%k1%}|%0%{k1%}, %0, %2}"
            : "+v"(x) : "v"(mpti_all_512(bits)), "v"(mpti_all_512(bit)) : "k1");
    return x;
}

MPTI_IN_512 mpti_v16 mpti_f16_16_512(const unsigned char *p) { return mpti_floats_512(mpti_load_w16_512(p)); }

MPTI_IN_512 mpti_v16 mpti_bf16_16_512(const unsigned char *p)
{
    const mpti_v16 u = mpti_words_in_512(mpti_load_w16_512(p)) << 16;
    return mpti_unless_nan_512(u, u);
}

/* A vector of codes of E4M3 (if e4m3 is 1) or E5M2 as floats. An E5M2 code is the upper byte of an f16 code.
 * Without its sign, an E4M3 code is the upper bits of the f16 code of x / 2^8. Its NaN becomes f16's. */
#define MPTI_FP8_LANES(place, V, W, name, any, bits, mul)                                                \
    place V name(const unsigned char *p, int e4m3)                                                       \
    {                                                                                                    \
        W w;                                                                                             \
        __asm__(MPTI_OF_2("vpmovsxbw") : "=v"(w) : "m"(*(const any *)(const void *)p));                  \
        if (!e4m3)                                                                                       \
            return mpti_floats_##bits(w << 8);                                                           \
        w = w << 7 & 0xbfffu;                                                                            \
        w ^= (W)((w & 0x7fffu) == 0x3f80u) & (0x3f80u ^ 0x7e00u);                                        \
        return mul(mpti_floats_##bits(w), mpti_all_##bits((127u + 8u) << 23));                           \
    }
MPTI_FP8_LANES(MPTI_IN_512, mpti_v16, mpti_w16, mpti_fp8_16_512, mpti_b16_any, 512, mpti_mul_cut_512)

/* Eight doubles to floats that round to f16 correctly: a sticky bit in float's last place stands for all bits
 * below it, then the conversion truncates. Subnormal floats may lose the bit, but are 0 in f16 anyway. */
MPTI_IN_512 mpti_w16 mpti_f64_8_512(mpti_v16 x)
{
    const mpti_q8 zero = {0}, low = zero + 0x1fffffffu;
    __asm__("vptestmq {%1, %0, %%k1|k1, %0, %1}\n\tvporq {%2, %0, %0%{%%k1%}|%0%{k1%}, %0, %2}"
            : "+v"(x) : "v"(low), "v"(low + 1u) : "k1");
    return mpti_f64_cut_8_512(x);
}

/* The same, rounded to odd, at 0.7 times that speed: truncate; where that changed x, set the last bit. */
MPTI_IN_512 mpti_w16 mpti_f64_odd_8_512(mpti_v16 x)
{
    const mpti_w16 last = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
    mpti_w16       r = mpti_f64_cut_8_512(x);
    __asm__("vcmppd {$12, %{sae%}, %2, %1, %%k1|k1, %1, %2, %{sae%}, 12}\n\t"
            "vpord {%3, %0, %0%{%%k1%}|%0%{k1%}, %0, %3}"
            : "+v"(r) : "v"(x), "v"(mpti_doubles_512(r)), "v"(last) : "k1");
    return r;
}

#define MPTI_F64_16_512(eight, p) mpti_join_512(eight(mpti_load_512(p)), eight(mpti_load_512((p) + 64)))

/* The upper 16 bits of each lane of a, then of b. */
MPTI_IN_512 mpti_v16 mpti_upper_halves_512(mpti_v16 a, mpti_v16 b)
{
    const mpti_w32 places = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                             33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    __asm__("vpermt2w {%2, %1, %0|%0, %1, %2}" : "+v"(a) : "v"(places), "v"(b));
    return a;
}

/* The bf16 code in the upper half of each lane; the lower half is meaningless. Subtracting 1 - odd - 0x8000
 * adds 0x7fff + odd: half less one, and the last bit that is kept. */
MPTI_IN_512 mpti_v16 mpti_bf16_round_512(mpti_v16 u)
{
    __asm__("" : "+v"(u));              /* so that u is loaded once: loads across cache lines cost */
    return mpti_unless_nan_512(u - ((~(u >> 16) & 1u) | 0xffff8000u), u);
}

MPTI_IN_512 void mpti_bf16_32_out_512(unsigned char *p, mpti_v16 a, mpti_v16 b, int how)
{
    mpti_put_512(p, mpti_upper_halves_512(mpti_bf16_round_512(a), mpti_bf16_round_512(b)), how);
}

/* 32 floats to f16, toward zero, after bit 17 became the sticky bit of all bits below it. Bit 17 is too low
 * for an 8-bit format to keep, and high enough to survive where f16 is subnormal and FP8 may be a tie. */
MPTI_IN_512 mpti_w32 mpti_sticky_halves_512(mpti_v16 a, mpti_v16 b)
{
    return (mpti_w32)mpti_join_512(mpti_halves_cut_512(mpti_sticky_512(a, 0x1ffffu, 0x20000u)),
                                   mpti_halves_cut_512(mpti_sticky_512(b, 0x1ffffu, 0x20000u)));
}

/* m >> drop in each 16-bit lane, rounded to nearest, ties to even, as in mpti_bf16_round_512. */
MPTI_IN_512 mpti_w32 mpti_round_words_512(mpti_w32 m, int drop)
{
    const uint16_t half_negated = (uint16_t)-(1 << (drop - 1));
    return (m - ((~(m >> drop) & 1u) | half_negated)) >> drop;
}

MPTI_IN_512 mpti_w32 mpti_all_words_512(uint32_t x) { return (mpti_w32)mpti_all_512(x * 0x10001u); }

/* The low bytes of the words of a, then b, with the signs of x and y, which packing with saturation keeps. */
MPTI_IN_512 mpti_v16 mpti_bytes_512(mpti_w32 a, mpti_w32 b, mpti_w32 x, mpti_w32 y)
{
    const mpti_q8  places = {0, 2, 4, 6, 1, 3, 5, 7};
    const mpti_v16 bytes = mpti_pack_unsigned_512(a, b) | (mpti_pack_signed_512(x, y) & 0x80808080u);
    mpti_v16       r;
    __asm__(MPTI_OF_3("vpermq") : "=v"(r) : "v"(places), "v"(bytes));
    return r;
}

/* FP8 codes, without signs, of 32 numbers in f16. E5M2: the upper byte, rounded; a NaN is truncated instead.
 * E4M3: the upper bits of the numbers / 2^8, rounded; Inf, NaN and what rounds beyond 448 exceed 0x7e. */
MPTI_IN_512 mpti_w32 mpti_fp8_words_512(mpti_w32 h, int e4m3, int saturate)
{
    const mpti_w32 m = h & 0x7fffu, inf = mpti_all_words_512(0x7c00u), nan = mpti_all_words_512(0x7fu);
    mpti_w32       code = mpti_round_words_512(m, 8 - e4m3);
    if (e4m3 || saturate)
        code = mpti_min_words_512(code, mpti_all_words_512(!saturate ? 0x7fu : e4m3 ? 0x7eu : 0x7bu));
    if (e4m3 && saturate)
        __asm__("vpcmpgtw {%2, %1, %%k1|k1, %1, %2}\n\tvmovdqu16 {%3, %0%{%%k1%}|%0%{k1%}, %3}"
                : "+v"(code) : "v"(m), "v"(inf), "v"(nan) : "k1");
    else if (!e4m3)
        __asm__("vpcmpgtw {%2, %1, %%k1|k1, %1, %2}\n\tvpsrlw {$8, %1, %0%{%%k1%}|%0%{k1%}, %1, 8}"
                : "+v"(code) : "v"(m), "v"(inf) : "k1");
    return code;
}

MPTI_IN_512 mpti_w32 mpti_fp8_halves_512(const unsigned char *p, int e4m3)
{
    const mpti_v16 a = mpti_load_512(p), b = mpti_load_512(p + 64), scale = mpti_all_512((127u - 8u) << 23);
    return e4m3 ? mpti_sticky_halves_512(mpti_mul_cut_512(a, scale), mpti_mul_cut_512(b, scale))
                : mpti_sticky_halves_512(a, b);
}

MPTI_IN_512 void mpti_fp8_out_512(unsigned char *p, const unsigned char *from, int e4m3, int how)
{
    const mpti_w32 x = mpti_fp8_halves_512(from, e4m3), y = mpti_fp8_halves_512(from + 128, e4m3);
    const int      saturate = how & MPTI_SATURATE;
    mpti_put_512(p, mpti_bytes_512(mpti_fp8_words_512(x, e4m3, saturate),
                                   mpti_fp8_words_512(y, e4m3, saturate), x, y), how);
}

/* Store a tile of floats by non-temporal stores; partial cache lines at its ends get ordinary ones. */
MPTI_IN_512 void mpti_put_tile_512(unsigned char *to, const float *tile)
{
    const size_t         past = (uintptr_t)to % 64u, up = past ? 64u - past : 0u;
    const unsigned char *from = (const unsigned char *)tile;
    size_t               i;
    memcpy(to, from, up);
    for (i = up; i + 64u <= 4 * MPTI_TILE; i += 64u)
        mpti_put_512(to + i, mpti_load_512(from + i), MPTI_AROUND);
    memcpy(to + i, from + i, 4 * MPTI_TILE - i);
}

/* A kernel whose `statement` converts `elements` elements from a to `to`, `times` times per turn: at most a
 * group. A branch on `how` at each store costs no time. `ahead`: bits of `how` at which it prefetches. The
 * statement `before` is for the whole call. */
#define MPTI_KERNEL_FOR(target, ahead, before, name, times, elements, in_bytes, out_bytes, statement) \
    target MPTI_UNUSED static void name MPTI_KERNEL_PARAMETERS                                        \
    {                                                                                                 \
        const size_t in_ = (elements) * (in_bytes);                                                   \
        before;                                                                                       \
        (void)b, (void)c;                                                                             \
        for (groups *= MPTI_GROUP / ((times) * (elements)); groups; groups--) {                       \
            if (how & (ahead) && (uintptr_t)a % 64u < (times) * in_)    /* once per line */           \
                mpti_fetch_ahead(a, (times) * in_);                                                   \
            MPTI_TIMES_##times(statement; to += (elements) * (out_bytes); a += in_;)                  \
        }                                                                                             \
        MPTI_NARROW();                                                                                \
    }
#define MPTI_KERNEL_512(...) MPTI_KERNEL_FOR(MPTI_AVX512_TARGET, MPTI_AROUND, (void)0, __VA_ARGS__)
#define MPTI_KERNEL_256(...) MPTI_KERNEL_FOR(MPTI_AVX2_TARGET, 0, (void)0, __VA_ARGS__)

/* ---- AVX2 ---- */

/* 32 elements in four vectors. These instructions raise exceptions, so they are not used where those trap. */
typedef uint32_t mpti_v8 __attribute__((vector_size(32), may_alias));
typedef uint64_t mpti_q4 __attribute__((vector_size(32), may_alias));
typedef uint32_t mpti_v8_any __attribute__((vector_size(32), may_alias, aligned(1)));
typedef uint64_t mpti_b8_any __attribute__((may_alias, aligned(1)));

MPTI_IN_256 mpti_v8 mpti_all_256(uint32_t x)
{
    const mpti_v8 r = {x, x, x, x, x, x, x, x};
    return r;
}
MPTI_IN_256 mpti_v8 mpti_load_256(const void *p) { return *(const mpti_v8_any *)p; }
MPTI_PUT(MPTI_IN_256, mpti_put_256, mpti_v8, mpti_v8_any)
MPTI_UNARY(MPTI_IN_256, mpti_v8, mpti_floats_256, mpti_w8, MPTI_OF_2("vcvtph2ps"))
MPTI_UNARY(MPTI_IN_256, mpti_w8, mpti_halves_256, mpti_v8, "vcvtps2ph {$0, %1, %0|%0, %1, 0}")
MPTI_BINARY(MPTI_IN_256, mpti_v8, mpti_add_ps_256, mpti_v8, MPTI_OF_3("vaddps"))
MPTI_BINARY(MPTI_IN_256, mpti_v8, mpti_mul_ps_256, mpti_v8, MPTI_OF_3("vmulps"))
/* "x": these cannot use the registers that AVX-512 added. mpti_above_256: all ones in lanes where a > b. */
MPTI_BINARY_IN("x", MPTI_IN_256, mpti_v8, mpti_above_256, mpti_v8, MPTI_OF_3("vpcmpgtd"))
MPTI_BINARY_IN("x", MPTI_IN_256, mpti_v8, mpti_join_256, mpti_w8,
               "vinserti128 {$1, %2, %t1, %0|%0, %t1, %2, 1}")

MPTI_IN_256 mpti_v8 mpti_f16_8_256(const unsigned char *p)
{
    mpti_v8 r;
    __asm__("vcvtph2ps {%1, %0|%0, %1}" : "=x"(r) : "m"(*(const mpti_w8_any *)(const void *)p));
    return r;
}

/* Load 32 elements at p as floats: four vectors. */
MPTI_IN_256 void mpti_f16_in_256(mpti_v8 *v, const unsigned char *p)
{
    MPTI_EACH_4(q, v[q] = mpti_f16_8_256(p + 16 * q);)
}

MPTI_IN_256 mpti_v8 mpti_bf16_8_256(const unsigned char *p)
{
    mpti_v8 r;
    __asm__("vpmovzxwd {%1, %0|%0, %1}" : "=x"(r) : "m"(*(const mpti_w8_any *)(const void *)p));
    return r << 16;
}

/* For arithmetic; NaNs stay as they are. Codes of even index go to v[0] and v[2], odd ones to v[1] and v[3]:
 * shifts and masks cost less than instructions that keep the order. mpti_bf16_out_256 restores it. */
MPTI_IN_256 void mpti_bf16_in_256(mpti_v8 *v, const unsigned char *p)
{
    const mpti_v8 a = mpti_load_256(p), b = mpti_load_256(p + 32);
    v[0] = a << 16, v[1] = a & 0xffff0000u;
    v[2] = b << 16, v[3] = b & 0xffff0000u;
}

/* All ones in lanes where u is a NaN. */
MPTI_IN_256 mpti_v8 mpti_nan_256(mpti_v8 u)
{
    return mpti_above_256(u & 0x7fffffffu, mpti_all_256(0x7f800000u));
}

MPTI_IN_256 mpti_v8 mpti_bf16_quiet_8_256(const unsigned char *p)
{
    const mpti_v8 u = mpti_bf16_8_256(p);
    return u | (mpti_nan_256(u) & 0x400000u);
}

MPTI_FP8_LANES(MPTI_IN_256, mpti_v8, mpti_w8, mpti_fp8_8_256, mpti_b8_any, 256, mpti_mul_ps_256)

/* These two round and flush as the control register says. */
MPTI_UNARY(MPTI_IN_256, mpti_w8, mpti_f64_4_256, mpti_v8, "vcvtpd2ps{y %1, %0| %0, %1}")
MPTI_UNARY(MPTI_IN_256, mpti_v8, mpti_f32_4_256, mpti_w8, "vcvtps2pd {%1, %0|%0, %1}")

/* Four doubles to floats, for signed formats of at most 16 bits: the mantissa's 12th bit is sticky, for all
 * bits below. Then the conversion is exact, except for numbers that are zero or Inf in the format anyway. */
MPTI_IN_256 mpti_w8 mpti_f64_sticky_4_256(mpti_v8 u)
{
    const mpti_q4 zero = {0}, low = zero + ((MPTI_ONE << 40) - 1u), x = (mpti_q4)u;
    return mpti_f64_4_256((mpti_v8)((x | (((x & low) + low) & (low + 1u))) & ~low));
}

#define MPTI_F64_8_256(four, p) mpti_join_256(four(mpti_load_256(p)), four(mpti_load_256((p) + 32)))

MPTI_IN_256 void mpti_f16_out_256(unsigned char *p, const mpti_v8 *v, int how)
{
    mpti_put_256(p, mpti_join_256(mpti_halves_256(v[0]), mpti_halves_256(v[1])), how);
    mpti_put_256(p + 32, mpti_join_256(mpti_halves_256(v[2]), mpti_halves_256(v[3])), how);
}

/* bf16 codes in the upper halves of lanes; u must hold no NaN. */
MPTI_IN_256 mpti_v8 mpti_bf16_round_256(mpti_v8 u) { return u + 0x7fffu + (u >> 16 & 1u); }
/* The upper 16 bits of each lane of a, then of b. */
MPTI_IN_256 mpti_v8 mpti_upper_halves_256(mpti_v8 a, mpti_v8 b)
{
    mpti_v8 r;
    __asm__(MPTI_OF_3("vpackusdw") : "=x"(r) : "x"(a >> 16), "x"(b >> 16));
    __asm__("vpermq {$0xd8, %0, %0|%0, %0, 0xd8}" : "+x"(r));
    return r;
}

MPTI_IN_256 mpti_v8 mpti_bf16_pack_256(mpti_v8 a, mpti_v8 b)
{
    return mpti_upper_halves_256(mpti_bf16_round_256(a), mpti_bf16_round_256(b));
}

MPTI_IN_256 mpti_v8 mpti_bf16_mix_256(mpti_v8 even, mpti_v8 odd)
{
    mpti_v8 r;
    __asm__("vpblendw {$0xaa, %2, %1, %0|%0, %1, %2, 0xaa}"
            : "=x"(r) : "x"(mpti_bf16_round_256(even) >> 16), "x"(mpti_bf16_round_256(odd)));
    return r;
}

MPTI_IN_256 void mpti_bf16_out_256(unsigned char *p, const mpti_v8 *v, int how)
{
    MPTI_TIMES_2(mpti_put_256(p, mpti_bf16_mix_256(v[0], v[1]), how); p += 32, v += 2;)
}

/* Makes NaNs quiet and clears their lower halves, so that mpti_bf16_round_256 keeps them NaNs. */
MPTI_IN_256 mpti_v8 mpti_bf16_nan_256(mpti_v8 u)
{
    __asm__("vpblendvb {%2, %1, %0, %0|%0, %0, %1, %2}"
            : "+x"(u) : "x"((u | 0x400000u) & 0xffff0000u), "x"(mpti_nan_256(u)));
    return u;
}

/* Is a result in a or b a NaN? This raises a flag at signaling NaNs, such as floats from memory may be. */
MPTI_BINARY_IN("x", MPTI_IN_256, mpti_v8, mpti_nan_of_2_256, mpti_v8, MPTI_OF_3("vcmpunordps"))
MPTI_IN_256 int mpti_lanes_256(mpti_v8 u)
{
    int lanes;
    __asm__(MPTI_OF_2("vmovmskps") : "=r"(lanes) : "x"(u));
    return !MPTI_LIKELY(!lanes);
}

/* Sixteen floats to bf16; with a branch for NaNs, 0.8 of the time. */
MPTI_IN_256 mpti_v8 mpti_bf16_16_256(const unsigned char *p)
{
    mpti_v8 a = mpti_load_256(p), b = mpti_load_256(p + 32);
    if (mpti_lanes_256(mpti_nan_256(a) | mpti_nan_256(b)))
        a = mpti_bf16_nan_256(a), b = mpti_bf16_nan_256(b);
    return mpti_bf16_pack_256(a, b);
}

/* Here, not in >>H14, because steps of mpt.h call these two by themselves. */
MPTI_KERNEL_256(mpti_f16_from_f32_256, 4, 8, 4, 2, mpti_put_w8(to, mpti_halves_256(mpti_load_256(a)), how))
MPTI_KERNEL_256(mpti_bf16_from_f32_256, 1, 16, 4, 2, mpti_put_256(to, mpti_bf16_16_256(a), how))

/* ---- SSE2 ---- */

/* Sixteen elements at a time, if all are zero or normal in both formats; otherwise one by one. */
typedef uint32_t mpti_v4 __attribute__((vector_size(16), may_alias));
typedef int32_t  mpti_s4 __attribute__((vector_size(16), may_alias));
typedef int16_t  mpti_s8 __attribute__((vector_size(16), may_alias));
#define MPTI_BINARY_SSE2(name, A, op)                               \
    MPTI_INLINE mpti_s8 name(A a, A b)                              \
    {                                                               \
        __asm__(op " {%1, %0|%0, %1}" : "+x"(a) : "x"(b));          \
        return (mpti_s8)a;                                          \
    }
MPTI_BINARY_SSE2(mpti_pack_sse2, mpti_v4, "packssdw")
MPTI_BINARY_SSE2(mpti_max_sse2, mpti_s8, "pmaxsw")
MPTI_BINARY_SSE2(mpti_pairs_low_sse2, mpti_w8, "punpcklwd")
MPTI_BINARY_SSE2(mpti_pairs_high_sse2, mpti_w8, "punpckhwd")

MPTI_INLINE int mpti_any_sse2(mpti_s8 x)
{
    int any;
    __asm__("pmovmskb {%1, %0|%0, %1}" : "=r"(any) : "x"(x));
    return any;
}

MPTI_INLINE mpti_w8 mpti_load_sse2(const void *p) { return (mpti_w8)*(const mpti_w8_any *)p; }
MPTI_INLINE void mpti_put_sse2(unsigned char *p, mpti_s8 x) { *(mpti_w8_any *)(void *)p = (mpti_w8_any)x; }

/* f16 codes of four floats without signs, in 32-bit lanes. Floats below f16's normal range give less than
 * 0x400, not their codes; zero gives less than 0. Adds half less one, and the last bit kept: ties to even. */
MPTI_INLINE mpti_v4 mpti_f16_round_sse2(mpti_v4 u)
{
    return (mpti_v4)((mpti_s4)((u & 0x7fffffffu) + (u >> 13 & 1u) + (0xfffu - 0x38000000u)) >> 13);
}

/* Eight such codes, packed to 16 bits, with the signs of u and v. Packing has saturated numbers below 2^-47,
 * and so zero, to -0x8000, which is its own negative; here they become zero. */
MPTI_INLINE mpti_s8 mpti_f16_sign_sse2(mpti_s8 h, mpti_v4 u, mpti_v4 v)
{
    return h ^ ((h ^ mpti_pack_sse2(u, v)) & -0x8000);
}

/* Is each code from 0x400 to 0x7c00, or -0x8000? Negation keeps -0x8000, so it passes the second test. */
MPTI_INLINE int mpti_f16_plain_sse2(mpti_s8 h, mpti_s8 k)
{
    const mpti_s8 minus_h = (mpti_s8)(0u - (mpti_w8)h), minus_k = (mpti_s8)(0u - (mpti_w8)k);
    return !mpti_any_sse2((mpti_s8)(mpti_max_sse2(h, k) > 0x7c00) |
                          (mpti_s8)(mpti_max_sse2(minus_h, minus_k) > -0x400));
}

MPTI_UNUSED static void mpti_f16_from_f32_sse2 MPTI_KERNEL_PARAMETERS
{
    (void)b, (void)c, (void)how;
    for (groups *= 4u; groups; groups--, to += 32, a += 64) {
        const mpti_v4 u0 = (mpti_v4)mpti_load_sse2(a), u1 = (mpti_v4)mpti_load_sse2(a + 16);
        const mpti_v4 u2 = (mpti_v4)mpti_load_sse2(a + 32), u3 = (mpti_v4)mpti_load_sse2(a + 48);
        const mpti_s8 h0 = mpti_pack_sse2(mpti_f16_round_sse2(u0), mpti_f16_round_sse2(u1));
        const mpti_s8 h1 = mpti_pack_sse2(mpti_f16_round_sse2(u2), mpti_f16_round_sse2(u3));
        if (MPTI_LIKELY(mpti_f16_plain_sse2(h0, h1))) {
            mpti_put_sse2(to, mpti_f16_sign_sse2(h0, u0, u1));
            mpti_put_sse2(to + 16, mpti_f16_sign_sse2(h1, u2, u3));
        } else
            mpti_f16_from_f32_each(to, a, 16);
    }
}

/* Lanes with Inf, NaN or a subnormal: there the doubled code, as a signed word, is near zero but not zero. */
MPTI_INLINE mpti_s8 mpti_f16_odd_sse2(mpti_w8 twice, mpti_w8 is_zero)
{
    return (mpti_s8)((mpti_s8)(twice + 0x7800u) > 0x6fff) & (mpti_s8)~is_zero;
}

/* Eight f16 codes, normal or zero, to floats: shift the fields to their places and rebias the exponent. */
MPTI_INLINE void mpti_f32_from_eight_f16_sse2(unsigned char *to, mpti_w8 h, mpti_w8 is_zero)
{
    const mpti_w8 low = h << 13, high = ((mpti_w8)((mpti_s8)h >> 3) & 0x8fffu) + (~is_zero & 0x3800u);
    mpti_put_sse2(to, mpti_pairs_low_sse2(low, high));
    mpti_put_sse2(to + 16, mpti_pairs_high_sse2(low, high));
}

MPTI_UNUSED static void mpti_f32_from_f16_sse2 MPTI_KERNEL_PARAMETERS
{
    (void)b, (void)c, (void)how;
    for (groups *= 4u; groups; groups--, to += 64, a += 32) {
        const mpti_w8 h0 = mpti_load_sse2(a), h1 = mpti_load_sse2(a + 16), twice0 = h0 + h0, twice1 = h1 + h1;
        const mpti_w8 zero0 = (mpti_w8)(twice0 == 0u), zero1 = (mpti_w8)(twice1 == 0u);
        const mpti_s8 odd = mpti_f16_odd_sse2(twice0, zero0) | mpti_f16_odd_sse2(twice1, zero1);
        if (MPTI_LIKELY(!mpti_any_sse2(odd))) {
            mpti_f32_from_eight_f16_sse2(to, h0, zero0);
            mpti_f32_from_eight_f16_sse2(to + 32, h1, zero1);
        } else
            mpti_f32_from_f16_each(to, a, 16);
    }
}
#endif /* MPTI_X86 */

#if MPTI_ARM
/* ---- NEON ---- */

/* Eight elements at a time by conversion instructions. Doubles become floats rounded to odd first. */
#define MPTI_KERNEL_NEON(name, in_bytes, out_bytes, body)                                           \
    MPTI_UNUSED static void name MPTI_KERNEL_PARAMETERS                                             \
    {                                                                                               \
        (void)b, (void)c, (void)how;                                                                \
        for (groups *= 8u; groups; groups--, to += 8 * (out_bytes), a += 8 * (in_bytes)) {          \
            const uint8x16_t x = vld1q_u8(a);                                                       \
            uint8x16_t       r;                                                                     \
            body                                                                                    \
        }                                                                                           \
    }
MPTI_KERNEL_NEON(mpti_f16_from_f32_neon, 4, 2,
                 __asm__("fcvtn %0.4h, %1.4s\n\tfcvtn2 %0.8h, %2.4s" : "=&w"(r) : "w"(x),
                         "w"(vld1q_u8(a + 16)));
                 vst1q_u8(to, r);)
MPTI_KERNEL_NEON(mpti_f32_from_f16_neon, 2, 4,
                 uint8x16_t high; __asm__("fcvtl %0.4s, %1.4h" : "=w"(r) : "w"(x));
                 __asm__("fcvtl2 %0.4s, %1.8h" : "=w"(high) : "w"(x)); vst1q_u8(to, r);
                 vst1q_u8(to + 16, high);)
MPTI_KERNEL_NEON(mpti_f16_from_f64_n_neon, 8, 2,
                 uint8x16_t low; __asm__("fcvtxn %0.2s, %1.2d\n\tfcvtxn2 %0.4s, %2.2d"
                                         : "=&w"(low) : "w"(x), "w"(vld1q_u8(a + 16)));
                 __asm__("fcvtxn %0.2s, %1.2d\n\tfcvtxn2 %0.4s, %2.2d"
                         : "=&w"(r) : "w"(vld1q_u8(a + 32)), "w"(vld1q_u8(a + 48)));
                 __asm__("fcvtn %0.4h, %0.4s\n\tfcvtn2 %0.8h, %1.4s" : "+w"(low) : "w"(r));
                 vst1q_u8(to, low);)
#endif

/* ---- the driver ---- */

/* A kernel and its arrays. A source that is constants, not an array, has elements of 0 bytes: it stays. */
typedef struct mpti_job {
    mpti_kernel         *kernel;
    unsigned char       *to;
    const unsigned char *from[3];
    size_t               out, in[3];        /* bytes per element */
    int                  how, around;       /* around: set by mpti_run, if non-temporal stores pay */
} mpti_job;

/* The job of a kernel from one array, of `in` bytes per element, to another one of `out` bytes. */
MPTI_INLINE mpti_job mpti_job_of(mpti_kernel *kernel, void *dst, size_t out, const void *src, size_t in,
                                 int how)
{
    const unsigned char *const from = (const unsigned char *)src;   /* for those unused, too: not NULL */
    const mpti_job j = {kernel, (unsigned char *)dst, {from, from, from}, out, {in, 0, 0}, how, 0};
    return j;
}

/* Run the kernel on `groups` groups from element i on. */
MPTI_INLINE void mpti_run_groups(const mpti_job *j, size_t i, size_t groups, int how)
{
    j->kernel(j->to + i * j->out, j->from[0] + i * j->in[0], j->from[1] + i * j->in[1],
              j->from[2] + i * j->in[2], groups, how);
}

/* Run the kernel on n elements, fewer than a group, through copies that are padded to a group. */
MPTI_UNUSED static void mpti_run_few(const mpti_job *j, size_t i, size_t n)
{
    unsigned char in[3][MPTI_GROUP * MPTI_ELEMENT_MAX] MPTI_ALIGNED;
    unsigned char out[MPTI_GROUP * MPTI_ELEMENT_MAX] MPTI_ALIGNED;
    const unsigned char *from[3];
    int                  k;
    for (k = 0; k < 3; k++) {
        from[k] = j->from[k];
        if (j->in[k]) {
            memcpy(in[k], from[k] + i * j->in[k], n * j->in[k]);
            memset(in[k] + n * j->in[k], 0, (MPTI_GROUP - n) * j->in[k]);
            from[k] = in[k];
        }
    }
    j->kernel(out, from[0], from[1], from[2], 1, j->how);
    memcpy(j->to + i * j->out, out, n * j->out);
}

/* Larger jobs use non-temporal stores: out of cache, ordinary ones would first read what they overwrite. */
#ifndef MPTI_AROUND_BYTES       /* tests define it as a variable */
#define MPTI_AROUND_BYTES ((size_t)32 << 20)
#endif

/* Run elements begin .. end - 1 of a job. Unless the destination is also a source, one group at the start and
 * one at the end convert some elements twice, so that the groups between begin at a cache line and their
 * stores cross none. The groups between come last, as the processor mispredicts the end of their loop. */
MPTI_UNUSED static void mpti_run_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_job *const j = (const mpti_job *)context;
    const int    apart = j->to != j->from[0] && j->to != j->from[1] && j->to != j->from[2];
    const size_t n = end - begin, past = (uintptr_t)(j->to + begin * j->out) % 64u;
    size_t       i = begin, stop;
    if (n < MPTI_GROUP) {
        mpti_run_few(j, i, n);
        return;
    }
    if (n > MPTI_TILE && apart && past && !(past & (j->out - 1u))) {
        mpti_run_groups(j, i, 1, j->how);
        i += (64u - past) >> (j->out / 2u - j->out / 8u);   /* divided by 1, 2, 4 or 8 */
    }
    stop = end - (end - i) % MPTI_GROUP;
    if (stop < end && apart)
        mpti_run_groups(j, end - MPTI_GROUP, 1, j->how);
#if MPTI_X86
    if (apart && j->around && !((uintptr_t)(j->to + i * j->out) % 64u) && mpti_path() >= MPTI_PATH_AVX2) {
        mpti_run_groups(j, i, (stop - i) / MPTI_GROUP, j->how | MPTI_AROUND);
        __asm__ volatile("sfence" : : : "memory");
        return;
    }
#endif
    mpti_run_groups(j, i, (stop - i) / MPTI_GROUP, j->how);
    if (stop < end && !apart)
        mpti_run_few(j, stop, end - stop);
}

/* Run a job over n elements. Only its first source may have elements of another size than the destination. */
MPTI_UNUSED static void mpti_run(mpti_job *j, size_t n)
{
    if (n <= MPTI_TILE && n % MPTI_GROUP == 0) {
        if (n)                          /* arrays may be NULL if n is 0 */
            mpti_run_groups(j, 0, n / MPTI_GROUP, j->how);
        return;
    }
    j->around = n * (j->out + j->in[0] + j->in[1] + j->in[2]) > MPTI_AROUND_BYTES;
    (void)MPTI_IN_PARTS(n, mpti_part_least(MPTI_FAST_PART, j->to, (ptrdiff_t)j->out, j->from[0],
                                           (ptrdiff_t)j->in[0], n), mpti_run_range, j);
}
#endif /* MPTI_HALF_LANES */

// >>H13 implementation: formats, one value ---------------------------------------------------------
#if defined(MPT_HALF_IMPLEMENTATION) && !defined(MPTI_HALF_FORMATS)
#define MPTI_HALF_FORMATS

MPTI_DEF int mpt_version(void) { return MPT_VERSION; }

#define MPTI_STATUS_TEXT(id, value, text) case value: return text;
MPTI_DEF const char *mpt_status_text(mpt_status status)
{
    switch ((int)status) {
        MPT_STATUSES(MPTI_STATUS_TEXT)
    default: return "unknown status";
    }
}

/* ---- the format table ---- */

/* 2^k, k >= -1074, as a constant: C has no constant ldexp, and C++11 no hexadecimal floats. From the least
 * double the product grows by 2^(2^i) for each bit i of k + 1074. Casts: for x87. Literals: quick to fold. */
#define MPTI_P(k, i, power) (((k) + 1074) >> (i) & 1 ? (power) : 1.0)
#define MPTI_P512 (double)1.3407807929942597e154
#define MPTI_POW2(k)                                                                          \
    ((double)5e-324 * (double)(MPTI_ONE << (((k) + 1074) & 63)) * MPTI_P(k, 6, 18446744073709551616.0) *  \
     MPTI_P(k, 7, (double)3.402823669209385e38) * MPTI_P(k, 8, (double)1.157920892373162e77) *  \
     MPTI_P(k, 9, MPTI_P512) * MPTI_P(k, 10, MPTI_P512) * MPTI_P(k, 10, MPTI_P512))     /* no 2^1024 */

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
#define MPTI_MAX_SIG(e, m, sp) ((MPTI_MAX_CODE(e, m, sp) & ((MPTI_ONE << (m)) - 1u)) | (MPTI_ONE << (m)))

#define MPTI_BYTES(bits) ((bits) <= 8 ? 1 : (bits) <= 16 ? 2 : (bits) <= 32 ? 4 : 8)

/* The limits of a format: of the table with pow2 MPTI_POW2, of one that a program defines with mpti_pow2. */
#define MPTI_FORMAT_INFO(name, s, e, m, bias, sp, pow2)                                       \
    {                                                                                         \
        name, (s) + (e) + (m), s, e, m, bias, sp,                                             \
        MPTI_EMIN(bias, sp), MPTI_EMAX(e, bias, sp),                                          \
        (sp) == MPT_SPECIALS_IEEE, (sp) != MPT_SPECIALS_FINITE, MPTI_BYTES((s) + (e) + (m)),  \
        MPTI_MAX_CODE(e, m, sp), MPTI_INF_CODE(e, m, sp), MPTI_NAN_CODE(e, m, sp),            \
        (double)MPTI_MAX_SIG(e, m, sp) * pow2(MPTI_EMAX(e, bias, sp) - (m)),                  \
        pow2(MPTI_EMIN(bias, sp)), pow2(MPTI_EMIN(bias, sp) - (m)), pow2(-(m))                \
    }

MPTI_DEF const mpt_format_info *mpt_format_get(mpt_format format)
{
#define MPTI_FORMAT(id, name, s, e, m, bias, sp) MPTI_FORMAT_INFO(name, s, e, m, bias, sp, MPTI_POW2),
    static const mpt_format_info table[] = {MPT_FORMATS(MPTI_FORMAT)};
    return (unsigned)format < (unsigned)MPT_FORMAT_COUNT ? &table[format] : NULL;
}

MPTI_DEF mpt_status mpt_format_find(const char *name, mpt_format *format)
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

/* 2^k for -1022 <= k <= 1023 */
static double mpti_pow2(int k) { return mpti_f64_make((uint64_t)(k + 1023) << 52); }

MPTI_DEF mpt_status mpt_format_define(mpt_format_info *info, const char *name, int exponent_bits,
                                     int mantissa_bits, int bias, mpt_specials specials)
{
    const int scale = specials == MPT_SPECIALS_SCALE;
    if (info)
        memset(info, 0, sizeof *info);
    if (!info || !name || (unsigned)specials > (unsigned)MPT_SPECIALS_SCALE ||
        exponent_bits < (scale ? 1 : 2) || exponent_bits > 10 ||
        (scale ? mantissa_bits != 0 : mantissa_bits < 1 || mantissa_bits > 52) || bias < -1022 ||
        bias > 2048 || MPTI_EMIN(bias, specials) - mantissa_bits < -1022 ||
        MPTI_EMAX(exponent_bits, bias, specials) > 1023)
        return MPT_E_ARG;
    {
        const mpt_format_info made =
            MPTI_FORMAT_INFO(name, !scale, exponent_bits, mantissa_bits, bias, specials, mpti_pow2);
        *info = made;
    }
    return MPT_OK;
}

/* ---- encode and decode, any format ---- */

/* The bits of the double (-1)^sign * sig * 2^exponent, sig < 2^53. Exact for every value of every format. */
static uint64_t mpti_f64_compose(unsigned sign, uint64_t sig, int exponent)
{
    const uint64_t s = (uint64_t)sign << 63;
    int            up, field;
    if (!sig)
        return s;
    up = mpti_clz64(sig) - 11;          /* move the highest one bit to bit 52 */
    sig <<= up;
    field = exponent - up + 52 + 1023;
    if (field <= 0)
        return s | sig >> (1 - field);
    return s | ((uint64_t)field << 52) | (sig & ((MPTI_ONE << 52) - 1u));
}

/* Split a code into its fields. Inf and NaN have significand and exponent 0; value and error stay 0. */
static mpt_fields mpti_take_apart(const mpt_format_info *f, uint64_t code)
{
    const int  m = f->mantissa_bits;
    mpt_fields p;
    uint64_t   magnitude;
    memset(&p, 0, sizeof p);
    code &= ~(uint64_t)0 >> (64 - f->bits);
    magnitude = code & MPTI_ALL_ONES(f->exponent_bits, m);
    p.code = code;
    p.sign = f->sign_bits ? (unsigned)(code >> (f->bits - 1)) : 0u;
    p.exponent_field = magnitude >> m;
    p.mantissa_field = magnitude & ((MPTI_ONE << m) - 1u);
    if (f->has_inf ? magnitude > f->inf_code
                   : f->has_nan && (f->specials == MPT_SPECIALS_FNUZ ? code : magnitude) == f->nan_code) {
        const int signaling = f->has_inf && !((magnitude >> (m - 1)) & 1u);
        p.kind = signaling ? MPT_CLASS_SIGNALING_NAN : MPT_CLASS_QUIET_NAN;
        return p;
    }
    p.kind = MPT_CLASS_POS_INF;
    if (!f->has_inf || magnitude != f->inf_code) {
        const int normal = f->specials == MPT_SPECIALS_SCALE || p.exponent_field;
        p.significand = p.mantissa_field | (normal ? MPTI_ONE << m : 0u);
        p.exponent = (normal ? (int)p.exponent_field - f->bias : f->emin) - m;
        p.kind = normal ? MPT_CLASS_POS_NORMAL : p.significand ? MPT_CLASS_POS_SUBNORMAL : MPT_CLASS_POS_ZERO;
    }
    if (p.sign)                         /* in the enum, negative classes mirror the positive ones */
        p.kind = (mpt_class)((int)MPT_CLASS_NEG_ZERO + (int)MPT_CLASS_POS_ZERO - (int)p.kind);
    return p;
}

/* The bits of the double that a code stands for. A signaling NaN stays signaling, so that encoding it raises
 * INVALID. `flush`: MPT_FLUSH_INPUTS has an effect, and MPTI_QUIET, which makes every NaN quiet. */
enum { MPTI_QUIET = 4 };
static uint64_t mpti_f64_of_code(const mpt_format_info *f, uint64_t code, unsigned flush)
{
    const mpt_fields p = mpti_take_apart(f, code);
    const uint64_t   inf = (uint64_t)0x7ff << 52, sign = (uint64_t)p.sign << 63;
    if (p.kind <= MPT_CLASS_QUIET_NAN) {
        const uint64_t payload = f->has_inf ? p.mantissa_field << (52 - f->mantissa_bits) : MPTI_ONE << 51;
        return (f->specials == MPT_SPECIALS_FNUZ ? 0u : sign) | inf | payload |
               (uint64_t)(flush & MPTI_QUIET) << 49;
    }
    if (p.kind == MPT_CLASS_NEG_INF || p.kind == MPT_CLASS_POS_INF)
        return sign | inf;
    if (flush & MPT_FLUSH_INPUTS && (p.kind == MPT_CLASS_NEG_SUBNORMAL || p.kind == MPT_CLASS_POS_SUBNORMAL))
        return sign;
    return mpti_f64_compose(p.sign, p.significand, p.exponent);
}

MPTI_DEF double mpt_decode_as(const mpt_format_info *info, uint64_t code)
{
    const int known = info && info->bits;
    return mpti_f64_make(known ? mpti_f64_of_code(info, code, MPTI_QUIET) : (uint64_t)0xfff << 51);
}

MPTI_DEF double mpt_decode(mpt_format format, uint64_t code)
{
    return mpt_decode_as(mpt_format_get(format), code);
}

MPTI_NOINLINE static uint64_t mpti_encode_nan(const mpt_format_info *f, uint64_t sign_bit,
                                              uint64_t payload52, const mpt_opts *o)
{
    if (!f->has_nan)
        return f->max_code;
    if (o->nan == MPT_NAN_CANONICAL || f->specials == MPT_SPECIALS_FNUZ)
        return f->nan_code;
    return sign_bit | f->nan_code | (f->has_inf ? payload52 >> (52 - f->mantissa_bits) : 0u);
}

/* Encode Inf (was_inf), or a finite value that overflows, as o->rounding and o->overflow say. */
static uint64_t mpti_encode_overflow(const mpt_format_info *f, uint64_t sign_bit, const mpt_opts *o,
                                     int was_inf)
{
    const int to_nan = o->overflow == MPT_OVERFLOW_NAN && !was_inf;
    if (!f->has_nan || o->overflow == MPT_OVERFLOW_SATURATE ||
        !(was_inf || to_nan || mpti_overflows_to_inf(o->rounding, sign_bit != 0u)))
        return sign_bit | f->max_code;
    return f->has_inf && !to_nan ? sign_bit | f->inf_code : mpti_encode_nan(f, sign_bit, 0u, o);
}

/* Whether dropping the last `shift` >= 0 bits of sig rounds the magnitude up; odd is the last bit kept. */
MPTI_NOINLINE static int mpti_round_up(const mpt_opts *o, unsigned sign, unsigned odd, uint64_t sig,
                                       int shift)
{
    const int beyond = shift > 63 ? shift - 63 : 0;
    return shift && mpti_drop_goes_up(o->rounding, o->random, sign, odd, mpti_shift_jam(sig, beyond),
                                      shift - beyond);
}

/* Round sig * 2^q, where bit 63 of sig is 1, to a code without sign, as if exponents had no upper limit. */
static uint64_t mpti_encode_finite(const mpt_format_info *f, uint64_t sig, int q, unsigned sign,
                                   const mpt_opts *o, unsigned *flags)
{
    const int scale = f->specials == MPT_SPECIALS_SCALE, m = f->mantissa_bits;
    const int e = q + 63, floor_e = e < f->emin ? f->emin : e;
    const int shift = floor_e - m - q;
    uint64_t  code = ((uint64_t)(floor_e - f->emin) << m) + (shift > 63 ? 0u : sig >> shift);
    int       tiny = 0;
    code -= (uint64_t)scale;            /* exponent field 0 is a power of two, not subnormal */
    /* In SCALE formats every significand is 1, which is odd. */
    code += (uint64_t)mpti_round_up(o, sign, scale ? 1u : (unsigned)(code & 1u), sig, shift);
    if (e < f->emin) {                  /* not tiny if rounding with an unbounded exponent gives 2^emin */
        const uint64_t kept = sig >> (63 - m);
        const int      up = mpti_round_up(o, sign, (unsigned)(kept & 1u), sig, 63 - m);
        tiny = o->tininess == MPT_TININESS_BEFORE || e < f->emin - 1 ||
               kept + (uint64_t)up < MPTI_ONE << (m + 1);
    }
    if (mpti_drops(sig, shift))
        *flags |= MPT_FLAG_INEXACT | (tiny ? MPT_FLAG_UNDERFLOW : 0u);
    /* SCALE has no subnormal, as m is 0, nor a zero to round to: code 0 is the least power of two. */
    if (scale ? e < f->emin : (o->flush & MPT_FLUSH_RESULTS) && code && !(code >> m)) {
        *flags |= MPT_FLAG_UNDERFLOW | MPT_FLAG_INEXACT;
        return 0u;
    }
    return code;
}

/* Encode (-1)^sign * sig * 2^q, any finite number, including overflow. */
static uint64_t mpti_encode_number(const mpt_format_info *f, uint64_t sig, int q, unsigned sign,
                                   const mpt_opts *o, unsigned *flags)
{
    const uint64_t sign_bit = f->sign_bits ? (uint64_t)sign << (f->bits - 1) : 0u;
    uint64_t       code = 0u;
    if (sig && sign && !f->sign_bits) {
        *flags |= MPT_FLAG_INVALID;
        return f->nan_code;
    }
    if (sig) {
        const int up = mpti_clz64(sig);
        code = mpti_encode_finite(f, sig << up, q - up, sign, o, flags);
    } else if (f->specials == MPT_SPECIALS_SCALE)
        *flags |= MPT_FLAG_UNDERFLOW | MPT_FLAG_INEXACT;
    if (code > f->max_code) {
        *flags |= MPT_FLAG_OVERFLOW | MPT_FLAG_INEXACT;
        return mpti_encode_overflow(f, sign_bit, o, 0);
    }
    if (!code && f->specials == MPT_SPECIALS_FNUZ)
        return 0u;                      /* no -0: its code is the NaN */
    return sign_bit | code;
}

static uint64_t mpti_encode_bits(const mpt_format_info *f, uint64_t u, const mpt_opts *o, unsigned *flags)
{
    const unsigned sign = (unsigned)(u >> 63);
    const uint64_t sign_bit = f->sign_bits ? (uint64_t)sign << (f->bits - 1) : 0u;
    const uint64_t hidden = MPTI_ONE << 52, man = u & (hidden - 1u);
    const int      field = (int)((u >> 52) & 0x7ffu);
    if (field == 0x7ff && man) {
        if (!(man >> 51) || !f->has_nan)
            *flags |= MPT_FLAG_INVALID;
        return mpti_encode_nan(f, sign_bit, man, o);
    }
    if (field == 0x7ff && (f->sign_bits || !sign)) {    /* in an unsigned format -Inf is as -2^1024 */
        if (!f->has_inf || o->overflow == MPT_OVERFLOW_SATURATE)
            *flags |= MPT_FLAG_OVERFLOW | MPT_FLAG_INEXACT;
        return mpti_encode_overflow(f, sign_bit, o, 1);
    }
    if (field)
        return mpti_encode_number(f, man | hidden, field - 1075, sign, o, flags);
    return mpti_encode_number(f, o->flush & MPT_FLUSH_INPUTS ? 0u : man, -1074, sign, o, flags);
}

/* Encode a double (bit pattern x) or an integer (`sign` and magnitude x). */
static uint64_t mpti_encode_value(const mpt_format_info *f, int integer, unsigned sign, uint64_t x,
                                  const mpt_opts *o, unsigned *flags)
{
    unsigned raised = 0u;
    uint64_t code;
    o = o ? o : &mpti_plain_opts;
    if (!f || !f->bits || mpti_bad_opts(o)) {
        raised = MPT_FLAG_INVALID;
        code = f ? f->nan_code : 0u;
    } else if (integer)
        code = mpti_encode_number(f, x, 0, sign, o, &raised);
    else
        code = mpti_encode_bits(f, x, o, &raised);
    if (flags)
        *flags |= raised;
    return code;
}

MPTI_DEF uint64_t mpt_encode_as(const mpt_format_info *info, double value, const mpt_opts *opts,
                               unsigned *flags)
{
    return mpti_encode_value(info, 0, 0u, mpti_f64_bits(value), opts, flags);
}

MPTI_DEF uint64_t mpt_encode(mpt_format format, double value, const mpt_opts *opts, unsigned *flags)
{
    return mpt_encode_as(mpt_format_get(format), value, opts, flags);
}

/* ---- integers ---- */

MPTI_DEF uint64_t mpt_encode_u64(mpt_format format, uint64_t value, const mpt_opts *opts, unsigned *flags)
{
    return mpti_encode_value(mpt_format_get(format), 1, 0u, value, opts, flags);
}

MPTI_DEF uint64_t mpt_encode_i64(mpt_format format, int64_t value, const mpt_opts *opts, unsigned *flags)
{
    const uint64_t u = (uint64_t)value;
    return mpti_encode_value(mpt_format_get(format), 1, value < 0, value < 0 ? 0u - u : u, opts, flags);
}

/* Round the value of a code to an integer in [-most_negative, most].  Returns: it, modulo 2^64. */
static uint64_t mpti_decode_int(mpt_format format, uint64_t code, uint64_t most_negative, uint64_t most,
                                const mpt_opts *o, unsigned *flags)
{
    const mpt_format_info *f = mpt_format_get(format);
    unsigned               raised = MPT_FLAG_INVALID;
    uint64_t               r = 0u;
    o = o ? o : &mpti_plain_opts;
    if (f && most && !mpti_bad_opts(o)) {
        const mpt_fields p = mpti_take_apart(f, code);
        const int        flush = (o->flush & MPT_FLUSH_INPUTS) && !(p.significand >> f->mantissa_bits);
        const uint64_t   sig = flush ? 0u : p.significand;
        const int        up = sig && p.exponent > 0 ? p.exponent : 0;
        const int        shift = p.exponent < 0 ? -p.exponent : 0;
        uint64_t         whole = shift > 63 ? 0u : sig >> shift;
        whole += (uint64_t)mpti_round_up(o, p.sign, (unsigned)(whole & 1u), sig, shift);
        if (p.kind > MPT_CLASS_QUIET_NAN) {
            r = p.sign ? most_negative : most;
            if (p.kind != MPT_CLASS_POS_INF && p.kind != MPT_CLASS_NEG_INF &&
                (!up || up <= mpti_clz64(whole)) && whole << up <= r) {
                r = whole << up;
                raised = mpti_drops(sig, shift) ? MPT_FLAG_INEXACT : 0u;
            }
            r = p.sign ? 0u - r : r;
        }
    }
    if (flags)
        *flags |= raised;
    return r;
}

MPTI_DEF int64_t mpt_decode_i64(mpt_format format, uint64_t code, int bits, const mpt_opts *opts,
                               unsigned *flags)
{
    const uint64_t most = bits < 2 || bits > 64 ? 0u : ~(uint64_t)0 >> (65 - bits);
    const uint64_t r = mpti_decode_int(format, code, most + 1u, most, opts, flags);
    return r >> 63 ? -(int64_t)~r - 1 : (int64_t)r;
}

MPTI_DEF uint64_t mpt_decode_u64(mpt_format format, uint64_t code, int bits, const mpt_opts *opts,
                                unsigned *flags)
{
    const uint64_t most = bits < 1 || bits > 64 ? 0u : ~(uint64_t)0 >> (64 - bits);
    return mpti_decode_int(format, code, 0u, most, opts, flags);
}

static int mpti_is_exact(const mpt_format_info *f, uint64_t u)
{
    unsigned unused = 0u;
    if ((u & ~(MPTI_ONE << 63)) > (uint64_t)0x7ff << 52)
        return f->has_nan;
    return mpti_f64_of_code(f, mpti_encode_bits(f, u, &mpti_plain_opts, &unused), 0u) == u;
}

MPTI_DEF int mpt_is_exact(mpt_format format, double value)
{
    const mpt_format_info *f = mpt_format_get(format);
    return f ? mpti_is_exact(f, mpti_f64_bits(value)) : 0;
}

/* ---- looking at one number ---- */

MPTI_DEF MPTI_TEXT_OF_ROW(mpt_class_name, mpt_class, MPT_CLASSES, "unknown class")

MPTI_DEF mpt_class mpt_classify(mpt_format format, uint64_t code)
{
    const mpt_format_info *f = mpt_format_get(format);
    return f ? mpti_take_apart(f, code).kind : MPT_CLASS_SIGNALING_NAN;
}

MPTI_DEF double mpt_ulp(mpt_format format, double value)
{
    const mpt_format_info *f = mpt_format_get(format);
    const uint64_t         a = mpti_f64_bits(value) & ~(MPTI_ONE << 63);
    int                    e = (int)(a >> 52) - 1023;   /* -1023 (zero, subnormal) is below every emin */
    if (!f)
        return mpti_f64_make((uint64_t)0xfff << 51);
    if (e == 1024)
        return mpti_f64_make(a << 12 ? a | MPTI_ONE << 51 : a);
    if (e < f->emin)
        e = f->emin;
    return mpti_f64_make(mpti_f64_compose(0u, 1u, e - f->mantissa_bits));
}

MPTI_DEF mpt_fields mpt_anatomy(mpt_format format, double value)
{
    const mpt_format_info *f = mpt_format_get(format);
    unsigned               flags = 0u;
    mpt_fields             p;
    memset(&p, 0, sizeof p);
    p.kind = MPT_CLASS_SIGNALING_NAN;   /* of an unknown format */
    p.code = mpt_encode_as(f, value, NULL, &flags);
    if (f)
        p = mpti_take_apart(f, p.code);
    p.value = mpt_decode_as(f, p.code);
    p.error = f ? mpti_error_of(p.value, value) : p.value;
    p.flags = flags;
    p.format = format;
    return p;
}

MPTI_DEF size_t mpt_bits_text(char *buf, size_t cap, mpt_format format, uint64_t code)
{
    const mpt_format_info *f = mpt_format_get(format);
    mpti_string            s = mpti_string_in(buf, cap);
    int                    i;
    for (i = f ? f->bits - 1 : -1; i >= 0; i--) {
        mpti_add_char(&s, (char)('0' + (int)((code >> i) & 1u)));
        if (i == f->mantissa_bits + f->exponent_bits || (i == f->mantissa_bits && i > 0))
            mpti_add_char(&s, ' ');
    }
    return mpti_string_end(&s);
}
// >>H14 implementation: arrays ---------------------------------------------------------------------
/* ---- conversions: f32 is the hub ---- */

/* A kernel (>>H12) converts to or from f32, or f64 to f16. Other pairs go through tiles of MPTI_TILE floats,
 * without a second rounding: f32 has all numbers of smaller formats, and doubles are rounded to odd. */
#define MPTI_ODD MPT_FORMAT_COUNT       /* as a destination: floats rounded to odd */
#define MPTI_STICKY ((int)MPT_FORMAT_COUNT + 1) /* the same for signed formats of at most 16 bits */
#define MPTI_PAIR(dst_format, src_format) ((int)(dst_format) * (int)MPT_FORMAT_COUNT + (int)(src_format))

MPTI_PORTABLE_GROUPS(MPTI_ONCE, mpti_f32_from_bf16, uint32_t, uint32_t, uint16_t, (void)0,
                     mpti_bf16_decode(in), (void)0)
MPTI_PORTABLE(inline, mpti_f32_from_e4m3, uint32_t, uint8_t, mpti_e4m3_decode)
MPTI_PORTABLE(inline, mpti_f32_from_e5m2, uint32_t, uint8_t, mpti_e5m2_decode)
MPTI_PORTABLE(inline, mpti_f32_from_f64_n, uint32_t, uint64_t, mpti_f32_from_f64)
MPTI_PORTABLE(inline, mpti_f32_odd_from_f64_n, uint32_t, uint64_t, mpti_f32_odd_from_f64)
MPTI_PORTABLE_GROUPS(MPTI_ONCE, mpti_bf16_from_f32, uint16_t, uint16_t, uint32_t, (void)0,
                     mpti_bf16_encode(in), (void)0)
MPTI_PORTABLE_GROUPS(MPTI_TWICE, mpti_e4m3_from_f32, uint8_t, uint32_t, uint32_t, (void)0,
                     mpti_fp8_code(in, 0, (how & MPTI_SATURATE) != 0), (void)0)
MPTI_PORTABLE_GROUPS(MPTI_TWICE, mpti_e5m2_from_f32, uint8_t, uint32_t, uint32_t, (void)0,
                     mpti_fp8_code(in, 1, (how & MPTI_SATURATE) != 0), (void)0)
MPTI_PORTABLE(inline, mpti_f64_from_f32, uint64_t, uint32_t, mpti_f64_widen)
MPTI_PORTABLE(inline, mpti_f16_from_f64_n, uint16_t, uint64_t, mpti_f16_from_f64)

#if MPTI_X86
MPTI_KERNEL_512(mpti_f32_from_f16_512, 2, 16, 2, 4, mpti_put_512(to, mpti_f16_16_512(a), how))
MPTI_KERNEL_512(mpti_f32_from_bf16_512, 1, 16, 2, 4, mpti_put_512(to, mpti_bf16_16_512(a), how))
MPTI_KERNEL_512(mpti_f32_from_e4m3_512, 1, 16, 1, 4, mpti_put_512(to, mpti_fp8_16_512(a, 1), how))
MPTI_KERNEL_512(mpti_f32_from_e5m2_512, 1, 16, 1, 4, mpti_put_512(to, mpti_fp8_16_512(a, 0), how))
MPTI_KERNEL_512(mpti_f32_odd_from_f64_n_512, 1, 16, 8, 4,
                mpti_put_512(to, MPTI_F64_16_512(mpti_f64_odd_8_512, a), how))
MPTI_KERNEL_512(mpti_f16_from_f32_512, 2, 16, 4, 2,
                mpti_put_w16_512(to, mpti_halves_512(mpti_load_512(a)), how))
MPTI_KERNEL_512(mpti_bf16_from_f32_512, 1, 32, 4, 2,
                mpti_bf16_32_out_512(to, mpti_load_512(a), mpti_load_512(a + 64), how))
MPTI_KERNEL_512(mpti_f32_from_f64_n_512, 1, 16, 8, 4,
                mpti_put_512(to, MPTI_F64_16_512(mpti_f64_near_8_512, a), how))
MPTI_KERNEL_512(mpti_e4m3_from_f32_512, 1, 64, 4, 1, mpti_fp8_out_512(to, a, 1, how))
MPTI_KERNEL_512(mpti_e5m2_from_f32_512, 1, 64, 4, 1, mpti_fp8_out_512(to, a, 0, how))
MPTI_KERNEL_512(mpti_f64_from_f32_512, 2, 8, 4, 8,
                mpti_put_512(to, mpti_doubles_512(mpti_load_w16_512(a)), how))
MPTI_KERNEL_512(mpti_f16_from_f64_n_512, 1, 16, 8, 2,
                mpti_put_w16_512(to, mpti_halves_512(MPTI_F64_16_512(mpti_f64_8_512, a)), how))
MPTI_KERNEL_256(mpti_f32_from_f16_256, 4, 8, 2, 4, mpti_put_256(to, mpti_f16_8_256(a), how))
MPTI_KERNEL_256(mpti_f32_from_e4m3_256, 1, 8, 1, 4, mpti_put_256(to, mpti_fp8_8_256(a, 1), how))
MPTI_KERNEL_256(mpti_f32_from_e5m2_256, 1, 8, 1, 4, mpti_put_256(to, mpti_fp8_8_256(a, 0), how))
MPTI_KERNEL_256(mpti_f16_from_f64_n_256, 1, 8, 8, 2,
                mpti_put_w8(to, mpti_halves_256(MPTI_F64_8_256(mpti_f64_sticky_4_256, a)), how))
MPTI_KERNEL_256(mpti_f32_from_f64_n_256, 1, 8, 8, 4, mpti_put_256(to, MPTI_F64_8_256(mpti_f64_4_256, a), how))
MPTI_KERNEL_256(mpti_f32_odd_from_f64_n_256, 1, 8, 8, 4,
                mpti_put_256(to, MPTI_F64_8_256(mpti_f64_sticky_4_256, a), how))
MPTI_KERNEL_256(mpti_f64_from_f32_256, 1, 4, 4, 8,
                mpti_put_256(to, mpti_f32_4_256(*(const mpti_w8_any *)(const void *)a), how))
MPTI_KERNEL_256(mpti_f32_from_bf16_256, 2, 8, 2, 4, mpti_put_256(to, mpti_bf16_quiet_8_256(a), how))
#endif

/* A pair, its portable kernel, and the suffixes of its SSE2, NEON, AVX2, AVX-512 kernels (none: portable). */
#if MPTI_X86
#define MPTI_KERNELS(to, from, name, sse2, neon, avx2, avx512)                                      \
    case MPTI_PAIR(to, from): {                                                                     \
        static mpti_kernel *const kernels[] = {name, name##sse2, name##avx2, name##avx512};         \
        return kernels[set];                                                                        \
    }
#elif MPTI_ARM
#define MPTI_KERNELS(to, from, name, sse2, neon, avx2, avx512)                                      \
    case MPTI_PAIR(to, from): return set ? name##neon : name;
#else
#define MPTI_KERNELS(to, from, name, sse2, neon, avx2, avx512) case MPTI_PAIR(to, from): return name;
#endif

/* The index of the kernel to use: 0, the portable one, if the control register has traps on (AVX2) or, for
 * conversions between float and double (`doubles`), flushes subnormals or changes the rounding (AVX2). */
MPTI_NOINLINE static int mpti_kernel_set(int doubles)
{
    const int path = mpti_path();
#if MPTI_X86
    if ((path == MPTI_PATH_AVX2 && !(doubles ? mpti_control_is_plain() : mpti_no_traps())) ||
        (path == MPTI_PATH_AVX512 && doubles && !mpti_subnormals_count()))
        return 0;
#endif
    (void)doubles;
    return path ? path - 1 : 0;
}

/* The kernel of a pair on this path; NULL if it has none. Inline: a constant pair links its kernels alone. */
MPTI_INLINE mpti_kernel *mpti_kernel_here(int pair)
{
    const int set = mpti_kernel_set(pair == MPTI_PAIR(MPT_F32, MPT_F64) ||
                                    pair == MPTI_PAIR(MPTI_ODD, MPT_F64) ||
                                    pair == MPTI_PAIR(MPTI_STICKY, MPT_F64) ||
                                    pair == MPTI_PAIR(MPT_F64, MPT_F32));
    (void)set;
    switch (pair) {
    MPTI_KERNELS(MPT_F32, MPT_F16, mpti_f32_from_f16, _sse2, _neon, _256, _512)
    MPTI_KERNELS(MPT_F32, MPT_BF16, mpti_f32_from_bf16, , , _256, _512)
    MPTI_KERNELS(MPT_F32, MPT_E4M3, mpti_f32_from_e4m3, , , _256, _512)
    MPTI_KERNELS(MPT_F32, MPT_E5M2, mpti_f32_from_e5m2, , , _256, _512)
    MPTI_KERNELS(MPT_F32, MPT_F64, mpti_f32_from_f64_n, , , _256, _512)
    MPTI_KERNELS(MPTI_ODD, MPT_F64, mpti_f32_odd_from_f64_n, , , , _512)
    MPTI_KERNELS(MPTI_STICKY, MPT_F64, mpti_f32_odd_from_f64_n, , , _256, _512)
    MPTI_KERNELS(MPT_F16, MPT_F32, mpti_f16_from_f32, _sse2, _neon, _256, _512)
    MPTI_KERNELS(MPT_BF16, MPT_F32, mpti_bf16_from_f32, , , _256, _512)
    MPTI_KERNELS(MPT_E4M3, MPT_F32, mpti_e4m3_from_f32, , , , _512)
    MPTI_KERNELS(MPT_E5M2, MPT_F32, mpti_e5m2_from_f32, , , , _512)
    MPTI_KERNELS(MPT_F64, MPT_F32, mpti_f64_from_f32, , , _256, _512)
    MPTI_KERNELS(MPT_F16, MPT_F64, mpti_f16_from_f64_n, , _neon, _256, _512)
    default: return NULL;
    }
}

static mpti_kernel *mpti_kernel_of(int pair) { return mpti_kernel_here(pair); }

/* The codes of 32 floats / 2^exp in a format of at most 8 bits with a mantissa, clamped to its largest number
 * (Inf, NaN too). Subtracting exponents divides; it is wrong for subnormal floats, whose code is 0 anyway. */
MPTI_INLINE void mpti_byte_codes_loop(uint8_t *MPTI_RESTRICT codes, const uint32_t *MPTI_RESTRICT in,
                                      const mpt_format_info *f, int exp)
{
    const uint32_t least = (uint32_t)(f->emin + 127), most = (uint32_t)f->max_code;
    uint32_t       out[32];             /* narrowed by a second loop, as in MPTI_PORTABLE_GROUPS */
    int            i;
    for (i = 0; i < 32; i++) {
        const int32_t  rel = (int32_t)(in[i] & 0x7fffffffu) - exp * 0x800000;
        const uint32_t code = mpti_small_encode(rel > 0 ? (uint32_t)rel : 0u, f->mantissa_bits, least);
        out[i] = (code < most ? code : most) | in[i] >> 31 << (f->bits - 1);
    }
    for (i = 0; i < 32; i++)
        codes[i] = (uint8_t)out[i];
}
MPTI_TWICE(mpti_byte_codes_32, mpti_byte_codes_loop,
           (uint8_t *MPTI_RESTRICT codes, const uint32_t *MPTI_RESTRICT in, const mpt_format_info *f,
            int exp), (codes, in, f, exp))

/* mpti_bad_opts and mpti_f32_from_f64 as calls: here more inline copies would only make the code larger. */
MPTI_NOINLINE static int mpti_refused_opts(const mpt_opts *o) { return o && mpti_bad_opts(o); }
MPTI_NOINLINE static uint32_t mpti_float_of(uint64_t u) { return mpti_f32_from_f64(u); }

/* The kernel from floats to such a format, which `b` points to, unless it has one of its own. Floats beyond
 * `limit` may overflow, where that is not to clamp; NaN, and the negative in an unsigned format, are rare. */
static void mpti_byte_codes_n MPTI_KERNEL_PARAMETERS
{
    const mpt_format_info *f = (const mpt_format_info *)(const void *)b;
    const uint32_t         mask = f->sign_bits ? 0x7fffffffu : 0xffffffffu;
    const uint32_t         over = (uint32_t)(f->has_inf ? f->inf_code : f->nan_code);
    const uint32_t         limit = how & MPTI_SATURATE || f->specials == MPT_SPECIALS_FINITE
                                       ? 0x7f800000u : mpti_float_of(mpti_f64_bits(f->max_finite));
    unsigned               unused = 0u;
    (void)c;
    for (groups *= 2u; groups; groups--, to += 32, a += 128) {
        uint32_t in[32], beyond = 0u;
        int      i;
        memcpy(in, a, sizeof in);
        mpti_byte_codes_32(to, in, f, 0);
        for (i = 0; i < 32; i++)
            beyond |= (uint32_t)((in[i] & mask) > limit);
        if (f->specials == MPT_SPECIALS_FNUZ)
            for (i = 0; i < 32; i++)
                to[i] = (uint8_t)(to[i] & (to[i] == f->nan_code ? 0u : 0xffu));
        for (i = 0; beyond && i < 32; i++)
            if ((in[i] & mask) > 0x7f800000u)
                to[i] = (uint8_t)mpti_encode_bits(f, mpti_f64_widen(in[i]), &mpti_plain_opts, &unused);
            else if ((in[i] & mask) > limit && mpti_small_encode(in[i] & 0x7fffffffu, f->mantissa_bits,
                                                                 (uint32_t)(f->emin + 127)) > f->max_code)
                to[i] = (uint8_t)(over | in[i] >> 31 << (f->bits - 1));
    }
}

/* A kernel that runs two others in turn, with a tile of floats between them. `b` points to the mpti_hops. */
typedef struct mpti_hops { mpti_kernel *first, *second; size_t in, out; } mpti_hops;
static void mpti_two_hops MPTI_KERNEL_PARAMETERS
{
    const mpti_hops *h = (const mpti_hops *)(const void *)b;
    unsigned char    floats[MPTI_TILE * sizeof(float)] MPTI_ALIGNED;
    size_t           take;
    for (; groups; groups -= take, a += take * MPTI_GROUP * h->in, to += take * MPTI_GROUP * h->out) {
        take = groups < MPTI_TILE / MPTI_GROUP ? groups : MPTI_TILE / MPTI_GROUP;
        h->first(floats, a, c, c, take, 0);
        h->second(to, floats, c, c, take, how);
    }
}

/* Convert packed arrays by kernels, nearest-even; how: 0 or MPTI_SATURATE.  Returns: 0 if there are none. */
static int mpti_convert_fast(mpt_format d, void *dst, mpt_format s, const void *src, size_t n, int how)
{
    const mpt_format_info *const f = mpt_format_get(d);
    const size_t out = (size_t)f->bytes, in = (size_t)mpt_format_get(s)->bytes;
    mpti_job  j = mpti_job_of(mpti_kernel_of(MPTI_PAIR(d, s)), dst, out, src, in, how);
    mpti_hops hops;
    if (!j.kernel) {
        hops.second = mpti_kernel_of(MPTI_PAIR(d, MPT_F32));
        if (!hops.second && f->bits <= 8 && f->mantissa_bits)
            hops.second = mpti_byte_codes_n;
        j.kernel = hops.second, j.from[1] = j.from[2] = (const unsigned char *)f;
        if (hops.second && s != MPT_F32) {
            hops.first = mpti_kernel_of(MPTI_PAIR(s != MPT_F64    ? (int)MPT_F32
                                                  : f->sign_bits ? MPTI_STICKY
                                                                 : (int)MPTI_ODD, s));
            hops.in = in, hops.out = out;
            j.kernel = hops.first ? mpti_two_hops : NULL, j.from[1] = (const unsigned char *)&hops;
        }
    }
    if (j.kernel)
        mpti_run(&j, n);
    return j.kernel != NULL;
}

/* Would a conversion overwrite elements that it then reads? Not at the same address, if none grows. */
static inline int mpti_clobbers(const void *dst, size_t out, const void *src, size_t in, size_t n)
{
    return dst == src ? n && out > in : mpti_meet(dst, n * out, src, n * in);
}

MPTI_NOINLINE static int mpti_bad_array(const void *dst, size_t out, const void *src, size_t in, size_t n)
{
    return mpti_no_array_here(dst, n, out) || mpti_no_array_here(src, n, in) ||
           mpti_clobbers(dst, out, src, in, n);
}

MPTI_NOINLINE static mpt_status mpti_convert_typed(mpti_kernel *kernel, void *dst, size_t out,
                                                   const void *src, size_t in, size_t n, int how)
{
    const int tile = n <= MPTI_TILE && dst && src && !mpti_clobbers(dst, out, src, in, n);
    mpti_job  j;
    if (tile && n % MPTI_GROUP == 0) {  /* without a job: 0.6 of a row's time */
        kernel((unsigned char *)dst, (const unsigned char *)src, NULL, NULL, n / MPTI_GROUP, how);
        return MPT_OK;
    }
    if (!tile && mpti_bad_array(dst, out, src, in, n))
        return MPT_E_ARG;
    j = mpti_job_of(kernel, dst, out, src, in, how);
    mpti_run(&j, n);
    return MPT_OK;
}

#define MPTI_CONVERT_N(name, to, dst_type, from, src_type, how)                                         \
    MPTI_DEF mpt_status name(dst_type *dst, const src_type *src, size_t n)                              \
    {                                                                                                   \
        return mpti_convert_typed(mpti_kernel_here(MPTI_PAIR(to, from)), dst, sizeof *dst, src,         \
                                  sizeof *src, n, how);                                                 \
    }
MPTI_CONVERT_N(mpt_f16_from_f32_n, MPT_F16, mpt_f16, MPT_F32, float, 0)
MPTI_CONVERT_N(mpt_f16_from_f64_n, MPT_F16, mpt_f16, MPT_F64, double, 0)
MPTI_CONVERT_N(mpt_f32_from_f16_n, MPT_F32, float, MPT_F16, mpt_f16, 0)
MPTI_CONVERT_N(mpt_bf16_from_f32_n, MPT_BF16, mpt_bf16, MPT_F32, float, 0)
MPTI_CONVERT_N(mpt_f32_from_bf16_n, MPT_F32, float, MPT_BF16, mpt_bf16, 0)
MPTI_CONVERT_N(mpt_e4m3_from_f32_n, MPT_E4M3, mpt_e4m3, MPT_F32, float, 0)
MPTI_CONVERT_N(mpt_e4m3_from_f32_sat_n, MPT_E4M3, mpt_e4m3, MPT_F32, float, MPTI_SATURATE)
MPTI_CONVERT_N(mpt_f32_from_e4m3_n, MPT_F32, float, MPT_E4M3, mpt_e4m3, 0)
MPTI_CONVERT_N(mpt_e5m2_from_f32_n, MPT_E5M2, mpt_e5m2, MPT_F32, float, 0)
MPTI_CONVERT_N(mpt_e5m2_from_f32_sat_n, MPT_E5M2, mpt_e5m2, MPT_F32, float, MPTI_SATURATE)
MPTI_CONVERT_N(mpt_f32_from_e5m2_n, MPT_F32, float, MPT_E5M2, mpt_e5m2, 0)

MPTI_DEF mpt_status mpt_f64_from_f16_n(double *dst, const mpt_f16 *src, size_t n)
{
    return mpt_convert_n(MPT_F64, dst, MPT_F16, src, n, NULL, NULL);
}

/* ---- any two formats, with options ---- */

/* Replace the subnormals in a tile of f32, f16 or bf16 codes (see mpti_flushes) by zeros of the same sign,
 * two or four codes at a time; `one` and `sign` are the lowest and the highest bit of each. */
static int mpti_flushes(mpt_format f) { return f == MPT_F32 || f == MPT_F16 || f == MPT_BF16; }
static void mpti_flush_tile(mpt_format f, uint64_t *tile)
{
    const int      bits = f == MPT_F32 ? 32 : 16;
    const uint64_t one = ~(uint64_t)0 / ((MPTI_ONE << bits) - 1u), sign = one << (bits - 1);
    const uint64_t field = one * (f == MPT_F32 ? 0x7f800000u : f == MPT_F16 ? 0x7c00u : 0x7f80u);
    int            i;
    for (i = 0; i < MPTI_TILE * bits / 64; i++) {
        const uint64_t normal = ((tile[i] & field) + (sign - one)) & sign;     /* the field is not 0 */
        tile[i] &= sign | (normal - (normal >> (bits - 1)));
    }
}

/* A code of 1, 2, 4 or 8 bytes in memory, by copies whose size compilers know. */
#define MPTI_LOAD(T) case sizeof(T): { T x; memcpy(&x, p, sizeof x); return x; }
MPTI_NOINLINE static uint64_t mpti_load_code(const void *p, int bytes)
{
    switch (bytes) {
        MPTI_LOAD(uint64_t) MPTI_LOAD(uint32_t) MPTI_LOAD(uint16_t)
    default: return *(const unsigned char *)p;
    }
}

#define MPTI_STORE(T) case sizeof(T): { const T x = (T)code; memcpy(p, &x, sizeof x); break; }
MPTI_NOINLINE static void mpti_store_code(void *p, int bytes, uint64_t code)
{
    switch (bytes) {
        MPTI_STORE(uint64_t) MPTI_STORE(uint32_t) MPTI_STORE(uint16_t)
    default: *(unsigned char *)p = (unsigned char)code;
    }
}

/* The random words of one Philox counter, `block`, kept for the next elements: eight neighbours share it. */
typedef struct mpti_words { mpt_philox_words of; uint64_t block; } mpti_words;
static const mpti_words mpti_no_words = {{{0u, 0u, 0u, 0u}}, ~(uint64_t)0};

MPTI_NOINLINE static uint32_t mpti_word_at(mpti_words *w, const mpt_opts *o, uint64_t element)
{
    const uint64_t block = element >> 3;
    if (w->block != block) {
        w->of = mpt_philox4x32((uint32_t)block, (uint32_t)(block >> 32), o->stream, (uint32_t)o->step,
                               mpti_philox_key(o->seed, o->step));
        w->block = block;
    }
    return element & 4u ? mpti_swap_halves(w->of.word[element & 3u]) : w->of.word[element & 3u];
}

/* Set the option that differs from element to element, at->random, for element i. */
static void mpti_opts_at(mpt_opts *at, const mpt_opts *o, uint64_t i, mpti_words *words)
{
    if (o->rounding == MPT_RND_STOCHASTIC)
        at->random = o->randoms ? o->randoms[i] : mpti_word_at(words, o, o->first_element + i);
}

/* One side of a conversion, source or destination: the format of its elements and their layout in memory. */
typedef struct mpti_side {
    mpt_format             format;
    const mpt_format_info *info;
    ptrdiff_t              stride;
    int                    swap;    /* whether the byte order is not this machine's */
} mpti_side;

static mpti_side mpti_side_of(mpt_format format, mpt_byte_order order)
{
    const uint16_t one = 1u;            /* its first byte in memory tells this machine's order */
    const int      swap = order != MPT_NATIVE_ENDIAN && (order == MPT_BIG_ENDIAN) == *(const uint8_t *)&one;
    const mpt_format_info *const info = mpt_format_get(format);
    const mpti_side              side = {format, info, info ? info->bytes : 0, swap};
    return side;
}

/* `array` is not const, or gcc warns of arrays that the caller has not written yet. */
static int mpti_bad_side(const mpti_side *side, void *array, size_t n)
{
    return !side->info || mpti_no_strided(array, n, side->stride);
}

static int mpti_is_packed(const mpti_side *side) { return side->stride == side->info->bytes && !side->swap; }

/* Copy n elements between memory and a tile. Copies whose size compilers know take a quarter of the time. */
#define MPTI_LAY(width)                                                                             \
    for (i = 0; i < n; i++)                                                                         \
        memcpy(to + (ptrdiff_t)i * to_apart, from + (ptrdiff_t)i * from_apart, width)
MPTI_NOINLINE static void mpti_lay(unsigned char *to, ptrdiff_t to_apart, const unsigned char *from,
                                   ptrdiff_t from_apart, size_t bytes, size_t n)
{
    size_t i;
    if (to_apart == from_apart)
        memcpy(to, from, n * bytes);
    else if (bytes == 2u)
        MPTI_LAY(2u);
    else if (bytes == 4u)
        MPTI_LAY(4u);
    else
        MPTI_LAY(bytes);
}

/* Reverse the bytes of each element of a tile, eight bytes at a time. */
static void mpti_swap(uint64_t *tile, size_t bytes, size_t n)
{
    size_t i;
    for (i = 0; bytes > 1u && i < (n * bytes + 7u) / 8u; i++) {
        uint64_t u = tile[i];
        u = (u & 0x00ff00ff00ff00ffu) << 8 | (u >> 8 & 0x00ff00ff00ff00ffu);
        if (bytes > 2u)
            u = (u & 0x0000ffff0000ffffu) << 16 | (u >> 16 & 0x0000ffff0000ffffu);
        tile[i] = bytes > 4u ? u << 32 | u >> 32 : u;
    }
}

/* Results for one-byte source codes, by code, as stored in memory; valid where `known` is set. */
typedef struct mpti_memo { uint64_t result[256]; uint8_t known[256]; } mpti_memo;

/* Convert a tile between packed buffers in this machine's byte order, element by element. A float or double
 * that is normal in the destination, below its highest binade, only needs a new exponent bias and rounding.
 * (Subnormal floats are not among these: no format that gets here has normal numbers below float's.) Where
 * the result does not depend on the element's position, one-byte source codes seen before are copied from
 * `memo`; their flags are raised. A copy stores 8 bytes: the next overwrites the rest; the last has room. */
static void mpti_convert_slow(const mpti_side *d, void *dst, const mpti_side *s, const void *src, size_t n,
                              const mpt_opts *o, uint64_t first, mpti_memo *memo, unsigned *flags)
{
    const mpt_format_info *f = d->info;
    const int            m = f->mantissa_bits, drop = 52 - m, floats = s->format == MPT_F32;
    const uint64_t       range = f->sign_bits && drop > 0 && (floats || s->format == MPT_F64)
                                     ? (uint64_t)(f->emax - f->emin) : 0u;
    const int            keeps = s->info->bytes == 1 && o->rounding != MPT_RND_STOCHASTIC;
    const int            out = d->info->bytes;
    unsigned char       *to = (unsigned char *)dst;
    const unsigned char *from = (const unsigned char *)src;
    mpt_opts             at = *o;
    mpti_words           words = mpti_no_words;
    size_t               i;
    for (i = 0;; i++, from += s->info->bytes, to += out) {
        uint64_t code, u;
        for (; keeps && i < n && memo->known[*from]; i++, from++, to += out)
            memcpy(to, &memo->result[*from], 8u);
        if (i == n)
            break;
        code = mpti_load_code(from, s->info->bytes);
        mpti_opts_at(&at, o, first + i, &words);
        u = floats ? (code >> 31 << 63) + ((code & 0x7fffffffu) << 29) + (MPTI_ONE * 896u << 52) : code;
        if ((u >> 52 & 0x7ffu) - (uint64_t)(f->emin + 1023) < range) {
            const uint64_t kept = (u & ~(MPTI_ONE << 63)) >> drop, rest = u << (64 - drop);
            const unsigned sign = (unsigned)(u >> 63);
            if (rest)
                *flags |= MPT_FLAG_INEXACT;
            u = kept - ((uint64_t)(f->emin + 1022) << m) + ((uint64_t)sign << (f->bits - 1)) +
                (uint64_t)(o->rounding == MPT_RND_STOCHASTIC
                               ? at.random < rest >> 32
                               : mpti_round_up(&at, sign, (unsigned)kept & 1u, u, drop));
        } else
            u = mpti_encode_bits(f, mpti_f64_of_code(s->info, code, o->flush), &at, flags);
        mpti_store_code(to, out, u);
        if (keeps) {
            mpti_store_code(&memo->result[*from], out, u);
            memo->known[*from] = 1u;
        }
    }
}

/* ---- stochastic rounding, float to f16 and bf16 ---- */

/* The round keys of Philox and the counter words that do not change, computed once per call. */
typedef struct mpti_philox_keys { uint32_t first[10], second[10], stream, step; } mpti_philox_keys;

static mpti_philox_keys mpti_philox_schedule(uint64_t seed, uint32_t stream, uint64_t step)
{
    mpti_philox_keys key;
    uint32_t         i;
    seed = mpti_philox_key(seed, step);
    key.stream = stream, key.step = (uint32_t)step;
    for (i = 0; i < 10u; i++) {
        key.first[i] = (uint32_t)seed + i * 0x9e3779b9u;
        key.second[i] = (uint32_t)(seed >> 32) + i * 0xbb67ae85u;
    }
    return key;
}

/* The Philox words for a tile of elements, from counter `block` on: four words for eight elements. The
 * counter is element / 8, so 0 follows 2^61 - 1. One array per word of the state lets compilers vectorize. */
enum { MPTI_COUNTERS = MPTI_TILE / 8 };
static void mpti_random_portable(uint32_t *words, uint64_t block, const mpti_philox_keys *key)
{
    uint32_t c0[MPTI_COUNTERS], c1[MPTI_COUNTERS], c2[MPTI_COUNTERS], c3[MPTI_COUNTERS];
    uint32_t i, round;
    for (i = 0; i < MPTI_COUNTERS; i++) {
        c0[i] = (uint32_t)(block + i);
        c1[i] = (uint32_t)((block + i) >> 32) & 0x1fffffffu;
        c2[i] = key->stream;
        c3[i] = key->step;
    }
    for (round = 0; round < 10u; round++)
        for (i = 0; i < MPTI_COUNTERS; i++) {
            const uint64_t p0 = (uint64_t)0xd2511f53u * c0[i], p1 = (uint64_t)0xcd9e8d57u * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ key->first[round];
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ key->second[round];
            c3[i] = (uint32_t)p0;
        }
    for (i = 0; i < MPTI_COUNTERS; i++, words += 4)
        words[0] = c0[i], words[1] = c1[i], words[2] = c2[i], words[3] = c3[i];
}

/* Turn the words of a group into one random word per element, the same as from mpt_philox. */
MPTI_INLINE void mpti_random_of_group(uint32_t *random, const unsigned char *words)
{
    int i, k;
    for (i = 0; i < MPTI_GROUP; i += 8, random += 8, words += 16)
        for (k = 0; k < 4; k++) {
            memcpy(random + k, words + 4 * k, 4);
            random[k + 4] = mpti_swap_halves(random[k]);
        }
}

/* Kernels for stochastic rounding: `a` points to the floats, `b` to their Philox words. */
MPTI_PORTABLE_GROUPS(MPTI_TWICE, mpti_f16_stochastic_n, uint16_t, uint32_t, uint32_t,
                     uint32_t random[MPTI_GROUP]; mpti_random_of_group(random, b); b += sizeof random / 2u,
                     mpti_f16_stochastic(in, random[i]), (void)0)
MPTI_PORTABLE_GROUPS(MPTI_ONCE, mpti_bf16_stochastic_n, uint16_t, uint32_t, uint32_t,
                     uint32_t random[MPTI_GROUP]; mpti_random_of_group(random, b); b += sizeof random / 2u,
                     mpti_bf16_stochastic(in, random[i]), (void)0)

#if MPTI_X86
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_xor_512, mpti_v16, MPTI_OF_3("vpxord"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_min_512, mpti_v16, MPTI_OF_3("vpminud"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_shift_up_512, mpti_v16, MPTI_OF_3("vpsllvd"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_shift_down_512, mpti_v16, MPTI_OF_3("vpsrlvd"))

/* The Philox state of a vector of counters, four or eight. Each 64-bit lane has a counter's word in its low
 * half and ignores the high half, so that products need no masking. The final unpack instructions restore the
 * order of the counters. Compilers find none of this: 2.7 times as fast as what they make of the loop above.
 * In a round, a shuffle takes the upper half of one product, a shift that of the other: they use different
 * units. Two sets of counters hide the latency. A call makes words for whole groups, at least n elements. */
#define MPTI_PHILOX(bits, target, place, V, Q, ...)                                                      \
    MPTI_BINARY(place, Q, mpti_mul_even_##bits, V, MPTI_OF_3("vpmuludq"))                                \
    MPTI_BINARY(place, V, mpti_pairs_low_##bits, Q, MPTI_OF_3("vpunpcklqdq"))                            \
    MPTI_BINARY(place, V, mpti_pairs_high_##bits, Q, MPTI_OF_3("vpunpckhqdq"))                           \
    typedef struct mpti_philox_##bits { V c0, c1, c2, c3; } mpti_philox_##bits;                          \
    place mpti_philox_##bits mpti_philox_begin_##bits(uint64_t block, const mpti_philox_keys *key)       \
    {                                                                                                    \
        const Q                  order = {__VA_ARGS__}, counter = order + block;                         \
        const mpti_philox_##bits x = {(V)counter, (V)(counter >> 32 & 0x1fffffffu),                      \
                                      mpti_all_##bits(key->stream), mpti_all_##bits(key->step)};         \
        return x;                                                                                        \
    }                                                                                                    \
    place mpti_philox_##bits mpti_philox_round_##bits(mpti_philox_##bits x, uint32_t k0, uint32_t k1)    \
    {                                                                                                    \
        const Q p0 = mpti_mul_even_##bits(x.c0, mpti_all_##bits(0xd2511f53u));                           \
        const Q p1 = mpti_mul_even_##bits(x.c2, mpti_all_##bits(0xcd9e8d57u));                           \
        V       upper;                                                                                   \
        __asm__("vpshufd {$0xf5, %1, %0|%0, %1, 0xf5}" : "=v"(upper) : "v"(p0));                         \
        x.c0 = (V)(p1 >> 32) ^ x.c1 ^ mpti_all_##bits(k0);                                               \
        x.c2 = upper ^ x.c3 ^ mpti_all_##bits(k1);                                                       \
        x.c1 = (V)p1;                                                                                    \
        x.c3 = (V)p0;                                                                                    \
        return x;                                                                                        \
    }                                                                                                    \
    place void mpti_philox_end_##bits(unsigned char *words, mpti_philox_##bits x)                        \
    {                                                                                                    \
        const Q a = ((Q)x.c0 & 0xffffffffu) | (Q)x.c1 << 32;                                             \
        const Q b = ((Q)x.c2 & 0xffffffffu) | (Q)x.c3 << 32;                                             \
        mpti_put_##bits(words, mpti_pairs_low_##bits(a, b), 0);                                          \
        mpti_put_##bits(words + sizeof a, mpti_pairs_high_##bits(a, b), 0);                              \
    }                                                                                                    \
    target static void mpti_random_##bits(uint32_t *words, uint64_t block, size_t n,                     \
                                          const mpti_philox_keys *key)                                   \
    {                                                                                                    \
        unsigned char *to = (unsigned char *)words;                                                      \
        const uint64_t end = block + (n + MPTI_GROUP - 1u) / MPTI_GROUP * (MPTI_GROUP / 8u);             \
        int            i;                                                                                \
        for (; block < end; block += sizeof(V) / 4u, to += 4u * sizeof(V)) {                             \
            mpti_philox_##bits x = mpti_philox_begin_##bits(block, key);                                 \
            mpti_philox_##bits y = mpti_philox_begin_##bits(block + sizeof(V) / 8u, key);                \
            for (i = 0; i < 10; i++) {                                                                   \
                x = mpti_philox_round_##bits(x, key->first[i], key->second[i]);                          \
                y = mpti_philox_round_##bits(y, key->first[i], key->second[i]);                          \
            }                                                                                            \
            mpti_philox_end_##bits(to, x);                                                               \
            mpti_philox_end_##bits(to + 2u * sizeof(V), y);                                              \
        }                                                                                                \
        MPTI_NARROW();                                                                                   \
    }
MPTI_PHILOX(256, MPTI_AVX2_TARGET, MPTI_IN_256, mpti_v8, mpti_q4, 0, 2, 1, 3)
MPTI_PHILOX(512, MPTI_AVX512_TARGET, MPTI_IN_512, mpti_v16, mpti_q8, 0, 4, 1, 5, 2, 6, 3, 7)

MPTI_BINARY(MPTI_IN_256, mpti_v8, mpti_min_256, mpti_v8, MPTI_OF_3("vpminud"))

/* As mpti_bf16_stochastic_16_512. Lanes 0 to 3 take the upper halves of four words, the others the lower. */
MPTI_IN_256 mpti_v8 mpti_bf16_stochastic_8_256(const unsigned char *p, const unsigned char *words)
{
    const mpti_v8 u = mpti_bf16_nan_256(mpti_load_256(p)), a = u & 0x7fffffffu;
    const mpti_v8 shift = {16, 16, 16, 16, 0, 0, 0, 0}, finite = mpti_above_256(mpti_all_256(0x7f800000u), a);
    mpti_v8       r;
    __asm__("vbroadcasti128 {%1, %0|%0, %1}" : "=x"(r) : "m"(*(const mpti_w8_any *)(const void *)words));
    r = mpti_min_256(a + (~r >> shift & 0xffffu), mpti_all_256(0x7f7fffffu));
    return (r & finite) | (a & ~finite) | (u & 0x80000000u);
}
MPTI_KERNEL_256(mpti_bf16_stochastic_256, 1, 16, 4, 2,
    (mpti_put_256(to, mpti_upper_halves_256(mpti_bf16_stochastic_8_256(a, b),
                                            mpti_bf16_stochastic_8_256(a + 32, b + 16)), how), b += 32))

/* The complements of the random words of 32 elements: 16 Philox words, each used for two elements. */
MPTI_IN_512 void mpti_random_in_512(mpti_v16 *r, const unsigned char *p)
{
    const mpti_q8 low = {0, 1, 8, 9, 2, 3, 10, 11}, high = {4, 5, 12, 13, 6, 7, 14, 15};
    mpti_v16      x = mpti_xor_512(mpti_load_512(p), mpti_all_512(0xffffffffu)), swapped;
    __asm__("vprold {$16, %1, %0|%0, %1, 16}" : "=v"(swapped) : "v"(x));
    r[0] = r[1] = x;
    __asm__(MPTI_OF_3("vpermt2q") : "+v"(r[0]) : "v"(low), "v"(swapped));
    __asm__(MPTI_OF_3("vpermt2q") : "+v"(r[1]) : "v"(high), "v"(swapped));
}

/* To round up with probability (dropped part) / (gap), add the complement of the random bits and truncate:
 * the sum carries exactly if the random bits are less than the dropped part. So `random` holds complements
 * here. Numbers that are normal in f16 drop 13 bits. Truncation never turns a finite number into Inf. */
MPTI_IN_512 mpti_w16 mpti_f16_stochastic_16_512(mpti_v16 u, mpti_v16 random)
{
    const mpti_v16 a = u & 0x7fffffffu, add = random >> 19;
    __asm__("vpcmpltud {%2, %1, %%k1|k1, %1, %2}\n\tvpaddd {%3, %0, %0%{%%k1%}|%0%{k1%}, %0, %3}"
            : "+v"(u) : "v"(a), "v"(mpti_all_512(0x47800000u)), "v"(add) : "k1");
    return mpti_halves_cut_512(u);
}

/* h, with the codes of numbers that are subnormal in f16 filled in. Of these, 126 - (exponent field of the
 * float) bits are dropped, the hidden bit perhaps too. Vector shifts by 32 and more give 0. */
MPTI_IN_512 mpti_w16 mpti_f16_stochastic_tiny_512(mpti_w16 h, mpti_v16 u, mpti_v16 random)
{
    const mpti_v16 a = u & 0x7fffffffu, one = mpti_all_512(1u), own = mpti_max_512(a >> 23, one);
    const mpti_v16 sig = a - ((own - 1u) << 23), drop = 126u - own;
    const mpti_v16 gap = mpti_shift_up_512(sig, 32u - drop) | mpti_shift_down_512(sig, drop - 32u);
    mpti_v16       code = mpti_shift_down_512(sig, drop) | (u >> 16 & 0x8000u);
    __asm__("vpcmpltud {%1, %2, %%k1|k1, %2, %1}\n\tvpaddd {%3, %0, %0%{%%k1%}|%0%{k1%}, %0, %3}"
            : "+v"(code) : "v"(random), "v"(0xffffffffu - gap), "v"(one) : "k1");
    __asm__("vpcmpltud {%3, %2, %%k1|k1, %2, %3}\n\tvpmovdw {%1, %0%{%%k1%}|%0%{k1%}, %1}"
            : "+v"(h) : "v"(code), "v"(a - 1u), "v"(mpti_all_512(0x387fffffu)) : "k1");
    return h;
}

MPTI_IN_512 void mpti_f16_stochastic_32_512(unsigned char *p, mpti_v16 x, mpti_v16 y,
                                            const unsigned char *words, int how)
{
    mpti_w16 h, k;
    mpti_v16 r[2];
    int      tiny;
    mpti_random_in_512(r, words);
    h = mpti_f16_stochastic_16_512(x, r[0]);
    k = mpti_f16_stochastic_16_512(y, r[1]);
    __asm__(MPTI_ANY("vpcmpltud {%2, %1, %%k1|k1, %1, %2}")
            : "=@ccnz"(tiny)
            : "v"(mpti_min_512((x & 0x7fffffffu) - 1u, (y & 0x7fffffffu) - 1u)),
                "v"(mpti_all_512(0x387fffffu))
            : "k1");
    if (tiny) {
        h = mpti_f16_stochastic_tiny_512(h, x, r[0]);
        k = mpti_f16_stochastic_tiny_512(k, y, r[1]);
    }
    mpti_put_w16_512(p, h, how);
    mpti_put_w16_512(p + 32, k, how);
}
MPTI_KERNEL_FOR(MPTI_AVX512_TARGET, MPTI_AROUND | MPTI_AHEAD, (void)0, mpti_f16_stochastic_512, 1, 32, 4, 2,
    (mpti_f16_stochastic_32_512(to, mpti_load_512(a), mpti_load_512(a + 64), b, how), b += 64))

/* bf16 drops 16 bits everywhere, subnormals included; the minimum keeps finite numbers below Inf. */
MPTI_IN_512 mpti_v16 mpti_bf16_stochastic_16_512(mpti_v16 u, mpti_v16 random)
{
    const mpti_v16 up = (u & 0x7fffffffu) + (random >> 16);
    mpti_v16       a = u & 0x7fffffffu;
    __asm__("vpcmpltud {%1, %0, %%k1|k1, %0, %1}\n\tvpminud {%3, %2, %0%{%%k1%}|%0%{k1%}, %2, %3}"
            : "+v"(a) : "v"(mpti_all_512(0x7f800000u)), "v"(up), "v"(mpti_all_512(0x7f7fffffu)) : "k1");
    return mpti_unless_nan_512(a | (u & 0x80000000u), u);
}

MPTI_IN_512 mpti_v16 mpti_bf16_stochastic_32_512(mpti_v16 x, mpti_v16 y, const unsigned char *words)
{
    mpti_v16 r[2];
    mpti_random_in_512(r, words);
    return mpti_upper_halves_512(mpti_bf16_stochastic_16_512(x, r[0]), mpti_bf16_stochastic_16_512(y, r[1]));
}
MPTI_KERNEL_FOR(MPTI_AVX512_TARGET, MPTI_AROUND | MPTI_AHEAD, (void)0, mpti_bf16_stochastic_512, 1, 32, 4, 2,
    (mpti_put_512(to, mpti_bf16_stochastic_32_512(mpti_load_512(a), mpti_load_512(a + 64), b), how), b += 64))
#endif

/* Round floats to f16, or bf16 (`brain`), with the random words of elements from o->first_element on, tile by
 * tile: memory works while words are computed. Elements that share a counter with earlier ones go one by one.
 * The first tile ends where the next ones begin at a cache line, if it can. */
typedef struct mpti_stochastic_job {
    int                  brain, around;
    unsigned char       *to;
    const unsigned char *from;
    const mpt_opts      *o;
} mpti_stochastic_job;

static void mpti_stochastic_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t n)
{
    const mpti_stochastic_job c = *(const mpti_stochastic_job *)context;
    const uint64_t            first = c.o->first_element;
    const int                 path = mpti_path(), vectors = path >= MPTI_PATH_AVX512;
    const size_t              few = n - begin < (vectors ? 8u : 32u) ? n : 0u;  /* a tile costs more */
    mpti_philox_keys          key;
    mpti_kernel              *kernel = c.brain ? mpti_bf16_stochastic_n : mpti_f16_stochastic_n;
    mpti_words                one = mpti_no_words;
    uint32_t                  words[MPTI_TILE / 2] MPTI_ALIGNED;
    size_t                    i, count, whole;
    int                       how;
#if MPTI_X86
    if (vectors)
        kernel = c.brain ? mpti_bf16_stochastic_512 : mpti_f16_stochastic_512;
    else if (c.brain && path >= MPTI_PATH_AVX2)
        kernel = mpti_bf16_stochastic_256;
#endif
    for (i = begin; i < n && (i < few || (first + i) % 8u); i++) {
        const uint32_t u = (uint32_t)mpti_load_code(c.from + 4u * i, 4);
        const uint32_t random = mpti_word_at(&one, c.o, first + i);
        mpti_store_code(c.to + 2u * i, 2,
                        c.brain ? mpti_bf16_stochastic(u, random) : mpti_f16_stochastic(u, random));
    }
    key = mpti_philox_schedule(c.o->seed, c.o->stream, c.o->step);
    for (; i < n; i += count) {
        const uint64_t block = (first + i) / 8u;
        const size_t   past = (uintptr_t)(c.to + 2u * i) % 64u;
        mpti_job       j = mpti_job_of(kernel, c.to + 2u * i, 2, c.from + 4u * i, 4, 0);
        count = past % 16u ? MPTI_TILE : MPTI_TILE - past / 2u;
        count = n - i < count ? n - i : count;
        whole = count - count % MPTI_GROUP;
#if MPTI_X86
        if (path >= MPTI_PATH_AVX2)
            (vectors ? mpti_random_512 : mpti_random_256)(words, block, count, &key);
        else
#endif
            mpti_random_portable(words, block, &key);
        j.from[1] = (const unsigned char *)words;
        how = !vectors || !c.around ? 0 : past ? MPTI_AHEAD : MPTI_AROUND;      /* whole lines only */
        mpti_run_groups(&j, 0, whole / MPTI_GROUP, how);
        j.from[1] += 2u * whole;
        if (whole < count)
            mpti_run_few(&j, whole, count - whole);
    }
#if MPTI_X86
    if (vectors && c.around)
        __asm__ volatile("sfence" : : : "memory");
#endif
}

MPTI_DEF mpt_status mpt_stochastic_n(mpt_format format, void *dst, const float *src, size_t n,
                                     const mpt_opts *opts)
{
    mpti_stochastic_job j = {format == MPT_BF16, dst != (const void *)src && n > MPTI_AROUND_BYTES / 6u,
                             (unsigned char *)dst, (const unsigned char *)src, opts};
    if (mpti_bad_array(dst, 2, src, sizeof *src, n) || !opts)
        return MPT_E_ARG;
    if (format != MPT_F16 && format != MPT_BF16)
        return MPT_E_UNSUPPORTED;
    (void)MPTI_IN_PARTS(n, mpti_part_least(MPTI_SLOW_PART, dst, 2, src, 4, n), mpti_stochastic_range, &j);
    return MPT_OK;
}

/* ---- any two formats ---- */

/* A conversion, as the parts see it into which MPTI_IN_PARTS (>>H12) splits it. */
enum { MPTI_LOOKED = 2 };
typedef struct mpti_converting {
    const mpti_side     *d, *s;
    unsigned char       *to;
    const unsigned char *from;
    const mpt_opts      *opts;
    int                  fast;      /* use kernels; 1: always; MPTI_LOOKED: if mpti_tile_is_normal */
    int                  how;       /* for kernels: MPTI_SATURATE if that is the only option, else 0 */
    unsigned             flush;     /* MPT_FLUSH_*: flush the tiles before and after the kernels */
    unsigned             raised[MPTI_PARTS];
} mpti_converting;

static void mpti_copy_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_converting *c = (const mpti_converting *)context;
    const size_t           bytes = (size_t)c->d->info->bytes;
    memmove(c->to + begin * bytes, c->from + begin * bytes, (end - begin) * bytes);
}

/* Are the floats of a tile all zeros or in the range of the format's normal numbers? Then only the rounding
 * option has an effect, and only INEXACT can be raised, which is done here. */
static int mpti_tile_is_normal(const mpt_format_info *f, const unsigned char *from, unsigned *raised)
{
    const uint32_t least = mpti_float_of(mpti_f64_bits(f->min_normal));
    const uint32_t span = mpti_float_of(mpti_f64_bits(f->max_finite)) - least;
    uint32_t       a, bits = 0u, beyond = 0u;
    int            i;
    for (i = 0; i < MPTI_TILE; i++) {
        memcpy(&a, from + 4 * i, 4);
        bits |= a &= 0x7fffffffu;
        beyond |= (uint32_t)(a - least > span) & (uint32_t)(a != 0u);
    }
    if (!beyond && mpti_drops(bits, 23 - f->mantissa_bits))
        *raised |= MPT_FLAG_INEXACT;
    return !beyond;
}

static void mpti_convert_range(void *context, size_t part, size_t begin, size_t end)
{
    mpti_converting *const c = (mpti_converting *)context;
    const mpti_side *const d = c->d, *const s = c->s;
    uint64_t               in[MPTI_TILE], out[MPTI_TILE];
    mpti_memo              memo;
    unsigned               raised = 0u;
    size_t                 i;
    memset(memo.known, 0, sizeof memo.known);
    for (i = begin; i < end; i += MPTI_TILE) {
        const size_t take = end - i < MPTI_TILE ? end - i : MPTI_TILE;
        const int    look = c->fast == MPTI_LOOKED && take >= 64u;  /* with fewer, no gain */
        if (take < MPTI_TILE && (c->flush || look))
            memset(in, 0, sizeof in), memset(out, 0, sizeof out);
        mpti_lay((unsigned char *)in, s->info->bytes, c->from + (ptrdiff_t)i * s->stride, s->stride,
                 (size_t)s->info->bytes, take);
        if (s->swap)
            mpti_swap(in, (size_t)s->info->bytes, take);
        if (c->flush & MPT_FLUSH_INPUTS)
            mpti_flush_tile(s->format, in);
        if (c->fast && d->format == s->format)
            memcpy(out, in, take * (size_t)d->info->bytes);
        else if (!(c->fast == 1 || (look && mpti_tile_is_normal(d->info, (unsigned char *)in, &raised))) ||
                 !mpti_convert_fast(d->format, out, s->format, in, take, c->how))
            mpti_convert_slow(d, out, s, in, take, c->opts, i, &memo, &raised);
        if (c->flush & MPT_FLUSH_RESULTS)
            mpti_flush_tile(d->format, out);
        if (d->swap)
            mpti_swap(out, (size_t)d->info->bytes, take);
        mpti_lay(c->to + (ptrdiff_t)i * d->stride, d->stride, (unsigned char *)out, d->info->bytes,
                 (size_t)d->info->bytes, take);
    }
    c->raised[part] = raised;
}

static mpt_status mpti_convert(const mpti_side *d, void *dst, const mpti_side *s, const void *src, size_t n,
                               const mpt_opts *opts, unsigned *flags)
{
    const int       set = mpti_opts_set(opts);
    mpti_range_fn  *range = mpti_convert_range;
    mpti_converting c;
    size_t          parts;
    if (mpti_bad_side(d, dst, n) || mpti_bad_side(s, (void *)(uintptr_t)src, n) || mpti_refused_opts(opts))
        return MPT_E_ARG;
    if (d->stride == d->info->bytes && s->stride == s->info->bytes
            ? mpti_clobbers(dst, (size_t)d->stride, src, (size_t)s->stride, n)
            : mpti_strides_clash(dst, (size_t)d->info->bytes, d->stride, src, (size_t)s->info->bytes,
                                 s->stride, n))
        return MPT_E_ARG;
    c.d = d, c.s = s;
    c.to = (unsigned char *)dst, c.from = (const unsigned char *)src;
    c.opts = opts ? opts : &mpti_plain_opts;
    /* Saturation from a format to itself is no copy, which would keep Inf. */
    c.how = set == MPTI_SET_OVERFLOW && opts->overflow == MPT_OVERFLOW_SATURATE && d->format != s->format &&
            d->info->bits <= 8 ? MPTI_SATURATE : 0;
    c.fast = !flags && (c.how || !set), c.flush = 0u;
    if (!flags && set == MPTI_SET_FLUSH && d->format != s->format && mpti_flushes(d->format) &&
        mpti_flushes(s->format))
        c.fast = 1, c.flush = opts->flush;
    else if (!c.fast && c.opts->rounding == MPT_RND_NEAREST_EVEN && s->format == MPT_F32 &&
             d->info->bits <= 16 && mpti_kernel_of(MPTI_PAIR(d->format, MPT_F32)))
        c.fast = MPTI_LOOKED;
    if (n && !flags && !c.flush && mpti_is_packed(d) && mpti_is_packed(s)) {
        if (c.fast && d->format == s->format)
            range = mpti_copy_range;
        else if (c.fast == 1 && mpti_convert_fast(d->format, dst, s->format, src, n, c.how))
            return MPT_OK;
        else if (set == MPTI_SET_ROUNDING && opts->rounding == MPT_RND_STOCHASTIC && !opts->randoms &&
                 s->format == MPT_F32 && (d->format == MPT_F16 || d->format == MPT_BF16))
            return mpt_stochastic_n(d->format, dst, (const float *)src, n, opts);
    }
    parts = MPTI_IN_PARTS(n, mpti_part_least(s->info->bytes == 1 || range == mpti_copy_range ? MPTI_FAST_PART
                                                                                     : MPTI_SLOW_PART,
                                             dst, d->stride, src, s->stride, n), range, &c);
    for (; flags && parts; parts--)
        *flags |= c.raised[parts - 1];
    return MPT_OK;
}

MPTI_DEF mpt_status mpt_convert_n(mpt_format dst_format, void *dst, mpt_format src_format, const void *src,
                                 size_t n, const mpt_opts *opts, unsigned *flags)
{
    const mpti_side d = mpti_side_of(dst_format, MPT_NATIVE_ENDIAN);
    const mpti_side s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    if (!opts && !flags && d.info && s.info) {
        mpti_kernel *const kernel = mpti_kernel_of(MPTI_PAIR(dst_format, src_format));
        if (kernel)                     /* the usual call: 0.6 of a row's time */
            return mpti_convert_typed(kernel, dst, (size_t)d.info->bytes, src, (size_t)s.info->bytes, n, 0);
    }
    return mpti_convert(&d, dst, &s, src, n, opts, flags);
}

MPTI_DEF mpt_status mpt_convert_strided(mpt_format dst_format, void *dst, ptrdiff_t dst_stride,
                                       mpt_format src_format, const void *src, ptrdiff_t src_stride,
                                       size_t n, const mpt_opts *opts, unsigned *flags)
{
    mpti_side d = mpti_side_of(dst_format, MPT_NATIVE_ENDIAN);
    mpti_side s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    d.stride = dst_stride, s.stride = src_stride;
    return mpti_convert(&d, dst, &s, src, n, opts, flags);
}

MPTI_DEF mpt_status mpt_convert_bytes_n(mpt_format dst_format, void *dst, mpt_byte_order dst_order,
                                       mpt_format src_format, const void *src, mpt_byte_order src_order,
                                       size_t n, const mpt_opts *opts, unsigned *flags)
{
    const mpti_side d = mpti_side_of(dst_format, dst_order), s = mpti_side_of(src_format, src_order);
    if ((unsigned)dst_order > (unsigned)MPT_BIG_ENDIAN || (unsigned)src_order > (unsigned)MPT_BIG_ENDIAN)
        return MPT_E_ARG;
    return mpti_convert(&d, dst, &s, src, n, opts, flags);
}

static int mpti_fits(const mpt_format_info *f, uint64_t u, const mpt_opts *o)
{
    const uint64_t a = u & ~(MPTI_ONE << 63), inf = (uint64_t)0x7ff << 52;
    unsigned       flags = 0u;
    (void)mpti_encode_bits(f, u, o, &flags);
    return a > inf ? f->has_nan : a == inf ? f->has_inf : !(flags & (MPT_FLAG_OVERFLOW | MPT_FLAG_INVALID));
}

/* A search for bad elements: those that do not fit a format, or those that it does not have exactly. */
typedef struct mpti_seeking {
    const mpt_format_info *f;
    mpti_side              s;
    const unsigned char   *from;
    const mpt_opts        *o;           /* NULL: a number must be exact; else: it must fit, with these */
    size_t                 found[MPTI_PARTS], first[MPTI_PARTS];
} mpti_seeking;

/* Judge a float or double by its bits.  Returns: 1 good, 0 bad, -1 undecided. Up to the format's largest
 * number it fits; in the normal range it is exact if no bit is dropped. For floats that are not normal `a` is
 * wrong, but below the normal numbers or above the largest of all formats but f64, which has all floats. */
static int mpti_seek_look(const mpti_seeking *c, uint64_t code)
{
    uint64_t a = code & ~(MPTI_ONE << 63);
    if (!c->f->sign_bits || (c->s.format != MPT_F64 && c->s.format != MPT_F32))
        return -1;
    if (c->s.format == MPT_F32)
        a = ((code & 0x7fffffffu) << 29) + (MPTI_ONE * 896u << 52);
    if (a > mpti_f64_bits(c->f->max_finite) || (!c->o && a < mpti_f64_bits(c->f->min_normal)))
        return -1;
    return c->o || !mpti_drops(a, 52 - c->f->mantissa_bits);
}

/* Does any of n floats reach the pattern `limit` in magnitude? A tenth of a look at each. As signed numbers,
 * which SSE2 compares in one instruction. */
MPTI_INLINE int mpti_any_reaches(uint32_t limit, const unsigned char *from, size_t n)
{
    int32_t in, any = 0;
    size_t  i;
    for (i = 0; i < n; i++) {
        memcpy(&in, from + 4u * i, 4u);
        any |= (in & 0x7fffffff) >= (int32_t)limit;
    }
    return any;
}

static void mpti_seek_range(void *context, size_t part, size_t begin, size_t end)
{
    mpti_seeking *const c = (mpti_seeking *)context;
    mpti_words          words = mpti_no_words;
    mpt_opts            at = *(c->o ? c->o : &mpti_plain_opts);
    const uint32_t      over = mpti_float_of(mpti_f64_bits(c->f->max_finite)) + 1u;
    size_t              i, found = 0, first = 0;
    for (i = begin; i < end; i++) {
        const uint64_t code = mpti_load_code(c->from + (ptrdiff_t)i * c->s.stride, c->s.info->bytes);
        int            ok = mpti_seek_look(c, code);
        if (ok > 0 && c->o && c->s.format == MPT_F32 && (i - begin) % MPTI_TILE == 0 &&
            end - i >= MPTI_TILE && !mpti_any_reaches(over, c->from + 4u * i, MPTI_TILE)) {
            i += MPTI_TILE - 1u;
            continue;
        }
        if (ok < 0 && c->o) {
            mpti_opts_at(&at, c->o, i, &words);
            ok = mpti_fits(c->f, mpti_f64_of_code(c->s.info, code, c->o->flush), &at);
        } else if (ok < 0)
            ok = mpti_is_exact(c->f, mpti_f64_of_code(c->s.info, code, 0u));
        if (!ok && !found++)
            first = i;
        if (found && c->o)
            break;
    }
    c->found[part] = found, c->first[part] = first;
}

/* Returns: the number of bad elements (at most one per part if o is set); *first: the first, or n. */
static size_t mpti_seek(const mpt_format_info *f, const mpti_side *s, const void *src, size_t n,
                        const mpt_opts *o, size_t *first)
{
    mpti_seeking c;
    size_t       parts, found = 0;
    c.f = f, c.s = *s, c.from = (const unsigned char *)src, c.o = o;
    parts = MPTI_IN_PARTS(n, MPTI_SLOW_PART, mpti_seek_range, &c);
    for (*first = n; parts--; found += c.found[parts])
        if (c.found[parts])
            *first = c.first[parts];
    return found;
}

MPTI_DEF mpt_status mpt_convert_checked_n(mpt_format dst_format, void *dst, mpt_format src_format,
                                         const void *src, size_t n, const mpt_opts *opts, size_t *bad)
{
    const mpti_side              d = mpti_side_of(dst_format, MPT_NATIVE_ENDIAN);
    const mpti_side              s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    const mpt_format_info *const f = d.info, *const from = s.info;
    size_t                       first;
    if (mpti_bad_side(&d, dst, n) || mpti_bad_side(&s, (void *)(uintptr_t)src, n) ||
        mpti_refused_opts(opts) || mpti_clobbers(dst, (size_t)f->bytes, src, (size_t)from->bytes, n))
        return MPT_E_ARG;
    if (!(f->sign_bits >= from->sign_bits && f->max_finite >= from->max_finite &&
          f->has_inf >= from->has_inf && f->has_nan >= from->has_nan) &&        /* then all fit */
        mpti_seek(f, &s, src, n, opts ? opts : &mpti_plain_opts, &first)) {
        if (bad)
            *bad = first;
        return MPT_E_RANGE;
    }
    return mpti_convert(&d, dst, &s, src, n, opts, NULL);
}

/* Not inlined: seeing the early return, gcc warns callers who ignore the status. */
MPTI_DEF MPTI_NOINLINE mpt_status mpt_inexact_n(mpt_format format, mpt_format src_format, const void *src,
                                               size_t n, size_t *count, size_t *first)
{
    const mpt_format_info *const f = mpt_format_get(format);
    const mpti_side              s = mpti_side_of(src_format, MPT_NATIVE_ENDIAN);
    size_t                       found, at;
    if (!f || mpti_bad_side(&s, (void *)(uintptr_t)src, n))
        return MPT_E_ARG;
    found = mpti_seek(f, &s, src, n, NULL, &at);
    if (count)
        *count = found;
    if (first)
        *first = at;
    return MPT_OK;
}

/* ---- quantize ---- */

/* A format, prepared for rounding bit patterns of floats. All its numbers must be floats. */
typedef struct mpti_quantizer {
    const mpt_format_info *info;
    uint32_t shift;         /* bits dropped from a normal number's mantissa: 1 to 22 */
    uint32_t least_field;   /* exponent field, as a float, of the least normal number */
    uint32_t limit;         /* magnitudes from here on take the slow path: overflow, Inf, NaN */
    uint32_t zero_sign;     /* 0x80000000, or 0 where the format has no -0 */
    /* For vectors: only if half of the least number is a normal float (flushing could lose a subnormal one)
     * and `magic` is finite. Formats with float's exponents (bf16, TF32) round at one bit, without it. */
    int      has_vectors;
    uint32_t least, magic, over_bits, nan_keep, nan_bits;
} mpti_quantizer;

/* Returns: 0 if the format has no sign, exponents beyond float's, or more than 22 mantissa bits. */
static int mpti_quantizer_init(mpti_quantizer *q, const mpt_format_info *f)
{
    const int ieee = f->specials == MPT_SPECIALS_IEEE, finite = f->specials == MPT_SPECIALS_FINITE;
    const int magic_field = f->emin - f->mantissa_bits + 23 + 127, own_subnormals = f->emin == -126;
    if (!f->sign_bits || f->mantissa_bits > 22 || f->emin < -126 || f->emax > 127)
        return 0;
    q->info = f, q->shift = (uint32_t)(23 - f->mantissa_bits);
    q->least_field = (uint32_t)(f->emin + 127);
    q->limit = mpti_float_of(mpti_f64_bits(f->max_finite)) + 1u;
    q->zero_sign = f->specials == MPT_SPECIALS_FNUZ ? 0u : 0x80000000u;
    q->has_vectors = own_subnormals || (f->emin - f->mantissa_bits >= -125 && magic_field <= 254);
    q->least = own_subnormals ? 0u : q->least_field << 23;
    q->magic = own_subnormals ? 0u : (uint32_t)magic_field << 23;
    q->over_bits = ieee ? 0x7f800000u : finite ? q->limit - 1u : 0x7fc00000u;
    q->nan_keep = ieee ? ~((1u << q->shift) - 1u) : f->specials == MPT_SPECIALS_FN ? 0x80000000u : 0u;
    q->nan_bits = ieee ? 0x400000u : q->over_bits;
    return 1;
}

/* Round a float bit pattern below the limit to the format's nearest number, ties to even. `sig` has the
 * hidden bit 23, if there is one; more than 24 dropped bits leave 0. A carry increments the exponent. */
static inline uint32_t mpti_quantize_f32(uint32_t u, const mpti_quantizer *q)
{
    const uint32_t a = u & 0x7fffffffu, own = a >> 23 ? a >> 23 : 1u, sig = a - ((own - 1u) << 23);
    const uint32_t drop = q->shift + (q->least_field > own ? q->least_field - own : 0u);
    const uint32_t shift = drop < 25u ? drop : 25u, mask = (1u << shift) - 1u;
    const uint32_t kept = (sig + (mask >> 1) + (sig >> shift & 1u)) & ~mask;
    const uint32_t r = kept ? a - sig + kept : 0u;
    return r | (u & (r ? 0x80000000u : q->zero_sign));
}

MPTI_NOINLINE static uint64_t mpti_quantize_slow(const mpt_format_info *wide, const mpt_format_info *f,
                                                 uint64_t code, const mpt_opts *o)
{
    unsigned       unused = 0u;
    const uint64_t u = mpti_f64_of_code(wide, code, o->flush);
    return mpti_f64_of_code(f, mpti_encode_bits(f, u, o, &unused), 0u);
}

/* Correct the results of a group for patterns from the limit on, which are rare. */
static void mpti_quantize_specials(uint32_t *out, const unsigned char *from, const unsigned char *b)
{
    const mpti_quantizer  *q = (const mpti_quantizer *)(const void *)b;
    const mpt_format_info *f32 = mpt_format_get(MPT_F32);
    int                    i;
    for (i = 0; i < MPTI_GROUP; i++, from += 4) {
        const uint32_t in = (uint32_t)mpti_load_code(from, 4);
        if ((in & 0x7fffffffu) >= q->limit)
            out[i] = mpti_float_of(mpti_quantize_slow(f32, q->info, in, &mpti_plain_opts));
    }
}

/* A kernel: `a` points to the floats, `b` to the mpti_quantizer. */
MPTI_PORTABLE_GROUPS(MPTI_TWICE, mpti_quantize_n, uint32_t, uint32_t, uint32_t,
                     const mpti_quantizer q = *(const mpti_quantizer *)(const void *)b,
                     mpti_quantize_f32(in, &q),
                     if (mpti_any_reaches(q.limit, a, MPTI_GROUP)) mpti_quantize_specials(code, a, b))

#if MPTI_X86
MPTI_KERNEL_512(mpti_quantize_f16_512, 1, 16, 4, 4,
                mpti_put_512(to, mpti_floats_512(mpti_halves_512(mpti_load_512(a))), how))

MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_add_near_512, mpti_v16, MPTI_OF_3_ROUNDED("vaddps", "rn-sae"))
MPTI_BINARY(MPTI_IN_512, mpti_v16, mpti_sub_near_512, mpti_v16, MPTI_OF_3_ROUNDED("vsubps", "rn-sae"))

/* y where a < b (unsigned), x elsewhere. */
MPTI_IN_512 mpti_v16 mpti_but_below_512(mpti_v16 x, mpti_v16 y, mpti_v16 a, mpti_v16 b)
{
    __asm__("vpcmpltud {%3, %2, %%k1|k1, %2, %3}\n\tvmovdqa32 {%1, %0%{%%k1%}|%0%{k1%}, %1}"
            : "+v"(x) : "v"(y), "v"(a), "v"(b) : "k1");
    return x;
}

/* From the format's least normal number on, integers round at a fixed bit. Below it, adding `magic` rounds:
 * the power of two whose last bit, as a float, is worth the format's least number. Subtracting it is exact.
 * The results for overflow and NaN are some bits of the pattern, with constant bits set. */
MPTI_IN_512 mpti_v16 mpti_quantize_16_512(mpti_v16 u, const mpti_quantizer *q)
{
    const mpti_v16 a = u & 0x7fffffffu, magic = mpti_all_512(q->magic), most = mpti_all_512(q->limit - 1u);
    const uint32_t low = (1u << q->shift) - 1u;
    const mpti_v16 closest = (a + (low >> 1) + (a >> (int)q->shift & 1u)) & ~low;
    const mpti_v16 tiny = mpti_sub_near_512(mpti_add_near_512(a, magic), magic);
    const mpti_v16 r = mpti_but_below_512(closest, tiny, a, mpti_all_512(q->least));
    mpti_v16       x = r | (u & 0x80000000u);
    if (!q->zero_sign)
        x = mpti_but_below_512(x, r, r, mpti_all_512(1u));
    x = mpti_but_below_512(x, (u & q->zero_sign) | q->over_bits, most, r);
    return mpti_but_below_512(x, (u & q->nan_keep) | q->nan_bits, mpti_all_512(0x7f800000u), a);
}

MPTI_KERNEL_FOR(MPTI_AVX512_TARGET, MPTI_AROUND,
                const mpti_quantizer q = *(const mpti_quantizer *)(const void *)b,
                mpti_quantize_512, 1, 16, 4, 4,
                mpti_put_512(to, mpti_quantize_16_512(mpti_load_512(a), &q), how))
#endif

/* For a format that has all floats: only a NaN can change, it becomes quiet. */
MPTI_PORTABLE_GROUPS(MPTI_ONCE, mpti_quiet_n, uint32_t, uint32_t, uint32_t, (void)0,
                     in | (uint32_t)((in & 0x7fffffffu) > 0x7f800000u) << 22, (void)0)

/* Quantize one by one; or, to a format of the table, by converting there and back; or, by the kernel `fast`,
 * doubles as floats, rounded to odd (to nearest for f32). */
static void mpti_quantize_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_converting *const c = (const mpti_converting *)context;
    const int                    bytes = c->s->info->bytes;
    const size_t                 step = (size_t)bytes;
    mpti_words                   words = mpti_no_words;
    const size_t                 stop = end - begin < 8u ? begin : end;     /* a few are faster one by one */
    mpt_opts                     at = *c->opts;
    size_t                       i;
    for (i = begin; (c->fast || c->d->format < MPT_FORMAT_COUNT) && i < stop; i += MPTI_TILE) {
        const size_t   take = end - i < MPTI_TILE ? end - i : MPTI_TILE;
        unsigned char *to = c->to + step * i;
        union { uint64_t codes[MPTI_TILE]; float floats[MPTI_TILE]; } tile;
        if (c->fast) {
            mpti_job j = mpti_job_of(mpti_kernel_of(c->fast), tile.floats, 4, c->from + step * i, step, 0);
            mpti_run(&j, take);
            (void)mpt_quantize_as_n(tile.floats, tile.floats, take, c->d->info, NULL);
            (void)mpti_convert_fast(MPT_F64, to, MPT_F32, tile.floats, take, 0);
            continue;
        }
        at.first_element = c->opts->first_element + i;
        at.randoms = c->opts->randoms ? c->opts->randoms + i : NULL;
        (void)mpt_convert_n(c->d->format, tile.codes, c->s->format, c->from + step * i, take, &at, NULL);
        (void)mpt_convert_n(c->s->format, to, c->d->format, tile.codes, take, NULL, NULL);
    }
    for (; i < end; i++) {
        uint64_t u;
        mpti_opts_at(&at, c->opts, i, &words);
        u = mpti_quantize_slow(c->s->info, c->d->info, mpti_load_code(c->from + step * i, bytes), &at);
        mpti_store_code(c->to + step * i, bytes, bytes == 4 ? mpti_float_of(u) : u);
    }
}

static mpt_status mpti_quantize_each(mpt_format wide, void *dst, const void *src, size_t n,
                                     const mpt_format_info *info, const mpt_opts *opts)
{
    const mpti_side s = mpti_side_of(wide, MPT_NATIVE_ENDIAN);
    const size_t    bytes = (size_t)s.info->bytes;
    mpti_side       d = s;
    mpti_converting c;
    const int       all = info == mpt_format_get(MPT_F32);
    if (mpti_bad_array(dst, bytes, src, bytes, n) || !info || !info->bits || mpti_refused_opts(opts))
        return MPT_E_ARG;
    c.fast = wide == MPT_F64 && !mpti_opts_set(opts) && info->emax <= 127 &&
             (all || (info->mantissa_bits <= 21 && info->emin - info->mantissa_bits >= -147))
             ? MPTI_PAIR(all ? (int)MPT_F32 : (int)MPTI_ODD, MPT_F64) : 0;
    d.format = (mpt_format)0;
    while (d.format < MPT_FORMAT_COUNT && (mpt_format_get(d.format) != info || d.format == wide))
        d.format = (mpt_format)(d.format + 1);
    d.info = info, c.d = &d, c.s = &s, c.opts = opts ? opts : &mpti_plain_opts;
    c.to = (unsigned char *)dst, c.from = (const unsigned char *)src;
    (void)MPTI_IN_PARTS(n, mpti_part_least(MPTI_SLOW_PART, dst, s.stride, src, s.stride, n),
                        mpti_quantize_range, &c);
    return MPT_OK;
}

MPTI_DEF mpt_status mpt_quantize_as_n(float *dst, const float *src, size_t n, const mpt_format_info *info,
                                     const mpt_opts *opts)
{
    const int      all = info && info->has_inf && info->mantissa_bits >= 23 && info->emin <= -126 &&
                    info->emax >= 127;
    mpti_quantizer q;
    if (!mpti_bad_array(dst, 4, src, 4, n) && info && !mpti_opts_set(opts) &&
        (all || mpti_quantizer_init(&q, info))) {
        mpti_job j = mpti_job_of(all ? mpti_quiet_n : mpti_quantize_n, dst, 4, src, 4, 0);
#if MPTI_X86
        if (!all && mpti_path() >= MPTI_PATH_AVX512 && q.has_vectors)
            j.kernel = info == mpt_format_get(MPT_F16) ? mpti_quantize_f16_512 : mpti_quantize_512;
#endif
        j.from[1] = (const unsigned char *)&q;
        mpti_run(&j, n);
        return MPT_OK;
    }
    return mpti_quantize_each(MPT_F32, dst, src, n, info, opts);
}

MPTI_DEF mpt_status mpt_quantize_n(float *dst, const float *src, size_t n, mpt_format format,
                                  const mpt_opts *opts)
{
    return mpt_quantize_as_n(dst, src, n, mpt_format_get(format), opts);
}

MPTI_DEF mpt_status mpt_quantize_f64_n(double *dst, const double *src, size_t n, const mpt_format_info *info,
                                      const mpt_opts *opts)
{
    return mpti_quantize_each(MPT_F64, dst, src, n, info, opts);
}

MPTI_DEF const char *mpt_simd_name(void)
{
    static const char *const names[] = {"portable", "", MPTI_ARM ? "neon" : "sse2", "avx2", "avx512"};
    return names[mpti_path()];
}
#endif /* formats, arrays */

// >>H15 implementation: arithmetic -----------------------------------------------------------------
#if defined(MPT_HALF_IMPLEMENTATION) && !defined(MPT_NO_ARITHMETIC) && !defined(MPTI_HALF_ARITHMETIC)
#define MPTI_HALF_ARITHMETIC
/* The AVX2 kernels compute in float, then round to f16 or bf16. Why the second rounding does no harm:
 *
 * +, -, *: the exact result is rounded to float's 24 bits, then to p = 11 (f16) or 8 (bf16). Rounding twice
 * gives the same as rounding once if the wider format has at least 2p + 2 bits (Figueroa 1995, "When is
 * double rounding innocuous?"): 24 >= 2 * 11 + 2. Subnormal results: sums of f16 are multiples of 2^-24, and
 * products of f16 have 22 bits, none below 2^-48, so both are exact in float. Float keeps 16 bits below the
 * last bit of a bf16 subnormal; a product of 8-bit significands either is a tie between two bf16 subnormals
 * or differs from every tie within these 16 bits. (The tests try all pairs.)
 * fma: 2p + 2 bits are not enough. The exact sum is rounded to odd: of the floats next below and above it,
 * take the one whose last bit is 1. That bit works as a sticky bit, so 24 >= p + 2 bits suffice (Boldo &
 * Melquiond 2008). The processor rounds down to compute both: up(x) = -down(-x).
 *
 * The operations are inline assembler: -ffast-math, contraction and swapping of operands cannot affect them.
 * On x86 the control register is set for the call and then restored. NaN results are rare; they are computed
 * again from the codes, by the rules of >>H8. */
/* The operations. A kernel's `how` is the format's mantissa bits times MPTI_ARITH_BITS, an operation times
 * MPTI_ARITH, and flags such as MPTI_AROUND. */
enum { MPTI_ARITH_ADD, MPTI_ARITH_SUB, MPTI_ARITH_MUL, MPTI_ARITH_FMA, MPTI_ARITH = 8, MPTI_ARITH_BITS = 32 };

/* One element, with integers: the reference. a + b is fma(a, 1, b); a * b adds a zero of its own sign. */
MPTI_NOINLINE static void mpti_arith_1(int how, unsigned char *to, const unsigned char *a,
                                       const unsigned char *b, const unsigned char *c)
{
    const int op = how / MPTI_ARITH & 3, mbits = how / MPTI_ARITH_BITS;
    mpti_env  e = mpti_env_make(mbits, NULL);
    uint16_t  x[3];
    memcpy(&x[0], a, 2u);
    memcpy(&x[1], b, 2u);
    memcpy(&x[2], c, 2u);
    if (op == MPTI_ARITH_MUL) {
        x[2] = (x[0] ^ x[1]) & 0x8000u;
    } else if (op != MPTI_ARITH_FMA) {
        x[2] = (uint16_t)(op == MPTI_ARITH_SUB && !mpti_is_nan16(&e, x[1]) ? x[1] ^ 0x8000u : x[1]);
        x[1] = (uint16_t)(0x3fffu >> mbits << mbits);
    }
    x[0] = (uint16_t)(mpti_any_nan16(&e, x[0], x[1], x[2]) ? mpti_pick_nan16(&e, x[0], x[1], x[2])
                                                            : mpti_a_fma(&e, x[0], x[1], x[2]));
    memcpy(to, &x[0], 2u);
}

#if MPTI_X86
/* Replace the NaN among 32 results by those of the rules in >>H8. */
__attribute__((noinline, cold)) static void mpti_patch_nans(int how, uint16_t *r, const unsigned char *a,
                                                            const unsigned char *b, const unsigned char *c)
{
    const int mbits = how / MPTI_ARITH_BITS;
    size_t    i;
    for (i = 0; i < 32u; i++)
        if ((r[i] & 0x7fffu) > 0x7fffu >> mbits << mbits)
            mpti_arith_1(how, (unsigned char *)&r[i], a + 2u * i, b + 2u * i, c + 2u * i);
}

MPTI_BINARY(MPTI_IN_256, mpti_v8, mpti_sub_ps_256, mpti_v8, MPTI_OF_3("vsubps"))

/* a * b + c rounded to odd: the float below if its last bit is 1, else the float above. */
MPTI_IN_256 mpti_v8 mpti_fma_256(mpti_v8 a, mpti_v8 b, mpti_v8 c)
{
    mpti_v8 down = c, up = c;
    __asm__(MPTI_OF_3("vfmadd231ps") : "+v"(down) : "v"(a), "v"(b));
    __asm__(MPTI_OF_3("vfnmsub231ps") : "+v"(up) : "v"(a), "v"(b));
    up ^= 0x80000000u;
    __asm__("vblendvps {%2, %1, %0, %0|%0, %0, %1, %2}" : "+x"(up) : "x"(down), "x"(down << 31));
    return up;
}

/* Four vectors of results, from the kernel's x, y and z. */
#define MPTI_FOUR_OF(at) (r[0] = at(0), r[1] = at(1), r[2] = at(2), r[3] = at(3))
#define MPTI_ADD_AT(k) mpti_add_ps_256(x[k], y[k])
#define MPTI_SUB_AT(k) mpti_sub_ps_256(x[k], y[k])
#define MPTI_MUL_AT(k) mpti_mul_ps_256(x[k], y[k])
#define MPTI_FMA_AT(k) mpti_fma_256(x[k], y[k], z[k])

/* The kernel of a format, 32 elements in a turn. With two operands c is b. A branch in each turn chooses the
 * operation, which costs little. Vectors of 64 bytes gain 0 to 13% in L1, nothing out of cache. */
#define MPTI_ARITH_KERNEL(T)                                                                       \
    MPTI_AVX2_TARGET static void mpti_##T##_arith_256 MPTI_KERNEL_PARAMETERS                       \
    {                                                                                              \
        const int op = how / MPTI_ARITH & 3;                                                       \
        for (groups *= 2; groups; groups--, to += 64, a += 64, b += 64, c += 64) {                 \
            mpti_v8 x[4], y[4], z[4], r[4];                                                        \
            if (how & MPTI_AROUND) {                                                               \
                mpti_fetch_ahead(a, 64);                                                           \
                mpti_fetch_ahead(b, 64);                                                           \
                if (c != b)                                                                        \
                    mpti_fetch_ahead(c, 64);                                                       \
            }                                                                                      \
            mpti_##T##_in_256(x, a);                                                               \
            mpti_##T##_in_256(y, b);                                                               \
            if (op == MPTI_ARITH_FMA) {                                                            \
                mpti_##T##_in_256(z, c);                                                           \
                MPTI_FOUR_OF(MPTI_FMA_AT);                                                         \
            } else if (op == MPTI_ARITH_MUL)                                                       \
                MPTI_FOUR_OF(MPTI_MUL_AT);                                                         \
            else if (op == MPTI_ARITH_SUB)                                                         \
                MPTI_FOUR_OF(MPTI_SUB_AT);                                                         \
            else                                                                                   \
                MPTI_FOUR_OF(MPTI_ADD_AT);                                                         \
            if (!mpti_lanes_256(mpti_nan_of_2_256(r[0], r[1]) | mpti_nan_of_2_256(r[2], r[3])))    \
                mpti_##T##_out_256(to, r, how);                                                    \
            else {                                                                                 \
                uint16_t patched[32];                                                              \
                mpti_##T##_out_256((unsigned char *)patched, r, 0);                                \
                mpti_patch_nans(how, patched, a, b, c);                                            \
                memcpy(to, patched, sizeof patched);                                               \
            }                                                                                      \
        }                                                                                          \
        MPTI_NARROW();                                                                             \
    }
MPTI_ARITH_KERNEL(f16)
MPTI_ARITH_KERNEL(bf16)
#endif

static void mpti_arith_range(void *context, MPTI_UNUSED size_t part, size_t begin, size_t end)
{
    const mpti_job *j = (const mpti_job *)context;
    size_t          i;
    for (i = 2u * begin; i < 2u * end; i += 2u)
        mpti_arith_1(j->how, j->to + i, j->from[0] + i, j->from[1] + i, j->from[2] + i);
}

/* On x86 the kernel runs without traps and flushing, rounding down for fma, otherwise to nearest. */
static mpt_status mpti_arith_n(int mbits, int op, void *dst, const void *a, const void *b, const void *c,
                               size_t n)
{
    mpti_job j = mpti_job_of(NULL, dst, 2, a, 2, op * MPTI_ARITH + mbits * MPTI_ARITH_BITS);
    if (mpti_bad_array(dst, 2, a, 2, n) || mpti_bad_array(dst, 2, b, 2, n) || mpti_bad_array(dst, 2, c, 2, n))
        return MPT_E_ARG;
    j.from[1] = (const unsigned char *)b;
    j.from[2] = (const unsigned char *)c;
    j.in[1] = j.in[2] = 2;
#if MPTI_X86
    if (mpti_path() >= MPTI_PATH_AVX2) {
        const uint64_t before = mpti_control();
        j.kernel = mbits == 10 ? mpti_f16_arith_256 : mpti_bf16_arith_256;
        mpti_control_set(op == MPTI_ARITH_FMA ? MPTI_CONTROL_DOWN : MPTI_CONTROL_NEAREST);
        mpti_run(&j, n);
        mpti_control_set(before);
        return MPT_OK;
    }
#endif
    (void)MPTI_IN_PARTS(n, MPTI_SLOW_PART, mpti_arith_range, &j);
    return MPT_OK;
}

#define MPTI_ARITH_N(T, M, op, OP)                                                                 \
    MPTI_DEF mpt_status mpt_##T##_##op##_n(mpt_##T *dst, const mpt_##T *a, const mpt_##T *b, size_t n) \
    {                                                                                              \
        return mpti_arith_n(M, OP, dst, a, b, b, n);                                               \
    }
#define MPTI_ARITH_OF(T, M)                                                                          \
    MPTI_ARITH_N(T, M, add, MPTI_ARITH_ADD)                                                        \
    MPTI_ARITH_N(T, M, sub, MPTI_ARITH_SUB)                                                        \
    MPTI_ARITH_N(T, M, mul, MPTI_ARITH_MUL)                                                        \
    MPTI_DEF mpt_status mpt_##T##_fma_n(mpt_##T *dst, const mpt_##T *a, const mpt_##T *b,          \
                                        const mpt_##T *c, size_t n)                                \
    {                                                                                              \
        return mpti_arith_n(M, MPTI_ARITH_FMA, dst, a, b, c, n);                                   \
    }
MPTI_ARITH_OF(f16, 10)
MPTI_ARITH_OF(bf16, 7)
#endif /* arithmetic */

// >>H16 implementation: text -----------------------------------------------------------------------
#if defined(MPT_HALF_IMPLEMENTATION) && !defined(MPT_NO_TEXT) && !defined(MPTI_HALF_TEXT)
#define MPTI_HALF_TEXT
/* An unsigned integer of at most MPTI_BIG_WORDS * 32 bits, least word first, no zero words on top. The
 * largest here is 5^1201 (2789 bits), the divisor for 801 digits that begin 400 places below the point. */
enum { MPTI_BIG_WORDS = 92, MPTI_DIGITS_KEPT = 800, MPTI_DECIMAL_RANGE = 400 };
typedef struct mpti_big { int n; uint32_t w[MPTI_BIG_WORDS]; } mpti_big;

/* b = b * factor + addend */
MPTI_NOINLINE static void mpti_big_scale(mpti_big *b, uint32_t factor, uint32_t addend)
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
    b->w[0] = (uint32_t)x, b->w[1] = (uint32_t)(x >> 32);
}

/* b = b * base^exponent; unchanged if the exponent is negative */
MPTI_NOINLINE static void mpti_big_power(mpti_big *b, uint32_t base, int exponent)
{
    while (exponent > 0) {
        uint32_t factor = 1u;
        for (; exponent > 0 && factor <= 0xffffffffu / base; exponent--)
            factor *= base;
        mpti_big_scale(b, factor, 0u);
    }
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

/* a = a - b, unless that is negative.  Returns: 0 if it is. */
static int mpti_big_take(mpti_big *a, const mpti_big *b)
{
    uint64_t borrow = 0u;
    int      i;
    if (mpti_big_cmp(a, b) < 0)
        return 0;
    for (i = 0; i < a->n; i++) {
        const uint64_t d = (uint64_t)a->w[i] - (i < b->n ? b->w[i] : 0u) - borrow;
        a->w[i] = (uint32_t)d;
        borrow = d >> 63;
    }
    while (a->n && !a->w[a->n - 1])
        a->n--;
    return 1;
}

/* -1, 0 or 1: a + b compared with c, for a <= c */
MPTI_NOINLINE static int mpti_big_sum_cmp(const mpti_big *a, const mpti_big *b, const mpti_big *c)
{
    mpti_big rest = *c;
    (void)mpti_big_take(&rest, a);
    return mpti_big_cmp(b, &rest);
}

static int mpti_big_bits(const mpti_big *b) { return b->n ? b->n * 32 - mpti_clz32(b->w[b->n - 1]) : 0; }

/* ---- writing ---- */

static char mpti_hex_digit(unsigned d) { return "0123456789abcdef"[d & 15u]; }

/* Write the sign, and all of Inf or NaN.  Returns: 0 if a number must follow. */
static int mpti_put_special(mpti_string *w, const mpt_format_info *f, const mpt_fields *p)
{
    const int nan = p->kind <= MPT_CLASS_QUIET_NAN;
    const int inf = p->kind == MPT_CLASS_POS_INF || p->kind == MPT_CLASS_NEG_INF;
    uint64_t  payload = f->has_inf ? p->mantissa_field & ((MPTI_ONE << (f->mantissa_bits - 1)) - 1u) : 0u;
    int       shift;
    if (p->sign && !(nan && f->specials == MPT_SPECIALS_FNUZ))
        mpti_add_char(w, '-');
    if (!nan && !inf)
        return 0;
    mpti_add_text(w, inf ? "inf" : p->kind == MPT_CLASS_QUIET_NAN ? "nan" : "snan");
    if (payload) {                      /* an Inf has none */
        mpti_add_text(w, "(0x");
        for (shift = (63 - mpti_clz64(payload)) / 4 * 4; shift >= 0; shift -= 4)
            mpti_add_char(w, mpti_hex_digit((unsigned)(payload >> shift)));
        mpti_add_char(w, ')');
    }
    return 1;
}

/* Write a nonzero number as in "1.8p-3", without the sign and the "0x". */
static void mpti_put_hex(mpti_string *w, const mpt_fields *p)
{
    const int up = mpti_clz64(p->significand), exponent = p->exponent + 63 - up;
    uint64_t  sig = p->significand << up << 1;      /* without the leading one */
    mpti_add_text(w, sig ? "1." : "1");
    for (; sig; sig <<= 4)
        mpti_add_char(w, mpti_hex_digit((unsigned)(sig >> 60)));
    mpti_add_text(w, exponent >= 0 ? "p+" : "p");
    mpti_add_int(w, exponent);
}

/* The shortest decimal digits of a nonzero number ~ 0.d1d2... * 10^(*point), at most 17.  Returns: how many.
 * By Steele & White: r / s is not written yet; above / s and below / s are half the gaps to neighbours. */
static int mpti_shortest(const mpt_format_info *f, const mpt_fields *p, char *digits, int *point)
{
    const int scale = f->specials == MPT_SPECIALS_SCALE, even = !(p->code & 1u);
    /* whether the ends of the interval, which are ties, read as this code: to even, but in SCALE upwards */
    const int low_end = scale || even, high_end = !scale && even;
    const int first = !p->mantissa_field && (scale || p->exponent_field > 1u);
    const int e = p->exponent + 63 - mpti_clz64(p->significand);
    int       k = (e + 2000) * 78913 / 262144 - 603;            /* not above log10 of the value */
    int       n = 0, i, d, low, high, half;
    mpti_big  r, s, above, below, *const parts[3] = {&r, &above, &below};
    mpti_big_set(&r, p->significand << 2);
    mpti_big_set(&s, 4u);
    mpti_big_set(&above, 2u);
    mpti_big_set(&below, first ? 1u : 2u);      /* below a power of two the gap is half as wide */
    mpti_big_power(&s, 2u, -p->exponent);
    mpti_big_power(&s, 10u, k);
    for (i = 0; i < 3; i++) {
        mpti_big_power(parts[i], 2u, p->exponent);
        mpti_big_power(parts[i], 10u, -k);
    }
    for (; mpti_big_cmp(&r, &s) >= 0; k++)
        mpti_big_scale(&s, 10u, 0u);
    for (;;) {
        for (i = 0; i < 3; i++)
            mpti_big_scale(parts[i], 10u, 0u);
        for (d = 0; mpti_big_take(&r, &s);)
            d++;
        low = mpti_big_cmp(&r, &below) < low_end;               /* with d as the last digit it reads back */
        high = mpti_big_sum_cmp(&r, &above, &s) > -high_end;    /* with d + 1 it does */
        if (low || high)
            break;
        digits[n++] = (char)('0' + d);
    }
    half = mpti_big_sum_cmp(&r, &r, &s);
    if (high && (!low || half > 0 || (half == 0 && d & 1)))
        d++;
    if (d == 10) {                      /* happens at the first digit only */
        d = 1;
        k++;
    }
    digits[n++] = (char)('0' + d);
    *point = k;
    return n;
}

static void mpti_put_decimal(mpti_string *w, const mpt_format_info *f, const mpt_fields *p)
{
    char      digits[24];
    int       exponent = 0, i;
    const int n = mpti_shortest(f, p, digits, &exponent);
    const int point = exponent < -3 || exponent > 16 ? 1 : exponent;    /* digits before it */
    for (i = point < 1 ? point - 1 : 0; i < n || i < point; i++) {
        mpti_add_text(w, i == point ? "." : "");
        mpti_add_char(w, i >= 0 && i < n ? digits[i] : '0');
    }
    if (point != exponent) {
        mpti_add_char(w, 'e');
        mpti_add_int(w, exponent - 1);
    }
}

MPTI_DEF size_t mpt_to_text_as(char *buf, size_t cap, const mpt_format_info *info, uint64_t code, int hex)
{
    mpti_string w = mpti_string_in(buf, cap);
    mpt_fields  p;
    if (!info || !info->bits)
        return mpti_string_end(&w);
    p = mpti_take_apart(info, code);
    if (mpti_put_special(&w, info, &p))
        return mpti_string_end(&w);
    mpti_add_text(&w, hex ? "0x" : "");
    if (!p.significand)
        mpti_add_text(&w, hex ? "0p+0" : "0");
    else if (hex)
        mpti_put_hex(&w, &p);
    else
        mpti_put_decimal(&w, info, &p);
    return mpti_string_end(&w);
}

MPTI_DEF size_t mpt_to_text(char *buf, size_t cap, mpt_format format, uint64_t code)
{
    return mpt_to_text_as(buf, cap, mpt_format_get(format), code, 0);
}

/* ---- reading ---- */

/* What a text stands for. A number is sig * 2^exp: sig is 0, or its highest bit is 62, its last sticky. */
enum { MPTI_READ_NUMBER, MPTI_READ_INF, MPTI_READ_NAN, MPTI_READ_SNAN };
typedef struct mpti_read {
    int         kind;
    unsigned    sign;
    uint64_t    sig;                    /* of a NaN: the payload */
    int         exp;
    const char *text;
    size_t      length, at, payload_at;
} mpti_read;

/* The next byte, letters in lower case; 0 at the end. */
MPTI_NOINLINE static int mpti_peek(const mpti_read *r)
{
    const int c = r->at < r->length ? (int)(unsigned char)r->text[r->at] : 0;
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

/* Read c, which is not 0.  Returns: 0 if another byte comes. */
MPTI_NOINLINE static int mpti_eat(mpti_read *r, int c)
{
    if (mpti_peek(r) != c)
        return 0;
    r->at++;
    return 1;
}

/* The value of the next byte as a digit; -1 if it is none. */
MPTI_NOINLINE static int mpti_digit(const mpti_read *r, int base)
{
    const int c = mpti_peek(r);
    if (c >= '0' && c <= '9')
        return c - '0';
    return base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read an optional sign.  Returns: 1 if it is a minus. */
static int mpti_eat_sign(mpti_read *r) { return !mpti_eat(r, '+') && mpti_eat(r, '-'); }

/* Read "0x" if it is next.  Returns: the base of the digits that follow. */
static int mpti_eat_base(mpti_read *r)
{
    const int hex = mpti_peek(r) == '0' && r->at + 1 < r->length && (r->text[r->at + 1] | 32) == 'x';
    r->at += hex ? 2u : 0u;
    return hex ? 16 : 10;
}

/* Read digits, clamped to 2^60, beyond payloads and any number of digits.  Returns: 0 if there are none. */
static int mpti_read_digits(mpti_read *r, int base, uint64_t *value)
{
    const size_t first = r->at;
    uint64_t     x = 0u;
    int          d;
    for (; (d = mpti_digit(r, base)) >= 0; r->at++)
        x = x < MPTI_ONE << 56 ? x * (uint64_t)base + (uint64_t)d : MPTI_ONE << 60;
    *value = x;
    return r->at != first;
}

/* Set r to num * 5^fives * 2^twos by exact division: 63 bits, the last one sticky. */
static void mpti_read_divide(mpti_read *r, mpti_big *num, int fives, int twos)
{
    mpti_big den;
    int      shift, i;
    mpti_big_set(&den, 1u);
    mpti_big_power(&den, 5u, -fives);
    mpti_big_power(num, 5u, fives);
    shift = mpti_big_bits(&den) - mpti_big_bits(num);
    mpti_big_power(num, 2u, shift);
    mpti_big_power(&den, 2u, -shift);
    if (mpti_big_cmp(num, &den) < 0) {
        mpti_big_scale(num, 2u, 0u);
        shift++;
    }
    for (i = 0; i < 63; i++) {
        r->sig = r->sig << 1 | (uint64_t)mpti_big_take(num, &den);
        mpti_big_scale(num, 2u, 0u);
    }
    r->sig |= (uint64_t)(num->n != 0);
    r->exp = twos - shift - 62;
}

/* Read digits and an exponent of 10, or of 2 if hexadecimal.  Returns: 0 if malformed. */
static int mpti_read_number(mpti_read *r, int base)
{
    const int hex = base == 16, place = hex ? 4 : 1, most = hex ? 32 : MPTI_DIGITS_KEPT;
    mpti_big  big;
    uint64_t  exponent = 0u;
    int64_t   scale = 0, top;
    int       d, any = 0, kept = 0, lost = 0, point = 0, negative = 0;
    mpti_big_set(&big, 0u);
    for (; (d = mpti_digit(r, base)) >= 0 || (!point && mpti_peek(r) == '.'); r->at++) {
        if (d < 0) {
            point = 1;
            continue;
        }
        any = 1;
        scale += (kept == most) - point;
        if (kept == most)
            lost |= d != 0;             /* of the rest it only matters whether it is 0 */
        else if (kept || d) {
            mpti_big_scale(&big, (uint32_t)base, (uint32_t)d);
            kept++;
        }
    }
    if (any && mpti_eat(r, hex ? 'p' : 'e')) {
        negative = mpti_eat_sign(r);
        any = mpti_read_digits(r, 10, &exponent);
    }
    if (!any)
        return 0;
    if (!kept)
        return 1;
    if (lost) {
        mpti_big_scale(&big, (uint32_t)base, 1u);
        scale--;
        kept++;
    }
    scale = place * scale + (negative ? -(int64_t)exponent : (int64_t)exponent);
    top = scale + place * kept;
    if (top > place * MPTI_DECIMAL_RANGE || top < -place * MPTI_DECIMAL_RANGE) {
        r->sig = (MPTI_ONE << 62) + 1u;     /* far above or below the range of every format */
        r->exp = top > 0 ? 1100 - 62 : -1500 - 62;
    } else
        mpti_read_divide(r, &big, hex ? 0 : (int)scale, (int)scale);
    return 1;
}

/* Read the text s.  Returns: 0 if it does not follow. */
static int mpti_eat_text(mpti_read *r, const char *s)
{
    while (*s && mpti_eat(r, *s))
        s++;
    return !*s;
}

static int mpti_read_text(mpti_read *r)
{
    r->sign = (unsigned)mpti_eat_sign(r);
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
        r->payload_at = r->at;
        return mpti_read_digits(r, mpti_eat_base(r), &r->sig) && mpti_eat(r, ')');
    }
    return mpti_read_number(r, mpti_eat_base(r));
}

/* Encode what was read.  Returns: 0, and r->at, if the format has no room for a NaN's payload. */
static int mpti_read_code(const mpt_format_info *f, mpti_read *r, const mpt_opts *o, unsigned *flags,
                          uint64_t *code)
{
    const uint64_t sign = (uint64_t)r->sign << 63;
    const uint64_t quiet = f->has_inf ? MPTI_ONE << (f->mantissa_bits - 1) : 1u;
    const int      signaling = r->kind == MPTI_READ_SNAN, keeps = f->has_inf && o->nan == MPT_NAN_KEEP;
    if (r->kind == MPTI_READ_NUMBER)
        *code = mpti_encode_number(f, r->sig, r->exp, r->sign, o, flags);
    else if (r->kind == MPTI_READ_INF)
        *code = mpti_encode_bits(f, sign | (uint64_t)0x7ff << 52, o, flags);
    else if (keeps ? r->sig >= quiet || (signaling && !r->sig)
                   : r->sig >= quiet && !(signaling && r->sig == 1u)) {
        r->at = r->payload_at;
        return 0;
    } else if (keeps)                   /* every format with Inf has a sign */
        *code = sign >> (64 - f->bits) | f->inf_code | (signaling ? 0u : quiet) | r->sig;
    else
        *code = mpti_encode_bits(f, sign | (uint64_t)0xfff << 51, o, flags);
    return 1;
}

MPTI_DEF mpt_status mpt_from_text_as(const mpt_format_info *info, const char *text, size_t length,
                                    const mpt_opts *opts, unsigned *flags, uint64_t *code, size_t *end)
{
    mpti_read r = {MPTI_READ_NUMBER, 0u, 0u, 0, text, 0, 0, 0};
    unsigned  raised = 0u;
    uint64_t  result = 0u;
    int       ok;
    opts = opts ? opts : &mpti_plain_opts;
    if (!info || !info->bits || !text || !code || mpti_bad_opts(opts))
        return MPT_E_ARG;
    r.length = length == MPT_TEXT_TO_NUL ? strlen(text) : length;
    if (mpti_no_array(text, r.length, 1))
        return MPT_E_ARG;
    ok = mpti_read_text(&r) && r.at == r.length && mpti_read_code(info, &r, opts, &raised, &result);
    if (end)
        *end = r.at;
    if (!ok)
        return MPT_E_DATA;
    *code = result;
    if (flags)
        *flags |= raised;
    return MPT_OK;
}

MPTI_DEF mpt_status mpt_from_text(mpt_format format, const char *text, size_t length, const mpt_opts *opts,
                                 unsigned *flags, uint64_t *code, size_t *end)
{
    return mpt_from_text_as(mpt_format_get(format), text, length, opts, flags, code, end);
}

#define MPTI_TEXT_OF(T, id)                                                                        \
    MPTI_DEF size_t mpt_##T##_to_text(char *buf, size_t cap, mpt_##T value)                         \
    {                                                                                              \
        return mpt_to_text(buf, cap, id, value.bits);                                              \
    }                                                                                              \
    MPTI_DEF mpt_status mpt_##T##_from_text(const char *text, mpt_##T *value)                       \
    {                                                                                              \
        uint64_t         code = 0u;                                                                \
        const mpt_status status =                                                                  \
            value ? mpt_from_text(id, text, MPT_TEXT_TO_NUL, NULL, NULL, &code, NULL) : MPT_E_ARG; \
        if (status == MPT_OK)                                                                      \
            value->bits = (uint16_t)code;                                                          \
        return status;                                                                             \
    }
MPTI_TEXT_OF(f16, MPT_F16)
MPTI_TEXT_OF(bf16, MPT_BF16)
#endif /* text */

// >>H17 implementation: blocks ---------------------------------------------------------------------
#if defined(MPT_HALF_IMPLEMENTATION) && !defined(MPT_NO_BLOCKS) && !defined(MPTI_HALF_BLOCKS)
#define MPTI_HALF_BLOCKS

MPTI_DEF size_t mpt_packed_size(size_t n, int bits)
{
    const size_t b = (size_t)bits;
    return n / 8u * b + (n % 8u * b + 7u) / 8u;
}

MPTI_DEF mpt_status mpt_pack_n(uint8_t *packed, const uint8_t *codes, size_t n, int bits)
{
    const uint32_t mask = (1u << (bits & 15)) - 1u;
    uint32_t       pending = 0u;
    int            have = 0;
    size_t         i;
    if (mpti_no_array(packed, n, 1) || mpti_no_array(codes, n, 1) || bits < 1 || bits > 8 ||
        (packed != codes && mpti_meet(packed, mpt_packed_size(n, bits), codes, n)))
        return MPT_E_ARG;
    for (i = 0; bits == 4 && i + 2u <= n; i += 2u)      /* a third of the time */
        *packed++ = (uint8_t)((codes[i] & 15u) | (uint32_t)codes[i + 1u] << 4);
    for (; i < n; i++) {
        pending |= (codes[i] & mask) << have;
        for (have += bits; have >= 8; have -= 8, pending >>= 8)
            *packed++ = (uint8_t)pending;
    }
    if (have)
        *packed = (uint8_t)pending;
    return MPT_OK;
}

MPTI_DEF mpt_status mpt_unpack_n(uint8_t *codes, const uint8_t *packed, size_t n, int bits)
{
    uint32_t pending = 0u;
    int      have = 0;
    size_t   i;
    if (mpti_no_array(codes, n, 1) || mpti_no_array(packed, n, 1) || bits < 1 || bits > 8 ||
        mpti_meet(packed, mpt_packed_size(n, bits), codes, n))
        return MPT_E_ARG;
    for (i = 0; bits == 4 && i + 2u <= n; i += 2u, packed++)
        codes[i] = *packed & 15u, codes[i + 1u] = (uint8_t)(*packed >> 4);
    for (; i < n; i++, pending >>= bits, have -= bits) {
        for (; have < bits; have += 8)
            pending |= (uint32_t)*packed++ << have;
        codes[i] = (uint8_t)(pending & ((1u << bits) - 1u));
    }
    return MPT_OK;
}

MPTI_DEF const mpt_block_info *mpt_block_get(mpt_block block)
{
    static const mpt_block_info table[] = {MPT_BLOCKS(MPTI_COLUMNS)};
    return (unsigned)block < (unsigned)MPT_BLOCK_COUNT ? &table[block] : NULL;
}

#define MPTI_BLOCK_SIZE_MAX 32

/* The bit pattern of the double (-1)^sign * num * 2^num_exp / (den * 2^den_exp), rounded to odd at 35 bits or
 * more, so that rounding it again to 32 or fewer does no harm. num has 24 bits, 0 < den < 2^28. */
MPTI_NOINLINE static uint64_t mpti_ratio(unsigned sign, uint64_t num, int num_exp, uint64_t den, int den_exp)
{
    uint64_t q;
    for (; den < 0x8000000u; den_exp--)
        den <<= 1;
    q = (num << 39) / den;
    q |= (num << 39) % den != 0u;
    return mpti_f64_compose(sign, q, num_exp - 39 - den_exp);
}

/* Quantize a full NVFP4 block. The same codes as mpti_e2m1_code, of which compilers make branches on the CPU,
 * often mispredicted: counting the limits that a number reaches takes 0.4 of the time, as it vectorizes. */
MPTI_INLINE void mpti_nv_loop(uint8_t *MPTI_RESTRICT codes, const uint32_t *MPTI_RESTRICT in,
                              const uint32_t *MPTI_RESTRICT limit)
{
    int32_t out[16];
    int     i, k;
    for (i = 0; i < 16; i++)
        out[i] = (int32_t)(in[i] >> 28 & 8u);
    for (k = 0; k < 7; k++)
        for (i = 0; i < 16; i++)
            out[i] += (int32_t)(in[i] & 0x7fffffffu) >= (int32_t)limit[k];
    for (i = 0; i < 16; i++)
        codes[i] = (uint8_t)out[i];
}
MPTI_TWICE(mpti_nv_block, mpti_nv_loop,
           (uint8_t *MPTI_RESTRICT codes, const uint32_t *MPTI_RESTRICT in,
            const uint32_t *MPTI_RESTRICT limit), (codes, in, limit))

/* Quantize any block, with any options, element by element. */
static void mpti_block_slow(uint8_t *codes, const uint32_t *in, size_t n, const mpti_blocks *b,
                            uint32_t scale_code, uint64_t first)
{
    const mpt_fields s = mpti_take_apart(b->scale, scale_code);
    unsigned         unused = 0u;
    mpti_words       words = mpti_no_words;
    mpt_opts         o = b->opts;
    size_t           i;
    for (i = 0; i < n; i++) {
        const unsigned sign = in[i] >> 31;
        uint32_t       a = in[i] & 0x7fffffffu;
        uint64_t       u = (uint64_t)sign << 63;
        mpti_opts_at(&o, &b->opts, first + i, &words);
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

/* Quantize a block of n numbers; returns its scale code. `in` is a full block, padded with zeros. */
static uint32_t mpti_block_quantize(uint8_t *codes, const uint32_t *in, size_t n, const mpti_blocks *b,
                                    uint64_t first)
{
    uint32_t amax = 0u, scale, limit[7];
    size_t   i;
    for (i = 0; i < n; i++)             /* as bit patterns: Inf and NaN are above all numbers */
        amax = (in[i] & 0x7fffffffu) > amax ? in[i] & 0x7fffffffu : amax;
    if (amax >= 0x7f800000u) {
        memset(codes, 0, n);
        return (uint32_t)b->scale->nan_code;
    }
    scale = mpti_block_scale(b, amax);
    if (b->plain && (!amax || (b->powers && amax >= (uint32_t)(127 - 80) << 23)))
        mpti_byte_codes_32(codes, in, b->element, amax ? (int)scale - 127 : 0);     /* 0: all signs */
    else if (!b->plain || b->powers)
        mpti_block_slow(codes, in, n, b, scale, first);
    else {
        mpti_e2m1_limits(b, scale, limit);
        mpti_nv_block(codes, in, limit);
    }
    return scale;
}

/* Quantize the blocks from element i to the end, n. */
static void mpti_blocks_quantize(const mpti_blocks *b, uint8_t *codes, uint8_t *scales,
                                 const unsigned char *from, size_t i, size_t n)
{
    const size_t size = (size_t)b->block->size;
    uint32_t     in[MPTI_BLOCK_SIZE_MAX];
    uint8_t      out[MPTI_BLOCK_SIZE_MAX];
    size_t       take;
    for (; i < n; i += take) {
        take = n - i < size ? n - i : size;
        memcpy(in, from + i * sizeof *in, take * sizeof *in);
        if (take < MPTI_BLOCK_SIZE_MAX)
            memset(in + take, 0, sizeof in - take * sizeof *in);
        scales[i / size] = (uint8_t)mpti_block_quantize(out, in, take, b, i);
        if (b->packed)
            (void)mpt_pack_n(codes + mpt_packed_size(i, b->element->bits), out, take, b->element->bits);
        else
            memcpy(codes + i, out, take);
    }
}

/* Dequantizing goes by steps of 16 elements with the same scale. The patterns of element * scale differ from
 * the elements' by `add`, and those of odd codes of E2M1, with mantissa 1.5 (or 1/2), by `odd` too. */
typedef struct mpti_block_shift { uint32_t add, odd; } mpti_block_shift;

/* By masks: of conditions compilers make branches here. c: the code with its sign in bit 31; large: the
 * result for a normal number; a subnormal one is a small integer times a power of two, exact as a float. */
#define MPTI_MASK(condition) (0u - (uint32_t)(condition))
MPTI_INLINE void mpti_block_loop(uint32_t *MPTI_RESTRICT to, const uint8_t *codes, const mpti_blocks *b,
                                 const mpti_block_shift *step, size_t n)
{
    const int      up = 31 - b->sign_at, down = up + b->m - 23, nans = b->element->has_nan;
    const int32_t  normal = (int32_t)(1u << (b->m + up)), most = (int32_t)b->most;
    const int32_t  inf = b->element->has_inf ? most + 1 : 0;
    uint32_t       wide[MPTI_TILE] MPTI_ALIGNED, *MPTI_RESTRICT in = wide;
    size_t         i, k;
    for (i = 0; i < n; i += 16u)
        for (k = 0; k < 16u; k++)
            wide[i + k] = codes[i + k];
    for (i = 0; i < n; i += 16u, step++, to += 16, in += 16) {
        const uint32_t odd = step->odd, add = step->add + ((b->least - 1u) << 23);
        const uint32_t tiny = step->add - odd + ((b->least - 127u - (uint32_t)(b->m + up)) << 23);
        for (k = 0; k < 16u; k++) {
            const uint32_t c = in[k] << up, a = c & 0x7fffffffu, large = (a >> down) + add;
            const uint32_t subnormal = mpti_f32_bits((float)(int32_t)a) + tiny;
            const uint32_t x = large ^ ((large ^ subnormal) & MPTI_MASK((int32_t)a < normal));
            to[k] = (c & 0x80000000u) | ((x + (MPTI_MASK(in[k] & 1u) & odd)) & MPTI_MASK(a != 0u));
        }
        if (nans)
            for (k = 0; k < 16u; k++) {
                const int32_t  a = (int32_t)(in[k] & 0x7fu);
                const uint32_t over = MPTI_MASK(a > most), nan = over & MPTI_MASK(a != inf);
                to[k] = (to[k] & ~nan & (~over | 0x80000000u)) | (over & 0x7f800000u) | (nan & 0x400000u);
            }
    }
}
MPTI_TWICE(mpti_block_steps, mpti_block_loop,
           (uint32_t *MPTI_RESTRICT to, const uint8_t *codes, const mpti_blocks *b,
            const mpti_block_shift *step, size_t n), (to, codes, b, step, n))

/* sig * 2^exp, a normal number, to the nearest float. 0 < sig < 2^31. */
static uint32_t mpti_float_near(uint32_t sig, int exp)
{
    const int up = mpti_clz32(sig) - 1;
    return mpti_shift_rne32(sig << up, 7) + ((uint32_t)(exp + 156 - up) << 23);
}

/* The step of a scale.  Returns: 0 if a product is neither 0 nor a normal float, even of E5M2's 2^-16 and
 * 1.75 * 2^15. For NVFP4, 1 and 3 times the scale are rounded; the others are these times powers of two. */
static int mpti_block_shift_of(mpti_block_shift *step, const mpti_blocks *b, uint32_t scale)
{
    const uint32_t field = scale >> 3 & 15u, sig = ((scale & 7u) | (field ? 8u : 0u)) * b->tensor_sig;
    const int      exp = b->tensor_exp + (int)(field + !field) - 10;
    const int      usual = b->powers ? scale - 17u <= 239u - 17u
                                     : (scale & 127u) - 1u < 126u && exp >= -148 && exp <= 96;
    step->add = usual ? (scale - 127u) << 23 : 0u, step->odd = 0u;
    if (usual && !b->powers) {
        step->add = mpti_float_near(sig, exp) - 0x3f800000u;
        step->odd = mpti_float_near(3u * sig, exp) - 0x40400000u - step->add;
    }
    return usual;
}

/* The other products: exact in a double, and rounded once. 0, Inf and NaN are right already, unless the scale
 * is NaN. Inf * 0 cannot occur: E5M2, the only element format with Inf, has E8M0 scales, which are not 0. */
static void mpti_block_slowly(uint32_t *to, const uint8_t *codes, const mpti_blocks *b, uint32_t code)
{
    const mpt_fields s = mpti_take_apart(b->scale, code);
    int              k;
    for (k = 0; k < 16; k++)
        if (s.kind == MPT_CLASS_QUIET_NAN)
            to[k] = 0x7fc00000u;
        else if (to[k] & 0x7fffffffu) {
            const mpt_fields p = mpti_take_apart(b->element, codes[k]);
            if (p.significand)
                to[k] = mpti_float_of(mpti_f64_compose(p.sign, p.significand * s.significand * b->tensor_sig,
                                                       p.exponent + s.exponent + b->tensor_exp));
        }
}

#if MPTI_X86
/* ---- MXFP4 with AVX-512, a tile of eight blocks at a time ---- */

enum { MPTI_MXFP4 = 32, MPTI_MXFP4_TILE = MPTI_TILE / 32 };     /* elements per block, blocks per tile */

/* The largest magnitude of the 32 floats at p, as a bit pattern. */
MPTI_IN_512 uint32_t mpti_largest_512(const unsigned char *p)
{
    mpti_v16 x = mpti_max_512(mpti_load_512(p) & 0x7fffffffu, mpti_load_512(p + 64) & 0x7fffffffu), half;
    uint32_t r;
    __asm__("vextracti64x4 {$1, %1, %t2|%t2, %1, 1}\n\tvpmaxud {%t2, %t1, %t1|%t1, %t1, %t2}\n\t"
            "vextracti128 {$1, %t1, %x2|%x2, %t1, 1}\n\tvpmaxud {%x2, %x1, %x1|%x1, %x1, %x2}\n\t"
            "vpshufd {$0x4e, %x1, %x2|%x2, %x1, 0x4e}\n\tvpmaxud {%x2, %x1, %x1|%x1, %x1, %x2}\n\t"
            "vpshufd {$0xb1, %x1, %x2|%x2, %x1, 0xb1}\n\tvpmaxud {%x2, %x1, %x1|%x1, %x1, %x2}\n\t"
            "vmovd {%x1, %0|%0, %x1}"
            : "=r"(r), "+x"(x), "=&x"(half));
    return r;
}

/* The E2M1 codes of a block. `factor` makes its floats E2M1's numbers divided by 2^14. The f16 codes of these
 * begin with the E2M1 code (as in mpti_fp8_words_512); rounding drops the nine bits below. */
MPTI_IN_512 void mpti_mxfp4_codes_512(uint8_t *codes, const unsigned char *p, uint32_t factor, int packed)
{
    const mpti_v16 f = mpti_all_512(factor);
    const mpti_w32 h = mpti_sticky_halves_512(mpti_mul_cut_512(mpti_load_512(p), f),
                                              mpti_mul_cut_512(mpti_load_512(p + 64), f));
    const mpti_w32 m = mpti_min_words_512(mpti_round_words_512(h & 0x7fffu, 9), mpti_all_words_512(7u));
    const mpti_w32 code = m | (h >> 12 & 8u);
    mpti_v16       pairs;
    mpti_w16       bytes;
    mpti_w8        nibbles;
    if (packed) {
        __asm__(MPTI_OF_3("vpmaddwd") : "=v"(pairs) : "v"(code), "v"(mpti_all_512(0x100001u)));
        __asm__(MPTI_OF_2("vpmovdb") : "=v"(nibbles) : "v"(pairs));
        memcpy(codes, &nibbles, sizeof nibbles);
    } else {
        __asm__(MPTI_OF_2("vpmovwb") : "=v"(bytes) : "v"(code));
        memcpy(codes, &bytes, sizeof bytes);
    }
}

/* Quantize whole tiles; returns how many elements they have. Vectors do a tile if the exponent field of each
 * block's amax is in [least, most]: then the factor is a normal float, nothing is Inf or NaN, and all
 * subnormal floats have code 0. The scale is 2^(field - 127 - 2), the factor its reciprocal times 2^-14. */
MPTI_AVX512_TARGET static size_t mpti_mxfp4_512(const mpti_blocks *b, uint8_t *codes, uint8_t *scales,
                                                const unsigned char *from, size_t n)
{
    const uint32_t least = 47u, most = 240u;
    const size_t   bytes = b->packed ? MPTI_MXFP4 / 2 : MPTI_MXFP4;
    size_t         i, k;
    for (i = 0; i + MPTI_TILE <= n; i += MPTI_TILE) {
        const unsigned char *p = from + 4u * i;
        uint32_t             field[MPTI_MXFP4_TILE], odd = 0u;
        for (k = 0; k < MPTI_MXFP4_TILE; k++) {
            mpti_fetch_ahead(p + 128u * k, 128u);
            field[k] = mpti_largest_512(p + 128u * k) >> 23;
            odd |= (uint32_t)(field[k] - least > most - least);
        }
        if (odd) {
            mpti_blocks_quantize(b, codes, scales, from, i, i + MPTI_TILE);
            continue;
        }
        for (k = 0; k < MPTI_MXFP4_TILE; k++) {
            uint8_t *to = codes + (i / MPTI_MXFP4 + k) * bytes;
            scales[i / MPTI_MXFP4 + k] = (uint8_t)(field[k] - 2u);
            mpti_mxfp4_codes_512(to, p + 128u * k, (127u + 127u + 2u - 14u - field[k]) << 23, b->packed);
        }
    }
    MPTI_NARROW();
    return i;
}

/* Look up the 32 numbers of a block in a table of 16, by the low four bits of each lane. */
MPTI_IN_512 void mpti_from_mxfp4_512(float *to, const uint8_t *codes, uint32_t scale, int packed)
{
    const mpti_v16 values = {0u, 0x3f000000u, 0x3f800000u, 0x3fc00000u, 0x40000000u, 0x40400000u, 0x40800000u,
                             0x40c00000u, 0x80000000u, 0xbf000000u, 0xbf800000u, 0xbfc00000u, 0xc0000000u,
                             0xc0400000u, 0xc0800000u, 0xc0c00000u};
    const mpti_v16 shifts = {0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
    const mpti_v16 scaled = mpti_mul_cut_512(values, mpti_all_512(scale << 23));
    const mpti_v16 words = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    mpti_v16       x, y;
    if (packed) {
        __asm__("vbroadcasti32x4 {%1, %0|%0, %1}" : "=v"(x)
                : "m"(*(const mpti_b16_any *)(const void *)codes));
        __asm__(MPTI_OF_3("vpermd") : "=v"(y) : "v"(words + 2u), "v"(x));
        __asm__(MPTI_OF_3("vpermd") : "=v"(x) : "v"(words), "v"(x));
        x >>= shifts;
        y >>= shifts;
    } else {
        __asm__("vpmovzxbd {%1, %0|%0, %1}" : "=v"(x) : "m"(*(const mpti_b16_any *)(const void *)codes));
        __asm__("vpmovzxbd {%1, %0|%0, %1}" : "=v"(y)
                : "m"(*(const mpti_b16_any *)(const void *)(codes + 16)));
    }
    __asm__(MPTI_OF_3("vpermps") : "=v"(x) : "v"(x), "v"(scaled));
    __asm__(MPTI_OF_3("vpermps") : "=v"(y) : "v"(y), "v"(scaled));
    mpti_put_512((unsigned char *)to, x, 0);
    mpti_put_512((unsigned char *)(to + 16), y, 0);
}

/* Dequantize tiles up to one with a scale code outside 2..252: such blocks are NaN, or some of their products
 * are not normal floats.  Returns: how many elements. */
MPTI_AVX512_TARGET static size_t mpti_from_mxfp4_tiles_512(const mpti_blocks *b, unsigned char *to,
                                                           const uint8_t *codes, const uint8_t *scales,
                                                           size_t n, int around)
{
    const size_t bytes = b->packed ? MPTI_MXFP4 / 2 : MPTI_MXFP4;
    float        tile[MPTI_TILE] MPTI_ALIGNED;
    size_t       i, k;
    for (i = 0; i + MPTI_TILE <= n; i += MPTI_TILE, scales += MPTI_MXFP4_TILE) {
        float *const floats = around ? tile : (float *)(void *)(to + 4u * i);
        for (k = 0; k < MPTI_MXFP4_TILE && MPTI_LIKELY(scales[k] - 2u <= 250u); k++, codes += bytes)
            mpti_from_mxfp4_512(floats + MPTI_MXFP4 * k, codes, scales[k], b->packed);
        if (k < MPTI_MXFP4_TILE)
            break;
        if (around)
            mpti_put_tile_512(to + 4u * i, tile);
    }
    if (around)
        __asm__ volatile("sfence" : : : "memory");
    MPTI_NARROW();
    return i;
}
#endif

/* Either direction, as its parts see it. The source is only read, though not const here. */
typedef struct mpti_blocking {
    mpti_blocks    b;
    uint8_t       *codes, *scales;
    unsigned char *floats;
    int            fast, around;
} mpti_blocking;

static void mpti_blocks_quantize_range(void *context, MPTI_UNUSED size_t part, size_t i, size_t n)
{
    const mpti_blocking *c = (const mpti_blocking *)context;
#if MPTI_X86
    if (c->fast)
        i += mpti_mxfp4_512(&c->b, c->codes + (c->b.packed ? i / 2u : i), c->scales + i / MPTI_MXFP4,
                            c->floats + 4u * i, n - i);
#endif
    mpti_blocks_quantize(&c->b, c->codes, c->scales, c->floats, i, n);
}

static void mpti_blocks_dequantize_range(void *context, MPTI_UNUSED size_t part, size_t i, size_t n)
{
    const mpti_blocking *const c = (const mpti_blocking *)context;
    const mpti_blocks *const   b = &c->b;
    const int                  bits = b->packed ? b->element->bits : 8;
    const uint32_t             steps = (uint32_t)b->block->size / 16u;
    uint32_t                   out[MPTI_TILE] MPTI_ALIGNED, slow, k;
    uint8_t                    in[MPTI_TILE] = {0};
    mpti_block_shift           step[MPTI_TILE / 16];
    size_t                     take;
    for (; i < n; i += take) {
        const uint8_t *const codes = c->codes + mpt_packed_size(i, bits);
        const uint8_t *const scale = c->scales + i / (size_t)b->block->size;
        unsigned char *const to = c->floats + 4u * i;
#if MPTI_X86
        take = c->fast ? mpti_from_mxfp4_tiles_512(b, to, codes, scale, n - i, c->around) : 0u;
        if (take)
            continue;
#endif
        take = n - i < MPTI_TILE ? n - i : MPTI_TILE;
        if (bits < 8)
            (void)mpt_unpack_n(in, codes, take, bits);
        else
            memcpy(in, codes, take);
        for (k = slow = 0u; 16u * k < take; k++)
            slow |= (uint32_t)!mpti_block_shift_of(step + k, b, scale[k / steps]) << k;
        mpti_block_steps(out, in, b, step, take);
        for (k = 0; slow >> k; k++)
            if (slow >> k & 1u)
                mpti_block_slowly(out + 16u * k, in + 16u * k, b, scale[k / steps]);
        memcpy(to, out, 4u * take);
    }
}

static mpt_status mpti_blocks_run(mpt_block block, uint8_t *codes, uint8_t *scales, unsigned char *floats,
                                  size_t n, const mpt_block_opts *opts, mpti_range_fn *range)
{
    const mpt_block_info *info = mpt_block_get(block);
    size_t                code_bytes, scale_bytes;
    mpti_blocking         c;
    if (mpti_no_array(codes, n, 1) || mpti_no_array(floats, n, sizeof(float)) ||
        mpti_no_array(scales, n, 1) || !info ||
        mpti_blocks_init(&c.b, info, mpt_format_get(info->element), mpt_format_get(info->scale), opts))
        return MPT_E_ARG;
    code_bytes = c.b.packed ? mpt_packed_size(n, c.b.element->bits) : n;
    scale_bytes = n / (size_t)info->size + (n % (size_t)info->size != 0u);
    if (mpti_some_meet(codes, code_bytes, scales, scale_bytes, floats, 4u * n))
        return MPT_E_ARG;
    c.codes = codes, c.scales = scales, c.floats = floats;
    c.fast = MPTI_X86 && block == MPT_MXFP4 && mpti_path() >= MPTI_PATH_AVX512 &&
             (range == mpti_blocks_dequantize_range || (c.b.plain && c.b.scaling == MPT_SCALE_FLOOR));
    c.around = n > MPTI_AROUND_BYTES / 5u && (uintptr_t)floats % 4u == 0u;
    if (n)                              /* otherwise the arrays may be NULL */
        (void)MPTI_IN_PARTS(n, range == mpti_blocks_dequantize_range ? MPTI_FAST_PART : MPTI_SLOW_PART, range,
                            &c);
    return MPT_OK;
}

MPTI_DEF mpt_status mpt_block_quantize_n(mpt_block block, uint8_t *codes, uint8_t *scales, const float *src,
                                        size_t n, const mpt_block_opts *opts)
{
    return mpti_blocks_run(block, codes, scales, (unsigned char *)(uintptr_t)src, n, opts,
                           mpti_blocks_quantize_range);
}

MPTI_DEF mpt_status mpt_block_dequantize_n(mpt_block block, float *dst, const uint8_t *codes,
                                          const uint8_t *scales, size_t n, const mpt_block_opts *opts)
{
    return mpti_blocks_run(block, (uint8_t *)(uintptr_t)codes, (uint8_t *)(uintptr_t)scales,
                           (unsigned char *)dst, n, opts, mpti_blocks_dequantize_range);
}

typedef struct mpti_ranging { const unsigned char *from; uint32_t amax[MPTI_PARTS]; } mpti_ranging;

static void mpti_finite_amax_range(void *context, size_t part, size_t begin, size_t end)
{
    mpti_ranging *const c = (mpti_ranging *)context;
    uint32_t            amax = 0u;
    for (; begin < end; begin++) {
        uint32_t a;
        memcpy(&a, c->from + 4u * begin, 4u);
        a &= 0x7fffffffu;
        if (a < 0x7f800000u && a > amax)
            amax = a;
    }
    c->amax[part] = amax;
}

MPTI_DEF mpt_status mpt_block_tensor_scale(mpt_block block, const float *src, size_t n, float *scale)
{
    const mpt_block_info *b = mpt_block_get(block);
    uint32_t              amax = 0u, r = 0x3f800000u;
    mpti_ranging          c;
    size_t                parts;
    if (!b || !scale || mpti_no_array(src, n, sizeof *src))
        return MPT_E_ARG;
    c.from = (const unsigned char *)src;
    for (parts = MPTI_IN_PARTS(n, MPTI_SLOW_PART, mpti_finite_amax_range, &c); parts; parts--)
        amax = c.amax[parts - 1] > amax ? c.amax[parts - 1] : amax;
    if (amax && b->scale != MPT_E8M0) {
        int            exp;
        const uint64_t sig = mpti_f32_split(amax, &exp);
        r = mpti_float_of(mpti_ratio(0u, sig, exp, 6u * 448u, 0));
        r = r ? r : 1u;
    }
    *scale = mpti_f32_make(r);
    return MPT_OK;
}
#endif /* blocks */

// >>H18 to add a format, or an instruction set -----------------------------------------------------
/* A format:
 * 1. Add its row to MPT_FORMATS (>>H3), at the end; in float's range; no Inf if unsigned. Its limits, codes
 *    and names, mpt_encode, mpt_decode, mpt_anatomy and the README's table follow from that. Tests cover it;
 *    digests of all formats (test_digest --print), examples/03 and 12 (.expected) get new values.
 * 2. If it has specials of a new kind, add the kind to mpt_specials and to all code that tests `specials`:
 *    from MPTI_EMIN to mpti_encode_number (>>H13), mpti_quantizer_init (>>H14), and some lines of >>H16.
 * 3. If it needs a type and fast conversions, add the type (>>H3); its prototypes (>>H5, >>H7); encode and
 *    decode made from mpti_small_encode and mpti_small_decode, and a line of MPTI_CONVERSIONS (>>H11); its
 *    two kernels, a line for each in mpti_kernel_here, which makes mpt_convert_n fast too, and lines of
 *    MPTI_CONVERT_N (>>H14). All of them must give what mpt_encode gives.
 * 4. A block format of 16 or 32 elements is a row of MPT_BLOCKS (>>H10) and one of tests/test_half_block.c.
 *    Scales are E8M0, or UE4M3 with 16 elements of E2M1; elements have at most 5 exponent bits and no FNUZ,
 *    IEEE and FN ones 8 bits. Anything else needs changes of mpti_block_scale (>>H11), mpti_blocks_* (>>H17).
 * 5. The tests compare with the rows of tests/half_ref.h: type these from the standard, not from here.
 * An instruction set: add its path to those of >>H12, and there one block of functions that load each format
 * as floats and store floats as each format, with an MPTI_KERNEL_... macro of its own; then add its kernels
 * to the lines of mpti_kernel_here (>>H14). */

// >>H19 licence ------------------------------------------------------------------------------------
/* MIT License
 *
 * Copyright (c) 2026 the mpt authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
 * associated documentation files (the "Software"), to deal in the Software without restriction, including
 * without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
 * following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all copies or substantial
 * portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
 * LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
 * EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
 * IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR
 * THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
