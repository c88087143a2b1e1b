/* test_mpt_optim.c -- tests of the optimizers of mpt.h, each with every storage of weights: against the
 * textbook in double, against one element at a time; skipped steps, invariances, refusals; storages and their
 * rounding; the tensor registry.
 *
 *     cc -O2 -std=c99 -I. tests/test_mpt_optim.c tests/impl.c -o test_mpt_optim -lm && ./test_mpt_optim */
#include "../mpt.h"

#include "impl.h"
#include "test.h"
#include "torch_steps.h"
#include "train.h"

static layer la, lb;

static uint16_t *code(void *array, size_t i) { return (uint16_t *)array + i; }

/* A step record as mpt_check leaves it. */
static mpt_step checked(float factor, float clip)
{
    mpt_step step;
    memset(&step, 0, sizeof step);
    step.grad_factor = factor;
    step.clip_factor = clip;
    step.stage = (uint32_t)MPT_STAGE_CHECKED;
    return step;
}

/* All legal pairs of storage and param_format. */
static const struct form { mpt_storage storage; mpt_format param; } forms[] = {
    {MPT_STORE_MASTER, MPT_F16},     {MPT_STORE_MASTER, MPT_BF16},     {MPT_STORE_MASTER, MPT_F32},
    {MPT_STORE_NEAREST, MPT_F16},    {MPT_STORE_NEAREST, MPT_BF16},    {MPT_STORE_STOCHASTIC, MPT_F16},
    {MPT_STORE_STOCHASTIC, MPT_BF16}, {MPT_STORE_KAHAN, MPT_F16},      {MPT_STORE_KAHAN, MPT_BF16},
    {MPT_STORE_SPLIT, MPT_BF16},
};

/* ---- storages ---- */

static const uint32_t corners[] = {
    0x00000000u, 0x80000000u, 0x00000001u, 0x80000001u, 0x007fffffu, 0x00800000u, 0x33000000u, 0x33000001u,
    0x33800000u, 0x387fc000u, 0x387fffffu, 0x38800000u, 0x3f800000u, 0xbf800001u, 0x477fe000u, 0x477fefffu,
    0x477ff000u, 0x47800000u, 0x7f7f0000u, 0x7f7f7fffu, 0x7f7f8000u, 0x7f7fffffu, 0xff7fffffu, 0x7f800000u,
    0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffc12345u, 0x2f7fffffu, 0x22800000u, 0x3f808000u, 0x3f818000u};

static uint32_t some_float(size_t i)
{
    return i < COUNT(corners) ? corners[i] : (uint32_t)mt_random();
}

TEST(stochastic_equals_the_judge)
{
    const size_t n = mt.long_mode ? 100000000u : 200000u;
    size_t       i;
    mpt_opts     o;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_STOCHASTIC;
    for (i = 0; i < n; i++) {
        const uint32_t u = some_float(i / 2);
        const double   x = mpt_decode(MPT_F32, u);
        o.random = i % 7 == 0 ? 0u : i % 7 == 1 ? 0xffffffffu : (uint32_t)mt_random();
        CHECK_EQ_U_AT(mpti_f16_stochastic(u, o.random), mpt_encode(MPT_F16, x, &o, NULL), u);
        CHECK_EQ_U_AT(mpti_bf16_stochastic(u, o.random), mpt_encode(MPT_BF16, x, &o, NULL), u);
    }
}

TEST(stochastic_never_makes_inf_and_keeps_nan)
{
    CHECK_EQ_U(mpti_f16_stochastic(0x7f7fffffu, 0u), 0x7bffu);
    CHECK_EQ_U(mpti_f16_stochastic(0xc77fffffu, 0u), 0xfbffu);
    CHECK_EQ_U(mpti_bf16_stochastic(0x7f7fffffu, 0u), 0x7f7fu);
    CHECK_EQ_U(mpti_f16_stochastic(0x7f800000u, 0u), 0x7c00u);
    CHECK_EQ_U(mpti_bf16_stochastic(0xff800000u, 0u), 0xff80u);
    CHECK_EQ_U(mpti_bf16_stochastic(0x7f800001u, 0u) & 0x7fffu, 0x7fc0u);
    CHECK_EQ_U(mpti_f16_stochastic(0x7f800001u, 0u) & 0x7fffu, 0x7e00u);
}

TEST(split_holds_every_float)
{
    const uint64_t n = mt.long_mode ? (uint64_t)1 << 32 : 300000u;
    uint64_t       i;
    for (i = 0; i < n; i++) {
        const uint32_t u = mt.long_mode ? (uint32_t)i : some_float((size_t)i), a = u & 0x7fffffffu;
        uint16_t       high, low;
        mpti_split(u, &high, &low);
        if (a > 0x7f800000u) {
            CHECK((high & 0x7fffu) > 0x7f80u && !low);
            CHECK((mpti_unsplit(high, low) & 0x7fffffffu) > 0x7f800000u);
        } else {
            const uint32_t rest = a & 0xffffu, down = u >> 16;
            CHECK_EQ_U_AT(mpti_unsplit(high, low), u, u);
            CHECK_EQ_U_AT(high, rest >= 0x8000u ? down + 1u : down, u);  /* nearest, ties away */
        }
    }
}

/* mpt_weights_get returns what was set: exactly with a master or split; with Kahan to 2^-17 of the weight in
 * bf16 (half an ulp twice: 2^-9 * 2^-9, and a bit), 2^-20 in f16; with the others rounded to nearest. */
TEST(weights_set_and_get)
{
    static float w[1000], back[1000];
    size_t       f, i;
    for (f = 0; f < COUNT(forms); f++) {
        const mpt_format p = forms[f].param;
        layer_make(&la, 1000, forms[f].storage, p, MPT_F32, MPT_MOMENTS_F32);
        for (i = 0; i < 1000; i++)
            w[i] = random_unit() * (i % 2 ? 1.0f : 0.01f);
        CHECK_EQ_I(mpt_weights_set(&la.t, w), MPT_OK);
        CHECK_EQ_I(mpt_weights_get(&la.t, back), MPT_OK);
        for (i = 0; i < 1000; i++) {
            const double off = fabs((double)w[i] - (double)back[i]), size = fabs((double)w[i]);
            const double near = (double)element(la.a.param, p, i);
            switch (forms[f].storage) {
            case MPT_STORE_MASTER:
            case MPT_STORE_SPLIT: CHECK(off <= 0.0); break;
            case MPT_STORE_KAHAN:
                CHECK(off <= size * (p == MPT_F16 ? ldexp(1.0, -20) : ldexp(1.0, -17)) + ldexp(1.0, -36));
                break;
            default: CHECK(fabs((double)back[i] - near) <= 0.0); break;
            }
            CHECK(fabs(near - (double)w[i]) <= size * (p == MPT_BF16 ? ldexp(1.0, -8) : ldexp(1.0, -11)) +
                  ldexp(1.0, -25));
        }
    }
}

/* ---- one element at a time: storage by mpt_encode, formulas of >>M15, norms on a tree of its own ---- */

static float naive_weight(const layer *l, size_t i)
{
    const mpt_format f = l->t.param_format;
    switch (l->t.storage) {
    case MPT_STORE_MASTER: return l->a.master[i];
    case MPT_STORE_SPLIT: {
        const uint32_t high = *((const uint16_t *)l->a.param + i), low = *((const uint16_t *)l->a.extra + i);
        return mpti_f32_make((high << 16) + low - (low >= 0x8000u ? 0x10000u : 0u));
    }
    case MPT_STORE_KAHAN:
        return fmaf(element(l->a.extra, f, i), f == MPT_F16 ? 1.0f / 2048.0f : 1.0f,
                    element(l->a.param, f, i));
    default: return element(l->a.param, f, i);
    }
}

static void naive_weight_set(layer *l, size_t i, float w, uint64_t t)
{
    const mpt_format f = l->t.param_format;
    mpt_opts         o;
    memset(&o, 0, sizeof o);
    switch (l->t.storage) {
    case MPT_STORE_MASTER:
        l->a.master[i] = w;
        element_set(l->a.param, f, i, w);
        return;
    case MPT_STORE_STOCHASTIC:
        o.rounding = MPT_RND_STOCHASTIC;
        o.random = mpt_philox(l->t.seed, 0u, (uint32_t)t, i);
        *code(l->a.param, i) = (uint16_t)mpt_encode(f, (double)w, &o, NULL);
        return;
    case MPT_STORE_KAHAN:
        element_set(l->a.param, f, i, w);
        element_set(l->a.extra, f, i, (w - element(l->a.param, f, i)) * (f == MPT_F16 ? 2048.0f : 1.0f));
        return;
    case MPT_STORE_SPLIT:
        o.rounding = MPT_RND_NEAREST_AWAY;
        *code(l->a.param, i) = (uint16_t)mpt_encode(MPT_BF16, (double)w, &o, NULL);
        *code(l->a.extra, i) = (uint16_t)(mpti_f32_bits(w) - ((uint32_t)*code(l->a.param, i) << 16));
        return;
    default: element_set(l->a.param, f, i, w); return;
    }
}

/* The square of element i goes to lane i mod 2048 of its chunk of 16384; lanes are added in pairs, chunks
 * into slots, slots in pairs. The n elements are x[0 .. period - 1], repeated. */
static double naive_sumsq(const float *x, size_t period, size_t n)
{
    static double lane[2048], slot[256];
    size_t        i, c, k;
    memset(slot, 0, sizeof slot);
    for (c = 0; c * 16384u < n; c++) {
        memset(lane, 0, sizeof lane);
        for (i = c * 16384u; i < n && i < (c + 1) * 16384u; i++)
            lane[i % 2048u] = fma((double)x[i % period], (double)x[i % period], lane[i % 2048u]);
        for (k = 1024; k; k /= 2)
            for (i = 0; i < k; i++)
                lane[i] = lane[2 * i] + lane[2 * i + 1];
        slot[c % 256u] += lane[0];
    }
    for (k = 128; k; k /= 2)
        for (i = 0; i < k; i++)
            slot[i] = slot[2 * i] + slot[2 * i + 1];
    return slot[0];
}

/* Stores a moment; `stream` selects the random bits of m or of v. */
static void naive_moment_set(layer *l, float *array, uint32_t stream, size_t i, float x, uint64_t t)
{
    mpt_opts o;
    memset(&o, 0, sizeof o);
    if (l->t.moments == MPT_MOMENTS_BF16) {
        o.rounding = MPT_RND_STOCHASTIC;
        o.random = mpt_philox(l->t.seed, stream, (uint32_t)t, i);
        *code(array, i) = (uint16_t)mpt_encode(MPT_BF16, (double)x, &o, NULL);
    } else {
        element_set(array, l->t.moments == MPT_MOMENTS_F32 ? MPT_F32 : MPT_BF16, i, x);
    }
}

static void naive_step(const optimizer *o, const mpt_step *step, layer *l)
{
    static float       ws[LAYER_N], rs[LAYER_N];
    const mpt_format   f = l->t.moments == MPT_MOMENTS_F32 ? MPT_F32 : MPT_BF16;
    const mpti_sgd_k   sgd = mpti_sgd_consts(&o->sgd, step);
    const mpti_adamw_k adam = mpti_adamw_consts(&o->adam, step);
    const mpti_lion_k  lion = mpti_lion_consts(&o->lion, step);
    size_t             i;
    for (i = 0; i < l->t.n; i++) {
        const float g = element(l->a.grad, l->t.grad_format, i);
        float       w = naive_weight(l, i), m = element(l->a.m, f, i), v = element(l->a.v, f, i), most = 0.0f;
        mpti_adamw_k l2 = adam;
        switch (o->kind) {
        case SGD:   mpti_sgd_1(g, &w, &m, &sgd); break;
        case ADAMW: mpti_adamw_1(g, &w, &m, &v, &most, &adam); break;
        case ADAM:  mpti_rates_l2(&l2.rates); mpti_adamw_1(g, &w, &m, &v, &most, &l2); break;
        case LAMB:  mpti_adamw_moments_1(g, w, &m, &v, &adam); break;
        case LION:
        default:    mpti_lion_1(g, &w, &m, &lion); break;
        }
        if (o->kind != SGD || o->sgd.momentum > 0.0f)
            naive_moment_set(l, l->a.m, 0x80000000u, i, m, optimizer_t(o));
        if (o->kind != SGD && o->kind != LION)
            naive_moment_set(l, l->a.v, 0x40000000u, i, v, optimizer_t(o));
        ws[i] = w;
        if (o->kind == LAMB)
            rs[i] = mpti_adamw_direction_1(w, element(l->a.m, f, i), sqrtf(element(l->a.v, f, i)), &adam);
        else
            naive_weight_set(l, i, w, optimizer_t(o));
    }
    if (o->kind == LAMB && l->t.n) {
        const float along = mpti_lamb_factor(naive_sumsq(ws, l->t.n, l->t.n),
                                             naive_sumsq(rs, l->t.n, l->t.n), &adam);
        for (i = 0; i < l->t.n; i++)
            naive_weight_set(l, i, fmaf(along, rs[i], ws[i]), o->adam.t);
    }
}

static void against_naive(size_t recipe, const struct form *form, size_t n, mpt_format grad,
                          mpt_moments moments)
{
    optimizer o = optimizer_make(recipe), was;
    int       t;
    mt_context(mpt_storage_name(form->storage), mpt_format_get(form->param)->name);
    layer_make(&la, n, form->storage, form->param, grad, moments);
    layer_copy(&lb, &la);
    for (t = 0; t < 3; t++) {
        mpt_step step = checked(0.01f, t == 2 ? 0.5f : 1.0f), record;
        layer_gradient(&la, 100.0f);
        memcpy(lb.a.grad, la.a.grad, sizeof la.a.grad);
        was = o;
        record = step;
        CHECK_EQ_I(optimizer_step(&o, &step, &la.t, 1), MPT_OK);
        naive_step(&was, &record, &lb);
        CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
    }
    CHECK_EQ_U(optimizer_t(&o), 3);
}

TEST(steps_equal_a_naive_loop)
{
    static const size_t sizes[] = {0, 1, 255, 256, 257, 1000, 2900};
    size_t              i, f, g, k = 0;
    for (i = 0; i < COUNT(recipes); i++)
        for (f = i % mt.every; f < COUNT(forms); f += mt.every, k++) {
            ON_EACH_PATH
                against_naive(i, &forms[f], sizes[k % COUNT(sizes)], formats[k % 3], MPT_MOMENTS_F32);
            last_path = 9;
            against_naive(i, &forms[f], sizes[(k + 3) % COUNT(sizes)], formats[(k + 1) % 3],
                          MPT_MOMENTS_BF16);
            against_naive(i, &forms[f], sizes[(k + 2) % COUNT(sizes)], formats[k % 3],
                          MPT_MOMENTS_BF16_NEAREST);
            for (g = 0; g < 3 * COUNT(sizes) && forms[f].storage == MPT_STORE_MASTER; g++)
                against_naive(i, &forms[f], sizes[g / 3], formats[g % 3], MPT_MOMENTS_F32);
        }
    against_naive(12, &forms[0], LAYER_N, MPT_F16, MPT_MOMENTS_F32);    /* LAMB over two chunks */
    against_naive(13, &forms[9], LAYER_N, MPT_BF16, MPT_MOMENTS_BF16);
}

/* ---- the textbook in double: PyTorch's formulas, bias correction by pow ---- */

enum { BOOK = 64, STEPS = 200 };
typedef struct book { double w[BOOK], m[BOOK], v[BOOK]; } book;

static void book_step(book *b, const double *grad, const struct recipe *r, int t)
{
    const double lr = (double)r->lr, b1 = (double)r->beta1, b2 = (double)r->beta2, wd = (double)r->decay;
    const double fix1 = 1.0 - pow(b1, t), fix2 = 1.0 - pow(b2, t), eps = (double)r->eps;
    double       along[BOOK], ww = 0.0, rr = 0.0;
    int          i;
    for (i = 0; i < BOOK; i++) {
        double g = grad[i], *w = &b->w[i], *m = &b->m[i], *v = &b->v[i];
        if (r->kind == SGD) {
            g += wd * *w;
            *m = b1 * *m + g;
            *w -= lr * (b1 > 0.0 ? (r->nesterov ? g + b1 * *m : *m) : g);
            continue;
        }
        if (r->kind == LION) {
            const double blend = b1 * *m + (1.0 - b1) * g;
            *w -= lr * ((blend > 0.0 ? 1.0 : blend < 0.0 ? -1.0 : 0.0) + wd * *w);
            *m = b2 * *m + (1.0 - b2) * g;
            continue;
        }
        if (r->kind == ADAM) g += wd * *w;
        if (r->kind == ADAMW) *w -= lr * wd * *w;
        *m = b1 * *m + (1.0 - b1) * g;
        *v = b2 * *v + (1.0 - b2) * g * g;
        along[i] = *m / fix1 / (sqrt(*v) / sqrt(fix2) + eps);
        if (r->kind == LAMB) {
            along[i] += wd * *w;
            ww += *w * *w;
            rr += along[i] * along[i];
        } else {
            *w -= lr * along[i];
        }
    }
    if (r->kind == LAMB)
        for (i = 0; i < BOOK; i++)
            b->w[i] -= lr * sqrt(ww) / sqrt(rr) * along[i];
}

/* Each step rounds the weight (by at most 2^-24 of it) and moves it by lr times a value with a few rounding
 * errors. All numbers are of order 1, and errors have both signs: 200 steps stay within 200 * 2^-25. A wrong
 * formula is off by 1e-4 and more. Kahan rounds the weight to 2^-17 (bf16) or 2^-20 (f16) of itself in each
 * step instead. Lion's sign could differ where its blend is within rounding of 0: here it never is. */
static void against_book(size_t recipe, const struct form *form, mpt_format grad, double ulp)
{
    static book  b;
    static float back[BOOK];
    optimizer    o = optimizer_make(recipe);
    double       g[BOOK], worst = 0.0;
    int          t, i;
    mt_context(mpt_storage_name(form->storage), mpt_format_get(form->param)->name);
    layer_make(&la, BOOK, form->storage, form->param, grad, MPT_MOMENTS_F32);
    memset(&b, 0, sizeof b);
    CHECK_EQ_I(mpt_weights_get(&la.t, back), MPT_OK);
    for (i = 0; i < BOOK; i++)
        b.w[i] = (double)back[i];
    for (t = 1; t <= STEPS; t++) {
        mpt_step step = checked(1.0f / 512.0f, 1.0f);
        layer_gradient(&la, 512.0f);
        for (i = 0; i < BOOK; i++)
            g[i] = (double)element(la.a.grad, grad, (size_t)i) / 512.0;
        book_step(&b, g, &recipes[recipe], t);
        CHECK_EQ_I(optimizer_step(&o, &step, &la.t, 1), MPT_OK);
    }
    CHECK_EQ_I(mpt_weights_get(&la.t, back), MPT_OK);
    for (i = 0; i < BOOK; i++) {
        const double off = fabs((double)back[i] - b.w[i]) / (1.0 + fabs(b.w[i]));
        worst = off > worst ? off : worst;
    }
    CHECK(worst <= (double)STEPS * ulp / 2.0);
}

