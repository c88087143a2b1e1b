/* bench_scaler.c -- the steps that each loss scaling rule loses, in the simulated trainings of processes.h:
 *
 *     bench_scaler DIRECTORY          the default, PyTorch's and the best of the others, sigma 2 to 6
 *     bench_scaler DIRECTORY all      every dialect
 *     bench_scaler DIRECTORY SEED     other random numbers
 * Writes scaler.csv to the directory. */
#include "../../mpt.h"

#include "../processes.h"

/* The probability that process_most() is above x. */
static double exceeds(double x) { return -expm1(-exp((4.75 - x) / 0.19)); }

/* An upper bound for every rule that knows only the past, even if it knows the process, but not which steps
 * are odd: the largest share of useful steps of a rule with a mean share `bad` of bad steps. By Lagrange
 * multipliers: for a price of bad steps, choose at each moment the scale 2^level with the largest (useful -
 * price * bad), and add price * budget; the bound is the least of these sums over many prices. For clean
 * processes without jumps. */
static double most_useful(const char *spec, double sigma, double bad)
{
    enum { MOMENTS = 400, LEVELS = 65, PRICES = 300 };
    static double useful[MOMENTS][LEVELS], fails[MOMENTS][LEVELS];
    const process p = process_read(spec);
    double        least = 2.0;
    int           i, k, price;
    memset(useful, 0, sizeof useful);
    memset(fails, 0, sizeof fails);
    for (i = 0; i < 2 * MOMENTS; i++) {
        const double part = ((double)(i / 2) + 0.5) / MOMENTS, mu = process_mean(&p, part, i % 2);
        for (k = 0; k < LEVELS; k++) {
            const double level = (double)k - 24.0, room = 16.0 - level - mu;
            const double fail = level > process_limit(&p, part) ? 1.0
                                : (1.0 - p.rare) * exceeds(room / sigma) +
                                  p.rare * exceeds((room - p.spike) / sigma);
            fails[i / 2][k] += fail / 2.0;
            useful[i / 2][k] += (1.0 - fail) * (1.0 - process_lost(level, mu, sigma)) / 2.0;
        }
    }
    for (price = -1; price < PRICES; price++) {
        const double cost = price < 0 ? 0.0 : pow(10.0, -2.0 + 6.0 * price / (PRICES - 1));
        double       sum = cost * bad;
        for (i = 0; i < MOMENTS; i++) {
            double best = 0.0;
            for (k = 0; k < LEVELS; k++)
                if (useful[i][k] - cost * fails[i][k] > best || !k)
                    best = useful[i][k] - cost * fails[i][k];
            sum += best / MOMENTS;
        }
        least = sum < least ? sum : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    static process_step step[PROCESS_STEPS];
    const int           all = argc > 2 && !strcmp(argv[2], "all");
    const uint64_t      seed = argc > 2 && !all ? strtoull(argv[2], NULL, 10) : 1u;
    char                path[1024];
    int                 p, d, sigma, held = 0, rows = 0, clean = 0, within = 0, both = 0;
    FILE               *csv;
    (void)snprintf(path, sizeof path, "%s/scaler.csv", argc > 1 ? argv[1] : ".");
    csv = fopen(path, "w");
    if (csv)
        fprintf(csv, "process,sigma,dialect,useful,skipped,hopeless,flushed,verdicts,false verdicts\n");
    printf("%d steps each. lost: bad steps beyond those that no rule could save; flushed: mean share of\n"
           "the good steps' gradients; useful: good steps, less what is flushed in them; says: steps with a\n"
           "verdict.\n\n"
           "%-24s %5s %-16s %7s %9s %9s %6s\n",
           PROCESS_STEPS, "process", "sigma", "dialect", "lost", "flushed", "useful", "says");
    for (p = 0; p < PROCESSES; p++)
        for (sigma = 2; sigma <= 6; sigma++) {
            const char    *spec = process_table[p][1];
            process_result r[MPT_SCALER_DIALECT_COUNT];
            int            best = MPT_SCALER_STATIC;
            mt.random_state = seed * 1000003u + (uint64_t)(p * 8 + sigma);
            process_make(spec, (double)sigma, step);
            for (d = 0; d < (int)MPT_SCALER_DIALECT_COUNT; d++) {
                r[d] = process_run((mpt_scaler_dialect)d, spec, (double)sigma, step);
                if (d != (int)MPT_SCALER_MPT && r[d].useful > r[best].useful)
                    best = d;
                if (csv)
                    fprintf(csv, "\"%s\",%d,%s,%.1f,%ld,%ld,%.1f,%ld,%ld\n", process_table[p][0], sigma,
                            mpt_scaler_name((mpt_scaler_dialect)d), r[d].useful, r[d].skipped, r[d].hopeless,
                            r[d].flushed, r[d].verdicts, r[d].verdicts_false);
            }
            for (d = 0; d < (int)MPT_SCALER_DIALECT_COUNT; d++) {
                const long good = PROCESS_STEPS - r[d].skipped;
                if (!all && d != (int)MPT_SCALER_MPT && d != (int)MPT_SCALER_PYTORCH && d != best)
                    continue;
                printf("%-24s %5d %-16s %7ld %8.3f%% %8.2f%% %6ld\n", d ? "" : process_table[p][0], sigma,
                       mpt_scaler_name((mpt_scaler_dialect)d), r[d].skipped - r[d].hopeless,
                       good ? 100.0 * r[d].flushed / (double)good : 0.0, 100.0 * r[d].useful / PROCESS_STEPS,
                       r[d].verdicts);
            }
            rows++;
            held += r[MPT_SCALER_MPT].useful >= 0.97 * r[best].useful;
            if (strchr(spec, 'C') && !strchr(spec, 'j')) {
                const double bad = 1.5 * (double)r[MPT_SCALER_PYTORCH].skipped;
                const double most = most_useful(spec, (double)sigma, bad / PROCESS_STEPS);
                clean++;
                within += (double)r[MPT_SCALER_MPT].skipped <= bad;
                both += most * PROCESS_STEPS >= 0.97 * r[best].useful;
                printf("%-24s %5d with %.0f bad steps, 1.5 times PyTorch's, none keeps more than %.2f%%%s\n",
                       "", sigma, bad, 100.0 * most,
                       most * PROCESS_STEPS < 0.97 * r[best].useful ? ", over 3% less than the best" : "");
            }
        }
    printf("\nThe default has at most 3%% fewer useful steps than the best of all in %d of %d rows.\n", held,
           rows);
    printf("Of %d clean rows it skips at most 1.5 times as many as PyTorch in %d; in %d a rule could\n"
           "do both.\n", clean, within, both);
    if (csv && fclose(csv))
        return 1;
    return 0;
}
