/* bench_mpt.c -- what the array functions and the step cost, each beside a loop that moves as many bytes.
 *
 *   make bench
 */
#define _POSIX_C_SOURCE 200809L
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "bench.h"

enum { LARGE = 16 << 20 };

/* Everything the rows work on; allocated once. */
static struct {
    float     *w, *m, *v, *x;
    mpt_f16   *h;
    mpt_bf16  *b;
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
    mpt_step step;
    data.tensor.n = n;
    open_step(&step);
}

/* The step alone: the record of the check is made by hand. */
static mpt_step checked;            /* stage CHECKED, factors 1: see main */

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

static const struct {
    const char *name;
    void (*run)(size_t n);
    size_t in, out;             /* bytes an element */
} rows[] = {
    {"f32 -> f16", run_f16_from_f32, 4, 2},
    {"f16 -> f32", run_f32_from_f16, 2, 4},
    {"f32 -> bf16", run_bf16_from_f32, 4, 2},
    {"bf16 -> f32", run_f32_from_bf16, 2, 4},
    {"range report, f32", run_range, 4, 0},
    {"check, f16 gradients", run_check, 2, 0},
    {"SGD momentum, f16 grad and copy", run_sgd, 10, 10},
    {"AdamW, f16 grad and copy", run_adamw, 14, 14},
};

int main(int argc, char **argv)
{
    bench  b;
    size_t i, row;
    data.w = (float *)bench_array(LARGE * sizeof(float));
    data.m = (float *)bench_array(LARGE * sizeof(float));
    data.v = (float *)bench_array(LARGE * sizeof(float));
    data.x = (float *)bench_array(LARGE * sizeof(float));
    data.h = (mpt_f16 *)bench_array(LARGE * sizeof(mpt_f16));
    data.b = (mpt_bf16 *)bench_array(LARGE * sizeof(mpt_bf16));
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
    checked.grad_factor = checked.clip_factor = 1.0f;
    checked.stage = (uint32_t)MPT_STAGE_CHECKED;
    bench_open(&b, "mpt", argc, argv, (size_t)LARGE * 14);
    for (row = 0; row < sizeof rows / sizeof *rows; row++) {
        for (i = 0; i < 2; i++)
            (void)bench_row(&b, rows[row].name, mpt_simd_name(), rows[row].run, i ? LARGE : BENCH_IN_L1,
                            rows[row].in, rows[row].out);
    }
    return data.range.count ? bench_close(&b) : 1;  /* so that no compiler drops the reports */
}
