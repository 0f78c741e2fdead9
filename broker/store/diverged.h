/*
 * ROOT/diverged/: where bytes of the log go that are cut from it. Internal to the store; nothing
 * reads them again but a person.
 */
#ifndef STORE_DIVERGED_H
#define STORE_DIVERGED_H

#include "base/env.h"
#include "base/fs.h"
#include "broker/store/commit_log_internal.h"

enum { DIVERGED_NAME_BYTES = 80 };

/*
 * Copies [from, end) to ROOT/diverged/FROM-END-WALLMS.log, durably; `name` is the file's. Nobody
 * appends or cuts meanwhile. After an error there may be a part of it, ending in .part. @blocks on
 * the disk
 */
MUST_CHECK enum tern_code diverged_save(const struct env *env, const char *root,
                                        struct commit_log *log, int64_t from, int64_t end,
                                        char name[DIVERGED_NAME_BYTES], struct tern_error *err);

/* Makes ROOT/diverged/WALLMS/, durably, and says which WALLMS. @blocks on the disk */
MUST_CHECK enum tern_code diverged_folder(const struct env *env, const char *root, int64_t *wall_ms,
                                          struct tern_error *err);
/* ROOT/diverged/WALLMS */
MUST_CHECK enum tern_code diverged_folder_path(const char *root, int64_t wall_ms,
                                               char out[FS_PATH_BYTES], struct tern_error *err);

#endif
