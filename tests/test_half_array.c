/* test_half_array.c -- tests of the array conversions of mpt_half.h with options, strides and byte orders, of
 * quantizing and of checked conversion. test_half.c tests plain conversions. Valid C99 and C++17.
 *
 *     cc -O2 -I. tests/test_half_array.c tests/impl.c -o test_half_array -lm
 *     ./test_half_array [part of a name]
 *
 * The expected results come from the slow reference in half_ref.h. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS under -std=c99 */
#endif
#include "../mpt_half.h"
#include "test.h"
#include "half_ref.h"

// any formats, with options -----------------------------------------------------------------------

/* Element i must equal the reference result with the random word that the header documents for it. */
static void check_options(mpt_format d, const unsigned char *dst, mpt_format s, const unsigned char *src,
                          size_t n, const mpt_opts *o, unsigned got_flags)
{
    unsigned want_flags = 0u, flags;
    size_t   i;
    for (i = 0; i < n; i++) {
        const uint64_t code = get_code(src, s, i);
        mpt_opts       at = *o;
        at.random = o->randoms ? o->randoms[i] : mpt_philox(o->seed, o->stream, o->step,
                                                            o->first_element + i);
        CHECK_EQ_U_AT(get_code(dst, d, i), ref_convert(row_of(d), row_of(s), code, &at,
                                                                      &flags),
                      code);
        want_flags |= flags;
    }
    CHECK_EQ_U(got_flags, want_flags);
}

TEST(convert_all_formats)
{
    static unsigned char src[300 * 8], dst[300 * 8];
    static uint32_t      words[300];
    size_t               i, k, pass;
    for (i = 0; i < COUNT_OF(rows); i++)
        for (k = 0; k < COUNT_OF(rows); k++)
            for (pass = 0; pass < 6u; pass++) {
                const mpt_format d = rows[i].id, s = rows[k].id;
                const size_t     n = pass == 5u ? 300u : (size_t)(mt_random() % 9u);
                mpt_opts         o = some_options();
                unsigned         flags = 0u;
                mt_context(rows[i].name, rows[k].name);
                for (o.randoms = NULL; pass & 1u && !o.randoms; o.randoms = words) {
                    size_t j;
                    for (j = 0; j < 300u; j++)
                        words[j] = (uint32_t)mt_random();
                }
                fill_codes(src, s, n);
                CHECK_EQ_I(mpt_convert_n(d, dst, s, src, n, &o, &flags), MPT_OK);
                check_options(d, dst, s, src, n, &o, flags);
                CHECK_EQ_I(mpt_convert_n(d, dst, s, src, n, &o, NULL), MPT_OK);
                check_options(d, dst, s, src, n, &o, flags);
                CHECK_EQ_I(mpt_convert_n(d, dst, s, src, n, NULL, NULL), MPT_OK);
                if (d == s)         /* the same format: a copy */
                    CHECK(memcmp(dst, src, n * bytes_of(s)) == 0);
                else
                    check_plain(d, dst, s, src, n);
                flags = MPT_FLAG_DIVBYZERO;     /* flags are sticky: a call clears none */
                CHECK_EQ_I(mpt_convert_n(d, dst, s, src, n, NULL, &flags), MPT_OK);
                check_plain(d, dst, s, src, n);
                CHECK((flags & MPT_FLAG_DIVBYZERO) != 0u);
            }
}

/* Sources near the least normal number and the last power of two of the destination: between them conversion
 * uses faster code. Many random words are within 1 of the dropped bits. Flushing has fast code of its own. */
TEST(convert_options_at_the_edges)
{
    enum { COUNT = 1003 };
    static unsigned char src[COUNT * 8], dst[COUNT * 8];
    static uint32_t      words[COUNT];
    const size_t         n = mt.every == 1 ? COUNT : 267;
    size_t               d, s, i, k;
    for (d = 0; d < COUNT_OF(rows); d++)
        for (s = 0; s < COUNT_OF(rows); s++)
            for (k = 0; k < (size_t)MPT_ROUNDING_COUNT + 3u; k++) {
                const mpt_format       to = rows[d].id, from = rows[s].id;
                const mpt_format_info *f = mpt_format_get(to), *g = mpt_format_get(from);
                mpt_opts               o = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
                unsigned               flags = 0u;
                if (k < (size_t)MPT_ROUNDING_COUNT)
                    o.rounding = (mpt_rounding)k;
                else
                    o.flush = (unsigned)(k - MPT_ROUNDING_COUNT + 1u);
                mt_context(rows[d].name, rows[s].name);
                for (i = 0; i < n; i++) {
                    const int about = (i & 1u ? f->emin : f->emax - 2) + (int)(mt_random() % 4u) - 1;
                    uint64_t  code = some_code(from), field = (uint64_t)(about - g->emin + 1);
                    if (g->sign_bits && g->mantissa_bits > 1 && about >= g->emin - 1 && about <= g->emax)
                        code = (code >> (g->bits - 1) << (g->bits - 1)) | field << g->mantissa_bits |
                               (code & (((uint64_t)1 << g->mantissa_bits) - 1u));
                    put_code(src, from, i, code);
                    words[i] = (uint32_t)mt_random();
                    if (g->mantissa_bits > f->mantissa_bits && f->mantissa_bits && i % 4u)
                        words[i] = (uint32_t)(code << (64 - g->mantissa_bits + f->mantissa_bits) >> 32) +
                                   (uint32_t)(i % 3u) - 1u;
                }
                o.randoms = words;
                CHECK_EQ_I(mpt_convert_n(to, dst, from, src, n, &o, &flags), MPT_OK);
                check_options(to, dst, from, src, n, &o, flags);
                CHECK_EQ_I(mpt_convert_n(to, dst, from, src, n, &o, NULL), MPT_OK);
                check_options(to, dst, from, src, n, &o, flags);
            }
}

