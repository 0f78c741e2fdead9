/*
 * The flush mark's file.
 *
 * Place: the flusher sets it after each flush (one small write into the page cache), the queue
 * flusher syncs it every few seconds, recovery reads it.
 *
 * Invariant: a slot is overwritten only while the other one holds a true statement, so a torn write
 * leaves the older, lower F: less evidence, never a false one. Failure modes: unreadable or absent
 * -> recovery falls back to the checkpoint; a failed write is the caller's to report.
 */
#include "broker/store/flush_mark.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fs.h"
#include "base/record.h"

enum { SLOT_BYTES = 36, SLOT_STRIDE = 4096, SLOTS = 2, CHECKED_BYTES = 32 };

static const char slot_magic[8] = {'T', 'E', 'R', 'N', 'F', 'L', 'S', 'H'};

struct flush_mark {
    struct file *file;
    uint64_t sequence; /* of the newest slot; slot = sequence % 2 */
    _Atomic int64_t indexed;
};

/* Reads both slots; sequence 0: neither is good. */
static enum tern_code read_slots(struct file *file, uint64_t *sequence,
                                 struct flush_mark_value *out)
{
    *sequence = 0;
    *out = (struct flush_mark_value){0};
    for (int i = 0; i < SLOTS; i++) {
        uint8_t slot[SLOT_BYTES];
        size_t got = 0;
        enum tern_code code = file_pread(file, slot, sizeof slot, (int64_t)i * SLOT_STRIDE, &got);
        if (code)
            return code;
        if (got != sizeof slot || memcmp(slot, slot_magic, sizeof slot_magic) != 0 ||
            get_be32(slot + CHECKED_BYTES) != record_body_crc(slot, CHECKED_BYTES))
            continue;
        uint64_t number = get_be64(slot + 8);
        if (number > *sequence) {
            *sequence = number;
            out->known = true;
            out->flushed = (int64_t)get_be64(slot + 16);
            out->indexed = (int64_t)get_be64(slot + 24);
        }
    }
    return TERN_OK;
}

enum tern_code flush_mark_read(const struct env *env, const char *path,
                               struct flush_mark_value *out, struct tern_error *err)
{
    *out = (struct flush_mark_value){0};
    struct file *file = NULL;
    enum tern_code code = fs_open(env->fs, path, FS_READ, &file);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    uint64_t sequence = 0;
    if (!code)
        code = read_slots(file, &sequence, out);
    if (code)
        error_set_errno(err, code, errno, "%s: cannot read", path);
    file_close(file);
    return code;
}

/* Room for both slots, so that a disk that is full later does not stand against writing them. */
static enum tern_code reserve_slots(struct file *file)
{
    enum { BYTES = (SLOTS - 1) * SLOT_STRIDE + SLOT_BYTES };
    int64_t size = 0;
    enum tern_code code = file_size(file, &size);
    return code || size >= BYTES ? code : file_reserve(file, 0, BYTES);
}

enum tern_code flush_mark_open(const struct env *env, const char *path, struct flush_mark **out,
                               struct tern_error *err)
{
    *out = NULL;
    struct flush_mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        return error_set(err, TERN_NO_MEMORY, "%s: no memory", path);
    enum tern_code code = fs_open(env->fs, path, FS_READ | FS_WRITE | FS_CREATE, &mark->file);
    struct flush_mark_value value;
    if (!code)
        code = reserve_slots(mark->file);
    if (!code)
        code = read_slots(mark->file, &mark->sequence, &value);
    if (code) {
        error_set_errno(err, code, errno, "%s: cannot open", path);
        flush_mark_close(mark);
        return code;
    }
    atomic_init(&mark->indexed, value.indexed);
    *out = mark;
    return TERN_OK;
}

void flush_mark_close(struct flush_mark *mark)
{
    if (!mark)
        return;
    file_close(mark->file);
    free(mark);
}

enum tern_code flush_mark_set(struct flush_mark *mark, int64_t flushed)
{
    uint64_t sequence = mark->sequence + 1;
    uint8_t slot[SLOT_BYTES];
    memcpy(slot, slot_magic, sizeof slot_magic);
    put_be64(slot + 8, sequence);
    put_be64(slot + 16, (uint64_t)flushed);
    put_be64(slot + 24, (uint64_t)atomic_load(&mark->indexed));
    put_be32(slot + CHECKED_BYTES, record_body_crc(slot, CHECKED_BYTES));
    int64_t at = (int64_t)(sequence % SLOTS) * SLOT_STRIDE;
    enum tern_code code = file_pwrite(mark->file, slot, sizeof slot, at);
    if (!code)
        mark->sequence = sequence;
    return code;
}

void flush_mark_set_indexed(struct flush_mark *mark, int64_t indexed)
{
    atomic_store(&mark->indexed, indexed);
}

int64_t flush_mark_indexed(const struct flush_mark *mark)
{
    return atomic_load(&mark->indexed);
}

enum tern_code flush_mark_sync(struct flush_mark *mark)
{
    return file_sync(mark->file);
}
