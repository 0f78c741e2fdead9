/*
 * Asking a broker who is in the group.
 *
 * All members must see the same lists to come to the same sharing, so all ask the same broker set:
 * the first of the route (sorted by name), at its master if that can be reached, else at a slave,
 * which hears every heartbeat, too. A broker that came back knows only the members that have found
 * it already; so for some seconds one that was connected all the time is asked instead, or
 * everybody who came early would take the queues of those who come late.
 *
 * Threads: asked by the control task; the answer is copied on a link thread and left with the
 * topic. Failure modes: an address that is away or cannot tell is avoided for a while; a set
 * without any good address leaves the question to the next set.
 */
#include "client/push_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 65536 };

void push_note_declined(struct tern_push_consumer *consumer, const struct rpc_peer *peer,
                        enum tern_code code)
{
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    if (code_means_unreachable(code))
        failed_addresses_note(&consumer->declined, rpc_peer_address(peer), code, now_ns);
    else if (code_means_elsewhere(code))
        failed_addresses_decline(&consumer->declined, rpc_peer_address(peer),
                                 now_ns + ms_to_ns(REFUSED_MS));
}

/* ---- asking for the members ---- */

/* One request under way; holds the consumer. */
struct members_op {
    struct push_topic *topic; /* lives as long as the consumer */
    struct rpc_peer *peer;
};

static struct push_members *copy_members(const Tern__Wire__MembersResponse *body)
{
    if (body->n_client_ids == 0 || body->n_client_ids > MEMBERS_MAX)
        return NULL;
    size_t text = 0;
    for (size_t i = 0; i < body->n_client_ids; i++)
        text += body->client_ids[i].len + 1;
    struct push_members *members =
        malloc(sizeof *members + body->n_client_ids * sizeof members->ids[0] + text);
    if (!members)
        return NULL;
    members->count = body->n_client_ids;
    char *at = (char *)&members->ids[members->count];
    for (size_t i = 0; i < members->count; i++) {
        members->ids[i] = at;
        memcpy(at, body->client_ids[i].data, body->client_ids[i].len);
        at[body->client_ids[i].len] = '\0';
        at += body->client_ids[i].len + 1;
    }
    return members;
}

/* @thread link's */
static void on_members(struct rpc_call *call, void *arg)
{
    struct members_op *op = arg;
    struct push_topic *topic = op->topic;
    struct tern_push_consumer *consumer = topic->consumer;
    enum tern_code code = rpc_call_result(call);
    struct push_members *members = NULL;
    if (code == TERN_OK && call->response->body_case == TERN__WIRE__RESPONSE__BODY_MEMBERS)
        members = copy_members(call->response->members);
    else
        log_warn(consumer->env->log, "consumer_members_unknown",
                 "group=%s topic=%s address=%s code=%s reason=\"%s\"", consumer->options.group,
                 topic->name, rpc_peer_address(op->peer), tern_code_name(code),
                 error_text(&call->error, code));
    push_note_declined(consumer, op->peer, code);
    lock_acquire(&consumer->lock);
    topic->asking = false;
    topic->answered = true;
    topic->elsewhere = code_means_elsewhere(code);
    topic->answer = members;
    lock_release(&consumer->lock);
    rpc_peer_unref(op->peer);
    free(op);
    rpc_call_unref(call);
    push_wake(consumer);
    push_unref(consumer);
}

/* An address of the first set that has a good one, in the topic's turn; else of the first set. */
static enum tern_code pick_members_broker(struct push_topic *topic, const struct route *route,
                                          struct broker_choice *out, struct tern_error *err)
{
    struct tern_push_consumer *consumer = topic->consumer;
    const struct broker_wish wish = {.settled = true};
    enum tern_code code = TERN_UNREACHABLE;
    *out = (struct broker_choice){.peer = NULL};
    for (size_t i = 0; i < route->broker_count && !out->good; i++) {
        const char *name = route->brokers[(topic->next_broker + i) % route->broker_count].name;
        struct broker_choice choice;
        code = broker_pick(consumer->instance, &consumer->declined, route, name, &wish, &choice,
                           out->peer ? NULL : err);
        if (code != TERN_OK)
            continue;
        struct rpc_peer *other = out->peer;
        if (!out->peer || choice.good) {
            *out = choice;
        } else {
            other = choice.peer;
        }
        if (other)
            rpc_peer_unref(other);
    }
    return out->peer ? TERN_OK : code;
}

enum tern_code push_members_ask(struct push_topic *topic, const struct route *route,
                                struct tern_error *err)
{
    struct tern_push_consumer *consumer = topic->consumer;
    struct broker_choice choice;
    enum tern_code code = pick_members_broker(topic, route, &choice, err);
    if (code != TERN_OK)
        return code;
    struct rpc_call *call;
    struct members_op *op = malloc(sizeof *op);
    code = op ? rpc_call_create(choice.peer, 0, &call) : TERN_NO_MEMORY;
    if (code != TERN_OK) {
        free(op);
        rpc_peer_unref(choice.peer);
        return error_set(err, code, "members of group %s", consumer->options.group);
    }
    *op = (struct members_op){.topic = topic, .peer = choice.peer};
    lock_acquire(&consumer->lock);
    topic->asking = true;
    lock_release(&consumer->lock);
    push_ref(consumer);
    Tern__Wire__MembersRequest members = TERN__WIRE__MEMBERS_REQUEST__INIT;
    members.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_MEMBERS;
    request.members = &members;
    rpc_call_start(call, &request, 0, RPC_TIMEOUT_MS, on_members, op);
    return TERN_OK;
}
