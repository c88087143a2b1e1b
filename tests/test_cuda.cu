/* test_cuda.cu -- tests of mpt_cuda.h. Every kernel is compared with the CPU function of the same name, which
 * runs on a copy: all bytes must be equal, including those around the arrays.
 *
 * On a machine with a GPU:
 *
 *     cc -O2 -I. -c tests/impl.c
 *     nvcc -std=c++17 -O2 -I. tests/test_cuda.cu tests/impl_cuda.cu impl.o -lcublasLt -o test_cuda
 *     ./test_cuda [--long] [part of a name]
 *
 * Anywhere, against the CPU emulation of tests/emu:
 *
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. tests/test_cuda.cu tests/impl_cuda.cu \
 *         -x none impl.o
 *
 * --long converts all 2^32 floats (a GPU does so without it) and checks a tensor of more than 2^31 elements,
 * on a GPU 2^32. --small is for ThreadSanitizer and the like: fewer sizes and steps. The host reads and
 * writes device memory by cudaMemcpy only, so that a test that passes here is right on a GPU, too; tests of
 * what only the emulation shows (counters, planned failures, random orders) stand in #ifdef MPT_CUDA_EMU.
 *
 * Without a GPU it says so and skips all: exit status 0, or 1 if MPT_CI=1 without MPT_EXPECT_NO_GPU=1. */
#include "cuda.h"

#include <deque>
#include <utility>

#define COUNT_OF(a) (sizeof(a) / sizeof(a)[0])

// helpers: calls, machines, buffers ---------------------------------------------------------------
/* cudaMemcpy waits for gpu.stream, which synchronizes with the default stream. */
template <class T> static T download(const T *device)
{
    T value;
    CU(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

/* Machines that run the same kernels: results must not depend on them. A real GPU is one machine only. */
struct Variant { int sms; unsigned seed, resident; };
#ifdef MPT_CUDA_EMU
static const Variant variants[] = {{1, 0, 1}, {4, 7, 1}, {13, 8, 3}};

/* While an object of this type lives, gpu.cuda is a context of such a machine. */
struct Machine {
    mpt_emu::Controls saved = mpt_emu::controls();
    mpt_cuda *outer = gpu.cuda;
    explicit Machine(const Variant &v)
    {
        mpt_emu::controls().sms = sms_here(v.sms);
        mpt_emu::controls().resident = v.resident;
        mpt_emu::controls().shuffle = saved.shuffle || v.seed;
        if (v.seed) mpt_emu::seed(v.seed);
        CHECK_EQ_I(mpt_cuda_create(&gpu.cuda, 0), MPT_OK);
    }
    ~Machine()
    {
        mpt_cuda_destroy(gpu.cuda);
        gpu.cuda = outer;
        mpt_emu::controls() = saved;
    }
};
#else
static const Variant variants[] = {{0, 0, 0}};
struct Machine {
    explicit Machine(const Variant &) {}
    ~Machine() {}
};
#endif

// helpers: numbers --------------------------------------------------------------------------------
static void put_code(void *array, mpt_format f, size_t i, uint32_t code)
{
    mt_put((char *)array + element_size(f) * i, element_size(f), code);
}

static uint32_t get_code(const void *array, mpt_format f, size_t i)
{
    return (uint32_t)mt_get((const char *)array + element_size(f) * i, element_size(f));
}

static uint32_t code_of(mpt_format f, float x)
{
    return f == MPT_F32   ? mpti_f32_bits(x)
           : f == MPT_F16 ? mpt_f16_from_f32(x).bits
                          : mpt_bf16_from_f32(x).bits;
}

static void put(void *array, mpt_format f, size_t i, float x) { put_code(array, f, i, code_of(f, x)); }

static bool is_nan_code(mpt_format f, uint32_t code)
{
    return f == MPT_F32   ? (code & 0x7fffffffu) > 0x7f800000u
           : f == MPT_F16 ? (code & 0x7fffu) > 0x7c00u
                          : (code & 0x7fffu) > 0x7f80u;
}

/* A finite number between 2^low and 2^high in magnitude, or now and then a zero or a subnormal float. */
static float random_finite(int low, int high)
{
    const uint64_t r = mt_random();
    const uint32_t sign = (uint32_t)(r >> 63) << 31, mantissa = (uint32_t)r & 0x7fffffu;
    const unsigned e = 127u + (unsigned)low + (unsigned)((r >> 32) % (uint64_t)(high - low));
    switch ((r >> 24) % 32u) {
    case 0:  return mpti_f32_make(sign);
    case 1:  return mpti_f32_make(sign | mantissa);
    default: return mpti_f32_make(sign | e << 23 | mantissa);
    }
}

// conversions -------------------------------------------------------------------------------------
typedef struct Conversion {
    const char *name;
    mpt_format  to, from;
} Conversion;

static const Conversion conversions[] = {{"f16 from f32", MPT_F16, MPT_F32},
                                         {"f32 from f16", MPT_F32, MPT_F16},
                                         {"bf16 from f32", MPT_BF16, MPT_F32},
                                         {"f32 from bf16", MPT_F32, MPT_BF16}};

static mpt_status convert_host(const Conversion *c, void *dst, const void *src, size_t n)
{
    if (c->to == MPT_F16) return mpt_f16_from_f32_n((mpt_f16 *)dst, (const float *)src, n);
    if (c->to == MPT_BF16) return mpt_bf16_from_f32_n((mpt_bf16 *)dst, (const float *)src, n);
    if (c->from == MPT_F16) return mpt_f32_from_f16_n((float *)dst, (const mpt_f16 *)src, n);
    return mpt_f32_from_bf16_n((float *)dst, (const mpt_bf16 *)src, n);
}

static mpt_status convert_device(const Conversion *c, void *dst, const void *src, size_t n)
{
    return mpt_cuda_convert_n(gpu.cuda, c->to, dst, c->from, src, n, NULL, NULL, gpu.stream);
}

/* Convert these codes on both sides, in arrays shifted by so many elements. */
static void convert_both(const Conversion *c, const std::vector<uint32_t> &codes, size_t src_shift,
                         size_t dst_shift)
{
    const size_t n = codes.size(), from = element_size(c->from), to = element_size(c->to);
    Buffer       src(n * from, src_shift * from), dst(n * to, dst_shift * to);
    for (size_t i = 0; i < n; i++) put_code(src.host(), c->from, i, codes[i]);
    src.upload();
    mt_context(c->name, NULL);
    CHECK_EQ_I(convert_host(c, dst.host(), src.host(), n), MPT_OK);
    OK(convert_device(c, dst.device(), src.device(), n));
    const std::vector<unsigned char> got = dst.fetch();
    for (size_t i = 0; i < n; i++) {
        const uint32_t on_gpu = get_code(got.data() + dst.start, c->to, i);
        const uint32_t on_cpu = get_code(dst.host(), c->to, i);
        if (on_gpu != on_cpu)
            CHECK_EQ_U_AT(on_gpu, on_cpu, codes[i]);
    }
    CHECK(got == dst.bytes);            /* nothing before or behind was written */
    CHECK(src.same());
}

/* Floats that are hard to round: every exponent with the significands on, just below and just above a
 * midpoint of the 16-bit formats. Exponent 255 gives NaN payloads. */
static std::vector<uint32_t> float_patterns()
{
    static const uint32_t mantissas[] = {
        0,        1,        0xfff,    0x1000,   0x1001,   0x1fff,   0x2000,   0x2fff,   0x3000,   0x3001,
        0x7fff,   0x8000,   0x8001,   0x10000,  0x17fff,  0x18000,  0x18001,  0x3fffff, 0x400000, 0x400001,
        0x7fdfff, 0x7fe000, 0x7fefff, 0x7ff000, 0x7ff001, 0x7f7fff, 0x7f8000, 0x7fffff};
    std::vector<uint32_t> codes;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t e = 0; e < 256; e++) {
            for (uint32_t mantissa : mantissas) codes.push_back(sign << 31 | e << 23 | mantissa);
            /* where an f16 is subnormal, the midpoint's bit is higher for smaller numbers */
            for (uint32_t bit = 0; e > 95 && e < 115 && bit < 23; bit++)
                for (uint32_t off = 0; off < 3; off++)
                    codes.push_back(sign << 31 | ((e << 23 | 1u << bit) + off - 1u));
        }
    return codes;
}

TEST(convert_narrow)
{
    std::vector<uint32_t> codes = float_patterns();
    const size_t          total = gpu.small ? 20001 : 100003;
    while (codes.size() < total) codes.push_back((uint32_t)mt_random());
    for (const Variant &v : variants) {
        if (races && v.sms == 4) continue;
        const Machine machine(v);
        convert_both(&conversions[0], codes, 0, 0);
        convert_both(&conversions[2], codes, 0, 0);
    }
    convert_both(&conversions[0], codes, 1, 0);
    convert_both(&conversions[2], codes, 0, 3);
}

TEST(convert_widen)
{
    std::vector<uint32_t> codes;
    for (uint32_t code = 0; code < 65536; code += gpu.small ? 5u : 1u) codes.push_back(code);
    for (const Variant &v : variants) {
        if (races && v.sms == 4) continue;
        const Machine machine(v);
        convert_both(&conversions[1], codes, 0, 0);
        convert_both(&conversions[3], codes, 0, 0);
    }
    convert_both(&conversions[1], codes, 3, 0);
    convert_both(&conversions[3], codes, 0, 1);
}

TEST(convert_sizes)
{
    static const size_t sizes[] = {0, 1, 7, 8, 9, 2047, 2048, 2049, 16383, 16384, 16385};
    static const size_t shifts[][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 4},
                                       {4, 2}, {8, 8}, {7, 5}, {4, 8}};
    for (const Conversion &c : conversions)
        for (size_t n : sizes)
            for (const size_t *shift : shifts) {
                std::vector<uint32_t> codes;
                if (gpu.small && n > 2049)
                    continue;
                for (size_t i = 0; i < n; i++)
                    codes.push_back((uint32_t)mt_random() & (c.from == MPT_F32 ? 0xffffffffu : 0xffffu));
                convert_both(&c, codes, shift[0], shift[1]);
            }
}

/* All floats, a block of consecutive patterns at a time. */
TEST(convert_all_floats)
{
    const size_t n = (size_t)1 << (races ? 12 : 22);
#ifdef MPT_CUDA_EMU
    const bool wanted = mt.long_mode;   /* some minutes here, some seconds on a GPU */
#else
    const bool wanted = mt.long_mode || !gpu.small;
#endif
    Buffer                src(n * 4, 0), dst(n * 2, 0);
    std::vector<uint16_t> want(n), got(n);
    for (uint64_t first = 0; first < (uint64_t)1 << 32; first += wanted ? n : (uint64_t)1 << 31) {
        for (size_t i = 0; i < n; i++) put_code(src.host(), MPT_F32, i, (uint32_t)(first + i));
        src.upload();
        for (size_t k = 0; k < COUNT_OF(conversions); k += 2) {
            CHECK_EQ_I(convert_host(&conversions[k], want.data(), src.host(), n), MPT_OK);
            OK(convert_device(&conversions[k], dst.device(), src.device(), n));
            CU(cudaMemcpy(got.data(), dst.device(), n * 2, cudaMemcpyDeviceToHost));
            CHECK(got == want);
        }
    }
}

// a training run on both sides --------------------------------------------------------------------
/* A tensor to be made; shift moves every array so many elements off its alignment. */
struct Shape {
    size_t     n;
    mpt_format grad, param;
    bool       has_param;
    size_t     shift;
};

