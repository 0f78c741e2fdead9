/*
 * The subscription guard on the wire (F-3): a group that refuses members that differ, one that
 * isolates them, and what is never skipped when members change, are not known or come back.
 */
#include "tests/unit/broker/broker_unit.h"

#include "broker/guard.h"
#include "base/props.h"
#include "broker/handlers/handlers.h"
#include "broker/handlers/pull_internal.h"
#include "tests/unit/broker/fake_broker.h"

static int setup(void **state)
{
    (void)state;
    fake_broker_begin();
    fake_broker_topic("T", 2);
    fake_broker_queue("T", 0, 0, 1000);
    fake_broker_queue("T", 1, 0, 1000);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_broker_end();
    return 0;
}

static void put_group(const char *name, enum group_consistency consistency)
{
    struct group_config config;
    group_config_init(&config, name, strlen(name));
    config.consistency = (int32_t)consistency;
    assert_ok(groups_put(fake.broker.groups, &config, NULL));
}

/* ---- requests ---- */

/* A heartbeat for two groups, each with topic T; sibling NULL: for one. */
static struct fake_request *beat(const char *client, const char *group, char *expression,
                                 const char *sibling)
{
    static Tern__Wire__HeartbeatRequest body;
    static Tern__Wire__ConsumerData data[2];
    static Tern__Wire__ConsumerData *all[] = {&data[0], &data[1]};
    static Tern__Wire__Subscription subscription[2];
    static Tern__Wire__Subscription *lists[2][1];
    static int64_t version;
    struct fake_request *request = fake_call(client, 1);
    tern__wire__heartbeat_request__init(&body);
    version++;
    for (int i = 0; i < 2; i++) {
        tern__wire__consumer_data__init(&data[i]);
        tern__wire__subscription__init(&subscription[i]);
        subscription[i].topic = NAME("T");
        subscription[i].expression = i ? "*" : expression;
        subscription[i].version = version;
        lists[i][0] = &subscription[i];
        data[i].group = NAME(i ? sibling ? sibling : "" : group);
        data[i].subscriptions = lists[i];
        data[i].n_subscriptions = 1;
    }
    body.consumers = all;
    body.n_consumers = sibling ? 2 : 1;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_HEARTBEAT;
    request->header.heartbeat = &body;
    fake_run(request, handle_heartbeat);
    return request;
}

static struct fake_request *query(const char *client, const char *group)
{
    static Tern__Wire__QueryOffsetRequest body;
    struct fake_request *request = fake_call(client, 1);
    tern__wire__query_offset_request__init(&body);
    body.group = NAME(group);
    body.topic = NAME("T");
    request->header.body_case = TERN__WIRE__REQUEST__BODY_QUERY_OFFSET;
    request->header.query_offset = &body;
    fake_run(request, handle_query_offset);
    return request;
}

static struct fake_request *commit(const char *client, const char *group, int64_t offset,
                                   uint32_t cohort)
{
    static Tern__Wire__CommitOffsetRequest body;
    static Tern__Wire__CommitOffset one;
    static Tern__Wire__CommitOffset *all[] = {&one};
    static Tern__Wire__OffsetVersion version;
    struct fake_request *request = fake_call(client, 1);
    tern__wire__commit_offset_request__init(&body);
    tern__wire__commit_offset__init(&one);
    tern__wire__offset_version__init(&version);
    version.cohort = cohort;
    one.topic = NAME("T");
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

static size_t member_count(const char *client, const char *group)
{
    static Tern__Wire__MembersRequest body;
    struct fake_request *request = fake_call(client, 1);
    tern__wire__members_request__init(&body);
    body.group = NAME(group);
    request->header.body_case = TERN__WIRE__REQUEST__BODY_MEMBERS;
    request->header.members = &body;
    fake_run(request, handle_members);
    assert_int_equal(fake_request_code(request), 0);
    return request->response->members->n_client_ids;
}

static struct fake_request *lock_queue(const char *client, const char *group)
{
    static Tern__Wire__LockQueuesRequest body;
    static Tern__Wire__MessageQueue queue;
    static Tern__Wire__MessageQueue *queues[] = {&queue};
    struct fake_request *request = fake_call(client, 1);
    tern__wire__lock_queues_request__init(&body);
    tern__wire__message_queue__init(&queue);
    queue.topic = NAME("T");
    body.group = NAME(group);
    body.queues = queues;
    body.n_queues = 1;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_LOCK_QUEUES;
    request->header.lock_queues = &body;
    fake_run(request, handle_lock_queues);
    return request;
}

/* ---- refuse ---- */

static void newcomer_that_differs_is_left_out_of_that_group_only(void **state)
{
    (void)state;
    put_group("G", CONSISTENCY_REFUSE);
    assert_int_equal(fake_request_code(beat("one", "G", "A || B", NULL)), 0);
    assert_int_equal(fake_request_code(beat("alike", "G", "B||A", NULL)), 0);
    struct fake_request *request = beat("other", "G", "C", "Sibling");
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__SUBSCRIPTION_DIFFERS);
    const Tern__Wire__HeartbeatResponse *body = request->response->heartbeat;
    assert_int_equal(body->n_refused, 1);
    assert_int_equal(body->refused[0]->group.len, 1);
    assert_contains(body->refused[0]->reason, "client other wants \"C\" of topic T");
    assert_contains(body->refused[0]->reason, "\"A || B\"");
    assert_int_equal(member_count("one", "G"), 2);
    assert_int_equal(member_count("other", "Sibling"), 1);
    assert_true(counter_get(&fake.broker.subscription_differences) == 1);
}

