/*
 * What each queue gives out next, found from the log: after bytes were appended as they came, the
 * queues' next offsets lag behind it. Internal to the store.
 */
#ifndef STORE_NEXT_OFFSETS_H
#define STORE_NEXT_OFFSETS_H

#include "broker/store/commit_log.h"
#include "broker/store/queue_table.h"

struct deletions;

/*
 * Walks the records in [from, end), where `end` is whole and all before `from` is in the queues'
 * next offsets already. NO_MEMORY, LIMIT, CORRUPT or a code of the disk: some queues have moved.
 * @thread the append token's holder, not a transport's @blocks on the disk
 */
MUST_CHECK enum tern_code next_offsets_follow(struct commit_log *log, struct queue_table *queues,
                                              struct deletions *deletions, int64_t from,
                                              int64_t end);

#endif
