/* pickle.c -- finds the tensors of a PyTorch pickle. A pickle is a program for a stack machine and may call
 * any function. This reader calls none: it knows the instructions that build dicts, lists, tuples, numbers,
 * texts and tensors, and refuses all others. Source: Lib/pickletools.py of CPython; torch/_utils.py. */
#include "inspect.h"

#include <stdarg.h>

enum { MAX_NODES = 1 << 22, MAX_DEPTH = 32, MAX_PATH = 1000 };

typedef enum node_kind {
    NODE_NOTHING, NODE_INT, NODE_TEXT, NODE_LIST, NODE_DICT, NODE_GLOBAL, NODE_STORAGE, NODE_TENSOR, NODE_MARK
} node_kind;

/* One value. Items are indices into machine.nodes: of a dict, keys and values in turn; of a storage, its key
 * (its type is `text`); of a tensor, its storage, offset, shape, stride and, if it has one, data type. */
typedef struct node {
    node_kind kind;
    int64_t   number;
    char     *text;
    size_t   *item, count;
} node;

typedef struct machine {
    const unsigned char *at, *end;
    node   *nodes;
    size_t  count;
    size_t *stack, height;
    size_t *memo, memo_count;           /* indices of the nodes that the pickle stored; 0: none */
    size_t  visits;
    char   *why;
    size_t  why_cap;
    int     (*found)(void *user, const pickled *t);
    void   *user;
    char    path[MAX_PATH];
} machine;

static int refuse(machine *v, const char *format, ...) LIKE_PRINTF(2, 3);
static int refuse(machine *v, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(v->why, v->why_cap, format, args);
    va_end(args);
    return -1;
}

static int damaged(machine *v) { return refuse(v, "its pickle is truncated or damaged"); }

/* ---- nodes and the stack ---- */

/* Returns the index of a new node; 0, which is never used, if there are too many or no memory is left. */
static size_t node_new(machine *v, node_kind kind, int64_t number)
{
    node *more = v->count < MAX_NODES ? (node *)grow(v->nodes, v->count, sizeof *more) : NULL;
    if (!more)
        return 0;
    v->nodes = more;
    memset(&more[v->count], 0, sizeof *more);
    more[v->count].kind = kind;
    more[v->count].number = number;
    return v->count++;
}

static int append(machine *v, size_t to, size_t what)
{
    node   *n = &v->nodes[to];
    size_t *more = (size_t *)grow(n->item, n->count, sizeof *more);
    if (!more)
        return refuse(v, "out of memory");
    n->item = more;
    n->item[n->count++] = what;
    return 0;
}

static int push(machine *v, size_t what)
{
    size_t *more = what ? (size_t *)grow(v->stack, v->height, sizeof *more) : NULL;
    if (!more)
        return refuse(v, "out of memory, or a pickle of more than four million values");
    v->stack = more;
    v->stack[v->height++] = what;
    return 0;
}

/* Remove and return the value on top; 0 if there is none. */
static size_t pop(machine *v)
{
    if (!v->height || v->nodes[v->stack[v->height - 1]].kind == NODE_MARK)
        return 0;
    return v->stack[--v->height];
}

static size_t top(const machine *v) { return v->height ? v->stack[v->height - 1] : 0; }

/* Stack index of the first value above the last mark; SIZE_MAX if there is no mark. */
static size_t last_mark(const machine *v)
{
    size_t i = v->height;
    while (i && v->nodes[v->stack[i - 1]].kind != NODE_MARK)
        i--;
    return i ? i : SIZE_MAX;
}

/* ---- instructions ---- */

static uint64_t take(machine *v, int bytes)
{
    if (v->end - v->at < bytes) {
        v->at = v->end;
        return 0;
    }
    v->at += bytes;
    return little_endian(v->at - bytes, bytes);
}

static int push_text(machine *v, node_kind kind, const unsigned char *text, uint64_t n)
{
    const size_t it = node_new(v, kind, 0);
    if (!it)
        return push(v, 0);
    v->nodes[it].text = copy_text((const char *)text, (size_t)n);
    return v->nodes[it].text ? push(v, it) : refuse(v, "out of memory");
}

static int take_text(machine *v, int bytes)
{
    const uint64_t n = take(v, bytes);
    if (n > (uint64_t)(v->end - v->at))
        return damaged(v);
    v->at += n;
    return push_text(v, NODE_TEXT, v->at - n, n);
}

