/*
 * The set of segments: opening, finding, adding behind, removing at either end.
 *
 * Place: under the commit log. The appender adds, retention removes the first, recovery the last,
 * everybody finds. Finding is arithmetic on equal lengths; the lock is held for the lookup and one
 * increment.
 *
 * Invariants: list[i].base == list[0].base + i * bytes; a segment in the set has at least one
 * reference. Threads: any, but one adder and one remover at a time. Failure modes: a directory that
 * does not add up is refused as a whole and nothing in it is touched; a segment that cannot be
 * unlinked stays in the set.
 */
#include "broker/store/segments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/store/dir_names.h"
#include "broker/store/record_head.h"

enum { SEGMENT_MIN_BYTES = 64, FIRST_CAPACITY = 16 };

/* The segments that were found, sorted. */
struct load {
    const struct segments *set;
    int64_t *bases;
    uint32_t count;
};

enum tern_code segments_init(struct segments *set, const struct env *env, const char *dir,
                             int64_t bytes, bool read_only)
{
    ENSURE(bytes >= SEGMENT_MIN_BYTES);
    memset(set, 0, sizeof *set);
    set->env = env;
    set->bytes = bytes;
    set->read_only = read_only;
    lock_init(&set->lock, LOCK_STORE_SEGMENTS);
    return fs_join(set->dir, dir, "commitlog");
}

void segments_fini(struct segments *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        segment_unref(set->list[i]);
    free(set->list);
    lock_fini(&set->lock);
}

void segment_name(char out[SEGMENT_NAME_BYTES], int64_t base)
{
    snprintf(out, SEGMENT_NAME_BYTES, "%020" PRId64, base);
}

struct segment *segment_create(struct file *file, int64_t base)
{
    struct segment *segment = calloc(1, sizeof *segment);
    if (!segment) {
        file_close(file);
        return NULL;
    }
    segment->base = base;
    segment->file = file;
    atomic_init(&segment->refs, 1);
    atomic_init(&segment->first_ms, 0);
    return segment;
}

void segment_ref(struct segment *segment)
{
    atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
}

void segment_unref(struct segment *segment)
{
    if (!segment || atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel) != 1)
        return;
    file_close(segment->file);
    free(segment);
}

/* ---- loading ---- */

/* Counts the names that are segments' and reports the others. */
static enum tern_code read_bases(struct segments *set, const struct dir_names *names,
                                 struct load *load)
{
    load->bases = malloc((names->count + 1) * sizeof *load->bases);
    if (!load->bases)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < names->count; i++) {
        const struct dir_name *entry = &names->items[i];
        if (!entry->is_dir &&
            dir_name_number(entry->name, OFFSET_NAME_DIGITS, INT64_MAX, &load->bases[load->count]))
            load->count++;
        else
            log_warn(set->env->log, "store.stray_file", "path=\"%s/%s\"", set->dir, entry->name);
    }
    return TERN_OK;
}

/* "<dir>/<name>: N bytes long, but …" */
static enum tern_code length_error(const struct segments *set, int64_t base, int64_t size,
                                   struct tern_error *err)
{
    return error_set(err, TERN_CONFIG,
                     "%s/%020" PRId64 ": %" PRId64
                     " bytes long, but mappedFileSizeCommitLog is %" PRId64
                     "; set the key to the length this store was made with",
                     set->dir, base, size, set->bytes);
}

/* With another length than configured, gaps would only be a consequence: that is looked at first.
 */
static enum tern_code check_first_length(const struct load *load, struct tern_error *err)
{
    const struct segments *set = load->set;
    char name[SEGMENT_NAME_BYTES];
    char path[FS_PATH_BYTES];
    struct fs_stat stat;
    segment_name(name, load->bases[0]);
    enum tern_code code = fs_join(path, set->dir, name);
    if (!code)
        code = fs_stat(set->env->fs, path, &stat);
    if (code)
        return error_set_errno(err, code, errno, "%s/%s: cannot stat", set->dir, name);
    if (stat.size_bytes != set->bytes && (load->count > 1 || stat.size_bytes > set->bytes))
        return length_error(set, load->bases[0], stat.size_bytes, err);
    return TERN_OK;
}

