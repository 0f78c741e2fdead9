/*
 * Members of a set between memory and wire. What comes from the wire is checked here: lengths,
 * grammar of names and addresses, ranges, soundness of the epochs.
 */
#ifndef HA_WIRE_H
#define HA_WIRE_H

#include "base/arena.h"
#include "base/names.h"
#include "broker/ha/epochs.h"
#include "broker/ha/insync.h"
#include "rpc/frame.h"

struct ha_member {
    char cluster[BROKER_NAME_MAX + 1], name[BROKER_NAME_MAX + 1];
    int64_t id;
    uint8_t uuid[HA_UUID_BYTES];
    char address[HA_ADDRESS_BYTES], ha_address[HA_ADDRESS_BYTES];
    uint64_t life;
    int state; /* Tern__Wire__HaState */
    size_t epoch_count;
    struct ha_epoch epochs[EPOCHS_MAX];
    uint64_t highest_epoch;
    int64_t log_min, log_end, flushed, dispatched;
    bool readable;
    int64_t segment_bytes;
};

/* TERN_INVALID names the field. */
MUST_CHECK enum tern_code ha_member_from_wire(struct arena *arena, const Tern__Wire__HaMember *wire,
                                              struct ha_member *out, struct tern_error *err);
/* In the arena, borrowing from `member`; NULL: no memory. */
Tern__Wire__HaMember *ha_member_to_wire(struct arena *arena, const struct ha_member *member);

enum { HA_UUID_TEXT_BYTES = 2 * HA_UUID_BYTES + 1 };
void ha_uuid_text(char out[HA_UUID_TEXT_BYTES], const uint8_t uuid[HA_UUID_BYTES]);

#endif
