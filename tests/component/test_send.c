/*
 * What a broker does with bad sends: names, queue ids, sizes and records that lie are refused with
 * a code and words, nothing is stored, and the queue's offsets stay without holes.
 */
#include "base/props.h"
#include "base/record.h"
#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

#define CLUSTER_PROPERTY "CLUSTER\001DefaultCluster"

enum { BODY_MAX = 64 << 10, QUEUES = 4, PROPS_MAX = 32767, RECORDS_BYTES = 256 << 10 };

static struct cluster cluster;
static struct wire wire;

static int set_up(void **state)
{
    (void)state;
    cluster_up_alone(&cluster, (const char *const[]){"maxMessageSize=65536",
                                                     "mappedFileSizeCommitLog=4MiB", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@send");
    wire_make_topic(&wire, "T", QUEUES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_close(&wire);
    cluster_down(&cluster);
    return 0;
}

static const struct {
    const char *name;
    size_t len;
} bad_names[] = {
    {"", 0},    {"a/b", 3},  {"..", 2},       {"../../x", 7},
    {".", 1},   {"a\0b", 3}, {"\xff\xfe", 2}, {"\xc3\xa9t\xc3\xa9", 5},
    {"a b", 3}, {"a\nb", 3}, {NULL, 256},
};

/* The n-th bad name; the one that is too long is made here. */
static ProtobufCBinaryData bad_name(size_t n)
{
    static char too_long[256];
    memset(too_long, 'x', sizeof too_long);
    const char *name = bad_names[n].name ? bad_names[n].name : too_long;
    return frame_bytes(name, bad_names[n].len);
}

enum { BAD_NAMES = sizeof bad_names / sizeof bad_names[0] };

/* Asks the same with each bad name in `field` of a request. */
#define EXPECT_NAME_REFUSED(KIND, field, body, name)                                               \
    do {                                                                                           \
        WIRE_REQUEST(request_, KIND, field, &(body));                                              \
        for (size_t n_ = 0; n_ < BAD_NAMES; n_++) {                                                \
            (name) = bad_name(n_);                                                                 \
            wire_expect(&wire, &request_, NULL, 0, CODE(INVALID_REQUEST), NULL);                   \
        }                                                                                          \
    } while (0)

/* SE-02 */
static void bad_topic_names_are_refused_everywhere(void **state)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    Tern__Wire__SendRecordsRequest records = TERN__WIRE__SEND_RECORDS_REQUEST__INIT;
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest update = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    Tern__Wire__DeleteTopicRequest delete = TERN__WIRE__DELETE_TOPIC_REQUEST__INIT;
    Tern__Wire__TopicStatsRequest stats = TERN__WIRE__TOPIC_STATS_REQUEST__INIT;
    Tern__Wire__QueueRangeRequest range = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
    Tern__Wire__SearchOffsetRequest search = TERN__WIRE__SEARCH_OFFSET_REQUEST__INIT;
    Tern__Wire__QueryMessageRequest query = TERN__WIRE__QUERY_MESSAGE_REQUEST__INIT;
    Tern__Wire__PullRequest pull;
    (void)state;
    char queues[DAEMON_PATH_BYTES];
    size_t files = files_below(store_file(&cluster, "consumequeue", queues), "");
    records.count = 1;
    config.read_queues = config.write_queues = 1;
    config.perm = 6;
    update.topic = &config;
    query.key = bytes_of_text("k");
    wire_fill_pull(&pull, "", 0, 0);
    EXPECT_NAME_REFUSED(SEND, send, send, send.topic);
    EXPECT_NAME_REFUSED(SEND_RECORDS, send_records, records, records.topic);
    EXPECT_NAME_REFUSED(UPDATE_TOPIC, update_topic, update, config.name);
    EXPECT_NAME_REFUSED(DELETE_TOPIC, delete_topic, delete, delete.topic);
    EXPECT_NAME_REFUSED(TOPIC_STATS, topic_stats, stats, stats.topic);
    EXPECT_NAME_REFUSED(QUEUE_RANGE, queue_range, range, range.topic);
    EXPECT_NAME_REFUSED(SEARCH_OFFSET, search_offset, search, search.topic);
    EXPECT_NAME_REFUSED(QUERY_MESSAGE, query_message, query, query.topic);
    EXPECT_NAME_REFUSED(PULL, pull, pull, pull.topic);
    assert_int_equal(files_below(queues, ""), files);
}

/* SE-02 */
static void bad_group_names_are_refused_everywhere(void **state)
{
    Tern__Wire__PullRequest pull;
    Tern__Wire__QueryOffsetRequest query = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    Tern__Wire__CommitOffsetRequest commit = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    Tern__Wire__ResetOffsetRequest reset = TERN__WIRE__RESET_OFFSET_REQUEST__INIT;
    Tern__Wire__MembersRequest members = TERN__WIRE__MEMBERS_REQUEST__INIT;
    Tern__Wire__ConsumerConnectionRequest online = TERN__WIRE__CONSUMER_CONNECTION_REQUEST__INIT;
    Tern__Wire__GroupConfig config = TERN__WIRE__GROUP_CONFIG__INIT;
    Tern__Wire__UpdateGroupRequest update = TERN__WIRE__UPDATE_GROUP_REQUEST__INIT;
    Tern__Wire__DeleteGroupRequest delete = TERN__WIRE__DELETE_GROUP_REQUEST__INIT;
    Tern__Wire__ConsumerData data = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__ConsumerData *consumers[] = {&data};
    Tern__Wire__HeartbeatRequest heartbeat = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    (void)state;
    wire_fill_pull(&pull, "T", 0, 0);
    query.topic = reset.topic = bytes_of_text("T");
    update.group = &config;
    heartbeat.consumers = consumers;
    heartbeat.n_consumers = 1;
    EXPECT_NAME_REFUSED(PULL, pull, pull, pull.group);
    EXPECT_NAME_REFUSED(QUERY_OFFSET, query_offset, query, query.group);
    EXPECT_NAME_REFUSED(COMMIT_OFFSET, commit_offset, commit, commit.group);
    EXPECT_NAME_REFUSED(RESET_OFFSET, reset_offset, reset, reset.group);
    EXPECT_NAME_REFUSED(MEMBERS, members, members, members.group);
    EXPECT_NAME_REFUSED(CONSUMER_CONNECTION, consumer_connection, online, online.group);
    EXPECT_NAME_REFUSED(UPDATE_GROUP, update_group, update, config.name);
    EXPECT_NAME_REFUSED(DELETE_GROUP, delete_group, delete, delete.group);
    EXPECT_NAME_REFUSED(HEARTBEAT, heartbeat, heartbeat, data.group);
}

/* SE-02: as its topic, a group's progress and rows would look like another's */
static void group_that_spoofs_a_retry_topic_is_refused(void **state)
{
    static const char *const spoofs[] = {"%RETRY%G", "%DLQ%G", "%RETRY%", "%RETRY%%RETRY%G"};
    Tern__Wire__PullRequest pull;
    Tern__Wire__CommitOffsetRequest commit = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    Tern__Wire__GroupConfig config = TERN__WIRE__GROUP_CONFIG__INIT;
    Tern__Wire__UpdateGroupRequest update = TERN__WIRE__UPDATE_GROUP_REQUEST__INIT;
    Tern__Wire__ConsumerData data = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__ConsumerData *consumers[] = {&data};
    Tern__Wire__HeartbeatRequest heartbeat = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    (void)state;
    wire_fill_pull(&pull, "T", 0, 0);
    update.group = &config;
    heartbeat.consumers = consumers;
    heartbeat.n_consumers = 1;
    for (size_t i = 0; i < sizeof spoofs / sizeof spoofs[0]; i++) {
        pull.group = commit.group = config.name = data.group = bytes_of_text(spoofs[i]);
        WIRE_REQUEST(pulled, PULL, pull, &pull);
        WIRE_REQUEST(committed, COMMIT_OFFSET, commit_offset, &commit);
        WIRE_REQUEST(updated, UPDATE_GROUP, update_group, &update);
        WIRE_REQUEST(beat, HEARTBEAT, heartbeat, &heartbeat);
        wire_expect(&wire, &pulled, NULL, 0, CODE(INVALID_REQUEST), NULL);
        wire_expect(&wire, &committed, NULL, 0, CODE(INVALID_REQUEST), NULL);
        wire_expect(&wire, &updated, NULL, 0, CODE(INVALID_REQUEST), NULL);
        wire_expect(&wire, &beat, NULL, 0, CODE(INVALID_REQUEST), NULL);
    }
}

/* Asks the same with each bad name but the empty one, which has a meaning of its own. */
#define EXPECT_NAME_REFUSED_IF_ANY(KIND, field, body, name)                                        \
    do {                                                                                           \
        WIRE_REQUEST(request_, KIND, field, &(body));                                              \
        for (size_t n_ = 1; n_ < BAD_NAMES; n_++) {                                                \
            (name) = bad_name(n_);                                                                 \
            wire_expect(&wire, &request_, NULL, 0, CODE(INVALID_REQUEST), NULL);                   \
        }                                                                                          \
    } while (0)

/* SE-02: names within what consumers lock, commit, subscribe to and send back */
static void bad_names_within_requests_are_refused(void **state)
{
    Tern__Wire__MessageQueue queue = TERN__WIRE__MESSAGE_QUEUE__INIT;
    Tern__Wire__MessageQueue *queues[] = {&queue};
    Tern__Wire__LockQueuesRequest lock = TERN__WIRE__LOCK_QUEUES_REQUEST__INIT;
    Tern__Wire__UnlockQueuesRequest unlock = TERN__WIRE__UNLOCK_QUEUES_REQUEST__INIT;
    Tern__Wire__SendBackRequest back = TERN__WIRE__SEND_BACK_REQUEST__INIT;
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__CheckSubscriptionRequest check = TERN__WIRE__CHECK_SUBSCRIPTION_REQUEST__INIT;
    Tern__Wire__EndTransactionRequest end = TERN__WIRE__END_TRANSACTION_REQUEST__INIT;
    Tern__Wire__QueryOffsetRequest query = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    Tern__Wire__CommitOffset offset = TERN__WIRE__COMMIT_OFFSET__INIT;
    Tern__Wire__CommitOffset *offsets[] = {&offset};
    Tern__Wire__CommitOffsetRequest commit = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    (void)state;
    lock.queues = unlock.queues = queues;
    lock.n_queues = unlock.n_queues = 1;
    queue.topic = bytes_of_text("T");
    queue.broker_name = bytes_of_text("broker-a");
    EXPECT_NAME_REFUSED(LOCK_QUEUES, lock_queues, lock, lock.group);
    EXPECT_NAME_REFUSED(UNLOCK_QUEUES, unlock_queues, unlock, unlock.group);
    lock.group = query.group = commit.group = check.group = bytes_of_text("G");
    EXPECT_NAME_REFUSED(LOCK_QUEUES, lock_queues, lock, queue.topic);
    EXPECT_NAME_REFUSED(SEND_BACK, send_back, back, back.group);
    check.subscription = &subscription;
    EXPECT_NAME_REFUSED(CHECK_SUBSCRIPTION, check_subscription, check, subscription.topic);
    EXPECT_NAME_REFUSED(END_TRANSACTION, end_transaction, end, end.producer_group);
    EXPECT_NAME_REFUSED(QUERY_OFFSET, query_offset, query, query.topic);
    commit.commits = offsets;
    commit.n_commits = 1;
    EXPECT_NAME_REFUSED(COMMIT_OFFSET, commit_offset, commit, offset.topic);
}

/* SE-02: the same of what administrators name */
static void bad_names_that_administrators_give_are_refused(void **state)
{
    Tern__Wire__ConsumeStatsRequest stats = TERN__WIRE__CONSUME_STATS_REQUEST__INIT;
    Tern__Wire__CloneOffsetsRequest clone = TERN__WIRE__CLONE_OFFSETS_REQUEST__INIT;
    Tern__Wire__ReadQueueRequest read = TERN__WIRE__READ_QUEUE_REQUEST__INIT;
    Tern__Wire__UnregisterClientRequest leave = TERN__WIRE__UNREGISTER_CLIENT_REQUEST__INIT;
    Tern__Wire__ProducerConnectionRequest who = TERN__WIRE__PRODUCER_CONNECTION_REQUEST__INIT;
    (void)state;
    read.max_count = 1;
    EXPECT_NAME_REFUSED_IF_ANY(CONSUME_STATS, consume_stats, stats, stats.group);
    stats.group = bytes_of_text("G");
    EXPECT_NAME_REFUSED_IF_ANY(CONSUME_STATS, consume_stats, stats, stats.topic);
    clone.group = bytes_of_text("G");
    EXPECT_NAME_REFUSED(CLONE_OFFSETS, clone_offsets, clone, clone.source_group);
    clone.source_group = bytes_of_text("G");
    EXPECT_NAME_REFUSED(CLONE_OFFSETS, clone_offsets, clone, clone.group);
    clone.group = bytes_of_text("H");
    EXPECT_NAME_REFUSED_IF_ANY(CLONE_OFFSETS, clone_offsets, clone, clone.topic);
    EXPECT_NAME_REFUSED(READ_QUEUE, read_queue, read, read.topic);
    EXPECT_NAME_REFUSED_IF_ANY(UNREGISTER_CLIENT, unregister_client, leave, leave.producer_group);
    leave.producer_group = frame_bytes("", 0);
    EXPECT_NAME_REFUSED_IF_ANY(UNREGISTER_CLIENT, unregister_client, leave, leave.consumer_group);
    EXPECT_NAME_REFUSED_IF_ANY(PRODUCER_CONNECTION, producer_connection, who, who.group);
}

/* SE-02: an id without sense would stand in logs, tables and JSON; a pull may leave it out */
static void bad_client_ids_are_refused(void **state)
{
    static const char *const ids[] = {"\xff\xfe", "a\nb", "\x1b[31m", "\xc0\x80"};
    Tern__Wire__HeartbeatRequest heartbeat = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    Tern__Wire__WaitEventsRequest wait = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
    Tern__Wire__PullRequest pull;
    char too_long[257] = "";
    (void)state;
    memset(too_long, 'x', 256);
    wire_fill_pull(&pull, "T", 0, 0);
    WIRE_REQUEST(heartbeat_request, HEARTBEAT, heartbeat, &heartbeat);
    WIRE_REQUEST(wait_request, WAIT_EVENTS, wait_events, &wait);
    WIRE_REQUEST(pull_request, PULL, pull, &pull);
    for (size_t i = 0; i <= sizeof ids / sizeof ids[0]; i++) {
        struct wire odd;
        wire_open(&odd, cluster.broker.address, i < sizeof ids / sizeof ids[0] ? ids[i] : too_long);
        wire_expect(&odd, &heartbeat_request, NULL, 0, CODE(INVALID_REQUEST), "client id");
        wire_expect(&odd, &wait_request, NULL, 0, CODE(INVALID_REQUEST), "client id");
        wire_expect(&odd, &pull_request, NULL, 0, CODE(INVALID_REQUEST), "client id");
        wire_close(&odd);
    }
}

/* N-4, NS-03 */
static void unknown_topic_is_refused_and_not_made(void **state)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    Tern__Wire__SendRecordsRequest records = TERN__WIRE__SEND_RECORDS_REQUEST__INIT;
    (void)state;
    send.topic = records.topic = bytes_of_text("Unknown");
    send.default_topic = bytes_of_text("T"); /* no template: it does not inherit */
    records.count = 1;
    WIRE_REQUEST(single, SEND, send, &send);
    WIRE_REQUEST(batch, SEND_RECORDS, send_records, &records);
    for (int i = 0; i < 2; i++) {
        wire_expect(&wire, &single, "x", 1, CODE(TOPIC_NOT_EXIST), "Unknown");
        wire_expect(&wire, &batch, "x", 1, CODE(TOPIC_NOT_EXIST), "Unknown");
    }
    send.properties = bytes_of_text("TRAN_MSG\001true\002PGROUP\001g\002UNIQ_KEY\001u");
    wire_expect(&wire, &single, "x", 1, CODE(TOPIC_NOT_EXIST), "Unknown");
    send.properties = bytes_of_text("DELAY\0013");
    wire_expect(&wire, &single, "x", 1, CODE(TOPIC_NOT_EXIST), "Unknown");
}

static void system_topics_take_no_sends(void **state)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    (void)state;
    send.topic = bytes_of_text("SCHEDULE_TOPIC_XXXX");
    WIRE_REQUEST(request, SEND, send, &send);
    wire_expect(&wire, &request, "x", 1, CODE(NO_PERMISSION), "SCHEDULE_TOPIC_XXXX");
}

