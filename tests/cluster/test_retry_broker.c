/*
 * What a broker makes of a message that comes back: copies, counts, dead letters, refusals (R-6,
 * RO-03, RO-04, TX-06, NS-03; facts 8.9).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/props.h"
#include "tests/cluster/retry_requests.h"

#define RETRY_TOPIC "%RETRY%" WORLD_GROUP
#define DLQ_TOPIC "%DLQ%" WORLD_GROUP

static struct world world;

static void begin(int32_t role)
{
    world_prepare(&world, 11);
    world.master->config.role = role;
    world_start(&world);
}

static int64_t put(const char *props)
{
    struct retry_sent sent = retry_send(
        &world, &(struct retry_send){.topic = WORLD_TOPIC, .props = props, .body = "hello"});
    assert_int_equal(sent.code, TERN_OK);
    return sent.phys_off;
}

static struct retry_record last_of(const char *topic)
{
    static struct retry_record out;
    int64_t end = retry_queue_end(world.master, topic, 0);
    assert_true(end > 0);
    assert_true(retry_record_at(world.master, topic, 0, end - 1, &out));
    return out;
}

static void assert_property(const char *topic, const char *name, const char *value)
{
    struct retry_record record;
    assert_true(retry_record_at(world.master, topic, 0, retry_queue_end(world.master, topic, 0) - 1,
                                &record));
    assert_string_equal(retry_property(&record, name), value);
}

/* ---- copies ---- */

/* R-6, RO-04: the copy is the message, counted, readable; the topic is durable with the answer. */
static void a_dead_letter_is_the_message_counted(void **state)
{
    (void)state;
    begin(ROLE_SYNC_MASTER);
    int64_t phys = put("TAGS\x01red\x02KEYS\x01k1 k2\x02own\x01value");
    assert_false(world_has_topic(world.master, DLQ_TOPIC));
    assert_int_equal(retry_send_back(&world, world.master,
                                     &(struct retry_back){.phys_off = phys, .level = -1}, NULL),
                     TERN_OK);
    struct topic_config topic;
    assert_true(topics_find(world.master->broker->topics, DLQ_TOPIC, strlen(DLQ_TOPIC), &topic));
    assert_int_equal(topic.perm, PERM_READ | PERM_WRITE);
    assert_int_equal(topic.read_queues, 1);
    struct retry_record copy = last_of(DLQ_TOPIC);
    assert_int_equal(copy.record.reconsume_times, 1);
    assert_int_equal(copy.record.born_ms, 1234);
    assert_int_equal(copy.record.body_len, 5);
    assert_property(DLQ_TOPIC, PROP_TAGS, "red");
    assert_property(DLQ_TOPIC, PROP_KEYS, "k1 k2");
    assert_property(DLQ_TOPIC, "own", "value");
    assert_property(DLQ_TOPIC, PROP_RETRY_TOPIC, WORLD_TOPIC);
    char id[MESSAGE_ID_BYTES];
    message_id_format(id, &world.master->broker->store_host, phys);
    assert_property(DLQ_TOPIC, PROP_ORIGIN_MESSAGE_ID, id);
    /* a power loss right behind the answer takes neither topic nor message */
    node_power_off(world.master, SIM_TORN_NONE);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 60000));
    world_run_ms(&world, 1000);
    assert_true(world_has_topic(world.master, DLQ_TOPIC));
    assert_int_equal(retry_queue_end(world.master, DLQ_TOPIC, 0), 1);
    world_end(&world);
}

