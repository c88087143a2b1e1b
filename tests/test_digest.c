/* test_digest.c -- one 64-bit digest of the results of each family of array functions, steps and reports on
 * fixed inputs, on every path of this processor. It shows if a change of the headers changed any bit. Other
 * tests check that results are right; this one only that they are the same as before.
 *
 *     cc -O2 -I. tests/test_digest.c tests/impl.c -o test_digest -lm && ./test_digest
 *     ./test_digest --print        prints the table of digests, to paste below if a result must change */
#include "../mpt.h"

#include "impl.h"
#include "test.h"

enum { MOST = 20011 };          /* elements: more than a chunk of the norms; a prime */

static uint64_t digest;

/* Like FNV-1a on 64-bit words; the shift mixes upper bits, where doubles differ, into the lower ones. */
static void see(uint64_t x)
{
    digest = (digest ^ x) * (uint64_t)0x9e3779b97f4a7c15u;
    digest ^= digest >> 29;
}

static void see_f64(double x) { see(mpti_f64_bits(x)); }
static void see_f32(float x) { see(mpti_f32_bits(x)); }

/* n elements of 1, 2, 4 or 8 bytes, by value, so that the digest is the same in either byte order. */
static void see_array(const void *p, size_t n, size_t bytes)
{
    size_t i;
    for (i = 0; i < n; i++)
        see(mt_get((const unsigned char *)p + i * bytes, bytes));
}

static void see_text(const char *s)
{
    for (; *s; s++)
        see((unsigned char)*s);
}

// inputs ------------------------------------------------------------------------------------------

static union { uint64_t u64[MOST + 64]; float f32[MOST + 64]; unsigned char bytes[8 * MOST]; } in, other, out;

/* Random codes of a format; most of those of f32 and f64 lie in and next to the ranges of small formats. */
static void fill_codes(void *array, mpt_format format, size_t n)
{
    const mpt_format_info *f = mpt_format_get(format);
    size_t                 i;
    for (i = 0; i < n; i++) {
        uint64_t u = mt_random();
        if (format == MPT_F32 && i % 4u)
            u = (u & 0x807fffffu) | (uint64_t)(86u + (u >> 33) % 62u) << 23;
        if (format == MPT_F32 && i % 16u == 5u)
            u &= 0xfffff000u;
        if (format == MPT_F64 && i % 4u)
            u = (u & ((uint64_t)0x800fffffu << 32 | 0xffffffffu)) | (uint64_t)(982u + (u >> 21) % 62u) << 52;
        if (format == MPT_F64 && i % 16u == 5u)
            u &= ~(uint64_t)0x3ffffffffffu;
        mt_put((unsigned char *)array + i * (size_t)f->bytes, (size_t)f->bytes,
               f->bits < 64 ? u & (((uint64_t)1 << f->bits) - 1u) : u);
    }
}

/* Floats from -size to size, most small, some zero. Each product is stored, as some compilers use double. */
static void fill_floats(float *x, size_t n, float size)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const float r = (float)((int)(mt_random() >> 40) - 0x800000) / 8388608.0f;
        const float square = r * r, cube = square * r;
        x[i] = i % 61u == 7u ? 0.0f : cube * size;
    }
}

// conversions -------------------------------------------------------------------------------------

static const mpt_format six[] = {MPT_F64, MPT_F32, MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2};

static void conversions(void)
{
    static const size_t lengths[] = {MOST, 0,  1,  3,   7,   15,  16,  17,  31,
                                     33,   63, 64, 65,  127, 129, 255, 257, 1000};
    size_t              a, b, k;
    for (a = 0; a < COUNT_OF(six); a++)
        for (b = 0; b < COUNT_OF(six); b++)
            for (k = 0; k < COUNT_OF(lengths); k++) {
                const mpt_format_info *d = mpt_format_get(six[a]), *s = mpt_format_get(six[b]);
                const size_t           skew = k % 5u, n = lengths[k];
                fill_codes(in.bytes + skew * (size_t)s->bytes, six[b], n);
                around_bytes = k % 2u ? 4096u : (size_t)32 << 20;
                (void)mpt_convert_n(six[a], out.bytes + k % 3u * (size_t)d->bytes, six[b],
                                    in.bytes + skew * (size_t)s->bytes, n, NULL, NULL);
                see_array(out.bytes + k % 3u * (size_t)d->bytes, n, (size_t)d->bytes);
                if (d->bytes <= s->bytes) {         /* in place */
                    fill_codes(in.bytes, six[b], n);
                    (void)mpt_convert_n(six[a], in.bytes, six[b], in.bytes, n, NULL, NULL);
                    see_array(in.bytes, n, (size_t)d->bytes);
                }
            }
    around_bytes = (size_t)32 << 20;
}

static void saturating(void)
{
    fill_codes(in.bytes, MPT_F32, MOST);
    (void)mpt_e4m3_from_f32_sat_n((mpt_e4m3 *)out.bytes, in.f32, MOST);
    see_array(out.bytes, MOST, 1);
    (void)mpt_e5m2_from_f32_sat_n((mpt_e5m2 *)out.bytes, in.f32 + 1, MOST - 3);
    see_array(out.bytes, MOST - 3, 1);
}

