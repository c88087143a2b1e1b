/* The program from the top of mpt.h, in a file without the implementation; valid C and C++.
 * The loss is w*w/2, so its gradient is w; the third gradient is made to overflow. */
#include "mpt.h"
#include "use.h"

#include <string.h>

int use_mpt(void)
{
    float      w = 1.0f, dw = 0.0f;
    int        i, skipped = 0;
    mpt_scaler scaler;
    mpt_step   step;
    mpt_tensor grads[1];
    memset(&step, 0, sizeof step);
    grads[0] = mpt_tensor_grad_f32("w", &dw, 1);
    if (mpt_scaler_init(&scaler, NULL) != MPT_OK)
        return 10;
    for (i = 0; i < 5; i++) {
        dw = w * mpt_scaler_scale(&scaler, 1.0f);
        if (i == 2)
            dw *= 1e38f;
        if (mpt_unscale(&scaler, &step, grads, 1, NULL) != MPT_OK)
            return 11;
        if (step.found_inf)
            skipped++;
        else
            w -= 0.5f * dw;
        if (mpt_scaler_update(&scaler) != MPT_OK)
            return 12;
    }
    if (mpt_scaler_update(&scaler) != MPT_E_ORDER || skipped != 1 || scaler.skipped != 1u)
        return 13;
    return w == 0.0625f && scaler.scale == 32768.0f ? 0 : 14;    /* a bad step halves it */
}
