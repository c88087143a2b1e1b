/* test_cuda_convert.cu -- tests of the array conversions of mpt_cuda.h, for all pairs of formats, and of its
 * blocks: against the same functions on the CPU. All bytes are compared, including those around the arrays.
 *
 *     cc -O2 -I. -c tests/impl.c
 *     nvcc -std=c++17 -O2 -I. tests/test_cuda_convert.cu tests/impl_cuda.cu impl.o -lcublasLt
 * or, without a GPU,
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. tests/test_cuda_convert.cu \
 *         tests/impl_cuda.cu -x none impl.o
 *
 * --small is for ThreadSanitizer and the like: fewer sizes. */
#include "cuda.h"

#include <functional>
#include <utility>

/* A conversion between two formats, which may saturate. */
struct Conversion {
    char       name[40];
    mpt_format to, from;
    mpt_opts   opts;
    bool       has_opts;

    Conversion(mpt_format to_, mpt_format from_, bool saturate)
        : to(to_), from(from_), opts(), has_opts(saturate)
    {
        if (saturate) opts.overflow = MPT_OVERFLOW_SATURATE;
        snprintf(name, sizeof name, "%s from %s%s", mpt_format_get(to)->name, mpt_format_get(from)->name,
                 saturate ? ", saturating" : "");
    }
    const mpt_opts *options() const { return has_opts ? &opts : NULL; }
    mpt_status host(void *dst, const void *src, size_t n) const
    {
        return mpt_convert_n(to, dst, from, src, n, options(), NULL);
    }
    mpt_status device(mpt_cuda *c, void *dst, const void *src, size_t n, mpt_stream stream) const
    {
        return mpt_cuda_convert_n(c, to, dst, from, src, n, options(), NULL, stream);
    }
};

static std::vector<Conversion> all_conversions()
{
    static const mpt_format formats[] = {MPT_F64, MPT_F32, MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2};
    std::vector<Conversion> all;
    for (mpt_format to : formats)
        for (mpt_format from : formats) {
            if (to == from) continue;
            all.push_back(Conversion(to, from, false));
            if (to == MPT_E4M3 || to == MPT_E5M2) all.push_back(Conversion(to, from, true));
        }
    return all;
}
static const std::vector<Conversion> conversions = all_conversions();

static size_t size_of(mpt_format f) { return (size_t)mpt_format_get(f)->bytes; }

static void put(void *array, mpt_format f, size_t i, uint64_t code)
{
    mt_put((unsigned char *)array + i * size_of(f), size_of(f), code);
}

static void both(const Conversion &c, const std::vector<uint64_t> &codes, size_t src_shift, size_t dst_shift)
{
    const size_t n = codes.size();
    Buffer       src(n * size_of(c.from), src_shift * size_of(c.from));
    Buffer       dst(n * size_of(c.to), dst_shift * size_of(c.to));
    for (size_t i = 0; i < n; i++) put(src.host(), c.from, i, codes[i]);
    src.upload();
    mt_context(c.name, NULL);
    CHECK_EQ_I(c.host(dst.host(), src.host(), n), MPT_OK);
    if (!CHECK_EQ_I(c.device(gpu.cuda, dst.device(), src.device(), n, gpu.stream), MPT_OK))
        printf("    %s\n", mpt_cuda_error_text(gpu.cuda));
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(dst.same());
    CHECK(src.same());
}

/* Every code of a narrow format; of a wide one every exponent with the significands on, just below and just
 * above each bit, and random ones. Halfway cases of each target are among them. */
static std::vector<uint64_t> patterns(mpt_format f)
{
    const mpt_format_info *i = mpt_format_get(f);
    std::vector<uint64_t>  codes;
    if (i->bits <= 16) {
        for (uint64_t code = 0; code < (uint64_t)1 << i->bits; code += gpu.small && i->bits > 8 ? 7 : 1)
            codes.push_back(code);
        return codes;
    }
    for (uint64_t top = 0; top < (uint64_t)2 << i->exponent_bits; top++)
        for (int bit = 0; bit < i->mantissa_bits; bit += gpu.small ? 5 : 2) {
            const uint64_t base = top << i->mantissa_bits, one = 1;
            codes.push_back(base);
            codes.push_back(base + (one << bit));
            codes.push_back(base + (one << bit) - 1);
            codes.push_back(base + (one << bit) + 1);
            codes.push_back(base + (mt_random() & ((one << i->mantissa_bits) - 1)));
        }
    return codes;
}

TEST(all_pairs)
{
    for (const Conversion &c : conversions) both(c, patterns(c.from), 0, 0);
}

TEST(sizes_and_alignments)
{
    static const size_t sizes[] = {0,  1,  2,  3,  7,    8,    9,    15,   16,
                                   17, 31, 33, 47, 2047, 2048, 2049, 4097, 8193};
    static const size_t shifts[][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {3, 5}, {16, 8}};
    for (const Conversion &c : conversions)
        for (size_t n : sizes)
            for (const size_t *shift : shifts) {
                std::vector<uint64_t> codes;
                if (gpu.small && n > 47)
                    continue;
                for (size_t i = 0; i < n; i++) codes.push_back(mt_random());
                both(c, codes, shift[0], shift[1]);
            }
}

#define REFUSED(call, status, text)                                      \
    CHECK_EQ_I(call, status);                                            \
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), text) != NULL)

