/* test_half_block.c -- tests of the block formats and bit packing of mpt_half.h. Valid C99 and C++17.
 *
 *     cc -O2 -I. tests/test_half_block.c tests/impl.c -o test_half_block -lm
 *     ./test_half_block [--long] [part of a name]
 *
 * --long quantizes 50 times as many blocks. The reference compares exact numbers (half_ref.h): it does not
 * divide, and computes nothing in floating point. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS under -std=c99 */
#endif
#include "../mpt_half.h"
#include "impl.h"
#include "test.h"
#include "half_ref.h"

/* Typed in from OCP MX v1.0, table 1, and NVIDIA's description of NVFP4. */
static const struct { mpt_block id; const char *name; mpt_format element, scale; int size; } blocks[] = {
    {MPT_MXFP8_E4M3, "mxfp8_e4m3", MPT_E4M3, MPT_E8M0, 32},
    {MPT_MXFP8_E5M2, "mxfp8_e5m2", MPT_E5M2, MPT_E8M0, 32},
    {MPT_MXFP6_E3M2, "mxfp6_e3m2", MPT_E3M2, MPT_E8M0, 32},
    {MPT_MXFP6_E2M3, "mxfp6_e2m3", MPT_E2M3, MPT_E8M0, 32},
    {MPT_MXFP4, "mxfp4", MPT_E2M1, MPT_E8M0, 32},
    {MPT_NVFP4, "nvfp4", MPT_E2M1, MPT_UE4M3, 16}};

TEST(block_table)
{
    size_t i;
    CHECK_EQ_I(MPT_BLOCK_COUNT, COUNT_OF(blocks));
    for (i = 0; i < COUNT_OF(blocks); i++) {
        const mpt_block_info *b = mpt_block_get(blocks[i].id);
        if (!CHECK(b != NULL))
            continue;
        CHECK_EQ_S(b->name, blocks[i].name);
        CHECK_EQ_I((int)b->element, (int)blocks[i].element);
        CHECK_EQ_I((int)b->scale, (int)blocks[i].scale);
        CHECK_EQ_I(b->size, blocks[i].size);
    }
    CHECK(mpt_block_get(MPT_BLOCK_COUNT) == NULL);
}

// the reference -----------------------------------------------------------------------------------

static num num_times(num a, num b)
{
    a = num_trim(a);
    b = num_trim(b);
    if (a.sig && b.sig && (a.sig * b.sig) / b.sig != a.sig)
        test_is_broken("a product too wide for 64 bits");
    return num_make(a.sig * b.sig, a.exp + b.exp);
}

static num power_of_2(int e) { return num_make(1u, e); }

/* e with 2^e <= x < 2^(e+1) */
static int floor_log2(num x) { return num_normalize(x).exp + 63; }

static uint32_t ref_power_scale(const row *r, num amax, mpt_block_scaling rule)
{
    int e = floor_log2(amax) - r->emax;
    if (rule == MPT_SCALE_ROUND) {      /* round amax to the element's mantissa, with a wide exponent */
        row            wide = *row_of(MPT_F64);
        const mpt_opts plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
        int            unused;
        wide.m = r->m;
        wide.max_code = ((ONE << 11) - 1u) << r->m;
        e = floor_log2(ref_value(&wide, ref_round(&wide, amax, 0, &plain, &unused))) - r->emax;
    }
    if (rule == MPT_SCALE_CEIL)
        while (num_cmp(num_times(ref_value(r, r->max_code), power_of_2(e)), amax) < 0)
            e++;
    return (uint32_t)((e < -127 ? -127 : e > 127 ? 127 : e) + 127);
}

/* The UE4M3 code of the scale (1 to 0x7e), found by comparing scale * 6 * tensor scale with amax. */
static uint32_t ref_small_scale(num amax, num tensor, mpt_block_scaling rule)
{
    const row *r = row_of(MPT_UE4M3);
    const num  six = num_times(num_make(6u, 0), tensor);
    uint32_t   c = 1u;
    int        half;
    while (c < 0x7eu && num_cmp(num_times(ref_value(r, c + 1u), six), amax) <= 0)
        c++;
    if (num_cmp(num_times(ref_value(r, c), six), amax) >= 0 || c == 0x7eu || rule == MPT_SCALE_FLOOR)
        return c;
    half = num_cmp(amax, num_times(num_middle(ref_value(r, c), ref_value(r, c + 1u)), six));
    return c + (rule == MPT_SCALE_CEIL || half > 0 || (half == 0 && (c & 1u)) ? 1u : 0u);
}

