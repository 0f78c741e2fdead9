/* The whole store standing still, for what cannot be done beside its tasks. Internal to the store.
 */
#ifndef STORE_STORE_STILL_H
#define STORE_STORE_STILL_H

struct store;

/*
 * Waits until nobody appends, flushes, dispatches, expires or tends queues, and keeps it so; reads
 * go on. One at a time. @thread any, not within a callback of the store @locks none @blocks
 */
void store_hold(struct store *store);
void store_let_go(struct store *store);

#endif
