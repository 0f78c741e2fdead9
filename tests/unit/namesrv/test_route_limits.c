/* The nameserver's tables at their limits, and after any sequence of calls. */
#include <stdlib.h>

#include "base/rng.h"
#include "tests/unit/namesrv/route_world.h"

/* ---- memory: the linker sends this program's allocations here ---- */

static int allocations_left = -1; /* -1: no end */

static bool may_allocate(void)
{
    if (allocations_left == 0)
        return false;
    if (allocations_left > 0)
        allocations_left--;
    return true;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size)
{
    return may_allocate() ? __real_realloc(old, size) : NULL;
}

/* ---- limits ---- */

static void too_many_brokers_are_refused_and_known_ones_go_on(void **state)
{
    struct world *w = *state;
    char name[32];
    for (int i = 0; i < ROUTE_BROKERS_MAX; i++) {
        snprintf(name, sizeof name, "broker-%d", i);
        assert_int_equal(enter(w, broker(name, 0, "A:1", 1, 1)), TERN_OK);
    }
    assert_int_equal(enter(w, broker("one-more", 0, "A:1", 1, 1)), TERN_LIMIT);
    assert_null(route_find_set(&w->table, "one-more"));
    assert_int_equal(enter(w, broker("broker-7", 0, "A:1", 1, 1)), TERN_OK);
}

static void too_many_topics_are_refused_and_the_old_table_stays(void **state)
{
    struct world *w = *state;
    static struct route_topic_config topics[ROUTE_TOPICS_MAX];
    static char names[ROUTE_TOPICS_MAX][16];
    enter_master(w);
    for (int i = 0; i < ROUTE_TOPICS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "X%d", i);
        topics[i] = topic(names[i]);
    }
    assert_int_equal(enter_with(w, broker("broker-b", 0, "B:1", 2, 2), 1, topics, ROUTE_TOPICS_MAX),
                     TERN_LIMIT);
    assert_null(route_find_set(&w->table, "broker-b"));
    assert_int_equal(
        enter_with(w, broker("broker-b", 0, "B:1", 2, 2), 1, topics, ROUTE_TOPICS_MAX - 2),
        TERN_OK);
    assert_int_equal(route_topic_count(&w->table), ROUTE_TOPICS_MAX);
    assert_non_null(find(w, "X99997"));
}

/* ---- any sequence ---- */

static void check_invariants(struct world *w)
{
    size_t members = 0;
    size_t rows = 0;
    size_t counted = 0;
    for (size_t i = 0; i < w->table.set_count; i++) {
        const struct route_set *set = w->table.sets[i];
        assert_true(set->member_count > 0);
        assert_true(i == 0 || strcmp(w->table.sets[i - 1]->name, set->name) < 0);
        for (size_t k = 1; k < set->member_count; k++)
            assert_true(set->members[k - 1].id < set->members[k].id);
        members += set->member_count;
        rows += set->row_count;
    }
    const struct route_topic *t = route_first_topic(&w->table);
    for (; t; t = route_next_topic(t)) {
        assert_true(t->row_count > 0);
        for (size_t k = 0; k < t->row_count; k++) {
            assert_ptr_equal(t->rows[k].set, route_find_set(&w->table, t->rows[k].set->name));
            assert_true(k == 0 || strcmp(t->rows[k - 1].set->name, t->rows[k].set->name) < 0);
        }
        counted += t->row_count;
    }
    assert_int_equal(members, w->table.member_count);
    assert_int_equal(rows, w->table.row_count);
    assert_int_equal(counted, w->table.row_count);
}

static void registration_without_memory_is_refused_and_may_be_repeated(void **state)
{
    enum { COUNT = 200 };
    struct world *w = *state;
    static struct route_topic_config topics[COUNT];
    static char names[COUNT][8];
    enum tern_code code = TERN_NO_MEMORY;
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "X%d", i % 1000);
        topics[i] = topic(names[i]);
    }
    for (int allowed = 0; code != TERN_OK; allowed++) {
        struct route_removed removed;
        assert_true(allowed < 10 * COUNT);
        allocations_left = allowed;
        code = enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 7, topics, COUNT);
        allocations_left = -1;
        check_invariants(w);
        assert_true(code == TERN_OK || code == TERN_NO_MEMORY);
        if (code == TERN_OK)
            break;
        struct route_registration again = broker("broker-a", 0, "A:1", 1, 1);
        again.topics_version = 7;
        assert_ok(enter(w, again));
        assert_true(w->done.need_topics);
        assert_true(route_unregister(&w->table, "broker-a", 0, "A:1", 1, &removed));
        assert_int_equal(route_topic_count(&w->table), 0);
    }
    assert_int_equal(route_topic_count(&w->table), COUNT);
}

static void one_random_call(struct world *w, struct rng *rng, uint64_t *next_peer)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    static const char *const topic_names[] = {"T0", "T1", "T2", "T3", "T4", "T5"};
    static const char *const addresses[] = {"A:1", "B:1", "C:1"};
    struct route_removed removed;
    struct route_topic_config topics[6];
    size_t count = 0;
    const char *name = names[rng_below(rng, 4)];
    uint64_t peer = *next_peer - rng_below(rng, 4);
    w->now_ns += (int64_t)rng_below(rng, 40) * SECOND;
    switch (rng_below(rng, 8)) {
    case 0:
        peer_goes(w, peer);
        break;
    case 1:
        while (route_expire(&w->table, w->now_ns, &removed))
            assert_true(removed.id >= 0);
        break;
    case 2:
        route_wipe(&w->table, name, rng_below(rng, 2));
        break;
    case 3:
        route_delete_topic(&w->table, topic_names[rng_below(rng, 6)], 2, "");
        break;
    case 4:
        route_unregister(&w->table, name, (int64_t)rng_below(rng, 3), "A:1", peer, &removed);
        break;
    default:
        for (size_t i = 0; i < 6; i++)
            if (rng_below(rng, 2))
                topics[count++] = topic(topic_names[i]);
        struct route_registration reg =
            broker(name, (int64_t)rng_below(rng, 3), addresses[rng_below(rng, 3)],
                   (uint8_t)rng_below(rng, 5), (*next_peer)++);
        reg.cluster = rng_below(rng, 8) ? "C" : "D";
        reg.readable = rng_below(rng, 4) != 0;
        if (rng_below(rng, 4))
            (void)!enter_with(w, reg, rng_below(rng, 5), topics, count);
        else
            (void)!enter(w, reg);
    }
}

static void counts_and_order_hold_after_any_sequence_of_calls(void **state)
{
    struct world *w = *state;
    struct rng_seeded rng;
    uint64_t next_peer = 10;
    rng_seeded_init(&rng, 20240917);
    for (int i = 0; i < 20000; i++) {
        one_random_call(w, &rng.rng, &next_peer);
        check_invariants(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(too_many_brokers_are_refused_and_known_ones_go_on),
        CASE(too_many_topics_are_refused_and_the_old_table_stays),
        CASE(registration_without_memory_is_refused_and_may_be_repeated),
        CASE(counts_and_order_hold_after_any_sequence_of_calls),
    };
    return cmocka_run_group_tests_name("route_limits", tests, NULL, NULL);
}
