/*
 * Consumers (RocketMQ's DefaultMQPushConsumer and DefaultMQPullConsumer).
 *
 * A push consumer is a member of a group: the topic's queues are shared among the members, messages
 * are pulled for you and handed to your listener by a pool of threads, progress is kept at the
 * broker. The commit point of a queue is always its lowest unfinished offset: after a crash
 * messages come again, none is skipped. A pull consumer asks for what it wants and keeps its own
 * offsets.
 */
#ifndef TERN_CONSUMER_H
#define TERN_CONSUMER_H

#include <tern/message.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each message to one member of the group, or to every member. */
enum tern_message_model { TERN_CLUSTERING, TERN_BROADCASTING };

enum tern_consume_from { TERN_FROM_LAST, TERN_FROM_FIRST, TERN_FROM_TIMESTAMP };

struct tern_consumer_options;

/*
 * NULL without memory. Setters: TERN_INVALID outside the range, the old value stays, and
 * tern_consumer_options_error() says which setting, what it was given and what is allowed; texts
 * are copied.
 */
TERN_API struct tern_consumer_options *tern_consumer_options_create(void);
TERN_API void tern_consumer_options_destroy(struct tern_consumer_options *options);
/* Why the last refused setter refused, e.g. "pullBatchSize is 2000, allowed are 1 to 1024"; "" when
 * none did. Borrowed until the next setter. */
TERN_API const char *tern_consumer_options_error(const struct tern_consumer_options *options);
/* As for producers: "host:port;host:port", default NAMESRV_ADDR. */
TERN_API enum tern_code tern_consumer_options_namesrv(struct tern_consumer_options *options,
                                                      const char *addresses);
/* Required; ^[%|a-zA-Z0-9_-]+$, at most 255, not DEFAULT_CONSUMER. */
TERN_API enum tern_code tern_consumer_options_group(struct tern_consumer_options *options,
                                                    const char *group);
/* Members in one process need distinct names. Default: <pid>#<start time>; when broadcasting
 * "DEFAULT", so that a restarted process finds its progress. */
TERN_API enum tern_code tern_consumer_options_instance(struct tern_consumer_options *options,
                                                       const char *name);
/*
 * Where a group without progress begins: TERN_FROM_LAST (default), TERN_FROM_FIRST, or at a store
 * time in ms since 1970. A group with progress goes on there.
 */
TERN_API enum tern_code tern_consumer_options_from(struct tern_consumer_options *options,
                                                   enum tern_consume_from from,
                                                   int64_t timestamp_ms);
/*
 * TERN_CLUSTERING (default) or TERN_BROADCASTING: then every member gets all messages of all
 * queues, failing ones are logged, counted and passed, progress is kept in a local file, and what
 * is sent after start returned is seen.
 */
TERN_API enum tern_code tern_consumer_options_model(struct tern_consumer_options *options,
                                                    enum tern_message_model model);
/*
 * Where a broadcasting consumer keeps its progress: a directory, made when absent, 1…767 bytes.
 * Default $HOME/.ternmq_offsets. Below it each instance name and group has a directory of its own.
 */
TERN_API enum tern_code tern_consumer_options_offset_dir(struct tern_consumer_options *options,
                                                         const char *dir);
/* Messages asked for in one pull: 1…1024, default 32. */
TERN_API enum tern_code tern_consumer_options_pull_batch(struct tern_consumer_options *options,
                                                         int messages);
/* Messages given to the listener in one call: 1…1024, default 1. */
TERN_API enum tern_code tern_consumer_options_consume_batch(struct tern_consumer_options *options,
                                                            int messages);
/* Listener threads at most: 1…1000, default 20; started as work comes (consumeThreadMax). */
TERN_API enum tern_code tern_consumer_options_threads(struct tern_consumer_options *options,
                                                      int threads);
/* Listener threads that are there from the start: 0…1000, default 0. More than
 * tern_consumer_options_threads() is refused by create (consumeThreadMin). */