/* The magnitude code of x > 0 at a scale, found by comparing; for all roundings but the stochastic one. */
static uint64_t ref_element(const row *r, num x, num scale, int negative, mpt_rounding rounding)
{
    uint64_t c = 0u;
    int      half;
    while (c < r->max_code && num_cmp(num_times(ref_value(r, c + 1u), scale), x) <= 0)
        c++;
    if (c == r->max_code || num_cmp(num_times(ref_value(r, c), scale), x) == 0)
        return c;
    half = num_cmp(x, num_times(num_middle(ref_value(r, c), ref_value(r, c + 1u)), scale));
    return c + (uint64_t)ref_up(rounding, half, c & 1u, negative);
}

/* Quantize a block of n floats: store the element codes, return the scale code. */
static uint32_t ref_block(size_t which, uint8_t *codes, const uint32_t *x, size_t n, const mpt_block_opts *o,
                          uint32_t tensor_bits, uint64_t first)
{
    const row     *r = row_of(blocks[which].element), *s = row_of(blocks[which].scale);
    const int      mx = blocks[which].scale == MPT_E8M0;
    const num      tensor = mx ? power_of_2(0) : num_of_f32(tensor_bits);
    mpt_block_scaling rule = o->scaling;
    num            amax = num_make(0u, 0), scale;
    uint32_t       code = 0u;
    size_t         i;
    memset(codes, 0, n);
    for (i = 0; i < n; i++) {
        if ((x[i] & 0x7fffffffu) >= 0x7f800000u)
            return mx ? 0xffu : 0x7fu;
        if (num_cmp(num_of_f32(x[i]), amax) > 0)
            amax = num_of_f32(x[i]);
    }
    if (rule == MPT_SCALE_DEFAULT)
        rule = mx ? MPT_SCALE_FLOOR : MPT_SCALE_ROUND;
    if (amax.sig)
        code = mx ? ref_power_scale(r, amax, rule) : ref_small_scale(amax, tensor, rule);
    scale = num_times(ref_value(s, code), tensor);
    for (i = 0; i < n; i++) {
        const int sign = (int)(x[i] >> 31);
        const int flushed = (o->element.flush & MPT_FLUSH_INPUTS) && (x[i] & 0x7fffffffu) < 0x800000u;
        const num a = flushed ? num_make(0u, 0) : num_of_f32(x[i]);
        mpt_opts  at = o->element;
        unsigned  unused;
        at.overflow = MPT_OVERFLOW_SATURATE;
        at.random = mpt_philox(at.seed, at.stream, at.step, at.first_element + first + i);
        if (!a.sig)
            codes[i] = (uint8_t)sign_bit_of(r, sign);
        else if (mx)
            codes[i] = (uint8_t)ref_encode_num(r, num_times(a, power_of_2(-scale.exp)), sign, &at, &unused);
        else
            codes[i] = (uint8_t)(sign_bit_of(r, sign) | ref_element(r, a, scale, sign, at.rounding));
    }
    return code;
}

/* element * scale * tensor scale as a float: the exact product, rounded by the reference. */
static uint32_t ref_value_of(size_t which, uint8_t code, uint8_t scale_code, uint32_t tensor_bits)
{
    const row      *r = row_of(blocks[which].element), *s = row_of(blocks[which].scale);
    const int       mx = blocks[which].scale == MPT_E8M0;
    const mpt_opts  plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    uint64_t        element, scale;
    unsigned        unused;
    num             product;
    (void)ref_take_apart(r, code & ((1u << r->bits) - 1u), &element);
    (void)ref_take_apart(s, scale_code & ((1u << s->bits) - 1u), &scale);
    if (f64_is_nan(element) || f64_is_nan(scale) || ((element & ~F64_SIGN) == F64_INF && !scale))
        return 0x7fc00000u;
    if ((element & ~F64_SIGN) == F64_INF)
        return (uint32_t)(element >> 63) << 31 | 0x7f800000u;
    product = num_times(num_of_f64(element & ~F64_SIGN), num_of_f64(scale));
    if (!mx)
        product = num_times(product, num_of_f32(tensor_bits));
    if (!product.sig)
        return (uint32_t)(element >> 63) << 31;
    return (uint32_t)ref_encode_num(row_of(MPT_F32), product, (int)(element >> 63), &plain, &unused);
}

