/*
 * The checkpoint file (facts 1.12).
 *
 * Place: written by the queue flusher's thorough round and at the end; read once, before recovery,
 * to choose the segment from which a crashed store is checked and dispatched again. A checkpoint
 * that is too old only costs time; one that is too new would lose consume queue units, so each time
 * in it is taken before the flush that makes it true.
 *
 * Threads: one at a time. Failure modes: a file shorter than the three times reads as zeros, which
 * makes recovery begin at the first segment.
 */
#include "broker/store/checkpoint.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fs.h"

enum { TIMES_BYTES = 24 };

/* What cannot be a time is none. */
static int64_t time_at(const uint8_t *raw)
{
    int64_t ms = (int64_t)get_be64(raw);
    return ms > 0 ? ms : 0;
}

enum tern_code checkpoint_read(const struct env *env, const char *path, struct checkpoint *out,
                               struct tern_error *err)
{
    memset(out, 0, sizeof *out);
    struct file *file = NULL;
    enum tern_code code = fs_open(env->fs, path, FS_READ, &file);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    if (code)
        return error_set_errno(err, code, errno, "%s: cannot open", path);
    uint8_t times[TIMES_BYTES];
    size_t got = 0;
    code = file_pread(file, times, sizeof times, 0, &got);
    if (code)
        error_set_errno(err, code, errno, "%s: cannot read", path);
    if (!code && got == sizeof times) {
        out->physic_ms = time_at(times);
        out->logics_ms = time_at(times + 8);
        out->index_ms = time_at(times + 16);
    }
    file_close(file);
    return code;
}

enum tern_code checkpoint_write(const struct env *env, const char *path,
                                const struct checkpoint *checkpoint, struct tern_error *err)
{
    struct file *file = NULL;
    bool made = !fs_exists(env->fs, path);
    enum tern_code code = fs_open(env->fs, path, FS_READ | FS_WRITE | FS_CREATE, &file);
    if (code)
        return error_set_errno(err, code, errno, "%s: cannot open", path);
    uint8_t block[CHECKPOINT_BYTES] = {0};
    put_be64(block, (uint64_t)checkpoint->physic_ms);
    put_be64(block + 8, (uint64_t)checkpoint->logics_ms);
    put_be64(block + 16, (uint64_t)checkpoint->index_ms);
    code = file_pwrite(file, block, sizeof block, 0);
    if (!code)
        code = file_sync(file);
    if (!code && made)
        code = fs_sync_parent(env->fs, path);
    if (code)
        error_set_errno(err, code, errno, "%s: cannot write", path);
    file_close(file);
    return code;
}

int64_t checkpoint_min_ms(const struct checkpoint *checkpoint)
{
    int64_t least = checkpoint->physic_ms < checkpoint->logics_ms ? checkpoint->physic_ms
                                                                  : checkpoint->logics_ms;
    return least > CHECKPOINT_MARGIN_MS ? least - CHECKPOINT_MARGIN_MS : 0;
}
