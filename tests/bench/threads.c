/* threads.c -- the speed of passes over large arrays on 1, 2, 4 ... threads, beside a loop that reads and
 * writes the same arrays on as many threads and computes nothing; and the speedup over one thread.
 *
 *   make bench-threads
 *
 * 31 Mi elements, because malloc places arrays of 128 MiB at distances of 128 MiB and a page, where they
 * collide in some processors' caches: on Zen 4 a step over four of them takes twice as long, PyTorch's too.
 *
 *   build/bench/threads 16 AdamW       # 16 Mi elements; only the rows whose names contain this word
 * As a shared library it is called by torch_cpu.py (make bench-torch).
 */
#define _POSIX_C_SOURCE 200809L
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "traffic.h"

enum { RUNS = 15, MEBI = 1 << 20 };

static struct {
    size_t    n;
    float    *w, *m, *v, *grad;
    uint16_t *half, *param, *extra;
} data;

static mpt_scaler scaler;
static mpt_step   step;
static mpt_adamw  adamw;

/* One tensor of all elements. */
static mpt_tensor tensor(mpt_storage storage, mpt_format grad_format, void *param)
{
    mpt_tensor t;
    memset(&t, 0, sizeof t);
    t.n = data.n;
    t.master = data.w;
    t.param = param;
    t.param_format = MPT_BF16;
    t.grad = grad_format == MPT_F32 ? (void *)data.grad : (void *)data.half;
    t.grad_format = grad_format;
    t.m = data.m;
    t.v = data.v;
    t.extra = data.extra;
    t.storage = storage;
    return t;
}

static void checked(void)
{
    memset(&step, 0, sizeof step);
    step.grad_factor = step.clip_factor = 1.0f;
    step.stage = (uint32_t)MPT_STAGE_CHECKED;
}

static void adamw_of(mpt_storage storage, mpt_format grad_format, void *param)
{
    const mpt_tensor t = tensor(storage, grad_format, param);
    checked();
    (void)mpt_adamw_step(&adamw, &step, &t, 1);
}

static void check_of(mpt_format grad_format, int write_back)
{
    const mpt_tensor t = tensor(MPT_STORE_MASTER, grad_format, NULL);
    (void)mpt_scaler_scale(&scaler, 1.0f);
    (void)(write_back ? mpt_unscale(&scaler, &step, &t, 1, NULL) : mpt_check(&scaler, &step, &t, 1, NULL));
    (void)mpt_scaler_update(&scaler);
}

static void to_f16(void) { (void)mpt_f16_from_f32_n((mpt_f16 *)data.half, data.w, data.n); }
static void to_bf16(void) { (void)mpt_bf16_from_f32_n((mpt_bf16 *)data.half, data.w, data.n); }
static void from_f16(void) { (void)mpt_f32_from_f16_n(data.m, (const mpt_f16 *)data.half, data.n); }
static void from_bf16(void) { (void)mpt_f32_from_bf16_n(data.m, (const mpt_bf16 *)data.half, data.n); }
static void check_f32(void) { check_of(MPT_F32, 0); }
static void check_f16(void) { check_of(MPT_F16, 0); }
static void unscale_f32(void) { check_of(MPT_F32, 1); }
static void unscale_f16(void) { check_of(MPT_F16, 1); }
static void sgd(void)
{
    const mpt_tensor t = tensor(MPT_STORE_MASTER, MPT_F16, data.param);
    mpt_sgd          o = {1e-3f, 0.0f, 0.0f, 0u, 0.0f, 0u, 1u};
    checked();
    (void)mpt_sgd_step(&o, &step, &t, 1);
}
static void adamw_f32(void) { adamw_of(MPT_STORE_MASTER, MPT_F32, NULL); }
/* Arrays that begin 16 bytes after a cache line, as large ones from malloc do. */
static void adamw_behind(void)
{
    mpt_tensor t = tensor(MPT_STORE_MASTER, MPT_F32, NULL);
    t.n -= 4, t.master += 4, t.grad = data.grad + 4, t.m = data.m + 4, t.v = data.v + 4;
    checked();
    (void)mpt_adamw_step(&adamw, &step, &t, 1);
}
/* Masters placed as by malloc, the other arrays by mpt_tensors_place. */
static void adamw_placed(void)
{
    static mpt_tensor  item[1];
    static mpt_tensors list;
    if (!list.count) {
        (void)mpt_tensors_init(&list, item, 1, MPT_F16, MPT_F16);
        (void)mpt_tensors_add(&list, "w", data.n - 4, NULL, NULL, data.w + 4, NULL, NULL);
        (void)mpt_tensors_place(&list, bench_array(list.bytes), list.bytes);
        memcpy(item->grad, data.half, item->n * sizeof *data.half);
        memcpy(item->m, data.m, item->n * sizeof *data.m);
        memcpy(item->v, data.v, item->n * sizeof *data.v);
    }
    checked();
    (void)mpt_adamw_step(&adamw, &step, item, 1);
}
static void adamw_copy(void) { adamw_of(MPT_STORE_MASTER, MPT_F32, data.param); }
static void adamw_16(void) { adamw_of(MPT_STORE_MASTER, MPT_F16, data.param); }
static void adamw_kahan(void) { adamw_of(MPT_STORE_KAHAN, MPT_F16, data.param); }
static void adamw_split(void) { adamw_of(MPT_STORE_SPLIT, MPT_F16, data.param); }
static void adamw_stochastic(void) { adamw_of(MPT_STORE_STOCHASTIC, MPT_F16, data.param); }
static void stochastic(void)
{
    mpt_opts o;
    memset(&o, 0, sizeof o);
    o.seed = 7u;
    (void)mpt_stochastic_n(MPT_F16, data.half, data.w, data.n, &o);
}
static void mxfp4(void)
{
    mpt_block_opts o;
    memset(&o, 0, sizeof o);
    o.packed = 1;
    (void)mpt_block_quantize_n(MPT_MXFP4, (uint8_t *)data.half, (uint8_t *)data.extra, data.w, data.n, &o);
}
static void quantize(void) { (void)mpt_quantize_n(data.m, data.w, data.n, MPT_E4M3, NULL); }

