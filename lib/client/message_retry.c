/*
 * Messages that come again: sent back to their broker, or tried again in this process; and how they
 * look to the listener then, with the topic that they were sent to and their count of tries.
 *
 *   failed ──► SendBack to the queue's master ──► OK: finished here, the broker delivers it later
 *                 │ its record is not there any more
 *                 ├──► Send, a copy to %RETRY%group ──► OK: likewise
 *                 │ refused, or nobody there
 *                 └──► in 5 s ──► tries left: the listener once more, counted
 *                           └──► none left: sending back is tried again, without the listener
 *
 * Invariants: a message is marked finished only when a master has stored it once more. The listener
 * sees it no more than maxReconsumeTimes times again, whoever counts: broker and consumer tell each
 * other. Only the master of the queue's set is asked: a slave takes nothing, and another set does
 * not have the record.
 *
 * The restored topic borrows from the message's own texts, which live as long as the message.
 *
 * Threads: workers, link threads (answers), the control task. Messages are changed only while
 * nobody but us handles them, but for their count: a listener that ran out of time may still read
 * it. Failure modes: a broker that takes nothing back: local retries, then sending back for ever,
 * with the queue's commit point held; no memory for a retry: the message stays unfinished, and
 * comes again with the queue's next owner.
 */
#include "client/message_retry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/props.h"
#include "client/message_internal.h"
#include "client/message_struct.h"
#include "client/push_internal.h"

enum {
    FIRST_DELAY_LEVEL = 3, /* the broker's choice for a first retry */
    DEFAULT_RETRIES = 16,  /* a group's, as long as nobody changed it at the broker */
    COMPRESSION_FLAGS = SYS_COMPRESSED | SYS_COMPRESSION_TYPE
};

void message_restore_topic(struct tern_message *message)
{
    const struct message_texts *texts = message_texts(message);
    const char *topic = texts ? message_texts_find(texts, PROP_RETRY_TOPIC) : NULL;
    size_t len = topic ? strlen(topic) : 0;
    if (len == 0 || len > TOPIC_NAME_MAX)
        return;
    message->topic = topic;
    message->topic_len = (uint8_t)len;
}

void message_count_retries(struct tern_message *message, int32_t more)
{
    atomic_fetch_add_explicit(&message->reconsume_times, more, memory_order_relaxed);
    message->tries_here += more;
}

int32_t message_tries(const struct tern_message *message, bool of_retry_topic)
{
    return of_retry_topic ? tern_message_reconsume_times(message) : message->tries_here;
}

/* ---- retrying here ---- */

static int32_t tries_of(const struct push_chunk *chunk)
{
    const struct push_queue *queue = chunk->queue;
    return message_tries(chunk->messages[0],
                         strcmp(queue->id.topic, queue->consumer->retry_topic) == 0);
}

/* Whether the listener has seen the message as often as it may. The group's own maximum is the
 * broker's business; without its word the usual one holds here. */
static bool exhausted(const struct push_chunk *chunk)
{
    int32_t most = chunk->queue->consumer->options.max_reconsume_times;
    return chunk->delay_level < 0 || tries_of(chunk) >= (most < 0 ? DEFAULT_RETRIES : most);
}

/* The only message of the chunk is tried again here, later. Takes the chunk. */
static void retry_here(struct push_chunk *chunk)
{
    struct tern_push_consumer *consumer = chunk->queue->consumer;
    if (consumer->orderly) {
        push_order_not_buried(chunk);
        return;
    }
    if (atomic_load(&chunk->queue->dropped)) {
        push_chunk_unref(chunk); /* the next owner gets it */
        return;
    }
    chunk->send_only = exhausted(chunk);
    if (!chunk->send_only)
        message_count_retries(chunk->messages[0], 1);
    chunk->due_ns = clock_mono_ns(consumer->env->clock) + ms_to_ns(LOCAL_RETRY_MS);
    push_pool_add_later(consumer, chunk);
}

/* ---- sending back ---- */

static void log_refused(struct push_chunk *chunk, const struct rpc_call *call, enum tern_code code)
{
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = queue->consumer;
    unsigned times = atomic_fetch_add(&consumer->send_back_failures, 1) + 1;
    if (times > 10 && times % 1000 != 0)
        return;
    log_warn(consumer->env->log, "consumer_send_back_failed",
             "group=%s topic=%s broker=%s queue=%d offset=%lld code=%s reason=\"%s\" "
             "retry_here_ms=%d failures=%u",
             consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
             (long long)tern_message_queue_offset(chunk->messages[0]), tern_code_name(code),
             error_text(&call->error, code), LOCAL_RETRY_MS, times);
}

