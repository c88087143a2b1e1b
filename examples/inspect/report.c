/* report.c -- the report of each file: table and summary, JSON, or CSV. */
#include "inspect.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <time.h>

#if HAVE_POSIX
#define STDERR_IS_TERMINAL() isatty(fileno(stderr))
#else
#define STDERR_IS_TERMINAL() 0
#endif

/* Sums over all tensors of a type. after: the bytes if each tensor that is larger in the file is cast. */
enum { MAX_TYPES = 24 };
typedef struct type_sum {
    const char *type;
    uint64_t    tensors, values, bytes, after[MAX_FORMATS];
} type_sum;

/* Sums over all tensors of one argument. */
typedef struct sums {
    uint64_t tensors, values, passed_over, nan, inf;
    uint64_t fits[MAX_FORMATS][3];
    uint64_t moved, apart, changed, lost[MAX_FORMATS];  /* --diff; the first two count tensors */
    double   l2, norm;                                  /* sums of squares */
    type_sum of[MAX_TYPES];                             /* the last one also counts all further types */
    int      types;
} sums;

/* The opened files of one argument. */
typedef struct opened {
    const char *path;
    file_list   l;
    model      *m;
    size_t      files;
} opened;

struct report {
    const options *o;
    plot          *plots;
    opened         in[2];       /* the current argument; [1]: the second one of --diff */
    row           *rows;
    size_t         n, shown;
    sums           s;
    scan           total;       /* of all tensors of the current argument */
    result         result;      /* from `total` */
    scan           all;         /* of all tensors of all arguments */
    int            files, printed;
    uint64_t       broken;      /* how often a rule of --fail-if holds */
};

/* ---- messages ---- */

static int progress_shown;

static void progress_clear(void)
{
    if (progress_shown)
        (void)fprintf(stderr, "\r%79s\r", "");
    progress_shown = 0;
}

static double seconds(void)
{
#if HAVE_POSIX
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) == 0)
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
    return (double)clock() / (double)CLOCKS_PER_SEC;
}

/* Show at most four progress lines a second, and none in the first quarter of a second. */
void progress(const options *o, const char *path, uint64_t done, uint64_t all)
{
    static double   last, first;
    static uint64_t before;
    const double    now = seconds();
    char            name[160], size[32];
    if (!o->progress || (o->progress < 0 && !STDERR_IS_TERMINAL()))
        return;
    if (!before || done < before)
        first = last = now;
    before = done;
    if (now - last < 0.25)
        return;
    last = now;
    (void)text_safe(name, sizeof name, path, 40);
    text_bytes(size, sizeof size, all);
    (void)fprintf(stderr, "\r%s: %.0f%% of %s, %.2f GB/s ", name,
                  100.0 * (double)done / (double)(all ? all : 1), size,
                  (double)done / (now - first) * 1e-9);
    (void)fflush(stderr);
    progress_shown = 1;
}

void complain(const char *error)
{
    progress_clear();
    (void)fflush(stdout);
    (void)fprintf(stderr, "inspect: %s\n", error);
}

/* ---- order ---- */

static const tensor *either(const row *w) { return w->t[0] ? w->t[0] : w->t[1]; }

static double share(uint64_t part, uint64_t all) { return (double)part / (double)(all ? all : 1); }

/* Tensors that cannot be compared come first, tensors that hold no floats last. */
static double diff_key(const row *w, const char *by)
{
    const moved *d = &w->d;
    if (d->how != COMPARED || d->apart)
        return d->how < SAME_BYTES ? HUGE_VAL : -HUGE_VAL;
    return !strcmp(by, "max") ? d->max : !strcmp(by, "lost") ? share(d->lost[0], d->changed)
         : !strcmp(by, "changed") ? share(d->changed, either(w)->count) : d->change;
}

static double sort_key(const row *w, const options *o)
{
    const cast *c = &w->r.in[0].plain;
    const char *by = o->by;
    if (!by)
        return 0.0;
    if (!strcmp(by, "size"))
        return (double)either(w)->count;
    if (o->diff)
        return diff_key(w, by);
    if (!strcmp(by, "flushed"))
        return share(c->flushed, w->r.nonzero);
    if (!strcmp(by, "overflow"))
        return share(c->overflow, w->r.nonzero);
    if (!strcmp(by, "subnormal"))
        return share(c->subnormal, w->r.nonzero);
    if (!strcmp(by, "db"))              /* tensors that overflow come first, those without nonzeros last */
        return !w->r.nonzero ? -HUGE_VAL : c->overflow ? HUGE_VAL : -c->db;
    if (!strcmp(by, "max"))
        return w->r.max_abs;
    if (!strcmp(by, "min"))
        return w->r.nonzero ? -w->r.min_abs : -HUGE_VAL;
    return share(c->flushed + c->overflow, w->r.nonzero);
}

