/* half_ref.h -- the slow reference implementation that the tests of mpt_half.h compare with; include it
 * after mpt_half.h and test.h. For fenced, define _DEFAULT_SOURCE before the first #include.
 *
 * It shares no code with the header. It represents numbers exactly as sig * 2^exp, derives the ordered list
 * of a format's values from the format's definition, searches that list for the two neighbours of a number,
 * and compares the number exactly with their midpoint. It computes nothing in floating point. */
#ifndef MT_HALF_REF_H
#define MT_HALF_REF_H

#include <float.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#define ONE ((uint64_t)1)
#define F64_SIGN (ONE << 63)
#define F64_INF ((uint64_t)0x7ff << 52)
#define F64_QUIET (ONE << 51)
#define F64_HIDDEN (ONE << 52)

#define INV MPT_FLAG_INVALID
#define DBZ MPT_FLAG_DIVBYZERO
#define OVF MPT_FLAG_OVERFLOW
#define UDF MPT_FLAG_UNDERFLOW
#define INX MPT_FLAG_INEXACT

// bit patterns ------------------------------------------------------------------------------------

static inline uint64_t f64_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Volatile, because under -ffast-math gcc passes 0 for a constant that it knows to be -0. */
static inline double f64_of(uint64_t u)
{
    volatile uint64_t kept = u;
    double            x;
    u = kept;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float f32_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline int f64_is_nan(uint64_t u) { return (u & ~F64_SIGN) > F64_INF; }
static inline int f64_is_signaling(uint64_t u) { return f64_is_nan(u) && !(u & F64_QUIET); }

/* An x87 register makes a signaling NaN quiet on the way into a call: then INVALID cannot be raised. */
static inline int snan_survives(void)
{
    volatile uint64_t u = F64_INF | 1u;
#ifdef FLT_EVAL_METHOD
    if (FLT_EVAL_METHOD == 2)
        return 0;
#endif
    return f64_bits(f64_of(u)) == u;
}

static inline void test_is_broken(const char *why)
{
    fprintf(stderr, "the test itself is broken: %s\n", why);
    abort();
}

// exact numbers -----------------------------------------------------------------------------------

/* The exact, nonnegative number sig * 2^exp; functions take signs as separate arguments. */
typedef struct num {
    uint64_t sig;
    int      exp;
} num;

static inline num num_make(uint64_t sig, int exp)
{
    num a;
    a.sig = sig;
    a.exp = exp;
    return a;
}

/* The same number with its highest one bit in bit 63. */
static inline num num_normalize(num a)
{
    int step;
#if defined(__GNUC__) && !defined(__TINYC__)    /* tests spend half of their time here */
    step = a.sig ? __builtin_clzll(a.sig) : 0;
    a.sig <<= step;
    a.exp -= step;
#else
    if (a.sig)
        for (step = 32; step; step /= 2)
            if (!(a.sig >> (64 - step))) {
                a.sig <<= step;
                a.exp -= step;
            }
#endif
    return a;
}

/* The same number without zero bits at its end. */
static inline num num_trim(num a)
{
    for (; a.sig && !(a.sig & 1u); a.exp++)
        a.sig /= 2u;
    return a;
}

/* -1, 0, 1 as a is below, equal to, above b */
static inline int num_cmp(num a, num b)
{
    if (!a.sig || !b.sig)
        return (a.sig != 0u) - (b.sig != 0u);
    a = num_normalize(a);
    b = num_normalize(b);
    if (a.exp != b.exp)
        return a.exp < b.exp ? -1 : 1;
    return (a.sig > b.sig) - (a.sig < b.sig);
}

/* a.sig in units of 2^exp */
static inline uint64_t num_units(num a, int exp)
{
    if (!a.sig)
        return 0u;
    if (a.exp < exp || a.exp - exp > 63 || (a.sig << (a.exp - exp)) >> (a.exp - exp) != a.sig)
        test_is_broken("two numbers too far apart for 64 bits");
    return a.sig << (a.exp - exp);
}

static inline int num_common_exp(num a, num b)
{
    if (!a.sig || !b.sig)
        return a.sig ? a.exp : b.exp;
    return a.exp < b.exp ? a.exp : b.exp;
}

/* b - a; a <= b */
static inline num num_minus(num b, num a)
{
    const int exp = num_common_exp(a, b);
    return num_make(num_units(b, exp) - num_units(a, exp), exp);
}

/* (a + b) / 2 */
static inline num num_middle(num a, num b)
{
    const int exp = num_common_exp(a, b);
    return num_make(num_units(a, exp) + num_units(b, exp), exp - 1);
}

/* The magnitude of a finite double or float. */
static inline num num_of_f64(uint64_t u)
{
    const uint64_t man = u & (F64_HIDDEN - 1u);
    const int      field = (int)((u >> 52) & 0x7ffu);
    return field ? num_make(man | F64_HIDDEN, field - 1075) : num_make(man, -1074);
}

static inline num num_of_f32(uint32_t u)
{
    const uint32_t man = u & 0x7fffffu;
    const int      field = (int)((u >> 23) & 0xffu);
    return field ? num_make(man | 0x800000u, field - 150) : num_make(man, -149);
}

/* The bit pattern of this number in an IEEE format of e_bits and m_bits; aborts if the format lacks it. */
static inline uint64_t num_to_ieee(num a, int e_bits, int m_bits)
{
    const int bias = (1 << (e_bits - 1)) - 1, least = 1 - bias - m_bits;
    uint64_t  sig, lost;
    int       exp;
    if (!a.sig)
        return 0u;
    a = num_normalize(a);
    exp = a.exp + 63 - m_bits;      /* the weight of the last bit if all m_bits + 1 are kept */
    if (exp < least)
        exp = least;
    if (exp - a.exp > 63 || exp + m_bits > bias)
        test_is_broken("a number outside the range of float or double");
    sig = a.sig >> (exp - a.exp);
    lost = a.sig & ((ONE << (exp - a.exp)) - 1u);
    if (lost)
        test_is_broken("a number that float or double does not have");
    return sig + ((uint64_t)(exp - least) << m_bits);
}

static inline uint64_t num_to_f64(num a) { return num_to_ieee(a, 11, 52); }
static inline uint32_t num_to_f32(num a) { return (uint32_t)num_to_ieee(a, 8, 23); }

/* The bit pattern of the double that has the value (or the NaN payload) of a float. */
static inline uint64_t f64_from_f32_bits(uint32_t u)
{
    const uint64_t sign = (uint64_t)(u >> 31) << 63;
    if ((u & 0x7f800000u) == 0x7f800000u)
        return sign | F64_INF | (uint64_t)(u & 0x7fffffu) << 29;
    return sign | num_to_f64(num_of_f32(u));
}

// the formats, as the standards define them -------------------------------------------------------

/* Typed in from IEEE 754-2019 table 3.5 (f64, f32, f16), NVIDIA's A100 whitepaper (tf32), Intel's BF16
 * definition, OCP OFP8 v1.0 tables 1 and 2, the FNUZ definition of ONNX and LLVM (arXiv 2206.02915),
 * OCP MX v1.0 tables 2 to 5, ml_dtypes' float8_e4m3, float8_e3m4 and float8_e4m3b11fnuz. Decimal literals
 * have 17 digits, enough for any double. */
typedef struct row {
    mpt_format   id;
    const char  *name;
    int          bits, s, e, m, bias;
    mpt_specials specials;
    int          emin, emax, has_inf, has_nan;
    uint64_t     max_code, inf_code, nan_code;
    double       max_finite, min_normal, min_subnormal, epsilon;
} row;

static const row rows[] = {
    {MPT_F64, "f64", 64, 1, 11, 52, 1023, MPT_SPECIALS_IEEE, -1022, 1023, 1, 1,
     0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000,
     1.7976931348623157e308, 2.2250738585072014e-308, 4.9406564584124654e-324, 2.2204460492503131e-16},
    {MPT_F32, "f32", 32, 1, 8, 23, 127, MPT_SPECIALS_IEEE, -126, 127, 1, 1,
     0x7f7fffff, 0x7f800000, 0x7fc00000,
     3.4028234663852886e38, 1.1754943508222875e-38, 1.4012984643248171e-45, 1.1920928955078125e-7},
    {MPT_TF32, "tf32", 19, 1, 8, 10, 127, MPT_SPECIALS_IEEE, -126, 127, 1, 1,
     0x3fbff, 0x3fc00, 0x3fe00,
     3.4011621342146535e38, 1.1754943508222875e-38, 1.1479437019748901e-41, 0.0009765625},
    {MPT_F16, "f16", 16, 1, 5, 10, 15, MPT_SPECIALS_IEEE, -14, 15, 1, 1,
     0x7bff, 0x7c00, 0x7e00,
     65504.0, 6.103515625e-5, 5.9604644775390625e-8, 0.0009765625},
    {MPT_BF16, "bf16", 16, 1, 8, 7, 127, MPT_SPECIALS_IEEE, -126, 127, 1, 1,
     0x7f7f, 0x7f80, 0x7fc0,
     3.3895313892515355e38, 1.1754943508222875e-38, 9.1835496157991212e-41, 0.0078125},
    {MPT_E5M2, "e5m2", 8, 1, 5, 2, 15, MPT_SPECIALS_IEEE, -14, 15, 1, 1,
     0x7b, 0x7c, 0x7e,
     57344.0, 6.103515625e-5, 1.52587890625e-5, 0.25},
    {MPT_E4M3, "e4m3", 8, 1, 4, 3, 7, MPT_SPECIALS_FN, -6, 8, 0, 1,
     0x7e, 0, 0x7f,
     448.0, 0.015625, 0.001953125, 0.125},
    {MPT_E5M2FNUZ, "e5m2fnuz", 8, 1, 5, 2, 16, MPT_SPECIALS_FNUZ, -15, 15, 0, 1,
     0x7f, 0, 0x80,
     57344.0, 3.0517578125e-5, 7.62939453125e-6, 0.25},
    {MPT_E4M3FNUZ, "e4m3fnuz", 8, 1, 4, 3, 8, MPT_SPECIALS_FNUZ, -7, 7, 0, 1,
     0x7f, 0, 0x80,
     240.0, 0.0078125, 0.0009765625, 0.125},
    {MPT_E3M2, "e3m2", 6, 1, 3, 2, 3, MPT_SPECIALS_FINITE, -2, 4, 0, 0,
     0x1f, 0, 0,
     28.0, 0.25, 0.0625, 0.25},
    {MPT_E2M3, "e2m3", 6, 1, 2, 3, 1, MPT_SPECIALS_FINITE, 0, 2, 0, 0,
     0x1f, 0, 0,
     7.5, 1.0, 0.125, 0.125},
    {MPT_E2M1, "e2m1", 4, 1, 2, 1, 1, MPT_SPECIALS_FINITE, 0, 2, 0, 0,
     0x7, 0, 0,
     6.0, 1.0, 0.5, 0.5},
    {MPT_E8M0, "e8m0", 8, 0, 8, 0, 127, MPT_SPECIALS_SCALE, -127, 127, 0, 1,
     0xfe, 0, 0xff,
     1.7014118346046923e38, 5.8774717541114375e-39, 5.8774717541114375e-39, 1.0},
    {MPT_UE4M3, "ue4m3", 7, 0, 4, 3, 7, MPT_SPECIALS_FN, -6, 8, 0, 1,
     0x7e, 0, 0x7f,
     448.0, 0.015625, 0.001953125, 0.125},
    {MPT_E4M3IEEE, "e4m3ieee", 8, 1, 4, 3, 7, MPT_SPECIALS_IEEE, -6, 7, 1, 1,
     0x77, 0x78, 0x7c,
     240.0, 0.015625, 0.001953125, 0.125},
    {MPT_E3M4, "e3m4", 8, 1, 3, 4, 3, MPT_SPECIALS_IEEE, -2, 3, 1, 1,
     0x6f, 0x70, 0x78,
     15.5, 0.25, 0.015625, 0.0625},
    {MPT_E4M3B11FNUZ, "e4m3b11fnuz", 8, 1, 4, 3, 11, MPT_SPECIALS_FNUZ, -10, 4, 0, 1,
     0x7f, 0, 0x80,
     30.0, 0.0009765625, 0.0001220703125, 0.125},
};

static inline const row *row_of(mpt_format id)
{
    size_t i;
    for (i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].id == id)
            return &rows[i];
    test_is_broken("a format without a row");
    return NULL;
}