/* Saturation alone (which kernels handle), and with one more option each (which they do not). */
TEST(convert_saturating)
{
    static unsigned char src[300 * 8], dst[300 * 8];
    size_t               d, s, k;
    for (d = 0; d < COUNT_OF(rows); d++)
        for (s = 0; s < COUNT_OF(rows); s++)
            for (k = 0; k < 4u; k++) {
                mpt_opts o = options(k == 1u ? MPT_RND_TOWARD_ZERO : MPT_RND_NEAREST_EVEN, 1, k == 2u, 0u);
                unsigned flags = 0u;
                o.nan = k == 3u ? MPT_NAN_CANONICAL : MPT_NAN_KEEP;
                mt_context(rows[d].name, rows[s].name);
                fill_codes(src, rows[s].id, 300u);
                CHECK_EQ_I(mpt_convert_n(rows[d].id, dst, rows[s].id, src, 300u, &o, &flags), MPT_OK);
                check_options(rows[d].id, dst, rows[s].id, src, 300u, &o, flags);
                CHECK_EQ_I(mpt_convert_n(rows[d].id, dst, rows[s].id, src, 300u, &o, NULL), MPT_OK);
                check_options(rows[d].id, dst, rows[s].id, src, 300u, &o, flags);
            }
}

/* Three tiles of floats that the destination format represents as normal numbers, with one element that it
 * does not, or only just, at a limit of a tile: conversion takes faster code for tiles of normal numbers. */
TEST(convert_tiles_that_are_normal)
{
    static const size_t  places[] = {0u, 255u, 256u, 511u, 512u, 599u, 600u};
    static unsigned char src[601 * 4], dst[600 * 8];
    const size_t         some = 1u + mt.every / 4u;
    size_t               d, i, k, kind;
    for (d = 0; d < COUNT_OF(rows); d++)
        for (kind = d % some; kind < 12u && rows[d].id != MPT_F32; kind += some)
            for (k = 0; k < COUNT_OF(places); k++) {
                const mpt_format       to = rows[d].id;
                const mpt_format_info *f = mpt_format_get(to);
                const uint32_t         least = (uint32_t)ref_plain(MPT_F32, MPT_F64, f64_bits(f->min_normal));
                const uint32_t         most = (uint32_t)ref_plain(MPT_F32, MPT_F64, f64_bits(f->max_finite));
                const uint32_t         half = f->mantissa_bits < 23 ? 1u << (22 - f->mantissa_bits) : 0u;
                const uint32_t         odd[] = {0u, least, least - 1u, least + 1u, least + half, most, 1u,
                                                most + 1u, 0x7f800000u, 0x7fc12345u, 0x7f812345u,
                                                0x7f7fffffu};
                const mpt_opts         plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
                mpt_opts               o = some_options();
                unsigned               flags = 0u;
                o.rounding = MPT_RND_NEAREST_EVEN;
                mt_context(rows[d].name, "tiles");
                for (i = 0; i < 600u; i++) {
                    const uint64_t normal = (uint64_t)1 << f->mantissa_bits;
                    const uint64_t code = normal + mt_random() % (f->max_code + 1u - normal);
                    put_code(src, MPT_F32, i, ref_plain(MPT_F32, to, code) | (mt_random() & 1u) << 31);
                }
                put_code(src, MPT_F32, places[k], odd[kind] | (mt_random() & 1u) << 31);
                CHECK_EQ_I(mpt_convert_n(to, dst, MPT_F32, src, 600u, NULL, &flags), MPT_OK);
                check_options(to, dst, MPT_F32, src, 600u, &plain, flags);
                flags = 0u;             /* less than a tile: the buffer's older elements must not count */
                CHECK_EQ_I(mpt_convert_n(to, dst, MPT_F32, src + 4u * 512u, 88u, NULL, &flags), MPT_OK);
                check_options(to, dst, MPT_F32, src + 4u * 512u, 88u, &plain, flags);
                flags = 0u;
                CHECK_EQ_I(mpt_convert_n(to, dst, MPT_F32, src, 600u, &o, &flags), MPT_OK);
                check_options(to, dst, MPT_F32, src, 600u, &o, flags);
                CHECK_EQ_I(mpt_convert_n(to, dst, MPT_F32, src, 600u, &o, NULL), MPT_OK);
                check_options(to, dst, MPT_F32, src, 600u, &o, flags);
            }
}

