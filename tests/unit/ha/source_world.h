/*
 * A source in a simulated world, with the slaves that ask it made by hand.
 *
 *   struct source_world w;
 *   source_world_init(&w, HA_MODE_SYNC_MASTER);
 *   source_world_open(&w);                        // an empty in-sync set
 *   struct slave s = slave_of(&w, 1);
 *   slave_attach(&w, &s);
 *   struct fake_ask *ask = slave_fetch(&w, &s);   // parked or answered
 */
#ifndef TESTS_UNIT_HA_SOURCE_WORLD_H
#define TESTS_UNIT_HA_SOURCE_WORLD_H

#include "tests/unit/broker/broker_unit.h"
#include "tests/unit/ha/ha_fakes.h"

#include "broker/ha/source.h"

#define WORLD_ROOT "/store"

enum { WORLD_SEGMENT_BYTES = 4096, WORLD_END = 1000, WORLD_MAX_BEHIND_MS = 15000 };

struct source_world {
    struct sim_env sim;
    struct ha_options ha;
    struct fake_store store;
    struct epochs *epochs;
    struct source *source;
    struct ha_held own; /* our versions and progress */
    bool no_memory;     /* for tables */
    /* Once, when a fetch has been looked at: what comes before it is parked. */
    void (*meanwhile)(struct source_world *w);
    /* Once, when we have said who we are: what comes then is not in it. */
    void (*after_self)(struct source_world *w);
    unsigned fills;
    enum tern_code apply_code;
    bool woken;
    int64_t next_ns; /* as the last step said */
    unsigned heard, refused;
    struct ha_member heard_last;
    bool heard_cut;
    int64_t heard_cut_at;
    unsigned told;                              /* calls of on_confirmed */
    bool telling;                               /* in one */
    void (*while_told)(struct source_world *w); /* once, from within one */
    int64_t confirmed;
    bool alone;
    uint64_t progress_seen;
};

/* Epochs 1 from 0 and 3 from 600; the log ends at WORLD_END. Closed. */
void source_world_init(struct source_world *w, enum ha_mode mode);
void source_world_fini(struct source_world *w);
void source_world_open(struct source_world *w);
/* Runs the task's step now, and again while it was woken. */
void world_step(struct source_world *w);
/* The same after this time; steps that are due on the way run at their time. */
void world_pass_ms(struct source_world *w, int64_t ms);
/* The log grows; the source is told. */
void world_append(struct source_world *w, int64_t bytes);
void world_flush(struct source_world *w);
struct insync_set world_saved_set(struct source_world *w);

/* A slave, and what it has. */
struct slave {
    struct ha_member member;
    uint64_t peer_id;
    uint64_t session; /* 0: none */
    int64_t appended, flushed, dispatched;
    bool readable;
    bool gave; /* it says that we have all progress made there */
    struct ha_held held;
};

/* Everything up to the log's end, same epochs. */
struct slave slave_of(struct source_world *w, int64_t id);
struct fake_ask *slave_greet(struct source_world *w, struct slave *slave,
                             Tern__Wire__HaPurpose purpose);
/* Greets to follow; must be taken. It then has what is common. */
void slave_attach(struct source_world *w, struct slave *slave);
struct fake_ask *slave_fetch(struct source_world *w, struct slave *slave);
struct fake_ask *slave_fetch_with(struct source_world *w, struct slave *slave, uint32_t max_bytes,
                                  uint32_t suspend_ms);
/* The answer must have come; its bytes are checked and appended. Frees it; how many there were. */
size_t slave_take(struct source_world *w, struct slave *slave, struct fake_ask *ask);
/* Fetches until nothing is new; the parked one is returned. */
struct fake_ask *slave_catch_up(struct source_world *w, struct slave *slave);
struct fake_ask *slave_report(struct source_world *w, struct slave *slave, uint64_t progress_seen,
                              bool with_tables);
/* Expects that it was answered so; frees it. */
void expect_code(struct fake_ask *ask, enum tern_code code);

#endif
