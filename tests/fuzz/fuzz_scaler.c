/* fuzz_scaler.c -- libFuzzer target: any dialect, legal configuration and sequence of causes. No dialect
 * crashes or returns a wrong status; the scale of the default stays a finite power of two within its limits,
 * and reaches one that works if there is one. */
#include "fuzz.h"

static float pow2f(int k) { return mpti_f32_make((uint32_t)(k + 127) << 23); }

static int is_within(const mpt_scaler *s, float x)
{
    return (double)x >= s->config.min_scale && (double)x <= s->config.max_scale;
}

static void is_legal(const mpt_scaler *s)
{
    must(mpti_f32_is_finite(s->scale) && !(mpti_f32_bits(s->scale) & 0x7fffffu));
    must((double)s->scale >= s->config.min_scale && (double)s->scale <= s->config.max_scale);
    must(is_within(s, s->home));
    must(s->wait >= 1 && s->wait <= s->config.interval && s->depth >= 0 && s->depth < 512 && s->climb <= 3u);
    must(s->base <= s->base_most && s->base_most < MPTI_UNIT && s->excess <= 12u * MPTI_RUN * MPTI_UNIT);
    must(s->last_bad >= -1 && s->last_bad <= MPTI_RUN * (MPTI_RUN - 1));
    must(s->search_bad <= s->search_steps && s->at_floor >= 0 && s->before_steps >= 0);
    must(is_within(s, s->last_good));
}

static mpt_scaler_config config_from(const uint8_t *b)
{
    mpt_scaler_config c = mpt_scaler_defaults((mpt_scaler_dialect)(b[0] % MPT_SCALER_DIALECT_COUNT));
    c.interval = 1 + b[1] % 64;
    c.hysteresis = 1 + b[2] % 5;
    c.patience = 1 + b[3] % 9;
    if (c.dialect == MPT_SCALER_MPT) {
        const int low = -(b[4] % 120), high = b[5] % 120;
        c.min_scale = (double)pow2f(low);
        c.max_scale = (double)pow2f(high);
        c.init_scale = pow2f(low + b[6] % (high - low + 1));
        c.growth = (double)pow2f(1 + b[7] % 9);
        c.backoff = (double)pow2f(-1 - b[7] / 16 % 9);
    } else {
        c.init_scale = pow2f(b[4] % 250 - 125) * (1.0f + (float)b[5] / 256.0f);
        c.growth = 1.0 + (double)(1 + b[6]) / 64.0;
        c.backoff = (double)(1 + b[7] % 255) / 256.0;
    }
    if (c.dialect == MPT_SCALER_DEEPSPEED || c.dialect == MPT_SCALER_DEEPSPEED_0_17_0)
        c.flags = b[3] & 3u;
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mpt_scaler_config c;
    mpt_scaler        s;
    size_t            i;
    int               raises, tries, works;
    if (size < 9)
        return 0;
    c = config_from(data);
    must(mpt_scaler_init(&s, &c) == MPT_OK);
    raises = c.dialect == MPT_SCALER_FAIRSEQ || c.dialect == MPT_SCALER_MPT ||
             (c.flags & MPT_SCALER_RAISE) != 0u;
    (void)mpt_scaler_scale(&s, 1.0f);
    for (i = 9; i < size; i++) {
        mpt_status status;
        must(mpt_scaler_update(&s) == MPT_E_ORDER);
        must(mpt_scaler_record(&s, 0, data[i] & 7u) == MPT_OK);
        status = mpt_scaler_update(&s);
        must(status == MPT_OK || (raises && status == MPT_E_SCALE));
        must((status == MPT_E_SCALE) == (s.verdict != (uint32_t)MPT_VERDICT_OK));
        must(!(mpti_f32_bits(s.scale) >> 31) && mpti_f32_bits(s.scale) <= 0x7f800000u);
        if (c.dialect == MPT_SCALER_MPT)
            is_legal(&s);
    }
    if (c.dialect != MPT_SCALER_MPT)
        return 0;
    for (tries = 0, works = 0; !works && tries < 1000; tries++) {       /* only the least scale works */
        works = (double)s.scale <= c.min_scale;
        (void)mpt_scaler_record(&s, 0, works ? 0u : 1u + data[8] % 3u);
        must((mpt_scaler_update(&s) == MPT_OK) >= works);
        is_legal(&s);
    }
    must(works);
    return 0;
}