TEST(steps_follow_the_textbook)
{
    size_t i, f;
    for (i = 0; i < COUNT(recipes); i++)
        for (f = i % 3u % mt.every; f < 3; f += mt.every) {
            against_book(i, &forms[0], formats[f], ldexp(1.0, -24));
            against_book(i, &forms[7], formats[f], ldexp(1.0, -20));
            against_book(i, &forms[8], formats[f], ldexp(1.0, -17));
            against_book(i, &forms[9], formats[f], ldexp(1.0, -24));
        }
}

/* Weights of 1/2 to 1 under the same random gradients, with weight decay and without: their difference over
 * the nominal lr * wd * w per step. lr * wd is about half an ulp of 1 or far below; gradients and a varying
 * rate move the weights by several ulps, so that errors have both signs, and their mean is within 1e-2 of the
 * nominal. At constant rates w * FP32(1 - lr * wd) would take 1.19, 1.59, 0 and 0 of it. */
TEST(decay_is_nominal_at_any_rate)
{
    enum { ELEMENTS = 4096, TIMES = 500 };
    static const float rates[] = {1e-5f, 5e-6f, 2e-6f, 1e-6f};
    static float       w[ELEMENTS];
    const size_t       n = ELEMENTS / mt.every;
    size_t             r, i;
    int                which, t;
    for (which = 0; which < 2; which++)
        for (r = 0; r < COUNT(rates); r += mt.every) {
            mpt_adamw     adamw[2];
            mpt_adafactor adafactor[2];
            double        taken = 0.0, nominal = 0.0, sum = 0.0;
            layer_make(&la, n, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
            for (i = 0; i < n; i++) {
                w[i] = 0.75f + 0.25f * random_unit();
                sum += (double)w[i];
            }
            CHECK_EQ_I(mpt_weights_set(&la.t, w), MPT_OK);
            layer_copy(&lb, &la);
            for (i = 0; i < 2; i++) {
                adamw[i] = mpt_adamw_defaults();
                adafactor[i] = mpt_adafactor_defaults();
                adamw[i].weight_decay = adafactor[i].weight_decay = i ? 0.0f : 0.01f;
            }
            for (t = 0; t < TIMES; t++) {
                const float rate = rates[r] * (1.0f + 0.5f * random_unit());
                nominal += (double)rate * 0.01 * sum;
                layer_gradient(&la, 1.0f);
                memcpy(lb.a.grad, la.a.grad, sizeof la.a.grad);
                for (i = 0; i < 2; i++) {
                    layer *const l = i ? &lb : &la;
                    mpt_step     step = checked(1.0f, 1.0f);
                    adamw[i].lr = adafactor[i].lr = rate;
                    CHECK_EQ_I(which ? mpt_adafactor_step(&adafactor[i], &step, &l->t, 1)
                                     : mpt_adamw_step(&adamw[i], &step, &l->t, 1), MPT_OK);
                }
            }
            for (i = 0; i < n; i++)
                taken += (double)lb.a.master[i] - (double)la.a.master[i];
            mt_context(which ? "Adafactor" : "AdamW", NULL);
            CHECK(fabs(taken / nominal - 1.0) <= 0.01);
        }
}

/* Lion's steps have one size, so their rounding errors have one sign: here each result is the float nearest
 * to the exact one, except that the sum in brackets is rounded too, to 2^-24 of the update. */
TEST(lion_decays_with_one_rounding)
{
    int i;
    for (i = 0; i < 20000; i++) {
        const float  rate = (float)ldexp(1.0 + fabs((double)random_unit()), -20 + i % 12);
        mpt_lion     o = {0.0f, 0.9f, 0.99f, 0.01f, 0u, 0u, 0u};
        mpt_step     step = checked(1.0f, 1.0f);
        const float  was = 0.75f + 0.25f * random_unit(), g = random_unit();
        const double want = (double)was - (double)rate * ((g > 0.0f ? 1.0 : -1.0) + 0.01 * (double)was);
        mpti_lion_k  k;
        float        w = was, m = 0.0f;
        o.lr = rate;
        k = mpti_lion_consts(&o, &step);
        mpti_lion_1(g, &w, &m, &k);
        CHECK(fabs((double)w - want) <= ldexp(1.0, want < 1.0 ? -25 : -24) + (double)rate * ldexp(1.0, -23));
    }
}

/* After 100 steps with g = 1 and 4900 with 1e-3, the mean of v over 1000 elements is near the recurrence, in
 * double here, for every beta2: an element wanders by 8% (beta2 0.999), the mean by 0.3%. Rounded to nearest,
 * v stands still from beta2 0.998 on, and mpt_lint_update reports this. */
TEST(moments_in_bf16_follow)
{
    static const float betas[] = {0.9f, 0.95f, 0.99f, 0.998f, 0.999f, 0.9999f};
    const size_t       n = 1000u / mt.every;
    size_t             b, i;
    int                nearest, t;
    for (b = 0; b < COUNT(betas); b += 1u + mt.every / 8u)
        for (nearest = 0; nearest < 2; nearest++) {
            mpt_adamw    o = mpt_adamw_defaults();
            double       want = 0.0, mean = 0.0;
            const double fresh = 1.0 - (double)betas[b];
            o.beta2 = betas[b];
            layer_make(&la, n, MPT_STORE_MASTER, MPT_F16, MPT_F32,
                       nearest ? MPT_MOMENTS_BF16_NEAREST : MPT_MOMENTS_BF16);
            for (t = 0; t < 5000; t++) {
                const float g = t < 100 ? 1.0f : 1e-3f;
                mpt_step    step = checked(1.0f, 1.0f);
                for (i = 0; i < n && (t == 0 || t == 100); i++)
                    la.a.grad[i] = g;
                want += fresh * ((double)g * (double)g - want);
                CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_OK);
            }
            for (i = 0; i < n; i++)
                mean += (double)element(la.a.v, MPT_BF16, i) / (double)n;
            if (!nearest)
                CHECK(fabs(mean / want - 1.0) <= 0.03);
            else if (betas[b] > 0.9985f)
                CHECK(mean > 0.01 && mean > 1.5 * want);
            CHECK_EQ_I(mpt_lint_update(nearest ? MPT_STORE_NEAREST : MPT_STORE_STOCHASTIC, MPT_BF16, 1.5,
                                       1.5 * fresh) == MPT_LINT_UPDATE_LOST, nearest && betas[b] > 0.997f);
        }
}

/* Arrays may begin anywhere in a cache line, and be larger than the cache: the results have the same bits. */
TEST(steps_wherever_arrays_begin)
{
    static const size_t      some[] = {4, 6, 14};
    static const mpt_storage storages[] = {MPT_STORE_MASTER, MPT_STORE_SPLIT, MPT_STORE_STOCHASTIC};
    static float             room[sizeof(arrays) / sizeof(float) + 16];
    const size_t             n = 5056;      /* with fewer, the first tile is whole; the last one has 192 */
    size_t                   k, j, off;
    for (k = 0; k < COUNT(some); k++)
        for (j = 0; j < COUNT(storages); j++) {
            arrays *moved;
            layer_make(&la, n, storages[j], MPT_BF16, k ? MPT_F32 : MPT_F16, MPT_MOMENTS_F32);
            layer_gradient(&la, 1.0f);
            lb = la;
            for (off = 0; off <= 16; off += 4 + k) {
                optimizer  o = optimizer_make(some[k]), p = o;
                mpt_step   step = checked(0.5f, 1.0f), again = step;
                mpt_tensor t = lb.t;
                la.a = lb.a;
                moved = (arrays *)(void *)memcpy(room + off, &lb.a, sizeof lb.a);
                t.master = t.master ? moved->master : NULL;
                t.param = moved->param, t.grad = moved->grad, t.m = moved->m, t.v = moved->v;
                t.extra = t.extra ? moved->extra : NULL;
                CHECK_EQ_I(optimizer_step(&o, &step, &la.t, 1), MPT_OK);
                around_bytes = 0;
                CHECK_EQ_I(optimizer_step(&p, &again, &t, 1), MPT_OK);
                around_bytes = (size_t)32 << 20;
                CHECK(!memcmp(&la.a, moved, sizeof la.a));
            }
        }
}

/* One step on many equal elements rounds m, v and w stochastically to one of two neighbours. Their means are
 * the exact numbers, and the roundings of the three are independent: within 6 standard deviations. */
TEST(moments_in_bf16_are_unbiased)
{
    enum { ELEMENTS = 16384, TRIALS = 20 };
    int    trial, k;
    size_t i;
    for (trial = 0; trial < TRIALS; trial++) {
        mpt_adamw          o = mpt_adamw_defaults();
        mpt_step           step = checked(1.0f, 1.0f);
        const mpti_adamw_k consts = mpti_adamw_consts(&o, &step);
        const float        g = random_unit();
        float              x[4] = {0.75f, 0.0f, 0.0f, 0.0f};        /* w, m, v, v_max */
        double             p[3], up[3] = {0.0, 0.0, 0.0}, pair[3] = {0.0, 0.0, 0.0};
        mpti_adamw_1(g, &x[0], &x[1], &x[2], &x[3], &consts);
        layer_make(&la, ELEMENTS, MPT_STORE_STOCHASTIC, MPT_BF16, MPT_F32, MPT_MOMENTS_BF16);
        for (i = 0; i < ELEMENTS; i++) {
            element_set(la.a.param, MPT_BF16, i, 0.75f);
            la.a.grad[i] = g;
        }
        CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_OK);
        for (k = 0; k < 3; k++)
            p[k] = (double)(mpti_f32_bits(x[k]) & 0xffffu) / 65536.0;
        for (i = 0; i < ELEMENTS; i++) {
            const uint16_t got[3] = {*code(la.a.param, i), *code(la.a.m, i), *code(la.a.v, i)};
            double         off[3];
            for (k = 0; k < 3; k++) {
                const uint32_t above = got[k] - (mpti_f32_bits(x[k]) >> 16);
                CHECK(above <= 1u);
                up[k] += above;
                off[k] = above - p[k];
            }
            for (k = 0; k < 3; k++)
                pair[k] += off[k] * off[(k + 1) % 3];
        }
        for (k = 0; k < 3; k++) {
            const double var = p[k] * (1.0 - p[k]), next = p[(k + 1) % 3] * (1.0 - p[(k + 1) % 3]);
            CHECK(fabs(up[k] - p[k] * (double)ELEMENTS) <= 6.0 * sqrt(var * (double)ELEMENTS) + 1e-9);
            CHECK(fabs(pair[k]) <= 6.0 * sqrt(var * next * (double)ELEMENTS) + 1.0);
        }
    }
}

/* Updates of 2^-13 to a weight of 1: nearest loses all of them, the other storages none. Over 1000 elements
 * and 64 steps the stochastic mean is within 6 standard deviations, sqrt(64 p (1-p) / 1000) ulps. */
TEST(small_updates_survive)
{
    size_t f, i;
    int    t;
    for (f = 3; f < COUNT(forms); f++) {
        static float w[1000], g[1000];
        mpt_sgd      o = {1.0f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
        const double ulp = forms[f].param == MPT_F16 ? ldexp(1.0, -11) : ldexp(1.0, -8);  /* below 1 */
        const double p = ldexp(1.0, -13) / ulp, want = 64.0 * ldexp(1.0, -13);
        double       sum = 0.0;
        layer_make(&la, 1000, forms[f].storage, forms[f].param, MPT_F32, MPT_MOMENTS_F32);
        for (i = 0; i < 1000; i++) {
            w[i] = 1.0f;
            g[i] = 1.0f / 8192.0f;
        }
        CHECK_EQ_I(mpt_weights_set(&la.t, w), MPT_OK);
        memcpy(la.a.grad, g, sizeof g);
        for (t = 0; t < 64; t++) {
            mpt_step step = checked(1.0f, 1.0f);
            CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_OK);
        }
        CHECK_EQ_I(mpt_weights_get(&la.t, w), MPT_OK);
        for (i = 0; i < 1000; i++)
            sum += (1.0 - (double)w[i]) / 1000.0;
        if (forms[f].storage == MPT_STORE_NEAREST)
            CHECK(sum <= 0.0);
        else if (forms[f].storage == MPT_STORE_STOCHASTIC)
            CHECK(fabs(sum - want) <= 6.0 * ulp * sqrt(64.0 * p * (1.0 - p) / 1000.0) && sum > 0.0);
        else
            CHECK(fabs(sum - want) <= want * 1e-3);
    }
}

/* The random bits depend on the element, the tensor's place in the list, the step and the seed, not on the
 * order of work: a repetition gets the same bits; another step, seed or place gets others. */
TEST(random_bits_have_an_address)
{
    static uint16_t first[600], was[600];
    int             which;
    for (which = 0; which < 5; which++) {
        const uint32_t place = which == 4;
        size_t         i;
        mpt_sgd    o = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
        mpt_step   step = checked(1.0f, 1.0f);
        mpt_tensor list[2];
        mt.random_state = 9u;
        layer_make(&la, 600, MPT_STORE_STOCHASTIC, MPT_BF16, MPT_F32, MPT_MOMENTS_F32);
        layer_gradient(&la, 1.0f);
        memset(list, 0, sizeof list);
        memcpy(was, la.a.param, sizeof was);
        list[0] = la.t;
        if (which == 2) o.t = 1u;
        if (which == 3) list[0].seed++;
        if (which == 4) {
            list[1] = la.t;
            list[0].n = 0;
        }
        CHECK_EQ_I(mpt_sgd_step(&o, &step, list, which == 4 ? 2 : 1), MPT_OK);
        for (i = 0; i < 600; i++) {
            const float    w = fmaf(-0.01f, la.a.grad[i], mpti_f32_make((uint32_t)was[i] << 16));
            const uint32_t random = mpt_philox(list[place].seed, place, o.t - 1u, i);
            CHECK_EQ_U_AT(*code(la.a.param, i), mpti_bf16_stochastic(mpti_f32_bits(w), random), i);
        }
        if (which == 0)
            memcpy(first, la.a.param, sizeof first);
        else
            CHECK(!memcmp(first, la.a.param, sizeof first) == (which == 1));
    }
}

/* ---- skipped steps and invariances ---- */

TEST(skip_changes_nothing)
{
    static const uint32_t bad[] = {BITS_INF, 0xff800000u, BITS_QNAN, 0xffc00000u};
    size_t                i, f;
    int                   moments;
    for (i = 0; i < COUNT(recipes); i++)
        for (f = 0; f < COUNT(forms); f++)
            for (moments = 0; moments < (int)MPT_MOMENTS_COUNT; moments++) {
                const mpt_format grad = formats[(i + f + (size_t)moments) % 3u];
                optimizer        o = optimizer_make(i), was;
                mpt_scaler       s = scaler_from(dynamic(64.0f, 2.0, 0.25, 100));
                mpt_step         step = step_zero();
                layer_make(&la, 700, forms[f].storage, forms[f].param, grad, (mpt_moments)moments);
                layer_gradient(&la, 64.0f);
                train_step(&o, &s, &step, &la, 1.0f);
                CHECK_EQ_U(optimizer_t(&o), 1);
                layer_gradient(&la, 64.0f);
                element_set(la.a.grad, grad, 699u * (f % 2u), mpti_f32_make(bad[i % COUNT(bad)]));
                memcpy(&lb.a, &la.a, sizeof la.a);
                memcpy(&was, &o, sizeof o);
                train_step(&o, &s, &step, &la, f % 3u ? 1.0f : 0.0f);
                CHECK_EQ_U(step.stage, MPT_STAGE_STEPPED);
                CHECK(!memcmp(&lb.a, &la.a, sizeof la.a) && !memcmp(&was, &o, sizeof o));
                CHECK(step.found_inf && s.scale == 16.0f && s.skipped == 1 && s.updates == 2);
                CHECK(!s.good_steps);
                CHECK_EQ_I(optimizer_step(&o, &step, &la.t, 1), MPT_E_ORDER);
            }
}

/* The gradients * 2^scale at that loss scale; and the loss * 2^loss, compensated: SGD without weight decay by
 * lr * 2^-loss; AdamW, LAMB, and Adam without weight decay by eps * 2^loss; Lion by nothing. Then all steps
 * compute the same numbers times powers of two. */
TEST(invariance_of_the_loss)
{
    size_t i, f, k;
    int    t;
    for (i = 0; i < COUNT(recipes); i++)
        for (f = 0; f < COUNT(forms); f++) {
            const int   scale = (int)(i + f) % 9 * 6 - 24, loss = (int)f * 4 - 20;
            const float factor = pow2f(loss - scale);
            optimizer   o1 = optimizer_make(i), o2;
            o1.sgd.weight_decay = 0.0f;
            if (o1.kind == ADAM)
                o1.adam.weight_decay = 0.0f;
            o2 = o1;
            o2.sgd.lr *= pow2f(-loss);
            o2.adam.eps *= pow2f(loss);
            layer_make(&la, 300, forms[f].storage, forms[f].param, MPT_F32, MPT_MOMENTS_F32);
            layer_copy(&lb, &la);
            for (t = 0; t < 4; t++) {
                mpt_step s1 = checked(1.0f, 1.0f), s2 = checked(factor, 1.0f);
                layer_gradient(&la, 1.0f);
                for (k = 0; k < 300; k++)
                    lb.a.grad[k] = la.a.grad[k] * pow2f(scale);
                CHECK_EQ_I(optimizer_step(&o1, &s1, &la.t, 1), MPT_OK);
                CHECK_EQ_I(optimizer_step(&o2, &s2, &lb.t, 1), MPT_OK);
            }
            CHECK(!memcmp(la.a.master, lb.a.master, sizeof la.a.master));
            CHECK(!memcmp(la.a.param, lb.a.param, sizeof la.a.param));
            CHECK(!memcmp(la.a.extra, lb.a.extra, sizeof la.a.extra));
            for (k = 0; k < 300; k++) {
                CHECK_EQ_U_AT(mpti_f32_bits(lb.a.m[k]), mpti_f32_bits(la.a.m[k] * pow2f(loss)), k);
                CHECK_EQ_U_AT(mpti_f32_bits(lb.a.v[k]), mpti_f32_bits(la.a.v[k] * pow2f(2 * loss)), k);
            }
        }
}

/* ---- groups, options ---- */

/* Five tensors in a list, each in a parameter group of its own, against an optimizer with the group's rates
 * for each one alone. The factors are powers of two, so that the rates are exact and the bits equal. */
