/* A small GPT in plain C that learns to add: it reads "27+65=" and writes 92.
 *
 *     cc -O3 -ffast-math -I. examples/dropin/before_gpt.c -o before_gpt -lm && ./before_gpt
 *     cc -O3 -ffast-math -I. examples/dropin/after_gpt.c -o after_gpt -lm && ./after_gpt
 *     diff examples/dropin/before_gpt.c examples/dropin/after_gpt.c
 *
 * This file exists twice. before_gpt.c is an ordinary FP32 trainer: loops over arrays, gradients summed with
 * +=, and AdamW, with weight decay on matrices only, which also clears the gradients. In after_gpt.c weights,
 * gradients and stored activations have 16 bits, FP16 or BF16; the loops are the same.
 *
 * The network is built like GPT-2: embeddings of tokens and positions, blocks of attention and a feed-forward
 * net with a norm before each, a last norm, a linear head. There are 10000 sums of two numbers below 100. The
 * program shuffles them, keeps 1024 for testing and learns from the others. It writes the digits of an answer
 * in reverse order, as one adds on paper: "27+65=290". Arguments: a seed (1), the number of steps (600). */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VOCAB = 12, TEXT = 9, LEN = TEXT - 1, ASK = 6, SUMS = 10000, TEST = 1024 };
enum { LAYERS = 2, WIDTH = 48, HEADS = 4, HEAD = WIDTH / HEADS, INNER = 4 * WIDTH };
enum { BATCH = 32, MICRO = 2, ROWS = BATCH * LEN, WARMUP = 50 };

/* ---- parameters: each with its gradient and the moments of Adam ---- */

typedef struct Param {
    float *w, *g, *m, *v;
    mpt_tensor *t;                          /* the 16-bit arrays; open_param sets w and g to floats */
    int    n, decay;
} Param;

typedef struct Layer {
    Param norm1, shift1, qkv, qkv_bias, proj, proj_bias;
    Param norm2, shift2, up, up_bias, down, down_bias;
} Layer;

static Param  tokens, positions, norm3, shift3, head, head_bias;
static Layer  layers[LAYERS];
static Param *params[6 + LAYERS * 12];
static int    param_count;
static float  steps_taken;

static const mpt_format half = MPT_F16;     /* or MPT_BF16 */
static mpt_scaler  scaler;
static mpt_step    state;
static mpt_tensors list;
static mpt_tensor  item[6 + LAYERS * 12];
static float       room[2][2 * INNER * WIDTH];

static uint64_t random_state;

static double random_unit(void)             /* 0 to 1 */
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static float random_normal(void)
{
    return (float)(sqrt(-2.0 * log(1.0 - random_unit())) * cos(6.283185307179586 * random_unit()));
}