TERN_API enum tern_code tern_consumer_options_threads_min(struct tern_consumer_options *options,
                                                          int threads);
/* Messages cached per queue before pulling pauses: 1…65,535, default 1000. */
TERN_API enum tern_code tern_consumer_options_pull_threshold(struct tern_consumer_options *options,
                                                             int messages);
/* Bytes cached per queue: 1 MiB…1 GiB, default 100 MiB. */
TERN_API enum tern_code
tern_consumer_options_pull_threshold_bytes(struct tern_consumer_options *options,
                                           int64_t size_bytes);
/*
 * The same for all of this consumer's queues of a topic together: 1…6,553,500 messages, −1 off (the
 * default). Divided by the number of queues it owns, at least 1, it takes the place of the queue's
 * threshold after each rebalance.
 */
TERN_API enum tern_code
tern_consumer_options_pull_threshold_for_topic(struct tern_consumer_options *options, int messages);
/* In bytes: 1 MiB…100 GiB, −1 off; at least 1 MiB for each queue. */
TERN_API enum tern_code
tern_consumer_options_pull_threshold_bytes_for_topic(struct tern_consumer_options *options,
                                                     int64_t size_bytes);
/* Offsets between the lowest unfinished and the newest message: 1…65,535, default 2000. */
TERN_API enum tern_code tern_consumer_options_max_span(struct tern_consumer_options *options,
                                                       int offsets);
/* Pause between pulls: 0…65,535 ms, default 0. */
TERN_API enum tern_code
tern_consumer_options_pull_interval_ms(struct tern_consumer_options *options, int64_t ms);
/* Progress goes to the broker that often: 100…600,000 ms, default 5000. */
TERN_API enum tern_code
tern_consumer_options_commit_interval_ms(struct tern_consumer_options *options, int64_t ms);
/*
 * Retries of a failing message before the dead letter topic: 0…10,000; 0: it goes
 * there at once; −1 (default): the group's (16), and with an orderly listener for ever. The
 * listener sees a message once and that often again, at most.
 */
TERN_API enum tern_code
tern_consumer_options_max_reconsume_times(struct tern_consumer_options *options, int times);
/*
 * Messages whose listener runs for longer are sent back (level 3), and what it says then is
 * ignored: 1000…86,400,000 ms, default 15 minutes. A thread in such a listener is lost to the
 * consumer until it returns.
 */
TERN_API enum tern_code
tern_consumer_options_consume_timeout_ms(struct tern_consumer_options *options, int64_t ms);
/*
 * Orderly listeners: how long a queue pauses after TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT:
 * 10…30,000 ms, default 1000 (RocketMQ's suspendCurrentQueueTimeMillis).
 */
TERN_API enum tern_code tern_consumer_options_suspend_ms(struct tern_consumer_options *options,
                                                         int64_t ms);
/*
 * A compressed body opens to at most so many bytes; 1 KiB…64 MiB, default 64 MiB. A larger one
 * counts as damaged: a push consumer logs the message and sends it back, so that it ends among the
 * dead letters and holds nobody up; of a pull consumer tern_message_open() tells.
 */
TERN_API enum tern_code tern_consumer_options_max_body_bytes(struct tern_consumer_options *options,
                                                             int64_t size_bytes);
/*
 * Topics and the group are known to the cluster as NAMESPACE%name, and to this program without it;
 * as for producers. ^[a-zA-Z0-9_-]+$, at most 64; "": none (default). An offset store and a
 * resolver of rooms are given the cluster's name of a topic, so that one may serve several
 * namespaces.
 */
TERN_API enum tern_code tern_consumer_options_namespace(struct tern_consumer_options *options,
                                                        const char *name);

/*
 * Push consumers: records before and after every call of the listener go to a trace topic; as for
 * producers.
 */
TERN_API enum tern_code tern_consumer_options_trace(struct tern_consumer_options *options,
                                                    bool enabled, const char *topic);

/* ---- sharing queues ---- */

