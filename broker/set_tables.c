/*
 * The tables of a set's member, as replication sees them.
 *
 * Its place: the source asks what a peer lacks and sends it along with the log's bytes; the replica
 * applies it, and reports progress and locks made here. docs/replication.md has the rules.
 *
 *   fill:   topics and deletions together, groups, progress and locks; what does not fit into one
 *           answer comes with the next, since the peer then still lacks it
 *   apply:  deletions ─► topics ─► groups: on a slave whatever the master has, on a master that is
 * not open only what is newer than its own. Progress and locks: merged open:   progress agrees with
 * the log ─► versions rise, if something may be lost ─► disk
 *
 * Who has what: topics, groups and deletions by their versions; progress and locks by the number of
 * the last change, from one counter for both. A slave does not send its master back what came from
 * it, except to a master that begins with nothing: it may have lost it.
 *
 * Progress whose version rises answers the pulls that wait by an older one.
 *
 * Invariants: a deletion is applied before the topics that it left, and both before bytes of the
 * new life of a topic come. What a peer sent is believed only within grammar and ranges. `held`
 * says what is durable here, but for progress, which is in the journal.
 *
 * Threads: fill, differs, apply of progress on the link's; whatever waits for the disk on the ha
 * task. No lock of its own. Failure modes: a part that cannot be applied leaves `held` for it as it
 * was, so it comes again; a table too large for a frame is refused, with an error in the log.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/admin_lane.h"
#include "broker/long_poll.h"
#include "broker/queue_locks.h"
#include "broker/set_tables_internal.h"
#include "broker/set_tables_wire.h"

enum {
    TABLES_ROOM_BYTES = FRAME_HEADER_MAX - (512 << 10), /* for topics, deletions and groups */
    PROGRESS_ROOM_BYTES = 3 << 20 /* HA_PROGRESS_MAX entries of progress, and of locks */
};

static void tell_change(void *arg)
{
    struct set_tables *tables = arg;
    if (tables->broker->ha)
        ha_on_change(tables->broker->ha);
}

/* ---- what differs ---- */

static void own(void *arg, struct ha_held *held)
{
    struct set_tables *tables = arg;
    struct broker *broker = tables->broker;
    held->topics_version = topics_version(broker->topics);
    held->groups_version = groups_version(broker->groups);
    held->deletions_version = store_deletions_version(broker->store);
    held->progress = atomic_load(&tables->counter.last);
}

static bool topics_agree(void *arg, const struct ha_held *held)
{
    struct set_tables *tables = arg;
    return held->topics_version == topics_version(tables->broker->topics) &&
           held->deletions_version == store_deletions_version(tables->broker->store);
}

/* Whether what came from others is left out. */
static bool skips_merged(struct set_tables *tables, uint64_t held, bool progress_only)
{
    return progress_only && held > 0 && held >= atomic_load(&tables->full_until);
}

static bool progress_differs(struct set_tables *tables, uint64_t held, bool progress_only)
{
    uint64_t last = atomic_load(&tables->counter.last);
    if (held > last) /* of another life */
        return true;
    return held < (skips_merged(tables, held, progress_only)
                       ? atomic_load(&tables->counter.last_own)
                       : last);
}

static bool differs(void *arg, const struct ha_held *held, bool progress_only)
{
    struct set_tables *tables = arg;
    if (progress_differs(tables, held->progress, progress_only))
        return true;
    return !progress_only && (!topics_agree(tables, held) ||
                              held->groups_version != groups_version(tables->broker->groups));
}

uint64_t set_tables_awaited(struct set_tables *tables)
{
    /* A slave's master has what came from it. */
    return atomic_load(set_tables_is_slave(tables) ? &tables->counter.last_own
                                                   : &tables->counter.last);
}

/* ---- filling ---- */

static void refuse_table(struct set_tables *tables, const char *what, size_t count,
                         size_t size_bytes, uint64_t version)
{
    if (atomic_exchange(&tables->refused_version, version) == version)
        return;
    log_error(tables->broker->env.log, "table_too_large",
              "table=%s rows=%zu bytes=%zu allowed=%d effect=\"slaves get neither it nor what "
              "follows: remove some\"",
              what, count, size_bytes, (int)TABLES_ROOM_BYTES);
}

/* Topics first, then deletions: a topic that is made again after its deletion then comes with it.
 */
