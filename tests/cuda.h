/* cuda.h -- shared by the CUDA test programs: the device, their main, and access to internals of the one
 * implementation that they link to (impl_cuda.cu, beside impl.c). */
#ifndef CUDA_TEST_H
#define CUDA_TEST_H

#include <cuda_runtime.h>

#include "mpt_cuda.h"
#include "test.h"

#include <vector>

static struct {
    mpt_cuda    *cuda;
    cudaStream_t stream;
    bool         small;     /* --small, for ThreadSanitizer and the like: fewer and shorter tests */
} gpu;

#define CU(call) CHECK((call) == cudaSuccess)
#define STATUS(call, want) check_status((call), (want), #call " == " #want, __LINE__)
#define OK(call) STATUS(call, MPT_OK)
static inline bool check_status(mpt_status got, mpt_status want, const char *text, int line)
{
    if (mt_count(got == want, text, __FILE__, line))
        printf("    %s; %s\n", mpt_status_text(got), mpt_cuda_error_text(gpu.cuda));
    return got == want;
}

/* ---- the inside of the implementation ---- */

/* The tile of a transposition in shared memory: columns, words per column, warps; and the place of a word. */
enum { TILE_SIDE = 128, TILE_WORDS = 16, TILE_WARPS = 8 };
uint32_t tile_place(uint32_t column, uint32_t word);

/* Plans that a context keeps; has cuBLASLt one for this product, whatever mpt_gemm_advice says? */
enum { GEMM_PLANS = 64 };
bool library_takes(mpt_cuda *c, const mpt_gemm_args *g);

/* ---- the emulated machine ---- */

#ifdef MPT_CUDA_EMU
/* The number of multiprocessors, 1 under ThreadSanitizer: there a thread costs as much as there are others,
 * and eight blocks race as well as a hundred. */
static inline int sms_here(int sms) { return MPT_EMU_TSAN ? 1 : sms; }
static const bool races = MPT_EMU_TSAN;     /* ThreadSanitizer sees at some sizes what all sizes share */
#else
static const bool races = false;
#endif

/* ---- arrays on both sides ---- */

/* Bytes of an element of a training format: f32, f16, bf16. */
static inline size_t element_size(mpt_format f) { return f == MPT_F32 ? 4u : 2u; }

/* The same bytes on host and device, `shift` bytes off their alignment: the CPU function works on the host's,
 * the kernel on the device's; then all are compared, including the guards. Behind the end the emulation needs
 * no guard: it has a canary there, and ASan also sees reads. */
struct Buffer {
    static const size_t before = 64;
#ifdef MPT_CUDA_EMU
    static const size_t behind = 0;
#else
    static const size_t behind = 64;
#endif
    size_t                     start, size;
    std::vector<unsigned char> bytes;
    unsigned char             *memory = nullptr;

    Buffer(size_t size_, size_t shift)
        : start(before + shift), size(size_), bytes(start + size + behind, 0xa5)
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

    std::vector<unsigned char> fetch() const
    {
        std::vector<unsigned char> got(bytes.size());
        CU(cudaMemcpy(got.data(), memory, got.size(), cudaMemcpyDeviceToHost));
        return got;
    }
    bool same() const { return fetch() == bytes; }
};

/* ---- main ---- */

/* Without a GPU nothing is tested. This is a failure only where CI expects a GPU. */
static inline int end_without_gpu(void)
{
    const char *expected = getenv("MPT_EXPECT_NO_GPU");
    const bool  fail = mt.ci && !(expected && strcmp(expected, "1") == 0);
    printf("%s: no CUDA device (%s)\n", fail ? "FAIL" : "SKIP", mpt_cuda_error_text(gpu.cuda));
    mpt_cuda_destroy(gpu.cuda);
    *(fail ? &mt.failed : &mt.skipped) += 1;
    return mt_end();
}

/* run_all calls RUN for each test. At the end nothing may be left on an emulated device. */
static inline int cuda_main(int argc, char **argv, void (*run_all)(void))
{
    std::vector<char *> rest;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--small") == 0) gpu.small = true;
        else rest.push_back(argv[i]);
    mt_begin((int)rest.size(), rest.data());
#ifdef MPT_CUDA_EMU
    mpt_emu::controls().sms = sms_here(mpt_emu::controls().sms);
#endif
    if (mpt_cuda_create(&gpu.cuda, 0) != MPT_OK)
        return end_without_gpu();
    if (cudaStreamCreate(&gpu.stream) != cudaSuccess) {
        printf("FAIL: cudaStreamCreate: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
    run_all();
    if (cudaStreamDestroy(gpu.stream) != cudaSuccess)
        mt.failed++;
    mpt_cuda_destroy(gpu.cuda);
#ifdef MPT_CUDA_EMU
    if (mpt_emu::leaks()) {
        printf("FAIL: device memory, or a handle, was not given back\n");
        mt.failed++;
    }
#else
    if (cudaDeviceSynchronize() != cudaSuccess) {
        printf("FAIL: the device ends in an error\n");
        mt.failed++;
    }
#endif
    return mt_end();
}

#endif
