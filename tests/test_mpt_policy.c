/* test_mpt_policy.c -- tests of the precision policy (>>M13), which says in which format an op runs, and of
 * the typed ops of a small trainer (>>M12), against the same in double. It reads internals, the table of ops
 * and the sizes of panels, so it compiles the implementation itself. */
static int last_path = 4;           /* the tests set it to run each SIMD path of this machine */
#ifndef _WIN32
#define MPTI_LAST_PATH last_path
#endif
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "test.h"
#include "train.h"

/* ---- the policy ---- */

static mpt_policy preset(const char *name)
{
    mpt_policy p;
    memset(&p, 0, sizeof p);
    CHECK_EQ_I(mpt_policy_find(name, &p), MPT_OK);
    return p;
}

static mpt_policy_answer ask(const mpt_policy *p, const char *op, mpt_format a, mpt_format b)
{
    mpt_policy_answer answer;
    mpt_format        inputs[2];
    inputs[0] = a;
    inputs[1] = b;
    memset(&answer, 0, sizeof answer);
    mt_context(p->name, op);
    CHECK_EQ_I(mpt_policy_format(p, op, inputs, 2, &answer), MPT_OK);
    CHECK(answer.why && answer.why[0]);
    return answer;
}

static void expect(const mpt_policy *p, const char *op, mpt_format a, mpt_format b, mpt_rule rule,
                   mpt_format input, mpt_format output)
{
    const mpt_policy_answer answer = ask(p, op, a, b);
    CHECK_EQ_I(answer.rule, rule);
    CHECK_EQ_I(answer.input, input);
    CHECK_EQ_I(answer.output, output);
}

TEST(policy_presets)
{
    static const char *const names[] = {"float32", "mixed_float16", "mixed_bfloat16", "cpu_bfloat16", "tf32",
                                        "float16", "bfloat16", "float64"};
    static const mpt_format  wants[][3] = {{MPT_F32, MPT_F32, MPT_F32},    {MPT_F16, MPT_F32, MPT_F32},
                                           {MPT_BF16, MPT_F32, MPT_F32},   {MPT_BF16, MPT_F32, MPT_F32},
                                           {MPT_TF32, MPT_F32, MPT_F32},   {MPT_F16, MPT_F16, MPT_F16},
                                           {MPT_BF16, MPT_BF16, MPT_BF16}, {MPT_F64, MPT_F64, MPT_F64}};
    mpt_policy               p, kept;
    size_t                   i;
    for (i = 0; i < 8; i++) {
        CHECK_EQ_S(mpt_policy_name(i), names[i]);
        p = preset(names[i]);
        CHECK_EQ_S(p.name, names[i]);
        CHECK_EQ_I(p.cpu, i == 3);
        CHECK_EQ_I(p.compute, wants[i][0]);
        CHECK_EQ_I(p.variable, wants[i][1]);
        CHECK_EQ_I(p.output, wants[i][2]);
        CHECK(p.row_count == 0);
    }
    CHECK(mpt_policy_name(8) == NULL);
    kept = p = preset("tf32");
    CHECK_EQ_I(mpt_policy_find("float8", &p), MPT_E_UNSUPPORTED);
    CHECK(!memcmp(&kept, &p, sizeof p));
    CHECK_EQ_I(mpt_policy_find(NULL, &p), MPT_E_ARG);
    CHECK_EQ_I(mpt_policy_find("tf32", NULL), MPT_E_ARG);
}

TEST(policy_rules)
{
    const mpt_policy f16 = preset("mixed_float16"), bf16 = preset("mixed_bfloat16"), tf32 = preset("tf32");
    expect(&f16, "matmul", MPT_F32, MPT_F16, MPT_RULE_LOW, MPT_F16, MPT_F16);
    expect(&bf16, "conv2d", MPT_F32, MPT_F32, MPT_RULE_LOW, MPT_BF16, MPT_BF16);
    expect(&tf32, "matmul", MPT_F32, MPT_F32, MPT_RULE_LOW, MPT_TF32, MPT_F32);
    expect(&f16, "exp", MPT_F16, MPT_F16, MPT_RULE_FP32, MPT_F32, MPT_F32);
    expect(&f16, "layer_norm", MPT_F16, MPT_F32, MPT_RULE_FP32, MPT_F32, MPT_F32);
    expect(&f16, "softmax", MPT_F16, MPT_F16, MPT_RULE_OUTPUT, MPT_F16, MPT_F32);
    expect(&bf16, "sum", MPT_BF16, MPT_BF16, MPT_RULE_OUTPUT, MPT_BF16, MPT_F32);
    expect(&f16, "add", MPT_F16, MPT_F32, MPT_RULE_WIDEST, MPT_F32, MPT_F32);
    expect(&f16, "add", MPT_F16, MPT_F16, MPT_RULE_WIDEST, MPT_F16, MPT_F16);
    /* neither format holds all numbers of the other */
    expect(&f16, "add", MPT_F16, MPT_BF16, MPT_RULE_WIDEST, MPT_F32, MPT_F32);
    expect(&f16, "relu", MPT_F16, MPT_F16, MPT_RULE_AS_IS, MPT_F16, MPT_F16);
    expect(&f16, "bce", MPT_F16, MPT_F16, MPT_RULE_REFUSED, MPT_F32, MPT_F32);
    expect(&bf16, "bce", MPT_BF16, MPT_BF16, MPT_RULE_REFUSED, MPT_F32, MPT_F32);
    expect(&tf32, "bce", MPT_F32, MPT_F32, MPT_RULE_FP32, MPT_F32, MPT_F32);
    expect(&f16, "matmul", MPT_F64, MPT_F16, MPT_RULE_AS_IS, MPT_F64, MPT_F64);
}

/* The policy gives this rule to each op named in `words`. */
static void expect_all(const mpt_policy *p, const char *words, mpt_rule rule)
{
    char   op[64];
    size_t n;
    for (; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        memcpy(op, words, n);
        op[n] = 0;
        CHECK_EQ_I(ask(p, op, MPT_F32, p->compute).rule, rule);
    }
}

/* The op names that users of PyTorch write. The rules are those of its documentation of autocast; on a CPU,
 * those that PyTorch 2.15 applied there. */
TEST(policy_names_of_pytorch)
{
    const mpt_policy gpu = preset("mixed_float16"), cpu = preset("cpu_bfloat16");
    expect_all(&gpu, "addbmm addmm addmv addr baddbmm bmm chain_matmul linalg_multi_dot conv1d conv2d conv3d "
               "conv_transpose1d conv_transpose2d conv_transpose3d gru_cell linear lstm_cell matmul mm mv "
               "prelu rnn_tanh_cell conv_tbc scaled_dot_product_attention linalg_vecdot", MPT_RULE_LOW);
    expect_all(&gpu, "acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist "
               "cosine_similarity cross_entropy dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div "
               "l1_loss layer_norm log log10 log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss "
               "multi_margin_loss nll_loss norm pdist poisson_nll_loss pow reciprocal renorm rsqrt sinh "
               "smooth_l1_loss soft_margin_loss softplus tan triplet_margin_loss interpolate", MPT_RULE_FP32);
    expect_all(&gpu, "cumprod cumsum log_softmax prod softmax sum", MPT_RULE_OUTPUT);
    expect_all(&gpu, "addcdiv addcmul atan2 bilinear cat cross dot grid_sample index_put scatter_add stack "
               "tensordot", MPT_RULE_WIDEST);
    expect_all(&gpu, "binary_cross_entropy", MPT_RULE_REFUSED);
    expect_all(&cpu, "conv1d conv2d conv3d bmm mm linalg_vecdot baddbmm addmm addbmm linear matmul conv_tbc "
               "conv_transpose2d scaled_dot_product_attention prelu einsum", MPT_RULE_LOW);
    expect_all(&cpu, "exp log pow softmax log_softmax sum mean cumsum norm layer_norm group_norm batch_norm "
               "rsqrt softplus logsumexp interpolate tanh relu", MPT_RULE_AS_IS);
    expect_all(&cpu, "avg_pool3d binary_cross_entropy grid_sample prod cdist mse_loss cosine_embedding_loss "
               "nll_loss smooth_l1_loss cross_entropy l1_loss huber_loss ctc_loss kl_div loss",
               MPT_RULE_FP32);
    expect(&cpu, "softmax", MPT_BF16, MPT_BF16, MPT_RULE_AS_IS, MPT_BF16, MPT_BF16);
    expect(&cpu, "mm", MPT_F32, MPT_F32, MPT_RULE_LOW, MPT_BF16, MPT_BF16);
    expect(&cpu, "prod", MPT_BF16, MPT_BF16, MPT_RULE_FP32, MPT_F32, MPT_F32);
}

TEST(policy_names_of_tensorflow)
{
    const mpt_policy  gpu = preset("mixed_float16"), cpu = preset("cpu_bfloat16");
    mpt_policy_answer answer;
    expect_all(&gpu, "MatMul Conv2DBackpropFilter Einsum CudnnRNNV3", MPT_RULE_LOW);
    expect_all(&gpu, "Exp Sum Mean L2Loss", MPT_RULE_FP32);
    expect_all(&gpu, "BiasAdd Tanh FusedBatchNormV3 Relu Reshape ConcatV2", MPT_RULE_WIDEST);
    expect_all(&cpu, "Sum Mean Rsqrt", MPT_RULE_WIDEST);
    CHECK_EQ_S(ask(&gpu, "MatMul", MPT_F32, MPT_F32).source, "TF");
    CHECK_EQ_I(mpt_policy_format(&gpu, "Rsqrt", formats, 1, &answer), MPT_E_UNSUPPORTED);
    expect(&gpu, "BiasAdd", MPT_F16, MPT_F32, MPT_RULE_WIDEST, MPT_F32, MPT_F32);
}