TEST(convert_bad_arguments)
{
    unsigned char a[64], b[64];
    mpt_opts      o;
    unsigned      flags = 0u;
    int           i;
    memset(a, 0xa5, sizeof a);
    memset(b, 0x11, sizeof b);
    CHECK_EQ_I(mpt_convert_n(MPT_FORMAT_COUNT, a, MPT_F32, b, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_n(MPT_F16, a, MPT_FORMAT_COUNT, b, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_n(MPT_F16, NULL, MPT_F32, b, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_n(MPT_F16, a, MPT_F32, NULL, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_n(MPT_F16, NULL, MPT_F32, NULL, 0u, NULL, NULL), MPT_OK);
    for (i = 0; i < WRONG_OPTIONS; i++) {
        o = wrong_options(i);
        CHECK_EQ_I(mpt_convert_n(MPT_F16, a, MPT_F32, b, 2u, &o, &flags), MPT_E_ARG);
    }
    CHECK_EQ_I(mpt_quantize_n(F32P(a), CF32P(b), 2u, MPT_F16, &o), MPT_E_ARG);
    CHECK_EQ_I(mpt_quantize_n(F32P(a), CF32P(b), 2u, MPT_FORMAT_COUNT, NULL),
               MPT_E_ARG);
    CHECK_EQ_I(mpt_quantize_n(NULL, CF32P(b), 2u, MPT_F16, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_quantize_as_n(F32P(a), CF32P(b), 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_quantize_f64_n(F64P(a), NULL, 2u, mpt_format_get(MPT_F16), NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_quantize_f64_n(F64P(a), CF64P(b), 2u, NULL, NULL),
               MPT_E_ARG);
    CHECK_EQ_I(mpt_quantize_n(NULL, NULL, 0u, MPT_F16, NULL), MPT_OK);
    memset(&o, 0, sizeof o);
    o.tininess = (mpt_tininess)out_of_range(2);
    CHECK_EQ_I(mpt_quantize_n(NULL, NULL, 0u, MPT_F16, &o), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_bytes_n(MPT_F16, a, (mpt_byte_order)out_of_range(3), MPT_F32, b, MPT_BIG_ENDIAN,
                                   2u, NULL, NULL),
               MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_bytes_n(MPT_F16, a, MPT_BIG_ENDIAN, MPT_F32, b, (mpt_byte_order)out_of_range(4),
                                   2u, NULL,
                                   NULL),
               MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, a, 2, MPT_FORMAT_COUNT, b, 4, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_checked_n(MPT_FORMAT_COUNT, a, MPT_F32, b, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_inexact_n(MPT_F16, MPT_FORMAT_COUNT, b, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_inexact_n(MPT_F16, MPT_F32, NULL, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_U(flags, 0u);
    CHECK(all_bytes_are(a, sizeof a, 0xa5));
}

/* Positive and negative strides with gaps, whose bytes stay; source stride 0 repeats one element. */
/* Destinations that would be written before they are read as sources: nothing is. Sizes with and without a
 * group of 64, and of several tiles. */
TEST(overlaps_are_refused)
{
    static unsigned char room[8 * 1000 + 64], was[sizeof room];
    static const size_t  sizes[] = {2, 10, 64, 100, 256, 300, 1000};
    size_t               k, i;
    for (i = 0; i < sizeof room; i++)
        room[i] = (unsigned char)(i * 37u % 100u);
    memcpy(was, room, sizeof room);
    for (k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const size_t   n = sizes[k];
        unsigned char *p = room, *last = room + 4u * n - 4u;
        mpt_opts       o;
        memset(&o, 0, sizeof o);
        o.rounding = MPT_RND_STOCHASTIC;
        CHECK_EQ_I(mpt_f32_from_f16_n(F32P(p), (const mpt_f16 *)(void *)p, n), MPT_E_ARG);
        CHECK_EQ_I(mpt_f32_from_f16_n(F32P(p), (const mpt_f16 *)(void *)last, n), MPT_E_ARG);
        CHECK_EQ_I(mpt_f16_from_f32_n((mpt_f16 *)(void *)last, CF32P(p), n), MPT_E_ARG);
        CHECK_EQ_I(mpt_f16_from_f32_n((mpt_f16 *)(void *)p, CF32P(p + 2u * n - 1u), n), MPT_E_ARG);
        CHECK_EQ_I(mpt_convert_n(MPT_F64, p, MPT_F32, p, n, NULL, NULL), MPT_E_ARG);
        CHECK_EQ_I(mpt_convert_n(MPT_F16, last, MPT_F32, p, n, &o, NULL), MPT_E_ARG);
        CHECK_EQ_I(mpt_convert_n(MPT_F32, p + 4, MPT_F32, p + 4u * n, n, NULL, NULL), MPT_E_ARG);
        CHECK_EQ_I(mpt_stochastic_n(MPT_BF16, last, CF32P(p), n, &o), MPT_E_ARG);
        CHECK_EQ_I(mpt_quantize_n(F32P(last), CF32P(p), n, MPT_F16, NULL), MPT_E_ARG);
        CHECK_EQ_I(mpt_quantize_n(F32P(p), CF32P(last), n, MPT_F16, &o), MPT_E_ARG);
        CHECK_EQ_I(mpt_f16_add_n((mpt_f16 *)(void *)(p + 1), (mpt_f16 *)(void *)p, (mpt_f16 *)(void *)p, n),
                   MPT_E_ARG);
        CHECK_EQ_I(mpt_f16_fma_n((mpt_f16 *)(void *)p, (mpt_f16 *)(void *)p, (mpt_f16 *)(void *)p,
                                 (mpt_f16 *)(void *)(p + 2u * n - 1u), n), MPT_E_ARG);
        CHECK(!memcmp(room, was, sizeof room));
        CHECK_EQ_I(mpt_f16_from_f32_n((mpt_f16 *)(void *)(p + 4u * n), CF32P(p), n), MPT_OK);
        CHECK_EQ_I(mpt_f16_from_f32_n((mpt_f16 *)(void *)p, CF32P(p + 2u * n), n), MPT_OK);
        CHECK_EQ_I(mpt_f16_from_f32_n((mpt_f16 *)(void *)p, CF32P(p), n), MPT_OK);
        CHECK_EQ_I(mpt_f16_add_n((mpt_f16 *)(void *)p, (mpt_f16 *)(void *)(p + 2u * n),
                                 (mpt_f16 *)(void *)(p + 2u * n + 1u), n), MPT_OK);     /* sources may */
        memcpy(room, was, sizeof room);
    }
    CHECK_EQ_I(mpt_f32_from_f16_n(NULL, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_convert_n(MPT_F64, room, MPT_F32, room, 0, NULL, NULL), MPT_OK);
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, room, 1, MPT_F32, room + 64, 4, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, room, 0, MPT_F32, room + 64, 4, 2u, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, room + 9, -1, MPT_F32, room + 64, 4, 2u, NULL, NULL), MPT_E_ARG);
    CHECK(!memcmp(room, was, sizeof room));
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, room, 0, MPT_F32, room + 64, 4, 1u, NULL, NULL), MPT_OK);
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, room + 9, -2, MPT_F32, room + 64, 0, 2u, NULL, NULL), MPT_OK);
}

TEST(convert_strided)
{
    static const mpt_format formats[] = {MPT_F64, MPT_F32, MPT_TF32, MPT_F16, MPT_BF16, MPT_E4M3, MPT_E2M1};
    static unsigned char src[300 * 24 + 8], dst[300 * 24 + 8];
    int pass;
    for (pass = 0; pass < 400; pass++) {
        const mpt_format d = formats[mt_random() % COUNT_OF(formats)];
        const mpt_format s = formats[mt_random() % COUNT_OF(formats)];
        const size_t     n = pass % 8 ? (size_t)(mt_random() % 20u) : 300u;
        const size_t     d_step = bytes_of(d) + (size_t)(mt_random() % 9u);
        const size_t     s_step = pass % 5 ? bytes_of(s) + (size_t)(mt_random() % 9u) : 0u;
        const int        d_down = (int)(mt_random() & 1u), s_down = (int)(mt_random() & 1u);
        const ptrdiff_t  d_stride = d_down ? -(ptrdiff_t)d_step : (ptrdiff_t)d_step;
        const ptrdiff_t  s_stride = s_down ? -(ptrdiff_t)s_step : (ptrdiff_t)s_step;
        const mpt_opts   o = some_options();
        const int        with_options = (int)(mt_random() & 1u);
        unsigned char   *to = dst + 3u + (d_down && n ? (n - 1u) * d_step : 0u);
        unsigned char   *from = src + 5u + (s_down && n ? (n - 1u) * s_step : 0u);
        unsigned char    s_list[300 * 8], d_list[300 * 8];
        unsigned         flags = 0u;
        size_t           i;
        mt_context(row_of(d)->name, row_of(s)->name);
        memset(dst, 0xa5, sizeof dst);
        for (i = 0; i < n; i++)
            put_code(from + (ptrdiff_t)i * s_stride, s, 0u, some_code(s));
        CHECK_EQ_I(mpt_convert_strided(d, to, d_stride, s, from, s_stride, n, with_options ? &o : NULL,
                                       with_options ? &flags : NULL), MPT_OK);
        for (i = 0; i < n; i++) {
            memcpy(s_list + i * bytes_of(s), from + (ptrdiff_t)i * s_stride, bytes_of(s));
            memcpy(d_list + i * bytes_of(d), to + (ptrdiff_t)i * d_stride, bytes_of(d));
            memset(to + (ptrdiff_t)i * d_stride, 0xa5, bytes_of(d));
        }
        CHECK(all_bytes_are(dst, sizeof dst, 0xa5));
        if (with_options)
            check_options(d, d_list, s, s_list, n, &o, flags);
        else if (d == s)
            CHECK(memcmp(d_list, s_list, n * bytes_of(s)) == 0);
        else
            check_plain(d, d_list, s, s_list, n);
    }
}

/* The middle field of each record, converted in place. */
TEST(convert_strided_in_place)
{
    unsigned char records[100 * 12], before[100 * 12];
    size_t        i;
    memset(records, 0xa5, sizeof records);
    for (i = 0; i < 100u; i++)
        mt_put(records + 12u * i + 4u, 4u, source_pattern(4u));
    memcpy(before, records, sizeof records);
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, records + 4, 12, MPT_F32, records + 4, 12, 100u, NULL, NULL),
               MPT_OK);
    for (i = 0; i < 100u; i++) {
        const unsigned char *p = records + 12u * i, *q = before + 12u * i;
        CHECK_EQ_U(mt_get(p + 4, 2u), ref_plain(MPT_F16, MPT_F32, mt_get(q + 4, 4u)));
        CHECK(memcmp(p, q, 4u) == 0 && memcmp(p + 6, q + 6, 6u) == 0);
    }
}

/* Doubles near the ties of formats on both sides of what floats can stand in for: 22 or 23 bits of mantissa,
 * numbers down to 2^-147 or below, exponents beyond those of floats. */
TEST(quantize_doubles_to_own_formats)
{
    static const int      shape[][3] = {{8, 21, 127}, {7, 21, 63},   {7, 22, 63},  {7, 23, 63}, {8, 21, 128},
                                        {8, 7, 142},  {9, 10, 255}, {8, 4, 60},  {6, 12, 20}, {7, 4, 126}};
    static double         x[300], y[300];
    const mpt_format_info *f;
    mpt_format_info       own;
    size_t                k, i;
    for (k = 0; k < COUNT_OF(shape); k++) {
        f = &own;
        CHECK_EQ_I(mpt_format_define(&own, "own", shape[k][0], shape[k][1], shape[k][2], MPT_SPECIALS_IEEE),
                   MPT_OK);
        for (i = 0; i < COUNT_OF(x); i++) {
            const uint64_t code = mt_random() & ((MPTI_ONE << (i % 4 ? own.bits : own.mantissa_bits)) - 1u);
            const double   a = mpt_decode_as(f, code), b = mpt_decode_as(f, code ^ 1u);
            uint64_t       u = mpti_f64_bits(a / 2.0 + b / 2.0);        /* a tie, or one next to it */
            u += i % 3 - 1u;
            x[i] = mpti_f64_make(i % 10 ? u : mt_random());
        }
        CHECK_EQ_I(mpt_quantize_f64_n(y, x, COUNT_OF(x), f, NULL), MPT_OK);
        for (i = 0; i < COUNT_OF(x); i++)
            CHECK_EQ_U(mpti_f64_bits(y[i]),
                       mpti_f64_bits(mpt_decode_as(f, mpt_encode_as(f, x[i], NULL, NULL))));
    }
}

/* Do n elements of `a` bytes from p on and of `b` bytes from q on have a byte in common? */
static int bytes_meet(int p, int p_stride, int a, int q, int q_stride, int b, int n)
{
    int i, j;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++)
            if (p + i * p_stride < q + j * q_stride + b && q + j * q_stride < p + i * p_stride + a)
                return 1;
    return 0;
}

/* Refused: arrays that share a byte, unless each element overwrites itself; and, with strides of two sizes,
 * arrays that reach into each other. */
TEST(strided_overlap)
{
    static unsigned char room[400];
    int                  ds, ss, at, n;
    for (ds = -9; ds <= 9; ds++)
        for (ss = -9; ss <= 9; ss++)
            for (at = -30; at <= 30; at++)
                for (n = 2; n <= 3; n++) {
                    const int low = ds < 0 ? at + ds * (n - 1) : at, high = ds < 0 ? at : at + ds * (n - 1);
                    const int from = ss < 0 ? ss * (n - 1) : 0, to = ss < 0 ? 0 : ss * (n - 1);
                    const int apart = low >= to + 4 || from >= high + 2;
                    const int good = (!at && ds == ss) || apart ||
                                     ((ds == ss || ds == -ss) && !bytes_meet(at, ds, 2, 0, ss, 4, n));
                    if ((ds < 2 && ds > -2) || (ds == 2 && ss == 4))
                        continue;
                    CHECK_EQ_I(mpt_convert_strided(MPT_F16, room + 200 + at, ds, MPT_F32, room + 200, ss,
                                                   (size_t)n, NULL, NULL), good ? MPT_OK : MPT_E_ARG);
                }
}

static void reverse(unsigned char *p, size_t bytes, size_t n)
{
    size_t i, k;
    for (i = 0; i < n; i++)
        for (k = 0; k < bytes / 2u; k++) {
            const unsigned char t = p[i * bytes + k];
            p[i * bytes + k] = p[i * bytes + bytes - 1u - k];
            p[i * bytes + bytes - 1u - k] = t;
        }
}

static int host_is_big(void)
{
    const uint32_t one = 1u;
    unsigned char  b[4];
    memcpy(b, &one, 4u);
    return b[3] == 1u;
}

TEST(convert_byte_orders)
{
    static const mpt_byte_order orders[] = {MPT_NATIVE_ENDIAN, MPT_LITTLE_ENDIAN, MPT_BIG_ENDIAN};
    static const mpt_format     six[] = {MPT_F64, MPT_F32, MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2};
    static unsigned char src[300 * 8], dst[300 * 8], given[300 * 8];
    size_t i, pass;
    for (i = 0; i < 36u; i++)
        for (pass = 0; pass < 18u && i / 6u != i % 6u; pass++) {
            const mpt_format     d = six[i / 6u], s = six[i % 6u];
            const mpt_byte_order d_order = orders[pass % 3u], s_order = orders[pass / 3u % 3u];
            const int      other = host_is_big() ? (int)MPT_LITTLE_ENDIAN : (int)MPT_BIG_ENDIAN;
            const size_t   n = pass < 9u ? 300u : (size_t)(mt_random() % 20u);
            const mpt_opts o = some_options();
            unsigned       flags = 0u;
            mt_context(row_of(d)->name, row_of(s)->name);
            fill_codes(src, s, n);
            memcpy(given, src, sizeof given);
            if ((int)s_order == other)
                reverse(given, bytes_of(s), n);
            CHECK_EQ_I(mpt_convert_bytes_n(d, dst, d_order, s, given, s_order, n, NULL, NULL),
                       MPT_OK);
            if ((int)d_order == other)
                reverse(dst, bytes_of(d), n);
            check_plain(d, dst, s, src, n);
            CHECK_EQ_I(mpt_convert_bytes_n(d, dst, d_order, s, given, s_order, n, &o, &flags),
                       MPT_OK);
            if ((int)d_order == other)
                reverse(dst, bytes_of(d), n);
            check_options(d, dst, s, src, n, &o, flags);
        }
    {   /* 1.0 as a big-endian half, as in files of network byte order */
        const unsigned char one[2] = {0x3c, 0x00};
        unsigned char       out[2] = {0, 0};
        float               x = 0.0f;
        CHECK_EQ_I(mpt_convert_bytes_n(MPT_F32, &x, MPT_NATIVE_ENDIAN, MPT_F16, one, MPT_BIG_ENDIAN, 1u,
                                       NULL, NULL),
                   MPT_OK);
        CHECK_EQ_U(f32_bits(x), 0x3f800000u);
        CHECK_EQ_I(mpt_convert_bytes_n(MPT_F16, out, MPT_BIG_ENDIAN, MPT_F32, &x, MPT_NATIVE_ENDIAN, 1u,
                                       NULL, NULL),
                   MPT_OK);
        CHECK(out[0] == 0x3c && out[1] == 0x00);
    }
}

/* Nothing outside the elements is read or written, for any stride, byte order and options. */
TEST(convert_between_fences)
{
    size_t         room = 4096u;
    unsigned char *src = fenced(&room), *dst = fenced(&room);
    int            pass;
    if (!src || !dst)
        SKIP("no memory with fences");
    for (pass = 0; pass < 600; pass++) {
        const mpt_format d = rows[mt_random() % COUNT_OF(rows)].id, s = rows[mt_random() % COUNT_OF(rows)].id;
        const size_t     n = 1u + (size_t)(mt_random() % (pass % 4 ? 20u : 300u));
        const size_t     d_step = bytes_of(d) + (size_t)(pass % 3), s_step = bytes_of(s) + (size_t)(pass % 2);
        const size_t     d_size = (n - 1u) * d_step + bytes_of(d), s_size = (n - 1u) * s_step + bytes_of(s);
        unsigned char   *to = pass & 1 ? dst : dst + room - d_size;
        unsigned char   *from = pass & 2 ? src : src + room - s_size;
        const mpt_opts   o = some_options();
        unsigned         flags = 0u;
        size_t           i;
        for (i = 0; i < n; i++)
            put_code(from + i * s_step, s, 0u, some_code(s));
        CHECK_EQ_I(mpt_convert_strided(d, to, (ptrdiff_t)d_step, s, from, (ptrdiff_t)s_step, n,
                                       pass & 4 ? &o : NULL, pass & 8 ? &flags : NULL), MPT_OK);
        fill_codes(from, s, n);
        CHECK_EQ_I(mpt_convert_bytes_n(d, to, MPT_BIG_ENDIAN, s, from, MPT_LITTLE_ENDIAN, n,
                                       pass & 4 ? &o : NULL, pass & 8 ? &flags : NULL), MPT_OK);
        fill_codes(from, s, n);
        CHECK_EQ_I(mpt_inexact_n(d, s, from, n, NULL, NULL), MPT_OK);
        CHECK(mpt_convert_checked_n(d, to, s, from, n, NULL, NULL) != MPT_E_ARG);
    }
}

// quantize ----------------------------------------------------------------------------------------

/* The value of the nearest code, as a float. */
static uint32_t ref_quantize(const row *r, uint32_t u, const mpt_opts *o)
{
    unsigned unused;
    uint64_t value;
    (void)ref_take_apart(r, ref_convert(r, row_of(MPT_F32), u, o, &unused), &value);
    return (uint32_t)ref_plain(MPT_F32, MPT_F64, value);
}

static void check_quantize(const row *r, const uint32_t *src, size_t n)
{
    static uint32_t      dst[4096];
    const mpt_opts       plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    size_t               i;
    CHECK_EQ_I(mpt_quantize_n(F32P(dst), CF32P(src), n, r->id, NULL), MPT_OK);
    for (i = 0; i < n; i++)
        CHECK_EQ_U_AT(dst[i], ref_quantize(r, src[i], &plain), src[i]);
}

TEST(quantize_formats)
{
    static uint32_t src[4096], copy[4096];
    size_t          i, k, n;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        mt_context(r->name, "quantize");
        for (k = 0; k < 4096u; k++) {           /* around the values and the midpoints of the format */
            const uint64_t code = mt_random() % (r->max_code + 1u);
            const num      low = ref_value(r, code), high = ref_value(r, code + 1u);
            const uint64_t u = num_to_f64(k & 1u && r->id != MPT_F64 ? num_middle(low, high) : low);
            src[k] = k % 8u == 7u ? (uint32_t)mt_random()
                     : k % 8u == 6u ? (uint32_t)mt_random() & 0x80ffffffu    /* the smallest floats */
                     : (uint32_t)ref_plain(MPT_F32, MPT_F64, u) + (uint32_t)(mt_random() % 3u) - 1u;
            src[k] |= k & 16u ? 0x80000000u : 0u;
        }
        check_quantize(r, src, 4096u);
        for (k = 0; k < 4096u; k++)
            src[k] = (uint32_t)source_pattern(4u);
        check_quantize(r, src, 4096u);
        for (n = 0; n < 600u; n += n < 20u ? 1u : 77u) {    /* in place, several lengths */
            const mpt_opts plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
            memcpy(copy, src, sizeof copy);
            CHECK_EQ_I(mpt_quantize_n(F32P(copy), CF32P(copy), n, r->id, NULL),
                       MPT_OK);
            for (k = 0; k < n; k++)
                CHECK_EQ_U_AT(copy[k], ref_quantize(r, src[k], &plain), src[k]);
            CHECK(memcmp(copy + n, src + n, sizeof src - n * 4u) == 0);
        }
    }
}

/* Every rounding with the other options plain, then with any other options. */
TEST(quantize_options)
{
    static uint32_t src[300], dst[300], randoms[300];
    static uint64_t wide[300], wide_dst[300];
    size_t          i, k, pass;
    for (i = 0; i < COUNT_OF(rows); i++)
        for (pass = 0; pass < 2u * MPT_ROUNDING_COUNT; pass++) {
            const row   *r = &rows[i];
            const size_t n = mt_random() % 3u ? 300u : 1u + mt_random() % 20u;
            mpt_opts     o = some_options(), at;
            unsigned     unused;
            if (pass < MPT_ROUNDING_COUNT) {
                o = options(0, 0, 0, 0u);
                o.seed = mt_random();
            }
            o.rounding = (mpt_rounding)(pass % MPT_ROUNDING_COUNT);
            o.randoms = pass < MPT_ROUNDING_COUNT || i % 2u ? NULL : randoms;
            at = o;
            mt_context(r->name, rounding_names[o.rounding]);
            for (k = 0; k < 300u; k++) {
                src[k] = (uint32_t)source_pattern(4u);
                randoms[k] = (uint32_t)mt_random();
                wide[k] = source_pattern(8u);
            }
            CHECK_EQ_I(mpt_quantize_n(F32P(dst), CF32P(src), n, r->id, &o), MPT_OK);
            CHECK_EQ_I(mpt_quantize_f64_n(F64P(wide_dst), CF64P(wide), n, mpt_format_get(r->id),
                                          pass ? &o : NULL), MPT_OK);
            for (k = 0; k < n; k++) {
                uint64_t want;
                at.random = o.randoms ? randoms[k]
                                      : mpt_philox(o.seed, o.stream, o.step, o.first_element + k);
                CHECK_EQ_U_AT(dst[k], ref_quantize(r, src[k], &at), src[k]);
                (void)ref_take_apart(r, pass ? ref_convert(r, row_of(MPT_F64), wide[k], &at, &unused)
                                             : ref_plain(r->id, MPT_F64, wide[k]), &want);
                CHECK_EQ_U_AT(wide_dst[k], want, wide[k]);
            }
        }
}

/* Formats made by mpt_format_define; some of them are not suitable for the fast path. */
TEST(quantize_described)
{
    static const struct { int e, m, bias; mpt_specials specials; } list[] = {
        {2, 1, 1, MPT_SPECIALS_FINITE}, {3, 4, 3, MPT_SPECIALS_IEEE}, {4, 6, 7, MPT_SPECIALS_FN},
        {5, 3, 16, MPT_SPECIALS_FNUZ}, {6, 9, 31, MPT_SPECIALS_IEEE}, {8, 22, 127, MPT_SPECIALS_IEEE},
        {8, 1, 127, MPT_SPECIALS_IEEE}, {7, 12, 126, MPT_SPECIALS_FINITE}, {8, 3, 128, MPT_SPECIALS_IEEE},
        {8, 3, 126, MPT_SPECIALS_FINITE}, {10, 3, 511, MPT_SPECIALS_IEEE}, {10, 30, 511, MPT_SPECIALS_FN},
        {8, 23, 127, MPT_SPECIALS_IEEE}, {2, 22, 1, MPT_SPECIALS_IEEE}, {5, 0, 15, MPT_SPECIALS_SCALE},
        {8, 23, 126, MPT_SPECIALS_IEEE}, {8, 23, 128, MPT_SPECIALS_IEEE}, {9, 24, 255, MPT_SPECIALS_IEEE},
        {9, 23, 255, MPT_SPECIALS_FN}, {9, 22, 255, MPT_SPECIALS_IEEE}};
    static uint32_t src[2000], dst[2000];
    size_t          i, k;
    for (i = 0; i < COUNT_OF(list); i++) {
        mpt_format_info info;
        mt_context("described", NULL);
        if (!CHECK(mpt_format_define(&info, "described", list[i].e, list[i].m, list[i].bias,
                                     list[i].specials) == MPT_OK))
            continue;
        for (k = 0; k < 2000u; k++) {
            const uint64_t least = (uint64_t)(uint32_t)(info.emin + 127 - info.mantissa_bits - 2) << 23;
            src[k] = k & 1u ? (uint32_t)source_pattern(4u) : (uint32_t)mt_random();
            if (k % 4u == 2u)                   /* near the smallest numbers, with few bits: ties */
                src[k] = (uint32_t)((least + ((mt_random() % 64u) << 21)) & 0x7fffffffu) +
                         (uint32_t)(k % 3u) - 1u;
        }
        CHECK_EQ_I(mpt_quantize_as_n(F32P(dst), CF32P(src), 2000u, &info, NULL),
                   MPT_OK);
        for (k = 0; k < 2000u; k++) {           /* test_half.c tests mpt_encode_as itself */
            const uint64_t u = f64_from_f32_bits(src[k]);
            const double   value = mpt_decode_as(&info, mpt_encode_as(&info, f64_of(u), NULL, NULL));
            CHECK_EQ_U_AT(dst[k], ref_plain(MPT_F32, MPT_F64, f64_bits(value)), src[k]);
        }
    }
}

// checked -----------------------------------------------------------------------------------------

TEST(checked_conversion)
{
    static unsigned char src[300 * 8], dst[300 * 8], want[300 * 8];
    int                  pass;
    for (pass = 0; pass < 4000; pass++) {
        const row     *d = &rows[mt_random() % COUNT_OF(rows)];
        const row     *s = &rows[mt_random() % COUNT_OF(rows)];
        const size_t   n = (size_t)(mt_random() % 12u);
        mpt_opts       o = some_options();
        size_t         i, bad = 77u, first = n;
        mpt_status     status;
        mt_context(d->name, s->name);
        fill_codes(src, s->id, n);
        for (i = 0; i < n && first == n; i++) {
            const uint64_t u = ref_decode(s, get_code(src, s->id, i));
            const uint64_t a = u & ~F64_SIGN;
            unsigned       flags;
            mpt_opts       at = o;
            at.random = mpt_philox(o.seed, o.stream, o.step, o.first_element + i);
            (void)ref_convert(d, s, get_code(src, s->id, i), &at, &flags);
            if (a > F64_INF ? !d->has_nan : a == F64_INF ? !d->has_inf || (!d->s && u >> 63)
                                                         : (flags & (OVF | INV)) != 0u)
                first = i;
        }
        memset(dst, 0xa5, sizeof dst);
        status = mpt_convert_checked_n(d->id, dst, s->id, src, n, &o, &bad);
        CHECK_EQ_I(status, first < n ? MPT_E_RANGE : MPT_OK);
        CHECK_EQ_U(bad, first < n ? first : 77u);
        memset(want, 0xa5, sizeof want);
        if (first == n)
            CHECK_EQ_I(mpt_convert_n(d->id, want, s->id, src, n, &o, NULL), MPT_OK);
        CHECK(memcmp(dst, want, sizeof dst) == 0);
    }
    {
        const float x[3] = {1.0f, 65519.0f, 65520.0f};
        mpt_f16     h[3];
        size_t      bad = 9u;
        CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, h, MPT_F32, x, 2u, NULL, &bad), MPT_OK);
        CHECK_EQ_U(h[1].bits, 0x7bffu);
        CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, h, MPT_F32, x, 3u, NULL, &bad), MPT_E_RANGE);
        CHECK_EQ_U(bad, 2u);
        CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, h, MPT_F32, x, 3u, NULL, NULL), MPT_E_RANGE);
        bad = 9u;                       /* an overlap is a wrong call, whatever the numbers */
        CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, (char *)(uintptr_t)x + 2, MPT_F32, x, 3u, NULL, &bad),
                   MPT_E_ARG);
        CHECK_EQ_U(bad, 9u);
    }
    {   /* several tiles, with the bad one everywhere, and with one that only rounds down to the largest */
        static float   x[777];
        static mpt_f16 h[777];
        const float    bads[] = {65520.0f, -131072.0f, 65519.0f};
        size_t         i, k;
        for (i = 0; i < 777; i++)
            x[i] = (float)i * (i % 2 ? 84.0f : -1e-9f);
        for (i = 0; i < 3 * 777; i++) {
            const float  kept = x[i / 3];
            const size_t first = i % 3 < 2 ? i / 3 : 777u;
            k = 777u;
            x[i / 3] = bads[i % 3];
            CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, h, MPT_F32, x, 777u, NULL, &k),
                       i % 3 < 2 ? MPT_E_RANGE : MPT_OK);
            CHECK_EQ_U(k, first);
            x[i / 3] = kept;
        }
        {   /* upward, the next float above the largest number is too much */
            const mpt_opts up = options(MPT_RND_UP, 0, 0, 0u);
            x[300] = 65504.00390625f;
            CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, h, MPT_F32, x, 777u, &up, &k), MPT_E_RANGE);
            CHECK_EQ_U(k, 300u);
        }
    }
}

