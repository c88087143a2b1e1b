// inspect.c -- a command-line tool: what would f16, bf16 or FP8 do to the numbers in your weight files?
//
//  flags="-fopenmp -DMPT_USE_OPENMP -DINSPECT_ZIP $(pkg-config --cflags --libs libcjson minizip)"
//  cc -O2 -I. examples/inspect.c examples/inspect/*.c -o inspect -lm $flags
//  ./inspect model.safetensors         --help explains the rest; `make inspect` builds it, too
//
// This file reads the command line; examples/inspect/inspect.h lists the other files. cJSON (libcjson-dev)
// parses the headers of .safetensors files, minizip (libminizip-dev) the archives .npz and .pt: without
// -DINSPECT_ZIP these are refused. mpt.h itself needs no library. Without OpenMP, one thread reads.
#define MPT_IMPLEMENTATION
#include "inspect/inspect.h"

#include <ctype.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static const char help_files[] =
"inspect -- what would f16, bf16 or FP8 do to the numbers in a weight file?\n"
"\n"
"    inspect [options] FILE...\n"
"    inspect [options] --diff FIRST SECOND\n"
"\n"
"FILE may be .safetensors, NumPy .npy or .npz, PyTorch .pt or .pth (a zip file of plain tensors; no code in\n"
"it is run), GGUF, ONNX, .csv, .tsv, .txt, bare numbers (--raw), or - for standard input; also a folder\n"
"(its .safetensors files, else the others but .txt), or the .index.json of a sharded model. Files may\n"
"be larger than memory. Tensors that are not of a float type are listed but skipped. For each tensor,\n"
"inspect prints the smallest and the largest magnitude, the signal-to-noise ratio (SNR) in dB after a\n"
"cast to each format, and a verdict:\n"
"\n"
"    f16 safe: 74 dB, 2% to 0     f16 fits as it is, with an SNR of 74 dB; 2% of the values become zero\n"
"    f16 with scale 2^7: 74 dB    f16 fits if the values are multiplied by 2^7; divide after loading\n"
"    bf16: 56 dB; f16 ...         bf16 fits; f16 does not, even with the scale inspect chooses; why\n"
"    keep f32: f16 overflows ...  no format fits, and the reason for the first\n"
"    bad: 3 NaN, first at 7       the tensor holds NaN or Inf; the index of the first is 7\n"
"\n"
"A format fits a tensor if nothing overflows; if the SNR is at least what rounding alone guarantees, 6 dB\n"
"per bit of the significand (f16 66, bf16 48, e4m3 24, e5m2 18); if no value above 1/16 of the root mean\n"
"square may be off by more than 1/16 of itself (e5m2: 1/8); and if at most the share T of the nonzero\n"
"values become zero. T is 50%, because values near zero, beside larger ones, hardly matter in a model;\n"
"but it is 5% if all values have the same sign, because they may be divisors.\n"
"\n"
"--diff compares two models, such as two checkpoints, value by value, whatever their types (and two files\n"
"of one tensor each whatever its name): how many values changed, the largest change, the norm of the change\n"
"divided by that of FIRST, and, under each format, the share of the changed values whose change disappears\n"
"when both are rounded to it. A format keeps a tensor's change if nothing overflows and at most the share\n"
"T, here 5%, of the changes disappear.\n"
"\n"
"What to inspect\n"
"  --format LIST      of f16, bf16, e4m3, e5m2, in order of preference (default: f16,bf16,e4m3,e5m2)\n"
"  --tolerate SHARE   T, such as 1% or 0.01 (defaults: see above)\n"
"  --filter PATTERN   only tensors whose names match, such as 'layers.*.weight'; * and ? as in a shell\n"
"  --headroom N       where a scale is needed, leave room for N doublings of the largest value\n"
"  --raw TYPE         FILE holds bare little-endian numbers: f32, f64, f16, bf16, e4m3 or e5m2\n"
"\n";