/* RO-03, TX-06: nothing that delays it or belongs to a transaction is left. */
static void a_copy_asks_for_nothing_that_its_message_asked_for(void **state)
{
    static const char *const gone[] = {
        PROP_REAL_TOPIC,   PROP_REAL_QID, PROP_PGROUP, PROP_SEQUEL_OF,
        PROP_TIMER_OUT_MS, PROP_WAIT,     PROP_DELAY,  "TRANSACTION_CHECK_TIMES"};
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    int64_t phys = put("REAL_TOPIC\x01Half\x02REAL_QID\x01"
                       "3\x02PGROUP\x01p\x02TRANSACTION_CHECK_TIMES\x01"
                       "2\x02RETRY_TOPIC\x01Spoofed\x02own\x01value");
    assert_int_equal(retry_send_back(&world, world.master,
                                     &(struct retry_back){.phys_off = phys, .level = -1}, NULL),
                     TERN_OK);
    world_run_ms(&world, 1000);
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        assert_property(DLQ_TOPIC, gone[i], "");
    assert_property(DLQ_TOPIC, PROP_RETRY_TOPIC, WORLD_TOPIC); /* not what the sender said */
    assert_property(DLQ_TOPIC, "own", "value");
    struct retry_record copy = last_of(DLQ_TOPIC);
    assert_int_equal(copy.record.sys_flag & SYS_TX_MASK, 0);
    assert_int_equal(copy.record.prepared_tx_off, 0);
    world_end(&world);
}

/* The level: asked for, else three and the count, the last at most. */
static void a_retry_waits_at_the_level_of_its_count(void **state)
{
    static const struct {
        int32_t level, times;
        const char *waits_at;
        int32_t queue;
    } cases[] = {{0, 0, "3", 2},    {0, 1, "4", 3}, {0, 14, "17", 16},
                 {0, 15, "18", 17}, {5, 3, "5", 4}, {99, 0, "18", 17}};
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    int64_t phys = put("TAGS\x01red");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(retry_send_back(&world, world.master,
                                         &(struct retry_back){.phys_off = phys,
                                                              .level = cases[i].level,
                                                              .times = cases[i].times},
                                         NULL),
                         TERN_OK);
        int32_t queue = cases[i].queue;
        struct retry_record waiting;
        world_run_ms(&world, 1);
        int64_t end = retry_queue_end(world.master, SCHEDULE_TOPIC, queue);
        assert_true(end > 0);
        assert_true(retry_record_at(world.master, SCHEDULE_TOPIC, queue, end - 1, &waiting));
        assert_int_equal(waiting.record.reconsume_times, cases[i].times + 1);
        assert_string_equal(retry_property(&waiting, PROP_REAL_TOPIC), RETRY_TOPIC);
        assert_string_equal(retry_property(&waiting, PROP_DELAY), cases[i].waits_at);
        assert_string_equal(retry_property(&waiting, PROP_RETRY_TOPIC), WORLD_TOPIC);
    }
    assert_true(world_has_topic(world.master, RETRY_TOPIC));
    world_end(&world);
}

static void the_count_decides_between_again_and_dead(void **state)
{
    static const struct {
        int32_t times, max_times;
        bool dead;
    } cases[] = {{15, 0, false}, {16, 0, true}, {2, 3, false}, {3, 3, true}, {20, 30, false}};
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    int64_t phys = put("");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t before = retry_queue_end(world.master, DLQ_TOPIC, 0);
        assert_int_equal(retry_send_back(&world, world.master,
                                         &(struct retry_back){.phys_off = phys,
                                                              .times = cases[i].times,
                                                              .max_times = cases[i].max_times},
                                         NULL),
                         TERN_OK);
        world_run_ms(&world, 10);
        assert_int_equal(retry_queue_end(world.master, DLQ_TOPIC, 0), before + cases[i].dead);
    }
    world_end(&world);
}

/* RocketMQ answers success and drops it. */
static void a_group_without_retry_queues_has_only_dead_letters(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    assert_int_equal(retry_update_group(&world, "never-again", 0, 16), TERN_OK);
    assert_int_equal(
        retry_send_back(&world, world.master,
                        &(struct retry_back){.group = "never-again", .phys_off = put("")}, NULL),
        TERN_OK);
    world_run_ms(&world, 10);
    assert_int_equal(retry_queue_end(world.master, "%DLQ%never-again", 0), 1);
    world_end(&world);
}

