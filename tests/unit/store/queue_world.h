/*
 * One consume queue in its table on a simulated disk, where each unit's content follows from its
 * offset.
 */
#ifndef TESTS_UNIT_STORE_QUEUE_WORLD_H
#define TESTS_UNIT_STORE_QUEUE_WORLD_H

#include "tests/unit/base/unit.h"

#include "broker/store/consume_queue_internal.h"
#include "tests/sim/sim_env.h"

enum { UNIT_BYTES = QUEUE_UNIT_BYTES, FILE_UNITS = 500, FILE_BYTES = FILE_UNITS * UNIT_BYTES };
enum { RECORD_BYTES = 100 };

#define DIR "/store/consumequeue"
#define TOPIC "TopicTest"

struct fixture {
    struct sim_env sim;
    struct queue_table *table;
    struct consume_queue *queue; /* TOPIC, 0 */
    struct tern_error err;
    int64_t max_phys;
};

/* The unit that belongs to a queue offset. */
struct queue_unit unit_at(int64_t offset);
/* Parts of set_up() and restart(): the table, and its queue. */
void open_table(struct fixture *f);
void open_queue(struct fixture *f);
/* An empty table with TOPIC's queue 0 open. */
void set_up(struct fixture *f, uint64_t seed);
void close_table(struct fixture *f);
void tear_down(struct fixture *f);
/* Recovers a table that was just opened, for a log of these ends; opens the queue. */
void recover(struct fixture *f, int64_t log_min, int64_t log_end);
/* What a new process finds; power loss first unless torn is negative. */
void restart(struct fixture *f, int torn, int64_t log_min, int64_t log_end);
/* The units of [from, end), in batches. */
enum tern_code try_put(struct consume_queue *queue, int64_t from, int64_t end);
void put(struct fixture *f, int64_t from, int64_t end);
void flush(struct fixture *f, bool durable);
/* The units of [from, end) are read back right. */
void check_range(struct consume_queue *queue, int64_t from, int64_t end);
/* Minimum, maximum, and all units between. */
void check(struct fixture *f, int64_t min, int64_t max);
/* Raw bytes of a file, from the disk. */
void read_file(struct fixture *f, const char *name, void *buf, size_t size, int64_t at);
/* Is there the file that begins at this queue offset? */
bool file_exists(struct fixture *f, int64_t start);

#endif
