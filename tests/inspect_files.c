/* inspect_files.c -- makes the files on which tests/run_inspect.sh tests examples/inspect:
 *
 *     inspect_files good DIR          .npy, .safetensors, raw and CSV; DIR/figures: what inspect must count
 *     inspect_files bad DIR           broken and hostile files; DIR/bad: FILE <tab> what the message must say
 *     inspect_files model DIR         model.safetensors, 60 tensors as in a language model
 *     inspect_files crossing DIR      words and tensors that cross the ends of what is read at a time
 *     inspect_files large FILE BYTES  one long tensor
 *     inspect_files values FILE       prints the tensors of a .safetensors file that inspect wrote
 *
 * The figures come from mpt_encode, value by value, not from the reports that inspect uses. */
#define MPT_STATIC
#define MPT_IMPLEMENTATION
#include "mpt.h"

#include <stdlib.h>

enum { ROWS = 6, COLUMNS = 7, CELLS = ROWS * COLUMNS };

static const char *folder;

static void die(const char *what)
{
    (void)fprintf(stderr, "inspect_files: %s\n", what);
    exit(1);
}

static FILE *create(const char *name)
{
    char  path[600];
    FILE *f;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "wb");
    if (!f)
        die(path);
    return f;
}

static void done(FILE *f)
{
    if (ferror(f) || fclose(f) != 0)
        die("writing failed");
}

static uint64_t little(FILE *f, uint64_t x, int bytes, int big)
{
    int i;
    for (i = 0; i < bytes; i++)
        (void)fputc((int)((x >> 8 * (big ? bytes - 1 - i : i)) & 0xff), f);
    return x;
}

static void put_value(FILE *f, mpt_format format, double x, int big)
{
    (void)little(f, mpt_encode(format, x, NULL, NULL), mpt_format_get(format)->bits / 8, big);
}

/* ---- good files: a matrix with values at the limits of every format ---- */

static double cell(int i)
{
    static const double edges[CELLS] = {
        0.0, -0.0, 1.0, -1.0, 0.1, 3.14159, 65504.0, 65519.0, 65520.0, -65536.0, 3.1e5, 448.0, 464.0, 465.0,
        57344.0, 61439.0, 61440.0, 0x1p-14, 0x1.ffcp-15, 0x1p-24, 0x1p-25, 0x1.8p-25, 1e-8, -1e-7, 0x1p-9,
        0x1p-10, 0x1.8p-10, 0x1p-6, 0x1p-7, 0x1p-16, 0x1p-17, 0x1.8p-17, 1e-30, 0x1p-133, 0x1p-134, 0x1p-126,
        1e-40, 0x1.fep127, 2.5, -7.25, 1000.0, 12345.678};
    return edges[i];
}

/* Write FILE TENSOR COUNT, then for each format its name, flushed, subnormal, normal, overflow. With `tensor`
 * NULL the tensor has the name of the file without its ending, as inspect calls it. */
static void put_figures(FILE *f, const char *file, const char *tensor, mpt_format stored, int n)
{
    static const mpt_format formats[4] = {MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2};
    int i, k;
    (void)fprintf(f, "%s %.*s %d", file, tensor ? 99 : (int)strcspn(file, "."), tensor ? tensor : file, n);
    for (k = 0; k < 4; k++) {
        unsigned long flushed = 0, subnormal = 0, normal = 0, overflow = 0;
        for (i = 0; i < n; i++) {
            const double x = mpt_decode(stored, mpt_encode(stored, cell(i), NULL, NULL));
            unsigned     flags = 0;
            double       y;
            if (x == 0.0 || !mpti_f64_is_finite(x))
                continue;
            y = fabs(mpt_decode(formats[k], mpt_encode(formats[k], x, NULL, &flags)));
            if (flags & MPT_FLAG_OVERFLOW)
                overflow++;
            else if (y == 0.0)
                flushed++;
            else if (y < mpt_format_get(formats[k])->min_normal)
                subnormal++;
            else
                normal++;
        }
        (void)fprintf(f, " %s %lu %lu %lu %lu", mpt_format_get(formats[k])->name, flushed, subnormal, normal,
                      overflow);
    }
    (void)fprintf(f, "\n");
}

