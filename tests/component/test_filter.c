/*
 * Filtering by SQL92 against real daemons: by the wire, by the library and by mqadmin (F-1, F-2,
 * F-6, R-2, R-9), and rare tags (OF-13, OF-14).
 */
#include <pthread.h>

#include <tern/tern.h>

#include "base/record.h"
#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { MESSAGES = 100, LONG_POLL_MS = 20000 };

static struct cluster cluster;
static struct wire wire;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=64MiB",
                                               "flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@filter");
    wire_make_topic(&wire, "T", 4);
    for (int i = 0; i < MESSAGES; i++) {
        char props[64];
        snprintf(props, sizeof props, "n\001%d\002region\001%s", i, i % 2 ? "eu" : "us");
        assert_int_equal(wire_send(&wire, "T", 0, "body", props), i);
    }
    wire_await_offset(&wire, "T", 0, MESSAGES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_close(&wire);
    cluster_down(&cluster);
    return 0;
}

static void fill_sql(Tern__Wire__PullRequest *pull, int32_t queue_id, const char *condition)
{
    wire_fill_pull(pull, "T", queue_id, 0);
    pull->expression = (char *)(uintptr_t)condition;
    pull->expression_type = (char *)(uintptr_t) "SQL92";
}

/* F-1, F-2 */
static void condition_chooses_messages_and_moves_by_what_was_scanned(void **state)
{
    struct record record;
    Tern__Wire__PullRequest pull;
    (void)state;
    fill_sql(&pull, 0, "n BETWEEN 10 AND 19 AND region = 'eu'");
    WIRE_REQUEST(request, PULL, pull, &pull);
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_int_equal(call->response->pull->count, 5);
    assert_int_equal(call->response->pull->next_offset, MESSAGES);
    assert_int_equal(
        record_parse(call->payload, call->payload_size, call->payload_size, true, &record),
        RECORD_WHOLE);
    assert_int_equal(record.queue_off, 11);
    rpc_call_unref(call);
    pull.expression = (char *)(uintptr_t) "absent = 1";
    call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(PULL_RETRY_IMMEDIATELY));
    assert_int_equal(call->response->pull->next_offset, MESSAGES);
    rpc_call_unref(call);
}

/* only what matches wakes it; what does not still moves it on */
static void waiting_pull_is_woken_by_what_fulfils_its_condition(void **state)
{
    Tern__Wire__PullRequest pull;
    struct wire_pending pending;
    struct record record;
    (void)state;
    fill_sql(&pull, 1, "wanted = TRUE");
    pull.suspend_timeout_ms = LONG_POLL_MS;
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_start(&wire, &request, &pending);
    wire_await_status(&wire, "parkedPulls", 1);
    for (int i = 0; i < 5; i++)
        wire_send(&wire, "T", 1, "no", "wanted\001false");
    assert_false(wire_wait(&pending, 100));
    assert_int_equal(wire_status(&wire, "parkedPulls"), 1);
    wire_send(&wire, "T", 1, "yes", "wanted\001true");
    assert_true(wire_wait(&pending, LONG_POLL_MS / 2));
    assert_int_equal(pending.call->response->code, CODE(SUCCESS));
    assert_int_equal(pending.call->response->pull->count, 1);
    assert_int_equal(pending.call->response->pull->next_offset, 6);
    assert_int_equal(record_parse(pending.call->payload, pending.call->payload_size,
                                  pending.call->payload_size, true, &record),
                     RECORD_WHOLE);
    assert_int_equal(record.queue_off, 5);
    rpc_call_unref(pending.call);
    pull.offset = 6;
    pull.suspend_timeout_ms = 300;
    wire_start(&wire, &request, &pending);
    wire_await_status(&wire, "parkedPulls", 1);
    wire_send(&wire, "T", 1, "no", "wanted\001false");
    assert_true(wire_wait(&pending, LONG_POLL_MS / 2));
    assert_int_equal(pending.call->response->code, CODE(PULL_RETRY_IMMEDIATELY));
    assert_int_equal(pending.call->response->pull->next_offset, 7);
    rpc_call_unref(pending.call);
}

