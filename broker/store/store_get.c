/*
 * Reading messages of a queue: RocketMQ's getMessage (facts 4.1), in two steps.
 *
 *   plan   walk units from the offset on, filter by code, apply the limits, note position and
 *          size of each record wanted; ends when the batch is full or max(16000, 20 × max_count)
 *          bytes of units were looked at
 *   read   ask for memory once, then one read of the log for each run of adjacent records
 *
 * When records themselves have to be looked at (match_record), they are read into memory of our
 * own, those that match are kept, and the whole is copied at the end. As long as a queue's records
 * lie close together one read brings many of them (struct ahead).
 *
 * Order of the states, with min and max as they were at the entry: no queue; max 0; offset < min;
 * offset == max; offset > max; units missing; else what the scan found. next_off is the offset
 * behind what was looked at, so a pull that matches nothing still moves. Unlike RocketMQ's, a scan
 * goes on over the end of a consume queue's file.
 *
 * Without waiting: TERN_AGAIN only while nothing was looked at; afterwards what there is is
 * delivered and the next pull meets the cold part first. A get may fail after reserve(); the memory
 * is the caller's anyway.
 *
 * While the log is being cut, and when it was cut meanwhile: TERN_SERVICE_NOT_AVAILABLE, nothing.
 *
 * Threads: any. Nothing is locked for longer than a copy of units. Failure modes: codes of the
 * disk; a record that has expired between plan and read is left out, as if it had been met in the
 * scan.
 */
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "broker/store/record_head.h"
#include "broker/store/store_internal.h"

enum {
    SCAN_BYTES_MIN = 16000,
    SCAN_CHUNK_UNITS = 256,
    PLAN_MAX = 1024, /* messages of one get, whatever the options say */
    RECORD_EXTRA_BYTES = 65536,
    AHEAD_MIN = 4096,
    AHEAD_MAX = 131072,
    AHEAD_GAP = 1024 /* between records that count as close together */
};

/* At or below this a unit's code is an address in RocketMQ's ConsumeQueueExt, not a tag's hash. */
#define EXT_ADDRESS_MAX ((int64_t)INT32_MIN - 1)

struct planned {
    int64_t phys_off;
    uint32_t size;
    uint32_t unit; /* how many units were looked at before it */
};

/*
 * Bytes of the log read at once, for records that are looked at one after the other. How many grows
 * while the next record wanted lies close behind the last one, and falls to the record alone when
 * it does not, so that a queue that is thin in the log costs no more than its own bytes.
 */
struct ahead {
    uint8_t *bytes; /* AHEAD_MAX of them, once needed */
    int64_t phys_off;
    size_t size; /* valid */
    size_t next; /* how many to read next time */
    int64_t last_end;
};

struct scan {
    struct store *store;
    const struct store_get *get;
    struct store_get_result *result;
    struct consume_queue *queue;
    int64_t log_min, log_end;
    int64_t pulling;               /* position of the last unit looked at */
    int64_t pulling_end, stop_end; /* ends of that one's record and of the one not consumed, or 0 */
    uint32_t count;                /* planned or kept */
    size_t bytes;
    bool full;
    struct planned *plan; /* PLAN_MAX; NULL: records are kept in `kept` instead */
    uint8_t *kept;
    size_t kept_capacity;
    struct ahead ahead;
};

const char *get_status_text(enum get_status status)
{
    static const char *const names[] = {
        [GET_FOUND] = "FOUND",
        [GET_NO_MESSAGE_IN_QUEUE] = "NO_MESSAGE_IN_QUEUE",
        [GET_NO_MATCHED_LOGIC_QUEUE] = "NO_MATCHED_LOGIC_QUEUE",
        [GET_NO_MATCHED_MESSAGE] = "NO_MATCHED_MESSAGE",
        [GET_MESSAGE_WAS_REMOVING] = "MESSAGE_WAS_REMOVING",
        [GET_OFFSET_FOUND_NULL] = "OFFSET_FOUND_NULL",
        [GET_OFFSET_TOO_SMALL] = "OFFSET_TOO_SMALL",
        [GET_OFFSET_OVERFLOW_ONE] = "OFFSET_OVERFLOW_ONE",
        [GET_OFFSET_OVERFLOW_BADLY] = "OFFSET_OVERFLOW_BADLY",
    };
    return (unsigned)status < sizeof names / sizeof names[0] ? names[status] : "UNKNOWN";
}

/* ---- limits ---- */

