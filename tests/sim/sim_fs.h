/*
 * A simulated disk behind the interface of base/fs.h.
 *
 * What a power loss takes away: bytes, sizes and reservations since the file's last file_sync();
 * entries created, renamed and removed since the directory's last fs_sync_dir(). Syncing a file
 * does not make its entry durable. A rename between two directories is durable in each when that
 * one is synced: in between a power loss can leave the file in both or in neither. This is harsher
 * than ext4, and what POSIX allows.
 *
 * After a power loss or a crash of the process all open handles are dead: every call on them gives
 * TERN_IO, closing them is still needed.
 *
 * Faults: any number of rules (up to SIM_FS_FAULTS) fail the Nth matching call. A failed call does
 * nothing, except: a failed write leaves a random beginning of its bytes, a failed sync loses what
 * it should have written for good: a later sync that succeeds does not bring it back (as the kernel
 * does).
 *
 * Paths: components between '/'; relative paths start at the root, too; ".." is refused. The root
 * exists. Threads: one. Without memory it aborts.
 */
#ifndef TESTS_SIM_SIM_FS_H
#define TESTS_SIM_SIM_FS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"

enum { SIM_FS_FAULTS = 8 };

enum sim_fs_op {
    SIM_FS_ANY, /* every call but close */
    SIM_FS_OPEN,
    SIM_FS_RENAME,
    SIM_FS_UNLINK,
    SIM_FS_MKDIR,
    SIM_FS_RMDIR,
    SIM_FS_SYNC_DIR,
    SIM_FS_LIST,
    SIM_FS_STAT,
    SIM_FS_SPACE,
    SIM_FS_WRITE_BACK,
    SIM_FS_PREAD,
    SIM_FS_PWRITEV,
    SIM_FS_SYNC,
    SIM_FS_RESERVE,
    SIM_FS_TRUNCATE,
    SIM_FS_SIZE,
    SIM_FS_LOCK,
    SIM_FS_OP_COUNT
};

enum sim_torn {
    SIM_TORN_NONE,     /* nothing unsynced is kept */
    SIM_TORN_PAGES,    /* each unsynced 4 KiB page, and the size, is kept or lost by itself; of the
                          changes of */
                       /* directories a beginning is kept */
    SIM_TORN_SECTORS,  /* the same with 512 bytes */
    SIM_TORN_UNORDERED /* as pages, and each change of a directory is kept or lost by itself */
};

struct sim_fs_fault {
    enum sim_fs_op op;
    const char
        *path_part; /* only calls whose path contains this; NULL: all. Borrowed until cleared */
    unsigned nth;   /* 1 is the next matching call */
    int errno_value;
    bool forever; /* also every matching call after it */
};

struct sim_fs;

/* clock and rng are borrowed. */
struct sim_fs *sim_fs_create(struct clock *clock, struct rng *rng);
/* All handles must have been closed. NULL allowed. */
void sim_fs_destroy(struct sim_fs *fs);
/* As modules see it. */
struct fs *sim_fs_base(struct sim_fs *fs);

void sim_fs_power_loss(struct sim_fs *fs, enum sim_torn torn);
/* The process dies, the machine does not: nothing is lost, handles are dead, locks are free. */
void sim_fs_process_crash(struct sim_fs *fs);

void sim_fs_fail(struct sim_fs *fs, const struct sim_fs_fault *fault);
void sim_fs_fail_clear(struct sim_fs *fs);
/* Calls so far, failed ones too. */
uint64_t sim_fs_calls(const struct sim_fs *fs, enum sim_fs_op op);

/* Room for written and reserved pages of 4 KiB; beyond it writes and reservations get ENOSPC. */
void sim_fs_set_capacity(struct sim_fs *fs, int64_t bytes);
/* Chance in percent that a non-waiting read gets TERN_AGAIN; 0 at first. */
void sim_fs_set_cold(struct sim_fs *fs, unsigned percent);
/*
 * Called before every call but close, e.g. to let virtual time pass or to cut the power in the
 * middle; a returned errno, if not 0, fails the call. NULL: none.
 */
typedef int (*sim_fs_hook_fn)(void *arg, enum sim_fs_op op, const char *path);
void sim_fs_set_hook(struct sim_fs *fs, sim_fs_hook_fn hook, void *arg);

/* Handles that are open now. */
unsigned sim_fs_open_handles(const struct sim_fs *fs);

#endif