static float *array(size_t n)
{
    float *p = calloc(n, sizeof *p);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

/* A matrix starts with random weights, and they decay; a vector starts with equal weights, without decay. */
static void param_init(Param *p, int n, float value, float deviation)
{
    int i;
    p->n = n;
    p->decay = deviation > 0.0f;
    p->w = array((size_t)n);
    p->m = array((size_t)n);
    p->v = array((size_t)n);
    for (i = 0; i < n; i++)
        p->w[i] = value + (deviation > 0.0f ? deviation * random_normal() : 0.0f);
    params[param_count++] = p;
    p->t = &item[list.count];
    mpt_tensors_add(&list, NULL, (size_t)n, NULL, NULL, p->w, p->m, p->v);
}

static void model_init(void)
{
    int l;
    mpt_scaler_init(&scaler, NULL);
    mpt_tensors_init(&list, item, 6 + LAYERS * 12, half, half);
    param_init(&tokens, VOCAB * WIDTH, 0.0f, 0.1f);
    param_init(&positions, LEN * WIDTH, 0.0f, 0.1f);
    for (l = 0; l < LAYERS; l++) {
        Layer *a = &layers[l];
        param_init(&a->norm1, WIDTH, 1.0f, 0.0f);
        param_init(&a->shift1, WIDTH, 0.0f, 0.0f);
        param_init(&a->qkv, 3 * WIDTH * WIDTH, 0.0f, 0.08f);
        param_init(&a->qkv_bias, 3 * WIDTH, 0.0f, 0.0f);
        param_init(&a->proj, WIDTH * WIDTH, 0.0f, 0.04f);
        param_init(&a->proj_bias, WIDTH, 0.0f, 0.0f);
        param_init(&a->norm2, WIDTH, 1.0f, 0.0f);
        param_init(&a->shift2, WIDTH, 0.0f, 0.0f);
        param_init(&a->up, INNER * WIDTH, 0.0f, 0.08f);
        param_init(&a->up_bias, INNER, 0.0f, 0.0f);
        param_init(&a->down, WIDTH * INNER, 0.0f, 0.04f);
        param_init(&a->down_bias, WIDTH, 0.0f, 0.0f);
    }
    param_init(&norm3, WIDTH, 1.0f, 0.0f);
    param_init(&shift3, WIDTH, 0.0f, 0.0f);
    param_init(&head, VOCAB * WIDTH, 0.0f, 0.08f);
    param_init(&head_bias, VOCAB, 0.0f, 0.0f);
    printf("%lu bytes of 16-bit parameters and gradients\n", (unsigned long)list.bytes);
    if (mpt_tensors_place(&list, calloc(list.bytes, 1), list.bytes)) exit(1);
}

/* One step of AdamW. */
static void update(float lr)
{
    const float beta1 = 0.9f, beta2 = 0.98f, eps = 1e-8f, decay = 0.1f;
    int         i, k;
    mpt_check(&scaler, &state, item, list.count, NULL);
    if (state.found_inf)
        return;
    steps_taken++;
    for (k = 0; k < param_count; k++) {
        Param *p = params[k];
        p->w = p->t->master;
        mpt_grad_get(&state, p->t, p->g = room[0]);
        for (i = 0; i < p->n; i++) {
            p->m[i] = beta1 * p->m[i] + (1.0f - beta1) * p->g[i];
            p->v[i] = beta2 * p->v[i] + (1.0f - beta2) * p->g[i] * p->g[i];
            p->w[i] -= lr * p->decay * decay * p->w[i];
            p->w[i] -= lr * p->m[i] / (1.0f - powf(beta1, steps_taken)) /
                       (sqrtf(p->v[i] / (1.0f - powf(beta2, steps_taken))) + eps);
        }
    }
    mpt_publish(item, list.count);
}

/* Open a parameter for a loop: w becomes its weights as floats, g a zeroed array for its gradient. */
static void open_param(Param *p, int k)
{
    p->w = room[k];
    p->g = memset(p->w + p->n, 0, (size_t)p->n * sizeof *p->g);
    mpt_convert_n(MPT_F32, p->w, half, p->t->param, (size_t)p->n, NULL, NULL);
}

static void close_param(Param *p)
{
    mpt_axpy(p->t->grad, half, 1.0f, p->g, MPT_F32, (size_t)p->n);
}

/* ---- the parts of the network: forward, and backward, which adds to the gradients of parameters ---- */

/* Map each row of `in` numbers to a row of `out` numbers; w is [out][in]. */
static void linear(float *y, const float *x, Param *w, Param *b, int in, int out)
{
    int r, o, i;
    open_param(w, 0), open_param(b, 1);
    for (r = 0; r < ROWS; r++)
        for (o = 0; o < out; o++) {
            const float *row = w->w + o * in;
            float        sum = b->w[o];
            for (i = 0; i < in; i++)
                sum += row[i] * x[r * in + i];
            y[r * out + o] = sum;
        }
}

static void linear_back(float *dx, const float *dy, const float *x, Param *w, Param *b, int in, int out)
{
    int r, o, i;
    open_param(w, 0), open_param(b, 1);
    memset(dx, 0, (size_t)(ROWS * in) * sizeof *dx);
    for (r = 0; r < ROWS; r++)
        for (o = 0; o < out; o++) {
            const float  d = dy[r * out + o];
            const float *row = w->w + o * in;
            for (i = 0; i < in; i++)
                dx[r * in + i] += d * row[i];
        }
    for (o = 0; o < out; o++)
        for (r = 0; r < ROWS; r++) {
            const float d = dy[r * out + o];
            float      *grad = w->g + o * in;
            for (i = 0; i < in; i++)
                grad[i] += d * x[r * in + i];
            b->g[o] += d;
        }
    close_param(w), close_param(b);
}

static void norm(float *y, const float *x, Param *scale, Param *shift)
{
    int r, i;
    open_param(scale, 0), open_param(shift, 1);
    for (r = 0; r < ROWS; r++) {
        const float *in = x + r * WIDTH;
        float        mean = 0.0f, var = 0.0f, s;
        for (i = 0; i < WIDTH; i++)
            mean += in[i] / WIDTH;
        for (i = 0; i < WIDTH; i++)
            var += (in[i] - mean) * (in[i] - mean) / WIDTH;
        s = 1.0f / sqrtf(var + 1e-5f);
        for (i = 0; i < WIDTH; i++)
            y[r * WIDTH + i] = scale->w[i] * (in[i] - mean) * s + shift->w[i];
    }
}

/* Adds to dx, which holds the gradient of the residual stream already. */
static void norm_back(float *dx, const float *dy, const float *x, Param *scale, Param *shift)
{
    int r, i;
    open_param(scale, 0), open_param(shift, 1);
    for (r = 0; r < ROWS; r++) {
        const float *in = x + r * WIDTH, *d = dy + r * WIDTH;
        float        mean = 0.0f, var = 0.0f, s, sum = 0.0f, dot = 0.0f;
        for (i = 0; i < WIDTH; i++)
            mean += in[i] / WIDTH;
        for (i = 0; i < WIDTH; i++)
            var += (in[i] - mean) * (in[i] - mean) / WIDTH;
        s = 1.0f / sqrtf(var + 1e-5f);
        for (i = 0; i < WIDTH; i++) {
            const float hat = (in[i] - mean) * s;
            sum += d[i] * scale->w[i] / WIDTH;
            dot += d[i] * scale->w[i] * hat / WIDTH;
            scale->g[i] += d[i] * hat;
            shift->g[i] += d[i];
        }
        for (i = 0; i < WIDTH; i++)
            dx[r * WIDTH + i] += s * (d[i] * scale->w[i] - sum - (in[i] - mean) * s * dot);
    }
    close_param(scale), close_param(shift);
}

/* Causal attention. p keeps the probabilities, [BATCH][HEADS][LEN][LEN]. */
static void attention(float *y, float *p, const float *qkv)
{
    const float scale = 1.0f / sqrtf((float)HEAD);
    int         b, h, t, u, i;
    for (b = 0; b < BATCH; b++)
        for (h = 0; h < HEADS; h++)
            for (t = 0; t < LEN; t++) {
                const float *q = qkv + (b * LEN + t) * 3 * WIDTH + h * HEAD;
                float       *row = p + ((b * HEADS + h) * LEN + t) * LEN, *out, max = -1e30f, sum = 0.0f;
                for (u = 0; u <= t; u++) {
                    const float *k = qkv + (b * LEN + u) * 3 * WIDTH + WIDTH + h * HEAD;
                    float        dot = 0.0f;
                    for (i = 0; i < HEAD; i++)
                        dot += q[i] * k[i];
                    row[u] = dot * scale;
                    max = row[u] > max ? row[u] : max;
                }
                for (u = 0; u <= t; u++)
                    sum += row[u] = expf(row[u] - max);
                out = y + (b * LEN + t) * WIDTH + h * HEAD;
                for (i = 0; i < HEAD; i++)
                    out[i] = 0.0f;
                for (u = 0; u < LEN; u++) {
                    const float *v = qkv + (b * LEN + u) * 3 * WIDTH + 2 * WIDTH + h * HEAD;
                    row[u] = u <= t ? row[u] / sum : 0.0f;
                    for (i = 0; i < HEAD; i++)
                        out[i] += row[u] * v[i];
                }
            }
}

static void attention_back(float *dqkv, const float *dy, const float *p, const float *qkv)
{
    const float scale = 1.0f / sqrtf((float)HEAD);
    int         b, h, t, u, i;
    memset(dqkv, 0, (size_t)(ROWS * 3 * WIDTH) * sizeof *dqkv);
    for (b = 0; b < BATCH; b++)
        for (h = 0; h < HEADS; h++)
            for (t = 0; t < LEN; t++) {
                const int    at = (b * LEN + t) * 3 * WIDTH + h * HEAD;
                const float *row = p + ((b * HEADS + h) * LEN + t) * LEN;
                const float *d = dy + (b * LEN + t) * WIDTH + h * HEAD;
                float        dp[LEN], sum = 0.0f;
                for (u = 0; u <= t; u++) {
                    const int v = (b * LEN + u) * 3 * WIDTH + 2 * WIDTH + h * HEAD;
                    dp[u] = 0.0f;
                    for (i = 0; i < HEAD; i++) {
                        dp[u] += d[i] * qkv[v + i];
                        dqkv[v + i] += row[u] * d[i];
                    }
                    sum += dp[u] * row[u];
                }
                for (u = 0; u <= t; u++) {
                    const int   k = (b * LEN + u) * 3 * WIDTH + WIDTH + h * HEAD;
                    const float ds = row[u] * (dp[u] - sum) * scale;
                    for (i = 0; i < HEAD; i++) {
                        dqkv[at + i] += ds * qkv[k + i];
                        dqkv[k + i] += ds * qkv[at + i];
                    }
                }
            }
}

/* x * sigmoid(1.702 x), close to GELU. */
static void gelu(float *y, const float *x, int n)
{
    int i;
    for (i = 0; i < n; i++)
        y[i] = x[i] / (1.0f + expf(-1.702f * x[i]));
}

static void gelu_back(float *dx, const float *x, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        const float s = 1.0f / (1.0f + expf(-1.702f * x[i]));
        dx[i] *= s + 1.702f * x[i] * s * (1.0f - s);
    }
}

