/* test_mpt_report.c -- tests of the reports of mpt.h: every figure equals that of a slow reference, and any
 * split of the data, merged in any order, gives the same report to the last byte. It reads internals, the
 * writer of numbers, so it compiles the implementation itself. */
static int last_path = 4;           /* the tests set it to run each SIMD path of this machine */
#define MPTI_LAST_PATH last_path
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "test.h"

#include <float.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- numbers to try ---- */

enum { MANY = 70000 };
static float  floats[MANY];
static double doubles[MANY];

/* Numbers of either sign, from 2^low to below 2^high in magnitude, with random significands. */
static float random_float(int low, int high)
{
    const uint64_t bits = mt_random();
    const uint32_t e = (uint32_t)(127 + low + (int)(bits % (unsigned)(high - low)));
    return mpti_f32_make((uint32_t)(bits >> 32 & 0x807fffffu) | e << 23);
}

/* The kinds of data that reports meet: any pattern; a narrow band; many zeros; coarse numbers, where ties and
 * powers of two are common; the neighbourhood of every power of two; a constant; all normal binades; powers
 * of two with neighbours and zeros; a band that drifts from the smallest numbers to the largest. */
enum { KINDS = 9 };
static const char *const kind_name[KINDS] = {"any bits", "band", "zeros", "coarse", "edges", "constant",
                                             "all binades", "powers", "drift"};
static unsigned drifted;

static float number_of_kind(int kind)
{
    const uint32_t r = (uint32_t)mt_random();
    switch (kind) {
    case 0: return mpti_f32_make(r);
    case 1: return random_float(-30, 2);
    case 2: return r & 1u ? random_float(-20, 17) : mpti_f32_make(r << 30);
    case 3: return mpti_f32_make((r & 0x80f80000u) + ((r >> 8 & 63u) + 90u) * 0x00800000u);
    case 4: return mpti_f32_make(((r >> 20) << 23) + (r & 15u) - 8u + (r & 0x80u ? 0x7fe000u : 0u));
    case 5: return 1.5f;
    case 6: return random_float(-126, 128);
    case 7: return r & 1u ? 0.0f : mpti_f32_make(((r >> 4 & 63u) + 90u) * 0x00800000u + (r >> 1 & 3u) - 1u);
    default:
        drifted++;
        return random_float((int)(drifted / 600u % 240u) - 126, (int)(drifted / 600u % 240u) - 114);
    }
}

static void floats_of_kind(int kind, size_t n)
{
    size_t i;
    drifted = 0;
    for (i = 0; i < n; i++)
        floats[i] = number_of_kind(kind);
}

/* The first code at or after this one that is a finite number. */
static uint16_t finite_code(mpt_format format, uint64_t code)
{
    const uint64_t all = ((uint64_t)1 << mpt_format_get(format)->bits) - 1u;
    while (!mpti_f64_is_finite(mpt_decode(format, code & all)))
        code++;
    return (uint16_t)(code & all);
}

/* Makes numbers of a format: all patterns (random for floats and doubles), then blocks of finite numbers, of
 * many binades and of few; blocks with other numbers are counted one by one. Returns: how many. */
static size_t source_numbers(mpt_format from, const void **x)
{
    static uint16_t codes[MANY];
    static uint8_t  bytes[8192];
    const int       bits = mpt_format_get(from)->bits;
    const size_t    all = bits == 16 ? 65536 : bits <= 8 ? 256 : 3000, n = bits == 16 ? 69632 : 8192;
    size_t          i;
    for (i = 0; i < n; i++) {
        const uint64_t r = mt_random(), near = i / 1024u * 12345u + r % 4u;
        if (bits > 16) {
            floats[i] = i < all ? mpti_f32_make((uint32_t)r) : random_float(i < 5200 ? -30 : -3, 17);
            doubles[i] = i < all ? mpti_f64_make(r)
                                 : (double)floats[i] * (1.0 + ldexp((double)(r >> 40), -24));
        } else {
            codes[i] = i < all ? (uint16_t)i : finite_code(from, i / 1024u % 2u ? r : near);
            if (bits <= 8)
                bytes[i] = (uint8_t)codes[i];
        }
    }
    *x = bits == 64   ? (const void *)doubles
         : bits == 16 ? (const void *)codes
         : bits <= 8  ? (const void *)bytes
                      : (const void *)floats;
    return n;
}

/* Element i of an array in this format, as mpt_decode reads it. */
static double source(mpt_format from, const void *x, size_t i)
{
    const size_t bytes = (size_t)mpt_format_get(from)->bytes;
    return mpt_decode(from, mt_get((const char *)x + bytes * i, bytes));
}

/* ---- all formats at once ---- */

static int has_report(int format) { return format != (int)MPT_E8M0; }

/* For every format, the survey of all formats gives the same report as the range report of that format. */
static void survey_is_range(const mpt_survey *a, mpt_format from, const void *x, size_t n)
{
    static mpt_range alone, got;
    int              format;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        if (!has_report(format))
            continue;
        CHECK_EQ_I(mpt_range_init(&alone, (mpt_format)format), MPT_OK);
        CHECK_EQ_I(mpt_range_add(&alone, from, x, n), MPT_OK);
        memset(&got, 0xa5, sizeof got);
        CHECK_EQ_I(mpt_survey_get(a, (mpt_format)format, &got), MPT_OK);
        CHECK(!memcmp(&alone, &got, sizeof got));
    }
}

/* floats[0 .. n - 1] on every path, at once and in pieces too short for a block: the same reports. */
static void survey_on_every_path(size_t n, uint64_t at)
{
    static mpt_survey a, pieces;
    size_t            i;
    CHECK_EQ_I(mpt_survey_init(&pieces), MPT_OK);
    for (i = 0; i < n; i += 999)
        CHECK_EQ_I(mpt_survey_add(&pieces, MPT_F32, floats + i, n - i < 999 ? n - i : 999), MPT_OK);
    for (last_path = 4; last_path >= 0; last_path = mpti_path() - 1) {
        CHECK_EQ_I(mpt_survey_init(&a), MPT_OK);
        CHECK_EQ_I(mpt_survey_add(&a, MPT_F32, floats, n), MPT_OK);
        CHECK_EQ_U_AT(memcmp(&a, &pieces, sizeof a) != 0, 0, at);
        survey_is_range(&pieces, MPT_F32, floats, n);
    }
    last_path = 4;
}

TEST(survey_equals_each_format)
{
    int    kind;
    size_t n;
    for (kind = 0; kind < KINDS; kind += (int)mt.every)
        for (n = 1; n <= MANY; n = 7 * n + 13) {
            mt_context(kind_name[kind], NULL);
            floats_of_kind(kind, n);
            survey_on_every_path(n, n);
        }
}

/* A constant, mixed with zeros and with numbers whose exponent field is near `field` and whose significands
 * are those where limits lie: blocks of few binades and of many. */
static void spread_around(uint32_t constant, uint32_t field, size_t n)
{
    static const uint32_t mantissas[] = {0u, 1u, 2u, 0x400000u, 0x7fdfffu, 0x7fe000u, 0x7fefffu, 0x7ff000u,
                                         0x7ff001u, 0x7ffffeu, 0x7fffffu};
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t r = (uint32_t)(mt_random() >> 32), m = mantissas[(r >> 8) % COUNT(mantissas)];
        const uint32_t near = field + (uint32_t)(i / 2048u % 5u) - 2u;
        floats[i] = mpti_f32_make(constant);
        if (i >= 1024 && r % 16u == 0u)
            floats[i] = mpti_f32_make((r >> 31) << 31 | (near << 23 | m));
        else if (i >= 6000 && r % 16u == 1u)
            floats[i] = mpti_f32_make((r >> 31) << 31);
    }
}

/* Corner cases of counting by blocks: the binades at both ends of FP32, and blocks that span many; the
 * smallest normal float and the largest subnormal, the largest float and Inf; each as the smallest or the
 * largest number of all. */
TEST(survey_at_the_ends)
{
    static const struct { uint32_t constant, field; } at[] = {
        {0x3f800000u, 80u}, {0x3f800001u, 143u}, {0x3fffffffu, 127u}, {0x7f000000u, 252u},
        {0x7f7fffffu, 192u}, {0x7f000001u, 3u}, {0x00800000u, 2u}, {0x0a000000u, 3u}, {0x10000001u, 63u},
        {0x00800000u, 252u}
    };
    static const uint32_t ends[] = {0x00800000u, 0x00800001u, 0x007fffffu, 0x007ffffeu, 0x00000001u,
                                    0x7f7fffffu, 0x7f7ffffeu, 0x7f800000u, 0x7f800001u, 0x00000000u};
    size_t i, j;
    for (i = 0; i < COUNT(at); i++) {
        spread_around(at[i].constant, at[i].field, 20480);
        survey_on_every_path(20480, at[i].constant);
    }
    for (i = 0; i < COUNT(ends); i++)
        for (j = i % 3u % mt.every; j < 3; j += mt.every) {     /* among ones; or neighbours, and others */
            size_t k;
            for (k = 0; k < 9000; k++)
                floats[k] = j ? mpti_f32_make(ends[i] + (uint32_t)k % (uint32_t)j) : 1.0f;
            floats[j * 1000 + 4000] = mpti_f32_make(ends[i]);
            if (j == 2)
                floats[7777] = mpti_f32_make(ends[(i + 3) % COUNT(ends)]);
            survey_on_every_path(9000, ends[i]);
        }
}

