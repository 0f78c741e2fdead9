/*
 * The events of one client that it has not acknowledged, in the order of their numbers.
 *
 *   add ─► numbered, last of the queue ─► answered (sent again until acknowledged) ─► dropped
 *            │ no memory, or no room
 *            └─► everything but replies gives way to one number that means: read everything anew
 *
 * A resync takes its place among the numbers and is sent, as an event without a body, until it is
 * acknowledged like any other. It does not bring a reply back, so replies stay, within a limit of
 * their own that events_post_reply() looks after.
 *
 * Invariants: numbers rise; `sent` is the highest that was put into an answer; at most one resync.
 * An event equal to one that waits unsent is not queued twice.
 *
 * Threads: under the lock of the events. Failure modes: without memory an event becomes a resync.
 */
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "broker/events_internal.h"

/* ---- answers ---- */

static bool put_resync(const struct event_queue *queue, struct rpc_request *request,
                       struct event_answer *answer)
{
    answer->body.resync = true;
    return event_put(request, answer, NULL, queue->resync);
}

bool event_queue_put(struct event_queue *queue, struct rpc_request *request,
                     struct event_answer *answer)
{
    size_t most = queue->count + (queue->resync != 0);
    if (!most)
        return true;
    if (most > EVENTS_PER_ANSWER)
        most = EVENTS_PER_ANSWER;
    answer->body.events = rpc_request_alloc(request, most * sizeof(Tern__Wire__Event *));
    if (!answer->body.events)
        return false;
    uint64_t last = queue->sent;
    bool resync = queue->resync != 0; /* still to be put in */
    for (const struct event *e = queue->events; answer->body.n_events < most && (e || resync);) {
        bool first = resync && (!e || queue->resync < e->number);
        if (first ? !put_resync(queue, request, answer) : !event_put(request, answer, e, e->number))
            return false;
        last = first ? queue->resync : e->number;
        resync = resync && !first;
        e = first ? e : e->next;
    }
    queue->sent = last;
    return true;
}

/* ---- what is forgotten ---- */

void event_queue_drop(struct event_queue *queue, uint64_t up_to)
{
    while (queue->events && queue->events->number <= up_to) {
        struct event *event = queue->events;
        queue->events = event->next;
        queue->count--;
        queue->replies -= event->kind == EVENT_REPLY;
        free(event);
    }
}

/* What a resync makes up for; it does not bring a reply back. */
static void drop_all_but_replies(struct event_queue *queue)
{
    struct event **at = &queue->events;
    while (*at) {
        struct event *event = *at;
        if (event->kind == EVENT_REPLY) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        queue->count--;
        free(event);
    }
}

static void set_resync(struct event_queue *queue)
{
    drop_all_but_replies(queue);
    if (queue->resync <= queue->sent) /* none waits unsent */
        queue->resync = queue->next_number++;
}

void event_queue_acknowledge(struct event_queue *queue, bool knows_us, uint64_t acknowledged)
{
    if (!knows_us) {
        set_resync(queue);
    } else if (!queue->greeted || acknowledged >= queue->next_number) {
        /* it knows our session from a queue that was forgotten since */
        if (queue->next_number <= acknowledged)
            queue->next_number = acknowledged + 1;
        queue->sent = queue->resync = 0;
        set_resync(queue);
    } else {
        event_queue_drop(queue, acknowledged);
        if (queue->resync <= acknowledged)
            queue->resync = 0;
    }
}

/* ---- what comes ---- */

struct event *event_make(enum event_kind kind, const char *group, const char *second)
{
    size_t group_size = strlen(group) + 1;
    size_t second_size = second ? strlen(second) + 1 : 0;
    struct event *event = malloc(sizeof *event + group_size + second_size);
    if (!event)
        return NULL;
    *event = (struct event){.kind = kind, .second = second ? event->group + group_size : NULL};
    memcpy(event->group, group, group_size);
    if (second)
        memcpy(event->group + group_size, second, second_size);
    return event;
}

/* Whether one that says the same waits unsent. */
static bool waits_already(const struct event_queue *queue, const struct event *event)
{
    if (event->kind == EVENT_REPLY)
        return false;
    if (queue->resync > queue->sent)
        return true;
    for (const struct event *e = queue->events; e; e = e->next)
        if (e->number > queue->sent && e->kind == event->kind && e->half_off == event->half_off &&
            !strcmp(e->group, event->group) && (!e->second || !strcmp(e->second, event->second)))
            return true;
    return false;
}

uint32_t event_queue_others(const struct event_queue *queue)
{
    return queue->count - queue->replies;
}

void event_queue_add(struct event_queue *queue, struct event *event)
{
    if (event && waits_already(queue, event)) {
        free(event);
    } else if (!event ||
               (event->kind != EVENT_REPLY && event_queue_others(queue) >= EVENTS_PER_CLIENT)) {
        free(event);
        set_resync(queue);
    } else {
        event->number = queue->next_number++;
        LL_APPEND(queue->events, event);
        queue->count++;
        queue->replies += event->kind == EVENT_REPLY;
    }
}
