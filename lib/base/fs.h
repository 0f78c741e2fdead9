/*
 * Files, behind a table of operations: POSIX in daemons, a simulated disk in tests (it forgets what
 * was not synced at a power loss and can fail the Nth call).
 *
 * All functions return a tern_code (error_from_errno of what went wrong) and leave errno set, so
 * that the caller, who knows what the file was for, writes the text. Paths are UTF-8 and borrowed
 * for the call. Reads and writes are positioned; a file handle has no position and may be used by
 * several threads.
 */
#ifndef BASE_FS_H
#define BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

enum fs_open_flags {
    FS_READ = 1,
    FS_WRITE = 2,     /* with or without FS_READ */
    FS_CREATE = 4,    /* create when absent, mode 0644 */
    FS_EXCLUSIVE = 8, /* with FS_CREATE: TERN_EXISTS when present */
    FS_TRUNCATE = 16
};

struct fs_stat {
    int64_t size_bytes;
    int64_t mtime_ms; /* wall clock */
    bool is_dir;
};

struct fs_space {
    int64_t total_bytes;
    int64_t free_bytes; /* available to us */
};

struct fs;
struct file;

/* Called for each entry but "." and ".."; return false to stop. Order is not defined. */
typedef bool (*fs_list_fn)(void *arg, const char *name, bool is_dir);

struct fs_ops {
    enum tern_code (*open)(struct fs *, const char *path, unsigned flags, struct file **out);
    enum tern_code (*rename)(struct fs *, const char *from, const char *to);
    enum tern_code (*unlink)(struct fs *, const char *path);
    enum tern_code (*mkdir)(struct fs *, const char *path);
    enum tern_code (*rmdir)(struct fs *, const char *path);
    enum tern_code (*sync_dir)(struct fs *, const char *path);
    enum tern_code (*list)(struct fs *, const char *path, fs_list_fn fn, void *arg);
    enum tern_code (*stat)(struct fs *, const char *path, struct fs_stat *out);
    enum tern_code (*space)(struct fs *, const char *path, struct fs_space *out);
    void (*write_back)(struct fs *, const char *path);

    void (*close)(struct file *);
    enum tern_code (*pread)(struct file *, void *buf, size_t size, int64_t offset, bool nowait,
                            size_t *got);
    enum tern_code (*pwritev)(struct file *, const struct iovec *iov, int count, int64_t offset);
    enum tern_code (*sync)(struct file *);
    enum tern_code (*reserve)(struct file *, int64_t offset, int64_t size);
    enum tern_code (*truncate)(struct file *, int64_t size);
    enum tern_code (*size)(struct file *, int64_t *out);
    enum tern_code (*lock)(struct file *);
};

struct fs {
    const struct fs_ops *ops;
};

/* First member of every implementation's file. */
struct file {
    const struct fs_ops *ops;
};

/* *out is the caller's, to be given to file_close(). */
MUST_CHECK enum tern_code fs_open(struct fs *fs, const char *path, unsigned flags,
                                  struct file **out);
MUST_CHECK enum tern_code fs_rename(struct fs *fs, const char *from, const char *to);
MUST_CHECK enum tern_code fs_unlink(struct fs *fs, const char *path);
/* One directory; TERN_EXISTS when it is there. */
MUST_CHECK enum tern_code fs_mkdir(struct fs *fs, const char *path);
/* All missing parents too, each made durable in its own parent; present is success. */
MUST_CHECK enum tern_code fs_mkdirs(struct fs *fs, const char *path);
MUST_CHECK enum tern_code fs_rmdir(struct fs *fs, const char *path);
/* Makes creations, renames and removals in the directory durable; fails as file_sync() does. */
MUST_CHECK enum tern_code fs_sync_dir(struct fs *fs, const char *path);
/* The same for the directory that holds `path`: its entry there is durable then. */
MUST_CHECK enum tern_code fs_sync_parent(struct fs *fs, const char *path);
MUST_CHECK enum tern_code fs_list(struct fs *fs, const char *path, fs_list_fn fn, void *arg);
MUST_CHECK enum tern_code fs_stat(struct fs *fs, const char *path, struct fs_stat *out);
MUST_CHECK enum tern_code fs_space(struct fs *fs, const char *path, struct fs_space *out);
/*
 * A hint: writes everything that is dirty on the file system of `path`, so that syncing many files
 * one by one is cheap afterwards. It promises nothing, hence cannot fail. @blocks on the disk
 */
void fs_write_back(struct fs *fs, const char *path);
/* Whether a file or directory is there; any error counts as absent. */
bool fs_exists(struct fs *fs, const char *path);

/* NULL is allowed. */
void file_close(struct file *file);
/* Reads until size bytes or the end of the file; *got says how many came. */
MUST_CHECK enum tern_code file_pread(struct file *file, void *buf, size_t size, int64_t offset,
                                     size_t *got);
/*
 * Reads only what needs no disk access: TERN_AGAIN when the first byte is not in memory, else *got
 * bytes, possibly fewer than asked. Where the file system cannot tell (tmpfs), it reads.
 */
MUST_CHECK enum tern_code file_pread_nowait(struct file *file, void *buf, size_t size,
                                            int64_t offset, size_t *got);
/* Writes everything or fails; after a failure what lies in the range is undefined. Any count. */
MUST_CHECK enum tern_code file_pwritev(struct file *file, const struct iovec *iov, int count,
                                       int64_t offset);
MUST_CHECK enum tern_code file_pwrite(struct file *file, const void *buf, size_t size,
                                      int64_t offset);
/*
 * fdatasync. After a failure nothing is known of what was written since the last success: never
 * retry. So the code is never one that another attempt may heal: a full disk found out so late is
 * TERN_IO (errno tells).
 */
MUST_CHECK enum tern_code file_sync(struct file *file);
/* Reserves blocks, the file grows to offset + size when it is shorter; TERN_NO_SPACE leaves it
 * usable. */
MUST_CHECK enum tern_code file_reserve(struct file *file, int64_t offset, int64_t size);
MUST_CHECK enum tern_code file_truncate(struct file *file, int64_t size);
MUST_CHECK enum tern_code file_size(struct file *file, int64_t *out);
/* Writes zeros. */
MUST_CHECK enum tern_code file_zero(struct file *file, int64_t offset, int64_t size);
/* Exclusive lock on byte 0, held until close or the process's end; TERN_IN_USE when another holds
 * it. */
MUST_CHECK enum tern_code file_lock(struct file *file);

/* Joins with '/' into out; TERN_TOO_LARGE when it does not fit (path limit FS_PATH_BYTES). */
enum { FS_PATH_BYTES = 1024 };
MUST_CHECK enum tern_code fs_join(char out[FS_PATH_BYTES], const char *dir, const char *name);

/* The machine's file system; static storage. @thread any */
struct fs *fs_posix(void);

#endif