struct Twin {
    Shape  shape;
    Buffer grad, param, master, m, v;
    explicit Twin(const Shape &s)
        : shape(s), grad(s.n * element_size(s.grad), s.shift * element_size(s.grad)),
          param(s.n * element_size(s.param), s.shift * element_size(s.param)), master(4 * s.n, 4 * s.shift),
          m(4 * s.n, 4 * s.shift), v(4 * s.n, 4 * s.shift)
    {
        for (size_t i = 0; i < s.n; i++) {
            put(master.host(), MPT_F32, i, random_finite(-6, 1));
            put(m.host(), MPT_F32, i, random_finite(-12, -4));
            put(v.host(), MPT_F32, i, fabsf(random_finite(-20, -8)));
            put_code(param.host(), s.param, i, code_of(s.param, 0.0f));
        }
        for (Buffer *b : {&master, &m, &v, &param}) b->upload();
    }
    mpt_tensor tensor(bool on_device)
    {
        mpt_tensor t;
        memset(&t, 0, sizeof t);
        t.name = "twin";
        t.n = shape.n;
        t.master = (float *)(on_device ? master.device() : master.host());
        t.param = !shape.has_param ? NULL : on_device ? param.device() : param.host();
        t.grad = on_device ? grad.device() : grad.host();
        t.m = (float *)(on_device ? m.device() : m.host());
        t.v = (float *)(on_device ? v.device() : v.host());
        t.param_format = shape.param;
        t.grad_format = shape.grad;
        return t;
    }
    /* A NaN that was multiplied may have another payload, which depends on the processor. */
    bool same_grad() const
    {
        const std::vector<unsigned char> got = grad.fetch();
        for (size_t i = 0; i < shape.n; i++) {
            const uint32_t a = get_code(got.data() + grad.start, shape.grad, i);
            const uint32_t b = get_code(grad.bytes.data() + grad.start, shape.grad, i);
            if (a != b && !(is_nan_code(shape.grad, a) && is_nan_code(shape.grad, b)))
                return false;
        }
        return memcmp(got.data(), grad.bytes.data(), grad.start) == 0 &&
               memcmp(got.data() + grad.start + grad.size, grad.bytes.data() + grad.start + grad.size,
                      Buffer::behind) == 0;
    }
};

/* Everything one training run has, for the CPU functions and for the kernels. */
struct Run {
    std::deque<Twin>        twins;
    std::vector<mpt_tensor> host;
    mpt_scaler              scaler;
    mpt_step                step;
    float                   lr;
    uint32_t                misuse = 0;
    mpt_cuda_list          *list = nullptr;
    mpt_cuda_state         *state = nullptr;

    /* Interval 0: a scale that never changes. */
    Run(const std::vector<Shape> &shapes, float scale, int interval, float lr_) : lr(lr_)
    {
        mpt_scaler_config config = mpt_scaler_defaults(MPT_SCALER_PYTORCH);
        std::vector<mpt_tensor> device;
        config.init_scale = scale;
        config.interval = interval;
        if (!interval)
            config.dialect = MPT_SCALER_STATIC;
        CHECK_EQ_I(mpt_scaler_init(&scaler, &config), MPT_OK);
        memset(&step, 0, sizeof step);
        for (const Shape &s : shapes) {
            twins.emplace_back(s);
            host.push_back(twins.back().tensor(false));
            device.push_back(twins.back().tensor(true));
        }
        OK(mpt_cuda_list_create(gpu.cuda, &list, device.data(), device.size()));
        OK(mpt_cuda_state_create(gpu.cuda, &state, &scaler, lr));
        gradients(-8, 4);
    }
    ~Run()
    {
        mpt_cuda_list_destroy(list);
        mpt_cuda_state_destroy(state);
    }
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    void gradients(int low, int high)
    {
        for (Twin &t : twins) {
            for (size_t i = 0; i < t.shape.n; i++)
                put(t.grad.host(), t.shape.grad, i, random_finite(low, high));
            t.grad.upload();
        }
    }
    void plant(size_t tensor, size_t i, uint32_t code)
    {
        put_code(twins[tensor].grad.host(), twins[tensor].shape.grad, i, code);
        twins[tensor].grad.upload();
    }
    void scale()
    {
        (void)mpt_scaler_scale(&scaler, 1.0f);
        OK(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, gpu.stream));
    }
    void check(bool write_back)
    {
        const size_t n = host.size();
        CHECK_EQ_I((write_back ? mpt_unscale : mpt_check)(&scaler, &step, host.data(), n, NULL), MPT_OK);
        OK((write_back ? mpt_cuda_unscale : mpt_cuda_check)(gpu.cuda, list, state, gpu.stream));
    }
    void clip(float max_norm)
    {
        CHECK_EQ_I(mpt_clip(&step, max_norm), MPT_OK);
        OK(mpt_cuda_clip(gpu.cuda, state, max_norm, gpu.stream));
    }
    void update()
    {
        CHECK_EQ_I(mpt_scaler_update(&scaler), MPT_OK);
        OK(mpt_cuda_scaler_update(gpu.cuda, state, gpu.stream));
    }
    /* The state in device memory must equal the CPU's, byte for byte. */
    void compare_state(uint64_t t)
    {
        const mpt_cuda_state got = download(state);
        CHECK(memcmp(&got.scaler, &scaler, sizeof scaler) == 0);
        CHECK(memcmp(&got.step, &step, sizeof step) == 0);
        CHECK_EQ_U(got.t, t);
        CHECK(mpti_f32_bits(got.lr) == mpti_f32_bits(lr));
        CHECK_EQ_U(got.misuse, misuse);
        CHECK_EQ_U(got.blocks_done, 0);
        CHECK_EQ_U(got.chunks_taken, 0);
        CHECK_EQ_U(got.bad, 0);
    }
    void compare_grads()
    {
        for (Twin &t : twins) CHECK(step.found_inf ? t.same_grad() : t.grad.same());
    }
    void compare_weights()
    {
        for (Twin &t : twins) {
            CHECK(t.master.same());
            CHECK(t.m.same());
            CHECK(t.v.same());
            CHECK(t.param.same());
        }
    }
};

/* Formats take turns, so that any three neighbours in a list differ. */
static Shape shape_of(size_t n, size_t turn, size_t shift)
{
    static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};
    const Shape s = {n, formats[turn % 3], formats[(turn + turn / 3) % 3], turn % 4 != 3, shift};
    return s;
}

static const size_t tensor_sizes[] = {0, 1, 7, 2047, 2048, 2049, 16384, 16385, 50000};

static std::vector<Shape> list_of_all_sizes(size_t turn, size_t shift)
{
    std::vector<Shape> shapes;
    for (size_t i = 0; i < COUNT_OF(tensor_sizes); i++)
        if (!gpu.small || tensor_sizes[i] < 16384)
            shapes.push_back(shape_of(tensor_sizes[i], turn + i, shift ? shift + i : 0));
    return shapes;
}

/* More chunks than the 256 slots of the tree, and than a small grid has blocks. */
static std::vector<Shape> list_of_many(size_t count)
{
    std::vector<Shape> shapes;
    for (size_t i = 0; i < count; i++) shapes.push_back(shape_of((size_t)(mt_random() % 41u), i, i % 5));
    return shapes;
}

/* A small mixed list for the optimizer tests, which takes every path. */
static std::vector<Shape> list_mixed()
{
    std::vector<Shape> shapes;
    static const size_t sizes[] = {1, 2049, 0, 7, 16385, 9, 2047, 300};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (!races || i % 3 < 2)
            shapes.push_back(shape_of(gpu.small && sizes[i] > 3000 ? 2500 : sizes[i], i, i % 2 ? 0 : i / 2));
    return shapes;
}

// check and unscale -------------------------------------------------------------------------------
static void check_round(Run &run, bool write_back)
{
    run.scale();
    run.check(write_back);
    run.compare_state(0);
    run.compare_grads();
    run.update();
    run.compare_state(0);
}

/* Several scales over one list; the large one makes products subnormal, the small one overflows some. */
static void check_list(const std::vector<Shape> &shapes, size_t scale_count)
{
    static const float scales[] = {0x1p-3f, 1.5f, 65536.0f, 0x1p120f};
    Run run(shapes, 1.0f, 1, 0.0f);
    for (size_t i = 0; i < scale_count; i++) {
        const float    scale = scales[i];
        mpt_cuda_state state = download(run.state);
        state.scaler.scale = run.scaler.scale = scale;
        OK(mpt_cuda_state_set(gpu.cuda, run.state, &state, gpu.stream));
        run.gradients(-30, 15);
        check_round(run, false);
        check_round(run, true);         /* with the scale after growth, or after backoff */
    }
}

TEST(check_each_size)
{
    for (size_t n : tensor_sizes)
        for (size_t turn = 0; turn < 3; turn++)
            for (size_t shift = 0; shift < 2; shift++) {
                if (gpu.small && n > 2049)
                    continue;
                Run run(std::vector<Shape>(1, shape_of(n, turn, shift)), 1024.0f, 2000, 0.0f);
                check_round(run, false);
                check_round(run, true);
                CHECK_EQ_U(run.scaler.skipped, 0);
            }
}

TEST(check_lists)
{
    for (const Variant &v : variants) {
        const Machine machine(v);
        check_list(std::vector<Shape>(), 4);
        check_list(list_of_all_sizes(0, 0), races ? 1 : 4);
        check_list(list_of_all_sizes(1, 1), races ? 1 : 4);
        if (!gpu.small || v.sms <= 1)
            check_list(list_of_many(gpu.small ? 12 : 600), gpu.small ? 1 : 2);
    }
}

/* One long tensor that alone has more chunks than the 256 slots. */
TEST(check_long_tensor)
{
    const size_t n = gpu.small ? 40000 : (size_t)16384 * 270 + 77;
    for (size_t turn = 1; turn < 3; turn++)
        for (const Variant &v : variants) {
            if (v.sms == (turn == 1 ? 13 : 1)) continue;        /* each format on two of the three */
            const Machine machine(v);
            Run           run(std::vector<Shape>(1, shape_of(n, turn, 0)), 1024.0f, 2000, 0.0f);
            check_round(run, false);
            if (v.sms != 4)
                continue;
            run.plant(0, n - 1, code_of(run.twins[0].shape.grad, HUGE_VALF));
            check_round(run, false);
            CHECK_EQ_U(run.step.found_inf, 1);
        }
}

