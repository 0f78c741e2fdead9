/*
 * The message store: one CommitLog for all topics, a ConsumeQueue per topic and queue, an index by
 * key, RocketMQ 4.9.8's files byte for byte (docs/store-format.md). Files only: no network, no
 * protobuf.
 *
 *   store_append() ─► commit log ─► dispatcher ─► consume queues, index ─► on_arrival()
 *                        │ flusher ─► on_flushed()
 *   store_get()    ◄─ consume queue ◄─ commit log (page cache first)
 *
 * Positions are physical offsets in the commit log, each monotonic but for store_cut() and
 * store_reset(): min ≤ flushed ≤ appended, dispatched ≤ dispatch limit and whole, whole ≤ appended.
 *
 * Failure: an error of a write, a sync or of reading our own metadata latches the store read-only:
 * appends answer TERN_SERVICE_NOT_AVAILABLE with the cause until the process recovers the store at
 * its next start; reads go on. A full disk is refused before any offset is given out and does not
 * latch.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/metrics.h"
#include "base/record.h"

struct store;
struct consume_queue;
struct delay_levels;

/* ---- opening ---- */

/*
 * New messages of one queue, given after their ConsumeQueue units can be read.
 * tags_codes[i] belongs to queue offset first_off + i; valid during the call only.
 */
struct store_arrival {
    const char *topic; /* terminated */
    int32_t queue_id;
    int64_t first_off;
    uint32_t count;
    const int64_t *tags_codes;
};

/* What the store tells its owner. Called without locks held, on the appender, dispatcher or
 * flusher. */
struct store_observer {
    void *arg;
    /* Every byte before `flushed` is on disk; more: others wait for the next flush, be quick. */
    void (*on_flushed)(void *arg, int64_t flushed, bool more);
    void (*on_arrival)(void *arg, const struct store_arrival *arrival);
    /* The store has become read-only for good. */
    void (*on_latched)(void *arg, enum tern_code code, const char *text);
    /* The minimum physical offset has moved up. */
    void (*on_expired)(void *arg, int64_t min_phys);
    /*
     * The log's end has moved to `end`, a record's; before the senders are answered. On whoever
     * appends: it may read and send what was appended, but not wait.
     */
    void (*on_end)(void *arg, int64_t end);
    /*
     * A record was dispatched that stands for an earlier one of another topic: it carries SEQUEL_OF
     * (a delayed message that came due), or commits a prepared transaction; or one that waits for
     * its time in TIMER_TOPIC. In log order, before its unit can be read, and also when its topic
     * was deleted since; during recovery too, and again for what is dispatched again. Be quick.
     */
    void (*on_sequel)(void *arg, const struct record *record);
    /*
     * The log is about to end at phys_off, all that was told of records from there on is void; 0:
     * it is replaced by another one (store_reset). An error refuses the cut. on_cut_end() follows
     * each on_cut() that was OK, whether the log was cut or not. On whoever cuts, while everything
     * else stands still; may wait for the disk and read, not append.
     */
    enum tern_code (*on_cut)(void *arg, int64_t phys_off, struct tern_error *err);
    void (*on_cut_end)(void *arg);
};

struct store_options {
    const char *root_dir;
    int64_t segment_bytes;     /* mappedFileSizeCommitLog */
    int64_t queue_file_bytes;  /* mappedFileSizeConsumeQueue, rounded up to a multiple of 20 */
    uint32_t index_slots;      /* maxHashSlotNum */
    uint32_t index_entries;    /* maxIndexNum */
    bool index_enabled;        /* messageIndexEnable */
    bool sync_flush;           /* SYNC_FLUSH: flush as soon as something was appended */
    int64_t flush_interval_ms; /* ASYNC_FLUSH: flushIntervalCommitLog, 500 */
    int64_t queue_flush_interval_ms; /* flushIntervalConsumeQueue, 1000 */
    int64_t retention_ms;            /* fileReservedTime */
    uint32_t delete_hours; /* deleteWhen: bit h set = segments may expire in hour h (local time) */
    int64_t clean_interval_ms;         /* cleanResourceInterval, 10 s */
    double disk_max_used_ratio;        /* above: expire now by age; 0.75 */
    double disk_clean_ratio;           /* above: expire whatever its age; 0.85 */
    double disk_warning_ratio;         /* above: refuse appends; 0.90 */
    int64_t max_message_bytes;         /* body limit; a record may be 64 KiB + this */
    int64_t memory_window_bytes;       /* accessMessageInMemoryMaxRatio × physicalMemorySize */
    uint32_t memory_count, disk_count; /* limits of one get: messages, when in memory or not */
    uint32_t memory_bytes, disk_bytes; /* and bytes */
    uint32_t open_files_max;           /* cache of consume queue files, e.g. 512 */
    bool offset_correction;            /* false on a slave without offsetCheckInSlave */
    const struct delay_levels *delay_levels; /* messageDelayLevel; NULL: RocketMQ's. Copied */
    bool read_only; /* for offline tools: opens without lock, abort mark or writing anything */
    struct store_observer observer; /* callbacks may be NULL */
};

