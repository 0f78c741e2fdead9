/*
 * Compares every queue's units with the log's records, in the order of the log.
 *
 *   queue_check_record() for each record ─► its unit is read and compared, offsets are counted
 *   queue_check_end()                    ─► what the records cannot tell: units without a record
 *
 * A record's queue offset below the queue's next one begins another life of the queue: its topic
 * was deleted and made again, and what was wrong with the earlier records' units says nothing.
 */
#ifndef MQSTORE_QUEUE_CHECK_H
#define MQSTORE_QUEUE_CHECK_H

#include "base/record.h"
#include "tools/mqstore/findings.h"
#include "tools/mqstore/queue_reader.h"

struct queue_check;

MUST_CHECK enum tern_code queue_check_create(const struct store_dir *dir, struct findings *findings,
                                             struct queue_check **out, struct tern_error *err);
/* NULL allowed. */
void queue_check_destroy(struct queue_check *check);

/* `record` stands at phys_off, in log order; its body may be damaged. */
MUST_CHECK enum tern_code queue_check_record(struct queue_check *check, const struct record *record,
                                             int64_t phys_off, struct tern_error *err);
/* After the last record; the log holds [log_min, log_end). */
MUST_CHECK enum tern_code queue_check_end(struct queue_check *check, int64_t log_min,
                                          int64_t log_end, struct tern_error *err);

/* Units compared with their records, and queues that have any. */
uint64_t queue_check_units(const struct queue_check *check);
uint32_t queue_check_queues(const struct queue_check *check);

#endif