/* A copy may be stored: not safely, or nobody told. Any other answer is a refusal. */
static bool may_be_stored(enum tern_code code)
{
    return code == TERN_TIMEOUT || code == TERN_CONNECTION_LOST || code == TERN_PROTOCOL ||
           code == TERN_FLUSH_DISK_TIMEOUT || code == TERN_FLUSH_SLAVE_TIMEOUT;
}

static enum tern_code copy_start(struct push_chunk *chunk, struct rpc_peer *peer);

/* The answer to SendBack, or to Send. @thread link's */
static void on_sent_back(struct rpc_call *call, void *arg)
{
    struct push_chunk *chunk = arg;
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = queue->consumer;
    struct rpc_peer *peer = call->user;
    enum tern_code code = rpc_call_result(call);
    int64_t offset = tern_message_queue_offset(chunk->messages[0]);
    /* Without a slave the master alone counts; once more each time would be copies without end. */
    if (code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE) {
        atomic_store(&consumer->send_back_failures, 0);
        counter_add(&consumer->sent_back, 1);
        window_mark(&queue->window, offset);
        push_queue_ref(queue);
        push_chunk_unref(chunk);
        if (consumer->orderly)
            push_order_buried(queue);
        push_queue_unref(queue);
    } else if (code == TERN_QUERY_NOT_FOUND && !chunk->copied &&
               copy_start(chunk, peer) == TERN_OK) {
        peer = NULL; /* the copy's call has it */
    } else {
        counter_add(&consumer->sent_back_unknown, may_be_stored(code));
        log_refused(chunk, call, code);
        failed_addresses_note(&consumer->failed, rpc_peer_address(peer), code,
                              clock_mono_ns(consumer->env->clock));
        retry_here(chunk);
    }
    if (peer)
        rpc_peer_unref(peer);
    rpc_call_unref(call);
}

/* ---- a copy, for a broker that does not have the record any more ---- */

/* The message's properties with RETRY_TOPIC and DELAY, malloc'ed; what else asks for something the
 * broker leaves out. NULL: no memory, or no room. */
static uint8_t *copy_props(const struct push_chunk *chunk, const char *topic, size_t *len)
{
    const struct tern_message *message = chunk->messages[0];
    size_t sent_len;
    char level[16];
    const uint8_t *sent = message_props(message, &sent_len);
    uint8_t *props = sent_len <= RECORD_PROPS_MAX ? malloc(RECORD_PROPS_MAX) : NULL;
    if (!props)
        return NULL;
    int32_t wanted =
        chunk->delay_level > 0 ? chunk->delay_level : FIRST_DELAY_LEVEL + tries_of(chunk);
    int digits = snprintf(level, sizeof level, "%" PRId32, wanted);
    *len = props_remove(props, sent, sent_len, PROP_RETRY_TOPIC);
    *len = props_remove(props, props, *len, PROP_DELAY);
    *len = props_remove(props, props, *len, PROP_TRAN_MSG);
    if (props_append(props, len, RECORD_PROPS_MAX, PROP_RETRY_TOPIC, strlen(PROP_RETRY_TOPIC),
                     topic, strlen(topic)) == TERN_OK &&
        props_append(props, len, RECORD_PROPS_MAX, PROP_DELAY, strlen(PROP_DELAY), level,
                     (size_t)digits) == TERN_OK)
        return props;
    free(props);
    return NULL;
}

