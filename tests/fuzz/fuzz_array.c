/* fuzz_array.c -- libFuzzer target: conversions between any two formats with any options, sizes, alignments,
 * strides and byte orders. Strided and packed ones must equal mpt_encode of mpt_decode for each element.
 * Buffers have the exact size, so that ASan detects accesses past the end. */
#include "../test.h"
#include "fuzz.h"

typedef struct input { const uint8_t *data; size_t size; } input;

static unsigned take(input *in)
{
    if (!in->size)
        return 0u;
    in->size--;
    return *in->data++;
}

static uint64_t take64(input *in)
{
    uint64_t r = 0u;
    int      i;
    for (i = 0; i < 8; i++)
        r = r << 8 | take(in);
    return r;
}

static uint64_t load(const uint8_t *p, int bytes) { return mt_get(p, (size_t)bytes); }

static int is_subnormal(mpt_class c) { return c == MPT_CLASS_NEG_SUBNORMAL || c == MPT_CLASS_POS_SUBNORMAL; }

static mpt_opts some_options(input *in)
{
    mpt_opts o;
    memset(&o, 0, sizeof o);
    o.rounding = (mpt_rounding)(take(in) % MPT_ROUNDING_COUNT);
    o.overflow = (mpt_overflow)(take(in) % 3u);
    o.flush = take(in) % 4u;
    o.nan = (mpt_nan_mode)(take(in) % 2u);
    o.tininess = (mpt_tininess)(take(in) % 2u);
    o.seed = take64(in);
    o.first_element = take64(in);
    o.stream = (uint32_t)take64(in);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input                  in = {data, size};
    const mpt_format       d = (mpt_format)(take(&in) % MPT_FORMAT_COUNT),
        s = (mpt_format)(take(&in) % MPT_FORMAT_COUNT);
    const mpt_format_info *df = mpt_format_get(d), *sf = mpt_format_get(s);
    const size_t   d_step = (size_t)df->bytes + take(&in) % 5u, s_step = (size_t)sf->bytes + take(&in) % 5u;
    const mpt_opts o = some_options(&in);
    const unsigned kind = take(&in);
    const size_t   n = in.size / s_step;
    uint8_t       *src = (uint8_t *)malloc(n * s_step ? n * s_step : 1u);
    uint8_t       *dst = (uint8_t *)malloc(n ? (n - 1u) * d_step + (size_t)df->bytes : 1u);
    uint8_t       *packed = (uint8_t *)malloc(n * (size_t)df->bytes + 1u);
    unsigned       flags = 0u;
    size_t         i, count, first, bad = 0;
    must(src && dst && packed);
    memcpy(src, in.data, n * s_step);
    must(mpt_convert_strided(d, dst, (ptrdiff_t)d_step, s, src, (ptrdiff_t)s_step, n, &o, &flags) == MPT_OK);
    for (i = 0; i < n; i++) {
        const uint64_t code = load(src + i * s_step, sf->bytes);
        double         x = mpt_decode(s, code);
        mpt_opts       at = o;
        at.random = mpt_philox(o.seed, o.stream, o.step, o.first_element + i);
        if ((o.flush & MPT_FLUSH_INPUTS) && is_subnormal(mpt_classify(s, code)))
            x = mpti_f64_make(mpti_f64_bits(x) & (uint64_t)1 << 63);
        must(load(dst + i * d_step, df->bytes) == mpt_encode(d, x, &at, NULL));
    }
    if (kind & 1u && s_step == (size_t)sf->bytes) {     /* packed; uses the fast path if there is one */
        must(mpt_convert_n(d, packed + 1, s, src, n, NULL, NULL) == MPT_OK);
        for (i = 0; i < n && d != s; i++)
            must(load(packed + 1 + i * (size_t)df->bytes, df->bytes) ==
                 mpt_encode(d, mpt_decode(s, load(src + i * (size_t)sf->bytes, sf->bytes)), NULL, NULL));
        must(mpt_inexact_n(d, s, src, n, &count, &first) == MPT_OK);
        must(count <= n && first <= n && (count == 0) == (first == n));
        must(mpt_convert_checked_n(d, packed, s, src, n, &o, &bad) == MPT_OK || bad < n);
        must(mpt_convert_bytes_n(d, packed + 1, MPT_BIG_ENDIAN, s, src, (mpt_byte_order)(kind % 3u), n, &o,
                                 NULL) ==
             MPT_OK);
    }
    if (kind & 2u) {
        float *f = (float *)malloc(n * sizeof *f + 1u);
        must(f != NULL);
        must(mpt_convert_strided(MPT_F32, f, sizeof *f, s, src, (ptrdiff_t)s_step, n, NULL, NULL) == MPT_OK);
        must(mpt_quantize_n(f, f, n, d, kind & 4u ? &o : NULL) == MPT_OK);
        free(f);
    }
    free(src);
    free(dst);
    free(packed);
    return 0;
}
