/*
 * Rows of the broker's tables as messages, and back.
 *
 * Invariants: what leaves the functions below is within the grammar and ranges that the tables ask
 * for, so that a peer can put nothing into them that a client could not.
 *
 * Threads: any, no state. Failure modes: no memory, or the first fault with its name and value.
 */
#include "broker/set_tables_wire.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DELETIONS_MAX = 1000000, ROW_OVERHEAD_BYTES = 6 /* tag and length of a row in its table */ };

/* ---- to the wire ---- */

/* Names one behind the other in one piece of memory. */
struct name_pool {
    char *bytes;
    size_t used;
};

static ProtobufCBinaryData pool_add(struct name_pool *pool, const char *name)
{
    size_t len = strlen(name);
    char *at = pool->bytes + pool->used;
    memcpy(at, name, len);
    pool->used += len;
    return frame_bytes(at, len);
}

bool topics_to_wire(struct arena *arena, const struct topics *topics,
                    const struct topic_config *rows, size_t count, Tern__Wire__HaTables *out,
                    size_t *size_bytes)
{
    size_t names = 1;
    for (size_t i = 0; i < count; i++)
        names += rows[i].name_len;
    struct name_pool pool = {.bytes = arena_alloc(arena, names)};
    Tern__Wire__TopicConfig *all = arena_alloc(arena, (count + 1) * sizeof *all);
    out->topics = arena_alloc(arena, (count + 1) * sizeof out->topics[0]);
    if (!pool.bytes || !all || !out->topics)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (topics_is_own(topics, rows[i].name, rows[i].name_len))
            continue;
        Tern__Wire__TopicConfig *wire = &all[out->n_topics];
        tern__wire__topic_config__init(wire);
        wire->name = pool_add(&pool, rows[i].name);
        wire->read_queues = rows[i].read_queues;
        wire->write_queues = rows[i].write_queues;
        wire->perm = rows[i].perm;
        wire->sys_flag = rows[i].sys_flag;
        wire->order = rows[i].order;
        out->topics[out->n_topics++] = wire;
        *size_bytes += tern__wire__topic_config__get_packed_size(wire) + ROW_OVERHEAD_BYTES;
    }
    return true;
}

bool deletions_to_wire(struct arena *arena, const struct store_deletion *rows, size_t count,
                       Tern__Wire__HaTables *out, size_t *size_bytes)
{
    size_t names = 1;
    for (size_t i = 0; i < count; i++)
        names += strlen(rows[i].topic);
    struct name_pool pool = {.bytes = arena_alloc(arena, names)};
    Tern__Wire__TopicDeletion *all = arena_alloc(arena, (count + 1) * sizeof *all);
    out->deletions = arena_alloc(arena, (count + 1) * sizeof out->deletions[0]);
    if (!pool.bytes || !all || !out->deletions)
        return false;
    for (size_t i = 0; i < count; i++) {
        tern__wire__topic_deletion__init(&all[i]);
        all[i].topic = pool_add(&pool, rows[i].topic);
        all[i].position = rows[i].position;
        out->deletions[i] = &all[i];
        *size_bytes += tern__wire__topic_deletion__get_packed_size(&all[i]) + ROW_OVERHEAD_BYTES;
    }
    out->n_deletions = count;
    return true;
}

bool groups_to_wire(struct arena *arena, const struct group_config *rows, size_t count,
                    Tern__Wire__HaTables *out, size_t *size_bytes)
{
    size_t names = 1;
    for (size_t i = 0; i < count; i++)
        names += strlen(rows[i].name);
    struct name_pool pool = {.bytes = arena_alloc(arena, names)};
    Tern__Wire__GroupConfig *all = arena_alloc(arena, (count + 1) * sizeof *all);
    out->groups = arena_alloc(arena, (count + 1) * sizeof out->groups[0]);
    if (!pool.bytes || !all || !out->groups)
        return false;
    for (size_t i = 0; i < count; i++) {
        Tern__Wire__GroupConfig *wire = &all[i];
        tern__wire__group_config__init(wire);
        wire->name = pool_add(&pool, rows[i].name);
        wire->consume_enable = rows[i].consume_enable;
        wire->consume_from_min_enable = rows[i].consume_from_min_enable;
        wire->consume_broadcast_enable = rows[i].consume_broadcast_enable;
        wire->retry_queues = rows[i].retry_queues;
        wire->retry_max_times = rows[i].retry_max_times;
        wire->broker_id = rows[i].broker_id;
        wire->which_broker_when_consume_slowly = rows[i].which_broker_when_slow;
        wire->notify_members_changed = rows[i].notify_members_changed;
        wire->subscription_consistency = rows[i].consistency;
        out->groups[i] = wire;
        *size_bytes += tern__wire__group_config__get_packed_size(wire) + ROW_OVERHEAD_BYTES;
    }
    out->n_groups = count;
    return true;
}

