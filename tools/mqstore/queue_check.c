/*
 * Queues against the log.
 *
 * Place: verify feeds it. Invariants: per queue, [first_off, next_off) are the offsets of its
 * present life's records met so far, gaps included; faults of that life's units are kept back until
 * the end, since a later life would void them. Threads: one. Failure modes: an error of the disk
 * ends the check; damage is a finding.
 */
#include "tools/mqstore/queue_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "base/json.h"
#include "base/names.h"
#include "base/props.h"
#include "tools/mqstore/memory.h"

enum { PENDING_MAX = 3, KEY_BYTES = INT8_MAX + 16, CONFIG_MAX_BYTES = 64 << 20 };

static const char multi_dispatch_prefix[] = "%LMQ%";
static const int64_t longest_delay_ms = INT64_C(10) * 366 * 86400 * 1000; /* levels are not known */

struct pending {
    int64_t offset; /* queue offset */
    char text[FINDING_TEXT_BYTES];
};

struct queue_state {
    UT_hash_handle hh;
    char key[KEY_BYTES]; /* topic '/' id */
    size_t topic_len;
    int64_t number;    /* in dir->queues; -1: the queue has no folder */
    int64_t first_off; /* -1: no record yet */
    int64_t next_off;
    int64_t before_jump;  /* next_off before the last record jumped ahead, -1: it did not */
    uint64_t records;     /* of this life */
    int64_t missing_from; /* this and all later units are absent, -1: not so */
    uint64_t missing;     /* how many */
    uint64_t holes;       /* absent ones before a present one */
    int64_t first_hole;
    uint64_t wrong;
    struct pending pending[PENDING_MAX]; /* of the wrong ones */
    struct unit_window window;
};

struct queue_check {
    const struct store_dir *dir;
    struct findings *findings;
    struct queue_reader reader;
    struct queue_state *states;
    json_t *topics; /* of config/topics.json; NULL: not known */
    uint64_t units;
    uint32_t queues;
};

/* ---- life ---- */

/* The topic table, if there is one that can be read. */
static json_t *read_topics(const struct store_dir *dir)
{
    struct file *file = NULL;
    int64_t size = 0;
    size_t got = 0;
    json_t *json = NULL;
    json_t *topics = NULL;
    if (store_dir_open_file(dir, "config/topics.json", &file) != TERN_OK)
        return NULL;
    if (file_size(file, &size) == TERN_OK && size > 0 && size < CONFIG_MAX_BYTES) {
        char *text = tool_alloc(1, (size_t)size);
        if (file_pread(file, text, (size_t)size, 0, &got) == TERN_OK &&
            json_parse_fastjson(text, got, &json, NULL) == TERN_OK)
            topics = json_incref(json_object_get(json, "topicConfigTable"));
        json_decref(json);
        free(text);
    }
    file_close(file);
    return topics;
}

static struct queue_state *add_state(struct queue_check *check, const char *key, size_t key_len,
                                     size_t topic_len, int64_t number)
{
    struct queue_state *state = tool_alloc(1, sizeof *state);
    memcpy(state->key, key, key_len);
    state->topic_len = topic_len;
    state->number = number;
    state->first_off = state->before_jump = state->missing_from = -1;
    HASH_ADD(hh, check->states, key, (unsigned)key_len, state);
    return state;
}

static size_t make_key(char key[KEY_BYTES], const void *topic, size_t topic_len, int32_t queue_id)
{
    memcpy(key, topic, topic_len);
    return topic_len +
           (size_t)snprintf(key + topic_len, KEY_BYTES - topic_len, "/%" PRId32, queue_id);
}

enum tern_code queue_check_create(const struct store_dir *dir, struct findings *findings,
                                  struct queue_check **out, struct tern_error *err)
{
    struct queue_check *check = tool_alloc(1, sizeof *check);
    *out = check;
    check->dir = dir;
    check->findings = findings;
    enum tern_code code = queue_reader_init(&check->reader, dir, err);
    if (code)
        return code;
    check->topics = read_topics(dir);
    for (uint32_t i = 0; i < dir->queue_count; i++) {
        char key[KEY_BYTES];
        const struct queue_dir *queue = &dir->queues[i];
        size_t topic_len = strlen(queue->topic);
        size_t len = make_key(key, queue->topic, topic_len, queue->queue_id);
        add_state(check, key, len, topic_len, i);
        check->queues += queue->file_count > 0;
    }
    return TERN_OK;
}

