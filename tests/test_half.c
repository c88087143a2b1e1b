/* test_half.c -- tests of mpt_half.h: formats, conversions of numbers and of arrays, integers, text of bits.
 * Valid C99 and C++17. They pass at any optimisation level and with -ffast-math: they compare bit patterns,
 * computed with integers.
 *
 *     cc -O2 -I. tests/test_half.c tests/impl.c -o test_half -lm
 *     ./test_half [--long] [part of a test name]
 * --long converts all 2^32 floats to f16, bf16, e4m3 and e5m2. half_ref.h computes the expected results. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS under -std=c99 */
#endif
#include "../mpt_half.h"
#include "test.h"
#include "half_ref.h"

// the functions of the formats, on bit patterns ---------------------------------------------------

/* The conversions between the six formats with fast arrays: each pair by mpt_convert_n, and ten pairs also by
 * functions of their own. */
typedef struct pair_fn {
    const char *name;
    mpt_format  dst, src;
    mpt_status (*own)(void *dst, const void *src, size_t n);    /* NULL: mpt_convert_n */
} pair_fn;

#define NO_FUNCTION(d, s)
FAST_PAIRS(RUN_PAIR, NO_FUNCTION)

#define PLAIN_PAIR(d, s) {#d " from " #s, FORMAT_##d, FORMAT_##s, NULL},
#define AS_PLAIN(d, s, dst_type, src_type) PLAIN_PAIR(d, s)
#define OWN_PAIR(d, s, dst_type, src_type) \
    {"mpt_" #d "_from_" #s "_n", FORMAT_##d, FORMAT_##s, run_##d##_from_##s},
static const pair_fn pairs[] = {PLAIN_PAIR(f32, f64) FAST_PAIRS(AS_PLAIN, PLAIN_PAIR)
                                FAST_PAIRS(OWN_PAIR, NO_FUNCTION)};

/* The small formats with functions of one value. */
typedef struct small_fn {
    mpt_format id;
    unsigned (*from_f32)(uint32_t);
    unsigned (*from_f64)(uint64_t);
    uint32_t (*to_f32)(unsigned);
    uint64_t (*to_f64)(unsigned);
    mpt_status (*from_f32_n)(void *dst, const void *src, size_t n);
    unsigned (*from_f32_sat)(uint32_t);         /* of FP8, else NULL */
    mpt_status (*from_f32_sat_n)(void *dst, const void *src, size_t n);
    unsigned (*next)(unsigned code, int up);    /* of f16 and bf16, else NULL */
} small_fn;

#define SMALL_FUNCTIONS(T, bits_type)                                                                  \
    static mpt_##T  T##_code(unsigned c) { mpt_##T h; h.bits = (bits_type)c; return h; }               \
    static unsigned T##_from_f32(uint32_t u) { return mpt_##T##_from_f32(f32_of(u)).bits; }            \
    static unsigned T##_from_f64(uint64_t u) { return mpt_##T##_from_f64(f64_of(u)).bits; }            \
    static uint32_t T##_to_f32(unsigned c) { return f32_bits(mpt_f32_from_##T(T##_code(c))); }         \
    static uint64_t T##_to_f64(unsigned c) { return f64_bits(mpt_f64_from_##T(T##_code(c))); }
#define NEXT_FUNCTION(T) \
    static unsigned T##_next(unsigned c, int up) { return mpt_##T##_next(T##_code(c), up).bits; }
#define SAT_FUNCTION(T) \
    static unsigned T##_from_f32_sat(uint32_t u) { return mpt_##T##_from_f32_sat(f32_of(u)).bits; }
SMALL_FUNCTIONS(f16, uint16_t)
SMALL_FUNCTIONS(bf16, uint16_t)
SMALL_FUNCTIONS(e4m3, uint8_t)
SMALL_FUNCTIONS(e5m2, uint8_t)
NEXT_FUNCTION(f16)
NEXT_FUNCTION(bf16)
SAT_FUNCTION(e4m3)
SAT_FUNCTION(e5m2)
RUN_SAT(e4m3)
RUN_SAT(e5m2)

#define SMALL_ENTRY(T, sat, sat_n, next) \
    {FORMAT_##T, T##_from_f32, T##_from_f64, T##_to_f32, T##_to_f64, run_##T##_from_f32, sat, sat_n, next}
static const small_fn smalls[] = {
    SMALL_ENTRY(f16, NULL, NULL, f16_next), SMALL_ENTRY(bf16, NULL, NULL, bf16_next),
    SMALL_ENTRY(e4m3, e4m3_from_f32_sat, run_e4m3_sat, NULL),
    SMALL_ENTRY(e5m2, e5m2_from_f32_sat, run_e5m2_sat, NULL),
};
enum { HALVES = 2, SMALLS = 4 };    /* the first two are f16 and bf16 */

// version, status, format table -------------------------------------------------------------------

TEST(version_matches)
{
    CHECK_EQ_I(mpt_version(), MPT_VERSION);
    CHECK_EQ_I(MPT_VERSION, MPT_VERSION_MAJOR * 10000 + MPT_VERSION_MINOR * 100 + MPT_VERSION_PATCH);
}

TEST(status_texts)
{
    static const mpt_status all[] = {
#define ID(id, value, text) id,
        MPT_STATUSES(ID)
#undef ID
    };
    const char *unknown = mpt_status_text((mpt_status)1);
    size_t      i, k;
    CHECK_EQ_I(MPT_OK, 0);
    CHECK_EQ_S(unknown, "unknown status");
    for (i = 0; i < COUNT_OF(all); i++) {
        const char *text = mpt_status_text(all[i]);
        CHECK(text && strlen(text) > 5);
        CHECK(strcmp(text, unknown) != 0);
        CHECK(all[i] == MPT_OK || (int)all[i] < 0);
        for (k = 0; k < i; k++) {
            CHECK(strcmp(text, mpt_status_text(all[k])) != 0);
            CHECK(all[i] != all[k]);
        }
    }
}

/* Compare the properties of a format with its row in half_ref.h. */
static void check_info(const mpt_format_info *f, const row *r)
{
    mt_context(r->name, "limits");
    if (!CHECK(f != NULL))
        return;
    CHECK_EQ_S(f->name, r->name);
    CHECK_EQ_I(f->bits, r->bits);
    CHECK_EQ_I(f->sign_bits, r->s);
    CHECK_EQ_I(f->exponent_bits, r->e);
    CHECK_EQ_I(f->mantissa_bits, r->m);
    CHECK_EQ_I(f->bias, r->bias);
    CHECK_EQ_I((int)f->specials, (int)r->specials);
    CHECK_EQ_I(f->emin, r->emin);
    CHECK_EQ_I(f->emax, r->emax);
    CHECK_EQ_I(f->has_inf, r->has_inf);
    CHECK_EQ_I(f->has_nan, r->has_nan);
    CHECK_EQ_I(f->bytes, r->bits > 32 ? 8 : r->bits > 16 ? 4 : r->bits > 8 ? 2 : 1);
    CHECK_EQ_U(f->max_code, r->max_code);
    CHECK_EQ_U(f->inf_code, r->inf_code);
    CHECK_EQ_U(f->nan_code, r->nan_code);
    CHECK_EQ_U(f64_bits(f->max_finite), f64_bits(r->max_finite));
    CHECK_EQ_U(f64_bits(f->min_normal), f64_bits(r->min_normal));
    CHECK_EQ_U(f64_bits(f->min_subnormal), f64_bits(r->min_subnormal));
    CHECK_EQ_U(f64_bits(f->epsilon), f64_bits(r->epsilon));
}

TEST(format_table)
{
    size_t i;
    CHECK_EQ_I(MPT_FORMAT_COUNT, COUNT_OF(rows));
    for (i = 0; i < COUNT_OF(rows); i++)
        check_info(mpt_format_get(rows[i].id), &rows[i]);
    mt_context(NULL, NULL);
    CHECK(mpt_format_get(MPT_FORMAT_COUNT) == NULL);
    CHECK(mpt_format_get((mpt_format)31) == NULL);
}

/* The limits must equal the values of their codes; this checks the rows of half_ref.h and the header. */
TEST(format_limits_are_codes)
{
    size_t i;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        const int  scale = r->specials == MPT_SPECIALS_SCALE;
        const uint64_t least = scale ? 0u : 1u, normal = scale ? 0u : ONE << r->m;
        mt_context(r->name, NULL);
        CHECK_EQ_U(f64_bits(mpt_decode(r->id, r->max_code)), f64_bits(r->max_finite));
        CHECK_EQ_U(f64_bits(mpt_decode(r->id, normal)), f64_bits(r->min_normal));
        CHECK_EQ_U(f64_bits(mpt_decode(r->id, least)), f64_bits(r->min_subnormal));
        CHECK_EQ_U(num_to_f64(ref_value(r, r->max_code)), f64_bits(r->max_finite));
        CHECK_EQ_U(num_to_f64(ref_value(r, normal)), f64_bits(r->min_normal));
        CHECK_EQ_U(num_to_f64(ref_value(r, least)), f64_bits(r->min_subnormal));
    }
}

TEST(format_find)
{
    mpt_format f = MPT_E8M0;
    size_t     i;
    for (i = 0; i < COUNT_OF(rows); i++) {
        CHECK_EQ_I(mpt_format_find(rows[i].name, &f), MPT_OK);
        CHECK_EQ_I((int)f, (int)rows[i].id);
    }
    f = MPT_BF16;
    CHECK_EQ_I(mpt_format_find("f17", &f), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_format_find("", &f), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_format_find("F16", &f), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_format_find("f1", &f), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_format_find(NULL, &f), MPT_E_ARG);
    CHECK_EQ_I(mpt_format_find("f16", NULL), MPT_E_ARG);
    CHECK_EQ_I((int)f, (int)MPT_BF16);
}

static void check_define(int accept, int e, int m, int bias, mpt_specials specials)
{
    mpt_format_info info, none;
    float           x = 1.0f;
    memset(&info, 0x5a, sizeof info);
    memset(&none, 0, sizeof none);
    CHECK_EQ_I(mpt_format_define(&info, "mine", e, m, bias, specials), accept ? MPT_OK : MPT_E_ARG);
    CHECK_EQ_I(memcmp(&info, &none, sizeof info) != 0, accept);
    CHECK_EQ_I(mpt_quantize_as_n(&x, &x, 1, &info, NULL), accept ? MPT_OK : MPT_E_ARG);
}

TEST(format_define_accepts_and_rejects)
{
    mpt_format_info info;
    CHECK_EQ_I(mpt_format_define(NULL, "mine", 5, 10, 15, MPT_SPECIALS_IEEE), MPT_E_ARG);
    CHECK_EQ_I(mpt_format_define(&info, NULL, 5, 10, 15, MPT_SPECIALS_IEEE), MPT_E_ARG);
    check_define(1, 5, 10, 15, MPT_SPECIALS_IEEE);
    check_define(1, 2, 1, 1, MPT_SPECIALS_FINITE);
    check_define(1, 10, 52, 511, MPT_SPECIALS_IEEE);
    check_define(1, 1, 0, 0, MPT_SPECIALS_SCALE);
    check_define(0, 1, 1, 1, MPT_SPECIALS_IEEE);
    check_define(0, 0, 3, 1, MPT_SPECIALS_FN);
    check_define(0, -1, 3, 1, MPT_SPECIALS_FN);
    check_define(0, 12, 3, 2047, MPT_SPECIALS_FINITE);
    check_define(0, 5, 0, 15, MPT_SPECIALS_IEEE);
    check_define(0, 5, -1, 15, MPT_SPECIALS_IEEE);
    check_define(0, 5, 53, 15, MPT_SPECIALS_IEEE);
    check_define(0, 8, 1, 127, MPT_SPECIALS_SCALE);
    check_define(0, 0, 0, 127, MPT_SPECIALS_SCALE);
    check_define(0, 5, 2, 15, (mpt_specials)5);
    check_define(0, 8, 23, 1000000000, MPT_SPECIALS_IEEE);
    check_define(0, 8, 23, -1000000000, MPT_SPECIALS_IEEE);
    /* the limits of the bias: every value of the format must be a normal double */
    check_define(1, 8, 23, 1000, MPT_SPECIALS_IEEE);
    check_define(0, 8, 23, 1001, MPT_SPECIALS_IEEE);
    check_define(1, 8, 23, -769, MPT_SPECIALS_IEEE);
    check_define(0, 8, 23, -770, MPT_SPECIALS_IEEE);
    check_define(0, 8, 23, -769, MPT_SPECIALS_FINITE);
    check_define(1, 8, 23, -768, MPT_SPECIALS_FINITE);
}

/* What a refused definition leaves is an unknown format, as NULL is. */
TEST(format_refused_is_unknown)
{
    mpt_format_info        info;
    const mpt_format_info *unknown[] = {NULL, &info};
    size_t                 i;
    CHECK_EQ_I(mpt_format_define(&info, "bad", 1, 1, 0, MPT_SPECIALS_FINITE), MPT_E_ARG);
    for (i = 0; i < 2u; i++) {
        unsigned flags = 0u;
        uint64_t code = 77u;
        float    x = 1.0f, y;
        char     text[40];
        CHECK_EQ_U(mpt_encode_as(unknown[i], 1.0, NULL, &flags), 0u);
        CHECK_EQ_U(flags, INV);
        CHECK(f64_is_nan(f64_bits(mpt_decode_as(unknown[i], 0u))));
        CHECK_EQ_U(mpt_to_text_as(text, sizeof text, unknown[i], 1u, 0), 0u);
        CHECK_EQ_I(mpt_from_text_as(unknown[i], "1", 1, NULL, NULL, &code, NULL), MPT_E_ARG);
        CHECK_EQ_U(code, 77u);
        CHECK_EQ_I(mpt_quantize_as_n(&y, &x, 1, unknown[i], NULL), MPT_E_ARG);
    }
}

TEST(format_define_at_the_ends)
{
    mpt_format_info info;
    CHECK_EQ_I(mpt_format_define(&info, "low", 8, 23, 1000, MPT_SPECIALS_IEEE), MPT_OK);
    CHECK_EQ_U(f64_bits(info.min_subnormal), F64_HIDDEN);                      /* 2^-1022 */
    CHECK_EQ_U(f64_bits(mpt_decode_as(&info, 1u)), F64_HIDDEN);
    CHECK_EQ_U(mpt_encode_as(&info, f64_of(F64_HIDDEN), NULL, NULL), 1u);
    CHECK_EQ_U(mpt_encode_as(&info, f64_of(F64_HIDDEN / 2u), NULL, NULL), 0u); /* a tie */
    CHECK_EQ_U(mpt_encode_as(&info, f64_of(F64_HIDDEN / 2u + 1u), NULL, NULL), 1u);
    CHECK_EQ_I(mpt_format_define(&info, "high", 8, 23, -769, MPT_SPECIALS_IEEE), MPT_OK);
    CHECK_EQ_U(f64_bits(info.max_finite), 0x7fefffffe0000000u);                /* (2-2^-23) 2^1023 */
    CHECK_EQ_U(f64_bits(mpt_decode_as(&info, info.max_code)), 0x7fefffffe0000000u);
    CHECK_EQ_U(mpt_encode_as(&info, f64_of(0x7fefffffe0000000u), NULL, NULL), 0x7f7fffffu);
    CHECK_EQ_U(mpt_encode_as(&info, f64_of(0x7feffffff0000000u), NULL, NULL), 0x7f800000u);
}

/* A format made by mpt_format_define with the parameters of a built-in one behaves like that one. */
TEST(format_define_equals_table)
{
    size_t   i;
    uint64_t k;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row      *r = &rows[i];
        mpt_format_info info;
        if (r->id == MPT_F64 || r->id == MPT_UE4M3) /* not possible: subnormal doubles; unsigned FN */
            continue;
        mt_context(r->name, "described");
        CHECK_EQ_I(mpt_format_define(&info, r->name, r->e, r->m, r->bias, r->specials), MPT_OK);
        check_info(&info, r);
        for (k = 0; k < 5000u; k++) {
            const int      rounding = (int)(k % MPT_ROUNDING_COUNT);
            const mpt_opts o = options(rounding, k & 8u ? 1 : 0, k & 16u ? 1 : 0, (uint32_t)mt_random());
            const uint64_t code = r->bits <= 12 ? k : mt_random();
            const uint64_t low = mt_random() >> 12;
            const double   x = mpt_decode(r->id, code), y = f64_of(f64_bits(x) ^ low);
            unsigned       flags = 0u, want = 0u;
            CHECK_EQ_U_AT(f64_bits(mpt_decode_as(&info, code)), f64_bits(x), code);
            CHECK_EQ_U_AT(mpt_encode_as(&info, y, &o, &flags), mpt_encode(r->id, y, &o, &want), code);
            if (!f64_is_signaling(f64_bits(x) ^ low) || snan_survives())
                CHECK_EQ_U_AT(flags, want, code);
        }
    }
}

