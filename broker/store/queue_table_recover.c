/*
 * Finding the consume queues of a store at its start.
 *
 * Per queue the files are listed, and the end of the valid units is found in the last one that has
 * any, by bisection: one read for a short queue, a handful for a long one. A unit is valid when its
 * size is positive and its record ends at or before the log's end, or when it is filler
 * (facts 3.2). 20,000 short queues take about 0.4 s after a clean stop and 3 s after a crash, when
 * each is cut.
 *
 * After an unclean stop a file may have holes where pages did not reach the disk, with old units
 * behind them. Bisection may stop at either side of a hole: if before it, the replay writes the
 * rest again; if behind it, the replay mends the hole, since everything unsynced is replayed. What
 * must not survive is a unit beyond the end that was found: a later recovery could believe it. So
 * each queue is cut there, and the cuts are synced before the store takes new messages. After a
 * clean stop (queue_table_assume_synced()) a queue is cut only when a unit stands behind its end.
 *
 * Threads: one, nobody else uses the table. Failure modes: files that do not fit the configured
 * length are TERN_CORRUPT with a text that names file and setting; nothing is deleted then. A
 * shorter one was created just before a power loss and is lengthened.
 */
#include "broker/store/consume_queue_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/names.h"
#include "broker/store/dir_names.h"

enum { RECOVER_CHUNK_UNITS = 204 };

struct recover {
    struct queue_table *table;
    int64_t log_min, log_end;
    int64_t max_phys;
    struct tern_error *err;
};

/* ---- one queue's files ---- */

/* Sets file_first and file_end to the last run of files without a gap. */
static enum tern_code find_files(struct recover *r, struct consume_queue *queue, const char *path)
{
    const struct queue_table *table = r->table;
    struct dir_names names;
    int64_t end = -1; /* of the file before */
    enum tern_code code = dir_names_list(table->env->fs, path, &names);
    for (size_t i = 0; !code && i < names.count; i++) {
        const char *name = names.items[i].name;
        int64_t start;
        if (names.items[i].is_dir)
            continue;
        if (!dir_name_number(name, OFFSET_NAME_DIGITS, QUEUE_OFFSET_MAX * QUEUE_UNIT_BYTES,
                             &start)) {
            log_warn(table->env->log, "queue_file_ignored", "path=%s/%s cause=name", path, name);
            continue;
        }
        if (start % table->file_bytes != 0) {
            code = error_set(r->err, TERN_CORRUPT,
                             "%s/%s does not begin a file of mappedFileSizeConsumeQueue %lld "
                             "bytes; set the key to the length this store was made with",
                             path, name, (long long)table->file_bytes);
            break;
        }
        if (end >= 0 && start != end)
            log_warn(table->env->log, "queue_files_have_gap", "path=%s before=%lld", path,
                     (long long)start);
        if (start != end)
            queue->file_first = start;
        end = queue->file_end = start + table->file_bytes;
    }
    dir_names_fini(&names);
    return code;
}

/* The length is right, or made right when a file's lengthening did not reach the disk. */
static enum tern_code check_length(struct recover *r, struct consume_queue *queue, int64_t start)
{
    struct queue_table *table = r->table;
    char path[FS_PATH_BYTES];
    struct cached_file *cached;
    int64_t size = 0;
    if (!queue_file_path(queue, start, path))
        return error_set(r->err, TERN_TOO_LARGE, "path of consume queue %s/%d", queue->topic->name,
                         queue->queue_id);
    unsigned flags = table->read_only ? FS_READ : FS_READ | FS_WRITE;
    struct file_key key = {queue->serial, start};
    enum tern_code code = file_cache_open(table->files, key, path, flags, &cached);
    if (code)
        return error_set_errno(r->err, code, errno, "opening %s", path);
    code = file_size(cached_file_handle(cached), &size);
    if (code == TERN_OK && size < table->file_bytes && !table->read_only) {
        code = file_truncate(cached_file_handle(cached), table->file_bytes);
        size = table->file_bytes;
    }
    int saved = errno;
    file_cache_unref(table->files, cached);
    if (code)
        return error_set_errno(r->err, code, saved, "sizing %s", path);
    if (size > table->file_bytes)
        return error_set(
            r->err, TERN_CORRUPT,
            "%s has %lld bytes, mappedFileSizeConsumeQueue says %lld; set the key to the "
            "length this store was made with",
            path, (long long)size, (long long)table->file_bytes);
    return TERN_OK;
}

/* ---- the end of the valid units ---- */