static void add(float *y, const float *x, int n)
{
    int i;
    for (i = 0; i < n; i++)
        y[i] += x[i];
}

/* ---- the network ---- */

/* What a block keeps for the backward pass. */
typedef struct Kept {
    float x[ROWS * WIDTH], normed[ROWS * WIDTH], qkv[ROWS * 3 * WIDTH], p[BATCH * HEADS * LEN * LEN];
    float mixed[ROWS * WIDTH], middle[ROWS * WIDTH], normed2[ROWS * WIDTH];
    float inner[ROWS * INNER], active[ROWS * INNER];
} Kept;

static Kept  kept;                          /* of the current block; stored: of all blocks */
static mpt_f16 stored[LAYERS][sizeof(Kept) / sizeof(float)];
static float stream[ROWS * WIDTH], last[ROWS * WIDTH], logits[ROWS * VOCAB];
static float d_stream[ROWS * WIDTH], d_wide[ROWS * INNER], d_narrow[ROWS * WIDTH];
static int   text[BATCH][TEXT];

static void block(int l)
{
    Layer *a = &layers[l];
    Kept  *k = &kept;
    memcpy(k->x, stream, sizeof stream);
    norm(k->normed, stream, &a->norm1, &a->shift1);
    linear(k->qkv, k->normed, &a->qkv, &a->qkv_bias, WIDTH, 3 * WIDTH);
    attention(k->mixed, k->p, k->qkv);
    linear(d_narrow, k->mixed, &a->proj, &a->proj_bias, WIDTH, WIDTH);
    add(stream, d_narrow, ROWS * WIDTH);
    memcpy(k->middle, stream, sizeof stream);
    norm(k->normed2, stream, &a->norm2, &a->shift2);
    linear(k->inner, k->normed2, &a->up, &a->up_bias, WIDTH, INNER);
    gelu(k->active, k->inner, ROWS * INNER);
    linear(d_narrow, k->active, &a->down, &a->down_bias, INNER, WIDTH);
    add(stream, d_narrow, ROWS * WIDTH);
    mpt_convert_n(half, stored[l], MPT_F32, k, sizeof *k / sizeof(float), NULL, NULL);
}