/* 23, 27, 28 and the condition that the heartbeat told */
static void pull_without_its_condition_relies_on_the_heartbeat(void **state)
{
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__Subscription *subscriptions[] = {&subscription};
    Tern__Wire__ConsumerData data = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__ConsumerData *consumers[] = {&data};
    Tern__Wire__HeartbeatRequest heartbeat = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    Tern__Wire__PullRequest pull;
    (void)state;
    subscription.topic = bytes_of_text("T");
    subscription.expression = (char *)(uintptr_t) "n < 10";
    subscription.version = 7;
    data.group = bytes_of_text("Beating");
    data.subscriptions = subscriptions;
    data.n_subscriptions = 1;
    heartbeat.consumers = consumers;
    heartbeat.n_consumers = 1;
    WIRE_REQUEST(beat, HEARTBEAT, heartbeat, &heartbeat);
    wire_expect(&wire, &beat, NULL, 0, CODE(SUCCESS), NULL); /* "n < 10": a tag */
    fill_sql(&pull, 0, "");
    pull.has_subscription = false;
    pull.group = data.group;
    pull.subscription_version = 8;
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_expect(&wire, &request, NULL, 0, CODE(FILTER_DATA_NOT_EXIST), "no SQL92 expression");
    subscription.expression_type = (char *)(uintptr_t) "SQL92";
    wire_expect(&wire, &beat, NULL, 0, CODE(SUCCESS), NULL);
    wire_expect(&wire, &request, NULL, 0, CODE(FILTER_DATA_NOT_LATEST), "version 7");
    pull.subscription_version = 7;
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_int_equal(call->response->pull->count, 10);
    rpc_call_unref(call);
    subscription.expression = (char *)(uintptr_t) "n <";
    wire_expect(&wire, &beat, NULL, 0, CODE(SUBSCRIPTION_PARSE_FAILED), "topic T");
}

static void conditions_can_be_switched_off(void **state)
{
    struct cluster own;
    struct wire to;
    Tern__Wire__PullRequest pull;
    (void)state;
    cluster_up_alone(&own, (const char *const[]){"enablePropertyFilter=false", NULL});
    wire_open(&to, own.broker.address, "127.0.0.1@off");
    wire_make_topic(&to, "T", 1);
    fill_sql(&pull, 0, "a = 1");
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_expect(&to, &request, NULL, 0, CODE(REQUEST_CODE_NOT_SUPPORTED),
                "The broker does not support consumer to filter message by SQL92");
    wire_close(&to);
    cluster_down(&own);
}

/* ---- the library and the tools ---- */

struct inbox {
    pthread_mutex_t lock;
    size_t count;
    bool wrong;
};

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct inbox *inbox = arg;
    pthread_mutex_lock(&inbox->lock);
    for (size_t i = 0; i < count; i++) {
        const char *region = tern_message_property(messages[i], "region");
        inbox->wrong = inbox->wrong || !region || strcmp(region, "eu") != 0;
    }
    inbox->count += count;
    pthread_mutex_unlock(&inbox->lock);
    return TERN_CONSUME_SUCCESS;
}

/* F-2, F-6 */
static void member_gets_what_fulfils_its_condition_and_progress_shows_the_rest(void **state)
{
    struct inbox inbox = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer;
    struct tern_error err = {.text = ""};
    (void)state;
    assert_ok(tern_consumer_options_namesrv(options, cluster.namesrv_list));
    assert_ok(tern_consumer_options_group(options, "sql-group"));
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    assert_ok(tern_push_consumer_create(options, &consumer, &err));
    assert_int_equal(tern_push_consumer_subscribe_sql(consumer, "T", "region == 'eu'", &err),
                     TERN_SUBSCRIPTION_PARSE_FAILED);
    assert_contains(err.text, "position 7");
    assert_int_equal(tern_push_consumer_subscribe_sql(consumer, "T", NULL, &err),
                     TERN_SUBSCRIPTION_PARSE_FAILED);
    assert_ok(tern_push_consumer_subscribe_sql(consumer, "T", "region = 'eu'", &err));
    assert_ok(tern_push_consumer_listener(consumer, on_messages, &inbox));
    assert_ok(tern_push_consumer_start(consumer, &err));
    size_t count = 0;
    for (int64_t begin = now_ms(); count < MESSAGES / 2 && now_ms() - begin < PATIENCE_MS;) {
        look_again_soon();
        pthread_mutex_lock(&inbox.lock);
        count = inbox.count;
        pthread_mutex_unlock(&inbox.lock);
    }
    assert_ok(tern_push_consumer_shutdown(consumer, PATIENCE_MS));
    tern_push_consumer_destroy(consumer);
    tern_consumer_options_destroy(options);
    assert_int_equal(inbox.count, MESSAGES / 2);
    assert_false(inbox.wrong);
    char *progress =
        MQADMIN(&cluster, 0, "consumerProgress", "-g", "sql-group", "-t", "T", "--json");
    assert_contains(progress, "\"expression\": \"region = 'eu'\"");
    assert_contains(progress, "\"scanned\": 100");
    assert_contains(progress, "\"delivered\": 50");
    assert_contains(progress, "\"filtered\": 50");
    assert_contains(progress, "\"consumerOffset\": 100");
    free(progress);
}

