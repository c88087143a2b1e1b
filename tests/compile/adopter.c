/* How programs adopt the lists: nothing is initialised by hand, no status is read. It must compile without a
 * warning at every level. With FLOAT_GRADIENT the compiler must refuse it. */
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
    return weight[0] < 0.95f && bias[0] > 0.5f && adamw.t + scaler.skipped == 100u ? 0 : 1;
}