/* Formats made by mpt_format_define: every code and every midpoint, in every rounding. */
TEST(format_define_others)
{
    static const row others[] = {
        {MPT_FORMAT_COUNT, "e3m4", 8, 1, 3, 4, 3, MPT_SPECIALS_IEEE, -2, 3, 1, 1, 0x6f, 0x70, 0x78,
         15.5, 0.25, 0.015625, 0.0625},
        {MPT_FORMAT_COUNT, "e4m1fn", 6, 1, 4, 1, 7, MPT_SPECIALS_FN, -6, 8, 0, 1, 0x1e, 0, 0x1f,
         256.0, 0.015625, 0.0078125, 0.5},
        {MPT_FORMAT_COUNT, "e5m3", 9, 1, 5, 3, -20, MPT_SPECIALS_FNUZ, 21, 51, 0, 1, 0xff, 0, 0x100,
         4222124650659840.0, 2097152.0, 262144.0, 0.125},
        {MPT_FORMAT_COUNT, "e2m4", 7, 1, 2, 4, 1, MPT_SPECIALS_FINITE, 0, 2, 0, 0, 0x3f, 0, 0,
         7.75, 1.0, 0.0625, 0.0625},
        {MPT_FORMAT_COUNT, "e4m0", 4, 0, 4, 0, 7, MPT_SPECIALS_SCALE, -7, 7, 0, 1, 0xe, 0, 0xf,
         128.0, 0.0078125, 0.0078125, 1.0},
    };
    size_t   i;
    uint64_t code;
    int      k;
    for (i = 0; i < COUNT_OF(others); i++) {
        const row      *r = &others[i];
        mpt_format_info info;
        CHECK_EQ_I(mpt_format_define(&info, r->name, r->e, r->m, r->bias, r->specials), MPT_OK);
        check_info(&info, r);
        for (code = 0; code <= r->max_code; code++) {
            const num      low = ref_value(r, code);
            const uint64_t middle = num_to_f64(num_middle(low, ref_value(r, code + 1u)));
            CHECK_EQ_U_AT(f64_bits(mpt_decode_as(&info, code)), num_to_f64(low), code);
            for (k = 0; k < 5 * (int)MPT_ROUNDING_COUNT; k++) {
                const mpt_opts o = options(k / 5, 0, 0, (uint32_t)mt_random());
                const uint64_t u = k % 5 < 3 ? nudge(middle, k % 5 - 1) : num_to_f64(low) | F64_SIGN;
                unsigned       flags = 0u, want_flags;
                const uint64_t want = ref_encode(r, u, &o, &want_flags);
                mt_context(r->name, rounding_names[o.rounding]);
                CHECK_EQ_U_AT(mpt_encode_as(&info, f64_of(u), &o, &flags), want, u);
                CHECK_EQ_U_AT(flags, want_flags, u);
            }
        }
    }
}

// every code --------------------------------------------------------------------------------------

static void check_code(const row *r, uint64_t code)
{
    uint64_t        want;
    unsigned        flags = 0u;
    const mpt_class kind = ref_take_apart(r, code, &want);
    const uint64_t  quiet = kind == MPT_CLASS_SIGNALING_NAN ? ONE << (r->m - 1) : 0u;
    const double    got = mpt_decode(r->id, code);
    CHECK_EQ_U_AT(f64_bits(got), want, code);
    CHECK_EQ_U_AT(mpt_classify(r->id, code), kind, code);
    CHECK_EQ_U_AT(mpt_encode(r->id, got, NULL, &flags), code | quiet, code);
    CHECK_EQ_U_AT(flags, 0u, code);
}

TEST(decode_every_code)
{
    size_t   i;
    uint64_t code;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        mt_context(r->name, NULL);
        if (r->bits > 19)
            continue;
        for (code = 0; code < ONE << r->bits; code++)
            check_code(r, code);
        for (code = 0; code < 2u; code++) { /* bits above the format are ignored */
            const uint64_t above = ~(uint64_t)0 << r->bits | code;
            CHECK_EQ_U(f64_bits(mpt_decode(r->id, above)), f64_bits(mpt_decode(r->id, code)));
            CHECK_EQ_U(mpt_classify(r->id, above), mpt_classify(r->id, code));
        }
    }
}

TEST(decode_f32_f64_codes)
{
    static const uint64_t f64_corners[] = {
        0, 1, F64_HIDDEN - 1u, F64_HIDDEN, F64_INF - 1u, F64_INF, F64_INF + 1u, F64_INF | F64_QUIET,
        F64_INF | (F64_QUIET - 1u), ~F64_SIGN};
    size_t i;
    mt_context("f32, f64", NULL);
    for (i = 0; i < 100000u; i++) {
        check_code(row_of(MPT_F32), mt_random() >> 32);
        check_code(row_of(MPT_F64), mt_random());
        check_code(row_of(MPT_F64), mt_random() >> 12 >> i % 52); /* subnormal */
    }
    for (i = 0; i < COUNT_OF(f64_corners); i++) {
        check_code(row_of(MPT_F64), f64_corners[i]);
        check_code(row_of(MPT_F64), f64_corners[i] | F64_SIGN);
    }
}

TEST(small_every_code)
{
    size_t   i;
    unsigned c;
    for (i = 0; i < SMALLS; i++)
        for (c = 0; c < 1u << row_of(smalls[i].id)->bits; c++) {
            const small_fn *h = &smalls[i];
            const row      *r = row_of(h->id);
            uint64_t        want;
            const mpt_class kind = ref_take_apart(r, c, &want);
            const uint64_t  quiet = kind == MPT_CLASS_SIGNALING_NAN ? ONE << (r->m - 1) : 0u;
            const uint32_t  f32 = h->to_f32(c);
            mt_context(r->name, NULL);
            CHECK_EQ_U_AT(f64_from_f32_bits(f32), want, c);
            CHECK_EQ_U_AT(h->to_f64(c), want, c);
            CHECK_EQ_U_AT(h->from_f32(f32), c | quiet, c);
            CHECK_EQ_U_AT(h->from_f64(want), c | quiet, c);
        }
}

/* NaN payloads by hand: the conversion keeps the top bits, sets the quiet bit and drops the lower bits. */
TEST(small_nan_payloads)
{
    CHECK_EQ_U(f16_from_f32(0x7f800001u), 0x7e00u);
    CHECK_EQ_U(f16_from_f32(0xff802000u), 0xfe01u);
    CHECK_EQ_U(f16_from_f32(0x7fbfffffu), 0x7fffu);
    CHECK_EQ_U(f16_from_f32(0xffffffffu), 0xffffu);
    CHECK_EQ_U(f16_from_f64(0x7ff0000000000001u), 0x7e00u);
    CHECK_EQ_U(f16_from_f64(0xfff5555555555555u), 0xff55u);
    CHECK_EQ_U(f16_to_f32(0x7c01u), 0x7fc02000u);
    CHECK_EQ_U(f16_to_f64(0xfd55u), 0xfffd540000000000u);
    CHECK_EQ_U(bf16_from_f32(0x7f800001u), 0x7fc0u);
    CHECK_EQ_U(bf16_from_f32(0x7fffffffu), 0x7fffu);
    CHECK_EQ_U(bf16_from_f32(0xffa50000u), 0xffe5u);
    CHECK_EQ_U(bf16_from_f64(0xfff0000000000001u), 0xffc0u);
    CHECK_EQ_U(bf16_to_f32(0xff81u), 0xffc10000u);
    CHECK_EQ_U(bf16_to_f64(0x7f81u), 0x7ff8200000000000u);
}

// rounding of the fast functions ------------------------------------------------------------------

