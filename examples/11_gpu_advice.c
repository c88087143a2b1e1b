/* 11_gpu_advice.c -- what a GPU can do in low precision, and what a matrix product needs to run at full speed
 * on its Tensor Cores. The answers come from tables in mpt, so no GPU is needed, and you can ask for any GPU:
 *
 *     cc -O2 -I. examples/11_gpu_advice.c -o 11_gpu_advice -lm && ./11_gpu_advice
 *     ./11_gpu_advice --cc 90 --format e4m3 1000 10 784       one product, on compute capability 9.0
 *
 * Built by nvcc with ASK_THE_GPU, it uses the GPU of this machine unless --cc is given:
 *
 *     nvcc -O2 -DASK_THE_GPU -x cu -I. examples/11_gpu_advice.c -o 11_gpu_advice
 */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt_cuda.h"
#include <stdlib.h>
#include <string.h>

static void print_generations(void)
{
    static const int first_cc[] = {
#define ROW(id, name, cc, tensor_cores, advice) cc,
        MPT_GPUS(ROW)
#undef ROW
    };
    int i;
    printf("What the Tensor Cores of each generation multiply, and what to use there:\n");
    printf("  %-17s %4s  %-3s %-4s %-4s %-3s %-6s\n", "generation", "from", "f16", "bf16", "tf32", "fp8",
           "blocks");
    for (i = 0; i < (int)MPT_GPU_COUNT; i++) {
        const mpt_gpu  g = mpt_gpu_from_cc(first_cc[i]);
        const unsigned t = g.tensor_cores;
        printf("  %-17s %2d.%d  %-3s %-4s %-4s %-3s %-6s  %s\n", g.name, g.cc / 10, g.cc % 10,
               t & MPT_TC_F16 ? "yes" : "-", t & MPT_TC_BF16 ? "yes" : "-", t & MPT_TC_TF32 ? "yes" : "-",
               t & MPT_TC_FP8 ? "yes" : "-", t & MPT_TC_BLOCKS ? "yes" : "-", g.advice);
    }
}

/* The product of a layer, row-major: outputs [m][n] = inputs [m][k] times the transpose of weights [n][k]. */
static mpt_gemm_args layer(mpt_format format, long m, long n, long k)
{
    const int     fp8 = format == MPT_E4M3 || format == MPT_E5M2;
    mpt_gemm_args g;
    memset(&g, 0, sizeof g);
    g.m = m;
    g.n = n;
    g.k = k;
    g.lda = g.ldb = k;
    g.ldd = n;
    g.a_format = g.b_format = format;
    g.d_format = fp8 ? MPT_BF16 : format == MPT_TF32 ? MPT_F32 : format;
    g.bias_format = g.d_format;
    g.row_major = g.trans_b = 1u;
    g.alpha = 1.0f;
    return g;
}

/* The number of elements in 16 bytes: m, n, k and the leading dimensions should be multiples of it. */
static int unit(mpt_format format)
{
    return 128 / (format == MPT_TF32 ? 32 : mpt_format_get(format)->bits);
}

static void print_product(int cc, mpt_format format, long m, long n, long k)
{
    const unsigned         never = MPT_GEMM_NO_TENSOR_CORES | MPT_GEMM_NO_BF16 | MPT_GEMM_NO_FP8;
    const unsigned         padding = MPT_GEMM_PAD_M | MPT_GEMM_PAD_N | MPT_GEMM_PAD_K | MPT_GEMM_PAD_LD;
    const mpt_gemm_args    g = layer(format, m, n, k);
    const mpt_gemm_verdict v = mpt_gemm_advice(cc, &g);
    const unsigned         told = (v.problems & never ? v.problems & never : v.problems & ~padding) &
                                  ~(unsigned)MPT_GEMM_NO_TENSOR_CORES;     /* the first line says that */
    unsigned               bit;
    printf("  %-4s %5ld x %5ld x %5ld  %s\n", mpt_format_get(format)->name, m, n, k,
           v.refused ? "refused" : !v.tensor_cores ? "runs, but not on Tensor Cores"
           : v.problems ? "Tensor Cores, below full speed" : "Tensor Cores, full speed");
    for (bit = 1u; bit && bit <= told; bit <<= 1)
        if (told & bit)
            printf("         - %s\n", mpt_gemm_problem_text(bit));
    if (!(v.problems & never) && v.problems & padding)
        printf("         - pad to %ld x %ld x %ld, leading dimensions to multiples of %d: %.1f%% more work\n",
               (long)v.m, (long)v.n, (long)v.k, unit(format),
               100.0 * ((double)v.m * (double)v.n * (double)v.k / ((double)m * (double)n * (double)k) - 1.0));
}

/* The compute capability of this machine's GPU; 0 if there is none, or without ASK_THE_GPU. */
static int ask(void)
{
#ifdef ASK_THE_GPU
    mpt_cuda *cuda;
    mpt_gpu   gpu;
    int       cc = 0;
    if (mpt_cuda_create(&cuda, 0) == MPT_OK && mpt_cuda_gpu(cuda, &gpu) == MPT_OK)
        cc = gpu.cc;
    else
        printf("%s\n\n", mpt_cuda_error_text(cuda));
    mpt_cuda_destroy(cuda);
    return cc;
#else
    return 0;
#endif
}

static void print_gpu(int cc)
{
    static const mpt_format formats[] = {MPT_F32, MPT_TF32, MPT_F16, MPT_BF16, MPT_E4M3};
    static const long       shapes[][3] = {{100, 10, 30}, {4096, 4096, 4096}};
    const mpt_gpu           g = mpt_gpu_from_cc(cc);
    size_t                  s, f;
    printf("\n%s, compute capability %d.%d: %s.\n", g.name, cc / 10, cc % 10, g.advice);
    printf("A layer of m rows, n outputs, k inputs, row-major, weights [n][k]:\n");
    for (s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (f = 0; f < sizeof formats / sizeof *formats; f++)
            print_product(cc, formats[f], shapes[s][0], shapes[s][1], shapes[s][2]);
}

static int usage(void)
{
    fprintf(stderr, "usage: 11_gpu_advice [--cc 90] [--format f32|tf32|f16|bf16|e4m3|e5m2] [m n k]\n");
    return 2;
}

int main(int argc, char **argv)
{
    mpt_format format = MPT_F16;
    long       size[3] = {0, 0, 0};
    int        cc = 0, sizes = 0, i;
    for (i = 1; i < argc; i++) {
        char *end = NULL;
        if (!strcmp(argv[i], "--cc") && i + 1 < argc)
            cc = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--format") && i + 1 < argc) {
            if (mpt_format_find(argv[++i], &format) != MPT_OK)
                return usage();
        } else if (sizes < 3) {
            size[sizes] = strtol(argv[i], &end, 10);
            if (*end || size[sizes++] < 1)
                return usage();
        } else
            return usage();
    }
    if (cc < 0 || (sizes && sizes < 3))
        return usage();
    if (!cc)
        cc = ask();
    if (sizes) {
        if (!cc)
            return usage();
        print_product(cc, format, size[0], size[1], size[2]);
        return 0;
    }
    print_generations();
    if (cc)
        print_gpu(cc);
    else {
        print_gpu(75);
        print_gpu(90);
    }
    return 0;
}