static inline uint64_t sign_bit_of(const row *r, int negative)
{
    return negative && r->s ? ONE << (r->e + r->m) : 0u;
}

// the reference -----------------------------------------------------------------------------------

static const char *const rounding_names[] = {
#define NAME(id, text) text,
    MPT_ROUNDINGS(NAME)
#undef NAME
};

static inline mpt_opts options(int rounding, int saturate, int flush, uint32_t random)
{
    mpt_opts o;
    memset(&o, 0, sizeof o);
    o.rounding = (mpt_rounding)rounding;
    o.overflow = saturate ? MPT_OVERFLOW_SATURATE : MPT_OVERFLOW_IEEE;
    o.flush = flush ? MPT_FLUSH_RESULTS : 0u;
    o.random = random;
    return o;
}

/* Compilers warn about a constant that its enum does not have; they do not see this one. */
static inline int out_of_range(int value)
{
    volatile int v = value;
    return v;
}

/* The default options, but for one that is out of range; k is below WRONG_OPTIONS. */
enum { WRONG_OPTIONS = 5 };
static inline mpt_opts wrong_options(int k)
{
    mpt_opts o = options(k == 0 ? (int)MPT_ROUNDING_COUNT : 0, 0, 0, 0u);
    o.overflow = (mpt_overflow)out_of_range(k == 1 ? (int)MPT_OVERFLOW_NAN + 1 : 0);
    o.nan = (mpt_nan_mode)out_of_range(k == 2 ? (int)MPT_NAN_CANONICAL + 1 : 0);
    o.tininess = (mpt_tininess)out_of_range(k == 3 ? (int)MPT_TININESS_BEFORE + 1 : 0);
    o.flush = k == 4 ? 4u : 0u;
    return o;
}

