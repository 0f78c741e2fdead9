/*
 * Where records begin in a log that arrives as bytes, cut anywhere: follows sizes and magics, so
 * that it is known at once how far the log is whole, and nonsense is refused. Internal to the
 * commit log.
 */
#ifndef STORE_LOG_FRAME_H
#define STORE_LOG_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/store/record_head.h"

struct log_frame {
    int64_t segment_bytes;
    int64_t start;     /* where the record or filler that is arriving begins; all before is whole */
    int64_t size;      /* its length, 0 while not known: fewer than 8 bytes of it are there */
    int64_t store_ms;  /* of the last record that is whole, 0 when none was */
    size_t head_bytes; /* of `head` that are there; counted up to a whole head, or what is known */
    bool filler;
    uint8_t head[RECORD_HEAD_BYTES];
};

/* Everything before `at` is whole. */
void log_frame_init(struct log_frame *frame, int64_t segment_bytes, int64_t at);

/*
 * Takes bytes that follow at `end`, the end of what was taken before. false: they cannot be the
 * continuation of a log (*bad is where the wrong record begins); the frame is then to be thrown
 * away, so work on a copy.
 */
bool log_frame_take(struct log_frame *frame, int64_t end, const uint8_t *bytes, size_t size,
                    int64_t *bad);

#endif