enum { TERN_ROOM_BYTES = 64 }; /* a room's name, with its NUL */

/* Which room a broker or a member is in (RocketMQ's MachineRoomResolver). */
struct tern_room_resolver {
    /* Both write a name to room[]; false: not known. Must give the same answers in all members.
     * @thread the consumer's control task: must not wait, must not call the consumer */
    bool (*broker_room)(void *arg, const struct tern_queue *queue, char room[TERN_ROOM_BYTES]);
    bool (*client_room)(void *arg, const char *client_id, char room[TERN_ROOM_BYTES]);
    void *arg;
};

/*
 * How the queues of a topic are shared among the members of the group; all members must use the
 * same. "AVG" (default), "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "CONSISTENT_HASH", or
 * "MACHINE_ROOM_NEARBY-" and one of the others. TERN_INVALID: no such strategy. What a strategy
 * needs (below) is looked for by create.
 */
TERN_API enum tern_code tern_consumer_options_allocate(struct tern_consumer_options *options,
                                                       const char *strategy);
/* CONFIG: this member's queues, of all its topics: 1…65,536, copied. */
TERN_API enum tern_code tern_consumer_options_allocate_queues(struct tern_consumer_options *options,
                                                              const struct tern_queue *queues,
                                                              size_t count);
/* MACHINE_ROOM: "room1;room2", the rooms whose brokers (named "room@name") are consumed from. */
TERN_API enum tern_code tern_consumer_options_allocate_rooms(struct tern_consumer_options *options,
                                                             const char *rooms);
/* MACHINE_ROOM_NEARBY: both functions are needed; arg must outlive the consumer. */
TERN_API enum tern_code
tern_consumer_options_allocate_resolver(struct tern_consumer_options *options,
                                        const struct tern_room_resolver *resolver);

/* ---- progress of your own ---- */

/*
 * A place for a push consumer's progress instead of the broker or the local file (RocketMQ's
 * OffsetStore), for both models. Functions are called one at a time and may block: load by the
 * caller of start, the last update and persist by the caller of shutdown, everything else by a
 * thread of the consumer that does nothing else. They must not call the consumer. err is theirs to
 * fill; its text is logged.
 */
struct tern_offset_store {
    void *arg; /* must outlive the consumer */
    /* Before the first query; may be NULL. An error refuses the start. */
    enum tern_code (*load)(void *arg, struct tern_error *err);
    /* Progress of a queue that was taken. TERN_OK: *offset, 0 or more, is the next to be consumed;
     * TERN_QUERY_NOT_FOUND: none, the consumer's policy decides; else unknown: asked again. */
    enum tern_code (*query)(void *arg, const struct tern_queue *queue, int64_t *offset,
                            struct tern_error *err);
    /* The lowest offset not finished is now this one. Falls only when the queue begins elsewhere
     * (its stored offset was outside the queue). An error: told again at the next interval, what is
     * told of other queues counts all the same. */
    enum tern_code (*update)(void *arg, const struct tern_queue *queue, int64_t offset,
                             struct tern_error *err);
    /* Makes what was told since durable. An error: all of it is told again. */
    enum tern_code (*persist)(void *arg, struct tern_error *err);
    /* The queue is not ours any more, its progress was persisted; what is kept in memory may go.
     * May be NULL. */
    void (*remove)(void *arg, const struct tern_queue *queue);
};
/* TERN_INVALID: query, update or persist is missing. The struct is copied. */
TERN_API enum tern_code tern_consumer_options_offset_store(struct tern_consumer_options *options,
                                                           const struct tern_offset_store *store);

/* ---- push ---- */

struct tern_push_consumer;

enum tern_consume_result { TERN_CONSUME_SUCCESS, TERN_RECONSUME_LATER };

/*
 * Your code. messages are of one queue, in order, borrowed for the call. Returning
 * TERN_RECONSUME_LATER sends all of them back for a later try: the broker delivers each again after
 * 10 s, 30 s, 1 min … 2 h, to any member of the group, with tern_message_reconsume_times() one
 * higher, and after 16 times (tern_consumer_options_max_reconsume_times()) keeps it in %DLQ%group.
 * @thread one of the consumer's pool; may block
 */
