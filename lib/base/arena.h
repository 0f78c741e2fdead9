/*
 * Memory that lives as long as one request: allocated by moving a pointer, freed as a whole. Has a
 * budget, so that a hostile message cannot make us allocate without limit.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first; the last one is kept over resets */
    size_t used_bytes;
    size_t budget_bytes;
};

/* Allocates the first block of block_bytes lazily; all allocations together may not exceed
 * budget_bytes. */
void arena_init(struct arena *arena, size_t budget_bytes);
void arena_fini(struct arena *arena);
/* Aligned to 16; NULL beyond the budget or without memory. */
void *arena_alloc(struct arena *arena, size_t size);
/* Forgets everything; keeps one block for the next use. */
void arena_reset(struct arena *arena);

#endif