void queue_check_destroy(struct queue_check *check)
{
    if (!check)
        return;
    struct queue_state *state;
    struct queue_state *next;
    HASH_ITER (hh, check->states, state, next) {
        HASH_DEL(check->states, state);
        free(state);
    }
    json_decref(check->topics);
    queue_reader_fini(&check->reader);
    free(check);
}

uint64_t queue_check_units(const struct queue_check *check)
{
    return check->units;
}

uint32_t queue_check_queues(const struct queue_check *check)
{
    return check->queues;
}

/* ---- a record ---- */

/* Whether the unit may carry this tagsCode. */
static bool tags_code_fits(struct queue_check *check, const struct record *record, int64_t stored)
{
    struct slice value;
    if (stored < INT32_MIN && check->dir->has_ext) {
        findings_count(check->findings, FOUND_EXT_ADDRESS, 1);
        return true;
    }
    if (record->topic_len == sizeof SCHEDULE_TOPIC - 1 &&
        memcmp(record->topic, SCHEDULE_TOPIC, record->topic_len) == 0 &&
        props_get(record->props, record->props_len, PROP_DELAY, &value) &&
        stored >= record->store_ms && stored - record->store_ms <= longest_delay_ms)
        return true; /* the time when it is due; RocketMQ's recovery writes the tag's hash */
    if (!props_get(record->props, record->props_len, PROP_TAGS, &value))
        value = (struct slice){NULL, 0};
    return stored == tags_code(value.ptr, value.len);
}

static void add_pending(struct queue_state *state, int64_t offset, const struct queue_unit *unit,
                        const struct record *record, int64_t phys_off, const char *what)
{
    uint64_t n = state->wrong++;
    if (n >= PENDING_MAX)
        return;
    struct pending *pending = &state->pending[n];
    pending->offset = offset;
    snprintf(pending->text, sizeof pending->text,
             "%s: unit has offset %" PRId64 ", size %" PRId32 ", tagsCode %" PRId64
             "; the record stands at %" PRId64 " with size %" PRIu32,
             what, unit->phys_off, unit->size, unit->tags_code, phys_off, record->total_size);
}

static enum tern_code compare_unit(struct queue_check *check, struct queue_state *state,
                                   const struct record *record, int64_t phys_off,
                                   struct tern_error *err)
{
    struct queue_unit unit = {0};
    enum unit_state found = UNIT_ABSENT;
    int64_t offset = record->queue_off;
    if (state->number >= 0) {
        enum tern_code code = queue_reader_unit(&check->reader, (uint32_t)state->number,
                                                &state->window, offset, &unit, &found, err);
        if (code)
            return code;
    }
    if (found == UNIT_ABSENT) {
        if (state->missing_from < 0)
            state->missing_from = offset;
        state->missing++;
        return TERN_OK;
    }
    if (state->missing) {
        if (state->holes == 0)
            state->first_hole = state->missing_from;
        state->holes += state->missing;
        state->missing = 0;
        state->missing_from = -1;
    }
    check->units++;
    if (unit.phys_off != phys_off)
        add_pending(state, offset, &unit, record, phys_off, "offset");
    else if (unit.size < 0 || (uint32_t)unit.size != record->total_size)
        add_pending(state, offset, &unit, record, phys_off, "size");
    else if (!tags_code_fits(check, record, unit.tags_code))
        add_pending(state, offset, &unit, record, phys_off, "tagsCode");
    return TERN_OK;
}

static void begin_life(struct queue_check *check, struct queue_state *state, int64_t offset)
{
    findings_count(check->findings, FOUND_EARLIER_LIFE, state->records);
    state->first_off = state->next_off = offset;
    state->records = state->missing = state->holes = state->wrong = 0;
    state->missing_from = -1;
    memset(state->pending, 0, sizeof state->pending);
}

/* Whether offsets go on as they should; a single odd one does not begin another life. */
static void follow_offsets(struct queue_check *check, struct queue_state *state,
                           const struct record *record, int64_t phys_off)
{
    int64_t offset = record->queue_off;
    if (state->first_off < 0) {
        state->first_off = state->next_off = offset;
    } else if (offset > state->next_off) {
        findings_add(check->findings, FOUND_OFFSET_GAP, NULL, -1,
                     "%s: offset %" PRId64 " follows %" PRId64 " in the log, at %" PRId64,
                     state->key, offset, state->next_off - 1, phys_off);
        state->before_jump = state->next_off;
        state->next_off = offset + 1;
        return;
    } else if (offset < state->next_off) {
        if (state->before_jump >= 0 && offset == state->before_jump + 1)
            state->next_off = offset; /* the one before said a wrong offset */
        else
            begin_life(check, state, offset);
    }
    state->before_jump = -1;
    state->next_off = offset + 1;
}

