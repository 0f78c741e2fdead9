/*
 * A store for reading only: a log in memory, its dispatcher, queues and index on a simulated disk.
 */
#ifndef TESTS_UNIT_STORE_GET_WORLD_H
#define TESTS_UNIT_STORE_GET_WORLD_H

#include "tests/unit/base/unit.h"
#include "tests/unit/store/fake_log.h"

#include "broker/store/store_internal.h"
#include "tests/sim/sim_env.h"

enum { SEGMENT_BYTES = 256 * 1024, LOG_BYTES = 16 << 20, RECORD_SIZE = RECORD_FIXED_BYTES + 9 };

#define TOPIC "TopicTest"

struct fixture {
    struct sim_env sim;
    struct commit_log log;
    struct store store;
    struct tern_error err;
    int64_t next[4];
    uint8_t *memory;
    size_t reserved;
    unsigned reserves;
    struct store_get_result result;
};

void set_up(struct fixture *f);
void tear_down(struct fixture *f);
/* One more record in its queue; the dispatcher has seen it. */
void put(struct fixture *f, struct fake_record record);
/* `count` records without properties in queue 0. */
void put_many(struct fixture *f, int count);
/* The log begins at log_min from now on. */
void expire(struct fixture *f, int64_t log_min);
/* Lends `memory`, and notes how often and how much. */
uint8_t *reserve(void *arg, size_t size);
/* Gets from queue 0; what came is in `result` and `memory`. */
enum tern_code try_get(struct fixture *f, int64_t offset, uint32_t max_count, bool nowait,
                       const struct store_filter *filter);
/* The status of a get that waits and has no filter. */
enum get_status get(struct fixture *f, int64_t offset, uint32_t max_count);
/* The records got are those of these queue offsets, in order, whole. */
void check_got(struct fixture *f, int64_t first, uint32_t count, int64_t step);
/* Filters that count their calls in *arg: by the tag TagA, by a body of odd length. */
bool is_tag_a(void *arg, int64_t code);
bool body_is_odd(void *arg, const struct record *record);

#endif