static size_t record_max(const struct store *store)
{
    return (size_t)store->options.max_message_bytes + RECORD_EXTRA_BYTES;
}

static bool is_full(const struct scan *scan, uint32_t size, bool in_disk)
{
    const struct read_limits *o = &scan->store->limits;
    if (scan->count == 0)
        return false;
    if (scan->count >= scan->get->max_count || scan->count >= PLAN_MAX)
        return true;
    size_t bytes = scan->bytes + size;
    return in_disk ? bytes > o->disk_bytes || scan->count >= o->disk_count
                   : bytes > o->memory_bytes || scan->count >= o->memory_count;
}

static void nothing_yet(struct scan *scan, enum get_status status)
{
    if (scan->count == 0)
        scan->result->status = status;
}

/* ---- one unit ---- */

/* The code to filter by; of a unit with an Ext address, the record's own. */
static enum tern_code real_code(struct scan *scan, const struct queue_unit *unit, int64_t *code)
{
    *code = unit->tags_code;
    if (*code > EXT_ADDRESS_MAX)
        return TERN_OK;
    struct record record;
    uint8_t *bytes;
    enum tern_code rc = record_read(scan->store->log, unit->phys_off, record_max(scan->store),
                                    scan->get->nowait, &bytes, &record);
    if (rc)
        return rc;
    struct slice tag = {NULL, 0};
    bool tagged = props_get(record.props, record.props_len, PROP_TAGS, &tag);
    *code = tagged ? tags_code(tag.ptr, tag.len) : 0;
    free(bytes);
    return TERN_OK;
}

static enum tern_code grow_kept(struct scan *scan, size_t size)
{
    if (scan->bytes + size <= scan->kept_capacity)
        return TERN_OK;
    size_t capacity = scan->kept_capacity ? scan->kept_capacity * 2 : 16384;
    while (capacity < scan->bytes + size)
        capacity *= 2;
    uint8_t *kept = realloc(scan->kept, capacity);
    if (!kept)
        return TERN_NO_MEMORY;
    scan->kept = kept;
    scan->kept_capacity = capacity;
    return TERN_OK;
}

/* Fills what is read ahead from the record on; false: it is not whole there. */
static bool read_ahead(struct scan *scan, const struct queue_unit *unit)
{
    struct ahead *ahead = &scan->ahead;
    bool close = unit->phys_off >= ahead->last_end && unit->phys_off - ahead->last_end <= AHEAD_GAP;
    ahead->next = !close ? 0 : ahead->next ? ahead->next * 4 : AHEAD_MIN;
    if (ahead->next > AHEAD_MAX)
        ahead->next = AHEAD_MAX;
    ahead->size = 0;
    if (ahead->next < (size_t)unit->size)
        return false;
    if (!ahead->bytes)
        ahead->bytes = malloc(AHEAD_MAX);
    if (!ahead->bytes || commit_log_read(scan->store->log, unit->phys_off, ahead->bytes,
                                         ahead->next, scan->get->nowait, &ahead->size) != TERN_OK) {
        ahead->size = 0;
        return false;
    }
    ahead->phys_off = unit->phys_off;
    return ahead->size >= (size_t)unit->size;
}

/* The record's bytes: from what was read ahead, or read into the room behind those kept. */
static enum tern_code record_at(struct scan *scan, const struct queue_unit *unit,
                                const uint8_t **bytes)
{
    struct ahead *ahead = &scan->ahead;
    size_t size = (size_t)unit->size;
    int64_t at = unit->phys_off - ahead->phys_off;
    bool there = ahead->size >= size && at >= 0 && (uint64_t)at <= ahead->size - size;
    if (!there) {
        there = read_ahead(scan, unit);
        at = 0;
    }
    ahead->last_end = unit->phys_off + unit->size;
    if (there) {
        *bytes = ahead->bytes + at;
        return TERN_OK;
    }
    uint8_t *room = scan->kept + scan->bytes;
    *bytes = room;
    return record_read_bytes(scan->store->log, unit->phys_off, room, size, scan->get->nowait);
}

/* Looks at one record and keeps it, behind those kept, when it matches. */
static enum tern_code keep_matching(struct scan *scan, const struct queue_unit *unit)
{
    const struct store_filter *filter = scan->get->filter;
    uint32_t size = (uint32_t)unit->size;
    struct record record;
    const uint8_t *bytes;
    enum tern_code code = grow_kept(scan, size);
    if (!code)
        code = record_at(scan, unit, &bytes);
    if (code)
        return code;
    if (record_parse(bytes, size, size, false, &record) != RECORD_WHOLE)
        return TERN_NOT_FOUND;
    if (!filter->match_record(filter->arg, &record))
        return TERN_OK;
    memmove(scan->kept + scan->bytes, bytes, size);
    scan->bytes += size;
    scan->count++;
    scan->result->status = GET_FOUND;
    return TERN_OK;
}

