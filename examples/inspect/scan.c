/* scan.c -- passes over a tensor, which find what each format would lose; the verdict. */
#include "inspect.h"

#include <math.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* mpt_survey_init searches for the class limits of all formats; that is done only once. */
void scan_init(scan *s)
{
    static mpt_survey empty;
    static int        made;
    if (!made)
        made = mpt_survey_init(&empty) == MPT_OK;
    memset(s, 0, sizeof *s);
    s->survey = empty;
    s->first_nan = s->first_inf = UINT64_MAX;
}

/* ---- the first pass: magnitudes, the sum, the first NaN and Inf ---- */

/* Look at one chunk. The sum of a tensor does not depend on the parts in which threads read it: each part
 * starts with a chunk, and the sums of chunks are added exactly. */
static void look_at(scan *s, mpt_format format, const void *x, size_t n, uint64_t first)
{
    const size_t size = format_bytes(format);
    double       v[256], sum = 0.0, few;
    size_t       i, j;
    int          signs = 0;
    (void)mpt_survey_add(&s->survey, format, x, n);
    for (i = 0; i < n; i += 256) {
        const size_t take = n - i < 256 ? n - i : 256;
        (void)mpt_convert_n(MPT_F64, v, format, (const unsigned char *)x + i * size, take, NULL, NULL);
        for (j = 0, few = 0.0; j < take; j++) {     /* sum 256 values first: less rounding error */
            signs |= (v[j] > 0.0) | (v[j] < 0.0) << 1;
            if (isfinite(v[j]))
                few += v[j];
            else if (isnan(v[j]) && s->first_nan == UINT64_MAX)
                s->first_nan = first + i + j;
            else if (!isnan(v[j]) && s->first_inf == UINT64_MAX)
                s->first_inf = first + i + j;
        }
        sum += few;
    }
    s->signs |= signs;
    if (isfinite(sum))
        mpt_exact_add(&s->sum, sum, 1.0);
    else
        s->sum.not_finite = 1;
}

void scan_merge(scan *s, const scan *part)
{
    (void)mpt_survey_merge(&s->survey, &part->survey);
    mpt_exact_merge(&s->sum, &part->sum);
    s->signs |= part->signs;
    if (part->first_nan < s->first_nan)
        s->first_nan = part->first_nan;
    if (part->first_inf < s->first_inf)
        s->first_inf = part->first_inf;
}

/* ---- what counts as fitting ----
 *
 * Rounding alone changes a number by at most 2^-p of its value, where p is the number of bits of the
 * significand. The signal-to-noise ratio is then at least 6.02 p dB, whatever the numbers (f16 66, bf16 48,
 * e4m3 24, e5m2 18). If it is lower, values were lost at the ends of the range. So a format fits a tensor if
 *
 *   nothing overflows,
 *   the signal-to-noise ratio is at least 6.02 p dB,
 *   no value that matters (at least 1/16 of the root mean square) is off by more than 1/16 (or 2^-p), and
 *   at most 5% of the nonzero values become zero if all have one sign, 50% if not, or the share --tolerate.
 *
 * Numbers of both signs are weights in sums: near-zero ones beside larger ones have hardly any energy, and
 * outputs of real models do not change without them (tests/bench/inspect_outputs.py). The verdict mentions
 * their share, but rejects a format only if they are most of the tensor. Numbers of one sign may be divisors,
 * such as the second moments of an optimizer, so each of them matters. */

static double least_db(mpt_format format)
{
    return 20.0 * log10(2.0) * (mpt_format_get(format)->mantissa_bits + 1);
}

/* Estimate the signal-to-noise ratio in dB of a cast with scale 2^k from the counts of binades alone; numbers
 * are assumed to be spread evenly over their binade. With `ends` 0, the format's range has no lower end. */
