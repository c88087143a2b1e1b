/* cut.c -- tests that passes over arrays which should be split into parts for threads are, and give the same
 * bits as in one piece: with a pool (pool.h) or OpenMP, also in place, unaligned. run_threads.sh builds this
 * program. */
static int last_path = 4;
#define MPTI_LAST_PATH last_path
#include "../mpt.h"

#include "test.h"

enum { N = 30011, SKEW = 3 };           /* elements, a prime; elements before the start of an array */

static union { unsigned char bytes[8 * (N + 8)]; uint64_t u64[N + 8]; } in, more, out, back;

static uint64_t digest(const void *p, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)p;
    uint64_t             d = 0u;
    size_t               i;
    for (i = 0; i < bytes; i++)
        d = (d ^ at[i]) * (uint64_t)0x100000001b3u;
    return d;
}

static uint64_t digest_all(void)
{
    return digest(in.bytes, sizeof in) ^ digest(more.bytes, sizeof more) * 3u ^
           digest(out.bytes, sizeof out) * 5u;
}

static uint8_t scales[N];

static void fill(void)
{
    size_t i;
    memset(scales, 0, sizeof scales);
    memset(back.bytes, 0, sizeof back);
    mt.random_state = 7u;
    for (i = 0; i < N + 8; i++) {
        in.u64[i] = mt_random();
        more.u64[i] = mt_random();
        out.u64[i] = 0u;
    }
}

/* Results of a pass that are not in the arrays. */
static uint64_t extra;

typedef void pass_fn(void);

/* cut: 1 if the pass must use the pool; 0 if one part could overwrite what another has not read yet. */
static void compare(const char *name, pass_fn *pass, int cut)
{
    uint64_t alone, together, alone_extra;
    size_t   calls;
    mt_context(name, NULL);
    fill();
    extra = 0u;
    fast_part = (size_t)1 << 40;
    pass();
    alone = digest_all();
    alone_extra = extra;
    fill();
    extra = 0u;
    fast_part = 16384;
    calls = pool_calls();
    pass();
    together = digest_all();
    CHECK_EQ_U(together, alone);
    CHECK_EQ_U(extra, alone_extra);
#ifndef MPT_USE_OPENMP
    CHECK_EQ_U(pool_calls() > calls, cut);
#else
    (void)calls, (void)cut;
#endif
    mt_context(NULL, NULL);
}

#define IN(T) ((const T *)(const void *)(in.bytes + sizeof(T) * SKEW))
#define MORE(T) ((const T *)(const void *)(more.bytes + sizeof(T) * SKEW))
#define OUT(T) ((T *)(void *)(out.bytes + sizeof(T)))
#define HERE(T) ((T *)(void *)(in.bytes + sizeof(T) * SKEW))

// conversions -------------------------------------------------------------------------------------

static mpt_opts opts;

