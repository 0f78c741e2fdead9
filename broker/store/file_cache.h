/*
 * A bounded cache of open files: 20,000 consume queues share a few hundred descriptors. Internal to
 * the store.
 *
 *   find or open ──► in use (refs > 0) ──unref──► idle, in LRU order ──room needed──► closed
 *                      │                                                              ▲
 *                      └──forget: no longer found──► closed by its last user ─────────┘
 *
 * A file is named by its owner's number and its first byte, not by its path, so that looking up an
 * open one costs no formatting. Invariants: a file in use is never closed; files in the cache are
 * at most open_max, except that files in use may exceed it by one per thread, which are closed as
 * soon as they are let go.
 */
#ifndef STORE_FILE_CACHE_H
#define STORE_FILE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/fs.h"

struct file_cache;
struct cached_file;

struct file_key {
    uint64_t owner;
    int64_t start;
};

/* fs is borrowed. open_max is at least 1. */
MUST_CHECK enum tern_code file_cache_create(struct fs *fs, uint32_t open_max,
                                            struct file_cache **out);
/* NULL allowed. No file may be in use. */
void file_cache_destroy(struct file_cache *cache);

/* The open file of that key with a reference, NULL when it is not open. @thread any @locks
 * takes:STORE_FILES */
struct cached_file *file_cache_find(struct file_cache *cache, struct file_key key);
/*
 * Likewise, and opens `path` when it is not open; flags as fs_open(). Leaves errno. @thread any
 */
MUST_CHECK enum tern_code file_cache_open(struct file_cache *cache, struct file_key key,
                                          const char *path, unsigned flags,
                                          struct cached_file **out);
void file_cache_unref(struct file_cache *cache, struct cached_file *cached);
/* Borrowed while the reference is held. */
struct file *cached_file_handle(const struct cached_file *cached);

/* From now on the key (or any of the owner's) is not found; before a file is removed. @thread any
 */
void file_cache_forget(struct file_cache *cache, struct file_key key);
void file_cache_forget_owner(struct file_cache *cache, uint64_t owner);

/* Files open now. */
uint32_t file_cache_count(struct file_cache *cache);

#endif
