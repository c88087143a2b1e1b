/* test_half_arith.c -- tests of the arithmetic of mpt_half.h. Valid C99 and C++17.
 *
 *     cc -O2 -I. tests/test_half_arith.c tests/impl.c -o test_half_arith -lm
 *     ./test_half_arith [--long] [part of a name]
 *
 * --long: add, sub, mul, div over all 2^32 pairs of f16, and 10^9 fma triples (an hour).
 *
 * The reference shares no code with the header. It computes the exact result of an operation in integers, and
 * half_ref.h rounds it, with any options. */
#include "../mpt_half.h"

#include "impl.h"
#include "test.h"
#include "half_ref.h"
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__SSE__)) && !defined(__TINYC__)
#include <xmmintrin.h>
#define HAVE_MXCSR 1
#else
#define HAVE_MXCSR 0
#endif

#define SIGN 0x8000u

enum { MODES = MPT_RND_STOCHASTIC };    /* the roundings below it: all but stochastic */

// formats -----------------------------------------------------------------------------------------

typedef struct fmt {
    const row *r;
    unsigned   inf, quiet, one;     /* codes of Inf and 1, the quiet bit of NaNs */
} fmt;

static const fmt formats[2] = {{&rows[MPT_F16], 0x7c00u, 0x0200u, 0x3c00u},
                               {&rows[MPT_BF16], 0x7f80u, 0x0040u, 0x3f80u}};

static unsigned mag(unsigned code) { return code & 0x7fffu; }
static int is_nan(const fmt *f, unsigned code) { return mag(code) > f->inf; }
static int is_inf(const fmt *f, unsigned code) { return mag(code) == f->inf; }
static int is_zero(unsigned code) { return mag(code) == 0u; }
static int is_snan(const fmt *f, unsigned code) { return is_nan(f, code) && !(code & f->quiet); }
static num value_of(const fmt *f, unsigned code) { return ref_value(f->r, mag(code)); }

// the exact result of an operation ----------------------------------------------------------------

/* A number other than zero; or, if x is zero, a code. */
typedef struct exact {
    num      x;
    unsigned sign;          /* of x: 0 or SIGN */
    unsigned code, flags;
    int      cancelled;     /* a difference of equal numbers: the sign of the zero depends on the rounding */
} exact;

static exact exact_code(unsigned code, unsigned flags)
{
    exact e;
    memset(&e, 0, sizeof e);
    e.code = code;
    e.flags = flags;
    return e;
}

static exact exact_number(num x, unsigned sign)
{
    exact e = exact_code(sign, 0u);
    e.x = x;
    e.sign = sign;
    return e;
}

/* The code that an operation must return with options, and the flags it must raise. */
static unsigned rounded(const fmt *f, exact e, const mpt_opts *o, unsigned *flags)
{
    *flags = e.flags;
    if (e.x.sig)
        return (unsigned)ref_encode_num(f->r, e.x, e.sign != 0u, o, flags);
    if (is_inf(f, e.code) && o->overflow == MPT_OVERFLOW_SATURATE) {
        *flags |= OVF | INX;
        return e.code - 1u;
    }
    if (is_nan(f, e.code) && o->nan == MPT_NAN_CANONICAL)
        return f->inf | f->quiet;
    return e.cancelled && o->rounding == MPT_RND_DOWN ? SIGN : e.code;
}

/* A number that has more than 62 bits keeps the upper ones; its lowest bit is then 1, which stands for all
 * that follows: as the formats have few bits, it lies between the same neighbours. */

/* a + b, or a - b; a is not below b, and both have at most 22 bits */
static num num_sum(num a, num b, int minus)
{
    uint64_t low, lost = 0u;
    int      shift;
    if (!b.sig)
        return a;
    a = num_normalize(a);
    a.sig >>= 2;
    a.exp += 2;
    shift = a.exp - b.exp;
    if (shift <= 0)
        low = b.sig << -shift;
    else {
        low = shift < 64 ? b.sig >> shift : 0u;
        lost = shift > 63 || low << shift != b.sig;
    }
    a.sig = minus ? a.sig - low - lost : a.sig + low;
    a.sig |= lost;
    return a;
}

static num num_quotient(num a, num b)
{
    a = num_normalize(a);
    return num_make(a.sig / b.sig | (a.sig % b.sig != 0u), a.exp - b.exp);
}

/* Whether root^2 <= limit * 2^44, for a root below 2^44. */
static int square_fits(uint64_t root, uint64_t limit)
{
    const uint64_t upper = root >> 22, lower = root & 0x3fffffu, last = lower * lower;
    const uint64_t middle = 2u * upper * lower + (last >> 22), whole = upper * upper + (middle >> 22);
    return whole < limit || (whole == limit && !(middle << 42) && !(last << 42));
}

/* 44 bits of the root, as stochastic rounding needs 11 and 32; of a number that has at most 11. */
static num num_root(num a)
{
    uint64_t root = 0u, bit;
    a = num_normalize(a);
    a.sig >>= 20 + (a.exp & 1);     /* makes the exponent even */
    a.exp += 20 + (a.exp & 1);
    for (bit = ONE << 43; bit; bit /= 2u)
        if (square_fits(root + bit, a.sig))
            root += bit;
    return num_make(2u * root | (uint64_t)(root << 42 || (root >> 22) * (root >> 22) != a.sig),
                    a.exp / 2 - 23);
}

/* x - n * y for the integer n that is nearest to x / y, the even one of two; *flip: the result has the other
 * sign */
static num num_remainder(num x, num y, int *flip)
{
    uint64_t rest = x.sig;
    int      odd;
    *flip = 0;
    if (y.exp - x.exp > 40)         /* x is below y / 2, as both have at most 11 bits */
        return x;
    if (y.exp > x.exp)
        y = num_make(y.sig << (y.exp - x.exp), x.exp);
    for (rest %= 2u * y.sig; x.exp > y.exp; x.exp--)
        rest = 2u * rest % (2u * y.sig);
    odd = rest >= y.sig;
    rest -= odd ? y.sig : 0u;
    *flip = 2u * rest > y.sig || (2u * rest == y.sig && odd);
    return num_make(*flip ? y.sig - rest : rest, y.exp);
}

// reference operations ----------------------------------------------------------------------------

typedef enum { ADD, SUB, MUL, DIV, FMA, SQRT, OPS } op;
static const char *const op_names[OPS] = {"add", "sub", "mul", "div", "fma", "sqrt"};

/* If an operand is NaN, the result is the first NaN, made quiet. Returns 0 if none is. */
static int ref_first_nan(const fmt *f, const unsigned *in, int n, exact *out)
{
    unsigned flags = 0;
    int      i, first = -1;
    for (i = n - 1; i >= 0; i--) {
        if (is_nan(f, in[i]))
            first = i;
        if (is_snan(f, in[i]))
            flags = INV;
    }
    if (first >= 0)
        *out = exact_code(in[first] | f->quiet, flags);
    return first >= 0;
}

/* x + y, with their signs */
static exact ref_sum(num x, unsigned sign_x, num y, unsigned sign_y)
{
    const int order = num_cmp(x, y), minus = sign_x != sign_y;
    exact     e = exact_number(order < 0 ? num_sum(y, x, minus) : num_sum(x, y, minus),
                               order < 0 ? sign_y : sign_x);
    if (minus && !order) {
        e = exact_code(0u, 0u);
        e.cancelled = 1;
    }
    return e;
}

