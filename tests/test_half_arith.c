/* test_half_arith.c -- tests of the arithmetic of mpt_half.h (H11, H16). Valid C99 and C++17.
 *
 *     cc -O2 -I. tests/test_half_arith.c -o test_half_arith && ./test_half_arith [--long] [part of a name]
 *
 * --long: add, sub, mul, div over all 2^32 pairs of f16, and 10^9 fma triples (an hour).
 *
 * The reference shares no code with the header and never rounds a number: it searches the ordered list of a
 * format's values for the neighbours of the exact result, comparing in wide integers (sums, products), or
 * cross-multiplied (quotients: v * b with a; roots: v * v with a), and decides by the midpoint. */
#define MPT_IMPLEMENTATION
#include "../mpt_half.h"
#include "test.h"

#define COUNT_OF(a) (sizeof(a) / sizeof(a)[0])
#define INV MPT_FLAG_INVALID
#define DBZ MPT_FLAG_DIVBYZERO
#define OVF MPT_FLAG_OVERFLOW
#define UDF MPT_FLAG_UNDERFLOW
#define INX MPT_FLAG_INEXACT
#define SIGN 0x8000u

enum { MODES = 6 };     /* all but stochastic */
static const mpt_rounding modes[MODES] = {MPT_RND_NEAREST_EVEN, MPT_RND_NEAREST_AWAY, MPT_RND_TOWARD_ZERO,
                                          MPT_RND_UP, MPT_RND_DOWN, MPT_RND_ODD};
static const char *const mode_names[MODES] = {"nearest-even", "nearest-away", "toward-zero",
                                              "up", "down", "to-odd"};

// formats -----------------------------------------------------------------------------------------

typedef struct fmt {
    const char *name;
    int         ebits, mbits;
    unsigned    inf, quiet;
} fmt;

static const fmt formats[2] = {{"f16", 5, 10, 0x7c00u, 0x0200u}, {"bf16", 8, 7, 0x7f80u, 0x0040u}};

static unsigned mag(unsigned code) { return code & 0x7fffu; }
static int is_nan(const fmt *f, unsigned code) { return mag(code) > f->inf; }
static int is_inf(const fmt *f, unsigned code) { return mag(code) == f->inf; }
static int is_zero(unsigned code) { return mag(code) == 0u; }
static int is_snan(const fmt *f, unsigned code) { return is_nan(f, code) && !(code & f->quiet); }

// exact numbers -----------------------------------------------------------------------------------

/* sig * 2^exp */
typedef struct dyadic { uint64_t sig; int exp; } dyadic;

static dyadic dy(uint64_t sig, int exp)
{
    dyadic d;
    d.sig = sig;
    d.exp = exp;
    return d;
}

/* The value of a magnitude code; codes past the largest go on as if exponents had no end. `deeper` binades
 * are added below the normal ones (for tininess): code 0 then still is 0. */
static dyadic value_of(const fmt *f, unsigned code, int deeper)
{
    const unsigned field = code >> f->mbits, man = code & ((1u << f->mbits) - 1u);
    const int      least = 2 - (1 << (f->ebits - 1)) - f->mbits - deeper;
    return field ? dy(man + (1u << f->mbits), least + (int)field - 1) : dy(man, least);
}

/* The middle between a magnitude code and the next. */
static dyadic middle_of(const fmt *f, unsigned code, int deeper)
{
    const dyadic v = value_of(f, code, deeper);
    return dy(2u * v.sig + 1u, v.exp - 1);
}

static int top_bit(uint64_t x)
{
    int n = -1;
    for (; x; x /= 2u)
        n++;
    return n;
}

static int dy_cmp(dyadic a, dyadic b)
{
    int top;
    if (!a.sig || !b.sig)
        return (a.sig != 0u) - (b.sig != 0u);
    top = (top_bit(a.sig) + a.exp) - (top_bit(b.sig) + b.exp);
    if (top)
        return top < 0 ? -1 : 1;
    a.sig <<= 63 - top_bit(a.sig);
    b.sig <<= 63 - top_bit(b.sig);
    return (a.sig > b.sig) - (a.sig < b.sig);
}

/* Nonnegative fixed point, unit 2^-UNIT, least word first: holds every product of bf16 numbers. */
enum { WORDS = 20, UNIT = 288 };
typedef struct wide { uint32_t w[WORDS]; } wide;

