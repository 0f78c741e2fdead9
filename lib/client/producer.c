/*
 * A producer's life.
 *
 *   created ──start──► running ──shutdown──► shut down
 *      └──── start failed (group in use)         └── only destroy is left
 *
 * Invariants: sends are made only while running; shutdown returns when every send has ended and
 * called back, so that destroy finds nobody inside. Every send has a deadline, hence shutdown ends.
 *
 * Threads: start, shutdown and destroy by one thread at a time, not in callbacks. Failure modes: a
 * group that the client instance has already gives TERN_EXISTS.
 */
#include "client/producer_internal.h"

#include <stdlib.h>

static enum tern_code make_trace(struct tern_producer *producer, struct tern_error *err)
{
    const struct trace_options options = {.producer = &producer->options,
                                          .instance = producer->instance,
                                          .topic = producer->options.trace_topic};
    return producer->options.trace ? trace_create(&options, &producer->trace, err) : TERN_OK;
}

enum tern_code tern_producer_create(const struct tern_producer_options *options,
                                    struct tern_producer **out, struct tern_error *err)
{
    *out = NULL;
    if (!options)
        return error_set(err, TERN_INVALID, "options is NULL");
    struct tern_producer *producer = calloc(1, sizeof *producer);
    if (!producer)
        return error_set(err, TERN_NO_MEMORY, "producer");
    producer->options = *options;
    enum tern_code code =
        namespace_wrap(options->ns, options->group, GROUP_NAME_MAX, producer->options.group, err);
    if (code != TERN_OK) {
        free(producer);
        return code;
    }
    struct instance_options wanted = {
        .namesrv = options->namesrv,
        .instance_name = options->instance_name,
        .max_message_bytes = options->max_message_bytes,
        .env = options->env,
        .link = options->link,
    };
    code = instance_get(&wanted, &producer->instance, err);
    if (code != TERN_OK) {
        free(producer);
        return code;
    }
    producer->env = instance_env(producer->instance);
    code = make_trace(producer, err);
    if (code != TERN_OK) {
        instance_unref(producer->instance);
        free(producer);
        return code;
    }
    lock_init(&producer->lock, LOCK_PRODUCER);
    *out = producer;
    return TERN_OK;
}

static enum producer_state state_of(struct tern_producer *producer)
{
    lock_acquire(&producer->lock);
    enum producer_state state = producer->state;
    lock_release(&producer->lock);
    return state;
}

static void set_state(struct tern_producer *producer, enum producer_state state)
{
    lock_acquire(&producer->lock);
    producer->state = state;
    lock_release(&producer->lock);
}

enum tern_code tern_producer_start(struct tern_producer *producer, struct tern_error *err)
{
    enum tern_code code = producer_may_wait("start", err);
    if (code != TERN_OK)
        return code;
    enum producer_state state = state_of(producer);
    if (state != PRODUCER_CREATED)
        return producer_wrong_state(state, "start", err);
    code = instance_add_producer(producer->instance, producer->options.group, err);
    if (code == TERN_OK) {
        code = instance_start(producer->instance, err);
        if (code == TERN_OK && producer->trace)
            code = trace_start(producer->trace, err);
        if (code != TERN_OK)
            instance_remove_producer(producer->instance, producer->options.group);
    }
    set_state(producer, code == TERN_OK ? PRODUCER_RUNNING : PRODUCER_START_FAILED);
    return code;
}

/* Waits until no send is out of the pool; each ends by its own deadline. */
static void drain(struct tern_producer *producer)
{
    struct latch drained;
    latch_init(&drained);
    lock_acquire(&producer->lock);
    bool wait = producer->sends > 0;
    producer->drained = wait ? &drained : NULL;
    lock_release(&producer->lock);
    if (wait) {
        bool set = latch_wait(producer->env->sched, &drained, SCHED_NEVER);
        ENSURE(set);
    }
}

void tern_producer_shutdown(struct tern_producer *producer)
{
    ENSURE(!producer_in_callback());
    lock_acquire(&producer->lock);
    bool was_running = producer->state == PRODUCER_RUNNING;
    if (was_running || producer->state == PRODUCER_CREATED)
        producer->state = PRODUCER_SHUT_DOWN;
    lock_release(&producer->lock);
    if (!was_running)
        return;
    requests_cancel(producer->instance, producer);
    drain(producer);
    trace_stop(producer->trace);
    instance_remove_producer(producer->instance, producer->options.group);
}

void tern_producer_destroy(struct tern_producer *producer)
{
    if (!producer)
        return;
    tern_producer_shutdown(producer);
    trace_destroy(producer->trace);
    producer_tables_fini(producer);
    while (producer->pool) {
        struct send *next = producer->pool->next;
        free(producer->pool);
        producer->pool = next;
    }
    instance_unref(producer->instance);
    lock_fini(&producer->lock);
    free(producer);
}
