/* test_mpt_checkpoint.c -- tests of saving and loading a training run: after any micro-batch it resumes with
 * the same bits, the file has the same bytes on every machine, and a load refuses a buffer that is not a
 * checkpoint of this run, without changing anything.
 *     cc -O2 -std=c99 -I. tests/test_mpt_checkpoint.c tests/impl.c -o test_mpt_checkpoint -lm */
#include "../mpt.h"

#include "impl.h"
#include "test.h"

/* A small run: two tensors with FP32 masters under AdamW, a matrix with stochastic rounding under Adafactor,
 * one tensor with Kahan compensation and bf16 moments under Lion. All of its memory is in one struct without
 * padding, so that memcmp sees any change. */
enum { N = 11, MICRO = 3, COUNT = 4, MATRIX = 12, COLUMNS = 2 };
typedef struct run {
    mpt_scaler scaler;
    mpt_step   step;
    mpt_sgd    sgd;
    mpt_adamw  adamw;
    mpt_lion   lion;
    mpt_adafactor adafactor;
    uint64_t   counter[2];      /* micro-batches done; state of a random generator */
    float      w[2][N], m[2][N], v[2][N];
    mpt_f16    p[2][N], g[2][N];
    float      factors[MATRIX / COLUMNS + COLUMNS];
    mpt_bf16   matrix[MATRIX], matrix_g[MATRIX], kahan[N], kahan_rest[N], kahan_g[N], kahan_m[N];
} run;

static void bind(run *r, mpt_tensor t[COUNT])
{
    int i;
    memset(t, 0, COUNT * sizeof *t);
    for (i = 0; i < 2; i++) {
        t[i].name = i ? "second" : "first";
        t[i].n = N;
        t[i].master = r->w[i];
        t[i].param = r->p[i];
        t[i].grad = r->g[i];
        t[i].m = r->m[i];
        t[i].v = r->v[i];
        t[i].param_format = t[i].grad_format = MPT_F16;
    }
    for (; i < COUNT; i++)
        t[i].param_format = t[i].grad_format = MPT_BF16;
    t[2].name = "matrix";
    t[2].n = MATRIX;
    t[2].columns = COLUMNS;
    t[2].param = r->matrix;
    t[2].grad = r->matrix_g;
    t[2].v = r->factors;
    t[2].storage = MPT_STORE_STOCHASTIC;
    t[3].name = "kahan";
    t[3].n = N;
    t[3].param = r->kahan;
    t[3].extra = r->kahan_rest;
    t[3].grad = r->kahan_g;
    t[3].m = r->kahan_m;
    t[3].storage = MPT_STORE_KAHAN;
    t[3].moments = MPT_MOMENTS_BF16;
}

static mpt_state state_of(run *r, const mpt_tensor *t)
{
    mpt_state s;
    memset(&s, 0, sizeof s);
    s.scalers = &r->scaler;
    s.scaler_count = 1;
    s.steps = &r->step;
    s.step_count = 1;
    s.sgd = &r->sgd;
    s.adamw = &r->adamw;
    s.lion = &r->lion;
    s.adafactor = &r->adafactor;
    s.counters = r->counter;
    s.counter_count = 2;
    s.tensors = t;
    s.tensor_count = COUNT;
    s.gradients = 1;
    return s;
}

static uint64_t next(run *r)
{
    r->counter[1] = r->counter[1] * (uint64_t)6364136223846793005u + (uint64_t)1442695040888963407u;
    return r->counter[1] >> 33;
}

static void start(run *r)
{
    mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_MPT);
    mpt_tensor        t[COUNT];
    float             w[MATRIX];
    int               i, k;
    memset(r, 0, sizeof *r);
    c.interval = 4;
    CHECK_EQ_I(mpt_scaler_init(&r->scaler, &c), MPT_OK);
    r->adamw = mpt_adamw_defaults();
    r->lion = mpt_lion_defaults();
    r->adafactor = mpt_adafactor_defaults();
    r->sgd.lr = 0.5f;
    r->counter[1] = 7;
    for (i = 0; i < 2; i++)
        for (k = 0; k < N; k++)
            r->w[i][k] = (float)(next(r) % 2000u) * 1e-3f - 1.0f;
    bind(r, t);
    CHECK_EQ_I(mpt_publish(t, 2), MPT_OK);
    for (i = 2; i < COUNT; i++) {
        for (k = 0; k < MATRIX; k++)
            w[k] = (float)(next(r) % 2000u) * 1e-3f - 1.0f;
        CHECK_EQ_I(mpt_weights_set(&t[i], w), MPT_OK);
    }
}

/* One micro-batch; every third one ends a step, and every fifth one overflows at the initial scales. */
static void micro_batch(run *r)
{
    mpt_tensor t[COUNT], part[COUNT];
    mpt_step   second, third;
    mpt_f16    g[COUNT][MATRIX];
    float      w[MATRIX];
    int        i, k;
    bind(r, t);
    bind(r, part);
    if (r->counter[0] % MICRO == 0) {
        memset(r->g, 0, sizeof r->g);
        memset(r->matrix_g, 0, sizeof r->matrix_g);
        memset(r->kahan_g, 0, sizeof r->kahan_g);
    }
    for (i = 0; i < COUNT; i++) {
        part[i].grad = g[i];
        part[i].grad_format = MPT_F16;
        CHECK_EQ_I(mpt_weights_get(&t[i], w), MPT_OK);
        for (k = 0; k < (int)t[i].n; k++) {
            const float p = i < 2 ? mpt_f32_from_f16(r->p[i][k]) : w[k];
            const float x = (float)(next(r) % 2000u) * 1e-3f - 1.0f + p;
            g[i][k] = mpt_f16_from_f32(mpt_scaler_scale(&r->scaler, r->counter[0] % 5u ? 1e-3f * x : x));
        }
    }
    CHECK_EQ_I(mpt_accumulate(t, part, COUNT), MPT_OK);
    if (++r->counter[0] % MICRO)
        return;
    CHECK_EQ_I(mpt_check(&r->scaler, &r->step, t, COUNT, NULL), MPT_OK);
    CHECK_EQ_I(mpt_clip(&r->step, 1.0f), MPT_OK);
    second = third = r->step;
    CHECK_EQ_I(mpt_adafactor_step(&r->adafactor, &second, t + 2, 1), MPT_OK);
    CHECK_EQ_I(mpt_lion_step(&r->lion, &third, t + 3, 1), MPT_OK);
    CHECK_EQ_I(mpt_adamw_step(&r->adamw, &r->step, t, 2), MPT_OK);
    (void)mpt_scaler_update(&r->scaler);
}