static num ref_product(const fmt *f, unsigned a, unsigned b)
{
    const num x = value_of(f, a), y = value_of(f, b);
    return num_make(x.sig * y.sig, x.exp + y.exp);
}

static exact ref_product_sum(const fmt *f, unsigned a, unsigned b, unsigned c)
{
    const unsigned sign = (a ^ b) & SIGN;
    if (is_inf(f, a) || is_inf(f, b)) {
        const int bad = is_inf(f, c) && (c & SIGN) != sign;
        return exact_code(bad ? f->inf | f->quiet : f->inf | sign, bad ? INV : 0u);
    }
    if (is_inf(f, c))
        return exact_code(c, 0u);
    return ref_sum(ref_product(f, a, b), sign, value_of(f, c), c & SIGN);
}

static exact ref_mul_div(const fmt *f, op what, unsigned a, unsigned b)
{
    const unsigned sign = (a ^ b) & SIGN, none = f->inf | f->quiet;
    const int      big = is_inf(f, a) || (what == MUL ? is_inf(f, b) : is_zero(b));
    const int      nil = is_zero(a) || (what == MUL ? is_zero(b) : is_inf(f, b));
    if (big || nil) {
        const int to_zero = what == DIV && big && !is_inf(f, a);
        return exact_code(big && nil ? none : big ? f->inf | sign : sign,
                          big && nil ? INV : to_zero ? DBZ : 0u);
    }
    return exact_number(what == MUL ? ref_product(f, a, b) : num_quotient(value_of(f, a), value_of(f, b)),
                        sign);
}

static exact ref_op(const fmt *f, op what, unsigned a, unsigned b, unsigned c)
{
    const int one = is_inf(f, a) ? is_zero(b) : is_zero(a) && is_inf(f, b);
    unsigned  in[3];
    exact     e;
    in[0] = a;
    in[1] = b;
    in[2] = c;
    if (ref_first_nan(f, in, what == SQRT ? 1 : what == FMA ? 3 : 2, &e)) {
        if (what == FMA && one)
            e.flags = INV;
        return e;
    }
    switch (what) {
    case SUB: return ref_product_sum(f, a, f->one, b ^ SIGN);
    case ADD: return ref_product_sum(f, a, f->one, b);
    case FMA: return one ? exact_code(f->inf | f->quiet, INV) : ref_product_sum(f, a, b, c);
    case SQRT:
        if (is_zero(a) || a == f->inf)
            return exact_code(a, 0u);
        return a & SIGN ? exact_code(f->inf | f->quiet, INV) : exact_number(num_root(value_of(f, a)), 0u);
    case MUL:
    case DIV:
    case OPS:
    default: return ref_mul_div(f, what, a, b);
    }
}

// the operations under test -----------------------------------------------------------------------

static mpt_f16 h16(unsigned code)
{
    mpt_f16 h;
    h.bits = (uint16_t)code;
    return h;
}

static mpt_bf16 b16(unsigned code)
{
    mpt_bf16 b;
    b.bits = (uint16_t)code;
    return b;
}

#define OPERATIONS(T, of)                                                                            \
    static unsigned T##_with(op what, unsigned a, unsigned b, unsigned c, const mpt_opts *o,         \
                             unsigned *flags)                                                        \
    {                                                                                                \
        switch (what) {                                                                              \
        case ADD: return mpt_##T##_add_with(of(a), of(b), o, flags).bits;                            \
        case SUB: return mpt_##T##_sub_with(of(a), of(b), o, flags).bits;                            \
        case MUL: return mpt_##T##_mul_with(of(a), of(b), o, flags).bits;                            \
        case DIV: return mpt_##T##_div_with(of(a), of(b), o, flags).bits;                            \
        case FMA: return mpt_##T##_fma_with(of(a), of(b), of(c), o, flags).bits;                     \
        case SQRT:                                                                                   \
        case OPS:                                                                                    \
        default: return mpt_##T##_sqrt_with(of(a), o, flags).bits;                                   \
        }                                                                                            \
    }                                                                                                \
    static unsigned T##_plain(op what, unsigned a, unsigned b, unsigned c)                           \
    {                                                                                                \
        switch (what) {                                                                              \
        case ADD: return mpt_##T##_add(of(a), of(b)).bits;                                           \
        case SUB: return mpt_##T##_sub(of(a), of(b)).bits;                                           \
        case MUL: return mpt_##T##_mul(of(a), of(b)).bits;                                           \
        case DIV: return mpt_##T##_div(of(a), of(b)).bits;                                           \
        case FMA: return mpt_##T##_fma(of(a), of(b), of(c)).bits;                                    \
        case SQRT:                                                                                   \
        case OPS:                                                                                    \
        default: return mpt_##T##_sqrt(of(a)).bits;                                                  \
        }                                                                                            \
    }
OPERATIONS(f16, h16)
OPERATIONS(bf16, b16)

static unsigned any_with(int f, op what, unsigned a, unsigned b, unsigned c, const mpt_opts *o,
                         unsigned *flags)
{
    return f ? bf16_with(what, a, b, c, o, flags) : f16_with(what, a, b, c, o, flags);
}

static mpt_opts rounding(int mode) { return options(mode, 0, 0, 0u); }

static unsigned any_plain(int f, op what, unsigned a, unsigned b, unsigned c)
{
    return f ? bf16_plain(what, a, b, c) : f16_plain(what, a, b, c);
}

/* Compare a result with the reference. */
static void check_with(const fmt *f, unsigned got, unsigned flags, exact e, const mpt_opts *o, uint64_t at)
{
    unsigned       want_flags;
    const unsigned want = rounded(f, e, o, &want_flags);
    CHECK_EQ_U_AT(got, want, at);
    CHECK_EQ_U_AT(flags, want_flags, at);
}

static void check_op(const fmt *f, op what, unsigned a, unsigned b, unsigned c)
{
    const uint64_t at = (uint64_t)a << 32 | b << 16 | c;
    const exact    e = ref_op(f, what, a, b, c);
    int            i;
    for (i = 0; i < MODES; i++) {
        const mpt_opts o = rounding(i);
        unsigned       flags = 0;
        const unsigned got = any_with(f != formats, what, a, b, c, &o, &flags);
        mt_context(op_names[what], rounding_names[i]);
        check_with(f, got, flags, e, &o, at);
        if (i == MPT_RND_NEAREST_EVEN)
            CHECK_EQ_U_AT(any_plain(f != formats, what, a, b, c), got, at);
    }
}

/* A random code: in half of the calls limits of ranges, specials, runs of ones or zeros; else any code. */
static unsigned pick(const fmt *f)
{
    const uint64_t r = mt_random();
    const unsigned sign = (unsigned)(r >> 60) & 1u ? SIGN : 0u, one = 1u << f->r->m;
    const unsigned field = (unsigned)((r >> 16) & 0x7fffu) & ~(one - 1u), bit = 1u << (r & 7u);
    const unsigned ends[] = {0u, 1u, 2u, one - 1u, one, one + 1u, f->inf - 1u, f->inf - 2u, f->inf,
                             f->inf | 1u, f->inf | f->quiet, 0x7fffu, f->one};
    switch (r >> 61) {
    case 0: return sign | ends[(r & 0xffffu) % COUNT_OF(ends)];
    case 1: return sign | field | (bit & (one - 1u));
    case 2: return sign | field | ((one - 1u) & ~bit);
    case 3: return sign | field | ((one - bit) & (one - 1u));
    default: return (unsigned)(r & 0xffffu);
    }
}

