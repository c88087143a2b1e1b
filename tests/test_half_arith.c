/* test_half_arith.c -- tests of the arithmetic of mpt_half.h. Valid C99 and C++17.
 *
 *     cc -O2 -I. tests/test_half_arith.c tests/impl.c -o test_half_arith -lm
 *     ./test_half_arith [--long] [part of a name]
 *
 * --long: add, sub, mul, div over all 2^32 pairs of f16, and 10^9 fma triples (an hour).
 *
 * The reference shares no code with the header and never rounds a number. It searches the ordered list of a
 * format's values for the neighbours of the exact result and decides by their midpoint. It compares in wide
 * integers (sums, products) or cross-multiplied (quotients: v * b with a; roots: v * v with a). */
#include "../mpt_half.h"

#include "impl.h"
#include "test.h"
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__SSE__)) && !defined(__TINYC__)
#include <xmmintrin.h>
#define HAVE_MXCSR 1
#else
#define HAVE_MXCSR 0
#endif

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

/* The value of a magnitude code. Codes above the largest finite one continue as if exponents had no limit.
 * `deeper` normal binades are added below the least one (to decide tininess); code 0 is still 0. */
static dyadic value_of(const fmt *f, unsigned code, int deeper)
{
    const unsigned field = code >> f->mbits, man = code & ((1u << f->mbits) - 1u);
    const int      least = 2 - (1 << (f->ebits - 1)) - f->mbits - deeper;
    return field ? dy(man + (1u << f->mbits), least + (int)field - 1) : dy(man, least);
}

/* The midpoint between the values of a magnitude code and the next one. */
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

/* Nonnegative fixed-point numbers in units of 2^-UNIT, lowest word first; they hold any product of bf16. */
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

/* a - b, where a >= b */
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

/* Compare v with |x|: -1 if v is below, 0 equal, 1 above. */
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

/* The greatest magnitude code whose value is at most |x|. */
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

/* `early`: the flags if tininess is detected before rounding. */
typedef struct result { unsigned code, flags, early; } result;

/* Round x in every mode. */
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
        unsigned code = low + (unsigned)(!same && goes_up(modes[i], x->sign, half, low));
        unsigned flags = 0, early = 0;
        const int tiny = low < normal &&
                         low2 + (unsigned)(!same2 && goes_up(modes[i], x->sign, half2, low2)) < 2u * normal;
        if (code >= f->inf) {
            const int to_inf = modes[i] == MPT_RND_NEAREST_EVEN || modes[i] == MPT_RND_NEAREST_AWAY ||
                               modes[i] == (x->sign ? MPT_RND_DOWN : MPT_RND_UP);
            code = to_inf ? f->inf : f->inf - 1u;
            flags = early = OVF | INX;
        } else if (!same) {
            flags = INX | (tiny ? UDF : 0u);
            early = INX | (low < normal ? UDF : 0u);
        }
        out[i].code = code | x->sign << 15;
        out[i].flags = flags;
        out[i].early = early;
    }
}

static void all_modes(result *out, unsigned code, unsigned flags)
{
    int i;
    for (i = 0; i < MODES; i++) {
        out[i].code = code;
        out[i].flags = out[i].early = flags;
    }
}

// reference operations ----------------------------------------------------------------------------

typedef enum { ADD, SUB, MUL, DIV, FMA, SQRT, OPS } op;
static const char *const op_names[OPS] = {"add", "sub", "mul", "div", "fma", "sqrt"};

/* If an operand is NaN, the result is the first NaN, made quiet. Returns 0 if none is. */
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

/* (-1)^sign_x * x + (-1)^sign_y * y */
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
            out[i].flags = out[i].early = INV;
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

