/* bench_rows.c -- the speed of short rows and thin products, compared with a training program's own loops
 * (user.c, in FP32, at -O3 -march=native -ffast-math; ours are built with -O2). Goals: rows of 4 to 63
 * elements take at most 1.3 times as long as its loop; longer rows, and products, no longer than it.
 *
 *   make bench, or: bench_rows - 1 PATH     1: rows, 2: products, 3: both; PATH numbered as in MPT_SIMD */
#define _POSIX_C_SOURCE 200809L
#include "mpt.h"
#include "bench.h"
#include "../impl.h"
#include "user.h"

enum { MOST = 4096, RUNS = 15 };

static struct {
    float    *w, *dw, x[16 * MOST], y[16 * MOST], m[MOST];
    double    x64[MOST], y64[MOST];
    uint16_t *f16, *bf16;
} d;
static volatile float sink, between;
static size_t         n, rows, cols, batch;
static mpt_format     format;

static void *of(mpt_format f)
{
    return f == MPT_F16 ? (void *)d.f16 : f == MPT_BF16 ? (void *)d.bf16 : (void *)d.w;
}

static void user_row_dot(void) { sink = user_dot(d.w, d.x, n); }
static void user_row_axpy(void) { user_axpy(d.y, 1e-6f, d.x, n); }
static void user_row_momentum(void) { user_momentum(d.y, d.m, 0.9f, 0.5f, 1e-6f, d.x, n); }
static void row_dot_f32(void) { sink = mpt_dot(d.w, MPT_F32, d.x, MPT_F32, n); }
static void row_dot_f16(void) { sink = mpt_dot(d.f16, MPT_F16, d.x, MPT_F32, n); }
static void row_dot_bf16(void) { sink = mpt_dot(d.bf16, MPT_BF16, d.x, MPT_F32, n); }
static void row_axpy_f32(void) { (void)mpt_axpy(d.y, MPT_F32, 1e-6f, d.w, MPT_F32, n); }
static void row_axpy_f16(void) { (void)mpt_axpy(d.y, MPT_F32, 1e-6f, d.f16, MPT_F16, n); }
static void row_axpy_bf16(void) { (void)mpt_axpy(d.y, MPT_F32, 1e-6f, d.bf16, MPT_BF16, n); }
static void row_publish(void)
{
    uint32_t bad = 0u;
    (void)mpt_axpy_publish(d.f16, MPT_F16, d.y, 1e-6f, d.x, n, &bad);
}
static void user_row_f64(void) { user_axpy_f64(d.y64, 1e-6, d.x64, n); }
static void row_publish_f64(void)
{
    uint32_t bad = 0u;
    (void)mpt_axpy_publish_f64(d.f16, MPT_F16, d.y64, 1e-6, d.x64, n, &bad);
}
static void row_update(mpt_storage storage, float momentum)
{
    static mpt_row_rule rule;
    static mpt_tensor   t;              /* set up once, as in a training program */
    if (t.n != n || t.storage != storage) {
        memset(&t, 0, sizeof t);
        t.n = n, t.param = d.f16, t.param_format = MPT_F16, t.storage = storage;
        t.master = storage == MPT_STORE_MASTER ? d.y : NULL, t.m = d.m;
        rule.a = 1e-6f, rule.factor = 0.5f, rule.momentum = momentum;
    }
    (void)mpt_row_update(&rule, &t, 0, n, d.x);
}
static void row_momentum(void) { row_update(MPT_STORE_MASTER, 0.9f); }
static void row_stochastic(void) { row_update(MPT_STORE_STOCHASTIC, 0.0f); }

static void user_y(void) { user_forward(d.y, d.w, d.x, batch, rows, cols); }
static void user_dx(void) { user_backward(d.y, d.w, d.x, batch, rows, cols); }
static void user_dw(void) { user_gradient(d.dw, d.x, d.y, batch, rows, cols); }
static void our_y(void)
{
    (void)mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, batch, rows, cols, 1.0f, d.x, MPT_F32, cols,
                   of(format), format, cols, 0.0f, d.y, MPT_F32, rows, NULL, 0);
}
static void our_dx(void)
{
    (void)mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, batch, cols, rows, 1.0f, d.x, MPT_F32, rows,
                   of(format), format, cols, 1.0f, d.y, MPT_F32, cols, NULL, 0);
}
static void our_dw(void)
{
    (void)mpt_gemm(MPT_ROW_MAJOR, MPT_TRANS, MPT_NO_TRANS, rows, cols, batch, 1.0f, d.x, MPT_F32, rows, d.y,
                   MPT_F32, cols, 1.0f, of(format), format, cols, NULL, 0);
}

/* With some SSE code between the calls, as training programs have it: on many processors it has to wait if
 * the upper halves of vector registers are not zero. */