static inline mpt_opts some_options(void)
{
    const uint64_t random = mt_random();
    mpt_opts       o = options((int)(random % MPT_ROUNDING_COUNT), 0, 0, (uint32_t)(random >> 32));
    o.overflow = (mpt_overflow)((random >> 8) % 3u);
    o.tininess = (mpt_tininess)((random >> 16) & 1u);
    o.flush = (unsigned)(random >> 20) & 3u;
    o.nan = (mpt_nan_mode)((random >> 24) & 1u);
    o.seed = mt_random();
    o.first_element = mt_random() >> (random >> 28) % 64u;
    o.stream = (uint32_t)mt_random();
    o.step = (uint32_t)mt_random();
    return o;
}

/* The value of a magnitude code (a code without its sign bit). Codes above max_code give the numbers that
 * would follow if the exponent had no upper limit: rounding needs the first of them. */
static inline num ref_value(const row *r, uint64_t code)
{
    const uint64_t man = code & ((ONE << r->m) - 1u);
    const int      field = (int)(code >> r->m);
    if (r->specials == MPT_SPECIALS_SCALE)
        return num_make(1u, (int)code - r->bias);
    if (field == 0)
        return num_make(man, 1 - r->bias - r->m);
    return num_make(man | ONE << r->m, field - r->bias - r->m);
}