/* Conversions that the GPU does not have: the CPU would take its slow path, or has nothing to do. */
TEST(conversions_that_are_refused)
{
    Buffer      a(64, 0), b(64, 0);
    void *const p = a.device(), *const q = b.device();
#define CONVERT(to, from, options) mpt_cuda_convert_n(gpu.cuda, to, p, from, q, 4, options, NULL, gpu.stream)
    for (int to = 0; to <= (int)MPT_FORMAT_COUNT; to++)
        for (int from = 0; from <= (int)MPT_FORMAT_COUNT; from++) {
            bool taken = false;
            for (const Conversion &c : conversions) taken = taken || ((int)c.to == to && (int)c.from == from);
            if (taken) continue;
            REFUSED(CONVERT((mpt_format)to, (mpt_format)from, NULL), MPT_E_UNSUPPORTED,
                    "mpt_cuda_convert_n: dst_format");
        }
    const mpt_status no = MPT_E_UNSUPPORTED;
    struct { mpt_format to, from; mpt_status status; const char *text; void (*set)(mpt_opts *); } bad[] = {
        {MPT_F16, MPT_F32, no, "options", [](mpt_opts *o) { o->overflow = MPT_OVERFLOW_SATURATE; }},
        {MPT_E4M3, MPT_F32, no, "options", [](mpt_opts *o) { o->overflow = MPT_OVERFLOW_NAN; }},
        {MPT_E4M3, MPT_F32, no, "options", [](mpt_opts *o) { o->flush = MPT_FLUSH_RESULTS; }},
        {MPT_F16, MPT_F32, no, "options", [](mpt_opts *o) { o->nan = MPT_NAN_CANONICAL; }},
        {MPT_F16, MPT_F32, no, "options", [](mpt_opts *o) { o->rounding = MPT_RND_UP; }},
        {MPT_E4M3, MPT_F32, no, "options", [](mpt_opts *o) {
             o->rounding = MPT_RND_STOCHASTIC;
             o->overflow = MPT_OVERFLOW_SATURATE;
         }},
        {MPT_F64, MPT_F32, no, "from f32", [](mpt_opts *o) { o->rounding = MPT_RND_STOCHASTIC; }},
        {MPT_E4M3, MPT_F16, no, "from f32", [](mpt_opts *o) { o->rounding = MPT_RND_STOCHASTIC; }},
        {MPT_F16, MPT_F32, MPT_E_ARG, "unknown", [](mpt_opts *o) { o->rounding = MPT_ROUNDING_COUNT; }},
        {MPT_F16, MPT_F32, MPT_E_ARG, "unknown", [](mpt_opts *o) { o->flush = 4u; }}};
    for (const auto &row : bad) {
        mpt_opts o = {};
        row.set(&o);
        REFUSED(CONVERT(row.to, row.from, &o), row.status, row.text);
    }
    const uint32_t words[4] = {};
    mpt_opts       o = {};
    o.rounding = MPT_RND_STOCHASTIC;
    o.randoms = words;
    REFUSED(CONVERT(MPT_F16, MPT_F32, &o), MPT_E_UNSUPPORTED, "own random bits");
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(a.same() && b.same());
    /* options for flags and for stochastic rounding change nothing here */
    o.rounding = MPT_RND_NEAREST_EVEN;
    o.tininess = MPT_TININESS_BEFORE;
    o.random = 7;
    for (size_t i = 0; i < 4; i++) put(b.host(), MPT_F32, i, 0x3dcccccdu);
    b.upload();
    OK(CONVERT(MPT_F16, MPT_F32, &o));
    for (size_t i = 0; i < 4; i++) put(a.host(), MPT_F16, i, 0x2e66u);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(a.same() && b.same());
#undef CONVERT
}

