/* Progress on the wire: asking, committing, resetting; and what is said of queues and groups. */
#include "tests/unit/broker/broker_unit.h"

#include <errno.h>

#include "broker/ack_wait.h"
#include "broker/handlers/handlers.h"
#include "broker/set_tables.h"
#include "tests/unit/broker/fake_broker.h"

static int setup(void **state)
{
    (void)state;
    fake_broker_begin();
    fake_broker_topic("T", 2);
    fake_broker_queue("T", 0, 100, 1000);
    fake_broker_queue("T", 1, 0, 50);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_broker_end();
    return 0;
}

/* ---- asking ---- */

static struct fake_request *query(const char *group, const char *topic, int32_t queue_id)
{
    static Tern__Wire__QueryOffsetRequest body;
    struct fake_request *request = fake_call("c", 1);
    tern__wire__query_offset_request__init(&body);
    body.group = NAME(group);
    body.topic = NAME(topic);
    body.queue_id = queue_id;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_QUERY_OFFSET;
    request->header.query_offset = &body;
    fake_run(request, handle_query_offset);
    return request;
}

static struct fake_request *commit(const char *group, const char *topic, int32_t queue_id,
                                   int64_t offset, uint64_t counter)
{
    static Tern__Wire__CommitOffsetRequest body;
    static Tern__Wire__CommitOffset one;
    static Tern__Wire__CommitOffset *all[] = {&one};
    static Tern__Wire__OffsetVersion version;
    struct fake_request *request = fake_call("c", 1);
    tern__wire__commit_offset_request__init(&body);
    tern__wire__commit_offset__init(&one);
    tern__wire__offset_version__init(&version);
    version.counter = counter;
    one.topic = NAME(topic);
    one.queue_id = queue_id;
    one.offset = offset;
    one.version = &version;
    body.group = NAME(group);
    body.commits = all;
    body.n_commits = 1;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_COMMIT_OFFSET;
    request->header.commit_offset = &body;
    fake_run(request, handle_commit_offset);
    return request;
}

static void no_progress_is_told_apart_from_failures_OF_04(void **state)
{
    (void)state;
    struct fake_request *none = query("G", "T", 0);
    assert_int_equal(fake_request_code(none), TERN__WIRE__CODE__QUERY_NOT_FOUND);
    assert_non_null(none->response->query_offset->version);
    assert_int_equal(fake_request_code(query("G", "absent", 0)), TERN__WIRE__CODE__TOPIC_NOT_EXIST);
    assert_int_equal(fake_request_code(query("G", "T", 2)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(query("", "T", 0)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 500, 0)), 0);
    struct fake_request *some = query("G", "T", 0);
    assert_int_equal(fake_request_code(some), 0);
    assert_int_equal(some->response->query_offset->offset, 500);
}

/* ---- committing ---- */

static void lower_commit_succeeds_and_changes_nothing_OF_11(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 500, 0)), 0);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 400, 0)), 0);
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 500);
}

static void commit_beyond_the_end_is_refused_with_the_end(void **state)
{
    (void)state;
    struct fake_request *request = commit("G", "T", 0, 1001, 0);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_contains(fake_remark(request), "ends at 1000");
    assert_int_equal(fake_request_code(query("G", "T", 0)), TERN__WIRE__CODE__QUERY_NOT_FOUND);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 1000, 0)), 0);
}

static void impossible_commits_are_refused(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, -1, 0)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("G", "T", -1, 1, 0)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("G", "T", 65536, 1, 0)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("G", "T", 7, 1, 0)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("G", "../x", 0, 1, 0)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("a/b", "T", 0, 1, 0)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 1, UINT64_MAX)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(commit("G", "gone", 0, 1, 0)),
                     TERN__WIRE__CODE__TOPIC_NOT_EXIST);
}

