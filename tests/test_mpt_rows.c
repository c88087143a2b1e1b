/* test_mpt_rows.c -- tests of row primitives on every path, of updates inside backprop, lint, memory report.
 *
 *     cc -O2 -std=c99 -I. tests/test_mpt_rows.c tests/impl.c -o test_mpt_rows -lm && ./test_mpt_rows */
#include "../mpt.h"

#include "impl.h"
#include "test.h"
#include "train.h"

enum { MOST = 4096 };
static float    x[MOST], y[MOST], was[MOST], as_f32[MOST];
static mpt_f16  as_f16[MOST];
static mpt_bf16 as_bf16[MOST];

static void fill(void)
{
    size_t i;
    for (i = 0; i < MOST; i++) {
        x[i] = random_unit();
        was[i] = random_unit();
        as_f32[i] = random_unit();
        as_f16[i] = mpt_f16_from_f32(random_unit() * (i % 5 ? 1.0f : 1e-5f));
        as_bf16[i] = mpt_bf16_from_f32(random_unit());
    }
}

static const void *row_in(mpt_format f)
{
    return f == MPT_F32 ? (const void *)as_f32 : f == MPT_F16 ? (const void *)as_f16 : (const void *)as_bf16;
}

/* mpt_dot in the documented order of additions, on one array of lanes. */
static float naive_dot(const void *a, mpt_format f, const void *b, mpt_format g, size_t n)
{
    float  lane[64];
    size_t i, k;
    for (i = 0; i < 64; i++) lane[i] = 0.0f;
    for (i = 0; i < (n + 63) / 64 * 64; i++)
        lane[i % 64] = fmaf(i < n ? element(a, f, i) : 0.0f, i < n ? element(b, g, i) : 0.0f, lane[i % 64]);
    for (k = 32; k; k /= 2)
        for (i = 0; i < k; i++) lane[i] += lane[i + k];
    return lane[0] + 0.0f;
}

/* mpt_axpy on n elements of y; the elements behind the row stay. */
static void check_axpy(mpt_format f, mpt_format g, size_t n)
{
    static union { float f32[MOST]; uint16_t codes[MOST]; } to, from;
    size_t i;
    for (i = 0; i < MOST; i++)
        if (f == MPT_F32)
            to.f32[i] = was[i];
        else
            to.codes[i] = (uint16_t)encode(f, was[i]);
    from = to;
    CHECK_EQ_I(mpt_axpy(&to, f, 0.37f, row_in(g), g, n), MPT_OK);
    for (i = 0; i < MOST && i < n + 40; i++) {
        const float v = element(&from, f, i), next = i < n ? fmaf(0.37f, element(row_in(g), g, i), v) : v;
        CHECK_EQ_U_AT(f == MPT_F32 ? mpti_f32_bits(to.f32[i]) : to.codes[i], encode(f, next), i);
    }
}

TEST(rows_on_every_path)
{
    size_t n, f, g;
    ON_EACH_PATH
        for (n = 0; n < 4097; n += n < 70 ? 1 : n == 70 ? 30 : n < 128 ? 9 : n < 4000 ? 779 : 1) {
            fill();
            for (f = 0; f < 3; f++)
                for (g = 0; g < 3; g++) {
                    const void *const a = row_in(formats[f]), *const b = f + g ? row_in(formats[g]) : x;
                    CHECK_EQ_U_AT(mpti_f32_bits(mpt_dot(a, formats[f], b, formats[g], n)),
                                  mpti_f32_bits(naive_dot(a, formats[f], b, formats[g], n)), n);
                    check_axpy(formats[f], formats[g], n);
                }
        }
    last_path = PATHS - 1;
}