/* Gradients of every format are added to those of every format; sums overflow, and Inf is added to Inf. */
TEST(accumulate)
{
    for (const Variant &v : variants) {
        const Machine machine(v);
        for (size_t turn = 0; turn < 3; turn++) {
            Run sum(list_of_all_sizes(0, turn % 2), 1.0f, 1, 0.0f);
            Run part(list_of_all_sizes(turn, 0), 1.0f, 1, 0.0f);
            for (int k = 0; k < 3; k++) {
                part.gradients(-30, 15);
                part.plant(3, 5, code_of(part.twins[3].shape.grad, HUGE_VALF));
                CHECK_EQ_I(mpt_accumulate(sum.host.data(), part.host.data(), sum.host.size()), MPT_OK);
                OK(mpt_cuda_accumulate(gpu.cuda, sum.list, part.list, gpu.stream));
                CU(cudaStreamSynchronize(gpu.stream));
                for (Twin &t : sum.twins) CHECK(t.same_grad());
                part.compare_grads();
            }
        }
    }
    Run a(list_of_all_sizes(0, 0), 1.0f, 1, 0.0f), b(list_mixed(), 1.0f, 1, 0.0f);
    Run one(std::vector<Shape>(1, shape_of(9, 0, 0)), 1.0f, 1, 0.0f);
    Run other(std::vector<Shape>(1, shape_of(7, 0, 0)), 1.0f, 1, 0.0f);
    STATUS(mpt_cuda_accumulate(gpu.cuda, one.list, other.list, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_accumulate(gpu.cuda, a.list, b.list, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_accumulate(gpu.cuda, a.list, NULL, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_accumulate(gpu.cuda, NULL, b.list, gpu.stream), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_accumulate(NULL, a.list, a.list, gpu.stream), MPT_E_ARG);
    for (Twin &t : a.twins) CHECK(t.grad.same());
}

/* Inf, -Inf, a quiet and a signaling NaN, at the ends, in the middle and at a chunk's edges. */
static void plant_everywhere(Run &run, size_t tensor, bool write_back)
{
    static const uint32_t codes[3][4] = {{0x7f800000u, 0xff800000u, 0x7fc00001u, 0x7f800001u},
                                         {0x7c00u, 0xfc00u, 0x7e01u, 0x7c01u},
                                         {0x7f80u, 0xff80u, 0x7fc1u, 0x7f81u}};
    const Shape  s = run.twins[tensor].shape;
    const size_t row = s.grad == MPT_F32 ? 0 : s.grad == MPT_F16 ? 1 : 2;
    const size_t at[] = {0, s.n / 2, s.n - 1, 16383, 16384};
    for (size_t i : at)
        for (uint32_t code : codes[row]) {
            if (i >= s.n || (gpu.small && (i ^ code) % 2) || (races && i))
                continue;
            run.gradients(-8, 4);
            run.plant(tensor, i, code);
            check_round(run, write_back);
            CHECK_EQ_U(run.step.found_inf, 1);
            CHECK(mpti_f64_bits(run.step.norm) == (uint64_t)0x7ff << 52);
        }
    run.gradients(-8, 4);
    check_round(run, write_back);       /* and the next check is good again */
    CHECK_EQ_U(run.step.found_inf, 0);
}

TEST(check_bad_values)
{
    std::vector<Shape> shapes;
    static const size_t sizes[] = {2049, 1, 9, 16385};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        shapes.push_back(shape_of(gpu.small && sizes[i] > 3000 ? 2100 : sizes[i], i, i % 2));
    Run run(shapes, 1024.0f, 0, 0.0f);
    for (size_t tensor = 0; tensor < shapes.size(); tensor++)
        for (int write_back = 0; write_back < 2; write_back++)
            plant_everywhere(run, tensor, write_back != 0);
}

/* A scale below 1 makes Inf of a finite gradient: in float, or only where it is written back to f16. */
TEST(check_small_scale)
{
    Run f32(std::vector<Shape>(1, shape_of(2049, 0, 0)), 0x1p-10f, 2000, 0.0f);
    f32.plant(0, 2048, mpti_f32_bits(1e37f));
    check_round(f32, false);
    CHECK_EQ_U(f32.step.found_inf, 1);

    Run f16(std::vector<Shape>(1, shape_of(2049, 1, 0)), 0.25f, 2000, 0.0f);
    f16.plant(0, 2048, mpt_f16_from_f32(60000.0f).bits);
    check_round(f16, false);
    CHECK_EQ_U(f16.step.found_inf, 0);
    check_round(f16, true);
    CHECK_EQ_U(f16.step.found_inf, 1);

    /* squares out of the range of floats, in one chunk of two; then the only ones beside zeros */
    Run huge(std::vector<Shape>(1, shape_of(16385, 0, 0)), 2.0f, 2000, 0.0f);
    for (float x : {1e30f, 1e-30f}) {
        huge.plant(0, 16384, mpti_f32_bits(x));
        check_round(huge, false);
        memset(huge.twins[0].grad.host(), 0, 4 * 16384);
        huge.twins[0].grad.upload();
        check_round(huge, true);
        CHECK(huge.step.norm > 0.4 * (double)x && huge.step.norm < 0.6 * (double)x);
    }
}

/* One tensor with more elements than an int can count, on a GPU more than 32 bits can. The values are known
 * ones, because the host has no room for a copy. */
TEST(long_tensors)
{
#ifdef MPT_CUDA_EMU
    const size_t    most = (size_t)1 << 31;
#else
    const size_t    most = (size_t)1 << 32;
#endif
    const size_t    n = (mt.long_mode ? most : 2000) + 9;
    uint8_t        *low = NULL, last[2] = {1u, 1u};
    const mpt_f16   one = mpt_f16_from_f32(1.0f), inf = mpt_f16_from_f32(HUGE_VALF);
    mpt_f16        *grad = NULL;
    mpt_cuda_list  *list = NULL;
    mpt_cuda_state *state = NULL;
    mpt_scaler      scaler;
    mpt_tensor      t;
    CU(cudaMalloc((void **)&grad, n * 2));
    CU(cudaMemset(grad, 0, n * 2));
    CU(cudaMemcpy(grad + n - 1, &one, 2, cudaMemcpyHostToDevice));
    memset(&t, 0, sizeof t);
    t.n = n;
    t.grad = grad;
    t.grad_format = MPT_F16;
    CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
    scaler.scale = 1.0f;
    OK(mpt_cuda_list_create(gpu.cuda, &list, &t, 1));
    OK(mpt_cuda_state_create(gpu.cuda, &state, &scaler, 0.0f));
    OK(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, gpu.stream));
    OK(mpt_cuda_check(gpu.cuda, list, state, gpu.stream));
    OK(mpt_cuda_scaler_update(gpu.cuda, state, gpu.stream));
    CHECK(download(state).step.sumsq == 1.0 && download(state).step.found_inf == 0);
    CU(cudaMemcpy(grad + n - 1, &inf, 2, cudaMemcpyHostToDevice));
    OK(mpt_cuda_check(gpu.cuda, list, state, gpu.stream));
    CHECK_EQ_U(download(state).step.found_inf, 1);
    CHECK_EQ_U(download(state).step.bad_index, n - 1);
    mpt_cuda_list_destroy(list);
    mpt_cuda_state_destroy(state);

    CU(cudaMemcpy(grad + n - 1, &one, 2, cudaMemcpyHostToDevice));
    CU(cudaMalloc((void **)&low, n));
    OK(mpt_cuda_convert_n(gpu.cuda, MPT_E4M3, low, MPT_F16, grad, n, NULL, NULL, gpu.stream));
    CU(cudaMemcpy(last, low + n - 2, 2, cudaMemcpyDeviceToHost));
    CHECK_EQ_U(last[0], 0);
    CHECK_EQ_U(last[1], mpt_e4m3_from_f32(1.0f).bits);
    CU(cudaFree(low));
    CU(cudaFree(grad));
}

// scale, clip, update, state ----------------------------------------------------------------------
TEST(scale_array)
{
    const size_t sizes[] = {0, 1, 255, 256, 257, 1500, 8191, 8192, gpu.small ? (size_t)9000 : (size_t)70000};
    static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};
    Run run(std::vector<Shape>(), 1000.7f, 2000, 0.0f);
    for (mpt_format f : formats)
        for (size_t n : sizes)
            for (size_t shift = 0; shift < 2; shift++) {
                const size_t bytes = element_size(f);
                Buffer       x(bytes * n, bytes * shift);
                for (size_t i = 0; i < n; i++)
                    put(x.host(), f, i, f == MPT_F16 ? random_finite(-20, 10) : random_finite(-126, 120));
                x.upload();
                for (size_t i = 0; i < n; i++) {
                    const uint32_t code = get_code(x.host(), f, i);
                    const float    v = f == MPT_F32   ? mpti_f32_make(code)
                                       : f == MPT_F16 ? mpti_f32_make(mpti_f16_decode((uint16_t)code))
                                                      : mpti_f32_make(code << 16);
                    put(x.host(), f, i, mpt_scaler_scale(&run.scaler, v));
                }
                OK(mpt_cuda_scaler_scale_n(gpu.cuda, run.state, f, x.device(), n, gpu.stream));
                (void)mpt_scaler_scale(&run.scaler, 0.0f);
                CHECK(x.same());
                run.compare_state(0);
            }
    OK(mpt_cuda_scaler_scale_n(gpu.cuda, run.state, MPT_F32, NULL, 0, NULL));  /* the default stream, too */
    run.compare_state(0);
}

TEST(clip)
{
    Run run(list_mixed(), 1024.0f, 2000, 0.0f);
    for (int bad = 0; bad < 2; bad++) {
        run.gradients(-8, 4);
        if (bad)
            run.plant(1, 2048, 0x7c00u);
        run.scale();
        run.check(false);
        const float norm = bad ? 1.0f : (float)run.step.norm;
        const float at[] = {norm, norm * 0.5f, norm * 0.999f, norm * 2.0f, 1e-30f, 0x1p-149f, 3.4e38f};
        for (float max_norm : at) {
            run.clip(max_norm);
            run.compare_state(0);
            CHECK(!bad || run.step.clip_factor == 1.0f);
        }
        run.clip(norm * 0.5f);
        CHECK(bad || run.step.clip_factor < 0.6f);
        run.update();
    }
    run.compare_state(0);
}

/* The same good and bad steps for both scalers; bad ones come in runs. */
static void scaler_trace(const mpt_scaler_config *config, int steps)
{
    Run run(std::vector<Shape>(1, shape_of(3, 1, 0)), 1024.0f, 2000, 0.0f);
    mpt_cuda_state start = download(run.state);
    unsigned bad_in_16 = 1;
    CHECK_EQ_I(mpt_scaler_init(&run.scaler, config), MPT_OK);
    start.scaler = run.scaler;
    OK(mpt_cuda_state_set(gpu.cuda, run.state, &start, gpu.stream));
    for (int i = 0; i < steps && !mt.failures; i++) {
        if (i % 50 == 0)
            bad_in_16 = (unsigned)(mt_random() % 9u);
        run.plant(0, 1, mt_random() % 16u < bad_in_16 ? 0xfc00u : 0x3c00u);
        run.scale();
        run.check(false);
        run.update();
        run.compare_state(0);
    }
    CHECK(run.scaler.skipped > 0 && run.scaler.skipped < run.scaler.updates);
}

TEST(scaler_traces)
{
    const int         steps = gpu.small ? 80 : 2000;
    mpt_scaler_config c = mpt_scaler_defaults(MPT_SCALER_PYTORCH);
    c.interval = 5;
    scaler_trace(&c, steps / 2);
    c.growth = 1.7;                     /* roundings; a scale that becomes subnormal or stops at FLT_MAX */
    c.backoff = 0.3;
    c.interval = 2;
    c.init_scale = 0x1p120f;
    scaler_trace(&c, steps / 4);
    c = mpt_scaler_defaults(MPT_SCALER_STATIC);
    scaler_trace(&c, steps / 4);
}

TEST(learning_rate)
{
    static const float rates[] = {0.0f, 1e-3f, 0x1p-149f, 3.4e38f};
    Run run(std::vector<Shape>(), 1024.0f, 2000, 0.5f);
    run.compare_state(0);
    for (float lr : rates) {
        OK(mpt_cuda_lr_set(gpu.cuda, run.state, lr, gpu.stream));
        run.lr = lr;
        run.compare_state(0);
    }
}

TEST(state_round_trip)
{
    Run            run(std::vector<Shape>(), 1024.0f, 2000, 0.5f);
    mpt_cuda_state want, got;
    unsigned char *pinned = NULL;
    memset(&want, 0, sizeof want);
    for (size_t i = 0; i < sizeof want; i++) ((unsigned char *)&want)[i] = (unsigned char)(mt_random() >> 8);
    memset(&got, 0, sizeof got);
    OK(mpt_cuda_state_set(gpu.cuda, run.state, &want, gpu.stream));
    want.blocks_done = want.chunks_taken = 0;           /* of kernels that are under way: not a run's state */
    OK(mpt_cuda_state_get(gpu.cuda, &got, run.state, gpu.stream));
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(memcmp(&got, &want, sizeof want) == 0);

    CU(cudaMallocHost((void **)&pinned, sizeof want));
    memset(pinned, 0, sizeof want);
    OK(mpt_cuda_state_get(gpu.cuda, (mpt_cuda_state *)(void *)pinned, run.state, gpu.stream));
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(memcmp(pinned, &want, sizeof want) == 0);
    CU(cudaFreeHost(pinned));
}

/* Logging without waiting: a copy of the state, read once its event has come, is of its step and no other. */
TEST(state_read_later)
{
    enum { STEPS = 5 };
    Run             run(std::vector<Shape>(), 1024.0f, 2000, 0.5f);
    mpt_cuda_state *mirror = NULL;
    cudaEvent_t     event[STEPS] = {};
    int             read = 0;
    const auto look = [&]() {
        for (; read < STEPS && cudaEventQuery(event[read]) == cudaSuccess; read++)
            CHECK(mirror[read].lr == (float)(read + 1) && mirror[read].scaler.scale == 1024.0f);
        (void)cudaGetLastError();               /* "not ready" is not an error */
    };
    CU(cudaMallocHost((void **)&mirror, STEPS * sizeof *mirror));
    for (cudaEvent_t &e : event) CU(cudaEventCreate(&e));
    for (int k = 0; k < STEPS; k++) {
        OK(mpt_cuda_lr_set(gpu.cuda, run.state, (float)(k + 1), gpu.stream));
        OK(mpt_cuda_state_get(gpu.cuda, mirror + k, run.state, gpu.stream));
        CU(cudaEventRecord(event[k], gpu.stream));
    }
    look();
#ifdef MPT_CUDA_EMU
    CHECK_EQ_I(read, mpt_emu::controls().deferred ? 0 : STEPS);
#endif
    CU(cudaStreamSynchronize(gpu.stream));
    look();
    CHECK_EQ_I(read, STEPS);
    for (cudaEvent_t e : event) CU(cudaEventDestroy(e));
    CU(cudaFreeHost(mirror));
}

// optimizers --------------------------------------------------------------------------------------
/* Either optimizer. The CPU reads lr and t here; the device has them in its state, and must ignore these. */
struct Optimizer {
    const char *name;
    bool        is_adamw;
    mpt_sgd     sgd;
    mpt_adamw   adamw;

    uint64_t t() const { return is_adamw ? adamw.t : sgd.t; }
    void     set_lr(float lr) { (is_adamw ? adamw.lr : sgd.lr) = lr; }
    mpt_status step_host(Run &run)
    {
        return is_adamw ? mpt_adamw_step(&adamw, &run.step, run.host.data(), run.host.size())
                        : mpt_sgd_step(&sgd, &run.step, run.host.data(), run.host.size());
    }
    mpt_status step_device(Run &run) const
    {
        mpt_sgd   s = sgd;
        mpt_adamw a = adamw;
        s.lr = a.lr = 99.0f;
        s.t = a.t = 12345u;
        return is_adamw ? mpt_cuda_adamw_step(gpu.cuda, run.list, run.state, &a, gpu.stream)
                        : mpt_cuda_sgd_step(gpu.cuda, run.list, run.state, &s, gpu.stream);
    }
};

/* 20 steps: checked and unscaled by turns, some clipped, a new learning rate at 10, an overflow at 7. */
static void train(Optimizer o, const std::vector<Shape> &shapes)
{
    const int steps = gpu.small ? 9 : 20;
    Run       run(shapes, 1024.0f, 4, 0.01f);
    o.set_lr(run.lr);
    mt_context(o.name, NULL);
    for (int i = 0; i < steps; i++) {
        run.gradients(-8, 8);
        if (i == 7)
            run.plant(shapes.size() - 1, shapes.back().n - 1, code_of(shapes.back().grad, -HUGE_VALF));
        if (i == 10) {
            run.lr = 0.003f;
            o.set_lr(run.lr);
            OK(mpt_cuda_lr_set(gpu.cuda, run.state, run.lr, gpu.stream));
        }
        run.scale();
        run.check(i % 2 != 0);
        if (i % 3 == 0)
            run.clip((float)(run.step.norm < 1e30 ? run.step.norm * 0.25 : 1.0));
        CHECK_EQ_I(o.step_host(run), MPT_OK);
        OK(o.step_device(run));
        run.compare_state(o.t());
        run.compare_weights();
        run.compare_grads();
        run.update();
        run.compare_state(o.t());
    }
    CHECK_EQ_U(o.t(), (uint64_t)(steps - 1));
    CHECK_EQ_U(run.scaler.skipped, 1);
}

static Optimizer sgd_of(const char *name, float momentum, float weight_decay, uint32_t nesterov)
{
    const mpt_sgd   sgd = {0.01f, momentum, weight_decay, nesterov, 0.0f, 0u, 0u};
    const Optimizer o = {name, false, sgd, mpt_adamw_defaults()};
    return o;
}

static Optimizer adamw_of(const char *name, float beta1, float beta2, float eps, float weight_decay)
{
    Optimizer o = {name, true, {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u}, mpt_adamw_defaults()};
    o.adamw.beta1 = beta1;
    o.adamw.beta2 = beta2;
    o.adamw.eps = eps;
    o.adamw.weight_decay = weight_decay;
    return o;
}

/* Each optimizer has one kernel: ThreadSanitizer needs only the first configuration. */
TEST(sgd_steps)
{
    train(sgd_of("sgd, nesterov, weight decay", 0.9f, 0.01f, 1), list_mixed());
    if (races) return;
    train(sgd_of("sgd", 0.0f, 0.0f, 0), list_mixed());
    train(sgd_of("sgd, weight decay", 0.0f, 0.1f, 0), list_mixed());
    train(sgd_of("sgd, momentum", 0.9f, 0.0f, 0), list_mixed());
}

TEST(adamw_steps)
{
    train(adamw_of("adamw", 0.9f, 0.999f, 1e-8f, 0.01f), list_mixed());
    if (races) return;
    train(adamw_of("adamw, no decay", 0.9f, 0.95f, 1e-6f, 0.0f), list_mixed());
    train(adamw_of("adamw, betas 0", 0.0f, 0.0f, 1e-8f, 0.01f), list_mixed());
}

TEST(steps_by_format)
{
    for (size_t turn = 0; turn < 9; turn += races ? 4 : 1) {
        Shape s = shape_of(gpu.small ? 2100 : 4099, turn, turn % 2);
        s.has_param = turn % 5 != 4;
        train(sgd_of("sgd, one format", 0.9f, 0.0f, 0), std::vector<Shape>(1, s));
        train(adamw_of("adamw, one format", 0.9f, 0.999f, 1e-8f, 0.01f), std::vector<Shape>(1, s));
    }
}

TEST(steps_on_any_grid)
{
    std::vector<Shape> many = list_of_many(gpu.small ? 5 : 40);
    many.push_back(shape_of(5, 0, 0));  /* the last one is not empty: the overflow is planted there */
    for (const Variant &v : variants) {
        if (races && v.sms == 4) continue;
        const Machine machine(v);
        train(adamw_of("adamw, many tensors", 0.9f, 0.999f, 1e-8f, 0.01f), many);
        if (!gpu.small)
            train(sgd_of("sgd, many tensors", 0.9f, 0.01f, 1), list_mixed());
    }
}

/* SGD without momentum needs neither m nor v. */
TEST(steps_without_moments)
{
    Run                     run(std::vector<Shape>(1, shape_of(2049, 1, 0)), 1024.0f, 2000, 0.01f);
    Optimizer               o = sgd_of("sgd without m", 0.0f, 0.01f, 0);
    std::vector<mpt_tensor> bare(1, run.twins[0].tensor(true));
    bare[0].m = bare[0].v = NULL;
    mpt_cuda_list_destroy(run.list);
    OK(mpt_cuda_list_create(gpu.cuda, &run.list, bare.data(), 1));
    run.scale();
    run.check(false);
    CHECK_EQ_I(o.step_host(run), MPT_OK);
    OK(o.step_device(run));
    run.compare_state(1);
    run.compare_weights();
}

// calls in a wrong order --------------------------------------------------------------------------
/* A call that the CPU refuses with MPT_E_ORDER. The device counts it in misuse, and else has the same state
 * as the CPU: unchanged, except that a refused check marks the step to be skipped. */
static void out_of_order(Run &run, Optimizer &o, const char *call)
{
    const uint64_t t = o.t();
    mpt_status     on_host = MPT_OK;
    mt_context("out of order", call);
    if (strcmp(call, "check") == 0) {
        on_host = mpt_check(&run.scaler, &run.step, run.host.data(), run.host.size(), NULL);
        OK(mpt_cuda_check(gpu.cuda, run.list, run.state, gpu.stream));
    } else if (strcmp(call, "unscale") == 0) {
        on_host = mpt_unscale(&run.scaler, &run.step, run.host.data(), run.host.size(), NULL);
        OK(mpt_cuda_unscale(gpu.cuda, run.list, run.state, gpu.stream));
    } else if (strcmp(call, "clip") == 0) {
        on_host = mpt_clip(&run.step, 0.001f);
        OK(mpt_cuda_clip(gpu.cuda, run.state, 0.001f, gpu.stream));
    } else if (strcmp(call, "step") == 0) {
        on_host = o.step_host(run);
        OK(o.step_device(run));
    } else {
        on_host = mpt_scaler_update(&run.scaler);
        OK(mpt_cuda_scaler_update(gpu.cuda, run.state, gpu.stream));
    }
    CHECK_EQ_I(on_host, MPT_E_ORDER);
    run.misuse++;
    run.compare_state(t);
    run.compare_weights();
    run.compare_grads();
}

static void step_in_order(Run &run, Optimizer &o)
{
    CHECK_EQ_I(o.step_host(run), MPT_OK);
    OK(o.step_device(run));
}

static void misuse_with(Optimizer o, size_t bad_round)
{
    Run run(list_mixed(), 1024.0f, 2000, 0.01f);
    o.set_lr(run.lr);
    for (const char *call : {"check", "unscale", "clip", "step", "update"}) out_of_order(run, o, call);
    for (size_t round = 0; round < 3; round++) {
        run.gradients(-8, 4);
        if (round == bad_round)
            run.plant(0, 0, mpti_f32_bits(HUGE_VALF));
        run.scale();
        for (const char *call : {"update", "clip", "step"}) out_of_order(run, o, call);
        out_of_order(run, o, "check");          /* since that step was refused */
        out_of_order(run, o, "update");
        run.scale();
        run.check(false);
        for (const char *call : {"check", "unscale", "update"}) out_of_order(run, o, call);
        CHECK_EQ_U(run.step.found_inf, 1);      /* a second check skips the step */
        run.scale();
        run.check(round == 0);
        step_in_order(run, o);
        for (const char *call : {"step", "clip"}) out_of_order(run, o, call);
        if (round == 0) {
            run.update();
        } else if (round == 1) {        /* the next step's check, the update forgotten: skips that step */
            run.scale();
            out_of_order(run, o, "check");
            CHECK_EQ_U(run.step.found_inf, 1);
            out_of_order(run, o, "update");
        } else {
            out_of_order(run, o, "check");      /* a second one after the step: the update is refused */
        }
        for (const char *call : {"update", "step", "clip"}) out_of_order(run, o, call);
    }
    CHECK_EQ_U(o.t(), 2);
}

TEST(wrong_order)
{
    if (!races) misuse_with(sgd_of("sgd", 0.9f, 0.0f, 0), 0);
    misuse_with(adamw_of("adamw", 0.9f, 0.999f, 1e-8f, 0.01f), 1);
}

// graphs ------------------------------------------------------------------------------------------
/* A stand-in for a network: the seed of round r is row r of a table; backward multiplies it by the FP16
 * weights that the last step published. One row holds an Inf. */
#define ROUNDS    8
#define BAD_ROUND 4
#define SEEDS     64

/* Launch by cudaLaunchKernel, as the header does, so that the emulation compiles this file, too. */
template <class T> struct Same { typedef T type; };
template <class... P>
static cudaError_t launch(void (*kernel)(P...), unsigned blocks, unsigned threads, cudaStream_t stream,
                          typename Same<P>::type... arguments)
{
    void *pointers[] = {(void *)&arguments...};
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), pointers, 0, stream);
}

