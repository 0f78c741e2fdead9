/* Finding records in a log in memory: by position, by time, by key. */
#include "tests/unit/store/get_world.h"

/* ---- by position ---- */

static void a_record_is_got_by_its_position_only(void **state)
{
    (void)state;
    struct fixture f;
    size_t size;
    set_up(&f);
    put_many(&f, 3);
    assert_ok(store_get_by_phys(&f.store, RECORD_SIZE, reserve, &f, &size));
    assert_int_equal(size, RECORD_SIZE);
    assert_memory_equal(f.memory, f.log.bytes + RECORD_SIZE, size);
    static const int64_t none[] = {-1, INT64_MIN, 1, RECORD_SIZE + 4, 3 * RECORD_SIZE, INT64_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        f.reserves = 0;
        assert_int_equal(store_get_by_phys(&f.store, none[i], reserve, &f, &size), TERN_NOT_FOUND);
        assert_int_equal(f.reserves, 0);
    }
    tear_down(&f);
}

static void ranges_are_0_0_for_a_queue_that_never_had_a_message(void **state)
{
    (void)state;
    struct fixture f;
    int64_t min = 7;
    int64_t max = 7;
    set_up(&f);
    store_queue_range(&f.store, TOPIC, 0, &min, &max);
    assert_int_equal(min | max, 0);
    assert_int_equal(store_topic_last_queue(&f.store, TOPIC), -1);
    put_many(&f, 10);
    expire(&f, 4 * RECORD_SIZE);
    store_queue_range(&f.store, TOPIC, 0, &min, &max);
    assert_int_equal(min, 4);
    assert_int_equal(max, 10);
    assert_int_equal(store_topic_last_queue(&f.store, TOPIC), 0);
    tear_down(&f);
}

/* ---- by time ---- */

static void the_offset_nearest_to_a_time_is_found(void **state)
{
    (void)state;
    static const struct {
        int64_t time, offset;
    } rows[] = {{0, 0},    {1000, 0},  {1040, 0},  {1050, 0},  {1051, 1},
                {1100, 1}, {1990, 10}, {2000, 10}, {5000, 19}, {2900, 19}};
    struct fixture f;
    int64_t offset;
    int64_t time;
    set_up(&f);
    assert_ok(store_offset_by_time(&f.store, TOPIC, 0, 1000, &offset));
    assert_int_equal(offset, 0);
    for (int i = 0; i < 20; i++)
        put(&f, (struct fake_record){.store_ms = 1000 + i * 100});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_ok(store_offset_by_time(&f.store, TOPIC, 0, rows[i].time, &offset));
        assert_int_equal(offset, rows[i].offset);
    }
    assert_ok(store_time_of(&f.store, TOPIC, 0, 7, &time));
    assert_int_equal(time, 1700);
    assert_int_equal(store_time_of(&f.store, TOPIC, 0, 20, &time), TERN_NOT_FOUND);
    assert_int_equal(store_time_of(&f.store, TOPIC, 0, -1, &time), TERN_NOT_FOUND);
    assert_int_equal(store_time_of(&f.store, "other", 0, 0, &time), TERN_NOT_FOUND);
    atomic_store(&f.log.min, 5 * RECORD_SIZE); /* gone from the log, not yet from the queue */
    assert_ok(store_offset_by_time(&f.store, TOPIC, 0, 0, &offset));
    assert_int_equal(offset, 5);
    assert_int_equal(store_time_of(&f.store, TOPIC, 0, 2, &time), TERN_NOT_FOUND);
    tear_down(&f);
}

/* ---- by key ---- */

struct found {
    int64_t offs[100];
    uint32_t count, limit;
};

static bool on_record(void *arg, const uint8_t *bytes, size_t size)
{
    struct found *found = arg;
    struct record record;
    assert_int_equal(record_parse(bytes, size, size, true, &record), RECORD_WHOLE);
    found->offs[found->count++] = record.queue_off;
    return found->count < found->limit;
}

static struct found *query(struct fixture *f, const char *key, uint32_t max_count,
                           struct store_query_info *info)
{
    static struct found found;
    found = (struct found){.limit = 100};
    const struct store_query query = {.topic = TOPIC,
                                      .key = key,
                                      .max_count = max_count,
                                      .end_ms = INT64_MAX,
                                      .on_record = on_record,
                                      .arg = &found};
    assert_ok(store_query(&f->store, &query, info));
    assert_int_equal(info->found, found.count);
    return &found;
}

static void a_key_finds_records_that_really_have_it_newest_first(void **state)
{
    (void)state;
    struct fixture f;
    struct store_query_info info;
    set_up(&f);
    put(&f, (struct fake_record){.keys = "AaAa x", .uniq_key = "id0"});
    put(&f, (struct fake_record){.keys = "BBBB", .uniq_key = "id1"}); /* the same hash */
    put(&f, (struct fake_record){.topic = "TopicOther", .queue_id = 1, .keys = "AaAa"});
    put(&f, (struct fake_record){.keys = "AaBB AaAa AaAa"});
    struct found *found = query(&f, "AaAa", 32, &info);
    assert_int_equal(found->count, 2);
    assert_int_equal(found->offs[0], 2);
    assert_int_equal(found->offs[1], 0);
    assert_int_equal(query(&f, "id1", 32, &info)->offs[0], 1);
    assert_int_equal(query(&f, "x", 32, &info)->count, 1);
    assert_int_equal(query(&f, "AaAa x", 32, &info)->count, 0);
    assert_int_equal(query(&f, "nothing", 32, &info)->count, 0);
    assert_int_equal(info.indexed_begin_ms, 1700000000000);
    assert_true(info.indexed_end_ms > info.indexed_begin_ms);
    assert_int_equal(info.log_end, commit_log_end(&f.log));
    /* A store at rest is not behind, whatever its last record is. */
    assert_int_equal(info.index_phys, info.log_end);
    tear_down(&f);
}

static void a_query_is_capped_and_can_be_stopped(void **state)
{
    (void)state;
    struct fixture f;
    struct store_query_info info;
    struct found found = {.limit = 3};
    set_up(&f);
    for (int i = 0; i < 100; i++)
        put(&f, (struct fake_record){.keys = "k"});
    assert_int_equal(query(&f, "k", 1000, &info)->count, 64);
    assert_int_equal(query(&f, "k", 5, &info)->count, 5);
    assert_int_equal(query(&f, "k", 0, &info)->count, 0);
    const struct store_query stopped = {.topic = TOPIC,
                                        .key = "k",
                                        .max_count = 32,
                                        .end_ms = INT64_MAX,
                                        .on_record = on_record,
                                        .arg = &found};
    assert_ok(store_query(&f.store, &stopped, &info));
    assert_int_equal(found.count, 3);
    const struct store_query later = {.topic = TOPIC,
                                      .key = "k",
                                      .max_count = 32,
                                      .begin_ms = 1800000000000,
                                      .end_ms = INT64_MAX,
                                      .on_record = on_record,
                                      .arg = &found};
    assert_ok(store_query(&f.store, &later, &info));
    assert_int_equal(info.found, 0);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_got_by_its_position_only),
        cmocka_unit_test(ranges_are_0_0_for_a_queue_that_never_had_a_message),
        cmocka_unit_test(the_offset_nearest_to_a_time_is_found),
        cmocka_unit_test(a_key_finds_records_that_really_have_it_newest_first),
        cmocka_unit_test(a_query_is_capped_and_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
