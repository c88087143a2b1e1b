/* test_half_simd.c -- tests of mpt_half.h: every vector path of this machine against the scalar functions.
 *
 *     cc -O2 -I. tests/test_half_simd.c -o test_half_simd
 *     ./test_half_simd [--long] [part of a test name]
 *
 * --long runs all 2^32 floats through every conversion that has a kernel, on every path (some minutes). The
 * expected results come from judges: the scalar functions, which use integers only; tests/test_half.c tests
 * those. This file calls internal functions, so it compiles the implementation itself, with MPT_STATIC. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS under -std=c99 */
#endif
#include <stddef.h>
static int    last_path;                        /* the highest path that mpt_half.h may use */
static size_t around_bytes = (size_t)32 << 20;  /* larger arrays use non-temporal stores */
#define MPTI_LAST_PATH last_path
#define MPTI_AROUND_BYTES around_bytes
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "../mpt_half.h"
#include "test.h"
#include "half_ref.h"
#include <time.h>
#if MPTI_X86
#include <xmmintrin.h>
#endif

// the conversions and their judges ----------------------------------------------------------------

typedef struct conversion {
    const char *name;
    mpt_format  to, from;
    size_t      out, in;        /* bytes of an element */
    mpt_status (*own)(void *dst, const void *src, size_t n);    /* NULL: mpt_convert_n */
    void (*judge)(void *dst, const void *src, size_t n);
} conversion;

#define JUDGED(name, to_bits, from_bits, convert)                                           \
    static void judge_##name(void *dst, const void *src, size_t n)                          \
    {                                                                                       \
        size_t i;                                                                           \
        for (i = 0; i < n; i++) {                                                           \
            from_bits in_;                                                                  \
            to_bits   out_;                                                                 \
            memcpy(&in_, (const unsigned char *)src + i * sizeof in_, sizeof in_);          \
            out_ = (to_bits)convert;                                                        \
            memcpy((unsigned char *)dst + i * sizeof out_, &out_, sizeof out_);             \
        }                                                                                   \
    }

/* BITS_: the type of codes; OPEN_: a code to the bits of a float (from f64 to odd); MAKE_: bits to a code. */
#define BITS_f64  uint64_t
#define BITS_f32  uint32_t
#define BITS_f16  uint16_t
#define BITS_bf16 uint16_t
#define BITS_e4m3 uint8_t
#define BITS_e5m2 uint8_t
#define OPEN_f64(code)  mpti_f32_odd_from_f64(code)
#define OPEN_f32(code)  (code)
#define OPEN_f16(code)  mpti_f16_decode(code)
#define OPEN_bf16(code) mpti_bf16_decode(code)
#define OPEN_e4m3(code) mpti_e4m3_decode(code)
#define OPEN_e5m2(code) mpti_e5m2_decode(code)
#define MAKE_f64(u)  mpti_f64_widen(u)
#define MAKE_f32(u)  (u)
#define MAKE_f16(u)  mpti_f16_encode(u)
#define MAKE_bf16(u) mpti_bf16_encode(u)
#define MAKE_e4m3(u) mpti_e4m3_encode(u)
#define MAKE_e5m2(u) mpti_e5m2_encode(u)

#define PLAIN(d, s) JUDGED(d##_from_##s, BITS_##d, BITS_##s, MAKE_##d(OPEN_##s(in_)))
#define OWN(d, s, dst_type, src_type) RUN_PAIR(d, s, dst_type, src_type) PLAIN(d, s)
FAST_PAIRS(OWN, PLAIN)
#undef OWN
#undef PLAIN
JUDGED(f32_from_f64, uint32_t, uint64_t, mpti_f32_from_f64(in_))    /* rounds to nearest, not to odd */

RUN_SAT(e4m3)
RUN_SAT(e5m2)
JUDGED(e4m3_sat, uint8_t, uint32_t, mpti_fp8_code(in_, 0, 1))
JUDGED(e5m2_sat, uint8_t, uint32_t, mpti_fp8_code(in_, 1, 1))