static const options *order_by;

static int by_order(const void *a, const void *b)
{
    const row   *x = (const row *)a, *y = (const row *)b;
    const double p = sort_key(x, order_by), q = sort_key(y, order_by);
    return p > q ? -1 : p < q ? 1 : x->key < y->key ? -1 : x->key > y->key;
}

/* ---- the table ---- */

enum { SHORTEST_NAME = 20, LONGEST_NAME = 2000 };

/* Widths of columns. Types and verdicts take what they need; names get the rest. */
typedef struct widths { int name, type; } widths;

/* Are names that are cut to this width still distinct? The answer is yes if memory runs out. */
static int names_differ(const row *rows, size_t n, int width)
{
    const char **cut = (const char **)calloc(n + 1, sizeof *cut);
    char         text[4 * LONGEST_NAME];
    size_t       i = 0;
    int          differ;
    for (; cut && i < n; i++) {
        (void)text_safe(text, sizeof text, either(&rows[i])->name, width);
        if (!(cut[i] = copy_text(text, strlen(text))))
            break;
    }
    differ = !cut || i < n || !twice(cut, n);
    for (i = 0; cut && i < n; i++)
        free((char *)(uintptr_t)cut[i]);
    free(cut);
    return differ;
}

static void words_of(char *dst, size_t cap, const row *w, const options *o)
{
    if (o->diff)
        diff_words(dst, cap, w, o);
    else
        verdict(dst, cap, w->t[0], &w->r, o);
}

/* The type of a row; both types, as "F32>F16", where they differ. Returns the width. */
static int types_of(char *dst, size_t cap, const row *w)
{
    const int two = w->t[0] && w->t[1] && strcmp(w->t[0]->type, w->t[1]->type) != 0;
    (void)snprintf(dst, cap, "%s%s%s", either(w)->type, two ? ">" : "", two ? w->t[1]->type : "");
    return (int)strlen(dst);
}

static widths find_widths(const row *rows, size_t n, const options *o)
{
    widths w = {6, 4};
    int    words = 7, longest, k;
    size_t i;
    for (i = 0; i < n; i++) {
        char text[4 * LONGEST_NAME];
        k = text_safe(text, sizeof text, either(&rows[i])->name, LONGEST_NAME);
        w.name = k > w.name ? k : w.name;
        k = types_of(text, sizeof text, &rows[i]);
        w.type = k > w.type ? k : w.type;
        words_of(text, sizeof text, &rows[i], o);
        k = (int)strlen(text);
        words = k > words ? k : words;
    }
    words += w.type + (o->diff ? 34 : 26) + 7 * o->format_count;        /* all but the name */
    longest = w.name;
    if (w.name > o->width - words && !o->wide)
        w.name = o->width - words > SHORTEST_NAME ? o->width - words : SHORTEST_NAME;
    while (w.name < longest && !names_differ(rows, n, w.name))
        w.name += 2;
    return w;
}

static void print_head(const options *o, widths w)
{
    int k;
    (void)printf("%-*s %-*s %6s %7s %7s", w.name, "tensor", w.type, "type", "values",
                 o->diff ? "changed" : "min|x|", o->diff ? "max|d|" : "max|x|");
    if (o->diff)
        (void)printf(" %7s", "|d|/|x|");
    else if (o->wide)
        (void)printf(" %-14s %9s %9s %7s %6s %6s %6s", "shape", "mean", "std", "zeros", "1%", "50%", "99%");
    for (k = 0; k < o->format_count; k++)
        (void)printf(" %6s", mpt_format_get(o->formats[k])->name);
    (void)printf("  verdict\n");
}

/* Signal-to-noise ratio of a plain cast, in dB; "over" if a value overflows. */
static void print_loss(const loss *l, const result *r)
{
    char db[24] = "-";
    if (r->nonzero && l->plain.overflow)
        (void)snprintf(db, sizeof db, "over");
    else if (r->nonzero && isfinite(l->plain.db))
        (void)snprintf(db, sizeof db, "%.1f", l->plain.db);
    else if (r->nonzero)
        (void)snprintf(db, sizeof db, l->plain.db > 0.0 ? "exact" : "none");
    (void)printf(" %6s", db);
}

static double deviation(const result *r)
{
    const double finite = (double)(r->nonzero + r->zero), square = r->rms * r->rms * (double)r->nonzero;
    const double variance = finite > 0.0 ? square / finite - r->mean * r->mean : 0.0;
    return variance > 0.0 ? sqrt(variance) : 0.0;
}