/* Bit j of packed codes is bit j % 8 of byte j / 8; bit k of code i is bit j = i * bits + k. */
static unsigned packed_bit(const uint8_t *p, size_t j) { return (unsigned)(p[j / 8u] >> j % 8u) & 1u; }

static int is_packed_from(const uint8_t *packed, const uint8_t *codes, size_t n, int bits)
{
    const size_t size = mpt_packed_size(n, bits);
    size_t       j;
    for (j = 0; j < size * 8u; j++) {
        const size_t   i = j / (size_t)bits, k = j % (size_t)bits;
        const unsigned want = i < n ? (unsigned)(codes[i] >> k) & 1u : 0u;
        if (packed_bit(packed, j) != want)
            return 0;
    }
    return 1;
}

// quantize and dequantize -------------------------------------------------------------------------

/* Random floats of 8 binades, of all binades, of the least or largest ones; with zeros, Inf, NaN, ties. */
static void fill_floats(uint32_t *x, size_t n)
{
    const uint64_t kind = mt_random();
    const uint32_t base = (uint32_t)(kind >> 32) % 0xf0u;
    size_t         i;
    for (i = 0; i < n; i++) {
        const uint64_t random = mt_random();
        const uint32_t field = kind % 8u == 0u   ? (uint32_t)(random >> 8) % 255u
                               : kind % 8u == 1u ? (uint32_t)(random >> 8) % 4u
                               : kind % 8u == 2u ? 254u - (uint32_t)(random >> 8) % 4u
                                                 : base + (uint32_t)(random >> 8) % 8u;
        uint32_t       man = (uint32_t)(random >> 32) & 0x7fffffu;
        if (random & 1u)
            man &= 0x780000u;                                   /* few bits: ties */
        if ((random & 6u) == 6u)
            man = (man & 0x780000u) + (uint32_t)(random >> 20) % 3u - 1u;
        x[i] = (field << 23 | (man & 0x7fffffu)) | (random & 8u ? 0x80000000u : 0u);
        if (random >> 56 < 4u)
            x[i] &= 0x80000000u;
    }
    if (kind >> 40 & 0xffu && n && (kind >> 56) < 8u)
        x[mt_random() % n] = 0x7f800000u | (uint32_t)(kind >> 20 & 1u) << 22;   /* Inf or NaN */
    if ((kind >> 56) == 9u)
        for (i = 0; i < n; i++)
            x[i] &= 0x80000000u;
}

static mpt_block_opts some_block_options(size_t which, uint32_t *tensor_bits)
{
    const uint64_t random = mt_random();
    mpt_block_opts o;
    memset(&o, 0, sizeof o);
    *tensor_bits = 0x3f800000u;
    o.scaling = (mpt_block_scaling)(random % 4u);
    o.packed = (int)(random >> 8 & 1u);
    if (random >> 16 & 1u && blocks[which].scale != MPT_E8M0) {
        *tensor_bits = (uint32_t)(random >> 32) % 0x7f800000u;
        *tensor_bits += *tensor_bits == 0u;
        o.tensor_scale = f32_of(*tensor_bits);
    }
    if (random >> 17 & 1u) {
        o.element.rounding = (mpt_rounding)(mt_random() % MPT_ROUNDING_COUNT);
        if (blocks[which].scale != MPT_E8M0 && o.element.rounding == MPT_RND_STOCHASTIC)
            o.element.rounding = MPT_RND_NEAREST_AWAY;
        o.element.seed = mt_random();
        o.element.first_element = mt_random() >> 8;
        o.element.flush = (unsigned)(random >> 18) & (blocks[which].scale == MPT_E8M0 ? 3u : 2u);
    }
    return o;
}

#define MOST 200u

