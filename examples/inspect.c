// inspect.c -- what would become of your weights in f16, bf16 and FP8? Reads real weight files.
//
//  flags="-fopenmp -DMPT_USE_OPENMP -DINSPECT_ZIP $(pkg-config --cflags --libs libcjson minizip)"
//  cc -O2 -I. examples/inspect.c examples/inspect/*.c -o inspect -lm $flags
//  ./inspect model.safetensors         --help explains the rest; `make inspect` builds it, too
//
// This file is the command line; examples/inspect/inspect.h says what stands where. cJSON (libcjson-dev)
// reads the headers of .safetensors files, minizip (libminizip-dev) the archives that .npz and .pt are; those
// are refused without it and -DINSPECT_ZIP. The library itself needs nothing. Without OpenMP one
// thread reads.
#define MPT_IMPLEMENTATION
#include "inspect/inspect.h"

#include <ctype.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static const char help_files[] =
"inspect -- what would become of the numbers in a weight file in f16, bf16 or FP8?\n"
"\n"
"    inspect [options] FILE...\n"
"    inspect [options] --diff FIRST SECOND\n"
"\n"
"Reads .safetensors, NumPy .npy and .npz, PyTorch .pt and .pth (zip files with plain tensors; no code of\n"
"theirs runs), GGUF and ONNX (float tensors), .csv/.tsv/.txt, files of bare numbers, - for standard input;\n"
"a folder of them, or the .index.json of a sharded model. Types that hold no floats are listed and passed\n"
"over. Files may be larger than memory. For each tensor it prints the range of magnitudes, the signal to\n"
"noise that each format would leave, and a verdict:\n"
"\n"
"    f16 safe: 74 dB              stores as it is; 74 dB is its signal to noise\n"
"    f16 with scale 2^7: 74 dB    fits after multiplication with that power of two; divide on loading\n"
"    bf16: 56 dB; f16 ...         f16 does not fit even with a scale, and why; bf16 does\n"
"    keep f32: f16 overflows ...  no format asked for fits\n"
"    bad: 3 NaN, first at 7       holds NaN or Inf\n"
"\n"
"A format fits a tensor if nothing overflows and its signal to noise is what rounding alone guarantees,\n"
"6 dB a bit of the significand: f16 66, bf16 48, e4m3 24, e5m2 18. Less is lost to the ends of the range.\n"
"Values near zero that are lost beside larger ones hardly count in that, nor in what a model computes. But\n"
"where more than T of the nonzero values become zero, the format does not fit all the same: T is 50%, but\n"
"5% where all have one sign and may be divisors, unless you say otherwise.\n"
"\n"
"--diff compares two models value by value, whatever they are stored in, for example two checkpoints of a\n"
"training: how many values changed, the largest change, its norm beside that of the first, and under each\n"
"format how many of the changed values would show no change in it, because it is too coarse. A format keeps\n"
"the change of a tensor if at most T of it is lost.\n"
"\n"
"What to look at\n"
"  --format LIST      formats in the order you prefer them (f16,bf16,e4m3,e5m2)\n"
"  --tolerate SHARE   T, such as 1% or 0.01; of --diff 5%\n"
"  --filter PATTERN   only tensors whose names match, such as 'layers.*.weight'; * and ? as in a shell\n"
"  --headroom N       a scale leaves room for N doublings of the largest value (0)\n"
"  --raw TYPE         the FILEs are bare little-endian numbers: f32, f64, f16, bf16, e4m3, e5m2\n"
"\n";

static const char help_output[] =
"What to print\n"
"  --sort KEY         by db (worst first), flushed, overflow, subnormal, lost, max, min or size, of the\n"
"                     first format; --by is the same; of --diff: by change (relative norm), changed, max,\n"
"                     lost or size\n"
"  --top N [by KEY]   only the first N, by db (of --diff by change) unless you say otherwise\n"
"  --wide             whole names; shape, mean, standard deviation, zeros; percentiles of the magnitudes\n"
"  --width N          columns of the table (110); names that do not fit lose their middle, but not what\n"
"                     tells two of them apart\n"
"  --json, --csv      the figures as JSON or CSV on standard output\n"
"  --plot DIR         write ranges.csv, scale.csv and gnuplot scripts; and the pictures, with gnuplot\n"
"  --progress         show progress on standard error even if it is no terminal; --no-progress: never\n"
"\n"
"Converting one file or one sharded model\n"
"  --convert OUT      write OUT, a .safetensors file, and say what was lost; OUT appears only when it is\n"
"                     complete. Of a folder or an index: OUT is a new folder for the same shards\n"
"  --to FORMAT        f16, bf16, e4m3 or e5m2; tensors that are smaller already are copied\n"
"  --scale 2^K|auto   multiply by a power of two: all by one (2^0, a plain cast), or each by its own.\n"
"                     Scales other than 1 stand in __metadata__ under \"mpt.scale.NAME\"; no other\n"
"                     program knows of them: whoever loads the file must divide\n"
"  --keep             copy the tensors that do not fit, even with a scale, as they are\n"
"  --saturate         allow overflow: it becomes the largest number of the format. Without it overflow is\n"
"                     an error and nothing is written\n"
"\n"
"  --jobs N           threads for a large tensor: as many as there are processors\n"
"  --no-mmap          read instead of mapping the files into memory; one thread\n"
"  --fail-if RULE     exit with 1 if a tensor is so: FORMAT.FIGURE>NUMBER, with <, >=, <= as well; FIGURE\n"
"                     is db, flushed, overflow, subnormal (shares of the nonzero values: 0.01 or 1%), as\n"
"                     cast without a scale; or nan, inf: --fail-if 'nan>0' --fail-if 'f16.db<60'. Of\n"
"                     --diff: FORMAT.lost, changed (shares), change, max, or apart: not in both alike\n"
"  --help             this text\n"
"\n"
"Exit code: 0 all is well, 1 a file is bad or could not be read or written, or a rule of --fail-if holds,\n"
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

/* The format of that name, of n characters, that a file can hold; F64 and F32 only where `wide`. */
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

/* auto, 2^K, or a number that is a power of two. */
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

/* Keys to sort by; the first ones are those of --diff, too. */
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

/* FORMAT.FIGURE<NUMBER and its like, to o->rules. */
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

/* Options that take a value; 1 good, 0 bad value, -1 no such option. */
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

/* Options to *o, the rest to the front of argv; the number of files, or -1 after a message. */
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

/* Whether the order and the rules are of tables of this kind; the name of one that is not, or NULL. */
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

static int check_options(options *o, int files)
{
    if (!files)
        return usage("no file given", NULL);
    if (o->top && !o->by)
        o->by = keys[o->diff ? 3 : 5];
    if (!o->convert &&
        (o->to != MPT_FORMAT_COUNT || o->saturate || o->keep || o->scale_auto || o->log2_scale))
        return usage("--to, --scale, --keep and --saturate go with --convert OUT", NULL);
    if (o->convert && o->to == MPT_FORMAT_COUNT)
        return usage("--convert needs --to FORMAT", NULL);
    if (o->convert && files != 1)
        return usage("--convert takes one file", NULL);
    if (o->convert && (o->plot || o->json || o->csv || o->diff || o->by))
        return usage("--convert does not go with --plot, --json, --csv, --diff, --sort and --top", NULL);
    if (o->diff && (files != 2 || o->plot))
        return usage("--diff takes two files, and makes no pictures", NULL);
    if (o->json && o->csv)
        return usage("--json or --csv, not both", NULL);
    if (check_keys(o))
        return usage(o->diff ? "--diff has no '%s'" : "only --diff has '%s'", check_keys(o));
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