static void check_f32(const small_fn *h, uint32_t u, uint64_t want)
{
    const row     *r = row_of(h->id);
    const uint64_t sign = sign_bit_of(r, 1), sat = want > r->max_code ? r->max_code : want;
    CHECK_EQ_U_AT(h->from_f32(u), want, u);
    CHECK_EQ_U_AT(h->from_f32(u ^ 0x80000000u), want ^ sign, u ^ 0x80000000u);
    if (h->from_f32_sat) {
        CHECK_EQ_U_AT(h->from_f32_sat(u), sat, u);
        CHECK_EQ_U_AT(h->from_f32_sat(u ^ 0x80000000u), sat ^ sign, u ^ 0x80000000u);
    }
}

static void check_f64(const small_fn *h, uint64_t u, uint64_t want)
{
    const uint64_t sign = sign_bit_of(row_of(h->id), 1);
    CHECK_EQ_U_AT(h->from_f64(u), want, u);
    CHECK_EQ_U_AT(h->from_f64(u ^ F64_SIGN), want ^ sign, u ^ F64_SIGN);
    CHECK_EQ_U_AT(mpt_encode(h->id, f64_of(u), NULL, NULL), want, u);
    CHECK_EQ_U_AT(mpt_encode(h->id, f64_of(u ^ F64_SIGN), NULL, NULL), want ^ sign, u ^ F64_SIGN);
}

/* A step over the codes of a format: 1; with --short, if there are many codes, on average mt.every. */
static uint32_t some_of(const row *r)
{
    return r->bits > 8 && mt.every > 1u ? 1u + (uint32_t)(mt_random() % (2u * mt.every - 1u)) : 1u;
}

/* All midpoints, up to the one between the largest finite number and the next power of two. The tie goes to
 * the even code, the next number below it down, the next number above it up. The smallest steps in f64 are
 * far below half an ulp of float, which catches a conversion that goes through float. */
TEST(small_midpoints)
{
    static const int64_t steps[] = {1, 2, 3, 1 << 27, 1 << 28, (1 << 28) + 1, (1 << 29) - 1, 1 << 29};
    uint64_t c;
    size_t   i, k;
    for (k = 0; k < SMALLS; k++)
        for (c = 0; c <= row_of(smalls[k].id)->max_code; c += some_of(row_of(smalls[k].id))) {
            const small_fn *h = &smalls[k];
            const row      *r = row_of(h->id);
            const num       middle = num_middle(ref_value(r, c), ref_value(r, c + 1u));
            const uint64_t  m64 = num_to_f64(middle), even = c + (c & 1u);
            const uint32_t  m32 = num_to_f32(middle);
            mt_context(r->name, "midpoints");
            check_f32(h, m32, even);
            check_f32(h, m32 - 1u, c);
            check_f32(h, m32 + 1u, c + 1u);
            check_f64(h, m64, even);
            for (i = 0; i < COUNT_OF(steps); i++) {
                check_f64(h, nudge(m64, -steps[i]), c);
                check_f64(h, nudge(m64, steps[i]), c + 1u);
            }
        }
}

/* The limits that the header's comments give. */
TEST(small_limits)
{
    CHECK_EQ_U(f16_from_f32(0x477fefffu), 0x7bffu);             /* just below 65520 */
    CHECK_EQ_U(f16_from_f32(0x477ff000u), 0x7c00u);             /* 65520 */
    CHECK_EQ_U(f16_from_f64(0x40effdffffffffffu), 0x7bffu);
    CHECK_EQ_U(f16_from_f64(0x40effe0000000000u), 0x7c00u);
    CHECK_EQ_U(f16_from_f32(0x33000000u), 0x0000u);             /* 2^-25 */
    CHECK_EQ_U(f16_from_f32(0x33000001u), 0x0001u);
    CHECK_EQ_U(f16_from_f32(0xb3000001u), 0x8001u);
    CHECK_EQ_U(f16_from_f64(0x3e60000000000000u), 0x0000u);
    CHECK_EQ_U(f16_from_f64(0x3e60000000000001u), 0x0001u);
    CHECK_EQ_U(f16_from_f64(1u), 0x0000u);
    CHECK_EQ_U(f16_from_f64(0x7fefffffffffffffu), 0x7c00u);
    CHECK_EQ_U(f16_from_f32(0x3dcccccdu), 0x2e66u);             /* 0.1f */
    CHECK_EQ_U(bf16_from_f32(0x7f7f7fffu), 0x7f7fu);
    CHECK_EQ_U(bf16_from_f32(0x7f7f8000u), 0x7f80u);
    CHECK_EQ_U(bf16_from_f32(0x00008000u), 0x0000u);
    CHECK_EQ_U(bf16_from_f32(0x00008001u), 0x0001u);
    CHECK_EQ_U(bf16_from_f64(0x47efefffffffffffu), 0x7f7fu);
    CHECK_EQ_U(bf16_from_f64(0x47eff00000000000u), 0x7f80u);
    CHECK_EQ_U(bf16_from_f32(0x3dcccccdu), 0x3dcdu);
    CHECK_EQ_U(e4m3_from_f32(0x43e80000u), 0x7eu);              /* 464 */
    CHECK_EQ_U(e4m3_from_f32(0x43e80001u), 0x7fu);
    CHECK_EQ_U(e4m3_from_f32(0xf149f2cau), 0xffu);              /* -1e30 */
    CHECK_EQ_U(e4m3_from_f32_sat(0xf149f2cau), 0xfeu);
    CHECK_EQ_U(e4m3_from_f32_sat(0x7f800000u), 0x7eu);
    CHECK_EQ_U(e4m3_from_f32_sat(0xffc00000u), 0xffu);
    CHECK_EQ_U(e4m3_from_f32(0x3f800000u), 0x38u);
    CHECK_EQ_U(e4m3_to_f32(0x01u), 0x3b000000u);
    CHECK_EQ_U(e5m2_from_f32(0x476fffffu), 0x7bu);
    CHECK_EQ_U(e5m2_from_f32(0x47700000u), 0x7cu);              /* 61440 */
    CHECK_EQ_U(e5m2_from_f32_sat(0x47700000u), 0x7bu);
    CHECK_EQ_U(e5m2_from_f32_sat(0xff800000u), 0xfbu);
    CHECK_EQ_U(e5m2_from_f32_sat(0x7f800001u), 0x7eu);
    CHECK_EQ_U(e5m2_to_f32(0x7du), 0x7fe00000u);                /* a signaling NaN becomes quiet */
    CHECK_EQ_U(e5m2_from_f32(0xc0000000u), 0xc0u);
}

/* Convert one f32 pattern with every function, and a double that equals it in the upper bits only. */
static void check_pattern(const small_fn *h, const row *r, uint32_t u)
{
    const uint64_t wide = f64_from_f32_bits(u), other = wide ^ mt_random() >> 35;
    const uint64_t want = ref_nearest(r, wide), want_other = ref_nearest(r, other);
    CHECK_EQ_U_AT(h->from_f32(u), want, u);
    CHECK_EQ_U_AT(h->from_f64(wide), want, wide);
    CHECK_EQ_U_AT(mpt_encode(h->id, f64_of(wide), NULL, NULL), want, wide);
    CHECK_EQ_U_AT(h->from_f64(other), want_other, other);
    CHECK_EQ_U_AT(mpt_encode(h->id, f64_of(other), NULL, NULL), want_other, other);
}

/* Every exponent, with mantissas that carry, are ties or lie next to ties: single bits, runs of ones, +-1. */
static void check_structured(const small_fn *h, const row *r)
{
    uint32_t exponent, bit, k;
    for (exponent = 0; exponent < 512u; exponent += mt.every > 1u ? 3u : 1u) /* with the sign */
        for (bit = 0; bit <= 23; bit++)
            for (k = 0; k < 3u; k++) {
                const uint32_t one = (1u << bit) - 1u + k;
                check_pattern(h, r, exponent << 23 | (one & 0x7fffffu));
                check_pattern(h, r, exponent << 23 | (~one & 0x7fffffu));
                check_pattern(h, r, exponent << 23 | ((one ^ 0x555555u) & 0x7fffffu));
            }
}

TEST(half_patterns)
{
    uint64_t u;
    size_t   i;
    for (i = 0; i < HALVES; i++) {
        const row *r = row_of(smalls[i].id);
        mt_context(r->name, "patterns");
        check_structured(&smalls[i], r);
        /* 670 thousand random patterns in rising order, so that the reference seldom has to search */
        for (u = 0; u < 0x80000000u; u += 1u + mt_random() % (6400u * mt.every))
            check_pattern(&smalls[i], r, (uint32_t)(u | (mt_random() & 0x80000000u)));
    }
}

/* The least float pattern (without its sign) whose nearest code is c + 1. */
static uint32_t f32_threshold(const row *r, uint64_t c)
{
    if (c > r->max_code)
        return 0x7f800001u;         /* after Inf come the NaNs */
    return num_to_f32(num_middle(ref_value(r, c), ref_value(r, c + 1u))) + (c & 1u ? 0u : 1u);
}

#define HALF_BLOCK 32768u

/* Consecutive float patterns: the functions of arrays and of numbers; if `encode`, also mpt_encode. */
static void check_f32_run(const small_fn *h, const row *r, uint32_t first, uint32_t count, int encode)
{
    static uint32_t src[HALF_BLOCK];
    static uint16_t dst[HALF_BLOCK], dst_sat[HALF_BLOCK];
    const mpt_opts  plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    const uint64_t  sign = sign_bit_of(r, first >> 31 ? 1 : 0);
    uint64_t        code = ref_nearest(r, f64_from_f32_bits(first)) & ~sign;
    uint64_t        wrong = 0u;
    uint32_t        i, threshold = f32_threshold(r, code);
    for (i = 0; i < count; i++)
        src[i] = first + i;
    CHECK_EQ_I(h->from_f32_n(dst, src, count), MPT_OK);
    if (h->from_f32_sat_n)
        CHECK_EQ_I(h->from_f32_sat_n(dst_sat, src, count), MPT_OK);
    for (i = 0; i < count; i++) {
        const uint32_t a = src[i] & 0x7fffffffu;
        uint64_t       want, sat;
        for (; a >= threshold && a <= 0x7f800000u; threshold = f32_threshold(r, code))
            code++;
        want = a > 0x7f800000u ? r->nan_code | (a & 0x7fffffu) >> (23 - r->m) : code;
        sat = sign | (a <= 0x7f800000u && code > r->max_code ? r->max_code : want);
        want |= sign;
        if (h->from_f32(src[i]) != want || get_code(dst, h->id, i) != want ||
            (encode &&
             mpt_encode(h->id, f64_of(f64_from_f32_bits(src[i])), i % 2u ? &plain : NULL, NULL) != want) ||
            (h->from_f32_sat && (h->from_f32_sat(src[i]) != sat || get_code(dst_sat, h->id, i) != sat))) {
            wrong++;
            CHECK_EQ_U_AT(h->from_f32(src[i]), want, src[i]);
            CHECK_EQ_U_AT(get_code(dst, h->id, i), want, src[i]);
        }
    }
    CHECK_EQ_U_AT(wrong, 0u, first);
}

/* 65536 consecutive float patterns; with --short only both ends of the block, where codes change. */
static void check_f32_block(const small_fn *h, const row *r, uint32_t first, int encode)
{
    const uint32_t ends = mt.every > 1u ? 4096u : HALF_BLOCK;
    check_f32_run(h, r, first, ends, encode);
    check_f32_run(h, r, first + 65536u - ends, ends, encode);
}

/* The default run checks blocks where overflow, subnormals or NaN begin, and a share of the others: 1 in a
 * prime number. */
static void check_every_f32(const small_fn *h)
{
    static const uint32_t interesting[] = {0x0000, 0x32ff, 0x3300, 0x3700, 0x387f, 0x3880, 0x3a80, 0x3c7f,
                                           0x43e8, 0x4770, 0x477f, 0x4780, 0x7f7f, 0x7f80, 0x7fff};
    const row *r = row_of(h->id);
    uint32_t   block;
    size_t     i;
    mt_context(r->name, "every f32");
    for (i = 0; i < COUNT_OF(interesting); i++) {
        check_f32_block(h, r, interesting[i] << 16, 1);
        check_f32_block(h, r, (interesting[i] | 0x8000u) << 16, 1);
    }
    for (block = 0; block < 65536u; block += mt.long_mode ? 1u : (r->bits == 8 ? 997u : 4093u) * mt.every) {
        check_f32_block(h, r, block << 16, mt.long_mode || r->bits > 8);
        if (mt.long_mode && block % 4096u == 4095u)
            fprintf(stderr, "%s from every f32: %u/16\n", r->name, (unsigned)(block / 4096u + 1u));
    }
}