TEST(groups_are_optimizers_of_their_own)
{
    enum { ELEMENTS = 300, GROUPS = 5 };
    static const struct { float lr, decay; unsigned none; float lr_is, decay_is; } groups[GROUPS] = {
        {0.0f, 0.0f, 0u, 1.0f, 1.0f}, {0.5f, 0.0f, 0u, 0.5f, 1.0f}, {0.0f, 4.0f, 0u, 1.0f, 4.0f},
        {2.0f, 0.25f, 0u, 2.0f, 0.25f}, {0.125f, 8.0f, 1u, 0.125f, 0.0f}};
    static float a[GROUPS][6][ELEMENTS], b[GROUPS][6][ELEMENTS];
    size_t       i, k, e;
    int          t, storage;
    for (i = 0; i <= COUNT(recipes); i++)               /* the last one: Adafactor */
        for (storage = 0; storage < 2; storage++) {
            const int     flat = i == COUNT(recipes);
            optimizer     all = optimizer_make(flat ? 0 : i), own[GROUPS];
            mpt_adafactor fall = mpt_adafactor_defaults(), fown[GROUPS];
            mpt_tensor    list[GROUPS], alone;
            fall.weight_decay = 0.1f;
            memset(a, 0, sizeof a);
            for (k = 0; k < GROUPS; k++) {
                layer_make(&la, ELEMENTS, storage ? MPT_STORE_KAHAN : MPT_STORE_MASTER, MPT_F16, MPT_F32,
                           MPT_MOMENTS_BF16);
                memcpy(a[k][0], la.a.master, sizeof a[k][0]);
                memcpy(a[k][1], la.a.param, sizeof a[k][1]);
                list[k] = la.t;
                list[k].lr_times = groups[k].lr;
                list[k].decay_times = groups[k].decay;
                list[k].no_decay = groups[k].none;
                own[k] = all;
                fown[k] = fall;
                own[k].sgd.lr *= groups[k].lr_is;
                own[k].adam.lr *= groups[k].lr_is;
                own[k].lion.lr *= groups[k].lr_is;
                fown[k].lr *= groups[k].lr_is;
                own[k].sgd.weight_decay *= groups[k].decay_is;
                own[k].adam.weight_decay *= groups[k].decay_is;
                own[k].lion.weight_decay *= groups[k].decay_is;
                fown[k].weight_decay *= groups[k].decay_is;
            }
            memcpy(b, a, sizeof b);
            for (t = 0; t < 4; t++) {
                mpt_step step = checked(1.0f, 1.0f);
                for (k = 0; k < GROUPS; k++) {
                    for (e = 0; e < ELEMENTS; e++)
                        a[k][2][e] = b[k][2][e] = random_unit();
                    list[k].master = storage ? NULL : a[k][0];
                    list[k].param = a[k][1];
                    list[k].grad = a[k][2];
                    list[k].m = a[k][3];
                    list[k].v = a[k][4];
                    list[k].extra = storage ? a[k][5] : NULL;
                }
                CHECK_EQ_I(flat ? mpt_adafactor_step(&fall, &step, list, GROUPS)
                                : optimizer_step(&all, &step, list, GROUPS), MPT_OK);
                for (k = 0; k < GROUPS; k++) {
                    mpt_tensor before[GROUPS];          /* the same place: the same random bits */
                    memset(before, 0, sizeof before);
                    alone = list[k];
                    alone.lr_times = alone.decay_times = 0.0f;
                    alone.no_decay = 0u;
                    alone.master = storage ? NULL : b[k][0];
                    alone.param = b[k][1];
                    alone.grad = b[k][2];
                    alone.m = b[k][3];
                    alone.v = b[k][4];
                    alone.extra = storage ? b[k][5] : NULL;
                    before[k] = alone;
                    step = checked(1.0f, 1.0f);
                    CHECK_EQ_I(flat ? mpt_adafactor_step(&fown[k], &step, before, k + 1)
                                    : optimizer_step(&own[k], &step, before, k + 1), MPT_OK);
                    CHECK(!memcmp(a[k], b[k], sizeof a[k]));
                }
            }
        }
}

/* Against PyTorch's optimizers in double, on the same three tensors, 3 x 4, 5 and 2 x 3 x 4, each in a group:
 * 12 steps in FP32 stay within 2e-6; a wrong formula or factor is off by 1e-4 and more. */
TEST(groups_and_options_as_pytorch_has_them)
{
    enum { TENSORS = 3 };
    static const size_t sizes[TENSORS] = {12, 5, 24}, columns[TENSORS] = {4, 0, 4}, rows[TENSORS] = {0, 0, 3};
    static const struct torch_case {
        const char    *name;
        int            kind;                        /* LAMB stands for Adafactor */
        float          lr, momentum, dampening;
        unsigned       nesterov, options;
    } cases[] = {                                   /* in the order of torch_steps.h */
        {"sgd", SGD, 0.05f, 0.9f, 0.0f, 0u, 0u},
        {"sgd, Nesterov", SGD, 0.05f, 0.9f, 0.0f, 1u, 0u},
        {"sgd, dampening", SGD, 0.05f, 0.9f, 0.5f, 0u, 0u},
        {"sgd, maximize", SGD, 0.05f, 0.5f, 0.0f, 0u, MPT_STEP_MAXIMIZE},
        {"adamw", ADAMW, 0.01f, 0.0f, 0.0f, 0u, 0u},
        {"adamw, maximize", ADAMW, 0.01f, 0.0f, 0.0f, 0u, MPT_STEP_MAXIMIZE},
        {"adam", ADAM, 0.01f, 0.0f, 0.0f, 0u, 0u},
        {"adam, amsgrad", ADAM, 0.01f, 0.0f, 0.0f, 0u, MPT_STEP_AMSGRAD},
        {"adamw, amsgrad", ADAMW, 0.01f, 0.0f, 0.0f, 0u, MPT_STEP_AMSGRAD},
        {"adafactor", LAMB, 0.02f, 0.0f, 0.0f, 0u, 0u},
        {"adafactor, maximize", LAMB, 0.02f, 0.0f, 0.0f, 0u, MPT_STEP_MAXIMIZE},
    };
    size_t c, k, i, at;
    int    t;
    for (c = 0; c < COUNT(cases); c++) {
        const struct torch_case *const x = &cases[c];
        static float  w[TENSORS][24], g[TENSORS][24], m[TENSORS][24], v[TENSORS][24], v_max[TENSORS][24];
        mpt_tensor    list[TENSORS];
        mpt_adamw     adam = mpt_adamw_defaults();
        mpt_adafactor adafactor = mpt_adafactor_defaults();
        mpt_sgd       sgd = {0.0f, 0.0f, 0.1f, 0u, 0.0f, 0u, 0u};
        mt_context(x->name, NULL);
        sgd.lr = adam.lr = adafactor.lr = x->lr;
        sgd.momentum = x->momentum;
        sgd.dampening = x->dampening;
        sgd.nesterov = x->nesterov;
        adam.weight_decay = adafactor.weight_decay = 0.1f;
        adam.beta2 = x->options & MPT_STEP_AMSGRAD ? 0.5f : 0.999f;
        sgd.options = adam.options = adafactor.options = x->options;
        memset(m, 0, sizeof m);
        memset(v, 0, sizeof v);
        memset(v_max, 0, sizeof v_max);
        memset(list, 0, sizeof list);
        for (k = 0; k < TENSORS; k++) {
            list[k].n = sizes[k];
            list[k].master = w[k];
            list[k].grad = g[k];
            list[k].grad_format = MPT_F32;
            list[k].m = m[k];
            list[k].v = v[k];
            list[k].v_max = v_max[k];
            list[k].columns = x->kind == LAMB ? columns[k] : 0;
            list[k].rows = x->kind == LAMB ? rows[k] : 0;
            for (i = 0; i < sizes[k]; i++)
                w[k][i] = (float)((i * 29 + k * 11) % 32 + 1) / 32.0f;
        }
        list[1].lr_times = 0.5f;
        list[1].no_decay = 1u;
        list[2].lr_times = 3.0f;
        list[2].decay_times = 0.25f;
        for (t = 0; t < 12; t++) {
            mpt_step step = checked(1.0f, 1.0f);
            for (k = 0; k < TENSORS; k++)
                for (i = 0; i < sizes[k]; i++)
                    g[k][i] = (float)((int)((i * 37 + k * 59 + (size_t)t * 101) % 64) - 31) / 32.0f;
            CHECK_EQ_I(x->kind == SGD     ? mpt_sgd_step(&sgd, &step, list, TENSORS)
                       : x->kind == ADAMW ? mpt_adamw_step(&adam, &step, list, TENSORS)
                       : x->kind == ADAM  ? mpt_adam_step(&adam, &step, list, TENSORS)
                                          : mpt_adafactor_step(&adafactor, &step, list, TENSORS), MPT_OK);
        }
        for (k = 0, at = 0; k < TENSORS; k++)
            for (i = 0; i < sizes[k]; i++, at++)
                CHECK(fabs((double)w[k][i] - torch_steps[c][at]) <= 2e-6);
    }
}

/* For a host that computes in FP32: its copy holds floats, each with the value of a 16-bit copy. */
TEST(copies_of_floats_may_be_rounded)
{
    static float w[777];
    size_t       f, i;
    for (f = 1; f < COUNT(formats); f++) {
        mpt_sgd  o = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
        mpt_step step = checked(1.0f, 1.0f);
        int      way;
        for (way = 0; way < 4; way++) {     /* set; step; publish; set from the copy itself */
            layer_make(&la, 777, MPT_STORE_MASTER, MPT_F32, MPT_F32, MPT_MOMENTS_F32);
            layer_gradient(&la, 1.0f);
            la.t.rounded = formats[f];
            memcpy(w, la.a.grad, sizeof w);
            if (way == 0) CHECK_EQ_I(mpt_weights_set(&la.t, w), MPT_OK);
            if (way == 1) CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_OK);
            if (way == 2) CHECK_EQ_I(mpt_publish(&la.t, 1), MPT_OK);
            if (way == 3) memcpy(la.a.param, w, sizeof w);
            if (way == 3) CHECK_EQ_I(mpt_weights_set(&la.t, la.a.param), MPT_OK);
            if (way == 3) CHECK(!memcmp(la.a.master, w, sizeof w));
            for (i = 0; i < 777; i++) {
                element_set(lb.a.param, formats[f], i, la.a.master[i]);
                CHECK_EQ_U_AT(mpti_f32_bits(la.a.param[i]),
                              mpti_f32_bits(element(lb.a.param, formats[f], i)), i);
            }
        }
        step = checked(1.0f, 1.0f);
        la.t.rounded = MPT_E4M3;
        CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_E_UNSUPPORTED);
        la.t.rounded = MPT_F32;         /* only formats of 16 bits, which the rounding goes through */
        CHECK_EQ_I(mpt_publish(&la.t, 1), MPT_E_UNSUPPORTED);
        la.t.rounded = formats[f];
        la.t.param_format = MPT_BF16;
        CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_E_UNSUPPORTED);
        CHECK_EQ_I(mpt_publish(&la.t, 1), MPT_E_UNSUPPORTED);
    }
}

/* One step of any optimizer with options; the last kind is Adafactor. */
static mpt_status step_with(size_t kind, uint32_t options, uint64_t taken, mpt_step *step,
                            const mpt_tensor *t, size_t count)
{
    optimizer     o = optimizer_make(kind == COUNT(recipes) ? 0 : kind);
    mpt_adafactor adafactor = mpt_adafactor_defaults();
    o.sgd.options = o.adam.options = o.lion.options = adafactor.options = options;
    o.sgd.t = o.adam.t = o.lion.t = adafactor.t = taken;
    return kind == COUNT(recipes) ? mpt_adafactor_step(&adafactor, step, t, count)
                                  : optimizer_step(&o, step, t, count);
}

/* MPT_STEP_ZERO_GRADS: gradients are 0 after a step, taken or skipped; all else is as without it. Gradients
 * that two tensors share are refused, in the first step and later. mpt_grads_zero does the same. */
TEST(gradients_become_zero)
{
    size_t i, f;
    for (i = 0; i <= COUNT(recipes); i++)
        for (f = 0; f < COUNT(formats); f++) {
            mpt_step    one = checked(0.01f, 1.0f), two = one, skipped = one;
            mpt_tensor  pair[2];
            const size_t bytes = 600 * bytes_of(formats[f]);
            layer_make(&la, 600, MPT_STORE_MASTER, MPT_F16, formats[f], MPT_MOMENTS_F32);
            layer_gradient(&la, 100.0f);
            memset((char *)la.a.grad + bytes, 0x5a, 8);
            layer_copy(&lb, &la);
            CHECK_EQ_I(step_with(i, 0u, 0, &one, &la.t, 1), MPT_OK);
            CHECK_EQ_I(step_with(i, MPT_STEP_ZERO_GRADS, 0, &two, &lb.t, 1), MPT_OK);
            memset(la.a.grad, 0, bytes);
            CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
            memset(lb.a.grad, 0x11, bytes);
            skipped.found_inf = 1u;
            CHECK_EQ_I(step_with(i, MPT_STEP_ZERO_GRADS, 1, &skipped, &lb.t, 1), MPT_OK);
            CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
            pair[0] = la.t;
            pair[1] = lb.t;
            pair[1].grad = (char *)la.a.grad + bytes - 1;
            two = checked(0.01f, 1.0f);
            CHECK_EQ_I(step_with(i, MPT_STEP_ZERO_GRADS, 0, &two, pair, 2), MPT_E_ARG);
            CHECK_EQ_I(step_with(i, MPT_STEP_ZERO_GRADS, 1, &two, pair, 2), MPT_E_ARG);
            CHECK_EQ_I(step_with(i, ~0u, 1, &two, &la.t, 1), MPT_E_ARG);
            CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
            memset(lb.a.grad, 0x11, bytes);
            CHECK_EQ_I(mpt_grads_zero(&lb.t, 1), MPT_OK);
            CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
            lb.t.grad = NULL;
            CHECK_EQ_I(mpt_grads_zero(&lb.t, 1), MPT_E_ARG);
            CHECK_EQ_I(mpt_grads_zero(NULL, 1), MPT_E_ARG);
            CHECK_EQ_I(mpt_grads_zero(NULL, 0), MPT_OK);
        }
}

/* AMSGrad with FP32 and bf16 moments, over whole tiles and a part of one, against one element at a time.
 * Refused without v_max, if v_max overlaps, and by optimizers without v or with passes of their own. */
TEST(amsgrad)
{
    static float w[300], m[300], v[300], most[300], room[300];
    size_t       i;
    int          t, moments;
    for (moments = 0; moments < 3; moments += 2) {
        const mpt_format f = moments ? MPT_BF16 : MPT_F32;
        mpt_adamw        o = mpt_adamw_defaults();
        o.beta2 = 0.5f;
        o.options = MPT_STEP_AMSGRAD;
        layer_make(&la, 300, MPT_STORE_MASTER, MPT_F16, MPT_F32, (mpt_moments)moments);
        memset(room, 0, sizeof room);
        memset(m, 0, sizeof m);
        memset(v, 0, sizeof v);
        memset(most, 0, sizeof most);
        memcpy(w, la.a.master, sizeof w);
        la.t.v_max = room;
        for (t = 0; t < 6; t++) {
            mpt_step           step = checked(1.0f, 1.0f);
            const mpti_adamw_k k = mpti_adamw_consts(&o, &step);
            layer_gradient(&la, t % 3 ? 0.1f : 1.0f);
            for (i = 0; i < 300; i++) {
                mpti_adamw_1(la.a.grad[i], &w[i], &m[i], &v[i], &most[i], &k);
                m[i] = moments ? mpt_f32_from_bf16(mpt_bf16_from_f32(m[i])) : m[i];
                v[i] = moments ? mpt_f32_from_bf16(mpt_bf16_from_f32(v[i])) : v[i];
                most[i] = moments ? mpt_f32_from_bf16(mpt_bf16_from_f32(most[i])) : most[i];
            }
            CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_OK);
            for (i = 0; i < 300; i++) {
                CHECK_EQ_U_AT(mpti_f32_bits(la.a.master[i]), mpti_f32_bits(w[i]), i);
                CHECK_EQ_U_AT(mpti_f32_bits(element(room, f, i)), mpti_f32_bits(most[i]), i);
            }
        }
    }
    for (t = 0; t < 5; t++) {
        mpt_adamw o = mpt_adamw_defaults();
        mpt_sgd   sgd = {0.1f, 0.0f, 0.0f, 0u, 0.0f, MPT_STEP_AMSGRAD, 0u};
        mpt_lion  lion = mpt_lion_defaults();
        mpt_step  step = checked(1.0f, 1.0f);
        o.options = lion.options = MPT_STEP_AMSGRAD;
        la.t.v_max = t == 0 ? NULL : t == 1 ? la.a.v : room;
        CHECK_EQ_I(t < 2 ? mpt_adam_step(&o, &step, &la.t, 1)
                   : t == 2 ? mpt_lamb_step(&o, &step, &la.t, 1)
                   : t == 3 ? mpt_sgd_step(&sgd, &step, &la.t, 1) : mpt_lion_step(&lion, &step, &la.t, 1),
                   MPT_E_ARG);
    }
}

