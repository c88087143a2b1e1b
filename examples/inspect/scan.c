/* scan.c -- one pass over a tensor: what each format would lose; the verdict. */
#if defined(__unix__) || defined(__APPLE__)
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#define HAVE_THREADS 1
#include <pthread.h>
#include <unistd.h>
#else
#define HAVE_THREADS 0
#endif

#include "inspect.h"

#include <math.h>

/* The class limits of all formats are searched for once. */
void scan_init(scan *s)
{
    static scan empty;
    static int  made;
    if (!made)
        made = mpt_survey_init(&empty) == MPT_OK;
    *s = empty;
}

int scan_overflows(const scan *s, mpt_format format, int log2_scale)
{
    unsigned flags = 0;
    (void)mpt_encode(format, s->max_abs * ldexp(1.0, log2_scale), NULL, &flags);
    return (flags & MPT_FLAG_OVERFLOW) != 0;
}

/* What counts as fitting, for a tolerated share T (--tolerate, 0.1%) of the finite nonzero values:
 *
 *   nothing overflows,
 *   at most T become zero,
 *   at most 10 T become zero or subnormal, which loses some of the bits.
 *
 * A format fits as it is if that holds without a scale; with a scale if it holds for the power of two
 * nearest 1 that loses no more than that while --headroom doublings stay free (or, where none does, for
 * the one that loses least); else it does not fit. */
static int tolerable(uint64_t flushed, uint64_t subnormal, uint64_t overflow, uint64_t nonzero,
                     const mpt_range_tolerance *t)
{
    return !overflow && (double)flushed <= t->flushed * (double)nonzero &&
           (double)(flushed + subnormal) <= t->subnormal * (double)nonzero;
}

static void loss_of(const mpt_range *r, const options *o, loss *l)
{
    const uint64_t      nonzero = mpt_range_nonzero(r);
    mpt_range_tolerance tolerated;
    mpt_range_choice    choice;
    memset(l, 0, sizeof *l);
    tolerated.flushed = o->tolerate;
    tolerated.subnormal = 10.0 * o->tolerate < 1.0 ? 10.0 * o->tolerate : 1.0;
    tolerated.overflow = 0.0;
    l->flushed = l->scaled_flushed = r->flushed;
    l->subnormal = l->scaled_subnormal = r->subnormal;
    l->normal = r->normal;
    l->overflow = r->overflow;
    if (tolerable(r->flushed, r->subnormal, r->overflow, nonzero, &tolerated))
        return;
    (void)mpt_range_choose_scale(r, o->headroom, &tolerated, &choice);
    l->log2_scale = choice.log2_scale;
    l->scaled_flushed = choice.flushed;
    l->scaled_subnormal = choice.subnormal;
    l->fits = tolerable(choice.flushed, choice.subnormal, choice.overflow, nonzero, &tolerated) ? FITS_SCALED
            : FITS_NOT;
}

void scan_result(const scan *s, const options *o, result *r)
{
    mpt_range one;
    int       k;
    memset(r, 0, sizeof *r);
    r->count = s->count;
    r->zero = s->zero;
    r->nonzero = s->count - s->zero - s->inf - s->nan;
    r->inf = s->inf;
    r->nan = s->nan;
    r->max_abs = s->max_abs;
    r->min_abs = s->min_abs;
    for (k = 0; k < o->format_count; k++) {
        (void)mpt_survey_get(s, o->formats[k], &one);
        loss_of(&one, o, &r->in[k]);
    }
}

/* `parts` for the progress line, which only the first of them (quiet 0) writes; they get on alike. */
static int scan_stream(scan *s, model *m, const tensor *t, const options *o, uint64_t parts, int quiet,
                       char *error)
{
    stream     *in = (stream *)malloc(sizeof *in);
    const void *x;
    size_t      n;
    int         code;
    if (!in)
        return problem(error, m->path, t->name, "out of memory");
    stream_init(in, m, t);
    while ((code = stream_next(in, &x, &n)) > 0) {
        (void)mpt_survey_add(s, t->format, x, n);
        if (!quiet)
            progress(o, m->path, t->offset + in->at * parts, m->src.size);
    }
    if (code < 0)
        memcpy(error, in->error, ERROR_TEXT);
    free(in);
    return code;
}

/* ---- several threads: reports of the parts of a tensor, merged, are the report of the whole ---- */

#if HAVE_THREADS
#define PART_LEAST ((uint64_t)1 << 22)      /* bytes that are worth a thread */

typedef struct part {
    scan           s;
    model          m;
    tensor         t;
    const options *o;
    uint64_t       parts;
    int            number, code;
    char           error[ERROR_TEXT];
} part;

static void *scan_part(void *user)
{
    part *p = (part *)user;
    p->code = scan_stream(&p->s, &p->m, &p->t, p->o, p->parts, p->number != 0, p->error);
    source_leave(&p->m.src);
    return NULL;
}