static unsigned char buffer[8192], other[8192];

static size_t save(run *r, unsigned char *to)
{
    mpt_tensor t[COUNT];
    mpt_state  s;
    size_t     bytes = 0;
    bind(r, t);
    s = state_of(r, t);
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    CHECK(bytes <= sizeof buffer);
    CHECK_EQ_I(mpt_state_save(&s, to, bytes), MPT_OK);
    return bytes;
}

static mpt_status load(run *r, const unsigned char *from, size_t bytes)
{
    mpt_tensor t[COUNT];
    mpt_state  s;
    bind(r, t);
    s = state_of(r, t);
    return mpt_state_load(&s, from, bytes);
}

/* Save after any micro-batch, load into fresh memory and continue: the run ends with the same bytes. */
TEST(resume_everywhere)
{
    enum { STEPS = 60 };
    run a, b, c;
    int stop, i;
    start(&a);
    for (i = 0; i < STEPS; i++)
        micro_batch(&a);
    CHECK(a.scaler.skipped > 0 && a.adamw.t > 0 && a.adafactor.t == a.adamw.t && a.lion.t == a.adamw.t);
    for (stop = 0; stop <= STEPS; stop++) {
        size_t bytes;
        start(&b);
        for (i = 0; i < stop; i++)
            micro_batch(&b);
        bytes = save(&b, buffer);
        memset(&c, 0xa5, sizeof c);
        CHECK_EQ_I(load(&c, buffer, bytes), MPT_OK);
        b.step.sizes = 0u;                  /* not saved */
        CHECK(!memcmp(&b, &c, sizeof b));
        for (; i < STEPS; i++)
            micro_batch(&c);
        if (stop == STEPS)
            c.step.sizes = a.step.sizes;    /* no check has set it again */
        CHECK(!memcmp(&a, &c, sizeof a));
        CHECK_EQ_U(save(&c, other), bytes);
    }
}

/* A refused load returns MPT_E_DATA and leaves the run as it was. */
static void refused(const unsigned char *from, size_t bytes, size_t at)
{
    static run r, was;
    memset(&r, 0x5a, sizeof r);
    was = r;
    CHECK_EQ_U_AT((unsigned)-(int)load(&r, from, bytes), (unsigned)-(int)MPT_E_DATA, at);
    CHECK(!memcmp(&r, &was, sizeof r));
}

TEST(damage_is_refused)
{
    run    r;
    size_t bytes, i;
    int    bit;
    start(&r);
    for (i = 0; i < 7; i++)
        micro_batch(&r);
    bytes = save(&r, buffer);
    for (i = 0; i < bytes; i++)                     /* every single bit flipped */
        for (bit = 0; bit < 8; bit++) {
            buffer[i] ^= (unsigned char)(1u << bit);
            refused(buffer, bytes, 8u * i + (size_t)bit);
            buffer[i] ^= (unsigned char)(1u << bit);
        }
    for (i = 0; i < bytes; i++)                     /* truncated anywhere, or too long */
        refused(buffer, i, i);
    refused(buffer, bytes + 1, bytes);
    for (i = 0; i + 16 <= bytes; i += 8) {          /* two words exchanged */
        memcpy(other, buffer, bytes);
        memcpy(other + i, buffer + i + 8, 8);
        memcpy(other + i + 8, buffer + i, 8);
        if (memcmp(other, buffer, bytes))
            refused(other, bytes, i);
    }
    CHECK_EQ_I(load(&r, buffer, bytes), MPT_OK);
}

