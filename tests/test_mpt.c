/* test_mpt.c -- tests of mpt.h: loss scaler, call order, check and clip, optimizers, range report.
 *
 *     cc -O2 -std=c99 -I. tests/test_mpt.c tests/impl.c -o test_mpt -lm && ./test_mpt
 *
 * Results are compared bit for bit wherever the header promises exact bits. Where a result is compared with
 * exact or double arithmetic, a comment beside the test gives the error bound and the reason for it. */
#include "../mpt.h"

#include "test.h"
#include "train.h"

#include <fenv.h>
#include <float.h>

static layer la, lb, lc;/* too large for some stacks */

/* ---- scaler ---- */

TEST(scaler_defaults)
{
    mpt_scaler_config p = mpt_scaler_defaults(MPT_SCALER_PYTORCH), s = mpt_scaler_defaults(MPT_SCALER_STATIC);
    mpt_scaler        a, b;
    const mpt_scaler_config m = mpt_scaler_defaults(MPT_SCALER_MPT);
    CHECK(p.growth == 2.0 && p.backoff == 0.5 && p.interval == 2000 && p.init_scale == 65536.0f);
    CHECK_EQ_I(p.dialect, MPT_SCALER_PYTORCH);
    CHECK_EQ_I(s.dialect, MPT_SCALER_STATIC);
    CHECK_EQ_I(mpt_scaler_init(&a, NULL), MPT_OK);
    CHECK_EQ_I(mpt_scaler_init(&b, &m), MPT_OK);
    CHECK(!memcmp(&a, &b, sizeof a));
    CHECK_EQ_I(mpt_scaler_init(&a, &p), MPT_OK);
    CHECK(a.scale == 65536.0f && !a.in_use && !a.updates && !a.skipped && !a.good_steps);
    CHECK_EQ_I(mpt_scaler_init(&a, &s), MPT_OK);
    p = mpt_scaler_defaults(MPT_SCALER_DIALECT_COUNT);
    CHECK_EQ_I(mpt_scaler_init(&a, &p), MPT_E_ARG);
}

TEST(scaler_scale_multiplies)
{
    mpt_scaler s = scaler_static(3.0f), zeroed;
    memset(&zeroed, 0, sizeof zeroed);
    CHECK_EQ_U(mpti_f32_bits(mpt_scaler_scale(&s, 0.1f)), mpti_f32_bits(3.0f * 0.1f));
    CHECK_EQ_U(mpti_f32_bits(mpt_scaler_scale(&s, -FLT_MAX)), 0xff800000u);
    CHECK_EQ_U(mpti_f32_bits(mpt_scaler_scale(NULL, 1.0f)), BITS_QNAN);
    CHECK_EQ_U(mpti_f32_bits(mpt_scaler_scale(&zeroed, 1.0f)), BITS_QNAN);
    CHECK_EQ_U(zeroed.in_use, 0);
}

static void update(mpt_scaler *s, int found_inf)
{
    CHECK_EQ_I(mpt_scaler_record(s, found_inf, 0), MPT_OK);
    CHECK_EQ_I(mpt_scaler_update(s), MPT_OK);
}

/* One letter per step, G good or B bad; expects the bits of the scale and the good steps after each one. */
static void trace(mpt_scaler_config c, const char *steps, const uint32_t *scale, const int *good)
{
    mpt_scaler s = scaler_from(c);
    uint64_t   i, skipped = 0;
    mt_context(steps, NULL);
    for (i = 0; steps[i]; i++) {
        update(&s, steps[i] == 'B' ? 7 : 0);
        skipped += steps[i] == 'B';
        CHECK_EQ_U_AT(mpti_f32_bits(s.scale), scale[i], i);
        CHECK_EQ_U_AT(s.good_steps, good[i], i);
        CHECK_EQ_U_AT(s.skipped, skipped, i);
        CHECK_EQ_U_AT(s.updates, i + 1u, i);
        CHECK(!s.found_inf && !s.checks);
    }
    mt_context(NULL, NULL);
}

TEST(scaler_grows_after_interval_backs_off_and_resets)
{
    const uint32_t scale[] = {0x47800000u, 0x47800000u, 0x48000000u, 0x48000000u, 0x47800000u,
                              0x47800000u, 0x47800000u, 0x48000000u, 0x47800000u, 0x47000000u};
    const int      good[] = {1, 2, 0, 1, 0, 1, 2, 0, 0, 0};
    trace(dynamic(65536.0f, 2.0, 0.5, 3), "GGGGBGGGBB", scale, good);
}

TEST(scaler_interval_one)
{
    const uint32_t scale[] = {0x40000000u, 0x40800000u, 0x40000000u, 0x40800000u};
    const int      good[] = {0, 0, 0, 0};
    trace(dynamic(1.0f, 2.0, 0.5, 1), "GGBG", scale, good);
}

TEST(scaler_growth_to_infinity_is_refused_but_counted)
{
    const uint32_t top[] = {0x7f000000u, 0x7f000000u, 0x7f000000u, 0x7f000000u, 0x7e800000u};
    const int      good[] = {1, 0, 1, 0, 0};
    /* one ulp below FLT_MAX, times 1 + 2^-24, rounds to FLT_MAX; FLT_MAX times the same rounds to Inf */
    const uint32_t edge[] = {0x7f7fffffu, 0x7f7fffffu, 0x7effffffu};
    const int      none[] = {0, 0, 0};
    trace(dynamic(pow2f(127), 2.0, 0.5, 2), "GGGGB", top, good);
    trace(dynamic(mpti_f32_make(0x7f7ffffeu), 1.0 + ldexp(1.0, -24), 0.5, 1), "GGB", edge, none);
}

TEST(scaler_shrinks_to_subnormals_and_zero)
{
    const uint32_t scale[] = {0x00400000u, 0x00200000u, 0x00400000u};
    const uint32_t least[] = {2u, 1u, 0u, 0u, 0u, 0u};     /* 2^-150 is a tie: rounds to even, 0 */
    const int      good[] = {0, 0, 0, 0, 0, 0};
    trace(dynamic(FLT_MIN, 2.0, 0.5, 1), "BBG", scale, good);
    trace(dynamic(mpti_f32_make(4u), 2.0, 0.5, 1), "BBBBGB", least, good);
    {   /* a scale stuck at 0 (possible in PyTorch too) gives 0 * x, not the NaN of a zeroed scaler */
        mpt_scaler s = scaler_static(1.0f);
        s.scale = 0.0f;
        CHECK_EQ_U(mpti_f32_bits(mpt_scaler_scale(&s, 3.0f)), 0u);
        CHECK_EQ_U(s.in_use, 3);
    }
}

/* Factors that are not powers of two: the header multiplies in double and rounds the product to FP32. If it
 * rounded the factor to FP32 first, all scales of the first trace except the first would differ. */
TEST(scaler_odd_factors)
{
    const uint32_t a[] = {0x47c00000u, 0x46e66666u, 0x472cccccu, 0x47819999u, 0x469b851eu,
                          0x46e947adu, 0x460bf7ceu, 0x4527f62au, 0x44498dccu, 0x4371dd5bu};
    const int      none[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const uint32_t b[] = {0x447a0000u, 0x44898000u, 0x44898000u, 0x44974000u,
                          0x4453c000u, 0x4453c000u, 0x4468eccdu, 0x44230c29u};
    const int      good[] = {1, 0, 1, 0, 0, 1, 0, 0};
    trace(dynamic(65536.0f, 1.5, 0.3, 1), "GBGGBGBBBB", a, none);
    trace(dynamic(1000.0f, 1.1, 0.7, 2), "GGGGBGGB", b, good);
}

TEST(scaler_static_never_moves)
{
    mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_STATIC);
    const uint32_t    scale[] = {0x44800000u, 0x44800000u, 0x44800000u, 0x44800000u};
    const int         good[] = {0, 0, 0, 0};
    trace(c, "GBBG", scale, good);
    c.growth = c.backoff = -1.0;        /* a static scaler does not use these: any value is allowed */
    c.interval = 0;
    trace(c, "BGGB", scale, good);
}

/* ---- misuse: each call returns its status and changes nothing ---- */

/* All memory that a training step can touch. */
typedef struct world {
    mpt_scaler scaler;
    mpt_step   step;
    mpt_sgd    sgd;
    mpt_adamw  adamw;
    mpt_tensor tensor[2];
    float      w[2][4], m[2][4], v[2][4], g[2][4];
    uint16_t   p[2][4];
    mpt_tensor_report report[2];
} world;

static void world_make(world *w)
{
    int i, j;
    memset(w, 0, sizeof *w);
    (void)mpt_scaler_init(&w->scaler, NULL);
    w->sgd.lr = 0.1f;
    w->sgd.momentum = 0.9f;
    w->adamw = mpt_adamw_defaults();
    memset(w->report, 0x5a, sizeof w->report);
    for (i = 0; i < 2; i++) {
        w->tensor[i] = mpt_tensor_grad_f32("t", w->g[i], 4);
        w->tensor[i].master = w->w[i];
        w->tensor[i].m = w->m[i];
        w->tensor[i].v = w->v[i];
        w->tensor[i].param = w->p[i];
        w->tensor[i].param_format = MPT_F16;
        for (j = 0; j < 4; j++) {
            w->w[i][j] = random_unit();
            w->g[i][j] = random_unit() * 65536.0f;
        }
    }
}

#define REFUSED(w, call, status)                        \
    do {                                                \
        world before_;                                  \
        memcpy(&before_, &(w), sizeof before_);         \
        CHECK_EQ_I(call, status);                       \
        CHECK(!memcmp(&before_, &(w), sizeof before_)); \
    } while (0)

/* A refused step marks the record, so that the next check is refused, too. It changes nothing else. */
#define REFUSED_STEP(w, call, status)                                       \
    do {                                                                    \
        const uint32_t stage_ = (w).step.stage;                             \
        world          marked_;                                             \
        (w).step.stage |= (uint32_t)MPT_STAGE_REFUSED;                      \
        memcpy(&marked_, &(w), sizeof marked_);                             \
        (w).step.stage = stage_;                                            \
        CHECK_EQ_I(call, status);                                           \
        CHECK(!memcmp(&marked_, &(w), sizeof marked_));                     \
        (w).step.stage = stage_;                                            \
    } while (0)

#define REFUSED_STEPS(w, status)                                                      \
    do {                                                                              \
        REFUSED_STEP(w, mpt_sgd_step(&(w).sgd, &(w).step, (w).tensor, 2), status);    \
        REFUSED_STEP(w, mpt_adamw_step(&(w).adamw, &(w).step, (w).tensor, 2), status); \
    } while (0)

/* A refused mpt_check or mpt_unscale marks the step as bad, so that a caller who ignores the status skips it,
 * and the scaler, so that mpt_scaler_update refuses. It changes nothing else. */
#define REFUSED_CHECK(w, call, status)                  \
    do {                                                \
        world before_;                                  \
        memcpy(&before_, &(w), sizeof before_);         \
        CHECK_EQ_I(call, status);                       \
        CHECK_EQ_U((w).step.found_inf, 1);              \
        (w).step.found_inf = before_.step.found_inf;    \
        CHECK_EQ_U((w).scaler.in_use & 4u, 4);          \
        before_.scaler.in_use = (w).scaler.in_use;      \
        CHECK(!memcmp(&before_, &(w), sizeof before_)); \
    } while (0)

#define REFUSED_CHECKS(w, status)                                                       \
    do {                                                                                \
        REFUSED_CHECK(w, mpt_check(&(w).scaler, &(w).step, (w).tensor, 2, NULL), status);       \
        REFUSED_CHECK(w, mpt_check(&(w).scaler, &(w).step, (w).tensor, 2, (w).report), status); \
        REFUSED_CHECK(w, mpt_unscale(&(w).scaler, &(w).step, (w).tensor, 2, NULL), status);     \
        REFUSED_CHECK(w, mpt_unscale(&(w).scaler, &(w).step, (w).tensor, 2, (w).report), status); \
    } while (0)

/* A second check makes the step be skipped and the update refuse, whatever is called in between; gradients do
 * not change. Then all is put back. */
#define REFUSED_AGAIN(w)                                                                             \
    do {                                                                                             \
        world before_;                                                                               \
        memcpy(&before_, &(w), sizeof before_);                                                      \
        CHECK_EQ_I(mpt_check(&(w).scaler, &(w).step, (w).tensor, 2, (w).report), MPT_E_ORDER);       \
        CHECK_EQ_I(mpt_unscale(&(w).scaler, &(w).step, (w).tensor + 1, 1, NULL), MPT_E_ORDER);       \
        CHECK_EQ_U((w).step.found_inf, 1);                                                           \
        CHECK(strstr(mpt_order_text(&(w).scaler, &(w).step), "a check was refused") != NULL);        \
        (void)mpt_scaler_scale(&(w).scaler, 1.0f);                                                   \
        CHECK_EQ_I(mpt_scaler_record(&(w).scaler, 1, 0), MPT_OK);                                    \
        CHECK_EQ_I(mpt_scaler_update(&(w).scaler), MPT_E_ORDER);                                     \
        CHECK((w).scaler.checks == 0 && (w).scaler.in_use == 2u && (w).scaler.found_inf == 0);       \
        CHECK((w).scaler.updates == before_.scaler.updates + 1u);                                    \
        (w).step.found_inf = before_.step.found_inf;                                                 \
        (w).scaler = before_.scaler;                                                                 \
        CHECK(!memcmp(&before_, &(w), sizeof before_));                                              \
    } while (0)

/* A refused mpt_clip marks the record as a refused step does, and no step may follow. */
#define REFUSED_CLIP(w, call, status)                                                  \
    do {                                                                               \
        world before_;                                                                 \
        memcpy(&before_, &(w), sizeof before_);                                        \
        CHECK_EQ_I(call, status);                                                      \
        CHECK_EQ_U((w).step.stage, (unsigned)MPT_STAGE_REFUSED);                       \
        CHECK(mpt_adamw_step(&(w).adamw, &(w).step, (w).tensor, 2) != MPT_OK);         \
        (w).step = before_.step;                                                       \
        CHECK(!memcmp(&before_, &(w), sizeof before_));                                \
    } while (0)

