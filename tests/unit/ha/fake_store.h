/*
 * A store that is memory: bytes at positions, records of FAKE_RECORD_BYTES, codes that tests set.
 * What happens to it is written to a diary, one letter each, to be compared by order:
 *   a append  C cut  P cut of a partial record  R reset  (others write theirs, too)
 */
#ifndef TESTS_UNIT_HA_FAKE_STORE_H
#define TESTS_UNIT_HA_FAKE_STORE_H

#include "broker/store/store.h"

enum { FAKE_STORE_BYTES = 1 << 20, FAKE_RECORD_BYTES = 100, FAKE_SEGMENT_BYTES = 1 << 16 };

struct store {
    struct store_positions at;
    uint8_t bytes[FAKE_STORE_BYTES];
    bool sync_flush, flushes; /* flushes: whatever is appended is flushed and dispatched at once */
    enum tern_code append_code, cut_code, reset_code;
    unsigned again;  /* the next so many appends that may not wait get TERN_AGAIN */
    unsigned waited; /* appends that were allowed to wait */
    int64_t cut_at, reset_at;
    char *diary;
    size_t diary_size;
};

void fake_store_note(struct store *store, char letter);
/* What the byte at a position is, written under an epoch of this id. */
uint8_t fake_byte(int64_t phys_off, uint64_t epoch_id);
/* Appends bytes of this epoch up to `end`, flushed and dispatched. */
void fake_store_write(struct store *store, int64_t end, uint64_t epoch_id);

#endif
