/* test_cuda_optim.cu -- tests of the optimizers of mpt_cuda.h, each with every storage of weights: a training
 * run on the device and one on the CPU; all arrays are compared byte by byte after every step.
 *
 *     cc -O2 -I. -c tests/impl.c
 *     nvcc -std=c++17 -O2 -I. tests/test_cuda_optim.cu tests/impl_cuda.cu impl.o -lcublasLt
 * or, without a GPU,
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. tests/test_cuda_optim.cu tests/impl_cuda.cu \
 *         -x none impl.o
 *
 * --small is for ThreadSanitizer and the like: shorter tensors, fewer formats. */
#include "cuda.h"

#include <memory>

static float random_float(double size)
{
    return (float)(((double)(mt_random() >> 40) / 8388608.0 - 1.0) * size);
}

/* One tensor on both sides, with every array that an optimizer or a storage may need. */
struct Both {
    Buffer     master, param, grad, m, v, v_max, extra;
    mpt_tensor host, device;

    Both(size_t n, mpt_format param_format, mpt_format grad_format, mpt_storage storage, mpt_moments moments,
         size_t off)
        : master(n * 4, off * 4), param(n * element_size(param_format), off * element_size(param_format)),
          grad(n * element_size(grad_format), off * element_size(grad_format)),
          m(n * (moments == MPT_MOMENTS_F32 ? 4 : 2), off * (moments == MPT_MOMENTS_F32 ? 4 : 2)),
          v(n * (moments == MPT_MOMENTS_F32 ? 4 : 2), off * (moments == MPT_MOMENTS_F32 ? 4 : 2)),
          v_max(n * (moments == MPT_MOMENTS_F32 ? 4 : 2), off * (moments == MPT_MOMENTS_F32 ? 4 : 2)),
          extra(n * 2, off * 2)
    {
        memset(&host, 0, sizeof host);
        host.name = "t";
        host.n = n;
        host.param_format = param_format;
        host.grad_format = grad_format;
        host.storage = storage;
        host.moments = moments;
        host.seed = 42;
        device = host;
        const bool has_master = storage == MPT_STORE_MASTER;
        /* moments: small positive numbers in either format; a write to one that is not needed shows */
        for (Buffer *a : {&master, &m, &v, &v_max, &extra, &param})
            memset(a->host(), a == &m || a == &v || a == &v_max ? 0x3b : 0, a->size);
        point(&host, has_master, false);
        point(&device, has_master, true);
        std::vector<float> w(n);
        for (float &x : w) x = random_float(0.5);
        CHECK_EQ_I(mpt_weights_set(&host, w.data()), MPT_OK);
        for (Buffer *a : {&master, &param, &grad, &m, &v, &v_max, &extra}) a->upload();
    }

    void point(mpt_tensor *t, bool has_master, bool on_device)
    {
        auto at = [&](Buffer &a) { return on_device ? a.device() : a.host(); };
        t->master = has_master ? (float *)at(master) : nullptr;
        t->param = at(param);
        t->grad = at(grad);
        t->m = at(m);
        t->v = at(v);
        t->v_max = at(v_max);
        t->extra = has_master ? nullptr : at(extra);
    }
    void gradients(float scale, bool overflow)
    {
        std::vector<float> g(host.n);
        for (float &x : g) x = random_float(1e-2) * scale;
        if (overflow && host.n) g[host.n / 2] = INFINITY;
        CHECK_EQ_I(mpt_convert_n(host.grad_format, grad.host(), MPT_F32, g.data(), host.n, NULL, NULL),
                   MPT_OK);
        grad.upload();
    }
    bool same() const
    {
        return master.same() && param.same() && grad.same() && m.same() && v.same() && v_max.same() &&
               extra.same();
    }
};

/* The calls of one optimizer on both sides; on the device, lr and t are in the state. */
struct Optimizer {
    const char *name;
    mpt_status (*host)(void *o, mpt_step *step, const mpt_tensor *tensors, size_t count);
    mpt_status (*device)(const mpt_cuda_list *list, mpt_cuda_state *state, const void *o);
    void       *o;
    float       lr;
    uint64_t   *t;
    uint32_t   *options;
};