/* Values that no scaler, step or optimizer can hold, in a checkpoint whose checksum is made valid again. */
typedef struct poke { const char *name; size_t at, width; uint64_t bits; } poke;
#define SCALER(field, width, bits) {"scaler." #field, 32u + offsetof(mpt_scaler, field), width, bits}
#define STEP(field, width, bits) \
    {"step." #field, 40u + sizeof(mpt_scaler) + offsetof(mpt_step, field), width, bits}
#define NEGATIVE 0xfffffff0u
#define NAN_32   0x7fc00000u
#define INF_64   0x7ff0000000000000u
static const poke pokes[] = {
    SCALER(config.growth, 8, 0), SCALER(config.growth, 8, 0x3ff0000000000000u),
    SCALER(config.growth, 8, INF_64),
    SCALER(config.backoff, 8, 0), SCALER(config.backoff, 8, 0x4000000000000000u),
    SCALER(config.min_scale, 8, 0xc000000000000000u), SCALER(config.max_scale, 8, 0x3f00000000000000u),
    SCALER(config.init_scale, 4, 0), SCALER(config.init_scale, 4, NAN_32), SCALER(config.interval, 4, 0),
    SCALER(config.interval, 4, NEGATIVE), SCALER(config.dialect, 4, 99), SCALER(config.dialect, 4, NEGATIVE),
    SCALER(config.hysteresis, 4, 0), SCALER(config.patience, 4, 0), SCALER(config.flags, 4, 8),
    SCALER(updates, 8, 0), SCALER(skipped, 8, ~(uint64_t)0), SCALER(skipped_nan, 8, 1u << 20),
    SCALER(wide, 8, 0x3ff8000000000000u), SCALER(iteration, 8, ~(uint64_t)0), SCALER(iteration, 8, 1u << 20),
    SCALER(last_bad, 8, 0x8000000000000000u), SCALER(last_bad, 8, 241), SCALER(last_moved, 8, 0x7f800000),
    SCALER(scale, 4, NAN_32), SCALER(scale, 4, 0), SCALER(scale, 4, 0xc7800000u),
    SCALER(scale, 4, 0x3fc00000u),
    SCALER(home, 4, 0), SCALER(home, 4, NAN_32), SCALER(last_good, 4, 0), SCALER(last_good, 4, 0x3fc00000u),
    SCALER(good_steps, 4, NEGATIVE), SCALER(bad_steps, 4, NEGATIVE), SCALER(hysteresis_left, 4, 3),
    SCALER(hysteresis_left, 4, 0), SCALER(wait, 4, 0), SCALER(wait, 4, 0x40000000u),
    SCALER(depth, 4, NEGATIVE), SCALER(depth, 4, 0x40000000u), SCALER(search_steps, 4, NEGATIVE),
    SCALER(search_bad, 4, NEGATIVE), SCALER(search_bad, 4, 0x7fffffffu), SCALER(before_steps, 4, NEGATIVE),
    SCALER(at_floor, 4, NEGATIVE), SCALER(range_steps, 4, NEGATIVE), SCALER(base, 4, 1u << 24),
    SCALER(base_most, 4, 1u << 24), SCALER(excess, 4, 193u << 24), SCALER(climb, 4, 4),
    SCALER(verdict, 4, 99), SCALER(found_inf, 4, 2), SCALER(cause, 4, 8), SCALER(cause, 4, 1),
    SCALER(in_use, 4, 8),
    STEP(sumsq, 8, INF_64), STEP(sumsq, 8, 0xc000000000000000u), STEP(norm, 8, INF_64 + 1u),
    STEP(grad_factor, 4, NAN_32), STEP(grad_factor, 4, 0xbf800000u), STEP(clip_factor, 4, 0x40000000u),
    STEP(found_inf, 4, 2), STEP(stage, 4, 16), STEP(cause, 4, 8), STEP(bad_cause, 4, 8)
};

static int untouched(const void *p, size_t n)
{
    const unsigned char *b = (const unsigned char *)p;
    return b[0] == 0x5au && !memcmp(b, b + 1, n - 1u);
}

TEST(impossible_values_are_refused)
{
    static run   r, fresh;
    const size_t sgd = 40u + sizeof(mpt_scaler) + sizeof(mpt_step) + 8u;        /* lr is its first member */
    size_t       bytes, i;
    start(&r);
    for (i = 0; i < 20; i++)
        micro_batch(&r);
    bytes = save(&r, buffer);
    for (i = 0; i < sizeof pokes / sizeof *pokes + 2u; i++) {
        const poke rate = {"sgd.lr", sgd, 4, i % 2u ? NAN_32 : 0xbf800000u};
        const poke p = i < sizeof pokes / sizeof *pokes ? pokes[i] : rate;
        size_t     k;
        memcpy(other, buffer, bytes);
        for (k = 0; k < p.width; k++)
            other[p.at + k] = (unsigned char)(p.bits >> (8u * k));
        checkpoint_sum_again(other, bytes);
        memset(&fresh, 0x5a, sizeof fresh);
        mt_context(p.name, "loaded");
        CHECK_EQ_I(load(&fresh, other, bytes), MPT_E_DATA);
        CHECK(untouched(&fresh, sizeof fresh));
    }
    mt_context(NULL, NULL);
    CHECK_EQ_I(load(&fresh, buffer, bytes), MPT_OK);
    fresh.scaler.config.interval = 0;           /* and cannot be saved either */
    {
        mpt_tensor t[COUNT];
        mpt_state  s;
        bind(&fresh, t);
        s = state_of(&fresh, t);
        memset(other, 0x5a, sizeof other);
        CHECK_EQ_I(mpt_state_save(&s, other, bytes), MPT_E_ARG);
        CHECK(untouched(other, sizeof other));
    }
}

/* For a scaler of this dialect at scale 1024 with interval 10 and hysteresis 3, after 100 updates: the last
 * valid value of a field, and the first invalid one. WITH sets another field for the next row. */
#define EDGE(dialect, field, width, last, beyond) \
    {MPT_SCALER_##dialect, #field, 32u + offsetof(mpt_scaler, field), width, last, beyond}
#define WITH(dialect, field, width, value) EDGE(dialect, field, width, value, value)
#define STEP_EDGE(field, width, last, beyond) \
    {MPT_SCALER_MPT, "step." #field, 40u + sizeof(mpt_scaler) + offsetof(mpt_step, field), width, last, \
     beyond}
#define POW2_64(k)  ((uint64_t)(1023 + (k)) << 52)
#define POW2_32(k)  ((uint64_t)(127 + (k)) << 23)
#define MOST_32     0x7f7fffffu
#define MOST_64     0x7fefffffffffffffu
#define FLOAT_MOST  0x47efffffe0000000u
#define BELOW_ZERO  0x8000000000000001u
#define MINUS_1     (~(uint64_t)0)          /* a field of either width */
typedef struct edge { int dialect; const char *name; size_t at, width; uint64_t last, beyond; } edge;
static const edge edges[] = {
    EDGE(PYTORCH, config.dialect, 4, MPT_SCALER_DIALECT_COUNT - 1, MPT_SCALER_DIALECT_COUNT),
    EDGE(STATIC, config.dialect, 4, MPT_SCALER_STATIC, MPT_SCALER_DIALECT_COUNT),
    EDGE(STATIC, config.dialect, 4, MPT_SCALER_STATIC, MINUS_1), EDGE(PYTORCH, config.init_scale, 4, 1, 0),
    EDGE(STATIC, config.init_scale, 4, POW2_32(10), POW2_32(10) + 1u),
    EDGE(PYTORCH, config.init_scale, 4, MOST_32, MOST_32 + 1u),
    EDGE(PYTORCH, config.growth, 8, POW2_64(0) + 1u, POW2_64(0)),
    EDGE(PYTORCH, config.growth, 8, MOST_64, INF_64), EDGE(PYTORCH, config.backoff, 8, 1, 0),
    EDGE(PYTORCH, config.backoff, 8, POW2_64(0) - 1u, POW2_64(0)), WITH(JMP, config.backoff, 8, 0),
    WITH(JMP, config.patience, 4, 0), EDGE(JMP, config.interval, 4, 1, 0),
    EDGE(FLAX, config.interval, 4, 1, 0), EDGE(PYTORCH, config.hysteresis, 4, 1, 0),
    WITH(MEGATRON, hysteresis_left, 4, 0), EDGE(MEGATRON, config.hysteresis, 4, 1, 0),
    EDGE(PYTORCH, config.flags, 4, 0, 1), EDGE(DEEPSPEED, config.flags, 4, 3, 4),
    EDGE(PYTORCH, config.min_scale, 8, FLOAT_MOST, FLOAT_MOST + 1u),
    EDGE(PYTORCH, config.max_scale, 8, FLOAT_MOST, FLOAT_MOST + 1u),
    EDGE(PYTORCH, config.tolerance, 8, FLOAT_MOST, FLOAT_MOST + 1u),
    EDGE(PYTORCH, config.threshold, 8, FLOAT_MOST, FLOAT_MOST + 1u),
    EDGE(PYTORCH, config.min_scale, 8, 0, BELOW_ZERO), EDGE(PYTORCH, config.max_scale, 8, 0, BELOW_ZERO),
    EDGE(PYTORCH, config.tolerance, 8, 0, BELOW_ZERO), EDGE(PYTORCH, config.threshold, 8, 0, BELOW_ZERO),
    WITH(PYTORCH, config.max_scale, 8, 1), EDGE(PYTORCH, config.min_scale, 8, 1, 2),

    EDGE(PYTORCH, skipped, 8, 100, 101), EDGE(PYTORCH, skipped_nan, 8, 50, 51),
    WITH(KERAS3, wide, 8, INF_64), EDGE(KERAS3, scale, 4, MOST_32 + 1u, MOST_32),
    EDGE(PYTORCH, verdict, 4, MPT_VERDICT_COUNT - 1, MPT_VERDICT_COUNT), EDGE(PYTORCH, in_use, 4, 7, 8),
    EDGE(PYTORCH, cause, 4, 7, 8), WITH(PYTORCH, cause, 4, 0), EDGE(PYTORCH, found_inf, 4, 1, 2),
    WITH(PYTORCH, found_inf, 4, 0), EDGE(PYTORCH, cause, 4, 0, 1),
    EDGE(FAIRSEQ, iteration, 8, 100, 101), EDGE(FAIRSEQ, last_bad, 8, 60, 61),
    EDGE(FAIRSEQ, last_bad, 8, MINUS_1, MINUS_1 - 1u), EDGE(FAIRSEQ, last_moved, 8, 60, 61),
    EDGE(FAIRSEQ, last_moved, 8, MINUS_1, MINUS_1 - 1u), WITH(MPT, last_bad, 8, MINUS_1),
    EDGE(MPT, last_bad, 8, 240, 241), EDGE(MPT, last_moved, 8, 0x7f7fffff, 0x7f800000),
    EDGE(MPT, iteration, 8, 0, MINUS_1), WITH(FAIRSEQ, updates, 8, MINUS_1),
    EDGE(FAIRSEQ, iteration, 8, ((uint64_t)1 << 62) - 1u, (uint64_t)1 << 62),
    EDGE(STATIC, good_steps, 4, 0, 1), EDGE(STATIC, bad_steps, 4, 0, 1),
    EDGE(STATIC, hysteresis_left, 4, 1, 0), EDGE(STATIC, hysteresis_left, 4, 1, 2),
    EDGE(PYTORCH, good_steps, 4, 0, MINUS_1), EDGE(PYTORCH, bad_steps, 4, 0, MINUS_1),
    EDGE(PYTORCH, good_steps, 4, 9, 10), EDGE(FLAX, good_steps, 4, 10, 11),
    EDGE(DEEPSPEED_FUSED, good_steps, 4, 10, 11), WITH(FLAX, config.interval, 4, 0x7fffffff),
    EDGE(FLAX, good_steps, 4, 0x7ffffffe, 0x7fffffff), EDGE(PYTORCH, bad_steps, 4, 0x3fffffff, 0x40000000),
    EDGE(TF_CONTRIB, bad_steps, 4, 2, 3), EDGE(PYTORCH, hysteresis_left, 4, 3, 4),
    EDGE(PYTORCH, hysteresis_left, 4, 1, 0), EDGE(DEEPSPEED, hysteresis_left, 4, 1, 0),
    EDGE(MEGATRON, hysteresis_left, 4, 0x80000001u, 0x80000000u),

    EDGE(MPT, config.growth, 8, POW2_64(125), POW2_64(126)),
    EDGE(MPT, config.growth, 8, POW2_64(1), 0x4008000000000000u),
    EDGE(MPT, config.backoff, 8, POW2_64(-125), POW2_64(-126)),
    EDGE(MPT, config.min_scale, 8, POW2_64(-125), POW2_64(-126)),
    EDGE(MPT, config.max_scale, 8, POW2_64(125), POW2_64(126)),
    EDGE(MPT, config.init_scale, 4, POW2_32(-20), POW2_32(-21)),
    EDGE(MPT, config.init_scale, 4, POW2_32(40), POW2_32(41)), EDGE(MPT, config.patience, 4, 1, 0),
    EDGE(MPT, home, 4, POW2_32(-20), POW2_32(-21)), EDGE(MPT, home, 4, POW2_32(40), POW2_32(41)),
    EDGE(MPT, last_good, 4, POW2_32(-20), POW2_32(-21)), EDGE(MPT, last_good, 4, POW2_32(40), POW2_32(41)),
    WITH(MPT, wide, 8, POW2_64(-20)), EDGE(MPT, scale, 4, POW2_32(-20), POW2_32(10)),
    EDGE(MPT, good_steps, 4, 0x7fffffff, MINUS_1), EDGE(MPT, bad_steps, 4, 0x7fffffff, MINUS_1),
    EDGE(MPT, wait, 4, 1, 0), EDGE(MPT, wait, 4, 10, 11), EDGE(MPT, depth, 4, 0, MINUS_1),
    EDGE(MPT, depth, 4, 0x3fffffff, 0x40000000), EDGE(MPT, search_bad, 4, 0, MINUS_1),
    WITH(MPT, search_steps, 4, 5), EDGE(MPT, search_bad, 4, 5, 6), EDGE(MPT, before_steps, 4, 0, MINUS_1),
    EDGE(MPT, at_floor, 4, 0, MINUS_1), EDGE(MPT, range_steps, 4, 0, MINUS_1),
    WITH(MPT, base_most, 4, 7), EDGE(MPT, base, 4, 7, 8),
    EDGE(MPT, base_most, 4, 0xffffffu, 0x1000000u), EDGE(MPT, excess, 4, 0xc0000000u, 0xc0000001u),
    EDGE(MPT, climb, 4, 3, 4),

    STEP_EDGE(sumsq, 8, MOST_64, INF_64), STEP_EDGE(norm, 8, INF_64, INF_64 + 1u),
    STEP_EDGE(grad_factor, 4, MOST_32 + 1u, MOST_32 + 2u),
    STEP_EDGE(clip_factor, 4, 0x3f800000u, 0x3f800001u), STEP_EDGE(clip_factor, 4, 0, 0x80000001u),
    STEP_EDGE(found_inf, 4, 1, 2), STEP_EDGE(stage, 4, 271, 272),
    STEP_EDGE(cause, 4, 7, 8), STEP_EDGE(bad_cause, 4, 7, 8)
};

TEST(edges_of_what_is_possible)
{
    static const uint64_t none[][2] = {{0x7ff8000000000000u, 0x7fc00000u}, {BELOW_ZERO - 1u, 0x80000000u}};
    mpt_scaler            s;
    mpt_step              step;
    mpt_state             state;
    size_t                bytes = 0, i, k;
    unsigned              side;
    int                   is_new = 1;
    memset(&state, 0, sizeof state);
    memset(&step, 0, sizeof step);
    state.scalers = &s;
    state.steps = &step;
    state.scaler_count = state.step_count = 1;
    for (i = 0; i < sizeof edges / sizeof *edges; i++) {
        const edge        *e = &edges[i];
        mpt_scaler_config  c = mpt_scaler_defaults((mpt_scaler_dialect)e->dialect);
        if (is_new) {
            c.init_scale = 1024.0f;
            c.interval = 10;
            c.hysteresis = e->dialect == MPT_SCALER_STATIC ? 1 : 3;
            mt_context(e->name, mpt_scaler_name((mpt_scaler_dialect)e->dialect));
            CHECK_EQ_I(mpt_scaler_init(&s, &c), MPT_OK);
            s.updates = 100, s.skipped = 50, s.skipped_nan = 20, s.iteration = 60;
            s.hysteresis_left = 1;
            s.found_inf = s.checks = s.in_use = 1u;
            CHECK_EQ_I(mpt_state_size(&state, &bytes), MPT_OK);
            CHECK_EQ_I(mpt_state_save(&state, buffer, bytes), MPT_OK);
        }
        is_new = e->last != e->beyond;
        for (side = 0; side < (is_new ? 2u : 1u); side++) {
            for (k = 0; k < e->width; k++)
                buffer[e->at + k] = (unsigned char)((side ? e->beyond : e->last) >> (8u * k));
            checkpoint_sum_again(buffer, bytes);
            if (is_new)
                CHECK_EQ_I(mpt_state_load(&state, buffer, bytes), side ? MPT_E_DATA : MPT_OK);
        }
    }
    CHECK_EQ_I(mpt_state_save(&state, buffer, bytes), MPT_OK);
    for (i = 0; i < 2; i++) {               /* NaN and -0 are not valid scales */
        s.wide = mpti_f64_make(none[i][0]);
        s.scale = mpti_f32_make((uint32_t)none[i][1]);
        CHECK_EQ_I(mpt_state_save(&state, buffer, bytes), MPT_E_ARG);
    }
    mt_context(NULL, NULL);
}

/* Every state that a scaler reaches by steps of all kinds can be saved and loaded. */
TEST(whatever_happens_can_be_saved)
{
    static const int32_t intervals[] = {1, 2, 63, 64, 200, 0x7fffffff};
    mpt_scaler_dialect   d;
    int                  round, i;
    for (d = MPT_SCALER_MPT; d < MPT_SCALER_DIALECT_COUNT; d = (mpt_scaler_dialect)(d + 1))
        for (round = 0; round < 30; round += (int)mt.every) {
            mpt_scaler_config c = mpt_scaler_defaults(d);
            mpt_scaler        s, back;
            mpt_state         state;
            size_t            bytes = 0;
            const unsigned    bad_in = 2u + (unsigned)(mt_random() % 40u), nan = (unsigned)(mt_random() % 4u);
            if (d != MPT_SCALER_STATIC) {
                c.interval = intervals[round % 6];
                c.hysteresis = 1 + (int32_t)(mt_random() % 4u);
                c.patience = 1 + (int32_t)(mt_random() % 4u);
            }
            if (d == MPT_SCALER_DEEPSPEED)
                c.flags = (uint32_t)round % 4u;
            mt_context(mpt_scaler_name(d), NULL);
            if (!CHECK(mpt_scaler_init(&s, &c) == MPT_OK))
                continue;
            memset(&state, 0, sizeof state);
            state.scalers = &s;
            state.scaler_count = 1;
            for (i = 0; i < 400; i++) {
                const int spell = i % 100 > 70, bad = spell ? round % 3 == 0 : mt_random() % bad_in == 0;
                (void)mpt_scaler_scale(&s, 1.0f);
                (void)mpt_scaler_record(&s, bad, !bad ? 0u : nan ? MPT_CAUSE_NAN << (mt_random() % 8u == 0)
                                                              : MPT_CAUSE_INF);
                if (mt_random() % 2u)
                    (void)mpt_scaler_update(&s);
                CHECK_EQ_I(mpt_state_size(&state, &bytes), MPT_OK);
                if (!CHECK(mpt_state_save(&state, buffer, bytes) == MPT_OK))
                    break;
                memset(&back, 0, sizeof back);
                state.scalers = &back;
                CHECK_EQ_I(mpt_state_load(&state, buffer, bytes), MPT_OK);
                state.scalers = &s;
                CHECK(!memcmp(&s, &back, sizeof s));
            }
        }
    mt_context(NULL, NULL);
}

/* A checkpoint of another version, or of a run of another shape, is refused even if its checksum is right. */
TEST(another_version_or_shape_is_refused)
{
    run        r, was;
    mpt_tensor t[COUNT], good[COUNT];
    mpt_state  s, full;
    mpt_f16    extra[N];
    mpt_fault  fault = {7, NULL};
    const int  at[28] = {1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1, 1};
    size_t     bytes, i;
    start(&r);
    bytes = save(&r, buffer);
    memcpy(other, buffer, bytes);
    other[8] = 1;
    checkpoint_sum_again(other, bytes);
    refused(other, bytes, 8);
    bind(&r, good);
    full = state_of(&r, good);
    full.fault = &fault;
    CHECK_EQ_I(mpt_state_load(&full, other, bytes), MPT_E_DATA);
    CHECK(fault.tensor == (size_t)-1 && strstr(fault.why, "version") != NULL);
    CHECK_EQ_I(mpt_state_load(&full, buffer, bytes - 1), MPT_E_DATA);
    CHECK(fault.tensor == (size_t)-1 && strstr(fault.why, "cut") != NULL);
    CHECK_EQ_I(mpt_state_load(&full, buffer, bytes), MPT_OK);
    CHECK(fault.tensor == (size_t)-1 && !fault.why);
    other[8] = 3;
    checkpoint_sum_again(other, bytes);
    CHECK_EQ_I(load(&r, other, bytes), MPT_OK);
    memset(extra, 0, sizeof extra);
    memcpy(t, good, sizeof t);
    s = full;
    s.tensors = t;
    t[0].extra = extra;             /* its storage has no `extra`: not saved */
    CHECK_EQ_I(mpt_state_load(&s, buffer, bytes), MPT_OK);
    r.counter[0]++;                 /* differs from the checkpoint: a partial load would show */
    was = r;
    for (i = 0; i < 28; i++) {
        memcpy(t, good, sizeof t);
        s = full;
        s.tensors = t;
        switch ((int)i) {
        case 0:  t[0].name = "third"; break;
        case 1:  t[0].name = t[1].name; t[1].name = good[0].name; break;
        case 2:  t[1].name = NULL; break;
        case 3:  t[0].n--; break;
        case 4:  t[0].n--; t[1].n++; break;
        case 5:  t[0].param_format = MPT_BF16; break;
        case 6:  t[0].grad_format = MPT_BF16; break;
        case 7:  t[0].m = NULL; break;
        case 8:  t[0].v = NULL; break;
        case 9:  t[0].seed = 1; break;
        case 10: s.tensor_count = 1; break;
        case 11: s.counter_count = 1; break;
        case 12: s.scaler_count = 0; break;
        case 13: s.lion = NULL; break;
        case 14: s.gradients = 0; break;
        case 15: s.adafactor = NULL; break;
        case 16: t[2].columns = MATRIX / COLUMNS; break;        /* the same number of factors */
        case 17: t[2].columns = 0; break;
        case 18: t[2].storage = MPT_STORE_NEAREST; break;       /* the same arrays, another storage */
        case 19: t[2].moments = MPT_MOMENTS_BF16; break;
        case 20: t[2].decay_times = 0.5f; break;                /* another parameter group */
        case 21: t[2].decay_times = 1e-45f; break;
        case 22: t[2].no_decay = 1; break;
        case 23: t[2].rows = 1; break;
        case 24: t[2].rounded = MPT_F16; break;
        case 25: t[2].v_max = extra; break;
        case 26: t[0].whole = t[0].n; break;                    /* a shard, though the only one */
        default: t[0].moments = MPT_MOMENTS_BF16; break;
        }
        CHECK_EQ_U_AT((unsigned)-(int)mpt_state_load(&s, buffer, bytes), (unsigned)-(int)MPT_E_DATA, i);
        CHECK_EQ_U_AT(fault.tensor, (size_t)-1 + (size_t)at[i], i);     /* none where it is no tensor */
        CHECK((strstr(fault.why, "the tensor's") != NULL) == (at[i] != 0));
        CHECK(!memcmp(&r, &was, sizeof r));
    }
    memcpy(t, good, sizeof t);
    s = full;
    s.tensors = t;
    t[0].whole = t[0].n + 16384;    /* of two shards of one size, one is not the other */
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    CHECK_EQ_I(mpt_state_save(&s, other, bytes), MPT_OK);
    t[0].first = 16384;
    CHECK_EQ_I(mpt_state_load(&s, other, bytes), MPT_E_DATA);
    t[0].first = 0, t[0].whole += 16384;
    CHECK_EQ_I(mpt_state_load(&s, other, bytes), MPT_E_DATA);
    t[0].whole -= 16384;
    t[2].lr_times = 0.25f;          /* set by a schedule since */
    CHECK_EQ_I(mpt_state_load(&s, other, bytes), MPT_OK);
    CHECK(mpti_f32_bits(t[2].lr_times) == 0x3e800000u);
}

TEST(bad_arguments)
{
    run        r;
    mpt_tensor t[COUNT];
    mpt_state  s, bad;
    float      w[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    mpt_fault  fault = {7, NULL};
    size_t     bytes = 0, n = 77;
    start(&r);
    bind(&r, t);
    s = state_of(&r, t);
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    CHECK_EQ_I(mpt_state_size(NULL, &n), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_size(&s, NULL), MPT_E_ARG);
    memset(buffer, 0x11, sizeof buffer);
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes - 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes + 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_save(&s, NULL, bytes), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_save(NULL, buffer, bytes), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_load(&s, NULL, bytes), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_load(&s, buffer, (size_t)-1), MPT_E_ARG);  /* of a failed ftell */
    CHECK_EQ_I(mpt_state_load(NULL, buffer, bytes), MPT_E_ARG);
    bad = s;
    bad.counters = (uint64_t *)(void *)(buffer + (bytes / 16u) * 8u);       /* counters inside the buffer */
    CHECK_EQ_I(mpt_state_save(&bad, buffer, bytes), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_load(&bad, buffer, bytes), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_load(&bad, bad.counters, 0), MPT_E_DATA);          /* no bytes are in nothing */
    bad.counters = (uint64_t *)(void *)buffer;      /* only the last bytes of the counters */
    CHECK_EQ_I(mpt_state_save(&bad, buffer + 12, bytes), MPT_E_ARG);
    bad = s;
    bad.scalers = NULL;
    CHECK_EQ_I(mpt_state_size(&bad, &n), MPT_E_ARG);
    bad = s;
    bad.tensors = NULL;
    CHECK_EQ_I(mpt_state_size(&bad, &n), MPT_E_ARG);
    t[1].columns = t[1].n + 2u;                     /* v would have more elements than the tensor */
    CHECK_EQ_I(mpt_state_size(&s, &n), MPT_E_ARG);
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes), MPT_E_ARG);
    t[1].columns = 0u;
    t[1].param_format = MPT_E4M3;
    CHECK_EQ_I(mpt_state_size(&s, &n), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes), MPT_E_UNSUPPORTED);
    t[1].param_format = MPT_F16;
    t[0].grad_format = MPT_E4M3;
    CHECK_EQ_I(mpt_state_size(&s, &n), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes), MPT_E_UNSUPPORTED);
    CHECK(n == 77 && buffer[0] == 0x11 && buffer[bytes - 1] == 0x11);
    s.gradients = 0;                                /* formats of unsaved gradients are not checked */
    CHECK_EQ_I(mpt_state_size(&s, &n), MPT_OK);
    memset(&bad, 0, sizeof bad);
    t[0] = mpt_tensor_grad_f32("alone", w, 4);      /* a gradient alone: nothing of it would be saved */
    bad.tensors = t;
    bad.tensor_count = 1;
    CHECK_EQ_I(mpt_state_size(&bad, &bytes), MPT_OK);
    bad.fault = &fault;
    CHECK_EQ_I(mpt_state_save(&bad, buffer, bytes), MPT_E_ARG);
    CHECK(fault.tensor == 0 && strstr(fault.why, "only a gradient") != NULL);
    t[0].n = 0;
    CHECK_EQ_I(mpt_state_save(&bad, buffer, bytes), MPT_OK);
    t[0].n = 4;
    bad.gradients = 1;
    CHECK_EQ_I(mpt_state_size(&bad, &bytes), MPT_OK);
    CHECK_EQ_I(mpt_state_save(&bad, buffer, bytes), MPT_OK);
    memset(&bad, 0, sizeof bad);                    /* an empty run is valid, too */
    CHECK_EQ_I(mpt_state_size(&bad, &bytes), MPT_OK);
    CHECK_EQ_I(mpt_state_save(&bad, buffer, bytes), MPT_OK);
    CHECK_EQ_I(mpt_state_load(&bad, buffer, bytes), MPT_OK);
    CHECK_EQ_I(mpt_state_load(&bad, buffer, bytes - 1), MPT_E_DATA);
}