/* A change is refused as long as others ask for something else; the member stays what it was. */
static void member_changes_only_when_nobody_else_differs(void **state)
{
    (void)state;
    put_group("G", CONSISTENCY_REFUSE);
    beat("one", "G", "A", NULL);
    assert_int_equal(fake_request_code(beat("one", "G", "B", NULL)), 0);
    assert_int_equal(fake_request_code(beat("two", "G", "B", NULL)), 0);
    assert_int_equal(fake_request_code(beat("two", "G", "C", NULL)),
                     TERN__WIRE__CODE__SUBSCRIPTION_DIFFERS);
    assert_int_equal(member_count("one", "G"), 2);
    assert_int_equal(members_differing_groups(fake.broker.members), 0);
    assert_int_equal(fake_request_code(beat("two", "G", "B", NULL)), 0);
}

/* Members that differed before the setting came keep their places. */
static void setting_expels_nobody(void **state)
{
    (void)state;
    put_group("G", CONSISTENCY_WARN);
    beat("one", "G", "A", NULL);
    beat("two", "G", "B", NULL);
    assert_int_equal(members_differing_groups(fake.broker.members), 1);
    put_group("G", CONSISTENCY_REFUSE);
    assert_int_equal(fake_request_code(beat("one", "G", "A", NULL)), 0);
    assert_int_equal(fake_request_code(beat("two", "G", "B", NULL)), 0);
    assert_int_equal(fake_request_code(beat("three", "G", "B", NULL)),
                     TERN__WIRE__CODE__SUBSCRIPTION_DIFFERS);
}

/* ---- isolate ---- */

static void who_is_not_known_is_taken_for_nobody(void **state)
{
    (void)state;
    put_group("G", CONSISTENCY_ISOLATE);
    beat("one", "G", "A", NULL);
    struct fake_request *request = query("stranger", "G");
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__PROGRESS_UNKNOWN);
    assert_contains(fake_remark(request), "client stranger has sent no heartbeat");
    assert_int_equal(fake_request_code(commit("stranger", "G", 5, 0)),
                     TERN__WIRE__CODE__PROGRESS_UNKNOWN);
    assert_int_equal(fake_request_code(lock_queue("stranger", "G")),
                     TERN__WIRE__CODE__PROGRESS_UNKNOWN);
    assert_int_equal(member_count("stranger", "G"), 0);
}

static void cohort_begins_where_its_group_stood_and_goes_its_own_way(void **state)
{
    (void)state;
    put_group("G", CONSISTENCY_WARN);
    beat("one", "G", "A", NULL);
    beat("two", "G", "B", NULL);
    assert_int_equal(fake_request_code(commit("one", "G", 100, 0)), 0);
    put_group("G", CONSISTENCY_ISOLATE);
    struct fake_request *request = query("one", "G");
    assert_int_equal(fake_request_code(request), 0);
    assert_int_equal(request->response->query_offset->offset, 100);
    uint32_t one = request->response->query_offset->version->cohort;
    uint32_t two = query("two", "G")->response->query_offset->version->cohort;
    assert_true(one && two && one != two);
    assert_int_equal(fake_request_code(commit("one", "G", 500, one)), 0);
    assert_int_equal(query("one", "G")->response->query_offset->offset, 500);
    assert_int_equal(query("two", "G")->response->query_offset->offset, 100);
    assert_int_equal(member_count("one", "G"), 1);
    beat("three", "G", "A", NULL);
    assert_int_equal(member_count("one", "G"), 2);
    assert_int_equal(query("three", "G")->response->query_offset->offset, 500);
    assert_int_equal(lock_queue("one", "G")->response->lock_queues->n_locked, 1);
    assert_int_equal(lock_queue("two", "G")->response->lock_queues->n_locked, 1);
    assert_int_equal(lock_queue("three", "G")->response->lock_queues->n_locked, 0);
}