TEST(bad_arguments)
{
    {
        Buffer x(64, 0), y(64, 0);
        mpt_cuda *const    c = gpu.cuda;
        const cudaStream_t s = gpu.stream;
        char *const        p = (char *)x.device();
        const size_t       many_rows = (size_t)1 << 32;
        CHECK_EQ_I(mpt_cuda_convert_n(c, MPT_F64, p, MPT_F32, y.device(), (SIZE_MAX >> 3) + 2, NULL, NULL, s),
                   MPT_E_ARG);
        CHECK_EQ_I(mpt_cuda_fp8_encode_transpose(c, MPT_E4M3, NULL, p, MPT_F32, y.device(), many_rows,
                                                 many_rows, NULL, NULL, s), MPT_E_ARG);
        CHECK_EQ_I(mpt_cuda_convert_n(c, MPT_F32, p, MPT_F16, p + 32, 16, NULL, NULL, s), MPT_E_ARG);
        CHECK_EQ_I(mpt_cuda_convert_n(c, MPT_F16, p + 32, MPT_F32, p, 16, NULL, NULL, s), MPT_E_ARG);
        CHECK_EQ_I(mpt_cuda_fp8_encode_transpose(c, MPT_E4M3, NULL, p + 32, MPT_F32, p, 4, 4, NULL, NULL, s),
                   MPT_E_ARG);
        CHECK_EQ_I(mpt_cuda_fp8_encode_n(c, MPT_E4M3, p, MPT_F32, y.device(), 4, (float *)(p + 34), NULL, s),
                   MPT_E_ARG);
        mpt_block_opts packed = {};
        packed.packed = 1;
        CHECK_EQ_I(mpt_cuda_block_quantize_n(c, MPT_MXFP4, (uint8_t *)p, (uint8_t *)p + 4, MPT_F32,
                                             y.device(), 16, 0, &packed, s), MPT_E_ARG);
        mpt_fp8_scaling many = {};
        many.recipe = mpt_fp8_defaults(MPT_E4M3);
        many.count = ((uint64_t)1 << 32) + 1;
        many.scale = many.inverse = many.amax = many.history = (float *)p;
        many.recipe.length = 1;
        CHECK_EQ_I(mpt_cuda_fp8_update(gpu.cuda, &many, gpu.stream), MPT_E_CUDA);
        CU(cudaStreamSynchronize(gpu.stream));
    }
    Buffer a(64, 0), b(64, 0);
    for (const Conversion &c : conversions) {
        CHECK_EQ_I(c.device(gpu.cuda, NULL, a.device(), 1, gpu.stream), MPT_E_ARG);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "mpt_cuda_convert_n: ") != NULL);
        CHECK_EQ_I(c.device(gpu.cuda, a.device(), NULL, 1, gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(c.device(NULL, a.device(), b.device(), 1, gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(c.device(gpu.cuda, a.device(), a.device(), 8, gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(c.device(gpu.cuda, a.device(), b.device(), (size_t)-1, gpu.stream), MPT_E_ARG);
        for (int off = 0; off < 2; off++)       /* dst, or src, is no multiple of its elements' size */
            if ((off ? size_of(c.from) : size_of(c.to)) > 1)
                CHECK_EQ_I(c.device(gpu.cuda, (char *)a.device() + !off, (char *)b.device() + off, 1,
                                    gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(c.device(gpu.cuda, NULL, NULL, 0, gpu.stream), MPT_OK);
    }
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(a.same() && b.same());
}

// stochastic, FP8 with scale and amax ---------------------------------------------------------------
/* Machines that run the same kernels: results must not depend on the grid. A real GPU is one machine only,
 * and under ThreadSanitizer all would be the same. */
#if defined(MPT_CUDA_EMU) && !MPT_EMU_TSAN
static const int grids[] = {1, 4, 13};
#else
static const int grids[] = {1};
#endif

/* While an object of this type lives, gpu.cuda is a context of a machine with so many multiprocessors. */
struct Grid {
    mpt_cuda *outer = gpu.cuda;
#ifdef MPT_CUDA_EMU
    int saved = mpt_emu::controls().sms;
    explicit Grid(int sms)
    {
        mpt_emu::controls().sms = sms_here(sms);
        CHECK_EQ_I(mpt_cuda_create(&gpu.cuda, 0), MPT_OK);
    }
    ~Grid()
    {
        mpt_cuda_destroy(gpu.cuda);
        gpu.cuda = outer;
        mpt_emu::controls().sms = saved;
    }
#else
    explicit Grid(int) {}
#endif
};

static float *at_float(Buffer &b, size_t i) { return (float *)b.device() + i; }
static float &of_float(Buffer &b, size_t i) { return ((float *)b.host())[i]; }

/* Numbers of all magnitudes, most of them in the range of FP8, and Inf and NaN. */
static void fill_source(Buffer &b, mpt_format f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)mt_random(), near = (u & 0x87ffffffu) + 0x38000000u;
        const uint32_t code = i % 61 == 7 ? u | 0x7f800000u : i % 5 ? near : u, sign = u & 0x80000000u;
        const bool     inf = i % 61 == 11;
        put(b.host(), f, i, f == MPT_F16 ? inf ? (sign | 0x7c000000u) >> 16 : u >> 16
                            : (inf ? sign | 0x7f800000u : code) >> (f == MPT_BF16 ? 16 : 0));
    }
    b.upload();
}

static const mpt_format fp8_formats[] = {MPT_E4M3, MPT_E5M2}, fp8_sources[] = {MPT_F32, MPT_F16, MPT_BF16};

static void stochastic(mpt_format to, size_t n, const mpt_opts &o, size_t shift)
{
    Buffer src(n * 4, shift * 4), dst(n * size_of(to), shift * size_of(to));
    fill_source(src, MPT_F32, n);
    CHECK_EQ_I(mpt_convert_n(to, dst.host(), MPT_F32, src.host(), n, &o, NULL), MPT_OK);
    CHECK_EQ_I(mpt_cuda_convert_n(gpu.cuda, to, dst.device(), MPT_F32, src.device(), n, &o, NULL, gpu.stream),
               MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(dst.same());
    CHECK(src.same());
}

TEST(stochastic_is_the_cpus)
{
    static const mpt_format formats[] = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2};
    static const size_t     sizes[] = {0, 1, 3, 4, 5, 15, 16, 17, 4095, 4096, 4097, 20000};
    for (int grid : grids) {
        const Grid here(grid);
        for (mpt_format to : formats)
            for (size_t n : sizes) {
                mpt_opts o = {};
                if (gpu.small && n > 4097)
                    continue;
                o.rounding = MPT_RND_STOCHASTIC;
                o.seed = mt_random();
                o.stream = (uint32_t)mt_random();
                o.step = mt_random();
                o.first_element = n == 17 ? (uint64_t)-9 : n % 2 ? ((uint64_t)1 << 34) - 40 + n : n % 3;
                stochastic(to, n, o, n % 7 == 5);
            }
    }
}

/* Numbers converted in pieces give the same results as at once. A state adds its updates to the step. */
TEST(stochastic_in_pieces)
{
    static const size_t cuts[] = {0, 1, 6, 100, 103, 1000};
    Buffer              src(4000, 0), dst(2000, 0), lone(2000, 0);
    mpt_opts            o = {}, later;
    mpt_scaler          scaler;
    mpt_cuda_state     *state;
    o.rounding = MPT_RND_STOCHASTIC;
    fill_source(src, MPT_F32, 1000);
    CHECK_EQ_I(mpt_convert_n(MPT_BF16, dst.host(), MPT_F32, src.host(), 1000, &o, NULL), MPT_OK);
    for (size_t k = 0; k + 1 < sizeof cuts / sizeof *cuts; k++) {
        o.first_element = cuts[k];
        CHECK_EQ_I(mpt_cuda_convert_n(gpu.cuda, MPT_BF16, (uint16_t *)dst.device() + cuts[k], MPT_F32,
                                      at_float(src, cuts[k]), cuts[k + 1] - cuts[k], &o, NULL, gpu.stream),
                   MPT_OK);
    }
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(dst.same());
    o.first_element = 0;
    later = o;
    o.step = 3;
    later.step = 8;
    CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
    scaler.updates = 5;
    CHECK_EQ_I(mpt_cuda_state_create(gpu.cuda, &state, &scaler, 0.1f), MPT_OK);
    CHECK_EQ_I(mpt_convert_n(MPT_F16, lone.host(), MPT_F32, src.host(), 1000, &later, NULL), MPT_OK);
    CHECK_EQ_I(mpt_cuda_convert_n(gpu.cuda, MPT_F16, lone.device(), MPT_F32, src.device(), 1000, &o, state,
                                  gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(lone.same());
    mpt_cuda_state_destroy(state);
}

static void encode(mpt_format to, mpt_format from, size_t n, float scale, size_t shift, bool noted)
{
    Buffer src(n * size_of(from), shift * size_of(from)), dst(n, 3 * shift), numbers(8, 0);
    fill_source(src, from, n);
    of_float(numbers, 0) = scale;
    of_float(numbers, 1) = n % 3 ? 0.0f : 1.0e30f;
    if (n % 2)                              /* without Inf and NaN, so that amax is a number */
        for (size_t i = 0; i < n; i++) put(src.host(), from, i, i * 37 % 0x3c00);
    src.upload();
    numbers.upload();
    CHECK_EQ_I(mpt_fp8_encode_n(to, dst.host(), from, src.host(), n, &of_float(numbers, 0),
                                noted ? &of_float(numbers, 1) : NULL), MPT_OK);
    CHECK_EQ_I(mpt_cuda_fp8_encode_n(gpu.cuda, to, dst.device(), from, src.device(), n, at_float(numbers, 0),
                                     noted ? at_float(numbers, 1) : NULL, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(numbers.same());                  /* once more, for amax only, stored over the scale */
    CHECK_EQ_I(mpt_fp8_encode_n(to, NULL, from, src.host(), n, NULL, &of_float(numbers, 0)), MPT_OK);
    CHECK_EQ_I(mpt_cuda_fp8_encode_n(gpu.cuda, to, NULL, from, src.device(), n, NULL, at_float(numbers, 0),
                                     gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(dst.same());
    CHECK(src.same());
    CHECK(numbers.same());
}

TEST(fp8_encode)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 31, 33, 4095, 4096, 4097, 8191, 8193, 30001};
    static const float  scales[] = {1.0f, 0.37f, 4096.0f, 0.0f};
    for (size_t turn = 0; turn < 6; turn++)
        for (size_t n : sizes)
            if (races ? n == 17 || n == 4097 : !gpu.small || n <= 33 || n == 4097)
                encode(fp8_formats[turn % 2], fp8_sources[turn / 2], n, scales[(n + turn) % 4], n % 5 == 1,
                       n % 4 != 2);
    for (int grid : grids) {            /* more blocks than one multiprocessor takes */
        const Grid here(grid);
        if (!gpu.small) encode(MPT_E4M3, MPT_F16, 123457, 0.37f, 0, true);
    }
}

static void transpose(mpt_format to, mpt_format from, size_t rows, size_t cols, bool both, size_t shift)
{
    const size_t n = rows * cols;
    Buffer       src(n * size_of(from), shift * size_of(from)), dst(n, shift), flipped(n, shift);
    Buffer       numbers(8, 0);
    fill_source(src, from, n);
    of_float(numbers, 0) = 0.75f;
    of_float(numbers, 1) = 0.0f;
    numbers.upload();
    CHECK_EQ_I(mpt_fp8_encode_transpose(to, both ? dst.host() : NULL, flipped.host(), from, src.host(), rows,
                                        cols, &of_float(numbers, 0), &of_float(numbers, 1)), MPT_OK);
    CHECK_EQ_I(mpt_cuda_fp8_encode_transpose(gpu.cuda, to, both ? dst.device() : NULL, flipped.device(), from,
                                             src.device(), rows, cols, at_float(numbers, 0),
                                             at_float(numbers, 1), gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(dst.same());
    CHECK(flipped.same());
    CHECK(src.same());
    CHECK(numbers.same());
}

TEST(fp8_encode_transpose)
{
    static const size_t shapes[][2] = {{0, 9},   {9, 0},   {1, 1},    {2, 1200}, {1200, 1}, {3, 5},
                                       {63, 65}, {64, 64}, {128, 128}, {130, 267}, {129, 1}, {384, 136}};
    for (int grid : grids) {
        const Grid here(grid);
        for (size_t turn = 0; turn < 6; turn++)
            for (const size_t *shape : shapes)
                if (races ? shape[1] == 65 : !gpu.small || shape[0] * shape[1] <= 16384)
                    transpose(fp8_formats[turn % 2], fp8_sources[turn / 2], shape[0], shape[1], turn % 3 != 1,
                              (turn + shape[0]) % 3 == 1);
    }
}

/* Each access of half a warp to the tile, as the kernel makes it, touches 16 different pairs of banks. */
TEST(the_tile_has_no_bank_conflicts)
{
    bool     taken[TILE_SIDE * TILE_WORDS] = {};
    uint32_t banks, lane;
    for (uint32_t half = 0; half < 2 * TILE_WARPS; half++)
        for (uint32_t k = 0; k < 8; k++) {
            for (banks = 0, lane = 0; lane < 16; lane++) {      /* thread 16 half + lane writes */
                banks |= 1u << tile_place(lane * 8 + k, half) % 16;
                taken[tile_place(lane * 8 + k, half)] = true;
            }
            CHECK_EQ_U(banks, 0xffffu);
            for (banks = 0, lane = 0; lane < 16; lane++)        /* and reads */
                banks |= 1u << tile_place(half + k * 16, lane) % 16;
            CHECK_EQ_U(banks, 0xffffu);
        }
    for (bool t : taken) CHECK(t);
}

/* Delayed scaling of some tensors over some steps on device and host; all arrays are compared, with the gaps
 * between the inverses. */
static void scaling(const mpt_fp8_recipe &recipe, size_t count, int steps)
{
    const size_t    total = 6 * count + count * recipe.length;
    Buffer          memory(4 * total, 0);
    mpt_fp8_scaling host = {}, device;
    host.recipe = recipe;
    host.count = count;
    host.inverse_step = recipe.length % 2 ? 4 : 0;
    device = host;
    float *const h = (float *)memory.host(), *const d = (float *)memory.device();
    host.scale = h, host.inverse = h + count, host.amax = h + 5 * count, host.history = h + 6 * count;
    device.scale = d, device.inverse = d + count, device.amax = d + 5 * count, device.history = d + 6 * count;
    CHECK_EQ_I(mpt_fp8_init(&host), MPT_OK);
    CHECK_EQ_I(mpt_cuda_fp8_init(gpu.cuda, &device, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(memory.same());
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < count; i++) {
            const uint32_t u = (uint32_t)mt_random();
            put(host.amax, MPT_F32, i, u % 7 == 0 ? 0 : u % 31 == 1 ? 0x7f800000u + u % 2 : u % 0x7f800000u);
        }
        memory.upload();
        CHECK_EQ_I(mpt_fp8_update(&host), MPT_OK);
        CHECK_EQ_I(mpt_cuda_fp8_update(gpu.cuda, &device, gpu.stream), MPT_OK);
        CU(cudaStreamSynchronize(gpu.stream));
        CHECK(memory.same());
    }
}

TEST(fp8_scaling)
{
    static const uint32_t lengths[] = {1, 2, 3, 255, 256, 257, 600};
    for (int grid : grids) {
        const Grid here(grid);
        for (uint32_t length : lengths)
            for (uint32_t turn = 0; turn < 4; turn++) {
                mpt_fp8_recipe r = mpt_fp8_defaults(turn % 2 ? MPT_E5M2 : MPT_E4M3);
                if (gpu.small && ((length != 3 && length != 257) || turn % 3))
                    continue;
                r.length = length;
                r.choice = turn / 2 ? MPT_AMAX_MOST_RECENT : MPT_AMAX_MAX;
                r.margin = (int32_t)turn - 1;
                r.power_of_two = turn == 1;
                r.drop_bad = turn == 3 || length == 3;
                scaling(r, gpu.small ? 3 : turn + length % 3 * 20, gpu.small ? 2 : length < 5 ? 8 : 4);
            }
    }
}

/* A training step, captured once and replayed: encode with the scale, record amax, update. */
TEST(fp8_in_a_graph)
{
    const size_t    n = 5000;
    Buffer          src(4 * n, 0), dst(n, 0), memory(4 * 8, 0);
    mpt_fp8_scaling s = {}, on_host;
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t exec = NULL;
    s.recipe = mpt_fp8_defaults(MPT_E4M3);
    s.recipe.length = 5;
    s.count = 1;
    on_host = s;
    float *const h = (float *)memory.host(), *const d = (float *)memory.device();
    on_host.scale = h, on_host.inverse = h + 1, on_host.amax = h + 2, on_host.history = h + 3;
    s.scale = d, s.inverse = d + 1, s.amax = d + 2, s.history = d + 3;
    CHECK_EQ_I(mpt_fp8_init(&on_host), MPT_OK);
    memory.upload();
    CU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
    CHECK_EQ_I(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, dst.device(), MPT_F32, src.device(), n, s.scale,
                                     s.amax, gpu.stream), MPT_OK);
    CHECK_EQ_I(mpt_cuda_fp8_update(gpu.cuda, &s, gpu.stream), MPT_OK);
    CU(cudaStreamEndCapture(gpu.stream, &graph));
    CU(cudaGraphInstantiate(&exec, graph, 0));
    for (int step = 0; step < 12; step++) {
        for (size_t i = 0; i < n; i++)
            put(src.host(), MPT_F32, i, step == 4 && i == 77 ? 0x7f800000u
                : (uint32_t)mt_random() % 0x02000000u + ((uint32_t)step << 23) + 0x3a000000u);
        src.upload();
        CHECK_EQ_I(mpt_fp8_encode_n(MPT_E4M3, dst.host(), MPT_F32, src.host(), n, on_host.scale,
                                    on_host.amax), MPT_OK);
        CHECK_EQ_I(mpt_fp8_update(&on_host), MPT_OK);
        CU(cudaGraphLaunch(exec, gpu.stream));
        CU(cudaStreamSynchronize(gpu.stream));
        CHECK(dst.same());
        CHECK(memory.same());
    }
    CU(cudaGraphExecDestroy(exec));
    CU(cudaGraphDestroy(graph));
}

TEST(fp8_refuses)
{
    Buffer          a(64, 0), b(64, 0);
    mpt_fp8_scaling s = {}, t;
    float *const    f = (float *)a.device();
    s.recipe = mpt_fp8_defaults(MPT_E4M3);
    s.recipe.length = 1;
    s.count = 1;
    s.scale = f, s.inverse = f + 1, s.amax = f + 2, s.history = f + 3;
#define REFUSED_RECIPE(field, value, status)                             \
    t = s;                                                               \
    t.field = value;                                                     \
    REFUSED(mpt_cuda_fp8_update(gpu.cuda, &t, gpu.stream), status, "mpt_cuda_fp8_update: "); \
    REFUSED(mpt_cuda_fp8_init(gpu.cuda, &t, gpu.stream), status, "mpt_cuda_fp8_init: ")
    REFUSED_RECIPE(scale, NULL, MPT_E_ARG);
    REFUSED_RECIPE(inverse, NULL, MPT_E_ARG);
    REFUSED_RECIPE(amax, NULL, MPT_E_ARG);
    REFUSED_RECIPE(history, NULL, MPT_E_ARG);
    REFUSED_RECIPE(recipe.length, 0, MPT_E_ARG);
    REFUSED_RECIPE(recipe.margin, 33, MPT_E_ARG);
    REFUSED_RECIPE(recipe.margin, -33, MPT_E_ARG);
    REFUSED_RECIPE(recipe.choice, MPT_AMAX_CHOICE_COUNT, MPT_E_ARG);
    REFUSED_RECIPE(recipe.format, MPT_BF16, MPT_E_UNSUPPORTED);
    REFUSED(mpt_cuda_fp8_update(gpu.cuda, NULL, gpu.stream), MPT_E_ARG, "NULL");
    CHECK_EQ_I(mpt_cuda_fp8_update(NULL, &s, gpu.stream), MPT_E_ARG);
    t = s;
    t.count = 0;
    t.scale = NULL;
    CHECK_EQ_I(mpt_cuda_fp8_update(gpu.cuda, &t, gpu.stream), MPT_OK);
    CHECK_EQ_I(mpt_cuda_fp8_init(gpu.cuda, &t, gpu.stream), MPT_OK);

    void *const  p = a.device(), *const q = b.device();
    const float *scale = NULL;
    REFUSED(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, NULL, MPT_F32, q, 1, scale, NULL, gpu.stream),
            MPT_E_ARG, "mpt_cuda_fp8_encode_n");
    REFUSED(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, p, MPT_F32, NULL, 1, scale, f, gpu.stream), MPT_E_ARG,
            "");
    REFUSED(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_F16, p, MPT_F32, q, 1, scale, f, gpu.stream),
            MPT_E_UNSUPPORTED, "dst_format");
    REFUSED(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, p, MPT_F32, p, 1, scale, f, gpu.stream), MPT_E_ARG,
            "overlap");
    REFUSED(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, p, MPT_F32, q, (size_t)-1, scale, f, gpu.stream),
            MPT_E_ARG, "larger");
    REFUSED(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, p, MPT_F32, (char *)q + 2, 1, scale, f, gpu.stream),
            MPT_E_ARG, "multiple");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E4M3, p, (char *)p + 8, MPT_F16, q, 1, 1, scale,
                                          (float *)((char *)f + 2), gpu.stream), MPT_E_ARG, "multiple");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, p, p, MPT_F32, q, 1, 1, scale, f, gpu.stream),
            MPT_E_ARG, "overlap");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, p, q, MPT_F32, q, 1, 1, scale, f, gpu.stream),
            MPT_E_ARG, "overlap");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, q, p, MPT_F32, q, 1, 1, scale, f, gpu.stream),
            MPT_E_ARG, "overlap");
    REFUSED(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E5M2, p, MPT_F64, q, 1, scale, f, gpu.stream),
            MPT_E_UNSUPPORTED, "src_format");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, p, NULL, MPT_F32, q, 1, 1, scale, f,
                                          gpu.stream), MPT_E_ARG, "mpt_cuda_fp8_encode_transpose");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, p, p, MPT_F32, NULL, 1, 1, scale, f,
                                          gpu.stream), MPT_E_ARG, "");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, p, p, MPT_F32, q, (size_t)-1, 9, scale, f,
                                          gpu.stream), MPT_E_ARG, "larger than memory");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_BF16, p, p, MPT_F32, q, 1, 1, scale, f, gpu.stream),
            MPT_E_UNSUPPORTED, "dst_format");
    REFUSED(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, p, p, MPT_E4M3, q, 1, 1, scale, f, gpu.stream),
            MPT_E_UNSUPPORTED, "src_format");
    CHECK_EQ_I(mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E5M2, NULL, NULL, MPT_F32, NULL, 0, 7, scale, f,
                                             gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(a.same() && b.same());
}

