/*
 * Open files by key: a chained hash table and, for those that nobody uses, a list in the order of
 * last use.
 *
 * Opening and closing happen without the lock. Two threads may therefore open one file at the same
 * time: the second to come back finds the first one's in the table, uses that and closes its own. A
 * file that was opened while something was forgotten may be the removed one and is opened again.
 *
 * Threads: any. Lock: STORE_FILES guards everything but an entry's file, which does not change.
 * Failure modes: those of opening; an eviction cannot fail.
 */
#include "broker/store/file_cache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"

struct cached_file {
    struct file_key key;
    struct file *file;
    uint32_t refs;
    bool forgotten;                    /* not in the table any more */
    struct cached_file *chain;         /* next of the bucket */
    struct cached_file *newer, *older; /* in the idle list while refs == 0 */
};

struct file_cache {
    struct fs *fs;
    uint32_t open_max;
    struct lock lock;
    /* all below: under lock */
    struct cached_file **buckets;
    uint32_t mask;
    uint32_t count;   /* in the table */
    uint64_t forgets; /* calls of forget: a file opened before may be another one by now */
    struct cached_file *newest, *oldest;
};

enum tern_code file_cache_create(struct fs *fs, uint32_t open_max, struct file_cache **out)
{
    ENSURE(open_max >= 1);
    *out = NULL;
    struct file_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return TERN_NO_MEMORY;
    uint32_t buckets = 16;
    while (buckets < open_max && buckets < (1u << 20))
        buckets *= 2;
    cache->buckets = calloc(buckets, sizeof(struct cached_file *));
    if (!cache->buckets) {
        free(cache);
        return TERN_NO_MEMORY;
    }
    cache->fs = fs;
    cache->open_max = open_max;
    cache->mask = buckets - 1;
    lock_init(&cache->lock, LOCK_STORE_FILES);
    *out = cache;
    return TERN_OK;
}

void file_cache_destroy(struct file_cache *cache)
{
    if (!cache)
        return;
    for (uint32_t i = 0; i <= cache->mask; i++) {
        struct cached_file *next;
        for (struct cached_file *e = cache->buckets[i]; e; e = next) {
            next = e->chain;
            ENSURE(e->refs == 0);
            file_close(e->file);
            free(e);
        }
    }
    lock_fini(&cache->lock);
    free(cache->buckets);
    free(cache);
}

static struct cached_file **bucket_of(struct file_cache *cache, struct file_key key)
{
    uint64_t h = (key.owner * 0x9E3779B97F4A7C15u) ^ ((uint64_t)key.start * 0xC2B2AE3D27D4EB4Fu);
    return &cache->buckets[(h >> 32) & cache->mask];
}

/* @locks holds:STORE_FILES */
static void idle_remove(struct file_cache *cache, struct cached_file *e)
{
    *(e->newer ? &e->newer->older : &cache->newest) = e->older;
    *(e->older ? &e->older->newer : &cache->oldest) = e->newer;
    e->newer = e->older = NULL;
}

/* @locks holds:STORE_FILES */
static void idle_add(struct file_cache *cache, struct cached_file *e)
{
    e->newer = NULL;
    e->older = cache->newest;
    *(e->older ? &e->older->newer : &cache->oldest) = e;
    cache->newest = e;
}

/* @locks holds:STORE_FILES */
static void table_remove(struct file_cache *cache, struct cached_file *e)
{
    struct cached_file **at = bucket_of(cache, e->key);
    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    e->chain = NULL;
    e->forgotten = true;
    cache->count--;
}

/* Takes a reference. @locks holds:STORE_FILES */
static struct cached_file *table_find(struct file_cache *cache, struct file_key key)
{
    struct cached_file *e = *bucket_of(cache, key);
    while (e && (e->key.owner != key.owner || e->key.start != key.start))
        e = e->chain;
    if (e && e->refs++ == 0)
        idle_remove(cache, e);
    return e;
}

/* Takes one idle entry out when the cache holds more than it may; NULL when none. @locks
 * holds:STORE_FILES */
static struct cached_file *take_surplus(struct file_cache *cache)
{
    struct cached_file *e = cache->oldest;
    if (cache->count <= cache->open_max || !e)
        return NULL;
    idle_remove(cache, e);
    table_remove(cache, e);
    return e;
}

/* Keeps errno. */
static void close_entry(struct cached_file *e)
{
    if (!e)
        return;
    int saved = errno;
    file_close(e->file);
    free(e);
    errno = saved;
}

