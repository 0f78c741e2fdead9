/*
 * Taking stock of a store's directory.
 *
 * Place: the first thing that every command does. What is not named as RocketMQ names it goes to
 * the list of strays and is not looked into. Threads: one. Failure modes: an error of the disk ends
 * the command; a file that vanishes between listing and asking its length (a live store expires
 * segments) is left out.
 */
#include "tools/mqstore/store_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "broker/store/flush_mark.h"
#include "tools/mqstore/memory.h"

enum { OFFSET_DIGITS = 20, STRAYS_MAX = 1000, CHECKPOINT_TIMES_BYTES = 24 };

static const char deleted_prefix[] = ".deleted-"; /* of our topics being removed */

/* ---- listing ---- */

struct entry {
    char *name;
    bool is_dir;
};

struct listing {
    struct entry *entries;
    size_t count;
};

static bool add_entry(void *arg, const char *name, bool is_dir)
{
    struct listing *list = arg;
    list->entries = tool_grow(list->entries, list->count, sizeof *list->entries);
    list->entries[list->count++] = (struct entry){tool_strdup(name), is_dir};
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void free_listing(struct listing *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->entries[i].name);
    free(list->entries);
}

/* Sorted by name. An absent folder is an empty one. */
static enum tern_code list_dir(const struct store_dir *dir, const char *name, struct listing *list,
                               struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    memset(list, 0, sizeof *list);
    enum tern_code code = fs_join(path, dir->root, name);
    if (!code)
        code = fs_list(dir->env->fs, path, add_entry, list);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK;
    if (code)
        return store_dir_io_error(dir, name, code, err);
    if (list->count)
        qsort(list->entries, list->count, sizeof *list->entries, compare_entries);
    return TERN_OK;
}

/* -1: there is no such file. */
static enum tern_code length_of(const struct store_dir *dir, const char *name, int64_t *bytes,
                                struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct fs_stat stat;
    *bytes = -1;
    enum tern_code code = fs_join(path, dir->root, name);
    if (!code)
        code = fs_stat(dir->env->fs, path, &stat);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    if (code)
        return store_dir_io_error(dir, name, code, err);
    *bytes = stat.size_bytes;
    return TERN_OK;
}

static void add_stray(struct store_dir *dir, const char *folder, const char *name)
{
    char text[FS_PATH_BYTES];
    if (dir->stray_count >= STRAYS_MAX || fs_join(text, folder, name) != TERN_OK)
        return;
    dir->strays = tool_grow(dir->strays, dir->stray_count, sizeof *dir->strays);
    dir->strays[dir->stray_count++] = tool_strdup(text);
}

