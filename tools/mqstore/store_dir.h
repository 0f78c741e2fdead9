/*
 * A store's directory as it lies there: which segments, queues and index files exist and how long
 * they are, and what the small files say. RocketMQ 4.9's or ours.
 *
 * Nothing is opened for recovery and nothing is ever written, so that damage is seen as it is. The
 * lists are taken once; a live store goes on growing behind them.
 */
#ifndef MQSTORE_STORE_DIR_H
#define MQSTORE_STORE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "broker/store/checkpoint.h"
#include "broker/store/index_file.h"

enum lock_state {
    LOCK_FREE,
    LOCK_HELD,   /* a broker has the store open */
    LOCK_UNKNOWN /* the lock file may not be opened for writing, which asking needs */
};

struct log_segment {
    int64_t base;
    int64_t file_bytes;
};

struct queue_file {
    int64_t start; /* its first byte in the queue's space */
    int64_t file_bytes;
};

struct queue_dir {
    char *topic;
    int32_t queue_id;
    struct queue_file *files; /* by start */
    uint32_t file_count;
    int64_t file_bytes; /* what their lengths should be: that of the first */
};

struct index_dir_entry {
    char name[INDEX_NAME_DIGITS + 1];
    int64_t file_bytes;
};

struct store_dir {
    const struct env *env;
    char root[FS_PATH_BYTES];
    int64_t segment_bytes;        /* 0 when there is no segment */
    struct log_segment *segments; /* by base */
    uint32_t segment_count;
    struct queue_dir *queues; /* by topic and id */
    uint32_t queue_count;
    struct index_dir_entry *indexes; /* by name */
    uint32_t index_count;
    char **strays; /* names, below the root, that are no store's */
    uint32_t stray_count;
    bool ours;    /* has ternmq/ */
    bool has_ext; /* has consumequeue_ext/ */
    bool aborted; /* the abort mark is there */
    enum lock_state lock_state;
    struct file *lock;        /* held until close, when it was free and asked for */
    int64_t checkpoint_bytes; /* -1: no such file */
    struct checkpoint checkpoint;
    bool mark_known;
    int64_t mark; /* ours: every byte before it was synced */
};

/*
 * Reads the directory. segment_bytes 0: the first segment's length. With keep_lock the store's
 * lock is held until close when it is free, so that no broker starts meanwhile. TERN_NOT_FOUND when
 * no store is there, TERN_NOT_SUPPORTED for a DLedger store; other codes are the disk's.
 */
MUST_CHECK enum tern_code store_dir_open(struct store_dir *dir, const struct env *env,
                                         const char *root, int64_t segment_bytes, bool keep_lock,
                                         struct tern_error *err);
/* Also after a failed open. */
void store_dir_close(struct store_dir *dir);

static inline bool store_dir_is_live(const struct store_dir *dir)
{
    return dir->lock_state == LOCK_HELD;
}

/* Whether derived files may lag and the tail may be torn: in use, or not stopped cleanly. */
static inline bool store_dir_is_unsettled(const struct store_dir *dir)
{
    return dir->aborted || store_dir_is_live(dir);
}

/* "commitlog/00000000000000000000", below the root. */
enum { STORE_NAME_BYTES = 256 };
void store_dir_segment_name(char out[STORE_NAME_BYTES], int64_t base);
void store_dir_queue_name(char out[STORE_NAME_BYTES], const struct queue_dir *queue, int64_t start);
void store_dir_index_name(char out[STORE_NAME_BYTES], const struct index_dir_entry *index);

/* Opens ROOT/name for reading. */
MUST_CHECK enum tern_code store_dir_open_file(const struct store_dir *dir, const char *name,
                                              struct file **out);

/* The text of err: "ROOT/name: cannot read: why", from errno. */
enum tern_code store_dir_io_error(const struct store_dir *dir, const char *name,
                                  enum tern_code code, struct tern_error *err);

#endif