static uint64_t parts_of(const model *m, const tensor *t, const options *o)
{
    const long     processors = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t most = o->jobs ? (uint64_t)o->jobs : processors < 1 ? 1u : processors > 8 ? 8u
                                                                     : (uint64_t)processors;
    const uint64_t worth = m->src.mapped && m->kind != KIND_CSV ? t->bytes / PART_LEAST : 0;
    return worth < 2 ? 1 : worth < most ? worth : most;
}

static void part_init(part *p, const model *m, const tensor *t, const options *o, uint64_t parts, uint64_t k)
{
    const uint64_t size = t->bytes / t->count, each = t->count / parts;
    scan_init(&p->s);
    p->m = *m;
    source_share(&p->m.src, &m->src);
    p->t = *t;
    p->t.offset = t->offset + k * each * size;
    p->t.count = k + 1 < parts ? each : t->count - k * each;
    p->t.bytes = p->t.count * size;
    p->o = o;
    p->parts = parts;
    p->number = (int)k;
}

/* A thread that cannot be had is done without: the part is read here. */
static int scan_parts(scan *s, const model *m, const tensor *t, const options *o, uint64_t parts, char *error)
{
    part     *p = (part *)calloc((size_t)parts, sizeof *p);
    pthread_t thread[MAX_JOBS];
    int       started[MAX_JOBS], code = 0;
    uint64_t  k;
    if (!p)
        return problem(error, m->path, t->name, "out of memory");
    for (k = 0; k < parts; k++)
        part_init(&p[k], m, t, o, parts, k);
    for (k = 1; k < parts; k++)
        started[k] = pthread_create(&thread[k], NULL, scan_part, &p[k]) == 0;
    (void)scan_part(&p[0]);
    for (k = 1; k < parts; k++)
        if (started[k])
            (void)pthread_join(thread[k], NULL);
        else
            (void)scan_part(&p[k]);
    for (k = 0; k < parts; k++) {
        (void)mpt_survey_merge(s, &p[k].s);
        if (p[k].code && !code) {
            memcpy(error, p[k].error, ERROR_TEXT);
            code = -1;
        }
    }
    free(p);
    return code;
}
#endif

int scan_tensor(scan *s, model *m, const tensor *t, const options *o, char *error)
{
#if HAVE_THREADS
    const uint64_t parts = parts_of(m, t, o);
    if (parts > 1)
        return scan_parts(s, m, t, o, parts, error);
#endif
    return scan_stream(s, m, t, o, 1, 0, error);
}

/* The verdict, the first line that applies:
 *
 *   passed over            a type that holds no floats
 *   empty                  no values
 *   bad: 3 NaN, 1 Inf      what no format repairs
 *   all zero
 *   f16 already            the file holds the first format asked for
 *   f16 safe               the first format fits as it is
 *   f16 with scale 2^7     ... with a scale
 *   bf16 only: ...         a later one does, the first does not: because of its largest value, or of
 *                          the share that it flushes with the best of scales
 *   keep f32: ...          none does */
void verdict(char *dst, size_t cap, const tensor *t, const result *r, const options *o)
{
    const mpt_format_info *first = mpt_format_get(o->formats[0]), *f;
    const loss            *l = r->in;
    char                   why[32], share[24];
    int                    k;
    if (t->format == MPT_FORMAT_COUNT) {
        (void)snprintf(dst, cap, "passed over");
    } else if (!r->count) {
        (void)snprintf(dst, cap, "empty");
    } else if (r->nan || r->inf) {
        char nan[24], inf[24];
        text_count(nan, sizeof nan, r->nan);
        text_count(inf, sizeof inf, r->inf);
        (void)snprintf(dst, cap, "bad: %s%s%s%s%s", r->nan ? nan : "", r->nan ? " NaN" : "",
                       r->nan && r->inf ? ", " : "", r->inf ? inf : "", r->inf ? " Inf" : "");
    } else if (!r->nonzero) {
        (void)snprintf(dst, cap, "all zero");
    } else if (t->format == o->formats[0]) {
        (void)snprintf(dst, cap, "%s already", first->name);
    } else {
        for (k = 0; k < o->format_count && l[k].fits == FITS_NOT; k++)
            ;
        if (l->overflow) {
            text_value(share, sizeof share, r->max_abs);
            (void)snprintf(why, sizeof why, "max %s", share);
        } else {
            text_share(share, sizeof share, l->scaled_flushed, r->nonzero);
            (void)snprintf(why, sizeof why, "%s lost", l->scaled_flushed ? share : "bits");
        }
        f = k < o->format_count ? mpt_format_get(o->formats[k]) : NULL;
        if (!f)
            (void)snprintf(dst, cap, "keep %s: %s", mpt_format_get(t->format)->name, why);
        else if (k == 0 && l->fits == FITS)
            (void)snprintf(dst, cap, "%s safe", f->name);
        else if (k == 0)
            (void)snprintf(dst, cap, "%s with scale 2^%d", f->name, l->log2_scale);
        else if (l[k].log2_scale)
            (void)snprintf(dst, cap, "only %s*2^%d: %s", f->name, l[k].log2_scale, why);
        else
            (void)snprintf(dst, cap, "%s only: %s", f->name, why);
    }
}
