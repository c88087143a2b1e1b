/* convert.c -- writes the converted .safetensors file under a temporary name; renames it when complete. */
#include "convert.h"

#include <errno.h>
#include <math.h>
#if HAVE_POSIX
#include <fcntl.h>
#define MAKE_FOLDER(path)   mkdir(path, 0777)
#define REMOVE_FOLDER(path) rmdir(path)
#else
#define MAKE_FOLDER(path)   (-1)
#define REMOVE_FOLDER(path) (-1)
#endif

enum { BLOCK = 4096, CONVERT_NAME = 38 };

#define SCALE_KEY "mpt.scale."
#define NOTE_KEY  "mpt.note"
#define NOTE_TEXT "stored = value * scale; after loading, divide by mpt.scale.NAME, or by 1 if it is absent"

/* ---- the plan ---- */

int earlier_scale(const model *m, const tensor *t, double *scale, char *error)
{
    const size_t n = strlen(t->name) + sizeof SCALE_KEY;
    char        *key = (char *)malloc(n), *end;
    const pair  *found = NULL;
    int          e;
    if (!key)
        return problem(error, m->path, t->name, "out of memory");
    (void)snprintf(key, n, "%s%s", SCALE_KEY, t->name);
    if (m->metadata_count)
        found = (const pair *)bsearch(&key, m->metadata, m->metadata_count, sizeof *found, by_text);
    free(key);
    *scale = found ? strtod(found->value, &end) : 1.0;
    if (found && (!*found->value || *end || frexp(*scale, &e) != 0.5))
        return problem(error, m->path, t->name, "its scale in __metadata__ is not a power of two");
    return 0;
}

/* Whether the largest value overflows the format with that scale. */
static int overflows(const scan *s, mpt_format format, int log2_scale)
{
    unsigned flags = 0;
    (void)mpt_encode(format, ldexp(s->survey.max_abs, log2_scale), NULL, &flags);
    return (flags & MPT_FLAG_OVERFLOW) != 0;
}

static int plan_tensor(step *p, model *m, const tensor *t, const options *o, char *error)
{
    const int bits = mpt_format_get(o->to)->bits;
    double    earlier;
    scan      s;
    result    r;
    memset(p, 0, sizeof *p);
    p->t = t;
    p->to = t->format;
    if (!strcmp(t->name, "__metadata__"))
        return problem(error, m->path, t->name, "this name is reserved in .safetensors files");
    if (earlier_scale(m, t, &earlier, error) != 0)
        return -1;
    p->earlier = ilogb(earlier);
    if (t->scattered)
        return problem(error, m->path, t->name, "its dimensions are permuted; call .contiguous() first");
    if (t->format == MPT_FORMAT_COUNT && m->kind != KIND_SAFETENSORS &&
        !(m->kind == KIND_PYTORCH && t->bytes && !t->fortran && host_is_little() != t->swap))
        return problem(error, m->path, t->name, "type %s cannot be converted", t->type);
    if (t->format == MPT_FORMAT_COUNT || mpt_format_get(t->format)->bits < bits || t->format == o->to)
        return 0;
    p->to = o->to;
    scan_init(&s);
    if (scan_tensor(&s, &r, m, t, o, error) != 0)
        return -1;
    p->unfit = r.nan || r.inf || r.in[0].fits == FITS_NOT ||
               (r.in[0].fits == FITS_SCALED && !o->scale_auto);
    if (p->unfit && o->keep) {
        p->to = t->format;
        return 0;
    }
    p->log2_scale = o->scale_auto ? r.in[0].scaled.log2_scale : o->log2_scale;
    if (p->log2_scale + p->earlier < -1022 || p->log2_scale + p->earlier > 1022)
        return problem(error, m->path, t->name, "its scale would become 2^%d, which does not fit in a double",
                       p->log2_scale + p->earlier);
    if (o->saturate)
        return 0;
    if (r.inf && !mpt_format_get(o->to)->has_inf)
        return problem(error, m->path, t->name,
                       "holds Inf, but %s has no Inf; with --saturate it becomes the "
                       "largest number",
                       mpt_format_get(o->to)->name);
    if (overflows(&s, o->to, p->log2_scale))
        return problem(error, m->path, t->name,
                       "overflows %s with scale 2^%d; use --scale auto or --saturate",
                       mpt_format_get(o->to)->name, p->log2_scale);
    return 0;
}