/* A code with an exponent near that of another code: sums that cancel, or whose last bits just overlap. */
static unsigned pick_near(const fmt *f, unsigned code)
{
    const int away = (int)(mt_random() % 33u) - 16;
    return (code + (unsigned)(away * (1 << f->r->m)) + (unsigned)(mt_random() % 5u)) & 0xffffu;
}

TEST(every_mode_on_structured_pairs)
{
    const long n = mt.long_mode ? 20000000 : 60000 / (long)mt.every;
    long       i;
    int        f, k;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const unsigned a = pick(&formats[f]), b = i & 1 ? pick(&formats[f]) : pick_near(&formats[f], a);
            for (k = ADD; k <= DIV; k++)
                check_op(&formats[f], (op)k, a, b, 0u);
        }
}

TEST(fma_on_structured_triples)
{
    const long n = mt.long_mode ? 500000000 : 150000 / (long)mt.every;
    long       i;
    int        f;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const fmt *const F = &formats[f];
            const unsigned   a = pick(F), b = pick(F);
            unsigned         c = pick(F);
            if (i % 4 == 0)     /* an addend near the product, of the other sign */
                c = pick_near(F, any_plain(f, MUL, a, b, 0u) ^ SIGN);
            check_op(F, FMA, a, b, c);
        }
}

TEST(special_values_meet_each_other)
{
    int      f, k, i, j, l;
    for (f = 0; f < 2; f++) {
        const fmt *const F = &formats[f];
        const unsigned   s[] = {0u, 1u, 1u << F->r->m, F->one, F->inf - 1u, F->inf,
                                F->inf | 1u, F->inf | F->quiet, F->inf | F->quiet | 5u,
                                SIGN, SIGN | 1u, SIGN | F->one, SIGN | (F->inf - 1u),
                                SIGN | F->inf, SIGN | F->inf | 3u, SIGN | F->inf | F->quiet | 7u};
        const int n = (int)COUNT_OF(s);
        for (k = 0; k < OPS; k++)
            for (i = 0; i < n; i++)
                for (j = 0; j < (k == SQRT ? 1 : n); j++)
                    for (l = 0; l < (k == FMA ? n : 1); l++)
                        check_op(F, (op)k, s[i], s[j], s[l]);
    }
}

TEST(sqrt_of_all_codes)
{
    unsigned a;
    int      f;
    for (f = 0; f < 2; f++)
        for (a = 0; a < 0x10000u; a += 1u + (unsigned)(a >= SIGN && !mt.long_mode) * 12u)
            check_op(&formats[f], SQRT, a, 0u, 0u);
}

TEST(wrong_options_are_invalid)
{
    mpt_opts o;
    unsigned flags;
    int      i;
    for (i = 0; i < WRONG_OPTIONS; i++) {
        o = wrong_options(i);
        flags = INX;
        CHECK_EQ_U(mpt_f16_add_with(h16(0x3c00u), h16(0x3c00u), &o, &flags).bits, 0x7e00u);
        CHECK_EQ_U(flags, INV | INX);
        flags = 0;
        CHECK_EQ_U(mpt_bf16_sqrt_with(b16(0x3f80u), &o, &flags).bits, 0x7fc0u);
        CHECK_EQ_U(flags, INV);
        CHECK_EQ_U(mpt_f16_scaleb_with(h16(0x3c00u), 1, &o, NULL).bits, 0x7e00u);
    }
    o = rounding(MPT_RND_UP);
    CHECK_EQ_U(mpt_f16_add_with(h16(0x3c00u), h16(1u), &o, NULL).bits, 0x3c01u);
    CHECK_EQ_U(mpt_f16_add_with(h16(0x3c00u), h16(1u), NULL, NULL).bits, 0x3c00u);
}

// the operations that need no rounding of results --------------------------------------------------

static unsigned any_rem(int f, unsigned a, unsigned b, const mpt_opts *o, unsigned *flags)
{
    return f ? mpt_bf16_rem_with(b16(a), b16(b), o, flags).bits
             : mpt_f16_rem_with(h16(a), h16(b), o, flags).bits;
}

static unsigned any_extreme(int f, unsigned a, unsigned b, unsigned which, unsigned *flags)
{
    return f ? mpt_bf16_extreme(b16(a), b16(b), which, flags).bits
             : mpt_f16_extreme(h16(a), h16(b), which, flags).bits;
}

typedef enum { TO_INTEGRAL, LOGB, SCALEB, OPS_OF_1 } op_of_1;
static const char *const op_of_1_names[OPS_OF_1] = {"to_integral", "logb", "scaleb"};

static unsigned any_of_1(int f, op_of_1 what, unsigned a, int by, const mpt_opts *o, unsigned *flags)
{
    switch (what) {
    case TO_INTEGRAL:
        return f ? mpt_bf16_to_integral_with(b16(a), o, flags).bits
                 : mpt_f16_to_integral_with(h16(a), o, flags).bits;
    case LOGB:
        return f ? mpt_bf16_logb_with(b16(a), o, flags).bits : mpt_f16_logb_with(h16(a), o, flags).bits;
    case SCALEB:
    case OPS_OF_1:
    default:
        return f ? mpt_bf16_scaleb_with(b16(a), by, o, flags).bits
                 : mpt_f16_scaleb_with(h16(a), by, o, flags).bits;
    }
}

static exact ref_rem(const fmt *f, unsigned a, unsigned b)
{
    unsigned in[2];
    exact    e;
    int      flip;
    in[0] = a;
    in[1] = b;
    if (ref_first_nan(f, in, 2, &e))
        return e;
    if (is_inf(f, a) || is_zero(b))
        return exact_code(f->inf | f->quiet, INV);
    if (is_zero(a))
        return exact_code(a, 0u);
    if (is_inf(f, b))
        return exact_number(value_of(f, a), a & SIGN);
    e = exact_number(num_remainder(value_of(f, a), value_of(f, b), &flip), a & SIGN);
    e.sign ^= flip ? SIGN : 0u;
    return e;
}

TEST(remainder)
{
    const mpt_opts plain = rounding(MPT_RND_NEAREST_EVEN);
    const long     n = mt.long_mode ? 2000000 : 12000;
    long           i;
    int            f;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const unsigned a = pick(&formats[f]), b = i & 1 ? pick(&formats[f]) : pick_near(&formats[f], a);
            unsigned       flags = 0;
            const unsigned got = any_rem(f, a, b, NULL, &flags);
            mt_context(formats[f].r->name, "rem");
            check_with(&formats[f], got, flags, ref_rem(&formats[f], a, b), &plain, (uint64_t)a << 32 | b);
            CHECK(!(flags & INX));
        }
    CHECK_EQ_U(mpt_f16_rem(h16(0x4500u), h16(0x4200u)).bits, 0xbc00u);   /* 5 rem 3 = -1 */
    CHECK_EQ_U(mpt_bf16_rem(b16(0x40a0u), b16(0x4040u)).bits, 0xbf80u);
}

