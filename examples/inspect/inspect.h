/* inspect.h -- declarations that the files of examples/inspect share. The main program is examples/inspect.c.
 *
 *   source.c       the bytes of a file: mapped in windows, or read
 *   text.c         formats names and numbers so that they are safe to print
 *   npy.c          NumPy .npy headers
 *   safetensors.c  .safetensors headers; refuses hostile ones
 *   zip.c          archives: NumPy .npz, PyTorch .pt
 *   pickle.c       finds the tensors of a PyTorch pickle without running any code that it names
 *   gguf.c         GGUF headers
 *   onnx.c         the initializers and constants of an ONNX model
 *   model.c        finds out the kind of a file; raw and CSV files; the stream of a tensor's values
 *   folder.c       folders, and the index of a sharded model
 *   scan.c         reads a tensor, up to three times: what each format would lose; the verdict
 *   diff.c         what changed from one checkpoint to another
 *   report.c       the table, the summary, JSON and CSV
 *   plot.c         data and gnuplot scripts
 *   convert.c      writes the converted .safetensors file */
#ifndef INSPECT_H
#define INSPECT_H

/* Needs POSIX: mapped windows, folders, removing an unfinished output on a signal, running gnuplot. */
#if defined(__unix__) || defined(__APPLE__)
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#define HAVE_POSIX 1
#else
#define HAVE_POSIX 0
#endif

/* inspect uses only conversions and reports of mpt.h: leaving out these parts halves the time to compile. */
#define MPT_NO_ARITHMETIC
#define MPT_NO_TEXT
#define MPT_NO_BLOCKS
#define MPT_NO_OPS
#define MPT_NO_GRAPH
#include "mpt.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if HAVE_POSIX
#include <sys/stat.h>
#include <unistd.h>
#endif

#if defined(__GNUC__) || defined(__clang__)
#define LIKE_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LIKE_PRINTF(format, first)
#endif

typedef unsigned long long ull;         /* for printf's %llu */

enum {
    MAX_DIMS = 32,              /* the limit of NumPy before 2.0 */
    MAX_FORMATS = 4,            /* f16, bf16, e4m3, e5m2 */
    MAX_JOBS = 64,
    MAX_RULES = 16,
    CHUNK = 1 << 20,            /* bytes that a stream returns at a time: they fit in a second-level cache */
    ERROR_TEXT = 600,
    VERDICT = 160               /* size of a verdict's buffer */
};
#define TOLERATE 0.05           /* default of --tolerate for --diff, and for tensors of one sign */

/* ---- source.c ---- */

/* The bytes of a file. Only one window of it is in memory at a time, so large files need little memory. */
typedef struct source {
    uint64_t             size;
    const unsigned char *memory;            /* if not NULL, the bytes are here and there is no file */
    FILE                *file;
    int                  mapped;            /* nonzero: windows are mapped; zero: they are read */
    unsigned char       *window;            /* the mapping, or a buffer */
    uint64_t             at;                /* offset of the window in the file */
    size_t               length;            /* of the window */
} source;

int source_open(source *s, const char *path, int map, char *error);
void source_memory(source *s, const void *bytes, size_t size);
/* Open what was written to `f` as a source. source_close closes `f`, and so does this call if it fails. */
int source_file(source *s, FILE *f, int map);
void source_close(source *s);
/* _share: the same file with its own window, for another thread. _leave releases the window, not the file. */
void source_share(source *s, const source *of);
void source_leave(source *s);
/* The unsigned integer in the first n bytes, least significant byte first. */
uint64_t little_endian(const unsigned char *bytes, int n);
/* `size` bytes (up to CHUNK) at offset `at`, valid until the next call. NULL: beyond the end, or failed. */
const unsigned char *source_view(source *s, uint64_t at, size_t size);
int source_read(source *s, uint64_t at, void *dst, size_t size);
/* A copy of n bytes and a zero; the caller frees it. NULL: n > most, beyond the end, failed or no memory. */
char *source_text(source *s, uint64_t at, uint64_t n, uint64_t most);
/* From now on, if the mapped file `path` shrinks, say so before SIGBUS ends the program; then, and on an
 * interrupt, remove the file `unlink_too`, unless it is NULL. With path NULL signals act as by default. */
