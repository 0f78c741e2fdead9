/*
 * Progress against a log that changes under it: a slave's or master's before a cut, and a master's
 * that opens for writes.
 *
 *   cut:   offsets beyond their queue's end there ─► lowered, versions raised ─► disk ─► then the
 * cut open:  queues complete? ─► where they end is noted ─► offsets beyond are lowered, all
 * versions rise when something may be lost ─► disk ─► topics and groups get versions of their own
 *
 * Progress that members made before a recovery may come after it, also in queues where nothing was
 * known here: the ends that were noted tell how much of it counts.
 *
 * Invariants: what was lowered or raised is durable before the log is cut or written. An opening
 * that failed at the disk raises nothing twice when it is tried again.
 *
 * Threads: the ha task; set_tables_recovered_end() any. Failure modes: an error is returned, what
 * was lowered until then stays so.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/long_poll.h"
#include "broker/queue_locks.h"
#include "broker/set_tables_internal.h"

/* Where the queues ended when a master opened with raised versions; never changed, sorted. */
struct topic_ends {
    char topic[TOPIC_NAME_MAX + 1];
    int32_t count; /* queues */
    int64_t *ends;
};
struct recovered {
    struct recovered *before; /* of an earlier opening: somebody may still look there */
    size_t count;
    struct topic_ends topics[];
};

/* ---- cutting ---- */

/* Asks the store once for each queue in a row. */
struct cut {
    bool writes; /* messages come, and progress with them: what there is by now counts, too */
    struct store *store;
    int64_t phys_off;
    char topic[TOPIC_NAME_MAX + 1];
    int32_t queue_id;
    int64_t end;
    bool known;
};

static enum tern_code end_at_cut(void *arg, const char *topic, int32_t queue_id, int64_t *out,
                                 struct tern_error *err)
{
    struct cut *cut = arg;
    if (!cut->known || cut->queue_id != queue_id || strcmp(cut->topic, topic) != 0) {
        enum tern_code code =
            store_queue_end_at(cut->store, topic, queue_id, cut->phys_off, &cut->end);
        cut->known = code == TERN_OK;
        if (code)
            return error_set(err, code, "topic %s queue %" PRId32 ": where it ends at %" PRId64,
                             topic, queue_id, cut->phys_off);
        memcpy(cut->topic, topic, strlen(topic) + 1);
        cut->queue_id = queue_id;
        int64_t min, max;
        if (cut->writes)
            store_queue_range(cut->store, topic, queue_id, &min, &max);
        if (cut->writes && cut->end < max)
            cut->end = max;
    }
    *out = cut->end;
    return TERN_OK;
}

enum tern_code set_tables_lower(void *arg, int64_t phys_off, struct tern_error *err)
{
    struct set_tables *tables = arg;
    struct broker *broker = tables->broker;
    struct cut cut = {
        .store = broker->store, .phys_off = phys_off, .writes = set_tables_is_open(tables)};
    uint32_t lowered = 0;
    enum tern_code code = offsets_lower(broker->offsets, end_at_cut, &cut, &lowered, err);
    if (!code)
        code = offsets_persist(broker->offsets, err);
    if (lowered)
        log_warn(broker->env.log, "offsets_lowered",
                 "count=%" PRIu32 " at=%" PRId64 " cause=\"progress was beyond the cut\"", lowered,
                 phys_off);
    if (lowered && broker->polls)
        long_poll_reset_all(broker->polls, "", "");
    return code ? error_prefix(err, code, "lowering consumer offsets to %" PRId64, phys_off)
                : TERN_OK;
}

enum tern_code set_tables_forget(void *arg, struct tern_error *err)
{
    struct set_tables *tables = arg;
    queue_locks_forget(tables->broker->locks);
    enum tern_code code = offsets_forget(tables->broker->offsets, err);
    return code ? error_prefix(err, code, "dropping consumer offsets") : TERN_OK;
}

/* ---- opening ---- */

static int named_compare(const void *name, const void *row)
{
    return strcmp(name, ((const struct topic_ends *)row)->topic);
}

static int64_t queue_end(void *arg, const char *topic, int32_t queue_id)
{
    struct set_tables *tables = arg;
    int64_t min, max;
    store_queue_range(tables->broker->store, topic, queue_id, &min, &max);
    return max;
}

int64_t set_tables_recovered_end(void *arg, const char *topic, int32_t queue_id)
{
    struct set_tables *tables = arg;
    const struct recovered *recovered = atomic_load(&tables->recovered);
    const struct topic_ends *found = recovered ? bsearch(topic, recovered->topics, recovered->count,
                                                         sizeof recovered->topics[0], named_compare)
                                               : NULL;
    return found && queue_id < found->count ? found->ends[queue_id] : 0;
}