/* -1, 0, 1 as a is below, equal to, above b; if `zeros`, -0 is below +0 */
static int ref_order(const fmt *f, unsigned a, unsigned b, int zeros)
{
    const int size = is_inf(f, a) || is_inf(f, b) ? (int)is_inf(f, a) - (int)is_inf(f, b)
                                                  : num_cmp(value_of(f, a), value_of(f, b));
    if (is_zero(a) && is_zero(b))
        return zeros ? (int)(b >> 15) - (int)(a >> 15) : 0;
    if (a >> 15 != b >> 15)
        return a >> 15 ? -1 : 1;
    return a >> 15 ? -size : size;
}

TEST(minimum_and_maximum)
{
    static const struct { const char *name; int largest, magnitude, number; } m[] = {
        {"minimum", 0, 0, 0}, {"maximum", 1, 0, 0}, {"minimum_number", 0, 0, 1}, {"maximum_number", 1, 0, 1},
        {"minimum_magnitude", 0, 1, 0}, {"maximum_magnitude", 1, 1, 0},
        {"minimum_magnitude_number", 0, 1, 1}, {"maximum_magnitude_number", 1, 1, 1},
    };
    const long n = mt.long_mode ? 1000000 : 20000;
    long       i;
    size_t     k;
    int        f;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++)
            for (k = 0; k < COUNT_OF(m); k++) {
                const fmt *const F = &formats[f];
                const unsigned   a = pick(F), b = i % 8 == 0 ? a ^ SIGN : pick(F);
                const unsigned   snan = is_snan(F, a) || is_snan(F, b) ? INV : 0u;
                const unsigned   which = (m[k].largest ? MPT_EXTREME_LARGEST : 0u) |
                                         (m[k].magnitude ? MPT_EXTREME_MAGNITUDE : 0u) |
                                         (m[k].number ? MPT_EXTREME_NUMBER : 0u);
                unsigned         want, flags = 0, got;
                if (is_nan(F, a) || is_nan(F, b)) {
                    want = (is_nan(F, a) ? a : b) | F->quiet;
                    if (m[k].number && !(is_nan(F, a) && is_nan(F, b)))
                        want = is_nan(F, a) ? b : a;
                } else {
                    int order = m[k].magnitude ? ref_order(F, mag(a), mag(b), 1) : 0;
                    if (!order)
                        order = ref_order(F, a, b, 1);
                    want = m[k].largest ? (order >= 0 ? a : b) : (order <= 0 ? a : b);
                }
                got = any_extreme(f, a, b, which, &flags);
                mt_context(F->r->name, m[k].name);
                CHECK_EQ_U_AT(got, want, (uint64_t)a << 32 | b);
                CHECK_EQ_U_AT(flags, snan, (uint64_t)a << 32 | b);
                if (k == 0)
                    got = f ? mpt_bf16_minimum(b16(a), b16(b)).bits : mpt_f16_minimum(h16(a), h16(b)).bits;
                if (k == 1)
                    got = f ? mpt_bf16_maximum(b16(a), b16(b)).bits : mpt_f16_maximum(h16(a), h16(b)).bits;
                CHECK_EQ_U_AT(got, want, (uint64_t)a << 32 | b);
            }
    CHECK_EQ_U(mpt_f16_minimum(h16(0u), h16(SIGN)).bits, SIGN);
    CHECK_EQ_U(mpt_f16_maximum(h16(SIGN), h16(0u)).bits, 0u);
    CHECK_EQ_U(mpt_bf16_extreme(b16(0x7fc0u), b16(0x3f80u), MPT_EXTREME_NUMBER, NULL).bits, 0x3f80u);
    CHECK_EQ_U(mpt_bf16_extreme(b16(0xc000u), b16(0x3f80u), MPT_EXTREME_LARGEST | MPT_EXTREME_MAGNITUDE,
                                NULL).bits, 0xc000u);
}

static int any_compare(int f, unsigned a, unsigned b, int signaling, unsigned *flags)
{
    return (int)(f ? mpt_bf16_compare(b16(a), b16(b), signaling, flags)
                   : mpt_f16_compare(h16(a), h16(b), signaling, flags));
}

static void check_relations(int f, unsigned a, unsigned b)
{
    const fmt *const F = &formats[f];
    const int        nan = is_nan(F, a) || is_nan(F, b);
    const int        order = nan ? 2 : ref_order(F, a, b, 0);
    const int        asked[] = {MPT_LESS, MPT_EQUAL, MPT_GREATER, MPT_UNORDERED}, relation = asked[order + 1];
    const unsigned   quiet = is_snan(F, a) || is_snan(F, b) ? INV : 0u, loud = nan ? INV : 0u;
    const uint64_t   at = (uint64_t)a << 32 | b;
    unsigned         flags = 0;
    int              k;
    mt_context(F->r->name, "compare");
    for (k = 0; k < 4; k++)                     /* each relation is one bit, so that callers can mask */
        CHECK_EQ_U_AT((any_compare(f, a, b, 0, NULL) & asked[k]) != 0, order == k - 1, at);
    CHECK_EQ_U_AT(any_compare(f, a, b, 0, &flags), relation, at);
    CHECK_EQ_U_AT(flags, quiet, at);
    flags = 0;
    CHECK_EQ_U_AT(any_compare(f, a, b, 1, &flags), relation, at);
    CHECK_EQ_U_AT(flags, loud, at);
    CHECK_EQ_U_AT(any_compare(f, a, b, 1, NULL), relation, at);
    CHECK_EQ_U_AT(f ? mpt_bf16_eq(b16(a), b16(b)) : mpt_f16_eq(h16(a), h16(b)), order == 0, at);
    CHECK_EQ_U_AT(f ? mpt_bf16_lt(b16(a), b16(b)) : mpt_f16_lt(h16(a), h16(b)), order == -1, at);
    CHECK_EQ_U_AT(f ? mpt_bf16_le(b16(a), b16(b)) : mpt_f16_le(h16(a), h16(b)), order < 1, at);
    CHECK_EQ_U_AT(f ? mpt_bf16_lt(b16(b), b16(a)) : mpt_f16_lt(h16(b), h16(a)), order == 1, at);
    CHECK_EQ_U_AT(f ? mpt_bf16_le(b16(b), b16(a)) : mpt_f16_le(h16(b), h16(a)), order == 0 || order == 1,
                  at);
}

TEST(comparisons)
{
    const long n = mt.long_mode ? 2000000 : 20000;
    long       i;
    int        f;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const unsigned a = pick(&formats[f]);
            check_relations(f, a, i % 8 == 0 ? a ^ SIGN : i % 8 == 1 ? a : pick(&formats[f]));
        }
}

/* The place of a code in the total order, counted from the -NaN with the largest payload. */
static int total_place(unsigned code) { return code & SIGN ? 0x7fff - (int)mag(code) : 0x8000 + (int)code; }

