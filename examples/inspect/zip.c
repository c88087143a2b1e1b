/* zip.c -- archives: NumPy .npz (a .npy file for each array) and PyTorch .pt (a pickle, and the bytes of each
 * storage). minizip reads the directory and decompresses members. Uncompressed members (all of PyTorch's, and
 * those of numpy.savez) are read in place. */
#include "inspect.h"

#ifdef INSPECT_ZIP
#include <unzip.h>

enum { MAX_MEMBER_NAME = 1024, MAX_PICKLE = 1 << 26 };

/* ---- minizip's input functions: they read a source ---- */

typedef struct opened { source s; uint64_t at; } opened;

static voidpf open_source(voidpf user, const void *name, int mode)
{
    const source *of = (const source *)user;
    opened       *z = (opened *)calloc(1, sizeof *z);
    (void)name;
    (void)mode;
    if (z)
        source_share(&z->s, of);
    return z;
}

static uLong read_source(voidpf user, voidpf file, void *dst, uLong size)
{
    opened        *z = (opened *)file;
    const uint64_t left = z->at < z->s.size ? z->s.size - z->at : 0;
    const size_t   take = size < left ? (size_t)size : (size_t)left;
    (void)user;
    if (source_read(&z->s, z->at, dst, take) != 0)
        return 0;
    z->at += take;
    return (uLong)take;
}

static ZPOS64_T tell_source(voidpf user, voidpf file)
{
    (void)user;
    return ((opened *)file)->at;
}

static long seek_source(voidpf user, voidpf file, ZPOS64_T offset, int origin)
{
    opened *z = (opened *)file;
    (void)user;
    z->at = offset + (origin == ZLIB_FILEFUNC_SEEK_CUR   ? z->at
                      : origin == ZLIB_FILEFUNC_SEEK_END ? z->s.size
                                                         : 0);
    return z->at > z->s.size ? -1 : 0;
}

static int close_source(voidpf user, voidpf file)
{
    opened *z = (opened *)file;
    (void)user;
    source_leave(&z->s);                /* not source_close: the model owns the file */
    free(z);
    return 0;
}

static int no_error(voidpf user, voidpf file)
{
    (void)user;
    (void)file;
    return 0;
}

static unzFile open_archive(source *s)
{
    zlib_filefunc64_def io;
    memset(&io, 0, sizeof io);
    io.zopen64_file = open_source;
    io.zread_file = read_source;
    io.ztell64_file = tell_source;
    io.zseek64_file = seek_source;
    io.zclose_file = close_source;
    io.zerror_file = no_error;
    io.opaque = s;
    return unzOpen2_64("", &io);
}

/* ---- members ---- */

/* Get the name of the current member, cut to MAX_MEMBER_NAME - 1 characters. Returns 1, or 0 if it failed. */
static int name_of(unzFile z, char name[MAX_MEMBER_NAME], unz_file_info64 *info)
{
    const int code = unzGetCurrentFileInfo64(z, info, name, MAX_MEMBER_NAME, NULL, 0, NULL, 0);
    name[MAX_MEMBER_NAME - 1] = 0;
    return code == UNZ_OK;
}

/* Where the bytes of a member are. from: the unpacked member; NULL: the archive. */
typedef struct member { source *from; uint64_t offset, bytes; } member;

/* Unpack the open member into a temporary file. */
static int unpack(model *m, unzFile z, uint64_t bytes, member *it, const char *name, char *error)
{
    source  *s = model_part(m);
    char     block[1 << 14];
    uint64_t done = 0;
    int      n = 0;
    while (s && (n = unzReadCurrentFile(z, block, sizeof block)) > 0) {
        if (fwrite(block, 1, (size_t)n, s->file) != (size_t)n)
            break;
        done += (uint64_t)n;
    }
    if (!s || n != 0 || done != bytes || source_file(s, s->file, m->src.mapped) != 0)
        return problem(error, m->path, NULL, s && (n < 0 || (!n && done != bytes))
                       ? "the member '%s' is damaged" : "no space to unpack the member '%s'", name);
    it->from = s;
    it->offset = 0;
    it->bytes = bytes;
    return 0;
}

