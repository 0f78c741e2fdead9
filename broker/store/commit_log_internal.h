/*
 * The commit log as its own parts see it: recovery, appender, flusher, retention.
 *
 *        min                      flushed       whole         end
 *   ──────┬──────────────────────────┬────────────┬─────────────┬───────── segment's end
 *   gone  │ on disk, read from here  │ written    │ part of one │ zeros
 *
 * One writer per position: retention moves min, the flusher flushed, the append token's holder end
 * and whole. Each is published with release after the thing it speaks of is done, and read with
 * acquire. (flushed may lie on either side of whole.)
 *
 * Positions only grow, but for a cut. Its maker keeps all four writers still, then:
 *
 *   whole, end, flushed lowered ─► cuts odd ─► files cut ─► cuts even ─► appends go on
 *
 * A read that saw the same `cuts` before and after has read bytes that were not touched meanwhile:
 * either it began before the lowering and ended before the files were touched, or it was bounded by
 * the lowered whole end.
 */
#ifndef STORE_COMMIT_LOG_INTERNAL_H
#define STORE_COMMIT_LOG_INTERNAL_H

#include "broker/store/commit_log.h"
#include "broker/store/segments.h"

struct commit_log {
    const struct env *env;
    struct segments segments;
    _Atomic int64_t min;
    _Atomic int64_t flushed;
    _Atomic int64_t end;
    _Atomic int64_t whole;
    _Atomic uint32_t cuts; /* see commit_log_cuts() */
    /* Store time of the newest record before `end`; written after it, so that flushing what was the
     * end after reading this time covers every record stored before it. */
    _Atomic int64_t last_store_ms;
    /* Segments renamed into commitlog/ so far: raised before the end passes into the new one. */
    _Atomic uint32_t dir_changes;
};

/* Opens ROOT/commitlog with positions at 0: recovery sets them. The directory must be there. */
MUST_CHECK enum tern_code commit_log_open(const struct env *env, const char *root,
                                          int64_t segment_bytes, bool read_only,
                                          struct commit_log **out, struct tern_error *err);
void commit_log_close(struct commit_log *log);

/* After recovery: [min, end) is whole; all of it flushed when `flushed` says so. */
void commit_log_set_range(struct commit_log *log, int64_t min, int64_t flushed, int64_t end,
                          int64_t last_store_ms);

/* store_ms 0: no record ends here. @thread the append token's holder */
void commit_log_publish(struct commit_log *log, int64_t end, int64_t whole, int64_t store_ms);
/* The cut: positions go down to `at`, then back to work. @thread its maker */
void commit_log_cut_begin(struct commit_log *log, int64_t at, int64_t last_store_ms);
void commit_log_cut_end(struct commit_log *log);
/* Likewise reading any bytes that were written, also behind the whole end; nobody cuts meanwhile.
 */
MUST_CHECK enum tern_code commit_log_read_written(struct commit_log *log, int64_t phys_off,
                                                  void *buf, size_t size, size_t *got);
/* @thread retention: the first segment is gone */
void commit_log_update_min(struct commit_log *log);

#endif
