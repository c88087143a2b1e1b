/* test_mpt_report.c -- what the reports of mpt.h promise: every figure is that of a slow reference, and any
 * split of the data, merged in any order, gives the same report to the last byte. */
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "test.h"

#include <float.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- numbers to try ---- */

enum { MANY = 70000 };
static float  floats[MANY];
static double doubles[MANY];

/* Numbers from 2^low to below 2^high of either sign, with all their bits in use. */
static float random_float(int low, int high)
{
    const uint64_t bits = mt_random();
    const uint32_t e = (uint32_t)(127 + low + (int)(bits % (unsigned)(high - low)));
    return mpti_f32_make((uint32_t)(bits >> 32 & 0x807fffffu) | e << 23);
}

/* The kinds of data that reports meet: any pattern; a narrow band; many zeros; coarse numbers, where ties and
 * powers of two are common; the neighbourhood of every power of two. */
enum { KINDS = 6 };
static const char *const kind_name[KINDS] = {"any bits", "band", "zeros", "coarse", "edges", "constant"};

static float number_of_kind(int kind)
{
    const uint32_t r = (uint32_t)mt_random();
    switch (kind) {
    case 0: return mpti_f32_make(r);
    case 1: return random_float(-30, 2);
    case 2: return r & 1u ? random_float(-20, 17) : mpti_f32_make(r << 30);
    case 3: return mpti_f32_make((r & 0x80f80000u) + ((r >> 8 & 63u) + 90u) * 0x00800000u);
    case 4: return mpti_f32_make(((r >> 20) << 23) + (r & 15u) - 8u + (r & 0x80u ? 0x7fe000u : 0u));
    default: return 1.5f;
    }
}

static void floats_of_kind(int kind, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        floats[i] = number_of_kind(kind);
}

/* ---- all formats at once ---- */

static int has_report(int format) { return format != (int)MPT_E8M0; }

/* For every format, the report from all formats at once is the report of that format alone. */
static void ranges_are_range(const mpt_ranges *a, mpt_format from, const void *x, size_t n)
{
    static mpt_range alone, got;
    int              format;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        if (!has_report(format))
            continue;
        CHECK_EQ_I(mpt_range_init(&alone, (mpt_format)format), MPT_OK);
        CHECK_EQ_I(mpt_range_add(&alone, from, x, n), MPT_OK);
        memset(&got, 0xa5, sizeof got);
        CHECK_EQ_I(mpt_ranges_get(a, (mpt_format)format, &got), MPT_OK);
        CHECK(!memcmp(&alone, &got, sizeof got));
    }
}

TEST(ranges_equal_each_format)
{
    static mpt_ranges a;
    int               kind;
    size_t            n;
    for (kind = 0; kind < KINDS; kind++)
        for (n = 1; n <= MANY; n = 7 * n + 13) {
            mt_context(kind_name[kind], NULL);
            floats_of_kind(kind, n);
            CHECK_EQ_I(mpt_ranges_init(&a), MPT_OK);
            CHECK_EQ_I(mpt_ranges_add_f32(&a, floats, n), MPT_OK);
            ranges_are_range(&a, MPT_F32, floats, n);
        }
}

/* All patterns of every source format, and doubles of any bits. */
TEST(ranges_of_all_patterns)
{
    static mpt_ranges a;
    static uint16_t   codes[65536];
    static uint8_t    bytes[256];
    size_t            i;
    int               format;
    for (i = 0; i < 65536; i++)
        codes[i] = (uint16_t)i;
    for (i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    for (i = 0; i < MANY; i++)
        doubles[i] = mpti_f64_make(i & 1u ? mt_random() : mpti_f64_bits((double)random_float(-60, 30)));
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        const mpt_format from = (mpt_format)format;
        const int        bits = mpt_format_get(from)->bits;
        const void      *x = bits == 16 ? (const void *)codes : bits <= 8 ? (const void *)bytes : doubles;
        const size_t     n = bits == 16 ? 65536 : bits <= 8 ? 256 : MANY;
        if (!has_report(format) || from == MPT_TF32 || from == MPT_F32)
            continue;
        mt_context(mpt_format_get(from)->name, NULL);
        CHECK_EQ_I(mpt_ranges_init(&a), MPT_OK);
        CHECK_EQ_I(mpt_ranges_add(&a, from, x, n), MPT_OK);
        CHECK_EQ_U(a.count, n);
        ranges_are_range(&a, from, x, n);
    }
}

/* What the codec makes of one double. */
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

