/* model.c -- finds out the kind of a file; raw and CSV files; the stream of a tensor's values. */
#include "inspect.h"

const char *kind_name(file_kind kind)
{
    static const char *const names[] = {"npy", "safetensors", "raw", "csv", "npz", "PyTorch", "GGUF", "ONNX"};
    return names[kind];
}

int host_is_little(void)
{
    const uint16_t one = 1;
    unsigned char  low;
    memcpy(&low, &one, 1);
    return low;
}

void swap_bytes(unsigned char *x, size_t n, size_t size)
{
    size_t i, k;
    for (i = 0; i < n; i += size)
        for (k = 0; k < size / 2; k++) {
            const unsigned char low = x[i + k];
            x[i + k] = x[i + size - 1 - k];
            x[i + size - 1 - k] = low;
        }
}

size_t format_bytes(mpt_format format) { return (size_t)mpt_format_get(format)->bits / 8; }

static const number_type types[] = {
    {"F64", "f64 f8 double DoubleStorage float64", MPT_F64, 64},
    {"F32", "f32 f4 float FloatStorage float32", MPT_F32, 32},
    {"F16", "f16 f2 float16 HalfStorage", MPT_F16, 16},
    {"BF16", "bf16 bfloat16 BFloat16Storage", MPT_BF16, 16},
    {"F8_E4M3", "e4m3 float8e4m3fn float8_e4m3fn", MPT_E4M3, 8},
    {"F8_E5M2", "e5m2 float8e5m2 float8_e5m2", MPT_E5M2, 8},
    {"F8_E4M3FNUZ", "e4m3fnuz float8e4m3fnuz float8_e4m3fnuz", MPT_E4M3FNUZ, 8},
    {"F8_E5M2FNUZ", "e5m2fnuz float8e5m2fnuz float8_e5m2fnuz", MPT_E5M2FNUZ, 8},
    {"I64", "LongStorage", MPT_FORMAT_COUNT, 64}, {"U64", "", MPT_FORMAT_COUNT, 64},
    {"C64", "", MPT_FORMAT_COUNT, 64}, {"I32", "IntStorage", MPT_FORMAT_COUNT, 32},
    {"U32", "", MPT_FORMAT_COUNT, 32}, {"I16", "ShortStorage", MPT_FORMAT_COUNT, 16},
    {"U16", "", MPT_FORMAT_COUNT, 16}, {"I8", "CharStorage", MPT_FORMAT_COUNT, 8},
    {"U8", "ByteStorage", MPT_FORMAT_COUNT, 8}, {"BOOL", "BoolStorage", MPT_FORMAT_COUNT, 8},
    {"F8_E8M0", "", MPT_FORMAT_COUNT, 8}, {"F4", "", MPT_FORMAT_COUNT, 4},
    {"F6_E2M3", "", MPT_FORMAT_COUNT, 6}, {"F6_E3M2", "", MPT_FORMAT_COUNT, 6}
};

const number_type *find_type(const char *name)
{
    const size_t n = strlen(name);
    size_t       i;
    for (i = 0; n && i < sizeof types / sizeof types[0]; i++) {
        const char *p = types[i].others;
        if (!strcmp(types[i].name, name))
            return &types[i];
        for (; (p = strstr(p, name)) != NULL; p += n)
            if ((p == types[i].others || p[-1] == ' ') && (!p[n] || p[n] == ' '))
                return &types[i];
    }
    return NULL;
}

tensor *model_tensor(model *m, const char *name, size_t n)
{
    tensor *more = (tensor *)grow(m->tensors, m->count, sizeof *more), *t;
    if (!more)
        return NULL;
    m->tensors = more;
    t = &more[m->count];
    memset(t, 0, sizeof *t);
    t->name = copy_text(name, n);
    t->format = MPT_FORMAT_COUNT;
    t->swap = !host_is_little();
    m->count += t->name != NULL;
    return t->name ? t : NULL;
}

void tensor_type(tensor *t, const char *type)
{
    const number_type *known = find_type(type);
    t->type = type;
    t->format = known ? known->format : MPT_FORMAT_COUNT;
}

/* A dimension of 0 makes the count 0, but the product of the others must not overflow even then. */
int tensor_count(const model *m, tensor *t, char *error)
{
    uint64_t product = 1;
    int      i, empty = 0;
    for (i = 0; i < t->dims; i++) {
        if (!t->shape[i])
            empty = 1;
        else if (product > UINT64_MAX / 64 / t->shape[i])
            return problem(error, m->path, t->name, "the product of the shape overflows");
        else
            product *= t->shape[i];
    }
    t->count = empty ? 0 : product;
    return 0;
}

