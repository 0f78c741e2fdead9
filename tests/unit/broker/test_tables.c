/* Topics and groups on the wire, through the admin lane: durable first, then told, then answered.
 */
#include "tests/unit/broker/broker_unit.h"

#include <errno.h>

#include "broker/admin_lane.h"
#include "broker/handlers/handlers.h"
#include "tests/unit/broker/fake_broker.h"

static int setup(void **state)
{
    (void)state;
    fake_broker_begin();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_broker_end();
    return 0;
}

static bool has_topic(const char *name)
{
    struct topic_config config;
    return topics_find(fake.broker.topics, name, strlen(name), &config);
}

enum { BODIES_MAX = 64 };

/* Bodies live as long as the test: several may be queued. */
static Tern__Wire__UpdateTopicRequest updates[BODIES_MAX];
static Tern__Wire__TopicConfig configs[BODIES_MAX];
static Tern__Wire__DeleteTopicRequest deletes[BODIES_MAX];
static int next_body;

static struct fake_request *make_update(const char *name, int32_t queues, int32_t perm)
{
    int i = next_body++ % BODIES_MAX;
    struct fake_request *request = fake_call("", 1);
    tern__wire__update_topic_request__init(&updates[i]);
    tern__wire__topic_config__init(&configs[i]);
    configs[i].name = NAME(name);
    configs[i].read_queues = configs[i].write_queues = queues;
    configs[i].perm = perm;
    updates[i].topic = &configs[i];
    request->header.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_TOPIC;
    request->header.update_topic = &updates[i];
    return request;
}

static struct fake_request *make_delete(const char *name)
{
    int i = next_body++ % BODIES_MAX;
    struct fake_request *request = fake_call("", 1);
    tern__wire__delete_topic_request__init(&deletes[i]);
    deletes[i].topic = NAME(name);
    request->header.body_case = TERN__WIRE__REQUEST__BODY_DELETE_TOPIC;
    request->header.delete_topic = &deletes[i];
    return request;
}

static struct fake_request *update(const char *name, int32_t queues)
{
    struct fake_request *request = make_update(name, queues, PERM_READ | PERM_WRITE);
    fake_run(request, handle_update_topic);
    return request;
}

/* ---- topics ---- */

static void topic_is_durable_and_published_when_it_is_answered(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(update("T", 4)), 0);
    assert_int_equal(fake.publishes, 1);
    sim_fs_power_loss(fake.sim.fs, SIM_TORN_NONE);
    fake_broker_restart();
    assert_true(has_topic("T"));
}

static void batch_is_persisted_and_published_once(void **state)
{
    (void)state;
    struct fake_request *requests[20];
    char name[20][16];
    uint64_t renames = sim_fs_calls(fake.sim.fs, SIM_FS_RENAME);
    for (int i = 0; i < 20; i++) {
        snprintf(name[i], sizeof name[i], "T%d", i);
        requests[i] = make_update(name[i], 4, PERM_READ | PERM_WRITE);
        handle_update_topic(&fake.broker, &requests[i]->pub);
    }
    sim_run_for(fake.sim.sched, ms_to_ns(1));
    for (int i = 0; i < 20; i++)
        assert_int_equal(fake_request_code(requests[i]), 0);
    assert_int_equal(fake.publishes, 1);
    assert_true(sim_fs_calls(fake.sim.fs, SIM_FS_RENAME) - renames <= 3);
}

static void bad_request_does_not_spoil_its_batch(void **state)
{
    (void)state;
    struct fake_request *good = make_update("good", 4, PERM_READ);
    struct fake_request *bad = make_update("../bad", 4, PERM_READ);
    struct fake_request *system_topic = make_update("SCHEDULE_TOPIC_XXXX", 4, PERM_READ);
    handle_update_topic(&fake.broker, &good->pub);
    handle_update_topic(&fake.broker, &bad->pub);
    handle_update_topic(&fake.broker, &system_topic->pub);
    sim_run_for(fake.sim.sched, ms_to_ns(1));
    assert_int_equal(fake_request_code(good), 0);
    assert_int_equal(fake_request_code(bad), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(system_topic), TERN__WIRE__CODE__INVALID_REQUEST);
}

static void failed_persist_takes_the_batch_back_and_says_so(void **state)
{
    (void)state;
    struct sim_fs_fault fault = {
        .op = SIM_FS_SYNC, .nth = 1, .errno_value = ENOSPC, .forever = true};
    sim_fs_fail(fake.sim.fs, &fault);
    struct fake_request *request = update("T", 4);
    sim_fs_fail_clear(fake.sim.fs);
    assert_true(fake_request_code(request) != 0);
    assert_contains(fake_remark(request), "taken back");
    assert_false(has_topic("T"));
    assert_int_equal(fake.publishes, 0);
    assert_int_equal(fake_request_code(update("T", 4)), 0);
}

