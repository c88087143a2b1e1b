/* test_half_random.c -- tests of the random numbers of mpt_half.h and of stochastic rounding. C99 and C++17.
 *
 *     cc -O2 -I. tests/test_half_random.c tests/impl.c -o test_half_random -lm
 *     ./test_half_random [--long] [part of a name]
 *
 * The seeds are fixed, so every run gives the same result. --long draws 32 times as many numbers. */
#include "../mpt_half.h"
#include "test.h"
#include "half_ref.h"

// philox ------------------------------------------------------------------------------------------

/* Known answers published with Random123 (kat_vectors, philox4x32-10). */
TEST(philox_known_answers)
{
    static const struct { uint32_t c[4], k[2], r[4]; } known[] = {
        {{0u, 0u, 0u, 0u}, {0u, 0u}, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
        {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu},
         {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
        {{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u},
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}}};
    size_t i, k;
    for (i = 0; i < COUNT_OF(known); i++) {
        const mpt_philox_words r =
            mpt_philox4x32(known[i].c[0], known[i].c[1], known[i].c[2], known[i].c[3],
                           known[i].k[0] | (uint64_t)known[i].k[1] << 32);
        for (k = 0; k < 4u; k++)
            CHECK_EQ_U_AT(r.word[k], known[i].r[k], i);
    }
}

TEST(philox_elements)
{
    const uint64_t seed = 0x0123456789abcdefu;
    uint64_t       i;
    for (i = 0; i < 1000u; i++) {
        const uint64_t element = mt_random() >> i % 64u;
        const mpt_philox_words r = mpt_philox4x32((uint32_t)(element >> 3), (uint32_t)(element >> 35), 5u,
                                                  6u, seed);
        const uint32_t w = r.word[element % 4u];
        CHECK_EQ_U_AT(mpt_philox(seed, 5u, 6u, element), element % 8u < 4u ? w : w << 16 | w >> 16, element);
    }
    CHECK_EQ_U(mpt_philox(0u, 0u, 0u, 0u), 0x6627e8d5u);
    CHECK_EQ_U(mpt_philox(3u, 5u, ((uint64_t)2 << 32) + 7u, 0u),     /* a step of more than 32 bits */
               mpt_philox4x32(0u, 0u, 5u, 7u, 3u + 2u * (uint64_t)0x9e3779b97f4a7c15u).word[0]);
    CHECK_EQ_U(mpt_philox(0u, 0u, 0u, 3u), 0x9b00dbd8u);
    CHECK_EQ_U(mpt_philox(0u, 0u, 0u, 4u), 0xe8d56627u);
    CHECK_EQ_U(mpt_philox(0u, 0u, 0u, 7u), 0xdbd89b00u);
    CHECK(mpt_philox(1u, 0u, 0u, 0u) != mpt_philox(0u, 0u, 0u, 0u));
    CHECK(mpt_philox(0u, 1u, 0u, 0u) != mpt_philox(0u, 0u, 0u, 0u));
    CHECK(mpt_philox(0u, 0u, 1u, 0u) != mpt_philox(0u, 0u, 0u, 0u));
    CHECK(mpt_philox(0u, 0u, 1u, 0u) != mpt_philox(0u, 1u, 0u, 0u));
}

// stochastic rounding -----------------------------------------------------------------------------

#define DRAWS 4096u

static mpt_opts stochastic(uint64_t seed, uint32_t stream, uint32_t step)
{
    mpt_opts o = options(MPT_RND_STOCHASTIC, 0, 0, 0u);
    o.seed = seed;
    o.stream = stream;
    o.step = step;
    return o;
}

/* How many of `draws` roundings of u give the upper neighbour; *others counts results that are neither. */
static uint64_t count_ups(const row *r, uint64_t u, uint64_t code, uint32_t draws, uint32_t stream,
                          uint64_t *others)
{
    static uint64_t src[DRAWS], dst[DRAWS];
    const uint64_t  up = num_to_f64(ref_value(r, code == r->max_code ? code : code + 1u));
    const uint64_t  down = num_to_f64(ref_value(r, code)), sign = u & F64_SIGN;
    mpt_opts        o = stochastic(20u, stream, 7u);
    uint64_t        ups = 0u;
    uint32_t        i, k;
    for (i = 0; i < DRAWS; i++)
        src[i] = u;
    for (i = 0; i < draws; i += DRAWS) {
        o.first_element = i;
        (void)mpt_quantize_f64_n(F64P(dst), CF64P(src), DRAWS, mpt_format_get(r->id), &o);
        for (k = 0; k < DRAWS; k++) {
            const uint64_t got = dst[k] == F64_SIGN && !down ? sign : dst[k];
            if (got == (up | sign) && code != r->max_code)
                ups++;
            else if ((got | F64_SIGN) != (down | F64_SIGN))
                (*others)++;
        }
    }
    return ups;
}

/* Subnormals, the least normal number, the middle of the range, near overflow; each at places from 1/32 to
 * 31/32 of the gap. The deviations of the counts, squared and divided by their variances, must have the sum
 * that chi-square predicts, and the sum of the deviations must be 0, both within 4 sigma. */
static void check_chances(const row *r)
{
    const uint64_t normal = r->specials == MPT_SPECIALS_SCALE ? 0u : ONE << r->m;
    const uint64_t codes[] = {0u, 1u, normal / 2u, normal ? normal - 1u : 0u, normal, r->max_code / 2u,
                              r->max_code - 1u};
    static const uint64_t parts[] = {1u, 3u, 8u, 16u, 17u, 24u, 31u};       /* in 32nds of the gap */
    const uint32_t draws = mt.long_mode ? 32u * DRAWS : DRAWS;
    int64_t        chi2 = 0, cells = 0, excess = 0, variance = 0;           /* chi2: times 1024 */
    uint64_t       others = 0u;
    size_t         i, k;
    uint32_t       stream = 0u;
    for (i = 0; i < COUNT_OF(codes); i++)
        for (k = 0; k < COUNT_OF(parts); k++) {
            const num      low = ref_value(r, codes[i]), gap = num_minus(ref_value(r, codes[i] + 1u), low);
            const int      exp = num_common_exp(low, gap) - 5;
            const uint64_t u = num_to_f64(num_make(num_units(low, exp) + parts[k] * num_units(gap, exp) / 32u,
                                                   exp)) | (r->s && k & 1u ? F64_SIGN : 0u);
            const int64_t  expected = (int64_t)(draws / 32u * parts[k]);
            const int64_t  spread = expected * (int64_t)(32u - parts[k]) / 32;     /* n p (1 - p) */
            const int64_t  ups = (int64_t)count_ups(r, u, codes[i], draws, stream++, &others);
            chi2 += (ups - expected) * (ups - expected) * 1024 / spread;
            cells++;
            excess += ups - expected;
            variance += spread;
        }
    CHECK_EQ_U(others, 0u);
    /* chi-square with `cells` degrees of freedom: mean cells, variance 2 cells; within 4 sigma, squared */
    CHECK((chi2 / 1024 - cells) * (chi2 / 1024 - cells) <= 16 * 2 * cells);
    CHECK(excess * excess <= 16 * variance);
}

TEST(stochastic_chances)
{
    size_t i;
    for (i = 0; i < COUNT_OF(rows); i++) {
        mt_context(rows[i].name, "chances");
        if (rows[i].id != MPT_F64 && rows[i].m <= 47)
            check_chances(&rows[i]);
    }
}

/* The same bits for an array at once, in chunks of random sizes, and one element at a time; also from other
 * formats than f32. */
TEST(stochastic_chunks)
{
    static const mpt_format formats[] = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2, MPT_E2M3};
    static const mpt_format sources[] = {MPT_F64, MPT_F16, MPT_BF16};
    static const uint64_t   starts[] = {(ONE << 35) - 2u, 0u - (uint64_t)1002};     /* within the array the
                                        low half of the counter wraps around; the index of the element does */
    static uint32_t      src[2000];
    static uint64_t      other[2000];
    static unsigned char whole[2000 * 2], parts[2000 * 2];
    size_t               i, j, k, done;
    for (k = 0; k < 2000u; k++)
        src[k] = (uint32_t)source_pattern(4u);
    for (i = 0; i < 2u * COUNT_OF(formats); i++) {
        const mpt_format format = formats[i / 2u];
        const uint64_t   start = starts[i % 2u];
        const size_t     bytes = (size_t)mpt_format_get(format)->bytes;
        mpt_opts         o = stochastic(99u, 2u, 3u);
        mt_context(mpt_format_get(format)->name, "chunks");
        o.first_element = start;
        CHECK_EQ_I(mpt_convert_n(format, whole, MPT_F32, src, 2000u, &o, NULL), MPT_OK);
        for (done = 0; done < 2000u;) {
            size_t take = 1u + (size_t)(mt_random() % 37u);
            take = take < 2000u - done ? take : 2000u - done;
            o.first_element = start + done;
            CHECK_EQ_I(mpt_convert_n(format, parts + done * bytes, MPT_F32, src + done, take, &o, NULL),
                       MPT_OK);
            done += take;
        }
        CHECK(memcmp(whole, parts, 2000u * bytes) == 0);
        for (k = 0; k < 2000u; k++) {
            mpt_opts one = options(MPT_RND_STOCHASTIC, 0, 0,
                                   mpt_philox(99u, 2u, 3u, start + k));
            uint64_t code;
            code = mpt_encode(format, f64_of(f64_from_f32_bits(src[k])), &one, NULL);
            CHECK_EQ_U_AT(get_code(whole, format, k), code, src[k]);
        }
        for (j = 0; j < COUNT_OF(sources); j++) {
            o.first_element = 0;
            CHECK_EQ_I(mpt_convert_n(sources[j], other, MPT_F32, src, 2000u, NULL, NULL), MPT_OK);
            CHECK_EQ_I(mpt_convert_n(format, whole, sources[j], other, 2000u, &o, NULL), MPT_OK);
            for (k = 0; k < 2000u; k++) {
                const mpt_opts one = options(MPT_RND_STOCHASTIC, 0, 0, mpt_philox(99u, 2u, 3u, k));
                const uint64_t code = get_code((const unsigned char *)other, sources[j], k);
                CHECK_EQ_U_AT(get_code(whole, format, k),
                              mpt_encode(format, mpt_decode(sources[j], code), &one, NULL), code);
            }
        }
    }
}