int tensor_bytes(const model *m, const tensor *t, int bits, char *error)
{
    const uint64_t all = t->count * (uint64_t)bits;
    if (all % 8)
        return problem(error, m->path, t->name, "%llu values of type %s do not fill whole bytes",
                       (ull)t->count, t->type);
    if (t->bytes != all / 8)
        return problem(error, m->path, t->name, "%llu values of type %s need %llu bytes, its data has %llu",
                       (ull)t->count, t->type, (ull)(all / 8), (ull)t->bytes);
    return 0;
}

const char *model_text(model *m, const char *text)
{
    char **more = (char **)grow(m->texts, m->text_count, sizeof *more);
    if (!more)
        return NULL;
    m->texts = more;
    more[m->text_count] = copy_text(text, strlen(text));
    return more[m->text_count] ? more[m->text_count++] : NULL;
}

source *model_part(model *m)
{
    source **more = (source **)grow(m->parts, m->part_count, sizeof *more);
    m->parts = more ? more : m->parts;
    if (!more || !(more[m->part_count] = (source *)calloc(1, sizeof **more)))
        return NULL;
    more[m->part_count]->file = tmpfile();
    return more[m->part_count++]->file ? more[m->part_count - 1] : NULL;
}

source *tensor_source(model *m, const tensor *t) { return t->from ? t->from : &m->src; }

/* ---- the kind of a file ---- */

static const char old[] = "is an old GGML file: convert it to GGUF";

/* For files of other kinds, recognized by bytes near their beginning: what the user should do instead. */
static const char *advice(const unsigned char *head)
{
    static const struct { int at; const char *bytes, *what; } known[] = {
        {0, "\x89HDF", "is an HDF5 file: inspect cannot read it; save the arrays as .npy or .safetensors"},
        {0, "\x1f\x8b", "is compressed with gzip: unpack it first"},
        {0, "\x28\xb5\x2f\xfd", "is compressed with zstd: unpack it first"},
        {0, "\xfd" "7zXZ", "is compressed with xz: unpack it first"},
        {4, "TFL3", "is a TensorFlow Lite model: inspect cannot read it; save the weights as .npz"},
        {0, "GGML", old}, {0, "lmgg", old}, {0, "tjgg", old}};
    size_t i;
    if (head[0] == 0x80 && head[1] && head[1] <= 5)
        return "is a Python pickle (PyTorch before 1.6), not read: load it and torch.save it again";
    for (i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!memcmp(head + known[i].at, known[i].bytes, strlen(known[i].bytes)))
            return known[i].what;
    return "is none of .npy, .npz, .safetensors, .pt, .gguf, .onnx, .csv; for bare numbers use --raw TYPE";
}

/* An ONNX model begins with field 1, the version of its format, a small number; then texts or the graph. */
static int looks_like_onnx(const unsigned char *head)
{
    return head[0] == 8 && head[1] < 32 && (head[2] == 0x12 || head[2] == 0x1a || head[2] == 0x3a);
}

static int find_kind(model *m, char *error)
{
    unsigned char head[9] = {0};
    const size_t  size = m->src.size < 9 ? (size_t)m->src.size : 9;
    if (source_read(&m->src, 0, head, size) != 0)
        return problem(error, m->path, NULL, "cannot be read");
    if (!memcmp(head, "\x93NUMPY", 6))
        m->kind = KIND_NPY;
    else if (!memcmp(head, "PK\3\4", 4))
        m->kind = KIND_NPZ;             /* or PyTorch: zip_parse finds out from the members */
    else if (!memcmp(head, "GGUF", 4))
        m->kind = KIND_GGUF;
    else if (ends_with(m->path, ".onnx") || looks_like_onnx(head))
        m->kind = KIND_ONNX;
    else if (ends_with(m->path, ".safetensors") || (head[8] == '{' && !head[6] && !head[7]))
        m->kind = KIND_SAFETENSORS;
    else if (ends_with(m->path, ".csv") || ends_with(m->path, ".tsv") || ends_with(m->path, ".txt") ||
             (!strcmp(m->path, "-") && (head[0] == '#' || (head[0] >= '+' && head[0] <= '9'))))
        m->kind = KIND_CSV;
    else if (ends_with(m->path, ".npy"))
        return problem(error, m->path, NULL, "does not start with the magic string of .npy files");
    else
        return problem(error, m->path, NULL, "%s", advice(head));
    return 0;
}

static int raw_parse(model *m, mpt_format format, char *error)
{
    const mpt_format_info *f = mpt_format_get(format);
    const uint64_t         bytes = (uint64_t)f->bits / 8;
    tensor                *t = m->tensors;
    if (m->src.size % bytes)
        return problem(error, m->path, NULL, "its size, %llu bytes, is not a whole number of %s values",
                       (ull)m->src.size, f->name);
    t->type = f->name;
    t->format = format;
    t->bytes = m->src.size;
    t->count = t->shape[0] = t->bytes / bytes;
    t->dims = 1;
    return 0;
}

