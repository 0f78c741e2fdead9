/*
 * The scripted cluster's brokers as the group's members see them: who is there, who holds which
 * queue, which conditions hold, and where messages that failed go.
 */
#include "tests/unit/client/fake_internal.h"

/* ---- members ---- */

void fake_members_changed(struct fake *fake)
{
    fake->events++;
    for (int i = 0; i < 2; i++)
        for (unsigned k = 0; k < FAKE_PARKED; k++)
            if (fake->brokers[i].parked[k] && fake->brokers[i].parked[k]->header->body_case ==
                                                  TERN__WIRE__REQUEST__BODY_WAIT_EVENTS) {
                struct rpc_request *rq = fake->brokers[i].parked[k];
                fake->brokers[i].parked[k] = NULL;
                fake_serve(&fake->brokers[i], rq);
            }
}

static unsigned fake_find_member(struct fake *fake, const ProtobufCBinaryData *id)
{
    unsigned i = 0;
    while (i < fake->member_count && !fake_is(id, fake->members[i]))
        i++;
    return i;
}

void fake_heartbeat(struct fake *fake, struct rpc_request *rq)
{
    const ProtobufCBinaryData *id = &rq->header->client_id;
    bool joins =
        rq->header->heartbeat->n_consumers > 0 && fake_find_member(fake, id) == fake->member_count;
    if (joins) {
        assert_true(fake->member_count < FAKE_MEMBERS && id->len < sizeof fake->members[0]);
        char *member = fake->members[fake->member_count++];
        memcpy(member, id->data, id->len);
        member[id->len] = '\0';
    }
    rpc_reply_ok(rq);
    if (joins)
        fake_members_changed(fake);
}

void fake_leave(struct fake *fake, struct rpc_request *rq)
{
    unsigned i = fake_find_member(fake, &rq->header->client_id);
    bool known = i < fake->member_count;
    fake->unregistered++;
    if (known)
        memcpy(fake->members[i], fake->members[--fake->member_count], sizeof fake->members[0]);
    rpc_reply_ok(rq);
    if (known)
        fake_members_changed(fake);
}

void fake_members(struct fake_node *node, struct rpc_request *rq)
{
    struct fake *fake = node->fake;
    enum tern_code code = node->members_code != TERN_OK ? node->members_code : fake->members_code;
    if (fake->members_delay_ms > 0 && !rq->user) {
        fake_park(node, rq, fake->members_delay_ms + node->members_asked++);
        return;
    }
    node->members_asked += !rq->user;
    if (code != TERN_OK) {
        rpc_reply_error(rq, code, "scripted");
        return;
    }
    ProtobufCBinaryData ids[FAKE_MEMBERS];
    Tern__Wire__MembersResponse body = TERN__WIRE__MEMBERS_RESPONSE__INIT;
    body.n_client_ids = fake->hide_members ? 0 : fake->member_count;
    for (unsigned i = 0; i < fake->member_count; i++)
        ids[i] = frame_bytes(fake->members[i], strlen(fake->members[i]));
    if (node->fresh) {
        body.n_client_ids = 1;
        ids[0] = rq->header->client_id;
    }
    body.client_ids = ids;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_MEMBERS;
    response.members = &body;
    rpc_reply(rq, &response, 0);
}

void fake_wait_events(struct fake_node *node, struct rpc_request *rq, bool again)
{
    struct fake *fake = node->fake;
    const Tern__Wire__WaitEventsRequest *wait = rq->header->wait_events;
    if (wait->session == 1 && wait->acknowledged == fake->events && !again) {
        fake_park(node, rq, wait->suspend_timeout_ms);
        return;
    }
    Tern__Wire__Event event;
    tern__wire__event__init(&event);
    event.number = fake->events;
    event.body_case = TERN__WIRE__EVENT__BODY_MEMBERS_CHANGED;
    event.members_changed = frame_bytes("group", 5);
    Tern__Wire__Event *events[] = {&event};
    Tern__Wire__WaitEventsResponse body = TERN__WIRE__WAIT_EVENTS_RESPONSE__INIT;
    body.session = 1;
    body.n_events = wait->acknowledged < fake->events;
    body.events = events;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_WAIT_EVENTS;
    response.wait_events = &body;
    rpc_reply(rq, &response, 0);
}

/* ---- queue locks ---- */

enum { FAKE_LEASE_MS = 60000, FAKE_NEVER_MS = 1000000 };