static const char help_output[] =
"What to print\n"
"  --sort KEY         sort by a figure of the first format: db (SNR, worst first), flushed (to zero),\n"
"                     overflow, subnormal, lost (flushed or overflow), max, min or size; with --diff by\n"
"                     change (relative norm), changed, max, lost or size. --by KEY is the same\n"
"  --top N [by KEY]   print only the first N tensors; KEY is db (with --diff: change) unless given\n"
"  --wide             print full names, shape, mean, standard deviation, zeros, percentiles of magnitudes\n"
"  --width N          columns of the table (default: 110); long names are cut, but all remain distinct\n"
"  --json, --csv      print the figures as JSON or as CSV\n"
"  --plot DIR         write data files (.csv) and gnuplot scripts to DIR, and run gnuplot for the pictures\n"
"  --progress         show progress even if standard error is not a terminal; --no-progress: never\n"
"\n"
"Converting one file or one sharded model\n"
"  --convert OUT      write OUT, a .safetensors file, and print what was lost; OUT appears only when it is\n"
"                     complete. If FILE is a folder or an index, OUT is a new folder for the same shards\n"
"  --to FORMAT        f16, bf16, e4m3 or e5m2; tensors of smaller types are copied unchanged\n"
"  --scale 2^K|auto   multiply by a power of two: 2^K for all tensors (default: 2^0), or auto: one chosen\n"
"                     for each tensor. Scales other than 1 are stored in __metadata__ under the keys\n"
"                     \"mpt.scale.NAME\". Other programs ignore them: divide by them after loading;\n"
"                     --diff does, for each file that has them\n"
"  --keep             copy tensors that do not fit, without converting them\n"
"  --saturate         store values that overflow, and Inf, as the format's largest number; without it,\n"
"                     overflow is an error and nothing is written\n"
"\n"
"Other options\n"
"  --jobs N           number of threads for large tensors (default: one per processor)\n"
"  --no-mmap          read the files instead of mapping them into memory\n"
"  --fail-if RULE     exit with 1 if RULE holds for a tensor: FORMAT.FIGURE>NUMBER (or <, >=, <=), where\n"
"                     FIGURE is db, flushed, overflow or subnormal (the latter three as shares of the\n"
"                     nonzero values: 0.01 or 1%) of a cast without a scale; or nan, inf, without FORMAT.\n"
"                     Examples: 'nan>0', 'f16.db<60'. With --diff: FORMAT.lost, changed (both shares),\n"
"                     change, max, or apart (NaN or Inf in only one, or tensors that are not comparable).\n"
"                     Figures of formats leave out NaN and Inf; a view, whose values are not read, fails\n"
"  --help             print this text\n"
"\n"
"Exit code: 0 success; 1 a file is bad or cannot be read or written, or a --fail-if rule holds;\n"
"2 the command line is wrong.\n";

static int usage(const char *format, const char *what)
{
    char shown[120];
    (void)text_safe(shown, sizeof shown, what ? what : "", 80);
    (void)fprintf(stderr, "inspect: ");
    (void)fprintf(stderr, format, shown);
    (void)fprintf(stderr, "; see inspect --help\n");
    return 2;
}

static int is_word(const char *word, const char *text, size_t n)
{
    return strlen(word) == n && !memcmp(word, text, n);
}

/* Find the format whose name is the first n characters; F32 and F64 only if `wide`. Returns 1 if found. */
static int find_format(const char *name, size_t n, int wide, mpt_format *format)
{
    static const mpt_format known[] = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2, MPT_F32, MPT_F64};
    int i;
    for (i = 0; i < (wide ? 6 : 4); i++)
        if (is_word(mpt_format_get(known[i])->name, name, n)) {
            *format = known[i];
            return 1;
        }
    return 0;
}

static int set_formats(options *o, const char *list)
{
    const char *comma;
    int         k;
    o->format_count = 0;
    for (;; list = comma + 1) {
        const size_t n = (comma = strchr(list, ',')) ? (size_t)(comma - list) : strlen(list);
        mpt_format   f = MPT_F16;
        if (o->format_count == MAX_FORMATS || !find_format(list, n, 0, &f))
            return 0;
        for (k = 0; k < o->format_count; k++)
            if (o->formats[k] == f)
                return 0;
        o->formats[o->format_count++] = f;
        if (!comma)
            return 1;
    }
}

static int set_share(double *share, const char *text)
{
    char        *end;
    const double x = strtod(text, &end);
    *share = *end == '%' ? x / 100.0 : x;
    end += *end == '%';
    return end != text && !*end && *share >= 0.0 && *share <= 1.0;
}

static int set_whole(uint64_t *n, const char *text, uint64_t most)
{
    char *end;
    *n = (uint64_t)strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && *n <= most;
}

static int set_number(int *n, const char *text, uint64_t least, uint64_t most)
{
    uint64_t   x = 0;
    const int  ok = set_whole(&x, text, most) && x >= least;
    *n = (int)x;
    return ok;
}