static void check_blocks(size_t which, size_t n, const mpt_block_opts *o, uint32_t tensor_bits)
{
    static uint32_t x[MOST];
    uint8_t         codes[MOST + 8], scales[MOST + 8], want[MOST], plain[MOST];
    uint32_t        back[MOST];
    const size_t    size = (size_t)blocks[which].size, count = (n + size - 1u) / size;
    const int       bits = row_of(blocks[which].element)->bits;
    const size_t    bytes = o->packed ? mpt_packed_size(n, bits) : n;
    size_t          i;
    fill_floats(x, n);
    memset(codes, 0xa5, sizeof codes);
    memset(scales, 0xa5, sizeof scales);
    CHECK_EQ_I(mpt_block_quantize_n(blocks[which].id, codes, scales, CF32P(x), n, o), MPT_OK);
    for (i = 0; i < count; i++) {
        const size_t take = n - i * size < size ? n - i * size : size;
        CHECK_EQ_U_AT(scales[i], ref_block(which, want + i * size, x + i * size, take, o, tensor_bits,
                                           i * size), i);
    }
    if (o->packed) {
        CHECK(is_packed_from(codes, want, n, bits));
        CHECK_EQ_I(mpt_unpack_n(plain, codes, n, bits), MPT_OK);
    } else
        memcpy(plain, codes, n);
    for (i = 0; i < n; i++)
        CHECK_EQ_U_AT(plain[i], want[i], x[i]);
    CHECK(all_bytes_are(codes + bytes, sizeof codes - bytes, 0xa5));
    CHECK(all_bytes_are(scales + count, sizeof scales - count, 0xa5));
    memset(back, 0x5a, sizeof back);
    CHECK_EQ_I(mpt_block_dequantize_n(blocks[which].id, F32P(back), codes, scales, n, o), MPT_OK);
    for (i = 0; i < n; i++)
        CHECK_EQ_U_AT(back[i], ref_value_of(which, plain[i], scales[i / size], tensor_bits), x[i]);
    CHECK(all_bytes_are((const unsigned char *)(back + n), (MOST - n) * 4u, 0x5a));
}

TEST(block_quantize)
{
    const int passes = mt.long_mode ? 100000 : 2000 / (int)mt.every;
    size_t    i;
    int       pass;
    for (i = 0; i < COUNT_OF(blocks); i++)
        for (pass = 0; pass < passes; pass++) {
            uint32_t             tensor_bits;
            const mpt_block_opts o = some_block_options(i, &tensor_bits);
            mt_context(blocks[i].name, NULL);
            check_blocks(i, (size_t)(mt_random() % (MOST + 1u)), &o, tensor_bits);
        }
}

/* The default rounding, which has a fast path, with every rule for the scale; most arrays are one block. */
TEST(block_quantize_defaults)
{
    size_t i;
    int    pass;
    for (i = 0; i < COUNT_OF(blocks); i++)
        for (pass = 0; pass < (mt.long_mode ? 100000 : 2000 / (int)mt.every); pass++) {
            mpt_block_opts o;
            memset(&o, 0, sizeof o);
            o.scaling = (mpt_block_scaling)(pass % 4);
            mt_context(blocks[i].name, "defaults");
            check_blocks(i, pass % 3 ? (size_t)blocks[i].size : (size_t)(mt_random() % (MOST + 1u)), &o,
                         0x3f800000u);
        }
}

