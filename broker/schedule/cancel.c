/*
 * Cancelling: a record in DELAY_MARKS_TOPIC with SEQUEL_OF ends the waiting. One task decides about
 * delivering and cancelling, so one of them wins:
 *
 *   request ─► where does it wait? ─┬ nowhere, on its way, done ─► QUERY_NOT_FOUND
 *                                   └► put of the mark ─┬ stored ─► success
 *                                                       └ refused ─► that code; it waits on
 *
 * A message that was rolled waits elsewhere than its sender was told: it is then found by its
 * UNIQ_KEY in the index, the newest first.
 *
 * Bounds: CANCEL_QUEUE_MAX requests, CANCEL_FLIGHTS_MAX marks on their way; a mark that is stored
 * keeps its place until the log has told of it, since until then the files do not know it.
 *
 * Threads: schedule_cancel() any, the rest the schedule's task. Failure modes: not a master that is
 * open: the code that sends get.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "broker/schedule/schedule_internal.h"

enum { CANCELS_A_STEP = 16, LOOK_AGAIN_MS = 2 };

/* Nobody delivers here, so nobody can say that something will not be. */
static void refuse(const struct schedule *s, struct rpc_request *request)
{
    rpc_reply_error(request, TERN_SERVICE_NOT_AVAILABLE,
                    "broker %s does not deliver delayed messages now (a slave, stopping, or not "
                    "open yet), the message waits on: ask the master, or cancel it again",
                    s->broker->config.broker_name);
}

void schedule_cancel(struct schedule *s, struct rpc_request *request)
{
    lock_acquire(&s->lock);
    bool stopped = !s->task;
    bool full = s->cancel_count == CANCEL_QUEUE_MAX;
    if (!stopped && !full) {
        request->next = NULL;
        if (s->cancels_last)
            s->cancels_last->next = request;
        else
            s->cancels = request;
        s->cancels_last = request;
        s->cancel_count++;
        task_wake(s->task);
    }
    lock_release(&s->lock);
    if (stopped)
        refuse(s, request);
    else if (full)
        rpc_reply_error(request, TERN_SYSTEM_BUSY,
                        "%d cancellations wait on broker %s, which is the most: the message waits "
                        "on; cancel it again",
                        CANCEL_QUEUE_MAX, s->broker->config.broker_name);
}

static struct rpc_request *take_one(struct schedule *s)
{
    lock_acquire(&s->lock);
    struct rpc_request *request = s->cancels;
    if (request) {
        s->cancels = request->next;
        s->cancel_count--;
    }
    if (!s->cancels)
        s->cancels_last = NULL;
    lock_release(&s->lock);
    return request;
}

static bool same(const struct waiting *a, const struct waiting *b)
{
    return a->timer == b->timer && a->queue_id == b->queue_id && a->key_ms == b->key_ms &&
           a->queue_off == b->queue_off;
}

/* On its way to be delivered, or cancelled. */
static bool in_flight(const struct schedule *s, const struct waiting *waiting)
{
    for (uint32_t i = 0; s->flights_used > 0 && i < FLIGHTS_MAX; i++)
        if (s->flights[i].state != FLIGHT_FREE && same(&s->flights[i].waiting, waiting))
            return true;
    return false;
}

bool cancel_covers(const struct schedule *s, const struct waiting *waiting)
{
    for (uint32_t i = 0; s->cancels_used > 0 && i < FLIGHTS_MAX; i++)
        if (s->flights[i].state != FLIGHT_FREE && s->flights[i].action == ACTION_CANCEL &&
            same(&s->flights[i].waiting, waiting))
            return true;
    return false;
}

static bool waits_in_level(const struct schedule *s, const struct waiting *waiting)
{
    const struct level_run *run = &s->runs[waiting->queue_id];
    int64_t at = waiting->queue_off - run->base;
    return at >= 0 && !level_progress_is_done(&s->levels, waiting->queue_id, waiting->queue_off) &&
           (at >= 64 || !((run->putting | run->stored) >> at & 1));
}

static enum tern_code waits(struct schedule *s, const struct waiting *waiting, bool *yes,
                            struct tern_error *err)
{
    const struct due_key key = {waiting->key_ms, waiting->queue_off};
    *yes = false;
    if (in_flight(s, waiting))
        return TERN_OK;
    if (!waiting->timer) {
        *yes = waits_in_level(s, waiting);
        return TERN_OK;
    }
    if (due_key_compare(&key, &s->horizon) <= 0) {
        *yes = due_heap_find(&s->window, &key);
        return TERN_OK;
    }
    return bucket_waits(&s->buckets, s->loader.items, &key, yes, err);
}

