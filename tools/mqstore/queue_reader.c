/*
 * Units of queues. Threads: one. Failure modes: an error of the disk, with the file's name; a file
 * that has vanished or is too short reads as units that are absent.
 */
#include "tools/mqstore/queue_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tools/mqstore/memory.h"

enum { OPEN_FILES_MAX = 256, FILLER_SIZE = 0x7FFFFFFF, SWEEP_UNITS = 3200 };

enum unit_state queue_unit_state(const struct queue_unit *unit)
{
    if (unit->phys_off == 0 && unit->size == 0 && unit->tags_code == 0)
        return UNIT_ABSENT;
    return unit->phys_off == 0 && unit->size == FILLER_SIZE ? UNIT_FILLER : UNIT_REAL;
}

enum tern_code queue_reader_init(struct queue_reader *reader, const struct store_dir *dir,
                                 struct tern_error *err)
{
    reader->dir = dir;
    enum tern_code code = file_cache_create(dir->env->fs, OPEN_FILES_MAX, &reader->files);
    return code ? error_set(err, code, "cannot make a cache of files") : TERN_OK;
}

void queue_reader_fini(struct queue_reader *reader)
{
    file_cache_destroy(reader->files);
    reader->files = NULL;
}

/* The file that holds a byte; NULL: none. */
static const struct queue_file *file_of(const struct queue_dir *queue, int64_t byte)
{
    uint32_t low = 0;
    uint32_t high = queue->file_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (queue->files[middle].start <= byte)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || byte >= queue->files[low - 1].start + queue->file_bytes)
        return NULL;
    return &queue->files[low - 1];
}

/* `units` units from `offset` on, all of them in that file; what it lacks are zeros. */
static enum tern_code read_raw(struct queue_reader *reader, uint32_t number,
                               const struct queue_file *file, int64_t offset, uint32_t units,
                               uint8_t *raw, struct tern_error *err)
{
    char name[STORE_NAME_BYTES];
    char path[FS_PATH_BYTES];
    struct cached_file *cached = NULL;
    size_t size = (size_t)units * QUEUE_UNIT_BYTES;
    size_t got = 0;
    store_dir_queue_name(name, &reader->dir->queues[number], file->start);
    enum tern_code code = fs_join(path, reader->dir->root, name);
    if (!code)
        code = file_cache_open(reader->files, (struct file_key){number, file->start}, path, FS_READ,
                               &cached);
    if (!code) {
        code = file_pread(cached_file_handle(cached), raw, size,
                          offset * QUEUE_UNIT_BYTES - file->start, &got);
        file_cache_unref(reader->files, cached);
    }
    if (code && code != TERN_NOT_FOUND)
        return store_dir_io_error(reader->dir, name, code, err);
    memset(raw + got, 0, size - got);
    return TERN_OK;
}

/* Units from `offset` to the file's end, at least one, at most `most`. */
static uint32_t units_left(const struct queue_dir *queue, const struct queue_file *file,
                           int64_t offset, uint32_t most)
{
    int64_t left = (file->start + queue->file_bytes) / QUEUE_UNIT_BYTES - offset;
    return left < 1 ? 1 : left > most ? most : (uint32_t)left;
}

static struct queue_unit decode(const uint8_t *raw)
{
    return (struct queue_unit){(int64_t)get_be64(raw), (int32_t)get_be32(raw + 8),
                               (int64_t)get_be64(raw + 12)};
}

/* Fills the window from `offset` on, not beyond the file. */
static enum tern_code load(struct queue_reader *reader, uint32_t number, int64_t offset,
                           struct unit_window *window, struct tern_error *err)
{
    const struct queue_dir *queue = &reader->dir->queues[number];
    const struct queue_file *file = file_of(queue, offset * QUEUE_UNIT_BYTES);
    uint8_t raw[UNIT_WINDOW * QUEUE_UNIT_BYTES] = {0};
    uint32_t units = file ? units_left(queue, file, offset, UNIT_WINDOW) : 1;
    if (file) {
        enum tern_code code = read_raw(reader, number, file, offset, units, raw, err);
        if (code)
            return code;
    }
    for (uint32_t i = 0; i < units; i++)
        window->units[i] = decode(raw + (size_t)i * QUEUE_UNIT_BYTES);
    window->first = offset;
    window->count = units;
    return TERN_OK;
}

