/* bench.h -- shared by the benchmarks: the clock, medians, and the ceiling of each row: a loop that loads and
 * stores as many bytes and does nothing else, measured in the same run. Single times on a shared machine are
 * noise; the ratio is the number to quote.
 *
 *     bench_open(&b, "half", argc, argv);                  // a table on stdout, and DIR/half.csv
 *     bench_row(&b, "f32 -> f16", "avx512", run, n, 4, 2); // run(n) reads 4 and writes 2 bytes an element
 *     return bench_close(&b);
 */
#ifndef MPT_BENCH_H
#define MPT_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define BENCH_X86 1
#else
#define BENCH_X86 0
#endif

enum { BENCH_RUNS = 31, BENCH_IN_L1 = 4096, BENCH_IN_MEMORY = 32 << 20 };

typedef struct bench {
    FILE   *csv;                /* NULL: table only */
    char   *in, *out;           /* the arrays of the ceiling loop */
    size_t  bytes;              /* of each */
    size_t  skew;               /* 0..63: bytes from a cache line to their start, if they fit in the cache */
} bench;

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double bench_median(double *t, size_t n)
{
    qsort(t, n, sizeof *t, bench_by_size);
    return t[n / 2];
}

/* Zeroed memory, aligned to a cache line; ends the program if there is none. */
static inline void *bench_array(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 64)) {
        fprintf(stderr, "bench: out of memory\n");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

/* Read `in` bytes and write `out` bytes, spread evenly: with the widest vectors that the row may use,
 * unrolled, r loads for each store or r stores for each load; r is a constant in most copies of the loops. If
 * `stream`, stores are non-temporal, as fast code for arrays larger than the cache may use them. If out is 0,
 * the words read are combined, so that no compiler drops the loads. */
#if BENCH_X86
#ifdef __clang__
#define BENCH_UNROLL(n) _Pragma("unroll")
#else
#define BENCH_UNROLL(n) _Pragma("GCC unroll 8")
#endif
enum { BENCH_GROUP = 4 };       /* stores (or loads) in one iteration of an unrolled loop */

#define BENCH_LOOP(suffix, isa, vec, load, store, nt, fold, zero)                                      \
    __attribute__((target(isa), always_inline)) static inline void bench_narrow_##suffix(              \
        char *dst, size_t stores, const char *src, size_t r, int stream)                               \
    {                                                                                                  \
        const size_t w = sizeof(vec);                                                                  \
        size_t       i, j, k;                                                                          \
        for (i = 0; i < stores; i += BENCH_GROUP, src += BENCH_GROUP * r * w) {                        \
            BENCH_UNROLL(4)                                                                            \
            for (j = 0; j < BENCH_GROUP; j++) {                                                        \
                vec x = load((const vec *)(const void *)(src + j * r * w));                            \
                BENCH_UNROLL(8)                                                                        \
                for (k = 1; k < r; k++)                                                                \
                    x = fold(x, load((const vec *)(const void *)(src + (j * r + k) * w)));             \
                if (stream) nt((vec *)(void *)(dst + (i + j) * w), x);                                 \
                else store((vec *)(void *)(dst + (i + j) * w), x);                                     \
            }                                                                                          \
        }                                                                                              \
    }                                                                                                  \
    __attribute__((target(isa), always_inline)) static inline void bench_widen_##suffix(               \
        char *dst, const char *src, size_t loads, size_t r, int stream)                                \
    {                                                                                                  \
        const size_t w = sizeof(vec);                                                                  \
        size_t       i, j, k;                                                                          \
        for (i = 0; i < loads; i += BENCH_GROUP, dst += BENCH_GROUP * r * w) {                         \
            BENCH_UNROLL(4)                                                                            \
            for (j = 0; j < BENCH_GROUP; j++) {                                                        \
                const vec x = load((const vec *)(const void *)(src + (i + j) * w));                    \
                BENCH_UNROLL(8)                                                                        \
                for (k = 0; k < r; k++)                                                                \
                    if (stream) nt((vec *)(void *)(dst + (j * r + k) * w), x);                         \
                    else store((vec *)(void *)(dst + (j * r + k) * w), x);                             \
            }                                                                                          \
        }                                                                                              \
    }                                                                                                  \
    __attribute__((target(isa))) static void bench_stream_##suffix(char *dst, size_t out,              \
                                                                   const char *src, size_t in, int nts) \
    {                                                                                                  \
        const size_t w = sizeof(vec), loads = in / w, stores = out / w;                                \
        vec          x = zero;                                                                         \
        size_t       i;                                                                                \
        if (!stores) {                                                                                 \
            for (i = 0; i + BENCH_GROUP <= loads; i += BENCH_GROUP) {                                  \
                size_t j;                                                                              \
                BENCH_UNROLL(4)                                                                        \
                for (j = 0; j < BENCH_GROUP; j++)                                                      \
                    x = fold(x, load((const vec *)(const void *)(src + (i + j) * w)));                 \
            }                                                                                          \
            store((vec *)(void *)dst, x);                                                              \
        } else if (loads >= stores) {                                                                  \
            const size_t groups = stores / BENCH_GROUP * BENCH_GROUP;                                  \
            switch (loads / stores) {                                                                  \
            case 1: bench_narrow_##suffix(dst, groups, src, 1, nts); break;                            \
            case 2: bench_narrow_##suffix(dst, groups, src, 2, nts); break;                            \
            case 3: bench_narrow_##suffix(dst, groups, src, 3, nts); break;                            \
            case 4: bench_narrow_##suffix(dst, groups, src, 4, nts); break;                            \
            case 7: bench_narrow_##suffix(dst, groups, src, 7, nts); break;                            \
            case 8: bench_narrow_##suffix(dst, groups, src, 8, nts); break;                            \
            default: bench_narrow_##suffix(dst, groups, src, loads / stores, nts); break;              \
            }                                                                                          \
        } else {                                                                                       \
            const size_t groups = loads / BENCH_GROUP * BENCH_GROUP, r = groups ? stores / loads : 0;  \
            switch (r) {                                                                               \
            case 0:                                                                                    \
                for (i = 0; i < stores; i++)                                                           \
                    if (nts) nt((vec *)(void *)(dst + i * w), x);                                      \
                    else store((vec *)(void *)(dst + i * w), x);                                       \
                break;                                                                                 \
            case 1: bench_widen_##suffix(dst, src, groups, 1, nts); break;                             \
            case 2: bench_widen_##suffix(dst, src, groups, 2, nts); break;                             \
            case 4: bench_widen_##suffix(dst, src, groups, 4, nts); break;                             \
            case 7: bench_widen_##suffix(dst, src, groups, 7, nts); break;                             \
            case 8: bench_widen_##suffix(dst, src, groups, 8, nts); break;                             \
            default: bench_widen_##suffix(dst, src, groups, r, nts); break;                            \
            }                                                                                          \
        }                                                                                              \
        if (nts) _mm_sfence();                                                                         \
    }
