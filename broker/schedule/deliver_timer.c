/*
 * Delivering by due time. What is due soon is in memory, the window, in a heap; everything up to
 * the horizon is in it or on its way.
 *
 *   ── delivered ──┤popped      window       ├ horizon ─── in the buckets only ───►  key
 *                  now                        now + LOOK_AHEAD_MS
 *
 *   horizon behind now + LOOK_AHEAD_MS, window low ─► loader reads the next bucket, a part a step
 *   a message begins to wait before the horizon ────► window at once
 *   window full ────────────────────────────────────► its later half goes, the horizon comes back
 *
 * Should the horizon ever come back behind `popped` (more messages became due at once than the
 * window holds), the bucket is read again only when no put is under way and the log's words about
 * all of them have been followed: then the files know what was delivered.
 *
 * Threads: the schedule's task. Failure modes: a bucket that cannot be read is tried again; a
 * damaged one is made anew from the log (follow.c).
 */
#include <inttypes.h>

#include "base/log.h"
#include "base/names.h"
#include "broker/schedule/schedule_internal.h"

enum { LOAD_RETRY_MS = 1000, TIMER_FLIGHTS_MAX = FLIGHTS_MAX / 2, POPS_A_STEP = 256 };

void window_add(struct schedule *s, const struct due_entry *entry)
{
    if (s->state != SCHEDULE_DELIVERING || due_key_compare(&entry->key, &s->horizon) > 0)
        return;
    if (s->window.count == s->window.cap) {
        s->horizon = due_heap_shed(&s->window);
        if (due_key_compare(&entry->key, &s->horizon) > 0)
            return;
    }
    due_heap_push(&s->window, entry);
}

void window_strike(struct schedule *s, const struct due_key *key)
{
    if (s->state == SCHEDULE_DELIVERING && due_key_compare(key, &s->horizon) <= 0)
        (void)due_heap_remove(&s->window, key);
}

/* ---- loading ---- */

static uint32_t timer_flights(const struct schedule *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++)
        n += s->flights[i].state != FLIGHT_FREE && s->flights[i].waiting.timer;
    return n;
}

/* Whether the files know all that was delivered behind the horizon. */
static bool may_load(const struct schedule *s)
{
    return due_key_compare(&s->horizon, &s->popped) >= 0 ||
           (timer_flights(s) == 0 && s->fed >= s->putted_end);
}

/* Everything up to the end of the bucket before `id` is known. */
static void raise_horizon(struct schedule *s, int64_t id)
{
    const struct due_key end = {id * BUCKET_MS - 1, INT64_MAX};
    if (due_key_compare(&s->horizon, &end) < 0)
        s->horizon = end;
}

/* Begins with the next bucket that is near its time; false: there is none. */
static bool begin_loading(struct schedule *s, int64_t now_ms)
{
    int64_t last = bucket_id_of(now_ms + LOOK_AHEAD_MS);
    const struct due_key end = {(last + 1) * BUCKET_MS - 1, INT64_MAX};
    if (due_key_compare(&s->horizon, &end) >= 0)
        return false;
    bool whole = s->horizon.queue_off == INT64_MAX;
    int64_t from = bucket_id_of(s->horizon.key_ms < 0 ? 0 : s->horizon.key_ms) +
                   (whole && s->horizon.key_ms >= 0);
    const struct bucket *row = buckets_from(&s->buckets, from);
    if (!row || row->id > last) {
        raise_horizon(s, last + 1);
        return false;
    }
    raise_horizon(s, row->id); /* what comes before this one while it is read is not missed */
    bucket_loader_begin(&s->loader, row->id, &s->horizon);
    return true;
}

static void take_loaded(struct schedule *s, const struct due_key *upto)
{
    const struct due_heap *found = &s->loader.found;
    ENSURE(s->window.count + found->count <= s->window.cap);
    for (uint32_t i = 0; i < found->count; i++)
        if (found->entries[i].phys_off >= 0)
            due_heap_push(&s->window, &found->entries[i]);
    s->horizon = *upto;
}

/* A step of loading, when it is needed; whether there is more to do at once. */
static bool load(struct schedule *s, int64_t now_ms)
{
    struct tern_error err;
    struct due_key upto;
    bool done;
    if (!s->loader.active &&
        (s->window.count > WINDOW_LOW || !may_load(s) || !begin_loading(s, now_ms)))
        return false;
    enum tern_code code = bucket_loader_step(&s->loader, &s->buckets, &done, &upto, &err);
    if (code == TERN_CORRUPT) {
        follow_rebuild(s, err.text);
        return true;
    }
    if (code) {
        log_warn(s->broker->env.log, "delay_file_not_read", "cause=\"%s\" effect=\"tried again\"",
                 error_text(&err, code));
        return false;
    }
    if (done && s->window.count + s->loader.found.count > s->window.cap) {
        /* The window has filled up meanwhile: later. */
        return false;
    }
    if (done)
        take_loaded(s, &upto);
    return true;
}

/* ---- delivering ---- */

/* Puts the first of the window; false: not now. */
static bool deliver_first(struct schedule *s, int64_t now_ms, int64_t now_ns)
{
    const struct due_entry *first = due_heap_first(&s->window);
    struct record record;
    if (!first || first->key.key_ms > now_ms || s->flights_used >= FLIGHTS_MAX)
        return false;
    const struct due_entry entry = *first;
    const struct waiting waiting = {
        .timer = true, .key_ms = entry.key.key_ms, .queue_off = entry.key.queue_off};
    if (cancel_covers(s, &waiting)) { /* it comes back should the cancelling fail */
        due_heap_pop(&s->window);
        return true;
    }
    enum tern_code code = schedule_read(s, entry.phys_off, &record);
    if (code && code != TERN_NOT_FOUND)
        return false;
    struct flight *flight = flight_take(s, ACTION_DELIVER, &waiting, entry.phys_off);
    if (!flight)
        return false;
    due_heap_pop(&s->window);
    if (due_key_compare(&entry.key, &s->popped) > 0)
        s->popped = entry.key;
    if (code) {
        struct store_positions at;
        store_positions(s->broker->store, &at);
        s->expired += entry.phys_off < at.min;
    }
    flight_start(s, flight, code ? NULL : &record, now_ns);
    return true;
}

int64_t deliver_timer(struct schedule *s, int64_t now_ns)
{
    int64_t now_ms = clock_wall_ms(s->broker->env.clock);
    bool more = false;
    uint32_t used = timer_flights(s);
    for (uint32_t i = 0; i < POPS_A_STEP && used + i < TIMER_FLIGHTS_MAX; i++) {
        more = deliver_first(s, now_ms, now_ns);
        if (!more)
            break;
    }
    if (load(s, now_ms) || more)
        return now_ns;
    const struct due_entry *first = due_heap_first(&s->window);
    if (!first)
        return SCHED_NEVER;
    /* Due already: a flight that ends wakes us, or the disk is asked again. */
    return first->key.key_ms > now_ms ? now_ns + ms_to_ns(first->key.key_ms - now_ms)
                                      : now_ns + ms_to_ns(RETRY_MS);
}