static double expected_db(const mpt_range *r, int k, int ends)
{
    const mpt_format_info *f = mpt_format_get(r->format);
    double                 signal = 0.0, noise = 0.0;
    int                    i, top = MPT_RANGE_BINS - 1;
    while (top > 0 && !r->binade[top])
        top--;
    for (i = top; i >= 0; i--) {        /* energies are relative to the highest binade: nothing overflows */
        const int    e = i + MPT_RANGE_EMIN, end = f->emin - k, last = ends && e < end ? end - e : 0;
        const double count = (double)r->binade[i], energy = count * ldexp(7.0 / 3.0, 2 * (i - top));
        const double lost = ldexp(energy / 28.0, 2 * (last - f->mantissa_bits));
        signal += energy;
        noise += lost < energy ? lost : energy;
    }
    return noise > 0.0 ? 10.0 * log10(signal / noise) : HUGE_VAL;
}

/* Upper bound of the relative error, with scale 2^k, of the values of at least 1/16 of the root mean square:
 * from rounding to a normal number, or from half of the format's least subnormal. At most 1. */
static double worst_error(const mpt_range *r, int k, double rms)
{
    const mpt_format_info *f = mpt_format_get(r->format);
    const double           least = r->min_abs > rms / 16.0 ? r->min_abs : rms / 16.0;
    const double           own = ldexp(1.0, -f->mantissa_bits - 1);
    const double           worst = 0.5 * f->min_subnormal / ldexp(least, k);
    return worst < own ? own : worst < 1.0 ? worst : 1.0;
}

static double worst_allowed(mpt_format format)
{
    const double own = ldexp(1.0, -mpt_format_get(format)->mantissa_bits - 1);
    return own > 1.0 / 16.0 ? own : 1.0 / 16.0;
}

/* log2 of the scale nearest to 1 that loses at most 0.5 dB at the lower end of the range and leaves room for
 * `headroom` doublings; if none does, the largest scale with that room. rms 0: worst_error is not checked. */
static int choose_scale(const mpt_range *r, int headroom, double rms)
{
    const double     ideal = expected_db(r, 0, 0) - 0.5, allowed = worst_allowed(r->format);
    mpt_range_choice c;
    int              most, k;
    (void)mpt_range_at_scale(r, 0, &c);
    most = c.headroom - headroom;
    most = most > 127 ? 127 : most < -126 ? -126 : most;
    for (k = most < 0 ? most : 0; k < most; k++)
        if (expected_db(r, k, 1) >= ideal && (rms <= 0.0 || worst_error(r, k, rms) <= allowed))
            break;
    return k;
}

static int few_flushed(const cast *c, const result *r, const options *o)
{
    const double most = o->tolerate >= 0.0 ? o->tolerate : r->signs == 3 ? 0.5 : TOLERATE;
    return (double)c->flushed <= most * (double)r->nonzero;
}

static int bearable(const cast *c, mpt_format format, const result *r, const options *o)
{
    return !c->overflow && c->db >= least_db(format) && c->worst <= worst_allowed(format) &&
           few_flushed(c, r, o);
}

/* Set the figures of a cast that `measured` holds. `rms`: root mean square of the tensor's nonzero values. */
static void cast_of(cast *c, const mpt_range *r, const mpt_roundoff *measured, double rms)
{
    mpt_roundoff_figures g;
    mpt_range_choice     at;
    (void)mpt_range_at_scale(r, measured->log2_scale, &at);
    (void)mpt_roundoff_get(measured, &g);
    c->log2_scale = measured->log2_scale;
    c->flushed = c->log2_scale ? at.flushed : r->flushed;      /* at.flushed counts whole binades */
    c->subnormal = c->log2_scale ? at.subnormal : r->subnormal;
    c->overflow = measured->overflow;
    c->db = g.sqnr_db;
    c->worst = worst_error(r, c->log2_scale, rms);
}

static void result_counts(const scan *s, result *r)
{
    memset(r, 0, sizeof *r);
    r->count = s->survey.count;
    r->zero = s->survey.zero;
    r->nonzero = r->count - r->zero - s->survey.inf - s->survey.nan;
    r->inf = s->survey.inf;
    r->nan = s->survey.nan;
    r->first_nan = s->first_nan;
    r->first_inf = s->first_inf;
    r->signs = s->signs;
    r->max_abs = s->survey.max_abs;
    r->min_abs = s->survey.min_abs;
    r->mean = r->count > r->inf + r->nan ? mpt_exact_value(&s->sum) / (double)(r->nonzero + r->zero) : 0.0;
}

