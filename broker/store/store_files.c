/*
 * The store's own small files.
 *
 * Place: the first and last things that opening and closing do.
 *
 * Invariants: the lock is taken before anything under the root is looked at or changed (but for the
 * folders themselves) and kept until close; the abort mark's creation and removal are durable when
 * the functions return. The lock file holds RocketMQ's text "lock", and byte 0 is locked as its
 * FileLock does, so a RocketMQ broker and ours keep each other out. Threads: the opening and
 * closing one. Failure modes: any error ends opening; closing leaves the mark.
 */
#include "broker/store/store_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "broker/store/store_internal.h"

static const char *const folders[] = {"commitlog", "consumequeue", "index", "prepared", "ternmq"};

enum {
    SEGMENT_LEAST_BYTES = 4096,
    SEGMENT_MOST_BYTES = INT32_MAX, /* a filler's length is a 32-bit field, signed in Java */
    QUEUE_FILE_LEAST_BYTES = 200 * QUEUE_UNIT_BYTES
};

static const int64_t hour_ms = INT64_C(3600) * 1000;

void store_options_init(struct store_options *options)
{
    memset(options, 0, sizeof *options);
    options->segment_bytes = INT64_C(1) << 30;
    options->queue_file_bytes = INT64_C(300000) * QUEUE_UNIT_BYTES;
    options->index_slots = 5000000;
    options->index_entries = 20000000;
    options->index_enabled = true;
    options->sync_flush = true;
    options->flush_interval_ms = 500;
    options->queue_flush_interval_ms = 1000;
    options->retention_ms = 72 * hour_ms;
    options->delete_hours = UINT32_C(1) << 4;
    options->clean_interval_ms = 10000;
    options->disk_max_used_ratio = 0.75;
    options->disk_clean_ratio = 0.85;
    options->disk_warning_ratio = 0.90;
    options->max_message_bytes = 4 << 20;
    options->memory_window_bytes = INT64_C(1) << 30;
    options->memory_count = 32;
    options->disk_count = 8;
    options->memory_bytes = 256 * 1024;
    options->disk_bytes = 64 * 1024;
    options->open_files_max = 512;
    options->offset_correction = true;
}

enum tern_code store_options_check(struct store *store, struct tern_error *err)
{
    struct store_options *o = &store->options;
    int wrote = snprintf(store->root, sizeof store->root, "%s", o->root_dir);
    if (wrote <= 0 || (size_t)wrote >= sizeof store->root)
        return error_set(err, TERN_CONFIG, "storePathRootDir: empty or longer than %d bytes",
                         FS_PATH_BYTES - 1);
    o->root_dir = store->root;
    o->queue_file_bytes =
        (o->queue_file_bytes + QUEUE_UNIT_BYTES - 1) / QUEUE_UNIT_BYTES * QUEUE_UNIT_BYTES;
    if (o->segment_bytes < SEGMENT_LEAST_BYTES || o->segment_bytes > SEGMENT_MOST_BYTES)
        return error_set(err, TERN_CONFIG,
                         "mappedFileSizeCommitLog: %" PRId64 " is not within %d..%d",
                         o->segment_bytes, SEGMENT_LEAST_BYTES, SEGMENT_MOST_BYTES);
    if (o->queue_file_bytes < QUEUE_FILE_LEAST_BYTES || o->queue_file_bytes > INT32_MAX)
        return error_set(err, TERN_CONFIG,
                         "mappedFileSizeConsumeQueue: %" PRId64 " is not within %d..%d",
                         o->queue_file_bytes, QUEUE_FILE_LEAST_BYTES, INT32_MAX);
    if (o->flush_interval_ms < 1 || o->queue_flush_interval_ms < 1 || o->clean_interval_ms < 1)
        return error_set(err, TERN_CONFIG,
                         "flushIntervalCommitLog, flushIntervalConsumeQueue and "
                         "cleanResourceInterval must be at least 1 ms");
    return TERN_OK;
}

