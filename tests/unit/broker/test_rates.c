/* Rates over three windows, and totals at the beginning of days. */
#include "tests/unit/broker/broker_unit.h"

#include "base/clock.h"
#include "broker/rates.h"

static const int64_t noon_ms = INT64_C(1800000000000);

static void rate_of_each_window_is_over_that_window(void **state)
{
    struct rates rates;
    struct rates_view view;
    struct rates_counts counts = {0, 0, 0, 0};
    (void)state;
    rates_init(&rates);
    for (int second = 0; second <= 700; second++) { /* 10 a second, then 40 in the last minute */
        rates_step(&rates, ms_to_ns(second * 1000), noon_ms + second, &counts);
        counts.put += second < 640 ? 10 : 40;
    }
    rates_view(&rates, ms_to_ns(700 * 1000), &counts, &view);
    assert_in_range((int)view.put[0], 36, 44);
    assert_in_range((int)view.put[1], 33, 41);
    assert_in_range((int)view.put[2], 11, 15);
    assert_int_equal((int)view.delivered[0], 0);
    rates_fini(&rates);
}

static void first_minute_counts_over_what_there_is(void **state)
{
    struct rates rates;
    struct rates_view view;
    struct rates_counts counts = {0, 0, 0, 0};
    (void)state;
    rates_init(&rates);
    rates_view(&rates, 0, &counts, &view);
    assert_int_equal((int)view.put[0], 0);
    rates_step(&rates, 0, noon_ms, &counts);
    counts.put = 50;
    rates_view(&rates, ms_to_ns(5000), &counts, &view);
    assert_int_equal((int)view.put[0], 10);
    assert_int_equal((int)view.put[2], 10);
    rates_fini(&rates);
}

static void totals_move_on_when_the_day_changes(void **state)
{
    struct rates rates;
    struct rates_view view;
    struct rates_counts counts = {100, 0, 0, 7};
    (void)state;
    rates_init(&rates);
    rates_step(&rates, 0, noon_ms, &counts);
    counts.put = 300;
    rates_step(&rates, ms_to_ns(1000), noon_ms + 86400000, &counts);
    counts.put = 900;
    rates_step(&rates, ms_to_ns(2000), noon_ms + 2 * INT64_C(86400000), &counts);
    rates_view(&rates, ms_to_ns(2000), &counts, &view);
    assert_int_equal(view.morning.put, 900);
    assert_int_equal(view.yesterday.put, 300);
    assert_int_equal(view.yesterday.delivered, 7);
    rates_fini(&rates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_of_each_window_is_over_that_window),
        cmocka_unit_test(first_minute_counts_over_what_there_is),
        cmocka_unit_test(totals_move_on_when_the_day_changes),
    };
    return cmocka_run_group_tests_name("rates", tests, NULL, NULL);
}