Tern__Wire__ProgressEntry *progress_to_wire(struct arena *arena, const struct offset_change *change)
{
    struct {
        Tern__Wire__ProgressEntry entry;
        Tern__Wire__OffsetVersion version, before;
    } *out = arena_alloc(arena, sizeof *out);
    struct name_pool pool = {
        .bytes = arena_alloc(arena, strlen(change->group) + strlen(change->topic) + 1)};
    if (!out || !pool.bytes)
        return NULL;
    tern__wire__progress_entry__init(&out->entry);
    tern__wire__offset_version__init(&out->version);
    tern__wire__offset_version__init(&out->before);
    out->entry.group = pool_add(&pool, change->group);
    out->entry.topic = pool_add(&pool, change->topic);
    out->entry.queue_id = change->queue_id;
    out->entry.offset = change->offset;
    out->version.epoch = change->version.epoch;
    out->version.counter = change->version.counter;
    out->entry.version = &out->version;
    if (change->kept_end >= 0) {
        out->before.epoch = change->before.epoch;
        out->before.counter = change->before.counter;
        out->entry.before = &out->before;
        out->entry.kept_end = change->kept_end;
    }
    return &out->entry;
}

Tern__Wire__LockEntry *lock_to_wire(struct arena *arena, const struct queue_lock_change *change)
{
    Tern__Wire__LockEntry *out = arena_alloc(arena, sizeof *out);
    struct name_pool pool = {.bytes =
                                 arena_alloc(arena, strlen(change->group) + strlen(change->topic) +
                                                        strlen(change->client) + 1)};
    if (!out || !pool.bytes)
        return NULL;
    tern__wire__lock_entry__init(out);
    out->group = pool_add(&pool, change->group);
    out->topic = pool_add(&pool, change->topic);
    out->client_id = pool_add(&pool, change->client);
    out->queue_id = change->queue_id;
    out->remaining_ms = (uint32_t)change->remaining_ms;
    out->tries_offset = change->tries_offset;
    out->tries = change->tries;
    out->grant = change->grant;
    out->given_back = change->given_back;
    return out;
}

/* ---- from the wire ---- */

/* After its check: room for it and a NUL is there. */
static void copy_name(char *out, const ProtobufCBinaryData *name)
{
    if (name->len)
        memcpy(out, name->data, name->len);
    out[name->len] = 0;
}

static enum tern_code check_number(const char *what, int64_t value, int64_t min, int64_t max,
                                   struct tern_error *err)
{
    if (value >= min && value <= max)
        return TERN_OK;
    return error_set(err, TERN_INVALID, "%s is %" PRId64 ", allowed %" PRId64 "..%" PRId64, what,
                     value, min, max);
}

/* Room for rows, when there may be so many. */
static void *make_rows(const char *what, size_t count, size_t max, size_t row_bytes,
                       enum tern_code *code, struct tern_error *err)
{
    void *rows = count <= max ? calloc(count + 1, row_bytes) : NULL;
    *code = TERN_OK;
    if (count > max)
        *code = error_set(err, TERN_INVALID, "%zu %s, allowed %zu", count, what, max);
    else if (!rows)
        *code = error_set(err, TERN_NO_MEMORY, "no memory for %zu %s", count, what);
    return rows;
}

enum tern_code topics_from_wire(const Tern__Wire__HaTables *wire, struct topic_config **out,
                                struct tern_error *err)
{
    enum tern_code code;
    struct topic_config *rows =
        make_rows("topics", wire->n_topics, TOPICS_MAX, sizeof *rows, &code, err);
    for (size_t i = 0; !code && i < wire->n_topics; i++) {
        const Tern__Wire__TopicConfig *from = wire->topics[i];
        code = topic_name_check(from->name.data, from->name.len, err);
        if (!code)
            code = check_number("topic_sys_flag", from->sys_flag, 0, INT32_MAX, err);
        if (code)
            break;
        copy_name(rows[i].name, &from->name);
        rows[i].name_len = (uint8_t)from->name.len;
        rows[i].read_queues = from->read_queues; /* these are topics_replace()'s to check */
        rows[i].write_queues = from->write_queues;
        rows[i].perm = from->perm;
        rows[i].sys_flag = from->sys_flag;
        rows[i].order = from->order;
    }
    if (code)
        free(rows);
    *out = code ? NULL : rows;
    return code;
}

enum tern_code deletions_from_wire(const Tern__Wire__HaTables *wire, struct store_deletion **out,
                                   struct tern_error *err)
{
    enum tern_code code;
    struct store_deletion *rows =
        make_rows("deletions", wire->n_deletions, DELETIONS_MAX, sizeof *rows, &code, err);
    for (size_t i = 0; !code && i < wire->n_deletions; i++) {
        const Tern__Wire__TopicDeletion *from = wire->deletions[i];
        code = topic_name_check(from->topic.data, from->topic.len, err);
        if (!code)
            code = check_number("position of a deletion", from->position, 0, INT64_MAX, err);
        if (code)
            break;
        copy_name(rows[i].topic, &from->topic);
        rows[i].position = from->position;
    }
    if (code)
        free(rows);
    *out = code ? NULL : rows;
    return code;
}