static void f16_from_f32(void) { (void)mpt_f16_from_f32_n(OUT(mpt_f16), IN(float), N); }
static void f32_from_bf16(void) { (void)mpt_f32_from_bf16_n(OUT(float), IN(mpt_bf16), N); }
static void f16_in_place(void)
{
    (void)mpt_f16_from_f32_n((mpt_f16 *)(void *)in.bytes, (float *)(void *)in.bytes, N);
}
static void two_hops(void)
{
    (void)mpt_convert_n(MPT_BF16, OUT(mpt_bf16), MPT_F64, IN(double), N, NULL, NULL);
}
static void same_format(void) { (void)mpt_convert_n(MPT_F32, OUT(float), MPT_F32, IN(float), N, NULL, NULL); }
static void with_flags(void)
{
    unsigned raised = 0u;
    (void)mpt_convert_n(MPT_E4M3, out.bytes + 1, MPT_F32, IN(float), N, &opts, &raised);
    extra = raised;
}
static void few_flags(void)             /* the only inexact element is in the last part */
{
    unsigned raised = 0u;
    memset(in.bytes, 0, sizeof in);
    HERE(float)[N - 1] = 0.1f;
    (void)mpt_convert_n(MPT_F16, out.bytes, MPT_F32, IN(float), N, NULL, &raised);
    extra = raised;
    CHECK_EQ_U(raised, MPT_FLAG_INEXACT);
}
static void strided(void)
{
    (void)mpt_convert_strided(MPT_F16, out.bytes + 6 * N, -6, MPT_F32, in.bytes, 8, N, NULL, NULL);
}
static void strided_in_place(void)
{
    (void)mpt_convert_strided(MPT_F16, in.bytes, 8, MPT_F32, in.bytes, 8, N, NULL, NULL);
}
static void other_bytes(void)
{
    (void)mpt_convert_bytes_n(MPT_F16, out.bytes, MPT_BIG_ENDIAN, MPT_F32, in.bytes, MPT_LITTLE_ENDIAN, N,
                              NULL, NULL);
}
static void bytes_in_place(void)
{
    (void)mpt_convert_bytes_n(MPT_F16, in.bytes, MPT_BIG_ENDIAN, MPT_F32, in.bytes, MPT_LITTLE_ENDIAN, N,
                              NULL, NULL);
}
static void stochastic(void) { (void)mpt_stochastic_n(MPT_F16, OUT(mpt_f16), IN(float), N, &opts); }
static void stochastic_any(void)
{
    (void)mpt_convert_n(MPT_E5M2, out.bytes, MPT_F32, IN(float), N, &opts, NULL);
}
static void random_words(void)
{
    mpt_opts o = opts;
    o.randoms = MORE(uint32_t);
    (void)mpt_convert_n(MPT_F16, out.bytes, MPT_F32, IN(float), N, &o, NULL);
}
static void checked(void)
{
    size_t bad = 0, i;
    for (i = 0; i < N; i++)
        HERE(float)[i] = i < N - 9 ? 1.0f : 1e6f;
    CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, OUT(mpt_f16), MPT_F32, IN(float), N, NULL, &bad), MPT_E_RANGE);
    CHECK_EQ_U(bad, N - 9);
    HERE(float)[5000] = 1e9f;
    CHECK_EQ_I(mpt_convert_checked_n(MPT_F16, OUT(mpt_f16), MPT_F32, IN(float), N, NULL, &bad), MPT_E_RANGE);
    CHECK_EQ_U(bad, 5000);
}
static void inexact(void)
{
    size_t count, first;
    (void)mpt_inexact_n(MPT_F16, MPT_F32, IN(float), N, &count, &first);
    extra = (uint64_t)count << 32 | first;
    memset(in.bytes, 0, sizeof in);
    HERE(float)[N - 2] = HERE(float)[20000] = 0.1f;
    (void)mpt_inexact_n(MPT_F16, MPT_F32, IN(float), N, &count, &first);
    CHECK_EQ_U(count, 2);
    CHECK_EQ_U(first, 20000);
}
static void quantize(void) { (void)mpt_quantize_n(OUT(float), IN(float), N, MPT_E4M3, NULL); }
static void quantize_in_place(void) { (void)mpt_quantize_n(HERE(float), HERE(float), N, MPT_BF16, NULL); }
static void quantize_slow(void) { (void)mpt_quantize_n(HERE(float), HERE(float), N, MPT_E4M3, &opts); }
static void quantize_f64(void)
{
    (void)mpt_quantize_f64_n(OUT(double), IN(double), N, mpt_format_get(MPT_F32), NULL);
}
static void arithmetic(void)
{
    (void)mpt_f16_fma_n(OUT(mpt_f16), IN(mpt_f16), MORE(mpt_f16), IN(mpt_f16), N);
    (void)mpt_bf16_add_n(HERE(mpt_bf16), HERE(mpt_bf16), MORE(mpt_bf16), N);
}