TEST(range_of_doubles)
{
    static mpt_range got, want;
    size_t           i, n = 20000;
    int              format;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        if (!has_report(format))
            continue;
        CHECK_EQ_I(mpt_range_init(&want, (mpt_format)format), MPT_OK);
        got = want;
        for (i = 0; i < n; i++) {       /* any bits, and each limit of the format with its neighbours */
            const uint64_t limit = i % 3 == 0 ? want.least_kept : i % 3 == 1 ? want.least_normal
                                                                             : want.least_overflow;
            doubles[i] = mpti_f64_make(i & 1u ? mt_random() : limit + mt_random() % 5u - 2u);
            reference_f64(&want, doubles[i]);
        }
        mt_context(mpt_format_get((mpt_format)format)->name, NULL);
        CHECK_EQ_I(mpt_range_add_f64(&got, doubles, n), MPT_OK);
        CHECK(!memcmp(&got, &want, sizeof got));
    }
}

TEST(ranges_merge_in_any_order)
{
    static mpt_ranges part[4], whole;
    int               round;
    for (round = 0; round < 40; round++) {
        const size_t n = (size_t)(mt_random() % 12000u);
        size_t       i, take, parts = COUNT(part);
        floats_of_kind(round % KINDS, n);
        CHECK_EQ_I(mpt_ranges_init(&whole), MPT_OK);
        CHECK_EQ_I(mpt_ranges_add_f32(&whole, floats, n), MPT_OK);
        for (i = 0; i < COUNT(part); i++)
            CHECK_EQ_I(mpt_ranges_init(&part[i]), MPT_OK);
        for (i = 0; i < n; i += take) {
            take = 1u + (size_t)(mt_random() % (n - i));
            CHECK_EQ_I(mpt_ranges_add_f32(&part[mt_random() % COUNT(part)], floats + i, take), MPT_OK);
        }
        for (; parts > 1; parts--) {
            const size_t a = (size_t)(mt_random() % (parts - 1u));
            CHECK_EQ_I(mpt_ranges_merge(&part[a], &part[parts - 1]), MPT_OK);
        }
        mt_context(kind_name[round % KINDS], NULL);
        CHECK(!memcmp(&part[0], &whole, sizeof whole));
    }
}