void source_guard(const char *path, const char *unlink_too);

/* ---- text.c ---- */

char *copy_text(const char *s, size_t n);       /* NULL: out of memory; also of path_join */
/* Make room in `items` for element `count`. The array must grow by one element at a time: its capacity
 * doubles when `count` is a power of two. Returns the array; NULL leaves `items` as it was. */
void *grow(void *items, size_t count, size_t size);
char *path_join(const char *folder, size_t n, const char *name);        /* n: length of folder */
const char *path_name(const char *path);                                /* what follows the last slash */
int ends_with(const char *s, const char *suffix);
int by_text(const void *a, const void *b);                              /* compares char *, for qsort */
const char *twice(const char **texts, size_t n);        /* a text that occurs twice, or NULL; sorts `texts` */
int utf8_length(const unsigned char *s, size_t n, uint32_t *point);     /* 0: not UTF-8 */
int utf8_valid(const char *s, size_t n);
/* Make a name safe for a terminal: control characters, direction marks and bytes that are not UTF-8 become
 * escapes. A name of more than `width` columns loses its middle. Returns the resulting width. */
int text_safe(char *dst, size_t cap, const char *name, int width);
void text_json(FILE *out, const char *s);
void text_json_inside(FILE *out, const char *s);                        /* without the quotes */
void text_count(char *dst, size_t cap, uint64_t n);                     /* 1.2M */
void text_bytes(char *dst, size_t cap, uint64_t n);                     /* 4.0 GiB */
void text_value(char *dst, size_t cap, double x);                       /* 3.1e5 */
void text_share(char *dst, size_t cap, uint64_t part, uint64_t whole);  /* 2.1% */
void text_db(char *dst, size_t cap, double db);                         /* 74 dB */
/* Write the error text "FILE: tensor 'NAME': reason" without the parts that are NULL. Returns -1. */
int problem(char *error, const char *path, const char *tensor, const char *format, ...) LIKE_PRINTF(4, 5);

/* ---- model.c, npy.c, safetensors.c, zip.c, pickle.c, gguf.c, onnx.c ---- */

typedef struct tensor {
    char       *name;
    const char *type;               /* as the file calls it; lives as long as the model */
    mpt_format  format;             /* MPT_FORMAT_COUNT: not a float type that inspect reads; skipped */
    source     *from;               /* holds the bytes; NULL: the model's file does */
    int         swap, fortran;      /* swap: not in host byte order; fortran: first index varies fastest */
    int         scattered;          /* the values are in neither C nor Fortran order */
    int         dims;
    uint64_t    shape[MAX_DIMS], count, offset, bytes;  /* offset: in `from` */
} tensor;

/* A number type: its name in .safetensors files, and its names in other files, separated by blanks. */
typedef struct number_type {
    const char *name, *others;
    mpt_format  format;             /* MPT_FORMAT_COUNT: not a float type that inspect reads */
    int         bits;
} number_type;

typedef enum file_kind {
    KIND_NPY, KIND_SAFETENSORS, KIND_RAW, KIND_CSV, KIND_NPZ, KIND_PYTORCH, KIND_GGUF, KIND_ONNX
} file_kind;

typedef struct pair { char *key, *value; } pair;            /* in this order: by_text compares keys */

typedef struct model {
    const char *path;
    source      src;
    file_kind   kind;
    tensor     *tensors;
    size_t      count;
    pair       *metadata;           /* sorted by key */
    size_t      metadata_count;
    char      **texts;              /* type names copied from the file */
    size_t      text_count;
    source    **parts;              /* temporary files: what had to be unpacked */
    size_t      part_count;
} model;

