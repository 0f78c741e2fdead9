/*
 * A transaction producer: a producer for its half messages, a listener for its local transactions,
 * tasks for checks.
 *
 * A transaction holds its producer from the half message until its outcome was told, so that a
 * shutdown waits for the local transaction, too.
 *
 * Threads: start, shutdown and destroy one at a time; sends any. Failure modes: the half message is
 * refused: nothing was run; its outcome cannot be told: it is remembered, and the broker asks.
 */
#include <stdlib.h>
#include <string.h>

#include "client/transaction_internal.h"

/* ---- life ---- */

enum tern_code tern_transaction_producer_create(const struct tern_producer_options *options,
                                                const struct tern_transaction_listener *listener,
                                                struct tern_transaction_producer **out,
                                                struct tern_error *err)
{
    *out = NULL;
    if (!listener || !listener->execute || !listener->check)
        return error_set(err, TERN_INVALID, "a transaction listener needs both execute and check");
    struct tern_transaction_producer *own = calloc(1, sizeof *own);
    if (!own)
        return error_set(err, TERN_NO_MEMORY, "transaction producer");
    enum tern_code code = tern_producer_create(options, &own->producer, err);
    if (code != TERN_OK) {
        free(own);
        return code;
    }
    own->env = own->producer->env;
    own->instance = own->producer->instance;
    own->listener = *listener;
    own->check_threads = 1;
    own->checks_end = &own->checks;
    own->checker = (struct instance_checker){
        .group = own->producer->options.group, .on_check = transaction_on_check, .arg = own};
    lock_init(&own->lock, LOCK_TRANSACTION);
    *out = own;
    return TERN_OK;
}

enum tern_code tern_transaction_producer_check_threads(struct tern_transaction_producer *producer,
                                                       int threads)
{
    if (producer->started)
        return TERN_STATE;
    if (threads < 1 || threads > CHECK_THREADS_MAX)
        return TERN_INVALID;
    producer->check_threads = threads;
    return TERN_OK;
}

enum tern_code tern_transaction_producer_listen(struct tern_transaction_producer *producer,
                                                const char *topic, struct tern_error *err)
{
    if (producer->started)
        return error_set(err, TERN_STATE, "listen: the producer has been started");
    enum tern_code code = topic ? topic_name_check(topic, strnlen(topic, TOPIC_NAME_MAX + 1), err)
                                : error_set(err, TERN_INVALID, "topic is NULL");
    if (code != TERN_OK)
        return code;
    if (producer->topic_count == LISTEN_TOPICS_MAX)
        return error_set(err, TERN_LIMIT, "more than %d topics to listen to",
                         (int)LISTEN_TOPICS_MAX);
    char name[TOPIC_NAME_MAX + 1];
    code = namespace_wrap(producer->producer->options.ns, topic, TOPIC_NAME_MAX, name, err);
    if (code != TERN_OK)
        return code;
    char *copy = strdup(name);
    if (!copy)
        return error_set(err, TERN_NO_MEMORY, "topic %s", topic);
    producer->topics[producer->topic_count++] = copy;
    return TERN_OK;
}

enum tern_code tern_transaction_producer_start(struct tern_transaction_producer *producer,
                                               struct tern_error *err)
{
    /* Before the first heartbeat, which says that this member answers checks. */
    bool add = !producer->started;
    if (add)
        instance_add_checker(producer->instance, &producer->checker);
    enum tern_code code = tern_producer_start(producer->producer, err);
    if (code == TERN_OK) {
        code = checks_start(producer, err);
        if (code != TERN_OK)
            tern_producer_shutdown(producer->producer);
    }
    if (code != TERN_OK && add)
        instance_remove_checker(producer->instance, &producer->checker);
    producer->started = producer->started || code == TERN_OK;
    return code;
}

void tern_transaction_producer_shutdown(struct tern_transaction_producer *producer)
{
    if (producer->started) {
        instance_remove_checker(producer->instance, &producer->checker);
        checks_stop(producer);
    }
    tern_producer_shutdown(producer->producer);
}

void tern_transaction_producer_destroy(struct tern_transaction_producer *producer)
{
    if (!producer)
        return;
    tern_transaction_producer_shutdown(producer);
    tern_producer_destroy(producer->producer);
    known_fini(producer);
    for (size_t i = 0; i < producer->topic_count; i++)
        free(producer->topics[i]);
    lock_fini(&producer->lock);
    free(producer);
}

void tern_transaction_producer_stats(struct tern_transaction_producer *producer,
                                     struct tern_transaction_stats *stats)
{
    stats->committed = counter_get(&producer->committed);
    stats->rolled_back = counter_get(&producer->rolled_back);
    stats->unknown = counter_get(&producer->unknown);
    stats->checks = counter_get(&producer->answered);
    stats->remembered = counter_get(&producer->remembered);
    stats->checks_dropped = counter_get(&producer->dropped);
    lock_acquire(&producer->lock);
    stats->untold = producer->untold_count;
    lock_release(&producer->lock);
}

