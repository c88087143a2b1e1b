/* bench_step.c -- what a fused optimizer step costs, out of cache and on one thread, beside a loop that
 * touches the same arrays in the same way (as many read and write streams, in place where the step is) and
 * computes nothing. That ceiling is the better of plain and of streaming stores to the arrays that are only
 * written. The ratio is the number to quote. And row primitives beside their twins over floats and beside
 * the loop as one writes it in C, in elements a second: down a matrix of a million elements, which is what
 * an inner loop does, and over one row that stays in the first cache, where a conversion can only cost.
 *
 *   make bench
 *   build/bench/bench_step . 16        # with 16 Mi elements in place of 64
 *   build/bench/bench_step . 64 SGD    # only the rows whose names hold this word; rows: the row primitives
 */
#define _POSIX_C_SOURCE 200809L
#include "mpt.h"
#include "bench.h"

enum { RUNS = 11, MEBI = 1 << 20, STREAMS = 6 };

/* ---- the ceiling ---- */

/* One array as the step sees it. */
typedef struct stream { char *at; size_t bytes; int read, write; } stream;
typedef struct traffic { stream stream[STREAMS]; size_t count, n; } traffic;

static void traffic_add(traffic *t, void *at, size_t bytes, int read, int write)
{
    const stream s = {(char *)at, bytes, read, write};
    t->stream[t->count++] = s;
}

/* A block of 256 elements of each array after the other, as the steps go. */
#if BENCH_X86
#define TOUCH(suffix, isa, vec, load, store, nt, fold, zero)                                        \
    __attribute__((target(isa))) static void touch_##suffix(const traffic *t, int streaming, void *sink) \
    {                                                                                               \
        vec    x = zero, none = zero;                                                               \
        size_t i, s, k;                                                                             \
        __asm__ volatile("" : "+v"(none));      /* or the compiler sees that nothing changes */     \
        for (i = 0; i < t->n; i += 256)                                                             \
            for (s = 0; s < t->count; s++) {                                                        \
                char *const  p = t->stream[s].at + i * t->stream[s].bytes;                          \
                const size_t bytes = 256 * t->stream[s].bytes;                                      \
                if (!t->stream[s].write)                                                            \
                    for (k = 0; k < bytes; k += sizeof(vec)) x = fold(x, load((vec *)(void *)(p + k))); \
                else if (t->stream[s].read)                                                         \
                    for (k = 0; k < bytes; k += sizeof(vec))                                        \
                        store((vec *)(void *)(p + k), fold(load((vec *)(void *)(p + k)), none));    \
                else if (streaming)                                                                 \
                    for (k = 0; k < bytes; k += sizeof(vec)) nt((vec *)(void *)(p + k), zero);      \
                else                                                                                \
                    for (k = 0; k < bytes; k += sizeof(vec)) store((vec *)(void *)(p + k), zero);   \
                __asm__ volatile("" ::: "memory");                                                  \
            }                                                                                       \
        store((vec *)sink, x);                                                                      \
        _mm_sfence();                                                                               \
    }
TOUCH(avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512,
      _mm512_or_si512, _mm512_setzero_si512())
TOUCH(sse2, "sse2", __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128, _mm_or_si128,
      _mm_setzero_si128())
#endif

static void touch(const traffic *t, int streaming)
{
    static char sink[64];
#if BENCH_X86
    if (__builtin_cpu_supports("avx512f")) touch_avx512(t, streaming, sink);
    else touch_sse2(t, streaming, sink);
#else
    size_t i, s, k;
    (void)streaming;
    for (i = 0; i < t->n; i += 256)
        for (s = 0; s < t->count; s++) {
            volatile char *p = t->stream[s].at + i * t->stream[s].bytes;
            for (k = 0; k < 256 * t->stream[s].bytes; k += 64) {
                if (t->stream[s].read) sink[0] = (char)(sink[0] | p[k]);
                if (t->stream[s].write) p[k] = sink[0];
            }
        }
#endif
}

/* ---- the steps ---- */

static struct {
    size_t    n;
    float    *w, *m, *v;
    uint16_t *grad, *param, *extra;
} data;

typedef enum rule { SGD, SGD_MOMENTUM, ADAMW, LION, PUBLISH } rule;

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
    t.storage = row->storage;
    t.moments = row->moments;
    return t;
}

/* The step alone: the record of the check is made by hand. */
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
    case PUBLISH: (void)mpt_publish(&t, 1); break;
    default: break;
    }
}

static traffic traffic_of(const struct row *row)
{
    const size_t moment = row->moments == MPT_MOMENTS_BF16 ? 2 : 4;
    const int    master = row->storage == MPT_STORE_MASTER, publish = row->rule == PUBLISH;
    traffic      t;
    memset(&t, 0, sizeof t);
    t.n = data.n;
    if (!publish) traffic_add(&t, data.grad, 2, 1, 0);
    if (master) traffic_add(&t, data.w, 4, 1, !publish);
    if (row->storage == MPT_STORE_KAHAN || row->storage == MPT_STORE_SPLIT)
        traffic_add(&t, data.extra, 2, 1, 1);
    if (row->rule != SGD && !publish) traffic_add(&t, data.m, moment, 1, 1);
    if (row->rule == ADAMW) traffic_add(&t, data.v, moment, 1, 1);
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
        if (i % 4 == 3) fill();         /* the ceiling leaves zeros, which would cost nothing */
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

/* ---- rows: a 16-bit row against the same loop over a float row, the twin of the call and plain C ---- */

enum { ROW_MOST = 4096, ROW_ELEMENTS = 1 << 20 };   /* elements a timing: many calls, at least 256 */

static struct {
    float    f32[ROW_ELEMENTS], x[ROW_MOST];
    mpt_f16  f16[ROW_ELEMENTS];
    mpt_bf16 bf16[ROW_ELEMENTS];
} row_data;
static volatile float row_sink;

static float plain_dot(const float *a, const float *x, size_t n)
{
    float  sum = 0.0f;
    size_t i;
    for (i = 0; i < n; i++) sum += a[i] * x[i];
    return sum;
}

static void plain_axpy(float *y, float a, const float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) y[i] += a * x[i];
}