static __global__ void k_seed(float *x, const float *table, const mpt_cuda_state *state)
{
    x[threadIdx.x] = table[state->scaler.updates % ROUNDS * SEEDS + threadIdx.x];
}

static __global__ void k_backward(uint16_t *grad, const float *x, const uint16_t *param, uint32_t n)
{
    const uint32_t stride = gridDim.x * blockDim.x;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        grad[i] = mpt_f16_from_f32(mpti_mul(x[i % SEEDS], mpt_f32_from_f16(mpt_f16{param[i]}))).bits;
}

struct Network {
    Run       run;
    Optimizer o = adamw_of("graph", 0.9f, 0.999f, 1e-8f, 0.01f);
    Buffer    x, table;
    Network() : run(shapes(), 1024.0f, 3, 0.01f), x(4 * SEEDS, 0), table(4 * SEEDS * ROUNDS, 0)
    {
        for (size_t i = 0; i < SEEDS * ROUNDS; i++) put(table.host(), MPT_F32, i, random_finite(-6, 2));
        put(table.host(), MPT_F32, BAD_ROUND * SEEDS + 5, HUGE_VALF);
        table.upload();
        o.set_lr(run.lr);
        CHECK_EQ_I(mpt_publish(run.host.data(), run.host.size()), MPT_OK);
        for (Twin &t : run.twins) {
            memset(t.m.host(), 0, t.m.size);
            memset(t.v.host(), 0, t.v.size);
            for (Buffer *b : {&t.param, &t.m, &t.v}) b->upload();
        }
    }
    static std::vector<Shape> shapes()
    {
        std::vector<Shape> list;
        for (size_t n : {(size_t)1000, (size_t)2049, gpu.small ? (size_t)65 : (size_t)20000}) {
            const Shape s = {n, MPT_F16, MPT_F16, true, 0};
            list.push_back(s);
        }
        return list;
    }

