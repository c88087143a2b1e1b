/* fuzz_graph.c -- libFuzzer target: any text through the reader of example 08, the rewrite in both modes and
 * mpt_graph_explain. The first byte selects options; the arena is exact, so that ASan detects overruns. After
 * a rewrite edges agree in format, a second one changes nothing, and casts of min_cut move no more bytes. */
#include "fuzz.h"
#include "examples/amp_graph_reader.h"

static void well_typed(const mpt_graph *g)
{
    uint32_t i;
    for (i = 0; i < g->input_count; i++)
        must(g->types[g->outputs[g->inputs[i].source].type].format == g->types[g->inputs[i].type].format);
}

/* Returns the bytes that the casts move; all ones if the graph is refused. */
static uint64_t one_mode(const char *text, char *names, unsigned char *room, size_t bytes, unsigned options,
                         mpt_graph_mode mode)
{
    mpt_graph         g;
    mpt_graph_options o = mpt_graph_defaults();
    mpt_graph_summary first, second;
    mpt_status        status;
    char              line[200];
    const char       *why;
    int               at;
    uint32_t          t, nodes;
    o.mode = mode;
    o.lists = (mpt_op_lists)(options % 3);
    o.low = options & 4 ? MPT_BF16 : MPT_F16;
    o.device = options & 8 ? "gpu" : NULL;
    must(mpt_graph_init(&g, room, bytes) == MPT_OK);
    why = amp_graph_read(&g, names, strlen(text) + 1, text, &at);
    must(!why || strcmp(why, "no room for the names"));
    if (why)
        return ~(uint64_t)0;
    nodes = g.node_count;
    status = mpt_graph_rewrite(&g, &o, &first);
    if (status != MPT_OK) {
        must(g.node_count == nodes && g.fault.why != NULL);
        return ~(uint64_t)0;
    }
    well_typed(&g);
    for (t = 0; t < g.type_count; t++)
        (void)mpt_graph_explain(&g, t, line, t % sizeof line);
    status = mpt_graph_rewrite(&g, &o, &second);
    must(status == MPT_E_MEMORY || (status == MPT_OK && second.casts == 0 && second.converted == 0));
    return first.cast_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const unsigned options = size ? data[0] : 0u;
    const size_t   bytes = options & 16 ? 3000 + 100u * options : 200000;
    unsigned char *room;
    char          *text, *names;
    uint64_t       painted, cut;
    if (size > 3000)
        return 0;
    room = (unsigned char *)malloc(bytes);
    text = (char *)malloc(size + 1);
    names = (char *)malloc(size + 1);
    must(room && text && names);
    memcpy(text, data, size);
    text[size] = 0;
    if (size)
        memmove(text, text + 1, size);
    painted = one_mode(text, names, room, bytes, options, MPT_GRAPH_TENSORFLOW);
    cut = one_mode(text, names, room, bytes, options, MPT_GRAPH_MIN_CUT);
    if (painted != ~(uint64_t)0 && cut != ~(uint64_t)0)
        must(cut <= painted);
    free(room);
    free(text);
    free(names);
    return 0;
}
