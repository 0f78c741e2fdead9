/*
 * Groups on the wire: progress that only grows unless it is reset, events to members, topics that
 * are deleted and made again.
 */
#include <signal.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { MESSAGES = 100, EVENT_WAIT_MS = 20000 };

static struct cluster cluster;
static struct wire wire;
static struct wire *asked = &wire; /* whom commit() and progress() ask */

static int set_up(void **state)
{
    (void)state;
    cluster_up_alone(&cluster, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@progress");
    wire_make_topic(&wire, "T", 2);
    for (int i = 0; i < MESSAGES; i++)
        wire_send(&wire, "T", 0, "x", NULL);
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

/* ---- progress ---- */

static struct rpc_call *commit(const char *group, const char *topic, int32_t queue_id,
                               int64_t offset, const Tern__Wire__OffsetVersion *version)
{
    Tern__Wire__CommitOffset commit = TERN__WIRE__COMMIT_OFFSET__INIT;
    Tern__Wire__CommitOffset *commits[] = {&commit};
    Tern__Wire__CommitOffsetRequest body = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    body.group = bytes_of_text(group);
    commit.topic = bytes_of_text(topic);
    commit.queue_id = queue_id;
    commit.offset = offset;
    commit.version = (Tern__Wire__OffsetVersion *)(uintptr_t)version;
    body.commits = commits;
    body.n_commits = 1;
    WIRE_REQUEST(request, COMMIT_OFFSET, commit_offset, &body);
    return wire_ask(asked, &request, NULL, 0);
}

static int32_t commit_code(const char *group, const char *topic, int32_t queue_id, int64_t offset)
{
    struct rpc_call *call = commit(group, topic, queue_id, offset, NULL);
    int32_t code = call->response->code;
    rpc_call_unref(call);
    return code;
}

/* The group's progress in queue 0 and its version; -1: none. */
static int64_t progress(const char *group, const char *topic, Tern__Wire__OffsetVersion *version)
{
    Tern__Wire__QueryOffsetRequest body = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    body.group = bytes_of_text(group);
    body.topic = bytes_of_text(topic);
    WIRE_REQUEST(request, QUERY_OFFSET, query_offset, &body);
    struct rpc_call *call = wire_ask(asked, &request, NULL, 0);
    int64_t offset = -1;
    if (call->response->code == CODE(SUCCESS))
        offset = call->response->query_offset->offset;
    else
        assert_int_equal(call->response->code, CODE(QUERY_NOT_FOUND));
    const Tern__Wire__OffsetVersion *held = call->response->query_offset->version;
    if (version && held) {
        version->epoch = held->epoch;
        version->counter = held->counter;
    }
    rpc_call_unref(call);
    return offset;
}

/* OF-11; OF-04: none is told apart from zero */
static void late_lower_commit_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(progress("Late", "T", NULL), -1);
    assert_int_equal(commit_code("Late", "T", 0, 0), CODE(SUCCESS));
    assert_int_equal(progress("Late", "T", NULL), 0);
    assert_int_equal(commit_code("Late", "T", 0, 60), CODE(SUCCESS));
    assert_int_equal(commit_code("Late", "T", 0, 40), CODE(SUCCESS));
    assert_int_equal(progress("Late", "T", NULL), 60);
}

static void commits_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    assert_int_equal(commit_code("Odd", "T", 0, 10), CODE(SUCCESS));
    assert_int_equal(commit_code("Odd", "T", 0, MESSAGES + 1), CODE(INVALID_REQUEST));
    assert_int_equal(commit_code("Odd", "T", 0, -1), CODE(INVALID_REQUEST));
    assert_int_equal(commit_code("Odd", "T", 0, INT64_MAX), CODE(INVALID_REQUEST));
    assert_int_equal(commit_code("Odd", "T", 0, INT64_MIN), CODE(INVALID_REQUEST));
    assert_int_equal(commit_code("Odd", "T", 2, 0), CODE(INVALID_REQUEST));
    assert_int_equal(commit_code("Odd", "T", -1, 0), CODE(INVALID_REQUEST));
    assert_int_equal(commit_code("Odd", "Absent", 0, 0), CODE(TOPIC_NOT_EXIST));
    assert_int_equal(progress("Odd", "T", NULL), 10);
    assert_int_equal(commit_code("Odd", "T", 0, MESSAGES), CODE(SUCCESS));
}