static enum tern_code check_bases(const struct load *load, struct tern_error *err)
{
    const struct segments *set = load->set;
    for (uint32_t i = 0; i < load->count; i++) {
        if (load->bases[i] % set->bytes != 0 || load->bases[i] > INT64_MAX - 2 * set->bytes)
            return error_set(err, TERN_CONFIG,
                             "%s/%020" PRId64 ": no multiple of mappedFileSizeCommitLog=%" PRId64
                             "; set the key to the length this store was made with",
                             set->dir, load->bases[i], set->bytes);
        if (i > 0 && load->bases[i] != load->bases[i - 1] + set->bytes)
            return error_set(err, TERN_CORRUPT,
                             "%s: segment %020" PRId64 " is missing before %020" PRId64
                             " (or mappedFileSizeCommitLog=%" PRId64
                             " is not what this store was made with); put it back from a copy, or "
                             "move the segments on one side of the gap out of this folder to go "
                             "on without their messages",
                             set->dir, load->bases[i - 1] + set->bytes, load->bases[i], set->bytes);
    }
    return TERN_OK;
}

/* A last segment whose making was cut short gets its full length; any other length is refused. */
static enum tern_code check_length(struct segments *set, struct file *file, int64_t base, bool last,
                                   struct tern_error *err)
{
    int64_t size = 0;
    enum tern_code code = file_size(file, &size);
    if (code)
        return error_set_errno(err, code, errno, "%s/%020" PRId64 ": cannot stat", set->dir, base);
    if (size == set->bytes)
        return TERN_OK;
    if (!last || size > set->bytes)
        return length_error(set, base, size, err);
    if (set->read_only)
        return TERN_OK;
    log_warn(set->env->log, "store.segment_extended",
             "segment=%020" PRId64 " from=%" PRId64 " to=%" PRId64, base, size, set->bytes);
    code = file_reserve(file, 0, set->bytes);
    if (!code)
        code = file_sync(file);
    return code ? error_set_errno(err, code, errno, "%s/%020" PRId64 ": cannot extend", set->dir,
                                  base)
                : TERN_OK;
}

static enum tern_code open_one(struct segments *set, int64_t base, bool last,
                               struct tern_error *err)
{
    char name[SEGMENT_NAME_BYTES];
    char path[FS_PATH_BYTES];
    segment_name(name, base);
    enum tern_code code = fs_join(path, set->dir, name);
    if (code)
        return error_set(err, code, "%s: path too long", set->dir);
    struct file *file = NULL;
    code = fs_open(set->env->fs, path, set->read_only ? FS_READ : FS_READ | FS_WRITE, &file);
    if (code)
        return error_set_errno(err, code, errno, "%s: cannot open", path);
    code = check_length(set, file, base, last, err);
    if (code) {
        file_close(file);
        return code;
    }
    code = segments_add_file(set, file, base);
    return code ? error_set(err, code, "%s: no memory", path) : TERN_OK;
}

enum tern_code segments_load(struct segments *set, struct tern_error *err)
{
    struct load load = {.set = set};
    struct dir_names names;
    enum tern_code code = dir_names_list(set->env->fs, set->dir, &names);
    if (!code)
        code = read_bases(set, &names, &load);
    dir_names_fini(&names);
    if (code)
        error_set_errno(err, code, errno, "%s: cannot list", set->dir);
    if (!code && load.count > 0)
        code = check_first_length(&load, err);
    if (!code)
        code = check_bases(&load, err);
    for (uint32_t i = 0; !code && i < load.count; i++)
        code = open_one(set, load.bases[i], i + 1 == load.count, err);
    free(load.bases);
    return code;
}

/* ---- the set ---- */

enum tern_code segments_make_room(struct segments *set)
{
    enum tern_code code = TERN_OK;
    lock_acquire(&set->lock);
    if (set->count == set->capacity) {
        uint32_t capacity = set->capacity ? set->capacity * 2 : FIRST_CAPACITY;
        struct segment **list = realloc(set->list, capacity * sizeof(struct segment *));
        if (list) {
            set->list = list;
            set->capacity = capacity;
        } else {
            code = TERN_NO_MEMORY;
        }
    }
    lock_release(&set->lock);
    return code;
}