/* Find the bytes of the archive's current member; unpack it if it is compressed. */
static int find_bytes(model *m, unzFile z, member *it, char *error)
{
    char            name[MAX_MEMBER_NAME], shown[100];
    unz_file_info64 info;
    int             code = 0;
    if (!name_of(z, name, &info))
        return problem(error, m->path, NULL, "the zip's directory is damaged");
    (void)text_safe(shown, sizeof shown, name, 60);
    if (info.flag & 1)
        return problem(error, m->path, NULL, "the member '%s' is encrypted", shown);
    if (unzOpenCurrentFile(z) != UNZ_OK)
        return problem(error, m->path, NULL, "the member '%s' cannot be read: damaged, or compressed by an "
                       "unknown method", shown);
    it->from = NULL;
    it->offset = unzGetCurrentFileZStreamPos64(z);
    it->bytes = info.uncompressed_size;
    if (info.compression_method)
        code = unpack(m, z, it->bytes, it, shown, error);
    else if (it->offset > m->src.size || it->bytes > m->src.size - it->offset)
        code = problem(error, m->path, NULL, "the member '%s' is truncated", shown);
    (void)unzCloseCurrentFile(z);
    return code;
}

/* ---- .npz ---- */

static int npz_parse(model *m, unzFile z, char *error)
{
    char   name[MAX_MEMBER_NAME];
    member it;
    int    code;
    for (code = unzGoToFirstFile(z); code == UNZ_OK; code = unzGoToNextFile(z)) {
        tensor *t;
        if (!name_of(z, name, NULL))
            break;
        if (!ends_with(name, ".npy"))
            continue;
        if (find_bytes(m, z, &it, error) != 0)
            return -1;
        t = model_tensor(m, name, strlen(name) - 4);
        if (!t)
            return problem(error, m->path, NULL, "out of memory");
        t->from = it.from;
        t->offset = it.offset;
        if (npy_parse(m, t, it.bytes, error) != 0)
            return -1;
    }
    if (code != UNZ_END_OF_LIST_OF_FILE)
        return problem(error, m->path, NULL, "the zip's directory is damaged");
    return m->count ? 0 : problem(error, m->path, NULL,
                                  "is a zip that holds neither .npy files nor a PyTorch model");
}

/* ---- PyTorch ---- */

typedef struct torch_file {
    model  *m;
    unzFile z;
    char   *prefix;             /* the folder in the archive, with its slash */
    int     big;
    char   *error;
} torch_file;

/* The order of the values in memory. Returns 0: last index fastest (C); 1: first index fastest (Fortran);
 * 2: contiguous, but another permutation of the dimensions; -1: not contiguous, or some repeat. */
static int order_of(const pickled *p)
{
    uint64_t next = 1;
    int      used[MAX_DIMS] = {0}, k, done, c = 1, fortran = 1;
    for (k = p->dims - 1; k >= 0; next *= p->shape[k--])
        c &= p->shape[k] == 1 || p->stride[k] == next;
    for (k = 0, next = 1; k < p->dims; next *= p->shape[k++])
        fortran &= p->shape[k] == 1 || p->stride[k] == next;
    if (c || fortran)
        return !c;
    for (done = 0, next = 1; done < p->dims; done++) {
        for (k = 0; k < p->dims && (used[k] || (p->shape[k] != 1 && p->stride[k] != next)); k++)
            ;
        if (k == p->dims)
            return -1;
        used[k] = 1;
        next *= p->shape[k];
    }
    return 2;
}