/* So many equal numbers that the counters of a fast path would overflow if they were not emptied in time. */
TEST(range_of_very_many)
{
    enum { LOTS = 600000 };
    static float     lots[LOTS];
    static mpt_range r;
    size_t           i;
    for (i = 0; i < LOTS; i++)
        lots[i] = i % 3u == 2u ? 0.0f : -1.5f;
    CHECK_EQ_I(mpt_range_init(&r, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_add(&r, MPT_F32, lots, LOTS), MPT_OK);
    CHECK(r.count == LOTS && r.zero == LOTS / 3 && r.normal == LOTS / 3 * 2);
    CHECK(r.binade[0 - MPT_RANGE_EMIN] == LOTS / 3 * 2 && r.max_abs == 1.5 && r.min_abs == 1.5);
    for (i = 0; i < LOTS; i++)
        lots[i] = 1.5f;
    CHECK_EQ_I(mpt_range_init(&r, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_add(&r, MPT_F32, lots, LOTS), MPT_OK);
    CHECK(r.normal == LOTS && r.binade[0 - MPT_RANGE_EMIN] == LOTS);
}

/* All patterns of every source format, blocks of finite numbers, and doubles of any bits. */
TEST(survey_of_all_patterns)
{
    static mpt_survey a;
    static double     wide[MANY];
    int               format;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        const mpt_format from = (mpt_format)format;
        const void      *x;
        size_t           n;
        if (!has_report(format) || from == MPT_TF32)
            continue;
        n = source_numbers(from, &x);
        mt_context(mpt_format_get(from)->name, NULL);
        CHECK_EQ_I(mpt_survey_init(&a), MPT_OK);
        CHECK_EQ_I(mpt_survey_add(&a, from, x, n), MPT_OK);
        CHECK_EQ_U(a.count, n);
        survey_is_range(&a, from, x, n);
        CHECK_EQ_I(mpt_convert_n(MPT_F64, wide, from, x, n, NULL, NULL), MPT_OK);
        survey_is_range(&a, MPT_F64, wide, n);          /* doubles are counted one by one */
    }
}

/* For every source format: the two reports by sign merge to the report without signs, and a track has the
 * counts of a range report. What is no source format is refused and counts nothing. */
TEST(every_source)
{
    static mpt_range both, negative, positive, was;
    mpt_track        t, t_was;
    mpt_writer       nobody;
    int              format;
    nobody.write = NULL;
    nobody.user = NULL;
    for (format = 0; format <= (int)MPT_FORMAT_COUNT + 1; format++) {
        const mpt_format       from = (mpt_format)format;
        const mpt_format_info *f = mpt_format_get(from);
        const void            *x;
        const size_t           n = source_numbers(f ? from : MPT_F32, &x);
        size_t                 i, minus;
        mt_context(f ? f->name : "no format", NULL);
        (void)mpt_range_init(&both, MPT_F16);
        negative = positive = was = both;
        CHECK_EQ_I(mpt_track_init(&t, "t", MPT_F16, 3, nobody), MPT_OK);
        t_was = t;
        if (!f || from == MPT_E8M0 || from == MPT_TF32) {
            CHECK_EQ_I(mpt_range_add(&both, from, x, n), MPT_E_UNSUPPORTED);
            CHECK_EQ_I(mpt_range_add_signed(&negative, &positive, from, x, n), MPT_E_UNSUPPORTED);
            CHECK_EQ_I(mpt_track_add(&t, 3, from, x, n), MPT_E_UNSUPPORTED);
            CHECK(!memcmp(&both, &was, sizeof was) && !memcmp(&negative, &was, sizeof was) &&
                  !memcmp(&positive, &was, sizeof was) && !memcmp(&t, &t_was, sizeof t));
            continue;
        }
        CHECK_EQ_I(mpt_range_add(&both, from, x, n), MPT_OK);
        CHECK_EQ_I(mpt_range_add_signed(&negative, &positive, from, x, n), MPT_OK);
        CHECK_EQ_U(both.count, n);
        for (i = minus = 0; i < n; i++)
            minus += (size_t)(mpti_f64_bits(source(from, x, i)) >> 63);
        CHECK(negative.count == minus && positive.count == n - minus);
        CHECK((from == MPT_UE4M3 || minus > n / 8) && n - minus > n / 8);
        CHECK(from != MPT_F16 || (negative.zero && positive.zero));
        CHECK_EQ_I(mpt_range_add_signed(&negative, &negative, from, x, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_range_add_signed(&negative, NULL, from, x, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_range_merge(&negative, &positive), MPT_OK);
        CHECK(!memcmp(&negative, &both, sizeof both));
        CHECK_EQ_I(mpt_track_add(&t, 2, from, x, n), MPT_OK);       /* not a multiple of 3 */
        CHECK(!memcmp(&t, &t_was, sizeof t));
        CHECK_EQ_I(mpt_track_add(&t, 3, from, x, n), MPT_OK);
        CHECK(t.samples == 1 && t.nonzero == mpt_range_nonzero(&both) && t.flushed == both.flushed);
        CHECK_EQ_U(t.overflow, both.overflow + both.inf + both.nan);
        was = both;
        t_was = t;
        CHECK_EQ_I(mpt_range_add(&both, from, NULL, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_range_add_signed(&both, &positive, from, NULL, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_track_add(&t, 6, from, NULL, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_track_add(NULL, 6, from, x, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_range_add(&both, from, NULL, 0), MPT_OK);
        CHECK(!memcmp(&both, &was, sizeof was) && !memcmp(&t, &t_was, sizeof t));
    }
}

/* Arrays at every alignment give the same reports. */
TEST(misaligned_arrays)
{
    static const mpt_format formats[] = {MPT_F64, MPT_F32, MPT_F16, MPT_BF16, MPT_E4M3};
    static unsigned char    bytes[8 * 3000 + 8];
    static mpt_survey       s, s_want;
    static mpt_range        r[3], r_want[3];
    static mpt_roundoff     q, q_want;
    mpt_track               t, t_want;
    mpt_writer              nobody;
    size_t                  i, k, at;
    nobody.write = NULL;
    nobody.user = NULL;
    for (k = 0; k < COUNT(formats); k++) {
        for (i = 0; i < 3000; i++)      /* in every format most of these are finite numbers */
            doubles[i] = mpti_f64_make(UINT64_C(0x3c3b3a3938373635) +
                                       (mt_random() & UINT64_C(0x8303830383038303)));
        for (at = 0; at < 8; at++) {
            memcpy(bytes + at, doubles, 8 * 3000);
            (void)mpt_survey_init(&s);
            (void)mpt_roundoff_init(&q, MPT_E5M2, NULL, 3);
            (void)mpt_track_init(&t, "t", MPT_E4M3, 1, nobody);
            for (i = 0; i < 3; i++)
                (void)mpt_range_init(&r[i], MPT_E4M3);
            if (!at) {
                s_want = s;
                q_want = q;
                t_want = t;
                memcpy(r_want, r, sizeof r);
                CHECK_EQ_I(mpt_survey_add(&s_want, formats[k], doubles, 3000), MPT_OK);
                CHECK_EQ_I(mpt_roundoff_add(&q_want, formats[k], doubles, 3000), MPT_OK);
                CHECK_EQ_I(mpt_track_add(&t_want, 0, formats[k], doubles, 3000), MPT_OK);
                CHECK_EQ_I(mpt_range_add(&r_want[0], formats[k], doubles, 3000), MPT_OK);
                CHECK_EQ_I(mpt_range_add_signed(&r_want[1], &r_want[2], formats[k], doubles, 3000), MPT_OK);
            }
            CHECK_EQ_I(mpt_survey_add(&s, formats[k], bytes + at, 3000), MPT_OK);
            CHECK_EQ_I(mpt_roundoff_add(&q, formats[k], bytes + at, 3000), MPT_OK);
            CHECK_EQ_I(mpt_track_add(&t, 0, formats[k], bytes + at, 3000), MPT_OK);
            CHECK_EQ_I(mpt_range_add(&r[0], formats[k], bytes + at, 3000), MPT_OK);
            CHECK_EQ_I(mpt_range_add_signed(&r[1], &r[2], formats[k], bytes + at, 3000), MPT_OK);
            CHECK(!memcmp(&s, &s_want, sizeof s) && !memcmp(&q, &q_want, sizeof q));
            CHECK(!memcmp(r, r_want, sizeof r) && t.nonzero == t_want.nonzero && t.nonzero > 2000);
        }
    }
}

/* Counts one double as mpt_encode classifies it. */
static void reference_f64(mpt_range *r, double x)
{
    const uint64_t a = mpti_f64_bits(x) & ~(UINT64_C(1) << 63), inf = UINT64_C(0x7ff) << 52;
    const int      m = mpt_format_get(r->format)->mantissa_bits;
    unsigned       flags = 0u;
    const uint64_t code = mpt_encode(r->format, mpti_f64_make(a), NULL, &flags);
    int            e = -1075;
    uint64_t       left = a;
    r->count++;
    if (!a || a >= inf) {
        *(!a ? &r->zero : a == inf ? &r->inf : &r->nan) += 1;
        return;
    }
    *(flags & MPT_FLAG_OVERFLOW ? &r->overflow
      : !code                   ? &r->flushed
      : code >> m               ? &r->normal
                                : &r->subnormal) += 1;
    if (a >> 52)
        e = (int)(a >> 52) - 1023;
    else
        for (; left; left >>= 1)
            e++;
    r->binade[e - MPT_RANGE_EMIN]++;
    if (mpti_f64_bits(r->max_abs) < a)
        r->max_abs = mpti_f64_make(a);
    if (!mpti_f64_bits(r->min_abs) || a < mpti_f64_bits(r->min_abs))
        r->min_abs = mpti_f64_make(a);
}

/* Any bits; each limit of the format and each power of two, with neighbours; as doubles and as floats. */
TEST(range_equals_the_codec)
{
    static mpt_range got, want;
    size_t           i, n = 20000;
    int              format;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        if (!has_report(format))
            continue;
        mt_context(mpt_format_get((mpt_format)format)->name, NULL);
        CHECK_EQ_I(mpt_range_init(&want, (mpt_format)format), MPT_OK);
        got = want;
        for (i = 0; i < n; i++) {
            const uint64_t limit = i % 3 == 0 ? want.least_kept : i % 3 == 1 ? want.least_normal
                                                                             : want.least_overflow;
            doubles[i] = mpti_f64_make(i & 1u ? mt_random() : limit + mt_random() % 5u - 2u);
            reference_f64(&want, doubles[i]);
        }
        CHECK_EQ_I(mpt_range_add(&got, MPT_F64, doubles, n), MPT_OK);
        CHECK(!memcmp(&got, &want, sizeof got));
        CHECK_EQ_I(mpt_range_init(&want, (mpt_format)format), MPT_OK);
        got = want;
        for (i = 0; i < n; i++) {
            const uint32_t r = (uint32_t)(mt_random() >> 20), power = (r >> 23 << 23) + r % 5u - 2u;
            const uint64_t limit = i % 3 == 0 ? want.least_kept : i % 3 == 1 ? want.least_normal
                                                                             : want.least_overflow;
            const uint32_t near = (uint32_t)mpt_encode(MPT_F32, mpti_f64_make(limit), NULL, NULL) + r % 41u;
            const uint32_t bits = i & 1u ? near - 20u : i & 2u ? power : r;
            floats[i] = mpti_f32_make(bits);
            reference_f64(&want, mpt_decode(MPT_F32, bits));
        }
        CHECK_EQ_I(mpt_range_add(&got, MPT_F32, floats, n), MPT_OK);
        CHECK(!memcmp(&got, &want, sizeof got));
    }
}

/* Split the numbers, count each part, merge the parts in any order: the same reports as of the whole. */
TEST(reports_merge_in_any_order)
{
    static mpt_survey part[4], whole;
    static mpt_range  range[4], alone;
    int               round;
    for (round = 0; round < 60; round++) {
        const mpt_format format = (mpt_format)(round % (int)MPT_FORMAT_COUNT);
        const size_t     n = (size_t)(mt_random() % 12000u);
        size_t           i, take, parts = COUNT(part);
        if (!has_report((int)format))
            continue;
        floats_of_kind(round % KINDS, n);
        CHECK_EQ_I(mpt_survey_init(&whole), MPT_OK);
        CHECK_EQ_I(mpt_survey_add(&whole, MPT_F32, floats, n), MPT_OK);
        CHECK_EQ_I(mpt_range_init(&alone, format), MPT_OK);
        for (i = 0; i < COUNT(part); i++) {
            CHECK_EQ_I(mpt_survey_init(&part[i]), MPT_OK);
            range[i] = alone;
        }
        CHECK_EQ_I(mpt_range_add(&alone, MPT_F32, floats, n), MPT_OK);
        for (i = 0; i < n; i += take) {
            const size_t to = (size_t)(mt_random() % COUNT(part));
            take = 1u + (size_t)(mt_random() % (n - i));
            CHECK_EQ_I(mpt_survey_add(&part[to], MPT_F32, floats + i, take), MPT_OK);
            CHECK_EQ_I(mpt_range_add(&range[to], MPT_F32, floats + i, take), MPT_OK);
        }
        for (; parts > 1; parts--) {
            const size_t a = (size_t)(mt_random() % (parts - 1u));
            CHECK_EQ_I(mpt_survey_merge(&part[a], &part[parts - 1]), MPT_OK);
            CHECK_EQ_I(mpt_range_merge(&range[a], &range[parts - 1]), MPT_OK);
        }
        mt_context(kind_name[round % KINDS], NULL);
        CHECK(!memcmp(&part[0], &whole, sizeof whole) && !memcmp(&range[0], &alone, sizeof alone));
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The nearest-rank percentile of the sorted magnitudes lies in the binade that is returned. */
TEST(range_percentiles)
{
    static const double percents[] = {0.0, 0.1, 1.0, 25.0, 50.0, 75.0, 99.0, 99.9, 100.0};
    static mpt_range    r;
    size_t              n, i, k;
    int                 e = 0;
    for (n = 1; n < 5000; n = 3 * n + 1) {
        (void)mpt_range_init(&r, MPT_F16);
        for (i = 0; i < n; i++)
            doubles[i] = fabs((double)(floats[i] = random_float(-40, 20)));
        (void)mpt_range_add(&r, MPT_F32, floats, n);
        qsort(doubles, n, sizeof *doubles, by_size);
        for (k = 0; k < COUNT(percents); k++) {
            const double rank = ceil(percents[k] * (double)n / 100.0);
            const double at = doubles[rank < 1.0 ? 0 : (size_t)rank - 1];
            CHECK_EQ_I(mpt_range_percentile(&r, percents[k], &e), MPT_OK);
            CHECK(ldexp(1.0, e) <= at && at < ldexp(2.0, e));
        }
    }
    CHECK_EQ_I(mpt_range_percentile(&r, -1.0, &e), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_percentile(&r, 100.1, &e), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_percentile(&r, 50.0, NULL), MPT_E_ARG);
    (void)mpt_range_init(&r, MPT_F16);
    CHECK_EQ_I(mpt_range_percentile(&r, 50.0, &e), MPT_E_DATA);
}

/* ---- scales ---- */

/* The class of binade e at scale 2^k, by the format's facts: 0 flushed, 1 subnormal, 2 normal, 3 overflow. */
static int zone_of(const mpt_format_info *f, int e, int k)
{
    return e + k > f->emax ? 3 : e + k >= f->emin ? 2 : e + k >= f->emin - f->mantissa_bits - 1 ? 1 : 0;
}

static void zones_at(const mpt_range *r, int k, uint64_t *zone)
{
    int e;
    memset(zone, 0, 4 * sizeof *zone);
    for (e = MPT_RANGE_EMIN; e < MPT_RANGE_EMIN + MPT_RANGE_BINS; e++)
        zone[zone_of(mpt_format_get(r->format), e, k)] += r->binade[e - MPT_RANGE_EMIN];
}

TEST(range_scale_curve)
{
    static mpt_range r;
    const uint64_t   least = 1u;        /* the smallest double */
    int              format, k;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        if (!has_report(format))
            continue;
        floats_of_kind(format % 3, 500);
        (void)mpt_range_init(&r, (mpt_format)format);
        (void)mpt_range_add(&r, MPT_F32, floats, 500);
        (void)mpt_range_add(&r, MPT_F64, &least, 1);
        for (k = -126; k <= 127; k++) {
            uint64_t         zone[4];
            mpt_range_choice c = {0.0f, 0, 0, 0, 0, 0};
            zones_at(&r, k, zone);
            CHECK_EQ_I(mpt_range_at_scale(&r, k, &c), MPT_OK);
            CHECK(c.log2_scale == k && ldexp(1.0, k) == (double)c.scale);
            CHECK_EQ_U_AT(c.flushed, zone[0], k);
            CHECK_EQ_U_AT(c.subnormal, zone[1], k);
            CHECK_EQ_U_AT(c.overflow, zone[3], k);
        }
    }
    for (k = 0; k < 4; k++) {           /* the largest magnitude may be subnormal */
        const uint64_t   x = k == 3 ? 1u : ((uint64_t)3 << 40) - (uint64_t)(k == 2);
        mpt_range_choice c = {0.0f, 0, 0, 0, 0, 0};
        (void)mpt_range_init(&r, k == 1 ? MPT_F16 : MPT_F64);
        (void)mpt_range_add(&r, MPT_F64, &x, 1);
        CHECK_EQ_I(mpt_range_at_scale(&r, 9, &c), MPT_OK);
        CHECK_EQ_I(c.headroom + 9, k == 3 ? 2097 : k == 1 ? 15 + 1033 : 1023 + 1033);
    }
    CHECK_EQ_I(mpt_range_at_scale(&r, 128, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_at_scale(NULL, 0, NULL), MPT_E_ARG);
}

/* Does x * 2^k overflow? In double such a product is exact. */
static int overflows(mpt_format format, double x, int k)
{
    unsigned flags = 0u;
    (void)mpt_encode(format, ldexp(x, k), NULL, &flags);
    return (flags & MPT_FLAG_OVERFLOW) != 0u;
}

/* The best scale as the doc block defines it, found by trying all scales. */
static int best_scale(const mpt_range *r, int headroom, const mpt_range_tolerance *t)
{
    const double nonzero = (double)mpt_range_nonzero(r);
    double       least_flushed = 0.0, least_lost = 0.0;
    int          top = -126, k, best = 0;
    uint64_t     zone[4];
    for (k = 127; k >= -126; k--) {     /* the largest scale that overflow allows, with the headroom */
        zones_at(r, k + headroom, zone);
        if ((double)zone[3] <= t->overflow * nonzero &&
            (zone[3] || !overflows(r->format, r->max_abs, k + headroom))) {
            top = k;
            break;
        }
    }
    for (k = top; k >= -126; k--) {
        double flushed, lost;
        zones_at(r, k, zone);
        flushed = fmax((double)zone[0], floor(t->flushed * nonzero));
        lost = fmax(fmax((double)(zone[0] + zone[1]), floor(t->subnormal * nonzero)), flushed);
        if (k == top || (flushed == least_flushed && lost == least_lost && abs(k) < abs(best))) {
            least_flushed = flushed;
            least_lost = lost;
            best = k;
        }
    }
    return best;
}

/* With a tolerance: a bulk of numbers, and outliers on both sides. Without: few numbers, some of any size. */
TEST(range_choice_is_the_best)
{
    static mpt_range r;
    const int        rounds = mt.long_mode ? 20000 : 600 / (int)mt.every;
    int              round;
    for (round = 0; round < rounds; round++) {
        const mpt_format    format = (mpt_format)(mt_random() % (unsigned)MPT_FORMAT_COUNT);
        const int           headroom = (int)(mt_random() % 31u), tolerant = round % 2;
        const int           middle = (int)(mt_random() % 60u) - 30, wide = (int)(mt_random() % 20u);
        const size_t        n = 1u + (size_t)(mt_random() % 30u) + (tolerant ? 100u : 0u);
        mpt_range_tolerance t = {0.0, 0.0, 0.0};
        mpt_range_choice    c = {0.0f, 0, 0, 0, 0, 0};
        uint64_t            zone[4];
        size_t              i;
        if (!has_report((int)format) || format == MPT_F64)      /* f64 holds every float at every scale */
            continue;
        for (i = 0; i < n; i++)
            floats[i] = tolerant     ? random_float(middle - 4, middle + 4)
                        : round % 10 ? random_float(3 * middle - wide, 3 * middle + wide + 1)
                                     : mpti_f32_make((uint32_t)mt_random() & 0x7f7fffffu);
        for (i = 0; i < n / 20u && tolerant; i++)
            floats[i] = random_float(middle - 40, middle + 30);
        if (tolerant) {
            t.flushed = (double)(mt_random() % 8u) / 100.0;
            t.subnormal = (double)(mt_random() % 8u) / 100.0;
            t.overflow = (double)(1u + mt_random() % 5u) / 100.0;
        }
        mt_context(mpt_format_get(format)->name, NULL);
        (void)mpt_range_init(&r, format);
        (void)mpt_range_add(&r, MPT_F32, floats, n);
        CHECK_EQ_I(mpt_range_choose_scale(&r, headroom, tolerant ? &t : NULL, &c), MPT_OK);
        CHECK_EQ_I(c.log2_scale, best_scale(&r, headroom, &t));
        CHECK((double)c.scale == ldexp(1.0, c.log2_scale));
        zones_at(&r, c.log2_scale, zone);
        CHECK(c.flushed == zone[0] && c.subnormal == zone[1] && c.overflow == zone[3]);
        CHECK(!overflows(format, r.max_abs, c.log2_scale + c.headroom));
        CHECK(overflows(format, r.max_abs, c.log2_scale + c.headroom + 1));
    }
}

TEST(range_tolerance_known)
{
    static mpt_range    r;
    mpt_range_tolerance t = {0.0, 0.0, 0.0};
    mpt_range_choice    c = {0.0f, 0, 0, 0, 0, 0};
    size_t              i;
    for (i = 0; i < 1000; i++)
        floats[i] = 1.0f;
    floats[0] = ldexpf(1.0f, -30);      /* one tiny outlier, one huge */
    floats[1] = 131072.0f;
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, floats, 1000);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 0, NULL, &c), MPT_OK);
    CHECK(c.log2_scale == -2 && c.flushed == 1 && c.overflow == 0);     /* 2^17 must become less than 2^16 */
    t.overflow = 0.001;
    CHECK_EQ_I(mpt_range_choose_scale(&r, 0, &t, &c), MPT_OK);
    CHECK(c.log2_scale == 5 && c.flushed == 0 && c.overflow == 1 && c.headroom == -7);
    t.flushed = 0.001;
    CHECK_EQ_I(mpt_range_choose_scale(&r, 0, &t, &c), MPT_OK);
    CHECK(c.log2_scale == 0 && c.flushed == 1 && c.overflow == 1);
    t.overflow = 1.5;
    CHECK_EQ_I(mpt_range_choose_scale(&r, 0, &t, &c), MPT_E_ARG);
    t.overflow = mpti_f64_make(UINT64_C(0x7ff8000000000000));
    CHECK_EQ_I(mpt_range_choose_scale(&r, 0, &t, &c), MPT_E_ARG);
    for (i = 0; i < 2; i++) {           /* numbers that no scale saves are left aside */
        const double d = i ? -DBL_MAX : ldexp(1.0, 200);
        (void)mpt_range_init(&r, MPT_F16);
        (void)mpt_range_add(&r, MPT_F64, &d, 1);
        (void)mpt_range_add(&r, MPT_F32, floats + 1, 999);
        CHECK_EQ_I(mpt_range_choose_scale(&r, 0, NULL, &c), MPT_OK);
        CHECK(c.log2_scale == -2 && c.flushed == 0 && c.overflow == 1 && c.headroom < 0);
    }
}

TEST(survey_refusals)
{
    static mpt_survey a, zeroed;
    static mpt_range  r;
    const float       x = 1.0f;
    (void)mpt_survey_init(&a);
    CHECK_EQ_I(mpt_survey_init(NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_add(&zeroed, MPT_F32, &x, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_add(&a, MPT_F32, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_add(NULL, MPT_F32, &x, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_add(&a, MPT_TF32, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_survey_add(&a, MPT_E8M0, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_survey_add(&a, MPT_FORMAT_COUNT, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_survey_merge(&a, &zeroed), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_merge(&zeroed, &a), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_get(&a, MPT_E8M0, &r), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_survey_get(&zeroed, MPT_F16, &r), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_get(&a, MPT_F16, NULL), MPT_E_ARG);
    (void)mpt_range_init(&r, MPT_F16);
    CHECK_EQ_I(mpt_range_add(&r, MPT_TF32, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_add(&r, MPT_F32, NULL, 0), MPT_OK);
    CHECK_EQ_U(a.count + r.count, 0);
    CHECK_EQ_U(MPT_SURVEY_EDGES, 3 * (int)MPT_FORMAT_COUNT);
}

/* ---- exact sums ---- */

/* Sums of known value: all but a few bits cancel, over the whole range of doubles. */
TEST(exact_sum_known)
{
    mpt_exact s, t;
    size_t    i;
    memset(&s, 0, sizeof s);
    CHECK(mpt_exact_value(&s) == 0.0);
    mpt_exact_add(&s, 1e300, 1.0);
    mpt_exact_add(&s, 1.0, 1.0);
    mpt_exact_add(&s, mpti_f64_make(1u), 1.0);
    mpt_exact_add(&s, -1e300, 1.0);
    CHECK(mpt_exact_value(&s) == 1.0);
    mpt_exact_add(&s, -1.0, 1.0);
    CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&s)), 1u);
    mpt_exact_add(&s, -mpti_f64_make(2u), 1.0);
    CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&s)), UINT64_C(0x8000000000000001));
    memset(&s, 0, sizeof s);
    mpt_exact_add(&s, 1.0, 1.0);        /* ties to even; one last bit decides */
    mpt_exact_add(&s, ldexp(1.0, -53), 1.0);
    CHECK(mpt_exact_value(&s) == 1.0);
    mpt_exact_add(&s, ldexp(1.0, -1000), 1.0);
    CHECK(mpt_exact_value(&s) == 1.0 + DBL_EPSILON);
    mpt_exact_add(&s, -ldexp(1.0, -999), 1.0);
    CHECK(mpt_exact_value(&s) == 1.0);
    for (i = 53; i < 200; i++) {        /* a carry through all bits, up to the next power of two */
        memset(&s, 0, sizeof s);
        mpt_exact_add(&s, 1.0, 1.0);
        mpt_exact_add(&s, -ldexp(1.0, -(int)i), 1.0);
        CHECK(mpt_exact_value(&s) == (i == 53 ? 1.0 - DBL_EPSILON / 2.0 : 1.0));
        mpt_exact_add(&s, -2.0, 1.0);
        CHECK(mpt_exact_value(&s) == -1.0);
    }
    memset(&s, 0, sizeof s);
    mpt_exact_add(&s, DBL_MIN, 1.0);
    mpt_exact_add(&s, -mpti_f64_make(1u), 0.25);
    CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&s)), UINT64_C(0x0010000000000000));
    for (i = 1073; i < 1079; i++) {     /* less than half of the smallest double is 0 */
        memset(&s, 0, sizeof s);
        mpt_exact_add(&s, -ldexp(1.5, -1000), ldexp(1.0, 1000 - (int)i));
        CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&s)), MPTI_F64_SIGN | (i < 1076 ? 1076u - i : 0u));
    }
    memset(&s, 0, sizeof s);
    mpt_exact_add(&s, DBL_MAX, DBL_MAX);
    mpt_exact_add(&s, DBL_MAX, -DBL_MAX);
    mpt_exact_add(&s, 3.0, -7.0);
    CHECK(mpt_exact_value(&s) == -21.0);
    mpt_exact_add(&s, DBL_MAX, 1.0);
    mpt_exact_add(&s, DBL_MAX, 1.0);
    CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&s)), UINT64_C(0x7ff0000000000000));
    t = s;
    mpt_exact_add(&t, mpti_f64_make(UINT64_C(0xfff0000000000000)), 1.0);
    CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&t)), UINT64_C(0xfff0000000000000));
    mpt_exact_add(&t, mpti_f64_make(UINT64_C(0x7ff0000000000000)), 0.0);
    CHECK(mpti_f64_is_nan(mpt_exact_value(&t)));
    memset(&s, 0, sizeof s);            /* carries move up before a limb is full */
    s.pending = 0x3fffffffu;
    s.limb[70] = INT64_MAX / 2;
    mpt_exact_add(&s, 1.0, 1.0);
    CHECK(s.pending == 0u && s.limb[70] == (INT64_MAX / 2 & 0xffffffff));
    memset(&s, 0, sizeof s);            /* integer reference: 2^-1000 times a 64-bit sum */
    {
        int64_t sum = 0;
        for (i = 0; i < 20000; i++) {
            const int64_t k = (int64_t)(mt_random() >> 24) - ((int64_t)1 << 39);
            sum += k;
            mpt_exact_add(&s, ldexp((double)k, -1000), 1.0);
        }
        CHECK(mpt_exact_value(&s) == ldexp((double)sum, -1000));
    }
}