static void queue_ids_out_of_range_are_refused(void **state)
{
    static const int32_t ids[] = {QUEUES, -2, INT32_MAX, INT32_MIN};
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    Tern__Wire__SendRecordsRequest records = TERN__WIRE__SEND_RECORDS_REQUEST__INIT;
    Tern__Wire__QueueRangeRequest range = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
    Tern__Wire__SearchOffsetRequest search = TERN__WIRE__SEARCH_OFFSET_REQUEST__INIT;
    Tern__Wire__QueryOffsetRequest query = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    (void)state;
    send.topic = records.topic = range.topic = search.topic = query.topic = bytes_of_text("T");
    query.group = bytes_of_text("G");
    records.count = 1;
    WIRE_REQUEST(single, SEND, send, &send);
    WIRE_REQUEST(batch, SEND_RECORDS, send_records, &records);
    WIRE_REQUEST(range_request, QUEUE_RANGE, queue_range, &range);
    WIRE_REQUEST(search_request, SEARCH_OFFSET, search_offset, &search);
    WIRE_REQUEST(query_request, QUERY_OFFSET, query_offset, &query);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        send.queue_id = records.queue_id = range.queue_id = search.queue_id = query.queue_id =
            ids[i];
        wire_expect(&wire, &single, "x", 1, CODE(INVALID_REQUEST), "out of range");
        wire_expect(&wire, &batch, "x", 1, CODE(INVALID_REQUEST), "out of range");
        wire_expect(&wire, &range_request, NULL, 0, CODE(INVALID_REQUEST), "out of range");
        wire_expect(&wire, &search_request, NULL, 0, CODE(INVALID_REQUEST), "out of range");
        wire_expect(&wire, &query_request, NULL, 0, CODE(INVALID_REQUEST), "out of range");
    }
}

