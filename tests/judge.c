/* judge.c -- a shared object with functions of the headers, for the Python programs that compare mpt with
 * other software: judge_numpy.py, judge_torch.py, judge_tensorflow.py. It takes arrays and no structs. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/amp_graph_reader.h"
#include <stdio.h>

#ifdef _WIN32
#define JUDGE(type) __declspec(dllexport) type
#else
#define JUDGE(type) type
#endif
#define OF(f) ((mpt_format)(f))

/* ---- formats ---- */

/* The bits, mantissa bits, bytes and sign bits of format f; its largest and its least positive number.
 * Returns: its name; NULL after the last format. */
JUDGE(const char *) judge_format(int f, double facts[6]);
JUDGE(void) judge_encode(int f, const double *x, uint64_t *code, size_t n);
JUDGE(void) judge_decode(int f, const uint64_t *code, double *x, size_t n);
JUDGE(int) judge_convert(int to, void *dst, int from, const void *src, size_t n);
JUDGE(size_t) judge_text(int f, uint64_t code, char *text, size_t cap);
JUDGE(void) judge_arithmetic(int op, const uint16_t *a, const uint16_t *b, uint16_t *to, size_t n);

JUDGE(const char *) judge_format(int f, double facts[6])
{
    const mpt_format_info *i = mpt_format_get(OF(f));
    if (!i)
        return NULL;
    facts[0] = i->bits, facts[1] = i->mantissa_bits, facts[2] = i->bytes, facts[3] = i->sign_bits;
    facts[4] = i->max_finite, facts[5] = i->min_subnormal;
    return i->name;
}

JUDGE(void) judge_encode(int f, const double *x, uint64_t *code, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        code[i] = mpt_encode(OF(f), x[i], NULL, NULL);
}

JUDGE(void) judge_decode(int f, const uint64_t *code, double *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        x[i] = mpt_decode(OF(f), code[i]);
}

JUDGE(int) judge_convert(int to, void *dst, int from, const void *src, size_t n)
{
    return mpt_convert_n(OF(to), dst, OF(from), src, n, NULL, NULL);
}

JUDGE(size_t) judge_text(int f, uint64_t code, char *text, size_t cap)
{
    return mpt_to_text(text, cap, OF(f), code);
}

/* op 0 to 5: + - * / sqrt and the next number above, in f16; 8 to 13: the same in bf16. */
JUDGE(void) judge_arithmetic(int op, const uint16_t *a, const uint16_t *b, uint16_t *to, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        mpt_f16  x = {a[i]}, y = {b[i]}, z = {0};
        mpt_bf16 p = {a[i]}, q = {b[i]}, r = {0};
        switch (op) {
        case 0: z = mpt_f16_add(x, y); break;
        case 1: z = mpt_f16_sub(x, y); break;
        case 2: z = mpt_f16_mul(x, y); break;
        case 3: z = mpt_f16_div(x, y); break;
        case 4: z = mpt_f16_sqrt(x); break;
        case 5: z = mpt_f16_next(x, 1); break;
        case 8: r = mpt_bf16_add(p, q); break;
        case 9: r = mpt_bf16_sub(p, q); break;
        case 10: r = mpt_bf16_mul(p, q); break;
        case 11: r = mpt_bf16_div(p, q); break;
        case 12: r = mpt_bf16_sqrt(p); break;
        case 13: r = mpt_bf16_next(p, 1); break;
        default: break;
        }
        to[i] = op < 8 ? z.bits : r.bits;
    }
}

/* ---- training ---- */

JUDGE(int) judge_scaler(int dialect, const unsigned char *bad, float *scale, size_t steps);
JUDGE(int) judge_steps(int optimizer, const double *h, float *w, const float *grads, size_t n, size_t columns,
                       size_t steps, float *room);
JUDGE(int) judge_policy(const char *policy, const char *op, int input, int answer[3]);

/* The scale after each step. */
JUDGE(int) judge_scaler(int dialect, const unsigned char *bad, float *scale, size_t steps)
{
    const mpt_scaler_config c = mpt_scaler_defaults((mpt_scaler_dialect)dialect);
    mpt_scaler              s;
    size_t                  i;
    mpt_status              status = mpt_scaler_init(&s, &c);
    for (i = 0; i < steps && status == MPT_OK; i++) {
        (void)mpt_scaler_scale(&s, 1.0f);
        status = mpt_scaler_record(&s, bad[i], bad[i] ? MPT_CAUSE_INF : 0u);
        if (status == MPT_OK)
            status = mpt_scaler_update(&s);
        scale[i] = s.scale;
    }
    return status;
}

/* Take `steps` optimizer steps on one tensor of n weights; grads is [steps][n]. h: lr, weight decay, momentum
 * or beta1, beta2, eps, nesterov, dampening. room: [3 * n] floats of workspace. */
