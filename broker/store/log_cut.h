/*
 * Cutting the commit log's files: what recovery does with a torn tail, and a replica with bytes
 * that its source does not have. Internal to the store.
 */
#ifndef STORE_LOG_CUT_H
#define STORE_LOG_CUT_H

#include "broker/store/segments.h"

/*
 * Ends the log at `end`: later segments go, last first, each durably, so that a crash never leaves
 * a gap; what lies behind in the segment of the end becomes zeros, durably. After an error the log
 * is as it was or partly cut. @thread nobody appends or flushes @blocks on the disk
 */
MUST_CHECK enum tern_code log_cut_files(struct segments *set, int64_t end, struct tern_error *err);

/*
 * Takes every segment out of the set and moves its file to `dir`, last first; "": removes it.
 * Durable when it returns; doing it again finishes what was begun. @thread likewise
 */
MUST_CHECK enum tern_code log_move_files(struct segments *set, const char *dir,
                                         struct tern_error *err);

#endif
