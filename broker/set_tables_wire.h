/* Tables between memory and wire, for set_tables.c. What comes from the wire is checked here. */
#ifndef BROKER_SET_TABLES_WIRE_H
#define BROKER_SET_TABLES_WIRE_H

#include "base/arena.h"
#include "broker/groups.h"
#include "broker/offsets.h"
#include "broker/queue_locks.h"
#include "broker/store/store.h"
#include "broker/topics.h"
#include "rpc/frame.h"

/*
 * Rows as they go over the wire, in the arena; names are copied. *size_bytes is raised by what they
 * take in a frame. false: no memory.
 */
MUST_CHECK bool topics_to_wire(struct arena *arena, const struct topics *topics,
                               const struct topic_config *rows, size_t count,
                               Tern__Wire__HaTables *out, size_t *size_bytes);
MUST_CHECK bool deletions_to_wire(struct arena *arena, const struct store_deletion *rows,
                                  size_t count, Tern__Wire__HaTables *out, size_t *size_bytes);
MUST_CHECK bool groups_to_wire(struct arena *arena, const struct group_config *rows, size_t count,
                               Tern__Wire__HaTables *out, size_t *size_bytes);
/* NULL: no memory. */
Tern__Wire__ProgressEntry *progress_to_wire(struct arena *arena,
                                            const struct offset_change *change);
Tern__Wire__LockEntry *lock_to_wire(struct arena *arena, const struct queue_lock_change *change);

/* Malloc'ed rows (free()), as many as there are on the wire. TERN_INVALID names the fault. */
MUST_CHECK enum tern_code topics_from_wire(const Tern__Wire__HaTables *wire,
                                           struct topic_config **out, struct tern_error *err);
MUST_CHECK enum tern_code deletions_from_wire(const Tern__Wire__HaTables *wire,
                                              struct store_deletion **out, struct tern_error *err);
MUST_CHECK enum tern_code groups_from_wire(const Tern__Wire__HaTables *wire,
                                           struct group_config **out, struct tern_error *err);

/* Names of one entry, terminated. */
struct wire_names {
    char group[GROUP_NAME_MAX + 1], topic[TOPIC_NAME_MAX + 1], client[CLIENT_ID_MAX + 1];
};
/* The change borrows from `names`. */
MUST_CHECK enum tern_code progress_from_wire(const Tern__Wire__ProgressEntry *wire,
                                             struct wire_names *names, struct offset_change *out,
                                             struct tern_error *err);
MUST_CHECK enum tern_code lock_from_wire(const Tern__Wire__LockEntry *wire,
                                         struct wire_names *names, struct queue_lock_change *out,
                                         struct tern_error *err);

#endif