static void blocks(void)
{
    int b, packed;
    for (b = 0; b < (int)MPT_BLOCK_COUNT; b++)
        for (packed = 0; packed < 2; packed++) {
            mpt_block_opts o;
            memset(&o, 0, sizeof o);
            o.packed = packed;
            (void)mpt_block_tensor_scale((mpt_block)b, IN(float), N, &o.tensor_scale);
            if (b == (int)MPT_NVFP4)
                o.element = opts;
            (void)mpt_block_quantize_n((mpt_block)b, out.bytes, scales, IN(float), N, &o);
            (void)mpt_block_dequantize_n((mpt_block)b, (float *)(void *)back.bytes, out.bytes, scales, N, &o);
            extra = extra * 3u + digest(out.bytes, sizeof out) + 5u * digest(scales, sizeof scales) +
                    7u * digest(back.bytes, 4u * N) + mpti_f32_bits(o.tensor_scale);
        }
}

TEST(conversions)
{
    memset(&opts, 0, sizeof opts);
    opts.rounding = MPT_RND_STOCHASTIC;
    opts.seed = 11u;
    opts.first_element = 3u;
#define PASS(name, cut) compare(#name, name, cut)
    PASS(f16_from_f32, 1);
    PASS(f32_from_bf16, 1);
    PASS(f16_in_place, 0);
    PASS(two_hops, 1);
    PASS(same_format, 1);
    PASS(with_flags, 1);
    PASS(few_flags, 1);
    PASS(strided, 1);
    PASS(strided_in_place, 1);
    PASS(other_bytes, 1);
    PASS(bytes_in_place, 0);
    PASS(stochastic, 1);
    PASS(stochastic_any, 1);
    PASS(random_words, 1);
    PASS(checked, 1);
    PASS(inexact, 1);
    PASS(quantize, 1);
    PASS(quantize_in_place, 1);
    PASS(quantize_slow, 1);
    PASS(quantize_f64, 1);
    PASS(arithmetic, 1);
    PASS(blocks, 1);
}

// lists -------------------------------------------------------------------------------------------

/* Tensors from 0 elements to many parts; in all more chunks than a window of a list holds. */
enum { TENSORS = 2600, LARGE = 59 * 1699, MEDIUM = 30000 };
static size_t size_of(size_t i)
{
    return i == 3 ? (size_t)LARGE : i == 5 || i == 2590 ? (size_t)MEDIUM : i * 7u % 13u;
}

enum { ARENA = 5 * (LARGE + 2 * MEDIUM + 13 * TENSORS) };       /* words */
static uint32_t   arena[ARENA + TENSORS];
static mpt_tensor tensors[TENSORS], others[TENSORS];
static mpt_tensor_report reports[TENSORS];
static mpt_scaler scaler;
static mpt_step   step;

/* Properties of the tensors. `bad`: some gradients are Inf or NaN; `columns`: some tensors are matrices. */
static mpt_storage storage;
static mpt_format  param_format, grad_format;
static mpt_moments moments;
static int         bad, columns;

static uint32_t *take(size_t n)
{
    static size_t used;
    uint32_t     *p;
    if (!n)
        used = 0;
    p = arena + used;
    used += n;
    if (used > sizeof arena / sizeof *arena)
        abort();
    return p;
}

static void fill_16(void *p, mpt_format format, size_t n, float size)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const float x = ((float)(mt_random() >> 40) / 8388608.0f - 1.0f) * size;
        if (format == MPT_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = format == MPT_F16 ? mpt_f16_from_f32(x).bits : mpt_bf16_from_f32(x).bits;
    }
}

