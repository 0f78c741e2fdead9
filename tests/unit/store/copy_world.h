/*
 * A second store on a second simulated disk, fed with the bytes of a world's log, as a slave's is.
 *
 *   struct copy c;
 *   copy_init(&c, &w);               // same options, nothing opened yet
 *   copy_open(&c);
 *   copy_feed(&c, w.store, 4096, INT64_MAX);
 *   copy_compare(&c);                // both closed: the same files
 *   copy_fini(&c);                   // before world_fini()
 */
#ifndef TESTS_UNIT_STORE_COPY_WORLD_H
#define TESTS_UNIT_STORE_COPY_WORLD_H

#include "tests/unit/store/store_world.h"

enum { COPY_CHUNK_MAX = 1 << 20 };

struct copy {
    struct world *w;
    struct env env; /* of the second machine */
    struct sim_fs *fs;
    struct store_options options;
    struct store *store;
    struct store_recovery recovery;
    struct tern_error err;
    uint8_t *chunk; /* COPY_CHUNK_MAX */
    /* what its observer heard */
    int64_t end;
    unsigned ends, arrivals, latched;
};

void copy_init(struct copy *c, struct world *w);
void copy_fini(struct copy *c); /* closes the store, if open, and does not care how */
enum tern_code copy_try_open(struct copy *c);
void copy_open(struct copy *c);
void copy_close(struct copy *c); /* must succeed */
void copy_power_loss(struct copy *c, enum sim_torn torn);
void copy_process_crash(struct copy *c);

int64_t copy_end(const struct copy *c); /* appended */
/* All of [from, end) of a store, from several segments. */
void copy_read(struct store *from, int64_t at, uint8_t *buf, size_t size);
/* Appends what `from` has behind the copy's end, up to `until`, in chunks of this size; 0: each of
 * a random one. Must succeed. */
void copy_feed(struct copy *c, struct store *from, size_t chunk, int64_t until);
/* Runs until everything is dispatched. */
void copy_settle(struct copy *c);

/* Both stores are closed: commitlog/ and consumequeue/ have the same files with the same bytes. */
void copy_compare(struct copy *c);

#endif
