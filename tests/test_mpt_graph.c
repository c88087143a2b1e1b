/* test_mpt_graph.c -- tests of the graph rewrite (>>M14): each step by hand; random graphs against a slow
 * implementation of the painting, against all colourings (min_cut), and executed before and after. It reads
 * internals, the op table, and defines MPT_MALLOC: it compiles the implementation itself. */
#define MPT_MALLOC(bytes) malloc(bytes)
#define MPT_FREE(p) free(p)
#include <stdlib.h>
#include <time.h>
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "test.h"

static uint64_t arena[1 << 17];

/* ---- small graphs by hand: each node has one FP32 type ---- */

static uint32_t node_named(const mpt_graph *g, const char *name)
{
    uint32_t i;
    for (i = 0; i < g->node_count; i++)
        if (!strcmp(g->nodes[i].name, name))
            return i;
    return MPT_GRAPH_NONE;
}

static uint32_t type_of(const mpt_graph *g, const char *name)
{
    const uint32_t n = node_named(g, name);
    return n == MPT_GRAPH_NONE ? n : g->nodes[n].first_type;
}

static uint32_t out_of(const mpt_graph *g, const char *name)
{
    const uint32_t t = type_of(g, name);
    return t == MPT_GRAPH_NONE ? t : g->types[t].first_output;
}

/* Adds a node. An input whose node is not there yet ("later") stays open until back() connects it. */
static uint32_t add(mpt_graph *g, const char *name, const char *op, const char *a, const char *b)
{
    uint32_t in[2] = {0, 0}, out = MPT_GRAPH_NONE;
    size_t   count = 0;
    if (a)
        in[count++] = out_of(g, a);
    if (b)
        in[count++] = out_of(g, b);
    CHECK_EQ_I(mpt_graph_op(g, name, op, in, count, 100, &out), MPT_OK);
    return out;
}

/* Connects the first open input of a node. */
static void back(mpt_graph *g, const char *to, const char *from)
{
    uint32_t in = g->types[type_of(g, to)].first_input;
    while (in != MPT_GRAPH_NONE && g->inputs[in].source != MPT_GRAPH_NONE)
        in = g->inputs[in].next;
    CHECK_EQ_I(mpt_graph_connect(g, in, out_of(g, from)), MPT_OK);
}

/* Fills both ends of the arena with 0xff: a test fails if the code relies on memory that it did not write. */
static void begin(mpt_graph *g)
{
    memset(arena, 0xff, 1u << 14);
    memset(arena + sizeof arena / sizeof *arena - (1u << 11), 0xff, 1u << 14);
    CHECK_EQ_I(mpt_graph_init(g, arena, sizeof arena), MPT_OK);
}

static mpt_graph_options tf(void)
{
    mpt_graph_options o = mpt_graph_defaults();
    o.lists = MPT_LISTS_TF_CUDA;
    return o;
}

static mpt_graph_summary rewrite(mpt_graph *g, const mpt_graph_options *o)
{
    mpt_graph_summary s;
    memset(&s, 0, sizeof s);
    CHECK_EQ_I(mpt_graph_rewrite(g, o, &s), MPT_OK);
    if (g->fault.why)
        printf("    %s: %s\n", g->fault.node ? g->fault.node : "", g->fault.why);
    return s;
}

static void expect(const mpt_graph *g, const char *name, int low, mpt_graph_why why)
{
    const uint32_t t = type_of(g, name);
    mt_context(name, NULL);
    CHECK(t != MPT_GRAPH_NONE);
    if (t != MPT_GRAPH_NONE) {
        CHECK_EQ_I(mpt_graph_is_low(g, t), low);
        CHECK_EQ_I(g->types[t].format == (int32_t)MPT_F32, !low);
        CHECK_EQ_I(g->types[t].why, why);
    }
    mt_context(NULL, NULL);
}

TEST(step_processable)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    mpt_graph_summary s;
    uint32_t          node, type;
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "a", "MatMul", "x", NULL);
    add(&g, "fetched", "MatMul", "a", NULL);
    add(&g, "state", "MatMul", "a", NULL);
    add(&g, "cpu", "MatMul", "a", NULL);
    add(&g, "gpu", "MatMul", "a", NULL);
    g.nodes[node_named(&g, "fetched")].flags = MPT_NODE_FETCHED;
    g.nodes[node_named(&g, "state")].flags = MPT_NODE_STATEFUL;
    g.nodes[node_named(&g, "cpu")].device = "/job:w/device:CPU:0";
    g.nodes[node_named(&g, "gpu")].device = "/job:w/device:GPU:0";
    CHECK_EQ_I(mpt_graph_node_add(&g, "half", "MatMul", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "T", (int32_t)MPT_F16, 0u, &type), MPT_OK);
    o.device = "gpu";
    s = rewrite(&g, &o);
    expect(&g, "a", 1, MPT_WHY_ALLOW);
    expect(&g, "gpu", 1, MPT_WHY_ALLOW);
    expect(&g, "fetched", 0, MPT_WHY_KEPT);
    expect(&g, "state", 0, MPT_WHY_KEPT);
    expect(&g, "cpu", 0, MPT_WHY_DEVICE);
    expect(&g, "x", 0, MPT_WHY_UNLISTED);
    CHECK_EQ_I(g.types[type].why, MPT_WHY_ALREADY);
    CHECK_EQ_U(s.processable, 4);
    CHECK_EQ_U(s.recognized, 3);
    CHECK_EQ_U(s.converted, 2);
    CHECK_EQ_U(s.low_casts, 1);
    CHECK_EQ_U(s.casts, 2);             /* x to FP16; a to FP32, for all three that stay */
    CHECK_EQ_U(s.cast_bytes, 2 * 600);
    CHECK_EQ_U(s.allow_converted, 2);
}

/* low_casts leaves out casts of constants and variables, which can be folded away or stored beside them. */
TEST(step_casts_of_what_stays)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    mpt_graph_summary s;
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "c", "Const", NULL, NULL);
    add(&g, "v", "VariableV2", NULL, NULL);
    add(&g, "m", "MatMul", "x", "c");
    add(&g, "m2", "MatMul", "m", "v");
    s = rewrite(&g, &o);
    CHECK_EQ_U(s.casts, 3);
    CHECK_EQ_U(s.low_casts, 1);
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "w", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x", "w");
    g.nodes[node_named(&g, "w")].flags = MPT_NODE_VARIABLE;     /* a variable by its flag, whatever its op; */
    g.nodes[node_named(&g, "x")].flags = MPT_NODE_CONST;        /* likewise */
    s = rewrite(&g, &o);
    CHECK_EQ_U(s.casts, 2);
    CHECK_EQ_U(s.low_casts, 0);
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "r", "ReadVariableOp", NULL, NULL);                 /* variables that are resources, too; */
    add(&g, "i", "Identity", "r", NULL);                        /* clear ops that read those may be low */
    add(&g, "m", "MatMul", "x", "r");
    add(&g, "m2", "MatMul", "m", "i");
    s = rewrite(&g, &o);
    CHECK_EQ_U(s.casts, 2);
    CHECK_EQ_U(s.low_casts, 1);
    expect(&g, "i", 1, MPT_WHY_CLEAR);
}

/* The name of a cast says which output of the node it reads. */
TEST(step_casts_by_output)
{
    static const char *const names[] = {"x-0-CastToFp16-AutoMixedPrecision",
                                        "x-1-CastToFp16-AutoMixedPrecision"};
    mpt_graph         g;
    mpt_graph_options o = tf();
    uint32_t          port, in, out[2];
    begin(&g);
    add(&g, "w", "Placeholder", NULL, NULL);
    out[0] = add(&g, "x", "Placeholder", NULL, NULL);
    CHECK_EQ_I(mpt_graph_output_add(&g, type_of(&g, "x"), 100, &out[1]), MPT_OK);
    CHECK_EQ_I(mpt_graph_op(&g, "m", "MatMul", out, 2, 100, NULL), MPT_OK);
    g.outputs[out[1]].range.flushed = 0.001;    /* what is known of a tensor holds of its cast, too */
    CHECK_EQ_U(rewrite(&g, &o).casts, 2);
    in = g.types[type_of(&g, "m")].first_input;
    for (port = 0; port < 2; port++, in = g.inputs[in].next) {
        const uint32_t cast = type_of(&g, names[port]);
        if (!CHECK(cast != MPT_GRAPH_NONE))
            return;
        CHECK_EQ_U(g.inputs[g.types[cast].first_input].source, out[port]);
        CHECK_EQ_U(g.types[cast].flags, 0u);
        CHECK(!memcmp(&g.outputs[g.inputs[in].source].range, &g.outputs[out[port]].range,
                      sizeof(mpt_port_range)));
        CHECK_EQ_U(g.types[g.outputs[g.inputs[in].source].type].node, g.types[cast].node);
    }
    CHECK_EQ_U(rewrite(&g, &o).casts, 0);       /* once more: nothing changes, not even the reasons */
    expect(&g, "m", 1, MPT_WHY_ALLOW);
}

TEST(step_nothing_to_do)
{
    mpt_graph         g;
    mpt_graph_summary s;
    mpt_graph_options o = tf();
    begin(&g);
    s = rewrite(&g, &o);
    CHECK_EQ_U(s.processable, 0);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "y", "Relu", "x", NULL);
    add(&g, "z", "Exp", "y", NULL);
    s = rewrite(&g, &o);
    CHECK_EQ_U(s.converted, 0);
    CHECK_EQ_U(g.node_count, 3);
    expect(&g, "y", 0, MPT_WHY_NOTHING);
    o.mode = MPT_GRAPH_MIN_CUT;
    CHECK_EQ_U(rewrite(&g, &o).converted, 0);
}

/* deny -> infer -> clear -> infer -> clear -> allow: no infer op follows the last clear op: it can be low. */
TEST(step_deny)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    mpt_graph_summary s;
    char              text[256];
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "e", "Exp", "x", NULL);
    add(&g, "i1", "Mul", "e", NULL);
    add(&g, "c1", "Relu", "i1", NULL);
    add(&g, "i2", "Add", "c1", NULL);
    add(&g, "c2", "Relu", "i2", NULL);
    add(&g, "m", "MatMul", "c2", NULL);
    add(&g, "i3", "Add", "m", NULL);
    add(&g, "m2", "MatMul", "i3", NULL);
    s = rewrite(&g, &o);
    expect(&g, "e", 0, MPT_WHY_DENY);
    expect(&g, "i1", 0, MPT_WHY_AFTER_DENY);
    expect(&g, "c1", 0, MPT_WHY_AFTER_DENY);
    expect(&g, "i2", 0, MPT_WHY_AFTER_DENY);
    expect(&g, "c2", 1, MPT_WHY_CLEAR);
    expect(&g, "i3", 1, MPT_WHY_BETWEEN);
    CHECK_EQ_U(s.deny_blocking, 1);
    CHECK_EQ_U(s.blocked_by_deny, 3);
    (void)mpt_graph_explain(&g, type_of(&g, "i2"), text, sizeof text);
    CHECK_EQ_S(text, "i2 (Add): FP32, because it carries what a deny op made: e -> i1 -> c1 -> i2");
    (void)mpt_graph_explain(&g, type_of(&g, "i3"), text, sizeof text);
    CHECK_EQ_S(text, "i3 (Add): low, because it lies between allow ops: m -> i3 -> m2");
    CHECK_EQ_U(mpt_graph_explain(&g, type_of(&g, "i3"), text, 10), 63);     /* returns the full length */
    CHECK_EQ_S(text, "i3 (Add):");
    CHECK_EQ_U(mpt_graph_explain(&g, 1000, text, 10), 0);
    CHECK_EQ_U(mpt_graph_explain(&g, 0, NULL, 10), 0);
}

TEST(step_between)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "before", "Tanh", "x", NULL);
    add(&g, "m", "MatMul", "before", NULL);
    add(&g, "t1", "Tanh", "m", NULL);
    add(&g, "t2", "Add", "t1", "x");
    add(&g, "m2", "MatMul", "t2", NULL);
    add(&g, "after", "Tanh", "m2", NULL);
    o.mode = MPT_GRAPH_TENSORFLOW_2_19;
    (void)rewrite(&g, &o);
    expect(&g, "before", 0, MPT_WHY_INFER);         /* downstream of no allow op */
    expect(&g, "t1", 1, MPT_WHY_BETWEEN);
    expect(&g, "t2", 1, MPT_WHY_BETWEEN);
    expect(&g, "after", 0, MPT_WHY_INFER);          /* upstream of none */
}

