/* Changing a store that runs: other limits, units as they stand, the list of topics. */
#include "tests/unit/base/unit.h"

#include "tests/unit/store/store_world.h"

enum { MESSAGES = 300, BODY_BYTES = 1000 };

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w, 3);
    w.options.retention_ms = INT64_C(3600000);
    w.options.delete_hours = 0xFFFFFF;
    w.options.clean_interval_ms = 1000;
    world_open(&w);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_fini(&w);
    return 0;
}

static uint8_t buffer[1 << 20];

static uint8_t *reserve(void *arg, size_t size)
{
    (void)arg;
    return size <= sizeof buffer ? buffer : NULL;
}

static uint32_t got_in_one_get(void)
{
    const struct store_get get = {
        .topic = WORLD_TOPIC, .offset = 0, .max_count = 64, .reserve = reserve};
    struct store_get_result result;
    assert_ok(store_get(w.store, &get, &result));
    return result.count;
}

static void new_limit_counts_for_the_next_get(void **state)
{
    struct store_limits limits = store_limits_of(&w.options);
    (void)state;
    world_append_ok(&w, 0, 10, 50);
    limits.memory_count = 20;
    limits.disk_count = 20;
    store_set_limits(w.store, &limits);
    assert_int_equal(got_in_one_get(), 20);
    limits.memory_count = 7;
    limits.disk_count = 7;
    store_set_limits(w.store, &limits);
    assert_int_equal(got_in_one_get(), 7);
}

/* S-7 by updateBrokerConfig: fileReservedTime takes effect while it runs */
static void shorter_retention_expires_what_was_kept(void **state)
{
    struct store_limits limits = store_limits_of(&w.options);
    struct store_status status;
    (void)state;
    for (int i = 0; i < MESSAGES / 10; i++)
        world_append_ok(&w, 0, BODY_BYTES, 10);
    world_run(&w, 60000);
    store_status(w.store, &status);
    assert_int_equal(status.min_phys, 0);
    limits.retention_ms = 1000;
    store_set_limits(w.store, &limits);
    world_run(&w, 60000);
    store_status(w.store, &status);
    assert_true(status.min_phys > 0);
    struct tern_error err = {.text = ""};
    assert_ok(store_clean_queues(w.store, &err));
    int64_t min, max;
    store_queue_range(w.store, WORLD_TOPIC, 0, &min, &max);
    assert_true(min > 0);
}

static void units_are_read_as_they_stand_from_the_minimum_on(void **state)
{
    struct store_unit units[400];
    int64_t first;
    uint32_t got;
    (void)state;
    for (int i = 0; i < 10; i++)
        world_append_ok(&w, 1, 10, 30);
    assert_ok(store_read_units(w.store, WORLD_TOPIC, 1, 0, units, 400, &first, &got));
    assert_int_equal(first, 0);
    assert_int_equal(got, 300);
    assert_int_equal(units[1].phys_off, units[0].phys_off + units[0].size);
    assert_ok(store_read_units(w.store, WORLD_TOPIC, 1, 299, units, 400, &first, &got));
    assert_int_equal(got, 1);
    assert_ok(store_read_units(w.store, WORLD_TOPIC, 1, 1000, units, 400, &first, &got));
    assert_int_equal(got, 0);
    assert_int_equal(store_read_units(w.store, "Absent", 0, 0, units, 1, &first, &got),
                     TERN_NOT_FOUND);
}

static void topics_are_listed_once_each(void **state)
{
    const char **names;
    size_t count;
    (void)state;
    assert_ok(store_topics(w.store, &names, &count));
    assert_int_equal(count, 0);
    world_append_ok(&w, 0, 10, 1);
    world_append_ok(&w, 1, 10, 1);
    assert_ok(store_topics(w.store, &names, &count));
    assert_int_equal(count, 1);
    assert_string_equal(names[0], WORLD_TOPIC);
    free(names);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(new_limit_counts_for_the_next_get),
        TEST(shorter_retention_expires_what_was_kept),
        TEST(units_are_read_as_they_stand_from_the_minimum_on),
        TEST(topics_are_listed_once_each),
    };
    return cmocka_run_group_tests_name("store live", tests, NULL, NULL);
}
