/*
 * The commit log: its positions and reading from it. Appending is appender.c, flushing flusher.c,
 * expiring retention.c, opening after a stop recovery.c; the files themselves are segments.c.
 *
 * Place: every message's bytes lie here once; consume queues and index only point here.
 *
 * Invariants: min <= flushed <= end, whole <= end; a byte before `end` does not change, but by a
 * cut (commit_log_internal.h); min is the first segment's base. Threads: reads from any. A read
 * checks min before and holds a reference on the segment, so that expiry under way gives either the
 * right bytes or TERN_NOT_FOUND; one that a cut has overtaken is done again. Failure modes: an
 * error of the disk is the read's own; nothing is latched by reading.
 */
#include "broker/store/commit_log_internal.h"

#include <stdlib.h>

enum tern_code commit_log_open(const struct env *env, const char *root, int64_t segment_bytes,
                               bool read_only, struct commit_log **out, struct tern_error *err)
{
    *out = NULL;
    struct commit_log *log = calloc(1, sizeof *log);
    if (!log)
        return error_set(err, TERN_NO_MEMORY, "%s: no memory", root);
    log->env = env;
    enum tern_code code = segments_init(&log->segments, env, root, segment_bytes, read_only);
    if (code)
        error_set(err, code, "%s: path too long", root);
    else
        code = segments_load(&log->segments, err);
    if (code) {
        commit_log_close(log);
        return code;
    }
    *out = log;
    return TERN_OK;
}

void commit_log_close(struct commit_log *log)
{
    if (!log)
        return;
    segments_fini(&log->segments);
    free(log);
}

void commit_log_set_range(struct commit_log *log, int64_t min, int64_t flushed, int64_t end,
                          int64_t last_store_ms)
{
    ENSURE(min <= flushed && flushed <= end);
    atomic_store(&log->min, min);
    atomic_store(&log->flushed, flushed);
    atomic_store(&log->end, end);
    atomic_store(&log->whole, end);
    atomic_store(&log->last_store_ms, last_store_ms);
}

void commit_log_publish(struct commit_log *log, int64_t end, int64_t whole, int64_t store_ms)
{
    atomic_store_explicit(&log->end, end, memory_order_release);
    atomic_store_explicit(&log->whole, whole, memory_order_release);
    if (store_ms > atomic_load_explicit(&log->last_store_ms, memory_order_relaxed))
        atomic_store_explicit(&log->last_store_ms, store_ms, memory_order_release);
}

void commit_log_cut_begin(struct commit_log *log, int64_t at, int64_t last_store_ms)
{
    ENSURE(atomic_load(&log->cuts) % 2 == 0);
    atomic_store(&log->whole, at);
    if (atomic_load(&log->flushed) > at)
        atomic_store(&log->flushed, at);
    atomic_store(&log->end, at);
    atomic_store(&log->last_store_ms, last_store_ms);
    atomic_fetch_add(&log->cuts, 1);
}

void commit_log_cut_end(struct commit_log *log)
{
    atomic_fetch_add(&log->cuts, 1);
}

void commit_log_update_min(struct commit_log *log)
{
    struct segment *first = segments_first(&log->segments);
    ENSURE(first != NULL);
    atomic_store_explicit(&log->min, first->base, memory_order_release);
    segment_unref(first);
}

int64_t commit_log_min(const struct commit_log *log)
{
    return atomic_load_explicit(&log->min, memory_order_acquire);
}

int64_t commit_log_end(const struct commit_log *log)
{
    return atomic_load_explicit(&log->end, memory_order_acquire);
}

int64_t commit_log_whole(const struct commit_log *log)
{
    return atomic_load_explicit(&log->whole, memory_order_acquire);
}

uint32_t commit_log_cuts(const struct commit_log *log)
{
    return atomic_load(&log->cuts);
}

int64_t commit_log_flushed(const struct commit_log *log)
{
    return atomic_load_explicit(&log->flushed, memory_order_acquire);
}

int64_t commit_log_segment_bytes(const struct commit_log *log)
{
    return log->segments.bytes;
}

/* Once, without regard to cuts; not beyond `end`. */
static enum tern_code read_below(struct commit_log *log, int64_t end, int64_t phys_off, void *buf,
                                 size_t size, bool nowait, size_t *got)
{
    *got = 0;
    if (phys_off < commit_log_min(log) || phys_off >= end)
        return TERN_NOT_FOUND;
    struct segment *segment = segments_find(&log->segments, phys_off);
    if (!segment)
        return TERN_NOT_FOUND; /* expired since */
    int64_t limit = segment->base + log->segments.bytes;
    if (limit > end)
        limit = end;
    if ((int64_t)size > limit - phys_off)
        size = (size_t)(limit - phys_off);
    int64_t at = phys_off - segment->base;
    enum tern_code code = nowait ? file_pread_nowait(segment->file, buf, size, at, got)
                                 : file_pread(segment->file, buf, size, at, got);
    segment_unref(segment);
    return code;
}

enum tern_code commit_log_read(struct commit_log *log, int64_t phys_off, void *buf, size_t size,
                               bool nowait, size_t *got)
{
    for (;;) {
        uint32_t cuts = commit_log_cuts(log);
        enum tern_code code =
            read_below(log, commit_log_whole(log), phys_off, buf, size, nowait, got);
        atomic_thread_fence(memory_order_seq_cst);
        if (commit_log_cuts(log) == cuts)
            return code;
    }
}

enum tern_code commit_log_read_written(struct commit_log *log, int64_t phys_off, void *buf,
                                       size_t size, size_t *got)
{
    return read_below(log, commit_log_end(log), phys_off, buf, size, false, got);
}