/* Infer ops that follow low inputs: with the BF16 lists; in TensorFlow 2.21 with the CUDA lists, too. */
TEST(step_follow)
{
    static const struct { mpt_op_lists lists; mpt_graph_mode mode; mpt_format low; int follows; } cases[] = {
        {MPT_LISTS_TF_BF16, MPT_GRAPH_TENSORFLOW, MPT_BF16, 1},
        {MPT_LISTS_TF_BF16, MPT_GRAPH_TENSORFLOW_2_19, MPT_BF16, 1},
        {MPT_LISTS_TF_CUDA, MPT_GRAPH_TENSORFLOW, MPT_F16, 1},
        {MPT_LISTS_TF_CUDA, MPT_GRAPH_TENSORFLOW, MPT_BF16, 1},
        {MPT_LISTS_TF_CUDA, MPT_GRAPH_TENSORFLOW_2_19, MPT_F16, 0}};
    mpt_graph         g;
    mpt_graph_options o = tf();
    size_t            i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(&g);
        add(&g, "x", "Placeholder", NULL, NULL);
        add(&g, "e", "Exp", "x", NULL);
        add(&g, "m", "MatMul", "x", NULL);
        add(&g, "t1", "Tanh", "m", NULL);
        add(&g, "t2", "Tanh", "t1", NULL);
        add(&g, "denied", "Add", "m", "e");
        add(&g, "mixed", "Add", "x", "t2");
        add(&g, "end", "Relu", "mixed", NULL);
        o.lists = cases[i].lists;
        o.mode = cases[i].mode;
        o.low = cases[i].low;
        (void)rewrite(&g, &o);
        expect(&g, "t1", cases[i].follows, cases[i].follows ? MPT_WHY_FOLLOWS : MPT_WHY_INFER);
        expect(&g, "t2", cases[i].follows, cases[i].follows ? MPT_WHY_FOLLOWS : MPT_WHY_INFER);
        expect(&g, "mixed", cases[i].follows, cases[i].follows ? MPT_WHY_FOLLOWS : MPT_WHY_INFER);
        expect(&g, "end", cases[i].follows, cases[i].follows ? MPT_WHY_CLEAR : MPT_WHY_APART);
        expect(&g, "denied", 0, MPT_WHY_AFTER_DENY);
        CHECK_EQ_I(g.types[type_of(&g, "m")].format, cases[i].low);
        CHECK((node_named(&g, "x-0-CastToBf16-AutoMixedPrecision") != MPT_GRAPH_NONE) ==
              (cases[i].low == MPT_BF16));
    }
    o.mode = MPT_GRAPH_MODE_COUNT;
    CHECK_EQ_I(mpt_graph_rewrite(&g, &o, NULL), MPT_E_ARG);
}

TEST(step_clear)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    add(&g, "v", "VariableV2", NULL, NULL);
    add(&g, "read", "Identity", "v", NULL);
    add(&g, "enter", "Enter", "read", NULL);
    add(&g, "shape", "Reshape", "read", NULL);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "up", "Identity", "x", NULL);
    add(&g, "m", "MatMul", "up", "shape");
    add(&g, "m2", "MatMul", "enter", NULL);
    add(&g, "down1", "Relu", "m", NULL);
    add(&g, "down2", "Relu", "down1", NULL);
    add(&g, "far", "Relu", "x", NULL);
    (void)rewrite(&g, &o);
    expect(&g, "up", 1, MPT_WHY_CLEAR);
    expect(&g, "down1", 1, MPT_WHY_CLEAR);
    expect(&g, "down2", 1, MPT_WHY_CLEAR);
    expect(&g, "shape", 1, MPT_WHY_CLEAR);
    expect(&g, "read", 0, MPT_WHY_VARIABLE);
    expect(&g, "enter", 0, MPT_WHY_VARIABLE);
    expect(&g, "far", 0, MPT_WHY_APART);
    begin(&g);                                  /* a node without inputs reads no variable */
    add(&g, "none", "Identity", NULL, NULL);
    add(&g, "m", "MatMul", "none", NULL);
    (void)rewrite(&g, &o);
    expect(&g, "none", 1, MPT_WHY_CLEAR);
}

TEST(step_kernels_and_types)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    uint32_t          node, t, u, out;
    begin(&g);
    CHECK_EQ_I(mpt_graph_node_add(&g, "bn", "FusedBatchNorm", NULL, 0u, &node), MPT_OK);
    out = add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x", NULL);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "T", (int32_t)MPT_F32, 0u, &t), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "U", (int32_t)MPT_F32, MPT_TYPE_FIXED, &u), MPT_OK);
    CHECK_EQ_I(mpt_graph_input_add(&g, t, out_of(&g, "m"), NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_input_add(&g, u, out, NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(&g, t, 100, &out), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(&g, u, 10, NULL), MPT_OK);
    add(&g, "m2", "MatMul", "bn", NULL);
    add(&g, "old", "Conv2D", "bn", NULL);
    g.types[type_of(&g, "old")].flags = MPT_TYPE_FIXED;
    (void)rewrite(&g, &o);
    expect(&g, "bn", 1, MPT_WHY_BETWEEN);
    CHECK_EQ_S(g.nodes[node].op, "FusedBatchNormV2");
    CHECK_EQ_I(g.types[u].format, MPT_F32);
    CHECK_EQ_I(g.types[u].why, MPT_WHY_NO_KERNEL);
    expect(&g, "old", 0, MPT_WHY_NO_KERNEL);
}

TEST(step_loops)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "enter", "Enter", "x", NULL);
    add(&g, "merge", "Merge", "enter", "later");
    add(&g, "m", "MatMul", "merge", NULL);
    add(&g, "next", "NextIteration", "m", NULL);
    back(&g, "merge", "next");
    add(&g, "exit", "Exit", "m", NULL);
    add(&g, "unread", "NextIteration", "x", NULL);
    CHECK_EQ_I(mpt_graph_check(&g), MPT_OK);
    (void)rewrite(&g, &o);
    expect(&g, "unread", 0, MPT_WHY_APART);
    expect(&g, "merge", 1, MPT_WHY_BETWEEN);
    expect(&g, "next", 1, MPT_WHY_BETWEEN);
    /* the Ref ops of a loop around a variable may form a cycle, too */
    begin(&g);
    add(&g, "v", "VariableV2", NULL, NULL);
    add(&g, "enter", "RefEnter", "v", NULL);
    add(&g, "merge", "RefMerge", "enter", "later");
    add(&g, "next", "RefNextIteration", "merge", NULL);
    back(&g, "merge", "next");
    CHECK_EQ_I(mpt_graph_check(&g), MPT_OK);
    /* one NextIteration with two merges, one of which must stay FP32: then all three do */
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "free", "Merge", "x", "later");
    add(&g, "kept", "Merge", "x", "later");
    add(&g, "m", "MatMul", "free", "kept");
    add(&g, "next", "NextIteration", "m", NULL);
    back(&g, "free", "next");
    back(&g, "kept", "next");
    g.nodes[node_named(&g, "kept")].flags = MPT_NODE_FETCHED;
    (void)rewrite(&g, &o);
    expect(&g, "free", 0, MPT_WHY_GROUP_FP32);
    expect(&g, "next", 0, MPT_WHY_GROUP_FP32);
    expect(&g, "kept", 0, MPT_WHY_KEPT);
    expect(&g, "m", 1, MPT_WHY_ALLOW);
}

