/* What the admin tool asks of a broker: cloned progress, producers. */
#include "tests/unit/broker/broker_unit.h"
#include "tests/unit/broker/fake_broker.h"

#include "broker/handlers/handlers.h"
#include "broker/offsets_internal.h"

static int setup(void **state)
{
    (void)state;
    fake_broker_begin();
    fake_broker_topic("T", 2);
    fake_broker_topic("%RETRY%from", 1);
    fake_broker_queue("T", 0, 10, 100);
    fake_broker_queue("T", 1, 0, 100);
    fake_broker_queue("%RETRY%from", 0, 0, 5);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_broker_end();
    return 0;
}

static struct fake_request *ask_clone(const char *source, const char *group, const char *topic,
                                      bool dry_run)
{
    static Tern__Wire__CloneOffsetsRequest body;
    struct fake_request *request = fake_call("", 1);
    tern__wire__clone_offsets_request__init(&body);
    body.source_group = NAME(source);
    body.group = NAME(group);
    body.topic = NAME(topic);
    body.dry_run = dry_run;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_CLONE_OFFSETS;
    request->header.clone_offsets = &body;
    fake_run(request, handle_clone_offsets);
    return request;
}

static void commit(const char *group, const char *topic, int32_t queue_id, int64_t offset)
{
    assert_ok(offsets_reset(fake.broker.offsets, group, topic, queue_id, offset));
}

static int64_t held(const char *group, const char *topic, int32_t queue_id)
{
    struct offset_version version;
    int64_t offset;
    return offsets_query(fake.broker.offsets, group, topic, queue_id, &offset, &version) ? offset
                                                                                         : -1;
}

/* A-1: every queue where the source has progress, nothing of its retry topic, within the queue */
static void cloned_group_stands_where_the_source_stands(void **state)
{
    (void)state;
    commit("from", "T", 0, 3); /* below the minimum by now */
    commit("from", "T", 1, 42);
    commit("from", "%RETRY%from", 0, 2);
    commit("to", "T", 1, 77);
    struct fake_request *request = ask_clone("from", "to", "", false);
    assert_int_equal(fake_request_code(request), 0);
    const Tern__Wire__CloneOffsetsResponse *answer = request->response->clone_offsets;
    assert_int_equal(answer->n_queues, 2);
    assert_int_equal(answer->queues[0]->old_offset, -1);
    assert_int_equal(answer->queues[0]->new_offset, 10);
    assert_int_equal(answer->queues[1]->old_offset, 77);
    assert_int_equal(answer->queues[1]->new_offset, 42);
    assert_int_equal(held("to", "T", 0), 10);
    assert_int_equal(held("to", "T", 1), 42);
    assert_int_equal(held("to", "%RETRY%from", 0), -1);
}

static void dry_run_tells_the_same_and_changes_nothing(void **state)
{
    (void)state;
    commit("from", "T", 1, 42);
    struct fake_request *request = ask_clone("from", "to", "T", true);
    assert_int_equal(fake_request_code(request), 0);
    assert_int_equal(request->response->clone_offsets->n_queues, 1);
    assert_int_equal(held("to", "T", 1), -1);
}

static void clone_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    assert_int_equal(fake_request_code(ask_clone("from", "to", "T", false)),
                     wire_code_of(TERN_QUERY_NOT_FOUND));
    assert_int_equal(fake_request_code(ask_clone("from", "from", "T", false)),
                     wire_code_of(TERN_INVALID));
    assert_int_equal(fake_request_code(ask_clone("from", "to", "Absent", false)),
                     wire_code_of(TERN_TOPIC_NOT_EXIST));
    assert_int_equal(fake_request_code(ask_clone("a/b", "to", "T", false)),
                     wire_code_of(TERN_INVALID));
}