static inline int ref_between(const row *r, uint64_t code, num x)
{
    return code <= r->max_code && num_cmp(ref_value(r, code), x) <= 0 &&
           num_cmp(x, ref_value(r, code + 1u)) < 0;
}

/* The greatest code whose value is at most x; x lies between the least value and that of max_code + 1. */
static inline uint64_t ref_below(const row *r, num x)
{
    static uint64_t hint;   /* the last result; callers sweep upwards, so try it and the next code first */
    uint64_t        low = 0, high = r->max_code + 1u;
    if (ref_between(r, hint, x))
        return hint;
    if (ref_between(r, hint + 1u, x))
        return ++hint;
    while (high - low > 1u) {
        const uint64_t mid = low + (high - low) / 2u;
        if (num_cmp(ref_value(r, mid), x) <= 0)
            low = mid;
        else
            high = mid;
    }
    return hint = low;
}

/* How many of the 2^32 random words round x up from code `low`: its place in the gap, in units of 2^-32. */
static inline uint64_t ref_threshold(const row *r, uint64_t low, num x)
{
    const num part = num_minus(x, ref_value(r, low));
    const num gap = num_minus(ref_value(r, low + 1u), ref_value(r, low));
    const int shift = part.exp - gap.exp + 32;
    if (gap.sig != 1u)
        test_is_broken("a gap that is no power of two");
    if (shift >= 0)
        return num_units(part, part.exp - shift);
    return shift < -63 ? 0u : part.sig >> -shift;
}

/* Does a number between two codes round to the upper one? `half` is -1, 0 or 1 if its magnitude is below, at
 * or above their midpoint; `odd` tells if the lower code is odd. Not for MPT_RND_STOCHASTIC. */