static void fill_list(void)
{
    size_t i;
    mt.random_state = 5u;
    (void)take(0);
    memset(arena, 0, sizeof arena);
    memset(reports, 0, sizeof reports);
    memset(&step, 0, sizeof step);
    (void)mpt_scaler_init(&scaler, NULL);
    (void)mpt_scaler_scale(&scaler, 1.0f);
    for (i = 0; i < TENSORS; i++) {
        const size_t n = size_of(i), half = n / 2u + 1u, moment = moments == MPT_MOMENTS_F32 ? n : half;
        mpt_tensor  *t = &tensors[i];
        memset(t, 0, sizeof *t);
        t->n = n;
        t->storage = storage;
        t->moments = moments;
        t->param_format = param_format;
        t->grad_format = grad_format;
        t->seed = 9u;
        t->lr_times = i % 2u ? 0.5f : 0.0f;
        t->columns = !columns ? 0u : i == 3 ? 59u : i == 5 ? 300u : 0u;
        t->rows = t->columns && i == 5 ? 20u : 0u;      /* five matrices */
        t->grad = take(grad_format == MPT_F32 ? n + 1 : half);
        t->param = take(half);
        t->master = (float *)(void *)take(n + 1);
        t->m = take(moment + 1);
        t->v = take(moment + 1);
        t->extra = t->master;
        fill_16(t->grad, grad_format, n, 30.0f);
        fill_16(t->master, MPT_F32, n, 1.0f);
        fill_16(t->param, param_format, n, 1.0f);
        if (storage != MPT_STORE_MASTER)
            memset(t->master, 0, n * sizeof(float));
        if (bad && n > 5) {
            if (grad_format == MPT_F32)
                ((uint32_t *)t->grad)[n - 2] = i % 2u ? 0x7f800000u : 0x7fc00001u;
            else if (i % 3u == 0)
                ((uint16_t *)t->grad)[n / 2u] = 0x7fffu;
        }
    }
}

static uint64_t digest_list(void)
{
    return digest(arena, sizeof arena) ^ digest(reports, sizeof reports) * 3u ^
           digest(&step, sizeof step) * 5u ^ digest(&scaler, sizeof scaler) * 7u;
}

#define PASS_LIST(name) compare_list(#name, name)
static void compare_list(const char *name, pass_fn *pass)
{
    uint64_t alone;
    size_t   calls;
    mt_context(name, mpt_storage_name(storage));
    fill_list();
    fast_part = (size_t)1 << 40;
    pass();
    alone = digest_list();
    fill_list();
    fast_part = 16384;
    calls = pool_calls();
    pass();
    CHECK_EQ_U(digest_list(), alone);
#ifndef MPT_USE_OPENMP
    CHECK(pool_calls() > calls);
#else
    (void)calls;
#endif
    mt_context(NULL, NULL);
}

static void check_list(void)
{
    CHECK_EQ_I(mpt_check(&scaler, &step, tensors, TENSORS, reports), MPT_OK);
    CHECK_EQ_U(step.found_inf, bad);
}
static void unscale_list(void)
{
    CHECK_EQ_I(mpt_unscale(&scaler, &step, tensors, TENSORS, reports), MPT_OK);
    CHECK_EQ_U(step.found_inf, bad);
}
static void clip_list(void)
{
    unscale_list();
    CHECK_EQ_I(mpt_clip(&step, 1e-4f), MPT_OK);
    CHECK_EQ_I(mpt_clip_apply(&step, tensors, TENSORS, 1e-8f), MPT_OK);
}
static void accumulate_list(void)
{
    size_t i;
    for (i = 0; i < TENSORS; i++) {
        others[i] = tensors[i];
        others[i].grad = tensors[i].master;
        others[i].grad_format = MPT_F32;
    }
    CHECK_EQ_I(mpt_accumulate(tensors, others, TENSORS), MPT_OK);
}
static void zero_list(void) { CHECK_EQ_I(mpt_grads_zero(tensors, TENSORS), MPT_OK); }
static void gradient(void)
{
    static float x[LARGE];
    check_list();
    CHECK_EQ_I(mpt_clip(&step, 1e-4f), MPT_OK);
    CHECK_EQ_I(mpt_grad_get(&step, &tensors[3], x), MPT_OK);
    reports[0].inf_count = digest(x, sizeof x);
}
static void publish_list(void) { CHECK_EQ_I(mpt_publish(tensors, TENSORS), MPT_OK); }
static void weights(void)
{
    static float x[LARGE];
    CHECK_EQ_I(mpt_weights_get(&tensors[3], x), MPT_OK);
    x[LARGE - 1] += 0.3f;
    x[0] -= 0.7f;
    CHECK_EQ_I(mpt_weights_set(&tensors[3], x), MPT_OK);
}

