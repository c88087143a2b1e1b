/* A C++ user of mpt_cuda.h on the emulation: copies an array to the device, converts it, copies it back. */
#include "mpt_cuda.h"
#include "use.h"

#include <cuda_runtime.h>

int use_emulated(void)
{
    const float x[2] = {0.1f, 65520.0f};
    mpt_f16     h[2];
    void       *from = nullptr, *to = nullptr;
    mpt_cuda   *cuda = nullptr;
    mpt_status  status = mpt_cuda_create(&cuda, 0);
    if (cudaMalloc(&from, sizeof x) != cudaSuccess || cudaMalloc(&to, sizeof h) != cudaSuccess)
        return 30;
    if (cudaMemcpy(from, x, sizeof x, cudaMemcpyHostToDevice) != cudaSuccess)
        return 31;
    if (status == MPT_OK)
        status = mpt_cuda_convert_n(cuda, MPT_F16, to, MPT_F32, from, 2, nullptr, nullptr, nullptr);
    if (status != MPT_OK || cudaMemcpy(h, to, sizeof h, cudaMemcpyDeviceToHost) != cudaSuccess)
        return 32;
    mpt_cuda_destroy(cuda);
    return cudaFree(from) == cudaSuccess && cudaFree(to) == cudaSuccess && h[0].bits == 0x2e66u &&
                   h[1].bits == 0x7c00u ? 0 : 33;
}