const char *kind_name(file_kind kind);
int  host_is_little(void);
size_t format_bytes(mpt_format format);         /* of one value */
void swap_bytes(unsigned char *x, size_t n, size_t size);   /* reverses each `size` bytes of n bytes */
/* The type that a file calls `name`; NULL: unknown. */
const number_type *find_type(const char *name);
/* Open and check a file. Of CSV, this reads all values; of the others, none. 0, or -1 with an error text. */
int  model_open(model *m, const char *path, int map, mpt_format raw, char *error);
int  model_parse(model *m, mpt_format raw, char *error);    /* model_open, once m->path and m->src are set */
void model_close(model *m);
/* Append a tensor whose name has n characters. Earlier tensors may move. NULL: out of memory. */
tensor *model_tensor(model *m, const char *name, size_t n);
/* Set the tensor's type and the format that this stands for. `type` must live as long as the model. */
void tensor_type(tensor *t, const char *type);
/* Compute the tensor's count from its shape. 0, or -1 if it overflows. */
int  tensor_count(const model *m, tensor *t, char *error);
/* Check that t->bytes is the size of t->count values of `bits` bits each. 0 or -1. */
int  tensor_bytes(const model *m, const tensor *t, int bits, char *error);
const char *model_text(model *m, const char *text);     /* a copy that lives as long as the model, or NULL */
source *tensor_source(model *m, const tensor *t);
/* A new part of the model: an empty temporary file. The caller writes to its `file`, and then opens it with
 * source_file. NULL: none can be made. */
source *model_part(model *m);
/* Parse a .npy file of `bytes` bytes that starts at t->offset in the tensor's source. */
int  npy_parse(model *m, tensor *t, uint64_t bytes, char *error);
int  safetensors_parse(model *m, char *error);
int  zip_parse(model *m, char *error);
int  gguf_parse(model *m, char *error);
int  onnx_parse(model *m, char *error);

/* A tensor as a PyTorch pickle describes it: a view of a storage. Offset and strides count elements. */
typedef struct pickled {
    char       *name, *storage, *type;          /* type: "FloatStorage", or a dtype, "float8_e5m2" */
    int         dims;
    uint64_t    shape[MAX_DIMS], stride[MAX_DIMS], offset;
} pickled;
/* Call `found` for each tensor of a pickle made of plain containers, until it returns nonzero. All else that
 * the pickle asks for is refused; the reason goes to `why`, which has `cap` bytes. 0 or -1. */
int  pickle_parse(const unsigned char *text, size_t n, int (*found)(void *user, const pickled *t), void *user,
                  char *why, size_t cap);

/* Print the cells of a row as JSON, CSV or CSV titles. JSON omits absent cells; in CSV they are empty. */
typedef enum cells_as { CELLS_JSON, CELLS_CSV, CELLS_TITLES } cells_as;
typedef struct cells { cells_as as; const char *before, *group; } cells;

void cell_group(cells *c, const char *name);    /* NULL ends it; titles begin with the innermost name */
void cell_count(cells *c, const char *key, int present, uint64_t x);
void cell_real(cells *c, const char *key, int present, double x);
void cell_text(cells *c, const char *key, int present, const char *text);
void cell_shape(cells *c, const char *key, const tensor *t);

/* ---- folder.c ---- */

/* The files of one argument: the file itself, the files of a folder, or the shards that an index names. */
typedef struct file_list {
    char        **path;
    size_t        count;
    int           many;                         /* nonzero: a folder or an index */
    char         *index;                        /* its path; NULL: none */
    struct cJSON *json;                         /* the parsed index */
} file_list;

int  file_list_open(file_list *l, const char *path, char *error);
void file_list_close(file_list *l);
/* Check that each file holds exactly the tensors that the index places there. 0 or -1. */
int  file_list_check(file_list *l, const model *m, char *error);
/* Write the index of the converted shards, whose values take `bytes` bytes. 0 or -1. */
int  file_list_index(const file_list *l, uint64_t bytes, FILE *out);

