/*
 * What lies on a simulated disk: files page by page, directories entry by entry, each as it is now
 * (live) and as a power loss would leave it (durable). Internal to tests/sim; tests use sim_fs.h.
 */
#ifndef TESTS_SIM_SIM_DISK_H
#define TESTS_SIM_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "tests/sim/sim_fs.h"

enum { SIM_PAGE_BYTES = 4096, SIM_SECTOR_BYTES = 512 };

struct sim_page {
    uint8_t *live;    /* NULL: zeros */
    uint8_t *durable; /* when changed: what a power loss brings back; NULL: zeros */
    bool changed;     /* live is not durable */
    bool dirty; /* the next sync makes it durable; changed but not dirty: a failed sync lost it */
    bool allocated; /* takes room: written or reserved */
};

struct sim_entry {
    char *name;              /* owned */
    struct sim_inode *inode; /* a reference */
};

struct sim_entries {
    struct sim_entry *items;
    size_t count;
    size_t cap;
};

struct sim_inode {
    unsigned refs; /* entries, pending changes, open handles */
    bool is_dir;
    struct sim_inode *prev, *next; /* all inodes of the disk */
    /* a file */
    struct sim_page *pages;
    size_t page_count; /* pages beyond are zeros */
    int64_t size;
    int64_t durable_size;
    int64_t mtime_ms;
    const void *locked_by; /* handle, or NULL */
    /* a directory */
    struct sim_entries live;
    struct sim_entries durable;
};

/* One entry set or removed and not yet durable. The two halves of a rename share a seq. */
struct sim_change {
    uint64_t seq;
    struct sim_inode *dir;    /* a reference */
    char *name;               /* owned */
    struct sim_inode *target; /* a reference; NULL: removed */
};

struct sim_disk {
    struct sim_inode *inodes;
    struct sim_inode *root;
    struct sim_change *changes; /* oldest first */
    size_t change_count;
    size_t change_cap;
    uint64_t next_seq;
    int64_t used_pages;
};

void sim_disk_init(struct sim_disk *disk);
void sim_disk_fini(struct sim_disk *disk);

struct sim_inode *sim_inode_create(struct sim_disk *disk, bool is_dir);
void sim_inode_ref(struct sim_inode *inode);
void sim_inode_unref(struct sim_disk *disk, struct sim_inode *inode);

/* NULL when absent. Borrowed. */
struct sim_inode *sim_dir_find(const struct sim_inode *dir, const char *name, size_t len);
/* Sets (target NULL: removes) an entry now; durable only after sim_dir_sync. Takes no reference
 * over. */
void sim_dir_set(struct sim_disk *disk, uint64_t seq, struct sim_inode *dir, const char *name,
                 struct sim_inode *target);
uint64_t sim_disk_next_seq(struct sim_disk *disk);
void sim_dir_sync(struct sim_disk *disk, struct sim_inode *dir);

size_t sim_file_read(const struct sim_inode *file, void *buf, size_t size, int64_t offset);
void sim_file_write(struct sim_disk *disk, struct sim_inode *file, const void *buf, size_t size,
                    int64_t offset);
/* Pages that a write or reservation of the range would newly allocate. */
int64_t sim_file_new_pages(const struct sim_inode *file, int64_t offset, int64_t size);
void sim_file_reserve(struct sim_disk *disk, struct sim_inode *file, int64_t offset, int64_t size);
void sim_file_truncate(struct sim_disk *disk, struct sim_inode *file, int64_t size);
/* lost: the sync failed; what was dirty will not become durable by a later one. */
void sim_file_sync(struct sim_inode *file, bool lost);

/* Back to what is durable; with torn, random parts of what is not are kept. */
void sim_disk_power_loss(struct sim_disk *disk, enum sim_torn torn, struct rng *rng);

#endif