/* The columns that --wide adds: shape, mean, standard deviation, zeros, and percentiles 1, 50 and 99 of the
 * magnitudes. */
static void print_wide(const row *p)
{
    char     shape[24 * MAX_DIMS] = "", mean[24] = "-", std[24] = "-", part[24] = "-", zero[24];
    size_t   at = 0;
    int      k;
    for (k = 0; k < p->t[0]->dims && at < sizeof shape - 24; k++)
        at += (size_t)sprintf(shape + at, "%s%llu", k ? "x" : "", (ull)p->t[0]->shape[k]);
    text_share(zero, sizeof zero, p->r.zero, p->r.count);
    if (p->r.nonzero) {
        text_value(mean, sizeof mean, p->r.mean);
        text_value(std, sizeof std, deviation(&p->r));
    }
    (void)printf(" %-14s %9s %9s %7s", *shape ? shape : "1", mean, std, zero);
    for (k = 0; k < 3; k++) {
        if (p->r.nonzero)
            (void)snprintf(part, sizeof part, "2^%d", p->percentile[k]);
        (void)printf(" %6s", part);
    }
}

static void print_range(const row *p, const options *o)
{
    char least[24], most[24];
    int  k;
    text_value(least, sizeof least, p->r.min_abs);
    text_value(most, sizeof most, p->r.max_abs);
    (void)printf(" %7s %7s", p->r.nonzero ? least : "-", p->r.nonzero ? most : "-");
    if (o->wide)
        print_wide(p);
    for (k = 0; k < o->format_count; k++)
        print_loss(&p->r.in[k], &p->r);
}

/* The change, and the share of the changes that each format loses; "over" if it cannot hold a value. */
static void print_moved(const row *p, const options *o)
{
    const moved   *d = &p->d;
    const uint64_t compared = d->changed - d->apart;
    char           changed[24], most[24] = "-", far[24] = "-", lost[24];
    int            k;
    text_share(changed, sizeof changed, d->changed, either(p)->count);
    if (compared) {
        text_value(most, sizeof most, d->max);
        text_value(far, sizeof far, d->change);
    }
    (void)printf(" %7s %7s %7s", d->how == COMPARED ? changed : "-", most, far);
    for (k = 0; k < o->format_count; k++) {
        text_share(lost, sizeof lost, d->lost[k], compared);
        (void)printf(" %6s", !compared ? "-" : d->over[k] ? "over" : lost);
    }
}

static void print_row(const row *p, const options *o, widths w)
{
    char      name[4 * LONGEST_NAME], type[200], count[16], words[VERDICT];
    const int width = text_safe(name, sizeof name, either(p)->name, w.name);
    text_count(count, sizeof count, either(p)->count);
    (void)types_of(type, sizeof type, p);
    (void)printf("%s%*s %-*s %6s", name, w.name - width, "", w.type, type, count);
    (o->diff ? print_moved : print_range)(p, o);
    words_of(words, sizeof words, p, o);
    (void)printf("  %s\n", words);
}

/* A line of the summary: the text under each format. */
typedef char line[MAX_FORMATS][24];

static void print_line(const char *title, const options *o, line text)
{
    int k;
    (void)printf("%-43s", title);
    for (k = 0; k < o->format_count; k++)
        (void)printf(" %9s", text[k]);
    (void)printf("\n");
}

static void print_titles(const char *title, const options *o)
{
    line text;
    int   k;
    for (k = 0; k < o->format_count; k++)
        (void)snprintf(text[k], sizeof *text, "%s", mpt_format_get(o->formats[k])->name);
    (void)printf("\n");
    print_line(title, o, text);
}

static void print_summary(const options *o, const sums *s, const result *all)
{
    static const char *const titles[] = {
        "tensors that fit as they are",    "tensors that fit with a scale of their own",
        "tensors that do not fit",         "nonzero values that become zero",
        "nonzero values that overflow",    "a single scale for all tensors"};
    line text;
    int   i, k;
    print_titles("summary", o);
    for (i = 0; i < 6; i++) {
        for (k = 0; k < o->format_count; k++) {
            const loss *l = &all->in[k];
            if (i < 3)
                (void)snprintf(text[k], sizeof *text, "%llu", (ull)s->fits[k][i]);
            else if (i < 5)
                text_share(text[k], sizeof *text, i == 3 ? l->plain.flushed : l->plain.overflow,
                           all->nonzero);
            else
                (void)snprintf(text[k], sizeof *text, l->fits == FITS ? "1" : l->fits == FITS_NOT ? "no"
                               : "2^%d", l->scaled.log2_scale);
        }
        print_line(titles[i], o, text);
    }
}