    /* The whole step as a user queues it: 4 kernels of the user, 5 calls, and no wait. */
    void queue(cudaStream_t stream)
    {
        float *const d_x = (float *)x.device();
        CU(launch(k_seed, 1, SEEDS, stream, d_x, (const float *)table.device(), run.state));
        OK(mpt_cuda_scaler_scale_n(gpu.cuda, run.state, MPT_F32, d_x, SEEDS, stream));
        for (Twin &t : run.twins)
            CU(launch(k_backward, 4, 128, stream, (uint16_t *)t.grad.device(), d_x,
                      (const uint16_t *)t.param.device(), (uint32_t)t.shape.n));
        OK(mpt_cuda_check(gpu.cuda, run.list, run.state, stream));
        OK(mpt_cuda_clip(gpu.cuda, run.state, 1.0f, stream));
        OK(mpt_cuda_adamw_step(gpu.cuda, run.list, run.state, &o.adamw, stream));
        OK(mpt_cuda_scaler_update(gpu.cuda, run.state, stream));
    }

    void round_on_host()
    {
        const size_t row = run.scaler.updates % ROUNDS * SEEDS;
        float        seed[SEEDS];
        for (size_t i = 0; i < SEEDS; i++)
            seed[i] = mpt_scaler_scale(&run.scaler, mpti_f32_make(get_code(table.host(), MPT_F32, row + i)));
        for (size_t i = 0; i < SEEDS; i++) put(x.host(), MPT_F32, i, seed[i]);
        for (Twin &t : run.twins)
            for (size_t i = 0; i < t.shape.n; i++) {
                const mpt_f16 w = {(uint16_t)get_code(t.param.host(), MPT_F16, i)};
                put(t.grad.host(), MPT_F16, i, seed[i % SEEDS] * mpt_f32_from_f16(w));
            }
        CHECK_EQ_I(mpt_check(&run.scaler, &run.step, run.host.data(), run.host.size(), NULL), MPT_OK);
        CHECK_EQ_I(mpt_clip(&run.step, 1.0f), MPT_OK);
        CHECK_EQ_I(o.step_host(run), MPT_OK);
        CHECK_EQ_I(mpt_scaler_update(&run.scaler), MPT_OK);
    }

    void compare()
    {
        run.compare_state(o.t());
        run.compare_weights();
        run.compare_grads();
        CHECK(x.same());
    }
};

struct Graph {
    cudaGraph_t     graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    explicit Graph(Network &net)
    {
        CU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeGlobal));
        net.queue(gpu.stream);
        CU(cudaStreamEndCapture(gpu.stream, &graph));
        CU(cudaGraphInstantiate(&exec, graph, 0));
    }
    ~Graph()
    {
        CU(cudaGraphExecDestroy(exec));
        CU(cudaGraphDestroy(graph));
    }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
};

/* Replay the graph and compare after each round or, with `hurry`, only after the last one. */
static void replay(bool hurry)
{
    Network     net;
    const Graph graph(net);
    for (int i = 0; i < ROUNDS; i++) {
        CU(cudaGraphLaunch(graph.exec, gpu.stream));
        net.round_on_host();
        if (!hurry)
            net.compare();
    }
    net.compare();
    CHECK_EQ_U(net.o.t(), ROUNDS - 1);
    CHECK_EQ_U(net.run.scaler.skipped, 1);
    CHECK_EQ_U(net.run.scaler.updates, ROUNDS);
}

TEST(graph_replay)
{
    for (const Variant &v : variants) {
        if (races && v.sms < 13) continue;
        const Machine machine(v);
        if (!races) replay(false);
        replay(true);
    }
}

/* The value is taken when the call is made, not when the graph runs. */
TEST(graph_state_set)
{
    Run             run(std::vector<Shape>(), 1024.0f, 2000, 0.5f);
    mpt_cuda_state  value = download(run.state);
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t exec = NULL;
    value.t = 77;
    CU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeGlobal));
    OK(mpt_cuda_state_set(gpu.cuda, run.state, &value, gpu.stream));
    OK(mpt_cuda_lr_set(gpu.cuda, run.state, 0.25f, gpu.stream));
    CU(cudaStreamEndCapture(gpu.stream, &graph));
    CU(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_EQ_U(download(run.state).t, 0);
    value.t = 99;
    for (int i = 0; i < 2; i++) CU(cudaGraphLaunch(exec, gpu.stream));
    run.lr = 0.25f;
    run.compare_state(77);
    CU(cudaGraphExecDestroy(exec));
    CU(cudaGraphDestroy(graph));
}

#ifdef MPT_CUDA_EMU
/* Tables are complete when a create returns, also for a stream that does not wait for the default one. */
TEST(non_blocking_stream)
{
    Run                     run(list_mixed(), 1024.0f, 2000, 0.5f);
    const mpt_emu::Controls saved = mpt_emu::controls();
    std::vector<mpt_tensor> device;
    mpt_cuda_list          *list = NULL;
    mpt_cuda_state         *state = NULL;
    mpt_cuda_ranges        *ranges = NULL;
    mpt_cuda_state          got;
    mpt_range               range, want;
    cudaStream_t            stream = NULL;
    for (Twin &t : run.twins) device.push_back(t.tensor(true));
    run.scale();
    CHECK_EQ_I(mpt_check(&run.scaler, &run.step, run.host.data(), run.host.size(), NULL), MPT_OK);
    CHECK_EQ_I(mpt_range_init(&want, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_add(&want, run.host[1].grad_format, run.host[1].grad, run.host[1].n), MPT_OK);
    CU(cudaDeviceSynchronize());
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    mpt_emu::controls().deferred = true;
    OK(mpt_cuda_state_create(gpu.cuda, &state, &run.scaler, 0.5f));
    OK(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, stream));
    OK(mpt_cuda_state_get(gpu.cuda, &got, state, stream));
    CU(cudaStreamSynchronize(stream));
    CHECK(got.scaler.in_use == 3u && got.scaler.scale == 1024.0f && got.lr == 0.5f);
    OK(mpt_cuda_list_create(gpu.cuda, &list, device.data(), device.size()));
    OK(mpt_cuda_check(gpu.cuda, list, state, stream));
    OK(mpt_cuda_state_get(gpu.cuda, &got, state, stream));
    CU(cudaStreamSynchronize(stream));
    CHECK(mpti_f64_bits(got.step.sumsq) == mpti_f64_bits(run.step.sumsq));
    OK(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16));
    OK(mpt_cuda_ranges_add(gpu.cuda, ranges, MPT_CUDA_GRAD, 1, stream));
    OK(mpt_cuda_ranges_get_sync(gpu.cuda, ranges, 1, &range, stream));
    CHECK(memcmp(&range, &want, sizeof want) == 0);
    mpt_cuda_ranges_destroy(ranges);
    mpt_cuda_list_destroy(list);
    mpt_cuda_state_destroy(state);
    CU(cudaStreamDestroy(stream));
    mpt_emu::controls() = saved;
}

/* A step full of overflows costs no more than another: each block does a few atomics on device memory. */
TEST(overflow_is_cheap)
{
    Run                 run(std::vector<Shape>(1, shape_of(gpu.small ? 5000 : 50000, 1, 0)), 1.0f, 0, 0.0f);
    const unsigned long before = mpt_emu::counters().atomics;
    for (size_t i = 0; i < run.twins[0].shape.n; i++)
        put_code(run.twins[0].grad.host(), MPT_F16, i, i % 3 ? 0x7c00u : 0x7e00u);
    run.twins[0].grad.upload();
    check_round(run, false);
    CHECK_EQ_U(run.step.inf_count + run.step.nan_count, run.twins[0].shape.n);
    CHECK(mpt_emu::counters().atomics - before < 40);
}

/* Wrong counts of blocks and chunks, which two kernels at once can leave, are gone after the next update; and
 * mpt_cuda_state_set takes none. */
TEST(block_count_heals)
{
    Run run(std::vector<Shape>(1, shape_of(50000, 0, 0)), 1024.0f, 2000, 0.0f);
    mpt_cuda_state state = download(run.state);
    state.blocks_done = state.chunks_taken = 3;
    OK(mpt_cuda_state_set(gpu.cuda, run.state, &state, gpu.stream));
    check_round(run, false);
    state = download(run.state);
    state.blocks_done = state.chunks_taken = 3;
    CU(cudaMemcpy(run.state, &state, sizeof state, cudaMemcpyHostToDevice));
    OK(mpt_cuda_scaler_update(gpu.cuda, run.state, gpu.stream));        /* out of order, too */
    CHECK_EQ_I(mpt_scaler_update(&run.scaler), MPT_E_ORDER);
    run.misuse++;
    check_round(run, false);
}

/* Nothing in a step waits, allocates or copies to or from the host: queued, captured or replayed. */
static void expect_no_waiting(const mpt_emu::Counters &before)
{
    const mpt_emu::Counters &now = mpt_emu::counters();
    CHECK_EQ_U(now.syncs, before.syncs);
    CHECK_EQ_U(now.mallocs, before.mallocs);
    CHECK_EQ_U(now.frees, before.frees);
    CHECK_EQ_U(now.copies, before.copies);
    CHECK_EQ_U(now.pageable_copies, before.pageable_copies);
}

static void queue_without_waiting(bool deferred)
{
    const mpt_emu::Controls saved = mpt_emu::controls();
    Network net;
    mpt_emu::controls().deferred = deferred;
    mpt_emu::Counters before = mpt_emu::counters();
    for (int i = 0; i < 2; i++) net.queue(gpu.stream);
    expect_no_waiting(before);
    CHECK_EQ_U(mpt_emu::counters().launches - before.launches, 2 * (1 + 3 + 5));
    CHECK_EQ_U(mpt_emu::counters().kernels - before.kernels, deferred ? 0 : 2 * (1 + 3 + 5));
    for (int i = 0; i < 2; i++) net.round_on_host();
    net.compare();
    {
        before = mpt_emu::counters();
        const Graph graph(net);
        CHECK_EQ_U(mpt_emu::counters().kernels, before.kernels);
        for (int i = 2; i < ROUNDS; i++) CU(cudaGraphLaunch(graph.exec, gpu.stream));
        expect_no_waiting(before);
        CHECK_EQ_U(mpt_emu::counters().kernels - before.kernels, deferred ? 0 : (ROUNDS - 2) * (1 + 3 + 5));
    }
    for (int i = 2; i < ROUNDS; i++) net.round_on_host();
    net.compare();
    mpt_emu::controls() = saved;
}

TEST(step_never_waits)
{
    if (!races) queue_without_waiting(false);
    queue_without_waiting(true);
}

/* The state is copied to page-locked memory asynchronously, and a conversion does not wait either. */
TEST(other_calls_never_wait)
{
    Run                     run(std::vector<Shape>(), 1024.0f, 2000, 0.5f);
    const mpt_emu::Controls saved = mpt_emu::controls();
    Buffer                  a(400, 0), b(200, 0);
    mpt_cuda_state         *pinned = NULL;
    mpt_cuda_state          value = download(run.state);
    CU(cudaMallocHost((void **)&pinned, sizeof *pinned));
    memset((void *)pinned, 0, sizeof *pinned);
    mpt_emu::controls().deferred = true;
    const mpt_emu::Counters before = mpt_emu::counters();
    OK(mpt_cuda_lr_set(gpu.cuda, run.state, 0.25f, gpu.stream));
    OK(mpt_cuda_state_get(gpu.cuda, pinned, run.state, gpu.stream));
    value.t = 5;
    OK(mpt_cuda_state_set(gpu.cuda, run.state, &value, gpu.stream));
    OK(convert_device(&conversions[0], b.device(), a.device(), 100));
    OK(convert_device(&conversions[1], a.device(), b.device(), 100));
    const mpt_emu::Counters &now = mpt_emu::counters();
    CHECK_EQ_U(now.syncs + now.mallocs + now.frees, before.syncs + before.mallocs + before.frees);
    CHECK_EQ_U(now.pageable_copies, before.pageable_copies);
    CHECK_EQ_U(now.kernels, before.kernels);
    CU(cudaStreamSynchronize(gpu.stream));
    mpt_emu::controls() = saved;
    CHECK(pinned->lr == 0.25f && pinned->t == 0);
    run.compare_state(5);
    CU(cudaFreeHost(pinned));
}
#endif