/* No cast of all tensors together was measured, so the dB are estimates. */
void scan_total(const scan *s, const options *o, result *r)
{
    mpt_range one;
    int       k;
    result_counts(s, r);
    for (k = 0; k < o->format_count; k++) {
        loss *l = &r->in[k];
        (void)mpt_survey_get(&s->survey, o->formats[k], &one);
        l->plain.flushed = one.flushed;
        l->plain.subnormal = one.subnormal;
        l->plain.overflow = one.overflow;
        l->plain.db = l->scaled.db = expected_db(&one, 0, 1);
        l->normal = one.normal;
        l->scaled.log2_scale = r->nonzero ? choose_scale(&one, o->headroom, 0.0) : 0;
        if (r->nonzero)
            l->scaled.db = expected_db(&one, l->scaled.log2_scale, 1);
        l->fits = !r->nonzero || (!one.overflow && l->plain.db >= least_db(one.format)) ? FITS
                : l->scaled.db >= least_db(one.format) ? FITS_SCALED : FITS_NOT;
    }
}

/* What a pass does with each chunk of a tensor: scan it, cast it to formats with scales, or compare it with
 * another tensor, which is read at the same time. */
typedef struct work {
    scan        *s;                     /* NULL: no scan */
    mpt_roundoff cast[MAX_FORMATS];
    int          casts;
    change      *c;                     /* NULL: no comparison */
    double       scale[2];              /* of the tensors that are compared */
    stream      *other;
    const void  *rest;                  /* `left` values of `other` that are read but not yet compared */
    size_t       left;
} work;

/* A tensor, or a part of it, and, for a comparison, the other tensor or the same part of it. */
typedef struct span { model *m[2]; const tensor *t[2]; } span;

static int hold_against(work *w, mpt_format format, const void *x, size_t n)
{
    const mpt_format     other = w->other->t->format;
    const unsigned char *p = (const unsigned char *)x;
    while (n) {
        size_t take;
        if (!w->left && stream_next(w->other, &w->rest, &w->left) <= 0)
            return *w->other->error ? -1 : problem(w->other->error, w->other->m->path, NULL, "changed "
                                                   "while it was read");
        take = n < w->left ? n : w->left;
        change_add(w->c, format, p, other, w->rest, take, w->scale);
        p += take * (format_bytes(format));
        w->rest = (const unsigned char *)w->rest + take * (format_bytes(other));
        w->left -= take;
        n -= take;
    }
    return 0;
}

static int work_on(work *w, mpt_format format, const void *x, size_t n, uint64_t first)
{
    int k;
    if (w->s)
        look_at(w->s, format, x, n, first);
    for (k = 0; k < w->casts; k++)
        (void)mpt_roundoff_add(&w->cast[k], format, x, n);
    return w->c ? hold_against(w, format, x, n) : 0;
}

/* Only the first part (quiet 0) shows progress: its own, times `parts`: all are about as fast. */
static int work_stream(work *w, const span *of, uint64_t first, const options *o, uint64_t parts, int quiet,
                       char *error)
{
    model *const m = of->m[0];
    stream      *in = (stream *)malloc((w->c ? 2 : 1) * sizeof *in);
    const void  *x;
    size_t       n;
    int          code;
    if (!in)
        return problem(error, m->path, of->t[0]->name, "out of memory");
    stream_init(in, m, of->t[0]);
    if (w->c)
        stream_init(w->other = in + 1, of->m[1], of->t[1]);
    while ((code = stream_next(in, &x, &n)) > 0) {
        if (work_on(w, of->t[0]->format, x, n, first) != 0) {
            memcpy(in->error, in[1].error, ERROR_TEXT);
            code = -1;
            break;
        }
        first += n;
        if (!quiet)
            progress(o, m->path, of->t[0]->offset + in->at * parts, m->src.size);
    }
    if (code < 0)
        memcpy(error, in->error, ERROR_TEXT);
    free(in);
    return code;
}

/* ---- several threads, of OpenMP or the pool of MPT_PARALLEL_FOR: each reports on one part of a tensor, and
 * the merged reports are the same as one report of the whole tensor ---- */