TEST(range_by_sign)
{
    static mpt_range negative, positive, both;
    size_t           i, minus = 0;
    floats_of_kind(2, 3000);
    for (i = 0; i < 3000; i++)
        minus += mpti_f32_bits(floats[i]) >> 31;
    (void)mpt_range_init(&negative, MPT_F16);
    positive = both = negative;
    CHECK_EQ_I(mpt_range_add_signed(&negative, &positive, MPT_F32, floats, 3000), MPT_OK);
    CHECK_EQ_I(mpt_range_add_f32(&both, floats, 3000), MPT_OK);
    CHECK_EQ_U(negative.count, minus);
    CHECK(positive.count == 3000 - minus && negative.zero && positive.zero);
    CHECK_EQ_I(mpt_range_merge(&negative, &positive), MPT_OK);
    CHECK(!memcmp(&negative, &both, sizeof both));
    CHECK_EQ_I(mpt_range_add_signed(&both, &both, MPT_F32, floats, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_add_signed(&both, NULL, MPT_F32, floats, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_add_signed(&both, &positive, MPT_TF32, floats, 1), MPT_E_UNSUPPORTED);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The nearest-rank percentile of the sorted magnitudes lies in the binade that was named. */
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
        (void)mpt_range_add_f32(&r, floats, n);
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

/* All of binade e at scale 2^k: 0 flushed, 1 subnormal, 2 normal, 3 overflow, by the format's own facts. */
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
    int              format, k;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        if (!has_report(format))
            continue;
        floats_of_kind(format % 3, 500);
        (void)mpt_range_init(&r, (mpt_format)format);
        (void)mpt_range_add_f32(&r, floats, 500);
        for (k = -126; k <= 127; k++) {
            uint64_t         zone[4];
            mpt_range_choice c;
            zones_at(&r, k, zone);
            CHECK_EQ_I(mpt_range_at_scale(&r, k, &c), MPT_OK);
            CHECK(c.log2_scale == k && ldexp(1.0, k) == (double)c.scale);
            CHECK_EQ_U_AT(c.flushed, zone[0], k);
            CHECK_EQ_U_AT(c.subnormal, zone[1], k);
            CHECK_EQ_U_AT(c.overflow, zone[3], k);
        }
    }
    CHECK_EQ_I(mpt_range_at_scale(&r, 128, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_at_scale(NULL, 0, NULL), MPT_E_ARG);
}

/* Best by the words of the doc block, tried out over all scales. */
static int best_scale(const mpt_range *r, int headroom, const mpt_range_tolerance *t)
{
    const double nonzero = (double)mpt_range_nonzero(r);
    double       least_flushed = 0.0, least_lost = 0.0;
    int          top = -126, k, best = 0;
    uint64_t     zone[4];
    for (k = 127; k >= -126; k--) {     /* the largest that overflow allows, with its headroom */
        zones_at(r, k + headroom, zone);
        if ((double)zone[3] <= t->overflow * nonzero) {
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

TEST(range_choice_with_tolerance)
{
    static mpt_range r;
    int              round;
    for (round = 0; round < 300; round++) {
        mpt_range_tolerance t;
        mpt_range_choice    c;
        const int           headroom = (int)(mt_random() % 6u), middle = (int)(mt_random() % 60u) - 30;
        size_t              i, n = 100u + (size_t)(mt_random() % 400u);
        for (i = 0; i < n; i++)         /* a bulk, and outliers on both sides */
            floats[i] = random_float(middle - 4, middle + 4);
        for (i = 0; i < n / 20u; i++)
            floats[i] = random_float(middle - 40, middle + 30);
        t.flushed = (double)(mt_random() % 8u) / 100.0;
        t.subnormal = (double)(mt_random() % 8u) / 100.0;
        t.overflow = (double)(1u + mt_random() % 5u) / 100.0;
        (void)mpt_range_init(&r, round & 1 ? MPT_F16 : MPT_E5M2);
        (void)mpt_range_add_f32(&r, floats, n);
        CHECK_EQ_I(mpt_range_choose_scale(&r, headroom, &t, &c), MPT_OK);
        CHECK_EQ_I(c.log2_scale, best_scale(&r, headroom, &t));
        CHECK((double)c.overflow <= t.overflow * (double)n);
    }
}

TEST(range_tolerance_known)
{
    static mpt_range    r;
    mpt_range_tolerance t = {0.0, 0.0, 0.0};
    mpt_range_choice    c;
    size_t              i;
    for (i = 0; i < 1000; i++)
        floats[i] = 1.0f;
    floats[0] = ldexpf(1.0f, -30);      /* one tiny outlier, one huge */
    floats[1] = 131072.0f;
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add_f32(&r, floats, 1000);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 0, NULL, &c), MPT_OK);
    CHECK(c.log2_scale == -2 && c.flushed == 1 && c.overflow == 0);     /* 2^17 must come below 2^16 */
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
}

TEST(ranges_refusals)
{
    static mpt_ranges a, zeroed;
    static mpt_range  r;
    const float       x = 1.0f;
    (void)mpt_ranges_init(&a);
    CHECK_EQ_I(mpt_ranges_init(NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_ranges_add_f32(&zeroed, &x, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_ranges_add_f32(&a, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_ranges_add_f32(NULL, &x, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_ranges_add(&a, MPT_TF32, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_ranges_add(&a, MPT_E8M0, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_ranges_add(&a, MPT_FORMAT_COUNT, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_ranges_merge(&a, &zeroed), MPT_E_ARG);
    CHECK_EQ_I(mpt_ranges_merge(&zeroed, &a), MPT_E_ARG);
    CHECK_EQ_I(mpt_ranges_get(&a, MPT_E8M0, &r), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_ranges_get(&zeroed, MPT_F16, &r), MPT_E_ARG);
    CHECK_EQ_I(mpt_ranges_get(&a, MPT_F16, NULL), MPT_E_ARG);
    (void)mpt_range_init(&r, MPT_F16);
    CHECK_EQ_I(mpt_range_add(&r, MPT_TF32, &x, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_add(&r, MPT_F32, NULL, 0), MPT_OK);
    CHECK_EQ_U(a.count + r.count, 0);
    CHECK_EQ_U(MPT_RANGES_EDGES, 3 * (int)MPT_FORMAT_COUNT);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(ranges_equal_each_format);
    RUN(ranges_of_all_patterns);
    RUN(range_of_doubles);
    RUN(ranges_merge_in_any_order);
    RUN(range_by_sign);
    RUN(range_percentiles);
    RUN(range_scale_curve);
    RUN(range_choice_with_tolerance);
    RUN(range_tolerance_known);
    RUN(ranges_refusals);
    return mt_end();
}
