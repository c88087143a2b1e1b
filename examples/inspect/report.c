/* report.c -- table, summary, JSON. */
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>
#define STDERR_IS_TERMINAL() isatty(fileno(stderr))
#else
#define STDERR_IS_TERMINAL() 0
#endif

#include "inspect.h"

#include <errno.h>
#include <math.h>
#include <time.h>

/* What is kept of each tensor until its file is printed. */
typedef struct row { const tensor *t; result r; uint64_t key; int median; } row;    /* log2 of the median */

/* Of all tensors of a file, per format. */
typedef struct sums {
    uint64_t tensors, values, passed_over, nan, inf;
    uint64_t fits[MAX_FORMATS][3];
} sums;

struct report {
    const options *o;
    plot          *plots;
    scan           total;       /* of the file in hand */
    scan           all;         /* of all files */
    int            files, printed;
    uint64_t       broken;      /* rules of --fail-if that hold for a tensor */
};

/* ---- messages ---- */

static int progress_shown;

static void progress_clear(void)
{
    if (progress_shown)
        (void)fprintf(stderr, "\r%79s\r", "");
    progress_shown = 0;
}

/* At most four lines a second, and none for what is done at once. */
void progress(const options *o, const char *path, uint64_t done, uint64_t all)
{
    static clock_t  last, first;
    static uint64_t before;
    const clock_t   now = clock();
    char            name[160], size[32];
    if (!o->progress || (o->progress < 0 && !STDERR_IS_TERMINAL()))
        return;
    if (!before || done < before)
        first = last = now;
    before = done;
    if (now - last < CLOCKS_PER_SEC / 4)
        return;
    last = now;
    (void)text_safe(name, sizeof name, path, 40);
    text_bytes(size, sizeof size, all);
    (void)fprintf(stderr, "\r%s: %.0f%% of %s, %.2f GB/s ", name,
                  100.0 * (double)done / (double)(all ? all : 1), size,
                  (double)done / ((double)(now - first) / (double)CLOCKS_PER_SEC) * 1e-9);
    (void)fflush(stderr);
    progress_shown = 1;
}

void complain(const options *o, const char *error)
{
    (void)o;
    progress_clear();
    (void)fflush(stdout);
    (void)fprintf(stderr, "inspect: %s\n", error);
}

/* ---- order ---- */

static double sort_key(const row *w, const char *by)
{
    const loss  *l = &w->r.in[0];
    const double nonzero = w->r.nonzero ? (double)w->r.nonzero : 1.0;
    if (!strcmp(by, "flushed"))
        return (double)l->plain.flushed / nonzero;
    if (!strcmp(by, "overflow"))
        return (double)l->plain.overflow / nonzero;
    if (!strcmp(by, "subnormal"))
        return (double)l->plain.subnormal / nonzero;
    if (!strcmp(by, "db"))              /* what overflows is the worst, what holds no numbers the best */
        return !w->r.nonzero ? -HUGE_VAL : l->plain.overflow ? HUGE_VAL : -l->plain.db;
    if (!strcmp(by, "max"))
        return w->r.max_abs;
    if (!strcmp(by, "min"))
        return w->r.nonzero ? -w->r.min_abs : -HUGE_VAL;
    if (!strcmp(by, "size"))
        return (double)w->t->count;
    return (double)(l->plain.flushed + l->plain.overflow) / nonzero;
}

static const char *order_by;

static int by_order(const void *a, const void *b)
{
    const row   *x = (const row *)a, *y = (const row *)b;
    const double p = sort_key(x, order_by), q = sort_key(y, order_by);
    return p > q ? -1 : p < q ? 1 : x->key < y->key ? -1 : x->key > y->key;
}

/* ---- the table ---- */

enum { SHORTEST_NAME = 20, LONGEST_NAME = 2000 };

/* Column widths: types and verdicts take what they need, names what is left. */
typedef struct widths { int name, type; } widths;