/* Fills the queue with messages without a tag. */
static void fill(const char *topic, const char *count)
{
    struct tool tool;
    tool_run(&tool, "mqbench",
             (const char *const[]){"produce", "-n", cluster.namesrv_list, "-t", topic, "--queues",
                                   "1", "--size", "16", "--mode", "batch", "--count", count, NULL},
             NULL, 0);
    if (tool.status != 0)
        fail_msg("mqbench: exit status %d: %s", tool.status, tool.err);
    tool_free(&tool);
}

static int64_t scanned_so_far(const char *group, const char *topic)
{
    char *progress = MQADMIN(&cluster, 0, "consumerProgress", "-g", group, "-t", topic, "--json");
    const char *at = strstr(progress, "\"scanned\": ");
    int64_t scanned = at ? strtoll(at + strlen("\"scanned\": "), NULL, 10) : -1;
    free(progress);
    return scanned;
}

enum {
    NEEDLES = 10,
    APART = 100000, /* messages between two of them, or some more: whole batches */
    SHORT = 1024,   /* what one pull scans at most */
    AT_ONCE = 32
};

static void start_rare_pull(int64_t offset, struct wire_pending *pending)
{
    Tern__Wire__PullRequest pull;
    wire_fill_pull(&pull, "Rare", 0, offset);
    pull.expression = (char *)(uintptr_t) "Rare";
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_start(&wire, &request, pending);
}

/* Answers how many matches it brought; its scan was short. */
static int32_t end_rare_pull(int64_t offset, struct wire_pending *pending)
{
    assert_true(wire_wait(pending, PATIENCE_MS));
    const Tern__Wire__PullResponse *body = pending->call->response->pull;
    int32_t found = pending->call->response->code == CODE(SUCCESS) ? body->count : 0;
    if (!found)
        assert_int_equal(pending->call->response->code, CODE(PULL_RETRY_IMMEDIATELY));
    assert_in_range(body->next_offset, offset + 1, offset + SHORT);
    rpc_call_unref(pending->call);
    return found;
}

/* Another reader's pull, which does not wait for those. */
static void pull_beside(void)
{
    Tern__Wire__PullRequest pull;
    wire_fill_pull(&pull, "T", 0, 0);
    WIRE_REQUEST(request, PULL, pull, &pull);
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_int_equal(call->response->pull->count, 32);
    rpc_call_unref(call);
}

/* From everywhere before a match, and just before it, all at once; others' pulls among them. */
static void check_each_pull_is_short(int64_t needle)
{
    static struct wire_pending pending[AT_ONCE];
    const int64_t step = (APART - SHORT) / (AT_ONCE - 1);
    const int64_t first = needle - APART + 1;
    for (int64_t i = 0; i < AT_ONCE - 1; i++)
        start_rare_pull(first + i * step, &pending[i]);
    start_rare_pull(needle - SHORT / 2, &pending[AT_ONCE - 1]);
    pull_beside();
    for (int64_t i = 0; i < AT_ONCE - 1; i++)
        assert_int_equal(end_rare_pull(first + i * step, &pending[i]), 0);
    assert_int_equal(end_rare_pull(needle - SHORT / 2, &pending[AT_ONCE - 1]), 1);
}

/* OF-13: one match in 100,000 of a million is found in time, by many short pulls and none that
 * keeps others waiting; OF-14: what was passed is not scanned again */