static void print_moved_summary(const options *o, const sums *s)
{
    line kept, lost;
    int   k;
    for (k = 0; k < o->format_count; k++) {
        (void)snprintf(kept[k], sizeof *kept, "%llu", (ull)s->fits[k][FITS]);
        text_share(lost[k], sizeof *lost, s->lost[k], s->changed);
    }
    print_titles("summary", o);
    print_line("changed tensors that keep their change", o, kept);
    print_line("changed values whose change is lost", o, lost);
}

static void print_types(const options *o, const sums *s)
{
    type_sum all = {"all", 0, 0, 0, {0}};
    line    text;
    char     name[64], values[24], bytes[24], title[160];
    int      i, k;
    print_titles("type           tensors   values       bytes", o);
    for (i = 0; i <= s->types - (s->types == 1); i++) {
        const type_sum *t = i < s->types ? &s->of[i] : &all;
        (void)text_safe(name, sizeof name, t->type, 13);
        text_count(values, sizeof values, t->values);
        text_bytes(bytes, sizeof bytes, t->bytes);
        (void)snprintf(title, sizeof title, "%-13s %8llu %8s %11s", name, (ull)t->tensors, values, bytes);
        for (k = 0; k < o->format_count; k++) {
            text_bytes(text[k], sizeof *text, t->after[k]);
            all.after[k] += t->after[k];
        }
        print_line(title, o, text);
        all.tensors += t->tensors;
        all.values += t->values;
        all.bytes += t->bytes;
    }
}

static uint64_t bytes_of(const opened *x)
{
    uint64_t bytes = 0;
    size_t   i;
    for (i = 0; i < x->files; i++)
        bytes += x->m[i].src.size;
    return bytes;
}

/* Print "model.safetensors: safetensors, 1.6 MiB"; of several files also their number. */
static void print_title(const char *before, const opened *x)
{
    char name[256], size[32];
    (void)text_safe(name, sizeof name, x->path, 60);
    text_bytes(size, sizeof size, bytes_of(x));
    (void)printf("%s%s: %s, ", before, name, kind_name(x->m->kind));
    if (x->files > 1)
        (void)printf("%llu files, ", (ull)x->files);
    if (x->m->kind == KIND_CSV)         /* shows the user whether decimal commas were taken for separators */
        (void)printf("%llu rows, %llu columns, ", (ull)x->m->tensors->shape[0],
                     (ull)x->m->tensors->shape[1]);
    (void)printf("%s", size);
}

static void print_counts(const report *p)
{
    const sums *s = &p->s;
    char        values[16], far[24];
    text_count(values, sizeof values, s->values);
    (void)printf("%llu tensor%s, %s values", (ull)p->n, p->n == 1 ? "" : "s", values);
    if (p->o->diff) {
        text_value(far, sizeof far, s->l2 > 0.0 ? sqrt(s->l2 / s->norm) : 0.0);
        (void)printf(", %llu changed, |d|/|x| = %s in total", (ull)s->moved, far);
        if (s->apart)
            (void)printf(", %llu not comparable", (ull)s->apart);
    }
    if (s->passed_over)
        (void)printf(", %llu not of a float type", (ull)s->passed_over);
    if (s->nan || s->inf)
        (void)printf(", %llu NaN, %llu Inf", (ull)s->nan, (ull)s->inf);
    (void)printf("\n");
}

/* The metadata of the first file, as much as fits on a line; only JSON prints all of it. */
static void print_metadata(const model *m, const options *o)
{
    const int width = o->wide ? LONGEST_NAME : 40;
    char      key[4 * LONGEST_NAME], value[4 * LONGEST_NAME];
    int       left = o->wide ? INT_MAX : o->width - 10;
    size_t    k;
    for (k = 0; k < m->metadata_count && left > 0; k++) {
        left -= text_safe(key, sizeof key, m->metadata[k].key, width) + 3;
        left -= text_safe(value, sizeof value, m->metadata[k].value, width);
        if (left > 0)
            (void)printf("%s %s=%s", k ? "," : "metadata:", key, value);
    }
    if (k)
        (void)printf("%s\n", left > 0 ? "" : k > 1 ? ", ..." : "metadata: ...");
}

static void print_table(const report *p)
{
    const options *o = p->o;
    size_t         i;
    widths         w;
    (void)fputs(p->printed ? "\n" : "", stdout);
    print_title(o->diff ? "from " : "", &p->in[0]);
    if (o->diff)
        print_title("\nto ", &p->in[1]);
    (void)fputs(o->diff ? "\n" : ", ", stdout);
    print_counts(p);
    print_metadata(p->in[0].m, o);
    if (p->shown < p->n)
        (void)printf("the %llu tensors that come first by '%s' in %s\n", (ull)p->shown, o->by,
                     mpt_format_get(o->formats[0])->name);
    w = find_widths(p->rows, p->shown, o);
    print_head(o, w);
    for (i = 0; i < p->shown; i++)
        print_row(&p->rows[i], o, w);
    if (p->n > 1 && o->diff)
        print_moved_summary(o, &p->s);
    else if (p->n > 1) {
        print_summary(o, &p->s, &p->result);
        print_types(o, &p->s);
    }
}

