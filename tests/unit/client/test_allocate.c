/*
 * Sharing queues (R-3, facts 7.8 and 13): each strategy's vectors, that any sharing is a partition,
 * and what each strategy needs.
 */
#include "tests/unit/base/unit.h"

#include "client/allocation.h"

enum { QUEUES_MAX = 40, MEMBERS = 8 };

static struct tern_queue queues[QUEUES_MAX];
static const char *const members[MEMBERS] = {"10.0.0.1@a", "10.0.0.1@b", "10.0.0.2@a",
                                             "10.0.0.3@a", "10.0.0.4@a", "10.0.0.5@a",
                                             "10.0.0.6@a", "10.0.0.7@a"};

/* count queues of T at the broker, from index `first` on. */
static void put_queues(size_t first, size_t count, const char *broker)
{
    for (size_t i = 0; i < count; i++) {
        struct tern_queue *queue = &queues[first + i];
        snprintf(queue->topic, sizeof queue->topic, "TopicTest");
        snprintf(queue->broker_name, sizeof queue->broker_name, "%s", broker);
        queue->queue_id = (int32_t)i;
    }
}

/* The share as text: "012". */
static void share_of(const struct allocate_strategy *strategy, const char *const *who,
                     size_t queue_count, size_t member_count, size_t own, char *text)
{
    struct allocate_input input = {.client_id = who[own],
                                   .queues = queues,
                                   .queue_count = queue_count,
                                   .members = who,
                                   .member_count = member_count};
    size_t mine[QUEUES_MAX];
    size_t count;
    struct tern_error err = {.text = ""};
    if (allocate_queues(strategy, &input, mine, &count, &err) != TERN_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++)
        text[i] = (char)('0' + mine[i]);
    text[count] = '\0';
}

static void expect_shares(const struct allocate_strategy *strategy, const char *const *who,
                          size_t queue_count, size_t member_count, const char *const *expected)
{
    char text[QUEUES_MAX + 1];
    for (size_t i = 0; i < member_count; i++) {
        share_of(strategy, who, queue_count, member_count, i, text);
        assert_string_equal(text, expected[i]);
    }
}

static struct tern_consumer_options *options_with(const char *strategy)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    assert_non_null(options);
    assert_ok(tern_consumer_options_allocate(options, strategy));
    return options;
}

/* ---- vectors ---- */

static void eight_queues_and_three_members_share_averagely(void **state)
{
    (void)state;
    put_queues(0, 8, "broker-a");
    expect_shares(&allocate_averagely, members, 8, 3, (const char *const[]){"012", "345", "67"});
}

/* |q| <= |c| gives one each to the first ones */
static void more_members_than_queues_leaves_the_last_without(void **state)
{
    (void)state;
    static const char *const expected[] = {"0", "1", "2", "", "", ""};
    put_queues(0, 8, "broker-a");
    expect_shares(&allocate_averagely, members, 3, 6, expected);
    expect_shares(&allocate_by_circle, members, 3, 6, expected);
}

static void a_circle_deals_queues_like_cards(void **state)
{
    (void)state;
    put_queues(0, 8, "broker-a");
    expect_shares(&allocate_by_circle, members, 8, 3, (const char *const[]){"036", "147", "25"});
}

static void rooms_share_equal_runs_and_deal_the_rest(void **state)
{
    (void)state;
    struct allocate_rooms rooms = {"room2;room1"};
    struct allocate_strategy strategy = allocate_by_room;
    strategy.settings = &rooms;
    put_queues(0, 8, "room1@broker-a");
    expect_shares(&strategy, members, 8, 3, (const char *const[]){"016", "237", "45"});
}

/* Only "room@name" with a room of the list counts; Java's split() forgets empty parts at the end.
 */
static void queues_of_other_rooms_belong_to_nobody(void **state)
{
    (void)state;
    struct allocate_rooms rooms = {"room1"};
    struct allocate_strategy strategy = allocate_by_room;
    strategy.settings = &rooms;
    put_queues(0, 2, "broker-a");
    put_queues(2, 2, "room1@broker-a");
    put_queues(4, 1, "room10@broker-a");
    put_queues(5, 1, "room1@broker@a");
    put_queues(6, 1, "room1@");
    put_queues(7, 1, "room1@broker@");
    expect_shares(&strategy, members, 8, 2, (const char *const[]){"27", "3"});
}

