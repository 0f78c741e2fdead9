/*
 * A scripted cluster on virtual time, for tests of consumers: one nameserver, one broker set of a
 * master and a slave that share what they hold, one topic. It answers what consumers ask, remembers
 * what they said, and can be told to fail, to lie and to die.
 *
 *   struct fake *fake = fake_create(4);               // topic T with 4 queues at broker-a
 *   fake_publish(fake, 0, "TagA", 10);
 *   … consumers with fake_options(fake, "group", "name") …
 *   fake_run_ms(fake, 500);
 *   fake_destroy(fake);
 *
 * fake_create_real() makes the same cluster on real threads and loopback connections, for what
 * threads do to each other; there parked pulls wait until something is published or the end.
 *
 * A header, so that each test program has its own: tests stay single files.
 */
#ifndef TESTS_UNIT_CLIENT_FAKE_CLUSTER_H
#define TESTS_UNIT_CLIENT_FAKE_CLUSTER_H

#include "tests/unit/base/unit.h"

#include <pthread.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/props.h"
#include "base/record.h"
#include "base/subscription.h"
#include "client/sim_hooks.h"
#include "rpc/server.h"
#include "tests/sim/link/sim_link.h"
#include "tests/sim/sim_env.h"

#define FAKE_TOPIC "T"
#define FAKE_RETRY "%RETRY%group"
#define FAKE_NAMESRV "10.0.0.8:9876"

enum { FAKE_QUEUES = 8, FAKE_MESSAGES = 200000, FAKE_MEMBERS = 8, FAKE_PARKED = 512 };

struct fake;

struct fake_queue {
    int64_t min, max;
    int64_t slave_max;         /* -1: as the master */
    int64_t committed;         /* -1: none */
    uint64_t version;          /* counter of the offset version */
    int64_t commits;           /* requests that named it */
    char *tags[FAKE_MESSAGES]; /* static texts; NULL: none */
    int reconsume[FAKE_MESSAGES];
};

struct fake_node {
    struct fake *fake;
    const char *host;
    char address[64];
    int64_t id;        /* -1: nameserver */
    struct link *link; /* NULL: down */
    struct rpc_server *server;
    struct rpc_request *parked[FAKE_PARKED]; /* pulls and WaitEvents */
    unsigned pulls, queries, commits, members_asked;
    /* what it answers alone; else as the whole cluster is told */
    enum tern_code pull_code, query_code, commit_code, members_code;
    bool fresh; /* of the members it knows only who asks */
};

struct fake {
    struct sim_env sim;
    struct env env;
    struct sim_net *net; /* NULL: the real world */
    struct link *client;
    pthread_mutex_t mutex; /* recursive: all that follows, in the real world */
    struct fake_node namesrv, brokers[2];
    bool listed[2]; /* in the route */
    int queue_count;
    bool has_retry_topic;
    struct fake_queue *queues; /* FAKE_QUEUES of T, then one of the retry topic */
    char members[FAKE_MEMBERS][128];
    unsigned member_count;
    bool hide_members; /* answers an empty list */
    uint64_t events;
    int64_t suggest;
    bool loose;          /* delivers messages that do not match */
    size_t stamped_size; /* not 0: all messages are copies of `stamped`, for speed */
    uint8_t stamped[512];
    enum tern_code query_code, commit_code, members_code, pull_code, send_back_code;
    int64_t range_max;     /* -2: the truth */
    int64_t search_answer; /* -1: the time itself */
    int64_t last_search_ms;
    /* true: answered */
    bool (*on_pull)(struct fake_node *node, struct rpc_request *rq,
                    const Tern__Wire__PullRequest *pull);
    /* queue locks, as a broker keeps them */
    struct fake_lock {
        char owner[128]; /* "": nobody */
        int64_t until_ns;
        int64_t tries_offset;
        int32_t tries;
    } locks[9];
    enum tern_code lock_code;
    bool locks_undecided; /* grants nothing new */
    unsigned locked, unlocked;
    unsigned queries, commits, sent_back, unregistered;
    Tern__Wire__SendBackRequest last_send_back;
    int64_t sent_back_ns;     /* the last time */
    enum tern_code copy_code; /* what the copy of a message that failed is answered */
    unsigned copies;
    int32_t copy_times, copy_max_times; /* of the last */
    char copy_topic[128], copy_props[512], copy_body[64];
    int64_t last_pull_offset, last_pull_commit;
    enum tern_code check_code; /* of an expression */
    char checked[128];         /* the last one */
    /* kinds of requests in the order in which each came first */
    int32_t first_kinds[32];
    unsigned first_kind_count;
};