static const conversion conversions[] = {
    {"e4m3 sat <- f32", MPT_E4M3, MPT_F32, 1, 4, run_e4m3_sat, judge_e4m3_sat},
    {"e5m2 sat <- f32", MPT_E5M2, MPT_F32, 1, 4, run_e5m2_sat, judge_e5m2_sat},
    {"f32 <- f64", MPT_F32, MPT_F64, 4, 8, NULL, judge_f32_from_f64},
#define ENTRY(d, s, own) \
    {#d " <- " #s, FORMAT_##d, FORMAT_##s, sizeof(BITS_##d), sizeof(BITS_##s), own, judge_##d##_from_##s},
#define OWN(d, s, dst_type, src_type) ENTRY(d, s, run_##d##_from_##s)
#define PLAIN(d, s) ENTRY(d, s, NULL)
    FAST_PAIRS(OWN, PLAIN)
#undef OWN
#undef PLAIN
};
enum { CONVERSIONS = COUNT_OF(conversions), LAST = MPTI_PATH_AVX512 };

static void run(const conversion *c, void *dst, const void *src, size_t n)
{
    CHECK_EQ_I(c->own ? c->own(dst, src, n) : mpt_convert_n(c->to, dst, c->from, src, n, NULL, NULL), MPT_OK);
}

/* Use path p; returns 0 if this machine does not have it. Clears the exception flags: while one is set, the
 * kernel that reads them is not used. */
static int use_path(int p)
{
    last_path = p;
#if MPTI_X86 && defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() & ~0x3fu);
#endif
    return mpti_path() == p;
}
#define EACH_PATH(p) for ((p) = 0; (p) <= LAST; (p)++) if (use_path(p))

// inputs ------------------------------------------------------------------------------------------

enum { MOST = 1 << 17 };
static struct {
    uint64_t in[MOST];                  /* used as bytes; uint64_t is the widest element */
    unsigned char out[MOST * 8], want[MOST * 8];
} data;

static void put(void *array, size_t i, uint64_t bits, size_t bytes)
{
    mt_put((unsigned char *)array + i * bytes, bytes, bits);
}

static float *floats(void *array) { return (float *)array; }

/* All codes of a format of at most 16 bits. Of a longer one: every sign and exponent with mantissas of one
 * bit, of two adjacent bits and of all bits from one upwards, each also +-1; then random patterns. */
static size_t fill(mpt_format format, size_t bytes)
{
    const mpt_format_info *f = mpt_format_get(format);
    const int              m = f->mantissa_bits, e = f->exponent_bits;
    size_t                 n = 0;
    uint64_t               top;
    int                    bit, k;
    if (bytes <= 2u) {
        for (; n < (size_t)1 << f->bits; n++)
            put(data.in, n, n, bytes);
        return n;
    }
    for (top = 0; top < (uint64_t)2 << e; top += e > 8 && top % 1024u > 8u && top % 1024u < 860u ? 7u : 1u)
        for (bit = 0; bit < m; bit += e > 8 ? 4 : 1)
            for (k = -1; k < 2 && n + 3u < (size_t)MOST; k++) {
                const uint64_t one = (uint64_t)1 << bit, mask = ((uint64_t)1 << m) - 1u;
                put(data.in, n++, top << m | ((one + (uint64_t)(int64_t)k) & mask), bytes);
                put(data.in, n++, top << m | ((3u * one + (uint64_t)(int64_t)k) & mask), bytes);
                put(data.in, n++, top << m | ((mask - one + 1u + (uint64_t)(int64_t)k) & mask), bytes);
            }
    for (; n < MOST; n++) {
        uint64_t u = mt_random();
        if (bytes == 8u && n % 2u)      /* in or near the ranges of f16 and FP8, with few bits */
            u = (u & ((uint64_t)0x803fffffu << 32)) + ((uint64_t)(0x3d0 + n / 2u % 0x60u) << 52);
        put(data.in, n, bytes == 4u ? u >> 32 : u, bytes);
    }
    return n;
}

static void check_same(const conversion *c, const void *in, size_t n)
{
    size_t i;
    if (memcmp(data.out, data.want, n * c->out) == 0) {
        CHECK(1);
        return;
    }
    for (i = 0; i < n; i++)
        if (memcmp(data.out + i * c->out, data.want + i * c->out, c->out) != 0)
            CHECK_EQ_U_AT(mt_get(data.out + i * c->out, c->out),
                          mt_get(data.want + i * c->out, c->out),
                          mt_get((const unsigned char *)in + i * c->in, c->in));
}

// the processor's control register ----------------------------------------------------------------

/* Set the rounding direction (0 to 3) and `what`: 0 nothing else, 1 all flushing, 2 to 5 one mode alone. On
 * x86 5 makes exceptions trap: no array function may raise one (4 is as 0). Returns the old register. */
#if MPTI_X86 && defined(__x86_64__)
#define HAVE_CONTROL 1
#define HAVE_TRAPS 1
static uint64_t control_set(unsigned direction, int what)
{
    static const unsigned bits[] = {0x1f80u, 0x9fc0u, 0x9f80u, 0x1fc0u, 0x1f80u, 0u};
    const unsigned        old = _mm_getcsr();
    _mm_setcsr(direction << 13 | bits[what]);
    return old;
}
static void control_restore(uint64_t old) { _mm_setcsr((unsigned)old); }
#elif MPTI_ARM
#define HAVE_CONTROL 1
static void control_restore(uint64_t old) { __asm__ volatile("msr fpcr, %0" : : "r"(old)); }
static uint64_t control_set(unsigned direction, int what)
{
    /* FZ, FZ16, default NaN, alternative half precision */
    static const uint64_t bits[] = {0u, 0x07080000u, 0x01000000u, 0x00080000u, 0x02000000u, 0x04000000u};
    uint64_t              old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    control_restore((old & ~(uint64_t)0x07c80000u) | (uint64_t)direction << 22 | bits[what]);
    return old;
}
#else
#define HAVE_CONTROL 0
#endif
#ifndef HAVE_TRAPS
#define HAVE_TRAPS 0
#endif

// tests -------------------------------------------------------------------------------------------

static void all_inputs(void)
{
    int i, p;
    for (i = 0; i < CONVERSIONS; i++) {
        const conversion *c = conversions + i;
        const size_t      n = fill(c->from, c->in);
        c->judge(data.want, data.in, n);
        EACH_PATH(p) {
            mt_context(c->name, mpt_simd_name());
            memset(data.out, 0xa5, n * c->out);
            run(c, data.out, data.in, n);
            check_same(c, data.in, n);
        }
    }
}

TEST(values) { all_inputs(); }

TEST(values_stored_around_the_cache)
{
    around_bytes = 4096u;
    all_inputs();
    around_bytes = (size_t)32 << 20;
}

TEST(values_whatever_the_control_register_says)
{
#if HAVE_CONTROL
    static const struct { unsigned direction; int what; } settings[] = {
        {0, 1}, {1, 1}, {2, 1}, {3, 1}, {1, 0}, {2, 0}, {3, 0}, {0, 2}, {0, 3}, {0, 4}, {0, 5}};
    size_t k;
    int    i, p;
    for (i = 0; i < CONVERSIONS; i++) {
        const conversion *c = conversions + i;
        const size_t      n = fill(c->from, c->in);
        c->judge(data.want, data.in, n);
        for (k = 0; k < COUNT_OF(settings); k++)
            EACH_PATH(p) {
                const uint64_t old = control_set(settings[k].direction, settings[k].what);
                run(c, data.out, data.in, n);
                control_restore(old);
                mt_context(c->name, mpt_simd_name());
                check_same(c, data.in, n);
            }
    }
#else
    CHECK(1);
#endif
}

/* A kernel of its own converts runs of normal floats to bf16, and finds subnormals and NaNs afterwards by the
 * exception flags. They are put at each place of a vector, of a run and of its end, one alone or two in one
 * lane. The control word keeps its value, whatever flags were set before. */
static void check_run_to_bf16(const conversion *c, size_t n, unsigned control)
{
#if HAVE_TRAPS
    const unsigned old = _mm_getcsr();
    _mm_setcsr(control);
    run(c, data.out, data.in, n);
    CHECK_EQ_U(_mm_getcsr(), control);
    _mm_setcsr(old);
#else
    (void)control;
    run(c, data.out, data.in, n);
#endif
    check_same(c, data.in, n);
}

static const conversion *conversion_of(const char *name)
{
    int i = 0;
    while (strcmp(conversions[i].name, name) != 0)
        i++;
    return conversions + i;
}

TEST(runs_of_normal_floats_to_bf16)
{
    static const uint32_t special[] = {1u, 0x807fffffu, 0x7f800001u, 0xffc00000u};
    static const size_t   sizes[] = {511, 512, 4096, 4096 + 31, 9001};
    static const unsigned controls[] = {0x1f80u, 0x1fa0u, 0x1fbfu, 0x1f81u, 0x1f82u, 0x1e80u, 0x1fc0u};
    const conversion     *c = conversion_of("bf16 <- f32");
    size_t                i, k, at, n, trial;
    int                   p;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        n = sizes[i];
        for (trial = 0; trial < 300u; trial++) {
            for (k = 0; k < n; k++)     /* normal, zero or Inf */
                put(data.in, k, k % 50u == 1u ? (uint32_t)k << 31 : k % 71u == 2u ? 0x7f800000u
                    : 0x00800000u + (uint32_t)(mt_random() % 0x7f000000u), 4u);
            at = trial < 100u ? trial : trial < 200u ? n - 1u - (trial - 100u) : (size_t)(mt_random() % n);
            if (trial % 5u) {
                put(data.in, at, special[trial % 4u], 4u);
                if (trial % 3u == 0u)   /* the same lane of the next vector: kernels compare pairs */
                    put(data.in, at >= 16u ? at - 16u : at + 16u, special[(trial + 2u) % 4u], 4u);
            }
            c->judge(data.want, data.in, n);
            EACH_PATH(p) {
                mt_context(c->name, mpt_simd_name());
                check_run_to_bf16(c, n, controls[trial % COUNT_OF(controls)]);
            }
        }
    }
}

