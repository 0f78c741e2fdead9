/*
 * The dispatcher of trace records.
 *
 * Batches are allocated when their first record comes, and at most TRACE_BATCHES_MAX of them wait;
 * a timer of the client instance sends them, asynchronously, so that no thread of an application
 * ever compresses or sends a trace. The timer runs only while there is something to send.
 *
 * Invariants: armed exactly while the timer's call is to come; sending is handed over whole batches
 * that nobody writes to any more.
 *
 * Threads: any; the lock is of rank PRODUCER and never nested with a producer's, nothing is called
 * with it held. Failure modes: no
 * room or no memory: the record is dropped; the broker refuses (no trace topic): its batch is
 * dropped; both counted, the first and every 1000th is logged.
 */
#include "client/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/sched.h"
#include "client/producer_internal.h"

struct trace_batch {
    struct trace_batch *next;
    struct trace *trace;
    size_t len, keys_len;
    uint32_t records;
    char keys[TRACE_BATCH_KEYS + 1];
    char text[TRACE_BATCH_BYTES];
};

struct trace {
    const struct env *env;
    struct instance *instance;
    struct tern_producer *producer;
    char topic[TOPIC_NAME_MAX + 1];
    struct instance_timer timer;
    struct lock lock; /* PRODUCER; protects what follows */
    struct trace_batch *first, *last;
    uint32_t batches;
    bool started, stopping, armed;
    struct latch *disarmed; /* set when a stop waits for the timer */
    _Atomic uint64_t dropped;
};

static void count_dropped(struct trace *trace, uint64_t records, const char *why)
{
    uint64_t before = atomic_fetch_add(&trace->dropped, records);
    if (before == 0 || before / 1000 != (before + records) / 1000)
        log_warn(trace->env->log, "trace_dropped", "topic=%s records=%llu reason=\"%s\"",
                 trace->topic, (unsigned long long)(before + records), why);
}

uint64_t trace_dropped(const struct trace *trace)
{
    return atomic_load_explicit(&trace->dropped, memory_order_relaxed);
}

/* ---- sending ---- */

static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct trace_batch *batch = arg;
    (void)result;
    if (code != TERN_OK)
        count_dropped(batch->trace, batch->records, error_text(err, code));
    free(batch);
}

/* Takes the batch. @locks none */
static void send_batch(struct trace *trace, struct trace_batch *batch)
{
    struct tern_message *message = NULL;
    struct tern_error err = {.code = TERN_OK};
    enum tern_code code =
        tern_message_create(trace->topic, batch->text, batch->len, &message, &err);
    if (code == TERN_OK && batch->keys_len > 0)
        code = tern_message_set_keys(message, batch->keys);
    if (code == TERN_OK)
        code = tern_producer_send_async(trace->producer, &message, 1, NULL, on_sent, batch, &err);
    tern_message_unref(message);
    if (code == TERN_OK)
        return;
    count_dropped(trace, batch->records, error_text(&err, code));
    free(batch);
}

/* All that waits, also what is not full. */
static void send_all(struct trace *trace)
{
    lock_acquire(&trace->lock);
    struct trace_batch *batch = trace->first;
    trace->first = trace->last = NULL;
    trace->batches = 0;
    lock_release(&trace->lock);
    while (batch) {
        struct trace_batch *next = batch->next;
        send_batch(trace, batch);
        batch = next;
    }
}

static struct trace *trace_of(struct instance_timer *timer)
{
    return (struct trace *)(void *)((char *)timer - offsetof(struct trace, timer));
}

/* @thread the instance's task */
static void on_time(struct instance_timer *timer, enum tern_code code)
{
    struct trace *trace = trace_of(timer);
    struct sched *sched = trace->env->sched;
    if (code == TERN_OK)
        send_all(trace);
    lock_acquire(&trace->lock);
    trace->armed = false;
    bool again = trace->first && !trace->stopping && code == TERN_OK;
    trace->armed = again;
    struct latch *disarmed = again ? NULL : trace->disarmed;
    trace->disarmed = again ? trace->disarmed : NULL;
    lock_release(&trace->lock);
    if (disarmed)
        latch_set(sched, disarmed); /* the trace may be gone from here on */
    if (again && !instance_timer_start(trace->instance, &trace->timer,
                                       clock_mono_ns(trace->env->clock) + ms_to_ns(TRACE_FLUSH_MS)))
        on_time(timer, TERN_CANCELED);
}

/* ---- adding ---- */

/* Whether the id and the keys have room among the batch's; adds them. */
static bool add_keys(struct trace_batch *batch, const struct trace_record *record)
{
    const char *texts[] = {record->message_id, record->keys};
    size_t needed = 0;
    for (int i = 0; i < 2; i++)
        needed += texts[i] ? strnlen(texts[i], TRACE_KEYS_MAX) + 1 : 0;
    if (batch->keys_len + needed > TRACE_BATCH_KEYS)
        return false;
    for (int i = 0; i < 2; i++) {
        size_t len = texts[i] ? strnlen(texts[i], TRACE_KEYS_MAX) : 0;
        if (len == 0)
            continue;
        if (batch->keys_len > 0)
            batch->keys[batch->keys_len++] = ' ';
        for (size_t k = 0; k < len; k++) /* a property's separators are not allowed in keys */
            batch->keys[batch->keys_len++] =
                texts[i][k] == 1 || texts[i][k] == 2 ? ' ' : texts[i][k];
        batch->keys[batch->keys_len] = 0;
    }
    return true;
}

