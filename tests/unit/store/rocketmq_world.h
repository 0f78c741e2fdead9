/*
 * One of the stores that RocketMQ 4.9.8 has written, unpacked, and what its own reader said of it.
 */
#ifndef TESTS_UNIT_STORE_ROCKETMQ_WORLD_H
#define TESTS_UNIT_STORE_ROCKETMQ_WORLD_H

#include "tests/unit/base/unit.h"

#include "base/json.h"
#include "broker/store/store.h"

enum { LINE_BYTES = 64 * 1024, GET_BYTES = 1 << 20, QUERY_MAX = 64 };

struct fixture {
    struct env env;
    char dir[64];
    char root[128];
    json_t *manifest; /* an array of lines */
    struct store *store;
    struct store_recovery recovery;
    uint8_t *bytes; /* of the last get */
    int64_t codes[64];
    size_t code_count;
};

struct one_append {
    struct store_append append; /* first */
    _Atomic bool done;
};

/* Unpacks the store of this name: "clean", or "crash" for one whose process died. */
int setup(void **state, const char *name);
int setup_clean(void **state);
int teardown(void **state);
/* A number of a line of the manifest; it must be there. */
int64_t number(const json_t *row, const char *key);
void on_appended(struct store_append *append);

#endif
