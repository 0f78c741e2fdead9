/*
 * Topics and their rows. A set's table comes as a whole and is applied in one pass: every row it
 * names is found or made and marked with the set's new generation; only if the set then has more
 * rows than the table has topics, rows with an older mark exist and a sweep over all topics drops
 * them. So the usual registration, one topic more, costs one hash look-up per topic of the table.
 *
 * Invariants: a topic without rows does not exist; set->row_count and table->row_count count the
 * rows.
 *
 * Threads: see route_table.h. Failure modes: without memory a table may be applied in part; its
 * caller then forgets the version, so that the broker sends it again.
 */
#include "namesrv/route_internal.h"

#include <stdlib.h>
#include <string.h>

static struct route_topic *find_topic(const struct route_table *table, const void *name,
                                      size_t name_len)
{
    struct route_topic *topic;
    HASH_FIND(hh, table->topics, name, (unsigned)name_len, topic);
    return topic;
}

const struct route_topic *route_find_topic(const struct route_table *table, const void *name,
                                           size_t name_len)
{
    return name_len > 0 && name_len <= TOPIC_NAME_MAX ? find_topic(table, name, name_len) : NULL;
}

const struct route_topic *route_first_topic(const struct route_table *table)
{
    return table->topics;
}

const struct route_topic *route_next_topic(const struct route_topic *topic)
{
    return topic->hh.next;
}

size_t route_topic_count(const struct route_table *table)
{
    return HASH_COUNT(table->topics);
}

static struct route_topic *add_topic(struct route_table *table, const char *name, size_t name_len)
{
    struct route_topic *topic = malloc(sizeof *topic + name_len + 1);
    if (!topic)
        return NULL;
    memset(topic, 0, sizeof *topic);
    topic->name_len = name_len;
    memcpy(topic->name, name, name_len);
    topic->name[name_len] = 0;
    HASH_ADD_KEYPTR(hh, table->topics, topic->name, (unsigned)name_len, topic);
    if (topic->name_len == SIZE_MAX) {
        free(topic);
        return NULL;
    }
    return topic;
}

