/* onnx.c -- the initializers and constants of an ONNX model, which is a protocol buffer. Only the few fields
 * that lead to a tensor's name, shape, type and bytes are read. Limits: a tensor whose values are in an
 * external file is refused, with its name; sparse initializers are ignored.
 * Source: onnx/onnx.proto; the wire format of protocol buffers. */
#include "inspect.h"

/* Field numbers of ModelProto.graph; GraphProto.node and initializer; NodeProto.output and attribute;
 * AttributeProto.t, g and graphs; and the fields of TensorProto. */
enum { GRAPH = 7, NODE = 1, INITIALIZER = 5, OUTPUT = 2, ATTRIBUTE = 5, TENSOR = 5, SUBGRAPH = 6,
       SUBGRAPHS = 11, MAX_DEPTH = 16, DIMS = 1, DATA_TYPE = 2, FLOAT_DATA = 4, INT32_DATA = 5, NAME = 8,
       RAW_DATA = 9, DOUBLE_DATA = 10, DATA_LOCATION = 14 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A field of a message. `value` is a varint's value; other fields are `value` bytes at offset `at`. */
typedef struct field { uint64_t number, value, at; int wire; } field;
typedef struct range { uint64_t at, end; } range;

static int take_varint(model *m, range *r, uint64_t *x)
{
    unsigned char b = 0x80;
    int           shift;
    *x = 0;
    for (shift = 0; b & 0x80; shift += 7) {
        if (shift > 63 || r->at == r->end || source_read(&m->src, r->at, &b, 1) != 0)
            return 0;
        r->at++;
        *x |= (uint64_t)(b & 0x7f) << shift;
    }
    return 1;
}

/* Read the next field. Returns 1; 0 at the end; -1 if the message is damaged. */
static int take_field(model *m, range *r, field *f)
{
    uint64_t key;
    if (r->at == r->end)
        return 0;
    if (!take_varint(m, r, &key))
        return -1;
    f->number = key >> 3;
    f->wire = (int)(key & 7);
    f->value = f->wire == WIRE_64 ? 8 : 4;
    if (f->wire == WIRE_VARINT)
        return take_varint(m, r, &f->value) ? 1 : -1;
    if (f->wire == WIRE_BYTES ? !take_varint(m, r, &f->value) : f->wire != WIRE_64 && f->wire != WIRE_32)
        return -1;
    if (f->value > r->end - r->at)
        return -1;
    f->at = r->at;
    r->at += f->value;
    return 1;
}

/* Names of the types, by their numbers in TensorProto.DataType. */
static const char *const types[] = {
    "undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16",
    "double", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz",
    "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1"};
enum { TYPES = sizeof types / sizeof types[0] };

static int take_dims(model *m, tensor *t, const field *f)
{
    range    packed;
    uint64_t x = f->value;
    packed.at = f->at;
    packed.end = f->at + f->value;
    do {
        if (f->wire == WIRE_BYTES && packed.at == packed.end)
            return 1;
        if (f->wire == WIRE_BYTES && !take_varint(m, &packed, &x))
            return 0;
        if (t->dims == MAX_DIMS)
            return 0;
        t->shape[t->dims++] = x;
    } while (f->wire == WIRE_BYTES);
    return 1;
}

static int take_name(model *m, tensor *t, const field *f)
{
    char *name = f->wire == WIRE_BYTES ? source_text(&m->src, f->at, f->value, 1 << 16) : NULL;
    if (!name || strlen(name) != f->value) {
        free(name);
        return 0;
    }
    free(t->name);
    t->name = name;
    return 1;
}

static int damaged(model *m, char *error)
{
    return problem(error, m->path, NULL, "is not an ONNX model, or truncated or damaged");
}

static int take_tensor(model *m, range r, char *error)
{
    tensor  *t = model_tensor(m, "", 0);
    uint64_t type = 0;
    int      code, bare = 0;
    field    f;
    if (!t)
        return problem(error, m->path, NULL, "out of memory");
    while ((code = take_field(m, &r, &f)) > 0) {
        if (f.number == NAME)
            code = take_name(m, t, &f) ? 1 : -1;
        else if (f.number == DIMS)
            code = take_dims(m, t, &f) ? 1 : -1;
        else if (f.number == DATA_TYPE)
            type = f.value;
        else if (f.number == DATA_LOCATION && f.value)
            return problem(error, m->path, t->name, "its values are in an external file, which inspect does "
                           "not read");
        else if ((f.number == RAW_DATA || f.number == FLOAT_DATA || f.number == DOUBLE_DATA) &&
                 f.wire == WIRE_BYTES && !t->bytes) {
            t->offset = f.at;
            t->bytes = f.value;
        } else if (f.number == INT32_DATA || f.number == FLOAT_DATA || f.number == DOUBLE_DATA)
            bare = 1;
        if (code < 0)
            break;
    }
    if (code < 0)
        return damaged(m, error);
    tensor_type(t, type < TYPES ? types[type] : "unknown");
    if (bare && !t->bytes)
        t->format = MPT_FORMAT_COUNT;
    if (tensor_count(m, t, error) != 0)
        return -1;
    return t->format == MPT_FORMAT_COUNT ? 0 : tensor_bytes(m, t, mpt_format_get(t->format)->bits, error);
}

static range inside(const field *f)
{
    range r;
    r.at = f->at;
    r.end = f->at + f->value;
    return r;
}

static int take_graph(model *m, range r, int depth, char *error);

/* Read the tensor or the graphs of an attribute. A constant tensor gets the name of the node's output. */
static int take_attribute(model *m, range r, const field *output, int depth, char *error)
{
    field f;
    int   code;
    while ((code = take_field(m, &r, &f)) > 0) {
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == TENSOR) {
            if (take_tensor(m, inside(&f), error) != 0)
                return -1;
            if (output->wire == WIRE_BYTES && !take_name(m, &m->tensors[m->count - 1], output))
                return damaged(m, error);
        } else if ((f.number == SUBGRAPH || f.number == SUBGRAPHS) &&
                   take_graph(m, inside(&f), depth + 1, error) != 0)
            return -1;
    }
    return code ? damaged(m, error) : 0;
}