/* All roundings, overflow rules, flushing and NaN rules, between all formats; and the flags. */
static void options(void)
{
    int      df, sf, k;
    unsigned flags;
    for (df = 0; df < (int)MPT_FORMAT_COUNT; df++)
        for (sf = 0; sf < (int)MPT_FORMAT_COUNT; sf++)
            for (k = 0; k < 14; k++) {
                mpt_opts o;
                memset(&o, 0, sizeof o);
                o.rounding = (mpt_rounding)(k % (int)MPT_ROUNDING_COUNT);
                o.overflow = (mpt_overflow)(k % 3);
                o.flush = (unsigned)k % 4u;
                o.nan = (mpt_nan_mode)(k / 7);
                o.tininess = (mpt_tininess)(k % 2);
                o.seed = 7u + (unsigned)k;
                o.first_element = (unsigned)sf;
                flags = 0u;
                fill_codes(in.bytes, (mpt_format)sf, 97);
                (void)mpt_convert_n((mpt_format)df, out.bytes, (mpt_format)sf, in.bytes, 97, &o, &flags);
                see_array(out.bytes, 97, (size_t)mpt_format_get((mpt_format)df)->bytes);
                see(flags);
            }
}

static void stochastic(void)
{
    int k;
    for (k = 0; k < 8; k++) {
        mpt_opts o;
        memset(&o, 0, sizeof o);
        o.rounding = MPT_RND_STOCHASTIC;
        o.seed = 77u;
        o.stream = (unsigned)k;
        o.first_element = k % 4 ? (uint64_t)k * 3u : ((uint64_t)1 << 35) - 1000u;
        around_bytes = k % 2 ? 4096u : (size_t)32 << 20;
        fill_codes(in.bytes, MPT_F32, MOST);
        (void)mpt_convert_n(k < 4 ? MPT_F16 : MPT_BF16, out.bytes, MPT_F32, in.bytes, MOST, &o, NULL);
        see_array(out.bytes, MOST, 2);
    }
    around_bytes = (size_t)32 << 20;
}

static void quantizing(void)
{
    mpt_format_info own;
    int             f;
    for (f = 0; f < (int)MPT_FORMAT_COUNT; f++) {
        fill_codes(in.bytes, MPT_F32, 5003);
        (void)mpt_quantize_n(out.f32, in.f32, 5003, (mpt_format)f, NULL);
        see_array(out.f32, 5003, 4);
        fill_codes(in.bytes, MPT_F64, 503);
        (void)mpt_quantize_f64_n((double *)(void *)out.u64, (const double *)(const void *)in.u64, 503,
                                 mpt_format_get((mpt_format)f), NULL);
        see_array(out.u64, 503, 8);
    }
    for (f = 0; f < 40; f++)
        if (mpt_format_define(&own, "own", 2 + f % 7, 1 + f % 11, f % 3 ? 15 : 5, (mpt_specials)(f % 4)) ==
            MPT_OK) {
            fill_codes(in.bytes, MPT_F32, 1003);
            (void)mpt_quantize_as_n(out.f32, in.f32, 1003, &own, NULL);
            see_array(out.f32, 1003, 4);
        }
}

static void blocks(void)
{
    int block, k;
    for (block = 0; block < (int)MPT_BLOCK_COUNT; block++)
        for (k = 0; k < 16; k++) {
            static uint8_t codes[2][4200], scales[2][300];
            const size_t   n = k % 2 ? 4133u : 1024u + 37u;
            mpt_block_opts o;
            memset(&o, 0, sizeof o);
            o.scaling = (mpt_block_scaling)(k / 2 % 4);
            o.packed = k % 3 == 0;
            o.tensor_scale = k % 5 || block != (int)MPT_NVFP4 ? 0.0f : 0.37f;
            o.element.rounding = k < 12 ? MPT_RND_NEAREST_EVEN : (mpt_rounding)(k - 9);
            if (k % 4)
                fill_floats(in.f32, n, 10.0f);
            else
                fill_codes(in.bytes, MPT_F32, n);
            if (k == 1 || k == 5)
                in.f32[777] = mpti_f32_make(0x7fc00000u);
            memset(codes, 0, sizeof codes);
            memset(scales, 0, sizeof scales);
            around_bytes = k % 2 ? 4096u : (size_t)32 << 20;
            (void)mpt_block_quantize_n((mpt_block)block, codes[1] + 3, scales[1] + 1, in.f32, n, &o);
            see_array(codes[1], 4200, 1);
            see_array(scales[1], 300, 1);
            (void)mpt_block_dequantize_n((mpt_block)block, out.f32 + 1, codes[1] + 3, scales[1] + 1, n, &o);
            see_array(out.f32 + 1, n, 4);
        }
    around_bytes = (size_t)32 << 20;
}

