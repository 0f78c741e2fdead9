/*
 * One waiting message on its way: what is to become of it, the put, and what came of that.
 *
 *                    ┌ real topic takes it ──────────► DELIVER  real topic and queue
 *   record, due ─────┼ due later (timer) ────────────► ROLL     timer topic again
 *                    ├ topic gone, or not writable, ─► RETRY    timer topic, due after a while
 *                    │ or without room for its queue
 *                    │       … DELIVERY_TRIES_MAX times: DEAD   DELAY_DEAD_TOPIC
 *   not there, ──────┴ no topic, or one of ours ─────► DISCARD  DELAY_MARKS_TOPIC
 *   another one, or damaged
 *
 * Each is one record with SEQUEL_OF, which ends the waiting. So what cannot be delivered blocks
 * neither its level nor the timer, and every copy of the log knows what became of it.
 *
 *   FREE ─► PUTTING ──stored──► FREE
 *              └──refused──► WAITING (RETRY_MS, doubling to a second) ─► PUTTING
 *
 * Threads: the schedule's task; put_done on whoever ends the put. Failure modes: a store that
 * refuses (full, read-only, not open) is asked again; for a record that it will never take (too
 * large by a limit that was lowered) a mark ends the waiting, counted as given up. None is tried
 * again for ever without a word: what only the store as a whole can mend is logged each time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/names.h"
#include "broker/delayed.h"
#include "broker/schedule/schedule_internal.h"

enum { FAILURES_SHOWN = 4, EARLY_MS = 0 };

/* ---- reading ---- */

uint8_t *schedule_reserve(void *arg, size_t size_bytes)
{
    struct schedule *s = arg;
    if (size_bytes > s->scratch_cap) {
        uint8_t *grown = realloc(s->scratch, size_bytes);
        if (!grown)
            return NULL;
        s->scratch = grown;
        s->scratch_cap = size_bytes;
    }
    return s->scratch;
}

enum tern_code schedule_read(struct schedule *s, int64_t phys_off, struct record *out)
{
    size_t size = 0;
    enum tern_code code = store_get_by_phys(s->broker->store, phys_off, schedule_reserve, s, &size);
    if (!code && record_parse(s->scratch, size, INT32_MAX, false, out) != RECORD_WHOLE)
        code = TERN_NOT_FOUND;
    return code;
}

/* ---- taking and giving back ---- */

struct flight *flight_take(struct schedule *s, enum flight_action action,
                           const struct waiting *waiting, int64_t phys_off)
{
    for (uint32_t i = 0; s->flights_used < FLIGHTS_MAX && i < FLIGHTS_MAX; i++) {
        struct flight *flight = &s->flights[(s->flights_used + i) % FLIGHTS_MAX];
        if (flight->state != FLIGHT_FREE)
            continue;
        *flight = (struct flight){.schedule = s,
                                  .state = FLIGHT_WAITING,
                                  .action = action,
                                  .waiting = *waiting,
                                  .phys_off = phys_off,
                                  .generation = s->generation};
        s->flights_used++;
        return flight;
    }
    return NULL;
}

void flight_release(struct schedule *s, struct flight *flight)
{
    flight->state = FLIGHT_FREE;
    s->flights_used--;
}

/* ---- what becomes of it ---- */

/* The topic and queue it goes to; the message of *fault says why not. */
static bool find_target(struct schedule *s, const struct record *record, char *topic,
                        int32_t *queue_id, const char **fault, bool *for_good)
{
    struct slice real;
    struct topic_config config;
    int64_t queue;
    *for_good = true;
    *fault = "it names no topic and queue";
    if (!props_get(record->props, record->props_len, PROP_REAL_TOPIC, &real) ||
        topic_name_check(real.ptr, real.len, NULL) != TERN_OK ||
        !delay_number_of(record, PROP_REAL_QID, &queue) || queue >= TOPIC_QUEUES_MAX)
        return false;
    memcpy(topic, real.ptr, real.len);
    topic[real.len] = 0;
    *fault = "its topic is one of the broker's own";
    if (topic_send_forbidden(topic, real.len))
        return false;
    *for_good = false;
    *fault = "its topic does not exist";
    if (!topics_find(s->broker->topics, topic, real.len, &config))
        return false;
    *fault = "its topic is not writable";
    if (!(config.perm & PERM_WRITE) || config.write_queues < 1)
        return false;
    int32_t most =
        config.read_queues > config.write_queues ? config.read_queues : config.write_queues;
    *queue_id = (int32_t)queue < most ? (int32_t)queue : (int32_t)(queue % config.write_queues);
    return true;
}

