/*
 * The checkpoint's file, big-endian:
 *
 *   magic 4 | version 4 | CRC-32 4 of all behind it | length 4 |
 *   first offset 8 | last physical offset 8 | snapshots 4 | marks 4 | buckets 4 | levels 4 |
 *   per snapshot: position 8, taken 8, base 8 × levels
 *   per mark:     queue 4, queue offset 8, physical offset 8
 *   per bucket:   id 8, waits 4, done 4, last physical offset 8
 *
 * Threads: any. Failure modes: any byte may be damaged: lengths and counts are held against each
 * other and the limits before they are used, and the whole is refused.
 */
#include "broker/schedule/delay_checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/durable_file.h"
#include "base/json.h"

enum {
    MAGIC = 0x54444C59, /* "TDLY" */
    VERSION = 1,
    HEAD_BYTES = 16,
    COUNTS_BYTES = 32,
    SNAPSHOT_BYTES = 16 + 8 * DELAY_LEVELS_MAX,
    MARK_BYTES = 20,
    BUCKET_BYTES = 24
};

/* ---- snapshots ---- */

void delay_snapshots_add(struct delay_snapshots *snapshots, const struct delay_snapshot *snapshot)
{
    struct delay_snapshot *rows = snapshots->rows;
    uint32_t n = snapshots->count;
    /* The newest stays as a place to go back to only when it is far enough from the one before. */
    if (n >= 2 && rows[n - 1].taken_ms - rows[n - 2].taken_ms < SNAPSHOT_GAP_MS)
        n--;
    if (n == SNAPSHOTS_MAX) {
        memmove(rows, rows + 1, (SNAPSHOTS_MAX - 1) * sizeof *rows);
        n--;
    }
    rows[n] = *snapshot;
    snapshots->count = n + 1;
}

const struct delay_snapshot *delay_snapshots_cut(struct delay_snapshots *snapshots,
                                                 int64_t phys_off)
{
    while (snapshots->count > 0 && snapshots->rows[snapshots->count - 1].position > phys_off)
        snapshots->count--;
    return snapshots->count > 0 ? &snapshots->rows[snapshots->count - 1] : NULL;
}

/* ---- encoding ---- */

static uint8_t *put64(uint8_t *at, int64_t value)
{
    put_be64(at, (uint64_t)value);
    return at + 8;
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
    put_be32(at, value);
    return at + 4;
}

static uint8_t *encode_rows(uint8_t *at, const struct delay_snapshots *snapshots,
                            const struct level_progress *levels, const struct buckets *buckets)
{
    for (uint32_t i = 0; i < snapshots->count; i++) {
        at = put64(put64(at, snapshots->rows[i].position), snapshots->rows[i].taken_ms);
        for (uint32_t l = 0; l < DELAY_LEVELS_MAX; l++)
            at = put64(at, snapshots->rows[i].base[l]);
    }
    for (uint32_t i = 0; i < levels->count; i++) {
        at = put32(at, (uint32_t)levels->marks[i].queue_id);
        at = put64(put64(at, levels->marks[i].queue_off), levels->marks[i].phys_off);
    }
    for (uint32_t i = 0; i < buckets->count; i++) {
        const struct bucket *row = &buckets->rows[i];
        if (row->leaving)
            continue;
        at = put32(put32(put64(at, row->id), row->adds), row->dones);
        at = put64(at, row->last_phys);
    }
    return at;
}

uint8_t *delay_checkpoint_encode(const struct delay_snapshots *snapshots,
                                 const struct level_progress *levels, const struct buckets *buckets,
                                 size_t *size)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < buckets->count; i++)
        rows += !buckets->rows[i].leaving;
    *size = HEAD_BYTES + COUNTS_BYTES + (size_t)snapshots->count * SNAPSHOT_BYTES +
            (size_t)levels->count * MARK_BYTES + (size_t)rows * BUCKET_BYTES;
    uint8_t *bytes = malloc(*size);
    if (!bytes)
        return NULL;
    uint8_t *at = put64(put64(bytes + HEAD_BYTES, buckets->first_off), buckets->last_phys);
    at = put32(put32(at, snapshots->count), levels->count);
    at = put32(put32(at, rows), DELAY_LEVELS_MAX);
    at = encode_rows(at, snapshots, levels, buckets);
    ENSURE(at == bytes + *size);
    put_be32(bytes, MAGIC);
    put_be32(bytes + 4, VERSION);
    put_be32(bytes + 12, (uint32_t)*size);
    put_be32(bytes + 8, record_body_crc(bytes + 12, *size - 12));
    return bytes;
}

