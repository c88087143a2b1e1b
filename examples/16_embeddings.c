/* 16_embeddings.c -- an embedding table in 2 bytes a weight, updated row by row without a master.
 *
 *     cc -O2 -I. examples/16_embeddings.c -o 16_embeddings -lm && ./16_embeddings
 *
 * Skip-gram with negative samples (Mikolov et al. 2013): 200 words stand in a circle, and the neighbours of a
 * word are those up to 3 places from it. Each step adds a small multiple of a vector to a few rows of two
 * tables; mpt_row_update does this. With bf16 rounded to nearest, updates below half an ulp are lost, and the
 * smaller the learning rate, the more of them. Stochastic rounding keeps them on average. Kahan and split
 * storage keep what was rounded off, in 16 more bits per weight.
 *
 * If several threads update one table without locks (Hogwild), give each thread an mpt_row_rule with a stream
 * number of its own. An update may then be overwritten by that of another thread, as with floats, but no
 * weight is ever half written. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/program.h"

enum { WORDS = 200, DIM = 32, NEAR = 3, NEGATIVE = 4, STEPS = 120000, PROBES = 100 };

typedef struct table {
    mpt_tensor t;
    float      master[WORDS * DIM];
    uint16_t   param[WORDS * DIM], extra[WORDS * DIM];
} table;

static table    words, contexts;
static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

static void table_init(table *a, mpt_storage storage, mpt_format format, int rows_are_random)
{
    size_t i;
    memset(a, 0, sizeof *a);
    a->t.n = WORDS * DIM, a->t.storage = storage, a->t.seed = 5u;
    a->t.param_format = format;
    a->t.master = storage == MPT_STORE_MASTER ? a->master : NULL;
    a->t.param = format == MPT_F32 ? NULL : a->param;
    a->t.extra = a->extra;
    for (i = 0; rows_are_random && i < WORDS * DIM; i++)
        a->master[i] = ((float)draw(2001) - 1000.0f) * 1.5e-5f;
    if (storage == MPT_STORE_MASTER && format == MPT_F32)
        return;
    must(storage == MPT_STORE_MASTER ? mpt_publish(&a->t, 1) : mpt_weights_set(&a->t, a->master));
}

/* Load the row of a word as floats, for the forward and the backward pass. */
static void row_of(float *row, const table *a, size_t word)
{
    const size_t at = word * DIM;
    if (a->t.param)
        must(mpt_convert_n(MPT_F32, row, a->t.param_format, a->param + at, DIM, NULL, NULL));
    else
        memcpy(row, a->master + at, DIM * sizeof *row);
}

/* Train on a word, a neighbour (`context`) and NEGATIVE words drawn at random. Returns the loss. */
static double step(uint32_t word, uint32_t context, float rate, mpt_row_rule *rule)
{
    float  x[DIM], y[DIM], dx[DIM] = {0.0f};
    double loss = 0.0;
    int    k;
    row_of(x, &words, word);
    for (k = 0; k <= NEGATIVE; k++) {
        const uint32_t other = k ? draw(WORDS) : context;
        float          p, g;
        row_of(y, &contexts, other);
        p = 1.0f / (1.0f + expf(-mpt_dot(x, MPT_F32, y, MPT_F32, DIM)));
        loss -= log(k ? 1.0 - (double)p : (double)p);
        g = (k ? 0.0f : 1.0f) - p;
        must(mpt_axpy(dx, MPT_F32, g, y, MPT_F32, DIM));
        rule->a = rate * g;
        must(mpt_row_update(rule, &contexts.t, other * DIM, DIM, x));
    }
    rule->a = rate;
    must(mpt_row_update(rule, &words.t, word * DIM, DIM, dx));
    return loss;
}

/* For PROBES words, find the 2 * NEAR rows at the smallest angle: which share of them are its neighbours? */
static double neighbours(void)
{
    static float row[WORDS][DIM], near[WORDS];
    int          i, j, k, kept = 0;
    for (i = 0; i < WORDS; i++) {
        float size;
        row_of(row[i], &words, (size_t)i);
        size = 1.0f / sqrtf(mpt_dot(row[i], MPT_F32, row[i], MPT_F32, DIM));
        for (k = 0; k < DIM; k++)
            row[i][k] *= size;
    }
    for (i = 0; i < WORDS; i += WORDS / PROBES) {
        for (j = 0; j < WORDS; j++)
            near[j] = j == i ? -2.0f : mpt_dot(row[i], MPT_F32, row[j], MPT_F32, DIM);
        for (k = 0; k < 2 * NEAR; k++) {
            int best = 0, away;
            for (j = 1; j < WORDS; j++)
                if (near[j] > near[best])
                    best = j;
            near[best] = -2.0f;
            away = (best - i + WORDS) % WORDS;
            kept += away <= NEAR || away >= WORDS - NEAR;
        }
    }
    return kept / (double)(2 * NEAR * PROBES);
}

int main(void)
{
    static const struct { const char *name; mpt_storage storage; mpt_format format; } ways[] = {
        {"f32", MPT_STORE_MASTER, MPT_F32},
        {"bf16 and f32 masters", MPT_STORE_MASTER, MPT_BF16},
        {"bf16, Kahan", MPT_STORE_KAHAN, MPT_BF16},
        {"bf16, split", MPT_STORE_SPLIT, MPT_BF16},
        {"bf16, stochastic", MPT_STORE_STOCHASTIC, MPT_BF16},
        {"f16, stochastic", MPT_STORE_STOCHASTIC, MPT_F16},
        {"bf16, nearest", MPT_STORE_NEAREST, MPT_BF16},
    };
    size_t w;
    printf("%d words of %d numbers, %d steps; loss: mean of the last tenth; neighbours: share found\n\n"
           "%-22s %14s %8s %12s\n", WORDS, DIM, STEPS, "", "bytes a weight", "loss", "neighbours");
    for (w = 0; w < sizeof ways / sizeof *ways; w++) {
        mpt_row_rule rule = {0.0f, 0.0f, 0.0f, 0u, 0u, 0u, 0u};
        mpt_memory   memory;
        double       loss = 0.0;
        int          s;
        state = 1u;
        table_init(&words, ways[w].storage, ways[w].format, 1);
        table_init(&contexts, ways[w].storage, ways[w].format, 0);
        for (s = 0; s < STEPS; s++) {
            const uint32_t word = draw(WORDS), away = draw(2 * NEAR);
            const uint32_t context = (word + WORDS - NEAR + away + (away >= NEAR)) % WORDS;
            const float    rate = 0.02f * (1.0f - (float)s / STEPS) + 0.0001f;
            const double   now = step(word, context, rate, &rule);
            loss += s >= STEPS / 10 * 9 ? now : 0.0;
        }
        must(mpt_memory_report(&words.t, 1, MPT_NEEDS_WEIGHT | (words.t.param ? MPT_NEEDS_PARAM : 0u),
                               &memory));
        printf("%-22s %14.0f %8.2f %11.0f%%\n", ways[w].name, memory.per_parameter, loss / (STEPS / 10),
               100.0 * neighbours());
    }
    return 0;
}