static void configured_queues_are_what_one_was_given(void **state)
{
    (void)state;
    put_queues(0, 8, "broker-a");
    struct tern_queue mine[3] = {queues[5], queues[2], queues[1]};
    snprintf(mine[2].topic, sizeof mine[2].topic, "Another");
    struct allocate_fixed fixed = {mine, 3};
    struct allocate_strategy strategy = allocate_by_config;
    strategy.settings = &fixed;
    expect_shares(&strategy, members, 8, 1, (const char *const[]){"25"});
}

static void the_ring_hash_is_rocketmqs(void **state)
{
    (void)state;
    assert_int_equal(allocate_ring_hash("192.168.0.10@1234-0"), 3799259887U);
    assert_int_equal(
        allocate_ring_hash("MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]"),
        1987926524U);
}

/* The expected shares were computed apart from this code, by the rule of facts 7.8. */
static void a_ring_of_hashes_shares_by_the_next_place(void **state)
{
    (void)state;
    static const char *const who[] = {"192.168.0.10@1234", "192.168.0.11@1234",
                                      "192.168.0.12@1234"};
    put_queues(0, 8, "broker-a");
    expect_shares(&allocate_by_hash, who, 8, 3, (const char *const[]){"0134", "2567", ""});
}

/* ---- nearby ---- */

/* "room@name" for brokers; members by the last digit of their address: 1 is room1, … */
static bool broker_room(void *arg, const struct tern_queue *queue, char room[TERN_ROOM_BYTES])
{
    const char *at = strchr(queue->broker_name, '@');
    (void)arg;
    if (!at)
        return false;
    snprintf(room, TERN_ROOM_BYTES, "%.*s", (int)(at - queue->broker_name), queue->broker_name);
    return true;
}

static bool client_room(void *arg, const char *client_id, char room[TERN_ROOM_BYTES])
{
    const char *lost = arg;
    if (lost && strcmp(client_id, lost) == 0)
        return false;
    snprintf(room, TERN_ROOM_BYTES, "room%c", client_id[7]);
    return true;
}

static struct allocate_strategy nearby(struct allocate_nearby *settings, const char *lost)
{
    *settings =
        (struct allocate_nearby){.inner = &allocate_averagely,
                                 .resolver = {broker_room, client_room, (void *)(uintptr_t)lost}};
    struct allocate_strategy strategy = allocate_near_room;
    strategy.settings = settings;
    return strategy;
}

/* room1 has two members, room2 one, room3 none: that one is shared by all */
static void a_room_is_shared_by_its_members_and_an_empty_one_by_all(void **state)
{
    (void)state;
    struct allocate_nearby settings;
    struct allocate_strategy strategy = nearby(&settings, NULL);
    put_queues(0, 3, "room1@broker-a");
    put_queues(3, 2, "room2@broker-b");
    put_queues(5, 4, "room3@broker-c");
    expect_shares(&strategy, members, 9, 3, (const char *const[]){"0156", "27", "348"});
}

static void a_member_of_a_room_without_queues_shares_only_the_empty_ones(void **state)
{
    (void)state;
    struct allocate_nearby settings;
    struct allocate_strategy strategy = nearby(&settings, NULL);
    put_queues(0, 4, "room1@broker-a");
    expect_shares(&strategy, members, 4, 3, (const char *const[]){"01", "23", ""});
}

static void an_unknown_room_shares_nothing_at_all(void **state)
{
    (void)state;
    struct allocate_nearby settings;
    struct allocate_strategy strategy = nearby(&settings, members[2]);
    put_queues(0, 4, "room1@broker-a");
    struct allocate_input input = {members[0], queues, 4, members, 3};
    size_t mine[QUEUES_MAX];
    size_t count = 99;
    struct tern_error err;
    assert_int_equal(allocate_queues(&strategy, &input, mine, &count, &err), TERN_INVALID);
    assert_contains(err.text, members[2]);
    assert_int_equal(count, 0);
    input.member_count = 2;
    put_queues(3, 1, "broker-a");
    assert_int_equal(allocate_queues(&strategy, &input, mine, &count, &err), TERN_INVALID);
    assert_contains(err.text, "broker-a");
}

/* ---- properties ---- */

static void check_partition(const struct allocate_strategy *strategy, size_t queue_count,
                            size_t member_count)
{
    unsigned owners[QUEUES_MAX] = {0};
    for (size_t i = 0; i < member_count; i++) {
        char text[QUEUES_MAX + 1];
        share_of(strategy, members, queue_count, member_count, i, text);
        for (size_t k = 0; text[k]; k++) {
            assert_true(k == 0 || text[k] > text[k - 1]);
            owners[text[k] - '0']++;
        }
    }
    for (size_t q = 0; q < queue_count; q++)
        assert_int_equal(owners[q], 1);
}

