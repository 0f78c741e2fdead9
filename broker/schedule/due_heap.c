/*
 * A binary heap in an array.
 *
 * Threads: one at a time. Failure modes: none after init.
 */
#include "broker/schedule/due_heap.h"

#include <stdlib.h>

enum tern_code due_heap_init(struct due_heap *heap, uint32_t cap)
{
    *heap = (struct due_heap){.entries = calloc(cap, sizeof *heap->entries), .cap = cap};
    return heap->entries ? TERN_OK : TERN_NO_MEMORY;
}

void due_heap_fini(struct due_heap *heap)
{
    free(heap->entries);
    *heap = (struct due_heap){0};
}

static bool before(const struct due_entry *a, const struct due_entry *b)
{
    return due_key_compare(&a->key, &b->key) < 0;
}

static void rise(struct due_heap *heap, uint32_t at)
{
    struct due_entry entry = heap->entries[at];
    while (at > 0 && before(&entry, &heap->entries[(at - 1) / 2])) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entries[at] = entry;
}

static void sink(struct due_heap *heap, uint32_t at)
{
    struct due_entry entry = heap->entries[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!before(&heap->entries[child], &entry))
            break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = entry;
}

void due_heap_push(struct due_heap *heap, const struct due_entry *entry)
{
    ENSURE(heap->count < heap->cap);
    heap->entries[heap->count++] = *entry;
    rise(heap, heap->count - 1);
}

const struct due_entry *due_heap_first(const struct due_heap *heap)
{
    return heap->count ? &heap->entries[0] : NULL;
}

static void remove_at(struct due_heap *heap, uint32_t at)
{
    struct due_entry last = heap->entries[--heap->count];
    if (at == heap->count)
        return;
    heap->entries[at] = last;
    rise(heap, at);
    sink(heap, at);
}

void due_heap_pop(struct due_heap *heap)
{
    if (heap->count)
        remove_at(heap, 0);
}

static uint32_t index_of(const struct due_heap *heap, const struct due_key *key)
{
    uint32_t at = 0;
    while (at < heap->count && due_key_compare(&heap->entries[at].key, key) != 0)
        at++;
    return at;
}

bool due_heap_find(const struct due_heap *heap, const struct due_key *key)
{
    return index_of(heap, key) < heap->count;
}

bool due_heap_remove(struct due_heap *heap, const struct due_key *key)
{
    uint32_t at = index_of(heap, key);
    if (at == heap->count)
        return false;
    remove_at(heap, at);
    return true;
}

static int compare(const void *a, const void *b)
{
    const struct due_entry *left = a;
    const struct due_entry *right = b;
    return due_key_compare(&left->key, &right->key);
}

void due_heap_sort(struct due_heap *heap)
{
    qsort(heap->entries, heap->count, sizeof *heap->entries, compare);
}

struct due_key due_heap_shed(struct due_heap *heap)
{
    ENSURE(heap->count > 0);
    due_heap_sort(heap);
    heap->count = (heap->count + 1) / 2;
    return heap->entries[heap->count - 1].key;
}
