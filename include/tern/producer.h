/*
 * A producer sends messages to a topic's queues (RocketMQ's DefaultMQProducer).
 *
 * Life: options → create → start → send … → shutdown → destroy. A call in the wrong state gives
 * TERN_STATE and names the state. All sends may be called from any thread at the same time.
 * Callbacks come on the client's transport threads: they must not wait, and must not call the
 * waiting functions of this library (start, shutdown, the synchronous sends); asynchronous sends
 * are allowed in them.
 *
 * Order: sends that name their queue (…_to, …_select) reach it in the order of the calls, one frame
 * in flight per queue, retries included. Other sends choose a queue round robin and promise no
 * order.
 *
 * Retries: a send without a named queue is tried again (default twice) at another queue, another
 * broker first, when it failed with a retriable code or TOPIC_NOT_EXIST, SYSTEM_ERROR,
 * NO_PERMISSION of a stale route, all within one timeout. The same message may then be stored
 * twice: it keeps its message id. A send to a named queue is tried once. docs/producing.md has the
 * table of codes.
 */
#ifndef TERN_PRODUCER_H
#define TERN_PRODUCER_H

#include <tern/message.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_producer_options;
struct tern_producer;

/* NULL without memory. Free with tern_producer_options_destroy(); create copies what it needs. */
TERN_API struct tern_producer_options *tern_producer_options_create(void);
TERN_API void tern_producer_options_destroy(struct tern_producer_options *options);
/* Setters give TERN_INVALID outside the range and leave the old value. Texts are copied. */
/* "host:port" list separated by ';'. Default: environment NAMESRV_ADDR. */
TERN_API enum tern_code tern_producer_options_namesrv(struct tern_producer_options *options,
                                                      const char *addresses);
/* Producer group, ^[%|a-zA-Z0-9_-]+$, at most 255. Default "DEFAULT_PRODUCER". */
TERN_API enum tern_code tern_producer_options_group(struct tern_producer_options *options,
                                                    const char *group);
/* Distinguishes clients in one process. Default: <pid>#<start time>. */
TERN_API enum tern_code tern_producer_options_instance(struct tern_producer_options *options,
                                                       const char *name);
/* Of a whole send with its retries; 1…600,000 ms, default 3000. */
TERN_API enum tern_code tern_producer_options_send_timeout_ms(struct tern_producer_options *options,
                                                              int64_t timeout_ms);
/* 0…15, default 2. */
TERN_API enum tern_code tern_producer_options_retries(struct tern_producer_options *options,
                                                      int retries);
/* Largest body accepted here; 1…64 MiB, default 4 MiB, the broker's default. */
TERN_API enum tern_code
tern_producer_options_max_message_bytes(struct tern_producer_options *options, int64_t size_bytes);
/*
 * Asynchronous sends under way (frames) before TERN_LIMIT; 1…65,535, default 2048. All requests of
 * this process to one broker share a connection that carries 4088: a send that finds no room there
 * is refused with TERN_LIMIT as well. Only one that had to wait, for its route or for its turn in a
 * named queue, hears of it by its callback.
 */
TERN_API enum tern_code tern_producer_options_max_in_flight(struct tern_producer_options *options,
                                                            int frames);

/* RocketMQ's CompressionType. */
enum tern_compression {
    TERN_COMPRESS_NONE,
    TERN_COMPRESS_ZLIB,
    TERN_COMPRESS_LZ4,
    TERN_COMPRESS_ZSTD
};
/*
 * How bodies are compressed, each message on its own, also in batches; only when that makes them
 * smaller. level 0 (fast) … 9 (small); LZ4 has one. Default TERN_COMPRESS_ZLIB, 5. Consumers open
 * bodies without being told.
 */
TERN_API enum tern_code tern_producer_options_compression(struct tern_producer_options *options,
                                                          enum tern_compression type, int level);
/* Bodies of at least so many bytes; 1…64 MiB, default 4096 (compressMsgBodyOverHowmuch). */
TERN_API enum tern_code
tern_producer_options_compress_threshold(struct tern_producer_options *options, int64_t size_bytes);
/*
 * Passes over brokers that were slow or failed, for longer the slower they were (RocketMQ's
 * sendLatencyFaultEnable): 550 ms → 30 s, 1 s → 60 s, 2 s → 120 s, 3 s → 180 s, 15 s or a failure →
 * 600 s. When none is left one of the less bad half serves. Default false: a broker is avoided only
 * after failures, for a second to half a minute, and not longer than its connection is away.
 */
