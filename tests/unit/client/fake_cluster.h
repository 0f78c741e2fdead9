/*
 * A scripted cluster on virtual time, for tests of consumers: one nameserver, one broker set of a
 * master and a slave that share what they hold, one topic. It answers what consumers ask, remembers
 * what they said, and can be told to fail, to lie and to die.
 *
 *   struct fake *fake = fake_create(4);               // topic T with 4 queues at broker-a
 *   fake_publish(fake, 0, "TagA", 10);
 *   … consumers with fake_options(fake, "group", "name") …
 *   fake_run_ms(fake, 500);
 *   fake_destroy(fake);
 *
 * What a test can do between two runs is to set fields: what struct fake says holds for the whole
 * cluster, what struct fake_node says for one of its processes alone; `queues` hold the messages
 * and the group's progress, and may be moved by hand. Counters only grow.
 *
 * fake_create_real() makes the same cluster on real threads and loopback connections, for what
 * threads do to each other; there parked pulls wait until something is published or the end.
 *
 * fake_cluster.c makes the world, plays the nameserver and hands requests out; fake_reading.c plays
 * a broker that is read, fake_group.c one that keeps a group: members, locks, messages that failed.
 * Listeners that remember what they heard are in heard.h.
 *
 * Functions fail the test when anything goes wrong; the test's thread calls them.
 */
#ifndef TESTS_UNIT_CLIENT_FAKE_CLUSTER_H
#define TESTS_UNIT_CLIENT_FAKE_CLUSTER_H

#include "tests/unit/base/unit.h"

#include <pthread.h>

#include "base/arena.h"
#include "base/clock.h"
#include "client/sim_hooks.h"
#include "rpc/server.h"
#include "tests/sim/link/sim_link.h"
#include "tests/sim/sim_env.h"

#define FAKE_TOPIC "T"
#define FAKE_RETRY "%RETRY%group"
#define FAKE_NAMESRV "10.0.0.8:9876"

enum { FAKE_QUEUES = 8, FAKE_MESSAGES = 200000, FAKE_MEMBERS = 8, FAKE_PARKED = 512 };

struct fake;

struct fake_queue {
    int64_t min, max;
    int64_t slave_max;         /* -1: as the master */
    int64_t committed;         /* -1: none */
    uint64_t version;          /* counter of the offset version */
    int64_t commits;           /* requests that named it */
    char *tags[FAKE_MESSAGES]; /* static texts; NULL: none */
    int reconsume[FAKE_MESSAGES];
};

struct fake_node {
    struct fake *fake;
    const char *host;
    char address[64];
    int64_t id;        /* -1: nameserver */
    struct link *link; /* NULL: down */
    struct rpc_server *server;
    struct rpc_request *parked[FAKE_PARKED]; /* pulls and WaitEvents */
    unsigned pulls, queries, commits, members_asked;
    unsigned positions_asked; /* ends and offsets of times */
    /* what it answers alone; else as the whole cluster is told */
    enum tern_code pull_code, query_code, commit_code, members_code;
    bool fresh; /* of the members it knows only who asks */
};

struct fake {
    struct sim_env sim;
    struct env env;
    struct sim_net *net; /* NULL: the real world */
    struct link *client;
    pthread_mutex_t mutex; /* recursive: all that follows, in the real world */
    struct fake_node namesrv, brokers[2];
    bool listed[2]; /* in the route */
    int queue_count;
    bool has_retry_topic;
    struct fake_queue *queues; /* FAKE_QUEUES of T, then one of the retry topic */
    char members[FAKE_MEMBERS][128];
    unsigned member_count;
    bool hide_members; /* answers an empty list */
    uint64_t events;
    int64_t suggest;
    bool loose;          /* delivers messages that do not match */
    size_t stamped_size; /* not 0: all messages are copies of `stamped`, for speed */
    uint8_t stamped[512];
    enum tern_code query_code, commit_code, members_code, pull_code, send_back_code;
    int64_t range_max;     /* -2: the truth */
    int64_t search_answer; /* -1: the time itself */
    int64_t last_search_ms;
    /* true: answered */
    bool (*on_pull)(struct fake_node *node, struct rpc_request *rq,
                    const Tern__Wire__PullRequest *pull);
    /* queue locks, as a broker keeps them */
    struct fake_lock {
        char owner[128]; /* "": nobody */
        int64_t until_ns;
        int64_t tries_offset;
        int32_t tries;
    } locks[9];
    enum tern_code lock_code;
    bool locks_undecided;                     /* grants nothing new */
    bool locks_unanswered;                    /* grants, and does not say so */
    uint32_t lock_delay_ms, members_delay_ms; /* members: each answer a ms later than the last */
    unsigned locked, unlocked;
    unsigned queries, commits, sent_back, unregistered;
    Tern__Wire__SendBackRequest last_send_back;
    int64_t sent_back_ns;     /* the last time */
    enum tern_code copy_code; /* what the copy of a message that failed is answered */
    unsigned copies;
    int32_t copy_times, copy_max_times; /* of the last */
    char copy_topic[128], copy_props[512], copy_body[64];
    int64_t last_pull_offset, last_pull_commit;
    enum tern_code check_code; /* of an expression */
    char checked[128];         /* the last one */
    /* kinds of requests in the order in which each came first */
    int32_t first_kinds[32];
    unsigned first_kind_count;
};

/* ---- the world ---- */

/* A cluster of 1 to FAKE_QUEUES queues on virtual time; free with fake_destroy(). */
struct fake *fake_create(int queue_count);
/* The same on real threads and loopback connections. */
struct fake *fake_create_real(int queue_count);
/* After all consumers are destroyed. */
void fake_destroy(struct fake *fake);
void fake_run_ms(struct fake *fake, int64_t ms);
/* The process begins, with what the cluster holds. */
void fake_node_up(struct fake_node *node);
/* The process dies; what it had promised is forgotten. */
void fake_node_down(struct fake_node *node);
/* Options of a consumer in this world; free with tern_consumer_options_destroy(). */
struct tern_consumer_options *fake_options(struct fake *fake, const char *group, const char *name);

/* ---- what it holds ---- */

/* count more messages in the queue; index FAKE_QUEUES is the retry topic's. */
void fake_publish(struct fake *fake, int queue_id, char *tag, int64_t count);
/* From now on all messages have a body of body_size bytes, a tag, and are made by copying. */
void fake_stamp(struct fake *fake, size_t body_size);
/* The queue of a request; FAKE_TOPIC's or the retry topic's only one. */
struct fake_queue *fake_queue(struct fake *fake, const ProtobufCBinaryData *topic, int32_t id);
/* A group's members have changed: whoever waits for events hears it. */
void fake_members_changed(struct fake *fake);
/* The place of a kind among those that came so far, from 0; -1: it never came. */
int fake_first_place(const struct fake *fake, int32_t kind);

/* ---- for on_pull ---- */

bool fake_is(const ProtobufCBinaryData *bytes, const char *text);
/* Answers a pull with `count` messages of `payload` bytes that rpc_reply_reserve() has room for;
 * queue NULL: no offsets of it are told. */
void fake_answer_pull(struct fake *fake, struct rpc_request *rq, enum tern_code code, int64_t next,
                      const struct fake_queue *queue, int32_t count, size_t payload);
/* Encodes the queue's message at an offset into dst; returns its size. */
size_t fake_encode(struct fake *fake, const struct fake_queue *queue, const char *topic,
                   int64_t offset, uint8_t *dst, size_t cap);

#endif