/* Where the set's row is, or would be, among the topic's; *found says which. */
static size_t row_position(const struct route_topic *topic, const struct route_set *set,
                           bool *found)
{
    size_t low = 0;
    size_t high = topic->row_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(topic->rows[middle].set->name, set->name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

/* The set's row of the topic, made when it is missing; NULL without memory. */
static struct route_row *ensure_row(struct route_table *table, struct route_topic *topic,
                                    struct route_set *set)
{
    bool found;
    size_t at = row_position(topic, set, &found);
    if (found)
        return &topic->rows[at];
    if (topic->row_count == topic->row_cap) {
        size_t cap = topic->row_cap ? topic->row_cap * 2 : 1;
        struct route_row *rows = realloc(topic->rows, cap * sizeof *rows);
        if (!rows)
            return NULL;
        topic->rows = rows;
        topic->row_cap = cap;
    }
    memmove(&topic->rows[at + 1], &topic->rows[at], (topic->row_count - at) * sizeof *topic->rows);
    topic->rows[at] = (struct route_row){.set = set};
    topic->row_count++;
    set->row_count++;
    table->row_count++;
    return &topic->rows[at];
}

static void remove_row(struct route_table *table, struct route_topic *topic, size_t at)
{
    topic->rows[at].set->row_count--;
    table->row_count--;
    topic->row_count--;
    memmove(&topic->rows[at], &topic->rows[at + 1], (topic->row_count - at) * sizeof *topic->rows);
}

/* The topic goes when its last row went. */
static void forget_if_empty(struct route_table *table, struct route_topic *topic)
{
    if (topic->row_count > 0)
        return;
    HASH_DELETE(hh, table->topics, topic);
    free(topic->rows);
    free(topic);
}

/* Drops the set's rows of another generation than `keep`. */
static void sweep(struct route_table *table, struct route_set *set, uint32_t keep)
{
    struct route_topic *topic;
    struct route_topic *next;
    HASH_ITER (hh, table->topics, topic, next) {
        bool found;
        size_t at = row_position(topic, set, &found);
        if (found && topic->rows[at].generation != keep) {
            remove_row(table, topic, at);
            forget_if_empty(table, topic);
        }
    }
}

enum tern_code route_rows_admit(const struct route_table *table, const struct route_set *set,
                                const struct route_topic_config *topics, size_t count,
                                struct tern_error *err)
{
    if (count > ROUTE_TOPICS_MAX)
        return error_set(err, TERN_LIMIT, "%zu topics in one table, allowed 0..%d", count,
                         (int)ROUTE_TOPICS_MAX);
    size_t others = table->row_count - (set ? set->row_count : 0);
    if (others + count > ROUTE_ROWS_MAX)
        return error_set(err, TERN_LIMIT,
                         "%zu topics on top of the %zu of other brokers, allowed %d in all", count,
                         others, (int)ROUTE_ROWS_MAX);
    size_t known = route_topic_count(table);
    if (known + count <= ROUTE_TOPICS_MAX)
        return TERN_OK;
    size_t added = 0;
    for (size_t i = 0; i < count; i++)
        added += find_topic(table, topics[i].name, topics[i].name_len) == NULL;
    if (known + added > ROUTE_TOPICS_MAX)
        return error_set(err, TERN_LIMIT, "%zu new topics on top of %zu, allowed %d", added, known,
                         (int)ROUTE_TOPICS_MAX);
    return TERN_OK;
}

enum tern_code route_rows_replace(struct route_table *table, struct route_set *set,
                                  const struct route_topic_config *topics, size_t count,
                                  struct tern_error *err)
{
    size_t distinct = 0;
    uint32_t generation = ++set->generation;
    for (size_t i = 0; i < count; i++) {
        const struct route_topic_config *config = &topics[i];
        struct route_topic *topic = find_topic(table, config->name, config->name_len);
        if (!topic)
            topic = add_topic(table, config->name, config->name_len);
        struct route_row *row = topic ? ensure_row(table, topic, set) : NULL;
        if (!row) {
            if (topic)
                forget_if_empty(table, topic);
            return error_set(err, TERN_NO_MEMORY, "after %zu of %zu topics", i, count);
        }
        distinct += row->generation != generation;
        row->generation = generation;
        row->read_queues = config->read_queues;
        row->write_queues = config->write_queues;
        row->perm = config->perm;
        row->sys_flag = config->sys_flag;
    }
    if (set->row_count > distinct)
        sweep(table, set, generation);
    ENSURE(set->row_count == distinct);
    return TERN_OK;
}

void route_rows_drop(struct route_table *table, struct route_set *set)
{
    if (set->row_count > 0)
        sweep(table, set, set->generation + 1);
    ENSURE(set->row_count == 0);
}

void route_rows_fini(struct route_table *table)
{
    struct route_topic *topic;
    struct route_topic *next;
    HASH_ITER (hh, table->topics, topic, next) {
        topic->row_count = 0;
        forget_if_empty(table, topic);
    }
}

int32_t route_row_perm(const struct route_row *row)
{
    bool writable = route_set_has_master(row->set) && !row->set->write_wiped;
    return writable ? row->perm : row->perm & ~(int32_t)ROUTE_PERM_WRITE;
}

size_t route_delete_topic(struct route_table *table, const void *name, size_t name_len,
                          const char *cluster)
{
    struct route_topic *topic = find_topic(table, name, name_len);
    size_t removed = 0;
    if (!topic)
        return 0;
    for (size_t i = topic->row_count; i-- > 0;) {
        if (cluster[0] && strcmp(topic->rows[i].set->cluster, cluster) != 0)
            continue;
        /* A broker that has the topic all the same is asked for its table, and brings it back. */
        topic->rows[i].set->source = ROUTE_TABLE_NONE;
        remove_row(table, topic, i);
        removed++;
    }
    forget_if_empty(table, topic);
    return removed;
}