static unsigned f16_with(op what, unsigned a, unsigned b, unsigned c, const mpt_opts *o, unsigned *flags)
{
    switch (what) {
    case ADD: return mpt_f16_add_with(h16(a), h16(b), o, flags).bits;
    case SUB: return mpt_f16_sub_with(h16(a), h16(b), o, flags).bits;
    case MUL: return mpt_f16_mul_with(h16(a), h16(b), o, flags).bits;
    case DIV: return mpt_f16_div_with(h16(a), h16(b), o, flags).bits;
    case FMA: return mpt_f16_fma_with(h16(a), h16(b), h16(c), o, flags).bits;
    case SQRT:
    case OPS:
    default: return mpt_f16_sqrt_with(h16(a), o, flags).bits;
    }
}

static unsigned bf16_with(op what, unsigned a, unsigned b, unsigned c, const mpt_opts *o, unsigned *flags)
{
    switch (what) {
    case ADD: return mpt_bf16_add_with(b16(a), b16(b), o, flags).bits;
    case SUB: return mpt_bf16_sub_with(b16(a), b16(b), o, flags).bits;
    case MUL: return mpt_bf16_mul_with(b16(a), b16(b), o, flags).bits;
    case DIV: return mpt_bf16_div_with(b16(a), b16(b), o, flags).bits;
    case FMA: return mpt_bf16_fma_with(b16(a), b16(b), b16(c), o, flags).bits;
    case SQRT:
    case OPS:
    default: return mpt_bf16_sqrt_with(b16(a), o, flags).bits;
    }
}

static unsigned any_with(int f, op what, unsigned a, unsigned b, unsigned c, const mpt_opts *o,
                         unsigned *flags)
{
    return f ? bf16_with(what, a, b, c, o, flags) : f16_with(what, a, b, c, o, flags);
}

static mpt_opts rounding(mpt_rounding mode)
{
    mpt_opts o;
    memset(&o, 0, sizeof o);
    o.rounding = mode;
    return o;
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
        const mpt_opts o = rounding(modes[i]);
        unsigned       flags = 0;
        const unsigned got = any_with(f != formats, what, a, b, c, &o, &flags);
        if (got != want[i].code || flags != want[i].flags) {
            mt_context(op_names[what], mode_names[i]);
            CHECK_EQ_U_AT(got, want[i].code, at);
            CHECK_EQ_U_AT(flags, want[i].flags, at);
        }
    }
}

/* A random code: in half of the calls limits of ranges, specials, runs of ones or zeros; else any code. */
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