TEST(f16_every_f32) { check_every_f32(&smalls[0]); }
TEST(bf16_every_f32) { check_every_f32(&smalls[1]); }
TEST(e4m3_every_f32) { check_every_f32(&smalls[2]); }
TEST(e5m2_every_f32) { check_every_f32(&smalls[3]); }

// every float, every direction --------------------------------------------------------------------

/* Consecutive float patterns of one sign. Rounding is monotonic, so it is enough to compare with the
 * reference at both ends of each run of equal codes. */
static void check_direction_run(const row *r, const mpt_opts *o, uint32_t first, uint32_t count)
{
    uint64_t last = 0u;
    uint32_t i;
    for (i = 0; i < count; i++) {
        const uint64_t u = f64_from_f32_bits(first + i);
        const uint64_t code = mpt_encode(r->id, f64_of(u), o, NULL);
        unsigned       unused = 0u;
        if (i && code != last)
            CHECK_EQ_U_AT(last, ref_encode(r, f64_from_f32_bits(first + i - 1u), o, &unused), first + i - 1u);
        if (i == 0 || i == count - 1u || code != last)
            CHECK_EQ_U_AT(code, ref_encode(r, u, o, &unused), first + i);
        last = code;
    }
}

/* 65536 consecutive float patterns; with --short only both ends of the block, where codes change. */
static void check_direction_block(const row *r, const mpt_opts *o, uint32_t first)
{
    const uint32_t ends = mt.every > 1u ? 2048u : HALF_BLOCK;
    check_direction_run(r, o, first, ends);
    check_direction_run(r, o, first + 65536u - ends, ends);
}

/* The default run checks 1 block in 8191 (a prime), and blocks where overflow, subnormals or NaN begin. */
static void check_direction(mpt_format format, mpt_rounding rounding)
{
    static const uint32_t interesting[] = {0x0000, 0x3300, 0x3a80, 0x3c7f, 0x43e8, 0x477f, 0x7f7f, 0x7f80};
    const row *r = row_of(format);
    mpt_opts   o;
    uint32_t   block;
    size_t     i;
    memset(&o, 0, sizeof o);
    o.rounding = rounding;
    mt_context(r->name, "every f32");
    for (i = 0; i < COUNT_OF(interesting); i++) {
        check_direction_block(r, &o, interesting[i] << 16);
        check_direction_block(r, &o, (interesting[i] | 0x8000u) << 16);
    }
    for (block = 0; block < 65536u; block += mt.long_mode ? 1u : 8191u)
        check_direction_block(r, &o, block << 16);
}

/* One test for each format and rounding, so that --long can be run in parts; those above round to nearest. */
#define EVERY_DIRECTION(X, name, format)                                                                  \
    X(name##_every_f32_nearest_away, format, MPT_RND_NEAREST_AWAY)                                        \
    X(name##_every_f32_toward_zero, format, MPT_RND_TOWARD_ZERO)                                          \
    X(name##_every_f32_up, format, MPT_RND_UP)                                                            \
    X(name##_every_f32_down, format, MPT_RND_DOWN)                                                        \
    X(name##_every_f32_to_odd, format, MPT_RND_ODD)
#define EVERY_SMALL_FORMAT(X)                                                                             \
    EVERY_DIRECTION(X, f16, MPT_F16) EVERY_DIRECTION(X, bf16, MPT_BF16) EVERY_DIRECTION(X, e4m3, MPT_E4M3) \
    EVERY_DIRECTION(X, e5m2, MPT_E5M2)
#define X(name, format, rounding) TEST(name) { check_direction(format, rounding); }
EVERY_SMALL_FORMAT(X)
#undef X

// mpt_encode --------------------------------------------------------------------------------------

/* The eighths of the gap above a code (the midpoint is one of them), each with close neighbours. */
static void check_encode_gap(const row *r, uint64_t code)
{
    static const int64_t steps[] = {0, 1, -1, 1 << 30, -(1 << 30)};
    const num low = ref_value(r, code), gap = num_minus(ref_value(r, code + 1u), low);
    uint64_t  k;
    size_t    i;
    for (k = 0; k < 8u; k++) {
        const int exp = num_common_exp(low, gap) - 3;
        const num x = num_make(num_units(low, exp) + k * num_units(gap, exp) / 8u, exp);
        for (i = 0; i < COUNT_OF(steps); i++)
            check_encode(r, nudge(num_to_f64(x), steps[i]));
    }
}

static void check_encode_extremes(const row *r)
{
    static const uint64_t extremes[] = {
        0, 1, 2, F64_HIDDEN - 1u, F64_HIDDEN, F64_HIDDEN + 1u, F64_INF - 1u, F64_INF, F64_INF | 1u,
        F64_INF | F64_QUIET, F64_INF | 0x5555555555555u, F64_INF | 0xaaaaaaaaaaaaau, ~F64_SIGN};
    uint64_t field;
    size_t   i;
    for (i = 0; i < COUNT_OF(extremes); i++)
        check_encode(r, extremes[i]);
    for (field = 0; field < 0x7ffu; field += 3u * mt.every)
        check_encode(r, field << 52 | mt_random() >> 12);
}

TEST(encode_small_formats)
{
    size_t   i;
    uint64_t code;
    for (i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].bits > 8)
            continue;
        for (code = 0; code <= rows[i].max_code; code += mt.every)
            check_encode_gap(&rows[i], code);
        check_encode_extremes(&rows[i]);
    }
}

TEST(encode_large_formats)
{
    size_t   i, k;
    uint64_t code;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row     *r = &rows[i];
        const uint64_t normal = ONE << r->m;
        if (r->bits <= 8)
            continue;
        check_encode_extremes(r);
        if (r->id == MPT_F64)       /* nothing lies between its codes */
            continue;
        for (code = 0; code < 3u; code++) {
            check_encode_gap(r, code);
            check_encode_gap(r, normal - 2u + code);
            check_encode_gap(r, r->max_code - 2u + code);
        }
        for (k = 0; k < 25u; k += mt.every) {
            check_encode_gap(r, mt_random() % normal);          /* subnormal */
            check_encode_gap(r, mt_random() % r->max_code);
        }
    }
}

/* By hand, from the standards: NaN, Inf, zeros, overflow, ties and tiny numbers. */
TEST(encode_specials)
{
    static const struct {
        mpt_format id;
        int        rounding, saturate;
        uint64_t   u, code;
        unsigned   flags;
    } cases[] = {
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x7ff8000000000000, 0x7e00, 0},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0xffffffffffffffff, 0xffff, 0},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x7ff0000000000001, 0x7e00, INV},
        {MPT_F16, MPT_RND_STOCHASTIC, 1, 0x7ff8000000000000, 0x7e00, 0},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x7ff0000000000000, 0x7c00, 0},
        {MPT_F16, MPT_RND_TOWARD_ZERO, 0, 0xfff0000000000000, 0xfc00, 0},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 1, 0x7ff0000000000000, 0x7bff, OVF | INX},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x40f0000000000000, 0x7c00, OVF | INX},  /* 65536 */
        {MPT_F16, MPT_RND_NEAREST_EVEN, 1, 0x40f0000000000000, 0x7bff, OVF | INX},
        {MPT_F16, MPT_RND_TOWARD_ZERO, 0, 0x40f0000000000000, 0x7bff, OVF | INX},
        {MPT_F16, MPT_RND_UP, 0, 0xc0f0000000000000, 0xfbff, OVF | INX},
        {MPT_F16, MPT_RND_DOWN, 0, 0xc0f0000000000000, 0xfc00, OVF | INX},
        {MPT_F16, MPT_RND_TOWARD_ZERO, 0, 0x40effe0000000000, 0x7bff, INX},         /* 65520 */
        /* 2^-14 - 2^-26 is not tiny after rounding to 11 bits; 2^-14 - 2^-25 has 11 bits, so it is */
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x3f0ffe0000000000, 0x0400, INX},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x3f0ffc0000000000, 0x0400, INX | UDF},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x3e70000000000000, 0x0001, 0},          /* exact: no flag */
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x3e60000000000000, 0x0000, INX | UDF},
        {MPT_F16, MPT_RND_NEAREST_EVEN, 0, 0x8000000000000000, 0x8000, 0},
        {MPT_E5M2, MPT_RND_NEAREST_EVEN, 0, 0x7ff0000000000000, 0x7c, 0},
        {MPT_E5M2, MPT_RND_NEAREST_EVEN, 0, 0x40ee000000000000, 0x7c, OVF | INX},   /* 61440: the tie */
        {MPT_E5M2, MPT_RND_NEAREST_EVEN, 0, 0x40edffffffffffff, 0x7b, INX},
        {MPT_E4M3, MPT_RND_NEAREST_EVEN, 0, 0x407c000000000000, 0x7e, 0},           /* 448 */
        {MPT_E4M3, MPT_RND_NEAREST_EVEN, 0, 0x407d000000000000, 0x7e, INX},         /* 464: to even */
        {MPT_E4M3, MPT_RND_NEAREST_EVEN, 0, 0x407d000000000001, 0x7f, OVF | INX},
        {MPT_E4M3, MPT_RND_NEAREST_AWAY, 0, 0x407d000000000000, 0x7f, OVF | INX},
        {MPT_E4M3, MPT_RND_NEAREST_EVEN, 0, 0xfff0000000000000, 0xff, OVF | INX},
        {MPT_E4M3, MPT_RND_NEAREST_EVEN, 1, 0xfff0000000000000, 0xfe, OVF | INX},
        {MPT_E4M3, MPT_RND_NEAREST_EVEN, 0, 0xfff8000000000000, 0xff, 0},
        {MPT_E4M3FNUZ, MPT_RND_NEAREST_EVEN, 0, 0x8000000000000000, 0x00, 0},
        {MPT_E4M3FNUZ, MPT_RND_NEAREST_EVEN, 0, 0x8000000000000001, 0x00, INX | UDF},
        {MPT_E4M3FNUZ, MPT_RND_NEAREST_EVEN, 0, 0xfff8000000000000, 0x80, 0},
        {MPT_E4M3FNUZ, MPT_RND_NEAREST_EVEN, 0, 0xfff0000000000000, 0x80, OVF | INX},
        {MPT_E4M3FNUZ, MPT_RND_NEAREST_EVEN, 1, 0xfff0000000000000, 0xff, OVF | INX},
        {MPT_E5M2FNUZ, MPT_RND_NEAREST_EVEN, 0, 0x40edffffffffffff, 0x7f, INX},
        {MPT_E2M1, MPT_RND_NEAREST_EVEN, 0, 0x7ff8000000000000, 0x7, INV},
        {MPT_E2M1, MPT_RND_NEAREST_EVEN, 0, 0xfff0000000000000, 0xf, OVF | INX},
        {MPT_E2M1, MPT_RND_NEAREST_EVEN, 0, 0x401c000000000000, 0x7, OVF | INX},    /* 7 */
        {MPT_E2M1, MPT_RND_NEAREST_EVEN, 0, 0xc01bffffffffffff, 0xf, INX},
        {MPT_E3M2, MPT_RND_NEAREST_EVEN, 0, 0xfff8000000000000, 0x1f, INV},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x3ff0000000000000, 0x7f, 0},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0xbff0000000000000, 0xff, INV},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0xfff0000000000000, 0xff, INV},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x7ff0000000000000, 0xff, OVF | INX},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 1, 0x7ff0000000000000, 0xfe, OVF | INX},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x0000000000000000, 0x00, INX | UDF},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x8000000000000000, 0x00, INX | UDF},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x37f0000000000000, 0x00, INX | UDF},   /* 2^-128 */
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x3800000000000000, 0x00, 0},           /* 2^-127 */
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0xfff8000000000000, 0xff, 0},
        /* ties, as ml_dtypes and PyTorch round them: 1.5, 3, 6, and the one below 2^128 */
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x3ff8000000000000, 0x80, INX},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x4008000000000000, 0x81, INX},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x4007ffffffffffff, 0x80, INX},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x4018000000000000, 0x82, INX},
        {MPT_E8M0, MPT_RND_NEAREST_EVEN, 0, 0x47e8000000000000, 0xff, OVF | INX},
        {MPT_E8M0, MPT_RND_ODD, 0, 0x3fffffffffffffff, 0x7f, INX},
        {MPT_E8M0, MPT_RND_ODD, 0, 0x400fffffffffffff, 0x80, INX},
    };
    size_t i;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const mpt_opts o = options(cases[i].rounding, cases[i].saturate, 0, 0u);
        unsigned       flags = 0u;
        const uint64_t got = mpt_encode(cases[i].id, f64_of(cases[i].u), &o, &flags);
        mt_context(row_of(cases[i].id)->name, rounding_names[cases[i].rounding]);
        CHECK_EQ_U_AT(got, cases[i].code, cases[i].u);
        if (!f64_is_signaling(cases[i].u) || snan_survives())
            CHECK_EQ_U_AT(flags, cases[i].flags, cases[i].u);
    }
}

