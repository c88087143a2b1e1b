/* processes.h -- simulated trainings to compare loss scaling rules on, for tests/test_mpt_scaler.c and
 * tests/bench/bench_scaler.c. A process gives for each step the largest scale that works, and bad data.
 *
 * The log2 of a step's gradients is normally distributed with deviation sigma. A step overflows FP16 if the
 * scale takes the largest of a million gradients to 2^16; gradients below 2^-25 after scaling are flushed.
 * Useful steps: the sum of what steps without overflow keep. No rule can save a step with bad data. */
#ifndef MPT_PROCESSES_H
#define MPT_PROCESSES_H
#include "test.h"

#include <math.h>
#include <stdlib.h>

/* A process is a list of letters, each with a number; numbers that are not given are 0.
 *   m  mean of the log2            d p  swings by +-d, p periods in a run       v  rises by v in a run
 *   q s  a share q of steps is larger by 2^s (spikes)     a  every other step is smaller by 2^a
 *   n i  share of steps whose data have a NaN, an Inf     w l b  NaN in a share w of l steps from step b on
 *   t  log2 of a scale above which every step overflows   x y  this limit swings by +-x, y periods in a run
 *   g  such data come in runs of g batches; with G the length varies, and g is its mean
 *   j  this limit jumps every j steps                     N  an overflow shows as NaN, not Inf
 *   C  clean: steps are bad only because of the scale */
static const char *const process_table[][2] = {
    {"steady", "m-18 C"},
    {"slow drift", "m-18 d3 p3 C"},
    {"slow drift, as NaN", "m-18 d1 p3 N C"},
    {"spikes of 2^6, 0.2%", "m-18 q.002 s6 C"},
    {"spikes of 2^8, 0.05%", "m-18 q.0005 s8 C"},
    {"vanishing gradients", "m-12 v-12 C"},
    {"growing gradients", "m-24 v12 C"},
    {"alternating", "m-6 a8 C"},
    {"spell of NaN, half", "m-18 w.5 l300 b40000"},
    {"spell of NaN, all", "m-18 w1 l300 b40000"},
    {"short spell of NaN", "m-18 w1 l12 b40000"},
    {"long spell of NaN, 20%", "m-18 w.2 l3000 b40000"},
    {"NaN data 0.1%", "m-18 n.001"},
    {"NaN data 0.3%", "m-18 n.003"},
    {"NaN data 1%", "m-18 n.01"},
    {"NaN data 2%", "m-18 n.02"},
    {"NaN data 5%", "m-18 n.05"},
    {"Inf data 0.1%", "m-18 i.001"},
    {"Inf data 0.5%", "m-18 i.005"},
    {"Inf data 1%", "m-18 i.01"},
    {"Inf 0.3%, NaN 0.3%", "m-18 i.003 n.003"},
    {"Inf 1%, NaN 5%, drift", "m-18 i.01 n.05 d3 p3"},
    {"as NaN, NaN data 2%", "m-18 d1 p3 n.02 N"},
#define LIMIT(t, m)                                                                                        \
    {"limit 2^" t, "m" m " t" t " N C"}, {"limit 2^" t ", NaN 0.3%", "m" m " t" t " N n.003"},             \
    {"limit 2^" t ", NaN 1%", "m" m " t" t " N n.01"}, {"limit 2^" t ", NaN 5%", "m" m " t" t " N n.05"},  \
    {"limit 2^" t ", Inf 1%", "m" m " t" t " i.01"}
    LIMIT("-8", "0"), LIMIT("-4", "-2"), LIMIT("0", "-6"), LIMIT("5", "-12"), LIMIT("10", "-18"),
    LIMIT("15", "-18"), LIMIT("20", "-26"),
#undef LIMIT
    {"limit 2^0 to 2^10, slow", "m-12 t5 x5 y3 N C"},
    {"limit 2^0 to 2^10, fast", "m-12 t5 x5 y10 C"},
    {"same slow, NaN 1%", "m-12 t5 x5 y3 N n.01"},
    {"limit jumps", "m-12 t5 j20000 N C"},
    {"NaN 2% in runs of 2", "m-18 n.02 g2"},
    {"NaN 0.5% in runs of 3", "m-18 n.005 g3"},
    {"NaN 1% in runs of 5", "m-18 n.01 g5"},
    {"NaN 5% in runs of 5", "m-18 n.05 g5"},
    {"NaN 20% in runs of 5", "m-18 n.2 g5"},
    {"NaN 5% in runs of 10", "m-18 n.05 g10"},
    {"NaN 4% in runs of 40", "m-18 n.04 g40"},
    {"Inf 2% in runs of 5", "m-18 i.02 g5"},
    {"NaN 1%, runs of about 5", "m-18 n.01 g5 G"},
    {"NaN 4%, runs of about 20", "m-18 n.04 g20 G"},
    {"limit 2^0, 5%, runs of 5", "m-6 t0 N n.05 g5"},
    {"limit 2^10, 1%, of 3", "m-18 t10 N n.01 g3"},
};
enum { PROCESSES = sizeof process_table / sizeof *process_table, PROCESS_STEPS = 100000 };

typedef struct process_step {
    float    top;               /* log2 of the largest scale that works */
    float    mean;              /* of the log2 of the gradients */
    unsigned data;              /* MPT_CAUSE_* of the batch itself */
} process_step;