static void arithmetic(void)
{
    int k;
    for (k = 0; k < 4; k++) {
        mpt_f16  *h = (mpt_f16 *)out.bytes;
        mpt_bf16 *b = (mpt_bf16 *)out.bytes;
        const mpt_f16  *x = (const mpt_f16 *)in.bytes, *y = (const mpt_f16 *)other.bytes;
        const mpt_bf16 *u = (const mpt_bf16 *)in.bytes, *v = (const mpt_bf16 *)other.bytes;
        const size_t    n = k == 3 ? 83u : 8011u;
        around_bytes = k % 2 ? 4096u : (size_t)32 << 20;
        fill_codes(in.bytes, MPT_F16, 2u * MOST);
        fill_codes(other.bytes, MPT_F16, 2u * MOST);
#define SEE(call, p) (void)(call), see_array(p, n, 2)
        SEE(mpt_f16_add_n(h, x, y, n), h);
        SEE(mpt_f16_sub_n(h, x, y, n), h);
        SEE(mpt_f16_mul_n(h, x, y, n), h);
        SEE(mpt_f16_fma_n(h, x, y, x + 9000, n), h);
        SEE(mpt_bf16_add_n(b, u, v, n), b);
        SEE(mpt_bf16_sub_n(b, u, v, n), b);
        SEE(mpt_bf16_mul_n(b, u, v, n), b);
        SEE(mpt_bf16_fma_n(b, u, v, u + 9000, n), b);
#undef SEE
    }
    around_bytes = (size_t)32 << 20;
}

// steps -------------------------------------------------------------------------------------------

static float    weights[MOST], moments[2][MOST];
static uint16_t codes[2][MOST + 32];
static union { float f32[MOST]; uint16_t h[MOST]; } grad;

static const mpt_format train[] = {MPT_F32, MPT_F16, MPT_BF16};

static void see_step(const mpt_step *s)
{
    see_f64(s->sumsq);
    see_f64(s->norm);
    see(s->inf_count);
    see(s->nan_count);
    see(s->range_count);
    see(s->bad_tensor);
    see(s->bad_index);
    see_f32(s->grad_factor);
    see_f32(s->clip_factor);
    see(s->found_inf);
    see(s->cause);
    see(s->bad_cause);
}

static void put_grad(mpt_format format, const float *x, size_t n)
{
    (void)mpt_convert_n(format, &grad, MPT_F32, x, n, NULL, NULL);
}

static void checks(void)
{
    static const size_t lengths[] = {1, 7, 64, 300, 2049, 16384, 16385, MOST};
    size_t              f, k, write;
    for (f = 0; f < COUNT_OF(train); f++)
        for (k = 0; k < COUNT_OF(lengths); k++)
            for (write = 0; write < 4; write++) {
                mpt_scaler        s;
                mpt_step          step;
                mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_STATIC);
                mpt_tensor        t[2];
                mpt_tensor_report report[2];
                c.init_scale = write < 2 ? 1024.0f : k % 2 ? 3.7f : 0.001f;
                (void)mpt_scaler_init(&s, &c);
                (void)mpt_scaler_scale(&s, 1.0f);
                memset(&step, 0, sizeof step);
                memset(t, 0, sizeof t);
                t[0].n = lengths[k] - lengths[k] / 3u;
                t[1].n = lengths[k] / 3u;
                t[0].grad = &grad;
                t[1].grad = (unsigned char *)&grad + t[0].n * (train[f] == MPT_F32 ? 4u : 2u);
                t[0].grad_format = t[1].grad_format = train[f];
                fill_floats(in.f32, lengths[k], write == 3 ? 30000.0f : 8.0f);
                if (k == 5 || k == 7)
                    in.f32[lengths[k] / 2u] = mpti_f32_make(k == 5 ? 0x7f800000u : 0xffc00000u);
                put_grad(train[f], in.f32, lengths[k]);
                (void)(write % 2 ? mpt_unscale : mpt_check)(&s, &step, t, 2, report);
                see_step(&step);
                see(report[0].bad_index + report[0].bad_cause);
                see(report[1].bad_index + report[1].bad_cause);
                if (write % 2 && mpt_clip(&step, 1.5f) == MPT_OK)
                    (void)mpt_clip_apply(&step, t, 2, 0.01f);
                see_array(&grad, lengths[k], train[f] == MPT_F32 ? 4u : 2u);
            }
}

/* Three steps of each optimizer with each storage, one of them clipped. */
enum { SGD, SGD_NESTEROV, ADAMW, ADAM, LAMB, LION, ADAFACTOR, ADAFACTOR_FLAT, OPTIMIZERS };