/* Any order and any split give the same bytes, once a merge has carried. */
TEST(exact_sum_in_any_order)
{
    mpt_exact a, b, c;
    size_t    i;
    int       round;
    for (round = 0; round < 20; round++) {
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        memset(&c, 0, sizeof c);
        for (i = 0; i < 500; i++)
            doubles[i] = mpti_f64_make(mt_random() & ~(UINT64_C(1) << 62));
        for (i = 0; i < 500; i++)
            mpt_exact_add(&a, doubles[i], doubles[499 - i] / 3.0);
        for (i = 500; i-- > 0; )
            mpt_exact_add(mt_random() & 1u ? &b : &c, doubles[499 - i] / 3.0, doubles[i]);
        mpt_exact_merge(&b, &c);
        memset(&c, 0, sizeof c);
        mpt_exact_merge(&a, &c);
        CHECK(!memcmp(&a, &b, sizeof a));
        CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&a)), mpti_f64_bits(mpt_exact_value(&b)));
    }
}

/* ---- rounding ---- */

/* What the report should hold, computed slowly: in doubles where they are exact, long sums by mpt_exact. */
typedef struct roundoff_reference {
    uint64_t  exact, changed, flushed, overflow;
    double    max_relative, max_ulps;
    mpt_exact relative, ulps, bias, signal, noise;
} roundoff_reference;

/* v rounded to a significand of 24 bits, by the processor. */
static double to_24(double v)
{
    int                  e;
    const volatile float f = (float)frexp(v, &e);
    return ldexp((double)f, e);
}

/* v rounded to a multiple of 2^-bits, ties to even: after adding 1.5 2^(52 - bits) only these bits remain. */
static double to_grid(double v, int bits)
{
    const volatile double magic = ldexp(1.5, 52 - bits), moved = v + magic;
    return moved - magic;
}

static void reference_roundoff(roundoff_reference *r, double x, mpt_format format, const mpt_opts *o, int k)
{
    const double y = mpt_decode(format, mpt_encode(format, ldexp(x, k), o, NULL));
    double       e;
    x = ldexp(x, k);
    if (!mpti_f64_is_finite(y)) {
        r->changed++;
        r->overflow++;
        return;
    }
    mpt_exact_add(&r->signal, x, x);
    e = y - x;
    if (e == 0.0) {
        r->exact++;
        return;
    }
    r->changed++;
    r->flushed += y == 0.0;
    mpt_exact_add(&r->noise, e, e);
    r->max_relative = fmax(r->max_relative, to_24(fabs(e / x)));
    r->max_ulps = fmax(r->max_ulps, fabs(e / mpt_ulp(format, x)));
    mpt_exact_add(&r->relative, fabs(e / x) >= 2048.0 ? fmin(to_24(fabs(e / x)), 4194304.0)
                                                      : to_grid(to_24(fabs(e / x)), 40), 1.0);
    mpt_exact_add(&r->ulps, to_grid(fabs(e / mpt_ulp(format, x)), 24), 1.0);
    mpt_exact_add(&r->bias, to_grid(e / mpt_ulp(format, x), 24), 1.0);
}

static void roundoff_from_is_reference(mpt_format from, const void *x, mpt_format format, const mpt_opts *o,
                                       int k, size_t n)
{
    static mpt_roundoff       got;
    static roundoff_reference want;
    mpt_roundoff_figures      g;
    mpt_opts                  each;
    uint64_t                  zero = 0, inf = 0, nan = 0;
    double                    counted;
    size_t                    i;
    memset(&want, 0, sizeof want);
    memset(&each, 0, sizeof each);
    if (o)
        each = *o;
    CHECK_EQ_I(mpt_roundoff_init(&got, format, o, k), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&got, from, x, n), MPT_OK);
    for (i = 0; i < n; i++) {
        const double   number = source(from, x, i);
        const uint64_t a = mpti_f64_bits(number) & ~(UINT64_C(1) << 63), top = UINT64_C(0x7ff) << 52;
        each.random = mpt_philox(each.seed, each.stream, each.step, each.first_element + i);
        zero += !a;
        inf += a == top;
        nan += a > top;
        if (a && a < top)
            reference_roundoff(&want, number, format, &each, k);
    }
    CHECK(got.count == n && got.zero == zero && got.inf == inf && got.nan == nan);
    CHECK_EQ_U(got.exact, want.exact);
    CHECK_EQ_U(got.changed, want.changed);
    CHECK_EQ_U(got.flushed, want.flushed);
    CHECK_EQ_U(got.overflow, want.overflow);
    CHECK_EQ_U(mpti_f64_bits(got.max_relative), mpti_f64_bits(want.max_relative));
    CHECK_EQ_U(mpti_f64_bits(got.max_ulps), mpti_f64_bits(want.max_ulps));
    CHECK_EQ_I(mpt_roundoff_get(&got, &g), MPT_OK);
    counted = (double)(want.exact + want.changed - want.overflow);
    if (counted == 0.0) {
        CHECK(mpti_f64_is_nan(g.mean_relative) && mpti_f64_is_nan(g.bias_ulps));
        return;
    }
    /* both means are of the same integer, rounded a few times */
    CHECK(fabs(g.mean_ulps - mpt_exact_value(&want.ulps) / counted) <= 2e-15 * g.mean_ulps);
    CHECK(fabs(g.bias_ulps - mpt_exact_value(&want.bias) / counted) <= 2e-15 * fabs(g.bias_ulps));
    CHECK(fabs(g.mean_relative - mpt_exact_value(&want.relative) / counted) <=
          1e-12 + 4e-16 * g.mean_relative);
    CHECK(mpt_exact_value(&got.signal) == mpt_exact_value(&want.signal));
    CHECK(mpt_exact_value(&got.noise) == mpt_exact_value(&want.noise));
    if (want.overflow)
        CHECK_EQ_U(mpti_f64_bits(g.sqnr_db), UINT64_C(0xfff0000000000000));
    else if (mpt_exact_value(&want.noise) > 0.0)
        CHECK(fabs(g.sqnr_db - 10.0 * log10(mpt_exact_value(&want.signal) / mpt_exact_value(&want.noise))) <
              1e-9);
    else
        CHECK_EQ_U(mpti_f64_bits(g.sqnr_db), UINT64_C(0x7ff0000000000000));
}

static void roundoff_is_reference(mpt_format format, const mpt_opts *o, int k, size_t n)
{
    roundoff_from_is_reference(MPT_F32, floats, format, o, k, n);
}

static double sqnr_of(mpt_format from, const void *x, size_t n)
{
    mpt_roundoff         r;
    mpt_roundoff_figures g;
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F16, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&r, from, x, n), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_get(&r, &g), MPT_OK);
    return g.sqnr_db;
}

/* The SQNR where sums of squares leave the range of doubles, where all overflows, and where all are zeros. */
TEST(roundoff_sqnr_at_the_ends)
{
    const double huge[] = {1e200, 1e-7}, tiny[] = {1e-170, -3e-200}, mixed[] = {1e-170, 1.0}, none[] = {0.0};
    const double lost[] = {5e-324, -1e-322};
    const float  over[] = {1e6f, -1e7f}, half[] = {1.0f, 1e-10f};
    mpt_roundoff         r;
    mpt_roundoff_figures g;
    CHECK_EQ_U(mpti_f64_bits(sqnr_of(MPT_F32, over, 2)), UINT64_C(0xfff0000000000000));
    CHECK_EQ_U(mpti_f64_bits(sqnr_of(MPT_F64, huge, 2)), UINT64_C(0xfff0000000000000));
    CHECK(fabs(sqnr_of(MPT_F64, tiny, 2)) < 1e-12);             /* all of it is lost: signal is noise */
    CHECK(fabs(sqnr_of(MPT_F64, mixed, 2) - 3400.0) < 1e-9);
    CHECK(fabs(sqnr_of(MPT_F32, half, 2) - 200.0) < 1e-5);
    CHECK(mpti_f64_is_nan(sqnr_of(MPT_F64, none, 1)));
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F32, NULL, 0), MPT_OK);
    flush_subnormals(1);
    {
        uint64_t bits[3] = {1234567, 99, UINT64_C(0x8000000000abcdef)};     /* subnormal doubles */
        double   x[3];
        memcpy(x, bits, sizeof x);
        CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F64, x, 3), MPT_OK);
    }
    CHECK_EQ_I(mpt_roundoff_get(&r, &g), MPT_OK);
    flush_subnormals(0);
    CHECK(r.flushed == 3 && g.max_relative == 1.0 && g.mean_relative == 1.0);
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F32, NULL, -10), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F64, lost, 2), MPT_OK);         /* the scale alone makes them 0 */
    CHECK_EQ_I(mpt_roundoff_get(&r, &g), MPT_OK);
    CHECK(r.changed == 2 && r.flushed == 2 && g.max_relative == 1.0 && g.mean_relative == 1.0);
    CHECK(g.sqnr_db == 0.0 && g.bias_ulps == 0.0 && mpt_exact_value(&r.signal) == 0.0);
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F64, NULL, -10), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F64, lost + 1, 1), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_get(&r, &g), MPT_OK);
    CHECK(r.flushed == 1 && g.max_ulps == 1.0 && g.bias_ulps == 1.0);   /* from -2^-1074 up to -0 */
}

TEST(roundoff_equals_a_slow_reference)
{
    const size_t many = 40000u / mt.every;
    int          format, rounding, kind;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
        for (rounding = 0; rounding < (int)MPT_ROUNDING_COUNT; rounding++) {
            mpt_opts o;
            memset(&o, 0, sizeof o);
            o.rounding = (mpt_rounding)rounding;
            o.overflow = rounding % 2 ? MPT_OVERFLOW_SATURATE : MPT_OVERFLOW_IEEE;
            o.seed = 7u;
            if (!has_report(format))
                continue;
            mt_context(mpt_format_get((mpt_format)format)->name, kind_name[rounding % KINDS]);
            kind = rounding % KINDS;
            floats_of_kind(kind, 600);
            roundoff_is_reference((mpt_format)format, &o, 0, 600);
            floats_of_kind(1, 600);
            roundoff_is_reference((mpt_format)format, &o, rounding * 7 - 20, 600);
            o.flush = MPT_FLUSH_RESULTS;
            roundoff_is_reference((mpt_format)format, &o, 0, 600);
        }
    for (kind = 0; kind < KINDS; kind++) {      /* the plain case, with many numbers */
        mt_context("f16", kind_name[kind]);
        floats_of_kind(kind, many);
        roundoff_is_reference(MPT_F16, NULL, 0, many);
        roundoff_is_reference(MPT_F16, NULL, 11, many);
        roundoff_is_reference(MPT_BF16, NULL, 0, many);
    }
}

/* x[0 .. n - 1] on every path, and as doubles, which are counted one by one: the same report. */
static void roundoff_on_every_path(mpt_format format, int log2_scale, const float *x, size_t n, uint64_t at)
{
    static mpt_roundoff whole, each;
    CHECK_EQ_I(mpt_convert_n(MPT_F64, doubles, MPT_F32, x, n, NULL, NULL), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_init(&each, format, NULL, log2_scale), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&each, MPT_F64, doubles, n), MPT_OK);
    for (last_path = 4; last_path >= 0; last_path = mpti_path() - 1) {
        CHECK_EQ_I(mpt_roundoff_init(&whole, format, NULL, log2_scale), MPT_OK);
        CHECK_EQ_I(mpt_roundoff_add(&whole, MPT_F32, x, n), MPT_OK);
        CHECK_EQ_U_AT(memcmp(&whole, &each, sizeof whole) != 0, 0, at);
    }
    last_path = 4;
}

TEST(roundoff_fast_is_plain)
{
    int    kind;
    size_t i, n = 33000;
    for (kind = 0; kind < KINDS + 2; kind++) {
        mt_context(kind < KINDS ? kind_name[kind] : "in f16's window", NULL);
        floats_of_kind(kind, n);
        for (i = 0; i < n && kind >= KINDS; i++)    /* with all bits or coarse, with ties */
            floats[i] = kind & 1 ? random_float(-30, 15)
                                 : mpti_f32_make(mpti_f32_bits(random_float(-30, 15)) & 0xfffff000u);
        floats[n / 2] = 65520.0f;       /* the smallest that overflows */
        roundoff_on_every_path(MPT_F16, 0, floats, n, (uint64_t)kind);
    }
}

/* Blocks that span each number of binades, at the top, in the middle and at the bottom, with all bits in use
 * at both ends: wide ones leave the fastest path. */
TEST(roundoff_of_wide_blocks)
{
    int    width, low;
    size_t i;
    for (width = 1; width <= 32; width++)
        for (low = -126; low + width <= 16; low += 29) {
            for (i = 0; i < 4300; i++)
                floats[i] = random_float(low, low + width);
            floats[7] = mpti_f32_make((uint32_t)(low + 127) << 23 | 1u);
            floats[8] = mpti_f32_make((uint32_t)(low + width + 126) << 23 | 0x7fdfffu);
            roundoff_on_every_path(MPT_F16, 0, floats, 4300, (uint64_t)(width * 1000 + low));
        }
}

/* Every format, with scales, on numbers around its range: some are counted by blocks, others are not. */
TEST(roundoff_of_every_format)
{
    static const int scales[] = {0, 1, -9, 40, -40, 126, -126, 127};
    size_t           i, k;
    int              format;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
        for (k = 0; k < COUNT(scales) && has_report(format); k++) {
            const mpt_format_info *f = mpt_format_get((mpt_format)format);
            const int top = (f->emax < 120 ? f->emax : 120) - scales[k], low = top - 26 - (int)k % 3;
            mt_context(f->name, NULL);
            for (i = 0; i < 2500; i++)          /* the first block stays below the largest number */
                floats[i] = random_float(low < -126 ? -126 : low > 100 ? 100 : low,
                                         (top < -120 ? -120 : top > 127 ? 127 : top) + (i > 1500));
            floats[5] = 0.0f;
            floats[6] = mpti_f32_make(0x80000000u);
            roundoff_on_every_path((mpt_format)format, scales[k], floats, 2500, (uint64_t)k);
        }
}

/* So many equal numbers that sums would overflow if they were not carried in time: the largest number, with
 * the largest square; and ties, which have the largest errors, all of one sign. */
TEST(roundoff_of_very_many)
{
    enum { LOTS = 70000 };
    static const uint32_t equal[] = {0x477fefffu, 0x3fffffffu, 0x3f803000u, 0xbf801000u, 0x3f802fffu,
                                     0x33000001u, 0x33000000u, 0x32ffffffu, 0x00800000u, 0x80ffffffu,
                                     0x80000000u};
    static float          lots[LOTS];
    size_t                i, k;
    for (k = 0; k < COUNT(equal); k++) {
        for (i = 0; i < LOTS; i++)
            lots[i] = mpti_f32_make(equal[k]);
        roundoff_on_every_path(MPT_F16, 0, lots, LOTS, equal[k]);
    }
}