/* ---- JSON and CSV ---- */

static void loss_cells(cells *c, const loss *l, mpt_format format, int present, int any)
{
    static const char *const words[] = {"yes", "with scale", "no"};
    cell_group(c, mpt_format_get(format)->name);
    cell_count(c, "flushed", present, l->plain.flushed);
    cell_count(c, "subnormal", present, l->plain.subnormal);
    cell_count(c, "normal", present, l->normal);
    cell_count(c, "overflow", present, l->plain.overflow);
    cell_real(c, "db", any, l->plain.db);
    cell_real(c, "worst", any, l->plain.worst);
    cell_real(c, "log2_scale", present, (double)l->scaled.log2_scale);
    cell_count(c, "scaled_flushed", present, l->scaled.flushed);
    cell_count(c, "scaled_subnormal", present, l->scaled.subnormal);
    cell_real(c, "scaled_db", any, l->scaled.db);
    cell_text(c, "fits", present, words[l->fits]);
    cell_group(c, NULL);
}

static void range_cells(cells *c, const row *w, const options *o)
{
    const tensor *t = w->t[0];
    const result *r = &w->r;
    const int     floats = t->format != MPT_FORMAT_COUNT;
    char          words[VERDICT];
    int           k;
    verdict(words, sizeof words, t, r, o);
    cell_text(c, "name", 1, t->name);
    cell_text(c, "type", 1, t->type);
    cell_shape(c, "shape", t);
    cell_text(c, "order", 1, t->fortran ? "fortran" : "c");
    cell_count(c, "values", 1, t->count);
    cell_count(c, "zero", floats, r->zero);
    cell_count(c, "nan", floats, r->nan);
    cell_count(c, "inf", floats, r->inf);
    cell_count(c, "first_nan", r->nan != 0, r->first_nan);
    cell_count(c, "first_inf", r->inf != 0, r->first_inf);
    cell_real(c, "min_abs", floats, r->min_abs);
    cell_real(c, "max_abs", floats, r->max_abs);
    cell_real(c, "mean", floats, r->mean);
    cell_real(c, "std", floats, deviation(r));
    cell_real(c, "percentile_1_log2", r->nonzero != 0, (double)w->percentile[0]);
    cell_real(c, "median_log2", r->nonzero != 0, (double)w->percentile[1]);
    cell_real(c, "percentile_99_log2", r->nonzero != 0, (double)w->percentile[2]);
    if (floats || c->as != CELLS_JSON) {
        cell_group(c, "formats");
        for (k = 0; k < o->format_count; k++)
            loss_cells(c, &r->in[k], o->formats[k], floats, r->nonzero != 0);
        cell_group(c, NULL);
    }
    cell_text(c, "verdict", 1, words);
}

static void summary_cells(const report *p, cells *c)
{
    const sums *s = &p->s;
    int         j, k;
    cell_count(c, "tensors", 1, s->tensors);
    cell_count(c, "passed_over", 1, s->passed_over);
    cell_count(c, "values", 1, s->values);
    cell_count(c, "nan", !p->o->diff, s->nan);
    cell_count(c, "inf", !p->o->diff, s->inf);
    cell_count(c, "moved", p->o->diff, s->moved);
    cell_count(c, "apart", p->o->diff, s->apart);
    cell_count(c, "changed", p->o->diff, s->changed);
    cell_real(c, "change", p->o->diff, s->l2 > 0.0 ? sqrt(s->l2 / s->norm) : 0.0);
    cell_group(c, "formats");
    for (k = 0; k < p->o->format_count; k++) {
        cell_group(c, mpt_format_get(p->o->formats[k])->name);
        cell_count(c, p->o->diff ? "keeps" : "fit", 1, s->fits[k][FITS]);
        cell_count(c, "fit_with_scale", !p->o->diff, s->fits[k][FITS_SCALED]);
        cell_count(c, "do_not_fit", !p->o->diff, s->fits[k][FITS_NOT]);
        cell_count(c, "flushed", !p->o->diff, p->result.in[k].plain.flushed);
        cell_count(c, "overflow", !p->o->diff, p->result.in[k].plain.overflow);
        cell_count(c, "lost", p->o->diff, s->lost[k]);
        cell_group(c, NULL);
    }
    cell_group(c, NULL);
    if (!p->o->diff)
        cell_group(c, "types");
    for (j = 0; j < s->types; j++) {
        cell_group(c, s->of[j].type);
        cell_count(c, "tensors", 1, s->of[j].tensors);
        cell_count(c, "values", 1, s->of[j].values);
        cell_count(c, "bytes", 1, s->of[j].bytes);
        for (k = 0; k < p->o->format_count; k++)
            cell_count(c, mpt_format_get(p->o->formats[k])->name, 1, s->of[j].after[k]);
        cell_group(c, NULL);
    }
    if (!p->o->diff)
        cell_group(c, NULL);
}

