/*
 * The intent of a cut.
 *
 * Place: a cut touches many files, and from the first one on there is no way back. The intent is on
 * the disk before that, and goes when all is done; a start that finds it does the cut again, which
 * is harmless. So a crash leaves either the old end or the new one.
 *
 * The file appears whole or not at all: written beside, synced, renamed. Threads: the cut's, or the
 * opening one. Failure modes: when writing fails nobody knows whether the intent is there: the
 * caller latches the store.
 */
#include "broker/store/cut_intent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fs.h"
#include "base/record.h"

enum { INTENT_BYTES = 36, CHECKED_BYTES = 32 };

static const char intent_magic[8] = {'T', 'E', 'R', 'N', 'C', 'U', 'T', '1'};

static enum tern_code path_of(const char *root, const char *name, char out[FS_PATH_BYTES],
                              struct tern_error *err)
{
    int n = snprintf(out, FS_PATH_BYTES, "%s/ternmq%s%s", root, *name ? "/" : "", name);
    return n > 0 && n < FS_PATH_BYTES ? TERN_OK
                                      : error_set(err, TERN_TOO_LARGE, "%s: path too long", root);
}

static bool decode(const uint8_t *raw, struct cut_intent *out)
{
    uint64_t kind = get_be64(raw + 8);
    if (memcmp(raw, intent_magic, sizeof intent_magic) != 0 || kind == CUT_NONE ||
        kind >= CUT_KIND_COUNT ||
        get_be32(raw + CHECKED_BYTES) != record_body_crc(raw, CHECKED_BYTES))
        return false;
    out->kind = (enum cut_kind)kind;
    out->at = (int64_t)get_be64(raw + 16);
    out->wall_ms = (int64_t)get_be64(raw + 24);
    return out->at >= 0 && out->wall_ms >= 0;
}

enum tern_code cut_intent_read(const struct env *env, const char *root, struct cut_intent *out,
                               struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    uint8_t raw[INTENT_BYTES];
    struct file *file = NULL;
    size_t got = 0;
    *out = (struct cut_intent){.kind = CUT_NONE};
    enum tern_code code = path_of(root, "cut", path, err);
    if (code)
        return code;
    code = fs_open(env->fs, path, FS_READ, &file);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    if (!code)
        code = file_pread(file, raw, sizeof raw, 0, &got);
    file_close(file);
    if (code)
        return error_set_errno(err, code, errno, "%s: cannot read", path);
    if (got != sizeof raw || !decode(raw, out))
        return error_set(err, TERN_CORRUPT,
                         "%s: does not say where the log is being cut; move it away to open the "
                         "log as it is",
                         path);
    return TERN_OK;
}

static enum tern_code write_aside(const struct env *env, const char *path,
                                  const struct cut_intent *intent)
{
    uint8_t raw[INTENT_BYTES];
    struct file *file = NULL;
    memcpy(raw, intent_magic, sizeof intent_magic);
    put_be64(raw + 8, (uint64_t)intent->kind);
    put_be64(raw + 16, (uint64_t)intent->at);
    put_be64(raw + 24, (uint64_t)intent->wall_ms);
    put_be32(raw + CHECKED_BYTES, record_body_crc(raw, CHECKED_BYTES));
    enum tern_code code = fs_open(env->fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (!code)
        code = file_pwrite(file, raw, sizeof raw, 0);
    if (!code)
        code = file_sync(file);
    file_close(file);
    return code;
}

enum tern_code cut_intent_write(const struct env *env, const char *root,
                                const struct cut_intent *intent, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    char aside[FS_PATH_BYTES];
    char dir[FS_PATH_BYTES];
    enum tern_code code = path_of(root, "cut", path, err);
    if (!code)
        code = path_of(root, "cut.tmp", aside, err);
    if (!code)
        code = path_of(root, "", dir, err);
    if (code)
        return code;
    code = write_aside(env, aside, intent);
    if (!code)
        code = fs_rename(env->fs, aside, path);
    if (!code)
        code = fs_sync_dir(env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot write", path) : TERN_OK;
}

enum tern_code cut_intent_clear(const struct env *env, const char *root, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    enum tern_code code = path_of(root, "cut", path, err);
    if (code)
        return code;
    code = fs_unlink(env->fs, path);
    if (!code || code == TERN_NOT_FOUND)
        code = fs_sync_parent(env->fs, path);
    return code ? error_set_errno(err, code, errno, "%s: cannot remove", path) : TERN_OK;
}