/* ---- sizes ---- */

/* The record at this offset, checked; the call is to be unref'd. */
static struct rpc_call *read_back(const char *topic, int64_t offset, struct record *record)
{
    Tern__Wire__PullRequest pull;
    wire_await_offset(&wire, topic, 0, offset + 1);
    wire_fill_pull(&pull, topic, 0, offset);
    WIRE_REQUEST(request, PULL, pull, &pull);
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_int_equal(
        record_parse(call->payload, call->payload_size, call->payload_size, true, record),
        RECORD_WHOLE);
    assert_int_equal(record->queue_off, offset);
    return call;
}

static void bodies_of_no_and_of_most_bytes_are_kept_and_larger_ones_refused(void **state)
{
    static const size_t sizes[] = {0, 1, BODY_MAX - 1, BODY_MAX, BODY_MAX + 1, 2 * BODY_MAX};
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    int64_t next = 0;
    (void)state;
    char *body = malloc(2 * BODY_MAX);
    assert_non_null(body);
    memset(body, 'b', 2 * BODY_MAX);
    wire_make_topic(&wire, "Bodies", 1);
    send.topic = bytes_of_text("Bodies");
    WIRE_REQUEST(request, SEND, send, &send);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct record record;
        bool fits = sizes[i] <= BODY_MAX;
        wire_expect(&wire, &request, body, sizes[i], fits ? CODE(SUCCESS) : CODE(MESSAGE_ILLEGAL),
                    fits ? NULL : "maxMessageSize");
        if (!fits)
            continue;
        struct rpc_call *call = read_back("Bodies", next++, &record);
        assert_int_equal(record.body_len, sizes[i]);
        rpc_call_unref(call);
    }
    assert_int_equal(wire_max_offset(&wire, "Bodies", 0), next);
    free(body);
}

