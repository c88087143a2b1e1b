/* test_half_text.c -- tests of the conversion to and from text of mpt_half.h. Valid C99 and C++17.
 *
 *     cc -O2 -I. tests/test_half_text.c tests/impl.c -o test_half_text -lm
 *     ./test_half_text [--long] [part of a test name]
 *
 * The reference computes with exact decimal numbers of up to 1400 digits: it compares texts with the numbers
 * of a format and their midpoints, and writes these out in full. */
#include "../mpt_half.h"
#include "test.h"
#include "half_ref.h"

enum { MODES = MPT_RND_STOCHASTIC };    /* the roundings below it: all but stochastic */

// natural numbers ---------------------------------------------------------------------------------

enum { DIGITS = 1400 };             /* decimal, lowest first */
typedef struct nat { int n; signed char d[DIGITS]; } nat;

static nat nat_of(uint64_t x)
{
    nat a;
    a.n = 0;
    for (; x; x /= 10u)
        a.d[a.n++] = (signed char)(x % 10u);
    return a;
}

static void nat_times(nat *a, int factor)
{
    int i, carry = 0;
    for (i = 0; i < a->n || carry; i++) {
        if (i == DIGITS)
            abort();
        carry += i < a->n ? a->d[i] * factor : 0;
        a->d[i] = (signed char)(carry % 10);
        carry /= 10;
    }
    if (i > a->n)
        a->n = i;
}

static void nat_power(nat *a, int factor, int times)
{
    for (; times > 0; times--)
        nat_times(a, factor);
}

/* sig * 2^exp = digits / 10^point */
typedef struct decimal { nat digits; int point; } decimal;

static decimal decimal_of(num a)
{
    decimal x;
    x.digits = nat_of(a.sig);
    x.point = a.exp < 0 ? -a.exp : 0;
    nat_power(&x.digits, 2, a.exp);
    nat_power(&x.digits, 5, -a.exp);
    return x;
}

static int digit_at(const decimal *x, int place)    /* the digit of weight 10^place */
{
    const int i = place + x->point;
    return i >= 0 && i < x->digits.n ? x->digits.d[i] : 0;
}

static int decimal_cmp(const decimal *a, const decimal *b)
{
    int place;
    for (place = DIGITS; place >= -DIGITS; place--)
        if (digit_at(a, place) != digit_at(b, place))
            return digit_at(a, place) < digit_at(b, place) ? -1 : 1;
    return 0;
}

/* Write all digits: "123.456". */
static void decimal_write(const decimal *x, char *out)
{
    int place = x->digits.n - x->point - 1;
    for (place = place > 0 ? place : 0; place >= -x->point; place--) {
        if (place == -1)
            *out++ = '.';
        *out++ = (char)('0' + digit_at(x, place));
    }
    *out = '\0';
}

/* Read a text in the form that mpt_to_text writes, without a sign. */
static decimal decimal_read(const char *s)
{
    decimal x;
    char    kept[64];
    int     n = 0, point = -1, exp = 0;
    memset(&x, 0, sizeof x);
    for (; *s && *s != 'e'; s++)
        if (*s == '.')
            point = n;
        else
            kept[n++] = *s;
    if (*s == 'e')
        exp = atoi(s + 1);
    x.point = (point < 0 ? 0 : n - point) - exp;
    while (n)
        x.digits.d[x.digits.n++] = (signed char)(kept[--n] - '0');
    return x;
}

/* The number of significant digits of a text in that form. */
static int digits_of(const char *s)
{
    int n = 0, zeros = 0;
    for (; *s && *s != 'e'; s++)
        if (*s != '.' && (n || *s != '0')) {
            zeros = *s == '0' ? zeros + 1 : 0;
            n++;
        }
    return n - zeros;
}

/* The midpoint between the values of a magnitude code and the next one. */
static decimal middle_of(const row *r, uint64_t code)
{
    return decimal_of(num_middle(ref_value(r, code), ref_value(r, code + 1u)));
}

// writing -----------------------------------------------------------------------------------------

static int reads_as(const row *r, uint64_t code, const decimal *x)
{
    const int least = r->specials == MPT_SPECIALS_SCALE && code == 0u;
    decimal   high = middle_of(r, code), low;
    const int above = decimal_cmp(x, &high);
    int       below = 1;
    /* below the least power of two: the midpoint with the next lower one */
    low = least ? decimal_of(num_make(3u, -r->bias - 2)) : middle_of(r, code - 1u);
    below = decimal_cmp(x, &low);
    if (r->specials == MPT_SPECIALS_SCALE)          /* every code is odd: a tie goes to the larger */
        return above < 0 && below >= 0;
    return code & 1u ? above < 0 && below > 0 : above <= 0 && below >= 0;
}

/* *low: x truncated to n significant digits; *high: one more in the last of these digits. */
static void cut(const decimal *x, int n, decimal *low, decimal *high)
{
    int top = x->digits.n - 1, i, carry = 1;
    while (!x->digits.d[top])
        top--;
    *low = *x;
    for (i = 0; i <= top - n; i++)
        low->digits.d[i] = 0;
    *high = *low;
    if (top - n + 1 < 0)
        abort();
    for (i = top - n + 1; carry; i++) {
        if (i == high->digits.n)
            high->digits.d[high->digits.n++] = 0;
        carry += high->digits.d[i];
        high->digits.d[i] = (signed char)(carry % 10);
        carry /= 10;
    }
}

