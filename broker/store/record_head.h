/*
 * Looking at the head of one record in the commit log without reading its body. Internal to the
 * store.
 */
#ifndef STORE_RECORD_HEAD_H
#define STORE_RECORD_HEAD_H

#include "broker/store/commit_log.h"

struct record_head {
    uint32_t total_size;
    int64_t queue_off;
    int64_t store_ms;
};

enum { RECORD_HEAD_BYTES = 76 };
/* false: no record that says it stands at phys_off begins so. */
bool record_head_parse(const uint8_t bytes[RECORD_HEAD_BYTES], int64_t phys_off,
                       struct record_head *out);

/*
 * TERN_NOT_FOUND when no record begins there (also when a segment's filler does), TERN_AGAIN with
 * nowait. A record's head carries its own position, so that the middle of a body is not taken for
 * one. @thread any
 */
MUST_CHECK enum tern_code record_head_read(struct commit_log *log, int64_t phys_off, bool nowait,
                                           struct record_head *out);

/*
 * The whole record, in memory from malloc() that the caller frees; parsed into *record. max_size
 * bounds what is believed. Codes as above, and TERN_NO_MEMORY.
 */
MUST_CHECK enum tern_code record_read(struct commit_log *log, int64_t phys_off, size_t max_size,
                                      bool nowait, uint8_t **bytes, struct record *record);

/* Reads all of [phys_off, phys_off + size), which lies in one segment. */
MUST_CHECK enum tern_code record_read_bytes(struct commit_log *log, int64_t phys_off, uint8_t *buf,
                                            size_t size, bool nowait);

#endif