JUDGE(int) judge_steps(int optimizer, const double *h, float *w, const float *grads, size_t n, size_t columns,
                       size_t steps, float *room)
{
    mpt_scaler_config config = mpt_scaler_defaults(MPT_SCALER_STATIC);
    mpt_scaler        s;
    mpt_tensor        t;
    mpt_sgd           sgd;
    mpt_adamw         adam = mpt_adamw_defaults();
    mpt_lion          lion = mpt_lion_defaults();
    mpt_adafactor     ada = mpt_adafactor_defaults();
    void             *o = &adam;
    size_t            i;
    mpt_status        status;
    config.init_scale = 1.0f;
    status = mpt_scaler_init(&s, &config);
    memset(&sgd, 0, sizeof sgd);
    memset(&t, 0, sizeof t);
    memset(room, 0, 3 * n * sizeof *room);
    sgd.lr = adam.lr = lion.lr = ada.lr = (float)h[0];
    sgd.weight_decay = adam.weight_decay = lion.weight_decay = ada.weight_decay = (float)h[1];
    sgd.momentum = adam.beta1 = lion.beta1 = (float)h[2];
    adam.beta2 = lion.beta2 = (float)h[3];
    adam.eps = (float)h[4];
    sgd.nesterov = h[5] > 0.0;
    sgd.dampening = (float)h[6];
    if (optimizer == MPT_OPTIMIZER_SGD)
        o = &sgd;
    if (optimizer == MPT_OPTIMIZER_LION)
        o = &lion;
    if (optimizer == MPT_OPTIMIZER_ADAFACTOR)
        o = &ada;
    t.n = n;
    t.master = w;
    t.m = optimizer == MPT_OPTIMIZER_ADAFACTOR ? NULL : room;
    t.v = room + n;
    t.columns = optimizer == MPT_OPTIMIZER_ADAFACTOR ? columns : 0;
    t.grad_format = MPT_F32;
    for (i = 0; i < steps && status == MPT_OK; i++) {
        mpt_step step;
        memset(&step, 0, sizeof step);
        memcpy(room + 2 * n, grads + i * n, n * sizeof *grads);
        t.grad = room + 2 * n;
        (void)mpt_scaler_scale(&s, 1.0f);
        status = mpt_optimizer_step((mpt_optimizer)optimizer, o, &s, &step, &t, 1, 0.0f);
    }
    return status;
}

/* The policy's answer for an op: the rule, the format of the input, the format of the output. */
JUDGE(int) judge_policy(const char *policy, const char *op, int input, int answer[3])
{
    const mpt_format  in = OF(input);
    mpt_policy        p;
    mpt_policy_answer a;
    mpt_status        status = mpt_policy_find(policy, &p);
    if (status == MPT_OK)
        status = mpt_policy_format(&p, op, &in, 1, &a);
    if (status == MPT_OK)
        answer[0] = (int)a.rule, answer[1] = (int)a.input, answer[2] = (int)a.output;
    return status;
}

/* ---- graph ---- */

/* Rewrite a graph, given in the language of amp_graph_reader.h, as TensorFlow does on CUDA, or (`brain`) with
 * its BF16 lists on the CPU. told: a line for each type that is or was FP32: node, name, 1 if it is low, and
 * the reason; then the number of converted nodes and of casts that TensorFlow counts. Returns: the number of
 * all casts; minus the number of the line that cannot be read; INT32_MIN if the graph is refused. */
JUDGE(int) judge_graph(const char *text, int brain, char *told, size_t cap);
JUDGE(int) judge_graph(const char *text, int brain, char *told, size_t cap)
{
    static double     memory[1 << 18];
    static char       names[1 << 20];
    mpt_graph         g;
    mpt_graph_options o = mpt_graph_defaults();
    mpt_graph_summary s;
    size_t            used = 0;
    uint32_t          t;
    int               line = 0;
    o.lists = brain ? MPT_LISTS_TF_BF16 : MPT_LISTS_TF_CUDA;
    o.low = brain ? MPT_BF16 : MPT_F16;
    o.device = brain ? "cpu" : "gpu";
    told[0] = 0;
    if (mpt_graph_init(&g, memory, sizeof memory) != MPT_OK ||
        amp_graph_read(&g, names, sizeof names, text, &line))
        return -line;
    if (mpt_graph_rewrite(&g, &o, &s) != MPT_OK) {
        (void)snprintf(told, cap, "%s: %s", g.fault.node ? g.fault.node : "", g.fault.why ? g.fault.why : "");
        return INT32_MIN;
    }
    for (t = 0; t < g.type_count && used < cap; t++) {
        const mpt_graph_node *n = &g.nodes[g.types[t].node];
        char                  why[400];
        if (n->flags & MPT_NODE_CAST || (g.types[t].format != (int32_t)MPT_F32 && !mpt_graph_is_low(&g, t)))
            continue;
        (void)mpt_graph_explain(&g, t, why, sizeof why);
        used += (size_t)snprintf(told + used, cap - used, "%s|%s|%d|%s\n", n->name, g.types[t].name,
                                 mpt_graph_is_low(&g, t), why);
    }
    if (used < cap)
        (void)snprintf(told + used, cap - used, "%d %d\n", (int)s.converted, (int)s.low_casts);
    return (int)s.casts;
}
