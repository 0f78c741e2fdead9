/* Histograms: exact below 16, within a sixteenth above. */
#include "tests/unit/base/unit.h"

#include "base/metrics.h"

static struct histogram h;

static void quantile_is_an_upper_bound_within_a_sixteenth(void **state)
{
    (void)state;
    for (int64_t value = 1; value < INT64_C(1) << 40; value = value * 5 / 4 + 1) {
        histogram_reset(&h);
        histogram_add(&h, value);
        int64_t got = histogram_quantile(&h, 0.5);
        assert_true(got >= value);
        assert_true(got - value <= value / 16);
    }
}

static void quantiles_follow_the_distribution(void **state)
{
    (void)state;
    histogram_reset(&h);
    assert_int_equal(histogram_quantile(&h, 0.5), 0);
    for (int i = 1; i <= 1000; i++)
        histogram_add(&h, i);
    assert_in_range(histogram_quantile(&h, 0.5), 500, 532);
    assert_in_range(histogram_quantile(&h, 0.99), 990, 1052);
    assert_int_equal(histogram_quantile(&h, 0.0), 1);
    assert_in_range(histogram_quantile(&h, 1.0), 1000, 1063);
    assert_int_equal(counter_get(&h.count), 1000);
    assert_int_equal(counter_get(&h.sum), 500500);
    assert_int_equal(counter_get(&h.max), 1000);
}

static void extremes_are_counted_at_the_edges(void **state)
{
    (void)state;
    histogram_reset(&h);
    histogram_add(&h, -5);
    assert_int_equal(histogram_quantile(&h, 1.0), 0);
    histogram_add(&h, INT64_MAX);
    assert_true(histogram_quantile(&h, 1.0) == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantile_is_an_upper_bound_within_a_sixteenth),
        cmocka_unit_test(quantiles_follow_the_distribution),
        cmocka_unit_test(extremes_are_counted_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
