/* inspect.h -- what the files of examples/inspect share. The program itself is examples/inspect.c.
 *
 *   source.c       the bytes of a file: mapped in windows, or read
 *   text.c         names and numbers that are safe to print
 *   npy.c          NumPy .npy headers
 *   safetensors.c  .safetensors headers, written so that hostile ones are refused
 *   zip.c          archives: NumPy .npz, PyTorch .pt
 *   pickle.c       what tensors a PyTorch file holds, without running what it says
 *   gguf.c         GGUF headers
 *   onnx.c         the initializers of an ONNX model
 *   model.c        which kind of file it is; raw and CSV; the stream of a tensor's values
 *   folder.c       folders, and the index of a sharded model
 *   scan.c         one pass over a tensor: what each format would lose; the verdict
 *   diff.c         what changed from one checkpoint to another
 *   report.c       table, summary, JSON, CSV
 *   plot.c         data and gnuplot scripts
 *   convert.c      the converted .safetensors */
#ifndef INSPECT_H
#define INSPECT_H

/* What POSIX has is used where it is there: windows, folders, processors. */
#if defined(__unix__) || defined(__APPLE__)
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#define HAVE_POSIX 1
#else
#define HAVE_POSIX 0
#endif

/* Converting and counting is all that it wants of mpt: without these parts that compiles in half the time. */
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

typedef unsigned long long ull;         /* what printf takes */

enum {
    MAX_DIMS = 32,              /* as NumPy */
    MAX_FORMATS = 4,            /* f16, bf16, e4m3, e5m2 */
    MAX_JOBS = 64,
    MAX_RULES = 16,
    CHUNK = 1 << 20,            /* bytes that a stream hands out at a time: fits a second-level cache */
    ERROR_TEXT = 600,
    VERDICT = 160               /* characters of a verdict */
};
#define TOLERATE 0.05           /* unless --tolerate says otherwise */

/* ---- source.c ---- */

/* The bytes of a file. Large files stay flat in memory: one window of the file is mapped at a time. */
typedef struct source {
    uint64_t             size;
    const unsigned char *memory;            /* not NULL: the bytes stand here, no file */
    FILE                *file;
    int                  mapped;            /* nonzero: windows are mapped, otherwise read */
    unsigned char       *window;            /* the mapping, or a buffer */
    uint64_t             at;                /* where in the file the window starts */
    size_t               length;
} source;

int source_open(source *s, const char *path, int map, char *error);
void source_memory(source *s, const void *bytes, size_t size);
/* What was written to `f`, which is closed with the source. */
int source_file(source *s, FILE *f, int map);
void source_close(source *s);
/* The same file with a window of its own, for another thread. _leave gives a window back, not the file. */
void source_share(source *s, const source *of);
void source_leave(source *s);
/* The whole number in the first n bytes, the lowest first. */
uint64_t little_endian(const unsigned char *bytes, int n);
/* `size` bytes from offset `at`, at most CHUNK; good until the next call. NULL: beyond the end or failed. */
const unsigned char *source_view(source *s, uint64_t at, size_t size);
int source_read(source *s, uint64_t at, void *dst, size_t size);
/* A copy of n bytes and a zero, to be freed; NULL: more than `most`, beyond the end, failed or no memory. */
char *source_text(source *s, uint64_t at, uint64_t n, uint64_t most);
/* A file that shrinks while it is mapped ends the program in a signal: say why, remove `unlink_too`. */
void source_guard(const char *path, const char *unlink_too);

/* ---- text.c ---- */

char *copy_text(const char *s, size_t n);                               /* these two: NULL out of memory */
/* `items` with room for one more than `count`, which only grows by one: it is full where that is a power of
 * two. NULL: out of memory, and nothing has changed. */