// blocks ------------------------------------------------------------------------------------------
/* Runs of 24 numbers of one kind, so that a block has one kind or two: any pattern; zeros of both signs;
 * subnormals; the largest; small multiples of one number (ties); one number among zeros; Inf among equal
 * numbers; and numbers of one binade. */
static void fill_blocks(std::vector<float> &x)
{
    uint32_t base = 0u;
    for (size_t i = 0; i < x.size(); i++) {
        const uint32_t r = (uint32_t)mt_random(), sign = r & 0x80000000u, kind = (uint32_t)(i / 24 * 5 % 8);
        if (i % 24 == 0) base = (r >> 3) % 0x7f000000u & (r & 4u ? 0xfff00000u : ~0u);
        uint32_t u = kind == 0 ? r : kind == 1 ? sign : kind == 2 ? r & 0x807fffffu
                   : kind == 3 ? sign | (0x7f7fffffu - (r & 0xfffffu)) : base;
        float    f;
        if (kind == 5) u = r % 7 ? sign : base | sign;
        if (kind == 6) u = r % 5 ? base ^ sign : sign | 0x7f800000u;
        if (kind == 7) u = sign | (base & 0x7f800000u) | (r & 0x7fffffu);
        memcpy(&f, &u, sizeof f);
        x[i] = kind == 4 ? f * (float)((int)(r % 49u) - 24) : f;
    }
}