/* A member of an array of structs; and every third element, from the last one backwards. */
TEST(rows_with_strides)
{
    struct unit { float in; mpt_f16 weight, grad; };
    static struct unit u[1000];
    static mpt_f16     weight[1000], grad[1000];
    static float       in[1000];
    size_t             n, i;
    fill();
    for (i = 0; i < 1000; i++) {
        u[i].in = in[i] = x[i];
        u[i].weight = weight[i] = as_f16[i];
        u[i].grad = grad[i] = mpt_f16_from_f32(was[i]);
    }
    ON_EACH_PATH
        for (n = 0; n < 1000; n = n * 3 + 1) {
            const ptrdiff_t step = sizeof *u;
            CHECK_EQ_U_AT(mpti_f32_bits(mpt_dot_strided(&u->weight, MPT_F16, step, &u->in, MPT_F32, step, n)),
                          mpti_f32_bits(mpt_dot(weight, MPT_F16, in, MPT_F32, n)), n);
            CHECK_EQ_I(mpt_axpy_strided(&u->grad, MPT_F16, step, 0.3f, &u->in, MPT_F32, step, n), MPT_OK);
            CHECK_EQ_I(mpt_axpy(grad, MPT_F16, 0.3f, in, MPT_F32, n), MPT_OK);
            for (i = 0; i < 1000; i++)
                CHECK_EQ_U_AT(u[i].grad.bits, grad[i].bits, i);
        }
    last_path = PATHS - 1;
    for (i = 0; i < 333; i++)
        in[i] = x[999 - 3 * i];
    CHECK_EQ_U(mpti_f32_bits(mpt_dot_strided(x + 999, MPT_F32, -12, was, MPT_F32, 4, 333)),
               mpti_f32_bits(mpt_dot(in, MPT_F32, was, MPT_F32, 333)));
    CHECK_EQ_I(mpt_axpy_strided(NULL, MPT_F32, 4, 1.0f, in, MPT_F32, 4, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_strided(y, MPT_E4M3, 4, 1.0f, in, MPT_F32, 4, 1), MPT_E_UNSUPPORTED);
    memcpy(in, was, sizeof in);
    CHECK_EQ_I(mpt_axpy_strided(in, MPT_F32, 0, 1.0f, x, MPT_F32, 4, 300), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_strided(in + 300, MPT_F32, -2, 1.0f, x, MPT_F32, 4, 300), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_strided(in + 1, MPT_F32, 4, 1.0f, in, MPT_F32, 4, 300), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_strided(in, MPT_F32, PTRDIFF_MAX, 1.0f, x, MPT_F32, 4, 3), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_strided(in, MPT_F32, 4, 1.0f, x, MPT_F32, PTRDIFF_MAX, 3), MPT_E_ARG);
    CHECK_EQ_U(mpti_f32_bits(mpt_dot_strided(x, MPT_F32, PTRDIFF_MAX, in, MPT_F32, 4, 3)), 0u);
    CHECK_EQ_U(mpti_f32_bits(mpt_dot_strided(x, MPT_F32, 4, in, MPT_F32, -PTRDIFF_MAX, 3)), 0u);
    CHECK(!memcmp(in, was, sizeof in));
    CHECK_EQ_I(mpt_axpy_strided(in + 1, MPT_F32, 8, 1.0f, in, MPT_F32, 8, 300), MPT_OK);    /* fields */
    CHECK_EQ_I(mpt_axpy_strided(in, MPT_F32, 8, 1.0f, in, MPT_F32, 8, 300), MPT_OK);        /* itself */
    for (i = 0; i < 300; i++)
        CHECK(mpti_f32_bits(in[2 * i]) == mpti_f32_bits(2.0f * was[2 * i]) &&
              mpti_f32_bits(in[2 * i + 1]) == mpti_f32_bits(was[2 * i] + was[2 * i + 1]));
}

/* A NaN whose payload is all ones, which rounding to bf16 would carry into the sign, stays a NaN. */
TEST(nan_stays_nan)
{
    float    in[40];
    mpt_bf16 to[40];
    size_t   i, k;
    ON_EACH_PATH
        for (k = 0; k < 40; k++) {
            for (i = 0; i < 40; i++)
                in[i] = i == k ? mpti_f32_make(0x7fffffffu) : 1.0f, to[i] = mpt_bf16_from_f32(1.0f);
            CHECK_EQ_I(mpt_axpy(to, MPT_BF16, 2.0f, in, MPT_F32, 40), MPT_OK);
            for (i = 0; i < 40; i++)
                CHECK(i == k ? (to[i].bits & 0x7fffu) > 0x7f80u : to[i].bits == 0x4040u);
        }
    last_path = PATHS - 1;
}

/* A sum of products that underflow to -0 is +0, on each path. */
TEST(dot_of_minus_zero)
{
    float  a[400], b[400];
    size_t i;
    for (i = 0; i < 400; i++) a[i] = -1e-30f, b[i] = 1e-30f;
    ON_EACH_PATH
        for (i = 1; i <= 400; i++)
            CHECK_EQ_U_AT(mpti_f32_bits(mpt_dot(a, MPT_F32, b, MPT_F32, i)), 0u, i);
    last_path = PATHS - 1;
}

TEST(dot_is_close_to_exact)
{
    double exact = 0.0, size = 0.0;
    size_t i;
    fill();
    for (i = 0; i < MOST; i++) {
        exact += (double)mpt_f32_from_f16(as_f16[i]) * (double)x[i];
        size += fabs((double)mpt_f32_from_f16(as_f16[i]) * (double)x[i]);
    }
    /* 64 fmas a lane and 6 additions: at most 70 roundings of 2^-24 of the partial sums */
    CHECK(fabs((double)mpt_dot(as_f16, MPT_F16, x, MPT_F32, MOST) - exact) <= 70.0 * ldexp(1.0, -24) * size);
}

/* A row is padded with zeros, not with what an earlier call left: 65 ones after a row of NaN. */
TEST(dot_is_padded_with_zeros)
{
    static float nan[127], one[65];
    size_t       i;
    for (i = 0; i < 127; i++)
        nan[i] = mpti_f32_make(0x7fc00000u);
    for (i = 0; i < 65; i++)
        one[i] = 1.0f;
    ON_EACH_PATH {
        const float lost = mpt_dot(nan, MPT_F32, nan, MPT_F32, 127);
        const float sum = mpt_dot(one, MPT_F32, one, MPT_F32, 65);
        CHECK(!mpti_f32_is_finite(lost));
        CHECK_EQ_U(mpti_f32_bits(sum), mpti_f32_bits(65.0f));
    }
    last_path = 9;
}

TEST(rows_refuse)
{
    CHECK_EQ_U(mpti_f32_bits(mpt_dot(NULL, MPT_F16, x, MPT_F32, 3)), 0u);
    CHECK_EQ_U(mpti_f32_bits(mpt_dot(as_f16, MPT_F16, NULL, MPT_F32, 3)), 0u);
    CHECK(!mpti_f32_is_finite(mpt_dot(as_f16, MPT_E4M3, x, MPT_F32, 3)));
    CHECK(!mpti_f32_is_finite(mpt_dot(as_f16, MPT_F16, x, MPT_FORMAT_COUNT, 3)));
    CHECK_EQ_U(mpti_f32_bits(mpt_dot(as_f16, MPT_E4M3, x, MPT_F32, 0)), 0u);
    CHECK_EQ_I(mpt_axpy(NULL, MPT_F32, 1.0f, as_f16, MPT_F16, 3), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy(y, MPT_F32, 1.0f, NULL, MPT_BF16, 3), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy(y, MPT_F64, 1.0f, x, MPT_F32, 3), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_axpy(y, MPT_F32, 1.0f, x, MPT_FORMAT_COUNT, 3), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_axpy(NULL, MPT_F32, 1.0f, NULL, MPT_F32, 0), MPT_OK);
    CHECK_EQ_I(mpt_axpy(y, MPT_F32, 1.0f, y, MPT_F32, 3), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy(y + 2, MPT_F32, 1.0f, y, MPT_F32, 3), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy(y, MPT_F32, 1.0f, y + 2, MPT_F32, 3), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy(y, MPT_F32, 0.0f, y + 3, MPT_F32, 3), MPT_OK);
    CHECK_EQ_I(mpt_axpy(y + 3, MPT_F32, 0.0f, y, MPT_F32, 3), MPT_OK);
    CHECK_EQ_I(mpt_axpy(y, MPT_F32, 1.0f, y, MPT_F32, 0), MPT_OK);
}

TEST(axpy_publish)
{
    uint32_t bad = 0u;
    uint16_t copy[100], before[100];
    size_t   i;
    fill();
    memcpy(y, was, sizeof y);
    CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, y, -0.1f, x, 100, &bad), MPT_OK);
    for (i = 0; i < 100; i++) {
#ifdef __FAST_MATH__            /* there fmaf may become two roundings, here or in the header */
        CHECK(fabsf(y[i] - fmaf(-0.1f, x[i], was[i])) <= ldexpf(fabsf(x[i]) + fabsf(was[i]), -23));
#else
        CHECK_EQ_U_AT(mpti_f32_bits(y[i]), mpti_f32_bits(fmaf(-0.1f, x[i], was[i])), i);
#endif
        CHECK_EQ_U_AT(copy[i], mpt_f16_from_f32(y[i]).bits, i);
    }
    CHECK_EQ_U(mpti_f32_bits(y[100]), mpti_f32_bits(was[100]));
    CHECK_EQ_U(bad, 0);
    memcpy(was, y, sizeof y);
    memcpy(before, copy, sizeof copy);
    ON_EACH_PATH
        for (i = 0; i < 300; i++) {     /* Inf, NaN, an overflow: the row stays, with `bad` or NULL */
            const float keep = x[i / 3], a = i % 3 == 2 ? 16.0f : 1.0f;
            x[i / 3] = mpti_f32_make(i % 3 == 0 ? 0x7f800000u : i % 3 == 1 ? 0x7fc00000u : 0x7f7fffffu);
            bad = 0u;
            CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, y, a, x, 100, &bad), MPT_OK);
            CHECK_EQ_U_AT(bad, 1, i);
            CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, y, a, x, 100, NULL), MPT_OK);
            CHECK(!memcmp(was, y, sizeof y) && !memcmp(before, copy, sizeof copy));
            x[i / 3] = keep;
        }
    last_path = PATHS - 1;
    CHECK_EQ_I(mpt_axpy_publish(NULL, MPT_F64, y, 0.0f, x, 100, NULL), MPT_OK);
    CHECK_EQ_I(mpt_axpy_publish(copy, MPT_E4M3, y, 1.0f, x, 100, NULL), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, NULL, 1.0f, x, 100, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, y, 1.0f, NULL, 100, NULL), MPT_E_ARG);
    for (i = 0; i < PATHS; i++) {
        last_path = (int)i, bad = 0u;
        CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, y, mpti_f32_make(0x7fc00000u), x, 100, NULL), MPT_OK);
        CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, y, INF32, x, i % 2u, &bad), MPT_OK);
        CHECK_EQ_U(bad, 1);
    }
    CHECK_EQ_I(mpt_axpy_publish(y, MPT_F16, y, 1.0f, x, 100, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_publish(x + 99, MPT_F16, y, 1.0f, x, 100, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_publish(copy, MPT_F16, y, 1.0f, y + 99, 100, NULL), MPT_E_ARG);
    CHECK(!memcmp(was, y, sizeof y) && !memcmp(before, copy, sizeof copy));
}

/* Each path against the formulas, element by element, for rows of many lengths, with and without a copy. */
TEST(published_rows_on_every_path)
{
    static float w[400], m[400];
    uint16_t     copy[400];
    size_t       n, i, f;
    ON_EACH_PATH
        for (n = 0; n < 150; n += n < 70 ? 1 : 13)
            for (f = 0; f < 3; f++) {
                const mpt_format format = formats[f];
                void *const      param = f ? (void *)copy : NULL;
                mpt_row_rule     rule;
                mpt_tensor       t;
                uint32_t         bad = 0u;
                memset(&rule, 0, sizeof rule);
                memset(&t, 0, sizeof t);
                fill();
                memcpy(w, was, sizeof w);
                memcpy(m, as_f32, sizeof m);
                memset(copy, 0x55, sizeof copy);
                CHECK_EQ_I(mpt_axpy_publish(param, format, w, -0.3f, x, n, &bad), MPT_OK);
                for (i = 0; i < 400; i++) {
                    const float next = i < n ? fmaf(-0.3f, x[i], was[i]) : was[i];
                    CHECK_EQ_U_AT(mpti_f32_bits(w[i]), mpti_f32_bits(next), i);
                    CHECK_EQ_U_AT(copy[i], f && i < n ? encode(format, next) : 0x5555u, i);
                }
                memcpy(w, was, sizeof w);
                t.n = 200, t.master = w, t.m = m, t.param = param, t.param_format = format;
                rule.a = -0.3f, rule.momentum = 0.9f, rule.factor = 0.7f, rule.nesterov = (uint32_t)n % 2u;
                CHECK_EQ_I(mpt_row_update(&rule, &t, 0, n, x), MPT_OK);
                for (i = 0; i < 400; i++) {
                    const volatile float g = rule.factor * x[i];    /* the product must round to float */
                    const float d = i < n ? fmaf(0.9f, as_f32[i], g) : as_f32[i];
                    const float by = n % 2u ? fmaf(0.9f, d, g) : d;
                    const float next = i < n ? fmaf(-0.3f, by, was[i]) : was[i];
                    CHECK_EQ_U_AT(mpti_f32_bits(m[i]), mpti_f32_bits(d), i);
                    CHECK_EQ_U_AT(mpti_f32_bits(w[i]), mpti_f32_bits(next), i);
                    CHECK_EQ_U_AT(copy[i], f && i < n ? encode(format, next) : 0x5555u, i);
                }
                CHECK_EQ_U(bad + rule.found_inf, 0);
                CHECK_EQ_U(rule.count, 1);
            }
    last_path = PATHS - 1;
}

TEST(axpy_publish_f64)
{
    double   w[100], g[100];
    uint16_t copy[100];
    uint32_t bad = 0u;
    size_t   i, f;
    for (f = 1; f < 3; f++) {
        fill();
        for (i = 0; i < 100; i++)
            w[i] = (double)was[i], g[i] = (double)x[i] * 1e-9;
        CHECK_EQ_I(mpt_axpy_publish_f64(copy, formats[f], w, -0.1, g, 100, &bad), MPT_OK);
        for (i = 0; i < 100; i++) {
            CHECK(fabs(w[i] - ((double)was[i] - 0.1 * g[i])) <= 1e-16);
            CHECK_EQ_U_AT(copy[i], mpt_encode(formats[f], w[i], NULL, NULL), i);
        }
        CHECK_EQ_U(bad, 0);
    }
    g[7] = 1e308;
    for (f = 0; f < 2; f++)
        CHECK_EQ_I(mpt_axpy_publish_f64(copy, MPT_F16, w, 1e9, g, 100, f ? &bad : NULL), MPT_OK);
    CHECK_EQ_U(bad, 1);
    CHECK(fabs(w[7] - ((double)was[7] - 0.1 * (double)x[7] * 1e-9)) <= 1e-16);
    bad = 0u;
    CHECK_EQ_I(mpt_axpy_publish_f64(copy, MPT_F16, w, (double)INF32, g, 0, &bad), MPT_OK);
    CHECK_EQ_U(bad, 1);
    CHECK_EQ_I(mpt_axpy_publish_f64(copy, MPT_E4M3, w, 1.0, g, 100, NULL), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_axpy_publish_f64(copy, MPT_F16, g, 1.0, g, 100, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy_publish_f64(copy, MPT_F16, NULL, 1.0, g, 100, NULL), MPT_E_ARG);
}

/* Two steps under different scales give what one scale gives: m is unscaled, and never divided again. */
TEST(row_momentum_unscales_once)
{
    float        w[2][8], m[2][8], g[8];
    uint16_t     copy[8];
    union { unsigned char bytes[96]; float aligned; } room;
    mpt_tensor   tensor;
    mpt_row_rule rule;
    int          k, t, i;
    memset(&tensor, 0, sizeof tensor);
    memset(&rule, 0, sizeof rule);
    tensor.n = 8, tensor.param = copy, tensor.param_format = MPT_BF16;
    rule.momentum = 0.9f, rule.a = -0.5f;
    for (i = 0; i < 16; i++) w[i / 8][i % 8] = m[i / 8][i % 8] = 0.0f;
    for (k = 0; k < 2; k++)
        for (t = 0; t < 2; t++) {
            const float scale = k ? (t ? 1024.0f : 64.0f) : 1.0f;
            for (i = 0; i < 8; i++) g[i] = (float)(i + 1 + t) * 0.1f * scale;
            tensor.master = w[k], tensor.m = m[k], rule.factor = 1.0f / scale;
            CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, g), MPT_OK);
        }
    for (i = 0; i < 8; i++) {
        const double m1 = (i + 1) * 0.1, m2 = 0.9 * m1 + (i + 2) * 0.1, want = -0.5 * m1 - 0.5 * m2;
        CHECK(fabs((double)w[0][i] - (double)w[1][i]) <= 0.0);
        CHECK(fabs((double)w[0][i] - want) <= 1e-6);
        CHECK_EQ_U(copy[i], mpt_bf16_from_f32(w[1][i]).bits);
    }
    CHECK_EQ_U(rule.found_inf, 0);
    CHECK_EQ_U(rule.count, 4);
    g[3] = mpti_f32_make(0x7f800000u);
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, g), MPT_OK);
    CHECK_EQ_U(rule.found_inf, 1);
    CHECK_EQ_U(rule.count, 4);
    g[3] = 0.0f;
    CHECK_EQ_I(mpt_row_update(NULL, &tensor, 0, 8, g), MPT_E_ARG);
    CHECK_EQ_I(mpt_row_update(&rule, NULL, 0, 8, g), MPT_E_ARG);
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 1, 8, g), MPT_E_ARG);
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 9, 0, g), MPT_E_ARG);
    for (i = -7; i < 8; i++) {              /* a single common element is refused */
        tensor.master = (float *)(void *)room.bytes + 8, tensor.m = m[1];
        CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, tensor.master + i), MPT_E_ARG);
        tensor.master = w[1], tensor.m = (float *)(void *)room.bytes + 8;
        CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, (float *)tensor.m + i), MPT_E_ARG);
        tensor.m = m[1], tensor.param = room.bytes + 32;
        CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, (float *)(void *)room.bytes + (i < 4 ? 8 + i : 1)),
                   MPT_E_ARG);
        tensor.param = copy;
    }
    tensor.storage = MPT_STORE_KAHAN;       /* its extra is missing, whatever else there is */
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, g), MPT_E_ARG);
    tensor.storage = MPT_STORE_MASTER;
    {   /* floats that hold rounded numbers, for hosts that compute in FP32 */
        const mpt_format unrounded = tensor.rounded;
        float            rounded[8];
        tensor.param = rounded, tensor.param_format = MPT_F32, tensor.rounded = MPT_BF16;
        CHECK_EQ_I(mpt_row_update(&rule, &tensor, 2, 5, g), MPT_OK);
        for (i = 2; i < 7; i++)
            CHECK_EQ_U(mpti_f32_bits(rounded[i]), (uint32_t)mpt_bf16_from_f32(w[1][i]).bits << 16);
        tensor.param = copy, tensor.param_format = MPT_BF16, tensor.rounded = unrounded;
        memcpy(w[0], w[1], sizeof w[0]), memcpy(m[0], m[1], sizeof m[0]);
        CHECK_EQ_U(rule.count--, 5);
    }
    tensor.m = NULL;
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, g), MPT_E_ARG);
    tensor.m = m[1], tensor.moments = MPT_MOMENTS_BF16;
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, g), MPT_E_UNSUPPORTED);
    tensor.moments = MPT_MOMENTS_F32, tensor.param_format = MPT_TF32;
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, g), MPT_E_UNSUPPORTED);
    tensor.param_format = MPT_BF16, rule.momentum = 1.0f;
    CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, 8, g), MPT_E_ARG);
    for (i = 0; i < 4 * PATHS; i++) {
        last_path = i / 4;
        rule.momentum = i % 2 ? 0.9f : 0.0f, rule.found_inf = 0u;
        rule.a = i & 2 ? 1.0f : INF32, rule.factor = i & 2 ? mpti_f32_make(0x7fc00000u) : 0.0f;
        CHECK_EQ_I(mpt_row_update(&rule, &tensor, 0, (size_t)(i % 3) * 4u, g), MPT_OK);
        CHECK_EQ_U_AT(rule.found_inf, 1, i);
    }
    CHECK_EQ_U(rule.count, 4);
    CHECK(!memcmp(w[0], w[1], sizeof w[0]) && !memcmp(m[0], m[1], sizeof m[0]));
}