static void free_recovered(struct recovered *recovered)
{
    while (recovered) {
        struct recovered *before = recovered->before;
        for (size_t i = 0; i < recovered->count; i++)
            free(recovered->topics[i].ends);
        free(recovered);
        recovered = before;
    }
}

/* phys_off: where the queues end there; -1: now. */
static bool note_topic(struct set_tables *tables, struct recovered *recovered, const char *topic,
                       int64_t phys_off)
{
    struct topic_ends *out = &recovered->topics[recovered->count];
    int32_t count = store_topic_last_queue(tables->broker->store, topic) + 1;
    if (count <= 0)
        return true;
    out->ends = calloc((size_t)count, sizeof out->ends[0]);
    if (!out->ends)
        return false;
    memcpy(out->topic, topic, strlen(topic) + 1);
    out->count = count;
    for (int32_t i = 0; i < count; i++)
        if (phys_off < 0)
            out->ends[i] = queue_end(tables, topic, i);
        else if (store_queue_end_at(tables->broker->store, topic, i, phys_off, &out->ends[i]))
            out->ends[i] = 0; /* cannot be read: nothing counts there */
    recovered->count++;
    return true;
}

void set_tables_free_recovered(struct set_tables *tables)
{
    free_recovered(atomic_load(&tables->recovered));
}

/* Before versions rise, and nothing is written. phys_off: as for note_topic(). */
static enum tern_code note_ends(struct set_tables *tables, int64_t phys_off, struct tern_error *err)
{
    size_t count = 0;
    uint64_t version;
    struct topic_config *rows = topics_snapshot(tables->broker->topics, &count, &version);
    struct recovered *recovered =
        calloc(1, sizeof *recovered + count * sizeof recovered->topics[0]);
    bool good = rows && recovered;
    for (size_t i = 0; good && i < count; i++)
        good = note_topic(tables, recovered, rows[i].name, phys_off);
    free(rows);
    if (!good) {
        free_recovered(recovered);
        return error_set(err, TERN_NO_MEMORY, "no memory to note where %zu topics end", count);
    }
    recovered->before = atomic_load(&tables->recovered);
    atomic_store(&tables->recovered, recovered);
    return TERN_OK;
}

enum tern_code set_tables_take_up_recovery(struct set_tables *tables)
{
    struct offsets *offsets = tables->broker->offsets;
    int64_t phys_off = offsets_recovered_at(offsets);
    if (set_tables_is_slave(tables) || phys_off < 0)
        return TERN_OK;
    enum tern_code code = note_ends(tables, phys_off, NULL);
    return code ? code : offsets_take_up_recovery(offsets);
}

/* Progress is held against the queues, so these must be complete. */
static enum tern_code check_dispatched(struct set_tables *tables, struct tern_error *err)
{
    struct store_positions positions;
    struct store_status status;
    store_positions(tables->broker->store, &positions);
    store_status(tables->broker->store, &status);
    int64_t goal =
        positions.whole < status.dispatch_limit ? positions.whole : status.dispatch_limit;
    if (positions.dispatched >= goal)
        return TERN_OK;
    return error_set(err, TERN_AGAIN,
                     "the queues are built up to %" PRId64 ", the log goes to %" PRId64,
                     positions.dispatched, goal);
}

static enum tern_code settle_progress(struct set_tables *tables, bool raise, uint64_t number,
                                      struct tern_error *err)
{
    struct offsets *offsets = tables->broker->offsets;
    raise = raise && !tables->raised;
    enum tern_code code = raise ? note_ends(tables, -1, err) : TERN_OK;
    if (code)
        return code;
    if (raise) {
        struct store_positions at;
        store_positions(tables->broker->store, &at);
        offsets_note_recovered_at(offsets, at.whole);
    }
    int64_t lowered = raise ? offsets_begin_epoch(offsets, number, queue_end, tables)
                            : offsets_clamp(offsets, queue_end, tables);
    if (lowered < 0)
        return error_set(err, TERN_NO_MEMORY, "no memory to walk over the consumer offsets");
    if (lowered)
        log_warn(tables->broker->env.log, "offsets_lowered",
                 "count=%" PRId64 " cause=\"progress was beyond the log's end\"", lowered);
    tables->raised = tables->raised || raise;
    code = offsets_persist(offsets, err);
    if (code)
        return error_prefix(err, code, "consumer progress");
    tables->raised = false;
    return TERN_OK;
}

enum tern_code set_tables_open(void *arg, bool raise, uint64_t number, struct tern_error *err)
{
    struct set_tables *tables = arg;
    struct broker *broker = tables->broker;
    enum tern_code code = check_dispatched(tables, err);
    if (!code)
        code = settle_progress(tables, raise, number, err);
    if (code)
        return code;
    topics_follow(broker->topics, false);
    groups_follow(broker->groups, false);
    code = topics_persist(broker->topics, err);
    if (!code)
        code = groups_persist(broker->groups, err);
    return code;
}