TERN_API enum tern_code tern_producer_options_latency_faults(struct tern_producer_options *options,
                                                             bool enabled);
/*
 * Topics and the group are known to the cluster as NAMESPACE%name, and to this program without it.
 * ^[a-zA-Z0-9_-]+$, at most 64; "": none (default). System topics have none.
 */
TERN_API enum tern_code tern_producer_options_namespace(struct tern_producer_options *options,
                                                        const char *name);

/*
 * Records of every send go to a trace topic, for mqadmin queryMsgTraceById: asynchronously and
 * bounded, never at the price of a send; what finds no room is counted (trace_dropped). topic NULL:
 * RMQ_SYS_TRACE_TOPIC, which brokers with traceTopicEnable have. Default: none.
 */
TERN_API enum tern_code tern_producer_options_trace(struct tern_producer_options *options,
                                                    bool enabled, const char *topic);

/* What happened to one message or batch. */
struct tern_send_result {
    /* TERN_OK; or stored all the same: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE
     */
    enum tern_code status;
    struct tern_queue queue;
    int64_t queue_offset; /* of the first message of a batch */
    char message_id[57];  /* client's unique id of the first message */
    char offset_id[57];   /* the broker's offset message id */
};

/*
 * TERN_INVALID without any nameserver (option or NAMESRV_ADDR). Does not connect. *out is the
 * caller's.
 */
TERN_API enum tern_code tern_producer_create(const struct tern_producer_options *options,
                                             struct tern_producer **out, struct tern_error *err);
/* Makes the client instance run; succeeds also when no nameserver is reachable now. Blocks briefly.
 */
TERN_API enum tern_code tern_producer_start(struct tern_producer *producer, struct tern_error *err);
/* Waits (at most the send timeout) for sends under way, then says goodbye to the brokers. */
TERN_API void tern_producer_shutdown(struct tern_producer *producer);
TERN_API void tern_producer_destroy(struct tern_producer *producer); /* shuts down; NULL allowed */

/*
 * Sends and waits for the broker's answer, at most the send timeout. TERN_OK: result->status tells
 * whether flush and replica were confirmed too (a status other than TERN_OK is stored but not
 * confirmed). Errors: TOPIC_NOT_EXIST, MESSAGE_ILLEGAL, TOO_LARGE, NO_PERMISSION,
 * SERVICE_NOT_AVAILABLE (disk full, read-only, recovering), UNREACHABLE (not sent; also when none
 * of the topic's broker sets has a master now: slaves take no messages; try again), TIMEOUT and
 * CONNECTION_LOST (stored or not: unknown), STATE. The message stays the caller's; it gets its
 * message id.
 */
TERN_API enum tern_code tern_producer_send(struct tern_producer *producer,
                                           struct tern_message *message,
                                           struct tern_send_result *result, struct tern_error *err);
/* To a given queue, in order; tried once. */
TERN_API enum tern_code tern_producer_send_to(struct tern_producer *producer,
                                              struct tern_message *message,
                                              const struct tern_queue *queue,
                                              struct tern_send_result *result,
                                              struct tern_error *err);
/* Chooses among the topic's `count` (≥ 1) writable queues, sorted by broker and id; returns an
 * index. */
typedef size_t (*tern_queue_selector)(void *arg, const struct tern_message *message,
                                      const struct tern_queue *queues, size_t count);
/* By a hash of a text key, RocketMQ's SelectMessageQueueByHash: arg is the terminated key. */
TERN_API size_t tern_select_by_hash(void *key, const struct tern_message *message,
                                    const struct tern_queue *queues, size_t count);
TERN_API enum tern_code tern_producer_send_select(struct tern_producer *producer,
                                                  struct tern_message *message,
                                                  tern_queue_selector selector, void *arg,
                                                  struct tern_send_result *result,
                                                  struct tern_error *err);
/*
 * Several messages of one topic as one unit to one queue: all stored or none. No delay levels.
 * TERN_INVALID when topics differ; TERN_TOO_LARGE above the limit of one message
 * (tern_producer_send_all() splits). queue may be NULL.
 */