// bad input ---------------------------------------------------------------------------------------
/* Refused with this status; the error text begins with the name of the call. */
#define REFUSED(call, name, want) refused((call), #call, name, want, __LINE__)
static void refused(mpt_status got, const char *call, const char *name, mpt_status want, int line)
{
    const char *const text = mpt_cuda_error_text(gpu.cuda);
    const bool ok = got == want && strncmp(text, name, strlen(name)) == 0 && strlen(text) > strlen(name) + 4;
    if (mt_count(ok, call, __FILE__, line))
        printf("    got %d, want %d, text \"%s\"\n", (int)got, (int)want, text);
    if (want != MPT_E_CUDA && want != MPT_E_MEMORY)
        CHECK_EQ_I(mpt_cuda_error_code(gpu.cuda), 0);
}

TEST(null_arguments)
{
    Run               run(list_mixed(), 1024.0f, 2000, 0.01f);
    mpt_cuda *const   c = gpu.cuda;
    mpt_cuda_list    *list = (mpt_cuda_list *)&run;
    mpt_cuda_state   *state = (mpt_cuda_state *)&run, host;
    const mpt_sgd     sgd = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    const mpt_adamw   adamw = mpt_adamw_defaults();
    const mpt_stream  s = gpu.stream;
    const mpt_tensor *none = NULL;
    memset(&host, 0, sizeof host);

    CHECK_EQ_I(mpt_cuda_create(NULL, 0), MPT_E_ARG);
    CHECK(strlen(mpt_cuda_error_text(NULL)) > 10);
    CHECK_EQ_I(mpt_cuda_error_code(NULL), 0);
    mpt_cuda_destroy(NULL);
    mpt_cuda_list_destroy(NULL);
    mpt_cuda_state_destroy(NULL);

    REFUSED(mpt_cuda_list_create(c, NULL, run.host.data(), 1), "mpt_cuda_list_create", MPT_E_ARG);
    REFUSED(mpt_cuda_list_create(c, &list, none, 3), "mpt_cuda_list_create", MPT_E_ARG);
    CHECK(list == NULL);
    REFUSED(mpt_cuda_state_create(c, NULL, &run.scaler, 0.0f), "mpt_cuda_state_create", MPT_E_ARG);
    REFUSED(mpt_cuda_state_create(c, &state, NULL, 0.0f), "mpt_cuda_state_create", MPT_E_ARG);
    CHECK(state == NULL);
    REFUSED(mpt_cuda_state_set(c, NULL, &host, s), "mpt_cuda_state_set", MPT_E_ARG);
    REFUSED(mpt_cuda_state_set(c, run.state, NULL, s), "mpt_cuda_state_set", MPT_E_ARG);
    REFUSED(mpt_cuda_state_get(c, NULL, run.state, s), "mpt_cuda_state_get", MPT_E_ARG);
    REFUSED(mpt_cuda_state_get(c, &host, NULL, s), "mpt_cuda_state_get", MPT_E_ARG);
    REFUSED(mpt_cuda_lr_set(c, NULL, 0.1f, s), "mpt_cuda_lr_set", MPT_E_ARG);
    REFUSED(mpt_cuda_scaler_scale_n(c, NULL, MPT_F32, NULL, 0, s), "mpt_cuda_scaler_scale_n", MPT_E_ARG);
    REFUSED(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 1, s), "mpt_cuda_scaler_scale_n", MPT_E_ARG);
    REFUSED(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, run.state, (size_t)-1 / 2, s),
            "mpt_cuda_scaler_scale_n", MPT_E_ARG);
    REFUSED(mpt_cuda_scaler_scale_n(c, run.state, MPT_F64, NULL, 0, s), "mpt_cuda_scaler_scale_n",
            MPT_E_UNSUPPORTED);
    REFUSED(mpt_cuda_check(c, NULL, run.state, s), "mpt_cuda_check", MPT_E_ARG);
    REFUSED(mpt_cuda_check(c, run.list, NULL, s), "mpt_cuda_check", MPT_E_ARG);
    REFUSED(mpt_cuda_unscale(c, NULL, run.state, s), "mpt_cuda_unscale", MPT_E_ARG);
    REFUSED(mpt_cuda_unscale(c, run.list, NULL, s), "mpt_cuda_unscale", MPT_E_ARG);
    REFUSED(mpt_cuda_clip(c, NULL, 1.0f, s), "mpt_cuda_clip", MPT_E_ARG);
    REFUSED(mpt_cuda_scaler_update(c, NULL, s), "mpt_cuda_scaler_update", MPT_E_ARG);
    REFUSED(mpt_cuda_sgd_step(c, NULL, run.state, &sgd, s), "mpt_cuda_sgd_step", MPT_E_ARG);
    REFUSED(mpt_cuda_sgd_step(c, run.list, NULL, &sgd, s), "mpt_cuda_sgd_step", MPT_E_ARG);
    REFUSED(mpt_cuda_sgd_step(c, run.list, run.state, NULL, s), "mpt_cuda_sgd_step", MPT_E_ARG);
    REFUSED(mpt_cuda_adamw_step(c, NULL, run.state, &adamw, s), "mpt_cuda_adamw_step", MPT_E_ARG);
    REFUSED(mpt_cuda_adamw_step(c, run.list, NULL, &adamw, s), "mpt_cuda_adamw_step", MPT_E_ARG);
    REFUSED(mpt_cuda_adamw_step(c, run.list, run.state, NULL, s), "mpt_cuda_adamw_step", MPT_E_ARG);
    run.compare_state(0);
    run.compare_weights();
}

/* Without a context there is no place for a text, but still a status. */
TEST(null_context)
{
    Run             run(list_mixed(), 1024.0f, 2000, 0.01f);
    mpt_cuda_list  *list = (mpt_cuda_list *)&run;
    mpt_cuda_state *state = (mpt_cuda_state *)&run, host;
    const mpt_sgd   sgd = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    const mpt_adamw adamw = mpt_adamw_defaults();
    Buffer          a(400, 0), b(400, 0);
    memset(&host, 0, sizeof host);
    CHECK_EQ_I(mpt_cuda_list_create(NULL, &list, run.host.data(), 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_state_create(NULL, &state, &run.scaler, 0.0f), MPT_E_ARG);
    CHECK(!list && !state);
    CHECK_EQ_I(mpt_cuda_state_set(NULL, run.state, &host, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_state_get(NULL, &host, run.state, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_lr_set(NULL, run.state, 0.1f, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_scaler_scale_n(NULL, run.state, MPT_F32, NULL, 0, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_check(NULL, run.list, run.state, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_unscale(NULL, run.list, run.state, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_clip(NULL, run.state, 1.0f, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_sgd_step(NULL, run.list, run.state, &sgd, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_adamw_step(NULL, run.list, run.state, &adamw, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_scaler_update(NULL, run.state, NULL), MPT_E_ARG);
    mpt_cuda *const c = gpu.cuda;
    gpu.cuda = NULL;
    for (const Conversion &conversion : conversions)
        CHECK_EQ_I(convert_device(&conversion, a.device(), b.device(), 100), MPT_E_ARG);
    gpu.cuda = c;
    run.compare_state(0);
    CHECK(a.same());
}

TEST(null_arrays)
{
    const char *const name = "mpt_cuda_convert_n";
    Buffer            a(400, 0);
    for (size_t k = 0; k < COUNT_OF(conversions); k++) {
        REFUSED(convert_device(&conversions[k], NULL, a.device(), 1), name, MPT_E_ARG);
        REFUSED(convert_device(&conversions[k], a.device(), NULL, 1), name, MPT_E_ARG);
        OK(convert_device(&conversions[k], NULL, NULL, 0));
        OK(convert_device(&conversions[k], a.device(), NULL, 0));
    }
    CHECK(a.same());
}

TEST(bad_lists)
{
    Run                     run(list_mixed(), 1024.0f, 2000, 0.01f);
    std::vector<mpt_tensor> device;
    mpt_cuda_list          *list = NULL;
    for (Twin &t : run.twins) device.push_back(t.tensor(true));
    std::vector<mpt_tensor> bad = device;
    bad[4].grad = NULL;
    REFUSED(mpt_cuda_list_create(gpu.cuda, &list, bad.data(), bad.size()), "mpt_cuda_list_create", MPT_E_ARG);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "grad is NULL") != NULL);
    for (mpt_format f : {MPT_F64, MPT_E4M3, MPT_FORMAT_COUNT}) {
        bad = device;
        bad[3].grad_format = f;
        list = (mpt_cuda_list *)&run;
        REFUSED(mpt_cuda_list_create(gpu.cuda, &list, bad.data(), bad.size()), "mpt_cuda_list_create",
                MPT_E_UNSUPPORTED);
        CHECK(list == NULL);
    }
    for (int which = 0; which < 3; which++) {               /* arrays a byte or two off */
        bad = device;
        for (mpt_tensor &t : bad)
            if (t.m && t.param) {
                void **const place[] = {&t.grad, (void **)&t.master, &t.m};
                *place[which] = (char *)*place[which] + (which == 0 ? 1 : 2);
                t.moments = MPT_MOMENTS_F32;
            }
        REFUSED(mpt_cuda_list_create(gpu.cuda, &list, bad.data(), bad.size()), "mpt_cuda_list_create",
                MPT_E_ARG);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "multiple") != NULL);
    }
    OK(mpt_cuda_list_create(gpu.cuda, &list, NULL, 0));     /* an empty list is a list */
    mpt_cuda_list_destroy(list);
    bad.assign(3, mpt_tensor());                            /* so is one of empty tensors, all NULL */
    for (mpt_tensor &t : bad) t.grad_format = t.param_format = MPT_F32;
    OK(mpt_cuda_list_create(gpu.cuda, &list, bad.data(), bad.size()));
    mpt_cuda_list_destroy(list);
}

/* A tensor without master, m or v can be checked; an optimizer that needs them refuses the list. */
TEST(lists_that_lack)
{
    const mpt_sgd   plain = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    const mpt_sgd   heavy = {0.01f, 0.9f, 0.0f, 0u, 0.0f, 0u, 0u};
    const mpt_adamw adamw = mpt_adamw_defaults();
    for (int lack = races ? 2 : 0; lack < 3; lack++) {
        Run                     run(list_mixed(), 1024.0f, 2000, 0.01f);
        std::vector<mpt_tensor> device;
        mpt_cuda *const         c = gpu.cuda;
        for (Twin &t : run.twins) device.push_back(t.tensor(true));
        if (lack == 0) device.back().master = nullptr;
        if (lack == 1) device.back().m = nullptr;
        if (lack == 2) device.back().v = nullptr;
        mpt_cuda_list_destroy(run.list);
        OK(mpt_cuda_list_create(c, &run.list, device.data(), device.size()));
        run.scale();
        run.check(false);
        const mpt_stream s = gpu.stream;
        REFUSED(mpt_cuda_adamw_step(c, run.list, run.state, &adamw, s), "mpt_cuda_adamw_step", MPT_E_ARG);
        if (lack < 2)
            REFUSED(mpt_cuda_sgd_step(c, run.list, run.state, &heavy, s), "mpt_cuda_sgd_step", MPT_E_ARG);
        if (lack < 1)
            REFUSED(mpt_cuda_sgd_step(c, run.list, run.state, &plain, s), "mpt_cuda_sgd_step", MPT_E_ARG);
        run.compare_state(0);
        run.compare_weights();
    }
}

/* Gradients are accumulated in one list; another is checked, or stepped, by mistake. Parts are no mistake. */
TEST(wrong_list)
{
    Run               run(list_mixed(), 1024.0f, 2000, 0.01f), other(list_mixed(), 1024.0f, 2000, 0.01f);
    mpt_cuda *const   c = gpu.cuda;
    const mpt_stream  s = gpu.stream;
    mpt_sgd           sgd = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_cuda_list    *part[2] = {NULL, NULL}, *empty = NULL;
    std::vector<mpt_tensor> all;
    for (Twin &t : run.twins) all.push_back(t.tensor(true));
    void *const m = all[1].m;
    all[1].m = all[1].v;                /* two kinds of arrays in the same memory */
    REFUSED(mpt_cuda_list_create(c, &part[0], &all[0], 2), "mpt_cuda_list_create", MPT_E_ARG);
    all[1].m = m;
    OK(mpt_cuda_list_create(c, &part[0], &all[0], 2));
    OK(mpt_cuda_list_create(c, &part[1], &all[2], all.size() - 2));
    OK(mpt_cuda_list_create(c, &empty, NULL, 0));
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(c, other.list, run.state, s));
    REFUSED(mpt_cuda_sgd_step(c, run.list, run.state, &sgd, s), "mpt_cuda_sgd_step", MPT_E_ORDER);
    REFUSED(mpt_cuda_sgd_step(c, part[1], run.state, &sgd, s), "mpt_cuda_sgd_step", MPT_E_ORDER);
    OK(mpt_cuda_scaler_update(c, run.state, s));
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(c, run.list, run.state, s));
    sgd.options = MPT_STEP_STAYS_OPEN;
    OK(mpt_cuda_sgd_step(c, part[1], run.state, &sgd, s));
    OK(mpt_cuda_sgd_step(c, empty, run.state, &sgd, s));
    mpt_lamb lamb = mpt_lamb_defaults();
    lamb.options = MPT_STEP_STAYS_OPEN;
    OK(mpt_cuda_lamb_step(c, empty, run.state, &lamb, s));
    REFUSED(mpt_cuda_sgd_step(c, other.list, run.state, &sgd, s), "mpt_cuda_sgd_step", MPT_E_ORDER);
    sgd.options = 0u;
    OK(mpt_cuda_sgd_step(c, part[0], run.state, &sgd, s));
    OK(mpt_cuda_scaler_update(c, run.state, s));
    CHECK_EQ_U(download(run.state).misuse, 0);
    mpt_cuda *other_context = NULL;     /* its calls do not tell c, like the replay of a graph */
    OK(mpt_cuda_create(&other_context, 0));
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(c, run.list, run.state, s));
    const mpt_cuda_state saved = download(run.state);
    OK(mpt_cuda_sgd_step(c, run.list, run.state, &sgd, s));
    OK(mpt_cuda_state_set(c, run.state, &saved, s));
    OK(mpt_cuda_sgd_step(c, part[1], run.state, &sgd, s));
    OK(mpt_cuda_scaler_update(other_context, run.state, s));
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(c, run.list, run.state, s));
    OK(mpt_cuda_sgd_step(c, run.list, run.state, &sgd, s));
    OK(mpt_cuda_scaler_update(c, run.state, s));
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(other_context, run.list, run.state, s));
    OK(mpt_cuda_sgd_step(c, part[1], run.state, &sgd, s));
    OK(mpt_cuda_scaler_update(c, run.state, s));
    CHECK_EQ_U(download(run.state).misuse, 0);
    mpt_cuda_destroy(other_context);
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(c, part[0], run.state, s));
    REFUSED(mpt_cuda_sgd_step(c, run.list, run.state, &sgd, s), "mpt_cuda_sgd_step", MPT_E_ORDER);
    mpt_cuda_list *turned = NULL;       /* not in the order of the list that was checked */
    std::swap(all[0], all[1]);
    OK(mpt_cuda_list_create(c, &turned, &all[0], 2));
    std::swap(all[0], all[1]);
    sgd.options = MPT_STEP_STAYS_OPEN;
    OK(mpt_cuda_sgd_step(c, turned, run.state, &sgd, s));
    sgd.options = 0u;
    mpt_cuda_list *frozen = NULL;       /* more was checked than is stepped; the first is frozen */
    all[0].n = 0;
    OK(mpt_cuda_list_create(c, &frozen, &all[0], 2));
    OK(mpt_cuda_sgd_step(c, frozen, run.state, &sgd, s));
    OK(mpt_cuda_scaler_update(c, run.state, s));
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(c, frozen, run.state, s));
    REFUSED(mpt_cuda_sgd_step(c, part[0], run.state, &sgd, s), "mpt_cuda_sgd_step", MPT_E_ORDER);
    for (mpt_cuda_list *l : {frozen, turned}) mpt_cuda_list_destroy(l);
    OK(mpt_cuda_sgd_step(c, part[0], run.state, &sgd, s));
    OK(mpt_cuda_scaler_update(c, run.state, s));
    OK(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, s));
    OK(mpt_cuda_check(c, part[0], run.state, s));
    mpt_cuda_list_destroy(part[0]);             /* the context forgets a list that is gone */
    OK(mpt_cuda_sgd_step(c, part[1], run.state, &sgd, s));
    for (mpt_cuda_list *l : {part[1], empty}) mpt_cuda_list_destroy(l);
}