/* Every significand of FP32 in each binade where f16 drops another number of bits; sampled unless --long. */
TEST(roundoff_of_all_mantissas)
{
    const uint32_t stride = mt.long_mode ? 1u : 1009u;
    uint32_t       field, m;
    for (field = 99u; field <= 114u; field++)
        for (m = field; m < 0x800000u; ) {
            size_t n = 0;
            for (; n < MANY && m < 0x800000u; m += stride)
                floats[n++] = mpti_f32_make((m & 1u) << 31 | field << 23 | m);
            roundoff_on_every_path(MPT_F16, 0, floats, n, field);
        }
}

/* A number that the format holds is exact in it. */
TEST(roundoff_of_all_halves)
{
    static mpt_f16       h[65536];
    static mpt_roundoff  r;
    mpt_roundoff_figures g;
    size_t               i;
    for (i = 0; i < 65536; i++)
        h[i].bits = (uint16_t)i;
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F16, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F16, h, 65536), MPT_OK);
    CHECK(r.exact == 63486 && r.changed == 0 && r.zero == 2 && r.inf == 2 && r.nan == 2046);
    CHECK_EQ_I(mpt_roundoff_get(&r, &g), MPT_OK);
    CHECK(g.mean_ulps == 0.0 && g.bias_ulps == 0.0 && g.max_relative == 0.0);
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F16, NULL, 1), MPT_OK);     /* doubled: the top binade overflows */
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F16, h, 65536), MPT_OK);
    CHECK(r.overflow == 2048 && r.changed == 2048);
}

/* All patterns of f16 and of bf16, rounded to every narrower format. */
TEST(roundoff_of_all_patterns_elsewhere)
{
    const size_t step = mt.every > 1u ? 7u : 1u;
    int          format;
    size_t       i, n;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        if (!has_report(format) || mpt_format_get((mpt_format)format)->bits > 16)
            continue;
        mt_context(mpt_format_get((mpt_format)format)->name, "all patterns");
        for (i = n = 0; i < 65536; i += step)
            floats[n++] = mpti_f32_make((uint32_t)i << 16);
        roundoff_is_reference((mpt_format)format, NULL, 0, n);
        for (i = n = 0; i < 65536; i += step)
            floats[n++] = (float)mpt_decode(MPT_F16, i);
        roundoff_is_reference((mpt_format)format, NULL, format % 5 - 2, n);
    }
}

/* From every source format, and from doubles with more bits than a float, to wide and narrow formats, also
 * stochastically. What is no source format is refused and counts nothing. */
TEST(roundoff_from_every_source)
{
    static const mpt_format formats[] = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_F32};
    static mpt_roundoff     r, was;
    mpt_opts                o;
    size_t                  i, k;
    int                     format;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    o.seed = 5u;
    for (format = 0; format <= (int)MPT_FORMAT_COUNT + 1; format++) {
        const mpt_format       from = (mpt_format)format;
        const mpt_format_info *f = mpt_format_get(from);
        const void            *x;
        const size_t           n = source_numbers(f ? from : MPT_F32, &x);
        for (i = 0; i < 3000 && from == MPT_F64; i++)   /* squares of any doubles would leave the range */
            doubles[i] = ldexp((double)(int64_t)(mt_random() >> 1) - 4.6e18, (int)(mt_random() % 900u) - 500);
        for (i = 0; i < 8 && from == MPT_F64; i++)      /* zeros, Inf, NaN */
            doubles[600 * i] = mpti_f64_make((uint64_t)(i & 1u) << 63 | (i < 2 ? 0u : UINT64_C(0x7ff) << 52) |
                                             (i < 4 ? 0u : i < 6 ? 1u : UINT64_C(1) << 51));
        mt_context(f ? f->name : "no format", NULL);
        if (!f || from == MPT_E8M0 || from == MPT_TF32) {
            CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F16, NULL, 0), MPT_OK);
            was = r;
            CHECK_EQ_I(mpt_roundoff_add(&r, from, x, n), MPT_E_UNSUPPORTED);
            CHECK(!memcmp(&r, &was, sizeof r));
            continue;
        }
        for (k = (size_t)format % COUNT(formats) % mt.every; k < COUNT(formats); k += mt.every)
            roundoff_from_is_reference(from, x, formats[k], NULL, k == 0 ? 3 : 0, n);
        roundoff_from_is_reference(from, x, MPT_E5M2, &o, 0, n);
    }
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F16, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_add(NULL, MPT_F32, floats, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F16, NULL, 0), MPT_OK);
    CHECK(!memcmp(&r, &was, sizeof r));
}

