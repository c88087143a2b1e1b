/* bench.h -- what the benchmarks share: the clock, medians, and the ceiling that every row is measured
 * beside, in the same run: a loop that loads and stores as many bytes and does nothing else. Single times on
 * a shared machine are noise; the ratio is the number to quote.
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
    char   *in, *out;           /* what the ceiling loop works on */
    size_t  bytes;              /* of each */
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

/* Zeroed memory at a cache line; the program ends if there is none. */
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

/* Read `in` bytes and write `out` bytes, spread evenly: the widest vectors of the processor, one store for
 * every so many loads or the other way round. Stores bypass the cache if `stream`, as a fast path for arrays
 * out of cache may. Reading alone (out 0) folds the words, so that no compiler drops the loads. */
#if BENCH_X86
#define BENCH_LOOP(suffix, isa, vec, load, store, nt, fold, zero)                                      \
    __attribute__((target(isa))) static void bench_stream_##suffix(char *dst, size_t out,              \
                                                                   const char *src, size_t in, int stream) \
    {                                                                                                  \
        const size_t w = sizeof(vec), loads = in / w, stores = out / w;                                \
        vec          x = zero;                                                                         \
        size_t       i, k;                                                                             \
        if (!stores) {                                                                                 \
            for (i = 0; i < loads; i++)                                                                \
                x = fold(x, load((const vec *)(const void *)(src + i * w)));                           \
            store((vec *)(void *)dst, x);                                                              \
        } else if (loads >= stores) {                                                                  \
            const size_t r = loads / stores;                                                           \
            for (i = 0; i < stores; i++) {                                                             \
                x = load((const vec *)(const void *)(src + i * r * w));                                \
                for (k = 1; k < r; k++)                                                                \
                    x = fold(x, load((const vec *)(const void *)(src + (i * r + k) * w)));             \
                if (stream) nt((vec *)(void *)(dst + i * w), x);                                       \
                else store((vec *)(void *)(dst + i * w), x);                                           \
            }                                                                                          \
        } else {                                                                                       \
            const size_t r = loads ? stores / loads : stores;                                          \
            for (i = 0; i < (loads ? loads : 1); i++) {                                                \
                if (loads) x = load((const vec *)(const void *)(src + i * w));                         \
                for (k = 0; k < r; k++)                                                                \
                    if (stream) nt((vec *)(void *)(dst + (i * r + k) * w), x);                         \
                    else store((vec *)(void *)(dst + (i * r + k) * w), x);                             \
            }                                                                                          \
        }                                                                                              \
        if (stream) _mm_sfence();                                                                      \
    }
BENCH_LOOP(avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512,
           _mm512_or_si512, _mm512_setzero_si512())
BENCH_LOOP(avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
           _mm256_or_si256, _mm256_setzero_si256())
BENCH_LOOP(sse2, "sse2", __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128,
           _mm_or_si128, _mm_setzero_si128())
#endif

static inline void bench_stream(char *dst, size_t out, const char *src, size_t in, int stream)
{
#if BENCH_X86
    if (__builtin_cpu_supports("avx512f"))
        bench_stream_avx512(dst, out, src, in, stream);
    else if (__builtin_cpu_supports("avx2"))
        bench_stream_avx2(dst, out, src, in, stream);
    else
        bench_stream_sse2(dst, out, src, in, stream);
#else
    (void)stream;
    memcpy(dst, src, in < out ? in : out);
#endif
}

/* A table on stdout, and NAME.csv in the directory of the first argument. */
static inline void bench_open(bench *b, const char *name, int argc, char **argv, size_t bytes)
{
    b->csv = NULL;
    b->bytes = bytes;
    b->in = (char *)bench_array(bytes);
    b->out = (char *)bench_array(bytes);
    if (argc > 1) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.csv", argv[1], name);
        b->csv = fopen(path, "w");
        if (!b->csv) {
            fprintf(stderr, "bench: cannot write %s\n", path);
            exit(1);
        }
        fprintf(b->csv, "row,path,size,gelem_s,ceiling_gelem_s,ratio\n");
    }
    printf("medians of %d, one thread; ceiling: a loop that moves as many bytes\n", (int)BENCH_RUNS);
    printf("%-34s %-9s %9s %9s %9s %6s\n", "", "path", "elements", "Gelem/s", "ceiling", "ratio");
}

/* Time run(n), which reads `in` and writes `out` bytes an element, beside the ceiling, turn about, so that
 * noise hits both.  Returns: ratio of the medians. */
static inline double bench_row(bench *b, const char *row, const char *path, void (*run)(size_t), size_t n,
                               size_t in, size_t out)
{
    const size_t repeat = n < ((size_t)4 << 20) ? ((size_t)4 << 20) / n : 1;
    const int    stream = n * (in + out) > ((size_t)32 << 20) && out != 0;
    double       ours[BENCH_RUNS], ceiling[BENCH_RUNS], t, a, c;
    size_t       k;
    int          i;
    if (n * in > b->bytes || n * out > b->bytes) {
        fprintf(stderr, "bench: %s needs larger ceiling arrays\n", row);
        exit(1);
    }
    run(n);
    bench_stream(b->out, n * out, b->in, n * in, stream);
    for (i = 0; i < BENCH_RUNS; i++) {
        t = bench_now();
        for (k = 0; k < repeat; k++)
            run(n);
        ours[i] = (bench_now() - t) / (double)repeat;
        t = bench_now();
        for (k = 0; k < repeat; k++)
            bench_stream(b->out, n * out, b->in, n * in, stream);
        ceiling[i] = (bench_now() - t) / (double)repeat;
    }
    a = bench_median(ours, BENCH_RUNS);
    c = bench_median(ceiling, BENCH_RUNS);
    printf("%-34s %-9s %9zu %9.2f %9.2f %6.2f\n", row, path, n, (double)n / a * 1e-9, (double)n / c * 1e-9,
           c / a);
    if (b->csv)
        fprintf(b->csv, "%s,%s,%zu,%.4g,%.4g,%.3f\n", row, path, n, (double)n / a * 1e-9,
                (double)n / c * 1e-9, c / a);
    fflush(stdout);
    return c / a;
}

static inline int bench_close(bench *b)
{
    free(b->in);
    free(b->out);
    return b->csv && fclose(b->csv) ? 1 : 0;
}

#endif /* MPT_BENCH_H */
