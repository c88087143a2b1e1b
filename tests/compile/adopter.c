/* A program that uses lists of tensors as users may: it initialises nothing by hand, and ignores
 * all statuses; rows and arrays of sizes that the compiler knows; arrays that mpt is the first to
 * write. It must compile without a warning at every level of optimization. With FLOAT_GRADIENT the
 * compiler must refuse it. */
#ifdef ONE_FILE
#define MPT_IMPLEMENTATION
#endif
#include "mpt.h"
#include <stdlib.h>

enum { N = 64 };
static float    weight[N], bias[N];
static mpt_f16 *w, *b, *db;
#ifdef FLOAT_GRADIENT
typedef float   gradient;
#else
typedef mpt_f16 gradient;
#endif
static gradient *dw;

/* The user's network: here the loss is half the sum of the squares of the weights. */
static void backward(float seed)
{
    int i;
    for (i = 0; i < N; i++) {
        db[i] = mpt_f16_from_f32(seed * mpt_f32_from_f16(b[i]));
        memcpy(&dw[i], &db[i], sizeof db[i]);
    }
}

/* Arrays that only mpt writes: gcc must see that it does not read them first. */
static float blocks(void)
{
    float          x[N] = {1.0f}, y[N];
    uint8_t        code[N], scale[N / 32], e4m3[N];
    mpt_block_opts o = {0};
    mpt_block_quantize_n(MPT_MXFP4, code, scale, x, N, &o);
    mpt_block_dequantize_n(MPT_MXFP4, y, code, scale, N, &o);
    return mpt_convert_checked_n(MPT_E4M3, e4m3, MPT_F32, y, N, NULL, NULL) ? -1.0f : y[0];
}

/* A dot product of a constant length, which gcc clones the function for. */
static float long_dot(void)
{
    static float   x[2048];
    static mpt_f16 h[2048];
    return mpt_dot(h, MPT_F16, x, MPT_F32, 1024) + mpt_dot(h + 1024, MPT_F16, x + 1024, MPT_F32, 1024);
}

/* Rows of one element (such as a single bias) and of three. */
static float rows(float d)
{
    float    one[1], three[3], copy[3];
    mpt_f16  half[1] = {{0}}, halves[3];
    mpt_bf16 matrix[3] = {{0x3f80}, {0}, {0}};
    one[0] = three[0] = three[1] = three[2] = copy[0] = copy[1] = copy[2] = d;
    mpt_axpy(half, MPT_F16, d, one, MPT_F32, 1);
    mpt_axpy(one, MPT_F32, d, half, MPT_F16, 1);
    mpt_axpy_publish(halves, MPT_F16, copy, d, three, 3, NULL);
    mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, 1, 1, 3, 1.0f, copy, MPT_F32, 3, matrix, MPT_BF16, 3,
             0.0f, three, MPT_F32, 1, NULL, 0);
    return mpt_dot(half, MPT_F16, one, MPT_F32, 1) + mpt_dot(halves, MPT_F16, copy, MPT_F32, 3) + three[0];
}

int main(void)
{
    mpt_scaler  scaler;
    mpt_step    step;
    mpt_adamw   adamw = mpt_adamw_defaults();
    mpt_tensors list;
    mpt_tensor  item[2];
    int         i;
    memset(&step, 0, sizeof step);
    for (i = 0; i < N; i++)
        weight[i] = bias[i] = 1.0f;
    mpt_scaler_init(&scaler, NULL);
    mpt_tensors_init(&list, item, 2, MPT_F16, MPT_F16);
    mpt_tensors_new_f16(&list, "w", N, weight, &w, &dw);
    mpt_tensors_new_f16(&list, "b", N, bias, &b, &db);
    mpt_tensors_place(&list, calloc(list.bytes, 1), list.bytes);
    for (i = 0; i < 100; i++) {
        backward(mpt_scaler_scale(&scaler, 1.0f));
        mpt_optimizer_step(MPT_OPTIMIZER_ADAMW, &adamw, &scaler, &step, item, 2, 0.0f);
    }
    if (rows(1.0f) != 16.0f)                    /* 2 + 3 * 2 * 2 + 2 */
        return 2;
    if (blocks() != 1.0f || long_dot() != 0.0f)
        return 3;
    return weight[0] < 0.95f && bias[0] > 0.5f && adamw.t + scaler.skipped == 100u ? 0 : 1;
}
