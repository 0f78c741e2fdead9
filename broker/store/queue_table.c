/*
 * The table of consume queues: finding them by topic and queue id, and tending all of them.
 *
 * Finding is the hot path: every dispatched run and every pull does it. One short mutex, a hash of
 * the topic's bytes, a chain of objects; nothing is allocated when the queue is there. A queue
 * object is about 300 bytes; topic names are shared.
 *
 * Tending: a put pushes its queue on a lock-free stack, unless it is there already; a flush takes
 * the whole stack. A queue stays on the list `tended` until its files are synced and it was idle
 * for one flush, when its ring is freed. So a flush costs what was written, not what there is.
 *
 * Deleting a topic renames its folder away in one step, under the table's lock, so that a queue of
 * the same name made a moment later cannot meet the old files.
 *
 * Threads: any. Locks: see consume_queue_internal.h. Failure modes: codes of the disk; a flush goes
 * on with the other queues and returns the first code.
 */
#include "broker/store/consume_queue_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_BUCKETS_MIN = 64 };

static uint64_t hash_name(const char *name, size_t len)
{
    uint64_t h = len * 0x9E3779B97F4A7C15u;
    while (len > 0) {
        uint64_t word = 0;
        size_t n = len < sizeof word ? len : sizeof word;
        memcpy(&word, name, n);
        h = (h ^ word) * 0xC2B2AE3D27D4EB4Fu;
        h ^= h >> 29;
        name += n;
        len -= n;
    }
    return h;
}

static uint32_t queue_bucket(const struct queue_table *table, uint64_t hash, int32_t queue_id)
{
    uint64_t h = (hash ^ (uint32_t)queue_id) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32) & table->mask;
}

enum tern_code queue_table_create(const struct env *env, const char *dir, int64_t file_bytes,
                                  uint32_t open_files_max, bool read_only, struct queue_table **out)
{
    *out = NULL;
    if (file_bytes <= 0 || strlen(dir) >= FS_PATH_BYTES)
        return TERN_INVALID;
    struct queue_table *table = calloc(1, sizeof *table);
    if (!table)
        return TERN_NO_MEMORY;
    table->env = env;
    table->read_only = read_only;
    table->file_bytes = (file_bytes + QUEUE_UNIT_BYTES - 1) / QUEUE_UNIT_BYTES * QUEUE_UNIT_BYTES;
    table->mask = table->topic_mask = TABLE_BUCKETS_MIN - 1;
    table->next_serial = 1;
    snprintf(table->dir, sizeof table->dir, "%s", dir);
    lock_init(&table->lock, LOCK_STORE_QUEUES);
    lock_init(&table->flush_lock, LOCK_STORE_TEND);
    table->buckets = calloc(TABLE_BUCKETS_MIN, sizeof(struct consume_queue *));
    table->topics = calloc(TABLE_BUCKETS_MIN, sizeof(struct queue_topic *));
    if (!table->buckets || !table->topics ||
        file_cache_create(env->fs, open_files_max ? open_files_max : 1, &table->files)) {
        queue_table_destroy(table);
        return TERN_NO_MEMORY;
    }
    *out = table;
    return TERN_OK;
}

void queue_table_destroy(struct queue_table *table)
{
    if (!table)
        return;
    struct consume_queue *next;
    for (struct consume_queue *q = atomic_load(&table->touched); q; q = next) {
        next = q->touch_next;
        consume_queue_unref(q);
    }
    for (struct consume_queue *q = table->tended; q; q = next) {
        next = q->tend_next;
        consume_queue_unref(q);
    }
    for (uint32_t i = 0; table->buckets && i <= table->mask; i++) {
        for (struct consume_queue *q = table->buckets[i]; q; q = next) {
            next = q->next;
            consume_queue_unref(q);
        }
    }
    file_cache_destroy(table->files);
    free(table->buckets);
    free(table->topics);
    lock_fini(&table->lock);
    lock_fini(&table->flush_lock);
    free(table);
}

/* ---- finding ---- */

/* @locks holds:table->lock */
static struct queue_topic *topic_find(struct queue_table *table, uint64_t hash, const char *name,
                                      size_t len)
{
    struct queue_topic *t = table->topics[hash & table->topic_mask];
    while (t && (t->hash != hash || t->len != len || memcmp(t->name, name, len) != 0))
        t = t->next;
    return t;
}

/* @locks holds:table->lock */
static struct consume_queue *find(struct queue_table *table, uint64_t hash, const char *name,
                                  size_t len, int32_t queue_id)
{
    struct consume_queue *q = table->buckets[queue_bucket(table, hash, queue_id)];
    while (q && (q->queue_id != queue_id || q->topic->hash != hash || q->topic->len != len ||
                 memcmp(q->topic->name, name, len) != 0))
        q = q->next;
    if (q)
        atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
    return q;
}

