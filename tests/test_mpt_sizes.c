/* test_mpt_sizes.c -- every call of mpt_half.h and mpt.h refuses a size that no array in memory can have.
 * Valid C99 and C++17.
 *
 *     cc -O2 -I. tests/test_mpt_sizes.c tests/impl.c -o test_mpt_sizes -lm
 *     ./test_mpt_sizes [part of a test name]
 *
 * tests/lint.sh looks for the name of each public function that takes a size in this file. */
#include "../mpt.h"
#include "impl.h"
#include "test.h"

static struct {
    uint32_t before[4];
    float    x[64], y[64], z[64], w[64];
    uint32_t after[4];
} data;

/* Numbers of elements of `bytes` bytes: their size wraps to 0 or to little, or exceeds half of memory. */
static size_t huge(int k, size_t bytes)
{
    switch (k) {
    case 0:  return SIZE_MAX;
    case 1:  return SIZE_MAX / 2u + 1u;
    case 2:  return SIZE_MAX / bytes - (bytes == 1u);           /* less than one element below SIZE_MAX */
    case 3:  return bytes == 1u ? SIZE_MAX : SIZE_MAX / bytes + 2u;
    default: return SIZE_MAX / 2u / bytes + 1u;                 /* the smallest count that is too large */
    }
}