void fake_lock_queues(struct fake_node *node, struct rpc_request *rq)
{
    struct fake *fake = node->fake;
    if (fake->lock_delay_ms > 0 && !rq->user) {
        fake_park(node, rq, fake->lock_delay_ms);
        return;
    }
    const Tern__Wire__LockQueuesRequest *lock = rq->header->lock_queues;
    const ProtobufCBinaryData *client = &rq->header->client_id;
    int64_t now_ns = clock_mono_ns(fake->env.clock);
    Tern__Wire__LockQueuesResponse body = TERN__WIRE__LOCK_QUEUES_RESPONSE__INIT;
    Tern__Wire__MessageQueue *locked[9];
    Tern__Wire__QueueTries tries[9], *tries_pointers[9];
    Tern__Wire__RefusedLock refused[9], *refused_pointers[9];
    fake->locked++;
    if (fake->lock_code != TERN_OK) {
        rpc_reply_error(rq, fake->lock_code, "scripted");
        return;
    }
    assert_true(lock->n_queues <= 9 && lock->n_claims == lock->n_queues);
    for (size_t i = 0; i < lock->n_queues; i++) {
        struct fake_queue *queue =
            fake_queue(fake, &lock->queues[i]->topic, lock->queues[i]->queue_id);
        struct fake_lock *held = &fake->locks[queue - fake->queues];
        bool taken = held->owner[0] && held->until_ns > now_ns;
        if (taken ? !fake_is(client, held->owner) : fake->locks_undecided) {
            tern__wire__refused_lock__init(&refused[body.n_refused]);
            refused[body.n_refused].index = (uint32_t)i;
            refused[body.n_refused].reason = taken ? TERN__WIRE__LOCK_REFUSAL__LOCK_OTHERS
                                                   : TERN__WIRE__LOCK_REFUSAL__LOCK_UNDECIDED;
            refused_pointers[body.n_refused] = &refused[body.n_refused];
            body.n_refused++;
            continue;
        }
        if (taken && lock->claims[i]->has_tries) {
            held->tries_offset = lock->claims[i]->offset;
            held->tries = lock->claims[i]->times;
        }
        snprintf(held->owner, sizeof held->owner, "%.*s", (int)client->len, (char *)client->data);
        held->until_ns = now_ns + ms_to_ns(FAKE_LEASE_MS);
        tern__wire__queue_tries__init(&tries[body.n_tries]);
        tries[body.n_tries].offset = held->tries_offset;
        tries[body.n_tries].times = held->tries;
        tries_pointers[body.n_tries] = &tries[body.n_tries];
        body.n_tries++;
        locked[body.n_locked++] = lock->queues[i];
    }
    if (fake->locks_unanswered) {
        fake_park(node, rq, FAKE_NEVER_MS);
        return;
    }
    body.locked = locked;
    body.tries = tries_pointers;
    body.refused = refused_pointers;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_LOCK_QUEUES;
    response.lock_queues = &body;
    rpc_reply(rq, &response, 0);
}

void fake_unlock_queues(struct fake *fake, struct rpc_request *rq)
{
    const Tern__Wire__UnlockQueuesRequest *unlock = rq->header->unlock_queues;
    fake->unlocked++;
    for (size_t i = 0; i < unlock->n_queues; i++) {
        struct fake_queue *queue =
            fake_queue(fake, &unlock->queues[i]->topic, unlock->queues[i]->queue_id);
        struct fake_lock *held = &fake->locks[queue - fake->queues];
        if (!fake_is(&rq->header->client_id, held->owner))
            continue;
        held->owner[0] = '\0';
        if (unlock->claims[i]->has_tries) {
            held->tries_offset = unlock->claims[i]->offset;
            held->tries = unlock->claims[i]->times;
        }
    }
    rpc_reply_ok(rq);
}

/* ---- messages that failed ---- */

/* @locks holds:mutex */
static void fake_text(char *dst, size_t size, const void *bytes, size_t len)
{
    assert_true(len < size);
    memcpy(dst, bytes, len);
    dst[len] = 0;
}

void fake_copy(struct fake *fake, struct rpc_request *rq)
{
    const Tern__Wire__SendRequest *copy = rq->header->send;
    fake->copies++;
    fake->copy_times = copy->reconsume_times;
    fake->copy_max_times = copy->max_reconsume_times;
    fake_text(fake->copy_topic, sizeof fake->copy_topic, copy->topic.data, copy->topic.len);
    fake_text(fake->copy_props, sizeof fake->copy_props, copy->properties.data,
              copy->properties.len);
    fake_text(fake->copy_body, sizeof fake->copy_body, rq->payload, rq->payload_size);
    if (fake->copy_code == TERN_OK)
        rpc_reply_ok(rq);
    else
        rpc_reply_error(rq, fake->copy_code, "scripted");
}

void fake_send_back(struct fake *fake, struct rpc_request *rq)
{
    fake->sent_back++;
    fake->sent_back_ns = clock_mono_ns(fake->env.clock);
    fake->last_send_back = *rq->header->send_back;
    if (fake->send_back_code == TERN_OK)
        rpc_reply_ok(rq);
    else
        rpc_reply_error(rq, fake->send_back_code, "scripted");
}

/* ---- conditions ---- */

void fake_check_expression(struct fake *fake, struct rpc_request *rq)
{
    snprintf(fake->checked, sizeof fake->checked, "%s",
             rq->header->check_subscription->subscription->expression);
    if (fake->check_code == TERN_OK)
        rpc_reply_ok(rq);
    else
        rpc_reply_error(rq, fake->check_code, "scripted: not this expression");
}