static void block_back(int l)
{
    Layer *a = &layers[l];
    Kept  *k = &kept;
    mpt_convert_n(MPT_F32, k, half, stored[l], sizeof *k / sizeof(float), NULL, NULL);
    linear_back(d_wide, d_stream, k->active, &a->down, &a->down_bias, INNER, WIDTH);
    gelu_back(d_wide, k->inner, ROWS * INNER);
    linear_back(d_narrow, d_wide, k->normed2, &a->up, &a->up_bias, WIDTH, INNER);
    norm_back(d_stream, d_narrow, k->middle, &a->norm2, &a->shift2);
    linear_back(d_narrow, d_stream, k->mixed, &a->proj, &a->proj_bias, WIDTH, WIDTH);
    attention_back(d_wide, d_narrow, k->p, k->qkv);
    linear_back(d_narrow, d_wide, k->normed, &a->qkv, &a->qkv_bias, WIDTH, 3 * WIDTH);
    norm_back(d_stream, d_narrow, k->x, &a->norm1, &a->shift1);
}

static void forward(void)
{
    int r, i, l;
    open_param(&tokens, 0), open_param(&positions, 1);
    for (r = 0; r < ROWS; r++)
        for (i = 0; i < WIDTH; i++)
            stream[r * WIDTH + i] = tokens.w[text[r / LEN][r % LEN] * WIDTH + i] +
                                    positions.w[r % LEN * WIDTH + i];
    for (l = 0; l < LAYERS; l++)
        block(l);
    norm(last, stream, &norm3, &shift3);
    linear(logits, last, &head, &head_bias, WIDTH, VOCAB);
}

