/*
 * The source and the in-sync set: feeds it what members claim, does what it needs the disk for, and
 * tells the broker what is confirmed.
 *
 *   fetch, report ─► source_feed ─► insync ─► recount ─► source_tell ─► sends and commits that wait
 *                                      │
 *                           ha task: LEAVE: store_flush, progress, save │ JOIN: save ─►
 * insync_saved
 *
 * Invariants:
 *   - What is told is told in order, by one thread at a time: a thread that finds another one
 *     telling leaves its news to it. A late "alone" after a later "not alone" would answer sends
 *     with the wrong word.
 *   - The store's end is read before what a member claims is judged by it, so that no confirmed end
 *     waits for the next news of the appender.
 *
 * Threads: feeding on the link's, the step on the ha task, telling on any. Failure modes: a failed
 * flush or save changes nothing, is logged and tried again a second later; until then confirmed
 * satisfies the old set and the new one.
 */
#include "broker/ha/source_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* ---- counting ---- */

static int64_t own_counted_end(const struct source *source, const struct store_positions *at)
{
    return source->ha->sync_flush ? at->flushed : at->whole;
}

/* A parked fetch learns soon of a confirmed end that it was not told. @locks holds:HA_SOURCE */
static void hasten(struct source *source, int64_t now_ns)
{
    int64_t soon_ns = now_ns + ms_to_ns(SOURCE_CONFIRMED_NEWS_MS);
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        const struct session *session = &source->sessions[i];
        if (session->parked && session->told_confirmed < source->confirmed &&
            session->parked->park_until_ns > soon_ns) {
            session->parked->park_until_ns = soon_ns;
            source_plan(source, soon_ns);
        }
    }
}

void source_recount(struct source *source, int64_t now_ns)
{
    struct insync *insync = &source->insync;
    bool alone = insync_size(insync) == 0;
    bool counts = !source->ha->sync_flush && (alone || insync->options.replicas == 0);
    atomic_store(&source->own_end_counts, counts);
    if (counts) /* on_end may have passed by before it could see that */
        insync_own_end(insync, atomic_load(&source->end), now_ns);
    int64_t confirmed = insync_confirmed(insync);
    bool rose = confirmed > source->confirmed;
    source->confirmed = confirmed;
    source->now = (struct told){
        .confirmed = confirmed, .alone = alone, .progress = insync_progress_seen(insync)};
    if (rose && atomic_load(&source->parked) > 0)
        hasten(source, now_ns);
    if (now_ns >= source->retry_save_ns && insync_due(insync, now_ns))
        source_plan(source, 0);
}

void source_feed(struct source *source, struct session *session, const struct store_positions *at,
                 int64_t now_ns)
{
    struct position has = session_position(session);
    int64_t counted = source->ha->sync_flush ? has.flushed : has.appended;
    session->heard_ns = now_ns;
    if (!source->open || session->purpose != TERN__WIRE__HA_PURPOSE__HA_FOLLOW)
        return;
    insync_own_end(&source->insync, own_counted_end(source, at), now_ns);
    /* No place in the set: it is served, and counts when one is free. */
    if (insync_heard(&source->insync, &session->who, counted, now_ns) == TERN_OK)
        insync_progress(&source->insync, session->who.id, session->who.uuid,
                        session->progress_seen);
    source_recount(source, now_ns);
}

/* ---- telling ---- */

static bool is_same_end(const struct told *a, const struct told *b)
{
    return a->confirmed == b->confirmed && a->alone == b->alone;
}

void source_tell(struct source *source)
{
    const struct source_options *options = &source->options;
    lock_acquire(&source->lock);
    if (source->telling) {
        lock_release(&source->lock);
        return;
    }
    source->telling = true;
    for (int i = 0;
         !is_same_end(&source->now, &source->told) || source->now.progress != source->told.progress;
         i++) {
        if (i == SOURCE_TELL_ROUNDS_MAX) { /* this thread has other work, the task goes on */
            source_plan(source, 0);
            break;
        }
        struct told told = source->told;
        struct told now = source->now;
        source->told = now;
        lock_release(&source->lock);
        if (!is_same_end(&now, &told))
            options->on_confirmed(options->part.arg, now.confirmed, now.alone);
        if (now.progress != told.progress)
            options->on_progress_seen(options->part.arg, now.progress);
        lock_acquire(&source->lock);
    }
    source->telling = false;
    lock_release(&source->lock);
}

/* ---- members that come and go ---- */

/* One member of the old or the new set. */
struct change {
    struct insync_member who;
    bool was, is;
    int64_t position;
    const char *why;
};

struct changes {
    size_t count;
    struct change items[2 * INSYNC_MAX];
    int64_t confirmed;
    size_t size; /* of the new set */
};

static struct change *change_of(struct changes *changes, const struct insync_member *who)
{
    for (size_t i = 0; i < changes->count; i++)
        if (insync_same(&changes->items[i].who, who))
            return &changes->items[i];
    struct change *change = &changes->items[changes->count++];
    *change = (struct change){.who = *who};
    return change;
}

