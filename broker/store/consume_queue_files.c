/*
 * A consume queue's files: consumequeue/TOPIC/QUEUE/%020d, of equal length, sparse, 20 bytes a
 * unit.
 *
 * Everything that this part of the store does to the disk is here: writing units, beginning a queue
 * (the room before its first unit is filled with blank units, as RocketMQ wants it), cutting,
 * syncing, finding the first unit that is still in the log, and removing what lies before it.
 *
 * Durability: a file, its folders and its content become durable together at queue_sync(); until
 * then the log can rebuild them. So creating a queue costs no sync. A cut is made by shrinking the
 * file to the cut and growing it again, which leaves zeros, wherever stale units may have been.
 *
 * Threads: as said at each function; the fields are read and set under queue->lock, never during
 * I/O. Failure modes: the codes of fs.h, errno kept. A failed write leaves the range undefined but
 * unpublished.
 */
#include "broker/store/consume_queue_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLANK_CHUNK_UNITS = 1024 };

/* ---- names ---- */

bool queue_dir_path(const struct consume_queue *queue, char out[FS_PATH_BYTES])
{
    int len = snprintf(out, FS_PATH_BYTES, "%s/%s/%d", queue->table->dir, queue->topic->name,
                       queue->queue_id);
    return len > 0 && len < FS_PATH_BYTES;
}

bool queue_file_path(const struct consume_queue *queue, int64_t start, char out[FS_PATH_BYTES])
{
    int len = snprintf(out, FS_PATH_BYTES, "%s/%s/%d/%020lld", queue->table->dir,
                       queue->topic->name, queue->queue_id, (long long)start);
    return len > 0 && len < FS_PATH_BYTES;
}

static int64_t file_start_of(const struct consume_queue *queue, int64_t offset)
{
    int64_t byte = offset * QUEUE_UNIT_BYTES;
    return byte - byte % queue->table->file_bytes;
}

/* ---- opening ---- */

static enum tern_code open_file(struct consume_queue *queue, int64_t start, unsigned flags,
                                struct cached_file **out)
{
    struct queue_table *table = queue->table;
    struct file_key key = {queue->serial, start};
    char path[FS_PATH_BYTES];
    *out = file_cache_find(table->files, key);
    if (*out)
        return TERN_OK;
    if (!queue_file_path(queue, start, path)) {
        errno = ENAMETOOLONG;
        return TERN_TOO_LARGE;
    }
    flags |= table->read_only ? FS_READ : FS_READ | FS_WRITE;
    return file_cache_open(table->files, key, path, flags, out);
}

/* The queue's folder and those above. */
static enum tern_code make_dirs(struct consume_queue *queue)
{
    struct fs *fs = queue->table->env->fs;
    char path[FS_PATH_BYTES];
    if (!queue_dir_path(queue, path)) {
        errno = ENAMETOOLONG;
        return TERN_TOO_LARGE;
    }
    enum tern_code code = fs_mkdir(fs, path);
    if (code == TERN_NOT_FOUND) {
        char topic[FS_PATH_BYTES];
        if ((code = fs_join(topic, queue->table->dir, queue->topic->name)) != TERN_OK)
            return code;
        code = fs_mkdir(fs, topic);
        if (code == TERN_NOT_FOUND && (code = fs_mkdirs(fs, queue->table->dir)) == TERN_OK)
            code = fs_mkdir(fs, topic);
        if (code == TERN_OK || code == TERN_EXISTS)
            code = fs_mkdir(fs, path);
    }
    return code == TERN_EXISTS ? TERN_OK : code;
}

/* The file with room for its units, created when it is the next one. @locks holds:io_lock */
static enum tern_code open_for_write(struct consume_queue *queue, int64_t start,
                                     struct cached_file **out)
{
    int64_t file_bytes = queue->table->file_bytes;
    lock_acquire(&queue->lock);
    bool present = start < queue->file_end;
    lock_release(&queue->lock);
    if (present)
        return open_file(queue, start, 0, out);
    enum tern_code code = make_dirs(queue);
    if (code || (code = open_file(queue, start, FS_CREATE, out)) != TERN_OK)
        return code;
    code = file_truncate(cached_file_handle(*out), file_bytes);
    if (code) {
        int saved = errno;
        file_cache_unref(queue->table->files, *out);
        errno = saved;
        return code;
    }
    lock_acquire(&queue->lock);
    queue->file_end = start + file_bytes;
    queue->dirs_dirty = true;
    lock_release(&queue->lock);
    return TERN_OK;
}

/* ---- units ---- */