static void every_queue_has_exactly_one_owner(void **state)
{
    (void)state;
    struct allocate_rooms rooms = {"room1;room2;room9"};
    struct allocate_nearby settings[4];
    struct allocate_strategy strategies[8] = {allocate_averagely, allocate_by_circle,
                                              allocate_by_hash, allocate_by_room};
    strategies[3].settings = &rooms;
    for (int i = 0; i < 4; i++) {
        strategies[4 + i] = nearby(&settings[i], NULL);
        settings[i].inner = &strategies[i];
    }
    put_queues(0, 13, "room1@broker-a");
    put_queues(13, 20, "room2@broker-b");
    put_queues(33, 7, "room9@broker-c");
    for (size_t s = 0; s < 8; s++)
        for (size_t queue_count = 1; queue_count <= QUEUES_MAX; queue_count++)
            for (size_t member_count = 1; member_count <= MEMBERS; member_count++)
                check_partition(&strategies[s], queue_count, member_count);
}

/* What consistent hashing is for: a new member takes queues, and nobody else gets any. */
static void a_new_member_moves_queues_only_to_itself(void **state)
{
    (void)state;
    put_queues(0, QUEUES_MAX, "broker-a");
    for (size_t count = 1; count < MEMBERS; count++) {
        for (size_t i = 0; i < count; i++) {
            char before[QUEUES_MAX + 1];
            char after[QUEUES_MAX + 1];
            share_of(&allocate_by_hash, members, QUEUES_MAX, count, i, before);
            share_of(&allocate_by_hash, members, QUEUES_MAX, count + 1, i, after);
            for (size_t k = 0; after[k]; k++)
                assert_non_null(strchr(before, after[k]));
        }
    }
}

/* ---- refusals ---- */

static enum tern_code try_share(const char *id, size_t queue_count, size_t member_count,
                                struct tern_error *err)
{
    struct allocate_input input = {.client_id = id,
                                   .queues = queues,
                                   .queue_count = queue_count,
                                   .members = members,
                                   .member_count = member_count};
    size_t mine[QUEUES_MAX];
    size_t count = 99;
    enum tern_code code = allocate_queues(&allocate_averagely, &input, mine, &count, err);
    assert_int_equal(count, 0);
    return code;
}

static void empty_id_or_lists_are_refused(void **state)
{
    (void)state;
    struct tern_error err;
    assert_int_equal(try_share("", 8, 3, &err), TERN_INVALID);
    assert_contains(err.text, "client id");
    assert_int_equal(try_share(members[0], 0, 3, &err), TERN_INVALID);
    assert_contains(err.text, "queues");
    assert_int_equal(try_share(members[0], 8, 0, &err), TERN_INVALID);
    assert_contains(err.text, "members");
}

static void an_unknown_member_gets_nothing_and_is_told(void **state)
{
    (void)state;
    struct tern_error err;
    assert_int_equal(try_share("10.9.9.9@x", 8, 3, &err), TERN_NOT_FOUND);
    assert_contains(err.text, "10.9.9.9@x");
}

/* ---- by name ---- */

static void strategies_are_known_by_rocketmqs_names(void **state)
{
    (void)state;
    static const char *const known[] = {"AVG",
                                        "AVG_BY_CIRCLE",
                                        "CONFIG",
                                        "MACHINE_ROOM",
                                        "CONSISTENT_HASH",
                                        "MACHINE_ROOM_NEARBY-AVG",
                                        "MACHINE_ROOM_NEARBY-CONSISTENT_HASH"};
    static const char *const unknown[] = {"",
                                          "avg",
                                          "AVG ",
                                          "MACHINE_ROOM_NEARBY",
                                          "MACHINE_ROOM_NEARBY-",
                                          "MACHINE_ROOM_NEARBY-MACHINE_ROOM_NEARBY-AVG"};
    struct tern_consumer_options *options = options_with("AVG_BY_CIRCLE");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_ok(tern_consumer_options_allocate(options, known[i]));
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(tern_consumer_options_allocate(options, unknown[i]), TERN_INVALID);
        assert_contains(tern_consumer_options_error(options), "AVG_BY_CIRCLE");
    }
    assert_int_equal(tern_consumer_options_allocate(options, NULL), TERN_INVALID);
    assert_string_equal(options->allocate, known[6]); /* the old value stays */
    tern_consumer_options_destroy(options);
}

