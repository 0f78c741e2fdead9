/*
 * The inside of a producer, for its own files:
 *
 *   producer_options.c  settings
 *   producer.c          life
 *   producer_calls.c    the public send calls: checking, waiting, calling back
 *   producer_route.c    what a route means for sending: queues, brokers, peers; choosing one
 *   producer_pool.c     contexts of sends
 *   producer_send.c     one send from submission to its callback: route, attempts, retries
 *   producer_encode.c   a send's frame
 *   producer_order.c    lanes: one frame in flight per named queue
 *   producer_pack.c     bodies compressed before the first attempt
 *   producer_all.c      many messages as parts that fit
 *   producer_stats.c    counters
 *   producer_trace.c    what the trace is told
 *
 * A send's way:
 *
 *   submit ──named──► lane ──head──┐
 *      └──────────────────────────►├─► need route? ──► attempt ──► answer ──ok──► end: callback,
 * pool │   (waiter)           ▲           │ └──────────────────────┴──retry────┘
 *
 * The only lock, PRODUCER, protects the pool, the tables of topics and brokers, and the lanes. It
 * is taken two or three times per send for a few instructions.
 */
#ifndef CLIENT_PRODUCER_INTERNAL_H
#define CLIENT_PRODUCER_INTERNAL_H

#include <string.h>

#include <tern/producer.h>

#include "client/compress.h"
#include "client/consumer_options.h"
#include "client/instance_internal.h"
#include "client/latency_faults.h"
#include "client/message_internal.h"
#include "client/namespace.h"
#include "client/producer_trace.h"
#include "client/trace.h"

enum {
    BATCH_MESSAGES_MAX = 4096, /* of SendRecordsRequest */
    INLINE_MESSAGES = 64,
    PRODUCER_TOPICS_MAX = 65536,
    PRODUCER_LANES_MAX = 65536,
    PRODUCER_BROKERS_MAX = 4096,
    AVOID_BROKER_MS = 30000,
    AVOID_REFUSING_MS = 1000, /* one that does not accept writes now, e.g. a master that recovers */
    DEFAULT_TOPIC_QUEUES = 4,
    DEFAULT_SEND_TIMEOUT_MS = 3000,
    DEFAULT_RETRIES = 2,
    DEFAULT_IN_FLIGHT = 2048 /* half of what a connection carries, others share it */
};

struct tern_producer_options {
    char namesrv[NAMESRV_TEXT_MAX + 1];
    char group[GROUP_NAME_MAX + 1];
    char instance_name[INSTANCE_NAME_MAX + 1];
    int64_t send_timeout_ms;
    int32_t retries;
    int64_t max_message_bytes;
    uint32_t max_in_flight;
    char ns[NAMESPACE_MAX + 1]; /* "": none */
    enum compress_type compress;
    int32_t compress_level;
    int64_t compress_threshold;
    bool latency_faults;
    bool trace;
    char trace_topic[TOPIC_NAME_MAX + 1];
    const struct env *env;
    struct link *link;
};

enum producer_state {
    PRODUCER_CREATED,
    PRODUCER_RUNNING,
    PRODUCER_START_FAILED,
    PRODUCER_SHUT_DOWN
};

/* A broker set as this producer knows it, by name; kept as long as the producer. */
struct send_broker {
    UT_hash_handle hh;
    char name[BROKER_NAME_MAX + 1];
    _Atomic int64_t avoid_until_ns; /* 0: not avoided */
    _Atomic bool avoid_until_up;    /* its connection failed: no longer than it is down */
    struct broker_latency latency;  /* with the option latency_faults */
};

/* Where a route sends to: immutable, reference counted, replaced when the route changes. */
struct publish_broker {
    struct send_broker *broker; /* borrowed from the producer */
    struct rpc_peer *peer;      /* the master's; NULL: none can be made, or there is no master */
    char address[ADDRESS_BYTES];
    char cluster[BROKER_NAME_MAX + 1];
    size_t cluster_len;
    bool store_v6;
    bool literal_v6; /* the address is an IPv6 one */
};

struct publish {
    _Atomic uint32_t refs;
    uint64_t generation;
    struct route *route;     /* held: the cache keeps refreshing it */
    bool from_default_topic; /* the topic does not exist yet: queues are those it would get */
    struct publish_broker *brokers;
    size_t broker_count;
    const struct tern_queue *queues; /* writable ones, sorted; the route's, or owned_queues */
    struct tern_queue *owned_queues;
    uint32_t *queue_broker; /* per queue, an index into brokers */
    size_t queue_count;
};

