/* measure.c -- measures time and memory for tests/bench/inspect.sh:
 *
 *     measure sum FILE            maps FILE and adds up its 64-bit words: the least that a reader must do
 *     measure run COMMAND...      runs a command and discards its output
 *
 * Both print the wall-clock seconds, the processor seconds, and the largest memory use in KiB. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Four sums, so that additions do not wait for each other. */
static void sum(const char *path)
{
    const int       fd = open(path, O_RDONLY);
    struct stat     st;
    const uint64_t *x;
    uint64_t        s[4] = {0, 0, 0, 0};
    size_t          i, n;
    if (fd < 0 || fstat(fd, &st) != 0)
        die(path);
    x = (const uint64_t *)mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if ((const void *)x == MAP_FAILED)
        die(path);
    (void)madvise((void *)(uintptr_t)x, (size_t)st.st_size, MADV_SEQUENTIAL);
    n = (size_t)st.st_size / 32 * 4;
    for (i = 0; i < n; i += 4) {
        s[0] += x[i];
        s[1] += x[i + 1];
        s[2] += x[i + 2];
        s[3] += x[i + 3];
    }
    if (s[0] + s[1] + s[2] + s[3] == 42)        /* uses the sums, so that no compiler drops the loop */
        (void)printf("\n");
}

static void quiet(void)
{
    const int fd = open("/dev/null", O_WRONLY);
    if (fd < 0 || dup2(fd, 1) < 0)
        die("/dev/null");
}

int main(int argc, char **argv)
{
    struct rusage use;
    int           status = 0;
    pid_t         child;
    const double  start = now();
    if (argc < 3)
        return 2;
    child = fork();
    if (child == 0 && !strcmp(argv[1], "sum")) {
        sum(argv[2]);
        _exit(0);
    }
    if (child == 0) {
        quiet();
        (void)execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &use) != child || !WIFEXITED(status) || WEXITSTATUS(status))
        die(argv[2]);
    (void)printf("%.3f %.3f %ld\n", now() - start, (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
                 1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec), use.ru_maxrss);
    return 0;
}