BENCH_LOOP(avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512,
           _mm512_or_si512, _mm512_setzero_si512())
BENCH_LOOP(avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
           _mm256_or_si256, _mm256_setzero_si256())
BENCH_LOOP(sse2, "sse2", __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128,
           _mm_or_si128, _mm_setzero_si128())
#endif

/* The ceiling loop with the vectors of a path, by its name: avx2 and sse2 get vectors of their own width. */
static inline void bench_stream(const char *path, char *dst, size_t out, const char *src, size_t in,
                                int stream)
{
#if BENCH_X86
    if (__builtin_cpu_supports("avx512f") && strcmp(path, "avx2") && strcmp(path, "sse2"))
        bench_stream_avx512(dst, out, src, in, stream);
    else if (__builtin_cpu_supports("avx2") && strcmp(path, "sse2"))
        bench_stream_avx2(dst, out, src, in, stream);
    else
        bench_stream_sse2(dst, out, src, in, stream);
#else
    (void)path;
    (void)stream;
    memcpy(dst, src, in < out ? in : out);
#endif
}

/* Open NAME.csv in the directory of the first argument, and write its heading. Returns: NULL without an
 * argument or for "-". */
static inline FILE *bench_csv(const char *name, int argc, char **argv, const char *heading)
{
    char  path[512];
    FILE *csv;
    if (argc < 2 || strcmp(argv[1], "-") == 0)
        return NULL;
    snprintf(path, sizeof path, "%s/%s.csv", argv[1], name);
    csv = fopen(path, "w");
    if (!csv) {
        fprintf(stderr, "bench: cannot write %s\n", path);
        exit(1);
    }
    fprintf(csv, "%s\n", heading);
    return csv;
}