/* Two optimizers share a check: the first leaves the step open, the second closes it; each counts it. */
TEST(a_step_may_stay_open)
{
    mpt_adamw  adamw = mpt_adamw_defaults();
    mpt_sgd    sgd = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_step   step = checked(1.0f, 1.0f);
    mpt_tensor before;
    adamw.options = MPT_STEP_STAYS_OPEN;
    layer_make(&la, 10, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    layer_make(&lb, 10, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    before = la.t;
    CHECK_EQ_I(mpt_adamw_step(&adamw, &step, &before, 1), MPT_OK);
    CHECK_EQ_U(step.stage, MPT_STAGE_CHECKED);
    CHECK_EQ_I(mpt_sgd_step(&sgd, &step, &lb.t, 1), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&adamw, &step, &before, 1), MPT_E_ORDER);
    CHECK(adamw.t == 1u && sgd.t == 1u && step.stage == (uint32_t)(MPT_STAGE_STEPPED | MPT_STAGE_REFUSED));
    step = checked(1.0f, 1.0f);
    step.found_inf = 1u;
    CHECK_EQ_I(mpt_adamw_step(&adamw, &step, &before, 1), MPT_OK);
    CHECK(adamw.t == 1u && step.stage == (uint32_t)MPT_STAGE_CHECKED);
    step = checked(1.0f, 1.0f);         /* a tensor may be frozen after the check, not resized */
    step.sizes = mpti_sizes_filter(&before, 1, 0u);
    before.n = 0;
    CHECK_EQ_I(mpt_adamw_step(&adamw, &step, &before, 1), MPT_OK);
    before.n = 9;
    CHECK_EQ_I(mpt_adamw_step(&adamw, &step, &before, 1), MPT_E_ORDER);
}

/* A step with MPT_STEP_MAXIMIZE equals one without it on the negated gradient. */
TEST(maximize_turns_the_gradient)
{
    size_t i, k;
    for (i = 0; i <= COUNT(recipes); i++) {
        mpt_step one = checked(0.01f, 1.0f), two = one;
        layer_make(&la, 600, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
        layer_gradient(&la, 100.0f);
        layer_copy(&lb, &la);
        for (k = 0; k < 600; k++)
            lb.a.grad[k] = -la.a.grad[k];
        CHECK_EQ_I(step_with(i, MPT_STEP_MAXIMIZE, 0, &one, &la.t, 1), MPT_OK);
        CHECK_EQ_I(step_with(i, 0u, 0, &two, &lb.t, 1), MPT_OK);
        CHECK(!memcmp(la.a.master, lb.a.master, sizeof la.a.master));
        CHECK(!memcmp(la.a.m, lb.a.m, sizeof la.a.m));
    }
}

/* ---- refusals ---- */

#define REFUSED(call, status)                                       \
    do {                                                            \
        memcpy(&lb.a, &la.a, sizeof la.a);                          \
        CHECK_EQ_I(call, status);                                   \
        CHECK(!memcmp(&lb.a, &la.a, sizeof la.a));                  \
    } while (0)

/* Tensor t has one fault, which mpt_tensors_validate describes with a text that contains `why`. */
static void refused_tensor(mpt_tensor t, mpt_status status, const char *why)
{
    size_t    i;
    mpt_fault fault;
    for (i = 0; i < COUNT(one_of_each); i++) {
        optimizer o = optimizer_make(one_of_each[i]), was = o;
        mpt_step  step = checked(1.0f, 1.0f);
        REFUSED(optimizer_step(&o, &step, &t, 1), status);
        CHECK(!memcmp(&was, &o, sizeof o));
        CHECK_EQ_U(step.stage, MPT_STAGE_CHECKED | MPT_STAGE_REFUSED);
    }
    CHECK_EQ_I(mpt_tensors_validate(&t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD | MPT_NEEDS_M, &fault), status);
    CHECK(fault.why && strstr(fault.why, why));
}

TEST(bad_tensors)
{
    size_t     f;
    mpt_tensor t;
    for (f = 0; f < COUNT(forms); f++) {
        layer_make(&la, 10, forms[f].storage, forms[f].param, MPT_F32, MPT_MOMENTS_F32);
        t = la.t; t.grad = NULL; refused_tensor(t, MPT_E_ARG, "grad");
        t = la.t; t.m = NULL; refused_tensor(t, MPT_E_ARG, "m is NULL");
        t = la.t; t.grad_format = MPT_E4M3; refused_tensor(t, MPT_E_UNSUPPORTED, "grad_format");
        t = la.t; t.param_format = MPT_E4M3; refused_tensor(t, MPT_E_UNSUPPORTED, "param_format");
        t = la.t; t.storage = MPT_STORAGE_COUNT; refused_tensor(t, MPT_E_UNSUPPORTED, "storage");
        t = la.t; t.moments = MPT_MOMENTS_COUNT; refused_tensor(t, MPT_E_UNSUPPORTED, "moments");
        t = la.t; t.lr_times = -1.0f; refused_tensor(t, MPT_E_ARG, "lr_times");
        t = la.t; t.decay_times = mpti_f32_make(0x7fc00000u); refused_tensor(t, MPT_E_ARG, "lr_times");
        t = la.t; t.m = la.a.grad; refused_tensor(t, MPT_E_ARG, "overlap");
        t = la.t; t.m = (char *)la.a.param + 9 * 2 + 1; refused_tensor(t, MPT_E_ARG, "overlap");
        if (forms[f].storage == MPT_STORE_MASTER) {
            t = la.t; t.master = NULL; refused_tensor(t, MPT_E_ARG, "master");
            t = la.t; t.master = (float *)t.m + 9; refused_tensor(t, MPT_E_ARG, "overlap");
        } else {
            t = la.t; t.param = NULL; refused_tensor(t, MPT_E_ARG, "param");
            t = la.t; t.param_format = MPT_F32; refused_tensor(t, MPT_E_UNSUPPORTED, "without a master");
            t = la.t; t.param_format = MPT_F64; refused_tensor(t, MPT_E_UNSUPPORTED, "without a master");
            CHECK_EQ_I(mpt_publish(&la.t, 1), MPT_OK);      /* no master: nothing to publish */
        }
        if (la.t.extra) {
            t = la.t; t.extra = NULL; refused_tensor(t, MPT_E_ARG, "extra");
            t = la.t; t.extra = t.param; refused_tensor(t, MPT_E_ARG, "overlap");
        }
        if (forms[f].storage == MPT_STORE_SPLIT) {
            t = la.t; t.param_format = MPT_F16; refused_tensor(t, MPT_E_UNSUPPORTED, "split");
        }
    }
    t = la.t;
    t.n = 0;
    t.param = t.grad = t.m = t.v = t.extra = NULL;
    CHECK_EQ_I(mpt_tensors_validate(&t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD, NULL), MPT_OK);
    CHECK_EQ_I(mpt_weights_set(NULL, la.a.grad), MPT_E_ARG);
    CHECK_EQ_I(mpt_weights_get(NULL, la.a.grad), MPT_E_ARG);
    CHECK_EQ_I(mpt_weights_set(&la.t, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_weights_get(&la.t, NULL), MPT_E_ARG);
    CHECK_EQ_S(mpt_storage_name(MPT_STORE_KAHAN), "Kahan");
    CHECK_EQ_S(mpt_storage_name(MPT_STORAGE_COUNT), "unknown storage");
}

TEST(bad_hyperparameters)
{
    /* the first five are no rates, all are no decay factors */
    static const uint32_t bad[] = {0xbf800000u, 0x80800000u, BITS_INF,   0xff800000u,
                                   BITS_QNAN,   0x3f800000u, 0x40000000u};
    size_t                i, k, r;
    layer_make(&la, 10, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    for (i = 0; i < COUNT(one_of_each); i++)
        for (k = 0; k < 5; k++)
            for (r = 0; r < (k == 1 || k == 2 ? COUNT(bad) : k == 4 ? 6u : 5u); r++) {
                optimizer   o = optimizer_make(one_of_each[i]);
                mpt_step    step = checked(1.0f, 1.0f);
                const float x = k == 4 && r == 5 ? 0.0f : mpti_f32_make(bad[r]);
                if ((o.kind == SGD && (k == 2 || k == 4)) || (o.kind == LION && k == 4))
                    continue;
                if (k == 0) o.sgd.lr = o.adam.lr = o.lion.lr = x;
                if (k == 1) o.sgd.momentum = o.adam.beta1 = o.lion.beta1 = x;
                if (k == 2) o.adam.beta2 = o.lion.beta2 = x;
                if (k == 3) o.sgd.weight_decay = o.adam.weight_decay = o.lion.weight_decay = x;
                if (k == 4) o.adam.eps = x;
                REFUSED(optimizer_step(&o, &step, &la.t, 1), MPT_E_ARG);
                CHECK(optimizer_t(&o) == 0);
                CHECK_EQ_U(step.stage, MPT_STAGE_CHECKED | MPT_STAGE_REFUSED);
            }
    {
        mpt_step step = checked(1.0f, 1.0f), fresh;
        mpt_lion lion = mpt_lion_defaults();
        mpt_lamb lamb = mpt_lamb_defaults();
        mpt_adam adam = mpt_adam_defaults();
        mpt_sgd  sgd[] = {{0.1f, 0.0f, 0.0f, 1u, 0.0f, 0u, 0u},     /* Nesterov needs momentum ... */
                          {0.1f, 0.9f, 0.0f, 1u, 0.5f, 0u, 0u},     /* ... and no dampening */
                          {0.1f, 0.9f, 0.0f, 0u, 1.5f, 0u, 0u},
                          {0.1f, 0.9f, 0.0f, 0u, -0.5f, 0u, 0u}};
        memset(&fresh, 0, sizeof fresh);
        for (i = 0; i < COUNT(sgd); i++)
            REFUSED(mpt_sgd_step(&sgd[i], &step, &la.t, 1), MPT_E_ARG);
        REFUSED(mpt_lion_step(NULL, &step, &la.t, 1), MPT_E_ARG);
        REFUSED(mpt_lamb_step(NULL, &step, &la.t, 1), MPT_E_ARG);
        REFUSED(mpt_adam_step(NULL, &step, &la.t, 1), MPT_E_ARG);
        REFUSED(mpt_lion_step(&lion, NULL, &la.t, 1), MPT_E_ARG);
        REFUSED(mpt_lamb_step(&lamb, &step, NULL, 1), MPT_E_ARG);
        REFUSED(mpt_lion_step(&lion, &fresh, &la.t, 1), MPT_E_ORDER);
        REFUSED(mpt_lamb_step(&lamb, &fresh, &la.t, 1), MPT_E_ORDER);
        REFUSED(mpt_adam_step(&adam, &fresh, &la.t, 1), MPT_E_ORDER);
        CHECK_EQ_I(mpt_lion_step(&lion, &step, NULL, 0), MPT_OK);
        CHECK(lion.t == 1u && adam.t == 0u && lamb.t == 0u);
    }
}

/* The default values that the documentation states. */
TEST(defaults)
{
    static const mpt_adamw     adamw = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 0u, 0u};
    static const mpt_adam      adam = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.0f, 0u, 0u};
    static const mpt_lamb      lamb = {1e-3f, 0.9f, 0.999f, 1e-6f, 0.01f, 0u, 0u};
    static const mpt_lion      lion = {1e-4f, 0.9f, 0.99f, 0.0f, 0u, 0u, 0u};
    static const mpt_adafactor adafactor = {1e-2f, 1.1920928955078125e-7f, 1e-3f, 1.0f, 0.0f, 0u, 0u};
    const mpt_adamw            a = mpt_adamw_defaults(), b = mpt_adam_defaults(), c = mpt_lamb_defaults();
    const mpt_lion             d = mpt_lion_defaults();
    const mpt_adafactor        e = mpt_adafactor_defaults();
    CHECK(!memcmp(&a, &adamw, sizeof a) && !memcmp(&b, &adam, sizeof b) && !memcmp(&c, &lamb, sizeof c));
    CHECK(!memcmp(&d, &lion, sizeof d) && !memcmp(&e, &adafactor, sizeof e));
}

/* ---- Adafactor ---- */

/* PyTorch's Adafactor in double, on rows * columns elements; columns 0: on a vector. v is the state. */
static void book_adafactor(double *w, double *v, const double *g, const mpt_adafactor *o, size_t n,
                           size_t columns, int t)
{
    const double fresh = pow(t, -0.8), eps1 = (double)o->eps1, lr = (double)o->lr;
    const size_t rows = columns ? n / columns : 0;
    double       ww = 0.0, uu = 0.0, mean = 0.0, alpha, size;
    static double u[LAYER_N];
    size_t       i, j;
    for (i = 0; i < rows; i++) {
        double sum = 0.0;
        for (j = 0; j < columns; j++)
            sum += g[i * columns + j] * g[i * columns + j];
        v[i] += fresh * (sum / (double)columns - v[i]);
        mean += v[i] / (double)rows;
    }
    for (j = 0; j < columns; j++) {
        double sum = 0.0;
        for (i = 0; i < rows; i++)
            sum += g[i * columns + j] * g[i * columns + j];
        v[rows + j] += fresh * (sum / (double)rows - v[rows + j]);
    }
    for (i = 0; i < n; i++) {
        double x;
        if (!columns)
            v[i] += fresh * (g[i] * g[i] - v[i]);
        x = columns ? v[i / columns] * v[rows + i % columns] / fmax(mean, eps1) : v[i];
        u[i] = g[i] / sqrt(fmax(x, eps1 * eps1));
        ww += w[i] * w[i];
        uu += u[i] * u[i];
    }
    alpha = fmax((double)o->eps2, sqrt(ww / (double)n)) * fmin(lr, 1.0 / sqrt(t));
    size = fmax(1.0, sqrt(uu / (double)n) / (double)o->clip);
    for (i = 0; i < n; i++)
        w[i] = w[i] * (1.0 - lr * (double)o->weight_decay) - alpha / size * u[i];
}

static mpt_adafactor adafactor_make(int variant)
{
    mpt_adafactor o = mpt_adafactor_defaults();
    if (variant == 1) o.weight_decay = 0.1f;
    if (variant == 2) o.eps1 = 0.5f, o.eps2 = 0.9f, o.clip = 0.25f;     /* all three limits apply */
    if (variant == 3) o.lr = 0.5f;
    return o;
}

/* The bound of against_book and a dozen roundings more, which matter where steps are few. */
static void adafactor_against_book(const struct form *form, size_t n, size_t columns, mpt_format grad,
                                   int variant, int steps, double ulp)
{
    static double w[LAYER_N], v[LAYER_N], g[LAYER_N];
    static float  back[LAYER_N];
    const size_t  factors = columns ? n / columns + columns : n;
    mpt_adafactor o = adafactor_make(variant);
    double        worst = 0.0;
    size_t        i;
    int           t;
    mt_context(mpt_storage_name(form->storage), mpt_format_get(form->param)->name);
    layer_make(&la, n, form->storage, form->param, grad, MPT_MOMENTS_F32);
    la.t.columns = columns;
    la.t.m = NULL;
    memset(v, 0, sizeof v);
    la.t.v = calloc(factors, sizeof *la.a.v);       /* sanitizers see a read beyond it */
    CHECK_EQ_I(mpt_weights_get(&la.t, back), MPT_OK);
    for (i = 0; i < n; i++)
        w[i] = (double)back[i];
    for (t = 1; t <= steps; t++) {
        mpt_step step = checked(1.0f / 512.0f, 1.0f);
        layer_gradient(&la, t % 9 ? 512.0f : 4.0f);
        for (i = 0; i < n; i++)
            g[i] = (double)element(la.a.grad, grad, i) / 512.0;
        book_adafactor(w, v, g, &o, n, columns, t);
        CHECK_EQ_I(mpt_adafactor_step(&o, &step, &la.t, 1), MPT_OK);
        CHECK_EQ_U(o.t, t);
    }
    CHECK_EQ_I(mpt_weights_get(&la.t, back), MPT_OK);
    for (i = 0; i < n; i++) {
        const double off = fabs((double)back[i] - w[i]) / (1.0 + fabs(w[i]));
        worst = off > worst ? off : worst;
    }
    CHECK(worst <= (double)(steps + 12) * ulp / 2.0);
    for (i = 0; i < factors; i++)
        CHECK(fabs((double)((float *)la.t.v)[i] - v[i]) <= 1e-5 * v[i]);
    free(la.t.v);
}

TEST(adafactor_follows_the_textbook)
{
    static const struct { size_t n, columns; } shapes[] = {
        {64, 0}, {64, 8}, {64, 64}, {64, 1}, {60, 4}, {1, 1}, {7 * 300, 300}, {300 * 3, 3}};
    size_t s;
    int    variant;
    for (s = 0; s < COUNT(shapes); s++)
        for (variant = 0; variant < 4; variant++) {
            const size_t     n = shapes[s].n, c = shapes[s].columns;
            const int        steps = n > 100 ? 4 : 20;
            const mpt_format grad = formats[(s + (size_t)variant) % 3u];
            adafactor_against_book(&forms[0], n, c, grad, variant, steps, ldexp(1.0, -24));
            adafactor_against_book(&forms[7], n, c, grad, variant, steps, ldexp(1.0, -20));
            adafactor_against_book(&forms[8], n, c, grad, variant, steps, ldexp(1.0, -17));
            adafactor_against_book(&forms[9], n, c, grad, variant, steps, ldexp(1.0, -24));
        }
    adafactor_against_book(&forms[0], 17000, 125, MPT_F16, 0, 5, ldexp(1.0, -24));   /* over two chunks */
    adafactor_against_book(&forms[0], 17000, 0, MPT_F16, 0, 5, ldexp(1.0, -24));
}

/* A new square has the weight FP32(t^-0.8), from the first step on; at two of these steps only Newton's last
 * iteration decides which float that is. eps1 is the smallest allowed. */
TEST(adafactor_forgets_by_the_step)
{
    static const uint32_t steps[] = {1, 2, 3, 32, 1000, 35014, 1050165, 1u << 30};
    size_t                i;
    for (i = 0; i < COUNT(steps); i++) {
        mpt_adafactor o = mpt_adafactor_defaults();
        mpt_step      step = checked(1.0f, 1.0f);
        layer_make(&la, 1, MPT_STORE_MASTER, MPT_F32, MPT_F32, MPT_MOMENTS_F32);
        element_set(la.a.grad, MPT_F32, 0, 1.0f);
        la.t.m = NULL;
        o.eps1 = (float)ldexp(1.0, -60);
        o.t = steps[i] - 1u;
        CHECK_EQ_I(mpt_adafactor_step(&o, &step, &la.t, 1), MPT_OK);
        CHECK_EQ_U_AT(mpti_f32_bits(*(float *)la.t.v), mpti_f32_bits((float)pow(steps[i], -0.8)), steps[i]);
    }
}

/* Adafactor gives the same bits on every path, and at another loss scale if eps1 is scaled with it; also with
 * bf16 second moments of a vector. A skipped step changes nothing. */
TEST(adafactor_bits)
{
    static const size_t columns[] = {0, 1, 25, 300};
    size_t              c, f;
    int                 t;
    for (c = 0; c < COUNT(columns); c++)
        for (f = 0; f < COUNT(forms); f++)
            ON_EACH_PATH {
                mpt_adafactor o1 = adafactor_make(1), o2 = adafactor_make(1), was;
                int           path = last_path;
                o2.eps1 /= 4096.0f;
                layer_make(&la, 300, forms[f].storage, forms[f].param, MPT_F32,
                           c ? MPT_MOMENTS_F32 : MPT_MOMENTS_BF16);
                la.t.columns = columns[c];
                layer_copy(&lb, &la);
                lb.t.columns = columns[c];
                for (t = 0; t < 3; t++) {
                    mpt_step s1 = checked(1.0f, 1.0f), s2 = checked(1.0f / 4096.0f, 1.0f);
                    layer_gradient(&la, 1.0f);
                    memcpy(lb.a.grad, la.a.grad, sizeof la.a.grad);
                    CHECK_EQ_I(mpt_adafactor_step(&o1, &s1, &la.t, 1), MPT_OK);
                    last_path = 0;
                    CHECK_EQ_I(mpt_adafactor_step(&o2, &s2, &lb.t, 1), MPT_OK);
                    last_path = path;
                    CHECK_EQ_U(s1.stage, MPT_STAGE_STEPPED);
                }
                CHECK(!memcmp(la.a.master, lb.a.master, sizeof la.a.master));
                CHECK(!memcmp(la.a.param, lb.a.param, sizeof la.a.param));
                CHECK(!memcmp(la.a.extra, lb.a.extra, sizeof la.a.extra));
                memcpy(&lb.a, &la.a, sizeof la.a);
                was = o1;
                {
                    mpt_step bad = checked(1.0f, 1.0f);
                    bad.found_inf = 1u;
                    CHECK_EQ_I(mpt_adafactor_step(&o1, &bad, &la.t, 1), MPT_OK);
                    CHECK(!memcmp(&lb.a, &la.a, sizeof la.a) && !memcmp(&was, &o1, sizeof o1));
                    CHECK_EQ_I(mpt_adafactor_step(&o1, &bad, &la.t, 1), MPT_E_ORDER);
                }
            }
    last_path = 9;
}

#define ADAFACTOR_REFUSED(field, value, status)                                 \
    do {                                                                        \
        mpt_adafactor o_ = adafactor_make(0);                                   \
        mpt_step      step_ = checked(1.0f, 1.0f);                              \
        o_.field = value;                                                       \
        memcpy(&lb.a, &la.a, sizeof la.a);                                      \
        CHECK_EQ_I(mpt_adafactor_step(&o_, &step_, &la.t, 1), status);          \
        CHECK(!memcmp(&lb.a, &la.a, sizeof la.a) && !o_.t);                     \
    } while (0)

TEST(adafactor_refuses)
{
    const float nan = mpti_f32_make(0x7fc00000u), inf = mpti_f32_make(0x7f800000u);
    const float rates[] = {-0.1f, nan, inf};
    mpt_memory  memory;
    mpt_adam    adam = mpt_adam_defaults();
    mpt_step    step = checked(1.0f, 1.0f);
    size_t      i;
    layer_make(&la, 60, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    la.t.columns = 12;
    for (i = 0; i < COUNT(rates); i++) {
        ADAFACTOR_REFUSED(lr, rates[i], MPT_E_ARG);
        ADAFACTOR_REFUSED(eps1, rates[i], MPT_E_ARG);
        ADAFACTOR_REFUSED(eps2, rates[i], MPT_E_ARG);
        ADAFACTOR_REFUSED(clip, rates[i], MPT_E_ARG);
        ADAFACTOR_REFUSED(weight_decay, rates[i], MPT_E_ARG);
    }
    ADAFACTOR_REFUSED(eps1, 0.0f, MPT_E_ARG);
    ADAFACTOR_REFUSED(eps1, mpti_f32_make(0x217fffffu), MPT_E_ARG);            /* below 2^-60 */
    ADAFACTOR_REFUSED(clip, 0.0f, MPT_E_ARG);
    la.t.columns = 7;
    ADAFACTOR_REFUSED(options, 0u, MPT_E_ARG);
    la.t.columns = 61;
    ADAFACTOR_REFUSED(options, 0u, MPT_E_ARG);
    la.t.columns = 12;
    la.t.rows = 2;                                  /* does not divide 60 / 12 */
    ADAFACTOR_REFUSED(options, 0u, MPT_E_ARG);
    la.t.columns = 0;
    la.t.rows = 5;
    ADAFACTOR_REFUSED(options, 0u, MPT_E_ARG);
    la.t.rows = 0;
    la.t.columns = 12;
    la.t.v = NULL;
    ADAFACTOR_REFUSED(options, 0u, MPT_E_ARG);
    la.t.v = la.a.grad + 59;
    ADAFACTOR_REFUSED(options, 0u, MPT_E_ARG);
    la.t.v = la.a.v;
    memcpy(&lb.a, &la.a, sizeof la.a);
    CHECK_EQ_I(mpt_adam_step(&adam, &step, &la.t, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_adafactor_step(NULL, &step, &la.t, 1), MPT_E_ARG);
    CHECK(!memcmp(&lb.a, &la.a, sizeof la.a));
    CHECK_EQ_I(mpt_memory_report(&la.t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_FACTORS, &memory), MPT_OK);
    CHECK_EQ_U(memory.v, (60 / 12 + 12) * 4);
    la.t.moments = MPT_MOMENTS_BF16;                /* means stay FP32 */
    CHECK_EQ_I(mpt_memory_report(&la.t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_FACTORS, &memory), MPT_OK);
    CHECK_EQ_U(memory.v, (60 / 12 + 12) * 4);
    la.t.moments = MPT_MOMENTS_F32;
    la.t.columns = 7;
    CHECK_EQ_I(mpt_memory_report(&la.t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_FACTORS, &memory), MPT_E_ARG);
    la.t.columns = 0;
    CHECK_EQ_I(mpt_memory_report(&la.t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_FACTORS, &memory), MPT_OK);
    CHECK_EQ_U(memory.v, 60 * 4);
    la.t.columns = 3;                               /* no elements: any shape */
    la.t.n = 0;
    {
        mpt_adafactor o = adafactor_make(0);
        CHECK_EQ_I(mpt_adafactor_step(&o, &step, &la.t, 1), MPT_OK);
        CHECK_EQ_U(o.t, 1);
    }
}

/* ---- the table of optimizers ---- */

/* One step of an optimizer of the table, with hyperparameters that make it need all that it may need. */
static mpt_status row_step(mpt_optimizer row, const mpt_tensor *t)
{
    mpt_step      step = checked(1.0f, 1.0f);
    mpt_sgd       sgd = {0.1f, 0.9f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_adamw     adamw = mpt_adamw_defaults();
    mpt_adam      adam = mpt_adam_defaults();
    mpt_lamb      lamb = mpt_lamb_defaults();
    mpt_lion      lion = mpt_lion_defaults();
    mpt_adafactor adafactor = mpt_adafactor_defaults();
    switch (row) {
    case MPT_OPTIMIZER_SGD:       return mpt_sgd_step(&sgd, &step, t, 1);
    case MPT_OPTIMIZER_ADAMW:     return mpt_adamw_step(&adamw, &step, t, 1);
    case MPT_OPTIMIZER_ADAM:      return mpt_adam_step(&adam, &step, t, 1);
    case MPT_OPTIMIZER_LAMB:      return mpt_lamb_step(&lamb, &step, t, 1);
    case MPT_OPTIMIZER_LION:      return mpt_lion_step(&lion, &step, t, 1);
    case MPT_OPTIMIZER_ADAFACTOR: return mpt_adafactor_step(&adafactor, &step, t, 1);
    case MPT_OPTIMIZER_COUNT:
    default:                      return MPT_E_DATA;
    }
}

/* A step needs and refuses exactly what the optimizer's row in the table says. */
TEST(optimizers_need_what_their_rows_say)
{
    static const struct { mpt_optimizer row; const char *name; unsigned needs; int on_device; } rows[] = {
        {MPT_OPTIMIZER_SGD, "sgd", MPT_NEEDS_M, 1},
        {MPT_OPTIMIZER_ADAMW, "adamw", MPT_NEEDS_M | MPT_NEEDS_V, 1},
        {MPT_OPTIMIZER_ADAM, "adam", MPT_NEEDS_M | MPT_NEEDS_V, 1},
        {MPT_OPTIMIZER_LAMB, "lamb", MPT_NEEDS_M | MPT_NEEDS_V | MPT_NEEDS_WHOLE, 1},
        {MPT_OPTIMIZER_LION, "lion", MPT_NEEDS_M, 1},
        {MPT_OPTIMIZER_ADAFACTOR, "adafactor", MPT_NEEDS_FACTORS | MPT_NEEDS_WHOLE, 0},
    };
    size_t i;
    CHECK_EQ_U(COUNT(rows), MPT_OPTIMIZER_COUNT);
    CHECK(!mpt_optimizer_get(MPT_OPTIMIZER_COUNT));
    CHECK(!mpt_optimizer_get((mpt_optimizer)((int)MPT_OPTIMIZER_COUNT + 1)));
    for (i = 0; i < COUNT(rows); i++) {
        const mpt_optimizer_info *const info = mpt_optimizer_get(rows[i].row);
        const unsigned                  v = MPT_NEEDS_V | MPT_NEEDS_FACTORS;
        unsigned                        left_out;
        CHECK_EQ_S(info->name, rows[i].name);
        CHECK_EQ_U(info->needs, MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD | rows[i].needs);
        CHECK_EQ_I(info->on_device, rows[i].on_device);
        mt_context(info->name, NULL);
        for (left_out = 0; left_out < 32; left_out++) {     /* each set of arrays, with columns and without */
            mpt_status status;
            mpt_memory memory;
            int        lacks;
            layer_make(&la, 12, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
            if (left_out & 1u) la.t.master = NULL;
            if (left_out & 2u) la.t.grad = NULL;
            if (left_out & 4u) la.t.m = NULL;
            if (left_out & 8u) la.t.v = NULL;
            lacks = (left_out & 3u) || (left_out & 4u && info->needs & MPT_NEEDS_M) ||
                    (left_out & 8u && info->needs & v);
            if (left_out & 16u) la.t.columns = 4;
            status = mpt_tensors_validate(&la.t, 1, info->needs, NULL);
            CHECK_EQ_I(status, lacks                                         ? MPT_E_ARG
                               : left_out & 16u && info->needs & MPT_NEEDS_V ? MPT_E_UNSUPPORTED
                                                                             : MPT_OK);
            CHECK_EQ_I(row_step(rows[i].row, &la.t), status);
            if (status != MPT_OK)
                continue;
            CHECK_EQ_I(mpt_memory_report(&la.t, 1, info->needs, &memory), MPT_OK);
            CHECK_EQ_U(memory.m, info->needs & MPT_NEEDS_M ? 12 * 4 : 0);
            CHECK_EQ_U(memory.v, !(info->needs & v) ? 0 : left_out & 16u ? (12 / 4 + 4) * 4 : 12 * 4);
            CHECK(memory.master == 12 * 4 && memory.grad == 12 * 4);
        }
    }
}

/* ---- arrays that overlap ---- */

enum { KINDS = 6 };                                 /* master, param, extra, grad, m, v */
typedef struct place { size_t begin, end; } place;

/* Makes a tensor of n elements with arrays at room + at[k]. where[k]: their bytes, if the storage has any. */
static void tensor_at(mpt_tensor *t, unsigned char *room, size_t n, const struct form *form, mpt_format grad,
                      mpt_moments moments, const size_t at[KINDS], place where[KINDS])
{
    const size_t moment = moments == MPT_MOMENTS_BF16 ? 2u : 4u, param = form->param == MPT_F32 ? 4u : 2u;
    const int    rest = form->storage == MPT_STORE_KAHAN || form->storage == MPT_STORE_SPLIT;
    const size_t bytes[KINDS] = {form->storage == MPT_STORE_MASTER ? 4u : 0u, param, rest ? 2u : 0u,
                                 grad == MPT_F32 ? 4u : 2u, moment, moment};
    size_t       k;
    void        *array[KINDS];
    memset(t, 0, sizeof *t);
    for (k = 0; k < KINDS; k++) {
        where[k].begin = at[k];
        where[k].end = at[k] + n * bytes[k];
        array[k] = room + at[k];
    }
    t->n = n;
    t->master = (float *)array[0];
    t->param = array[1];
    t->extra = array[2];
    t->grad = array[3];
    t->m = array[4];
    t->v = array[5];
    t->param_format = form->param;
    t->grad_format = grad;
    t->storage = form->storage;
    t->moments = moments;
}

static int places_meet(const place a[KINDS], const place b[KINDS], int same)
{
    size_t i, j;
    for (i = 0; i < KINDS; i++)
        for (j = 0; j < (same ? i : (size_t)KINDS); j++)
            if (a[i].begin < b[j].end && b[j].begin < a[i].end && a[i].begin < a[i].end &&
                b[j].begin < b[j].end && !(i == 3 && j == 3))
                return 1;
    return 0;
}

/* mpt_tensors_validate on random lists, dense and sparse, sorted and not, against a test of every pair. */
TEST(overlap_is_found_in_any_list)
{
    static unsigned char room[20000];
    const int            lists = mt.long_mode ? 3000000 : 10000;
    int                  i, found[3] = {0, 0, 0};
    for (i = 0; i < lists; i++) {
        const size_t   count = 1u + (size_t)(mt_random() % 6u);
        const size_t   most = i % 3 == 0 ? 300u : i % 3 == 1 ? 3000u : 19000u;
        const int      order = (int)(mt_random() % 4u);     /* random; up; up, kind by kind; down */
        mpt_tensor     t[6];
        place          where[6][KINDS];
        mpt_fault      fault = {99, NULL};
        size_t         a, b, k, want = 99, next = 0;
        mpt_status     status;
        for (a = 0; a < count; a++) {
            size_t at[KINDS];
            for (k = 0; k < KINDS; k++) {
                at[k] = (size_t)(mt_random() % most);
                next += 12u + (size_t)(mt_random() % 3u);
                if (order)
                    at[k] = order == 1 ? next : order == 2 ? k * 400u + a * 17u : 10000u - next;
            }
            tensor_at(&t[a], room, (size_t)(mt_random() % 5u), &forms[mt_random() % COUNT(forms)],
                      formats[mt_random() % 3u], (mpt_moments)(mt_random() % 2u), at, where[a]);
        }
        for (a = count; a-- > 0;)
            for (b = 0; b < a; b++)
                want = places_meet(where[a], where[b], 0) ? a : want;
        for (a = count, b = 0; a-- > 0;)            /* a tensor's own arrays are compared first */
            if (places_meet(where[a], where[a], 1))
                want = a, b = 1;
        status = mpt_tensors_validate(
            t, count, MPT_NEEDS_WEIGHT | MPT_NEEDS_GRAD | MPT_NEEDS_M | MPT_NEEDS_V, &fault);
        CHECK_EQ_I(status, want == 99 ? MPT_OK : MPT_E_ARG);
        CHECK_EQ_U(fault.tensor, want == 99 ? 0u : want);
        CHECK(want == 99 ? !fault.why : fault.why && strstr(fault.why, b ? "two arrays" : "earlier") != NULL);
        found[want == 99 ? 0 : b ? 1 : 2]++;
    }
    CHECK(found[0] > lists / 100 && found[1] > lists / 100 && found[2] > lists / 100);
}

/* The first step looks for overlaps, and changes nothing if there are any. */
TEST(overlap_is_refused_by_the_first_step)
{
    static unsigned char room[1000], was[1000];
    size_t               i, f, a, b, k;
    for (i = 0; i < COUNT(one_of_each); i++)
        for (f = 0; f < COUNT(forms); f++)
            for (a = 0; a < KINDS; a++)
                for (b = 0; b < KINDS; b++) {
                    optimizer  o = optimizer_make(one_of_each[i]), before;
                    mpt_step   step = checked(1.0f, 1.0f);
                    const int  has_v = o.kind != SGD && o.kind != LION;
                    mpt_tensor t[2];
                    place      where[2][KINDS];
                    size_t     at[2][KINDS];
                    mpt_status want = MPT_OK;
                    for (k = 0; k < 2 * KINDS; k++)
                        at[k / KINDS][k % KINDS] = 80u * k;
                    at[1][b] = at[0][a];
                    for (k = 0; k < 2; k++)
                        tensor_at(&t[k], room, 4, &forms[f], MPT_F32, MPT_MOMENTS_F32, at[k], where[k]);
                    if (!has_v)
                        t[0].v = t[1].v = NULL;
                    else if (a == 5 || b == 5)
                        want = MPT_E_ARG;
                    if (a != 5 && b != 5 && (a != 3 || b != 3))
                        want = MPT_E_ARG;
                    if (where[0][a].begin == where[0][a].end || where[1][b].begin == where[1][b].end)
                        want = MPT_OK;
                    memset(room, 0, sizeof room);
                    memcpy(was, room, sizeof was);
                    before = o;
                    CHECK_EQ_I(optimizer_step(&o, &step, t, 2), want);
                    CHECK_EQ_U(step.stage, want == MPT_OK ? MPT_STAGE_STEPPED
                                                          : MPT_STAGE_CHECKED | MPT_STAGE_REFUSED);
                    if (want != MPT_OK)
                        CHECK(!memcmp(room, was, sizeof was) && !memcmp(&before, &o, sizeof o));
                }
}

/* mpt_weights_set and mpt_weights_get refuse floats that overlap the weights. */
TEST(weights_do_not_come_from_themselves)
{
    size_t f;
    for (f = 0; f < COUNT(forms); f++) {
        layer_make(&la, 10, forms[f].storage, forms[f].param, MPT_F32, MPT_MOMENTS_F32);
        if (la.t.param_format == MPT_F32)
            REFUSED(mpt_weights_set(&la.t, (const float *)la.t.param + 1), MPT_E_ARG);
        else
            REFUSED(mpt_weights_set(&la.t, (const float *)la.t.param), MPT_E_ARG);
        REFUSED(mpt_weights_get(&la.t, (float *)la.t.param), MPT_E_ARG);
        if (la.t.extra)
            REFUSED(mpt_weights_get(&la.t, (float *)la.t.extra), MPT_E_ARG);
        if (la.t.master)
            REFUSED(mpt_weights_set(&la.t, la.t.master + 9), MPT_E_ARG);
        CHECK_EQ_I(mpt_weights_get(&la.t, la.a.grad), MPT_OK);
        la.t.whole = la.t.n;            /* sums of a part are no weights */
        la.t.sums = (double *)(void *)la.a.v;
        CHECK_EQ_I(mpt_weights_get(&la.t, la.a.v), MPT_OK);
    }
    layer_make(&la, 10, MPT_STORE_MASTER, MPT_F32, MPT_F32, MPT_MOMENTS_F32);
    la.t.param = NULL;                  /* not the array, which is missing, too */
    REFUSED(mpt_weights_set(&la.t, NULL), MPT_E_ARG);
}

/* SGD without momentum neither reads nor writes m: a signaling NaN in bf16 would come back quiet. */
TEST(moments_that_are_not_needed_stay)
{
    mpt_sgd  o = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_step step = checked(1.0f, 1.0f);
    layer_make(&la, 300, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_BF16);
    *code(la.a.m, 7) = *code(la.a.v, 299) = 0x7f81u;
    CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_OK);
    CHECK(*code(la.a.m, 7) == 0x7f81u && *code(la.a.v, 299) == 0x7f81u);
}

/* ---- corners of single formulas ---- */

TEST(lion_of_zero_moves_nothing)
{
    CHECK_EQ_U(mpti_f32_bits(mpti_sign(0.0f)), 0u);
    CHECK_EQ_U(mpti_f32_bits(mpti_sign(mpti_f32_make(1u))), 0x3f800000u);
    CHECK_EQ_U(mpti_f32_bits(mpti_sign(-3.0f)), 0xbf800000u);
}

TEST(lamb_ratio_of_zero_is_one)
{
    mpti_adamw_k k;
    memset(&k, 0, sizeof k);
    k.rates.minus_lr = -0.5f;
    CHECK(!(mpti_lamb_factor(0.0, 4.0, &k) > -0.5f || mpti_lamb_factor(0.0, 4.0, &k) < -0.5f));
    CHECK(!(mpti_lamb_factor(4.0, 0.0, &k) > -0.5f || mpti_lamb_factor(4.0, 0.0, &k) < -0.5f));
    CHECK(fabs((double)mpti_lamb_factor(4.0, 16.0, &k) + 0.25) <= 0.0);
}

/* The sums themselves: LAMB's factor is a float and hides most changes of the order of additions. The longest
 * arrays have more chunks than the 256 slots, and use the first slots again. */
TEST(lamb_norms_are_added_on_the_tree)
{
    enum { PERIOD = 7 * 16384 + 512, CHUNK = 16384 };
    static float        x[PERIOD];
    static const size_t sizes[] = {256, 2048, CHUNK, CHUNK + 256, 2 * CHUNK, 4 * CHUNK, 5 * CHUNK + 256,
                                   7 * CHUNK, 256 * CHUNK, 258 * CHUNK + 512};
    size_t              k, i;
    int                 size = 0;
    for (i = 0; i < PERIOD; i++) {
        if (i % 4096u == 0)
            size = (int)(mt_random() % 12u);
        x[i] = (float)ldexp((double)random_unit(), size + (int)(mt_random() % 16u));
    }
    for (k = 0; k < COUNT(sizes); k++)
        CHECK_EQ_U_AT(mpti_f64_bits(sum_of_squares_on_the_tree(x, PERIOD, sizes[k])),
                      mpti_f64_bits(naive_sumsq(x, PERIOD, sizes[k])), sizes[k]);
}

/* A step of LAMB over more chunks than a piece has: its factor comes from the norms of the whole tensor. */
TEST(lamb_steps_by_whole_norms)
{
    enum { N = 9 * 16384 + 512 };
    static float g[N], w[N], m[N], v[N], was[N], r[N];
    mpt_tensor   t = mpt_tensor_grad_f32("w", g, N);
    mpt_lamb     o = mpt_lamb_defaults();
    mpt_step     step = checked(1.0f, 1.0f);
    mpti_adamw_k k = mpti_adamw_consts(&o, &step);
    float        factor;
    size_t       i;
    for (i = 0; i < N; i++) {
        g[i] = random_unit();
        w[i] = was[i] = random_unit();
    }
    t.master = w, t.m = m, t.v = v;
    CHECK_EQ_I(mpt_lamb_step(&o, &step, &t, 1), MPT_OK);
    for (i = 0; i < N; i++)
        r[i] = mpti_adamw_direction_1(was[i], m[i], mpti_sqrt(v[i]), &k);
    factor = mpti_lamb_factor(naive_sumsq(was, N, N), naive_sumsq(r, N, N), &k);
    for (i = 0; i < N; i++)
        CHECK_EQ_U_AT(mpti_f32_bits(w[i]), mpti_f32_bits(mpti_fma(factor, r[i], was[i])), i);
}

/* ---- the processor's modes ---- */

/* mpt_check and every optimizer with subnormals flushed, as in -Ofast programs (x86 only), on gradients that
 * are subnormal in FP16 but normal as floats: close to steps without the mode, and Inf and NaN are found. */
TEST(subnormals_flushed)
{
    size_t i, k;
    for (i = 0; i < COUNT(recipes); i++) {
        optimizer  o1 = optimizer_make(i), o2 = o1;
        mpt_scaler s;
        mpt_step   step;
        int        t;
        CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
        layer_make(&la, 300, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
        layer_copy(&lb, &la);
        for (t = 0; t < 3; t++) {
            mpt_step s1 = checked(16.0f, 1.0f), s2 = s1;
            layer_gradient(&la, t ? 6e-5f : 1.0f);
            memcpy(lb.a.grad, la.a.grad, sizeof la.a.grad);
            CHECK_EQ_I(optimizer_step(&o1, &s1, &la.t, 1), MPT_OK);
            flush_subnormals(1);
            CHECK_EQ_I(optimizer_step(&o2, &s2, &lb.t, 1), MPT_OK);
            flush_subnormals(0);
            for (k = 0; k < 300; k++) {
                CHECK(fabs((double)la.a.master[k] - (double)lb.a.master[k]) <= 1e-6);
                CHECK_EQ_U_AT(*code(lb.a.param, k), mpt_f16_from_f32(lb.a.master[k]).bits, k);
            }
        }
        memset(&step, 0, sizeof step);
        (void)mpt_scaler_scale(&s, 1.0f);
        for (k = 0; k < 300; k++)
            *code(lb.a.grad, k) = 1u;               /* 2^-24, times 2^-16: 2^-40 */
        flush_subnormals(1);
        CHECK_EQ_I(mpt_check(&s, &step, &lb.t, 1, NULL), MPT_OK);
        flush_subnormals(0);
        CHECK(!step.found_inf && fabs(step.norm / (ldexp(1.0, -40) * sqrt(300.0)) - 1.0) <= 1e-6);
        CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
        *code(lb.a.grad, 7) = i % 2 ? 0x7c00u : 0xfe00u;
        (void)mpt_scaler_scale(&s, 1.0f);
        flush_subnormals(1);
        CHECK_EQ_I(mpt_check(&s, &step, &lb.t, 1, NULL), MPT_OK);
        flush_subnormals(0);
        CHECK(step.found_inf && step.bad_index == 7u);
    }
}

/* ---- registry ---- */

TEST(registry)
{
    static float    w[8], g[8], m[8], m2[8];
    static uint16_t p[8], p2[8], e[8];
    mpt_tensor      item[2];
    mpt_tensors     list, clean;
    memset(&list, 0xa5, sizeof list);       /* a list begins empty, whatever its memory held before */
    memset(item, 0xa5, sizeof item);
    memset(&clean, 0, sizeof clean);
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_BF16, MPT_F32), MPT_OK);
    CHECK_EQ_I(mpt_tensors_init(&clean, item, 2, MPT_BF16, MPT_F32), MPT_OK);
    CHECK(!list.count && list.status == MPT_OK && list.capacity == 2 && list.item == item &&
          list.needs == clean.needs && !memcmp(&list.model, &clean.model, sizeof list.model));
    CHECK_EQ_I(mpt_tensors_add(&clean, "a master alone", 8, NULL, NULL, w, NULL, NULL), MPT_OK);
    CHECK(clean.count == 1 && item[0].master == w && !item[0].param && !item[0].grad && !item[0].seed);
    CHECK_EQ_I(mpt_tensors_add(&list, "w", 8, p, g, w, m, NULL), MPT_OK);
    CHECK(list.count == 1 && item[0].master == w && item[0].param == p && item[0].grad == g &&
          item[0].m == m && !item[0].v && !item[0].extra && item[0].n == 8);
    CHECK_EQ_S(item[0].name, "w");
    CHECK_EQ_I(item[0].param_format, MPT_BF16);
    CHECK_EQ_I(item[0].grad_format, MPT_F32);
    list.model.storage = MPT_STORE_KAHAN;
    list.model.seed = 3u;
    CHECK_EQ_I(mpt_tensors_add(&list, "b", 8, p2, g, e, m2, NULL), MPT_OK);
    CHECK(item[1].extra == e && !item[1].master && item[1].seed == 3u);
    CHECK_EQ_I(list.status, MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(&list, "c", 8, p, g, e, m, NULL), MPT_E_MEMORY);
    CHECK(list.count == 2);
    CHECK_EQ_I(list.status, MPT_E_MEMORY);
    list.count = 1;                                 /* the first error stays, and stops the list */
    CHECK_EQ_I(mpt_tensors_add(&list, "d", 8, p2, g, e, m2, NULL), MPT_E_MEMORY);
    CHECK_EQ_U(list.count, 1);
#define REFUSED_ADD(...) (list.status = MPT_OK, mpt_tensors_add(&list, "d", 8, __VA_ARGS__))
    CHECK_EQ_I(REFUSED_ADD(NULL, NULL, NULL, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(REFUSED_ADD(p, g, e, m2, NULL), MPT_E_ARG);      /* param of another tensor */
    CHECK_EQ_I(REFUSED_ADD(p2, g, e, w + 7, NULL), MPT_E_ARG);
    CHECK_EQ_I(REFUSED_ADD(p2, m, e, m2, NULL), MPT_E_ARG);
    CHECK_EQ_I(REFUSED_ADD(p2, g, e, p2, NULL), MPT_E_ARG);     /* its own param */
#undef REFUSED_ADD
    CHECK_EQ_I(mpt_tensors_add(&list, "d", 8, p2, g, e, m2, NULL), MPT_E_ARG);
    CHECK_EQ_U(list.count, 1);
    list.status = MPT_OK;
    CHECK_EQ_I(mpt_tensors_add(&list, "d", 8, p2, g, e, m2, NULL), MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(NULL, "d", 8, p, g, e, m, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_tensors_init(NULL, item, 2, MPT_BF16, MPT_F32), MPT_E_ARG);
    CHECK_EQ_I(mpt_tensors_init(&list, NULL, 2, MPT_BF16, MPT_F32), MPT_E_ARG);
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_E4M3, MPT_F32), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F16, MPT_E4M3), MPT_E_UNSUPPORTED);
}

/* mpt_tensors_new_*: the arguments are stored in the list, all other members come from list.model. */
TEST(new_tensors_keep_what_they_are_given)
{
    mpt_tensor  item[3];
    mpt_tensors list;
    mpt_f16    *p = NULL, *g = NULL;
    mpt_bf16   *pb = NULL, *gb = NULL;
    float       w[4] = {1, 2, 3, 4};
    size_t      i;
    memset(&list, 0xff, sizeof list);
    memset(item, 0xff, sizeof item);
    CHECK_EQ_I(mpt_tensors_init(&list, item, 3, MPT_F32, MPT_F32), MPT_OK);
    list.model.seed = 7u, list.model.lr_times = 0.5f, list.model.no_decay = 1u, list.model.columns = 2;
    list.model.moments = MPT_MOMENTS_BF16;
    CHECK_EQ_I(mpt_tensors_new_f16(&list, "half", 4, w, &p, &g), MPT_OK);
    CHECK_EQ_I(mpt_tensors_new_bf16(&list, "brain", 6, NULL, &pb, &gb), MPT_OK);
    CHECK_EQ_I(mpt_tensors_new_bf16(&list, NULL, 2, NULL, NULL, &gb), MPT_OK);
    CHECK_EQ_U(list.count, 3);
    CHECK_EQ_S(item[0].name, "half");
    CHECK_EQ_S(item[1].name, "brain");
    CHECK(!item[2].name && item[0].n == 4 && item[1].n == 6 && item[2].n == 2);
    CHECK(item[0].master == w && !item[1].master && !item[2].master);
    CHECK(item[0].param_at == (void *)&p && item[0].grad_at == (void *)&g);
    CHECK(item[1].param_at == (void *)&pb && item[1].grad_at == (void *)&gb);
    CHECK(!item[2].param_at && item[2].grad_at == (void *)&gb);
    for (i = 0; i < 3; i++) {
        const mpt_tensor *t = &item[i];
        CHECK_EQ_I(t->param_format, i ? MPT_BF16 : MPT_F16);
        CHECK_EQ_I(t->grad_format, i ? MPT_BF16 : MPT_F16);
        CHECK(!t->param && !t->grad && !t->m && !t->v && !t->v_max && !t->extra && !t->sums);
        CHECK(t->seed == 7u && t->lr_times == 0.5f && t->no_decay == 1u && t->columns == 2);
        CHECK(t->storage == MPT_STORE_MASTER && t->moments == MPT_MOMENTS_BF16 && !t->rounded && !t->rows);
        CHECK(t->decay_times == 0.0f && !t->whole && !t->first);
    }
    CHECK_EQ_I(list.model.param_format, MPT_F32);
}

/* mpt_tensors_place in memory of any alignment: the arrays are disjoint, aligned, zero, and published. */
TEST(registry_places_arrays)
{
    static float         w[2][301], own[33];
    static unsigned char room[16384];
    mpt_tensor           item[5];
    mpt_tensors          list;
    mpt_f16             *p[2] = {NULL, NULL}, *g[2] = {NULL, NULL};
    mpt_bf16            *pb = NULL, *gb = NULL;
    mpt_fault            fault;
    size_t               off, i, j, bytes;
    for (off = 0; off < 130; off += 13) {
        memset(room, 0xee, sizeof room);
        CHECK_EQ_I(mpt_tensors_init(&list, item, 5, MPT_F32, MPT_F32), MPT_OK);
        CHECK_EQ_I(mpt_tensors_place(&list, NULL, 0), MPT_OK);          /* no array is missing */
        for (i = 0; i < 2; i++)
            for (j = 0; j < 301; j++)
                w[i][j] = random_unit();
        CHECK_EQ_I(mpt_tensors_new_f16(&list, "a", 301, w[0], &p[0], &g[0]), MPT_OK);
        CHECK_EQ_I(mpt_tensors_add(&list, "own", 33, NULL, own, NULL, NULL, NULL), MPT_OK);
        CHECK_EQ_I(mpt_tensors_new_bf16(&list, "b", 7, NULL, &pb, &gb), MPT_OK);
        CHECK_EQ_I(mpt_tensors_new_f16(&list, "none", 0, NULL, NULL, NULL), MPT_OK);
        CHECK_EQ_I(mpt_tensors_new_f16(&list, "c", 301, w[1], NULL, &g[1]), MPT_OK);
        CHECK(!p[0] && list.bytes && list.bytes < sizeof room - 130u);
        bytes = list.bytes;
        CHECK_EQ_I(mpt_tensors_place(&list, NULL, bytes), MPT_E_MEMORY);
        CHECK_EQ_I(mpt_tensors_place(&list, room + off, bytes - 1), MPT_E_MEMORY);
        CHECK(!p[0] && room[off] == 0xee);
        CHECK_EQ_I(mpt_tensors_place(&list, room + off, bytes), MPT_OK);
        for (i = 0; i < sizeof room; i++)
            if (i < off || i >= off + bytes)
                CHECK_EQ_U_AT(room[i], 0xee, i);
        CHECK(p[0] == item[0].param && g[0] == item[0].grad && pb == item[2].param && gb == item[2].grad);
        CHECK(g[1] == item[4].grad && item[4].param && item[0].master == w[0] && item[2].master);
        CHECK(item[1].param == (void *)item[1].master && item[1].grad == own && item[1].v);
        CHECK(!item[3].param && !item[3].m);
        CHECK_EQ_I(item[2].param_format, MPT_BF16);
        CHECK_EQ_I(item[0].grad_format, MPT_F16);
        for (i = 0; i < 5; i++)
            if (i != 3) {
                const void *const array[] = {i == 1 ? item[i].m : item[i].param,
                                             i == 1 ? item[i].m : item[i].grad, item[i].m, item[i].v};
                const float *const own_master = i == 0 ? w[0] : i == 4 ? w[1] : NULL;
                const size_t       before = ((size_t)0 - (uintptr_t)own_master) % 64u / sizeof(float);
                for (j = 0; j < 4; j++)     /* each cache line begins at the same element */
                    CHECK(((uintptr_t)array[j] + before * (j < 2 && i != 1 ? 2u : 4u)) % 64u == 0u &&
                          (const unsigned char *)array[j] >= room + off &&
                          (const unsigned char *)array[j] < room + off + bytes);
                for (j = 0; j < item[i].n; j++)
                    CHECK(((float *)item[i].m)[j] == 0.0f && ((float *)item[i].v)[j] == 0.0f &&
                          ((uint16_t *)item[i].grad)[j] == 0u);
            }
        for (j = 0; j < 301; j++)
            CHECK_EQ_U_AT(p[0][j].bits, mpt_f16_from_f32(w[0][j]).bits, j);
        list.count = 1;                 /* as a step requires, nothing overlaps */
        item[1] = item[2];
        item[2] = item[4];
        CHECK_EQ_I(mpt_tensors_validate(item, 3, mpt_optimizer_get(MPT_OPTIMIZER_ADAMW)->needs, &fault),
                   MPT_OK);
        CHECK_EQ_U(list.bytes, 63);
        memset(room, 0, sizeof room);   /* a second call moves no array */
        CHECK_EQ_I(mpt_tensors_place(&list, room + 1, sizeof room - 1), MPT_OK);
        CHECK(p[0] == item[0].param && !p[0][0].bits);
        p[0] = NULL;
        pb = NULL;
    }
}

TEST(registry_places_what_is_needed)
{
    static unsigned char room[8192 + 64];
    unsigned char *const line = room + (64u - (uintptr_t)room % 64u) % 64u;
    static float         masters[64 + 16], have[64];
    float *const         w = masters + (0u - (uintptr_t)masters) % 64u / sizeof(float);     /* a cache line */
    mpt_tensor           item[3];
    mpt_tensors          list;
    mpt_bf16            *p, *g;
    size_t               i, bytes;
    static const struct { unsigned needs; mpt_moments moments; mpt_storage storage; size_t columns, lines; }
        wants[] = {
        {MPT_NEEDS_M | MPT_NEEDS_V, MPT_MOMENTS_F32, MPT_STORE_MASTER, 0, 2 + 2 + 4 + 4},
        {MPT_NEEDS_M | MPT_NEEDS_V, MPT_MOMENTS_BF16, MPT_STORE_MASTER, 0, 2 + 2 + 2 + 2},
        {MPT_NEEDS_M, MPT_MOMENTS_F32, MPT_STORE_MASTER, 0, 2 + 2 + 4},
        {0u, MPT_MOMENTS_F32, MPT_STORE_MASTER, 0, 2 + 2},
        {MPT_NEEDS_FACTORS, MPT_MOMENTS_F32, MPT_STORE_MASTER, 16, 2 + 2 + 2},  /* 4 + 16 floats: two lines */
        {MPT_NEEDS_M, MPT_MOMENTS_F32, MPT_STORE_SPLIT, 0, 2 + 2 + 2 + 4},
        {MPT_NEEDS_M, MPT_MOMENTS_F32, MPT_STORE_STOCHASTIC, 0, 2 + 2 + 4},
    };
    for (i = 0; i < COUNT(wants); i++) {
        const int master = wants[i].storage == MPT_STORE_MASTER;
        size_t    j;
        CHECK_EQ_I(mpt_tensors_init(&list, item, 3, MPT_BF16, MPT_BF16), MPT_OK);
        list.needs = wants[i].needs;
        list.model.moments = wants[i].moments;
        list.model.storage = wants[i].storage;
        list.model.columns = wants[i].columns;
        CHECK_EQ_I(mpt_tensors_new_bf16(&list, "w", 64, master ? w : NULL, &p, &g), MPT_OK);
        CHECK_EQ_U(list.bytes, 64u * wants[i].lines + 63u);
        bytes = list.bytes;
        CHECK_EQ_I(mpt_tensors_place(&list, line, bytes), MPT_OK);
        CHECK((unsigned char *)p == line || (unsigned char *)g == line || (unsigned char *)item[0].m == line);
        CHECK((item[0].m != NULL) == ((wants[i].needs & MPT_NEEDS_M) != 0u));
        CHECK((item[0].v != NULL) == ((wants[i].needs & (MPT_NEEDS_V | MPT_NEEDS_FACTORS)) != 0u));
        for (j = 0; j < 64; j++)
            have[j] = random_unit();
        CHECK_EQ_I(mpt_weights_set(&item[0], have), MPT_OK);
        CHECK_EQ_U(p[9].bits, item[0].storage == MPT_STORE_SPLIT ? ((uint16_t *)item[0].param)[9]
                                                                 : mpt_bf16_from_f32(have[9]).bits);
    }
    /* impossible requests: list.status keeps the error, and nothing is placed */
    CHECK_EQ_I(mpt_tensors_init(&list, item, 1, MPT_F16, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_tensors_new_bf16(NULL, "w", 64, w, &p, &g), MPT_E_ARG);
    CHECK_EQ_I(mpt_tensors_place(NULL, room, sizeof room), MPT_E_ARG);
    CHECK_EQ_I(mpt_tensors_new_bf16(&list, "w", (size_t)-1 / 8u, w, &p, &g), MPT_E_ARG);
    list.status = MPT_OK;
    list.model.storage = MPT_STORE_SPLIT;
    CHECK_EQ_I(mpt_tensors_new_f16(&list, "w", 64, NULL, NULL, NULL), MPT_E_UNSUPPORTED);
    list.status = MPT_OK;
    CHECK_EQ_I(mpt_tensors_new_bf16(&list, "w", 64, w, &p, &g), MPT_E_ARG);     /* split would not keep w */
    list.status = MPT_OK;
    list.model.storage = MPT_STORE_MASTER;
    CHECK_EQ_I(mpt_tensors_new_bf16(&list, "w", 64, w, &p, &g), MPT_OK);
    CHECK_EQ_I(mpt_tensors_new_bf16(&list, "x", 64, NULL, &p, &g), MPT_E_MEMORY);
    CHECK_EQ_U(list.count, 1);
    CHECK_EQ_I(mpt_tensors_place(&list, room, sizeof room), MPT_E_MEMORY);
    list.status = MPT_OK;
    bytes = list.bytes;
    list.needs = MPT_NEEDS_M | MPT_NEEDS_V | MPT_NEEDS_FACTORS;
    list.item[0].n = 640;               /* more than was counted: still no write beyond the bytes given */
    CHECK_EQ_I(mpt_tensors_place(&list, room, bytes), MPT_E_MEMORY);
    list.item[0].n = 64, list.needs = MPT_NEEDS_M;
    CHECK_EQ_I(mpt_tensors_place(&list, NULL, 0), MPT_E_MEMORY);
    CHECK(list.bytes < bytes);          /* now it tells what these needs take */
    CHECK_EQ_I(mpt_tensors_place(&list, room, list.bytes - 1u), MPT_E_MEMORY);
    CHECK_EQ_I(mpt_tensors_place(&list, room, list.bytes), MPT_OK);
}

/* As with an autograd that makes new gradient arrays for every step: they are set in the list that exists, or
 * the list is built anew. Masters, copies and moments equal those of a list whose gradients stay in place. */
TEST(gradients_may_move)
{
    enum { N = 101 };
    static float    w[3][2][N], m[3][2][N], v[3][2][N], own[2][N];
    static mpt_f16  p[3][2][N], fixed[2][N], moving[2][7 * N];
    mpt_tensor      item[3][2];
    mpt_tensors     list[3];
    mpt_adamw       adam[3];
    mpt_step        step[3];
    mpt_scaler      scaler[3];
    int             round, way, k;
    size_t          i;
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (k = 0; k < 2; k++)
        for (i = 0; i < N; i++)
            w[0][k][i] = w[1][k][i] = w[2][k][i] = random_unit();
    for (way = 0; way < 3; way++) {
        adam[way] = optimizer_make(6).adam;
        memset(&step[way], 0, sizeof step[way]);
        CHECK_EQ_I(mpt_scaler_init(&scaler[way], NULL), MPT_OK);
    }
    for (round = 0; round < 12; round++) {
        const size_t to = (size_t)round % 7u * N;
        memset(moving, 0xff, sizeof moving);            /* NaN wherever there is no gradient now */
        for (k = 0; k < 2; k++)
            for (i = 0; i < N; i++)
                fixed[k][i] = moving[k][to + i] = mpt_f16_from_f32(random_unit());
        if (round == 5)
            fixed[1][9].bits = moving[1][to + 9].bits = 0x7c00u;
        for (way = 0; way < 3; way++) {
            if (!round || way == 2) {
                CHECK_EQ_I(mpt_tensors_init(&list[way], item[way], 2, MPT_F16, MPT_F16), MPT_OK);
                for (k = 0; k < 2; k++)
                    CHECK_EQ_I(mpt_tensors_add(&list[way], NULL, N, p[way][k], way ? moving[k] + to
                                               : fixed[k], w[way][k], m[way][k], v[way][k]), MPT_OK);
            }
            for (k = 0; k < 2 && way == 1; k++)
                list[1].item[k].grad = moving[k] + to;
            (void)mpt_scaler_scale(&scaler[way], 1.0f);
            CHECK_EQ_I(mpt_check(&scaler[way], &step[way], item[way], list[way].count, NULL), MPT_OK);
            CHECK_EQ_I(step[way].found_inf, round == 5);
            CHECK_EQ_I(mpt_grad_get(&step[way], &item[way][1], own[way != 0]), MPT_OK);
            CHECK(way == 0 || round == 5 || !memcmp(own[0], own[1], sizeof own[0]));
            CHECK_EQ_I(mpt_adamw_step(&adam[way], &step[way], item[way], list[way].count), MPT_OK);
            CHECK_EQ_I(mpt_scaler_update(&scaler[way]), MPT_OK);
            CHECK(!memcmp(w[0], w[way], sizeof w[0]) && !memcmp(p[0], p[way], sizeof p[0]));
            CHECK(!memcmp(m[0], m[way], sizeof m[0]) && !memcmp(v[0], v[way], sizeof v[0]));
        }
    }
    CHECK_EQ_U(adam[2].t, 11);
}

/* ---- parts of tensors on many ranks, here one after the other ---- */

/* A reduction for ranks that run one after the other: the first round adds up their values, the second one
 * (`tell`) returns the sums. */
typedef struct sums_of_ranks { double sum[4][2048]; size_t call, n[4]; int tell; } sums_of_ranks;

static int sums_reduce(void *user, double *values, size_t n)
{
    sums_of_ranks *const r = (sums_of_ranks *)user;
    const size_t         call = r->call++;
    size_t               i;
    if (call >= 4 || n > 2048)
        return 1;
    r->n[call] = n;
    for (i = 0; i < n; i++)
        if (r->tell)
            values[i] = r->sum[call][i];
        else
            r->sum[call][i] += values[i];
    return 0;
}

enum { SHARDED = 5, RANKS = 9, ROOM = 1 << 21 };
typedef struct sharded {
    mpt_tensor           item[SHARDED];
    mpt_tensors          list;
    optimizer            o;
    mpt_scaler           s;
    mpt_step             step;
    unsigned char       *at;                /* the first cache line in room */
    unsigned char        room[ROOM + 64];
} sharded;
static sharded whole, ranks;

static void sharded_make(sharded *a, size_t recipe, size_t form, mpt_moments moments)
{
    static const size_t n[SHARDED] = {2 * 16384 + 5, 0, 7, 20000, 100};
    static float        w[2 * 16384 + 5];
    size_t              i, j;
    memset(a, 0, sizeof *a);
    (void)mpt_tensors_init(&a->list, a->item, SHARDED, forms[form].param, formats[recipe % 3]);
    a->list.model.storage = forms[form].storage;
    a->list.model.moments = moments;
    a->list.model.seed = 99u;
    for (a->list.count = i = 0; i < SHARDED; i++) {
        a->item[a->list.count] = a->list.model;
        a->item[a->list.count++].n = n[i];
    }
    a->at = a->room + (64u - (uintptr_t)a->room % 64u);
    CHECK_EQ_I(mpt_tensors_place(&a->list, a->at, ROOM), MPT_OK);
    a->o = optimizer_make(recipe);
    CHECK_EQ_I(mpt_scaler_init(&a->s, NULL), MPT_OK);
    for (i = 0; i < SHARDED; i++) {
        for (j = 0; j < n[i]; j++)
            w[j] = (float)((i + 3u * j) % 1001u) * 0.001f - 0.5f;
        CHECK_EQ_I(mpt_weights_set(&a->item[i], w), MPT_OK);
    }
}

static void sharded_gradient(sharded *a, unsigned at, int bad)
{
    size_t i, j;
    for (i = 0; i < SHARDED; i++)
        for (j = 0; j < a->item[i].n; j++)
            element_set(a->item[i].grad, a->item[i].grad_format, j,
                        ((float)((at + 7u * i + 13u * j) % 4099u) - 2049.0f) * 0.0123f);
    if (bad)
        element_set(a->item[3].grad, a->item[3].grad_format, 19999, mpti_f32_make(0x7f800000u));
    (void)mpt_scaler_scale(&a->s, 1.0f);
}

/* One step of all ranks, on parts of the arrays of the whole; only sums are arrays of their own. */
static void ranks_step(sharded *a, size_t parts, size_t want)
{
    static double        room[RANKS][1024];
    static mpt_tensor    item[RANKS][SHARDED];
    static sums_of_ranks r;
    mpt_tensors          list;
    mpt_scaler           s[RANKS], once;
    mpt_step             step[RANKS], alone;
    const optimizer      o = a->o;
    size_t               k, i, empty = 0, total = 0, elements = 0;
    memset(&r, 0, sizeof r);
    memset(step, 0, sizeof step);
    alone = step_zero();
    for (k = 0; k < parts; k++) {
        list = a->list;
        list.item = item[k];
        memcpy(item[k], a->item, sizeof item[k]);
        CHECK_EQ_I(mpt_tensors_shard(&list, k, parts), MPT_OK);
        CHECK_EQ_I(mpt_tensors_place(&list, room[k], sizeof room[k]), MPT_OK);
        for (i = total = 0; i < SHARDED; i++) {
            total += item[k][i].n;
            CHECK(item[k][i].whole == a->item[i].n && (item[k][i].sums != NULL) == (item[k][i].n != 0));
            CHECK(item[k][i].first == (k ? item[k - 1][i].first + item[k - 1][i].n : 0));
        }
        elements += total;
        empty += !total;
        s[k] = a->s;
        CHECK_EQ_I(mpt_check(&s[k], &step[k], item[k], SHARDED, NULL), MPT_OK);
        once = s[k];
        alone = step[k];
        r.call = 0;
        CHECK_EQ_I(mpt_step_combine(&once, &alone, item[k], SHARDED, sums_reduce, &r), MPT_OK);
    }
    CHECK(elements == 52880 && r.call == 2 && r.n[0] == 7 && r.n[1] == 6);
    CHECK_EQ_U(empty, want);
    r.tell = 1;
    for (k = 0; k < parts; k++) {
        optimizer mine = o;
        r.call = 0;
        CHECK_EQ_I(mpt_step_combine(&s[k], &step[k], item[k], SHARDED, sums_reduce, &r), MPT_OK);
        CHECK_EQ_I(mpt_clip(&step[k], 0.5f), MPT_OK);
        CHECK_EQ_I(optimizer_step(&mine, &step[k], item[k], SHARDED), MPT_OK);
        CHECK_EQ_I(mpt_scaler_update(&s[k]), MPT_OK);
        a->o = mine;
        a->s = s[k];
        step[k].bad_tensor = step[k].bad_index = step[k].bad_cause = 0;
        a->step = step[k];
        CHECK(!memcmp(&s[k], &s[0], sizeof s[0]) && !memcmp(&step[k], &step[0], sizeof step[0]));
    }
}

/* Weights, moments, random bits, the norm and the decision to skip equal those of one list on one rank: for
 * every storage, with parts of other sizes, ranks without elements, and an Inf on one rank. */
TEST(parts_step_as_the_whole)
{
    static const struct { size_t parts, empty; } cuts[] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {9, 5}};
    static const size_t kinds[] = {6, 14, 4, 11};            /* AdamW, Lion, SGD, Adam */
    size_t              form, c, round;
    for (form = 0; form < COUNT(forms); form += mt.every)
        for (c = 0; c < COUNT(cuts); c++) {
            const mpt_moments moments = (mpt_moments)((form + c) % MPT_MOMENTS_COUNT);
            const size_t      recipe = kinds[(form + c) % COUNT(kinds)];
            sharded_make(&whole, recipe, form, moments);
            sharded_make(&ranks, recipe, form, moments);
            for (round = 0; round < 3; round++) {
                sharded_gradient(&whole, (unsigned)round, round == 1);
                sharded_gradient(&ranks, (unsigned)round, round == 1);
                CHECK_EQ_I(mpt_check(&whole.s, &whole.step, whole.item, SHARDED, NULL), MPT_OK);
                CHECK_EQ_I(mpt_clip(&whole.step, 0.5f), MPT_OK);
                CHECK_EQ_I(optimizer_step(&whole.o, &whole.step, whole.item, SHARDED), MPT_OK);
                CHECK_EQ_I(mpt_scaler_update(&whole.s), MPT_OK);
                CHECK_EQ_U(whole.step.bad_cause, round == 1 ? MPT_CAUSE_INF : 0u);
                whole.step.bad_tensor = whole.step.bad_index = whole.step.bad_cause = 0;
                ranks_step(&ranks, cuts[c].parts, cuts[c].empty);
                CHECK(!memcmp(&whole.step, &ranks.step, sizeof whole.step));
                CHECK(!memcmp(&whole.s, &ranks.s, sizeof whole.s));
                CHECK_EQ_U(optimizer_t(&whole.o), optimizer_t(&ranks.o));
                CHECK(!memcmp(whole.at, ranks.at, ROOM));
            }
        }
}

/* The tree of a list with more chunks than one reduction takes: two tensors, cut into three parts. The only
 * arrays are the sums; they are so small that anything but 0 that another rank adds to them would show. */
TEST(many_sums_go_around_in_pieces)
{
    enum { CHUNKS = 3001 };
    static double        sum[CHUNKS], slot[256];
    static sums_of_ranks r;
    static const size_t  cut[4] = {0, 1700, 2100, CHUNKS};
    mpt_tensor           t[3][2];
    mpt_scaler           s;
    mpt_step             step, first = step_zero();
    size_t               i, k, n;
    memset(t, 0, sizeof t);
    memset(&step, 0, sizeof step);
    memset(&r, 0, sizeof r);
    for (i = 0; i < CHUNKS; i++) {
        sum[i] = 1e-300 * (1.0 + (double)random_unit());
        slot[i % 256] += sum[i];
    }
    for (n = 128; n; n /= 2)
        for (i = 0; i < n; i++)
            slot[i] = slot[2 * i] + slot[2 * i + 1];
    for (k = 0; k < 3; k++) {           /* the first tensor has 2000 chunks */
        const size_t a = cut[k] < 2000 ? cut[k] : 2000, b = cut[k + 1] < 2000 ? cut[k + 1] : 2000;
        t[k][0].whole = (size_t)2000 * 16384;
        t[k][0].first = a * 16384;
        t[k][0].n = (b - a) * 16384;
        t[k][0].sums = sum + a;
        t[k][1].whole = (size_t)(CHUNKS - 2000) * 16384 - 9;
        t[k][1].first = (cut[k] < 2000 ? 0 : cut[k] - 2000) * 16384;
        t[k][1].n = cut[k + 1] < 2000 ? 0 : (cut[k + 1] - 2000) * 16384 - t[k][1].first - (k == 2 ? 9 : 0);
        t[k][1].sums = sum + (cut[k] < 2000 ? 2000 : cut[k]);
    }
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &first, NULL, 0, NULL), MPT_OK);
    for (k = 0; k < 4; k++) {
        r.call = 0;
        r.tell = k == 3;
        step = first;
        CHECK_EQ_I(mpt_step_combine(&s, &step, t[k % 3], 2, sums_reduce, &r), MPT_OK);
    }
    CHECK(r.call == 3 && r.n[0] == 2048 && r.n[1] == CHUNKS - 2048 && r.n[2] == 6);
    CHECK_EQ_U(mpti_f64_bits(step.sumsq), mpti_f64_bits(slot[0]));
    t[0][0].sums = NULL;
    step = first;
    CHECK_EQ_I(mpt_step_combine(&s, &step, t[0], 2, sums_reduce, &r), MPT_E_ARG);
    CHECK(!step.found_inf && r.call == 3);
    r.call = 3;                                     /* the second reduction fails */
    t[0][0].sums = sum;
    CHECK_EQ_I(mpt_step_combine(&s, &step, t[0], 2, sums_reduce, &r), MPT_E_DATA);
    CHECK_EQ_U(step.found_inf, 1);
}

/* A part takes a part of the memory. Invalid parts are refused, and LAMB refuses all: it needs the whole. */
TEST(parts_are_placed_and_refused)
{
    static unsigned char room[1 << 18];
    static mpt_f16       p[65537], g[65537], *moved;
    mpt_tensor           item[2];
    mpt_tensors          list, was;
    mpt_fault            fault;
    mpt_step             step;
    mpt_lamb             lamb = mpt_lamb_defaults();
    size_t               k;
    for (k = 0; k < 3; k++) {
        CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F16, MPT_F16), MPT_OK);
        CHECK_EQ_I(mpt_tensors_add(&list, "w", 40000, p, g, NULL, NULL, NULL), MPT_OK);
        was = list;
        CHECK_EQ_I(mpt_tensors_shard(NULL, 0, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_tensors_shard(&list, 3, 3), MPT_E_ARG);
        CHECK_EQ_I(mpt_tensors_shard(&list, 0, 0), MPT_E_ARG);
        item[0].columns = 200;
        CHECK_EQ_I(mpt_tensors_shard(&list, k, 3), MPT_E_ARG);
        item[0].columns = 0;
        item[0].grad_at = &moved;
        CHECK_EQ_I(mpt_tensors_shard(&list, k, 3), MPT_E_ARG);
        item[0].grad_at = NULL;
        list.status = MPT_E_MEMORY;
        CHECK_EQ_I(mpt_tensors_shard(&list, k, 3), MPT_E_MEMORY);
        list.status = MPT_OK;
        CHECK(!memcmp(&list, &was, sizeof list) && item[0].n == 40000 && !item[0].whole);
        CHECK_EQ_I(mpt_tensors_shard(&list, k, 3), MPT_OK);
        CHECK_EQ_I(mpt_tensors_shard(&list, k, 3), MPT_E_ARG);
        CHECK(item[0].first == k * 16384 && item[0].n == (k < 2 ? 16384 : 40000 - 2 * 16384));
        CHECK(item[0].param == p + item[0].first && item[0].grad == g + item[0].first && !item[0].master);
        CHECK_EQ_U(list.bytes, 63 + 3 * 4 * item[0].n + 64);        /* sums take a cache line */
        CHECK_EQ_I(mpt_tensors_place(&list, room, sizeof room), MPT_OK);
        step = checked(1.0f, 1.0f);
        CHECK_EQ_I(mpt_lamb_step(&lamb, &step, item, 1), MPT_E_UNSUPPORTED);
        item[0].whole = item[0].n;                                  /* whole, on this rank */
        item[0].first = 0;
        CHECK_EQ_I(mpt_lamb_step(&lamb, &step, item, 1), MPT_OK);
        lamb.t = 0;
        item[0].whole = 40000;
        item[0].first = k * 16384 + 1;
        CHECK_EQ_I(mpt_tensors_validate(item, 1, MPT_NEEDS_GRAD, &fault), MPT_E_ARG);
        CHECK(strstr(fault.why, "16384") != NULL);
        item[0].first = (k + 1) * 16384;
        item[0].n = k < 2 ? 40000 - item[0].first + 1 : 1;
        CHECK_EQ_I(mpt_tensors_validate(item, 1, MPT_NEEDS_GRAD, NULL), MPT_E_ARG);
        item[0].whole = 0;
        item[0].n = 1;
        CHECK_EQ_I(mpt_tensors_validate(item, 1, MPT_NEEDS_GRAD, NULL), MPT_E_ARG);
    }
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F16, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(&list, "w", 65537, p, g, NULL, NULL, NULL), MPT_OK);
    CHECK_EQ_I(mpt_tensors_shard(&list, 3, 4), MPT_OK);             /* from 49152.75, rounded down */
    CHECK(item[0].first == 49152 && item[0].n == 16385);
}

