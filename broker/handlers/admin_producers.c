/*
 * Who produces: clients of producer groups, for mqadmin's producerConnection and producer.
 *
 * Threads: the asking lane's. Failure modes: an answer that does not fit is refused with what to
 * ask instead.
 */
#include <stdlib.h>

#include "broker/admin_lane.h"
#include "broker/handlers/checks.h"

/* One client for the wire; what `info` points to is borrowed. */
struct wire_producer {
    Tern__Wire__ProducerInfo producer;
    Tern__Wire__MemberInfo client;
    Tern__Wire__Address address;
};

static void fill_producer(struct wire_producer *out, const struct producer_info *info)
{
    tern__wire__producer_info__init(&out->producer);
    tern__wire__member_info__init(&out->client);
    tern__wire__address__init(&out->address);
    out->address.ip = frame_bytes((const char *)info->remote.ip, info->remote.v6 ? 16 : 4);
    out->address.port = info->remote.port;
    out->client.client_id = frame_bytes(info->client_id, strlen(info->client_id));
    out->client.address = &out->address;
    out->client.language = (char *)(uintptr_t)info->language;
    out->client.version = (char *)(uintptr_t)info->version;
    out->client.last_heartbeat_age_ms = info->heartbeat_age_ms;
    out->producer.group = frame_bytes(info->group, strlen(info->group));
    out->producer.client = &out->client;
}

static void answer_producers(struct broker *broker, struct rpc_request *request,
                             const struct producer_info *infos, size_t count)
{
    Tern__Wire__ProducerConnectionResponse body = TERN__WIRE__PRODUCER_CONNECTION_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct wire_producer *all = calloc(count + 1, sizeof *all);
    body.producers = calloc(count + 1, sizeof *body.producers);
    if (all && body.producers) {
        for (size_t i = 0; i < count; i++) {
            fill_producer(&all[i], &infos[i]);
            body.producers[i] = &all[i].producer;
        }
        body.n_producers = count;
        response.body_case = TERN__WIRE__RESPONSE__BODY_PRODUCER_CONNECTION;
        response.producer_connection = &body;
        reply_bounded(broker, request, &response, "name a group");
    } else {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for %zu producers", count);
    }
    free(body.producers);
    free(all);
}

/* @thread lane */
static void run_producer_connection(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__ProducerConnectionRequest *wanted = request->header->producer_connection;
    struct tern_error err = {.text = ""};
    struct producer_info *infos = NULL;
    const char *group = NULL;
    size_t count = 0;
    enum tern_code code = TERN_OK;
    if (wanted->group.len)
        code = take_group(request, &wanted->group, &group, &err);
    if (!code)
        code = members_producers(broker->members, group, &infos, &count);
    if (!code && group && count == 0)
        code = error_set(&err, TERN_QUERY_NOT_FOUND, "producer group %s has no client on %s", group,
                         broker->config.broker_name);
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        answer_producers(broker, request, infos, count);
    free(infos);
}

void handle_producer_connection(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_producer_connection);
}
