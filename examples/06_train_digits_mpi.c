/* 06_train_digits_mpi.c -- data-parallel training with MPI: the same bits on 1, 2 or 4 ranks.
 *
 *     mpicc -O2 -I. examples/06_train_digits_mpi.c -o 06_train_digits_mpi -lm
 *     mpirun -n 4 ./06_train_digits_mpi
 *
 * Every batch is cut into four shards, whatever the number of ranks. Each rank computes the scaled gradients
 * of its shards; weights and activation gradients are FP16. Then
 *
 *   1. each rank checks its gradients, and mpt_step_combine makes one decision for all ranks: if any gradient
 *      of any rank is Inf or NaN, all ranks skip the step and lower the scale together;
 *   2. the gradients of the shards are added in a fixed tree, (0 + 1) + (2 + 3): first within a rank, then by
 *      exchange between pairs of ranks. a + b and b + a have the same bits, so both ranks get the same sum;
 *   3. each rank checks the sum (to get its norm), clips it, and takes the same step on its own weights.
 *
 * At step 30 shard 3 overflows on purpose: its gradients are made too large for FP16. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/digits.h"

#include <mpi.h>

enum { IN = DIGIT_PIXELS + 1, HIDDEN = 33, OUT = DIGIT_KINDS, N1 = (HIDDEN - 1) * IN, N2 = OUT * HIDDEN };
enum { NW = N1 + N2, SHARDS = 4, SHARD = 16, BATCH = SHARDS * SHARD, EPOCHS = 6, OVERFLOWS_AT = 30 };

static float    master[NW], copy32[NW], momentum[NW];
static mpt_f16  copy16[NW];
static float    grad[SHARDS][NW], received[NW];
static int      rank, ranks;

static void forward(const float *in, float *hidden, float *out)
{
    int i, j;
    for (i = 0; i < HIDDEN - 1; i++) {
        float sum = 0.0f;
        for (j = 0; j < IN; j++)
            sum += copy32[i * IN + j] * in[j];
        hidden[i] = sum > 0.0f ? sum : 0.0f;
    }
    hidden[HIDDEN - 1] = 1.0f;
    for (i = 0; i < OUT; i++) {
        out[i] = 0.0f;
        for (j = 0; j < HIDDEN; j++)
            out[i] += copy32[N1 + i * HIDDEN + j] * hidden[j];
    }
}

/* A number, rounded to FP16. */
static float in_f16(float v) { return mpt_f32_from_f16(mpt_f16_from_f32(v)); }

/* Add the gradient of one sample to g; seed is the weight of the sample in the loss, times the scale. */
static void backward(const float *in, int target, float seed, float *g)
{
    float hidden[HIDDEN], out[OUT], p[OUT], most, total = 0.0f;
    int   i, j;
    forward(in, hidden, out);
    for (most = out[0], i = 1; i < OUT; i++)
        most = out[i] > most ? out[i] : most;
    for (i = 0; i < OUT; i++)
        total += p[i] = expf(out[i] - most);
    for (i = 0; i < OUT; i++) {
        const float d = in_f16((p[i] / total - (i == target ? 1.0f : 0.0f)) * seed);
        p[i] = d;
        for (j = 0; j < HIDDEN; j++)
            g[N1 + i * HIDDEN + j] += d * hidden[j];
    }
    for (j = 0; j < HIDDEN - 1; j++) {
        float d = 0.0f;
        for (i = 0; i < OUT; i++)
            d += copy32[N1 + i * HIDDEN + j] * p[i];
        d = hidden[j] > 0.0f ? in_f16(d) : 0.0f;
        for (i = 0; i < IN; i++)
            g[j * IN + i] += d * in[i];
    }
}

static void add(float *sum, const float *other)
{
    int i;
    for (i = 0; i < NW; i++)
        sum[i] += other[i];
}

