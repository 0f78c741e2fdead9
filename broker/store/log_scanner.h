/*
 * Reads the log's records one after the other through a buffer of its own, checking each. Internal
 * to the store: recovery, tools.
 */
#ifndef STORE_LOG_SCANNER_H
#define STORE_LOG_SCANNER_H

#include "base/record.h"
#include "broker/store/segments.h"

struct log_scanner {
    struct segments *set;
    int64_t unsure_from; /* bytes from here on may never have reached the disk; INT64_MAX: none */
    struct segment *segment; /* that the buffer is of; a reference */
    uint8_t *buffer;
    size_t capacity;
    size_t filled;
    int64_t buffer_off; /* log offset of buffer[0] */
};

enum scan_state {
    SCAN_RECORD, /* *record is whole and stands at its own offset */
    SCAN_BLANK,  /* filler: go on at the next segment */
    SCAN_ZEROS,  /* the eight bytes here are zero: nothing was written */
    SCAN_BAD,    /* something else */
    SCAN_END     /* there is no segment at this offset */
};

MUST_CHECK enum tern_code log_scanner_init(struct log_scanner *scanner, struct segments *set);
void log_scanner_fini(struct log_scanner *scanner);

/* What stands at phys_off. record's pointers are valid until the next call. @blocks on the disk */
MUST_CHECK enum tern_code log_scanner_at(struct log_scanner *scanner, int64_t phys_off,
                                         enum scan_state *state, struct record *record);

/* Whether the properties hold a NUL: in a doubtful place, bytes that did not reach the disk. */
bool log_scanner_has_nul(const struct record *record);

/*
 * The first offset from `from` on where a whole record stands at its own offset, -1 when there is
 * none in any segment. *record is that record.
 */
MUST_CHECK enum tern_code log_scanner_find(struct log_scanner *scanner, int64_t from,
                                           int64_t *found, struct record *record);

/*
 * The end of the last byte that is not zero, from `from` on; `from` when all are. For reports: a
 * mebibyte of zeros ends the look into a segment.
 */
MUST_CHECK enum tern_code log_scanner_last_byte(struct log_scanner *scanner, int64_t from,
                                                int64_t *end);

#endif