/* What `next` changes, before it is saved. @locks holds:HA_SOURCE */
static void list_changes(const struct insync *insync, struct changes *changes)
{
    changes->count = 0;
    changes->confirmed = insync->confirmed;
    changes->size = insync->next.count;
    for (size_t i = 0; i < insync->set.count; i++)
        change_of(changes, &insync->set.members[i])->was = true;
    for (size_t i = 0; i < insync->next.count; i++)
        change_of(changes, &insync->next.members[i])->is = true;
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        const struct insync_peer *peer = &insync->peers[i];
        for (size_t j = 0; peer->member.id >= 0 && j < changes->count; j++) {
            if (!insync_same(&changes->items[j].who, &peer->member))
                continue;
            changes->items[j].position = peer->counted_end;
            changes->items[j].why = peer->why;
        }
    }
}

static void log_changes(struct source *source, const struct changes *changes)
{
    char uuid[HA_UUID_TEXT_BYTES];
    for (size_t i = 0; i < changes->count; i++) {
        const struct change *change = &changes->items[i];
        ha_uuid_text(uuid, change->who.uuid);
        if (change->is && !change->was)
            log_info(source->env.log, "insync_joined",
                     "broker=%s id=%" PRId64 " uuid=%s address=%s position=%" PRId64
                     " confirmed=%" PRId64 " members=%zu reason=\"it has what is confirmed\"",
                     source->ha->name, change->who.id, uuid, change->who.ha_address,
                     change->position, changes->confirmed, changes->size);
        if (change->was && !change->is)
            log_warn(source->env.log, "insync_left",
                     "broker=%s id=%" PRId64 " uuid=%s address=%s position=%" PRId64
                     " confirmed=%" PRId64 " members=%zu reason=\"%s\"",
                     source->ha->name, change->who.id, uuid, change->who.ha_address,
                     change->position, changes->confirmed, changes->size,
                     change->why ? change->why : "");
    }
}

/* @thread ha task @locks none */
static bool save(struct source *source, enum insync_step step, const struct insync_set *next)
{
    const struct ha_tables *tables = &source->ha->tables;
    struct tern_error err = {.code = TERN_OK};
    enum tern_code code = TERN_OK;
    if (step == INSYNC_LEAVE)
        code = store_flush(source->ha->store, &err);
    if (code == TERN_OK && step == INSYNC_LEAVE && tables->persist)
        code = tables->persist(tables->arg, &err); /* what the member alone had beside us, too */
    if (code == TERN_OK)
        code = insync_save(&source->env, source->ha->root_dir, next, &err);
    if (code == TERN_OK)
        return true;
    log_error(
        source->env.log, "insync_not_saved",
        "broker=%s cause=\"%s\" effect=\"the in-sync set stays as it is, sends may time out\" "
        "next=\"tried again in a second; look at the disk of %s\"",
        source->ha->name, error_text(&err, code), source->ha->root_dir);
    return false;
}

/* One step of the set, if it has one: false: none. *wake_ns: when to ask again. */
static bool step_once(struct source *source, int64_t now_ns, int64_t *wake_ns)
{
    struct store_positions at;
    struct changes changes;
    struct insync_set next;
    enum insync_step step = INSYNC_NONE;

    *wake_ns = SCHED_NEVER;
    store_positions(source->ha->store, &at);
    lock_acquire(&source->lock);
    if (source->open) {
        insync_own_end(&source->insync, own_counted_end(source, &at), now_ns);
        source_recount(source, now_ns);
        if (now_ns < source->retry_save_ns)
            *wake_ns = source->retry_save_ns;
        else
            step = insync_next(&source->insync, now_ns, wake_ns);
        if (step != INSYNC_NONE) {
            next = source->insync.next;
            list_changes(&source->insync, &changes);
        }
    }
    lock_release(&source->lock);
    if (step == INSYNC_NONE)
        return false;
    bool saved = save(source, step, &next);
    lock_acquire(&source->lock);
    source->retry_save_ns = saved ? 0 : now_ns + ms_to_ns(SOURCE_SAVE_AGAIN_MS);
    if (source->open) {
        insync_saved(&source->insync, saved);
        source_recount(source, now_ns);
    }
    lock_release(&source->lock);
    if (saved)
        log_changes(source, &changes);
    source_tell(source);
    return true;
}

int64_t source_step_insync(struct source *source, int64_t now_ns)
{
    int64_t wake_ns = SCHED_NEVER;
    for (int i = 0; i < INSYNC_MAX && step_once(source, now_ns, &wake_ns); i++)
        continue;
    source_tell(source);
    lock_acquire(&source->lock);
    bool watches = source->open && insync_size(&source->insync) > 0;
    lock_release(&source->lock);
    int64_t look_ns = now_ns + ms_to_ns(SOURCE_LOOK_AROUND_MS);
    return watches && look_ns < wake_ns ? look_ns : wake_ns;
}
