#include "tests/unit/store/recovery_world.h"

int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    world_init(w, 2);
    *state = w;
    return 0;
}

int teardown(void **state)
{
    world_fini(*state);
    free(*state);
    return 0;
}

void fill_segments(struct world *w, int segments)
{
    while (commit_log_end(w->store->log) < (int64_t)segments * WORLD_SEGMENT_BYTES + 2000)
        world_append_ok(w, (int32_t)(w->sent_count % WORLD_QUEUES), 500, 2);
}
