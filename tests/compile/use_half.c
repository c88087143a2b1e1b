/* A user of mpt_half.h, in a file without the implementation; valid C and C++. */
#include "mpt_half.h"
#include "use.h"

int use_half(void)
{
    const float    f[2] = {0.1f, 65520.0f};
    mpt_f16        h[2];
    const mpt_bf16 b = mpt_bf16_from_f32(1.0f);
    if (mpt_f16_from_f32_n(h, f, 2) != MPT_OK || h[0].bits != 0x2e66u || h[1].bits != 0x7c00u)
        return 1;
    if (b.bits != 0x3f80u || mpt_f16_from_f32(f[0]).bits != h[0].bits)
        return 2;
    return mpt_version() == MPT_VERSION && mpt_format_get(MPT_E8M0) != NULL ? 0 : 3;
}