/* Every length up to 200, and some above, at random alignments; bytes around the result must not change. */
TEST(lengths_and_alignments)
{
    int i, p;
    for (i = 0; i < CONVERSIONS; i++) {
        const conversion *c = conversions + i;
        const size_t      room = 3600;
        size_t            n, k;
        (void)fill(c->from, c->in);
        EACH_PATH(p)
            for (n = 0; n <= 200u + 60u; n++) {
                const size_t   count = n <= 200u ? n : 200u + (n - 200u) * 53u;
                const size_t   at = (size_t)(mt_random() % 64u), from = (size_t)(mt_random() % 64u);
                const size_t   first = (size_t)(mt_random() % 97u) * c->in;
                unsigned char *src = data.want + 2u * room * 8u + from, *dst = data.out + 64 + at;
                if (c->in <= 2u)
                    memcpy(src, (unsigned char *)data.in + first % 8u * c->in, count * c->in);
                else
                    memcpy(src, (unsigned char *)data.in + (MOST - 2u * room) * c->in + first, count * c->in);
                around_bytes = n % 3u ? (size_t)32 << 20 : 4096u;
                memset(data.out, 0xa5, room * 8u);
                c->judge(data.want, src, count);
                run(c, dst, src, count);
                mt_context(c->name, mpt_simd_name());
                CHECK(memcmp(dst, data.want, count * c->out) == 0);
                for (k = 0; k < 64u; k++)
                    if (data.out[at + k] != 0xa5 || dst[count * c->out + k] != 0xa5)
                        break;
                CHECK_EQ_U_AT(k, 64u, count);
            }
    }
    around_bytes = (size_t)32 << 20;
}

