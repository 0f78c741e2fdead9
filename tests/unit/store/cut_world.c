#include "tests/unit/store/cut_world.h"

void append_mixed(struct world *w, int count)
{
    for (int i = 0; i < count; i++) {
        size_t body = world_pick(w, 8) == 0 ? world_pick(w, 9000) : world_pick(w, 2000);
        uint32_t batch = world_pick(w, 4) == 0 && body < 2000 ? 1 + world_pick(w, 4) : 1;
        world_append_ok(w, (int32_t)world_pick(w, WORLD_QUEUES), body, batch);
        world_run(w, world_pick(w, 3));
    }
}

void begin(struct world *w, uint64_t seed)
{
    world_init(w, seed);
    w->keys = true;
    world_open(w);
    append_mixed(w, APPENDS);
    world_run(w, 100);
}

int64_t end_of(const struct world *w)
{
    return commit_log_end(w->store->log);
}

void expect_end(const struct world *w, int64_t end)
{
    struct store_positions at;
    store_positions(w->store, &at);
    assert_int_equal(at.appended, end);
    assert_int_equal(at.whole, end);
    assert_int_equal(at.flushed, end);
    assert_true(at.dispatched <= end);
}

uint8_t *lend(void *arg, size_t size_bytes)
{
    assert_true(size_bytes <= 1 << 20);
    return arg;
}