enum tern_code queue_reader_sweep(struct queue_reader *reader, uint32_t queue, int64_t from,
                                  int64_t to, queue_unit_fn fn, void *arg, struct tern_error *err)
{
    const struct queue_dir *dir = &reader->dir->queues[queue];
    uint8_t *raw = tool_alloc(SWEEP_UNITS, QUEUE_UNIT_BYTES);
    enum tern_code code = TERN_OK;
    for (uint32_t f = 0; f < dir->file_count && !code; f++) {
        const struct queue_file *file = &dir->files[f];
        int64_t at = file->start / QUEUE_UNIT_BYTES;
        int64_t end = (file->start + dir->file_bytes) / QUEUE_UNIT_BYTES;
        at = from > at ? from : at;
        end = to < end ? to : end;
        while (at < end && !code) {
            uint32_t units = end - at > SWEEP_UNITS ? SWEEP_UNITS : (uint32_t)(end - at);
            size_t size = (size_t)units * QUEUE_UNIT_BYTES;
            code = read_raw(reader, queue, file, at, units, raw, err);
            bool zeros = raw[0] == 0 && memcmp(raw, raw + 1, size - 1) == 0;
            for (uint32_t i = 0; i < units && !code && !zeros; i++) {
                struct queue_unit unit = decode(raw + (size_t)i * QUEUE_UNIT_BYTES);
                if (queue_unit_state(&unit) == UNIT_REAL)
                    fn(arg, at + i, &unit);
            }
            at += units;
        }
    }
    free(raw);
    return code;
}

enum tern_code queue_reader_unit(struct queue_reader *reader, uint32_t queue,
                                 struct unit_window *window, int64_t offset,
                                 struct queue_unit *unit, enum unit_state *state,
                                 struct tern_error *err)
{
    if (offset < window->first || offset >= window->first + window->count) {
        window->count = 0;
        enum tern_code code = load(reader, queue, offset, window, err);
        if (code)
            return code;
    }
    *unit = window->units[offset - window->first];
    *state = queue_unit_state(unit);
    return TERN_OK;
}

/* The first offset in [low, high) whose unit is absent (or, with `at`, not before `at`); else high.
 */
static enum tern_code bisect(struct queue_reader *reader, uint32_t queue, int64_t low, int64_t high,
                             const int64_t *at, int64_t *found, struct tern_error *err)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct unit_window window = {0};
        struct queue_unit unit;
        enum unit_state state;
        enum tern_code code = queue_reader_unit(reader, queue, &window, middle, &unit, &state, err);
        if (code)
            return code;
        bool yes = at ? state == UNIT_REAL && unit.phys_off >= *at : state == UNIT_ABSENT;
        if (yes)
            high = middle;
        else
            low = middle + 1;
    }
    *found = low;
    return TERN_OK;
}

enum tern_code queue_reader_range(struct queue_reader *reader, uint32_t queue, int64_t log_min,
                                  int64_t *min_off, int64_t *max_off, struct tern_error *err)
{
    const struct queue_dir *dir = &reader->dir->queues[queue];
    *min_off = *max_off = 0;
    if (!dir->file_count)
        return TERN_OK;
    int64_t first = dir->files[0].start / QUEUE_UNIT_BYTES;
    int64_t end = (dir->files[dir->file_count - 1].start + dir->file_bytes) / QUEUE_UNIT_BYTES;
    enum tern_code code = bisect(reader, queue, first, end, NULL, max_off, err);
    if (!code)
        code = bisect(reader, queue, first, *max_off, &log_min, min_off, err);
    if (!code && *max_off == first && first == 0)
        *min_off = 0;
    return code;
}