TEST(in_place)
{
    int i, p;
    for (i = 0; i < CONVERSIONS; i++) {
        const conversion *c = conversions + i;
        const size_t      n = fill(c->from, c->in) - 3u;
        if (c->out > c->in)
            continue;
        c->judge(data.want, data.in, n);
        EACH_PATH(p) {
            around_bytes = p % 2 ? 4096u : (size_t)32 << 20;
            memcpy(data.out, data.in, n * c->in);
            run(c, data.out, data.out, n);
            mt_context(c->name, mpt_simd_name());
            check_same(c, data.in, n);
        }
    }
    around_bytes = (size_t)32 << 20;
}

/* Codes for which kernels have extra code: zeros, limits of the subnormal and normal numbers, Inf, NaNs; and
 * numbers at or next to a midpoint, to the least number or to overflow of another format. */
static size_t special_codes(mpt_format format, uint64_t *codes)
{
    static const uint32_t numbers[] = {
        0x33000000u, 0x33000001u, 0x337fffffu, 0x33800000u, 0x387fe000u, 0x387ff000u, 0x38800000u, /* f16 */
        0x3f801000u, 0x3f803000u, 0x477fe000u, 0x477fefffu, 0x477ff000u, 0x47800000u, 0x47801001u,
        0x47802000u,
        0x3f808000u, 0x3f818000u, 0x7f7f8000u, 0x7f7f7fffu,                                     /* bf16 */
        0x3a800000u, 0x3a800001u, 0x3c780000u, 0x3f880000u, 0x43e00000u, 0x43e80000u, 0x43e80001u, /* FP8 */
        0x36800000u, 0x37000000u, 0x3f900000u, 0x47600000u, 0x476fffffu, 0x47700000u,
    };
    const mpt_format_info *f = mpt_format_get(format);
    const uint64_t         one = 1u, sign = one << (f->bits - 1), least = one << f->mantissa_bits;
    const uint64_t         plain[] = {0u, 1u, 2u, least - 1u, least, least + 1u, f->max_code, f->inf_code,
                                      f->nan_code, f->nan_code | 1u};
    size_t                 n = 0, i;
    for (i = 0; i < COUNT_OF(plain); i++)
        codes[n++] = plain[i];
    if (f->has_inf) {           /* signaling NaNs with the last, the first or all payload bits set */
        codes[n++] = f->inf_code | 1u;
        codes[n++] = f->inf_code | (least >> 2);
        codes[n++] = f->inf_code | (least - 1u);
    }
    for (i = 0; i < COUNT_OF(numbers); i++) {
        unsigned       unused = 0u;
        const mpt_opts down = {MPT_RND_TOWARD_ZERO, MPT_OVERFLOW_IEEE, 0u, MPT_NAN_KEEP, MPT_TININESS_AFTER,
                               0u, NULL, 0u, 0u, 0u, 0u};
        codes[n++] = mpti_encode_bits(f, mpti_f64_of_code(mpt_format_get(MPT_F32), numbers[i], 0u), &down,
                                      &unused);
    }
    for (i = 0; i < n; i++)
        codes[n + i] = codes[i] | sign;
    return 2u * n;
}

/* One such code among ordinary numbers, at every place of the vectors: kernels must find the group that has
 * it, and convert that group in another way. */
TEST(one_special_value_at_each_place)
{
    enum { N = 131, SKEW = 48 };
    unsigned char *in = (unsigned char *)data.in + SKEW, *out = data.out + SKEW;
    uint64_t       codes[100];
    int            i, p;
    for (i = 0; i < CONVERSIONS; i++) {
        const conversion *c = conversions + i;
        const size_t      count = special_codes(c->from, codes);
        size_t            k, at;
        for (k = 0; k < N; k++)         /* 1 to 1.875: normal in every format */
            put(in, k, mpt_encode(c->from, 1.0 + (double)(k % 8u) / 8.0, NULL, NULL), c->in);
        c->judge(data.want, in, N);
        for (k = mt.every == 1 ? 0 : (size_t)i % 4u; k < count; k += mt.every == 1 ? 1 : 4)
            EACH_PATH(p) {
                size_t wrong = N;
                for (at = 0; at < N; at++) {
                    const uint64_t usual = mt_get(in + at * c->in, c->in);
                    put(in, at, codes[k], c->in);
                    c->judge(data.want + at * c->out, in + at * c->in, 1);
                    run(c, out, in, N);
                    if (memcmp(out, data.want, N * c->out) != 0 && wrong == N)
                        wrong = at;
                    put(in, at, usual, c->in);
                    c->judge(data.want + at * c->out, in + at * c->in, 1);
                }
                mt_context(c->name, mpt_simd_name());
                CHECK_EQ_U_AT(wrong, N, codes[k]);
            }
    }
}