static void request_whose_sender_stopped_waiting_is_not_carried_out(void **state)
{
    (void)state;
    struct fake_request *request = make_update("late", 4, PERM_READ);
    request->pub.deadline_ns = clock_mono_ns(fake.sim.env.clock);
    fake_run(request, handle_update_topic);
    assert_true(fake_request_code(request) != 0);
    assert_false(has_topic("late"));
}

static void queue_beyond_its_limit_answers_busy(void **state)
{
    (void)state;
    int busy = 0;
    enum { MORE = 5 };
    struct fake_request **all = calloc(ADMIN_QUEUE_MAX + MORE, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < ADMIN_QUEUE_MAX + MORE; i++) {
        all[i] = fake_request_new(fake.sim.env.clock, "", 1, 3000);
        tern__wire__delete_topic_request__init(&deletes[0]);
        deletes[0].topic = NAME("absent");
        all[i]->header.delete_topic = &deletes[0];
        handle_delete_topic(&fake.broker, &all[i]->pub);
        busy += fake_request_code(all[i]) == TERN__WIRE__CODE__SYSTEM_BUSY;
    }
    assert_int_equal(busy, MORE);
    sim_run_for(fake.sim.sched, ms_to_ns(1));
    for (int i = 0; i < ADMIN_QUEUE_MAX + MORE; i++)
        fake_request_free(all[i]);
    free(all);
}

static void slave_refuses_changes(void **state)
{
    (void)state;
    fake.broker.config.role = ROLE_SLAVE;
    assert_int_equal(fake_request_code(update("T", 4)), TERN__WIRE__CODE__NO_PERMISSION);
    assert_false(has_topic("T"));
}

static void master_changes_tables_only_while_it_is_open_and_tells_its_slaves(void **state)
{
    (void)state;
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_RECOVERING);
    struct fake_request *request = update("T", 4);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE);
    assert_contains(fake_remark(request), "recovers");
    assert_false(has_topic("T"));
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_OPEN);
    int changes = fake.ha.changes;
    assert_int_equal(fake_request_code(update("T", 4)), 0);
    assert_true(fake.ha.changes > changes);
    changes = fake.ha.changes;
    request = make_delete("T");
    fake_run(request, handle_delete_topic);
    assert_int_equal(fake_request_code(request), 0);
    assert_true(fake.ha.changes > changes + 1); /* of the table, and of where its life ends */
}

/* ---- deleting ---- */

static void data_of_a_topic_goes_after_its_removal_is_durable_MD_05(void **state)
{
    (void)state;
    int64_t held;
    struct offset_version version = {0, 0};
    struct pull_stats_view view;
    update("T", 4);
    assert_int_equal(
        offsets_commit(fake.broker.offsets, "G", "T", 0, 1000, version, &held, &version),
        OFFSETS_STORED);
    pull_stats_add(fake.broker.pull_stats, "G", "T", 0, "c", "*", 1, 1, 0);
    struct fake_request *request = make_delete("T");
    fake_run(request, handle_delete_topic);
    assert_int_equal(fake_request_code(request), 0);
    assert_string_equal(fake.deleted_topic, "T");
    assert_true(fake.topic_was_durably_gone);
    assert_false(pull_stats_get(fake.broker.pull_stats, "G", "T", 0, &view));
    assert_int_equal(fake.publishes, 2);
    update("T", 4);
    fake_broker_restart(); /* progress was removed durably, a late commit is old */
    assert_false(offsets_query(fake.broker.offsets, "G", "T", 0, &held, &version));
    assert_int_equal(version.counter, 1);
}

static void topic_made_again_in_the_same_burst_keeps_its_data(void **state)
{
    (void)state;
    update("T", 4);
    struct fake_request *gone = make_delete("T");
    struct fake_request *again = make_update("T", 8, PERM_READ | PERM_WRITE);
    handle_delete_topic(&fake.broker, &gone->pub);
    handle_update_topic(&fake.broker, &again->pub);
    sim_run_for(fake.sim.sched, ms_to_ns(1));
    assert_int_equal(fake_request_code(gone), 0);
    assert_int_equal(fake_request_code(again), 0);
    assert_true(fake.topic_was_durably_gone); /* its data went before it was made again */
    assert_true(has_topic("T"));
}

static void topic_whose_files_stay_is_gone_and_the_answer_says_so(void **state)
{
    (void)state;
    update("T", 4);
    fake.store_code = TERN_IO;
    struct fake_request *request = make_delete("T");
    fake_run(request, handle_delete_topic);
    assert_true(fake_request_code(request) != 0);
    assert_contains(fake_remark(request), "not all of its files");
    assert_false(has_topic("T"));
}

static void absent_and_system_topics_are_not_deleted(void **state)
{
    (void)state;
    struct fake_request *request = make_delete("absent");
    fake_run(request, handle_delete_topic);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__TOPIC_NOT_EXIST);
    request = make_delete("SELF_TEST_TOPIC");
    fake_run(request, handle_delete_topic);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_null(fake.deleted_topic);
}