/* Reads the values of a tensor in file order, chunk by chunk, aligned and in host byte order. */
typedef struct stream {
    model        *m;
    const tensor *t;
    uint64_t      at;                   /* bytes done */
    char          error[ERROR_TEXT];
    uint64_t      line, column, columns, rows;          /* these and the next four members: CSV only */
    /* titled: 0; 1 after a line with one title, 2 with several; skipping: until the end of this line */
    int           titled, skipping, after_value;
    unsigned char separator;            /* ',', ';', or ' ' if only blanks separate; 0: none seen yet */
    union { double d[CHUNK / sizeof(double)]; unsigned char bytes[CHUNK]; } block;
} stream;

void stream_init(stream *s, model *m, const tensor *t);
/* Returns 1 with the next n values at *x; 0 at the end; -1 with s->error if reading failed. */
int  stream_next(stream *s, const void **x, size_t *n);

/* ---- scan.c ---- */

typedef enum fits { FITS, FITS_SCALED, FITS_NOT } fits;

/* What multiplying by a power of two and a cast to a format do to a tensor's finite nonzero values. */
typedef struct cast {
    int      log2_scale;
    uint64_t flushed, subnormal, overflow;
    double   db;                        /* signal-to-noise ratio of the values that do not overflow */
    double   worst;                     /* bound of the relative error of values that matter: see scan.c */
} cast;

typedef struct loss {
    cast     plain, scaled;             /* plain: scale 1; scaled: the best scale, which may also be 1 */
    uint64_t normal;
    fits     fits;
} loss;

typedef struct result {
    uint64_t count, zero, nonzero, inf, nan;
    uint64_t first_nan, first_inf;      /* index of the first; UINT64_MAX: none */
    double   max_abs, min_abs, mean, rms;
    int      signs;                     /* bit 0: a value is above 0; bit 1: a value is below 0 */
    loss     in[MAX_FORMATS];
} result;

/* How a tensor compares with the tensor of that name in the other file. COMPARED: both hold floats, and were
 * compared value by value. OTHER_BYTES, SAME_BYTES: they hold something else, compared byte by byte. */
typedef enum pairing {
    COMPARED, ONLY_FIRST, ONLY_SECOND, OTHER_SHAPE, OTHER_ORDER, OTHER_BYTES, SAME_BYTES, NO_FLOATS
} pairing;

/* How a tensor changed. For each format, lost: changes that disappear when both values are rounded to it;
 * over: changed values that overflow in it. */
typedef struct moved {
    pairing  how;
    uint64_t changed, apart;            /* apart: changed values whose difference is NaN or Inf */
    double   max, l2, norm, change;     /* max, l2: of differences; norm: of the first; change: l2 / norm */
    uint64_t lost[MAX_FORMATS], over[MAX_FORMATS];
    int      vanish[MAX_FORMATS];       /* log2 of the factor on all changes at which half would be lost */
} moved;

/* What a rule of --fail-if compares with its number; above: by >, not <; equal: by >= or <=. */
enum rule_figure {
    RULE_DB, RULE_FLUSHED, RULE_OVERFLOW, RULE_SUBNORMAL, RULE_LOST, RULE_NAN, RULE_INF, RULE_CHANGE,
    RULE_CHANGED, RULE_MAX, RULE_APART, RULE_FIGURES
};
typedef struct rule {
    const char *text;
    mpt_format  format;
    int         figure, above, equal;
    double      number;
} rule;

typedef struct options {
    mpt_format  formats[MAX_FORMATS];   /* those of all rules among them */
    int         format_count, headroom;
    double      tolerate;               /* below 0: not given */
    int         json, csv, diff, map, jobs, progress, width, wide;  /* jobs 0: one for each processor */
    mpt_format  raw;                    /* MPT_FORMAT_COUNT: find out the kind of the file */
    uint64_t    top;                    /* 0: all */
    const char *by;
    const char *plot, *convert, *filter;
    rule        rules[MAX_RULES];
    int         rule_count;
    mpt_format  to;
    int         scale_auto, log2_scale, saturate, keep;
} options;