/* Both arrays end right before, then begin right after, an inaccessible page. */
TEST(fences)
{
    size_t         room = 8192u, n;
    unsigned char *a = fenced(&room), *b = fenced(&room);
    int            i, p;
    if (!a || !b)
        SKIP("no memory with fences");
    for (i = 0; i < CONVERSIONS; i++) {
        const conversion *c = conversions + i;
        (void)fill(c->from, c->in);
        EACH_PATH(p)
            for (n = 1; n < 300u; n += n < 140u ? 1u : 31u) {
                unsigned char *src = a + room - n * c->in, *dst = b + room - n * c->out;
                memcpy(src, data.in, n * c->in);
                c->judge(data.want, src, n);
                run(c, dst, src, n);
                mt_context(c->name, mpt_simd_name());
                CHECK(memcmp(dst, data.want, n * c->out) == 0);
                memmove(a, src, n * c->in);
                run(c, b, a, n);
                CHECK(memcmp(b, data.want, n * c->out) == 0);
            }
    }
}

/* Groups of 16 blocks, single blocks and a partial one, with ordinary and with non-temporal stores. Every
 * array ends right before an inaccessible page. */
TEST(mxfp4_between_fences)
{
    static const size_t lengths[] = {7, 32, 40, 64, 480, 512, 520, 544, 1024, 1056, 1536, 2048 + 33};
    size_t              room = 4u * (2048u + 33u) + 64u, i, k, n;
    unsigned char      *end[4];
    int                 p, packed;
    for (i = 0; i < 4u; i++) {
        end[i] = fenced(&room);
        if (!end[i])
            SKIP("no memory with fences");
        end[i] += room;
    }
    for (i = 0; i < COUNT_OF(lengths); i++)
        for (packed = 0; packed < 2; packed++) {
            unsigned char *x, *y, *codes, *scales;
            size_t         bytes;
            mpt_block_opts o;
            memset(&o, 0, sizeof o);
            o.packed = packed;
            n = lengths[i];
            bytes = packed ? (n + 1u) / 2u : n;
            x = end[0] - 4u * n;
            y = end[1] - 4u * n;
            codes = end[2] - bytes;
            scales = end[3] - (n + 31u) / 32u;
            for (k = 0; k < n; k++)
                put(x, k, (mt_random() & 0x80ffffffu) + ((100u + k / 32u % 50u) << 23), 4u);
            last_path = 0;
            (void)mpt_block_quantize_n(MPT_MXFP4, data.want, data.want + n, floats(x), n, &o);
            (void)mpt_block_dequantize_n(MPT_MXFP4, floats(data.out), data.want, data.want + n, n, &o);
            EACH_PATH(p)
                for (k = 0; k < 2u; k++) {
                    mt_context(packed ? "packed" : "bytes", mpt_simd_name());
                    around_bytes = k ? 0u : (size_t)32 << 20;
                    memset(y - 64, 0xa5, 4u * n + 64u);
                    memset(codes, 0xa5, bytes);
                    (void)mpt_block_quantize_n(MPT_MXFP4, codes, scales, floats(x), n, &o);
                    CHECK(memcmp(codes, data.want, bytes) == 0);
                    CHECK(memcmp(scales, data.want + n, (n + 31u) / 32u) == 0);
                    (void)mpt_block_dequantize_n(MPT_MXFP4, floats(y), codes, scales, n, &o);
                    CHECK(memcmp(y, data.out, 4u * n) == 0);
                    CHECK_EQ_U(y[-1], 0xa5u);
                }
        }
    around_bytes = (size_t)32 << 20;
}

/* mpt_quantize_as_n against a judge that encodes and decodes one value at a time. */
static void check_quantize(const mpt_format_info *f, size_t n)
{
    size_t i;
    int    p, rounds;
    for (i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)mt_get((unsigned char *)data.in + 4u * i, 4u);
        unsigned       unused = 0u;
        const uint64_t x = mpti_f64_of_code(mpt_format_get(MPT_F32), u, 0u);
        const double   y = mpt_decode_as(f, mpti_encode_bits(f, x, &mpti_plain_opts, &unused));
        put(data.want, i, mpti_f32_from_f64(mpti_f64_bits(y)), 4u);
    }
    EACH_PATH(p)
        for (rounds = 0; rounds < 3; rounds++) {
            static const conversion c = {"quantize", MPT_F32, MPT_F32, 4, 4, NULL, NULL};
#if HAVE_CONTROL
            const uint64_t old = control_set(rounds ? 2u : 0u, rounds == 2 ? 5 : rounds);
#endif
            around_bytes = rounds == 2 ? 4096u : (size_t)32 << 20;
            memcpy(data.out, data.in, 4u * n);
            (void)mpt_quantize_as_n(floats(data.out), floats(rounds == 1 ? (void *)data.out : data.in), n, f,
                                    NULL);
#if HAVE_CONTROL
            control_restore(old);
#endif
            mt_context(f->name, mpt_simd_name());
            check_same(&c, data.in, n);
        }
    around_bytes = (size_t)32 << 20;
}

