/*
 * Events from brokers: who joined or left a group, whose offset was reset, what became of a
 * transaction, which request was replied to. A broker cannot call a client, so the client parks a
 * WaitEvents at each of its brokers and the broker answers when there is something.
 *
 *   WaitEvents(session, seen) ──► parked … answered: events seen+1 … n ──► noted, seen = n, again
 *
 * Events are numbered; what was not acknowledged comes again. Another session number means that the
 * broker was restarted and counts anew; then, and when the broker says "resync" since it had to
 * drop some, every group is rebalanced, which reads all there is to know.
 *
 * Invariant: at most one WaitEvents per address is under way.
 *
 * Threads: started by the instance's task; answers on link threads only mark consumers, the task
 * calls them. Failure modes: a park that fails is repeated after a second, or when the connection
 * comes back.
 */
#include "client/instance_internal.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS_ANSWER_MS = 5000 };

/* @locks holds:CLIENT */
static void note_check(struct instance *instance, struct broker_link *link,
                       const Tern__Wire__CheckTransactionEvent *check)
{
    bool taken = false;
    for (struct instance_checker *c = instance->checkers; c; c = c->next)
        if (strlen(c->group) == check->producer_group.len &&
            !memcmp(c->group, check->producer_group.data, check->producer_group.len))
            taken |= c->on_check(c->arg, link->peer, check);
    if (!taken && link->not_asked_count < CHECKS_NOT_ASKED_MAX)
        link->not_asked[link->not_asked_count++] = check->half_queue_offset;
}

/* @locks holds:CLIENT */
static void note_event(struct instance *instance, struct broker_link *link,
                       const Tern__Wire__Event *event, struct request **replied)
{
    if (event->number <= link->events_seen)
        return; /* sent again because an acknowledgement was lost */
    link->events_seen = event->number;
    if (event->body_case == TERN__WIRE__EVENT__BODY_CHECK_TRANSACTION && event->check_transaction)
        note_check(instance, link, event->check_transaction);
    if (event->body_case == TERN__WIRE__EVENT__BODY_REPLY && event->reply)
        requests_note_reply(instance, event->reply, replied);
    const ProtobufCBinaryData *group = NULL;
    if (event->body_case == TERN__WIRE__EVENT__BODY_MEMBERS_CHANGED)
        group = &event->members_changed;
    else if (event->body_case == TERN__WIRE__EVENT__BODY_OFFSET_RESET && event->offset_reset)
        group = &event->offset_reset->group;
    if (group)
        instance_rebalance_due(instance, group->data, group->len);
}

/* @locks holds:CLIENT */
static void note_answer(struct instance *instance, struct broker_link *link,
                        const Tern__Wire__WaitEventsResponse *answer, struct request **replied)
{
    bool restarted = answer->session != link->events_session;
    bool first = link->events_session == 0;
    if (restarted) {
        link->events_session = answer->session;
        link->events_seen = 0;
    }
    for (size_t i = 0; i < answer->n_events; i++)
        note_event(instance, link, answer->events[i], replied);
    if (answer->resync || (restarted && !first))
        instance_rebalance_due(instance, NULL, 0);
}

/* @thread link's */
static void wait_answered(struct rpc_call *call, void *arg)
{
    struct broker_link *link = arg;
    struct instance *instance = link->instance;
    struct request *replied = NULL;
    enum tern_code code = rpc_call_result(call);
    lock_acquire(&instance->lock);
    int64_t now_ns = instance_now(instance);
    link->waiting = false;
    if (code == TERN_OK && call->response->body_case == TERN__WIRE__RESPONSE__BODY_WAIT_EVENTS) {
        note_answer(instance, link, call->response->wait_events, &replied);
        link->events_due_ns = now_ns;
    } else if (link->events_due_ns > now_ns || link->events_due_ns == 0) {
        /* 0: the connection came back while the old call was still ending. */
        link->events_due_ns = link->events_due_ns == 0 ? now_ns : link->events_due_ns;
    } else {
        link->events_due_ns = now_ns + ms_to_ns(EVENTS_RETRY_MS);
    }
    instance_step_by(instance, link->events_due_ns);
    lock_release(&instance->lock);
    rpc_call_unref(call);
    requests_fetch(instance, link, replied);
    broker_link_unref(link);
}

/* What a park says. */
struct wait_words {
    uint64_t session, seen;
    int64_t not_asked[CHECKS_NOT_ASKED_MAX];
    uint32_t not_asked_count;
};

/* Takes the reference to link in every case. @locks none */
static void park(struct instance *instance, struct broker_link *link, struct wait_words *words)
{
    struct rpc_call *call;
    if (rpc_call_create(link->peer, 0, &call) != TERN_OK) {
        lock_acquire(&instance->lock);
        link->waiting = false;
        link->events_due_ns = instance_now(instance) + ms_to_ns(EVENTS_RETRY_MS);
        lock_release(&instance->lock);
        broker_link_unref(link);
        return;
    }
    Tern__Wire__WaitEventsRequest wait = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
    wait.session = words->session;
    wait.acknowledged = words->seen;
    wait.checks_not_asked = words->not_asked;
    wait.n_checks_not_asked = words->not_asked_count;
    wait.suspend_timeout_ms = EVENTS_SUSPEND_MS;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_WAIT_EVENTS;
    request.wait_events = &wait;
    rpc_call_start(call, &request, 0, EVENTS_SUSPEND_MS + EVENTS_ANSWER_MS, wait_answered, link);
}

/* The next link where a park is due, marked as waiting; NULL: none. @locks takes:CLIENT */
static struct broker_link *take_due(struct instance *instance, int64_t now_ns,
                                    struct wait_words *words, int64_t *next_ns)
{
    struct broker_link *link;
    struct broker_link *next;
    struct broker_link *due = NULL;
    *next_ns = SCHED_NEVER;
    lock_acquire(&instance->lock);
    HASH_ITER (hh, instance->brokers, link, next) {
        if ((!instance->consumers && !instance->checkers && !instance->requests.listening) ||
            link->waiting)
            continue;
        if (link->events_due_ns > now_ns) {
            if (link->events_due_ns < *next_ns)
                *next_ns = link->events_due_ns;
            continue;
        }
        link->waiting = true;
        link->events_due_ns = now_ns;
        words->session = link->events_session;
        words->seen = link->events_seen;
        words->not_asked_count = link->not_asked_count;
        memcpy(words->not_asked, link->not_asked, sizeof words->not_asked);
        link->not_asked_count = 0; /* should the call be lost, the broker counts them */
        due = broker_link_ref(link);
        break;
    }
    lock_release(&instance->lock);
    return due;
}

int64_t client_events_step(struct instance *instance, int64_t now_ns)
{
    struct wait_words words;
    int64_t next_ns;
    struct broker_link *link;
    while ((link = take_due(instance, now_ns, &words, &next_ns)))
        park(instance, link, &words);
    return next_ns;
}