enum tern_code queue_check_record(struct queue_check *check, const struct record *record,
                                  int64_t phys_off, struct tern_error *err)
{
    uint32_t type = record->sys_flag & SYS_TX_MASK;
    char key[KEY_BYTES];
    if (record->topic_len == 0 || record->queue_id < 0 || record->queue_off < 0 ||
        record->queue_off >= INT64_MAX / QUEUE_UNIT_BYTES - UNIT_WINDOW ||
        memchr(record->topic, '/', record->topic_len) ||
        memchr(record->topic, 0, record->topic_len)) {
        findings_add(check->findings, FOUND_TOPIC_NAME, NULL, -1,
                     "topic \"%.*s\", queue %" PRId32 ", queue offset %" PRId64
                     ", in the log at %" PRId64,
                     (int)record->topic_len, (const char *)record->topic, record->queue_id,
                     record->queue_off, phys_off);
        return TERN_OK;
    }
    if (type == SYS_TX_PREPARED || type == SYS_TX_ROLLBACK)
        return TERN_OK; /* these take no offset */
    size_t len = make_key(key, record->topic, record->topic_len, record->queue_id);
    struct queue_state *state;
    HASH_FIND(hh, check->states, key, (unsigned)len, state);
    if (!state)
        state = add_state(check, key, len, record->topic_len, -1);
    follow_offsets(check, state, record, phys_off);
    state->records++;
    return compare_unit(check, state, record, phys_off, err);
}

/* ---- the end ---- */

static const struct queue_dir *dir_of(const struct queue_check *check,
                                      const struct queue_state *state)
{
    return &check->dir->queues[state->number];
}

/* Name and offset in the file of the unit; the folder must be there. */
static int64_t place_of(const struct queue_dir *queue, int64_t offset, char name[STORE_NAME_BYTES])
{
    int64_t byte = offset * QUEUE_UNIT_BYTES;
    int64_t start = byte;
    if (queue->file_bytes > 0)
        start = byte / queue->file_bytes * queue->file_bytes;
    store_dir_queue_name(name, queue, start);
    return byte - start;
}

static void report_files(struct queue_check *check, const struct queue_dir *queue)
{
    char name[STORE_NAME_BYTES];
    for (uint32_t i = 0; i < queue->file_count; i++) {
        const struct queue_file *file = &queue->files[i];
        store_dir_queue_name(name, queue, file->start);
        if (file->file_bytes != queue->file_bytes || file->file_bytes % QUEUE_UNIT_BYTES != 0 ||
            file->file_bytes == 0)
            findings_add(check->findings, FOUND_QUEUE_FILE, name, -1,
                         "%" PRId64 " bytes where the queue's first file has %" PRId64,
                         file->file_bytes, queue->file_bytes);
        else if (i > 0 && file->start != queue->files[i - 1].start + queue->file_bytes)
            findings_add(check->findings, FOUND_QUEUE_FILE, name, -1,
                         "the file before it is missing");
        else if (file->start % queue->file_bytes != 0)
            findings_add(check->findings, FOUND_QUEUE_FILE, name, -1,
                         "the name is no multiple of the length %" PRId64, queue->file_bytes);
    }
}

static void report_missing(struct queue_check *check, const struct queue_state *state)
{
    char name[STORE_NAME_BYTES];
    int64_t offset = -1;
    if (state->holes) {
        offset = place_of(dir_of(check, state), state->first_hole, name);
        findings_add(check->findings, FOUND_UNIT_MISSING, name, offset,
                     "%" PRIu64 " absent, the first of queue offset %" PRId64, state->holes,
                     state->first_hole);
        findings_count(check->findings, FOUND_UNIT_MISSING, state->holes - 1);
    }
    if (!state->missing)
        return;
    if (store_dir_is_unsettled(check->dir)) {
        findings_count(check->findings, FOUND_UNDISPATCHED, state->missing);
        return;
    }
    if (state->number < 0) {
        char topic[INT8_MAX + 1];
        snprintf(topic, sizeof topic, "%.*s", (int)state->topic_len, state->key);
        if (check->topics && !json_object_get(check->topics, topic)) {
            findings_count(check->findings, FOUND_EARLIER_LIFE, state->missing);
            return;
        }
        snprintf(name, sizeof name, "consumequeue/%s", state->key);
    } else {
        offset = place_of(dir_of(check, state), state->missing_from, name);
    }
    findings_add(check->findings, FOUND_UNIT_MISSING, name, offset,
                 "%" PRIu64 " absent at the end, from queue offset %" PRId64, state->missing,
                 state->missing_from);
    findings_count(check->findings, FOUND_UNIT_MISSING, state->missing - 1);
}

