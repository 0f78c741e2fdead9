/*
 * A broker set under random faults, and what is known of every message: what
 * was sent, answered, delivered, and on whose disk it lies. test_set_faults.c
 * makes things happen, set_fault_model.c reckons what a power loss or an
 * operator may have cost and checks that nothing else is missing,
 * set_fault_end.c holds the members' stores against one another.
 */
#ifndef TESTS_CLUSTER_SET_FAULT_H
#define TESTS_CLUSTER_SET_FAULT_H

#include "broker/broker_internal.h"
#include "broker/ha/ha.h"
#include "tests/cluster/sim_cluster.h"

enum { NUMBERS_MAX = 4096, QUEUES = 3, READERS_MAX = 3, BROKERS_MAX = 4, SETS_MAX = 2 };
#define FAULT_NAMESRV2_HOST "10.0.0.8"
#define FAULT_TOPIC "Numbers"
#define FAULT_FLEETING "Fleeting"

struct fault_world;

/* One number on its way. */
struct number {
    struct fault_world *world;
    uint32_t value, answers;
    bool acked;        /* SEND_OK */
    bool lossy;        /* may be lost, by what the documentation says */
    bool finished;     /* a listener was content with it */
    bool failed;       /* one was not: perhaps sent back, and progress may pass it */
    bool delivered;    /* its first place: */
    unsigned seen_set; /* of the first delivery */
    int32_t seen_queue;
    int64_t seen_offset;
    enum tern_code status; /* of the answer */
    /* acked: */
    unsigned set;
    int32_t queue_id;
    int64_t queue_offset, phys_off;
    unsigned held;        /* bit i: broker i has it, as last looked at */
    uint32_t record_size; /* known once somebody holds it */
};

/* A broker's machine. */
struct fault_broker {
    struct fault_world *world;
    struct sim_node *node;
    unsigned index, set;
    bool sync_flush;
    /* a death in the middle of something: after so many calls on its disk */
    uint64_t calls_left; /* 0: none is planned */
    bool dying;          /* it has come: the process is still to be taken away */
    bool loses_power;    /* by which it dies */
    bool disk_new;       /* its disk was lost, and nothing came to the new one yet */
    enum sim_torn torn;
    /* of its present life */
    int64_t flushed; /* as last looked at */
    int64_t progress[QUEUES];
    struct offset_version versions[QUEUES];
};

/* A commit that was answered OK. */
struct promise {
    int64_t offset;      /* -1: none */
    unsigned power_lost; /* brokers, since it was made */
    /* May be lost; also when not every member was there: what a slave alone has counts after one
     * recovery of a master that waits for it, not after two. */
    bool weak;
};

struct fault_set {
    const char *name;
    int32_t role;
    bool sync_flush, confirmed;
    unsigned master, members; /* index of the master; mask of all */
    bool rejoin_may;          /* a whole log was: no epoch may be common */
    bool operator_may;        /* a disk was lost: an operator's word may be needed */
    bool opened_alone;        /* an empty master, while no member with data was there */
    uint32_t alone_since;     /* `sent` at that time */
    bool founded;             /* it opened as a new set: what was before is given up */
    bool lost;                /* something was: offsets may be given out again */
    struct promise promises[QUEUES];
};

struct fault_world {
    struct sim_cluster cluster;
    struct rng_seeded rng;
    uint64_t seed;
    struct fault_set sets[SETS_MAX];
    unsigned set_count;
    struct fault_broker brokers[BROKERS_MAX];
    unsigned broker_count;
    bool two_nameservers;
    struct namesrv *namesrv2;
    struct link *namesrv2_link;
    char namesrv_addr[64];

