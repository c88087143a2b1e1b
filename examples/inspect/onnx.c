/* onnx.c -- the initializers and constants of an ONNX model, which is a protocol buffer. Only the few fields
 * that lead to a tensor's name, shape, type and values are read. Limits: a tensor whose values are in an
 * external file is refused, with its name; sparse initializers are ignored.
 * Source: onnx/onnx.proto; the wire format of protocol buffers. */
#include "inspect.h"

/* Field numbers of ModelProto.graph; GraphProto.node and initializer; NodeProto.output and attribute;
 * AttributeProto.t, g and graphs; and the fields of TensorProto. */
enum { GRAPH = 7, NODE = 1, INITIALIZER = 5, OUTPUT = 2, ATTRIBUTE = 5, TENSOR = 5, SUBGRAPH = 6,
       SUBGRAPHS = 11, MAX_DEPTH = 16, DIMS = 1, DATA_TYPE = 2, FLOAT_DATA = 4, INT32_DATA = 5, NAME = 8,
       RAW_DATA = 9, DOUBLE_DATA = 10, DATA_LOCATION = 14 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

typedef struct range { uint64_t at, end; } range;
/* A field of a message: its bytes, or, of a varint, also its value. */
typedef struct field { uint64_t number, value; range in; int wire; } field;

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
    f->in.at = r->at;
    if (f->wire == WIRE_VARINT || f->wire == WIRE_BYTES ? !take_varint(m, r, &f->value)
                                                        : f->wire != WIRE_64 && f->wire != WIRE_32)
        return -1;
    if (f->wire != WIRE_VARINT) {
        if (f->value > r->end - r->at)
            return -1;
        f->in.at = r->at;
        r->at += f->value;
    }
    f->in.end = r->at;
    return 1;
}

/* Names of the types, by their numbers in TensorProto.DataType. */
static const char *const types[] = {
    "undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16",
    "double", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz",
    "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1"};
enum { TYPES = sizeof types / sizeof types[0] };

static int take_dims(model *m, tensor *t, range r)
{
    while (r.at < r.end)
        if (t->dims == MAX_DIMS || !take_varint(m, &r, &t->shape[t->dims++]))
            return 0;
    return 1;
}

static int take_name(model *m, tensor *t, const field *f)
{
    char *name = f->wire == WIRE_BYTES ? source_text(&m->src, f->in.at, f->value, 1 << 16) : NULL;
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

/* Copy the values in the fields `number` to the model's temporary file. A list may be in several fields, and
 * INT32_DATA holds the bits of smaller types as varints, which some writers take for signed numbers. */
static int unpack(model *m, tensor *t, range r, uint64_t number, char *error)
{
    const size_t  size = format_bytes(t->format);
    const int     bits = 8 * (int)size;
    const int     alone = number == INT32_DATA ? WIRE_VARINT : size == 8 ? WIRE_64 : WIRE_32;
    unsigned char value[8];
    uint64_t      x;
    field         f;
    t->from = m->part_count ? m->parts[0] : model_part(m);
    if (!t->from)
        return problem(error, m->path, t->name, "no space to unpack the values");
    t->offset = t->from->size;
    while (take_field(m, &r, &f) > 0)
        while (f.number == number && (f.wire == WIRE_BYTES || f.wire == alone) && f.in.at < f.in.end) {
            if (number == INT32_DATA) {
                if (!take_varint(m, &f.in, &x))
                    return damaged(m, error);
                x &= UINT32_MAX;
                if (x >> bits && x >> (bits - 1) != UINT32_MAX >> (bits - 1))
                    return problem(error, m->path, t->name, "an int32_data has more than %d bits", bits);
                value[0] = x & 0xff;
                value[1] = x >> 8 & 0xff;
            } else {
                if (f.in.end - f.in.at < size || source_read(&m->src, f.in.at, value, size) != 0)
                    return damaged(m, error);
                f.in.at += size;
            }
            if (fwrite(value, 1, size, t->from->file) != size)
                return problem(error, m->path, t->name, "no space to unpack the values");
            t->from->size += size;
        }
    t->bytes = t->from->size - t->offset;
    return 0;
}

static int take_tensor(model *m, range r, char *error)
{
    tensor  *t = model_tensor(m, "", 0);
    uint64_t type, data, seen[DATA_LOCATION + 1] = {0};
    field    f, last[DATA_LOCATION + 1];
    range    all = r;
    int      code;
    if (!t)
        return problem(error, m->path, NULL, "out of memory");
    memset(last, 0, sizeof last);
    while ((code = take_field(m, &r, &f)) > 0) {
        if (f.number == NAME ? !take_name(m, t, &f) : f.number == DIMS && !take_dims(m, t, f.in))
            return damaged(m, error);
        if (f.number <= DATA_LOCATION) {
            last[f.number] = f;
            seen[f.number]++;
        }
    }
    if (code < 0)
        return damaged(m, error);
    if (last[DATA_LOCATION].value)
        return problem(error, m->path, t->name, "its values are in an external file, which inspect does not "
                       "read");
    type = last[DATA_TYPE].value;
    tensor_type(t, type < TYPES ? types[type] : "unknown");
    if (tensor_count(m, t, error) != 0)
        return -1;
    data = seen[RAW_DATA] ? RAW_DATA : t->format == MPT_F64 ? DOUBLE_DATA
         : t->format == MPT_F32 || t->format == MPT_FORMAT_COUNT ? FLOAT_DATA : INT32_DATA;
    if (data == RAW_DATA || (data != INT32_DATA && seen[data] == 1 && last[data].wire == WIRE_BYTES)) {
        t->offset = last[data].in.at;
        t->bytes = last[data].in.end - t->offset;
    } else if (seen[data] && t->format != MPT_FORMAT_COUNT && unpack(m, t, all, data, error) != 0)
        return -1;
    return t->format == MPT_FORMAT_COUNT ? 0 : tensor_bytes(m, t, mpt_format_get(t->format)->bits, error);
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
            if (take_tensor(m, f.in, error) != 0)
                return -1;
            if (output->wire == WIRE_BYTES && !take_name(m, &m->tensors[m->count - 1], output))
                return damaged(m, error);
        } else if ((f.number == SUBGRAPH || f.number == SUBGRAPHS) &&
                   take_graph(m, f.in, depth + 1, error) != 0)
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
            take_attribute(m, f.in, &output, depth, error) != 0)
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
        if ((f.number == INITIALIZER && take_tensor(m, f.in, error) != 0) ||
            (f.number == NODE && take_node(m, f.in, depth, error) != 0))
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
        if (take_graph(m, f.in, 0, error) != 0)
            return -1;
    }
    if (code || !graphs)
        return damaged(m, error);
    if (m->part_count && source_file(m->parts[0], m->parts[0]->file, m->src.mapped) != 0)
        return problem(error, m->path, NULL, "no space to unpack the values");
    return 0;
}
