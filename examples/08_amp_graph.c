/* 08_amp_graph.c -- automatic mixed precision for a graph: which ops run in FP16, where casts go, and why.
 *
 *     cc -O2 -I. examples/08_amp_graph.c -o 08_amp_graph -lm && ./08_amp_graph
 *     ./08_amp_graph --explain --dot build examples/data/lstm_cell.graph  # writes build/lstm_cell.*.dot
 *
 * Each graph, by default the three in examples/data, is rewritten twice: as TensorFlow's own pass does it
 * (mode tensorflow), and with the casts that move fewest bytes (mode min_cut). Options: --lists cuda, bf16 or
 * compact, the rules for ops (default cuda); --explain, the reason for every node's format; --dot DIR, a
 * drawing for Graphviz, and a PNG if `dot` is installed. File format: examples/amp_graph_reader.h. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"
#include "examples/amp_graph_reader.h"
#include "examples/program.h"

static const char *const shipped[] = {"examples/data/resnet_block.graph", "examples/data/lstm_cell.graph",
                                      "examples/data/transformer_layer.graph"};
static const char *const modes[] = {"tensorflow", "min_cut"};
static double            memory[1 << 18];
static char              text[1 << 20], names[1 << 20];
static int               explain;
static const char       *dot_dir;

static void read_graph(mpt_graph *g, const char *path)
{
    FILE       *f = fopen(path, "r");
    size_t      n;
    int         line;
    const char *why;
    char        where[512];
    if (!f)
        die(path, "cannot open it (run this from the top folder)");
    n = fread(text, 1, sizeof text - 1, f);
    if (ferror(f) | fclose(f) || n == sizeof text - 1)
        die(path, "cannot read it, or it is too long");
    text[n] = 0;
    if (mpt_graph_init(g, memory, sizeof memory) != MPT_OK)
        die(path, "no memory");
    why = amp_graph_read(g, names, sizeof names, text, &line);
    if (why) {
        (void)snprintf(where, sizeof where, "%s:%d", path, line);
        die(where, why);
    }
}

/* Write DIR/NAME.MODE.dot, and a PNG beside it if the program `dot` is there. */
static void draw(const mpt_graph *g, const char *path, const char *mode)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *point = strrchr(base, '.');
    const int   length = (int)(point ? (size_t)(point - base) : strlen(base));
    char        name[512], command[1200];
    FILE       *f;
    (void)snprintf(name, sizeof name, "%s/%.*s.%s", dot_dir, length, base, mode);
    (void)snprintf(command, sizeof command, "%s.dot", name);
    f = fopen(command, "w");
    if (!f || mpt_graph_dot(f, g) != MPT_OK || fclose(f))
        die(command, "cannot write it");
    (void)snprintf(command, sizeof command,
                   "command -v dot >/dev/null 2>&1 && dot -Tpng '%s.dot' -o '%s.png'", name, name);
    (void)printf("wrote %s.dot%s\n", name, system(command) == 0 ? " and .png" : " (no Graphviz for a PNG)");
}

static void run(const char *path, mpt_op_lists lists)
{
    mpt_graph         g;
    mpt_graph_options o = mpt_graph_defaults();
    mpt_graph_summary s[2];
    int               m;
    o.lists = lists;
    o.low = lists == MPT_LISTS_TF_BF16 ? MPT_BF16 : MPT_F16;
    for (m = 0; m < 2; m++) {
        o.mode = m ? MPT_GRAPH_MIN_CUT : MPT_GRAPH_TENSORFLOW;
        read_graph(&g, path);
        if (mpt_graph_rewrite(&g, &o, &s[m]) != MPT_OK)
            die(g.fault.node ? g.fault.node : path, g.fault.why ? g.fault.why : "refused");
        (void)printf("== %s, %s\n", path, modes[m]);
        (void)mpt_graph_summary_print(stdout, &s[m]);
        if (explain)
            (void)mpt_graph_print(stdout, &g);
        if (dot_dir)
            draw(&g, path, modes[m]);
        (void)printf("\n");
    }
    (void)printf("%s: min_cut moves %.1f%% of the bytes that tensorflow's casts move\n\n", path,
                 s[0].cast_bytes ? 100.0 * (double)s[1].cast_bytes / (double)s[0].cast_bytes : 100.0);
}

int main(int argc, char **argv)
{
    mpt_op_lists lists = MPT_LISTS_TF_CUDA;
    int          i, files = 0;
    for (i = 1; i < argc; i++) {
        const char *value = argv[i + 1];        /* argv[argc] is NULL */
        if (!strcmp(argv[i], "--explain"))
            explain = 1;
        else if (!strcmp(argv[i], "--dot") && value)
            dot_dir = argv[++i];
        else if (!strcmp(argv[i], "--lists") && value && (!strcmp(value, "cuda") || !strcmp(value, "bf16") ||
                                                          !strcmp(value, "compact"))) {
            lists = value[0] == 'b'   ? MPT_LISTS_TF_BF16
                    : value[1] == 'u' ? MPT_LISTS_TF_CUDA
                                      : MPT_LISTS_COMPACT;
            i++;
        } else if (argv[i][0] == '-') {
            (void)fprintf(stderr, "usage: 08_amp_graph [--lists cuda|bf16|compact] [--explain] [--dot DIR] "
                                  "[FILE...]\n");
            return 2;
        } else {
            run(argv[i], lists);
            files++;
        }
    }
    if (!files) {
        for (i = 0; i < 3; i++)
            run(shipped[i], lists);
    }
    return 0;
}
