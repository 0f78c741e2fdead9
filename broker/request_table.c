/* The rows, and the one way from a request to its handler. */
#include "broker/request_table.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "broker/broker_internal.h"
#include "broker/handlers/handlers.h"

#define ROW(case_, field, text)                                                                    \
    {                                                                                              \
        TERN__WIRE__REQUEST__BODY_##case_, #field, handle_##field, text                            \
    }

static const struct request_row rows[] = {
    ROW(SEND, send, "store one message given in plain fields"),
    ROW(SEND_RECORDS, send_records, "store messages prepared as records"),
    ROW(END_TRANSACTION, end_transaction,
        "the outcome of a transaction whose half message is stored"),
    ROW(LIST_TRANSACTIONS, list_transactions, "transactions that are pending, or were given up"),
    ROW(RESUME_TRANSACTION, resume_transaction,
        "a transaction that was given up is taken up again"),
    ROW(CANCEL_DELAYED, cancel_delayed, "take a delayed message back"),
    ROW(SEND_BACK, send_back, "a message that a consumer could not process"),
    ROW(PULL, pull, "read messages of a queue, waiting for new ones"),
    ROW(QUERY_OFFSET, query_offset, "a group's progress in a queue"),
    ROW(COMMIT_OFFSET, commit_offset, "store a group's progress"),
    ROW(QUEUE_RANGE, queue_range, "first and next offset of a queue"),
    ROW(SEARCH_OFFSET, search_offset, "offset by store time"),
    ROW(RESET_OFFSET, reset_offset, "set a group's progress explicitly"),
    ROW(HEARTBEAT, heartbeat, "a client is there, with its groups and subscriptions"),
    ROW(UNREGISTER_CLIENT, unregister_client, "a client leaves its groups"),
    ROW(MEMBERS, members, "client ids of a group's members"),
    ROW(WAIT_EVENTS, wait_events, "events for a client, waiting for the next"),
    ROW(CHECK_SUBSCRIPTION, check_subscription, "does an expression parse"),
    ROW(LOCK_QUEUES, lock_queues, "lease queues to one orderly consumer"),
    ROW(UNLOCK_QUEUES, unlock_queues, "give leased queues back"),
    ROW(VIEW_MESSAGE, view_message, "a message by physical offset"),
    ROW(QUERY_MESSAGE, query_message, "messages by key"),
    ROW(UPDATE_TOPIC, update_topic, "create or change a topic"),
    ROW(DELETE_TOPIC, delete_topic, "delete a topic"),
    ROW(LIST_TOPICS, list_topics, "the topic table"),
    ROW(TOPIC_STATS, topic_stats, "offsets of a topic's queues"),
    ROW(UPDATE_GROUP, update_group, "create or change a subscription group"),
    ROW(DELETE_GROUP, delete_group, "delete a subscription group"),
    ROW(LIST_GROUPS, list_groups, "the group table"),
    ROW(CONSUME_STATS, consume_stats, "progress of groups against their queues"),
    ROW(CONSUMER_CONNECTION, consumer_connection, "members of a group and their subscriptions"),
    ROW(BROKER_STATUS, broker_status, "runtime figures"),
    ROW(BROKER_CONFIG, broker_config, "effective configuration"),
    ROW(UPDATE_BROKER_CONFIG, update_broker_config, "change live keys until the restart"),
    ROW(PRODUCER_CONNECTION, producer_connection, "clients of producer groups"),
    ROW(CLONE_OFFSETS, clone_offsets, "give one group the progress of another"),
    ROW(CLEAN, clean, "look now for what has expired or is not used"),
    ROW(READ_QUEUE, read_queue, "units of a consume queue"),
    ROW(HA_STATUS, ha_status, "replication: positions, epochs, who is in sync"),
    ROW(FORCE_OPEN, force_open, "a recovering master opens without the members that are missing"),
    ROW(REJOIN, rejoin, "a detached slave starts afresh"),
};

_Static_assert(sizeof rows / sizeof rows[0] <= REQUEST_KINDS, "REQUEST_KINDS is too small");

size_t request_table(const struct request_row **out)
{
    *out = rows;
    return sizeof rows / sizeof rows[0];
}

int request_table_find(Tern__Wire__Request__BodyCase body)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].body == body)
            return (int)i;
    return -1;
}

/* Somebody takes this broker for a nameserver, or is newer than it is. */
static void refuse_unknown(struct broker *broker, struct rpc_request *request)
{
    int body = (int)request->header->body_case;
    bool namesrvs = body >= TERN__WIRE__REQUEST__BODY_REGISTER_BROKER &&
                    body <= TERN__WIRE__REQUEST__BODY_DELETE_TOPIC_ROUTE;
    if (namesrvs)
        rpc_reply_error(request, TERN_NOT_SUPPORTED,
                        "this is broker %s, no nameserver: -n and namesrvAddr want the addresses "
                        "of nameservers, a broker's goes with -b",
                        broker->config.broker_name);
    else
        rpc_reply_error(request, TERN_NOT_SUPPORTED,
                        "request %d is not served by broker %s of this version", body,
                        broker->config.broker_name);
}

void request_dispatch(void *arg, struct rpc_request *request)
{
    struct broker *broker = arg;
    int row = request_table_find(request->header->body_case);
    if (row < 0) {
        refuse_unknown(broker, request);
        return;
    }
    if (atomic_load_explicit(&broker->stopping, memory_order_relaxed)) {
        rpc_reply_error(request, TERN_SERVICE_NOT_AVAILABLE, "broker %s is stopping",
                        broker->config.broker_name);
        return;
    }
    struct request_stats *stats = &broker->request_stats[row];
    int64_t begin_ns = request->received_ns;
    counter_add(&stats->count, 1);
    rows[row].handler(broker, request);
    histogram_add(stats->latency_ns, clock_mono_ns(broker->env.clock) - begin_ns);
}
