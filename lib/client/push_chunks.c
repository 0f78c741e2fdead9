/*
 * Chunks, the messages of one pull each, and the lists of the pool that they wait in.
 *
 *   fresh   nobody has begun them, in order          open   begun, with messages left; newest first
 *   later   to be tried again, by due time
 *
 * Threads: lists belong to whoever holds the pool's lock; a chunk's messages to who has claimed
 * them. Failure modes: no memory for a chunk.
 */
#include <stdlib.h>

#include "client/message_internal.h"
#include "client/push_internal.h"

struct push_chunk *push_chunk_create(struct push_queue *queue, uint32_t count)
{
    struct push_chunk *chunk = malloc(sizeof *chunk + count * sizeof chunk->messages[0]);
    if (!chunk)
        return NULL;
    *chunk = (struct push_chunk){.queue = queue, .refs = 1, .count = count};
    push_queue_ref(queue);
    return chunk;
}

void push_let_go(struct push_queue *queue, struct tern_message **messages, uint32_t count)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t size;
        (void)message_stored_body(messages[i], &size);
        bytes += (int64_t)size;
        tern_message_unref(messages[i]);
    }
    int64_t bytes_left =
        atomic_fetch_sub_explicit(&queue->cached_bytes, bytes, memory_order_relaxed) - bytes;
    uint32_t left = atomic_fetch_sub_explicit(&queue->cached, count, memory_order_acq_rel) - count;
    if (!atomic_load_explicit(&queue->throttled, memory_order_seq_cst))
        return;
    int64_t limit = atomic_load_explicit(&queue->limit, memory_order_relaxed);
    int64_t limit_bytes = atomic_load_explicit(&queue->limit_bytes, memory_order_relaxed);
    if ((int64_t)left <= limit / 2 && bytes_left <= limit_bytes / 2 &&
        atomic_exchange(&queue->throttled, false)) {
        atomic_store(&queue->hurry, true);
        push_wake(queue->consumer);
    }
}

void push_chunk_unref(struct push_chunk *chunk)
{
    if (atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) > 1)
        return;
    uint32_t claimed = atomic_load_explicit(&chunk->claimed, memory_order_relaxed);
    if (claimed < chunk->count)
        push_let_go(chunk->queue, &chunk->messages[claimed], chunk->count - claimed);
    push_queue_unref(chunk->queue);
    free(chunk);
}

void push_pool_insert_fresh(struct push_pool *pool, struct push_chunk *chunk)
{
    chunk->next = NULL;
    if (pool->fresh)
        pool->fresh_end->next = chunk;
    else
        pool->fresh = chunk;
    pool->fresh_end = chunk;
    pool->fresh_messages += push_chunk_unclaimed(chunk);
}

struct push_chunk *push_pool_pop_fresh(struct push_pool *pool)
{
    struct push_chunk *chunk = pool->fresh;
    pool->fresh = chunk->next;
    pool->fresh_messages -= push_chunk_unclaimed(chunk);
    return chunk;
}

void push_pool_insert_later(struct push_pool *pool, struct push_chunk *chunk)
{
    struct push_chunk **link = &pool->later;
    if (pool->later && pool->later_end->due_ns <= chunk->due_ns)
        link = &pool->later_end->next; /* as usual */
    while (*link && (*link)->due_ns <= chunk->due_ns)
        link = &(*link)->next;
    chunk->next = *link;
    *link = chunk;
    if (!chunk->next)
        pool->later_end = chunk;
}

/* Unlinks the chunk; false: it is not in this list. *end is right again. */
static bool unlink_chunk(struct push_chunk **list, struct push_chunk **end,
                         const struct push_chunk *chunk)
{
    struct push_chunk *before = NULL;
    struct push_chunk *at = *list;
    while (at && at != chunk) {
        before = at;
        at = at->next;
    }
    if (!at)
        return false;
    if (before)
        before->next = at->next;
    else
        *list = at->next;
    if (*end == at)
        *end = before;
    return true;
}

void push_pool_take_out(struct push_pool *pool, struct push_chunk *chunk)
{
    if (unlink_chunk(&pool->fresh, &pool->fresh_end, chunk))
        pool->fresh_messages -= push_chunk_unclaimed(chunk);
    else
        ENSURE(unlink_chunk(&pool->later, &pool->later_end, chunk));
}

void push_pool_open(struct push_pool *pool, struct push_chunk *chunk)
{
    chunk->prev = NULL;
    chunk->next = pool->open;
    if (pool->open)
        pool->open->prev = chunk;
    pool->open = chunk;
    chunk->listed = true;
}

void push_pool_close(struct push_pool *pool, struct push_chunk *chunk)
{
    if (chunk->prev)
        chunk->prev->next = chunk->next;
    else
        pool->open = chunk->next;
    if (chunk->next)
        chunk->next->prev = chunk->prev;
    chunk->listed = false;
}