/* Read the whole file once, to find the shape and to check that every cell is a number. */
static int csv_parse(model *m, char *error)
{
    stream     *s = (stream *)malloc(sizeof *s);
    tensor     *t = m->tensors;
    const void *x;
    size_t      n;
    int         code;
    if (!s)
        return problem(error, m->path, NULL, "out of memory");
    t->type = "text";
    t->format = MPT_F64;
    t->bytes = m->src.size;
    stream_init(s, m, t);
    while ((code = stream_next(s, &x, &n)) > 0)
        t->count += n;
    t->shape[0] = s->rows;
    t->shape[1] = s->columns;
    t->dims = s->columns == 1 ? 1 : 2;
    if (code < 0)
        memcpy(error, s->error, ERROR_TEXT);
    else if (!t->count)
        code = problem(error, m->path, NULL, "holds no numbers");
    free(s);
    return code;
}

/* For kinds of files without tensor names: append a tensor with the name of the file, less its ending. */
static int name_after_file(model *m, char *error)
{
    const char *base = path_name(m->path), *dot = strrchr(base, '.');
    return model_tensor(m, base, dot && dot > base ? (size_t)(dot - base) : strlen(base))
         ? 0 : problem(error, m->path, NULL, "out of memory");
}

int model_parse(model *m, mpt_format raw, char *error)
{
    if (raw != MPT_FORMAT_COUNT)
        m->kind = KIND_RAW;
    else if (find_kind(m, error) != 0)
        return -1;
    switch (m->kind) {
    case KIND_SAFETENSORS: return safetensors_parse(m, error);
    case KIND_NPZ:         return zip_parse(m, error);
    case KIND_GGUF:        return gguf_parse(m, error);
    case KIND_ONNX:        return onnx_parse(m, error);
    default:               break;
    }
    if (name_after_file(m, error) != 0)
        return -1;
    return m->kind == KIND_NPY ? npy_parse(m, m->tensors, m->src.size, error)
         : m->kind == KIND_CSV ? csv_parse(m, error) : raw_parse(m, raw, error);
}

int model_open(model *m, const char *path, int map, mpt_format raw, char *error)
{
    memset(m, 0, sizeof *m);
    m->path = path;
    if (source_open(&m->src, path, map, error) != 0)
        return -1;
    if (model_parse(m, raw, error) == 0) {
        source_leave(&m->src);
        return 0;
    }
    model_close(m);
    return -1;
}

void model_close(model *m)
{
    size_t i;
    for (i = 0; i < m->count; i++)
        free(m->tensors[i].name);
    for (i = 0; i < m->metadata_count; i++) {
        free(m->metadata[i].key);
        free(m->metadata[i].value);
    }
    for (i = 0; i < m->text_count; i++)
        free(m->texts[i]);
    for (i = 0; i < m->part_count; i++) {
        source_close(m->parts[i]);
        free(m->parts[i]);
    }
    free(m->texts);
    free(m->parts);
    free(m->tensors);
    free(m->metadata);
    source_close(&m->src);
    memset(m, 0, sizeof *m);
}

/* ---- the values of a tensor ---- */

void stream_init(stream *s, model *m, const tensor *t)
{
    memset(s, 0, sizeof *s - sizeof s->block);
    s->m = m;
    s->t = t;
}

static int csv_problem(stream *s, const char *why)
{
    return problem(s->error, s->m->path, NULL, "line %llu: %s", (ull)s->line + 1, why);
}

static int csv_end_of_line(stream *s)
{
    if (s->column && !s->after_value)
        return csv_problem(s, "no number after the last separator");
    if (s->column && s->columns && s->column != s->columns)
        return problem(s->error, s->m->path, NULL, "line %llu: %llu numbers, the lines before have %llu",
                       (ull)s->line + 1, (ull)s->column, (ull)s->columns);
    if (s->column == 2 && s->titled == 1 && s->separator == ',')
        return csv_problem(s, "two numbers under one title; write decimals with points, not commas");
    s->rows += s->column != 0;
    s->columns = s->column ? s->column : s->columns;
    s->column = 0;
    s->skipping = s->after_value = 0;
    s->line++;
    return 0;
}

