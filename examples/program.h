/* program.h -- helpers that the larger examples share: errors, files, options, and random numbers that are
 * the same on every machine. It compiles as C99, C++ and CUDA. The last section exists only if mpt.h was
 * included before. Include this file in one source file of a program: its random state is static. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Print a message and exit: a program may do that, a library returns an error instead. */
static inline void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* ---- files ---- */

static inline FILE *file_create(const char *dir, const char *name)      /* returns NULL if dir is NULL */
{
    char  path[1024];
    FILE *f = NULL;
    if (!dir)
        return NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) < sizeof path)
        f = fopen(path, "w");
    if (!f)
        die(path, "cannot write it (does the folder exist?)");
    return f;
}

static inline void file_close(FILE *f, const char *name)
{
    if (f && (ferror(f) | fclose(f)))
        die(name, "cannot write it");
}

/* ---- random numbers: splitmix64 ---- */

static uint64_t random_state;                   /* assign a seed to it to start a new sequence */

static inline double random_unit(void)          /* 0 up to, but not including, 1 */
{
    uint64_t z = (random_state += (uint64_t)0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * (uint64_t)0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * (uint64_t)0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 32) / 4294967296.0;
}

static inline float random_weight(double range) /* -range to range */
{
    return (float)((2.0 * random_unit() - 1.0) * range);
}

static inline size_t random_below(size_t n) { return (size_t)(random_unit() * (double)n); }

static inline void shuffle(size_t *a, size_t n)
{
    for (; n > 1; n--) {
        const size_t j = random_below(n), last = a[n - 1];
        a[n - 1] = a[j];
        a[j] = last;
    }
}

static inline double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

/* ---- options ----
 * If *at points to the option `name` in argv, and a value follows: store it, move *at to it, return 1. */

static inline int option_text(char ***at, const char *name, const char **to)
{
    if (strcmp(**at, name) || !(*at)[1])
        return 0;
    *to = *++*at;
    return 1;
}

static inline int option_number(char ***at, const char *name, int *to, long most)      /* from 1 to most */
{
    const char *text = "";
    char       *end, **next = *at;
    const long  n = option_text(&next, name, &text) ? strtol(text, &end, 10) : 0;
    if (n < 1 || n > most || *end)
        return 0;
    *to = (int)n;
    *at = next;
    return 1;
}

/* For an argument that no option has matched: print the usage (and, if it is not --help, an error); exit. */
static inline void option_end(const char *name, const char *usage)
{
    const int help = !strcmp(name, "--help");
    if (!help)
        (void)fprintf(stderr, "%s: unknown option, or its value is missing or out of range\n", name);
    (void)fputs(usage, help ? stdout : stderr);
    exit(help ? 0 : 2);
}

#ifdef MPT_H
/* ---- mpt ---- */

#define must(call) must_be_ok((call), #call)

static inline void must_be_ok(mpt_status status, const char *call)
{
    if (status != MPT_OK)
        die(call, mpt_status_text(status));
}

/* Convert floats to an array of any format, and back. */
static inline void store(void *dst, mpt_format format, const float *src, size_t n)
{
    must(mpt_convert_n(format, dst, MPT_F32, src, n, NULL, NULL));
}

static inline void load(float *dst, const void *src, mpt_format format, size_t n)
{
    must(mpt_convert_n(MPT_F32, dst, format, src, n, NULL, NULL));
}
#endif
#endif
