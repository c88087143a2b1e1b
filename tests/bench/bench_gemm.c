/* bench_gemm.c -- the speed of mpt_gemm: of its own loop, and with OpenBLAS (if the Makefile finds it with
 * pkg-config, it defines MPT_USE_CBLAS) of panels that are converted and multiplied by it, compared with
 * cblas_sgemm on FP32 arrays. The goal is a ratio of at least 0.7 at n = 1024. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#define MPT_STATIC           /* MPT_USE_CBLAS holds for this program only */
#define MPT_IMPLEMENTATION
#include "mpt.h"

enum { RUNS = 7 };

static float  *a32, *b32, *c32;
static void   *a, *b, *c, *work;
static size_t work_bytes;

static double gflops(size_t n,
                     double seconds) { return 2.0 * (double)n * (double)n * (double)n / seconds * 1e-9; }

static double time_gemm(size_t n, mpt_format f)
{
    double t[RUNS];
    int    i;
    for (i = 0; i < RUNS; i++) {
        t[i] = bench_now();
        if (mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, n, n, n, 1.0f, a, f, n, b, f, n, 0.0f, c,
                     f, n,
                     work, work_bytes) != MPT_OK) {
            fprintf(stderr, "bench: mpt_gemm refused\n");
            exit(1);
        }
        t[i] = bench_now() - t[i];
    }
    return bench_median(t, RUNS);
}

#ifdef MPT_USE_CBLAS
static double time_sgemm(size_t n)
{
    double t[RUNS];
    int    i;
    for (i = 0; i < RUNS; i++) {
        t[i] = bench_now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)n, (int)n, 1.0f, a32, (int)n, b32,
                    (int)n, 0.0f, c32, (int)n);
        t[i] = bench_now() - t[i];
    }
    return bench_median(t, RUNS);
}
#endif

int main(int argc, char **argv)
{
    static const mpt_format formats[] = {MPT_F32, MPT_F16, MPT_BF16};
    const size_t most = 1024;
    FILE *const csv = bench_csv("gemm", argc, argv, "format,n,work,gflops,sgemm_gflops,ratio");
    size_t      n, i, f, panels;
    a32 = (float *)bench_array(most * most * sizeof(float));
    b32 = (float *)bench_array(most * most * sizeof(float));
    c32 = (float *)bench_array(most * most * sizeof(float));
    a = bench_array(most * most * sizeof(float));
    b = bench_array(most * most * sizeof(float));
    c = bench_array(most * most * sizeof(float));
    for (i = 0; i < most * most; i++) {
        a32[i] = (float)(i * 2654435761u % 2001u) * 0.001f - 1.0f;
        b32[i] = (float)(i * 2246822519u % 2001u) * 0.001f - 1.0f;
    }
#ifdef MPT_USE_CBLAS
    printf("with CBLAS; ");
#else
    printf("without CBLAS (the plain loop); ");
#endif
    printf("medians of %d\n%-6s %6s %12s %12s %12s %7s\n", (int)RUNS, "", "n", "work bytes", "GFLOP/s",
           "sgemm", "ratio");
    for (n = 256; n <= most; n *= 2)
        for (f = 0; f < 3; f++)
            for (panels = 0; panels < 3; panels++) {
                double ours, theirs = 0.0;
                work_bytes = panels == 2 ? mpt_gemm_work_bytes(n, n, n) : panels ? (size_t)1 << 20 : 0;
                if (panels && !mpt_gemm_work_bytes(n, n, n))
                    continue;
                work = work_bytes ? bench_array(work_bytes) : NULL;
                (void)mpt_convert_n(formats[f], a, MPT_F32, a32, n * n, NULL, NULL);
                (void)mpt_convert_n(formats[f], b, MPT_F32, b32, n * n, NULL, NULL);
#ifdef MPT_USE_CBLAS
                theirs = time_sgemm(n);
#endif
                ours = time_gemm(n, formats[f]);
                printf("%-6s %6zu %12zu %12.2f %12.2f %7.2f\n", mpt_format_get(formats[f])->name, n,
                       work_bytes,
                       gflops(n, ours), theirs > 0.0 ? gflops(n, theirs) : 0.0,
                       theirs > 0.0 ? theirs / ours : 0.0);
                if (csv)
                    fprintf(csv, "%s,%zu,%zu,%.4g,%.4g,%.3f\n", mpt_format_get(formats[f])->name, n,
                            work_bytes,
                            gflops(n, ours), theirs > 0.0 ? gflops(n, theirs) : 0.0,
                            theirs > 0.0 ? theirs / ours : 0.0);
                free(work);
                work = NULL;
            }
    return csv && fclose(csv) ? 1 : 0;
}