typedef struct process_result {
    double useful, flushed;     /* useful steps; the sum of the shares of gradients that were flushed */
    long   skipped, hopeless;   /* bad steps; those that no rule could save */
    long   verdicts;            /* steps with a verdict of the scaler */
    long   verdicts_false;      /* of these, steps at which a scale of 2^-14 or more would have worked */
} process_result;

/* The number after a letter, or `otherwise`. */
static double process_number(const char *spec, char letter, double otherwise)
{
    const char *s = strchr(spec, letter);
    return s ? strtod(s + 1, NULL) : otherwise;
}

static double process_u(void) { return ((double)(mt_random() >> 11) + 0.5) * ldexp(1.0, -53); }

/* The numbers of a process, by the meaning of their letters. */
typedef struct process {
    double mean, drift, periods, move, rare, spike, other, nan, inf, sick, limit, swing, swings, run;
    int    jump, from, to, varies;
} process;

static process process_read(const char *spec)
{
#define N(letter) process_number(spec, letter, 0.0)
    process p;
    p.mean = N('m'), p.drift = N('d'), p.periods = N('p'), p.move = N('v'), p.rare = N('q'), p.spike = N('s');
    p.other = N('a'), p.nan = N('n'), p.inf = N('i'), p.sick = N('w'), p.swing = N('x'), p.swings = N('y');
    p.limit = process_number(spec, 't', 1000.0), p.run = process_number(spec, 'g', 1.0);
    p.varies = strchr(spec, 'G') != NULL;
    p.jump = (int)N('j'), p.from = (int)N('b'), p.to = p.from + (int)N('l');
#undef N
    return p;
}

/* The mean of the log2 and the limit, after `part` (0 to 1) of the run. */
static double process_turn(double periods, double part) { return sin(6.283185307179586 * periods * part); }
static double process_mean(const process *p, double part, int odd)
{
    return p->mean + p->drift * process_turn(p->periods, part) + p->move * part - (odd ? p->other : 0.0);
}
static double process_limit(const process *p, double part)
{
    return p->limit + p->swing * process_turn(p->swings, part);
}

/* The largest of a million normal numbers is close to sigma times this Gumbel variable; u is uniform. */
static double process_most(double u) { return 4.75 - 0.19 * log(-log(u)); }

/* The share of gradients below 2^-25 at a scale of 2^level. */
static double process_lost(double level, double mean, double sigma)
{
    return 0.5 * erfc((25.0 + level + mean) / sigma / sqrt(2.0));
}

/* Batches that a run of bad data still lasts, 0 for none, after `left`; a share nan or inf is in runs. */
static int process_run_left(const process *p, int left)
{
    const double share = p->nan + p->inf;
    if (left)
        return left - 1;
    if (process_u() >= share / (1.0 - share) / p->run)
        return 0;
    return p->varies ? 1 + (int)(log(process_u()) / log(1.0 - 1.0 / p->run)) : (int)p->run;
}

static void process_make(const char *spec, double sigma, process_step *step)
{
    const process p = process_read(spec);
    double        at = 0.0;
    int           i, left = 0;
    for (i = 0; i < PROCESS_STEPS; i++) {
        const double part = (double)i / (double)PROCESS_STEPS;
        const double mu = process_mean(&p, part, i % 2);
        const double most = mu + sigma * process_most(process_u()) + (process_u() < p.rare ? p.spike : 0.0);
        double       top = process_limit(&p, part);
        unsigned     data = 0u;
        if (p.run > 1.0) {
            left = process_run_left(&p, left);
            data = !left ? 0u : p.nan > 0.0 ? MPT_CAUSE_NAN : MPT_CAUSE_INF;
        } else {
            data |= process_u() < p.nan ? MPT_CAUSE_NAN : 0u;
            data |= process_u() < p.inf ? MPT_CAUSE_INF : 0u;
        }
        data |= i >= p.from && i < p.to && process_u() < p.sick ? MPT_CAUSE_NAN : 0u;
        if (p.jump && i % p.jump == 0)
            at = floor(process_u() * 16.0) - 8.0;
        top += at;
        step[i].top = (float)(16.0 - most < top ? 16.0 - most : top);
        step[i].mean = (float)mu;
        step[i].data = data;
    }
}

static process_result process_run(mpt_scaler_dialect dialect, const char *spec, double sigma,
                                  const process_step *step)
{
    const unsigned    shows = strchr(spec, 'N') ? MPT_CAUSE_NAN : MPT_CAUSE_INF;
    mpt_scaler_config c = mpt_scaler_defaults(dialect);
    process_result    r = {0.0, 0.0, 0, 0, 0, 0};
    mpt_scaler        s;
    int               i;
    (void)mpt_scaler_init(&s, &c);
    for (i = 0; i < PROCESS_STEPS; i++) {
        const float    scale = mpt_scaler_scale(&s, 1.0f);
        const double   level = scale > 0.0f ? log2((double)scale) : -1000.0;
        const unsigned cause = step[i].data | (level > (double)step[i].top ? shows : 0u);
        if (cause) {
            r.skipped++;
        } else {
            const double lost = process_lost(level, (double)step[i].mean, sigma);
            r.flushed += lost;
            r.useful += 1.0 - lost;
        }
        (void)mpt_scaler_record(&s, 0, cause);
        (void)mpt_scaler_update(&s);
        r.hopeless += step[i].data != 0u;
        r.verdicts += s.verdict != 0u;
        r.verdicts_false += s.verdict && !step[i].data && (double)step[i].top >= -14.0;
    }
    return r;
}

#endif
