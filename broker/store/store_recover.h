/* The two halves of a store's recovery, in the order of their calls. Internal to the store. */
#ifndef STORE_STORE_RECOVER_H
#define STORE_STORE_RECOVER_H

#include <stdint.h>

#include "base/error.h"

struct store;

/* Writes what the flush mark says now, durably. @thread recovery, or who holds the store */
MUST_CHECK enum tern_code store_write_mark(struct store *store, int64_t flushed, int64_t indexed,
                                           struct tern_error *err);

/* The log: finishes a cut that was begun, checks and cuts it, sets its positions, opens the flush
 * mark. */
MUST_CHECK enum tern_code store_recover_log(struct store *store, struct tern_error *err);

/* Queues and index follow the log; makes the dispatcher and replays what they lack. */
MUST_CHECK enum tern_code store_recover_derived(struct store *store, struct tern_error *err);

#endif
