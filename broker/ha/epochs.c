/*
 * Epochs in memory and in ROOT/ternmq/epochs.json:
 *
 *   {"epochs": [{"id": "00c0ffee00c0ffee", "number": 3, "start": 0}, …], "highestNumber": 5}
 *
 * Its place: a master begins one before its first write; a receiver adopts its source's list when a
 * handshake is settled and adds an epoch before its first byte; a source tells each chunk's epoch.
 *
 * Invariants:
 *   - The list is sound (ha_epochs_sound) and never above what the file holds: it changes in memory
 *     only after the file was written.
 *   - What was dropped because the log does not reach it is dropped from the file at once: a list
 *     that was only shortened in memory would come back when the log has grown over it with other
 *     bytes.
 *   - A number that was tried to be written counts as given, also when the writing failed: the file
 *     may hold it.
 *
 * Threads: questions from any. Changes come from one thread at a time, the ha task; `next` is its.
 * The lock (HA_EPOCHS) is never held over I/O. Failure modes: a failed write leaves the list as it
 * was; the caller tries again. Both generations damaged: TERN_CORRUPT, nothing is deleted.
 */
#include "broker/ha/epochs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/durable_file.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/rng.h"

struct list {
    size_t count;
    struct ha_epoch items[EPOCHS_MAX];
};

struct epochs {
    struct env env;
    char path[FS_PATH_BYTES];
    struct lock lock; /* HA_EPOCHS: the two below */
    struct list now;  /* written by the changing thread alone, which may read it without */
    uint64_t highest; /* number that was given or seen */
    struct list next; /* being written; the changing thread's */
};

/* ---- pure ---- */

/* Where the epoch ends in a log that ends at log_end. */
static int64_t end_of(const struct ha_epoch *list, size_t count, size_t index, int64_t log_end)
{
    if (index + 1 < count && list[index + 1].start < log_end)
        return list[index + 1].start;
    return log_end;
}

bool ha_epochs_common(const struct ha_epoch *a, size_t a_count, int64_t a_end,
                      const struct ha_epoch *b, size_t b_count, int64_t b_end,
                      struct ha_common *out)
{
    size_t i = a_count;
    size_t j = b_count;
    while (i > 0 && j > 0) {
        const struct ha_epoch *of_a = &a[i - 1];
        const struct ha_epoch *of_b = &b[j - 1];
        if (of_a->number == of_b->number && of_a->id == of_b->id) {
            int64_t end = end_of(a, a_count, i - 1, a_end);
            int64_t other = end_of(b, b_count, j - 1, b_end);
            end = end < other ? end : other;
            if (end >= of_a->start && end >= of_b->start) {
                *out = (struct ha_common){.epoch = *of_a, .end = end};
                return true;
            }
        }
        if (of_a->number > of_b->number) {
            i--;
        } else if (of_a->number < of_b->number) {
            j--;
        } else {
            i--;
            j--;
        }
    }
    return false;
}

const struct ha_epoch *ha_epochs_at(const struct ha_epoch *list, size_t count, int64_t phys_off,
                                    int64_t *end)
{
    size_t low = 0;
    size_t high = count; /* list[low - 1].start <= phys_off < list[high].start */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list[middle].start <= phys_off)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    *end = low < count ? list[low].start : INT64_MAX;
    return &list[low - 1];
}

bool ha_epochs_sound(const struct ha_epoch *list, size_t count)
{
    if (count > EPOCHS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (list[i].number == 0 || list[i].number > HA_EPOCH_NUMBER_MAX || list[i].start < 0)
            return false;
        if (i > 0 && (list[i].number <= list[i - 1].number || list[i].start <= list[i - 1].start))
            return false;
    }
    return true;
}

/* ---- the file ---- */

static bool parse_id(const char *text, uint64_t *id)
{
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *id = strtoull(text, NULL, 16);
    return true;
}

static bool take_number(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool take_epoch(const json_t *object, struct ha_epoch *out)
{
    uint64_t start = 0;
    bool good = take_number(json_object_get(object, "number"), &out->number) &&
                parse_id(json_string_value(json_object_get(object, "id")), &out->id) &&
                take_number(json_object_get(object, "start"), &start);
    out->start = (int64_t)start; /* a JSON integer is an int64_t */
    return good;
}

/* durable_parse_fn */
static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct epochs *epochs = arg;
    struct list *list = &epochs->next;
    json_t *root = NULL;
    (void)extra;
    enum tern_code code = json_parse_fastjson(text, len, &root, err);
    if (code)
        return code;
    const json_t *array = json_object_get(root, "epochs");
    uint64_t highest = 0;
    size_t count = json_array_size(array);
    bool good = json_is_array(array) && count <= EPOCHS_MAX &&
                take_number(json_object_get(root, "highestNumber"), &highest) &&
                highest <= HA_EPOCH_NUMBER_MAX;
    for (size_t i = 0; good && i < count; i++)
        good = take_epoch(json_array_get(array, i), &list->items[i]);
    json_decref(root);
    if (!good || !ha_epochs_sound(list->items, count))
        return error_set(err, TERN_CORRUPT,
                         "it is no list of epochs (number, id, start), each above the one before");
    list->count = count;
    if (count > 0 && highest < list->items[count - 1].number)
        highest = list->items[count - 1].number;
    epochs->highest = highest;
    return TERN_OK;
}

