/*
 * The segment preparer.
 *
 * Place: beside the appender. Half-way through a segment the appender says that it will want
 * another one; the task reserves it at once (blocks only, a few milliseconds) and, while nobody
 * appends, writes zeros into it in steps, synced: flushing into blocks that were written before
 * costs a third less than into reserved ones. The appender takes it by a rename.
 *
 *              want                reserved                  idle
 *     EMPTY ─────────► MAKING ────────────────► READY ◄──────────────► ZEROING
 *       ▲                                         │      step done
 *       └────────────── take: rename ─────────────┘
 *
 * Invariants: a file in prepared/ holds only zeros, so one left behind by a clean stop can be used.
 * After a crash all are deleted, durably and before any task starts: a rename into commitlog/ may
 * have reached the disk only by its second half, and the file in prepared/ would then be a live
 * segment under another name. For the same reason closing syncs the folder. A segment's length is
 * synced before it is moved in. Only a file that is still in prepared/ is zeroed; in MAKING and
 * ZEROING it belongs to whoever set the state, so a take then gets TERN_AGAIN and on_ready()
 * afterwards. The directory of the new name is synced by the flusher before anything in the segment
 * counts as flushed.
 *
 * Threads: the task, and the append token's holder in take().
 * Failure modes: no space or no descriptor -> the code is kept in the gate (for the refusal's text)
 * and the next attempt is a second later; nothing is lost, so nothing latches, but for a rename
 * that failed halfway.
 */
#include "broker/store/preparer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sched.h"

enum {
    ZERO_STEP_BYTES = 8 << 20,
    IDLE_MS = 50,   /* nobody appended for so long: zeroing may go on */
    RETRY_MS = 1000 /* after a failure to make one */
};

enum prepare_state { PREPARE_EMPTY, PREPARE_MAKING, PREPARE_READY, PREPARE_ZEROING };

struct preparer {
    const struct env *env;
    struct preparer_options options;
    char dir[FS_PATH_BYTES]; /* ROOT/prepared */
    struct task *task;
    struct lock lock; /* STORE_SEGMENTS: the six below, never taken together with the set's */
    enum prepare_state state;
    bool wanted;  /* by preparer_want(), until the task has made one */
    bool claimed; /* a take got TERN_AGAIN and waits for on_ready() */
    struct segment *ready;
    char ready_path[FS_PATH_BYTES];
    int64_t retry_ns; /* no attempt before this monotonic time; 0: none failed */

    /* the task's own */
    bool adopted;        /* what the last run left was looked at */
    int64_t zeroed;      /* bytes of `ready` that were written */
    int64_t seen_end;    /* the log's end when last looked at */
    int64_t seen_end_ns; /* since when it has not moved */
    uint64_t number;     /* for names; made under state MAKING */
};

/* ---- making ---- */

/* A file that stays behind only takes room until the next start. */
static void remove_prepared(struct preparer *p, const char *path)
{
    if (fs_unlink(p->env->fs, path))
        log_warn(p->env->log, "store.prepared_left", "path=\"%s\"", path);
}