static struct cached_file *find(struct file_cache *cache, struct file_key key, uint64_t *forgets)
{
    lock_acquire(&cache->lock);
    struct cached_file *e = table_find(cache, key);
    *forgets = cache->forgets;
    lock_release(&cache->lock);
    return e;
}

struct cached_file *file_cache_find(struct file_cache *cache, struct file_key key)
{
    uint64_t forgets;
    return find(cache, key, &forgets);
}

/* Opens a file that no table knows yet. Keeps errno. */
static enum tern_code open_entry(struct file_cache *cache, struct file_key key, const char *path,
                                 unsigned flags, struct cached_file **out)
{
    struct cached_file *e = calloc(1, sizeof *e);
    if (!e)
        return TERN_NO_MEMORY;
    enum tern_code code = fs_open(cache->fs, path, flags, &e->file);
    if (code) {
        int saved = errno;
        free(e);
        errno = saved;
        return code;
    }
    e->key = key;
    e->refs = 1;
    *out = e;
    return TERN_OK;
}

/* Adds an entry opened when `forgets` were counted; false: the count has moved, nothing is added.
 * @locks holds:STORE_FILES */
static bool table_add(struct file_cache *cache, struct cached_file *e, uint64_t forgets)
{
    if (cache->forgets != forgets)
        return false;
    struct cached_file **bucket = bucket_of(cache, e->key);
    e->chain = *bucket;
    *bucket = e;
    cache->count++;
    return true;
}

enum tern_code file_cache_open(struct file_cache *cache, struct file_key key, const char *path,
                               unsigned flags, struct cached_file **out)
{
    for (;;) {
        uint64_t forgets;
        struct cached_file *mine = NULL;
        *out = find(cache, key, &forgets);
        if (*out)
            return TERN_OK;
        enum tern_code code = open_entry(cache, key, path, flags, &mine);
        if (code)
            return code;
        lock_acquire(&cache->lock);
        struct cached_file *surplus = NULL;
        *out = table_find(cache, key);
        if (!*out && table_add(cache, mine, forgets)) {
            surplus = take_surplus(cache);
            *out = mine;
        }
        lock_release(&cache->lock);
        close_entry(surplus);
        if (*out != mine)
            close_entry(mine);
        if (*out)
            return TERN_OK;
    }
}

void file_cache_unref(struct file_cache *cache, struct cached_file *cached)
{
    struct cached_file *gone = NULL;
    lock_acquire(&cache->lock);
    ENSURE(cached->refs > 0);
    if (--cached->refs == 0) {
        if (cached->forgotten) {
            gone = cached;
        } else {
            idle_add(cache, cached);
            gone = take_surplus(cache);
        }
    }
    lock_release(&cache->lock);
    close_entry(gone);
}

struct file *cached_file_handle(const struct cached_file *cached)
{
    return cached->file;
}

/* Returns the entry when it is to be closed. @locks holds:STORE_FILES */
static struct cached_file *forget_entry(struct file_cache *cache, struct cached_file *e)
{
    table_remove(cache, e);
    if (e->refs > 0)
        return NULL;
    idle_remove(cache, e);
    return e;
}

void file_cache_forget(struct file_cache *cache, struct file_key key)
{
    lock_acquire(&cache->lock);
    cache->forgets++;
    struct cached_file *e = *bucket_of(cache, key);
    while (e && (e->key.owner != key.owner || e->key.start != key.start))
        e = e->chain;
    if (e)
        e = forget_entry(cache, e);
    lock_release(&cache->lock);
    close_entry(e);
}

void file_cache_forget_owner(struct file_cache *cache, uint64_t owner)
{
    struct cached_file *gone = NULL; /* linked by chain */
    lock_acquire(&cache->lock);
    cache->forgets++;
    for (uint32_t i = 0; i <= cache->mask; i++) {
        struct cached_file *next;
        for (struct cached_file *e = cache->buckets[i]; e; e = next) {
            next = e->chain;
            if (e->key.owner == owner && forget_entry(cache, e)) {
                e->chain = gone;
                gone = e;
            }
        }
    }
    lock_release(&cache->lock);
    while (gone) {
        struct cached_file *next = gone->chain;
        close_entry(gone);
        gone = next;
    }
}

uint32_t file_cache_count(struct file_cache *cache)
{
    lock_acquire(&cache->lock);
    uint32_t count = cache->count;
    lock_release(&cache->lock);
    return count;
}