/* Down the rows of a matrix of a million elements, or over its first one again and again. */
#define ROW_LOOP(call)                                                              \
    do {                                                                            \
        const double at = bench_now();                                              \
        size_t       k;                                                             \
        for (k = 0; k < ROW_ELEMENTS; k += n) {                                     \
            const size_t row = matrix ? k : 0;                                      \
            call;                                                                   \
        }                                                                           \
        return bench_now() - at;                                                    \
    } while (0)
#define ROW_TIMES(name)                                                                                     \
    static double row_dot_##name(size_t n, int matrix)                                                      \
    {                                                                                                       \
        ROW_LOOP(row_sink = mpt_dot_##name(row_data.name + row, row_data.x, n));                            \
    }                                                                                                       \
    static double row_axpy_##name(size_t n, int matrix)                                                     \
    {                                                                                                       \
        ROW_LOOP((void)mpt_axpy_##name(row_data.x, 1e-6f, row_data.name + row, n));                         \
    }
ROW_TIMES(f32)
ROW_TIMES(f16)
ROW_TIMES(bf16)
static double row_dot_plain(size_t n, int matrix)
{
    ROW_LOOP(row_sink = plain_dot(row_data.f32 + row, row_data.x, n));
}
static double row_axpy_plain(size_t n, int matrix)
{
    ROW_LOOP(plain_axpy(row_data.x, 1e-6f, row_data.f32 + row, n));
}

typedef double row_fn(size_t n, int matrix);
static const struct { const char *name; row_fn *call, *twin, *plain; } row_calls[] = {
    {"dot f16", row_dot_f16, row_dot_f32, row_dot_plain},
    {"dot bf16", row_dot_bf16, row_dot_f32, row_dot_plain},
    {"axpy f16", row_axpy_f16, row_axpy_f32, row_axpy_plain},
    {"axpy bf16", row_axpy_bf16, row_axpy_f32, row_axpy_plain},
};

static void measure_row(size_t i, size_t n, int matrix, FILE *csv)
{
    double t[3][RUNS], speed[3];
    char   name[40];
    int    r, k;
    for (r = 0; r < RUNS; r++) {
        t[0][r] = row_calls[i].call(n, matrix);
        t[1][r] = row_calls[i].twin(n, matrix);
        t[2][r] = row_calls[i].plain(n, matrix);
    }
    for (k = 0; k < 3; k++) speed[k] = ROW_ELEMENTS / bench_median(t[k], RUNS) * 1e-9;
    printf("%-16s %4zu %8.2f %8.2f %6.2f %8.2f %6.2f  %s 0.80\n", row_calls[i].name, n, speed[0],
           speed[1], speed[0] / speed[1], speed[2], speed[0] / speed[2],
           speed[0] / speed[1] >= 0.8 ? "reaches" : "below");
    snprintf(name, sizeof name, "%s, %s of %zu", row_calls[i].name, matrix ? "rows" : "one row", n);
    if (csv)                    /* bytes an element: of the row; elements, not bytes, a second */
        fprintf(csv, "\"%s\",2,%.4g,%.4g,%.3f,0.80\n", name, speed[0], speed[1], speed[0] / speed[1]);
}

static void measure_rows(FILE *csv)
{
    static const size_t sizes[] = {64, 256, 1024, 4096};
    size_t              i, k;
    int                 matrix;
    for (i = 0; i < ROW_ELEMENTS; i++) {
        row_data.f32[i] = row_data.x[i % ROW_MOST] = (float)(i % 97u) * 1e-2f;
        row_data.f16[i] = mpt_f16_from_f32(row_data.f32[i]);
        row_data.bf16[i] = mpt_bf16_from_f32(row_data.f32[i]);
    }
    for (matrix = 1; matrix >= 0; matrix--) {
        printf("%-16s %4s %8s %8s %6s %8s %6s\n", matrix ? "rows of a matrix" : "one row, hot", "n", "Gel/s",
               "f32", "ratio", "f32 in C", "ratio");
        for (i = 0; i < sizeof row_calls / sizeof *row_calls; i++)
            for (k = 0; k < sizeof sizes / sizeof *sizes; k++) measure_row(i, sizes[k], matrix, csv);
    }
}

int main(int argc, char **argv)
{
    const char *const only = argc > 3 ? argv[3] : "";
    FILE             *csv = NULL;
    size_t            i;
    char              path[512];
    data.n = (size_t)(argc > 2 ? strtoul(argv[2], NULL, 10) : 64u) * MEBI;
    if (argc > 1) {
        snprintf(path, sizeof path, "%s/step.csv", argv[1]);
        csv = fopen(path, "w");
        if (!csv) {
            fprintf(stderr, "bench: cannot write %s\n", path);
            return 1;
        }
        fprintf(csv, "row,bytes,gb_s,ceiling_gb_s,ratio,goal\n");
    }
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
    if (strstr("rows", only))
        measure_rows(csv);
    return csv && fclose(csv) ? 1 : 0;
}
