/* test_cuda_convert.cu -- tests of the array conversions of mpt_cuda.h, all pairs: each against the CPU
 * function of the same name, bytes compared, those around the arrays included.
 *
 *     nvcc -std=c++17 -O2 -I. tests/test_cuda_convert.cu -o test_cuda_convert && ./test_cuda_convert
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. tests/test_cuda_convert.cu
 *
 * --small is for ThreadSanitizer and its kind: fewer sizes. */
#define MPT_IMPLEMENTATION
#include "mpt_cuda.h"
#include "test.h"

#include <vector>

static struct {
    mpt_cuda    *cuda;
    cudaStream_t stream;
    bool         small;
} gpu;

#define CU(call) CHECK((call) == cudaSuccess)

/* One row per call: name, formats, both functions without their types. */
struct Conversion {
    const char *name;
    mpt_format  to, from;
    mpt_status (*host)(void *, const void *, size_t);
    mpt_status (*device)(mpt_cuda *, void *, const void *, size_t, mpt_stream);
};

#define MPT_f64  MPT_F64
#define MPT_f32  MPT_F32
#define MPT_f16  MPT_F16
#define MPT_bf16 MPT_BF16
#define MPT_e4m3 MPT_E4M3
#define MPT_e5m2 MPT_E5M2
#define BOTH(name, dst_type, src_type)                                                                       \
    static mpt_status host_##name(void *dst, const void *src, size_t n)                                      \
    {                                                                                                        \
        return mpt_##name##_n((dst_type *)dst, (const src_type *)src, n);                                    \
    }                                                                                                        \
    static mpt_status device_##name(mpt_cuda *c, void *dst, const void *src, size_t n, mpt_stream s)         \
    {                                                                                                        \
        return mpt_cuda_##name##_n(c, (dst_type *)dst, (const src_type *)src, n, s);                         \
    }
#define X(d, s, dst_type, src_type, convert) BOTH(d##_from_##s, dst_type, src_type)
MPT_PAIRS(X)
#undef X
BOTH(e4m3_from_f32_sat, mpt_e4m3, float)
BOTH(e5m2_from_f32_sat, mpt_e5m2, float)

static const Conversion conversions[] = {
#define X(d, s, dst_type, src_type, convert) \
    {"mpt_cuda_" #d "_from_" #s "_n", MPT_##d, MPT_##s, host_##d##_from_##s, device_##d##_from_##s},
    MPT_PAIRS(X)
#undef X
    {"mpt_cuda_e4m3_from_f32_sat_n", MPT_E4M3, MPT_F32, host_e4m3_from_f32_sat, device_e4m3_from_f32_sat},
    {"mpt_cuda_e5m2_from_f32_sat_n", MPT_E5M2, MPT_F32, host_e5m2_from_f32_sat, device_e5m2_from_f32_sat}};

/* The same bytes on both sides, 64 more before and behind. */
struct Buffer {
    size_t                     start;
    std::vector<unsigned char> bytes;
    unsigned char             *memory = nullptr;

    Buffer(size_t size, size_t shift) : start(64 + shift), bytes(start + size + 64, 0xa5)
    {
        CU(cudaMalloc((void **)&memory, bytes.size()));
        upload();
    }
    ~Buffer() { CU(cudaFree(memory)); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    void *host() { return bytes.data() + start; }
    void *device() { return memory + start; }
    void upload() { CU(cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice)); }
    bool same() const
    {
        std::vector<unsigned char> got(bytes.size());
        CU(cudaMemcpy(got.data(), memory, got.size(), cudaMemcpyDeviceToHost));
        return got == bytes;
    }
};

static size_t size_of(mpt_format f) { return (size_t)mpt_format_get(f)->bytes; }

static void put(void *array, mpt_format f, size_t i, uint64_t code)
{
    unsigned char *const p = (unsigned char *)array + i * size_of(f);
    const uint32_t c4 = (uint32_t)code;
    const uint16_t c2 = (uint16_t)code;
    switch (size_of(f)) {
    case 8:  memcpy(p, &code, 8); break;
    case 4:  memcpy(p, &c4, 4); break;
    case 2:  memcpy(p, &c2, 2); break;
    default: *p = (unsigned char)code;
    }
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

/* Every code of a narrow format; of a wide one every exponent with the mantissas that lie on, just below and
 * just above every bit, and random ones: halfway cases of each target are among them. */
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

TEST(bad_arguments)
{
    Buffer a(64, 0), b(64, 0);
    for (const Conversion &c : conversions) {
        CHECK_EQ_I(c.device(gpu.cuda, NULL, a.device(), 1, gpu.stream), MPT_E_ARG);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), c.name) != NULL);
        CHECK_EQ_I(c.device(gpu.cuda, a.device(), NULL, 1, gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(c.device(NULL, a.device(), b.device(), 1, gpu.stream), MPT_E_ARG);
        CHECK_EQ_I(c.device(gpu.cuda, NULL, NULL, 0, gpu.stream), MPT_OK);
    }
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(a.same() && b.same());
}

#ifdef MPT_CUDA_EMU
TEST(launch_fails)
{
    Buffer a(64, 0), b(64, 0);
    for (const Conversion &c : conversions) {
        mpt_emu::controls().fail_launch = 1;
        CHECK_EQ_I(c.device(gpu.cuda, a.device(), b.device(), 4, gpu.stream), MPT_E_CUDA);
        CHECK(strstr(mpt_cuda_error_text(gpu.cuda), c.name) != NULL);
    }
    CHECK(a.same() && b.same());
}
#else
/* All 2^32 floats into the narrow formats: this judges the PTX leaves. */
TEST(all_floats)
{
    const size_t n = (size_t)1 << 24;
    Buffer       src(n * 4, 0), dst(n * 2, 0);
    for (uint64_t first = 0; first < (uint64_t)1 << 32 && !gpu.small; first += n) {
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

int main(int argc, char **argv)
{
    std::vector<char *> rest;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--small")) rest.push_back(argv[i]);
        else gpu.small = true;
    mt_begin((int)rest.size(), rest.data());
    const mpt_status status = mpt_cuda_create(&gpu.cuda, 0);
    if (status != MPT_OK) {
        const bool expected = getenv("MPT_EXPECT_NO_GPU") != NULL;
        printf("SKIP: %s\n0 passed, 0 failed, 1 skipped\n", mpt_cuda_error_text(gpu.cuda));
        mpt_cuda_destroy(gpu.cuda);
        return mt.ci && !expected;
    }
    CU(cudaStreamCreate(&gpu.stream));
    RUN(all_pairs);
    RUN(sizes_and_alignments);
    RUN(bad_arguments);
#ifdef MPT_CUDA_EMU
    RUN(launch_fails);
#else
    RUN(all_floats);
#endif
    CU(cudaStreamDestroy(gpu.stream));
    mpt_cuda_destroy(gpu.cuda);
    return mt_end();
}
