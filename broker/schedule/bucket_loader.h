/*
 * Reading from a bucket's file what is still waiting there, step by step: the earliest messages
 * behind a key, as many as there is room for. Twice over the file, since a message that is done is
 * told behind those that wait: first who waits, then who is done.
 *
 * @thread the buckets' @locks none; blocks on the disk, for at most BUCKET_READ_MAX items a step
 */
#ifndef SCHEDULE_BUCKET_LOADER_H
#define SCHEDULE_BUCKET_LOADER_H

#include "broker/schedule/buckets.h"

struct bucket_loader {
    bool active;
    int64_t id;
    struct due_key after; /* later ones are wanted */
    struct due_heap found;
    bool bounded;         /* there was no room for what is later than… */
    struct due_key bound; /* …this */
    bool second;          /* pass */
    uint32_t at, first_end;
    struct bucket_item *items;
};

MUST_CHECK enum tern_code bucket_loader_init(struct bucket_loader *loader, uint32_t cap);
void bucket_loader_fini(struct bucket_loader *loader);
void bucket_loader_begin(struct bucket_loader *loader, int64_t id, const struct due_key *after);
/*
 * *done: what waits is in `found` (any order; entries whose phys_off is -1 are none), and all up to
 * *upto is in it; active is false then. An error ends it, too.
 */
MUST_CHECK enum tern_code bucket_loader_step(struct bucket_loader *loader, struct buckets *buckets,
                                             bool *done, struct due_key *upto,
                                             struct tern_error *err);
/* Whether a message waits there. Reads the whole file. */
MUST_CHECK enum tern_code bucket_waits(struct buckets *buckets, struct bucket_item *items,
                                       const struct due_key *key, bool *waits,
                                       struct tern_error *err);

#endif