TEST(encode_arguments)
{
    const mpt_opts plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    const mpt_opts unknown = options(MPT_ROUNDING_COUNT, 0, 0, 0u);
    unsigned       flags = MPT_FLAG_DIVBYZERO;
    CHECK_EQ_U(mpt_encode(MPT_F16, 0.1, NULL, &flags), 0x2e66u);
    CHECK_EQ_U(flags, MPT_FLAG_DIVBYZERO | INX);                /* flags are or-ed in */
    CHECK_EQ_U(mpt_encode(MPT_F16, 0.1, &plain, NULL), 0x2e66u);
    CHECK_EQ_U(mpt_encode_as(mpt_format_get(MPT_F16), 0.1, NULL, NULL), 0x2e66u);
    flags = 0u;
    CHECK_EQ_U(mpt_encode(MPT_F16, 1.0, &unknown, &flags), 0x7e00u);
    CHECK_EQ_U(flags, INV);
    flags = 0u;
    CHECK_EQ_U(mpt_encode(MPT_E2M1, 1.0, &unknown, &flags), 0u);
    CHECK_EQ_U(flags, INV);
    flags = 0u;
    CHECK_EQ_U(mpt_encode(MPT_FORMAT_COUNT, 1.0, NULL, &flags), 0u);
    CHECK_EQ_U(flags, INV);
    flags = 0u;
    CHECK_EQ_U(mpt_encode_as(NULL, 1.0, NULL, &flags), 0u);
    CHECK_EQ_U(flags, INV);
    CHECK_EQ_U(mpt_encode(MPT_FORMAT_COUNT, 1.0, NULL, NULL), 0u);
    CHECK(f64_is_nan(f64_bits(mpt_decode(MPT_FORMAT_COUNT, 0u))));
    CHECK(f64_is_nan(f64_bits(mpt_decode_as(NULL, 0u))));
    CHECK((f64_bits(mpt_decode(MPT_FORMAT_COUNT, 0u)) & F64_QUIET) != 0u);
}

static void check_encode_one_default(const row *r, uint64_t u)
{
    const mpt_opts o = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    check_encode_one(r, u, &o);
    check_encode_one(r, u | F64_SIGN, &o);
}

/* Every class of doubles that a format can tell apart: sign, exponent, the bits down to two below the
 * rounding position; the lower bits are all zero, a single one, or all ones. */
static void check_classes(const row *r, uint64_t field, uint64_t top, int low_bits)
{
    const uint64_t base = field << 52 | top << low_bits;
    int            bit;
    check_encode_one_default(r, base);
    for (bit = 0; bit < low_bits; bit++)
        check_encode_one_default(r, base | ONE << bit);
    if (low_bits)
        check_encode_one_default(r, base | ((ONE << low_bits) - 1u));
}

TEST(encode_f64_classes)
{
    size_t i;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        const int  kept = r->m + 2, low = 52 - kept;
        const uint64_t tops = ONE << kept;
        uint64_t   field, top, step;
        if (kept > 14 && r->id != MPT_F32)
            continue;
        step = mt.long_mode ? 1u : kept > 8 ? 127u : mt.every > 1u ? 3u : 1u;
        for (field = 0; field < 0x7ffu; field += mt.every) {
            const int e = (int)field - 1023, in_range = e >= r->emin - r->m - 3 && e <= r->emax + 2;
            if (!in_range && field % 64u)
                continue;
            if (r->id == MPT_F32 && !mt.long_mode && field % 16u)
                continue;
            for (top = r->id == MPT_F32 ? mt_random() % 4096u : mt_random() % step; top < tops;
                 top += r->id == MPT_F32 ? 1u + mt_random() % (tops / 8u) : step)
                check_classes(r, field, top, low);
        }
    }
}

// integers ----------------------------------------------------------------------------------------

/* A random integer, near a power of two or anywhere between. */
static uint64_t some_integer(void)
{
    const uint64_t random = mt_random();
    const uint64_t near = (ONE << (random >> 8) % 64u) + (random >> 16) % 5u - 2u;
    return random & 1u ? near : mt_random() >> (random >> 8) % 64u;
}

static uint64_t ref_encode_int(const row *r, uint64_t magnitude, int negative, const mpt_opts *o,
                               unsigned *flags)
{
    if (magnitude)
        return ref_encode_num(r, num_make(magnitude, 0), negative, o, flags);
    return ref_encode(r, 0u, o, flags);
}

/* A format can represent an integer if encoding it raises no flag. */
static int has_u64(mpt_format format, uint64_t x)
{
    unsigned flags = 0u;
    (void)mpt_encode_u64(format, x, NULL, &flags);
    return !flags;
}

static int has_i64(mpt_format format, int64_t x)
{
    unsigned flags = 0u;
    (void)mpt_encode_i64(format, x, NULL, &flags);
    return !flags;
}

TEST(encode_integers)
{
    size_t i, k;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        mt_context(r->name, "integers");
        for (k = 0; k < 6000u; k += some_of(r)) {
            const mpt_opts o = some_options();
            const uint64_t u = k < 300u ? k : some_integer();
            const int64_t  v = (int64_t)(u >> 1) * (k & 1u ? -1 : 1);
            const int32_t  v32 = (int32_t)((u >> 1) & 0x7fffffffu) * (v < 0 ? -1 : 1);
            unsigned       want_flags, flags = 0u;
            uint64_t       want = ref_encode_int(r, u, 0, &o, &want_flags);
            CHECK_EQ_U_AT(mpt_encode_u64(r->id, u, &o, &flags), want, u);
            CHECK_EQ_U_AT(flags, want_flags, u);
            CHECK_EQ_U_AT(has_u64(r->id, u), num_cmp(num_make(u, 0), num_of_f64(f64_bits(
                mpt_decode(r->id, mpt_encode_u64(r->id, u, NULL, NULL))) & ~F64_SIGN)) == 0 &&
                (u || r->specials != MPT_SPECIALS_SCALE), u);
            flags = 0u;
            want = ref_encode_int(r, u >> 1, v < 0, &o, &want_flags);
            CHECK_EQ_U_AT(mpt_encode_i64(r->id, v, &o, &flags), want, v);
            CHECK_EQ_U_AT(flags, want_flags, v);
            flags = 0u;
            want = ref_encode_int(r, u & 0xffffffffu, 0, &o, &want_flags);
            CHECK_EQ_U_AT(mpt_encode_u64(r->id, (uint32_t)u, &o, &flags), want, u);
            CHECK_EQ_U_AT(flags, want_flags, u);
            flags = 0u;
            want = ref_encode_int(r, (u >> 1) & 0x7fffffffu, v < 0, &o, &want_flags);
            CHECK_EQ_U_AT(mpt_encode_i64(r->id, v32, &o, &flags), want, u);
            CHECK_EQ_U_AT(flags, want_flags, u);
        }
    }
    mt_context(NULL, NULL);
    CHECK_EQ_U(mpt_encode_i64(MPT_F64, INT64_MIN, NULL, NULL), 0xc3e0000000000000u);
    CHECK_EQ_U(mpt_encode_i64(MPT_F16, INT32_MIN, NULL, NULL), 0xfc00u);
    CHECK_EQ_U(mpt_encode_i64(MPT_F16, -2049, NULL, NULL), 0xe800u);
    CHECK_EQ_U(mpt_encode_u64(MPT_F64, UINT64_MAX, NULL, NULL), 0x43f0000000000000u);
    CHECK_EQ_U(mpt_encode_u64(MPT_F32, 0x8000008000000000u, NULL, NULL), 0x5f000000u); /* a tie */
    CHECK_EQ_U(mpt_encode_u64(MPT_F32, 0x8000008000000001u, NULL, NULL), 0x5f000001u); /* one above it */
    for (i = 0; i < 2u; i++)            /* the lowest of the 64 bits counts too: here 1 / 2048 of a gap */
        for (k = 0; k < 2u; k++) {
            const uint64_t u = ((uint64_t)1 << 63) + (i ? 2047u : 1u);
            mpt_opts       o;
            memset(&o, 0, sizeof o);
            o.rounding = MPT_RND_STOCHASTIC;
            o.random = (i ? 2047u << 21 : 1u << 21) - 1u + (uint32_t)k;
            CHECK_EQ_U_AT(mpt_encode_u64(MPT_F64, u, &o, NULL), 0x43e0000000000000u + !k, o.random);
        }
    CHECK_EQ_I(has_i64(MPT_F16, -2048) && !has_i64(MPT_F16, -2049), 1);
    CHECK_EQ_I(has_i64(MPT_FORMAT_COUNT, 1), 0);
}

/* The magnitude of the integer that (-1)^negative * x rounds to. The subnormals of the row `integers` are
 * the integers below 2^63. */
static uint64_t ref_integer(num x, int negative, const mpt_opts *o, int *inexact, int *too_large)
{
    static const row integers = {MPT_FORMAT_COUNT, "integer", 64, 1, 0, 63, -62, MPT_SPECIALS_FINITE,
                                 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0};
    uint64_t low;
    *too_large = *inexact = 0;
    if (!x.sig)
        return 0u;
    x = num_trim(x);
    if (x.exp >= 0) {
        *too_large = num_cmp(x, num_make(1u, 64)) >= 0;
        return *too_large ? 0u : num_units(x, 0);
    }
    *inexact = 1;
    low = x.exp < -63 ? 0u : x.sig >> -x.exp;
    return low + (uint64_t)ref_goes_up(&integers, low, x, negative, o);
}

static void check_decode_int(const row *r, uint64_t code, const mpt_opts *o)
{
    static const struct { int with_sign, bits; } integers[] = {{1, 64}, {0, 64}, {1, 32}, {0, 32},
                                                               {1, 17}, {0, 8},  {1, 2},  {0, 1}};
    uint64_t        pattern;
    const mpt_class kind = ref_take_apart(r, code, &pattern);
    const int       nan = kind == MPT_CLASS_SIGNALING_NAN || kind == MPT_CLASS_QUIET_NAN;
    const int       inf = kind == MPT_CLASS_POS_INF || kind == MPT_CLASS_NEG_INF;
    const int       subnormal = kind == MPT_CLASS_POS_SUBNORMAL || kind == MPT_CLASS_NEG_SUBNORMAL;
    const int       negative = (int)(pattern >> 63);
    const int       flushed = subnormal && (o->flush & MPT_FLUSH_INPUTS);
    int             inexact = 0, too_large = inf;
    const uint64_t  whole = nan || inf || flushed ? 0u
                            : ref_integer(num_of_f64(pattern & ~F64_SIGN), negative, o, &inexact, &too_large);
    size_t          i;
    for (i = 0; i < COUNT_OF(integers); i++) {
        const int      with_sign = integers[i].with_sign, bits = integers[i].bits;
        const uint64_t beyond = ONE << (bits - 1), most = with_sign ? beyond - 1u : beyond - 1u + beyond;
        const uint64_t end = !negative ? most : with_sign ? beyond : 0u;
        const int      bad = nan || too_large || whole > end;
        const uint64_t magnitude = nan ? 0u : bad ? end : whole, want = negative ? 0u - magnitude : magnitude;
        unsigned       flags = 0u;
        const uint64_t got = with_sign ? (uint64_t)mpt_decode_i64(r->id, code, bits, o, &flags)
                                       : mpt_decode_u64(r->id, code, bits, o, &flags);
        CHECK_EQ_U_AT(got, want, code);
        CHECK_EQ_U_AT(flags, bad ? INV : inexact ? INX : 0u, code);
    }
}