#define X_0(name)
#define X_1(name)                                                                                        \
    static mpt_status host_##name(void *o, mpt_step *step, const mpt_tensor *tensors, size_t count)      \
    {                                                                                                    \
        return mpt_##name##_step((mpt_##name *)o, step, tensors, count);                                 \
    }                                                                                                    \
    static mpt_status device_##name(const mpt_cuda_list *list, mpt_cuda_state *state, const void *o)     \
    {                                                                                                    \
        mpt_##name own = *(const mpt_##name *)o;                                                         \
        own.lr = 0.7f;                  /* not read, nor is t: the device's count */                      \
        own.t = 12345;                                                                                   \
        return mpt_cuda_##name##_step(gpu.cuda, list, state, &own, gpu.stream);         \
    }
#define X(id, name, hyper, needs, passes, device) X_##device(name)
MPT_OPTIMIZERS(X)
#undef X

static void train(const Optimizer &o, mpt_format param, mpt_format grad, mpt_storage storage,
                  mpt_moments moments)
{
    static const size_t sizes[] = {1, 0, 7, 300, 2049, 16385, 32769};
    std::vector<std::unique_ptr<Both>> tensors;
    std::vector<mpt_tensor>            host, device;
    mpt_scaler      scaler;
    mpt_step        step;
    mpt_cuda_list  *list = nullptr;
    mpt_cuda_state *state = nullptr, got;
    memset(&step, 0, sizeof step);
    memset(&got, 0, sizeof got);
    static const float lr_times[] = {0.0f, 0.3f, 2.0f}, decay_times[] = {0.0f, 0.0f, 3.0f, 0.5f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (gpu.small && sizes[i] > 300)
            continue;
        tensors.push_back(std::make_unique<Both>(sizes[i], param, grad, storage, moments, i % 3));
        for (mpt_tensor *t : {&tensors.back()->host, &tensors.back()->device}) {        /* parameter groups */
            t->lr_times = lr_times[i % 3];
            t->decay_times = decay_times[i % 4];
            t->no_decay = i % 5 == 4;
            t->rounded = param == MPT_F32 && i % 2 ? MPT_BF16 : (mpt_format)0;
        }
        host.push_back(tensors.back()->host);
        device.push_back(tensors.back()->device);
    }
    CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
    OK(mpt_cuda_list_create(gpu.cuda, &list, device.data(), device.size()));
    OK(mpt_cuda_state_create(gpu.cuda, &state, &scaler, o.lr));
    got.scaler = scaler;
    got.lr = o.lr;
    got.t = *o.t = storage % 2 ? ((uint64_t)1 << 32) - 2 : 0u;
    OK(mpt_cuda_state_set(gpu.cuda, state, &got, gpu.stream));
    *o.options = (*o.options & MPT_STEP_AMSGRAD) | (storage % 2 ? MPT_STEP_ZERO_GRADS : 0u) |
                 (param == MPT_BF16 ? MPT_STEP_MAXIMIZE : 0u);
    for (int k = 0; k < 4; k++) {
        for (auto &b : tensors) b->gradients(scaler.scale, k == 2);     /* the third step is skipped */
        (void)mpt_scaler_scale(&scaler, 1.0f);
        CHECK_EQ_I(mpt_check(&scaler, &step, host.data(), host.size(), NULL), MPT_OK);
        CHECK_EQ_I(mpt_clip(&step, 0.5f), MPT_OK);
        CHECK_EQ_I(o.host(o.o, &step, host.data(), host.size()), MPT_OK);
        (void)mpt_scaler_update(&scaler);
        OK(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, gpu.stream));
        OK(mpt_cuda_check(gpu.cuda, list, state, gpu.stream));
        OK(mpt_cuda_clip(gpu.cuda, state, 0.5f, gpu.stream));
        OK(o.device(list, state, o.o));
        OK(mpt_cuda_scaler_update(gpu.cuda, state, gpu.stream));
        CU(cudaMemcpy(&got, state, sizeof got, cudaMemcpyDeviceToHost));
        CHECK(!memcmp(&got.scaler, &scaler, sizeof scaler));
        CHECK(!memcmp(&got.step, &step, sizeof step));
        CHECK_EQ_U(got.t, *o.t);
        CHECK_EQ_U(got.misuse, 0u);
        for (auto &b : tensors) CHECK(b->same());
    }
    CHECK_EQ_U(got.t, *o.t);
    CHECK_EQ_I(mpt_grads_zero(host.data(), host.size()), MPT_OK);
    OK(mpt_cuda_grads_zero(gpu.cuda, list, gpu.stream));
    CU(cudaStreamSynchronize(gpu.stream));
    for (auto &b : tensors) CHECK(b->same());
    mpt_cuda_list_destroy(list);
    mpt_cuda_state_destroy(state);
}