/* One property P of a given length, so that all together take `len` bytes. */
static void fill_props(char *props, size_t len, const char *head)
{
    size_t head_len = strlen(head);
    memset(props, 'p', len);
    memcpy(props, head, head_len);
    memcpy(props + head_len, "\002P\001", 3);
}

/* ST-16, ST-15: the limit counts what is stored, CLUSTER included */
static void properties_at_the_limit_are_kept_and_larger_ones_refused(void **state)
{
    static const size_t stored[] = {PROPS_MAX - 1, PROPS_MAX, PROPS_MAX + 1, 65535, 65536, 70000};
    static char props[70000];
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    int64_t next = 0;
    (void)state;
    wire_make_topic(&wire, "Props", 1);
    send.topic = bytes_of_text("Props");
    WIRE_REQUEST(request, SEND, send, &send);
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        struct record record;
        bool fits = stored[i] <= PROPS_MAX;
        size_t len = stored[i] - strlen("\002" CLUSTER_PROPERTY);
        fill_props(props, len, "KEYS\001k");
        send.properties = frame_bytes(props, len);
        wire_expect(&wire, &request, "x", 1, fits ? CODE(SUCCESS) : CODE(MESSAGE_ILLEGAL),
                    fits ? NULL : "32767");
        if (!fits)
            continue;
        struct rpc_call *call = read_back("Props", next++, &record);
        assert_int_equal(record.props_len, stored[i]);
        assert_memory_equal(record.props, props, len);
        rpc_call_unref(call);
    }
    assert_int_equal(wire_max_offset(&wire, "Props", 0), next);
}