static void reset(const char *group, int64_t offset)
{
    Tern__Wire__ResetOffsetRequest body = TERN__WIRE__RESET_OFFSET_REQUEST__INIT;
    body.group = bytes_of_text(group);
    body.topic = bytes_of_text("T");
    body.target_case = TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_OFFSET;
    body.offset = offset;
    WIRE_REQUEST(request, RESET_OFFSET, reset_offset, &body);
    wire_expect(&wire, &request, NULL, 0, CODE(SUCCESS), NULL);
}

/* OF-11, OF-08: a reset moves back, and a commit from before it does not undo it */
static void commit_from_before_a_reset_is_refused_with_what_is_held(void **state)
{
    Tern__Wire__OffsetVersion before = TERN__WIRE__OFFSET_VERSION__INIT;
    Tern__Wire__OffsetVersion after = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    assert_int_equal(commit_code("Reset", "T", 0, 60), CODE(SUCCESS));
    assert_int_equal(progress("Reset", "T", &before), 60);
    reset("Reset", 20);
    assert_int_equal(progress("Reset", "T", &after), 20);
    struct rpc_call *call = commit("Reset", "T", 0, 61, &before);
    assert_int_equal(call->response->code, CODE(OFFSET_VERSION_OLD));
    assert_int_equal(call->response->commit_offset->n_refused, 1);
    assert_int_equal(call->response->commit_offset->refused[0]->offset, 20);
    rpc_call_unref(call);
    assert_int_equal(progress("Reset", "T", NULL), 20);
    call = commit("Reset", "T", 0, 21, &after);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    rpc_call_unref(call);
}

/* OF-07: a pull from before the reset brings no messages and no progress */
static void pull_from_before_a_reset_is_told_of_it(void **state)
{
    Tern__Wire__OffsetVersion before = TERN__WIRE__OFFSET_VERSION__INIT;
    Tern__Wire__PullRequest pull;
    (void)state;
    assert_int_equal(commit_code("Pulled", "T", 0, 50), CODE(SUCCESS));
    progress("Pulled", "T", &before);
    reset("Pulled", 10);
    wire_fill_pull(&pull, "T", 0, 50);
    pull.group = bytes_of_text("Pulled");
    pull.offset_version = &before;
    pull.has_commit = true;
    pull.commit_offset = 50;
    WIRE_REQUEST(request, PULL, pull, &pull);
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(OFFSET_VERSION_OLD));
    assert_int_equal(call->response->pull->committed_offset, 10);
    assert_int_equal(call->payload_size, 0);
    rpc_call_unref(call);
    assert_int_equal(progress("Pulled", "T", NULL), 10);
}

/* R-7, ST-20: a kill costs at most what was committed since the last write; a stop costs nothing */
static void progress_survives_restarts(void **state)
{
    struct cluster own;
    struct wire to;
    (void)state;
    cluster_up_alone(&own, NULL);
    wire_open(&to, own.broker.address, "127.0.0.1@restart");
    asked = &to;
    wire_make_topic(&to, "T", 1);
    for (int i = 0; i < 3; i++)
        wire_send(&to, "T", 0, "x", NULL);
    wire_await_offset(&to, "T", 0, 3);
    assert_int_equal(commit_code("G", "T", 0, 2), CODE(SUCCESS));
    assert_int_equal(daemon_stop(&own.broker, SIGTERM), 0);
    cluster_start_broker(&own);
    assert_int_equal(progress("G", "T", NULL), 2);
    assert_int_equal(daemon_stop(&own.broker, SIGKILL), -SIGKILL);
    cluster_start_broker(&own);
    assert_int_equal(progress("G", "T", NULL), 2);
    wire_close(&to);
    cluster_down(&own);
    asked = &wire;
}

/* ---- members and events ---- */

static void heartbeat(struct wire *member, const char *group)
{
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__Subscription *subscriptions[] = {&subscription};
    Tern__Wire__ConsumerData data = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__ConsumerData *consumers[] = {&data};
    Tern__Wire__HeartbeatRequest body = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    subscription.topic = bytes_of_text("T");
    data.group = bytes_of_text(group);
    data.subscriptions = subscriptions;
    data.n_subscriptions = 1;
    body.consumers = consumers;
    body.n_consumers = 1;
    WIRE_REQUEST(request, HEARTBEAT, heartbeat, &body);
    wire_expect(member, &request, NULL, 0, CODE(SUCCESS), NULL);
}