static void npy_head(FILE *f, int version, const char *dict)
{
    const size_t fixed = version == 1 ? 10 : 12, n = (fixed + strlen(dict) + 64) / 64 * 64 - fixed;
    (void)fprintf(f, "\x93NUMPY%c%c", version, 0);
    (void)little(f, n, version == 1 ? 2 : 4, 0);
    (void)fprintf(f, "%s%*s\n", dict, (int)(n - strlen(dict) - 1), "");
}

static void good_npy(FILE *figures, int version, char order, mpt_format format, int fortran)
{
    char      name[64], dict[160];
    const int bytes = mpt_format_get(format)->bits / 8;
    FILE     *f;
    int       i;
    (void)snprintf(name, sizeof name, "v%d_%s_f%d_%s.npy", version, order == '<' ? "little" : "big", bytes,
                   fortran ? "fortran" : "c");
    (void)snprintf(dict, sizeof dict, "{'descr': '%cf%d', 'fortran_order': %s, 'shape': (%d, %d), }", order,
                   bytes, fortran ? "True" : "False", ROWS, COLUMNS);
    f = create(name);
    npy_head(f, version, dict);
    for (i = 0; i < CELLS; i++)
        put_value(f, format, cell(fortran ? i % ROWS * COLUMNS + i / ROWS : i), order == '>');
    done(f);
    put_figures(figures, name, NULL, format, CELLS);
}

/* Write `length` as the header's length, whatever that is, then a header of `size` bytes and `data` bytes. */
static void put_safetensors(const char *name, const char *header, size_t size, uint64_t length, size_t data)
{
    FILE  *f = create(name);
    size_t i;
    (void)little(f, length, 8, 0);
    (void)fwrite(header, 1, size, f);
    for (i = 0; i < data; i++)
        (void)fputc((int)(i & 63), f);
    done(f);
}

static void good_safetensors(FILE *figures)
{
    static const struct { const char *type; mpt_format format; } all[] = {
        {"F64", MPT_F64}, {"F32", MPT_F32}, {"F16", MPT_F16}, {"BF16", MPT_BF16}, {"F8_E4M3", MPT_E4M3},
        {"F8_E5M2", MPT_E5M2}, {"F8_E4M3FNUZ", MPT_E4M3FNUZ}, {"F8_E5M2FNUZ", MPT_E5M2FNUZ}};
    char     header[2000] = " \n{\"__metadata__\":{\"format\":\"pt\",\"who\":\"a \\\"test\\\"\"}";
    char     tensor[16];
    unsigned long at = 0, k;
    FILE    *f = create("types.safetensors");
    int      i;
    for (k = 0; k < 8; k++) {
        const unsigned long n = CELLS * (unsigned long)mpt_format_get(all[k].format)->bits / 8;
        (void)snprintf(header + strlen(header), sizeof header - strlen(header),
                       ",\"t.%s\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[%lu,%lu]}",
                       all[k].type, all[k].type, ROWS, COLUMNS, at, at + n);
        at += n;
        (void)snprintf(tensor, sizeof tensor, "t.%s", all[k].type);
        put_figures(figures, "types.safetensors", tensor, all[k].format, CELLS);
    }
    (void)snprintf(header + strlen(header), sizeof header - strlen(header),
                   ",\"empty\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[%lu,%lu]},"
                   "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[%lu,%lu]},"
                   "\"steps\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[%lu,%lu]}} \r\n\t ",
                   at, at, at, at + 4, at + 4, at + 20);
    (void)little(f, strlen(header), 8, 0);
    (void)fputs(header, f);
    for (k = 0; k < 8; k++)
        for (i = 0; i < CELLS; i++)
            put_value(f, all[k].format, cell(i), 0);
    put_value(f, MPT_F32, 2.0, 0);
    (void)little(f, 7, 8, 0);
    (void)little(f, 9, 8, 0);
    done(f);
}

