/* Where the time of sends and reads goes: what a wait is booked as. */
#include "tests/unit/broker/broker_unit.h"

#include "broker/stages.h"

static struct stages stages;

static int setup(void **state)
{
    (void)state;
    memset(&stages, 0, sizeof stages);
    stages_init(&stages);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stages_fini(&stages);
    return 0;
}

static void waited(bool flush, bool replicas, int64_t end, int64_t from_ms, int64_t to_ms)
{
    const struct stages_wait wait = {.flush = flush,
                                     .replicas = replicas,
                                     .end_phys_off = end,
                                     .appended_ns = ms_to_ns(from_ms),
                                     .answered_ns = ms_to_ns(to_ms)};
    stages_waited(&stages, &wait);
}

/* Buckets are 6.25 % wide. */
static void assert_about_ms(const struct histogram *h, uint64_t count, int64_t ms)
{
    int64_t most = histogram_quantile(h, 1);
    assert_int_equal(h->count, count);
    assert_true(most >= ms_to_ns(ms) && most <= ms_to_ns(ms) + ms_to_ns(ms) / 10);
}

static void one_wait_alone_is_all_of_it(void **state)
{
    (void)state;
    waited(true, false, 100, 1000, 1040);
    assert_about_ms(&stages.flush_wait_ns, 1, 40);
    assert_int_equal(stages.replica_wait_ns.count, 0);
    waited(false, true, 100, 1000, 1007);
    assert_about_ms(&stages.replica_wait_ns, 1, 7);
    assert_int_equal(stages.flush_wait_ns.count, 1);
}

static void the_first_flush_that_covers_a_send_divides_its_wait(void **state)
{
    (void)state;
    stages_flushed(&stages, 100, ms_to_ns(1010));
    stages_flushed(&stages, 200, ms_to_ns(1020));
    stages_flushed(&stages, 300, ms_to_ns(1030));
    waited(true, true, 150, 1000, 1100);
    assert_about_ms(&stages.flush_wait_ns, 1, 20);
    assert_about_ms(&stages.replica_wait_ns, 1, 80);
}

static void a_flush_before_the_append_or_after_the_answer_takes_nothing_away(void **state)
{
    (void)state;
    stages_flushed(&stages, 100, ms_to_ns(900));
    waited(true, true, 100, 1000, 1050);
    assert_int_equal(histogram_quantile(&stages.flush_wait_ns, 1), 0);
    assert_about_ms(&stages.replica_wait_ns, 1, 50);
    (void)teardown(state);
    (void)setup(state);
    stages_flushed(&stages, 100, ms_to_ns(2000));
    waited(true, true, 100, 1000, 1050);
    assert_about_ms(&stages.flush_wait_ns, 1, 50);
    assert_int_equal(histogram_quantile(&stages.replica_wait_ns, 1), 0);
}

static void flushes_beyond_the_ring_are_forgotten_the_oldest_first(void **state)
{
    (void)state;
    for (int64_t i = 1; i <= STAGES_FLUSHES + 10; i++)
        stages_flushed(&stages, i * 100, ms_to_ns(1000 + i));
    waited(true, true, (STAGES_FLUSHES + 10) * 100, 1000, 4000);
    assert_about_ms(&stages.flush_wait_ns, 1, STAGES_FLUSHES + 10);
    assert_about_ms(&stages.replica_wait_ns, 1, 3000 - (STAGES_FLUSHES + 10));
}

static void a_log_that_was_cut_begins_anew(void **state)
{
    (void)state;
    stages_flushed(&stages, 100, ms_to_ns(1010));
    stages_flushed(&stages, 500, ms_to_ns(1020));
    stages_flushed(&stages, 300, ms_to_ns(1030));
    waited(true, true, 90, 1000, 1100);
    assert_about_ms(&stages.flush_wait_ns, 1, 30);
}

static void reading_is_counted_by_where_it_came_from(void **state)
{
    (void)state;
    stages_pulled(&stages, 0, 0, true); /* nothing was looked at */
    stages_pulled(&stages, 10, 4, false);
    stages_pulled(&stages, 5, 5, true);
    assert_int_equal(stages.scanned, 15);
    assert_int_equal(stages.returned, 9);
    assert_int_equal(stages.from_memory, 1);
    assert_int_equal(stages.from_disk, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_wait_alone_is_all_of_it),
        TEST(the_first_flush_that_covers_a_send_divides_its_wait),
        TEST(a_flush_before_the_append_or_after_the_answer_takes_nothing_away),
        TEST(flushes_beyond_the_ring_are_forgotten_the_oldest_first),
        TEST(a_log_that_was_cut_begins_anew),
        TEST(reading_is_counted_by_where_it_came_from),
    };
    return cmocka_run_group_tests_name("stages", tests, NULL, NULL);
}