/* A graph with a Cast to FP32 that only MatMuls read. Returns: how many nodes it has. */
static uint32_t graph_of_cast(mpt_graph *g)
{
    uint32_t node, src, dst, out;
    begin(g);
    CHECK_EQ_I(mpt_graph_node_add(g, "bytes", "Placeholder", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(g, node, "T", MPT_TYPE_OTHER, 0u, &src), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(g, src, 100, &out), MPT_OK);
    CHECK_EQ_I(mpt_graph_node_add(g, "c", "Cast", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(g, node, "DstT", (int32_t)MPT_F32, 0u, &dst), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(g, node, "SrcT", MPT_TYPE_OTHER, 0u, &src), MPT_OK);
    CHECK_EQ_I(mpt_graph_input_add(g, src, out, NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(g, dst, 100, NULL), MPT_OK);
    add(g, "m", "MatMul", "c", NULL);
    add(g, "m2", "MatMul", "c", "m");
    return g->node_count;
}

TEST(step_casts)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    const uint32_t    nodes = graph_of_cast(&g);
    (void)rewrite(&g, &o);
    expect(&g, "c", 1, MPT_WHY_CAST_LOW);
    CHECK_EQ_U(g.node_count, nodes);            /* no cast added after this Cast */
    add(&g, "out", "Exp", "m2", NULL);          /* F16 feeds FP32: refused */
    CHECK_EQ_I(mpt_graph_rewrite(&g, &o, NULL), MPT_E_DATA);
    CHECK_EQ_S(g.fault.node, "out");
}

/* What must keep its format does so even if it is a Cast or a NextIteration, of which no list decides. */
TEST(casts_and_loops_that_are_kept)
{
    static const mpt_graph_why why[] = {MPT_WHY_KEPT, MPT_WHY_KEPT, MPT_WHY_DEVICE, MPT_WHY_NO_KERNEL,
                                        MPT_WHY_GROUP_FP32};
    mpt_graph                  g;
    mpt_graph_options          o = tf();
    uint32_t                   kept;
    int                        i;
    o.device = "gpu";
    for (i = 0; i < 20; i++) {
        const int way = i % 5, loop = i / 5 % 2;
        o.mode = i < 10 ? MPT_GRAPH_TENSORFLOW : MPT_GRAPH_MIN_CUT;
        if (loop) {
            begin(&g);
            add(&g, "x", "Placeholder", NULL, NULL);
            add(&g, "merge", "Merge", "x", "later");
            add(&g, "m", "MatMul", "merge", NULL);
            add(&g, "c", "NextIteration", "m", NULL);
            back(&g, "merge", "c");
        } else
            (void)graph_of_cast(&g);
        kept = node_named(&g, "c");
        g.nodes[kept].flags = way == 0 ? MPT_NODE_FETCHED : way == 1 ? MPT_NODE_STATEFUL : 0u;
        g.nodes[kept].device = way == 2 ? "/cpu:0" : NULL;
        g.types[g.nodes[kept].first_type].flags = way == 3 ? MPT_TYPE_FIXED : 0u;
        add(&g, "y", "Placeholder", NULL, NULL);
        add(&g, "z", "Exp", "y", NULL);
        if (way == 4)
            CHECK_EQ_I(mpt_graph_group(&g, g.nodes[kept].first_type, type_of(&g, "z")), MPT_OK);
        (void)rewrite(&g, &o);
        expect(&g, "c", 0, way == 3 && !loop ? MPT_WHY_UNLISTED : why[way]);
        expect(&g, "m", 1, MPT_WHY_ALLOW);
        if (loop)
            expect(&g, "merge", 0, MPT_WHY_GROUP_FP32);
    }
}

/* A TensorList: what is pushed is popped, so deny and low pass through it, and its ops have one format. */
static void list_graph(mpt_graph *g, const char *writer_input, uint32_t flags)
{
    uint32_t n, h, f, empty, pushed, i;
    add(g, "x", "Placeholder", NULL, NULL);
    add(g, "e", "Exp", "x", NULL);
    add(g, "m", "MatMul", "x", NULL);
    CHECK_EQ_I(mpt_graph_node_add(g, "empty", "EmptyTensorList", NULL, 0u, &n), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(g, n, "element", (int32_t)MPT_F32, 0u, NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(g, n, "handle", MPT_TYPE_HANDLE, 0u, &h), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(g, h, 1, &empty), MPT_OK);
    CHECK_EQ_I(mpt_graph_node_add(g, "push", "TensorListPushBack", NULL, flags, &n), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(g, n, "element", (int32_t)MPT_F32, 0u, &f), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(g, n, "handle", MPT_TYPE_HANDLE, 0u, &h), MPT_OK);
    CHECK_EQ_I(mpt_graph_input_add(g, h, empty, NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_input_add(g, f, out_of(g, writer_input), NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(g, h, 1, &pushed), MPT_OK);
    for (i = 0; i < 2; i++) {
        CHECK_EQ_I(mpt_graph_node_add(g, i ? "pop2" : "pop", "TensorListPopBack", NULL, 0u, &n), MPT_OK);
        CHECK_EQ_I(mpt_graph_type_add(g, n, "element", (int32_t)MPT_F32, 0u, &f), MPT_OK);
        CHECK_EQ_I(mpt_graph_type_add(g, n, "handle", MPT_TYPE_HANDLE, 0u, &h), MPT_OK);
        CHECK_EQ_I(mpt_graph_input_add(g, h, pushed, NULL), MPT_OK);
        CHECK_EQ_I(mpt_graph_output_add(g, h, 1, &pushed), MPT_OK);
        CHECK_EQ_I(mpt_graph_output_add(g, f, 100, NULL), MPT_OK);
    }
    add(g, "t", "Tanh", "pop2", NULL);
    add(g, "m2", "MatMul", "t", NULL);
}

TEST(step_lists)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    uint32_t          node, type;
    char              text[256];
    begin(&g);
    list_graph(&g, "m", 0u);
    (void)rewrite(&g, &o);
    expect(&g, "push", 1, MPT_WHY_BETWEEN);
    expect(&g, "pop2", 1, MPT_WHY_BETWEEN);
    expect(&g, "t", 1, MPT_WHY_BETWEEN);
    expect(&g, "empty", 1, MPT_WHY_GROUP_LOW);
    begin(&g);
    list_graph(&g, "e", 0u);
    (void)rewrite(&g, &o);
    expect(&g, "push", 0, MPT_WHY_AFTER_DENY);
    expect(&g, "t", 0, MPT_WHY_AFTER_DENY);
    expect(&g, "empty", 0, MPT_WHY_GROUP_FP32);
    begin(&g);                                  /* no low kernel, yet low with its list, as upstream */
    list_graph(&g, "m", 0u);
    g.types[type_of(&g, "empty")].flags = MPT_TYPE_FIXED;
    g.types[type_of(&g, "pop")].flags = MPT_TYPE_FIXED;
    (void)rewrite(&g, &o);
    expect(&g, "push", 1, MPT_WHY_BETWEEN);
    expect(&g, "empty", 1, MPT_WHY_GROUP_LOW);
    expect(&g, "pop", 1, MPT_WHY_GROUP_LOW);
    begin(&g);                                  /* a writer that must stay FP32 keeps the whole list FP32 */
    list_graph(&g, "m", MPT_NODE_FETCHED);
    (void)rewrite(&g, &o);
    expect(&g, "push", 0, MPT_WHY_KEPT);
    expect(&g, "pop", 0, MPT_WHY_GROUP_FP32);
    CHECK(!mpt_graph_is_low(&g, type_of(&g, "empty")));
    CHECK(!mpt_graph_is_low(&g, type_of(&g, "t")));     /* nothing low comes through the list */
    begin(&g);                                  /* so does a list that comes from or goes to elsewhere */
    CHECK_EQ_I(mpt_graph_node_add(&g, "arg", "_Arg", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "T", MPT_TYPE_HANDLE, 0u, &type), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(&g, type, 1, NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_node_add(&g, "read", "TensorListPopBack", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "element", (int32_t)MPT_F32, 0u, &type), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(&g, type, 100, NULL), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "handle", MPT_TYPE_HANDLE, 0u, &type), MPT_OK);
    CHECK_EQ_I(mpt_graph_input_add(&g, type, out_of(&g, "arg"), NULL), MPT_OK);
    add(&g, "m3", "MatMul", "read", NULL);
    list_graph(&g, "m", 0u);
    CHECK_EQ_I(mpt_graph_node_add(&g, "end", "_Retval", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "T", MPT_TYPE_HANDLE, 0u, &type), MPT_OK);
    CHECK_EQ_I(mpt_graph_input_add(&g, type, g.types[type_of(&g, "push") + 1].first_output, NULL),
               MPT_OK);
    (void)rewrite(&g, &o);
    expect(&g, "push", 0, MPT_WHY_GROUP_FP32);
    expect(&g, "pop", 0, MPT_WHY_GROUP_FP32);
    expect(&g, "read", 0, MPT_WHY_GROUP_FP32);
    (void)mpt_graph_explain(&g, type, text, sizeof text);
    CHECK(strstr(text, "end (_Retval): no float, ") == text);
}

TEST(step_groups)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x", NULL);
    add(&g, "a", "Relu", "m", NULL);
    add(&g, "b", "Foo", "x", NULL);
    add(&g, "c", "Relu", "m", NULL);
    add(&g, "d", "Relu", "x", NULL);
    add(&g, "e", "MatMul", "x", NULL);          /* an allow op loses the format that step 1 gave it */
    add(&g, "f", "Exp", "x", NULL);
    CHECK_EQ_I(mpt_graph_group(&g, type_of(&g, "a"), type_of(&g, "b")), MPT_OK);
    CHECK_EQ_I(mpt_graph_group(&g, type_of(&g, "c"), type_of(&g, "d")), MPT_OK);
    CHECK_EQ_I(mpt_graph_group(&g, type_of(&g, "e"), type_of(&g, "f")), MPT_OK);
    g.nodes[node_named(&g, "d")].flags = MPT_NODE_FETCHED;
    (void)rewrite(&g, &o);
    expect(&g, "a", 1, MPT_WHY_CLEAR);
    expect(&g, "b", 1, MPT_WHY_GROUP_LOW);
    expect(&g, "c", 0, MPT_WHY_GROUP_FP32);
    expect(&g, "d", 0, MPT_WHY_KEPT);
    expect(&g, "e", 0, MPT_WHY_GROUP_FP32);
    expect(&g, "f", 0, MPT_WHY_DENY);
    CHECK_EQ_I(mpt_graph_group(&g, 0, g.type_count), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_group(&g, g.type_count, 0), MPT_E_ARG);
}

TEST(ranges)
{
    const float       big[] = {1e6f, 1.0f}, small[] = {1e-9f, 2e-9f, 1.0f, 1.0f};
    mpt_graph         g;
    mpt_graph_options o = tf();
    mpt_range         r;
    uint32_t          t1, t2;
    int               scaled;
    for (scaled = 0; scaled < 2; scaled++) {
        begin(&g);
        add(&g, "x", "Placeholder", NULL, NULL);
        add(&g, "m", "MatMul", "x", NULL);
        t1 = add(&g, "t1", "Tanh", "m", NULL);
        t2 = add(&g, "t2", "Tanh", "t1", NULL);
        add(&g, "m2", "MatMul", "t2", NULL);
        add(&g, "m3", "MatMul", "m2", NULL);
        CHECK_EQ_I(mpt_range_init(&r, MPT_F16), MPT_OK);
        CHECK_EQ_I(mpt_range_add(&r, MPT_F32, big, 2), MPT_OK);
        CHECK_EQ_I(mpt_graph_range(&g, t1, &r, MPT_F16, scaled ? -8 : 0), MPT_OK);
        CHECK_EQ_I(mpt_range_init(&r, MPT_F16), MPT_OK);
        CHECK_EQ_I(mpt_range_add(&r, MPT_F32, small, 4), MPT_OK);
        CHECK_EQ_I(mpt_graph_range(&g, out_of(&g, "m2"), &r, MPT_F16, scaled ? 15 : 0), MPT_OK);
        CHECK_EQ_I(mpt_graph_range(&g, t2, &r, MPT_BF16, 0), MPT_E_ARG);
        CHECK_EQ_I(mpt_graph_range(&g, t2, &r, MPT_E4M3, 0), MPT_E_ARG);
        CHECK_EQ_I(mpt_graph_range(&g, 1000, &r, MPT_F16, 0), MPT_E_ARG);
        r.nan = 1;                              /* of NaN in the data no format is to blame */
        CHECK_EQ_I(mpt_graph_range(&g, t2, &r, MPT_F16, 0), MPT_OK);
        CHECK_EQ_U(g.outputs[t2].range.overflow, 0);
        g.outputs[t2].range.flushed = 0.0;
        (void)rewrite(&g, &o);
        expect(&g, "m", 1, MPT_WHY_ALLOW);
        if (scaled) {
            expect(&g, "t1", 1, MPT_WHY_BETWEEN);
            expect(&g, "m2", 1, MPT_WHY_ALLOW);
        } else {
            expect(&g, "t1", 0, MPT_WHY_OVERFLOW);
            expect(&g, "t2", 0, MPT_WHY_OVERFLOW);      /* it reads t1 */
            CHECK_EQ_U(g.types[type_of(&g, "t2")].via, type_of(&g, "t1"));
            expect(&g, "m2", 0, MPT_WHY_FLUSHED);
            expect(&g, "m3", 0, MPT_WHY_FLUSHED);
        }
    }
    begin(&g);                                  /* an infer op that must stay FP32 separates the allow ops */
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x", NULL);
    t1 = add(&g, "t1", "Tanh", "m", NULL);
    add(&g, "t2", "Tanh", "t1", NULL);
    add(&g, "t3", "Tanh", "t2", NULL);
    add(&g, "m2", "MatMul", "t3", NULL);
    add(&g, "foo", "Foo", "t1", NULL);
    CHECK_EQ_I(mpt_range_init(&r, MPT_F16), MPT_OK);
    CHECK_EQ_I(mpt_range_add(&r, MPT_F32, big, 2), MPT_OK);
    CHECK_EQ_I(mpt_graph_range(&g, t1, &r, MPT_F16, 0), MPT_OK);
    (void)rewrite(&g, &o);
    expect(&g, "m", 1, MPT_WHY_ALLOW);
    expect(&g, "t1", 0, MPT_WHY_OVERFLOW);
    expect(&g, "t2", 0, MPT_WHY_OVERFLOW);
    expect(&g, "foo", 0, MPT_WHY_OVERFLOW);     /* though no list names it */
    expect(&g, "t3", 0, MPT_WHY_INFER);
    expect(&g, "m2", 1, MPT_WHY_ALLOW);
}

/* ---- lists ---- */

/* The list among an op's facts; MPT_LIST_COUNT if it is on two. */
static mpt_list list_in(unsigned facts)
{
    unsigned list = 0u;
    while (list < MPT_LIST_COUNT && MPTI_ON(list) != (facts & MPTI_LISTED))
        list++;
    return (mpt_list)list;
}

static mpt_list list_of(mpt_op_lists lists, const char *op)
{
    mpt_graph         g;
    mpt_graph_options o = mpt_graph_defaults();
    mpti_op_table     table;
    mpt_list          list;
    o.lists = lists;
    (void)mpt_graph_init(&g, arena, sizeof arena);
    CHECK_EQ_I(mpti_op_table_init(&g, &table, &o), MPT_OK);
    list = list_in(mpti_op_find(&table, op, strlen(op))->facts);
    return list;
}

TEST(lists)
{
    static const unsigned want[MPT_LISTS_COUNT][MPT_LIST_COUNT] = {
        {0, 0, 0, 0, 0}, {0, 39, 43, 9, 110}, {0, 14, 48, 7, 111}};
    unsigned          count[MPT_LIST_COUNT + 1];
    mpt_graph         g;
    mpt_graph_options o = mpt_graph_defaults();
    mpti_op_table     table;
    size_t            i, l;
    for (l = 1; l < MPT_LISTS_COUNT; l++) {
        o.lists = (mpt_op_lists)l;
        begin(&g);
        CHECK_EQ_I(mpti_op_table_init(&g, &table, &o), MPT_OK);
        memset(count, 0, sizeof count);
        for (i = 0; i <= table.mask; i++)
            count[list_in(table.entries[i].facts)]++;
        for (i = 1; i < MPT_LIST_COUNT; i++)
            CHECK_EQ_U(count[i], want[l][i]);
        CHECK_EQ_U(count[MPT_LIST_COUNT], 0);
    }
    CHECK(list_of(MPT_LISTS_TF_CUDA, "MatMul") == MPT_LIST_ALLOW);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "LSTMBlockCellGrad") == MPT_LIST_ALLOW);
    CHECK(list_of(MPT_LISTS_TF_BF16, "LSTMBlockCellGrad") == MPT_LIST_NONE);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "VoxelMax") == MPT_LIST_ALLOW);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "Sum") == MPT_LIST_DENY);
    CHECK(list_of(MPT_LISTS_TF_BF16, "Sum") == MPT_LIST_INFER);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "Rsqrt") == MPT_LIST_NONE);
    CHECK(list_of(MPT_LISTS_TF_BF16, "Rsqrt") == MPT_LIST_INFER);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "TensorListStack") == MPT_LIST_CLEAR);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "Softmax") == MPT_LIST_INFER);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "OneHot") == MPT_LIST_CLEAR);
    CHECK(list_of(MPT_LISTS_TF_BF16, "OneHot") == MPT_LIST_NONE);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "Softma") == MPT_LIST_NONE);
    CHECK(list_of(MPT_LISTS_TF_CUDA, "matmul") == MPT_LIST_NONE);
    CHECK(list_of(MPT_LISTS_COMPACT, "MatMul") == MPT_LIST_NONE);
    CHECK(list_of(MPT_LISTS_COMPACT, "matmul") == MPT_LIST_ALLOW);
    CHECK(list_of(MPT_LISTS_COMPACT, "bmm") == MPT_LIST_ALLOW);
    CHECK(list_of(MPT_LISTS_COMPACT, "softmax") == MPT_LIST_INFER);
    CHECK(list_of(MPT_LISTS_COMPACT, "smooth_l1_loss") == MPT_LIST_DENY);
    CHECK(list_of(MPT_LISTS_COMPACT, "cat") == MPT_LIST_CLEAR);
    CHECK(list_of(MPT_LISTS_COMPACT, "output") == MPT_LIST_NONE);
}

