/*
 * Pulls that wait at the end of a queue (RocketMQ's PullRequestHoldService).
 *
 *   handle_pull: nothing there ─► long_poll_park() ──── message arrives, tag matches ──┐
 *                                      │                                               ▼
 *                                      ├──── time is up, relieved, progress reset ─► resume():
 *                                      │                                   pull once, answer
 *                                      └──── peer gone ─────────────────────────► dropped
 *
 * No wake-up is lost: parking looks at the queue's end once more under the lock that an arrival
 * takes after the end was published. A woken pull runs once and never parks again. A pull whose
 * filter needs the records is taken out for a look at what came; when that is not for it, it goes
 * back under the same rule, from behind what was looked at. A reset of a group's progress sends its
 * pulls home, and refuses to park those that were on their way meanwhile: they may have looked at
 * the progress before it was reset. So does a reset that another member of the set tells of.
 */
#ifndef BROKER_LONG_POLL_H
#define BROKER_LONG_POLL_H

#include "base/env.h"
#include "base/error.h"
#include "base/subscription.h"
#include "broker/store/store.h"

struct long_poll;
struct rpc_request;

/* One parked pull; lives in its request's memory. The first block is the parker's to fill. */
struct parked_pull {
    const char *topic;
    const char *group; /* whose progress it goes by */
    int32_t queue_id;
    int64_t offset;
    uint64_t resets; /* long_poll_resets() before the group's progress was looked at */
    int64_t deadline_ns;
    uint64_t peer_id;
    const struct subscription *subscription; /* NULL: every message matches */
    bool by_record; /* the arrival alone does not tell: `concerns` is asked */
    void *user;

    uint32_t hash;
    struct parked_pull *bucket_next;
    struct parked_pull *older, *newer; /* the shard's parking order */
};

struct long_poll_options {
    uint32_t max_parked;
    void *arg;
    /* The queue's end now. @locks holds:LONG_POLL */
    int64_t (*queue_end)(void *arg, const char *topic, int32_t queue_id);
    /*
     * Something arrived for a pull that is by_record: is there what it wants? false: no, its offset
     * was moved over what was looked at, and it is parked again. Does not wait. @locks none
     */
    bool (*concerns)(void *arg, struct parked_pull *parked);
    /* The pull is to be run and answered. @locks none @thread dispatcher, or the poll task */
    void (*resume)(void *arg, struct parked_pull *parked);
    /* Its peer is gone: answer to nobody. @locks none */
    void (*drop)(void *arg, struct parked_pull *parked);
};

MUST_CHECK enum tern_code long_poll_create(const struct env *env,
                                           const struct long_poll_options *options,
                                           struct long_poll **out);
/* Nothing may be parked any more (long_poll_resume_all). */
void long_poll_destroy(struct long_poll *polls);

/* false: something arrived or was reset meanwhile; nothing is parked, run the pull again, after a
 * look at the group's progress. @thread any */
MUST_CHECK bool long_poll_park(struct long_poll *polls, struct parked_pull *parked);
/* store_observer's on_arrival. */
void long_poll_arrival(struct long_poll *polls, const struct store_arrival *arrival);
void long_poll_peer_gone(struct long_poll *polls, uint64_t peer_id);
/* How many resets there were: to be read before a pull looks at its group's progress. */
uint64_t long_poll_resets(const struct long_poll *polls);
/* The group's progress in the queue was reset (after it was): its pulls are resumed, to be told.
 * @thread any @locks none */
void long_poll_reset(struct long_poll *polls, const char *group, const char *topic,
                     int32_t queue_id);
/* The same for every queue of a group or topic; "": of any. */
void long_poll_reset_all(struct long_poll *polls, const char *group, const char *topic);
/* Resumes the oldest, of one peer (0: of any): the caps are nearly reached. */
void long_poll_relieve(struct long_poll *polls, uint64_t peer_id);
/* From now on nothing parks, and what is parked is resumed: the broker stops. */
void long_poll_resume_all(struct long_poll *polls);
/* Resumes what is due; returns when to come again. */
int64_t long_poll_step(struct long_poll *polls, int64_t now_ns);
uint32_t long_poll_parked(const struct long_poll *polls);

#endif
