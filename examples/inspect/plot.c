/* plot.c -- data and gnuplot scripts for three pictures. model.png, for a talk: the magnitudes of all values
 * above the range of each format. ranges.png, or pages of it: the magnitudes of each tensor. scale.png: what
 * each scale would cost in each format. gnuplot cannot take a name for a command: names are reduced to plain
 * characters, and the scripts contain only that of the first file; the names of tensors are in the data. */
#include "inspect.h"

#include <errno.h>
#include <math.h>
#if HAVE_POSIX
#include <sys/wait.h>
#endif

enum { ROWS = 64, NAME = 40, SCALES = 40 };         /* rows of a page; scales from 2^-40 to 2^40 */

struct plot {
    const options *o;
    FILE          *ranges;
    uint64_t       tensors;
    char           title[NAME + 1]; /* name of the first file */
    uint64_t       files;
    int            least, most;     /* lowest and highest binade that occurs */
};

static FILE *open_in(const char *dir, const char *name)
{
    char *path = path_join(dir, strlen(dir), name);
    FILE *f = path ? fopen(path, "w") : NULL;
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

/* Copy a name: its middle is cut out if it is long, and all but letters, digits, '.' and '-' become '_'. */
static void plain_name(char *dst, const char *name)
{
    char *c;
    (void)text_safe(dst, NAME + 1, name, NAME - 1);
    for (c = dst; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '.' ||
              *c == '-'))
            *c = '_';
}

/* Write a row for each binade that holds values: their share of the nonzero values. */
static void write_binades(FILE *f, const scan *s, const char *before)
{
    const mpt_survey *v = &s->survey;
    const double      nonzero = (double)(v->count - v->zero - v->inf - v->nan);
    int               e;
    for (e = 0; e < MPT_RANGE_BINS; e++)
        if (v->binade[e])
            (void)fprintf(f, "%s%d,%.9g\n", before, e + MPT_RANGE_EMIN, (double)v->binade[e] / nonzero);
}

int plot_tensor(plot *p, const tensor *t, const scan *s, const result *r)
{
    char name[NAME + 1], before[NAME + 32];
    if (!r->nonzero)
        return 0;
    plain_name(name, t->name);
    if (p->tensors && p->tensors % ROWS == 0)
        (void)fprintf(p->ranges, "\n\n");       /* starts the next page: gnuplot's `index` */
    (void)snprintf(before, sizeof before, "%llu,%s,", (ull)p->tensors++, name);
    write_binades(p->ranges, s, before);
    p->least = ilogb(r->min_abs) < p->least ? ilogb(r->min_abs) : p->least;
    p->most = ilogb(r->max_abs) > p->most ? ilogb(r->max_abs) : p->most;
    return ferror(p->ranges) ? -1 : 0;
}

void plot_file(plot *p, const char *path)
{
    if (!p->files++)
        plain_name(p->title, path_name(path));
}

static FILE *open_script(const plot *p, const char *name, int height)
{
    char  file[32];
    FILE *f;
    (void)snprintf(file, sizeof file, "%s.gp", name);
    f = open_in(p->o->plot, file);
    if (f)
        (void)fprintf(f, "# %s -- run gnuplot in this folder; it reads %s.csv.\n"
                      "set datafile separator ','\nset encoding utf8\n"
                      "set terminal pngcairo size 1600,%d font 'Sans,15' background rgb 'white'\n"
                      "set tics nomirror out scale 0.6 textcolor rgb '#222222'\n"
                      "set title font 'Sans Bold,20' textcolor rgb '#222222'\n"
                      "set border 3 lw 1.5 lc rgb '#444444'\n", file, name, height);
    return f;
}

/* Colours from the palette of Okabe and Ito, which colour-blind readers can tell apart. */
static const char *const colours[MAX_FORMATS] = {"#D55E00", "#0072B2", "#009E73", "#CC79A7"};

/* Exponents that separate what a format does to magnitudes: to zero, fewer bits, all bits, overflow. */
static void find_edges(int edge[5], mpt_format format, int left, int right)
{
    const mpt_format_info *info = mpt_format_get(format);
    int                    i;
    edge[0] = left;
    edge[1] = info->emin - info->mantissa_bits - 1;     /* above half of the least number: rounds up to it */
    edge[2] = info->emin;
    edge[3] = info->emax + 1;
    edge[4] = right;
    for (i = 1; i < 4; i++)
        edge[i] = edge[i] < left ? left : edge[i] > right ? right : edge[i];
}