/* Where the scale of block k of line l is stored, in tiles of 128 by 4. */
static size_t tile_of_scales(size_t l, size_t k, size_t blocks)
{
    const size_t i = l / 128, j = k / 4, tiles = blocks / 4 + (blocks % 4 != 0);
    return (((i * tiles + j) * 32 + l % 32) * 4 + l / 32 % 4) * 4 + k % 4;
}

static void blocks(mpt_block block, mpt_format from, size_t n, size_t cols, const mpt_block_opts *o,
                   size_t shift)
{
    const mpt_block_info *const info = mpt_block_get(block);
    const size_t size = (size_t)info->size, lines = cols ? n / cols : 0, line = cols / size;
    const size_t tiles = (lines + 127) / 128 * ((line + 3) / 4), plain = (n + size - 1) / size;
    const size_t bytes = o && o->packed ? mpt_packed_size(n, mpt_format_get(info->element)->bits) : n;
    std::vector<float>   x(n);
    std::vector<uint8_t> scale(plain + 1);
    Buffer               src(n * size_of(from), shift * size_of(from)), codes(bytes, shift);
    Buffer               scales(cols ? tiles * 512 : plain, shift % 3);
    fill_blocks(x);
    for (size_t i = 0; i < n; i++) {        /* rounded to the source format */
        const uint64_t code = mpt_encode(from, x[i], NULL, NULL);
        put(src.host(), from, i, code);
        x[i] = (float)mpt_decode(from, (uint32_t)code);
    }
    src.upload();
    CHECK_EQ_I(mpt_block_quantize_n(block, (uint8_t *)codes.host(), scale.data(), x.data(), n, o), MPT_OK);
    uint8_t *const to = (uint8_t *)scales.host();
    if (!cols) memcpy(to, scale.data(), plain);
    else memset(to, 0, tiles * 512);
    for (size_t i = 0; cols && i < plain; i++) to[tile_of_scales(i / line, i % line, line)] = scale[i];
    uint8_t *const there = (uint8_t *)scales.device();
    CHECK_EQ_I(mpt_cuda_block_quantize_n(gpu.cuda, block, (uint8_t *)codes.device(), there, from,
                                         src.device(), n, cols, o, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(codes.same());
    CHECK(scales.same());
    CHECK(src.same());
}

static const mpt_block block_formats[] = {MPT_MXFP8_E4M3, MPT_MXFP8_E5M2, MPT_MXFP4, MPT_NVFP4};

TEST(block_quantize)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 1000, 4095, 4096, 4097, 20011};
    static const float  tensor_scales[] = {0.0f, 1.0f, 0x1p-20f, 0.37f, 3.3e-38f, 1e-45f, 2.7e38f};
    for (int grid : grids) {
        const Grid here(grid);
        for (mpt_block block : block_formats)
            for (mpt_format from : fp8_sources)
                for (size_t n : sizes) {
                    mpt_block_opts o = {};
                    if (gpu.small && n > 4097) continue;
                    blocks(block, from, n, 0, NULL, n % 5 == 1 ? 3 : 0);
                    o.packed = 1;
                    o.scaling = (mpt_block_scaling)(mt_random() % 4u);
                    o.tensor_scale = tensor_scales[mt_random() % (block == MPT_NVFP4 ? 7u : 2u)];
                    blocks(block, from, n, 0, &o, n % 3 == 1 ? 1 : 0);
                }
    }
}