/* An unknown name is an error under every policy, never a guess. */
TEST(policy_unknown_names)
{
    static const char *const    names[] = {"my_op", "", " ", "matmull", "matmu", "matmul mm", "mm bmm",
                                           "Mm", "exp ", "FusedBatchNorm2", "NONE"};
    static const mpt_policy_row rows[] = {{"my_op", MPT_RULE_AS_IS, NULL}};
    mpt_policy_answer           answer, kept;
    mpt_policy                  p;
    size_t                      i, k;
    memset(&answer, 7, sizeof answer);
    kept = answer;
    for (k = 0; mpt_policy_name(k); k++)
        for (i = 0; i < sizeof names / sizeof names[0]; i++) {
            p = preset(mpt_policy_name(k));
            mt_context(p.name, names[i]);
            CHECK_EQ_I(mpt_policy_format(&p, names[i], formats, 1, &answer), MPT_E_UNSUPPORTED);
            CHECK(!memcmp(&answer, &kept, sizeof answer));
        }
    p = preset("mixed_float16");
    p.rows = rows;
    p.row_count = 1;
    expect(&p, "my_op", MPT_F16, MPT_F16, MPT_RULE_AS_IS, MPT_F16, MPT_F16);
    CHECK(ask(&p, "my_op", MPT_F16, MPT_F16).source == NULL);
}

TEST(policy_last_layer_and_loss)
{
    static const mpt_policy_row rows[] = {{"output", MPT_RULE_LOW, NULL}, {"loss", MPT_RULE_AS_IS, NULL}};
    mpt_policy p = preset("mixed_float16");
    expect(&p, "output", MPT_F32, MPT_F16, MPT_RULE_OUTPUT, MPT_F16, MPT_F32);
    CHECK(strstr(ask(&p, "output", MPT_F16, MPT_F16).why, "last layer") != NULL);
    expect(&p, "loss", MPT_F16, MPT_F16, MPT_RULE_FP32, MPT_F32, MPT_F32);
    CHECK(strstr(ask(&p, "loss", MPT_F16, MPT_F16).why, "loss") != NULL);
    p.output = MPT_BF16;
    expect(&p, "output", MPT_F16, MPT_F16, MPT_RULE_OUTPUT, MPT_F16, MPT_BF16);
    p.rows = rows;
    p.row_count = 2;
    expect(&p, "output", MPT_F32, MPT_F16, MPT_RULE_LOW, MPT_F16, MPT_F16);
    expect(&p, "loss", MPT_F16, MPT_F16, MPT_RULE_AS_IS, MPT_F16, MPT_F16);
}

/* Two of the three formats are equal: this does not count as one format for everything. */
TEST(policy_of_two_formats)
{
    mpt_policy p = preset("bfloat16");
    p.output = MPT_F32;
    expect(&p, "relu", MPT_F16, MPT_F16, MPT_RULE_AS_IS, MPT_F16, MPT_F16);
    expect(&p, "exp", MPT_F32, MPT_F32, MPT_RULE_FP32, MPT_BF16, MPT_BF16);
    expect(&p, "softmax", MPT_F32, MPT_BF16, MPT_RULE_OUTPUT, MPT_F32, MPT_BF16);
    expect(&p, "output", MPT_F32, MPT_BF16, MPT_RULE_OUTPUT, MPT_BF16, MPT_F32);
    expect(&p, "loss", MPT_BF16, MPT_BF16, MPT_RULE_FP32, MPT_BF16, MPT_F32);
    p = preset("mixed_float16");
    p.output = MPT_F16;
    expect(&p, "relu", MPT_BF16, MPT_BF16, MPT_RULE_AS_IS, MPT_BF16, MPT_BF16);
    expect(&p, "exp", MPT_F16, MPT_F16, MPT_RULE_FP32, MPT_F32, MPT_F32);
    expect(&p, "softmax", MPT_F16, MPT_F16, MPT_RULE_OUTPUT, MPT_F16, MPT_F32);
    expect(&p, "output", MPT_F32, MPT_F32, MPT_RULE_OUTPUT, MPT_F16, MPT_F16);
    expect(&p, "loss", MPT_F16, MPT_F16, MPT_RULE_FP32, MPT_F32, MPT_F16);
}

/* The widest of every two formats. TF32 holds both 16-bit formats; neither of these holds the other. */
TEST(policy_widest_of_all_pairs)
{
    static const mpt_format all[] = {MPT_BF16, MPT_F16, MPT_TF32, MPT_F32, MPT_F64};
    mpt_policy              p = preset("float64");
    size_t                  i, k;
    p.output = MPT_F32;
    for (i = 0; i < 5; i++)
        for (k = 0; k < 5; k++) {
            const mpt_format widest = i + k == 1 ? MPT_F32 : all[i > k ? i : k];
            expect(&p, "add", all[i], all[k], MPT_RULE_WIDEST, widest, widest);
        }
}

/* The rows of MPT_OPS, which come first in the table. */
#define ROW(rule, cpu, list, source, names) +1
enum { COMPACT = 0 MPT_OPS(ROW) };

/* Gets the i-th name in these rows, and its row. Returns: 0 past the last name. */
static int table_word(size_t i, char word[64], size_t *row)
{
    size_t n;
    for (*row = 0; *row < COMPACT; ++*row) {
        const char *at = mpti_ops[*row].names;
        for (; *at; at += n + (at[n] == ' ')) {
            n = strcspn(at, " ");
            memcpy(word, at, n);
            word[n] = 0;
            if (!i--)
                return 1;
        }
    }
    return 0;
}

/* Under float32, float16, bfloat16 and float64 there is nothing to decide, for any op. */
TEST(policy_of_one_format)
{
    static const char *const names[] = {"float32", "float16", "bfloat16", "float64"};
    char                     op[64];
    size_t                   i, k, row;
    for (k = 0; k < 4; k++) {
        const mpt_policy p = preset(names[k]);
        for (i = 0; table_word(i, op, &row); i++) {
            const mpt_policy_answer a = ask(&p, op, MPT_F16, MPT_F32);
            CHECK(a.input == p.compute && a.output == p.compute);
        }
        CHECK(i > 150);
    }
}

TEST(policy_table_is_sound)
{
    const mpt_policy gpu = preset("mixed_float16"), cpu = preset("cpu_bfloat16");
    char             op[64], other[64];
    size_t           i, k, row, other_row;
    for (i = 0; table_word(i, op, &row); i++) {
        const struct mpti_op_row *r = &mpti_ops[row];
        const unsigned            list = r->facts[MPT_LISTS_COMPACT];
        mt_context(op, NULL);
        CHECK(op[0] && strlen(op) < 60 && r->source[0]);
        for (k = 0; k < i; k++) {
            CHECK(table_word(k, other, &other_row));
            CHECK(strcmp(op, other) != 0);
        }
        CHECK_EQ_I(ask(&gpu, op, MPT_F16, MPT_F16).rule, r->rule);
        CHECK_EQ_I(ask(&cpu, op, MPT_F16, MPT_F16).rule, r->cpu);
        /* An op on the allow list runs low, an op on the deny list does not. */
        CHECK((list == MPTI_ON(MPT_LIST_ALLOW)) <= (r->rule == MPT_RULE_LOW));
        CHECK((list == MPTI_ON(MPT_LIST_DENY)) <= (r->rule == MPT_RULE_FP32 || r->rule == MPT_RULE_OUTPUT ||
                                             r->rule == MPT_RULE_REFUSED));
    }
}

TEST(policy_rows_of_the_user)
{
    static const mpt_policy_row rows[] = {
        {"softmax", MPT_RULE_FP32, "measured"}, {"my_op", MPT_RULE_LOW, NULL}, {"softmax", MPT_RULE_LOW,
                                                                                "again"}};
    static const mpt_policy_row nameless[] = {{NULL, MPT_RULE_LOW, NULL}}, odd[] = {{"x", MPT_RULE_COUNT,
                                                                                     NULL}};
    mpt_policy                  p = preset("mixed_bfloat16");
    mpt_policy_answer           answer, kept;
    const mpt_format            fp8 = MPT_E4M3, low = MPT_BF16;
    p.rows = rows;
    p.row_count = 3;
    expect(&p, "my_op", MPT_F32, MPT_F32, MPT_RULE_LOW, MPT_BF16, MPT_BF16);
    expect(&p, "softmax", MPT_F32, MPT_F32, MPT_RULE_LOW, MPT_BF16, MPT_BF16);
    CHECK_EQ_S(ask(&p, "softmax", MPT_F32, MPT_F32).source, "again");
    p.row_count = 1;
    expect(&p, "softmax", MPT_BF16, MPT_BF16, MPT_RULE_FP32, MPT_F32, MPT_F32);
    memset(&answer, 7, sizeof answer);
    kept = answer;
    p.rows = nameless;
    CHECK_EQ_I(mpt_policy_format(&p, "exp", &low, 1, &answer), MPT_E_ARG);
    p.rows = odd;
    CHECK_EQ_I(mpt_policy_format(&p, "exp", &low, 1, &answer), MPT_E_ARG);
    p.rows = NULL;
    CHECK_EQ_I(mpt_policy_format(&p, "exp", &low, 1, &answer), MPT_E_ARG);
    p.row_count = 0;
    CHECK_EQ_I(mpt_policy_format(&p, "exp", &fp8, 1, &answer), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_policy_format(&p, "exp", NULL, 1, &answer), MPT_E_ARG);
    CHECK_EQ_I(mpt_policy_format(&p, NULL, &low, 1, &answer), MPT_E_ARG);
    CHECK_EQ_I(mpt_policy_format(NULL, "exp", &low, 1, &answer), MPT_E_ARG);
    p.compute = MPT_E5M2;
    CHECK_EQ_I(mpt_policy_format(&p, "exp", &low, 1, &answer), MPT_E_UNSUPPORTED);
    CHECK(!memcmp(&answer, &kept, sizeof answer));
    p.compute = MPT_F16;
    CHECK_EQ_I(mpt_policy_format(&p, "identity", NULL, 0, &answer), MPT_OK);
    CHECK_EQ_I(answer.output, MPT_F32);
}