static void file_cells(const opened *x, cells *c, const char *const *key)
{
    cell_text(c, key[0], 1, x->path);
    cell_text(c, key[1], 1, kind_name(x->m->kind));
    cell_count(c, key[2], 1, bytes_of(x));
}

static void json_table(const report *p)
{
    static const char *const keys[2][3] = {{"file", "kind", "bytes"},
                                           {"other_file", "other_kind", "other_bytes"}};
    cells  c = {CELLS_JSON, "", NULL};
    size_t i, k;
    (void)printf("%s\n  {", p->files ? "," : "");
    file_cells(&p->in[0], &c, keys[0]);
    if (p->o->diff)
        file_cells(&p->in[1], &c, keys[1]);
    (void)printf(",\"metadata\":[");
    for (i = 0; i < p->in[0].files; i++) {
        const model *m = &p->in[0].m[i];
        (void)printf(i ? ",{" : "{");
        for (k = 0, c.before = ""; k < m->metadata_count; k++)
            cell_text(&c, m->metadata[k].key, 1, m->metadata[k].value);
        (void)printf("}");
    }
    (void)printf("],\"tensors\":[");
    for (i = 0; i < p->shown; i++) {
        c.before = "";
        (void)printf("%s\n    {", i ? "," : "");
        (p->o->diff ? diff_cells : range_cells)(&c, &p->rows[i], p->o);
        (void)printf("}");
    }
    (void)printf("],\n   \"summary\":{");
    c.before = "";
    summary_cells(p, &c);
    (void)printf("}}");
}

static void csv_table(const report *p)
{
    cells  c = {CELLS_TITLES, "", NULL};
    size_t i;
    for (i = 0; i <= p->shown; i++) {       /* 0: the titles, which are printed once for all files */
        const row *w = &p->rows[i ? i - 1 : 0];
        if (i || (!p->printed && p->shown)) {
            c.as = i ? CELLS_CSV : CELLS_TITLES;
            c.before = "";
            cell_text(&c, "file", 1, p->in[0].path);
            (p->o->diff ? diff_cells : range_cells)(&c, w, p->o);
            (void)printf("\n");
        }
    }
}

static void json_failed(const report *p, const char *path, const char *error)
{
    cells c = {CELLS_JSON, "", NULL};
    (void)printf("%s\n  {", p->files ? "," : "");
    cell_text(&c, "file", 1, path);
    cell_text(&c, "error", 1, error);
    (void)printf("}");
}

/* ---- a file ---- */

static void add_type(sums *s, const tensor *t, const options *o)
{
    type_sum *of = s->of;
    int       k;
    while (of < s->of + s->types && strcmp(of->type, t->type) != 0)
        of++;
    if (of == s->of + s->types) {
        s->types += s->types < MAX_TYPES;
        of = &s->of[s->types - 1];
        of->type = of->tensors ? "others" : t->type;
    }
    of->tensors++;
    of->values += t->count;
    of->bytes += t->bytes;
    for (k = 0; k < o->format_count; k++) {
        const uint64_t bytes = t->count * format_bytes(o->formats[k]);
        of->after[k] += t->format != MPT_FORMAT_COUNT && bytes < t->bytes ? bytes : t->bytes;
    }
}

static void add_up(sums *s, const row *w, const options *o)
{
    const result *r = &w->r;
    const moved  *d = &w->d;
    int           k;
    s->tensors++;
    if (!o->diff)
        add_type(s, w->t[0], o);
    s->values += either(w)->count;
    s->passed_over += either(w)->format == MPT_FORMAT_COUNT;
    s->moved += d->changed != 0 || d->how == OTHER_BYTES;
    s->apart += d->how > COMPARED && d->how < OTHER_BYTES;
    s->changed += d->changed;
    s->l2 += d->l2 * d->l2;
    s->norm += d->norm * d->norm;
    s->nan += r->nan;
    s->inf += r->inf;
    for (k = 0; k < o->format_count; k++) {
        s->lost[k] += d->lost[k];
        if (o->diff)
            s->fits[k][FITS] += d->changed && !d->apart && diff_keeps(d, k, o);
        else if (either(w)->format != MPT_FORMAT_COUNT)
            s->fits[k][r->nan || r->inf ? FITS_NOT : r->in[k].fits]++;
    }
}

