/*
 * Nameservers and brokers that answer what a test tells them, over any link: the simulated network
 * or NNG. They check what a client sends (frames decode, prepared records are whole) and remember
 * it.
 */
#ifndef TESTS_UNIT_CLIENT_FAKE_SERVERS_H
#define TESTS_UNIT_CLIENT_FAKE_SERVERS_H

#include <pthread.h>

#include "base/env.h"
#include "base/names.h"
#include "rpc/server.h"

enum {
    FAKE_TOPICS_MAX = 16,
    FAKE_BROKERS_MAX = 4,
    FAKE_SENDS_MAX = 4096,
    FAKE_QUEUES_MAX = 64,
    FAKE_SCRIPT_MAX = 64,
    FAKE_HELD_MAX = 64
};

/* One broker set's part in one topic's route. */
struct fake_queues {
    char broker[32];
    char address[64]; /* of id 0; "": no master */
    char slave[64];   /* of id 1; "": none */
    int32_t read_queues, write_queues, perm;
    bool store_v6;
};

struct fake_topic {
    char name[128];
    struct fake_queues parts[FAKE_BROKERS_MAX];
    size_t count;
    char order_conf[128]; /* "": none */
};

struct fake_namesrv {
    struct rpc_server *server;
    char address[64];
    pthread_mutex_t mutex;
    struct fake_topic topics[FAKE_TOPICS_MAX];
    size_t topic_count;
    bool mute;      /* answers nothing: requests are held */
    bool forgetful; /* answers every route with TOPIC_NOT_EXIST */
    bool empty;     /* answers every route with success and nothing in it */
    uint32_t asked; /* route requests so far */
    struct rpc_request *held[FAKE_HELD_MAX];
    size_t held_count;
};

void fake_namesrv_start(struct fake_namesrv *ns, const struct env *env, struct link *link,
                        const char *address);
void fake_namesrv_stop(struct fake_namesrv *ns);
/* Adds or replaces a broker set's part. */
void fake_namesrv_put(struct fake_namesrv *ns, const char *topic, const struct fake_queues *part);
void fake_namesrv_drop(struct fake_namesrv *ns, const char *topic);
/* The topic must be there. */
void fake_namesrv_order(struct fake_namesrv *ns, const char *topic, const char *order_conf);

/* A send as it came. */
struct fake_send {
    bool plain;
    int32_t queue_id;
    uint32_t count;
    bool no_wait;
    char topic[128];
    char default_topic[128];
    int32_t default_queues;
    char body[64]; /* beginning of the first one */
    size_t body_len;
    char props[512]; /* of the first, raw, cut and terminated */
    uint32_t sys_flag;
    int32_t code; /* as it was answered */
    int64_t at_ns;
};

struct fake_broker {
    struct rpc_server *server;
    const struct env *env;
    char name[32];
    char address[64];
    pthread_mutex_t mutex;
    /* what it answers */
    int32_t script[FAKE_SCRIPT_MAX]; /* codes of the next sends; then success */
    size_t script_count, script_at;
    bool hold;         /* sends are held until released */
    bool want_born_v6; /* refuses records of the other family */
    bool seen_as_v6;   /* in heartbeat answers */
    bool keep_nothing; /* counts sends only */
    /* what it saw */
    struct fake_send sends[FAKE_SENDS_MAX];
    size_t send_count;
    uint64_t messages;
    int64_t next_offset[FAKE_QUEUES_MAX];
    struct rpc_request *held[FAKE_HELD_MAX];
    size_t held_count;
    uint32_t held_most; /* at a time */
    uint32_t beats;
    size_t last_producers, last_consumers;
    char last_group[64]; /* of a producer */
    uint32_t goodbyes;
    char goodbye_group[64];
    struct rpc_request *parked; /* WaitEvents */
    uint32_t parks;
    uint64_t last_session, last_acknowledged;
    uint8_t viewed[512]; /* the record that ViewMessage gives */
    size_t viewed_size;
    int64_t last_viewed; /* physical offset asked for */
};

void fake_broker_start(struct fake_broker *broker, const struct env *env, struct link *link,
                       const char *name, const char *address);
void fake_broker_stop(struct fake_broker *broker);
void fake_broker_script(struct fake_broker *broker, int32_t code);
/* Answers the oldest held send as the script says; false when there is none. */
bool fake_broker_release(struct fake_broker *broker);
/* Answers the parked WaitEvents; group NULL: no event. */
void fake_broker_event(struct fake_broker *broker, uint64_t session, uint64_t number,
                       const char *group, bool resync);

/* Answers the parked WaitEvents with a reply event; ViewMessage gives a reply of `replies_to`. */
void fake_broker_reply(struct fake_broker *broker, uint64_t number, const char *correlation_id,
                       const char *replies_to);

#endif
