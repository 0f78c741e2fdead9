/*
 * Commits, and what came from copies, between two persists of the offset table: written, not
 * synced, so that a killed broker has every progress that it acknowledged. A power loss may take
 * what the table's last persist does not have.
 *
 * Two files, written in turn. A persist switches to the other one before it looks at the table and
 * empties the one before when the table is on disk: whatever is not in the table is in a file.
 *
 *   commits ─► file 0 │ switch │ commits ─► file 1 … table durable ─► file 0 emptied
 *
 * Entries are replayed by version and offset, so order and repetition do not matter.
 */
#ifndef BROKER_OFFSET_JOURNAL_H
#define BROKER_OFFSET_JOURNAL_H

#include "broker/offsets.h"

struct offset_journal;

enum { OFFSET_JOURNAL_MAX_BYTES = 64 << 20 }; /* of a file; beyond, commits wait for the persist */

struct offset_journal_entry {
    const char *group, *topic; /* terminated, checked; one or both "" in a floor */
    int32_t queue_id;          /* -1: a floor */
    int64_t offset;
    struct offset_version version;
};
typedef void (*offset_journal_fn)(void *arg, const struct offset_journal_entry *entry);

/* Files are `path`.journal-0 and -1. Replays what they hold; *replayed counts. @blocks on the disk
 */
MUST_CHECK enum tern_code offset_journal_open(const struct env *env, const char *path,
                                              offset_journal_fn replay, void *arg,
                                              struct offset_journal **out, uint32_t *replayed,
                                              struct tern_error *err);
void offset_journal_close(struct offset_journal *journal);

/* One write to the page cache. A failure is logged: the commit then counts from the next persist.
 * @thread any */
void offset_journal_add(struct offset_journal *journal, const struct offset_journal_entry *entry);

/* Around a persist: switch first, then look at the table; when it is durable, say so. @thread one
 * at a time */
void offset_journal_switch(struct offset_journal *journal);
void offset_journal_settled(struct offset_journal *journal);

#endif