TEST(roundoff_merges_in_any_order)
{
    static mpt_roundoff part[4], whole;
    int                 round;
    for (round = 0; round < 30; round++) {
        const size_t n = 1u + (size_t)(mt_random() % 3000u);
        size_t       i, cut[5], parts = 4;
        mpt_opts     o;
        memset(&o, 0, sizeof o);
        o.rounding = (mpt_rounding)(round % (int)MPT_ROUNDING_COUNT);
        o.seed = 99u;
        o.first_element = 1000u;
        floats_of_kind(round % KINDS, n);
        CHECK_EQ_I(mpt_roundoff_init(&whole, MPT_F16, &o, round % 5), MPT_OK);
        CHECK_EQ_I(mpt_roundoff_add(&whole, MPT_F32, floats, n), MPT_OK);
        cut[0] = 0;
        for (i = 1; i < 4; i++)
            cut[i] = cut[i - 1] + (size_t)(mt_random() % (n - cut[i - 1] + 1u));
        cut[4] = n;
        for (i = 0; i < 4; i++) {
            o.first_element = 1000u + cut[i];
            CHECK_EQ_I(mpt_roundoff_init(&part[i], MPT_F16, &o, round % 5), MPT_OK);
            CHECK_EQ_I(mpt_roundoff_add(&part[i], MPT_F32, floats + cut[i], cut[i + 1] - cut[i]), MPT_OK);
        }
        for (; parts > 1; parts--) {
            const size_t a = (size_t)(mt_random() % parts), b = (a + 1u) % parts;
            CHECK_EQ_I(mpt_roundoff_merge(&part[a], &part[b]), MPT_OK);
            part[b] = part[parts - 1];
            if (a == parts - 1)
                part[b] = part[a];
        }
        mt_context(kind_name[round % KINDS], NULL);
        CHECK(!memcmp(&part[0], &whole, sizeof whole));
    }
    CHECK_EQ_I(mpt_roundoff_init(&part[0], MPT_BF16, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_merge(&part[0], &whole), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_merge(&part[0], NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_init(&part[0], MPT_E8M0, NULL, 0), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_roundoff_init(&part[0], MPT_F16, NULL, 1001), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_init(&part[0], MPT_F16, NULL, -1001), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_init(NULL, MPT_F16, NULL, 0), MPT_E_ARG);
    {
        const uint32_t word = 0u;
        mpt_opts       o;
        memset(&o, 0, sizeof o);
        o.rounding = MPT_ROUNDING_COUNT;
        CHECK_EQ_I(mpt_roundoff_init(&part[0], MPT_F16, &o, 0), MPT_E_ARG);
        o.rounding = MPT_RND_UP;
        o.flush = 4u;
        CHECK_EQ_I(mpt_roundoff_init(&part[0], MPT_F16, &o, 0), MPT_E_ARG);
        o.flush = 0u;
        o.randoms = &word;
        CHECK_EQ_I(mpt_roundoff_init(&part[0], MPT_F16, &o, 0), MPT_E_ARG);
    }
    CHECK_EQ_I(mpt_roundoff_add(&part[0], MPT_F32, floats, 1), MPT_E_ARG);     /* a refused init zeroed it */
    CHECK_EQ_I(mpt_roundoff_add(&whole, MPT_E8M0, floats, 1), MPT_E_UNSUPPORTED);
}

/* ---- stagnation ---- */

TEST(stagnation_known)
{
    static const float w[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 0.0f, 65504.0f, 1.0f, 1.0f};
    float              u[10];
    mpt_stagnation     r, half;
    int                factor = 99;
    u[0] = ldexpf(1.0f, -11);           /* half a gap: a tie, rounds to the even 1 */
    u[1] = ldexpf(1.25f, -11);          /* rounds up to a whole gap */
    u[2] = -ldexpf(1.0f, -12);          /* half of the smaller gap below: lost */
    u[3] = -ldexpf(1.5f, -12);
    u[4] = ldexpf(1.25f, -10);          /* rounds to one gap */
    u[5] = 0.0f;
    u[6] = ldexpf(1.0f, -24);           /* the smallest subnormal */
    u[7] = 100.0f;                      /* overflows */
    u[8] = mpti_f32_make(0x7fc00000u);
    u[9] = ldexpf(1.0f, -30);
    CHECK_EQ_I(mpt_stagnation_init(&r, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_add(&r, w, u, 10), MPT_OK);
    CHECK(r.count == 10 && r.none == 2 && r.lost == 3 && r.half_lost == 4 && r.overflow == 1);
    CHECK_EQ_U(r.sign_wrong, 0);
    CHECK(r.margin[64] == 4 && r.margin[65] == 2 && r.margin[64 - 19] == 1 && r.margin[66] == 1);
    CHECK_EQ_I(mpt_stagnation_vanishing(&r, 0.5, &factor), MPT_OK);
    CHECK_EQ_I(factor, -1);
    CHECK_EQ_I(mpt_stagnation_vanishing(&r, 0.125, &factor), MPT_OK);
    CHECK_EQ_I(factor, 18);
    {                                   /* a tie that an update far below the last bit of a double decides */
        const float tie = 1.0f + ldexpf(1.0f, -11), tiny = ldexpf(1.0f, -100), less = -tiny;
        CHECK_EQ_I(mpt_stagnation_init(&half, MPT_F16), MPT_OK);
        CHECK_EQ_I(mpt_stagnation_add(&half, &tie, &tiny, 1), MPT_OK);
        CHECK_EQ_U(half.lost, 0);
        CHECK_EQ_I(mpt_stagnation_add(&half, &tie, &less, 1), MPT_OK);
        CHECK_EQ_U(half.lost, 1);
        CHECK_EQ_I(mpt_stagnation_init(&half, MPT_F64), MPT_OK);       /* f64 cannot hold the update */
        CHECK_EQ_I(mpt_stagnation_add(&half, &tie, &tiny, 1), MPT_OK);
        CHECK_EQ_I(mpt_stagnation_add(&half, &tie, &less, 1), MPT_OK);
        CHECK_EQ_U(half.lost, 2);
    }
    CHECK_EQ_I(mpt_stagnation_vanishing(&r, 0.0, &factor), MPT_E_ARG);
    CHECK_EQ_I(mpt_stagnation_init(&half, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_vanishing(&half, 0.5, &factor), MPT_E_DATA);
    CHECK_EQ_I(mpt_stagnation_add(&half, w, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_stagnation_init(&half, MPT_E8M0), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_stagnation_add(&half, w, w, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_stagnation_init(&half, MPT_BF16), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_merge(&half, &r), MPT_E_ARG);
}

/* The ends of the histogram of margins. */
TEST(stagnation_margin_ends)
{
    const float    w[2] = {1.0f, 1.0f}, u[2] = {ldexpf(1.0f, -100), ldexpf(1.0f, 100)};
    mpt_stagnation r, other;
    int            factor = 0;
    (void)mpt_stagnation_init(&r, MPT_F16);
    other = r;
    CHECK_EQ_I(mpt_stagnation_add(&other, w, u, 1), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_merge(&r, &other), MPT_OK);
    CHECK_EQ_U(r.margin[0], 1);
    CHECK_EQ_I(mpt_stagnation_vanishing(&r, 0.5, &factor), MPT_OK);
    CHECK_EQ_I(factor, 64);
    CHECK_EQ_I(mpt_stagnation_add(&r, w + 1, u + 1, 1), MPT_OK);
    CHECK(r.margin[127] == 1 && r.overflow == 1);
    CHECK_EQ_I(mpt_stagnation_vanishing(&r, 1.0, &factor), MPT_OK);
    CHECK_EQ_I(factor, -64);
}

/* a + x y rounded once to a format: an exact sum, rounded to double, where the remainder decides a tie. */
static double sum_rounded_once(mpt_format format, double a, double x, double y)
{
    mpt_exact e;
    double    s, left;
    memset(&e, 0, sizeof e);
    mpt_exact_add(&e, a, 1.0);
    mpt_exact_add(&e, x, y);
    s = mpt_exact_value(&e);
    mpt_exact_add(&e, -s, 1.0);
    left = mpt_exact_value(&e);
    if (mpti_f64_is_finite(s) && !mpti_f64_is_zero(left) && !(mpti_f64_bits(s) & 1u))
        s = mpti_f64_make((left < 0.0) == (s < 0.0) ? mpti_f64_bits(s) + 1u : mpti_f64_bits(s) - 1u);
    return mpt_decode(format, mpt_encode(format, s, NULL, NULL));
}

/* Half of the gap next to w, a number of the format, on the side of u: computed from w's neighbour. */
static double half_gap(mpt_format format, double w, double u)
{
    const uint64_t code = mpt_encode(format, fabs(w), NULL, NULL);
    const int      inward = (w < 0.0) != (u < 0.0) && w != 0.0;
    const double   next = mpt_decode(format, inward ? code - 1u : code + 1u);
    return mpti_f64_is_finite(next) ? fabs(next - fabs(w)) / 2.0 : mpt_ulp(format, w) / 2.0;
}

/* Weights of every pattern of the format, and updates of every size: each figure by exact sums. */
static void stagnation_is_reference(mpt_format format)
{
    static float   w[65536], u[65536];
    const int      bits = mpt_format_get(format)->bits;
    const size_t   n = (bits == 16 ? 65536u : 16384u) / mt.every;
    mpt_stagnation got, want, part[3];
    size_t         i;
    mt_context(mpt_format_get(format)->name, NULL);
    memset(&want, 0, sizeof want);
    CHECK_EQ_I(mpt_stagnation_init(&want, format), MPT_OK);
    got = part[0] = part[1] = part[2] = want;
    for (i = 0; i < n; i++) {
        double before, after, moved;
        int    e;
        w[i] = (float)mpt_decode(format, bits > 16 ? mt_random() >> (64 - bits)
                                                   : (i * (mt.every | 1u)) & ((1u << bits) - 1u));
        if (i % 3 == 1)                 /* or between two patterns */
            w[i] *= 1.0f + random_float(-13, -6);
        u[i] = i % 5 == 4 ? number_of_kind(0) : w[i] * random_float(-16, 2);
        if (i % 5 == 3)                 /* a tie, or next to one */
            u[i] = mpti_f32_make(mpti_f32_bits((float)half_gap(format, (double)w[i], 1.0)) +
                                 (uint32_t)(i % 3) - 1u);
        if (i % 7 == 0)
            u[i] = -u[i];
        if (i == n / 2)                 /* overflows */
            w[i] = u[i] = (float)mpt_format_get(format)->max_finite;
#ifdef __FAST_MATH__                    /* the reference, not mpt.h, reads subnormal floats as zeros then */
        if (fabsf(w[i]) < FLT_MIN)
            w[i] = 0.0f;
        if (fabsf(u[i]) < FLT_MIN)
            u[i] = 0.0f;
#endif
        want.count++;
        before = sum_rounded_once(format, (double)w[i], 0.0, 0.0);
        if (!mpti_f64_is_finite((double)w[i]) || !mpti_f64_is_finite((double)u[i]) || u[i] == 0.0f ||
            !mpti_f64_is_finite(before)) {
            want.none++;
            continue;
        }
        (void)frexp(fabs((double)u[i]) / half_gap(format, before, (double)u[i]), &e);
        want.margin[e - 1 < -64 ? 0 : e - 1 > 63 ? 127 : e - 1 + 64]++;
        after = sum_rounded_once(format, (double)w[i], (double)u[i], 1.0);
        if (!mpti_f64_is_finite(after)) {
            want.overflow++;
            continue;
        }
        moved = after - before;
        want.lost += moved == 0.0;
        want.half_lost += fabs(moved - (double)u[i]) * 2.0 >= fabs((double)u[i]);
        moved = after - (double)w[i];
        want.sign_wrong += moved != 0.0 && (moved < 0.0) != (u[i] < 0.0f);
    }
    CHECK_EQ_I(mpt_stagnation_add(&got, w, u, n), MPT_OK);
    CHECK(!memcmp(&got, &want, sizeof got));
    CHECK(want.none && want.lost && want.half_lost && want.sign_wrong && want.overflow);
    for (i = 0; i < n; i += 64)
        CHECK_EQ_I(mpt_stagnation_add(&part[mt_random() % 3u], w + i, u + i, 64), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_merge(&part[2], &part[0]), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_merge(&part[1], &part[2]), MPT_OK);
    CHECK(!memcmp(&part[1], &want, sizeof want));
}

TEST(stagnation_of_all_patterns)
{
    stagnation_is_reference(MPT_F16);
    stagnation_is_reference(MPT_BF16);
    stagnation_is_reference(MPT_TF32);
    stagnation_is_reference(MPT_E5M2);
    stagnation_is_reference(MPT_E4M3);
    stagnation_is_reference(MPT_E4M3FNUZ);
}

/* ---- sums ---- */

/* Where the processor takes subnormals for 0, the exact sum does not. */
TEST(sums_flushed)
{
    static mpt_sums  s;
    mpt_sums_figures g;
    float            x[2], y[2];
    x[0] = mpti_f32_make(70000u), x[1] = mpti_f32_make(0x80000001u);
    y[0] = 2.0f, y[1] = 1.0f;
    memset(&s, 0, sizeof s);
    flush_subnormals(1);
    CHECK_EQ_I(mpt_sums_add(&s, x, NULL, 2, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_add(&s, x, y, 1, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    flush_subnormals(0);
    CHECK(g.exact == ldexp(209999.0, -149) && g.condition == 210001.0 / 209999.0);
}

TEST(sums_known)
{
    static mpt_sums  s;
    static float     ones[5000];
    mpt_sums_figures g;
    size_t           i;
    for (i = 0; i < COUNT(ones); i++)
        ones[i] = 1.0f;
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, ones, NULL, 300, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    CHECK(g.value[MPT_SUM_BF16] == 256.0 && g.value[MPT_SUM_F16] == 300.0 && g.error[MPT_SUM_BF16] == -44.0);
    CHECK_EQ_I(mpt_sums_add(&s, ones, ones, 4700, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    CHECK(g.exact == 5000.0 && g.condition == 1.0 && g.value[MPT_SUM_F16] == 2048.0);
    for (i = 0; i < MPT_SUM_METHOD_COUNT; i++)
        if (i != MPT_SUM_F16 && i != MPT_SUM_BF16)
            CHECK(g.value[i] == 5000.0 && g.error[i] == 0.0);
    ones[0] = 1e8f;
    ones[2] = -1e8f;                    /* 1e8 + 1 - 1e8: only Neumaier and double keep the 1 */
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, ones, NULL, 3, 1), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    CHECK(g.exact == 1.0 && g.value[MPT_SUM_NEUMAIER] == 1.0 && g.value[MPT_SUM_F64] == 1.0);
    CHECK(g.value[MPT_SUM_F32] == 0.0 && g.value[MPT_SUM_PAIRWISE] == 0.0 && g.condition == 200000001.0);
    CHECK(!mpti_f64_is_finite(g.value[MPT_SUM_F16]));
    ones[3] = 3.0f;                     /* the 3 comes last, or first, where it is lost */
    memset(&s, 0, sizeof s);
    (void)mpt_sums_add(&s, ones, NULL, 4, 0);
    CHECK(s.f32 == 3.0f);
    memset(&s, 0, sizeof s);
    (void)mpt_sums_add(&s, ones, NULL, 4, 1);
    CHECK(s.f32 == 0.0f);
    ones[0] = ldexpf(1.0f, -8) + ldexpf(1.0f, -28);     /* above a tie in bf16, by less than a float holds */
    ones[2] = ldexpf(1.0f, -11) + ldexpf(1.0f, -30);    /* and in f16 */
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, ones, NULL, 2, 1), MPT_OK);
    CHECK(s.bf16 == 1.0 + ldexp(1.0, -7) && s.f16 == 1.0 + ldexp(1.0, -8));
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, ones + 1, NULL, 2, 0), MPT_OK);
    CHECK(s.bf16 == 1.0 && s.f16 == 1.0 + ldexp(1.0, -10));
    ones[0] = mpti_f32_make(0x7f800000u);
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, ones, NULL, 2, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    CHECK_EQ_U(mpti_f64_bits(g.exact), UINT64_C(0x7ff0000000000000));
    CHECK(mpti_f64_is_nan(g.error[MPT_SUM_F32]) && mpti_f64_is_nan(g.error[MPT_SUM_F64]));
    CHECK_EQ_I(mpt_sums_add(&s, NULL, NULL, 1, 0), MPT_E_ARG);
    CHECK_EQ_I(mpt_sums_add(NULL, ones, NULL, 1, 0), MPT_E_ARG);
    CHECK_EQ_I(mpt_sums_get(&s, NULL), MPT_E_ARG);
    CHECK_EQ_S(mpt_sum_method_name(MPT_SUM_KAHAN), "Kahan");
    CHECK_EQ_S(mpt_sum_method_name(MPT_SUM_METHOD_COUNT), "unknown");
}

/* The f16 and bf16 sums round each sum once; the other methods are compared with plain loops. */
TEST(sums_equal_plain_loops)
{
    static mpt_sums  s;
    static float     x[3000], y[3000];
    mpt_sums_figures g;
    double           f16 = 0.0, bf16 = 0.0, f64 = 0.0;
    float            f32 = 0.0f, block = 0.0f, blocks = 0.0f;
    size_t           i;
    for (i = 0; i < COUNT(x); i++) {
        x[i] = random_float(-6, 3);
        y[i] = random_float(-6, 3);
    }
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, x, y, 1000, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_add(&s, x + 1000, y + 1000, 2000, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    for (i = 0; i < COUNT(x); i++) {
        const double          p = (double)x[i] * (double)y[i];
        const volatile double next = f64 + p;
        f64 = next;
        f16 = sum_rounded_once(MPT_F16, f16, (double)x[i], (double)y[i]);
        bf16 = sum_rounded_once(MPT_BF16, bf16, (double)x[i], (double)y[i]);
        f32 = fmaf(x[i], y[i], f32);
        block = fmaf(x[i], y[i], block);
        if (i % MPT_SUM_BLOCK == MPT_SUM_BLOCK - 1) {
            blocks += block;
            block = 0.0f;
        }
    }
    CHECK(g.value[MPT_SUM_F16] == f16 && g.value[MPT_SUM_BF16] == bf16);
    CHECK(g.value[MPT_SUM_F32] == (double)f32);
    blocks += block;
    CHECK(g.value[MPT_SUM_BLOCKS] == (double)blocks);
    CHECK(g.value[MPT_SUM_F64] == f64);
    CHECK(fabs(g.error[MPT_SUM_F64]) <= 1e-10 * fabs(g.exact));
    CHECK(fabs(g.error[MPT_SUM_NEUMAIER]) <= 1e-4 && fabs(g.error[MPT_SUM_KAHAN]) <= 1e-4);
    CHECK(fabs(g.error[MPT_SUM_F32] - ((double)f32 - g.exact)) <= 1e-15 * fabs(g.exact));
}

/* The careful methods against plain loops. */
static void careful_sums_are_loops(const float *x, size_t n)
{
    static mpt_sums  s;
    static float     level[20][MANY];
    mpt_sums_figures g;
    volatile float   kahan = 0.0f, rest = 0.0f, neumaier = 0.0f, carry = 0.0f, pairwise = 0.0f, t, y;
    double           f16 = 0.0, bf16 = 0.0;
    size_t           i, k, m = n;
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, x, NULL, n, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    for (i = 0; i < n; i++) {
        y = x[i] - rest;
        t = kahan + y;
        rest = t - kahan;
        rest = rest - y;
        kahan = t;
        t = neumaier + x[i];
        y = fabsf(neumaier) >= fabsf(x[i]) ? neumaier - t : x[i] - t;
        y = y + (fabsf(neumaier) >= fabsf(x[i]) ? x[i] : neumaier);
        carry = carry + y;
        neumaier = t;
        f16 = sum_rounded_once(MPT_F16, f16, (double)x[i], 1.0);
        bf16 = sum_rounded_once(MPT_BF16, bf16, (double)x[i], 1.0);
        level[0][i] = x[i];
    }
    neumaier = neumaier + carry;
    for (k = 0; m; k++, m /= 2) {       /* trees of 2^k terms; a term without a neighbour waits */
        for (i = 0; i + 1 < m; i += 2)
            level[k + 1][i / 2] = level[k][i] + level[k][i + 1];
        if (m & 1u)
            pairwise = level[k][m - 1] + pairwise;
    }
    CHECK(g.value[MPT_SUM_KAHAN] == (double)kahan);
    CHECK(g.value[MPT_SUM_NEUMAIER] == (double)neumaier);
    CHECK(g.value[MPT_SUM_PAIRWISE] == (double)pairwise);
    CHECK(g.value[MPT_SUM_F16] == f16 || (mpti_f64_is_nan(f16) && mpti_f64_is_nan(g.value[MPT_SUM_F16])));
    CHECK(g.value[MPT_SUM_BF16] == bf16);
}

TEST(sums_by_careful_loops)
{
    size_t i, n = 0;
    for (i = 0; i < 65536; i++)
        if ((i & 0x7c00u) != 0x7c00u)
            floats[n++] = (float)mpt_decode(MPT_F16, i);
    for (i = n; i-- > 1; ) {
        const size_t j = (size_t)(mt_random() % (i + 1u));
        const float  swap = floats[i];
        floats[i] = floats[j];
        floats[j] = swap;
    }
    careful_sums_are_loops(floats, n / mt.every);
    for (i = 0; i < 3001; i++)
        floats[i] = random_float(-30, 5);
    careful_sums_are_loops(floats, 3001);
    for (i = 0; i < 3001; i++)          /* the sum so far is not always the larger operand */
        floats[i] = (i & 1u ? -1.0f : 1.0f) * random_float(0, 1 + (int)(i % 20u));
    careful_sums_are_loops(floats, 3001);
}

/* A long sum: the naive methods lose digits, the careful ones do not. */
TEST(sums_growth)
{
    static mpt_sums  s;
    mpt_sums_figures g;
    size_t           i;
    for (i = 0; i < MANY; i++)
        floats[i] = 0.1f;
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, floats, NULL, MANY, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
    CHECK(g.exact == (double)MANY * (double)floats[0]);
    CHECK(g.relative[MPT_SUM_F16] > 0.9 && g.relative[MPT_SUM_F32] > 1e-5);
    CHECK(g.relative[MPT_SUM_PAIRWISE] < 3e-7 && g.relative[MPT_SUM_BLOCKS] < 1e-5);
    CHECK(g.relative[MPT_SUM_KAHAN] < 1.2e-7 && g.relative[MPT_SUM_NEUMAIER] < 1e-6);
    CHECK(g.relative[MPT_SUM_F64] < 1e-12);
}

/* ---- shadow ---- */

/* Applies an operation: + - * / or r, the root of a. */
static mpt_shadowed shadow(mpt_shadow *s, char op, mpt_shadowed a, mpt_shadowed b)
{
    static const char   signs[] = "+-*/r";
    const mpt_shadow_op ops[] = {MPT_SHADOW_OP_ADD, MPT_SHADOW_OP_SUB, MPT_SHADOW_OP_MUL, MPT_SHADOW_OP_DIV,
                                 MPT_SHADOW_OP_SQRT};
    return mpt_shadow_apply(s, ops[strchr(signs, op) - signs], a, b, a);
}

TEST(shadow_names_the_cause)
{
    mpt_shadow   s;
    mpt_shadowed a, b, c;
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 0.01), MPT_OK);
    a = mpt_shadow_value(&s, 1.0003);           /* 1 in f16 */
    b = mpt_shadow_value(&s, 1.0);
    CHECK(a.low == 1.0 && a.exact == 1.0003 && s.causes[MPT_SHADOW_ROUNDING] == 1 && !s.first.at);
    c = mpt_shadow_value(&s, 1.002);
    c = shadow(&s, '-', c, b);                  /* cancellation shows the earlier rounding: off by 1 in 40 */
    CHECK_EQ_I(s.first.cause, MPT_SHADOW_CANCELLATION);
    CHECK(s.first.op == MPT_SHADOW_OP_SUB && s.first.at == 4 && s.first.cancelled >= 8);
    CHECK(s.worst.at == 4 && c.low == ldexp(1.0, -9) && fabs(c.exact - 0.002) < 1e-15);

    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 0.01), MPT_OK);
    a = mpt_shadow_value(&s, 2048.0);
    b = mpt_shadow_value(&s, 1.0);
    c = shadow(&s, '+', a, b);
    CHECK(c.low == 2048.0 && c.exact == 2049.0);
    CHECK_EQ_U(s.causes[MPT_SHADOW_ABSORPTION], 1);

    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 0.01), MPT_OK);
    a = mpt_shadow_value(&s, ldexp(1.0, -14));
    c = shadow(&s, '*', a, a);
    CHECK(c.low == 0.0 && s.first.cause == MPT_SHADOW_UNDERFLOW && s.first.op == MPT_SHADOW_OP_MUL);
    b = mpt_shadow_value(&s, 5e-8);          /* subnormal and inexact: 2^-24 */
    CHECK(b.low == ldexp(1.0, -24) && s.causes[MPT_SHADOW_UNDERFLOW] == 2);
    (void)mpt_shadow_value(&s, ldexp(3.0, -24));        /* subnormal and exact */
    (void)mpt_shadow_value(&s, 1.0001);
    CHECK(s.causes[MPT_SHADOW_UNDERFLOW] == 2 && s.causes[MPT_SHADOW_ROUNDING] == 1);
    c = shadow(&s, '/', a, c);               /* a division by 0 in f16 only */
    CHECK(!mpti_f64_is_finite(c.low) && c.exact == ldexp(1.0, 14));
    CHECK_EQ_U(s.causes[MPT_SHADOW_INVALID], 1);

    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 0.01), MPT_OK);
    a = mpt_shadow_value(&s, 300.0);
    c = shadow(&s, '*', a, a);
    CHECK(s.first.cause == MPT_SHADOW_OVERFLOW && c.exact == 90000.0 && !mpti_f64_is_finite(s.first.after));
    c = shadow(&s, 'r', mpt_shadow_value(&s, -1.0), a);
    CHECK_EQ_U(s.causes[MPT_SHADOW_INVALID], 1);
    CHECK(mpti_f64_is_nan(c.low) && mpti_f64_is_nan(c.exact));
    CHECK_EQ_U(s.operations, 4);
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 0.01), MPT_OK);
    (void)shadow(&s, 'r', mpt_shadow_value(&s, -1.0), a);       /* the same in double is no excuse */
    CHECK(s.first.at == 2 && s.first.cause == MPT_SHADOW_INVALID);

    CHECK_EQ_I(mpt_shadow_init(&s, MPT_E2M1, 0.01), MPT_OK);    /* saturates at 6 */
    b = mpt_shadow_value(&s, 6.9);
    c = shadow(&s, '*', b, b);
    (void)mpt_shadow_value(&s, HUGE_VAL);
    CHECK(c.low == 6.0 && s.causes[MPT_SHADOW_ROUNDING] == 1 && s.causes[MPT_SHADOW_OVERFLOW] == 2);
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_UE4M3, 0.01), MPT_OK);   /* has no sign */
    c = shadow(&s, '-', mpt_shadow_value(&s, 1.0), mpt_shadow_value(&s, 5.0));
    CHECK(mpti_f64_is_nan(c.low) && s.causes[MPT_SHADOW_INVALID] == 1 && s.causes[MPT_SHADOW_OVERFLOW] == 0);
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_E4M3FNUZ, 0.01), MPT_OK);        /* has no -0, which is no error */
    c = shadow(&s, '*', mpt_shadow_value(&s, -0.0), mpt_shadow_value(&s, 5.0));
    CHECK_EQ_U(s.causes[MPT_SHADOW_NONE], 3);

    CHECK_EQ_I(mpt_shadow_init(NULL, MPT_F16, 0.01), MPT_E_ARG);
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 0.0), MPT_E_ARG);
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F64, 0.01), MPT_E_UNSUPPORTED);
    CHECK(mpti_f64_is_nan(mpt_shadow_value(&s, 1.0).low) && !s.operations);
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 0.01), MPT_OK);
    a.low = 5.0;
    a = mpt_shadow_apply(&s, MPT_SHADOW_OP_VALUE, a, b, b);     /* the value is a's shadow */
    CHECK(a.low == 300.0 && a.exact == 300.0 && s.operations == 1);
    a = mpt_shadow_apply(&s, MPT_SHADOW_OP_COUNT, a, b, b);
    CHECK(mpti_f64_is_nan(a.low) && mpti_f64_is_nan(a.exact) && s.operations == 1);
    CHECK_EQ_S(mpt_shadow_cause_name(MPT_SHADOW_CANCELLATION), "catastrophic cancellation");
    CHECK_EQ_S(mpt_shadow_op_name(MPT_SHADOW_OP_FMA), "fma");
    CHECK_EQ_S(mpt_shadow_op_name((mpt_shadow_op)7), "unknown");
}

static mpt_shadowed pair_of(double low, double exact)
{
    mpt_shadowed v;
    v.low = low;
    v.exact = exact;
    return v;
}

/* What a run keeps: the first operation that left the tolerance, if its inputs had not left it; the operation
 * that added most error, not the one with the worst result. And causes that look alike. */
TEST(shadow_events_and_causes)
{
    const mpt_shadowed one = pair_of(1.0, 1.0);
    mpt_shadow         s;
    mpt_shadowed       a;
    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    (void)shadow(&s, '-', pair_of(1.5, 1.0), pair_of(0.0400390625, 0.0400390625));
    CHECK(!s.first.at && s.worst.at == 1 && s.worst.before == 0.5 && s.worst.after > 0.51);
    (void)shadow(&s, '-', pair_of(1.001953125, 1.002), one);
    CHECK_EQ_U(s.first.at, 2);
    CHECK(s.worst.at == 2 && s.worst.after < 0.1);
    (void)shadow(&s, '-', pair_of(1.5, 1.0), pair_of(0.0400390625, 0.0400390625));
    CHECK_EQ_U(s.worst.at, 2);
    (void)shadow(&s, '*', pair_of(300.0, 300.0), pair_of(300.0, 300.0));
    CHECK(s.first.at == 2 && s.worst.at == 4);

    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    (void)shadow(&s, '+', pair_of(mpti_f64_make(UINT64_C(0x7ff0000000000000)), 90000.0), one);
    CHECK_EQ_U(s.causes[MPT_SHADOW_NONE], 1);        /* it was lost before */
    a = mpt_shadow_value(&s, -HUGE_VAL);
    a = shadow(&s, '-', a, a);
    CHECK_EQ_U(s.causes[MPT_SHADOW_INVALID], 1);     /* Inf - Inf makes a NaN ... */
    (void)shadow(&s, '-', a, one);
    CHECK_EQ_U(s.causes[MPT_SHADOW_INVALID], 1);     /* ... which then stays one */
    (void)shadow(&s, '-', pair_of(0.25, 0.25), pair_of(2048.0, 2048.0));
    CHECK_EQ_U(s.causes[MPT_SHADOW_ABSORPTION], 1);
    a = pair_of(1.0009765625, 1.0009765625);
    (void)mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, a, a, pair_of(-1.0, -1.0));
    CHECK_EQ_U(s.causes[MPT_SHADOW_ROUNDING], 1);    /* no earlier error to show */
    (void)shadow(&s, '-', pair_of(1.0, 1.0003), one);
    CHECK_EQ_U(s.causes[MPT_SHADOW_CANCELLATION], 1);        /* the result is 0 */

    (void)mpt_shadow_init(&s, MPT_F32, 0.01);       /* a tie in double, decided by a last bit */
    a = mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, pair_of(1.0 + ldexp(1.0, -20), 1.0),
                         pair_of(ldexp(1.0 - ldexp(1.0, -20), -24), 1.0),
                         pair_of(1.0 + ldexp(1.0, -23), 1.0));
    CHECK(a.low == 1.0 + ldexp(1.0, -23));
}

