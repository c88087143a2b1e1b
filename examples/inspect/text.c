/* text.c -- formats names and numbers so that they are safe to print. */
#include "inspect.h"

#include <math.h>
#include <stdarg.h>

char *copy_text(const char *s, size_t n)
{
    char *copy = (char *)malloc(n + 1);
    if (copy) {
        memcpy(copy, s, n);
        copy[n] = 0;
    }
    return copy;
}

void *grow(void *items, size_t count, size_t size)
{
    return count & (count - 1) ? items : realloc(items, (count ? 2 * count : 1) * size);
}

char *path_join(const char *folder, size_t n, const char *name)
{
    char *path = (char *)malloc(n + strlen(name) + 2);
    if (path)
        (void)sprintf(path, "%.*s%s%s", (int)n, folder, n && folder[n - 1] != '/' ? "/" : "", name);
    return path;
}

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int ends_with(const char *s, const char *suffix)
{
    const size_t n = strlen(s), k = strlen(suffix);
    return n >= k && !strcmp(s + n - k, suffix);
}

int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *twice(const char **texts, size_t n)
{
    size_t i;
    if (n)
        qsort(texts, n, sizeof *texts, by_text);
    for (i = 1; i < n; i++)
        if (!strcmp(texts[i - 1], texts[i]))
            return texts[i];
    return NULL;
}

/* Decode the character at s. Returns its length in bytes, or 0 if it is not UTF-8 (RFC 3629), which excludes
 * overlong forms, surrogates and values above U+10FFFF. */
int utf8_length(const unsigned char *s, size_t n, uint32_t *point)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int      length, i;
    uint32_t p;
    if (!n)
        return 0;
    length = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3
           : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    if (!length || (size_t)length > n)
        return 0;
    p = length == 1 ? s[0] : s[0] & (0x7fu >> length);
    for (i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        p = p << 6 | (s[i] & 0x3fu);
    }
    if (p < least[length] || p > 0x10ffff || (p >= 0xd800 && p < 0xe000))
        return 0;
    *point = p;
    return length;
}

int utf8_valid(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t             point;
    while (n) {
        const int length = utf8_length(p, n, &point);
        if (!length)
            return 0;
        p += length;
        n -= (size_t)length;
    }
    return 1;
}

/* Characters that could move the cursor, hide text or change its direction. */
static int unsafe_point(uint32_t p)
{
    return p < 0x20 || (p >= 0x7f && p < 0xa0) || p == 0xad || p == 0x61c || (p >= 0x200b && p < 0x2010) ||
           (p >= 0x2028 && p < 0x2030) || (p >= 0x2060 && p < 0x2070) || p == 0xfeff || p >= 0xe0000;
}

/* Write one character of a name, or its escape, to `piece`. Returns its number of bytes in the name. */
static int safe_piece(const unsigned char *s, size_t n, char *piece, size_t cap, int *width)
{
    uint32_t  point = 0;
    const int length = utf8_length(s, n, &point);
    if (!length)
        *width = snprintf(piece, cap, "\\x%02x", s[0]);
    else if (unsafe_point(point))
        *width = snprintf(piece, cap, point < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)point);
    else {
        memcpy(piece, s, (size_t)length);
        piece[length] = 0;
        *width = 1;
    }
    return length ? length : 1;
}

enum { MAPPED = 400 };      /* greatest width of a name whose digits are taken into account when it is cut */

/* Returns the width of the whole name; digit[i] tells whether column i holds a digit. */
static int safe_width(const char *name, char *digit)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t               n = strlen(name);
    char                 piece[16];
    int                  all = 0, width, i;
    while (n && all < 1000000) {
        const int used = safe_piece(s, n, piece, sizeof piece, &width);
        for (i = 0; i < width && all + i < MAPPED; i++)
            digit[all + i] = *s >= '0' && *s <= '9';
        s += used;
        n -= (size_t)used;
        all += width;
    }
    return all;
}