enum tern_code store_path(const struct store *store, const char *name, char out[FS_PATH_BYTES],
                          struct tern_error *err)
{
    enum tern_code code = fs_join(out, store->root, name);
    return code ? error_set(err, code, "%s/%s: path too long", store->root, name) : TERN_OK;
}

static enum tern_code make_folders(struct store *store, struct tern_error *err)
{
    bool made = !fs_exists(store->env->fs, store->root);
    enum tern_code code = fs_mkdirs(store->env->fs, store->root);
    if (!code && made)
        code = fs_sync_parent(store->env->fs, store->root);
    if (code)
        return error_set_errno(err, code, errno, "%s: cannot create", store->root);
    made = false;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char path[FS_PATH_BYTES];
        code = store_path(store, folders[i], path, err);
        if (code)
            return code;
        code = fs_mkdir(store->env->fs, path);
        made = made || !code;
        if (code && code != TERN_EXISTS)
            return error_set_errno(err, code, errno, "%s: cannot create", path);
    }
    code = made ? fs_sync_dir(store->env->fs, store->root) : TERN_OK;
    return code ? error_set_errno(err, code, errno, "%s: cannot sync", store->root) : TERN_OK;
}

static enum tern_code take_lock(struct store *store, struct tern_error *err)
{
    static const char text[] = "lock";
    char path[FS_PATH_BYTES];
    enum tern_code code = store_path(store, "lock", path, err);
    if (code)
        return code;
    code = fs_open(store->env->fs, path, FS_READ | FS_WRITE | FS_CREATE, &store->lock_file);
    if (!code)
        code = file_lock(store->lock_file);
    if (code == TERN_IN_USE)
        return error_set(err, code, "%s: another broker or tool has this store open", path);
    if (!code)
        code = file_pwrite(store->lock_file, text, sizeof text - 1, 0);
    return code ? error_set_errno(err, code, errno, "%s: cannot lock", path) : TERN_OK;
}

enum tern_code store_files_enter(struct store *store, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    enum tern_code code = TERN_OK;
    if (store->options.read_only) {
        code = store_path(store, "commitlog", path, err);
        if (!code && !fs_exists(store->env->fs, path))
            return error_set(err, TERN_NOT_FOUND, "%s: no store here (no commitlog/)", store->root);
    } else {
        code = make_folders(store, err);
        if (!code)
            code = take_lock(store, err);
    }
    if (!code)
        code = store_path(store, "abort", path, err);
    if (code)
        return code;
    store->recovery.clean = !fs_exists(store->env->fs, path);
    code = store_path(store, "checkpoint", path, err);
    if (!code)
        code = checkpoint_read(store->env, path, &store->checkpoint, err);
    return code;
}

enum tern_code store_files_mark_running(struct store *store, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct file *file = NULL;
    enum tern_code code = store_path(store, "abort", path, err);
    if (code)
        return code;
    code = fs_open(store->env->fs, path, FS_READ | FS_WRITE | FS_CREATE, &file);
    file_close(file);
    if (!code)
        code = fs_sync_dir(store->env->fs, store->root);
    return code ? error_set_errno(err, code, errno, "%s: cannot create", path) : TERN_OK;
}

enum tern_code store_files_mark_stopped(struct store *store, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    enum tern_code code = store_path(store, "prepared", path, err);
    if (code)
        return code;
    code = fs_sync_dir(store->env->fs, path); /* see preparer.c */
    if (code)
        return error_set_errno(err, code, errno, "%s: cannot sync", path);
    code = store_path(store, "abort", path, err);
    if (code)
        return code;
    code = fs_unlink(store->env->fs, path);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK;
    if (!code)
        code = fs_sync_dir(store->env->fs, store->root);
    return code ? error_set_errno(err, code, errno, "%s: cannot remove", path) : TERN_OK;
}
