/* train.h -- what the tests of mpt.h share: elements of arrays, random numbers, scalers, a tensor with all
 * its arrays, every optimizer behind one interface. Include it after mpt.h and test.h. Valid C99, C++17. */
#ifndef MT_TRAIN_H
#define MT_TRAIN_H

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BITS_INF  0x7f800000u
#define BITS_QNAN 0x7fc00000u
#define BITS_SNAN 0x7f800001u
#define INF32     mpti_f32_make(BITS_INF)

// numbers -----------------------------------------------------------------------------------------

static inline float pow2f(int k)
{
    return mpti_f32_make(k < -126 ? 1u << (k + 149) : (uint32_t)(k + 127) << 23);
}

/* Uniform in [-1, 1); the conversion to float is exact. */
static inline float random_unit(void) { return (float)((int)(mt_random() >> 40) - 0x800000) / 8388608.0f; }

/* A normal number with a random sign and significand; the exponent is uniform from low to high. */
static inline float random_wide(int low, int high)
{
    const uint64_t r = mt_random();
    const uint32_t e = (uint32_t)(low + 127 + (int)((r >> 32) % (uint64_t)(high - low + 1)));
    return mpti_f32_make(((uint32_t)r & 0x807fffffu) | e << 23);
}

// arrays in the formats of gradients and 16-bit copies --------------------------------------------

static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};

static inline size_t bytes_of(mpt_format f) { return f == MPT_F32 ? 4u : 2u; }

static inline uint32_t encode(mpt_format f, float x)
{
    return f == MPT_F16    ? mpt_f16_from_f32(x).bits
           : f == MPT_BF16 ? mpt_bf16_from_f32(x).bits
                           : mpti_f32_bits(x);
}

static inline float decode(mpt_format f, uint32_t bits)
{
    mpt_f16  h;
    mpt_bf16 b;
    h.bits = b.bits = (uint16_t)bits;
    return f == MPT_F16 ? mpt_f32_from_f16(h) : f == MPT_BF16 ? mpt_f32_from_bf16(b) : mpti_f32_make(bits);
}

/* Element i of an array: its bits, or its value. */
static inline uint32_t get_bits(const void *array, mpt_format f, size_t i)
{
    return (uint32_t)mt_get((const unsigned char *)array + bytes_of(f) * i, bytes_of(f));
}

static inline void set_bits(void *array, mpt_format f, size_t i, uint32_t bits)
{
    mt_put((unsigned char *)array + bytes_of(f) * i, bytes_of(f), bits);
}

static inline float element(const void *array, mpt_format f, size_t i)
{
    return decode(f, get_bits(array, f, i));
}

static inline void element_set(void *array, mpt_format f, size_t i, float x)
{
    set_bits(array, f, i, encode(f, x));
}

// scalers, gradients ------------------------------------------------------------------------------

/* A scaler that is ready for a check. */
static inline mpt_scaler scaler_from(mpt_scaler_config c)
{
    mpt_scaler s;
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_scaler_init(&s, &c), MPT_OK);
    (void)mpt_scaler_scale(&s, 1.0f);
    return s;
}

static inline mpt_scaler scaler_static(float scale)
{
    mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_STATIC);
    c.init_scale = scale;
    return scaler_from(c);
}

/* PyTorch's scaler. */
static inline mpt_scaler_config dynamic(float scale, double growth, double backoff, int32_t interval)
{
    mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_PYTORCH);
    c.init_scale = scale;
    c.growth = growth;
    c.backoff = backoff;
    c.interval = interval;
    return c;
}

static inline mpt_step step_zero(void)
{
    mpt_step step;
    memset(&step, 0, sizeof step);
    return step;
}

/* A tensor that has only a gradient. */
static inline mpt_tensor grad_of(void *grad, mpt_format format, size_t n)
{
    mpt_tensor t = mpt_tensor_grad_f32("t", NULL, n);
    t.grad = grad;
    t.grad_format = format;
    return t;
}

// one tensor with all its arrays, compared by one memcmp ------------------------------------------

enum { LAYER_N = 17000 };          /* elements: more than one chunk of the norms */
typedef struct arrays {
    float master[LAYER_N], grad[LAYER_N], m[LAYER_N], v[LAYER_N], param[LAYER_N], extra[LAYER_N];
} arrays;
typedef struct layer { arrays a; mpt_tensor t; } layer;

static inline void layer_bind(layer *l, size_t n, mpt_storage storage, mpt_format param, mpt_format grad,
                              mpt_moments moments)
{
    memset(&l->t, 0, sizeof l->t);
    l->t.name = "layer";
    l->t.n = n;
    l->t.master = storage == MPT_STORE_MASTER ? l->a.master : NULL;
    l->t.param = l->a.param;
    l->t.grad = l->a.grad;
    l->t.m = l->a.m;
    l->t.v = l->a.v;
    l->t.extra = storage == MPT_STORE_KAHAN || storage == MPT_STORE_SPLIT ? l->a.extra : NULL;
    l->t.param_format = param;
    l->t.grad_format = grad;
    l->t.storage = storage;
    l->t.moments = moments;
    l->t.seed = (uint64_t)77u;
}

/* A layer with random weights. */
static inline void layer_make(layer *l, size_t n, mpt_storage storage, mpt_format param, mpt_format grad,
                              mpt_moments moments)
{
    static float w[LAYER_N];
    size_t       i;
    memset(l, 0, sizeof *l);
    layer_bind(l, n, storage, param, grad, moments);
    for (i = 0; i < n; i++)
        w[i] = random_unit();
    CHECK_EQ_I(mpt_weights_set(&l->t, w), MPT_OK);
}