/* ---- records ---- */

/* A record as a client prepares it. */
static size_t prepare(uint8_t *out, const char *topic, const char *body, const char *props,
                      size_t props_len)
{
    struct record fields = {.body = (const uint8_t *)body,
                            .body_len = (uint32_t)strlen(body),
                            .topic = (const uint8_t *)topic,
                            .topic_len = (uint8_t)strlen(topic),
                            .props = (const uint8_t *)props,
                            .props_len = (uint16_t)props_len};
    size_t size = record_encode(out, RECORDS_BYTES, &fields);
    assert_true(size > 0);
    return size;
}

static size_t prepare_plain(uint8_t *out, const char *topic, const char *body)
{
    return prepare(out, topic, body, CLUSTER_PROPERTY, strlen(CLUSTER_PROPERTY));
}

static void send_records(const char *topic, uint32_t count, const uint8_t *records, size_t size,
                         int32_t code, const char *words)
{
    Tern__Wire__SendRecordsRequest body = TERN__WIRE__SEND_RECORDS_REQUEST__INIT;
    body.topic = bytes_of_text(topic);
    body.count = count;
    WIRE_REQUEST(request, SEND_RECORDS, send_records, &body);
    wire_expect(&wire, &request, records, size, code, words);
}

/* ST-16: the batch path checks too */
static void properties_of_records_are_kept_up_to_the_limit(void **state)
{
    static char props[PROPS_MAX + 1];
    uint8_t *records = malloc(RECORDS_BYTES);
    struct record record;
    (void)state;
    assert_non_null(records);
    wire_make_topic(&wire, "BatchProps", 1);
    fill_props(props, PROPS_MAX, CLUSTER_PROPERTY);
    size_t size = prepare(records, "BatchProps", "x", props, PROPS_MAX);
    send_records("BatchProps", 1, records, size, CODE(SUCCESS), NULL);
    struct rpc_call *call = read_back("BatchProps", 0, &record);
    assert_int_equal(record.props_len, PROPS_MAX);
    rpc_call_unref(call);
    /* One byte more: the length field gets its sign bit. */
    uint8_t *end = records + size;
    end[-PROPS_MAX - 2] = 0x80;
    end[-PROPS_MAX - 1] = 0x00;
    *end = 'p';
    records[2] = (uint8_t)((size + 1) >> 8);
    records[3] = (uint8_t)(size + 1);
    send_records("BatchProps", 1, records, size + 1, CODE(MESSAGE_ILLEGAL), "no record");
    assert_int_equal(wire_max_offset(&wire, "BatchProps", 0), 1);
    free(records);
}

