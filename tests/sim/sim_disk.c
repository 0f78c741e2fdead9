/*
 * A disk's content, live and durable.
 *
 * Invariants: bytes of a page behind the file's size are zero, so growing needs no work. A page
 * keeps its durable content from its first change until a sync, so that a power loss only swaps
 * pointers. A directory's changes wait in one list for the whole disk, oldest first, until the
 * directory is synced; a torn power loss keeps a beginning of that list, as a journal would, or
 * (unordered) any part of it.
 *
 * Threads: one. Failure modes: without memory it aborts; room is counted by the caller.
 */
#include "tests/sim/sim_disk.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void *grow(void *items, size_t *cap, size_t item_size)
{
    *cap = *cap ? 2 * *cap : 16;
    items = realloc(items, *cap * item_size);
    ENSURE(items);
    return items;
}

static char *copy_name(const char *name)
{
    char *copy = strdup(name);
    ENSURE(copy);
    return copy;
}

/* ---- inodes ---- */

struct sim_inode *sim_inode_create(struct sim_disk *disk, bool is_dir)
{
    struct sim_inode *inode = calloc(1, sizeof *inode);
    ENSURE(inode);
    inode->refs = 1;
    inode->is_dir = is_dir;
    inode->next = disk->inodes;
    if (inode->next)
        inode->next->prev = inode;
    disk->inodes = inode;
    return inode;
}

void sim_inode_ref(struct sim_inode *inode)
{
    inode->refs++;
}

static void entries_clear(struct sim_disk *disk, struct sim_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        free(entries->items[i].name);
        sim_inode_unref(disk, entries->items[i].inode);
    }
    free(entries->items);
    *entries = (struct sim_entries){0};
}

void sim_inode_unref(struct sim_disk *disk, struct sim_inode *inode)
{
    if (!inode || --inode->refs > 0)
        return;
    if (inode->prev)
        inode->prev->next = inode->next;
    else
        disk->inodes = inode->next;
    if (inode->next)
        inode->next->prev = inode->prev;
    for (size_t i = 0; i < inode->page_count; i++) {
        disk->used_pages -= inode->pages[i].allocated;
        free(inode->pages[i].live);
        free(inode->pages[i].durable);
    }
    free(inode->pages);
    entries_clear(disk, &inode->live);
    entries_clear(disk, &inode->durable);
    free(inode);
}

/* ---- directories ---- */

static void entries_set(struct sim_disk *disk, struct sim_entries *entries, const char *name,
                        struct sim_inode *target)
{
    size_t i = 0;
    while (i < entries->count && strcmp(entries->items[i].name, name) != 0)
        i++;
    if (target)
        sim_inode_ref(target);
    if (i < entries->count) {
        struct sim_inode *old = entries->items[i].inode;
        entries->items[i].inode = target;
        if (!target) {
            free(entries->items[i].name);
            entries->items[i] = entries->items[--entries->count];
        }
        sim_inode_unref(disk, old);
    } else if (target) {
        if (entries->count == entries->cap)
            entries->items = grow(entries->items, &entries->cap, sizeof entries->items[0]);
        entries->items[entries->count++] =
            (struct sim_entry){.name = copy_name(name), .inode = target};
    }
}

struct sim_inode *sim_dir_find(const struct sim_inode *dir, const char *name, size_t len)
{
    for (size_t i = 0; i < dir->live.count; i++) {
        const char *candidate = dir->live.items[i].name;
        if (strlen(candidate) == len && memcmp(candidate, name, len) == 0)
            return dir->live.items[i].inode;
    }
    return NULL;
}

uint64_t sim_disk_next_seq(struct sim_disk *disk)
{
    return ++disk->next_seq;
}

void sim_dir_set(struct sim_disk *disk, uint64_t seq, struct sim_inode *dir, const char *name,
                 struct sim_inode *target)
{
    if (disk->change_count == disk->change_cap)
        disk->changes = grow(disk->changes, &disk->change_cap, sizeof disk->changes[0]);
    sim_inode_ref(dir);
    if (target)
        sim_inode_ref(target);
    disk->changes[disk->change_count++] =
        (struct sim_change){.seq = seq, .dir = dir, .name = copy_name(name), .target = target};
    entries_set(disk, &dir->live, name, target);
}

static void change_end(struct sim_disk *disk, struct sim_change *change, bool apply)
{
    if (apply)
        entries_set(disk, &change->dir->durable, change->name, change->target);
    free(change->name);
    sim_inode_unref(disk, change->target);
    sim_inode_unref(disk, change->dir);
}

void sim_dir_sync(struct sim_disk *disk, struct sim_inode *dir)
{
    size_t kept = 0;
    for (size_t i = 0; i < disk->change_count; i++) {
        if (disk->changes[i].dir == dir)
            change_end(disk, &disk->changes[i], true);
        else
            disk->changes[kept++] = disk->changes[i];
    }
    disk->change_count = kept;
}