/* Columns to keep before the cut: half, unless another cut loses fewer digits, which tell layers apart. */
static int best_head(const char *digit, int all, int width)
{
    const int cut = all - width + 2, half = (width - 2) / 2;
    int       best = half, fewest = MAPPED, head, i;
    if (all > MAPPED)
        return half;
    for (head = width / 6; head <= width - 2 - width / 6; head++) {
        const int away = head > half ? head - half : half - head;
        int       lost = 0;
        for (i = head; i < head + cut; i++)
            lost += digit[i];
        if (lost < fewest || (lost == fewest && away < (best > half ? best - half : half - best))) {
            fewest = lost;
            best = head;
        }
    }
    return best;
}

int text_safe(char *dst, size_t cap, const char *name, int width)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t               n = strlen(name), used = 0;
    char                 digit[MAPPED];
    const int            all = safe_width(name, digit), elide = all > width;
    const int            head = elide ? best_head(digit, all, width) : all, tail = width - 2 - head;
    int                  column = 0, printed = 0, dots = 0, w = 0;
    if (!cap)
        return 0;
    while (n) {
        char      piece[16];
        const int taken = safe_piece(s, n, piece, sizeof piece, &w);
        const int keep = !elide || column + w <= head || column >= all - tail;
        s += taken;
        n -= (size_t)taken;
        column += w;
        if (!keep && dots++)
            continue;
        if (!keep) {
            memcpy(piece, "..", 3);
            w = 2;
        }
        if (used + strlen(piece) + 1 > cap)
            break;
        memcpy(dst + used, piece, strlen(piece));
        used += strlen(piece);
        printed += w;
    }
    dst[used] = 0;
    return printed;
}

void text_json_inside(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t               n = strlen(text);
    while (n) {
        uint32_t  point = 0;
        const int length = utf8_length(s, n, &point), used = length ? length : 1;
        if (!length)
            (void)fputs("\\ufffd", out);
        else if (point == '"' || point == '\\')
            (void)fprintf(out, "\\%c", (int)point);
        else if (unsafe_point(point) && point > 0xffff)
            (void)fprintf(out, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (point >> 10)),
                          (unsigned)(0xdc00 + (point & 0x3ff)));
        else if (unsafe_point(point))
            (void)fprintf(out, "\\u%04x", (unsigned)point);
        else
            (void)fwrite(s, 1, (size_t)used, out);
        s += used;
        n -= (size_t)used;
    }
}

void text_json(FILE *out, const char *text)
{
    (void)fputc('"', out);
    text_json_inside(out, text);
    (void)fputc('"', out);
}

/* Write a text in quotes. Quotes inside are doubled; characters that could move the cursor become escapes. */
static void text_csv(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t               n = strlen(text), used;
    char                 piece[16];
    int                  width;
    (void)fputc('"', out);
    for (; n; s += used, n -= used) {
        used = (size_t)safe_piece(s, n, piece, sizeof piece, &width);
        (void)fprintf(out, *s == '"' ? "\"\"" : "%s", piece);
    }
    (void)fputc('"', out);
}

/* Print what precedes the value of a cell, such as its name. Returns whether to print the value. */
static int cell_begin(cells *c, const char *key, int present)
{
    if (c->as == CELLS_JSON && !present)
        return 0;
    (void)fputs(c->before, stdout);
    c->before = ",";
    if (c->as == CELLS_JSON) {
        text_json(stdout, key);
        (void)fputc(':', stdout);
    } else if (c->as == CELLS_TITLES)
        (void)printf("%s%s%s", c->group ? c->group : "", c->group ? "." : "", key);
    return c->as != CELLS_TITLES && present;
}

void cell_group(cells *c, const char *name)
{
    if (c->as == CELLS_JSON && name) {
        (void)fputs(c->before, stdout);
        text_json(stdout, name);
        (void)printf(":{");
        c->before = "";
    } else if (c->as == CELLS_JSON) {
        (void)printf("}");
        c->before = ",";
    }
    c->group = name;
}

void cell_count(cells *c, const char *key, int present, uint64_t x)
{
    if (cell_begin(c, key, present))
        (void)printf("%llu", (ull)x);
}