static void write_zones(FILE *f, const options *o, int left, int right)
{
    static const char *const fill[4] = {"#E3E3E3", "#FFF4D1", "#FFFFFF", "#E3E3E3"};
    static const char *const what[4] = {"becomes 0", "loses bits", "all bits", "overflows"};
    int                      edge[5], i;
    find_edges(edge, o->formats[0], left, right);
    for (i = 0; i < 4; i++) {
        if (edge[i] == edge[i + 1])
            continue;
        (void)fprintf(f, "set object %d rectangle from %d, graph 0 to %d, graph 1 fc rgb '%s' fs solid "
                      "noborder behind\n", i + 1, edge[i], edge[i + 1], fill[i]);
        (void)fprintf(f, "set label %d '%s' at %g, graph 1 offset 0,0.8 center font 'Sans%s,13' "
                      "textcolor rgb '#444444' noenhanced\n", i + 1, what[i],
                      0.5 * (double)(edge[i] + edge[i + 1]), i == 2 ? " Bold" : "");
    }
}

static int write_ranges(const plot *p)
{
    const int tensors = (int)p->tensors, pages = (tensors + ROWS - 1) / ROWS;
    const int rows = tensors < ROWS ? tensors : ROWS;
    const int left = p->least < -45 ? -45 : p->least - 2, right = p->most > 40 ? 41 : p->most + 4;
    FILE     *f = open_script(p, "ranges", 480);
    if (!f)
        return -1;
    (void)fprintf(f, "set tmargin 6\nset bmargin 4\nset lmargin 38\nset rmargin 14\n"
                  "set xrange [%d:%d]\nset xlabel 'magnitude'\nset format x '2^{%%.0f}'\nset xtics 8\n"
                  "set ytics noenhanced font 'Sans,11'\n", left, right);
    write_zones(f, p->o, left, right);
    (void)fprintf(f, "set palette defined (0 '#C9DFEE', 0.5 '#4A94C4', 1 '#08305C')\n"
                  "set logscale cb\nset cbrange [1e-5:1]\nset format cb '10^{%%L}'\n"
                  "set cblabel 'share of the nonzero values'\nset style fill solid 1 noborder\n");
    (void)fprintf(f, "pages = %d\ndo for [page = 1:pages] {\n"
                  "  set title 'The magnitudes of each tensor, and what %s does to them'."
                  "(pages > 1 ? sprintf(' (%%d of %%d)', page, pages) : '') offset 0,1.2 noenhanced\n",
                  pages, mpt_format_get(p->o->formats[0])->name);
    (void)fprintf(f, "  first = (page - 1) * %d\n  rows = page < pages ? %d : %d - first\n"
                  "  set output\n  set terminal pngcairo size 1600,240 + 20 * (rows < 12 ? 12 : rows)\n"
                  "  set output pages > 1 ? sprintf('ranges-%%d.png', page) : 'ranges.png'\n"
                  "  set yrange [first + rows - 0.5:first - 0.5]\n"
                  "  plot 'ranges.csv' skip 1 index page - 1 using 3:1:3:($3 + 1):($1 - 0.42):($1 + 0.42):"
                  "($4 < 1e-5 ? 1e-5 : $4):ytic(strcol(2)) with boxxyerror lc palette notitle\n}\n",
                  rows, rows, tensors);
    return close_good(f);
}

/* Say up to which scale nothing overflows, and how many values become zero there; if none, from which on. */
static void say_scales(char *dst, size_t cap, const mpt_range *r)
{
    mpt_range_choice c, less;
    char             zero[24], all[24];
    int              from, to = SCALES;
    for (; (void)mpt_range_at_scale(r, to, &c), c.overflow && to > -SCALES; to--)
        ;
    for (from = to; from > -SCALES; from--)
        if ((void)mpt_range_at_scale(r, from - 1, &less), less.flushed > c.flushed)
            break;
    text_count(zero, sizeof zero, c.flushed);
    text_count(all, sizeof all, mpt_range_nonzero(r));
    if (c.overflow)
        (void)snprintf(dst, cap, "values overflow at all of these scales");
    else if (c.flushed)
        (void)snprintf(dst, cap, "no overflow up to scale 2^{%d}, where %s of %s values become zero", to,
                       zero, all);
    else
        (void)snprintf(dst, cap, "nothing becomes zero or overflows at scales 2^{%d} to 2^{%d}", from, to);
}