/* Without a master: stochastic rounding against mpt_encode with the documented random bits, the other
 * storages against an mpt_sgd_step. Elements beside the row stay, and so does a row with a bad gradient. */
TEST(rows_without_a_master)
{
    enum { N = 700 };
    static uint16_t codes[3][N], before[N];
    static float    g[N];
    size_t          first, n, i;
    int             storage, f, step;
    ON_EACH_PATH
        for (storage = (int)MPT_STORE_NEAREST; storage < (int)MPT_STORAGE_COUNT; storage++)
            for (f = 0; f < 2; f++)
                for (first = 0; first < 30; first += 13)
                    for (n = 1; n < 600; n = n * 6 + 1) {
                        const mpt_format format = f || storage == (int)MPT_STORE_SPLIT ? MPT_BF16 : MPT_F16;
                        mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_STATIC);
                        mpt_tensor        t, whole;
                        mpt_row_rule      rule;
                        mpt_scaler        scaler;
                        mpt_step          now;
                        mpt_sgd           sgd;
                        memset(&t, 0, sizeof t);
                        memset(&rule, 0, sizeof rule);
                        memset(&now, 0, sizeof now);
                        memset(codes, 0, sizeof codes);
                        memset(g, 0, sizeof g);
                        fill();
                        t.n = N, t.param = codes[0], t.extra = codes[1], t.param_format = format;
                        t.seed = 99u, t.storage = (mpt_storage)storage;
                        whole = t;
                        whole.param = codes[2], whole.extra = before, whole.grad = g;
                        whole.grad_format = MPT_F32;
                        memset(before, 0, sizeof before);
                        for (i = 0; i < N; i++)
                            codes[0][i] = codes[2][i] = (uint16_t)encode(format, was[i]);
                        rule.a = -0.01f, rule.stream = 7u;
                        rule.count = ((uint64_t)1 << 32) - 1u;     /* counts beyond 32 bits */
                        for (step = 0; step < 3; step++) {
                            uint16_t then[N];
                            memcpy(then, codes[0], sizeof then);
                            memcpy(g + first, x + first, n * sizeof *g);
                            CHECK_EQ_I(mpt_row_update(&rule, &t, first, n, x + first), MPT_OK);
                            if (storage == (int)MPT_STORE_STOCHASTIC) {
                                for (i = 0; i < N; i++) {
                                    mpt_opts    o;
                                    const float w = element(then, format, i);
                                    memset(&o, 0, sizeof o);
                                    o.rounding = MPT_RND_STOCHASTIC;
                                    o.random = mpt_philox(99u, 7u, rule.count - 1u, i);
                                    CHECK_EQ_U_AT(codes[0][i], i < first || i >= first + n ? then[i]
                                                  : mpt_encode(format, (double)fmaf(-0.01f, x[i], w), &o,
                                                               NULL), i);
                                }
                                continue;
                            }
                            memset(&sgd, 0, sizeof sgd);
                            sgd.lr = 0.01f;
                            c.init_scale = 1.0f;
                            memset(&now, 0, sizeof now);
                            (void)mpt_scaler_init(&scaler, &c);
                            (void)mpt_scaler_scale(&scaler, 1.0f);
                            (void)mpt_check(&scaler, &now, &whole, 1, NULL);
                            CHECK_EQ_I(mpt_sgd_step(&sgd, &now, &whole, 1), MPT_OK);
                            for (i = first; i < first + n; i++) {
                                CHECK_EQ_U_AT(codes[0][i], codes[2][i], i);
                                CHECK_EQ_U_AT(codes[1][i], before[i], i);
                            }
                        }
                        CHECK_EQ_U(rule.count, ((uint64_t)1 << 32) + 2u);
                        g[first] = mpti_f32_make(0x7f800000u);
                        memcpy(before, codes[0], sizeof before);
                        CHECK_EQ_I(mpt_row_update(&rule, &t, first, n, g + first), MPT_OK);
                        CHECK_EQ_U(rule.found_inf, 1);
                        CHECK(!memcmp(before, codes[0], sizeof before));
                        CHECK_EQ_U(rule.count, ((uint64_t)1 << 32) + 2u);
                    }
    last_path = PATHS - 1;
}