/* Before mpt_step_combine a rank knows the norm and the Inf of its part alone, so it may not step or clip;
 * a rank whose check was refused takes part with numbers that make the others refuse, too. */
TEST(parts_wait_for_the_other_ranks)
{
    static float  weights[2][40000], gradients[2][40000], more[8];
    mpt_tensor    item[2][2];
    mpt_scaler    s[2];
    mpt_step      step[2];
    mpt_sgd       sgd = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    sums_of_ranks r;
    double        sums[2][3];
    size_t        i, k, round;
    memset(item, 0, sizeof item);
    memset(step, 0, sizeof step);
    for (k = 0; k < 2; k++) {
        CHECK_EQ_I(mpt_scaler_init(&s[k], NULL), MPT_OK);
        for (i = 0; i < 40000; i++)
            gradients[k][i] = 65536.0f;
        item[k][0] = mpt_tensor_grad_f32("w", gradients[k], k ? 40000 - 16384 : 16384);
        item[k][0].whole = 40000, item[k][0].first = k * 16384, item[k][0].sums = sums[k];
        item[k][0].master = weights[k];
    }
    for (round = 0; round < 4; round++) {       /* 1: no scale on rank 0; 2: a whole tensor beside the part */
        const int refused = round == 1;
        memset(&r, 0, sizeof r);
        for (k = 0; k < 2; k++) {
            if (!refused || k)
                (void)mpt_scaler_scale(&s[k], 1.0f);
            CHECK_EQ_I(mpt_check(&s[k], &step[k], item[k], 1, NULL), refused && !k ? MPT_E_ORDER : MPT_OK);
        }
        if (!round) {
            mpt_step early = step[1], late = step[1];
            CHECK_EQ_I(mpt_sgd_step(&sgd, &early, item[1], 1), MPT_E_ORDER);
            CHECK(sgd.t == 0 && strstr(mpt_order_text(&s[1], &late), "mpt_step_combine") != NULL);
            CHECK_EQ_I(mpt_sgd_step(&sgd, &early, item[1], 1), MPT_E_ORDER);    /* still, once refused */
            CHECK_EQ_I(mpt_clip(&late, 1.0f), MPT_E_ORDER);
            CHECK_EQ_I(mpt_steps_join(&step[1], 1), MPT_E_ORDER);
        }
        if (round == 2) {
            item[1][1] = mpt_tensor_grad_f32("whole", more, 8);
            CHECK_EQ_I(mpt_step_combine(&s[1], &step[1], item[1], 2, sums_reduce, &r), MPT_E_ARG);
            CHECK(!r.call);
        }
        for (r.tell = 0; r.tell < 2; r.tell++)
            for (k = 0; k < 2; k++) {
                mpt_scaler was = s[k];
                mpt_step   mine = step[k];
                r.call = 0;
                CHECK_EQ_I(mpt_step_combine(&s[k], &step[k], item[k], 1, sums_reduce, &r),
                           (r.tell && refused) || (refused && !k) ? MPT_E_ORDER : MPT_OK);
                CHECK_EQ_U(r.call, 2);
                if (!r.tell)
                    s[k] = was, step[k] = mine;
            }
        for (k = 0; k < 2; k++) {
            CHECK(refused ? step[k].found_inf == 1u : step[k].norm == 200.0 && !step[k].found_inf);
            CHECK_EQ_I(mpt_sgd_step(&sgd, &step[k], item[k], 1), refused && !k ? MPT_E_ORDER : MPT_OK);
            CHECK_EQ_I(mpt_scaler_update(&s[k]), refused ? MPT_E_ORDER : MPT_OK);
            CHECK(s[k].updates == round + 1u && s[k].scale == s[0].scale);
        }
        if (refused)
            step[0] = step_zero();      /* its step was refused, too */
    }
}