TEST(block_by_hand)
{
    float    x[32];
    uint8_t  codes[32], scales[2];
    float    back[32];
    uint32_t i;
    memset(x, 0, sizeof x);
    x[0] = 12.0f;                       /* floor(log2 12) = 3, less 2 of E2M1: scale 2 */
    x[1] = -0.5f;                       /* -0.25: a tie between 0 and 0.5, to even */
    x[2] = f32_of(0x80000000u);
    x[3] = 7.0f;                        /* 3.5: a tie between 3 and 4 */
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, scales, x, 32u, NULL), MPT_OK);
    CHECK_EQ_U(scales[0], 128u);
    CHECK_EQ_U(codes[0], 7u);           /* 6 */
    CHECK_EQ_U(codes[1], 8u);
    CHECK_EQ_U(codes[2], 8u);
    CHECK_EQ_U(codes[3], 6u);
    x[0] = 15.0f;                       /* 15 / 2 is clamped to 6; MPT_SCALE_CEIL (below) gives 15 / 4 */
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, scales, x, 32u, NULL), MPT_OK);
    CHECK_EQ_U(scales[0], 128u);
    CHECK_EQ_U(codes[0], 7u);
    {
        mpt_block_opts o;
        memset(&o, 0, sizeof o);
        o.scaling = MPT_SCALE_CEIL;
        CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, scales, x, 32u, &o), MPT_OK);
        CHECK_EQ_U(scales[0], 129u);
        CHECK_EQ_U(codes[0], 6u);       /* 3.75 to 4 */
        o.scaling = MPT_SCALE_ROUND;  /* 15 rounded to two bits is 16 */
        CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, scales, x, 32u, &o), MPT_OK);
        CHECK_EQ_U(scales[0], 129u);
    }
    for (i = 0; i < 32u; i++)
        x[i] = i & 1u ? -0.0f : 0.0f;
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP8_E4M3, codes, scales, x, 32u, NULL), MPT_OK);
    CHECK_EQ_U(scales[0], 0u);
    CHECK(codes[0] == 0u && codes[1] == 0x80u);
    x[5] = f32_of(0x7f800000u);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP8_E4M3, codes, scales, x, 32u, NULL), MPT_OK);
    CHECK_EQ_U(scales[0], 0xffu);
    CHECK(all_bytes_are(codes, 32u, 0));
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_MXFP8_E4M3, back, codes, scales, 32u, NULL), MPT_OK);
    CHECK_EQ_U(f32_bits(back[31]), 0x7fc00000u);
    x[5] = 6.0f;                        /* NVFP4: amax 6 and tensor scale 1 give scale 1, code 0x38 */
    CHECK_EQ_I(mpt_block_quantize_n(MPT_NVFP4, codes, scales, x, 32u, NULL), MPT_OK);
    CHECK_EQ_U(scales[0], 0x38u);
    CHECK_EQ_U(scales[1], 0u);
    CHECK_EQ_U(codes[5], 7u);
    x[5] = 1e-20f;                      /* the least scale, not zero */
    CHECK_EQ_I(mpt_block_quantize_n(MPT_NVFP4, codes, scales, x, 16u, NULL), MPT_OK);
    CHECK_EQ_U(scales[0], 1u);
}

/* Every scale with every element code; successive scales differ widely. Packed and not, on every path. */
TEST(block_dequantize_every_code)
{
    enum { ALL = 65536, N = ALL - 5 };
    static const uint32_t tensors[] = {0x3f800000u, 1u, 0x7f7fffffu, 0x3e9a3b21u, 0x00412345u};
    static uint8_t        codes[ALL], packed[ALL], scales[ALL / 16];
    static uint32_t       want[ALL], back[ALL];
    size_t                i, k, t;
    for (i = 0; i < COUNT_OF(blocks); i++)
        for (t = 0; t < (blocks[i].scale == MPT_E8M0 ? 1u : COUNT_OF(tensors)); t++) {
            const size_t   size = (size_t)blocks[i].size;
            mpt_block_opts o;
            memset(&o, 0, sizeof o);
            o.tensor_scale = f32_of(tensors[t]);
            for (k = 0; k < ALL; k++) {
                codes[k] = (uint8_t)k;
                scales[k / size] = (uint8_t)(k / 256u * 37u);
                want[k] = ref_value_of(i, codes[k], scales[k / size], tensors[t]);
            }
            CHECK_EQ_I(mpt_pack_n(packed, codes, ALL, row_of(blocks[i].element)->bits), MPT_OK);
            ON_EACH_PATH
                for (o.packed = 0; o.packed < 2; o.packed++) {
                    mt_context(blocks[i].name, mpt_simd_name());
                    memset(back, 0x5a, sizeof back);
                    CHECK_EQ_I(mpt_block_dequantize_n(blocks[i].id, F32P(back),
                                                      o.packed ? packed : codes, scales, N, &o), MPT_OK);
                    for (k = 0; k < N; k++)
                        CHECK_EQ_U_AT(back[k], want[k], k);
                    CHECK_EQ_U(back[N], 0x5a5a5a5au);
                }
            last_path = PATHS - 1;
        }
}

