/*
 * A commit log in memory, and records to put into it: what the derived half of the store needs of
 * the other.
 *
 * fake_log.c defines the functions of commit_log.h that dispatcher and reading use, so that a test
 * program which is linked with it runs without the real log.
 *
 * Threads: appending and expiring by one, reading by any.
 */
#ifndef TESTS_UNIT_STORE_FAKE_LOG_H
#define TESTS_UNIT_STORE_FAKE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/record.h"
#include "broker/store/commit_log.h"

enum { FAKE_CHUNK_BYTES = 64 * 1024 };

struct commit_log {
    uint8_t *bytes;
    size_t capacity;
    int64_t segment_bytes;
    _Atomic int64_t min, end;
    bool cold;              /* non-waiting reads get TERN_AGAIN */
    int64_t cold_from;      /* those at or beyond it, when > 0 */
    _Atomic unsigned reads; /* calls of commit_log_read() */
    enum tern_code failing; /* what reads return when not OK */
};

/* An empty log of `capacity` bytes; what does not fit ends the program. */
void fake_log_init(struct commit_log *log, size_t capacity, int64_t segment_bytes);
void fake_log_fini(struct commit_log *log);

/* What a test says of a record; the rest is made up. */
struct fake_record {
    const char *topic; /* NULL: "TopicTest" */
    int32_t queue_id;
    int64_t queue_off;
    const char *tags, *keys, *uniq_key, *delay; /* NULL: none */
    size_t body_bytes;
    uint32_t sys_flag;
    int64_t store_ms; /* 0: 1700000000000 + position */
};

/* Appends one record as the appender does, with filler at a segment's end; returns its position. */
int64_t fake_append(struct commit_log *log, const struct fake_record *what);

#endif
