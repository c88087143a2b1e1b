/* ptx_host.cu -- a shared library for cuda_ptx.py: the CPU functions and the emulated kernels, and the tables
 * that these and the interpreted PTX read.
 *
 *     c++ -x c++ -std=c++17 -O0 -shared -fPIC -DMPT_CUDA_EMU -Itests/emu -I. tests/ptx_host.cu -o host.so */
#define MPT_IMPLEMENTATION
#include "mpt_cuda.h"

/* A context with one list of one tensor, and one state. */
struct Host {
    mpt_cuda       *cuda;
    mpt_cuda_list  *list;
    mpt_cuda_state *state;
};

extern "C" {

Host *host_make(int grad_format, int param_format, int storage, int moments, size_t n, void *grad,
                void *master, void *param, void *extra, void *m, void *v, float scale)
{
    Host *const h = new Host();
    mpt_scaler  scaler;
    mpt_tensor  t;
    memset(&t, 0, sizeof t);
    t.n = n;
    t.grad = grad;
    t.master = (float *)master;
    t.param = param;
    t.extra = extra;
    t.m = m;
    t.v = v;
    t.grad_format = (mpt_format)grad_format;
    t.param_format = (mpt_format)param_format;
    t.storage = (mpt_storage)storage;
    t.moments = (mpt_moments)moments;
    t.seed = 7;
    if (mpt_scaler_init(&scaler, NULL) != MPT_OK || mpt_cuda_create(&h->cuda, 0) != MPT_OK)
        return NULL;
    scaler.scale = scale;
    if (mpt_cuda_list_create(h->cuda, &h->list, &t, 1) != MPT_OK ||
        mpt_cuda_state_create(h->cuda, &h->state, &scaler, 0.01f) != MPT_OK ||
        mpt_cuda_scaler_scale_n(h->cuda, h->state, MPT_F32, NULL, 0, NULL) != MPT_OK) {
        fprintf(stderr, "ptx_host: %s\n", mpt_cuda_error_text(h->cuda));
        return NULL;
    }
    return h;
}

void *host_pointer(Host *h, int which)
{
    void *const p[] = {h->list->tensors, h->list->chunks, h->list->partial, h->state};
    return p[which];
}
size_t host_state_bytes(void) { return sizeof(mpt_cuda_state); }
size_t host_chunks(Host *h) { return h->list->chunk_count; }

int host_check(Host *h, int write)
{
    return (write ? mpt_cuda_unscale : mpt_cuda_check)(h->cuda, h->list, h->state, NULL);
}

static mpt_block_opts block_opts(int scaling, int packed, float tensor_scale)
{
    mpt_block_opts o;
    memset(&o, 0, sizeof o);
    o.scaling = (mpt_block_scaling)scaling;
    o.packed = packed;
    o.tensor_scale = tensor_scale;
    return o;
}

/* Stores the arguments that the block kernel gets for these options. Returns: number of bytes. */
size_t host_blocks(int block, int scaling, int packed, float tensor_scale, unsigned char *bytes)
{
    const mpt_block_opts o = block_opts(scaling, packed, tensor_scale);
    mpti_blocks          b;
    const mpt_block_info *const i = mpt_block_get((mpt_block)block);
    if (mpti_blocks_init(&b, i, mpt_format_get(i->element), mpt_format_get(i->scale), &o) != MPT_OK) return 0;
    const uint32_t nan = (uint32_t)b.scale->nan_code;
    memcpy(bytes, &b, sizeof b);
    mpti_e2m1_at   limit;
    mpti_e2m1_limits(&b, 0x38u, limit.at);
    memcpy(bytes + sizeof b, &nan, sizeof nan);
    memcpy(bytes + sizeof b + sizeof nan, &limit, sizeof limit);
    return sizeof b + sizeof nan + sizeof limit;
}
int host_quantize(int block, int scaling, int packed, float tensor_scale, void *codes, void *scales,
                  const void *src, size_t n)
{
    const mpt_block_opts o = block_opts(scaling, packed, tensor_scale);
    return mpt_block_quantize_n((mpt_block)block, (uint8_t *)codes, (uint8_t *)scales, (const float *)src, n,
                                &o);
}

/* Stores an optimizer's configuration. Returns: number of bytes. host_step makes a step with it. */
size_t host_config(const char *name, unsigned char *bytes)
{
    const mpt_adamw adamw = mpt_adamw_defaults();
    const mpt_lion  lion = mpt_lion_defaults();
    const mpt_adam  adam = mpt_adam_defaults();
    mpt_sgd         sgd;
    memset(&sgd, 0, sizeof sgd);
    sgd.momentum = 0.9f;
    sgd.weight_decay = 0.01f;
    if (!strcmp(name, "sgd")) return memcpy(bytes, &sgd, sizeof sgd), sizeof sgd;
    if (!strcmp(name, "lion")) return memcpy(bytes, &lion, sizeof lion), sizeof lion;
    if (!strcmp(name, "adam")) return memcpy(bytes, &adam, sizeof adam), sizeof adam;
    return memcpy(bytes, &adamw, sizeof adamw), sizeof adamw;
}
int host_step(Host *h, const char *name, const void *o)
{
    mpt_cuda *const c = h->cuda;
    if (!strcmp(name, "sgd")) return mpt_cuda_sgd_step(c, h->list, h->state, (const mpt_sgd *)o, NULL);
    if (!strcmp(name, "lion")) return mpt_cuda_lion_step(c, h->list, h->state, (const mpt_lion *)o, NULL);
    if (!strcmp(name, "adam")) return mpt_cuda_adam_step(c, h->list, h->state, (const mpt_adam *)o, NULL);
    return mpt_cuda_adamw_step(c, h->list, h->state, (const mpt_adamw *)o, NULL);
}

} /* extern "C" */
