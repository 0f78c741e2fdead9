/*
 * Queue locks of orderly consumers on the wire (RocketMQ: LOCK_BATCH_MQ, UNLOCK_BATCH_MQ).
 *
 *   lock ─► each queue by itself: granted, renewed or left out ─► answer: those that the client
 * holds
 *
 * Where new locks are not granted now (a slave; a master that does not know yet what its slaves
 * know) what a client is known to hold is renewed all the same, and releases are taken; a slave may
 * hand on what was released to it (broker/queue_locks.c). A queue that is not here, of
 * another broker or of a topic that was deleted, is left out; a request with what can be no queue
 * is refused.
 *
 * Threads: the transport's. Failure modes: a full table leaves queues out, with a warning.
 */
#include "base/log.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"
#include "broker/queue_locks.h"

enum { QUEUES_MAX = 10000 };

/* A request's names, and the topic looked at last. */
struct lock_request {
    struct broker *broker;
    struct rpc_request *request;
    struct group_view group;
    const char *client;
    Tern__Wire__QueueClaim *const *claims; /* NULL: none */
    const char *topic;
    struct topic_config config;
    bool topic_known;
};

/* Whether it could be a queue of anybody. */
static enum tern_code check_queues(Tern__Wire__MessageQueue *const *queues, size_t count,
                                   struct tern_error *err)
{
    if (count > QUEUES_MAX)
        return error_set(err, TERN_INVALID, "%zu queues in one request, allowed %d", count,
                         (int)QUEUES_MAX);
    enum tern_code code = TERN_OK;
    for (size_t i = 0; !code && i < count; i++) {
        code = topic_name_check(queues[i]->topic.data, queues[i]->topic.len, err);
        if (!code && (queues[i]->queue_id < 0 || queues[i]->queue_id >= TOPIC_QUEUES_MAX))
            code = error_set(err, TERN_INVALID, "queue_id %" PRId32 " is not in 0..%d",
                             queues[i]->queue_id, TOPIC_QUEUES_MAX - 1);
    }
    return code;
}

/* One for each queue, or none at all. */
static enum tern_code check_claims(Tern__Wire__QueueClaim *const *claims, size_t claim_count,
                                   size_t count, struct tern_error *err)
{
    if (claim_count != 0 && claim_count != count)
        return error_set(err, TERN_INVALID, "%zu claims for %zu queues: one for each, or none",
                         claim_count, count);
    for (size_t i = 0; i < claim_count; i++)
        if (claims[i]->offset < 0 || claims[i]->times < 0 || claims[i]->grant < 0)
            return error_set(err, TERN_INVALID,
                             "claim %zu: offset %" PRId64 ", times %" PRId32 " or grant %" PRId64
                             " is below 0",
                             i, claims[i]->offset, claims[i]->times, claims[i]->grant);
    return TERN_OK;
}

static enum tern_code begin(struct broker *broker, struct rpc_request *request,
                            const ProtobufCBinaryData *group,
                            Tern__Wire__MessageQueue *const *queues, size_t count,
                            Tern__Wire__QueueClaim *const *claims, size_t claim_count,
                            struct lock_request *out, struct tern_error *err)
{
    const char *name;
    *out = (struct lock_request){
        .broker = broker, .request = request, .claims = claim_count ? claims : NULL};
    enum tern_code code = take_client(request, &out->client, err);
    if (!code)
        code = take_group(request, group, &name, err);
    if (!code)
        code = guard_view(broker, name, out->client, &out->group, err);
    if (!code)
        code = check_queues(queues, count, err);
    return code ? code : check_claims(claims, claim_count, count, err);
}

/* What the request says of its i-th queue; NULL: nothing. */
static const struct queue_lock_claim *claim_of(const struct lock_request *lock, size_t i,
                                               struct queue_lock_claim *room)
{
    if (!lock->claims)
        return NULL;
    const Tern__Wire__QueueClaim *wire = lock->claims[i];
    *room = (struct queue_lock_claim){.held = wire->held,
                                      .has_tries = wire->has_tries,
                                      .tries_offset = wire->offset,
                                      .tries = wire->times,
                                      .grant = wire->grant};
    return room;
}

/* Takes the queue's topic, terminated. false: the queue is not here. */
static bool take_queue(struct lock_request *lock, const Tern__Wire__MessageQueue *queue)
{
    struct broker *broker = lock->broker;
    const char *name = broker->config.broker_name;
    if (queue->broker_name.len && (queue->broker_name.len != strlen(name) ||
                                   memcmp(queue->broker_name.data, name, strlen(name)) != 0))
        return false;
    if (!lock->topic || strlen(lock->topic) != queue->topic.len ||
        memcmp(lock->topic, queue->topic.data, queue->topic.len) != 0) {
        lock->topic = frame_text(rpc_request_arena(lock->request), &queue->topic);
        lock->topic_known = lock->topic && topics_find(broker->topics, lock->topic,
                                                       queue->topic.len, &lock->config);
    }
    return lock->topic_known &&
           check_queue(broker, &lock->config, queue->queue_id, NULL) == TERN_OK;
}

/* The answer, in the request's memory. */
struct lock_answer {
    Tern__Wire__LockQueuesResponse body;
    Tern__Wire__QueueTries *tries;
    Tern__Wire__RefusedLock *refused;
    size_t full;
};

