/*
 * What lies in a folder, sorted by name: segments, queue files and index files all have names that
 * sort as they were made. Internal to the store.
 */
#ifndef STORE_DIR_NAMES_H
#define STORE_DIR_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/fs.h"

enum { DIR_NAMES_MAX = 1 << 20, OFFSET_NAME_DIGITS = 20 };

struct dir_name {
    char *name;
    bool is_dir;
};

struct dir_names {
    struct dir_name *items;
    size_t count, capacity;
    enum tern_code code;
};

/* TERN_LIMIT above DIR_NAMES_MAX. To be given to dir_names_fini(), also when it fails. */
MUST_CHECK enum tern_code dir_names_list(struct fs *fs, const char *path, struct dir_names *out);
void dir_names_fini(struct dir_names *names);

/*
 * The decimal number that a name is, without sign: exactly `digits` long, or with digits 0 without
 * leading zeros. false: it is none, or above max.
 */
bool dir_name_number(const char *name, size_t digits, int64_t max, int64_t *out);

#endif