/* The checksum, word by word. Since version 4 it is over the checksums of all runs of 256 KiB, since 5 of
 * words in another way. */
static uint64_t sum_word(uint64_t h, const unsigned char *p, size_t n, int version)
{
    const uint64_t odd = (uint64_t)0xff51afd7ed558ccdu;
    uint64_t       word = 0u;
    while (n--)
        word = word << 8 | p[n];
    if (version >= 5) {
        h += word * (uint64_t)0x9e3779b97f4a7c15u;
        return (h << 31 | h >> 33) * odd;
    }
    h = (h ^ word) * odd;
    return h ^ h >> 32;
}
static uint64_t sum_of(const unsigned char *p, size_t n, size_t length)
{
    uint64_t all = 0u;
    size_t   at, i;
    for (at = 0; at < n; at += length) {
        const size_t end = n - at < length ? n : at + length;
        uint64_t     h = (uint64_t)0x9e3779b97f4a7c15u ^ (end - at);
        unsigned char word[8];
        for (i = at; i < end; i += 8)
            h = sum_word(h, p + i, end - i < 8 ? end - i : 8, p[8]);
        for (i = 0; i < 8; i++)
            word[i] = (unsigned char)(h >> (8 * i));
        all = at ? sum_word(all, word, 8, p[8]) : h;
    }
    return all;
}
static void store_sum(unsigned char *p, size_t bytes, size_t length)
{
    const uint64_t sum = sum_of(p, bytes - 8, length);
    size_t         i;
    for (i = 0; i < 8; i++)
        p[bytes - 8 + i] = (unsigned char)(sum >> (8 * i));
}