static mpt_optimizer optimizer;
static void two_steps(void)
{
    mpt_sgd       sgd = {0.1f, 0.9f, 0.01f, 1u, 0.0f, MPT_STEP_ZERO_GRADS, 0u};
    mpt_adamw     adamw = mpt_adamw_defaults();
    mpt_adam      adam = mpt_adam_defaults();
    mpt_lamb      lamb = mpt_lamb_defaults();
    mpt_lion      lion = mpt_lion_defaults();
    mpt_adafactor adafactor = mpt_adafactor_defaults();
    int           i;
    adafactor.t = 7u;       /* the first step's means would be the same if it came twice */
    for (i = 0; i < 2; i++) {
        mpt_status status = MPT_E_ARG;
        check_list();
        switch (optimizer) {
        case MPT_OPTIMIZER_SGD:       status = mpt_sgd_step(&sgd, &step, tensors, TENSORS); break;
        case MPT_OPTIMIZER_ADAMW:     status = mpt_adamw_step(&adamw, &step, tensors, TENSORS); break;
        case MPT_OPTIMIZER_ADAM:      status = mpt_adam_step(&adam, &step, tensors, TENSORS); break;
        case MPT_OPTIMIZER_LAMB:      status = mpt_lamb_step(&lamb, &step, tensors, TENSORS); break;
        case MPT_OPTIMIZER_LION:      status = mpt_lion_step(&lion, &step, tensors, TENSORS); break;
        case MPT_OPTIMIZER_ADAFACTOR: status = mpt_adafactor_step(&adafactor, &step, tensors, TENSORS); break;
        case MPT_OPTIMIZER_COUNT:     break;
        }
        CHECK_EQ_I(status, MPT_OK);
        (void)mpt_scaler_update(&scaler);
        (void)mpt_scaler_scale(&scaler, 1.0f);
    }
}

/* Squares this small are added up again, but the gradients are multiplied by 1 / scale once. */
TEST(tiny_gradients_are_unscaled_once)
{
    mpt_bf16 *const g = (mpt_bf16 *)(void *)out.bytes;
    size_t          i;
    for (last_path = 4; last_path >= 0; last_path--) {
        memset(tensors, 0, sizeof *tensors);
        tensors[0].n = N;
        tensors[0].grad = g;
        tensors[0].grad_format = MPT_BF16;
        for (i = 0; i < N; i++)
            g[i] = mpt_bf16_from_f32(ldexpf(1.0f, -60));
        (void)mpt_scaler_init(&scaler, NULL);
        (void)mpt_scaler_scale(&scaler, 1.0f);
        CHECK_EQ_I(mpt_unscale(&scaler, &step, tensors, 1, NULL), MPT_OK);
        for (i = 0; i < N; i += 97)
            CHECK_EQ_U(g[i].bits, mpt_bf16_from_f32(ldexpf(1.0f, -76)).bits);
        CHECK(step.norm > 0.0);
    }
    last_path = 4;
}

