/*
 * Ending the index where the log was cut.
 *
 * Entries lie in log order, so what a cut of the log takes away is at the end: files that begin
 * behind the cut go, newest first; the one in which it lies keeps the entries before and gets its
 * slots made again from them (index_mend.c), which brings it to the disk with the unfinished mark.
 * The caller has lowered what the flush mark says of the index, durably, so a crash in between is
 * mended to the same place at the next start.
 *
 * Threads: the maker of the cut, who holds the dispatch token; queries go on, on what they have
 * open, and look at each record anyway. Locks: STORE_INDEX_SYNC and STORE_INDEX, both held while
 * the disk works, as applying does. Failure modes: codes of the disk; nothing is indexed any more
 * then, and the caller latches the store.
 */
#include "broker/store/index_internal.h"

#include <errno.h>

/* Nothing that was put and lies at or behind `at` is left in the service. @locks holds:STORE_INDEX
 */
static void lower(struct index_service *index, int64_t at)
{
    const struct index_file *last = index_files_newest(index);
    int64_t end_ms = last ? last->header.end_ms : 0;
    if (atomic_load(&index->last_phys) >= at)
        atomic_store(&index->last_phys, at - 1);
    if (atomic_load(&index->last_ms) > end_ms)
        atomic_store(&index->last_ms, end_ms);
    index->trailing_phys = -1;
    index->trailing_count = 0;
}

/* @locks holds:STORE_INDEX_SYNC,STORE_INDEX */
static enum tern_code remove_newest(struct index_service *index, const char *cause)
{
    struct index_file *file = index_files_newest(index);
    enum tern_code code = index_files_remove(index, file->name, cause);
    if (code)
        return code;
    index->file_count--;
    index_file_unref(file);
    return TERN_OK;
}

/* Ends the newest file, in which the cut lies. @locks holds:STORE_INDEX_SYNC,STORE_INDEX */
static enum tern_code end_newest(struct index_service *index, int64_t at)
{
    struct index_file *file = index_files_newest(index);
    uint32_t kept = 0;
    file_close(file->file); /* a sync would need STORE_INDEX_SYNC */
    file->file = NULL;
    file->synced = false;
    enum tern_code code = index_file_mend(file, index->env->fs, index->dir, at, &kept);
    return code || kept > 0 ? code : remove_newest(index, "cut");
}

enum tern_code index_service_cut(struct index_service *index, int64_t at, struct tern_error *err)
{
    enum tern_code code = index_apply(index);
    lock_acquire(&index->sync_lock);
    lock_acquire(&index->lock);
    bool removed = false;
    while (!code && index_files_newest(index)) {
        const struct index_header *h = &index_files_newest(index)->header;
        bool empty = h->count <= 1;
        if (!empty && h->end_phys < at)
            break;
        removed = true;
        code = empty || h->begin_phys >= at ? remove_newest(index, "cut") : end_newest(index, at);
    }
    if (!code && removed)
        code = fs_sync_dir(index->env->fs, index->dir);
    if (code) /* half done: no file may be given its mark of being whole any more */
        atomic_store(&index->failed, (int)code);
    lower(index, at);
    lock_release(&index->lock);
    lock_release(&index->sync_lock);
    return code ? error_set_errno(err, code, errno, "cutting the index in %s", index->dir)
                : TERN_OK;
}

enum tern_code index_service_clear(struct index_service *index, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    lock_acquire(&index->sync_lock);
    lock_acquire(&index->lock);
    atomic_store(&index->tail, atomic_load(&index->head));
    while (!code && index_files_newest(index))
        code = remove_newest(index, "reset");
    if (!code && fs_exists(index->env->fs, index->dir))
        code = fs_sync_dir(index->env->fs, index->dir);
    if (code)
        atomic_store(&index->failed, (int)code);
    lower(index, 0);
    lock_release(&index->lock);
    lock_release(&index->sync_lock);
    return code ? error_set_errno(err, code, errno, "removing the index in %s", index->dir)
                : TERN_OK;
}
