/*
 * Progress of levels: bases that move over marks.
 *
 * Threads: one at a time. Failure modes: no room for a mark: counted, and the message may come
 * twice, since losing it would be worse.
 */
#include "broker/schedule/level_progress.h"

#include <stdlib.h>
#include <string.h>

void level_progress_fini(struct level_progress *levels)
{
    free(levels->marks);
    levels->marks = NULL;
    levels->count = levels->cap = 0;
}

/* Index of the first mark that is not before. */
static uint32_t lower_bound(const struct level_progress *levels, int32_t queue_id, int64_t off)
{
    uint32_t low = 0;
    uint32_t high = levels->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const struct level_mark *mark = &levels->marks[mid];
        if (mark->queue_id < queue_id || (mark->queue_id == queue_id && mark->queue_off < off))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool marked(const struct level_progress *levels, int32_t queue_id, int64_t off)
{
    uint32_t at = lower_bound(levels, queue_id, off);
    return at < levels->count && levels->marks[at].queue_id == queue_id &&
           levels->marks[at].queue_off == off;
}

/* Over what is marked already. */
static void move_on(struct level_progress *levels, int32_t queue_id)
{
    uint32_t at = lower_bound(levels, queue_id, levels->base[queue_id]);
    for (; at < levels->count && levels->marks[at].queue_id == queue_id &&
           levels->marks[at].queue_off == levels->base[queue_id];
         at++)
        levels->base[queue_id]++;
}

static enum tern_code insert(struct level_progress *levels, const struct level_mark *mark)
{
    if (levels->count == LEVEL_MARKS_MAX)
        return TERN_LIMIT;
    if (levels->count == levels->cap) {
        uint32_t cap = levels->cap ? levels->cap * 2 : 64;
        struct level_mark *grown = realloc(levels->marks, cap * sizeof *grown);
        if (!grown)
            return TERN_NO_MEMORY;
        levels->marks = grown;
        levels->cap = cap;
    }
    uint32_t at = lower_bound(levels, mark->queue_id, mark->queue_off);
    memmove(levels->marks + at + 1, levels->marks + at,
            (levels->count - at) * sizeof *levels->marks);
    levels->marks[at] = *mark;
    levels->count++;
    return TERN_OK;
}

enum tern_code level_progress_done(struct level_progress *levels, int32_t queue_id,
                                   int64_t queue_off, int64_t phys_off, int64_t min_off)
{
    int64_t *base = &levels->base[queue_id];
    if (queue_off > *base)
        level_progress_raise(levels, queue_id, min_off < queue_off ? min_off : queue_off);
    if (queue_off < *base || marked(levels, queue_id, queue_off))
        return TERN_OK;
    if (queue_off == *base) {
        ++*base;
        move_on(levels, queue_id);
        return TERN_OK;
    }
    const struct level_mark mark = {queue_id, queue_off, phys_off};
    enum tern_code code = insert(levels, &mark);
    levels->dropped += code != TERN_OK;
    return code;
}

bool level_progress_is_done(const struct level_progress *levels, int32_t queue_id,
                            int64_t queue_off)
{
    return queue_off < levels->base[queue_id] || marked(levels, queue_id, queue_off);
}

void level_progress_raise(struct level_progress *levels, int32_t queue_id, int64_t off)
{
    if (off > levels->base[queue_id])
        levels->base[queue_id] = off;
    move_on(levels, queue_id);
}

void level_progress_cut(struct level_progress *levels, int64_t phys_off,
                        const int64_t base[DELAY_LEVELS_MAX])
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < levels->count; i++)
        if (levels->marks[i].phys_off < phys_off)
            levels->marks[kept++] = levels->marks[i];
    levels->count = kept;
    memcpy(levels->base, base, sizeof levels->base);
}

void level_progress_prune(struct level_progress *levels, const int64_t oldest[DELAY_LEVELS_MAX])
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < levels->count; i++)
        if (levels->marks[i].queue_off >= oldest[levels->marks[i].queue_id])
            levels->marks[kept++] = levels->marks[i];
    levels->count = kept;
}