static inline int ref_up(mpt_rounding rounding, int half, int odd, int negative)
{
    switch (rounding) {
    case MPT_RND_NEAREST_EVEN: return half > 0 || (half == 0 && odd);
    case MPT_RND_NEAREST_AWAY: return half >= 0;
    case MPT_RND_TOWARD_ZERO:  return 0;
    case MPT_RND_UP:           return !negative;
    case MPT_RND_DOWN:         return negative;
    case MPT_RND_ODD:          return !odd;
    case MPT_RND_STOCHASTIC:
    case MPT_ROUNDING_COUNT:
    default: test_is_broken("an unknown rounding"); return 0;
    }
}

static inline int ref_goes_up(const row *r, uint64_t low, num x, int negative, const mpt_opts *o)
{
    const int odd = r->specials == MPT_SPECIALS_SCALE || (low & 1u);    /* SCALE: every significand is 1 */
    if (o->rounding == MPT_RND_STOCHASTIC)
        return o->random < ref_threshold(r, low, x);
    return ref_up(o->rounding, num_cmp(x, num_middle(ref_value(r, low), ref_value(r, low + 1u))), odd,
                  negative);
}

/* The magnitude code that x rounds to; max_code + 1 for all numbers that overflow. */
static inline uint64_t ref_round(const row *r, num x, int negative, const mpt_opts *o, int *inexact)
{
    uint64_t low;
    *inexact = 1;
    if (num_cmp(x, ref_value(r, r->max_code + 1u)) >= 0)
        return r->max_code + 1u;
    low = ref_below(r, x);
    *inexact = num_cmp(x, ref_value(r, low)) != 0;
    return low + (*inexact ? (uint64_t)ref_goes_up(r, low, x, negative, o) : 0u);
}

/* Tiny after rounding: still below the normal numbers if one more normal binade is added below them. */
static inline int ref_is_tiny(const row *r, num x, int negative, const mpt_opts *o)
{
    const uint64_t least_normal = ONE << r->m;
    row            wider = *r;
    int            unused;
    if (num_cmp(x, ref_value(r, least_normal)) >= 0)
        return 0;
    if (o->tininess == MPT_TININESS_BEFORE)
        return 1;
    wider.bias++;
    wider.max_code = 4u * least_normal;
    return ref_round(&wider, x, negative, o, &unused) < 2u * least_normal;
}

static inline uint64_t ref_overflow(const row *r, int negative, const mpt_opts *o, int from_inf)
{
    const int rnd = (int)o->rounding;
    const int nearest = rnd == MPT_RND_NEAREST_EVEN || rnd == MPT_RND_NEAREST_AWAY;
    const int away = nearest || (rnd == MPT_RND_UP && !negative) || (rnd == MPT_RND_DOWN && negative);
    const int to_nan = o->overflow == MPT_OVERFLOW_NAN && !from_inf;
    const uint64_t sign = sign_bit_of(r, negative);
    if (o->overflow == MPT_OVERFLOW_SATURATE || !(away || from_inf || to_nan) || !r->has_nan)
        return sign | r->max_code;
    if (r->has_inf && !to_nan)
        return sign | r->inf_code;
    return r->specials == MPT_SPECIALS_FNUZ || o->nan == MPT_NAN_CANONICAL ? r->nan_code : sign | r->nan_code;
}

static inline uint64_t ref_nan(const row *r, uint64_t u, const mpt_opts *o, unsigned *flags)
{
    const int negative = (int)(u >> 63);
    if (f64_is_signaling(u) || !r->has_nan)
        *flags |= INV;
    if (!r->has_nan)
        return r->max_code;
    if (o->nan == MPT_NAN_CANONICAL)
        return r->nan_code;
    if (r->has_inf)
        return sign_bit_of(r, negative) | r->nan_code | (u & (F64_HIDDEN - 1u)) >> (52 - r->m);
    return r->specials == MPT_SPECIALS_FN ? sign_bit_of(r, negative) | r->nan_code : r->nan_code;
}

static inline uint64_t ref_finite(const row *r, num x, int negative, const mpt_opts *o, unsigned *flags)
{
    int            inexact;
    const uint64_t code = ref_round(r, x, negative, o, &inexact);
    if (code > r->max_code) {
        *flags |= OVF | INX;
        return ref_overflow(r, negative, o, 0);
    }
    if (inexact)
        *flags |= INX | (ref_is_tiny(r, x, negative, o) ? UDF : 0u);
    if ((o->flush & MPT_FLUSH_RESULTS) && code && code < ONE << r->m) {
        *flags |= UDF | INX;
        return r->specials == MPT_SPECIALS_FNUZ ? 0u : sign_bit_of(r, negative);
    }
    if (!code && r->specials == MPT_SPECIALS_FNUZ)
        return 0u;
    return sign_bit_of(r, negative) | code;
}