/* Convert a word to a number. Returns 1; -1 if it is none; 0 if it is a title, as in the first line. */
static int csv_number(stream *s, const unsigned char *word, size_t n, double *x)
{
    char  text[1024], shown[80], why[120];
    char *end = NULL;
    if (n >= sizeof text)
        return csv_problem(s, "a cell has more than 1023 characters");
    if (memchr(word, 0, n))
        return csv_problem(s, "a cell holds a NUL character");
    memcpy(text, word, n);
    text[n] = 0;
    *x = strtod(text, &end);
    if (end != text && !*end)
        return 1;
    if (!s->column && !s->rows && !s->titled) {
        s->titled = s->skipping = 1;
        return 0;
    }
    (void)text_safe(shown, sizeof shown, text, 40);
    (void)snprintf(why, sizeof why, "'%s' is not a number", shown);
    return csv_problem(s, why);
}

static int is_blank(unsigned char c) { return c == ' ' || c == '\t' || c == '\r'; }
static int is_separator(unsigned char c) { return c == ',' || c == ';'; }

/* Check that a file uses one separator only. In a file with both ',' and ';', or with ',' and blanks, the
 * commas are probably decimal commas, and each number would be read as two. */
static int csv_separated(stream *s, unsigned char by)
{
    if (s->separator && s->separator != by)
        return csv_problem(s, "different separators; write decimals with points, not commas");
    s->separator = by;
    return 0;
}

/* Read numbers from text[0 .. size) until the text is used up or the block is full. A word that reaches the
 * end of the text is left for the next call, unless it is the `last` text. Returns the bytes used, or -1. */
static long csv_block(stream *s, const unsigned char *text, size_t size, int last, size_t *filled)
{
    size_t i = 0;
    while (i < size && *filled < CHUNK / sizeof(double)) {
        const unsigned char c = text[i];
        size_t              end = i + 1;
        if (c == '\n') {
            if (csv_end_of_line(s) != 0)
                return -1;
        } else if (s->skipping || is_blank(c)) {
            s->titled += s->titled == 1 && !s->rows && is_separator(c);
        } else if (c == '#' && !s->column) {
            s->skipping = 1;
        } else if (is_separator(c)) {
            if (!s->after_value)
                return csv_problem(s, "no number before a separator");
            s->after_value = 0;
            if (csv_separated(s, c) != 0)
                return -1;
        } else {
            double x = 0.0;
            int    code;
            if (s->after_value && csv_separated(s, ' ') != 0)
                return -1;
            while (end < size && !is_blank(text[end]) && !is_separator(text[end]) && text[end] != '\n')
                end++;
            if (end == size && !last && i > 0)
                break;
            code = csv_number(s, text + i, end - i, &x);
            if (code < 0)
                return -1;
            if (code) {
                s->block.d[(*filled)++] = x;
                s->column++;
                s->after_value = 1;
            }
        }
        i = end;
    }
    return (long)i;
}

static int csv_next(stream *s, const void **x, size_t *n)
{
    const unsigned char *mark = s->at || s->m->src.size < 3 ? NULL : source_view(&s->m->src, 0, 3);
    *n = 0;
    if (mark && !memcmp(mark, "\xef\xbb\xbf", 3))     /* skip the byte-order mark of UTF-8 */
        s->at = 3;
    while (s->at < s->m->src.size && *n < CHUNK / sizeof(double)) {
        const uint64_t       left = s->m->src.size - s->at;
        const size_t         size = left < CHUNK ? (size_t)left : CHUNK;
        const unsigned char *text = source_view(&s->m->src, s->at, size);
        const long           used = text ? csv_block(s, text, size, size == left, n) : -1;
        if (!text)
            return problem(s->error, s->m->path, NULL, "reading failed at byte %llu", (ull)s->at);
        if (used < 0)
            return -1;
        s->at += (uint64_t)used;
    }
    if (s->at == s->m->src.size && s->column && csv_end_of_line(s) != 0)
        return -1;
    *x = s->block.d;
    return *n > 0;
}

int stream_next(stream *s, const void **x, size_t *n)
{
    const tensor        *t = s->t;
    const size_t         size = format_bytes(t->format);
    const uint64_t       left = t->bytes - s->at;
    const size_t         take = left < CHUNK ? (size_t)left : CHUNK;
    const unsigned char *p;
    if (s->m->kind == KIND_CSV)
        return csv_next(s, x, n);
    if (!take)
        return 0;
    p = source_view(tensor_source(s->m, t), t->offset + s->at, take);
    if (!p)
        return problem(s->error, s->m->path, t->name, "reading failed at byte %llu of the file",
                       (ull)(t->offset + s->at));
    if ((t->swap && size > 1) || (uintptr_t)p % size) {
        memcpy(s->block.bytes, p, take);
        if (t->swap)
            swap_bytes(s->block.bytes, take, size);
        p = s->block.bytes;
    }
    s->at += take;
    *x = p;
    *n = take / size;
    return 1;
}
