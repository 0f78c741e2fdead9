/*
 * Looking a key up: newest file first, in each the chain of its slot, which is newest first too.
 *
 * The files' times have a resolution of a second, so a hit here is a candidate within a second of
 * the range; the caller looks at the record itself, for its time as for its key.
 *
 * Threads: any. The files wanted are collected under the lock after the ring was applied, then
 * walked without it: entries below the count taken then do not change. On a full disk the ring
 * cannot be applied: it is looked through, under the same lock. Failure modes: other codes of the
 * disk; a chain that does not lead to ever smaller numbers is damaged and ends there.
 */
#include "broker/store/index_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SECOND_MS = 1000 };

struct range {
    int64_t begin_ms, end_ms;
};

/* A file as it was when the query began. */
struct searched {
    struct index_file *file; /* a reference */
    struct index_header header;
};

/* Keys of the ring: when they cannot be applied, they are searched where they are. */
struct in_ring {
    int64_t *phys; /* oldest first, for free(); NULL: none */
    size_t count;
};

/* @locks holds:STORE_INDEX */
static enum tern_code look_through_ring(const struct index_service *index, uint32_t hash,
                                        const struct range *range, struct in_ring *out)
{
    uint64_t tail = atomic_load(&index->tail);
    uint64_t head = atomic_load_explicit(&index->head, memory_order_acquire);
    size_t room = 0;
    for (uint64_t at = tail; at < head; at++) {
        const struct index_key *key = &index->ring[at & (index->ring_keys - 1)];
        if (key->hash != hash || key->store_ms < range->begin_ms || key->store_ms > range->end_ms)
            continue;
        if (out->count == room) {
            room = room ? room * 2 : 64;
            int64_t *phys = realloc(out->phys, room * sizeof *phys);
            if (!phys)
                return TERN_NO_MEMORY;
            out->phys = phys;
        }
        out->phys[out->count++] = key->phys_off;
    }
    return TERN_OK;
}

/* Files that overlap the range, newest first; with `ring` also what is only there. */
static enum tern_code collect(struct index_service *index, uint32_t hash, const struct range *range,
                              struct in_ring *ring, struct searched **out, uint32_t *count)
{
    *count = 0;
    lock_acquire(&index->lock);
    enum tern_code code = ring ? look_through_ring(index, hash, range, ring) : TERN_OK;
    *out = malloc(((size_t)index->file_count + 1) * sizeof **out);
    for (uint32_t i = index->file_count; *out && i > 0; i--) {
        struct index_file *file = index->files[i - 1];
        const struct index_header *h = &file->header;
        if (h->count > 1 && h->begin_ms <= range->end_ms && h->end_ms >= range->begin_ms) {
            index_file_ref(file);
            (*out)[(*count)++] = (struct searched){.file = file, .header = *h};
        }
        if (h->count > 1 && h->begin_ms < range->begin_ms)
            break; /* older files end before */
    }
    lock_release(&index->lock);
    return *out ? code : TERN_NO_MEMORY;
}

/* Walks one chain; *more becomes false when on_hit wants no more. */
static enum tern_code walk(struct searched *s, struct file *handle, uint32_t hash,
                           const struct range *range, bool (*on_hit)(void *, int64_t), void *arg,
                           bool *more)
{
    uint32_t number = 0;
    enum tern_code code = index_read_slot(handle, index_slot_of(s->file, hash), &number);
    while (code == TERN_OK && number > 0 && number < s->file->entries && *more) {
        struct index_entry entry;
        code = index_read_entry(handle, s->file->slots, number, &entry);
        if (code || (number < s->header.count && entry.time_diff < 0))
            break;
        /* The first entry's time counts from the file before; its real one is the file's beginning.
         */
        int64_t time_ms =
            s->header.begin_ms + (number == 1 ? 0 : (int64_t)entry.time_diff * SECOND_MS);
        if (number < s->header.count) {
            if (time_ms + SECOND_MS <= range->begin_ms)
                break;
            if (entry.hash == hash && time_ms <= range->end_ms)
                *more = on_hit(arg, entry.phys_off);
        }
        if (entry.prev >= number)
            break;
        number = entry.prev;
    }
    return code;
}

enum tern_code index_service_query(struct index_service *index, const char *topic, const char *key,
                                   int64_t begin_ms, int64_t end_ms,
                                   bool (*on_hit)(void *arg, int64_t phys_off), void *arg)
{
    const struct range range = {begin_ms, end_ms};
    uint32_t hash = index_key_hash(topic, strlen(topic), key, strlen(key));
    struct searched *files = NULL;
    uint32_t count = 0;
    bool more = true;
    struct in_ring ring = {NULL, 0};
    enum tern_code code = index_apply(index);
    if (code == TERN_OK || code == TERN_NO_SPACE)
        code = collect(index, hash, &range, code ? &ring : NULL, &files, &count);
    while (code == TERN_OK && more && ring.count > 0)
        more = on_hit(arg, ring.phys[--ring.count]);
    free(ring.phys);
    for (uint32_t i = 0; i < count; i++) {
        struct file *handle = NULL;
        if (code == TERN_OK && more) {
            enum tern_code opened =
                index_file_open(files[i].file, index->env->fs, index->dir, FS_READ, &handle);
            if (opened == TERN_OK)
                code = walk(&files[i], handle, hash, &range, on_hit, arg, &more);
            else if (opened != TERN_NOT_FOUND) /* expired since */
                code = opened;
            file_close(handle);
        }
        index_file_unref(files[i].file);
    }
    free(files);
    return code;
}
