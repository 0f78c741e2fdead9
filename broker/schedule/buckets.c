/*
 * Writing and taking back the timer's files.
 *
 * Place: between what the log says (delay_event) and the window of what is due soon
 * (bucket_loader). Rows in memory say how long each file counts; bytes behind that are nobody's and
 * are overwritten, so that a write that failed, or was not known to be durable when the machine
 * stopped, leaves nothing behind.
 *
 * Threads: the schedule's task, or who holds its turn. Failure modes: codes of the disk; a damaged
 * item within what counts is TERN_CORRUPT, and the caller makes all files anew from the log.
 */
#include "broker/schedule/buckets.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { KIND_WAITS = 1, KIND_DONE = 2, WRITE_ITEMS = 4096, ROWS_FIRST = 64 };

/* Where one item goes. */
struct place {
    int64_t bucket;
    uint32_t order; /* of the event, waits before done */
    struct bucket_item item;
};

/* ---- items ---- */

static void encode(uint8_t *out, const struct bucket_item *item)
{
    memset(out, 0, 8);
    out[0] = item->done ? KIND_DONE : KIND_WAITS;
    put_be64(out + 8, (uint64_t)item->key.key_ms);
    put_be64(out + 16, (uint64_t)item->key.queue_off);
    put_be64(out + 24, (uint64_t)item->phys_off);
    put_be32(out + 4, record_body_crc(out, BUCKET_ITEM_BYTES));
}

static bool decode(const uint8_t *in, int64_t id, struct bucket_item *out)
{
    uint8_t copy[BUCKET_ITEM_BYTES];
    memcpy(copy, in, sizeof copy);
    memset(copy + 4, 0, 4);
    out->done = in[0] == KIND_DONE;
    out->key.key_ms = (int64_t)get_be64(in + 8);
    out->key.queue_off = (int64_t)get_be64(in + 16);
    out->phys_off = (int64_t)get_be64(in + 24);
    return (in[0] == KIND_WAITS || in[0] == KIND_DONE) &&
           get_be32(in + 4) == record_body_crc(copy, sizeof copy) &&
           bucket_id_of(out->key.key_ms) == id && out->key.queue_off >= 0 && out->phys_off >= 0;
}

/* ---- rows ---- */