/* Scales stored in tiles, which are full or in part empty. */
TEST(block_quantize_in_tiles)
{
    static const size_t shapes[][2] = {{1, 1}, {128, 4}, {127, 3}, {129, 5}, {3, 17}, {300, 8}, {256, 2}};
    for (const auto &s : shapes)
        for (mpt_block block : block_formats) {
            const size_t   cols = s[1] * (size_t)mpt_block_get(block)->size;
            mpt_block_opts o = {};
            if (gpu.small && s[0] > 200) continue;
            o.packed = 1;
            blocks(block, MPT_F32, s[0] * cols, cols, &o, 0);
            blocks(block, MPT_BF16, s[0] * cols, cols, NULL, 1);
        }
    blocks(MPT_NVFP4, MPT_F32, 0, 32, NULL, 0);
}

TEST(block_quantize_refuses)
{
    Buffer         x(4096, 0), codes(1024, 0), scales(512, 0);
    uint8_t *const c = (uint8_t *)codes.device(), *const s = (uint8_t *)scales.device();
    mpt_block_opts o = {}, odd = {}, bad = {}, scaled = {};
    odd.element.rounding = MPT_RND_TOWARD_ZERO;
    bad.tensor_scale = -1.0f;
    scaled.tensor_scale = 0.5f;     /* MX formats have none */
    const struct { mpt_status want; mpt_cuda *cuda; mpt_block block; uint8_t *codes, *scales; const void *src;
                   mpt_format from; size_t n, cols; const mpt_block_opts *o; } rows[] = {
        {MPT_E_ARG, NULL, MPT_MXFP4, c, s, x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_BLOCK_COUNT, c, s, x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, NULL, s, x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, NULL, x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, s, NULL, MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_NVFP4, c, s, x.device(), MPT_F32, 64, 0, &bad},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, s, x.device(), MPT_F32, 64, 0, &scaled},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, s, x.device(), MPT_F32, 96, 48, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, s, x.device(), MPT_F32, 96, 64, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, c + 63, x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, (uint8_t *)x.device() + 255, s, x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, (uint8_t *)x.device(), x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, s, x.device(), MPT_F32, (size_t)-1, 0, &o},
        {MPT_E_ARG, gpu.cuda, MPT_MXFP4, c, s, (char *)x.device() + 2, MPT_F32, 64, 0, &o},
        {MPT_E_UNSUPPORTED, gpu.cuda, MPT_MXFP4, c, s, x.device(), MPT_F64, 64, 0, &o},
        {MPT_E_UNSUPPORTED, gpu.cuda, MPT_MXFP4, c, s, x.device(), MPT_E4M3, 64, 0, &o},
        {MPT_E_UNSUPPORTED, gpu.cuda, MPT_MXFP4, c, s, x.device(), MPT_F32, 64, 0, &odd},
        {MPT_E_UNSUPPORTED, gpu.cuda, MPT_MXFP6_E2M3, c, s, x.device(), MPT_F32, 64, 0, &o},
        {MPT_E_UNSUPPORTED, gpu.cuda, MPT_MXFP6_E3M2, c, s, x.device(), MPT_F32, 64, 0, NULL}};
    for (const auto &r : rows)
        CHECK_EQ_I(mpt_cuda_block_quantize_n(r.cuda, r.block, r.codes, r.scales, r.from, r.src, r.n, r.cols,
                                             r.o, gpu.stream), r.want);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(codes.same() && scales.same() && x.same());
}