static enum tern_code answer_begin(struct rpc_request *request, size_t count,
                                   struct lock_answer *out, struct tern_error *err)
{
    tern__wire__lock_queues_response__init(&out->body);
    out->full = 0;
    size_t room = count + 1;
    out->body.locked = rpc_request_alloc(request, room * sizeof(out->body.locked[0]));
    out->body.tries = rpc_request_alloc(request, room * sizeof(out->body.tries[0]));
    out->body.refused = rpc_request_alloc(request, room * sizeof(out->body.refused[0]));
    out->tries = rpc_request_alloc(request, room * sizeof *out->tries);
    out->refused = rpc_request_alloc(request, room * sizeof *out->refused);
    if (!out->body.locked || !out->body.tries || !out->body.refused || !out->tries || !out->refused)
        return error_set(err, TERN_NO_MEMORY, "no memory for %zu queues", count);
    return TERN_OK;
}

static void answer_locked(struct lock_answer *answer, Tern__Wire__MessageQueue *queue,
                          const struct queue_lock_answer *said)
{
    Tern__Wire__QueueTries *tries = &answer->tries[answer->body.n_tries];
    tern__wire__queue_tries__init(tries);
    tries->offset = said->tries_offset;
    tries->times = said->tries;
    tries->grant = said->grant;
    answer->body.tries[answer->body.n_tries++] = tries;
    answer->body.locked[answer->body.n_locked++] = queue;
}

static void answer_refused(struct lock_answer *answer, size_t index, Tern__Wire__LockRefusal reason,
                           int64_t remaining_ms)
{
    Tern__Wire__RefusedLock *refused = &answer->refused[answer->body.n_refused];
    tern__wire__refused_lock__init(refused);
    refused->index = (uint32_t)index;
    refused->reason = reason;
    refused->remaining_ms = (uint32_t)remaining_ms; /* a lease at most */
    answer->body.refused[answer->body.n_refused++] = refused;
    answer->full += reason == TERN__WIRE__LOCK_REFUSAL__LOCK_FULL;
}

static void lock_one(struct lock_request *lock, size_t index, Tern__Wire__MessageQueue *queue,
                     enum queue_lock_grants grants, struct lock_answer *answer)
{
    struct queue_lock_claim room;
    struct queue_lock_answer said = {.remaining_ms = 0};
    if (!take_queue(lock, queue)) {
        answer_refused(answer, index, TERN__WIRE__LOCK_REFUSAL__LOCK_NO_QUEUE, 0);
        return;
    }
    switch (queue_locks_claim(lock->broker->locks, lock->group.name, lock->topic, queue->queue_id,
                              lock->client, grants, claim_of(lock, index, &room), &said)) {
    case QUEUE_LOCKED:
        answer_locked(answer, queue, &said);
        break;
    case QUEUE_LOCK_OTHERS:
        answer_refused(answer, index, TERN__WIRE__LOCK_REFUSAL__LOCK_OTHERS, said.remaining_ms);
        break;
    case QUEUE_LOCK_NOT_NEW:
        answer_refused(answer, index, TERN__WIRE__LOCK_REFUSAL__LOCK_UNDECIDED, said.remaining_ms);
        break;
    case QUEUE_LOCK_FULL:
        answer_refused(answer, index, TERN__WIRE__LOCK_REFUSAL__LOCK_FULL, 0);
        break;
    }
}

static enum queue_lock_grants grants_now(const struct broker *broker)
{
    if (!broker->ha || ha_decides_locks(broker->ha))
        return QUEUE_LOCK_GRANTS_ALL;
    return ha_hands_on_locks(broker->ha) ? QUEUE_LOCK_GRANTS_FREED : QUEUE_LOCK_GRANTS_NONE;
}

void handle_lock_queues(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__LockQueuesRequest *wanted = request->header->lock_queues;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.text = ""};
    struct lock_request lock;
    struct lock_answer answer;
    enum tern_code code = begin(broker, request, &wanted->group, wanted->queues, wanted->n_queues,
                                wanted->claims, wanted->n_claims, &lock, &err);
    if (!code)
        code = answer_begin(request, wanted->n_queues, &answer, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    enum queue_lock_grants grants = grants_now(broker);
    for (size_t i = 0; i < wanted->n_queues; i++)
        lock_one(&lock, i, wanted->queues[i], grants, &answer);
    if (answer.body.n_locked)
        queue_locks_tell(broker->locks);
    if (answer.full)
        log_warn(broker->env.log, "queue_locks_full", "group=%s client=%s left_out=%zu limit=%d",
                 lock.group.name, lock.client, answer.full, (int)QUEUE_LOCKS_MAX);
    response.body_case = TERN__WIRE__RESPONSE__BODY_LOCK_QUEUES;
    response.lock_queues = &answer.body;
    reply_bounded(broker, request, &response, "lock fewer queues at once");
}

void handle_unlock_queues(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__UnlockQueuesRequest *wanted = request->header->unlock_queues;
    struct tern_error err = {.text = ""};
    struct lock_request lock;
    struct queue_lock_claim room;
    enum tern_code code = begin(broker, request, &wanted->group, wanted->queues, wanted->n_queues,
                                wanted->claims, wanted->n_claims, &lock, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    for (size_t i = 0; i < wanted->n_queues; i++)
        if (take_queue(&lock, wanted->queues[i]))
            queue_locks_release(broker->locks, lock.group.name, lock.topic,
                                wanted->queues[i]->queue_id, lock.client,
                                claim_of(&lock, i, &room));
    queue_locks_tell(broker->locks);
    rpc_reply_ok(request);
}
