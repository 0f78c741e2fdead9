/*
 * Which index files there are: added when one is full, synced, expired.
 *
 * Files are ordered by name, which is the time of creation: a new one's name is always above the
 * newest one's, whatever the clock does.
 *
 * A file's way:
 *
 *   current ──full──► synced and closed ──checkpoint says so──► mark removed ──expired──► gone
 *
 * The mark goes only after the checkpoint on the disk covers the file, so a file without mark
 * beyond the checkpoint is RocketMQ's, which does not sync what it writes. The current file is
 * synced with the mark on it, by the queue flusher each minute, without keeping batches out.
 *
 * Threads: any. Locks: STORE_INDEX for the list; STORE_INDEX_SYNC keeps syncs apart, which run
 * without the former. Failure modes: codes of the disk; a failed sync is final (`failed`).
 */
#include "broker/store/index_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

enum { SECOND_DIGITS = INDEX_NAME_DIGITS - 3 };

/* ---- the list ---- */

enum tern_code index_files_add(struct index_service *index, struct index_file *file)
{
    if (index->file_count == index->file_capacity) {
        uint32_t capacity = index->file_capacity ? index->file_capacity * 2 : 8;
        struct index_file **files = realloc(index->files, capacity * sizeof(struct index_file *));
        if (!files)
            return TERN_NO_MEMORY;
        index->files = files;
        index->file_capacity = capacity;
    }
    index->files[index->file_count++] = file;
    return TERN_OK;
}

struct index_file *index_files_newest(const struct index_service *index)
{
    return index->file_count ? index->files[index->file_count - 1] : NULL;
}

/* ---- names ---- */

static void format_name(int64_t wall_ms, char name[INDEX_NAME_DIGITS + 1])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    unsigned ms = (unsigned)(wall_ms % 1000);
    localtime_r(&seconds, &tm);
    size_t len = strftime(name, INDEX_NAME_DIGITS + 1, "%Y%m%d%H%M%S", &tm);
    ENSURE(len == SECOND_DIGITS);
    name[SECOND_DIGITS] = (char)('0' + ms / 100);
    name[SECOND_DIGITS + 1] = (char)('0' + ms / 10 % 10);
    name[SECOND_DIGITS + 2] = (char)('0' + ms % 10);
    name[INDEX_NAME_DIGITS] = 0;
}

static int64_t name_time(const char *name)
{
    int year, month, day, hour, minute, second, ms;
    if (sscanf(name, "%4d%2d%2d%2d%2d%2d%3d", &year, &month, &day, &hour, &minute, &second, &ms) !=
        7)
        return 0;
    struct tm tm = {.tm_year = year - 1900,
                    .tm_mon = month - 1,
                    .tm_mday = day,
                    .tm_hour = hour,
                    .tm_min = minute,
                    .tm_sec = second,
                    .tm_isdst = -1};
    return (int64_t)mktime(&tm) * 1000 + ms;
}

/* A name for now, above `last` ("" for none) even when the clock went back or hands an hour out
 * twice. */
static void next_name(const struct index_service *index, const char *last,
                      char name[INDEX_NAME_DIGITS + 1])
{
    enum { HOUR_MS = 3600 * 1000, TRIES = 48 };
    int64_t at = clock_wall_ms(index->env->clock);
    format_name(at, name);
    for (int i = 0; i < TRIES && strcmp(name, last) <= 0; i++) {
        at = i == 0 ? name_time(last) + 1 : at + HOUR_MS;
        format_name(at, name);
    }
}

/* ---- the current file ---- */

enum tern_code index_files_current(struct index_service *index, struct index_file **out)
{
    struct index_file *last = index_files_newest(index);
    enum tern_code code = TERN_OK;
    *out = last;
    if (last && !index_file_full(last)) {
        if (!last->file)
            code =
                index_file_open(last, index->env->fs, index->dir, FS_READ | FS_WRITE, &last->file);
        return code;
    }
    char name[INDEX_NAME_DIGITS + 1];
    next_name(index, last ? last->name : "", name);
    code = fs_mkdirs(index->env->fs, index->dir);
    struct index_file *file = NULL;
    if (code == TERN_OK)
        code = index_file_create(index->env->fs, index->dir, name, index->slots, index->entries,
                                 last ? &last->header : NULL, &file);
    if (code)
        return code;
    code = index_files_add(index, file);
    if (code) {
        index_file_unref(file);
        return code;
    }
    log_info(index->env->log, "index_file_created", "name=%s files=%u", name, index->file_count);
    *out = file;
    return TERN_OK;
}

/* ---- syncing ---- */

/* The oldest file that is full and not synced, with a reference; NULL when none. */
static struct index_file *next_full(struct index_service *index)
{
    struct index_file *file = NULL;
    lock_acquire(&index->lock);
    for (uint32_t i = 0; i < index->file_count && !file; i++) {
        struct index_file *f = index->files[i];
        if (f->unfinished && !f->synced && f->file && index_file_full(f)) {
            index_file_ref(f);
            file = f;
        }
    }
    lock_release(&index->lock);
    return file;
}

/* A full file that is on the disk is closed; queries open it again. */
static void close_full(struct index_service *index, struct index_file *file)
{
    lock_acquire(&index->lock);
    struct file *handle = file->file;
    file->file = NULL;
    file->synced = true;
    lock_release(&index->lock);
    file_close(handle);
}

/* After a failed sync nothing of the file is certain: no later one may say that it is. */
static enum tern_code sync_failed(struct index_service *index, enum tern_code code)
{
    if (code)
        atomic_store(&index->failed, (int)code);
    return code;
}

