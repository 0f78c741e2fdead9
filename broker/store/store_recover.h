/* The two halves of a store's recovery, in the order of their calls. Internal to the store. */
#ifndef STORE_STORE_RECOVER_H
#define STORE_STORE_RECOVER_H

#include "base/error.h"

struct store;

/* The log: checks and cuts it, sets its positions, opens the flush mark. */
MUST_CHECK enum tern_code store_recover_log(struct store *store, struct tern_error *err);

/* Queues and index follow the log; makes the dispatcher and replays what they lack. */
MUST_CHECK enum tern_code store_recover_derived(struct store *store, struct tern_error *err);

#endif