/* Begin a table on stdout and a CSV file. */
static inline void bench_open(bench *b, const char *name, int argc, char **argv, size_t bytes)
{
    b->bytes = bytes;
    b->skew = 0;
    b->in = (char *)bench_array(bytes + 64);
    b->out = (char *)bench_array(bytes + 64);
    b->csv = bench_csv(name, argc, argv, "row,path,size,gelem_s,ceiling_gelem_s,ratio");
    printf("medians of %d, one thread; ceiling: a loop that moves as many bytes\n", (int)BENCH_RUNS);
    printf("%-34s %-10s %9s %9s %9s %6s\n", "", "path", "elements", "Gelem/s", "ceiling", "ratio");
}

static inline void bench_print(bench *b, const char *row, const char *path, size_t n, double speed,
                               double ceiling)
{
    printf("%-34s %-10s %9zu %9.2f %9.2f %6.2f\n", row, path, n, speed, ceiling, speed / ceiling);
    if (b->csv)
        fprintf(b->csv, "%s,%s,%zu,%.4g,%.4g,%.3f\n", row, path, n, speed, ceiling, speed / ceiling);
    fflush(stdout);
}

/* Time run(n), which reads in_all and writes out_all bytes, and the ceiling, in turn, so that noise affects
 * both. Returns: ratio of the medians. */
static inline double bench_row_bytes(bench *b, const char *row, const char *path, void (*run)(size_t),
                                     size_t n, size_t in_all, size_t out_all)
{
    const int    stream = in_all + out_all > ((size_t)32 << 20) && out_all != 0;
    const char  *src = b->in + (stream ? 0 : b->skew);
    char        *dst = b->out + (stream ? 0 : b->skew);
    double       ours[BENCH_RUNS], ceiling[BENCH_RUNS], t, a, c;
    size_t       repeat, k;
    int          i;
    if (in_all > b->bytes || out_all > b->bytes) {
        fprintf(stderr, "bench: %s needs larger ceiling arrays\n", row);
        exit(1);
    }
    run(n);
    t = bench_now();
    run(n);
    repeat = (size_t)(1e-3 / (bench_now() - t + 1e-9)) + 1u;    /* about a millisecond each */
    bench_stream(path, dst, out_all, src, in_all, stream);
    for (i = 0; i < BENCH_RUNS; i++) {
        t = bench_now();
        for (k = 0; k < repeat; k++)
            run(n);
        ours[i] = (bench_now() - t) / (double)repeat;
        t = bench_now();
        for (k = 0; k < repeat; k++)
            bench_stream(path, dst, out_all, src, in_all, stream);
        ceiling[i] = (bench_now() - t) / (double)repeat;
    }
    a = bench_median(ours, BENCH_RUNS);
    c = bench_median(ceiling, BENCH_RUNS);
    bench_print(b, row, path, n, (double)n / a * 1e-9, (double)n / c * 1e-9);
    return c / a;
}

/* The same for a run(n) that reads `in` and writes `out` bytes per element. */
static inline double bench_row(bench *b, const char *row, const char *path, void (*run)(size_t), size_t n,
                               size_t in, size_t out)
{
    return bench_row_bytes(b, row, path, run, n, n * in, n * out);
}

/* Print a row that another program timed, in Gelem/s, with a ceiling measured now. */
static inline void bench_row_elsewhere(bench *b, const char *row, const char *path, double speed, size_t n,
                                       size_t in, size_t out)
{
    double ceiling[BENCH_RUNS], t;
    int    i, k;
    for (i = 0; i < BENCH_RUNS; i++) {
        t = bench_now();
        for (k = 0; k < 100; k++)
            bench_stream(path, b->out + b->skew, n * out, b->in + b->skew, n * in, 0);
        ceiling[i] = (bench_now() - t) / 100.0;
    }
    bench_print(b, row, path, n, speed, (double)n / bench_median(ceiling, BENCH_RUNS) * 1e-9);
}

/* Run a script that measures numpy and prints name,elements,Gelem/s, and pass each line to `line`. Debian's
 * numpy needs Debian's python. Returns: the number of lines. */
static inline int bench_numpy(bench *b, const char *script,
                              void (*line)(bench *b, const char *name, size_t n, double speed))
{
    char   command[128], name[64];
    double speed;
    size_t n;
    int    lines = 0;
    FILE  *p;
    snprintf(command, sizeof command, "/usr/bin/python3 %s 2>/dev/null", script);
    p = popen(command, "r");
    for (; p && fscanf(p, " %63[^,],%zu,%lf", name, &n, &speed) == 3; lines++)
        line(b, name, n, speed);
    if (p)
        (void)pclose(p);
    return lines;
}

static inline int bench_close(bench *b)
{
    free(b->in);
    free(b->out);
    return b->csv && fclose(b->csv) ? 1 : 0;
}

#endif /* MPT_BENCH_H */