/* ---- small helpers ---- */

static inline bool fake_is(const ProtobufCBinaryData *bytes, const char *text)
{
    return bytes->len == strlen(text) && memcmp(bytes->data, text, bytes->len) == 0;
}

static inline struct fake_queue *fake_queue(struct fake *fake, const ProtobufCBinaryData *topic,
                                            int32_t id)
{
    if (fake_is(topic, FAKE_RETRY) && id == 0)
        return &fake->queues[FAKE_QUEUES];
    assert_true(fake_is(topic, FAKE_TOPIC) && id >= 0 && id < fake->queue_count);
    return &fake->queues[id];
}

static inline void fake_run_ms(struct fake *fake, int64_t ms)
{
    sim_run_for(fake->sim.sched, ms_to_ns(ms));
}

/* ---- answers ---- */

static inline void fake_answer_pull(struct fake *fake, struct rpc_request *rq, enum tern_code code,
                                    int64_t next, const struct fake_queue *queue, int32_t count,
                                    size_t payload)
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

static inline size_t fake_encode(struct fake *fake, const struct fake_queue *queue,
                                 const char *topic, int64_t offset, uint8_t *dst, size_t cap)
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
static inline void fake_answer_messages(struct fake *fake, struct rpc_request *rq,
                                        const Tern__Wire__PullRequest *pull,
                                        struct fake_queue *queue, int64_t max)
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

static inline void fake_serve(void *arg, struct rpc_request *rq);

/* Answers what is parked (all: whatever it waits for) and serves it anew without waiting. */
static inline void fake_unpark(struct fake_node *node, bool all)
{
    int64_t now_ns = clock_mono_ns(node->fake->env.clock);
    for (unsigned i = 0; i < FAKE_PARKED; i++) {
        struct rpc_request *rq = node->parked[i];
        if (!rq || (!all && rq->received_ns + (int64_t)(uintptr_t)rq->user > now_ns))
            continue;
        node->parked[i] = NULL;
        fake_serve(node, rq);
    }
}

static inline void fake_expire(void *arg)
{
    fake_unpark(arg, false);
}

static inline void fake_park(struct fake_node *node, struct rpc_request *rq, uint32_t suspend_ms)
{
    unsigned i = 0;
    while (i < FAKE_PARKED && node->parked[i])
        i++;
    assert_true(i < FAKE_PARKED);
    node->parked[i] = rq;
    rq->user = (void *)(uintptr_t)ms_to_ns(suspend_ms);
    if (node->fake->net)
        sim_after(node->fake->sim.sched, ms_to_ns(suspend_ms), fake_expire, node);
}

/* again: it was parked. */
static inline void fake_pull(struct fake_node *node, struct rpc_request *rq, bool again)
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

static inline void fake_query(struct fake_node *node, struct rpc_request *rq)
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

/* Within a version the higher offset stays. */
static inline void fake_commit(struct fake_node *node, struct rpc_request *rq)
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

static inline void fake_range(struct fake *fake, struct rpc_request *rq)
{
    const Tern__Wire__QueueRangeRequest *range = rq->header->queue_range;
    struct fake_queue *queue = fake_queue(fake, &range->topic, range->queue_id);
    Tern__Wire__QueueRangeResponse body = TERN__WIRE__QUEUE_RANGE_RESPONSE__INIT;
    body.min_offset = queue->min;
    body.max_offset = fake->range_max == -2 ? queue->max : fake->range_max;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_QUEUE_RANGE;
    response.queue_range = &body;
    rpc_reply(rq, &response, 0);
}

/* A time is an offset here. */
static inline void fake_search(struct fake *fake, struct rpc_request *rq)
{
    Tern__Wire__SearchOffsetResponse body = TERN__WIRE__SEARCH_OFFSET_RESPONSE__INIT;
    fake->last_search_ms = rq->header->search_offset->store_ms;
    body.offset = fake->search_answer >= 0 ? fake->search_answer : fake->last_search_ms;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_SEARCH_OFFSET;
    response.search_offset = &body;
    rpc_reply(rq, &response, 0);
}

/* ---- members ---- */

static inline void fake_members_changed(struct fake *fake)
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

static inline unsigned fake_find_member(struct fake *fake, const ProtobufCBinaryData *id)
{
    unsigned i = 0;
    while (i < fake->member_count && !fake_is(id, fake->members[i]))
        i++;
    return i;
}

static inline void fake_heartbeat(struct fake *fake, struct rpc_request *rq)
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

static inline void fake_leave(struct fake *fake, struct rpc_request *rq)
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

