/* diff.c -- what changed from one checkpoint to another: which tensors changed, by how much, and in which
 * format the change would disappear. Tensors with the same name, shape and order are compared value by value,
 * even if their types differ; and so are two files of one tensor each, such as .npy, whatever its name. */
#include "inspect.h"

#include <math.h>

/* ---- the values ---- */

void change_init(change *c, const options *o)
{
    memset(c, 0, sizeof *c);
    for (; c->formats < o->format_count; c->formats++)
        (void)mpt_stagnation_init(&c->in[c->formats], o->formats[c->formats]);
}

/* Passes each weight and its change as floats to mpt_stagnation, the report on lost updates. For FP32 weights
 * the change is exact wherever it can be lost: both weights are then within a factor of 2 of each other. */
void change_add(change *c, mpt_format from, const void *a, mpt_format to, const void *b, size_t n,
                const double *scale)
{
    const size_t size_a = format_bytes(from), size_b = format_bytes(to);
    double       x[256], y[256], apart = 0.0, all = 0.0;
    float        w[256], u[256];
    size_t       i, j;
    int          k;
    for (i = 0; i < n; i += 256) {
        const size_t take = n - i < 256 ? n - i : 256;
        double       squares = 0.0, few = 0.0;
        size_t       changed = 0;
        (void)mpt_convert_n(MPT_F64, x, from, (const unsigned char *)a + i * size_a, take, NULL, NULL);
        (void)mpt_convert_n(MPT_F64, y, to, (const unsigned char *)b + i * size_b, take, NULL, NULL);
        for (j = 0; j < take; j++) {
            const double d = (y[j] /= scale[1]) - (x[j] /= scale[0]);
            few += isfinite(x[j]) ? x[j] * x[j] : 0.0;
            if (x[j] == y[j] || (isnan(x[j]) && isnan(y[j])))
                continue;
            c->changed++;
            if (!isfinite(d)) {
                c->apart++;
                continue;
            }
            squares += d * d;
            c->max = fabs(d) > c->max ? fabs(d) : c->max;
            w[changed] = (float)x[j];
            u[changed] = (float)d;
            c->tiny += u[changed] == 0.0f;
            changed += u[changed] != 0.0f;
        }
        apart += squares;               /* 256 values are summed first, which keeps the rounding error tiny */
        all += few;
        for (k = 0; k < c->formats; k++)
            (void)mpt_stagnation_add(&c->in[k], w, u, changed);
    }
    mpt_exact_add(&c->moved, apart, 1.0);
    mpt_exact_add(&c->from, all, 1.0);
}

void change_merge(change *c, const change *part)
{
    int k;
    c->changed += part->changed;
    c->apart += part->apart;
    c->tiny += part->tiny;
    c->max = part->max > c->max ? part->max : c->max;
    mpt_exact_merge(&c->moved, &part->moved);
    mpt_exact_merge(&c->from, &part->from);
    for (k = 0; k < c->formats; k++)
        (void)mpt_stagnation_merge(&c->in[k], &part->in[k]);
}

static void figures(moved *d, const change *c)
{
    int k;
    d->changed = c->changed;
    d->apart = c->apart;
    d->max = c->max;
    d->l2 = sqrt(mpt_exact_value(&c->moved));
    d->norm = sqrt(mpt_exact_value(&c->from));
    d->change = d->l2 > 0.0 ? d->l2 / d->norm : 0.0;
    for (k = 0; k < c->formats; k++) {
        const mpt_stagnation *r = &c->in[k];
        d->lost[k] = r->lost + c->tiny;
        d->over[k] = r->overflow + r->none;      /* u is never 0, w and u are finite: in `none` w overflows */
        if (mpt_stagnation_vanishing(r, 0.5, &d->vanish[k]) != MPT_OK)
            d->vanish[k] = 0;
    }
}

/* ---- pairs ---- */

static int by_name(const void *a, const void *b)
{
    const row *x = (const row *)a, *y = (const row *)b;
    const int  order = strcmp(x->t[0]->name, y->t[0]->name);
    return order ? order : x->key < y->key ? -1 : x->key > y->key;
}

/* Rows sorted by name. `key` is the order to print: that of the first file, then what only the second has. */
row *diff_rows(model *a, size_t a_files, model *b, size_t b_files, size_t *n)
{
    size_t na = 0, nb = 0, i = 0, j = 0;
    row   *x = rows_of(a, a_files, &na), *y = rows_of(b, b_files, &nb);
    row   *rows = x && y ? (row *)calloc(na + nb + 1, sizeof *rows) : NULL;
    if (rows) {
        qsort(x, na, sizeof *x, by_name);
        qsort(y, nb, sizeof *y, by_name);
    }
    for (*n = 0; rows && (i < na || j < nb); ++*n) {
        const int order = i == na         ? 1
                          : j == nb       ? -1
                          : na + nb == 2  ? 0
                                          : strcmp(x[i].t[0]->name, y[j].t[0]->name);
        row      *w = &rows[*n];
        w->key = order > 0 ? na + y[j].key : x[i].key;
        w->d.how = order < 0 ? ONLY_FIRST : order > 0 ? ONLY_SECOND : COMPARED;
        if (order <= 0) {
            w->m[0] = x[i].m[0];
            w->t[0] = x[i++].t[0];
        }
        if (order >= 0) {
            w->m[1] = y[j].m[0];
            w->t[1] = y[j++].t[0];
        }
    }
    free(x);
    free(y);
    return rows;
}