static int longer(int width, const char *text)
{
    const int n = (int)strlen(text);
    return n > width ? n : width;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Do names cut to that width still differ? What cannot be found out for lack of memory is taken as yes. */
static int names_differ(const row *rows, size_t n, int width)
{
    char **cut = (char **)calloc(n + 1, sizeof *cut);
    char   text[4 * LONGEST_NAME];
    size_t i;
    int    differ = 1;
    for (i = 0; cut && i < n; i++) {
        (void)text_safe(text, sizeof text, rows[i].t->name, width);
        cut[i] = copy_text(text, strlen(text));
        if (!cut[i])
            break;
    }
    if (cut && i == n) {
        qsort(cut, n, sizeof *cut, by_text);
        for (i = 1; i < n && differ; i++)
            differ = strcmp(cut[i - 1], cut[i]) != 0;
    }
    for (i = 0; cut && i < n; i++)
        free(cut[i]);
    free(cut);
    return differ;
}

static widths find_widths(const row *rows, size_t n, const options *o)
{
    widths w = {6, 4};
    int    words = 7, longest;
    size_t i;
    for (i = 0; i < n; i++) {
        char      text[4 * LONGEST_NAME];
        const int name = text_safe(text, sizeof text, rows[i].t->name, LONGEST_NAME);
        w.name = name > w.name ? name : w.name;
        w.type = longer(w.type, rows[i].t->type);
        verdict(text, sizeof text, rows[i].t, &rows[i].r, o);
        words = longer(words, text);
    }
    words += w.type + 26 + 7 * o->format_count;         /* all but the name */
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
    (void)printf("%-*s %-*s %6s %7s %7s", w.name, "tensor", w.type, "type", "values", "min|x|", "max|x|");
    if (o->wide)
        (void)printf(" %-14s %9s %9s %7s %6s", "shape", "mean", "std", "zeros", "median");
    for (k = 0; k < o->format_count; k++)
        (void)printf(" %6s", mpt_format_get(o->formats[k])->name);
    (void)printf("  verdict\n");
}

/* What a plain cast leaves, in dB; "over" where something overflows. */
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

/* What --wide adds: shape, mean, standard deviation, zeros, and where half of the magnitudes lie below. */
static void print_wide(const row *p)
{
    char     shape[24 * MAX_DIMS] = "", mean[24] = "-", std[24] = "-", half[24] = "-", zero[24];
    size_t   at = 0;
    int      k;
    for (k = 0; k < p->t->dims && at < sizeof shape - 24; k++)
        at += (size_t)sprintf(shape + at, "%s%llu", k ? "x" : "", (unsigned long long)p->t->shape[k]);
    text_share(zero, sizeof zero, p->r.zero, p->r.count);
    if (p->r.nonzero) {
        text_value(mean, sizeof mean, p->r.mean);
        text_value(std, sizeof std, deviation(&p->r));
        (void)snprintf(half, sizeof half, "2^%d", p->median);
    }
    (void)printf(" %-14s %9s %9s %7s %6s", *shape ? shape : "1", mean, std, zero, half);
}

static void print_row(const row *p, const options *o, widths w)
{
    char      name[4 * LONGEST_NAME], count[16], least[24], most[24], words[VERDICT];
    const int width = text_safe(name, sizeof name, p->t->name, w.name);
    int       k;
    text_count(count, sizeof count, p->t->count);
    text_value(least, sizeof least, p->r.min_abs);
    text_value(most, sizeof most, p->r.max_abs);
    verdict(words, sizeof words, p->t, &p->r, o);
    (void)printf("%s%*s %-*s %6s %7s %7s", name, w.name - width, "", w.type, p->t->type, count,
                 p->r.nonzero ? least : "-", p->r.nonzero ? most : "-");
    if (o->wide)
        print_wide(p);
    for (k = 0; k < o->format_count; k++)
        print_loss(&p->r.in[k], &p->r);
    (void)printf("  %s\n", words);
}

static void print_summary_line(const char *title, const options *o, const sums *s, const result *all,
                               int which)
{
    int k;
    (void)printf("%-43s", title);
    for (k = 0; k < o->format_count; k++) {
        const loss *l = &all->in[k];
        char        text[24];
        if (which < 3)
            (void)snprintf(text, sizeof text, "%llu", (unsigned long long)s->fits[k][which]);
        else if (which == 5 && l->fits == FITS)
            (void)snprintf(text, sizeof text, "1");
        else if (which == 5)
            (void)snprintf(text, sizeof text, l->fits == FITS_NOT ? "no" : "2^%d", l->scaled.log2_scale);
        else
            text_share(text, sizeof text, which == 3 ? l->plain.flushed : l->plain.overflow, all->nonzero);
        (void)printf(" %9s", text);
    }
    (void)printf("\n");
}

static void print_summary(const options *o, const sums *s, const result *all)
{
    static const char *const titles[] = {
        "tensors that fit as they are",    "tensors that fit with a scale of their own",
        "tensors that do not fit",         "of all nonzero values, become zero",
        "of all nonzero values, overflow", "one scale for all"};
    int k;
    (void)printf("\n%-43s", "summary");
    for (k = 0; k < o->format_count; k++)
        (void)printf(" %9s", mpt_format_get(o->formats[k])->name);
    (void)printf("\n");
    for (k = 0; k < 6; k++)
        print_summary_line(titles[k], o, s, all, k);
}

/* "model.safetensors: safetensors, 1.6 MiB", or of several files how many. */
static void print_title(const report *p, const char *path, const model *m, size_t files)
{
    char     name[256], size[32];
    uint64_t bytes = 0;
    size_t   i;
    for (i = 0; i < files; i++)
        bytes += m[i].src.size;
    (void)text_safe(name, sizeof name, path, 60);
    text_bytes(size, sizeof size, bytes);
    (void)printf("%s%s: %s, ", p->printed ? "\n" : "", name, kind_name(m->kind));
    if (files > 1)
        (void)printf("%llu files, ", (unsigned long long)files);
    (void)printf("%s", size);
}

static void print_file(const report *p, const char *path, const model *m, size_t files, const row *rows,
                       size_t n, const sums *s, const result *all)
{
    const options *o = p->o;
    char           values[16];
    size_t         i, shown = o->top && o->top < n ? (size_t)o->top : n;
    widths         w;
    print_title(p, path, m, files);
    text_count(values, sizeof values, s->values);
    (void)printf(", %llu tensor%s, %s values", (unsigned long long)n, n == 1 ? "" : "s", values);
    if (s->passed_over)
        (void)printf(", %llu not of a float type", (unsigned long long)s->passed_over);
    if (s->nan || s->inf)
        (void)printf(", %llu NaN, %llu Inf", (unsigned long long)s->nan, (unsigned long long)s->inf);
    (void)printf("\n");
    if (shown < n)
        (void)printf("the %llu tensors that come first by '%s' in %s\n", (unsigned long long)shown, o->by,
                     mpt_format_get(o->formats[0])->name);
    w = find_widths(rows, shown, o);
    print_head(o, w);
    for (i = 0; i < shown; i++)
        print_row(&rows[i], o, w);
    if (n > 1)
        print_summary(o, s, all);
}

/* ---- JSON ---- */

static void json_u64(const char *key, uint64_t x)
{
    (void)printf("\"%s\":%llu,", key, (unsigned long long)x);
}

/* JSON has no Inf and no NaN: null. */
static void json_real(const char *key, double x)
{
    if (isfinite(x))
        (void)printf("\"%s\":%.17g,", key, x);
    else
        (void)printf("\"%s\":null,", key);
}

static void json_loss(const loss *l, mpt_format format)
{
    static const char *const words[] = {"yes", "with scale", "no"};
    (void)printf("\"%s\":{", mpt_format_get(format)->name);
    json_u64("flushed", l->plain.flushed);
    json_u64("subnormal", l->plain.subnormal);
    json_u64("normal", l->normal);
    json_u64("overflow", l->plain.overflow);
    json_real("db", l->plain.db);
    json_real("worst", l->plain.worst);
    (void)printf("\"log2_scale\":%d,", l->scaled.log2_scale);
    json_u64("scaled_flushed", l->scaled.flushed);
    json_u64("scaled_subnormal", l->scaled.subnormal);
    json_real("scaled_db", l->scaled.db);
    (void)printf("\"fits\":\"%s\"}", words[l->fits]);
}

static void json_row(const row *w, const options *o, const char *before)
{
    const tensor *t = w->t;
    const result *r = &w->r;
    char          words[VERDICT];
    int           k;
    verdict(words, sizeof words, t, r, o);
    (void)printf("%s\n    {\"name\":", before);
    text_json(stdout, t->name);
    (void)printf(",\"type\":");
    text_json(stdout, t->type);
    (void)printf(",\"shape\":[");
    for (k = 0; k < t->dims; k++)
        (void)printf("%s%llu", k ? "," : "", (unsigned long long)t->shape[k]);
    (void)printf("],\"order\":\"%s\",", t->fortran ? "fortran" : "c");
    json_u64("values", t->count);
    if (t->format != MPT_FORMAT_COUNT) {
        json_u64("zero", r->zero);
        json_u64("nan", r->nan);
        json_u64("inf", r->inf);
        if (r->nan)
            json_u64("first_nan", r->first_nan);
        if (r->inf)
            json_u64("first_inf", r->first_inf);
        (void)printf("\"min_abs\":%.17g,\"max_abs\":%.17g,", r->min_abs, r->max_abs);
        json_real("mean", r->mean);
        json_real("std", deviation(r));
        if (r->nonzero)
            (void)printf("\"median_log2\":%d,", w->median);
        (void)printf("\"formats\":{");
        for (k = 0; k < o->format_count; k++) {
            (void)printf("%s", k ? "," : "");
            json_loss(&r->in[k], o->formats[k]);
        }
        (void)printf("},");
    }
    (void)printf("\"verdict\":\"%s\"}", words);
}

static void json_summary(const options *o, const sums *s, const result *all)
{
    int k;
    (void)printf("],\n   \"summary\":{");
    json_u64("tensors", s->tensors);
    json_u64("passed_over", s->passed_over);
    json_u64("values", s->values);
    json_u64("nan", s->nan);
    json_u64("inf", s->inf);
    (void)printf("\"formats\":{");
    for (k = 0; k < o->format_count; k++) {
        const loss *l = &all->in[k];
        (void)printf("%s\"%s\":{", k ? "," : "", mpt_format_get(o->formats[k])->name);
        json_u64("fit", s->fits[k][FITS]);
        json_u64("fit_with_scale", s->fits[k][FITS_SCALED]);
        json_u64("do_not_fit", s->fits[k][FITS_NOT]);
        json_u64("flushed", l->plain.flushed);
        (void)printf("\"overflow\":%llu}", (unsigned long long)l->plain.overflow);
    }
    (void)printf("}}}");
}

static void json_file(const report *p, const char *path, const model *m, size_t files, const row *rows,
                      size_t n, const sums *s, const result *all)
{
    const size_t shown = p->o->top && p->o->top < n ? (size_t)p->o->top : n;
    uint64_t     bytes = 0;
    size_t       i;
    for (i = 0; i < files; i++)
        bytes += m[i].src.size;
    (void)printf("%s\n  {\"file\":", p->files ? "," : "");
    text_json(stdout, path);
    (void)printf(",\"kind\":\"%s\",\"bytes\":%llu,\"tensors\":[", kind_name(m->kind),
                 (unsigned long long)bytes);
    for (i = 0; i < shown; i++)
        json_row(&rows[i], p->o, i ? "," : "");
    json_summary(p->o, s, all);
}

static void json_failed(const report *p, const char *path, const char *error)
{
    (void)printf("%s\n  {\"file\":", p->files ? "," : "");
    text_json(stdout, path);
    (void)printf(",\"error\":");
    text_json(stdout, error);
    (void)printf("}");
}

/* ---- a file ---- */

static void add_up(sums *s, const tensor *t, const result *r, const options *o)
{
    int k;
    s->tensors++;
    s->values += t->count;
    if (t->format == MPT_FORMAT_COUNT) {
        s->passed_over++;
        return;
    }
    s->nan += r->nan;
    s->inf += r->inf;
    for (k = 0; k < o->format_count; k++)
        s->fits[k][r->nan || r->inf ? FITS_NOT : r->in[k].fits]++;
}

static int rule_holds(const rule *q, const result *r, const options *o)
{
    const double nonzero = r->nonzero ? (double)r->nonzero : 1.0;
    const cast  *c = &r->in[0].plain;
    double       x = q->figure == 4 ? (double)r->nan : (double)r->inf;
    int          k;
    for (k = 0; k < o->format_count; k++)
        if (o->formats[k] == q->format)
            c = &r->in[k].plain;
    if (q->figure < 4 && !r->nonzero)
        return 0;                       /* there is nothing to lose */
    if (q->figure == 0)
        x = c->overflow ? -HUGE_VAL : c->db;
    else if (q->figure < 4)
        x = (double)(q->figure == 1 ? c->flushed : q->figure == 2 ? c->overflow : c->subnormal) / nonzero;
    return (q->equal && x == q->number) || (q->above ? x > q->number : x < q->number);
}

static void check_rules(report *p, const char *path, const tensor *t, const result *r)
{
    int i;
    for (i = 0; i < p->o->rule_count; i++)
        if (rule_holds(&p->o->rules[i], r, p->o)) {
            char error[ERROR_TEXT];
            (void)problem(error, path, t->name, "%s", p->o->rules[i].text);
            complain(p->o, error);
            p->broken++;
        }
}

/* Does the whole name match? An asterisk stands for any characters, a question mark for one. */
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

/* Only the tensors that --filter names, in the order of the file. */
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

static int scan_all(report *p, model *m, row *rows, sums *s, char *error)
{
    size_t i;
    for (i = 0; i < m->count; i++) {
        const tensor *t = &m->tensors[i];
        scan          one;
        mpt_range     range;
        scan_init(&one);
        memset(&rows[i].r, 0, sizeof rows[i].r);
        if (t->format != MPT_FORMAT_COUNT && scan_tensor(&one, &rows[i].r, m, t, p->o, error) != 0)
            return -1;
        rows[i].t = t;
        (void)mpt_survey_get(&one.survey, MPT_F32, &range);
        (void)mpt_range_percentile(&range, 50.0, &rows[i].median);
        scan_merge(&p->total, &one);
        add_up(s, t, &rows[i].r, p->o);
        if (t->format != MPT_FORMAT_COUNT)
            check_rules(p, m->path, t, &rows[i].r);
        if (p->plots && plot_tensor(p->plots, m->path, t, &one, &rows[i].r) != 0)
            return problem(error, p->o->plot, NULL, "%s", strerror(errno));
    }
    return 0;
}

/* The tensors of all files of one argument, in one table. */
static int inspect_models(report *p, const char *path, model *m, size_t files, char *error)
{
    size_t n = 0, i;
    row   *rows;
    sums   s;
    result all;
    for (i = 0; i < files; i++)
        n += m[i].count;
    rows = (row *)calloc(n + 1, sizeof *rows);
    if (!rows)
        return problem(error, path, NULL, "out of memory");
    memset(&s, 0, sizeof s);
    scan_init(&p->total);
    for (i = 0, n = 0; i < files; n += m[i++].count)
        if (scan_all(p, &m[i], rows + n, &s, error) != 0) {
            free(rows);
            return -1;
        }
    for (i = 0; i < n; i++)
        rows[i].key = i;
    scan_total(&p->total, p->o, &all);
    scan_merge(&p->all, &p->total);
    order_by = p->o->by;
    if (p->o->by)
        qsort(rows, n, sizeof *rows, by_order);
    progress_clear();
    (p->o->json ? json_file : print_file)(p, path, m, files, rows, n, &s, &all);
    p->printed++;
    free(rows);
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
        complain(o, error);
        free(p);
        return NULL;
    }
    if (o->json)
        (void)printf("{\"files\":[");
    return p;
}