TEST(lint)
{
    static const struct {
        mpt_format format;
        double     value;
        mpt_lint   want;
    } constants[] = {
        {MPT_F16, 1e-8, MPT_LINT_VANISHES}, {MPT_F16, 1e-7, MPT_LINT_SUBNORMAL}, {MPT_F16, 1e-4, MPT_LINT_OK},
        {MPT_F16, 5e-8, MPT_LINT_SUBNORMAL}, {MPT_F16, -5e-8, MPT_LINT_SUBNORMAL},
        {MPT_F16, 2.0, MPT_LINT_OK},
        {MPT_BF16, 1e-8, MPT_LINT_OK}, {MPT_F16, -1e9, MPT_LINT_OVERFLOWS}, {MPT_F16, -65504.0, MPT_LINT_OK},
        {MPT_BF16, -1e9, MPT_LINT_OK}, {MPT_E4M3, 1000.0, MPT_LINT_OVERFLOWS}, {MPT_F16, 0.0, MPT_LINT_OK},
        {MPT_F16, -0.0, MPT_LINT_OK}, {MPT_FORMAT_COUNT, 1.0, MPT_LINT_UNKNOWN},
        {MPT_E8M0, 1.0, MPT_LINT_UNKNOWN},
        {MPT_F16, HUGE_VAL, MPT_LINT_OVERFLOWS}, {MPT_UE4M3, -1.0, MPT_LINT_OVERFLOWS}};
    static const struct {
        mpt_storage storage;
        mpt_format  format;
        double      weight, update;
        mpt_lint    want;
    } updates[] = {
        {MPT_STORE_NEAREST, MPT_F16, 1.5, 1e-4, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_NEAREST, MPT_F16, 1.5, 8e-4, MPT_LINT_UPDATE_FEW},
        {MPT_STORE_NEAREST, MPT_F16, 1.5, -8e-4, MPT_LINT_UPDATE_FEW},
        {MPT_STORE_NEAREST, MPT_F16, 1.5, 0.0009765625, MPT_LINT_OK},      /* one ulp */
        {MPT_STORE_NEAREST, MPT_F16, 1.5, -0.0009765625, MPT_LINT_OK},
        {MPT_STORE_NEAREST, MPT_F16, 1.5, 2e-3, MPT_LINT_OK},
        {MPT_STORE_NEAREST, MPT_F16, 1.5, -0.0, MPT_LINT_OK},
        {MPT_STORE_NEAREST, MPT_F16, 1.0, 4e-4, MPT_LINT_UPDATE_LOST},     /* gaps below 1 are halved */
        {MPT_STORE_NEAREST, MPT_F16, -1.0, 4e-4, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_NEAREST, MPT_F16, 1.0, -5e-4, MPT_LINT_UPDATE_FEW},
        {MPT_STORE_NEAREST, MPT_F16, 0.0, 2e-8, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_NEAREST, MPT_BF16, -0.0, 1e-45, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_NEAREST, MPT_F16, 0.0, -4e-8, MPT_LINT_UPDATE_FEW},
        {MPT_STORE_NEAREST, MPT_F16, 6000.0, 2.0, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_NEAREST, MPT_BF16, 1.5, 2e-3, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_KAHAN, MPT_BF16, 1.5, 2e-3, MPT_LINT_OK},
        {MPT_STORE_KAHAN, MPT_BF16, 0.3, 1e-6, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_KAHAN, MPT_BF16, 0.3, -3e-6, MPT_LINT_UPDATE_FEW},
        {MPT_STORE_KAHAN, MPT_F16, 0.3, 1e-6, MPT_LINT_OK},
        {MPT_STORE_KAHAN, MPT_F16, 0.3, 1e-8, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_SPLIT, MPT_BF16, 0.3, 1e-6, MPT_LINT_OK},
        {MPT_STORE_STOCHASTIC, MPT_BF16, 0.3, 1e-6, MPT_LINT_OK},
        {MPT_STORE_STOCHASTIC, MPT_BF16, 0.3, 1e-8, MPT_LINT_UPDATE_LOST},
        {MPT_STORE_MASTER, MPT_F16, 0.3, -2e-8, MPT_LINT_UPDATE_FEW},
        {MPT_STORE_NEAREST, MPT_F16, 0.3, -1.3e-4, MPT_LINT_UPDATE_FEW},
        {MPT_STORE_NEAREST, MPT_F16, 1.0, -1e6, MPT_LINT_OVERFLOWS},
        {MPT_STORE_NEAREST, MPT_F16, 65504.0, 16.0, MPT_LINT_OVERFLOWS},
        {MPT_STORE_NEAREST, MPT_F16, 70000.0, 1.0, MPT_LINT_OVERFLOWS},
        {MPT_STORE_MASTER, MPT_F16, 70000.0, 1.0, MPT_LINT_OK},
        {MPT_STORE_KAHAN, MPT_F16, 1.0, 60.0, MPT_LINT_OK},
        {MPT_STORAGE_COUNT, MPT_BF16, 1.5, 2e-3, MPT_LINT_UNKNOWN},
        {MPT_STORE_NEAREST, MPT_FORMAT_COUNT, 1.5, 2e-3, MPT_LINT_UNKNOWN},
        {MPT_STORE_NEAREST, MPT_BF16, HUGE_VAL, 2e-3, MPT_LINT_UNKNOWN},
        {MPT_STORE_NEAREST, MPT_BF16, 1.5, HUGE_VAL, MPT_LINT_UNKNOWN}};
    static const struct {
        mpt_format format;
        double     scale, max_abs;
        mpt_lint   want;
    } scales[] = {
        {MPT_F16, 65536.0, 1.0, MPT_LINT_SCALE_HIGH}, {MPT_F16, 65536.0, 0.5, MPT_LINT_OK},
        {MPT_F64, 65536.0, 1.7e308, MPT_LINT_SCALE_HIGH}, {MPT_F16, 65536.0, 0.0, MPT_LINT_OK},
        {MPT_F16, 1000.0, 0.5, MPT_LINT_SCALE_ODD}, {MPT_F16, 3.0, 0.5, MPT_LINT_SCALE_ODD},
        {MPT_F16, 0.0, 0.5, MPT_LINT_UNKNOWN},
        {MPT_F16, HUGE_VAL, 0.5, MPT_LINT_UNKNOWN}, {MPT_F16, 8.0, -1.0, MPT_LINT_UNKNOWN},
        {MPT_F16, 8.0, HUGE_VAL, MPT_LINT_UNKNOWN}, {MPT_FORMAT_COUNT, 8.0, 1.0, MPT_LINT_UNKNOWN}};
    size_t i;
    for (i = 0; i < sizeof constants / sizeof *constants; i++)
        CHECK_EQ_U_AT(mpt_lint_constant(constants[i].format, constants[i].value), constants[i].want, i);
    CHECK_EQ_U(mpt_lint_constant(MPT_F16, mpti_f64_make(UINT64_C(0xfff8000000000001))), MPT_LINT_UNKNOWN);
    CHECK_EQ_U(mpt_lint_constant(MPT_F16, -HUGE_VAL), MPT_LINT_OVERFLOWS);
    for (i = 0; i < (size_t)MPT_FORMAT_COUNT; i++) {        /* all codes of a byte */
        const mpt_format f = (mpt_format)i;
        const int        bits = mpt_format_get(f)->bits;
        uint64_t         code;
        for (code = 0; bits <= 8 && f != MPT_E8M0 && code < (uint64_t)1 << bits; code++) {
            const mpt_class kind = mpt_classify(f, code);
            const int       low = kind == MPT_CLASS_NEG_SUBNORMAL || kind == MPT_CLASS_POS_SUBNORMAL;
            const int       out = kind == MPT_CLASS_NEG_INF || kind == MPT_CLASS_POS_INF;
            if (kind > MPT_CLASS_QUIET_NAN)
                CHECK_EQ_U_AT(mpt_lint_constant(f, mpt_decode(f, code)),
                              low ? MPT_LINT_SUBNORMAL : out ? MPT_LINT_OVERFLOWS : MPT_LINT_OK, code);
        }
    }
    for (i = 0; i < sizeof updates / sizeof *updates; i++)
        CHECK_EQ_U_AT(mpt_lint_update(updates[i].storage, updates[i].format, updates[i].weight,
                                      updates[i].update), updates[i].want, i);
    for (i = 0; i < sizeof scales / sizeof *scales; i++)
        CHECK_EQ_U_AT(mpt_lint_scale(scales[i].format, scales[i].scale, scales[i].max_abs), scales[i].want,
                      i);
    for (i = 0; i < (size_t)MPT_LINT_COUNT + 1; i++)        /* first warnings; an unknown finding is fatal */
        CHECK_EQ_I(i >= (size_t)MPT_LINT_FATAL, i != (size_t)MPT_LINT_OK && i != (size_t)MPT_LINT_SUBNORMAL &&
                                                i != (size_t)MPT_LINT_UPDATE_FEW &&
                                                i != (size_t)MPT_LINT_SCALE_ODD);
    CHECK_EQ_S(mpt_lint_text(MPT_LINT_OK), "nothing found");
    CHECK_EQ_S(mpt_lint_text(MPT_LINT_COUNT), "unknown finding");
}