TEST(total_order_and_signs)
{
    long i;
    for (i = 0; i < 30000; i++) {
        const unsigned a = pick(&formats[i & 1]);
        const unsigned b = i % 4 < 2 ? pick(&formats[i & 1]) : a ^ (i % 3 ? SIGN : 0u);
        const int      want = total_place(a) <= total_place(b);
        CHECK_EQ_I(mpt_f16_total_order(h16(a), h16(b)), want);
        CHECK_EQ_I(mpt_bf16_total_order(b16(a), b16(b)), want);
        CHECK_EQ_I(mpt_f16_total_order(mpt_f16_abs(h16(a)), mpt_f16_abs(h16(b))), mag(a) <= mag(b));
        CHECK_EQ_I(mpt_bf16_total_order(mpt_bf16_abs(b16(a)), mpt_bf16_abs(b16(b))), mag(a) <= mag(b));
        CHECK_EQ_U(mpt_f16_neg(h16(a)).bits, a ^ SIGN);
        CHECK_EQ_U(mpt_bf16_abs(b16(a)).bits, mag(a));
        CHECK_EQ_U(mpt_f16_abs(h16(a)).bits, mag(a));
        CHECK_EQ_U(mpt_bf16_neg(b16(a)).bits, a ^ SIGN);
        CHECK_EQ_U(mpt_f16_copysign(h16(a), h16(b)).bits, mag(a) | (b & SIGN));
        CHECK_EQ_U(mpt_bf16_copysign(b16(a), b16(b)).bits, mag(a) | (b & SIGN));
    }
}

/* How many of the 2^32 random words take a number up to the next integer. */
static uint64_t integral_share(num v)
{
    if (v.exp >= 0 || v.exp < -63)      /* v has at most 11 bits */
        return 0u;
    return ((v.sig & ((ONE << -v.exp) - 1u)) << 32) >> -v.exp;
}

static exact ref_integral(const fmt *f, unsigned a, const mpt_opts *o)
{
    const num v = value_of(f, a);
    num       whole;
    exact     e;
    if (is_nan(f, a))
        return exact_code(a | f->quiet, is_snan(f, a) ? INV : 0u);
    if (is_inf(f, a) || v.exp >= 0)
        return exact_code(a, 0u);
    whole = num_make(v.exp > -40 ? v.sig >> -v.exp : 0u, 0);
    e = exact_code(a & SIGN, num_cmp(v, whole) ? INX : 0u);
    if (e.flags && o->rounding == MPT_RND_STOCHASTIC)
        whole.sig += o->random < integral_share(v);
    else if (e.flags)
        whole.sig += (uint64_t)ref_up(o->rounding, num_cmp(v, num_make(2u * whole.sig + 1u, -1)),
                                      whole.sig & 1u, a & SIGN ? 1 : 0);
    if (whole.sig)
        e.code |= (unsigned)ref_nearest(f->r, num_to_f64(whole));
    return e;
}

TEST(round_to_integral)
{
    unsigned a;
    int      f, i;
    for (f = 0; f < 2; f++)
        for (a = 0; a < 0x10000u; a++)
            for (i = 0; i < MODES; i++) {
                const mpt_opts o = rounding(i);
                unsigned       flags = 0;
                const unsigned got = any_of_1(f, TO_INTEGRAL, a, 0, &o, &flags);
                mt_context(formats[f].r->name, rounding_names[i]);
                check_with(&formats[f], got, flags, ref_integral(&formats[f], a, &o), &o, a);
                if (i == MPT_RND_NEAREST_EVEN)
                    CHECK_EQ_U_AT(f ? mpt_bf16_to_integral(b16(a)).bits : mpt_f16_to_integral(h16(a)).bits,
                                  got, a);
            }
}

static exact ref_scaleb(const fmt *f, unsigned a, int by)
{
    num x = value_of(f, a);
    if (is_nan(f, a) || is_inf(f, a) || is_zero(a))
        return exact_code(is_nan(f, a) ? a | f->quiet : a, is_snan(f, a) ? INV : 0u);
    x.exp += by > 2000 ? 2000 : by < -2000 ? -2000 : by;
    return exact_number(x, a & SIGN);
}

static exact ref_logb(const fmt *f, unsigned a)
{
    const num x = num_normalize(value_of(f, a));
    const int e = x.exp + 63;
    if (is_nan(f, a))
        return exact_code(a | f->quiet, is_snan(f, a) ? INV : 0u);
    if (is_inf(f, a) || is_zero(a))
        return exact_code(is_inf(f, a) ? f->inf : f->inf | SIGN, is_zero(a) ? DBZ : 0u);
    return e ? exact_number(num_make((uint64_t)(e < 0 ? -e : e), 0), e < 0 ? SIGN : 0u) : exact_code(0u, 0u);
}

TEST(scaleb_and_logb)
{
    unsigned a;
    int      f, i, k;
    static const int by[] = {0, 1, -1, 2, -3, 9, -10, 24, -25, 29, -30, 40, -41, 133, -134, 260, -270,
                             2147483647, -2147483647 - 1};
    for (f = 0; f < 2; f++)
        for (a = 0; a < 0x10000u; a += mt.long_mode ? 1u : 7u * mt.every) {
            const mpt_opts plain = rounding(MPT_RND_NEAREST_EVEN);
            unsigned       flags = 0, got = any_of_1(f, LOGB, a, 0, NULL, &flags);
            mt_context(formats[f].r->name, "logb");
            check_with(&formats[f], got, flags, ref_logb(&formats[f], a), &plain, a);
            CHECK_EQ_U_AT(f ? mpt_bf16_logb(b16(a)).bits : mpt_f16_logb(h16(a)).bits, got, a);
            for (k = 0; k < (int)COUNT_OF(by); k++)
                for (i = 0; i < MODES; i++) {
                    const mpt_opts o = rounding(i);
                    flags = 0;
                    got = any_of_1(f, SCALEB, a, by[k], &o, &flags);
                    mt_context("scaleb", rounding_names[i]);
                    check_with(&formats[f], got, flags, ref_scaleb(&formats[f], a, by[k]), &o, a);
                }
        }
    CHECK_EQ_U(mpt_f16_scaleb(h16(0x3c00u), 3).bits, 0x4800u);
    CHECK_EQ_U(mpt_bf16_logb(b16(0x0001u)).bits, 0xc305u);      /* -133 */
}

// all options -------------------------------------------------------------------------------------

static unsigned flushed(const fmt *f, unsigned a, const mpt_opts *o)
{
    return o->flush & MPT_FLUSH_INPUTS && mag(a) < 1u << f->r->m ? a & SIGN : a;
}

TEST(every_option)
{
    const long n = mt.long_mode ? 5000000 : 60000 / (long)mt.every;
    long       i;
    int        f, k;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const fmt *const F = &formats[f];
            mpt_opts         o = some_options();
            const unsigned   a = pick(F), b = i & 1 ? pick(F) : pick_near(F, a), c = pick(F);
            const unsigned   x = flushed(F, a, &o), y = flushed(F, b, &o), z = flushed(F, c, &o);
            const uint64_t   at = (uint64_t)a << 32 | b << 16 | c;
            o.rounding = (mpt_rounding)(i % MPT_ROUNDING_COUNT);
            for (k = 0; k < OPS; k++) {
                unsigned       flags = 0;
                const unsigned got = any_with(f, (op)k, a, b, c, &o, &flags);
                mt_context(F->r->name, op_names[k]);
                check_with(F, got, flags, ref_op(F, (op)k, x, y, z), &o, at);
            }
        }
}

TEST(flushed_operands_and_nan)
{
    mpt_opts o = rounding(MPT_RND_NEAREST_EVEN);
    unsigned flags = 0;
    o.flush = MPT_FLUSH_INPUTS;         /* Inf * (a subnormal, flushed to 0) + NaN is invalid */
    CHECK_EQ_U(mpt_f16_fma_with(h16(0x7c00u), h16(0x8001u), h16(0x7e01u), &o, &flags).bits, 0x7e01u);
    CHECK_EQ_U(flags, MPT_FLAG_INVALID);
    flags = 0;
    CHECK_EQ_U(mpt_bf16_fma_with(b16(1u), b16(0xff80u), b16(0x7fc1u), &o, &flags).bits, 0x7fc1u);
    CHECK_EQ_U(flags, MPT_FLAG_INVALID);
}