void *grow(void *items, size_t count, size_t size);
char *path_join(const char *folder, size_t n, const char *name);        /* n: characters of the folder */
const char *path_name(const char *path);                                /* what follows the last slash */
int ends_with(const char *s, const char *suffix);
int by_text(const void *a, const void *b);                              /* of char *, for qsort */
const char *twice(const char **texts, size_t n);        /* one that is there twice, or NULL; sorts them */
int utf8_length(const unsigned char *s, size_t n, uint32_t *point);     /* 0: not UTF-8 */
int utf8_valid(const char *s, size_t n);
/* Names as a terminal may see them: control characters, direction marks and bytes that are not UTF-8
 * come out as escapes; at most `width` characters, the middle left out. Returns the width. */
int text_safe(char *dst, size_t cap, const char *name, int width);
void text_json(FILE *out, const char *s);
void text_json_inside(FILE *out, const char *s);                        /* without the quotes */
void text_count(char *dst, size_t cap, uint64_t n);                     /* 1.2M */
void text_bytes(char *dst, size_t cap, uint64_t n);                     /* 4.0 GiB */
void text_value(char *dst, size_t cap, double x);                       /* 3.1e5 */
void text_share(char *dst, size_t cap, uint64_t part, uint64_t whole);  /* 2.1% */
void text_db(char *dst, size_t cap, double db);                         /* 74 dB */
/* Error texts: "FILE: tensor 'NAME': reason", each part only if given. Returns -1. */
int problem(char *error, const char *path, const char *tensor, const char *format, ...) LIKE_PRINTF(4, 5);

/* ---- model.c, npy.c, safetensors.c, zip.c, pickle.c, gguf.c, onnx.c ---- */

typedef struct tensor {
    char       *name;
    const char *type;               /* as the file calls it; lives as long as the model */
    mpt_format  format;             /* MPT_FORMAT_COUNT: not a float type we read, passed over */
    source     *from;               /* the bytes; NULL: the model's file */
    int         swap, fortran;      /* foreign byte order; first index fastest */
    int         scattered;          /* the values lie in another order than either */
    int         dims;
    uint64_t    shape[MAX_DIMS], count, offset, bytes;  /* offset in the file */
} tensor;

/* A type of numbers: as .safetensors files call it, as others do, with blanks between. */
typedef struct number_type {
    const char *name, *others;
    mpt_format  format;             /* MPT_FORMAT_COUNT: no floats that we read */
    int         bits;
} number_type;

typedef enum file_kind {
    KIND_NPY, KIND_SAFETENSORS, KIND_RAW, KIND_CSV, KIND_NPZ, KIND_PYTORCH, KIND_GGUF, KIND_ONNX
} file_kind;

typedef struct pair { char *key, *value; } pair;

typedef struct model {
    const char *path;
    source      src;
    file_kind   kind;
    tensor     *tensors;
    size_t      count;
    pair       *metadata;
    size_t      metadata_count;
    char      **texts;              /* names of types that the file made up */
    size_t      text_count;
    source    **parts;              /* unpacked members of an archive */
    size_t      part_count;
} model;

const char *kind_name(file_kind kind);
int  host_is_little(void);
size_t format_bytes(mpt_format format);         /* of one value */
void swap_bytes(unsigned char *x, size_t n, size_t size);               /* of n bytes, in groups of `size` */
/* What a type that a file names is; NULL: none that we know. */
const number_type *find_type(const char *name);
/* Open and check a file; the values are not read yet. 0, or -1 with the text of the error. */
int  model_open(model *m, const char *path, int map, mpt_format raw, char *error);
int  model_parse(model *m, mpt_format raw, char *error);
void model_close(model *m);
/* One more tensor, with that name; NULL: out of memory. Earlier ones may move. */
tensor *model_tensor(model *m, const char *name, size_t n);
/* Its type, and the format that this is; `type` lives as long as the model. */
void tensor_type(tensor *t, const char *type);
/* Its count from its shape. 0 or -1. */
int  tensor_count(const model *m, tensor *t, char *error);
/* That its bytes are those of its values, of so many bits each. 0 or -1. */
int  tensor_bytes(const model *m, const tensor *t, int bits, char *error);
/* A copy of a text that lives as long as the model; NULL: out of memory. */
const char *model_text(model *m, const char *text);
source *tensor_source(model *m, const tensor *t);
/* `bytes` is what the .npy file has from t->offset in its source on. */
int  npy_parse(model *m, tensor *t, uint64_t bytes, char *error);
int  safetensors_parse(model *m, char *error);
int  zip_parse(model *m, char *error);
int  gguf_parse(model *m, char *error);
int  onnx_parse(model *m, char *error);