/* What is too large says how large it is, and may be */
static void record_with_too_large_a_body_names_the_limit(void **state)
{
    char *body = calloc(1, BODY_MAX + 2);
    uint8_t *records = malloc(RECORDS_BYTES);
    (void)state;
    assert_non_null(body);
    assert_non_null(records);
    wire_make_topic(&wire, "LargeRecord", 1);
    memset(body, 'b', BODY_MAX + 1);
    size_t size = prepare_plain(records, "LargeRecord", body);
    send_records("LargeRecord", 1, records, size, CODE(MESSAGE_ILLEGAL),
                 "a body of 65537 bytes is above maxMessageSize 65536");
    assert_int_equal(wire_max_offset(&wire, "LargeRecord", 0), 0);
    free(body);
    free(records);
}

/* Batch atomicity; ST-15: no offset is used up by what is refused */
static void batch_with_one_bad_record_stores_nothing(void **state)
{
    uint8_t *records = malloc(RECORDS_BYTES);
    (void)state;
    assert_non_null(records);
    wire_make_topic(&wire, "Batch", 1);
    size_t first = prepare_plain(records, "Batch", "one");
    size_t second = first + prepare_plain(records + first, "Batch", "two");
    size_t third = second + prepare_plain(records + second, "T", "three");
    send_records("Batch", 3, records, third, CODE(MESSAGE_ILLEGAL), "record 2");
    assert_int_equal(wire_max_offset(&wire, "Batch", 0), 0);
    send_records("Batch", 2, records, second, CODE(SUCCESS), NULL);
    wire_await_offset(&wire, "Batch", 0, 2);
    assert_int_equal(wire_send(&wire, "Batch", 0, "next", NULL), 2);
    free(records);
}