/* A dead letter that another group reads and fails on has not failed there before. */
static void a_count_belongs_to_one_group(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    assert_int_equal(retry_send_back(&world, world.master,
                                     &(struct retry_back){.phys_off = put(""), .times = 16}, NULL),
                     TERN_OK);
    world_run_ms(&world, 10);
    struct retry_record dead = last_of(DLQ_TOPIC);
    assert_int_equal(dead.record.reconsume_times, 17);
    assert_int_equal(retry_send_back(&world, world.master,
                                     &(struct retry_back){.group = "menders",
                                                          .topic = DLQ_TOPIC,
                                                          .phys_off = dead.record.phys_off},
                                     NULL),
                     TERN_OK);
    world_run_ms(&world, 10);
    struct retry_record waiting;
    assert_true(retry_record_at(world.master, SCHEDULE_TOPIC, 2, 0, &waiting));
    assert_int_equal(waiting.record.reconsume_times, 1);
    assert_string_equal(retry_property(&waiting, PROP_RETRY_TOPIC), DLQ_TOPIC);
    assert_string_equal(retry_property(&waiting, PROP_REAL_TOPIC), "%RETRY%menders");
    world_end(&world);
}

/* ---- refusals ---- */

static void refused(struct sim_node *node, const struct retry_back *what, enum tern_code code,
                    const char *text)
{
    char remark[512];
    assert_int_equal(retry_send_back(&world, node, what, remark), code);
    if (!strstr(remark, text))
        fail_msg("\"%s\" does not say \"%s\"", remark, text);
}

static void each_refusal_has_its_code_and_stores_nothing(void **state)
{
    char long_group[201];
    (void)state;
    memset(long_group, 'g', 200);
    long_group[200] = 0;
    begin(ROLE_ASYNC_MASTER);
    int64_t phys = put("");
    struct store_positions before = world_at(world.master);
    refused(world.master, &(struct retry_back){.phys_off = phys, .level = -2}, TERN_INVALID,
            "delay_level -2");
    refused(world.master, &(struct retry_back){.phys_off = phys, .times = -1}, TERN_INVALID,
            "reconsume_times -1");
    refused(world.master, &(struct retry_back){.phys_off = phys, .max_times = -1}, TERN_INVALID,
            "max_reconsume_times -1");
    refused(world.master, &(struct retry_back){.phys_off = phys, .group = "a b"}, TERN_INVALID, "");
    refused(world.master, &(struct retry_back){.phys_off = phys, .group = long_group}, TERN_INVALID,
            "200 bytes");
    refused(world.master, &(struct retry_back){.phys_off = phys + 1}, TERN_QUERY_NOT_FOUND,
            "no message begins");
    refused(world.master, &(struct retry_back){.phys_off = -1}, TERN_QUERY_NOT_FOUND, "");
    refused(world.master, &(struct retry_back){.phys_off = INT64_MAX}, TERN_QUERY_NOT_FOUND, "");
    refused(world.master, &(struct retry_back){.phys_off = phys, .topic = "Other"},
            TERN_QUERY_NOT_FOUND, "another topic");
    refused(world.master, &(struct retry_back){.phys_off = phys, .store_ms = 77},
            TERN_QUERY_NOT_FOUND, "another store time");
    refused(world.master, &(struct retry_back){.phys_off = phys, .id = "0A"}, TERN_QUERY_NOT_FOUND,
            "another message id");
    refused(world.master, &(struct retry_back){.phys_off = phys, .topic = SCHEDULE_TOPIC},
            TERN_NO_PERMISSION, "system topic");
    refused(world.slave, &(struct retry_back){.phys_off = phys}, TERN_SERVICE_NOT_AVAILABLE,
            "send to the master");
    assert_int_equal(world_at(world.master).appended, before.appended);
    world_end(&world);
}

static void without_automatic_groups_an_unknown_one_is_refused(void **state)
{
    (void)state;
    world_prepare(&world, 12);
    world.master->config.auto_create_group = false;
    world_start(&world);
    refused(world.master, &(struct retry_back){.group = "nobody", .phys_off = put("")},
            TERN_GROUP_NOT_EXIST, "nobody");
    assert_false(world_has_topic(world.master, "%RETRY%nobody"));
    world_end(&world);
}

