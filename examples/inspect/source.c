/* source.c -- reads the bytes of a file, through mapped windows or a buffer. */
#include "inspect.h"

#include <errno.h>
#if HAVE_POSIX
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#endif

/* One window is mapped after the other. They are so large that mapping takes hardly any time, but so small
 * that the memory in use stays small for files of any size. */
#define WINDOW ((size_t)1 << 24)
#define PAGE   ((uint64_t)1 << 16)      /* a multiple of every page size in use */

#ifdef _WIN32
#define SEEK64(f, at, from) _fseeki64(f, (long long)(at), from)
#define TELL64(f)           _ftelli64(f)
#elif HAVE_POSIX
#define SEEK64(f, at, from) fseeko(f, (off_t)(at), from)
#define TELL64(f)           ftello(f)
#else
#define SEEK64(f, at, from) fseek(f, (long)(at), from)
#define TELL64(f)           ftell(f)
#endif

#if HAVE_POSIX
static const char *guarded_path, *guarded_output;

/* Calls only what a signal handler may call. An interrupt then ends the program in the usual way. */
static void on_signal(int signal_number)
{
    static const char text[] = ": the file shrank while it was read\n";
    if (guarded_output)
        (void)unlink(guarded_output);
    if (signal_number != SIGBUS)
        (void)raise(signal_number);     /* SA_RESETHAND has restored the default action */
    else if (write(2, guarded_path, strlen(guarded_path)) < 0 || write(2, text, sizeof text - 1) < 0)
        _exit(2);
    else
        _exit(1);
}

void source_guard(const char *path, const char *unlink_too)
{
    static const int signals[] = {SIGBUS, SIGINT, SIGTERM, SIGHUP};
    struct sigaction ours, theirs;
    size_t           i;
    memset(&ours, 0, sizeof ours);
    ours.sa_flags = (int)SA_RESETHAND;
    guarded_path = path;
    guarded_output = unlink_too;
    for (i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        const int wanted = path && (signals[i] == SIGBUS || unlink_too);
        ours.sa_handler = wanted ? on_signal : SIG_DFL;
        if (sigaction(signals[i], NULL, &theirs) == 0 && theirs.sa_handler != SIG_IGN)
            (void)sigaction(signals[i], &ours, NULL);
    }
}

/* Copy standard input to a temporary file, because reading headers needs to seek. */
static FILE *spool(int from, char *error)
{
    FILE *const f = tmpfile();
    char        block[4096];
    ssize_t     n = -1;
    while (f && (n = read(from, block, sizeof block)) > 0)
        if (fwrite(block, 1, (size_t)n, f) != (size_t)n)
            break;
    if (f && n == 0)
        return f;
    (void)problem(error, "-", NULL, "standard input cannot be copied: %s", strerror(errno));
    if (f)
        (void)fclose(f);
    return NULL;
}