static void records_whose_lengths_lie_are_refused(void **state)
{
    static const struct {
        size_t at;     /* which byte */
        uint8_t value; /* becomes what */
        const char *what;
    } lies[] = {
        {0, 0x7f, "totalSize huge"},   {0, 0xff, "totalSize negative"},
        {3, 1, "totalSize tiny"},      {4, 0, "magic"},
        {36, 0xff, "sysFlag"},         {80, 1, "prepared offset"},
        {84, 0x7f, "bodyLength huge"}, {84, 0xff, "bodyLength negative"},
        {87, 0, "bodyLength short"},   {91, 0xff, "topicLength"},
    };
    uint8_t *records = malloc(RECORDS_BYTES);
    (void)state;
    assert_non_null(records);
    wire_make_topic(&wire, "Lies", 1);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        size_t size = prepare_plain(records, "Lies", "xyz");
        records[lies[i].at] = lies[i].value;
        send_records("Lies", 1, records, size, CODE(MESSAGE_ILLEGAL), "record 0");
    }
    size_t size = prepare_plain(records, "Lies", "xyz");
    send_records("Lies", 0, records, size, CODE(MESSAGE_ILLEGAL), "count 0");
    send_records("Lies", 2, records, size, CODE(MESSAGE_ILLEGAL), "count 2");
    send_records("Lies", UINT32_MAX, records, size, CODE(MESSAGE_ILLEGAL), "count");
    send_records("Lies", 1, records, size - 1, CODE(MESSAGE_ILLEGAL), NULL);
    send_records("Lies", 1, records, size + 9, CODE(MESSAGE_ILLEGAL), "payload");
    send_records("Lies", 1, NULL, 0, CODE(MESSAGE_ILLEGAL), NULL);
    assert_int_equal(wire_max_offset(&wire, "Lies", 0), 0);
    free(records);
}