struct send_topic {
    UT_hash_handle hh; /* by name */
    char name[TOPIC_NAME_MAX + 1];
    struct publish *publish;     /* NULL: not known */
    _Atomic uint32_t next_queue; /* round robin */
};

struct lane_key {
    struct send_broker *broker;
    struct send_topic *topic;
    int64_t queue_id;
};

struct send;

/* A named queue: a FIFO of sends, the first of which is under way. */
struct lane {
    UT_hash_handle hh; /* by key */
    struct lane_key key;
    struct send *head, *tail;
};

/*
 * A send, from the pool. Owned by whoever works on it: submitter, link callback, or the lane it
 * waits in.
 */
struct send {
    struct send *next; /* in the pool or in a lane */
    struct tern_producer *producer;
    struct send_topic *topic;
    struct lane *lane;       /* NULL: round robin */
    struct tern_queue named; /* with lane */
    size_t count;
    struct tern_message **messages; /* few, or allocated */
    struct tern_message *few[INLINE_MESSAGES];
    struct compressed *packed; /* as many, empty where a body goes as it is; NULL: all do */
    bool holds_messages;       /* references are its own */
    bool counted;              /* against max_in_flight */
    bool oneway;
    bool plain; /* SendRequest, not records */
    bool tried_other_family;
    bool wants_fresh_route; /* what is known seems stale */
    bool had_fresh_route;   /* asked once already */
    bool born_v6;           /* of the attempt under way */
    bool family_known;
    char last_address[ADDRESS_BYTES]; /* of the last attempt; only when traced */
    int32_t tries_left;
    int64_t deadline_ns;
    int64_t begun_ns;        /* the whole send */
    int64_t attempt_ns;      /* the attempt under way */
    struct publish *publish; /* of the attempt under way */
    int32_t queue_id;
    struct publish_broker *target;
    struct send_broker *last_broker; /* the one that failed */
    struct route_waiter waiter;
    tern_send_callback done;
    void *arg;
    enum tern_code code;
    struct tern_error err;
    struct tern_send_result result;
};

/* What tern_producer_stats() shows. */
struct producer_counters {
    _Atomic uint64_t sent_messages, sent_frames, sent_bytes, failed_frames, retried, compressed,
        compressed_from_bytes, compressed_to_bytes;
    _Atomic uint64_t latency[TERN_LATENCY_BUCKETS];
};

struct tern_producer {
    struct tern_producer_options options; /* group with its namespace */
    const struct env *env;
    struct instance *instance;
    struct lock lock; /* PRODUCER; protects all below */
    enum producer_state state;
    struct send *pool;
    uint32_t sends;        /* out of the pool */
    uint32_t in_flight;    /* of these, the ones counted against the limit */
    struct latch *drained; /* set when sends is 0: shutdown waits */
    struct send_topic *topics;
    struct send_broker *brokers;
    struct lane *lanes;
    struct producer_counters counters;
    struct trace *trace; /* NULL: not traced */
};

/* ---- producer_route.c ---- */
/* The topic's row, made when new; never freed before the producer. @locks takes:PRODUCER */
MUST_CHECK enum tern_code send_topic_get(struct tern_producer *producer, const char *topic,
                                         struct send_topic **out, struct tern_error *err);
/* What is known now, brought in line with the route cache; NULL: the route must be asked for. */
struct publish *publish_current(struct tern_producer *producer, struct send_topic *topic);
/* Makes one from a route and, unless it is the default topic's, keeps it. Takes route. */
MUST_CHECK enum tern_code publish_from_route(struct tern_producer *producer,
                                             struct send_topic *topic, struct route *route,
                                             bool default_topic, struct publish **out,
                                             struct tern_error *err);
void publish_unref(struct publish *publish); /* NULL allowed */
/* Round robin, other brokers than the failed and the avoided ones first. publish has queues. */
size_t publish_choose(struct tern_producer *producer, struct send_topic *topic,
                      struct publish *publish, const struct send_broker *last_failed);
/* The broker ended an attempt after that latency; noted with latency_faults only. */
void send_broker_latency(struct tern_producer *producer, struct send_broker *broker,
                         int64_t latency_ms);
/* Why there is no queue to write to. */
enum tern_code publish_no_queue(const struct publish *publish, const char *topic,
                                struct tern_error *err);
