/* test_cuda_report.cu -- the range reports of mpt_cuda.h against mpt_range_add, byte by byte.
 *
 *     nvcc -std=c++17 -O2 -I. tests/test_cuda_report.cu -o test_cuda_report && ./test_cuda_report
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. tests/test_cuda_report.cu -o test_cuda_report
 *
 * --small is for ThreadSanitizer and its kind: shorter tensors. */
#define MPT_IMPLEMENTATION
#include "mpt_cuda.h"
#include "test.h"

#include <memory>
#include <vector>

static struct {
    mpt_cuda    *cuda;
    cudaStream_t stream;
    bool         small;
} gpu;

#define CU(call) CHECK((call) == cudaSuccess)
#define STATUS(call, want)                                      \
    do {                                                        \
        if (!CHECK_EQ_I((call), want))                          \
            printf("    %s\n", mpt_cuda_error_text(gpu.cuda));  \
    } while (0)

static size_t bytes_of(mpt_format f) { return f == MPT_F32 ? 4 : 2; }

/* Every limit of every format, and the floats beside it. */
static const std::vector<uint32_t> &limits()
{
    static std::vector<uint32_t> all;
    static bool                  done = false;
    for (int f = 0; f < (int)MPT_FORMAT_COUNT && !done; f++) {
        auto r = std::make_unique<mpt_range>();
        if (mpt_range_init(r.get(), (mpt_format)f) != MPT_OK) continue;
        for (uint64_t limit : {r->least_kept, r->least_normal, r->least_overflow}) {
            const uint32_t u = mpti_f32_bits((float)mpti_f64_make(limit)) & 0x7fffffffu;
            for (uint32_t d = 0; d < 3; d++) all.push_back(u + d - 1u);
        }
    }
    done = true;
    return all;
}

/* n numbers in a format, on both sides; the device's copy begins `off` elements off its alignment. */
struct Numbers {
    mpt_format                 format;
    size_t                     n, off;
    std::vector<unsigned char> host;
    unsigned char             *memory = nullptr;

    Numbers(mpt_format f, size_t n_, size_t off_)
        : format(f), n(n_), off(off_ * bytes_of(f)), host(n * bytes_of(f))
    {
        for (size_t i = 0; i < n; i++) {
            uint32_t u = (uint32_t)mt_random();
            if (mt_random() % 4)                        /* about what f16 can hold */
                u = (u & 0x807fffffu) | (uint32_t)(95 + mt_random() % 50) << 23;
            if (mt_random() % 16 == 0) u &= 0x80000000u;
            if (mt_random() % 4 == 0) u = (u & 0x80000000u) | limits()[mt_random() % limits().size()];
            if (f == MPT_F32) memcpy(&host[4 * i], &u, 4);
            else memcpy(&host[2 * i], (const char *)&u + mt_random() % 2, 2);
        }
        CU(cudaMalloc((void **)&memory, host.size() + off));
        CU(cudaMemcpy(memory + off, host.data(), host.size(), cudaMemcpyHostToDevice));
    }
    ~Numbers() { CU(cudaFree(memory)); }
    Numbers(const Numbers &) = delete;
    Numbers &operator=(const Numbers &) = delete;

    /* every k-th group of eight */
    void count(mpt_range *r, size_t every) const
    {
        for (size_t i = 0; i < n; i += 8 * every)
            CHECK_EQ_I(mpt_range_add(r, format, &host[i * bytes_of(format)], n - i < 8 ? n - i : 8), MPT_OK);
    }
};

static void compare(const mpt_cuda_ranges *ranges, size_t tensor, const mpt_range &want)
{
    auto got = std::make_unique<mpt_range>();
    memset((void *)got.get(), 0x5a, sizeof *got);
    STATUS(mpt_cuda_ranges_get_sync(gpu.cuda, ranges, tensor, got.get(), gpu.stream), MPT_OK);
    CHECK_EQ_U(got->count, want.count);
    CHECK_EQ_U(got->flushed, want.flushed);
    CHECK_EQ_U(got->overflow, want.overflow);
    CHECK(!memcmp(got.get(), &want, sizeof want));
}

static const size_t sizes[] = {0, 1, 9, 2047, 20000, 33000};