static void commit_of_an_older_version_learns_what_is_held(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 500, 0)), 0);
    assert_ok(offsets_reset(fake.broker.offsets, "G", "T", 0, 200));
    struct fake_request *request = commit("G", "T", 0, 600, 0);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__OFFSET_VERSION_OLD);
    assert_int_equal(request->response->commit_offset->n_refused, 1);
    const Tern__Wire__CommitOffset *held = request->response->commit_offset->refused[0];
    assert_int_equal(held->offset, 200);
    assert_int_equal(held->version->counter, 1);
    assert_int_equal(held->topic.len, 1);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 201, 1)), 0);
}

static void group_that_commits_becomes_durable(void **state)
{
    (void)state;
    struct group_config config;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 500, 0)), 0);
    fake_broker_restart();
    assert_true(groups_find(fake.broker.groups, "G", 1, &config));
}

/* ---- resetting ---- */

static struct fake_request *reset(int32_t queue_id, int64_t offset, int64_t store_ms, bool dry_run)
{
    static Tern__Wire__ResetOffsetRequest body;
    struct fake_request *request = fake_call("", 1);
    tern__wire__reset_offset_request__init(&body);
    body.group = NAME("G");
    body.topic = NAME("T");
    body.queue_id = queue_id;
    body.dry_run = dry_run;
    if (offset >= 0) {
        body.target_case = TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_OFFSET;
        body.offset = offset;
    } else {
        body.target_case = TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_STORE_MS;
        body.store_ms = store_ms;
    }
    request->header.body_case = TERN__WIRE__REQUEST__BODY_RESET_OFFSET;
    request->header.reset_offset = &body;
    fake_run(request, handle_reset_offset);
    return request;
}

static void expect_reset(const struct fake_request *request, size_t index, int64_t old, int64_t new)
{
    assert_int_equal(fake_request_code(request), 0);
    assert_true(index < request->response->reset_offset->n_queues);
    const Tern__Wire__ResetQueue *queue = request->response->reset_offset->queues[index];
    assert_int_equal(queue->old_offset, old);
    assert_int_equal(queue->new_offset, new);
}

static void offline_group_is_reset_by_time_and_told_each_offset_OF_08(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    struct fake_request *request = reset(-1, -1, FAKE_FIRST_MS + 300 * FAKE_STEP_MS, false);
    assert_int_equal(request->response->reset_offset->n_queues, 2);
    expect_reset(request, 0, 900, 300);
    expect_reset(request, 1, -1, 50); /* its last message is older: the end */
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 300);
    fake_broker_restart(); /* it was durable when it was answered */
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 300);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 950, 0)),
                     TERN__WIRE__CODE__OFFSET_VERSION_OLD);
}

static void time_in_the_future_and_minus_one_mean_the_end(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    expect_reset(reset(0, -1, INT64_C(9999999999999), false), 0, 900, 1000);
    expect_reset(reset(0, 200, 0, false), 0, 1000, 200);
    expect_reset(reset(0, -1, -1, false), 0, 200, 1000);
}

static void exact_offset_is_kept_within_the_queue(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    expect_reset(reset(0, 5, 0, false), 0, 900, 100);
    expect_reset(reset(0, INT64_MAX, 0, false), 0, 100, 1000);
    expect_reset(reset(0, -1, 0, false), 0, 1000, 100);
}

static void dry_run_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    expect_reset(reset(0, 200, 0, true), 0, 900, 200);
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 900);
}