#define PART_LEAST ((uint64_t)1 << 22)      /* least bytes of a part: less is not worth a thread */

typedef struct part {
    work           w;
    scan           s;
    change         c;
    model          m[2];
    tensor         t[2];
    const options *o;
    uint64_t       parts, first;
    int            code;
    char           error[ERROR_TEXT];
} part;

static void work_part(void *user, size_t k)
{
    part *p = (part *)user + k;
    span  of;
    of.m[0] = &p->m[0];
    of.m[1] = &p->m[1];
    of.t[0] = &p->t[0];
    of.t[1] = &p->t[1];
    p->code = work_stream(&p->w, &of, p->first, p->o, p->parts, k != 0, p->error);
    source_leave(&p->m[0].src);
    source_leave(&p->m[1].src);
}

static uint64_t parts_of(const span *of, const options *o)
{
#ifdef _OPENMP
    const int threads = o->jobs ? o->jobs : omp_get_max_threads();
#else
    const int threads = o->jobs ? o->jobs : 1;
#endif
    uint64_t worth = of->t[0]->bytes / PART_LEAST;
    int      i;
    for (i = 0; i < 2 && of->t[i]; i++)
        if (!tensor_source(of->m[i], of->t[i])->mapped || of->m[i]->kind == KIND_CSV)
            worth = 0;
    worth = worth < (uint64_t)threads ? worth : (uint64_t)threads;
    return worth < 2 ? 1 : worth < MAX_JOBS ? worth : MAX_JOBS;
}

/* Every part but the last has a multiple of CHUNK values, so it ends where a chunk of the stream ends. */
static void part_init(part *p, const work *w, const span *of, const options *o, uint64_t parts, uint64_t k)
{
    const uint64_t all = of->t[0]->count, each = all / parts / CHUNK * CHUNK;
    const uint64_t count = k + 1 == parts ? all - k * each : each;
    int            i;
    p->w = *w;
    scan_init(&p->s);
    p->w.s = w->s ? &p->s : NULL;
    if (w->c)
        change_init(p->w.c = &p->c, o);
    p->first = k * each;
    for (i = 0; i < 2 && of->t[i]; i++) {
        const uint64_t size = of->t[i]->bytes / all;
        p->m[i] = *of->m[i];
        source_share(&p->m[i].src, tensor_source(of->m[i], of->t[i]));
        p->t[i] = *of->t[i];
        p->t[i].from = NULL;
        p->t[i].offset += p->first * size;
        p->t[i].count = count;
        p->t[i].bytes = count * size;
    }
    p->o = o;
    p->parts = parts;
}

static void for_all(size_t count, void (*body)(void *context, size_t k), void *context)
{
#ifdef MPT_PARALLEL_FOR
    MPT_PARALLEL_FOR(count, body, context);
#else
    const int n = (int)count;
    int       k;
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(n)
#endif
    for (k = 0; k < n; k++)
        body(context, (size_t)k);
#endif
}

static int work_tensor(work *w, const span *of, const options *o, char *error)
{
    const uint64_t parts = parts_of(of, o);
    part          *p;
    uint64_t       k;
    int            i, code = 0;
    if (parts < 2)
        return work_stream(w, of, 0, o, 1, 0, error);
    p = (part *)calloc((size_t)parts, sizeof *p);
    if (!p)
        return problem(error, of->m[0]->path, of->t[0]->name, "out of memory");
    for (k = 0; k < parts; k++)
        part_init(&p[k], w, of, o, parts, k);
    for_all((size_t)parts, work_part, p);
    for (k = 0; k < parts; k++) {
        if (w->s)
            scan_merge(w->s, &p[k].s);
        if (w->c)
            change_merge(w->c, &p[k].c);
        for (i = 0; i < w->casts; i++)
            (void)mpt_roundoff_merge(&w->cast[i], &p[k].w.cast[i]);
        if (p[k].code && !code) {
            memcpy(error, p[k].error, ERROR_TEXT);
            code = -1;
        }
    }
    free(p);
    return code;
}