static int add_torch_tensor(void *user, const pickled *p)
{
    torch_file *f = (torch_file *)user;
    model      *m = f->m;
    tensor     *t = model_tensor(m, p->name, strlen(p->name));
    const number_type *type = find_type(p->type);
    char        path[MAX_MEMBER_NAME];
    uint64_t    size;
    member      it;
    int         order;
    if (!t)
        return problem(f->error, m->path, NULL, "out of memory");
    t->dims = p->dims;
    memcpy(t->shape, p->shape, sizeof t->shape);
    if (tensor_count(m, t, f->error) != 0)
        return -1;
    t->type = type ? type->name : model_text(m, p->type);
    order = t->count ? order_of(p) : 0;
    if (order < 0)
        t->type = "view";               /* not contiguous in its storage, or values repeat */
    if (!type || order < 0)
        return t->type ? 0 : problem(f->error, m->path, NULL, "out of memory");
    t->format = type->format;
    t->fortran = order == 1;
    t->scattered = order == 2;
    t->swap = host_is_little() == f->big;
    size = (uint64_t)type->bits / 8;
    (void)snprintf(path, sizeof path, "%sdata/%s", f->prefix, p->storage);
    if (unzLocateFile(f->z, path, 1) != UNZ_OK)
        return problem(f->error, m->path, t->name, "its bytes are not in the archive");
    if (find_bytes(m, f->z, &it, f->error) != 0)
        return -1;
    if (p->offset > it.bytes / size || t->count > it.bytes / size - p->offset)
        return problem(f->error, m->path, t->name, "reaches beyond the end of its storage");
    t->from = it.from;
    t->offset = it.offset + p->offset * size;
    t->bytes = t->count * size;
    return 0;
}

/* Read a whole member into memory; the caller frees it. NULL: an error text is set, if the member exists. */
static char *load(torch_file *f, const char *name, size_t *n, size_t most)
{
    char   path[MAX_MEMBER_NAME];
    char  *text;
    member it;
    (void)snprintf(path, sizeof path, "%s%s", f->prefix, name);
    if (unzLocateFile(f->z, path, 1) != UNZ_OK || find_bytes(f->m, f->z, &it, f->error) != 0)
        return NULL;
    text = source_text(it.from ? it.from : &f->m->src, it.offset, it.bytes, most);
    if (!text)
        (void)problem(f->error, f->m->path, NULL, "'%s' is too large or cannot be read", name);
    *n = (size_t)it.bytes;
    return text;
}

static int torch_parse(model *m, unzFile z, char *prefix, char *error)
{
    torch_file f;
    char      *text, why[200] = "";
    size_t     n = 0;
    int        code;
    f.m = m;
    f.z = z;
    f.prefix = prefix;
    f.error = error;
    f.big = 0;
    error[0] = 0;
    text = load(&f, "byteorder", &n, 16);       /* older files lack this member: little-endian */
    f.big = text && n >= 3 && !memcmp(text, "big", 3);
    free(text);
    text = load(&f, "data.pkl", &n, MAX_PICKLE);
    if (!text)
        return *error ? -1 : problem(error, m->path, NULL, "data.pkl cannot be read");
    m->kind = KIND_PYTORCH;
    error[0] = 0;
    code = pickle_parse((const unsigned char *)text, n, add_torch_tensor, &f, why, sizeof why);
    free(text);
    if (code != 0 && !*error)
        (void)problem(error, m->path, NULL, "%s", why);
    return code;
}

int zip_parse(model *m, char *error)
{
    unzFile z = open_archive(&m->src);
    char    name[MAX_MEMBER_NAME] = "";
    int     code, torch = 0;
    if (!z)
        return problem(error, m->path, NULL, "is a zip that is truncated or damaged");
    for (code = unzGoToFirstFile(z); code == UNZ_OK && !torch; code = unzGoToNextFile(z)) {
        if (!name_of(z, name, NULL))
            break;
        torch = ends_with(name, "/data.pkl");
    }
    if (torch)
        name[strlen(name) - strlen("data.pkl")] = 0;
    code = torch ? torch_parse(m, z, name, error) : npz_parse(m, z, error);
    (void)unzClose(z);
    return code;
}

#else
int zip_parse(model *m, char *error)
{
    return problem(error, m->path, NULL, "is a zip (.npz or PyTorch): this program was built without "
                   "minizip, which reads them");
}
#endif
