/* fuzz_checkpoint.c -- libFuzzer target: a checkpoint with changed bytes and a right checksum. Either it is
 * refused, and nothing is written; or it is loaded and saved with the same bytes but for lr_times, and the
 * run takes steps of every kind without undefined behaviour. */
#include "fuzz.h"
#include "../impl.h"

typedef struct run {
    mpt_scaler    scaler;
    mpt_step      step;
    mpt_sgd       sgd;
    mpt_adamw     adamw;
    mpt_lion      lion;
    mpt_adafactor adafactor;
    uint64_t      counter;
    float         w[5], m[5], v[5], g[5];
} run;

static mpt_state state_of(run *r, mpt_tensor *t)
{
    mpt_state s;
    memset(&s, 0, sizeof s);
    memset(t, 0, sizeof *t);
    t->name = "w";
    t->n = 5;
    t->master = r->w;
    t->m = r->m;
    t->v = r->v;
    t->grad = r->g;
    s.scalers = &r->scaler;
    s.steps = &r->step;
    s.scaler_count = s.step_count = s.counter_count = s.tensor_count = 1;
    s.sgd = &r->sgd;
    s.adamw = &r->adamw;
    s.lion = &r->lion;
    s.adafactor = &r->adafactor;
    s.counters = &r->counter;
    s.tensors = t;
    return s;
}

/* One step with a scaler that may be in any state. */
static void go_on(run *r, const mpt_tensor *t, unsigned kind)
{
    mpt_step other;
    r->g[0] = kind % 7u == 3u ? mpt_f32_from_f16(mpt_f16_from_f32(1e30f)) : 0.5f;
    r->g[1] = kind % 5u == 2u ? r->g[0] - r->g[0] : -0.25f;
    (void)mpt_scaler_scale(&r->scaler, 1.0f);
    if (mpt_check(&r->scaler, &r->step, t, 1, NULL) == MPT_OK) {
        other = r->step;
        (void)mpt_sgd_step(&r->sgd, &other, t, 1);
        other = r->step;
        (void)mpt_adamw_step(&r->adamw, &other, t, 1);
        other = r->step;
        (void)mpt_lion_step(&r->lion, &other, t, 1);
        (void)mpt_adafactor_step(&r->adafactor, &r->step, t, 1);
    }
    if (kind % 11u != 4u)
        (void)mpt_scaler_update(&r->scaler);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char buffer[4096], again[4096];
    static run           first, second;
    mpt_scaler_config    c;
    mpt_tensor           t;
    mpt_state            s;
    size_t               bytes = 0, times = 0, i;
    unsigned             k;
    if (size < 4)
        return 0;
    memset(&first, 0, sizeof first);
    c = mpt_scaler_defaults((mpt_scaler_dialect)(data[0] % MPT_SCALER_DIALECT_COUNT));
    if (data[1] % 4u)
        c.interval = data[1] % 4u;
    must(mpt_scaler_init(&first.scaler, &c) == MPT_OK);
    first.adamw = mpt_adamw_defaults();
    first.lion = mpt_lion_defaults();
    first.adafactor = mpt_adafactor_defaults();
    s = state_of(&first, &t);
    for (k = 0; k < data[2] % 64u; k++)
        go_on(&first, &t, k * data[3]);
    must(mpt_state_size(&s, &bytes) == MPT_OK && bytes <= sizeof buffer);
    must(mpt_state_save(&s, buffer, bytes) == MPT_OK);
    memset(&t.lr_times, 0xff, sizeof t.lr_times);
    must(mpt_state_save(&s, again, bytes) == MPT_OK);
    while (buffer[times] == again[times])       /* to where lr_times is, which is not compared */
        times++;
    for (i = 4; i + 2 < size; i += 3)
        buffer[(data[i] | (size_t)data[i + 1] << 8) % (bytes - 8u)] = data[i + 2];
    checkpoint_sum_again(buffer, bytes);
    memset(&second, 0x5a, sizeof second);
    s = state_of(&second, &t);
    if (mpt_state_load(&s, buffer, bytes) != MPT_OK) {
        for (i = 0; i < sizeof second; i++)
            must(((const unsigned char *)&second)[i] == 0x5au);
        return 0;
    }
    must(mpt_state_save(&s, again, bytes) == MPT_OK);
    buffer[8] = again[8];               /* versions 3 and 4 are saved as 5, with another checksum */
    memcpy(buffer + times, again + times, sizeof t.lr_times);
    must(memcmp(buffer, again, bytes - 8u) == 0);
    for (k = 0; k < 300; k++)
        go_on(&second, &t, k * (1u + data[3]));
    must(mpt_state_save(&s, again, bytes) == MPT_OK);
    must(mpt_state_load(&s, again, bytes) == MPT_OK);
    return 0;
}
