/*
 * Deleted topics' positions.
 *
 * Place: the log keeps a deleted topic's records until they expire. Whatever reads the log again,
 * the dispatcher after a crash above all, asks here whether a record still counts. A slave learns
 * of deletions by this list, and decides by position alone, so it does not matter whether the list
 * or the records arrive first.
 *
 * A row by topic name, sorted, is replaced as a whole: written first (durable_file), then put in
 * place, so what is seen is always durable. The highest position answers nearly every question,
 * since dispatch works at the log's end.
 *
 * Invariants: one entry a topic; positions of a topic only grow, but for a log that has lost its
 * tail; the version grows with each change, or is the source's. A new one is at least the wall
 * clock, so that two copies which changed their lists apart do not hold different ones under one
 * version.
 *
 * Threads: questions from any, under a lock that nothing else is taken with; changes one at a time,
 * which holding the append token sees to. Failure modes: the file's; nothing is changed then.
 */
#include "broker/store/deletions.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/durable_file.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/names.h"

struct row {
    uint64_t version;
    int64_t highest; /* position, 0 when empty */
    size_t count;
    struct store_deletion items[]; /* by topic */
};

struct deletions {
    const struct env *env;
    char path[FS_PATH_BYTES];
    _Atomic int64_t highest;
    _Atomic uint64_t version;
    struct lock lock; /* STORE_FILES, never taken with the file cache's: the row */
    struct row *row;
};

static struct row *row_create(size_t capacity)
{
    return calloc(1, sizeof(struct row) + capacity * sizeof(struct store_deletion));
}

/* Where the topic stands, or would stand. */
static size_t row_place(const struct row *row, const void *topic, size_t len, bool *found)
{
    size_t low = 0;
    size_t high = row->count;
    *found = false;
    while (low < high && !*found) {
        size_t middle = low + (high - low) / 2;
        const char *name = row->items[middle].topic;
        size_t name_len = strlen(name);
        int order = memcmp(name, topic, name_len < len ? name_len : len);
        if (order == 0)
            order = name_len < len ? -1 : name_len > len;
        *found = order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high < low ? low : high;
}

/* Adds or raises; the row has room. */
static void row_put(struct row *row, const char *topic, int64_t position)
{
    bool found = false;
    size_t at = row_place(row, topic, strlen(topic), &found);
    if (!found) {
        memmove(row->items + at + 1, row->items + at, (row->count - at) * sizeof row->items[0]);
        memset(&row->items[at], 0, sizeof row->items[at]);
        memcpy(row->items[at].topic, topic, strlen(topic));
        row->count++;
    }
    if (row->items[at].position < position)
        row->items[at].position = position;
    if (row->highest < row->items[at].position)
        row->highest = row->items[at].position;
}

/* Lowers a position, too. */
static void row_set(struct row *row, const char *topic, int64_t position)
{
    bool found = false;
    row_put(row, topic, position);
    row->items[row_place(row, topic, strlen(topic), &found)].position = position;
    row->highest = 0;
    for (size_t i = 0; i < row->count; i++)
        if (row->highest < row->items[i].position)
            row->highest = row->items[i].position;
}

static bool is_valid(const char *topic, int64_t position)
{
    size_t len = strnlen(topic, TOPIC_NAME_MAX + 1);
    return len <= TOPIC_NAME_MAX && !topic_name_check(topic, len, NULL) && position >= 0;
}

/* ---- the file ---- */

static char *format(const struct row *row, size_t *len)
{
    json_t *list = json_array();
    json_t *root = list ? json_pack("{s:I}", "version", (json_int_t)row->version) : NULL;
    bool whole = list && root;
    for (size_t i = 0; whole && i < row->count; i++)
        whole = json_array_append_new(list, json_pack("{s:s, s:I}", "topic", row->items[i].topic,
                                                      "position",
                                                      (json_int_t)row->items[i].position)) == 0;
    whole = whole && json_object_set(root, "deletions", list) == 0;
    char *text = whole ? json_format_pretty(root, len) : NULL;
    json_decref(list);
    json_decref(root);
    return text;
}

/* Takes one entry of the file; false: it is none. */
static bool parse_item(struct row *row, const json_t *item)
{
    const json_t *topic = json_object_get(item, "topic");
    const json_t *position = json_object_get(item, "position");
    if (!json_is_string(topic) || !json_is_integer(position) ||
        json_string_length(topic) != strlen(json_string_value(topic)) ||
        !is_valid(json_string_value(topic), json_integer_value(position)))
        return false;
    row_put(row, json_string_value(topic), json_integer_value(position));
    return true;
}

static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct row **out = arg;
    json_t *root = NULL;
    (void)extra;
    enum tern_code code = json_parse_fastjson(text, len, &root, err);
    if (code)
        return code;
    const json_t *list = json_object_get(root, "deletions");
    const json_t *version = json_object_get(root, "version");
    size_t count = json_array_size(list);
    struct row *row = NULL;
    if (!json_is_array(list) || !json_is_integer(version) || json_integer_value(version) < 0 ||
        count > DELETIONS_MAX)
        code = error_set(err, TERN_CORRUPT, "no list of deletions with a version");
    else if (!(row = row_create(count)))
        code = TERN_NO_MEMORY;
    for (size_t i = 0; !code && i < count; i++)
        if (!parse_item(row, json_array_get(list, i)))
            code = error_set(err, TERN_CORRUPT, "deletion %zu has no topic and position", i);
    if (!code) {
        row->version = (uint64_t)json_integer_value(version);
        free(*out);
        *out = row;
    } else {
        free(row);
    }
    json_decref(root);
    return code;
}

