/* A world and its copy, both open. */
#ifndef TESTS_UNIT_STORE_PAIR_WORLD_H
#define TESTS_UNIT_STORE_PAIR_WORLD_H

#include "tests/unit/base/unit.h"

#include "tests/unit/store/copy_world.h"

struct pair {
    struct world w;
    struct copy c;
};

/* Both open, empty. */
void pair_init(struct pair *p, uint64_t seed);
void pair_fini(struct pair *p);
/* Records of 0 to 12,000 bytes, alone and in batches, some without a unit. */
void pair_append_mixed(struct pair *p, int count);

#endif
