/*
 * Checkpoints: what is known becomes durable, the files before what says that they are.
 *
 *   task:  takes everything down as bytes ─► save task: syncs the buckets that were written since,
 *          then the checkpoint, then delayOffset.json ─► task: the snapshot counts; buckets that it
 *          does not have any more are removed
 *
 * A bucket is removed when nothing waits in it, and its last item is older than the oldest
 * snapshot: no cut that does not begin anew brings back what it says.
 *
 * Threads: save_step() and save_now() on the schedule's task or by who holds its turn;
 * save_task_step() on its own. Failure modes: a sync that failed is never tried again: this process
 * writes no more checkpoints, the next start follows the log from the last one. A cut removes that
 * one then, and the next start follows the whole log.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/schedule/schedule_internal.h"

enum { SAVE_MS = 10000 };

static void free_save(struct save *save)
{
    if (!save)
        return;
    free(save->bytes);
    free(save->dirty);
    free(save);
}

/* Finished ones; a few of them a time. */
static void leave_finished(struct schedule *s, const struct delay_snapshots *next)
{
    for (uint32_t i = 0; i < s->buckets.count; i++) {
        struct bucket *row = &s->buckets.rows[i];
        if (row->dones >= row->adds && row->last_phys < next->rows[0].position &&
            !(s->loader.active && s->loader.id == row->id))
            row->leaving = true;
    }
}

static struct save *take_down(struct schedule *s, const struct delay_snapshots *snapshots)
{
    struct save *save = calloc(1, sizeof *save);
    if (!save)
        return NULL;
    save->snapshots = *snapshots;
    memcpy(save->base, s->levels.base, sizeof save->base);
    save->dirty = calloc(s->buckets.count ? s->buckets.count : 1, sizeof *save->dirty);
    save->bytes = delay_checkpoint_encode(snapshots, &s->levels, &s->buckets, &save->size);
    if (!save->dirty || !save->bytes) {
        free_save(save);
        return NULL;
    }
    for (uint32_t i = 0; i < s->buckets.count; i++) {
        if (s->buckets.rows[i].dirty && !s->buckets.rows[i].leaving)
            save->dirty[save->dirty_count++] = s->buckets.rows[i].id;
        s->buckets.rows[i].dirty = false;
    }
    return save;
}

/* @thread any */
static void write_all(struct schedule *s, struct save *save)
{
    const struct env *env = &s->broker->env;
    char path[FS_PATH_BYTES];
    enum tern_code code = TERN_OK;
    if (save->dirty_count > 1)
        fs_write_back(env->fs, s->dir);
    for (uint32_t i = 0; !code && i < save->dirty_count; i++) {
        bucket_path(&s->buckets, save->dirty[i], path);
        code = bucket_sync(env, path, &save->err);
    }
    if (!code) { /* makes new files durable, too */
        code = delay_checkpoint_write(env, s->dir, save->bytes, save->size, &save->err);
    }
    if (!code)
        code = delay_offsets_write(env, s->offsets_path, save->base, DELAY_LEVELS_MAX, &save->err);
    save->code = code;
}

/* What the checkpoint says is durable. */
static void settle(struct schedule *s, const struct save *save)
{
    char path[FS_PATH_BYTES];
    s->snapshots = save->snapshots;
    level_progress_prune(&s->levels, s->snapshots.rows[0].base);
    for (uint32_t i = s->buckets.count; i > 0; i--) {
        struct bucket *row = &s->buckets.rows[i - 1];
        if (!row->leaving)
            continue;
        if (s->loader.active && s->loader.id == row->id) { /* being read: next time */
            row->leaving = false;
            row->dirty = true;
            continue;
        }
        bucket_path(&s->buckets, row->id, path);
        enum tern_code code = fs_unlink(s->broker->env.fs, path);
        if (code && code != TERN_NOT_FOUND)
            log_warn(s->broker->env.log, "delay_file_not_removed", "file=%s code=%s", path,
                     tern_code_name(code));
        buckets_drop_row(&s->buckets, row->id);
    }
}

static void failed(struct schedule *s, const struct save *save)
{
    s->save_broken = true;
    log_error(s->broker->env.log, "delay_checkpoint_failed",
              "cause=\"%s\" effect=\"no more are written; the next start reads the log from the "
              "last one\"",
              error_text(&save->err, save->code));
}

static struct delay_snapshots next_snapshots(const struct schedule *s)
{
    struct delay_snapshots next = s->snapshots;
    struct delay_snapshot now = {.position = s->fed,
                                 .taken_ms = clock_wall_ms(s->broker->env.clock)};
    memcpy(now.base, s->levels.base, sizeof now.base);
    delay_snapshots_add(&next, &now);
    return next;
}

enum tern_code save_now(struct schedule *s, const struct delay_snapshots *snapshots,
                        struct tern_error *err)
{
    if (s->save_broken) /* what the last one says would not be true behind a cut */
        return snapshots ? delay_checkpoint_remove(&s->broker->env, s->dir, err) : TERN_OK;
    struct delay_snapshots next = snapshots ? *snapshots : next_snapshots(s);
    struct save *save = take_down(s, &next);
    if (!save)
        return error_set(err, TERN_NO_MEMORY, "no memory for the checkpoint of delayed messages");
    write_all(s, save);
    enum tern_code code = save->code;
    if (code)
        failed(s, save);
    else
        settle(s, save);
    if (code && err)
        *err = save->err;
    free_save(save);
    return code;
}

/* @thread the task, with both turns or while the other one is not at it */
void save_discard(struct schedule *s)
{
    lock_acquire(&s->lock);
    struct save *save = s->save;
    s->save = NULL;
    lock_release(&s->lock);
    for (uint32_t i = 0; save && i < s->buckets.count; i++)
        s->buckets.rows[i].dirty = true;
    free_save(save);
}

void save_step(struct schedule *s, int64_t now_ns)
{
    lock_acquire(&s->lock);
    struct save *save = s->save;
    bool finished = save && save->finished;
    if (finished)
        s->save = NULL;
    lock_release(&s->lock);
    if (finished && save->code)
        failed(s, save);
    else if (finished)
        settle(s, save);
    if (finished)
        free_save(save);
    if (s->rebuild_wanted)
        return;
    int64_t last = s->snapshots.rows[s->snapshots.count - 1].position;
    if ((save && !finished) || s->save_broken || now_ns < s->next_save_ns || s->fed == last)
        return;
    s->next_save_ns = now_ns + ms_to_ns(SAVE_MS);
    struct delay_snapshots next = next_snapshots(s);
    leave_finished(s, &next);
    save = take_down(s, &next);
    lock_acquire(&s->lock);
    s->save = save;
    if (save && s->save_task)
        task_wake(s->save_task);
    lock_release(&s->lock);
}

int64_t save_task_step(void *arg, int64_t now_ns)
{
    struct schedule *s = arg;
    (void)now_ns;
    if (!turn_try(&s->save_turn))
        return SCHED_NEVER;
    lock_acquire(&s->lock);
    struct save *save = s->save && !s->save->finished ? s->save : NULL;
    lock_release(&s->lock);
    if (save) {
        write_all(s, save);
        lock_acquire(&s->lock);
        save->finished = true;
        if (s->task)
            task_wake(s->task);
        lock_release(&s->lock);
    }
    turn_release(&s->save_turn);
    return SCHED_NEVER;
}
