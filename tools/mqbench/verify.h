/*
 * The checker: numbered, checksummed messages in streams, one per producer and queue.
 *
 *   senders: stream n ─ frame k ─► broker ─ acknowledged? ─► k + 1, else the same frame again
 *   reader:  consumer ─► checksum, stream, number ─► first occurrence in order? seen before?
 * altered? end:     every acknowledged number of every stream was seen
 *
 * A stream has one frame in flight, so what is acknowledged is a prefix of its numbers. Only
 * SEND_OK acknowledges: a frame whose fate is unknown, or that was stored without all that was
 * asked for, is sent again. Its messages may then be stored once per try, in order, which counts as
 * duplicated, not lost; a copy more than there were tries is nobody's but the brokers'.
 *
 * Committed offsets: the watch commits what was delivered, and remembers what was answered. A later
 * answer below that is a regression, whatever its version. What it only saw at a broker was
 * promised to nobody.
 *
 * What else a check asks for (enum bench_check), and what a message carries for it as its mark:
 *
 *   delayed        its due time    none is stored in its topic before; order is not promised
 *   transactional  its try         the numbers whose outcome is "committed" arrive, once and of the
 *                                  try that ran the local transaction; all others never; queues and
 *                                  order are not promised
 *   filtered       –               two more readers, by tag and by condition, get what matches
 *   failing        –               listeners fail as they are told to; each is consumed once, or is
 *                                  a dead letter; order is not promised, commits are not watched
 *
 * So a number is wanted by a reader, or not (verify_wanted()), and what is acknowledged and wanted
 * must arrive there.
 */
#ifndef MQBENCH_VERIFY_H
#define MQBENCH_VERIFY_H

#include <pthread.h>

#include "tools/mqbench/bench.h"

enum { VERIFY_HEADER_BYTES = 32, VERIFY_STREAMS_MAX = 65536 };

/* What a reader subscribes to. */
enum verify_view { VIEW_ALL, VIEW_TAGS, VIEW_CONDITION };

/* What becomes of a transaction; from its number alone. */
enum verify_outcome {
    OUTCOME_COMMIT,
    OUTCOME_ROLLBACK,
    OUTCOME_LATE_COMMIT,
    OUTCOME_LATE_ROLLBACK
};

/* failing: tries after the first before a message is dead. */
enum { VERIFY_RETRIES = 3 };

/* Where a message was read that came to a listener, or that is dead. */
enum verify_place { PLACE_TOPIC, PLACE_RETRY, PLACE_DEAD };

/* failing: how often a number was delivered with each count of tries, last: as a dead letter; and
 * how often its listener failed with each. */
struct verify_life {
    uint16_t came[VERIFY_RETRIES + 2];
    uint16_t failed[VERIFY_RETRIES + 1];
    uint16_t consumed;
};

/* failing: the record at an offset, as it was last delivered. */
struct verify_spot {
    uint64_t id;          /* of whose message; 0: not seen yet */
    int64_t delivered_ms; /* wall clock */
    int32_t times;        /* tries counted */
};

/* failing: a queue that is read. */
struct verify_spots {
    enum verify_place place;
    struct tern_queue queue; /* without the topic */
    struct verify_spot *spots;
    size_t cap;
};

/* A frame that was sent more than once. */
struct verify_retry {
    uint64_t first; /* its lowest number */
    uint32_t count; /* messages in it */
    uint32_t tries;
    uint64_t copies; /* of its messages beyond their first occurrences */
};

struct verify_stream {
    struct tern_queue queue;
    uint32_t id;
    /* sending; under verify.lock */
    uint64_t acked; /* numbers below are acknowledged */
    bool flying;
    int64_t not_before_ns;        /* after a failure */
    uint64_t tried;               /* first number of the last frame that was sent, plus 1 */
    struct verify_retry *retries; /* by first */
    size_t retry_count, retry_cap;
    /* reading; under verify.lock */
    uint64_t *seen;            /* a bit per number */
    uint64_t seen_cap;         /* numbers that `seen` has room for */
    uint64_t next_expected;    /* highest number seen + 1 */
    struct verify_life *lives; /* failing: by number */
    size_t lives_cap;
};