static void text_file(const char *name, const char *text)
{
    FILE *f = create(name);
    (void)fputs(text, f);
    done(f);
}

static void good(void)
{
    static const mpt_format formats[3] = {MPT_F16, MPT_F32, MPT_F64};
    FILE *figures = create("figures"), *f;
    int   i, k, fortran;
    for (k = 0; k < 3; k++)
        for (fortran = 0; fortran < 2; fortran++) {
            good_npy(figures, 1 + k, '<', formats[k], fortran);
            good_npy(figures, 1 + k, '>', formats[k], fortran);
        }
    good_safetensors(figures);
    f = create("cells.f32");
    for (i = 0; i < CELLS; i++)
        put_value(f, MPT_F32, cell(i), 0);
    done(f);
    f = create("cells.csv");
    (void)fprintf(f, "# a comment\na,b,c\n");
    for (i = 0; i < CELLS; i++)
        (void)fprintf(f, "%.17g%s", cell(i), i % COLUMNS == COLUMNS - 1 ? "\r\n" : i % 2 ? ";" : " ; ");
    done(f);
    f = create("marked.csv");           /* with a byte-order mark, as spreadsheets write it */
    (void)fprintf(f, "\xef\xbb\xbf%s2,3\n4,5,6\n",
                  "1.0000000000000000000000000000000000000000000000000000000000000000000000000000,");
    done(f);
    put_figures(figures, "cells.csv", NULL, MPT_F64, CELLS);
    done(figures);
    f = create("long.csv"); /* lines and words cross the ends of the blocks that are read */
    for (i = 0; i < 100000; i++)
        (void)fprintf(f, "%d.5%s", i, i % 50000 == 49999 ? "\n" : ",");
    done(f);
    text_file("nan.csv", "1,nan\n-inf,2\n");
    text_file("zero.csv", "0\n0\n");
}

/* ---- bad files ---- */

static FILE *bad_list;

static void bad_safetensors(const char *name, const char *header, size_t data, const char *message)
{
    put_safetensors(name, header, strlen(header), strlen(header), data);
    (void)fprintf(bad_list, "%s\t%s\n", name, message);
}

static void bad_npy(const char *name, const char *dict, size_t data, const char *message)
{
    FILE  *f = create(name);
    size_t i;
    npy_head(f, 1, dict);
    for (i = 0; i < data; i++)
        (void)fputc(1, f);
    done(f);
    (void)fprintf(bad_list, "%s\t%s\n", name, message);
}

static void bad_text(const char *name, const char *text, const char *message)
{
    text_file(name, text);
    (void)fprintf(bad_list, "%s\t%s\n", name, message);
}

static void bad_bytes(const char *name, const char *bytes, size_t n, const char *message)
{
    FILE *f = create(name);
    (void)fwrite(bytes, 1, n, f);
    done(f);
    (void)fprintf(bad_list, "%s\t%s\n", name, message);
}

/* A header of one tensor "a", which has the given entry. */
static void bad_entry(const char *name, const char *entry, size_t data, const char *message)
{
    char header[500];
    (void)snprintf(header, sizeof header, "{\"a\":%s}", entry);
    bad_safetensors(name, header, data, message);
}