TEST(decode_integers)
{
    size_t   i;
    uint64_t code;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        mt_context(r->name, "to integers");
        for (code = 0; code < (r->bits > 16 ? 20000u : ONE << r->bits); code += some_of(r)) {
            const mpt_opts o = some_options();
            const uint64_t field = (uint64_t)(r->bias - 2) + mt_random() % 70u;     /* 2^-2 to 2^67 */
            const uint64_t sign = (code & 1u) << (r->bits - 1);
            if (r->bits <= 16) {
                check_decode_int(r, code, &o);
            } else {
                check_decode_int(r, sign | field << r->m | mt_random() >> (64 - r->m), &o);
                check_decode_int(r, mt_random() >> (64 - r->bits), &o);
            }
        }
    }
    mt_context("integers", NULL);
    {
        const mpt_opts cast = options(MPT_RND_TOWARD_ZERO, 0, 0, 0u);
        const mpt_opts bad = options(MPT_ROUNDING_COUNT, 0, 0, 0u);
        const int      no_width[] = {0, 1, -1, 65, -2147483647 - 1, 2147483647};     /* 1 is valid for u64 */
        unsigned       flags = 0u;
        CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0xbe00u, 32, &cast, NULL), -1);      /* -1.5 */
        CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0xbe00u, 32, NULL, &flags), -2);
        CHECK_EQ_U(flags, INX);
        CHECK_EQ_U(mpt_decode_u64(MPT_F16, 0xb400u, 32, NULL, NULL), 0u);        /* -0.25 */
        CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0xfc00u, 64, NULL, NULL), INT64_MIN);
        flags = 0u;
        CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0x3c00u, 64, &bad, &flags), 0);
        CHECK_EQ_U(flags, INV);
        flags = 0u;
        CHECK_EQ_I(mpt_decode_i64(MPT_FORMAT_COUNT, 0u, 64, NULL, &flags), 0);
        CHECK_EQ_U(flags, INV);
        for (i = 0; i < COUNT_OF(no_width); i++) {
            flags = 0u;
            CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0xbc00u, no_width[i], NULL, &flags), 0);
            CHECK_EQ_U(flags, INV);
            flags = 0u;
            CHECK_EQ_U(mpt_decode_u64(MPT_F16, 0x3c00u, no_width[i], NULL, &flags), no_width[i] == 1);
            CHECK_EQ_U(flags, no_width[i] == 1 ? 0u : INV);
        }
    }
}

/* mpt_is_exact: 1 for the format's values, 0 for the doubles next to them and between them. */
TEST(exact_numbers)
{
    size_t   i, k;
    uint64_t code;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        mt_context(r->name, "exact");
        for (k = 0; k < 3000u; k++) {
            code = k <= r->max_code ? k : mt_random() % (r->max_code + 1u);
            code = k == 0u ? r->max_code : code;
            {
                const uint64_t u = num_to_f64(ref_value(r, code));
                CHECK_EQ_I(mpt_is_exact(r->id, f64_of(u)), 1);
                CHECK_EQ_I(mpt_is_exact(r->id, f64_of(u | F64_SIGN)),
                           r->s && (u || r->specials != MPT_SPECIALS_FNUZ));
                if (r->id == MPT_F64)
                    continue;
                CHECK_EQ_I(mpt_is_exact(r->id, f64_of(u + 1u)), 0);
                CHECK_EQ_I(mpt_is_exact(r->id, f64_of(num_to_f64(num_middle(ref_value(r, code),
                                                                            ref_value(r, code + 1u))))), 0);
            }
        }
        CHECK_EQ_I(mpt_is_exact(r->id, f64_of(F64_INF)), r->has_inf);
        CHECK_EQ_I(mpt_is_exact(r->id, f64_of(F64_INF | F64_QUIET)), r->has_nan);
        if (r->specials == MPT_SPECIALS_SCALE)
            CHECK_EQ_I(mpt_is_exact(r->id, 0.0), 0);
    }
    CHECK_EQ_I(mpt_is_exact(MPT_FORMAT_COUNT, 1.0), 0);
}

// stochastic rounding -----------------------------------------------------------------------------

static uint64_t encode_stochastic(const row *r, uint64_t u, uint32_t random, unsigned *flags)
{
    const mpt_opts o = options(MPT_RND_STOCHASTIC, 0, 0, random);
    *flags = 0u;
    return mpt_encode(r->id, f64_of(u), &o, flags);
}

/* x lies frac / 2^bits of the gap above `code`. Exactly that share of all 2^32 random words rounds up, less
 * what is no whole word. Checks the words on both sides of the limit and, if `share`, 4096 words spread
 * evenly. */
static void check_stochastic(const row *r, uint64_t code, uint64_t frac, int bits, int negative, int share)
{
    const num      low = ref_value(r, code), gap = num_minus(ref_value(r, code + 1u), low);
    const num      part = num_make(frac, gap.exp - bits);
    const int      exp = num_common_exp(low, part);
    const uint64_t u = num_to_f64(num_make(num_units(low, exp) + num_units(part, exp), exp)) |
                       (negative ? F64_SIGN : 0u);
    const uint64_t words = bits <= 32 ? frac << (32 - bits) : bits < 96 ? frac >> (bits - 32) : 0u;
    const uint64_t sign = sign_bit_of(r, negative), down = sign | code;
    const int      last = code == r->max_code, no_zero = r->specials == MPT_SPECIALS_FNUZ && !code;
    const uint64_t up = last ? down : sign | (code + 1u);
    const int      shift = mt.every > 1u ? 23 : 20;
    uint64_t       k, ups = 0u, others = 0u;
    unsigned       flags;
    for (k = 0; k < ONE << (32 - shift) && share; k++) {
        const uint64_t got = encode_stochastic(r, u, (uint32_t)(k << shift), &flags);
        if (last ? (flags & OVF) != 0u : got == up)
            ups++;
        if (got != up && got != (no_zero ? 0u : down))
            others++;
    }
    CHECK_EQ_U_AT(ups, share ? (words + (ONE << shift) - 1u) >> shift : 0u, u);
    CHECK_EQ_U_AT(others, 0u, u);
    if (words) {
        CHECK_EQ_U_AT(encode_stochastic(r, u, (uint32_t)(words - 1u), &flags), up, u);
        CHECK_EQ_U_AT(flags & OVF, last ? OVF : 0u, u);
    }
    CHECK_EQ_U_AT(encode_stochastic(r, u, (uint32_t)words, &flags), no_zero ? 0u : down, u);
    CHECK_EQ_U_AT(encode_stochastic(r, u, 0xffffffffu, &flags), no_zero ? 0u : down, u);
    CHECK_EQ_U_AT(flags & (OVF | INX), INX, u);
}

TEST(stochastic_share)
{
    static const struct { uint64_t frac; int bits; } parts[] = {
        {1, 1}, {1, 2}, {3, 2}, {1, 12}, {4095, 12}, {0x2aaaaaa, 27}, {1, 29}, {0x1fffffff, 29}};
    static const struct { uint64_t frac; int bits; } below_least[] = {
        {1, 3}, {1, 32}, {1, 33}, {3, 33}, {1, 40}, {1, 64}, {0xfffffffff, 36}, {5, 100}};
    size_t i, k;
    int    negative;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row     *r = &rows[i];
        const uint64_t codes[] = {1u, ONE << r->m, r->max_code / 2u, r->max_code - 1u, r->max_code};
        if (r->id == MPT_F64)
            continue;
        for (negative = 0; negative <= r->s; negative++) {
            mt_context(r->name, negative ? "negative" : "positive");
            for (k = 0; k < COUNT_OF(codes) * COUNT_OF(parts); k++)
                if (parts[k / COUNT_OF(codes)].bits <= 52 - r->m)
                    check_stochastic(r, codes[k % COUNT_OF(codes)], parts[k / COUNT_OF(codes)].frac,
                                     parts[k / COUNT_OF(codes)].bits, negative, 1);
            for (k = 0; k < COUNT_OF(below_least) && r->specials != MPT_SPECIALS_SCALE; k++)
                check_stochastic(r, 0u, below_least[k].frac, below_least[k].bits, negative, 1);
            for (k = 0; k < (r->id == MPT_F16 ? 1000u : 200u) && r->m <= 10; k++)
                check_stochastic(r, mt_random() % r->max_code, (mt_random() >> 22) | 1u, 42, negative, 0);
        }
    }
}

/* For every random word: exact values stay, NaN stays NaN, and no finite value becomes Inf. */
TEST(stochastic_never)
{
    static const uint32_t words[] = {0u, 1u, 0x7fffffffu, 0x80000000u, 0xffffffffu};
    static const uint64_t large[] = {0x40f0000000000000, 0x47f0000000000000, F64_INF - 1u};
    size_t   i, k, j;
    unsigned flags;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        mt_context(r->name, "stochastic");
        for (k = 0; k < COUNT_OF(words); k++) {
            for (j = 0; j < 300u; j++) {
                const uint64_t code = mt_random() % (r->max_code + 1u);
                CHECK_EQ_U_AT(encode_stochastic(r, num_to_f64(ref_value(r, code)), words[k], &flags), code,
                              code);
                CHECK_EQ_U_AT(flags, 0u, code);
            }
            for (j = 0; j < COUNT_OF(large); j++)
                if (large[j] > f64_bits(r->max_finite)) {
                    CHECK_EQ_U(encode_stochastic(r, large[j], words[k], &flags), r->max_code);
                    CHECK_EQ_U(flags, OVF | INX);
                }
            if (r->has_nan)
                CHECK_EQ_U(encode_stochastic(r, F64_INF | F64_QUIET, words[k], &flags), r->nan_code);
        }
    }
}

// classes, neighbours, ulp ------------------------------------------------------------------------

TEST(class_texts)
{
    int i, k;
    for (i = 0; i < (int)MPT_CLASS_COUNT; i++) {
        CHECK(strlen(mpt_class_name((mpt_class)i)) > 1);
        for (k = 0; k < i; k++)
            CHECK(strcmp(mpt_class_name((mpt_class)i), mpt_class_name((mpt_class)k)) != 0);
    }
    CHECK_EQ_S(mpt_class_name(MPT_CLASS_NEG_ZERO), "-0");
    CHECK_EQ_S(mpt_class_name(MPT_CLASS_POS_SUBNORMAL), "+subnormal");
    CHECK_EQ_S(mpt_class_name(MPT_CLASS_COUNT), "unknown class");
    CHECK_EQ_I((int)mpt_classify(MPT_FORMAT_COUNT, 0u), (int)MPT_CLASS_SIGNALING_NAN);
}

/* Maps doubles other than NaN to integers in the same order; both zeros give 0. */
static int64_t f64_order(uint64_t u)
{
    const int64_t magnitude = (int64_t)(u & ~F64_SIGN);
    return u & F64_SIGN ? -magnitude : magnitude;
}

/* Walk from -Inf to +Inf: every step goes to a greater value, and there are as many steps as values. */
static void check_half_walk(const small_fn *h)
{
    const row     *r = row_of(h->id);
    const unsigned inf = (unsigned)r->inf_code, neg_inf = inf | 0x8000u;
    unsigned       code = neg_inf;
    uint64_t       steps = 0u;
    mt_context(r->name, "walk");
    for (; code != inf && steps < 70000u; steps++) {
        const unsigned next = h->next(code, 1);
        CHECK(f64_order(h->to_f64(next)) > f64_order(h->to_f64(code)));
        CHECK_EQ_U_AT(h->next(code ^ 0x8000u, 0), next ^ 0x8000u, code);
        code = next;
    }
    CHECK_EQ_U(steps, 2u * r->max_code + 2u);
    CHECK_EQ_U(h->next(inf, 1), inf);
    CHECK_EQ_U(h->next(neg_inf, 0), neg_inf);
    CHECK_EQ_U(h->next((unsigned)r->max_code, 1), inf);
    CHECK_EQ_U(h->next(inf, 0), r->max_code);
    CHECK_EQ_U(h->next(neg_inf, 1), r->max_code | 0x8000u);
    CHECK_EQ_U(h->next(0x0000u, 1), 0x0001u);
    CHECK_EQ_U(h->next(0x8000u, 1), 0x0001u);
    CHECK_EQ_U(h->next(0x0000u, 0), 0x8001u);
    CHECK_EQ_U(h->next(0x8000u, 0), 0x8001u);
    CHECK_EQ_U(h->next(0x8001u, 1), 0x8000u);
    CHECK_EQ_U(h->next(0x0001u, 0), 0x0000u);
}

