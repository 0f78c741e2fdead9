/*
 * Memory by moving a pointer.
 *
 *   blocks ──► [ newest, being filled ] ──► [ full ] ──► [ first, kept by reset ]
 *
 * Invariant: used_bytes is what was handed out since the last reset, rounded up to 16, and never
 * exceeds budget_bytes. Blocks double up to 64 KiB; a larger request gets a block of its own size.
 *
 * Threads: one at a time. Failure modes: NULL beyond the budget or without memory; the arena stays
 * usable.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>

enum { ARENA_ALIGN = 16, FIRST_BLOCK_BYTES = 4096, LARGEST_STEP_BYTES = 64 * 1024 };

struct arena_block {
    struct arena_block *next;
    size_t size;
    size_t used;
    _Alignas(ARENA_ALIGN) uint8_t data[];
};

void arena_init(struct arena *arena, size_t budget_bytes)
{
    arena->blocks = NULL;
    arena->used_bytes = 0;
    arena->budget_bytes = budget_bytes;
}

static void free_blocks(struct arena_block *block)
{
    while (block) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
}

void arena_fini(struct arena *arena)
{
    free_blocks(arena->blocks);
    arena->blocks = NULL;
    arena->used_bytes = 0;
}

static struct arena_block *add_block(struct arena *arena, size_t size)
{
    size_t want = FIRST_BLOCK_BYTES;
    if (arena->blocks) {
        want = arena->blocks->size * 2;
        if (want > LARGEST_STEP_BYTES)
            want = LARGEST_STEP_BYTES;
    }
    if (want < size)
        want = size;
    struct arena_block *block = malloc(sizeof *block + want);
    if (!block)
        return NULL;
    block->next = arena->blocks;
    block->size = want;
    block->used = 0;
    arena->blocks = block;
    return block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX - 2 * sizeof(struct arena_block) - ARENA_ALIGN)
        return NULL;
    size_t rounded = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (rounded == 0)
        rounded = ARENA_ALIGN;
    if (rounded > arena->budget_bytes - arena->used_bytes)
        return NULL;
    struct arena_block *block = arena->blocks;
    if (!block || block->size - block->used < rounded)
        block = add_block(arena, rounded);
    if (!block)
        return NULL;
    void *out = block->data + block->used;
    block->used += rounded;
    arena->used_bytes += rounded;
    return out;
}

void arena_reset(struct arena *arena)
{
    struct arena_block *block = arena->blocks;
    while (block && block->next) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
    if (block &&
        block->size > LARGEST_STEP_BYTES) { /* one huge request must not be kept for ever */
        free(block);
        block = NULL;
    }
    if (block)
        block->used = 0;
    arena->blocks = block;
    arena->used_bytes = 0;
}
