/*
 * Progress in a local file: see local_offsets.h for its place and shape.
 *
 * Invariants: the table holds at most LOCAL_QUEUES_MAX queues, all with names that were checked and
 * offsets of 0 or more; the file is written only when the table changed since.
 *
 * Failure modes: both generations damaged: load refuses and names the files, nothing is deleted; a
 * failed write: the older generations stay, the next persist writes again.
 */
#include "client/local_offsets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an element that was not added has hh.tbl NULL */
#include <uthash.h>

#include "base/durable_file.h"
#include "base/fs.h"
#include "base/names.h"

#define FILE_HEAD "ternmq-offsets 1\n"
#define DEFAULT_DIR ".ternmq_offsets"

enum { LINE_BYTES = 2 * 128 + 48 };

struct entry {
    struct tern_queue id; /* the key: zeroed behind the texts */
    int64_t offset;
    UT_hash_handle hh;
};

struct local_offsets {
    const struct env *env;
    char path[FS_PATH_BYTES];
    struct file *lock;
    struct entry *table;
    bool dirty;
};

/* ---- the table ---- */

static void table_clear(struct entry **table)
{
    struct entry *entry;
    struct entry *next;
    HASH_ITER (hh, *table, entry, next) {
        HASH_DELETE(hh, *table, entry);
        free(entry);
    }
}

static struct entry *table_find(struct entry *table, const struct tern_queue *id)
{
    struct tern_queue key;
    memset(&key, 0, sizeof key);
    snprintf(key.topic, sizeof key.topic, "%s", id->topic);
    snprintf(key.broker_name, sizeof key.broker_name, "%s", id->broker_name);
    key.queue_id = id->queue_id;
    struct entry *entry;
    HASH_FIND(hh, table, &key, sizeof key, entry);
    return entry;
}

/* Sets or adds. TERN_NO_MEMORY, TERN_LIMIT. */
static enum tern_code table_put(struct entry **table, const struct tern_queue *id, int64_t offset)
{
    struct entry *entry = table_find(*table, id);
    if (entry) {
        entry->offset = offset;
        return TERN_OK;
    }
    if (HASH_COUNT(*table) >= LOCAL_QUEUES_MAX)
        return TERN_LIMIT;
    entry = calloc(1, sizeof *entry);
    if (!entry)
        return TERN_NO_MEMORY;
    snprintf(entry->id.topic, sizeof entry->id.topic, "%s", id->topic);
    snprintf(entry->id.broker_name, sizeof entry->id.broker_name, "%s", id->broker_name);
    entry->id.queue_id = id->queue_id;
    entry->offset = offset;
    HASH_ADD(hh, *table, id, sizeof entry->id, entry);
    if (!entry->hh.tbl) {
        free(entry);
        return TERN_NO_MEMORY;
    }
    return TERN_OK;
}

static int compare_entries(const struct entry *a, const struct entry *b)
{
    int by = strcmp(a->id.topic, b->id.topic);
    if (by == 0)
        by = strcmp(a->id.broker_name, b->id.broker_name);
    return by != 0 ? by : (a->id.queue_id > b->id.queue_id) - (a->id.queue_id < b->id.queue_id);
}

/* ---- the file's text ---- */

/* A number of decimal digits up to `most`; *at moves behind it. */
static bool take_number(const char **at, int64_t most, int64_t *out)
{
    const char *p = *at;
    int64_t value = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        int digit = *p - '0';
        if (value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    bool any = p != *at;
    *at = p;
    *out = value;
    return any;
}

/* A word and the space behind it. */
static bool take_word(const char **at, char *out, size_t size,
                      enum tern_code (*check)(const void *, size_t, struct tern_error *))
{
    size_t len = strcspn(*at, " \n");
    if ((*at)[len] != ' ' || len >= size || check(*at, len, NULL) != TERN_OK)
        return false;
    memcpy(out, *at, len);
    out[len] = '\0';
    *at += len + 1;
    return true;
}

static bool take_line(const char **at, struct tern_queue *id, int64_t *offset)
{
    int64_t queue_id;
    if (!take_word(at, id->topic, sizeof id->topic, topic_name_check) ||
        !take_word(at, id->broker_name, sizeof id->broker_name, broker_name_check) ||
        !take_number(at, INT32_MAX, &queue_id) || *(*at)++ != ' ' ||
        !take_number(at, INT64_MAX, offset) || **at != '\n')
        return false;
    id->queue_id = (int32_t)queue_id;
    (*at)++;
    return true;
}

/* A generation as durable_read() shows it. */
static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct local_offsets *offsets = arg;
    struct entry *table = NULL;
    (void)extra;
    if (strlen(text) != len || strncmp(text, FILE_HEAD, strlen(FILE_HEAD)) != 0)
        return error_set(err, TERN_CORRUPT, "no file of offsets: its first line is not %s",
                         "\"ternmq-offsets 1\"");
    const char *at = text + strlen(FILE_HEAD);
    for (unsigned line = 2; *at; line++) {
        struct tern_queue id;
        int64_t offset;
        enum tern_code code = TERN_CORRUPT;
        if (take_line(&at, &id, &offset))
            code = table_put(&table, &id, offset);
        if (code == TERN_OK)
            continue;
        table_clear(&table);
        return error_set(err, code, "line %u: not \"TOPIC BROKER QUEUE OFFSET\", or too many",
                         line);
    }
    table_clear(&offsets->table);
    offsets->table = table;
    return TERN_OK;
}

