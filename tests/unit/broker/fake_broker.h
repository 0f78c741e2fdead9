/*
 * A broker without store, server and nameservers: real tables, events and admin lane on a simulated
 * world, a few made-up queues instead of a store, requests from fake_rpc.
 */
#ifndef TESTS_UNIT_BROKER_FAKE_BROKER_H
#define TESTS_UNIT_BROKER_FAKE_BROKER_H

#include "broker/broker_internal.h"
#include "tests/sim/sim_env.h"
#include "tests/unit/broker/fake_rpc.h"

enum { FAKE_QUEUES = 16, FAKE_FIRST_MS = 1000, FAKE_STEP_MS = 10 };

/* Message at offset o was stored at FAKE_FIRST_MS + o × FAKE_STEP_MS. */
struct fake_queue {
    const char *topic;
    int32_t queue_id;
    int64_t min, max;
};

/* What replication says, when broker.ha is set (fake_broker_ha). */
struct fake_ha {
    int state;
    bool decides_progress, decides_locks, hands_on_locks, readable, writable;
    int changes; /* calls of ha_on_change() */
};

struct fake_broker {
    struct broker broker;
    struct sim_env sim;
    struct fake_queue queues[FAKE_QUEUES];
    size_t queue_count;
    enum tern_code store_code;   /* what reads of the store answer, when not OK */
    const char *deleted_topic;   /* the last given to store_delete_topic */
    bool topic_was_durably_gone; /* then: the topic file did not have it any more */
    int publishes;
    struct fake_ha ha;
};

extern struct fake_broker fake;

void fake_broker_begin(void);
/* Frees all requests made with fake_call(). */
void fake_broker_end(void);
/* Ends and begins again on the same disk, as after a crash. */
void fake_broker_restart(void);
/* The broker is one of a set from now on; state: Tern__Wire__HaState. Decides and is writable when
 * it is HA_OPEN. */
void fake_broker_ha(bool slave, int state);
void fake_broker_queue(const char *topic, int32_t queue_id, int64_t min, int64_t max);
/* A topic with that many queues, durable. */
void fake_broker_topic(const char *name, int32_t queues);

/* A request for a handler; set its body, then fake_run(). Freed by fake_broker_end(). */
struct fake_request *fake_call(const char *client_id, uint64_t peer_id);
/* Runs the handler and the lanes until the answer. */
void fake_run(struct fake_request *request,
              void (*handler)(struct broker *broker, struct rpc_request *request));
const char *fake_remark(const struct fake_request *request);

/* A name as a bytes field, and for raw bytes. */
#define NAME(text) frame_bytes(text, strlen(text))

#endif