static int take_node(model *m, range r, int depth, char *error)
{
    range       again = r;
    field       f, output;
    int         code;
    memset(&output, 0, sizeof output);
    while ((code = take_field(m, &r, &f)) > 0)
        if (f.number == OUTPUT && f.wire == WIRE_BYTES && output.wire != WIRE_BYTES)
            output = f;
    while (code == 0 && (code = take_field(m, &again, &f)) > 0) {
        if (f.number == ATTRIBUTE && f.wire == WIRE_BYTES &&
            take_attribute(m, inside(&f), &output, depth, error) != 0)
            return -1;
        code = 0;
    }
    return code ? damaged(m, error) : 0;
}

static int take_graph(model *m, range r, int depth, char *error)
{
    field f;
    int   code;
    if (depth > MAX_DEPTH)
        return damaged(m, error);
    while ((code = take_field(m, &r, &f)) > 0) {
        if (f.wire != WIRE_BYTES)
            continue;
        if ((f.number == INITIALIZER && take_tensor(m, inside(&f), error) != 0) ||
            (f.number == NODE && take_node(m, inside(&f), depth, error) != 0))
            return -1;
    }
    return code ? damaged(m, error) : 0;
}

int onnx_parse(model *m, char *error)
{
    range all;
    field f;
    int   code, graphs = 0;
    all.at = 0;
    all.end = m->src.size;
    while ((code = take_field(m, &all, &f)) > 0) {
        if (f.number != GRAPH || f.wire != WIRE_BYTES)
            continue;
        graphs++;
        if (take_graph(m, inside(&f), 0, error) != 0)
            return -1;
    }
    return code || !graphs ? damaged(m, error) : 0;
}