static bool unit_valid(const struct recover *r, const struct queue_unit *unit)
{
    return queue_unit_is_filler(unit) ||
           (unit->size > 0 && unit->phys_off >= 0 && unit->phys_off <= r->log_end - unit->size);
}

/* How many of up to `count` units from `offset` on, read at once, are valid without interruption.
 */
static enum tern_code count_valid(struct recover *r, struct consume_queue *queue, int64_t offset,
                                  uint32_t count, uint32_t *valid, struct queue_unit *last)
{
    uint8_t raw[RECOVER_CHUNK_UNITS * QUEUE_UNIT_BYTES];
    uint32_t got = 0;
    *valid = 0;
    enum tern_code code = queue_read_raw(queue, offset, raw, count, false, &got);
    while (code == TERN_OK && *valid < got) {
        struct queue_unit unit;
        queue_unit_decode(&unit, raw + (size_t)*valid * QUEUE_UNIT_BYTES);
        if (!unit_valid(r, &unit))
            break;
        *last = unit;
        ++*valid;
    }
    return code;
}

/* In the file at `start`: *end is the offset behind its last valid unit, which is *last. */
static enum tern_code find_end_in_file(struct recover *r, struct consume_queue *queue,
                                       int64_t start, int64_t *end, struct queue_unit *last)
{
    int64_t low = start / QUEUE_UNIT_BYTES;
    int64_t high = low + r->table->file_bytes / QUEUE_UNIT_BYTES; /* at or behind the end */
    uint32_t want = RECOVER_CHUNK_UNITS;
    uint32_t valid = 0;
    enum tern_code code = count_valid(r, queue, low, want, &valid, last);
    low += valid;
    *end = low;
    if (code || valid < want || low == high)
        return code;
    while (high - low > RECOVER_CHUNK_UNITS) {
        int64_t middle = low + (high - low) / 2;
        struct queue_unit unit;
        if ((code = count_valid(r, queue, middle, 1, &valid, &unit)) != TERN_OK)
            return code;
        if (valid) {
            *last = unit;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    code = high > low ? count_valid(r, queue, low, (uint32_t)(high - low), &valid, last) : TERN_OK;
    *end = low + (high > low ? valid : 0);
    return code;
}

/* Whether a unit stands right behind the end. */
static enum tern_code something_behind(struct consume_queue *queue, int64_t end, bool *found)
{
    static const uint8_t zeros[QUEUE_UNIT_BYTES];
    uint8_t raw[QUEUE_UNIT_BYTES];
    uint32_t got = 0;
    *found = false;
    if (end * QUEUE_UNIT_BYTES >= queue->file_end)
        return TERN_OK;
    enum tern_code code = queue_read_raw(queue, end, raw, 1, false, &got);
    *found = code == TERN_OK && got == 1 && memcmp(raw, zeros, sizeof raw) != 0;
    return code;
}

static enum tern_code set_bounds(struct recover *r, struct consume_queue *queue, int64_t end,
                                 const struct queue_unit *last)
{
    bool real = last->size > 0 && !queue_unit_is_filler(last);
    int64_t first = queue->file_first / QUEUE_UNIT_BYTES;
    queue->written = queue->ring_first = end;
    queue->empty = !real;
    queue->last_phys = real ? last->phys_off : -1;
    atomic_store_explicit(&queue->max, end, memory_order_release);
    atomic_store_explicit(&queue->min, real ? first : end, memory_order_release);
    if (!real)
        return TERN_OK;
    if (last->phys_off + last->size > r->max_phys)
        r->max_phys = last->phys_off + last->size;
    int64_t min = first;
    enum tern_code code = queue_find_min(queue, r->log_min, &min);
    atomic_store_explicit(&queue->min, min, memory_order_release);
    return code;
}

static enum tern_code find_end(struct recover *r, struct consume_queue *queue)
{
    int64_t file_bytes = r->table->file_bytes;
    struct queue_unit last = {0};
    int64_t end = 0;
    enum tern_code code = TERN_OK;
    int64_t start = queue->file_end - file_bytes;
    for (;; start -= file_bytes) {
        if ((code = check_length(r, queue, start)) != TERN_OK)
            return code;
        code = find_end_in_file(r, queue, start, &end, &last);
        if (code || end > start / QUEUE_UNIT_BYTES || start == queue->file_first)
            break;
    }
    bool behind = start + file_bytes < queue->file_end;
    if (code == TERN_OK && !behind)
        code = something_behind(queue, end, &behind);
    if (code == TERN_OK)
        code = set_bounds(r, queue, end, &last);
    if (code == TERN_OK && !r->table->read_only && (behind || !r->table->synced)) {
        bool empty = queue->empty;
        int64_t last_phys = queue->last_phys;
        code = queue_cut(queue, end);
        queue->empty = empty; /* the cut takes a queue that is wholly expired for an empty one */
        queue->last_phys = last_phys;
        queue_table_touch(r->table, queue);
    }
    if (code)
        error_set_errno(r->err, code, errno, "recovering consume queue %s/%d", queue->topic->name,
                        queue->queue_id);
    return code;
}

/* ---- all queues ---- */

static enum tern_code recover_queue(struct recover *r, const char *topic, const char *path,
                                    const char *name)
{
    struct queue_table *table = r->table;
    char dir[FS_PATH_BYTES];
    int64_t queue_id;
    struct consume_queue *queue = NULL;
    if (!dir_name_number(name, 0, INT32_MAX, &queue_id)) {
        log_warn(table->env->log, "queue_folder_ignored", "path=%s/%s cause=name", path, name);
        return TERN_OK;
    }
    enum tern_code code = fs_join(dir, path, name);
    if (code == TERN_OK)
        code = queue_table_ref(table, topic, strlen(topic), (int32_t)queue_id, &queue);
    if (code == TERN_OK)
        code = find_files(r, queue, dir);
    if (code && code != TERN_CORRUPT) /* that one has its text */
        code = error_set_errno(r->err, code, errno, "reading %s/%s", path, name);
    if (code == TERN_OK && queue->file_first >= 0)
        code = find_end(r, queue);
    consume_queue_unref(queue);
    return code;
}

static enum tern_code recover_topic(struct recover *r, const char *topic)
{
    struct queue_table *table = r->table;
    char path[FS_PATH_BYTES];
    struct dir_names queues;
    enum tern_code code = fs_join(path, table->dir, topic);
    if (code)
        return error_set(r->err, code, "path of topic %s", topic);
    if (strncmp(topic, QUEUE_TABLE_DELETED_PREFIX, strlen(QUEUE_TABLE_DELETED_PREFIX)) == 0)
        return table->read_only ? TERN_OK : queue_table_remove_dir(table, path);
    if (topic_name_check(topic, strlen(topic), NULL)) {
        log_warn(table->env->log, "queue_folder_ignored", "path=%s cause=name", path);
        return TERN_OK;
    }
    code = dir_names_list(table->env->fs, path, &queues);
    if (code)
        code = error_set_errno(r->err, code, errno, "listing %s", path);
    for (size_t i = 0; !code && i < queues.count; i++)
        if (queues.items[i].is_dir)
            code = recover_queue(r, topic, path, queues.items[i].name);
    dir_names_fini(&queues);
    return code;
}

enum tern_code queue_table_recover(struct queue_table *table, int64_t log_min, int64_t log_end,
                                   int64_t *max_phys, struct tern_error *err)
{
    struct recover r = {.table = table, .log_min = log_min, .log_end = log_end, .err = err};
    struct dir_names topics;
    enum tern_code code = dir_names_list(table->env->fs, table->dir, &topics);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK; /* a new store */
    else if (code)
        error_set_errno(err, code, errno, "listing %s", table->dir);
    for (size_t i = 0; !code && i < topics.count; i++)
        if (topics.items[i].is_dir)
            code = recover_topic(&r, topics.items[i].name);
    dir_names_fini(&topics);
    if (code == TERN_OK)
        code = queue_table_flush(table, true, err);
    *max_phys = r.max_phys;
    return code;
}

void queue_table_assume_synced(struct queue_table *table)
{
    table->synced = true;
}

/* ---- removing a deleted topic's folder ---- */

static enum tern_code remove_entries(struct fs *fs, const char *path, bool dirs)
{
    struct dir_names names;
    enum tern_code code = dir_names_list(fs, path, &names);
    for (size_t i = 0; !code && i < names.count; i++) {
        char entry[FS_PATH_BYTES];
        if (names.items[i].is_dir != dirs)
            continue;
        code = fs_join(entry, path, names.items[i].name);
        if (code)
            break;
        if (dirs && (code = remove_entries(fs, entry, false)) == TERN_OK)
            code = fs_rmdir(fs, entry);
        else if (!dirs)
            code = fs_unlink(fs, entry);
    }
    dir_names_fini(&names);
    return code;
}

enum tern_code queue_table_remove_dir(struct queue_table *table, const char *path)
{
    enum tern_code code = remove_entries(table->env->fs, path, true);
    return code ? code : fs_rmdir(table->env->fs, path);
}