static void against(mpt_format format, mpt_format from, uint32_t every)
{
    std::vector<std::unique_ptr<Numbers>>   numbers;
    std::vector<std::unique_ptr<mpt_range>> want;
    std::vector<mpt_tensor>                 tensors;
    mpt_cuda_list                          *list = nullptr;
    mpt_cuda_ranges                        *ranges = nullptr;
    for (size_t n : sizes) {
        if (gpu.small && n > 2047)
            continue;
        numbers.push_back(std::make_unique<Numbers>(from, n, n % 3));
        mpt_tensor t = mpt_tensor_grad_f32("t", NULL, n);
        t.grad = numbers.back()->memory + numbers.back()->off;
        t.grad_format = from;
        tensors.push_back(t);
        want.push_back(std::make_unique<mpt_range>());
        CHECK_EQ_I(mpt_range_init(want.back().get(), format), MPT_OK);
    }
    STATUS(mpt_cuda_list_create(gpu.cuda, &list, tensors.data(), tensors.size()), MPT_OK);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, format), MPT_OK);
    for (int pass = 0; pass < 2; pass++) {              /* the second adds to the first */
        STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, MPT_CUDA_GRAD, every, gpu.stream), MPT_OK);
        for (size_t i = 0; i < want.size(); i++) {
            numbers[i]->count(want[i].get(), every);
            compare(ranges, i, *want[i]);
        }
    }
    /* an array that is not there */
    STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, MPT_CUDA_PARAM, 1, gpu.stream), MPT_OK);
    for (size_t i = 0; i < want.size(); i++) compare(ranges, i, *want[i]);
    mpt_cuda_ranges_destroy(ranges);
    mpt_cuda_list_destroy(list);
}

TEST(every_format)
{
    for (int f = 0; f < (int)MPT_FORMAT_COUNT; f++)
        if (f != MPT_E8M0 && mpt_format_get((mpt_format)f)->sign_bits) against((mpt_format)f, MPT_F32, 1);
}

TEST(every_source)
{
    against(MPT_F16, MPT_F16, 1);
    against(MPT_F16, MPT_BF16, 1);
    against(MPT_E4M3, MPT_BF16, 1);
    against(MPT_BF16, MPT_F32, 1);
}

TEST(sampling)
{
    against(MPT_F16, MPT_F32, 3);
    against(MPT_F16, MPT_BF16, 16);
}

/* The three arrays of a tensor, each by its own name. */
TEST(arrays)
{
    Numbers          grad(MPT_F16, 100, 0), param(MPT_BF16, 100, 0), master(MPT_F32, 100, 0);
    const Numbers   *const arrays[] = {&grad, &param, &master};
    mpt_tensor       t = mpt_tensor_grad_f32("t", NULL, 100);
    mpt_cuda_list   *list = nullptr;
    t.grad = grad.memory;
    t.grad_format = MPT_F16;
    t.param = param.memory;
    t.param_format = MPT_BF16;
    t.master = (float *)master.memory;
    STATUS(mpt_cuda_list_create(gpu.cuda, &list, &t, 1), MPT_OK);
    for (int which = 0; which < 3; which++) {
        mpt_cuda_ranges *ranges = nullptr;
        auto             want = std::make_unique<mpt_range>();
        CHECK_EQ_I(mpt_range_init(want.get(), MPT_F16), MPT_OK);
        arrays[which]->count(want.get(), 1);
        STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_OK);
        STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, (mpt_cuda_array)which, 1, gpu.stream), MPT_OK);
        compare(ranges, 0, *want);
        mpt_cuda_ranges_destroy(ranges);
    }
    mpt_cuda_list_destroy(list);
}

TEST(bad_arguments)
{
    Numbers          grad(MPT_F16, 100, 0);
    mpt_tensor       t = mpt_tensor_grad_f32("t", NULL, 100);
    mpt_cuda_list   *list = nullptr;
    mpt_cuda_ranges *ranges = nullptr;
    auto             r = std::make_unique<mpt_range>();
    t.grad = grad.memory;
    t.grad_format = MPT_F16;
    STATUS(mpt_cuda_list_create(gpu.cuda, &list, &t, 1), MPT_OK);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_E8M0), MPT_E_UNSUPPORTED);
    CHECK(!ranges);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, NULL, list, MPT_F16), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, NULL, MPT_F16), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_create(NULL, &ranges, list, MPT_F16), MPT_E_ARG);
#ifdef MPT_CUDA_EMU
    mpt_emu::controls().fail_malloc = 1;
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_E_MEMORY);
    mpt_emu::controls().fail_copy = 1;
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_E_CUDA);
    CHECK(!ranges);
#endif
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_OK);
    STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, MPT_CUDA_GRAD, 0, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, (mpt_cuda_array)3, 1, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_add(gpu.cuda, NULL, MPT_CUDA_GRAD, 1, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_get_sync(gpu.cuda, ranges, 1, r.get(), gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_get_sync(gpu.cuda, ranges, 0, NULL, gpu.stream), MPT_E_ARG);
    mpt_cuda_ranges_destroy(ranges);
    mpt_cuda_ranges_destroy(NULL);
    mpt_cuda_list_destroy(list);
}

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
    RUN(every_format);
    RUN(every_source);
    RUN(sampling);
    RUN(arrays);
    RUN(bad_arguments);
    CU(cudaStreamDestroy(gpu.stream));
    mpt_cuda_destroy(gpu.cuda);
#ifdef MPT_CUDA_EMU
    if (mpt_emu::leaks()) {
        printf("FAIL: something of the device was not freed\n");
        return 1;
    }
#endif
    return mt_end();
}
