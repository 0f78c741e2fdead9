/*
 * Cutting the commit log's files.
 *
 * Invariants: at every moment what is left is a beginning of the log, without a gap; nothing that
 * was cut can come back, since zeros are on the disk where it was before anything is appended.
 *
 * Threads: one, while nobody appends; readers hold on to their segments. Failure modes: codes of
 * the disk with a text; whoever cuts does it again at the next start.
 */
#include "broker/store/log_cut.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"

static enum tern_code sync_dir(struct segments *set, const char *dir, struct tern_error *err)
{
    enum tern_code code = fs_sync_dir(set->env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot sync", dir) : TERN_OK;
}

/* First byte of the last segment; -1: there is none. */
static int64_t last_base(struct segments *set)
{
    struct segment *last = segments_last(set);
    int64_t base = last ? last->base : -1;
    segment_unref(last);
    return base;
}

/* Deletes the segments that begin behind the end. */
static enum tern_code remove_later(struct segments *set, int64_t end, struct tern_error *err)
{
    for (;;) {
        int64_t base = last_base(set);
        if (base <= end)
            return TERN_OK;
        log_warn(set->env->log, "store.segment_removed", "segment=%020" PRId64, base);
        enum tern_code code = segments_remove_last(set);
        if (code)
            return error_set_errno(err, code, errno, "%s/%020" PRId64 ": cannot remove", set->dir,
                                   base);
        code = sync_dir(set, set->dir, err);
        if (code)
            return code;
    }
}

/* Makes everything behind the end, in its segment, zeros. */
static enum tern_code clear_behind(struct segments *set, int64_t end, struct tern_error *err)
{
    struct segment *last = segments_last(set);
    if (!last)
        return TERN_OK;
    enum tern_code code = TERN_OK;
    if (end < last->base + set->bytes) {
        code = file_truncate(last->file, end - last->base);
        if (!code)
            code = file_reserve(last->file, 0, set->bytes);
        if (!code)
            code = file_sync(last->file);
    }
    if (code)
        error_set_errno(err, code, errno, "%s/%020" PRId64 ": cannot clear behind %" PRId64,
                        set->dir, last->base, end);
    if (last->base == end)
        atomic_store(&last->first_ms, 0);
    segment_unref(last);
    return code;
}

enum tern_code log_cut_files(struct segments *set, int64_t end, struct tern_error *err)
{
    enum tern_code code = remove_later(set, end, err);
    return code ? code : clear_behind(set, end, err);
}

/* One file to another folder; both names may be there after a crash between two syncs. */
static enum tern_code move_file(struct segments *set, int64_t base, const char *dir,
                                struct tern_error *err)
{
    char name[SEGMENT_NAME_BYTES];
    char from[FS_PATH_BYTES];
    char to[FS_PATH_BYTES];
    segment_name(name, base);
    enum tern_code code = fs_join(from, set->dir, name);
    if (!code)
        code = fs_join(to, dir, name);
    if (code)
        return error_set(err, code, "%s/%s: path too long", dir, name);
    code = fs_rename(set->env->fs, from, to);
    if (!code) {
        code = fs_unlink(set->env->fs, from); /* two names of one file are not renamed */
        code = code == TERN_NOT_FOUND ? TERN_OK : code;
    }
    if (code)
        error_set_errno(err, code, errno, "%s: cannot move to %s", from, to);
    return code;
}

enum tern_code log_move_files(struct segments *set, const char *dir, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    int64_t base;
    while (!code && (base = last_base(set)) >= 0) {
        if (*dir) {
            code = move_file(set, base, dir, err);
            if (!code)
                code = sync_dir(set, dir, err);
            if (!code)
                segments_drop_last(set);
        } else if ((code = segments_remove_last(set)) != TERN_OK) {
            error_set_errno(err, code, errno, "%s/%020" PRId64 ": cannot remove", set->dir, base);
        }
        if (!code)
            code = sync_dir(set, set->dir, err);
    }
    return code;
}
