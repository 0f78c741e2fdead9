/*
 * What ha.c hands to its three parts: the source (serves our log), the replica (copies another's)
 * and the opening (how a master starts). The parts do not know of each other; ha.c ties them.
 *
 * Locks: the source's and the replica's own (LOCK_HA_SOURCE, LOCK_HA_REPLICA), never held together,
 * nor while calling anything outside the part but epochs_copy() and the like, link or rpc.
 */
#ifndef HA_INTERNAL_H
#define HA_INTERNAL_H

#include "base/sched.h"
#include "broker/ha/ha.h"

struct ha_part_options {
    const struct env *env;
    const struct ha_options *ha; /* outlives the parts */
    struct epochs *epochs;
    void *arg;                                      /* of the functions below */
    void (*self)(void *arg, struct ha_member *out); /* who we are now. @thread any @locks none */
    void (*wake)(void *arg);                        /* the ha task runs soon. @thread any */
};

#endif