/* For each format and scale: how many values of all tensors become zero, and how many overflow. */
static int write_scale(const plot *p, const scan *total)
{
    const options *o = p->o;
    mpt_range      one;
    char           text[120];
    FILE          *f = open_in(o->plot, "scale.csv");
    int            i, k;
    if (!f)
        return -1;
    (void)fprintf(f, "format,log2_scale,zero,overflow\n");
    for (k = 0; k < o->format_count; k++)
        for (i = -SCALES; i <= SCALES; i++) {
            mpt_range_choice c;
            (void)mpt_survey_get(&total->survey, o->formats[k], &one);
            (void)mpt_range_at_scale(&one, i, &c);
            (void)fprintf(f, "%s,%d,%llu,%llu\n", mpt_format_get(o->formats[k])->name, i,
                          (ull)c.flushed, (ull)c.overflow);
        }
    if (close_good(f) != 0 || !(f = open_script(p, "scale", 180 + 230 * o->format_count)))
        return -1;
    (void)fprintf(f, "set output 'scale.png'\nset multiplot layout %d,1 title 'Values lost with one scale "
                  "for all tensors (dashed: no scale)' font 'Sans Bold,20' margins 0.08,0.97,0.1,0.84 "
                  "spacing 0.09\n"
                  "set format x '2^{%%.0f}'\nset xtics 8\nset xrange [%d:%d]\nset ylabel 'values'\n"
                  "set logscale y\nset format y '10^{%%L}'\nset yrange [0.2:%.9g]\n"
                  "set grid y lc rgb '#DDDDDD'\n"
                  "set style fill solid 0.85 noborder\nset boxwidth 0.4\n"
                  "set key at screen 0.97,0.93 horizontal\n"
                  "set arrow 1 from 0, graph 0 to 0, graph 1 nohead dt 2 lc rgb '#777777'\n", o->format_count,
                  -SCALES - 1, SCALES + 1, 3.0 * (double)mpt_range_nonzero(&one) + 3.0);
    for (k = 0; k < o->format_count; k++) {
        const char *name = mpt_format_get(o->formats[k])->name;
        (void)mpt_survey_get(&total->survey, o->formats[k], &one);
        say_scales(text, sizeof text, &one);
        (void)fprintf(f, "set label 1 '%s: %s' at graph 0,1.12 font 'Sans Bold,16'\n%s%s"
                      "plot 'scale.csv' using ($2 - 0.2):(strcol(1) eq '%s' && $3 > 0 ? $3 : NaN) every ::1 "
                      "with boxes lc rgb '#0072B2' title 'become zero', \\\n"
                      "     '' using ($2 + 0.2):(strcol(1) eq '%s' && $4 > 0 ? $4 : NaN) every ::1 with "
                      "boxes lc rgb '#D55E00' title 'overflow', 0.01 notitle\n", name, text,
                      k ? "unset key\n" : "",
                      k + 1 == o->format_count ? "set xlabel 'scale'\n" : "", name, name);
    }
    (void)fprintf(f, "unset multiplot\n");
    return close_good(f);
}