/* Measure, in one pass, the casts to the formats whose bits are set in `which`, with their scales. */
static int measure(result *r, const scan *s, const span *of, const options *o, unsigned which,
                   const int *log2_scale, double *rms, char *error)
{
    work      w;
    mpt_range one;
    int       at[MAX_FORMATS], k, code;
    memset(&w, 0, sizeof w);
    for (k = 0; k < o->format_count; k++)
        if (which >> k & 1u) {
            at[k] = w.casts++;
            (void)mpt_roundoff_init(&w.cast[at[k]], o->formats[k], NULL, log2_scale[k]);
        }
    code = w.casts ? work_tensor(&w, of, o, error) : 0;
    for (k = 0; k < o->format_count && code == 0; k++)
        if (which >> k & 1u) {
            const mpt_roundoff *got = &w.cast[at[k]];
            loss               *l = &r->in[k];
            (void)mpt_survey_get(&s->survey, o->formats[k], &one);
            if (!got->overflow)         /* got->signal leaves out values that overflow */
                *rms = ldexp(sqrt(mpt_exact_value(&got->signal) / (double)r->nonzero), -log2_scale[k]);
            cast_of(log2_scale[k] ? &l->scaled : &l->plain, &one, got, *rms);
            if (!log2_scale[k])
                l->scaled = l->plain;
        }
    return code;
}

int scan_tensor(scan *s, result *r, model *m, const tensor *t, const options *o, char *error)
{
    int       log2_scale[MAX_FORMATS] = {0}, k;
    unsigned  all = (1u << o->format_count) - 1u, again = 0;
    double    rms = 0.0;
    mpt_range one;
    work      w;
    span      of = {{NULL, NULL}, {NULL, NULL}};
    of.m[0] = m;
    of.t[0] = t;
    memset(&w, 0, sizeof w);
    w.s = s;
    if (work_tensor(&w, &of, o, error) != 0)
        return -1;
    result_counts(s, r);
    if (!r->nonzero)
        return 0;
    if (measure(r, s, &of, o, all, log2_scale, &rms, error) != 0)
        return -1;
    for (k = 0; k < o->format_count; k++) {
        loss *l = &r->in[k];
        (void)mpt_survey_get(&s->survey, o->formats[k], &one);
        l->normal = one.normal;
        l->fits = bearable(&l->plain, o->formats[k], r, o) ? FITS : FITS_NOT;
        if (l->fits == FITS_NOT)
            log2_scale[k] = choose_scale(&one, o->headroom, rms);
        again |= (unsigned)(log2_scale[k] != 0) << k;
    }
    if (measure(r, s, &of, o, again, log2_scale, &rms, error) != 0)
        return -1;
    for (k = 0; k < o->format_count; k++)
        if (again >> k & 1u && bearable(&r->in[k].scaled, o->formats[k], r, o))
            r->in[k].fits = FITS_SCALED;
    r->rms = rms;
    return 0;
}

int scan_pair(change *c, model *a, const tensor *t, model *b, const tensor *u, const options *o, char *error)
{
    work w;
    span of;
    of.m[0] = a;
    of.m[1] = b;
    of.t[0] = t;
    of.t[1] = u;
    memset(&w, 0, sizeof w);
    if (earlier_scale(a, t, &w.scale[0], error) != 0 || earlier_scale(b, u, &w.scale[1], error) != 0)
        return -1;
    change_init(w.c = c, o);
    return work_tensor(&w, &of, o, error);
}

/* "74 dB", and the share of the nonzero values that become zero, if it is above 0.1%. */
static void say_cast(char *dst, size_t cap, const cast *c, const result *r)
{
    char share[24], db[16];
    text_db(db, sizeof db, c->db);
    text_share(share, sizeof share, c->flushed, r->nonzero);
    if ((double)c->flushed > 0.001 * (double)r->nonzero)
        (void)snprintf(dst, cap, "%s, %s to 0", db, share);
    else
        (void)snprintf(dst, cap, "%s", db);
}

