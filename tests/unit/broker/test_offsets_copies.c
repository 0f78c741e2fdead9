/* Copies of the offset table that exchange in any order become one, and never fall. */
#include "tests/unit/broker/offsets_world.h"

#include "base/rng.h"

/* ---- in any order ---- */

struct held {
    struct offset_version version;
    int64_t offset;
};

enum { R_GROUPS = 3, R_TOPICS = 3, R_QUEUES = 2, R_SLOTS = R_GROUPS * R_TOPICS * R_QUEUES };

static const char *const groups[] = {"G0", "G1", "G2"};
static const char *const topics[] = {"T0", "T1", "T2"};

static void look(int i, struct held out[R_SLOTS])
{
    for (int s = 0; s < R_SLOTS; s++) {
        out[s].offset = -1;
        offsets_query(tables[i], groups[s % 3], topics[s / 3 % 3], s / 9, &out[s].offset,
                      &out[s].version);
    }
}

/* Versions never fall, and offsets only with a rise of them. */
static void check_forward(const struct held before[R_SLOTS], const struct held after[R_SLOTS])
{
    for (int s = 0; s < R_SLOTS; s++) {
        int order = offset_version_compare(after[s].version, before[s].version);
        assert_true(order >= 0);
        if (order == 0)
            assert_true(after[s].offset >= before[s].offset);
    }
}

/* Table 0 is the master's. */
static void exchange(uint64_t seen[TABLES][2], int slave)
{
    give(slave, 0, &seen[slave][0], false);
    give(0, slave, &seen[slave][1], false);
}

static void exchange_all(uint64_t seen[TABLES][2])
{
    for (int turn = 0; turn < 2; turn++)
        for (int i = 1; i < TABLES; i++)
            exchange(seen, i);
}

static void random_change(struct rng *rng, int table, uint64_t seen[TABLES][2])
{
    int s = (int)rng_below(rng, R_SLOTS);
    const char *group = groups[s % 3], *topic = topics[s / 3 % 3];
    uint64_t kind = table == 0 ? rng_below(rng, 16) : 99; /* a slave only takes commits */
    if (kind == 0) {
        assert_ok(offsets_reset(tables[0], group, topic, s / 9, (int64_t)rng_below(rng, 900)));
    } else if (kind == 1) {
        offsets_remove_topic(tables[0], topic);
    } else if (kind == 2) {
        offsets_remove_group(tables[0], group);
    } else if (kind == 3) { /* opens: merged before, and members go on meanwhile */
        exchange_all(seen);
        commit(1, group, topic, s / 9, 1000, version_of(1, group, topic, s / 9));
        assert_true(offsets_begin_epoch(tables[0], 0, end_450, NULL) >= 0);
        exchange_all(seen);
    } else {
        commit(table, group, topic, s / 9, (int64_t)rng_below(rng, 1000),
               version_of(table, group, topic, s / 9));
    }
}

static void expect_one_table(void)
{
    struct held first[R_SLOTS], other[R_SLOTS];
    look(0, first);
    for (int i = 1; i < TABLES; i++) {
        look(i, other);
        for (int s = 0; s < R_SLOTS; s++) {
            assert_int_equal(first[s].offset, other[s].offset);
            assert_int_equal(offset_version_compare(first[s].version, other[s].version), 0);
        }
    }
}

static void tables_that_exchange_in_any_order_become_one_and_never_fall(void **state)
{
    (void)state;
    uint64_t seen[TABLES][2] = {{0}};
    offsets_set_recovered(tables[0], end_450, NULL);
    for (int round = 0; round < 2000; round++) {
        struct held before[R_SLOTS], after[R_SLOTS];
        for (uint64_t i = rng_below(sim.env.rng, 6); i > 0; i--) {
            int table = (int)rng_below(sim.env.rng, TABLES);
            look(table, before);
            random_change(sim.env.rng, table, seen);
            look(table, after);
            check_forward(before, after);
        }
        for (uint64_t i = rng_below(sim.env.rng, 4); i > 0; i--) {
            int slave = 1 + (int)rng_below(sim.env.rng, TABLES - 1);
            bool up = rng_below(sim.env.rng, 2);
            look(up ? 0 : slave, before);
            give(up ? slave : 0, up ? 0 : slave, &seen[slave][!up], false);
            look(up ? 0 : slave, after);
            check_forward(before, after);
        }
        if (round % 10 == 0) {
            exchange_all(seen);
            expect_one_table();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tables_that_exchange_in_any_order_become_one_and_never_fall),
    };
    return cmocka_run_group_tests_name("offsets_copies", tests, NULL, NULL);
}