#define REFUSED_CLIPS(w, status)                                                      \
    do {                                                                              \
        REFUSED_CLIP(w, mpt_clip(&(w).step, 1.0f), status);                           \
        REFUSED_CLIP(w, mpt_clip_apply(&(w).step, (w).tensor, 2, 0.0f), status);      \
    } while (0)

TEST(order_nothing_before_the_first_scale)
{
    world w;
    int   zeroed;
    for (zeroed = 0; zeroed < 2; zeroed++) {
        world_make(&w);
        if (zeroed)
            memset(&w.scaler, 0, sizeof w.scaler);
        REFUSED_CHECKS(w, MPT_E_ORDER);
        REFUSED_STEPS(w, MPT_E_ORDER);
        REFUSED_CLIPS(w, MPT_E_ORDER);
        REFUSED(w, mpt_scaler_record(&w.scaler, 1, 0), MPT_E_ORDER);
        CHECK_EQ_I(mpt_scaler_update(&w.scaler), MPT_E_ORDER);
        CHECK(!w.scaler.in_use && w.scaler.updates == 1u);
    }
}

TEST(order_each_call_once)
{
    world w;
    int   unscale;
    for (unscale = 0; unscale < 2; unscale++) {
        world_make(&w);
        (void)mpt_scaler_scale(&w.scaler, 1.0f);
        REFUSED_STEPS(w, MPT_E_ORDER);                                  /* a step without a check */
        REFUSED_CLIPS(w, MPT_E_ORDER);
        CHECK_EQ_I(mpt_scaler_update(&w.scaler), MPT_E_ORDER);          /* an update without a check */
        (void)mpt_scaler_scale(&w.scaler, 1.0f);
        CHECK_EQ_I((unscale ? mpt_unscale : mpt_check)(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
        REFUSED_AGAIN(w);                                               /* a second check */
        if (!unscale)
            REFUSED_CLIP(w, mpt_clip_apply(&w.step, w.tensor, 2, 0.0f), MPT_E_ORDER);
        CHECK_EQ_I(mpt_clip(&w.step, 0.5f), MPT_OK);
        CHECK_EQ_I(mpt_sgd_step(&w.sgd, &w.step, w.tensor, 2), MPT_OK);
        REFUSED_STEPS(w, MPT_E_ORDER);                                  /* a second step */
        REFUSED_AGAIN(w);                                               /* a check after the step */
        REFUSED_CLIPS(w, MPT_E_ORDER);
        (void)mpt_scaler_scale(&w.scaler, 1.0f);                        /* of the next batch, too early */
        CHECK_EQ_I(mpt_scaler_update(&w.scaler), MPT_OK);
        REFUSED_STEPS(w, MPT_E_ORDER);                                  /* the next step, too */
        CHECK_EQ_I(mpt_check(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_E_ORDER);     /* without a scale */
        CHECK_EQ_I(mpt_scaler_update(&w.scaler), MPT_E_ORDER);
        (void)mpt_scaler_scale(&w.scaler, 1.0f);
        CHECK_EQ_I(mpt_check(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
    }
}

TEST(order_a_refused_check_skips_the_step)
{
    world w, was;
    world_make(&w);
    (void)mpt_scaler_scale(&w.scaler, 1.0f);
    CHECK_EQ_I(mpt_check(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
    CHECK_EQ_U(w.step.found_inf, 0);
    w.step.bad_tensor = w.step.bad_index = w.step.inf_count = w.step.nan_count = w.step.range_count = 7u;
    w.step.bad_cause = w.step.cause = MPT_CAUSE_NAN;
    CHECK_EQ_I(mpt_unscale(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_E_ORDER);
    CHECK_EQ_U(w.step.bad_tensor | w.step.bad_index | w.step.inf_count | w.step.nan_count, 0);
    CHECK_EQ_U(w.step.range_count | w.step.bad_cause | w.step.cause, 0);        /* of an older check */
    memcpy(&was, &w, sizeof w);
    CHECK_EQ_I(mpt_adamw_step(&w.adamw, &w.step, w.tensor, 2), MPT_OK);
    CHECK_EQ_U(w.step.stage, (unsigned)MPT_STAGE_STEPPED);
    w.step.stage = was.step.stage;
    CHECK(!memcmp(&was, &w, sizeof w));
    CHECK_EQ_I(mpt_scaler_update(&w.scaler), MPT_E_ORDER);
    (void)mpt_scaler_scale(&w.scaler, 1.0f);
    CHECK_EQ_I(mpt_check(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
    CHECK_EQ_U(w.step.found_inf, 0);                                    /* this starts a new record */
    CHECK_EQ_I(mpt_scaler_update(&w.scaler), MPT_OK);
}

/* After a new mpt_scaler_init, the scaler does not mistake an old record for one of its own. */
TEST(order_after_a_new_start)
{
    world w;
    world_make(&w);
    (void)mpt_scaler_scale(&w.scaler, 1.0f);
    CHECK_EQ_I(mpt_check(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
    CHECK_EQ_I(mpt_scaler_init(&w.scaler, NULL), MPT_OK);
    (void)mpt_scaler_scale(&w.scaler, 1.0f);
    CHECK_EQ_I(mpt_check(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
}

TEST(bad_pointers)
{
    world w;
    world_make(&w);
    (void)mpt_scaler_scale(&w.scaler, 1.0f);
    CHECK_EQ_I(mpt_check(&w.scaler, NULL, w.tensor, 2, NULL), MPT_E_ARG);
    CHECK_EQ_U(w.scaler.in_use, 7);
    REFUSED_CHECK(w, mpt_check(NULL, &w.step, w.tensor, 2, NULL), MPT_E_ARG);
    REFUSED_CHECK(w, mpt_check(&w.scaler, &w.step, NULL, 2, NULL), MPT_E_ARG);
    REFUSED_CHECK(w, mpt_check(&w.scaler, &w.step, NULL, (size_t)-1, NULL), MPT_E_ARG);
    REFUSED_CHECK(w, mpt_unscale(NULL, &w.step, w.tensor, 2, NULL), MPT_E_ARG);
    REFUSED(w, mpt_unscale(&w.scaler, NULL, w.tensor, 2, NULL), MPT_E_ARG);
    REFUSED_CHECK(w, mpt_unscale(&w.scaler, &w.step, NULL, 2, NULL), MPT_E_ARG);
    REFUSED(w, mpt_scaler_record(NULL, 1, 0), MPT_E_ARG);
    REFUSED(w, mpt_scaler_update(NULL), MPT_E_ARG);
    REFUSED(w, mpt_clip(NULL, 1.0f), MPT_E_ARG);
    REFUSED(w, mpt_clip_apply(NULL, w.tensor, 2, 0.0f), MPT_E_ARG);
    REFUSED(w, mpt_publish(NULL, 2), MPT_E_ARG);
    CHECK_EQ_I(mpt_unscale(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
    REFUSED_CLIP(w, mpt_clip_apply(&w.step, NULL, 2, 0.0f), MPT_E_ARG);
    REFUSED_STEP(w, mpt_sgd_step(NULL, &w.step, w.tensor, 2), MPT_E_ARG);
    REFUSED(w, mpt_sgd_step(&w.sgd, NULL, w.tensor, 2), MPT_E_ARG);
    REFUSED_STEP(w, mpt_sgd_step(&w.sgd, &w.step, NULL, 2), MPT_E_ARG);
    REFUSED_STEP(w, mpt_adamw_step(NULL, &w.step, w.tensor, 2), MPT_E_ARG);
    REFUSED(w, mpt_adamw_step(&w.adamw, NULL, w.tensor, 2), MPT_E_ARG);
    REFUSED_STEP(w, mpt_adamw_step(&w.adamw, &w.step, NULL, 2), MPT_E_ARG);
}

TEST(bad_clip_norms)
{
    const uint32_t norms[] = {0u, 0x80000000u, 0xbf800000u, BITS_INF, 0xff800000u, BITS_QNAN};
    world          w;
    size_t         i;
    world_make(&w);
    (void)mpt_scaler_scale(&w.scaler, 1.0f);
    CHECK_EQ_I(mpt_unscale(&w.scaler, &w.step, w.tensor, 2, NULL), MPT_OK);
    for (i = 0; i < COUNT(norms); i++) {
        REFUSED_CLIP(w, mpt_clip(&w.step, mpti_f32_make(norms[i])), MPT_E_ARG);
        if (i > 1)          /* 0: no limit */
            REFUSED_CLIP(w, mpt_clip_apply(&w.step, w.tensor, 2, mpti_f32_make(norms[i])), MPT_E_ARG);
    }
}

/* The member `spoilt` of the second tensor is invalid: each call that uses this member must refuse. */
static void refused_everywhere(world *w, unsigned spoilt, mpt_status status, const char *why)
{
    const unsigned sgd = MPT_NEEDS_MASTER | MPT_NEEDS_GRAD | MPT_NEEDS_M;
    mpt_fault      fault = {77, NULL};
    mpt_scaler     s = scaler_static(1.0f);
    mpt_step       step = step_zero();
    REFUSED(*w, mpt_tensors_validate(w->tensor, 2, 31u, &fault), status);
    CHECK_EQ_U(fault.tensor, 1);
    CHECK(fault.why && strstr(fault.why, why));
    REFUSED(*w, mpt_tensors_validate(w->tensor, 2, 31u, NULL), status);
    REFUSED_STEP(*w, mpt_adamw_step(&w->adamw, &w->step, w->tensor, 2), status);
    if (spoilt & sgd)
        REFUSED_STEP(*w, mpt_sgd_step(&w->sgd, &w->step, w->tensor, 2), status);
    if (spoilt & MPT_NEEDS_GRAD) {
        REFUSED(*w, mpt_check(&s, &step, w->tensor, 2, NULL), status);
        REFUSED(*w, mpt_unscale(&s, &step, w->tensor, 2, NULL), status);
        REFUSED_CLIP(*w, mpt_clip_apply(&w->step, w->tensor, 2, 0.0f), status);
        CHECK(!step.update && step.found_inf && !s.checks && s.in_use & 4u);
    }
    if (spoilt & (MPT_NEEDS_MASTER | MPT_NEEDS_PARAM))
        REFUSED(*w, mpt_publish(w->tensor, 2), status);
}

static void world_unscaled(world *w)
{
    world_make(w);
    (void)mpt_scaler_scale(&w->scaler, 1.0f);
    CHECK_EQ_I(mpt_unscale(&w->scaler, &w->step, w->tensor, 2, NULL), MPT_OK);
}

TEST(bad_tensors_null_arrays)
{
    world w;
    world_unscaled(&w);
    w.tensor[1].master = NULL;
    refused_everywhere(&w, MPT_NEEDS_MASTER, MPT_E_ARG, "master is NULL");
    world_unscaled(&w);
    w.tensor[1].grad = NULL;
    refused_everywhere(&w, MPT_NEEDS_GRAD, MPT_E_ARG, "grad is NULL");
    world_unscaled(&w);
    w.tensor[1].m = NULL;
    refused_everywhere(&w, MPT_NEEDS_M, MPT_E_ARG, "m is NULL");
    world_unscaled(&w);
    w.tensor[1].v = NULL;
    refused_everywhere(&w, MPT_NEEDS_V, MPT_E_ARG, "v is NULL");
    world_unscaled(&w);
    w.tensor[1].param = NULL;       /* allowed: then mpt_publish writes no copy */
    CHECK_EQ_I(mpt_publish(w.tensor, 2), MPT_OK);
    CHECK(!w.p[1][0]);
    CHECK_EQ_I(mpt_sgd_step(&w.sgd, &w.step, w.tensor, 2), MPT_OK);
    CHECK(w.p[0][0] && !w.p[1][0]);
}

TEST(bad_tensors_formats)
{
    const mpt_format bad[] = {MPT_F64, MPT_TF32, MPT_E4M3, MPT_E8M0, MPT_FORMAT_COUNT, (mpt_format)31};
    world            w;
    size_t           i;
    for (i = 0; i < COUNT(bad); i++) {
        world_unscaled(&w);
        w.tensor[1].grad_format = bad[i];
        refused_everywhere(&w, MPT_NEEDS_GRAD, MPT_E_UNSUPPORTED, "grad_format");
        world_unscaled(&w);
        w.tensor[1].param_format = bad[i];
        refused_everywhere(&w, MPT_NEEDS_MASTER, MPT_E_UNSUPPORTED, "param_format");
    }
}

TEST(validate_names_the_first_fault)
{
    mpt_fault  fault = {77, "old"};
    world      w;
    world_make(&w);
    CHECK_EQ_I(mpt_tensors_validate(w.tensor, 2, 31u, &fault), MPT_OK);
    CHECK(!fault.why && !fault.tensor);
    CHECK_EQ_I(mpt_tensors_validate(NULL, 0, 31u, &fault), MPT_OK);
    CHECK_EQ_I(mpt_tensors_validate(NULL, 1, 31u, &fault), MPT_E_ARG);
    CHECK(fault.why && strstr(fault.why, "list"));
    w.tensor[0].m = w.tensor[1].v = NULL;
    CHECK_EQ_I(mpt_tensors_validate(w.tensor, 2, 31u, &fault), MPT_E_ARG);
    CHECK(fault.tensor == 0 && fault.why && strstr(fault.why, "m is NULL"));
    CHECK_EQ_I(mpt_tensors_validate(w.tensor, 2, MPT_NEEDS_V, &fault), MPT_E_ARG);
    CHECK(fault.tensor == 1 && fault.why && strstr(fault.why, "v is NULL"));
    CHECK_EQ_I(mpt_tensors_validate(w.tensor, 2, MPT_NEEDS_GRAD, &fault), MPT_OK);
    CHECK(!fault.why && !fault.tensor);
}

TEST(null_with_size_zero)
{
    mpt_scaler s = scaler_static(2.0f);
    mpt_step   step = step_zero();
    mpt_sgd    sgd = {0.1f, 0.9f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_adamw  adamw = mpt_adamw_defaults();
    mpt_tensor empty[2];
    size_t     count;
    memset(empty, 0, sizeof empty);
    for (count = 0; count < 3; count += 2) {
        const mpt_tensor *list = count ? empty : NULL;
        (void)mpt_scaler_scale(&s, 1.0f);
        CHECK_EQ_I(mpt_unscale(&s, &step, list, count, NULL), MPT_OK);
        CHECK(!step.found_inf && mpti_f64_bits(step.norm) == 0u && mpti_f64_bits(step.sumsq) == 0u);
        CHECK_EQ_I(mpt_clip(&step, 1.0f), MPT_OK);
        CHECK(step.clip_factor == 1.0f);
        CHECK_EQ_I(mpt_clip_apply(&step, list, count, 0.0f), MPT_OK);
        CHECK_EQ_I(mpt_sgd_step(&sgd, &step, list, count), MPT_OK);
        CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
        (void)mpt_scaler_scale(&s, 1.0f);
        CHECK_EQ_I(mpt_check(&s, &step, list, count, NULL), MPT_OK);
        CHECK_EQ_I(mpt_adamw_step(&adamw, &step, list, count), MPT_OK);
        CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
        CHECK_EQ_I(mpt_publish(list, count), MPT_OK);
    }
    CHECK(sgd.t == 2 && adamw.t == 2);
}

/* ---- two optimizers under one scale ---- */

TEST(two_optimizers_share_a_scale)
{
    mpt_scaler s = scaler_from(dynamic(1024.0f, 2.0, 0.5, 2));
    mpt_step   bad = step_zero(), good = step_zero();
    mpt_sgd    sgd = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_adamw  adamw = mpt_adamw_defaults();
    static arrays was;
    layer_make(&la, 10, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    layer_make(&lb, 10, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    layer_gradient(&la, 1024.0f);
    layer_gradient(&lb, 1024.0f);
    set_bits(la.a.grad, MPT_F32, 3, BITS_INF);
    memcpy(&was, &la.a, sizeof was);
    CHECK_EQ_I(mpt_check(&s, &bad, &la.t, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_check(&s, &good, &lb.t, 1, NULL), MPT_OK);
    CHECK(bad.found_inf && !good.found_inf && s.found_inf && s.checks == 2);
    CHECK_EQ_I(mpt_sgd_step(&sgd, &bad, &la.t, 1), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&adamw, &good, &lb.t, 1), MPT_OK);
    CHECK(!memcmp(&was, &la.a, sizeof was) && sgd.t == 0);
    CHECK(adamw.t == 1 && lb.a.m[0] != 0.0f);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
    CHECK(s.scale == 512.0f && s.skipped == 1 && s.updates == 1 && !s.good_steps);

    layer_gradient(&la, mpt_scaler_scale(&s, 1.0f));     /* both records can be used in the next step */
    CHECK_EQ_I(mpt_check(&s, &bad, &la.t, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_check(&s, &good, &lb.t, 1, NULL), MPT_OK);
    CHECK(!bad.found_inf && !good.found_inf && bad.grad_factor == 1.0f / 512.0f);
    CHECK_EQ_I(mpt_sgd_step(&sgd, &bad, &la.t, 1), MPT_OK);
    CHECK(sgd.t == 1 && memcmp(was.master, la.a.master, sizeof was.master) != 0);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
    CHECK(s.scale == 512.0f && s.good_steps == 1 && s.skipped == 1);
}

/* SAM: up by a first gradient, then down by that at the place reached, from where it began; a bad second one
 * moves nothing, and the copies are as before once they are published. */
TEST(two_backward_passes_for_one_step)
{
    int bad;
    for (bad = 0; bad < 2; bad++) {
        mpt_scaler s = scaler_static(4.0f);
        mpt_step   up = step_zero(), down = step_zero();
        mpt_sgd    climb = {0.0f, 0.0f, 0.0f, 0u, 0.0f, MPT_STEP_MAXIMIZE | MPT_STEP_ZERO_GRADS, 0u};
        mpt_sgd    sgd = {0.5f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
        float      w[2] = {1.0f, 2.0f}, g[2] = {3.0f * 4.0f, 4.0f * 4.0f};
        uint16_t   copy[2] = {0x3c00u, 0x4000u};
        mpt_tensor t = grad_of(g, MPT_F32, 2);
        t.master = w, t.param = copy, t.param_format = MPT_F16;
        CHECK_EQ_I(mpt_check(&s, &up, &t, 1, NULL), MPT_OK);
        climb.lr = 1.25f / (float)up.norm;
        CHECK_EQ_I(mpt_sgd_step(&climb, &up, &t, 1), MPT_OK);
        CHECK(w[0] == 1.75f && w[1] == 3.0f && copy[0] == 0x3f00u && copy[1] == 0x4200u && g[0] == 0.0f);
        g[0] = mpt_scaler_scale(&s, w[0]);          /* the gradient of half the square of w */
        g[1] = bad ? mpti_f32_make(BITS_INF) : mpt_scaler_scale(&s, w[1]);
        CHECK_EQ_I(mpt_check(&s, &down, &t, 1, NULL), MPT_OK);
        w[0] = 1.0f, w[1] = 2.0f;
        CHECK_EQ_I(mpt_sgd_step(&sgd, &down, &t, 1), MPT_OK);
        CHECK_EQ_I(mpt_publish(&t, 1), MPT_OK);
        CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
        CHECK(w[0] == (bad ? 1.0f : 0.125f) && w[1] == (bad ? 2.0f : 0.5f));
        CHECK(copy[0] == (bad ? 0x3c00u : 0x3000u) && copy[1] == (bad ? 0x4000u : 0x3800u));
        CHECK_EQ_U(s.skipped, bad);
    }
}

/* Another list than the checked one is refused, if it has a size of its own; a part of it is not. */
TEST(a_step_knows_the_sizes_it_checked)
{
    mpt_scaler s = scaler_static(2.0f);
    mpt_step   step = step_zero();
    mpt_adamw  o = mpt_adamw_defaults();
    mpt_tensor both[2];
    layer_make(&la, 10, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    layer_make(&lb, 11, MPT_STORE_MASTER, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
    both[0] = la.t, both[1] = lb.t;
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&o, &step, &lb.t, 1), MPT_E_ORDER);
    CHECK_EQ_I(mpt_adamw_step(&o, &step, both, 2), MPT_E_ORDER);
    CHECK_EQ_U(o.t, 0);
    CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_OK);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step, both, 2, NULL), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&o, &step, &lb.t, 1), MPT_OK);
}

/* What mpt_scaler_record and mpt_check found is merged: the scaler backs off if either found an Inf. */
TEST(record_is_merged)
{
    int first, second;
    for (first = 0; first < 2; first++)
        for (second = 0; second < 2; second++) {
            mpt_scaler s = scaler_from(dynamic(8.0f, 2.0, 0.5, 1));
            mpt_step   step = step_zero();
            layer_make(&la, 3, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
            set_bits(la.a.grad, MPT_F16, 1, second ? 0x7c00u : 0x3c00u);
            CHECK_EQ_I(mpt_scaler_record(&s, first ? -5 : 0, 0), MPT_OK);
            CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
            CHECK_EQ_U(step.found_inf, (unsigned)second);
            CHECK_EQ_U(s.found_inf, (unsigned)(first | second));
            CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
            CHECK(s.scale == (first | second ? 4.0f : 16.0f));
        }
}

/* ---- check and unscale ---- */

static const size_t edge_sizes[] = {1, 2, 3, 7, 255, 256, 257, 2047, 2048, 2049, 16383, 16384, 16385};
enum { BIG = 3 * 16384 + 5 };
static uint32_t big[BIG], big_was[BIG];     /* elements of any format */

static mpt_step checked(float scale, const mpt_tensor *t, size_t count, int write_back)
{
    mpt_scaler s = scaler_static(scale);
    mpt_step   step = step_zero();
    CHECK_EQ_I((write_back ? mpt_unscale : mpt_check)(&s, &step, t, count, NULL), MPT_OK);
    CHECK_EQ_U(s.found_inf, step.found_inf);
    CHECK_EQ_U(s.checks, 1);
    CHECK_EQ_U(step.update, 1);
    CHECK_EQ_U(step.stage, (unsigned)(write_back ? MPT_STAGE_UNSCALED : MPT_STAGE_CHECKED));
    return step;
}

/* For each format: +Inf, -Inf, quiet NaN, signaling NaN, -quiet NaN, signaling NaN with another payload. */
static const uint32_t specials[3][6] = {
    {BITS_INF, 0xff800000u, BITS_QNAN, BITS_SNAN, 0xffc00000u, 0x7fa00000u},
    {0x7c00u, 0xfc00u, 0x7e00u, 0x7c01u, 0xfe00u, 0x7d00u},
    {0x7f80u, 0xff80u, 0x7fc0u, 0x7f81u, 0xffc0u, 0x7fa0u}};

TEST(found_inf_anywhere)
{
    size_t f, i, k, p;
    int    write_back;
    for (f = 0; f < 3; f++)
        for (i = 0; i < COUNT(edge_sizes); i++) {
            const size_t n = edge_sizes[i], places[] = {0, n / 2, n - 1};
            for (k = 0; k < 6 * 3 * 2; k += n > 3000 ? 5 : 1) {
                mpt_tensor t = grad_of(big, formats[f], n);
                mpt_step   step;
                p = places[k / 6 % 3];
                write_back = k >= 18;
                memset(big, 0, 4 * n);
                CHECK_EQ_U(checked(8.0f, &t, 1, write_back).found_inf, 0);
                set_bits(big, t.grad_format, p, specials[f][k % 6]);
                step = checked(8.0f, &t, 1, write_back);
                CHECK_EQ_U_AT(step.found_inf, 1, p);
                CHECK(mpti_f64_bits(step.norm) == (uint64_t)0x7ff << 52 && step.sumsq == 0.0);
            }
        }
}

/* A finite gradient at a loss scale; `check` and `unscale`: the found_inf expected of the two calls. */
static void one_gradient(mpt_format format, uint32_t bits, float scale, unsigned check, unsigned unscale)
{
    uint32_t   grad[2] = {0u, 0u};
    mpt_tensor t = grad_of(grad, format, 2);
    set_bits(grad, format, 1, bits);
    CHECK_EQ_U_AT(checked(scale, &t, 1, 0).found_inf, check, bits);
    CHECK_EQ_U(get_bits(grad, format, 1), bits);
    CHECK_EQ_U_AT(checked(scale, &t, 1, 1).found_inf, unscale, bits);
}

TEST(found_inf_by_unscaling)
{
    one_gradient(MPT_F32, 0x7f7fffffu, 1.0f, 0, 0);
    one_gradient(MPT_F32, 0x7f7fffffu, 0.5f, 1, 1);             /* a scale below 1 makes it larger */
    one_gradient(MPT_F32, 0xff7fffffu, 0.5f, 1, 1);
    one_gradient(MPT_F32, 0x7effffffu, 0.5f, 0, 0);
    one_gradient(MPT_F32, 0x7f000000u, 0.5f, 1, 1);             /* 2^127 * 2 */
    one_gradient(MPT_BF16, 0x7f7fu, 0.5f, 1, 1);
    one_gradient(MPT_F16, 0x7bffu, pow2f(-111), 0, 1);          /* 65504 * 2^111: below 2^127 */
    one_gradient(MPT_F16, 0x7bffu, pow2f(-112), 0, 1);
    one_gradient(MPT_F16, 0x7bffu, pow2f(-113), 1, 1);          /* beyond FLT_MAX */
}

/* The inverse of the smallest subnormal scale is Inf, and 0 * Inf is NaN: every gradient becomes bad. */
TEST(found_inf_by_a_subnormal_scale)
{
    one_gradient(MPT_F32, 0u, mpti_f32_make(1u), 1, 1);
    one_gradient(MPT_F16, 0x3c00u, mpti_f32_make(1u), 1, 1);
}

TEST(found_inf_by_writing_back)
{
    one_gradient(MPT_F16, 0x7bffu, 0.5f, 0, 1);                 /* 131008 overflows f16 */
    one_gradient(MPT_F16, 0xf800u, 0.5f, 0, 1);                 /* -65536 */
    one_gradient(MPT_F16, 0x77ffu, 0.5f, 0, 0);                 /* 65504 */
    one_gradient(MPT_F16, 0x7bfeu, 65472.0f / 65519.0f, 0, 0);  /* rounds to 65504 */
    one_gradient(MPT_F16, 0x7bfeu, 65472.0f / 65521.0f, 0, 1);  /* rounds to Inf */
    one_gradient(MPT_BF16, 0x7f7fu, 0.997f, 0, 1);              /* finite in float, Inf in bf16 */
    one_gradient(MPT_BF16, 0x7f7fu, 0.999f, 0, 0);
}

TEST(factor_is_the_rounded_inverse)
{
    int i;
    for (i = 0; i < 20000; i++) {
        const float           wide = random_wide(-126, 126), scale = wide < 0.0f ? -wide : wide;
        const volatile double inverse = 1.0 / (double)scale;
        CHECK_EQ_U_AT(mpti_f32_bits(checked(scale, NULL, 0, 0).grad_factor),
                      mpti_f32_bits((float)inverse), mpti_f32_bits(scale));
        CHECK(checked(scale, NULL, 0, 1).grad_factor == 1.0f);
    }
    CHECK_EQ_U(mpti_f32_bits(checked(3.0f, NULL, 0, 0).grad_factor), 0x3eaaaaabu);
    CHECK_EQ_U(mpti_f32_bits(checked(10.0f, NULL, 0, 0).grad_factor), 0x3dcccccdu);
}

TEST(check_reads_and_unscale_multiplies)
{
    const float scale = 1000.0f;
    size_t      f, i;
    for (f = 0; f < 3; f++) {
        const mpt_format format = formats[f];
        mpt_tensor       t = grad_of(big, format, 5000);
        mpt_step         step;
        for (i = 0; i < t.n; i++)
            set_bits(big, format, i, encode(format, random_wide(-20, 14)));
        memcpy(big_was, big, sizeof big);
        step = checked(scale, &t, 1, 0);
        CHECK(!memcmp(big_was, big, sizeof big));
        (void)checked(scale, &t, 1, 1);
        for (i = 0; i < t.n; i++) {
            const float g = decode(format, get_bits(big_was, format, i));
            CHECK_EQ_U_AT(get_bits(big, format, i), encode(format, g * step.grad_factor), i);
        }
        CHECK(!memcmp((unsigned char *)big + t.n * (f ? 2 : 4), (unsigned char *)big_was + t.n * (f ? 2 : 4),
                      64));
    }
}

/* ---- the norm ---- */

/* Sums n numbers, n a power of two, in a binary tree: adjacent pairs first, then pairs of these sums ... */
static double pair_tree(const double *x, size_t n)
{
    return n == 1 ? x[0] : pair_tree(x, n / 2) + pair_tree(x + n / 2, n / 2);
}

/* The summation tree that mpt.h specifies, one element at a time. The sizes are literals, not names from the
 * header, because GPU code must use the same numbers. */
static double naive_chunk(const mpt_tensor *t, float factor, size_t first, double shift)
{
    float  lane[2048];
    double eight[256];
    size_t e, step;
    memset(lane, 0, sizeof lane);
    for (e = 0; e < 16384 && first + e < t->n; e++) {
        const float          g = decode(t->grad_format, get_bits(t->grad, t->grad_format, first + e));
        const volatile float u = g * factor, shifted = (float)((double)u * shift), square = shifted * shifted;
        if (mpti_f32_is_finite(u))
            lane[e % 2048] += square;
    }
    for (step = 1; step < 8; step *= 2)
        for (e = 0; e < 2048; e += 2 * step)
            lane[e] += lane[e + step];
    for (e = 0; e < 256; e++)
        eight[e] = (double)lane[8 * e];
    return pair_tree(eight, 256) / (shift * shift);
}

static double naive_sumsq(const mpt_tensor *t, size_t count, float factor)
{
    double slot[256] = {0.0}, sum;
    size_t i, first, chunk = 0;
    for (i = 0; i < count; i++)
        for (first = 0; first < t[i].n; first += 16384) {
            sum = naive_chunk(&t[i], factor, first, 1.0);
            if (!(sum >= ldexp(1.0, -96) && sum < ldexp(1.0, 127)))
                sum = naive_chunk(&t[i], factor, first, ldexp(1.0, sum < 1.0 ? 100 : -100));
            slot[chunk++ % 256] += sum;
        }
    return pair_tree(slot, 256);
}

static void sumsq_is_naive(const mpt_tensor *t, size_t count, float scale)
{
    const mpt_step step = checked(scale, t, count, 0);
    CHECK_EQ_U_AT(mpti_f64_bits(step.sumsq), mpti_f64_bits(naive_sumsq(t, count, step.grad_factor)), t[0].n);
    if (!step.found_inf)
        CHECK_EQ_U(mpti_f64_bits(step.norm), mpti_f64_bits(sqrt(step.sumsq)));
}

static void big_random(mpt_format format, int low, int high)
{
    size_t i;
    for (i = 0; i < BIG; i++)
        set_bits(big, format, i, encode(format, random_wide(low, high)));
}

TEST(sumsq_tree_over_sizes)
{
    size_t f, n, i;
    for (f = 0; f < 3; f++) {
        const int half = formats[f] == MPT_F16;
        big_random(formats[f], half ? -14 : -60, half ? 15 : 60);
        for (i = 0; i < COUNT(edge_sizes); i++) {
            mpt_tensor t = grad_of(big, formats[f], edge_sizes[i]);
            sumsq_is_naive(&t, 1, 3.0f);
        }
        for (n = 4095; n <= BIG; n += n < 4097 ? 1 : 9000) {
            mpt_tensor t = grad_of(big, formats[f], n);
            sumsq_is_naive(&t, 1, 1.0f);
        }
    }
}

TEST(sumsq_tree_over_lists)
{
    mpt_tensor list[700];
    size_t     i, at = 0;
    big_random(MPT_F32, -10, 10);
    for (i = 0; i < COUNT(list); i++) {         /* more chunks than slots */
        list[i] = grad_of(big + at, MPT_F32, (size_t)(mt_random() % 60u));
        at += list[i].n;
    }
    sumsq_is_naive(list, COUNT(list), 7.0f);
    sumsq_is_naive(list, 257, 7.0f);
    list[1] = grad_of(big, MPT_F16, 40000);   /* mixed formats; tensors of several chunks, and empty ones */
    list[2] = grad_of(big, MPT_BF16, 16385);
    list[3] = grad_of(NULL, MPT_F32, 0);
    list[4] = grad_of(big, MPT_F32, BIG);
    sumsq_is_naive(list, 5, 1.0f);
    sumsq_is_naive(list, COUNT(list), 1.0f);
}

TEST(sumsq_skips_what_is_not_finite)
{
    size_t f, i;
    for (f = 0; f < 3; f++) {
        mpt_tensor t = grad_of(big, formats[f], 20000);
        big_random(formats[f], -10, 10);
        for (i = 0; i < t.n; i += 7)
            set_bits(big, t.grad_format, i, specials[f][i % 6]);
        sumsq_is_naive(&t, 1, 5.0f);
        CHECK_EQ_U(mpti_f64_bits(checked(5.0f, &t, 1, 0).norm), (uint64_t)0x7ff << 52);
        CHECK(checked(5.0f, &t, 1, 0).sumsq > 0.0);
    }
}

/* Adds x to the sum s[0] and the rounding error of this addition to s[1]. Volatile, so that the compiler
 * cannot simplify the error to 0. Source: Knuth's two-sum (TAOCP 2, 4.2.2). */
static void compensated_add(volatile double s[2], double x)
{
    const volatile double sum = s[0] + x, back = sum - x, lost_of_s = s[0] - back, x_kept = sum - back;
    s[1] += lost_of_s + (x - x_kept);
    s[0] = sum;
}

/* Compares the norm with a compensated sum of the exact squares. Each element passes at most 8 + 3 roundings
 * to float, of 2^-24 each, and no term is negative; the root halves the relative error: below 6 * 2^-24.
 * Errors of many different elements cancel: a thousandth of that bound was seen, a hundredth is allowed. */
TEST(norm_is_close_to_exact)
{
    int         round;
    size_t      i;
    const float scale = 3.0f;
    for (round = 0; round < 6; round++) {
        mpt_tensor      t = grad_of(big, MPT_F32, BIG - (size_t)round);
        mpt_step        step;
        volatile double sum[2] = {0.0, 0.0};
        double          exact;
        big_random(MPT_F32, -10 * round, 10 * round);
        step = checked(scale, &t, 1, 0);
        for (i = 0; i < t.n; i++) {
            const volatile float u = mpti_f32_make(big[i]) * step.grad_factor;
            compensated_add(sum, (double)u * (double)u);
        }
        exact = sqrt(sum[0] + sum[1]);
        CHECK(fabs(step.norm - exact) <= 6e-2 * 0.5 * (double)FLT_EPSILON * exact);
    }
}

TEST(norm_of_unscaled_is_that_of_what_was_written)
{
    mpt_tensor t = grad_of(big, MPT_BF16, 3000);
    mpt_step   step;
    big_random(MPT_BF16, -10, 10);
    step = checked(7.0f, &t, 1, 1);
    CHECK_EQ_U(mpti_f64_bits(step.sumsq), mpti_f64_bits(naive_sumsq(&t, 1, 1.0f)));
}

TEST(norm_does_not_overflow)
{
    mpt_tensor t = grad_of(big, MPT_F32, 10000);
    size_t     i;
    for (i = 0; i < t.n; i++)
        big[i] = mpti_f32_bits(i & 1u ? 1e30f : -1e30f);
    CHECK(fabs(checked(1.0f, &t, 1, 0).norm - 1e32) < 1e26);
    for (i = 0; i < t.n; i++)
        big[i] = 0x7f7fffffu;
    CHECK(fabs(checked(1.0f, &t, 1, 0).norm / (100.0 * (double)FLT_MAX) - 1.0) < 3.0 * (double)FLT_EPSILON);
}

/* Where rounding toward zero makes FLT_MAX of squares that overflow. */
TEST(norm_in_other_rounding_modes)
{
    static const mpt_format wide[] = {MPT_F32, MPT_BF16};
    static const int        modes[] = {FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    mpt_tensor              t;
    mpt_step                step;
    size_t                  f, k, i;
    for (f = 0; f < COUNT(wide); f++) {
        t = grad_of(big, wide[f], 20000);
        for (i = 0; i < t.n; i++)
            element_set(t.grad, wide[f], i, (float)ldexp(i & 1u ? 1.0 : -1.0, 90));
        for (k = 0; k < COUNT(modes); k++) {
            if (fesetround(modes[k]))
                continue;
            step = checked(1.0f, &t, 1, 0);
            (void)fesetround(FE_TONEAREST);
            CHECK(!step.found_inf && fabs(step.norm / (sqrt(20000.0) * ldexp(1.0, 90)) - 1.0) < 1e-3);
        }
    }
}

/* Elements whose squares leave the range of floats: chunks of tiny and huge numbers and at the limits of
 * both, with and without Inf and NaN; and a single nonzero number among zeros. */
TEST(norm_from_end_to_end)
{
    const int at[] = {-149, -140, -100, -76, -75, -74, -49, -48, -47, -46, 56, 57, 58, 62, 63, 64, 65, 100};
    size_t    f, i, k;
    for (f = 0; f < 3; f++)
        for (k = f % mt.every; k < COUNT(at); k += mt.every) {
            mpt_tensor t = grad_of(big, formats[f], 40000);
            const int  half = formats[f] == MPT_F16, low = half ? at[k] / 12 : at[k];
            big_random(formats[f], low, low + 3);
            for (i = 0; i < 3; i++) {
                sumsq_is_naive(&t, 1, 1.0f);
                sumsq_is_naive(&t, 1, (float)ldexp(1.0, half ? -at[k] / 2 : 3));
                if (i == 0)
                    set_bits(big, t.grad_format, 17000, specials[f][k % 6]);
                else if (i == 1)
                    memset(big, 0, sizeof big / 2);
            }
            set_bits(big, t.grad_format, 777, encode(t.grad_format, (float)ldexp(1.0, low)));
            sumsq_is_naive(&t, 1, 1.0f);
            (void)checked(1.0f, &t, 1, 1);
            sumsq_is_naive(&t, 1, 1.0f);
        }
}

/* A check that writes, even the same bits, ends the program: these gradients lie in read-only memory. */
TEST(a_check_only_reads)
{
    static const uint32_t grad[300] = {0x40400000u, 0xc0800000u};          /* 3 and -4 */
    size_t                f;
    for (f = 0; f < 3; f++) {
        const mpt_tensor t = grad_of((void *)(uintptr_t)grad, formats[f], 300);
        CHECK(checked(4.0f, &t, 1, 0).norm > 0.0);
    }
}

/* ---- clip ---- */

TEST(clip_factor)
{
    uint32_t   grad[2];
    mpt_tensor t = grad_of(grad, MPT_F32, 2);
    mpt_step   step;
    grad[0] = mpti_f32_bits(3.0f * 16.0f);
    grad[1] = mpti_f32_bits(-4.0f * 16.0f);
    step = checked(16.0f, &t, 1, 0);
    CHECK(step.norm == 5.0 && step.sumsq == 25.0 && step.clip_factor == 1.0f);
    CHECK_EQ_I(mpt_clip(&step, 1.0f), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(step.clip_factor), mpti_f32_bits(0.2f));
    CHECK_EQ_I(mpt_clip(&step, 2.5f), MPT_OK);          /* the last call counts */
    CHECK_EQ_U(mpti_f32_bits(step.clip_factor), mpti_f32_bits(0.5f));
    CHECK_EQ_I(mpt_clip(&step, 5.0f), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(step.clip_factor), mpti_f32_bits(1.0f));
    CHECK_EQ_I(mpt_clip(&step, 1e30f), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(step.clip_factor), mpti_f32_bits(1.0f));
    CHECK_EQ_I(mpt_clip(&step, mpti_f32_make(0x409fffffu)), MPT_OK);    /* just below the norm */
    CHECK(step.clip_factor < 1.0f);
    CHECK(step.norm == 5.0 && step.grad_factor == 0.0625f);
    CHECK_EQ_U(step.stage, MPT_STAGE_CHECKED | MPT_STAGE_CLIPPED);
}

TEST(clip_factor_is_the_rounded_quotient)
{
    int i;
    for (i = 0; i < 2000; i++) {
        uint32_t    grad[3];
        mpt_tensor  t = grad_of(grad, MPT_F32, 3);
        const float max_norm = fabsf(random_wide(-8, 1));
        mpt_step    step;
        grad[0] = mpti_f32_bits(random_wide(1, 8));
        grad[1] = mpti_f32_bits(random_wide(1, 8));
        grad[2] = mpti_f32_bits(random_wide(4, 8));
        step = checked(1.0f, &t, 1, 0);
        CHECK_EQ_I(mpt_clip(&step, max_norm), MPT_OK);
        CHECK_EQ_U(mpti_f32_bits(step.clip_factor), mpti_f32_bits((float)((double)max_norm / step.norm)));
    }
}

TEST(clip_of_a_bad_step_is_one)
{
    const uint32_t bad[] = {BITS_INF, 0xff800000u, BITS_QNAN, BITS_SNAN};
    size_t         i;
    for (i = 0; i < COUNT(bad); i++) {
        uint32_t   grad[2] = {0x3f800000u, 0u};
        mpt_tensor t = grad_of(grad, MPT_F32, 2);
        mpt_step   step;
        grad[1] = bad[i];
        step = checked(1.0f, &t, 1, 1);
        CHECK_EQ_I(mpt_clip(&step, 0.25f), MPT_OK);
        CHECK_EQ_U(mpti_f32_bits(step.clip_factor), 0x3f800000u);
        CHECK_EQ_I(mpt_clip_apply(&step, &t, 1, i % 2 ? 0.5f : 0.0f), MPT_OK);
        CHECK_EQ_U(grad[0], 0x3f800000u);
    }
}

/* Each element times the factor, rounded, then limited; for every tail of the vectors, and nothing beyond. */
TEST(clip_apply_multiplies_and_limits)
{
    mpt_opts down;
    size_t   f, limited, n, i;
    memset(&down, 0, sizeof down);
    down.rounding = MPT_RND_TOWARD_ZERO;
    for (f = 0; f < 3; f++)
        for (limited = 0; limited < 2; limited++)
            for (n = 1; n <= 700; n += n < 38 ? 1 : 331) {
                const mpt_format format = formats[f];
                const float      limit = limited ? 0.7f : 0.0f;
                const uint32_t   most = (uint32_t)mpt_encode(format, (double)limit, &down, NULL);
                mpt_scaler       s = scaler_static(4.0f);
                mpt_step         step = step_zero();
                mpt_tensor       t = grad_of(big, format, n);
                float            factor;
                for (i = 0; i < n + 40; i++)
                    element_set(big, format, i, random_unit() * 8.0f);
                CHECK_EQ_I(mpt_unscale(&s, &step, &t, 1, NULL), MPT_OK);
                CHECK_EQ_I(mpt_clip(&step, 0.6f * (float)step.norm), MPT_OK);
                factor = step.clip_factor;
                memcpy(big_was, big, 4 * (n + 40));
                CHECK_EQ_I(mpt_clip_apply(&step, &t, 1, limit), MPT_OK);
                CHECK(step.clip_factor == 1.0f && factor < 0.61f);
                for (i = 0; i < n + 40; i++) {
                    const float    x = element(big_was, format, i);
                    const uint32_t rounded = encode(format, i < n ? x * factor : x);
                    const uint32_t sign = rounded & (format == MPT_F32 ? 0x80000000u : 0x8000u);
                    const int      beyond = limited && i < n && (rounded ^ sign) > most;
                    CHECK_EQ_U_AT(get_bits(big, format, i), beyond ? sign | most : rounded, i);
                }
            }
}

/* The fused step multiplies once by (unscale * clip), rounded; the other way rounds after each factor. So the
 * two gradients differ by at most four roundings, below 2^-22 relative, and the weights by lr times that and
 * one more rounding. At a scale that is a power of two the unscaling is exact, and the bits are the same. */
static void clip_both_ways(float scale, int exact)
{
    mpt_sgd    o1 = {0.5f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u}, o2 = o1;
    mpt_scaler s1 = scaler_static(scale), s2 = s1;
    mpt_step   step1 = step_zero(), step2 = step1;
    size_t     i;
    layer_make(&la, 900, MPT_STORE_MASTER, MPT_F32, MPT_F32, MPT_MOMENTS_F32);
    layer_gradient(&la, scale);
    layer_copy(&lb, &la);
    CHECK_EQ_I(mpt_check(&s1, &step1, &la.t, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_unscale(&s2, &step2, &lb.t, 1, NULL), MPT_OK);
    CHECK_EQ_U(mpti_f64_bits(step1.norm), mpti_f64_bits(step2.norm));
    CHECK_EQ_I(mpt_clip(&step1, 1.0f), MPT_OK);
    CHECK_EQ_I(mpt_clip(&step2, 1.0f), MPT_OK);
    CHECK_EQ_I(mpt_clip_apply(&step2, &lb.t, 1, 0.0f), MPT_OK);
    CHECK_EQ_I(mpt_sgd_step(&o1, &step1, &la.t, 1), MPT_OK);
    CHECK_EQ_I(mpt_sgd_step(&o2, &step2, &lb.t, 1), MPT_OK);
    for (i = 0; i < 900; i++) {
        const double g = fabs((double)lb.a.grad[i]), w = fabs((double)la.a.master[i]);
        const double difference = fabs((double)la.a.master[i] - (double)lb.a.master[i]);
        CHECK(difference <= (exact ? 0.0 : 0.5 * g * ldexp(1.0, -22) + w * ldexp(1.0, -23)));
    }
}

TEST(clip_fused_equals_clip_applied)
{
    clip_both_ways(1024.0f, 1);
    clip_both_ways(1.0f, 1);
    clip_both_ways(1000.0f, 0);
    clip_both_ways(3.0f, 0);
}

/* ---- optimizers ---- */

/* mpt_optimizer_step gives the same bits as the four calls: good and bad steps, with and without a clip. */
TEST(one_call_equals_four)
{
    size_t which;
    int    i;
    for (which = 0; which < COUNT(recipes); which++) {
        optimizer  oa = optimizer_make(which), ob = oa;
        void *const hyper = ob.kind == SGD    ? (void *)&ob.sgd
                            : ob.kind == LION ? (void *)&ob.lion
                                              : (void *)&ob.adam;
        mpt_scaler sa, sb;
        mpt_step   ta = step_zero(), tb = ta;
        CHECK_EQ_I(mpt_scaler_init(&sa, NULL), MPT_OK);
        sb = sa;
        layer_make(&la, 700, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
        layer_copy(&lb, &la);
        (void)mpt_scaler_scale(&sa, 1.0f);
        (void)mpt_scaler_scale(&sb, 1.0f);
        for (i = 0; i < 12; i++) {
            const float max_norm = (float)(i % 3 * (i % 3)) * 0.5f;      /* no clip, 0.5, 2 */
            layer_gradient(&la, 6e4f);
            if (i % 4 == 1)
                set_bits(la.a.grad, MPT_F16, 7, 0x7c00u);
            memcpy(lb.a.grad, la.a.grad, sizeof la.a.grad);
            train_step(&oa, &sa, &ta, &la, max_norm);
            (void)mpt_scaler_scale(&sb, 1.0f);
            CHECK_EQ_I(mpt_optimizer_step((mpt_optimizer)ob.kind, hyper, &sb, &tb, &lb.t, 1, max_norm),
                       MPT_OK);
            CHECK(!memcmp(&la.a, &lb.a, sizeof la.a) && !memcmp(&oa, &ob, sizeof oa));
            CHECK(!memcmp(&sa, &sb, sizeof sa) && !memcmp(&ta, &tb, sizeof ta));
        }
        CHECK_EQ_U(sb.updates, 12);
        CHECK_EQ_U(sb.skipped, 3);
    }
}

TEST(one_call_refuses)
{
    mpt_scaler s;
    mpt_step   step = step_zero();
    mpt_adamw  o = mpt_adamw_defaults();
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    layer_make(&la, 9, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
    layer_gradient(&la, 1.0f);
    lb = la;
    CHECK_EQ_I(mpt_optimizer_step(MPT_OPTIMIZER_ADAMW, &o, &s, &step, &la.t, 1, 0.0f), MPT_E_ORDER);
    CHECK(!s.in_use && s.updates == 1u);            /* the next call is not refused for it */
#define ONE_CALL(optimizer, o, max_norm)                                                              \
    ((void)mpt_scaler_scale(&s, 1.0f), mpt_optimizer_step(optimizer, o, &s, &step, &la.t, 1, max_norm))
    CHECK_EQ_I(ONE_CALL(MPT_OPTIMIZER_COUNT, &o, 0.0f), MPT_E_ARG);
    CHECK_EQ_I(ONE_CALL(MPT_OPTIMIZER_ADAMW, NULL, 0.0f), MPT_E_ARG);
    CHECK_EQ_I(ONE_CALL(MPT_OPTIMIZER_ADAMW, &o, -1.0f), MPT_E_ARG);
    CHECK_EQ_I(ONE_CALL(MPT_OPTIMIZER_ADAMW, &o, mpti_f32_make(BITS_QNAN)), MPT_E_ARG);
    (void)mpt_scaler_scale(&s, 1.0f);               /* a check of the caller's own was refused before */
    CHECK_EQ_I(mpt_check(&s, &step, NULL, 1, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_optimizer_step(MPT_OPTIMIZER_ADAMW, &o, &s, &step, &la.t, 1, 0.0f), MPT_E_ORDER);
    CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
    CHECK(s.updates == 6u && o.t == 0u);            /* and the next call is not out of order */
    CHECK_EQ_I(ONE_CALL(MPT_OPTIMIZER_ADAMW, &o, -0.0f), MPT_OK);
    CHECK(o.t == 1u && memcmp(&la.a, &lb.a, sizeof la.a));
#undef ONE_CALL
}

/* mpt_grad_get gives a user's own optimizer the gradients that mpt_sgd_step uses. */
TEST(grad_get_unscales_and_clips)
{
    static float out[LAYER_N], w[LAYER_N];
    mpt_sgd      o;
    size_t       f, i, clips, written;
    memset(&o, 0, sizeof o);
    o.lr = 1.0f;
    for (f = 0; f < 3; f++)
        for (clips = 0; clips < 2; clips++)
            for (written = 0; written < 2; written++) {
                mpt_scaler s = scaler_static(1024.0f);
                mpt_step   step = step_zero();
                layer_make(&la, 777, MPT_STORE_MASTER, MPT_F32, formats[f], MPT_MOMENTS_F32);
                layer_gradient(&la, 4.0f);
                CHECK_EQ_I(mpt_grad_get(&step, &la.t, out), MPT_E_ORDER);
                CHECK_EQ_I((written ? mpt_unscale : mpt_check)(&s, &step, &la.t, 1, NULL), MPT_OK);
                if (clips)
                    CHECK_EQ_I(mpt_clip(&step, 0.001f), MPT_OK);
                CHECK_EQ_I(mpt_grad_get(NULL, &la.t, out), MPT_E_ARG);
                CHECK_EQ_I(mpt_grad_get(&step, NULL, out), MPT_E_ARG);
                CHECK_EQ_I(mpt_grad_get(&step, &la.t, NULL), MPT_E_ARG);
                CHECK_EQ_I(mpt_grad_get(&step, &la.t, (float *)(void *)la.a.grad), MPT_E_ARG);
                out[777] = 5.0f;
                memcpy(w, la.a.master, sizeof w);
                CHECK_EQ_I(mpt_grad_get(&step, &la.t, out), MPT_OK);
                CHECK(out[777] == 5.0f);
                CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_OK);
                for (i = 0; i < 777; i++)
                    CHECK_EQ_U_AT(mpti_f32_bits(la.a.master[i]), mpti_f32_bits(w[i] - out[i]), i);
                CHECK_EQ_I(mpt_grad_get(&step, &la.t, out), MPT_E_ORDER);
            }
    {                                   /* 2^-24 at a scale of 2^10 is 2^-34: kept, although FP16 cannot */
        mpt_scaler s = scaler_static(1024.0f);
        mpt_step   step = step_zero();
        layer_make(&la, 3, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
        set_bits(la.a.grad, MPT_F16, 1, 1u);
        CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
        CHECK_EQ_I(mpt_grad_get(&step, &la.t, out), MPT_OK);
        CHECK_EQ_U(mpti_f32_bits(out[1]), mpti_f32_bits(5.8207660913467407e-11f));
        CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
        (void)mpt_scaler_scale(&s, 1.0f);
        set_bits(la.a.grad, MPT_F16, 2, 0x7e00u);               /* a NaN: all results are 0 */
        CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
        CHECK_EQ_I(mpt_grad_get(&step, &la.t, out), MPT_OK);
        CHECK(mpti_f32_bits(out[0]) == 0u && mpti_f32_bits(out[1]) == 0u && mpti_f32_bits(out[2]) == 0u);
    }
}

/* A loop that once left out an update is refused in every later step, until it does what the text says. */
TEST(order_text_names_the_way_out)
{
    mpt_scaler s;
    mpt_step   step = step_zero();
    mpt_sgd    o = optimizer_make(0).sgd;
    int        i;
    layer_make(&la, 9, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    for (i = 0; i < 6; i++) {
        (void)mpt_scaler_scale(&s, 1.0f);
        CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), i % 5 ? MPT_E_ORDER : MPT_OK);
        CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), i % 5 ? MPT_E_ORDER : MPT_OK);
        if (i % 5)
            CHECK(strstr(mpt_order_text(&s, &step), "to go on: mpt_scaler_update, and zero") != NULL);
        if (i)
            CHECK_EQ_I(mpt_scaler_update(&s), i % 5 ? MPT_E_ORDER : MPT_OK);
        if (i == 4)
            step = step_zero();
    }
}

/* After a call out of order, mpt_order_text names the call that is due. */
TEST(order_text_says_what_is_due)
{
    mpt_scaler s;
    mpt_step   step = step_zero(), refused;
    mpt_sgd    o = optimizer_make(0).sgd;
    layer_make(&la, 9, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
    memset(&s, 0, sizeof s);
#define DUE(call) CHECK(strstr(mpt_order_text(&s, &step), call " is due") != NULL)
    CHECK(strstr(mpt_order_text(NULL, NULL), "mpt_scaler_init is due") != NULL);
    DUE("mpt_scaler_init");
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_E_ORDER);
    DUE("mpt_scaler_scale");
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_E_ORDER);
    CHECK(strstr(mpt_order_text(&s, &step), "step was refused, such as one without") != NULL);
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_E_ORDER);
    CHECK(strstr(mpt_order_text(&s, &step), "a check was refused") != NULL);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_E_ORDER);
    (void)mpt_scaler_scale(&s, 1.0f);
    DUE("mpt_check or mpt_unscale");
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
    CHECK(strstr(mpt_order_text(&s, &step), "step, then mpt_scaler_update are due") != NULL);
    refused = step;
    CHECK_EQ_I(mpt_clip(&refused, -1.0f), MPT_E_ARG);
    CHECK(strstr(mpt_order_text(&s, &refused), "a clip or an optimizer's step was refused") != NULL);
    CHECK_EQ_I(mpt_sgd_step(&o, &step, &la.t, 1), MPT_OK);
    DUE("mpt_scaler_update");
    CHECK(strstr(mpt_order_text(&s, NULL), "mpt_scaler_update is due") != NULL);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_E_ORDER);
    DUE("mpt_scaler_scale");
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_E_ORDER);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_E_ORDER);
    DUE("mpt_scaler_scale");
    (void)mpt_scaler_scale(&s, 1.0f);
    DUE("mpt_check or mpt_unscale");
    CHECK(strstr(mpt_order_text(&s, NULL), "mpt_check or mpt_unscale is due") != NULL);
#undef DUE
}

/* A step before its check, which is refused in the first round only, would then take the verdict of the last
 * round; a step refused for a hyperparameter would train nothing. The next check and its update tell. */
TEST(refused_step_is_told_by_the_next_update)
{
    mpt_scaler s;
    mpt_step   step = step_zero();
    mpt_adamw  o = mpt_adamw_defaults();
    int        round;
    layer_make(&la, 9, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    for (round = 0; round < 3; round++) {
        (void)mpt_scaler_scale(&s, 1.0f);
        CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_E_ORDER);
        CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_E_ORDER);
        CHECK_EQ_U(step.found_inf, 1);
        CHECK_EQ_I(mpt_scaler_update(&s), MPT_E_ORDER);
    }
    o.eps = 0.0f;
    for (round = 0; round < 5; round++) {
        (void)mpt_scaler_scale(&s, 1.0f);
        CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), round ? MPT_E_ORDER : MPT_OK);
        CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_E_ARG);
        CHECK_EQ_I(mpt_scaler_update(&s), round ? MPT_E_ORDER : MPT_OK);
    }
    step = step_zero();
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_E_ARG);
    o.eps = 1e-8f;
    CHECK_EQ_I(mpt_adamw_step(&o, &step, &la.t, 1), MPT_OK);        /* tried again, all is well */
    CHECK_EQ_U(step.stage, (unsigned)MPT_STAGE_STEPPED);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
}

/* One check for each layer, all with one record: only the first is made, and the update tells. */
TEST(lists_checked_one_by_one)
{
    mpt_scaler s;
    mpt_step   step = step_zero(), other = step_zero();
    float      x[4];
    mpt_tensor t[4];
    int        round, i;
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    for (i = 0; i < 4; i++) t[i] = mpt_tensor_grad_f32("x", &x[i], 1);
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 4; i++) x[i] = mpt_scaler_scale(&s, 1.0f);
        for (i = 0; i < 4; i++)
            CHECK_EQ_I(mpt_unscale(&s, &step, &t[i], 1, NULL), i ? MPT_E_ORDER : MPT_OK);
        CHECK(x[0] < 1.5f && x[3] > 1.5f && step.found_inf);
        CHECK_EQ_I(mpt_unscale(&s, &other, &t[3], 1, NULL), MPT_OK);    /* another's check changes nothing */
        CHECK_EQ_I(mpt_scaler_record(&s, 0, 0), MPT_OK);
        CHECK_EQ_I(mpt_scaler_update(&s), MPT_E_ORDER);
    }
    for (i = 0; i < 4; i++) x[i] = mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_unscale(&s, &step, t, 4, NULL), MPT_OK);     /* in one list all is well */
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
    CHECK(!step.found_inf && x[3] < 1.5f);
}

/* Run a loop of two optimizers eight times (S scale, B backward, C check, K clip, T step, U update; of the
 * second in small letters). `how` 1, 2: the first one's check, clip is refused. An update after a refused
 * check must return an error. Returns: how many did. */
static int run_calls(const char *calls, int how)
{
    mpt_scaler  s;
    mpt_step    step[2];
    mpt_sgd     o = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    float       w[2] = {1.0f, 1.0f}, g[2] = {0.0f, 0.0f};
    mpt_tensor  t[2];
    int         round, k, refused = 0, told = 0;
    const char *c;
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    for (k = 0; k < 2; k++) {
        step[k] = step_zero();
        t[k] = mpt_tensor_grad_f32("w", &g[k], 1);
        t[k].master = &w[k];
    }
    for (round = 0; round < 8; round++)
        for (c = calls; *c; c++) {
            k = *c >= 'a';
            switch (*c & ~32) {
            case 'S': (void)mpt_scaler_scale(&s, 1.0f); break;
            case 'C':
                refused += mpt_check(&s, &step[k], how == 1 && !k ? NULL : &t[k], 1, NULL) != MPT_OK;
                break;
            case 'K': (void)mpt_clip(&step[k], how == 2 && !k ? 0.0f : 1.0f); break;
            case 'T': (void)mpt_sgd_step(&o, &step[k], &t[k], 1); break;
            case 'U':
                if (mpt_scaler_update(&s) != MPT_OK)
                    told += refused != 0, refused = 0;
                CHECK_EQ_I(refused, 0);
                break;
            default: g[k] = s.scale;
            }
        }
    return told;
}

/* The same with calls dropped, doubled and exchanged. */
TEST(the_update_tells_of_every_refused_check)
{
    static const char *const loops[] = {"SBCKTsbckTU", "SBsbCKckTtU", "SBSBCKTU", "SBCKTUsbcktU"};
    size_t                   l, i, j;
    int                      how;
    for (how = 0; how < 3; how++)
        for (l = 0; l < sizeof loops / sizeof *loops; l++) {
            const size_t n = strlen(loops[l]);
            CHECK(run_calls(loops[l], how) >= (how ? 7 : 0));
            for (i = 0; i < n; i++) {
                char changed[16];
                memcpy(changed, loops[l], n + 1u);
                memmove(changed + i, changed + i + 1, n - i);
                (void)run_calls(changed, how);
                memcpy(changed, loops[l], i + 1u);
                memcpy(changed + i + 1, loops[l] + i, n - i + 1u);
                (void)run_calls(changed, how);
                for (j = 0; j < i; j++) {
                    memcpy(changed, loops[l], n + 1u);
                    changed[i] = loops[l][j], changed[j] = loops[l][i];
                    (void)run_calls(changed, how);
                }
            }
        }
}

/* An optimizer of one's own asks found_inf alone: where an update is forgotten, it must not take the scaled
 * gradients of the next step with the verdict on the last. */
TEST(forgotten_update_skips_the_next_step)
{
    mpt_scaler s;
    mpt_step   step = step_zero();
    layer_make(&la, 9, MPT_STORE_MASTER, MPT_F16, MPT_F16, MPT_MOMENTS_F32);
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_E_ORDER);
    CHECK_EQ_U(step.found_inf, 1);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_E_ORDER);
    CHECK_EQ_U(s.skipped, 0);
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step, &la.t, 1, NULL), MPT_OK);
    CHECK_EQ_U(step.found_inf, 0);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
}

/* SGD without a low-precision copy, and without momentum and its array m. */
TEST(steps_without_optional_arrays)
{
    mpt_sgd    sgd = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_scaler s = scaler_static(1.0f);
    mpt_step   step = step_zero();
    float      w[3] = {1.0f, 2.0f, 3.0f}, g[3] = {1.0f, 0.0f, -1.0f};
    mpt_tensor t = mpt_tensor_grad_f32("w", g, 3);
    t.master = w;
    CHECK_EQ_I(mpt_check(&s, &step, &t, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_sgd_step(&sgd, &step, &t, 1), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(w[0]), mpti_f32_bits(fmaf(-0.1f, 1.0f, 1.0f)));
    CHECK_EQ_U(mpti_f32_bits(w[1]), mpti_f32_bits(2.0f));
    CHECK_EQ_U(mpti_f32_bits(w[2]), mpti_f32_bits(fmaf(-0.1f, -1.0f, 3.0f)));
}

TEST(publish_writes_the_copies)
{
    size_t f, i;
    for (f = 0; f < 3; f++) {
        layer_make(&la, 777, MPT_STORE_MASTER, formats[f], MPT_F32, MPT_MOMENTS_F32);
        for (i = 0; i < 777; i++)
            la.a.master[i] = random_wide(-30, 20);
        memcpy(&lb.a, &la.a, sizeof la.a);
        CHECK_EQ_I(mpt_publish(&la.t, 1), MPT_OK);
        for (i = 0; i < 777; i++)
            CHECK_EQ_U_AT(get_bits(la.a.param, la.t.param_format, i),
                          encode(la.t.param_format, la.a.master[i]), i);
        memcpy(lb.a.param, la.a.param, sizeof la.a.param);
        CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
    }
}

/* mpt_lint_copies sees one changed bit anywhere, and only in copies beside masters. */
TEST(stale_copies_are_found)
{
    static const size_t where[] = {0, 255, 256, 776};
    size_t f, i, which = 99;
    for (f = 0; f < 4; f++) {
        mpt_tensor list[2];
        layer_make(&la, 777, MPT_STORE_MASTER, formats[f % 3], MPT_F32, MPT_MOMENTS_F32);
        layer_make(&lb, 777, MPT_STORE_MASTER, f == 3 ? MPT_F32 : formats[f], MPT_F32, MPT_MOMENTS_F32);
        list[0] = la.t, list[1] = lb.t;
        list[1].rounded = f == 3 ? MPT_BF16 : list[1].rounded;
        for (i = 0; i < 777; i++)
            la.a.master[i] = lb.a.master[i] = 0.01f * (float)i;
        lb.a.master[7] = mpti_f32_make(0xffa00001u);
        CHECK_EQ_I(mpt_publish(list, 2), MPT_OK);
        CHECK_EQ_I(mpt_lint_copies(list, 2, &which), MPT_LINT_OVERFLOWS);       /* a NaN */
        CHECK_EQ_U(which, 1);
        la.a.master[776] = 70000.0f;
        CHECK_EQ_I(mpt_publish(list, 2), MPT_OK);
        which = 99;
        CHECK_EQ_I(mpt_lint_copies(list, 1, &which), f % 3 == 1 ? MPT_LINT_OVERFLOWS : MPT_LINT_OK);
        CHECK_EQ_U(which, f % 3 == 1 ? 0 : 99);
        layer_make(&lc, 777, MPT_STORE_NEAREST, MPT_F16, MPT_F32, MPT_MOMENTS_F32);
        CHECK_EQ_I(mpt_lint_copies(&lc.t, 1, &which), MPT_LINT_OK);
        ((uint16_t *)lc.a.param)[300] = 0x7c00u;  /* without a master */
        CHECK_EQ_I(mpt_lint_copies(&lc.t, 1, &which), MPT_LINT_OVERFLOWS);
        la.a.master[776] = 1.0f, lb.a.master[7] = 0.0f;
        CHECK_EQ_I(mpt_publish(list, 2), MPT_OK);
        for (i = 0; i < COUNT(where); i++) {
            const size_t         width = list[1].param_format == MPT_F32 ? 4u : 2u;
            unsigned char *const last = (unsigned char *)list[1].param + where[i] * width + width - 1u;
            *last ^= 1u;
            CHECK_EQ_I(mpt_lint_copies(list, 2, &which), MPT_LINT_STALE);
            CHECK_EQ_U(which, 1);
            CHECK_EQ_I(mpt_lint_copies(list, 1, NULL), MPT_LINT_OK);
            *last ^= 1u, which = 99;
        }
        la.a.master[776] = -la.a.master[776] + 1.0f;        /* as an optimizer of one's own steps */
        CHECK_EQ_I(mpt_lint_copies(list, 2, NULL), MPT_LINT_STALE);
        list[0].param = NULL;                               /* a master without a copy */
        CHECK_EQ_I(mpt_lint_copies(list, 2, NULL), MPT_LINT_OK);
        list[1].storage = MPT_STORE_NEAREST, *(unsigned char *)list[1].param ^= 1u;     /* no master */
        list[1].param_format = MPT_F16, list[1].rounded = lb.t.rounded;
        CHECK_EQ_I(mpt_lint_copies(list, 2, NULL), MPT_LINT_OK);
        list[1].storage = MPT_STORE_MASTER, list[1].master = NULL;
        CHECK_EQ_I(mpt_lint_copies(list, 2, &which), MPT_LINT_UNKNOWN);
        CHECK_EQ_I(mpt_lint_copies(NULL, 2, &which), MPT_LINT_UNKNOWN);
        CHECK_EQ_I(mpt_lint_copies(NULL, 0, &which), MPT_LINT_OK);
    }
}

/* A hash of the results of a run must equal the recorded one: the same bits with every compiler, at every
 * optimization level, with and without the processor's FMA, in C and in C++. */
static uint64_t run_hash(size_t recipe, mpt_format grad, mpt_format param, size_t n, int steps)
{
    optimizer  o = optimizer_make(recipe);
    mpt_scaler s = scaler_from(dynamic(256.0f, 1.5, 0.3, 20));
    mpt_step   step = step_zero();
    uint64_t   hash = (uint64_t)0xcbf29ce484222325u;
    size_t     i;
    int        t;
    layer_make(&la, n, MPT_STORE_MASTER, param, grad, MPT_MOMENTS_F32);
    for (t = 0; t < steps; t++) {
        layer_gradient(&la, s.scale);
        if (t % 50 == 49)
            element_set(la.a.grad, grad, 5, INF32);
        train_step(&o, &s, &step, &la, 2.0f);
        hash = (hash ^ mpti_f64_bits(step.sumsq)) * (uint64_t)0x100000001b3u;
    }
    for (i = 0; i < n; i++) {
        hash = (hash ^ mpti_f32_bits(la.a.master[i])) * (uint64_t)0x100000001b3u;
        hash = (hash ^ get_bits(la.a.param, param, i)) * (uint64_t)0x100000001b3u;
    }
    return hash;
}

TEST(steps_give_the_known_bits)
{
    static const size_t   sizes[] = {0, 1, 255, 256, 257, 1000};
    static const uint64_t long_runs[COUNT(recipes)] = {     /* of each recipe */
        (uint64_t)0x0478a11a04e91e29u, (uint64_t)0xf9c35eed5ef716a8u, (uint64_t)0x673a420c12960674u,
        (uint64_t)0xd20d612c27a0d5bdu, (uint64_t)0x72c6c1548ded7874u, (uint64_t)0x5e041a0a150e3581u,
        (uint64_t)0x573fa5734e157249u, (uint64_t)0xb5bd2128e6be9fe5u, (uint64_t)0x1209e8933a1eba43u,
        (uint64_t)0x9dff84aaef0ee3efu, (uint64_t)0xac8455afcaea3467u, (uint64_t)0x527b6bf0a197d093u,
        (uint64_t)0x0f988c4162e00984u, (uint64_t)0x3808e8ef65065690u, (uint64_t)0x8b7e6b5bc94ec19fu,
        (uint64_t)0x35b7cb23ebf19178u};
    static const uint64_t short_runs[9] = {                 /* of each pair of formats */
        (uint64_t)0x7c6b48f98ee2839au, (uint64_t)0xcc70bb6790a79593u, (uint64_t)0x7ad381e8514ca9c0u,
        (uint64_t)0xde65c588ea2efc4cu, (uint64_t)0x210d363da630f552u, (uint64_t)0xf02352634b8f3524u,
        (uint64_t)0xe8c10f28e38a6d94u, (uint64_t)0x30f985d8a94d93fbu, (uint64_t)0x65d280842cdff614u};
    size_t                i, f, k;
    for (i = 0; i < COUNT(recipes); i++)
        CHECK_EQ_U_AT(run_hash(i, MPT_F16, MPT_BF16, 300, 200), long_runs[i], i);
    for (f = 0; f < 9; f++) {
        uint64_t all = 0u;
        for (k = 0; k < COUNT(sizes); k++)
            for (i = 0; i < COUNT(recipes); i++)
                all = (all ^ run_hash(i, formats[f / 3], formats[f % 3], sizes[k], 3)) *
                      (uint64_t)0x100000001b3u;
        CHECK_EQ_U_AT(all, short_runs[f], f);
    }
}

/* ---- state ---- */

TEST(structs_have_no_padding)
{
    CHECK_EQ_U(sizeof(mpt_scaler_config), 6 * 8 + 6 * 4);
    CHECK_EQ_U(sizeof(mpt_scaler), sizeof(mpt_scaler_config) + 7 * 8 + 22 * 4);
    CHECK_EQ_U(sizeof(mpt_step), 9 * 8 + 6 * 4);
    CHECK_EQ_U(sizeof(mpt_sgd), 6 * 4 + 8);
    CHECK_EQ_U(sizeof(mpt_lion), 6 * 4 + 8);
    CHECK_EQ_U(sizeof(mpt_adamw), 6 * 4 + 8);
    CHECK_EQ_U(sizeof(mpt_range), (8 + MPT_RANGE_BINS + 2 + 3) * 8 + 2 * 4);
    CHECK_EQ_U(sizeof(mpt_survey), (4 + MPT_RANGE_BINS + 2 * MPT_SURVEY_EDGES + 1 + 2) * 8);
}

/* Copy all state in the middle of a step and continue both copies: they stay equal to the last byte. */
TEST(state_is_all_in_the_structs)
{
    size_t i;
    int    t, twin;
    for (i = 0; i < COUNT(recipes); i++) {
        optimizer  o[2];
        mpt_scaler s[2];
        mpt_step   step[2];
        uint64_t   seed = 0;
        o[0] = o[1] = optimizer_make(i);
        s[0] = scaler_from(dynamic(8.0f, 1.7, 0.3, 3));
        step[0] = step_zero();
        layer_make(&la, 200, MPT_STORE_MASTER, MPT_F16, MPT_BF16, MPT_MOMENTS_F32);
        for (t = 0; t < 60; t++) {
            if (t == 31) {
                layer_gradient(&la, 8.0f);
                (void)mpt_scaler_scale(&s[0], 1.0f);
                CHECK_EQ_I(mpt_check(&s[0], &step[0], &la.t, 1, NULL), MPT_OK);
                layer_copy(&lb, &la);
                memcpy(&o[1], &o[0], sizeof o[0]);
                memcpy(&s[1], &s[0], sizeof s[0]);
                memcpy(&step[1], &step[0], sizeof step[0]);
                for (twin = 0; twin < 2; twin++) {
                    CHECK_EQ_I(optimizer_step(&o[twin], &step[twin], twin ? &lb.t : &la.t, 1), MPT_OK);
                    CHECK_EQ_I(mpt_scaler_update(&s[twin]), MPT_OK);
                }
                continue;
            }
            seed = mt_random();
            for (twin = 0; twin < (t > 31 ? 2 : 1); twin++) {
                mt.random_state = seed;
                layer_gradient(twin ? &lb : &la, 8.0f);
                if (t % 11 == 10)
                    set_bits(twin ? lb.a.grad : la.a.grad, MPT_BF16, 7, 0x7fc0u);
                train_step(&o[twin], &s[twin], &step[twin], twin ? &lb : &la, 1.0f);
            }
        }
        CHECK(!memcmp(&o[0], &o[1], sizeof o[0]));
        CHECK(!memcmp(&s[0], &s[1], sizeof s[0]));
        CHECK(!memcmp(&step[0], &step[1], sizeof step[0]));
        CHECK(!memcmp(&la.a, &lb.a, sizeof la.a));
        CHECK(s[0].skipped == 5 && s[0].updates == 60 && s[0].good_steps < 3);
    }
}

/* ---- range report ---- */

static mpt_range range_of(mpt_format format, const float *x, size_t n)
{
    mpt_range r;
    memset(&r, 0xa5, sizeof r);
    CHECK_EQ_I(mpt_range_init(&r, format), MPT_OK);
    CHECK_EQ_I(mpt_range_add(&r, MPT_F32, x, n), MPT_OK);
    return r;
}

/* The limits, worked out by hand: ties go to the even code. */
TEST(range_limits)
{
    static const struct { mpt_format format; uint64_t kept, normal, overflow; } hand[] = {
        {MPT_F16, UINT64_C(0x3e60000000000001), UINT64_C(0x3f0ffc0000000000),
         UINT64_C(0x40effe0000000000)},                     /* 2^-25 is a tie; overflow starts at 65520 */
        {MPT_BF16, UINT64_C(0x3790000000000001), UINT64_C(0x380fe00000000000), UINT64_C(0x47eff00000000000)},
        {MPT_E4M3, UINT64_C(0x3f50000000000001), UINT64_C(0x3f8e000000000000),
         UINT64_C(0x407d000000000001)},                     /* 464 is a tie: rounds to 448 */
        {MPT_E5M2, UINT64_C(0x3ee0000000000001), UINT64_C(0x3f0c000000000000),
         UINT64_C(0x40ee000000000000)},                     /* overflow starts at 61440 */
        {MPT_E2M1, UINT64_C(0x3fd0000000000001), UINT64_C(0x3fe8000000000000),
         UINT64_C(0x401c000000000000)},                     /* 7 is a tie: would round to 8 */
        {MPT_F64, 1u, UINT64_C(0x0010000000000000), UINT64_C(0x7ff0000000000000)}};
    size_t i;
    for (i = 0; i < COUNT(hand); i++) {
        const mpt_range r = range_of(hand[i].format, NULL, 0);
        CHECK_EQ_U_AT(r.least_kept, hand[i].kept, i);
        CHECK_EQ_U_AT(r.least_normal, hand[i].normal, i);
        CHECK_EQ_U_AT(r.least_overflow, hand[i].overflow, i);
    }
}

/* A hash of the reports of random numbers in each of three formats, for every format, must equal the recorded
 * one. test_mpt_report.c tests what the reports hold. */
TEST(ranges_give_the_known_counts)
{
    uint64_t hash = (uint64_t)0xcbf29ce484222325u;
    int      format, i;
    size_t   f, k;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
        for (f = 0; f < 3 && format != (int)MPT_E8M0; f++) {
            mpt_range r;
            for (k = 0; k < 5000; k++)
                set_bits(big, formats[f], k, k % 2 ? (uint32_t)(mt_random() >> 32)
                                                   : encode(formats[f], random_wide(-30, 17)));
            CHECK_EQ_I(mpt_range_init(&r, (mpt_format)format), MPT_OK);
            CHECK_EQ_I(mpt_range_add(&r, formats[f], big, 5000), MPT_OK);
            CHECK_EQ_U(r.count, 5000);
            hash = (hash ^ r.zero ^ r.flushed << 13 ^ r.subnormal << 26 ^ r.normal << 39 ^ r.overflow << 50) *
                   (uint64_t)0x100000001b3u;
            hash = (hash ^ r.inf ^ r.nan << 32) * (uint64_t)0x100000001b3u;
            hash = (hash ^ mpti_f64_bits(r.max_abs)) * (uint64_t)0x100000001b3u;
            hash = (hash ^ mpti_f64_bits(r.min_abs)) * (uint64_t)0x100000001b3u;
            for (i = 0; i < MPT_RANGE_BINS; i++)
                hash = (hash ^ r.binade[i]) * (uint64_t)0x100000001b3u;
        }
    CHECK_EQ_U(hash, (uint64_t)0xb2efc186ba6184c8u);
}

TEST(range_empty_and_zero)
{
    const float      zeros[] = {0.0f, -0.0f, 0.0f}, inf = mpti_f32_make(BITS_INF);
    mpt_range        r;
    mpt_range_choice c;
    int              i;
    for (i = 0; i < 3; i++) {
        r = i == 0   ? range_of(MPT_F16, NULL, 0)
            : i == 1 ? range_of(MPT_F16, zeros, 3)
                     : range_of(MPT_F16, &inf, 1);
        CHECK_EQ_U(r.count, i == 0 ? 0 : i == 1 ? 3 : 1);
        CHECK_EQ_U(r.zero, i == 1 ? 3 : 0);
        CHECK_EQ_U(mpti_f64_bits(r.max_abs) | mpti_f64_bits(r.min_abs), 0);
        memset(&c, 0xa5, sizeof c);
        CHECK_EQ_I(mpt_range_choose_scale(&r, 3, NULL, &c), MPT_OK);
        CHECK(c.scale == 1.0f && c.log2_scale == 0 && !c.flushed && !c.subnormal);
    }
}

TEST(range_refusals)
{
    const float      x = 1.0f;
    mpt_range        r = range_of(MPT_F16, &x, 1), other = range_of(MPT_BF16, &x, 1), zeroed, was;
    mpt_range_choice c, c_was;
    memcpy(&was, &r, sizeof r);
    memset(&c, 0xa5, sizeof c);
    memcpy(&c_was, &c, sizeof c);
    CHECK_EQ_I(mpt_range_init(NULL, MPT_F16), MPT_E_ARG);
    zeroed = r;                                 /* a refused init leaves a zeroed report */
    CHECK_EQ_I(mpt_range_init(&zeroed, MPT_FORMAT_COUNT), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_init(&zeroed, (mpt_format)31), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_init(&zeroed, MPT_E8M0), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_range_add(NULL, MPT_F32, &x, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_add(&r, MPT_F32, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_add(&zeroed, MPT_F32, &x, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_merge(&r, &other), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_merge(&r, &zeroed), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_merge(&zeroed, &r), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_merge(NULL, &r), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_merge(&r, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_choose_scale(NULL, 3, NULL, &c), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 3, NULL, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_choose_scale(&zeroed, 3, NULL, &c), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_choose_scale(&r, -1, NULL, &c), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 31, NULL, &c), MPT_E_ARG);
    CHECK(!memcmp(&was, &r, sizeof r) && !memcmp(&c, &c_was, sizeof c));
    memset(&was, 0, sizeof was);
    CHECK(!memcmp(&was, &zeroed, sizeof was));
}

/* A double holds every float at every scale: nothing is lost, so the scale is 1. */
TEST(range_choice_for_f64)
{
    const float      x[] = {1e-30f, 1.0f, 1e30f};
    const mpt_range  r = range_of(MPT_F64, x, 3);
    mpt_range_choice c;
    CHECK_EQ_I(mpt_range_choose_scale(&r, 3, NULL, &c), MPT_OK);
    CHECK(c.scale == 1.0f && c.log2_scale == 0 && c.headroom == 1023 - 99 && !c.flushed && !c.subnormal);
}

/* The case of Micikevicius et al. 2018: gradients around 2^-30 in FP16. */
TEST(range_choice_known)
{
    const float      x[] = {pow2f(-20), pow2f(-30), -pow2f(-30)};
    const mpt_range  r = range_of(MPT_F16, x, 3);
    mpt_range_choice c;
    CHECK(r.flushed == 2 && r.subnormal == 1 && !r.normal);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 3, NULL, &c), MPT_OK);
    CHECK(c.log2_scale == 16 && c.scale == 65536.0f && c.headroom == 19);      /* 2^-30 becomes 2^-14 */
    CHECK(c.flushed == 0 && c.subnormal == 0);
    CHECK_EQ_I(mpt_range_choose_scale(&r, 30, NULL, &c), MPT_OK);
    CHECK(c.log2_scale == 5 && c.headroom == 30 && c.flushed == 0 && c.subnormal == 3);
}

/* ---- the drawing ---- */

/* The drawing as text, split into lines. */
enum { LINES_MAX = 100 };
static struct { char text[20000]; const char *line[LINES_MAX]; int lines; } drawn;

static int draw(const mpt_range *r, const char *title)
{
    FILE *f = tmpfile();
    char *at;
    size_t n;
    memset(&drawn, 0, sizeof drawn);
    if (!f)
        return 0;
    CHECK_EQ_I(mpt_range_write(r, MPT_STYLE_DRAWING, title, mpt_writer_file(f)), MPT_OK);
    rewind(f);
    n = fread(drawn.text, 1, sizeof drawn.text - 1, f);
    (void)fclose(f);
    CHECK(n > 0 && drawn.text[n - 1] == '\n');
    for (at = strtok(drawn.text, "\n"); at && drawn.lines < LINES_MAX; at = strtok(NULL, "\n"))
        drawn.line[drawn.lines++] = at;
    return 1;
}

/* Index of the line that draws binade 2^e; -1 if there is none. */
static int row_of(int e)
{
    char head[20];
    int  i;
    (void)sprintf(head, "  2^%-5d|", e);
    for (i = 0; i < drawn.lines; i++)
        if (!strncmp(drawn.line[i], head, strlen(head)))
            return i;
    return -1;
}

/* The row of 2^e has a bar of this length, then this percentage, then nothing or a remark in parentheses. */
static void row_is(int e, int length, const char *percent)
{
    const int   row = row_of(e);
    const char *bar = row < 0 ? "" : strchr(drawn.line[row], '|') + 1;
    const char *behind = bar + strspn(bar, "#");
    mt_context("row", row < 0 ? "missing" : drawn.line[row]);
    CHECK(row >= 0 && behind - bar == length);
    CHECK(!strncmp(behind, percent, strlen(percent)));
    CHECK(!behind[strlen(percent)] || !strncmp(behind + strlen(percent), " (", 2));
    mt_context(NULL, NULL);
}

/* Between the rows of 2^e and 2^(e-1) is an edge line that contains the format's name and the word. */
static void edge_is(int e, const char *format, const char *word)
{
    const int   row = row_of(e);
    const char *line = row < 0 || row + 2 != row_of(e - 1) ? "" : drawn.line[row + 1];
    mt_context("edge", line);
    CHECK(!strncmp(line, "  ---", 5) && strstr(line, format) && strstr(line, word));
    mt_context(NULL, NULL);
}

TEST(range_print_rows)
{
    const float     x[] = {0.0f, pow2f(-26), pow2f(-24), pow2f(-15), 1.0f, -1.5f, 1.25f, pow2f(16),
                           mpti_f32_make(BITS_INF), mpti_f32_make(BITS_QNAN)};
    const mpt_range r = range_of(MPT_F16, x, COUNT(x));
    int             e;
    if (!draw(&r, "grad of conv1"))
        SKIP("no temporary file");
    CHECK_EQ_S(drawn.line[0], "grad of conv1: 10 values, 10.0% zero, 1 Inf, 1 NaN");
    CHECK_EQ_S(drawn.line[1],
               "  in f16, of the nonzero: 14.3% become 0, 28.6% subnormal, 42.9% normal, 14.3% overflow");
    for (e = 16; e >= -26; e--) {
        if (e == 0)
            row_is(e, 50, " 42.9%");
        else if (e == 16 || e == -15 || e == -24 || e == -26)
            row_is(e, 17, " 14.3%");
        else
            row_is(e, 0, "");
    }
    edge_is(16, "f16", "overflow");
    edge_is(-14, "f16", "subnormal");
    edge_is(-25, "f16", "becomes 0");
    CHECK_EQ_I(drawn.lines, 2 + 43 + 3);
    CHECK(row_of(17) < 0 && row_of(-27) < 0);
}

/* 261 binades are drawn in groups; no group crosses an edge. */
TEST(range_print_groups)
{
    const float x[] = {pow2f(-140), pow2f(0), pow2f(0), pow2f(120)};
    mpt_range   r = range_of(MPT_BF16, x, 4);
    if (!draw(&r, "wide"))
        SKIP("no temporary file");
    CHECK(drawn.lines > 20 && drawn.lines <= 2 + 44 + 3 + 3);
    row_is(120, 25, " 25.0%");
    row_is(0, 50, " 50.0%");
    edge_is(-126, "bf16", "subnormal");
    row_is(-135, 25, " 25.0%");
    CHECK(row_of(-134) < 0);
}

TEST(range_print_corners)
{
    static float many[10001];
    mpt_range    r = range_of(MPT_F16, NULL, 0);
    if (!draw(&r, "nothing"))
        SKIP("no temporary file");
    CHECK_EQ_I(drawn.lines, 2);
    CHECK_EQ_S(drawn.line[0], "nothing: 0 values, 0.0% zero, 0 Inf, 0 NaN");
    many[0] = 65504.0f;
    r = range_of(MPT_F16, many, 1);
    CHECK(draw(&r, "one"));
    row_is(15, 50, " 100.0%");
    CHECK_EQ_I(drawn.lines, 5);             /* the row between its nearest edges */
    CHECK_EQ_S(drawn.line[2], "  -------+--- f16: 2^16 and above: overflow");
    CHECK_EQ_S(drawn.line[4], "  -------+--- f16: 2^-14 is the smallest normal binade; below: subnormal");
    for (many[0] = 1.0f; r.count < 10002; )     /* one value in ten thousand is drawn, and not as 0% */
        CHECK_EQ_I(mpt_range_add(&r, MPT_F32, many, 1), MPT_OK);
    CHECK(draw(&r, "most are 1"));
    row_is(15, 1, " <0.1%");
    row_is(0, 50, " >99.9%");
}

TEST(range_print_refusals)
{
    mpt_range r = range_of(MPT_F16, NULL, 0), zeroed;
    memset(&zeroed, 0, sizeof zeroed);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_DRAWING, "t", mpt_writer_file(NULL)), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write(NULL, MPT_STYLE_DRAWING, "t", mpt_writer_file(stdout)), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write(&r, MPT_STYLE_DRAWING, NULL, mpt_writer_file(stdout)), MPT_E_ARG);
    CHECK_EQ_I(mpt_range_write(&zeroed, MPT_STYLE_DRAWING, "t", mpt_writer_file(stdout)), MPT_E_ARG);
}

/* A record used again keeps nothing of the step before; lists that differ in length are not added; a bad
 * step's gradients are all zero; a join that is refused changes no record. */
TEST(records_and_lists_of_two_lengths)
{
    enum { N = 20000 };
    static float g[N], out[N];
    float        one[1] = {1.0f}, two[2] = {1.0f, 2.0f};
    mpt_tensor   t = mpt_tensor_grad_f32("t", g, N), small = mpt_tensor_grad_f32("one", one, 1);
    mpt_tensor   large = mpt_tensor_grad_f32("two", two, 2);
    mpt_scaler   s, other;
    mpt_step     step[3];
    mpt_tensors  list;
    mpt_tensor   item[1];
    size_t       i;
    memset(step, 0, sizeof step);
    for (i = 0; i < N; i++)
        g[i] = out[i] = 7.0f;
    g[5] = mpti_f32_make(0x7f800000u);
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    CHECK_EQ_I(mpt_scaler_init(&other, NULL), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    (void)mpt_scaler_scale(&other, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step[0], &t, 1, NULL), MPT_OK);
    CHECK_EQ_U(step[0].bad_index, 5);
    CHECK_EQ_I(mpt_grad_get(&step[0], &t, g + 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_grad_get(&step[0], &t, out), MPT_OK);
    for (i = 0; i < N && mpti_f32_bits(out[i]) == 0u; i++)
        ;
    CHECK_EQ_U(i, N);
    CHECK_EQ_I(mpt_check(&other, &step[1], &small, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_steps_join(step, 3), MPT_E_ORDER);   /* bad, good, not checked */
    CHECK_EQ_U(step[1].found_inf, 0);
    CHECK_EQ_I(mpt_scaler_update(&s), MPT_OK);
    g[5] = 7.0f;
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step[0], &t, 1, NULL), MPT_OK);
    CHECK_EQ_U(step[0].found_inf | step[0].bad_index, 0);
    small.master = one;                 /* a gradient that is the master, too: it would be unscaled */
    CHECK_EQ_I(mpt_scaler_init(&other, NULL), MPT_OK);
    (void)mpt_scaler_scale(&other, 1.0f);
    CHECK_EQ_I(mpt_unscale(&other, &step[1], &small, 1, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_grads_zero(&small, 1), MPT_E_ARG);
    CHECK(one[0] == 1.0f);
    small.master = NULL;
    CHECK_EQ_I(mpt_accumulate(&small, &large, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_accumulate(&large, &small, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_tensors_init(&list, item, 1, MPT_F16, MPT_F16), MPT_OK);
    if (sizeof(size_t) > 4)
        CHECK_EQ_I(mpt_tensors_shard(&list, 0, (size_t)0xffffffffu + 1u), MPT_E_ARG);
}

/* The squares are subnormal floats: the chunk is summed again, scaled. */
TEST(small_sums_are_exact)
{
    static float g[16384];
    mpt_tensor   t = mpt_tensor_grad_f32("g", g, 16384u);
    mpt_scaler   s;
    mpt_step     step;
    double       want;
    size_t       i;
    memset(&step, 0, sizeof step);
    for (i = 0; i < 16384u; i++)
        g[i] = 1.1011e-21f;             /* its square, 2^-139.3, has 10 bits as a float */
    want = 16384.0 * ((double)g[0] * (double)g[0]);
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    s.scale = 1.0f, s.wide = 1.0;
    CHECK_EQ_I(mpt_check(&s, &step, &t, 1u, NULL), MPT_OK);
    CHECK(fabs(step.sumsq - want) < 1e-6 * want);
}

TEST(clip_at_the_edges)
{
    float      g[256];
    mpt_tensor t = mpt_tensor_grad_f32("g", g, 255u);
    mpt_scaler s;
    mpt_step   step;
    size_t     i;
    memset(&step, 0, sizeof step);
    memset(g, 0, sizeof g);
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    g[0] = mpt_scaler_scale(&s, 1.0f), g[255] = 3.0f;
    CHECK_EQ_I(mpt_unscale(&s, &step, &t, 1u, NULL), MPT_OK);
    CHECK_EQ_I(mpt_clip(&step, 0.99999994f), MPT_OK);
    CHECK_EQ_I(mpt_clip_apply(&step, &t, 1u, 0.0f), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(g[0]), 0x3f7fffffu);       /* the factor next to 1 */
    for (i = 1; i < 255u; i++)
        CHECK(g[i] == 0.0f);
    CHECK(g[255] == 3.0f);              /* one short of a tile: what follows stays */
}

TEST(accumulate_beyond_a_chunk)
{
    static float   sum[16400];
    static mpt_f16 h[16400];
    mpt_tensor     dst = mpt_tensor_grad_f32("g", sum, 16400u), src = dst;
    size_t         i;
    src.grad = h, src.grad_format = MPT_F16;
    for (i = 0; i < 16400u; i++)
        sum[i] = 1.0f, h[i] = mpt_f16_from_f32((float)(i % 1000u));
    CHECK_EQ_I(mpt_accumulate(&dst, &src, 1u), MPT_OK);
    for (i = 0; i < 16400u; i++)
        CHECK(sum[i] == 1.0f + (float)(i % 1000u));
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(scaler_defaults);
    RUN(scaler_scale_multiplies);
    RUN(scaler_grows_after_interval_backs_off_and_resets);
    RUN(scaler_interval_one);
    RUN(scaler_growth_to_infinity_is_refused_but_counted);
    RUN_EXACT(scaler_shrinks_to_subnormals_and_zero);
    RUN(scaler_odd_factors);
    RUN(scaler_static_never_moves);
    RUN(order_nothing_before_the_first_scale);
    RUN(order_each_call_once);
    RUN(order_a_refused_check_skips_the_step);
    RUN(order_after_a_new_start);
    RUN(bad_pointers);
    RUN(bad_clip_norms);
    RUN(bad_tensors_null_arrays);
    RUN(bad_tensors_formats);
    RUN(validate_names_the_first_fault);
    RUN(null_with_size_zero);
    RUN(two_optimizers_share_a_scale);
    RUN(two_backward_passes_for_one_step);
    RUN(a_step_knows_the_sizes_it_checked);
    RUN(record_is_merged);
    RUN(found_inf_anywhere);
    RUN(found_inf_by_unscaling);
    RUN_EXACT(found_inf_by_a_subnormal_scale);
    RUN(found_inf_by_writing_back);
    RUN(factor_is_the_rounded_inverse);
    RUN(check_reads_and_unscale_multiplies);
    RUN_EXACT(sumsq_tree_over_sizes);
    RUN_EXACT(sumsq_tree_over_lists);
    RUN_EXACT(sumsq_skips_what_is_not_finite);
    RUN(norm_is_close_to_exact);
    RUN_EXACT(norm_of_unscaled_is_that_of_what_was_written);
    RUN(norm_does_not_overflow);
    RUN(norm_in_other_rounding_modes);
    RUN_EXACT(norm_from_end_to_end);
    RUN(a_check_only_reads);
    RUN(clip_factor);
    RUN(clip_factor_is_the_rounded_quotient);
    RUN(clip_of_a_bad_step_is_one);
    RUN(clip_apply_multiplies_and_limits);
    RUN(clip_fused_equals_clip_applied);
    RUN_EXACT(one_call_equals_four);
    RUN(one_call_refuses);
    RUN_EXACT(grad_get_unscales_and_clips);
    RUN(order_text_names_the_way_out);
    RUN(order_text_says_what_is_due);
    RUN(refused_step_is_told_by_the_next_update);
    RUN(lists_checked_one_by_one);
    RUN(the_update_tells_of_every_refused_check);
    RUN(forgotten_update_skips_the_next_step);
    RUN(steps_without_optional_arrays);
    RUN(publish_writes_the_copies);
    RUN(stale_copies_are_found);
    RUN_EXACT(steps_give_the_known_bits);
    RUN(structs_have_no_padding);
    RUN(state_is_all_in_the_structs);
    RUN(range_limits);
    RUN(ranges_give_the_known_counts);
    RUN(range_empty_and_zero);
    RUN(range_refusals);
    RUN(range_choice_known);
    RUN(range_print_rows);
    RUN(range_print_groups);
    RUN(range_print_corners);
    RUN(range_print_refusals);
    RUN(range_choice_for_f64);
    RUN(records_and_lists_of_two_lengths);
    RUN_EXACT(small_sums_are_exact);
    RUN_EXACT(clip_at_the_edges);
    RUN(accumulate_beyond_a_chunk);
    return mt_end();
}
