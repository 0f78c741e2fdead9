/*
 * Listing a folder.
 *
 * Threads: any; no state. Failure modes: codes of fs.h, NO_MEMORY, LIMIT; errno is fs_list()'s.
 */
#include "broker/store/dir_names.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

static bool add_name(void *arg, const char *name, bool is_dir)
{
    struct dir_names *names = arg;
    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? names->capacity * 2 : FIRST_CAPACITY;
        names->code = capacity > DIR_NAMES_MAX ? TERN_LIMIT : TERN_NO_MEMORY;
        struct dir_name *items = capacity > DIR_NAMES_MAX
                                     ? NULL
                                     : realloc(names->items, capacity * sizeof(struct dir_name));
        if (!items)
            return false;
        names->items = items;
        names->capacity = capacity;
    }
    char *copy = strdup(name);
    names->code = copy ? TERN_OK : TERN_NO_MEMORY;
    if (copy)
        names->items[names->count++] = (struct dir_name){copy, is_dir};
    return copy != NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct dir_name *x = a;
    const struct dir_name *y = b;
    return strcmp(x->name, y->name);
}

enum tern_code dir_names_list(struct fs *fs, const char *path, struct dir_names *out)
{
    *out = (struct dir_names){0};
    enum tern_code code = fs_list(fs, path, add_name, out);
    if (!code)
        code = out->code;
    if (!code && out->count > 1)
        qsort(out->items, out->count, sizeof out->items[0], by_name);
    return code;
}

void dir_names_fini(struct dir_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i].name);
    free(names->items);
    *names = (struct dir_names){0};
}

bool dir_name_number(const char *name, size_t digits, int64_t max, int64_t *out)
{
    size_t len = strlen(name);
    if (len == 0 || len > OFFSET_NAME_DIGITS || (digits && len != digits) ||
        (!digits && len > 1 && name[0] == '0'))
        return false;
    int64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (name[i] < '0' || name[i] > '9' || value > (max - (name[i] - '0')) / 10)
            return false;
        value = value * 10 + (name[i] - '0');
    }
    *out = value;
    return true;
}