TEST(lists)
{
    static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};
    int                     f;
    param_format = MPT_BF16;
    for (last_path = 4; last_path >= 0; last_path -= 4)         /* with vectors and without */
        for (f = 0; f < 6; f++) {
            grad_format = formats[f % 3];
            bad = f / 3;
            PASS_LIST(check_list);
            PASS_LIST(unscale_list);
            if (!bad && last_path)
                PASS_LIST(clip_list);
        }
    bad = 0;
    last_path = 4;
    grad_format = MPT_F16;
    PASS_LIST(accumulate_list);
    PASS_LIST(publish_list);
    PASS_LIST(zero_list);
    PASS_LIST(gradient);
    for (storage = MPT_STORE_MASTER; storage < MPT_STORAGE_COUNT; storage = (mpt_storage)(storage + 1)) {
        PASS_LIST(weights);
        optimizer = MPT_OPTIMIZER_ADAMW;
        PASS_LIST(two_steps);
    }
    storage = MPT_STORE_MASTER;
    moments = MPT_MOMENTS_BF16;
    PASS_LIST(two_steps);
    moments = MPT_MOMENTS_F32;
    for (f = 0; f < (int)MPT_OPTIMIZER_COUNT; f++) {
        optimizer = (mpt_optimizer)f;
        PASS_LIST(two_steps);
    }
    columns = 1;
    PASS_LIST(two_steps);
    columns = 0;
}

// reports -----------------------------------------------------------------------------------------

