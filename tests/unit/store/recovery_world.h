/* What tests of recovery share: a world per test, and words for its log's end. */
#ifndef TESTS_UNIT_STORE_RECOVERY_WORLD_H
#define TESTS_UNIT_STORE_RECOVERY_WORLD_H

#include "tests/unit/base/unit.h"

#include "tests/unit/store/store_world.h"

/* *state is a world whose store is not open. */
int setup(void **state);
int teardown(void **state);
/* Appends until the log is a little longer than so many segments. */
void fill_segments(struct world *w, int segments);

#endif
