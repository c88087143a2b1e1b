/* test.h -- a small test runner in one header, for C99, C++11 and CUDA files. Nothing to install; its only
 * global variable is static.
 *
 *     TEST(adds_up) { CHECK(1 + 1 == 2); CHECK_EQ_U(1u + 1u, 2u); }
 *
 *     int main(int argc, char **argv)
 *     {
 *         mt_begin(argc, argv);
 *         RUN(adds_up);
 *         return mt_end();
 *     }
 *
 * A test fails if a CHECK fails or if it ran no CHECK at all. SKIP("reason") ends a test; with MPT_CI=1 in
 * the environment a skipped test counts as failed. The last line of the output is always "N passed, N
 * failed, N skipped"; the exit status is nonzero if and only if a test failed or none was run. Arguments: a
 * word runs only the tests whose names contain it; --long sets mt.long_mode; --short, for emulated
 * processors and slow code, sets mt.every to 8: the longest loops take larger steps. */
#ifndef MT_TEST_H
#define MT_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MT_SHOWN 5 /* failures printed per test; the rest are only counted */

typedef struct mt_state {
    const char   *only;             /* run tests whose names contain this; NULL: all */
    int           long_mode, ci;
    unsigned      every;            /* step of the longest loops: 1; with --short 8 */
    unsigned long passed, failed, skipped;
    const char   *context, *detail; /* printed with a failure: see mt_context */
    const char   *skip_reason;
    unsigned long checks, failures; /* of the running test */
    uint64_t      random_state;
} mt_state;

static mt_state mt;

#define TEST(name) static void mt_test_##name(void)
#define RUN(name) mt_run(#name, mt_test_##name)

/* Under -ffast-math mpt.h does not promise exact bits, and the processor treats subnormals as zeros:
 * RUN_EXACT leaves out tests that compare bits. */
#ifdef __FAST_MATH__
#define RUN_EXACT(name) (void)mt_test_##name
#else
#define RUN_EXACT(name) RUN(name)
#endif