/* What a record would be called, if it waits. */
static bool name_of(const struct record *record, struct waiting *out)
{
    int64_t due_ms;
    *out = (struct waiting){.queue_off = record->queue_off};
    if (delay_topic_is(record, SCHEDULE_TOPIC)) {
        out->queue_id = record->queue_id;
        return record->queue_id >= 0 && record->queue_id < DELAY_LEVELS_MAX;
    }
    out->timer = true;
    return delay_topic_is(record, TIMER_TOPIC) && delay_times_of(record, &due_ms, &out->key_ms);
}

static bool has_key(const struct record *record, const ProtobufCBinaryData *id)
{
    struct slice key;
    return props_get(record->props, record->props_len, PROP_UNIQ_KEY, &key) && key.len == id->len &&
           !memcmp(key.ptr, id->data, key.len);
}

struct newest {
    const ProtobufCBinaryData *id;
    struct waiting waiting;
    int64_t phys_off;
    bool found;
};

static bool take_newest(void *arg, const uint8_t *bytes, size_t size)
{
    struct newest *newest = arg;
    struct record record;
    newest->found = record_parse(bytes, size, INT32_MAX, false, &record) == RECORD_WHOLE &&
                    has_key(&record, newest->id) && name_of(&record, &newest->waiting);
    newest->phys_off = newest->found ? record.phys_off : -1;
    return !newest->found;
}

/* Where a message waits that was put again. */
static bool find_rolled(struct schedule *s, const ProtobufCBinaryData *id, struct newest *newest)
{
    char key[256];
    struct store_query_info info;
    if (id->len >= sizeof key || memchr(id->data, 0, id->len))
        return false;
    memcpy(key, id->data, id->len);
    key[id->len] = 0;
    *newest = (struct newest){.id = id};
    const struct store_query query = {.topic = TIMER_TOPIC,
                                      .key = key,
                                      .max_count = 8,
                                      .end_ms = INT64_MAX,
                                      .on_record = take_newest,
                                      .arg = newest};
    return store_query(s->broker->store, &query, &info) == TERN_OK && newest->found;
}

static void not_found(const struct schedule *s, struct rpc_request *request, const char *why)
{
    const Tern__Wire__CancelDelayedRequest *wanted = request->header->cancel_delayed;
    rpc_reply_error(request, TERN_QUERY_NOT_FOUND,
                    "no delayed message waits at position %" PRId64 " of broker %s: %s",
                    wanted->physical_offset, s->broker->config.broker_name, why);
}

/* What is named, if it waits; else the request was answered. */
static bool find(struct schedule *s, struct rpc_request *request, struct waiting *waiting,
                 int64_t *phys_off)
{
    const Tern__Wire__CancelDelayedRequest *wanted = request->header->cancel_delayed;
    struct record record;
    struct newest newest;
    struct tern_error err;
    bool yes = false;
    enum tern_code code = schedule_read(s, wanted->physical_offset, &record);
    bool named = !code && has_key(&record, &wanted->message_id) && name_of(&record, waiting);
    *phys_off = wanted->physical_offset;
    if (code && code != TERN_NOT_FOUND) {
        rpc_reply_error(request, code,
                        "position %" PRId64 " of broker %s cannot be read (%s): the message waits "
                        "on; cancel it again",
                        wanted->physical_offset, s->broker->config.broker_name,
                        tern_code_text(code));
        return false;
    }
    if (!code && !named) {
        not_found(s, request,
                  "another message is there; cancel with the offset id and the message id that the "
                  "send returned");
        return false;
    }
    if (named) {
        code = waits(s, waiting, &yes, &err);
        if (code) {
            rpc_reply_failure(request, code, &err);
            return false;
        }
    }
    if (!yes && find_rolled(s, &wanted->message_id, &newest)) {
        *waiting = newest.waiting;
        *phys_off = newest.phys_off;
        code = waits(s, waiting, &yes, &err);
    }
    if (!yes)
        not_found(s, request,
                  "it was delivered or cancelled before, or is being delivered now; mqadmin why "
                  "tells which");
    return yes;
}