static void every_storage(const Optimizer &o)
{
    static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};
    for (int storage = 0; storage < (int)MPT_STORAGE_COUNT; storage++)
        for (int moments = 0; moments < (int)MPT_MOMENTS_COUNT; moments++)
            for (mpt_format param : formats) {
                const mpt_format grad = param == MPT_F32 ? MPT_F16 : moments ? MPT_BF16 : param;
                if (storage != MPT_STORE_MASTER && param == MPT_F32)
                    continue;
                if (storage == MPT_STORE_SPLIT && param != MPT_BF16)
                    continue;
                if (gpu.small && (param != MPT_BF16 || moments != storage % 2))
                    continue;
                mt_context(o.name, mpt_storage_name((mpt_storage)storage));
                train(o, param, grad, (mpt_storage)storage, (mpt_moments)moments);
            }
}

TEST(sgd)
{
    mpt_sgd         plain = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_sgd         nesterov = {0.05f, 0.9f, 0.01f, 1u, 0.0f, 0u, 0u};
    const Optimizer a = {"sgd", host_sgd, device_sgd, &plain, plain.lr, &plain.t, &plain.options};
    const Optimizer b = {"sgd", host_sgd, device_sgd, &nesterov, nesterov.lr, &nesterov.t, &nesterov.options};
    every_storage(a);
    every_storage(b);
}

TEST(adamw)
{
    mpt_adamw       o = mpt_adamw_defaults();
    const Optimizer a = {"adamw", host_adamw, device_adamw, &o, o.lr, &o.t, &o.options};
    every_storage(a);
    o.weight_decay = 0.1f;
    *a.options = MPT_STEP_AMSGRAD;
    train(a, MPT_F16, MPT_F16, MPT_STORE_MASTER, MPT_MOMENTS_F32);
    train(a, MPT_BF16, MPT_F16, MPT_STORE_SPLIT, MPT_MOMENTS_BF16);
}

TEST(adam)
{
    mpt_adam o = mpt_adam_defaults();
    o.weight_decay = 0.1f;
    const Optimizer a = {"adam", host_adam, device_adam, &o, o.lr, &o.t, &o.options};
    every_storage(a);
}

TEST(lamb)
{
    mpt_lamb        o = mpt_lamb_defaults();
    const Optimizer a = {"lamb", host_lamb, device_lamb, &o, o.lr, &o.t, &o.options};
    every_storage(a);
}

TEST(lion)
{
    mpt_lion o = mpt_lion_defaults();
    o.weight_decay = 0.1f;
    const Optimizer a = {"lion", host_lion, device_lion, &o, o.lr, &o.t, &o.options};
    every_storage(a);
}

