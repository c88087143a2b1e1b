/* folder.c -- models of several files: a folder, or the index of a sharded .safetensors model. */
#include "inspect.h"

#include <cJSON.h>
#include <errno.h>
#if HAVE_POSIX
#include <dirent.h>
#endif

enum { MAX_INDEX = 1 << 28 };

static int list_add(file_list *l, char *path)
{
    char **more = path ? (char **)grow(l->path, l->count, sizeof *more) : NULL;
    if (!more) {
        free(path);
        return -1;
    }
    l->path = more;
    l->path[l->count++] = path;
    return 0;
}

/* ---- the index of a sharded model: {"metadata": ..., "weight_map": {tensor: file}} ---- */

static int index_problem(file_list *l, char *error, const char *why, const char *name)
{
    char shown[120];
    (void)text_safe(shown, sizeof shown, name ? name : "", 100);
    return problem(error, l->index, NULL, "%s%s%s%s", why, name ? " '" : "", shown, name ? "'" : "");
}

/* List the files that the index names, each once. They must be in the folder of the index. */
static int index_files(file_list *l, char *error)
{
    const size_t folder = (size_t)(path_name(l->index) - l->index);
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(l->json, "weight_map"), *item;
    size_t       i, kept = 0;
    if (!cJSON_IsObject(map) || !map->child)
        return index_problem(l, error, "has no weight_map: it is not the index of a sharded model", NULL);
    for (item = map->child; item; item = item->next) {
        if (!cJSON_IsString(item))
            return index_problem(l, error, "gives no file name for tensor", item->string);
        if (strchr(item->valuestring, '/') || strchr(item->valuestring, '\\') ||
            !ends_with(item->valuestring, ".safetensors"))
            return index_problem(l, error, "names a file that is not a .safetensors file in its folder:",
                                 item->valuestring);
        if (item != map->child && l->count &&
            !strcmp(path_name(l->path[l->count - 1]), item->valuestring))
            continue;                   /* the same file as for the tensor before, as usual */
        if (list_add(l, path_join(l->index, folder, item->valuestring)) != 0)
            return problem(error, l->index, NULL, "out of memory");
    }
    qsort(l->path, l->count, sizeof *l->path, by_text);
    for (i = 0; i < l->count; i++)
        if (kept && !strcmp(l->path[kept - 1], l->path[i]))
            free(l->path[i]);
        else
            l->path[kept++] = l->path[i];
    l->count = kept;
    return 0;
}

static int index_open(file_list *l, const char *path, char *error)
{
    source s;
    char  *text;
    l->index = copy_text(path, strlen(path));
    if (!l->index)
        return problem(error, path, NULL, "out of memory");
    if (source_open(&s, path, 0, error) != 0)
        return -1;
    text = source_text(&s, 0, s.size, MAX_INDEX);
    if (text && utf8_valid(text, (size_t)s.size))
        l->json = cJSON_ParseWithLength(text, (size_t)s.size);
    free(text);
    source_close(&s);
    return l->json ? index_files(l, error) : index_problem(l, error, "is not valid JSON, or too large", NULL);
}

typedef struct placed { const char *tensor, *file; } placed;

static int by_tensor(const void *a, const void *b)
{
    const int order = strcmp(((const placed *)a)->tensor, ((const placed *)b)->tensor);
    return order ? order : strcmp(((const placed *)a)->file, ((const placed *)b)->file);
}