/* Looks at one unit. *stop: it is not consumed and the scan ends. */
static enum tern_code look_at(struct scan *scan, const struct queue_unit *unit, bool *stop)
{
    const struct store_filter *filter = scan->get->filter;
    uint32_t size = (uint32_t)unit->size;
    enum tern_code code = TERN_OK;
    scan->pulling = unit->phys_off;
    if (unit->size <= 0 || (size_t)unit->size > record_max(scan->store) ||
        unit->phys_off < scan->log_min) {
        nothing_yet(scan, GET_MESSAGE_WAS_REMOVING); /* expired, filler, or not mended */
        return TERN_OK;
    }
    bool in_disk = scan->log_end - unit->phys_off > scan->store->limits.memory_window_bytes;
    *stop = scan->full = is_full(scan, size, in_disk);
    if (*stop) {
        scan->stop_end = unit->phys_off + unit->size;
        return TERN_OK;
    }
    scan->pulling_end = unit->phys_off + unit->size;
    if (filter && filter->match_code) {
        int64_t tags = unit->tags_code;
        code = tags <= EXT_ADDRESS_MAX ? real_code(scan, unit, &tags) : TERN_OK;
        if (code == TERN_OK && !filter->match_code(filter->arg, tags)) {
            nothing_yet(scan, GET_NO_MATCHED_MESSAGE);
            return TERN_OK;
        }
    }
    if (code == TERN_OK && !scan->plan) {
        nothing_yet(scan, GET_NO_MATCHED_MESSAGE);
        code = keep_matching(scan, unit);
    }
    if (code == TERN_NOT_FOUND) {
        nothing_yet(scan, GET_MESSAGE_WAS_REMOVING);
        return TERN_OK;
    }
    if (code == TERN_OK && scan->plan) {
        scan->plan[scan->count++] = (struct planned){
            .phys_off = unit->phys_off, .size = size, .unit = scan->result->scanned};
        scan->bytes += size;
        scan->result->status = GET_FOUND;
    }
    return code;
}

/* ---- the scan ---- */

/* Walks the units; TERN_AGAIN only when none was looked at. */
static enum tern_code scan_units(struct scan *scan)
{
    struct queue_unit units[SCAN_CHUNK_UNITS];
    const struct store_get *get = scan->get;
    struct store_get_result *result = scan->result;
    uint64_t budget = (uint64_t)get->max_count * QUEUE_UNIT_BYTES;
    budget = (budget > SCAN_BYTES_MIN ? budget : SCAN_BYTES_MIN) / QUEUE_UNIT_BYTES;
    enum tern_code code = TERN_OK;
    bool stop = false;
    /* Without a filter the first read brings all that can be wanted. */
    uint32_t chunk =
        get->filter || get->max_count >= SCAN_CHUNK_UNITS ? SCAN_CHUNK_UNITS : get->max_count + 1;
    result->status = GET_NO_MATCHED_MESSAGE;
    while (!stop && !code && result->scanned < budget) {
        uint32_t got = 0;
        uint64_t left = budget - result->scanned;
        uint32_t want = left < chunk ? (uint32_t)left : chunk;
        code = consume_queue_read(scan->queue, get->offset + result->scanned, units, want,
                                  get->nowait, &got);
        if (code || got == 0)
            break;
        for (uint32_t i = 0; i < got && !stop && !code; i++) {
            code = look_at(scan, &units[i], &stop);
            if (!stop && !code)
                result->scanned++;
        }
        chunk = SCAN_CHUNK_UNITS;
    }
    if (code == TERN_AGAIN && result->scanned > 0)
        code = TERN_OK;
    if (code == TERN_OK && result->scanned == 0 && !stop)
        result->status = GET_OFFSET_FOUND_NULL;
    return code;
}

/* ---- reading what was planned ---- */

/* The end of the run of adjacent records that begins at plan[first]; *bytes of them. */
static uint32_t run_end(const struct scan *scan, uint32_t first, size_t *bytes)
{
    uint32_t end = first;
    *bytes = 0;
    do
        *bytes += scan->plan[end++].size;
    while (end < scan->count &&
           scan->plan[end].phys_off == scan->plan[end - 1].phys_off + scan->plan[end - 1].size);
    return end;
}