TEST(lists_of_the_user)
{
    static const mpt_list_row rows[] = {{"Tanh", MPT_LIST_DENY, MPT_LIST_OVERRIDE},
                                        {"Foo", MPT_LIST_ALLOW, MPT_LIST_ADD},
                                        {"Relu", MPT_LIST_NONE, MPT_LIST_REMOVE},
                                        {"Mul", MPT_LIST_INFER, MPT_LIST_ADD}};
    static const mpt_list_row twice[] = {{"MatMul", MPT_LIST_DENY, MPT_LIST_ADD}};
    static const mpt_list_row wrong[] = {{NULL, MPT_LIST_DENY, MPT_LIST_ADD},
                                         {"MatMul", MPT_LIST_NONE, MPT_LIST_ADD},
                                         {"MatMul", MPT_LIST_COUNT, MPT_LIST_OVERRIDE},
                                         {"", MPT_LIST_DENY, MPT_LIST_ADD}};
    mpt_graph                 g;
    mpt_graph_options         o = tf();
    size_t                    i;
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "f", "Foo", "x", NULL);
    add(&g, "t", "Tanh", "f", NULL);
    add(&g, "r", "Relu", "f", NULL);
    o.rows = twice;
    o.row_count = 1;
    CHECK_EQ_I(mpt_graph_rewrite(&g, &o, NULL), MPT_E_DATA);
    CHECK_EQ_S(g.fault.node, "MatMul");
    CHECK(strstr(g.fault.why, "two lists") != NULL);
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        o.rows = &wrong[i];
        CHECK_EQ_I(mpt_graph_rewrite(&g, &o, NULL), MPT_E_ARG);
    }
    o.rows = NULL;
    CHECK_EQ_I(mpt_graph_rewrite(&g, &o, NULL), MPT_E_ARG);
    o.rows = rows;
    o.row_count = 4;
    (void)rewrite(&g, &o);
    expect(&g, "f", 1, MPT_WHY_ALLOW);
    expect(&g, "t", 0, MPT_WHY_DENY);
    expect(&g, "r", 0, MPT_WHY_UNLISTED);
    CHECK(g.fault.why == NULL);
}

/* ---- what is refused ---- */

static void refuse(mpt_graph *g, const char *node, const char *part)
{
    mpt_graph_options o = tf();
    const mpt_graph   before = *g;
    static mpt_graph_type types[32];
    memcpy(types, g->types, g->type_count * sizeof *types);
    CHECK_EQ_I(mpt_graph_rewrite(g, &o, NULL), MPT_E_DATA);
    CHECK_EQ_S(g->fault.node ? g->fault.node : "", node);
    CHECK(g->fault.why && strstr(g->fault.why, part) != NULL);
    CHECK(before.node_count == g->node_count && before.input_count == g->input_count);
    CHECK(!memcmp(types, g->types, g->type_count * sizeof *types));
    CHECK_EQ_I(mpt_graph_check(g), MPT_E_DATA);
}

