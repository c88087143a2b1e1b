/* A user of mpt_cuda.h in a plain C or C++ file, without any CUDA header: a pointer to CUDA's stream struct
 * is passed without a cast, and mpt_cuda_state is a plain struct. Never linked with CUDA. */
#include "mpt_cuda.h"
#include "use.h"

typedef mpt_status use_check_fn(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state,
                                mpt_stream stream);

static mpt_status call(use_check_fn *f, struct CUstream_st *stream) { return f(NULL, NULL, NULL, stream); }
static mpt_status stub(mpt_cuda *c, const mpt_cuda_list *list, mpt_cuda_state *state, mpt_stream stream)
{
    return c || list || state || stream ? MPT_E_CUDA : MPT_OK;
}

int use_cuda(void)
{
    return call(stub, NULL) == MPT_OK && sizeof(mpt_cuda_state) > sizeof(mpt_scaler) ? 0 : 20;
}