typedef enum tern_consume_result (*tern_message_listener)(
    void *arg, const struct tern_message *const *messages, size_t count);

/* What a listener is told beside the messages, and may decide (RocketMQ's
 * ConsumeConcurrentlyContext). Later versions add members at the end. */
struct tern_consume_context {
    struct tern_queue queue; /* where the messages were read; of a retried one: the retry topic's */
    /* When failed messages come again: 0 (as preset) as their count says, n the broker's delay
     * level n (the last at most), less than 0 never: to the dead letters at once. */
    int delay_level_when_next_consume;
    /* With TERN_CONSUME_SUCCESS: messages up to this index are done with, those behind it failed;
     * −1: none is. Preset to all of them. */
    int ack_index;
};

/* As tern_message_listener; *context is borrowed for the call. */
typedef enum tern_consume_result (*tern_context_listener)(
    void *arg, const struct tern_message *const *messages, size_t count,
    struct tern_consume_context *context);

enum tern_orderly_result { TERN_ORDERLY_SUCCESS, TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT };

/*
 * Your code, for messages in order (RocketMQ's MessageListenerOrderly): the next messages of one
 * queue, borrowed for the call; no other call for this queue runs, in this or any other member of
 * the group, before it has returned. Anything but TERN_ORDERLY_SUCCESS holds the queue for the
 * suspend time; then the same messages come again, counted (tern_message_reconsume_times()), before
 * any later one. docs/ordering.md. @thread one of the consumer's pool; may block
 */
typedef enum tern_orderly_result (*tern_orderly_listener)(
    void *arg, const struct tern_message *const *messages, size_t count);

/* TERN_INVALID: no group, no nameserver. *out is the caller's. */
TERN_API enum tern_code tern_push_consumer_create(const struct tern_consumer_options *options,
                                                  struct tern_push_consumer **out,
                                                  struct tern_error *err);
/*
 * Before start or while running. expression: "*", "A || B". Replaces an earlier one of the topic.
 * TERN_SUBSCRIPTION_PARSE_FAILED names position and cause.
 */
TERN_API enum tern_code tern_push_consumer_subscribe(struct tern_push_consumer *consumer,
                                                     const char *topic, const char *expression,
                                                     struct tern_error *err);
/*
 * The same with an SQL92 condition over the messages' properties, evaluated by the broker, e.g.
 * "region IN ('eu', 'us') AND amount > 100" (docs/filtering.md; RocketMQ: MessageSelector.bySql).
 * What does not parse fails here with position and cause; whether the brokers evaluate conditions
 * shows at start.
 */
TERN_API enum tern_code tern_push_consumer_subscribe_sql(struct tern_push_consumer *consumer,
                                                         const char *topic, const char *condition,
                                                         struct tern_error *err);
TERN_API enum tern_code tern_push_consumer_unsubscribe(struct tern_push_consumer *consumer,
                                                       const char *topic, struct tern_error *err);
/* Before start (TERN_STATE); TERN_INVALID without a listener. The last one set counts. */
TERN_API enum tern_code tern_push_consumer_listener(struct tern_push_consumer *consumer,
                                                    tern_message_listener listener, void *arg);
/* The same, instead of it. */
TERN_API enum tern_code tern_push_consumer_context_listener(struct tern_push_consumer *consumer,
                                                            tern_context_listener listener,
                                                            void *arg);
/*
 * The same for messages in order: queues are locked at their brokers for this member, each queue is
 * processed by one call at a time, in the order of its offsets. Every member of the group must be
 * orderly.
 */
TERN_API enum tern_code tern_push_consumer_listener_orderly(struct tern_push_consumer *consumer,
                                                            tern_orderly_listener listener,
                                                            void *arg);