static double time_of(void (*run)(void), size_t calls)
{
    const double at = bench_now();
    size_t       k;
    for (k = 0; k < calls; k++) {
        run();
        between += 1.0f;
    }
    return (bench_now() - at) / (double)calls;
}

/* Time both in turn; the calls of the user take about half a millisecond each time. */
static void compare(const char *what, size_t size, void (*user)(void), void (*ours)(void), double goal,
                    FILE *csv)
{
    double t[2][RUNS], a, b;
    size_t calls;
    int    r;
    user(), ours();
    calls = (size_t)(5e-4 / (time_of(user, 3) + 1e-9)) + 1u;
    for (r = 0; r < RUNS; r++) {
        t[0][r] = time_of(user, calls);
        t[1][r] = time_of(ours, calls);
    }
    a = bench_median(t[0], RUNS) * 1e9;
    b = bench_median(t[1], RUNS) * 1e9;
    printf("%-24s %9zu %11.1f %11.1f %6.2f  %s %.1f\n", what, size, a, b, b / a,
           b / a <= goal ? "within" : "above", goal);
    if (csv)
        fprintf(csv, "\"%s\",%zu,%.4g,%.4g,%.3f,%.1f\n", what, size, a, b, b / a, goal);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*user)(void), (*ours)(void); } calls[] = {
        {"dot f32", user_row_dot, row_dot_f32},       {"dot f16", user_row_dot, row_dot_f16},
        {"dot bf16", user_row_dot, row_dot_bf16},     {"axpy f32", user_row_axpy, row_axpy_f32},
        {"axpy f16", user_row_axpy, row_axpy_f16},    {"axpy bf16", user_row_axpy, row_axpy_bf16},
        {"axpy_publish f16", user_row_axpy, row_publish},
        {"axpy_publish_f64 f16", user_row_f64, row_publish_f64},
        {"row_update, momentum", user_row_momentum, row_momentum},
        {"row_update, no master", user_row_axpy, row_stochastic},
    };
    static const struct { const char *name; void (*user)(void), (*ours)(void); } thin[] = {
        {"y = W x", user_y, our_y}, {"dx += W' dy", user_dx, our_dx}, {"dW += dy x'", user_dw, our_dw},
    };
    static const size_t     sizes[] = {4, 10, 16, 33, 63, 64, 100, 256, 1024, 4096};
    static const size_t     edges[] = {10, 36, 64, 100, 300, 1024, 4096}, batches[] = {1, 4, 16};
    static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};
    const int               only = argc > 2 ? atoi(argv[2]) : 3;        /* 1: rows, 2: products */
    const size_t            most = (size_t)MOST * MOST;
    FILE *const             csv = bench_csv("rows", argc, argv, "call,n,user_ns,ns,ratio,goal");
    size_t                  i, k, b, f;
    if (argc > 3)
        last_path = atoi(argv[3]);
    d.w = (float *)bench_array(most * sizeof *d.w);
    d.dw = (float *)bench_array(most * sizeof *d.w);
    d.f16 = (uint16_t *)bench_array(most * sizeof *d.f16);
    d.bf16 = (uint16_t *)bench_array(most * sizeof *d.f16);
    for (i = 0; i < most; i++) {
        d.w[i] = (float)(i % 97u) * 1e-2f;
        d.f16[i] = mpt_f16_from_f32(d.w[i]).bits;
        d.bf16[i] = mpt_bf16_from_f32(d.w[i]).bits;
    }
    for (i = 0; i < sizeof d.x / sizeof *d.x; i++)
        d.x[i] = d.y[i] = (float)(i % 89u) * 1e-3f;
    for (i = 0; i < MOST; i++)
        d.x64[i] = d.y64[i] = (double)d.x[i];
    printf("%s; medians of %d; ns a call\n%-24s %9s %11s %11s %6s\n", mpt_simd_name(), (int)RUNS, "", "n",
           "user", "ours", "ratio");
    for (i = 0; (only & 1) && i < sizeof calls / sizeof *calls; i++)
        for (k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            n = sizes[k];
            compare(calls[i].name, n, calls[i].user, calls[i].ours, n < 64 ? 1.3 : 1.0, csv);
        }
    for (i = 0; (only & 2) && i < sizeof thin / sizeof *thin; i++)
        for (f = 0; f < 3; f++)
            for (b = 0; b < 3; b++)
                for (k = 0; k < sizeof edges / sizeof *edges; k++) {
                    char name[40];
                    rows = cols = edges[k], batch = batches[b], format = formats[f];
                    snprintf(name, sizeof name, "%s, %s, %zu", thin[i].name, mpt_format_get(format)->name,
                             batch);
                    compare(name, rows, thin[i].user, thin[i].ours, 1.0, csv);
                }
    return csv && fclose(csv) ? 1 : 0;
}