/* Missing arrays, shared gradients, parts, and hyperparameters out of range: refused, nothing changed. */
TEST(refusals)
{
    Both            b(100, MPT_BF16, MPT_BF16, MPT_STORE_KAHAN, MPT_MOMENTS_F32, 0);
    mpt_tensor      lacking = b.device;
    mpt_lamb        lamb = mpt_lamb_defaults();
    mpt_lion        lion = mpt_lion_defaults();
    mpt_scaler      scaler;
    mpt_cuda_list  *list = nullptr, *whole = nullptr;
    mpt_cuda_state *state = nullptr;
    lacking.extra = nullptr;
    {
        const mpt_tensor twice[2] = {b.device, b.device};
        mpt_cuda_list   *shared = nullptr;
        lion.options = MPT_STEP_ZERO_GRADS;
        CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
        OK(mpt_cuda_list_create(gpu.cuda, &shared, twice, 2));
        OK(mpt_cuda_state_create(gpu.cuda, &state, &scaler, 0.1f));
        CHECK_EQ_I(mpt_cuda_lion_step(gpu.cuda, shared, state, &lion, gpu.stream), MPT_E_ARG);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "share a gradient") != NULL);
        OK(mpt_cuda_check(gpu.cuda, shared, state, gpu.stream));
        CHECK_EQ_I(mpt_cuda_unscale(gpu.cuda, shared, state, gpu.stream), MPT_E_ARG);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "divided twice") != NULL);
        CHECK_EQ_I(mpt_cuda_grads_zero(gpu.cuda, NULL, gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(mpt_cuda_grads_zero(NULL, shared, gpu.stream), MPT_E_ARG);
        mpt_cuda_list_destroy(shared);
        mpt_cuda_state_destroy(state);
        lion.options = 0u;
    }
    CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
    for (void **p : {&lacking.param, &lacking.extra, (void **)&lacking.v_max}) {
        lacking = b.device;
        *p = (char *)*p + 1;
        CHECK_EQ_I(mpt_cuda_list_create(gpu.cuda, &list, &lacking, 1), MPT_E_ARG);
    }
    lacking = b.device;
    lacking.extra = nullptr;
    OK(mpt_cuda_list_create(gpu.cuda, &list, &lacking, 1));
    OK(mpt_cuda_list_create(gpu.cuda, &whole, &b.device, 1));
    OK(mpt_cuda_state_create(gpu.cuda, &state, &scaler, 0.1f));
    CHECK_EQ_I(mpt_cuda_lamb_step(gpu.cuda, list, state, &lamb, gpu.stream), MPT_E_ARG);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "mpt_tensors_validate") != NULL);
    CHECK_EQ_I(mpt_cuda_lion_step(gpu.cuda, list, state, &lion, gpu.stream), MPT_E_ARG);
    lamb.eps = 0.0f;
    lion.beta2 = 1.0f;
    CHECK_EQ_I(mpt_cuda_lamb_step(gpu.cuda, whole, state, &lamb, gpu.stream), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_lion_step(gpu.cuda, whole, state, &lion, gpu.stream), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_lamb_step(gpu.cuda, whole, state, NULL, gpu.stream), MPT_E_ARG);
    lamb = mpt_lamb_defaults();
    lamb.options = MPT_STEP_AMSGRAD;
    CHECK_EQ_I(mpt_cuda_lamb_step(gpu.cuda, whole, state, &lamb, gpu.stream), MPT_E_ARG);
    lamb.options = 0u;
    mpt_cuda_list_destroy(list);
    const mpt_tensor twice[2] = {b.device, b.device};
    for (int count = 1; count < 3; count++) {
        mpt_tensor other[2] = {twice[0], twice[1]};
        if (count == 1) other[0].n = 99;
        OK(mpt_cuda_list_create(gpu.cuda, &list, other, (size_t)count));
        CHECK_EQ_I(mpt_cuda_accumulate(gpu.cuda, list, whole, gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(mpt_cuda_accumulate(gpu.cuda, whole, list, gpu.stream), MPT_E_ARG);
        mpt_cuda_list_destroy(list);
    }
    lacking = b.device;
    lacking.whole = 101;
    OK(mpt_cuda_list_create(gpu.cuda, &list, &lacking, 1));
    CHECK_EQ_I(mpt_cuda_lamb_step(gpu.cuda, list, state, &lamb, gpu.stream), MPT_E_ARG);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "mpt_tensors_validate") != NULL);
    lamb.options = MPT_STEP_ZERO_GRADS;
    OK(mpt_cuda_lamb_step(gpu.cuda, whole, state, &lamb, gpu.stream));      /* without a check: misuse */
    CU(cudaStreamSynchronize(gpu.stream));
    mpt_cuda_state got;
    CU(cudaMemcpy((void *)&got, state, sizeof got, cudaMemcpyDeviceToHost));
    CHECK_EQ_U(got.misuse, 1u);
    CHECK_EQ_U(got.t, 0u);
    CHECK(b.same());
    mpt_cuda_list_destroy(list);
    mpt_cuda_list_destroy(whole);
    mpt_cuda_state_destroy(state);
}

/* A reduction over one rank: the sum is its own values. */
static int alone(void *, double *, size_t) { return 0; }
static int alone_on_device(void *, double *, size_t, mpt_stream) { return 0; }

