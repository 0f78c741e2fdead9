/*
 * mqstore repair: a log with damage in it becomes one that ends before the damage.
 *
 *   records … ┊ damage ┊ records …      kept ┊ zeros           saved under ROOT/diverged/:
 *   ──────────┴────────┴──────────  ─►  ─────┴───────    FROM-END-WALLMS.log, the segment's rest
 *             cut                            cut         WALLMS/, the later segments as they are
 *
 * What lies behind the damage are messages that had been stored, so nothing is done without --yes;
 * a copy of the damaged segment (a slave's has the same bytes) is always better. A torn tail is
 * left to the broker, which cuts it by itself.
 *
 * Order, each durable before the next: the abort mark, so that the next start recovers in full; the
 * copy of the segment's rest; the flush mark lowered; the later segments moved, last first; the
 * rest zeroed. A crash in between leaves damage at the same place: repair again. Threads: one.
 * Failure modes: an error of the disk ends it, what was saved stays saved.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "broker/store/flush_mark.h"
#include "tools/mqstore/log_reader.h"
#include "tools/mqstore/memory.h"
#include "tools/mqstore/mqstore.h"

enum { COPY_BYTES = 1 << 20 };

struct repair {
    struct store_dir dir;
    const struct mqstore_options *options;
    int64_t cut;           /* where the log is to end; -1: it is not damaged */
    const char *why;       /* what stands there */
    int64_t end;           /* of the last record behind, or of what is not zero */
    uint64_t before, lost; /* whole records before and behind */
    int64_t wall_ms;
    char saved[FS_PATH_BYTES]; /* below the root */
    uint32_t moved;            /* segments */
};

/* ---- looking ---- */

static const char *fault_of(const struct log_item *item)
{
    switch (item->kind) {
    case LOG_DAMAGE:
        return item->why;
    case LOG_BAD_CRC:
        return "a record whose body does not fit its CRC";
    case LOG_BAD_POSITION:
        return "a record of another physical offset";
    case LOG_NO_SEGMENT:
        return "a missing segment";
    default:
        return NULL;
    }
}

static enum tern_code look(struct repair *repair, struct tern_error *err)
{
    struct log_reader reader;
    struct log_item item;
    enum tern_code code;
    repair->cut = -1;
    log_reader_init(&reader, &repair->dir, 0);
    do {
        code = log_reader_next(&reader, &item, err);
        if (code)
            break;
        const char *why = fault_of(&item);
        if (why && repair->cut < 0) {
            repair->cut = item.phys_off;
            repair->why = why;
        }
        if (item.kind == LOG_RECORD && repair->cut < 0)
            repair->before++;
        else if (item.kind == LOG_RECORD)
            repair->lost++;
        if (item.kind == LOG_END)
            repair->end = item.tail_end > item.phys_off ? item.tail_end : item.phys_off;
    } while (item.kind != LOG_END);
    log_reader_fini(&reader);
    return code;
}

/* The segment that holds `cut`, or segment_count when it is the missing one. */
static uint32_t cut_segment(const struct repair *repair)
{
    const struct store_dir *dir = &repair->dir;
    for (uint32_t i = 0; i < dir->segment_count; i++)
        if (repair->cut >= dir->segments[i].base &&
            repair->cut < dir->segments[i].base + dir->segment_bytes)
            return i;
    return dir->segment_count;
}

/* ---- doing ---- */

static enum tern_code failed(const struct repair *repair, const char *name, enum tern_code code,
                             struct tern_error *err)
{
    return error_set_errno(err, code, errno, "%s/%s: cannot write", repair->dir.root, name);
}

/* An empty file, durably. */
static enum tern_code mark_unclean(struct repair *repair, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct file *file = NULL;
    enum tern_code code = fs_join(path, repair->dir.root, "abort");
    if (!code)
        code = fs_open(repair->dir.env->fs, path, FS_READ | FS_WRITE | FS_CREATE, &file);
    file_close(file);
    if (!code)
        code = fs_sync_dir(repair->dir.env->fs, repair->dir.root);
    return code ? failed(repair, "abort", code, err) : TERN_OK;
}

