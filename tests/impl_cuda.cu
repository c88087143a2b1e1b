/* impl_cuda.cu -- the implementation of mpt_cuda.h that the CUDA tests and bench_cuda link to: compiled once
 * per compiler and flags, by nvcc or against the emulation in tests/emu. The other two headers are
 * implemented in tests/impl.c. */
#define MPT_USE_CUBLASLT
#ifdef MPT_CUDA_EMU
#define MPT_USE_NCCL    /* on a GPU no test needs it, and not every machine has it */
#endif
#define MPT_CUDA_IMPLEMENTATION
#include "mpt_cuda.h"

#include "cuda.h"

static_assert(TILE_SIDE == MPTI_SIDE && TILE_WORDS == MPTI_SIDE_WORDS, "the tile");
static_assert(TILE_WARPS == MPTI_WARPS, "its warps");
uint32_t tile_place(uint32_t column, uint32_t word) { return mpti_tile_place(column, word); }

static_assert(GEMM_PLANS == MPTI_GEMM_PLANS, "the plans");
bool library_takes(mpt_cuda *c, const mpt_gemm_args *g)
{
    mpti_gemm_plan     *plan = nullptr;
    const mpt_gemm_args t = mpti_gemm_column_major(g);
    return mpti_gemm_plan_of(c->gemm, &t, &plan) == CUBLAS_STATUS_SUCCESS;
}
