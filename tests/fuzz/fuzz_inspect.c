/* fuzz_inspect.c -- fuzz target for the parsers and the converter of examples/inspect. The first byte tells
 * what kind of file the rest is. A file that parses is scanned, converted in memory and parsed again; the
 * copy must have the same tensors, and numbers of NaN, Inf and nonzero values that agree with the first scan.
 * Links with the .c files of examples/inspect and cJSON. Works with libFuzzer and with afl-clang-fast (the
 * same entry point). */
#include "examples/inspect/convert.h"       /* first: it requests POSIX functions */
#include "fuzz.h"

enum { LARGEST = 1 << 17 };

static void parse(model *m, const char *path, const void *data, size_t size, mpt_format raw, int *ok)
{
    char error[ERROR_TEXT];
    memset(m, 0, sizeof *m);
    m->path = path;
    source_memory(&m->src, data, size);
    error[0] = 0;
    *ok = model_parse(m, raw, error) == 0;
    must(*ok || error[0]);
    must(strlen(error) < ERROR_TEXT && utf8_valid(error, strlen(error)));
    must(!strchr(error, '\033') && !strchr(error, '\n'));
}

/* Every tensor must lie within the file, and every value must be counted once. */
static void scan_all(model *m, const options *o, result *total)
{
    char   error[ERROR_TEXT], words[VERDICT];
    size_t i;
    memset(total, 0, sizeof *total);
    for (i = 0; i < m->count; i++) {
        const tensor *t = &m->tensors[i];
        scan          s;
        result        r;
        scan_init(&s);
        memset(&r, 0, sizeof r);
        must(t->offset <= tensor_source(m, t)->size && t->bytes <= tensor_source(m, t)->size - t->offset);
        if (t->format != MPT_FORMAT_COUNT)
            must(scan_tensor(&s, &r, m, t, o, error) == 0);
        verdict(words, sizeof words, t, &r, o);
        must(words[0] != 0 && strlen(words) < 100);
        must(t->format == MPT_FORMAT_COUNT || r.count == t->count);
        must(r.zero + r.nonzero + r.inf + r.nan == r.count);
        total->count += r.count;
        total->nonzero += r.nonzero;
        total->nan += r.nan;
        total->inf += r.inf;
    }
}

static void convert(model *m, options *o, const result *before)
{
    static char bytes[16 * LARGEST];
    char        error[ERROR_TEXT];
    step       *steps;
    FILE       *out;
    long        size;
    model       copy;
    result      after;
    int         ok;
    o->formats[0] = o->to;
    o->format_count = 1;
    steps = convert_plan(m, o, error);
    if (!steps)
        return;
    out = fmemopen(bytes, sizeof bytes, "w+");
    must(out != NULL);
    ok = convert_write(out, m, steps, o, error) == 0 && fflush(out) == 0;
    size = ftell(out);
    (void)fclose(out);
    free(steps);
    if (!ok || (size_t)size >= sizeof bytes - 1)
        return;
    parse(&copy, "copy.safetensors", bytes, (size_t)size, MPT_FORMAT_COUNT, &ok);
    must(ok && copy.count == m->count);
    scan_all(&copy, o, &after);
    must(after.count == before->count && after.nonzero <= before->nonzero + before->inf);
    must(after.nan >= before->nan && after.nan <= before->nan + before->inf);
    must(o->saturate || after.inf <= before->inf);
    model_close(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const options    defaults = {
        .formats = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2}, .format_count = 4, .tolerate = -1.0, .map = 1,
        .width = 110, .raw = MPT_FORMAT_COUNT, .to = MPT_FORMAT_COUNT};
    static const char *const paths[4] = {"x.safetensors", "x.npy", "x.csv", "x"};
    static const mpt_format raws[4] = {MPT_F32, MPT_F64, MPT_BF16, MPT_E4M3};
    options                 o = defaults;
    model                   m;
    result                  total;
    const char             *path;
    int                     ok, kind;
    if (!size || size > LARGEST)
        return 0;
    kind = data[0] & 3;
    /* the parser recognizes archives and GGUF by their first bytes */
    path = kind == 1 && data[0] >> 6 == 1 ? "x.onnx" : paths[kind];
    parse(&m, path, data + 1, size - 1, kind == 3 ? raws[data[0] >> 6] : MPT_FORMAT_COUNT, &ok);
    if (ok) {
        scan_all(&m, &o, &total);
        o.to = defaults.formats[data[0] >> 2 & 3];
        o.saturate = data[0] >> 4 & 1;
        o.scale_auto = data[0] >> 5 & 1;
        o.log2_scale = (data[0] >> 6) * 40 - 60;
        o.convert = "copy.safetensors";
        convert(&m, &o, &total);
    }
    model_close(&m);
    return 0;
}