/* A tensor that a PyTorch pickle speaks of: where in which storage, all in elements. */
typedef struct pickled {
    char       *name, *storage, *type;          /* `type`: "FloatStorage" or, of a raw one, "float8_e5m2" */
    int         dims;
    uint64_t    shape[MAX_DIMS], stride[MAX_DIMS], offset;
} pickled;
/* The tensors that a pickle of plain containers holds, to be given to `found` one by one; what else it asks
 * for is refused by name. */
int  pickle_parse(const unsigned char *text, size_t n, int (*found)(void *user, const pickled *t), void *user,
                  char *why, size_t cap);

/* The cells of a row, as JSON, a line of CSV, or its titles. What is not present is left out or empty. */
typedef enum cells_as { CELLS_JSON, CELLS_CSV, CELLS_TITLES } cells_as;
typedef struct cells { cells_as as; const char *before, *group; } cells;

void cell_group(cells *c, const char *name);    /* NULL: its end; columns wear the innermost name */
void cell_count(cells *c, const char *key, int present, uint64_t x);
void cell_real(cells *c, const char *key, int present, double x);
void cell_text(cells *c, const char *key, int present, const char *text);
void cell_shape(cells *c, const char *key, const tensor *t);

/* ---- folder.c ---- */

/* The files of one argument: itself, those of a folder, or the shards that an index names. */
typedef struct file_list {
    char        **path;
    size_t        count;
    int           many;                         /* a folder or an index */
    char         *index;                        /* its path; NULL: none */
    struct cJSON *json;                         /* what it says */
} file_list;

int  file_list_open(file_list *l, const char *path, char *error);
void file_list_close(file_list *l);
/* Do the models hold the tensors that the index says, and no others? */
int  file_list_check(file_list *l, const model *m, char *error);
/* The index of the same shards with that many bytes of values. */
int  file_list_index(const file_list *l, uint64_t bytes, FILE *out);

/* The values of a tensor in order of the file, aligned and in host byte order. */
typedef struct stream {
    model        *m;
    const tensor *t;
    uint64_t      at;                   /* bytes done */
    char          error[ERROR_TEXT];
    uint64_t      line, column, columns, rows;          /* these and the next four: CSV only */
    /* titled: 1, or 2 if its line has more than one title; skipping: a title or a comment, to its end */
    int           titled, skipping, after_value;
    unsigned char separator;            /* ',' or ';', ' ' for blanks alone; 0: none was seen */
    union { double d[CHUNK / sizeof(double)]; unsigned char bytes[CHUNK]; } block;
} stream;

void stream_init(stream *s, model *m, const tensor *t);
/* The next values: 1; the end: 0; failed: -1 and s->error. */
int  stream_next(stream *s, const void **x, size_t *n);

/* ---- scan.c ---- */

typedef enum fits { FITS, FITS_SCALED, FITS_NOT } fits;

/* What becomes of a tensor's finite nonzero values in a format, multiplied by a power of two first. */
typedef struct cast {
    int      log2_scale;
    uint64_t flushed, subnormal, overflow;
    double   db;                        /* signal to noise; of what does not overflow */
    double   worst;                     /* the largest relative error of what matters, at most */
} cast;

typedef struct loss {
    cast     plain, scaled;             /* scaled: with the scale that fits best; plain again if that is 1 */
    uint64_t normal;
    fits     fits;
} loss;

typedef struct result {
    uint64_t count, zero, nonzero, inf, nan;
    uint64_t first_nan, first_inf;      /* index of the first; UINT64_MAX: none */
    double   max_abs, min_abs, mean, rms;
    int      signs;                     /* 1: above 0, 2: below */
    loss     in[MAX_FORMATS];
} result;

/* What a tensor and the one of that name in another file have in common; at first that both are there and
 * hold floats, and were compared. */
