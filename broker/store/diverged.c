/*
 * Saving what is cut from the log.
 *
 * Place: before a cut. A message that only this broker has is never thrown away by itself: it may
 * have been acknowledged, and a person may want it back (mqstore reads a file of whole records).
 *
 * A file has its final name only when it is complete and on the disk. Threads: the cut's. Failure
 * modes: codes of the disk; the log is as it was.
 */
#include "broker/store/diverged.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

enum { COPY_BYTES = 1 << 20, TRIES = 1000 };

/* ROOT/diverged, made when absent. */
static enum tern_code enter(const struct env *env, const char *root, char dir[FS_PATH_BYTES],
                            struct tern_error *err)
{
    enum tern_code code = fs_join(dir, root, "diverged");
    if (code)
        return error_set(err, code, "%s: path too long", root);
    code = fs_mkdirs(env->fs, dir);
    if (!code)
        code = fs_sync_dir(env->fs, root);
    return code ? error_set_errno(err, code, errno, "%s: cannot create", dir) : TERN_OK;
}

static enum tern_code copy(struct commit_log *log, int64_t from, int64_t end, struct file *file)
{
    uint8_t *buffer = malloc(COPY_BYTES);
    enum tern_code code = buffer ? TERN_OK : TERN_NO_MEMORY;
    for (int64_t at = from; at < end && !code;) {
        size_t got = 0;
        size_t want = end - at < COPY_BYTES ? (size_t)(end - at) : COPY_BYTES;
        code = commit_log_read_written(log, at, buffer, want, &got);
        if (!code && got == 0)
            code = TERN_CORRUPT;
        if (!code)
            code = file_pwrite(file, buffer, got, at - from);
        at += (int64_t)got;
    }
    free(buffer);
    return code ? code : file_sync(file);
}

enum tern_code diverged_save(const struct env *env, const char *root, struct commit_log *log,
                             int64_t from, int64_t end, char name[DIVERGED_NAME_BYTES],
                             struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    char path[FS_PATH_BYTES];
    char part[FS_PATH_BYTES + 8];
    struct file *file = NULL;
    enum tern_code code = enter(env, root, dir, err);
    if (code)
        return code;
    int64_t wall_ms = clock_wall_ms(env->clock);
    do {
        snprintf(name, DIVERGED_NAME_BYTES, "%020" PRId64 "-%020" PRId64 "-%" PRId64 ".log", from,
                 end, wall_ms++);
        code = fs_join(path, dir, name);
    } while (!code && fs_exists(env->fs, path));
    if (code)
        return error_set(err, code, "%s: path too long", dir);
    snprintf(part, sizeof part, "%s.part", path);
    code = fs_open(env->fs, part, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (!code)
        code = copy(log, from, end, file);
    file_close(file);
    if (!code)
        code = fs_rename(env->fs, part, path);
    if (!code)
        code = fs_sync_dir(env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot save what is cut", path) : TERN_OK;
}

enum tern_code diverged_folder_path(const char *root, int64_t wall_ms, char out[FS_PATH_BYTES],
                                    struct tern_error *err)
{
    int n = snprintf(out, FS_PATH_BYTES, "%s/diverged/%" PRId64, root, wall_ms);
    return n > 0 && n < FS_PATH_BYTES ? TERN_OK
                                      : error_set(err, TERN_TOO_LARGE, "%s: path too long", root);
}

enum tern_code diverged_folder(const struct env *env, const char *root, int64_t *wall_ms,
                               struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    char path[FS_PATH_BYTES];
    *wall_ms = clock_wall_ms(env->clock);
    enum tern_code code = enter(env, root, dir, err);
    for (int i = 0; !code && i < TRIES; i++) {
        code = diverged_folder_path(root, *wall_ms, path, err);
        if (code)
            return code;
        code = fs_mkdir(env->fs, path);
        if (code != TERN_EXISTS) {
            if (!code)
                code = fs_sync_dir(env->fs, dir);
            return code ? error_set_errno(err, code, errno, "%s: cannot create", path) : TERN_OK;
        }
        code = TERN_OK;
        ++*wall_ms;
    }
    return code ? code : error_set(err, TERN_EXISTS, "%s: no free name for a folder", dir);
}
