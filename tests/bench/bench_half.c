/* bench_half.c -- the speed of mpt_half.h's array functions on each path, each row beside a loop that moves
 * as many bytes with vectors of the path's width; and the speed of other software, if it is installed:
 * libfp16-dev, libimath-dev, numpy.
 *
 *   make bench
 *   build/bench/bench_half - bf16 avx2 4096     only rows with bf16 in the name, on this path, of this size;
 *                                               "" or nothing: all of them; -: write no file
 *
 * Arrays that fit in L1, ours and the ceiling's, begin 16 bytes after a cache line, as from malloc. */
#define _POSIX_C_SOURCE 200809L
#include "mpt_half.h"
#include "../impl.h"
#include "bench.h"

#ifdef __has_include
#if __has_include(<fp16.h>)
#include <fp16.h>
#define HAVE_FP16 1
#endif
#if __has_include(<Imath/half.h>)
#define IMATH_HALF_NO_LOOKUP_TABLE 1
#include <Imath/half.h>
#define HAVE_IMATH 1
#endif
#endif

enum { LARGE = BENCH_IN_MEMORY, SKEW = 16 };

static struct {
    double   *d;
    float    *x, *y;
    uint16_t *h;
    uint8_t  *c, *s;
} data;

#define RUN_PAIR(d, s, to, from) \
    static void run_##d##_from_##s(size_t n) { (void)mpt_##d##_from_##s##_n((to), (from), n); }
RUN_PAIR(f16, f32, (mpt_f16 *)data.h, data.x)
RUN_PAIR(f32, f16, data.y, (const mpt_f16 *)data.h)
RUN_PAIR(bf16, f32, (mpt_bf16 *)data.h, data.x)
RUN_PAIR(f32, bf16, data.y, (const mpt_bf16 *)data.h)
RUN_PAIR(f16, f64, (mpt_f16 *)data.h, data.d)
RUN_PAIR(e4m3, f32, (mpt_e4m3 *)data.c, data.x)
RUN_PAIR(f32, e4m3, data.y, (const mpt_e4m3 *)data.c)
RUN_PAIR(e5m2, f32, (mpt_e5m2 *)data.c, data.x)
RUN_PAIR(f32, e5m2, data.y, (const mpt_e5m2 *)data.c)

static void convert(mpt_format to, void *dst, mpt_format from, const void *src, size_t n)
{
    (void)mpt_convert_n(to, dst, from, src, n, NULL, NULL);
}
static void run_f32_from_f64(size_t n) { convert(MPT_F32, data.y, MPT_F64, data.d, n); }
static void run_f64_from_f32(size_t n) { convert(MPT_F64, data.d, MPT_F32, data.x, n); }
static void run_checked(size_t n)
{
    (void)mpt_convert_checked_n(MPT_F16, data.h, MPT_F32, data.x, n, NULL, NULL);
}
static void run_inexact(size_t n)
{
    size_t count;
    (void)mpt_inexact_n(MPT_F16, MPT_F32, data.x, n, &count, NULL);
}
static void run_bytes(size_t n)
{
    (void)mpt_convert_bytes_n(MPT_F16, data.h, MPT_BIG_ENDIAN, MPT_F32, data.x, MPT_NATIVE_ENDIAN, n, NULL,
                              NULL);
}
static void run_from_bytes(size_t n)
{
    (void)mpt_convert_bytes_n(MPT_F32, data.y, MPT_NATIVE_ENDIAN, MPT_F16, data.h, MPT_BIG_ENDIAN, n, NULL,
                              NULL);
}
static void run_strided(size_t n)       /* one of four channels */
{
    (void)mpt_convert_strided(MPT_F16, data.h, 2, MPT_F32, data.x, 16, n / 4, NULL, NULL);
}
static void run_flags(size_t n)
{
    unsigned flags = 0u;
    (void)mpt_convert_n(MPT_F16, data.h, MPT_F32, data.x, n, NULL, &flags);
}
static void run_option(mpt_format to, void *dst, size_t n, mpt_rounding rounding, mpt_overflow overflow)
{
    mpt_opts o;
    memset(&o, 0, sizeof o);
    o.rounding = rounding, o.overflow = overflow;
    (void)mpt_convert_n(to, dst, MPT_F32, data.x, n, &o, NULL);
}
static void run_saturate(size_t n)
{
    run_option(MPT_E4M3, data.c, n, MPT_RND_NEAREST_EVEN, MPT_OVERFLOW_SATURATE);
}
static void run_cut(size_t n) { run_option(MPT_F16, data.h, n, MPT_RND_TOWARD_ZERO, MPT_OVERFLOW_IEEE); }
static void run_stochastic(size_t n)
{
    run_option(MPT_F16, data.h, n, MPT_RND_STOCHASTIC, MPT_OVERFLOW_IEEE);
}
static void run_quantize_f16(size_t n) { (void)mpt_quantize_n(data.y, data.x, n, MPT_F16, NULL); }
static void run_quantize_stochastic(size_t n)
{
    mpt_opts o;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    (void)mpt_quantize_n(data.y, data.x, n, MPT_F16, &o);
}
static void run_quantize_any(size_t n) { (void)mpt_quantize_n(data.y, data.x, n, MPT_E3M2, NULL); }