enum tern_code queue_read_raw(struct consume_queue *queue, int64_t offset, uint8_t *raw,
                              uint32_t count, bool nowait, uint32_t *got)
{
    int64_t start = file_start_of(queue, offset);
    int64_t at = offset * QUEUE_UNIT_BYTES - start;
    int64_t left = (queue->table->file_bytes - at) / QUEUE_UNIT_BYTES;
    *got = 0;
    if (count > left)
        count = (uint32_t)left;
    struct cached_file *file;
    enum tern_code code = open_file(queue, start, 0, &file);
    if (code)
        return code;
    size_t size = (size_t)count * QUEUE_UNIT_BYTES;
    size_t read = 0;
    code = nowait ? file_pread_nowait(cached_file_handle(file), raw, size, at, &read)
                  : file_pread(cached_file_handle(file), raw, size, at, &read);
    file_cache_unref(queue->table->files, file);
    if (code == TERN_OK && nowait && read > 0 && read < QUEUE_UNIT_BYTES)
        code = TERN_AGAIN;
    *got = code ? 0 : (uint32_t)(read / QUEUE_UNIT_BYTES);
    return code;
}

static void mark_dirty(struct consume_queue *queue, int64_t start)
{
    lock_acquire(&queue->lock);
    if (queue->dirty_from < 0 || start < queue->dirty_from)
        queue->dirty_from = start;
    lock_release(&queue->lock);
}

void queue_distrust(struct consume_queue *queue, int64_t offset)
{
    lock_acquire(&queue->lock);
    bool in_files = queue->file_first >= 0;
    queue->dirs_dirty |= in_files;
    lock_release(&queue->lock);
    if (!in_files)
        return;
    mark_dirty(queue, file_start_of(queue, offset));
    queue_table_touch(queue->table, queue);
}

enum tern_code queue_write_raw(struct consume_queue *queue, int64_t offset, const uint8_t *raw,
                               uint32_t count)
{
    while (count > 0 && !consume_queue_dead(queue)) {
        int64_t start = file_start_of(queue, offset);
        int64_t at = offset * QUEUE_UNIT_BYTES - start;
        int64_t left = (queue->table->file_bytes - at) / QUEUE_UNIT_BYTES;
        uint32_t n = count < left ? count : (uint32_t)left;
        struct cached_file *file;
        enum tern_code code = open_for_write(queue, start, &file);
        if (code)
            return code;
        code = file_pwrite(cached_file_handle(file), raw, (size_t)n * QUEUE_UNIT_BYTES, at);
        int saved = errno;
        file_cache_unref(queue->table->files, file);
        errno = saved;
        mark_dirty(queue, start);
        if (code)
            return code;
        offset += n;
        raw += (size_t)n * QUEUE_UNIT_BYTES;
        count -= n;
    }
    return TERN_OK;
}

/* ---- removing files ---- */

