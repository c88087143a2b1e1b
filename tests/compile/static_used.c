/* A file with a private copy of everything. */
#define MPT_STATIC
#include "mpt.h"
#include "use.h"

int use_static(void)
{
    mpt_range   r;
    const float x[3] = {1.0f, 0.0f, 1e-9f};
    if (mpt_range_init(&r, MPT_F16) != MPT_OK || mpt_range_add(&r, MPT_F32, x, 3) != MPT_OK)
        return 30;
    return r.flushed == 1u && r.zero == 1u && r.normal == 1u ? 0 : 31;
}