void cell_real(cells *c, const char *key, int present, double x)
{
    if (!cell_begin(c, key, present))
        return;
    if (isfinite(x))
        (void)printf("%.17g", x);
    else
        (void)fputs(c->as == CELLS_JSON ? "null" : "", stdout);
}

void cell_text(cells *c, const char *key, int present, const char *text)
{
    if (cell_begin(c, key, present))
        (c->as == CELLS_JSON ? text_json : text_csv)(stdout, text);
}

void cell_shape(cells *c, const char *key, const tensor *t)
{
    const int json = c->as == CELLS_JSON;
    int       k;
    if (!cell_begin(c, key, t != NULL))
        return;
    (void)fputs(json ? "[" : "", stdout);
    for (k = 0; k < t->dims; k++)
        (void)printf("%s%llu", !k ? "" : json ? "," : "x", (ull)t->shape[k]);
    (void)fputs(json ? "]" : "", stdout);
}

void text_count(char *dst, size_t cap, uint64_t n)
{
    static const char unit[] = " kMGTPE";
    double            x = (double)n;
    int               k = 0;
    while (x >= 999.5 && k < 6) {
        x /= 1000.0;
        k++;
    }
    if (!k)
        (void)snprintf(dst, cap, "%d", (int)n);
    else
        (void)snprintf(dst, cap, x < 9.995 ? "%.2f%c" : x < 99.95 ? "%.1f%c" : "%.0f%c", x, unit[k]);
}

void text_bytes(char *dst, size_t cap, uint64_t n)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double                   x = (double)n;
    int                      k = 0;
    while (x >= 999.95 && k < 6) {          /* at most four digits and a point */
        x /= 1024.0;
        k++;
    }
    (void)snprintf(dst, cap, k ? "%.1f %s" : "%.0f %s", x, unit[k]);
}

void text_value(char *dst, size_t cap, double x)
{
    char *e;
    if (x == 0.0 || (x >= 0.01 && x < 9999.5)) {
        (void)snprintf(dst, cap, "%.3g", x);
        if (x >= 999.5)
            (void)snprintf(dst, cap, "%.0f", x);
        return;
    }
    (void)snprintf(dst, cap, "%.1e", x);
    e = strchr(dst, 'e');
    if (e) {                                    /* 3.1e+05 is 3.1e5 */
        char digits[8];
        (void)snprintf(digits, sizeof digits, "%d", atoi(e + 1));
        memcpy(e + 1, digits, strlen(digits) + 1);
    }
}

void text_share(char *dst, size_t cap, uint64_t part, uint64_t whole)
{
    const double p = whole ? 100.0 * (double)part / (double)whole : 0.0;
    if (!part)
        (void)snprintf(dst, cap, "0");
    else if (p < 0.01)
        (void)snprintf(dst, cap, "<.01%%");
    else if (part < whole && p > 99.9)
        (void)snprintf(dst, cap, "99.9%%");
    else
        (void)snprintf(dst, cap, p < 0.1 ? "%.2f%%" : p < 99.95 ? "%.1f%%" : "%.0f%%", p);
}

void text_db(char *dst, size_t cap, double db)
{
    if (isfinite(db))
        (void)snprintf(dst, cap, "%.0f dB", db);
    else
        (void)snprintf(dst, cap, db > 0.0 ? "exact" : "nothing is left");
}

int problem(char *error, const char *path, const char *name, const char *format, ...)
{
    char    shown[160];
    size_t  used = 0;
    va_list args;
    error[0] = 0;
    if (path) {
        (void)text_safe(shown, sizeof shown, path, 100);
        used += (size_t)snprintf(error + used, ERROR_TEXT - used, "%s: ", shown);
    }
    if (name) {
        (void)text_safe(shown, sizeof shown, name, 100);
        used += (size_t)snprintf(error + used, ERROR_TEXT - used, "tensor '%s': ", shown);
    }
    va_start(args, format);
    (void)vsnprintf(error + used, ERROR_TEXT - used, format, args);
    va_end(args);
    return -1;
}