TERN_API enum tern_code tern_producer_send_batch(struct tern_producer *producer,
                                                 struct tern_message *const *messages, size_t count,
                                                 const struct tern_queue *queue,
                                                 struct tern_send_result *result,
                                                 struct tern_error *err);

/*
 * Any number of messages, of any topics, in their order, in as many frames as it takes: a frame
 * ends at the limit of one message, at 4096 messages, before another topic, and around messages
 * that travel alone (delayed). Each frame is stored whole or not at all, like a batch. It stops at
 * the first frame that fails: *stored (may be NULL) says how many messages are stored, and the
 * message at that place is where to go on. results (may be NULL) has room for count: status, queue,
 * offset and message id of each stored message, offset_id of the first of each frame; status
 * TERN_CANCELED of those not tried. queue as in a batch. Everything is checked before the first
 * frame goes.
 */
TERN_API enum tern_code tern_producer_send_all(struct tern_producer *producer,
                                               struct tern_message *const *messages, size_t count,
                                               const struct tern_queue *queue,
                                               struct tern_send_result *results, size_t *stored,
                                               struct tern_error *err);

/*
 * Called exactly once per accepted asynchronous send. code TERN_OK: result as above; else err says
 * why.
 * @thread the client's transport
 */
typedef void (*tern_send_callback)(void *arg, enum tern_code code,
                                   const struct tern_send_result *result,
                                   const struct tern_error *err);
/*
 * Asynchronous: returns at once. TERN_OK: accepted, `done` will come. TERN_LIMIT: too many in
 * flight, nothing happens, try again after a callback. The library keeps its own references to the
 * messages. queue NULL: round robin with retries. count 1 is a single send.
 */
TERN_API enum tern_code tern_producer_send_async(struct tern_producer *producer,
                                                 struct tern_message *const *messages, size_t count,
                                                 const struct tern_queue *queue,
                                                 tern_send_callback done, void *arg,
                                                 struct tern_error *err);
/*
 * Takes a delayed message back that was sent with this result: when it returns TERN_OK it is never
 * delivered. Asks the master that stored it (result->offset_id) and waits at most the send timeout.
 * QUERY_NOT_FOUND: it does not wait any more: delivered, just being delivered, or cancelled.
 * FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE: cancelled, but as for a send not
 * known to be safe. TIMEOUT, CONNECTION_LOST: not known, ask again. INVALID: a result without
 * offset_id. STATE: the producer does not run, or in a callback. RocketMQ 5: recallMessage.
 */
TERN_API enum tern_code tern_producer_cancel(struct tern_producer *producer,
                                             const struct tern_send_result *result,
                                             struct tern_error *err);
/* No answer is waited for; TERN_OK only means it was handed to the transport. */
TERN_API enum tern_code tern_producer_send_oneway(struct tern_producer *producer,
                                                  struct tern_message *message,
                                                  struct tern_error *err);

/* Upper bounds in ms of the latency buckets; the last one has none. */
#define TERN_LATENCY_BOUNDS_MS                                                                     \
    {                                                                                              \
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 3000                                             \
    }
enum { TERN_LATENCY_BUCKETS = 12 };
/* Since the producer was created. */
struct tern_producer_stats {
    uint64_t sent;                           /* messages stored */
    uint64_t frames;                         /* sends that stored them; a batch is one */
    uint64_t failed;                         /* sends that failed, all tries included */
    uint64_t retried;                        /* tries after the first ones */
    uint64_t bytes;                          /* of bodies stored, as they travelled */
    uint64_t compressed;                     /* messages */
    uint64_t compressed_from, compressed_to; /* their bytes before and after */
    uint64_t replies_late;  /* of this client instance: nobody waited for them any more */
    uint64_t trace_dropped; /* trace records lost */
    uint32_t in_flight;     /* sends under way */
    uint64_t latency[TERN_LATENCY_BUCKETS]; /* sends by how long they took, retries included */
};
TERN_API void tern_producer_stats(struct tern_producer *producer,
                                  struct tern_producer_stats *stats);

/*
 * The topic's writable queues now, sorted. Fills up to cap and sets *count to how many there are.
 * TERN_TOPIC_NOT_EXIST, TERN_UNREACHABLE. Blocks up to the send timeout when the route is not known
 * yet.
 */
TERN_API enum tern_code tern_producer_queues(struct tern_producer *producer, const char *topic,
                                             struct tern_queue *queues, size_t cap, size_t *count,
                                             struct tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