enum tern_code index_files_sync_full(struct index_service *index)
{
    struct index_file *file;
    lock_acquire(&index->sync_lock);
    enum tern_code code = (enum tern_code)atomic_load(&index->failed);
    while (!code && (file = next_full(index)) != NULL) {
        code = sync_failed(index, file_sync(file->file));
        if (!code) {
            close_full(index, file);
            log_info(index->env->log, "index_file_full", "name=%s entries=%u", file->name,
                     file->header.count - 1);
        }
        index_file_unref(file);
    }
    lock_release(&index->sync_lock);
    return code;
}

/* What the current file has on its way, while batches go on. */
static enum tern_code sync_current(struct index_service *index)
{
    lock_acquire(&index->lock);
    struct index_file *last = index_files_newest(index);
    bool wanted = last && last->unfinished && !last->synced && last->file;
    if (wanted)
        index_file_ref(last);
    lock_release(&index->lock);
    enum tern_code code = wanted ? sync_failed(index, file_sync(last->file)) : TERN_OK;
    if (wanted)
        index_file_unref(last);
    return code;
}

/* Takes the mark from full files on the disk whose last entry is not newer than safe_ms. @locks
 * holds:STORE_INDEX_SYNC */
static enum tern_code seal_full(struct index_service *index, int64_t safe_ms)
{
    enum tern_code code = TERN_OK;
    struct index_file *file = NULL;
    for (uint32_t i = 0; !code && (i == 0 || file); i++) {
        lock_acquire(&index->lock);
        file = i < index->file_count ? index->files[i] : NULL;
        bool wanted = file && file->synced && file->header.end_ms <= safe_ms;
        if (file)
            index_file_ref(file);
        lock_release(&index->lock);
        if (wanted)
            code = index_file_seal(file, index->env->fs, index->dir);
        if (wanted && !code)
            file->synced = false;
        index_file_unref(file);
    }
    return sync_failed(index, code);
}

/* Store time of the last entry of the newest file that is full and on the disk. */
static int64_t full_ms(struct index_service *index)
{
    int64_t ms = 0;
    lock_acquire(&index->lock);
    for (uint32_t i = 0; i < index->file_count; i++) {
        const struct index_file *file = index->files[i];
        if (file->synced || !file->unfinished)
            ms = file->header.end_ms;
    }
    lock_release(&index->lock);
    return ms;
}

enum tern_code index_service_sync(struct index_service *index, int64_t noted_ms, int64_t *safe_ms,
                                  struct tern_error *err)
{
    *safe_ms = 0;
    if (index->read_only)
        return TERN_OK;
    enum tern_code code = index_apply(index);
    if (!code)
        code = index_files_sync_full(index);
    lock_acquire(&index->sync_lock);
    if (!code)
        code = sync_current(index);
    if (!code)
        code = seal_full(index, noted_ms);
    *safe_ms = full_ms(index);
    lock_release(&index->sync_lock);
    return code ? error_set_errno(err, code, errno, "writing the index in %s", index->dir)
                : TERN_OK;
}

enum tern_code index_service_finish(struct index_service *index, int64_t *safe_ms,
                                    struct tern_error *err)
{
    enum tern_code code = index_service_sync(index, INT64_MAX, safe_ms, err);
    if (code || index->read_only)
        return code;
    lock_acquire(&index->lock); /* no batch comes any more */
    struct index_file *last = index_files_newest(index);
    if (last && last->unfinished)
        code = sync_failed(index, index_file_seal(last, index->env->fs, index->dir));
    if (!code && last)
        *safe_ms = last->header.end_ms;
    lock_release(&index->lock);
    return code ? error_set_errno(err, code, errno, "writing the index in %s", index->dir)
                : TERN_OK;
}

/* ---- range and expiry ---- */

void index_service_range(struct index_service *index, int64_t *begin_ms, int64_t *end_ms,
                         int64_t *end_phys)
{
    lock_acquire(&index->lock);
    *begin_ms = index->file_count ? index->files[0]->header.begin_ms : 0;
    uint64_t tail = atomic_load(&index->tail);
    if (*begin_ms == 0 && atomic_load(&index->head) != tail)
        *begin_ms = index->ring[tail & (index->ring_keys - 1)].store_ms;
    lock_release(&index->lock);
    *end_ms = *begin_ms ? atomic_load(&index->last_ms) : 0;
    int64_t last = atomic_load_explicit(&index->last_phys, memory_order_acquire);
    *end_phys = last < 0 ? 0 : last;
}

enum tern_code index_files_remove(const struct index_service *index, const char *name,
                                  const char *cause)
{
    char path[FS_PATH_BYTES];
    enum tern_code code = fs_join(path, index->dir, name);
    if (code)
        return code;
    log_warn(index->env->log, "index_file_removed", "path=%s cause=%s", path, cause);
    code = fs_unlink(index->env->fs, path);
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

/* Takes the oldest file off the list if the log has lost all that it indexes; never the last. */
static struct index_file *take_expired(struct index_service *index, int64_t log_min)
{
    struct index_file *file = NULL;
    lock_acquire(&index->lock);
    if (index->file_count > 1 && index->files[0]->header.end_phys < log_min) {
        file = index->files[0];
        index->file_count--;
        memmove(index->files, index->files + 1, index->file_count * sizeof(struct index_file *));
    }
    lock_release(&index->lock);
    return file;
}

enum tern_code index_service_expire(struct index_service *index, int64_t log_min,
                                    struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    struct index_file *file;
    if (index->read_only)
        return TERN_OK;
    while (!code && (file = take_expired(index, log_min)) != NULL) {
        code = index_files_remove(index, file->name, "expired");
        index_file_unref(file);
    }
    if (code)
        error_set_errno(err, code, errno, "expiring index files in %s", index->dir);
    return code;
}
