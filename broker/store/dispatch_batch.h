/*
 * A batch of records on its way from the log's bytes to consume queues and index. Internal to the
 * dispatcher.
 *
 *   bytes ─fill─► units in log order ─apply─► one put for each queue, however interleaved
 *
 * Everything is in arrays of fixed size: in steady state nothing is allocated.
 */
#ifndef STORE_DISPATCH_BATCH_H
#define STORE_DISPATCH_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "broker/store/delay_level.h"
#include "broker/store/index_service.h"
#include "broker/store/queue_table.h"
#include "broker/store/store.h"

struct deletions;

enum { BATCH_UNITS = 2048, BATCH_RUNS = 512 };

/* Units of one queue with consecutive offsets. */
struct dispatch_run {
    struct consume_queue *queue; /* a reference */
    int64_t first_off;
    uint32_t count;
    uint32_t start; /* of its units in batch->sorted, once applied */
};

struct dispatch_batch {
    uint64_t serial;
    uint32_t unit_count;
    uint32_t run_count;
    uint32_t record_count; /* with those that get no unit */
    struct dispatch_run runs[BATCH_RUNS];
    uint16_t run_of[BATCH_UNITS];
    struct queue_unit units[BATCH_UNITS];  /* in log order */
    struct queue_unit sorted[BATCH_UNITS]; /* by run, when there are several */
    int64_t codes[BATCH_UNITS];            /* tagsCodes by run */
};

/* Why batch_fill() came back. */
enum batch_stop {
    BATCH_END,     /* all bytes are taken */
    BATCH_FULL,    /* apply it, then go on */
    BATCH_BLANK,   /* a segment's filler begins here */
    BATCH_PARTIAL, /* the record that begins here is not all there; *need is its size when known,
                      else 0 */
    BATCH_BAD,     /* no record begins here */
    BATCH_FAILED   /* *code says why */
};

struct batch_source {
    struct queue_table *queues;
    struct index_service *index; /* NULL: not kept */
    struct deletions *deletions; /* NULL: none */
    const struct delay_levels *delays;
    const struct store_observer *observer; /* NULL: nobody is told of sequels */
};

/* Empties it. @thread the dispatch token's holder */
void batch_init(struct dispatch_batch *batch, struct queue_table *queues);
/* Lets the queues go. */
void batch_release(struct dispatch_batch *batch);

/*
 * Parses the records of `bytes`, which begin at phys_off in the log, indexes them and gathers their
 * units; those of a deleted topic's life are only counted. *taken bytes are dealt with. @thread the
 * dispatch token's holder
 */
enum batch_stop batch_fill(struct dispatch_batch *batch, const struct batch_source *source,
                           int64_t phys_off, const uint8_t *bytes, size_t size, size_t *taken,
                           size_t *need, enum tern_code *code);

/*
 * Puts the units; with `replay` against what may be there. *failed is the run that could not be
 * put.
 * @thread the dispatch token's holder
 */
MUST_CHECK enum tern_code batch_apply(struct dispatch_batch *batch, bool replay,
                                      const struct dispatch_run **failed);

#endif