/*
 * Checks, registers with the brokers, begins to consume. TERN_EXISTS: this group has been created
 * before in this client instance; TERN_STATE: no listener, no subscription, or started already;
 * TERN_SUBSCRIPTION_PARSE_FAILED or TERN_NOT_SUPPORTED: a broker does not take a condition, in its
 * words.
 * Broadcasting: TERN_IN_USE when another process has the progress of this group and instance name,
 * TERN_CORRUPT when its file cannot be read, else what the disk or the store says. After a failure
 * the consumer is in the state "start failed" and can only be destroyed. Blocks up to a few
 * seconds.
 */
TERN_API enum tern_code tern_push_consumer_start(struct tern_push_consumer *consumer,
                                                 struct tern_error *err);
/*
 * Pauses: no message is handed out and no pull begun until resumed; listeners that run and a pull
 * under way end as usual. The queues stay the member's, however long it takes. TERN_STATE: not
 * running.
 */
TERN_API enum tern_code tern_push_consumer_suspend(struct tern_push_consumer *consumer);
TERN_API enum tern_code tern_push_consumer_resume(struct tern_push_consumer *consumer);
/*
 * Stops pulling, works off what was pulled and waits for listeners, for at most timeout_ms, commits
 * progress, gives back the locks of an orderly consumer (told again until timeout_ms are over when
 * no broker of a set takes them, docs/ordering.md), leaves the group. What was not finished comes
 * again, to another member or after a restart. TERN_TIMEOUT: a listener still runs; everything else
 * is done. Must not be called from a listener (TERN_STATE).
 * When the last progress could not be written, what that failed with is returned, unless a listener
 * still runs; the cause is logged: consumer_commit_failed and consumer_commit_nowhere of a broker,
 * which is given 3 s to answer beyond timeout_ms, else TERN_TIMEOUT; consumer_store_failed, which
 * names the file, of a local file (broadcasting) or a store of your own. The consumer is shut down
 * all the same, and what was consumed since the last write that went well comes again.
 * TERN_NO_MEMORY: it was not written for want of memory.
 */
TERN_API enum tern_code tern_push_consumer_shutdown(struct tern_push_consumer *consumer,
                                                    int64_t timeout_ms);
/*
 * Shuts down when that was not done, then waits, for as long as it takes, until the last listener
 * has returned: who may have one that hangs ends the process instead. NULL allowed. Must not be
 * called from a listener: that is a bug in the program and ends it with a text on stderr.
 */
TERN_API void tern_push_consumer_destroy(struct tern_push_consumer *consumer);

struct tern_consumer_stats {
    uint64_t pulled, consumed, failed, sent_back, duplicates_dropped;
    uint32_t queues; /* owned now */
    uint32_t cached; /* messages waiting or running */
    uint64_t flow_controlled;
    uint64_t dropped; /* broadcasting: failed, and passed */
    /* Failed messages of which nobody told whether they were taken back: a copy may be stored all
     * the same, and the message come once more than it failed. */
    uint64_t sent_back_unknown;
};
TERN_API void tern_push_consumer_stats(struct tern_push_consumer *consumer,
                                       struct tern_consumer_stats *stats);

/* ---- pull ---- */

struct tern_pull_consumer;

enum tern_pull_status {
    TERN_PULL_FOUND,
    TERN_PULL_NO_NEW_MSG,     /* nothing beyond the offset within the wait */
    TERN_PULL_NO_MATCHED_MSG, /* scanned, nothing matched: go on at next_offset */
    TERN_PULL_OFFSET_ILLEGAL  /* outside the queue: next_offset is where to go on */
};

struct tern_pull_result {
    enum tern_pull_status status;
    int64_t next_offset, min_offset, max_offset;
    struct tern_message **messages; /* count of them; free with tern_pull_result_clear() */
    size_t count;
};

TERN_API enum tern_code tern_pull_consumer_create(const struct tern_consumer_options *options,
                                                  struct tern_pull_consumer **out,
                                                  struct tern_error *err);
