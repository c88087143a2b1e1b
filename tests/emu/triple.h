/* triple.h -- for programs that launch with <<<>>>, which a C++ compiler cannot parse: the tests turn
 * `kernel<<<blocks, threads, shared, stream>>>(arguments)` into `EMU_LAUNCH(kernel, blocks, threads, shared,
 * stream)(arguments)` by sed, and include this first. */
#ifndef MPT_EMU_TRIPLE_H
#define MPT_EMU_TRIPLE_H

#include <cuda_runtime.h>

namespace mpt_emu {

template <class... P> struct Launch {
    void (*kernel)(P...);
    dim3         blocks, threads;
    cudaStream_t stream;

    /* The arguments are converted to the kernel's parameter types, as with <<<>>>. */
    void operator()(typename Same<P>::type... args) const
    {
        void *pointers[] = {(void *)&args...};
        (void)cudaLaunchKernel(kernel, blocks, threads, pointers, 0, stream);
    }
};

template <class... P>
Launch<P...> launch(void (*kernel)(P...), dim3 blocks, dim3 threads, size_t, cudaStream_t stream)
{
    return Launch<P...>{kernel, blocks, threads, stream};
}

} /* namespace mpt_emu */

#define EMU_LAUNCH(kernel, ...) mpt_emu::launch(kernel, __VA_ARGS__)

#endif /* MPT_EMU_TRIPLE_H */