static bool batch_add(struct trace_batch *batch, const struct trace_record *record)
{
    if (batch->records >= TRACE_BATCH_RECORDS)
        return false;
    size_t len = trace_encode(record, batch->text + batch->len, sizeof batch->text - batch->len);
    if (len == 0 || !add_keys(batch, record))
        return false;
    batch->len += len;
    batch->records++;
    return true;
}

/* A new last batch; NULL: at the limit, or no memory. @locks holds:PRODUCER */
static struct trace_batch *new_batch(struct trace *trace)
{
    if (trace->batches >= TRACE_BATCHES_MAX)
        return NULL;
    struct trace_batch *batch = malloc(sizeof *batch);
    if (!batch)
        return NULL;
    batch->next = NULL;
    batch->trace = trace;
    batch->len = batch->keys_len = 0;
    batch->records = 0;
    batch->keys[0] = 0;
    if (trace->last)
        trace->last->next = batch;
    else
        trace->first = batch;
    trace->last = batch;
    trace->batches++;
    return batch;
}

void trace_add(struct trace *trace, const struct trace_record *record)
{
    lock_acquire(&trace->lock);
    bool good = trace->started && !trace->stopping;
    if (good && !(trace->last && batch_add(trace->last, record))) {
        struct trace_batch *batch = new_batch(trace);
        good = batch && batch_add(batch, record);
    }
    bool arm = good && !trace->armed;
    trace->armed = trace->armed || arm;
    lock_release(&trace->lock);
    if (!good)
        count_dropped(trace, 1, "no room for more records");
    if (arm && !instance_timer_start(trace->instance, &trace->timer,
                                     clock_mono_ns(trace->env->clock) + ms_to_ns(TRACE_FLUSH_MS)))
        on_time(&trace->timer, TERN_CANCELED);
}

/* ---- life ---- */

/* The dispatcher's producer: same world and nameservers, a group of its own. */
static enum tern_code make_producer(struct trace *trace, const struct tern_producer_options *from,
                                    struct tern_error *err)
{
    static _Atomic uint32_t number;
    struct tern_producer_options *options = tern_producer_options_create();
    if (!options)
        return error_set(err, TERN_NO_MEMORY, "options of the trace producer");
    memcpy(options->namesrv, from->namesrv, sizeof options->namesrv);
    memcpy(options->instance_name, from->instance_name, sizeof options->instance_name);
    options->env = from->env;
    options->link = from->link;
    options->max_in_flight = TRACE_BATCHES_MAX;
    snprintf(options->group, sizeof options->group, "_INNER_TRACE_PRODUCER-%u-%.200s",
             (unsigned)atomic_fetch_add(&number, 1), from->group);
    enum tern_code code = tern_producer_create(options, &trace->producer, err);
    tern_producer_options_destroy(options);
    return code;
}

enum tern_code trace_create(const struct trace_options *options, struct trace **out,
                            struct tern_error *err)
{
    struct trace *trace = calloc(1, sizeof *trace);
    *out = NULL;
    if (!trace)
        return error_set(err, TERN_NO_MEMORY, "trace");
    enum tern_code code = make_producer(trace, options->producer, err);
    if (code != TERN_OK) {
        free(trace);
        return error_prefix(err, code, "trace");
    }
    trace->env = instance_env(options->instance);
    trace->instance = options->instance;
    trace->timer.done = on_time;
    snprintf(trace->topic, sizeof trace->topic, "%s", options->topic);
    lock_init(&trace->lock, LOCK_PRODUCER);
    *out = trace;
    return TERN_OK;
}

enum tern_code trace_start(struct trace *trace, struct tern_error *err)
{
    enum tern_code code = tern_producer_start(trace->producer, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "trace");
    lock_acquire(&trace->lock);
    trace->started = true;
    lock_release(&trace->lock);
    return TERN_OK;
}

void trace_stop(struct trace *trace)
{
    struct latch disarmed;
    if (!trace)
        return;
    latch_init(&disarmed);
    lock_acquire(&trace->lock);
    trace->stopping = true;
    bool wait = trace->armed;
    trace->disarmed = wait ? &disarmed : NULL;
    lock_release(&trace->lock);
    if (wait) {
        bool set = latch_wait(trace->env->sched, &disarmed, SCHED_NEVER);
        ENSURE(set);
    }
    send_all(trace);
    tern_producer_shutdown(trace->producer); /* waits for what is under way */
}

void trace_destroy(struct trace *trace)
{
    if (!trace)
        return;
    trace_stop(trace);
    tern_producer_destroy(trace->producer);
    lock_fini(&trace->lock);
    free(trace);
}