/* A code with an exponent near that of another code: sums that cancel, or whose last bits just overlap. */
static unsigned pick_near(const fmt *f, unsigned code)
{
    const int away = (int)(mt_random() % 33u) - 16;
    return (code + (unsigned)(away * (1 << f->mbits)) + (unsigned)(mt_random() % 5u)) & 0xffffu;
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

/* Compilers warn about a constant that its enum does not have; they do not see this one. */
static int out_of_range(int value)
{
    volatile int v = value;
    return v;
}

TEST(wrong_options_are_invalid)
{
    mpt_opts wrong[5], o;
    unsigned flags;
    size_t   i;
    for (i = 0; i < COUNT_OF(wrong); i++)
        wrong[i] = rounding(MPT_RND_NEAREST_EVEN);
    wrong[0].rounding = (mpt_rounding)out_of_range(MPT_ROUNDING_COUNT);
    wrong[1].overflow = (mpt_overflow)out_of_range(3);
    wrong[2].nan = (mpt_nan_mode)out_of_range(2);
    wrong[3].tininess = (mpt_tininess)out_of_range(2);
    wrong[4].flush = 4u;
    for (i = 0; i < COUNT_OF(wrong); i++) {
        flags = INX;
        CHECK_EQ_U(mpt_f16_add_with(h16(0x3c00u), h16(0x3c00u), &wrong[i], &flags).bits, 0x7e00u);
        CHECK_EQ_U(flags, INV | INX);
        flags = 0;
        CHECK_EQ_U(mpt_bf16_sqrt_with(b16(0x3f80u), &wrong[i], &flags).bits, 0x7fc0u);
        CHECK_EQ_U(flags, INV);
        CHECK_EQ_U(mpt_f16_scaleb_with(h16(0x3c00u), 1, &wrong[i], NULL).bits, 0x7e00u);
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

/* The IEEE 754 remainder by long division, one bit at a time. */
static result ref_rem(const fmt *f, unsigned a, unsigned b)
{
    const dyadic x = value_of(f, mag(a), 0), y = value_of(f, mag(b), 0);
    result       r, all[MODES];
    unsigned     in[2];
    exact        e;
    wide         rest, part;
    int          shift, odd = 0;
    in[0] = a;
    in[1] = b;
    r.code = f->inf | f->quiet;
    r.flags = r.early = INV;
    if (ref_nan(f, in, 2, all))
        return all[0];
    if (is_inf(f, a) || is_zero(b))
        return r;
    r.code = a;
    r.flags = r.early = 0;
    if (is_zero(a) || is_inf(f, b))
        return r;
    memset(&e, 0, sizeof e);
    rest = wide_of(x);
    shift = top_bit(x.sig) + x.exp - top_bit(y.sig) - y.exp;
    for (; shift >= 0; shift--) {
        part = wide_of(dy(y.sig, y.exp + shift));
        odd = wide_cmp(&rest, &part) >= 0;
        if (odd)
            rest = wide_sub(&rest, &part);
    }
    part = wide_add(&rest, &rest);
    e.sum = wide_of(y);
    e.sign = a >> 15;
    shift = wide_cmp(&part, &e.sum);
    if (shift > 0 || (shift == 0 && odd)) {
        e.sum = wide_sub(&e.sum, &rest);
        e.sign ^= 1u;
    } else
        e.sum = rest;
    e.what = SUM;
    if (wide_is_zero(&e.sum)) {
        r.code = a & SIGN;
        return r;
    }
    round_all(f, &e, all);
    return all[0];
}

TEST(remainder)
{
    const long n = mt.long_mode ? 2000000 : 12000;
    long       i;
    int        f;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const unsigned a = pick(&formats[f]), b = i & 1 ? pick(&formats[f]) : pick_near(&formats[f], a);
            const result   want = ref_rem(&formats[f], a, b);
            unsigned       flags = 0;
            mt_context(formats[f].name, "rem");
            CHECK_EQ_U_AT(any_rem(f, a, b, NULL, &flags), want.code, (uint64_t)a << 32 | b);
            CHECK_EQ_U_AT(flags, want.flags, (uint64_t)a << 32 | b);
            CHECK(!(want.flags & INX));
        }
    CHECK_EQ_U(mpt_f16_rem(h16(0x4500u), h16(0x4200u)).bits, 0xbc00u);   /* 5 rem 3 = -1 */
    CHECK_EQ_U(mpt_bf16_rem(b16(0x40a0u), b16(0x4040u)).bits, 0xbf80u);
}

/* -1, 0, 1 as a is below, equal to, above b; if `zeros`, -0 is below +0 */
static int ref_order(const fmt *f, unsigned a, unsigned b, int zeros)
{
    const int size = is_inf(f, a) || is_inf(f, b) ? (int)is_inf(f, a) - (int)is_inf(f, b)
                                                  : dy_cmp(value_of(f, mag(a), 0), value_of(f, mag(b), 0));
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
                mt_context(F->name, m[k].name);
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
    mt_context(F->name, "compare");
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

/* The integer part of |a|; *half compares |a| with the midpoint above, *same tells if a is an integer. */
static unsigned integral_part(const fmt *f, unsigned a, int *half, int *same)
{
    const dyadic v = value_of(f, mag(a), 0);
    uint64_t     whole = 0;
    if (v.exp > -40)
        whole = v.sig >> -v.exp;
    *same = dy_cmp(v, dy(whole, 0)) == 0;
    *half = dy_cmp(v, dy(2u * whole + 1u, -1));
    return (unsigned)whole;
}

TEST(round_to_integral)
{
    unsigned a;
    int      f, i;
    for (f = 0; f < 2; f++)
        for (a = 0; a < 0x10000u; a++) {
            const fmt *const F = &formats[f];
            const int        plain = is_nan(F, a) || is_inf(F, a) || value_of(F, mag(a), 0).exp >= 0;
            for (i = 0; i < MODES; i++) {
                const mpt_opts o = rounding(modes[i]);
                unsigned want = is_nan(F, a) ? a | F->quiet : a, flags = is_snan(F, a) ? INV : 0u;
                unsigned inexact = 0, got, raised = 0;
                if (!plain) {
                    int      half, same;
                    unsigned whole = integral_part(F, a, &half, &same), low = 0, high = F->inf;
                    if (!same && goes_up(modes[i], a >> 15, half, whole))
                        whole++;
                    inexact = same ? 0u : INX;
                    while (high - low > 1u) {       /* find the code of `whole` */
                        const unsigned mid = (low + high) / 2u;
                        if (dy_cmp(value_of(F, mid, 0), dy(whole, 0)) <= 0)
                            low = mid;
                        else
                            high = mid;
                    }
                    want = low | (a & SIGN);
                }
                mt_context(F->name, mode_names[i]);
                got = any_of_1(f, TO_INTEGRAL, a, 0, &o, &raised);
                if (got != want || raised != (flags | inexact))
                    CHECK_EQ_U_AT((uint64_t)got << 16 | raised, (uint64_t)want << 16 | flags | inexact, a);
                if (i == 0)
                    CHECK_EQ_U_AT(f ? mpt_bf16_to_integral(b16(a)).bits : mpt_f16_to_integral(h16(a)).bits,
                                  want, a);
            }
        }
}

static void ref_scaleb(const fmt *f, unsigned a, int by, result *out)
{
    exact e;
    if (is_nan(f, a) || is_inf(f, a) || is_zero(a)) {
        all_modes(out, is_nan(f, a) ? a | f->quiet : a, is_snan(f, a) ? INV : 0u);
        return;
    }
    memset(&e, 0, sizeof e);
    e.what = NUMBER;
    e.sign = a >> 15;
    e.p = value_of(f, mag(a), 0);
    e.p.exp += by > 2000 ? 2000 : by < -2000 ? -2000 : by;
    round_all(f, &e, out);
}

TEST(scaleb_and_logb)
{
    unsigned a;
    int      f, i, k;
    static const int by[] = {0, 1, -1, 2, -3, 9, -10, 24, -25, 29, -30, 40, -41, 133, -134, 260, -270,
                             2147483647, -2147483647 - 1};
    for (f = 0; f < 2; f++)
        for (a = 0; a < 0x10000u; a += mt.long_mode ? 1u : 7u * mt.every) {
            const fmt *const F = &formats[f];
            const int        fixed = is_nan(F, a) || is_inf(F, a) || is_zero(a);
            unsigned         flags = 0, got;
            mt_context(F->name, "logb");
            got = any_of_1(f, LOGB, a, 0, NULL, &flags);
            CHECK_EQ_U_AT(f ? mpt_bf16_logb(b16(a)).bits : mpt_f16_logb(h16(a)).bits, got, a);
            CHECK_EQ_U_AT(flags, is_snan(F, a) ? INV : is_zero(a) ? DBZ : 0u, a);
            if (fixed)
                CHECK_EQ_U_AT(got, is_nan(F, a) ? a | F->quiet : is_inf(F, a) ? F->inf : F->inf | SIGN, a);
            else {
                const dyadic v = value_of(F, mag(a), 0), g = value_of(F, mag(got), 0);
                const int    e = top_bit(v.sig) + v.exp;
                CHECK_EQ_U_AT(dy_cmp(g, dy((uint64_t)(e < 0 ? -e : e), 0)), 0, a);
                CHECK_EQ_U_AT(got >> 15, e < 0, a);
            }
            for (k = 0; k < (int)COUNT_OF(by); k++) {
                result want[MODES];
                ref_scaleb(F, a, by[k], want);
                for (i = 0; i < MODES; i++) {
                    const mpt_opts o = rounding(modes[i]);
                    flags = 0;
                    got = any_of_1(f, SCALEB, a, by[k], &o, &flags);
                    mt_context("scaleb", mode_names[i]);
                    if (got != want[i].code || flags != want[i].flags)
                        CHECK_EQ_U_AT((uint64_t)got << 16 | flags,
                                      (uint64_t)want[i].code << 16 | want[i].flags, a);
                }
            }
        }
    CHECK_EQ_U(mpt_f16_scaleb(h16(0x3c00u), 3).bits, 0x4800u);
    CHECK_EQ_U(mpt_bf16_logb(b16(0x0001u)).bits, 0xc305u);      /* -133 */
}

// all options -------------------------------------------------------------------------------------

static mpt_opts some_options(int mode)
{
    const uint64_t random = mt_random();
    mpt_opts       o = rounding(modes[mode]);
    o.overflow = (mpt_overflow)(random % 3u);
    o.flush = (unsigned)(random >> 8) % 4u;
    o.nan = (mpt_nan_mode)((random >> 16) % 2u);
    o.tininess = (mpt_tininess)((random >> 24) % 2u);
    return o;
}

static unsigned flushed(const fmt *f, unsigned a, const mpt_opts *o)
{
    return o->flush & MPT_FLUSH_INPUTS && mag(a) < 1u << f->mbits ? a & SIGN : a;
}

/* Turn r, the result for flushed operands with default options but for the rounding, into that of `o`. */
static result with_options(const fmt *f, result r, const mpt_opts *o)
{
    if (o->tininess == MPT_TININESS_BEFORE)
        r.flags = r.early;
    if (o->overflow == MPT_OVERFLOW_NAN && r.flags & OVF)
        r.code = (r.code & SIGN) | f->inf | f->quiet;
    if (o->overflow == MPT_OVERFLOW_SATURATE && is_inf(f, r.code)) {
        r.code--;
        r.flags |= OVF | INX;
    }
    if (o->nan == MPT_NAN_CANONICAL && is_nan(f, r.code))
        r.code = f->inf | f->quiet;
    if (o->flush & MPT_FLUSH_RESULTS && !is_zero(r.code) && mag(r.code) < 1u << f->mbits) {
        r.code &= SIGN;
        r.flags |= UDF | INX;
    }
    return r;
}

static void check_with(const fmt *f, unsigned got, unsigned flags, result r, const mpt_opts *o, uint64_t at)
{
    const result want = with_options(f, r, o);
    CHECK_EQ_U_AT(got, want.code, at);
    CHECK_EQ_U_AT(flags, want.flags, at);
}

TEST(every_option)
{
    const long n = mt.long_mode ? 5000000 : 60000 / (long)mt.every;
    long       i;
    int        f, k;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const fmt *const F = &formats[f];
            const int        mode = (int)(i % MODES);
            const mpt_opts   o = some_options(mode);
            const unsigned   a = pick(F), b = i & 1 ? pick(F) : pick_near(F, a), c = pick(F);
            const uint64_t   at = (uint64_t)a << 32 | b << 16 | c;
            result           want[MODES];
            for (k = 0; k < OPS; k++) {
                unsigned flags = 0, got;
                ref_op(F, (op)k, flushed(F, a, &o), flushed(F, b, &o), flushed(F, c, &o), want);
                mt_context(F->name, op_names[k]);
                got = any_with(f, (op)k, a, b, c, &o, &flags);
                check_with(F, got, flags, want[mode], &o, at);
            }
        }
}

TEST(every_option_of_the_others)
{
    const long n = mt.long_mode ? 5000000 : 40000 / (long)mt.every;
    long       i;
    int        f, k;
    for (f = 0; f < 2; f++)
        for (i = 0; i < n; i++) {
            const fmt *const F = &formats[f];
            const int        mode = (int)(i % MODES), by = (int)(mt_random() % 61u) - 30;
            const mpt_opts   o = some_options(mode), plain = rounding(modes[mode]);
            const unsigned   a = pick(F), b = i & 1 ? pick(F) : pick_near(F, a);
            const unsigned   x = flushed(F, a, &o), y = flushed(F, b, &o);
            unsigned         flags = 0, got = any_rem(f, a, b, &o, &flags);
            mt_context(F->name, "rem");
            check_with(F, got, flags, ref_rem(F, x, y), &o, (uint64_t)a << 32 | b);
            for (k = 0; k < OPS_OF_1; k++) {
                result want[MODES], *const w = &want[mode];
                ref_scaleb(F, x, by, want);
                if (k != SCALEB) {      /* tests above check these without options; never tiny */
                    w->flags = 0;
                    w->code = any_of_1(f, (op_of_1)k, x, 0, &plain, &w->flags);
                    w->early = w->flags;
                }
                flags = 0;
                mt_context(F->name, op_of_1_names[k]);
                got = any_of_1(f, (op_of_1)k, a, by, &o, &flags);
                check_with(F, got, flags, *w, &o, a);
            }
        }
}

// stochastic --------------------------------------------------------------------------------------

static unsigned any_sr_flags(int f, op what, unsigned a, unsigned b, unsigned c, uint32_t random,
                             unsigned *flags)
{
    mpt_opts o = rounding(MPT_RND_STOCHASTIC);
    o.random = random;
    return any_with(f, what, a, b, c, &o, flags);
}

static unsigned any_sr(int f, op what, unsigned a, unsigned b, unsigned c, uint32_t random)
{
    return any_sr_flags(f, what, a, b, c, random, NULL);
}

static unsigned f16_div_sr(unsigned a, unsigned b, uint32_t random)
{
    return any_sr(0, DIV, a, b, 0u, random);
}

/* Bisection finds t, the number of the 2^32 random words that round up. It must be the fraction of the gap:
 * v + gap * t / 2^32 <= |x| < v + gap * (t + 1) / 2^32. Both comparisons are exact. */
static void check_stochastic(int f, op what, unsigned a, unsigned b, unsigned c)
{
    const fmt *const F = &formats[f];
    unsigned         flags = 0;
    const unsigned   low = any_sr_flags(f, what, a, b, c, 0xffffffffu, &flags);
    const unsigned   high = any_sr(f, what, a, b, c, 0u), those = INV | DBZ | INX;
    const uint64_t   at = (uint64_t)a << 32 | b << 16 | c;
    uint64_t         t = 0, end = 0xffffffffu;
    result           want[MODES];
    unsigned         down, up;
    ref_op(F, what, a, b, c, want);
    down = want[2].code;
    up = mag(want[3].code) > mag(want[4].code) ? want[3].code : want[4].code;
    mt_context(F->name, op_names[what]);
    CHECK_EQ_U_AT(low, down, at);
    CHECK_EQ_U_AT(flags & those, want[2].flags & those, at);
    if (mag(up) >= F->inf || !(want[0].flags & INX)) {      /* exact, or Inf is next: never rounds up */
        CHECK_EQ_U_AT(high, down, at);
        return;
    }
    CHECK(high == up || high == down);
    while (t < end) {                   /* random words below t round up, the others down */
        const uint64_t mid = t + (end - t) / 2u;
        if (any_sr(f, what, a, b, c, (uint32_t)mid) == up)
            t = mid + 1u;
        else
            end = mid;
    }
    {
        const dyadic v = value_of(F, mag(down), 0);
        const int    gap = mag(down) >> F->mbits ? v.exp : value_of(F, 1u, 0).exp;
        wide         at_t = wide_of(v), step = wide_of(dy(t, gap - 32)), unit = wide_of(dy(1u, gap - 32)), x;
        dyadic       p = value_of(F, mag(a), 0), q = value_of(F, mag(b), 0), r;
        int          below, above;
        at_t = wide_add(&at_t, &step);
        unit = wide_add(&at_t, &unit);
        if (what == MUL) {
            x = wide_of(dy(p.sig * q.sig, p.exp + q.exp));
        } else {                        /* add and fma */
            wide product = what == FMA ? wide_of(dy(p.sig * q.sig, p.exp + q.exp)) : wide_of(p), addend;
            const unsigned sign = what == FMA ? (a ^ b) & SIGN : a & SIGN;
            r = what == FMA ? value_of(F, mag(c), 0) : q;
            addend = wide_of(r);
            if (sign == ((what == FMA ? c : b) & SIGN))
                x = wide_add(&product, &addend);
            else
                x = wide_cmp(&product, &addend) >= 0 ? wide_sub(&product, &addend)
                                                     : wide_sub(&addend, &product);
        }
        below = wide_cmp(&at_t, &x) <= 0;
        above = wide_cmp(&x, &unit) < 0;
        CHECK_EQ_U_AT(below && above, 1, at);
    }
}

TEST(stochastic_arithmetic)
{
    long i;
    int  f;
    for (f = 0; f < 2; f++)
        for (i = 0; i < 4000; i++) {
            const fmt *const F = &formats[f];
            const unsigned   a = pick(F), b = i & 1 ? pick_near(F, a) : pick(F), c = pick(F);
            check_stochastic(f, ADD, a, b, 0u);
            check_stochastic(f, MUL, a, b, 0u);
            check_stochastic(f, FMA, a, b, c);
        }
    /* by hand: 1/3 = 0.333251953125 + gap / 3, so a third of the words rounds up */
    CHECK_EQ_U(f16_div_sr(0x3c00u, 0x4200u, 0x55555554u), 0x3556u);
    CHECK_EQ_U(f16_div_sr(0x3c00u, 0x4200u, 0x55555555u), 0x3555u);
    CHECK_EQ_U(f16_div_sr(0x0001u, 0x6200u, 0u), 0x0001u);  /* 2^-24 / 768 */
    CHECK_EQ_U(f16_div_sr(0x0001u, 0x6200u, 5592405u), 0u);
    CHECK_EQ_U(f16_div_sr(0x0001u, 0x6200u, 5592404u), 0x0001u);
    CHECK_EQ_U(any_sr(0, SUB, 0x3c00u, 0x3c00u, 0u, 0u), 0u);
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
    return f ? bf16_plain(as[what], a, b, c) : f16_plain(as[what], a, b, c);
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
            mt_context(formats[f].name, op_names[k == N_FMA ? FMA : k]);
            for (i = 0; i < n; i++)
                if (out_d[i] != want[i])
                    CHECK_EQ_U_AT(out_d[i], want[i],
                                  (uint64_t)in_a[i] << 32 | (unsigned)in_b[i] << 16 | in_c[i]);
        }
    }
    last_path = PATHS - 1;
}

