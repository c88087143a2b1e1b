/* plot.c -- data and gnuplot scripts for two pictures: where each tensor's magnitudes lie, and what every
 * scale would cost. Names are cut to plain characters, and the scripts hold none of them: they read all
 * from the data, so that no name can be taken for a command. */
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#define HAVE_POSIX 1
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#else
#define HAVE_POSIX 0
#endif

#include "inspect.h"

#include <errno.h>

enum { LABELS = 64, NAME = 40, SCALES = 48 };       /* scales from 2^-48 to 2^48 */

struct plot {
    const options *o;
    FILE          *ranges;
    uint64_t       tensors;
    int            least, most;     /* binades that occur */
    int            curve[MAX_FORMATS][2];   /* something becomes zero, overflows, with one of the scales */
};

static FILE *open_in(const char *dir, const char *name)
{
    const size_t n = strlen(dir) + strlen(name) + 2;
    char        *path = (char *)malloc(n);
    FILE        *f;
    if (!path)
        return NULL;
    (void)snprintf(path, n, "%s/%s", dir, name);
    f = fopen(path, "w");
    free(path);
    return f;
}

static int close_good(FILE *f)
{
    const int bad = ferror(f);
    return fclose(f) != 0 || bad ? -1 : 0;
}

plot *plot_new(const options *o, char *error)
{
    plot *p = (plot *)calloc(1, sizeof *p);
    if (!p) {
        (void)problem(error, NULL, NULL, "out of memory");
        return NULL;
    }
    p->o = o;
    p->least = 1 << 20;
    p->most = -(1 << 20);
#if HAVE_POSIX
    (void)mkdir(o->plot, 0777);
#endif
    errno = 0;
    p->ranges = open_in(o->plot, "ranges.csv");
    if (!p->ranges) {
        (void)problem(error, o->plot, NULL, "%s", strerror(errno));
        free(p);
        return NULL;
    }
    (void)fprintf(p->ranges, "tensor,name,exponent,share\n");
    return p;
}

/* Plain characters only, the middle left out. */
static void plain_name(char *dst, const char *name)
{
    char *c;
    (void)text_safe(dst, NAME + 1, name, NAME - 1);
    for (c = dst; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '.' ||
              *c == '-'))
            *c = '_';
}

/* A row for each binade that holds something: the share of the nonzero values that lie there. */
int plot_tensor(plot *p, const char *path, const tensor *t, const scan *s, const result *r)
{
    char name[NAME + 1];
    int  e;
    (void)path;
    if (!r->nonzero)
        return 0;
    plain_name(name, t->name);
    for (e = MPT_RANGE_EMIN; e < MPT_RANGE_EMIN + MPT_RANGE_BINS; e++) {
        const uint64_t c = s->survey.binade[e - MPT_RANGE_EMIN];
        if (!c)
            continue;
        p->least = e < p->least ? e : p->least;
        p->most = e > p->most ? e : p->most;
        (void)fprintf(p->ranges, "%llu,%s,%d,%.9g\n", (unsigned long long)p->tensors, name, e,
                      (double)c / (double)r->nonzero);
    }
    p->tensors++;
    return ferror(p->ranges) ? -1 : 0;
}

/* For each scale and format the shares that become zero and overflow, of all tensors together. */
static int write_scales(plot *p, const scan *total)
{
    mpt_range one[MAX_FORMATS];
    FILE     *f = open_in(p->o->plot, "scale.csv");
    int       i, k;
    if (!f)
        return -1;
    (void)fprintf(f, "log2_scale");
    for (k = 0; k < p->o->format_count; k++) {
        const char *name = mpt_format_get(p->o->formats[k])->name;
        (void)mpt_survey_get(&total->survey, p->o->formats[k], &one[k]);
        (void)fprintf(f, ",%s_zero,%s_overflow", name, name);
    }
    for (i = -SCALES; i <= SCALES; i++) {
        (void)fprintf(f, "\n%d", i);
        for (k = 0; k < p->o->format_count; k++) {
            const uint64_t   nonzero = mpt_range_nonzero(&one[k]);
            const double     whole = nonzero ? (double)nonzero : 1.0;
            mpt_range_choice c;
            (void)mpt_range_at_scale(&one[k], i, &c);
            p->curve[k][0] |= c.flushed != 0;
            p->curve[k][1] |= c.overflow != 0;
            (void)fprintf(f, ",%.9g,%.9g", (double)c.flushed / whole, (double)c.overflow / whole);
        }
    }
    (void)fprintf(f, "\n");
    return close_good(f);
}

static void write_style(FILE *f, const char *name, int height)
{
    (void)fprintf(f, "# %s.gp -- run gnuplot in this folder; it reads %s.csv and writes %s.png.\n", name,
                  name, name);
    (void)fprintf(f, "set datafile separator ','\nset encoding utf8\n"
                  "set terminal pngcairo size 1600,%d font 'Sans,15' background rgb 'white'\n"
                  "set output '%s.png'\nset tics nomirror out scale 0.6 textcolor rgb '#222222'\n"
                  "set title font 'Sans Bold,20' textcolor rgb '#222222'\n"
                  "set border 3 lw 1.5 lc rgb '#444444'\n", height, name);
}

/* Colours of Okabe and Ito, which colour-blind readers can tell apart. */
static const char *const colours[MAX_FORMATS] = {"#D55E00", "#0072B2", "#009E73", "#CC79A7"};