/* Dequantizing and quantizing again gives the same codes, if one element is the format's largest number. */
TEST(block_round_trip)
{
    size_t i, k;
    int    pass;
    for (i = 0; i < COUNT_OF(blocks); i++)
        for (pass = 0; pass < 500; pass++) {
            const row   *r = row_of(blocks[i].element);
            const size_t size = (size_t)blocks[i].size;
            uint8_t      codes[32], scales[1], codes2[32], scales2[1];
            uint32_t     x[32];
            mt_context(blocks[i].name, "round trip");
            for (k = 0; k < size; k++)
                codes[k] = (uint8_t)(mt_random() % (r->max_code + 1u) | (mt_random() & 1u) << (r->bits - 1));
            codes[pass % (int)size] = (uint8_t)r->max_code;
            scales[0] = (uint8_t)(blocks[i].scale == MPT_E8M0 ? 20u + mt_random() % 200u
                                                              : 1u + mt_random() % 0x7eu);
            CHECK_EQ_I(mpt_block_dequantize_n(blocks[i].id, F32P(x), codes, scales, size, NULL), MPT_OK);
            CHECK_EQ_I(mpt_block_quantize_n(blocks[i].id, codes2, scales2, CF32P(x), size, NULL), MPT_OK);
            CHECK_EQ_U(scales2[0], scales[0]);
            CHECK(memcmp(codes, codes2, size) == 0);
        }
}

TEST(block_tensor_scale)
{
    const float inf = f32_of(0x7f800000u), nan = f32_of(0x7fc00000u);
    float       x[5] = {1.0f, -2688.0f, 3.0f, 0.0f, 0.0f}, s = 7.0f;
    int         pass;
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, x, 5u, &s), MPT_OK);
    CHECK_EQ_U(f32_bits(s), 0x3f800000u);
    x[1] = inf;
    x[2] = nan;
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, x, 5u, &s), MPT_OK);
    CHECK_EQ_U(f32_bits(s), 0x39c30c31u);           /* 1 / 2688 */
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, x + 3, 2u, &s), MPT_OK);
    CHECK_EQ_U(f32_bits(s), 0x3f800000u);
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, NULL, 0u, &s), MPT_OK);
    CHECK_EQ_U(f32_bits(s), 0x3f800000u);
    x[0] = f32_of(1u);
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, x, 1u, &s), MPT_OK);
    CHECK_EQ_U(f32_bits(s), 1u);
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_MXFP4, x, 1u, &s), MPT_OK);
    CHECK_EQ_U(f32_bits(s), 0x3f800000u);
    s = 7.0f;
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_BLOCK_COUNT, x, 1u, &s), MPT_E_ARG);
    CHECK(s == 7.0f);                   /* nothing is written on an error */
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, NULL, 1u, &s), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, x, 1u, NULL), MPT_E_ARG);
    for (pass = 0; pass < 2000; pass++) {           /* no other float s brings 2688 * s nearer to amax */
        const uint32_t bits = 0x06000000u + (uint32_t)(mt_random() % 0x79000000u);
        num            a, low, high;
        x[0] = f32_of(bits);
        CHECK_EQ_I(mpt_block_tensor_scale(MPT_NVFP4, x, 1u, &s), MPT_OK);
        a = num_of_f32(bits);
        low = num_times(num_middle(num_of_f32(f32_bits(s) - 1u), num_of_f32(f32_bits(s))),
                        num_make(2688u, 0));
        high = num_times(num_middle(num_of_f32(f32_bits(s)), num_of_f32(f32_bits(s) + 1u)),
                         num_make(2688u, 0));
        CHECK(num_cmp(low, a) <= 0 && num_cmp(a, high) <= 0);
    }
}

// packing -----------------------------------------------------------------------------------------