#ifdef MPT_CUDA_EMU
/* The headers use PTX's cvt for numbers that neither overflow nor are NaN: there it must equal the portable
 * path. This tests cvt as the PTX manual describes it; on a GPU all_floats tests the instructions. */
TEST(cvt_by_the_manual)
{
    std::vector<uint64_t> some = patterns(MPT_F32);
    const uint64_t        all = (uint64_t)1 << 32, count = mt.long_mode ? all : some.size();
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t u = mt.long_mode ? (uint32_t)i : (uint32_t)some[i], a = u & 0x7fffffffu;
        const float    x = mpti_f32_make(u);
        if (a <= 0x43e80000u)
            CHECK_EQ_U_AT(mpt_emu::ptx_cvt_satfinite_e4m3(x), mpti_e4m3_encode(u), u);
        if (a < 0x47700000u)
            CHECK_EQ_U_AT(mpt_emu::ptx_cvt_satfinite_e5m2(x), mpti_e5m2_encode(u), u);
        if (a <= 0x7f800000u)
            CHECK_EQ_U_AT(mpt_emu::ptx_cvt_f16(x), mpti_f16_encode(u), u);
        if (a <= 0x7f800000u) {                 /* saturating: for all but NaN */
            CHECK_EQ_U_AT(mpt_emu::ptx_cvt_satfinite_e4m3(x), mpt_e4m3_from_f32_sat(x).bits, u);
            CHECK_EQ_U_AT(mpt_emu::ptx_cvt_satfinite_e5m2(x), mpt_e5m2_from_f32_sat(x).bits, u);
        }
    }
}