static bool fill_topics(struct set_tables *tables, struct arena *arena, Tern__Wire__HaTables *out,
                        size_t *size_bytes)
{
    struct broker *broker = tables->broker;
    size_t count = 0, deleted = 0, size = 0;
    struct topic_config *rows = topics_snapshot(broker->topics, &count, &out->topics_version);
    struct store_deletion *deletions =
        store_deletions(broker->store, &deleted, &out->deletions_version);
    bool good = rows && deletions &&
                topics_to_wire(arena, broker->topics, rows, count, out, &size) &&
                deletions_to_wire(arena, deletions, deleted, out, &size);
    free(deletions);
    free(rows);
    if (good && size > TABLES_ROOM_BYTES) {
        refuse_table(tables, "topics", count + deleted, size, out->topics_version);
        good = false;
    }
    out->has_topics = good;
    if (!good) {
        out->n_topics = out->n_deletions = 0;
        out->topics_version = out->deletions_version = 0;
    }
    *size_bytes += good ? size : 0;
    return good;
}

static bool fill_groups(struct set_tables *tables, struct arena *arena, Tern__Wire__HaTables *out,
                        size_t *size_bytes)
{
    size_t count = 0, size = 0;
    struct group_config *rows =
        groups_snapshot(tables->broker->groups, &count, &out->groups_version);
    bool good = rows && groups_to_wire(arena, rows, count, out, &size);
    free(rows);
    if (good && size > TABLES_ROOM_BYTES) {
        refuse_table(tables, "groups", count, size, out->groups_version);
        good = false;
    }
    if (good && *size_bytes + size > TABLES_ROOM_BYTES)
        good = false; /* with the next answer, which has no topics */
    out->has_groups = good;
    if (!good) {
        out->n_groups = 0;
        out->groups_version = 0;
    }
    *size_bytes += good ? size : 0;
    return good;
}

struct filling {
    struct arena *arena;
    Tern__Wire__HaTables *out;
};

static bool add_progress(void *arg, const struct offset_change *change)
{
    struct filling *filling = arg;
    Tern__Wire__ProgressEntry *entry = progress_to_wire(filling->arena, change);
    if (entry)
        filling->out->progress[filling->out->n_progress++] = entry;
    return entry != NULL;
}

static bool add_lock(void *arg, const struct queue_lock_change *change)
{
    struct filling *filling = arg;
    Tern__Wire__LockEntry *entry = lock_to_wire(filling->arena, change);
    if (entry)
        filling->out->locks[filling->out->n_locks++] = entry;
    return entry != NULL;
}

static void fill_progress(struct set_tables *tables, uint64_t held, bool progress_only,
                          struct arena *arena, Tern__Wire__HaTables *out)
{
    struct broker *broker = tables->broker;
    struct filling filling = {arena, out};
    if (progress_only && held == 0)
        atomic_store(&tables->full_until, atomic_load(&tables->counter.last));
    bool skip = skips_merged(tables, held, progress_only);
    out->progress = arena_alloc(arena, HA_PROGRESS_MAX * sizeof out->progress[0]);
    out->locks = arena_alloc(arena, HA_PROGRESS_MAX * sizeof out->locks[0]);
    if (!out->progress || !out->locks)
        return;
    uint64_t to =
        offsets_changes(broker->offsets, held, HA_PROGRESS_MAX, skip, add_progress, &filling);
    /* What of the locks lies beyond comes with the progress from there. */
    out->progress_to =
        queue_locks_changes(broker->locks, held, to, HA_PROGRESS_MAX, skip, add_lock, &filling);
    out->has_progress = out->progress_to > held || held > atomic_load(&tables->counter.last);
}

static Tern__Wire__HaTables *fill(void *arg, const struct ha_held *held, bool progress_only,
                                  struct arena *arena)
{
    struct set_tables *tables = arg;
    size_t size_bytes = 0;
    if (!differs(tables, held, progress_only))
        return NULL;
    Tern__Wire__HaTables *out = arena_alloc(arena, sizeof *out);
    if (!out)
        return NULL;
    tern__wire__ha_tables__init(out);
    bool some = false;
    if (!progress_only && !topics_agree(tables, held))
        some |= fill_topics(tables, arena, out, &size_bytes);
    if (!progress_only && held->groups_version != groups_version(tables->broker->groups))
        some |= fill_groups(tables, arena, out, &size_bytes);
    if (progress_differs(tables, held->progress, progress_only) &&
        size_bytes + PROGRESS_ROOM_BYTES <= FRAME_HEADER_MAX)
        fill_progress(tables, held->progress, progress_only, arena, out);
    return some || out->has_progress ? out : NULL;
}