/* The host remembers one check; the device remembers which sizes each state has checked. */
TEST(a_list_of_another_state)
{
    Run            run(list_mixed(), 1024.0f, 2000, 0.01f), other(list_of_many(3), 1024.0f, 2000, 0.01f);
    Optimizer      o = sgd_of("sgd", 0.9f, 0.0f, 0);
    mpt_sgd        sgd = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    for (Run *r : {&run, &other}) {
        r->scale();
        r->check(false);
    }
    CHECK_EQ_I(mpt_sgd_step(&sgd, &run.step, other.host.data(), other.host.size()), MPT_E_ORDER);
    OK(mpt_cuda_sgd_step(gpu.cuda, other.list, run.state, &sgd, gpu.stream));
    run.misuse++;
    run.compare_state(0);
    other.compare_weights();
    CHECK_EQ_I(o.step_host(other), MPT_OK);
    OK(o.step_device(other));
    other.compare_state(1);
    other.compare_weights();
}

TEST(a_list_outlives_its_context)
{
    Run              run(list_mixed(), 1024.0f, 2000, 0.01f);
    const mpt_tensor tensor = run.twins[0].tensor(true);
    mpt_cuda_list   *list = NULL;
    mpt_cuda        *c = NULL;
    CHECK_EQ_I(mpt_cuda_create(&c, 0), MPT_OK);
    CHECK_EQ_I(mpt_cuda_list_create(c, &list, &tensor, 1), MPT_OK);
    CHECK_EQ_I(mpt_cuda_check(c, list, run.state, gpu.stream), MPT_OK);
    mpt_cuda_destroy(c);
    mpt_cuda_list_destroy(list);
}

TEST(bad_numbers)
{
    Run             run(list_mixed(), 1024.0f, 2000, 0.01f);
    mpt_cuda *const c = gpu.cuda;
    mpt_cuda_state *state = NULL;
    mpt_scaler      unset;
    const float     nan = mpti_f32_make(0x7fc00000u), inf = HUGE_VALF;
    memset(&unset, 0, sizeof unset);
    REFUSED(mpt_cuda_state_create(c, &state, &unset, 0.1f), "mpt_cuda_state_create", MPT_E_ARG);
    for (float scale : {0.0f, -1.0f, nan}) {
        mpt_cuda_state wrong = download(run.state);
        wrong.scaler.scale = scale;
        REFUSED(mpt_cuda_state_set(c, run.state, &wrong, gpu.stream), "mpt_cuda_state_set", MPT_E_ARG);
    }
    for (float lr : {-1e-3f, -inf, inf, nan}) {
        REFUSED(mpt_cuda_state_create(c, &state, &run.scaler, lr), "mpt_cuda_state_create", MPT_E_ARG);
        REFUSED(mpt_cuda_lr_set(c, run.state, lr, gpu.stream), "mpt_cuda_lr_set", MPT_E_ARG);
        CHECK(state == NULL);
    }
    run.scale();
    run.check(false);
    for (float max_norm : {0.0f, -1.0f, inf, nan})
        REFUSED(mpt_cuda_clip(c, run.state, max_norm, gpu.stream), "mpt_cuda_clip", MPT_E_ARG);
    const mpt_sgd sgd[] = {{-0.1f, 0.0f, 0.0f, 0, 0.0f, 0, 0}, {nan, 0.0f, 0.0f, 0, 0.0f, 0, 0},
                           {0.1f, 1.0f, 0.0f, 0, 0.0f, 0, 0},  {0.1f, -0.1f, 0.0f, 0, 0.0f, 0, 0},
                           {0.1f, nan, 0.0f, 0, 0.0f, 0, 0},   {0.1f, 0.0f, -1.0f, 0, 0.0f, 0, 0},
                           {0.1f, 0.0f, inf, 0, 0.0f, 0, 0},   {0.1f, 0.0f, 0.0f, 1, 0.0f, 0, 0},
                           {0.1f, 0.9f, 0.0f, 1, 0.5f, 0, 0},  {0.1f, 0.9f, 0.0f, 0, 1.5f, 0, 0},
                           {0.1f, 0.9f, 0.0f, 0, 0.0f, ~0u, 0}};
    const mpt_stream s = gpu.stream;
    for (const mpt_sgd &o : sgd)
        REFUSED(mpt_cuda_sgd_step(c, run.list, run.state, &o, s), "mpt_cuda_sgd_step", MPT_E_ARG);
    const mpt_adamw adamw[] = {{-0.1f, 0.9f, 0.9f, 1e-8f, 0, 0, 0}, {0.1f, 1.0f, 0.9f, 1e-8f, 0, 0, 0},
                               {0.1f, 0.9f, 1.0f, 1e-8f, 0, 0, 0},  {0.1f, 0.9f, 0.9f, 0.0f, 0, 0, 0},
                               {0.1f, 0.9f, 0.9f, nan, 0, 0, 0},    {0.1f, 0.9f, nan, 1e-8f, 0, 0, 0},
                               {0.1f, 0.9f, 0.9f, 1e-8f, -1, 0, 0}, {inf, 0.9f, 0.9f, 1e-8f, 0, 0, 0}};
    for (const mpt_adamw &o : adamw)
        REFUSED(mpt_cuda_adamw_step(c, run.list, run.state, &o, s), "mpt_cuda_adamw_step", MPT_E_ARG);
    run.compare_state(0);
    run.compare_weights();
}

TEST(bad_device)
{
    mpt_cuda *const outer = gpu.cuda;
    OK(mpt_cuda_create(&gpu.cuda, 0));
    CHECK_EQ_S(mpt_cuda_error_text(gpu.cuda), "no error");
    CHECK_EQ_I(mpt_cuda_error_code(gpu.cuda), 0);
    mpt_cuda_destroy(gpu.cuda);
    REFUSED(mpt_cuda_create(&gpu.cuda, -1), "mpt_cuda_create", MPT_E_ARG);
    mpt_cuda_destroy(gpu.cuda);
    REFUSED(mpt_cuda_create(&gpu.cuda, 1000), "mpt_cuda_create", MPT_E_CUDA);
    CHECK_EQ_I(mpt_cuda_error_code(gpu.cuda), 101);
    CHECK(cudaPeekAtLastError() == cudaSuccess);        /* the error is not left to the user's own checks */
    mpt_cuda_destroy(gpu.cuda);
    gpu.cuda = outer;
}

#ifdef MPT_CUDA_EMU
TEST(no_gpu)
{
    static const struct { cudaError_t error; int count, code; const char *says; } cases[] = {
        {cudaErrorInsufficientDriver, 1, 35, "driver"}, {cudaErrorNoDevice, 1, 100, "no NVIDIA GPU"},
        {cudaSuccess, 0, 100, "no NVIDIA GPU"}};
    const mpt_emu::Controls saved = mpt_emu::controls();
    mpt_cuda *const         outer = gpu.cuda;
    for (const auto &k : cases) {
        mpt_emu::controls().device_error = k.error;
        mpt_emu::controls().device_count = k.count;
        REFUSED(mpt_cuda_create(&gpu.cuda, 0), "mpt_cuda_create", MPT_E_CUDA);
        CHECK_EQ_I(mpt_cuda_error_code(gpu.cuda), k.code);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), k.says) != NULL);
        mpt_cuda_destroy(gpu.cuda);
        mpt_emu::controls() = saved;
    }
    REFUSED(mpt_cuda_create(&gpu.cuda, 7), "mpt_cuda_create", MPT_E_CUDA);
    CHECK_EQ_I(mpt_cuda_error_code(gpu.cuda), 101);
    mpt_cuda_destroy(gpu.cuda);
    gpu.cuda = outer;
}