/* NULL: no memory. The text is the caller's. */
static char *format(const struct list *list, uint64_t highest, size_t *len)
{
    char id[17];
    char *text = NULL;
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; good && i < list->count; i++) {
        const struct ha_epoch *epoch = &list->items[i];
        snprintf(id, sizeof id, "%016" PRIx64, epoch->id);
        good = json_array_append_new(array, json_pack("{s:I, s:s, s:I}", "number",
                                                      (json_int_t)epoch->number, "id", id, "start",
                                                      (json_int_t)epoch->start)) == 0;
    }
    json_t *root = json_pack("{s:O?, s:I}", "epochs", array, "highestNumber", (json_int_t)highest);
    if (good && root)
        text = json_format_pretty(root, len);
    json_decref(root);
    json_decref(array);
    return text;
}

/* Writes `next` with this highest number and makes it the list. */
static enum tern_code commit(struct epochs *epochs, uint64_t highest, struct tern_error *err)
{
    size_t len = 0;
    ENSURE(ha_epochs_sound(epochs->next.items, epochs->next.count));
    lock_acquire(&epochs->lock);
    if (epochs->highest < highest)
        epochs->highest = highest; /* given from now on, whatever becomes of the write */
    highest = epochs->highest;
    lock_release(&epochs->lock);
    char *text = format(&epochs->next, highest, &len);
    if (!text)
        return error_set(err, TERN_NO_MEMORY, "no memory to write %s", epochs->path);
    enum tern_code code = durable_write(&epochs->env, epochs->path, text, len, "", err);
    free(text);
    if (code)
        return code;
    lock_acquire(&epochs->lock);
    epochs->now.count = epochs->next.count;
    memcpy(epochs->now.items, epochs->next.items,
           epochs->next.count * sizeof epochs->next.items[0]);
    lock_release(&epochs->lock);
    return TERN_OK;
}

/* `next` becomes a copy of the list. */
static struct list *edit(struct epochs *epochs)
{
    epochs->next.count = epochs->now.count;
    memcpy(epochs->next.items, epochs->now.items, epochs->now.count * sizeof epochs->now.items[0]);
    return &epochs->next;
}

static void drop_first(struct list *list, size_t count)
{
    list->count -= count;
    memmove(list->items, list->items + count, list->count * sizeof list->items[0]);
}

/*
 * Behind the last; one without a byte makes room, and so does the oldest when the list is full: the
 * one after it then covers its bytes, too, so that every byte stays one of an epoch and can be
 * copied.
 */
static void append(struct list *list, const struct ha_epoch *epoch)
{
    if (list->count > 0 && list->items[list->count - 1].start == epoch->start)
        list->count--;
    if (list->count == EPOCHS_MAX) {
        list->items[1].start = list->items[0].start;
        drop_first(list, 1);
    }
    list->items[list->count++] = *epoch;
}

/* ---- life ---- */

/*
 * Drops from `next` what starts at or behind the log's end. What lies before its minimum stays: a
 * slave that was away while it expired is known by it.
 */
static bool fit(struct list *list, int64_t log_end)
{
    size_t count = list->count;
    while (list->count > 0 && list->items[list->count - 1].start >= log_end)
        list->count--;
    return list->count != count;
}

static enum tern_code load(struct epochs *epochs, int64_t log_end, struct tern_error *err)
{
    enum tern_code code = durable_read(&epochs->env, epochs->path, parse, epochs, err);
    if (code == TERN_NOT_FOUND) {
        epochs->next.count = 0;
        return TERN_OK;
    }
    if (code)
        return code;
    if (fit(&epochs->next, log_end))
        return commit(epochs, 0, err);
    epochs->now = epochs->next;
    return TERN_OK;
}

enum tern_code epochs_open(const struct env *env, const char *root_dir, int64_t log_end,
                           struct epochs **out, struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    *out = NULL;
    struct epochs *epochs = calloc(1, sizeof *epochs);
    if (!epochs)
        return error_set(err, TERN_NO_MEMORY, "no memory for the epochs of %s", root_dir);
    epochs->env = *env;
    lock_init(&epochs->lock, LOCK_HA_EPOCHS);
    enum tern_code code = fs_join(dir, root_dir, "ternmq");
    if (code == TERN_OK)
        code = fs_join(epochs->path, dir, "epochs.json");
    if (code != TERN_OK)
        code = error_set(err, code, "storePathRootDir: '%s' is too long", root_dir);
    else if ((code = fs_mkdirs(env->fs, dir)))
        code = error_set(err, code, "cannot make %s: %s", dir, tern_code_text(code));
    else
        code = load(epochs, log_end, err);
    if (code != TERN_OK) {
        epochs_close(epochs);
        return code;
    }
    *out = epochs;
    return TERN_OK;
}