/* ---- files ---- */

static size_t page_index(int64_t offset)
{
    return (size_t)(offset / SIM_PAGE_BYTES);
}

static struct sim_page *page_get(struct sim_inode *file, size_t index)
{
    if (index >= file->page_count) {
        size_t count = file->page_count ? file->page_count : 16;
        while (count <= index)
            count *= 2;
        file->pages = realloc(file->pages, count * sizeof file->pages[0]);
        ENSURE(file->pages);
        memset(file->pages + file->page_count, 0,
               (count - file->page_count) * sizeof file->pages[0]);
        file->page_count = count;
    }
    return &file->pages[index];
}

static void page_allocate(struct sim_disk *disk, struct sim_page *page, bool allocated)
{
    disk->used_pages += (int)allocated - (int)page->allocated;
    page->allocated = allocated;
}

/* The page's live bytes for changing; what is durable is put aside first. */
static uint8_t *page_for_write(struct sim_page *page)
{
    if (!page->changed) {
        page->durable = page->live;
        page->live = NULL;
        page->changed = true;
        if (page->durable) {
            page->live = malloc(SIM_PAGE_BYTES);
            ENSURE(page->live);
            memcpy(page->live, page->durable, SIM_PAGE_BYTES);
        }
    }
    page->dirty = true;
    if (!page->live) {
        page->live = calloc(1, SIM_PAGE_BYTES);
        ENSURE(page->live);
    }
    return page->live;
}

size_t sim_file_read(const struct sim_inode *file, void *buf, size_t size, int64_t offset)
{
    if (offset >= file->size)
        return 0;
    if ((int64_t)size > file->size - offset)
        size = (size_t)(file->size - offset);
    for (size_t done = 0; done < size;) {
        size_t index = page_index(offset + (int64_t)done);
        size_t in_page = (size_t)((offset + (int64_t)done) % SIM_PAGE_BYTES);
        size_t len =
            SIM_PAGE_BYTES - in_page < size - done ? SIM_PAGE_BYTES - in_page : size - done;
        const uint8_t *live = index < file->page_count ? file->pages[index].live : NULL;
        if (live)
            memcpy((uint8_t *)buf + done, live + in_page, len);
        else
            memset((uint8_t *)buf + done, 0, len);
        done += len;
    }
    return size;
}

void sim_file_write(struct sim_disk *disk, struct sim_inode *file, const void *buf, size_t size,
                    int64_t offset)
{
    for (size_t done = 0; done < size;) {
        struct sim_page *page = page_get(file, page_index(offset + (int64_t)done));
        size_t in_page = (size_t)((offset + (int64_t)done) % SIM_PAGE_BYTES);
        size_t len =
            SIM_PAGE_BYTES - in_page < size - done ? SIM_PAGE_BYTES - in_page : size - done;
        memcpy(page_for_write(page) + in_page, (const uint8_t *)buf + done, len);
        page_allocate(disk, page, true);
        done += len;
    }
    if (size > 0 && offset + (int64_t)size > file->size)
        file->size = offset + (int64_t)size;
}

int64_t sim_file_new_pages(const struct sim_inode *file, int64_t offset, int64_t size)
{
    if (size <= 0)
        return 0;
    int64_t count = 0;
    for (size_t i = page_index(offset); i <= page_index(offset + size - 1); i++)
        count += i >= file->page_count || !file->pages[i].allocated;
    return count;
}

void sim_file_reserve(struct sim_disk *disk, struct sim_inode *file, int64_t offset, int64_t size)
{
    if (size <= 0)
        return;
    for (size_t i = page_index(offset); i <= page_index(offset + size - 1); i++)
        page_allocate(disk, page_get(file, i), true);
    if (offset + size > file->size)
        file->size = offset + size;
}

/* Zeroes everything behind `size` and gives the whole pages there back. */
static void cut_behind(struct sim_disk *disk, struct sim_inode *file, int64_t size)
{
    size_t first_whole = page_index(size + SIM_PAGE_BYTES - 1);
    size_t in_page = (size_t)(size % SIM_PAGE_BYTES);
    if (in_page > 0 && first_whole - 1 < file->page_count && file->pages[first_whole - 1].live)
        memset(page_for_write(&file->pages[first_whole - 1]) + in_page, 0,
               SIM_PAGE_BYTES - in_page);
    for (size_t i = first_whole; i < file->page_count; i++) {
        struct sim_page *page = &file->pages[i];
        if (page->live) {
            (void)page_for_write(page);
            free(page->live);
            page->live = NULL;
        }
        page_allocate(disk, page, false);
    }
}

void sim_file_truncate(struct sim_disk *disk, struct sim_inode *file, int64_t size)
{
    if (size < file->size)
        cut_behind(disk, file, size);
    file->size = size;
}

static void page_settle(struct sim_page *page)
{
    free(page->durable);
    page->durable = NULL;
    page->changed = false;
    page->dirty = false;
}