static int same_bytes(model *a, const tensor *t, model *b, const tensor *u)
{
    uint64_t done = 0;
    while (done < t->bytes) {
        const size_t         take = t->bytes - done < CHUNK ? (size_t)(t->bytes - done) : CHUNK;
        const unsigned char *p = source_view(tensor_source(a, t), t->offset + done, take);
        const unsigned char *q = source_view(tensor_source(b, u), u->offset + done, take);
        if (!p || !q || memcmp(p, q, take) != 0)
            return 0;
        done += take;
    }
    return 1;
}

int diff_row(row *w, const options *o, char *error)
{
    const tensor *t = w->t[0], *u = w->t[1];
    change        c;
    int           k, many = 0;
    if (!t || !u)
        return 0;
    for (k = 0; k < t->dims; k++)
        many += t->shape[k] > 1;
    if (t->dims != u->dims || memcmp(t->shape, u->shape, (size_t)t->dims * sizeof *t->shape) != 0)
        w->d.how = OTHER_SHAPE;
    else if (many > 1 && (t->fortran != u->fortran || t->scattered || u->scattered))
        w->d.how = OTHER_ORDER;
    else if (t->format == MPT_FORMAT_COUNT && !strcmp(t->type, u->type) && t->bytes && t->bytes == u->bytes)
        w->d.how = same_bytes(w->m[0], t, w->m[1], u) ? SAME_BYTES : OTHER_BYTES;
    else if (t->format == MPT_FORMAT_COUNT || u->format == MPT_FORMAT_COUNT)
        w->d.how = NO_FLOATS;
    if (w->d.how != COMPARED)
        return 0;
    if (scan_pair(&c, w->m[0], t, w->m[1], u, o, error) != 0)
        return -1;
    figures(&w->d, &c);
    return 0;
}

/* ---- verdicts and cells ---- */

/* Would a copy in format k show the changes, except for at most the share --tolerate of them? */
int diff_keeps(const moved *d, int k, const options *o)
{
    const double most = o->tolerate < 0.0 ? TOLERATE : o->tolerate;
    return !d->over[k] && (double)d->lost[k] <= most * (double)(d->changed - d->apart);
}

/* The verdict: one of `words`, "f16, bf16 keep the change" or "bad: 3 NaN or Inf in only one". */
void diff_words(char *dst, size_t cap, const row *w, const options *o)
{
    static const char *const words[] = {"", "only in the first", "only in the second", "shapes differ",
                                        "orders differ: not compared", "bytes differ", "same", "skipped"};
    const moved *d = &w->d;
    size_t       at = 0;
    int          k, kept = 0;
    if (d->how != COMPARED || !d->changed) {
        (void)snprintf(dst, cap, "%s", d->how != COMPARED ? words[d->how] : "same");
        return;
    }
    if (d->apart) {
        char n[24];
        text_count(n, sizeof n, d->apart);
        (void)snprintf(dst, cap, "bad: %s NaN or Inf in only one", n);
        return;
    }
    for (k = 0; k < o->format_count; k++)
        if (diff_keeps(d, k, o))
            at += (size_t)snprintf(dst + at, cap - at, "%s%s", kept++ ? ", " : "",
                                   mpt_format_get(o->formats[k])->name);
    if (!kept || (kept == o->format_count && kept > 1))
        (void)snprintf(dst, cap, kept ? "all keep the change" : "no format keeps the change");
    else
        (void)snprintf(dst + at, cap - at, kept == 1 ? " keeps the change" : " keep the change");
}

void diff_cells(cells *c, const row *w, const options *o)
{
    const moved  *d = &w->d;
    const tensor *t = w->t[0] ? w->t[0] : w->t[1];
    const int     done = d->how == COMPARED;
    char          words[VERDICT];
    int           k;
    diff_words(words, sizeof words, w, o);
    cell_text(c, "name", 1, t->name);
    cell_text(c, "type", w->t[0] != NULL, w->t[0] ? t->type : "");
    cell_text(c, "other_type", w->t[1] != NULL, w->t[1] ? w->t[1]->type : "");
    cell_shape(c, "shape", w->t[0]);
    cell_shape(c, "other_shape", w->t[1]);
    cell_count(c, "values", 1, t->count);
    cell_count(c, "changed", done, d->changed);
    cell_count(c, "apart", done, d->apart);
    cell_real(c, "max", done, d->max);
    cell_real(c, "l2", done, d->l2);
    cell_real(c, "change", done, d->change);
    cell_group(c, "formats");
    for (k = 0; k < o->format_count; k++) {
        cell_group(c, mpt_format_get(o->formats[k])->name);
        cell_count(c, "lost", done, d->lost[k]);
        cell_count(c, "overflow", done, d->over[k]);
        cell_real(c, "half_vanish_log2", done && d->changed, (double)d->vanish[k]);
        cell_group(c, NULL);
    }
    cell_group(c, NULL);
    cell_text(c, "verdict", 1, words);
}