static void one_step(int which, mpt_step *step, const mpt_tensor *t, uint64_t taken)
{
    mpt_sgd       sgd = {0.05f, 0.9f, 0.01f, 0u, 0.0f, 0u, 0u};
    mpt_adamw     adamw = mpt_adamw_defaults();
    mpt_adam      adam = mpt_adam_defaults();
    mpt_lamb      lamb = mpt_lamb_defaults();
    mpt_lion      lion = mpt_lion_defaults();
    mpt_adafactor adafactor = mpt_adafactor_defaults();
    sgd.nesterov = which == SGD_NESTEROV;
    sgd.t = adamw.t = adam.t = lamb.t = lion.t = adafactor.t = taken;
    adam.weight_decay = 0.1f;
    switch (which) {
    case ADAMW: see((uint64_t)mpt_adamw_step(&adamw, step, t, 1)); break;
    case ADAM: see((uint64_t)mpt_adam_step(&adam, step, t, 1)); break;
    case LAMB: see((uint64_t)mpt_lamb_step(&lamb, step, t, 1)); break;
    case LION: see((uint64_t)mpt_lion_step(&lion, step, t, 1)); break;
    case ADAFACTOR:
    case ADAFACTOR_FLAT: see((uint64_t)mpt_adafactor_step(&adafactor, step, t, 1)); break;
    default: see((uint64_t)mpt_sgd_step(&sgd, step, t, 1)); break;
    }
}

static void steps(void)
{
    uint16_t *const copy = codes[0] + (0u - (uintptr_t)codes[0]) % 64u / 2u;     /* at a cache line */
    int             which, storage, variant;
    size_t          k;
    for (which = 0; which < OPTIMIZERS; which++)
        for (storage = 0; storage < (int)MPT_STORAGE_COUNT; storage++)
            for (variant = 0; variant < 3; variant++) {
                const mpt_format param = storage == (int)MPT_STORE_SPLIT || variant == 2 ? MPT_BF16 : MPT_F16;
                const size_t     n = variant ? 16384u + 3u * 256u : 100u * 23u;
                mpt_scaler       s;
                mpt_step         step;
                mpt_tensor       t;
                memset(&step, 0, sizeof step);
                memset(&t, 0, sizeof t);
                memset(moments, 0, sizeof moments);
                (void)mpt_scaler_init(&s, NULL);
                t.n = n;
                t.master = storage == (int)MPT_STORE_MASTER ? weights : NULL;
                t.param = copy;
                t.extra = codes[1];
                t.grad = &grad;
                t.m = moments[0];
                t.v = moments[1];
                t.param_format = param;
                t.grad_format = train[variant];
                t.storage = (mpt_storage)storage;
                t.moments = variant == 1 && which != ADAFACTOR ? MPT_MOMENTS_BF16 : MPT_MOMENTS_F32;
                t.columns = which == ADAFACTOR ? (variant ? 256u : 23u) : 0u;
                t.seed = 5u;
                fill_floats(in.f32, n, 2.0f);
                (void)mpt_weights_set(&t, in.f32);
                for (k = 0; k < 3; k++) {
                    fill_floats(in.f32, n, 20.0f);
                    put_grad(t.grad_format, in.f32, n);
                    (void)mpt_scaler_scale(&s, 1.0f);
                    (void)mpt_check(&s, &step, &t, 1, NULL);
                    if (k == 1)
                        (void)mpt_clip(&step, 0.001f);
                    if ((which + variant) % 2)
                        around_bytes = 4096u;       /* as large tensors */
                    one_step(which, &step, &t, k);
                    around_bytes = (size_t)32 << 20;
                    (void)mpt_scaler_update(&s);
                }
                (void)mpt_weights_get(&t, out.f32);
                see_array(out.f32, n, 4);
                see_array(copy, n, 2);
                k = t.moments == MPT_MOMENTS_BF16 ? 2u : 4u;
                see_array(moments[0], n, k);
                see_array(moments[1], t.columns ? 100u : n, k);
            }
}

static void rows(void)
{
    mpt_row_rule rule;
    mpt_tensor   tensor;
    size_t       n;
    for (n = 0; n < 400; n += n < 140 ? 1 : 41) {
        uint32_t bad = 0u;
        fill_floats(in.f32, n, 3.0f);
        fill_floats(other.f32, n, 5.0f);
        (void)mpt_f16_from_f32_n((mpt_f16 *)codes[0], in.f32, n);
        (void)mpt_bf16_from_f32_n((mpt_bf16 *)codes[1], in.f32, n);
        see_f32(mpt_dot(codes[0], MPT_F16, other.f32, MPT_F32, n));
        see_f32(mpt_dot(codes[1], MPT_BF16, other.f32, MPT_F32, n));
        see_f32(mpt_dot(in.f32, MPT_F32, other.f32, MPT_F32, n));
        (void)mpt_axpy(other.f32, MPT_F32, 0.7f, codes[0], MPT_F16, n);
        (void)mpt_axpy(other.f32, MPT_F32, -0.3f, codes[1], MPT_BF16, n);
        (void)mpt_axpy(other.f32, MPT_F32, 1.7f, in.f32, MPT_F32, n);
        see_array(other.f32, n, 4);
        (void)mpt_axpy_publish(codes[0], MPT_F16, other.f32, -0.1f, in.f32, n, &bad);
        see_array(codes[0], n, 2);
        fill_floats(moments[0], n, 1.0f);
        memset(&rule, 0, sizeof rule);
        memset(&tensor, 0, sizeof tensor);
        tensor.n = n, tensor.master = other.f32, tensor.m = moments[0];
        tensor.param = codes[1], tensor.param_format = MPT_BF16;
        rule.a = -0.1f, rule.momentum = 0.9f, rule.factor = 0.5f;
        (void)mpt_row_update(&rule, &tensor, 0, n, in.f32);
        see_array(codes[1], n, 2);
        see_array(moments[0], n, 4);
        see(bad);
    }
}