struct consume_queue *queue_table_find(struct queue_table *table, const char *topic,
                                       size_t topic_len, int32_t queue_id)
{
    uint64_t hash = hash_name(topic, topic_len);
    lock_acquire(&table->lock);
    struct consume_queue *q = find(table, hash, topic, topic_len, queue_id);
    lock_release(&table->lock);
    return q;
}

/* ---- adding ---- */

/* Twice the buckets when there are more queues; without memory the chains grow. @locks
 * holds:table->lock */
static void grow_queues(struct queue_table *table)
{
    uint32_t size = (table->mask + 1) * 2;
    struct consume_queue **old = table->buckets;
    struct consume_queue **buckets = calloc(size, sizeof(struct consume_queue *));
    if (!buckets)
        return;
    uint32_t old_mask = table->mask;
    table->buckets = buckets;
    table->mask = size - 1;
    for (uint32_t i = 0; i <= old_mask; i++) {
        struct consume_queue *next;
        for (struct consume_queue *q = old[i]; q; q = next) {
            next = q->next;
            struct consume_queue **b = &buckets[queue_bucket(table, q->topic->hash, q->queue_id)];
            q->next = *b;
            *b = q;
        }
    }
    free(old);
}

/* @locks holds:table->lock */
static void grow_topics(struct queue_table *table)
{
    uint32_t size = (table->topic_mask + 1) * 2;
    struct queue_topic **old = table->topics;
    struct queue_topic **topics = calloc(size, sizeof(struct queue_topic *));
    if (!topics)
        return;
    uint32_t old_mask = table->topic_mask;
    table->topics = topics;
    table->topic_mask = size - 1;
    for (uint32_t i = 0; i <= old_mask; i++) {
        struct queue_topic *next;
        for (struct queue_topic *t = old[i]; t; t = next) {
            next = t->next;
            struct queue_topic **b = &topics[t->hash & table->topic_mask];
            t->next = *b;
            *b = t;
        }
    }
    free(old);
}

/* The shared name with one more reference, added when absent. NULL without memory. @locks
 * holds:table->lock */
static struct queue_topic *topic_ref(struct queue_table *table, uint64_t hash, const char *name,
                                     size_t len)
{
    struct queue_topic *t = topic_find(table, hash, name, len);
    if (t) {
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
        return t;
    }
    t = malloc(sizeof *t + len + 1);
    if (!t)
        return NULL;
    atomic_init(&t->refs, 1);
    t->last_queue_id = -1;
    t->hash = hash;
    t->len = (uint32_t)len;
    memcpy(t->name, name, len);
    t->name[len] = 0;
    if (table->topic_count > table->topic_mask)
        grow_topics(table);
    struct queue_topic **bucket = &table->topics[hash & table->topic_mask];
    t->next = *bucket;
    *bucket = t;
    table->topic_count++;
    return t;
}

/* @locks holds:table->lock */
static struct consume_queue *add(struct queue_table *table, uint64_t hash, const char *name,
                                 size_t len, int32_t queue_id)
{
    struct consume_queue *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->topic = topic_ref(table, hash, name, len);
    if (!q->topic) {
        free(q);
        return NULL;
    }
    q->table = table;
    q->serial = table->next_serial++;
    q->queue_id = queue_id;
    atomic_init(&q->refs, 2); /* the table's and the caller's */
    q->file_first = q->dirty_from = q->last_phys = -1;
    q->empty = true;
    lock_init(&q->io_lock, LOCK_STORE_CQ_FILES);
    lock_init(&q->lock, LOCK_STORE_CQ);
    if (queue_id > q->topic->last_queue_id)
        q->topic->last_queue_id = queue_id;
    if (table->count > table->mask)
        grow_queues(table);
    struct consume_queue **bucket = &table->buckets[queue_bucket(table, hash, queue_id)];
    q->next = *bucket;
    *bucket = q;
    table->count++;
    return q;
}

enum tern_code queue_table_ref(struct queue_table *table, const char *topic, size_t topic_len,
                               int32_t queue_id, struct consume_queue **out)
{
    uint64_t hash = hash_name(topic, topic_len);
    enum tern_code code = TERN_OK;
    lock_acquire(&table->lock);
    *out = find(table, hash, topic, topic_len, queue_id);
    if (!*out && table->count >= QUEUES_MAX) {
        code = TERN_LIMIT;
    } else if (!*out) {
        *out = add(table, hash, topic, topic_len, queue_id);
        code = *out ? TERN_OK : TERN_NO_MEMORY;
    }
    lock_release(&table->lock);
    return code;
}

/* ---- all of them ---- */