/* The mean loss over the digits of the answers. If `backward`, logits become its gradient times `seed`. */
static double loss_of(int backward, float seed)
{
    const float factor = seed / (float)(BATCH * (TEXT - ASK));
    double      loss = 0.0;
    int         r, i;
    for (r = 0; r < ROWS; r++) {
        float    *z = logits + r * VOCAB, max = z[0], sum = 0.0f;
        const int answer = r % LEN >= ASK - 1, label = text[r / LEN][r % LEN + 1];
        for (i = 1; i < VOCAB; i++)
            max = z[i] > max ? z[i] : max;
        for (i = 0; i < VOCAB; i++)
            sum += expf(z[i] - max);
        if (answer)
            loss += log(sum) + max - z[label];
        for (i = 0; backward && i < VOCAB; i++)
            z[i] = answer ? (expf(z[i] - max) / sum - (i == label ? 1.0f : 0.0f)) * factor : 0.0f;
    }
    return loss / (BATCH * (TEXT - ASK));
}

static void backward(void)
{
    int r, i, l;
    linear_back(d_narrow, logits, last, &head, &head_bias, WIDTH, VOCAB);
    memset(d_stream, 0, sizeof d_stream);
    norm_back(d_stream, d_narrow, stream, &norm3, &shift3);
    for (l = LAYERS; l--;)
        block_back(l);
    open_param(&tokens, 0), open_param(&positions, 1);
    for (r = 0; r < ROWS; r++)
        for (i = 0; i < WIDTH; i++) {
            tokens.g[text[r / LEN][r % LEN] * WIDTH + i] += d_stream[r * WIDTH + i];
            positions.g[r % LEN * WIDTH + i] += d_stream[r * WIDTH + i];
        }
    close_param(&tokens), close_param(&positions);
}

/* ---- sums ---- */

static int order[SUMS];

static void write_sum(int *to, int sum)
{
    const int a = sum / 100, b = sum % 100, c = a + b;
    const int all[TEXT] = {a / 10, a % 10, 10, b / 10, b % 10, 11, c % 10, c / 10 % 10, c / 100};
    memcpy(to, all, sizeof all);
}

/* Test with sums that were not trained: the mean loss, and the percentage of answers with all digits right.
 * For a digit of an answer the model reads the digits that it has written before, not the right ones. */
static void test(double *loss, double *accuracy)
{
    int right = 0, done, b, i, at, answer[TEXT];
    *loss = 0.0;
    for (done = 0; done < TEST / BATCH * BATCH; done += BATCH) {
        for (b = 0; b < BATCH; b++)
            write_sum(text[b], order[done + b]);
        forward();
        *loss += loss_of(0, 1.0f) * BATCH;
        for (at = ASK; at < TEXT; at++) {
            if (at > ASK)
                forward();
            for (b = 0; b < BATCH; b++) {
                const float *z = logits + (b * LEN + at - 1) * VOCAB;
                for (i = text[b][at] = 0; i < VOCAB; i++)
                    if (z[i] > z[text[b][at]])
                        text[b][at] = i;
            }
        }
        for (b = 0; b < BATCH; b++) {
            write_sum(answer, order[done + b]);
            right += !memcmp(answer, text[b], sizeof answer);
        }
    }
    *loss /= done;
    *accuracy = 100.0 * right / done;
}

int main(int argc, char **argv)
{
    const int steps = argc > 2 ? atoi(argv[2]) : 600;
    clock_t   begin;
    double    loss, accuracy, sum = 0.0;
    int       i, b, micro, step, size = 0;
    random_state = (uint64_t)(argc > 1 ? atoi(argv[1]) : 1);
    for (i = 0; i < SUMS; i++)
        order[i] = i;
    for (i = SUMS - 1; i > 0; i--) {
        const int j = (int)(random_unit() * (i + 1)), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    model_init();
    for (i = 0; i < param_count; i++)
        size += params[i]->n;
    printf("%d arrays, %d parameters\n", param_count, size);
    begin = clock();
    for (step = 1; step <= steps; step++) {
        const float warm = step < WARMUP ? (float)step / WARMUP : 1.0f;
        for (micro = 0; micro < MICRO; micro++) {
            for (b = 0; b < BATCH; b++)
                write_sum(text[b], order[TEST + (int)(random_unit() * (SUMS - TEST))]);
            forward();
            sum += loss_of(1, mpt_scaler_scale(&scaler, 1.0f / MICRO));
            backward();
        }
        update(8e-3f * warm * (1.0f - 0.9f * (float)step / (float)steps));
        mpt_grads_zero(item, list.count);
        if (mpt_scaler_update(&scaler)) exit(1);
        if (step % 100 == 0 || step == steps) {
            printf("step %4d  loss %.4f  %.1f s\n", step, sum / MICRO / (step % 100 ? step % 100 : 100),
                   (double)(clock() - begin) / CLOCKS_PER_SEC);
            sum = 0.0;
        }
    }
    test(&loss, &accuracy);
    printf("new sums: loss %.4f, %.1f%% right\n", loss, accuracy);
    return 0;
}