/* Whole records of a run of which only `got` bytes came. */
static uint32_t whole_records(const struct scan *scan, uint32_t first, uint32_t end, size_t got,
                              size_t *bytes)
{
    *bytes = 0;
    while (first < end && *bytes + scan->plan[first].size <= got)
        *bytes += scan->plan[first++].size;
    return first;
}

/* One read of the log, and more only when it gave less and waiting is allowed. */
static enum tern_code read_run(const struct scan *scan, int64_t phys_off, uint8_t *dst, size_t size,
                               size_t *got)
{
    *got = 0;
    while (*got < size) {
        size_t n = 0;
        enum tern_code code = commit_log_read(scan->store->log, phys_off + (int64_t)*got,
                                              dst + *got, size - *got, scan->get->nowait, &n);
        if (code)
            return *got > 0 && code == TERN_AGAIN ? TERN_OK : code;
        if (n == 0)
            return TERN_CORRUPT; /* a unit points over the segment's end */
        *got += n;
        if (scan->get->nowait)
            return TERN_OK;
    }
    return TERN_OK;
}

/* The next get begins with plan[first]; AGAIN when that is where this one began. */
static enum tern_code end_early(struct scan *scan, uint32_t first)
{
    if (scan->plan[first].unit == 0)
        return TERN_AGAIN;
    scan->result->scanned = scan->plan[first].unit;
    if (scan->result->count == 0)
        scan->result->status = GET_NO_MATCHED_MESSAGE; /* what was filtered out still counts */
    return TERN_OK;
}

static enum tern_code read_planned(struct scan *scan)
{
    struct store_get_result *result = scan->result;
    uint8_t *dst = scan->get->reserve(scan->get->arg, scan->bytes);
    uint32_t at = 0;
    if (!dst)
        return TERN_NO_MEMORY;
    while (at < scan->count) {
        size_t size;
        size_t got;
        uint32_t end = run_end(scan, at, &size);
        enum tern_code code = read_run(scan, scan->plan[at].phys_off, dst, size, &got);
        if (code == TERN_NOT_FOUND) { /* expired since it was planned */
            at = end;
            continue;
        }
        if (code && code != TERN_AGAIN)
            return code;
        uint32_t upto = whole_records(scan, at, end, got, &size);
        dst += size;
        result->size_bytes += size;
        result->count += upto - at;
        if (upto < end)
            return end_early(scan, upto);
        at = end;
    }
    if (result->count == 0)
        result->status = GET_MESSAGE_WAS_REMOVING;
    return TERN_OK;
}

static enum tern_code deliver_kept(struct scan *scan)
{
    struct store_get_result *result = scan->result;
    uint8_t *dst = scan->get->reserve(scan->get->arg, scan->bytes);
    if (!dst)
        return TERN_NO_MEMORY;
    memcpy(dst, scan->kept, scan->bytes);
    result->size_bytes = scan->bytes;
    result->count = scan->count;
    return TERN_OK;
}

/*
 * Where the record at next_off ends, which whoever is to serve it must have dispatched; 0: there is
 * none. When its unit cannot be had without waiting, the last one looked at stands for it.
 */
static int64_t wanted_end(const struct scan *scan)
{
    const struct store_get_result *result = scan->result;
    struct queue_unit unit;
    uint32_t got = 0;
    if (result->next_off >= result->max_off)
        return 0;
    if (scan->stop_end > 0 && result->next_off == scan->get->offset + result->scanned)
        return scan->stop_end;
    if (consume_queue_read(scan->queue, result->next_off, &unit, 1, true, &got) || got == 0 ||
        unit.size <= 0 || unit.phys_off <= 0)
        return scan->pulling_end;
    return unit.phys_off + unit.size;
}

/* ---- the whole ---- */

static int64_t corrected(const struct store *store, int64_t asked, int64_t right)
{
    return store->options.offset_correction ? right : asked;
}