static mpt_range    range;
static mpt_survey   survey;
static mpt_roundoff roundoff;
static mpt_stagnation stagnation;
static void stagnations(void)
{
    CHECK_EQ_I(mpt_stagnation_init(&stagnation, MPT_BF16), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_add(&stagnation, IN(float), MORE(float), N), MPT_OK);
    extra = digest(&stagnation, sizeof stagnation);
}
static void ranges(void)
{
    CHECK_EQ_I(mpt_range_init(&range, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_add(&range, MPT_F32, IN(float), 100), MPT_OK);
    CHECK_EQ_I(mpt_range_add(&range, MPT_F32, IN(float), N), MPT_OK);
    extra = digest(&range, sizeof range);
}
static void ranges_of_signs(void)
{
    static mpt_range negative;
    CHECK_EQ_I(mpt_range_init(&range, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_init(&negative, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_add_signed(&negative, &range, MPT_F32, IN(float), N), MPT_OK);
    extra = digest(&range, sizeof range) ^ digest(&negative, sizeof negative) * 3u;
}
static void fp8(void)                   /* an array; one in place; 300 rows and their transpose */
{
    float amax[3] = {0.0f, 1.0f, 0.0f};
    (void)mpt_fp8_encode_n(MPT_E4M3, OUT(unsigned char), MPT_F16, IN(mpt_f16), N, &amax[1], &amax[0]);
    (void)mpt_fp8_encode_n(MPT_E5M2, HERE(unsigned char), MPT_F32, HERE(float), N, NULL, &amax[1]);
    (void)mpt_fp8_encode_transpose(MPT_E4M3, OUT(unsigned char) + N, OUT(unsigned char) + 2 * N, MPT_F32,
                                   MORE(float), 300, 100, NULL, &amax[2]);
    extra = digest(amax, sizeof amax);
}
static void surveys(void)
{
    CHECK_EQ_I(mpt_survey_init(&survey), MPT_OK);
    CHECK_EQ_I(mpt_survey_add(&survey, MPT_BF16, IN(mpt_bf16), N), MPT_OK);
    extra = digest(&survey, sizeof survey);
}
static void roundings(void)
{
    int k;
    for (k = 0; k < 3; k++) {           /* bf16; stochastic f16; f16 of numbers in its range */
        CHECK_EQ_I(mpt_roundoff_init(&roundoff, k ? MPT_F16 : MPT_BF16, k == 1 ? &opts : NULL, k == 2),
                   MPT_OK);
        if (k == 2)
            fill_16(HERE(float), MPT_F32, N, 1.0f);
        CHECK_EQ_I(mpt_roundoff_add(&roundoff, MPT_F32, IN(float), 77), MPT_OK);
        CHECK_EQ_I(mpt_roundoff_add(&roundoff, MPT_F32, IN(float), N), MPT_OK);
        extra = extra * 3u + digest(&roundoff, sizeof roundoff);
    }
}
static void products(void)
{
    int k;
    for (k = 0; k < 4; k++) {           /* 150 x 170 times 170 x 130, A transposed or not; alpha 0 */
        fill_16(HERE(float), MPT_F32, N, 1.0f);
        (void)mpt_gemm(MPT_ROW_MAJOR, k & 1 ? MPT_TRANS : MPT_NO_TRANS, MPT_NO_TRANS, 150, 130, 170,
                       k < 3 ? 0.5f : 0.0f, IN(float), MPT_F32, k & 1 ? 150 : 170, MORE(mpt_bf16), MPT_BF16,
                       140,
                       0.25f, OUT(mpt_f16), MPT_F16, 131, NULL, 0);
        extra = extra * 3u + digest_all();
    }
}
static void thin_products(void)         /* of 3 vectors: dots with rows of W, y = x W' and y = W x */
{
    int k;
    for (k = 0; k < 4; k++) {
        fill_16(HERE(float), MPT_F32, N, 1.0f);
        fill_16(more.bytes + SKEW * sizeof(mpt_bf16), MPT_BF16, 300 * 400, 1.0f);
        CHECK_EQ_I(k < 2 ? mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, 3, 300, 400, 1.0f, IN(float),
                                    MPT_F32, 400, MORE(mpt_bf16), MPT_BF16, 400, (float)k, OUT(mpt_f16),
                                    MPT_F16, 300, NULL, 0)
                         : mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 300, 3, 400, 1.0f,
                                    MORE(mpt_bf16), MPT_BF16, 400, IN(float), MPT_F32, 3, (float)(k - 2),
                                    OUT(float), MPT_F32, 3, NULL, 0), MPT_OK);
        extra = extra * 3u + digest_all();
    }
}
static void softmax(void)
{
    fill_16(HERE(float), MPT_F32, N, 8.0f);
    (void)mpt_softmax(OUT(float), MPT_F32, IN(float), MPT_F32, N / 37, 37);
    (void)mpt_softmax_grad(HERE(float), MPT_F32, HERE(float), MPT_F32, OUT(float), MPT_F32, N / 37, 37);
}
static void biases(void) { (void)mpt_bias_add(HERE(mpt_f16), MPT_F16, MORE(float), MPT_F32, N / 300, 300); }
static void bias_grads(void)            /* 100 columns: parts of 64 and 36 */
{
    CHECK_EQ_I(mpt_bias_grad(OUT(float), MPT_F32, IN(mpt_bf16), MPT_BF16, N / 100, 100), MPT_OK);
}
static void wide_bias_grads(void)       /* parts of 1024 columns or fewer */
{
    CHECK_EQ_I(mpt_bias_grad(OUT(float), MPT_F32, IN(mpt_bf16), MPT_BF16, 20, N / 20), MPT_OK);
}
static void losses(void)
{
    static uint32_t label[N / 37];
    float           loss;
    size_t          i;
    for (i = 0; i < N / 37; i++)
        label[i] = (uint32_t)(i % 37);
    fill_16(HERE(float), MPT_F32, N, 8.0f);
    CHECK_EQ_I(mpt_cross_entropy(IN(float), MPT_F32, label, N / 37, 37, &loss, NULL, MPT_F32, 1.0f), MPT_OK);
    extra = digest(&loss, sizeof loss);
    CHECK_EQ_I(mpt_cross_entropy(IN(float), MPT_F32, label, N / 37, 37, &loss, OUT(mpt_f16), MPT_F16, 64.0f),
               MPT_OK);
    extra = extra * 3u + digest(&loss, sizeof loss);
}
static unsigned char saved[sizeof in + sizeof more + 1024];
static void checkpoints(void)           /* two runs of the checksum; then load into other arrays */
{
    mpt_tensor t;
    mpt_state  s;
    size_t     bytes = 0;
    memset(&t, 0, sizeof t);
    memset(&s, 0, sizeof s);
    t.n = 2 * N;
    t.param_format = t.grad_format = MPT_F16;
    t.master = HERE(float), t.m = more.bytes;
    s.tensors = &t, s.tensor_count = 1;
    CHECK_EQ_I(mpt_state_size(&s, &bytes), MPT_OK);
    CHECK(bytes > (size_t)1 << 18 && bytes <= sizeof saved);
    CHECK_EQ_I(mpt_state_save(&s, saved, bytes), MPT_OK);
    extra = digest(saved, bytes);
    t.master = OUT(float), t.m = in.bytes;
    CHECK_EQ_I(mpt_state_load(&s, saved, bytes), MPT_OK);
}
static void activations(void)
{
    (void)mpt_activate(MPT_ACT_GELU, OUT(mpt_bf16), MPT_BF16, IN(float), MPT_F32, N);
    (void)mpt_activate_grad(MPT_ACT_TANH, HERE(mpt_f16), MPT_F16, HERE(mpt_f16), MPT_F16, MORE(float),
                            MPT_F32, N);
}
/* Reports are split only if the compiler has a lock; tcc has none. run_threads.sh defines __TINYC__ too. */
#ifdef __TINYC__
enum { LOCKS = 0 };
#else
enum { LOCKS = 1 };
#endif
TEST(reports)
{
    PASS(products, 1);
    PASS(thin_products, 1);
    PASS(softmax, 1);
    PASS(biases, 1);
    PASS(bias_grads, 1);
    PASS(wide_bias_grads, 1);
    PASS(losses, 1);
    PASS(checkpoints, 1);
    PASS(stagnations, LOCKS);
    PASS(activations, 1);
    memset(&opts, 0, sizeof opts);
    opts.rounding = MPT_RND_STOCHASTIC;
    opts.first_element = 5u;
    PASS(ranges, LOCKS);
    PASS(ranges_of_signs, LOCKS);
    PASS(fp8, 1);
    PASS(surveys, LOCKS);
    PASS(roundings, LOCKS);
}

// one thread --------------------------------------------------------------------------------------

/* Small arrays are not split. */
TEST(small_arrays)
{
    const size_t calls = pool_calls();
    fill();
    fast_part = 16384;
    CHECK_EQ_I(mpt_f16_from_f32_n(OUT(mpt_f16), IN(float), 16384), MPT_OK);
    CHECK_EQ_I(mpt_quantize_n(OUT(float), IN(float), 16384, MPT_E4M3, NULL), MPT_OK);
    CHECK_EQ_I(mpt_convert_n(MPT_F16, OUT(mpt_f16), MPT_F16, IN(mpt_f16), 16384, NULL, NULL), MPT_OK);
    CHECK_EQ_U(pool_calls(), calls);
}

/* The control register of the calling thread holds in all parts; the other threads get theirs back. */
#if defined(__x86_64__) && !defined(__clang__)
#include <xmmintrin.h>
static float sum[2];
static void product_range(void *context, size_t part, size_t begin, size_t end)
{
    volatile float tiny = 1e-30f;
    (void)context, (void)begin, (void)end;
    if (part < 2)
        sum[part] = tiny * 1e-12f;
}
TEST(control_register)
{
    fast_part = 16384;
    (void)MPTI_IN_PARTS(32768, 16384, product_range, NULL);
    CHECK(sum[0] > 0.0f && sum[1] > 0.0f);
    _mm_setcsr(_mm_getcsr() | 0x8040u);
    (void)MPTI_IN_PARTS(32768, 16384, product_range, NULL);
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
    CHECK(sum[0] == 0.0f && sum[1] == 0.0f);
    (void)MPTI_IN_PARTS(32768, 16384, product_range, NULL);
    CHECK(sum[0] > 0.0f && sum[1] > 0.0f);
}
#else
TEST(control_register) { CHECK(1); }
#endif

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(conversions);
    RUN(tiny_gradients_are_unscaled_once);
    RUN(lists);
    RUN(reports);
    RUN(small_arrays);
    RUN(control_register);
    return mt_end();
}