int file_list_check(file_list *l, const model *m, char *error)
{
    const cJSON *item, *map = l->json ? cJSON_GetObjectItemCaseSensitive(l->json, "weight_map") : NULL;
    size_t       n = 0, said = 0, i, k;
    placed      *has, *says;
    int          code = 0;
    if (!map)
        return 0;
    for (i = 0; i < l->count; i++)
        n += m[i].count;
    for (item = map->child; item; item = item->next)
        said++;
    has = (placed *)malloc((n + 1) * sizeof *has);
    says = (placed *)malloc((said + 1) * sizeof *says);
    if (!has || !says) {
        free(has);
        free(says);
        return problem(error, l->index, NULL, "out of memory");
    }
    for (i = 0, n = 0; i < l->count; i++)
        for (k = 0; k < m[i].count; k++, n++) {
            has[n].tensor = m[i].tensors[k].name;
            has[n].file = path_name(l->path[i]);
        }
    for (item = map->child, i = 0; item; item = item->next, i++) {
        says[i].tensor = item->string;
        says[i].file = item->valuestring;
    }
    qsort(has, n, sizeof *has, by_tensor);
    qsort(says, said, sizeof *says, by_tensor);
    for (i = 0; code == 0 && (i < n || i < said); i++) {
        const int order = i == n ? 1 : i == said ? -1 : by_tensor(&has[i], &says[i]);
        if (order > 0)
            code = index_problem(l, error, "lists a tensor that is not in its file:", says[i].tensor);
        else if (order < 0)
            code = index_problem(l, error, "does not list a tensor that is in a file:", has[i].tensor);
    }
    free(has);
    free(says);
    return code;
}

int file_list_index(const file_list *l, uint64_t bytes, FILE *out)
{
    cJSON *metadata = cJSON_GetObjectItemCaseSensitive(l->json, "metadata");
    char  *text;
    int    code;
    if (metadata && cJSON_GetObjectItemCaseSensitive(metadata, "total_size"))
        (void)cJSON_ReplaceItemInObjectCaseSensitive(metadata, "total_size",
                                                     cJSON_CreateNumber((double)bytes));
    text = cJSON_Print(l->json);
    code = text && fputs(text, out) >= 0 && fputc('\n', out) >= 0 ? 0 : -1;
    cJSON_free(text);
    return code;
}

/* ---- folders ---- */

#if HAVE_POSIX
static int is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Append the files of a folder whose names end in one of the suffixes, sorted by name. */
static int list_folder(file_list *l, const char *path, const char *const *suffix)
{
    DIR                 *d = opendir(path);
    const struct dirent *e;
    int                  k, code = d ? 0 : -1;
    while (code == 0 && (e = readdir(d)) != NULL)
        for (k = 0; suffix[k]; k++)
            if (e->d_name[0] != '.' && ends_with(e->d_name, suffix[k]))
                code = list_add(l, path_join(path, strlen(path), e->d_name));
    if (d)
        (void)closedir(d);
    if (l->count)
        qsort(l->path, l->count, sizeof *l->path, by_text);
    return code;
}

static int folder_open(file_list *l, const char *path, char *error)
{
    static const char *const suffixes[3][9] = {
        {".safetensors.index.json", NULL}, {".safetensors", NULL},
        {".npy", ".npz", ".pt", ".pth", ".gguf", ".onnx", ".csv", ".tsv", NULL}};
    int k;
    for (k = 0; k < 3 && !l->count; k++) {
        errno = 0;
        if (list_folder(l, path, suffixes[k]) != 0)
            return problem(error, path, NULL, "%s", errno ? strerror(errno) : "out of memory");
    }
    if (!l->count)
        return problem(error, path, NULL, "is a folder without any file of a kind that inspect reads");
    if (k == 1 && l->count > 1)
        return problem(error, path, NULL, "is a folder with several indexes: name one of them");
    if (k == 1) {
        char     *index = l->path[0];
        const int code = (l->count = 0, index_open(l, index, error));
        free(index);
        return code;
    }
    return 0;
}
#else
static int is_folder(const char *path) { (void)path; return 0; }
static int folder_open(file_list *l, const char *path, char *error)
{
    (void)l;
    return problem(error, path, NULL, "is a folder");
}
#endif

int file_list_open(file_list *l, const char *path, char *error)
{
    memset(l, 0, sizeof *l);
    l->many = 1;
    if (is_folder(path))
        return folder_open(l, path, error);
    if (ends_with(path, ".index.json"))
        return index_open(l, path, error);
    l->many = 0;
    return list_add(l, copy_text(path, strlen(path))) == 0 ? 0 : problem(error, path, NULL, "out of memory");
}

void file_list_close(file_list *l)
{
    size_t i;
    for (i = 0; i < l->count; i++)
        free(l->path[i]);
    free(l->path);
    free(l->index);
    cJSON_Delete(l->json);
    memset(l, 0, sizeof *l);
}
