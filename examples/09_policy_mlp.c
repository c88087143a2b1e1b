/* 09_policy_mlp.c -- one network under every precision policy: mpt_policy_format chooses the formats, and the
 * code of the network stays the same.
 *
 *     cc -O2 -I. examples/09_policy_mlp.c -o 09_policy_mlp -lm && ./09_policy_mlp
 *     MPT_POLICY=mixed_bfloat16 ./09_policy_mlp         one policy; this program reads the variable, not mpt
 *     ./09_policy_mlp --numbers                         also prints measured accuracies and final scales
 *
 * A 64-32-10 network, built from mpt's typed ops (mpt_gemm, mpt_bias_add, mpt_activate, mpt_cross_entropy),
 * learns 1797 real handwritten digits. The policies float16 and bfloat16 store the weights in 16 bits, too,
 * without FP32 masters: they are for study. float64 is not trained: these ops take formats up to FP32. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/digits.h"

enum { PIXELS = DIGIT_PIXELS, HIDDEN = 32, CLASSES = DIGIT_KINDS, BATCH = 32, EPOCHS = 20 };

/* ---- an array in the format that the policy chooses; there is room for FP32 ---- */

enum { MOST = PIXELS * HIDDEN };
typedef struct array {
    float      room[MOST];
    mpt_format format;
} array;

/* The format that f is stored in: TF32 values are rounded, and stored as FP32. */
static mpt_format stored(mpt_format f) { return f == MPT_TF32 ? MPT_F32 : f; }

static void put(array *a, const float *x, size_t n, mpt_format format)
{
    a->format = stored(format);
    if (format == MPT_TF32)
        must(mpt_quantize_n(a->room, x, n, MPT_TF32, NULL));
    else
        store(a->room, a->format, x, n);
}

/* ---- the network ---- */

typedef struct layer {
    float      master[MOST], m[MOST];
    array      weight, grad;            /* in the formats net.matmul and net.hidden */
    float      bias[HIDDEN], bias_m[HIDDEN], bias_grad[HIDDEN];
    size_t     n_in, n_out;
} layer;

typedef struct net {
    mpt_policy policy;
    mpt_format matmul, hidden, output;  /* formats of a product's inputs, its result, the last layer's */
    layer      l[2];
    array      x, z, h, logits, d, dh;
} net;

static mpt_policy_answer ask(const mpt_policy *p, const char *op, mpt_format input)
{
    mpt_policy_answer a;
    must(mpt_policy_format(p, op, &input, 1, &a));
    return a;
}

static void publish(net *t)
{
    size_t i;
    for (i = 0; i < 2; i++) {
        layer *l = &t->l[i];
        if (t->policy.variable != MPT_F32)      /* no FP32 masters: keep what the format can hold */
            must(mpt_quantize_n(l->master, l->master, l->n_in * l->n_out, t->policy.variable, NULL));
        put(&l->weight, l->master, l->n_in * l->n_out, t->matmul);
    }
}

/* c = op(a) op(b); the matrices are row-major, without gaps between rows. */
static void product(mpt_trans op_a, mpt_trans op_b, size_t m, size_t n, size_t k, const array *a,
                    const array *b, array *c)
{
    must(mpt_gemm(MPT_ROW_MAJOR, op_a, op_b, m, n, k, 1.0f, a->room, a->format, op_a == MPT_TRANS ? m : k,
                  b->room, b->format, op_b == MPT_TRANS ? k : n, 0.0f, c->room, c->format, n, NULL, 0));
}

static void forward(net *t, const float *x, size_t rows)
{
    layer *a = &t->l[0], *b = &t->l[1];
    put(&t->x, x, rows * PIXELS, t->matmul);
    t->z.format = t->h.format = t->hidden;
    t->logits.format = t->output;
    product(MPT_NO_TRANS, MPT_NO_TRANS, rows, HIDDEN, PIXELS, &t->x, &a->weight, &t->z);
    must(mpt_bias_add(t->z.room, t->z.format, a->bias, MPT_F32, rows, HIDDEN));
    must(mpt_activate(MPT_ACT_TANH, t->h.room, t->h.format, t->z.room, t->z.format, rows * HIDDEN));
    product(MPT_NO_TRANS, MPT_NO_TRANS, rows, CLASSES, HIDDEN, &t->h, &b->weight, &t->logits);
    must(mpt_bias_add(t->logits.room, t->logits.format, b->bias, MPT_F32, rows, CLASSES));
}

static void backward(net *t, const uint32_t *right, size_t rows, float seed, float *loss)
{
    layer *a = &t->l[0], *b = &t->l[1];
    t->d.format = t->dh.format = a->grad.format = b->grad.format = t->hidden;
    must(mpt_cross_entropy(t->logits.room, t->logits.format, right, rows, CLASSES, loss, t->d.room,
                           t->d.format, seed));
    product(MPT_TRANS, MPT_NO_TRANS, HIDDEN, CLASSES, rows, &t->h, &t->d, &b->grad);
    must(mpt_bias_grad(b->bias_grad, MPT_F32, t->d.room, t->d.format, rows, CLASSES));
    product(MPT_NO_TRANS, MPT_TRANS, rows, HIDDEN, CLASSES, &t->d, &b->weight, &t->dh);
    must(mpt_activate_grad(MPT_ACT_TANH, t->dh.room, t->dh.format, t->dh.room, t->dh.format, t->z.room,
                           t->z.format, rows * HIDDEN));
    product(MPT_TRANS, MPT_NO_TRANS, PIXELS, HIDDEN, rows, &t->x, &t->dh, &a->grad);
    must(mpt_bias_grad(a->bias_grad, MPT_F32, t->dh.room, t->dh.format, rows, HIDDEN));
}