enum tern_code buckets_init(struct buckets *buckets, const struct env *env, const char *dir,
                            struct tern_error *err)
{
    *buckets = (struct buckets){.env = env, .first_off = INT64_MAX, .last_phys = -1};
    snprintf(buckets->dir, sizeof buckets->dir, "%s", dir);
    buckets->places = calloc(2 * (size_t)BUCKET_EVENTS_MAX, sizeof *buckets->places);
    buckets->before = calloc(2 * (size_t)BUCKET_EVENTS_MAX, sizeof *buckets->before);
    buckets->bytes = malloc((size_t)WRITE_ITEMS * BUCKET_ITEM_BYTES);
    if (!buckets->places || !buckets->before || !buckets->bytes)
        return error_set(err, TERN_NO_MEMORY, "no memory for the timer's files");
    enum tern_code code = fs_mkdirs(env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot make it", dir) : TERN_OK;
}

void buckets_fini(struct buckets *buckets)
{
    free(buckets->rows);
    free(buckets->places);
    free(buckets->before);
    free(buckets->bytes);
    *buckets = (struct buckets){0};
}

static uint32_t lower_bound(const struct buckets *buckets, int64_t id)
{
    uint32_t low = 0;
    uint32_t high = buckets->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (buckets->rows[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct bucket *buckets_from(struct buckets *buckets, int64_t id)
{
    uint32_t at = lower_bound(buckets, id);
    return at < buckets->count ? &buckets->rows[at] : NULL;
}

struct bucket *buckets_find(struct buckets *buckets, int64_t id)
{
    struct bucket *row = buckets_from(buckets, id);
    return row && row->id == id ? row : NULL;
}

static int64_t pending_of(const struct bucket *row)
{
    return (int64_t)row->adds - row->dones;
}

/* The row becomes another one of the same id. */
static void replace(struct buckets *buckets, struct bucket *row, const struct bucket *with)
{
    buckets->pending += pending_of(with) - pending_of(row);
    *row = *with;
}

enum tern_code buckets_put_row(struct buckets *buckets, const struct bucket *row)
{
    uint32_t at = lower_bound(buckets, row->id);
    if (at < buckets->count && buckets->rows[at].id == row->id) {
        replace(buckets, &buckets->rows[at], row);
        return TERN_OK;
    }
    if (buckets->count == BUCKETS_MAX)
        return TERN_LIMIT;
    if (buckets->count == buckets->cap) {
        uint32_t cap = buckets->cap ? buckets->cap * 2 : ROWS_FIRST;
        struct bucket *grown = realloc(buckets->rows, cap * sizeof *grown);
        if (!grown)
            return TERN_NO_MEMORY;
        buckets->rows = grown;
        buckets->cap = cap;
    }
    memmove(buckets->rows + at + 1, buckets->rows + at,
            (buckets->count - at) * sizeof *buckets->rows);
    buckets->rows[at] = *row;
    buckets->count++;
    buckets->pending += pending_of(row);
    return TERN_OK;
}

void buckets_drop_row(struct buckets *buckets, int64_t id)
{
    uint32_t at = lower_bound(buckets, id);
    if (at == buckets->count || buckets->rows[at].id != id)
        return;
    buckets->pending -= pending_of(&buckets->rows[at]);
    buckets->count--;
    memmove(buckets->rows + at, buckets->rows + at + 1,
            (buckets->count - at) * sizeof *buckets->rows);
}

/* ---- files ---- */

void bucket_path(const struct buckets *buckets, int64_t id, char out[FS_PATH_BYTES])
{
    snprintf(out, FS_PATH_BYTES, "%.900s/%" PRId64 ".bucket", buckets->dir, id);
}

enum tern_code bucket_sync(const struct env *env, const char *path, struct tern_error *err)
{
    struct file *file = NULL;
    enum tern_code code = fs_open(env->fs, path, FS_READ | FS_WRITE, &file);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    if (!code)
        code = file_sync(file);
    if (code)
        error_set_errno(err, code, errno, "%s: cannot sync", path);
    file_close(file);
    return code;
}

static uint32_t items_of(const struct bucket *row)
{
    return row->adds + row->dones;
}

/* Writes a run of one bucket's items behind those that count, and counts them. */
static enum tern_code write_run(struct buckets *buckets, struct bucket *row,
                                const struct place *places, uint32_t count, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct file *file = NULL;
    bucket_path(buckets, row->id, path);
    enum tern_code code = fs_open(buckets->env->fs, path, FS_READ | FS_WRITE | FS_CREATE, &file);
    for (uint32_t done = 0; !code && done < count;) {
        uint32_t now = count - done < WRITE_ITEMS ? count - done : WRITE_ITEMS;
        for (uint32_t i = 0; i < now; i++)
            encode(buckets->bytes + (size_t)i * BUCKET_ITEM_BYTES, &places[done + i].item);
        code = file_pwrite(file, buckets->bytes, (size_t)now * BUCKET_ITEM_BYTES,
                           ((int64_t)items_of(row) + done) * BUCKET_ITEM_BYTES);
        done += now;
    }
    if (code)
        error_set_errno(err, code, errno, "%s: cannot write", path);
    file_close(file);
    struct bucket now = *row;
    for (uint32_t i = 0; !code && i < count; i++) {
        now.adds += !places[i].item.done;
        now.dones += places[i].item.done;
        now.last_phys = places[i].item.phys_off;
    }
    now.dirty = true;
    now.leaving = false;
    replace(buckets, row, &now);
    return code;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *left = a;
    const struct place *right = b;
    if (left->bucket != right->bucket)
        return left->bucket < right->bucket ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

static uint32_t lay_out(struct buckets *buckets, const struct delay_event *events, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct delay_event *event = &events[i];
        if (event->phys_off <= buckets->last_phys)
            continue;
        if (event->adds && event->add_off < buckets->first_off)
            buckets->first_off = event->add_off;
        if (event->adds)
            buckets->places[n++] =
                (struct place){bucket_id_of(event->add_key_ms),
                               2 * i,
                               {false, {event->add_key_ms, event->add_off}, event->phys_off}};
        if (event->ends && event->ended.timer && event->ended.queue_off >= buckets->first_off)
            buckets->places[n++] = (struct place){
                bucket_id_of(event->ended.key_ms),
                2 * i + 1,
                {true, {event->ended.key_ms, event->ended.queue_off}, event->phys_off}};
    }
    qsort(buckets->places, n, sizeof *buckets->places, compare_places);
    return n;
}

enum tern_code buckets_append(struct buckets *buckets, const struct delay_event *events,
                              uint32_t count, struct tern_error *err)
{
    ENSURE(count <= BUCKET_EVENTS_MAX);
    uint32_t n = lay_out(buckets, events, count);
    uint32_t touched = 0;
    enum tern_code code = TERN_OK;
    for (uint32_t at = 0, end; !code && at < n; at = end) {
        int64_t id = buckets->places[at].bucket;
        for (end = at + 1; end < n && buckets->places[end].bucket == id;)
            end++;
        struct bucket fresh = {.id = id, .last_phys = -1};
        struct bucket *row = buckets_find(buckets, id);
        buckets->before[touched++] = row ? *row : fresh;
        if (!row) {
            code = buckets_put_row(buckets, &fresh);
            if (code)
                error_set(err, code, "the timer has %" PRIu32 " files, which is the most",
                          buckets->count);
            row = buckets_find(buckets, id);
        }
        if (!code)
            code = write_run(buckets, row, buckets->places + at, end - at, err);
    }
    for (uint32_t i = 0; code && i < touched; i++) {
        struct bucket *row = buckets_find(buckets, buckets->before[i].id);
        if (row)
            replace(buckets, row, &buckets->before[i]);
        if (row && items_of(row) == 0)
            buckets_drop_row(buckets, row->id);
    }
    if (!code && count > 0 && events[count - 1].phys_off > buckets->last_phys && n > 0)
        buckets->last_phys = events[count - 1].phys_off;
    return code;
}

/* Reads the bytes of some items into the work space; what the file does not have is zeros. */
static enum tern_code read_bytes(struct buckets *buckets, int64_t id, uint32_t first,
                                 uint32_t count, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct file *file = NULL;
    size_t got = 0;
    size_t size = (size_t)count * BUCKET_ITEM_BYTES;
    bucket_path(buckets, id, path);
    enum tern_code code = fs_open(buckets->env->fs, path, FS_READ, &file);
    if (!code)
        code = file_pread(file, buckets->bytes, size, (int64_t)first * BUCKET_ITEM_BYTES, &got);
    file_close(file);
    if (code && code != TERN_NOT_FOUND)
        return error_set_errno(err, code, errno, "%s: cannot read", path);
    memset(buckets->bytes + got, 0, size - got);
    return TERN_OK;
}

static enum tern_code take_item(const struct buckets *buckets, int64_t id, uint32_t first,
                                uint32_t at, struct bucket_item *out, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    if (decode(buckets->bytes + (size_t)at * BUCKET_ITEM_BYTES, id, out))
        return TERN_OK;
    bucket_path(buckets, id, path);
    return error_set(err, TERN_CORRUPT, "%s: item %" PRIu32 " is damaged", path, first + at);
}

enum tern_code bucket_read(struct buckets *buckets, const struct bucket *bucket, uint32_t first,
                           uint32_t count, struct bucket_item *out, struct tern_error *err)
{
    ENSURE(count <= BUCKET_READ_MAX && count <= WRITE_ITEMS);
    enum tern_code code = read_bytes(buckets, bucket->id, first, count, err);
    for (uint32_t i = 0; !code && i < count; i++)
        code = take_item(buckets, bucket->id, first, i, &out[i], err);
    return code;
}

/* Takes items from the row's end while their records are to go, WRITE_ITEMS at most. */
static enum tern_code cut_tail(struct buckets *buckets, struct bucket *row, int64_t phys_off,
                               struct tern_error *err)
{
    uint32_t end = items_of(row);
    uint32_t count = end < WRITE_ITEMS ? end : WRITE_ITEMS;
    enum tern_code code = read_bytes(buckets, row->id, end - count, count, err);
    for (uint32_t i = count; !code && i > 0 && row->last_phys >= phys_off; i--) {
        struct bucket_item item;
        code = take_item(buckets, row->id, end - count, i - 1, &item, err);
        if (code)
            break;
        row->last_phys = item.phys_off;
        if (item.phys_off >= phys_off) {
            row->adds -= !item.done;
            row->dones -= item.done;
        }
    }
    return code;
}

/* Items of the row's tail that are to go; a file is opened once for WRITE_ITEMS of them. */
static enum tern_code cut_row(struct buckets *buckets, struct bucket *row, int64_t phys_off,
                              struct tern_error *err)
{
    struct bucket now = *row;
    enum tern_code code = TERN_OK;
    while (!code && now.last_phys >= phys_off && items_of(&now) > 0)
        code = cut_tail(buckets, &now, phys_off, err);
    if (items_of(&now) == 0)
        now.last_phys = -1;
    now.dirty = true;
    now.leaving = false;
    replace(buckets, row, &now);
    return code;
}

enum tern_code buckets_cut(struct buckets *buckets, int64_t phys_off, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    for (uint32_t i = 0; !code && i < buckets->count; i++)
        if (buckets->rows[i].last_phys >= phys_off)
            code = cut_row(buckets, &buckets->rows[i], phys_off, err);
    if (!code && buckets->last_phys >= phys_off)
        buckets->last_phys = phys_off - 1;
    return code;
}

/* ---- which files there are ---- */

struct sweep {
    struct buckets *buckets;
    bool all;
    int64_t found[256]; /* ids of files to remove */
    uint32_t count;
};

static bool look(void *arg, const char *name, bool is_dir)
{
    struct sweep *sweep = arg;
    char *end;
    long long id = strtoll(name, &end, 10);
    if (is_dir || end == name || strcmp(end, ".bucket") != 0)
        return true;
    if (sweep->all || !buckets_find(sweep->buckets, id))
        sweep->found[sweep->count++] = id;
    return sweep->count < sizeof sweep->found / sizeof sweep->found[0];
}

/* Removes files without a row, or all. */
static enum tern_code sweep(struct buckets *buckets, bool all, struct tern_error *err)
{
    struct fs *fs = buckets->env->fs;
    char path[FS_PATH_BYTES];
    enum tern_code code = TERN_OK;
    struct sweep todo;
    do {
        todo = (struct sweep){.buckets = buckets, .all = all};
        code = fs_list(fs, buckets->dir, look, &todo);
        for (uint32_t i = 0; !code && i < todo.count; i++) {
            bucket_path(buckets, todo.found[i], path);
            code = fs_unlink(fs, path);
        }
    } while (!code && todo.count > 0);
    if (!code)
        code = fs_sync_dir(fs, buckets->dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot remove old files", buckets->dir)
                : TERN_OK;
}

enum tern_code buckets_settle(struct buckets *buckets, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    for (uint32_t i = 0; i < buckets->count; i++) {
        const struct bucket *row = &buckets->rows[i];
        int64_t counts = (int64_t)items_of(row) * BUCKET_ITEM_BYTES;
        struct fs_stat stat;
        bucket_path(buckets, row->id, path);
        enum tern_code code = fs_stat(buckets->env->fs, path, &stat);
        if (code == TERN_NOT_FOUND || (!code && stat.size_bytes < counts))
            return error_set(err, TERN_CORRUPT, "%s: %" PRId64 " bytes of it are missing", path,
                             code ? counts : counts - stat.size_bytes);
        if (code)
            return error_set_errno(err, code, errno, "%s: cannot look at it", path);
    }
    return sweep(buckets, false, err);
}

enum tern_code buckets_clear(struct buckets *buckets, struct tern_error *err)
{
    buckets->count = 0;
    buckets->pending = 0;
    buckets->first_off = INT64_MAX;
    buckets->last_phys = -1;
    return sweep(buckets, true, err);
}