/* Another layer with the same numbers, bound to its own arrays. */
static inline void layer_copy(layer *to, const layer *from)
{
    memcpy(&to->a, &from->a, sizeof to->a);
    layer_bind(to, from->t.n, from->t.storage, from->t.param_format, from->t.grad_format, from->t.moments);
}

static inline void layer_gradient(layer *l, float size)
{
    size_t i;
    for (i = 0; i < l->t.n; i++)
        element_set(l->a.grad, l->t.grad_format, i, random_unit() * size);
}

// every optimizer behind one interface ------------------------------------------------------------

enum {
    SGD = MPT_OPTIMIZER_SGD, ADAMW = MPT_OPTIMIZER_ADAMW, ADAM = MPT_OPTIMIZER_ADAM,
    LAMB = MPT_OPTIMIZER_LAMB, LION = MPT_OPTIMIZER_LION
};
typedef struct optimizer {
    int       kind;
    mpt_sgd   sgd;
    mpt_adamw adam;             /* AdamW, Adam and LAMB */
    mpt_lion  lion;
} optimizer;

/* kind, learning rate, then what the kind takes: momentum or beta1, beta2, eps, weight decay, nesterov. Some
 * have an eps large enough to matter, and betas that forget quickly. */
static const struct recipe { int kind; float lr, beta1, beta2, eps, decay; unsigned nesterov; } recipes[] = {
    {SGD, 0.1f, 0.0f, 0.0f, 0.0f, 0.0f, 0u},      {SGD, 0.05f, 0.9f, 0.0f, 0.0f, 0.0f, 0u},
    {SGD, 0.05f, 0.9f, 0.0f, 0.0f, 0.01f, 1u},    {SGD, 0.01f, 0.0f, 0.0f, 0.0f, 0.1f, 0u},
    {SGD, 0.02f, 0.5f, 0.0f, 0.0f, 0.2f, 0u},     {SGD, 0.0f, 0.5f, 0.0f, 0.0f, 0.2f, 0u},
    {ADAMW, 1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 0u}, {ADAMW, 1e-2f, 0.8f, 0.99f, 1e-2f, 0.1f, 0u},
    {ADAMW, 1e-3f, 0.0f, 0.9f, 1e-8f, 0.0f, 0u},  {ADAMW, 1e-2f, 0.5f, 0.0f, 1e-3f, 0.5f, 0u},
    {ADAM, 1e-2f, 0.9f, 0.999f, 1e-8f, 0.1f, 0u}, {ADAM, 1e-3f, 0.5f, 0.9f, 1e-3f, 0.0f, 0u},
    {LAMB, 1e-2f, 0.9f, 0.999f, 1e-6f, 0.01f, 0u}, {LAMB, 1e-2f, 0.8f, 0.9f, 1e-3f, 0.0f, 0u},
    {LION, 1e-3f, 0.9f, 0.99f, 0.0f, 0.1f, 0u},   {LION, 1e-3f, 0.5f, 0.9f, 0.0f, 0.0f, 0u},
};
static const size_t one_of_each[] = {4, 6, 10, 12, 14};     /* a recipe of each kind; SGD's has momentum */

static inline optimizer optimizer_make(size_t i)
{
    const struct recipe *r = &recipes[i];
    optimizer            o;
    memset(&o, 0, sizeof o);
    o.kind = r->kind;
    o.sgd.lr = o.adam.lr = o.lion.lr = r->lr;
    o.sgd.momentum = o.adam.beta1 = o.lion.beta1 = r->beta1;
    o.adam.beta2 = o.lion.beta2 = r->beta2;
    o.adam.eps = r->eps;
    o.sgd.weight_decay = o.adam.weight_decay = o.lion.weight_decay = r->decay;
    o.sgd.nesterov = r->nesterov;
    return o;
}

static inline mpt_status optimizer_step(optimizer *o, mpt_step *step, const mpt_tensor *t, size_t count)
{
    switch (o->kind) {
    case SGD:   return mpt_sgd_step(&o->sgd, step, t, count);
    case ADAMW: return mpt_adamw_step(&o->adam, step, t, count);
    case ADAM:  return mpt_adam_step(&o->adam, step, t, count);
    case LAMB:  return mpt_lamb_step(&o->adam, step, t, count);
    default:    return mpt_lion_step(&o->lion, step, t, count);
    }
}

static inline uint64_t optimizer_t(const optimizer *o)
{
    return o->kind == SGD ? o->sgd.t : o->kind == LION ? o->lion.t : o->adam.t;
}

/* One step of one layer: scale, check, clip if max_norm is positive, optimizer step, scaler update. */
static inline void train_step(optimizer *o, mpt_scaler *s, mpt_step *step, layer *l, float max_norm)
{
    (void)mpt_scaler_scale(s, 1.0f);
    CHECK_EQ_I(mpt_check(s, step, &l->t, 1, NULL), MPT_OK);
    if (max_norm > 0.0f)
        CHECK_EQ_I(mpt_clip(step, max_norm), MPT_OK);
    CHECK_EQ_I(optimizer_step(o, step, &l->t, 1), MPT_OK);
    CHECK_EQ_I(mpt_scaler_update(s), MPT_OK);
}

#endif