static void fp8(void)
{
    float           scale[3], inverse[3], amax[3], history[3 * 5];
    mpt_fp8_scaling s;
    size_t          f;
    int             k;
    memset(&s, 0, sizeof s);
    s.recipe = mpt_fp8_defaults(MPT_E4M3);
    s.recipe.length = 5;
    s.count = 3;
    s.scale = scale, s.inverse = inverse, s.amax = amax, s.history = history;
    (void)mpt_fp8_init(&s);
    for (k = 0; k < 6; k++) {
        s.recipe.format = k % 2 ? MPT_E5M2 : MPT_E4M3;
        s.recipe.power_of_two = k > 3;
        for (f = 0; f < COUNT_OF(train); f++) {
            fill_floats(in.f32, 3003, k == 2 ? 1e6f : 20.0f);
            put_grad(train[f], in.f32, 3003);
            (void)mpt_fp8_encode_n(s.recipe.format, out.bytes, train[f], &grad, 3003, &scale[f], &amax[f]);
            see_array(out.bytes, 3003, 1);
            (void)mpt_fp8_encode_transpose(s.recipe.format, out.bytes, out.bytes + 4096, train[f], &grad, 91,
                                           33, &scale[f], &amax[f]);
            see_array(out.bytes, 3003, 1);
            see_array(out.bytes + 4096, 3003, 1);
        }
        (void)mpt_fp8_update(&s);
        see_array(scale, 3, 4);
        see_array(inverse, 3, 4);
        see_array(history, 15, 4);
    }
}

/* Every dialect over simulated trainings with bad steps: by the scale, by data (in the first half), by
 * NaNs. */
static void scalers(void)
{
    static const unsigned often[] = {1000, 97, 20, 9, 4, 2};
    int                   d, i, k;
    for (d = 0; d < (int)MPT_SCALER_DIALECT_COUNT; d++)
        for (k = 0; k < (d == (int)MPT_SCALER_MPT ? 24 : 1); k++) {
            mpt_scaler_config c = mpt_scaler_defaults((mpt_scaler_dialect)d);
            const int         steps = d != (int)MPT_SCALER_MPT || k % 11 ? 6000 : 30000;
            const uint32_t    field = (uint32_t)(mt_random() % 40u) + (k % 4 == 1 ? 107u : 147u);
            const float       most = mpti_f32_make(field << 23);
            mpt_scaler        s;
            c.interval = (int32_t)(1 + mt_random() % (k % 2 ? 60u : 3000u));
            c.patience = (int32_t)(1 + mt_random() % 7u);
            if (d == (int)MPT_SCALER_MPT && k % 5 == 4)
                c.min_scale = mpti_f64_make((uint64_t)(1023 - 120) << 52);
            see((uint64_t)mpt_scaler_init(&s, &c));
            for (i = 0; i < steps; i++) {
                const float    x = mpt_scaler_scale(&s, 1.0f);
                const int      data = i < steps / 2 && mt_random() % often[k / 2 % 6] == 0u;
                const unsigned cause = i % 500 > 420 && k % 3 == 1 ? MPT_CAUSE_NAN
                                       : x > most                  ? MPT_CAUSE_INF
                                       : data                      ? MPT_CAUSE_INF << mt_random() % 2u
                                       : i % 700 > 690             ? MPT_CAUSE_RANGE : 0u;
                (void)mpt_scaler_record(&s, 0, cause);
                see((uint64_t)mpt_scaler_update(&s));
                see_f32(s.scale);
                see(s.skipped_nan);
                if (i % 8 == 0)
                    see_array((const unsigned char *)&s + offsetof(mpt_scaler, home),
                              (offsetof(mpt_scaler, in_use) - offsetof(mpt_scaler, home)) / 4u, 4);
            }
        }
}

// reports -----------------------------------------------------------------------------------------

static int see_bytes(void *user, const char *text, size_t n)
{
    size_t i;
    (void)user;
    for (i = 0; i < n; i++)
        see((unsigned char)text[i]);
    return 0;
}
static const mpt_writer hole = {see_bytes, NULL};

static void see_range(const mpt_range *r)
{
    int i;
    see(r->count);
    see(r->zero);
    see(r->flushed);
    see(r->subnormal);
    see(r->normal);
    see(r->overflow);
    see(r->inf);
    see(r->nan);
    for (i = 0; i < MPT_RANGE_BINS; i++)
        see(r->binade[i]);
    see_f64(r->max_abs);
    see_f64(r->min_abs);
}