static enum tern_code copy_bytes(struct file *from, struct file *to, int64_t at, int64_t size)
{
    uint8_t *buffer = tool_alloc(1, COPY_BYTES);
    enum tern_code code = TERN_OK;
    for (int64_t done = 0; done < size && !code;) {
        size_t want = size - done < COPY_BYTES ? (size_t)(size - done) : COPY_BYTES;
        size_t got = 0;
        code = file_pread(from, buffer, want, at + done, &got);
        if (!code && got > 0)
            code = file_pwrite(to, buffer, got, done);
        if (got < want)
            break; /* the file is short: the rest was never there */
        done += (int64_t)got;
    }
    free(buffer);
    return code ? code : file_sync(to);
}

/* The segment's bytes from `cut` on go to diverged/FROM-END-WALLMS.log. */
static enum tern_code save_rest(struct repair *repair, const struct log_segment *segment,
                                struct tern_error *err)
{
    struct fs *fs = repair->dir.env->fs;
    char name[STORE_NAME_BYTES], folder[FS_PATH_BYTES], path[FS_PATH_BYTES];
    char part[FS_PATH_BYTES + 8];
    struct file *from = NULL, *to = NULL;
    int64_t end = segment->base + segment->file_bytes;
    end = repair->end < end ? repair->end : end;
    snprintf(repair->saved, sizeof repair->saved,
             "diverged/%020" PRId64 "-%020" PRId64 "-%" PRId64 ".log", repair->cut, end,
             repair->wall_ms);
    store_dir_segment_name(name, segment->base);
    enum tern_code code = fs_join(folder, repair->dir.root, "diverged");
    if (!code)
        code = fs_mkdirs(fs, folder);
    if (!code)
        code = fs_join(path, repair->dir.root, repair->saved);
    if (!code) {
        snprintf(part, sizeof part, "%s.part", path);
        code = fs_open(fs, part, FS_WRITE | FS_CREATE | FS_TRUNCATE, &to);
    }
    if (!code)
        code = store_dir_open_file(&repair->dir, name, &from);
    if (!code)
        code = copy_bytes(from, to, repair->cut - segment->base, end - repair->cut);
    file_close(from);
    file_close(to);
    if (!code)
        code = fs_rename(fs, part, path);
    if (!code)
        code = fs_sync_dir(fs, folder);
    return code ? failed(repair, repair->saved, code, err) : TERN_OK;
}

static enum tern_code lower_mark(struct repair *repair, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct flush_mark *mark = NULL;
    if (!repair->dir.mark_known || repair->dir.mark <= repair->cut)
        return TERN_OK;
    enum tern_code code = fs_join(path, repair->dir.root, "ternmq/flushed");
    if (!code)
        code = flush_mark_open(repair->dir.env, path, &mark, err);
    if (code)
        return code;
    code = flush_mark_set(mark, repair->cut);
    if (!code)
        code = flush_mark_sync(mark);
    flush_mark_close(mark);
    return code ? failed(repair, "ternmq/flushed", code, err) : TERN_OK;
}

/* Segments from `first` on go to diverged/WALLMS/, the last one first. */
static enum tern_code move_segments(struct repair *repair, uint32_t first, struct tern_error *err)
{
    struct store_dir *dir = &repair->dir;
    char folder[FS_PATH_BYTES], log[FS_PATH_BYTES], from[FS_PATH_BYTES];
    char to[FS_PATH_BYTES + 32];
    char name[STORE_NAME_BYTES];
    if (first >= dir->segment_count)
        return TERN_OK;
    snprintf(name, sizeof name, "diverged/%" PRId64, repair->wall_ms);
    enum tern_code code = fs_join(folder, dir->root, name);
    if (!code)
        code = fs_join(log, dir->root, "commitlog");
    if (!code)
        code = fs_mkdirs(dir->env->fs, folder);
    for (uint32_t i = dir->segment_count; i-- > first && !code; repair->moved += !code) {
        store_dir_segment_name(name, dir->segments[i].base);
        code = fs_join(from, dir->root, name);
        snprintf(to, sizeof to, "%s/%020" PRId64, folder, dir->segments[i].base);
        if (!code)
            code = fs_rename(dir->env->fs, from, to);
    }
    if (!code)
        code = fs_sync_dir(dir->env->fs, folder);
    if (!code)
        code = fs_sync_dir(dir->env->fs, log);
    return code ? failed(repair, "diverged", code, err) : TERN_OK;
}