static void bad_headers(void)
{
    char   deep[3001];
    size_t i;
    for (i = 0; i < 3000; i++)
        deep[i] = i ? '[' : '{';
    deep[3000] = 0;
    bad_bytes("short.safetensors", "\1\2\3", 3, "truncated");
    bad_bytes("nothing.safetensors", "", 0, "truncated");
    put_safetensors("length63.safetensors", "{}", 2, (uint64_t)1 << 63, 0);
    (void)fprintf(bad_list, "length63.safetensors\ttruncated: the header claims 9223372036854775808 bytes\n");
    put_safetensors("length64.safetensors", "{}", 2, UINT64_MAX, 0);
    (void)fprintf(bad_list, "length64.safetensors\ttruncated: the header claims\n");
    put_safetensors("length1.safetensors", "{}", 2, 3, 0);
    (void)fprintf(bad_list, "length1.safetensors\ttruncated: the header claims 3 bytes\n");
    bad_safetensors("no_object.safetensors", "[]", 0, "does not start with '{'");
    bad_safetensors("deep.safetensors", deep, 0, "nested deeper than 3");
    bad_safetensors("open.safetensors", "{\"a\":{", 0, "not JSON");
    bad_safetensors("after.safetensors", "{} x", 0, "text after the JSON object");
    bad_safetensors("nan.safetensors", "{\"a\":NaN}", 0, "not JSON");
    bad_safetensors("utf8.safetensors", "{\"a\xff\":{}}", 0, "not valid UTF-8");
    bad_safetensors("overlong.safetensors", "{\"a\xc0\x80\":{}}", 0, "not valid UTF-8");
    bad_safetensors("surrogate.safetensors", "{\"\\ud800\":{}}", 0, "not JSON");
    bad_safetensors("zero_name.safetensors", "{\"a\\u0000b\":{}}", 0, "escaped NUL");
    bad_safetensors("control.safetensors", "{\"a\nb\":{}}", 0, "control character");
    bad_safetensors("twice.safetensors",
                    "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                    "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                    2, "'a' occurs twice");
    bad_safetensors("metadata.safetensors", "{\"__metadata__\":{\"x\":1}}", 0, "that is not a string");
    bad_safetensors("metadata2.safetensors", "{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    bad_safetensors("metadata3.safetensors", "{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", 0, "twice");
    bad_safetensors("left_over.safetensors", "{}", 5, "5 bytes at the end belong to no tensor");
}

static void bad_entries(void)
{
    bad_entry("zeros.safetensors", "{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}", 1,
              "a number has a leading zero");
    bad_entry("odd.safetensors", "{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}", 2,
              "tensor 'a': 3 values of type F4 do not fill whole bytes");
    bad_entry("no_type.safetensors", "{\"shape\":[1],\"data_offsets\":[0,1]}", 1,
              "tensor 'a': dtype is missing");
    bad_entry("case.safetensors", "{\"DTYPE\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}", 1,
              "tensor 'a': dtype is missing");
    bad_entry("type.safetensors", "{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,1]}", 1,
              "tensor 'a': dtype 'F33' is not known");
    bad_entry("type_twice.safetensors",
              "{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}", 1,
              "tensor 'a': the key 'dtype' occurs twice");
    bad_entry("no_entry.safetensors", "7", 0, "tensor 'a': its entry is not an object");
    bad_entry("no_shape.safetensors", "{\"dtype\":\"U8\",\"data_offsets\":[0,1]}", 1,
              "tensor 'a': shape is missing");
    bad_entry("shape_word.safetensors", "{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}", 1,
              "the shape holds something that is not a number");
    bad_entry("negative.safetensors", "{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}", 1,
              "not a non-negative integer");
    bad_entry("fraction.safetensors", "{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}", 1,
              "not a non-negative integer");
    bad_entry("power.safetensors", "{\"dtype\":\"U8\",\"shape\":[1e3],\"data_offsets\":[0,1]}", 1,
              "not a non-negative integer");
    bad_entry("above53.safetensors", "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,9007199254740993]}",
              1, "above 2^53");
    bad_entry("long_number.safetensors",
              "{\"dtype\":\"U8\",\"shape\":[18446744073709551617],\"data_offsets\":[0,1]}", 1, "above 2^53");
    bad_entry("product.safetensors",
              "{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}", 0,
              "tensor 'a': the product of the shape overflows");
    bad_entry("product2.safetensors", "{\"dtype\":\"F32\",\"shape\":[4503599627370496,4096,0],"
              "\"data_offsets\":[0,0]}", 0, "tensor 'a': the product of the shape overflows");
    bad_entry("product3.safetensors", "{\"dtype\":\"F64\",\"shape\":[2305843009213693,1000],"
              "\"data_offsets\":[0,0]}", 0, "tensor 'a': the product of the shape overflows");
    bad_entry("offsets.safetensors", "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}", 1,
              "list of two");
    bad_entry("offsets3.safetensors", "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}", 1,
              "list of two");
    bad_entry("backwards.safetensors", "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}", 1,
              "tensor 'a': its data ends (0) before it begins (1)");
    bad_entry("beyond.safetensors", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}", 15,
              "tensor 'a': truncated");
    bad_entry("huge.safetensors", "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9007199254740990,"
              "9007199254740991]}", 1, "tensor 'a': truncated");
    bad_entry("size.safetensors", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,15]}", 15,
              "tensor 'a': 4 values of type F32 need 16 bytes, its data has 15");
    bad_entry("gap.safetensors", "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}", 3,
              "2 bytes before");
    bad_safetensors("overlap.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 4,
                    "tensor 'b': its data overlaps that of 'a'");
    bad_safetensors("same.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "overlaps");
    bad_entry("dimensions.safetensors",
              "{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
              "1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}",
              1, "more than 32 dimensions");
    bad_safetensors("escape.safetensors", "{\"a\\u001b[2Jb\xe2\x80\xae\":{\"dtype\":\"U8\",\"shape\":[2],"
                    "\"data_offsets\":[0,1]}}", 1, "tensor 'a\\x1b[2Jb\\u202e': 2 values");
}