static void range_reports(void)
{
    static mpt_range  r, s;
    static mpt_survey all;
    int               format, k;
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
        for (k = 0; k < 4; k++)
            if (mpt_range_init(&r, (mpt_format)format) == MPT_OK) {
                const mpt_format from = six[(k + format) % 6];
                const size_t     n = k % 2 ? MOST : 1003;
                if (k == 3 && from == MPT_F32)
                    fill_floats(in.f32, n, 1e-3f);
                else
                    fill_codes(in.bytes, from, n);
                (void)mpt_range_add(&r, from, in.bytes, n);
                see_range(&r);
                (void)mpt_range_write(&r, MPT_STYLE_JSON, "x", hole);
                (void)mpt_range_write(&r, MPT_STYLE_TEXT, "x", hole);
                (void)mpt_range_write_histogram(&r, hole);
                (void)mpt_range_write_curve(&r, -20, 20, MPT_STYLE_CSV, "", hole);
            }
    for (k = 0; k < 6; k++) {
        (void)mpt_survey_init(&all);
        if (k == 1)
            fill_floats(in.f32, MOST, 1e-3f);
        else
            fill_codes(in.bytes, six[k], MOST);
        (void)mpt_survey_add(&all, six[k], in.bytes, MOST);
        for (format = 0; format < (int)MPT_FORMAT_COUNT; format++)
            if (mpt_survey_get(&all, (mpt_format)format, &r) == MPT_OK)
                see_range(&r);
        (void)mpt_survey_write(&all, MPT_STYLE_CSV, "a,b", hole);
    }
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_init(&s, MPT_F16);
    fill_codes(in.bytes, MPT_F32, 5000);
    (void)mpt_range_add_signed(&r, &s, MPT_F32, in.f32, 5000);
    (void)mpt_range_merge(&r, &s);
    see_range(&r);
}

static void rounding_reports(void)
{
    static mpt_roundoff r;
    int                 k;
    for (k = 0; k < 24; k++) {
        mpt_opts         o;
        const mpt_format from = k < 8 ? MPT_F32 : six[k % 6];
        const size_t     n = k < 8 ? (size_t)MOST : 503u;
        memset(&o, 0, sizeof o);
        o.rounding = k < 6 ? MPT_RND_NEAREST_EVEN : (mpt_rounding)(k % (int)MPT_ROUNDING_COUNT);
        o.flush = k % 5 == 4 ? MPT_FLUSH_RESULTS : 0u;
        if (k % 2)
            fill_floats(in.f32, n, 100.0f);
        else
            fill_codes(in.bytes, from, n);
        if (mpt_roundoff_init(&r, k < 4 ? MPT_F16 : (mpt_format)(k % 12), &o, k % 7 == 6 ? 3 : 0) != MPT_OK)
            continue;
        (void)mpt_roundoff_add(&r, k % 2 ? MPT_F32 : from, in.bytes, n);
        see(r.count + 3u * r.zero + 5u * r.exact + 7u * r.changed + 11u * r.flushed + 13u * r.overflow);
        see_array(r.relative, 2, 8);
        see_array(r.ulps, 2, 8);
        see_array(r.bias, 2, 8);
        see_f64(r.max_relative);
        see_f64(r.max_ulps);
        see_f64(mpt_exact_value(&r.signal));
        see_f64(mpt_exact_value(&r.noise));
        (void)mpt_roundoff_write(&r, MPT_STYLE_CSV, "x", hole);
    }
}

static void other_reports(void)
{
    static mpt_stagnation u;
    static mpt_sums       sums;
    mpt_shadow            shadow;
    mpt_shadowed          a, b, c;
    mpt_track             track;
    int                   k;
    fill_floats(in.f32, 3000, 1.0f);
    fill_floats(other.f32, 3000, 1e-3f);
    for (k = 0; k < 3; k++) {
        (void)mpt_stagnation_init(&u, k ? train[k] : MPT_E4M3);
        (void)mpt_stagnation_add(&u, in.f32, other.f32, 3000);
        (void)mpt_stagnation_write(&u, MPT_STYLE_JSON, "u", hole);
        see_array(u.margin, MPT_STAGNATION_MARGINS, 8);
        memset(&sums, 0, sizeof sums);
        (void)mpt_sums_add(&sums, in.f32, k ? other.f32 : NULL, 1000, 0);
        (void)mpt_sums_add(&sums, in.f32 + 1000, k ? other.f32 : NULL, 1000, 1);
        (void)mpt_sums_write(&sums, MPT_STYLE_TEXT, "s", hole);
        (void)mpt_shadow_init(&shadow, k ? train[k] : MPT_E5M2, 0.01);
        a = mpt_shadow_value(&shadow, 0.1);
        while (shadow.operations < 1000u) {
            b = mpt_shadow_value(&shadow, (double)in.f32[shadow.operations]);
            a = mpt_shadow_apply(&shadow, MPT_SHADOW_OP_FMA, a, b,
                                 mpt_shadow_apply(&shadow, MPT_SHADOW_OP_SUB, b, a, a));
            c = mpt_shadow_apply(&shadow, MPT_SHADOW_OP_MUL, b, b, b);
            c = mpt_shadow_apply(&shadow, MPT_SHADOW_OP_SQRT, c, c, c);
            a = mpt_shadow_apply(&shadow, MPT_SHADOW_OP_DIV, a, c, c);
            a = mpt_shadow_apply(&shadow, MPT_SHADOW_OP_ADD, a, b, b);
        }
        (void)mpt_shadow_write(&shadow, MPT_STYLE_JSON, "s", hole);
        (void)mpt_track_init(&track, "t", MPT_F16, 2, hole);
        (void)mpt_track_add(&track, (uint64_t)k, MPT_F32, other.f32, 3000);
    }
}