/* Whether the request was dealt with; false: later. */
static bool begin(struct schedule *s, struct rpc_request *request, int64_t now_ns)
{
    const Tern__Wire__CancelDelayedRequest *wanted = request->header->cancel_delayed;
    struct waiting waiting;
    int64_t phys_off;
    if (wanted->physical_offset >= s->fed) { /* the log has not told of it yet, or never will */
        struct store_positions at;
        store_positions(s->broker->store, &at);
        if (wanted->physical_offset < at.appended && now_ns < request->deadline_ns)
            return false;
        not_found(s, request,
                  "its log does not reach there; ask the broker that answered the send, or the "
                  "master that took its place");
        return true;
    }
    if (!find(s, request, &waiting, &phys_off))
        return true;
    if (!waiting.timer && s->levels.count >= LEVEL_MARKS_MAX) {
        rpc_reply_error(request, TERN_LIMIT,
                        "%d cancelled messages of the delay levels wait for their time on broker "
                        "%s, which is the most: this one waits on; cancel it again when some would "
                        "have been due",
                        LEVEL_MARKS_MAX, s->broker->config.broker_name);
        return true;
    }
    struct flight *flight = flight_take(s, ACTION_CANCEL, &waiting, phys_off);
    if (!flight)
        return false;
    flight->request = request;
    s->cancels_used++;
    flight_start(s, flight, NULL, now_ns);
    if (flight->state == FLIGHT_WAITING) { /* not even begun */
        flight->code = TERN_NO_MEMORY;
        cancel_ended(s, flight);
    }
    return true;
}

static void answer_failure(const struct schedule *s, struct rpc_request *request,
                           enum tern_code code, bool stored)
{
    const char *broker = s->broker->config.broker_name;
    char text[256] = "";
    if (stored) {
        rpc_reply_error(
            request, code,
            "cancelled on broker %s, which does not know yet whether that is safe (%s): "
            "cancel again to be sure, QUERY_NOT_FOUND says that it is done",
            broker, tern_code_text(code));
        return;
    }
    store_refusal_text(s->broker->store, code, text, sizeof text);
    rpc_reply_error(request, code,
                    "broker %s could not store the cancellation, the message waits on; cancel it "
                    "again: %s",
                    broker, text);
}

void cancel_ended(struct schedule *s, struct flight *flight)
{
    struct rpc_request *request = flight->request;
    bool stored = put_stored(flight->code);
    flight->request = NULL;
    if (flight->code == TERN_OK)
        rpc_reply_ok(request);
    else
        answer_failure(s, request, flight->code, stored);
    flight->stored = stored;
    flight->state = FLIGHT_WAITING;
    if (stored) /* until the log has told of it */
        return;
    if (flight->waiting.timer && flight->generation == s->generation) {
        const struct due_entry entry = {{flight->waiting.key_ms, flight->waiting.queue_off},
                                        flight->phys_off};
        if (!due_heap_find(&s->window, &entry.key))
            window_add(s, &entry);
    }
    s->cancels_used--;
    flight_release(s, flight);
}

/* Places of those of which the log has told. */
static void release_told(struct schedule *s)
{
    for (uint32_t i = 0; s->cancels_used > 0 && i < FLIGHTS_MAX; i++) {
        struct flight *flight = &s->flights[i];
        if (flight->state == FLIGHT_WAITING && flight->action == ACTION_CANCEL && flight->stored &&
            (s->fed >= flight->put.append.end_phys_off || flight->generation != s->generation)) {
            s->cancels_used--;
            flight_release(s, flight);
        }
    }
}

int64_t cancel_step(struct schedule *s, int64_t now_ns)
{
    release_told(s);
    if (s->state != SCHEDULE_DELIVERING) {
        cancel_refuse_all(s);
        return s->cancels_used ? now_ns + ms_to_ns(LOOK_AGAIN_MS) : SCHED_NEVER;
    }
    for (int i = 0; i < CANCELS_A_STEP && s->cancels_used < CANCEL_FLIGHTS_MAX; i++) {
        struct rpc_request *request = s->held ? s->held : take_one(s);
        s->held = NULL;
        if (!request)
            break;
        if (!begin(s, request, now_ns)) {
            s->held = request;
            break;
        }
    }
    lock_acquire(&s->lock);
    bool more = s->cancels != NULL;
    lock_release(&s->lock);
    return more || s->held || s->cancels_used ? now_ns + ms_to_ns(LOOK_AGAIN_MS) : SCHED_NEVER;
}

void cancel_refuse_all(struct schedule *s)
{
    struct rpc_request *request;
    while ((request = s->held ? s->held : take_one(s))) {
        s->held = NULL;
        refuse(s, request);
    }
}