/* The call with n elements of this size must be refused. */
#define REFUSES(bytes, call)                       \
    do {                                           \
        const size_t n = huge(k, bytes);           \
        mt_context(#call, NULL);                   \
        CHECK_EQ_I((call), MPT_E_ARG);             \
        mt_context(NULL, NULL);                    \
    } while (0)

/* The same for a call with two sizes: one huge and the other 1, or both large. */
#define REFUSES_2(bytes, call)                     \
    do {                                           \
        size_t rows = 1, cols = huge(k, bytes);    \
        mt_context(#call, "columns");              \
        CHECK_EQ_I((call), MPT_E_ARG);             \
        rows = cols, cols = 1;                     \
        mt_context(#call, "rows");                 \
        CHECK_EQ_I((call), MPT_E_ARG);             \
        rows = SIZE_MAX / 2u, cols = 3;            \
        mt_context(#call, "both");                 \
        CHECK_EQ_I((call), MPT_E_ARG);             \
        rows = SIZE_MAX / 2u + 1u, cols = 2;       \
        mt_context(#call, "around to none");       \
        CHECK_EQ_I((call), MPT_E_ARG);             \
        mt_context(NULL, NULL);                    \
    } while (0)

static float *const    floats = data.x, *const floats_2 = data.y;
static void *const     out = data.z, *const out_2 = data.w;
static mpt_f16 *const  f16 = (mpt_f16 *)(void *)data.z;
static mpt_bf16 *const bf16 = (mpt_bf16 *)(void *)data.z;
static mpt_e4m3 *const e4m3 = (mpt_e4m3 *)(void *)data.z;
static mpt_e5m2 *const e5m2 = (mpt_e5m2 *)(void *)data.z;
static double *const   doubles = (double *)(void *)data.w;
static uint8_t *const  bytes_1 = (uint8_t *)(void *)data.z, *const bytes_2 = (uint8_t *)(void *)data.w;

static void conversions(int k)
{
    const mpt_opts o = {MPT_RND_STOCHASTIC, MPT_OVERFLOW_IEEE, 0u, MPT_NAN_KEEP, MPT_TININESS_AFTER,
                        0u, NULL, 0u, 0u, 0u, 0u};
    const mpt_format_info *const info = mpt_format_get(MPT_E4M3);
    mpt_format                   to, from;
    size_t                       at = 77;
    unsigned                     flags = 0u;
    uint64_t                     code = 77u;
    REFUSES(4, mpt_f16_from_f32_n(f16, floats, n));
    REFUSES(8, mpt_f16_from_f64_n(f16, doubles, n));
    REFUSES(4, mpt_f32_from_f16_n(floats, f16, n));
    REFUSES(8, mpt_f64_from_f16_n(doubles, f16, n));
    REFUSES(4, mpt_bf16_from_f32_n(bf16, floats, n));
    REFUSES(4, mpt_f32_from_bf16_n(floats, bf16, n));
    REFUSES(4, mpt_e4m3_from_f32_n(e4m3, floats, n));
    REFUSES(4, mpt_e4m3_from_f32_sat_n(e4m3, floats, n));
    REFUSES(4, mpt_f32_from_e4m3_n(floats, e4m3, n));
    REFUSES(4, mpt_e5m2_from_f32_n(e5m2, floats, n));
    REFUSES(4, mpt_e5m2_from_f32_sat_n(e5m2, floats, n));
    REFUSES(4, mpt_f32_from_e5m2_n(floats, e5m2, n));
    for (to = MPT_F64; to < MPT_FORMAT_COUNT; to = (mpt_format)(to + 1))
        for (from = MPT_F64; from < MPT_FORMAT_COUNT; from = (mpt_format)(from + 1)) {
            const size_t a = (size_t)mpt_format_get(to)->bytes, b = (size_t)mpt_format_get(from)->bytes;
            const size_t most = a > b ? a : b;
            REFUSES(most, mpt_convert_n(to, out, from, floats, n, NULL, NULL));
            REFUSES(most, mpt_convert_n(to, out, from, floats, n, NULL, &flags));
            REFUSES(most, mpt_convert_n(to, out, from, floats, n, &o, NULL));
            REFUSES(most, mpt_convert_bytes_n(to, out, MPT_BIG_ENDIAN, from, floats, MPT_BIG_ENDIAN, n, NULL,
                                              NULL));
            REFUSES(most, mpt_convert_checked_n(to, out, from, floats, n, NULL, &at));
            REFUSES(b, mpt_inexact_n(to, from, floats, n, &at, &at));
        }
    REFUSES(8, mpt_convert_strided(MPT_F16, f16, 2, MPT_F32, floats, 8, n, NULL, NULL));
    REFUSES(8, mpt_convert_strided(MPT_F16, f16, -8, MPT_F32, floats, 4, n, NULL, NULL));
    REFUSES(2, mpt_convert_strided(MPT_F16, f16, 2, MPT_F32, floats, 0, n, NULL, NULL));
    REFUSES(1, mpt_convert_strided(MPT_E4M3, e4m3, PTRDIFF_MAX, MPT_F32, floats, 4, n, NULL, NULL));
    REFUSES(1, mpt_convert_strided(MPT_E4M3, e4m3, 1, MPT_F32, floats, PTRDIFF_MIN, n, NULL, NULL));
    REFUSES(4, mpt_stochastic_n(MPT_F16, f16, floats, n, &o));
    REFUSES(4, mpt_quantize_n(floats_2, floats, n, MPT_E4M3, NULL));
    REFUSES(4, mpt_quantize_n(floats_2, floats, n, MPT_E4M3, &o));
    REFUSES(4, mpt_quantize_as_n(floats_2, floats, n, info, NULL));
    REFUSES(8, mpt_quantize_f64_n(doubles, doubles, n, info, NULL));
    CHECK_EQ_U(at, 77);
    CHECK_EQ_U(flags, 0);
    if (k < 2) {                    /* SIZE_MAX would mean: take the string's length */
        const size_t length = SIZE_MAX - 1u - (size_t)k * (SIZE_MAX / 2u - 1u);
        CHECK_EQ_I(mpt_from_text(MPT_F16, "1", length, NULL, NULL, &code, &at), MPT_E_ARG);
        CHECK_EQ_I(mpt_from_text_as(info, "1", length, NULL, NULL, &code, &at), MPT_E_ARG);
        CHECK_EQ_U(code, 77);
    }
}

static void arithmetic_and_blocks(int k)
{
    mpt_block b;
    float     scale = 77.0f;
    int       bits;
    REFUSES(2, mpt_f16_add_n(f16, f16, f16, n));
    REFUSES(2, mpt_f16_sub_n(f16, f16, f16, n));
    REFUSES(2, mpt_f16_mul_n(f16, f16, f16, n));
    REFUSES(2, mpt_f16_fma_n(f16, f16, f16, f16, n));
    REFUSES(2, mpt_bf16_add_n(bf16, bf16, bf16, n));
    REFUSES(2, mpt_bf16_sub_n(bf16, bf16, bf16, n));
    REFUSES(2, mpt_bf16_mul_n(bf16, bf16, bf16, n));
    REFUSES(2, mpt_bf16_fma_n(bf16, bf16, bf16, bf16, n));
    for (b = MPT_MXFP8_E4M3; b < MPT_BLOCK_COUNT; b = (mpt_block)(b + 1)) {
        REFUSES(4, mpt_block_quantize_n(b, bytes_1, bytes_2, floats, n, NULL));
        REFUSES(4, mpt_block_dequantize_n(b, floats, bytes_1, bytes_2, n, NULL));
        REFUSES(4, mpt_block_tensor_scale(b, floats, n, &scale));
    }
    CHECK(scale == 77.0f);
    for (bits = 1; bits <= 8; bits++) {
        REFUSES(1, mpt_pack_n(bytes_1, bytes_2, n, bits));
        REFUSES(1, mpt_unpack_n(bytes_1, bytes_2, n, bits));
        CHECK_EQ_U(mpt_packed_size(SIZE_MAX, bits), SIZE_MAX / 8u * (size_t)bits + (size_t)(bits - bits / 8));
    }
}

static void rows_and_products(int k)
{
    const mpt_format format = k % 2 ? MPT_BF16 : MPT_F32;
    const size_t     size = k % 2 ? 2u : 4u;
    uint32_t         found = 0u;
    float            amax = 77.0f, loss = 77.0f;
    mpt_row_rule     rule;
    mpt_tensor       tensor;
    uint32_t         label[4] = {0u, 0u, 0u, 0u};
    /* 0, as for NULL: a dot product returns no status */
    CHECK(mpt_dot(floats, MPT_F32, floats, MPT_F32, huge(k, 4)) == 0.0f);
    CHECK(mpt_dot(f16, MPT_F16, floats, MPT_F32, huge(k, 4)) == 0.0f);
    CHECK(mpt_dot_strided(bf16, MPT_BF16, 2, floats, MPT_F32, 4, huge(k, 4)) == 0.0f);
    REFUSES(4, mpt_axpy(floats, MPT_F32, 1.0f, floats_2, MPT_F32, n));
    REFUSES(4, mpt_axpy(floats, MPT_F32, 1.0f, f16, MPT_F16, n));
    REFUSES(4, mpt_axpy_strided(floats, MPT_F32, 4, 1.0f, bf16, MPT_BF16, 2, n));
    REFUSES(4, mpt_axpy_publish(out, format, floats, 1.0f, floats_2, n, &found));
    REFUSES(4, mpt_axpy_publish(NULL, format, floats, 1.0f, floats_2, n, NULL));
    REFUSES(8, mpt_axpy_publish_f64(NULL, format, (double *)out, 1.0, (double *)out_2, n, &found));
    memset(&rule, 0, sizeof rule);
    memset(&tensor, 0, sizeof tensor);
    tensor.master = floats;
    REFUSES(4, (tensor.n = n, mpt_row_update(&rule, &tensor, 0, n, floats_2)));
    REFUSES(4, (tensor.n = 4, mpt_row_update(&rule, &tensor, n, 2, floats_2)));
    REFUSES(size, mpt_activate(MPT_ACT_RELU, out, format, out, format, n));
    REFUSES(size, mpt_activate_grad(MPT_ACT_RELU, out, format, out, format, out, format, n));
    REFUSES_2(4, mpt_bias_add(out, MPT_F32, out_2, MPT_F32, rows, cols));
    REFUSES_2(4, mpt_bias_grad(out, MPT_F32, out_2, MPT_F32, rows, cols));
    REFUSES_2(4, mpt_softmax(out, MPT_F32, out_2, MPT_F32, rows, cols));
    REFUSES_2(4, mpt_softmax_grad(out, MPT_F32, out_2, MPT_F32, out_2, MPT_F32, rows, cols));
    REFUSES_2(4, mpt_cross_entropy(out, MPT_F32, label, rows, cols, &loss, NULL, MPT_F32, 1.0f));
    REFUSES_2(4, mpt_fp8_encode_transpose(MPT_E4M3, NULL, out, MPT_F32, floats, rows, cols, NULL, &amax));
    REFUSES(size, mpt_fp8_encode_n(MPT_E4M3, out, format, floats, n, NULL, &amax));
    REFUSES(4, mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, n, 1, 1, 1.0f, out, MPT_F32, 1, out_2,
                        MPT_F32, 1, 0.0f, floats, MPT_F32, 1, NULL, 0));
    REFUSES(4, mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 1, n, 1, 1.0f, out, MPT_F32, 1, out_2,
                        MPT_F32, n, 0.0f, floats, MPT_F32, n, NULL, 0));
    REFUSES(4, mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 1, 1, n, 1.0f, out, MPT_F32, n, out_2,
                        MPT_F32, 1, 0.0f, floats, MPT_F32, 1, NULL, 0));
    REFUSES(4, mpt_gemm(MPT_COL_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 2, 1.0f, out, MPT_F32, n, out_2,
                        MPT_F32, 2, 0.0f, floats, MPT_F32, 2, NULL, 0));
    CHECK_EQ_U(mpt_gemm_work_bytes(huge(k, 4), 1, 1), 0);
    CHECK(found == 0u && amax == 77.0f && loss == 77.0f);
}

static void reports(int k)
{
    const mpt_format  format = k % 2 ? MPT_F16 : MPT_F64;
    const size_t      size = k % 2 ? 2u : 8u;
    const mpt_writer  nowhere = {NULL, NULL};
    mpt_range         r, s;
    mpt_survey        survey;
    mpt_roundoff      roundoff;
    mpt_stagnation    stagnation;
    mpt_sums          sums;
    mpt_track         track;
    mpt_memory        memory;
    size_t            first = 77;
    mpt_tensor        t = mpt_tensor_grad_f32("t", floats, 4);
    CHECK_EQ_I(mpt_range_init(&r, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_init(&s, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_survey_init(&survey), MPT_OK);
    CHECK_EQ_I(mpt_roundoff_init(&roundoff, MPT_F16, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_stagnation_init(&stagnation, MPT_F16), MPT_OK);
    memset(&sums, 0, sizeof sums);
    CHECK_EQ_I(mpt_track_init(&track, "a", MPT_F16, 1, nowhere), MPT_OK);
    REFUSES(size, mpt_range_add(&r, format, floats, n));
    REFUSES(size, mpt_range_add_signed(&r, &s, format, floats, n));
    REFUSES(size, mpt_survey_add(&survey, format, floats, n));
    REFUSES(size, mpt_roundoff_add(&roundoff, format, floats, n));
    REFUSES(size, mpt_track_add(&track, 1, format, floats, n));
    REFUSES(4, mpt_stagnation_add(&stagnation, floats, floats_2, n));
    REFUSES(4, mpt_sums_add(&sums, floats, NULL, n, k % 2));
    REFUSES(sizeof track, mpt_track_first(&track, n, 0, &first));
    REFUSES(sizeof track, mpt_track_write(&track, n, 1, NULL, nowhere));
    REFUSES(sizeof t, mpt_memory_report(&t, n, MPT_NEEDS_GRAD, &memory));
    CHECK_EQ_U(r.count, 0);
    CHECK_EQ_U(s.count, 0);
    CHECK_EQ_U(survey.count, 0);
    CHECK_EQ_U(roundoff.count, 0);
    CHECK_EQ_U(stagnation.count, 0);
    CHECK_EQ_U(track.samples, 0);
    CHECK_EQ_U(first, 77);
}

static int no_reduction(void *user, double *values, size_t n) { return (void)user, (void)values, n != 0; }

/* Lists that are too long, and tensors with too many elements. */
static void training(int k)
{
    mpt_tensor    one = mpt_tensor_grad_f32("t", data.x, 4), room[2];
    mpt_tensors   list;
    mpt_scaler    scaler, fresh, other;
    mpt_step      step;
    mpt_fault     fault;
    mpt_adamw     adamw = mpt_adamw_defaults(), lamb = mpt_lamb_defaults(), adam = mpt_adam_defaults();
    mpt_sgd       sgd;
    mpt_lion      lion = mpt_lion_defaults();
    mpt_adafactor adafactor = mpt_adafactor_defaults();
    mpt_state     state;
    mpt_memory    memory;
    size_t        bytes = 77;
    int           whole;
    memset(&sgd, 0, sizeof sgd);
    sgd.lr = 0.1f;
    CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
    (void)mpt_scaler_scale(&scaler, 1.0f);
    fresh = scaler;
    REFUSES(sizeof one, mpt_tensors_init(&list, room, n, MPT_F16, MPT_F16));
    CHECK_EQ_I(mpt_tensors_init(&list, room, 2, MPT_F16, MPT_F16), MPT_OK);
    REFUSES(4, mpt_tensors_add(&list, "t", n, out, data.x, data.y, NULL, NULL));
    REFUSES(4, mpt_tensors_new_f16(&list, "t", n, NULL, NULL, NULL));
    REFUSES(4, mpt_tensors_new_bf16(&list, "t", n, NULL, NULL, NULL));
    CHECK_EQ_U(list.count, 0);
    CHECK_EQ_I(mpt_tensors_place(&list, out, huge(k, 1)), MPT_E_ARG);       /* the list keeps an error */
    REFUSES(4, mpt_tensors_shard(&list, n, n));
    REFUSES(sizeof step, mpt_steps_join(&step, n));
    one.param = data.y, one.param_format = MPT_BF16, one.master = data.z, one.m = data.w, one.v = data.w + 8;
    for (whole = 0; whole < 2; whole++) {       /* a list of n tensors, and a tensor of n elements */
#define REFUSES_LIST(at_stage, call)                                                         \
    do {                                                                                     \
        memset(&step, 0, sizeof step);                                                       \
        step.stage = (uint32_t)(at_stage);                                                   \
        step.update = scaler.updates + 1u;                                                   \
        if (whole) {                                                                         \
            const size_t count = 1;                                                          \
            one.n = huge(k, 4);                                                              \
            mt_context(#call, "a tensor");                                                   \
            CHECK_EQ_I((call), MPT_E_ARG);                                                   \
            one.n = 4;                                                                       \
        } else {                                                                             \
            const size_t count = huge(k, sizeof one);                                        \
            mt_context(#call, "a list");                                                     \
            CHECK_EQ_I((call), MPT_E_ARG);                                                   \
        }                                                                                    \
        mt_context(NULL, NULL);                                                              \
    } while (0)
        REFUSES_LIST(0, mpt_tensors_validate(&one, count, MPT_NEEDS_GRAD, &fault));
        CHECK(fault.why != NULL);
        REFUSES_LIST(0, mpt_memory_report(&one, count, MPT_NEEDS_GRAD, &memory));
        REFUSES_LIST(0, mpt_check(&scaler, &step, &one, count, NULL));
        REFUSES_LIST(0, (other = fresh, mpt_optimizer_step(MPT_OPTIMIZER_ADAMW, &adamw, &other, &step, &one,
                                                            count, 0.0f)));
        REFUSES_LIST(0, mpt_unscale(&scaler, &step, &one, count, NULL));
        REFUSES_LIST(0, mpt_step_combine(&scaler, &step, &one, count, no_reduction, NULL));
        REFUSES_LIST(MPT_STAGE_UNSCALED, mpt_clip_apply(&step, &one, count, 1.0f));
        REFUSES_LIST(0, mpt_grads_zero(&one, count));
        REFUSES_LIST(0, mpt_publish(&one, count));
        REFUSES_LIST(0, mpt_lint_copies(&one, count, NULL) == MPT_LINT_UNKNOWN ? MPT_E_ARG : MPT_OK);
        REFUSES_LIST(0, mpt_accumulate(&one, &one, count));
        REFUSES_LIST(MPT_STAGE_UNSCALED, mpt_sgd_step(&sgd, &step, &one, count));
        REFUSES_LIST(MPT_STAGE_UNSCALED, mpt_adam_step(&adam, &step, &one, count));
        REFUSES_LIST(MPT_STAGE_UNSCALED, mpt_adamw_step(&adamw, &step, &one, count));
        REFUSES_LIST(MPT_STAGE_UNSCALED, mpt_lion_step(&lion, &step, &one, count));
        REFUSES_LIST(MPT_STAGE_UNSCALED, mpt_lamb_step(&lamb, &step, &one, count));
        REFUSES_LIST(MPT_STAGE_UNSCALED, mpt_adafactor_step(&adafactor, &step, &one, count));
        memset(&state, 0, sizeof state);
        state.tensors = &one;
        REFUSES_LIST(0, (state.tensor_count = count, mpt_state_size(&state, &bytes)));
        REFUSES_LIST(0, (state.tensor_count = count, mpt_state_save(&state, out, 64)));
        REFUSES_LIST(0, (state.tensor_count = count, mpt_state_load(&state, out, 64)));
    }
    {   /* each takes a quarter of the address space: one can be saved, both cannot */
        mpt_tensor many[2];
        size_t     i;
        memset(many, 0, sizeof many);
        for (i = 0; i < 2; i++) {
            many[i].n = SIZE_MAX / 16u;
            many[i].master = (float *)((uintptr_t)(SIZE_MAX / 4u + 1u) * i + 64u);
        }
        memset(&state, 0, sizeof state);
        state.tensors = many, state.tensor_count = 2;
        CHECK_EQ_I(mpt_state_size(&state, &bytes), MPT_E_ARG);
        state.tensor_count = 1;
        CHECK_EQ_I(mpt_state_size(&state, &bytes), MPT_OK);
        bytes = 77;
    }
    memset(&state, 0, sizeof state);
    state.scalers = &scaler;
    REFUSES(sizeof scaler, (state.scaler_count = n, mpt_state_size(&state, &bytes)));
    state.scaler_count = 0, state.steps = &step;
    REFUSES(sizeof step, (state.step_count = n, mpt_state_size(&state, &bytes)));
    state.step_count = 0, state.counters = (uint64_t *)out;
    REFUSES(8, (state.counter_count = n, mpt_state_size(&state, &bytes)));
    CHECK_EQ_U(bytes, 77);
    CHECK_EQ_U(mpt_tensor_grad_f32("t", data.x, huge(k, 4)).n, huge(k, 4));     /* returns no status */
}

static void policy_and_graph(int k)
{
    const mpt_format  inputs[1] = {MPT_F16};
    const uint32_t    sources[1] = {MPT_GRAPH_NONE};
    static uint64_t   arena[4096];
    mpt_policy        policy;
    mpt_policy_answer answer;
    mpt_graph         g;
    uint32_t          output = 77;
    CHECK_EQ_I(mpt_policy_find("mixed_float16", &policy), MPT_OK);
    REFUSES(sizeof inputs[0], mpt_policy_format(&policy, "MatMul", inputs, n, &answer));
    REFUSES(1, mpt_graph_init(&g, arena, n));
    CHECK_EQ_I(mpt_graph_init(&g, arena, sizeof arena), MPT_OK);
    REFUSES(4, mpt_graph_op(&g, "x", "MatMul", sources, n, 1, &output));
    CHECK_EQ_I(mpt_graph_reserve(&g, huge(k, 8), 1), MPT_E_MEMORY);     /* more than any arena has */
    CHECK_EQ_I(mpt_graph_reserve(&g, 1, huge(k, 8)), MPT_E_MEMORY);
    CHECK_EQ_U(mpt_graph_bytes(huge(k, 8), 1), 0);
    CHECK_EQ_U(mpt_graph_bytes(1, huge(k, 8)), 0);
    CHECK_EQ_U(output, 77);
}

/* The caller alone knows how large a text buffer is. An index beyond a list gives nothing. */
static void texts(int k)
{
    static uint64_t arena[4096];
    char            text[200];
    const size_t    cap = huge(k, 1);
    const mpt_f16   h = {0x4000u};
    const mpt_bf16  b = {0x4000u};
    mpt_graph       g;
    CHECK_EQ_U(mpt_to_text(text, cap, MPT_F16, 0x4000u), 1);
    CHECK_EQ_S(text, "2");
    CHECK_EQ_U(mpt_to_text_as(text, cap, mpt_format_get(MPT_F16), 0x4000u, 1), 6);
    CHECK_EQ_U(mpt_f16_to_text(text, cap, h), 1);
    CHECK_EQ_U(mpt_bf16_to_text(text, cap, b), 1);
    CHECK_EQ_U(mpt_bits_text(text, cap, MPT_E2M1, 1u), 6);
    CHECK_EQ_S(text, "0 00 1");
    CHECK(mpt_policy_name(cap) == NULL);
    CHECK_EQ_I(mpt_graph_init(&g, arena, sizeof arena), MPT_OK);
    CHECK_EQ_U(mpt_graph_explain(&g, 0u, text, cap), 0);        /* there is no such type */
}

TEST(sizes_that_no_array_has)
{
    unsigned char kept[sizeof data];
    int           k;
    memset(&data, 0x3f, sizeof data);
    memcpy(kept, &data, sizeof kept);
    for (k = 0; k < 5; k++) {
        conversions(k);
        arithmetic_and_blocks(k);
        rows_and_products(k);
        reports(k);
        training(k);
        policy_and_graph(k);
        texts(k);
        CHECK(memcmp(kept, &data, sizeof kept) == 0);
    }
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(sizes_that_no_array_has);
    return mt_end();
}