static void report(void)
{
    mpt_roundoff r;
    (void)mpt_roundoff_init(&r, MPT_F16, NULL, 0);
    (void)mpt_roundoff_add(&r, MPT_F32, data.w, data.n);
}

/* Everything that follows the backward pass, from FP32 gradients to the copy in bf16. */
static void whole(void)
{
    const mpt_tensor t = tensor(MPT_STORE_MASTER, MPT_F32, data.param);
    (void)mpt_scaler_scale(&scaler, 1.0f);
    (void)mpt_check(&scaler, &step, &t, 1, NULL);
    (void)mpt_clip(&step, 1.0f);
    (void)mpt_adamw_step(&adamw, &step, &t, 1);
    (void)mpt_scaler_update(&scaler);
}

/* The rows: bytes per element of the arrays that are read, changed in place, and written. */
static const struct row {
    const char *name;
    void      (*run)(void);
    int         read[3], change[3], write;
} rows[] = {
    {"f32 -> f16", to_f16, {4}, {0}, 2},
    {"f32 -> bf16", to_bf16, {4}, {0}, 2},
    {"f16 -> f32", from_f16, {2}, {0}, 4},
    {"bf16 -> f32", from_bf16, {2}, {0}, 4},
    {"check, f32", check_f32, {4}, {0}, 0},
    {"check, f16", check_f16, {2}, {0}, 0},
    {"unscale, f32", unscale_f32, {0}, {4}, 0},
    {"unscale, f16", unscale_f16, {0}, {2}, 0},
    {"SGD, f16 grad, bf16 copy", sgd, {2}, {4}, 2},
    {"AdamW, f32 grad, no copy", adamw_f32, {4}, {4, 4, 4}, 0},
    {"AdamW, f32 grad, as malloc's lie", adamw_behind, {4}, {4, 4, 4}, 0},
    {"AdamW, f16, placed beside malloc's", adamw_placed, {2}, {4, 4, 4}, 2},
    {"AdamW, f32 grad, bf16 copy", adamw_copy, {4}, {4, 4, 4}, 2},
    {"AdamW, f16 grad, bf16 copy", adamw_16, {2}, {4, 4, 4}, 2},
    {"check + AdamW, f32 grad, bf16 copy", whole, {4, 4}, {4, 4, 4}, 2},
    {"AdamW, Kahan bf16", adamw_kahan, {2}, {4, 4, 4}, 0},
    {"AdamW, split bf16", adamw_split, {2}, {4, 4, 4}, 0},
    {"AdamW, stochastic bf16", adamw_stochastic, {2}, {4, 4, 2}, 0},
    {"stochastic f16", stochastic, {4}, {0}, 2},
    {"MXFP4, packed", mxfp4, {4}, {0}, 1},
    {"rounding report, f16", report, {4}, {0}, 0},
    {"quantize to e4m3", quantize, {4}, {0}, 4},
};