/* ref_encode (below) for a finite number that is not zero. */
static inline uint64_t ref_encode_num(const row *r, num x, int negative, const mpt_opts *o, unsigned *flags)
{
    int      inexact;
    uint64_t code;
    *flags = 0u;
    if (!r->s && negative) {
        *flags = INV;
        return r->nan_code;
    }
    if (r->specials != MPT_SPECIALS_SCALE)
        return ref_finite(r, x, negative, o, flags);
    if (num_cmp(x, ref_value(r, 0u)) < 0) {
        *flags = UDF | INX;
        return 0u;
    }
    code = ref_round(r, x, 0, o, &inexact);     /* no subnormals: never tiny, nothing to flush */
    *flags = code > r->max_code ? OVF | INX : inexact ? INX : 0u;
    return code > r->max_code ? ref_overflow(r, 0, o, 0) : code;
}

/* The code that mpt_encode must return for the double with bit pattern u, and the flags it must raise. */
static inline uint64_t ref_encode(const row *r, uint64_t u, const mpt_opts *o, unsigned *flags)
{
    const int negative = (int)(u >> 63);
    const uint64_t all = u & ~F64_SIGN, magnitude = all < F64_HIDDEN && (o->flush & 2u) ? 0u : all;
    *flags = 0u;
    if (f64_is_nan(u))
        return ref_nan(r, u, o, flags);
    if (!r->s && negative && magnitude) {
        *flags = INV;
        return r->nan_code;
    }
    if (magnitude == F64_INF) {
        if (!r->has_inf || o->overflow == MPT_OVERFLOW_SATURATE)
            *flags = OVF | INX;
        return ref_overflow(r, negative, o, 1);
    }
    if (magnitude)
        return ref_encode_num(r, num_of_f64(magnitude), negative, o, flags);
    if (r->specials == MPT_SPECIALS_SCALE)
        *flags = UDF | INX;
    return r->specials == MPT_SPECIALS_FNUZ ? 0u : sign_bit_of(r, negative);
}

/* With default options, which the fast functions (mpt_f16_from_f32 etc.) use too. */
static inline uint64_t ref_nearest(const row *r, uint64_t u)
{
    const mpt_opts o = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    unsigned       unused;
    return ref_encode(r, u, &o, &unused);
}

static inline void check_encode_one(const row *r, uint64_t u, const mpt_opts *o)
{
    unsigned       want_flags, flags = 0u;
    const uint64_t want = ref_encode(r, u, o, &want_flags);
    const uint64_t got = mpt_encode(r->id, f64_of(u), o, &flags);
    mt_context(r->name, rounding_names[o->rounding]);
    CHECK_EQ_U_AT(got, want, u);
    if (!f64_is_signaling(u) || snan_survives())
        CHECK_EQ_U_AT(flags, want_flags, u);
}

/* Both signs and every rounding, with fixed and with random policies of overflow, flushing, NaN, tininess. */
static inline void check_encode(const row *r, uint64_t u)
{
    int rounding, i;
    for (rounding = 0; rounding < (int)MPT_ROUNDING_COUNT; rounding++)
        for (i = 0; i < 8; i++) {
            const uint64_t random = mt_random();
            mpt_opts       o = options(rounding, i & 1, i & 2, (uint32_t)random);
            check_encode_one(r, i & 4 ? u | F64_SIGN : u & ~F64_SIGN, &o);
            o.overflow = (mpt_overflow)((random >> 32) % 3u);
            o.flush = (unsigned)(random >> 40) % 4u;
            o.nan = (mpt_nan_mode)((random >> 48) % 2u);
            o.tininess = (mpt_tininess)((random >> 56) % 2u);
            check_encode_one(r, i & 4 ? u | F64_SIGN : u & ~F64_SIGN, &o);
        }
}

/* u + by, or u if the sum would have the other sign bit. */
static inline uint64_t nudge(uint64_t u, int64_t by)
{
    const uint64_t v = u + (uint64_t)by;
    return (u ^ v) & F64_SIGN ? u : v;
}