/* mpt_stochastic_n gives the bits of mpt_convert_n, does not read the other options, and writes nothing if it
 * refuses the call. */
TEST(stochastic_alone)
{
    static float    x[1003];
    static uint16_t got[1003], want[1003];
    const mpt_format formats[] = {MPT_F16, MPT_BF16};
    mpt_opts o, more;
    size_t   f, i;
    for (i = 0; i < 1003; i++)
        x[i] = (float)((int)i - 500) * 0.0123f;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    o.seed = 7u;
    o.stream = 3u;
    o.step = 11u;
    o.first_element = 5u;
    more = o;
    more.rounding = MPT_RND_DOWN;
    more.overflow = MPT_OVERFLOW_NAN;
    more.flush = 3u;
    for (f = 0; f < 2; f++) {
        CHECK_EQ_I(mpt_convert_n(formats[f], want, MPT_F32, x, 1003, &o, NULL), MPT_OK);
        CHECK_EQ_I(mpt_stochastic_n(formats[f], got, x, 1003, &o), MPT_OK);
        CHECK(!memcmp(got, want, sizeof got));
        memset(got, 0xaa, sizeof got);
        CHECK_EQ_I(mpt_stochastic_n(formats[f], got, x, 1003, &more), MPT_OK);
        CHECK(!memcmp(got, want, sizeof got));
    }
    CHECK_EQ_I(mpt_stochastic_n(MPT_F16, NULL, NULL, 0, &o), MPT_OK);
    memcpy(want, got, sizeof got);
    CHECK_EQ_I(mpt_stochastic_n(MPT_F16, got, x, 1003, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_stochastic_n(MPT_F16, NULL, x, 1003, &o), MPT_E_ARG);
    CHECK_EQ_I(mpt_stochastic_n(MPT_F16, got, NULL, 1003, &o), MPT_E_ARG);
    CHECK_EQ_I(mpt_stochastic_n(MPT_E4M3, got, x, 1003, &o), MPT_E_UNSUPPORTED);
    CHECK(!memcmp(got, want, sizeof got));
}

/* Elements i and i + 4 share a random word but round independently: if each rounds up with probability p,
 * both do in p^2 of the pairs, within 4 sigma. The formats drop 13, 16 and 20 bits of a float. */
TEST(stochastic_partners)
{
    static const mpt_format formats[] = {MPT_F16, MPT_BF16, MPT_E4M3};
    static const int64_t    eighths[] = {1, 4, 5, 7};       /* of the gap above 1, which is p */
    static uint64_t         src[DRAWS], dst[DRAWS];
    size_t                  f, e, k;
    for (f = 0; f < COUNT_OF(formats); f++)
        for (e = 0; e < COUNT_OF(eighths); e++) {
            const row     *r = row_of(formats[f]);
            const mpt_opts o = stochastic(7u, (uint32_t)e, 0u);
            const uint64_t one = 0x3ff0000000000000u;
            const int64_t  p2 = eighths[e] * eighths[e], pairs = DRAWS / 2;     /* p^2 in 64ths */
            int64_t        excess = -pairs * p2 / 64;
            for (k = 0; k < DRAWS; k++)
                src[k] = one + ((uint64_t)eighths[e] << (52 - r->m - 3));
            (void)mpt_quantize_f64_n(F64P(dst), CF64P(src), DRAWS, mpt_format_get(r->id), &o);
            for (k = 0; k < DRAWS; k++)
                excess += k % 8u < 4u && dst[k] > one && dst[k + 4u] > one;
            mt_context(r->name, "partners");
            CHECK(excess * excess <= 16 * pairs * p2 * (64 - p2) / 4096);
        }
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(philox_known_answers);
    RUN(philox_elements);
    RUN(stochastic_chances);
    RUN(stochastic_chunks);
    RUN(stochastic_alone);
    RUN(stochastic_partners);
    return mt_end();
}