MUST_CHECK enum tern_code send_broker_get(struct tern_producer *producer, const char *name,
                                          struct send_broker **out);
/* Notes that a broker failed with `code`: it is avoided until it is up, or for a time. */
void send_broker_failed(struct tern_producer *producer, struct send_broker *broker,
                        enum tern_code code);
void producer_tables_fini(struct tern_producer *producer);
/*
 * Blocks for the topic's publish, by the default topic's when it does not exist and that is
 * allowed. @thread not a callback
 */
MUST_CHECK enum tern_code publish_wait(struct tern_producer *producer, struct send_topic *topic,
                                       bool default_topic, int64_t deadline_ns,
                                       struct publish **out, struct tern_error *err);

/* ---- producer_pool.c ---- */
/*
 * A context from the pool. TERN_STATE, TERN_LIMIT (when counted), TERN_NO_MEMORY. `hold` takes
 * references.
 */
MUST_CHECK enum tern_code send_create(struct tern_producer *producer,
                                      struct tern_message *const *messages, size_t count,
                                      bool counted, bool hold, struct send **out,
                                      struct tern_error *err);
enum tern_code producer_wrong_state(enum producer_state state, const char *call,
                                    struct tern_error *err);
/* Keeps the producer from ending without a send of it: a shutdown waits for the other call.
 * TERN_STATE. */
MUST_CHECK enum tern_code producer_hold(struct tern_producer *producer, const char *call,
                                        struct tern_error *err);
void producer_let_go(struct tern_producer *producer);
/* Back to the pool without a callback; wakes shutdown after the last one. */
void send_release(struct send *send);

/* ---- producer_send.c ---- */
/*
 * Begins; its callback comes exactly once, possibly from within. lane: the named queue's broker, or
 * NULL. Takes the send, also on failure (TERN_LIMIT, TERN_NO_MEMORY), when no callback comes.
 */
MUST_CHECK enum tern_code send_submit(struct send *send, struct send_broker *named_broker,
                                      struct tern_error *err);

/* ---- producer_pack.c ---- */
/* Compresses what the options say; on the sender's thread. Bodies that cannot be go as they are. */
void send_pack(struct send *send);
void send_unpack(struct send *send);
/* How the i-th message of a send travels; borrowed. */
struct message_form send_form(const struct send *send, size_t i);

/* ---- producer_all.c ---- */
/* How many of the count (≥ 1) messages make the next frame; at least one. */
size_t producer_cut_part(struct tern_message *const *messages, size_t count, int64_t most_bytes);

/* ---- producer_stats.c ---- */
/* Counts a send that has ended, or one more attempt. */
void producer_count_end(const struct send *send);
void producer_count_retry(struct tern_producer *producer);
void producer_count_packed(struct tern_producer *producer, size_t from, size_t to);

/* ---- producer_encode.c ---- */
/* Makes the call of an attempt and starts it; on failure nothing was started. */
MUST_CHECK enum tern_code send_start_call(struct send *send, int64_t now_ns, rpc_done_fn done);
/* Fills send->result from the broker's answer; TERN_PROTOCOL when it is not one. */
MUST_CHECK enum tern_code send_read_answer(struct send *send, const struct rpc_call *call);

/* ---- producer_order.c ---- */
/*
 * Joins the queue's lane. *first: it is the head now and may go; else it goes when those before it
 * have ended. @locks takes:PRODUCER
 */
MUST_CHECK enum tern_code lane_enter(struct send *send, struct send_broker *broker, bool *first);
/*
 * The head has ended: takes it out and returns the next one, which may go now, or NULL. @locks
 * holds:PRODUCER
 */
struct send *lane_leave(struct lane *lane, struct send *head);

/* ---- producer_calls.c ---- */
/* Whether these can go as one frame, and what is wrong. Changes nothing. */
MUST_CHECK enum tern_code producer_check_message(const struct tern_producer *producer,
                                                 const struct tern_message *message,
                                                 struct tern_error *err);
/* true while a callback of an asynchronous send runs on this thread. */
bool producer_in_callback(void);
void producer_call_back(const struct send *send);
/* Around every other callback of the application's. */
void producer_callback_begin(void);
void producer_callback_end(void);
/* TERN_STATE within a callback, which must not wait. */
MUST_CHECK enum tern_code producer_may_wait(const char *call, struct tern_error *err);

#endif