/* Accepts auto, 2^K, or a number that is a power of two. */
static int set_scale(options *o, const char *text)
{
    const int power = !strncmp(text, "2^", 2);
    char     *end;
    double    x;
    int       k;
    o->scale_auto = !strcmp(text, "auto");
    if (o->scale_auto)
        return 1;
    x = strtod(text + 2 * power, &end);
    x = !power ? x : x >= -126.0 && x <= 127.0 && x == floor(x) ? ldexp(1.0, (int)x) : 0.0;
    if (end == text + 2 * power || *end || frexp(x, &k) != 0.5 || k < -125 || k > 128)
        return 0;
    o->log2_scale = k - 1;
    return 1;
}

/* Keys to sort by. --diff knows the first DIFF_KEYS; those from DIFF_ONLY to DIFF_KEYS - 1 are its own. */
static const char *const keys[] = {"max", "size", "lost", "change", "changed", "db", "flushed", "overflow",
                                   "subnormal", "min"};
enum { KEYS = sizeof keys / sizeof keys[0], DIFF_ONLY = 3, DIFF_KEYS = 5 };

static int set_by(options *o, const char *key)
{
    int i;
    for (i = 0; i < KEYS && strcmp(key, keys[i]) != 0; i++)
        ;
    o->by = i < KEYS ? keys[i] : o->by;
    return i < KEYS;
}

/* Append a rule such as FORMAT.FIGURE<NUMBER to o->rules. Returns 0 if it is malformed. */
static int set_rule(options *o, const char *text)
{
    static const char *const figures[RULE_FIGURES] = {"db", "flushed", "overflow", "subnormal", "lost", "nan",
                                                      "inf", "change", "changed", "max", "apart"};
    const char  *dot = strchr(text, '.'), *sign = text + strcspn(text, "<>"), *figure = text;
    char        *end;
    rule        *r = &o->rules[o->rule_count];
    if (o->rule_count == MAX_RULES || !*sign)
        return 0;
    r->text = text;
    r->format = MPT_FORMAT_COUNT;
    if (dot && dot < sign) {
        if (!find_format(text, (size_t)(dot - text), 0, &r->format))
            return 0;
        figure = dot + 1;
    }
    for (r->figure = 0; r->figure < RULE_FIGURES; r->figure++)
        if (is_word(figures[r->figure], figure, (size_t)(sign - figure)))
            break;
    if (r->figure == RULE_FIGURES || (r->figure < RULE_NAN) != (r->format != MPT_FORMAT_COUNT))
        return 0;
    r->above = *sign == '>';
    r->equal = sign[1] == '=';
    r->number = strtod(sign + 1 + r->equal, &end);
    if (end == sign + 1 + r->equal)
        return 0;
    r->number /= *end == '%' ? 100.0 : 1.0;
    end += *end == '%';
    o->rule_count++;
    return !*end;
}

/* Set an option that takes a value. Returns 1; 0 if the value is bad; -1 if there is no such option. */
static int set_valued(options *o, const char *option, const char *value)
{
    if (!strcmp(option, "--format"))
        return set_formats(o, value);
    if (!strcmp(option, "--tolerate"))
        return set_share(&o->tolerate, value);
    if (!strcmp(option, "--headroom"))
        return set_number(&o->headroom, value, 0, 30);
    if (!strcmp(option, "--jobs"))
        return set_number(&o->jobs, value, 1, MAX_JOBS);
    if (!strcmp(option, "--width"))
        return set_number(&o->width, value, 0, 400);
    if (!strcmp(option, "--raw"))
        return find_format(value, strlen(value), 1, &o->raw);
    if (!strcmp(option, "--by") || !strcmp(option, "--sort"))
        return set_by(o, value);
    if (!strcmp(option, "--top"))
        return set_whole(&o->top, value, UINT64_MAX) && o->top;
    if (!strcmp(option, "--to"))
        return find_format(value, strlen(value), 0, &o->to);
    if (!strcmp(option, "--scale"))
        return set_scale(o, value);
    if (!strcmp(option, "--fail-if"))
        return set_rule(o, value);
    if (!strcmp(option, "--filter"))
        o->filter = value;
    else if (!strcmp(option, "--plot"))
        o->plot = value;
    else if (!strcmp(option, "--convert"))
        o->convert = value;
    else
        return -1;
    return *value != 0;
}