/* Say why a format does not fit. */
static void say_why_not(char *dst, size_t cap, mpt_format format, const loss *l, const result *r,
                        const options *o)
{
    const char *name = mpt_format_get(format)->name;
    char        text[32];
    if (l->plain.overflow) {
        text_value(text, sizeof text, r->max_abs);
        (void)snprintf(dst, cap, "%s overflows at %s", name, text);
    } else if (!few_flushed(&l->scaled, r, o)) {
        text_share(text, sizeof text, l->scaled.flushed, r->nonzero);
        (void)snprintf(dst, cap, "%s makes %s zero", name, text);
    } else {
        text_db(text, sizeof text, l->scaled.db);
        (void)snprintf(dst, cap, "%s gives %s", name, text);
    }
}

/* The format to recommend: the first that fits, or one before it that does not fit but gives as many dB. */
static int choose_format(const result *r, const options *o)
{
    int k, j;
    for (k = 0; k < o->format_count && r->in[k].fits == FITS_NOT; k++)
        ;
    for (j = 0; j < k && k < o->format_count; j++) {
        const cast *ours = &r->in[j].scaled, *its = &r->in[k].scaled;
        if (!ours->overflow && few_flushed(ours, r, o) && ours->db >= its->db)
            return j;
    }
    return k;
}

/* Write "3 NaN, first at 7": their number, and the index of the first. Returns the length. */
static size_t say_bad(char *dst, size_t cap, const char *what, uint64_t n, uint64_t first)
{
    char count[24];
    text_count(count, sizeof count, n);
    return !n ? 0 : (size_t)snprintf(dst, cap, "%s %s%s at %llu", count, what, n > 1 ? ", first" : "",
                                     (ull)first);
}

/* The verdict is the first line that applies:
 *
 *   skipped; quantized, skipped        not a float type that inspect reads
 *   empty                              no values
 *   bad: 3 NaN, first at 7; 1 Inf at 2 no format can repair these
 *   all zero
 *   f16 already                        the type in the file is the first format of --format
 *   f16 safe: 74 dB                    the first format fits as it is
 *   f16 with scale 2^7: 74 dB          the first format fits with a scale
 *   f16: 62 dB                         it does not fit, but the format that fits gives no more dB
 *   bf16: 56 dB; f16 makes 31% zero    a later format fits; the first does not, and the reason
 *   keep f32: f16 gives 41 dB          no format fits, and the reason for the first */
void verdict(char *dst, size_t cap, const tensor *t, const result *r, const options *o)
{
    const loss *l = r->in;
    char        why[48], how[48], scale[24] = "";
    int         k;
    if (t->format == MPT_FORMAT_COUNT) {
        (void)snprintf(dst, cap, strchr("QTMN", *t->type) || !strncmp(t->type, "IQ", 2)
                       ? "quantized, skipped" : "skipped");
    } else if (!r->count) {
        (void)snprintf(dst, cap, "empty");
    } else if (r->nan || r->inf) {
        size_t used = (size_t)snprintf(dst, cap, "bad: ");
        used += say_bad(dst + used, cap - used, "NaN", r->nan, r->first_nan);
        used += (size_t)snprintf(dst + used, cap - used, r->nan && r->inf ? "; " : "");
        (void)say_bad(dst + used, cap - used, "Inf", r->inf, r->first_inf);
    } else if (!r->nonzero) {
        (void)snprintf(dst, cap, "all zero");
    } else if (t->format == o->formats[0]) {
        (void)snprintf(dst, cap, "%s already", mpt_format_get(o->formats[0])->name);
    } else {
        k = choose_format(r, o);
        say_why_not(why, sizeof why, o->formats[0], &l[0], r, o);
        if (k == o->format_count) {
            (void)snprintf(dst, cap, "keep %s: %s", mpt_format_get(t->format)->name, why);
            return;
        }
        say_cast(how, sizeof how, l[k].fits == FITS ? &l[k].plain : &l[k].scaled, r);
        if (l[k].fits != FITS && l[k].scaled.log2_scale)
            (void)snprintf(scale, sizeof scale, " with scale 2^%d", l[k].scaled.log2_scale);
        (void)snprintf(dst, cap, "%s%s: %s%s%s", mpt_format_get(o->formats[k])->name,
                       k == 0 && l->fits == FITS ? " safe" : scale, how, k ? "; " : "", k ? why : "");
    }
}
