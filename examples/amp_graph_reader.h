/* amp_graph_reader.h -- reads a graph for mpt_graph_rewrite from text; for examples/08_amp_graph.c and tests.
 * Include it after mpt.h. The text looks like this:
 *
 *     # a comment; then one node per line: name = op(inputs) -> outputs flags
 *     x    = Placeholder()              -> 32*784
 *     w    = Variable()                 -> 784*128
 *     h    = MatMul(x, w)               -> 32*128
 *     y    = FusedBatchNormV3(h, s/U!)  -> 32*128, 128/U!      # a second type attribute, U; stays FP32
 *     ids  = Placeholder()              -> 32=int
 *     l    = SparseSoftmaxCrossEntropyWithLogits(h, ids/L) -> 32
 *     out  = Identity(l)                -> 32 fetched
 *     range h overflow                  # what a calibration run saw at h: overflow, or flushed PERCENT
 *     group a b                         # the first types of nodes a and b must get the same format
 *
 * inputs   each NAME or NAME:PORT: an output of a node above or below
 * outputs  each SIZE or SIZE=FORMAT: a number or a product, and f32 (default), f16, bf16 ..., int or handle
 * /TYPE    after an input or output: the type attribute that it belongs to, T by default. A ! after it: that
 *          type has no low-precision kernel. A type has the format of its outputs, else of its first input.
 * flags    fetched, stateful, variable, const, on DEVICE */
#ifndef AMP_GRAPH_READER_H
#define AMP_GRAPH_READER_H

#include <string.h>

typedef struct amp_reader {
    mpt_graph  *g;
    char       *names;          /* room for more names */
    size_t      room;           /* bytes left in it */
    const char *at;             /* position in the text */
    int         line;
    const char *why;            /* NULL, or what is wrong in that line */
} amp_reader;

static int amp_bad(amp_reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    return 0;
}

static void amp_blanks(amp_reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')
        r->at++;
}

/* Skip blanks, and then the character c; returns 0 if another one stands there. */
static int amp_take(amp_reader *r, char c)
{
    amp_blanks(r);
    if (*r->at != c)
        return 0;
    r->at++;
    return 1;
}

static int amp_in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* Copy the next word to buf; returns NULL if there is none. */
static const char *amp_word(amp_reader *r, char *buf, size_t cap)
{
    size_t n = 0;
    amp_blanks(r);
    while (amp_in_word(*r->at)) {
        if (n + 1 < cap)
            buf[n++] = *r->at;
        r->at++;
    }
    buf[n] = 0;
    return n ? buf : NULL;
}

/* Copy a word into the caller's room for names, which lives as long as the graph. */
static const char *amp_keep(amp_reader *r, const char *word)
{
    const size_t n = strlen(word) + 1;
    char *const  kept = r->names;
    if (n > r->room) {
        (void)amp_bad(r, "no room for the names");
        return "";
    }
    memcpy(kept, word, n);
    r->names += n;
    r->room -= n;
    return kept;
}

static uint32_t amp_node(const mpt_graph *g, const char *name)
{
    uint32_t i;
    for (i = g->node_count; i-- > 0;)
        if (!strcmp(g->nodes[i].name, name))
            return i;
    return MPT_GRAPH_NONE;
}

static uint32_t amp_output(const mpt_graph *g, uint32_t node, uint32_t port)
{
    uint32_t t, o;
    for (t = g->nodes[node].first_type; t != MPT_GRAPH_NONE; t = g->types[t].next)
        for (o = g->types[t].first_output; o != MPT_GRAPH_NONE; o = g->outputs[o].next)
            if (g->outputs[o].index == port)
                return o;
    return MPT_GRAPH_NONE;
}

static uint64_t amp_number(amp_reader *r)
{
    uint64_t n = 0;
    amp_blanks(r);
    if (*r->at < '0' || *r->at > '9')
        (void)amp_bad(r, "a number is missing");
    for (; *r->at >= '0' && *r->at <= '9'; r->at++)
        if (n <= (uint64_t)1 << 40)
            n = n * 10 + (uint64_t)(*r->at - '0');
    if (n > (uint64_t)1 << 40)
        (void)amp_bad(r, "a number above 2^40");
    return n;
}