static void properties_that_ask_for_what_is_not_offered_are_refused(void **state)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    (void)state;
    send.topic = bytes_of_text("T");
    WIRE_REQUEST(request, SEND, send, &send);
    send.properties = bytes_of_text("TRAN_MSG\001true");
    wire_expect(&wire, &request, "x", 1, CODE(MESSAGE_ILLEGAL), "PGROUP");
    send.properties = bytes_of_text("TRAN_MSG\001true\002PGROUP\001g g");
    wire_expect(&wire, &request, "x", 1, CODE(MESSAGE_ILLEGAL), "PGROUP");
    send.properties = bytes_of_text("TRAN_MSG\001true\002PGROUP\001g\002TIMER_DELAY_MS\0015");
    wire_expect(&wire, &request, "x", 1, CODE(MESSAGE_ILLEGAL), "delayed");
    send.properties = frame_bytes("A\001b\0c", 5);
    wire_expect(&wire, &request, "x", 1, CODE(MESSAGE_ILLEGAL), "NUL");
    send.properties = bytes_of_text("");
    send.sys_flag = SYS_TX_PREPARED;
    wire_expect(&wire, &request, "x", 1, CODE(MESSAGE_ILLEGAL), "sys_flag");
    send.sys_flag = 0;
    send.reconsume_times = -1;
    wire_expect(&wire, &request, "x", 1, CODE(MESSAGE_ILLEGAL), "reconsume");
}

/* ---- creating by sending ---- */

/* NS-03, N-4: on, it takes the template's queues and rights, whichever way the first send comes */
static void sending_creates_the_topic_where_that_is_allowed(void **state)
{
    struct cluster own;
    struct wire to;
    uint8_t records[512];
    Tern__Wire__SendRecordsRequest batch = TERN__WIRE__SEND_RECORDS_REQUEST__INIT;
    Tern__Wire__SendRequest single = TERN__WIRE__SEND_REQUEST__INIT;
    (void)state;
    cluster_up(&own, (const char *const[]){"autoCreateTopicEnable=true", NULL});
    wire_open(&to, own.broker.address, "127.0.0.1@auto");
    assert_int_equal(wire_send(&to, "BySingle", 3, "x", NULL), 0);
    batch.topic = bytes_of_text("ByBatch");
    batch.count = 1;
    size_t size = prepare_plain(records, "ByBatch", "x");
    WIRE_REQUEST(request, SEND_RECORDS, send_records, &batch);
    wire_expect(&to, &request, records, size, CODE(SUCCESS), NULL);
    single.topic = bytes_of_text("BySingle");
    single.queue_id = 4; /* one beyond the four it was made with */
    WIRE_REQUEST(beyond, SEND, send, &single);
    wire_expect(&to, &beyond, "x", 1, CODE(INVALID_REQUEST), "out of range");
    free(MQADMIN(&own, 0, "topicRoute", "-t", "ByBatch"));
    free(MQADMIN(&own, 0, "sendMessage", "-t", "ByTool", "-p", "x"));
    wire_close(&to);
    cluster_down(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_topic_names_are_refused_everywhere),
        cmocka_unit_test(bad_group_names_are_refused_everywhere),
        cmocka_unit_test(group_that_spoofs_a_retry_topic_is_refused),
        cmocka_unit_test(bad_names_within_requests_are_refused),
        cmocka_unit_test(bad_names_that_administrators_give_are_refused),
        cmocka_unit_test(bad_client_ids_are_refused),
        cmocka_unit_test(unknown_topic_is_refused_and_not_made),
        cmocka_unit_test(system_topics_take_no_sends),
        cmocka_unit_test(queue_ids_out_of_range_are_refused),
        cmocka_unit_test(bodies_of_no_and_of_most_bytes_are_kept_and_larger_ones_refused),
        cmocka_unit_test(properties_at_the_limit_are_kept_and_larger_ones_refused),
        cmocka_unit_test(properties_of_records_are_kept_up_to_the_limit),
        cmocka_unit_test(record_with_too_large_a_body_names_the_limit),
        cmocka_unit_test(batch_with_one_bad_record_stores_nothing),
        cmocka_unit_test(records_whose_lengths_lie_are_refused),
        cmocka_unit_test(properties_that_ask_for_what_is_not_offered_are_refused),
        cmocka_unit_test(sending_creates_the_topic_where_that_is_allowed),
    };
    return cmocka_run_group_tests_name("send", tests, set_up, tear_down);
}
