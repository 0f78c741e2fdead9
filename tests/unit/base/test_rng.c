/* Random numbers: repeatable, bounded; clocks: monotonic. */
#include "tests/unit/base/unit.h"

#include "base/clock.h"
#include "base/rng.h"

static void one_seed_gives_one_sequence(void **state)
{
    (void)state;
    struct rng_seeded a;
    struct rng_seeded b;
    struct rng_seeded c;
    rng_seeded_init(&a, 42);
    rng_seeded_init(&b, 42);
    rng_seeded_init(&c, 43);
    bool differs = false;
    for (int i = 0; i < 100; i++) {
        uint64_t value = rng_next(&a.rng);
        assert_true(value == rng_next(&b.rng));
        differs = differs || value != rng_next(&c.rng);
    }
    assert_true(differs);
}

static void splitmix64_matches_its_reference(void **state)
{
    (void)state;
    struct rng_seeded rng;
    rng_seeded_init(&rng, 1234567);
    assert_true(rng_next(&rng.rng) == UINT64_C(6457827717110365317));
    assert_true(rng_next(&rng.rng) == UINT64_C(3203168211198807973));
}

static void below_stays_below_and_reaches_all(void **state)
{
    (void)state;
    struct rng_seeded rng;
    unsigned seen[7] = {0};
    rng_seeded_init(&rng, 7);
    for (int i = 0; i < 7000; i++)
        seen[rng_below(&rng.rng, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], 800, 1200);
    assert_int_equal(rng_below(rng_system(), 1), 0);
}

static void monotonic_clock_does_not_go_back(void **state)
{
    (void)state;
    int64_t last = clock_mono_ns(clock_system());
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_mono_ns(clock_system());
        assert_true(now >= last);
        last = now;
    }
    assert_true(clock_wall_ms(clock_system()) > INT64_C(1600000000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_seed_gives_one_sequence),
        cmocka_unit_test(splitmix64_matches_its_reference),
        cmocka_unit_test(below_stays_below_and_reaches_all),
        cmocka_unit_test(monotonic_clock_does_not_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