static void tensors_of(net *t, mpt_tensor *list)
{
    size_t i;
    memset(list, 0, 4 * sizeof *list);
    for (i = 0; i < 2; i++) {
        layer *l = &t->l[i];
        list[2 * i].n = l->n_in * l->n_out;
        list[2 * i].master = l->master;
        list[2 * i].m = l->m;
        list[2 * i].grad = l->grad.room;
        list[2 * i].grad_format = t->hidden;
        list[2 * i + 1].n = l->n_out;
        list[2 * i + 1].master = l->bias;
        list[2 * i + 1].m = l->bias_m;
        list[2 * i + 1].grad = l->bias_grad;
        list[2 * i + 1].grad_format = MPT_F32;
    }
}

static double accuracy(net *t)
{
    size_t i, right = 0;
    float  logits[CLASSES];
    for (i = digits_train; i < digits_count; i++) {
        forward(t, digits[i].x, 1);
        load(logits, t->logits.room, t->logits.format, CLASSES);
        right += digit_best(logits) == digits[i].label;
    }
    return share(right, digits_count - digits_train);
}

static double train(const mpt_policy *p, float *scale, double *mean_loss)
{
    static net t;
    mpt_tensor list[4];
    mpt_scaler scaler;
    mpt_step   step;
    mpt_sgd    sgd;
    float      x[BATCH * PIXELS], loss = 0.0f;
    uint32_t   right[BATCH];
    size_t     order[DIGITS_MOST], i, k, at;
    int        epoch;
    memset(&t, 0, sizeof t);
    memset(&step, 0, sizeof step);
    memset(&sgd, 0, sizeof sgd);
    sgd.lr = 0.1f;
    sgd.momentum = 0.9f;
    t.policy = *p;
    t.matmul = ask(p, "matmul", MPT_F32).input;
    t.hidden = stored(ask(p, "matmul", MPT_F32).output);
    t.output = stored(ask(p, "output", t.hidden).output);
    t.l[0].n_in = PIXELS, t.l[0].n_out = t.l[1].n_in = HIDDEN, t.l[1].n_out = CLASSES;
    random_state = 1;
    for (i = 0; i < 2; i++)
        for (k = 0; k < t.l[i].n_in * t.l[i].n_out; k++)
            t.l[i].master[k] = random_weight(i ? 0.3 : 0.2);
    tensors_of(&t, list);
    must(mpt_scaler_init(&scaler, NULL));
    for (i = 0; i < digits_train; i++)
        order[i] = i;
    for (epoch = 0; epoch < EPOCHS; epoch++) {
        *mean_loss = 0.0;
        shuffle(order, digits_train);
        for (at = 0; at + BATCH <= digits_train; at += BATCH) {
            digits_batch(order + at, BATCH, x, right);
            publish(&t);
            forward(&t, x, BATCH);
            backward(&t, right, BATCH, mpt_scaler_scale(&scaler, 1.0f), &loss);
            *mean_loss += (double)loss * BATCH / (double)digits_train;
            must(mpt_check(&scaler, &step, list, 4, NULL));
            must(mpt_sgd_step(&sgd, &step, list, 4));
            must(mpt_scaler_update(&scaler));
        }
    }
    publish(&t);
    *scale = scaler.scale;
    return accuracy(&t);
}

static void show(const mpt_policy *p, int numbers)
{
    static const char *const ops[] = {"matmul", "bias_add", "tanh", "output", "loss"};
    const mpt_format         low = stored(ask(p, "matmul", MPT_F32).output);
    double                   right, loss;
    float                    scale;
    size_t                   i;
    printf("%s: compute %s, variables %s, output %s\n", p->name, mpt_format_get(p->compute)->name,
           mpt_format_get(p->variable)->name, mpt_format_get(p->output)->name);
    for (i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const mpt_policy_answer a = ask(p, ops[i], i ? low : MPT_F32);
        printf("    %-9s %-4s -> %-4s  %s\n", ops[i], mpt_format_get(a.input)->name,
               mpt_format_get(a.output)->name, a.why);
    }
    if (p->compute == MPT_F64)
        return;
    right = train(p, &scale, &loss);
    printf("    learns the digits: %s\n", right > 0.85 ? "yes, more than 85% of the test digits" : "no");
    if (numbers)
        printf("    %.2f%% right, loss in the last epoch %.6f, loss scale %g\n", 100.0 * right, loss,
               (double)scale);
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("MPT_POLICY");
    const int   numbers = argc > 1 && !strcmp(argv[1], "--numbers");
    mpt_policy  p;
    size_t      i;
    digits_load("examples/data/digits.csv");
    if (wanted && mpt_policy_find(wanted, &p) != MPT_OK)
        die(wanted, "MPT_POLICY names no policy");
    for (i = 0; mpt_policy_name(i); i++)
        if (!wanted || !strcmp(wanted, mpt_policy_name(i))) {
            must(mpt_policy_find(mpt_policy_name(i), &p));
            show(&p, numbers);
        }
    return 0;
}