void store_options_init(struct store_options *options);

/* How the store was brought up, for the log and mqadmin. */
struct store_recovery {
    bool clean; /* no abort mark was found */
    int64_t log_min, log_end;
    int64_t cut_bytes;        /* torn bytes removed at the end */
    int64_t replayed_records; /* dispatched again */
    int64_t took_ms;
};

/*
 * Opens and recovers a store, creating an empty one when the directory is empty or absent, and
 * starts its tasks. TERN_IN_USE when another process has it; TERN_CORRUPT when it cannot be
 * recovered without losing whole records in the middle: nothing is deleted then. @blocks on the
 * disk
 */
MUST_CHECK enum tern_code store_open(const struct env *env, const struct store_options *options,
                                     struct store **out, struct store_recovery *recovery,
                                     struct tern_error *err);

/*
 * Stops the tasks, flushes everything, removes the abort mark when all is dispatched and flushed,
 * frees. No append may be under way any more. NULL allowed. Errors are reported and leave the abort
 * mark.
 */
enum tern_code store_close(struct store *store, struct tern_error *err);

/* ---- appending ---- */

/*
 * One append: whole records of one queue, laid out back to back, complete but for queue offset,
 * physical offset and store time, which the store stamps in place. Caller's memory until
 * on_appended.
 */
struct store_append {
    uint8_t *records;
    uint32_t size_bytes;
    uint32_t count;
    struct consume_queue
        *queue; /* from store_queue_ref(); the caller unrefs it after on_appended */
    /*
     * Called exactly once, when the records are written (not flushed) or refused. Without locks
     * held, on whichever thread holds the append token, possibly before store_append() returns.
     * Must not wait.
     */
    void (*on_appended)(struct store_append *append);

    /* set before on_appended */
    /*
     * OK; MESSAGE_ILLEGAL: not `count` whole records of the queue; TOPIC_NOT_EXIST: deleted since
     * the queue was asked for; NO_SPACE, SERVICE_NOT_AVAILABLE, TOO_LARGE, LIMIT, NO_MEMORY
     */
    enum tern_code result;
    int64_t
        first_queue_off; /* of the first record; 0 for types that take none (prepared, rollback) */
    int64_t first_phys_off;
    int64_t end_phys_off; /* flushed when on_flushed reaches this */
    int64_t store_ms;
    struct store_append *next; /* the store's own */
};

/* @thread any, also an NNG callback: the calling thread may append for others, at most 4 MiB or 2
 * ms */
void store_append(struct store *store, struct store_append *append);

/* The text for a refused append: names path, ratio, limit and key. */
void store_refusal_text(struct store *store, enum tern_code code, char *out, size_t size);

/*
 * The queue's object, made when absent (no file is). Valid topic name and queue_id >= 0 are the
 * caller's business. TERN_NO_MEMORY or TERN_LIMIT. @thread any
 */
MUST_CHECK enum tern_code store_queue_ref(struct store *store, const char *topic, size_t topic_len,
                                          int32_t queue_id, struct consume_queue **out);
void store_queue_unref(struct consume_queue *queue);

/* ---- reading ---- */

enum get_status {
    GET_FOUND,
    GET_NO_MESSAGE_IN_QUEUE,
    GET_NO_MATCHED_LOGIC_QUEUE,
    GET_NO_MATCHED_MESSAGE,
    GET_MESSAGE_WAS_REMOVING,
    GET_OFFSET_FOUND_NULL,
    GET_OFFSET_TOO_SMALL,
    GET_OFFSET_OVERFLOW_ONE,
    GET_OFFSET_OVERFLOW_BADLY
};
const char *
get_status_text(enum get_status status); /* RocketMQ's name, e.g. "NO_MATCHED_MESSAGE" */