/* Read "module\nname\n" and push it as "module name". */
static int take_global(machine *v)
{
    const unsigned char *const start = v->at;
    const unsigned char       *end = start;
    int                        lines = 0;
    size_t                     it;
    char                      *line;
    for (; end < v->end && lines < 2; end++)
        lines += *end == '\n';
    if (lines < 2 || end - start > 400)
        return damaged(v);
    v->at = end;
    if (push_text(v, NODE_GLOBAL, start, (uint64_t)(end - start - 1)) != 0)
        return -1;
    it = top(v);
    line = strchr(v->nodes[it].text, '\n');
    if (line)
        *line = ' ';
    return 0;
}

static int stack_global(machine *v)
{
    const size_t name = pop(v), module = pop(v);
    char         text[400];
    if (!name || !module || v->nodes[name].kind != NODE_TEXT || v->nodes[module].kind != NODE_TEXT)
        return damaged(v);
    (void)snprintf(text, sizeof text, "%s %s", v->nodes[module].text, v->nodes[name].text);
    return push_text(v, NODE_GLOBAL, (const unsigned char *)text, strlen(text));
}

/* Move the values above the last mark into the list or dict `into`, or into a new list if that is 0. */
static int gather(machine *v, size_t into)
{
    const size_t first = last_mark(v);
    size_t       i, to = into;
    if (first == SIZE_MAX || (!into && !(to = node_new(v, NODE_LIST, 0))))
        return damaged(v);
    if (v->nodes[to].kind == NODE_DICT && (v->height - first) % 2)
        return damaged(v);
    for (i = first; i < v->height; i++)
        if (append(v, to, v->stack[i]) != 0)
            return -1;
    v->height = first - 1;
    return into ? 0 : push(v, to);
}

/* Move the values above the last mark into the list or dict below the mark. */
static int extend(machine *v, node_kind wanted)
{
    const size_t first = last_mark(v);
    if (first == SIZE_MAX || first < 2 || v->nodes[v->stack[first - 2]].kind != wanted)
        return damaged(v);
    return gather(v, v->stack[first - 2]);
}

static int put_one(machine *v, node_kind wanted)
{
    const size_t value = pop(v), key = wanted == NODE_DICT ? pop(v) : 1, to = top(v);
    if (!value || !key || !to || v->nodes[to].kind != wanted)
        return damaged(v);
    return (wanted == NODE_DICT && append(v, to, key) != 0) ? -1 : append(v, to, value);
}

static int make_tuple(machine *v, size_t n)
{
    const size_t it = node_new(v, NODE_LIST, 0);
    size_t       i;
    if (!it || v->height < n)
        return it ? damaged(v) : push(v, 0);
    for (i = v->height - n; i < v->height; i++)
        if (append(v, it, v->stack[i]) != 0)
            return -1;
    v->height -= n;
    return push(v, it);
}

/* Replace a persistent id, the tuple ("storage", type, key, device, count), by a storage. */
static int take_storage(machine *v)
{
    const size_t id = pop(v);
    size_t       it;
    const node  *n = id ? &v->nodes[id] : NULL;
    const char  *dot;
    if (!n || n->kind != NODE_LIST || n->count < 3 || v->nodes[n->item[2]].kind != NODE_TEXT ||
        v->nodes[n->item[1]].kind != NODE_GLOBAL)
        return damaged(v);
    it = node_new(v, NODE_STORAGE, 0);
    if (!it)
        return push(v, 0);
    n = &v->nodes[id];
    dot = strrchr(v->nodes[n->item[1]].text, ' ');
    v->nodes[it].text = copy_text(dot ? dot + 1 : "", dot ? strlen(dot + 1) : 0);
    if (!v->nodes[it].text || append(v, it, n->item[2]) != 0)
        return refuse(v, "out of memory");
    return push(v, it);
}

/* A call: only the functions that build plain containers and tensors are known. */
static int reduce(machine *v)
{
    const size_t args = pop(v), what = pop(v);
    const node  *a = args ? &v->nodes[args] : NULL;
    const char  *name;
    size_t       it, k;
    char         shown[120];
    if (!what || !a || v->nodes[what].kind != NODE_GLOBAL || a->kind != NODE_LIST)
        return damaged(v);
    name = v->nodes[what].text;
    if (!strcmp(name, "collections OrderedDict") && !a->count)
        return push(v, node_new(v, NODE_DICT, 0));
    if (!strcmp(name, "torch Size") && a->count == 1)
        return push(v, a->item[0]);
    if (!strncmp(name, "torch._utils _rebuild_parameter", 31) && a->count &&
        v->nodes[a->item[0]].kind == NODE_TENSOR)
        return push(v, a->item[0]);
    if (strncmp(name, "torch._utils _rebuild_tensor", 28) != 0 || a->count < 4) {
        (void)text_safe(shown, sizeof shown, name, 100);
        return refuse(v, "asks to call '%s'; only plain tensors are read: save a state_dict", shown);
    }
    it = node_new(v, NODE_TENSOR, 0);
    if (!it)
        return push(v, 0);
    for (k = 0; k < 4; k++)
        if (append(v, it, v->nodes[args].item[k]) != 0)
            return -1;
    a = &v->nodes[args];
    if (!strcmp(v->nodes[what].text, "torch._utils _rebuild_tensor_v3") && a->count > 6 &&
        append(v, it, a->item[6]) != 0)
        return -1;
    return push(v, it);
}