/* What the first format makes of the magnitudes: zones of the picture, each from one edge to the next. */
static void write_zones(FILE *f, const options *o, int left, int right)
{
    static const char *const fill[4] = {"#E3E3E3", "#FFF4D1", "#FFFFFF", "#E3E3E3"};
    static const char *const what[4] = {"becomes 0", "loses bits", "all bits", "overflows"};
    const mpt_format_info   *info = mpt_format_get(o->formats[0]);
    int                      edge[5], i;
    edge[0] = left;
    edge[1] = info->emin - info->mantissa_bits - 1;     /* half of the least number rounds up to it */
    edge[2] = info->emin;
    edge[3] = info->emax + 1;
    edge[4] = right;
    for (i = 0; i < 4; i++) {
        const int from = edge[i] > left ? edge[i] : left, to = edge[i + 1] < right ? edge[i + 1] : right;
        if (from >= to)
            continue;
        (void)fprintf(f, "set object %d rectangle from %d, graph 0 to %d, graph 1 fc rgb '%s' fs solid "
                      "noborder behind\n", i + 1, from, to, fill[i]);
        (void)fprintf(f, "set label %d '%s%s' at %g, graph 1 offset 0,0.8 center font 'Sans%s,13' "
                      "textcolor rgb '#444444' noenhanced\n", i + 1, i == 2 ? info->name : "",
                      i == 2 ? ": all bits" : what[i], 0.5 * (double)(from + to), i == 2 ? " Bold" : "");
    }
}

static int write_ranges_script(const plot *p)
{
    const int rows = p->tensors > LABELS ? LABELS : (int)p->tensors;
    const int left = p->least < -45 ? -45 : p->least - 2, right = p->most > 40 ? 41 : p->most + 4;
    FILE     *f = open_in(p->o->plot, "ranges.gp");
    if (!f)
        return -1;
    write_style(f, "ranges", 240 + 20 * (rows < 12 ? 12 : rows));
    (void)fprintf(f, "set title 'Where the magnitudes of each tensor lie, and what %s makes of them' "
                  "offset 0,1.2 noenhanced\n", mpt_format_get(p->o->formats[0])->name);
    (void)fprintf(f, "set tmargin 6\nset bmargin 4\nset lmargin 38\nset rmargin 14\n"
                  "set xrange [%d:%d]\nset yrange [%llu - 0.5:-0.5]\n", left, right,
                  (unsigned long long)(p->tensors ? p->tensors : 1));
    (void)fprintf(f, "set xlabel 'magnitude'\nset format x '2^{%%.0f}'\nset xtics 8\n"
                  "set ytics noenhanced font 'Sans,11'\n");
    write_zones(f, p->o, left, right);
    (void)fprintf(f, "set palette defined (0 '#C9DFEE', 0.5 '#4A94C4', 1 '#08305C')\n"
                  "set logscale cb\nset cbrange [1e-5:1]\nset format cb '10^{%%L}'\n"
                  "set cblabel 'share of the nonzero values'\n"
                  "set style fill solid 1 noborder\n");
    (void)fprintf(f, "plot 'ranges.csv' using 3:1:3:($3 + 1):($1 - 0.42):($1 + 0.42):"
                  "($4 < 1e-5 ? 1e-5 : $4)%s every ::1 with boxxyerror lc palette notitle\n",
                  p->tensors <= LABELS ? ":ytic(strcol(2))" : "");
    return close_good(f);
}

static int write_scale_script(const plot *p)
{
    FILE *f = open_in(p->o->plot, "scale.gp");
    int   k;
    if (!f)
        return -1;
    write_style(f, "scale", 900);
    (void)fprintf(
        f,
        "set title 'What a scale for all tensors would cost'\nset format x '2^{%%.0f}'\nset xtics 4\n"
        "set xlabel 'scale'\nset ylabel 'share of the nonzero values'\nset logscale y\n"
        "set yrange [1e-7:1.5]\nset format y '10^{%%L}'\nset key outside right noenhanced\n"
        "set xrange [%d:%d]\nset arrow 1 from 0, graph 0 to 0, graph 1 nohead dt 2 lc rgb '#777777'\n",
        -SCALES, SCALES);
    (void)fprintf(f, "plot 1e-9 notitle");
    for (k = 0; k < 2 * p->o->format_count; k++)
        if (p->curve[k / 2][k % 2])
            (void)fprintf(f, ", \\\n     'scale.csv' using 1:%d every ::1 with lines lw 3 dt %d lc rgb '%s' "
                          "title '%s %s'", k + 2, 1 + k % 2, colours[k / 2],
                          mpt_format_get(p->o->formats[k / 2])->name, k % 2 ? "overflow" : "to zero");
    (void)fprintf(f, "\n");
    return close_good(f);
}

/* Run gnuplot in the folder; no shell sees its name. 0 if there are pictures. */
static int draw(const char *dir, const char *script)
{
#if HAVE_POSIX
    int   status = -1;
    pid_t child;
    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        if (chdir(dir) == 0 && freopen("gnuplot.log", "w", stderr))
            (void)execlp("gnuplot", "gnuplot", script, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
#else
    (void)dir;
    (void)script;
    return -1;
#endif
}

int plot_end(plot *p, const scan *total, char *error)
{
    const options *o = p->o;
    int            code = close_good(p->ranges);
    if (code == 0)
        code = write_scales(p, total) || write_ranges_script(p) || write_scale_script(p) ? -1 : 0;
    if (code != 0)
        (void)problem(error, o->plot, NULL, "%s", strerror(errno));
    else if (p->tensors && draw(o->plot, "ranges.gp") == 0 && draw(o->plot, "scale.gp") == 0)
        (void)fprintf(stderr, "inspect: wrote ranges.png and scale.png\n");
    else
        (void)fprintf(stderr,
                      "inspect: wrote ranges.csv, scale.csv and scripts; no pictures (gnuplot missing, "
                      "failed, or nothing to draw)\n");
    free(p);
    return code;
}
