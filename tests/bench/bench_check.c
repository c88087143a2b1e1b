/* bench_check.c -- the speed of mpt_check (unscale, found_inf and norm in one pass), mpt_unscale (which also
 * writes back) and FP8 with delayed scaling, beside loops of as many bytes; and the time of an update.
 *
 *   make bench, or: bench_check - PATH, with PATH numbered as in MPT_SIMD */
#define _POSIX_C_SOURCE 200809L
#include "mpt.h"
#include "../impl.h"
#include "bench.h"

enum { LARGE = 64 << 20, UPDATES = 1 << 20 };

static struct {
    mpt_tensor tensor;
    mpt_scaler scaler;
    double     norm;
    void      *codes;
} data;

static void run(size_t n, int write_back)
{
    mpt_step step;
    data.tensor.n = n;
    memset(&step, 0, sizeof step);
    (void)mpt_scaler_scale(&data.scaler, 1.0f);
    (void)(write_back ? mpt_unscale : mpt_check)(&data.scaler, &step, &data.tensor, 1, NULL);
    data.norm += step.norm;
    data.scaler.checks = 0;             /* so that the next run is a new step */
}

static void run_check(size_t n) { run(n, 0); }
static void run_unscale(size_t n) { run(n, 1); }

static void run_fp8(size_t n)
{
    const float scale = 64.0f;
    float       amax = 0.0f;
    (void)mpt_fp8_encode_n(MPT_E4M3, data.codes, MPT_F32, data.tensor.grad, n, &scale, &amax);
    data.norm += (double)amax;
}

/* With a scale of 1, writing back changes nothing, so every run does the same work. */
static void use_format(mpt_format format, void *grad, float *x)
{
    mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_STATIC);
    size_t            i;
    c.init_scale = 1.0f;
    (void)mpt_scaler_init(&data.scaler, &c);
    for (i = 0; i < LARGE; i++)
        x[i] = (float)((i * 2654435761u) % 65536u) * 1e-5f;
    data.tensor.grad = grad;
    data.tensor.grad_format = format;
    (void)mpt_convert_n(format, grad, MPT_F32, x, LARGE, NULL, NULL);
}

/* Nanoseconds per update of the scale, in a run of mostly good steps. */
static void update_row(bench *b, mpt_scaler_dialect dialect)
{
    double t[BENCH_RUNS], ns;
    int    i, k;
    for (i = 0; i < BENCH_RUNS; i++) {
        mpt_scaler s;
        (void)mpt_scaler_init(&s, NULL);
        s.config = mpt_scaler_defaults(dialect);
        (void)mpt_scaler_scale(&s, 1.0f);
        t[i] = bench_now();
        for (k = 0; k < UPDATES; k++) {
            s.found_inf = s.cause = (k & 4095) == 4095;
            s.checks = 1;
            (void)mpt_scaler_update(&s);
        }
        t[i] = (bench_now() - t[i]) / UPDATES;
        data.norm += (double)s.scale;
    }
    ns = bench_median(t, BENCH_RUNS) * 1e9;
    printf("%-34s %-9s %9.2f ns\n", "update of the scale", mpt_scaler_name(dialect), ns);
    if (b->csv)
        fprintf(b->csv, "update of the scale,%s,1,%.4g,,\n", mpt_scaler_name(dialect), 1.0 / ns);
}

int main(int argc, char **argv)
{
    static const struct { mpt_format format; size_t bytes; const char *check, *unscale; } rows[] = {
        {MPT_F16, 2, "check, f16", "unscale, f16"},
        {MPT_BF16, 2, "check, bf16", "unscale, bf16"},
        {MPT_F32, 4, "check, f32", "unscale, f32"},
    };
    void  *grad = bench_array((size_t)LARGE * 4);
    float *x = (float *)bench_array((size_t)LARGE * sizeof *x);
    bench  b;
    size_t row, i;
    int    d;
    if (argc > 2)
        last_path = atoi(argv[2]);
    bench_open(&b, "check", argc, argv, (size_t)LARGE * 4);
    for (row = 0; row < sizeof rows / sizeof *rows; row++) {
        use_format(rows[row].format, grad, x);
        for (i = 0; i < 2; i++) {
            const size_t n = i ? LARGE : BENCH_IN_L1;
            (void)bench_row(&b, rows[row].check, mpt_simd_name(), run_check, n, rows[row].bytes, 0);
            (void)bench_row(&b, rows[row].unscale, mpt_simd_name(), run_unscale, n, rows[row].bytes,
                            rows[row].bytes);
        }
    }
    data.codes = x;                     /* x is free: the last gradients are floats in another array */
    for (i = 0; i < 2; i++)
        (void)bench_row(&b, "FP8 with a scale, amax, f32", mpt_simd_name(), run_fp8,
                        i ? LARGE : BENCH_IN_L1, 4, 1);
    for (d = 0; d < (int)MPT_SCALER_DIALECT_COUNT; d++)
        update_row(&b, (mpt_scaler_dialect)d);
    return data.norm > 0.0 ? bench_close(&b) : 1;
}