/* A context of one device, and a stream of another or another current device: nothing is queued. */
TEST(another_device)
{
    const mpt_emu::Controls saved = mpt_emu::controls();
    mpt_emu::controls().device_count = 2;
    {
        Run              run(list_mixed(), 1024.0f, 2000, 0.01f);
        mpt_cuda *const  c = gpu.cuda;
        cudaStream_t     there;
        const mpt_sgd    sgd = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
        mpt_cuda_list   *list = (mpt_cuda_list *)&run;
        mpt_cuda_state  *state = (mpt_cuda_state *)&run;
        mpt_cuda_ranges *ranges = (mpt_cuda_ranges *)&run;
        std::vector<mpt_tensor> device;
        for (Twin &t : run.twins) device.push_back(t.tensor(true));
        CU(cudaSetDevice(1));
        CU(cudaStreamCreate(&there));
        for (int current = 0; current < 2; current++) {
            const mpt_stream stream = current ? gpu.stream : there;
            CU(cudaSetDevice(current));
            REFUSED(mpt_cuda_check(c, run.list, run.state, stream), "mpt_cuda_check", MPT_E_CUDA);
            CHECK_EQ_I(mpt_cuda_error_code(c), (int)cudaErrorInvalidResourceHandle);
            CHECK(strstr(mpt_cuda_error_text(c), "cudaSetDevice") != NULL);
            CHECK(cudaPeekAtLastError() == cudaSuccess);
            REFUSED(mpt_cuda_sgd_step(c, run.list, run.state, &sgd, stream), "mpt_cuda_sgd_step", MPT_E_CUDA);
            REFUSED(mpt_cuda_scaler_update(c, run.state, stream), "mpt_cuda_scaler_update", MPT_E_CUDA);
            if (!current)
                continue;
            mpt_cuda_state copy;
            mpt_cuda      *other = NULL;
            REFUSED(mpt_cuda_state_get(c, &copy, run.state, NULL), "mpt_cuda_state_get", MPT_E_CUDA);
            CHECK_EQ_I(mpt_cuda_create(&other, 1), MPT_OK);     /* a list of the other device */
            CHECK_EQ_I(mpt_cuda_check(other, run.list, run.state, there), MPT_E_CUDA);
            mpt_cuda_destroy(other);
            REFUSED(mpt_cuda_check(c, run.list, run.state, NULL), "mpt_cuda_check", MPT_E_CUDA);
            REFUSED(mpt_cuda_list_create(c, &list, device.data(), device.size()), "mpt_cuda_list_create",
                    MPT_E_CUDA);
            REFUSED(mpt_cuda_state_create(c, &state, &run.scaler, 0.1f), "mpt_cuda_state_create", MPT_E_CUDA);
            REFUSED(mpt_cuda_ranges_create(c, &ranges, run.list, MPT_F16), "mpt_cuda_ranges_create",
                    MPT_E_CUDA);
            CHECK(list == NULL && state == NULL && ranges == NULL);
        }
        CU(cudaSetDevice(1));
        CU(cudaStreamDestroy(there));
        CU(cudaSetDevice(0));
        run.compare_state(0);
        run.compare_weights();
        run.compare_grads();
    }
    mpt_emu::controls() = saved;
}

/* A list is a copy: later changes of the caller's array have no effect, also during a capture. During a
 * capture no other list can be made. */
TEST(list_changed_while_captured)
{
    Run                     run(list_mixed(), 1024.0f, 2000, 0.01f);
    std::vector<mpt_tensor> tensors;
    mpt_cuda_list          *mine, *other = (mpt_cuda_list *)&run;
    mpt_cuda_state         *state = (mpt_cuda_state *)&run;
    cudaGraph_t             graph = NULL;
    cudaGraphExec_t         exec = NULL;
    for (Twin &t : run.twins) tensors.push_back(t.tensor(true));
    OK(mpt_cuda_list_create(gpu.cuda, &mine, tensors.data(), tensors.size()));
    OK(mpt_cuda_scaler_scale_n(gpu.cuda, run.state, MPT_F32, NULL, 0, gpu.stream));
    (void)mpt_scaler_scale(&run.scaler, 1.0f);
    CU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeGlobal));
    OK(mpt_cuda_check(gpu.cuda, mine, run.state, gpu.stream));
    for (mpt_tensor &t : tensors) t.n = 1, t.grad = NULL, t.master = NULL;
    CU(cudaStreamEndCapture(gpu.stream, &graph));
    CU(cudaGraphInstantiate(&exec, graph, 0));
    CU(cudaGraphLaunch(exec, gpu.stream));
    CHECK_EQ_I(mpt_check(&run.scaler, &run.step, run.host.data(), run.host.size(), NULL), MPT_OK);
    run.compare_state(0);
    CU(cudaGraphExecDestroy(exec));
    CU(cudaGraphDestroy(graph));

    tensors.clear();
    for (Twin &t : run.twins) tensors.push_back(t.tensor(true));
    CU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeGlobal));
    REFUSED(mpt_cuda_list_create(gpu.cuda, &other, tensors.data(), tensors.size()), "mpt_cuda_list_create",
            MPT_E_CUDA);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "capturing") != NULL);
    REFUSED(mpt_cuda_state_create(gpu.cuda, &state, &run.scaler, 0.1f), "mpt_cuda_state_create", MPT_E_CUDA);
    CHECK(other == NULL && state == NULL);
    CHECK(cudaStreamEndCapture(gpu.stream, &graph) != cudaSuccess);     /* CUDA has invalidated the capture */
    (void)cudaGetLastError();
    mpt_cuda_list_destroy(mine);
}

/* The kernels were compiled for other GPUs than this one. */
TEST(unsupported_architecture)
{
    static const struct { cudaError_t error; const char *says; } cases[] = {
        {cudaErrorNoKernelImageForDevice, "-arch"}, {cudaErrorInvalidDeviceFunction, "-arch"},
        {cudaErrorUnsupportedPtxVersion, "driver"}};
    Run run(list_mixed(), 1024.0f, 2000, 0.01f);
    for (const auto &k : cases) {
        mpt_emu::controls().launch_error = k.error;
        REFUSED(mpt_cuda_check(gpu.cuda, run.list, run.state, gpu.stream), "mpt_cuda_check", MPT_E_CUDA);
        CHECK_EQ_I(mpt_cuda_error_code(gpu.cuda), (int)k.error);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), k.says) != NULL);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    mpt_emu::controls().launch_error = cudaSuccess;
    run.compare_state(0);
    run.compare_grads();
}

/* Let the k-th allocation, or the k-th copy, of a create fail, for every k that there is. */
static void create_with_failure(int *countdown, mpt_status want, int list_calls, int state_calls)
{
    Run                     run(list_mixed(), 1024.0f, 2000, 0.01f);
    const size_t            before = mpt_emu::outstanding();
    std::vector<mpt_tensor> device;
    int                     k;
    for (Twin &t : run.twins) device.push_back(t.tensor(true));
    for (k = 1;; k++) {
        mpt_cuda_list *list = (mpt_cuda_list *)&run;
        *countdown = k;
        const mpt_status got = mpt_cuda_list_create(gpu.cuda, &list, device.data(), device.size());
        if (got == MPT_OK) {
            mpt_cuda_list_destroy(list);
            break;
        }
        refused(got, "list_create, planned failure", "mpt_cuda_list_create", want, __LINE__);
        CHECK(list == NULL);
        CHECK_EQ_U(mpt_emu::outstanding(), before);
    }
    CHECK_EQ_I(k - 1, list_calls);
    for (k = 1;; k++) {
        mpt_cuda_state *state = (mpt_cuda_state *)&run;
        *countdown = k;
        const mpt_status got = mpt_cuda_state_create(gpu.cuda, &state, &run.scaler, 0.1f);
        if (got == MPT_OK) {
            mpt_cuda_state_destroy(state);
            break;
        }
        refused(got, "state_create, planned failure", "mpt_cuda_state_create", want, __LINE__);
        CHECK(state == NULL);
        CHECK_EQ_U(mpt_emu::outstanding(), before);
    }
    CHECK_EQ_I(k - 1, state_calls);
    *countdown = 0;
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST(create_fails)
{
    create_with_failure(&mpt_emu::controls().fail_malloc, MPT_E_MEMORY, 2, 1);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "free device memory") != NULL);
    create_with_failure(&mpt_emu::controls().fail_copy, MPT_E_CUDA, 1, 1);
}

#define FAILS(countdown, error, call, name)                         \
    do {                                                            \
        mpt_emu::controls().countdown = 1;                          \
        REFUSED(call, name, MPT_E_CUDA);                            \
        CHECK_EQ_I(mpt_cuda_error_code(gpu.cuda), (int)error);      \
        CHECK(cudaPeekAtLastError() == cudaSuccess);                \
    } while (0)
#define LAUNCH_FAILS(call, name) FAILS(fail_launch, cudaErrorLaunchFailure, call, name)

TEST(launch_fails)
{
    Run             run(list_mixed(), 1024.0f, 2000, 0.01f);
    mpt_cuda *const c = gpu.cuda;
    mpt_cuda_state  host = download(run.state);
    const mpt_sgd   sgd = {0.01f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    const mpt_adamw adamw = mpt_adamw_defaults();
    Buffer          a(400, 0), b(400, 0);
    for (const Conversion &conversion : conversions)
        LAUNCH_FAILS(convert_device(&conversion, a.device(), b.device(), 100), "mpt_cuda_convert_n");
    LAUNCH_FAILS(mpt_cuda_scaler_scale_n(c, run.state, MPT_F32, NULL, 0, gpu.stream),
                 "mpt_cuda_scaler_scale_n");
    LAUNCH_FAILS(mpt_cuda_check(c, run.list, run.state, gpu.stream), "mpt_cuda_check");
    LAUNCH_FAILS(mpt_cuda_unscale(c, run.list, run.state, gpu.stream), "mpt_cuda_unscale");
    LAUNCH_FAILS(mpt_cuda_clip(c, run.state, 1.0f, gpu.stream), "mpt_cuda_clip");
    LAUNCH_FAILS(mpt_cuda_sgd_step(c, run.list, run.state, &sgd, gpu.stream), "mpt_cuda_sgd_step");
    LAUNCH_FAILS(mpt_cuda_adamw_step(c, run.list, run.state, &adamw, gpu.stream), "mpt_cuda_adamw_step");
    LAUNCH_FAILS(mpt_cuda_scaler_update(c, run.state, gpu.stream), "mpt_cuda_scaler_update");
    LAUNCH_FAILS(mpt_cuda_lr_set(c, run.state, 1.0f, gpu.stream), "mpt_cuda_lr_set");
    LAUNCH_FAILS(mpt_cuda_state_set(c, run.state, &host, gpu.stream), "mpt_cuda_state_set");
    FAILS(fail_copy, cudaErrorUnknown, mpt_cuda_state_get(c, &host, run.state, gpu.stream),
          "mpt_cuda_state_get");
    CHECK(a.same());
    run.compare_state(0);
    run.compare_weights();
    run.compare_grads();
}
#endif

// -------------------------------------------------------------------------------------------------
#define COMMON_TESTS(X)                                                                                    \
    X(convert_narrow) X(convert_widen) X(convert_sizes) X(convert_all_floats) X(check_each_size)           \
    X(check_lists) X(check_long_tensor) X(accumulate) X(long_tensors) X(check_bad_values)                  \
    X(check_small_scale) X(scale_array) X(clip) X(scaler_traces) X(learning_rate) X(state_round_trip)      \
    X(sgd_steps) X(adamw_steps) X(steps_by_format) X(steps_on_any_grid) X(steps_without_moments)           \
    X(wrong_order) X(graph_replay) X(graph_state_set) X(null_arguments) X(null_context) X(null_arrays)     \
    X(bad_lists) X(state_read_later) X(a_list_outlives_its_context) X(a_list_of_another_state)              \
    X(lists_that_lack) X(wrong_list) X(bad_numbers) X(bad_device)
#ifdef MPT_CUDA_EMU
#define TESTS(X) COMMON_TESTS(X) X(step_never_waits) X(other_calls_never_wait) X(no_gpu) X(create_fails) \
    X(non_blocking_stream) X(overflow_is_cheap) X(block_count_heals) X(launch_fails) X(another_device)   \
    X(list_changed_while_captured) X(unsupported_architecture)
#else
#define TESTS(X) COMMON_TESTS(X)
#endif

static void run_all(void)
{
#define RUN_ONE(name) RUN(name);
    TESTS(RUN_ONE)
}

int main(int argc, char **argv) { return cuda_main(argc, argv, run_all); }