/* ---- sending ---- */

/* Whether the half message is as safe as one needs to run the local transaction. */
static bool may_execute(enum tern_code status)
{
    return status == TERN_OK || status == TERN_SLAVE_NOT_AVAILABLE;
}

static void decide(struct tern_transaction_producer *producer, const struct tern_message *message,
                   void *send_arg, struct tern_transaction_result *result)
{
    result->executed = may_execute(result->send.status);
    result->outcome = TERN_TRANSACTION_ROLLBACK;
    if (result->executed)
        result->outcome = producer->listener.execute(producer->listener.arg, message, send_arg);
    if (result->outcome == TERN_TRANSACTION_COMMIT) {
        counter_add(&producer->committed, 1);
    } else if (result->outcome == TERN_TRANSACTION_ROLLBACK) {
        counter_add(&producer->rolled_back, 1);
    } else {
        result->outcome = TERN_TRANSACTION_UNKNOWN;
        counter_add(&producer->unknown, 1);
    }
}

static bool broker_knows(enum tern_code told)
{
    return told == TERN_OK || told == TERN_FLUSH_DISK_TIMEOUT || told == TERN_FLUSH_SLAVE_TIMEOUT ||
           told == TERN_SLAVE_NOT_AVAILABLE || told == TERN_TRANSACTION_FAILED;
}

/* Tells what was decided; what could not be told is remembered for the check that will come. */
static void tell(struct tern_transaction_producer *producer, const struct tern_message *message,
                 struct tern_transaction_result *result)
{
    const char *id = tern_message_id(message);
    struct tern_error err = {.text = ""};
    struct host host;
    struct end_told told = {
        .half_off = result->send.queue_offset, .id = id, .outcome = result->outcome};
    result->told = TERN_STATE;
    if (result->outcome == TERN_TRANSACTION_UNKNOWN) {
        known_forget(producer, id);
        return;
    }
    known_decided(producer, id, result->outcome);
    struct tern_queue queue = result->send.queue;
    result->told = message_id_parse(result->send.offset_id, &host, &told.phys_off);
    if (result->told == TERN_OK)
        result->told =
            namespace_wrap(message_topic_is_absolute(message) ? "" : producer->producer->options.ns,
                           result->send.queue.topic, TOPIC_NAME_MAX, queue.topic, &err);
    if (result->told == TERN_OK) {
        int64_t deadline_ns = clock_mono_ns(producer->env->clock) +
                              ms_to_ns(producer->producer->options.send_timeout_ms);
        result->told = transaction_tell(producer, NULL, &queue, &told, deadline_ns, &err);
    }
    if (broker_knows(result->told))
        known_forget(producer, id);
    if (result->told != TERN_OK)
        log_warn(producer->env->log, "transaction_outcome_told",
                 "group=%s id=%s half=%lld code=%s cause=\"%s\"", producer->producer->options.group,
                 id, (long long)told.half_off, tern_code_name(result->told), err.text);
}

/* The producer is held, the message has its id. */
static enum tern_code run_transaction(struct tern_transaction_producer *producer,
                                      struct tern_message *message, void *send_arg,
                                      struct tern_transaction_result *result,
                                      struct tern_error *err)
{
    const char *id = tern_message_id(message);
    if (!known_begin(producer, id))
        return error_set(err, TERN_NO_MEMORY, "transaction of message %s", id);
    enum tern_code code = message_mark_half(message, producer->producer->options.group, err);
    if (code == TERN_OK) {
        code = tern_producer_send(producer->producer, message, &result->send, err);
        message_unmark_half(message);
    }
    if (code != TERN_OK) {
        known_forget(producer, id);
        return code;
    }
    decide(producer, message, send_arg, result);
    tell(producer, message, result);
    return TERN_OK;
}

enum tern_code tern_transaction_producer_send(struct tern_transaction_producer *producer,
                                              struct tern_message *message, void *send_arg,
                                              struct tern_transaction_result *result,
                                              struct tern_error *err)
{
    struct tern_transaction_result unwanted;
    if (!result)
        result = &unwanted;
    memset(result, 0, sizeof *result);
    if (!message || message_is_received(message))
        return error_set(err, TERN_INVALID, "message is NULL, or was received");
    if (message_is_delayed(message))
        return error_set(err, TERN_INVALID, "a transactional message may not be delayed");
    enum tern_code code = producer_may_wait("a transactional send", err);
    if (code == TERN_OK)
        code = producer_hold(producer->producer, "a transactional send", err);
    if (code != TERN_OK)
        return code;
    message_ensure_id(message, producer->env);
    code = run_transaction(producer, message, send_arg, result, err);
    producer_let_go(producer->producer);
    return code;
}