/* ---- typed arrays ---- */

enum { MOST = 16384 };
typedef struct array {
    float    f32[MOST];         /* one of the two holds the data */
    uint16_t u16[MOST];
    mpt_format format;
} array;

static void *data(array *a) { return a->format == MPT_F32 ? (void *)a->f32 : (void *)a->u16; }

static double get(const array *a, size_t i)
{
    return (double)element(a->format == MPT_F32 ? (const void *)a->f32 : (const void *)a->u16, a->format, i);
}

static void put(array *a, size_t i, double x) { element_set(data(a), a->format, i, (float)x); }

static double uniform(double low, double high)
{
    return low + (high - low) * ((double)(mt_random() >> 11) * (1.0 / 9007199254740992.0));
}

static void fill(array *a, mpt_format format, double low, double high)
{
    size_t i;
    memset(a, 0xff, sizeof *a);             /* NaN in the array that is not used */
    a->format = format;
    for (i = 0; i < MOST; i++)
        put(a, i, uniform(low, high));
}

/* The unit roundoff and the smallest positive number of a format. */
static double roundoff(mpt_format f) { return mpt_format_get(f)->epsilon * 0.5; }
#ifdef __FAST_MATH__            /* there FP32 has no subnormals */
static double tiny(mpt_format f) { return mpt_format_get(f)->min_subnormal + 1e-37; }
#else
static double tiny(mpt_format f) { return mpt_format_get(f)->min_subnormal; }
#endif

static array ga, gb, gc, gd;

/* ---- GEMM ---- */

typedef struct gemm_case {
    mpt_order order;
    mpt_trans ta, tb;
    size_t    m, n, k, lda, ldb, ldc;
    double    alpha, beta;
} gemm_case;

static size_t at(mpt_order order, size_t ld, size_t r, size_t c)
{
    return order == MPT_ROW_MAJOR ? r * ld + c : c * ld + r;
}

static double op_a(const gemm_case *g, size_t i, size_t p)
{
    return get(&ga, g->ta == MPT_TRANS ? at(g->order, g->lda, p, i) : at(g->order, g->lda, i, p));
}

static double op_b(const gemm_case *g, size_t p, size_t j)
{
    return get(&gb, g->tb == MPT_TRANS ? at(g->order, g->ldb, j, p) : at(g->order, g->ldb, p, j));
}

/* Workspace, for MPT_USE_CBLAS only: its random size sets the size of the panels. */
static float work[MPTI_STACK_FLOATS + 20000];

static mpt_status run_gemm(const gemm_case *g)
{
    const size_t floats = mt_random() % (sizeof work / sizeof work[0]);
    return mpt_gemm(g->order, g->ta, g->tb, g->m, g->n, g->k, (float)g->alpha, data(&ga), ga.format, g->lda,
                    data(&gb), gb.format, g->ldb, (float)g->beta, data(&gc), gc.format, g->ldc,
                    floats & 1 ? work : NULL, floats & 1 ? floats * sizeof work[0] : 0);
}

static void check_gemm(const gemm_case *g)
{
    size_t i, j, p, wrong = 0, touched = 0;
    gd = gc;
    CHECK_EQ_I(run_gemm(g), MPT_OK);
    for (i = 0; i < g->m; i++)
        for (j = 0; j < g->n; j++) {
            const size_t place = at(g->order, g->ldc, i, j);
            double       sum = 0.0, mass = 0.0, want, bound;
            for (p = 0; p < g->k; p++) {
                sum += op_a(g, i, p) * op_b(g, p, j);
                mass += fabs(op_a(g, i, p) * op_b(g, p, j));
            }
            want = g->alpha * sum + (g->beta != 0.0 ? g->beta * get(&gd, place) : 0.0);
            bound = fabs(g->alpha) * mass * (double)(g->k + 2) * 6e-8 + fabs(want) * 1.2e-7;
            bound += (fabs(want) + bound) * roundoff(gc.format) + tiny(gc.format);
            wrong += !(fabs(get(&gc, place) - want) <= bound);
            put(&gd, place, get(&gc, place));
        }
    touched = memcmp(gc.f32, gd.f32, sizeof gc.f32) != 0 || memcmp(gc.u16, gd.u16, sizeof gc.u16) != 0;
    CHECK_EQ_U(wrong, 0);
    CHECK_EQ_U(touched, 0);                 /* nothing beside the m x n elements */
}

static void random_gemm(gemm_case *g, size_t most)
{
    static const double factors[] = {0.0, 1.0, -1.0, 0.5, 1.75};
    int                 row;
    g->order = mt_random() & 1 ? MPT_ROW_MAJOR : MPT_COL_MAJOR;
    g->ta = mt_random() & 1 ? MPT_TRANS : MPT_NO_TRANS;
    g->tb = mt_random() & 1 ? MPT_TRANS : MPT_NO_TRANS;
    row = g->order == MPT_ROW_MAJOR;
    g->m = 1 + mt_random() % most;
    g->n = 1 + mt_random() % most;
    g->k = mt_random() % (most + 1);
    g->lda = (row != (g->ta == MPT_TRANS) ? g->k : g->m) + mt_random() % 3;
    g->ldb = (row != (g->tb == MPT_TRANS) ? g->n : g->k) + mt_random() % 3;
    g->ldc = (row ? g->n : g->m) + mt_random() % 3;
    g->lda += g->lda == 0;
    g->ldb += g->ldb == 0;
    g->alpha = factors[mt_random() % 5];
    g->beta = factors[mt_random() % 5];
}

TEST(gemm_against_double)
{
    gemm_case g;
    int       i, rounds = mt.long_mode ? 4000 : mt.every == 1 ? 300 : 100;
    for (i = 0; i < rounds; i++) {
        random_gemm(&g, i % 10 == 0 ? MPTI_STACK_EDGE + 16 : 20);
        fill(&ga, formats[mt_random() % 3], -1.0, 1.0);
        fill(&gb, formats[mt_random() % 3], -1.0, 1.0);
        fill(&gc, formats[mt_random() % 3], -1.0, 1.0);
        check_gemm(&g);
    }
}

/* Layouts and blocking do not change the result: the same product has the same bits, except where the
 * compiler or a BLAS may reorder sums. */
static void same_bits(float got, float want)
{
#if defined(__FAST_MATH__) || defined(MPT_USE_CBLAS)
    CHECK(fabsf(got - want) <= 1e-4f);
#else
    CHECK_EQ_U(mpti_f32_bits(got), mpti_f32_bits(want));
#endif
}

/* An element of a thin product in the documented order: that of k, or that of a dot product. */
static float thin_sum(const gemm_case *g, size_t i, size_t j)
{
    const int    row = g->order == MPT_ROW_MAJOR;
    const int    a_along = (g->ta == MPT_TRANS) != row, b_along = (g->tb == MPT_TRANS) == row;
    const size_t shorter = g->m < g->n ? g->m : g->n;
    const int    longer_along = g->m == g->n ? (row ? b_along : a_along) : g->m < g->n ? b_along : a_along;
    float        lane[64], sum = 0.0f;
    size_t       p, w;
    if ((g->k <= 16 && shorter > 4) || shorter > 16 || !longer_along) {
        for (p = 0; p < g->k; p++)
            sum = fmaf((float)op_a(g, i, p), (float)op_b(g, p, j), sum);
        return sum;
    }
    memset(lane, 0, sizeof lane);
    for (p = 0; p < g->k; p++)
        lane[p % 64] = fmaf((float)op_a(g, i, p), (float)op_b(g, p, j), lane[p % 64]);
    for (w = 32; w; w /= 2)
        for (p = 0; p < w; p++)
            lane[p] += lane[p + w];
    return lane[0];
}