static wide wide_of(dyadic d)
{
    const int shift = d.exp + UNIT, word = shift / 32, bit = shift % 32;
    uint64_t  low = (d.sig & 0xffffffffu) << bit, high = (d.sig >> 32) << bit;
    wide      r;
    memset(&r, 0, sizeof r);
    if (!d.sig)
        return r;
    high += low >> 32;
    if (shift < 0 || word + 2 >= WORDS)
        abort();
    r.w[word] = (uint32_t)low;
    r.w[word + 1] = (uint32_t)high;
    r.w[word + 2] = (uint32_t)(high >> 32);
    return r;
}

static int wide_cmp(const wide *a, const wide *b)
{
    int i = WORDS - 1;
    while (i > 0 && a->w[i] == b->w[i])
        i--;
    return (a->w[i] > b->w[i]) - (a->w[i] < b->w[i]);
}

static wide wide_add(const wide *a, const wide *b)
{
    uint64_t carry = 0;
    wide     r;
    int      i;
    for (i = 0; i < WORDS; i++) {
        carry += (uint64_t)a->w[i] + b->w[i];
        r.w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return r;
}

/* a - b, a not below b */
static wide wide_sub(const wide *a, const wide *b)
{
    uint64_t borrow = 0;
    wide     r;
    int      i;
    for (i = 0; i < WORDS; i++) {
        const uint64_t t = (uint64_t)a->w[i] - b->w[i] - borrow;
        r.w[i] = (uint32_t)t;
        borrow = t >> 63;
    }
    return r;
}

static int wide_is_zero(const wide *a)
{
    int i;
    for (i = 0; i < WORDS; i++)
        if (a->w[i])
            return 0;
    return 1;
}

// the exact result of an operation, never zero ----------------------------------------------------

typedef enum { SUM, NUMBER, QUOTIENT, ROOT } kind;
typedef struct exact {
    kind     what;
    unsigned sign;
    wide     sum;           /* SUM */
    dyadic   p, q;          /* NUMBER: p; QUOTIENT: p / q; ROOT: sqrt(p) */
} exact;

/* where v stands to |x|: -1 below, 0 equal, 1 above */
static int compare_to(const exact *x, dyadic v)
{
    wide w;
    switch (x->what) {
    case SUM:
        w = wide_of(v);
        return wide_cmp(&w, &x->sum);
    case NUMBER: return dy_cmp(v, x->p);
    case QUOTIENT: return dy_cmp(dy(v.sig * x->q.sig, v.exp + x->q.exp), x->p);
    case ROOT:
    default: return dy_cmp(dy(v.sig * v.sig, 2 * v.exp), x->p);
    }
}

/* The greatest magnitude code with a value not above |x|. */
static unsigned code_below(const fmt *f, const exact *x, int deeper, unsigned beyond)
{
    unsigned low = 0, high = beyond;
    while (high - low > 1u) {
        const unsigned mid = low + (high - low) / 2u;
        if (compare_to(x, value_of(f, mid, deeper)) <= 0)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static int goes_up(mpt_rounding mode, unsigned sign, int half, unsigned low)
{
    switch ((int)mode) {
    case MPT_RND_NEAREST_EVEN: return half > 0 || (half == 0 && low % 2u);
    case MPT_RND_NEAREST_AWAY: return half >= 0;
    case MPT_RND_UP:           return !sign;
    case MPT_RND_DOWN:         return (int)sign;
    case MPT_RND_ODD:          return low % 2u == 0;
    default: return 0;
    }
}

typedef struct result { unsigned code, flags; } result;

/* x rounded in every mode. */
static void round_all(const fmt *f, const exact *x, result *out)
{
    const unsigned normal = 1u << f->mbits;
    const int      over = compare_to(x, value_of(f, f->inf, 0)) <= 0;
    const unsigned low = over ? f->inf : code_below(f, x, 0, f->inf);
    const int      same = compare_to(x, value_of(f, low, 0)) == 0;
    const int      half = -compare_to(x, middle_of(f, low, 0));
    const unsigned low2 = low < normal ? code_below(f, x, 1, 4u * normal) : 0u;
    const int      same2 = low < normal && compare_to(x, value_of(f, low2, 1)) == 0;
    const int      half2 = low < normal ? -compare_to(x, middle_of(f, low2, 1)) : 0;
    int            i;
    for (i = 0; i < MODES; i++) {
        unsigned code = low + (unsigned)(!same && goes_up(modes[i], x->sign, half, low)), flags = 0;
        const int tiny = low < normal &&
                         low2 + (unsigned)(!same2 && goes_up(modes[i], x->sign, half2, low2)) < 2u * normal;
        if (code >= f->inf) {
            const int to_inf = modes[i] == MPT_RND_NEAREST_EVEN || modes[i] == MPT_RND_NEAREST_AWAY ||
                               modes[i] == (x->sign ? MPT_RND_DOWN : MPT_RND_UP);
            code = to_inf ? f->inf : f->inf - 1u;
            flags = OVF | INX;
        } else if (!same)
            flags = INX | (tiny ? UDF : 0u);
        out[i].code = code | x->sign << 15;
        out[i].flags = flags;
    }
}

static void all_modes(result *out, unsigned code, unsigned flags)
{
    int i;
    for (i = 0; i < MODES; i++) {
        out[i].code = code;
        out[i].flags = flags;
    }
}

// reference operations ----------------------------------------------------------------------------

typedef enum { ADD, SUB, MUL, DIV, FMA, SQRT, OPS } op;
static const char *const op_names[OPS] = {"add", "sub", "mul", "div", "fma", "sqrt"};

/* If an operand is NaN: the first, quiet. */
static int ref_nan(const fmt *f, const unsigned *in, int n, result *out)
{
    unsigned flags = 0;
    int      i, first = -1;
    for (i = n - 1; i >= 0; i--) {
        if (is_nan(f, in[i]))
            first = i;
        if (is_snan(f, in[i]))
            flags = INV;
    }
    if (first < 0)
        return 0;
    all_modes(out, in[first] | f->quiet, flags);
    return 1;
}

/* x + y, each (-1)^sign times a number */
static void ref_sum(const fmt *f, dyadic x, unsigned sign_x, dyadic y, unsigned sign_y, result *out)
{
    const wide a = wide_of(x), b = wide_of(y);
    exact      e;
    int        i;
    memset(&e, 0, sizeof e);
    e.what = SUM;
    e.sign = wide_cmp(&a, &b) >= 0 ? sign_x : sign_y;
    e.sum = sign_x == sign_y ? wide_add(&a, &b) : wide_cmp(&a, &b) >= 0 ? wide_sub(&a, &b) : wide_sub(&b, &a);
    if (!wide_is_zero(&e.sum)) {
        round_all(f, &e, out);
        return;
    }
    all_modes(out, sign_x == sign_y ? sign_x << 15 : 0u, 0u);
    for (i = 0; i < MODES; i++)
        if (sign_x != sign_y && modes[i] == MPT_RND_DOWN)
            out[i].code = SIGN;
}

static void ref_product_sum(const fmt *f, unsigned a, unsigned b, unsigned c, result *out)
{
    const unsigned sign = (a ^ b) >> 15;
    const unsigned none = f->inf | f->quiet;
    const dyadic   x = value_of(f, mag(a), 0), y = value_of(f, mag(b), 0);
    if (is_inf(f, a) || is_inf(f, b)) {
        const int bad = is_inf(f, c) && c >> 15 != sign;
        all_modes(out, bad ? none : f->inf | sign << 15, bad ? INV : 0u);
    } else if (is_inf(f, c))
        all_modes(out, c, 0u);
    else
        ref_sum(f, dy(x.sig * y.sig, x.exp + y.exp), sign, value_of(f, mag(c), 0), c >> 15, out);
}

static void ref_mul_div(const fmt *f, op what, unsigned a, unsigned b, result *out)
{
    const unsigned sign = (a ^ b) & SIGN, none = f->inf | f->quiet;
    const int      big = is_inf(f, a) || (what == MUL ? is_inf(f, b) : is_zero(b));
    const int      nil = is_zero(a) || (what == MUL ? is_zero(b) : is_inf(f, b));
    exact          e;
    if (big || nil) {
        const int to_zero = what == DIV && big && !is_inf(f, a);
        all_modes(out, big && nil ? none : big ? f->inf | sign : sign, big && nil ? INV : to_zero ? DBZ : 0u);
        return;
    }
    memset(&e, 0, sizeof e);
    e.sign = sign >> 15;
    e.what = what == MUL ? NUMBER : QUOTIENT;
    e.p = value_of(f, mag(a), 0);
    e.q = value_of(f, mag(b), 0);
    if (what == MUL)
        e.p = dy(e.p.sig * e.q.sig, e.p.exp + e.q.exp);
    round_all(f, &e, out);
}

static void ref_op(const fmt *f, op what, unsigned a, unsigned b, unsigned c, result *out)
{
    const int one = is_inf(f, a) ? is_zero(b) : is_zero(a) && is_inf(f, b);
    unsigned  in[3];
    exact     e;
    int       i;
    in[0] = a;
    in[1] = b;
    in[2] = c;
    if (ref_nan(f, in, what == SQRT ? 1 : what == FMA ? 3 : 2, out)) {
        for (i = 0; i < MODES && what == FMA && one; i++)
            out[i].flags = INV;
        return;
    }
    switch (what) {
    case SUB: ref_op(f, ADD, a, b ^ SIGN, c, out); return;
    case ADD: ref_product_sum(f, a, f->ebits == 5 ? 0x3c00u : 0x3f80u, b, out); return;
    case FMA:
        if (one)
            all_modes(out, f->inf | f->quiet, INV);
        else
            ref_product_sum(f, a, b, c, out);
        return;
    case SQRT:
        if (is_zero(a) || (is_inf(f, a) && a == f->inf))
            all_modes(out, a, 0u);
        else if (a & SIGN)
            all_modes(out, f->inf | f->quiet, INV);
        else {
            memset(&e, 0, sizeof e);
            e.what = ROOT;
            e.p = value_of(f, a, 0);
            round_all(f, &e, out);
        }
        return;
    case MUL:
    case DIV:
    case OPS:
    default: ref_mul_div(f, what, a, b, out); return;
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

static unsigned f16_r(op what, unsigned a, unsigned b, unsigned c, mpt_rounding mode, unsigned *flags)
{
    switch (what) {
    case ADD: return mpt_f16_add_r(h16(a), h16(b), mode, flags).bits;
    case SUB: return mpt_f16_sub_r(h16(a), h16(b), mode, flags).bits;
    case MUL: return mpt_f16_mul_r(h16(a), h16(b), mode, flags).bits;
    case DIV: return mpt_f16_div_r(h16(a), h16(b), mode, flags).bits;
    case FMA: return mpt_f16_fma_r(h16(a), h16(b), h16(c), mode, flags).bits;
    case SQRT:
    case OPS:
    default: return mpt_f16_sqrt_r(h16(a), mode, flags).bits;
    }
}

static unsigned bf16_r(op what, unsigned a, unsigned b, unsigned c, mpt_rounding mode, unsigned *flags)
{
    switch (what) {
    case ADD: return mpt_bf16_add_r(b16(a), b16(b), mode, flags).bits;
    case SUB: return mpt_bf16_sub_r(b16(a), b16(b), mode, flags).bits;
    case MUL: return mpt_bf16_mul_r(b16(a), b16(b), mode, flags).bits;
    case DIV: return mpt_bf16_div_r(b16(a), b16(b), mode, flags).bits;
    case FMA: return mpt_bf16_fma_r(b16(a), b16(b), b16(c), mode, flags).bits;
    case SQRT:
    case OPS:
    default: return mpt_bf16_sqrt_r(b16(a), mode, flags).bits;
    }
}

static unsigned f16_plain(op what, unsigned a, unsigned b, unsigned c)
{
    switch (what) {
    case ADD: return mpt_f16_add(h16(a), h16(b)).bits;
    case SUB: return mpt_f16_sub(h16(a), h16(b)).bits;
    case MUL: return mpt_f16_mul(h16(a), h16(b)).bits;
    case DIV: return mpt_f16_div(h16(a), h16(b)).bits;
    case FMA: return mpt_f16_fma(h16(a), h16(b), h16(c)).bits;
    case SQRT:
    case OPS:
    default: return mpt_f16_sqrt(h16(a)).bits;
    }
}

static unsigned bf16_plain(op what, unsigned a, unsigned b, unsigned c)
{
    switch (what) {
    case ADD: return mpt_bf16_add(b16(a), b16(b)).bits;
    case SUB: return mpt_bf16_sub(b16(a), b16(b)).bits;
    case MUL: return mpt_bf16_mul(b16(a), b16(b)).bits;
    case DIV: return mpt_bf16_div(b16(a), b16(b)).bits;
    case FMA: return mpt_bf16_fma(b16(a), b16(b), b16(c)).bits;
    case SQRT:
    case OPS:
    default: return mpt_bf16_sqrt(b16(a)).bits;
    }
}

static void check_op(const fmt *f, op what, unsigned a, unsigned b, unsigned c)
{
    const uint64_t at = (uint64_t)a << 32 | b << 16 | c;
    result         want[MODES];
    int            i;
    ref_op(f, what, a, b, c, want);
    mt_context(f->name, op_names[what]);
    CHECK_EQ_U_AT(f == formats ? f16_plain(what, a, b, c) : bf16_plain(what, a, b, c), want[0].code, at);
    for (i = 0; i < MODES; i++) {
        unsigned       flags = 0;
        const unsigned got = f == formats ? f16_r(what, a, b, c, modes[i], &flags)
                                          : bf16_r(what, a, b, c, modes[i], &flags);
        if (got != want[i].code || flags != want[i].flags) {
            mt_context(op_names[what], mode_names[i]);
            CHECK_EQ_U_AT(got, want[i].code, at);
            CHECK_EQ_U_AT(flags, want[i].flags, at);
        }
    }
}

/* A code where things happen: ends of ranges, runs of ones and zeros, specials; or any. */
static unsigned pick(const fmt *f)
{
    const uint64_t r = mt_random();
    const unsigned sign = (unsigned)(r >> 60) & 1u ? SIGN : 0u, one = 1u << f->mbits;
    const unsigned field = (unsigned)((r >> 16) & 0x7fffu) & ~(one - 1u), bit = 1u << (r & 7u);
    const unsigned ends[] = {0u, 1u, 2u, one - 1u, one, one + 1u, f->inf - 1u, f->inf - 2u, f->inf,
                             f->inf | 1u, f->inf | f->quiet, 0x7fffu, f->ebits == 5 ? 0x3c00u : 0x3f80u};
    switch (r >> 61) {
    case 0: return sign | ends[(r & 0xffffu) % COUNT_OF(ends)];
    case 1: return sign | field | (bit & (one - 1u));
    case 2: return sign | field | ((one - 1u) & ~bit);
    case 3: return sign | field | ((one - bit) & (one - 1u));
    default: return (unsigned)(r & 0xffffu);
    }
}

/* A code with nearly the exponent of another one: sums that cancel or meet at the last bits. */
static unsigned pick_near(const fmt *f, unsigned code)
{
    const int away = (int)(mt_random() % 33u) - 16;
    return (code + (unsigned)(away * (1 << f->mbits)) + (unsigned)(mt_random() % 5u)) & 0xffffu;
}

TEST(every_mode_on_structured_pairs)
{
    const long n = mt.long_mode ? 20000000 : 60000;
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
    const long n = mt.long_mode ? 500000000 : 150000;
    long       i;
    int        f;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const fmt *const F = &formats[f];
            const unsigned   a = pick(F), b = pick(F);
            unsigned         c = pick(F);
            if (i % 4 == 0)     /* an addend of the size of the product */
                c = pick_near(F, (f ? bf16_plain(MUL, a, b, 0u) : f16_plain(MUL, a, b, 0u)) ^ SIGN);
            check_op(F, FMA, a, b, c);
        }
}

TEST(special_values_meet_each_other)
{
    int      f, k, i, j, l;
    for (f = 0; f < 2; f++) {
        const fmt *const F = &formats[f];
        const unsigned   s[] = {0u, 1u, 1u << F->mbits, f ? 0x3f80u : 0x3c00u, F->inf - 1u, F->inf,
                                F->inf | 1u, F->inf | F->quiet, F->inf | F->quiet | 5u,
                                SIGN, SIGN | 1u, SIGN | (f ? 0x3f80u : 0x3c00u), SIGN | (F->inf - 1u),
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

TEST(a_wrong_rounding_is_invalid)
{
    unsigned flags = INX;
    CHECK_EQ_U(mpt_f16_add_r(h16(0x3c00u), h16(0x3c00u), MPT_RND_STOCHASTIC, &flags).bits, 0x7e00u);
    CHECK_EQ_U(flags, INV | INX);
    flags = 0;
    CHECK_EQ_U(mpt_bf16_sqrt_r(b16(0x3f80u), MPT_ROUNDING_COUNT, &flags).bits, 0x7fc0u);
    CHECK_EQ_U(flags, INV);
    CHECK_EQ_U(mpt_f16_scaleb_r(h16(0x3c00u), 1, MPT_RND_STOCHASTIC, NULL).bits, 0x7e00u);
    CHECK_EQ_U(mpt_f16_add_r(h16(0x3c00u), h16(1u), MPT_RND_UP, NULL).bits, 0x3c01u);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(every_mode_on_structured_pairs);
    RUN(fma_on_structured_triples);
    RUN(special_values_meet_each_other);
    RUN(sqrt_of_all_codes);
    RUN(a_wrong_rounding_is_invalid);
    return mt_end();
}