/* ---- the header ---- */

static const char *type_of(const step *p)
{
    return p->to == MPT_FORMAT_COUNT ? p->t->type : find_type(mpt_format_get(p->to)->name)->name;
}

static uint64_t bytes_of(const step *p)
{
    return p->to == MPT_FORMAT_COUNT ? p->t->bytes
                                     : p->t->count * format_bytes(p->to);
}

/* Keys of __metadata__ from an earlier conversion are not copied: write_metadata writes them anew. */
static int is_ours(const char *key)
{
    return !strcmp(key, NOTE_KEY) || !strncmp(key, SCALE_KEY, sizeof SCALE_KEY - 1);
}

static int is_scaled(const step *p) { return p->log2_scale + p->earlier != 0; }

static void write_metadata(FILE *out, const model *m, const step *steps, size_t n)
{
    const char *before = "\"__metadata__\":{";
    size_t      i, scaled = 0;
    for (i = 0; i < n; i++)
        scaled += is_scaled(&steps[i]) != 0;
    if (scaled) {
        (void)fprintf(out, "%s\"" NOTE_KEY "\":\"" NOTE_TEXT "\"", before);
        before = ",";
    }
    for (i = 0; i < m->metadata_count; i++) {
        if (is_ours(m->metadata[i].key))
            continue;
        (void)fputs(before, out);
        text_json(out, m->metadata[i].key);
        (void)fputc(':', out);
        text_json(out, m->metadata[i].value);
        before = ",";
    }
    for (i = 0; i < n; i++)
        if (is_scaled(&steps[i])) {
            (void)fputs(",\"" SCALE_KEY, out);
            text_json_inside(out, steps[i].t->name);
            (void)fprintf(out, "\":\"%.17g\"", ldexp(1.0, steps[i].log2_scale + steps[i].earlier));
        }
    (void)fputs(*before != ',' ? "" : n ? "}," : "}", out);
}

/* Write the length, the JSON object, and blanks up to a multiple of 8, which aligns the values. */
static int write_header(FILE *out, const model *m, const step *steps, size_t n)
{
    uint64_t offset = 0;
    size_t   i;
    long     end;
    int      k;
    for (k = 0; k < 8; k++)
        (void)fputc(0, out);
    (void)fputc('{', out);
    write_metadata(out, m, steps, n);
    for (i = 0; i < n; i++) {
        const tensor *t = steps[i].t;
        (void)fputs(i ? "," : "", out);
        text_json(out, t->name);
        (void)fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", type_of(&steps[i]));
        for (k = 0; k < t->dims; k++)
            (void)fprintf(out, "%s%llu", k ? "," : "", (ull)t->shape[k]);
        (void)fprintf(out, "],\"data_offsets\":[%llu,", (ull)offset);
        offset += bytes_of(&steps[i]);
        (void)fprintf(out, "%llu]}", (ull)offset);
    }
    (void)fputc('}', out);
    while ((end = ftell(out)) > 0 && end % 8)
        (void)fputc(' ', out);
    if (end < 0 || fseek(out, 0, SEEK_SET) != 0)
        return -1;
    for (k = 0; k < 8; k++)
        (void)fputc((int)((((uint64_t)end - 8) >> 8 * k) & 0xff), out);
    return fseek(out, end, SEEK_SET);
}

/* ---- the values ---- */

/* Convert n doubles, which are already scaled, to the new format. The scale is a power of two and exact, so
 * they are rounded only once. With --saturate, an overflow becomes the largest number with its sign. */