TEST(every_option_of_the_others)
{
    const long n = mt.long_mode ? 5000000 : 40000 / (long)mt.every;
    long       i;
    int        f, k;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const fmt *const F = &formats[f];
            const int        by = (int)(mt_random() % 61u) - 30;
            mpt_opts         o = some_options();
            const unsigned   a = pick(F), b = i & 1 ? pick(F) : pick_near(F, a);
            const unsigned   x = flushed(F, a, &o), y = flushed(F, b, &o);
            unsigned         flags = 0, got;
            o.rounding = (mpt_rounding)(i % MPT_ROUNDING_COUNT);
            got = any_rem(f, a, b, &o, &flags);
            mt_context(F->r->name, "rem");
            check_with(F, got, flags, ref_rem(F, x, y), &o, (uint64_t)a << 32 | b);
            for (k = 0; k < OPS_OF_1; k++) {
                flags = 0;
                mt_context(F->r->name, op_of_1_names[k]);
                got = any_of_1(f, (op_of_1)k, a, by, &o, &flags);
                check_with(F, got, flags, k == TO_INTEGRAL ? ref_integral(F, x, &o)
                                          : k == LOGB ? ref_logb(F, x) : ref_scaleb(F, x, by), &o, a);
            }
        }
}

// stochastic --------------------------------------------------------------------------------------

static unsigned any_sr(int f, op what, unsigned a, unsigned b, uint32_t random)
{
    const mpt_opts o = options(MPT_RND_STOCHASTIC, 0, 0, random);
    return any_with(f, what, a, b, 0u, &o, NULL);
}

/* The operations that round: those of `op`, then those of `op_of_1`. */
enum { ROUNDING_OPS = (int)OPS + (int)OPS_OF_1 };

static exact ref_rounding_op(const fmt *f, int what, const unsigned *in, int by, const mpt_opts *o)
{
    switch (what - OPS) {
    case TO_INTEGRAL: return ref_integral(f, in[0], o);
    case LOGB:        return ref_logb(f, in[0]);
    case SCALEB:      return ref_scaleb(f, in[0], by);
    default:          return ref_op(f, (op)what, in[0], in[1], in[2]);
    }
}

/* The words that round up are those below the share of the gap: search for the first that does not, as the
 * largest never does, and compare with the exact share; then results and flags on both sides, and at 0. */
static void check_stochastic(int f, int what, const unsigned *in)
{
    const fmt *const F = &formats[f];
    const uint64_t   at = (uint64_t)in[0] << 32 | in[1] << 16 | in[2];
    const int        by = (int)(in[1] % 61u) - 30;
    mpt_opts         o = options(MPT_RND_STOCHASTIC, 0, 0, 0xffffffffu);
    const exact      e = ref_rounding_op(F, what, in, by, &o);
    const int        finite = e.x.sig && num_cmp(e.x, ref_value(F->r, F->r->max_code)) < 0;
    uint64_t         share = finite ? ref_threshold(F->r, ref_below(F->r, e.x), e.x) : 0u;
    uint64_t         low = 0u, high = 0xffffffffu;
    unsigned         down = 0u, code = 0u, flags = 0u;
    int              i;
    if (what - (int)OPS == (int)TO_INTEGRAL && mag(in[0]) < F->inf)
        share = integral_share(value_of(F, in[0]));
    mt_context(F->r->name, what < OPS ? op_names[what] : op_of_1_names[what - OPS]);
#define DO_IT(word)                                                                                  \
    (o.random = (uint32_t)(word), flags = 0u,                                                        \
     code = what < OPS ? any_with(f, (op)what, in[0], in[1], in[2], &o, &flags)                      \
                       : any_of_1(f, (op_of_1)(what - OPS), in[0], by, &o, &flags))
    down = DO_IT(high);
    while (low < high) {
        const uint64_t middle = (low + high) / 2u;
        if (DO_IT(middle) != down)
            low = middle + 1u;
        else
            high = middle;
    }
    CHECK_EQ_U_AT(low, share, at);
    for (i = 0; i < 4; i++) {
        (void)DO_IT(i == 0 ? 0u : i == 1 ? 0xffffffffu : (uint32_t)share - (uint32_t)(i & 1));
        check_with(F, code, flags, ref_rounding_op(F, what, in, by, &o), &o, at);
    }
#undef DO_IT
}

TEST(stochastic_arithmetic)
{
    mpt_opts o = options(MPT_RND_STOCHASTIC, 0, 0, 0u);
    long     i;
    int      f, k;
    for (f = 0; f < 2; f++)
        for (i = 0; i < 4000; i++) {
            const fmt *const F = &formats[f];
            unsigned         in[3];
            in[0] = pick(F);
            in[1] = i & 1 ? pick_near(F, in[0]) : pick(F);
            in[2] = pick(F);
            for (k = 0; k < ROUNDING_OPS; k++)
                check_stochastic(f, k, in);
        }
    /* by hand: 1/3 = 0.333251953125 + gap / 3, so a third of the words rounds up */
    CHECK_EQ_U(any_sr(0, DIV, 0x3c00u, 0x4200u, 0x55555554u), 0x3556u);
    CHECK_EQ_U(any_sr(0, DIV, 0x3c00u, 0x4200u, 0x55555555u), 0x3555u);
    CHECK_EQ_U(any_sr(0, DIV, 0x0001u, 0x6200u, 0u), 0x0001u);  /* 2^-24 / 768 */
    CHECK_EQ_U(any_sr(0, DIV, 0x0001u, 0x6200u, 5592405u), 0u);
    CHECK_EQ_U(any_sr(0, DIV, 0x0001u, 0x6200u, 5592404u), 0x0001u);
    CHECK_EQ_U(any_sr(0, SUB, 0x3c00u, 0x3c00u, 0u), 0u);
    CHECK_EQ_U(any_sr(0, SQRT, 0x4000u, 0u, 0x27999fcdu), 0x3da9u);     /* 1024 sqrt(2) = 1448.15468... */
    CHECK_EQ_U(any_sr(0, SQRT, 0x4000u, 0u, 0x27999fceu), 0x3da8u);
    o.random = 255u;                                                    /* 2^-24 of the words */
    CHECK_EQ_U(any_of_1(0, TO_INTEGRAL, 0x0001u, 0, &o, NULL), 0x3c00u);
    o.random = 256u;
    CHECK_EQ_U(any_of_1(0, TO_INTEGRAL, 0x0001u, 0, &o, NULL), 0u);
    o.random = 0u;
    CHECK_EQ_U(any_of_1(1, TO_INTEGRAL, 0x0001u, 0, &o, NULL), 0u);     /* 2^-133: none */
}

// arrays ------------------------------------------------------------------------------------------

typedef enum { N_ADD, N_SUB, N_MUL, N_FMA, N_OPS } array_op;