TEST(inexact_elements)
{
    static unsigned char src[300 * 8];
    int                  pass;
    for (pass = 0; pass < 2000; pass++) {
        const row   *d = &rows[mt_random() % COUNT_OF(rows)], *s = &rows[mt_random() % COUNT_OF(rows)];
        const size_t n = (size_t)(mt_random() % 12u);
        size_t       i, count = 0u, first = n, got_count = 77u, got_first = 77u;
        mt_context(d->name, s->name);
        fill_codes(src, s->id, n);
        for (i = 0; i < n; i++) {
            const uint64_t u = ref_decode(s, get_code(src, s->id, i));
            uint64_t       back;
            if (f64_is_nan(u) ? d->has_nan : ((void)ref_take_apart(d, ref_nearest(d, u), &back), back == u))
                continue;
            first = count++ ? first : i;
        }
        CHECK_EQ_I(mpt_inexact_n(d->id, s->id, src, n, &got_count, &got_first), MPT_OK);
        CHECK_EQ_U(got_count, count);
        CHECK_EQ_U(got_first, first);
        CHECK_EQ_I(mpt_inexact_n(d->id, s->id, src, n, NULL, NULL), MPT_OK);
    }
}

/* Each element takes its own word: 65520 stays finite with the first, and overflows with the second. */
TEST(checked_with_words_of_ones_own)
{
    const uint32_t words[2] = {0xffffffffu, 0u};
    const float    x[2] = {1.0f, 65520.0f};
    mpt_f16        h[2];
    mpt_opts       o;
    size_t         bad = 9;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    o.randoms = words;
    CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, h, MPT_F32, x, 2, &o, &bad), MPT_E_RANGE);
    CHECK_EQ_U(bad, 1);
    CHECK_EQ_I(mpt_convert_bytes_n(MPT_F16, h, (mpt_byte_order)9, MPT_F32, x, MPT_NATIVE_ENDIAN, 0, NULL,
                                   NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_stochastic_n(MPT_F32, h, x, 0, &o), MPT_E_UNSUPPORTED);
}

