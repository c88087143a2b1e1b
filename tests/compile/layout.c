/* Prints sizes and member offsets of public types: they must not depend on any macro or on the language. */
#include "mpt.h"

#include <stdio.h>

#define SIZE(t) printf(#t " %lu\n", (unsigned long)sizeof(t))
#define AT(t, member) printf(#t "." #member " %lu\n", (unsigned long)offsetof(t, member))

int main(void)
{
    SIZE(mpt_f16), SIZE(mpt_bf16), SIZE(mpt_opts), SIZE(mpt_format_info), SIZE(mpt_fields);
    SIZE(mpt_status), SIZE(mpt_format), SIZE(mpt_fault), SIZE(mpt_tensor);
    SIZE(mpt_range), AT(mpt_range, least_overflow), SIZE(mpt_range_choice);
    SIZE(mpt_survey), AT(mpt_survey, min_abs), SIZE(mpt_range_tolerance);
    SIZE(mpt_exact), SIZE(mpt_roundoff), AT(mpt_roundoff, ready), SIZE(mpt_stagnation), SIZE(mpt_sums);
    SIZE(mpt_shadow), AT(mpt_shadow, ready), SIZE(mpt_track);
    SIZE(mpt_scaler_config), SIZE(mpt_scaler), AT(mpt_scaler, in_use);
    SIZE(mpt_step), AT(mpt_step, stage), SIZE(mpt_sgd), AT(mpt_sgd, t), SIZE(mpt_adamw), AT(mpt_adamw, t);
    return 0;
}