/* What lies at each offset of a queue, to notice an offset that changes its meaning. */
struct verify_offsets {
    struct tern_queue queue;
    uint64_t *ids; /* 0: not seen yet */
    uint64_t cap;
    /* delayed: wall clock of the last answered send, and of the last one after a pause; 0: none */
    int64_t answered_ms, back_ms;
    int64_t failed_ms; /* wall clock of the last send that failed; 0: none */
    int64_t delivered; /* behind the last arrival under `version`; -1: none yet */
    int64_t promised;  /* highest offset of which a commit was answered, -1 none */
    /* of the group's progress, as last answered */
    bool version_known;
    uint64_t version_epoch, version_counter;
};

/* Pauses between events of a kind. */
struct verify_gap {
    int64_t last_ns; /* 0: not started */
    int64_t longest_ns;
};

struct verify {
    const struct bench_options *options;
    enum verify_view view;
    struct verify *next; /* filtered: the next reader's view, which lives as long as this one */
    uint64_t run_id;
    struct verify_stream *streams;
    size_t stream_count;
    struct verify_offsets *queues;
    size_t queue_count;
    struct verify_spots *spots; /* failing, under lock */
    size_t spots_count;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool sending;      /* under lock: the sending phase */
    int64_t end_ns;    /* of the sending phase */
    uint64_t launched; /* under lock: messages under way or acknowledged, for --count */
    uint64_t send_errors;

    /* under lock */
    struct verify_gap send_gap;    /* between acknowledgements, in the sending phase */
    struct verify_gap receive_gap; /* between arrivals, in the sending phase */
    struct verify_gap wait_gap;    /* between arrivals, while something acknowledged was to come */

    /* findings; under lock */
    uint64_t settled; /* messages that are not sent again */
    uint64_t acked;   /* of them: wanted */
    uint64_t waiting; /* of them: not seen yet; in the end they are lost */
    uint64_t seen;    /* first occurrences, acknowledged or not */
    uint64_t received, duplicated, duplicated_unexplained, redelivered, reordered, altered, foreign;
    uint64_t offset_regressions;
    uint64_t unwanted; /* arrived though they are not wanted here */
    uint64_t withheld; /* filtered: wanted by a view, and only seen by the one of everything */
    uint64_t delivered_by_tag, delivered_by_condition; /* filtered: first occurrences */
    uint64_t early;         /* delayed: stored in their topic before their time */
    int64_t late_ms;        /* delayed: most of it while sends were answered */
    int64_t late_in_all_ms; /* delayed: absences of a master included */
    uint64_t checks;        /* transactional: questions that were answered */
    uint64_t abandoned;     /* transactional: producers that went with one open */
    uint64_t overlapped;    /* --orderly: messages that ran beside another one of their queue */
    uint32_t moves;         /* --orderly: members that joined or left; set at the end */
    /* failing */
    uint64_t retried;           /* deliveries after the first try */
    uint64_t dead_lettered;     /* numbers among the dead letters */
    uint64_t consumed_and_dead; /* of them: consumed, too; explained or not */
    uint64_t beyond_count;      /* deliveries after the last try */
    uint64_t wrongly_dead;      /* dead letters with tries left */
    uint64_t forked;            /* deliveries without a failure before them */
    uint64_t unanswered;        /* sent back, and nobody told whether it was taken; at the end */
    uint64_t redelivered_unexplained; /* the same record again though nothing happened */
};

/* A message that arrived; texts and bytes are borrowed. */
struct verify_arrival {
    const char *broker;
    int32_t queue_id;
    int64_t queue_offset, store_ms;
    int64_t delivered_ms; /* failing: now, by the wall clock */
    const char *mark;     /* NULL: none */
    const uint8_t *body;
    size_t size;
};