/* Adam in FP32 takes 16 bytes per parameter, and also 16 with FP16 copies and gradients; with split storage
 * and bf16 moments it takes 10. */
TEST(memory)
{
    const unsigned all = MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD | MPT_NEEDS_M | MPT_NEEDS_V;
    mpt_tensor     t[2];
    mpt_memory     r, kept;
    memset(t, 0, sizeof t);
    t[0].n = 60;
    t[1].n = 40;
    t[0].grad_format = t[1].grad_format = MPT_F32;
    t[0].param_format = t[1].param_format = MPT_F16;
    CHECK_EQ_I(mpt_memory_report(t, 2, all, &r), MPT_OK);
    CHECK(r.parameters == 100 && r.master == 400 && !r.param && !r.extra && r.grad == 400 && r.m == 400 &&
          r.v == 400 && r.total == 1600);
    CHECK(fabs(r.per_parameter - 16.0) <= 0.0);
    t[0].grad_format = t[1].grad_format = MPT_F16;
    CHECK_EQ_I(mpt_memory_report(t, 2, all | MPT_NEEDS_PARAM, &r), MPT_OK);
    CHECK(fabs(r.per_parameter - 16.0) <= 0.0 && r.param == 200);
    t[0].param_format = t[1].param_format = MPT_BF16;
    t[0].storage = t[1].storage = MPT_STORE_SPLIT;
    t[0].moments = t[1].moments = MPT_MOMENTS_BF16;
    CHECK_EQ_I(mpt_memory_report(t, 2, all, &r), MPT_OK);
    CHECK(fabs(r.per_parameter - 10.0) <= 0.0 && r.extra == 200 && r.param == 200 && !r.master);
    kept = r;
    t[1].param_format = MPT_F16;
    CHECK_EQ_I(mpt_memory_report(t, 2, all, &r), MPT_E_UNSUPPORTED);
    t[1].param_format = MPT_BF16, t[1].grad_format = MPT_E4M3;
    CHECK_EQ_I(mpt_memory_report(t, 2, all, &r), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_memory_report(t, 2, MPT_NEEDS_PARAM, &r), MPT_OK);
    CHECK_EQ_I(mpt_memory_report(t, 2, MPT_NEEDS_V | MPT_NEEDS_V_MAX, &r), MPT_OK);
    CHECK(r.v == 400 && r.total == 400 && !r.m && !r.grad && !r.param);
    t[1].storage = MPT_STORE_MASTER, t[1].param_format = MPT_E4M3;      /* checks only what is asked for */
    CHECK_EQ_I(mpt_memory_report(t, 2, MPT_NEEDS_M, &r), MPT_OK);
    CHECK_EQ_I(mpt_memory_report(t, 2, MPT_NEEDS_PARAM, &r), MPT_E_UNSUPPORTED);
    t[1].storage = MPT_STORE_SPLIT, t[1].param_format = MPT_F16;
    CHECK_EQ_I(mpt_memory_report(t, 2, MPT_NEEDS_M, &r), MPT_OK);
    t[1].n = (size_t)-1 / 8u;                   /* the largest possible array of floats */
    CHECK_EQ_I(mpt_memory_report(&t[1], 1, MPT_NEEDS_M, &r), MPT_OK);
    r = kept;
    CHECK_EQ_I(mpt_memory_report(NULL, 2, all, &r), MPT_E_ARG);
    CHECK_EQ_I(mpt_memory_report(t, 2, all, NULL), MPT_E_ARG);
    CHECK(!memcmp(&kept, &r, sizeof r));
    CHECK_EQ_I(mpt_memory_report(NULL, 0, all, &r), MPT_OK);
    CHECK(r.total == 0);
}

