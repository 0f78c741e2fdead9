/*
 * What is known for certain about delayed messages, and up to where in the log:
 * ROOT/ternmq/delay/checkpoint (docs/store-format.md). Beside it config/delayOffset.json tells
 * RocketMQ the levels' progress.
 *
 * The last snapshot is the newest. Older ones are kept for when the log is cut before it: progress
 * of the levels then starts again from the newest one that is not beyond the cut.
 */
#ifndef SCHEDULE_DELAY_CHECKPOINT_H
#define SCHEDULE_DELAY_CHECKPOINT_H

#include "broker/schedule/buckets.h"
#include "broker/schedule/level_progress.h"

enum { SNAPSHOTS_MAX = 16, SNAPSHOT_GAP_MS = 60000 };

struct delay_snapshot {
    int64_t position; /* of the log: all before it is in files and bases */
    int64_t taken_ms; /* wall clock */
    int64_t base[DELAY_LEVELS_MAX];
};

struct delay_snapshots {
    struct delay_snapshot rows[SNAPSHOTS_MAX];
    uint32_t count;
};

/* The newest becomes `snapshot`; the one before stays when it is SNAPSHOT_GAP_MS older than that.
 */
void delay_snapshots_add(struct delay_snapshots *snapshots, const struct delay_snapshot *snapshot);
/* Forgets those beyond phys_off; the newest left, NULL: none. */
const struct delay_snapshot *delay_snapshots_cut(struct delay_snapshots *snapshots,
                                                 int64_t phys_off);

/* A checkpoint as bytes; free(). NULL: no memory. Rows that are leaving are left out. */
uint8_t *delay_checkpoint_encode(const struct delay_snapshots *snapshots,
                                 const struct level_progress *levels, const struct buckets *buckets,
                                 size_t *size);
/* Replaces the file durably. @blocks on the disk @thread any */
MUST_CHECK enum tern_code delay_checkpoint_write(const struct env *env, const char *dir,
                                                 const uint8_t *bytes, size_t size,
                                                 struct tern_error *err);
/* Removes the file durably; none is fine. @blocks on the disk @thread any */
MUST_CHECK enum tern_code delay_checkpoint_remove(const struct env *env, const char *dir,
                                                  struct tern_error *err);
/*
 * Reads it into empty structs; levels->base is the last snapshot's. TERN_NOT_FOUND; TERN_CORRUPT:
 * what it says cannot be, and the structs hold nothing of use. @blocks on the disk
 */
MUST_CHECK enum tern_code delay_checkpoint_read(const struct env *env, const char *dir,
                                                struct delay_snapshots *snapshots,
                                                struct level_progress *levels,
                                                struct buckets *buckets, struct tern_error *err);

/* config/delayOffset.json: RocketMQ's shape. @blocks on the disk */
MUST_CHECK enum tern_code delay_offsets_write(const struct env *env, const char *path,
                                              const int64_t base[DELAY_LEVELS_MAX], uint32_t levels,
                                              struct tern_error *err);
/* *edited: by hand or by RocketMQ. TERN_NOT_FOUND, TERN_CORRUPT. @blocks on the disk */
MUST_CHECK enum tern_code delay_offsets_read(const struct env *env, const char *path,
                                             int64_t base[DELAY_LEVELS_MAX], bool *edited,
                                             struct tern_error *err);

#endif
