/* bench_graph.c -- the graph rewrite on 10^4, 10^5 and 10^6 nodes: seconds, bytes of memory, and their
 * growth; a growth of 10 is linear. The graph is a chain of residual blocks (convolution, norm, relu, add);
 * every tenth block has a deny op at its side, which the block's last op reads. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#include "mpt.h"

static void build(mpt_graph *g, uint32_t nodes)
{
    static const char *const ops[] = {"conv2d",     "batch_norm", "relu", "conv2d",
                                      "batch_norm", "add",        "relu", "tanh"};
    uint32_t in[2], x, w, block = 0, i, made = 2;
    mpt_graph_op(g, "x", "placeholder", NULL, 0, 100000, &x);
    mpt_graph_op(g, "w", "variable", NULL, 0, 5000, &w);
    for (i = 0; made < nodes; i++, made++) {
        const uint32_t at = i % 8;
        in[0] = x;
        in[1] = at == 5 ? block : w;
        if (at == 0)
            block = x;
        if (i % 80 == 79 && made + 1 < nodes) {     /* a branch to a deny op */
            uint32_t side;
            mpt_graph_op(g, "side", "exp", in, 1, 1000 + i % 777, &side);
            in[1] = side;
            made++;
        }
        mpt_graph_op(g, "node", ops[at], in, at == 0 || at == 3 || at == 5 || i % 80 == 79 ? 2 : 1,
                     1000 + (uint64_t)(i * 7919u) % 99991u, &x);
    }
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"tensorflow", "min_cut"};
    bench                    b;
    int                      m;
    uint32_t                 nodes;
    b.csv = bench_csv("graph", argc, argv, "mode,nodes,seconds,bytes,cast_bytes");
    printf("%-12s %9s %9s %9s %12s %8s %14s\n", "mode", "nodes", "seconds", "growth", "memory MB", "growth",
           "cast bytes");
    for (m = 0; m < 2; m++) {
        double last = 0.0, last_bytes = 0.0;
        for (nodes = 10000; nodes <= 1000000; nodes *= 10) {
            const size_t      bytes = mpt_graph_bytes(nodes, 2 * (size_t)nodes);
            void             *arena = malloc(bytes);
            mpt_graph         g;
            mpt_graph_options o = mpt_graph_defaults();
            mpt_graph_summary s;
            double            t[3];
            int               k;
            if (!arena) {
                fprintf(stderr, "bench: out of memory\n");
                return 1;
            }
            o.mode = m ? MPT_GRAPH_MIN_CUT : MPT_GRAPH_TENSORFLOW;
            for (k = 0; k < 3; k++) {
                mpt_graph_init(&g, arena, bytes);
                mpt_graph_reserve(&g, nodes, 2 * (size_t)nodes);
                build(&g, nodes);
                t[k] = bench_now();
                if (mpt_graph_rewrite(&g, &o, &s) != MPT_OK) {
                    fprintf(stderr, "bench: %s\n", g.fault.why);
                    return 1;
                }
                t[k] = bench_now() - t[k];
            }
            t[0] = bench_median(t, 3);
            printf("%-12s %9u %9.4f %9.1f %12.1f %8.1f %14llu\n", modes[m], (unsigned)nodes, t[0],
                   last > 0.0 ? t[0] / last : 0.0, (double)bytes / 1e6,
                   last_bytes > 0.0 ? (double)bytes / last_bytes : 0.0, (unsigned long long)s.cast_bytes);
            if (b.csv)
                fprintf(b.csv, "%s,%u,%.6f,%llu,%llu\n", modes[m], (unsigned)nodes, t[0],
                        (unsigned long long)bytes, (unsigned long long)s.cast_bytes);
            last = t[0];
            last_bytes = (double)bytes;
            free(arena);
        }
    }
    return b.csv && fclose(b.csv) ? 1 : 0;
}