/* The bytes of gradients depend on the format of the gradients only. */
TEST(memory_by_gradient_format)
{
    mpt_memory              r;
    mpt_tensor              t;
    size_t                  i, k;
    for (i = 0; i < 3; i++)
        for (k = 0; k < 3; k++) {
            memset(&t, 0, sizeof t);
            t.n = 1000;
            t.param_format = formats[i];
            t.grad_format = formats[k];
            CHECK_EQ_I(mpt_memory_report(&t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_PARAM | MPT_NEEDS_GRAD, &r),
                       MPT_OK);
            CHECK_EQ_U(r.grad, k ? 2000 : 4000);
            CHECK_EQ_U(r.param, i ? 2000 : 4000);
            CHECK_EQ_U(r.total, r.grad + r.param + r.master + r.extra + r.m + r.v);
            CHECK_EQ_U(r.total, r.grad + r.param + 4000);
            CHECK_EQ_I(mpt_memory_report(&t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_M, &r), MPT_OK);
            CHECK_EQ_U(r.total, 8000);
            CHECK_EQ_U(r.m, 4000);
            CHECK_EQ_I(mpt_memory_report(&t, 1, MPT_NEEDS_V, &r), MPT_OK);
            CHECK_EQ_U(r.total, 4000);
            CHECK_EQ_U(r.v, 4000);
        }
}