TEST(quantize)
{
    static const struct { int e, m, bias; mpt_specials specials; } made[] = {
        {5, 10, 15, MPT_SPECIALS_IEEE}, {5, 10, 15, MPT_SPECIALS_FINITE}, {5, 10, 14, MPT_SPECIALS_IEEE},
        {5, 10, 15, MPT_SPECIALS_FN}, {8, 22, 127, MPT_SPECIALS_IEEE}, {2, 1, -126, MPT_SPECIALS_FINITE},
        {2, 1, 126, MPT_SPECIALS_FN}, {3, 19, 125, MPT_SPECIALS_FNUZ}, {7, 22, 63, MPT_SPECIALS_FN},
        {6, 9, 31, MPT_SPECIALS_FNUZ}, {2, 20, -100, MPT_SPECIALS_IEEE}, {2, 3, 105, MPT_SPECIALS_IEEE},
    };
    const size_t    n = fill(MPT_F32, 4) / 2u / mt.every + 5u;
    mpt_format_info f;
    size_t          i;
    for (i = 0; i < (size_t)MPT_FORMAT_COUNT; i++)
        check_quantize(mpt_format_get((mpt_format)i), n);
    for (i = 0; i < COUNT_OF(made); i++) {
        CHECK_EQ_I(mpt_format_define(&f, "made up", made[i].e, made[i].m, made[i].bias, made[i].specials),
                   MPT_OK);
        check_quantize(&f, n);
    }
}

/* Blocks of numbers of similar size, from zero and subnormals to the largest; some blocks have an Inf or a
 * NaN. The judge is the portable path. */
TEST(mxfp4)
{
    static uint8_t      codes[2][MOST], scales[2][MOST / 32];
    static const size_t aligned[] = {0u, 16u, 36u};     /* bytes past a line */
    const size_t        n = MOST / 2 - 7;
    size_t              i, k;
    int            p, packed;
    for (i = 0; i < n; i++) {
        const uint32_t r = (uint32_t)mt_random(), size = (uint32_t)(i / 32u % 255u);
        uint32_t       u = (r & 0x807fffffu) | (size - (r >> 23 & 7u) % (size + 1u)) << 23;
        if (r >> 26 == 5u)
            u = (u & 0xff800000u) | (r & 3u) << 21 | (i % 3u ? 0u : 1u);     /* ties, and just above */
        if (i / 32u % 255u == 0u && i / 32u % 2u)
            u &= 0x80000000u;
        if (i / 32u % 41u == 3u && i % 32u == i / 41u % 32u)
            u = r & 1u ? 0x7f800000u : 0xff800001u;
        put(data.in, i, u, 4u);
    }
    for (packed = 0; packed < 2; packed++) {
        mpt_block_opts o;
        memset(&o, 0, sizeof o);
        o.packed = packed;
        last_path = 0;
        (void)mpt_block_quantize_n(MPT_MXFP4, codes[0], scales[0], floats(data.in), n, &o);
        for (i = 0; i < n / 32u; i += 5u)
            scales[0][i] = (uint8_t)i;  /* every scale, but only to dequantize */
        (void)mpt_block_dequantize_n(MPT_MXFP4, floats(data.want), codes[0], scales[0], n, &o);
        EACH_PATH(p) {
            static const conversion c = {"mxfp4", MPT_F32, MPT_E2M1, 4, 1, NULL, NULL};
            const size_t size = packed ? (n + 1u) / 2u : n;
#if HAVE_CONTROL
            const uint64_t old = control_set(1u, packed ? 5 : 1);
#endif
            memset(codes[1], 0xa5, sizeof codes[1]);
            (void)mpt_block_quantize_n(MPT_MXFP4, codes[1], scales[1], floats(data.in), n, &o);
            for (k = 0; k < 3u; k++) {
                unsigned char *to = data.out + (64u - (uintptr_t)data.out % 64u) % 64u + aligned[k];
                memset(data.out, 0xa5, sizeof data.out);
                around_bytes = k < 2u ? 4096u : (size_t)32 << 20;
                (void)mpt_block_dequantize_n(MPT_MXFP4, floats(to), codes[0], scales[0], n, &o);
                around_bytes = (size_t)32 << 20;
                CHECK(to == data.out || to[-1] == 0xa5u);
                CHECK_EQ_U(to[4u * n], 0xa5u);
                memmove(data.out, to, 4u * n);
                CHECK(memcmp(data.out, data.want, 4u * n) == 0);
            }
#if HAVE_CONTROL
            control_restore(old);
#endif
            mt_context(packed ? "packed" : "bytes", mpt_simd_name());
            CHECK(memcmp(codes[0], codes[1], size) == 0);
            CHECK_EQ_U(codes[1][size], 0xa5u);
            for (i = 0; i < (n + 31u) / 32u; i++)
                if (i % 5u || i >= n / 32u)
                    CHECK_EQ_U_AT(scales[1][i], scales[0][i], i);
            check_same(&c, codes[0], n);
        }
    }
}