/* Sends until the phase ends and nothing flies any more (verify_send.c). Returns an exit status. */
int verify_send(struct verify *verify);
/* The sending phase begins; whether it goes on. @locks takes:lock; holds:lock */
void verify_phase_begin(struct verify *verify);
bool verify_phase_goes_on(const struct verify *verify, int64_t now_ns);
/* Waits until something changes, at most until then. @locks holds:lock */
void verify_wait_until(struct verify *verify, int64_t mono_ns);

/* ---- transactions (verify_transact.c) ---- */

/* A member of the producers' group that answers questions, from here until it is stopped. NULL:
 * failed, said on stderr. */
struct verify_answerer;
struct verify_answerer *verify_answerer_start(struct verify *verify, int *status);
void verify_answerer_stop(struct verify_answerer *answerer); /* NULL allowed */
/* As verify_send(), in transactions. */
int verify_transact(struct verify *verify);

/* ---- what a check's messages are (verify_traffic.c) ---- */

extern const char verify_mark_name[]; /* the property that holds the mark */

/* Gives a message of this number what the check wants it to have: tag, properties, due time. */
enum tern_code verify_dress(const struct verify *verify, uint32_t stream, uint64_t number,
                            struct tern_message *message);
/* Whether the number, once it is acknowledged, must arrive at this reader; others never may. */
bool verify_wanted(const struct verify *verify, uint32_t stream, uint64_t number);
enum verify_outcome verify_outcome(const struct verify *verify, uint32_t stream, uint64_t number);
/* Subscribes as the view does. */
enum tern_code verify_subscribe(const struct verify *verify, struct tern_push_consumer *consumer,
                                struct tern_error *err);
/* The consumer group of the view. */
void verify_group_name(const struct verify *verify, char *out, size_t size);

/* ---- messages that fail (verify_lives.c, verify_failing.c) ---- */

/* Whether the listener fails at the number's try, the first is 0; from the number alone. */
bool verify_fails(const struct verify *verify, uint32_t stream, uint64_t number, int32_t times);
/* A delivery to a listener that `times` tries were counted of, or a dead letter. Whether the
 * listener is to fail. @locks holds:lock */
bool verify_note_delivery(struct verify *verify, enum verify_place place, int32_t times,
                          const struct verify_arrival *arrival);
/* Nothing comes any more; of the messages that failed so many were perhaps not taken back.
 * @locks holds:lock */
void verify_note_unanswered(struct verify *verify, uint64_t count);
void verify_lives_fini(struct verify *verify);

/* Consumers whose listeners fail, and who looks at the dead letters. NULL: failed, said on stderr.
 */
struct verify_failing;
struct verify_failing *verify_failing_start(struct verify *verify, int *status);
void verify_failing_stop(struct verify_failing *failing); /* NULL allowed */

/* ---- the views of a filtered check (verify_views.c) ---- */

/*
 * Makes the views behind `verify`, with what it knows of its streams, and starts their readers;
 * before anything is sent. Their lock is taken with that of `verify` held, never the other way.
 */
struct verify_views;
struct verify_views *verify_views_start(struct verify *verify, int *status);
/* Stops the readers, and adds what they found to `verify`. NULL allowed. */
void verify_views_stop(struct verify_views *views);
/* As verify_note_try() and verify_note_acked(), for `verify` and its views. @locks holds:lock */
bool verify_all_note_try(struct verify *verify, struct verify_stream *stream, uint64_t first,
                         uint32_t count);
void verify_all_note_acked(struct verify *verify, struct verify_stream *stream, uint64_t count,
                           int64_t now_ns);

/* ---- shared by the phases (verify.c, verify_report.c) ---- */

