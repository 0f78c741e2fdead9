/*
 * The contexts of sends: made when needed, kept for the next send, freed with the producer. Taking
 * one is where a producer's state and its limit of asynchronous sends are checked; giving the last
 * one back is what shutdown waits for.
 *
 * Invariants: sends counts those out of the pool, in_flight those of them that count against
 * max_in_flight. After the last one was given back to a producer that shuts down, nothing of the
 * producer is touched.
 *
 * Threads: any; the lock is PRODUCER. Failure modes: TERN_STATE, TERN_LIMIT, TERN_NO_MEMORY, before
 * anything was sent.
 */
#include "client/producer_internal.h"

#include <stdlib.h>

static const char *state_name(enum producer_state state)
{
    static const char *const names[] = {
        [PRODUCER_CREATED] = "created",
        [PRODUCER_RUNNING] = "running",
        [PRODUCER_START_FAILED] = "start failed",
        [PRODUCER_SHUT_DOWN] = "shut down",
    };
    return names[state];
}

enum tern_code producer_wrong_state(enum producer_state state, const char *call,
                                    struct tern_error *err)
{
    return error_set(err, TERN_STATE, "%s: the producer is in the state \"%s\"", call,
                     state_name(state));
}

/* Counts one send more and takes it out of the pool; NULL with TERN_OK: allocate one. */
static struct send *pool_take(struct tern_producer *producer, bool counted, enum tern_code *code,
                              enum producer_state *state)
{
    struct send *send = NULL;
    lock_acquire(&producer->lock);
    *state = producer->state;
    if (producer->state != PRODUCER_RUNNING)
        *code = TERN_STATE;
    else if (counted && producer->in_flight >= producer->options.max_in_flight)
        *code = TERN_LIMIT;
    else
        *code = TERN_OK;
    if (*code == TERN_OK) {
        send = producer->pool;
        if (send)
            producer->pool = send->next;
        producer->sends++;
        producer->in_flight += counted;
    }
    lock_release(&producer->lock);
    return send;
}

/*
 * Uncounts and wakes shutdown after the last one; nothing of the producer may be used afterwards.
 */
static void pool_give(struct tern_producer *producer, struct send *send, bool counted)
{
    struct sched *sched = producer->env->sched;
    lock_acquire(&producer->lock);
    if (send) {
        send->next = producer->pool;
        producer->pool = send;
    }
    producer->in_flight -= counted;
    struct latch *drained = --producer->sends == 0 ? producer->drained : NULL;
    if (drained)
        producer->drained = NULL;
    lock_release(&producer->lock);
    if (drained)
        latch_set(sched, drained);
}

enum tern_code producer_hold(struct tern_producer *producer, const char *call,
                             struct tern_error *err)
{
    lock_acquire(&producer->lock);
    enum producer_state state = producer->state;
    producer->sends += state == PRODUCER_RUNNING;
    lock_release(&producer->lock);
    return state == PRODUCER_RUNNING ? TERN_OK : producer_wrong_state(state, call, err);
}

void producer_let_go(struct tern_producer *producer)
{
    pool_give(producer, NULL, false);
}

static bool take_messages(struct send *send, struct tern_message *const *messages, size_t count,
                          bool hold)
{
    send->messages = send->few;
    if (count > INLINE_MESSAGES)
        send->messages = malloc(count * sizeof(struct tern_message *));
    if (!send->messages)
        return false;
    send->count = count;
    send->holds_messages = hold;
    for (size_t i = 0; i < count; i++)
        send->messages[i] = hold ? tern_message_ref(messages[i]) : messages[i];
    return true;
}

enum tern_code send_create(struct tern_producer *producer, struct tern_message *const *messages,
                           size_t count, bool counted, bool hold, struct send **out,
                           struct tern_error *err)
{
    enum tern_code code;
    enum producer_state state;
    struct send *send = pool_take(producer, counted, &code, &state);
    *out = NULL;
    if (code == TERN_STATE)
        return producer_wrong_state(state, "send", err);
    if (code == TERN_LIMIT)
        return error_set(err, code, "%u asynchronous sends are under way, the limit max_in_flight",
                         producer->options.max_in_flight);
    if (!send)
        send = calloc(1, sizeof *send);
    if (!send || !take_messages(send, messages, count, hold)) {
        pool_give(producer, send, counted);
        return error_set(err, TERN_NO_MEMORY, "a send of %zu messages", count);
    }
    send->producer = producer;
    send->lane = NULL;
    send->packed = NULL;
    send->last_address[0] = 0;
    send->counted = counted;
    send->oneway = false;
    send->plain = false;
    send->tried_other_family = false;
    send->wants_fresh_route = false;
    send->had_fresh_route = false;
    send->tries_left = 1 + producer->options.retries;
    send->begun_ns = clock_mono_ns(producer->env->clock);
    send->deadline_ns = send->begun_ns + ms_to_ns(producer->options.send_timeout_ms);
    send->publish = NULL;
    send->target = NULL;
    send->last_broker = NULL;
    send->done = NULL;
    send->arg = NULL;
    send->code = TERN_OK;
    send->err.text[0] = 0;
    *out = send;
    return TERN_OK;
}

void send_release(struct send *send)
{
    send_unpack(send);
    for (size_t i = 0; send->holds_messages && i < send->count; i++)
        tern_message_unref(send->messages[i]);
    if (send->messages != send->few)
        free(send->messages);
    publish_unref(send->publish);
    pool_give(send->producer, send, send->counted);
}
