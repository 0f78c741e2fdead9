/*
 * A store in a simulated world, with a ledger of everything that was appended to it.
 *
 *   struct world w;
 *   world_init(&w, seed);              // options for small segments, nothing opened yet
 *   world_open(&w);                    // must succeed
 *   world_append(&w, queue_id, body_bytes, count);
 *   world_power_loss(&w, SIM_TORN_PAGES);
 *   world_open(&w);
 *   world_check(&w);                   // nothing acknowledged lost, nothing made up, queues agree
 *   world_fini(&w);
 */
#ifndef TESTS_UNIT_STORE_STORE_WORLD_H
#define TESTS_UNIT_STORE_STORE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/store/store.h"
#include "broker/store/store_internal.h"
#include "tests/sim/sim_env.h"

#define WORLD_ROOT "/store"
#define WORLD_TOPIC "TopicTest"

enum { WORLD_QUEUES = 4, WORLD_SEGMENT_BYTES = 16 * 1024 };

/* One append and what came of it. */
struct sent {
    struct store_append append;
    struct world *world;
    uint8_t *bytes; /* as stored, once answered */
    int32_t queue_id;
    char key[16]; /* of all its records, "" without world.keys */
    bool answered;
    bool acked; /* answered OK and, with sync_flush, flushed */
    bool gone;  /* a cut or an expiry may have taken it */
};

struct world {
    struct sim_env sim;
    struct store_options options;
    struct store *store;
    struct store_recovery recovery;
    struct tern_error err;
    struct sent **sent;
    size_t sent_count, sent_cap;
    uint64_t body_seed;
    bool keys; /* give each append a key of its own, and check that the index finds it */
    /* what the observer heard */
    int64_t flushed;
    unsigned latched, arrivals, expired;
    enum tern_code latch_code;
    char latch_text[256];
    int64_t expired_min;
};

void world_init(struct world *w, uint64_t seed);
void world_fini(struct world *w); /* closes the store, if open, and does not care how */

enum tern_code world_try_open(struct world *w);
void world_open(struct world *w);
void world_close(struct world *w); /* must succeed */
void world_run(struct world *w, int64_t ms);

/* The machine stops; the store's object is freed. The ledger keeps only what was acknowledged as
 * such. */
void world_power_loss(struct world *w, enum sim_torn torn);
/* The process dies, the machine does not. */
void world_process_crash(struct world *w);

/* Appends `count` records in one request; the answer may be outstanding until the world runs. */
struct sent *world_append(struct world *w, int32_t queue_id, size_t body_bytes, uint32_t count);
/* The same with the records' sysFlag (transaction type). */
struct sent *world_append_typed(struct world *w, int32_t queue_id, size_t body_bytes,
                                uint32_t count, uint32_t sys_flag);
/* Runs until it is answered, and flushed if that is asked for; asserts that it is OK. */
void world_wait(struct world *w, struct sent *sent);
void world_append_ok(struct world *w, int32_t queue_id, size_t body_bytes, uint32_t count);

/*
 * Acknowledged records are there with their bytes, every record in the log is one of the ledger's,
 * and each queue holds exactly the log's records in order.
 */
void world_check(struct world *w);
/* Forgets what lies at or beyond end: a test has cut it on purpose. */
void world_forget_from(struct world *w, int64_t end);

/* A segment's bytes, changed behind the store's back (it must be closed), durably. */
void world_poke(struct world *w, int64_t phys_off, const void *bytes, size_t size);
void world_peek(struct world *w, int64_t phys_off, void *bytes, size_t size);
bool world_all_zero(struct world *w, int64_t from, int64_t end);
void world_segment_path(int64_t base, char out[FS_PATH_BYTES]);

/* A random number below the bound, of the world's own generator. */
uint32_t world_pick(struct world *w, uint32_t bound);

/* Size of a record of this body in WORLD_TOPIC. */
size_t world_record_bytes(size_t body_bytes);

/* Makes every file call fail until world_revive(). */
void world_kill_disk(struct world *w);
void world_revive_disk(struct world *w);

#endif