/* Get the figure that a rule compares. Returns 0 if the tensor has no such figure. */
static int rule_figure(const rule *q, const row *w, const options *o, double *x)
{
    const result *r = &w->r;
    const moved  *d = &w->d;
    const cast   *c;
    int           k = 0, j;
    for (j = 0; j < o->format_count; j++)
        k = o->formats[j] == q->format ? j : k;
    c = &r->in[k].plain;
    switch (q->figure) {
    case RULE_DB:        *x = c->overflow ? -HUGE_VAL : c->db; break;
    case RULE_FLUSHED:   *x = share(c->flushed, r->nonzero); break;
    case RULE_OVERFLOW:  *x = share(c->overflow, r->nonzero); break;
    case RULE_SUBNORMAL: *x = share(c->subnormal, r->nonzero); break;
    case RULE_NAN:       *x = (double)r->nan; return 1;
    case RULE_INF:       *x = (double)r->inf; return 1;
    case RULE_APART:     *x = (double)(d->apart + (d->how > COMPARED && d->how <= OTHER_BYTES)); return 1;
    case RULE_LOST:      *x = share(d->lost[k], d->changed); return d->changed != 0;
    case RULE_CHANGED:   *x = share(d->changed, either(w)->count); return d->how == COMPARED;
    case RULE_CHANGE:    *x = d->change; return d->how == COMPARED;
    default:             *x = d->max; return d->how == COMPARED;
    }
    return r->nonzero != 0;             /* without nonzero values nothing can be lost */
}

static void check_rules(report *p, const row *w)
{
    const int judged = p->o->diff || w->t[0]->format != MPT_FORMAT_COUNT;
    char      error[ERROR_TEXT];
    double    x = 0.0;
    int       i;
    for (i = 0; i < 2 && p->o->rule_count; i++)
        if (w->t[i] && !strcmp(w->t[i]->type, "view")) {        /* no rule has seen its values */
            (void)problem(error, w->m[i]->path, w->t[i]->name, "is a view: call .contiguous() first");
            complain(error);
            p->broken++;
        }
    for (i = 0; i < p->o->rule_count && judged; i++) {
        const rule *q = &p->o->rules[i];
        if (!rule_figure(q, w, p->o, &x) ||
            !((q->equal && x == q->number) || (q->above ? x > q->number : x < q->number)))
            continue;
        (void)problem(error, (w->m[0] ? w->m[0] : w->m[1])->path, either(w)->name, "%s", q->text);
        complain(error);
        p->broken++;
    }
}

/* Does the whole name match? '*' matches any number of characters, '?' exactly one. */
static int matches(const char *pattern, const char *name)
{
    for (; *pattern && *pattern != '*'; pattern++, name++)
        if (!*name || (*pattern != '?' && *pattern != *name))
            return 0;
    if (!*pattern)
        return !*name;
    do
        if (matches(pattern + 1, name))
            return 1;
    while (*name++);
    return 0;
}

/* Keep only the tensors whose names match --filter, in the order of the file. */
static void filter(model *m, const char *pattern)
{
    size_t i, kept = 0;
    for (i = 0; i < m->count; i++)
        if (matches(pattern, m->tensors[i].name)) {
            const tensor swap = m->tensors[kept];
            m->tensors[kept++] = m->tensors[i];
            m->tensors[i] = swap;
        }
    for (i = kept; i < m->count; i++)
        free(m->tensors[i].name);
    m->count = kept;
}

row *rows_of(model *m, size_t files, size_t *n)
{
    row   *rows;
    size_t i, k;
    for (i = 0, *n = 0; i < files; i++)
        *n += m[i].count;
    rows = (row *)calloc(*n + 1, sizeof *rows);
    for (i = 0, *n = 0; rows && i < files; i++)
        for (k = 0; k < m[i].count; k++, ++*n) {
            rows[*n].m[0] = &m[i];
            rows[*n].t[0] = &m[i].tensors[k];
            rows[*n].key = *n;
        }
    return rows;
}

static int look_at_row(report *p, row *w, char *error)
{
    static const double part[3] = {1.0, 50.0, 99.0};
    scan                one;
    mpt_range           range;
    int                 k;
    if (p->o->diff)
        return diff_row(w, p->o, error);
    scan_init(&one);
    if (w->t[0]->format != MPT_FORMAT_COUNT && scan_tensor(&one, &w->r, w->m[0], w->t[0], p->o, error) != 0)
        return -1;
    (void)mpt_survey_get(&one.survey, MPT_F32, &range);
    for (k = 0; k < 3; k++)
        (void)mpt_range_percentile(&range, part[k], &w->percentile[k]);
    scan_merge(&p->total, &one);
    if (p->plots && plot_tensor(p->plots, w->t[0], &one, &w->r) != 0)
        return problem(error, p->o->plot, NULL, "%s", strerror(errno));
    return 0;
}

