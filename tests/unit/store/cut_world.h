/* A world whose log of several segments is cut, with what every cut must leave. */
#ifndef TESTS_UNIT_STORE_CUT_WORLD_H
#define TESTS_UNIT_STORE_CUT_WORLD_H

#include "tests/unit/base/unit.h"

#include "tests/unit/store/store_world.h"

enum { APPENDS = 60 };

/* Records of many sizes, alone and in batches. */
void append_mixed(struct world *w, int count);
/* A world with a log of several segments. */
void begin(struct world *w, uint64_t seed);
/* The log's end. */
int64_t end_of(const struct world *w);
/* The log ends there, whole and flushed. */
void expect_end(const struct world *w, int64_t end);
/* A store_get's reserve: its argument is 1 MiB. */
uint8_t *lend(void *arg, size_t size_bytes);

#endif
