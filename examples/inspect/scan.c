/* scan.c -- one pass over a tensor: what each format would lose; the verdict. */
#include "inspect.h"

#include <math.h>

/* The class limits of all formats are searched for once. */
void scan_init(scan *s)
{
    static scan empty;
    static int  made;
    if (!made)
        made = mpt_ranges_init(&empty) == MPT_OK;
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
        (void)mpt_ranges_get(s, o->formats[k], &one);
        loss_of(&one, o, &r->in[k]);
    }
}

int scan_tensor(scan *s, model *m, const tensor *t, const options *o, char *error)
{
    stream     *in = (stream *)malloc(sizeof *in);
    const void *x;
    size_t      n;
    int         code;
    if (!in)
        return problem(error, m->path, t->name, "out of memory");
    stream_init(in, m, t);
    while ((code = stream_next(in, &x, &n)) > 0) {
        (void)mpt_ranges_add(s, t->format, x, n);
        progress(o, m->path, t->offset + in->at, m->src.size);
    }
    if (code < 0)
        memcpy(error, in->error, ERROR_TEXT);
    free(in);
    return code;
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