typedef enum pairing {
    COMPARED, ONLY_FIRST, ONLY_SECOND, OTHER_SHAPE, OTHER_ORDER, OTHER_BYTES, SAME_BYTES, NO_FLOATS
} pairing;

/* How far it moved. In each format: how many changes a copy in it would not show, and how many of the values
 * it does not hold at all. */
typedef struct moved {
    pairing  how;
    uint64_t changed, apart;            /* apart: NaN or Inf in one alone */
    double   max, l2, norm, change;     /* of the differences; norm: of the first; change: l2 / norm */
    uint64_t lost[MAX_FORMATS], over[MAX_FORMATS];
    int      vanish[MAX_FORMATS];       /* log2 of the factor with which half of the changes would be lost */
} moved;

/* --fail-if: the figure is one of rule_figures. */
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
    mpt_format  formats[MAX_FORMATS];   /* a rule's format that is not asked for is refused */
    int         format_count, headroom;
    double      tolerate;               /* below 0: not given */
    int         json, csv, diff, map, jobs, progress, width, wide;  /* jobs 0: one for each processor */
    mpt_format  raw;                    /* MPT_FORMAT_COUNT: look at the file */
    uint64_t    top;                    /* 0: all */
    const char *by;
    const char *plot, *convert, *filter;
    rule        rules[MAX_RULES];
    int         rule_count;
    mpt_format  to;
    int         scale_auto, log2_scale, saturate, keep;
} options;

/* Of one tensor, or of several: magnitudes against every format, the sum. */
typedef struct scan {
    mpt_survey survey;
    mpt_exact  sum;                     /* of the finite values */
    uint64_t   first_nan, first_inf;
    int        signs;
} scan;

void scan_init(scan *s);
void scan_merge(scan *s, const scan *part);
/* Look at a tensor, by several threads if it is large and mapped; then cast it to every format, as it is and,
 * where that does not fit, with a scale. What fitting means stands in scan.c. 0 or -1. */
int  scan_tensor(scan *s, result *r, model *m, const tensor *t, const options *o, char *error);
/* Of several tensors together: counts, and dB as expected from them. */
void scan_total(const scan *s, const options *o, result *r);
void verdict(char *dst, size_t cap, const tensor *t, const result *r, const options *o);

/* ---- diff.c ---- */

/* The values of one tensor against those of another. */
typedef struct change {
    uint64_t       changed, apart, tiny;    /* tiny: the change is no float, and lost everywhere */
    double         max;
    mpt_exact      moved, from;             /* squares of the differences, and of the first */
    mpt_stagnation in[MAX_FORMATS];
    int            formats;
} change;

void change_init(change *c, const options *o);
void change_add(change *c, mpt_format from, const void *a, mpt_format to, const void *b, size_t n);
void change_merge(change *c, const change *part);
/* In scan.c: all of t against u, of as many values. 0 or -1. */
int scan_pair(change *c, model *a, const tensor *t, model *b, const tensor *u, const options *o, char *error);

/* A row of the table: a tensor, or two of one name, either of which may be missing. */
typedef struct row {
    model        *m[2];
    const tensor *t[2];
    result        r;
    moved         d;
    uint64_t      key;
    int           percentile[3];            /* of the magnitudes: 1, 50, 99; log2 */
} row;

/* One row for each tensor of the files, in report.c; or for each name of two models. To be freed. */
row  *rows_of(model *m, size_t files, size_t *n);
row  *diff_rows(model *a, size_t a_files, model *b, size_t b_files, size_t *n);
int   diff_row(row *w, const options *o, char *error);
int   diff_keeps(const moved *d, int k, const options *o);
void  diff_words(char *dst, size_t cap, const row *w, const options *o);
void  diff_cells(cells *c, const row *w, const options *o);
/* ---- report.c ---- */

typedef struct report report;

report *report_new(const options *o);
/* Inspect a file and print it, or what changed from it to the other. 0, or -1: the error is printed, too. */
int     report_file(report *p, const char *path, const char *other);
/* What closes the report of all files; frees it. Returns nonzero if writing failed. */
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

#endif /* INSPECT_H */