static void impossible_resets_are_refused_and_change_nothing(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(reset(0, 200, 0, false)),
                     TERN__WIRE__CODE__SUBSCRIPTION_GROUP_NOT_EXIST);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    assert_int_equal(fake_request_code(reset(0, -1, -2, false)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(reset(2, 200, 0, false)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(reset(-2, 200, 0, false)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    fake.store_code = TERN_IO;
    assert_true(fake_request_code(reset(-1, -1, FAKE_FIRST_MS, false)) != 0);
    fake.store_code = TERN_OK;
    fake.broker.config.role = ROLE_SLAVE;
    assert_int_equal(fake_request_code(reset(0, 200, 0, false)), TERN__WIRE__CODE__NO_PERMISSION);
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 900);
}

static void reset_that_is_not_durable_says_so(void **state)
{
    (void)state;
    struct sim_fs_fault fault = {.op = SIM_FS_SYNC, .nth = 1, .errno_value = EIO, .forever = true};
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    sim_fs_fail(fake.sim.fs, &fault);
    struct fake_request *request = reset(0, 200, 0, false);
    sim_fs_fail_clear(fake.sim.fs);
    assert_true(fake_request_code(request) != 0);
    assert_contains(fake_remark(request), "not durable");
}

/* ---- in a set ---- */

/* The others have everything up to now. */
static void others_have_all(void)
{
    ack_wait_advance(fake.broker.commits, (int64_t)set_tables_awaited(fake.broker.set_tables),
                     TERN_OK);
}

static void slave_tells_what_it_knows_but_never_none_OF_04(void **state)
{
    (void)state;
    fake_broker_ha(true, TERN__WIRE__HA_STATE__HA_SEEKING);
    struct fake_request *none = query("G", "T", 0);
    assert_int_equal(fake_request_code(none), TERN__WIRE__CODE__PROGRESS_UNKNOWN);
    assert_contains(fake_remark(none), "master");
    struct fake_request *request = commit("G", "T", 0, 5000, 0); /* its queues may lag */
    others_have_all();
    assert_int_equal(fake_request_code(request), 0);
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 5000);
    fake.ha.readable = false;
    assert_int_equal(fake_request_code(query("G", "T", 0)), TERN__WIRE__CODE__PROGRESS_UNKNOWN);
    assert_int_equal(fake_request_code(commit("G", "T", 0, 5001, 0)),
                     TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE);
}

static void master_that_recovers_answers_no_query_before_it_has_merged(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 500, 0)), 0);
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_int_equal(fake_request_code(query("G", "T", 0)), TERN__WIRE__CODE__PROGRESS_UNKNOWN);
    assert_int_equal(fake_request_code(query("H", "T", 0)), TERN__WIRE__CODE__PROGRESS_UNKNOWN);
    fake.ha.decides_progress = true;
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 500);
    assert_int_equal(fake_request_code(query("H", "T", 0)), TERN__WIRE__CODE__QUERY_NOT_FOUND);
}

static void commit_is_answered_when_the_others_have_it_H_5(void **state)
{
    (void)state;
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_OPEN);
    int changes = fake.ha.changes;
    struct fake_request *request = commit("G", "T", 0, 500, 0);
    assert_int_equal(fake_request_code(request), -1);
    assert_true(fake.ha.changes > changes); /* the others are told at once */
    assert_int_equal(query("G", "T", 0)->response->query_offset->offset, 500);
    ack_wait_advance(fake.broker.commits, (int64_t)set_tables_awaited(fake.broker.set_tables) - 1,
                     TERN_OK);
    assert_int_equal(fake_request_code(request), -1);
    others_have_all();
    assert_int_equal(fake_request_code(request), 0);
    /* Nothing new: at once. */
    assert_int_equal(fake_request_code(commit("G", "T", 0, 400, 0)), 0);
    /* What is refused, with what waits. */
    assert_int_equal(fake_request_code(commit("G", "T", 0, 1001, 0)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
}

static void commit_that_nobody_confirms_says_that_it_is_stored_here(void **state)
{
    (void)state;
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_OPEN);
    struct fake_request *request = commit("G", "T", 0, 500, 0);
    sim_run_for(fake.sim.sched, ms_to_ns(2600));
    assert_int_equal(fake_request_code(request), -1);
    sim_run_for(fake.sim.sched, ms_to_ns(200)); /* 90 % of 3 s */
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__FLUSH_SLAVE_TIMEOUT);
    assert_contains(fake_remark(request), "is stored on broker-a");
    request = commit("G", "T", 0, 501, 0);
    ack_wait_fail_all(fake.broker.commits, TERN_SERVICE_NOT_AVAILABLE); /* the broker stops */
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE);
}