// products, graphs, checkpoints ---------------------------------------------------------------------

static void products(void)
{
    int k;
    for (k = 0; k < 12; k++) {
        const size_t    m = 5u + (unsigned)k * 11u, n = 70u - (unsigned)k, p = 3u + (unsigned)k * 9u;
        const mpt_trans ta = k % 2 ? MPT_TRANS : MPT_NO_TRANS, tb = k % 3 ? MPT_TRANS : MPT_NO_TRANS;
        const mpt_order order = k % 4 < 2 ? MPT_ROW_MAJOR : MPT_COL_MAJOR;
        fill_floats(in.f32, 200u * 70u, 2.0f);
        (void)mpt_convert_n(k % 2 ? MPT_F16 : MPT_BF16, codes[0], MPT_F32, in.f32, 200u * 70u, NULL, NULL);
        fill_floats(other.f32, 200u * 70u, 2.0f);
        fill_floats(out.f32, 200u * 130u, 1.0f);
        (void)mpt_gemm(order, ta, tb, m, n, p, 1.5f, codes[0], k % 2 ? MPT_F16 : MPT_BF16,
                       (order == MPT_ROW_MAJOR) == (ta == MPT_NO_TRANS) ? p : m, other.f32, MPT_F32,
                       (order == MPT_ROW_MAJOR) == (tb == MPT_NO_TRANS) ? n : p, k % 5 ? 0.5f : 0.0f, out.f32,
                       MPT_F32, order == MPT_ROW_MAJOR ? n : m, NULL, 0);
        see_array(out.f32, m * n, 4);
        (void)mpt_bias_add(out.f32, MPT_F32, codes[0], k % 2 ? MPT_F16 : MPT_BF16, m, n);
        (void)mpt_activate(MPT_ACT_RELU, out.f32, MPT_F32, out.f32, MPT_F32, m * n);
        (void)mpt_bias_grad(codes[1], MPT_BF16, out.f32, MPT_F32, m, n);
        see_array(out.f32, m * n, 4);
        see_array(codes[1], n, 2);
    }
}

static void graphs(void)
{
    static const char *const ops[] = {"matmul", "add",  "relu",  "exp",      "softmax", "conv2d",
                                      "tanh",   "norm", "cast",  "variable", "concat",  "transpose"};
    static unsigned char arena[1 << 20];
    static char          names[300][8], line[2000];
    int                  k;
    for (k = 0; k < 20; k++) {
        mpt_graph         g;
        mpt_graph_options o = mpt_graph_defaults();
        mpt_graph_summary s;
        uint32_t          outputs[300], i;
        (void)mpt_graph_init(&g, arena, sizeof arena);
        for (i = 0; i < 200u; i++) {
            uint32_t source[3], j, count = i ? 1u + (uint32_t)(mt_random() % 3u) : 0u;
            for (j = 0; j < count; j++)
                source[j] = outputs[mt_random() % i];
            (void)snprintf(names[i], sizeof names[i], "n%u", (unsigned)i);
            (void)mpt_graph_op(&g, names[i], ops[mt_random() % COUNT_OF(ops)], source, count, 1u + i * 7u,
                               &outputs[i]);
        }
        o.mode = k % 2 ? MPT_GRAPH_MIN_CUT : MPT_GRAPH_TENSORFLOW;
        o.low = k % 3 ? MPT_F16 : MPT_BF16;
        see((uint64_t)mpt_graph_rewrite(&g, &o, &s));
        see(s.processable + 3u * s.recognized + 5u * s.converted + 7u * s.low_casts +
            11u * s.allow_converted + 13u * s.deny_blocking + 17u * s.blocked_by_deny + 19u * s.casts +
            23u * s.cast_bytes);
        for (i = 0; i < g.type_count; i++) {
            (void)mpt_graph_explain(&g, i, line, sizeof line);
            see_text(line);
        }
    }
}