/* 1 if a is nearer to b than c is, 0 if it is as near, else -1; all three have the same point. */
static int nearer(const decimal *a, const decimal *b, const decimal *c)
{
    int diff[2][DIGITS], i, k;
    for (k = 0; k < 2; k++) {
        const decimal *x = k ? c : a;
        const int      up = decimal_cmp(x, b) >= 0;
        int            borrow = 0;
        for (i = 0; i < DIGITS; i++) {
            const int place = i - b->point;
            int       d = digit_at(x, place) - digit_at(b, place);
            d = (up ? d : -d) - borrow;
            borrow = d < 0;
            diff[k][i] = d + 10 * borrow;
        }
    }
    for (i = DIGITS - 1; i >= 0; i--)
        if (diff[0][i] != diff[1][i])
            return diff[0][i] < diff[1][i] ? 1 : -1;
    return 0;
}

/* The last digit that is not 0. */
static int last_digit(const decimal *x)
{
    int i = 0;
    while (!x->digits.d[i])
        i++;
    return x->digits.d[i];
}

static void check_shortest(const row *r, uint64_t code)
{
    char    text[MPT_TEXT_MAX];
    decimal value = decimal_of(ref_value(r, code)), x, low, high;
    int     n;
    CHECK(mpt_to_text_as(text, sizeof text, mpt_format_get(r->id), code, 0) < sizeof text);
    x = decimal_read(text);
    n = digits_of(text);
    CHECK_EQ_U_AT(reads_as(r, code, &x), 1, code);
    if (value.digits.n < 20) {          /* append zeros, so that cut() has digits to cut */
        nat_power(&value.digits, 10, 20);
        value.point += 20;
    }
    if (n > 1) {
        cut(&value, n - 1, &low, &high);
        CHECK_EQ_U_AT(reads_as(r, code, &low) || reads_as(r, code, &high), 0, code);
    }
    cut(&value, n, &low, &high);        /* the text is one of the two, the nearer if both read back */
    if (decimal_cmp(&x, &low) == 0) {
        const int tie = reads_as(r, code, &high) ? nearer(&low, &value, &high) : 1;
        CHECK_EQ_U_AT(tie > 0 || (tie == 0 && last_digit(&x) % 2 == 0), 1, code);
    } else {
        const int tie = reads_as(r, code, &low) ? nearer(&high, &value, &low) : 1;
        CHECK_EQ_U_AT(tie > 0 || (tie == 0 && last_digit(&x) % 2 == 0), 1, code);
        CHECK_EQ_U_AT(decimal_cmp(&x, &high), 0, code);
    }
}

TEST(shortest_of_all_codes)
{
    static const struct { mpt_format id; unsigned step; } sets[] = {
        {MPT_F16, 5}, {MPT_BF16, 23}, {MPT_E4M3, 1}, {MPT_E5M2, 1}, {MPT_E4M3FNUZ, 1}, {MPT_E5M2FNUZ, 1},
        {MPT_E3M2, 1}, {MPT_E2M3, 1}, {MPT_E2M1, 1}, {MPT_E8M0, 1}, {MPT_TF32, 997},
    };
    size_t   i;
    uint64_t code;
    for (i = 0; i < COUNT_OF(sets); i++) {
        const row *r = row_of(sets[i].id);
        mt_context(r->name, NULL);
        code = r->specials != MPT_SPECIALS_SCALE;       /* SCALE: code 0 is not zero */
        for (; code <= r->max_code; code += mt.long_mode ? 1u : sets[i].step * mt.every)
            check_shortest(r, code);
        check_shortest(r, r->max_code);
        check_shortest(r, r->max_code - 1u);
    }
}

TEST(shortest_of_wide_formats)
{
    const int n = mt.long_mode ? 20000 : 150 / (int)mt.every;
    int       i, k;
    for (k = 0; k < 2; k++) {
        const row *r = row_of(k ? MPT_F64 : MPT_F32);
        mt_context(r->name, NULL);
        for (i = 0; i < n; i++) {
            uint64_t code = mt_random() & ((ONE << (r->bits - 1)) - 1u);
            if (i % 4 == 0)
                code &= ~((ONE << r->m) - 1u);      /* powers of two: uneven gaps */
            if (code && code <= r->max_code)
                check_shortest(r, code);
        }
        check_shortest(r, 1u);
        check_shortest(r, ONE << r->m);
        check_shortest(r, r->max_code);
    }
}

static size_t to_hex(char *buf, size_t cap, mpt_format id, uint64_t code)
{
    return mpt_to_text_as(buf, cap, mpt_format_get(id), code, 1);
}

TEST(every_code_reads_back)
{
    static const mpt_format ids[] = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2, MPT_E4M3FNUZ, MPT_E5M2FNUZ,
                                     MPT_E3M2, MPT_E2M3, MPT_E2M1, MPT_E8M0};
    size_t   i;
    uint64_t code;
    for (i = 0; i < COUNT_OF(ids); i++) {
        const mpt_format_info *f = mpt_format_get(ids[i]);
        mt_context(f->name, NULL);
        for (code = 0; code < ONE << f->bits; code += f->bits > 8 && !mt.long_mode ? 3u * mt.every : 1u) {
            char     text[MPT_TEXT_MAX], hex[MPT_TEXT_MAX];
            uint64_t back = 0, exact = 0;
            size_t   end = 99;
            unsigned flags = 0, none = 0;
            CHECK(mpt_to_text(text, sizeof text, ids[i], code) < MPT_TEXT_MAX);
            CHECK(to_hex(hex, sizeof hex, ids[i], code) < MPT_TEXT_MAX);
            CHECK_EQ_I(mpt_from_text(ids[i], text, MPT_TEXT_TO_NUL, NULL, &flags, &back, &end), MPT_OK);
            CHECK_EQ_U(end, strlen(text));
            CHECK_EQ_I(mpt_from_text(ids[i], hex, strlen(hex), NULL, &none, &exact, NULL), MPT_OK);
            CHECK_EQ_U_AT(back, code, code);
            CHECK_EQ_U_AT(exact, code, code);
            CHECK_EQ_U_AT(none, 0, code);       /* hexadecimal is exact */
        }
    }
}