/* The magnitudes of all values, and below them a bar for each format, which shows its range. */
static int write_model(const plot *p, const scan *total)
{
    const options *o = p->o;
    const int      left = p->least < -60 ? -60 : p->least < -26 ? p->least - 1 : -27;
    const int      right = p->most > 60 ? 61 : p->most > 16 ? p->most + 2 : 18;
    double         most = 0.0;
    result         r;
    char           share[24], db[24], text[80], values[24];
    FILE          *f = open_in(o->plot, "model.csv");
    int            edge[5], k;
    if (!f)
        return -1;
    (void)fprintf(f, "exponent,share\n");
    write_binades(f, total, "");
    if (close_good(f) != 0 || !(f = open_script(p, "model", 620 + 80 * o->format_count)))
        return -1;
    scan_total(total, o, &r);
    for (k = 0; k < MPT_RANGE_BINS; k++)
        if ((double)total->survey.binade[k] / (double)r.nonzero > most)
            most = (double)total->survey.binade[k] / (double)r.nonzero;
    text_count(values, sizeof values, r.count);
    if (p->files > 1)
        (void)snprintf(text, sizeof text, " and %llu more", (ull)p->files - 1);
    (void)fprintf(f, "set output 'model.png'\nset title '%s%s: %s values, and the range of each format"
                  "' offset 9,0 noenhanced\nset border 1\nunset ytics\nset lmargin 10\n"
                  "set rmargin 34\nset xrange [%d:%d]\n"
                  "set xlabel 'magnitude (height of a bar: number of values)'\n"
                  "set format x '2^{%%.0f}'\nset xtics 4\n"
                  "set yrange [%g:1.08]\nset style fill solid 0.8 noborder\n", p->title,
                  p->files > 1 ? text : "", values, left, right, -0.16 * o->format_count - 0.04);
    for (k = 0; k < o->format_count; k++) {
        const char  *name = mpt_format_get(o->formats[k])->name;
        const double y = -0.16 * (k + 1);
        find_edges(edge, o->formats[k], left, right);
        (void)fprintf(f, "set object %d rectangle from %d,%g to %d,%g fc rgb '%s' fs solid 0.35 noborder\n"
                      "set object %d rectangle from %d,%g to %d,%g fc rgb '%s' fs solid 0.9 noborder\n",
                      2 * k + 1, edge[1], y, edge[2], y + 0.1, colours[k], 2 * k + 2, edge[2], y, edge[3],
                      y + 0.1, colours[k]);
        text_db(db, sizeof db, r.in[k].plain.db);
        text_share(share, sizeof share, r.in[k].plain.overflow, r.nonzero);
        (void)snprintf(text, sizeof text, r.in[k].plain.overflow ? "%s overflow" : "%s",
                       r.in[k].plain.overflow ? share : db);
        text_share(share, sizeof share, r.in[k].plain.flushed, r.nonzero);
        if (r.in[k].plain.flushed)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), ", %s become 0", share);
        (void)fprintf(f, "set label '%s' at graph -0.005, first %g right font 'Sans Bold,16' textcolor rgb "
                      "'%s'\nset label '%s' at graph 1.01, first %g font 'Sans,14' textcolor rgb "
                      "'#222222' noenhanced\n", name, y + 0.05, colours[k], text, y + 0.05);
    }
    text_value(values, sizeof values, r.max_abs);
    (void)fprintf(f, "set arrow from %d, 0.1 to %d, 0.02 lw 2 lc rgb '#5B6B7B'\nset label 'largest: %s' "
                  "at %d, 0.13 center font 'Sans,13' textcolor rgb '#444444'\n", p->most + 1, p->most + 1,
                  values, p->most + 1);
    (void)fprintf(f, "set label 'pale: fewer bits' at graph 1.01, first %g font 'Sans,12' textcolor rgb "
                  "'#666666'\nplot 'model.csv' using ($1 + 0.5):($2 / %.9g):(0.94) every ::1 with boxes "
                  "lc rgb '#5B6B7B' notitle\n", -0.16 * o->format_count - 0.02, most);
    return close_good(f);
}

/* Run gnuplot in the folder, without a shell, so that the folder's name is safe. Returns 0 on success. */
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
    static const char *const scripts[] = {"model.gp", "ranges.gp", "scale.gp"};
    const options *o = p->o;
    int            code = close_good(p->ranges), drawn = 0;
    if (code == 0 && p->tensors)
        code = write_model(p, total) || write_ranges(p) || write_scale(p, total) ? -1 : 0;
    if (code != 0)
        (void)problem(error, o->plot, NULL, "%s", strerror(errno));
    while (code == 0 && p->tensors && drawn < 3 && draw(o->plot, scripts[drawn]) == 0)
        drawn++;
    if (drawn == 3)
        (void)fprintf(stderr, "inspect: wrote model.png, scale.png and ranges%s.png\n",
                      p->tensors > ROWS ? "-1" : "");
    else if (code == 0)
        (void)fprintf(stderr, "inspect: %s\n", p->tensors ? "wrote data and scripts, but no pictures: "
                      "gnuplot is missing or failed" : "there is nothing to draw");
    free(p);
    return code;
}
