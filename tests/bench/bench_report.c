/* bench_report.c -- the speed of the reports, each beside a loop that reads as many bytes. If numpy is
 * installed, its way to the figures of a range report is measured too.
 *
 *   make bench
 */
#define _POSIX_C_SOURCE 200809L
#include "mpt.h"
#include "bench.h"

static struct {
    float         *x;
    mpt_f16       *h;
    mpt_range      range;
    mpt_survey     survey;
    mpt_roundoff   roundoff;
    mpt_stagnation stagnation;
} data;

static void run_range(size_t n)
{
    (void)mpt_range_init(&data.range, MPT_F16);
    (void)mpt_range_add(&data.range, MPT_F32, data.x, n);
}

static void run_survey(size_t n)
{
    (void)mpt_survey_init(&data.survey);
    (void)mpt_survey_add(&data.survey, MPT_F32, data.x, n);
}

static void run_range_f16(size_t n)
{
    (void)mpt_range_init(&data.range, MPT_F16);
    (void)mpt_range_add(&data.range, MPT_F16, data.h, n);
}

static void run_roundoff(size_t n)
{
    (void)mpt_roundoff_init(&data.roundoff, MPT_F16, NULL, 0);
    (void)mpt_roundoff_add(&data.roundoff, MPT_F32, data.x, n);
}

static void run_stagnation(size_t n)
{
    (void)mpt_stagnation_init(&data.stagnation, MPT_F16);
    (void)mpt_stagnation_add(&data.stagnation, data.x, data.x + n / 2, n / 2);
}

static const struct {
    const char *name;
    void (*run)(size_t n);
    size_t in, out;             /* bytes per element */
} rows[] = {
    {"range report, f32, one format", run_range, 4, 0},
    {"range report, f32, all formats", run_survey, 4, 0},
    {"range report, f16, one format", run_range_f16, 2, 0},
    {"rounding report, f32 to f16", run_roundoff, 4, 0},
    {"stagnation report, by 2, f16", run_stagnation, 4, 0},
};

/* Typical gradients: nearly a normal distribution (sums of 12 uniform numbers) of deviation about 2^-10. */
static void fill(size_t n)
{
    uint64_t s = 1;
    size_t   i;
    int      k;
    for (i = 0; i < n; i++) {
        double sum = -6.0;
        for (k = 0; k < 12; k++) {
            s = s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            sum += (double)(s >> 11) / 9007199254740992.0;
        }
        data.x[i] = (float)(sum * 1e-3);
    }
    (void)mpt_f16_from_f32_n(data.h, data.x, n);
}

/* Gelem/s of a range report against one format: the median of 9. */
static double range_speed(size_t n)
{
    double times[9];
    int    i;
    for (i = 0; i < 9; i++) {
        times[i] = bench_now();
        run_range(n);
        times[i] = bench_now() - times[i];
    }
    return (double)n / bench_median(times, 9) * 1e-9;
}

static void numpy_row(bench *b, const char *name, size_t n, double speed)
{
    const double ours = range_speed(n);
    bench_print(b, name, "numpy", n, speed, ours);
    printf("    ceiling here: the range report of one format on as many; it is %.1f times as fast\n",
           ours / speed);
}

int main(int argc, char **argv)
{
    const size_t large = BENCH_IN_MEMORY;
    bench        b;
    size_t       i;
    data.x = (float *)bench_array(large * sizeof *data.x);
    data.h = (mpt_f16 *)bench_array(large * sizeof *data.h);
    fill(large);
    bench_open(&b, "report", argc, argv, large * 4);
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++)
        (void)bench_row(&b, rows[i].name, mpt_simd_name(), rows[i].run, large, rows[i].in, rows[i].out);
    if (!bench_numpy(&b, "tests/bench/numpy_report.py", numpy_row))
        printf("numpy's route was not measured: /usr/bin/python3 has no numpy\n");
    return data.range.count ? bench_close(&b) : 1;
}