/* Exactly `digits` digits, or any number of them up to ten when it is 0. */
static bool parse_digits(const char *text, size_t digits, int64_t *out)
{
    size_t len = strlen(text);
    if (strspn(text, "0123456789") != len || (digits ? len != digits : len == 0 || len > 10))
        return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

/* ---- the parts ---- */

static enum tern_code read_segments(struct store_dir *dir, struct tern_error *err)
{
    struct listing list;
    enum tern_code code = list_dir(dir, "commitlog", &list, err);
    for (size_t i = 0; i < list.count && !code; i++) {
        const char *name = list.entries[i].name;
        struct log_segment segment = {0, -1};
        char path[STORE_NAME_BYTES];
        if (list.entries[i].is_dir || !parse_digits(name, OFFSET_DIGITS, &segment.base)) {
            add_stray(dir, "commitlog", name);
            continue;
        }
        store_dir_segment_name(path, segment.base);
        code = length_of(dir, path, &segment.file_bytes, err);
        if (code || segment.file_bytes < 0)
            continue;
        dir->segments = tool_grow(dir->segments, dir->segment_count, sizeof *dir->segments);
        dir->segments[dir->segment_count++] = segment;
    }
    if (dir->segment_count && dir->segment_bytes == 0)
        dir->segment_bytes = dir->segments[0].file_bytes;
    free_listing(&list);
    return code;
}

static enum tern_code read_queue_files(struct store_dir *dir, struct queue_dir *queue,
                                       const char *folder, struct tern_error *err)
{
    struct listing list;
    enum tern_code code = list_dir(dir, folder, &list, err);
    for (size_t i = 0; i < list.count && !code; i++) {
        struct queue_file file = {0, -1};
        char name[STORE_NAME_BYTES];
        if (list.entries[i].is_dir ||
            !parse_digits(list.entries[i].name, OFFSET_DIGITS, &file.start)) {
            add_stray(dir, folder, list.entries[i].name);
            continue;
        }
        store_dir_queue_name(name, queue, file.start);
        code = length_of(dir, name, &file.file_bytes, err);
        if (code || file.file_bytes < 0)
            continue;
        queue->files = tool_grow(queue->files, queue->file_count, sizeof *queue->files);
        queue->files[queue->file_count++] = file;
    }
    if (queue->file_count)
        queue->file_bytes = queue->files[0].file_bytes;
    free_listing(&list);
    return code;
}

static enum tern_code read_topic(struct store_dir *dir, const char *topic, struct tern_error *err)
{
    char folder[STORE_NAME_BYTES];
    struct listing list;
    snprintf(folder, sizeof folder, "consumequeue/%s", topic);
    enum tern_code code = list_dir(dir, folder, &list, err);
    for (size_t i = 0; i < list.count && !code; i++) {
        int64_t id = 0;
        char below[STORE_NAME_BYTES + 16];
        if (!list.entries[i].is_dir || !parse_digits(list.entries[i].name, 0, &id) ||
            id > INT32_MAX) {
            add_stray(dir, folder, list.entries[i].name);
            continue;
        }
        struct queue_dir queue = {.topic = tool_strdup(topic), .queue_id = (int32_t)id};
        snprintf(below, sizeof below, "%s/%" PRId32, folder, queue.queue_id);
        code = read_queue_files(dir, &queue, below, err);
        dir->queues = tool_grow(dir->queues, dir->queue_count, sizeof *dir->queues);
        dir->queues[dir->queue_count++] = queue;
    }
    free_listing(&list);
    return code;
}

static int compare_queues(const void *a, const void *b)
{
    const struct queue_dir *x = a;
    const struct queue_dir *y = b;
    int order = strcmp(x->topic, y->topic);
    return order ? order : (x->queue_id > y->queue_id) - (x->queue_id < y->queue_id);
}

static enum tern_code read_queues(struct store_dir *dir, struct tern_error *err)
{
    struct listing list;
    enum tern_code code = list_dir(dir, "consumequeue", &list, err);
    for (size_t i = 0; i < list.count && !code; i++) {
        const char *name = list.entries[i].name;
        if (!list.entries[i].is_dir || strlen(name) > INT8_MAX ||
            strncmp(name, deleted_prefix, sizeof deleted_prefix - 1) == 0)
            add_stray(dir, "consumequeue", name);
        else
            code = read_topic(dir, name, err);
    }
    if (dir->queue_count)
        qsort(dir->queues, dir->queue_count, sizeof *dir->queues, compare_queues);
    free_listing(&list);
    return code;
}

static enum tern_code read_indexes(struct store_dir *dir, struct tern_error *err)
{
    struct listing list;
    enum tern_code code = list_dir(dir, "index", &list, err);
    for (size_t i = 0; i < list.count && !code; i++) {
        struct index_dir_entry index = {.file_bytes = -1};
        char path[STORE_NAME_BYTES];
        int64_t number;
        if (list.entries[i].is_dir ||
            !parse_digits(list.entries[i].name, INDEX_NAME_DIGITS, &number)) {
            add_stray(dir, "index", list.entries[i].name);
            continue;
        }
        memcpy(index.name, list.entries[i].name, sizeof index.name);
        store_dir_index_name(path, &index);
        code = length_of(dir, path, &index.file_bytes, err);
        if (code || index.file_bytes < 0)
            continue;
        dir->indexes = tool_grow(dir->indexes, dir->index_count, sizeof *dir->indexes);
        dir->indexes[dir->index_count++] = index;
    }
    free_listing(&list);
    return code;
}

/* ---- the small files ---- */

static enum tern_code read_lock(struct store_dir *dir, bool keep, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct file *file = NULL;
    enum tern_code code = fs_join(path, dir->root, "lock");
    if (code)
        return store_dir_io_error(dir, "lock", code, err);
    dir->lock_state = LOCK_FREE;
    code = fs_open(dir->env->fs, path, FS_READ | FS_WRITE, &file);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    if (!code)
        code = file_lock(file);
    if (code)
        dir->lock_state = code == TERN_IN_USE ? LOCK_HELD : LOCK_UNKNOWN;
    if (!code && keep)
        dir->lock = file;
    else
        file_close(file);
    return TERN_OK;
}

/* The times as they stand in the file; the store's own reader passes over impossible ones. */
static enum tern_code read_checkpoint(struct store_dir *dir, struct tern_error *err)
{
    uint8_t raw[CHECKPOINT_TIMES_BYTES] = {0};
    size_t got = 0;
    struct file *file = NULL;
    enum tern_code code = store_dir_open_file(dir, "checkpoint", &file);
    if (!code)
        code = file_pread(file, raw, sizeof raw, 0, &got);
    file_close(file);
    if (code && code != TERN_NOT_FOUND)
        return store_dir_io_error(dir, "checkpoint", code, err);
    dir->checkpoint = (struct checkpoint){(int64_t)get_be64(raw), (int64_t)get_be64(raw + 8),
                                          (int64_t)get_be64(raw + 16)};
    return TERN_OK;
}

static enum tern_code read_small_files(struct store_dir *dir, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    int64_t bytes = -1;
    enum tern_code code = length_of(dir, "abort", &bytes, err);
    dir->aborted = bytes >= 0;
    if (!code)
        code = length_of(dir, "ternmq", &bytes, err);
    dir->ours = bytes >= 0;
    if (!code)
        code = length_of(dir, "consumequeue_ext", &bytes, err);
    dir->has_ext = bytes >= 0;
    if (!code)
        code = length_of(dir, "checkpoint", &dir->checkpoint_bytes, err);
    if (!code)
        code = read_checkpoint(dir, err);
    struct flush_mark_value mark = {.known = false};
    if (!code && fs_join(path, dir->root, "ternmq/flushed") == TERN_OK)
        code = flush_mark_read(dir->env, path, &mark, err);
    dir->mark_known = mark.known;
    dir->mark = mark.flushed;
    return code;
}

/* Why this is no store, if it is none. */
static enum tern_code check_root(const struct store_dir *dir, struct tern_error *err)
{
    struct listing list;
    bool log = false;
    bool dledger = false;
    enum tern_code code = list_dir(dir, "", &list, err);
    for (size_t i = 0; i < list.count; i++) {
        const char *name = list.entries[i].name;
        log = log || strcmp(name, "commitlog") == 0;
        dledger = dledger || strncmp(name, "dledger", strlen("dledger")) == 0;
    }
    free_listing(&list);
    if (!code && dledger)
        return error_set(err, TERN_NOT_SUPPORTED,
                         "%s: a DLedger store, whose log has a layout of "
                         "its own, cannot be read",
                         dir->root);
    if (!code && !log)
        return error_set(err, TERN_NOT_FOUND, "%s: no store here (no commitlog/)", dir->root);
    return code;
}

enum tern_code store_dir_open(struct store_dir *dir, const struct env *env, const char *root,
                              int64_t segment_bytes, bool keep_lock, struct tern_error *err)
{
    memset(dir, 0, sizeof *dir);
    dir->env = env;
    dir->segment_bytes = segment_bytes;
    int wrote = snprintf(dir->root, sizeof dir->root, "%s", root);
    if (wrote <= 0 || (size_t)wrote >= sizeof dir->root)
        return error_set(err, TERN_NOT_FOUND, "the directory's name is empty or too long");
    enum tern_code code = check_root(dir, err);
    if (!code)
        code = read_lock(dir, keep_lock, err);
    if (!code)
        code = read_small_files(dir, err); /* before the lists: what they say is in these */
    if (!code)
        code = read_segments(dir, err);
    if (!code)
        code = read_queues(dir, err);
    if (!code)
        code = read_indexes(dir, err);
    return code;
}

void store_dir_close(struct store_dir *dir)
{
    file_close(dir->lock);
    for (uint32_t i = 0; i < dir->queue_count; i++) {
        free(dir->queues[i].topic);
        free(dir->queues[i].files);
    }
    for (uint32_t i = 0; i < dir->stray_count; i++)
        free(dir->strays[i]);
    free(dir->segments);
    free(dir->queues);
    free(dir->indexes);
    free(dir->strays);
    memset(dir, 0, sizeof *dir);
}

/* ---- names ---- */

void store_dir_segment_name(char out[STORE_NAME_BYTES], int64_t base)
{
    snprintf(out, STORE_NAME_BYTES, "commitlog/%020" PRId64, base);
}

void store_dir_queue_name(char out[STORE_NAME_BYTES], const struct queue_dir *queue, int64_t start)
{
    snprintf(out, STORE_NAME_BYTES, "consumequeue/%s/%" PRId32 "/%020" PRId64, queue->topic,
             queue->queue_id, start);
}

void store_dir_index_name(char out[STORE_NAME_BYTES], const struct index_dir_entry *index)
{
    snprintf(out, STORE_NAME_BYTES, "index/%s", index->name);
}

enum tern_code store_dir_open_file(const struct store_dir *dir, const char *name, struct file **out)
{
    char path[FS_PATH_BYTES];
    *out = NULL;
    enum tern_code code = fs_join(path, dir->root, name);
    return code ? code : fs_open(dir->env->fs, path, FS_READ, out);
}

enum tern_code store_dir_io_error(const struct store_dir *dir, const char *name,
                                  enum tern_code code, struct tern_error *err)
{
    return error_set_errno(err, code, errno, "%s/%s: cannot read", dir->root, name);
}