static void quantize(mpt_block block, size_t n)
{
    mpt_block_opts o;
    memset(&o, 0, sizeof o);
    o.packed = 1;
    (void)mpt_block_quantize_n(block, data.c, data.s, data.x, n, &o);
}
static void run_mxfp4(size_t n) { quantize(MPT_MXFP4, n); }
static void run_nvfp4(size_t n) { quantize(MPT_NVFP4, n); }

static void dequantize(mpt_block block, size_t n)
{
    mpt_block_opts o;
    memset(&o, 0, sizeof o);
    o.packed = 1;
    (void)mpt_block_dequantize_n(block, data.y, data.c, data.s, n, &o);
}
static void run_from_mxfp4(size_t n) { dequantize(MPT_MXFP4, n); }
static void run_from_nvfp4(size_t n) { dequantize(MPT_NVFP4, n); }
static void run_from_mxfp8(size_t n) { dequantize(MPT_MXFP8_E4M3, n); }
static void run_e3m2(size_t n) { convert(MPT_E3M2, data.c, MPT_F32, data.x, n); }
static void run_from_e3m2(size_t n) { convert(MPT_F32, data.y, MPT_E3M2, data.c, n); }

/* A loop of calls of a scalar function, which compilers must not vectorize. */
#if defined(__clang__)
#define SCALAR_LOOP _Pragma("clang loop vectorize(disable) interleave(disable)")
#define SCALAR
#elif defined(__GNUC__)
#define SCALAR_LOOP
#define SCALAR __attribute__((optimize("no-tree-vectorize")))
#else
#define SCALAR_LOOP
#define SCALAR
#endif
#define RUN_LOOP(name, statement)           \
    SCALAR static void run_##name(size_t n) \
    {                                       \
        size_t i;                           \
        SCALAR_LOOP                         \
        for (i = 0; i < n; i++)             \
            statement;                      \
    }
RUN_LOOP(scalar_encode, data.h[i] = mpt_f16_from_f32(data.x[i]).bits)
RUN_LOOP(scalar_decode, data.y[i] = mpti_f32_make(mpti_f16_decode(data.h[i])))
#if defined(HAVE_FP16)
RUN_LOOP(fp16_encode, data.h[i] = fp16_ieee_from_fp32_value(data.x[i]))
RUN_LOOP(fp16_decode, data.y[i] = fp16_ieee_to_fp32_value(data.h[i]))
#endif
#if defined(HAVE_IMATH)
RUN_LOOP(imath_encode, data.h[i] = imath_float_to_half(data.x[i]))
RUN_LOOP(imath_decode, data.y[i] = imath_half_to_float(data.h[i]))
#endif

typedef struct row {
    const char *name;
    void (*run)(size_t n);
    double in, out;             /* bytes per element */
} row;

static const row every[] = {
    {"f32 -> f16", run_f16_from_f32, 4, 2},
    {"f16 -> f32", run_f32_from_f16, 2, 4},
    {"f32 -> bf16", run_bf16_from_f32, 4, 2},
    {"bf16 -> f32", run_f32_from_bf16, 2, 4},
    {"f64 -> f16", run_f16_from_f64, 8, 2},
    {"f64 -> f32", run_f32_from_f64, 8, 4},
    {"f32 -> f64", run_f64_from_f32, 4, 8},
    {"f32 -> e4m3", run_e4m3_from_f32, 4, 1},
    {"e4m3 -> f32", run_f32_from_e4m3, 1, 4},
    {"f32 -> e5m2", run_e5m2_from_f32, 4, 1},
    {"e5m2 -> f32", run_f32_from_e5m2, 1, 4},
    {"quantize f16 in f32", run_quantize_f16, 4, 4},
    {"quantize e3m2 in f32", run_quantize_any, 4, 4},
    {"quantize f16 stochastic in f32", run_quantize_stochastic, 4, 4},
    {"f32 -> f16 stochastic", run_stochastic, 4, 2},
    {"f32 -> mxfp4 packed", run_mxfp4, 4, 0.53125},
    {"f32 -> nvfp4 packed", run_nvfp4, 4, 0.5625},
    {"mxfp4 packed -> f32", run_from_mxfp4, 0.53125, 4},
    {"nvfp4 packed -> f32", run_from_nvfp4, 0.5625, 4},
    {"mxfp8 -> f32", run_from_mxfp8, 1.03125, 4},
    {"f32 -> e3m2", run_e3m2, 4, 1},
    {"e3m2 -> f32", run_from_e3m2, 1, 4},
    {"f32 -> f16 with flags", run_flags, 4, 2},
    {"f32 -> f16 toward zero", run_cut, 4, 2},
    {"f32 -> e4m3, saturating", run_saturate, 4, 1},
    {"f32 -> f16, checked", run_checked, 4, 2},
    {"f32 -> f16 big-endian", run_bytes, 4, 2},
    {"f16 big-endian -> f32", run_from_bytes, 2, 4},
    {"f32 of 4 channels -> f16", run_strided, 4, 0.5},
    {"f32 inexact in f16", run_inexact, 4, 0},
};
static const row loops[] = {
    {"f32 -> f16", run_scalar_encode, 4, 2},
    {"f16 -> f32", run_scalar_decode, 2, 4},
#if defined(HAVE_FP16)
    {"f32 -> f16, libfp16", run_fp16_encode, 4, 2},
    {"f16 -> f32, libfp16", run_fp16_decode, 2, 4},
#endif
#if defined(HAVE_IMATH)
    {"f32 -> f16, Imath", run_imath_encode, 4, 2},
    {"f16 -> f32, Imath", run_imath_decode, 2, 4},
#endif
};
enum { ROWS = sizeof every / sizeof *every, LOOPS = sizeof loops / sizeof *loops };

