/*
 * The store's own small files: folders, lock, abort mark; and the check of its options. Internal to
 * the store.
 */
#ifndef STORE_STORE_FILES_H
#define STORE_STORE_FILES_H

#include "base/error.h"
#include "base/fs.h"

struct store;

/* Copies root_dir to store->root, rounds and checks the sizes; TERN_CONFIG names the key. */
MUST_CHECK enum tern_code store_options_check(struct store *store, struct tern_error *err);

/* ROOT/name */
MUST_CHECK enum tern_code store_path(const struct store *store, const char *name,
                                     char out[FS_PATH_BYTES], struct tern_error *err);

/*
 * Makes the folders, takes the lock (TERN_IN_USE), finds out whether the last stop was clean and
 * reads the checkpoint. When read_only: only the last two; TERN_NOT_FOUND when there is no store.
 */
MUST_CHECK enum tern_code store_files_enter(struct store *store, struct tern_error *err);

/* Creates the abort mark, durably. */
MUST_CHECK enum tern_code store_files_mark_running(struct store *store, struct tern_error *err);
/* Removes it, durably. */
MUST_CHECK enum tern_code store_files_mark_stopped(struct store *store, struct tern_error *err);

#endif