/* Puts a row in the place of the one before; takes it. */
static void install(struct deletions *d, struct row *row)
{
    lock_acquire(&d->lock);
    struct row *old = d->row;
    d->row = row;
    lock_release(&d->lock);
    atomic_store(&d->highest, row->highest);
    atomic_store(&d->version, row->version);
    free(old);
}

/* Writes and installs a row; takes it also when it fails. */
static enum tern_code commit(struct deletions *d, struct row *row, struct tern_error *err)
{
    size_t len = 0;
    char *text = format(row, &len);
    enum tern_code code = text ? durable_write(d->env, d->path, text, len, NULL, err)
                               : error_set(err, TERN_NO_MEMORY, "%s: no memory", d->path);
    free(text);
    if (code)
        free(row);
    else
        install(d, row);
    return code;
}

/* The entries within (log_min, most], with room for more. Changes come one at a time: no lock. */
static enum tern_code copy_row(const struct deletions *d, int64_t log_min, int64_t most,
                               size_t more, struct row **out, struct tern_error *err)
{
    struct row *row = row_create(d->row->count + more);
    *out = row;
    if (!row)
        return error_set(err, TERN_NO_MEMORY, "%s: no memory", d->path);
    for (size_t i = 0; i < d->row->count; i++) {
        const struct store_deletion *item = &d->row->items[i];
        if (item->position > log_min && item->position <= most)
            row_put(row, item->topic, item->position);
    }
    int64_t wall_ms = clock_wall_ms(d->env->clock);
    row->version = d->row->version + 1;
    if (wall_ms > 0 && row->version < (uint64_t)wall_ms)
        row->version = (uint64_t)wall_ms;
    return TERN_OK;
}

static enum tern_code too_many(const struct deletions *d, struct row *row, struct tern_error *err)
{
    free(row);
    return error_set(err, TERN_LIMIT,
                     "%s: more than %d deleted topics whose messages are still in the log; delete "
                     "no more before some have expired (fileReservedTime)",
                     d->path, DELETIONS_MAX);
}

/* ---- changes ---- */

enum tern_code deletions_note(struct deletions *d, const char *topic, int64_t position,
                              int64_t log_min, struct tern_error *err)
{
    struct row *row;
    if (!is_valid(topic, position))
        return error_set(err, TERN_INVALID, "deleting a topic: no topic's name");
    enum tern_code code = copy_row(d, log_min, INT64_MAX, 1, &row, err);
    if (code)
        return code;
    if (position > log_min)
        row_put(row, topic, position);
    return row->count > DELETIONS_MAX ? too_many(d, row, err) : commit(d, row, err);
}

static bool same_rows(const struct row *a, const struct row *b)
{
    return a->version == b->version && a->count == b->count &&
           memcmp(a->items, b->items, a->count * sizeof a->items[0]) == 0;
}

