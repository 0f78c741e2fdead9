/*
 * What an administrator does to a store that runs: other limits, cleaning up, a look at the units
 * of a queue and at the list of topics.
 *
 * Place: behind mqadmin's updateBrokerConfig, cleanExpiredCQ, cleanUnusedTopic and queryCq.
 * Invariant: limits change one by one, so a get that runs meanwhile may see some old and some new
 * ones; each alone is always a valid one. Threads: any. Failure modes: codes of the disk.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/store/consume_queue_internal.h"
#include "broker/store/retention.h"
#include "broker/store/store_internal.h"

/* ---- limits ---- */

struct store_limits store_limits_of(const struct store_options *options)
{
    return (struct store_limits){
        .retention_ms = options->retention_ms,
        .delete_hours = options->delete_hours,
        .disk_max_used_ratio = options->disk_max_used_ratio,
        .disk_clean_ratio = options->disk_clean_ratio,
        .disk_warning_ratio = options->disk_warning_ratio,
        .memory_window_bytes = options->memory_window_bytes,
        .memory_count = options->memory_count,
        .disk_count = options->disk_count,
        .memory_bytes = options->memory_bytes,
        .disk_bytes = options->disk_bytes,
    };
}

void store_set_read_limits(struct store *store, const struct store_limits *limits)
{
    struct read_limits *own = &store->limits;
    atomic_store_explicit(&own->memory_window_bytes, limits->memory_window_bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&own->memory_count, limits->memory_count, memory_order_relaxed);
    atomic_store_explicit(&own->disk_count, limits->disk_count, memory_order_relaxed);
    atomic_store_explicit(&own->memory_bytes, limits->memory_bytes, memory_order_relaxed);
    atomic_store_explicit(&own->disk_bytes, limits->disk_bytes, memory_order_relaxed);
}

void store_set_limits(struct store *store, const struct store_limits *limits)
{
    store_set_read_limits(store, limits);
    if (store->retention)
        retention_set_limits(store->retention, limits);
}

enum tern_code store_clean_queues(struct store *store, struct tern_error *err)
{
    ENSURE(store->retention != NULL); /* not in a read-only store */
    return retention_clean_queues(store->retention, err);
}

/* ---- looking ---- */

enum tern_code store_read_units(struct store *store, const char *topic, int32_t queue_id,
                                int64_t offset, struct store_unit *units, uint32_t count,
                                int64_t *first, uint32_t *got)
{
    struct queue_unit read[QUEUE_RING_UNITS_MAX];
    struct consume_queue *queue = queue_table_find(store->queues, topic, strlen(topic), queue_id);
    enum tern_code code = TERN_OK;
    *got = 0;
    if (!queue)
        return TERN_NOT_FOUND;
    int64_t min = consume_queue_min(queue);
    *first = offset > min ? offset : min;
    while (!code && *got < count) {
        uint32_t some = count - *got;
        uint32_t now = 0;
        if (some > QUEUE_RING_UNITS_MAX)
            some = QUEUE_RING_UNITS_MAX;
        code = consume_queue_read(queue, *first + *got, read, some, false, &now);
        for (uint32_t i = 0; !code && i < now; i++)
            units[(*got)++] =
                (struct store_unit){read[i].phys_off, read[i].size, read[i].tags_code};
        if (now == 0)
            break;
    }
    consume_queue_unref(queue);
    return code;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sorted names once each, in a block of their own. */
static const char **copy_names(const char **sorted, size_t n, size_t *count)
{
    size_t size = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && !strcmp(sorted[kept - 1], sorted[i]))
            continue;
        sorted[kept++] = sorted[i];
        size += sizeof(char *) + strlen(sorted[i]) + 1;
    }
    const char **names = malloc(size);
    if (!names)
        return NULL;
    char *text = (char *)(names + kept);
    for (size_t i = 0; i < kept; i++) {
        size_t len = strlen(sorted[i]) + 1;
        names[i] = memcpy(text, sorted[i], len);
        text += len;
    }
    *count = kept;
    return names;
}

enum tern_code store_topics(struct store *store, const char ***names, size_t *count)
{
    struct consume_queue **queues = NULL;
    uint32_t n = 0;
    *names = NULL;
    *count = 0;
    enum tern_code code = queue_table_snapshot(store->queues, &queues, &n);
    if (code)
        return code;
    const char **all = malloc((n + 1) * sizeof *all);
    for (uint32_t i = 0; all && i < n; i++)
        all[i] = consume_queue_topic(queues[i]);
    if (all && n > 0) {
        qsort(all, n, sizeof *all, compare_names);
        *names = copy_names(all, n, count);
    }
    for (uint32_t i = 0; i < n; i++)
        consume_queue_unref(queues[i]);
    free(queues);
    free(all);
    return n > 0 && !*names ? TERN_NO_MEMORY : TERN_OK;
}