static int report_list(report *p, const char *path, file_list *l, char *error)
{
    model *m = (model *)calloc(l->count, sizeof *m);
    size_t open = 0, i;
    int    code = m ? 0 : problem(error, path, NULL, "out of memory");
    for (; code == 0 && open < l->count; open += code == 0) {
        source_guard(l->path[open], NULL);
        code = model_open(&m[open], l->path[open], p->o->map, p->o->raw, error);
    }
    if (code == 0)
        code = file_list_check(l, m, error);
    for (i = 0; i < open && p->o->filter; i++)
        filter(&m[i], p->o->filter);
    source_guard(path, NULL);
    if (code == 0)
        code = inspect_models(p, path, m, l->count, error);
    source_guard(NULL, NULL);
    for (i = 0; i < open; i++)
        model_close(&m[i]);
    free(m);
    return code;
}

int report_file(report *p, const char *path)
{
    file_list l;
    char      error[ERROR_TEXT];
    int       code = file_list_open(&l, path, error);
    if (code == 0)
        code = report_list(p, path, &l, error);
    file_list_close(&l);
    if (code != 0) {
        if (p->o->json)
            json_failed(p, path, error);
        complain(p->o, error);
    }
    p->files++;
    return code;
}

int report_end(report *p)
{
    char error[ERROR_TEXT];
    int  code = p->broken ? -1 : 0;
    if (p->o->json)
        (void)printf("\n]}\n");
    else if (p->printed)
        (void)printf("\nUnder each format: signal to noise of a plain cast in dB, or over: something "
                     "overflows.\n");
    if (p->plots && plot_end(p->plots, &p->all, error) != 0) {
        complain(p->o, error);
        code = -1;
    }
    free(p);
    if (fflush(stdout) != 0 || ferror(stdout))
        code = -1;
    return code;
}