/* Four runs of 256 KiB and a bit: a byte changed in any of them; and version 3, which has one run, and 4. */
TEST(large_checkpoints)
{
    enum { COUNTERS = 135003, RUN_BYTES = 1 << 18 };
    static uint64_t      counter[COUNTERS], was[COUNTERS];
    static unsigned char saved[sizeof counter + 512], again[sizeof saved];
    mpt_state            s;
    size_t               bytes = 0, i;
    for (i = 0; i < COUNTERS; i++)
        was[i] = counter[i] = mt_random();
    memset(&s, 0, sizeof s);
    s.counters = counter;
    s.counter_count = COUNTERS;
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    CHECK(bytes > 4 * (size_t)RUN_BYTES && bytes <= sizeof saved);
    CHECK_EQ_I(mpt_state_save(&s, saved, bytes), MPT_OK);
    memcpy(again, saved, bytes);
    store_sum(again, bytes, RUN_BYTES);
    CHECK(!memcmp(again, saved, bytes));
    for (i = 300; i < bytes; i += 100003) {
        saved[i] ^= 4u;
        CHECK_EQ_I(mpt_state_load(&s, saved, bytes), MPT_E_DATA);
        saved[i] ^= 4u;
    }
    for (i = 3; i < 5; i++) {
        again[8] = (unsigned char)i;
        CHECK_EQ_I(mpt_state_load(&s, again, bytes), MPT_E_DATA);
        store_sum(again, bytes, i == 3 ? bytes : (size_t)RUN_BYTES);
        memset(counter, 0, sizeof counter);
        CHECK_EQ_I(mpt_state_load(&s, again, bytes), MPT_OK);
        CHECK(!memcmp(counter, was, sizeof was));
    }
    memset(counter, 0, sizeof counter);
    CHECK_EQ_I(mpt_state_load(&s, saved, bytes), MPT_OK);
    CHECK(!memcmp(counter, was, sizeof was));
    checkpoint_sum_again(saved, 2 * RUN_BYTES + 8);             /* ends with a whole run */
    CHECK_EQ_U(saved[2 * RUN_BYTES], sum_of(saved, 2 * RUN_BYTES, RUN_BYTES) & 0xffu);
    for (i = 0; i < 2 && mt.every == 1; i++) {                  /* the maximum of runs; then longer runs */
        const size_t         n = 256 * (size_t)RUN_BYTES + i;
        unsigned char *const p = (unsigned char *)calloc(n + 8, 1);
        if (!CHECK(p != NULL))
            return;
        p[8] = MPT_STATE_VERSION;
        checkpoint_sum_again(p, n + 8);
        memcpy(again, p + n, 8);
        store_sum(p, n + 8, (size_t)RUN_BYTES << i);
        CHECK(!memcmp(again, p + n, 8));
        free(p);
    }
}