/* The pickle asks for an object of a class: refuse, and name the class. */
static int refuse_object(machine *v)
{
    char   shown[120] = "?";
    size_t i;
    for (i = v->height; i && v->height - i < 3; i--)
        if (v->nodes[v->stack[i - 1]].kind == NODE_GLOBAL)
            (void)text_safe(shown, sizeof shown, v->nodes[v->stack[i - 1]].text, 100);
    return refuse(v, "asks to create a '%s'; only plain tensors are read: save a state_dict", shown);
}

static int keep(machine *v, uint64_t at)
{
    if (!top(v) || at > MAX_NODES)
        return damaged(v);
    if (at >= v->memo_count) {
        const size_t more = 2 * (size_t)at + 64;
        size_t      *memo = (size_t *)realloc(v->memo, more * sizeof *memo);
        if (!memo)
            return refuse(v, "out of memory");
        memset(memo + v->memo_count, 0, (more - v->memo_count) * sizeof *memo);
        v->memo = memo;
        v->memo_count = more;
    }
    v->memo[at] = top(v);
    return 0;
}

static int recall(machine *v, uint64_t at)
{
    return at < v->memo_count && v->memo[at] ? push(v, v->memo[at]) : damaged(v);
}

/* Push an integer: a byte with its length, then 0 to 8 bytes, two's complement. Tensors need no more. */
static int take_long(machine *v)
{
    const uint64_t n = take(v, 1), x = n && n <= 8 ? take(v, (int)n) : 0;
    const uint64_t sign = n && n < 8 ? (uint64_t)1 << (8 * n - 1) : 0;
    if (n > 8)
        return refuse(v, "holds an integer of more than 64 bits");
    return push(v, node_new(v, NODE_INT, (int64_t)((x ^ sign) - sign)));
}

/* Interpret one instruction. Returns 0 or -1. */
static int step_machine(machine *v, uint64_t *memoized)
{
    const unsigned op = (unsigned)take(v, 1);
    switch (op) {
    case 0x80: return take(v, 1) <= 5 ? 0 : damaged(v);
    case 0x95: (void)take(v, 8); return 0;              /* a frame: its length is not needed */
    case '}': return push(v, node_new(v, NODE_DICT, 0));
    case ']': case ')': return push(v, node_new(v, NODE_LIST, 0));
    case '(': return push(v, node_new(v, NODE_MARK, 0));
    case 'X': case 'T': case 'B': return take_text(v, 4);
    case 0x8c: case 'U': case 'C': return take_text(v, 1);
    case 0x8d: case 0x8e: return take_text(v, 8);
    case 'q': return keep(v, take(v, 1));
    case 'r': return keep(v, take(v, 4));
    case 0x94: return keep(v, (*memoized)++);
    case 'h': return recall(v, take(v, 1));
    case 'j': return recall(v, take(v, 4));
    case 'c': return take_global(v);
    case 0x93: return stack_global(v);
    case 't': return gather(v, 0);
    case 0x85: case 0x86: case 0x87: return make_tuple(v, op - 0x84);
    case 'Q': return take_storage(v);
    case 'J': return push(v, node_new(v, NODE_INT, (int32_t)take(v, 4)));
    case 'K': return push(v, node_new(v, NODE_INT, (int64_t)take(v, 1)));
    case 'M': return push(v, node_new(v, NODE_INT, (int64_t)take(v, 2)));
    case 0x8a: return take_long(v);
    case 'G': (void)take(v, 8); return push(v, node_new(v, NODE_NOTHING, 0));
    case 'N': case 0x88: case 0x89: return push(v, node_new(v, NODE_NOTHING, 0));
    case 'R': return reduce(v);
    case 's': return put_one(v, NODE_DICT);
    case 'a': return put_one(v, NODE_LIST);
    case 'u': return extend(v, NODE_DICT);
    case 'e': return extend(v, NODE_LIST);
    case 'b':                                           /* the attributes of a dict, such as _metadata */
        if (!pop(v) || !top(v) || v->nodes[top(v)].kind != NODE_DICT)
            return refuse(v, "sets the state of an object; only plain tensors are read: save a state_dict");
        return 0;
    case 0x81: case 0x92: return refuse_object(v);
    default: return refuse(v, "its pickle has the instruction 0x%02x, which plain tensors do not need", op);
    }
}

