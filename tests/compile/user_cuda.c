/* A program in plain C99 that uses mpt_cuda.h without CUDA headers, C++ compiler or libstdc++. It is linked
 * with an object made by nvcc and run, with or without a GPU: without one, the error text must say why, and
 * the CPU functions must work as usual. tests/run_cuda_nvcc.sh builds it. */
#include "mpt_cuda.h"

#include <stdio.h>
#include <string.h>

static int failed;

static void expect(int ok, const char *what)
{
    if (!ok) {
        printf("user_cuda: failed: %s\n", what);
        failed = 1;
    }
}

/* The whole step on the CPU. */
static void train_on_cpu(void)
{
    float      w[3] = {1.0f, 2.0f, 3.0f}, g[3] = {0.5f, 0.25f, 0.125f}, m[3] = {0}, v[3] = {0};
    mpt_scaler scaler;
    mpt_step   step = {0};
    mpt_adamw  adamw = mpt_adamw_defaults();
    mpt_tensor t = mpt_tensor_grad_f32("w", g, 3);
    t.master = w;
    t.m = m;
    t.v = v;
    expect(mpt_scaler_init(&scaler, NULL) == MPT_OK, "mpt_scaler_init");
    expect(mpt_scaler_scale(&scaler, 1.0f) == 65536.0f, "mpt_scaler_scale");
    expect(mpt_check(&scaler, &step, &t, 1, NULL) == MPT_OK && !step.found_inf, "mpt_check");
    expect(mpt_adamw_step(&adamw, &step, &t, 1) == MPT_OK && adamw.t == 1 && w[0] < 1.0f, "mpt_adamw_step");
    expect(mpt_scaler_update(&scaler) == MPT_OK, "mpt_scaler_update");
    expect(mpt_f16_from_f32(65520.0f).bits == 0x7c00u, "mpt_f16_from_f32");
}

/* Functions exist, and refuse NULL arguments. */
static void call_all(mpt_cuda *c, struct CUstream_st *stream)
{
    mpt_cuda_list  *list;
    mpt_cuda_state *state;
    const mpt_sgd   sgd = {0.1f, 0.0f, 0.0f, 0u, 0.0f, 0u, 0u};
    const mpt_adamw adamw = mpt_adamw_defaults();
    expect(mpt_cuda_convert_n(c, MPT_F16, NULL, MPT_F32, NULL, 1, NULL, NULL, stream) == MPT_E_ARG,
           "convert_n");
    expect(mpt_cuda_fp8_init(c, NULL, stream) == MPT_E_ARG, "fp8_init");
    expect(mpt_cuda_fp8_update(c, NULL, stream) == MPT_E_ARG, "fp8_update");
    expect(mpt_cuda_fp8_encode_n(c, MPT_E4M3, NULL, MPT_F32, NULL, 1, NULL, NULL, stream) == MPT_E_ARG,
           "fp8_encode_n");
    expect(mpt_cuda_fp8_encode_transpose(c, MPT_E4M3, NULL, NULL, MPT_F32, NULL, 1, 1, NULL, NULL, stream) ==
           MPT_E_ARG, "fp8_encode_transpose");
    expect(mpt_cuda_list_create(c, &list, NULL, 1) == MPT_E_ARG && !list, "list_create");
    expect(mpt_cuda_state_create(c, &state, NULL, 0.1f) == MPT_E_ARG && !state, "state_create");
    expect(mpt_cuda_state_set(c, NULL, NULL, stream) == MPT_E_ARG, "state_set");
    expect(mpt_cuda_state_get(c, NULL, NULL, stream) == MPT_E_ARG, "state_get");
    expect(mpt_cuda_lr_set(c, NULL, 0.1f, stream) == MPT_E_ARG, "lr_set");
    expect(mpt_cuda_scaler_scale_n(c, NULL, MPT_F32, NULL, 0, stream) == MPT_E_ARG, "scaler_scale_n");
    expect(mpt_cuda_check(c, NULL, NULL, stream) == MPT_E_ARG, "check");
    expect(mpt_cuda_unscale(c, NULL, NULL, stream) == MPT_E_ARG, "unscale");
    expect(mpt_cuda_clip(c, NULL, 1.0f, stream) == MPT_E_ARG, "clip");
    expect(mpt_cuda_sgd_step(c, NULL, NULL, &sgd, stream) == MPT_E_ARG, "sgd_step");
    expect(mpt_cuda_adamw_step(c, NULL, NULL, &adamw, stream) == MPT_E_ARG, "adamw_step");
    expect(mpt_cuda_scaler_update(c, NULL, stream) == MPT_E_ARG, "scaler_update");
    expect(strstr(mpt_cuda_error_text(c), "mpt_cuda_scaler_update: ") != NULL, "error_text");
    mpt_cuda_list_destroy(NULL);
    mpt_cuda_state_destroy(NULL);
}

int main(void)
{
    mpt_cuda        *gpu = NULL;
    const mpt_status status = mpt_cuda_create(&gpu, 0);
    const int        code = mpt_cuda_error_code(gpu);
    printf("user_cuda: mpt_cuda_create: %d, CUDA %d, \"%s\"\n", (int)status, code, mpt_cuda_error_text(gpu));
    expect(gpu != NULL, "a context comes back in any case");
    if (status == MPT_OK) {
        expect(code == 0, "no error code");
    } else {
        expect(status == MPT_E_CUDA && (code == 35 || code == 100), "no driver, or no device");
        expect(strstr(mpt_cuda_error_text(gpu), "mpt_cuda_create: ") != NULL, "the text names the call");
        expect(strstr(mpt_cuda_error_text(gpu), "the CPU functions of mpt.h need none") != NULL, "advice");
    }
    call_all(gpu, NULL);
    mpt_cuda_destroy(gpu);
    train_on_cpu();
    printf("user_cuda: %s\n", failed ? "FAILED" : "ok");
    return failed;
}