void sim_file_sync(struct sim_inode *file, bool lost)
{
    for (size_t i = 0; i < file->page_count; i++) {
        struct sim_page *page = &file->pages[i];
        if (page->dirty && lost)
            page->dirty = false;
        else if (page->dirty)
            page_settle(page);
    }
    if (!lost)
        file->durable_size = file->size;
}

/* ---- power loss ---- */

/* Mixes into the page's durable bytes what happened to reach the disk. */
static void page_tear(struct sim_page *page, enum sim_torn torn, struct rng *rng)
{
    size_t unit = torn == SIM_TORN_SECTORS ? SIM_SECTOR_BYTES : SIM_PAGE_BYTES;
    uint8_t mixed[SIM_PAGE_BYTES] = {0};
    if (page->durable)
        memcpy(mixed, page->durable, sizeof mixed);
    for (size_t at = 0; at < SIM_PAGE_BYTES; at += unit) {
        if (rng_below(rng, 2) == 0)
            continue;
        if (page->live)
            memcpy(mixed + at, page->live + at, unit);
        else
            memset(mixed + at, 0, unit);
    }
    if (!page->durable)
        page->durable = malloc(SIM_PAGE_BYTES);
    ENSURE(page->durable);
    memcpy(page->durable, mixed, sizeof mixed);
}

static void file_power_loss(struct sim_disk *disk, struct sim_inode *file, enum sim_torn torn,
                            struct rng *rng)
{
    file->locked_by = NULL;
    if (torn != SIM_TORN_NONE && file->size != file->durable_size && rng_below(rng, 2) == 1)
        file->durable_size = file->size;
    for (size_t i = 0; i < file->page_count; i++) {
        struct sim_page *page = &file->pages[i];
        if (!page->changed)
            continue;
        if (torn != SIM_TORN_NONE)
            page_tear(page, torn, rng);
        free(page->live);
        page->live = page->durable;
        page->durable = NULL;
        page_settle(page);
        if (page->live)
            page_allocate(disk, page, true);
    }
    file->size = file->durable_size;
    cut_behind(disk, file, file->size);
    for (size_t i = 0; i < file->page_count; i++)
        page_settle(&file->pages[i]);
}

static void dir_power_loss(struct sim_disk *disk, struct sim_inode *dir)
{
    entries_clear(disk, &dir->live);
    for (size_t i = 0; i < dir->durable.count; i++)
        entries_set(disk, &dir->live, dir->durable.items[i].name, dir->durable.items[i].inode);
}

/* Number of the oldest changes that reached the disk in order; never half a rename. */
static size_t changes_kept(const struct sim_disk *disk, enum sim_torn torn, struct rng *rng)
{
    if (torn == SIM_TORN_NONE || torn == SIM_TORN_UNORDERED || disk->change_count == 0)
        return 0;
    size_t kept = (size_t)rng_below(rng, disk->change_count + 1);
    while (kept > 0 && kept < disk->change_count &&
           disk->changes[kept].seq == disk->changes[kept - 1].seq)
        kept--;
    return kept;
}

void sim_disk_power_loss(struct sim_disk *disk, enum sim_torn torn, struct rng *rng)
{
    size_t kept = changes_kept(disk, torn, rng);
    uint64_t last_seq = 0;
    bool keep = false;
    for (size_t i = 0; i < disk->change_count; i++) {
        if (torn != SIM_TORN_UNORDERED)
            keep = i < kept;
        else if (disk->changes[i].seq != last_seq)
            keep = rng_below(rng, 2) == 1;
        last_seq = disk->changes[i].seq;
        change_end(disk, &disk->changes[i], keep);
    }
    disk->change_count = 0;
    /* Held during the walk, because entries that go may be an inode's last reference. */
    for (struct sim_inode *inode = disk->inodes; inode; inode = inode->next)
        sim_inode_ref(inode);
    for (struct sim_inode *inode = disk->inodes; inode; inode = inode->next) {
        if (inode->is_dir)
            dir_power_loss(disk, inode);
        else
            file_power_loss(disk, inode, torn, rng);
    }
    struct sim_inode *inode = disk->inodes;
    while (inode) {
        struct sim_inode *next = inode->next;
        if (next)
            sim_inode_ref(next); /* freeing a directory may drop it */
        sim_inode_unref(disk, inode);
        if (next)
            next->refs--;
        inode = next;
    }
}

void sim_disk_init(struct sim_disk *disk)
{
    memset(disk, 0, sizeof *disk);
    disk->root = sim_inode_create(disk, true);
}

void sim_disk_fini(struct sim_disk *disk)
{
    for (size_t i = 0; i < disk->change_count; i++)
        change_end(disk, &disk->changes[i], false);
    free(disk->changes);
    sim_inode_unref(disk, disk->root);
    ENSURE(!disk->inodes); /* a handle is still open */
}