#define CHECK(cond) mt_check((cond) ? 1 : 0, #cond, __FILE__, __LINE__)
/* `got` is the result, `want` the expected value; the _AT forms also print `at`, the input of `got` */
#define CHECK_EQ_U(got, want) \
    mt_check_u((uint64_t)(got), (uint64_t)(want), 0u, 0, #got " == " #want, __FILE__, __LINE__)
#define CHECK_EQ_U_AT(got, want, at) \
    mt_check_u((uint64_t)(got), (uint64_t)(want), (uint64_t)(at), 1, #got " == " #want, __FILE__, __LINE__)
#define CHECK_EQ_I(got, want) mt_check_i((got), (want), #got " == " #want, __FILE__, __LINE__)
#define CHECK_EQ_S(got, want) mt_check_s((got), (want), #got " == " #want, __FILE__, __LINE__)

#define SKIP(reason)              \
    do {                          \
        mt.skip_reason = (reason); \
        return;                   \
    } while (0)

/* Two strings to print with later failures, such as a format and a rounding. They are not copied. */
static inline void mt_context(const char *context, const char *detail)
{
    mt.context = context;
    mt.detail = detail;
}

/* Count one check. Returns 1 after it printed a failure: the caller then prints the values. */
static inline int mt_count(int ok, const char *text, const char *file, int line)
{
    mt.checks++;
    if (ok)
        return 0;
    mt.failures++;
    if (mt.failures > MT_SHOWN)
        return 0;
    printf("%s:%d: failed: %s", file, line, text);
    if (mt.context)
        printf(" [%s%s%s]", mt.context, mt.detail ? " " : "", mt.detail ? mt.detail : "");
    printf("\n");
    return 1;
}

static inline int mt_check(int ok, const char *text, const char *file, int line)
{
    mt_count(ok, text, file, line);
    return ok;
}

static inline int mt_check_u(uint64_t got, uint64_t want, uint64_t at, int has_at, const char *text,
                             const char *file, int line)
{
    if (mt_count(got == want, text, file, line)) {
        printf("    got  0x%llx (%llu)\n", (unsigned long long)got, (unsigned long long)got);
        printf("    want 0x%llx (%llu)\n", (unsigned long long)want, (unsigned long long)want);
        if (has_at)
            printf("    at   0x%llx (%llu)\n", (unsigned long long)at, (unsigned long long)at);
    }
    return got == want;
}

static inline int mt_check_i(int64_t got, int64_t want, const char *text, const char *file, int line)
{
    if (mt_count(got == want, text, file, line))
        printf("    got  %lld\n    want %lld\n", (long long)got, (long long)want);
    return got == want;
}

static inline int mt_check_s(const char *got, const char *want, const char *text, const char *file,
                             int line)
{
    const int ok = got && want && strcmp(got, want) == 0;
    if (mt_count(ok, text, file, line))
        printf("    got  \"%s\"\n    want \"%s\"\n", got ? got : "(null)", want ? want : "(null)");
    return ok;
}

/* 64 uniform random bits (splitmix64). Every test starts with the same seed, so it gives the same result
 * alone and together with the others. */
static inline uint64_t mt_random(void)
{
    uint64_t z = (mt.random_state += (uint64_t)0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * (uint64_t)0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * (uint64_t)0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void mt_begin(int argc, char **argv)
{
    const char *ci = getenv("MPT_CI");
    int         i;
    memset(&mt, 0, sizeof mt);
    mt.ci = ci && strcmp(ci, "1") == 0;
    mt.every = 1u;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0)
            mt.long_mode = 1;
        else if (strcmp(argv[i], "--short") == 0)
            mt.every = 8u;
        else if (argv[i][0] != '-' && !mt.only)
            mt.only = argv[i];
        else {
            fprintf(stderr, "usage: %s [--long | --short] [part of a test name]\n", argv[0]);
            exit(2);
        }
    }
}

static inline void mt_run(const char *name, void (*body)(void))
{
    if (mt.only && !strstr(name, mt.only))
        return;
    mt.checks = mt.failures = 0;
    mt.skip_reason = NULL;
    mt.random_state = 1u;
    mt_context(NULL, NULL);
    body();
    if (mt.failures) {
        printf("FAIL %s: %lu of %lu checks failed\n", name, mt.failures, mt.checks);
        mt.failed++;
    } else if (mt.skip_reason) {
        printf("SKIP %s: %s\n", name, mt.skip_reason);
        if (mt.ci)
            printf("FAIL %s: skipped although MPT_CI=1\n", name);
        *(mt.ci ? &mt.failed : &mt.skipped) += 1;
    } else if (!mt.checks) {
        printf("FAIL %s: asserted nothing\n", name);
        mt.failed++;
    } else {
        printf("ok   %s (%lu checks)\n", name, mt.checks);
        mt.passed++;
    }
    fflush(stdout); /* so that a crash in the next test does not hide this line */
}

/* Print the totals. Returns: the exit status for main. */
static inline int mt_end(void)
{
    if (!mt.passed && !mt.failed && !mt.skipped) {
        printf("FAIL: no test %s%s\n", mt.only ? "has in its name: " : "was run", mt.only ? mt.only : "");
        mt.failed++;
    }
    printf("%lu passed, %lu failed, %lu skipped\n", mt.passed, mt.failed, mt.skipped);
    return mt.failed ? 1 : 0;
}

#define COUNT_OF(a) (sizeof(a) / sizeof(a)[0])

/* Store or load an unsigned number of 1, 2, 4 or 8 bytes. */
static inline void mt_put(void *at, size_t bytes, uint64_t u64)
{
    const uint32_t u32 = (uint32_t)u64;
    const uint16_t u16 = (uint16_t)u64;
    switch (bytes) {
    case 8u: memcpy(at, &u64, 8u); break;
    case 4u: memcpy(at, &u32, 4u); break;
    case 2u: memcpy(at, &u16, 2u); break;
    default: *(uint8_t *)at = (uint8_t)u64;
    }
}

static inline uint64_t mt_get(const void *at, size_t bytes)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    switch (bytes) {
    case 8u: memcpy(&u64, at, 8u); return u64;
    case 4u: memcpy(&u32, at, 4u); return u32;
    case 2u: memcpy(&u16, at, 2u); return u16;
    default: return *(const uint8_t *)at;
    }
}

/* Let the processor take subnormal numbers for 0, as -Ofast programs and audio hosts do (x86-64 only). */
static inline void flush_subnormals(int on)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__TINYC__)
    const unsigned both = 0x8040u;                  /* FTZ and DAZ */
    __builtin_ia32_ldmxcsr(on ? __builtin_ia32_stmxcsr() | both : __builtin_ia32_stmxcsr() & ~both);
#else
    (void)on;
#endif
}

#endif /* MT_TEST_H */