static int set_plain(options *o, const char *option)
{
    const struct { const char *name; int *at, value; } plain[] = {
        {"--json", &o->json, 1}, {"--csv", &o->csv, 1}, {"--diff", &o->diff, 1}, {"--wide", &o->wide, 1},
        {"--progress", &o->progress, 1}, {"--no-progress", &o->progress, 0}, {"--no-mmap", &o->map, 0},
        {"--saturate", &o->saturate, 1}, {"--keep", &o->keep, 1}};
    size_t i;
    for (i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (!strcmp(option, plain[i].name)) {
            *plain[i].at = plain[i].value;
            return 1;
        }
    return 0;
}

/* Store the options in *o; move the files to the front of argv. Returns their number; -1 after a message. */
static int parse_options(options *o, int argc, char **argv)
{
    int files = 0, i, plain = 0;
    for (i = 1; i < argc; i++) {
        int code;
        if (plain || argv[i][0] != '-' || !argv[i][1]) {
            argv[files++] = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--")) {
            plain = 1;
            continue;
        }
        if (set_plain(o, argv[i]))
            continue;
        code = set_valued(o, argv[i], i + 1 < argc ? argv[i + 1] : "");
        if (code < 0)
            return usage("no such option: %s", argv[i]), -1;
        if (!code)
            return usage(i + 1 < argc ? "bad value for %s" : "%s needs a value", argv[i]), -1;
        i++;
        if (!strcmp(argv[i - 1], "--top") && i + 2 < argc && !strcmp(argv[i + 1], "by")) {
            if (!set_by(o, argv[i + 2]))
                return usage("cannot sort by '%s'", argv[i + 2]), -1;
            i += 2;
        }
    }
    return files;
}

/* The sort key or the rule that does not exist for this kind of table (with or without --diff), or NULL. */
static const char *check_keys(const options *o)
{
    int i;
    for (i = 0; o->by && keys[i] != o->by; i++)
        ;
    if (o->by && (o->diff ? i >= DIFF_KEYS : i > DIFF_ONLY - 1 && i < DIFF_KEYS))
        return o->by;
    for (i = 0; i < o->rule_count; i++) {
        const int figure = o->rules[i].figure;
        if ((figure == RULE_LOST || figure > RULE_INF) != o->diff)
            return o->rules[i].text;
    }
    return NULL;
}

/* The rule about a format that the table does not have, or NULL. */
static const char *check_formats(const options *o)
{
    int i, k;
    for (i = 0; i < o->rule_count; i++) {
        const mpt_format format = o->rules[i].format;
        for (k = 0; k < o->format_count && o->formats[k] != format; k++)
            ;
        if (format != MPT_FORMAT_COUNT && k == o->format_count)
            return o->rules[i].text;
    }
    return NULL;
}

static int check_options(options *o, int files)
{
    if (!files)
        return usage("no file given", NULL);
    if (o->top && !o->by)
        o->by = keys[o->diff ? 3 : 5];
    if (!o->convert &&
        (o->to != MPT_FORMAT_COUNT || o->saturate || o->keep || o->scale_auto || o->log2_scale))
        return usage("--to, --scale, --keep and --saturate need --convert OUT", NULL);
    if (o->convert && o->to == MPT_FORMAT_COUNT)
        return usage("--convert needs --to FORMAT", NULL);
    if (o->convert && files != 1)
        return usage("--convert takes one file", NULL);
    if (o->convert && (o->plot || o->json || o->csv || o->diff || o->by || o->wide || o->filter ||
                       o->rule_count))
        return usage("--convert cannot be used with --plot, --json, --csv, --diff, --sort, --top, --wide, "
                     "--filter or --fail-if", NULL);
    if (o->diff && (files != 2 || o->plot))
        return usage("--diff takes two files, and cannot be used with --plot", NULL);
    if (o->json && o->csv)
        return usage("--json and --csv cannot be used together", NULL);
    if (check_formats(o))
        return usage("'%s' is about a format that is not in --format", check_formats(o));
    if (check_keys(o))
        return usage(o->diff ? "--diff does not know '%s'" : "'%s' needs --diff", check_keys(o));
    return 0;
}

int main(int argc, char **argv)
{
    static const options defaults = {
        .formats = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2}, .format_count = 4, .tolerate = -1.0, .map = 1,
        .progress = -1, .width = 110, .raw = MPT_FORMAT_COUNT, .to = MPT_FORMAT_COUNT};
    options o = defaults;
    report *p;
    int     files, i, bad = 0;
    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return fputs(help_files, stdout) < 0 || fputs(help_output, stdout) < 0 || fflush(stdout) != 0;
    files = parse_options(&o, argc, argv);
    if (files < 0 || check_options(&o, files) != 0)
        return 2;
#ifdef _OPENMP
    if (o.jobs)
        omp_set_num_threads(o.jobs);
#endif
    if (o.convert)
        return convert_file(argv[0], &o) != 0;
    p = report_new(&o);
    if (!p)
        return 1;
    for (i = 0; i < files; i += 1 + o.diff)
        bad |= report_file(p, argv[i], o.diff ? argv[i + 1] : NULL) != 0;
    bad |= report_end(p) != 0;
    return bad;
}
