/*
 * Finding the index files at a start, and making them agree with the log.
 *
 * In two steps, so that the store can take back what its flush mark says of the index before a file
 * goes: loading looks and decides, mending changes.
 *
 *   a file that …                                                   is
 *     has the mark, and the flush mark speaks of the index          mended up to there
 *     has the mark, and it does not                                 dropped
 *     has none, after a crash, and is newer than the checkpoint     dropped: RocketMQ's, not synced
 *     reaches beyond the log's end                                  mended up to there
 *     does not fit the options or its own header                    dropped after a crash, else
 * left is newer than a dropped one                                   dropped anything else kept
 *
 * What is dropped is built again by the replay, which then begins where the last file ends; else
 * the replay begins where the flush mark says.
 *
 * Threads: the opening one. Failure modes: codes of the disk; the next start finds the rest to do.
 */
#include "broker/store/index_internal.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "broker/store/dir_names.h"

/* ---- loading ---- */

static bool is_name(const struct dir_name *entry)
{
    return !entry->is_dir && strlen(entry->name) == INDEX_NAME_DIGITS &&
           strspn(entry->name, "0123456789") == INDEX_NAME_DIGITS;
}

static enum index_fate fate_of(const struct index_file *file, bool fits, bool broken,
                               const struct index_recovery *input)
{
    const struct index_header *h = &file->header;
    if (!fits || broken)
        return INDEX_DROP;
    if (file->unfinished)
        return input->durable_phys > 0 ? INDEX_MEND : INDEX_DROP;
    if (!input->clean && h->end_ms > input->safe_ms)
        return INDEX_DROP;
    return h->count > 1 && h->end_phys >= input->log_end ? INDEX_MEND : INDEX_KEEP;
}

static enum tern_code load_file(struct index_service *index, const char *name,
                                const struct index_recovery *input, enum index_state *state,
                                bool *broken)
{
    struct index_file *file;
    bool fits;
    enum tern_code code = index_file_load(index->env->fs, index->dir, name, index->slots,
                                          index->entries, &file, &fits);
    if (code)
        return code;
    file->fate = fate_of(file, fits, *broken, input);
    if (!fits && (input->clean || index->read_only)) { /* of other options, perhaps: not ours */
        log_warn(index->env->log, "index_file_ignored", "path=%s/%s cause=layout", index->dir,
                 name);
        index_file_unref(file);
        return TERN_OK;
    }
    *broken |= file->fate == INDEX_DROP;
    if (*broken)
        *state = INDEX_LOST;
    else if (file->unfinished && *state == INDEX_WHOLE)
        *state = INDEX_BEHIND;
    code = index_files_add(index, file);
    if (code)
        index_file_unref(file);
    return code;
}

enum tern_code index_service_load(struct index_service *index, const struct index_recovery *input,
                                  enum index_state *state, struct tern_error *err)
{
    struct dir_names names;
    bool broken = false;
    *state = input->clean ? INDEX_WHOLE : input->durable_phys > 0 ? INDEX_BEHIND : INDEX_LOST;
    enum tern_code code = dir_names_list(index->env->fs, index->dir, &names);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK;
    lock_acquire(&index->lock);
    for (size_t i = 0; code == TERN_OK && i < names.count; i++) {
        if (is_name(&names.items[i]))
            code = load_file(index, names.items[i].name, input, state, &broken);
        else
            log_warn(index->env->log, "index_file_ignored", "path=%s/%s cause=name", index->dir,
                     names.items[i].name);
    }
    lock_release(&index->lock);
    if (code)
        error_set_errno(err, code, errno, "reading the index in %s", index->dir);
    dir_names_fini(&names);
    return code;
}

/* ---- mending ---- */

/* Does what was decided; *keep: the file stays. A read-only index keeps what is whole. */
static enum tern_code settle_file(const struct index_service *index,
                                  const struct index_recovery *input, struct index_file *file,
                                  bool *keep)
{
    int64_t end = input->log_end;
    const char *cause = "not_synced";
    uint32_t kept = 0;
    *keep = file->fate == INDEX_KEEP;
    if (*keep || index->read_only)
        return TERN_OK;
    if (file->fate == INDEX_MEND) {
        if (file->unfinished && input->durable_phys < end)
            end = input->durable_phys;
        enum tern_code code = index_file_mend(file, index->env->fs, index->dir, end, &kept);
        if (code)
            return code;
        log_info(index->env->log, "index_file_mended", "name=%s entries=%u before=%lld", file->name,
                 kept, (long long)end);
        cause = "empty";
        *keep = kept > 0;
    }
    return *keep ? TERN_OK : index_files_remove(index, file->name, cause);
}

/* What the newest file holds of its last record, so that a replay from there adds only the rest. */
static enum tern_code read_trailing(struct index_service *index)
{
    struct index_file *last = index_files_newest(index);
    struct file *handle;
    if (!last || last->header.count < 2 || index->read_only)
        return TERN_OK;
    enum tern_code code = index_file_open(last, index->env->fs, index->dir, FS_READ, &handle);
    if (code)
        return code;
    index->trailing_phys = last->header.end_phys;
    for (uint32_t n = last->header.count - 1; n >= 1 && index->trailing_count < INDEX_TRAILING_MAX;
         n--) {
        struct index_entry entry;
        code = index_read_entry(handle, last->slots, n, &entry);
        if (code || entry.phys_off != index->trailing_phys)
            break;
        index->trailing[index->trailing_count++] = entry.hash;
    }
    file_close(handle);
    return code;
}

enum tern_code index_service_mend(struct index_service *index, const struct index_recovery *input,
                                  int64_t *end_phys, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    uint32_t left = 0;
    *end_phys = 0;
    lock_acquire(&index->lock);
    for (uint32_t i = 0; i < index->file_count; i++) {
        bool keep = true;
        if (!code)
            code = settle_file(index, input, index->files[i], &keep);
        if (keep)
            index->files[left++] = index->files[i];
        else
            index_file_unref(index->files[i]);
    }
    index->file_count = left;
    if (!code)
        code = read_trailing(index);
    const struct index_file *last = index_files_newest(index);
    if (!code && last) {
        *end_phys = last->header.end_phys;
        atomic_store(&index->last_phys, last->header.end_phys - 1); /* that one may lack keys */
        atomic_store(&index->last_ms, last->header.end_ms);
    }
    lock_release(&index->lock);
    if (code)
        error_set_errno(err, code, errno, "mending the index in %s", index->dir);
    return code;
}
