/*
 * How a master starts: waits, unwritable, for every member of the last durable in-sync set, takes
 * the tail from the one with the highest (epoch, end) when that is beyond its own, merges
 * everybody's progress, then begins an epoch and opens. A passive state machine; its owner does
 * what it says.
 *
 *   WAITING ──all answered──► TAKING ──caught up──► MERGING ──merged──► BEGINNING ──► OPEN
 *      │ recover_timeout: ASYNC ──────────────────────────────────────────▲
 *      │                  SYNC ──forceOpen, the missing are removed───────┘
 *
 * An empty store without a set on record asks the nameservers for slaves of its name: a non-empty
 * one becomes the only member to wait for; without one it opens as a new set.
 */
#ifndef HA_OPENING_H
#define HA_OPENING_H

#include "broker/ha/ha_internal.h"

struct opening;

struct opening_options {
    struct ha_part_options part;
    /* The rest is done by ha.c. @thread ha task @locks none */
    /* Ask this address who it is (HA_LOOK); the answer comes by opening_heard(). */
    void (*look)(void *arg, const char *ha_address);
    /* Take what this member has (replica_recover); ends with opening_taken(). */
    void (*take)(void *arg, const char *ha_address, bool force);
    /* Open now with this set; raise: something may be lost; number: the least epoch number. Does
     * the flush, the epoch, the tables' opening. An error: tried again a second later. */
    enum tern_code (*open)(void *arg, const struct insync_set *set, bool raise, uint64_t number,
                           struct tern_error *err);
};

MUST_CHECK enum tern_code opening_create(const struct opening_options *options,
                                         struct opening **out);
void opening_destroy(struct opening *opening);

/* Begins, or begins anew after the master stopped writing (`refuser` then is the slave that made
 * it). Loads the set. */
MUST_CHECK enum tern_code opening_begin(struct opening *opening, int64_t now_ns,
                                        struct tern_error *err);
void opening_heard(struct opening *opening, const struct ha_member *member);
void opening_members(struct opening *opening, const struct ha_seen_member *members, size_t count,
                     uint32_t nameservers_answered);
/* The take ended: code OK, or why it could not be done. */
void opening_taken(struct opening *opening, enum tern_code code);
/* An operator's word: members that did not answer are given up. discard: UUID of the non-empty
 * slave beside which an empty store opens, NULL: none. TERN_STATE with a text: it is not what is
 * waited for. */
MUST_CHECK enum tern_code opening_force(struct opening *opening,
                                        const uint8_t discard[HA_UUID_BYTES],
                                        struct tern_error *err);
int64_t opening_step(struct opening *opening, int64_t now_ns);

bool opening_done(struct opening *opening);
/* It waits for nobody and nothing failed: it will be done as soon as the disk has it. */
bool opening_alone(struct opening *opening);
/* The members' progress and locks are merged, or there is nobody to wait for (any more). */
bool opening_merged(struct opening *opening);
void opening_text(struct opening *opening, char *out, size_t size);
/* Members that have not answered; at most INSYNC_MAX. */
size_t opening_awaited(struct opening *opening, struct insync_member out[INSYNC_MAX]);

#endif
