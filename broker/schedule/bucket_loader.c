/*
 * Loading buckets.
 *
 * Memory: `cap` entries, however many wait. When they are more, the later half of what was found is
 * let go, and the caller comes again with `after` = what it got. Items may be added to the file
 * between two steps: both passes go on to where the file ends then.
 *
 * Threads: as the header. Failure modes: damage in the file is TERN_CORRUPT.
 */
#include "broker/schedule/bucket_loader.h"

#include <stdlib.h>
#include <string.h>

enum tern_code bucket_loader_init(struct bucket_loader *loader, uint32_t cap)
{
    *loader = (struct bucket_loader){.items = calloc(BUCKET_READ_MAX, sizeof *loader->items)};
    return loader->items ? due_heap_init(&loader->found, cap) : TERN_NO_MEMORY;
}

void bucket_loader_fini(struct bucket_loader *loader)
{
    due_heap_fini(&loader->found);
    free(loader->items);
    loader->items = NULL;
}

void bucket_loader_begin(struct bucket_loader *loader, int64_t id, const struct due_key *after)
{
    loader->active = true;
    loader->id = id;
    loader->after = *after;
    loader->found.count = 0;
    loader->bounded = loader->second = false;
    loader->at = 0;
}

static bool wanted(const struct bucket_loader *loader, const struct bucket_item *item)
{
    return !item->done && due_key_compare(&item->key, &loader->after) > 0 &&
           (!loader->bounded || due_key_compare(&item->key, &loader->bound) <= 0);
}

/* First pass. */
static void collect(struct bucket_loader *loader, const struct bucket_item *item)
{
    if (!wanted(loader, item))
        return;
    if (loader->found.count == loader->found.cap) {
        loader->bound = due_heap_shed(&loader->found);
        loader->bounded = true;
        if (!wanted(loader, item))
            return;
    }
    const struct due_entry entry = {item->key, item->phys_off};
    due_heap_push(&loader->found, &entry);
}

/* Where the key is, or would be, in what was found and sorted. */
static uint32_t place_of(const struct due_heap *found, const struct due_key *key)
{
    uint32_t low = 0;
    uint32_t high = found->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (due_key_compare(&found->entries[mid].key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Second pass, one that came since the first. */
static void insert(struct bucket_loader *loader, const struct bucket_item *item)
{
    struct due_heap *found = &loader->found;
    if (!wanted(loader, item))
        return;
    if (found->count == found->cap) {
        found->count--;
        loader->bounded = true;
        loader->bound = found->entries[found->count - 1].key;
        if (!wanted(loader, item))
            return;
    }
    uint32_t at = place_of(found, &item->key);
    memmove(found->entries + at + 1, found->entries + at,
            (found->count - at) * sizeof *found->entries);
    found->entries[at] = (struct due_entry){item->key, item->phys_off};
    found->count++;
}

static void strike(struct bucket_loader *loader, const struct due_key *key)
{
    uint32_t at = place_of(&loader->found, key);
    if (at < loader->found.count && due_key_compare(&loader->found.entries[at].key, key) == 0)
        loader->found.entries[at].phys_off = -1;
}

enum tern_code bucket_loader_step(struct bucket_loader *loader, struct buckets *buckets, bool *done,
                                  struct due_key *upto, struct tern_error *err)
{
    const struct bucket *row = buckets_find(buckets, loader->id);
    uint32_t end = row ? row->adds + row->dones : 0;
    *done = false;
    if (end < loader->at) { /* all were done, and it went meanwhile */
        const struct due_key after = loader->after;
        bucket_loader_begin(loader, loader->id, &after);
    }
    uint32_t count = end - loader->at < BUCKET_READ_MAX ? end - loader->at : BUCKET_READ_MAX;
    if (count > 0) {
        enum tern_code code = bucket_read(buckets, row, loader->at, count, loader->items, err);
        if (code) {
            loader->active = false;
            return code;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct bucket_item *item = &loader->items[i];
        if (!loader->second)
            collect(loader, item);
        else if (item->done)
            strike(loader, &item->key);
        else if (loader->at + i >= loader->first_end)
            insert(loader, item);
    }
    loader->at += count;
    if (loader->at < end)
        return TERN_OK;
    if (!loader->second) {
        loader->second = true;
        loader->first_end = end;
        loader->at = 0;
        due_heap_sort(&loader->found);
        return TERN_OK;
    }
    const struct due_key last = {(loader->id + 1) * BUCKET_MS - 1, INT64_MAX};
    *upto = loader->bounded ? loader->bound : last;
    *done = true;
    loader->active = false;
    return TERN_OK;
}

enum tern_code bucket_waits(struct buckets *buckets, struct bucket_item *items,
                            const struct due_key *key, bool *waits, struct tern_error *err)
{
    const struct bucket *row = buckets_find(buckets, bucket_id_of(key->key_ms));
    uint32_t end = row ? row->adds + row->dones : 0;
    enum tern_code code = TERN_OK;
    *waits = false;
    for (uint32_t at = 0; !code && at < end; at += BUCKET_READ_MAX) {
        uint32_t count = end - at < BUCKET_READ_MAX ? end - at : BUCKET_READ_MAX;
        code = bucket_read(buckets, row, at, count, items, err);
        for (uint32_t i = 0; !code && i < count; i++)
            if (due_key_compare(&items[i].key, key) == 0)
                *waits = !items[i].done;
    }
    return code;
}