static void check_half_next_of_nan(const small_fn *h)
{
    const row     *r = row_of(h->id);
    const unsigned quiet = 1u << (r->m - 1);
    unsigned       c, up;
    for (c = (unsigned)r->inf_code + 1u; c < 0x8000u; c++)
        for (up = 0; up < 2u; up++) {
            CHECK_EQ_U_AT(h->next(c, (int)up), c | quiet, c);
            CHECK_EQ_U_AT(h->next(c | 0x8000u, (int)up), c | quiet | 0x8000u, c);
        }
}

TEST(half_next)
{
    size_t i;
    for (i = 0; i < HALVES; i++) {
        check_half_walk(&smalls[i]);
        check_half_next_of_nan(&smalls[i]);
    }
}

static void check_ulp(const row *r, uint64_t u, uint64_t want)
{
    CHECK_EQ_U_AT(f64_bits(mpt_ulp(r->id, f64_of(u))), want, u);
    CHECK_EQ_U_AT(f64_bits(mpt_ulp(r->id, f64_of(u | F64_SIGN))), want, u);
}

TEST(ulp_any_format)
{
    size_t i, k;
    for (i = 0; i < COUNT_OF(rows); i++) {
        const row     *r = &rows[i];
        const uint64_t least = num_to_f64(num_minus(ref_value(r, 1u), ref_value(r, 0u)));
        mt_context(r->name, "ulp");
        for (k = 0; k < (r->bits == 16 ? r->max_code + 1u : 600u); k++) {
            const uint64_t code = k <= r->max_code && (k < 300u || r->bits == 16)
                                  ? k : mt_random() % (r->max_code + 1u);
            const num      low = ref_value(r, code), high = ref_value(r, code + 1u);
            const uint64_t want = num_to_f64(num_minus(high, low));
            check_ulp(r, num_to_f64(low), want);
            if (r->id != MPT_F64)   /* the ulp is that of the gap, whichever code is nearest */
                check_ulp(r, num_to_f64(num_middle(low, high)), want);
        }
        check_ulp(r, 0u, least);
        check_ulp(r, 1u, least);
        check_ulp(r, F64_INF, F64_INF);
        CHECK(f64_is_nan(f64_bits(mpt_ulp(r->id, f64_of(F64_INF | F64_QUIET)))));
    }
    CHECK(f64_is_nan(f64_bits(mpt_ulp(MPT_FORMAT_COUNT, 1.0))));
    CHECK_EQ_U(f64_bits(mpt_ulp(MPT_F16, 1.3)), f64_bits(0.0009765625));
    CHECK_EQ_U(f64_bits(mpt_ulp(MPT_E4M3, 300.0)), f64_bits(32.0));
}

// anatomy and text --------------------------------------------------------------------------------

/* value - asked, exactly, as the bit pattern of a double; both are finite. */
static uint64_t exact_difference(uint64_t value, uint64_t asked)
{
    const uint64_t vs = value >> 63, as = asked >> 63;
    const num      v = num_trim(num_of_f64(value)), a = num_trim(num_of_f64(asked));
    const int      order = num_cmp(v, a);
    const uint64_t sign = order < 0 ? as ^ 1u : vs;
    if (v.sig && a.sig && vs != as)
        test_is_broken("rounding does not change the sign");
    if (!order)
        return 0u;
    return sign << 63 | num_to_f64(order < 0 ? num_minus(a, v) : num_minus(v, a));
}

static void check_anatomy_value(const row *r, const mpt_fields *p, uint64_t u)
{
    const uint64_t value = f64_bits(p->value);
    if ((value & F64_INF) == F64_INF) {
        CHECK_EQ_U_AT(p->significand, 0u, u);
        return;
    }
    CHECK_EQ_U_AT(num_to_f64(num_make(p->significand, p->exponent)) | (uint64_t)p->sign << 63, value, u);
    if ((u & F64_INF) != F64_INF)
        CHECK_EQ_U_AT(f64_bits(p->error), exact_difference(value, u), u);
    if (p->kind == MPT_CLASS_POS_NORMAL || p->kind == MPT_CLASS_NEG_NORMAL)
        CHECK_EQ_U_AT(p->significand >> r->m, 1u, u); /* it includes the hidden bit */
}

static void check_anatomy(const row *r, uint64_t u)
{
    const mpt_opts   plain = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    unsigned         want_flags;
    uint64_t         value;
    const uint64_t   code = ref_encode(r, u, &plain, &want_flags);
    const mpt_class  kind = ref_take_apart(r, code, &value);
    const mpt_fields p = mpt_anatomy(r->id, f64_of(u));
    mt_context(r->name, "anatomy");
    CHECK_EQ_U_AT(p.format, r->id, u);
    CHECK_EQ_U_AT(p.kind, kind, u);
    CHECK_EQ_U_AT(p.code, code, u);
    CHECK_EQ_U_AT(p.sign, r->s ? code >> (r->bits - 1) : 0u, u);
    CHECK_EQ_U_AT(p.exponent_field, code >> r->m & ((ONE << r->e) - 1u), u);
    CHECK_EQ_U_AT(p.mantissa_field, code & ((ONE << r->m) - 1u), u);
    CHECK_EQ_U_AT(p.flags, want_flags, u);
    if (CHECK_EQ_U_AT(f64_bits(p.value), value, u))
        check_anatomy_value(r, &p, u);
}

static const double anatomy_values[] = {
    13.1875, 0.1, 1.0 / 3.0, 65504.0, 65519.0, 65520.0, 2.98023223876953125e-8 /* 2^-25 */, 1e-8, 0.0,
    1.0, 448.0, 464.0, 465.0, 240.0, 0.015625, 0.0009765625, 6.0, 3.5};

TEST(anatomy_every_format)
{
    size_t i, k;
    for (i = 0; i < COUNT_OF(rows); i++) {
        for (k = 0; k < COUNT_OF(anatomy_values); k++) {
            check_anatomy(&rows[i], f64_bits(anatomy_values[k]));
            if (rows[i].s)
                check_anatomy(&rows[i], f64_bits(anatomy_values[k]) | F64_SIGN);
        }
        check_anatomy(&rows[i], F64_INF);
        check_anatomy(&rows[i], F64_INF | F64_SIGN);
        check_anatomy(&rows[i], F64_INF | F64_QUIET);
    }
}

TEST(anatomy_by_hand)
{
    static const struct {
        mpt_format id;
        double     asked;
        unsigned   code, exponent_field, mantissa_field, significand;
        int        exponent;
        double     value, error;
        unsigned   flags;
    } cases[] = {
        {MPT_F32, 13.1875, 0x41530000, 130, 0x530000, 0xd30000, -20, 13.1875, 0.0, 0},
        {MPT_TF32, 13.1875, 0x20a98, 130, 0x298, 0x698, -7, 13.1875, 0.0, 0},
        {MPT_F16, 13.1875, 0x4a98, 18, 0x298, 0x698, -7, 13.1875, 0.0, 0},
        {MPT_BF16, 13.1875, 0x4153, 130, 0x53, 0xd3, -4, 13.1875, 0.0, 0},
        {MPT_E4M3, 13.1875, 0x55, 10, 5, 13, 0, 13.0, -0.1875, INX},
        {MPT_E5M2, 13.1875, 0x4b, 18, 3, 7, 1, 14.0, 0.8125, INX},
        {MPT_F16, 0.1, 0x2e66, 11, 0x266, 0x666, -14, 0.0999755859375, -2.4414062500005551e-5, INX},
        {MPT_BF16, 0.1, 0x3dcd, 123, 0x4d, 0xcd, -11, 0.10009765625, 9.765624999999445e-5, INX},
        {MPT_E4M3, 0.1, 0x1d, 3, 5, 13, -7, 0.1015625, 0.0015624999999999944, INX},
        {MPT_F16, 65519.0, 0x7bff, 30, 0x3ff, 0x7ff, 5, 65504.0, -15.0, INX},
        {MPT_F16, 2.98023223876953125e-8, 0, 0, 0, 0, -24, 0.0, -2.98023223876953125e-8, INX | UDF},
        {MPT_F16, 5.9604644775390625e-8, 1, 0, 1, 1, -24, 5.9604644775390625e-8, 0.0, 0},
        {MPT_E5M2, 1e-8, 0, 0, 0, 0, -16, 0.0, -1e-8, INX | UDF},
    };
    size_t i;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const uint64_t   u = f64_bits(cases[i].asked);
        const mpt_fields p = mpt_anatomy(cases[i].id, cases[i].asked);
        mt_context(row_of(cases[i].id)->name, NULL);
        CHECK_EQ_U_AT(p.code, cases[i].code, u);
        CHECK_EQ_U_AT(p.exponent_field, cases[i].exponent_field, u);
        CHECK_EQ_U_AT(p.mantissa_field, cases[i].mantissa_field, u);
        CHECK_EQ_U_AT(p.significand, cases[i].significand, u);
        CHECK_EQ_I(p.exponent, cases[i].exponent);
        CHECK_EQ_U_AT(f64_bits(p.value), f64_bits(cases[i].value), u);
        CHECK_EQ_U_AT(f64_bits(p.error), f64_bits(cases[i].error), u);
        CHECK_EQ_U_AT(p.flags, cases[i].flags, u);
    }
}

TEST(anatomy_specials)
{
    mpt_fields p = mpt_anatomy(MPT_F16, 65520.0);
    CHECK_EQ_I((int)p.kind, (int)MPT_CLASS_POS_INF);
    CHECK_EQ_U(p.flags, OVF | INX);
    CHECK_EQ_U(f64_bits(p.value), F64_INF);
    p = mpt_anatomy(MPT_F16, f64_of(F64_SIGN));
    CHECK_EQ_I((int)p.kind, (int)MPT_CLASS_NEG_ZERO);
    CHECK_EQ_U(p.code, 0x8000u);
    CHECK_EQ_U(p.sign, 1u);
    CHECK_EQ_U(f64_bits(p.value), F64_SIGN);
    CHECK_EQ_U(f64_bits(p.error) & ~F64_SIGN, 0u);
    CHECK_EQ_U(p.flags, 0u);
    p = mpt_anatomy(MPT_F16, f64_of(F64_INF));
    CHECK(!f64_bits(p.error) && !p.flags);      /* Inf is Inf */
    p = mpt_anatomy(MPT_F16, f64_of(F64_INF | F64_QUIET));
    CHECK(f64_is_nan(f64_bits(p.error)));
    p = mpt_anatomy(MPT_FORMAT_COUNT, 1.0);
    CHECK_EQ_I((int)p.format, (int)MPT_FORMAT_COUNT);
    CHECK(p.kind == MPT_CLASS_QUIET_NAN || p.kind == MPT_CLASS_SIGNALING_NAN);
    CHECK(f64_is_nan(f64_bits(p.value)));
    CHECK(f64_is_nan(f64_bits(p.error)));
    CHECK_EQ_U(p.flags, INV);
}

/* The error of numbers that are subnormal doubles is exact, even if the processor flushes subnormals. */
TEST(anatomy_error_of_subnormal_doubles)
{
    static const uint64_t tiny[] = {1u, 0x123456789abu, F64_HIDDEN - 1u, F64_HIDDEN, F64_HIDDEN + 1u};
    static const mpt_format formats[] = {MPT_F64, MPT_F32, MPT_F16, MPT_BF16, MPT_E4M3, MPT_E2M1};
    size_t i, k;
    for (i = 0; i < COUNT_OF(formats); i++)
        for (k = 0; k < COUNT_OF(tiny); k++) {
            check_anatomy(row_of(formats[i]), tiny[k]);
            check_anatomy(row_of(formats[i]), tiny[k] | F64_SIGN);
        }
}

