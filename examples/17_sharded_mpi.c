/* 17_sharded_mpi.c -- masters and moments divided among MPI ranks, as in ZeRO stage 1, with the same bits.
 *
 *     mpicc -O2 -I. examples/17_sharded_mpi.c -o 17_sharded_mpi -lm
 *     mpirun -n 3 ./17_sharded_mpi [--bf16] [--stop STEP | --from RANKS] [FILE]
 *
 * Every rank has all FP16 weights and a whole FP16 gradient, but FP32 masters and Adam's moments only for its
 * own part: 2 + 2 + 12 / N bytes a parameter on N ranks (8 / N with --bf16, moments in BF16). In each step
 *
 *   1. the batch is cut into twelve micro-batches; N at a time, one per rank, go through both passes.
 *      Then each rank receives its part of every rank's gradient, in FP16, and adds these parts to FP32 sums
 *      in the order of the micro-batches, so that the sums have the same bits for any N (reduce-scatter);
 *   2. each rank checks its sums, and mpt_step_combine gives all ranks one decision and one norm;
 *   3. each rank clips and steps its part;
 *   4. every rank gathers the FP16 copies of all parts.
 *
 * On one rank nothing is divided: that run is the reference. At step 30 a micro-batch overflows on purpose.
 * --stop writes one file per rank, FILE.0, FILE.1 ...; --from RANKS resumes these on any number of ranks.
 * MPI_Reduce_scatter or ncclReduceScatter would be faster in 1, but they add in an order of their own. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/digits.h"

#include <mpi.h>

enum { IN = DIGIT_PIXELS + 1, HIDDEN = 384, OUT = DIGIT_KINDS, N1 = HIDDEN * IN, N2 = OUT * HIDDEN };
enum { ALL = N1 + N2, TENSORS = 2, MICRO = 12, PER = 4, BATCH = MICRO * PER, EPOCHS = 3, OVERFLOWS_AT = 30 };

/* A rank's tensors, or its parts of them, and the memory for its masters, moments and gradient sums. */
typedef struct shard { mpt_tensor item[TENSORS]; void *memory; } shard;

static mpt_f16     copy[ALL], grad[ALL], piece[ALL];
static shard       own;
static mpt_tensor  pieces[TENSORS];                 /* `piece` receives our part of another rank's gradient */
static mpt_scaler  scaler;
static mpt_step    step;
static mpt_adamw   adamw;
static uint64_t    steps;
static mpt_moments moments;
static int         rank, ranks, counts[MICRO], offsets[MICRO];
static double      sent[3];                         /* bytes sent: gradients, decision, copies */

static int shard_make(shard *s, int part, int parts)        /* returns its number of elements */
{
    mpt_tensors list;
    must(mpt_tensors_init(&list, s->item, TENSORS, MPT_F16, MPT_F32));
    list.model.moments = moments;
    must(mpt_tensors_add(&list, "w1", N1, copy, NULL, NULL, NULL, NULL));
    must(mpt_tensors_add(&list, "w2", N2, copy + N1, NULL, NULL, NULL, NULL));
    if (parts > 1)
        must(mpt_tensors_shard(&list, (size_t)part, (size_t)parts));
    s->memory = calloc(list.bytes, 1);
    must(mpt_tensors_place(&list, s->memory, list.bytes));
    return (int)(s->item[0].n + s->item[1].n);
}

/* ---- the network ---- */

static void product(mpt_trans a_op, mpt_trans b_op, size_t m, size_t n, size_t k, const void *a, size_t lda,
                    const void *b, mpt_format b_format, size_t ldb, void *c, mpt_format c_format)
{
    must(mpt_gemm(MPT_ROW_MAJOR, a_op, b_op, m, n, k, 1.0f, a, MPT_F32, lda, b, b_format, ldb, 0.0f, c,
                  c_format, n, NULL, 0));
}

static void forward(const float *x, size_t n, float *z, float *y)
{
    product(MPT_NO_TRANS, MPT_TRANS, n, HIDDEN, IN, x, IN, copy, MPT_F16, IN, z, MPT_F32);
    must(mpt_activate(MPT_ACT_RELU, z, MPT_F32, z, MPT_F32, n * HIDDEN));
    product(MPT_NO_TRANS, MPT_TRANS, n, OUT, HIDDEN, z, HIDDEN, copy + N1, MPT_F16, HIDDEN, y, MPT_F32);
}