TEST(gemm_of_thin_shapes)
{
    static const size_t few[] = {1, 4, 5, 16, 17};
    gemm_case           g;
    int                 round;
    size_t              i, j;
    for (round = 0; round < (mt.every == 1 ? 600 : 150); round++) {
        const int    packed = round % 20 == 10;         /* 16 long rows, packed in several parts */
        const size_t thin = packed ? 16u : round % 3 ? few[mt_random() % 5u] : 1u;
        const size_t way = (size_t)(mt_random() % (packed ? 2u : 3u));
        int          row;
        last_path = mt_random() % 2u ? 4 : (int)(mt_random() % 4u);
        random_gemm(&g, 90);
        row = g.order == MPT_ROW_MAJOR;
        g.m = way == 0 ? thin : g.m, g.n = way == 1 ? thin : g.n, g.k = way == 2 ? thin : 1 + g.k;
        g.k = way != 2 && round % 10 == 0 ? 700 : g.k;
        if (g.k == 700)
            *(way ? &g.m : &g.n) = packed ? thin + 1u : thin;
        g.k = way != 2 && round % 10 == 3 ? 2 + g.k % 16 : g.k;
        g.m = way == 2 && round % 8 == 0 ? 160 : g.m;       /* in several blocks of rows */
        if (way != 2 && round % 20 == 1)                    /* more rows than are transposed at once */
            g.k = 17 + g.k % 9, *(way ? &g.m : &g.n) = 270;
        g.lda = (row != (g.ta == MPT_TRANS) ? g.k : g.m) + mt_random() % 3;
        g.ldb = (row != (g.tb == MPT_TRANS) ? g.n : g.k) + mt_random() % 3;
        g.ldc = (row ? g.n : g.m) + mt_random() % 3;
        g.alpha = round % 4 || packed ? 1.0 : 0.5, g.beta = packed ? 0.0 : round % 3 ? g.beta : 1.0;
        fill(&ga, formats[mt_random() % 3], -1.0, 1.0);
        fill(&gb, formats[mt_random() % 3], -1.0, 1.0);
        fill(&gc, packed ? MPT_F32 : formats[mt_random() % 3], -1.0, 1.0);
        if (gc.format == MPT_F32) {
            static float want[MOST];
            for (i = 0; i < g.m; i++)
                for (j = 0; j < g.n; j++) {
                    const float was = g.beta != 0.0 ? (float)g.beta * gc.f32[at(g.order, g.ldc, i, j)] : 0.0f;
                    want[i * g.n + j] = g.k == 1 && g.alpha == 1.0 && g.beta == 1.0
                                            ? fmaf((float)op_a(&g, i, 0), (float)op_b(&g, 0, j), was)
                                            : fmaf((float)g.alpha, thin_sum(&g, i, j), was);
                }
            check_gemm(&g);
            for (i = 0; i < g.m; i++)
                for (j = 0; j < g.n; j++)
                    same_bits(gc.f32[at(g.order, g.ldc, i, j)], want[i * g.n + j]);
        } else
            check_gemm(&g);
    }
    last_path = 4;
}

/* The three calls of a layer, as in the doc block of mpt_gemm: W in 16 bits, dW in 16 or 32. */
TEST(gemm_of_a_layer)
{
    enum { ROWS = 5, COLS = 23, BATCH = 3 };
    mpt_f16      w[ROWS * COLS], dw16[ROWS * COLS];
    float        x[BATCH * COLS], dx[BATCH * COLS], dy[BATCH * ROWS], y[BATCH * ROWS], dw[ROWS * COLS];
    const size_t batch = BATCH, rows = ROWS, cols = COLS;
    size_t       b, r, c;
    for (r = 0; r < rows * cols; r++)
        w[r] = mpt_f16_from_f32((float)(int)(mt_random() % 17) - 8.0f), dw[r] = 2.0f, dw16[r].bits = 0x4000u;
    for (c = 0; c < batch * cols; c++)
        x[c] = (float)(int)(mt_random() % 17) - 8.0f, dx[c] = 3.0f;
    for (r = 0; r < batch * rows; r++)
        dy[r] = (float)(int)(mt_random() % 17) - 8.0f, y[r] = -1.0f;
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, batch, rows, cols, 1.0f, x, MPT_F32, cols, w,
                        MPT_F16, cols, 0.0f, y, MPT_F32, rows, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, batch, cols, rows, 1.0f, dy, MPT_F32, rows,
                        w, MPT_F16, cols, 1.0f, dx, MPT_F32, cols, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_TRANS, MPT_NO_TRANS, rows, cols, batch, 1.0f, dy, MPT_F32, rows, x,
                        MPT_F32, cols, 1.0f, dw, MPT_F32, cols, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_TRANS, MPT_NO_TRANS, rows, cols, batch, 1.0f, dy, MPT_F32, rows, x,
                        MPT_F32, cols, 1.0f, dw16, MPT_F16, cols, NULL, 0), MPT_OK);
    for (b = 0; b < batch; b++)                     /* integers: all sums are exact */
        for (r = 0; r < rows; r++) {
            float sum = 0.0f;
            for (c = 0; c < cols; c++)
                sum += mpt_f32_from_f16(w[r * cols + c]) * x[b * cols + c];
            same_bits(y[b * rows + r], sum);
        }
    for (c = 0; c < cols; c++) {
        for (b = 0; b < batch; b++) {
            float sum = 3.0f;
            for (r = 0; r < rows; r++)
                sum += dy[b * rows + r] * mpt_f32_from_f16(w[r * cols + c]);
            same_bits(dx[b * cols + c], sum);
        }
        for (r = 0; r < rows; r++) {
            float sum = 2.0f;
            for (b = 0; b < batch; b++)
                sum += dy[b * rows + r] * x[b * cols + c];
            same_bits(dw[r * cols + c], sum);
            CHECK_EQ_U(dw16[r * cols + c].bits, mpt_f16_from_f32(sum).bits);
        }
    }
}

/* With k, alpha and beta 1 each element is one fma, whatever the shape and the layout. */
TEST(gemm_of_two_vectors)
{
    float  a[20], b[20], c[400], was[400];
    size_t m, n, i, how;
    for (i = 0; i < 400; i++)
        was[i] = (float)(i * 3 % 17) / 9.7f - 0.7f;
    for (i = 0; i < 20; i++)
        a[i] = (float)(i * 7 % 13 + 1) / 7.0f, b[i] = (float)(i * 5 % 11) / 3.1f - 1.3f;
    for (m = 1; m <= 20; m++)
        for (n = 1; n <= 20; n++)
            for (how = 0; how < 8; how++) {
                const int    rows = how < 4, ta = how & 1u, tb = how & 2u;
                const size_t lda = !rows == !ta ? m : 1u, ldb = !rows == !tb ? 1u : n;
                memcpy(c, was, sizeof c);
                CHECK_EQ_I(mpt_gemm(rows ? MPT_ROW_MAJOR : MPT_COL_MAJOR, ta ? MPT_TRANS : MPT_NO_TRANS,
                                    tb ? MPT_TRANS : MPT_NO_TRANS, m, n, 1, 1.0f, a, MPT_F32, lda, b, MPT_F32,
                                    ldb, 1.0f, c, MPT_F32, rows ? n : m, NULL, 0), MPT_OK);
                for (i = 0; i < m * n; i++) {
                    const float want = mpti_fma(a[rows ? i / n : i % m], b[rows ? i % n : i / m], was[i]);
#ifdef __FAST_MATH__            /* there fmaf may become two roundings, here or in the header */
                    CHECK(fabsf(c[i] - want) <= 1e-6f);
#else
                    CHECK_EQ_U_AT(mpti_f32_bits(c[i]), mpti_f32_bits(want), i);
#endif
                }
            }
}

TEST(gemm_same_bits_in_every_layout)
{
    enum { M = MPTI_STACK_EDGE + 6, K = MPTI_STACK_EDGE + 7, N = MPTI_STACK_EDGE + 11 };
    static float a[M * K], at_[M * K], b[K * N], bt[K * N], c[4][M * N];
    const size_t m = M, k = K, n = N;
    size_t       i, j, p;
    float        sum, want;
    for (i = 0; i < m; i++)
        for (p = 0; p < k; p++)
            a[i * k + p] = at_[p * m + i] = (float)uniform(-1.0, 1.0);
    for (p = 0; p < k; p++)
        for (j = 0; j < n; j++)
            b[p * n + j] = bt[j * k + p] = (float)uniform(-1.0, 1.0);
    memset(c, 0, sizeof c);
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, m, n, k, 1.5f, a, MPT_F32, k, b,
                        MPT_F32, n,
                        0.0f, c[0], MPT_F32, n, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_TRANS, MPT_TRANS, m, n, k, 1.5f, at_, MPT_F32, m, bt, MPT_F32, k,
                        0.0f, c[1], MPT_F32, n, NULL, 0), MPT_OK);
    CHECK_EQ_I(mpt_gemm(MPT_COL_MAJOR, MPT_TRANS, MPT_TRANS, m, n, k, 1.5f, a, MPT_F32, k, b, MPT_F32, n,
                        0.0f, c[2], MPT_F32, m, NULL, 0), MPT_OK);
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            for (sum = 0.0f, p = 0; p < k; p++)
                sum = fmaf(a[i * k + p], b[p * n + j], sum);
            want = fmaf(1.5f, sum, 0.0f);
            same_bits(c[0][i * n + j], want);
            same_bits(c[1][i * n + j], want);
            same_bits(c[2][j * m + i], want);
        }
}

static int is_nan(float x) { return (mpti_f32_bits(x) & 0x7fffffffu) > 0x7f800000u; }