void epochs_close(struct epochs *epochs)
{
    if (!epochs)
        return;
    lock_fini(&epochs->lock);
    free(epochs);
}

/* ---- questions ---- */

size_t epochs_copy(struct epochs *epochs, struct ha_epoch out[EPOCHS_MAX])
{
    lock_acquire(&epochs->lock);
    size_t count = epochs->now.count;
    memcpy(out, epochs->now.items, count * sizeof out[0]);
    lock_release(&epochs->lock);
    return count;
}

bool epochs_last(struct epochs *epochs, struct ha_epoch *out)
{
    lock_acquire(&epochs->lock);
    bool some = epochs->now.count > 0;
    if (some)
        *out = epochs->now.items[epochs->now.count - 1];
    lock_release(&epochs->lock);
    return some;
}

bool epochs_find(struct epochs *epochs, int64_t phys_off, struct ha_epoch *out, int64_t *end)
{
    lock_acquire(&epochs->lock);
    const struct ha_epoch *at = ha_epochs_at(epochs->now.items, epochs->now.count, phys_off, end);
    if (at)
        *out = *at;
    lock_release(&epochs->lock);
    return at != NULL;
}

uint64_t epochs_highest(struct epochs *epochs)
{
    lock_acquire(&epochs->lock);
    uint64_t highest = epochs->highest;
    lock_release(&epochs->lock);
    return highest;
}

void epochs_seen(struct epochs *epochs, uint64_t number)
{
    lock_acquire(&epochs->lock);
    if (epochs->highest < number && number - epochs->highest <= HA_EPOCH_LEAP_MAX &&
        number <= HA_EPOCH_NUMBER_MAX)
        epochs->highest = number;
    lock_release(&epochs->lock);
}

/* ---- changes ---- */

static bool same(const struct ha_epoch *a, const struct ha_epoch *b)
{
    return a->number == b->number && a->id == b->id && a->start == b->start;
}

enum tern_code epochs_begin(struct epochs *epochs, int64_t log_min, int64_t start,
                            struct ha_epoch *out, struct tern_error *err)
{
    struct list *list = edit(epochs);
    uint64_t highest = epochs_highest(epochs);
    if (highest >= HA_EPOCH_NUMBER_MAX)
        return error_set(err, TERN_LIMIT, "no epoch number above %" PRIu64 " is left", highest);
    if (list->count == 0)
        start = log_min;
    else if (start < list->items[list->count - 1].start)
        return error_set(err, TERN_INVALID,
                         "the log ends at %" PRId64 ", before the last epoch's start %" PRId64,
                         start, list->items[list->count - 1].start);
    struct ha_epoch epoch = {
        .number = highest + 1, .id = rng_next(epochs->env.rng), .start = start};
    append(list, &epoch);
    enum tern_code code = commit(epochs, epoch.number, err);
    if (code == TERN_OK)
        *out = epoch;
    return code;
}

/* Shortens the list to what is older than `first` (NULL: nothing), at most `most`. */
static void keep_before(struct list *list, const struct ha_epoch *first, size_t most)
{
    size_t count = 0;
    while (first && count < list->count && list->items[count].number < first->number &&
           list->items[count].start < first->start)
        count++;
    list->count = count;
    if (count > most)
        drop_first(list, count - most);
}

enum tern_code epochs_adopt(struct epochs *epochs, const struct ha_epoch *list, size_t count,
                            int64_t end, struct tern_error *err)
{
    if (!ha_epochs_sound(list, count))
        return error_set(err, TERN_INVALID, "the source's list of epochs is not sound");
    struct list *next = edit(epochs);
    uint64_t highest = count > 0 ? list[count - 1].number : 0;
    keep_before(next, count > 0 ? &list[0] : NULL, EPOCHS_MAX - count);
    for (size_t i = 0; i < count && list[i].start < end; i++)
        next->items[next->count++] = list[i];
    return commit(epochs, highest, err);
}

enum tern_code epochs_add(struct epochs *epochs, const struct ha_epoch *epoch,
                          struct tern_error *err)
{
    for (size_t i = epochs->now.count; i-- > 0;)
        if (same(&epochs->now.items[i], epoch))
            return TERN_OK;
    struct list *list = edit(epochs);
    if (!ha_epochs_sound(epoch, 1))
        return error_set(err, TERN_INVALID, "epoch %" PRIu64 " from %" PRId64 " cannot be",
                         epoch->number, epoch->start);
    const struct ha_epoch *last = list->count > 0 ? &list->items[list->count - 1] : NULL;
    if (last && (epoch->number <= last->number || epoch->start < last->start))
        return error_set(err, TERN_INVALID,
                         "epoch %" PRIu64 " from %" PRId64 " cannot follow epoch %" PRIu64
                         " from %" PRId64,
                         epoch->number, epoch->start, last->number, last->start);
    append(list, epoch);
    return commit(epochs, epoch->number, err);
}