static void store(step *p, const options *o, unsigned char *stored, double *x, size_t n)
{
    const double most = mpt_format_get(p->to)->max_finite;
    const uint64_t before = p->saturated;
    double       got[BLOCK];
    size_t       i;
    (void)mpt_convert_n(p->to, stored, MPT_F64, x, n, NULL, NULL);
    (void)mpt_convert_n(MPT_F64, got, p->to, stored, n, NULL, NULL);
    for (i = 0; i < n; i++) {
        const int    clamped = o->saturate && !isfinite(got[i]) && !isnan(x[i]);
        const double y = clamped ? copysign(most, x[i]) : got[i];
        if (isfinite(x[i])) {
            p->flushed += x[i] != 0.0 && y == 0.0;
            p->rounded += x[i] != y && !clamped;
        }
        if (isfinite(x[i]) && isfinite(y)) {
            p->signal += x[i] * x[i];
            p->noise += (x[i] - y) * (x[i] - y);
        }
        p->saturated += (uint64_t)clamped;
        x[i] = clamped ? y : x[i];
    }
    if (p->saturated != before)
        (void)mpt_convert_n(p->to, stored, MPT_F64, x, n, NULL, NULL);
}

/* Write, and keep errno of the first failure in p->failed, because later calls may change errno. */
static void put(FILE *out, step *p, const void *x, size_t size, size_t n)
{
    errno = 0;
    if (fwrite(x, size, n, out) != n && !p->failed)
        p->failed = errno;
}

/* Convert n values, in the tensor's own format and host byte order, and write them to the file. */
static void write_values(FILE *out, step *p, const options *o, const void *x, size_t n)
{
    const mpt_format from = p->t->format;
    const size_t     size = format_bytes(from);
    const size_t     small = format_bytes(p->to);
    double           wanted[BLOCK];
    unsigned char    stored[8 * BLOCK];
    const double     scale = ldexp(1.0, p->log2_scale);
    size_t           i, j;
    for (i = 0; i < n; i += BLOCK) {
        const size_t         take = n - i < BLOCK ? n - i : BLOCK;
        const unsigned char *bytes = (const unsigned char *)x + i * size;
        if (p->to == from) {
            memcpy(stored, bytes, take * size);
        } else {
            (void)mpt_convert_n(MPT_F64, wanted, from, bytes, take, NULL, NULL);
            for (j = 0; j < take; j++)
                wanted[j] *= scale;
            store(p, o, stored, wanted, take);
        }
        if (!host_is_little())
            swap_bytes(stored, take * small, small);
        put(out, p, stored, small, take);
    }
}

static int copy_bytes(FILE *out, model *m, step *s, char *error)
{
    const tensor *t = s->t;
    uint64_t      done = 0;
    while (done < t->bytes) {
        const size_t         take = t->bytes - done < CHUNK ? (size_t)(t->bytes - done) : CHUNK;
        const unsigned char *p = source_view(tensor_source(m, t), t->offset + done, take);
        if (!p)
            return problem(error, m->path, t->name, "reading failed");
        put(out, s, p, 1, take);
        done += take;
    }
    return 0;
}

/* Write an array in Fortran order (first index fastest) in C order (last index fastest), which .safetensors
 * requires. Only this function holds a whole tensor in memory. */
static int write_transposed(FILE *out, model *m, step *p, const options *o, stream *in, char *error)
{
    const tensor  *t = p->t;
    const size_t   size = format_bytes(t->format);
    unsigned char *all, line[8 * BLOCK];
    uint64_t       index[MAX_DIMS] = {0}, stride[MAX_DIMS], done = 0, from = 0;
    const void    *x;
    size_t         n, filled = 0;
    int            k, code;
    all = t->bytes < SIZE_MAX ? (unsigned char *)malloc((size_t)t->bytes + 1) : NULL;
    if (!all)
        return problem(error, m->path, t->name,
                       "out of memory: an array in Fortran order must fit in memory");
    while ((code = stream_next(in, &x, &n)) > 0) {
        memcpy(all + done, x, n * size);
        done += n * size;
    }
    stride[0] = size;
    for (k = 1; k < t->dims; k++)
        stride[k] = stride[k - 1] * t->shape[k - 1];
    for (done = 0; code == 0 && done < t->count; done++) {
        memcpy(line + filled++ * size, all + from, size);
        if (filled == BLOCK || done + 1 == t->count) {
            write_values(out, p, o, line, filled);
            filled = 0;
        }
        for (k = t->dims - 1; k >= 0; k--) {        /* step to the next index in C order */
            from += stride[k];
            if (++index[k] < t->shape[k])
                break;
            from -= stride[k] * t->shape[k];
            index[k] = 0;
        }
    }
    free(all);
    if (code < 0)
        memcpy(error, in->error, ERROR_TEXT);
    return code;
}

