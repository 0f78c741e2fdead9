/* The steps of a reset that a start after a crash does again. Internal to the store. */
#ifndef STORE_STORE_RESET_H
#define STORE_STORE_RESET_H

#include "broker/store/cut_intent.h"
#include "broker/store/store_internal.h"

/* From intent MOVE to intent BEGIN: the log's files go aside. */
MUST_CHECK enum tern_code store_reset_move(struct store *store, struct cut_intent *intent,
                                           struct tern_error *err);
/* The segment in which the log begins; empty. */
MUST_CHECK enum tern_code store_reset_first(struct store *store, int64_t start,
                                            struct tern_error *err);
/* Queues, index and deletions go. */
MUST_CHECK enum tern_code store_reset_derived(struct store *store, struct tern_error *err);

#endif