/* An FP32 param beside a master is a copy only if it is rounded; else it is the master itself, for a loop
 * that is to run in FP32 for once, and steps, shards and counts of bytes treat the two as one array. */
TEST(no_copy_that_is_the_master_again)
{
    static unsigned char room[4096];
    float                weights[2][40] = {{0.0f}, {0.0f}};
    mpt_tensor           item[2];
    mpt_tensors          list;
    mpt_memory           memory;
    float               *param = NULL;
    mpt_step             step = checked(1.0f, 1.0f);
    mpt_adamw            o = mpt_adamw_defaults();
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F32, MPT_F32), MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(&list, "plain", 40, NULL, NULL, weights[0], NULL, NULL), MPT_OK);
    item[0].param_at = &param;
    list.model.rounded = MPT_F32;
    CHECK_EQ_I(mpt_tensors_add(&list, "refused", 40, NULL, NULL, weights[1], NULL, NULL), MPT_E_UNSUPPORTED);
    CHECK(list.count == 1 && list.status == MPT_E_UNSUPPORTED);
    list.status = MPT_OK;
    list.model.rounded = MPT_F16;
    CHECK_EQ_I(mpt_tensors_add(&list, "rounded", 40, NULL, NULL, weights[1], NULL, NULL), MPT_OK);
    CHECK_EQ_I(mpt_tensors_place(&list, room, sizeof room), MPT_OK);
    CHECK(param == weights[0] && item[0].param == (void *)param && item[1].param != (void *)weights[1]);
    ((float *)item[0].grad)[7] = ((float *)item[1].grad)[7] = 1.0f;
    CHECK_EQ_I(mpt_adamw_step(&o, &step, item, 2), MPT_OK);
    CHECK(param[7] < 0.0f && !memcmp(weights[0], weights[1], sizeof *weights));
    CHECK_EQ_I(mpt_memory_report(item, 2, MPT_NEEDS_PARAM | MPT_NEEDS_WEIGHT, &memory), MPT_OK);
    CHECK(memory.master == 320 && memory.param == 160);
    CHECK_EQ_I(mpt_tensors_shard(&list, 1, 2), MPT_OK);
    CHECK(item[0].param == (void *)item[0].master && item[0].master == weights[0] + item[0].first);
}