/* false: the offset alone decides the status. */
static bool offset_is_inside(const struct store *store, int64_t asked,
                             struct store_get_result *result)
{
    int64_t min = result->min_off;
    int64_t max = result->max_off;
    if (max == 0) {
        result->status = GET_NO_MESSAGE_IN_QUEUE;
        result->next_off = corrected(store, asked, 0);
    } else if (asked < min) {
        result->status = GET_OFFSET_TOO_SMALL;
        result->next_off = corrected(store, asked, min);
    } else if (asked == max) {
        result->status = GET_OFFSET_OVERFLOW_ONE;
        result->next_off = asked;
    } else if (asked > max) {
        result->status = GET_OFFSET_OVERFLOW_BADLY;
        result->next_off = corrected(store, asked, max);
    } else {
        return true;
    }
    return false;
}

/* Units that should be there cannot be read: to where the next file begins, at most to max. */
static int64_t after_missing(const struct store *store, int64_t asked, int64_t max)
{
    int64_t units = (store->options.queue_file_bytes + QUEUE_UNIT_BYTES - 1) / QUEUE_UNIT_BYTES;
    int64_t next = units > 0 ? asked - asked % units + units : max;
    return next < max ? next : max;
}

static enum tern_code get_inside(struct scan *scan)
{
    struct store *store = scan->store;
    struct store_get_result *result = scan->result;
    const struct store_get *get = scan->get;
    scan->log_min = commit_log_min(store->log);
    scan->log_end = commit_log_end(store->log);
    enum tern_code code = scan_units(scan);
    if (code)
        return code;
    if (result->status == GET_OFFSET_FOUND_NULL) {
        int64_t next = after_missing(store, get->offset, result->max_off);
        result->next_off = corrected(store, get->offset, next);
        return TERN_OK;
    }
    if (scan->count > 0)
        code = scan->plan ? read_planned(scan) : deliver_kept(scan);
    result->next_off = get->offset + result->scanned;
    result->beyond_memory = scan->log_end - scan->pulling > store->limits.memory_window_bytes;
    if (!code && result->beyond_memory)
        result->want_end = wanted_end(scan);
    return code;
}

enum tern_code store_get(struct store *store, const struct store_get *get,
                         struct store_get_result *result)
{
    struct planned plan[PLAN_MAX];
    bool by_record = get->filter && get->filter->match_record;
    struct scan scan = {
        .store = store, .get = get, .result = result, .plan = by_record ? NULL : plan};
    enum tern_code code = TERN_OK;
    *result = (struct store_get_result){.status = GET_NO_MATCHED_LOGIC_QUEUE};
    uint32_t cuts = commit_log_cuts(store->log);
    scan.queue = queue_table_find(store->queues, get->topic, strlen(get->topic), get->queue_id);
    if (scan.queue) {
        result->min_off = consume_queue_min(scan.queue);
        result->max_off = consume_queue_max(scan.queue);
        if (offset_is_inside(store, get->offset, result))
            code = get_inside(&scan);
        consume_queue_unref(scan.queue);
    } else {
        result->next_off = corrected(store, get->offset, 0);
    }
    free(scan.kept);
    free(scan.ahead.bytes);
    if (cuts % 2 == 1 || commit_log_cuts(store->log) != cuts) {
        /* Units from before and records from after a cut do not belong together. */
        *result = (struct store_get_result){.status = GET_NO_MATCHED_MESSAGE};
        result->next_off = get->offset;
        code = TERN_SERVICE_NOT_AVAILABLE;
    }
    if (code == TERN_AGAIN)
        counter_add(&store->get_again, 1);
    else
        counter_add(result->status == GET_FOUND && !code ? &store->get_found : &store->get_missed,
                    1);
    if (code == TERN_OK && result->count)
        counter_add(&store->get_messages, result->count);
    return code;
}

enum tern_code store_get_by_phys(struct store *store, int64_t phys_off,
                                 uint8_t *(*reserve)(void *arg, size_t size_bytes), void *arg,
                                 size_t *size_bytes)
{
    struct record_head head;
    struct record record;
    *size_bytes = 0;
    if (phys_off < 0)
        return TERN_NOT_FOUND;
    enum tern_code code = record_head_read(store->log, phys_off, false, &head);
    if (code)
        return code;
    if (head.total_size > record_max(store))
        return TERN_NOT_FOUND;
    uint8_t *bytes = reserve(arg, head.total_size);
    if (!bytes)
        return TERN_NO_MEMORY;
    code = record_read_bytes(store->log, phys_off, bytes, head.total_size, false);
    if (code)
        return code;
    if (record_parse(bytes, head.total_size, head.total_size, false, &record) != RECORD_WHOLE ||
        record.total_size != head.total_size)
        return TERN_NOT_FOUND;
    *size_bytes = head.total_size;
    return TERN_OK;
}