enum tern_code queue_table_snapshot(struct queue_table *table, struct consume_queue ***out,
                                    uint32_t *count)
{
    *count = 0;
    lock_acquire(&table->lock);
    *out = malloc((table->count + 1) * sizeof(struct consume_queue *));
    for (uint32_t i = 0; *out && i <= table->mask; i++) {
        for (struct consume_queue *q = table->buckets[i]; q; q = q->next) {
            atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
            (*out)[(*count)++] = q;
        }
    }
    lock_release(&table->lock);
    return *out ? TERN_OK : TERN_NO_MEMORY;
}

int64_t queue_table_keep(struct queue_table *table, int64_t most)
{
    int64_t kept = table->kept_units;
    table->keep_units = most;
    table->kept_units = 0;
    return kept;
}

void queue_table_settle(struct queue_table *table)
{
    lock_acquire(&table->lock);
    for (uint32_t i = 0; i <= table->mask; i++)
        for (struct consume_queue *q = table->buckets[i]; q; q = q->next)
            q->next_off = consume_queue_max(q);
    lock_release(&table->lock);
}

uint32_t queue_table_count(struct queue_table *table)
{
    lock_acquire(&table->lock);
    uint32_t count = table->count;
    lock_release(&table->lock);
    return count;
}

int32_t queue_table_last_queue(struct queue_table *table, const char *topic)
{
    size_t len = strlen(topic);
    lock_acquire(&table->lock);
    const struct queue_topic *t = topic_find(table, hash_name(topic, len), topic, len);
    int32_t last = t ? t->last_queue_id : -1;
    lock_release(&table->lock);
    return last;
}

/* ---- deleting a topic ---- */

/* From here on nothing more is written for the queue: io_lock keeps a put that fills its ring out.
 */
static void mark_dead(struct consume_queue *queue)
{
    lock_acquire(&queue->io_lock);
    lock_acquire(&queue->lock);
    atomic_store_explicit(&queue->dead, true, memory_order_release);
    lock_release(&queue->lock);
    lock_release(&queue->io_lock);
}

/*
 * Takes the topic's queues out of the table, dead, linked by `next` with the table's references.
 * @locks holds:flush_lock,table->lock
 */
static struct consume_queue *unlink_topic(struct queue_table *table, struct queue_topic *topic)
{
    struct consume_queue *gone = NULL;
    for (uint32_t i = 0; i <= table->mask; i++) {
        struct consume_queue **at = &table->buckets[i];
        while (*at) {
            struct consume_queue *q = *at;
            if (q->topic == topic) {
                mark_dead(q);
                *at = q->next;
                q->next = gone;
                gone = q;
                table->count--;
            } else {
                at = &q->next;
            }
        }
    }
    struct queue_topic **at = &table->topics[topic->hash & table->topic_mask];
    while (*at != topic)
        at = &(*at)->next;
    *at = topic->next;
    table->topic_count--;
    return gone;
}

enum tern_code queue_table_detach_topic(struct queue_table *table, const char *topic,
                                        char moved[FS_PATH_BYTES], struct tern_error *err)
{
    char from[FS_PATH_BYTES];
    size_t len = strlen(topic);
    enum tern_code code = fs_join(from, table->dir, topic);
    if (code)
        return error_set(err, code, "deleting the queues of topic %s", topic);
    lock_acquire(&table->flush_lock); /* no flush, no expiry meanwhile */
    lock_acquire(&table->lock);
    struct queue_topic *t = topic_find(table, hash_name(topic, len), topic, len);
    struct consume_queue *gone = t ? unlink_topic(table, t) : NULL;
    int n = snprintf(moved, FS_PATH_BYTES, "%s/%s%llu", table->dir, QUEUE_TABLE_DELETED_PREFIX,
                     (unsigned long long)table->next_serial++);
    code = n < FS_PATH_BYTES ? fs_rename(table->env->fs, from, moved) : TERN_TOO_LARGE;
    int saved = errno;
    lock_release(&table->lock);
    lock_release(&table->flush_lock);
    while (gone) {
        struct consume_queue *next = gone->next;
        file_cache_forget_owner(table->files, gone->serial);
        consume_queue_unref(gone);
        gone = next;
    }
    if (code && code != TERN_NOT_FOUND) /* that one never had a file */
        error_set_errno(err, code, saved, "removing %s", from);
    return code;
}

enum tern_code queue_table_discard(struct queue_table *table, const char *moved,
                                   struct tern_error *err)
{
    enum tern_code code = fs_sync_dir(table->env->fs, table->dir);
    if (!code)
        code = queue_table_remove_dir(table, moved);
    return code ? error_set_errno(err, code, errno, "removing %s", moved) : TERN_OK;
}

enum tern_code queue_table_delete_topic(struct queue_table *table, const char *topic,
                                        struct tern_error *err)
{
    char moved[FS_PATH_BYTES];
    enum tern_code code = queue_table_detach_topic(table, topic, moved, err);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    return code ? code : queue_table_discard(table, moved, err);
}