/* Read [/TYPE[!]], the type attribute of a port; a new one is added, with a format that is not known yet. */
#define AMP_UNKNOWN (-100)
static uint32_t amp_type(amp_reader *r, uint32_t node)
{
    char        word[64];
    const char *name = "T";
    uint32_t    t;
    int         fixed = 0;
    if (amp_take(r, '/')) {
        if (!amp_word(r, word, sizeof word))
            (void)amp_bad(r, "a type's name is missing after /");
        fixed = amp_take(r, '!');
        name = word;
    }
    for (t = r->g->nodes[node].first_type; t != MPT_GRAPH_NONE; t = r->g->types[t].next)
        if (!strcmp(r->g->types[t].name, name))
            break;
    if (t == MPT_GRAPH_NONE && name == word)
        name = amp_keep(r, word);
    if (t == MPT_GRAPH_NONE && mpt_graph_type_add(r->g, node, name, AMP_UNKNOWN, 0u, &t) != MPT_OK) {
        (void)amp_bad(r, "out of memory");
        return 0;
    }
    if (fixed)
        r->g->types[t].flags |= MPT_TYPE_FIXED;
    return t;
}

/* Read the inputs of a node. The first pass only adds their types; the second (connect 1) connects them. */
static void amp_inputs(amp_reader *r, uint32_t node, int connect)
{
    char     word[64];
    uint32_t from, port, t, source, seen = 0;
    while (!r->why && !amp_take(r, ')')) {
        if (seen && !amp_take(r, ','))
            (void)amp_bad(r, "a comma or ) is missing");
        if (!r->why && !amp_word(r, word, sizeof word))
            (void)amp_bad(r, "an input's name is missing");
        port = amp_take(r, ':') ? (uint32_t)amp_number(r) : 0u;
        if (r->why)
            return;
        t = amp_type(r, node);
        seen++;
        if (!connect)
            continue;
        from = amp_node(r->g, word);
        source = from == MPT_GRAPH_NONE ? from : amp_output(r->g, from, port);
        if (source == MPT_GRAPH_NONE)
            (void)amp_bad(r, from == MPT_GRAPH_NONE ? "no node has that name" : "no output has that number");
        else if (mpt_graph_input_add(r->g, t, source, NULL) != MPT_OK)
            (void)amp_bad(r, "out of memory");
    }
}

static void amp_output_spec(amp_reader *r, uint32_t node)
{
    char       word[64];
    uint64_t   size = amp_number(r);
    int32_t    format = (int32_t)MPT_F32;
    mpt_format f;
    uint32_t   t;
    while (!r->why && amp_take(r, '*')) {
        const uint64_t by = amp_number(r);
        if (by && size > ((uint64_t)1 << 40) / by)
            (void)amp_bad(r, "an output has more than 2^40 elements");
        else
            size *= by;
    }
    if (!r->why && amp_take(r, '=')) {
        if (!amp_word(r, word, sizeof word))
            (void)amp_bad(r, "a format is missing after =");
        else if (!strcmp(word, "int") || !strcmp(word, "handle"))
            format = word[0] == 'i' ? MPT_TYPE_OTHER : MPT_TYPE_HANDLE;
        else if (mpt_format_find(word, &f) == MPT_OK)
            format = (int32_t)f;
        else
            (void)amp_bad(r, "an unknown format");
    }
    if (r->why)
        return;
    t = amp_type(r, node);
    if (r->why)
        return;
    if (r->g->types[t].format != AMP_UNKNOWN && r->g->types[t].format != format)
        (void)amp_bad(r, "two outputs of one type have different formats");
    r->g->types[t].format = format;
    if (mpt_graph_output_add(r->g, t, size, NULL) != MPT_OK)
        (void)amp_bad(r, "out of memory");
}

static void amp_flags(amp_reader *r, uint32_t node)
{
    static const struct { const char *name; uint32_t flag; } flags[] = {
        {"fetched", MPT_NODE_FETCHED}, {"stateful", MPT_NODE_STATEFUL}, {"variable", MPT_NODE_VARIABLE},
        {"const", MPT_NODE_CONST}};
    char   word[64];
    size_t i;
    while (!r->why && amp_word(r, word, sizeof word)) {
        for (i = 0; i < sizeof flags / sizeof flags[0] && strcmp(word, flags[i].name) != 0; i++) {}
        if (i < sizeof flags / sizeof flags[0])
            r->g->nodes[node].flags |= flags[i].flag;
        else if (!strcmp(word, "on") && amp_word(r, word, sizeof word))
            r->g->nodes[node].device = amp_keep(r, word);
        else
            (void)amp_bad(r, "an unknown flag");
    }
}