static enum tern_code zero_rest(struct repair *repair, const struct log_segment *segment,
                                struct tern_error *err)
{
    char name[STORE_NAME_BYTES], path[FS_PATH_BYTES];
    struct file *file = NULL;
    int64_t at = repair->cut - segment->base;
    store_dir_segment_name(name, segment->base);
    enum tern_code code = fs_join(path, repair->dir.root, name);
    if (!code)
        code = fs_open(repair->dir.env->fs, path, FS_READ | FS_WRITE, &file);
    if (!code && segment->file_bytes > at)
        code = file_zero(file, at, segment->file_bytes - at);
    if (!code)
        code = file_sync(file);
    file_close(file);
    return code ? failed(repair, name, code, err) : TERN_OK;
}

static enum tern_code cut(struct repair *repair, struct tern_error *err)
{
    const struct store_dir *dir = &repair->dir;
    uint32_t at = cut_segment(repair);
    bool within = at < dir->segment_count;
    uint32_t first = at + 1; /* to be moved */
    if (!within)
        for (first = 0; first < dir->segment_count && dir->segments[first].base < repair->cut;)
            first++;
    repair->wall_ms = clock_wall_ms(dir->env->clock);
    enum tern_code code = mark_unclean(repair, err);
    if (!code && within)
        code = save_rest(repair, &dir->segments[at], err);
    if (!code)
        code = lower_mark(repair, err);
    if (!code)
        code = move_segments(repair, first, err);
    if (!code && within)
        code = zero_rest(repair, &dir->segments[at], err);
    return code;
}

/* ---- telling ---- */

static void tell(const struct repair *repair, bool done)
{
    FILE *out = repair->options->out;
    if (repair->options->json) {
        mqstore_print_json(json_pack("{s:b,s:I,s:s?,s:I,s:I,s:I,s:b,s:s,s:i}", "damaged",
                                     (int)(repair->cut >= 0), "cut", (json_int_t)repair->cut, "why",
                                     repair->why, "end", (json_int_t)repair->end, "recordsBefore",
                                     (json_int_t)repair->before, "recordsBehind",
                                     (json_int_t)repair->lost, "done", (int)done, "saved",
                                     repair->saved, "segmentsMoved", (int)repair->moved),
                           repair->options);
        return;
    }
    if (repair->cut < 0) {
        fprintf(out, "the log is not damaged: %" PRIu64 " records up to %" PRId64 "\n",
                repair->before, repair->end);
        return;
    }
    fprintf(out,
            "at %" PRId64 ": %s; %" PRIu64 " whole records before it, %" PRIu64
            " behind it up to %" PRId64 "\n",
            repair->cut, repair->why, repair->before, repair->lost, repair->end);
    if (!done) {
        fputs(
            "a copy of the segment from a slave, which has the same bytes, loses nothing.\nrepair "
            "--yes ends the log there and saves what is behind under diverged/; those messages are "
            "gone from this store\n",
            out);
        return;
    }
    if (repair->saved[0])
        fprintf(out, "saved the segment's rest as %s\n", repair->saved);
    if (repair->moved)
        fprintf(out, "moved %" PRIu32 " later segments to diverged/%" PRId64 "\n", repair->moved,
                repair->wall_ms);
    fprintf(out, "the log ends at %" PRId64 "; queues and index are put right at the next start\n",
            repair->cut);
}

int mqstore_repair(const struct env *env, const char *root, const struct mqstore_options *options)
{
    struct repair repair = {.options = options};
    struct tern_error err = {TERN_OK, ""};
    int status = mqstore_open(&repair.dir, env, root, true, options);
    if (status)
        return status;
    enum tern_code code = TERN_OK;
    if (repair.dir.lock_state != LOCK_FREE)
        code = error_set(&err, TERN_IN_USE, "%s: the store may be in use: stop its broker first",
                         root);
    if (!code)
        code = look(&repair, &err);
    bool damaged = !code && repair.cut >= 0;
    if (damaged && options->yes)
        code = cut(&repair, &err);
    if (code) {
        status = mqstore_fail(options, code, &err);
    } else {
        tell(&repair, damaged && options->yes);
        status = damaged && !options->yes ? MQSTORE_FAILED : MQSTORE_OK;
    }
    store_dir_close(&repair.dir);
    return status;
}
