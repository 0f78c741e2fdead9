/*
 * A small store on a simulated disk for the tests of mqstore, and ways to damage it.
 *
 *   tool_world_init(&w); tool_world_fill(&w, ROOT, 0);      // closed, without a fault
 *   tool_poke32(&w, ROOT "/commitlog/000…", 12, 99);
 *   json_t *json = tool_verify(&w, ROOT, MQSTORE_FAILED);   // what verify --json says
 */
#ifndef TESTS_UNIT_TOOLS_TOOL_WORLD_H
#define TESTS_UNIT_TOOLS_TOOL_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "broker/store/store.h"
#include "tests/sim/sim_env.h"
#include "tools/mqstore/mqstore.h"

#define ROOT "/store"
#define SEGMENT(n) ROOT "/commitlog/" n
#define SEGMENT_0 SEGMENT("00000000000000000000")
#define SEGMENT_1 SEGMENT("00000000000000016384")
#define SEGMENT_2 SEGMENT("00000000000000032768")
#define QUEUE_FILE(topic, id) ROOT "/consumequeue/" topic "/" id "/00000000000000000000"

enum {
    TOOL_SEGMENT_BYTES = 16384,
    TOOL_QUEUE_FILE_BYTES = 4000,
    TOOL_INDEX_SLOTS = 16,
    TOOL_INDEX_ENTRIES = 64,
    TOOL_RECORDS = 120,      /* of a full store, in four queues, 30 each */
    TOOL_RECORD_BYTES = 390, /* every one */
    TOOL_PER_SEGMENT = 41    /* records; then a filler */
};

struct tool_world {
    struct sim_env sim;
    struct store *store;
    uint32_t serial;
    char *out, *warn; /* of the last command, terminated */
};

void tool_world_init(struct tool_world *w);
void tool_world_fini(struct tool_world *w);

/* Opens a store under root; tool_close() or tool_crash() ends that. */
void tool_open(struct tool_world *w, const char *root);
void tool_close(struct tool_world *w);
/* The process dies; everything written stays. */
void tool_crash(struct tool_world *w);
/* One record with tag, key and unique id, and waits for it. */
void tool_append(struct tool_world *w, const char *topic, int32_t queue_id);
/* TOOL_RECORDS records in turns in TopicA/0, TopicA/1, TopicB/0, TopicB/1; closed. */
void tool_fill(struct tool_world *w, const char *root);

/* All of a store's files under another root. */
void tool_copy(struct tool_world *w, const char *from, const char *to);

int64_t tool_record_at(uint32_t n); /* physical offset of the n-th record of tool_fill() */
void tool_poke(struct tool_world *w, const char *path, int64_t at, const void *bytes, size_t size);
void tool_poke32(struct tool_world *w, const char *path, int64_t at, uint32_t value);
void tool_poke64(struct tool_world *w, const char *path, int64_t at, uint64_t value);
uint32_t tool_peek32(struct tool_world *w, const char *path, int64_t at);
uint64_t tool_peek64(struct tool_world *w, const char *path, int64_t at);
void tool_truncate(struct tool_world *w, const char *path, int64_t size);
void tool_remove(struct tool_world *w, const char *path);
void tool_create(struct tool_world *w, const char *path);
/* The first index file's path; valid until the next call. */
const char *tool_index_path(struct tool_world *w);

/* Runs a command line; expects the status. w->out and w->warn hold what it printed. */
void tool_run(struct tool_world *w, int status, const char *const *argv);
#define RUN(w, status, ...) tool_run(w, status, (const char *const[]){"mqstore", __VA_ARGS__, NULL})
/* verify --json, parsed; a new reference. */
json_t *tool_verify(struct tool_world *w, const char *root, int status);
/* How many of a kind, among faults or notes. */
int64_t tool_count(const json_t *json, const char *group, const char *kind);
/* Verifies; there must be faults of exactly this kind, `count` of them. */
void tool_expect_fault(struct tool_world *w, const char *kind, int64_t count);

#endif