/* Counts of one tensor or several: the survey of magnitudes against every format, the sum, signs. */
typedef struct scan {
    mpt_survey survey;
    mpt_exact  sum;                     /* of the finite values */
    uint64_t   first_nan, first_inf;
    int        signs;
} scan;

void scan_init(scan *s);
void scan_merge(scan *s, const scan *part);
/* Scan a tensor, with several threads if it is large and mapped. Then cast it to every format as it is, and,
 * where that does not fit, with a scale. scan.c explains when a format fits. 0 or -1. */
int  scan_tensor(scan *s, result *r, model *m, const tensor *t, const options *o, char *error);
/* The result of several tensors together: counts, and the dB that are estimated from them. */
void scan_total(const scan *s, const options *o, result *r);
void verdict(char *dst, size_t cap, const tensor *t, const result *r, const options *o);

/* ---- diff.c ---- */

/* Accumulates the differences between the values of two tensors. */
typedef struct change {
    uint64_t       changed, apart, tiny;    /* tiny: changes that are 0 as floats, so lost in every format */
    double         max;
    mpt_exact      moved, from;             /* sums of squares: of the differences, of the first tensor */
    mpt_stagnation in[MAX_FORMATS];
    int            formats;
} change;

void change_init(change *c, const options *o);
/* Compare n values at `a`, which are divided by scale[0], with those at `b`, divided by scale[1]. */
void change_add(change *c, mpt_format from, const void *a, mpt_format to, const void *b, size_t n,
                const double *scale);
void change_merge(change *c, const change *part);
/* In scan.c: compare all values of t with those of u, which has as many. 0 or -1. */
int scan_pair(change *c, model *a, const tensor *t, model *b, const tensor *u, const options *o, char *error);

/* A row of the table: a tensor, or two of one name, either of which may be missing. */
typedef struct row {
    model        *m[2];
    const tensor *t[2];
    result        r;
    moved         d;
    uint64_t      key;
    int           percentile[3];            /* log2 of percentiles 1, 50 and 99 of the magnitudes */
} row;

/* rows_of, in report.c: a row for each tensor. diff_rows: a row for each name. The caller frees them. */
row  *rows_of(model *m, size_t files, size_t *n);
row  *diff_rows(model *a, size_t a_files, model *b, size_t b_files, size_t *n);
int   diff_row(row *w, const options *o, char *error);
int   diff_keeps(const moved *d, int k, const options *o);
void  diff_words(char *dst, size_t cap, const row *w, const options *o);
void  diff_cells(cells *c, const row *w, const options *o);
/* ---- report.c ---- */

typedef struct report report;

report *report_new(const options *o);
/* Print the report of a file or, unless `other` is NULL, of the changes to it. 0, or -1 after the error. */
int     report_file(report *p, const char *path, const char *other);
/* Finish the report of all files and free it. 0; -1 if writing failed or a rule of --fail-if holds. */
int     report_end(report *p);
void    progress(const options *o, const char *path, uint64_t done, uint64_t all);
void    complain(const char *error);

/* ---- plot.c ---- */

typedef struct plot plot;

plot *plot_new(const options *o, char *error);
void  plot_file(plot *p, const char *path);             /* for the title */
int   plot_tensor(plot *p, const tensor *t, const scan *s, const result *r);
int   plot_end(plot *p, const scan *total, char *error);

/* ---- convert.c ---- */

/* Write the converted file and print what was lost. 0 or -1. */
int convert_file(const char *path, const options *o);
/* The power of two by which an earlier conversion multiplied the values, from the metadata; or 1. 0 or -1. */
int earlier_scale(const model *m, const tensor *t, double *scale, char *error);

#endif /* INSPECT_H */