TEST(bits_text)
{
    static const struct { mpt_format id; uint64_t code; const char *text; } cases[] = {
        {MPT_F16, 0x4a98, "0 10010 1010011000"},
        {MPT_F16, 0xfe01, "1 11111 1000000001"},
        {MPT_BF16, 0x4153, "0 10000010 1010011"},
        {MPT_TF32, 0x20a98, "0 10000010 1010011000"},
        {MPT_F32, 0x41530000, "0 10000010 10100110000000000000000"},
        {MPT_F64, 0x402a600000000000,
         "0 10000000010 1010011000000000000000000000000000000000000000000000"},
        {MPT_E4M3, 0x55, "0 1010 101"},
        {MPT_E5M2, 0xcb, "1 10010 11"},
        {MPT_E3M2, 0x2d, "1 011 01"},
        {MPT_E2M3, 0x0b, "0 01 011"},
        {MPT_E2M1, 0x7, "0 11 1"},
        {MPT_E8M0, 0x7f, "01111111"},
        {MPT_E2M1, 0xff7, "0 11 1"},    /* bits above the format are ignored */
    };
    size_t i, cap;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const size_t length = strlen(cases[i].text);
        for (cap = 0; cap <= length + 2u; cap++) {
            char         buf[80], want[80];
            const size_t kept = cap <= length ? (cap ? cap - 1u : 0u) : length;
            memset(buf, '#', sizeof buf);
            memset(want, '#', sizeof want);
            memcpy(want, cases[i].text, kept);
            if (cap)
                want[kept] = '\0';
            CHECK_EQ_U(mpt_bits_text(buf, cap, cases[i].id, cases[i].code), length);
            CHECK(memcmp(buf, want, sizeof buf) == 0);
        }
        CHECK_EQ_U(mpt_bits_text(NULL, 0u, cases[i].id, cases[i].code), length);
    }
    {
        char buf[4] = "abc";
        CHECK_EQ_U(mpt_bits_text(buf, sizeof buf, MPT_FORMAT_COUNT, 1u), 0u);
        CHECK_EQ_S(buf, "");
    }
}

// arrays ------------------------------------------------------------------------------------------

static mpt_status run_pair(const pair_fn *f, void *dst, const void *src, size_t n)
{
    return f->own ? f->own(dst, src, n) : mpt_convert_n(f->dst, dst, f->src, src, n, NULL, NULL);
}

TEST(pairs_are_all)
{
    size_t i, k;
    CHECK_EQ_U(COUNT_OF(pairs), 30u + 10u);
    for (i = 0; i < COUNT_OF(pairs); i++) {
        CHECK(pairs[i].dst != pairs[i].src);
        CHECK_EQ_I(pairs[i].own != NULL, i >= 30u);
        for (k = 0; k < i; k++)
            CHECK(pairs[i].dst != pairs[k].dst || pairs[i].src != pairs[k].src ||
                  (pairs[i].own && !pairs[k].own));
    }
}

/* All codes of the small sources (with --short, of 16 bits an eighth), whose places in a group of eight vary
 * with the range of codes; 65 or 100 thousand codes of the large ones. */
TEST(pairs_every_code)
{
    enum { ALL = 100003 };
    static uint64_t src[ALL], dst[ALL];
    size_t          i, k;
    for (i = 0; i < COUNT_OF(pairs); i++) {
        const pair_fn *f = &pairs[i];
        const row     *s = row_of(f->src);
        const size_t   n = s->bits == 8 ? 259u : (f->own && s->bits == 32 ? (size_t)ALL : 65539u) / mt.every;
        mt_context(f->name, NULL);
        for (k = 0; k < n; k++)
            put_code(src, f->src, k,
                     s->bits > 16 ? some_code(f->src) : (k * (mt.every | 1u)) ^ (k >> 13 & 7u));
        memset(dst, 0xa5, sizeof dst);
        CHECK_EQ_I(run_pair(f, dst, src, n), MPT_OK);
        check_plain(f->dst, dst, f->src, src, n);
    }
}

#define MOST 67u

/* Arrays that end right before, or begin right after, an inaccessible page; and unaligned ones. Every length
 * up to MOST and some larger ones. */
TEST(pairs_between_fences)
{
    static const size_t large[] = {255u, 256u, 257u, 300u};
    size_t              room = 4096u, i, k;
    unsigned char      *src = fenced(&room), *dst = fenced(&room);
    if (!src || !dst)
        SKIP("no memory with fences");
    for (i = 0; i < COUNT_OF(pairs); i++)
        for (k = 0; k <= MOST + COUNT_OF(large); k++) {
            const pair_fn *f = &pairs[i];
            const size_t   n = k > MOST ? large[k - MOST - 1u] : k;
            const size_t   from = n * bytes_of(f->src), to = n * bytes_of(f->dst);
            mt_context(f->name, "fences");
            memset(dst, 0xa5, room);
            fill_codes(src + room - from, f->src, n);
            CHECK_EQ_I(run_pair(f, dst + room - to, src + room - from, n), MPT_OK);
            check_plain(f->dst, dst + room - to, f->src, src + room - from, n);
            CHECK(all_bytes_are(dst, room - to, 0xa5));
            memset(dst, 0xa5, room);
            fill_codes(src, f->src, n);
            CHECK_EQ_I(run_pair(f, dst, src, n), MPT_OK);
            check_plain(f->dst, dst, f->src, src, n);
            CHECK(all_bytes_are(dst + to, room - to, 0xa5));
        }
}

/* Every length up to MOST and some larger ones, at 4 alignments of source and destination each; by
 * mpt_convert_n, at addresses of any alignment. With guard bytes around the destination. */
TEST(pairs_at_every_alignment)
{
    enum { GUARD = 64, LONGEST = 315, ROOM = 2 * GUARD + (LONGEST + 16) * 8 };
    static uint64_t words[2][ROOM / 8];
    const size_t    some = mt.every > 1u ? 3u : 1u;         /* of the alignments */
    unsigned char  *src = (unsigned char *)words[0], *dst = (unsigned char *)words[1];
    size_t          i, n, shift;
    for (i = 0; i < COUNT_OF(pairs); i++)
        for (n = 0; n <= (size_t)LONGEST; n += n < MOST ? 1u : 62u)
            for (shift = pairs[i].own ? n % some : n % 16u; shift < 16u; shift += pairs[i].own ? some : 16u) {
                const pair_fn *f = &pairs[i];
                const size_t   d = f->own ? bytes_of(f->dst) : 3u, s = f->own ? bytes_of(f->src) : 7u;
                const size_t   before = GUARD + shift / 4u * d, after = before + n * bytes_of(f->dst);
                unsigned char *from = src + shift % 4u * s, *to = dst + before;
                mt_context(f->name, "alignment");
                fill_codes(from, f->src, n);
                memset(dst, 0xa5, ROOM);
                CHECK_EQ_I(run_pair(f, to, from, n), MPT_OK);
                check_plain(f->dst, to, f->src, from, n);
                CHECK(all_bytes_are(dst, before, 0xa5));
                CHECK(all_bytes_are(dst + after, ROOM - after, 0xa5));
            }
}

TEST(pairs_in_place)
{
    static unsigned char buf[600 * 8], src[600 * 8];
    size_t               i, n;
    for (i = 0; i < COUNT_OF(pairs); i++)
        for (n = 0; n <= 600u && bytes_of(pairs[i].src) >= bytes_of(pairs[i].dst);
             n += n < MOST ? 1u : 56u) {
            const pair_fn *f = &pairs[i];
            mt_context(f->name, "in place");
            fill_codes(src, f->src, 600u);
            memcpy(buf, src, sizeof buf);
            CHECK_EQ_I(run_pair(f, buf, buf, n), MPT_OK);
            check_plain(f->dst, buf, f->src, src, n);
            CHECK(memcmp(buf + n * bytes_of(f->dst), src + n * bytes_of(f->dst),
                         sizeof buf - n * bytes_of(f->dst)) == 0);
        }
}

TEST(pairs_bad_arguments)
{
    static const pair_fn saturating[] = {{"mpt_e4m3_from_f32_sat_n", MPT_E4M3, MPT_F32, run_e4m3_sat},
                                         {"mpt_e5m2_from_f32_sat_n", MPT_E5M2, MPT_F32, run_e5m2_sat}};
    uint64_t a[16], b[16];
    size_t   i;
    memset(a, 0xa5, sizeof a);
    memset(b, 0x11, sizeof b);
    for (i = 0; i < COUNT_OF(pairs) + COUNT_OF(saturating); i++) {
        const pair_fn *f = i < COUNT_OF(pairs) ? &pairs[i] : &saturating[i - COUNT_OF(pairs)];
        mt_context(f->name, "NULL");
        CHECK_EQ_I(run_pair(f, a, NULL, 16u), MPT_E_ARG);
        CHECK_EQ_I(run_pair(f, NULL, b, 16u), MPT_E_ARG);
        CHECK_EQ_I(run_pair(f, NULL, NULL, 1u), MPT_E_ARG);
        CHECK_EQ_I(run_pair(f, NULL, NULL, 0u), MPT_OK);
        CHECK_EQ_I(run_pair(f, a, NULL, 0u), MPT_OK);
        CHECK_EQ_I(run_pair(f, NULL, b, 0u), MPT_OK);
        CHECK_EQ_I(run_pair(f, a, b, 0u), MPT_OK);
    }
    CHECK(all_bytes_are((const unsigned char *)a, sizeof a, 0xa5));
    CHECK(all_bytes_are((const unsigned char *)b, sizeof b, 0x11));
}

TEST(simd_name)
{
    const char *name = mpt_simd_name();
#if MPT_SIMD == 0
    CHECK_EQ_S(name, "portable");
#elif MPT_SIMD == 1 && defined(__x86_64__) && defined(__GNUC__) && !defined(_WIN32)
    if (__builtin_cpu_supports("avx512vl"))
        CHECK(strncmp(name, "avx512", 6) == 0);
    else
        CHECK_EQ_S(name, __builtin_cpu_supports("avx2") ? "avx2" : "sse2");
#else
    CHECK(strcmp(name, "f16c") != 0 && *name);
#endif
}

TEST(raised_flags_are_added)
{
    unsigned flags = MPT_FLAG_DIVBYZERO;
    CHECK_EQ_U(mpt_encode_i64(MPT_F16, 3, NULL, &flags), 0x4200);
    CHECK_EQ_U(flags, MPT_FLAG_DIVBYZERO);
    CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0x3c00, 32, NULL, &flags), 1);
    CHECK_EQ_U(flags, MPT_FLAG_DIVBYZERO);
}

TEST(ulp_below_a_scale)
{
    const double least = mpt_format_get(MPT_E8M0)->min_normal;
    CHECK(mpt_ulp(MPT_E8M0, least / 2.0) == least);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(version_matches);
    RUN(status_texts);
    RUN(format_table);
    RUN(format_limits_are_codes);
    RUN(format_find);
    RUN(format_define_accepts_and_rejects);
    RUN(format_refused_is_unknown);
    RUN(format_define_at_the_ends);
    RUN(format_define_equals_table);
    RUN(format_define_others);
    RUN(decode_every_code);
    RUN(decode_f32_f64_codes);
    RUN(small_every_code);
    RUN(small_nan_payloads);
    RUN(small_limits);
    RUN(small_midpoints);
    RUN(half_patterns);
    RUN(f16_every_f32);
    RUN(bf16_every_f32);
    RUN(e4m3_every_f32);
    RUN(e5m2_every_f32);
#define X(name, format, rounding) RUN(name);
    EVERY_SMALL_FORMAT(X)
#undef X
    RUN(encode_small_formats);
    RUN(encode_large_formats);
    RUN(encode_specials);
    RUN(encode_arguments);
    RUN(encode_f64_classes);
    RUN(encode_integers);
    RUN(decode_integers);
    RUN(exact_numbers);
    RUN(stochastic_share);
    RUN(stochastic_never);
    RUN(class_texts);
    RUN(half_next);
    RUN(ulp_any_format);
    RUN(anatomy_every_format);
    RUN(anatomy_by_hand);
    RUN(anatomy_specials);
    RUN(anatomy_error_of_subnormal_doubles);
    RUN(bits_text);
    RUN(pairs_are_all);
    RUN(pairs_every_code);
    RUN(pairs_between_fences);
    RUN(pairs_at_every_alignment);
    RUN(pairs_in_place);
    RUN(pairs_bad_arguments);
    RUN(simd_name);
    RUN(raised_flags_are_added);
    RUN(ulp_below_a_scale);
    return mt_end();
}