TEST(gemm_special_values)
{
    const float nan = mpti_f32_make(0x7fc00000u), inf = mpti_f32_make(0x7f800000u);
    float       a[4], b[4], c[4];
    int         i;
    for (i = 0; i < 4; i++)
        a[i] = b[i] = 1.0f, c[i] = nan;
    /* beta 0 does not read C; alpha 0 does not read A and B */
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 2, 1.0f, a, MPT_F32, 2, b,
                        MPT_F32, 2,
                        0.0f, c, MPT_F32, 2, NULL, 0), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(c[3]), mpti_f32_bits(2.0f));
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 2, 0.0f, NULL, MPT_F32, 2, NULL,
                        MPT_F32, 2, 0.5f, c, MPT_F32, 2, NULL, 0), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(c[3]), mpti_f32_bits(1.0f));
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 0, 1.0f, NULL, MPT_F32, 1, NULL,
                        MPT_F32, 2, 0.0f, c, MPT_F32, 2, NULL, 0), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(c[3]), 0u);
    /* a zero does not hide a NaN or an Inf */
    a[0] = 0.0f;
    b[0] = nan;
    b[1] = inf;
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 2, 1.0f, a, MPT_F32, 2, b,
                        MPT_F32, 2,
                        0.0f, c, MPT_F32, 2, NULL, 0), MPT_OK);
    CHECK(is_nan(c[0]) && is_nan(c[1]));
    CHECK_EQ_U(mpti_f32_bits(c[3]), 0x7f800000u);
    /* beta 1 does read a NaN in C */
    c[0] = nan;
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 1, 1, 1, 1.0f, a, MPT_F32, 1, a,
                        MPT_F32, 1,
                        1.0f, c, MPT_F32, 1, NULL, 0), MPT_OK);
    CHECK(is_nan(c[0]));
}

TEST(gemm_accumulates_in_fp32)
{
    mpt_f16 a[4096], c;
    size_t  i;
    for (i = 0; i < 4096; i++)
        a[i] = mpt_f16_from_f32(0.125f);
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_TRANS, 1, 1, 4096, 1.0f, a, MPT_F16, 4096, a,
                        MPT_F16,
                        4096, 0.0f, &c, MPT_F16, 1, NULL, 0), MPT_OK);
    CHECK_EQ_U(c.bits, mpt_f16_from_f32(64.0f).bits);   /* in FP16 the sum would stick at 32 */
}

/* Long sums: if A lies along k, its rows are summed as by mpt_dot; if it lies across k, in the order of k. */
TEST(gemm_of_long_rows)
{
    enum { K = 10000 };
    static mpt_bf16 a[2 * K], turned[2 * K], b[3 * K];
    float           c[6];
    size_t          i, k, turn;
    for (i = 0; i < 3 * K; i++)
        b[i] = mpt_bf16_from_f32(mpti_f32_make((uint32_t)(0x3f000000u + mt_random() % 0x1000000u)) - 1.0f);
    for (i = 0; i < 2 * K; i++)
        a[i] = turned[i % K * 2 + i / K] = b[(7 * i + 1) % (3 * K)];
    for (turn = 0; turn < 2; turn++) {
        CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, turn ? MPT_TRANS : MPT_NO_TRANS, MPT_TRANS, 2, 3, K, 1.0f,
                            turn ? turned : a, MPT_BF16, turn ? 2 : K, b, MPT_BF16, K, 0.0f, c, MPT_F32, 3,
                            NULL, 0), MPT_OK);
        for (i = 0; i < 6; i++) {
            const mpt_bf16 *const x = a + i / 3 * K, *const y = b + i % 3 * K;
            float                 sum = 0.0f;
            for (k = 0; k < K; k++)
                sum = fmaf(mpt_f32_from_bf16(x[k]), mpt_f32_from_bf16(y[k]), sum);
#ifdef MPT_USE_CBLAS
            sum = turn ? c[i] : sum;        /* the library's order */
#endif
            same_bits(c[i], turn ? sum : mpt_dot(x, MPT_BF16, y, MPT_BF16, K));
        }
    }
}

/* Neither operand is read, nor C written, beyond its last element: an address sanitizer would report it. */
TEST(gemm_reads_no_further)
{
    static const size_t few[] = {1, 3, 20, 70};
    const float         one = 1.0f;
    size_t              m, n, k, i, e;
    for (m = 0; m < 4; m++)
        for (n = 0; n < 4; n++)
            for (k = 0; k < 4; k++) {
                const size_t   area[3] = {few[m] * few[k], few[k] * few[n], few[m] * few[n]};
                unsigned char *at[3];
                mpt_format     format[3];
                size_t         width[3];
                float          last = 0.0f;
                for (i = 0; i < 3; i++) {
                    format[i] = formats[(m + n * (i + 1) + k) % 3];
                    width[i] = format[i] == MPT_F32 ? 4 : 2;
                    at[i] = (unsigned char *)malloc(area[i] * width[i]);
                    for (e = 0; at[i] && e < area[i]; e++)
                        (void)mpt_convert_n(format[i], at[i] + e * width[i], MPT_F32, &one, 1, NULL, NULL);
                }
                if (at[0] && at[1] && at[2]) {
                    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, few[m], few[n], few[k],
                                        1.0f, at[0], format[0], few[k], at[1], format[1], few[n], 1.0f, at[2],
                                        format[2], few[n], NULL, 0), MPT_OK);
                    (void)mpt_convert_n(MPT_F32, &last, format[2], at[2] + (area[2] - 1) * width[2], 1, NULL,
                                        NULL);
                    CHECK_EQ_U_AT(last, few[k] + 1, few[m] * 10000 + few[n]);
                }
                free(at[0]), free(at[1]), free(at[2]);
            }
}

TEST(gemm_refuses)
{
    const size_t half = (size_t)1 << sizeof half * 4u;      /* a square with this edge: its area wraps to 0 */
    float        x[4] = {0}, z[4];
#define GEMM(order, ta, tb, m, n, k, a, fa, lda, b, ldb, c, ldc)                                       \
    mpt_gemm((mpt_order)(order), (mpt_trans)(ta), (mpt_trans)(tb), m, n, k, 1.0f, a, fa, lda, b,       \
             MPT_F32, ldb, 0.0f, c, MPT_F32, ldc, NULL, 0)
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, x, MPT_F32, 2, x, 2, z, 2), MPT_OK);
    CHECK_EQ_I(GEMM(100, 111, 111, 2, 2, 2, x, MPT_F32, 2, x, 2, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 113, 111, 2, 2, 2, x, MPT_F32, 2, x, 2, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 110, 2, 2, 2, x, MPT_F32, 2, x, 2, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, x, MPT_F32, 1, x, 2, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, x, MPT_F32, 2, x, 1, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, x, MPT_F32, 2, x, 2, x, 1), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 112, 111, 1, 2, 2, x, MPT_F32, 1, x, 2, z, 2), MPT_OK);    /* A is stored 2 x 1 */
    CHECK_EQ_I(GEMM(102, 111, 111, 1, 2, 2, x, MPT_F32, 1, x, 2, z, 1), MPT_OK);
    CHECK_EQ_I(GEMM(102, 112, 111, 1, 2, 2, x, MPT_F32, 1, x, 2, x, 1), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, NULL, MPT_F32, 2, x, 2, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, x, MPT_F32, 2, NULL, 2, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, x, MPT_F32, 2, x, 2, NULL, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 2, 2, 2, x, MPT_E4M3, 2, x, 2, x, 2), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(GEMM(101, 111, 111, (size_t)-1, 2, 2, x, MPT_F32, 2, x, 2, x, 2), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, half, half, 1, x, MPT_F32, 1, x, half, x, half), MPT_E_ARG);
    CHECK_EQ_I(GEMM(101, 111, 111, 0, 2, 2, NULL, MPT_F32, 2, NULL, 2, NULL, 2), MPT_OK);
#ifdef MPT_USE_CBLAS
    CHECK_EQ_U(mpt_gemm_work_bytes(3, 4, 5), 3 * 5 * 5 * sizeof(float));
#else
    CHECK_EQ_U(mpt_gemm_work_bytes(3, 4, 5), 0);
#endif
    CHECK_EQ_U(mpt_gemm_work_bytes(1, (size_t)-1, 1), 0);
}

/* Does byte `at` lie in one of n lines of `bytes` bytes? */
static int line_has(ptrdiff_t at, ptrdiff_t first, size_t bytes, size_t step, size_t n)
{
    const ptrdiff_t past = at - first;
    return past >= 0 && (size_t)past / step < n && (size_t)past % step < bytes;
}

/* C, m x n, `at` bytes behind an A of m x k, or if `is_b` a B of k x n: refused where they share a byte;
 * taken where neither reaches into the other, and where they are columns of one matrix. Returns: these? */
static int overlap_case(mpt_format x, mpt_format c, int is_b, size_t m, size_t n, size_t k, size_t ld,
                        size_t ldc, ptrdiff_t at)
{
    static float         room[64], other[64];
    unsigned char *const p = (unsigned char *)(room + 32);
    const size_t         size = x == MPT_F32 ? 4 : 2, c_size = c == MPT_F32 ? 4 : 2, lines = is_b ? k : m;
    const size_t         bytes = (is_b ? n : k) * size, step = ld * size, out = n * c_size;
    const size_t         line = ldc * c_size;
    const ptrdiff_t      end = (ptrdiff_t)((lines - 1) * step + bytes);
    const int            apart = at >= end || at + (ptrdiff_t)((m - 1) * line + out) <= 0;
    const mpt_trans      plain = MPT_NO_TRANS;
    int                  meet = 0;
    ptrdiff_t            i;
    mpt_status           got;
    for (i = 0; i < end; i++)
        meet |= line_has(i, 0, bytes, step, lines) && line_has(i, at, out, line, m);
    got = is_b ? mpt_gemm(MPT_ROW_MAJOR, plain, plain, m, n, k, 1.0f, other, MPT_F32, k, p, x, ld, 0.0f,
                          p + at, c, ldc, NULL, 0)
               : mpt_gemm(MPT_ROW_MAJOR, plain, plain, m, n, k, 1.0f, p, x, ld, other, MPT_F32, n, 0.0f,
                          p + at, c, ldc, NULL, 0);
    if (meet)
        CHECK_EQ_I(got, MPT_E_ARG);
    if (apart || (!meet && step == line))
        CHECK_EQ_I(got, MPT_OK);
    return got == MPT_OK && !apart;
}

