/*
 * Recovery: finds where the log ends, and makes the files say so. Internal to the store.
 */
#ifndef STORE_RECOVERY_H
#define STORE_RECOVERY_H

#include "broker/store/checkpoint.h"
#include "broker/store/commit_log_internal.h"

struct recovery_input {
    struct commit_log *log;
    bool clean; /* no abort mark */
    struct checkpoint checkpoint;
    bool mark_known; /* the flush mark could be read: */
    int64_t mark;    /* every byte before it was synced */
    bool read_only;  /* damage is reported, not refused, and nothing is written */
};

struct recovery_result {
    int64_t end;           /* of the last whole record */
    int64_t cut_bytes;     /* that lay behind it */
    int64_t last_store_ms; /* newest of the records checked, 0 when there were none */
    int64_t checked_from;  /* records from here on were checked */
    bool as_closed;        /* it ends where a clean stop left it: nothing is to be done */
};

/*
 * Checks the log from the segment that the rules name and decides where it ends; the log's files
 * are only read. TERN_CORRUPT: whole records lie behind a damaged one that had been flushed.
 */
MUST_CHECK enum tern_code recovery_scan(const struct recovery_input *input,
                                        struct recovery_result *result, struct tern_error *err);

/*
 * Removes everything behind result->end, durably, syncs what is before, makes a segment for the end
 * when there is none, and sets the log's positions.
 */
MUST_CHECK enum tern_code recovery_cut(const struct recovery_input *input,
                                       const struct recovery_result *result,
                                       struct tern_error *err);

#endif