static mpt_status call_n(int f, array_op what, uint16_t *d, const uint16_t *a, const uint16_t *b,
                         const uint16_t *c, size_t n)
{
    mpt_f16 *const        hd = (mpt_f16 *)d;
    mpt_bf16 *const       bd = (mpt_bf16 *)d;
    const mpt_f16 *const  ha = (const mpt_f16 *)a, *const hb = (const mpt_f16 *)b;
    const mpt_bf16 *const ba = (const mpt_bf16 *)a, *const bb = (const mpt_bf16 *)b;
    switch (what) {
    case N_ADD: return f ? mpt_bf16_add_n(bd, ba, bb, n) : mpt_f16_add_n(hd, ha, hb, n);
    case N_SUB: return f ? mpt_bf16_sub_n(bd, ba, bb, n) : mpt_f16_sub_n(hd, ha, hb, n);
    case N_MUL: return f ? mpt_bf16_mul_n(bd, ba, bb, n) : mpt_f16_mul_n(hd, ha, hb, n);
    case N_FMA:
    case N_OPS:
    default:
        return f ? mpt_bf16_fma_n(bd, ba, bb, (const mpt_bf16 *)c, n)
                 : mpt_f16_fma_n(hd, ha, hb, (const mpt_f16 *)c, n);
    }
}

static unsigned one_of(int f, array_op what, unsigned a, unsigned b, unsigned c)
{
    static const op as[] = {ADD, SUB, MUL, FMA};
    return any_plain(f, as[what], a, b, c);
}

/* Make the array functions use a path. Returns 0 if this processor lacks it. */
static int take_path(int path)
{
    last_path = path;
    return path_taken() == path;
}

enum { BATCH = 4096 };
static uint16_t in_a[BATCH + 64], in_b[BATCH + 64], in_c[BATCH + 64], out_d[BATCH + 64];

static void check_batch(int f, size_t n)
{
    static uint16_t want[BATCH];
    size_t          i;
    int             k, path;
    for (k = 0; k < N_OPS; k++) {
        for (i = 0; i < n; i++)
            want[i] = (uint16_t)one_of(f, (array_op)k, in_a[i], in_b[i], in_c[i]);
        for (path = 0; path < PATHS; path++) {
            if (!take_path(path))
                continue;
            CHECK_EQ_I(call_n(f, (array_op)k, out_d, in_a, in_b, in_c, n), MPT_OK);
            mt_context(formats[f].r->name, op_names[k == N_FMA ? FMA : k]);
            for (i = 0; i < n; i++)
                if (out_d[i] != want[i])
                    CHECK_EQ_U_AT(out_d[i], want[i],
                                  (uint64_t)in_a[i] << 32 | (unsigned)in_b[i] << 16 | in_c[i]);
        }
    }
    last_path = PATHS - 1;
}

static void check_batches(int batches)
{
    int    f, k;
    size_t i;
    for (f = 0; f < 2; f++)
        for (k = 0; k < batches; k++) {
            for (i = 0; i < BATCH; i++) {
                in_a[i] = (uint16_t)(k & 1 ? mt_random() : pick(&formats[f]));
                in_b[i] = (uint16_t)(k & 2 ? pick_near(&formats[f], in_a[i]) : pick(&formats[f]));
                in_c[i] = (uint16_t)pick(&formats[f]);
                if (k & 4)
                    in_c[i] = (uint16_t)pick_near(&formats[f],
                                                  one_of(f, N_MUL, in_a[i], in_b[i], 0u) ^ SIGN);
            }
            check_batch(f, BATCH);
        }
}

TEST(arrays_give_the_scalar_bits) { check_batches(mt.long_mode ? 20000 : 60 / (int)mt.every); }

TEST(arrays_around_the_cache_give_the_scalar_bits)
{
    around_bytes = 0u;
    check_batches(8);
    around_bytes = (size_t)32 << 20;
}

/* Kernels look for NaN in many results at once: none, or one at each place, from Infs or from an operand. */
TEST(arrays_with_one_nan)
{
    enum { N = 192 };
    size_t at, i;
    int    f, k, path;
    for (f = 0; f < 2; f++)
        for (path = 0; path < PATHS; path++)
            for (k = 0; k < N_OPS && take_path(path); k++)
                for (at = 0; at <= N; at++) {
                    const unsigned inf = formats[f].inf;
                    for (i = 0; i < N; i++) {       /* codes below inf / 2 are magnitudes below 2 */
                        in_a[i] = (uint16_t)(mt_random() % (inf / 2u) | (mt_random() & SIGN));
                        in_b[i] = (uint16_t)(mt_random() % (inf / 2u) | (mt_random() & SIGN));
                        in_c[i] = (uint16_t)(mt_random() % (inf / 2u) | (mt_random() & SIGN));
                    }
                    if (at & 1u)
                        in_a[at] = (uint16_t)(inf + 1u + (mt_random() & SIGN));
                    else {
                        in_a[at] = (uint16_t)inf;   /* at == N: past the end, so no NaN */
                        in_b[at] = (uint16_t)(k == N_ADD ? inf | SIGN : k == N_SUB ? inf : 0u);
                    }
                    CHECK_EQ_I(call_n(f, (array_op)k, out_d, in_a, in_b, in_c, N), MPT_OK);
                    for (i = 0; i < N; i++)
                        if (out_d[i] != one_of(f, (array_op)k, in_a[i], in_b[i], in_c[i]))
                            CHECK_EQ_U_AT(out_d[i], one_of(f, (array_op)k, in_a[i], in_b[i], in_c[i]),
                                          (uint64_t)at << 32 | i);
                    CHECK_EQ_U(at == N || is_nan(&formats[f], out_d[at]), 1u);
                }
    last_path = PATHS - 1;
}