static size_t member_count(const char *group)
{
    Tern__Wire__MembersRequest body = TERN__WIRE__MEMBERS_REQUEST__INIT;
    body.group = bytes_of_text(group);
    WIRE_REQUEST(request, MEMBERS, members, &body);
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    size_t count =
        call->response->code == CODE(SUCCESS) ? call->response->members->n_client_ids : 0;
    rpc_call_unref(call);
    return count;
}

/* What a client has seen of its events. */
struct seen {
    uint64_t session, number;
};

static void wait_events(struct wire *member, const struct seen *seen, struct wire_pending *pending)
{
    Tern__Wire__WaitEventsRequest body = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
    body.session = seen->session;
    body.acknowledged = seen->number;
    body.suspend_timeout_ms = EVENT_WAIT_MS;
    WIRE_REQUEST(request, WAIT_EVENTS, wait_events, &body);
    wire_start(member, &request, pending);
}

/* The events that come soon, added to `seen`; how many of them are member changes of `group`. */
static size_t take_events(struct wire_pending *pending, struct seen *seen, const char *group)
{
    size_t changes = 0;
    assert_true(wire_wait(pending, EVENT_WAIT_MS / 2));
    const TernResponse *response = pending->call->response;
    assert_int_equal(response->code, CODE(SUCCESS));
    seen->session = response->wait_events->session;
    for (size_t i = 0; i < response->wait_events->n_events; i++) {
        const Tern__Wire__Event *event = response->wait_events->events[i];
        seen->number = event->number;
        changes += event->body_case == TERN__WIRE__EVENT__BODY_MEMBERS_CHANGED &&
                   event->members_changed.len == strlen(group) &&
                   !memcmp(event->members_changed.data, group, strlen(group));
    }
    rpc_call_unref(pending->call);
    return changes;
}

/* Events come until the group has `count` members; one that comes late is of an earlier change. */
static void expect_told(struct wire *member, struct seen *seen, struct wire_pending *pending,
                        const char *group, size_t count)
{
    while (take_events(pending, seen, group) == 0 || member_count(group) != count)
        wait_events(member, seen, pending);
}

/* at once when a member comes, says goodbye, or its connection dies */
static void members_are_told_who_comes_and_goes(void **state)
{
    struct wire first, second, third;
    struct wire_pending pending;
    struct seen seen = {0, 0};
    Tern__Wire__UnregisterClientRequest goodbye = TERN__WIRE__UNREGISTER_CLIENT_REQUEST__INIT;
    (void)state;
    wire_open(&first, cluster.broker.address, "127.0.0.1@1");
    wire_open(&second, cluster.broker.address, "127.0.0.1@2");
    wire_open(&third, cluster.broker.address, "127.0.0.1@3");
    heartbeat(&first, "Told");
    wait_events(&first, &seen, &pending);
    heartbeat(&second, "Told");
    expect_told(&first, &seen, &pending, "Told", 2);
    wait_events(&first, &seen, &pending);
    heartbeat(&third, "Told");
    expect_told(&first, &seen, &pending, "Told", 3);
    goodbye.consumer_group = bytes_of_text("Told");
    WIRE_REQUEST(request, UNREGISTER_CLIENT, unregister_client, &goodbye);
    wait_events(&first, &seen, &pending);
    wire_expect(&second, &request, NULL, 0, CODE(SUCCESS), NULL);
    expect_told(&first, &seen, &pending, "Told", 2);
    wait_events(&first, &seen, &pending);
    wire_close(&third);
    expect_told(&first, &seen, &pending, "Told", 1);
    wire_close(&second);
    wire_close(&first);
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (member_count("Told") != 0)
        assert_true(now_ms() < deadline);
    wire_await_status(&wire, "parkedEventWaits", 0);
}

/* What was not acknowledged comes again */
static void unacknowledged_events_are_sent_again(void **state)
{
    struct wire first, second;
    struct wire_pending pending;
    struct seen seen = {0, 0}, nothing = {0, 0};
    (void)state;
    wire_open(&first, cluster.broker.address, "127.0.0.1@again-1");
    wire_open(&second, cluster.broker.address, "127.0.0.1@again-2");
    heartbeat(&first, "Again");
    wait_events(&first, &seen, &pending);
    heartbeat(&second, "Again");
    assert_true(take_events(&pending, &seen, "Again") > 0);
    nothing.session = seen.session;
    wait_events(&first, &nothing, &pending);
    assert_true(take_events(&pending, &nothing, "Again") > 0);
    wire_close(&second);
    wire_close(&first);
}