static void what_a_strategy_needs_is_asked_for(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"CONFIG", "allocate_queues"},
        {"MACHINE_ROOM", "allocate_rooms"},
        {"MACHINE_ROOM_NEARBY-AVG", "allocate_resolver"},
    };
    struct allocation allocation;
    struct tern_error err;
    for (size_t i = 0; i < 3; i++) {
        struct tern_consumer_options *options = options_with(cases[i][0]);
        assert_int_equal(allocation_init(&allocation, options, &err), TERN_INVALID);
        assert_contains(err.text, cases[i][1]);
        tern_consumer_options_destroy(options);
    }
    struct tern_consumer_options *options = options_with("MACHINE_ROOM_NEARBY-MACHINE_ROOM");
    struct tern_room_resolver resolver = {broker_room, client_room, NULL};
    assert_ok(tern_consumer_options_allocate_resolver(options, &resolver));
    assert_int_equal(allocation_init(&allocation, options, &err), TERN_INVALID);
    assert_ok(tern_consumer_options_allocate_rooms(options, "room1;room2"));
    assert_ok(allocation_init(&allocation, options, &err));
    assert_string_equal(allocation.strategy.name, "MACHINE_ROOM_NEARBY-MACHINE_ROOM");
    put_queues(0, 8, "room1@broker-a");
    expect_shares(&allocation.strategy, members, 8, 2, (const char *const[]){"0123", "4567"});
    tern_consumer_options_destroy(options);
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    struct tern_consumer_options *options = options_with("CONFIG");
    struct tern_room_resolver half = {broker_room, NULL, NULL};
    put_queues(0, 2, "broker-a");
    assert_int_equal(tern_consumer_options_allocate_queues(options, queues, 0), TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "1 to 65536");
    memset(queues[1].topic, 'T', sizeof queues[1].topic); /* no end */
    assert_int_equal(tern_consumer_options_allocate_queues(options, queues, 2), TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "queue 2 of 2");
    assert_int_equal(tern_consumer_options_allocate_resolver(options, &half), TERN_INVALID);
    assert_int_equal(tern_consumer_options_allocate_rooms(options, ""), TERN_INVALID);
    tern_consumer_options_destroy(options);
}

/* A retry topic that no CONFIG list names must be somebody's. */
static void the_retry_topic_is_shared_averagely_beside_configured_queues(void **state)
{
    (void)state;
    struct tern_consumer_options *options = options_with("CONFIG");
    struct allocation allocation;
    put_queues(0, 2, "broker-a");
    assert_ok(tern_consumer_options_allocate_queues(options, queues, 2));
    assert_ok(allocation_init(&allocation, options, NULL));
    assert_ptr_equal(allocation_of_topic(&allocation, "TopicTest"), &allocation.strategy);
    assert_ptr_equal(allocation_of_topic(&allocation, "%RETRY%group"), &allocate_averagely);
    snprintf(queues[1].topic, sizeof queues[1].topic, "%%RETRY%%group");
    assert_ok(tern_consumer_options_allocate_queues(options, queues, 2));
    assert_ok(allocation_init(&allocation, options, NULL));
    assert_ptr_equal(allocation_of_topic(&allocation, "%RETRY%group"), &allocation.strategy);
    tern_consumer_options_destroy(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_queues_and_three_members_share_averagely),
        cmocka_unit_test(more_members_than_queues_leaves_the_last_without),
        cmocka_unit_test(a_circle_deals_queues_like_cards),
        cmocka_unit_test(rooms_share_equal_runs_and_deal_the_rest),
        cmocka_unit_test(queues_of_other_rooms_belong_to_nobody),
        cmocka_unit_test(configured_queues_are_what_one_was_given),
        cmocka_unit_test(the_ring_hash_is_rocketmqs),
        cmocka_unit_test(a_ring_of_hashes_shares_by_the_next_place),
        cmocka_unit_test(a_room_is_shared_by_its_members_and_an_empty_one_by_all),
        cmocka_unit_test(a_member_of_a_room_without_queues_shares_only_the_empty_ones),
        cmocka_unit_test(an_unknown_room_shares_nothing_at_all),
        cmocka_unit_test(every_queue_has_exactly_one_owner),
        cmocka_unit_test(a_new_member_moves_queues_only_to_itself),
        cmocka_unit_test(empty_id_or_lists_are_refused),
        cmocka_unit_test(an_unknown_member_gets_nothing_and_is_told),
        cmocka_unit_test(strategies_are_known_by_rocketmqs_names),
        cmocka_unit_test(what_a_strategy_needs_is_asked_for),
        cmocka_unit_test(wrong_settings_are_refused),
        cmocka_unit_test(the_retry_topic_is_shared_averagely_beside_configured_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