/* ---- the tensors among the values ---- */

static int find_tensor(machine *v, const node *n)
{
    const node *storage = &v->nodes[n->item[0]], *offset = &v->nodes[n->item[1]];
    const node *shape = &v->nodes[n->item[2]], *stride = &v->nodes[n->item[3]];
    pickled     t;
    size_t      k;
    memset(&t, 0, sizeof t);
    if (storage->kind != NODE_STORAGE || offset->kind != NODE_INT || offset->number < 0 ||
        shape->kind != NODE_LIST || stride->kind != NODE_LIST || shape->count != stride->count ||
        shape->count > MAX_DIMS)
        return damaged(v);
    t.name = v->path;
    t.type = storage->text;
    if (n->count > 4 && v->nodes[n->item[4]].kind == NODE_GLOBAL)
        t.type = v->nodes[n->item[4]].text + strcspn(v->nodes[n->item[4]].text, " ");
    t.type += *t.type == ' ';
    t.storage = v->nodes[storage->item[0]].text;
    t.offset = (uint64_t)offset->number;
    t.dims = (int)shape->count;
    for (k = 0; k < shape->count; k++) {
        const node *a = &v->nodes[shape->item[k]], *b = &v->nodes[stride->item[k]];
        if (a->kind != NODE_INT || b->kind != NODE_INT || a->number < 0 || b->number < 0)
            return damaged(v);
        t.shape[k] = (uint64_t)a->number;
        t.stride[k] = (uint64_t)b->number;
    }
    return v->found(v->user, &t);
}

/* Report all tensors below a value. A tensor's name is the path of keys and indices to it, joined by dots. */
static int walk(machine *v, size_t it, size_t length, int depth)
{
    const node  *n = &v->nodes[it];
    const size_t each = n->kind == NODE_DICT ? 2 : 1;
    size_t       i;
    if (n->kind == NODE_TENSOR)
        return find_tensor(v, n);
    if (n->kind != NODE_LIST && n->kind != NODE_DICT)
        return 0;
    if (depth == MAX_DEPTH || v->visits++ > MAX_NODES)  /* a container may contain itself */
        return refuse(v, "is nested deeper than 32 levels, or contains itself");
    for (i = 0; i + each <= n->count; i += each) {
        const node *key = &v->nodes[n->item[i]];
        char        number[24];
        const char *word = each == 2 && key->kind == NODE_TEXT ? key->text : number;
        (void)snprintf(number, sizeof number, "%lld",
                       each == 2 && key->kind == NODE_INT ? (long long)key->number : (long long)(i / each));
        if (length + strlen(word) + 2 > sizeof v->path)
            return refuse(v, "holds a name of more than 1000 characters");
        (void)sprintf(v->path + length, "%s%s", length ? "." : "", word);
        if (walk(v, n->item[i + each - 1], strlen(v->path), depth + 1) != 0)
            return -1;
        v->path[length] = 0;
    }
    return 0;
}

int pickle_parse(const unsigned char *text, size_t n, int (*found)(void *user, const pickled *t), void *user,
                 char *why, size_t cap)
{
    machine  v;
    uint64_t memoized = 0;
    size_t   i;
    int      code;
    memset(&v, 0, sizeof v);
    v.count = 1;
    v.at = text;
    v.end = text + n;
    v.why = why;
    v.why_cap = cap;
    v.found = found;
    v.user = user;
    do                                      /* until the instruction '.', which ends a pickle */
        code = v.at < v.end ? step_machine(&v, &memoized) : damaged(&v);
    while (code == 0 && (v.at == v.end || *v.at != '.'));
    if (code == 0)
        code = v.height == 1 ? walk(&v, v.stack[0], 0, 0) : damaged(&v);
    for (i = 1; i < v.count; i++) {
        free(v.nodes[i].text);
        free(v.nodes[i].item);
    }
    free(v.nodes);
    free(v.stack);
    free(v.memo);
    return code;
}
