/* Members of a group share the queues: who owns what when members come and go and answers fail. */
#include "tests/unit/client/heard.h"

enum { QUEUES = 8 };

struct member {
    struct tern_consumer_options *options;
    struct tern_push_consumer *consumer;
    struct heard *heard;
};

static struct member member_start_with(struct fake *fake, const char *name, const char *strategy)
{
    struct member member = {.options = fake_options(fake, "group", name),
                            .heard = heard_create(fake)};
    struct tern_error err;
    assert_ok(tern_consumer_options_from(member.options, TERN_FROM_FIRST, 0));
    assert_ok(tern_consumer_options_allocate(member.options, strategy));
    assert_ok(tern_push_consumer_create(member.options, &member.consumer, &err));
    assert_ok(tern_push_consumer_subscribe(member.consumer, FAKE_TOPIC, "*", &err));
    assert_ok(tern_push_consumer_listener(member.consumer, listen_and_remember, member.heard));
    if (tern_push_consumer_start(member.consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
    return member;
}

static struct member member_start(struct fake *fake, const char *name)
{
    return member_start_with(fake, name, "AVG");
}

static void member_stop(struct member *member)
{
    tern_push_consumer_destroy(member->consumer);
    tern_consumer_options_destroy(member->options);
    free(member->heard);
}

static unsigned owned(const struct member *member)
{
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(member->consumer, &stats);
    return stats.queues;
}

/* One message to each queue; which queues the member heard from, as text. */
static void probe(struct fake *fake, struct member *members, size_t count, char texts[][QUEUES + 1])
{
    unsigned before[FAKE_MEMBERS];
    for (size_t i = 0; i < count; i++)
        before[i] = members[i].heard->count;
    for (int q = 0; q < QUEUES; q++)
        fake_publish(fake, q, NULL, 1);
    fake_run_ms(fake, 1000);
    for (size_t i = 0; i < count; i++) {
        bool heard[QUEUES] = {false};
        size_t len = 0;
        for (unsigned k = before[i]; k < members[i].heard->count; k++)
            heard[members[i].heard->items[k].queue_id] = true;
        for (int q = 0; q < QUEUES; q++)
            if (heard[q])
                texts[i][len++] = (char)('0' + q);
        texts[i][len] = '\0';
    }
}

/* */
static void three_members_share_eight_queues_and_take_over_from_one_that_leaves(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    struct member members[3];
    char texts[3][QUEUES + 1];
    members[0] = member_start(fake, "a");
    fake_run_ms(fake, 1000);
    assert_int_equal(owned(&members[0]), 8);
    members[1] = member_start(fake, "b");
    members[2] = member_start(fake, "c");
    fake_run_ms(fake, 1000); /* at once, not after 20 s */
    probe(fake, members, 3, texts);
    assert_string_equal(texts[0], "012");
    assert_string_equal(texts[1], "345");
    assert_string_equal(texts[2], "67");
    member_stop(&members[0]);
    fake_run_ms(fake, 1000);
    probe(fake, members + 1, 2, texts);
    assert_string_equal(texts[0], "0123");
    assert_string_equal(texts[1], "4567");
    member_stop(&members[1]);
    member_stop(&members[2]);
    fake_destroy(fake);
}

/* the strategy asked for is the one that shares */
static void members_share_by_the_strategy_that_they_were_given(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    struct member members[3];
    char texts[3][QUEUES + 1];
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        members[i] = member_start_with(fake, names[i], "AVG_BY_CIRCLE");
    fake_run_ms(fake, 1000);
    assert_int_equal(sim_log_count(&fake->sim, "strategy=AVG_BY_CIRCLE"), 3);
    probe(fake, members, 3, texts);
    assert_string_equal(texts[0], "036");
    assert_string_equal(texts[1], "147");
    assert_string_equal(texts[2], "25");
    for (int i = 0; i < 3; i++)
        member_stop(&members[i]);
    fake_destroy(fake);
}

static bool no_broker_room(void *arg, const struct tern_queue *queue, char room[TERN_ROOM_BYTES])
{
    (void)queue;
    snprintf(room, TERN_ROOM_BYTES, "here");
    return *(bool *)arg;
}

static bool any_client_room(void *arg, const char *client_id, char room[TERN_ROOM_BYTES])
{
    (void)arg;
    (void)client_id;
    snprintf(room, TERN_ROOM_BYTES, "here");
    return true;
}

/* A resolver that cannot tell for a while changes nothing, and is said to be the reason. */
static void a_share_that_cannot_be_computed_keeps_the_queues(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    bool known = true;
    struct tern_room_resolver resolver = {no_broker_room, any_client_room, &known};
    struct member member = {.options = fake_options(fake, "group", "a"),
                            .heard = heard_create(fake)};
    assert_ok(tern_consumer_options_allocate(member.options, "MACHINE_ROOM_NEARBY-AVG"));
    assert_ok(tern_consumer_options_allocate_resolver(member.options, &resolver));
    assert_ok(tern_push_consumer_create(member.options, &member.consumer, NULL));
    assert_ok(tern_push_consumer_subscribe(member.consumer, FAKE_TOPIC, "*", NULL));
    assert_ok(tern_push_consumer_listener(member.consumer, listen_and_remember, member.heard));
    assert_ok(tern_push_consumer_start(member.consumer, NULL));
    fake_run_ms(fake, 1000);
    assert_int_equal(owned(&member), 8);
    known = false;
    fake_run_ms(fake, 60000);
    assert_int_equal(owned(&member), 8);
    assert_int_equal(sim_log_count(&fake->sim, "consumer_share_unknown"), 3);
    member_stop(&member);
    fake_destroy(fake);
}

/* What was consumed by the old owner is committed before the new one asks. */
static void a_queue_that_moves_takes_its_progress_along(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    struct member first = member_start(fake, "a");
    fake_run_ms(fake, 1000);
    for (int q = 0; q < QUEUES; q++)
        fake_publish(fake, q, NULL, 100);
    fake_run_ms(fake, 500); /* consumed, but no commit interval has passed */
    assert_int_equal(first.heard->count, 8 * 100);
    struct member second = member_start(fake, "b");
    fake_run_ms(fake, 10000);
    assert_int_equal(owned(&first), 4);
    assert_int_equal(owned(&second), 4);
    for (int q = 0; q < QUEUES; q++)
        assert_int_equal(fake->queues[q].committed, 100);
    fake_publish(fake, 7, NULL, 1);
    fake_run_ms(fake, 1000);
    assert_int_equal(heard_times(second.heard, 7, 100), 1);
    assert_int_equal(heard_times(first.heard, 7, 100), 0);
    member_stop(&first);
    member_stop(&second);
    fake_destroy(fake);
}

static void empty_and_failed_answers_keep_the_queues(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    struct member member = member_start(fake, "a");
    fake_run_ms(fake, 1000);
    fake->hide_members = true;
    fake_run_ms(fake, 60000);
    assert_int_equal(owned(&member), 8);
    fake->members_code = TERN_SYSTEM_BUSY;
    fake_run_ms(fake, 60000);
    assert_int_equal(owned(&member), 8);
    fake->listed[0] = fake->listed[1] = false; /* the route has no address any more */
    fake_run_ms(fake, 60000);
    assert_int_equal(owned(&member), 8);
    fake->listed[0] = fake->listed[1] = true;
    fake->hide_members = false;
    fake->members_code = TERN_OK;
    fake_run_ms(fake, 40000);
    fake_publish(fake, 3, NULL, 1);
    fake_run_ms(fake, 1000);
    assert_int_equal(heard_times(member.heard, 3, 0), 1);
    member_stop(&member);
    fake_destroy(fake);
}

/* R-3; the broker that forgot us hears of us again */
static void a_member_that_is_not_listed_owns_nothing_and_says_so(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    struct member member = member_start(fake, "a");
    fake_run_ms(fake, 1000);
    snprintf(fake->members[0], sizeof fake->members[0], "somebody else");
    fake_run_ms(fake, 20000);
    assert_int_equal(sim_log_count(&fake->sim, "consumer_not_a_member"), 1);
    fake_run_ms(fake, 5000);
    assert_int_equal(owned(&member), 4); /* known again, beside the other */
    member_stop(&member);
    fake_destroy(fake);
}

static void members_are_asked_of_the_slave_when_the_master_is_away(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    fake_node_down(&fake->brokers[0]);
    fake->listed[0] = false;
    struct member member = member_start(fake, "a");
    for (int q = 0; q < QUEUES; q++)
        fake->queues[q].committed = 0;
    fake_run_ms(fake, 5000);
    assert_int_equal(owned(&member), 8);
    fake_publish(fake, 0, NULL, 1);
    fake_run_ms(fake, 1000);
    assert_int_equal(member.heard->count, 1);
    member_stop(&member);
    fake_destroy(fake);
}

/* replication.md "Progress": where a group begins is decided at the master */
static void a_slave_does_not_decide_where_a_group_begins(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    fake_publish(fake, 0, NULL, 10);
    fake_node_down(&fake->brokers[0]);
    struct member member = member_start(fake, "a");
    fake_run_ms(fake, 20000);
    assert_int_equal(member.heard->count, 0);
    assert_int_equal(fake->commits, 0);
    fake_node_up(&fake->brokers[0]);
    fake_run_ms(fake, 20000);
    assert_int_equal(member.heard->count, 10);
    member_stop(&member);
    fake_destroy(fake);
}

static void new_queues_are_taken_when_the_route_grows(void **state)
{
    (void)state;
    struct fake *fake = fake_create(2);
    struct member member = member_start(fake, "a");
    fake_run_ms(fake, 1000);
    assert_int_equal(owned(&member), 2);
    fake->queue_count = 5;
    fake_run_ms(fake, 31000);
    assert_int_equal(owned(&member), 5);
    member_stop(&member);
    fake_destroy(fake);
}

/* RO-05's cousin: the retry topic appears with the first message that was sent back */
static void the_retry_topic_is_consumed_when_it_appears(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_start(fake, "a");
    fake_run_ms(fake, 30000);
    assert_int_equal(owned(&member), 1);
    fake->has_retry_topic = true;
    fake_publish(fake, FAKE_QUEUES, NULL, 1);
    fake->queues[FAKE_QUEUES].reconsume[0] = 1;
    fake_run_ms(fake, 31000);
    assert_int_equal(owned(&member), 2);
    assert_int_equal(member.heard->count, 1);
    assert_string_equal(member.heard->topic, FAKE_TOPIC);
    assert_int_equal(member.heard->items[0].reconsume, 1);
    member_stop(&member);
    fake_destroy(fake);
}

/* RO-09 */
/* What is under way may be older than the change, so each topic asks once more, for itself: answers
 * that come one after the other do not call for one another. */
static void a_change_while_members_are_asked_asks_once_more(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    fake->has_retry_topic = true;
    struct member member = member_start(fake, "a");
    fake_run_ms(fake, 1000);
    fake->members_delay_ms = 10;
    unsigned before = fake->brokers[0].members_asked;
    fake_members_changed(fake);
    fake_run_ms(fake, 5);
    assert_int_equal(fake->brokers[0].members_asked, before + 2);
    fake_members_changed(fake);
    fake_run_ms(fake, 3000);
    assert_int_equal(fake->brokers[0].members_asked, before + 4);
    fake->members_delay_ms = 0;
    member_stop(&member);
    fake_destroy(fake);
}

static void after_cuts_every_queue_has_exactly_one_owner(void **state)
{
    (void)state;
    struct fake *fake = fake_create(QUEUES);
    struct member members[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        members[i] = member_start(fake, names[i]);
    for (int round = 0; round < 50; round++) {
        sim_net_reset(fake->net, "10.0.0.9", round % 3 == 0 ? "10.0.0.2" : "10.0.0.1");
        fake_run_ms(fake, 100 + 37 * round);
    }
    fake_run_ms(fake, 40000);
    char texts[4][QUEUES + 1];
    probe(fake, members, 4, texts);
    assert_string_equal(texts[0], "01");
    assert_string_equal(texts[1], "23");
    assert_string_equal(texts[2], "45");
    assert_string_equal(texts[3], "67");
    for (int i = 0; i < 4; i++)
        member_stop(&members[i]);
    fake_destroy(fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_members_share_eight_queues_and_take_over_from_one_that_leaves),
        cmocka_unit_test(members_share_by_the_strategy_that_they_were_given),
        cmocka_unit_test(a_share_that_cannot_be_computed_keeps_the_queues),
        cmocka_unit_test(a_queue_that_moves_takes_its_progress_along),
        cmocka_unit_test(empty_and_failed_answers_keep_the_queues),
        cmocka_unit_test(a_member_that_is_not_listed_owns_nothing_and_says_so),
        cmocka_unit_test(members_are_asked_of_the_slave_when_the_master_is_away),
        cmocka_unit_test(a_slave_does_not_decide_where_a_group_begins),
        cmocka_unit_test(new_queues_are_taken_when_the_route_grows),
        cmocka_unit_test(the_retry_topic_is_consumed_when_it_appears),
        cmocka_unit_test(a_change_while_members_are_asked_asks_once_more),
        cmocka_unit_test(after_cuts_every_queue_has_exactly_one_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