static void begin(void)
{
    mpt_scaler_config config = mpt_scaler_defaults(MPT_SCALER_MPT);
    config.init_scale = 1.0f;   /* unscaling in place many times must not turn gradients to zero */
    (void)mpt_scaler_init(&scaler, &config);
    adamw = mpt_adamw_defaults();
    adamw.t = 1;                /* the first step would compare all tensors with each other */
}

static void fill(void)
{
    ptrdiff_t i;
#pragma omp parallel for schedule(static)
    for (i = 0; i < (ptrdiff_t)data.n; i++) {
        const float x = (float)(((size_t)i * 2654435761u) % 65536u) * 1e-5f;
        data.w[i] = x;
        data.m[i] = x * 1e-2f;
        data.v[i] = x * 1e-2f;
        data.grad[i] = x * 1e-3f;
        data.half[i] = 0x1400u;
        data.param[i] = 0x3c00u;
        data.extra[i] = 0u;
    }
    begin();
}

/* For torch_cpu.py: use the caller's arrays; run a row by name (returns nonzero if there is none). */
void threads_take(size_t n, float *w, float *m, float *v, float *grad, uint16_t *half, uint16_t *param);
int  threads_run(const char *name, int threads);

void threads_take(size_t n, float *w, float *m, float *v, float *grad, uint16_t *half, uint16_t *param)
{
    data.n = n, data.w = w, data.m = m, data.v = v, data.grad = grad, data.half = half, data.param = param;
    begin();
}

int threads_run(const char *name, int threads)
{
    size_t i = 0;
    while (i < sizeof rows / sizeof *rows && strcmp(rows[i].name, name) != 0)
        i++;
    if (i == sizeof rows / sizeof *rows)
        return 1;
    omp_set_num_threads(threads);
    rows[i].run();
    return 0;
}

static traffic traffic_of(const struct row *row)
{
    void *const four[] = {data.w, data.m, data.v, data.grad};
    void *const two[] = {data.half, data.param, data.extra};
    size_t      f = 0, h = 0;
    traffic     t;
    int         i;
    memset(&t, 0, sizeof t);
    t.n = data.n;
    for (i = 0; i < 3; i++) {
        if (row->read[i])
            traffic_add(&t, row->read[i] == 4 ? four[f++] : two[h++], (size_t)row->read[i], 1, 0);
        if (row->change[i])
            traffic_add(&t, row->change[i] == 4 ? four[f++ % 4] : two[h++], (size_t)row->change[i], 1, 1);
    }
    if (row->write) traffic_add(&t, row->write == 4 ? four[f++] : two[h++], (size_t)row->write, 0, 1);
    return t;
}

static double measure(const struct row *row, double *ceiling)
{
    const traffic t = traffic_of(row);
    double        ours[RUNS], loop[2][RUNS];
    int           i, k;
    fill();
    row->run();
    for (i = 0; i < RUNS; i++) {
        double at = bench_now();
        row->run();
        ours[i] = bench_now() - at;
        for (k = 0; k < 2; k++) {
            at = bench_now();
            touch_together(&t, k);
            loop[k][i] = bench_now() - at;
        }
        if (i % 4 == 3) fill();
    }
    *ceiling = bench_median(loop[0], RUNS);
    if (bench_median(loop[1], RUNS) < *ceiling)
        *ceiling = bench_median(loop[1], RUNS);
    return bench_median(ours, RUNS);
}

int main(int argc, char **argv)
{
    const int   most = omp_get_max_threads();
    const char *only = argc > 2 ? argv[2] : "";
    size_t      i;
    int         threads;
    data.n = (size_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : 31u) * MEBI;
    data.w = (float *)bench_array(data.n * 4);
    data.m = (float *)bench_array(data.n * 4);
    data.v = (float *)bench_array(data.n * 4);
    data.grad = (float *)bench_array(data.n * 4);
    data.half = (uint16_t *)bench_array(data.n * 2);
    data.param = (uint16_t *)bench_array(data.n * 2);
    data.extra = (uint16_t *)bench_array(data.n * 2);
    printf("%zu Mi elements, %s, medians of %d, up to %d threads\n%-36s %7s %9s %7s %9s\n", data.n / MEBI,
           mpt_simd_name(), (int)RUNS, most, "", "threads", "ms", "ceiling", "speedup");
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        double alone = 0.0;
        for (threads = 1; threads <= most && strstr(rows[i].name, only); threads *= 2) {
            double ceiling = 0.0, ours;
            omp_set_num_threads(threads);
            ours = measure(&rows[i], &ceiling);
            alone = threads == 1 ? ours : alone;
            printf("%-36s %7d %9.3f %7.2f %9.2f\n", rows[i].name, threads, ours * 1e3, ceiling / ours,
                   alone / ours);
            fflush(stdout);
        }
    }
    return 0;
}