/* ---- plain sends to a retry topic ---- */

/* Facts 2.1, step 8; RO-03. */
static void a_copy_beyond_its_maximum_is_a_dead_letter_at_once(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    assert_int_equal(retry_update_group(&world, WORLD_GROUP, 1, 2), TERN_OK);
    struct retry_sent sent =
        retry_send(&world, &(struct retry_send){.topic = RETRY_TOPIC,
                                                .props = "RETRY_TOPIC\x01" WORLD_TOPIC "\x02"
                                                         "DELAY\x01"
                                                         "9",
                                                .body = "copy",
                                                .reconsume_times = 3});
    assert_int_equal(sent.code, TERN_OK);
    world_run_ms(&world, 10);
    assert_int_equal(retry_queue_end(world.master, DLQ_TOPIC, 0), 1);
    assert_property(DLQ_TOPIC, PROP_DELAY, "");
    assert_property(DLQ_TOPIC, PROP_RETRY_TOPIC, WORLD_TOPIC);
    /* the last try that is allowed is none */
    sent = retry_send(&world, &(struct retry_send){.topic = RETRY_TOPIC,
                                                   .props = "RETRY_TOPIC\x01" WORLD_TOPIC,
                                                   .body = "copy",
                                                   .reconsume_times = 2});
    assert_int_equal(sent.code, TERN_OK);
    world_run_ms(&world, 10);
    assert_int_equal(retry_queue_end(world.master, RETRY_TOPIC, 0), 1);
    assert_int_equal(retry_queue_end(world.master, DLQ_TOPIC, 0), 1);
    world_end(&world);
}

/* NS-03: also where topics are made by sending. */
static void a_send_makes_no_retry_topic_of_a_group_that_is_not_there(void **state)
{
    (void)state;
    for (int automatic = 0; automatic < 2; automatic++) {
        world_prepare(&world, 13);
        world.master->config.auto_create_topic = automatic;
        world_start(&world);
        struct retry_sent sent = retry_send(
            &world, &(struct retry_send){.topic = "%RETRY%nobody", .props = "", .body = "x"});
        assert_int_equal(sent.code, TERN_TOPIC_NOT_EXIST);
        sent = retry_send(&world,
                          &(struct retry_send){.topic = "%DLQ%nobody", .props = "", .body = "x"});
        assert_int_equal(sent.code, TERN_TOPIC_NOT_EXIST);
        assert_false(world_has_topic(world.master, "%RETRY%nobody"));
        assert_false(world_has_topic(world.master, "%DLQ%nobody"));
        world_end(&world);
    }
}

static void a_copy_that_names_no_topic_is_refused(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    assert_int_equal(retry_update_group(&world, WORLD_GROUP, 1, 16), TERN_OK);
    struct retry_sent sent = retry_send(
        &world,
        &(struct retry_send){.topic = RETRY_TOPIC, .props = "RETRY_TOPIC\x01../x", .body = "x"});
    assert_int_equal(sent.code, TERN_MESSAGE_ILLEGAL);
    assert_non_null(strstr(sent.remark, "RETRY_TOPIC"));
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_letter_is_the_message_counted),
        cmocka_unit_test(a_copy_asks_for_nothing_that_its_message_asked_for),
        cmocka_unit_test(a_retry_waits_at_the_level_of_its_count),
        cmocka_unit_test(the_count_decides_between_again_and_dead),
        cmocka_unit_test(a_group_without_retry_queues_has_only_dead_letters),
        cmocka_unit_test(a_count_belongs_to_one_group),
        cmocka_unit_test(each_refusal_has_its_code_and_stores_nothing),
        cmocka_unit_test(without_automatic_groups_an_unknown_one_is_refused),
        cmocka_unit_test(a_copy_beyond_its_maximum_is_a_dead_letter_at_once),
        cmocka_unit_test(a_send_makes_no_retry_topic_of_a_group_that_is_not_there),
        cmocka_unit_test(a_copy_that_names_no_topic_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