TEST(gemm_refuses_overlaps)
{
    static float x[4];
    size_t       m, n, k, ld, ldc, f, taken = 0;
    ptrdiff_t    at;
    for (f = 0; f < 8; f++)
        for (m = 1; m < 4; m++)
            for (n = 1; n < 4; n++)
                for (k = 1; k < 4; k++)
                    for (ld = f & 4u ? n : k; ld < 6; ld++)
                        for (ldc = n; ldc < 6; ldc++)
                            for (at = -40; at <= 40; at += 4)
                                taken += (size_t)overlap_case(
                                    f & 1u ? MPT_F16 : MPT_F32, f & 2u ? MPT_BF16 : MPT_F32, (f & 4u) != 0u,
                                    m, n, k, ld, ldc, at);
    CHECK(taken > 500);                 /* columns of one matrix */
    /* without a product A and B are not read: C may be one of them */
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 2, 0.0f, x, MPT_F32, 2, x, MPT_F32,
                        2, 1.0f, x, MPT_F32, 2, NULL, 0), MPT_OK);
}

/* An op may write to an array that it reads, element by element, but to none that overlaps it otherwise. */
TEST(ops_refuse_overlaps)
{
    static float   x[64], y[64], b[64];
    uint32_t       label[4] = {0, 1, 2, 3};
    const mpt_status bad = MPT_E_ARG;
    const mpt_format none = MPT_FORMAT_COUNT;
#define ACT(y, f, x, g) mpt_activate(MPT_ACT_RELU, y, f, x, g, 16)
    CHECK(ACT(x, MPT_F32, x, MPT_F32) == MPT_OK && ACT(x, MPT_F16, x, MPT_BF16) == bad);
    CHECK(ACT(x, MPT_F32, x, MPT_F16) == bad && ACT(x, MPT_F16, x, MPT_F32) == bad);
    CHECK(ACT(x + 1, MPT_F32, x, MPT_F32) == bad && ACT(x, MPT_F32, x + 15, MPT_F32) == bad);
    CHECK(ACT(x + 16, MPT_F32, x, MPT_F32) == MPT_OK && ACT(x + 8, MPT_F32, x, MPT_F16) == MPT_OK);
    CHECK(ACT(x, MPT_F32, x + 16, MPT_F32) == MPT_OK && ACT(x, MPT_F16, x + 8, MPT_F32) == MPT_OK);
#undef ACT
#define ACT(dx, dy, x) mpt_activate_grad(MPT_ACT_TANH, dx, MPT_F32, dy, MPT_F32, x, MPT_F32, 16)
    CHECK(ACT(x, x, y) == MPT_OK && ACT(y, x, y) == MPT_OK);
    CHECK(ACT(x + 1, x, y) == bad && ACT(y + 1, x, y) == bad);
#undef ACT
    CHECK(mpt_softmax(x, MPT_F32, x, MPT_F32, 4, 4) == MPT_OK &&
          mpt_softmax(x + 1, MPT_F32, x, MPT_F32, 4, 4) == bad);
    CHECK(mpt_softmax(x + 15, MPT_F32, x, MPT_F32, 4, 4) == bad &&
          mpt_softmax(x + 16, MPT_F32, x, MPT_F32, 4, 4) == MPT_OK);
    CHECK(mpt_softmax_grad(x, MPT_F32, x, MPT_F32, y, MPT_F32, 4, 4) == MPT_OK &&
          mpt_softmax_grad(x, MPT_F32, y, MPT_F32, x + 1, MPT_F32, 4, 4) == bad);
    CHECK(mpt_bias_add(x, MPT_F32, x + 16, MPT_F32, 4, 4) == MPT_OK);          /* bias: 4 numbers, not 16 */
    CHECK(mpt_bias_add(x + 4, MPT_F32, x, MPT_F32, 4, 4) == MPT_OK &&
          mpt_bias_add(x + 3, MPT_F32, x, MPT_F32, 4, 4) == bad &&
          mpt_bias_add(x, MPT_F32, x + 15, MPT_F32, 4, 4) == bad);
    CHECK(mpt_cross_entropy(x, MPT_F32, label, 4, 4, b, x, MPT_F32, 1.0f) == MPT_OK);
    CHECK(mpt_cross_entropy(x, MPT_F32, label, 4, 4, b, x + 1, MPT_F32, 1.0f) == bad);
    CHECK(mpt_cross_entropy(x, MPT_F32, label, 4, 4, b, x, MPT_F16, 1.0f) == bad);
    CHECK(mpt_cross_entropy(x, MPT_F32, label, 4, 4, b, x + 16, MPT_F32, 1.0f) == MPT_OK);
    CHECK(mpt_cross_entropy(x, MPT_F32, label, 4, 4, b, NULL, MPT_F32, 1.0f) == MPT_OK);
    CHECK(mpt_cross_entropy(x, MPT_F32, label, 4, 4, NULL, label, MPT_F32, 1.0f) == bad);
    CHECK(mpt_cross_entropy(x, MPT_F32, label, 4, 4, NULL, b, none, 1.0f) == MPT_E_UNSUPPORTED);
    CHECK(mpt_bias_add(x, MPT_F32, x, MPT_F32, 2, 4) == bad);       /* row 2 would add the new row 1 */
    CHECK(mpt_activate(MPT_ACT_RELU, NULL, none, x, MPT_F32, 4) == bad);
    CHECK(mpt_softmax(y, none, x, MPT_F32, 4, 4) == MPT_E_UNSUPPORTED);
    CHECK(mpt_softmax_grad(y, MPT_F32, x, MPT_F32, NULL, none, 4, 4) == bad);
    CHECK(mpt_activate_grad(MPT_ACT_RELU, y, MPT_F32, y, MPT_F32, x, none, 4) == MPT_E_UNSUPPORTED);
    CHECK(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2, 2, 2, 1.0f, x, MPT_F32, 2, y, none, 2, 0.0f,
                   b, MPT_F32, 2, NULL, 0) == MPT_E_UNSUPPORTED);
}

/* ---- the other ops ---- */

static void near(const array *a, size_t i, double want, double ulps)
{
    const double bound = fabs(want) * (ulps * 6e-8 + roundoff(a->format) * 1.001) +
        tiny(a->format) + ulps * 1e-45;
    const double got = get(a, i);
    CHECK(fabs(got - want) <= bound);
}