/* A record that is the one which waits. */
static bool is_the_one(const struct waiting *waiting, const struct record *record)
{
    int64_t due_ms;
    int64_t key_ms;
    if (!record || record->queue_off != waiting->queue_off)
        return false;
    if (!waiting->timer)
        return delay_topic_is(record, SCHEDULE_TOPIC) && record->queue_id == waiting->queue_id;
    return delay_topic_is(record, TIMER_TOPIC) && delay_times_of(record, &due_ms, &key_ms) &&
           key_ms == waiting->key_ms;
}

/* What rotted on the disk is not given a new checksum. As RocketMQ: an empty body has none. */
static bool is_sound(const struct record *record)
{
    return record->body_len == 0 ||
           record_body_crc(record->body, record->body_len) == record->body_crc;
}

struct plan {
    enum flight_action action;
    char topic[TOPIC_NAME_MAX + 1];
    int32_t queue_id;
    int64_t due_ms; /* ROLL, RETRY */
    int64_t tries;
    const char *given_up; /* why there is nothing to deliver; NULL: there is */
};

static void plan_retry(struct schedule *s, const struct record *record, const char *fault,
                       struct plan *plan)
{
    int64_t wait_ms = 1000;
    if (!delay_number_of(record, PROP_DELAY_TRIES, &plan->tries))
        plan->tries = 0;
    for (int64_t i = 0; i < plan->tries && wait_ms < RETRY_BACKOFF_MAX_MS; i++)
        wait_ms *= 2;
    if (wait_ms > RETRY_BACKOFF_MAX_MS)
        wait_ms = RETRY_BACKOFF_MAX_MS;
    plan->action = ++plan->tries > DELIVERY_TRIES_MAX ? ACTION_DEAD : ACTION_RETRY;
    plan->due_ms = clock_wall_ms(s->broker->env.clock) + wait_ms;
    log_warn(s->broker->env.log, "delayed_not_deliverable",
             "position=%" PRId64 " topic=%s cause=\"%s\" try=%" PRId64 " of=%d", record->phys_off,
             plan->topic, fault, plan->tries, DELIVERY_TRIES_MAX);
}

static void make_plan(struct schedule *s, const struct flight *flight, const struct record *record,
                      struct plan *plan)
{
    const char *fault = "";
    bool for_good = false;
    int64_t key_ms;
    *plan = (struct plan){.action = flight->action};
    if (flight->action == ACTION_CANCEL)
        return;
    plan->action = ACTION_DISCARD;
    if (!is_the_one(&flight->waiting, record))
        plan->given_up = "its record is not there";
    else if (!is_sound(record))
        plan->given_up = "its body is damaged";
    else if (flight->refused)
        plan->given_up = "the store does not take it";
    if (plan->given_up)
        return;
    if (flight->waiting.timer && delay_times_of(record, &plan->due_ms, &key_ms) &&
        plan->due_ms > clock_wall_ms(s->broker->env.clock) + EARLY_MS) {
        plan->action = ACTION_ROLL;
        return;
    }
    bool found = find_target(s, record, plan->topic, &plan->queue_id, &fault, &for_good);
    if (found && !flight->no_queue) {
        plan->action = ACTION_DELIVER;
        return;
    }
    if (found)
        fault = "the broker has all the queues that it can have";
    if (for_good) {
        log_error(s->broker->env.log, "delayed_not_deliverable",
                  "position=%" PRId64 " cause=\"%s\" effect=\"kept in %s\"", record->phys_off,
                  fault, DELAY_DEAD_TOPIC);
        plan->action = ACTION_DEAD;
        return;
    }
    plan_retry(s, record, fault, plan);
}

/* ---- the record ---- */

static bool add_text(struct schedule *s, size_t *len, const char *name, const char *text)
{
    return props_append(s->props, len, RECORD_PROPS_MAX, name, strlen(name), text, strlen(text)) ==
           TERN_OK;
}