static enum tern_code remove_file(struct consume_queue *queue, int64_t start)
{
    char path[FS_PATH_BYTES];
    file_cache_forget(queue->table->files, (struct file_key){queue->serial, start});
    if (!queue_file_path(queue, start, path))
        return TERN_TOO_LARGE;
    enum tern_code code = fs_unlink(queue->table->env->fs, path);
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

/* Removes the files from byte `from` on, last first. @locks holds:io_lock */
static enum tern_code remove_files_from(struct consume_queue *queue, int64_t from)
{
    for (;;) {
        lock_acquire(&queue->lock);
        int64_t last = queue->file_end - queue->table->file_bytes;
        bool none = queue->file_first < 0 || last < from || last < queue->file_first;
        lock_release(&queue->lock);
        if (none)
            return TERN_OK;
        enum tern_code code = remove_file(queue, last);
        if (code)
            return code;
        lock_acquire(&queue->lock);
        queue->file_end = last;
        queue->dirs_dirty = true;
        lock_release(&queue->lock);
    }
}

/* ---- beginning and cutting ---- */

static enum tern_code fill_blanks(struct consume_queue *queue, int64_t from, int64_t end)
{
    uint8_t raw[BLANK_CHUNK_UNITS * QUEUE_UNIT_BYTES];
    const struct queue_unit filler = {.phys_off = 0, .size = QUEUE_FILLER_SIZE, .tags_code = 0};
    for (uint32_t i = 0; i < BLANK_CHUNK_UNITS; i++)
        queue_unit_encode(raw + (size_t)i * QUEUE_UNIT_BYTES, &filler);
    while (from < end) {
        uint32_t n = end - from < BLANK_CHUNK_UNITS ? (uint32_t)(end - from) : BLANK_CHUNK_UNITS;
        enum tern_code code = queue_write_raw(queue, from, raw, n);
        if (code)
            return code;
        from += n;
    }
    return TERN_OK;
}

enum tern_code queue_begin(struct consume_queue *queue, int64_t offset)
{
    int64_t start = file_start_of(queue, offset);
    lock_acquire(&queue->io_lock);
    if (consume_queue_dead(queue)) { /* its files may be another's by now */
        lock_release(&queue->io_lock);
        return TERN_OK;
    }
    lock_acquire(&queue->lock);
    bool same_file =
        queue->file_first == start && queue->file_end <= start + queue->table->file_bytes;
    lock_release(&queue->lock);
    enum tern_code code = same_file ? TERN_OK : remove_files_from(queue, 0);
    if (code == TERN_OK) {
        lock_acquire(&queue->lock);
        if (!same_file)
            queue->file_first = queue->file_end = start;
        lock_release(&queue->lock);
        code = fill_blanks(queue, start / QUEUE_UNIT_BYTES, offset);
    }
    if (code == TERN_OK) {
        lock_acquire(&queue->lock);
        queue->written = queue->ring_first = offset;
        atomic_store_explicit(&queue->min, offset, memory_order_release);
        atomic_store_explicit(&queue->max, offset, memory_order_release);
        lock_release(&queue->lock);
    }
    lock_release(&queue->io_lock);
    return code;
}

/* Zeros the file from byte `at` of it on. @locks holds:io_lock */
static enum tern_code zero_tail(struct consume_queue *queue, int64_t start, int64_t at)
{
    struct cached_file *file;
    enum tern_code code = open_file(queue, start, 0, &file);
    if (code)
        return code;
    code = file_truncate(cached_file_handle(file), at);
    if (code == TERN_OK)
        code = file_truncate(cached_file_handle(file), queue->table->file_bytes);
    int saved = errno;
    file_cache_unref(queue->table->files, file);
    errno = saved;
    mark_dirty(queue, start);
    return code;
}

enum tern_code queue_cut(struct consume_queue *queue, int64_t offset)
{
    int64_t end = offset * QUEUE_UNIT_BYTES;
    enum tern_code code = TERN_OK;
    lock_acquire(&queue->io_lock);
    if (consume_queue_dead(queue)) {
        lock_release(&queue->io_lock);
        return TERN_OK;
    }
    lock_acquire(&queue->lock);
    int64_t first = queue->file_first;
    int64_t file_end = queue->file_end;
    bool nothing_left = offset <= atomic_load_explicit(&queue->min, memory_order_relaxed);
    if (offset < queue->written)
        queue->written = offset;
    if (offset < queue->ring_first)
        queue->ring_first = offset;
    atomic_store_explicit(&queue->max, offset, memory_order_release);
    if (nothing_left) {
        atomic_store_explicit(&queue->min, offset, memory_order_release);
        queue->empty = true;
        queue->last_phys = -1;
    }
    lock_release(&queue->lock);
    if (first >= 0 && end < first) {
        code = remove_files_from(queue, 0); /* begins anew before all it had */
    } else if (first >= 0 && file_end > first) {
        int64_t last = end > first ? file_start_of(queue, (end - 1) / QUEUE_UNIT_BYTES) : first;
        code = remove_files_from(queue, last + queue->table->file_bytes);
        if (code == TERN_OK && last < file_end)
            code = zero_tail(queue, last, end - last);
    }
    lock_release(&queue->io_lock);
    return code;
}

/* ---- syncing ---- */

static enum tern_code sync_file(struct consume_queue *queue, int64_t start)
{
    struct cached_file *file;
    enum tern_code code = open_file(queue, start, 0, &file);
    if (code == TERN_NOT_FOUND) { /* expired, cut or deleted since */
        lock_acquire(&queue->lock);
        bool gone = queue->dead || start < queue->file_first || start >= queue->file_end;
        lock_release(&queue->lock);
        return gone ? TERN_OK : code;
    }
    if (code)
        return code;
    code = file_sync(cached_file_handle(file));
    int saved = errno;
    file_cache_unref(queue->table->files, file);
    errno = saved;
    return code;
}

/* The folder's own entries and its entry in the topic's. */
static enum tern_code sync_dirs(struct consume_queue *queue)
{
    struct fs *fs = queue->table->env->fs;
    char path[FS_PATH_BYTES];
    if (!queue_dir_path(queue, path))
        return TERN_TOO_LARGE;
    enum tern_code code = fs_sync_dir(fs, path);
    if (code == TERN_OK && (code = fs_join(path, queue->table->dir, queue->topic->name)) == TERN_OK)
        code = fs_sync_dir(fs, path);
    return code == TERN_NOT_FOUND ? TERN_OK : code; /* deleted since, or never made */
}

enum tern_code queue_sync(struct consume_queue *queue)
{
    lock_acquire(&queue->lock);
    int64_t from = queue->dirty_from;
    int64_t end = queue->file_end;
    bool dirs = queue->dirs_dirty;
    int64_t at = from > queue->file_first ? from : queue->file_first;
    queue->dirty_from = -1;
    queue->dirs_dirty = false;
    lock_release(&queue->lock);
    enum tern_code code = TERN_OK;
    for (; from >= 0 && at < end && code == TERN_OK; at += queue->table->file_bytes)
        code = sync_file(queue, at);
    if (code == TERN_OK && dirs)
        code = sync_dirs(queue);
    if (code) { /* not synced: the next one must not say so */
        lock_acquire(&queue->lock);
        if (from >= 0 && (queue->dirty_from < 0 || from < queue->dirty_from))
            queue->dirty_from = from;
        queue->dirs_dirty |= dirs;
        lock_release(&queue->lock);
    }
    return code;
}

/* ---- expiry ---- */

/* Whether the unit's record is no longer in the log. A hole (zeros) is not: a replay fills it. */
static enum tern_code unit_expired(struct consume_queue *queue, int64_t offset, int64_t log_min,
                                   bool *expired)
{
    struct queue_unit unit;
    uint32_t got = 0;
    enum tern_code code = consume_queue_read(queue, offset, &unit, 1, false, &got);
    *expired =
        got == 1 && unit.size > 0 && (queue_unit_is_filler(&unit) || unit.phys_off < log_min);
    return code;
}

enum tern_code queue_find_min(struct consume_queue *queue, int64_t log_min, int64_t *min)
{
    int64_t low = consume_queue_min(queue); /* below: expired */
    int64_t max = consume_queue_max(queue);
    int64_t high = max; /* from here on: not */
    int64_t units = queue->table->file_bytes / QUEUE_UNIT_BYTES;
    bool expired = false;
    enum tern_code code = low < max ? unit_expired(queue, low, log_min, &expired) : TERN_OK;
    *min = low;
    if (code || !expired)
        return code;
    low++;
    while (low < high) { /* whole files first: each look at a far unit is a read of the disk */
        int64_t last = low - low % units + units - 1;
        if (last >= high)
            break;
        if ((code = unit_expired(queue, last, log_min, &expired)) != TERN_OK)
            return code;
        if (!expired) {
            high = last;
            break;
        }
        low = last + 1;
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((code = unit_expired(queue, middle, log_min, &expired)) != TERN_OK)
            return code;
        if (expired)
            low = middle + 1;
        else
            high = middle;
    }
    *min = low;
    return TERN_OK;
}

/* Everything that is known of the queue, with the folders above it. */
static enum tern_code make_durable(struct consume_queue *queue)
{
    lock_acquire(&queue->lock);
    bool dirs = queue->dirs_dirty;
    lock_release(&queue->lock);
    enum tern_code code = queue_write_out(queue);
    if (code == TERN_OK)
        code = queue_sync(queue);
    if (code == TERN_OK && dirs)
        code = fs_sync_dir(queue->table->env->fs, queue->table->dir);
    return code;
}

enum tern_code queue_remove_expired(struct consume_queue *queue)
{
    int64_t file_bytes = queue->table->file_bytes;
    enum tern_code code = TERN_OK;
    bool first = true;
    for (;;) {
        lock_acquire(&queue->lock);
        int64_t start = queue->file_first;
        int64_t min = atomic_load_explicit(&queue->min, memory_order_relaxed);
        bool removable = !queue->dead && start >= 0 && start + 2 * file_bytes <= queue->file_end &&
                         start + file_bytes <= min * QUEUE_UNIT_BYTES;
        if (removable && !first)
            queue->file_first = start + file_bytes;
        lock_release(&queue->lock);
        if (!removable)
            break;
        /* What remains must be on the disk first, or a power loss could leave no trace of the
         * offsets. */
        code = first ? make_durable(queue) : remove_file(queue, start);
        if (code)
            return code;
        first = false;
    }
    if (!first) {
        lock_acquire(&queue->lock);
        queue->dirs_dirty = true;
        lock_release(&queue->lock);
        queue_table_touch(queue->table, queue);
    }
    return code;
}