/* Two optimizers in one step, each over a part of the list that was checked. A third one, after the one
 * without MPT_STEP_STAYS_OPEN, is refused and changes nothing. */
TEST(two_lists_in_one_step)
{
    Both       a(3000, MPT_F16, MPT_F16, MPT_STORE_MASTER, MPT_MOMENTS_F32, 0);
    Both       b(700, MPT_BF16, MPT_F16, MPT_STORE_STOCHASTIC, MPT_MOMENTS_BF16, 1);
    mpt_tensor host[2] = {a.host, b.host}, device[2] = {a.device, b.device};
    mpt_adamw  adamw = mpt_adamw_defaults();
    mpt_lion   lion = mpt_lion_defaults();
    mpt_scaler scaler;
    mpt_step   step;
    double     sums[2];
    mpt_cuda_list  *all = nullptr, *first = nullptr, *second = nullptr;
    mpt_cuda_state *state = nullptr, got;
    memset(&step, 0, sizeof step);
    b.host.whole = b.device.whole = 40000;          /* a part; its random bits depend on its place */
    b.host.first = b.device.first = 32768;
    a.host.whole = a.device.whole = 3000;
    a.host.sums = &sums[0], b.host.sums = &sums[1];
    host[0] = a.host, host[1] = b.host;
    device[0] = a.device, device[1] = b.device;
    adamw.lr = lion.lr = 0.01f;
    adamw.options = MPT_STEP_STAYS_OPEN | MPT_STEP_ZERO_GRADS;
    CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
    OK(mpt_cuda_list_create(gpu.cuda, &all, device, 2));
    OK(mpt_cuda_list_create(gpu.cuda, &first, device, 1));
    OK(mpt_cuda_list_create(gpu.cuda, &second, device + 1, 1));
    OK(mpt_cuda_state_create(gpu.cuda, &state, &scaler, 0.01f));
    for (int k = 0; k < 4; k++) {
        a.gradients(scaler.scale, false);
        b.gradients(scaler.scale, k == 2);
        (void)mpt_scaler_scale(&scaler, 1.0f);
        CHECK_EQ_I(mpt_check(&scaler, &step, host, 2, NULL), MPT_OK);
        CHECK_EQ_I(mpt_step_combine(&scaler, &step, host, 2, alone, NULL), MPT_OK);
        CHECK_EQ_I(mpt_adamw_step(&adamw, &step, host, 1), MPT_OK);
        CHECK_EQ_I(mpt_lion_step(&lion, &step, host + 1, 1), MPT_OK);
        (void)mpt_scaler_update(&scaler);
        OK(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, gpu.stream));
        OK(mpt_cuda_check(gpu.cuda, all, state, gpu.stream));
        OK(mpt_cuda_combine(gpu.cuda, all, state, alone_on_device, NULL, gpu.stream));
        OK(mpt_cuda_adamw_step(gpu.cuda, first, state, &adamw, gpu.stream));
        OK(mpt_cuda_lion_step(gpu.cuda, second, state, &lion, gpu.stream));
        CHECK_EQ_I(mpt_cuda_adamw_step(gpu.cuda, first, state, &adamw, gpu.stream), MPT_E_ORDER);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "MPT_STEP_STAYS_OPEN") != NULL);
        OK(mpt_cuda_scaler_update(gpu.cuda, state, gpu.stream));
        CU(cudaMemcpy(&got, state, sizeof got, cudaMemcpyDeviceToHost));
        CHECK(!memcmp(&got.scaler, &scaler, sizeof scaler) && !memcmp(&got.step, &step, sizeof step));
        CHECK(got.t == adamw.t && got.t == lion.t && !got.misuse);
        CHECK(a.same() && b.same());
    }
    CHECK_EQ_U(got.t, 3u);
    mpt_cuda_list_destroy(all);
    mpt_cuda_list_destroy(first);
    mpt_cuda_list_destroy(second);
    mpt_cuda_state_destroy(state);
}

static void run_all(void)
{
    RUN(sgd);
    RUN(adamw);
    RUN(adam);
    RUN(lamb);
    RUN(lion);
    RUN(two_lists_in_one_step);
    RUN(refusals);
}

int main(int argc, char **argv) { return cuda_main(argc, argv, run_all); }