/* The whole table as text; NULL without memory. The caller frees. */
static char *format(struct local_offsets *offsets, size_t *len)
{
    size_t cap = sizeof FILE_HEAD + HASH_COUNT(offsets->table) * LINE_BYTES;
    char *text = malloc(cap);
    if (!text)
        return NULL;
    HASH_SORT(offsets->table, compare_entries);
    size_t at = (size_t)snprintf(text, cap, "%s", FILE_HEAD);
    for (const struct entry *entry = offsets->table; entry; entry = entry->hh.next)
        at += (size_t)snprintf(text + at, cap - at, "%s %s %" PRId32 " %" PRId64 "\n",
                               entry->id.topic, entry->id.broker_name, entry->id.queue_id,
                               entry->offset);
    *len = at;
    return text;
}

/* ---- the store ---- */

static enum tern_code load(void *arg, struct tern_error *err)
{
    struct local_offsets *offsets = arg;
    enum tern_code code = durable_read(offsets->env, offsets->path, parse, offsets, err);
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

static enum tern_code query(void *arg, const struct tern_queue *queue, int64_t *offset,
                            struct tern_error *err)
{
    struct local_offsets *offsets = arg;
    const struct entry *entry = table_find(offsets->table, queue);
    if (!entry)
        return error_set(err, TERN_QUERY_NOT_FOUND, "%s has none", offsets->path);
    *offset = entry->offset;
    return TERN_OK;
}

static enum tern_code update(void *arg, const struct tern_queue *queue, int64_t offset,
                             struct tern_error *err)
{
    struct local_offsets *offsets = arg;
    enum tern_code code = table_put(&offsets->table, queue, offset);
    if (code != TERN_OK)
        return error_set(err, code, "%s holds %u queues, at most %d", offsets->path,
                         (unsigned)HASH_COUNT(offsets->table), LOCAL_QUEUES_MAX);
    offsets->dirty = true;
    return TERN_OK;
}

static enum tern_code persist(void *arg, struct tern_error *err)
{
    struct local_offsets *offsets = arg;
    if (!offsets->dirty)
        return TERN_OK;
    size_t len;
    char *text = format(offsets, &len);
    if (!text)
        return error_set(err, TERN_NO_MEMORY, "text of %s", offsets->path);
    enum tern_code code = durable_write(offsets->env, offsets->path, text, len, "", err);
    free(text);
    if (code == TERN_OK)
        offsets->dirty = false;
    return code;
}

struct tern_offset_store local_offsets_store(struct local_offsets *offsets)
{
    return (struct tern_offset_store){
        .arg = offsets, .load = load, .query = query, .update = update, .persist = persist};
}

/* ---- the directory ---- */

/* One name of the path, with %XX for what might mean something there. false: does not fit. */
static bool append_name(char path[FS_PATH_BYTES], const char *name)
{
    size_t at = strlen(path);
    if (at + 1 >= FS_PATH_BYTES)
        return false;
    path[at++] = '/';
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '_' || *p == '-';
        if (at + 4 > FS_PATH_BYTES)
            return false;
        at += (size_t)snprintf(path + at, FS_PATH_BYTES - at, plain ? "%c" : "%%%02X", *p);
    }
    path[at] = '\0';
    return true;
}

static enum tern_code make_path(char path[FS_PATH_BYTES], const char *dir, const char *instance,
                                const char *group, struct tern_error *err)
{
    const char *home = getenv("HOME");
    int len;
    if (dir && dir[0])
        len = snprintf(path, FS_PATH_BYTES, "%s", dir);
    else if (home && home[0])
        len = snprintf(path, FS_PATH_BYTES, "%s/" DEFAULT_DIR, home);
    else
        return error_set(err, TERN_INVALID,
                         "HOME is not set: tell the directory of offsets by "
                         "tern_consumer_options_offset_dir()");
    if (len < 0 || len >= FS_PATH_BYTES || !append_name(path, instance) ||
        !append_name(path, group))
        return error_set(err, TERN_TOO_LARGE, "the directory of offsets is longer than %d bytes",
                         FS_PATH_BYTES - 1);
    return TERN_OK;
}

/* Makes the directory and takes its lock. */
static enum tern_code lock_dir(struct local_offsets *offsets, const char *dir, const char *group,
                               struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    enum tern_code code = fs_mkdirs(offsets->env->fs, dir);
    if (code == TERN_OK)
        code = fs_join(path, dir, "lock");
    if (code == TERN_OK)
        code = fs_open(offsets->env->fs, path, FS_READ | FS_WRITE | FS_CREATE, &offsets->lock);
    if (code != TERN_OK)
        return error_set(err, code, "directory of offsets %s", dir);
    code = file_lock(offsets->lock);
    if (code == TERN_IN_USE)
        return error_set(err, code,
                         "%s is in use by another consumer of group %s: give this one an instance "
                         "name of its own",
                         dir, group);
    return code == TERN_OK ? code : error_set(err, code, "lock %s", path);
}

enum tern_code local_offsets_open(const struct env *env, const char *dir, const char *instance,
                                  const char *group, struct local_offsets **out,
                                  struct tern_error *err)
{
    char place[FS_PATH_BYTES];
    *out = NULL;
    enum tern_code code = make_path(place, dir, instance, group, err);
    if (code != TERN_OK)
        return code;
    struct local_offsets *offsets = calloc(1, sizeof *offsets);
    if (!offsets)
        return error_set(err, TERN_NO_MEMORY, "offsets of group %s", group);
    offsets->env = env;
    code = fs_join(offsets->path, place, "offsets");
    if (code != TERN_OK)
        error_set(err, code, "the directory of offsets %s", place);
    else
        code = lock_dir(offsets, place, group, err);
    if (code != TERN_OK) {
        local_offsets_close(offsets);
        return code;
    }
    *out = offsets;
    return TERN_OK;
}

void local_offsets_close(struct local_offsets *offsets)
{
    if (!offsets)
        return;
    table_clear(&offsets->table);
    file_close(offsets->lock);
    free(offsets);
}