static inline void fake_members(struct fake_node *node, struct rpc_request *rq)
{
    struct fake *fake = node->fake;
    enum tern_code code = node->members_code != TERN_OK ? node->members_code : fake->members_code;
    node->members_asked++;
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

static inline void fake_wait_events(struct fake_node *node, struct rpc_request *rq, bool again)
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

enum { FAKE_LEASE_MS = 60000 };

static inline void fake_lock_queues(struct fake *fake, struct rpc_request *rq)
{
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
    body.locked = locked;
    body.tries = tries_pointers;
    body.refused = refused_pointers;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_LOCK_QUEUES;
    response.lock_queues = &body;
    rpc_reply(rq, &response, 0);
}

static inline void fake_unlock_queues(struct fake *fake, struct rpc_request *rq)
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

/* ---- serving ---- */

static inline void fake_route(struct fake *fake, struct rpc_request *rq)
{
    const ProtobufCBinaryData *topic = &rq->header->route->topic;
    bool retry = fake_is(topic, FAKE_RETRY) && fake->has_retry_topic;
    if (!fake_is(topic, FAKE_TOPIC) && !retry) {
        rpc_reply_error(rq, TERN_TOPIC_NOT_EXIST, "no such topic");
        return;
    }
    Tern__Wire__QueueData data = TERN__WIRE__QUEUE_DATA__INIT;
    data.broker_name = frame_bytes("broker-a", 8);
    data.read_queues = data.write_queues = retry ? 1 : fake->queue_count;
    data.perm = 6;
    Tern__Wire__QueueData *datas[] = {&data};
    Tern__Wire__BrokerAddress addresses[2];
    Tern__Wire__BrokerAddress *pointers[2];
    Tern__Wire__BrokerData broker = TERN__WIRE__BROKER_DATA__INIT;
    broker.cluster_name = frame_bytes("c", 1);
    broker.broker_name = data.broker_name;
    for (int i = 0; i < 2; i++) {
        if (!fake->listed[i])
            continue;
        tern__wire__broker_address__init(&addresses[broker.n_addresses]);
        addresses[broker.n_addresses].broker_id = i;
        addresses[broker.n_addresses].address =
            frame_bytes(fake->brokers[i].address, strlen(fake->brokers[i].address));
        pointers[broker.n_addresses] = &addresses[broker.n_addresses];
        broker.n_addresses++;
    }
    broker.addresses = pointers;
    Tern__Wire__BrokerData *brokers[] = {&broker};
    Tern__Wire__RouteResponse body = TERN__WIRE__ROUTE_RESPONSE__INIT;
    body.n_queues = 1;
    body.queues = datas;
    body.n_brokers = 1;
    body.brokers = brokers;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_ROUTE;
    response.route = &body;
    rpc_reply(rq, &response, 0);
}

/* @locks holds:mutex */
static inline void fake_text(char *dst, size_t size, const void *bytes, size_t len)
{
    assert_true(len < size);
    memcpy(dst, bytes, len);
    dst[len] = 0;
}

/* A failed message, as a copy. */
static inline void fake_copy(struct fake *fake, struct rpc_request *rq)
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

static inline void fake_check_expression(struct fake *fake, struct rpc_request *rq)
{
    snprintf(fake->checked, sizeof fake->checked, "%s",
             rq->header->check_subscription->subscription->expression);
    if (fake->check_code == TERN_OK)
        rpc_reply_ok(rq);
    else
        rpc_reply_error(rq, fake->check_code, "scripted: not this expression");
}

/* The place of a kind among those that came so far, from 0; -1: it never came. */
static inline int fake_first_place(const struct fake *fake, int32_t kind)
{
    for (unsigned i = 0; i < fake->first_kind_count; i++)
        if (fake->first_kinds[i] == kind)
            return (int)i;
    return -1;
}

static inline void fake_serve_locked(struct fake_node *node, struct rpc_request *rq, bool again)
{
    struct fake *fake = node->fake;
    int32_t kind = (int32_t)rq->header->body_case;
    if (fake_first_place(fake, kind) < 0 && fake->first_kind_count < 32)
        fake->first_kinds[fake->first_kind_count++] = kind;
    switch (rq->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_ROUTE:
        fake_route(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_PULL:
        fake_pull(node, rq, again);
        break;
    case TERN__WIRE__REQUEST__BODY_QUERY_OFFSET:
        fake_query(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_COMMIT_OFFSET:
        fake_commit(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_QUEUE_RANGE:
        fake_range(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_SEARCH_OFFSET:
        fake_search(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_HEARTBEAT:
        fake_heartbeat(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_UNREGISTER_CLIENT:
        fake_leave(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_MEMBERS:
        fake_members(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_WAIT_EVENTS:
        fake_wait_events(node, rq, again);
        break;
    case TERN__WIRE__REQUEST__BODY_SEND:
        fake_copy(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_LOCK_QUEUES:
        fake_lock_queues(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_UNLOCK_QUEUES:
        fake_unlock_queues(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_CHECK_SUBSCRIPTION:
        fake_check_expression(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_SEND_BACK:
        fake->sent_back++;
        fake->sent_back_ns = clock_mono_ns(fake->env.clock);
        fake->last_send_back = *rq->header->send_back;
        if (fake->send_back_code == TERN_OK)
            rpc_reply_ok(rq);
        else
            rpc_reply_error(rq, fake->send_back_code, "scripted");
        break;
    default:
        rpc_reply_error(rq, TERN_NOT_SUPPORTED, "the fake does not know this");
    }
}

/* Also again for what was parked, which user tells. */
static inline void fake_serve(void *arg, struct rpc_request *rq)
{
    struct fake_node *node = arg;
    bool again = rq->user != NULL;
    pthread_mutex_lock(&node->fake->mutex);
    fake_serve_locked(node, rq, again);
    pthread_mutex_unlock(&node->fake->mutex);
}

/* ---- nodes ---- */

static inline void fake_node_up(struct fake_node *node)
{
    struct fake *fake = node->fake;
    if (fake->net)
        node->link = sim_net_link(fake->net, node->host);
    else
        assert_ok(link_nng_create(&fake->env, &node->link, NULL));
    struct rpc_server_options options = {.listen = {.address = node->address,
                                                    .max_message_bytes = 8 << 20,
                                                    .max_peers = 64,
                                                    .max_requests = 4096,
                                                    .max_requests_per_peer = 1024,
                                                    .reply_timeout_ms = 30000},
                                         .arena_budget_bytes = 16 << 20,
                                         .arg = node,
                                         .on_request = fake_serve};
    struct tern_error err;
    if (rpc_server_create(&fake->env, node->link, &options, &node->server, &err) != TERN_OK)
        fail_msg("%s", err.text);
    if (!fake->net)
        snprintf(node->address, sizeof node->address, "127.0.0.1:%u",
                 rpc_server_port(node->server));
}

/* The process dies; what it had promised is forgotten. */
static inline void fake_node_down(struct fake_node *node)
{
    if (node->fake->net)
        sim_net_crash(node->fake->net, node->host);
    pthread_mutex_lock(&node->fake->mutex);
    for (unsigned i = 0; i < FAKE_PARKED; i++) {
        if (node->parked[i])
            rpc_reply_ok(node->parked[i]);
        node->parked[i] = NULL;
    }
    pthread_mutex_unlock(&node->fake->mutex);
    rpc_server_stop(node->server);
    rpc_server_destroy(node->server);
    link_destroy(node->link);
    node->link = NULL;
}

static inline struct fake *fake_make(int queue_count, bool real)
{
    struct fake *fake = calloc(1, sizeof *fake);
    assert_non_null(fake);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&fake->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    static const char *const addresses[] = {FAKE_NAMESRV, "10.0.0.1:10911", "10.0.0.2:10911"};
    static const char *const hosts[] = {"10.0.0.8", "10.0.0.1", "10.0.0.2"};
    struct fake_node *nodes[] = {&fake->namesrv, &fake->brokers[0], &fake->brokers[1]};
    if (real) {
        env_init_system(&fake->env, NULL);
        assert_ok(link_nng_create(&fake->env, &fake->client, NULL));
    } else {
        sim_env_init(&fake->sim, 7);
        fake->env = fake->sim.env;
        fake->net = sim_net_create(&fake->sim);
        fake->client = sim_net_link(fake->net, "10.0.0.9");
    }
    fake->listed[0] = fake->listed[1] = true;
    fake->queue_count = queue_count;
    fake->range_max = -2;
    fake->search_answer = -1;
    fake->queues = calloc(FAKE_QUEUES + 1, sizeof *fake->queues);
    assert_non_null(fake->queues);
    for (int i = 0; i <= FAKE_QUEUES; i++)
        fake->queues[i].committed = fake->queues[i].slave_max = -1;
    for (int i = 0; i < 3; i++) {
        nodes[i]->fake = fake;
        nodes[i]->id = i - 1;
        nodes[i]->host = hosts[i];
        snprintf(nodes[i]->address, sizeof nodes[i]->address, "%s",
                 real ? "127.0.0.1:0" : addresses[i]);
        fake_node_up(nodes[i]);
    }
    return fake;
}

static inline struct fake *fake_create(int queue_count)
{
    return fake_make(queue_count, false);
}

static inline struct fake *fake_create_real(int queue_count)
{
    return fake_make(queue_count, true);
}

/* After all consumers are destroyed. */
static inline void fake_destroy(struct fake *fake)
{
    struct fake_node *nodes[] = {&fake->namesrv, &fake->brokers[0], &fake->brokers[1]};
    for (int i = 0; i < 3; i++)
        if (nodes[i]->link)
            fake_node_down(nodes[i]);
    link_destroy(fake->client);
    if (fake->net) {
        sim_net_destroy(fake->net);
        sim_env_fini(&fake->sim);
    }
    pthread_mutex_destroy(&fake->mutex);
    free(fake->queues);
    free(fake);
}

/* count more messages in the queue; index FAKE_QUEUES is the retry topic's. */
static inline void fake_publish(struct fake *fake, int queue_id, char *tag, int64_t count)
{
    struct fake_queue *queue = &fake->queues[queue_id];
    pthread_mutex_lock(&fake->mutex);
    for (int64_t i = 0; i < count; i++) {
        assert_true(queue->max < FAKE_MESSAGES);
        queue->tags[queue->max++] = tag;
    }
    for (int i = 0; i < 2; i++)
        if (fake->brokers[i].link)
            fake_unpark(&fake->brokers[i], true);
    pthread_mutex_unlock(&fake->mutex);
}

/* From now on all messages have a body of body_size bytes, a tag, and are made by copying. */
static inline void fake_stamp(struct fake *fake, size_t body_size)
{
    uint8_t body[256] = {0};
    assert_true(body_size <= sizeof body);
    struct record record = {.body = body,
                            .body_len = (uint32_t)body_size,
                            .topic = (const uint8_t *)FAKE_TOPIC,
                            .topic_len = 1,
                            .props = (const uint8_t *)"TAGS\x01TagA",
                            .props_len = 9};
    fake->stamped_size = record_encode(fake->stamped, sizeof fake->stamped, &record);
    assert_true(fake->stamped_size > 0);
}

/* Options of a consumer in this world; free with tern_consumer_options_destroy(). */
static inline struct tern_consumer_options *fake_options(struct fake *fake, const char *group,
                                                         const char *name)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    assert_non_null(options);
    assert_ok(tern_consumer_options_namesrv(options, fake->namesrv.address));
    assert_ok(tern_consumer_options_group(options, group));
    assert_ok(tern_consumer_options_instance(options, name));
    tern_consumer_options_world(options, &fake->env, fake->client);
    return options;
}

/* ---- a listener that remembers ---- */

enum { HEARD_MAX = 100000 };

struct heard {
    struct fake *fake;
    unsigned count;
    struct {
        int32_t queue_id;
        int64_t offset;
        int reconsume;
    } items[HEARD_MAX];
    int64_t fail_offset; /* fails this one, -1: none */
    int fail_times;      /* so often; -1: always */
    char topic[128];     /* of the last message */
    size_t largest_batch;
};

static inline enum tern_consume_result
listen_and_remember(void *arg, const struct tern_message *const *messages, size_t count)
{
    struct heard *heard = arg;
    enum tern_consume_result result = TERN_CONSUME_SUCCESS;
    if (count > heard->largest_batch)
        heard->largest_batch = count;
    for (size_t i = 0; i < count; i++) {
        assert_true(heard->count < HEARD_MAX);
        int64_t offset = tern_message_queue_offset(messages[i]);
        heard->items[heard->count].queue_id = tern_message_queue_id(messages[i]);
        heard->items[heard->count].offset = offset;
        heard->items[heard->count++].reconsume = tern_message_reconsume_times(messages[i]);
        snprintf(heard->topic, sizeof heard->topic, "%s", tern_message_topic(messages[i]));
        if (offset == heard->fail_offset && heard->fail_times != 0) {
            heard->fail_times -= heard->fail_times > 0;
            result = TERN_RECONSUME_LATER;
        }
    }
    return result;
}

/* How often an offset of a queue was heard. */
static inline unsigned heard_times(const struct heard *heard, int32_t queue_id, int64_t offset)
{
    unsigned times = 0;
    for (unsigned i = 0; i < heard->count; i++)
        times += heard->items[i].queue_id == queue_id && heard->items[i].offset == offset;
    return times;
}

static inline struct heard *heard_create(struct fake *fake)
{
    struct heard *heard = calloc(1, sizeof *heard);
    assert_non_null(heard);
    heard->fake = fake;
    heard->fail_offset = -1;
    return heard;
}

#endif