/* In versions 3 and 4 these changes always cancelled: signs of three floats, or of all. */
TEST(changed_signs_are_seen)
{
    float      w[64], kept[64];
    mpt_tensor t;
    mpt_state  s;
    size_t     bytes = 0, i, k;
    for (i = 0; i < 64; i++)
        w[i] = kept[i] = (float)i + 1.0f;
    memset(&t, 0, sizeof t);
    memset(&s, 0, sizeof s);
    t.n = 64;
    t.master = w;
    s.tensors = &t;
    s.tensor_count = 1;
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    CHECK(bytes <= sizeof buffer);
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes), MPT_OK);
    for (i = 27; i + 8 < bytes - 8; i += 4) {
        for (k = i; k < i + 12; k += 4)
            buffer[k] ^= 0x80u;
        CHECK_EQ_I(mpt_state_load(&s, buffer, bytes), MPT_E_DATA);
        for (k = i; k < i + 12; k += 4)
            buffer[k] ^= 0x80u;
    }
    for (i = 27; i < bytes - 8; i += 4)
        buffer[i] ^= 0x80u;
    CHECK_EQ_I(mpt_state_load(&s, buffer, bytes), MPT_E_DATA);
    CHECK(!memcmp(w, kept, sizeof w));
}

TEST(sums_of_any_length)
{
    unsigned char is[64], want[64];
    size_t        bytes, i;
    for (i = 0; i < sizeof is; i++)
        is[i] = want[i] = (unsigned char)(i == 8 ? 4u + mt_random() % 2u : mt_random() | 1u);
    for (bytes = 17; bytes <= sizeof is; bytes++) {
        checkpoint_sum_again(is, bytes);
        store_sum(want, bytes, bytes);
        CHECK(!memcmp(is, want, sizeof is));
    }
}