void segments_add(struct segments *set, struct segment *segment)
{
    lock_acquire(&set->lock);
    ENSURE(set->count < set->capacity);
    ENSURE(set->count == 0 || set->list[set->count - 1]->base + set->bytes == segment->base);
    set->list[set->count++] = segment;
    lock_release(&set->lock);
}

enum tern_code segments_add_file(struct segments *set, struct file *file, int64_t base)
{
    struct segment *segment = segment_create(file, base);
    if (!segment || segments_make_room(set)) {
        segment_unref(segment);
        return TERN_NO_MEMORY;
    }
    segments_add(set, segment);
    return TERN_OK;
}

struct segment *segments_at(struct segments *set, uint32_t index)
{
    struct segment *segment = NULL;
    lock_acquire(&set->lock);
    if (index < set->count) {
        segment = set->list[index];
        segment_ref(segment);
    }
    lock_release(&set->lock);
    return segment;
}

struct segment *segments_find(struct segments *set, int64_t phys_off)
{
    struct segment *segment = NULL;
    lock_acquire(&set->lock);
    if (set->count > 0 && phys_off >= set->list[0]->base) {
        int64_t index = (phys_off - set->list[0]->base) / set->bytes;
        if (index < set->count) {
            segment = set->list[index];
            segment_ref(segment);
        }
    }
    lock_release(&set->lock);
    return segment;
}

struct segment *segments_first(struct segments *set)
{
    return segments_at(set, 0);
}

struct segment *segments_last(struct segments *set)
{
    struct segment *segment = NULL;
    lock_acquire(&set->lock);
    if (set->count > 0) {
        segment = set->list[set->count - 1];
        segment_ref(segment);
    }
    lock_release(&set->lock);
    return segment;
}

uint32_t segments_count(struct segments *set)
{
    lock_acquire(&set->lock);
    uint32_t count = set->count;
    lock_release(&set->lock);
    return count;
}

static enum tern_code unlink_segment(struct segments *set, const struct segment *segment)
{
    char name[SEGMENT_NAME_BYTES];
    char path[FS_PATH_BYTES];
    segment_name(name, segment->base);
    enum tern_code code = fs_join(path, set->dir, name);
    if (!code)
        code = fs_unlink(set->env->fs, path);
    return code == TERN_NOT_FOUND ? TERN_OK : code; /* gone is gone, whoever did it */
}

enum tern_code segments_remove_first(struct segments *set)
{
    struct segment *first = segments_first(set);
    ENSURE(first != NULL);
    enum tern_code code = unlink_segment(set, first);
    if (!code) {
        lock_acquire(&set->lock);
        ENSURE(set->count > 1 && set->list[0] == first);
        set->count--;
        memmove(set->list, set->list + 1, set->count * sizeof(struct segment *));
        lock_release(&set->lock);
        segment_unref(first); /* the set's */
    }
    segment_unref(first);
    return code;
}

void segments_drop_last(struct segments *set)
{
    lock_acquire(&set->lock);
    ENSURE(set->count > 0);
    struct segment *last = set->list[--set->count];
    lock_release(&set->lock);
    segment_unref(last); /* the set's */
}

enum tern_code segments_remove_last(struct segments *set)
{
    struct segment *last = segments_last(set);
    ENSURE(last != NULL);
    enum tern_code code = unlink_segment(set, last);
    if (!code)
        segments_drop_last(set);
    segment_unref(last);
    return code;
}

int64_t segment_first_ms(struct segment *segment)
{
    int64_t known = atomic_load_explicit(&segment->first_ms, memory_order_relaxed);
    uint8_t bytes[RECORD_HEAD_BYTES];
    struct record_head head;
    size_t got = 0;
    if (known || file_pread(segment->file, bytes, sizeof bytes, 0, &got) || got < sizeof bytes ||
        !record_head_parse(bytes, segment->base, &head))
        return known;
    atomic_store_explicit(&segment->first_ms, head.store_ms, memory_order_relaxed);
    return head.store_ms;
}
