/* bench_arith.c -- the speed of arithmetic on arrays of f16 and bf16, each beside a loop of as many bytes.
 *
 *   make bench
 */
#define _POSIX_C_SOURCE 200809L
#include "mpt_half.h"
#include "bench.h"

enum { LARGE = 16 << 20 };

static mpt_f16  *h, *ha, *hb, *hc;
static mpt_bf16 *b, *ba, *bb, *bc;

static void run_f16_add(size_t n) { (void)mpt_f16_add_n(h, ha, hb, n); }
static void run_f16_mul(size_t n) { (void)mpt_f16_mul_n(h, ha, hb, n); }
static void run_f16_fma(size_t n) { (void)mpt_f16_fma_n(h, ha, hb, hc, n); }
static void run_bf16_add(size_t n) { (void)mpt_bf16_add_n(b, ba, bb, n); }
static void run_bf16_mul(size_t n) { (void)mpt_bf16_mul_n(b, ba, bb, n); }
static void run_bf16_fma(size_t n) { (void)mpt_bf16_fma_n(b, ba, bb, bc, n); }

/* The scalar functions, one element per call: integer code, as on processors without vector paths. */
static void run_f16_add_scalar(size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        h[i] = mpt_f16_add(ha[i], hb[i]);
}

static void run_f16_mul_scalar(size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        h[i] = mpt_f16_mul(ha[i], hb[i]);
}

static void run_f16_fma_scalar(size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        h[i] = mpt_f16_fma(ha[i], hb[i], hc[i]);
}

static const struct {
    const char *name, *path;    /* NULL: the array path */
    void (*run)(size_t n);
    size_t in;                  /* bytes read per element */
    int    large;               /* 1: measure arrays larger than the cache too */
} rows[] = {
    {"f16 add", NULL, run_f16_add, 4, 1},
    {"f16 mul", NULL, run_f16_mul, 4, 1},
    {"f16 fma", NULL, run_f16_fma, 6, 1},
    {"bf16 add", NULL, run_bf16_add, 4, 1},
    {"bf16 mul", NULL, run_bf16_mul, 4, 1},
    {"bf16 fma", NULL, run_bf16_fma, 6, 1},
    {"f16 add, one a call", "scalar", run_f16_add_scalar, 4, 0},
    {"f16 mul, one a call", "scalar", run_f16_mul_scalar, 4, 0},
    {"f16 fma, one a call", "scalar", run_f16_fma_scalar, 6, 0},
};

int main(int argc, char **argv)
{
    bench  t;
    size_t i, row;
    h = (mpt_f16 *)bench_array(LARGE * sizeof *h);
    ha = (mpt_f16 *)bench_array(LARGE * sizeof *h);
    hb = (mpt_f16 *)bench_array(LARGE * sizeof *h);
    hc = (mpt_f16 *)bench_array(LARGE * sizeof *h);
    b = (mpt_bf16 *)bench_array(LARGE * sizeof *b);
    ba = (mpt_bf16 *)bench_array(LARGE * sizeof *b);
    bb = (mpt_bf16 *)bench_array(LARGE * sizeof *b);
    bc = (mpt_bf16 *)bench_array(LARGE * sizeof *b);
    for (i = 0; i < LARGE; i++) {
        const float x = (float)((i * 2654435761u) % 65536u) * 1e-4f - 3.0f;
        const float y = (float)((i * 40503u) % 65536u) * 1e-4f - 2.0f;
        ha[i] = mpt_f16_from_f32(x);
        hb[i] = mpt_f16_from_f32(y);
        hc[i] = mpt_f16_from_f32(y * 0.3f);
        ba[i] = mpt_bf16_from_f32(x);
        bb[i] = mpt_bf16_from_f32(y);
        bc[i] = mpt_bf16_from_f32(y * 0.3f);
    }
    bench_open(&t, "arith", argc, argv, (size_t)LARGE * 6);
    for (row = 0; row < sizeof rows / sizeof *rows; row++)
        for (i = 0; i < 1u + (unsigned)rows[row].large; i++)
            (void)bench_row(&t, rows[row].name, rows[row].path ? rows[row].path : mpt_simd_name(),
                            rows[row].run, i ? LARGE : BENCH_IN_L1, rows[row].in, 2);
    return bench_close(&t);
}
