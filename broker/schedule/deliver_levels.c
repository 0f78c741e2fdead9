/*
 * Delivering levels: each level's queue from its base on, in order, as long as what comes next is
 * due. All messages of a level wait equally long, so the first is always the next one due.
 *
 * What is left of a wait when its message is looked at ends by either clock, so that a wall clock
 * that is set back does not stretch it. A store time may lie ahead of the wall clock: that was set
 * back, and since store times never go back, all that is stored until it has caught up bears the
 * last one of before. How long such messages have waited is not known: those that are there when
 * the first of them is looked at wait their level from then on, those that come meanwhile from
 * when these were delivered. So none comes early, and none waits longer than twice its level.
 *
 *   base                              the masks' bits are of base, base + 1, …
 *    │ P P S P · · ·                  P putting, S stored; base moves over S and over what the log
 *    └──────────────► next            says is done
 *
 * A message that cannot be stored is tried again by its flight, and those behind it wait for it
 * only in so far as the mask has no more bits; a topic that does not take its message costs no time
 * at all (flight.c).
 *
 * Threads: the schedule's task. Failure modes: a queue that cannot be read is tried again; messages
 * that expired before they were due are counted and said.
 */
#include <inttypes.h>

#include "base/log.h"
#include "base/names.h"
#include "broker/schedule/schedule_internal.h"

enum { READ_COUNT = 32, LEVEL_RETRY_MS = 1000 };

/* The base moves over what is done. */
static void move_on(struct schedule *s, struct level_run *run, int32_t level)
{
    for (;;) {
        if (run->stored & 1) {
            run->stored >>= 1;
            run->putting >>= 1;
        } else if ((run->putting & 1) || !level_progress_is_done(&s->levels, level, run->base)) {
            return;
        } else {
            run->putting >>= 1;
            run->stored >>= 1;
        }
        run->base++;
    }
}

void level_flight_ended(struct schedule *s, const struct flight *flight, bool stored)
{
    struct level_run *run = &s->runs[flight->waiting.queue_id];
    int64_t at = flight->waiting.queue_off - run->base;
    if (at < 0 || at >= 64)
        return;
    run->putting &= ~(UINT64_C(1) << at);
    if (stored)
        run->stored |= UINT64_C(1) << at;
    move_on(s, run, flight->waiting.queue_id);
}

/* The first offset that nothing is known of; at most 64 beyond base. */
static int64_t next_of(const struct schedule *s, const struct level_run *run, int32_t level)
{
    uint64_t known = run->putting | run->stored;
    int64_t at = 0;
    while (at < 64 &&
           ((known >> at & 1) || level_progress_is_done(&s->levels, level, run->base + at)))
        at++;
    return run->base + at;
}

static void expire(struct schedule *s, struct level_run *run, int32_t level, int64_t min_off)
{
    int64_t gone = min_off - run->base;
    s->expired += (uint64_t)gone;
    log_error(s->broker->env.log, "delayed_expired",
              "level=%" PRId32 " messages=%" PRId64 " total=%" PRIu64
              " cause=\"retention or a full disk took them before they were due\"",
              level + 1, gone, s->expired);
    level_progress_raise(&s->levels, level, min_off);
    run->putting = gone < 64 ? run->putting >> gone : 0;
    run->stored = gone < 64 ? run->stored >> gone : 0;
    run->base = min_off;
}

static bool get(struct schedule *s, struct level_run *run, int32_t level, int64_t off,
                struct store_get_result *result, int64_t now_ns)
{
    const struct store_get wanted = {.topic = SCHEDULE_TOPIC,
                                     .queue_id = level,
                                     .offset = off,
                                     .max_count = READ_COUNT,
                                     .reserve = schedule_reserve,
                                     .arg = s};
    enum tern_code code = store_get(s->broker->store, &wanted, result);
    if (code == TERN_OK && result->status == GET_FOUND)
        return true;
    bool empty =
        result->status == GET_NO_MATCHED_LOGIC_QUEUE || result->status == GET_NO_MESSAGE_IN_QUEUE ||
        result->status == GET_OFFSET_OVERFLOW_ONE || result->status == GET_OFFSET_OVERFLOW_BADLY;
    if (code == TERN_OK && empty) {
        run->at_end = true;
    } else if (code == TERN_OK && result->min_off > run->base) {
        expire(s, run, level, result->min_off);
    } else {
        run->retry_ns = now_ns + ms_to_ns(LEVEL_RETRY_MS);
        log_warn(s->broker->env.log, "delay_level_not_read",
                 "level=%" PRId32 " offset=%" PRId64 " state=%s effect=\"tried again\"", level + 1,
                 off, code ? tern_code_name(code) : get_status_text(result->status));
    }
    return false;
}