TEST(arrays_of_any_length_and_place)
{
    size_t   n, i;
    int      f, k, path;
    uint16_t want[512];
    for (f = 0; f < 2; f++)
        for (path = 0; path < PATHS; path++)
            for (n = 0; n <= 440 && take_path(path); n += n < 140 ? 1u : 13u)
                for (k = 0; k < N_OPS; k++) {
                    const size_t    at = n % 7;
                    uint16_t *const out = out_d + 1 + n % 37;
                    around_bytes = n % 2 ? 0u : (size_t)32 << 20;
                    for (i = 0; i < n + 48; i++) {
                        in_a[i] = (uint16_t)pick(&formats[f]);
                        in_b[i] = (uint16_t)pick(&formats[f]);
                        in_c[i] = (uint16_t)pick(&formats[f]);
                        out_d[i] = 0xabcdu;
                    }
                    for (i = 0; i < n; i++)
                        want[i] = (uint16_t)one_of(f, (array_op)k, in_a[at + i], in_b[3 + i], in_c[5 + i]);
                    CHECK_EQ_I(call_n(f, (array_op)k, out, in_a + at, in_b + 3, in_c + 5, n), MPT_OK);
                    CHECK(out[-1] == 0xabcdu && out[n] == 0xabcdu);
                    CHECK(!memcmp(out, want, n * sizeof *want));
                    switch (n % 3) {        /* in place, over each operand */
                    case 0:
                        CHECK_EQ_I(call_n(f, (array_op)k, in_a + at, in_a + at, in_b + 3, in_c + 5, n),
                                   MPT_OK);
                        CHECK(!memcmp(in_a + at, want, n * sizeof *want));
                        break;
                    case 1:
                        CHECK_EQ_I(call_n(f, (array_op)k, in_b + 3, in_a + at, in_b + 3, in_c + 5, n),
                                   MPT_OK);
                        CHECK(!memcmp(in_b + 3, want, n * sizeof *want));
                        break;
                    default:
                        if (k == N_FMA) {
                            CHECK_EQ_I(call_n(f, (array_op)k, in_c + 5, in_a + at, in_b + 3, in_c + 5, n),
                                       MPT_OK);
                            CHECK(!memcmp(in_c + 5, want, n * sizeof *want));
                        }
                        break;
                    }
                }
    around_bytes = (size_t)32 << 20;
    last_path = PATHS - 1;
    CHECK_EQ_I(mpt_f16_add_n(NULL, NULL, NULL, 0), MPT_OK);
    CHECK_EQ_I(call_n(0, N_ADD, out_d, in_a, NULL, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(call_n(0, N_MUL, NULL, in_a, in_b, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(call_n(1, N_FMA, out_d, in_a, in_b, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(call_n(1, N_SUB, out_d, NULL, in_b, NULL, 1), MPT_E_ARG);
}

/* Other roundings, flushing or unmasked exceptions in the control word: the same bits, it stays as set. */
TEST(arrays_whatever_the_control_word)
{
#if HAVE_MXCSR
    static const unsigned words[] = {0x1f80u, 0x3f80u, 0x5f80u, 0x7f80u, 0x9fc0u, 0xffc0u, 0xdfc0u, 0u};
    const unsigned        before = _mm_getcsr();
    size_t                i, k;
    int                   f;
    for (f = 0; f < 2; f++)
        for (k = 0; k < COUNT_OF(words); k++) {
            for (i = 0; i < 1000; i++) {
                in_a[i] = (uint16_t)pick(&formats[f]);
                in_b[i] = (uint16_t)pick_near(&formats[f], in_a[i]);
                in_c[i] = (uint16_t)pick(&formats[f]);
            }
            _mm_setcsr(words[k]);
            check_batch(f, 1000);
            CHECK_EQ_U(_mm_getcsr() & 0xffc0u, words[k]);
            _mm_setcsr(before);
        }
#elif defined(__GNUC__) && defined(__aarch64__) && !defined(__AARCH64EB__)
    /* directions; flushing; flushing of f16; default NaN; all of them with alternative half precision */
    static const uint64_t words[] = {0u, 0x400000u, 0x800000u, 0xc00000u, 0x1000000u, 0x80000u, 0x2000000u,
                                     0x7c80000u};
    size_t                i, k;
    for (k = 0; k < COUNT_OF(words); k++) {
        for (i = 0; i < 1000; i++) {
            in_a[i] = (uint16_t)pick(&formats[0]);
            in_b[i] = (uint16_t)pick_near(&formats[0], in_a[i]);
            in_c[i] = (uint16_t)pick(&formats[0]);
        }
        for (i = 0; i < N_OPS; i++) {
            size_t j;
            __asm__ volatile("msr fpcr, %0" : : "r"(words[k]));
            (void)call_n(0, (array_op)i, out_d, in_a, in_b, in_c, 1000);
            __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
            for (j = 0; j < 1000; j++)
                CHECK_EQ_U(out_d[j], one_of(0, (array_op)i, in_a[j], in_b[j], in_c[j]));
        }
    }
#else
    CHECK_EQ_I(call_n(0, N_ADD, out_d, in_a, in_b, in_c, 1), MPT_OK);
#endif
}

// all pairs ---------------------------------------------------------------------------------------

static uint16_t row_a[0x10000], row_b[0x10000], row_out[0x10000];

TEST(pairs_of_f16)
{
    const mpt_opts plain = rounding(MPT_RND_NEAREST_EVEN);
    const unsigned step = mt.long_mode ? 1u : 8191u * (1u + mt.every / 4u);
    unsigned       a, b;
    int            k;
    for (b = 0; b < 0x10000u; b++)
        row_b[b] = (uint16_t)b;
    for (k = ADD; k <= DIV; k++) {
        mt_context("f16", op_names[k]);
        for (a = 0; a < 0x10000u; a += step) {
            for (b = 0; b < 0x10000u; b++)
                row_a[b] = (uint16_t)a;
            if (k != DIV)
                CHECK_EQ_I(call_n(0, (array_op)(k - ADD), row_out, row_a, row_b, NULL, 0x10000u), MPT_OK);
            for (b = 0; b < 0x10000u; b++) {
                unsigned       flags = 0, want_flags;
                const unsigned want = rounded(formats, ref_op(formats, (op)k, a, b, 0u), &plain, &want_flags);
                const unsigned got = f16_with((op)k, a, b, 0u, NULL, &flags);
                if (got != want || flags != want_flags || (k != DIV && row_out[b] != want)) {
                    CHECK_EQ_U_AT(got, want, (uint64_t)a << 32 | b);
                    CHECK_EQ_U_AT(flags, want_flags, (uint64_t)a << 32 | b);
                    CHECK_EQ_U_AT(k == DIV ? got : row_out[b], want, (uint64_t)a << 32 | b);
                }
            }
            CHECK(b == 0x10000u);
        }
    }
}

/* The array functions of bf16 against the scalar functions. */
TEST(pairs_of_bf16)
{
    const unsigned step = mt.long_mode ? 1u : 8191u * (1u + mt.every / 4u);
    unsigned       a, b;
    int            k;
    for (b = 0; b < 0x10000u; b++)
        row_b[b] = (uint16_t)b;
    for (k = N_ADD; k <= N_MUL; k++) {
        mt_context("bf16", op_names[k]);
        for (a = 0; a < 0x10000u; a += step) {
            for (b = 0; b < 0x10000u; b++)
                row_a[b] = (uint16_t)a;
            CHECK_EQ_I(call_n(1, (array_op)k, row_out, row_a, row_b, NULL, 0x10000u), MPT_OK);
            for (b = 0; b < 0x10000u; b++) {
                const unsigned want = one_of(1, (array_op)k, a, b, 0u);
                if (row_out[b] != want)
                    CHECK_EQ_U_AT(row_out[b], want, (uint64_t)a << 32 | b);
            }
        }
    }
}

TEST(fma_refuses_each_overlap)
{
    static mpt_f16 x[9], a[8], c[8];
    CHECK_EQ_I(mpt_f16_fma_n(x + 1, a, x, c, 8), MPT_E_ARG);
    CHECK_EQ_I(mpt_f16_fma_n(x, a, x, c, 8), MPT_OK);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(every_mode_on_structured_pairs);
    RUN(fma_on_structured_triples);
    RUN(special_values_meet_each_other);
    RUN(sqrt_of_all_codes);
    RUN(wrong_options_are_invalid);
    RUN(remainder);
    RUN(minimum_and_maximum);
    RUN(comparisons);
    RUN(total_order_and_signs);
    RUN(round_to_integral);
    RUN(scaleb_and_logb);
    RUN(every_option);
    RUN(flushed_operands_and_nan);
    RUN(every_option_of_the_others);
    RUN(stochastic_arithmetic);
    RUN(arrays_give_the_scalar_bits);
    RUN(arrays_around_the_cache_give_the_scalar_bits);
    RUN(arrays_with_one_nan);
    RUN(arrays_of_any_length_and_place);
    RUN(arrays_whatever_the_control_word);
    RUN(pairs_of_f16);
    RUN(pairs_of_bf16);
    RUN(fma_refuses_each_overlap);
    return mt_end();
}