static int write_tensor(FILE *out, model *m, step *p, const options *o, char *error)
{
    const tensor *t = p->t;
    stream       *in;
    const void   *x;
    size_t        n;
    int           code;
    if (p->to == MPT_FORMAT_COUNT)
        return copy_bytes(out, m, p, error);
    in = (stream *)malloc(sizeof *in);
    if (!in)
        return problem(error, m->path, t->name, "out of memory");
    stream_init(in, m, t);
    if (t->fortran && t->dims > 1 && t->count) {
        code = write_transposed(out, m, p, o, in, error);
    } else {
        while ((code = stream_next(in, &x, &n)) > 0) {
            write_values(out, p, o, x, n);
            progress(o, m->path, t->offset + in->at, m->src.size);
        }
        if (code < 0)
            memcpy(error, in->error, ERROR_TEXT);
    }
    free(in);
    return code;
}

/* Check that no two tensors have the same name. Kinds of files other than .safetensors allow that. */
static int names_differ(const model *m, char *error)
{
    const char **names = (const char **)malloc((m->count + 1) * sizeof *names);
    const char  *name;
    size_t       i;
    if (!names)
        return problem(error, m->path, NULL, "out of memory");
    for (i = 0; i < m->count; i++)
        names[i] = m->tensors[i].name;
    name = twice(names, m->count);
    free((void *)names);
    return name ? problem(error, m->path, name, "two tensors have this name, which .safetensors forbids")
                : 0;
}

step *convert_plan(model *m, const options *o, char *error)
{
    step  *steps = (step *)calloc(m->count + 1, sizeof *steps);
    size_t i;
    if (!steps)
        (void)problem(error, m->path, NULL, "out of memory");
    if (!steps || names_differ(m, error) != 0) {
        free(steps);
        return NULL;
    }
    for (i = 0; i < m->count; i++)
        if (plan_tensor(&steps[i], m, &m->tensors[i], o, error) != 0) {
            free(steps);
            return NULL;
        }
    return steps;
}

int convert_write(FILE *out, model *m, step *steps, const options *o, char *error)
{
    size_t i;
    errno = 0;
    if (write_header(out, m, steps, m->count) != 0)
        return problem(error, o->convert, NULL, "%s", strerror(errno));
    for (i = 0; i < m->count; i++) {
        if (write_tensor(out, m, &steps[i], o, error) != 0)
            return -1;
        if (ferror(out))
            return problem(error, o->convert, NULL, "writing failed: %s", strerror(steps[i].failed));
    }
    return 0;
}

/* ---- what was lost ---- */

static void print_step(const step *p)
{
    char      name[256], scale[16] = "1", flushed[24], rounded[24], snr[24] = "exact";
    const int width = text_safe(name, sizeof name, p->t->name, CONVERT_NAME);
    if (p->to == p->t->format) {
        (void)printf("%s%*s %-7.7s copied\n", name, CONVERT_NAME - width, "", p->t->type);
        return;
    }
    if (p->log2_scale)
        (void)snprintf(scale, sizeof scale, "2^%d", p->log2_scale);
    text_share(flushed, sizeof flushed, p->flushed, p->t->count);
    text_share(rounded, sizeof rounded, p->rounded, p->t->count);
    if (p->noise > 0.0)
        (void)snprintf(snr, sizeof snr, "%.1f dB", 10.0 * log10(p->signal / p->noise));
    (void)printf("%s%*s %-7.7s %-8s %6s %9s %9s %9llu %9s\n", name, CONVERT_NAME - width, "", p->t->type,
                 type_of(p), scale, flushed, rounded, (ull)p->saturated, snr);
}