static bool add_number(struct schedule *s, size_t *len, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return add_text(s, len, name, text);
}

/* Properties of the new record; false: there is no room. */
static bool make_props(struct schedule *s, const struct flight *flight, const struct record *record,
                       const struct plan *plan, size_t *len)
{
    static const char *const never[] = {PROP_SEQUEL_OF, PROP_TIMER_ROLL_MS, PROP_DELAY};
    static const char *const delivered[] = {PROP_REAL_TOPIC, PROP_REAL_QID, PROP_TIMER_OUT_MS,
                                            PROP_DELAY_TRIES};
    char text[WAITING_TEXT_BYTES];
    bool fits = true;
    *len = 0;
    if (record) {
        *len = record->props_len;
        memcpy(s->props, record->props, *len);
        for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
            *len = props_remove(s->props, s->props, *len, never[i]);
        bool all = plan->action == ACTION_DELIVER;
        for (size_t i = 0; all && i < sizeof delivered / sizeof delivered[0]; i++)
            *len = props_remove(s->props, s->props, *len, delivered[i]);
    }
    if (plan->action == ACTION_ROLL || plan->action == ACTION_RETRY) {
        int64_t roll_ms = clock_wall_ms(s->broker->env.clock) + delayed_roll_after_ms(s->broker);
        *len = props_remove(s->props, s->props, *len, PROP_TIMER_OUT_MS);
        fits = add_number(s, len, PROP_TIMER_OUT_MS, plan->due_ms) &&
               (roll_ms >= plan->due_ms || add_number(s, len, PROP_TIMER_ROLL_MS, roll_ms));
    }
    if (plan->action == ACTION_RETRY) {
        *len = props_remove(s->props, s->props, *len, PROP_DELAY_TRIES);
        fits = fits && add_number(s, len, PROP_DELAY_TRIES, plan->tries);
    }
    waiting_format(text, &flight->waiting);
    return fits && add_text(s, len, PROP_SEQUEL_OF, text);
}

static void set_target(const struct plan *plan, struct record *fields)
{
    const char *topic = plan->topic;
    if (plan->action == ACTION_ROLL || plan->action == ACTION_RETRY)
        topic = TIMER_TOPIC;
    else if (plan->action == ACTION_DEAD)
        topic = DELAY_DEAD_TOPIC;
    else if (plan->action != ACTION_DELIVER)
        topic = DELAY_MARKS_TOPIC;
    fields->topic = (const uint8_t *)topic;
    fields->topic_len = (uint8_t)strlen(topic);
    fields->queue_id = plan->action == ACTION_DELIVER ? plan->queue_id : 0;
}

static void put_done(struct put *put, enum tern_code code)
{
    struct flight *flight = (struct flight *)(void *)((char *)put - offsetof(struct flight, put));
    struct schedule *s = flight->schedule;
    lock_acquire(&s->lock);
    flight->code = code;
    flight->next_finished = s->finished;
    s->finished = flight;
    if (s->task)
        task_wake(s->task);
    lock_release(&s->lock);
}

static void try_again_later(struct flight *flight, int64_t now_ns)
{
    int64_t wait_ms = RETRY_MS << (flight->failures < FAILURES_SHOWN ? flight->failures : 3);
    flight->failures++;
    flight->state = FLIGHT_WAITING;
    flight->retry_ns = now_ns + ms_to_ns(wait_ms);
}

/* It was not stored: what that says about the next try. */
static void note_refusal(struct schedule *s, struct flight *flight, enum tern_code code)
{
    log_warn(s->broker->env.log, "delayed_not_stored", "position=%" PRId64 " code=%s",
             flight->phys_off, tern_code_name(code));
    flight->refused =
        code == TERN_MESSAGE_ILLEGAL || code == TERN_TOO_LARGE || code == TERN_INVALID;
}