/* The judge computes the random words one at a time. */
static void judge_stochastic(mpt_format to, unsigned char *dst, const unsigned char *src, size_t n,
                             const mpt_opts *o)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t word = mpt_philox(o->seed, o->stream, o->step, o->first_element + i);
        const uint32_t u = (uint32_t)mt_get(src + 4u * i, 4u);
        put(dst, i, to == MPT_BF16 ? mpti_bf16_stochastic(u, word) : mpti_f16_stochastic(u, word), 2u);
    }
}

TEST(stochastic)
{
    static const mpt_format into[] = {MPT_F16, MPT_BF16};
    static const uint64_t   firsts[] = {0u, 1u, 7u, 12u, 0x7fffffff3u, 0xfffffffffffffff4u};
    static const size_t     aligned[] = {0u, 16u, 2u, 48u, 1u};     /* bytes past a line */
    const size_t            n = fill(MPT_F32, 4) / 4u + 3u;
    mpt_opts                o;
    int                     p, round;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    for (round = 0; round < 30; round++) {
        const conversion c = {"stochastic", into[round % 2], MPT_F32, 2, 4, NULL, NULL};
        const size_t     skip = round % 4 < 2 ? 0u : MOST - n, count = round < 20 ? n : (size_t)round * 7u;
        unsigned char   *to = data.out + (64u - (uintptr_t)data.out % 64u) % 64u + aligned[round % 5];
        unsigned char   *from = (unsigned char *)data.in + 4u * skip;
        o.seed = mt_random();
        o.stream = (uint32_t)round;
        o.step = (uint32_t)mt_random();
        o.first_element = firsts[round % 6];
        judge_stochastic(c.to, data.want, from, count, &o);
        EACH_PATH(p) {
#if HAVE_CONTROL
            const uint64_t old = control_set(2u, round % 2 ? 5 : 1);
#endif
            around_bytes = round % 3 ? 4096u : (size_t)32 << 20;
            memset(data.out, 0xa5, sizeof data.out);
            (void)mpt_convert_n(c.to, to, MPT_F32, from, count, &o, NULL);
            around_bytes = (size_t)32 << 20;
            CHECK(to == data.out || to[-1] == 0xa5u);
            CHECK_EQ_U(to[2u * count], 0xa5u);
            memmove(data.out, to, 2u * count);
#if HAVE_CONTROL
            control_restore(old);
#endif
            mt_context(c.name, mpt_simd_name());
            check_same(&c, from, count);
        }
    }
}

/* An unaligned non-temporal store crashes. Destinations start at every byte of a cache line, lengths are near
 * whole tiles, first elements lie inside a counter, and thresholds are low. */
TEST(stores_around_the_cache_are_aligned_at_any_threshold)
{
    static const size_t thresholds[] = {0u, 700u, 1100u, 1600u};
    const size_t        most = 600u;
    mpt_opts            o;
    size_t              place, n, k;
    int                 p;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    (void)fill(MPT_F32, 4);
    for (k = 0; k < COUNT_OF(thresholds); k++)
        for (place = 0; place < 64u; place++) {
            unsigned char   *to = data.out + (64u - (uintptr_t)data.out % 64u) % 64u + place;
            const mpt_format format = (place + k) % 2u ? MPT_F16 : MPT_BF16;
            o.first_element = place % 3u ? 0u : place;
            judge_stochastic(format, data.want, (const unsigned char *)data.in, most, &o);
            EACH_PATH(p)
                for (n = most; n > 100u; n -= n % 64u > 2u ? 11u : 1u) {
                    around_bytes = thresholds[k];
                    (void)mpt_stochastic_n(format, to, (const float *)(const void *)data.in, n, &o);
                    around_bytes = (size_t)32 << 20;
                    if (memcmp(to, data.want, 2u * n))
                        CHECK_EQ_U_AT(0, 1, n);
                }
            CHECK(memcmp(to, data.want, 2u * 100u) == 0);
        }
}