struct store_filter {
    void *arg;
    bool (*match_code)(void *arg, int64_t tags_code); /* NULL: all */
    bool (*match_record)(void *arg,
                         const struct record *record); /* NULL: all; needs the record read */
};

struct store_get {
    const char *topic; /* terminated */
    int32_t queue_id;
    int64_t offset;
    uint32_t max_count;
    bool nowait;                       /* TERN_AGAIN instead of waiting for the disk */
    const struct store_filter *filter; /* NULL: all */
    /* Memory for the answer, called at most once with the bytes needed; NULL fails the get with
     * NO_MEMORY. */
    uint8_t *(*reserve)(void *arg, size_t size_bytes);
    void *arg;
};

struct store_get_result {
    enum get_status status;
    int64_t next_off, min_off, max_off;
    size_t size_bytes; /* of the records in the reserved memory, back to back */
    uint32_t count;
    uint32_t scanned; /* units looked at */
    bool
        beyond_memory; /* what was wanted lies deeper than memory_window_bytes: suggest the slave */
    int64_t
        want_end; /* beyond_memory: physical end of the record at next_off, 0 when there is none */
};

/*
 * RocketMQ's getMessage (facts 4.1) with its nine states; the first message always comes whatever
 * its size. TERN_AGAIN only with nowait; TERN_SERVICE_NOT_AVAILABLE while
 * the log is being cut. @thread any @blocks on the disk unless nowait
 */
MUST_CHECK enum tern_code store_get(struct store *store, const struct store_get *get,
                                    struct store_get_result *result);

/* One record by its physical offset; TERN_NOT_FOUND when no record starts there. */
MUST_CHECK enum tern_code store_get_by_phys(struct store *store, int64_t phys_off,
                                            uint8_t *(*reserve)(void *arg, size_t size_bytes),
                                            void *arg, size_t *size_bytes);

/* Min and next offset of a queue; 0, 0 for one that never had a message. */
void store_queue_range(struct store *store, const char *topic, int32_t queue_id, int64_t *min_off,
                       int64_t *max_off);
/* Highest queue id of the topic that has a queue object, -1 for none. */
int32_t store_topic_last_queue(struct store *store, const char *topic);

/* The offset whose message was stored nearest to the time (facts 3.5). @blocks on the disk */
MUST_CHECK enum tern_code store_offset_by_time(struct store *store, const char *topic,
                                               int32_t queue_id, int64_t wall_ms, int64_t *offset);
/* Store time of the message at an offset; TERN_NOT_FOUND when there is none. */
MUST_CHECK enum tern_code store_time_of(struct store *store, const char *topic, int32_t queue_id,
                                        int64_t offset, int64_t *wall_ms);

/*
 * Every whole record from `from`, where one begins (below the minimum: from there), up to `upto` at
 * most; fn returns false to stop. *next: where the record behind the last one given begins. Nobody
 * cuts meanwhile. TERN_CORRUPT: no record begins there. @blocks on the disk
 */
MUST_CHECK enum tern_code store_each_record(struct store *store, int64_t from, int64_t upto,
                                            bool (*fn)(void *arg, const struct record *record),
                                            void *arg, int64_t *next);

struct store_query {
    const char *topic;
    const char *key;
    uint32_t max_count; /* capped at 64 */
    int64_t begin_ms, end_ms;
    /* One record per call, newest first; return false to stop. Records are verified to hold the
     * key. */
    bool (*on_record)(void *arg, const uint8_t *bytes, size_t size_bytes);
    void *arg;
};
struct store_query_info {
    uint32_t found;
    int64_t indexed_begin_ms,
        indexed_end_ms; /* time range that the index covers; 0, 0 when empty */
    int64_t index_phys; /* indexed up to here */
    int64_t log_min, log_end;
};
/* By KEYS token or UNIQ_KEY. @blocks on the disk */
MUST_CHECK enum tern_code store_query(struct store *store, const struct store_query *query,
                                      struct store_query_info *info);

/* ---- replication: the log as bytes ---- */

/*
 *   min ≤ flushed ≤ appended;  whole ≤ appended: behind the last whole record a copy may hold the
 *   beginning of the next one. A log that only store_append() writes is always whole.
 */