/* A new master takes its values from weights that exist in param only. */
TEST(masters_begin_as_copies)
{
    static unsigned char room[4096];
    size_t               f, i;
    for (f = 0; f < 3; f++) {
        uint32_t    weights[40];
        mpt_tensor  item[1];
        mpt_tensors list;
        for (i = 0; i < 40; i++)
            element_set(weights, formats[f], i, 0.25f * (float)i);
        CHECK_EQ_I(mpt_tensors_init(&list, item, 1, formats[f], MPT_F32), MPT_OK);
        CHECK_EQ_I(mpt_tensors_add(&list, "w", 40, weights, NULL, NULL, NULL, NULL), MPT_OK);
        CHECK_EQ_I(mpt_tensors_place(&list, room, sizeof room), MPT_OK);
        for (i = 0; i < 40; i++) {
            CHECK(item[0].master[i] == 0.25f * (float)i);
            CHECK(element(weights, formats[f], i) == 0.25f * (float)i);
        }
    }
}

/* Step 2^32 has no bias left, and is counted. */
TEST(steps_beyond_32_bits)
{
    float         w[2] = {1.0f, 1.0f}, m[2] = {0.0f, 0.0f}, v[2] = {0.0f, 0.0f}, g[2] = {1.0f, -1.0f};
    mpt_tensor    t = mpt_tensor_grad_f32("w", g, 2u);
    mpt_adamw     o = mpt_adamw_defaults();
    mpt_scaler    s;
    mpt_step      step;
    memset(&step, 0, sizeof step);
    t.master = w, t.m = m, t.v = v;
    o.t = ((uint64_t)1 << 32) - 1u, o.weight_decay = 0.0f;
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    s.updates = ((uint64_t)1 << 32) - 1u;
    (void)mpt_scaler_scale(&s, 1.0f);
    g[0] *= s.scale, g[1] *= s.scale;
    CHECK_EQ_I(mpt_check(&s, &step, &t, 1u, NULL), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&o, &step, &t, 1u), MPT_OK);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
    CHECK(o.t == (uint64_t)1 << 32);
    CHECK(s.updates == (uint64_t)1 << 32);
    CHECK(fabsf(w[0] - (1.0f - 1e-3f * 0.1f / sqrtf(1e-3f))) < 1e-6f);     /* no bias is left */
    CHECK(fabsf(w[1] - (1.0f + 1e-3f * 0.1f / sqrtf(1e-3f))) < 1e-6f);
}

