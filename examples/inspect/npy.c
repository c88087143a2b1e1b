/* npy.c -- NumPy .npy, versions 1, 2 and 3 (numpy.lib.format): a magic string, a length, a Python dict with
 * three keys as text, then the values. A dict of any other form is refused. */
#include "inspect.h"

enum { MAX_HEADER = 1 << 16 };

typedef struct cursor { const char *p, *end; } cursor;

static void blanks(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t'))
        c->p++;
}

static int take(cursor *c, char wanted)
{
    blanks(c);
    if (c->p == c->end || *c->p != wanted)
        return 0;
    c->p++;
    return 1;
}

static int take_word(cursor *c, const char *word)
{
    const size_t n = strlen(word);
    blanks(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return 0;
    c->p += n;
    return 1;
}

/* Read a quoted string of printable ASCII characters without backslashes. */
static int take_string(cursor *c, char *dst, size_t cap)
{
    char   quote;
    size_t n = 0;
    blanks(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return 0;
    quote = *c->p++;
    while (c->p < c->end && *c->p != quote) {
        if (*c->p < 0x20 || *c->p > 0x7e || *c->p == '\\' || n + 1 >= cap)
            return 0;
        dst[n++] = *c->p++;
    }
    dst[n] = 0;
    return c->p < c->end && *c->p++ == quote;
}

static int take_number(cursor *c, uint64_t *value)
{
    uint64_t    x = 0;
    const char *first;
    blanks(c);
    first = c->p;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        if (x > (INT64_MAX - (uint64_t)(*c->p - '0')) / 10)
            return 0;
        x = x * 10 + (uint64_t)(*c->p - '0');
    }
    *value = x;
    if (c->p < c->end && *c->p == 'L')      /* Python 2 wrote 3L */
        c->p++;
    return c->p > first;
}

static const char *take_shape(cursor *c, tensor *t)
{
    if (!take(c, '('))
        return "the shape is not a tuple";
    t->dims = 0;
    while (!take(c, ')')) {
        if (t->dims == MAX_DIMS)
            return "the shape has more than 32 dimensions";
        if (!take_number(c, &t->shape[t->dims]))
            return "a dimension of the shape is not a number from 0 to 2^63 - 1";
        t->dims++;
        if (!take(c, ',') && (t->dims == 1 || c->p == c->end || *c->p != ')'))
            return t->dims == 1 ? "the shape is not a tuple" : "the shape is not closed";
    }
    return NULL;
}

/* Skip a list such as [('x', '<f4'), ('y', '<f4')]: the type of an array of records, which is not read. */
static int skip_list(cursor *c)
{
    int depth = 0;
    do {
        if (c->p == c->end)
            return 0;
        depth += *c->p == '[' || *c->p == '(';
        depth -= *c->p == ']' || *c->p == ')';
        c->p++;
    } while (depth > 0);
    return 1;
}

static const char *take_type(model *m, tensor *t, cursor *c)
{
    char text[64];
    blanks(c);
    if (c->p < c->end && *c->p == '[') {
        t->type = "records";
        return skip_list(c) ? NULL : "the list of record fields is not closed";
    }
    if (!take_string(c, text, sizeof text))
        return "the type is not a plain string";
    t->type = model_text(m, text);
    return t->type ? NULL : "out of memory";
}

static const char *parse_dict(model *m, cursor *c, tensor *t)
{
    int         seen[3] = {0, 0, 0}, k;
    const char *why = NULL;
    char        key[32];
    static const char *const keys[3] = {"descr", "fortran_order", "shape"};
    if (!take(c, '{'))
        return "the header is not a dict";
    while (!take(c, '}')) {
        if (!take_string(c, key, sizeof key) || !take(c, ':'))
            return "the header is not a dict of plain keys";
        for (k = 0; k < 3 && strcmp(key, keys[k]) != 0; k++)
            ;
        if (k == 3)
            return "the header has an unknown key";
        if (seen[k]++)
            return "the header has a key twice";
        if (k == 0)
            why = take_type(m, t, c);
        else if (k == 1 && take_word(c, "True"))
            t->fortran = 1;
        else if (k == 1 && !take_word(c, "False"))
            why = "fortran_order is neither True nor False";
        else if (k == 2)
            why = take_shape(c, t);
        if (why)
            return why;
        if (!take(c, ',') && (c->p == c->end || *c->p != '}'))
            return "the header is not closed";
    }
    blanks(c);
    if (c->p != c->end)
        return "there is text after the header's dict";
    return seen[0] && seen[1] && seen[2] ? NULL : "the header lacks descr, fortran_order or shape";
}

/* Recognize types such as '<f4'. Arrays of other types are skipped. */
static void set_type(tensor *t)
{
    const char *s = t->type;
    t->format = MPT_FORMAT_COUNT;
    if (strlen(s) != 3 || s[1] != 'f' || !strchr("<>=", s[0]) || !find_type(s + 1))
        return;
    t->format = find_type(s + 1)->format;
    t->swap = s[0] != '=' && (s[0] == '<') != host_is_little();
}

/* Check that the `size` bytes after the header are exactly those of the values. */
static int check_size(model *m, tensor *t, uint64_t size, char *error)
{
    if (tensor_count(m, t, error) != 0)
        return -1;
    if (t->format == MPT_FORMAT_COUNT) {
        t->bytes = size;
        return 0;
    }
    t->bytes = t->count * format_bytes(t->format);
    if (t->bytes > size)
        return problem(error, m->path, NULL, "truncated: the shape asks for %llu values of type %s, the "
                       "file has %llu bytes for them", (ull)t->count, t->type, (ull)size);
    if (t->bytes < size)
        return problem(error, m->path, NULL, "%llu bytes follow the last value", (ull)(size - t->bytes));
    return 0;
}

int npy_parse(model *m, tensor *t, uint64_t bytes, char *error)
{
    source       *s = tensor_source(m, t);
    unsigned char head[12];
    char         *text;
    const char   *why;
    uint64_t      length, start;
    cursor        c;
    if (bytes < 10 || source_read(s, t->offset, head, 10) != 0)
        return problem(error, m->path, NULL, "truncated inside the .npy header");
    if (memcmp(head, "\x93NUMPY", 6) != 0)
        return problem(error, m->path, t->name, "does not start with the magic string of .npy files");
    if (head[6] < 1 || head[6] > 3)
        return problem(error, m->path, NULL, ".npy version %d.%d is not known", head[6], head[7]);
    start = head[6] == 1 ? 10 : 12;
    length = little_endian(head + 8, 2);
    if (start == 12) {
        if (bytes < 12 || source_read(s, t->offset, head, 12) != 0)
            return problem(error, m->path, NULL, "truncated inside the .npy header");
        length = little_endian(head + 8, 4);
    }
    if (length > bytes - start)
        return problem(error, m->path, NULL, "the .npy header claims %llu bytes, the file has %llu left",
                       (ull)length, (ull)(bytes - start));
    text = source_text(s, t->offset + start, length, MAX_HEADER);
    if (!text)
        return problem(error, m->path, NULL, "the .npy header of %llu bytes cannot be read, or is larger "
                       "than the limit of 64 KiB", (ull)length);
    c.p = text;
    c.end = text + length;
    why = parse_dict(m, &c, t);
    free(text);
    if (why)
        return problem(error, m->path, NULL, "bad .npy header: %s", why);
    set_type(t);
    t->offset += start + length;
    return check_size(m, t, bytes - start - length, error);
}
