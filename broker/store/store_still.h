/* The whole store standing still, for what cannot be done beside its tasks. Internal to the store.
 */
#ifndef STORE_STORE_STILL_H
#define STORE_STORE_STILL_H

#include <stdint.h>

#include "base/error.h"

struct store;

/*
 * Waits until nobody appends, flushes, dispatches, expires or tends queues, and keeps it so; reads
 * go on. One at a time. @thread any, not within a callback of the store @locks none @blocks
 */
void store_hold(struct store *store);
void store_let_go(struct store *store);

/* store_observer's on_cut and on_cut_end. @thread who holds the store */
MUST_CHECK enum tern_code store_tell_cut(struct store *store, int64_t phys_off,
                                         struct tern_error *err);
void store_tell_cut_end(struct store *store);

#endif