struct store_positions {
    int64_t min, flushed, whole, appended, dispatched;
};
/* Cheap. @thread any */
void store_positions(struct store *store, struct store_positions *out);

/*
 * Up to `size` bytes from phys_off, of one segment, before the whole end. TERN_NOT_FOUND: before
 * min or not before the whole end; TERN_AGAIN with nowait when the first byte is not in memory.
 * @thread any @blocks on the disk unless nowait
 */
MUST_CHECK enum tern_code store_read_bytes(struct store *store, int64_t phys_off, uint8_t *buf,
                                           size_t size, bool nowait, size_t *got);

/*
 * A copy's append: exactly these bytes at phys_off, which must be the appended end (TERN_INVALID
 * otherwise, nothing is written). They may begin and end anywhere in records and fillers; whole
 * records are dispatched as they become complete. Bytes that cannot be the continuation of a log
 * (a record's size, magic or physical offset): TERN_CORRUPT, nothing is written. nowait:
 * TERN_AGAIN, nothing written, when a segment, or whoever holds the log, would have to be waited
 * for. NO_SPACE, SERVICE_NOT_AVAILABLE as for store_append().
 * @thread one at a time, never beside store_append()
 */
MUST_CHECK enum tern_code store_append_bytes(struct store *store, int64_t phys_off,
                                             const uint8_t *bytes, size_t size, bool nowait,
                                             struct tern_error *err);

/* Everything appended until now is on the disk when it returns OK. @blocks on the disk */
MUST_CHECK enum tern_code store_flush(struct store *store, struct tern_error *err);
/* Flush as soon as something was appended, whatever the options said. @thread any */
void store_set_sync_flush(struct store *store, bool on);

/* The first offset of the queue whose record lies at or beyond phys_off; its max when there is
 * none.
 * @blocks on the disk */
MUST_CHECK enum tern_code store_queue_end_at(struct store *store, const char *topic,
                                             int32_t queue_id, int64_t phys_off, int64_t *offset);

struct store_cut {
    int64_t at;         /* where the log ends now */
    int64_t cut_bytes;  /* that were saved and cut */
    int64_t records;    /* whole ones among them */
    char saved_as[256]; /* name of the file or folder under ROOT/diverged/; "": nothing was saved */
};
/*
 * Ends the log at phys_off: what lies behind is saved to ROOT/diverged/FROM-END-WALLMS.log,
 * durably, then cut from the log, the queues and the index, durably; save false: only a part of a
 * record may be cut. phys_off need not begin a record: then the log is cut to the last whole record
 * before it. A crash on the way leaves either the old end (all is found again and cut again) or the
 * new one. Readers meanwhile find records or none, never other bytes. Appends wait meanwhile.
 * TERN_INVALID: phys_off is before min, or whole records would be cut unsaved. An error before the
 * cut has begun changes nothing (no room to save, say), a later one latches the store. @thread not
 * a transport's, not within a callback of the store @blocks on the disk
 */
MUST_CHECK enum tern_code store_cut(struct store *store, int64_t phys_off, bool save,
                                    struct store_cut *result, struct tern_error *err);
/*
 * Moves the whole log to ROOT/diverged/WALLMS/ (commitlog files as they are), removes queues and
 * index, and begins at `start`, a multiple of the segment's length. An empty log only begins there.
 * saved_as as in store_cut; records are not counted. Queues got by store_queue_ref() before are
 * dead, deletions are forgotten. Otherwise as store_cut(). @blocks on the disk
 */
MUST_CHECK enum tern_code store_reset(struct store *store, int64_t start, struct store_cut *result,
                                      struct tern_error *err);

/* Where topics were deleted: records of the topic before `position` belong to a life that is over,
 * and are not dispatched (again). Kept in ROOT/ternmq/deleted.json until the log's minimum passes.
 */
struct store_deletion {
    char topic[128];
    int64_t position;
};
/* A malloc'ed copy (free()) and the version, which grows with every change. NULL: no memory. */
struct store_deletion *store_deletions(struct store *store, size_t *count, uint64_t *version);
uint64_t store_deletions_version(struct store *store);
/*
 * A copy's: takes the source's list and version; topics that are new in it, or have a higher
 * position, lose their queues. Durable when it returns. @blocks on the disk
 */