enum tern_code delay_checkpoint_write(const struct env *env, const char *dir, const uint8_t *bytes,
                                      size_t size, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    char temp[FS_PATH_BYTES];
    struct file *file = NULL;
    enum tern_code code = fs_join(path, dir, "checkpoint");
    if (!code)
        code = fs_join(temp, dir, "checkpoint.tmp");
    if (!code)
        code = fs_open(env->fs, temp, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (!code)
        code = file_pwrite(file, bytes, size, 0);
    if (!code)
        code = file_sync(file);
    file_close(file);
    if (!code)
        code = fs_rename(env->fs, temp, path);
    if (!code)
        code = fs_sync_dir(env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s/checkpoint: cannot write", dir) : TERN_OK;
}

enum tern_code delay_checkpoint_remove(const struct env *env, const char *dir,
                                       struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    enum tern_code code = fs_join(path, dir, "checkpoint");
    if (!code)
        code = fs_unlink(env->fs, path);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK;
    if (!code)
        code = fs_sync_dir(env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s/checkpoint: cannot remove", dir) : TERN_OK;
}

/* ---- decoding ---- */

struct counts {
    uint32_t snapshots, marks, buckets;
};

static bool check_head(const uint8_t *bytes, size_t size, struct counts *counts)
{
    if (size < HEAD_BYTES + COUNTS_BYTES || get_be32(bytes) != MAGIC ||
        get_be32(bytes + 4) != VERSION || get_be32(bytes + 12) != size ||
        get_be32(bytes + 8) != record_body_crc(bytes + 12, size - 12))
        return false;
    const uint8_t *at = bytes + HEAD_BYTES + 16;
    *counts = (struct counts){get_be32(at), get_be32(at + 4), get_be32(at + 8)};
    return counts->snapshots >= 1 && counts->snapshots <= SNAPSHOTS_MAX &&
           counts->marks <= LEVEL_MARKS_MAX && counts->buckets <= BUCKETS_MAX &&
           get_be32(at + 12) == DELAY_LEVELS_MAX &&
           size == HEAD_BYTES + COUNTS_BYTES + (size_t)counts->snapshots * SNAPSHOT_BYTES +
                       (size_t)counts->marks * MARK_BYTES + (size_t)counts->buckets * BUCKET_BYTES;
}

static const uint8_t *decode_snapshots(const uint8_t *at, uint32_t count,
                                       struct delay_snapshots *out)
{
    for (uint32_t i = 0; i < count; i++, at += SNAPSHOT_BYTES) {
        out->rows[i].position = (int64_t)get_be64(at);
        out->rows[i].taken_ms = (int64_t)get_be64(at + 8);
        for (size_t l = 0; l < DELAY_LEVELS_MAX; l++)
            out->rows[i].base[l] = (int64_t)get_be64(at + 16 + 8 * l);
    }
    out->count = count;
    return at;
}

static const uint8_t *decode_marks(const uint8_t *at, uint32_t count, struct level_progress *out,
                                   bool *good)
{
    out->marks = calloc(count ? count : 1, sizeof *out->marks);
    out->cap = count ? count : 1;
    *good = out->marks != NULL;
    for (uint32_t i = 0; *good && i < count; i++, at += MARK_BYTES) {
        struct level_mark *mark = &out->marks[i];
        mark->queue_id = (int32_t)get_be32(at);
        mark->queue_off = (int64_t)get_be64(at + 4);
        mark->phys_off = (int64_t)get_be64(at + 12);
        *good = mark->queue_id >= 0 && mark->queue_id < DELAY_LEVELS_MAX && mark->queue_off >= 0;
    }
    out->count = *good ? count : 0;
    return at;
}

static bool decode(const uint8_t *bytes, size_t size, struct delay_snapshots *snapshots,
                   struct level_progress *levels, struct buckets *buckets)
{
    struct counts counts;
    bool good;
    if (!check_head(bytes, size, &counts))
        return false;
    const uint8_t *at =
        decode_snapshots(bytes + HEAD_BYTES + COUNTS_BYTES, counts.snapshots, snapshots);
    at = decode_marks(at, counts.marks, levels, &good);
    for (uint32_t i = 0; good && i < counts.buckets; i++, at += BUCKET_BYTES) {
        const struct bucket row = {.id = (int64_t)get_be64(at),
                                   .adds = get_be32(at + 8),
                                   .dones = get_be32(at + 12),
                                   .last_phys = (int64_t)get_be64(at + 16)};
        good = buckets_put_row(buckets, &row) == TERN_OK;
    }
    buckets->first_off = (int64_t)get_be64(bytes + HEAD_BYTES);
    buckets->last_phys = (int64_t)get_be64(bytes + HEAD_BYTES + 8);
    memcpy(levels->base, snapshots->rows[snapshots->count - 1].base, sizeof levels->base);
    return good;
}

enum tern_code delay_checkpoint_read(const struct env *env, const char *dir,
                                     struct delay_snapshots *snapshots,
                                     struct level_progress *levels, struct buckets *buckets,
                                     struct tern_error *err)
{
    const int64_t most = HEAD_BYTES + COUNTS_BYTES + (int64_t)SNAPSHOTS_MAX * SNAPSHOT_BYTES +
                         (int64_t)LEVEL_MARKS_MAX * MARK_BYTES +
                         (int64_t)BUCKETS_MAX * BUCKET_BYTES;
    char path[FS_PATH_BYTES];
    struct file *file = NULL;
    int64_t size = 0;
    size_t got = 0;
    enum tern_code code = fs_join(path, dir, "checkpoint");
    if (!code)
        code = fs_open(env->fs, path, FS_READ, &file);
    if (code == TERN_NOT_FOUND)
        return code;
    if (!code)
        code = file_size(file, &size);
    uint8_t *bytes = NULL;
    if (!code && size <= most) {
        bytes = malloc((size_t)size + 1);
        code = bytes ? file_pread(file, bytes, (size_t)size, 0, &got) : TERN_NO_MEMORY;
    }
    file_close(file);
    if (code)
        error_set_errno(err, code, errno, "%s: cannot read", path);
    else if (!bytes || !decode(bytes, got, snapshots, levels, buckets))
        code = error_set(err, TERN_CORRUPT, "%s: %" PRId64 " bytes that are no checkpoint", path,
                         size);
    free(bytes);
    return code;
}

/* ---- delayOffset.json ---- */

enum tern_code delay_offsets_write(const struct env *env, const char *path,
                                   const int64_t base[DELAY_LEVELS_MAX], uint32_t levels,
                                   struct tern_error *err)
{
    char text[DELAY_LEVELS_MAX * 32 + 64];
    size_t len = (size_t)snprintf(text, sizeof text, "{\n\t\"offsetTable\":{");
    bool first = true;
    for (uint32_t i = 0; i < levels; i++) {
        if (base[i] == 0)
            continue;
        len += (size_t)snprintf(text + len, sizeof text - len, "%s\"%" PRIu32 "\":%" PRId64,
                                first ? "" : ",", i + 1, base[i]);
        first = false;
    }
    len += (size_t)snprintf(text + len, sizeof text - len, "\n\t}\n}\n");
    return durable_write(env, path, text, len, "V1", err);
}

struct parsed {
    int64_t *base;
    bool *edited;
};

static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct parsed *parsed = arg;
    json_t *root = NULL;
    enum tern_code code = json_parse_fastjson(text, len, &root, err);
    json_t *table = code ? NULL : json_object_get(root, "offsetTable");
    const char *key;
    json_t *value;
    int64_t base[DELAY_LEVELS_MAX] = {0};
    if (!code && !json_is_object(table))
        code = error_set(err, TERN_CORRUPT, "no offsetTable in it");
    json_object_foreach(table, key, value)
    {
        long level = strtol(key, NULL, 10);
        if (level < 1 || level > DELAY_LEVELS_MAX || !json_is_integer(value) ||
            json_integer_value(value) < 0) {
            code = error_set(err, TERN_CORRUPT, "level %.32s, or its offset, is no such", key);
            break;
        }
        base[level - 1] = json_integer_value(value);
    }
    json_decref(root);
    if (!code) {
        memcpy(parsed->base, base, sizeof base);
        *parsed->edited = !extra || !extra[0];
    }
    return code;
}

enum tern_code delay_offsets_read(const struct env *env, const char *path,
                                  int64_t base[DELAY_LEVELS_MAX], bool *edited,
                                  struct tern_error *err)
{
    struct parsed parsed = {base, edited};
    return durable_read(env, path, parse, &parsed, err);
}