static void list_has_all_topics_and_the_version(void **state)
{
    (void)state;
    Tern__Wire__ListTopicsRequest body = TERN__WIRE__LIST_TOPICS_REQUEST__INIT;
    update("T", 4);
    struct fake_request *request = fake_call("", 1);
    request->header.body_case = TERN__WIRE__REQUEST__BODY_LIST_TOPICS;
    request->header.list_topics = &body;
    fake_run(request, handle_list_topics);
    const Tern__Wire__ListTopicsResponse *list = request->response->list_topics;
    assert_int_equal(list->n_topics, topics_count(fake.broker.topics));
    assert_true(list->version == topics_version(fake.broker.topics));
    bool found = false;
    for (size_t i = 0; i < list->n_topics; i++)
        if (list->topics[i]->name.len == 1 && list->topics[i]->name.data[0] == 'T')
            found = list->topics[i]->write_queues == 4;
    assert_true(found);
}

/* ---- groups ---- */

static struct fake_request *update_group(const char *name, int32_t retry_max_times)
{
    static Tern__Wire__UpdateGroupRequest body;
    static Tern__Wire__GroupConfig config;
    struct fake_request *request = fake_call("", 1);
    tern__wire__update_group_request__init(&body);
    tern__wire__group_config__init(&config);
    config.name = NAME(name);
    config.consume_enable = true;
    config.retry_queues = 1;
    config.retry_max_times = retry_max_times;
    body.group = &config;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_GROUP;
    request->header.update_group = &body;
    fake_run(request, handle_update_group);
    return request;
}

static struct fake_request *delete_group(const char *name, bool remove_offsets)
{
    static Tern__Wire__DeleteGroupRequest body;
    struct fake_request *request = fake_call("", 1);
    tern__wire__delete_group_request__init(&body);
    body.group = NAME(name);
    body.remove_offsets = remove_offsets;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_DELETE_GROUP;
    request->header.delete_group = &body;
    fake_run(request, handle_delete_group);
    return request;
}

static void group_is_updated_durably_without_telling_nameservers(void **state)
{
    (void)state;
    struct group_config config;
    assert_int_equal(fake_request_code(update_group("G", 3)), 0);
    assert_int_equal(fake_request_code(update_group("a/b", 3)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(update_group("G", -3)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake.publishes, 0);
    fake_broker_restart();
    assert_true(groups_find(fake.broker.groups, "G", 1, &config));
    assert_int_equal(config.retry_max_times, 3);
    assert_false(config.notify_members_changed);
}

static void deleted_group_keeps_its_progress_unless_asked(void **state)
{
    (void)state;
    int64_t held;
    struct offset_version version = {0, 0};
    update_group("G", 3);
    offsets_commit(fake.broker.offsets, "G", "T", 0, 10, version, &held, &version);
    assert_int_equal(fake_request_code(delete_group("G", false)), 0);
    assert_true(offsets_query(fake.broker.offsets, "G", "T", 0, &held, &version));
    assert_int_equal(fake_request_code(delete_group("G", false)),
                     TERN__WIRE__CODE__SUBSCRIPTION_GROUP_NOT_EXIST);
    update_group("G", 3);
    assert_int_equal(fake_request_code(delete_group("G", true)), 0);
    assert_false(offsets_query(fake.broker.offsets, "G", "T", 0, &held, &version));
}

static void list_has_all_groups(void **state)
{
    (void)state;
    Tern__Wire__ListGroupsRequest body = TERN__WIRE__LIST_GROUPS_REQUEST__INIT;
    update_group("B", 3);
    update_group("A", 4);
    struct fake_request *request = fake_call("", 1);
    request->header.body_case = TERN__WIRE__REQUEST__BODY_LIST_GROUPS;
    request->header.list_groups = &body;
    fake_run(request, handle_list_groups);
    const Tern__Wire__ListGroupsResponse *list = request->response->list_groups;
    assert_int_equal(list->n_groups, 2);
    assert_int_equal(list->groups[0]->name.data[0], 'A');
    assert_int_equal(list->groups[0]->retry_max_times, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(topic_is_durable_and_published_when_it_is_answered),
        TEST(batch_is_persisted_and_published_once),
        TEST(bad_request_does_not_spoil_its_batch),
        TEST(failed_persist_takes_the_batch_back_and_says_so),
        TEST(request_whose_sender_stopped_waiting_is_not_carried_out),
        TEST(queue_beyond_its_limit_answers_busy),
        TEST(slave_refuses_changes),
        TEST(master_changes_tables_only_while_it_is_open_and_tells_its_slaves),
        TEST(data_of_a_topic_goes_after_its_removal_is_durable_MD_05),
        TEST(topic_made_again_in_the_same_burst_keeps_its_data),
        TEST(topic_whose_files_stay_is_gone_and_the_answer_says_so),
        TEST(absent_and_system_topics_are_not_deleted),
        TEST(list_has_all_topics_and_the_version),
        TEST(group_is_updated_durably_without_telling_nameservers),
        TEST(deleted_group_keeps_its_progress_unless_asked),
        TEST(list_has_all_groups),
    };
    return cmocka_run_group_tests_name("tables", tests, NULL, NULL);
}
