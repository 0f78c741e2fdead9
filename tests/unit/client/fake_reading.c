/* The scripted cluster's brokers as who reads sees them: messages, progress, offsets. */
#include "tests/unit/client/fake_internal.h"

#include "base/props.h"
#include "base/record.h"
#include "base/subscription.h"

/* ---- pulls ---- */

void fake_answer_pull(struct fake *fake, struct rpc_request *rq, enum tern_code code, int64_t next,
                      const struct fake_queue *queue, int32_t count, size_t payload)
{
    Tern__Wire__PullResponse body = TERN__WIRE__PULL_RESPONSE__INIT;
    body.next_offset = next;
    body.min_offset = queue ? queue->min : -1;
    bool slave = rq->server == fake->brokers[1].server;
    int64_t max = queue && slave && queue->slave_max >= 0 ? queue->slave_max : -1;
    body.max_offset = max >= 0 ? max : queue ? queue->max : -1;
    body.count = count;
    body.suggest_broker_id = fake->suggest;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.code = wire_code_of(code);
    response.body_case = TERN__WIRE__RESPONSE__BODY_PULL;
    response.pull = &body;
    rpc_reply(rq, &response, payload);
}

size_t fake_encode(struct fake *fake, const struct fake_queue *queue, const char *topic,
                   int64_t offset, uint8_t *dst, size_t cap)
{
    if (fake->stamped_size > 0) {
        assert_true(cap >= fake->stamped_size);
        memcpy(dst, fake->stamped, fake->stamped_size);
        record_stamp_position(dst, offset, offset * 1000);
        record_stamp_queue(dst, (int32_t)(queue - fake->queues));
        return fake->stamped_size;
    }
    uint8_t props[128];
    size_t props_len = 0;
    const char *tag = queue->tags[offset];
    if (tag)
        assert_ok(props_append(props, &props_len, sizeof props, PROP_TAGS, 4, tag, strlen(tag)));
    if (strcmp(topic, FAKE_RETRY) == 0)
        assert_ok(props_append(props, &props_len, sizeof props, PROP_RETRY_TOPIC, 11, FAKE_TOPIC,
                               strlen(FAKE_TOPIC)));
    char body[32];
    snprintf(body, sizeof body, "%lld", (long long)offset);
    struct record record = {
        .queue_id = queue == &fake->queues[FAKE_QUEUES] ? 0 : (int32_t)(queue - fake->queues),
        .queue_off = offset,
        .phys_off = offset * 1000,
        .reconsume_times = queue->reconsume[offset],
        .body = (const uint8_t *)body,
        .body_len = (uint32_t)strlen(body),
        .topic = (const uint8_t *)topic,
        .topic_len = (uint8_t)strlen(topic),
        .props = props,
        .props_len = (uint16_t)props_len};
    size_t size = record_encode(dst, cap, &record);
    assert_true(size > 0);
    return size;
}

/* Messages from the offset on that match, as many as asked for; looks at 500 at most. */
static void fake_answer_messages(struct fake *fake, struct rpc_request *rq,
                                 const Tern__Wire__PullRequest *pull, struct fake_queue *queue,
                                 int64_t max)
{
    struct subscription *tags;
    assert_ok(subscription_parse(pull->expression, strlen(pull->expression), &tags, NULL));
    size_t cap = (size_t)pull->max_count * 600;
    uint8_t *dst = rpc_reply_reserve(rq, cap);
    assert_non_null(dst);
    int64_t offset = pull->offset;
    int32_t count = 0;
    size_t size = 0;
    for (; offset < max && offset < pull->offset + 500 && count < pull->max_count; offset++) {
        const char *tag = queue->tags[offset];
        if (!fake->loose && !subscription_match_tag(tags, tag, tag ? strlen(tag) : 0))
            continue;
        const char *topic = fake_is(&pull->topic, FAKE_RETRY) ? FAKE_RETRY : FAKE_TOPIC;
        size += fake_encode(fake, queue, topic, offset, dst + size, cap - size);
        count++;
    }
    subscription_free(tags);
    fake_answer_pull(fake, rq, count ? TERN_OK : TERN_PULL_RETRY_IMMEDIATELY, offset, queue, count,
                     size);
}