/* mpt_lint_update reports a lost update exactly where a thousand updates leave the weight as it was. */
TEST(storages_lose_what_the_lint_says)
{
    static const struct { mpt_storage storage; mpt_format format; } kept[] = {
        {MPT_STORE_NEAREST, MPT_BF16}, {MPT_STORE_NEAREST, MPT_F16}, {MPT_STORE_KAHAN, MPT_BF16},
        {MPT_STORE_SPLIT, MPT_BF16}};
    size_t i, k;
    int    e;
    for (i = 0; i < sizeof kept / sizeof *kept; i++)
        for (e = -27; e < -16; e++) {
            const float  step = ldexpf(1.5f, e);        /* no tie; Kahan's rest near its maximum */
            const double weight = 0.25 + 25.55 * mpt_ulp(kept[i].format, 0.25);
            float        begin = (float)weight, end;
            uint16_t     code[1] = {0u}, rest[1] = {0u};
            mpt_row_rule rule;
            mpt_tensor   t;
            memset(&rule, 0, sizeof rule);
            memset(&t, 0, sizeof t);
            rule.a = 1.0f;
            t.n = 1, t.param = code, t.extra = rest;
            t.storage = kept[i].storage, t.param_format = kept[i].format;
            CHECK_EQ_I(mpt_weights_set(&t, &begin), MPT_OK);
            CHECK_EQ_I(mpt_weights_get(&t, &begin), MPT_OK);
            for (k = 0; k < 1000; k++)
                CHECK_EQ_I(mpt_row_update(&rule, &t, 0, 1, &step), MPT_OK);
            CHECK_EQ_I(mpt_weights_get(&t, &end), MPT_OK);
            mt_context(mpt_storage_name(kept[i].storage), mpt_format_get(kept[i].format)->name);
            CHECK_EQ_U_AT(mpt_lint_update(kept[i].storage, kept[i].format, weight, -(double)step) ==
                          MPT_LINT_UPDATE_LOST, begin == end, e);
        }
}