TEST(packing)
{
    uint8_t codes[100], packed[110], back[100];
    int     bits;
    size_t  n, i;
    for (bits = 1; bits <= 8; bits++)
        for (n = 0; n <= 100u; n++) {
            const size_t size = (n * (size_t)bits + 7u) / 8u;
            CHECK_EQ_U(mpt_packed_size(n, bits), size);
            for (i = 0; i < n; i++)
                codes[i] = (uint8_t)mt_random();            /* bits above the code must not matter */
            memset(packed, 0xa5, sizeof packed);
            CHECK_EQ_I(mpt_pack_n(packed, codes, n, bits), MPT_OK);
            for (i = 0; i < n; i++)
                codes[i] = (uint8_t)(codes[i] & ((1u << bits) - 1u));
            CHECK(is_packed_from(packed, codes, n, bits));
            CHECK(all_bytes_are(packed + size, sizeof packed - size, 0xa5));
            memset(back, 0xa5, sizeof back);
            CHECK_EQ_I(mpt_unpack_n(back, packed, n, bits), MPT_OK);
            CHECK(memcmp(back, codes, n) == 0);
            CHECK(all_bytes_are(back + n, sizeof back - n, 0xa5));
            CHECK_EQ_I(mpt_pack_n(codes, codes, n, bits), MPT_OK);  /* in place */
            CHECK(memcmp(codes, packed, size) == 0);
        }
    CHECK_EQ_U(mpt_packed_size(SIZE_MAX, 8), SIZE_MAX);
    CHECK_EQ_U(mpt_packed_size(SIZE_MAX, 4), SIZE_MAX / 2u + 1u);
    CHECK_EQ_I(mpt_pack_n(packed, codes, 1u, 0), MPT_E_ARG);
    CHECK_EQ_I(mpt_pack_n(packed, codes, 1u, 9), MPT_E_ARG);
    CHECK_EQ_I(mpt_pack_n(NULL, codes, 1u, 4), MPT_E_ARG);
    CHECK_EQ_I(mpt_pack_n(packed, NULL, 1u, 4), MPT_E_ARG);
    CHECK_EQ_I(mpt_pack_n(NULL, NULL, 0u, 4), MPT_OK);
    CHECK_EQ_I(mpt_unpack_n(codes, packed, 1u, 0), MPT_E_ARG);
    CHECK_EQ_I(mpt_unpack_n(codes, packed, 1u, 9), MPT_E_ARG);
    CHECK_EQ_I(mpt_unpack_n(NULL, packed, 1u, 4), MPT_E_ARG);
    CHECK_EQ_I(mpt_unpack_n(codes, NULL, 1u, 4), MPT_E_ARG);
    CHECK_EQ_I(mpt_unpack_n(codes, codes, 9u, 4), MPT_E_ARG);       /* not in place */
    CHECK_EQ_I(mpt_unpack_n(codes, codes + 8, 9u, 4), MPT_E_ARG);
    CHECK_EQ_I(mpt_unpack_n(codes, codes + 9, 9u, 4), MPT_OK);
    CHECK_EQ_I(mpt_pack_n(codes + 1, codes, 9u, 4), MPT_E_ARG);     /* in place, but no other overlap */
    CHECK_EQ_I(mpt_pack_n(codes, codes, 9u, 4), MPT_OK);
    {
        const uint8_t two[2] = {0x3u, 0xau}, six[4] = {1u, 2u, 3u, 63u};
        CHECK_EQ_I(mpt_pack_n(packed, two, 2u, 4), MPT_OK);
        CHECK_EQ_U(packed[0], 0xa3u);               /* the first code is in the low half */
        CHECK_EQ_I(mpt_pack_n(packed, six, 4u, 6), MPT_OK);
        CHECK(packed[0] == 0x81u && packed[1] == 0x30u && packed[2] == 0xfcu);
    }
}

TEST(block_bad_arguments)
{
    static const uint32_t bad_scales[] = {0x7f800000u, 0x7fc00000u, 0xbf800000u, 0xff800000u};
    float          x[32], y[32];
    uint8_t        codes[32], scales[2];
    mpt_block_opts o;
    size_t         i;
    for (i = 0; i < 32u; i++)
        x[i] = y[i] = 1.0f;
    memset(codes, 0xa5, sizeof codes);
    memset(scales, 0xa5, sizeof scales);
    memset(&o, 0, sizeof o);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_BLOCK_COUNT, codes, scales, x, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, NULL, scales, x, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, NULL, x, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, scales, NULL, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, NULL, NULL, NULL, 0u, NULL), MPT_OK);
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_BLOCK_COUNT, y, codes, scales, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_MXFP4, NULL, codes, scales, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_MXFP4, y, NULL, scales, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_MXFP4, y, codes, NULL, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_MXFP4, NULL, NULL, NULL, 0u, NULL), MPT_OK);
    for (i = 0; i < COUNT_OF(bad_scales); i++) {
        o.tensor_scale = f32_of(bad_scales[i]);
        CHECK_EQ_I(mpt_block_quantize_n(MPT_NVFP4, codes, scales, x, 32u, &o), MPT_E_ARG);
        CHECK_EQ_I(mpt_block_dequantize_n(MPT_NVFP4, y, codes, scales, 32u, &o), MPT_E_ARG);
    }
    o.tensor_scale = 0.5f;                                      /* MX formats have no other than 1 */
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, scales, x, 32u, &o), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_MXFP8_E4M3, y, codes, scales, 32u, &o), MPT_E_ARG);
    o.tensor_scale = 0.0f;                                      /* arrays that overlap, by one byte */
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, codes + 31, x, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, (uint8_t *)x + 127, scales, x, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_quantize_n(MPT_MXFP4, codes, (uint8_t *)x + 127, x, 32u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_block_dequantize_n(MPT_MXFP4, x, (uint8_t *)x + 127, scales, 32u, NULL), MPT_E_ARG);
    o.element.rounding = MPT_ROUNDING_COUNT;
    CHECK_EQ_I(mpt_block_quantize_n(MPT_NVFP4, codes, scales, x, 32u, &o), MPT_E_ARG);
    CHECK(all_bytes_are(codes, sizeof codes, 0xa5) && all_bytes_are(scales, sizeof scales, 0xa5));
    CHECK_EQ_U(f32_bits(y[0]), 0x3f800000u);
}

