/*
 * Reads a queue's units where they lie. Files are opened through a bounded cache: a store may have
 * 200,000 queues.
 */
#ifndef MQSTORE_QUEUE_READER_H
#define MQSTORE_QUEUE_READER_H

#include "broker/store/file_cache.h"
#include "broker/store/queue_table.h"
#include "tools/mqstore/store_dir.h"

enum unit_state {
    UNIT_ABSENT, /* zeros, or no file */
    UNIT_FILLER, /* before the first unit of a queue that did not begin at 0 */
    UNIT_REAL
};

struct queue_reader {
    const struct store_dir *dir;
    struct file_cache *files;
};

/* A window of a queue's units, read at once; zeroed at first. */
enum { UNIT_WINDOW = 32 };
struct unit_window {
    int64_t first; /* queue offset of units[0] */
    uint32_t count;
    struct queue_unit units[UNIT_WINDOW];
};

MUST_CHECK enum tern_code queue_reader_init(struct queue_reader *reader,
                                            const struct store_dir *dir, struct tern_error *err);
void queue_reader_fini(struct queue_reader *reader);

/* The unit at a queue offset of dir->queues[queue]. */
MUST_CHECK enum tern_code queue_reader_unit(struct queue_reader *reader, uint32_t queue,
                                            struct unit_window *window, int64_t offset,
                                            struct queue_unit *unit, enum unit_state *state,
                                            struct tern_error *err);

/*
 * The offsets that a broker would show: from the first unit at or beyond log_min to behind the last
 * real one, found by bisection as if the units were in order. Both 0 when there is none.
 */
MUST_CHECK enum tern_code queue_reader_range(struct queue_reader *reader, uint32_t queue,
                                             int64_t log_min, int64_t *min_off, int64_t *max_off,
                                             struct tern_error *err);

/* Every real unit in [from, to), as far as there are files; runs of zeros cost little. */
typedef void (*queue_unit_fn)(void *arg, int64_t offset, const struct queue_unit *unit);
MUST_CHECK enum tern_code queue_reader_sweep(struct queue_reader *reader, uint32_t queue,
                                             int64_t from, int64_t to, queue_unit_fn fn, void *arg,
                                             struct tern_error *err);

enum unit_state queue_unit_state(const struct queue_unit *unit);

#endif