/* Add the shards in the fixed tree: neighbours first, then pairs. The sum ends in grad[0] of every rank. */
static void add_shards(int mine)
{
    float *const sum = grad[0];
    int          step;
    if (mine == 4) {
        add(grad[0], grad[1]);
        add(grad[2], grad[3]);
        add(grad[0], grad[2]);
    } else if (mine == 2) {
        add(grad[0], grad[1]);
    }
    for (step = 1; step < ranks; step *= 2) {
        if (MPI_Sendrecv(sum, NW, MPI_FLOAT, rank ^ step, 0, received, NW, MPI_FLOAT, rank ^ step, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            die("MPI_Sendrecv", "failed");
        add(sum, received);
    }
}

static int reduce(void *user, double *values, size_t n)
{
    (void)user;
    return MPI_Allreduce(MPI_IN_PLACE, values, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
}

static unsigned long long weights_hash(void)
{
    unsigned long long h = 14695981039346656037ull;
    const unsigned char *p = (const unsigned char *)master;
    size_t               i;
    for (i = 0; i < sizeof master; i++)
        h = (h ^ p[i]) * 1099511628211ull;
    return h;
}

/* Print the number of the first shard that overflowed; shards are numbered alike on any number of ranks. */
static void say_why(const mpt_step *local, int mine, int step)
{
    int first = local->bad_cause ? rank * mine + (int)local->bad_tensor : SHARDS, all = 0;
    (void)MPI_Allreduce(&first, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0)
        printf("step %d: shard %d overflowed, all ranks skip; %llu Inf, %llu NaN\n", step, all,
               (unsigned long long)local->inf_count, (unsigned long long)local->nan_count);
}

int main(int argc, char **argv)
{
    mpt_scaler         scaler;
    mpt_step           local, whole;
    mpt_sgd            sgd = {0.1f, 0.9f, 0.0f, 0u, 0.0f, 0u, 0u};
    mpt_tensor         shard[SHARDS], weights;
    unsigned long long hash[2], most[2];
    size_t             at, k;
    int                epoch, s, i, right = 0, mine, step = 0, same;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 1 && ranks != 2 && ranks != 4)         /* a rank that exits here ends the others, too */
        die("ranks", "must be 1, 2 or 4, because there are four shards");
    mine = SHARDS / ranks;
    digits_load(argc > 1 ? argv[1] : "examples/data/digits.csv");
    memset(&local, 0, sizeof local);
    memset(&whole, 0, sizeof whole);
    must(mpt_scaler_init(&scaler, NULL));
    for (s = 0; s < mine; s++)
        shard[s] = mpt_tensor_grad_f32("shard", grad[s], NW);
    weights = mpt_tensor_grad_f32("weights", grad[0], NW);
    weights.master = master;
    weights.m = momentum;
    weights.param = copy16;
    weights.param_format = MPT_F16;
    for (i = 0; i < NW; i++)
        master[i] = random_weight(i < N1 ? 0.125 : 0.175);
    must(mpt_publish(&weights, 1));

    for (epoch = 0; epoch < EPOCHS; epoch++)
        for (at = 0; at + BATCH <= digits_train; at += BATCH) {
            const float seed = mpt_scaler_scale(&scaler, 1.0f / BATCH);         /* 1 scale */
            must(mpt_f32_from_f16_n(copy32, copy16, NW));
            memset(grad, 0, sizeof grad);
            for (s = 0; s < mine; s++)                                          /* 2 backward */
                for (i = 0; i < SHARD; i++) {
                    const int    which = rank * mine + s, wrong = step == OVERFLOWS_AT && which == 3;
                    const digit *d = &digits[at + (size_t)(which * SHARD + i)];
                    backward(d->x, d->label, wrong ? seed * 100.0f : seed, grad[s]);
                }
            must(mpt_check(&scaler, &local, shard, (size_t)mine, NULL));        /* 3 check, all ranks */
            must(mpt_step_combine(&scaler, &local, shard, (size_t)mine, reduce, NULL));
            if (local.found_inf) {
                say_why(&local, mine, step);
            } else {
                add_shards(mine);
                must(mpt_check(&scaler, &whole, &weights, 1, NULL));
                must(mpt_clip(&whole, 1.0f));
                must(mpt_sgd_step(&sgd, &whole, &weights, 1));                  /* 4 step */
            }
            must(mpt_scaler_update(&scaler));                                   /* 5 update */
            step++;
        }

    must(mpt_f32_from_f16_n(copy32, copy16, NW));
    for (k = digits_train; k < digits_count; k++) {
        float hidden[HIDDEN], out[OUT];
        forward(digits[k].x, hidden, out);
        right += digit_best(out) == digits[k].label;
    }
    hash[0] = weights_hash(), hash[1] = ~hash[0];
    (void)MPI_Allreduce(hash, most, 2, MPI_UNSIGNED_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
    same = most[0] == ~most[1];                         /* the largest hash is the smallest */
    if (rank == 0)
        printf("%d steps, %llu skipped, scale %.0f, %d of %u right, weights %016llx, %s\n", step,
               (unsigned long long)scaler.skipped, (double)scaler.scale, right,
               (unsigned)(digits_count - digits_train), hash[0],
               same ? "the same on every rank" : "RANKS DIFFER");
    (void)MPI_Finalize();
    return same ? 0 : 1;
}
