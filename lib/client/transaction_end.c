/*
 * Telling an outcome: to the broker set that stored the half message, wherever its master is by
 * now, again while that may help.
 *
 * Threads: any that may wait. Failure modes: what the broker refuses for good ends it; everything
 * else is repeated until the deadline, and then left to a check.
 */
#include "client/transaction_internal.h"

#include <string.h>

enum { FIRST_PAUSE_MS = 20, PAUSE_MAX_MS = 500 };

/* The master's peer by what the route says now. */
static enum tern_code find_peer(struct tern_transaction_producer *producer,
                                const struct tern_queue *queue, struct rpc_peer **out,
                                struct tern_error *err)
{
    struct route *route = instance_route_cached(producer->instance, queue->topic);
    const struct route_broker *broker = route ? route_find_broker(route, queue->broker_name) : NULL;
    int64_t actual;
    const char *address = broker ? route_broker_address(broker, 0, false, &actual) : NULL;
    enum tern_code code = address ? instance_peer(producer->instance, address, out, err)
                                  : error_set(err, TERN_UNREACHABLE, "broker %s has no master now",
                                              queue->broker_name);
    route_unref(route);
    return code;
}

static enum tern_code tell_once(struct tern_transaction_producer *producer, struct rpc_peer *peer,
                                const struct end_told *told, int64_t left_ms,
                                struct tern_error *err)
{
    const char *group = producer->producer->options.group;
    Tern__Wire__EndTransactionRequest end = TERN__WIRE__END_TRANSACTION_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    end.producer_group = frame_bytes(group, strlen(group));
    end.half_queue_offset = told->half_off;
    end.half_physical_offset = told->phys_off;
    end.outcome = told->outcome == TERN_TRANSACTION_COMMIT
                      ? TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_COMMIT
                      : TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_ROLLBACK;
    end.from_check = told->from_check;
    end.message_id = frame_bytes(told->id, strlen(told->id));
    request.body_case = TERN__WIRE__REQUEST__BODY_END_TRANSACTION;
    request.end_transaction = &end;
    return rpc_call_wait(peer, &request, NULL, 0, left_ms, NULL, err);
}

static bool known_to_broker(enum tern_code code)
{
    return code == TERN_OK || code == TERN_FLUSH_DISK_TIMEOUT || code == TERN_FLUSH_SLAVE_TIMEOUT ||
           code == TERN_SLAVE_NOT_AVAILABLE;
}

static void pause_for(struct tern_transaction_producer *producer, int64_t until_ns)
{
    struct latch never;
    latch_init(&never);
    (void)!latch_wait(producer->env->sched, &never, until_ns);
}

static void trace_told(struct tern_transaction_producer *producer, const char *address,
                       const struct tern_queue *queue, const struct end_told *told)
{
    producer_trace_end_transaction(producer->producer, queue ? queue->topic : "", told->id, address,
                                   told->outcome == TERN_TRANSACTION_COMMIT ? "COMMIT_MESSAGE"
                                                                            : "ROLLBACK_MESSAGE",
                                   told->from_check);
}

enum tern_code transaction_tell(struct tern_transaction_producer *producer, struct rpc_peer *peer,
                                const struct tern_queue *queue, const struct end_told *told,
                                int64_t deadline_ns, struct tern_error *err)
{
    int64_t pause_ms = FIRST_PAUSE_MS;
    for (;;) {
        struct rpc_peer *found = peer ? rpc_peer_ref(peer) : NULL;
        int64_t now_ns = clock_mono_ns(producer->env->clock);
        int64_t left_ms = (deadline_ns - now_ns + 999999) / 1000000;
        enum tern_code code = found ? TERN_OK : find_peer(producer, queue, &found, err);
        if (code == TERN_OK) {
            code = tell_once(producer, found, told, left_ms > 0 ? left_ms : 1, err);
            if (known_to_broker(code))
                trace_told(producer, rpc_peer_address(found), queue, told);
            rpc_peer_unref(found);
        }
        if (known_to_broker(code) || !tern_code_retriable(code))
            return code;
        if (queue)
            instance_route_refresh(producer->instance, queue->topic);
        now_ns = clock_mono_ns(producer->env->clock);
        if (now_ns + ms_to_ns(pause_ms) >= deadline_ns)
            return code;
        pause_for(producer, now_ns + ms_to_ns(pause_ms));
        pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS;
    }
}