TERN_API enum tern_code tern_pull_consumer_start(struct tern_pull_consumer *consumer,
                                                 struct tern_error *err);
TERN_API void tern_pull_consumer_shutdown(struct tern_pull_consumer *consumer);
TERN_API void tern_pull_consumer_destroy(struct tern_pull_consumer *consumer);

/* The topic's readable queues, sorted. Fills up to cap, *count says how many there are. */
TERN_API enum tern_code tern_pull_consumer_queues(struct tern_pull_consumer *consumer,
                                                  const char *topic, struct tern_queue *queues,
                                                  size_t cap, size_t *count,
                                                  struct tern_error *err);
/*
 * Pulls up to max_messages (1…1024) from an offset, waiting at the broker up to wait_ms (0: not at
 * all, at most 60,000) for something to come. expression as in subscribe. While the queue's master
 * is away a slave serves the same offsets; when that is behind, the result is NO_NEW_MSG at the
 * offset asked for, never a correction.
 */
TERN_API enum tern_code
tern_pull_consumer_pull(struct tern_pull_consumer *consumer, const struct tern_queue *queue,
                        const char *expression, int64_t offset, int max_messages, int64_t wait_ms,
                        struct tern_pull_result *result, struct tern_error *err);
/* The same with an SQL92 condition, as in tern_push_consumer_subscribe_sql(). */
TERN_API enum tern_code tern_pull_consumer_pull_sql(struct tern_pull_consumer *consumer,
                                                    const struct tern_queue *queue,
                                                    const char *condition, int64_t offset,
                                                    int max_messages, int64_t wait_ms,
                                                    struct tern_pull_result *result,
                                                    struct tern_error *err);
TERN_API void tern_pull_result_clear(struct tern_pull_result *result);

/* code TERN_OK: result is the callee's to clear; else NULL. @thread the client's transport: must
 * not wait */
typedef void (*tern_pull_callback)(void *arg, enum tern_code code, struct tern_pull_result *result,
                                   const struct tern_error *err);
TERN_API enum tern_code tern_pull_consumer_pull_async(struct tern_pull_consumer *consumer,
                                                      const struct tern_queue *queue,
                                                      const char *expression, int64_t offset,
                                                      int max_messages, int64_t wait_ms,
                                                      tern_pull_callback done, void *arg,
                                                      struct tern_error *err);

/* The same with an SQL92 condition. */
TERN_API enum tern_code tern_pull_consumer_pull_sql_async(struct tern_pull_consumer *consumer,
                                                          const struct tern_queue *queue,
                                                          const char *condition, int64_t offset,
                                                          int max_messages, int64_t wait_ms,
                                                          tern_pull_callback done, void *arg,
                                                          struct tern_error *err);

/* First retained offset and the next one to be given out. */
TERN_API enum tern_code tern_pull_consumer_range(struct tern_pull_consumer *consumer,
                                                 const struct tern_queue *queue,
                                                 int64_t *min_offset, int64_t *max_offset,
                                                 struct tern_error *err);
/* Offset whose message was stored nearest to a time (ms since 1970). */
TERN_API enum tern_code tern_pull_consumer_search(struct tern_pull_consumer *consumer,
                                                  const struct tern_queue *queue, int64_t store_ms,
                                                  int64_t *offset, struct tern_error *err);
/* The group's progress: TERN_QUERY_NOT_FOUND when it has none; other errors mean unknown, never
 * "none": TERN_PROGRESS_UNKNOWN while the master is away or recovers and no slave can tell, to be
 * asked again. */
TERN_API enum tern_code tern_pull_consumer_committed(struct tern_pull_consumer *consumer,
                                                     const struct tern_queue *queue,
                                                     int64_t *offset, struct tern_error *err);
/* Stores progress at the broker; a lower offset than the stored one is ignored there. */
TERN_API enum tern_code tern_pull_consumer_commit(struct tern_pull_consumer *consumer,
                                                  const struct tern_queue *queue, int64_t offset,
                                                  struct tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