TEST(arrays_give_the_scalar_bits)
{
    const int batches = mt.long_mode ? 20000 : 60 / (int)mt.every;
    int       f, k;
    size_t    i;
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

TEST(arrays_around_the_cache_give_the_scalar_bits)
{
    int    f, k;
    size_t i;
    around_bytes = 0u;
    for (f = 0; f < 2; f++)
        for (k = 0; k < 8; k++) {
            for (i = 0; i < BATCH; i++) {
                in_a[i] = (uint16_t)(k & 1 ? mt_random() : pick(&formats[f]));
                in_b[i] = (uint16_t)(k & 2 ? pick_near(&formats[f], in_a[i]) : pick(&formats[f]));
                in_c[i] = (uint16_t)pick(&formats[f]);
            }
            check_batch(f, BATCH);
        }
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

/* The values of f16 and their midpoints are doubles. Sums and products of two f16 are exact doubles, and
 * quotients are compared with midpoints after multiplying by the divisor. Code 0x7c00 stands for 65536. */
static double   f16_value[0x7c01], f16_middle[0x7c01];
static uint16_t row_a[0x10000], row_b[0x10000], row_out[0x10000];

static void fill_f16_tables(void)
{
    unsigned c;
    for (c = 0; c <= 0x7c00u; c++) {
        dyadic v = value_of(formats, c, 0), m = middle_of(formats, c, 0);
        double x = (double)v.sig, y = (double)m.sig;
        for (; v.exp; v.exp += v.exp < 0 ? 1 : -1)
            x *= v.exp < 0 ? 0.5 : 2.0;
        for (; m.exp; m.exp += m.exp < 0 ? 1 : -1)
            y *= m.exp < 0 ? 0.5 : 2.0;
        f16_value[c] = x;
        f16_middle[c] = y;
    }
}

static double signed_f16(unsigned code) { return code & SIGN ? -f16_value[mag(code)] : f16_value[code]; }

/* x / y rounded to nearest-even. The search starts at `code`: consecutive pairs have close results. */
static result round_f16(double x, double y, unsigned sign, unsigned code)
{
    const double least_normal = 0.00006103515625, tiny_below = least_normal - least_normal / 4096.0;
    result       r;
    while (code < 0x7c00u && (x > f16_middle[code] * y || (x == f16_middle[code] * y && code % 2u)))
        code++;
    while (code && (x < f16_middle[code - 1u] * y || (x == f16_middle[code - 1u] * y && code % 2u)))
        code--;
    r.flags = 0u;
    if (code == 0x7c00u)
        r.flags = OVF | INX;
    else if (x != f16_value[code] * y)
        r.flags = INX | (x < tiny_below * y ? UDF : 0u);
    r.code = code | sign;
    return r;
}

static result ref_pair(op what, unsigned a, unsigned b, unsigned start)
{
    double x, y = 1.0;
    result all[MODES];
    if (mag(a) < 0x7c00u && mag(b) < 0x7c00u) {
        x = what == MUL ? signed_f16(a) * signed_f16(b) : what == SUB ? signed_f16(a) - signed_f16(b)
            : what == ADD ? signed_f16(a) + signed_f16(b) : signed_f16(a);
        if (what == DIV) {
            y = f16_value[mag(b)];
            x = b & SIGN ? -x : x;
        }
        if ((x < 0.0 || x > 0.0) && y > 0.0)
            return round_f16(x < 0.0 ? -x : x, y, x < 0.0 ? SIGN : 0u, start);
    }
    ref_op(formats, what, a, b, 0u, all);
    return all[0];
}

TEST(pairs_of_f16)
{
    const unsigned step = mt.long_mode ? 1u : 8191u * (1u + mt.every / 4u);
    unsigned       a, b;
    int            k;
    fill_f16_tables();
    for (b = 0; b < 0x10000u; b++)
        row_b[b] = (uint16_t)b;
    for (k = ADD; k <= DIV; k++) {
        mt_context("f16", op_names[k]);
        for (a = 0; a < 0x10000u; a += step) {
            unsigned last = 0;
            for (b = 0; b < 0x10000u; b++)
                row_a[b] = (uint16_t)a;
            if (k != DIV)
                CHECK_EQ_I(call_n(0, (array_op)(k - ADD), row_out, row_a, row_b, NULL, 0x10000u), MPT_OK);
            for (b = 0; b < 0x10000u; b++) {
                const result   want = ref_pair((op)k, a, b, last);
                unsigned       flags = 0;
                const unsigned got = f16_with((op)k, a, b, 0u, NULL, &flags);
                last = mag(want.code) <= 0x7c00u ? mag(want.code) : 0u;
                if (got != want.code || flags != want.flags || (k != DIV && row_out[b] != want.code)) {
                    CHECK_EQ_U_AT(got, want.code, (uint64_t)a << 32 | b);
                    CHECK_EQ_U_AT(flags, want.flags, (uint64_t)a << 32 | b);
                    CHECK_EQ_U_AT(k == DIV ? got : row_out[b], want.code, (uint64_t)a << 32 | b);
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
    RUN(every_option_of_the_others);
    RUN(stochastic_arithmetic);
    RUN(arrays_give_the_scalar_bits);
    RUN(arrays_around_the_cache_give_the_scalar_bits);
    RUN(arrays_with_one_nan);
    RUN(arrays_of_any_length_and_place);
    RUN(arrays_whatever_the_control_word);
    RUN(pairs_of_f16);
    RUN(pairs_of_bf16);
    return mt_end();
}