/* In f32 each operation rounds once: fma against an exact sum, the others against the machine's FP32. */
TEST(shadow_operations_are_correctly_rounded)
{
    mpt_shadow s;
    int        i;
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F32, 0.5), MPT_OK);
    for (i = 0; i < 20000; i++) {
        const float           x = random_float(-20, 20), y = random_float(-20, 20), z = random_float(-40, 40);
        const mpt_shadowed    a = mpt_shadow_value(&s, (double)x), b = mpt_shadow_value(&s, (double)y);
        const mpt_shadowed    c = mpt_shadow_value(&s, (double)z);
        const volatile float  sum = x + y, difference = x - y, product = x * y, quotient = x / y;
        const volatile double root = sqrt(fabs((double)x));    /* -ffast-math estimates sqrtf */
        CHECK(shadow(&s, '+', a, b).low == (double)sum);
        CHECK(shadow(&s, '-', a, b).low == (double)difference);
        CHECK(shadow(&s, '*', a, b).low == (double)product);
        CHECK(shadow(&s, '/', a, b).low == (double)quotient);
        CHECK(mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, a, b, c).low ==
              sum_rounded_once(MPT_F32, (double)z, (double)x, (double)y));
        CHECK(x < 0.0f || shadow(&s, 'r', a, a).low == (double)(float)root);
    }
}

/* Each f16 number in every operation, with a random partner: one rounding, against exact sums; division and
 * root against doubles, which are wide enough. The shadow is the double. */
TEST(shadow_of_all_halves)
{
    mpt_shadow s;
    uint64_t   causes = 0;
    size_t     i;
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 1e-9), MPT_OK);
    for (i = 0; i < 65536; i += mt.every) {
        const double          x = mpt_decode(MPT_F16, i), y = mpt_decode(MPT_F16, mt_random() & 0xfbffu);
        const mpt_shadowed    a = mpt_shadow_value(&s, x), b = mpt_shadow_value(&s, y);
        const volatile double quotient = x / y, root = sqrt(x), product = x * y, sum = product + y;
        if (!mpti_f64_is_finite(x) || !mpti_f64_is_finite(y))
            continue;
        CHECK(a.low == x && a.exact == x);
        CHECK(shadow(&s, '+', a, b).low == sum_rounded_once(MPT_F16, x, y, 1.0));
        CHECK(shadow(&s, '-', a, b).low == sum_rounded_once(MPT_F16, x, y, -1.0));
        CHECK(shadow(&s, '*', a, b).low == sum_rounded_once(MPT_F16, 0.0, x, y));
        CHECK(mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, a, b, b).low == sum_rounded_once(MPT_F16, y, x, y));
        CHECK(mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, a, b, b).exact == sum);
        CHECK(shadow(&s, '-', a, b).exact == x - y);
        if (y != 0.0)
            CHECK(shadow(&s, '/', a, b).low ==
                  mpt_decode(MPT_F16, mpt_encode(MPT_F16, quotient, NULL, NULL)));
        if (x >= 0.0)
            CHECK(shadow(&s, 'r', a, a).low == mpt_decode(MPT_F16, mpt_encode(MPT_F16, root, NULL, NULL)));
    }
    for (i = 0; i < MPT_SHADOW_CAUSE_COUNT; i++)
        causes += s.causes[i];
    CHECK_EQ_U(causes, s.operations);
    CHECK(s.causes[MPT_SHADOW_ROUNDING] && s.causes[MPT_SHADOW_ABSORPTION] && s.causes[MPT_SHADOW_UNDERFLOW]);
}

/* ---- tracking and writing ---- */

typedef struct sink { char text[20000]; size_t n, most; } sink;
static sink sunk;

static int sink_write(void *user, const char *text, size_t n)
{
    sink *const s = (sink *)user;
    if (s->n + n > s->most)
        return 1;
    memcpy(s->text + s->n, text, n);
    s->text[s->n += n] = '\0';
    return 0;
}

static mpt_writer sink_open(size_t most)
{
    mpt_writer w;
    memset(&sunk, 0, sizeof sunk);
    sunk.most = most;
    w.write = sink_write;
    w.user = &sunk;
    return w;
}

static int has(const char *words) { return strstr(sunk.text, words) != NULL; }

TEST(tracks)
{
    static const char line[] = "{\"step\":0,\"name\":\"conv1\",\"format\":\"f16\",\"count\":4,\"zero\":1,"
                               "\"flushed\":0,\"subnormal\":0,"
                               "\"normal\":3,\"overflow\":0,\"inf\":0,\"nan\":0,\"max_log2\":1,"
                               "\"median_log2\":0}\n";
    mpt_track  t[3];
    float      x[4] = {1.0f, 0.0f, 2.0f, -0.5f};
    mpt_writer w = sink_open(19999);
    size_t     index = 9, i;
    uint64_t   step;
    memset(t, 0, sizeof t);
    CHECK_EQ_I(mpt_track_add(&t[0], 0, MPT_F32, x, 4), MPT_OK);       /* off */
    for (i = 0; i < 3; i++)
        CHECK_EQ_I(mpt_track_init(&t[i], i == 0 ? "conv1" : i == 1 ? "say \"hi\"" : "fc", MPT_F16,
                                  i < 2 ? 10 : 0, w), MPT_OK);
    CHECK_EQ_I(mpt_track_first(t, 3, 0, &index), MPT_E_DATA);
    for (step = 0; step < 50; step++) {
        x[0] = step >= 25 ? 1e-9f : 1.0f;
        for (i = 0; i < 3; i++)
            CHECK_EQ_I(mpt_track_add(&t[i], step, MPT_F32, x, 4), MPT_OK);
        if (step == 39)
            x[2] = 1e6f;
    }
    CHECK(t[0].samples == 5 && t[2].samples == 0);
    CHECK(t[0].first_flushed == 31 && t[1].first_flushed == 31 && t[0].first_overflow == 41);
    CHECK_EQ_I(mpt_track_first(t, 3, 0, &index), MPT_OK);
    CHECK_EQ_U(index, 0);
    t[0].first_overflow = 0;
    CHECK_EQ_I(mpt_track_first(t, 3, 1, &index), MPT_OK);
    CHECK_EQ_U(index, 1);
    CHECK(!strncmp(sunk.text, line, strlen(line)));
    CHECK(has("\"name\":\"say \\\"hi\\\"\""));
    w.write = NULL;
    for (i = 0; i < 2; i++) {           /* Inf and NaN count as overflow, and the first step stays */
        CHECK_EQ_I(mpt_track_init(&t[i], "a", MPT_F16, 1, w), MPT_OK);
        x[2] = mpti_f32_make(i ? 0x7fc00000u : 0x7f800000u);
        CHECK_EQ_I(mpt_track_add(&t[i], 5, MPT_F32, x, 4), MPT_OK);
        x[2] = 1e6f;
        CHECK_EQ_I(mpt_track_add(&t[i], 9, MPT_F32, x, 4), MPT_OK);
        CHECK(t[i].first_overflow == 6 && t[i].first_flushed == 6 && t[i].samples == 2);
    }
    CHECK_EQ_I(mpt_track_init(&t[0], "a", MPT_F16, 1, w), MPT_OK);
    CHECK_EQ_I(mpt_track_add(&t[0], 0, MPT_F32, x, 4), MPT_OK);
    CHECK_EQ_I(mpt_track_add(&t[0], 0, MPT_F32, NULL, 4), MPT_E_ARG);
    CHECK_EQ_I(mpt_track_init(&t[0], NULL, MPT_F16, 1, w), MPT_E_ARG);
    CHECK_EQ_I(mpt_track_init(&t[0], "a", MPT_E8M0, 1, w), MPT_E_UNSUPPORTED);
    CHECK(!t[0].name && !t[0].every);
    for (i = 0; i < 200; i++)           /* the largest may be one of many */
        floats[i] = i ? 1.0f : 1024.0f;
    CHECK_EQ_I(mpt_track_init(&t[0], "a", MPT_F16, 1, sink_open(19999)), MPT_OK);
    CHECK_EQ_I(mpt_track_add(&t[0], 0, MPT_F32, floats, 200), MPT_OK);
    CHECK(has("\"max_log2\":10,\"median_log2\":0}"));
    CHECK_EQ_I(mpt_track_init(&t[0], "a", MPT_F16, 1, sink_open(30)), MPT_OK);
    CHECK_EQ_I(mpt_track_add(&t[0], 0, MPT_F32, x, 4), MPT_E_DATA);
}

/* Every number that is written reads back to 12 digits, without a comma, Inf or NaN. */
TEST(numbers_read_back)
{
    int i;
    for (i = 0; i < 20000; i++) {
        const double x = i < 50 ? (double)i : mpti_f64_make(mt_random() & ~(UINT64_C(1) << 62));
        mpti_out     o;
        double       back;
        if (!mpti_f64_is_finite(x) || fabs(x) < DBL_MIN)
            continue;
        CHECK_EQ_I(mpti_out_open(&o, sink_open(100), MPT_STYLE_TEXT), MPT_OK);
        mpti_tell(&o, "%r", x);
        back = strtod(sunk.text, NULL);
        CHECK(fabs(back - x) <= 6e-12 * fabs(x));
        CHECK(!strpbrk(sunk.text, ",nfNF"));
    }
}

TEST(writing)
{
    const double huge = 1e9;
    /* names, and what JSON gets: U+FFFD for each byte that begins no character (RFC 3629) */
    static const char *const characters[][2] = {
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xe9t", "\\ufffdt"}, {"\xc1\xbf", "\\ufffd\\ufffd"}, {"\xc2", "\\ufffd"}, {"\xc2\x80", "\xc2\x80"},
        {"\xe0\x9f\xbf", "\\ufffd\\ufffd\\ufffd"}, {"\xe0\xa0\x80", "\xe0\xa0\x80"},
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"}, {"\xed\x9f\xbf", "\xed\x9f\xbf"},
        {"\xf0\x8f\xbf\xbf", "\\ufffd\\ufffd\\ufffd\\ufffd"}, {"\xf0\x90\x80\x80", "\xf0\x90\x80\x80"},
        {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"}, {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\xf5\x80\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"}, {"\xe2\x82", "\\ufffd\\ufffd"},
         {"\xc3\xc3", "\\ufffd\\ufffd"},
        {"\x80\x7f", "\\ufffd\\u007f"}, {"\xf0\x9f\x98\"", "\\ufffd\\ufffd\\ufffd\\\""}};
    size_t              i;
    static mpt_range    r;
    static mpt_survey   a;
    static mpt_roundoff q;
    static mpt_sums     s;
    mpt_stagnation      u;
    mpt_shadow          h;
    const float         x[] = {1.0f, 0.0f, ldexpf(1.0f, -24), ldexpf(1.0f, -26), 1e5f};
    int                 style;
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, x, 5);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_CSV_HEAD, "x", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "name,format,count,zero,flushed,subnormal,normal,overflow,inf,nan,min_abs,max_abs,"
               "median_log2,best_log2_scale,flushed_at_best,subnormal_at_best\n");
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_CSV, "a,\"b\"", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "\"a,\"\"b\"\"\",f16,5,1,1,1,1,1,0,0,1.49011611938e-8,1e5,-24,-4,2,0\n");
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_JSON, "a\n", sink_open(19999)), MPT_OK);
    CHECK(has("{\"name\":\"a\\u000a\",\"format\":\"f16\",\"count\":5,"));
    CHECK(has("\"first\":-26,\"binades\":[1,0,1,0,"));
    CHECK(has(",1]}\n"));
    for (i = 0; i < sizeof characters / sizeof *characters; i++) {
        char want[64];
        (void)snprintf(want, sizeof want, "{\"name\":\"%s\",", characters[i][1]);
        CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_JSON, characters[i][0], sink_open(19999)), MPT_OK);
        CHECK_EQ_U_AT(strncmp(sunk.text, want, strlen(want)), 0, i);
    }
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_TEXT, "x", sink_open(19999)), MPT_OK);
    CHECK(has("x\n  format") && has("  flushed                1\n"));
    CHECK_EQ_I(mpt_range_write_histogram(&r, sink_open(19999)), MPT_OK);
    CHECK(!strncmp(sunk.text, "log2,count,zone\n-26,1,0\n-25,0,1\n-24,1,1\n", 40));
    CHECK(has("-14,0,2\n") && has("16,1,3\n"));
    CHECK_EQ_I(mpt_range_write_curve(&r, -1, 1, MPT_STYLE_CSV, "", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "log2_scale,flushed,subnormal,overflow\n-1,2.5e-1,2.5e-1,0\n"
               "0,2.5e-1,2.5e-1,2.5e-1\n1,0,5e-1,2.5e-1\n");
    (void)mpt_range_init(&r, MPT_F16);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_JSON, "x", sink_open(19999)), MPT_OK);
    CHECK(has("\"median_log2\":null") && has("\"first\":null,\"binades\":[]}"));
    (void)mpt_survey_init(&a);
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_CSV_HEAD, "x", sink_open(19999)), MPT_OK);
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_CSV, "x", sink_open(19999)), MPT_OK);
    CHECK(has("x,f16,") && has("x,e4m3,") && !has("e8m0"));
    (void)mpt_roundoff_init(&q, MPT_F16, NULL, 0);
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_JSON, "x", sink_open(19999)), MPT_OK);
    CHECK(has("\"mean_relative\":null") && has("\"sqnr_db\":null}") && !has("nan,") && !has("inf,"));
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_TEXT, "x", sink_open(19999)), MPT_OK);
    CHECK(has(" -\n") && !has("inf\n"));         /* no SQNR of nothing; -Inf with overflow */
    CHECK_EQ_I(mpt_roundoff_add(&q, MPT_F64, &huge, 1), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_TEXT, "x", sink_open(19999)), MPT_OK);
    CHECK(has(" -inf\n"));
    (void)mpt_stagnation_init(&u, MPT_F16);
    memset(&s, 0, sizeof s);
    (void)mpt_shadow_init(&h, MPT_F16, 0.1);
    (void)shadow(&h, '*', mpt_shadow_value(&h, 300.0), mpt_shadow_value(&h, 300.0));
    CHECK_EQ_I(mpt_shadow_write(&h, MPT_STYLE_JSON, "x", sink_open(19999)), MPT_OK);
    CHECK(has("\"first_op\":\"*\",\"first_cause\":\"overflow\""));
    CHECK(has("\"first_after\":null,\"first_low\":null"));
    CHECK(has("\"first_exact\":9e4") && has("\"worst_cause\":\"overflow\""));
    for (style = 0; style < 4; style++) {
        const mpt_style y = (mpt_style)style;
        CHECK_EQ_I(mpt_range_write(&r, y, "x", sink_open(0)), MPT_E_DATA);
        CHECK_EQ_I(mpt_survey_write(&a, y, "x", sink_open(100)), MPT_E_DATA);
        CHECK_EQ_I(mpt_roundoff_write(&q, y, "x", sink_open(1)), MPT_E_DATA);
        CHECK_EQ_I(mpt_stagnation_write(&u, y, "x", sink_open(1)), MPT_E_DATA);
        CHECK_EQ_I(mpt_sums_write(&s, y, "x", sink_open(1)), MPT_E_DATA);
        CHECK_EQ_I(mpt_shadow_write(&h, y, "x", sink_open(1)), MPT_E_DATA);
        CHECK_EQ_I(mpt_stagnation_write(&u, y, "x", sink_open(19999)), MPT_OK);
        CHECK_EQ_I(mpt_sums_write(&s, y, "x", sink_open(19999)), MPT_OK);
        CHECK_EQ_I(mpt_sums_write(&s, y, NULL, sink_open(19999)), MPT_E_ARG);
    }
    CHECK_EQ_I(mpt_range_write_curve(&r, 1, 0, MPT_STYLE_CSV, "", sink_open(19999)), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_histogram(NULL, sink_open(19999)), MPT_E_ARG);
}