void flight_start(struct schedule *s, struct flight *flight, const struct record *record,
                  int64_t now_ns)
{
    struct broker *broker = s->broker;
    struct plan plan;
    struct record fields = {.store_host = broker->store_host, .born_host = broker->store_host};
    size_t props_len;
    make_plan(s, flight, record, &plan);
    bool mark = plan.action == ACTION_DISCARD || plan.action == ACTION_CANCEL;
    if (!mark)
        fields = *record;
    if (!make_props(s, flight, mark ? NULL : record, &plan, &props_len)) {
        mark = true;
        plan.action = ACTION_DISCARD;
        plan.given_up = "its properties have no room for what is added";
        fields = (struct record){.store_host = broker->store_host, .born_host = broker->store_host};
        (void)make_props(s, flight, NULL, &plan, &props_len);
    }
    if (mark) {
        fields.born_ms = clock_wall_ms(broker->env.clock);
        fields.body = (const uint8_t *)(plan.action == ACTION_CANCEL ? "cancelled" : "given up");
        fields.body_len = (uint32_t)strlen((const char *)fields.body);
    }
    flight->action = plan.action;
    flight->given_up = plan.given_up ? plan.given_up : "";
    fields.sys_flag &= SYS_COMPRESSED | SYS_COMPRESSION_TYPE | SYS_MULTI_TAGS;
    fields.prepared_tx_off = 0;
    fields.props = s->props;
    fields.props_len = (uint16_t)props_len;
    set_target(&plan, &fields);
    flight->put = (struct put){
        .done = put_done, .deadline_ns = now_ns + ms_to_ns(broker->live.sync_flush_timeout_ms)};
    flight->state = FLIGHT_PUTTING;
    enum tern_code code = put_start(broker, &flight->put, &fields);
    if (!code)
        return;
    note_refusal(s, flight, code);
    flight->no_queue = code == TERN_LIMIT && plan.action == ACTION_DELIVER;
    try_again_later(flight, now_ns);
}

/* ---- what came of it ---- */

static void count(struct schedule *s, const struct flight *flight)
{
    s->delivered += flight->action == ACTION_DELIVER;
    s->rolled += flight->action == ACTION_ROLL;
    s->retried += flight->action == ACTION_RETRY;
    s->dead += flight->action == ACTION_DEAD;
    s->discarded += flight->action == ACTION_DISCARD;
    if (flight->action == ACTION_DISCARD)
        log_error(s->broker->env.log, "delayed_given_up",
                  "position=%" PRId64 " total=%" PRIu64 " cause=\"%s\"", flight->phys_off,
                  s->discarded, flight->given_up);
}

static void ended(struct schedule *s, struct flight *flight, int64_t now_ns)
{
    bool stored = put_stored(flight->code);
    if (stored && flight->put.append.end_phys_off > s->putted_end)
        s->putted_end = flight->put.append.end_phys_off;
    if (flight->action == ACTION_CANCEL) {
        s->cancelled += stored;
        cancel_ended(s, flight);
        return;
    }
    if (stored)
        count(s, flight);
    else
        note_refusal(s, flight, flight->code);
    bool mine = flight->generation == s->generation && s->state == SCHEDULE_DELIVERING;
    if (!stored && mine) {
        flight->action = ACTION_DELIVER; /* decided anew */
        try_again_later(flight, now_ns);
        return;
    }
    if (mine && !flight->waiting.timer)
        level_flight_ended(s, flight, true);
    flight_release(s, flight);
}

void flight_take_finished(struct schedule *s, int64_t now_ns)
{
    lock_acquire(&s->lock);
    struct flight *finished = s->finished;
    s->finished = NULL;
    lock_release(&s->lock);
    while (finished) {
        struct flight *flight = finished;
        finished = flight->next_finished;
        ended(s, flight, now_ns);
    }
}

int64_t flight_retries(struct schedule *s, int64_t now_ns)
{
    int64_t next_ns = SCHED_NEVER;
    for (uint32_t i = 0; s->flights_used > 0 && i < FLIGHTS_MAX; i++) {
        struct flight *flight = &s->flights[i];
        struct record record;
        if (flight->state != FLIGHT_WAITING || flight->action == ACTION_CANCEL)
            continue;
        if (now_ns < flight->retry_ns) {
            next_ns = flight->retry_ns < next_ns ? flight->retry_ns : next_ns;
            continue;
        }
        enum tern_code code = schedule_read(s, flight->phys_off, &record);
        if (code && code != TERN_NOT_FOUND)
            try_again_later(flight, now_ns);
        else
            flight_start(s, flight, code ? NULL : &record, now_ns);
    }
    return next_ns;
}
