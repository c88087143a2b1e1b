/* bench.c -- what the array functions and the step cost, each beside a memcpy that moves as many bytes,
 * measured in the same run: the ratio is the number to quote; single times on a shared machine are noise.
 *
 *   make bench
 */
#define _POSIX_C_SOURCE 200809L
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include <stdlib.h>
#include <time.h>

enum { RUNS = 15, SMALL = 4096, LARGE = 16 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Everything the rows work on; allocated once. */
static struct {
    float     *w, *m, *v, *x;
    mpt_f16   *h;
    mpt_bf16  *b;
    char      *copy_from, *copy_to;
    mpt_tensor tensor;
    mpt_scaler scaler;
    mpt_range  range;
} data;

static void open_step(mpt_step *step)
{
    (void)mpt_scaler_scale(&data.scaler, 1.0f);
    (void)mpt_check(&data.scaler, step, &data.tensor, 1);
}

static void run_f16_from_f32(size_t n) { (void)mpt_f16_from_f32_n(data.h, data.x, n); }
static void run_f32_from_f16(size_t n) { (void)mpt_f32_from_f16_n(data.x, data.h, n); }
static void run_bf16_from_f32(size_t n) { (void)mpt_bf16_from_f32_n(data.b, data.x, n); }
static void run_f32_from_bf16(size_t n) { (void)mpt_f32_from_bf16_n(data.x, data.b, n); }

static void run_range(size_t n)
{
    (void)mpt_range_init(&data.range, MPT_F16);
    (void)mpt_range_add_f32(&data.range, data.x, n);
}

static void run_check(size_t n)
{
    mpt_step step = {0, 0.0, 0.0, 0.0f, 0.0f, 0u, 0u};
    data.tensor.n = n;
    open_step(&step);
}

/* The step alone: the record of the check is made by hand. */
static const mpt_step checked = {1, 0.0, 0.0, 1.0f, 1.0f, 0u, MPT_STAGE_CHECKED};

static void run_sgd(size_t n)
{
    mpt_sgd  o = {1e-3f, 0.9f, 0.0f, 0u, 0u};
    mpt_step step = checked;
    data.tensor.n = n;
    (void)mpt_sgd_step(&o, &step, &data.tensor, 1);
}

static void run_adamw(size_t n)
{
    mpt_adamw o = mpt_adamw_defaults();
    mpt_step  step = checked;
    data.tensor.n = n;
    (void)mpt_adamw_step(&o, &step, &data.tensor, 1);
}

/* bytes: read plus written per element. The copy beside it moves as many: half read, half written. */
static const struct {
    const char *name;
    void (*run)(size_t n);
    size_t bytes;
} rows[] = {
    {"f32 -> f16", run_f16_from_f32, 6},
    {"f16 -> f32", run_f32_from_f16, 6},
    {"f32 -> bf16", run_bf16_from_f32, 6},
    {"bf16 -> f32", run_f32_from_bf16, 6},
    {"range report, f32", run_range, 4},
    {"check, f16 gradients", run_check, 2},
    {"SGD momentum, f16 grad and copy", run_sgd, 20},
    {"AdamW, f16 grad and copy", run_adamw, 28},
};

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *t)
{
    qsort(t, RUNS, sizeof *t, by_size);
    return t[RUNS / 2];
}

static void measure(size_t row, size_t n)
{
    const size_t repeat = LARGE / n / 4 ? LARGE / n / 4 : 1, half_bytes = n * rows[row].bytes / 2;
    double       ours[RUNS], copy[RUNS], t;
    int          i;
    size_t       k;
    rows[row].run(n);
    memcpy(data.copy_to, data.copy_from, half_bytes);
    for (i = 0; i < RUNS; i++) {        /* side by side, so that noise hits both */
        t = now();
        for (k = 0; k < repeat; k++)
            rows[row].run(n);
        ours[i] = (now() - t) / (double)repeat;
        t = now();
        for (k = 0; k < repeat; k++) {
            memcpy(data.copy_to, data.copy_from, half_bytes);
            data.copy_from[k % half_bytes] ^= data.copy_to[(k * 7u) % half_bytes];
        }
        copy[i] = (now() - t) / (double)repeat;
    }
    {
        const double a = median(ours), c = median(copy);
        printf("%-32s %9zu %8.2f %9.2f %9.2f %6.2f\n", rows[row].name, n, (double)n / a * 1e-9,
               (double)(n * rows[row].bytes) / a * 1e-9, (double)(n * rows[row].bytes) / c * 1e-9, c / a);
        fflush(stdout);
    }
}

static void *array(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) {
        fprintf(stderr, "bench: out of memory (needs about 1.5 GB)\n");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

int main(void)
{
    size_t i, row;
    data.w = (float *)array(LARGE * sizeof(float));
    data.m = (float *)array(LARGE * sizeof(float));
    data.v = (float *)array(LARGE * sizeof(float));
    data.x = (float *)array(LARGE * sizeof(float));
    data.h = (mpt_f16 *)array(LARGE * sizeof(mpt_f16));
    data.b = (mpt_bf16 *)array(LARGE * sizeof(mpt_bf16));
    data.copy_from = (char *)array((size_t)LARGE * 14);
    data.copy_to = (char *)array((size_t)LARGE * 14);
    for (i = 0; i < LARGE; i++) {
        data.x[i] = (float)((i * 2654435761u) % 65536u) * 1e-5f;
        data.h[i] = mpt_f16_from_f32(data.x[i] * 1e-3f);
        data.w[i] = data.x[i];
    }
    data.tensor.master = data.w;
    data.tensor.m = data.m;
    data.tensor.v = data.v;
    data.tensor.grad = data.h;
    data.tensor.param = data.b;
    data.tensor.grad_format = MPT_F16;
    data.tensor.param_format = MPT_BF16;
    (void)mpt_scaler_init(&data.scaler, NULL);
    printf("path of the f16 arrays: %s; medians of %d, one thread\n", mpt_simd_name(), (int)RUNS);
    printf("%-32s %9s %8s %9s %9s %6s\n", "", "elements", "Gelem/s", "GB/s", "copy GB/s", "ratio");
    for (row = 0; row < sizeof rows / sizeof *rows; row++) {
        measure(row, SMALL);
        measure(row, LARGE);
    }
    return data.range.count ? 0 : 1;    /* so that no compiler drops the reports */
}