static void report_wrong(struct queue_check *check, const struct queue_state *state)
{
    uint64_t shown = state->wrong < PENDING_MAX ? state->wrong : PENDING_MAX;
    for (uint64_t i = 0; i < shown; i++) {
        char name[STORE_NAME_BYTES];
        int64_t at = place_of(dir_of(check, state), state->pending[i].offset, name);
        findings_add(check->findings, FOUND_UNIT_WRONG, name, at, "%s", state->pending[i].text);
    }
    findings_count(check->findings, FOUND_UNIT_WRONG, state->wrong - shown);
}

/* A real unit for which the log has no record. */
static void judge_stray(struct queue_check *check, const struct queue_state *state, int64_t offset,
                        const struct queue_unit *unit, int64_t log_min, int64_t log_end)
{
    bool before = state->first_off < 0 || offset < state->first_off;
    if (before && unit->phys_off < log_min) {
        findings_count(check->findings, FOUND_UNIT_EXPIRED, 1);
        return;
    }
    /* RocketMQ cuts a queue in memory only; what lies behind is written over later. */
    if (unit->phys_off >= log_end && (store_dir_is_unsettled(check->dir) || !check->dir->ours)) {
        findings_count(check->findings, FOUND_UNIT_BEHIND, 1);
        return;
    }
    if (strncmp(state->key, multi_dispatch_prefix, sizeof multi_dispatch_prefix - 1) == 0) {
        findings_count(check->findings, FOUND_UNIT_UNCHECKED, 1);
        return;
    }
    char name[STORE_NAME_BYTES];
    int64_t at = place_of(dir_of(check, state), offset, name);
    findings_add(check->findings, FOUND_UNIT_STRAY, name, at,
                 "queue offset %" PRId64 " points to %" PRId64 "; the log holds %" PRId64
                 " to %" PRId64,
                 offset, unit->phys_off, log_min, log_end);
}

struct sweep {
    struct queue_check *check;
    const struct queue_state *state;
    int64_t log_min, log_end;
};

static void on_unit(void *arg, int64_t offset, const struct queue_unit *unit)
{
    const struct sweep *sweep = arg;
    judge_stray(sweep->check, sweep->state, offset, unit, sweep->log_min, sweep->log_end);
}

static enum tern_code end_queue(struct queue_check *check, struct queue_state *state,
                                int64_t log_min, int64_t log_end, struct tern_error *err)
{
    report_missing(check, state);
    if (state->number < 0)
        return TERN_OK;
    const struct queue_dir *queue = dir_of(check, state);
    report_files(check, queue);
    report_wrong(check, state);
    if (queue->file_count == 0 || queue->file_bytes < QUEUE_UNIT_BYTES)
        return TERN_OK;
    int64_t first = queue->files[0].start / QUEUE_UNIT_BYTES;
    int64_t end =
        (queue->files[queue->file_count - 1].start + queue->file_bytes) / QUEUE_UNIT_BYTES;
    bool any = state->first_off >= 0;
    struct sweep sweep = {check, state, log_min, log_end};
    enum tern_code code = queue_reader_sweep(&check->reader, (uint32_t)state->number, first,
                                             any ? state->first_off : end, on_unit, &sweep, err);
    if (!code && any)
        code = queue_reader_sweep(&check->reader, (uint32_t)state->number, state->next_off, end,
                                  on_unit, &sweep, err);
    return code;
}

enum tern_code queue_check_end(struct queue_check *check, int64_t log_min, int64_t log_end,
                               struct tern_error *err)
{
    struct queue_state *state;
    struct queue_state *next;
    HASH_ITER (hh, check->states, state, next) {
        enum tern_code code = end_queue(check, state, log_min, log_end, err);
        if (code)
            return code;
    }
    return TERN_OK;
}