static void print_steps(const model *m, const step *steps, const options *o)
{
    char     shown[256], before[32], after[32];
    uint64_t flushed = 0, rounded = 0, saturated = 0, values = 0, bytes = 0, unfit = 0, scaled = 0;
    size_t   i;
    (void)printf("%-*s %-7s %-8s %6s %9s %9s %9s %9s\n", CONVERT_NAME, "tensor", "from", "to", "scale",
                 "to zero", "rounded", "clamped", "SNR");
    for (i = 0; i < m->count; i++) {
        print_step(&steps[i]);
        flushed += steps[i].flushed;
        rounded += steps[i].rounded;
        saturated += steps[i].saturated;
        unfit += steps[i].unfit != 0;
        scaled += is_scaled(&steps[i]) != 0;
        bytes += bytes_of(&steps[i]);
        values += steps[i].to != steps[i].t->format ? steps[i].t->count : 0;
    }
    (void)text_safe(shown, sizeof shown, o->convert, 60);
    text_bytes(before, sizeof before, m->src.size);
    text_bytes(after, sizeof after, bytes);
    (void)printf("\nwrote %s: %s of values; the input file has %s\n", shown, after, before);
    (void)printf("converted %llu values: %llu became zero, %llu were rounded, %llu clamped\n", (ull)values,
                 (ull)flushed, (ull)rounded, (ull)saturated);
    if (scaled)
        (void)printf("%llu tensors are stored scaled: after loading, divide them by \"mpt.scale.NAME\" "
                     "in __metadata__\n", (ull)scaled);
    if (unfit)
        (void)printf("%llu tensors do not fit %s: %s\n", (ull)unfit, mpt_format_get(o->to)->name, o->keep ?
                     "they are copied unchanged" : "--keep would copy them unchanged");
}

/* ---- the file ---- */

