/* A set of members and its clock, and words for what happens to them. */
#ifndef TESTS_UNIT_HA_INSYNC_WORLD_H
#define TESTS_UNIT_HA_INSYNC_WORLD_H

#include "tests/unit/broker/broker_unit.h"

#include "broker/ha/insync.h"

enum { MAX_BEHIND_MS = 15000, JUST_NOW_MS = 1000 };

extern struct insync in;
extern int64_t now_ns;

/* A member with an address of its own, whose uuid is all `mark`. */
struct insync_member member(int64_t id, uint8_t mark);
/* set NULL: nothing on record. */
void begin(uint32_t replicas, uint32_t min_replicas, const struct insync_set *set);
/* A set of so many members, whose ids follow. */
struct insync_set set_of(size_t count, ...);
/* Our own log ends there. */
void own(int64_t end);
/* Up to where all that counts have it. */
int64_t confirmed(void);
/* Is it in the set that counts? */
bool is_member(int64_t id);

#endif