TEST(strided_tiles)
{
    static float   x[1000];
    static mpt_f16 h[1000];
    size_t         i;
    for (i = 0; i < 1000u; i++)
        x[i] = (float)(i + 1u);
    CHECK_EQ_I(mpt_convert_strided(MPT_F16, h + 999, -2, MPT_F32, x, 4, 1000u, NULL, NULL), MPT_OK);
    for (i = 0; i < 1000u; i++)
        CHECK_EQ_U(h[999u - i].bits, mpt_f16_from_f32(x[i]).bits);
}

/* Of three subnormals of f16, one is not. */
TEST(inexact_subnormals)
{
    static const double x[] = {1.5 / 16777216.0, 1.0 / 16777216.0, 3.0 / 16777216.0};
    size_t              count = 0, first = 0;
    CHECK_EQ_I(mpt_inexact_n(MPT_F16, MPT_F64, x, 3u, &count, &first), MPT_OK);
    CHECK_EQ_U(count, 1u);
    CHECK_EQ_U(first, 0u);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(convert_all_formats);
    RUN(convert_options_at_the_edges);
    RUN(convert_saturating);
    RUN(convert_tiles_that_are_normal);
    RUN(convert_bad_arguments);
    RUN(overlaps_are_refused);
    RUN(convert_strided);
    RUN(convert_strided_in_place);
    RUN(strided_overlap);
    RUN(quantize_doubles_to_own_formats);
    RUN(convert_byte_orders);
    RUN(convert_between_fences);
    RUN(quantize_formats);
    RUN(quantize_options);
    RUN(quantize_described);
    RUN(checked_conversion);
    RUN(inexact_elements);
    RUN(checked_with_words_of_ones_own);
    RUN(strided_tiles);
    RUN(inexact_subnormals);
    return mt_end();
}
