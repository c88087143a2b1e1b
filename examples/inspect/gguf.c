/* gguf.c -- the header of a GGUF file, versions 2 and 3: key-value pairs, of which only the alignment is
 * used, and the tensors' names, shapes, types and offsets. The values of F32, F16, BF16 and F64 tensors are
 * read; tensors of quantized types are listed and skipped. Source: docs/gguf.md of ggml. */
#include "inspect.h"

enum { MAX_TENSORS = 1 << 20, MAX_NAME = 1 << 16, MAX_DEPTH = 4 };

typedef struct cursor {
    model   *m;
    uint64_t at;
    int      bad;           /* nonzero: the file ended, or a number is out of range */
} cursor;

static uint64_t take(cursor *c, int bytes)
{
    unsigned char b[8];
    if (c->bad || source_read(&c->m->src, c->at, b, (size_t)bytes) != 0) {
        c->bad = 1;
        return 0;
    }
    c->at += (uint64_t)bytes;
    return little_endian(b, bytes);
}

static void skip(cursor *c, uint64_t bytes)
{
    if (bytes > c->m->src.size - c->at)
        c->bad = 1;
    else
        c->at += bytes;
}

/* Bytes of a value, by the number of its type in the file; 0 for strings and arrays. */
static const unsigned char value_bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
enum { VALUE_STRING = 8, VALUE_ARRAY = 9 };

static void skip_value(cursor *c, uint64_t type, int depth)
{
    uint64_t of, n;
    if (type > 12 || depth > MAX_DEPTH)
        c->bad = 1;
    else if (type == VALUE_STRING)
        skip(c, take(c, 8));
    else if (type != VALUE_ARRAY)
        skip(c, value_bytes[type]);
    else {
        of = take(c, 4);
        n = take(c, 8);
        if (of > 12 || n > c->m->src.size)
            c->bad = 1;
        else if (value_bytes[of])
            skip(c, n * value_bytes[of]);
        else
            for (; n && !c->bad; n--)
                skip_value(c, of, depth + 1);
    }
}

/* Skip n key-value pairs. Returns the alignment of the data, which is one of them or else 32. */
static uint64_t take_pairs(cursor *c, uint64_t n)
{
    static const char key[] = "general.alignment";
    uint64_t          alignment = 32;
    for (; n && !c->bad; n--) {
        const uint64_t length = take(c, 8);
        char           name[sizeof key] = "";
        uint64_t       type;
        if (length == sizeof key - 1 && source_read(&c->m->src, c->at, name, sizeof key - 1) != 0)
            c->bad = 1;
        skip(c, length);
        type = take(c, 4);
        if (!strcmp(name, key) && type == 4)
            alignment = take(c, 4);
        else
            skip_value(c, type, 0);
    }
    return alignment;
}

/* Names of the types, by their numbers in ggml. An empty name: ggml no longer uses the number. */
static const char *const types[] = {
    "F32", "F16", "Q4_0", "Q4_1", "", "", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
    "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",
    "I16", "I32", "I64", "F64", "IQ1_M", "BF16", "", "", "", "TQ1_0",
    "TQ2_0", "", "", "", "MXFP4", "NVFP4", "Q1_0"};
enum { TYPES = sizeof types / sizeof types[0] };

/* Read a tensor's entry: a name, the dimensions (the fastest one first), a type, an offset. */
static int take_tensor(cursor *c, char *error)
{
    model         *m = c->m;
    const uint64_t length = take(c, 8);
    tensor        *t;
    uint64_t       type;
    char          *name = c->bad ? NULL : source_text(&m->src, c->at, length, MAX_NAME);
    int            k;
    t = name && strlen(name) == length ? model_tensor(m, name, (size_t)length) : NULL;
    free(name);
    if (!t)
        return problem(error, m->path, NULL, "the GGUF header is truncated or damaged, or out of memory");
    skip(c, length);
    t->dims = (int)take(c, 4);
    if (t->dims < 0 || t->dims > MAX_DIMS)
        return problem(error, m->path, t->name, "has more than %d dimensions", MAX_DIMS);
    for (k = t->dims - 1; k >= 0; k--)
        t->shape[k] = take(c, 8);
    type = take(c, 4);
    t->offset = take(c, 8);
    if (c->bad)
        return problem(error, m->path, t->name, "the GGUF header is truncated");
    tensor_type(t, type < TYPES && *types[type] ? types[type] : "unknown");
    return tensor_count(m, t, error);
}

/* Set t->offset, which counts from `data`, the first aligned byte after the header, and t->bytes. */
static int place(model *m, tensor *t, uint64_t data, char *error)
{
    if (t->offset > m->src.size || data > m->src.size - t->offset)
        return problem(error, m->path, t->name, "truncated: its data begins beyond the end of the file");
    t->offset += data;
    if (t->format == MPT_FORMAT_COUNT)
        return 0;
    if (t->count * format_bytes(t->format) > m->src.size - t->offset)
        return problem(error, m->path, t->name, "truncated: its data ends beyond the end of the file");
    t->bytes = t->count * format_bytes(t->format);
    return 0;
}

int gguf_parse(model *m, char *error)
{
    cursor   c;
    uint64_t version, tensors, pairs, alignment;
    size_t   i;
    c.m = m;
    c.at = 4;
    c.bad = 0;
    version = take(&c, 4);
    tensors = take(&c, 8);
    pairs = take(&c, 8);
    if (c.bad)
        return problem(error, m->path, NULL, "truncated inside the GGUF header");
    if (version != 2 && version != 3)
        return problem(error, m->path, NULL, "GGUF version %llu: only 2 and 3 are supported", (ull)version);
    if (tensors > MAX_TENSORS || tensors > m->src.size || pairs > m->src.size)
        return problem(error, m->path, NULL, "the GGUF header claims more tensors or keys than it can hold");
    alignment = take_pairs(&c, pairs);
    if (c.bad || !alignment || alignment > 1 << 20)
        return problem(error, m->path, NULL, "the GGUF header is truncated or damaged");
    for (i = 0; i < tensors; i++)
        if (take_tensor(&c, error) != 0)
            return -1;
    for (i = 0; i < m->count; i++)
        if (place(m, &m->tensors[i], (c.at + alignment - 1) / alignment * alignment, error) != 0)
            return -1;
    return 0;
}