/* Opens and reserves one file; *path is its name in prepared/. @blocks on the disk */
static enum tern_code make_file(struct preparer *p, char path[FS_PATH_BYTES], struct segment **out)
{
    char name[SEGMENT_NAME_BYTES];
    snprintf(name, sizeof name, "segment-%" PRIu64, ++p->number);
    enum tern_code code = fs_join(path, p->dir, name);
    struct file *file = NULL;
    if (!code)
        code = segments_make_room(&p->options.log->segments);
    if (!code)
        code = fs_open(p->env->fs, path, FS_READ | FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (code)
        return code;
    code = file_reserve(file, 0, p->options.log->segments.bytes);
    if (!code)
        code = file_sync(file); /* its length: a segment in commitlog/ is never short */
    if (code)
        file_close(file);
    else if (!(*out = segment_create(file, 0)))
        code = TERN_NO_MEMORY;
    if (code)
        remove_prepared(p, path);
    return code;
}

/* MAKING ends: READY with a segment, else EMPTY until the retry. */
static void made(struct preparer *p, enum tern_code code, struct segment *segment, const char *path)
{
    int64_t retry_ns = clock_mono_ns(p->env->clock) + ms_to_ns(RETRY_MS);
    atomic_store(&p->options.gate->segment_code, code);
    if (code)
        log_error(p->env->log, "store.no_next_segment", "dir=\"%s\" code=%s", p->dir,
                  tern_code_name(code));
    lock_acquire(&p->lock);
    p->state = code ? PREPARE_EMPTY : PREPARE_READY;
    p->retry_ns = code ? retry_ns : 0;
    p->ready = segment;
    p->zeroed = 0;
    if (!code) {
        p->wanted = false;
        memcpy(p->ready_path, path, FS_PATH_BYTES);
    }
    lock_release(&p->lock);
}

static void make_next(struct preparer *p)
{
    char path[FS_PATH_BYTES];
    struct segment *segment = NULL;
    enum tern_code code = make_file(p, path, &segment);
    made(p, code, segment, path);
}

enum tern_code preparer_first_segment(struct commit_log *log, int64_t base, struct tern_error *err)
{
    struct segments *set = &log->segments;
    char name[SEGMENT_NAME_BYTES];
    char path[FS_PATH_BYTES];
    segment_name(name, base);
    enum tern_code code = fs_join(path, set->dir, name);
    struct file *file = NULL;
    if (!code)
        code = fs_open(set->env->fs, path, FS_READ | FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file);
    if (!code)
        code = file_reserve(file, 0, set->bytes);
    if (!code)
        code = file_sync(file);
    if (!code)
        code = fs_sync_dir(set->env->fs, set->dir);
    if (code) {
        error_set_errno(err, code, errno,
                        "%s/%s: cannot create a segment of %" PRId64
                        " bytes (mappedFileSizeCommitLog)",
                        set->dir, name, set->bytes);
        file_close(file);
        return code; /* a file too short stays: the next start extends it */
    }
    code = segments_add_file(set, file, base);
    return code ? error_set(err, code, "%s: no memory", path) : TERN_OK;
}

/* ---- what the last run left ---- */

static bool is_prepared_name(const char *name, bool is_dir)
{
    return !is_dir && strncmp(name, "segment-", 8) == 0;
}

/* Takes the first of full length as ready, deletes the others. */
static bool on_leftover(void *arg, const char *name, bool is_dir)
{
    struct preparer *p = arg;
    char path[FS_PATH_BYTES];
    if (!is_prepared_name(name, is_dir) || fs_join(path, p->dir, name))
        return true;
    struct fs_stat stat;
    struct file *file = NULL;
    if (!p->ready && fs_stat(p->env->fs, path, &stat) == TERN_OK &&
        stat.size_bytes == p->options.log->segments.bytes &&
        fs_open(p->env->fs, path, FS_READ | FS_WRITE, &file) == TERN_OK) {
        p->ready = segment_create(file, 0);
        memcpy(p->ready_path, path, sizeof path);
        p->number = strtoull(name + 8, NULL, 10);
        return true;
    }
    remove_prepared(p, path);
    return true;
}

/* Uses what a clean stop left; the state is MAKING meanwhile. */
static void adopt(struct preparer *p)
{
    p->adopted = true;
    enum tern_code code = fs_list(p->env->fs, p->dir, on_leftover, p);
    if (code)
        log_warn(p->env->log, "store.prepared_unlisted", "dir=\"%s\" code=%s", p->dir,
                 tern_code_name(code));
    if (p->ready && segments_make_room(&p->options.log->segments)) {
        segment_unref(p->ready);
        p->ready = NULL;
    }
    lock_acquire(&p->lock);
    p->zeroed = p->options.log->segments.bytes; /* probably; not worth a second time */
    p->state = p->ready ? PREPARE_READY : PREPARE_EMPTY;
    lock_release(&p->lock);
}

struct discard {
    const struct env *env;
    const char *dir;
    enum tern_code code;
};

static bool on_discard(void *arg, const char *name, bool is_dir)
{
    struct discard *discard = arg;
    char path[FS_PATH_BYTES];
    if (!is_prepared_name(name, is_dir))
        return true;
    discard->code = fs_join(path, discard->dir, name);
    if (!discard->code)
        discard->code = fs_unlink(discard->env->fs, path);
    return discard->code == TERN_OK;
}

enum tern_code preparer_discard_leftovers(const struct env *env, const char *dir,
                                          struct tern_error *err)
{
    struct discard discard = {.env = env, .dir = dir};
    enum tern_code code = fs_list(env->fs, dir, on_discard, &discard);
    if (!code)
        code = discard.code;
    if (!code)
        code = fs_sync_dir(env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot be emptied", dir) : TERN_OK;
}

/* ---- the task ---- */

/* Tells a waiting taker that the state is nobody's any more. */
static void release_claim(struct preparer *p)
{
    lock_acquire(&p->lock);
    bool claimed = p->claimed;
    p->claimed = false;
    lock_release(&p->lock);
    if (claimed)
        p->options.on_ready(p->options.arg);
}

/* Writes one step of zeros and syncs it; false when that failed. */
static bool zero_step(struct preparer *p)
{
    int64_t left = p->options.log->segments.bytes - p->zeroed;
    int64_t step = left < ZERO_STEP_BYTES ? left : ZERO_STEP_BYTES;
    enum tern_code code = file_zero(p->ready->file, p->zeroed, step);
    if (!code)
        code = file_sync(p->ready->file);
    if (code)
        log_warn(p->env->log, "store.zeroing_stopped", "path=\"%s\" code=%s", p->ready_path,
                 tern_code_name(code));
    p->zeroed += step;
    return !code;
}

/* A file whose zeros could not be synced is not handed out: its pages are in doubt. */
static void drop_ready(struct preparer *p)
{
    remove_prepared(p, p->ready_path);
    segment_unref(p->ready);
    lock_acquire(&p->lock);
    p->ready = NULL;
    p->state = PREPARE_EMPTY;
    p->wanted = true;
    p->retry_ns = clock_mono_ns(p->env->clock) + ms_to_ns(RETRY_MS);
    lock_release(&p->lock);
}

/* One step of zeroing when nobody appends; the time of the next look. */
static int64_t zero_when_idle(struct preparer *p, int64_t now_ns)
{
    int64_t end = commit_log_end(p->options.log);
    if (end != p->seen_end) {
        p->seen_end = end;
        p->seen_end_ns = now_ns;
    }
    if (now_ns - p->seen_end_ns < ms_to_ns(IDLE_MS))
        return p->seen_end_ns + ms_to_ns(IDLE_MS);
    lock_acquire(&p->lock);
    bool mine = p->state == PREPARE_READY && p->zeroed < p->options.log->segments.bytes;
    if (mine)
        p->state = PREPARE_ZEROING;
    lock_release(&p->lock);
    if (!mine)
        return SCHED_NEVER;
    if (!zero_step(p)) {
        drop_ready(p);
    } else {
        lock_acquire(&p->lock);
        p->state = PREPARE_READY;
        lock_release(&p->lock);
    }
    release_claim(p);
    int64_t done_ns = clock_mono_ns(p->env->clock);
    return done_ns + (done_ns - now_ns); /* half of the disk's time is for others */
}

/* @thread the task's */
static int64_t preparer_step(void *arg, int64_t now_ns)
{
    struct preparer *p = arg;
    if (!p->adopted) {
        adopt(p);
        release_claim(p);
    }
    lock_acquire(&p->lock);
    bool make = p->state == PREPARE_EMPTY && p->wanted;
    int64_t retry_ns = p->retry_ns;
    if (make && retry_ns <= now_ns)
        p->state = PREPARE_MAKING;
    bool zero = p->state == PREPARE_READY && p->zeroed < p->options.log->segments.bytes;
    lock_release(&p->lock);
    if (make && retry_ns > now_ns)
        return retry_ns;
    if (make) {
        make_next(p);
        release_claim(p);
        return now_ns;
    }
    return zero ? zero_when_idle(p, now_ns) : SCHED_NEVER;
}

/* ---- taking ---- */

/* Moves the prepared file to its name in commitlog/ and adds it. */
static enum tern_code move_in(struct preparer *p, struct segment *segment, const char *from,
                              int64_t base)
{
    struct commit_log *log = p->options.log;
    char name[SEGMENT_NAME_BYTES];
    char path[FS_PATH_BYTES];
    segment_name(name, base);
    enum tern_code code = fs_join(path, log->segments.dir, name);
    if (!code)
        code = fs_rename(p->env->fs, from, path);
    if (code)
        return code;
    segment->base = base;
    segment_ref(segment); /* the taker's */
    segments_add(&log->segments, segment);
    atomic_fetch_add_explicit(&log->dir_changes, 1, memory_order_release);
    return TERN_OK;
}

enum take_how {
    TAKE_DONE,  /* *out and path are the taker's */
    TAKE_MAKE,  /* the state is MAKING, set by us: make one in this thread */
    TAKE_LATER, /* not ready; on_ready() follows when the taker may wait */
    TAKE_FAILED /* the last attempt failed less than a second ago */
};

static enum take_how take_begin(struct preparer *p, bool may_wait, int64_t now_ns,
                                struct segment **out, char path[FS_PATH_BYTES])
{
    enum take_how how = TAKE_LATER;
    lock_acquire(&p->lock);
    if (p->retry_ns > now_ns) {
        how = TAKE_FAILED;
    } else if (p->state == PREPARE_READY) {
        *out = p->ready;
        memcpy(path, p->ready_path, FS_PATH_BYTES);
        p->ready = NULL;
        p->state = PREPARE_EMPTY;
        how = TAKE_DONE;
    } else if (p->state == PREPARE_EMPTY && may_wait) {
        p->state = PREPARE_MAKING;
        how = TAKE_MAKE;
    } else if (may_wait) {
        p->claimed = true;
    }
    lock_release(&p->lock);
    return how;
}

/* What is to be done about a rename that failed: keep the file for another try, or latch. */
static void take_failed(struct preparer *p, enum tern_code code, struct segment *segment,
                        const char *path)
{
    atomic_store(&p->options.gate->segment_code, code);
    if (code != TERN_NO_SPACE)
        gate_latch(p->options.gate, code, "a prepared segment cannot be moved into commitlog/");
    int64_t retry_ns = clock_mono_ns(p->env->clock) + ms_to_ns(RETRY_MS);
    lock_acquire(&p->lock);
    ENSURE(p->state == PREPARE_EMPTY || p->state == PREPARE_MAKING);
    bool keep = p->state == PREPARE_EMPTY;
    if (keep) {
        p->ready = segment;
        p->state = PREPARE_READY;
    }
    p->retry_ns = retry_ns;
    lock_release(&p->lock);
    if (!keep) { /* the task has begun another one */
        remove_prepared(p, path);
        segment_unref(segment);
    }
}

enum tern_code preparer_take(struct preparer *p, int64_t base, bool may_wait, struct segment **out)
{
    char path[FS_PATH_BYTES];
    struct segment *segment = NULL;
    int64_t now_ns = clock_mono_ns(p->env->clock);
    enum take_how how = take_begin(p, may_wait, now_ns, &segment, path);
    if (how == TAKE_MAKE) {
        make_next(p);
        how = take_begin(p, false, now_ns, &segment, path);
    }
    if (how == TAKE_LATER)
        return TERN_AGAIN;
    if (how == TAKE_FAILED) {
        enum tern_code why = (enum tern_code)atomic_load(&p->options.gate->segment_code);
        return why ? why : TERN_IO;
    }
    enum tern_code code = move_in(p, segment, path, base);
    if (code)
        take_failed(p, code, segment, path);
    else
        *out = segment;
    return code;
}

void preparer_want(struct preparer *p)
{
    lock_acquire(&p->lock);
    bool none = p->state == PREPARE_EMPTY || p->state == PREPARE_MAKING;
    bool wake = none && !p->wanted;
    p->wanted = p->wanted || none;
    lock_release(&p->lock);
    if (wake)
        task_wake(p->task);
}

enum tern_code preparer_create(const struct env *env, const struct preparer_options *options,
                               struct preparer **out)
{
    *out = NULL;
    struct preparer *p = calloc(1, sizeof *p);
    if (!p)
        return TERN_NO_MEMORY;
    p->env = env;
    p->options = *options;
    p->state = PREPARE_MAKING; /* until the leftovers were looked at */
    p->seen_end = -1;
    lock_init(&p->lock, LOCK_STORE_SEGMENTS);
    enum tern_code code = fs_join(p->dir, options->root, "prepared");
    *out = p; /* the first step may come before task_start() returns */
    if (!code)
        code = task_start(env->sched, "store-prepare", preparer_step, p, &p->task);
    if (code) {
        preparer_destroy(p);
        *out = NULL;
    }
    return code;
}

void preparer_destroy(struct preparer *p)
{
    if (!p)
        return;
    task_stop(p->task);
    segment_unref(p->ready);
    lock_fini(&p->lock);
    free(p);
}