/* The bytes of version 3, the same on any machine; later ones differ in version number and checksum. They
 * hold a counter of 0x0102030405060708, an f32 array {1, -2.5} and an f16 array {1, Inf}. */
TEST(golden_bytes)
{
    static const unsigned char golden[] = {
        0x6d, 0x70, 0x2d, 0x73, 0x74, 0x61, 0x74, 0x65, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x0c, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x80, 0x3e, 0x00, 0x00, 0x00, 0x3f, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x56, 0x04, 0x02, 0x86, 0x4c, 0xea, 0x63, 0xaf, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x20, 0xc0, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x3c, 0x00, 0x7c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xbd, 0x38, 0xc4, 0x83,
        0x11, 0x44, 0xfe, 0x61,
    };
    uint64_t   counter = (uint64_t)0x0102030405060708u;
    float      w[2] = {1.0f, -2.5f};
    mpt_f16    p[2];
    mpt_sgd    sgd = {0.25f, 0.5f, 0.0f, 1u, 0.0f, 0u, 9u};
    mpt_tensor t;
    mpt_state  s;
    size_t     bytes = 0;
    p[0].bits = 0x3c00u;
    p[1].bits = 0x7c00u;
    memset(&t, 0, sizeof t);
    memset(&s, 0, sizeof s);
    t.name = "w";
    t.n = 2;
    t.master = w;
    t.param = p;
    t.param_format = MPT_F16;
    s.sgd = &sgd;
    s.counters = &counter;
    s.counter_count = 1;
    s.tensors = &t;
    s.tensor_count = 1;
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    buffer[bytes] = 77u;
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes), MPT_OK);
    CHECK_EQ_U(buffer[bytes], 77u);
    CHECK_EQ_U(bytes, sizeof golden);
    memcpy(other, golden, sizeof golden);
    other[8] = 5;
    store_sum(other, sizeof golden, sizeof golden);
    CHECK(!memcmp(buffer, other, sizeof golden));
    CHECK_EQ_U(sum_of(buffer, bytes - 8, bytes), (uint64_t)0xfc299bf1f795458cu);
    counter = 0;
    memset(w, 0, sizeof w);
    memset(p, 0, sizeof p);
    memset(&sgd, 0, sizeof sgd);
    CHECK_EQ_I(mpt_state_load(&s, golden, sizeof golden), MPT_OK);
    CHECK(counter == (uint64_t)0x0102030405060708u && w[0] == 1.0f && w[1] == -2.5f);
    CHECK(p[0].bits == 0x3c00u && p[1].bits == 0x7c00u);
    CHECK(sgd.lr == 0.25f && sgd.momentum == 0.5f && sgd.nesterov == 1u && sgd.t == 9u);
    t.grad_format = MPT_BF16;           /* stored and compared even when gradients are not saved */
    t.no_decay = 1;
    CHECK_EQ_I(mpt_state_load(&s, golden, sizeof golden), MPT_E_DATA);
    CHECK_EQ_I(mpt_state_save(&s, buffer, bytes), MPT_OK);
    other[152] = 4;
    other[188] = 1;
    store_sum(other, sizeof golden, sizeof golden);
    CHECK(!memcmp(buffer, other, sizeof golden));
}

