/*
 * Queue locks of orderly consumers on the wire (RocketMQ: LOCK_BATCH_MQ, UNLOCK_BATCH_MQ).
 *
 *   lock ─► each queue by itself: granted, renewed or left out ─► answer: those that the client
 * holds
 *
 * Where new locks are not granted now (a slave; a master that does not know yet what its slaves
 * know) what a client is known to hold is renewed all the same. A queue that is not here, of
 * another broker or of a topic that was deleted, is left out; a request with what can be no queue
 * is refused.
 *
 * Threads: the transport's. Failure modes: a full table leaves queues out, with a warning.
 */
#include "base/log.h"
#include "broker/handlers/checks.h"
#include "broker/queue_locks.h"

enum { QUEUES_MAX = 10000 };

/* A request's names, and the topic looked at last. */
struct lock_request {
    struct broker *broker;
    struct rpc_request *request;
    const char *group, *client;
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

static enum tern_code begin(struct broker *broker, struct rpc_request *request,
                            const ProtobufCBinaryData *group,
                            Tern__Wire__MessageQueue *const *queues, size_t count,
                            struct lock_request *out, struct tern_error *err)
{
    *out = (struct lock_request){.broker = broker, .request = request};
    enum tern_code code = take_client(request, &out->client, err);
    if (!code)
        code = take_group(request, group, &out->group, err);
    return code ? code : check_queues(queues, count, err);
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

void handle_lock_queues(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__LockQueuesRequest *wanted = request->header->lock_queues;
    Tern__Wire__LockQueuesResponse body = TERN__WIRE__LOCK_QUEUES_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.text = ""};
    struct lock_request lock;
    size_t full = 0;
    enum tern_code code =
        begin(broker, request, &wanted->group, wanted->queues, wanted->n_queues, &lock, &err);
    if (!code) {
        body.locked = rpc_request_alloc(request, (wanted->n_queues + 1) * sizeof(body.locked[0]));
        if (!body.locked)
            code = error_set(&err, TERN_NO_MEMORY, "no memory for %zu queues", wanted->n_queues);
    }
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    bool grant_new = !broker->ha || ha_decides_locks(broker->ha);
    for (size_t i = 0; i < wanted->n_queues; i++) {
        Tern__Wire__MessageQueue *queue = wanted->queues[i];
        if (!take_queue(&lock, queue))
            continue;
        enum queue_lock_result result = queue_locks_lock(broker->locks, lock.group, lock.topic,
                                                         queue->queue_id, lock.client, grant_new);
        if (result == QUEUE_LOCKED)
            body.locked[body.n_locked++] = queue;
        full += result == QUEUE_LOCK_FULL;
    }
    if (body.n_locked)
        queue_locks_tell(broker->locks);
    if (full)
        log_warn(broker->env.log, "queue_locks_full", "group=%s client=%s left_out=%zu limit=%d",
                 lock.group, lock.client, full, (int)QUEUE_LOCKS_MAX);
    response.body_case = TERN__WIRE__RESPONSE__BODY_LOCK_QUEUES;
    response.lock_queues = &body;
    reply_bounded(broker, request, &response, "lock fewer queues at once");
}

void handle_unlock_queues(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__UnlockQueuesRequest *wanted = request->header->unlock_queues;
    struct tern_error err = {.text = ""};
    struct lock_request lock;
    enum tern_code code =
        begin(broker, request, &wanted->group, wanted->queues, wanted->n_queues, &lock, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    for (size_t i = 0; i < wanted->n_queues; i++)
        if (take_queue(&lock, wanted->queues[i]))
            queue_locks_unlock(broker->locks, lock.group, lock.topic, wanted->queues[i]->queue_id,
                               lock.client);
    queue_locks_tell(broker->locks);
    rpc_reply_ok(request);
}