/* found_inf stays set when good rows follow a bad one; it is the caller's to clear. */
TEST(found_inf_stays_set)
{
    float        w[4] = {1.0f, 1.0f, 1.0f, 1.0f}, row[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    double       w64[1] = {1.0}, row64[1];
    uint32_t     bad = 0u, bad64 = 0u;
    mpt_row_rule rule;
    mpt_tensor   t;
    int          good;
    memset(&rule, 0, sizeof rule);
    memset(&t, 0, sizeof t);
    t.n = 4;
    t.master = w;
    rule.a = -1.0f;
    for (good = 0; good < 2; good++) {
        row[0] = good ? 0.0f : mpti_f32_make(0x7fc00000u);
        row64[0] = (double)row[0];
        CHECK_EQ_I(mpt_row_update(&rule, &t, 0, 4, row), MPT_OK);
        CHECK_EQ_I(mpt_axpy_publish(NULL, MPT_F16, w, -1.0f, row, 4, &bad), MPT_OK);
        CHECK_EQ_I(mpt_axpy_publish_f64(NULL, MPT_F16, w64, -1.0, row64, 1, &bad64), MPT_OK);
        CHECK_EQ_U(rule.found_inf & bad & bad64, 1);
    }
}

/* Kahan: what overflows is Inf, not NaN. A row must not lie in the second array of its tensor; leading
 * dimensions are tested even where alpha is 0; formats even where n is 0. */
TEST(rows_and_products_at_their_ends)
{
    float        row[4] = {-1e6f, 0.0f, 0.0f, 0.0f}, w[4], c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    uint16_t     param[4] = {0x7bffu, 0u, 0u, 0u}, extra[8] MPTI_ALIGNED = {0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u};
    mpt_row_rule rule;
    mpt_tensor   t;
    memset(&rule, 0, sizeof rule);
    memset(&t, 0, sizeof t);
    rule.a = -1.0f;
    t.n = 4;
    t.param = param;
    t.extra = extra;
    t.param_format = MPT_F16;
    t.storage = MPT_STORE_KAHAN;
    CHECK_EQ_I(mpt_row_update(&rule, &t, 0, 4, row), MPT_OK);
    CHECK_EQ_I(mpt_weights_get(&t, w), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(w[0]), 0x7f800000u);
    t.param_format = MPT_BF16;
    t.storage = MPT_STORE_SPLIT;
    CHECK_EQ_I(mpt_row_update(&rule, &t, 0, 4, (const float *)(const void *)extra), MPT_E_ARG);
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 2, 0.0f, row, MPT_F32, 1, row,
                        MPT_F32, 2, 1.0f, c, MPT_F32, 2, NULL, 0), MPT_E_ARG);
    CHECK_EQ_I(mpt_axpy(c, MPT_E4M3, 1.0f, row, MPT_F32, 0), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_axpy_strided(c, MPT_F32, 4, 1.0f, row, MPT_E4M3, 4, 0), MPT_E_UNSUPPORTED);
}

TEST(axpy_of_one_number)
{
    static float sum[600];
    const float  row[4] = {2.0f, 7.0f, 7.0f, 7.0f};
    size_t       i;
    memset(sum, 0, sizeof sum);
    CHECK_EQ_I(mpt_axpy_strided(sum, MPT_F32, 4, 3.0f, row, MPT_F32, 0, 600u), MPT_OK);
    for (i = 0; i < 600u; i++)
        CHECK(sum[i] == 6.0f);
}

/* A bad element at any place of a row of any length: nothing is written, in floats and in doubles. */
TEST(rows_with_one_bad_element)
{
    float    w[80], row[80];
    double   w64[80], row64[80];
    uint32_t bad, bad64;
    size_t   n, i, k, changed;
    for (n = 1; n <= 80u; n++)
        for (k = 0; k < n; k++) {
            for (i = 0; i < n; i++) {
                row[i] = i == k ? mpti_f32_make(0x7f800000u) : 1.0f;
                w[i] = 1.0f, w64[i] = 1.0, row64[i] = (double)row[i];
            }
            bad = bad64 = 0u;
            CHECK_EQ_I(mpt_axpy_publish(NULL, MPT_F32, w, 0.5f, row, n, &bad), MPT_OK);
            CHECK_EQ_I(mpt_axpy_publish_f64(NULL, MPT_F32, w64, 0.5, row64, n, &bad64), MPT_OK);
            for (changed = 0, i = 0; i < n; i++)
                changed += w[i] != 1.0f || w64[i] != 1.0;
            CHECK_EQ_U(bad + bad64 + 2u * changed, 2u);
        }
}

/* With beta 0 nothing is added, not even -0. */
TEST(gemm_alpha_of_minus_1)
{
    const float a[32] = {2.0f}, b[32] = {3.0f}, zero[32] = {0.0f};
    float       c[1];
    int         p;
    const int   last = last_path;
    for (p = 0; p <= last; p++) {
        last_path = p;
        CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, 1u, 1u, 32u, -1.0f, a, MPT_F32, 32u, b,
                            MPT_F32, 32u, 0.0f, c, MPT_F32, 1u, NULL, 0u), MPT_OK);
        CHECK(c[0] == -6.0f);
        CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, 1u, 1u, 32u, -1.0f, a, MPT_F32, 32u,
                            zero, MPT_F32, 32u, 0.0f, c, MPT_F32, 1u, NULL, 0u), MPT_OK);
        CHECK_EQ_U(mpti_f32_bits(c[0]), 0u);
    }
    last_path = last;
}

TEST(lint_of_copies_and_kahan)
{
    static float   w[256];                                  /* a whole tile */
    static mpt_f16 copy[256];
    float          one = 1.0f;
    mpt_f16        other = {0u};
    mpt_tensor     t[3];
    size_t         which = 9u;
    w[7] = 1e6f;
    CHECK_EQ_I(mpt_lint_update(MPT_STORE_KAHAN, MPT_F16, ldexp(1.0, -14), ldexp(1.5, -36)),
               MPT_LINT_UPDATE_FEW);                        /* the rest is kept times 2^11 */
    memset(t, 0, sizeof t);
    t[0].n = 256, t[0].master = w, t[0].param = copy, t[0].param_format = MPT_F16;
    CHECK_EQ_I(mpt_publish(t, 1), MPT_OK);
    CHECK_EQ_I(mpt_lint_copies(t, 1, &which), MPT_LINT_OVERFLOWS);  /* the copy of a finite master is Inf */
    CHECK_EQ_U(which, 0u);
    t[1].n = 1, t[1].master = &one, t[1].param = &other, t[1].param_format = MPT_F16;
    t[2] = t[1];
    CHECK_EQ_I(mpt_lint_copies(t, 3, &which), MPT_LINT_STALE);
    CHECK_EQ_U(which, 1u);
    t[0].storage = MPT_STORE_SPLIT, t[0].param_format = MPT_BF16, t[0].extra = &other, t[0].n = 1;
    t[0].master = NULL, copy[0].bits = 0x3f80u;
    CHECK_EQ_I(mpt_lint_copies(t, 1, &which), MPT_LINT_OK);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN_EXACT(rows_on_every_path);
    RUN_EXACT(rows_with_strides);
    RUN_EXACT(nan_stays_nan);
    RUN_EXACT(dot_of_minus_zero);
    RUN_EXACT(published_rows_on_every_path);
    RUN(dot_is_close_to_exact);
    RUN(dot_is_padded_with_zeros);
    RUN(rows_refuse);
    RUN(axpy_publish);
    RUN(axpy_publish_f64);
    RUN(row_momentum_unscales_once);
    RUN_EXACT(rows_without_a_master);
    RUN(lint);
    RUN(memory);
    RUN(memory_by_gradient_format);
    RUN(storages_lose_what_the_lint_says);
    RUN(found_inf_stays_set);
    RUN(rows_and_products_at_their_ends);
    RUN_EXACT(axpy_of_one_number);
    RUN_EXACT(rows_with_one_bad_element);
    RUN_EXACT(gemm_alpha_of_minus_1);
    RUN_EXACT(lint_of_copies_and_kahan);
    return mt_end();
}