static void backward(const digit *d, float seed)
{
    float    x[PER * IN], h[PER * HIDDEN], dh[PER * HIDDEN], y[PER * OUT];
    uint32_t label[PER];
    int      i;
    for (i = 0; i < PER; i++) {
        memcpy(x + i * IN, d[i].x, sizeof d[i].x);
        label[i] = (uint32_t)d[i].label;
    }
    forward(x, PER, h, y);
    must(mpt_cross_entropy(y, MPT_F32, label, PER, OUT, NULL, y, MPT_F32, seed));
    product(MPT_TRANS, MPT_NO_TRANS, OUT, HIDDEN, PER, y, OUT, h, MPT_F32, HIDDEN, grad + N1, MPT_F16);
    product(MPT_NO_TRANS, MPT_NO_TRANS, PER, HIDDEN, OUT, y, OUT, copy + N1, MPT_F16, HIDDEN, dh, MPT_F32);
    must(mpt_activate_grad(MPT_ACT_RELU, dh, MPT_F32, dh, MPT_F32, h, MPT_F32, PER * HIDDEN));
    product(MPT_TRANS, MPT_NO_TRANS, HIDDEN, IN, PER, dh, HIDDEN, x, MPT_F32, IN, grad, MPT_F16);
}

/* ---- ranks ---- */

static void reduce_scatter(void)
{
    int from;
    for (from = 0; from < ranks; from++) {
        (void)MPI_Scatterv(grad, counts, offsets, MPI_UINT16_T, piece, counts[rank], MPI_UINT16_T, from,
                           MPI_COMM_WORLD);
        must(mpt_accumulate(own.item, pieces, TENSORS));
    }
    sent[0] += 2.0 * (ALL - counts[rank]);
}

static int all_reduce(void *user, double *values, size_t n)
{
    (void)user;
    sent[1] += ranks > 1 ? (double)(n * sizeof *values) : 0.0;
    return MPI_Allreduce(MPI_IN_PLACE, values, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
}

static void all_gather(void)
{
    (void)MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, copy, counts, offsets, MPI_UINT16_T,
                         MPI_COMM_WORLD);
    sent[2] += 2.0 * counts[rank] * (ranks - 1);
}

static void train_step(size_t at)
{
    const float seed = mpt_scaler_scale(&scaler, 1.0f / MICRO);                 /* 1 scale */
    int         first;
    must(mpt_grads_zero(own.item, TENSORS));
    for (first = 0; first < MICRO; first += ranks) {                            /* 2 backward */
        const int micro = first + rank, wrong = steps == OVERFLOWS_AT && micro == 7;
        backward(&digits[at + (size_t)(micro * PER)], wrong ? seed * 1e5f : seed);
        reduce_scatter();
    }
    must(mpt_check(&scaler, &step, own.item, TENSORS, NULL));                   /* 3 check, all ranks */
    must(mpt_step_combine(&scaler, &step, own.item, TENSORS, all_reduce, NULL));
    must(mpt_clip(&step, 0.5f));
    must(mpt_adamw_step(&adamw, &step, own.item, TENSORS));                     /* 4 step */
    must(mpt_scaler_update(&scaler));                                           /* 5 update */
    all_gather();
    steps++;
}

/* ---- checkpoints ---- */

static void checkpoint(shard *s, const char *name, int part, int loads)
{
    mpt_state state;
    char      path[1024];
    size_t    bytes;
    void     *buffer;
    FILE     *f;
    memset(&state, 0, sizeof state);
    state.scalers = &scaler, state.scaler_count = 1;
    state.adamw = &adamw;
    state.counters = &steps, state.counter_count = 1;
    state.tensors = s->item, state.tensor_count = TENSORS;
    must(mpt_state_size(&state, &bytes));
    (void)snprintf(path, sizeof path, "%s.%d", name, part);
    buffer = malloc(bytes);
    f = fopen(path, loads ? "rb" : "wb");
    if (!buffer || !f)
        die(path, "no memory, or no such file");
    if (!loads)
        must(mpt_state_save(&state, buffer, bytes));
    if ((loads ? fread(buffer, 1, bytes, f) : fwrite(buffer, 1, bytes, f)) != bytes || fclose(f))
        die(path, "cannot be read or written");
    if (loads)
        must(mpt_state_load(&state, buffer, bytes));
    free(buffer);
}

/* Load one saved part at a time, to save memory, with its FP16 copies; keep what overlaps with our part. */
static void load_parts(const char *name, int parts)
{
    int part, i, k;
    for (part = 0; part < parts; part++) {
        shard old;
        (void)shard_make(&old, part, parts);
        checkpoint(&old, name, part, 1);
        for (i = 0; i < TENSORS; i++) {
            const mpt_tensor *const a = &own.item[i], *const b = &old.item[i];
            const size_t begin = a->first > b->first ? a->first : b->first;
            const size_t end = a->first + a->n < b->first + b->n ? a->first + a->n : b->first + b->n;
            void *const  to[] = {a->master, a->m, a->v}, *const from[] = {b->master, b->m, b->v};
            for (k = 0; k < 3 && begin < end; k++) {        /* the overlap */
                const size_t width = k && moments != MPT_MOMENTS_F32 ? sizeof(mpt_bf16) : sizeof(float);
                memcpy((char *)to[k] + (begin - a->first) * width,
                       (const char *)from[k] + (begin - b->first) * width, (end - begin) * width);
            }
        }
        free(old.memory);
    }
}