/* ---- deleting ---- */

/* MD-05: the new topic begins at 0, the old one's progress and messages are gone */
static void topic_made_again_begins_at_zero_without_progress(void **state)
{
    Tern__Wire__PullRequest pull;
    (void)state;
    for (int round = 0; round < 3; round++) {
        wire_make_topic(&wire, "Twice", 1);
        assert_int_equal(progress("Twice", "Twice", NULL), -1);
        for (int i = 0; i < 10 - round; i++)
            assert_int_equal(wire_send(&wire, "Twice", 0, "x", NULL), i);
        wire_await_offset(&wire, "Twice", 0, 10 - round);
        Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
        progress("Twice", "Twice", &version);
        struct rpc_call *call = commit("Twice", "Twice", 0, 10 - round, &version);
        assert_int_equal(call->response->code, CODE(SUCCESS));
        rpc_call_unref(call);
        wire_delete_topic(&wire, "Twice");
        wire_fill_pull(&pull, "Twice", 0, 0);
        WIRE_REQUEST(request, PULL, pull, &pull);
        wire_expect(&wire, &request, NULL, 0, CODE(TOPIC_NOT_EXIST), "Twice");
    }
}

/* MD-05: also after a restart, which rebuilds from a log that still holds the old messages */
static void topic_made_again_stays_so_after_a_kill(void **state)
{
    struct cluster own;
    struct wire to;
    (void)state;
    cluster_up_alone(&own, NULL);
    wire_open(&to, own.broker.address, "127.0.0.1@kill");
    wire_make_topic(&to, "Twice", 1);
    for (int i = 0; i < 10; i++)
        wire_send(&to, "Twice", 0, "old", NULL);
    wire_await_offset(&to, "Twice", 0, 10);
    wire_delete_topic(&to, "Twice");
    wire_make_topic(&to, "Twice", 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wire_send(&to, "Twice", 0, "new", NULL), i);
    wire_await_offset(&to, "Twice", 0, 3);
    assert_int_equal(daemon_stop(&own.broker, SIGKILL), -SIGKILL);
    cluster_start_broker(&own);
    wire_await_offset(&to, "Twice", 0, 3);
    assert_int_equal(wire_max_offset(&to, "Twice", 0), 3);
    assert_int_equal(wire_send(&to, "Twice", 0, "new", NULL), 3);
    wire_close(&to);
    cluster_down(&own);
}

/* A pull that waits at a topic while that is deleted is answered, at the latest when its time is up
 */
static void pull_that_waits_at_a_deleted_topic_is_answered(void **state)
{
    Tern__Wire__PullRequest pull;
    struct wire_pending pending;
    (void)state;
    wire_make_topic(&wire, "Waited", 1);
    wire_fill_pull(&pull, "Waited", 0, 0);
    pull.suspend_timeout_ms = 1000;
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_start(&wire, &request, &pending);
    wire_await_status(&wire, "parkedPulls", 1);
    wire_delete_topic(&wire, "Waited");
    assert_true(wire_wait(&pending, PATIENCE_MS));
    assert_int_not_equal(pending.call->response->code, CODE(SUCCESS));
    rpc_call_unref(pending.call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_lower_commit_changes_nothing),
        cmocka_unit_test(commits_that_make_no_sense_are_refused),
        cmocka_unit_test(commit_from_before_a_reset_is_refused_with_what_is_held),
        cmocka_unit_test(pull_from_before_a_reset_is_told_of_it),
        cmocka_unit_test(progress_survives_restarts),
        cmocka_unit_test(members_are_told_who_comes_and_goes),
        cmocka_unit_test(unacknowledged_events_are_sent_again),
        cmocka_unit_test(topic_made_again_begins_at_zero_without_progress),
        cmocka_unit_test(topic_made_again_stays_so_after_a_kill),
        cmocka_unit_test(pull_that_waits_at_a_deleted_topic_is_answered),
    };
    return cmocka_run_group_tests_name("progress", tests, set_up, tear_down);
}