static void reset_waits_for_the_others_and_is_only_an_open_masters(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_OPEN);
    expect_reset(reset(0, 200, 0, true), 0, 900, 200); /* only asked: at once */
    struct fake_request *request = reset(0, 200, 0, false);
    assert_int_equal(fake_request_code(request), -1);
    others_have_all();
    expect_reset(request, 0, 900, 200);
    fake.ha.writable = false;
    request = reset(0, 300, 0, false);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE);
    assert_contains(fake_remark(request), "in sync");
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_int_equal(fake_request_code(reset(0, 300, 0, false)),
                     TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE);
}

/* ---- queues ---- */

static struct fake_request *range(int32_t queue_id)
{
    static Tern__Wire__QueueRangeRequest body;
    struct fake_request *request = fake_call("c", 1);
    tern__wire__queue_range_request__init(&body);
    body.topic = NAME("T");
    body.queue_id = queue_id;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_QUEUE_RANGE;
    request->header.queue_range = &body;
    fake_run(request, handle_queue_range);
    return request;
}

static void range_has_both_ends_and_the_earliest_time(void **state)
{
    (void)state;
    const Tern__Wire__QueueRangeResponse *body = range(0)->response->queue_range;
    assert_int_equal(body->min_offset, 100);
    assert_int_equal(body->max_offset, 1000);
    assert_int_equal(body->earliest_ms, FAKE_FIRST_MS + 100 * FAKE_STEP_MS);
    fake_broker_topic("T", 3);
    body = range(2)->response->queue_range; /* never had a message */
    assert_int_equal(body->max_offset, 0);
    assert_int_equal(body->earliest_ms, 0);
    fake.store_code = TERN_IO;
    assert_true(fake_request_code(range(0)) != 0);
    fake.store_code = TERN_OK;
    fake_broker_ha(true, TERN__WIRE__HA_STATE__HA_DETACHED);
    assert_int_equal(fake_request_code(range(0)), 0);
    fake.ha.readable = false;
    assert_int_equal(fake_request_code(range(0)), TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE);
}

static void topic_stats_list_every_queue_also_of_a_shrunk_topic(void **state)
{
    (void)state;
    Tern__Wire__TopicStatsRequest body = TERN__WIRE__TOPIC_STATS_REQUEST__INIT;
    fake_broker_queue("T", 5, 0, 1);
    struct fake_request *request = fake_call("", 1);
    body.topic = NAME("T");
    request->header.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_STATS;
    request->header.topic_stats = &body;
    fake_run(request, handle_topic_stats);
    assert_int_equal(fake_request_code(request), 0);
    const Tern__Wire__TopicStatsResponse *stats = request->response->topic_stats;
    assert_int_equal(stats->n_queues, 6);
    assert_int_equal(stats->queues[0]->max_offset, 1000);
    assert_int_equal(stats->queues[0]->last_update_ms, FAKE_FIRST_MS + 999 * FAKE_STEP_MS);
    assert_int_equal(stats->queues[3]->last_update_ms, 0);
    assert_int_equal(stats->queues[5]->max_offset, 1);
}

static void search_by_time_finds_the_message_or_the_end(void **state)
{
    (void)state;
    Tern__Wire__SearchOffsetRequest body = TERN__WIRE__SEARCH_OFFSET_REQUEST__INIT;
    static const struct {
        int64_t store_ms, offset;
        int code;
    } cases[] = {{FAKE_FIRST_MS + 400 * FAKE_STEP_MS, 400, 0},
                 {0, 100, 0},
                 {-1, 1000, 0},
                 {-2, 0, TERN__WIRE__CODE__INVALID_REQUEST}};
    body.topic = NAME("T");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake_request *request = fake_call("c", 1);
        body.store_ms = cases[i].store_ms;
        request->header.body_case = TERN__WIRE__REQUEST__BODY_SEARCH_OFFSET;
        request->header.search_offset = &body;
        fake_run(request, handle_search_offset);
        assert_int_equal(fake_request_code(request), cases[i].code);
        if (!cases[i].code)
            assert_int_equal(request->response->search_offset->offset, cases[i].offset);
    }
}

/* ---- groups against queues ---- */