/* ---- applying ---- */

/* A slave takes what its master has, a master that comes back what is newer than its own. */
static bool wants(const struct set_tables *tables, uint64_t own_version, uint64_t version)
{
    return set_tables_is_slave(tables) ? version != own_version : version > own_version;
}

/* Tables of a peer are the master's word, or what a starting master takes. */
static enum tern_code check_takes_tables(struct set_tables *tables, struct tern_error *err)
{
    return set_tables_is_open(tables)
               ? error_set(err, TERN_INVALID, "an open master takes no tables of topics and groups")
               : TERN_OK;
}

static enum tern_code apply_deletions(struct set_tables *tables, const Tern__Wire__HaTables *wire,
                                      struct tern_error *err)
{
    struct store *store = tables->broker->store;
    struct store_deletion *rows = NULL;
    if (!wants(tables, store_deletions_version(store), wire->deletions_version))
        return TERN_OK;
    enum tern_code code = deletions_from_wire(wire, &rows, err);
    if (!code)
        code = store_apply_deletions(store, rows, wire->n_deletions, wire->deletions_version, err);
    free(rows);
    return code ? error_prefix(err, code, "deletions of topics") : TERN_OK;
}

static enum tern_code apply_topics(struct set_tables *tables, const Tern__Wire__HaTables *wire,
                                   struct ha_held *held, struct tern_error *err)
{
    struct broker *broker = tables->broker;
    struct topic_config *rows = NULL;
    enum tern_code code = check_takes_tables(tables, err);
    if (!code)
        code = apply_deletions(tables, wire, err);
    if (!code && wants(tables, topics_version(broker->topics), wire->topics_version)) {
        code = topics_from_wire(wire, &rows, err);
        if (!code)
            code = topics_replace(broker->topics, rows, wire->n_topics, wire->topics_version, err);
        free(rows);
        if (!code) {
            log_info(broker->env.log, "topics_taken", "count=%zu version=%" PRIu64, wire->n_topics,
                     wire->topics_version);
            admin_lane_poke(broker->admin); /* registers anew */
        }
    }
    if (code)
        return code;
    held->topics_version = wire->topics_version;
    held->deletions_version = wire->deletions_version;
    return TERN_OK;
}

static enum tern_code apply_groups(struct set_tables *tables, const Tern__Wire__HaTables *wire,
                                   struct ha_held *held, struct tern_error *err)
{
    struct broker *broker = tables->broker;
    struct group_config *rows = NULL;
    enum tern_code code = check_takes_tables(tables, err);
    if (!code && wants(tables, groups_version(broker->groups), wire->groups_version)) {
        code = groups_from_wire(wire, &rows, err);
        if (!code)
            code = groups_replace(broker->groups, rows, wire->n_groups, wire->groups_version, err);
        free(rows);
        if (!code)
            log_info(broker->env.log, "groups_taken", "count=%zu version=%" PRIu64, wire->n_groups,
                     wire->groups_version);
    }
    if (!code)
        held->groups_version = wire->groups_version;
    return code;
}

/* Everything is checked before anything is merged. */
static enum tern_code check_progress(const Tern__Wire__HaTables *wire, struct tern_error *err)
{
    struct wire_names names;
    struct offset_change change;
    struct queue_lock_change lock;
    enum tern_code code = TERN_OK;
    if (wire->n_progress > HA_PROGRESS_MAX || wire->n_locks > HA_PROGRESS_MAX)
        return error_set(err, TERN_INVALID, "%zu entries of progress and %zu of locks, allowed %d",
                         wire->n_progress, wire->n_locks, (int)HA_PROGRESS_MAX);
    for (size_t i = 0; !code && i < wire->n_progress; i++)
        code = progress_from_wire(wire->progress[i], &names, &change, err);
    for (size_t i = 0; !code && i < wire->n_locks; i++)
        code = lock_from_wire(wire->locks[i], &names, &lock, err);
    return code;
}

