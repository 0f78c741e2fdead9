/*
 * All consume queues of a store, found by topic and queue id. Internal to the store.
 *
 * A consume queue is an array of 20-byte units (physical offset 8, size 4, tagsCode 8); unit n of a
 * queue stands at n × 20, in files of equal length named by their first byte's offset. The last
 * units live in memory until the flusher or a full page writes them: the log can always rebuild
 * them. Files are opened through a bounded cache, written with pwrite, sparse; a queue without
 * messages has neither file nor buffer.
 */
#ifndef STORE_QUEUE_TABLE_H
#define STORE_QUEUE_TABLE_H

#include "base/fs.h"
#include "broker/store/store.h"

struct commit_log;
struct queue_table;
struct file_cache;

enum { QUEUE_UNIT_BYTES = 20, QUEUES_MAX = 1000000 };

/* No queue offset is above: positions in files of any allowed length stay within 63 bits. */
#define QUEUE_OFFSET_MAX ((INT64_MAX - 4 * (int64_t)INT32_MAX) / QUEUE_UNIT_BYTES)

struct queue_unit {
    int64_t phys_off;
    int32_t size;
    int64_t tags_code;
};

/* dir is ROOT/consumequeue. No file is touched. */
MUST_CHECK enum tern_code queue_table_create(const struct env *env, const char *dir,
                                             int64_t file_bytes, uint32_t open_files_max,
                                             bool read_only, struct queue_table **out);
void queue_table_destroy(struct queue_table *table);

/*
 * Finds the queues on disk and, per queue, the last valid unit (facts 3.2). Units that point at or
 * beyond log_end are cut, durably. *max_phys is the end of the last record that any queue holds.
 * Malformed directory or file names are reported and left alone.
 */
MUST_CHECK enum tern_code queue_table_recover(struct queue_table *table, int64_t log_min,
                                              int64_t log_end, int64_t *max_phys,
                                              struct tern_error *err);

/*
 * Before the recovery, when the store was stopped cleanly: all that was written is on disk, so
 * queues without a unit behind their end need no cut. Without this call every queue is cut and
 * synced at its end.
 */
void queue_table_assume_synced(struct queue_table *table);

/* As store_queue_ref / store_queue_unref. */
MUST_CHECK enum tern_code queue_table_ref(struct queue_table *table, const char *topic,
                                          size_t topic_len, int32_t queue_id,
                                          struct consume_queue **out);
/* NULL when the queue has no object; takes a reference. */
struct consume_queue *queue_table_find(struct queue_table *table, const char *topic,
                                       size_t topic_len, int32_t queue_id);
void consume_queue_unref(struct consume_queue *queue);

/* Next offset to be given out; the append token owns it. Set from the max offset after recovery. */
int64_t consume_queue_next(const struct consume_queue *queue);
void consume_queue_set_next(struct consume_queue *queue, int64_t offset);

/* Whether its topic was deleted: it takes nothing any more, and a new one may have its name.
 * @thread any */
bool consume_queue_dead(const struct consume_queue *queue);
/* Whether the record says that it belongs to this queue. @thread any */
bool consume_queue_is_of(const struct consume_queue *queue, const struct record *record);

/* Offsets of units that can be read now: [min, max). @thread any */
int64_t consume_queue_min(const struct consume_queue *queue);
int64_t consume_queue_max(const struct consume_queue *queue);
const char *consume_queue_topic(const struct consume_queue *queue);
int32_t consume_queue_id(const struct consume_queue *queue);

/*
 * Appends units from `offset` on and publishes the new max. In order: offset equals max, or the
 * queue is empty (then files begin there and the room before is filled with blank units: 0,
 * 0x7FFFFFFF, 0).
 * @thread the dispatch token's holder
 */
MUST_CHECK enum tern_code consume_queue_put(struct consume_queue *queue, int64_t offset,
                                            const struct queue_unit *units, uint32_t count);

/*
 * Reads up to `count` units from `offset`; *got may be less, 0 when outside [min, max).
 * TERN_AGAIN with nowait. @thread any
 */
MUST_CHECK enum tern_code consume_queue_read(struct consume_queue *queue, int64_t offset,
                                             struct queue_unit *units, uint32_t count, bool nowait,
                                             uint32_t *got);

/* Writes the tails in memory; with `durable` also syncs every file written since. @thread any */
MUST_CHECK enum tern_code queue_table_flush(struct queue_table *table, bool durable,
                                            struct tern_error *err);
/* Raises minimums to the first unit at or after log_min and removes whole files before (not the
 * last). */
MUST_CHECK enum tern_code queue_table_expire(struct queue_table *table, int64_t log_min,
                                             struct tern_error *err);
/*
 * Deleting a topic: detach takes its queues out, dead, and moves their folder away (TERN_NOT_FOUND:
 * it has none; `moved` is where to); discard removes that, durably. delete_topic does both.
 */
MUST_CHECK enum tern_code queue_table_detach_topic(struct queue_table *table, const char *topic,
                                                   char moved[FS_PATH_BYTES],
                                                   struct tern_error *err);
MUST_CHECK enum tern_code queue_table_discard(struct queue_table *table, const char *moved,
                                              struct tern_error *err);
MUST_CHECK enum tern_code queue_table_delete_topic(struct queue_table *table, const char *topic,
                                                   struct tern_error *err);
/* Whether a queue of the topic ends with a record before phys_off. A walk over all queues. */
bool queue_table_has_before(struct queue_table *table, const char *topic, int64_t phys_off);

/* First offset in [min, max) whose record is at or beyond phys_off; max when there is none. Blank
 * units count as before. @blocks on the disk */
MUST_CHECK enum tern_code queue_end_at(struct consume_queue *queue, int64_t phys_off,
                                       int64_t *offset);
/*
 * The log was cut: every queue ends with the last record before `at`; durable when it returns.
 * clear: all queues go. @thread who holds the dispatch token @blocks on the disk
 */
MUST_CHECK enum tern_code queue_table_cut(struct queue_table *table, int64_t at,
                                          struct tern_error *err);
MUST_CHECK enum tern_code queue_table_clear(struct queue_table *table, struct tern_error *err);
/*
 * From now on units that find no room on the disk stay in memory, up to `most` of them above the
 * usual ones; a flush brings them to the disk when there is room. 0: no more. Returns how many
 * there are since the last call. @thread the dispatch token's holder
 */
int64_t queue_table_keep(struct queue_table *table, int64_t most);
/* After recovery and replay: every queue's next offset becomes its max. */
void queue_table_settle(struct queue_table *table);
uint32_t queue_table_count(struct queue_table *table);
int32_t queue_table_last_queue(struct queue_table *table, const char *topic);
/* Highest storeTimestamp below which all units are synced is the caller's to track (checkpoint). */

#endif