/* Whole rows of reports whose figures were worked out by hand. */
TEST(written_in_full)
{
    static mpt_roundoff q;
    static mpt_survey   a;
    static mpt_sums     s;
    const float         x[] = {1.0f, 1.00048828125f, 1.0004f, ldexpf(1.0f, -26), 1e6f, 1e7f};
    const float         v[] = {256.0f, 1.0f, 0.5f}, w[] = {1.0f, 1.0f, 1.0f, 1.0f, 0.0f, 1.0f};
    const float         d[] = {ldexpf(1.0f, -12), ldexpf(1.0f, -12), ldexpf(1.0f, -10), ldexpf(1.25f, -11),
                               0.0f, 1e6f};
    mpt_stagnation      u;
    mpt_shadow          h;
    mpt_shadowed        b;
    (void)mpt_roundoff_init(&q, MPT_F16, NULL, 0);
    (void)mpt_roundoff_add(&q, MPT_F32, x, 6);
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_CSV, "q", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "q,f16,0,6,0,0,0,1,5,1,2,1,2.50221957554e-1,5e-1,2.89886474609e-1,"
               "-2.89886474609e-1,\n");        /* SQNR is -Inf: two overflow */
    (void)mpt_roundoff_init(&q, MPT_F16, NULL, 0);
    (void)mpt_roundoff_add(&q, MPT_F32, x, 4);
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_CSV, "q", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "q,f16,0,4,0,0,0,1,3,1,0,1,2.50221957554e-1,5e-1,2.89886474609e-1,"
               "-2.89886474609e-1,6.87708489437e1\n");
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_CSV_HEAD, "q", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "name,format,log2_scale,count,zero,inf,nan,exact,changed,flushed,overflow,"
               "max_relative,mean_relative,max_ulps,mean_ulps,bias_ulps,sqnr_db\n");
    (void)mpt_roundoff_init(&q, MPT_F16, NULL, -3);
    (void)mpt_roundoff_add(&q, MPT_F32, x, 1);
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_TEXT, "q", sink_open(19999)), MPT_OK);
    CHECK(has("log2_scale             -3\n") && has("sqnr_db                inf\n"));
    (void)mpt_stagnation_init(&u, MPT_F16);
    (void)mpt_stagnation_add(&u, w, d, 6);
    CHECK_EQ_I(mpt_stagnation_write(&u, MPT_STYLE_CSV, "u", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "u,f16,6,1,2,3,0,1,4e-1,-1\n");
    memset(&s, 0, sizeof s);
    (void)mpt_sums_add(&s, v, NULL, 3, 0);
    CHECK_EQ_I(mpt_sums_write(&s, MPT_STYLE_CSV, "s", sink_open(19999)), MPT_OK);
    CHECK(has("s,f16,3,2.575e2,1,2.575e2,0,0\ns,bf16,3,2.575e2,1,2.56e2,-1.5,5.82524271845e-3\ns,f32,"));
    CHECK_EQ_I(mpt_sums_write(&s, MPT_STYLE_CSV_HEAD, "s", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "name,method,n,exact,condition,value,error,relative\n");
    (void)mpt_survey_init(&a);
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_CSV_HEAD, "x", sink_open(19999)), MPT_OK);
    CHECK(strchr(sunk.text, '\n') == sunk.text + sunk.n - 1);
    (void)mpt_shadow_init(&h, MPT_F16, 0.01);
    b = mpt_shadow_value(&h, 100.7);
    (void)shadow(&h, '-', b, mpt_shadow_value(&h, 100.4));
    (void)shadow(&h, '*', b, shadow(&h, '*', b, b));
    CHECK_EQ_I(mpt_shadow_write(&h, MPT_STYLE_CSV, "h", sink_open(19999)), MPT_OK);
    CHECK_EQ_S(sunk.text, "h,f16,5,3,1,0,0,1,0,3,-,catastrophic cancellation,2.49003984064e-4,"
               "4.16666666667e-2,3.125e-1,3e-1,5,*,overflow,4.42779392317e-4,,,1.021147343e6\n");
    CHECK_EQ_I(mpt_stagnation_write(&u, MPT_STYLE_CSV, "a\nb", sink_open(19999)), MPT_OK);
    CHECK(!strncmp(sunk.text, "\"a\nb\",", 6));
    CHECK_EQ_I(mpt_stagnation_write(&u, MPT_STYLE_CSV, "a\rb", sink_open(19999)), MPT_OK);
    CHECK(!strncmp(sunk.text, "\"a\rb\",", 6));
    CHECK_EQ_I(mpt_stagnation_write(&u, MPT_STYLE_JSON, "\\\x1f", sink_open(19999)), MPT_OK);
    CHECK(!strncmp(sunk.text, "{\"name\":\"\\\\\\u001f\",", 19));
    {
        mpti_out o;
        CHECK_EQ_I(mpti_out_open(&o, sink_open(100), MPT_STYLE_TEXT), MPT_OK);
        mpti_tell(&o, "%r", 9.9999999999999);
        CHECK_EQ_S(sunk.text, "1e1");
        CHECK_EQ_I(mpti_out_open(&o, sink_open(2), MPT_STYLE_TEXT), MPT_OK);
        mpti_tell(&o, "abc");                   /* does not fit: the end, although "d" would fit */
        mpti_tell(&o, "d");
        CHECK(o.failed && sunk.n == 0);
    }
}

/* ---- drawings ---- */

/* Drawings go into the sink. none: a writer without a function; page: the sink, for refused calls. */
static const mpt_writer none = {NULL, NULL}, page = {sink_write, &sunk};

static int lines_drawn(void)
{
    int         n = 0;
    const char *c;
    for (c = sunk.text; *c; c++)
        n += *c == '\n';
    return n;
}

TEST(drawing_of_a_survey)
{
    static mpt_survey a;
    floats_of_kind(1, 1000);
    (void)mpt_survey_init(&a);
    (void)mpt_survey_add(&a, MPT_F32, floats, 1000);
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_DRAWING, "w", sink_open(19999)), MPT_OK);
    CHECK(sunk.n > 500 && has("w: 1000 values, 0.0% zero, 0 Inf, 0 NaN; of the others, in each format\n"));
    CHECK(has("\n  f16 ") && !has("e8m0"));
    CHECK(has("\n  f64             0.00%      0.00%   100.00%     0.00%   2^0 "));
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_DRAWING, "w", none), MPT_E_ARG);
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_DRAWING, NULL, page), MPT_E_ARG);
}

/* 0% and 100% mean none and all: one number of 65536 shows, in a drawing, too. */
TEST(drawings_show_one_of_many)
{
    static mpt_survey a;
    mpt_range         r;
    size_t            i;
    for (i = 0; i < 65536; i++)
        floats[i] = i == 9 ? 7e4f : 1.0f;
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, floats, 65536);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
    CHECK(has(" 0.0% become 0, 0.0% subnormal, >99.9% normal, <0.1% overflow\n"));
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
    CHECK(has("!|    0.00%      0.00%    <0.01%"));
    (void)mpt_survey_init(&a);
    (void)mpt_survey_add(&a, MPT_F32, floats, 65536);
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
    CHECK(has("  f16             0.00%      0.00%   >99.99%    <0.01%   2^-"));
    CHECK(has("  bf16            0.00%      0.00%   100.00%     0.00%   2^"));
}

TEST(drawing_of_the_nearest_edges)
{
    const float one[2] = {1.0f, 0.0001220703125f};      /* 2^-13, just above the subnormal numbers */
    mpt_range   r;
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, one, 2);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
    CHECK(has("  -------+--- f16: 2^16 and above: overflow\n  2^0    |"));
    CHECK(has("\n  -------+--- f16: 2^-14 is the smallest normal binade; below: subnormal\n"));
    CHECK(!has("2^-24"));
}

TEST(drawing_of_the_curve)
{
    static mpt_range r;
    size_t           i;
    for (i = 0; i < 100; i++)           /* 10 are flushed, 40 subnormal, 50 normal, at scale 1 */
        floats[i] = ldexpf(1.0f, i < 10 ? -27 : i < 50 ? -20 : 0);
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, floats, 100);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 17, MPT_STYLE_DRAWING, "g", sink_open(19999)), MPT_OK);
    CHECK(has("g: what f16 makes of the nonzero at each scale\n"));
    CHECK(has("\n  2^0    |00000~~~~~~~~~~~~~~~~~~~~#########################|"
                "   10.00%     40.00%     0.00%\n"));
    CHECK(has("\n  2^2    |~~~~~~~~~~~~~~~~~~~~~~~~~#########################|"
                "    0.00%     50.00%     0.00%\n"));
    CHECK(has("\n  2^6    |~~~~~#############################################|"
                "    0.00%     10.00%     0.00%  <- best: 2^6\n") && !has("<- best: 2^6\n  2^6 "));
    CHECK(has("\n  2^12   |~~~~~#############################################|"
                "    0.00%     10.00%     0.00%\n"));
    CHECK(has("\n  2^13   |##################################################|"
                "    0.00%      0.00%     0.00%\n"));
    CHECK(has("\n  2^16   |#########################!!!!!!!!!!!!!!!!!!!!!!!!!|"
                "    0.00%      0.00%    50.00%\n"));
    CHECK_EQ_I(lines_drawn(), 20);
    floats[0] = 0.0f;                   /* one in a thousand is still drawn; each third scale has a row */
    for (i = 0; i < 1000; i++)
        floats[i] = i ? 1.0f : ldexpf(1.0f, -30);
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, floats, 1000);
    CHECK_EQ_I(mpt_range_write_curve(&r, -101, 16, MPT_STYLE_DRAWING, "g", sink_open(19999)), MPT_OK);
    CHECK(has("\n  2^-2   |0#################################################|    0.10%") &&
          !has("2^0 ") && has("2^-5 ") && has("2^-101") && has("2^13 "));
    CHECK(has("  2^4    |0#################################################|"
                "    0.10%      0.00%     0.00%  <- best: 2^5\n"));
    for (i = 0; i < 1000; i++)          /* all bars have the same length */
        floats[i] = ldexpf(1.0f, i ? -40 : 20);
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, floats, 1000);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 0, MPT_STYLE_DRAWING, "g", sink_open(19999)), MPT_OK);
    CHECK(has("  2^0    |00000000000000000000000000000000000000000000000000|   99.90%"));
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_DRAWING, "g", none), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_curve(&r, 1, 0, MPT_STYLE_DRAWING, "g", page), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 128, MPT_STYLE_DRAWING, "g", page), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_curve(&r, -127, 0, MPT_STYLE_DRAWING, "g", page), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_DRAWING, NULL, page), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_curve(NULL, 0, 1, MPT_STYLE_DRAWING, "g", page), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_CSV, "g", none), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_CSV_HEAD, "g", page), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_TEXT, "g", page), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_JSON, "g", page), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, (mpt_style)5, "g", page), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write(&r, (mpt_style)5, "g", page), MPT_E_ARG);
}

TEST(drawing_of_rounding)
{
    static mpt_roundoff r;
    static const float  x[] = {1.0f, 1.0f, 0.0f, 1.00048828125f, -3.0f, 1.4901161193847656e-8f, 1e6f, 2.0f,
                               4.0f, 0.5f, 6.0f};
    (void)mpt_roundoff_init(&r, MPT_F16, NULL, 0);
    (void)mpt_roundoff_add(&r, MPT_F32, x, 11);
    CHECK_EQ_I(mpt_roundoff_write(&r, MPT_STYLE_DRAWING, "w", sink_open(19999)), MPT_OK);
    CHECK(has("w: 11 values in f16 x 2^0, 9.1% zero, 0 Inf, 0 NaN; of the others\n"));
    CHECK(has("  exact     |###################################               | 70.00%\n"));
    CHECK(has("  rounded   |#####                                             | 10.00%\n"));
    CHECK(has("  become 0  |#####                                             | 10.00%\n"));
    CHECK(has("  overflow  |#####                                             | 10.00%\n"));
    CHECK(has("  error / x |.............................................o...M| o mean 1.11e-01, "
                "M largest 1.00e+00\n"));
    CHECK(has("bias -0.0833 ulp, SQNR "));
    (void)mpt_roundoff_init(&r, MPT_F16, NULL, 3);
    (void)mpt_roundoff_add(&r, MPT_F32, x, 3);
    CHECK_EQ_I(mpt_roundoff_write(&r, MPT_STYLE_DRAWING, "w", sink_open(19999)), MPT_OK);
    CHECK(has(" in f16 x 2^3, ") && has("|o......") && has("SQNR without noise\n"));
    CHECK_EQ_I(lines_drawn(), 7);
    (void)mpt_roundoff_init(&r, MPT_F16, NULL, 0);
    (void)mpt_roundoff_add(&r, MPT_F32, x + 6, 1);       /* only an overflow: no errors to draw */
    CHECK_EQ_I(mpt_roundoff_write(&r, MPT_STYLE_DRAWING, "w", sink_open(19999)), MPT_OK);
    CHECK_EQ_I(lines_drawn(), 5);
    CHECK_EQ_I(mpt_roundoff_write(&r, MPT_STYLE_DRAWING, "w", none), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_write(&r, MPT_STYLE_DRAWING, NULL, page), MPT_E_ARG);
    CHECK_EQ_I(mpt_roundoff_write(NULL, MPT_STYLE_DRAWING, "w", page), MPT_E_ARG);
}

TEST(drawing_of_stagnation)
{
    static float w[1000], u[1000];
    mpt_stagnation   r;
    size_t       i;
    for (i = 0; i < 1000; i++) {        /* 500 of four half gaps, 250 of one and a half, 250 lost */
        w[i] = 1.0f;
        u[i] = ldexpf(i < 500 ? 4.0f : i < 750 ? 1.5f : 0.75f, -11);
    }
    u[999] = ldexpf(1.0f, -40);
    w[0] = 0.0f;
    u[0] = 0.0f;
    (void)mpt_stagnation_init(&r, MPT_F16);
    (void)mpt_stagnation_add(&r, w, u, 1000);
    CHECK_EQ_I(mpt_stagnation_write(&r, MPT_STYLE_DRAWING, "w", sink_open(19999)), MPT_OK);
    CHECK(has("w: 1000 updates of weights in f16, 1 zero or not finite\n"
                "  of the others: 25.0% lost, 25.0% at least half lost, 0.0% to the wrong side, "
                "0.0% overflow\n"
                "  |update| / half a gap\n"
                "  2^2    |################################################## 49.9%\n"
                "  2^1    |\n"
                "  2^0    |######################### 25.0%\n"
                "  -------+--- half a gap; smaller updates are lost\n"
                "  2^-1   |######################### 24.9%\n"));
    CHECK(has("  2^-29  |# 0.1%\n  half of them vanish at 2^-1 times this rate (or time step) and below\n"));
    u[999] = ldexpf(1.0f, -60);         /* two binades a row, but none across the line */
    (void)mpt_stagnation_init(&r, MPT_F16);
    (void)mpt_stagnation_add(&r, w, u, 1000);
    CHECK_EQ_I(mpt_stagnation_write(&r, MPT_STYLE_DRAWING, "w", sink_open(19999)), MPT_OK);
    CHECK(has(" 49.9% (down to 2^1)\n  2^0    |######################### 25.0%\n  -------+---") &&
          has("\n  2^-1   |######################### 24.9% (down to 2^-2)\n"));
    (void)mpt_stagnation_init(&r, MPT_F16);
    CHECK_EQ_I(mpt_stagnation_write(&r, MPT_STYLE_DRAWING, "w", sink_open(19999)), MPT_OK);
    CHECK(lines_drawn() == 3 && has("  Nothing to judge."));
    CHECK_EQ_I(mpt_stagnation_write(&r, MPT_STYLE_CSV, "w", sink_open(19999)), MPT_OK);
    CHECK(has("0,0,0,0,0,0,,\n"));         /* no share of lost updates */
    CHECK_EQ_I(mpt_stagnation_write(&r, MPT_STYLE_DRAWING, "w", none), MPT_E_ARG);
    CHECK_EQ_I(mpt_stagnation_write(&r, MPT_STYLE_DRAWING, NULL, page), MPT_E_ARG);
    CHECK_EQ_I(mpt_stagnation_write(NULL, MPT_STYLE_DRAWING, "w", page), MPT_E_ARG);
}

TEST(drawing_of_sums)
{
    static mpt_sums s;
    static float    ones[600];
    size_t          i;
    for (i = 0; i < 600; i++)
        ones[i] = 1.0f;
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_sums_add(&s, ones, NULL, 257, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_write(&s, MPT_STYLE_DRAWING, "Ones", sink_open(19999)), MPT_OK);
    CHECK_EQ_I(mpt_sums_add(&s, ones, NULL, 255, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_write(&s, MPT_STYLE_DRAWING, NULL, page), MPT_OK);      /* appended */
    /* bf16 stops at 256: off by 1 / 257, then by half */
    CHECK(has("Ones: relative error of the sum of n terms\n  h f16, b bf16, s f32, k f32 in blocks, "
                "K Kahan, N Neumaier, P pairwise, d f64, * several\n"));
    memset(&s, 0, sizeof s);        /* a sum of 0: exact in double, off by 1 in floats */
    ones[0] = 1e8f, ones[1] = 1.0f, ones[2] = -1e8f, ones[3] = -1.0f;
    CHECK_EQ_I(mpt_sums_add(&s, ones, NULL, 4, 0), MPT_OK);
    CHECK_EQ_I(mpt_sums_write(&s, MPT_STYLE_DRAWING, NULL, page), MPT_OK);
    CHECK(has("           4 |*...................................................*|\n"));
    CHECK(has("         257 |*..........................................b.........|\n"
                "         512 |*..................................................b.|\n"));
    CHECK_EQ_I(mpt_sums_write(&s, MPT_STYLE_DRAWING, "w", none), MPT_E_ARG);
    CHECK_EQ_I(mpt_sums_write(NULL, MPT_STYLE_DRAWING, "w", page), MPT_E_ARG);
}

TEST(drawing_of_a_shadow_run)
{
    mpt_shadow   s;
    mpt_shadowed a, b;
    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    a = mpt_shadow_value(&s, 100.7);
    b = mpt_shadow_value(&s, 100.4);
    (void)shadow(&s, '-', a, b);
    CHECK_EQ_I(mpt_shadow_write(&s, MPT_STYLE_DRAWING, "d", sink_open(19999)), MPT_OK);
    CHECK(has("d: 3 operations in f16, each compared with itself in double\n  nothing lost              | 0\n"
                "  rounding                  |################################################## 2\n"
                "  catastrophic cancellation |######################### 1\n"));
    CHECK(has("  first to be invalid, or off by more than 0.01: operation 3 (-): catastrophic cancellation\n"
                "    of 100.688 (in double 100.7), 100.375 (in double 100.4)\n"
                "    gives 0.3125 (in double 0.3); off by 0.00025 before, by 0.042 after; "
                "8 binades cancelled\n"
                "  most error added: by the same\n"));
    a = mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, b, b, b);   /* 100.375^2 + 100.375 = 10176, rounded down */
    a = shadow(&s, '*', a, a);
    CHECK_EQ_I(mpt_shadow_write(&s, MPT_STYLE_DRAWING, "d", sink_open(19999)), MPT_OK);
    CHECK(has("d: 5 operations") && has("  overflow                  |################# 1\n"));
    CHECK(has("  most error added: operation 5 (*): overflow\n    of 10176 (in double 10180.6), 10176 (in "
                "double 10180.6)\n    gives inf (in double 1.03644e+08); "
                "off by 0.00045 before, by inf after"));
    (void)mpt_shadow_init(&s, MPT_F16, 0.01);
    (void)mpt_shadow_value(&s, 1.0);
    CHECK_EQ_I(mpt_shadow_write(&s, MPT_STYLE_DRAWING, "d", sink_open(19999)), MPT_OK);
    CHECK(has("more than 0.01: none\n  most error added: none\n") && !has("binades"));
    CHECK_EQ_I(mpt_shadow_write(&s, MPT_STYLE_DRAWING, "d", none), MPT_E_ARG);
    CHECK_EQ_I(mpt_shadow_write(&s, MPT_STYLE_DRAWING, NULL, page), MPT_E_ARG);
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_shadow_write(&s, MPT_STYLE_DRAWING, "d", page), MPT_E_ARG);
}

