/* test_mpt_edges.c -- cases that no other test covered: found by changing the code (make mutate). */
#include "mpt.h"
#include "test.h"

static float inf(void) { return mpti_f32_make(0x7f800000u); }
static float nan_of(void) { return mpti_f32_make(0x7fc00000u); }
static int near_f(float got, double want) { return got >= (float)want && got <= (float)want; }

/* Merging the reports of all parts gives the report of the whole, and every field is in it. */
TEST(roundoff_merge_keeps_all)
{
    const float  x[8] = {1.0f, 0.0f, 1e-9f, 1e9f, 0.1f, inf(), nan_of(), -inf()};
    mpt_roundoff whole, part, sum;
    size_t       i;
    CHECK_EQ_I(mpt_roundoff_init(&whole, MPT_F16, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_init(&sum, MPT_F16, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_add(&whole, MPT_F32, x, 8), MPT_OK);
    for (i = 0; i < 8; i++) {
        CHECK_EQ_I(mpt_roundoff_init(&part, MPT_F16, NULL, 0), MPT_OK);
        CHECK_EQ_I(mpt_roundoff_add(&part, MPT_F32, x + i, 1), MPT_OK);
        CHECK_EQ_I(mpt_roundoff_merge(&sum, &part), MPT_OK);
    }
    CHECK_EQ_U(sum.count, 8);
    CHECK_EQ_U(sum.zero, 1);
    CHECK_EQ_U(sum.inf, 2);
    CHECK_EQ_U(sum.nan, 1);
    CHECK_EQ_U(sum.exact, 1);
    CHECK_EQ_U(sum.changed, 3);
    CHECK_EQ_U(sum.flushed, 1);
    CHECK_EQ_U(sum.overflow, 1);
    CHECK(!memcmp(&sum, &whole, sizeof sum));
}

/* The default values that the documentation states. */
TEST(defaults_of_optimizers)
{
    const mpt_adamw     adamw = mpt_adamw_defaults();
    const mpt_adam      adam = mpt_adam_defaults();
    const mpt_lamb      lamb = mpt_lamb_defaults();
    const mpt_lion      lion = mpt_lion_defaults();
    const mpt_adafactor ada = mpt_adafactor_defaults();
    CHECK(near_f(adamw.lr, 1e-3) && near_f(adamw.beta1, 0.9) && near_f(adamw.beta2, 0.999));
    CHECK(near_f(adamw.eps, 1e-8) && near_f(adamw.weight_decay, 0.01) && !adamw.options && !adamw.t);
    CHECK(near_f(adam.lr, 1e-3) && near_f(adam.beta1, 0.9) && near_f(adam.beta2, 0.999));
    CHECK(near_f(adam.eps, 1e-8) && near_f(adam.weight_decay, 0.0) && !adam.options && !adam.t);
    CHECK(near_f(lamb.lr, 1e-3) && near_f(lamb.beta1, 0.9) && near_f(lamb.beta2, 0.999));
    CHECK(near_f(lamb.eps, 1e-6) && near_f(lamb.weight_decay, 0.01) && !lamb.options && !lamb.t);
    CHECK(near_f(lion.lr, 1e-4) && near_f(lion.beta1, 0.9) && near_f(lion.beta2, 0.99));
    CHECK(near_f(lion.weight_decay, 0.0) && !lion.options && !lion.reserved && !lion.t);
    CHECK(near_f(ada.lr, 1e-2) && near_f(ada.eps1, 1.1920928955078125e-7) && near_f(ada.eps2, 1e-3));
    CHECK(near_f(ada.clip, 1.0) && near_f(ada.weight_decay, 0.0) && !ada.options && !ada.t);
}

/* amax is a running maximum: its start value may be 0, below the maximum of the data, or above it. */
TEST(encode_transpose_amax)
{
    static const float starts[] = {0.0f, 1.5f, 3.0f, 100.0f};
    const float        x[6] = {0.5f, -3.0f, 2.0f, 1.0f, 0.25f, -0.125f}, scale = 1.0f;
    mpt_e4m3           to[6], turned[6];
    size_t             i, k;
    for (i = 0; i < 4; i++) {
        float amax = starts[i];
        CHECK_EQ_I(mpt_fp8_encode_transpose(MPT_E4M3, to, turned, MPT_F32, x, 2, 3, &scale, &amax), MPT_OK);
        CHECK(near_f(amax, starts[i] > 3.0f ? (double)starts[i] : 3.0));
        for (k = 0; k < 6; k++)
            CHECK_EQ_U(to[k].bits, turned[k % 3 * 2 + k / 3].bits);
        amax = starts[i];
        CHECK_EQ_I(mpt_fp8_encode_transpose(MPT_E4M3, NULL, turned, MPT_F32, x, 2, 3, &scale, &amax), MPT_OK);
        CHECK(near_f(amax, starts[i] > 3.0f ? (double)starts[i] : 3.0));
    }
}

/* A margin may be at most 32 binades up or down, and has the documented effect. */
TEST(margins)
{
    float          scale = 0.0f, inverse = 0.0f, amax = 0.0f, history[2];
    mpt_fp8_scaling s;
    int            margin;
    for (margin = -34; margin <= 34; margin++) {
        memset(&s, 0, sizeof s);
        s.recipe = mpt_fp8_defaults(MPT_E4M3);
        s.recipe.length = 2;
        s.recipe.margin = margin;
        s.count = 1;
        s.scale = &scale, s.inverse = &inverse, s.amax = &amax, s.history = history;
        if (margin < -32 || margin > 32) {
            CHECK_EQ_I(mpt_fp8_init(&s), MPT_E_ARG);
            continue;
        }
        CHECK_EQ_I(mpt_fp8_init(&s), MPT_OK);
        amax = 1.75f;                   /* 448 / 1.75 is 2^8 */
        CHECK_EQ_I(mpt_fp8_update(&s), MPT_OK);
        CHECK(near_f(scale, ldexp(1.0, 8 - margin)));
        CHECK(near_f(inverse, ldexp(1.0, margin - 8)));
    }
}

/* NULL with a nonzero count, also with a count that no memory could hold. */
TEST(counts_without_lists)
{
    mpt_scaler s;
    mpt_step   step;
    mpt_sgd    sgd;
    mpt_memory memory, kept;
    memset(&step, 0, sizeof step);
    memset(&sgd, 0, sizeof sgd);
    memset(&memory, 7, sizeof memory);
    kept = memory;
    CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    CHECK_EQ_I(mpt_check(&s, &step, NULL, 1, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_unscale(&s, &step, NULL, 1, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_check(&s, &step, NULL, (size_t)-1, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_memory_report(NULL, 1, MPT_NEEDS_M, &memory), MPT_E_ARG);
    CHECK(!memcmp(&memory, &kept, sizeof memory));
    CHECK_EQ_I(mpt_check(&s, &step, NULL, 0, NULL), MPT_OK);
    CHECK_EQ_I(mpt_sgd_step(&sgd, &step, NULL, 1), MPT_E_ARG);
}

/* mpt_tensors_init makes an empty list, whatever its memory held before. */
TEST(lists_on_dirty_memory)
{
    mpt_tensor  item[2];
    mpt_tensors list, clean;
    float       w[4] = {1, 2, 3, 4}, g[4] = {0, 0, 0, 0}, other[2] = {5, 6};
    memset(&list, 0xa5, sizeof list);
    memset(item, 0xa5, sizeof item);
    memset(&clean, 0, sizeof clean);
    CHECK_EQ_I(mpt_tensors_init(&list, item, 2, MPT_F16, MPT_F32), MPT_OK);
    CHECK_EQ_I(mpt_tensors_init(&clean, item, 2, MPT_F16, MPT_F32), MPT_OK);
    CHECK_EQ_U(list.count, 0);
    CHECK_EQ_I(list.status, MPT_OK);
    CHECK_EQ_U(list.capacity, 2);
    CHECK(list.item == item && list.needs == clean.needs);
    CHECK(!memcmp(&list.model, &clean.model, sizeof list.model));
    CHECK_EQ_I(mpt_tensors_add(&list, "w", 4, NULL, g, w, NULL, NULL), MPT_OK);
    CHECK_EQ_U(list.count, 1);
    CHECK(item[0].master == w && item[0].grad == g && !item[0].param && !item[0].m && !item[0].v);
    CHECK(!item[0].extra && item[0].n == 4 && item[0].param_format == MPT_F16 && !item[0].seed);
    CHECK_EQ_I(mpt_tensors_add(&list, "a master alone", 2, NULL, NULL, other, NULL, NULL), MPT_OK);
    CHECK(item[1].master == other && !item[1].param && !item[1].grad);
    CHECK_EQ_I(mpt_tensors_add(&clean, "nothing", 4, NULL, NULL, NULL, NULL, NULL), MPT_E_ARG);
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
        CHECK(t->seed == 7u && near_f(t->lr_times, 0.5) && t->no_decay == 1u && t->columns == 2);
        CHECK(t->storage == MPT_STORE_MASTER && t->moments == MPT_MOMENTS_BF16 && !t->rounded && !t->rows);
        CHECK(near_f(t->decay_times, 0.0) && !t->whole && !t->first);
    }
    CHECK_EQ_I(list.model.param_format, MPT_F32);
}

static int soil_the_stack(int fill)
{
    volatile unsigned char room[512];
    size_t                 i;
    for (i = 0; i < sizeof room; i++)
        room[i] = (unsigned char)fill;
    return 1;
}

/* Called right after soil_the_stack, so that its stack frame overlaps the memory filled there. */
static int fp8_defaults_are_right(int length)
{
    const mpt_fp8_recipe r = mpt_fp8_defaults(MPT_E5M2);
    return r.format == MPT_E5M2 && r.choice == MPT_AMAX_MAX && r.length == (uint32_t)length && !r.margin &&
           !r.power_of_two && !r.drop_bad;
}

/* mpt_fp8_init sets the scales whatever the memory held before, and writes nothing beyond the arrays. */
TEST(fp8_scales_on_dirty_memory)
{
    static const int fills[] = {0, 0xff, 0xa5};
    int            (*volatile soil)(int) = soil_the_stack, (*volatile right)(int) = fp8_defaults_are_right;
    float            room[4][8];
    mpt_fp8_scaling  s;
    size_t           i, k;
    for (i = 0; i < 3; i++) {
        memset(room, fills[i], sizeof room);
        memset(&s, fills[i], sizeof s);
        CHECK(soil(fills[i]) && right(1024));
        s.recipe = mpt_fp8_defaults(MPT_E5M2);
        s.recipe.length = 3u;
        s.count = 2u;
        s.scale = room[0], s.inverse = room[1], s.amax = room[2], s.history = room[3];
        CHECK_EQ_I(mpt_fp8_init(&s), MPT_OK);
        for (k = 0; k < 8; k++) {
            const uint32_t was = (uint32_t)fills[i] * 0x01010101u;
            CHECK_EQ_U_AT(mpti_f32_bits(room[0][k]), k < 2 ? 0x3f800000u : was, k);
            CHECK_EQ_U_AT(mpti_f32_bits(room[1][k]), k < 2 ? 0x3f800000u : was, k);
            CHECK_EQ_U_AT(mpti_f32_bits(room[2][k]), k < 2 ? 0u : was, k);
            CHECK_EQ_U_AT(mpti_f32_bits(room[3][k]), k < 6 ? 0u : was, k);
        }
    }
}

/* mpt_clip_apply clips every element, for each length of the vectors' tail, and writes nothing beyond. */
TEST(clip_apply_to_the_end)
{
    float      g[40];
    mpt_tensor t;
    size_t     n, i;
    for (n = 1; n <= 37; n++) {
        mpt_scaler s;
        mpt_step   step;
        memset(&step, 0, sizeof step);
        memset(&t, 0, sizeof t);
        for (i = 0; i < 40; i++)
            g[i] = 65536.0f * (i % 2 ? -3.0f : 3.0f);
        t.n = n, t.grad = g, t.grad_format = MPT_F32;
        CHECK_EQ_I(mpt_scaler_init(&s, NULL), MPT_OK);
        (void)mpt_scaler_scale(&s, 1.0f);
        CHECK_EQ_I(mpt_unscale(&s, &step, &t, 1, NULL), MPT_OK);
        CHECK_EQ_I(mpt_clip(&step, (float)sqrt((double)n) * 1.5f), MPT_OK);
        CHECK_EQ_I(mpt_clip_apply(&step, &t, 1, 1.25f), MPT_OK);
        for (i = 0; i < n; i++)
            CHECK(near_f(g[i], i % 2 ? -1.25 : 1.25));
        for (; i < 40; i++)
            CHECK(near_f(g[i], 65536.0 * (i % 2 ? -3.0 : 3.0)));
    }
}

/* The bytes of gradients depend on the format of the gradients only. */
TEST(memory_by_gradient_format)
{
    static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};
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

/* A flushed subnormal input is exactly the integer 0; without flushing it is rounded. */
TEST(decode_integer_flushing)
{
    mpt_opts o;
    unsigned flags = 0;
    memset(&o, 0, sizeof o);
    o.rounding = MPT_RND_UP;
    CHECK_EQ_I(mpt_decode_i64(MPT_F16, 1u, 32, &o, &flags), 1);
    CHECK_EQ_U(flags, MPT_FLAG_INEXACT);
    flags = 0;
    o.flush = MPT_FLUSH_INPUTS;
    CHECK_EQ_I(mpt_decode_i64(MPT_F16, 1u, 32, &o, &flags), 0);
    CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0x3ffu, 32, &o, NULL), 0);
    CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0x400u, 32, &o, NULL), 1);       /* the smallest normal stays */
    CHECK_EQ_U(mpt_decode_u64(MPT_F16, 1u, 32, &o, NULL), 0);
    o.rounding = MPT_RND_DOWN;
    CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0x8001u, 32, &o, NULL), 0);
    o.flush = MPT_FLUSH_RESULTS;                                        /* does not apply to inputs */
    CHECK_EQ_I(mpt_decode_i64(MPT_F16, 0x8001u, 32, &o, NULL), -1);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(roundoff_merge_keeps_all);
    RUN(defaults_of_optimizers);
    RUN(encode_transpose_amax);
    RUN(margins);
    RUN(counts_without_lists);
    RUN(lists_on_dirty_memory);
    RUN(new_tensors_keep_what_they_are_given);
    RUN(fp8_scales_on_dirty_memory);
    RUN(clip_apply_to_the_end);
    RUN(memory_by_gradient_format);
    RUN(decode_integer_flushing);
    return mt_end();
}