static void bad_others(void)
{
    static const char quote[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }";
    char huge[100];
    bad_bytes("short.npy", "\x93NUMPY\1\0", 8, "truncated inside the .npy header");
    bad_bytes("cut.npy", "\x93NUMPY\1\0\x76\0{'descr'", 18,
              "the .npy header claims 118 bytes, the file has 8 left");
    bad_bytes("cut8.npy", "\x93NUMPY\1\0\x0c\0{'descr'", 18, "claims 12 bytes, the file has 8 left");
    bad_bytes("version.npy", "\x93NUMPY\4\0\0\0\0\0\0\0", 14, ".npy version 4.0 is not known");
    bad_bytes("length.npy", "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, "claims 4294967295 bytes");
    bad_bytes("magic.npy", "NUMPY1234567", 12, "magic string");
    bad_npy("data.npy", quote, 15,
            "truncated: the shape asks for 4 values of type <f4, the file has 15 bytes");
    bad_npy("more.npy", quote, 17, "1 bytes follow the last value");
    bad_npy("no_dict.npy", "['descr']", 0, "not a dict");
    bad_npy("unclosed.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)", 16, "not closed");
    bad_npy("key.npy", "{'descr': '<f4', 'order': False, 'shape': (4,), }", 16, "unknown key");
    bad_npy("key_twice.npy", "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (4,), }", 16,
            "twice");
    bad_npy("key_missing.npy", "{'descr': '<f4', 'shape': (4,), }", 16, "lacks");
    bad_npy("order.npy", "{'descr': '<f4', 'fortran_order': 0, 'shape': (4,), }", 16,
            "neither True nor False");
    bad_npy("negative.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }", 16,
            "not a number from 0");
    bad_npy("tuple.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': 4, }", 16, "not a tuple");
    bad_npy("parentheses.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4), }", 16, "not a tuple");
    bad_npy("dimension.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", 0,
            "not a number from 0 to 2^63");
    bad_npy("product.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 0,
            "the product of the shape overflows");
    bad_npy("product63.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (3037000500, 3037000500), }",
            0, "the product of the shape overflows");
    bad_npy("bytes.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,), }", 0,
            "the product of the shape overflows");
    bad_npy("trailing.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), } x", 16, "text after");
    (void)snprintf(huge, sizeof huge, "{'descr': '<f4\\', 'fortran_order': False, 'shape': (4,), }");
    bad_npy("quote.npy", huge, 16, "not a plain string");
    bad_text("word.csv", "1,2\n3,x4\n", "line 2: 'x4' is not a number");
    bad_text("ragged.csv", "1,2\n3\n", "line 2: 1 numbers, the lines before have 2");
    bad_text("hole.csv", "1,,2\n", "line 1: no number before a separator");
    bad_text("end.csv", "1,2,\n", "line 1: no number after the last separator");
    bad_bytes("zero.csv", "1,2\0003,4\n", 8, "line 1: a cell holds a NUL character");
    bad_text("decimals.csv", "1,5;2,5\n",
             "line 1: different separators; write decimals with points, not commas");
    bad_text("decimals_and_tabs.csv", "1,5\t2,5\n", "line 1: different separators");
    bad_text("decimals_below.csv", "1;2\n1,5;2\n", "line 2: different separators");
    bad_text("decimals_under_a_title.csv", "x\n1,5\n2,5\n", "line 2: two numbers under one title");
    bad_text("titles.csv", "a,b\nc,d\n", "line 2: 'c' is not a number");
    bad_text("escape.csv", "1\n\033[2J\n", "line 2: '\\x1b[2J' is not a number");
    bad_text("nothing.csv", "", "holds no numbers");
    bad_text("unknown.bin", "123456789012", "is none of .npy, .npz, .safetensors");
    bad_bytes("zip.npz", "PK\3\4xxxxxxxx", 12, "is a zip");
    bad_bytes("weights.gguf", "GGUFxxxxxxxx", 12, "truncated inside the GGUF header");
}

/* ---- a model ---- */

static uint64_t state = 88172645463325252u;

static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return ((double)(state >> 11) + 0.5) * 0x1p-53;
}