TEST(drawing_of_tracks)
{
    mpt_track  t[6];
    float      x[100];
    size_t     i, k;
    for (i = 0; i < 6; i++)
        CHECK_EQ_I(mpt_track_init(&t[i], i ? "b" : "a", MPT_F16, 1, none), MPT_OK);
    for (i = 0; i < 5; i++) {
        static const size_t flushed[] = {0, 1, 50, 95, 0};
        for (k = 0; k < 100; k++)
            x[k] = k < flushed[i] ? 1e-9f : i == 4 && !k ? 1e6f : 1.0f;
        CHECK_EQ_I(mpt_track_add(&t[i], 7, MPT_F32, x, 100), MPT_OK);
    }
    CHECK(t[2].nonzero == 100 && t[2].flushed == 50 && t[2].overflow == 0 && t[4].overflow == 1);
    CHECK_EQ_I(mpt_track_write(t, 6, 7, "Gradients", sink_open(19999)), MPT_OK);
    CHECK_EQ_I(mpt_track_add(&t[3], 8, MPT_F32, x, 0), MPT_OK);          /* no values; then only zeros */
    x[0] = 0.0f;
    CHECK_EQ_I(mpt_track_add(&t[2], 8, MPT_F32, x, 1), MPT_OK);
    CHECK_EQ_I(mpt_track_write(t, 4, 12345, NULL, page), MPT_OK);
    CHECK_EQ_S(sunk.text,
               "Gradients: share that becomes 0, from none over .:-=+*#% to @ nearly all; ! overflow\n"
               "  from left to right: a, b, b, b, b, b\n  step 7        |  ..++@@!!??|\n"
               "  step 12345    |  ..    |\n");
    CHECK_EQ_I(mpt_track_write(t, 4, 0, NULL, none), MPT_E_ARG);
    CHECK_EQ_I(mpt_track_write(NULL, 4, 0, NULL, page), MPT_E_ARG);
}

/* A stream that takes no byte. */
TEST(drawings_on_a_full_disk)
{
    static mpt_range    r;
    static mpt_survey   a;
    static mpt_roundoff q;
    static mpt_sums     s;
    mpt_stagnation      u;
    mpt_shadow          h;
    FILE               *f = fopen("/dev/full", "w");
    if (!f)
        SKIP("no /dev/full");
    (void)setvbuf(f, NULL, _IONBF, 0);
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_survey_init(&a);
    (void)mpt_roundoff_init(&q, MPT_F16, NULL, 0);
    (void)mpt_stagnation_init(&u, MPT_F16);
    (void)mpt_shadow_init(&h, MPT_F16, 0.1);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_DRAWING, "x", mpt_writer_file(f)), MPT_E_DATA);
    CHECK_EQ_I(mpt_survey_write(&a, MPT_STYLE_DRAWING, "x", mpt_writer_file(f)), MPT_E_DATA);
    CHECK_EQ_I(mpt_range_write_curve(&r, 0, 1, MPT_STYLE_DRAWING, "x", mpt_writer_file(f)), MPT_E_DATA);
    CHECK_EQ_I(mpt_roundoff_write(&q, MPT_STYLE_DRAWING, "x", mpt_writer_file(f)), MPT_E_DATA);
    CHECK_EQ_I(mpt_stagnation_write(&u, MPT_STYLE_DRAWING, "x", mpt_writer_file(f)), MPT_E_DATA);
    CHECK_EQ_I(mpt_sums_write(&s, MPT_STYLE_DRAWING, "x", mpt_writer_file(f)), MPT_E_DATA);
    CHECK_EQ_I(mpt_shadow_write(&h, MPT_STYLE_DRAWING, "x", mpt_writer_file(f)), MPT_E_DATA);
    CHECK_EQ_I(mpt_track_write(NULL, 0, 0, "x", mpt_writer_file(f)), MPT_E_DATA);
    (void)fclose(f);
}

/* An fma that gives -c, rounded, absorbed nothing; 99950 of 100000 are not all. */
TEST(words_of_reports)
{
    static mpt_range   range;
    const mpt_shadowed x = {1025.0 / 1024.0, 1025.0 / 1024.0}, y = {2046.0 / 1024.0, 2046.0 / 1024.0};
    const mpt_shadowed z = {-1.0, -1.0};
    mpt_shadow         s;
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 1e-9), MPT_OK);
    CHECK(mpt_shadow_apply(&s, MPT_SHADOW_OP_FMA, x, y, z).low == 1.0);
    CHECK_EQ_U(s.causes[MPT_SHADOW_ROUNDING], 1);
    (void)mpt_range_init(&range, MPT_F16);
    range.count = 100000;
    range.normal = range.binade[-MPT_RANGE_EMIN] = 99950;
    range.flushed = range.binade[0] = 50;
    range.max_abs = 1.0, range.min_abs = 1e-300;
    CHECK_EQ_I(mpt_range_write(&range, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
    CHECK(has(">99.9% normal"));
}

/* Seeds must agree to merge; -Inf survives a merge; sqrt reads one operand; nothing seen is a line, too; an
 * empty histogram tells that its writer failed; a sum needs its terms. */
static int count_lines(void *user, const char *text, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        *(int *)user += text[i] == '\n';
    return 0;
}
static int write_nothing(void *user, const char *text, size_t n) { return user && text && n; }

TEST(promises_at_the_ends_of_reports)
{
    static mpt_roundoff r[2];
    static mpt_range    range;
    const mpt_shadowed  two = {2.0, 2.0}, differ = {1.0, 100.0};
    const float         y[1] = {1.0f};
    int                 lines = 0;
    const mpt_writer    counts = {count_lines, &lines}, fails = {write_nothing, &lines};
    mpt_exact           sum[2];
    mpt_shadow          shadow;
    mpt_track           track;
    mpt_sums            sums;
    mpt_opts            o;
    memset(&o, 0, sizeof o);
    memset(sum, 0, sizeof sum);
    memset(&sums, 0, sizeof sums);
    o.rounding = MPT_RND_STOCHASTIC;
    CHECK_EQ_I(mpt_roundoff_init(&r[0], MPT_F16, &o, 0), MPT_OK);
    o.seed = 1;
    CHECK_EQ_I(mpt_roundoff_init(&r[1], MPT_F16, &o, 0), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_merge(&r[0], &r[1]), MPT_E_ARG);
    mpt_exact_add(&sum[1], -mpti_f64_make((uint64_t)0x7ff << 52), 1.0);
    mpt_exact_merge(&sum[0], &sum[1]);
    CHECK_EQ_U(mpti_f64_bits(mpt_exact_value(&sum[0])), (uint64_t)0xfff << 52);
    CHECK_EQ_I(mpt_shadow_init(&shadow, MPT_F16, 1e-9), MPT_OK);
    (void)mpt_shadow_apply(&shadow, MPT_SHADOW_OP_SQRT, two, differ, differ);
    CHECK_EQ_U(shadow.first.at, 1);
    CHECK_EQ_I(mpt_track_init(&track, "t", MPT_F16, 1, counts), MPT_OK);
    CHECK_EQ_I(mpt_track_add(&track, 0, MPT_F32, y, 0), MPT_OK);
    CHECK_EQ_I(lines, 1);
    CHECK_EQ_I(mpt_track_init(&track, NULL, MPT_F16, 1, counts), MPT_E_ARG);
    CHECK_EQ_U(track.every, 0);
    CHECK_EQ_I(mpt_range_init(&range, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_write_histogram(&range, fails), MPT_E_DATA);
    CHECK_EQ_I(mpt_sums_add(&sums, NULL, y, 1, 0), MPT_E_ARG);
}

TEST(choice_of_a_scale)
{
    static mpt_range    r;
    mpt_range_choice    c;
    mpt_range_tolerance t = {0.1, 0.0, 0.0};
    double              x[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0};
    (void)mpt_range_init(&r, MPT_F16);
    CHECK_EQ_I(mpt_range_at_scale(&r, 0, &c), MPT_OK);
    CHECK_EQ_I(c.headroom, 0);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 31, NULL, &c), MPT_E_ARG);
    x[9] = ldexp(1.0, -20);                                 /* one in ten may vanish, so it may lose bits */
    CHECK_EQ_I(mpt_range_add(&r, MPT_F64, x, 10), MPT_OK);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 3, &t, &c), MPT_OK);
    CHECK_EQ_I(c.log2_scale, 0);
    (void)mpt_range_init(&r, MPT_F16);
    x[0] = ldexp(1.0, -141);                                /* only 2^127 makes it normal */
    CHECK_EQ_I(mpt_range_add(&r, MPT_F64, x, 1), MPT_OK);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 3, NULL, &c), MPT_OK);
    CHECK_EQ_I(c.log2_scale, 127);
}

TEST(exact_sums_and_products)
{
    static mpt_exact s;
    memset(&s, 0, sizeof s);
    mpt_exact_add(&s, 1.0, 1.0);
    mpt_exact_add(&s, ldexp(1.0, -53), 1.0);
    mpt_exact_add(&s, ldexp(1.0, -80), 1.0);                /* just above the tie */
    CHECK(mpt_exact_value(&s) > 1.0);
    mpt_exact_add(&s, mpti_f64_make((uint64_t)0x7ff << 52), 0.0);
    CHECK(mpti_f64_is_nan(mpt_exact_value(&s)));
}

TEST(subnormals_that_a_scale_makes_large)
{
    static mpt_roundoff r;
    static float        x[1024];
    size_t              i;
    for (i = 0; i < 1024; i++)
        x[i] = mpti_f32_make(1u);
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_F16, NULL, 110), MPT_OK);     /* 2^-39 */
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F32, x, 1024), MPT_OK);
    CHECK_EQ_U(r.flushed, 1024u);
}

TEST(small_shares_and_marks_of_drawings)
{
    static mpt_range r;
    static float     x[10000];
    size_t           i;
    int              e;
    for (i = 0; i < 10000; i++)
        x[i] = i < 7 ? 0.0f : 1.0f;
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, x, 10000);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
    CHECK(has(" 0.1% zero"));                               /* 0.07% */
    for (i = 0; i < 7; i++)
        x[i] = 1e9f;
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, x, 10000);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
    CHECK(has(" 99.9% normal"));                            /* 99.93% */
    for (e = 8; e < 20; e++) {
        x[0] = mpti_f32_make((uint32_t)(127 + e) << 23);
        (void)mpt_range_init(&r, MPT_F16);
        (void)mpt_range_add(&r, MPT_F32, x, 1);
        CHECK_EQ_I(mpt_range_write_curve(&r, -126, 127, MPT_STYLE_DRAWING, "x", sink_open(19999)), MPT_OK);
        CHECK(has("  <- best: 2^"));                        /* a row stands for six scales */
    }
}

TEST(scale_of_minus_127)
{
    static mpt_roundoff  r;
    static float         x[1024];
    mpt_roundoff_figures g;
    size_t               i;
    for (i = 0; i < 1024; i++)
        x[i] = mpti_f32_make((uint32_t)(127 + 100) << 23);
    CHECK_EQ_I(mpt_roundoff_init(&r, MPT_BF16, NULL, -127), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&r, MPT_F32, x, 1024), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_get(&r, &g), MPT_OK);
    CHECK(g.sqnr_db > 1e300);                               /* exact: there is a signal, and no noise */
}

TEST(half_lost_and_none)
{
    static mpt_stagnation r;
    float                 w = 2.0f - 0.0009765625f, u = 0.001953125f;
    (void)mpt_stagnation_init(&r, MPT_F16);
    CHECK_EQ_I(mpt_stagnation_add(&r, &w, &u, 1), MPT_OK);  /* to 2, by half of u */
    CHECK_EQ_U(r.half_lost, 1u);
    w = 1e6f, u = 1.0f;
    CHECK_EQ_I(mpt_stagnation_add(&r, &w, &u, 1), MPT_OK);
    CHECK_EQ_U(r.none, 1u);
    CHECK_EQ_U(r.overflow, 0u);
}

TEST(sums_round_once)
{
    static mpt_sums  s;
    mpt_sums_figures g;
    float            x[2] = {1.0f, 8384513.0f}, y[2] = {1.0f, 8392705.0f};  /* the product: 2^46 + 1 */
    int              k;
    for (k = 0; k < 2; k++) {
        y[1] = (float)ldexp(8392705.0, k ? -54 : -57);      /* just above half an ulp of 1 */
        memset(&s, 0, sizeof s);
        CHECK_EQ_I(mpt_sums_add(&s, x, y, 2, 0), MPT_OK);
        CHECK_EQ_I(mpt_sums_get(&s, &g), MPT_OK);
        CHECK(k ? g.value[MPT_SUM_BF16] > 1.0 : g.value[MPT_SUM_F16] > 1.0);
    }
}

TEST(differences_of_zeros)
{
    static mpt_shadow  s;
    const mpt_shadowed zero = {-0.0, -0.0}, plus = {0.0, 0.0}, a = {1.0, 1.0}, b = {1.0, 1.0001};
    CHECK_EQ_I(mpt_shadow_init(&s, MPT_F16, 1e-3), MPT_OK);
    CHECK(signbit(mpt_shadow_apply(&s, MPT_SHADOW_OP_SUB, zero, plus, plus).low));
    (void)mpt_shadow_apply(&s, MPT_SHADOW_OP_SUB, b, a, a);
    CHECK_EQ_I(s.worst.cancelled, 11);                      /* all bits of an f16 */
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(survey_equals_each_format);
    RUN(survey_at_the_ends);
    RUN(range_of_very_many);
    RUN(survey_of_all_patterns);
    RUN(every_source);
    RUN(misaligned_arrays);
    RUN(range_equals_the_codec);
    RUN(reports_merge_in_any_order);
    RUN(range_percentiles);
    RUN(range_scale_curve);
    RUN(range_choice_is_the_best);
    RUN(range_tolerance_known);
    RUN(survey_refusals);
    RUN(exact_sum_known);
    RUN(exact_sum_in_any_order);
    RUN(roundoff_sqnr_at_the_ends);
    RUN(roundoff_equals_a_slow_reference);
    RUN(roundoff_fast_is_plain);
    RUN(roundoff_of_wide_blocks);
    RUN(roundoff_of_every_format);
    RUN(roundoff_of_very_many);
    RUN(roundoff_of_all_mantissas);
    RUN(roundoff_of_all_halves);
    RUN(roundoff_of_all_patterns_elsewhere);
    RUN(roundoff_from_every_source);
    RUN(roundoff_merges_in_any_order);
    RUN(stagnation_known);
    RUN(stagnation_margin_ends);
    RUN(stagnation_of_all_patterns);
    RUN(sums_known);
    RUN(sums_flushed);
    RUN(sums_equal_plain_loops);
    RUN(sums_by_careful_loops);
    RUN(sums_growth);
    RUN(shadow_names_the_cause);
    RUN(shadow_events_and_causes);
    RUN(shadow_operations_are_correctly_rounded);
    RUN(shadow_of_all_halves);
    RUN(tracks);
    RUN(numbers_read_back);
    RUN(writing);
    RUN(written_in_full);
    RUN(drawing_of_a_survey);
    RUN(drawings_show_one_of_many);
    RUN(drawing_of_the_nearest_edges);
    RUN(drawing_of_the_curve);
    RUN(drawing_of_rounding);
    RUN(drawing_of_stagnation);
    RUN(drawing_of_sums);
    RUN(drawing_of_a_shadow_run);
    RUN(drawing_of_tracks);
    RUN(drawings_on_a_full_disk);
    RUN(words_of_reports);
    RUN(promises_at_the_ends_of_reports);
    RUN_EXACT(choice_of_a_scale);
    RUN_EXACT(exact_sums_and_products);
    RUN_EXACT(subnormals_that_a_scale_makes_large);
    RUN_EXACT(small_shares_and_marks_of_drawings);
    RUN_EXACT(scale_of_minus_127);
    RUN_EXACT(half_lost_and_none);
    RUN_EXACT(sums_round_once);
    RUN_EXACT(differences_of_zeros);
    return mt_end();
}