static void rare_tag_is_found_by_many_short_pulls(void **state)
{
    int64_t needles[NEEDLES];
    (void)state;
    for (int i = 0; i < NEEDLES; i++) {
        fill("Rare", "100000");
        needles[i] = wire_send(&wire, "Rare", 0, "needle", "TAGS\001Rare");
    }
    int64_t end = needles[NEEDLES - 1] + 1;
    wire_await_offset(&wire, "Rare", 0, end);
    for (int i = 0; i < NEEDLES; i++)
        check_each_pull_is_short(needles[i]);
    int64_t begin = now_ms();
    char *found = MQADMIN(&cluster, 0, "consumeMessage", "-t", "Rare", "-g", "rare", "--expr",
                          "Rare", "--from", "first", "--idle-exit", "3000", "--body-only");
    int64_t took_ms = now_ms() - begin;
    assert_string_equal(found, "needle\nneedle\nneedle\nneedle\nneedle\n"
                               "needle\nneedle\nneedle\nneedle\nneedle\n");
    print_message("%lld messages, %d matches: read in %lld ms, 3000 of them idle\n", (long long)end,
                  NEEDLES, (long long)took_ms);
    assert_true(took_ms < PATIENCE_MS);
    free(found);
    char *progress = MQADMIN(&cluster, 0, "consumerProgress", "-g", "rare", "-t", "Rare");
    assert_contains(progress, "Diff Total: 0");
    free(progress);
    int64_t scanned = scanned_so_far("rare", "Rare");
    /* A match that is still being worked on holds the window: what does not fit in is asked for
     * again, once for each at most. */
    assert_in_range(scanned, end, end + NEEDLES * SHORT);
    free(MQADMIN(&cluster, 0, "consumeMessage", "-t", "Rare", "-g", "rare", "--expr", "Rare",
                 "--idle-exit", "1500"));
    assert_true(scanned_so_far("rare", "Rare") - scanned < SHORT);
}

/* a member is told at its start that no broker will evaluate its condition */
static void start_fails_with_the_brokers_words_where_conditions_are_off(void **state)
{
    struct cluster own;
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer;
    struct inbox inbox = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct tern_error err = {.text = ""};
    (void)state;
    cluster_up(&own, (const char *const[]){"enablePropertyFilter=false", NULL});
    free(MQADMIN(&own, 0, "updateTopic", "-c", "DefaultCluster", "-t", "T"));
    assert_ok(tern_consumer_options_namesrv(options, own.namesrv_list));
    assert_ok(tern_consumer_options_group(options, "hopeful"));
    assert_ok(tern_push_consumer_create(options, &consumer, &err));
    assert_ok(tern_push_consumer_subscribe_sql(consumer, "T", "region = 'eu'", &err));
    assert_ok(tern_push_consumer_listener(consumer, on_messages, &inbox));
    assert_int_equal(tern_push_consumer_start(consumer, &err), TERN_NOT_SUPPORTED);
    assert_contains(err.text, "enablePropertyFilter");
    tern_push_consumer_destroy(consumer);
    tern_consumer_options_destroy(options);
    cluster_down(&own);
}

static void tool_prints_what_fulfils_a_condition(void **state)
{
    (void)state;
    char *out = MQADMIN(&cluster, 0, "consumeMessage", "-t", "T", "--sql", "n IN ('3', '5')",
                        "--body-only", "--count", "2");
    assert_string_equal(out, "body\nbody\n");
    free(out);
    free(MQADMIN(&cluster, 1, "consumeMessage", "-t", "T", "--sql", "n >", "--count", "1"));
    free(MQADMIN(&cluster, 2, "consumeMessage", "-t", "T", "--sql", "a", "--expr", "b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(condition_chooses_messages_and_moves_by_what_was_scanned),
        cmocka_unit_test(waiting_pull_is_woken_by_what_fulfils_its_condition),
        cmocka_unit_test(pull_without_its_condition_relies_on_the_heartbeat),
        cmocka_unit_test(conditions_can_be_switched_off),
        cmocka_unit_test(member_gets_what_fulfils_its_condition_and_progress_shows_the_rest),
        cmocka_unit_test(rare_tag_is_found_by_many_short_pulls),
        cmocka_unit_test(start_fails_with_the_brokers_words_where_conditions_are_off),
        cmocka_unit_test(tool_prints_what_fulfils_a_condition),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