MUST_CHECK enum tern_code store_apply_deletions(struct store *store,
                                                const struct store_deletion *list, size_t count,
                                                uint64_t version, struct tern_error *err);
/*
 * Before a master's first write: a deletion beyond the end, whose place was lost with the tail of
 * the log, counts up to the end; else messages of its topic's new life would be passed over there.
 * Durable when it returns. @blocks on the disk
 */
MUST_CHECK enum tern_code store_end_deletions(struct store *store, struct tern_error *err);

/* ---- looking after it ---- */

struct store_status {
    int64_t min_phys, appended, flushed, dispatched, dispatch_limit;
    int64_t dispatch_lag_ms; /* age of the oldest undispatched record, 0 when none */
    int64_t unflushed_since_ms;
    double disk_used_ratio;
    bool disk_full, latched; /* full: no room above the warning ratio, for queues, for a segment */
    uint64_t append_requests, append_records, append_bytes, append_failed;
    uint64_t get_found, get_missed, get_again; /* again: went to the cold lane */
    uint64_t get_messages;                     /* given out */
    uint64_t flushes;
    uint64_t segments_expired;
    const struct histogram *append_wait_ns; /* joining the queue to written */
    const struct histogram *write_ns;       /* one pwritev */
    const struct histogram *flush_ns;       /* one fdatasync */
    const struct histogram *segment_switch_ns;
    uint32_t queues; /* queue objects */
    bool recovered_clean;
    int64_t earliest_ms; /* store time of the first retained record, 0 when empty */
};
void store_status(struct store *store, struct store_status *out);

/*
 * Whether store_append() is served, which it is at first. Closed: once this has returned no record
 * is written any more, and all that were are answered; what comes is SERVICE_NOT_AVAILABLE, while
 * bytes are copied as ever. @blocks for the append under way @thread not within a callback of the
 * store @locks none
 */
void store_set_appends(struct store *store, bool open);

/*
 * How far the dispatcher may go (confirmed visibility); starts at INT64_MAX: as far as is appended.
 * Never lowers what is dispatched. A little that may be dispatched now is, in the calling thread,
 * with its on_arrival(). @thread any, also a transport's @locks none
 */
void store_set_dispatch_limit(struct store *store, int64_t phys_off);

/* Removes a topic's queues and their files, and notes the deletion durably (store_deletions); the
 * log keeps the records until they expire. */
MUST_CHECK enum tern_code store_delete_topic(struct store *store, const char *topic,
                                             struct tern_error *err);

/* Expires segments now as if it were deleteWhen; returns how many went. */
int store_expire_now(struct store *store);
/* Queues and index follow the log's minimum once more: what a crash or an error left goes. A round
 * of expiry under way is waited for. @blocks on the disk */
MUST_CHECK enum tern_code store_clean_queues(struct store *store, struct tern_error *err);

/* What may change while the store runs; meaning and ranges as in struct store_options. */
struct store_limits {
    int64_t retention_ms;
    uint32_t delete_hours;
    double disk_max_used_ratio, disk_clean_ratio, disk_warning_ratio;
    int64_t memory_window_bytes;
    uint32_t memory_count, disk_count, memory_bytes, disk_bytes;
};
struct store_limits store_limits_of(const struct store_options *options);
/* In effect for the next get and the next round of expiry. @thread any */
void store_set_limits(struct store *store, const struct store_limits *limits);

/* A consume queue's unit as it stands there. */
struct store_unit {
    int64_t phys_off;
    int32_t size;
    int64_t tags_code;
};
/*
 * Up to `count` units from `offset` on, which is raised to the queue's minimum; *first is where
 * they begin, *got may be less, 0 at the end. TERN_NOT_FOUND: there is no such queue. @blocks on
 * the disk
 */
MUST_CHECK enum tern_code store_read_units(struct store *store, const char *topic, int32_t queue_id,
                                           int64_t offset, struct store_unit *units, uint32_t count,
                                           int64_t *first, uint32_t *got);
/* Names of the topics that have queues, sorted, one malloc'ed block (free()); NULL with 0: none. */
MUST_CHECK enum tern_code store_topics(struct store *store, const char ***names, size_t *count);

/* Latches the store read-only; used by the store itself and by tests. */
void store_latch(struct store *store, enum tern_code code, const char *text);

#endif