/* All or nothing: a table that is nearly full takes none, and says what its limit is. */
static void clone_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    struct offsets *offsets = fake.broker.offsets;
    commit("from", "T", 0, 20);
    commit("from", "T", 1, 42);
    commit("to", "T", 0, 77);
    size_t used = offsets->text_bytes;
    offsets->text_bytes = OFFSET_TEXT_MAX_BYTES - OFFSET_SLOT_TEXT_BYTES + 1; /* for none more */
    struct fake_request *request = ask_clone("from", "to", "", false);
    assert_int_equal(fake_request_code(request), wire_code_of(TERN_LIMIT));
    assert_non_null(strstr(request->response->remark, "no progress was changed"));
    assert_int_equal(held("to", "T", 0), 77);
    assert_int_equal(held("to", "T", 1), -1);
    offsets->text_bytes = OFFSET_TEXT_MAX_BYTES - OFFSET_SLOT_TEXT_BYTES;
    assert_int_equal(fake_request_code(ask_clone("from", "to", "", false)), 0);
    assert_int_equal(held("to", "T", 0), 20);
    assert_int_equal(held("to", "T", 1), 42);
    assert_int_equal(offsets->held.text_bytes, 0);
    assert_int_equal(fake_request_code(ask_clone("from", "other", "", false)),
                     wire_code_of(TERN_LIMIT));
    assert_int_equal(held("other", "T", 1), -1);
    assert_int_equal(offsets->held.text_bytes, 0);
    offsets->text_bytes = used + OFFSET_SLOT_TEXT_BYTES;
}

static void slave_clones_nothing(void **state)
{
    (void)state;
    commit("from", "T", 1, 42);
    fake_broker_ha(true, TERN__WIRE__HA_STATE__HA_FOLLOWING);
    assert_int_equal(fake_request_code(ask_clone("from", "to", "T", false)),
                     wire_code_of(TERN_NO_PERMISSION));
}

/* ---- producers ---- */

static void beat(const char *client_id, uint64_t peer_id, const char *const *groups, size_t count)
{
    struct tern_error err = {.text = ""};
    const struct member_heartbeat heartbeat = {.client_id = client_id,
                                               .peer_id = peer_id,
                                               .language = "C",
                                               .client_version = "1",
                                               .producer_groups = groups,
                                               .producer_group_count = count};
    assert_ok(members_heartbeat(fake.broker.members, &heartbeat, &err));
}

static struct fake_request *producers(const char *group)
{
    static Tern__Wire__ProducerConnectionRequest body;
    struct fake_request *request = fake_call("", 1);
    tern__wire__producer_connection_request__init(&body);
    body.group = NAME(group);
    request->header.body_case = TERN__WIRE__REQUEST__BODY_PRODUCER_CONNECTION;
    request->header.producer_connection = &body;
    fake_run(request, handle_producer_connection);
    return request;
}

static void producers_are_listed_by_group_and_client(void **state)
{
    (void)state;
    beat("c2", 2, (const char *const[]){"P", "Q"}, 2);
    beat("c1", 1, (const char *const[]){"P"}, 1);
    struct fake_request *request = producers("");
    assert_int_equal(fake_request_code(request), 0);
    const Tern__Wire__ProducerConnectionResponse *all = request->response->producer_connection;
    assert_int_equal(all->n_producers, 3);
    assert_memory_equal(all->producers[0]->client->client_id.data, "c1", 2);
    assert_memory_equal(all->producers[1]->client->client_id.data, "c2", 2);
    assert_memory_equal(all->producers[2]->group.data, "Q", 1);
    assert_int_equal(producers("Q")->response->producer_connection->n_producers, 1);
    assert_int_equal(fake_request_code(producers("R")), wire_code_of(TERN_QUERY_NOT_FOUND));
    assert_int_equal(fake_request_code(producers("a b")), wire_code_of(TERN_INVALID));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(cloned_group_stands_where_the_source_stands),
        TEST(dry_run_tells_the_same_and_changes_nothing),
        TEST(clone_that_makes_no_sense_is_refused),
        TEST(clone_that_does_not_fit_changes_nothing),
        TEST(slave_clones_nothing),
        TEST(producers_are_listed_by_group_and_client),
    };
    return cmocka_run_group_tests_name("admin requests", tests, NULL, NULL);
}
