/* bench_step.c -- the speed of a fused optimizer step on arrays larger than the cache, on one thread, beside
 * a loop that reads and writes the same arrays in the same way (in place where the step works in place) and
 * computes nothing. This ceiling is the better of ordinary and of non-temporal stores to the arrays that are
 * only written. The ratio is the number to quote. LAMB and Adafactor read their arrays several times, because
 * the update needs norms: their ratio is of what one reading would take.
 *
 *   make bench
 *   build/bench/bench_step . 16        # with 16 Mi elements instead of 64
 *   build/bench/bench_step . 64 SGD    # only the rows whose names contain this word
 */
#define _POSIX_C_SOURCE 200809L
#include "mpt.h"
#include "traffic.h"

enum { RUNS = 11, MEBI = 1 << 20 };

/* ---- the steps ---- */

static struct {
    size_t    n;
    float    *w, *m, *v;
    uint16_t *grad, *param, *extra;
} data;

typedef enum rule { SGD, SGD_MOMENTUM, ADAMW, LION, LAMB, ADAFACTOR, FACTORED, PUBLISH } rule;

static const struct row {
    const char *name;
    rule        rule;
    mpt_storage storage;
    mpt_format  param;
    mpt_moments moments;
    double      goal;           /* 0: none */
} rows[] = {
    {"AdamW, FP32 w m v, f16 grad+copy", ADAMW, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.80},
    {"AdamW, FP32 w m v, bf16 copy", ADAMW, MPT_STORE_MASTER, MPT_BF16, MPT_MOMENTS_F32, 0.80},
    {"SGD momentum, f16 grad+copy", SGD_MOMENTUM, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.85},
    {"SGD, f16 grad+copy", SGD, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.0},
    {"AdamW, stochastic bf16", ADAMW, MPT_STORE_STOCHASTIC, MPT_BF16, MPT_MOMENTS_F32, 0.60},
    {"AdamW, stochastic f16", ADAMW, MPT_STORE_STOCHASTIC, MPT_F16, MPT_MOMENTS_F32, 0.60},
    {"SGD momentum, stochastic bf16", SGD_MOMENTUM, MPT_STORE_STOCHASTIC, MPT_BF16, MPT_MOMENTS_F32, 0.60},
    {"SGD momentum, stochastic f16", SGD_MOMENTUM, MPT_STORE_STOCHASTIC, MPT_F16, MPT_MOMENTS_F32, 0.60},
    {"AdamW, Kahan bf16", ADAMW, MPT_STORE_KAHAN, MPT_BF16, MPT_MOMENTS_F32, 0.0},
    {"AdamW, split bf16", ADAMW, MPT_STORE_SPLIT, MPT_BF16, MPT_MOMENTS_F32, 0.0},
    {"AdamW, split bf16, bf16 moments", ADAMW, MPT_STORE_SPLIT, MPT_BF16, MPT_MOMENTS_BF16, 0.0},
    {"Lion, f16 grad+copy", LION, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.0},
    {"LAMB, f16 grad+copy", LAMB, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.0},
    {"Adafactor, f16 grad+copy", ADAFACTOR, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.0},
    {"Adafactor, rows of 1024", FACTORED, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.0},
    {"publish, f16", PUBLISH, MPT_STORE_MASTER, MPT_F16, MPT_MOMENTS_F32, 0.0},
};

static mpt_tensor tensor_of(const struct row *row)
{
    mpt_tensor t;
    memset(&t, 0, sizeof t);
    t.n = data.n;
    t.master = data.w;
    t.param = data.param;
    t.grad = data.grad;
    t.m = data.m;
    t.v = data.v;
    t.extra = data.extra;
    t.param_format = row->param;
    t.grad_format = MPT_F16;
    t.columns = row->rule == FACTORED ? 1024 : 0;
    t.storage = row->storage;
    t.moments = row->moments;
    return t;
}