    struct tern_producer *producer;
    struct tern_push_consumer *readers[READERS_MAX];
    struct tern_pull_consumer *committer;
    struct number numbers[NUMBERS_MAX];
    uint32_t sent;
    int retries;           /* 0: a number is stored at most once */
    unsigned fail_percent; /* of the listener's calls */
    bool may_lose_power, may_lose_disk, may_reset, may_expire, may_force;
    bool may_break; /* dying in the middle of something */
    unsigned disks_lost;
    uint32_t fleeting_life;          /* of the topic that is deleted and made again */
    int64_t order[SETS_MAX][QUEUES]; /* the highest offset delivered first */
};

uint64_t fault_dice(struct fault_world *world, uint64_t sides);
/* One line per event when SIM_TRACE is set. */
void fault_trace(const struct fault_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- set_fault_clients.c ---- */

void fault_new_producer(struct fault_world *world);
void fault_send_some(struct fault_world *world, uint32_t count);
void fault_join(struct fault_world *world);
void fault_leave(struct fault_world *world);
/* Commits progress of its own group, and notes what was promised. */
void fault_commit(struct fault_world *world);
void fault_new_committer(struct fault_world *world);
/* Requests to a broker, as mqadmin's; what comes of them is not asked. */
void fault_put_topic(struct fault_world *world, const struct fault_broker *broker,
                     const char *topic);
void fault_delete_topic(struct fault_world *world, const struct fault_broker *broker,
                        const char *topic);
void fault_rejoin(struct fault_world *world, const struct fault_broker *broker);
enum tern_code fault_force_open(struct fault_world *world, const struct fault_broker *broker);
void fault_send_fleeting(struct fault_world *world);
void fault_body(uint32_t value, uint8_t out[1024], size_t *size);

/* ---- set_fault_brokers.c ---- */

bool fault_chance(struct fault_world *world, uint64_t percent);
void fault_run_ms(struct fault_world *world, uint64_t most_ms);
/* Starts it; it may die on the way when the world may break. Runs already:
 * nothing. */
void fault_up(struct fault_broker *broker);
/* Stopped, killed, without power, or to die soon. */
void fault_down(struct fault_broker *broker);
/* Loses its power at once; what had not been flushed is gone. */
void fault_power_off(struct fault_broker *broker, enum sim_torn torn);
/* Its machine is replaced, when that costs nothing: the others have all it has.
 */
void fault_lose_disk(struct fault_broker *broker);
/* Takes away who died meanwhile. */
void fault_bury_all(struct fault_world *world);
/* An empty world; then its sets; then brokers, topics and clients. */
void fault_begin_world(struct fault_world *world, uint64_t seed);
/* A master and its slaves, with a random configuration. */
void fault_add_set(struct fault_world *world, const char *name, unsigned slaves);
void fault_start_all(struct fault_world *world);
void fault_start_namesrv2(struct fault_world *world);
void fault_kill_namesrv2(struct fault_world *world);

/* ---- set_fault_model.c ---- */

bool fault_runs(const struct fault_broker *broker);
int fault_state(const struct fault_broker *broker);
bool fault_is_master(const struct fault_broker *broker);
/* Notes who holds what. Before everything that takes something away. */
void fault_look(struct fault_world *world);
/* It has lost its power; what was not flushed at the last look, or written since, is gone there. */
void fault_power_lost(struct fault_broker *broker);
void fault_disk_lost(struct fault_broker *broker);
/* An operator opens this master without the members that do not answer. */
void fault_forced(struct fault_broker *broker);
void fault_forget_life(struct fault_broker *broker);
void fault_check(struct fault_world *world);
bool fault_all_finished(void *world);
/* Fails naming what is missing. */
void fault_check_finished(struct fault_world *world);

/* ---- set_fault_end.c ---- */

/* Every member of each set is open or follows, and has what its master has. */
bool fault_all_settled(void *world);
void fault_check_stores(struct fault_world *world);
/* Heals and starts everything, waits until all is delivered and settled, checks. */
void fault_drain(struct fault_world *world);
/* Ends clients, brokers and the world's parts. */
void fault_end(struct fault_world *world);

#endif
