/*
 * The commit log: segments of equal size named by their first offset, appended by whoever holds the
 * token. Internal to the store.
 *
 * Who appends: a request joins a bounded queue; if the token is free the caller takes it and
 * appends for everybody queued, one pwritev a run, then publishes the new end once. On a foreign
 * (transport) thread the holder stops after 4 MiB or 2 ms, or after one slow write or when the next
 * segment is not ready, and hands the token to the appender task.
 *
 * A record never crosses a segment: what does not fit with 8 bytes to spare begins the next one,
 * the rest is filler headed by its length and BLANK_MAGIC. Segments are reserved and zeroed ahead,
 * outside commitlog/ (in `prepared/`), and renamed in.
 */
#ifndef STORE_COMMIT_LOG_H
#define STORE_COMMIT_LOG_H

#include "broker/store/store.h"

struct commit_log;

/*
 * First retained byte, end of what was written, end of the last whole record or filler, end of what
 * is on disk. Only a copy that takes bytes has an end beyond the whole end. @thread any
 */
int64_t commit_log_min(const struct commit_log *log);
int64_t commit_log_end(const struct commit_log *log);
int64_t commit_log_whole(const struct commit_log *log);
int64_t commit_log_flushed(const struct commit_log *log);
int64_t commit_log_segment_bytes(const struct commit_log *log);

/*
 * Goes up by one when a cut of the log begins and when it ends, so it is odd in between. What was
 * read from queues and log under two different values does not belong together. @thread any
 */
uint32_t commit_log_cuts(const struct commit_log *log);

/*
 * Reads up to `size` bytes from phys_off, not beyond the segment's or the whole end; *got may be
 * less. TERN_NOT_FOUND when phys_off is before min or not before the whole end; TERN_AGAIN with
 * nowait when the first byte is not in memory. A segment being expired stays readable until the
 * read is done. @thread any
 */
MUST_CHECK enum tern_code commit_log_read(struct commit_log *log, int64_t phys_off, void *buf,
                                          size_t size, bool nowait, size_t *got);

#endif