static const char *only_row = "", *only_path = "";
static size_t      only_size;   /* 0: all */

static void measure(bench *b, const row *r, const char *path, size_t n)
{
    if (!strstr(r->name, only_row) || (*only_path && strcmp(path, only_path)) ||
        (only_size && only_size != n))
        return;
    (void)bench_row_bytes(b, r->name, path, r->run, n, (size_t)(r->in * (double)n),
                          (size_t)(r->out * (double)n));
}

static void numpy_row(bench *b, const char *name, size_t n, double speed)
{
    bench_row_elsewhere(b, name, "numpy", speed, n, name[1] == '3' ? 4 : 2, name[1] == '3' ? 2 : 4);
}

/* Uniform numbers in [-0.5, 0.5), of which 1 in 64 is set to zero. */
static void fill(size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t r = mpt_philox(1u, 0u, 0u, i);
        const float    x = (float)((double)(int32_t)r / 65536.0 / 65536.0);
        data.x[i] = r % 64u ? x : 0.0f;
        data.d[i] = (double)data.x[i];
    }
    (void)mpt_f16_from_f32_n((mpt_f16 *)data.h, data.x, n);
    (void)mpt_e4m3_from_f32_n((mpt_e4m3 *)data.c, data.x, n);
    memset(data.s, 120, n / 16);
}

static char *skewed(size_t bytes) { return (char *)bench_array(bytes + SKEW) + SKEW; }

int main(int argc, char **argv)
{
    static const struct { const char *name; int last; } paths[] = {
        {"portable", 0}, {"sse2", 2}, {"avx2", 3},
    };
    bench       b;
    size_t      i, k;
    const char *best;
    data.d = (double *)(void *)skewed(LARGE * sizeof(double));
    data.x = (float *)(void *)skewed(LARGE * sizeof(float));
    data.y = (float *)(void *)skewed(LARGE * sizeof(float));
    data.h = (uint16_t *)(void *)skewed(LARGE * sizeof(uint16_t));
    data.c = (uint8_t *)skewed(LARGE);
    data.s = (uint8_t *)skewed(LARGE / 16);
    last_path = PATHS - 1;
    best = mpt_simd_name();
    only_row = argc > 2 ? argv[2] : "";
    only_path = argc > 3 ? argv[3] : "";
    only_size = argc > 4 ? (size_t)strtoul(argv[4], NULL, 10) : 0u;
    fill(only_size ? only_size : (size_t)LARGE);
    bench_open(&b, "half", argc, argv, (size_t)LARGE * 8);
    b.skew = SKEW;
    for (i = 0; i < ROWS; i++)
        measure(&b, every + i, best, BENCH_IN_L1);
    for (i = 0; i < ROWS; i++)
        measure(&b, every + i, best, LARGE);
    for (k = 0; k < sizeof paths / sizeof *paths; k++) {
        last_path = paths[k].last;
        if (strcmp(mpt_simd_name(), paths[k].name) == 0)
            for (i = 0; i < 9; i++)
                measure(&b, every + i, paths[k].name, BENCH_IN_L1);
    }
    for (i = 0; i < LOOPS; i++)
        measure(&b, loops + i, "loop", BENCH_IN_L1);
    last_path = PATHS - 1;
    for (i = 0; i < 2; i++) {           /* an array of 9 elements, and 9 scalar calls */
        measure(&b, every + i, best, 9);
        measure(&b, loops + i, "loop", 9);
    }
    if (argc < 3)
        (void)bench_numpy(&b, "tests/bench/numpy_half.py", numpy_row);
    return bench_close(&b);
}
