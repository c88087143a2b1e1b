/* fuzz_half.c -- libFuzzer target: array conversions of any length and alignment against scalar functions,
 * and these against mpt_encode. Buffers have the exact size, so that ASan detects reads past the end. */
#include "fuzz.h"

static void one_double(uint64_t bits)
{
    const double   x = mpti_f64_make(bits);
    const uint64_t h = mpt_encode(MPT_F16, x, NULL, NULL), b = mpt_encode(MPT_BF16, x, NULL, NULL);
    must(mpt_f16_from_f64(x).bits == h);
    must(mpt_bf16_from_f64(x).bits == b);
    must(mpti_f64_bits(mpt_decode(MPT_F16, h)) == mpti_f64_widen(mpti_f16_decode((uint16_t)h)));
}

static void one_array(const float *src, size_t n, size_t skip)
{
    float   *in = (float *)malloc((n ? n : 1) * sizeof *in);
    mpt_f16 *half = (mpt_f16 *)malloc((n + skip + 1) * sizeof *half);
    float   *back = (float *)malloc((n ? n : 1) * sizeof *back);
    size_t   i;
    must(in && half && back);
    memcpy(in, src, n * sizeof *in);
    must(mpt_f16_from_f32_n(half + skip, in, n) == MPT_OK);
    must(mpt_f32_from_f16_n(back, half + skip, n) == MPT_OK);
    for (i = 0; i < n; i++) {
        must(half[skip + i].bits == mpti_f16_encode(mpti_f32_bits(in[i])));
        must(mpti_f32_bits(back[i]) == mpti_f16_decode(half[skip + i].bits));
    }
    free(in);
    free(half);
    free(back);
}

/* The range report of an array equals the merged reports of its two parts. */
static void one_report(const float *x, size_t n, size_t cut)
{
    mpt_range whole, left, right;
    must(mpt_range_init(&whole, MPT_F16) == MPT_OK);
    left = right = whole;
    must(mpt_range_add(&whole, MPT_F32, x, n) == MPT_OK);
    must(mpt_range_add(&left, MPT_F32, x, cut) == MPT_OK);
    must(mpt_range_add(&right, MPT_F32, x + cut, n - cut) == MPT_OK);
    must(mpt_range_merge(&left, &right) == MPT_OK);
    must(!memcmp(&left, &whole, sizeof whole));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float x[1024];
    uint64_t     bits;
    const size_t n = size / sizeof *x < 1024 ? size / sizeof *x : 1024;
    size_t       i;
    for (i = 0; i + sizeof bits <= size; i += sizeof bits) {
        memcpy(&bits, data + i, sizeof bits);
        one_double(bits);
    }
    if (n)
        memcpy(x, data, n * sizeof *x);
    one_array(x, n, size % 16);
    one_report(x, n, n ? data[0] % (n + 1) : 0);
    return 0;
}