/* At the limits between methods of kernels a wrong choice shows only with some random words: many draws. */
TEST(stochastic_next_to_the_limits)
{
    static const uint32_t limits[] = {0x00800000u, 0x33000000u, 0x33800000u, 0x38000000u, 0x38800000u,
                                      0x3f800000u, 0x477fe000u, 0x47800000u, 0x7f7f0000u, 0x7f800000u,
                                      0x387fffffu};
    const size_t   n = MOST / mt.every;
    unsigned char *to = data.out + (64u - (uintptr_t)data.out % 64u) % 64u;   /* aligned: no head */
    mpt_opts       o;
    size_t         i, k;
    int            p, away, format;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    for (i = 0; i < COUNT_OF(limits); i++)
        for (away = -1; away < 2; away++)
            for (format = 0; format < 2; format++) {
                const conversion c = {"stochastic", format ? MPT_BF16 : MPT_F16, MPT_F32, 2, 4, NULL, NULL};
                o.seed = mt_random();
                for (k = 0; k < n; k++)         /* in one vector of a group or in the other one */
                    put(data.in, k, (k % 64u + 16u) % 64u < 32u ? limits[i] + (uint32_t)away +
                                                                      ((uint32_t)(k % 2u) << 31)
                                                                : 0x3f800000u, 4u);
                judge_stochastic(c.to, data.want, (const unsigned char *)data.in, n, &o);
                EACH_PATH(p) {
                    (void)mpt_convert_n(c.to, to, MPT_F32, data.in, n, &o, NULL);
                    memmove(data.out, to, 2u * n);
                    mt_context(c.name, mpt_simd_name());
                    check_same(&c, data.in, n);
                }
            }
}

/* The random words of a tile, or of fewer elements. Counters end at 2^61 - 1, that of element 2^64 - 1; then
 * comes 0. */
TEST(philox)
{
    static const uint64_t firsts[] = {0u, 5u, 0xfffffff1u, 0x1ffffffffffffff3u, 0x123456789abcdefu};
    static const size_t   sizes[] = {8, 60, 64, 132, MPTI_TILE};
    static uint32_t       words[4 * MPTI_COUNTERS + 1] MPTI_ALIGNED;
    const uint64_t        seed = mt_random(), counters = (uint64_t)1 << 61;
    const mpti_philox_keys key = mpti_philox_schedule(seed, 7u, 0xfedcba98u);
    size_t                i, j, k;
    int                   p;
    EACH_PATH(p)
        for (i = 0; i < COUNT_OF(firsts); i++)
            for (j = 0; j < COUNT_OF(sizes); j++) {
                const size_t n = sizes[j], want = (n + 7u) / 8u;
                memset(words, 0xa5, sizeof words);
#if MPTI_X86
                if (p >= MPTI_PATH_AVX2)
                    (p >= MPTI_PATH_AVX512 ? mpti_random_512 : mpti_random_256)(words, firsts[i], n, &key);
                else
#endif
                    mpti_random_portable(words, firsts[i], &key);
                mt_context("philox", mpt_simd_name());
                for (k = 0; k < want; k++) {
                    const uint64_t         at = (firsts[i] + k) % counters;
                    const mpt_philox_words w =
                        mpt_philox4x32((uint32_t)at, (uint32_t)(at >> 32), 7u, 0xfedcba98u, seed);
                    if (memcmp(words + 4u * k, w.word, sizeof w.word) != 0)
                        break;
                }
                CHECK_EQ_U_AT(k, want, firsts[i]);
                CHECK_EQ_U(words[4u * MPTI_COUNTERS], 0xa5a5a5a5u);
            }
}

TEST(path_names)
{
    int p, found = 0;
    EACH_PATH(p) {
        const char *name = mpt_simd_name();
        CHECK(p ? strcmp(name, "portable") != 0 : strcmp(name, "portable") == 0);
        found++;
    }
    CHECK(found >= 1);
#if MPT_SIMD && (MPTI_X86 || MPTI_ARM)
    CHECK(found >= 2);
#endif
}

/* --long: all floats through every kernel that takes floats; else one block in 1021 (a prime). */
TEST(all_floats)
{
    const time_t start = time(NULL);
    uint64_t     first;
    int          i, p;
    const size_t n = MOST;
    for (first = 0; first >> 32 == 0u; first += n * (mt.long_mode ? 1u : 1021u * mt.every)) {
        size_t k;
        for (k = 0; k < n; k++)
            put(data.in, k, first + k, 4u);
        for (i = 0; i < CONVERSIONS; i++) {
            const conversion *c = conversions + i;
            if (c->from != MPT_F32 || c->to == MPT_F64)
                continue;
            c->judge(data.want, data.in, n);
            EACH_PATH(p) {
                mt_context(c->name, mpt_simd_name());
                run(c, data.out, data.in, n);
                check_same(c, data.in, n);
            }
        }
    }
    if (mt.long_mode)
        printf("     all floats in %.0f s\n", difftime(time(NULL), start));
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(path_names);
    RUN(values);
    RUN(values_stored_around_the_cache);
    RUN(values_whatever_the_control_register_says);
    RUN(runs_of_normal_floats_to_bf16);
    RUN(lengths_and_alignments);
    RUN(in_place);
    RUN(one_special_value_at_each_place);
    RUN(fences);
    RUN(quantize);
    RUN(mxfp4);
    RUN(mxfp4_between_fences);
    RUN(stochastic);
    RUN(stores_around_the_cache_are_aligned_at_any_threshold);
    RUN(stochastic_next_to_the_limits);
    RUN(philox);
    RUN(all_floats);
    return mt_end();
}