/* What a member had read under another expression, or another setting, moves nobody. */
static void commits_of_another_cohort_are_old(void **state)
{
    (void)state;
    put_group("G", CONSISTENCY_ISOLATE);
    beat("one", "G", "A", NULL);
    uint32_t before = query("one", "G")->response->query_offset->version->cohort;
    assert_int_equal(fake_request_code(commit("one", "G", 500, before)), 0);
    beat("one", "G", "A || B", NULL);
    struct fake_request *request = commit("one", "G", 600, before);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__OFFSET_VERSION_OLD);
    assert_int_equal(request->response->commit_offset->n_refused, 1);
    assert_true(request->response->commit_offset->refused[0]->version->cohort != before);
    request = query("one", "G");
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__QUERY_NOT_FOUND);
    assert_int_equal(request->response->query_offset->version->cohort,
                     members_cohort(fake.broker.members, "G", "one", &before) ? before : 0);
    put_group("G", CONSISTENCY_WARN);
    assert_int_equal(fake_request_code(commit("one", "G", 600, before)),
                     TERN__WIRE__CODE__OFFSET_VERSION_OLD);
    assert_int_equal(fake_request_code(query("one", "G")), TERN__WIRE__CODE__QUERY_NOT_FOUND);
}

/* Every broker of a set must come to the same, whatever it heard first. */
static void cohort_depends_on_nothing_but_the_subscriptions(void **state)
{
    uint32_t first;
    uint32_t second;
    (void)state;
    put_group("G", CONSISTENCY_ISOLATE);
    beat("one", "G", "A || B", NULL);
    beat("two", "G", " B ||A", NULL);
    assert_true(members_cohort(fake.broker.members, "G", "one", &first));
    assert_true(members_cohort(fake.broker.members, "G", "two", &second));
    assert_int_equal(first, second);
    members_unregister(fake.broker.members, "one", NULL, "G");
    beat("one", "G", "A||B||A", NULL);
    assert_true(members_cohort(fake.broker.members, "G", "one", &second));
    assert_int_equal(first, second);
    assert_true(guard_is_cohort("G%0012abcd", "G"));
    assert_false(guard_is_cohort("G%0012abcg", "G"));
    assert_false(guard_is_cohort("G%0012abcd0", "G"));
    assert_false(guard_is_cohort("GG%0012abcd", "G"));
}

/* Whether a retry of topic T that is marked with nobody comes to the client's pull. */
static bool gets_retry(const char *client, uint32_t cohort)
{
    uint8_t props[64];
    size_t len = 0;
    struct pull pull = {.broker = &fake.broker,
                        .group = "G",
                        .topic = "%RETRY%G",
                        .client_id = client,
                        .view.cohort = cohort};
    assert_ok(props_append(props, &len, sizeof props, PROP_RETRY_TOPIC, strlen(PROP_RETRY_TOPIC),
                           "T", 1));
    assert_ok(props_append(props, &len, sizeof props, PROP_TAGS, strlen(PROP_TAGS), "B", 1));
    const struct record record = {.props = props, .props_len = (uint16_t)len};
    pull_retries_begin(&pull);
    assert_true(pull.retries.used);
    bool gets = pull_retries_match(&pull, &record);
    pull_retries_end(&pull);
    return gets;
}

/* Its pull moves its cohort past what it leaves out. */
static void retry_is_left_out_by_who_did_not_ask_for_it_but_not_by_who_is_not_known(void **state)
{
    uint32_t one;
    uint32_t two;
    (void)state;
    put_group("G", CONSISTENCY_ISOLATE);
    beat("one", "G", "A", NULL);
    beat("two", "G", "B", NULL);
    assert_true(members_cohort(fake.broker.members, "G", "one", &one));
    assert_true(members_cohort(fake.broker.members, "G", "two", &two));
    assert_false(gets_retry("one", one));
    assert_true(gets_retry("two", two));
    members_unregister(fake.broker.members, "two", NULL, "G");
    assert_true(gets_retry("two", two));
}

static void name_must_leave_room_for_its_cohorts(void **state)
{
    struct group_config config;
    struct tern_error err = {.text = ""};
    char name[GROUP_NAME_MAX + 1];
    (void)state;
    memset(name, 'g', sizeof name);
    group_config_init(&config, name, ISOLATED_NAME_MAX + 1);
    config.consistency = CONSISTENCY_ISOLATE;
    assert_int_equal(groups_put(fake.broker.groups, &config, &err), TERN_INVALID);
    assert_contains(err.text, "at most 246");
    config.consistency = 3;
    assert_int_equal(groups_put(fake.broker.groups, &config, &err), TERN_INVALID);
    put_group("kept", CONSISTENCY_ISOLATE);
    assert_ok(groups_persist(fake.broker.groups, NULL));
    fake_broker_restart();
    assert_true(guard_isolates(&fake.broker, "kept"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(newcomer_that_differs_is_left_out_of_that_group_only),
        TEST(member_changes_only_when_nobody_else_differs),
        TEST(setting_expels_nobody),
        TEST(who_is_not_known_is_taken_for_nobody),
        TEST(cohort_begins_where_its_group_stood_and_goes_its_own_way),
        TEST(commits_of_another_cohort_are_old),
        TEST(cohort_depends_on_nothing_but_the_subscriptions),
        TEST(retry_is_left_out_by_who_did_not_ask_for_it_but_not_by_who_is_not_known),
        TEST(name_must_leave_room_for_its_cohorts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