static void check_text(mpt_format id, uint64_t code, const char *decimal_text, const char *hex_text)
{
    char text[MPT_TEXT_MAX];
    (void)mpt_to_text(text, sizeof text, id, code);
    CHECK_EQ_S(text, decimal_text);
    (void)to_hex(text, sizeof text, id, code);
    CHECK_EQ_S(text, hex_text);
}

TEST(texts_as_documented)
{
    char buf[8] = "xxxxxxx";
    mpt_f16 h;
    mpt_bf16 b;
    uint64_t code;
    check_text(MPT_F16, 0x0000u, "0", "0x0p+0");
    check_text(MPT_F16, 0x8000u, "-0", "-0x0p+0");
    check_text(MPT_F16, 0x0001u, "6e-8", "0x1p-24");
    check_text(MPT_F16, 0x83ffu, "-6.1e-5", "-0x1.ff8p-15");
    check_text(MPT_F16, 0x7bffu, "65500", "0x1.ffcp+15");
    check_text(MPT_F16, 0x3555u, "0.3333", "0x1.554p-2");
    check_text(MPT_F16, 0x068eu, "0.0001", "0x1.a38p-14");
    check_text(MPT_F16, 0x4a00u, "12", "0x1.8p+3");
    check_text(MPT_F16, 0x7c00u, "inf", "inf");
    check_text(MPT_F16, 0xfc00u, "-inf", "-inf");
    check_text(MPT_F16, 0x7e00u, "nan", "nan");
    check_text(MPT_F16, 0xffffu, "-nan(0x1ff)", "-nan(0x1ff)");
    check_text(MPT_F16, 0x7c01u, "snan(0x1)", "snan(0x1)");
    check_text(MPT_BF16, 0x7f7fu, "3.39e38", "0x1.fep+127");
    check_text(MPT_BF16, 0x3f80u, "1", "0x1p+0");
    check_text(MPT_E4M3, 0x7eu, "450", "0x1.cp+8");
    check_text(MPT_E4M3, 0xffu, "-nan", "-nan");
    check_text(MPT_E4M3FNUZ, 0x80u, "nan", "nan");
    check_text(MPT_E8M0, 130u, "8", "0x1p+3");
    check_text(MPT_E8M0, 125u, "0.2", "0x1p-2");        /* 0.2 and 0.3 are equally near: the even digit */
    check_text(MPT_F64, 0x3fb999999999999au, "0.1", "0x1.999999999999ap-4");
    check_text(MPT_F64, 1u, "5e-324", "0x1p-1074");
    check_text(MPT_F64, 0x7fefffffffffffffu, "1.7976931348623157e308", "0x1.fffffffffffffp+1023");
    check_text(MPT_F64, 0x433fffffffffffffu, "9007199254740991", "0x1.fffffffffffffp+52");
    check_text(MPT_F64, 0x4341c37937e08000u, "1e16", "0x1.1c37937e08p+53");
    check_text(MPT_F64, 0xfff7ffffffffffffu, "-snan(0x7ffffffffffff)", "-snan(0x7ffffffffffff)");

    h.bits = 0x2e66u;
    CHECK_EQ_U(mpt_f16_to_text(buf, sizeof buf, h), 3);
    CHECK_EQ_S(buf, "0.1");
    CHECK_EQ_U(to_hex(buf, sizeof buf, MPT_F16, h.bits), 10);    /* truncated as by snprintf */
    CHECK_EQ_S(buf, "0x1.998");
    CHECK_EQ_U(mpt_f16_to_text(buf, 1, h), 3);
    CHECK_EQ_S(buf, "");
    CHECK_EQ_U(mpt_f16_to_text(NULL, 0, h), 3);
    CHECK_EQ_U(mpt_to_text(buf, sizeof buf, (mpt_format)MPT_FORMAT_COUNT, 1u), 0);
    CHECK_EQ_S(buf, "");
    CHECK_EQ_U(mpt_to_text_as(buf, sizeof buf, NULL, 1u, 1), 0);
    b.bits = 0xc000u;
    CHECK_EQ_U(mpt_bf16_to_text(buf, sizeof buf, b), 2);
    CHECK_EQ_S(buf, "-2");
    CHECK_EQ_U(to_hex(buf, sizeof buf, MPT_BF16, b.bits), 7);
    CHECK_EQ_S(buf, "-0x1p+1");
    CHECK_EQ_U(mpt_to_text(buf, sizeof buf, MPT_E4M3, 0x38u), 1);
    CHECK_EQ_S(buf, "1");
    CHECK_EQ_U(to_hex(buf, sizeof buf, MPT_E4M3, 0x38u), 6);
    CHECK_EQ_U(mpt_to_text(buf, sizeof buf, MPT_E5M2, 0x3du), 3);
    CHECK_EQ_S(buf, "1.2");                             /* 1.25: 1.2 and 1.3 are equally near */
    CHECK_EQ_U(to_hex(buf, sizeof buf, MPT_E5M2, 0x3du), 8);
    CHECK_EQ_I(mpt_f16_from_text("-1.5", &h), MPT_OK);
    CHECK_EQ_U(h.bits, 0xbe00u);
    CHECK_EQ_I(mpt_bf16_from_text("1e-3", &b), MPT_OK);
    CHECK_EQ_U(b.bits, 0x3a83u);
    CHECK_EQ_I(mpt_bf16_from_text("1e-3x", &b), MPT_E_DATA);
    CHECK_EQ_U(b.bits, 0x3a83u);
    CHECK_EQ_I(mpt_from_text(MPT_E4M3, "17", MPT_TEXT_TO_NUL, NULL, NULL, &code, NULL), MPT_OK);
    CHECK_EQ_U(code, 0x58u);
    CHECK_EQ_I(mpt_from_text(MPT_E5M2, "0x1.8p1", MPT_TEXT_TO_NUL, NULL, NULL, &code, NULL), MPT_OK);
    CHECK_EQ_U(code, 0x42u);
    CHECK_EQ_I(mpt_from_text(MPT_E5M2, "0x1.8p", MPT_TEXT_TO_NUL, NULL, NULL, &code, NULL), MPT_E_DATA);
    CHECK_EQ_U(code, 0x42u);
    CHECK_EQ_I(mpt_f16_from_text("1", NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_f16_from_text(NULL, &h), MPT_E_ARG);
}

// reading -----------------------------------------------------------------------------------------

/* Read a text in every mode, with both signs. Its number lies between code `low` and the next one, below
 * (`where` -1), at (0) or above (1) their midpoint. */
static void check_between(mpt_format id, uint64_t low, int where, const char *text)
{
    static char    signed_text[16384];
    const row     *r = row_of(id);
    const uint64_t normal = ONE << r->m;
    int            i, negative;
    signed_text[0] = '-';
    strcpy(signed_text + 1, text);
    for (negative = 0; negative < 2; negative++)
        for (i = 0; i < MODES; i++) {
            const int up = ref_up((mpt_rounding)i, where, low & 1u, negative);
            const int away = i == (int)(negative ? MPT_RND_DOWN : MPT_RND_UP);
            const int tiny = low < normal && !(low == normal - 1u && where > 0 && away);
            const char *const given = signed_text + !negative;
            const mpt_opts    o = options(i, 0, 0, 0u);
            uint64_t          code = 0, want = low + (uint64_t)up;
            unsigned          flags = 0, want_flags = INX | (tiny ? UDF : 0u);
            size_t            end = 0;
            want |= sign_bit_of(r, negative && !(r->specials == MPT_SPECIALS_FNUZ && !want));
            CHECK_EQ_I(mpt_from_text(id, given, MPT_TEXT_TO_NUL, &o, &flags, &code, &end), MPT_OK);
            CHECK_EQ_U_AT(code, want, low);
            CHECK_EQ_U_AT(flags, want_flags, low);
            CHECK_EQ_U_AT(end, strlen(given), low);
        }
}

/* Read the midpoint above `low`, written in full; then plus and minus a 1 after `places` more zeros. */
static void check_middle(mpt_format id, uint64_t low, int places)
{
    static char   text[16384];
    const decimal m = middle_of(row_of(id), low);
    size_t        n, end;
    decimal_write(&m, text);
    check_between(id, low, 0, text);
    n = strlen(text);
    if (!strchr(text, '.'))
        text[n++] = '.';
    memset(text + n, '0', (size_t)places);
    text[n + (size_t)places] = '1';
    text[n + (size_t)places + 1] = '\0';
    check_between(id, low, 1, text);
    end = n + (size_t)places + 1;       /* minus one in the last digit: ...4999 */
    text[end - 1] = '0';
    for (; end-- > 0;) {
        if (text[end] == '.')
            continue;
        if (text[end] != '0') {
            text[end]--;
            break;
        }
        text[end] = '9';
    }
    check_between(id, low, -1, text);
}

TEST(middles_written_in_full)
{
    static const mpt_format small_ids[] = {MPT_E4M3, MPT_E5M2, MPT_E4M3FNUZ, MPT_E5M2FNUZ, MPT_E3M2, MPT_E2M3,
                                           MPT_E2M1};
    const uint64_t step = mt.long_mode ? 7u : 599u * mt.every;
    uint64_t       low;
    size_t         i;
    for (i = 0; i < COUNT_OF(small_ids); i++)
        for (low = 0; low < mpt_format_get(small_ids[i])->max_code; low++)
            check_middle(small_ids[i], low, 3);
    for (low = 0; low < 0x7bffu; low += step)
        check_middle(MPT_F16, low, low % 3u ? 60 : 700);
    for (low = 0; low < 0x7f7fu; low += step)
        check_middle(MPT_BF16, low, low % 3u ? 20 : 700);
    check_middle(MPT_F16, 0x3feu, 50);
    check_middle(MPT_F16, 0x3ffu, 700);
    check_middle(MPT_F16, 0x400u, 0);
    check_middle(MPT_BF16, 0x7fu, 700);
    check_middle(MPT_BF16, 0u, 10000);
    check_middle(MPT_F32, 0u, 700);
    check_middle(MPT_F32, 0x7fffffu, 700);
    check_middle(MPT_F32, 0x3f800000u, 10000);
    check_middle(MPT_F64, 0u, 100);
    check_middle(MPT_F64, 1u, 10000);
    check_middle(MPT_F64, (ONE << 52) - 1u, 700);
    check_middle(MPT_F64, (ONE << 53) - 1u, 0);         /* 767 digits, the most there are */
    check_middle(MPT_F64, 0x3ff0000000000000u, 700);
    check_middle(MPT_F64, 0x7feffffffffffffeu, 700);
    for (i = 0; i < (mt.long_mode ? 2000u : 10u); i++)
        check_middle(MPT_F64, mt_random() % 0x7fe0000000000000u, (int)(mt_random() % 800u));
}

static unsigned read_as(mpt_format id, const char *text, mpt_rounding mode, uint64_t *code)
{
    const mpt_opts o = options((int)mode, 0, 0, 0u);
    unsigned       flags = 0;
    *code = 0xdead;
    CHECK_EQ_I(mpt_from_text(id, text, MPT_TEXT_TO_NUL, &o, &flags, code, NULL), MPT_OK);
    return flags;
}

static void check_read(mpt_format id, const char *text, mpt_rounding mode, uint64_t want, unsigned want_flags)
{
    uint64_t       code;
    const unsigned flags = read_as(id, text, mode, &code);
    mt_context(text, NULL);
    CHECK_EQ_U(code, want);
    CHECK_EQ_U(flags, want_flags);
    mt_context(NULL, NULL);
}

TEST(huge_and_tiny)
{
    static const char *const tiny[] = {"1e-99999999999", "1e-400", "0.1e-9999999999999999999999999",
                                       "0x1p-99999999999", "0x1p-2000", "0x0.0001p-1080", "1e-330"};
    static const char *const huge[] = {"1e99999999999", "1e400", "123456e999999999999999999999999999",
                                       "0x1p99999999999", "0x1p1024", "0x10000000000000000p1000", "1e309"};
    const mpt_format ids[] = {MPT_F16, MPT_BF16, MPT_F32, MPT_F64, MPT_E5M2};
    size_t i, k;
    for (k = 0; k < COUNT_OF(ids); k++) {
        const mpt_format_info *f = mpt_format_get(ids[k]);
        for (i = 0; i < COUNT_OF(tiny); i++) {
            check_read(ids[k], tiny[i], MPT_RND_NEAREST_EVEN, 0u, UDF | INX);
            check_read(ids[k], tiny[i], MPT_RND_UP, 1u, UDF | INX);
            check_read(ids[k], tiny[i], MPT_RND_ODD, 1u, UDF | INX);
        }
        for (i = 0; i < COUNT_OF(huge); i++) {
            check_read(ids[k], huge[i], MPT_RND_NEAREST_EVEN, f->inf_code, OVF | INX);
            check_read(ids[k], huge[i], MPT_RND_TOWARD_ZERO, f->max_code, OVF | INX);
            check_read(ids[k], huge[i], MPT_RND_DOWN, f->max_code, OVF | INX);
        }
        check_read(ids[k], "0e99999999999999999999", MPT_RND_UP, 0u, 0u);
        check_read(ids[k], "-0.000e-5", MPT_RND_UP, ONE << (f->bits - 1), 0u);
        check_read(ids[k], "0x0p999999999999", MPT_RND_UP, 0u, 0u);
    }
    check_read(MPT_F16, "65519.99999", MPT_RND_NEAREST_EVEN, 0x7bffu, INX);
    check_read(MPT_F16, "65520", MPT_RND_NEAREST_EVEN, 0x7c00u, OVF | INX);
    check_read(MPT_F16, "65535", MPT_RND_TOWARD_ZERO, 0x7bffu, INX);
    check_read(MPT_F16, "65536", MPT_RND_TOWARD_ZERO, 0x7bffu, OVF | INX);
    check_read(MPT_E4M3, "464", MPT_RND_NEAREST_EVEN, 0x7eu, INX);
    check_read(MPT_E4M3, "464.1", MPT_RND_NEAREST_EVEN, 0x7fu, OVF | INX);
    check_read(MPT_E2M1, "1e9", MPT_RND_NEAREST_EVEN, 0x7u, OVF | INX);
    check_read(MPT_E2M1, "-inf", MPT_RND_NEAREST_EVEN, 0xfu, OVF | INX);
    check_read(MPT_E8M0, "3", MPT_RND_NEAREST_EVEN, 129u, INX);     /* 2 and 4 count as odd: the larger */
    check_read(MPT_E8M0, "6", MPT_RND_NEAREST_EVEN, 130u, INX);
    check_read(MPT_E8M0, "3.9", MPT_RND_ODD, 128u, INX);
    check_read(MPT_E8M0, "-3", MPT_RND_NEAREST_EVEN, 0xffu, INV);
    check_read(MPT_F16, "Infinity", MPT_RND_NEAREST_EVEN, 0x7c00u, 0u);
    check_read(MPT_F16, "-INF", MPT_RND_NEAREST_EVEN, 0xfc00u, 0u);
    check_read(MPT_F16, "NaN", MPT_RND_NEAREST_EVEN, 0x7e00u, 0u);
    check_read(MPT_F16, "-nan(511)", MPT_RND_NEAREST_EVEN, 0xffffu, 0u);
    check_read(MPT_F16, "sNaN", MPT_RND_NEAREST_EVEN, 0x7c01u, 0u);
    check_read(MPT_F16, "snan(0x1fF)", MPT_RND_NEAREST_EVEN, 0x7dffu, 0u);
    check_read(MPT_F16, "nan(0)", MPT_RND_NEAREST_EVEN, 0x7e00u, 0u);
    check_read(MPT_F16, "nan(007)", MPT_RND_NEAREST_EVEN, 0x7e07u, 0u);
    check_read(MPT_E2M3, "nan", MPT_RND_NEAREST_EVEN, 0x1fu, INV);
    check_read(MPT_E8M0, "-nan", MPT_RND_NEAREST_EVEN, 0xffu, 0u);
    check_read(MPT_F16, "+1E+1", MPT_RND_NEAREST_EVEN, 0x4900u, 0u);
    check_read(MPT_F16, ".5", MPT_RND_NEAREST_EVEN, 0x3800u, 0u);
    check_read(MPT_F16, "5.", MPT_RND_NEAREST_EVEN, 0x4500u, 0u);
    check_read(MPT_F16, "0X.8P1", MPT_RND_NEAREST_EVEN, 0x3c00u, 0u);
    check_read(MPT_F16, "0xA.p-1", MPT_RND_NEAREST_EVEN, 0x4500u, 0u);
    check_read(MPT_F16, "0xff", MPT_RND_NEAREST_EVEN, 0x5bf8u, 0u);
    check_read(MPT_F16, "00000000000000000000000012", MPT_RND_NEAREST_EVEN, 0x4a00u, 0u);
}

/* A long text of 10^t must read as "1e<t>" does. It has `length` digits: zeros, of which the first (`kind` 0)
 * or the last (1) is a 1, or nines (2: just below 10^t); a point before digit `before`; then `exponent`. */
static void check_length(int length, int before, int kind, int t, const char *exponent)
{
    static const mpt_format ids[] = {MPT_F16, MPT_E4M3, MPT_F64};
    static char             text[4096];
    char                    brief[32];
    size_t                  i;
    memset(text, kind == 2 ? '9' : '0', (size_t)length + 1u);
    if (kind < 2)
        text[kind * (length - 1)] = '1';
    memmove(text + before + 1, text + before, (size_t)(length - before));
    text[before] = '.';
    strcpy(text + length + 1, exponent);
    (void)snprintf(brief, sizeof brief, "1e%d", t);
    mt_context(brief, kind == 2 ? "nines" : kind ? "zeros before" : "zeros behind");
    for (i = 0; i < COUNT_OF(ids); i++) {
        const mpt_format_info *f = mpt_format_get(ids[i]);
        uint64_t               code = 1, want = 0;
        unsigned               flags = read_as(ids[i], text, MPT_RND_NEAREST_EVEN, &code), same;
        same = read_as(ids[i], brief, MPT_RND_NEAREST_EVEN, &want);
        if (t >= 309 || t <= -330) {
            want = t < 0 ? 0u : f->has_inf ? f->inf_code : f->nan_code;
            same = INX | (t < 0 ? UDF : OVF);
        }
        CHECK_EQ_U_AT(code, want, (unsigned)length);
        CHECK_EQ_U_AT(flags, same | (kind == 2 ? INX : 0u), (unsigned)length);
        if (kind == 2 && t > -8 && t < 3) {
            flags = read_as(ids[i], text, MPT_RND_TOWARD_ZERO, &code);
            (void)read_as(ids[i], brief, MPT_RND_UP, &want);
            CHECK_EQ_U_AT(code, want - 1u, (unsigned)length);
        }
    }
    mt_context(NULL, NULL);
}

TEST(lengths_points_and_exponents)
{
    static const int powers[] = {-1000, -450, -401, -400, -399, -330, -300, -7, -2, 0, 2, 300, 309, 399,
                                 400, 401, 450, 1000};
    int              length, kind;
    size_t           i, k;
    const int        step = mt.long_mode ? 1 : 199 * (int)mt.every;
    for (length = 1; length <= 3000; length += length % 400 < 3 || length % 400 > 398 ? 1 : step) {
        const int points[] = {0, 1, length / 3, length - 1, length};
        for (i = 0; i < COUNT_OF(points); i++)
            for (kind = 0; kind < (length < 25 ? 2 : 3); kind++) {
                /* without an exponent the text is one of 10^place */
                const int place = points[i] - (kind == 1 ? length : 1) + (kind == 2);
                char      exponent[32];
                check_length(length, points[i], kind, place, "");
                for (k = 0; k < COUNT_OF(powers); k++) {
                    (void)snprintf(exponent, sizeof exponent, "e%d", powers[k] - place);
                    check_length(length, points[i], kind, powers[k], exponent);
                }
            }
    }
}

/* Long texts whose exponent cancels their zeros, and hexadecimal ones with a digit far behind. */
TEST(long_inputs)
{
    static char text[32768];
    int         tail;
    memset(text, '0', sizeof text);
    text[1] = '.';
    strcpy(text + 10002, "15e10001");                   /* 0.000...00015e10001 = 1.5 */
    check_read(MPT_F16, text, MPT_RND_NEAREST_EVEN, 0x3e00u, 0u);
    memset(text, '0', sizeof text);
    text[0] = '3';
    strcpy(text + 10001, "e-10000");                    /* 3000...000e-10000 = 3 */
    check_read(MPT_BF16, text, MPT_RND_NEAREST_EVEN, 0x4040u, 0u);
    memset(text, '3', sizeof text);
    text[10000] = '\0';
    text[0] = '.';                                      /* 1/3, nearly */
    check_read(MPT_F16, text, MPT_RND_NEAREST_EVEN, 0x3555u, INX);
    check_read(MPT_F64, text, MPT_RND_NEAREST_EVEN, 0x3fd5555555555555u, INX);
    check_read(MPT_F64, text, MPT_RND_UP, 0x3fd5555555555556u, INX);
    for (tail = 0; tail < 2; tail++) {                  /* 1 + 2^-11, and a bit 40000 places below */
        memset(text, '0', sizeof text);
        memcpy(text, "0x1.002", 7);
        text[10007] = (char)('0' + tail);
        text[10008] = '\0';
        check_read(MPT_F16, text, MPT_RND_NEAREST_EVEN, 0x3c00u + (unsigned)tail, INX);
        check_read(MPT_F16, text, MPT_RND_TOWARD_ZERO, 0x3c00u, INX);
        memset(text, '0', sizeof text);
        memcpy(text, "0x801", 5);                       /* the same before the point */
        text[10005] = (char)('0' + tail);
        strcpy(text + 10006, "p-40015");
        check_read(MPT_F16, text, MPT_RND_NEAREST_EVEN, 0x3c00u + (unsigned)tail, INX);
        check_read(MPT_F16, text, MPT_RND_DOWN, 0x3c00u, INX);
    }
    check_read(MPT_F64, "0x1.fffffffffffff7fffffffffffff", MPT_RND_NEAREST_EVEN, 0x3fffffffffffffffu, INX);
    check_read(MPT_F64, "0x1.fffffffffffff8", MPT_RND_NEAREST_EVEN, 0x4000000000000000u, INX);
    check_read(MPT_F64, "0x1.00000000000008", MPT_RND_NEAREST_EVEN, 0x3ff0000000000000u, INX);
    check_read(MPT_F64, "0x1.000000000000080000001", MPT_RND_NEAREST_EVEN, 0x3ff0000000000001u, INX);
    check_read(MPT_F64, "9007199254740993", MPT_RND_NEAREST_EVEN, 0x4340000000000000u, INX);
    check_read(MPT_F64, "9007199254740993.000000000000001", MPT_RND_NEAREST_EVEN, 0x4340000000000001u, INX);
}

TEST(malformed_text_tells_where)
{
    static const struct { const char *text; size_t at; } bad[] = {
        {"", 0}, {"+", 1}, {"-", 1}, {" 1", 0}, {"1 ", 1}, {"- 1", 1}, {"--1", 1}, {".", 1}, {"-.", 2},
        {"..", 1}, {".e1", 1}, {"1..2", 2}, {"1.2.3", 3}, {"1,5", 1}, {"1e", 2}, {"1e+", 3}, {"1e-x", 3},
        {"1ee", 2},
        {"1e5.5", 3}, {"1e+-1", 3}, {"e5", 0}, {"abc", 0}, {"1x", 1}, {"12f", 2}, {"0x", 2}, {"0x.", 3},
        {"0x.p1", 3}, {"0xg", 2}, {"0x1p", 4}, {"0x1p+", 5}, {"0x1pf", 4}, {"0x1.8.", 5}, {"0x1e5x", 5},
        {"00x1", 2}, {"i", 1}, {"in", 2}, {"inx", 2}, {"inff", 3}, {"infi", 4}, {"infinix", 6},
        {"infinit", 7},
        {"infinityy", 8}, {"n", 1}, {"nam", 2}, {"nann", 3}, {"nan(", 4}, {"nan()", 4}, {"nan(12", 6},
        {"nan(0x)", 6}, {"nan(0x", 6}, {"nan(1g)", 5}, {"nan(1))", 6}, {"nan(512)", 4}, {"nan(0x200)", 4},
        {"nan(99999999999999999999999999)", 4}, {"nan(0xffffffffffffffffffffff)", 4}, {"nan(-1)", 4},
        {"snan(0)", 5}, {"snan(512)", 5}, {"s", 1}, {"sn", 2}, {"snx", 2}, {"1\t", 1}, {"1\n", 1}, {"1_0", 1},
        {"\xc2\xb2", 0}, {"1e1\xff", 3},
    };
    size_t   i, end;
    unsigned flags = 0;
    uint64_t code = 77;
    for (i = 0; i < COUNT_OF(bad); i++) {
        mt_context(bad[i].text, NULL);
        end = 1000;
        CHECK_EQ_I(mpt_from_text(MPT_F16, bad[i].text, MPT_TEXT_TO_NUL, NULL, &flags, &code, &end),
                   MPT_E_DATA);
        CHECK_EQ_U(end, bad[i].at);
        CHECK_EQ_U(code, 77);
        CHECK_EQ_U(flags, 0);
        CHECK_EQ_I(mpt_from_text(MPT_F16, bad[i].text, strlen(bad[i].text), NULL, NULL, &code, NULL),
                   MPT_E_DATA);
    }
    mt_context(NULL, NULL);
    CHECK_EQ_I(mpt_from_text(MPT_F16, "1\0002", 3, NULL, NULL, &code, &end), MPT_E_DATA);
    CHECK_EQ_U(end, 1);
    CHECK_EQ_I(mpt_from_text(MPT_F16, "15", 1, NULL, NULL, &code, &end), MPT_OK);   /* only the "1" */
    CHECK_EQ_U(code, 0x3c00u);
    CHECK_EQ_U(end, 1);
    CHECK_EQ_I(mpt_from_text(MPT_F16, "0x1", 2, NULL, NULL, &code, &end), MPT_E_DATA);
    CHECK_EQ_U(end, 2);
    CHECK_EQ_I(mpt_from_text(MPT_E4M3, "nan(1)", 6, NULL, NULL, &code, &end), MPT_E_DATA);
    CHECK_EQ_U(end, 4);
    CHECK_EQ_I(mpt_from_text((mpt_format)MPT_FORMAT_COUNT, "1", 1, NULL, NULL, &code, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_from_text_as(NULL, "1", 1, NULL, NULL, &code, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_from_text(MPT_F16, NULL, 0, NULL, NULL, &code, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_from_text(MPT_F16, "1", 1, NULL, NULL, NULL, NULL), MPT_E_ARG);
}

TEST(options_reach_the_rounding)
{
    int      i;
    mpt_opts o;
    unsigned flags = 0;
    uint64_t code;
    o = options(MPT_RND_NEAREST_EVEN, 1, 0, 0u);
    CHECK_EQ_I(mpt_from_text(MPT_F16, "1e9", 3, &o, &flags, &code, NULL), MPT_OK);
    CHECK_EQ_U(code, 0x7bffu);
    CHECK_EQ_U(flags, OVF | INX);
    o = options(MPT_RND_NEAREST_EVEN, 0, 0, 0u);
    o.nan = MPT_NAN_CANONICAL;
    CHECK_EQ_I(mpt_from_text(MPT_F16, "-nan(3)", 7, &o, NULL, &code, NULL), MPT_OK);
    CHECK_EQ_U(code, 0x7e00u);
    /* 1 + 2^-11 is a midpoint: rounds up if random < 2^31 */
    o = options(MPT_RND_STOCHASTIC, 0, 0, 0x7fffffffu);
    CHECK_EQ_I(mpt_from_text(MPT_F16, "1.00048828125", 13, &o, NULL, &code, NULL), MPT_OK);
    CHECK_EQ_U(code, 0x3c01u);
    o.random = 0x80000000u;
    CHECK_EQ_I(mpt_from_text(MPT_F16, "1.00048828125", 13, &o, NULL, &code, NULL), MPT_OK);
    CHECK_EQ_U(code, 0x3c00u);
    for (i = 0; i < WRONG_OPTIONS; i++) {
        o = wrong_options(i);
        CHECK_EQ_I(mpt_from_text(MPT_F16, "1", 1, &o, NULL, &code, NULL), MPT_E_ARG);
    }
}

/* Numbers 3/10 of a gap above a code: the words below that share, and no others, round up. f64 sees ten bits
 * of the share, as documented. */
TEST(stochastic_shares)
{
    static const struct { mpt_format id; uint64_t code; uint32_t up, down; const char *text; } at[] = {
        {MPT_F16, 0u, 1288490187u, 1288490188u, "1.78813934326171875e-8"},
        {MPT_F32, 0x3f800000u, 1288490187u, 1288490188u, "1.000000035762786865234375"},
        {MPT_F64, 0x3ff0000000000000u, (307u << 22) - 1u, 308u << 22,
         "1.00000000000000006661338147750939242541790008544921875"},
    };
    size_t i;
    int    up;
    for (i = 0; i < COUNT_OF(at); i++)
        for (up = 0; up < 2; up++) {
            const mpt_opts o = options(MPT_RND_STOCHASTIC, 0, 0, up ? at[i].up : at[i].down);
            uint64_t       code = 0u;
            CHECK_EQ_I(mpt_from_text(at[i].id, at[i].text, MPT_TEXT_TO_NUL, &o, NULL, &code, NULL), MPT_OK);
            CHECK_EQ_U_AT(code, at[i].code + (uint64_t)up, i);
        }
}

TEST(texts_at_their_ends)
{
    uint64_t code = 1u;
    size_t   end = 9u;
    CHECK_EQ_I(mpt_from_text(MPT_F16, "0x1", 1, NULL, NULL, &code, &end), MPT_OK);
    CHECK(code == 0u && end == 1u);                         /* the x lies beyond the length */
    CHECK_EQ_I(mpt_from_text(MPT_F16, "1p3", MPT_TEXT_TO_NUL, NULL, NULL, &code, &end), MPT_E_DATA);
    CHECK_EQ_U(end, 1u);
    CHECK_EQ_I(mpt_from_text(MPT_F64, "nan(0x4000000000001)", MPT_TEXT_TO_NUL, NULL, NULL, &code, NULL),
               MPT_OK);
    CHECK_EQ_U(code, (uint64_t)0x7ffc0000 << 32 | 1u);
    CHECK_EQ_I(mpt_from_text(MPT_E4M3, "snan", MPT_TEXT_TO_NUL, NULL, NULL, &code, NULL), MPT_OK);
    CHECK_EQ_U(code, 0x7fu);
}

TEST(least_normals)
{
    mpt_format_info s;
    char            text[MPT_TEXT_MAX];
    (void)mpt_to_text(text, sizeof text, MPT_TF32, 0x400u); /* the gap below is as wide as that above */
    CHECK_EQ_S(text, "1.175e-38");
    CHECK_EQ_I(mpt_format_define(&s, "s", 2, 0, -150, MPT_SPECIALS_SCALE), MPT_OK);
    (void)mpt_to_text_as(text, sizeof text, &s, 0u, 0);
    CHECK_EQ_S(text, "2e45");                               /* 2^150: 1e45 is nearer to the 2^149 below it */
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(shortest_of_all_codes);
    RUN(shortest_of_wide_formats);
    RUN(every_code_reads_back);
    RUN(texts_as_documented);
    RUN(middles_written_in_full);
    RUN(huge_and_tiny);
    RUN(long_inputs);
    RUN(lengths_points_and_exponents);
    RUN(malformed_text_tells_where);
    RUN(options_reach_the_rounding);
    RUN(stochastic_shares);
    RUN(texts_at_their_ends);
    RUN(least_normals);
    return mt_end();
}