void verify_init(struct verify *verify, const struct bench_options *options);
void verify_fini(struct verify *verify);
/* The distinct queues of the streams. An exit status. */
int verify_make_queues(struct verify *verify);
/* Prints what was found; the exit status. */
int verify_report(const struct verify *verify);

/* Starts and stops the reader (verify_read.c) with its watch over committed offsets. */
struct verify_reader;
struct verify_reader *verify_reader_start(struct verify *verify, int *status);
void verify_reader_stop(struct verify_reader *reader);
/* Notes messages that arrived and wakes who waits. @locks takes:lock */
void verify_take(struct verify *verify, const struct tern_message *const *messages, size_t count);
/* Likewise several orderly members that come and go (verify_orderly.c). */
struct verify_orderly;
struct verify_orderly *verify_orderly_start(struct verify *verify, int *status);
void verify_orderly_stop(struct verify_orderly *orderly);
/* The watch over what `group` committed (verify_watch.c); NULL: code and err say why. */
struct verify_watch;
struct verify_watch *verify_watch_start(struct verify *verify, const char *group,
                                        enum tern_code *code, struct tern_error *err);
void verify_watch_stop(struct verify_watch *watch);
/* Likewise one that pulls from the sets' slaves and commits nothing (verify_slave.c). */
struct verify_slaves;
struct verify_slaves *verify_slaves_start(struct verify *verify, int *status);
void verify_slaves_stop(struct verify_slaves *slaves);

/* ---- findings (verify_note.c); all @locks holds:lock ---- */

/* A frame of these numbers is about to be sent. false: no memory to remember that it is again. */
bool verify_note_try(struct verify_stream *stream, uint64_t first, uint32_t count);
/* The stream's next `count` numbers are acknowledged. */
void verify_note_acked(struct verify *verify, struct verify_stream *stream, uint64_t count,
                       int64_t now_ns);
/* How often the number was sent, or is being sent now; at least 1. */
uint32_t verify_tries(const struct verify_stream *stream, uint64_t number);
bool verify_is_seen(const struct verify_stream *stream, uint64_t number);
/* The number is where it must come to, for the first time. false: no memory. */
bool verify_note_seen(struct verify *verify, struct verify_stream *stream, uint64_t number);
/* A send to the stream's queue was answered, or failed: what is late depends on it. */
void verify_note_answer(struct verify *verify, const struct verify_stream *stream, bool answered,
                        int64_t wall_ms);
/* One that arrived; its place as the record says. */
void verify_note_message(struct verify *verify, const struct verify_arrival *arrival);
/* Before the messages of one arrival are noted. */
void verify_note_arrival(struct verify *verify, size_t count, int64_t now_ns);
/* The sending phase begins, or ends: pauses that last until then count. */
void verify_note_phase(struct verify *verify, bool sending, int64_t now_ns);
/* A broker answered: the group's progress (-1: it has none) and its version, or that a commit
 * stands. */
void verify_note_progress(struct verify *verify, struct verify_offsets *queue, int64_t offset,
                          uint64_t version_epoch, uint64_t version_counter);
void verify_note_promise(struct verify_offsets *queue, int64_t offset);

/* Body of a message: header and contents made from (run, stream, number). */
/* A number made from (run, stream, number), to choose by. */
uint64_t verify_draw(const struct verify *verify, uint32_t stream, uint64_t number);
void verify_fill(const struct verify *verify, uint32_t stream, uint64_t number, uint8_t *body,
                 size_t size);
size_t verify_body_size(const struct verify *verify, uint32_t stream, uint64_t number);
/* 0: ours and whole; 1: not of this run; 2: altered. */
int verify_parse(const struct verify *verify, const uint8_t *body, size_t size, uint32_t *stream,
                 uint64_t *number);

/* --state F: what was acknowledged and what was sent more than once, as JSON; replaced whole. */
int verify_state_save(const struct verify *verify, const char *path);
int verify_state_load(struct verify *verify, const char *path);

#endif
