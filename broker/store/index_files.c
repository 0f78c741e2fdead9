/*
 * Which index files there are: found at the start, added when one is full, sealed, expired and cut.
 *
 * Files are ordered by name, which is the time of creation: a new one's name is always above the
 * newest one's, whatever the clock does.
 *
 * Recovery after a crash keeps what is known to be whole: files without the unfinished mark whose
 * last entry is not newer than the checkpoint. The rest is removed and built again by the replay,
 * so that a crash during a change of files leaves no orphan.
 *
 * Threads: any. Lock: STORE_INDEX; sealing syncs without it. Failure modes: codes of the disk. A
 * file that does not fit the options or its own header is never used; after a crash it is removed,
 * else left alone unless it is ours and unfinished.
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

static struct index_file *newest(const struct index_service *index)
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

static bool is_name(const char *name)
{
    return strlen(name) == INDEX_NAME_DIGITS && strspn(name, "0123456789") == INDEX_NAME_DIGITS;
}

/* ---- the current file ---- */

enum tern_code index_files_current(struct index_service *index, struct index_file **out)
{
    struct index_file *last = newest(index);
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

/* ---- sealing ---- */

/* The oldest full file that is not sealed, with a reference, and its header; NULL when none. */
static struct index_file *next_to_seal(struct index_service *index, struct index_header *header)
{
    struct index_file *file = NULL;
    lock_acquire(&index->lock);
    while (!file && index->sealed_count < index->file_count) {
        struct index_file *f = index->files[index->sealed_count];
        if (!index_file_full(f))
            break;
        if (f->unfinished && f->file) {
            index_file_ref(f);
            *header = f->header;
            file = f;
        } else {
            index->sealed_count++;
        }
    }
    lock_release(&index->lock);
    return file;
}

/* Full files are not written any more: they are closed, queries open them again. */
static void after_seal(struct index_service *index, struct index_file *file, bool sealed)
{
    struct file *handle = NULL;
    lock_acquire(&index->lock);
    if (sealed) {
        file->unfinished = false;
        handle = file->file;
        file->file = NULL;
    }
    lock_release(&index->lock);
    file_close(handle);
    index_file_unref(file);
}

enum tern_code index_files_seal_full(struct index_service *index)
{
    struct index_header header;
    struct index_file *file;
    enum tern_code code = TERN_OK;
    lock_acquire(&index->seal_lock);
    while (code == TERN_OK && (file = next_to_seal(index, &header)) != NULL) {
        code = index_file_seal(file, &header);
        if (code == TERN_OK)
            log_info(index->env->log, "index_file_full", "name=%s entries=%u", file->name,
                     header.count - 1);
        after_seal(index, file, code == TERN_OK);
    }
    lock_release(&index->seal_lock);
    return code;
}

/* The most of what the current file has to sync, while batches go on. @locks holds:seal_lock */
static enum tern_code presync_current(struct index_service *index)
{
    lock_acquire(&index->lock);
    struct index_file *last = newest(index);
    bool wanted = last && last->unfinished && last->file && !index_file_full(last);
    if (wanted)
        index_file_ref(last);
    lock_release(&index->lock);
    enum tern_code code = wanted ? file_sync(last->file) : TERN_OK;
    if (wanted)
        index_file_unref(last);
    return code;
}

enum tern_code index_service_flush(struct index_service *index, int64_t *safe_ms,
                                   struct tern_error *err)
{
    *safe_ms = 0;
    if (index->read_only)
        return TERN_OK;
    enum tern_code code = index_apply(index);
    if (code == TERN_OK)
        code = index_files_seal_full(index);
    lock_acquire(&index->seal_lock);
    if (code == TERN_OK)
        code = presync_current(index);
    lock_acquire(&index->lock); /* no batch may come between the last sync and the header */
    struct index_file *last = newest(index);
    if (code == TERN_OK && last && last->unfinished && last->file) {
        code = index_file_seal(last, &last->header);
        if (code == TERN_OK)
            last->unfinished = false;
    }
    if (code == TERN_OK && last)
        *safe_ms = last->header.end_ms;
    lock_release(&index->lock);
    lock_release(&index->seal_lock);
    if (code)
        return error_set_errno(err, code, errno, "writing the index in %s", index->dir);
    return TERN_OK;
}

/* ---- recovery ---- */

struct name_list {
    char (*names)[INDEX_NAME_DIGITS + 1];
    size_t count, capacity;
    const struct index_service *index;
    bool failed;
};

static bool collect_name(void *arg, const char *name, bool is_dir)
{
    struct name_list *list = arg;
    if (is_dir || !is_name(name)) {
        log_warn(list->index->env->log, "index_file_ignored", "path=%s/%s cause=name",
                 list->index->dir, name);
        return true;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        void *names = realloc(list->names, capacity * sizeof list->names[0]);
        if (!names) {
            list->failed = true;
            return false;
        }
        list->names = names;
        list->capacity = capacity;
    }
    memcpy(list->names[list->count++], name, INDEX_NAME_DIGITS + 1);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static enum tern_code remove_file(const struct index_service *index, const char *name,
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

/* Loads one file, or removes or ignores it. */
static enum tern_code recover_file(struct index_service *index, const char *name, bool clean,
                                   int64_t safe_ms)
{
    struct index_file *file;
    enum tern_code code =
        index_file_load(index->env->fs, index->dir, name, index->slots, index->entries, &file);
    const char *cause = NULL;
    if (code == TERN_CORRUPT) {
        if (clean) { /* made with other options, perhaps: not ours to remove */
            log_warn(index->env->log, "index_file_ignored", "path=%s/%s cause=layout", index->dir,
                     name);
            return TERN_OK;
        }
        cause = "layout";
    } else if (code) {
        return code;
    } else if (file->unfinished) {
        cause = "unfinished";
    } else if (!clean && file->header.end_ms > safe_ms) {
        cause = "not_synced";
    }
    if (!cause) {
        code = index_files_add(index, file);
        if (code)
            index_file_unref(file);
        return code;
    }
    if (code == TERN_OK)
        index_file_unref(file);
    return index->read_only ? TERN_OK : remove_file(index, name, cause);
}

/* What the newest file holds of its last record, so that a replay from there adds only the rest. */
static enum tern_code read_trailing(struct index_service *index)
{
    struct index_file *last = newest(index);
    struct file *handle;
    if (!last || last->header.count < 2 || index->read_only)
        return TERN_OK;
    enum tern_code code = index_file_open(last, index->env->fs, index->dir, FS_READ, &handle);
    if (code)
        return code;
    index->trailing_phys = last->header.end_phys;
    for (uint32_t n = last->header.count - 1; n >= 1 && index->trailing_count < INDEX_TRAILING_MAX;
         n--) {
        struct index_entry entry;
        code = index_read_entry(handle, last->slots, n, &entry);
        if (code || entry.phys_off != index->trailing_phys)
            break;
        index->trailing[index->trailing_count++] = entry.hash;
    }
    file_close(handle);
    return code;
}

enum tern_code index_service_recover(struct index_service *index, bool clean, int64_t safe_ms,
                                     int64_t *end_phys, struct tern_error *err)
{
    struct name_list list = {.index = index};
    *end_phys = 0;
    enum tern_code code = fs_list(index->env->fs, index->dir, collect_name, &list);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK;
    else if (code == TERN_OK && list.failed)
        code = TERN_NO_MEMORY;
    if (list.count > 1)
        qsort(list.names, list.count, sizeof list.names[0], compare_names);
    lock_acquire(&index->lock);
    for (size_t i = 0; code == TERN_OK && i < list.count; i++)
        code = recover_file(index, list.names[i], clean, safe_ms);
    if (code == TERN_OK)
        code = read_trailing(index);
    const struct index_file *last = newest(index);
    if (code == TERN_OK && last) {
        *end_phys = last->header.end_phys;
        atomic_store(&index->last_phys, last->header.end_phys - 1); /* that one may lack keys */
        atomic_store(&index->last_ms, last->header.end_ms);
    }
    lock_release(&index->lock);
    if (code)
        error_set_errno(err, code, errno, "recovering the index in %s", index->dir);
    free(list.names);
    return code;
}

/* ---- expiry and cuts ---- */

void index_service_range(struct index_service *index, int64_t *begin_ms, int64_t *end_ms,
                         int64_t *end_phys)
{
    lock_acquire(&index->lock);
    *begin_ms = index->file_count ? index->files[0]->header.begin_ms : 0;
    uint64_t tail = atomic_load(&index->tail);
    if (*begin_ms == 0 && atomic_load(&index->head) != tail)
        *begin_ms = index->ring[tail & (INDEX_RING_KEYS - 1)].store_ms;
    lock_release(&index->lock);
    *end_ms = *begin_ms ? atomic_load(&index->last_ms) : 0;
    int64_t last = atomic_load_explicit(&index->last_phys, memory_order_acquire);
    *end_phys = last < 0 ? 0 : last;
}

/* Removes files that are off the list, and the array. @locks none */
static enum tern_code drop_files(struct index_service *index, struct index_file **gone,
                                 uint32_t count, const char *cause)
{
    enum tern_code code = TERN_OK;
    for (uint32_t i = 0; i < count; i++) {
        enum tern_code one = remove_file(index, gone[i]->name, cause);
        if (code == TERN_OK)
            code = one;
        index_file_unref(gone[i]);
    }
    free(gone);
    return code;
}

/* Moves files [from, to) out of the list into an array. @locks holds:STORE_INDEX */
static struct index_file **take_files(struct index_service *index, uint32_t from, uint32_t to)
{
    struct index_file **gone = malloc((to - from) * sizeof(struct index_file *));
    if (!gone)
        return NULL;
    memcpy(gone, index->files + from, (to - from) * sizeof(struct index_file *));
    memmove(index->files + from, index->files + to,
            (index->file_count - to) * sizeof(struct index_file *));
    index->file_count -= to - from;
    uint32_t sealed = index->sealed_count;
    if (sealed > from)
        index->sealed_count = sealed >= to ? sealed - (to - from) : from;
    return gone;
}

enum tern_code index_service_expire(struct index_service *index, int64_t log_min,
                                    struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    uint32_t count = 0;
    struct index_file **gone = NULL;
    lock_acquire(&index->lock);
    while (count + 1 < index->file_count && index->files[count]->header.end_phys < log_min)
        count++;
    if (count > 0 && !index->read_only) {
        gone = take_files(index, 0, count);
        code = gone ? TERN_OK : TERN_NO_MEMORY;
    }
    lock_release(&index->lock);
    if (gone)
        code = drop_files(index, gone, count, "expired");
    if (code)
        error_set_errno(err, code, errno, "expiring index files in %s", index->dir);
    return code;
}

/* Forgets keys in the ring at or beyond log_end. @locks holds:STORE_INDEX, nobody puts */
static void cut_ring(struct index_service *index, int64_t log_end)
{
    uint64_t head = atomic_load(&index->head);
    uint64_t tail = atomic_load(&index->tail);
    while (head > tail && index->ring[(head - 1) & (INDEX_RING_KEYS - 1)].phys_off >= log_end)
        head--;
    atomic_store(&index->head, head);
}

enum tern_code index_service_cut(struct index_service *index, int64_t log_end,
                                 struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    struct index_file **gone = NULL;
    lock_acquire(&index->lock);
    if (!index->read_only)
        cut_ring(index, log_end);
    uint32_t keep = index->file_count;
    uint32_t all = keep;
    while (keep > 0 && index->files[keep - 1]->header.end_phys >= log_end)
        keep--;
    if (keep < all && !index->read_only) {
        /* What the ring holds comes after what is removed, so it goes too and is replayed. */
        atomic_store(&index->tail, atomic_load(&index->head));
        gone = take_files(index, keep, all);
        code = gone ? TERN_OK : TERN_NO_MEMORY;
    }
    if (code == TERN_OK && (gone || atomic_load(&index->last_phys) >= log_end)) {
        const struct index_file *last = newest(index);
        uint64_t head = atomic_load(&index->head);
        int64_t end = last ? last->header.end_phys : 0;
        if (head != atomic_load(&index->tail))
            end = index->ring[(head - 1) & (INDEX_RING_KEYS - 1)].phys_off;
        atomic_store(&index->last_phys, end - 1);
        index->trailing_phys = -1;
        index->trailing_count = 0;
        if (head == atomic_load(&index->tail))
            code = read_trailing(index);
    }
    lock_release(&index->lock);
    if (gone) {
        enum tern_code dropped = drop_files(index, gone, all - keep, "cut");
        code = code ? code : dropped;
    }
    if (code)
        error_set_errno(err, code, errno, "cutting the index in %s", index->dir);
    return code;
}
