/* The cost of a loss scaler and AdamW in a program of one file: FP32 masters, f16 copies and gradients. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"

enum { N = 64 };
static float   weight[N], m[N], v[N];
static mpt_f16 copy[N], grad[N];

/* The user's network: here the loss is half the sum of the squares of the weights. */
static void backward(float seed)
{
    int i;
    for (i = 0; i < N; i++)
        grad[i] = mpt_f16_from_f32(seed * mpt_f32_from_f16(copy[i]));
}

int main(void)
{
    mpt_scaler  scaler;
    mpt_step    step = {0};
    mpt_adamw   adamw = mpt_adamw_defaults();
    mpt_tensors list;
    mpt_tensor  item[1];
    mpt_status  status = mpt_scaler_init(&scaler, NULL);
    int         i;
    if (status == MPT_OK)
        status = mpt_tensors_init(&list, item, 1, MPT_F16, MPT_F16);
    for (i = 0; i < N; i++)
        weight[i] = 1.0f;
    if (status == MPT_OK)
        status = mpt_tensors_add(&list, "w", N, copy, grad, weight, m, v);
    if (status == MPT_OK)
        status = mpt_publish(item, 1);
    for (i = 0; i < 100 && status == MPT_OK; i++) {
        backward(mpt_scaler_scale(&scaler, 1.0f));
        status = mpt_check(&scaler, &step, item, 1, NULL);
        if (status == MPT_OK)
            status = mpt_adamw_step(&adamw, &step, item, 1);
        if (status == MPT_OK)
            status = mpt_scaler_update(&scaler);
    }
    return status == MPT_OK && weight[0] < 0.95f && weight[0] > 0.5f ? 0 : 1;
}