/* The class of a code, from the definition of its format; the bit pattern of its double in *value. */
static inline mpt_class ref_take_apart(const row *r, uint64_t code, uint64_t *value)
{
    const uint64_t magnitude = code & ((ONE << (r->e + r->m)) - 1u), man = code & ((ONE << r->m) - 1u);
    const int      negative = r->s && (code >> (r->e + r->m)) & 1u;
    const uint64_t sign = negative ? F64_SIGN : 0u;
    if (r->has_inf && magnitude > r->inf_code) {
        *value = sign | F64_INF | F64_QUIET | man << (52 - r->m);
        return man >> (r->m - 1) ? MPT_CLASS_QUIET_NAN : MPT_CLASS_SIGNALING_NAN;
    }
    if (r->has_inf && magnitude == r->inf_code) {
        *value = sign | F64_INF;
        return negative ? MPT_CLASS_NEG_INF : MPT_CLASS_POS_INF;
    }
    if (r->has_nan && !r->has_inf &&
        (code == r->nan_code || (r->specials == MPT_SPECIALS_FN && magnitude == r->nan_code))) {
        *value = (r->specials == MPT_SPECIALS_FN ? sign : 0u) | F64_INF | F64_QUIET;
        return MPT_CLASS_QUIET_NAN;
    }
    *value = sign | num_to_f64(ref_value(r, magnitude));
    if (r->specials == MPT_SPECIALS_SCALE || magnitude >> r->m)
        return negative ? MPT_CLASS_NEG_NORMAL : MPT_CLASS_POS_NORMAL;
    if (magnitude)
        return negative ? MPT_CLASS_NEG_SUBNORMAL : MPT_CLASS_POS_SUBNORMAL;
    return negative ? MPT_CLASS_NEG_ZERO : MPT_CLASS_POS_ZERO;
}

// arrays ------------------------------------------------------------------------------------------

/* Arrays of bit patterns, as pointers to float and double. */
#define F32P(p) ((float *)(void *)(p))
#define CF32P(p) ((const float *)(const void *)(p))
#define F64P(p) ((double *)(void *)(p))
#define CF64P(p) ((const double *)(const void *)(p))

/* The pairs of formats with fast arrays, except f32 from f64. OWN: pairs with functions of their own, and the
 * types of their arrays; PLAIN: the others. */
#define FAST_PAIRS(OWN, PLAIN)                                                                          \
    OWN(f16, f32, mpt_f16, float)   OWN(f16, f64, mpt_f16, double)  OWN(f32, f16, float, mpt_f16)       \
    OWN(f64, f16, double, mpt_f16)  OWN(bf16, f32, mpt_bf16, float) OWN(f32, bf16, float, mpt_bf16)     \
    OWN(e4m3, f32, mpt_e4m3, float) OWN(f32, e4m3, float, mpt_e4m3)                                     \
    OWN(e5m2, f32, mpt_e5m2, float) OWN(f32, e5m2, float, mpt_e5m2)                                     \
    PLAIN(f64, f32)  PLAIN(f64, bf16)  PLAIN(f64, e4m3)  PLAIN(f64, e5m2)  PLAIN(f16, bf16)             \
    PLAIN(f16, e4m3) PLAIN(f16, e5m2)  PLAIN(bf16, f64)  PLAIN(bf16, f16)  PLAIN(bf16, e4m3)            \
    PLAIN(bf16, e5m2) PLAIN(e4m3, f64) PLAIN(e4m3, f16)  PLAIN(e4m3, bf16) PLAIN(e4m3, e5m2)            \
    PLAIN(e5m2, f64) PLAIN(e5m2, f16)  PLAIN(e5m2, bf16) PLAIN(e5m2, e4m3)
#define FORMAT_f64 MPT_F64
#define FORMAT_f32 MPT_F32
#define FORMAT_f16 MPT_F16
#define FORMAT_bf16 MPT_BF16
#define FORMAT_e4m3 MPT_E4M3
#define FORMAT_e5m2 MPT_E5M2
/* The function of a pair, and the saturating one, with one signature. */
#define RUN_PAIR(d, s, dst_type, src_type)                                            \
    static mpt_status run_##d##_from_##s(void *dst, const void *src, size_t n)        \
    {                                                                                 \
        return mpt_##d##_from_##s##_n((dst_type *)dst, (const src_type *)src, n);     \
    }