/* No byte before or after the arrays is read or written, packed or not, with whole and partial blocks. */
TEST(block_between_fences)
{
    size_t         room = 4096u, i, n;
    unsigned char *x = fenced(&room), *codes = fenced(&room), *scales = fenced(&room);
    int            packed;
    if (!x || !codes || !scales)
        SKIP("no memory with fences");
    for (i = 0; i < COUNT_OF(blocks); i++)
        for (n = 0; n <= 130u; n++)
            for (packed = 0; packed < 2; packed++) {
                const size_t   size = (size_t)blocks[i].size, count = (n + size - 1u) / size;
                const size_t   bytes = packed ? mpt_packed_size(n, row_of(blocks[i].element)->bits) : n;
                unsigned char *src = x + room - n * 4u, *last = codes + room - bytes;
                uint8_t       *end = scales + room - count;
                mpt_block_opts o;
                memset(&o, 0, sizeof o);
                o.packed = packed;
                fill_floats((uint32_t *)(void *)src, n);
                CHECK_EQ_I(mpt_block_quantize_n(blocks[i].id, last, end, F32P(src), n, &o), MPT_OK);
                CHECK_EQ_I(mpt_block_dequantize_n(blocks[i].id, F32P(src), last, end, n, &o), MPT_OK);
                CHECK_EQ_I(mpt_block_quantize_n(blocks[i].id, codes, scales, F32P(x), n, &o), MPT_OK);
                CHECK_EQ_I(mpt_block_dequantize_n(blocks[i].id, F32P(x), codes, scales, n, &o), MPT_OK);
            }
}

/* Amax of 6 times a tie of scales: to even. */
TEST(nvfp4_scale_ties)
{
    static const float   amax[] = {6.375f, 7.125f};    /* 6 * a tie of scales */
    static const uint8_t want[] = {0x38, 0x3a};
    uint8_t              codes[1], scale[1];
    size_t               i;
    for (i = 0; i < 2; i++) {
        CHECK_EQ_I(mpt_block_quantize_n(MPT_NVFP4, codes, scale, &amax[i], 1u, NULL), MPT_OK);
        CHECK_EQ_U(scale[0], want[i]);
    }
}

/* Under the least tensor scale. */
TEST(nvfp4_tiny)
{
    float          x[2];
    mpt_block_opts o;
    uint8_t        codes[2], scale[1];
    memset(&o, 0, sizeof o);
    o.tensor_scale = mpti_f32_make(1u);
    x[0] = mpti_f32_make(6u), x[1] = mpti_f32_make(2u);     /* scale 1: elements 6 and 2 */
    CHECK_EQ_I(mpt_block_quantize_n(MPT_NVFP4, codes, scale, x, 2u, &o), MPT_OK);
    CHECK_EQ_U(scale[0], 0x38u);
    CHECK_EQ_U(codes[0], 7u);
    CHECK_EQ_U(codes[1], 4u);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(block_table);
    RUN(block_quantize);
    RUN(block_quantize_defaults);
    RUN(block_by_hand);
    RUN(block_dequantize_every_code);
    RUN(block_round_trip);
    RUN(block_tensor_scale);
    RUN(packing);
    RUN(block_bad_arguments);
    RUN(block_between_fences);
    RUN(nvfp4_scale_ties);
    RUN(nvfp4_tiny);
    return mt_end();
}