#if HAVE_POSIX
/* Why `path` cannot be the output; NULL if it can. rename would replace a device or a FIFO by a file. */
static const char *output_problem(const char *path, const char *input)
{
    struct stat in, out;
    if (stat(path, &out) != 0)
        return NULL;
    if (stat(input, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return "is the input file: choose another name";
    return S_ISREG(out.st_mode) ? NULL : "exists and is not a regular file";
}

/* Create a file with a unique name in the folder of `path`. Nobody may read it who may not read the input. */
static FILE *open_beside(const char *path, const char *input, char *temporary)
{
    FILE        *out;
    struct stat  in;
    const mode_t mask = umask(0);
    int          fd;
    (void)umask(mask);
    (void)sprintf(temporary, "%s.XXXXXX", path);
    fd = mkstemp(temporary);
    if (fd < 0)
        return NULL;
    if (stat(input, &in) != 0)
        in.st_mode = 0666;
    out = fchmod(fd, in.st_mode & 0666 & ~mask) == 0 ? fdopen(fd, "wb+") : NULL;
    if (!out) {
        (void)close(fd);
        (void)unlink(temporary);
    }
    return out;
}
#else
static const char *output_problem(const char *path, const char *input)
{
    return !strcmp(path, input) ? "is the input file: choose another name" : NULL;
}

static FILE *open_beside(const char *path, const char *input, char *temporary)
{
    (void)input;
    (void)sprintf(temporary, "%s.part", path);
    return fopen(temporary, "wb+");
}
#endif

/* Flush the temporary file to disk and rename it to `path`. If `code` or any of this is bad, remove it. */
static int finish(FILE *out, const char *temporary, const char *path, int code, char *error)
{
    errno = 0;
#if HAVE_POSIX
    if (code == 0 && (fflush(out) != 0 || fsync(fileno(out)) != 0))
        code = problem(error, path, NULL, "writing failed: %s", strerror(errno));
#endif
    if (fclose(out) != 0 && code == 0)
        code = problem(error, path, NULL, "writing failed: %s", strerror(errno));
#if !HAVE_POSIX
    if (code == 0)
        (void)remove(path);         /* without POSIX, rename may refuse to replace a file */
#endif
    if (code == 0 && rename(temporary, path) != 0)
        code = problem(error, path, NULL, "%s", strerror(errno));
    if (code != 0)
        (void)remove(temporary);
    return code;
}

static int write_beside(model *m, step *steps, const options *o, char *error)
{
    char *temporary = (char *)malloc(strlen(o->convert) + 16);
    FILE *out;
    int   code;
    if (!temporary)
        return problem(error, o->convert, NULL, "out of memory");
    errno = 0;
    out = open_beside(o->convert, m->path, temporary);
    if (!out) {
        code = problem(error, o->convert, NULL, "cannot be written: %s", strerror(errno));
        free(temporary);
        return code;
    }
    source_guard(m->path, temporary);
    code = convert_write(out, m, steps, o, error);
    code = finish(out, temporary, o->convert, code, error);
    source_guard(NULL, NULL);
    free(temporary);
    return code;
}

/* Convert one file to o->convert, and add the bytes of its converted values to *bytes. 0 or -1. */
static int convert_one(const char *path, const options *o, uint64_t *bytes, char *error)
{
    const char *why = output_problem(o->convert, path);
    model       m;
    step       *steps;
    size_t      i;
    int         code;
    source_guard(path, NULL);
    if (why)
        return problem(error, o->convert, NULL, "%s", why);
    if (model_open(&m, path, o->map, o->raw, error) != 0)
        return -1;
    steps = convert_plan(&m, o, error);
    code = steps ? write_beside(&m, steps, o, error) : -1;
    if (code == 0)
        print_steps(&m, steps, o);
    for (i = 0; code == 0 && i < m.count; i++)
        *bytes += bytes_of(&steps[i]);
    free(steps);
    model_close(&m);
    return code;
}

/* Write the index of the converted shards to `path`. */
static int write_index(const file_list *l, const char *path, uint64_t bytes, char *error)
{
    FILE *out = fopen(path, "wb");
    int   code = out ? file_list_index(l, bytes, out) : -1;
    if (out && fclose(out) != 0)
        code = -1;
    return code == 0 ? 0 : problem(error, path, NULL, "the index cannot be written: %s", strerror(errno));
}

/* Convert all shards into a new folder, then write their index. On failure, remove all of it. */
static int convert_many(const file_list *l, const options *given, char *error)
{
    const char *const folder = given->convert;
    const size_t      files = l->count + (l->index != NULL);
    options           o = *given;
    uint64_t          bytes = 0;
    size_t            i = 0;
    char             *to = NULL;
    int               code = 0;
    errno = 0;
    if (MAKE_FOLDER(folder) != 0)
        return problem(error, folder, NULL, "cannot be created as a folder: %s", strerror(errno));
    while (code == 0 && i < files) {
        const char *from = i < l->count ? l->path[i] : l->index;
        o.convert = to = path_join(folder, strlen(folder), path_name(from));
        code = !to ? problem(error, folder, NULL, "out of memory")
             : i++ < l->count ? convert_one(from, &o, &bytes, error) : write_index(l, to, bytes, error);
        free(to);
    }
    for (; code != 0 && i--; free(to))
        if ((to = path_join(folder, strlen(folder), path_name(i < l->count ? l->path[i] : l->index))) != NULL)
            (void)remove(to);
    if (code != 0)
        (void)REMOVE_FOLDER(folder);
    return code;
}

int convert_file(const char *path, const options *given)
{
    options   o = *given;
    char      error[ERROR_TEXT];
    uint64_t  bytes = 0;
    file_list l;
    int       code = file_list_open(&l, path, error);
    o.formats[0] = o.to;
    o.format_count = 1;
    if (code == 0 && l.many && !ends_with(l.path[0], ".safetensors"))
        code = problem(error, path, NULL, "is a folder, and its files are not .safetensors: name one file");
    else if (code == 0)
        code = l.many ? convert_many(&l, &o, error) : convert_one(path, &o, &bytes, error);
    if (code != 0)
        complain(error);
    file_list_close(&l);
    source_guard(NULL, NULL);
    return code == 0 && fflush(stdout) == 0 && !ferror(stdout) ? 0 : -1;
}