/* Open a regular file or standard input. O_NONBLOCK: do not wait for the other end if `path` is a FIFO. */
static FILE *open_stream(const char *path, char *error)
{
    const int   standard = !strcmp(path, "-") || !strcmp(path, "/dev/stdin");
    const int   fd = standard ? dup(0) : open(path, O_RDONLY | O_NONBLOCK);
    struct stat st;
    const int   known = fd >= 0 && fstat(fd, &st) == 0;
    FILE       *f = NULL;
    if (!known)
        (void)problem(error, path, NULL, "%s", strerror(errno));
    else if (S_ISDIR(st.st_mode))
        (void)problem(error, path, NULL, "is a directory");
    else if (standard && !S_ISREG(st.st_mode))
        f = spool(fd, error);
    else if (!S_ISREG(st.st_mode))
        (void)problem(error, path, NULL, "is not a regular file");
    else if ((f = fdopen(fd, "rb")) != NULL)
        return f;
    else
        (void)problem(error, path, NULL, "%s", strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return f;
}

static int map_window(source *s, uint64_t at)
{
    const uint64_t start = at / PAGE * PAGE, left = s->size - start;
    const size_t   length = left < WINDOW + CHUNK ? (size_t)left : WINDOW + CHUNK;
    void          *p;
    if (s->window)
        (void)munmap(s->window, s->length);
    s->window = NULL;
    p = mmap(NULL, length, PROT_READ, MAP_SHARED, fileno(s->file), (off_t)start);
    if (p == MAP_FAILED)
        return -1;
    (void)posix_madvise(p, length, POSIX_MADV_SEQUENTIAL);
#ifdef MADV_POPULATE_READ
    (void)madvise(p, length, MADV_POPULATE_READ);   /* one call instead of a page fault every few pages */
#endif
    s->window = (unsigned char *)p;
    s->at = start;
    s->length = length;
    return 0;
}
#else
void source_guard(const char *path, const char *unlink_too) { (void)path; (void)unlink_too; }

static FILE *open_stream(const char *path, char *error)
{
    FILE *const f = fopen(path, "rb");
    if (!f)
        (void)problem(error, path, NULL, "%s", strerror(errno));
    return f;
}
#endif

int source_file(source *s, FILE *f, int map)
{
    long long end;
    memset(s, 0, sizeof *s);
    (void)map;
    if (fflush(f) == 0 && SEEK64(f, 0, SEEK_END) == 0 && (end = (long long)TELL64(f)) >= 0 &&
        SEEK64(f, 0, SEEK_SET) == 0) {
        s->file = f;
        s->size = (uint64_t)end;
#if HAVE_POSIX
        s->mapped = map;
#endif
        (void)setvbuf(f, NULL, _IONBF, 0);          /* no second buffer: the window is one */
        return 0;
    }
    (void)fclose(f);
    return -1;
}

int source_open(source *s, const char *path, int map, char *error)
{
    FILE *const f = open_stream(path, error);
    memset(s, 0, sizeof *s);
    if (!f)
        return -1;
    return source_file(s, f, map) == 0 ? 0 : problem(error, path, NULL, "cannot be read: seeking failed");
}

void source_memory(source *s, const void *bytes, size_t size)
{
    memset(s, 0, sizeof *s);
    s->memory = (const unsigned char *)bytes;
    s->size = size;
}

void source_share(source *s, const source *of)
{
    *s = *of;
    s->window = NULL;
}

void source_leave(source *s)
{
    if (!s->mapped)
        free(s->window);
#if HAVE_POSIX
    else if (s->window)
        (void)munmap(s->window, s->length);
#endif
    s->window = NULL;
}

void source_close(source *s)
{
    source_leave(s);
    if (s->file)
        (void)fclose(s->file);
    memset(s, 0, sizeof *s);
}

/* Reads ahead: headers are read in small pieces. */
static int fill_buffer(source *s, uint64_t at, size_t size)
{
    const uint64_t more = s->size - at < PAGE ? s->size - at : PAGE;
    if ((!s->window && !(s->window = (unsigned char *)malloc(CHUNK))) ||
        SEEK64(s->file, at, SEEK_SET) != 0)         /* each time: shared sources move the position */
        return -1;
    s->length = fread(s->window, 1, size < more ? (size_t)more : size, s->file);
    s->at = at;
    return s->length >= size ? 0 : -1;
}

const unsigned char *source_view(source *s, uint64_t at, size_t size)
{
    if (size > CHUNK || at > s->size || size > s->size - at)
        return NULL;
    if (s->memory)
        return s->memory + at;
    if (!s->window || at < s->at || at - s->at > s->length || size > s->length - (size_t)(at - s->at)) {
#if HAVE_POSIX
        if (s->mapped) {
            if (size && map_window(s, at) != 0)
                return NULL;
            return size ? s->window + (size_t)(at - s->at) : (const unsigned char *)"";
        }
#endif
        if (fill_buffer(s, at, size) != 0)
            return NULL;
    }
    return s->window + (size_t)(at - s->at);
}

uint64_t little_endian(const unsigned char *bytes, int n)
{
    uint64_t x = 0;
    while (n--)
        x = x << 8 | bytes[n];
    return x;
}

char *source_text(source *s, uint64_t at, uint64_t n, uint64_t most)
{
    char *text = n <= most ? (char *)malloc((size_t)n + 1) : NULL;
    if (text && source_read(s, at, text, (size_t)n) == 0) {
        text[n] = 0;
        return text;
    }
    free(text);
    return NULL;
}

int source_read(source *s, uint64_t at, void *dst, size_t size)
{
    unsigned char *to = (unsigned char *)dst;
    while (size) {
        const size_t         take = size < CHUNK ? size : CHUNK;
        const unsigned char *from = source_view(s, at, take);
        if (!from)
            return -1;
        memcpy(to, from, take);
        to += take;
        at += take;
        size -= take;
    }
    return 0;
}