enum tern_code groups_from_wire(const Tern__Wire__HaTables *wire, struct group_config **out,
                                struct tern_error *err)
{
    enum tern_code code;
    struct group_config *rows =
        make_rows("groups", wire->n_groups, GROUPS_MAX, sizeof *rows, &code, err);
    for (size_t i = 0; !code && i < wire->n_groups; i++) {
        const Tern__Wire__GroupConfig *from = wire->groups[i];
        code = group_name_check(from->name.data, from->name.len, err);
        if (code)
            break;
        group_config_init(&rows[i], (const char *)from->name.data, from->name.len);
        rows[i].consume_enable = from->consume_enable;
        rows[i].consume_from_min_enable = from->consume_from_min_enable;
        rows[i].consume_broadcast_enable = from->consume_broadcast_enable;
        rows[i].retry_queues = from->retry_queues; /* these are groups_replace()'s to check */
        rows[i].retry_max_times = from->retry_max_times;
        rows[i].broker_id = from->broker_id;
        rows[i].which_broker_when_slow = from->which_broker_when_consume_slowly;
        rows[i].notify_members_changed = from->notify_members_changed;
        rows[i].consistency = from->subscription_consistency;
    }
    if (code)
        free(rows);
    *out = code ? NULL : rows;
    return code;
}

/* A name that may be empty when `optional`. */
static enum tern_code take_topic(const ProtobufCBinaryData *name, bool optional, char *out,
                                 struct tern_error *err)
{
    enum tern_code code =
        optional && !name->len ? TERN_OK : topic_name_check(name->data, name->len, err);
    if (!code)
        copy_name(out, name);
    return code;
}

static enum tern_code take_group(const ProtobufCBinaryData *name, bool optional, char *out,
                                 struct tern_error *err)
{
    enum tern_code code =
        optional && !name->len ? TERN_OK : group_name_check(name->data, name->len, err);
    if (!code)
        copy_name(out, name);
    return code;
}

static enum tern_code take_version(const Tern__Wire__OffsetVersion *wire,
                                   struct offset_version *out, struct tern_error *err)
{
    *out =
        wire ? (struct offset_version){wire->epoch, wire->counter} : (struct offset_version){0, 0};
    if (out->epoch <= INT64_MAX && out->counter <= INT64_MAX)
        return TERN_OK;
    return error_set(err, TERN_INVALID, "version of progress has a number above %" PRId64,
                     INT64_MAX);
}

enum tern_code progress_from_wire(const Tern__Wire__ProgressEntry *wire, struct wire_names *names,
                                  struct offset_change *out, struct tern_error *err)
{
    bool floor = wire->queue_id == -1;
    *out = (struct offset_change){.group = names->group,
                                  .topic = names->topic,
                                  .queue_id = wire->queue_id,
                                  .offset = floor ? 0 : wire->offset,
                                  .kept_end = -1};
    enum tern_code code =
        check_number("queue of progress", wire->queue_id, -1, TOPIC_QUEUES_MAX - 1, err);
    if (!code)
        code = take_group(&wire->group, floor, names->group, err);
    if (!code)
        code = take_topic(&wire->topic, floor, names->topic, err);
    if (!code && floor && wire->group.len && wire->topic.len)
        code = error_set(err, TERN_INVALID, "a floor of progress with both group and topic");
    if (!code)
        code = check_number("offset of progress", wire->offset, 0, INT64_MAX, err);
    if (!code)
        code = take_version(wire->version, &out->version, err);
    if (!code && wire->before && !floor) {
        code = take_version(wire->before, &out->before, err);
        if (!code)
            code = check_number("kept_end of progress", wire->kept_end, 0, INT64_MAX, err);
        out->kept_end = wire->kept_end;
    }
    return code;
}

enum tern_code lock_from_wire(const Tern__Wire__LockEntry *wire, struct wire_names *names,
                              struct queue_lock_change *out, struct tern_error *err)
{
    *out = (struct queue_lock_change){.group = names->group,
                                      .topic = names->topic,
                                      .client = names->client,
                                      .queue_id = wire->queue_id,
                                      .remaining_ms = wire->remaining_ms,
                                      .tries_offset = wire->tries_offset,
                                      .tries = wire->tries,
                                      .grant = wire->grant,
                                      .given_back = wire->given_back};
    enum tern_code code =
        check_number("queue of a lock", wire->queue_id, 0, TOPIC_QUEUES_MAX - 1, err);
    if (!code)
        code = check_number("tries_offset of a lock", wire->tries_offset, 0, INT64_MAX, err);
    if (!code)
        code = check_number("tries of a lock", wire->tries, 0, INT32_MAX, err);
    if (!code)
        code = check_number("grant of a lock", wire->grant, 0, INT64_MAX, err);
    if (!code)
        code = check_number("given_back of a lock", wire->given_back, 0, INT64_MAX, err);
    if (!code)
        code = take_group(&wire->group, false, names->group, err);
    if (!code)
        code = take_topic(&wire->topic, false, names->topic, err);
    if (!code && wire->client_id.len)
        code = client_id_check(wire->client_id.data, wire->client_id.len, err);
    if (!code)
        copy_name(names->client, &wire->client_id);
    return code;
}
