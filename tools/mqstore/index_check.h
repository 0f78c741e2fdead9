/*
 * Compares the index files with the log's records, in the order of the log: every entry must belong
 * to a key of the record at its offset, every key must have its entry, every chain must lead
 * through the entries of its slot.
 *
 * An index file does not say how many slots it has: its length leaves many pairs of slots and
 * entries, and the right one is where the first and the last entry fit the header and the slots
 * lead to the last one. RocketMQ's default (5,000,000 and 20,000,000) is known by its length.
 */
#ifndef MQSTORE_INDEX_CHECK_H
#define MQSTORE_INDEX_CHECK_H

#include "base/record.h"
#include "tools/mqstore/findings.h"

struct index_check;

struct index_shape {
    struct index_header header;
    uint32_t slots, entries; /* 0: could not be told */
};

/* slots 0: to be found out. */
MUST_CHECK enum tern_code index_shape_read(const struct store_dir *dir,
                                           const struct index_dir_entry *index, uint32_t slots,
                                           struct index_shape *out, struct tern_error *err);

void index_check_create(const struct store_dir *dir, uint32_t slots, struct findings *findings,
                        struct index_check **out);
/* NULL allowed. */
void index_check_destroy(struct index_check *check);

/* `record` stands at phys_off, in log order; its body may be damaged. */
MUST_CHECK enum tern_code index_check_record(struct index_check *check, const struct record *record,
                                             int64_t phys_off, struct tern_error *err);
/* After the last record. */
MUST_CHECK enum tern_code index_check_end(struct index_check *check, int64_t log_end,
                                          struct tern_error *err);

/* Entries compared with their records. */
uint64_t index_check_entries(const struct index_check *check);

#endif