static double normal(void) { return sqrt(-2.0 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* Names, sizes and spreads of a small language model and its optimizer's state: from plain weights, which fit
 * f16, to second moments, which no 16-bit format with five exponent bits can hold. */
static const struct { const char *name; int rows, columns; double sigma, spread; } parts[] = {
    {"self_attn.q_proj.weight", 64, 64, 0.02, 0.0},
    {"self_attn.k_proj.weight", 64, 64, 0.03, 0.0},
    {"mlp.gate_proj.weight", 192, 64, 0.0008, 0.0},
    {"mlp.down_proj.weight", 64, 192, 2e-5, 0.3},
    {"input_layernorm.weight", 64, 1, 0.4, 0.0},
    {"mlp.act_quantizer.running_amax", 8, 1, 6e4, 0.6},
    {"optimizer.exp_avg.mlp.down_proj.weight", 64, 192, 1e-6, 1.5},
    {"optimizer.exp_avg_sq.mlp.down_proj.weight", 64, 192, 1e-11, 4.0},
    {"mlp.down_proj.weight_scale_of_the_quantized_copy_before_smoothing", 64, 1, 300.0, 2.5},
};
enum { PARTS = sizeof parts / sizeof parts[0], LAYERS = 6, MODEL = PARTS * LAYERS + 6 };

static void model_entry(char *name, size_t cap, int i, size_t *rows, size_t *columns, double *sigma,
                        double *spread)
{
    static const struct { const char *name; size_t rows, columns; double sigma; } ends[6] = {
        {"model.embed_tokens.weight", 512, 64, 0.7}, {"model.norm.weight", 64, 1, 1.5},
        {"lm_head.weight", 512, 64, 0.01}, {"model.rotary.inv_freq", 32, 1, 1.0},
        {"lm_head.bias", 512, 1, 0.0}, {"model.logit_outliers", 1000, 1, 1.2e5}};
    if (i < PARTS * LAYERS) {
        (void)snprintf(name, cap, "model.layers.%d.%s", i / PARTS, parts[i % PARTS].name);
        *rows = (size_t)parts[i % PARTS].rows;
        *columns = (size_t)parts[i % PARTS].columns;
        *sigma = parts[i % PARTS].sigma * (1.0 + 0.3 * (double)(i / PARTS));
        *spread = parts[i % PARTS].spread;
    } else {
        i -= PARTS * LAYERS;
        (void)snprintf(name, cap, "%s", ends[i].name);
        *rows = ends[i].rows;
        *columns = ends[i].columns;
        *sigma = ends[i].sigma;
        *spread = i == 5 ? 4.0 : 0.0;
    }
}

static void model(void)
{
    static char header[40000] = "{\"__metadata__\":{\"format\":\"pt\"}";
    FILE       *f = create("model.safetensors");
    size_t      at = 0, rows, columns, k;
    double      sigma, spread;
    char        name[200];
    int         i;
    for (i = 0; i < MODEL; i++) {
        model_entry(name, sizeof name, i, &rows, &columns, &sigma, &spread);
        (void)snprintf(header + strlen(header), sizeof header - strlen(header),
                       ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%lu,%lu],\"data_offsets\":[%lu,%lu]}", name,
                       (unsigned long)rows, (unsigned long)columns, (unsigned long)at,
                       (unsigned long)(at + 4 * rows * columns));
        at += 4 * rows * columns;
    }
    (void)strcat(header, "}");
    (void)little(f, strlen(header), 8, 0);
    (void)fputs(header, f);
    for (i = 0; i < MODEL; i++) {
        model_entry(name, sizeof name, i, &rows, &columns, &sigma, &spread);
        for (k = 0; k < rows * columns; k++) {
            const double x = sigma * normal() * exp(spread * normal());
            put_value(f, MPT_F32, strstr(name, "_sq") ? fabs(x) : x, 0);
        }
    }
    done(f);
}

/* Files that cross the ends of what is read or mapped at a time. words_K.csv: a word of 6 characters and
 * a separator, 160000 times, after K + 1 bytes of comment: over K = 0 .. 6, each of the 7 characters falls on
 * the end of a block. windows.safetensors: two tensors, of which the second begins after 20 MiB; their values
 * are powers of two, which halve after every MiB. */
static void crossing(void)
{
    static const size_t n[] = {5242881, 6291456};
    char                name[40];
    int                 k;
    size_t              i;
    FILE               *f;
    for (k = 0; k < 7; k++) {
        (void)snprintf(name, sizeof name, "words_%d.csv", k);
        f = create(name);
        (void)fprintf(f, "%.*s\n", k, "#######");
        for (i = 0; i < 160000; i++)
            (void)fputs(i % 1000 == 999 ? "1.5e-5\n" : "1.5e-5,", f);
        done(f);
    }
    f = create("windows.safetensors");
    (void)little(f, 152, 8, 0);
    (void)fprintf(f, "%-152s",
                  "{\"a\":{\"dtype\":\"F32\",\"shape\":[5242881],\"data_offsets\":[0,20971524]},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[6291456],\"data_offsets\":[20971524,46137348]}}");
    for (k = 0; k < 2; k++)
        for (i = 0; i < n[k]; i++)
            put_value(f, MPT_F32, ldexp(1.0, -(int)(i >> 18)), 0);
    done(f);
}

/* Write a file with one F32 tensor of `size` bytes: a MiB of normally distributed values, repeated. */
static void large(const char *path, const char *size)
{
    enum { BLOCK = 1 << 18 };
    static float   x[BLOCK];
    const uint64_t n = strtoull(size, NULL, 10) / 4;
    char           header[200];
    uint64_t       left;
    FILE          *f = fopen(path, "wb");
    int            i;
    if (!f)
        die(path);
    for (i = 0; i < BLOCK; i++)
        x[i] = (float)(0.02 * normal());
    (void)snprintf(header, sizeof header,
                   "{\"large\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
                   (unsigned long long)n, (unsigned long long)(4 * n));
    while ((strlen(header) + 8) % 64)
        (void)strcat(header, " ");
    (void)little(f, strlen(header), 8, 0);
    (void)fputs(header, f);
    for (left = n; left; left -= left < BLOCK ? left : BLOCK)
        (void)fwrite(x, 4, left < BLOCK ? (size_t)left : BLOCK, f);
    done(f);
}

/* ---- print a converted file, with a reader that shares no code with inspect ---- */

static void print_values(const char *path)
{
    static char   header[100001];
    unsigned char b[8];
    const char   *p, *q;
    long          data;
    FILE         *f = fopen(path, "rb");
    size_t        n = 0, i;
    if (!f || fread(b, 1, 8, f) != 8)
        die(path);
    for (i = 8; i--;)
        n = n << 8 | b[i];
    if (n >= sizeof header || fread(header, 1, n, f) != n)
        die("header");
    header[n] = 0;
    data = (long)(8 + n);
    if (data % 8)
        die("values are not aligned");
    p = strstr(header, "\"__metadata__\":{");
    q = p ? strchr(p, '}') : NULL;
    if (q)
        (void)printf("%.*s\n", (int)(q - p + 1), p);
    for (p = header; (p = strstr(p, "\":{\"dtype\":\"")) != NULL; p++) {
        char        type[16];
        long        begin, end;
        mpt_format  format;
        const char *first = p;
        while (first[-1] != '"')
            first--;
        if (sscanf(p, "\":{\"dtype\":\"%15[^\"]", type) != 1 || !(q = strstr(p, "data_offsets")) ||
            sscanf(q, "data_offsets\":[%ld,%ld]", &begin, &end) != 2)
            die("entry");
        (void)printf("%.*s %s", (int)(p - first), first, type);
        format = !strcmp(type, "F64")       ? MPT_F64
                 : !strcmp(type, "F32")     ? MPT_F32
                 : !strcmp(type, "F16")     ? MPT_F16
                 : !strcmp(type, "BF16")    ? MPT_BF16
                 : !strcmp(type, "F8_E4M3") ? MPT_E4M3
                 : !strcmp(type, "F8_E5M2") ? MPT_E5M2
                                            : MPT_FORMAT_COUNT;
        if (fseek(f, data + begin, SEEK_SET) != 0)
            die("data");
        while (begin < end) {
            const int bytes = format == MPT_FORMAT_COUNT ? 8 : mpt_format_get(format)->bits / 8;
            uint64_t  code = 0;
            if (fread(b, 1, (size_t)bytes, f) != (size_t)bytes)
                die("values");
            for (i = (size_t)bytes; i--;)
                code = code << 8 | b[i];
            if (format == MPT_FORMAT_COUNT)
                (void)printf(" %llu", (unsigned long long)code);
            else
                (void)printf(" %.9g", mpt_decode(format, code));
            begin += bytes;
        }
        (void)printf("\n");
    }
    done(f);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        die("see the first comment of tests/inspect_files.c");
    folder = argv[2];
    if (!strcmp(argv[1], "good")) {
        good();
    } else if (!strcmp(argv[1], "bad")) {
        bad_list = create("bad");
        bad_headers();
        bad_entries();
        bad_others();
        done(bad_list);
    } else if (!strcmp(argv[1], "model")) {
        model();
    } else if (!strcmp(argv[1], "crossing")) {
        crossing();
    } else if (!strcmp(argv[1], "large") && argc > 3) {
        large(argv[2], argv[3]);
    } else if (!strcmp(argv[1], "values")) {
        print_values(argv[2]);
    } else {
        die("no such command");
    }
    return 0;
}