TEST(malformed)
{
    mpt_graph g;
    uint32_t  node;
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "nobody", NULL);
    refuse(&g, "m", "not connected");
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x", NULL);
    g.inputs[0].source = 77;
    refuse(&g, "m", "not there");
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x", NULL);
    g.types[0].format = 99;
    refuse(&g, "x", "unknown format");
    g.types[0].format = -3;
    refuse(&g, "x", "unknown format");
    g.types[0].format = (int32_t)MPT_F16;
    refuse(&g, "m", "another format");
    for (node = 0; node < 5; node++) {          /* the user may write these arrays: faults are found */
        begin(&g);
        add(&g, "x", "Placeholder", NULL, NULL);
        add(&g, "m", "MatMul", "x", NULL);
        CHECK_EQ_I(mpt_graph_connect(&g, 0, 0), MPT_E_ARG);
        CHECK_EQ_I(mpt_graph_connect(&g, 1, 0), MPT_E_ARG);
        g.inputs[0].source = MPT_GRAPH_NONE;
        CHECK_EQ_I(mpt_graph_connect(&g, 0, 2), MPT_E_ARG);
        CHECK_EQ_S(g.fault.why, "connect takes an unconnected input and an output");
        g.inputs[0].source = 0;
        g.outputs[0].elements = (UINT64_C(1) << 60) - g.outputs[1].elements;
        CHECK_EQ_I(mpt_graph_check(&g), MPT_OK);
        g.types[0].node += node == 0 ? 2u : 0u;
        g.types[1].group += node == 1 ? 1u : 0u;
        g.inputs[0].type += node == 2 ? 1u : 0u;
        g.outputs[0].elements += node == 3 ? 1u : 0u;
        g.outputs[1].type += node == 4 ? 1u : 0u;       /* nobody reads it */
        refuse(&g, "", node < 2 ? "a type has an index" : node < 3 ? "an input has an index"
                       : node < 4 ? "2^60" : "an output has an index");
    }
    begin(&g);
    add(&g, "merge", "Merge", "later", NULL);
    back(&g, "merge", "merge");
    refuse(&g, "merge", "reads its own");
    for (node = 0; node < 3; node++) {          /* the fault names a node of the cycle, none beside it */
        begin(&g);
        add(&g, "x", "Placeholder", NULL, NULL);
        add(&g, "tail2", "Relu", "later", NULL);
        add(&g, "tail", "Relu", "later", NULL);
        add(&g, "a", "Merge", "later", "later");
        add(&g, "b", "Add", "a", "x");
        add(&g, "n", "NextIteration", "b", NULL);
        back(&g, "a", "b");
        back(&g, "a", "n");
        back(&g, "tail", "b");
        back(&g, "tail2", "tail");
        while (g.node_count < 6 + node)
            add(&g, "y", "Placeholder", NULL, NULL);
        CHECK_EQ_I(mpt_graph_check(&g), MPT_E_DATA);
        CHECK(!strcmp(g.fault.node, "a") || !strcmp(g.fault.node, "b"));
        CHECK(strstr(g.fault.why, "cycle") != NULL);
    }
    begin(&g);                                  /* a NextIteration elsewhere permits no other cycle */
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "n", "NextIteration", "x", NULL);
    add(&g, "a", "Merge", "later", "n");
    add(&g, "b", "Relu", "a", NULL);
    back(&g, "a", "b");
    CHECK_EQ_I(mpt_graph_check(&g), MPT_E_DATA);
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "n", "NextIteration", "x", NULL);
    add(&g, "r", "Relu", "n", NULL);
    refuse(&g, "n", "Merge nodes only");
    begin(&g);
    CHECK_EQ_I(mpt_graph_node_add(&g, NULL, "MatMul", NULL, 0u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_node_add(&g, "x", NULL, NULL, 0u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_node_add(NULL, "x", "y", NULL, 0u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_node_add(&g, "x", "y", NULL, MPT_NODE_CAST, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_node_add(&g, "x", "y", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, 1, "T", 0, 0u, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_output_add(&g, 0, 1, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_input_add(&g, 0, 0, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_op(&g, "z", "y", &node, 1, 1, NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_op(&g, "z", "y", NULL, 1, 1, NULL), MPT_E_ARG);
    CHECK_EQ_U(g.node_count, 1);
    CHECK_EQ_I(mpt_graph_init(NULL, arena, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_init(&g, NULL, 1), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_check(NULL), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_rewrite(NULL, NULL, NULL), MPT_E_ARG);
    begin(&g);
    {
        mpt_graph_options o = tf();
        o.low = MPT_F32;
        CHECK_EQ_I(mpt_graph_rewrite(&g, &o, NULL), MPT_E_UNSUPPORTED);
        CHECK(!g.fault.node && strstr(g.fault.why, "low must be"));
        o = tf();
        o.lists = MPT_LISTS_COUNT;
        CHECK_EQ_I(mpt_graph_rewrite(&g, &o, NULL), MPT_E_ARG);
        CHECK(!g.fault.node && strstr(g.fault.why, "lists"));
    }
}

/* ---- random graphs ---- */

enum { MOST_NODES = 48, MOST_TYPES = 3 * MOST_NODES };

typedef struct random_op { const char *op; char cuda, bf16; } random_op;
static const random_op random_ops[] = {         /* a second copy of the lists, to check the table */
    {"MatMul", 'a', 'a'},   {"Conv2D", 'a', 'a'},   {"Add", 'i', 'i'},      {"Mul", 'i', 'i'},
    {"Tanh", 'i', 'i'},     {"Exp", 'd', 'd'},      {"Sum", 'd', 'i'},      {"Relu", 'c', 'c'},
    {"Identity", 'c', 'c'}, {"Reshape", 'c', 'c'},  {"Foo", '-', '-'},      {"Merge", 'c', 'c'},
    {"Enter", 'c', 'c'},    {"TensorListPushBack", 'c', 'c'}, {"TensorListPopBack", 'c', 'c'},
    {"NextIteration", 'c', 'c'}};

static char letter_of(const char *op, mpt_op_lists lists)
{
    size_t i;
    for (i = 0; i < sizeof random_ops / sizeof random_ops[0]; i++)
        if (!strcmp(op, random_ops[i].op))
            return lists == MPT_LISTS_TF_BF16 ? random_ops[i].bf16 : random_ops[i].cuda;
    return '-';
}

static size_t pick(size_t n) { return (size_t)(mt_random() % n); }

static uint32_t pick_output(const mpt_graph *g, int32_t format)
{
    size_t tries;
    for (tries = 0; tries < 64; tries++) {
        /* late nodes more often, so that chains grow */
        const size_t n = g->output_count, back_by = pick(2) ? pick(n) : pick(n < 4 ? n : 4);
        const uint32_t o = (uint32_t)(n - 1 - back_by);
        if (g->types[g->outputs[o].type].format == format)
            return o;
    }
    return 0;
}

static const char *name_at(size_t i)
{
    static char names[MOST_NODES][4];
    names[i][0] = 'n';
    names[i][1] = (char)('0' + i / 10);
    names[i][2] = (char)('0' + i % 10);
    return names[i];
}

/* Sources first, then ops. A merge gets an open input, to which a NextIteration is connected later. */
static void random_graph(mpt_graph *g, size_t nodes, int lists, int loops)
{
    uint32_t node, t, h, u, in[3], open[MOST_NODES], list = MPT_GRAPH_NONE;
    size_t   i, k, merges = 0;
    begin(g);
    for (i = 0; i < nodes; i++) {
        const char *name = name_at(i), *op = random_ops[pick(11)].op;
        uint32_t    flags = pick(12) == 0 ? MPT_NODE_FETCHED : 0u,
            fixed = pick(12) == 0 ? MPT_TYPE_FIXED : 0u;
        size_t      inputs = 1 + pick(2);
        if (i < 2 || pick(9) == 0)
            op = i == 0 || pick(2) ? "Placeholder" : pick(2) ? "VariableV2" : "Const", inputs = 0, flags = 0;
        if (lists && i > 2 && pick(4) == 0)
            op = list == MPT_GRAPH_NONE ? "EmptyTensorList"
                 : pick(2)              ? "TensorListPushBack"
                                        : "TensorListPopBack";
        if (loops && i > 2 && i + 2 < nodes && pick(8) == 0)
            op = "Merge", inputs = 1;
        if (loops && merges && (i + 1 == nodes || pick(6) == 0))
            op = "NextIteration", inputs = 1;
        if (loops && i > 2 && pick(10) == 0)
            op = "Enter", inputs = 1;
        (void)mpt_graph_node_add(g, name, op, pick(10) ? "gpu:0" : pick(2) ? NULL : "CPU", flags, &node);
        (void)mpt_graph_type_add(g, node, "T", (int32_t)MPT_F32, fixed, &t);
        if (strstr(op, "TensorList")) {
            (void)mpt_graph_type_add(g, node, "handle", MPT_TYPE_HANDLE, 0u, &h);
            if (op[0] == 'T')
                (void)mpt_graph_input_add(g, h, list, NULL);
            if (!strcmp(op, "TensorListPushBack"))
                (void)mpt_graph_input_add(g, t, pick_output(g, (int32_t)MPT_F32), NULL);
            (void)mpt_graph_output_add(g, h, 1, &list);
            if (!strcmp(op, "TensorListPopBack"))
                (void)mpt_graph_output_add(g, t, 1 + pick(9), NULL);
            if (op[0] == 'T' && pick(4) == 0)
                list = MPT_GRAPH_NONE;          /* the next list op starts another list */
            continue;
        }
        for (k = 0; k < inputs; k++) {
            in[k] = pick_output(g, (int32_t)MPT_F32);
            (void)mpt_graph_input_add(g, t, in[k], NULL);
        }
        if (!strcmp(op, "Merge"))
            (void)mpt_graph_input_add(g, t, MPT_GRAPH_NONE, &open[merges++]);
        (void)mpt_graph_output_add(g, t, 1 + pick(9), &u);
        if (!strcmp(op, "NextIteration")) {
            g->types[t].flags = 0u;
            do                                  /* often two merges on one NextIteration */
                (void)mpt_graph_connect(g, open[--merges], u);
            while (merges && pick(2));
            (void)mpt_graph_output_add(g, t, 1, NULL);
        } else if (inputs && pick(4) == 0) {    /* a second type, at times without a low kernel */
            (void)mpt_graph_type_add(g, node, "U", (int32_t)MPT_F32, pick(2) ? MPT_TYPE_FIXED : 0u, &h);
            (void)mpt_graph_input_add(g, h, pick_output(g, (int32_t)MPT_F32), NULL);
            (void)mpt_graph_output_add(g, h, 1 + pick(9), NULL);
        }
    }
    for (; merges > 0; merges--)                /* left open: these read what the merge's first input reads */
        (void)mpt_graph_connect(g, open[merges - 1], g->types[g->inputs[open[merges - 1]].type].first_input ==
                                open[merges - 1] ? 0 : g->inputs[g->types[g->inputs[open[merges - 1]].type]
                                .first_input].source);
}

/* Only merges may read a NextIteration, but pick_output may have given its output to another op. */
static int is_usable(mpt_graph *g) { return mpt_graph_check(g) == MPT_OK; }

/* ---- the painting, implemented literally: a matrix of edges, recursion, one pass after the other ---- */

typedef struct painter {
    const mpt_graph *g;
    unsigned char    edge[MOST_TYPES][MOST_TYPES];
    unsigned char    allow[MOST_TYPES], deny[MOST_TYPES], mark[MOST_TYPES], up[MOST_TYPES];
    char             letter[MOST_TYPES];
    unsigned char    process[MOST_TYPES], f32[MOST_TYPES], low_kernel[MOST_TYPES];
    uint32_t         n;
} painter;

static const char *op_of(const mpt_graph *g, uint32_t t) { return g->nodes[g->types[t].node].op; }

static int contains_gpu(const char *device) { return !device || strstr(device, "gpu") != NULL; }

static int reads_variable(const mpt_graph *g, uint32_t t)
{
    uint32_t s;
    if (strcmp(op_of(g, t), "Identity") && strcmp(op_of(g, t), "Enter"))
        return 0;
    t = g->nodes[g->types[t].node].first_type;
    s = g->outputs[g->inputs[g->types[t].first_input].source].type;
    if (!strcmp(op_of(g, t), "Identity"))
        return !strcmp(op_of(g, s), "VariableV2");
    return reads_variable(g, s);
}

static uint32_t type_at(const mpt_graph *g, uint32_t node, int32_t format)
{
    uint32_t t;
    for (t = g->nodes[node].first_type; t != MPT_GRAPH_NONE; t = g->types[t].next)
        if (g->types[t].format == format)
            return t;
    return MPT_GRAPH_NONE;
}

/* The cluster of a list: all handles that are connected with each other. */
static void cluster(const painter *p, uint32_t t, unsigned char *in)
{
    uint32_t u;
    if (in[t])
        return;
    in[t] = 1;
    for (u = 0; u < p->n; u++)
        if (p->g->types[u].format == MPT_TYPE_HANDLE && (p->edge[t][u] || p->edge[u][t]))
            cluster(p, u, in);
}

static void writers(painter *p, uint32_t t, uint32_t reader, unsigned char *seen)
{
    uint32_t u;
    if (seen[t] || !p->process[t])
        return;
    seen[t] = 1;
    if (!strcmp(op_of(p->g, t), "TensorListPushBack"))
        p->edge[type_at(p->g, p->g->types[t].node, (int32_t)MPT_F32)][reader] = 2;
    for (u = 0; u < p->n; u++)
        if (p->edge[u][t] == 1)
            writers(p, u, reader, seen);
}

static void match(painter *p, const unsigned char *in)
{
    uint32_t t, f;
    int      deny = 0, allow = 0;
    for (t = 0; t < p->n; t++)
        if (in[t] && (f = type_at(p->g, p->g->types[t].node, (int32_t)MPT_F32)) != MPT_GRAPH_NONE) {
            deny |= p->deny[f];
            allow |= p->allow[f];
        }
    for (t = 0; t < p->n && (deny || allow); t++)
        if (in[t] && (f = type_at(p->g, p->g->types[t].node, (int32_t)MPT_F32)) != MPT_GRAPH_NONE) {
            p->allow[f] = (unsigned char)!deny;
            p->deny[f] = (unsigned char)(p->deny[f] | deny);
        }
}

static int may_be_low(const painter *p, uint32_t t)
{
    return p->process[t] && p->f32[t] && p->low_kernel[t] && !p->deny[t];
}

static void ref_up(painter *p, uint32_t t)
{
    uint32_t u;
    for (u = 0; u < p->n; u++)
        if (p->edge[u][t] && !p->up[u] && p->letter[u] == 'c')
            p->up[u] = 1, ref_up(p, u);
}

static void ref_deny(painter *p, uint32_t t)
{
    uint32_t u;
    p->deny[t] = 1;
    for (u = 0; u < p->n; u++)
        if (p->edge[t][u] && !p->deny[u] && p->up[u])
            ref_deny(p, u);
}

static void ref_down(painter *p, uint32_t t)
{
    uint32_t u;
    p->mark[t] = 1;
    for (u = 0; u < p->n; u++)
        if (p->edge[t][u] && !p->mark[u] && may_be_low(p, u) && (p->letter[u] == 'c' || p->letter[u] == 'i'))
            ref_down(p, u);
}

static void ref_back(painter *p, uint32_t t)
{
    uint32_t u;
    p->up[t] = p->allow[t] = 1;
    for (u = 0; u < p->n; u++)
        if (p->edge[u][t] && p->mark[u] && !p->up[u])
            ref_back(p, u);
}

static void ref_clear(painter *p, uint32_t t)
{
    uint32_t u;
    for (u = 0; u < p->n; u++)
        if ((p->edge[u][t] || p->edge[t][u]) && !p->allow[u] && may_be_low(p, u) && p->letter[u] == 'c' &&
            !reads_variable(p->g, u))
            p->allow[u] = 1, ref_clear(p, u);
}

/* Returns 0 if there is no allow op. */
static int ref_paint(painter *p, const mpt_graph *g, const mpt_graph_options *o)
{
    static unsigned char in[MOST_NODES][MOST_TYPES], seen[MOST_TYPES];
    uint32_t             t, u, i, clusters = 0;
    int                  any = 0, again = 1;
    memset(p, 0, sizeof *p);
    memset(in, 0, sizeof in);
    p->g = g;
    p->n = g->type_count;
    for (t = 0; t < p->n; t++) {
        const mpt_graph_node *n = &g->nodes[g->types[t].node];
        p->letter[t] = letter_of(n->op, o->lists);
        p->process[t] = !(n->flags & MPT_NODE_FETCHED) && contains_gpu(n->device);
        p->f32[t] = g->types[t].format == (int32_t)MPT_F32;
        p->low_kernel[t] = !(g->types[t].flags & MPT_TYPE_FIXED);
    }
    for (i = 0; i < g->input_count; i++)
        p->edge[g->outputs[g->inputs[i].source].type][g->inputs[i].type] = 1;
    for (t = 0; t < p->n; t++) {
        int known = 0;
        for (i = 0; i < clusters; i++)
            known |= in[i][t];
        if (g->types[t].format != MPT_TYPE_HANDLE || known || !p->process[t])
            continue;
        cluster(p, t, in[clusters]);
        for (u = 0; u < p->n; u++)
            if (in[clusters][u] && !p->process[u])
                p->deny[type_at(g, g->types[t].node, (int32_t)MPT_F32)] = 1;
        for (u = 0; u < p->n; u++)
            if (in[clusters][u] && !strcmp(op_of(g, u), "TensorListPopBack")) {
                memset(seen, 0, sizeof seen);
                writers(p, u, type_at(g, g->types[u].node, (int32_t)MPT_F32), seen);
            }
        clusters++;
    }
    for (t = 0; t < p->n; t++)
        if (p->letter[t] == 'a' && p->process[t])
            p->allow[t] = 1, any = 1;
    if (!any)
        return 0;
    for (t = 0; t < p->n; t++)
        if (p->letter[t] == 'd' || p->letter[t] == 'i')
            p->up[t] = 1, ref_up(p, t);
    for (t = 0; t < p->n; t++)
        if (p->letter[t] == 'd' && !p->deny[t])
            ref_deny(p, t);
    for (i = 0; i < clusters; i++)
        match(p, in[i]);
    for (t = 0; t < p->n; t++)
        if (p->letter[t] == 'a' && p->process[t])
            ref_down(p, t);
    memset(p->up, 0, sizeof p->up);
    for (t = 0; t < p->n; t++)
        if (p->letter[t] == 'a' && p->process[t] && !p->up[t])
            ref_back(p, t);
    for (t = 0; t < p->n && !(o->mode == MPT_GRAPH_TENSORFLOW_2_19 && o->lists == MPT_LISTS_TF_CUDA); t++) {
        int low = 0, bad = 0;
        for (u = 0; u < p->n; u++)
            if (p->edge[u][t])
                low |= p->allow[u], bad |= p->deny[u];
        if (low && !bad && p->letter[t] == 'i' && may_be_low(p, t))
            p->allow[t] = 1;
    }
    for (t = 0; t < p->n; t++)
        if (p->allow[t] && p->process[t])
            ref_clear(p, t);
    for (t = 0; t < p->n; t++)
        if (p->letter[t] == 'a' && !p->low_kernel[t])
            p->allow[t] = 0;
    for (i = 0; i < clusters; i++)
        match(p, in[i]);
    while (again)                               /* NextIteration and its merges */
        for (again = 0, t = 0; t < p->n; t++) {
            int fp32 = !p->process[t] || !p->low_kernel[t], merges = 0;
            if (strcmp(op_of(g, t), "NextIteration"))
                continue;
            for (u = 0; u < p->n; u++)
                if (p->edge[t][u] == 1)
                    merges++, fp32 |= !p->allow[u];
            for (u = 0; merges && u < p->n; u++)
                if ((p->edge[t][u] == 1 || u == t) && p->allow[u] == (unsigned char)fp32)
                    p->allow[u] = (unsigned char)!fp32, again = 1;
        }
    return 1;
}

/* The number of elements that the casts of a colouring read, and the number of casts. */
static uint64_t cast_elements(const mpt_graph *g, const unsigned char *low, const unsigned char *f32,
                              uint64_t *casts)
{
    uint64_t sum = 0;
    uint32_t o, in;
    for (*casts = 0, o = 0; o < g->output_count; o++) {
        int needed = 0;
        if (!f32[g->outputs[o].type])
            continue;
        for (in = g->outputs[o].first_use; in != MPT_GRAPH_NONE; in = g->inputs[in].next_use)
            needed |= low[g->inputs[in].type] != low[g->outputs[o].type];
        *casts += (unsigned)needed;
        sum += needed ? g->outputs[o].elements : 0;
    }
    return sum;
}

/* Both ends of every edge have the same format, every port is on one chain, every index is in range. */
static void well_typed(mpt_graph *g)
{
    uint32_t i, in, o, t, uses = 0, ports = 0, wrong = 0;
    for (i = 0; i < g->input_count; i++)
        wrong += g->types[g->outputs[g->inputs[i].source].type].format != g->types[g->inputs[i].type].format;
    for (o = 0; o < g->output_count; o++)
        for (in = g->outputs[o].first_use; in != MPT_GRAPH_NONE; in = g->inputs[in].next_use, uses++)
            wrong += g->inputs[in].source != o;
    for (i = 0; i < g->node_count; i++)         /* a cast writes as many elements as it reads */
        if (g->nodes[i].flags & MPT_NODE_CAST) {
            in = g->types[g->nodes[i].first_type].first_input;
            o = g->types[g->nodes[i].last_type].first_output;
            wrong += g->outputs[o].elements != g->outputs[g->inputs[in].source].elements;
        }
    for (t = 0; t < g->type_count; t++)
        for (in = g->types[t].first_input; in != MPT_GRAPH_NONE; in = g->inputs[in].next, ports++)
            wrong += g->inputs[in].type != t;
    CHECK_EQ_U(wrong, 0);
    CHECK_EQ_U(uses, g->input_count);
    CHECK_EQ_U(ports, g->input_count);
    CHECK_EQ_I(mpt_graph_check(g), MPT_OK);
}

static uint64_t hash_graph(const mpt_graph *g)
{
    uint64_t h = g->node_count;
    uint32_t i;
    for (i = 0; i < g->type_count; i++)
        h = h * 31u + (uint64_t)(g->types[i].format + 5);
    for (i = 0; i < g->input_count; i++)
        h = h * 31u + g->inputs[i].source;
    return h;
}

static mpt_graph_options random_options(void)
{
    mpt_graph_options o = tf();
    o.lists = pick(2) ? MPT_LISTS_TF_CUDA : MPT_LISTS_TF_BF16;
    o.low = pick(2) ? MPT_F16 : MPT_BF16;
    o.mode = pick(3) ? MPT_GRAPH_TENSORFLOW : MPT_GRAPH_TENSORFLOW_2_19;
    o.device = "GPU";
    return o;
}

TEST(random_painting)
{
    static painter    p;
    mpt_graph         g;
    mpt_graph_options o;
    mpt_graph_summary s;
    uint32_t          t, types, wrong, made = 0, converted = 0;
    uint64_t          before, casts;
    size_t            nodes;
    const uint32_t    graphs = mt.long_mode ? 100000 : 10000 / mt.every;
    long              round;
    for (round = 0; made < graphs; round++) {
        nodes = 3 + pick(MOST_NODES - 4);
        random_graph(&g, nodes, (int)(round & 1), (int)(round & 2));
        if (!is_usable(&g))
            continue;
        made++;
        o = random_options();
        if (!ref_paint(&p, &g, &o))
            memset(p.allow, 0, sizeof p.allow);
        types = g.type_count;
        cast_elements(&g, p.allow, p.f32, &casts);
        before = g.node_count;
        s = rewrite(&g, &o);
        CHECK_EQ_U(s.casts, casts);
        CHECK_EQ_U(s.nodes, before);
        CHECK_EQ_I(s.low, o.low);
        for (t = 0; t < types; t++) {           /* the counters, type by type */
            const int list = p.letter[t];
            s.processable -= p.process[t];
            s.recognized -= p.process[t] && list != '-';
            s.converted -= p.f32[t] && p.allow[t];
            s.allow_converted -= p.f32[t] && p.allow[t] && list == 'a';
        }
        CHECK_EQ_U(s.processable | s.recognized | s.converted | s.allow_converted, 0);
        for (wrong = 0, t = 0; t < types; t++)
            if (p.f32[t]) {
                wrong += mpt_graph_is_low(&g, t) != (p.allow[t] ? 1 : 0);
                wrong += g.types[t].why == MPT_WHY_NONE;
                converted += p.allow[t];
            }
        CHECK_EQ_U(wrong, 0);
        well_typed(&g);
        before = hash_graph(&g);                /* a second rewrite changes nothing */
        s = rewrite(&g, &o);
        CHECK_EQ_U(hash_graph(&g), before);
        CHECK_EQ_U(s.converted + s.casts, 0);
        if (mt.failures)
            return;
    }
    CHECK(converted > made);
}

/* ---- min_cut against every colouring ---- */

static int same_loop(const painter *p, uint32_t t, uint32_t u)
{
    return !strcmp(op_of(p->g, t), "NextIteration") && p->edge[t][u] == 1;
}

TEST(random_min_cut)
{
    static painter    p;
    mpt_graph         g;
    mpt_graph_options o;
    mpt_graph_summary s;
    unsigned char     low[MOST_TYPES];
    uint32_t          t, u, free_types[MOST_TYPES], k;
    uint64_t          most_casts, painted, least, cost, before, fewer = 0, made = 0;
    unsigned long     choice;
    size_t            nodes;
    long              round, rounds = mt.long_mode ? 60000 : mt.every > 1u ? 1500 : 6000;
    for (round = 0; round < rounds; round++) {
        nodes = 3 + pick(16);
        random_graph(&g, nodes, 0, round % 3 == 0);
        if (!is_usable(&g))
            continue;
        o = random_options();
        if (!ref_paint(&p, &g, &o))
            continue;
        painted = cast_elements(&g, p.allow, p.f32, &most_casts);
        for (k = 0, t = 0; t < p.n; t++)
            if (p.f32[t] && ((p.allow[t] && p.letter[t] != 'a') ||
                             (!p.allow[t] && may_be_low(&p, t) && (p.letter[t] == 'i' ||
                                                                   p.letter[t] == 'c') &&
                              !reads_variable(&g, t))))
                free_types[k++] = t;
        if (k > 11)
            continue;
        made++;
        for (least = ~(uint64_t)0, choice = 0; choice < 1ul << k; choice++) {
            int legal = 1;
            memcpy(low, p.allow, sizeof low);
            for (t = 0; t < k; t++)
                low[free_types[t]] = (unsigned char)((choice >> t) & 1u);
            for (t = 0; t < p.n; t++)
                for (u = 0; u < p.n; u++)
                    legal &= !(same_loop(&p, t, u) && low[t] != low[u]);
            cost = legal ? cast_elements(&g, low, p.f32, &most_casts) : least;
            least = cost < least ? cost : least;
        }
        CHECK(least <= painted);
        fewer += least < painted;
        o.mode = MPT_GRAPH_MIN_CUT;
        s = rewrite(&g, &o);
        CHECK_EQ_U(s.cast_bytes, 6 * least);
        for (t = 0; t < p.n; t++)               /* allow ops keep their painted colour */
            if (p.f32[t] && p.letter[t] == 'a')
                CHECK_EQ_I(mpt_graph_is_low(&g, t), p.allow[t]);
        well_typed(&g);
        before = hash_graph(&g);
        (void)rewrite(&g, &o);
        CHECK_EQ_U(hash_graph(&g), before);
        if (mt.failures)
            return;
    }
    CHECK(made > (uint64_t)rounds / 8);
    CHECK(fewer > made / 50);
}

/* A loop: its first node is the NextIteration, and the cheapest cut would be between that and the merge. */
TEST(min_cut_of_a_loop)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    add(&g, "next", "NextIteration", "later", NULL);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "merge", "Merge", "x", "next");
    add(&g, "m", "MatMul", "merge", NULL);
    back(&g, "next", "m");
    add(&g, "e", "Exp", "merge", NULL);
    g.outputs[out_of(&g, "next")].elements = 1;
    o.mode = MPT_GRAPH_MIN_CUT;
    (void)rewrite(&g, &o);
    CHECK_EQ_I(mpt_graph_is_low(&g, type_of(&g, "next")), mpt_graph_is_low(&g, type_of(&g, "merge")));
}

/* Larger graphs, also with TensorLists: min_cut never moves more bytes than the painting. */
TEST(random_min_cut_never_more)
{
    mpt_graph         g;
    mpt_graph_options o;
    uint64_t          seed, painted, cut;
    long              round, rounds = mt.long_mode ? 20000 : 2000, fewer = 0;
    size_t            n;
    for (round = 0; round < rounds; round++) {
        seed = mt.random_state;
        o = tf();
        o.lists = round & 1 ? MPT_LISTS_TF_CUDA : MPT_LISTS_TF_BF16;
        n = 20 + (size_t)(round % 28);
        random_graph(&g, n, 1, 1);
        if (!is_usable(&g))
            continue;
        painted = rewrite(&g, &o).cast_bytes;
        mt.random_state = seed;
        random_graph(&g, n, 1, 1);
        o.mode = MPT_GRAPH_MIN_CUT;
        cut = rewrite(&g, &o).cast_bytes;
        CHECK(cut <= painted);
        fewer += cut < painted;
        well_typed(&g);
        if (mt.failures)
            return;
    }
    CHECK(fewer > 0);
}

/* ---- executed before and after the rewrite ---- */

enum { WIDE = 3 };
typedef struct value { double x[WIDE], error; int32_t format; int ready; } value;

typedef struct machine {
    const mpt_graph *g;
    value            out[4 * MOST_TYPES];       /* of each output */
    value            state[4 * MOST_TYPES];     /* of each NextIteration, from the last step */
    int              step;
} machine;

static double round_to(int32_t format, double x)
{
    if (format == (int32_t)MPT_F16)
        return mpt_f64_from_f16(mpt_f16_from_f64(x));
    return format == (int32_t)MPT_BF16 ? mpt_f64_from_bf16(mpt_bf16_from_f64(x)) : x;
}

/* One op on values in [-1, 1], in double arithmetic, with one rounding to the format at the end. The error
 * bound is the sum of the bounds of the inputs and the bound of this rounding. */
static value compute(const char *op, const value *in, size_t count, int32_t format)
{
    const double u = format == (int32_t)MPT_F16 ? 1.0 / 2048 : format == (int32_t)MPT_BF16 ? 1.0 / 256 : 0.0;
    value        v;
    size_t       i, k;
    memset(&v, 0, sizeof v);
    v.format = format;
    v.ready = 1;
    for (k = 0; k < count; k++)
        v.error += in[k].error;
    for (i = 0; i < WIDE; i++) {
        double sum = 0.0, product = 1.0;
        for (k = 0; k < count; k++) {
            sum += in[k].x[(i + (!strcmp(op, "MatMul") ? k : 0)) % WIDE] / (double)count;
            product *= in[k].x[i];
        }
        v.x[i] = !strcmp(op, "Mul") ? product : !strcmp(op, "Tanh") ? tanh(sum) :
                 !strcmp(op, "Exp") ? exp(sum - 1.0) : !strcmp(op, "Relu") ? (sum > 0.0 ? sum : 0.0) : sum;
        v.x[i] = round_to(format, v.x[i]);
    }
    v.error += u == 0.0 ? 0.0 : u + 1e-7;
    return v;
}

/* Of cuts that move equally many bytes, infer ops stay FP32 and clear ops have the format of their inputs. */
TEST(min_cut_of_equals)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x", NULL);
    add(&g, "clear", "Relu", "m", NULL);
    add(&g, "e", "Exp", "clear", NULL);
    add(&g, "m2", "MatMul", "x", NULL);
    add(&g, "infer", "Tanh", "m2", NULL);
    add(&g, "e2", "Exp", "infer", NULL);
    o.mode = MPT_GRAPH_MIN_CUT;
    (void)rewrite(&g, &o);
    CHECK(mpt_graph_is_low(&g, type_of(&g, "clear")));
    CHECK(!mpt_graph_is_low(&g, type_of(&g, "infer")));
}

/* The value that an input reads: of a NextIteration, that of the step before; otherwise, the current one. */
static const value *reads(const machine *m, uint32_t in)
{
    const mpt_graph *g = m->g;
    const uint32_t   o = g->inputs[in].source;
    if (!strcmp(op_of(g, g->outputs[o].type), "NextIteration"))
        return &m->state[o];
    return &m->out[o];
}

static int run_node(machine *m, uint32_t node, uint32_t sources)
{
    const mpt_graph *g = m->g;
    uint32_t         t, in, o;
    for (t = g->nodes[node].first_type; t != MPT_GRAPH_NONE; t = g->types[t].next) {
        const int merge = !strcmp(g->nodes[node].op, "Merge"),
            cast = (g->nodes[node].flags & MPT_NODE_CAST) != 0;
        value     args[4], v;
        size_t    count = 0;
        for (in = g->types[cast ? g->nodes[node].first_type : t].first_input; in != MPT_GRAPH_NONE;
             in = g->inputs[in].next) {
            const int   looped = !strcmp(op_of(g, g->outputs[g->inputs[in].source].type), "NextIteration");
            const value *from = reads(m, in);
            if (merge && looped != (m->step > 0) && (looped || g->types[t].last_input != in))
                continue;
            if (merge && count)
                continue;
            if (!from->ready)
                return 0;
            CHECK_EQ_I(from->format, g->types[g->inputs[in].type].format);   /* the right format */
            args[count++] = *from;
        }
        v = compute(g->nodes[node].op, args, count, g->types[t].format);
        if (!count) {                           /* a source: values derived from its number */
            for (in = 0; in < WIDE; in++)
                v.x[in] = round_to(g->types[t].format, (double)((node * 7 +
                                                                 in * 5 + sources) % 19) / 19.0 * 2.0 - 1.0);
            v.error = 0.0;
        }
        for (o = g->types[t].first_output; o != MPT_GRAPH_NONE; o = g->outputs[o].next) {
            m->out[o] = v;
        }
    }
    return 1;
}

static void run_graph(machine *m, const mpt_graph *g, uint32_t sources)
{
    static unsigned char done[4 * MOST_TYPES];
    uint32_t             i, o;
    int                  progress;
    memset(m, 0, sizeof *m);
    m->g = g;
    for (m->step = 0; m->step < 3; m->step++) {
        memset(done, 0, sizeof done);
        for (o = 0; o < g->output_count; o++)
            m->out[o].ready = 0;
        for (progress = 1; progress;)
            for (progress = 0, i = 0; i < g->node_count; i++)
                if (!done[i] && run_node(m, i, sources))
                    done[i] = 1, progress = 1;
        for (o = 0; o < g->output_count; o++)
            m->state[o] = m->out[o];
    }
}

TEST(executed)
{
    static machine    before, after;
    mpt_graph         g;
    mpt_graph_options o;
    uint32_t          out, outputs, i, wrong = 0, ran = 0, differ = 0;
    size_t            nodes;
    long              round, rounds = mt.long_mode ? 20000 : 3000;
    for (round = 0; round < rounds; round++) {
        nodes = 4 + pick(MOST_NODES / 2);
        random_graph(&g, nodes, 0, (int)(round & 1));
        if (!is_usable(&g))
            continue;
        o = random_options();
        o.mode = pick(2) ? MPT_GRAPH_MIN_CUT : MPT_GRAPH_TENSORFLOW;
        outputs = g.output_count;
        run_graph(&before, &g, (uint32_t)round);
        (void)rewrite(&g, &o);
        run_graph(&after, &g, (uint32_t)round);
        for (out = 0; out < outputs; out++) {
            if (!before.out[out].ready)
                continue;
            ran++;
            wrong += !after.out[out].ready;
            for (i = 0; i < WIDE; i++) {
                const double d = fabs(after.out[out].x[i] - before.out[out].x[i]);
                wrong += !(d <= after.out[out].error + 1e-12);
                differ += d > 0.0;
            }
        }
        CHECK_EQ_U(wrong, 0);
        if (mt.failures)
            return;
    }
    CHECK(ran > 1000 && differ > ran / 20);
}

/* ---- long paths ---- */

static uint32_t path_walk(const mpt_graph *g, uint32_t t, int onward)
{
    const uint32_t why = g->types[t].why;
    uint32_t       next;
    while (g->types[t].why == why && (next = onward ? g->types[t].to : g->types[t].via) != MPT_GRAPH_NONE)
        t = next;
    return t;
}

/* exp -> add -> ... -> add: each add carries the result of the exp. Or matmul -> add -> ... -> matmul. */
static void long_chain(mpt_graph *g, uint32_t n, int between)
{
    static char names[16][4];
    uint32_t    i, x;
    CHECK_EQ_I(mpt_graph_op(g, "x", "placeholder", NULL, 0, 8, &x), MPT_OK);
    CHECK_EQ_I(mpt_graph_op(g, "first", between ? "matmul" : "exp", &x, 1, 8, &x), MPT_OK);
    for (i = 0; i < n; i++) {
        (void)snprintf(names[i % 16], sizeof names[0], "a%u", (unsigned)(i % 16));
        CHECK_EQ_I(mpt_graph_op(g, names[i % 16], "add", &x, 1, 8, &x), MPT_OK);
    }
    CHECK_EQ_I(mpt_graph_op(g, "last", "matmul", &x, 1, 8, &x), MPT_OK);
}

static void explained(const mpt_graph *g, uint32_t type, const char *want)
{
    char text[256];
    CHECK_EQ_U(mpt_graph_explain(g, type, text, sizeof text), strlen(want));
    CHECK_EQ_S(text, want);
}

static double explain_all(const mpt_graph *g, uint32_t types, uint32_t times)
{
    char          text[512];
    const clock_t start = clock();
    uint32_t      i, k;
    size_t        length = 0;
    for (k = 0; k < times; k++)
        for (i = 0; i < types; i++)
            length += mpt_graph_explain(g, i, text, sizeof text);
    CHECK(length > types);
    return (double)(clock() - start) / (double)CLOCKS_PER_SEC;
}

TEST(long_paths)
{
    mpt_graph g;
    uint32_t  i, wrong = 0;
    double    near, far;
    begin(&g);
    long_chain(&g, 13, 0);
    (void)rewrite(&g, NULL);
    explained(&g, 8, "a6 (add): FP32, because it carries what a deny op made: "
                     "first -> a0 -> a1 -> a2 -> a3 -> a4 -> a5 -> a6");
    explained(&g, 9, "a7 (add): FP32, because it carries what a deny op made: "
                     "first -> ... -> a1 -> a2 -> a3 -> a4 -> a5 -> a6 -> a7");
    begin(&g);
    long_chain(&g, 9, 1);
    (void)rewrite(&g, NULL);
    explained(&g, 4, "a2 (add): low, because it lies between allow ops: "
                     "first -> a0 -> a1 -> a2 -> a3 -> a4 -> a5 -> a6 -> a7 -> a8 -> last");
    explained(&g, 3, "a1 (add): low, because it lies between allow ops: "
                     "first -> a0 -> a1 -> a2 -> a3 -> a4 -> a5 -> a6 -> a7 -> ... -> last");
    explained(&g, 10, "a8 (add): low, because it lies between allow ops: "
                      "first -> ... -> a2 -> a3 -> a4 -> a5 -> a6 -> a7 -> a8 -> last");
    for (i = 0; i < g.type_count; i++)
        wrong += g.types[i].via_end != path_walk(&g, i, 0) || g.types[i].to_end != path_walk(&g, i, 1);
    CHECK_EQ_U(wrong, 0);
    /* explanations of long paths take about as long as equally many of short ones, not 100 times as long */
    begin(&g);
    long_chain(&g, 60, 0);
    (void)rewrite(&g, NULL);
    near = explain_all(&g, 60, 400);
    CHECK_EQ_I(mpt_graph_init(&g, NULL, 0), MPT_OK);
    long_chain(&g, 24000, 0);
    (void)rewrite(&g, NULL);
    far = explain_all(&g, 24000, 1);
    CHECK(far < 10.0 * near + 0.05);
    mpt_graph_free(&g);
}

/* ---- memory and size ---- */

static void chain(mpt_graph *g, uint32_t n, int all_cast)
{
    static const char long_name[] = "0123456789abcdef0123456789abcdef0123456789abcdef"
                                    "0123456789abcdef0123456789abcdef0123456789abcde";
    uint32_t in[2], i, x, w;
    CHECK_EQ_I(mpt_graph_op(g, "x", "placeholder", NULL, 0, 64, &x), MPT_OK);
    CHECK_EQ_I(mpt_graph_op(g, "w", "variable", NULL, 0, 64, &w), MPT_OK);
    for (i = 0; i < n; i++) {
        in[0] = x;
        in[1] = w;
        if (all_cast ? mpt_graph_op(g, long_name, i % 2 ? "exp" : "matmul", in, 2, 64, &x)
                     : mpt_graph_op(g, "node", i % 50 == 0 ? "matmul" : i % 7 ? "relu" : "add", in,
                                    i % 7 ? 1 : 2, 64 + i % 9, &x))
            break;
    }
    CHECK_EQ_U(g->node_count, n + 2);
}

TEST(memory)
{
    const uint32_t    n = 30000;
    static mpt_graph  none;
    mpt_graph         g, h;
    mpt_graph_options o = mpt_graph_defaults();
    mpt_graph_summary s, s2;
    size_t            bytes = mpt_graph_bytes(n + 2, 2 * n), cap;
    unsigned char    *room = (unsigned char *)malloc(bytes + 1);
    int               mode, ended[2] = {0, 0};  /* in MPT_E_MEMORY, in MPT_OK */
    CHECK(bytes > 0 && room != NULL);
    CHECK_EQ_U(mpt_graph_bytes((size_t)-1 / 8, 0), 0);
    for (mode = 0; mode < 3 && room; mode++) {      /* the last: casts everywhere, with the longest names */
        o.mode = mode ? MPT_GRAPH_MIN_CUT : MPT_GRAPH_TENSORFLOW;
        CHECK_EQ_I(mpt_graph_init(&g, room + 1, bytes), MPT_OK);     /* any alignment */
        CHECK_EQ_U((uintptr_t)g.arena % 16, 0);
        CHECK_EQ_I(mpt_graph_reserve(&g, n + 2, 2 * n), MPT_OK);
        chain(&g, n, mode == 2);
        s = rewrite(&g, &o);
        CHECK(s.converted >= n / 2);
        CHECK_EQ_I(mpt_graph_init(&h, NULL, 0), MPT_OK);            /* from MPT_MALLOC */
        chain(&h, n, mode == 2);
        s2 = rewrite(&h, &o);
        CHECK(!memcmp(&s, &s2, sizeof s));
        well_typed(&h);
        mpt_graph_free(&h);
        CHECK(!memcmp(&h, &none, sizeof h));
    }
    /* when memory runs out at any point: an error, and the graph stays whole */
    for (cap = 0; cap < 300000; cap += cap < 12000 ? 501 : 2503) {
        uint32_t x = MPT_GRAPH_NONE, i;
        uint64_t before;
        mpt_status status = MPT_OK;
        CHECK_EQ_I(mpt_graph_init(&g, arena, cap), MPT_OK);
        status = mpt_graph_op(&g, "x", "placeholder", NULL, 0, 64, &x);
        for (i = 0; i < 40 && status == MPT_OK; i++)
            status = mpt_graph_op(&g, "n", i % 3 ? "matmul" : "exp", &x, 1, 64, &x);
        CHECK(status == MPT_OK || status == MPT_E_MEMORY);
        before = hash_graph(&g);
        status = mpt_graph_rewrite(&g, &o, NULL);
        CHECK(status == MPT_OK || status == MPT_E_MEMORY);
        ended[status == MPT_OK]++;
        if (status != MPT_OK) {
            CHECK_EQ_U(hash_graph(&g), before);
            CHECK(g.fault.why != NULL);
        }
    }
    CHECK(ended[0] > 10 && ended[1] > 10);
    CHECK_EQ_I(mpt_graph_init(&g, arena, 60000), MPT_OK);
    CHECK_EQ_I(mpt_graph_node_add(&g, "x", "placeholder", NULL, 0u, NULL), MPT_OK);
    cap = g.low;                        /* the failed call takes no memory */
    CHECK_EQ_I(mpt_graph_reserve(&g, n, 0), MPT_E_MEMORY);
    CHECK_EQ_U(g.low, cap);
    free(room);
    mpt_graph_free(NULL);
}

/* The reasons that make a type low, one by one: the header relies on their order in the enumeration. */
TEST(reasons_to_be_low)
{
    static const mpt_graph_why low[] = {MPT_WHY_ALLOW, MPT_WHY_BETWEEN, MPT_WHY_FOLLOWS, MPT_WHY_CLEAR,
                                        MPT_WHY_GROUP_LOW, MPT_WHY_CAST_LOW, MPT_WHY_CUT_LOW, MPT_WHY_ADDED};
    mpt_graph g;
    uint32_t  why, i;
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    g.types[0].format = (int32_t)MPT_F16;
    for (why = 0; why <= (uint32_t)MPT_WHY_COUNT; why++) {
        int is_low = 0;
        for (i = 0; i < sizeof low / sizeof *low; i++)
            is_low |= why == (uint32_t)low[i];
        g.types[0].why = why;
        CHECK_EQ_I(mpt_graph_is_low(&g, 0), is_low);
    }
}

/* Every output has readers in two groups, which gives the flow network its maximum number of nodes. */
TEST(min_cut_of_many_readers)
{
    mpt_graph         g;
    mpt_graph_options o = mpt_graph_defaults();
    mpt_graph_summary s;
    uint32_t          out[2], next, i;
    o.mode = MPT_GRAPH_MIN_CUT;
    CHECK_EQ_I(mpt_graph_init(&g, NULL, 0), MPT_OK);            /* sanitizers see a write beyond an array */
    CHECK_EQ_I(mpt_graph_op(&g, "x", "placeholder", NULL, 0, 100, &out[0]), MPT_OK);
    CHECK_EQ_I(mpt_graph_op(&g, "m", "matmul", out, 1, 100, &out[1]), MPT_OK);
    for (i = 0; i < 100; i++, out[0] = out[1], out[1] = next)
        CHECK_EQ_I(mpt_graph_op(&g, "a", "add", out, 2, 100, &next), MPT_OK);
    CHECK_EQ_I(mpt_graph_op(&g, "m2", "matmul", out, 2, 100, &next), MPT_OK);
    s = rewrite(&g, &o);
    CHECK_EQ_U(s.converted, 102);
    well_typed(&g);
    mpt_graph_free(&g);
}

/* The counters match the graph, and both DOT and the listing mention every node. */
TEST(printing)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    mpt_graph_summary s;
    char              text[8192];
    size_t            got;
    FILE             *f = tmpfile();
    begin(&g);
    add(&g, "x\"y", "Placeholder", NULL, NULL);
    add(&g, "m", "MatMul", "x\"y", NULL);
    add(&g, "e", "Exp", "m", NULL);
    s = rewrite(&g, &o);
    if (!f)
        SKIP("no temporary file");
    CHECK_EQ_I(mpt_graph_dot(f, &g), MPT_OK);
    CHECK_EQ_I(mpt_graph_print(f, &g), MPT_OK);
    CHECK_EQ_I(mpt_graph_summary_print(f, &s), MPT_OK);
    rewind(f);
    got = fread(text, 1, sizeof text - 1, f);
    text[got] = 0;
    (void)fclose(f);
    CHECK(strstr(text, "[fillcolor=lightblue, label=\"x\\\"y\\nPlaceholder\"]") != NULL);
    CHECK(strstr(text, "[fillcolor=palegreen, label=\"m\\nMatMul\"]") != NULL);
    CHECK(strstr(text, "[fillcolor=orange, label=\"Cast to f16\"]") != NULL);
    CHECK(strstr(text, "[fillcolor=orange, label=\"Cast to f32\"]") != NULL);
    CHECK(strstr(text, "n3 -> n1;") != NULL && strstr(text, "n0 -> n3;") != NULL);
    CHECK(strstr(text, "\ne (Exp): FP32, because its op is on the deny list\n") != NULL);
    CHECK(strstr(text, "Converted 1/3 nodes to float16 precision using 1 cast(s) to float16 "
                       "(excluding Const and Variable casts)\n") != NULL);
    CHECK(strstr(text, "Total processable nodes: 3\nRecognized nodes available for conversion: 2\n"
                       "Total nodes converted: 1\n"
                       "Total FP16 Cast ops used (excluding Const and Variable casts): 1\n"
                       "Allowlisted nodes converted: 1\nDenylisted nodes blocking conversion: 1\n"
                       "Nodes blocked from conversion by denylisted nodes: 0\n"
                       "All casts: 2, moving 1200 bytes\n") != NULL);
    CHECK_EQ_I(mpt_graph_dot(NULL, &g), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_print(NULL, &g), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_summary_print(NULL, &s), MPT_E_ARG);
}

TEST(sizes_of_outputs)
{
    const uint64_t most = (uint64_t)1 << 40;
    mpt_graph      g;
    uint32_t       node, type, out;
    begin(&g);
    CHECK_EQ_I(mpt_graph_op(&g, "x", "MatMul", NULL, 0, most + 1u, NULL), MPT_E_ARG);
    CHECK_EQ_U(g.node_count, 0);
    CHECK_EQ_I(mpt_graph_node_add(&g, "x", "MatMul", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "T", (int32_t)MPT_F32, 0u, &type), MPT_OK);
    CHECK_EQ_I(mpt_graph_output_add(&g, type, most + 1u, &out), MPT_E_ARG);
    CHECK_EQ_I(mpt_graph_output_add(&g, type, 0, &out), MPT_OK);
    CHECK_EQ_U(g.outputs[out].elements, 1);
    CHECK_EQ_I(mpt_graph_output_add(&g, type, most, NULL), MPT_OK);
}

static uint32_t two_types(mpt_graph *g, const char *name, const char *op, uint32_t *type)
{
    uint32_t node = 0u, k;
    CHECK_EQ_I(mpt_graph_node_add(g, name, op, NULL, 0u, &node), MPT_OK);
    for (k = 0; k < 2u; k++) {
        CHECK_EQ_I(mpt_graph_type_add(g, node, k ? "B" : "A", (int32_t)MPT_F32, 0u, &type[k]), MPT_OK);
        CHECK_EQ_I(mpt_graph_output_add(g, type[k], 10u, NULL), MPT_OK);
    }
    return node;
}

TEST(rows_keep_the_kind_of_an_op)
{
    static const mpt_list_row rows[] = {{"Merge", MPT_LIST_CLEAR, MPT_LIST_ADD},
                                        {"NextIteration", MPT_LIST_NONE, MPT_LIST_REMOVE}};
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    o.rows = rows, o.row_count = 2;
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "m", "Merge", "x", "later");
    add(&g, "a", "MatMul", "m", NULL);
    add(&g, "n", "NextIteration", "a", NULL);
    back(&g, "m", "n");
    (void)rewrite(&g, &o);
    expect(&g, "m", 1, MPT_WHY_CLEAR);
    expect(&g, "n", 1, MPT_WHY_GROUP_LOW);                  /* on no list, but it must agree with the merge */
}

TEST(norms_gradient_and_enters)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    mpt_graph_summary s;
    begin(&g);
    add(&g, "v", "VariableV2", NULL, NULL);
    add(&g, "i", "Identity", "v", NULL);
    add(&g, "e", "Enter", "i", NULL);
    add(&g, "f", "Enter", "e", NULL);
    add(&g, "a", "MatMul", "f", NULL);
    add(&g, "n", "FusedBatchNormGrad", "v", NULL);
    s = rewrite(&g, &o);
    CHECK_EQ_S(g.nodes[node_named(&g, "n")].op, "FusedBatchNormGradV2");
    expect(&g, "f", 0, MPT_WHY_VARIABLE);
    CHECK_EQ_U(s.casts, 1);
    CHECK_EQ_U(s.low_casts, 0);                             /* a cast of a variable, behind Enters, too */
}

TEST(ranges_at_the_limit)
{
    static mpt_range  r;
    const float       inf = mpti_f32_make(0x7f800000u);
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    add(&g, "x", "Placeholder", NULL, NULL);
    add(&g, "a", "MatMul", "x", NULL);
    g.outputs[out_of(&g, "a")].range.flushed = o.most_flushed;
    add(&g, "p", "Placeholder", NULL, NULL);
    add(&g, "c", "Cast", "p", NULL);
    add(&g, "b", "MatMul", "c", NULL);
    (void)mpt_range_init(&r, MPT_F16);
    (void)mpt_range_add(&r, MPT_F32, &inf, 1);
    CHECK_EQ_I(mpt_graph_range(&g, out_of(&g, "p"), &r, MPT_F16, 0), MPT_OK);
    CHECK(g.outputs[out_of(&g, "p")].range.overflow);
    (void)rewrite(&g, &o);
    expect(&g, "a", 1, MPT_WHY_ALLOW);
    expect(&g, "c", 0, MPT_WHY_OVERFLOW);                   /* only low ops read it, but it reads Inf */
}

TEST(cuts)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    begin(&g);
    o.mode = MPT_GRAPH_MIN_CUT;
    add(&g, "c", "Cast", NULL, NULL);
    add(&g, "a", "MatMul", "c", NULL);
    add(&g, "d", "Exp", "c", NULL);
    add(&g, "i", "Relu", NULL, NULL);
    add(&g, "j", "Relu", "i", NULL);
    (void)rewrite(&g, &o);
    expect(&g, "c", 0, MPT_WHY_CUT_FP32);                   /* FP32 readers keep a cast FP32 */
    expect(&g, "j", 0, MPT_WHY_CUT_FP32);                   /* no allow op is near */
}

TEST(casts_names_and_words)
{
    mpt_graph         g;
    mpt_graph_options o = tf();
    uint32_t          t[2], node, cast, in, was = 0u;
    char              text[400];
    begin(&g);
    node = two_types(&g, "s", "Placeholder", t);
    g.nodes[node].device = "/device:GPU:1";
    add(&g, "a", "MatMul", "later", NULL);
    in = g.types[type_of(&g, "a")].first_input;
    CHECK_EQ_I(mpt_graph_connect(&g, in, g.types[t[1]].first_output), MPT_OK);
    add(&g, "r", "Relu", "a", NULL);
    add(&g, "b", "MatMul", "r", NULL);
    CHECK_EQ_I(mpt_graph_group(&g, type_of(&g, "r"), type_of(&g, "a")), MPT_OK);
    CHECK_EQ_I(mpt_graph_node_add(&g, "h", "MatMul", NULL, 0u, &node), MPT_OK);
    CHECK_EQ_I(mpt_graph_type_add(&g, node, "T", (int32_t)MPT_F16, 0u, &was), MPT_OK);
    (void)rewrite(&g, &o);
    cast = node_named(&g, "s-1-CastToFp16-AutoMixedPrecision");
    if (CHECK(cast != MPT_GRAPH_NONE))
        CHECK(g.nodes[cast].device && !strcmp(g.nodes[cast].device, "/device:GPU:1"));
    (void)mpt_graph_explain(&g, type_of(&g, "r"), text, sizeof text);
    CHECK_EQ_S(text, "r (Relu): low, because a type that it must match is low: a -> r");
    (void)mpt_graph_explain(&g, t[0], text, sizeof text);
    CHECK(!strncmp(text, "s/A (Placeholder): FP32, because ", 33));
    (void)mpt_graph_explain(&g, was, text, sizeof text);
    CHECK_EQ_S(text, "h (MatMul): as it was, because it is not FP32 to begin with");
}

TEST(printed_files)
{
    static char       text[8000];
    mpt_graph         g;
    mpt_graph_options o = tf();
    mpt_graph_summary s;
    uint32_t          t[2], out = 0u;
    size_t            n;
    FILE *const       f = tmpfile();
    if (!f)
        return;
    begin(&g);
    o.low = MPT_BF16;
    add(&g, "x\\y\033z", "Placeholder", NULL, NULL);
    (void)two_types(&g, "k", "MatMul", t);
    g.types[t[1]].flags = MPT_TYPE_FIXED;
    CHECK_EQ_I(mpt_graph_input_add(&g, t[0], out, NULL), MPT_OK);
    s = rewrite(&g, &o);
    CHECK_EQ_I(mpt_graph_dot(f, &g), MPT_OK);
    CHECK_EQ_I(mpt_graph_print(f, &g), MPT_OK);
    CHECK_EQ_I(mpt_graph_summary_print(f, &s), MPT_OK);
    rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    (void)fclose(f);
    CHECK(strstr(text, "label=\"x\\\\y z\\nPlaceholder\"") != NULL);
    CHECK(strstr(text, "[fillcolor=palegreen, label=\"k\\nMatMul\"]") != NULL);  /* one of its types is low */
    CHECK(!strstr(text, "AutoMixedPrecision"));             /* no line about a cast */
    CHECK(strstr(text, "nodes to bfloat16 precision") != NULL);
}

int main(int argc, char **argv)
{
    mt_begin(argc, argv);
    RUN(step_processable);
    RUN(step_casts_of_what_stays);
    RUN(step_casts_by_output);
    RUN(step_nothing_to_do);
    RUN(step_deny);
    RUN(step_between);
    RUN(step_follow);
    RUN(step_clear);
    RUN(step_kernels_and_types);
    RUN(step_loops);
    RUN(step_casts);
    RUN(casts_and_loops_that_are_kept);
    RUN(step_lists);
    RUN(step_groups);
    RUN(ranges);
    RUN(lists);
    RUN(lists_of_the_user);
    RUN(malformed);
    RUN(random_painting);
    RUN(random_min_cut);
    RUN(min_cut_of_a_loop);
    RUN(min_cut_of_equals);
    RUN(random_min_cut_never_more);
    RUN(executed);
    RUN(long_paths);
    RUN(memory);
    RUN(printing);
    RUN(min_cut_of_many_readers);
    RUN(reasons_to_be_low);
    RUN(sizes_of_outputs);
    RUN(rows_keep_the_kind_of_an_op);
    RUN(norms_gradient_and_enters);
    RUN(ranges_at_the_limit);
    RUN(cuts);
    RUN(casts_names_and_words);
    RUN(printed_files);
    return mt_end();
}