/* The step alone: the result of mpt_check is filled in by hand. */
static void run(const struct row *row)
{
    const mpt_tensor t = tensor_of(row);
    mpt_step         step;
    memset(&step, 0, sizeof step);
    step.grad_factor = step.clip_factor = 1.0f;
    step.stage = (uint32_t)MPT_STAGE_CHECKED;
    switch (row->rule) {
    case SGD: case SGD_MOMENTUM: {
        mpt_sgd o = {1e-3f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
        o.momentum = row->rule == SGD ? 0.0f : 0.9f;
        (void)mpt_sgd_step(&o, &step, &t, 1);
        break;
    }
    case ADAMW: {
        mpt_adamw o = mpt_adamw_defaults();
        (void)mpt_adamw_step(&o, &step, &t, 1);
        break;
    }
    case LION: {
        mpt_lion o = mpt_lion_defaults();
        (void)mpt_lion_step(&o, &step, &t, 1);
        break;
    }
    case LAMB: {
        mpt_lamb o = mpt_lamb_defaults();
        (void)mpt_lamb_step(&o, &step, &t, 1);
        break;
    }
    case ADAFACTOR: case FACTORED: {
        mpt_adafactor o = mpt_adafactor_defaults();
        (void)mpt_adafactor_step(&o, &step, &t, 1);
        break;
    }
    case PUBLISH: (void)mpt_publish(&t, 1); break;
    default: break;
    }
}

static traffic traffic_of(const struct row *row)
{
    const size_t moment = row->moments == MPT_MOMENTS_BF16 ? 2 : 4;
    const int    master = row->storage == MPT_STORE_MASTER, publish = row->rule == PUBLISH;
    const int    v = row->rule == ADAMW || row->rule == LAMB || row->rule == ADAFACTOR;
    traffic      t;
    memset(&t, 0, sizeof t);
    t.n = data.n;
    if (!publish) traffic_add(&t, data.grad, 2, 1, 0);
    if (master) traffic_add(&t, data.w, 4, 1, !publish);
    if (row->storage == MPT_STORE_KAHAN || row->storage == MPT_STORE_SPLIT)
        traffic_add(&t, data.extra, 2, 1, 1);
    if (row->rule != SGD && row->rule != ADAFACTOR && row->rule != FACTORED && !publish)
        traffic_add(&t, data.m, moment, 1, 1);
    if (v) traffic_add(&t, data.v, moment, 1, 1);
    traffic_add(&t, data.param, 2, !master, 1);
    return t;
}

static void fill(void)
{
    size_t i;
    for (i = 0; i < data.n; i++) {
        const float x = (float)((i * 2654435761u) % 65536u) * 1e-5f;
        data.w[i] = x;
        data.m[i] = x * 1e-2f;
        data.v[i] = x * 1e-2f;
        data.grad[i] = mpt_f16_from_f32(x * 1e-3f).bits;
        data.param[i] = 0x3c00u;
        data.extra[i] = 0u;
    }
}

static void measure(const struct row *row, FILE *csv)
{
    const traffic t = traffic_of(row);
    double        ours[RUNS], ceiling[2][RUNS], a, c;
    size_t        bytes = 0, s;
    int           i, k;
    for (s = 0; s < t.count; s++)
        bytes += t.stream[s].bytes * (size_t)(t.stream[s].read + t.stream[s].write);
    fill();
    run(row);
    for (i = 0; i < RUNS; i++) {
        double at = bench_now();
        run(row);
        ours[i] = bench_now() - at;
        for (k = 0; k < 2; k++) {
            at = bench_now();
            touch(&t, k);
            ceiling[k][i] = bench_now() - at;
        }
        if (i % 4 == 3) fill();         /* the ceiling leaves zeros, which would take less time */
    }
    a = bench_median(ours, RUNS);
    c = bench_median(ceiling[0], RUNS);
    if (bench_median(ceiling[1], RUNS) < c) c = bench_median(ceiling[1], RUNS);
    printf("%-36s %4zu %9.2f %9.2f %6.2f", row->name, bytes, (double)(bytes * data.n) / a * 1e-9,
           (double)(bytes * data.n) / c * 1e-9, c / a);
    if (row->goal > 0.0) printf("  %s %.2f", c / a >= row->goal ? "reaches" : "below", row->goal);
    printf("\n");
    fflush(stdout);
    if (csv)
        fprintf(csv, "\"%s\",%zu,%.4g,%.4g,%.3f,%.2f\n", row->name, bytes,
                (double)(bytes * data.n) / a * 1e-9, (double)(bytes * data.n) / c * 1e-9, c / a, row->goal);
}

int main(int argc, char **argv)
{
    const char *const only = argc > 3 ? argv[3] : "";
    FILE *const       csv = bench_csv("step", argc, argv, "row,bytes,gb_s,ceiling_gb_s,ratio,goal");
    size_t            i;
    data.n = (size_t)(argc > 2 ? strtoul(argv[2], NULL, 10) : 64u) * MEBI;
    data.w = (float *)bench_array(data.n * sizeof(float));
    data.m = (float *)bench_array(data.n * sizeof(float));
    data.v = (float *)bench_array(data.n * sizeof(float));
    data.grad = (uint16_t *)bench_array(data.n * sizeof(uint16_t));
    data.param = (uint16_t *)bench_array(data.n * sizeof(uint16_t));
    data.extra = (uint16_t *)bench_array(data.n * sizeof(uint16_t));
    printf("%zu Mi elements, medians of %d, one thread\n", data.n / MEBI, (int)RUNS);
    printf("%-36s %4s %9s %9s %6s\n", "", "B/el", "GB/s", "ceiling", "ratio");
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(rows[i].name, only))
            measure(&rows[i], csv);
    return csv && fclose(csv) ? 1 : 0;
}