static void amp_note(amp_reader *r, const char *what)
{
    char     word[64];
    uint32_t node, other, port;
    if (!amp_word(r, word, sizeof word) || (node = amp_node(r->g, word)) == MPT_GRAPH_NONE) {
        (void)amp_bad(r, "range or group names a node that does not exist");
        return;
    }
    if (!strcmp(what, "group")) {
        if (!amp_word(r, word, sizeof word) || (other = amp_node(r->g, word)) == MPT_GRAPH_NONE ||
            r->g->nodes[node].first_type == MPT_GRAPH_NONE || r->g->nodes[other].first_type == MPT_GRAPH_NONE)
            (void)amp_bad(r, "group takes the names of two nodes that have types");
        else
            (void)mpt_graph_group(r->g, r->g->nodes[node].first_type, r->g->nodes[other].first_type);
        return;
    }
    port = amp_output(r->g, node, amp_take(r, ':') ? (uint32_t)amp_number(r) : 0u);
    if (port == MPT_GRAPH_NONE || !amp_word(r, word, sizeof word))
        (void)amp_bad(r, "range takes an output, and then overflow, or flushed and a percentage");
    else if (!strcmp(word, "overflow"))
        r->g->outputs[port].range.overflow = 1u;
    else if (!strcmp(word, "flushed"))
        r->g->outputs[port].range.flushed = (double)amp_number(r) / 100.0;
    else
        (void)amp_bad(r, "range takes overflow or flushed");
}

/* Read one line. connect 0: add the node, its types and outputs; 1: connect inputs, apply range and group. */
static void amp_line(amp_reader *r, int connect, uint32_t *node)
{
    char        word[64], op[64];
    const char *name;
    if (!amp_word(r, word, sizeof word))
        return;
    if (!amp_take(r, '=')) {
        if (strcmp(word, "range") != 0 && strcmp(word, "group") != 0)
            (void)amp_bad(r, "= is missing after the name");
        else if (connect)
            amp_note(r, word);
        else
            while (*r->at && *r->at != '\n' && *r->at != '#')
                r->at++;
        return;
    }
    if (!amp_word(r, op, sizeof op) || !amp_take(r, '(')) {
        (void)amp_bad(r, "an op and ( are missing after =");
        return;
    }
    if (!connect) {
        if (amp_node(r->g, word) != MPT_GRAPH_NONE) {
            (void)amp_bad(r, "two nodes have this name");
            return;
        }
        name = amp_keep(r, word);
        if (mpt_graph_node_add(r->g, name, amp_keep(r, op), NULL, 0u, node) != MPT_OK)
            (void)amp_bad(r, "out of memory");
    }
    amp_inputs(r, *node, connect);
    if (connect) {
        (*node)++;
        while (*r->at && *r->at != '\n' && *r->at != '#')
            r->at++;
        return;
    }
    if (!r->why && amp_take(r, '-')) {
        if (!amp_take(r, '>'))
            (void)amp_bad(r, "-> is missing");
        while (!r->why) {
            amp_output_spec(r, *node);
            if (!amp_take(r, ','))
                break;
        }
    }
    amp_flags(r, *node);
}

static void amp_pass(amp_reader *r, const char *text, int connect)
{
    uint32_t node = 0;
    r->at = text;
    for (r->line = 1; !r->why; r->line++) {
        amp_line(r, connect, &node);
        amp_blanks(r);
        if (*r->at == '#')
            while (*r->at && *r->at != '\n')
                r->at++;
        if (!r->why && *r->at && *r->at != '\n')
            (void)amp_bad(r, "unexpected text at the end of the line");
        if (r->why || !*r->at)
            return;
        r->at++;
    }
}

/* A type without outputs gets the format of its first input. */
static void amp_formats(mpt_graph *g)
{
    uint32_t t, in;
    for (t = 0; t < g->type_count; t++) {
        in = g->types[t].first_input;
        if (g->types[t].format == AMP_UNKNOWN)
            g->types[t].format = in == MPT_GRAPH_NONE ? (int32_t)MPT_F32
                                 : g->types[g->outputs[g->inputs[in].source].type].format;
    }
}

/* amp_graph_read -- build the graph that a text describes.
 *   g      in/out  initialised, empty
 *   names  out     [room], receives the names of nodes, ops, types and devices; must live as long as the
 *                  graph. strlen(text) + 1 is always enough
 *   text   in      ends with 0; may be freed when this function has returned
 *   line   out     the line of the error
 * Returns: NULL, or a message that says what is wrong. */
static const char *amp_graph_read(mpt_graph *g, char *names, size_t room, const char *text, int *line)
{
    amp_reader r;
    memset(&r, 0, sizeof r);
    r.g = g;
    r.names = names;
    r.room = room;
    amp_pass(&r, text, 0);
    if (!r.why)
        amp_pass(&r, text, 1);
    if (!r.why)
        amp_formats(g);
    *line = r.line;
    return r.why;
}

#endif /* AMP_GRAPH_READER_H */