/* TERN_OK: the chunk and the peer's reference went to the callback. */
static enum tern_code copy_start(struct push_chunk *chunk, struct rpc_peer *peer)
{
    struct tern_push_consumer *consumer = chunk->queue->consumer;
    const struct tern_message *message = chunk->messages[0];
    struct rpc_call *call;
    size_t body_len, props_len;
    const void *body = message_stored_body(message, &body_len);
    uint8_t *props = copy_props(chunk, message_wire_topic(message), &props_len);
    if (!props)
        return TERN_NO_MEMORY;
    enum tern_code code = rpc_call_create(peer, body_len, &call);
    if (code != TERN_OK) {
        free(props);
        return code;
    }
    if (body_len > 0)
        memcpy(rpc_call_payload(call), body, body_len);
    int32_t most = consumer->options.max_reconsume_times;
    bool dead = chunk->delay_level < 0 || most == 0;
    Tern__Wire__SendRequest copy = TERN__WIRE__SEND_REQUEST__INIT;
    copy.producer_group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    copy.topic = frame_bytes(consumer->retry_topic, strlen(consumer->retry_topic));
    copy.queue_id = -1;
    copy.flag = tern_message_flag(message);
    copy.sys_flag = tern_message_sys_flag(message) & COMPRESSION_FLAGS;
    copy.born_ms = tern_message_born_ms(message);
    copy.properties.data = props;
    copy.properties.len = props_len;
    copy.reconsume_times = tries_of(chunk) + 1;
    copy.max_reconsume_times = most > 0 ? most : 0;
    if (dead) { /* beyond the least maximum there is */
        copy.max_reconsume_times = 1;
        copy.reconsume_times += copy.reconsume_times < 2;
    }
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &copy;
    chunk->copied = true;
    call->user = peer;
    rpc_call_start(call, &request, body_len, SEND_BACK_TIMEOUT_MS, on_sent_back, chunk);
    free(props);
    return TERN_OK;
}

/* TERN_OK: the chunk went to the callback. */
static enum tern_code send_back_start(struct push_chunk *chunk)
{
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = queue->consumer;
    const struct tern_message *message = chunk->messages[0];
    const struct broker_wish wish = {.master_only = true};
    struct broker_choice choice;
    struct rpc_call *call;
    enum tern_code code =
        broker_pick_cached(consumer->instance, &consumer->failed, &queue->id, &wish, &choice, NULL);
    if (code != TERN_OK)
        return code;
    code = rpc_call_create(choice.peer, 0, &call);
    if (code != TERN_OK) {
        rpc_peer_unref(choice.peer);
        return code;
    }
    const char *topic = message_wire_topic(message);
    const char *id = tern_message_offset_id(message);
    int32_t max_times = consumer->options.max_reconsume_times;
    Tern__Wire__SendBackRequest back = TERN__WIRE__SEND_BACK_REQUEST__INIT;
    back.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    back.physical_offset = tern_message_physical_offset(message);
    /* "None at all" has no number on the wire, where 0 is the group's: straight to the dead
     * letters. */
    back.delay_level = max_times == 0 ? PUSH_DEAD_LETTER_LEVEL : chunk->delay_level;
    back.max_reconsume_times = max_times > 0 ? max_times : 0;
    back.origin_topic = frame_bytes(topic, strlen(topic));
    back.origin_message_id = frame_bytes(id, strlen(id));
    back.reconsume_times = tries_of(chunk);
    back.store_ms = tern_message_store_ms(message);
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND_BACK;
    request.send_back = &back;
    chunk->copied = false;
    call->user = choice.peer; /* its reference */
    rpc_call_start(call, &request, 0, SEND_BACK_TIMEOUT_MS, on_sent_back, chunk);
    return TERN_OK;
}

void push_send_back(struct push_queue *queue, struct tern_message *message, int32_t delay_level)
{
    struct tern_push_consumer *consumer = queue->consumer;
    if (consumer->options.model == TERN_BROADCASTING) {
        push_broadcast_drop(queue, message);
        return;
    }
    if (atomic_load(&queue->dropped) || push_state(consumer) != PUSH_RUNNING) {
        push_let_go(queue, &message,
                    1); /* not marked: it comes again, to whoever owns the queue then */
        return;
    }
    struct push_chunk *chunk = push_chunk_create(queue, 1);
    if (!chunk) {
        log_error(consumer->env->log, "consumer_message_stuck",
                  "group=%s topic=%s broker=%s queue=%d offset=%lld reason=\"no memory\"",
                  consumer->options.group, queue->id.topic, queue->id.broker_name,
                  queue->id.queue_id, (long long)tern_message_queue_offset(message));
        push_let_go(queue, &message, 1);
        return;
    }
    chunk->messages[0] = message;
    push_send_back_chunk(chunk, delay_level);
}

void push_send_back_chunk(struct push_chunk *chunk, int32_t delay_level)
{
    chunk->delay_level = delay_level < 0 ? PUSH_DEAD_LETTER_LEVEL : delay_level;
    if (send_back_start(chunk) != TERN_OK)
        retry_here(chunk);
}

void push_send_again(struct push_chunk *chunk)
{
    if (atomic_load(&chunk->queue->dropped) || push_state(chunk->queue->consumer) != PUSH_RUNNING)
        push_chunk_unref(chunk);
    else if (send_back_start(chunk) != TERN_OK)
        retry_here(chunk);
}
