/* How events travel: in the memory of the request that is answered with them. */
#include <string.h>

#include "broker/events_internal.h"

/* One event in it. */
struct wire_event {
    Tern__Wire__Event event;
    Tern__Wire__OffsetResetEvent reset;
    Tern__Wire__CheckTransactionEvent check;
    Tern__Wire__ReplyEvent reply;
};

/* A copy in the request's memory. */
static bool put_name(struct rpc_request *request, const char *name, ProtobufCBinaryData *out)
{
    size_t len = strlen(name);
    uint8_t *copy = rpc_request_alloc(request, len + 1);
    if (!copy)
        return false;
    memcpy(copy, name, len + 1);
    *out = (ProtobufCBinaryData){.len = len, .data = copy};
    return true;
}

static bool put_check(struct rpc_request *request, struct wire_event *out,
                      const struct event *event)
{
    Tern__Wire__CheckTransactionEvent *check = &out->check;
    tern__wire__check_transaction_event__init(check);
    out->event.body_case = TERN__WIRE__EVENT__BODY_CHECK_TRANSACTION;
    out->event.check_transaction = check;
    check->half_queue_offset = event->half_off;
    check->half_physical_offset = event->phys_off;
    check->times = event->times;
    return put_name(request, event->group, &check->producer_group) &&
           put_name(request, event->second, &check->message_id);
}

static bool put_reply(struct rpc_request *request, struct wire_event *out,
                      const struct event *event)
{
    tern__wire__reply_event__init(&out->reply);
    out->event.body_case = TERN__WIRE__EVENT__BODY_REPLY;
    out->event.reply = &out->reply;
    out->reply.physical_offset = event->phys_off;
    return put_name(request, event->group, &out->reply.correlation_id);
}

bool event_put(struct rpc_request *request, struct event_answer *answer, const struct event *event,
               uint64_t number)
{
    struct wire_event *out = rpc_request_alloc(request, sizeof *out);
    if (!out)
        return false;
    tern__wire__event__init(&out->event);
    tern__wire__offset_reset_event__init(&out->reset);
    out->event.number = number;
    answer->body.events[answer->body.n_events++] = &out->event;
    if (!event) /* resync */
        return true;
    if (event->kind == EVENT_CHECK_TRANSACTION)
        return put_check(request, out, event);
    if (event->kind == EVENT_REPLY)
        return put_reply(request, out, event);
    if (event->kind == EVENT_MEMBERS_CHANGED) {
        out->event.body_case = TERN__WIRE__EVENT__BODY_MEMBERS_CHANGED;
        return put_name(request, event->group, &out->event.members_changed);
    }
    out->event.body_case = TERN__WIRE__EVENT__BODY_OFFSET_RESET;
    out->event.offset_reset = &out->reset;
    return put_name(request, event->group, &out->reset.group) &&
           put_name(request, event->second, &out->reset.topic);
}
