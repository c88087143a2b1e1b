/* safetensors.c -- the header of a .safetensors file: 8 bytes of length, a JSON object, then the values.
 *
 * cJSON parses the object, but it reads numbers as doubles, may ignore case in keys, accepts duplicate keys
 * and ends a string at an escaped NUL. So check_text looks at the text first: bounded depth and number of
 * values, only integers from 0 to 2^53, UTF-8, no NUL characters. Sorting then finds duplicates, overlaps and
 * gaps. The rules are those of the format's documentation. */
#include "inspect.h"

#include <cJSON.h>

enum { MAX_HEADER = 100000000, MAX_DEPTH = 3, MAX_VALUES = 2000000 };

/* ---- the text before cJSON sees it ---- */

/* Skip the white space at text[i]. Returns the index after it. */
static size_t blanks(const char *text, size_t n, size_t i)
{
    while (i < n && text[i] && strchr(" \t\r\n", text[i]))
        i++;
    return i;
}

/* Check the string that starts at text[i]. Returns the index after it, or 0 with a reason if it is bad. */
static size_t check_string(const char *text, size_t n, size_t i, const char **why)
{
    for (i++; i < n && text[i] != '"'; i++) {
        if ((unsigned char)text[i] < 0x20) {
            *why = "a string holds a control character";
            return 0;
        }
        if (text[i] == '\\' && n - i > 5 && !memcmp(text + i, "\\u0000", 6)) {
            *why = "a string holds an escaped NUL character";
            return 0;
        }
        i += text[i] == '\\';
    }
    if (i < n)
        return i + 1;
    *why = "a string is not closed";
    return 0;
}

static size_t check_number(const char *text, size_t n, size_t i, const char **why)
{
    uint64_t     x = 0;
    const size_t first = i;
    for (; i < n && text[i] >= '0' && text[i] <= '9' && i - first < 17; i++)
        x = x * 10 + (uint64_t)(text[i] - '0');
    if (i < n && strchr("0123456789.eE+-", text[i])) {
        *why = i - first >= 17 ? "a number is above 2^53" : "a number is not a non-negative integer";
        return 0;
    }
    if (x > (uint64_t)1 << 53) {
        *why = "a number is above 2^53";
        return 0;
    }
    if (text[first] == '0' && i - first > 1) {
        *why = "a number has a leading zero";
        return 0;
    }
    return i;
}

static const char *check_text(const char *text, size_t n)
{
    const char *why = NULL;
    size_t      i = 0, values = 0;
    int         depth = 0;
    if (!utf8_valid(text, n))
        return "it is not valid UTF-8";
    i = blanks(text, n, 0);
    if (i == n || text[i] != '{')
        return "it does not start with '{'";
    while (i < n) {
        const char c = text[i];
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        values += c == ',' || c == '{' || c == '[';
        if (depth > MAX_DEPTH)
            return "it is nested deeper than 3 levels";
        if (values > MAX_VALUES)
            return "it has more than 2000000 values";
        i = c == '"' ? check_string(text, n, i, &why)
          : c == '-' || (c >= '0' && c <= '9') ? check_number(text, n, i, &why) : i + 1;
        if (!i)
            return why;
    }
    return NULL;
}

/* ---- the object ---- */

static int check_duplicates(model *m, const cJSON *object, const char *name, char *error)
{
    const cJSON *item;
    const char **keys, *key;
    char         shown[80];
    size_t       n = 0;
    for (item = object->child; item; item = item->next)
        n++;
    keys = (const char **)malloc((n + 1) * sizeof *keys);
    if (!keys)
        return problem(error, m->path, name, "out of memory");
    for (item = object->child, n = 0; item; item = item->next)
        keys[n++] = item->string;
    key = twice(keys, n);
    free(keys);
    if (!key)
        return 0;
    (void)text_safe(shown, sizeof shown, key, 60);
    return problem(error, m->path, name, "the key '%s' occurs twice", shown);
}

static int set_shape(model *m, tensor *t, const cJSON *shape, char *error)
{
    const cJSON *item;
    if (!cJSON_IsArray(shape))
        return problem(error, m->path, t->name, "shape is missing or not a list");
    for (item = shape->child; item; item = item->next) {
        if (!cJSON_IsNumber(item))
            return problem(error, m->path, t->name, "the shape holds something that is not a number");
        if (t->dims == MAX_DIMS)
            return problem(error, m->path, t->name, "the shape has more than %d dimensions", MAX_DIMS);
        t->shape[t->dims++] = (uint64_t)item->valuedouble;
    }
    return tensor_count(m, t, error);
}

static int set_offsets(model *m, tensor *t, const cJSON *offsets, uint64_t data, int bits, char *error)
{
    const cJSON   *first = cJSON_IsArray(offsets) ? offsets->child : NULL;
    const cJSON   *second = first ? first->next : NULL;
    const uint64_t room = m->src.size - data;
    uint64_t       begin, end;
    if (!second || second->next || !cJSON_IsNumber(first) || !cJSON_IsNumber(second))
        return problem(error, m->path, t->name, "data_offsets is missing or not a list of two numbers");
    begin = (uint64_t)first->valuedouble;
    end = (uint64_t)second->valuedouble;
    if (begin > end)
        return problem(error, m->path, t->name, "its data ends (%llu) before it begins (%llu)",
                       (ull)end, (ull)begin);
    if (end > room)
        return problem(error, m->path, t->name, "truncated: its data ends at %llu, the file has %llu bytes "
                       "of data", (ull)end, (ull)room);
    t->offset = data + begin;
    t->bytes = end - begin;
    return tensor_bytes(m, t, bits, error);
}