/* Inspect and print the tensors of all files of one argument (of --diff: two) as one table. */
static int inspect_rows(report *p, char *error)
{
    size_t i;
    int    k;
    p->rows = p->o->diff ? diff_rows(p->in[0].m, p->in[0].files, p->in[1].m, p->in[1].files, &p->n)
                         : rows_of(p->in[0].m, p->in[0].files, &p->n);
    if (!p->rows)
        return problem(error, p->in[0].path, NULL, "out of memory");
    memset(&p->s, 0, sizeof p->s);
    scan_init(&p->total);
    order_by = p->o;
    for (i = 0; i < p->n; i++) {
        for (k = 0; i && k < 2; k++) {          /* release the window of the file that is done */
            model *const before = p->rows[i - 1].m[k];
            if (before && before != p->rows[i].m[k])
                source_leave(&before->src);
        }
        if (look_at_row(p, &p->rows[i], error) != 0)
            return -1;
        add_up(&p->s, &p->rows[i], p->o);
        check_rules(p, &p->rows[i]);
    }
    if (p->plots)
        plot_file(p->plots, p->in[0].path);
    scan_total(&p->total, p->o, &p->result);
    scan_merge(&p->all, &p->total);
    qsort(p->rows, p->n, sizeof *p->rows, by_order);
    p->shown = p->o->top && p->o->top < p->n ? (size_t)p->o->top : p->n;
    progress_clear();
    (p->o->json ? json_table : p->o->csv ? csv_table : print_table)(p);
    p->printed++;
    return 0;
}

report *report_new(const options *o)
{
    report *p = (report *)calloc(1, sizeof *p);
    char    error[ERROR_TEXT];
    if (!p)
        return NULL;
    p->o = o;
    scan_init(&p->all);
    if (o->plot && !(p->plots = plot_new(o, error))) {
        complain(error);
        free(p);
        return NULL;
    }
    if (o->json)
        (void)printf("{\"files\":[");
    return p;
}

static int open_all(opened *x, const char *path, const options *o, char *error)
{
    int    code;
    size_t i;
    memset(x, 0, sizeof *x);
    x->path = path;
    code = file_list_open(&x->l, path, error);
    if (code == 0 && !(x->m = (model *)calloc(x->l.count, sizeof *x->m)))
        code = problem(error, path, NULL, "out of memory");
    for (; code == 0 && x->files < x->l.count; x->files += code == 0) {
        source_guard(x->l.path[x->files], NULL);
        code = model_open(&x->m[x->files], x->l.path[x->files], o->map, o->raw, error);
    }
    if (code == 0)
        code = file_list_check(&x->l, x->m, error);
    for (i = 0; i < x->files && o->filter; i++)
        filter(&x->m[i], o->filter);
    source_guard(path, NULL);
    return code;
}

static void close_all(opened *x)
{
    size_t i;
    for (i = 0; i < x->files; i++)
        model_close(&x->m[i]);
    free(x->m);
    file_list_close(&x->l);
    memset(x, 0, sizeof *x);
}

int report_file(report *p, const char *path, const char *other)
{
    char error[ERROR_TEXT];
    int  code = open_all(&p->in[0], path, p->o, error);
    if (code == 0 && other)
        code = open_all(&p->in[1], other, p->o, error);
    if (code == 0)
        code = inspect_rows(p, error);
    source_guard(NULL, NULL);
    free(p->rows);
    p->rows = NULL;
    close_all(&p->in[0]);
    close_all(&p->in[1]);
    if (code != 0) {
        if (p->o->json)
            json_failed(p, path, error);
        complain(error);
    }
    p->files++;
    return code;
}

int report_end(report *p)
{
    static const char *const under[2] = {
        "signal-to-noise ratio of a plain cast in dB, or over: a value overflows",
        "share of the changed values whose change is lost in it, or over: it cannot hold a value"};
    char error[ERROR_TEXT];
    int  code = p->broken ? -1 : 0;
    if (p->o->json)
        (void)printf("\n]}\n");
    else if (p->printed && !p->o->csv)
        (void)printf("\nUnder each format: %s.\n", under[p->o->diff]);
    if (p->plots && plot_end(p->plots, &p->all, error) != 0) {
        complain(error);
        code = -1;
    }
    free(p);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        complain("inspect: standard output cannot be written");
        code = -1;
    }
    return code;
}