TEST(bias)
{
    size_t i, r, c, f, rows = 7, cols = 300;
    for (f = 0; f < 9; f++) {
        fill(&ga, formats[f % 3], -4.0, 4.0);
        fill(&gb, formats[f / 3], -4.0, 4.0);
        gc = ga;
        CHECK_EQ_I(mpt_bias_add(data(&ga), ga.format, data(&gb), gb.format, rows, cols), MPT_OK);
        for (r = 0; r < rows; r++)
            for (c = 0; c < cols; c++)
                near(&ga, r * cols + c, get(&gc, r * cols + c) + get(&gb, c), 1.0);
        CHECK(mpti_f64_bits(get(&ga, rows * cols)) == mpti_f64_bits(get(&gc, rows * cols)));
        CHECK_EQ_I(mpt_bias_grad(data(&gb), gb.format, data(&gc), gc.format, rows, cols), MPT_OK);
        for (c = 0; c < cols; c++) {
            double sum = 0.0;
            for (i = 0; i < rows; i++)
                sum += get(&gc, i * cols + c);
            near(&gb, c, sum, 200.0);
        }
    }
    CHECK_EQ_I(mpt_bias_grad(data(&gb), gb.format, NULL, MPT_F32, 0, 3), MPT_OK);
    CHECK(get(&gb, 2) == 0.0);
    CHECK_EQ_I(mpt_bias_add(NULL, MPT_F32, data(&gb), gb.format, 1, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_bias_add(data(&ga), MPT_TF32, data(&gb), gb.format, 1, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_bias_grad(data(&gb), gb.format, data(&ga), ga.format, (size_t)-1, 2), MPT_E_ARG);
    CHECK_EQ_I(mpt_bias_grad(NULL, gb.format, data(&ga), ga.format, 1, 2), MPT_E_ARG);
    CHECK_EQ_I(mpt_bias_grad(data(&ga), ga.format, data(&ga), ga.format, 2, 3), MPT_E_ARG);      /* overlap */
}

static double act(mpt_activation f, double x)
{
    switch (f) {
    case MPT_ACT_GELU: return 0.5 * x * erfc(-x / sqrt(2.0));
    case MPT_ACT_TANH: return tanh(x);
    case MPT_ACT_SIGMOID: return 1.0 / (1.0 + exp(-x));
    default: return x > 0.0 ? x : 0.0;
    }
}

static double act_slope(mpt_activation f, double x)
{
    switch (f) {
    case MPT_ACT_GELU: return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
    case MPT_ACT_TANH: return 1.0 / (cosh(x) * cosh(x));
    case MPT_ACT_SIGMOID: return 1.0 / ((1.0 + exp(-x)) * (1.0 + exp(x)));
    default: return x > 0.0 ? 1.0 : 0.0;
    }
}

TEST(activations)
{
    static const double spans[] = {0.01, 1.0, 9.0, 80.0};
    size_t i, f, s, n = 700;
    int    kind;
    for (kind = 0; kind < (int)MPT_ACT_COUNT; kind++)
        for (f = 0; f < 9; f++)
            for (s = 0; s < 4; s++) {
                const mpt_activation g = (mpt_activation)kind;
                fill(&ga, formats[f % 3], -spans[s], spans[s]);
                fill(&gb, formats[f / 3], -2.0, 2.0);
                gc = gb;
                CHECK_EQ_I(mpt_activate(g, data(&gb), gb.format, data(&ga), ga.format, n), MPT_OK);
                for (i = 0; i < n; i++)
                    near(&gb, i, act(g, get(&ga, i)), 8.0);
                CHECK(mpti_f64_bits(get(&gb, n)) == mpti_f64_bits(get(&gc, n)));
                gd = gc;                                        /* dx replaces dy */
                CHECK_EQ_I(mpt_activate_grad(g, data(&gd), gd.format, data(&gc), gc.format, data(&ga),
                                             ga.format,
                                             n), MPT_OK);
                for (i = 0; i < n; i++) {
                    /* near its zero at -0.75, GELU's slope needs double arithmetic */
                    const double want = act_slope(g, get(&ga, i)) * get(&gc, i);
                    near(&gd, i, want, g == MPT_ACT_RELU ? 0.0 : 8.0 + 2.0 * fabs(get(&ga, i)));
                }
            }
    CHECK_EQ_I(mpt_activate(MPT_ACT_COUNT, data(&gb), gb.format, data(&ga), ga.format, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_activate(MPT_ACT_RELU, NULL, gb.format, data(&ga), ga.format, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_activate(MPT_ACT_RELU, data(&gb), MPT_E5M2, data(&ga), ga.format, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_activate_grad(MPT_ACT_RELU, data(&gb), MPT_F32, NULL, MPT_F32, data(&ga), MPT_F32, 1),
               MPT_E_ARG);
}

TEST(activations_special)
{
    const uint32_t specials[] = {0x7fc00001u, 0x7f800000u, 0xff800000u, 0x80000000u, 0u};
    float          x[5], y[5], dx[5], one[5];
    int            kind, i;
    for (i = 0; i < 5; i++)
        x[i] = mpti_f32_make(specials[i]), one[i] = 1.0f;
    for (kind = 0; kind < (int)MPT_ACT_COUNT; kind++) {
        static const float above[] = {0, 0, 1.0f, 1.0f}, below[] = {0.0f, 0.0f, -1.0f, 0.0f};
        CHECK_EQ_I(mpt_activate((mpt_activation)kind, y, MPT_F32, x, MPT_F32, 5), MPT_OK);
        CHECK_EQ_I(mpt_activate_grad((mpt_activation)kind, dx, MPT_F32, one, MPT_F32, x, MPT_F32, 5), MPT_OK);
        CHECK(is_nan(y[0]) && is_nan(dx[0]));
#ifndef __FAST_MATH__
        CHECK_EQ_U(mpti_f32_bits(y[1]), kind < 2 ? 0x7f800000u : mpti_f32_bits(above[kind]));
        CHECK(fabsf(y[2] - below[kind]) == 0.0f);
        CHECK(fabsf(dx[1] - (kind < 2 ? 1.0f : 0.0f)) == 0.0f && fabsf(dx[2]) == 0.0f);
#else
        (void)above, (void)below;
#endif
        CHECK(fabsf(y[4] - (kind == MPT_ACT_SIGMOID ? 0.5f : 0.0f)) <= 0.0f);
    }
    CHECK_EQ_I(mpt_activate(MPT_ACT_RELU, y, MPT_F32, x, MPT_F32, 5), MPT_OK);
    CHECK_EQ_U(mpti_f32_bits(y[0]), 0x7fc00001u);
    CHECK_EQ_U(mpti_f32_bits(y[3]), 0u);
    for (kind = 0; kind < 5; kind++)            /* where ReLU is off, no gradient passes, not even Inf */
        dx[kind] = mpti_f32_make(0x7f800000u);
    CHECK_EQ_I(mpt_activate_grad(MPT_ACT_RELU, dx, MPT_F32, dx, MPT_F32, x, MPT_F32, 5), MPT_OK);
    for (kind = 1; kind < 5; kind++)
        CHECK_EQ_U(mpti_f32_bits(dx[kind]), x[kind] > 0.0f ? 0x7f800000u : 0u);
}

/* A gradient may replace what it is computed from. A matrix without columns has no rows to walk. */
TEST(ops_in_place_and_empty)
{
    const size_t most = ~(size_t)0;
    float        x[60], dy[60], want[60], scale = 1.0f, amax = 3.0f;
    uint8_t      code[2] = {7u, 7u};
    int          i;
    for (i = 0; i < 60; i++)
        x[i] = (float)(i % 7) * 0.125f, dy[i] = (float)(i % 5) - 1.75f;
    CHECK_EQ_I(mpt_softmax_grad(want, MPT_F32, dy, MPT_F32, x, MPT_F32, 4, 15), MPT_OK);
    CHECK_EQ_I(mpt_softmax_grad(x, MPT_F32, dy, MPT_F32, x, MPT_F32, 4, 15), MPT_OK);
    CHECK(memcmp(x, want, sizeof x) == 0);
    CHECK_EQ_I(mpt_activate_grad(MPT_ACT_GELU, want, MPT_F32, dy, MPT_F32, x, MPT_F32, 60), MPT_OK);
    CHECK_EQ_I(mpt_activate_grad(MPT_ACT_GELU, x, MPT_F32, dy, MPT_F32, x, MPT_F32, 60), MPT_OK);
    CHECK(memcmp(x, want, sizeof x) == 0);
    CHECK_EQ_I(mpt_softmax(x, MPT_F32, x, MPT_F32, most, 0), MPT_OK);
    CHECK_EQ_I(mpt_softmax_grad(x, MPT_F32, dy, MPT_F32, x, MPT_F32, most, 0), MPT_OK);
    CHECK_EQ_I(mpt_bias_add(x, MPT_F32, dy, MPT_F32, most, 0), MPT_OK);
    CHECK_EQ_I(mpt_fp8_encode_transpose(MPT_E4M3, code, code + 1, MPT_F32, x, most, 0, &scale, &amax),
               MPT_OK);
    CHECK(memcmp(x, want, sizeof x) == 0 && code[0] == 7u && mpti_f32_bits(amax) == 0x40400000u);
}

TEST(softmax)
{
    size_t i, r, f, rows = 5, cols = 300;
    for (f = 0; f < 9; f++) {
        fill(&ga, formats[f % 3], f % 2 ? -300.0 : -3.0, f % 2 ? 300.0 : 3.0);
        fill(&gb, formats[f / 3], 0.0, 1.0);
        CHECK_EQ_I(mpt_softmax(data(&gb), gb.format, data(&ga), ga.format, rows, cols), MPT_OK);
        for (r = 0; r < rows; r++) {
            double most = get(&ga, r * cols), sum = 0.0;
            for (i = 0; i < cols; i++)
                most = fmax(most, get(&ga, r * cols + i));
            for (i = 0; i < cols; i++)
                sum += exp(get(&ga, r * cols + i) - most);
            for (i = 0; i < cols; i++)
                near(&gb, r * cols + i, exp(get(&ga, r * cols + i) - most) / sum, 8.0);
        }
        fill(&gc, formats[(f + 1) % 3], -1.0, 1.0);
        gd = gc;
        CHECK_EQ_I(mpt_softmax_grad(data(&gd), gd.format, data(&gc), gc.format, data(&gb), gb.format, rows,
                                    cols),
                   MPT_OK);
        for (r = 0; r < rows; r++) {
            double dot = 0.0;
            for (i = 0; i < cols; i++)
                dot += get(&gb, r * cols + i) * get(&gc, r * cols + i);
            for (i = 0; i < cols; i++) {
                const double y = get(&gb, r * cols + i), want = y * (get(&gc, r * cols + i) - dot);
                CHECK(fabs(get(&gd, r * cols + i) - want) <=
                      fabs(want) * roundoff(gd.format) * 1.01 + y * 1e-6 + tiny(gd.format));
            }
        }
    }
    CHECK_EQ_I(mpt_softmax(data(&gb), gb.format, NULL, MPT_F32, 1, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_softmax(data(&gb), MPT_F64, data(&ga), ga.format, 1, 1), MPT_E_UNSUPPORTED);
    CHECK_EQ_I(mpt_softmax_grad(NULL, MPT_F32, data(&ga), ga.format, data(&ga), ga.format, 1, 1), MPT_E_ARG);
}

TEST(softmax_special)
{
    const float inf = mpti_f32_make(0x7f800000u);
    float       x[3], y[3];
    x[0] = mpti_f32_make(0xff800000u);
    x[1] = 88.0f;
    x[2] = 88.0f;
#ifndef __FAST_MATH__
    CHECK_EQ_I(mpt_softmax(y, MPT_F32, x, MPT_F32, 1, 3), MPT_OK);
    CHECK(fabsf(y[0]) <= 0.0f && fabsf(y[1] - 0.5f) <= 0.0f);       /* a masked element counts as 0 */
#endif
    x[1] = inf;
    CHECK_EQ_I(mpt_softmax(y, MPT_F32, x, MPT_F32, 1, 3), MPT_OK);
    CHECK(is_nan(y[0]) && is_nan(y[1]) && is_nan(y[2]));
    x[1] = mpti_f32_make(0x7fc00000u);
    CHECK_EQ_I(mpt_softmax(y, MPT_F32, x, MPT_F32, 1, 3), MPT_OK);
    CHECK(is_nan(y[0]) && is_nan(y[1]) && is_nan(y[2]));
    x[1] = x[2] = x[0];
    CHECK_EQ_I(mpt_softmax(y, MPT_F32, x, MPT_F32, 1, 3), MPT_OK);
    CHECK(is_nan(y[0]) && is_nan(y[2]));
    x[0] = x[1] = -1000.0f, x[2] = -2000.0f;        /* exp of x without the shift would be 0: 0 / 0 */
    CHECK_EQ_I(mpt_softmax(y, MPT_F32, x, MPT_F32, 1, 3), MPT_OK);
    CHECK(fabsf(y[0] - 0.5f) <= 0.0f && fabsf(y[1] - 0.5f) <= 0.0f && fabsf(y[2]) <= 0.0f);
}

TEST(cross_entropy)
{
    uint32_t label[6];
    size_t   i, r, f, rows = 6, cols = 270;
    float    loss, seed = 1024.0f;
    for (f = 0; f < 9; f++) {
        double total = 0.0;
        fill(&ga, formats[f % 3], f % 2 ? -200.0 : -2.0, f % 2 ? 200.0 : 2.0);
        fill(&gb, formats[f / 3], 0.0, 1.0);
        for (r = 0; r < rows; r++)
            label[r] = (uint32_t)(mt_random() % cols);
        CHECK_EQ_I(mpt_cross_entropy(data(&ga), ga.format, label, rows, cols, &loss, data(&gb), gb.format,
                                     seed),
                   MPT_OK);
        for (r = 0; r < rows; r++) {
            double most = get(&ga, r * cols), sum = 0.0;
            for (i = 0; i < cols; i++)
                most = fmax(most, get(&ga, r * cols + i));
            for (i = 0; i < cols; i++)
                sum += exp(get(&ga, r * cols + i) - most);
            total += log(sum) + most - get(&ga, r * cols + label[r]);
            for (i = 0; i < cols; i++) {
                const double p = exp(get(&ga, r * cols + i) - most) / sum;
                const double want = (p - (i == label[r] ? 1.0 : 0.0)) * (double)seed / (double)rows;
                CHECK(fabs(get(&gb, r * cols + i) - want) <=
                      fabs(want) * roundoff(gb.format) * 1.01 + 3e-5 * (p + 1e-6) * 170.0 + tiny(gb.format));
            }
        }
        CHECK(fabs((double)loss - total / (double)rows) <= 1e-5 * (1.0 + total));
    }
    CHECK_EQ_I(mpt_cross_entropy(data(&ga), ga.format, label, rows, cols, NULL, data(&ga), ga.format, seed),
               MPT_OK);                                     /* in place, no loss wanted */
    gc = gb;
    label[5] = (uint32_t)cols;
    CHECK_EQ_I(mpt_cross_entropy(data(&ga), ga.format, label, rows, cols, &loss, data(&gb), gb.format, seed),
               MPT_E_DATA);
    CHECK(!memcmp(&gb, &gc, sizeof gb));
    CHECK_EQ_I(mpt_cross_entropy(NULL, MPT_F32, label, rows, cols, &loss, NULL, MPT_F32, seed), MPT_E_ARG);
    CHECK_EQ_I(mpt_cross_entropy(data(&ga), ga.format, NULL, rows, cols, &loss, NULL, MPT_F32, seed),
               MPT_E_ARG);
    CHECK_EQ_I(mpt_cross_entropy(data(&ga), MPT_E4M3, label, 0, cols, &loss, NULL, MPT_F32, seed),
               MPT_E_UNSUPPORTED);
}

TEST(cross_entropy_without_result)
{
    const float    logits[2] = {0.0f, 0.0f};
    const uint32_t label[1] = {9};
    float          loss = 7.0f;
    CHECK_EQ_I(mpt_cross_entropy(logits, MPT_F32, label, 1, 2, &loss, NULL, MPT_F32, 1.0f), MPT_E_DATA);
    CHECK(loss == 7.0f);
    CHECK_EQ_I(mpt_cross_entropy(NULL, MPT_F32, NULL, 0, 2, &loss, NULL, MPT_F32, 1.0f), MPT_OK);
    CHECK(loss == 0.0f);
}

/* Rows of 100000 columns: one is hot; the sum is in double. */
TEST(rows_of_a_vocabulary)
{
    enum { COLS = 100000 };
    static float   x[COLS], y[COLS], d[COLS];
    const uint32_t label = 5u;
    size_t         i;
    for (i = 0; i < COLS; i++)
        x[i] = 0.0f, y[i] = 1e-5f, d[i] = 1.0f;
    CHECK_EQ_I(mpt_softmax_grad(d, MPT_F32, d, MPT_F32, y, MPT_F32, 1u, COLS), MPT_OK);
    CHECK(fabsf(d[0]) < 1e-11f);        /* the sum, in double, is 1 */
    CHECK_EQ_I(mpt_cross_entropy(x, MPT_F32, &label, 1u, COLS, NULL, d, MPT_F32, 1.0f), MPT_OK);
    for (i = 0; i < COLS; i++)
        CHECK((d[i] < 0.0f) == (i == label));
}

TEST(gemm_without_a_product_of_long_rows)
{
    float  c[2][300];
    size_t i;
    for (i = 0; i < 300u; i++)
        c[0][i] = c[1][i] = 2.0f;
    CHECK_EQ_I(mpt_gemm(MPT_ROW_MAJOR, MPT_NO_TRANS, MPT_NO_TRANS, 2u, 300u, 0u, 1.0f, NULL, MPT_F32, 1u,
                        NULL, MPT_F32, 300u, 0.5f, c, MPT_F32, 300u, NULL, 0u), MPT_OK);
    for (i = 0; i < 300u; i++)
        CHECK(c[0][i] == 1.0f && c[1][i] == 1.0f);
}

/* The labels of late rows; the sum of losses, and the loss of a sure row, in double. */
TEST(cross_entropy_of_many_rows)
{
    enum { ROWS = 20000 };
    static float    x[ROWS][2], d[ROWS][2];
    static uint32_t label[ROWS];
    float           loss;
    size_t          i;
    for (i = 0; i < ROWS; i++)
        x[i][0] = x[i][1] = 0.0f, label[i] = i >= 300u && i % 3u == 0u;
    CHECK_EQ_I(mpt_cross_entropy(x, MPT_F32, label, ROWS, 2u, &loss, d, MPT_F32, 1.0f), MPT_OK);
    CHECK(loss == (float)log(2.0));
    for (i = 0; i < ROWS; i++)
        CHECK(d[i][label[i]] < 0.0f && d[i][!label[i]] > 0.0f);
    x[0][0] = 20.0f;
    CHECK_EQ_I(mpt_cross_entropy(x, MPT_F32, label, 1u, 2u, &loss, NULL, MPT_F32, 1.0f), MPT_OK);
    CHECK(loss > 2.06e-9f && loss < 2.07e-9f);
}

TEST(bias_of_one_column)
{
    float       x[3] = {1.0f, 2.0f, 3.0f};
    const float bias[3] = {10.0f, 90.0f, 90.0f};
    CHECK_EQ_I(mpt_bias_add(x, MPT_F32, bias, MPT_F32, 3u, 1u), MPT_OK);
    CHECK(x[0] == 11.0f && x[1] == 12.0f && x[2] == 13.0f);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(policy_presets);
    RUN(policy_rules);
    RUN(policy_names_of_pytorch);
    RUN(policy_names_of_tensorflow);
    RUN(policy_unknown_names);
    RUN(policy_last_layer_and_loss);
    RUN(policy_of_one_format);
    RUN(policy_of_two_formats);
    RUN(policy_widest_of_all_pairs);
    RUN(policy_table_is_sound);
    RUN(policy_rows_of_the_user);
    RUN(gemm_against_double);
    RUN(gemm_of_thin_shapes);
    RUN(gemm_of_a_layer);
    RUN(gemm_of_two_vectors);
    RUN(gemm_same_bits_in_every_layout);
    RUN(gemm_special_values);
    RUN(gemm_accumulates_in_fp32);
    RUN(gemm_reads_no_further);
    RUN(gemm_refuses);
    RUN(gemm_refuses_overlaps);
    RUN(ops_refuse_overlaps);
    RUN(bias);
    RUN(activations);
    RUN(activations_special);
    RUN(ops_in_place_and_empty);
    RUN(softmax);
    RUN(softmax_special);
    RUN(cross_entropy);
    RUN(gemm_of_long_rows);
    RUN(cross_entropy_without_result);
    RUN_EXACT(rows_of_a_vocabulary);
    RUN_EXACT(gemm_without_a_product_of_long_rows);
    RUN_EXACT(cross_entropy_of_many_rows);
    RUN_EXACT(bias_of_one_column);
    return mt_end();
}