static void checkpoints(void)
{
    static unsigned char buffer[1 << 16];
    uint64_t             counters[3] = {1u, 2u, ~(uint64_t)0};
    mpt_scaler           scaler;
    mpt_step             step;
    mpt_sgd              sgd = {0.1f, 0.9f, 0.0f, 1u, 0.0f, 0u, 77u};
    mpt_adamw            adamw = mpt_adamw_defaults();
    mpt_tensor           t;
    mpt_state            state;
    size_t               bytes = 0;
    memset(&step, 0, sizeof step);
    memset(&t, 0, sizeof t);
    memset(&state, 0, sizeof state);
    (void)mpt_scaler_init(&scaler, NULL);
    fill_floats(weights, 1000, 1.0f);
    fill_floats(moments[0], 1000, 1.0f);
    t.name = "w";
    t.n = 1000;
    t.master = weights;
    t.m = moments[0];
    t.param = codes[0];
    t.param_format = MPT_BF16;
    (void)mpt_publish(&t, 1);
    state.scalers = &scaler, state.scaler_count = 1;
    state.steps = &step, state.step_count = 1;
    state.sgd = &sgd, state.adamw = &adamw;
    state.counters = counters, state.counter_count = 3;
    state.tensors = &t, state.tensor_count = 1;
    see((uint64_t)mpt_state_size(&state, &bytes));
    see((uint64_t)mpt_state_save(&state, buffer, bytes));
    see_array(buffer, bytes, 1);
}

static void texts(void)
{
    char buf[64];
    int  f, k;
    for (f = 0; f < (int)MPT_FORMAT_COUNT; f++) {
        const size_t bytes = (size_t)mpt_format_get((mpt_format)f)->bytes;
        fill_codes(in.bytes, (mpt_format)f, 300);
        for (k = 0; k < 300; k++) {
            const uint64_t code = mt_get(in.bytes + (size_t)k * bytes, bytes);
            uint64_t       back = 0u;
            unsigned       flags = 0u;
            mpt_opts       o;
            memset(&o, 0, sizeof o);
            o.rounding = (mpt_rounding)(k % 6);
            (void)mpt_to_text(buf, sizeof buf, (mpt_format)f, code);
            see_text(buf);
            (void)mpt_from_text((mpt_format)((f + k) % (int)MPT_FORMAT_COUNT), buf, MPT_TEXT_TO_NUL, &o,
                                &flags, &back, NULL);
            see(back);
            see(flags);
            (void)mpt_to_text_as(buf, sizeof buf, mpt_format_get((mpt_format)f), code, 1);
            see_text(buf);
            (void)mpt_bits_text(buf, sizeof buf, (mpt_format)f, code);
            see_text(buf);
        }
    }
}

// ---------------------------------------------------------------------------------------------------

static const struct { const char *name; void (*run)(void); uint64_t want; } families[] = {
#define FAMILY(name, want) {#name, name, (uint64_t)want},
    FAMILY(conversions, 0x8557204af0bd5a75u)
    FAMILY(saturating, 0x8c06d556c14c4aeeu)
    FAMILY(options, 0x7852a1999bf13c57u)
    FAMILY(stochastic, 0x2278be8003e266u)
    FAMILY(quantizing, 0x6b3028f20da34050u)
    FAMILY(blocks, 0xd8a1bff7a7de2144u)
    FAMILY(arithmetic, 0x7557ef9324c78b5cu)
    FAMILY(texts, 0x608940f33c64a182u)
    FAMILY(checks, 0x20e556bf1d0fb8bfu)
    FAMILY(steps, 0x4f1c35aba9890af0u)
    FAMILY(rows, 0xacd4bb258fece56u)
    FAMILY(fp8, 0x8758fad9064d9dc6u)
    FAMILY(scalers, 0xc060bb8ca09c2df8u)
    FAMILY(range_reports, 0xeaef83997f37ed12u)
    FAMILY(rounding_reports, 0x2ababc19fcb3a560u)
    FAMILY(other_reports, 0x34fe7af4be9771bau)
    FAMILY(products, 0x75963d15e849f35u)
    FAMILY(graphs, 0xe6e7f2790a632cfdu)
    FAMILY(checkpoints, 0x742cfab88f54e37cu)
};

static uint64_t run(size_t i)
{
    mt.random_state = 1000u + i;
    digest = 0u;
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    families[i].run();
    return digest;
}

TEST(as_it_was)
{
    size_t i;
    int    path;
    for (path = 0; path < PATHS; path++) {
        last_path = path;
        if (path_taken() != path)
            continue;
        for (i = 0; i < COUNT_OF(families); i++) {
            mt_context(families[i].name, mpt_simd_name());
            CHECK_EQ_U(run(i), families[i].want);
        }
    }
}

int main(int argc, char **argv)
{
    size_t i;
    if (argc == 2 && !strcmp(argv[1], "--print")) {
        for (i = 0; i < COUNT_OF(families); i++)
            printf("    FAMILY(%s, 0x%llxu)\n", families[i].name, (unsigned long long)run(i));
        return 0;
    }
    mt_begin(argc, argv);
    RUN(as_it_was);
    return mt_end();
}