enum tern_code deletions_merge(struct deletions *d, const struct store_deletion *list, size_t count,
                               uint64_t version, int64_t log_min, struct tern_error *err)
{
    struct row *row;
    if (count > DELETIONS_MAX || version > INT64_MAX)
        return error_set(err, TERN_INVALID, "a list of %zu deletions is too long", count);
    for (size_t i = 0; i < count; i++)
        if (!is_valid(list[i].topic, list[i].position))
            return error_set(err, TERN_INVALID, "deletion %zu has no topic's name or position", i);
    enum tern_code code = copy_row(d, log_min, INT64_MAX, count, &row, err);
    if (code)
        return code;
    for (size_t i = 0; i < count; i++)
        if (list[i].position > log_min)
            row_set(row, list[i].topic, list[i].position);
    row->version = version;
    if (row->count > DELETIONS_MAX)
        return too_many(d, row, err);
    if (!same_rows(d->row, row))
        return commit(d, row, err);
    free(row);
    return TERN_OK;
}

enum tern_code deletions_cut(struct deletions *d, int64_t at, int64_t log_min, bool *removed,
                             struct tern_error *err)
{
    struct row *row;
    *removed = d->row->highest > at;
    if (!*removed)
        return TERN_OK;
    enum tern_code code = copy_row(d, log_min, at, 0, &row, err);
    return code ? code : commit(d, row, err);
}

enum tern_code deletions_end(struct deletions *d, int64_t end, int64_t log_min,
                             struct tern_error *err)
{
    struct row *row;
    if (d->row->highest <= end)
        return TERN_OK;
    enum tern_code code = copy_row(d, log_min, INT64_MAX, 0, &row, err);
    if (code)
        return code;
    for (size_t i = 0; i < row->count; i++)
        if (row->items[i].position > end)
            row->items[i].position = end;
    row->highest = end;
    return commit(d, row, err);
}

enum tern_code deletions_clear(struct deletions *d, struct tern_error *err)
{
    bool removed = false;
    return d->row->count == 0 ? TERN_OK : deletions_cut(d, -1, INT64_MAX, &removed, err);
}

/* ---- questions ---- */

bool deletions_cover(struct deletions *d, const void *topic, size_t topic_len, int64_t phys_off)
{
    if (!d || phys_off >= atomic_load_explicit(&d->highest, memory_order_acquire))
        return false;
    bool found = false;
    lock_acquire(&d->lock);
    size_t at = row_place(d->row, topic, topic_len, &found);
    bool covered = found && phys_off < d->row->items[at].position;
    lock_release(&d->lock);
    return covered;
}

struct store_deletion *deletions_copy(struct deletions *d, int64_t log_min, size_t *count,
                                      uint64_t *version)
{
    *count = 0;
    lock_acquire(&d->lock);
    *version = d->row->version;
    struct store_deletion *list = malloc((d->row->count + 1) * sizeof *list);
    for (size_t i = 0; list && i < d->row->count; i++)
        if (d->row->items[i].position > log_min)
            list[(*count)++] = d->row->items[i];
    lock_release(&d->lock);
    return list;
}

uint64_t deletions_version(struct deletions *d)
{
    return atomic_load(&d->version);
}

/* ---- life ---- */

enum tern_code deletions_open(const struct env *env, const char *root, struct deletions **out,
                              struct tern_error *err)
{
    *out = NULL;
    struct deletions *d = calloc(1, sizeof *d);
    struct row *row = row_create(0);
    if (!d || !row) {
        free(d);
        free(row);
        return error_set(err, TERN_NO_MEMORY, "%s: no memory", root);
    }
    d->env = env;
    lock_init(&d->lock, LOCK_STORE_FILES);
    enum tern_code code = fs_join(d->path, root, "ternmq/deleted.json");
    if (code)
        error_set(err, code, "%s: path too long", root);
    else
        code = durable_read(env, d->path, parse, &row, err);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK;
    install(d, row);
    if (code) {
        deletions_close(d);
        return code;
    }
    *out = d;
    return TERN_OK;
}

void deletions_close(struct deletions *d)
{
    if (!d)
        return;
    free(d->row);
    lock_fini(&d->lock);
    free(d);
}