/* The calls that are more than a conversion between two formats: each queues one kernel and does not wait; if
 * the kernel cannot be queued, nothing is written. */
TEST(one_launch_and_no_wait)
{
    Buffer          a(256, 0), b(256, 0), x(256, 0);
    float *const    f = (float *)x.device();
    mpt_fp8_scaling s = {};
    mpt_opts        o = {};
    o.rounding = MPT_RND_STOCHASTIC;
    s.recipe = mpt_fp8_defaults(MPT_E5M2);
    s.recipe.length = 2;
    s.count = 3;
    s.scale = f, s.inverse = f + 3, s.amax = f + 6, s.history = f + 9;
    const std::pair<const char *, std::function<mpt_status()>> calls[] = {
        {"mpt_cuda_convert_n", [&] {
             return mpt_cuda_convert_n(gpu.cuda, MPT_F16, b.device(), MPT_F32, f, 64, &o, NULL, gpu.stream);
         }},
        {"mpt_cuda_fp8_encode_n", [&] {
             return mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, b.device(), MPT_F32, f, 64, NULL, NULL,
                                          gpu.stream);
         }},
        {"mpt_cuda_fp8_encode_transpose", [&] {
             return mpt_cuda_fp8_encode_transpose(gpu.cuda, MPT_E4M3, a.device(), b.device(), MPT_F32, f, 8,
                                                  8, NULL, NULL, gpu.stream);
         }},
        {"mpt_cuda_block_quantize_n", [&] {
             return mpt_cuda_block_quantize_n(gpu.cuda, MPT_NVFP4, (uint8_t *)a.device(),
                                              (uint8_t *)b.device(), MPT_F32, f, 64, 0, NULL, gpu.stream);
         }},
        {"mpt_cuda_fp8_init", [&] { return mpt_cuda_fp8_init(gpu.cuda, &s, gpu.stream); }},
        {"mpt_cuda_fp8_update", [&] { return mpt_cuda_fp8_update(gpu.cuda, &s, gpu.stream); }}};
    for (const auto &call : calls) {
        mpt_emu::controls().fail_launch = 1;
        CHECK_EQ_I(call.second(), MPT_E_CUDA);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), call.first) != NULL);
    }
    CHECK(a.same() && b.same() && x.same());
    for (const auto &call : calls) {
        const mpt_emu::Counters before = mpt_emu::counters();
        CHECK_EQ_I(call.second(), MPT_OK);
        const mpt_emu::Counters &now = mpt_emu::counters();
        CHECK_EQ_U(now.launches, before.launches + 1);
        CHECK(now.syncs == before.syncs && now.mallocs == before.mallocs && now.frees == before.frees &&
              now.copies == before.copies && now.pageable_copies == before.pageable_copies);
    }
    CU(cudaStreamSynchronize(gpu.stream));
}

TEST(launch_fails)
{
    Buffer a(64, 0), b(64, 0);
    for (const Conversion &c : conversions) {
        mpt_emu::controls().fail_launch = 1;
        CHECK_EQ_I(c.device(gpu.cuda, a.device(), b.device(), 4, gpu.stream), MPT_E_CUDA);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "mpt_cuda_convert_n: ") != NULL);
    }
    CHECK(a.same() && b.same());
}
#else
/* All 2^32 floats to the narrow formats: this tests the functions that are written in PTX. */
TEST(all_floats)
{
    const size_t n = (size_t)1 << 24;
    Buffer       src(n * 4, 0), dst(n * 2, 0);
    for (uint64_t first = 0; first < (uint64_t)1 << 32; first += gpu.small ? (uint64_t)1 << 31 : n) {
        for (size_t i = 0; i < n; i++) put(src.host(), MPT_F32, i, first + i);
        src.upload();
        for (const Conversion &c : conversions)
            if (c.from == MPT_F32 && c.to != MPT_F64) {
                CHECK_EQ_I(c.host(dst.host(), src.host(), n), MPT_OK);
                CHECK_EQ_I(c.device(gpu.cuda, dst.device(), src.device(), n, gpu.stream), MPT_OK);
                CU(cudaStreamSynchronize(gpu.stream));
                CHECK(dst.same());
            }
    }
    CHECK(src.same());
}
#endif

static void run_all(void)
{
    RUN(all_pairs);
    RUN(sizes_and_alignments);
    RUN(conversions_that_are_refused);
    RUN(bad_arguments);
    RUN(stochastic_is_the_cpus);
    RUN(stochastic_in_pieces);
    RUN(fp8_encode);
    RUN(fp8_encode_transpose);
    RUN(the_tile_has_no_bank_conflicts);
    RUN(fp8_scaling);
    RUN(fp8_in_a_graph);
    RUN(fp8_refuses);
    RUN(block_quantize);
    RUN(block_quantize_in_tiles);
    RUN(block_quantize_refuses);
#ifdef MPT_CUDA_EMU
    RUN(cvt_by_the_manual);
    RUN(one_launch_and_no_wait);
    RUN(launch_fails);
#else
    RUN(all_floats);
#endif
}

int main(int argc, char **argv) { return cuda_main(argc, argv, run_all); }
