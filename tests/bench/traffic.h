/* traffic.h -- the ceiling for a pass over several arrays: a loop that reads and writes the same arrays in
 * the same way, in place where the pass works in place, and computes nothing. */
#ifndef MPT_TRAFFIC_H
#define MPT_TRAFFIC_H

#include "bench.h"

enum { STREAMS = 6 };

/* One array: bytes per element, and whether the pass reads and writes it. */
typedef struct stream { char *at; size_t bytes; int read, write; } stream;
typedef struct traffic { stream stream[STREAMS]; size_t count, n; } traffic;

static void traffic_add(traffic *t, void *at, size_t bytes, int read, int write)
{
    const stream s = {(char *)at, bytes, read, write};
    t->stream[t->count++] = s;
}

/* Go through the arrays in blocks of 256 elements, as the optimizer steps do. */
#if BENCH_X86
#define TOUCH(suffix, isa, vec, load, store, nt, fold, zero)                                        \
    __attribute__((target(isa))) static void touch_##suffix(const traffic *t, int streaming, void *sink) \
    {                                                                                               \
        vec    x = zero, none = zero;                                                               \
        size_t i, s, k;                                                                             \
        __asm__ volatile("" : "+v"(none));      /* hides from the compiler that nothing changes */  \
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
    char sink[64];
#if BENCH_X86
    if (__builtin_cpu_supports("avx512f")) touch_avx512(t, streaming, sink);
    else touch_sse2(t, streaming, sink);
    __asm__ volatile("" : : "r"(sink) : "memory");  /* or reads alone would be left out */
#else
    size_t i, s, k;
    sink[0] = 0;
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

#ifdef _OPENMP
#include <omp.h>
/* The same by all threads; each has a range of neighbouring blocks. */
static void touch_together(const traffic *t, int streaming)
{
#pragma omp parallel
    {
        const size_t me = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
        const size_t blocks = t->n / 256, first = blocks * me / threads, end = blocks * (me + 1) / threads;
        traffic      mine = *t;
        size_t       s;
        mine.n = (end - first) * 256;
        for (s = 0; s < t->count; s++)
            mine.stream[s].at += first * 256 * t->stream[s].bytes;
        touch(&mine, streaming);
    }
}
#endif

#endif