void fake_pull(struct fake_node *node, struct rpc_request *rq, bool again)
{
    struct fake *fake = node->fake;
    const Tern__Wire__PullRequest *pull = rq->header->pull;
    struct fake_queue *queue = fake_queue(fake, &pull->topic, pull->queue_id);
    if (!again) {
        node->pulls++;
        fake->last_pull_offset = pull->offset;
        fake->last_pull_commit = pull->has_commit ? pull->commit_offset : -1;
    }
    assert_true(pull->has_subscription);
    if (fake->on_pull && fake->on_pull(node, rq, pull))
        return;
    enum tern_code code = node->pull_code != TERN_OK ? node->pull_code : fake->pull_code;
    if (code != TERN_OK) {
        rpc_reply_error(rq, code, "scripted");
        return;
    }
    /* Who names neither progress nor a version keeps its own. */
    if (pull->offset_version ? pull->offset_version->counter < queue->version : pull->has_commit) {
        Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
        version.counter = queue->version;
        Tern__Wire__PullResponse body = TERN__WIRE__PULL_RESPONSE__INIT;
        body.offset_version = &version;
        body.committed_offset = queue->committed;
        TernResponse response = TERN__WIRE__RESPONSE__INIT;
        response.code = wire_code_of(TERN_OFFSET_VERSION_OLD);
        response.body_case = TERN__WIRE__RESPONSE__BODY_PULL;
        response.pull = &body;
        if (queue->version > 0) {
            rpc_reply(rq, &response, 0);
            return;
        }
    }
    bool slave = node->id != 0;
    int64_t max = slave && queue->slave_max >= 0 ? queue->slave_max : queue->max;
    if (pull->offset > max || pull->offset < queue->min)
        fake_answer_pull(fake, rq, TERN_PULL_OFFSET_MOVED, pull->offset > max ? max : queue->min,
                         queue, 0, 0);
    else if (pull->offset < max)
        fake_answer_messages(fake, rq, pull, queue, max);
    else if (pull->suspend_timeout_ms > 0 && !again)
        fake_park(node, rq, pull->suspend_timeout_ms);
    else
        fake_answer_pull(fake, rq, TERN_PULL_NOT_FOUND, pull->offset, queue, 0, 0);
}

/* ---- progress ---- */

void fake_query(struct fake_node *node, struct rpc_request *rq)
{
    struct fake *fake = node->fake;
    const Tern__Wire__QueryOffsetRequest *query = rq->header->query_offset;
    struct fake_queue *queue = fake_queue(fake, &query->topic, query->queue_id);
    fake->queries++;
    node->queries++;
    enum tern_code code = node->query_code != TERN_OK   ? node->query_code
                          : fake->query_code != TERN_OK ? fake->query_code
                          : queue->committed < 0        ? TERN_QUERY_NOT_FOUND
                                                        : TERN_OK;
    if (code != TERN_OK) {
        rpc_reply_error(rq, code, "scripted");
        return;
    }
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    version.counter = queue->version;
    Tern__Wire__QueryOffsetResponse body = TERN__WIRE__QUERY_OFFSET_RESPONSE__INIT;
    body.offset = queue->committed;
    body.version = &version;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET;
    response.query_offset = &body;
    rpc_reply(rq, &response, 0);
}

void fake_commit(struct fake_node *node, struct rpc_request *rq)
{
    struct fake *fake = node->fake;
    const Tern__Wire__CommitOffsetRequest *commit = rq->header->commit_offset;
    fake->commits++;
    node->commits++;
    enum tern_code code = node->commit_code != TERN_OK ? node->commit_code : fake->commit_code;
    if (code != TERN_OK) {
        rpc_reply_error(rq, code, "scripted");
        return;
    }
    for (size_t i = 0; i < commit->n_commits; i++) {
        const Tern__Wire__CommitOffset *one = commit->commits[i];
        struct fake_queue *queue = fake_queue(fake, &one->topic, one->queue_id);
        queue->commits++;
        if (one->version && one->version->counter == queue->version &&
            one->offset > queue->committed)
            queue->committed = one->offset;
    }
    rpc_reply_ok(rq);
}

/* ---- offsets ---- */

void fake_range(struct fake_node *node, struct rpc_request *rq)
{
    struct fake *fake = node->fake;
    const Tern__Wire__QueueRangeRequest *range = rq->header->queue_range;
    struct fake_queue *queue = fake_queue(fake, &range->topic, range->queue_id);
    Tern__Wire__QueueRangeResponse body = TERN__WIRE__QUEUE_RANGE_RESPONSE__INIT;
    body.min_offset = queue->min;
    body.max_offset = fake->range_max == -2 ? queue->max : fake->range_max;
    node->positions_asked++;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_QUEUE_RANGE;
    response.queue_range = &body;
    rpc_reply(rq, &response, 0);
}

void fake_search(struct fake_node *node, struct rpc_request *rq)
{
    struct fake *fake = node->fake;
    Tern__Wire__SearchOffsetResponse body = TERN__WIRE__SEARCH_OFFSET_RESPONSE__INIT;
    fake->last_search_ms = rq->header->search_offset->store_ms;
    body.offset = fake->search_answer >= 0 ? fake->search_answer : fake->last_search_ms;
    node->positions_asked++;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_SEARCH_OFFSET;
    response.search_offset = &body;
    rpc_reply(rq, &response, 0);
}