static struct fake_request *consume_stats(const char *group)
{
    static Tern__Wire__ConsumeStatsRequest body;
    struct fake_request *request = fake_call("", 1);
    tern__wire__consume_stats_request__init(&body);
    body.group = NAME(group);
    request->header.body_case = TERN__WIRE__REQUEST__BODY_CONSUME_STATS;
    request->header.consume_stats = &body;
    fake_run(request, handle_consume_stats);
    return request;
}

static void offline_groups_stats_show_lag_times_and_evidence_F_6(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("G", "T", 0, 900, 0)), 0);
    pull_stats_add(fake.broker.pull_stats, "G", "T", 0, "c9", "A || B", 50, 20, 30);
    struct fake_request *request = consume_stats("G");
    assert_int_equal(fake_request_code(request), 0);
    assert_int_equal(request->response->consume_stats->n_groups, 1);
    const Tern__Wire__GroupStats *group = request->response->consume_stats->groups[0];
    assert_int_equal(group->members, 0);
    assert_int_equal(group->n_queues, 2);
    const Tern__Wire__GroupQueueStats *queue = group->queues[0];
    assert_int_equal(queue->broker_offset, 1000);
    assert_int_equal(queue->consumer_offset, 900);
    assert_int_equal(queue->last_ms, FAKE_FIRST_MS + 899 * FAKE_STEP_MS);
    assert_int_equal(queue->oldest_waiting_ms, FAKE_FIRST_MS + 900 * FAKE_STEP_MS);
    assert_memory_equal(queue->client_id.data, "c9", 2);
    assert_string_equal(queue->expression, "A || B");
    assert_int_equal(queue->scanned, 50);
    assert_int_equal(queue->filtered, 30);
    queue = group->queues[1];
    assert_int_equal(queue->consumer_offset, -1);
    assert_int_equal(queue->last_ms, 0);
    assert_int_equal(queue->oldest_waiting_ms, FAKE_FIRST_MS);
}

static void stats_of_all_groups_are_sorted_and_unknown_ones_refused(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(commit("H", "T", 0, 900, 0)), 0);
    assert_int_equal(fake_request_code(commit("G", "T", 1, 10, 0)), 0);
    const Tern__Wire__ConsumeStatsResponse *all = consume_stats("")->response->consume_stats;
    assert_int_equal(all->n_groups, 2);
    assert_memory_equal(all->groups[0]->group.data, "G", 1);
    assert_memory_equal(all->groups[1]->group.data, "H", 1);
    assert_int_equal(fake_request_code(consume_stats("nobody")),
                     TERN__WIRE__CODE__SUBSCRIPTION_GROUP_NOT_EXIST);
    fake.store_code = TERN_IO;
    assert_true(fake_request_code(consume_stats("H")) != 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_progress_is_told_apart_from_failures_OF_04),
        TEST(lower_commit_succeeds_and_changes_nothing_OF_11),
        TEST(commit_beyond_the_end_is_refused_with_the_end),
        TEST(impossible_commits_are_refused),
        TEST(commit_of_an_older_version_learns_what_is_held),
        TEST(group_that_commits_becomes_durable),
        TEST(offline_group_is_reset_by_time_and_told_each_offset_OF_08),
        TEST(time_in_the_future_and_minus_one_mean_the_end),
        TEST(exact_offset_is_kept_within_the_queue),
        TEST(dry_run_changes_nothing),
        TEST(impossible_resets_are_refused_and_change_nothing),
        TEST(reset_that_is_not_durable_says_so),
        TEST(slave_tells_what_it_knows_but_never_none_OF_04),
        TEST(master_that_recovers_answers_no_query_before_it_has_merged),
        TEST(commit_is_answered_when_the_others_have_it_H_5),
        TEST(commit_that_nobody_confirms_says_that_it_is_stored_here),
        TEST(reset_waits_for_the_others_and_is_only_an_open_masters),
        TEST(range_has_both_ends_and_the_earliest_time),
        TEST(topic_stats_list_every_queue_also_of_a_shrunk_topic),
        TEST(search_by_time_finds_the_message_or_the_end),
        TEST(offline_groups_stats_show_lag_times_and_evidence_F_6),
        TEST(stats_of_all_groups_are_sorted_and_unknown_ones_refused),
    };
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