/* Whether a record is due; else notes when, and up to which offset. */
static bool is_due(const struct schedule *s, struct level_run *run, int32_t level,
                   const struct record *record, int64_t max_off, int64_t now_ms)
{
    struct clock *clock = s->broker->env.clock;
    const struct delay_levels *levels = &s->broker->config.delay_levels;
    int64_t due_ms = delay_level_due_ms(levels, level + 1, record->store_ms);
    if (record->queue_off < run->due_end || due_ms <= now_ms)
        return true;
    /* The wall clock after the record was stored, or one would lie ahead that does not; and the
     * other one after that, or what is left of the wait would be too short. */
    now_ms = clock_wall_ms(clock);
    int64_t now_ns = clock_mono_ns(clock);
    bool ahead = record->store_ms > now_ms;
    if (ahead)
        due_ms = delay_level_due_ms(levels, level + 1, now_ms);
    if (due_ms <= now_ms)
        return true;
    run->due_ns = now_ns + ms_to_ns(due_ms - now_ms);
    run->due_ms = ahead ? INT64_MAX : due_ms;
    run->due_end = ahead ? max_off : record->queue_off + 1;
    return false;
}

/* Puts one; false: no more of this level now. */
static bool deliver_one(struct schedule *s, struct level_run *run, int32_t level,
                        const struct record *record, int64_t max_off, int64_t now_ms,
                        int64_t now_ns)
{
    const struct waiting waiting = {.queue_id = level, .queue_off = record->queue_off};
    int64_t at = record->queue_off - run->base;
    if (at < 0 || at >= 64)
        return false;
    if (((run->putting | run->stored) >> at & 1) ||
        level_progress_is_done(&s->levels, level, record->queue_off))
        return true;
    if (!is_due(s, run, level, record, max_off, now_ms))
        return false;
    if (__builtin_popcountll(run->putting) >= LEVEL_FLIGHTS_MAX || cancel_covers(s, &waiting))
        return false;
    struct flight *flight = flight_take(s, ACTION_DELIVER, &waiting, record->phys_off);
    if (!flight)
        return false;
    run->putting |= UINT64_C(1) << at;
    flight_start(s, flight, record, now_ns);
    return true;
}

/* Reads and puts what is due; whether to look again at once. */
static bool run_level(struct schedule *s, struct level_run *run, int32_t level, int64_t now_ms,
                      int64_t now_ns)
{
    struct store_get_result result;
    int64_t off = next_of(s, run, level);
    if (off >= run->base + 64 || __builtin_popcountll(run->putting) >= LEVEL_FLIGHTS_MAX ||
        s->flights_used >= FLIGHTS_MAX)
        return false; /* a flight that ends wakes us */
    if (!get(s, run, level, off, &result, now_ns))
        return !run->at_end && run->retry_ns <= now_ns;
    bool more = true;
    for (size_t at = 0; more && at < result.size_bytes;) {
        struct record record;
        if (record_parse(s->scratch + at, result.size_bytes - at, INT32_MAX, false, &record) !=
            RECORD_WHOLE)
            break;
        at += record.total_size;
        more = deliver_one(s, run, level, &record, result.max_off, now_ms, now_ns);
    }
    return more;
}

static int32_t level_count(struct schedule *s)
{
    int32_t stored = store_topic_last_queue(s->broker->store, SCHEDULE_TOPIC) + 1;
    int32_t count = (int32_t)s->broker->config.delay_levels.count;
    count = stored > count ? stored : count;
    return count < DELAY_LEVELS_MAX ? count : DELAY_LEVELS_MAX;
}

int64_t deliver_levels(struct schedule *s, int64_t now_ns)
{
    int64_t now_ms = clock_wall_ms(s->broker->env.clock);
    int64_t next_ns = SCHED_NEVER;
    int32_t count = level_count(s);
    lock_acquire(&s->lock);
    uint64_t arrived = s->arrived;
    s->arrived = 0;
    lock_release(&s->lock);
    for (int32_t level = 0; level < count; level++) {
        struct level_run *run = &s->runs[level];
        int64_t wanted_ns = SCHED_NEVER;
        run->at_end = run->at_end && !(arrived >> level & 1);
        move_on(s, run, level);
        bool again = false;
        bool due = now_ns >= run->due_ns || now_ms >= run->due_ms;
        if (!run->at_end && now_ns >= run->retry_ns && due)
            again = run_level(s, run, level, now_ms, now_ns);
        if (again)
            wanted_ns = now_ns;
        else if (run->retry_ns > now_ns)
            wanted_ns = run->retry_ns;
        else if (run->due_ns > now_ns)
            wanted_ns = run->due_ns;
        next_ns = wanted_ns < next_ns ? wanted_ns : next_ns;
    }
    return next_ns;
}