/* ---- the results ---- */

/* Print memory, traffic and a hash of all masters: a sum of terms of value and position, so that it does not
 * depend on which rank has which master. Returns 0 if the memory is not what the formula says. */
static int tell(int right)
{
    const int          state = moments == MPT_MOMENTS_F32 ? 12 : 8;
    unsigned long long hash = 0;
    mpt_memory         memory;
    double             of[4], most;
    size_t             i, k;
    int                ok;
    must(mpt_memory_report(own.item, TENSORS, MPT_NEEDS_WEIGHT | MPT_NEEDS_M | MPT_NEEDS_V, &memory));
    for (i = 0; i < 3; i++)
        of[i] = sent[i] / ALL / (double)steps / ranks;
    of[3] = most = (double)(sizeof copy + sizeof grad + memory.master + memory.m + memory.v) / ALL;
    for (i = 0; i < TENSORS; i++)
        for (k = 0; k < own.item[i].n; k++) {
            uint32_t bits;
            memcpy(&bits, own.item[i].master + k, sizeof bits);
            hash += ((own.item[i].first + k + i * N1) * 0x9e3779b97f4a7c15ull ^ bits) * 0xff51afd7ed558ccdull
                    >> 7;
        }
    (void)MPI_Allreduce(MPI_IN_PLACE, &hash, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    (void)MPI_Allreduce(MPI_IN_PLACE, of, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    (void)MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    ok = fabs(of[3] - (4.0 * ranks + state)) < 1e-9;
    if (rank)
        return ok;
    printf("parts:");
    for (i = 0; i < (size_t)ranks; i++)
        printf(" %d", counts[i]);
    printf("\nbytes a parameter: 2 + 2 + %d/%d = %.2f, at most %.2f%s; sent in a step: gradients %d x %.2f, "
           "copies %.2f, decision %.4f\n", state, ranks, of[3] / ranks, most, ok ? "" : " WRONG",
           MICRO / ranks, of[0] * ranks / MICRO, of[2], of[1]);
    printf("%d steps, %d skipped, scale %.0f, norm %.17g, %d of %u right, weights %016llx\n", (int)steps,
           (int)scaler.skipped, (double)scaler.scale, step.norm, right,
           (unsigned)(digits_count - digits_train), hash);
    return ok;
}

int main(int argc, char **argv)
{
    const char *file = "17_sharded";
    float       hidden[HIDDEN], out[OUT];
    int         stop = 0, from = 0, i, right = 0, ok;
    size_t      k, n;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (MICRO % ranks)                  /* a rank that exits here ends the others, too */
        die("ranks", "their number must divide 12, the number of micro-batches");
    for (argv++; *argv; argv++)
        if (!strcmp(*argv, "--bf16"))
            moments = MPT_MOMENTS_BF16;
        else if (!option_number(&argv, "--stop", &stop, 1000) &&
                 !option_number(&argv, "--from", &from, MICRO))
            file = *argv;
    digits_load("examples/data/digits.csv");
    for (i = 0; i < ranks; i++) {       /* make every part once, to learn its size */
        counts[i] = shard_make(&own, i, ranks);
        offsets[i] = i ? offsets[i - 1] + counts[i - 1] : 0;
        free(own.memory);
    }
    (void)shard_make(&own, rank, ranks);
    for (i = 0, n = 0; i < TENSORS; n += own.item[i++].n) {
        pieces[i] = own.item[i];
        pieces[i].grad = piece + n;
        pieces[i].grad_format = MPT_F16;
    }
    must(mpt_scaler_init(&scaler, NULL));
    adamw = mpt_adamw_defaults();
    for (i = 0; i < TENSORS; i++)       /* every rank draws all weights and keeps those of its part */
        for (k = 0; k < (i ? N2 : N1); k++) {
            const float w = random_weight(i ? 0.05 : 0.125);
            if (k - own.item[i].first < own.item[i].n)
                own.item[i].master[k - own.item[i].first] = w;
        }
    must(mpt_publish(own.item, TENSORS));
    if (from)
        load_parts(file, from);
    all_gather();
    sent[2] = 0.0;
    while (steps < (uint64_t)(stop ? stop : EPOCHS * (int)(digits_train / BATCH)))
        train_step(steps % (digits_train / BATCH) * BATCH);
    if (stop)
        checkpoint(&own, file, rank, 0);
    for (k = digits_train; k < digits_count; k++) {
        forward(digits[k].x, 1, hidden, out);
        right += digit_best(out) == digits[k].label;
    }
    ok = tell(right);
    (void)MPI_Finalize();
    return ok ? 0 : 1;
}