/* Counters beyond 2^32, and roots of large ones. */
TEST(constants_of_late_steps)
{
    const uint64_t late = (uint64_t)1 << 32;
    mpt_sgd        sgd;
    mpt_adamw      adamw = mpt_adamw_defaults();
    mpt_adafactor  ada = mpt_adafactor_defaults();
    mpt_step       step;
    memset(&sgd, 0, sizeof sgd);
    memset(&step, 0, sizeof step);
    step.grad_factor = step.clip_factor = 1.0f;
    sgd.lr = 1.0f, sgd.momentum = 0.5f, sgd.dampening = 0.25f, sgd.t = late;
    CHECK(mpti_sgd_consts(&sgd, &step).fresh == 0.75f);
    adamw.t = late - 1u;
    CHECK(mpti_adamw_consts(&adamw, &step).v_factor == 1.0f);
    adamw.beta2 = 0.99999f, adamw.t = 1000000u;
    CHECK(fabs((double)mpti_adamw_consts(&adamw, &step).v_factor - 1.0000223) < 2e-6);
    ada.t = late - 1u;
    CHECK(mpti_adafactor_consts(&ada, &step).most == 1.0 / 65536.0);
    ada.t = late;
    CHECK(mpti_adafactor_consts(&ada, &step).most < 2e-5);
    CHECK(fabs(mpti_root5(1099511627776.0) - 256.0) < 1e-9);
}

TEST(adam_eps_of_the_least_float)
{
    mpt_adamw o = mpt_adamw_defaults();
    mpt_step  step;
    memset(&step, 0, sizeof step);
    step.grad_factor = step.clip_factor = 1.0f;
    o.eps = mpti_f32_make(1u);
    CHECK_EQ_U(mpti_f32_bits(mpti_adamw_consts(&o, &step).eps), 0x00800000u);
}

TEST(kahan_rest_of_large_weights)
{
    CHECK(mpti_kahan_rest(40003.25f, 40000.0f, 1) == 6656.0f);
    CHECK(mpti_kahan_join(40000.0f, 6656.0f, 1) == 40003.25f);
}

/* Three matrices of one row: each column mean is one square. */
TEST(adafactor_matrices_of_one_row)
{
    float         w[9], g[9], v[12];
    mpt_tensor    t = mpt_tensor_grad_f32("w", g, 9u);
    mpt_adafactor o = mpt_adafactor_defaults();
    mpt_scaler    s;
    mpt_step      step;
    size_t        i;
    memset(&step, 0, sizeof step);
    memset(v, 0, sizeof v);
    t.master = w, t.v = v, t.columns = 3u, t.rows = 1u;
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    for (i = 0; i < 9u; i++)
        g[i] = mpt_scaler_scale(&s, (float)(i + 1u)), w[i] = 1.0f;
    CHECK_EQ_I(mpt_check(&s, &step, &t, 1u, NULL), MPT_OK);
    CHECK_EQ_I(mpt_adafactor_step(&o, &step, &t, 1u), MPT_OK);
    CHECK(fabsf(v[1] - 77.0f / 3.0f) < 1e-5f);
    for (i = 0; i < 9u; i++)            /* each column is one number */
        CHECK(v[3u + i] == (float)((i + 1u) * (i + 1u)));
}

/* Parts of a list meet, with bf16 moments, too. */
TEST(shards_meet)
{
    enum { N = 3 * 16384 + 2 };
    static uint16_t v_max[N];
    static float    g[N];
    mpt_tensor      item[1];
    mpt_tensors     list;
    size_t          part, at = 0;
    for (part = 0; part < 3u; part++) {
        CHECK_EQ_I(mpt_tensors_init(&list, item, 1u, MPT_F32, MPT_F32), MPT_OK);
        list.model.moments = MPT_MOMENTS_BF16, list.model.v_max = v_max;
        CHECK_EQ_I(mpt_tensors_add(&list, "w", N, NULL, g, NULL, NULL, NULL), MPT_OK);
        CHECK_EQ_I(mpt_tensors_shard(&list, part, 3u), MPT_OK);
        CHECK_EQ_U(item[0].first, at);
        CHECK(item[0].v_max == (void *)(v_max + at));
        at += item[0].n;
    }
    CHECK_EQ_U(at, N);
}

/* Half a tile: what follows stays. */
TEST(half_a_tile_ends_there)
{
    static float w[256], m[256], v[256], g[256];
    mpt_tensor   t = mpt_tensor_grad_f32("w", g, 128u);
    mpt_adamw    o = mpt_adamw_defaults();
    mpt_scaler   s;
    mpt_step     step;
    size_t       i;
    memset(&step, 0, sizeof step);
    for (i = 0; i < 256u; i++)
        w[i] = m[i] = v[i] = g[i] = 1.0f;
    t.master = w, t.m = m, t.v = v;
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step, &t, 1u, NULL), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&o, &step, &t, 1u), MPT_OK);
    for (i = 128; i < 256u; i++)
        CHECK(w[i] == 1.0f && m[i] == 1.0f && v[i] == 1.0f);
}

/* Equal tensors of a list have streams of their own, in every pass and piece. */
TEST(streams_of_equal_tensors)
{
    enum { N = 8 * 16384 + 512 };
    static mpt_bf16 w[2][N];
    static float    g[N], m[2][N], v[2][N];
    mpt_tensor      t[2];
    mpt_scaler      s;
    mpt_step        step;
    size_t          i, k;
    int             lamb;
    for (lamb = 0; lamb < 2; lamb++) {
        mpt_adamw o = mpt_adamw_defaults();
        memset(&step, 0, sizeof step);
        memset(m, 0, sizeof m);
        memset(v, 0, sizeof v);
        CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
        for (i = 0; i < N; i++) {
            g[i] = mpt_scaler_scale(&s, 1.0f);
            w[0][i] = w[1][i] = mpt_bf16_from_f32(1.0f);
        }
        for (k = 0; k < 2u; k++) {
            t[k] = mpt_tensor_grad_f32("w", g, N);
            t[k].param = w[k], t[k].param_format = MPT_BF16, t[k].storage = MPT_STORE_STOCHASTIC;
            t[k].m = m[k], t[k].v = v[k];
        }
        CHECK_EQ_I(mpt_check(&s, &step, t, 2u, NULL), MPT_OK);
        CHECK_EQ_I(lamb ? mpt_lamb_step(&o, &step, t, 2u) : mpt_adamw_step(&o, &step, t, 2u), MPT_OK);
        CHECK(memcmp(w[0], w[1], 512u * sizeof w[0][0]) != 0);
        CHECK(memcmp(w[0] + N - 512, w[1] + N - 512, 512u * sizeof w[0][0]) != 0);
    }
}

TEST(first_is_a_multiple_of_a_whole_chunk)
{
    static float g[16];
    mpt_tensor   t = mpt_tensor_grad_f32("t", g, 16u);
    t.whole = 3u * 16384u, t.first = 8192u;
    CHECK_EQ_I(mpt_tensors_validate(&t, 1, MPT_NEEDS_GRAD, NULL), MPT_E_ARG);
    t.first = 16384u;
    CHECK_EQ_I(mpt_tensors_validate(&t, 1, MPT_NEEDS_GRAD, NULL), MPT_OK);
}

TEST(means_of_several_matrices)
{
    mpt_tensor t;
    mpt_memory r;
    memset(&t, 0, sizeof t);
    t.n = 24, t.columns = 3, t.rows = 4;                    /* two matrices: 2 * 4 row, 2 * 3 column means */
    CHECK_EQ_I(mpt_memory_report(&t, 1, MPT_NEEDS_WEIGHT | MPT_NEEDS_FACTORS, &r), MPT_OK);
    CHECK_EQ_U(r.v, 14u * sizeof(float));
}

TEST(rounded_copy_is_not_the_master)
{
    static float w[4];
    mpt_tensor   t;
    memset(&t, 0, sizeof t);
    t.n = 4, t.master = w, t.param = w, t.param_format = MPT_F32;
    CHECK_EQ_I(mpt_tensors_validate(&t, 1, MPT_NEEDS_WEIGHT, NULL), MPT_OK);
    t.rounded = MPT_BF16;
    CHECK_EQ_I(mpt_tensors_validate(&t, 1, MPT_NEEDS_WEIGHT, NULL), MPT_E_ARG);
}

TEST(sums_may_not_overlap)
{
    static double g[8];
    mpt_tensor    t = mpt_tensor_grad_f32("t", (float *)(void *)g, 16u);
    t.whole = 16u, t.sums = g;
    CHECK_EQ_I(mpt_tensors_validate(&t, 1, MPT_NEEDS_GRAD, NULL), MPT_E_ARG);
}

TEST(add_refuses_shared_arrays)
{
    static float w[4], m[2][4], v[2][4];
    static short p[2][4], g[2][4];
    mpt_tensor   item[2];
    mpt_tensors  list;
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F16, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(&list, "a", 4, p[0], g[0], w, m[0], v[0]), MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(&list, "b", 4, p[1], g[1], w, m[1], v[1]), MPT_E_ARG);
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F16, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(&list, "a", 4, p[0], p[0], w, m[0], v[0]), MPT_E_ARG);
}

TEST(bytes_of_a_shard)
{
    static float w[2][16384];
    mpt_tensor   item[2];
    mpt_tensors  list;
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F32, MPT_F32), MPT_OK);
    list.needs = MPT_NEEDS_M;
    CHECK_EQ_I(mpt_tensors_add(&list, "a", 16384, NULL, NULL, w[0], NULL, NULL), MPT_OK);
    CHECK_EQ_I(mpt_tensors_add(&list, "b", 16384, NULL, NULL, w[1], NULL, NULL), MPT_OK);
    CHECK_EQ_I(mpt_tensors_shard(&list, 0, 1), MPT_OK);
    CHECK(list.bytes >= 2u * 2u * sizeof w[0]);             /* two moments and two gradients */
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(stochastic_equals_the_judge);
    RUN(stochastic_never_makes_inf_and_keeps_nan);
    RUN(split_holds_every_float);
    RUN(weights_set_and_get);
    RUN_EXACT(steps_equal_a_naive_loop);
    RUN(steps_follow_the_textbook);
    RUN(decay_is_nominal_at_any_rate);
    RUN(lion_decays_with_one_rounding);
    RUN(moments_in_bf16_follow);
    RUN(moments_in_bf16_are_unbiased);
    RUN(small_updates_survive);
    RUN(random_bits_have_an_address);
    RUN(skip_changes_nothing);
    RUN_EXACT(invariance_of_the_loss);
    RUN_EXACT(groups_are_optimizers_of_their_own);
    RUN(groups_and_options_as_pytorch_has_them);
    RUN(copies_of_floats_may_be_rounded);
    RUN_EXACT(gradients_become_zero);
    RUN_EXACT(maximize_turns_the_gradient);
    RUN(a_step_may_stay_open);
    RUN_EXACT(amsgrad);
    RUN(bad_tensors);
    RUN(bad_hyperparameters);
    RUN(defaults);
    RUN(adafactor_follows_the_textbook);
    RUN_EXACT(adafactor_forgets_by_the_step);
    RUN_EXACT(adafactor_bits);
    RUN(adafactor_refuses);
    RUN(optimizers_need_what_their_rows_say);
    RUN(overlap_is_found_in_any_list);
    RUN(overlap_is_refused_by_the_first_step);
    RUN(weights_do_not_come_from_themselves);
    RUN(moments_that_are_not_needed_stay);
    RUN(lion_of_zero_moves_nothing);
    RUN(lamb_ratio_of_zero_is_one);
    RUN(subnormals_flushed);
    RUN(new_tensors_keep_what_they_are_given);
    RUN(registry_places_arrays);
    RUN(registry_places_what_is_needed);
    RUN_EXACT(gradients_may_move);
    RUN_EXACT(parts_step_as_the_whole);
    RUN_EXACT(many_sums_go_around_in_pieces);
    RUN(parts_are_placed_and_refused);
    RUN(parts_wait_for_the_other_ranks);
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ == 2
    (void)mt_test_lamb_norms_are_added_on_the_tree;         /* x87 sums are wider than a double */
    (void)mt_test_lamb_steps_by_whole_norms;
#else
    RUN_EXACT(lamb_norms_are_added_on_the_tree);
    RUN_EXACT(lamb_steps_by_whole_norms);
#endif
    RUN(registry);
    RUN(steps_wherever_arrays_begin);
    RUN(masters_begin_as_copies);
    RUN(no_copy_that_is_the_master_again);
    RUN_EXACT(steps_beyond_32_bits);
    RUN_EXACT(constants_of_late_steps);
    RUN_EXACT(adam_eps_of_the_least_float);
    RUN_EXACT(kahan_rest_of_large_weights);
    RUN_EXACT(adafactor_matrices_of_one_row);
    RUN(shards_meet);
    RUN_EXACT(half_a_tile_ends_there);
    RUN_EXACT(streams_of_equal_tensors);
    RUN_EXACT(first_is_a_multiple_of_a_whole_chunk);
    RUN_EXACT(means_of_several_matrices);
    RUN_EXACT(rounded_copy_is_not_the_master);
    RUN_EXACT(sums_may_not_overlap);
    RUN_EXACT(add_refuses_shared_arrays);
    RUN_EXACT(bytes_of_a_shard);
    return mt_end();
}