#define RUN_SAT(T)                                                                    \
    static mpt_status run_##T##_sat(void *dst, const void *src, size_t n)             \
    {                                                                                 \
        return mpt_##T##_from_f32_sat_n((mpt_##T *)dst, (const float *)src, n);       \
    }

static inline size_t bytes_of(mpt_format f)
{
    const int bits = row_of(f)->bits;
    return bits > 32 ? 8u : bits > 16 ? 4u : bits > 8 ? 2u : 1u;
}

static inline uint64_t get_code(const void *array, mpt_format f, size_t i)
{
    return mt_get((const unsigned char *)array + i * bytes_of(f), bytes_of(f));
}

static inline void put_code(void *array, mpt_format f, size_t i, uint64_t code)
{
    mt_put((unsigned char *)array + i * bytes_of(f), bytes_of(f), code);
}

/* A random bit pattern of a 4- or 8-byte type. Every kind of number occurs often, and many NaN payloads. */
static inline uint64_t source_pattern(size_t size)
{
    static const uint32_t exponents[] = {0x00000000, 0x33000000, 0x38000000, 0x3f800000,
                                         0x47000000, 0x47800000, 0x7f000000, 0x7f800000};
    const uint64_t random = mt_random();
    const uint32_t low = random & 1u ? (uint32_t)(random >> 8) & 0xffffffu : 1u << (random >> 8) % 24u;
    const uint32_t f32 = exponents[(random >> 40) % 8u] + (low & 0xffffffu);
    const uint32_t with_sign = (f32 & 0x7fffffffu) | ((uint32_t)(random >> 32) & 0x80000000u);
    if (size == 4u)
        return with_sign;
    return f64_from_f32_bits(with_sign) ^ (random & 2u ? mt_random() >> 35 : 0u);
}

/* A random code of a format; every kind of number is frequent. */
static inline uint64_t some_code(mpt_format f)
{
    const uint64_t random = mt_random();
    uint64_t       code;
    if (f == MPT_F32 || f == MPT_F64) {
        code = source_pattern(bytes_of(f));
        if (random % 16u)
            return code;
    }
    return mt_random() >> (64 - row_of(f)->bits);
}

static inline void fill_codes(void *array, mpt_format f, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        put_code(array, f, i, some_code(f));
}

/* The double of a code; a signaling NaN stays signaling. */
static inline uint64_t ref_decode(const row *r, uint64_t code)
{
    uint64_t        u;
    const mpt_class kind = ref_take_apart(r, code, &u);
    return kind == MPT_CLASS_SIGNALING_NAN ? u & ~F64_QUIET : u;
}

/* Convert a code of format s to one of format d. */
static inline uint64_t ref_convert(const row *d, const row *s, uint64_t code, const mpt_opts *o,
                                   unsigned *flags)
{
    uint64_t        u;
    const mpt_class kind = ref_take_apart(s, code, &u);
    const int       subnormal = kind == MPT_CLASS_POS_SUBNORMAL || kind == MPT_CLASS_NEG_SUBNORMAL;
    u = ref_decode(s, code);
    if (subnormal && (o->flush & MPT_FLUSH_INPUTS))
        u &= F64_SIGN;
    return ref_encode(d, u, o, flags);
}

static inline uint64_t ref_plain(mpt_format d, mpt_format s, uint64_t code)
{
    return ref_nearest(row_of(d), ref_decode(row_of(s), code));
}

static inline void check_plain(mpt_format d, const void *dst, mpt_format s, const void *src, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t code = get_code(src, s, i);
        CHECK_EQ_U_AT(get_code(dst, d, i), ref_plain(d, s, code), code);
    }
}

static inline int all_bytes_are(const unsigned char *p, size_t n, unsigned char value)
{
    return !n || (p[0] == value && !memcmp(p, p + 1, n - 1u));
}

/* Memory between two inaccessible pages, which stays until the program ends. Rounds *size up to whole pages.
 * NULL if the system has no such memory: then a test must SKIP. */
static inline unsigned char *fenced(size_t *size)
{
#ifdef MAP_ANONYMOUS
    const size_t   page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p;
    *size = (*size + page - 1u) / page * page;
    p = (unsigned char *)mmap(NULL, *size + 2u * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != (unsigned char *)MAP_FAILED && mprotect(p + page, *size, PROT_READ | PROT_WRITE) == 0)
        return p + page;
#else
    (void)size;
#endif
    return NULL;
}

#endif /* MT_HALF_REF_H */
