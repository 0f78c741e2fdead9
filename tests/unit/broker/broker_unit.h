/* What the broker's cmocka tests include, in the order that cmocka wants. */
#ifndef TESTS_UNIT_BROKER_BROKER_UNIT_H
#define TESTS_UNIT_BROKER_BROKER_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/fs.h"
#include "tests/sim/sim_env.h"

#define assert_ok(expr) assert_int_equal((expr), TERN_OK)
#define assert_contains(text, part) assert_non_null(strstr((text), (part)))

/* Replaces a file's bytes, durably. */
static inline void put_file(struct sim_env *sim, const char *path, const char *text, size_t len)
{
    struct file *file = NULL;
    assert_ok(fs_open(sim->env.fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file));
    if (len)
        assert_ok(file_pwrite(file, text, len, 0));
    assert_ok(file_sync(file));
    file_close(file);
    char dir[FS_PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = 0;
    assert_ok(fs_sync_dir(sim->env.fs, dir));
}

/* A file's bytes, terminated; free(). */
static inline char *get_file(struct sim_env *sim, const char *path, size_t *len)
{
    struct file *file = NULL;
    int64_t size = 0;
    assert_ok(fs_open(sim->env.fs, path, FS_READ, &file));
    assert_ok(file_size(file, &size));
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_ok(file_pread(file, text, (size_t)size, 0, len));
    file_close(file);
    return text;
}

/* How a power loss may leave a file (ST-20). */
enum damage { DAMAGE_EMPTY, DAMAGE_ZEROS, DAMAGE_HALF, DAMAGE_GARBAGE, DAMAGE_COUNT };

static inline void damage_file(struct sim_env *sim, const char *path, enum damage damage)
{
    size_t len;
    char *text = get_file(sim, path, &len);
    if (damage == DAMAGE_ZEROS)
        memset(text, 0, len);
    for (size_t i = 0; damage == DAMAGE_GARBAGE && i < len; i++)
        text[i] = (char)(text[i] ^ (char)(0x5A + i));
    put_file(sim, path, text, damage == DAMAGE_EMPTY ? 0 : damage == DAMAGE_HALF ? len / 2 : len);
    free(text);
}

#endif