/* Who waits at a queue's end for progress that counts no more is told, as by a reset here. */
static void tell_pulls(struct broker *broker, const struct offset_change *change)
{
    if (broker->polls && change->queue_id >= 0)
        long_poll_reset(broker->polls, change->group, change->topic, change->queue_id);
    else if (broker->polls)
        long_poll_reset_all(broker->polls, change->group, change->topic);
}

static enum tern_code apply_progress(struct set_tables *tables, const Tern__Wire__HaTables *wire,
                                     struct ha_held *held, struct tern_error *err)
{
    struct broker *broker = tables->broker;
    struct wire_names names;
    struct offset_change change;
    struct queue_lock_change lock;
    enum tern_code first = TERN_OK;
    enum tern_code code = check_progress(wire, err);
    if (code)
        return code;
    for (size_t i = 0; i < wire->n_progress; i++) {
        bool raised = false;
        code = progress_from_wire(wire->progress[i], &names, &change, err);
        if (!code)
            code = offsets_merge(broker->offsets, &change, &raised);
        if (raised)
            tell_pulls(broker, &change);
        first = first ? first : code;
    }
    if (first)
        return error_set(err, first, "the table of offsets is full (%d pairs of topic and group)",
                         (int)OFFSET_ENTRIES_MAX);
    for (size_t i = 0; i < wire->n_locks; i++) {
        code = lock_from_wire(wire->locks[i], &names, &lock, err);
        if (!code && lock.remaining_ms > 0)
            code = queue_locks_merge(broker->locks, &lock);
        first = first ? first : code;
    }
    if (first)
        return error_set(err, first, "the table of queue locks is full (%d)", (int)QUEUE_LOCKS_MAX);
    held->progress = wire->progress_to;
    return TERN_OK;
}

static enum tern_code apply(void *arg, const Tern__Wire__HaTables *wire, struct ha_held *held,
                            struct tern_error *err)
{
    struct set_tables *tables = arg;
    struct tern_error part_err = {.text = ""};
    enum tern_code first = TERN_OK;
    enum tern_code (*const parts[])(struct set_tables *, const Tern__Wire__HaTables *,
                                    struct ha_held *, struct tern_error *) = {
        wire->has_topics ? apply_topics : NULL, wire->has_groups ? apply_groups : NULL,
        wire->has_progress ? apply_progress : NULL};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        enum tern_code code = parts[i] ? parts[i](tables, wire, held, &part_err) : TERN_OK;
        if (code && !first)
            first = error_set(err, code, "%s", error_text(&part_err, code));
    }
    return first;
}

/* ---- life ---- */

enum tern_code set_tables_create(struct broker *broker, struct set_tables **out)
{
    struct set_tables *tables = calloc(1, sizeof *tables);
    *out = NULL;
    if (!tables)
        return TERN_NO_MEMORY;
    tables->broker = broker;
    tables->counter.on_change = tell_change;
    tables->counter.arg = tables;
    offsets_share_counter(broker->offsets, &tables->counter);
    queue_locks_share_counter(broker->locks, &tables->counter);
    offsets_set_copy(broker->offsets, set_tables_is_slave(tables));
    offsets_set_recovered(broker->offsets, set_tables_recovered_end, tables);
    topics_watch(broker->topics, tell_change, tables);
    groups_watch(broker->groups, tell_change, tables);
    topics_follow(broker->topics, true);
    groups_follow(broker->groups, true);
    *out = tables;
    return set_tables_take_up_recovery(tables);
}

void set_tables_destroy(struct set_tables *tables)
{
    if (!tables)
        return;
    topics_watch(tables->broker->topics, NULL, NULL);
    groups_watch(tables->broker->groups, NULL, NULL);
    offsets_set_recovered(tables->broker->offsets, NULL, NULL);
    set_tables_free_recovered(tables);
    free(tables);
}

static enum tern_code persist(void *arg, struct tern_error *err)
{
    struct set_tables *tables = arg;
    return offsets_persist(tables->broker->offsets, err);
}

void set_tables_ops(struct set_tables *tables, struct ha_tables *out)
{
    *out = (struct ha_tables){.arg = tables,
                              .fill = fill,
                              .topics_agree = topics_agree,
                              .differs = differs,
                              .apply = apply,
                              .own = own,
                              .lower = set_tables_lower,
                              .open = set_tables_open,
                              .forget = set_tables_forget,
                              .persist = persist};
}