TEST(older_versions_and_trailing_bytes)
{
    uint64_t      counter = 7u;
    unsigned char saved[1024], longer[1024 + 8];
    mpt_state     s;
    size_t        bytes = 0;
    memset(&s, 0, sizeof s);
    s.counters = &counter, s.counter_count = 1;
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    if (!CHECK(bytes <= sizeof saved))
        return;
    CHECK_EQ_I(mpt_state_save(&s, saved, bytes), MPT_OK);
    memset(longer, 0, sizeof longer);
    memcpy(longer, saved, bytes - 8);
    longer[16] = (unsigned char)(bytes & 0xffu);            /* the length, without the checksum */
    longer[17] = (unsigned char)(bytes >> 8);
    checkpoint_sum_again(longer, bytes + 8);
    CHECK_EQ_I(mpt_state_load(&s, longer, bytes + 8), MPT_E_DATA);
    saved[8] = 2;
    checkpoint_sum_again(saved, bytes);
    CHECK_EQ_I(mpt_state_load(&s, saved, bytes), MPT_E_DATA);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(resume_everywhere);
    RUN(damage_is_refused);
    RUN(impossible_values_are_refused);
    RUN_EXACT(edges_of_what_is_possible);
    RUN(whatever_happens_can_be_saved);
    RUN(another_version_or_shape_is_refused);
    RUN(bad_arguments);
    RUN(large_checkpoints);
    RUN(changed_signs_are_seen);
    RUN(sums_of_any_length);
    RUN(golden_bytes);
    RUN(older_versions_and_trailing_bytes);
    return mt_end();
}
