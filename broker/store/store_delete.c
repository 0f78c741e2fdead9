/*
 * Deleting topics, here and as a source says.
 *
 * Place: behind mqadmin's deleteTopic on a master, and behind replication's tables on a copy. The
 * position of a deletion is the log's end at a moment when nobody appends, so every record of the
 * topic before it is of the old life and every one behind it of a new one. It is durable before the
 * queue files go: a crash in between finds them again and removes them (store_recover.c).
 *
 * A copy may hear of a deletion after it has dispatched records of the topic's new life into queues
 * of the old one, or long before their bytes come. Queues that hold anything of the old life go as
 * a whole, and dispatching begins again at the deletion's position; what is there of other topics
 * is compared and left. Before, the checkpoint is lowered to that position's time, or a crash would
 * find the new life's units missing.
 *
 * Threads: any that may wait; the append token keeps changes apart. Failure modes: an error of the
 * note changes nothing; queues that cannot be moved away after it latch the store, since a new life
 * would meet their files, and the next start removes them; files that were moved away and cannot be
 * removed go at the next start.
 */
#include <errno.h>
#include <string.h>

#include "broker/store/appender.h"
#include "broker/store/deletions.h"
#include "broker/store/queue_flusher.h"
#include "broker/store/record_head.h"
#include "broker/store/store_internal.h"
#include "broker/store/store_still.h"

enum tern_code store_delete_topic(struct store *store, const char *topic, struct tern_error *err)
{
    char moved[FS_PATH_BYTES];
    struct tern_error local = {TERN_OK, ""};
    ENSURE(store->appender != NULL); /* not in a read-only store */
    ENSURE(appender_hold(store->appender, false) == TERN_OK);
    dispatcher_hold(store->dispatcher);
    int64_t min = commit_log_min(store->log);
    enum tern_code code =
        deletions_note(store->deletions, topic, commit_log_end(store->log), min, err);
    if (!code) {
        code = queue_table_detach_topic(store->queues, topic, moved, err ? err : &local);
        if (code && code != TERN_NOT_FOUND)
            gate_latch(&store->gate, code, error_text(err ? err : &local, code));
    }
    dispatcher_let_go(store->dispatcher);
    appender_let_go(store->appender);
    if (code == TERN_NOT_FOUND)
        return TERN_OK; /* it has no queue files */
    return code ? code : queue_table_discard(store->queues, moved, err);
}

enum tern_code store_end_deletions(struct store *store, struct tern_error *err)
{
    ENSURE(store->appender != NULL); /* not in a read-only store */
    ENSURE(appender_hold(store->appender, false) == TERN_OK);
    enum tern_code code = deletions_end(store->deletions, commit_log_end(store->log),
                                        commit_log_min(store->log), err);
    appender_let_go(store->appender);
    return code;
}

struct store_deletion *store_deletions(struct store *store, size_t *count, uint64_t *version)
{
    return deletions_copy(store->deletions, commit_log_min(store->log), count, version);
}

uint64_t store_deletions_version(struct store *store)
{
    return deletions_version(store->deletions);
}

/* Nothing of the record at `position` or behind it counts as dispatched, durably. */
static enum tern_code lower_checkpoint(struct store *store, int64_t position,
                                       struct tern_error *err)
{
    struct checkpoint most = {.physic_ms = INT64_MAX, .logics_ms = 0, .index_ms = INT64_MAX};
    struct record_head head;
    enum tern_code code = record_head_read(store->log, position, false, &head);
    if (!code)
        most.logics_ms = head.store_ms - 1;
    else if (code != TERN_NOT_FOUND) /* a filler: no time, so from the beginning */
        return error_set_errno(err, code, errno, "reading the log at %lld", (long long)position);
    return queue_flusher_lower(store->queue_flusher, &most, err);
}

/* @thread who holds the store */
static enum tern_code drop_queues(struct store *store, const struct store_deletion *list,
                                  size_t count, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    for (size_t i = 0; i < count && !code; i++)
        if (queue_table_has_before(store->queues, list[i].topic, list[i].position))
            code = queue_table_delete_topic(store->queues, list[i].topic, err);
    return code;
}

/* The first position from which there may be units of a new life; the dispatched one: none. */
static int64_t rewind_to(struct store *store, const struct store_deletion *list, size_t count)
{
    int64_t position = dispatcher_position(store->dispatcher);
    int64_t min = commit_log_min(store->log);
    for (size_t i = 0; i < count; i++)
        if (list[i].position < position &&
            queue_table_has_before(store->queues, list[i].topic, list[i].position))
            position = list[i].position > min ? list[i].position : min;
    return position;
}

/* @thread who holds the store */
static enum tern_code apply(struct store *store, const struct store_deletion *list, size_t count,
                            uint64_t version, struct tern_error *err)
{
    int64_t dispatched = dispatcher_position(store->dispatcher);
    int64_t back = rewind_to(store, list, count);
    enum tern_code code = back < dispatched ? lower_checkpoint(store, back, err) : TERN_OK;
    if (!code)
        code = deletions_merge(store->deletions, list, count, version, commit_log_min(store->log),
                               err);
    if (code)
        return code;
    code = drop_queues(store, list, count, err);
    if (!code && back < dispatched) {
        dispatcher_rewind(store->dispatcher, back, dispatched);
        appender_forget_offsets(store->appender);
    }
    if (code)
        gate_latch(&store->gate, code, error_text(err, code));
    return code;
}

enum tern_code store_apply_deletions(struct store *store, const struct store_deletion *list,
                                     size_t count, uint64_t version, struct tern_error *err)
{
    struct tern_error local = {TERN_OK, ""};
    for (size_t i = 0; i < count; i++)
        if (!memchr(list[i].topic, 0, sizeof list[i].topic))
            return error_set(err, TERN_INVALID, "deletion %zu has no topic's name", i);
    store_hold(store);
    enum tern_code code = apply(store, list, count, version, err ? err : &local);
    store_let_go(store);
    return code;
}