static int set_tensor(model *m, const cJSON *item, uint64_t data, char *error)
{
    const cJSON       *name;
    const number_type *type;
    tensor            *t = model_tensor(m, item->string, strlen(item->string));
    if (!t)
        return problem(error, m->path, NULL, "out of memory");
    if (!cJSON_IsObject(item))
        return problem(error, m->path, t->name, "its entry is not an object");
    if (check_duplicates(m, item, t->name, error) != 0)
        return -1;
    name = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    if (!cJSON_IsString(name))
        return problem(error, m->path, t->name, "dtype is missing or not a string");
    type = find_type(name->valuestring);
    if (!type || strcmp(type->name, name->valuestring) != 0) {
        char shown[48];
        (void)text_safe(shown, sizeof shown, name->valuestring, 30);
        return problem(error, m->path, t->name, "dtype '%s' is not known", shown);
    }
    t->type = type->name;
    t->format = type->format;
    if (set_shape(m, t, cJSON_GetObjectItemCaseSensitive(item, "shape"), error) != 0)
        return -1;
    return set_offsets(m, t, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), data, type->bits,
                       error);
}

static int set_metadata(model *m, const cJSON *object, char *error)
{
    const cJSON *item;
    size_t       n = 0;
    if (!cJSON_IsObject(object))
        return problem(error, m->path, NULL, "__metadata__ is not an object");
    if (check_duplicates(m, object, "__metadata__", error) != 0)
        return -1;
    for (item = object->child; item; item = item->next)
        n++;
    m->metadata = (pair *)calloc(n + 1, sizeof *m->metadata);
    if (!m->metadata)
        return problem(error, m->path, NULL, "out of memory");
    for (item = object->child; item; item = item->next) {
        pair *p = &m->metadata[m->metadata_count++];
        if (!cJSON_IsString(item))
            return problem(error, m->path, NULL, "__metadata__ holds something that is not a string");
        p->key = copy_text(item->string, strlen(item->string));
        p->value = copy_text(item->valuestring, strlen(item->valuestring));
        if (!p->key || !p->value)
            return problem(error, m->path, NULL, "out of memory");
    }
    qsort(m->metadata, n, sizeof *m->metadata, by_text);
    return 0;
}

/* ---- the tensors' data must have no overlaps and no gaps ---- */

static int by_offset(const void *a, const void *b)
{
    const tensor *x = (const tensor *)a, *y = (const tensor *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int check_layout(model *m, uint64_t data, char *error)
{
    uint64_t end = data;
    size_t   i;
    if (m->count)
        qsort(m->tensors, m->count, sizeof *m->tensors, by_offset);
    for (i = 0; i < m->count; i++) {
        const tensor *t = &m->tensors[i];
        char          shown[80] = "";
        if (i)
            (void)text_safe(shown, sizeof shown, t[-1].name, 60);
        if (t->offset < end)
            return problem(error, m->path, t->name, "its data overlaps that of '%s'", shown);
        if (t->offset > end)
            return problem(error, m->path, t->name, "%llu bytes before its data belong to no tensor",
                           (ull)(t->offset - end));
        end += t->bytes;
    }
    if (end != m->src.size)
        return problem(error, m->path, NULL, "%llu bytes at the end belong to no tensor",
                       (ull)(m->src.size - end));
    return 0;
}

static int set_all(model *m, const cJSON *root, uint64_t data, char *error)
{
    const cJSON *item;
    if (!cJSON_IsObject(root))
        return problem(error, m->path, NULL, "bad header: it is not a JSON object");
    if (check_duplicates(m, root, NULL, error) != 0)
        return -1;
    for (item = root->child; item; item = item->next) {
        if (!strcmp(item->string, "__metadata__")) {
            if (set_metadata(m, item, error) != 0)
                return -1;
        } else if (set_tensor(m, item, data, error) != 0)
            return -1;
    }
    return check_layout(m, data, error);
}

static int parse_text(model *m, const char *text, size_t n, uint64_t data, char *error)
{
    const char *end = NULL, *why = check_text(text, n);
    cJSON      *root;
    int         code;
    if (why)
        return problem(error, m->path, NULL, "bad header: %s", why);
    root = cJSON_ParseWithLengthOpts(text, n, &end, 0);
    if (!root)
        return problem(error, m->path, NULL, "bad header: not JSON, or out of memory, near byte %llu",
                       (ull)(end && end >= text ? end - text : 0));
    code = blanks(text, n, (size_t)(end - text)) == n ? set_all(m, root, data, error)
         : problem(error, m->path, NULL, "bad header: there is text after the JSON object");
    cJSON_Delete(root);
    return code;
}

int safetensors_parse(model *m, char *error)
{
    unsigned char head[8];
    uint64_t      length;
    char         *text;
    int           code;
    if (m->src.size < 8 || source_read(&m->src, 0, head, 8) != 0)
        return problem(error, m->path, NULL, "truncated: a .safetensors file has at least 8 bytes");
    length = little_endian(head, 8);
    if (length > m->src.size - 8)
        return problem(error, m->path, NULL, "truncated: the header claims %llu bytes, the file has %llu "
                       "left", (ull)length, (ull)(m->src.size - 8));
    if (length > MAX_HEADER)
        return problem(error, m->path, NULL, "the header claims %llu bytes, the format allows %d",
                       (ull)length, MAX_HEADER);
    text = source_text(&m->src, 8, length, MAX_HEADER);
    if (!text)
        return problem(error, m->path, NULL, "the header cannot be read");
    code = parse_text(m, text, (size_t)length, 8 + length, error);
    free(text);
    return code;
}
