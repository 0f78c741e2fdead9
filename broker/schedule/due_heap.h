/*
 * Waiting messages by key, the earliest first: those of the timer that are due soon. Bounded; when
 * it is full its later half is let go, and the caller is told from where on it knows nothing any
 * more.
 */
#ifndef SCHEDULE_DUE_HEAP_H
#define SCHEDULE_DUE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Order: by key, then by offset. */
struct due_key {
    int64_t key_ms, queue_off;
};

struct due_entry {
    struct due_key key;
    int64_t phys_off;
};

struct due_heap {
    struct due_entry *entries;
    uint32_t count, cap;
};

static inline int due_key_compare(const struct due_key *a, const struct due_key *b)
{
    if (a->key_ms != b->key_ms)
        return a->key_ms < b->key_ms ? -1 : 1;
    return a->queue_off < b->queue_off ? -1 : a->queue_off > b->queue_off;
}

MUST_CHECK enum tern_code due_heap_init(struct due_heap *heap, uint32_t cap);
void due_heap_fini(struct due_heap *heap);
/* There is room: count < cap. */
void due_heap_push(struct due_heap *heap, const struct due_entry *entry);
/* The earliest; NULL when empty. */
const struct due_entry *due_heap_first(const struct due_heap *heap);
void due_heap_pop(struct due_heap *heap);
/* Searches all. */
bool due_heap_find(const struct due_heap *heap, const struct due_key *key);
bool due_heap_remove(struct due_heap *heap, const struct due_key *key);
/* Ascending; it stays a heap. */
void due_heap_sort(struct due_heap *heap);
/* Lets the later half go; returns the last key that stays. Not when empty. */
struct due_key due_heap_shed(struct due_heap *heap);

#endif
