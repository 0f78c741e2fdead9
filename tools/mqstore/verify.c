/*
 * mqstore verify: one pass through the log, with queues and index compared as the records go by.
 *
 * Place: the command; the comparing itself is in log_reader.c, queue_check.c and index_check.c.
 * A store in use is checked up to what has been flushed, and one that crashed is as recovery will
 * find it: what recovery puts right is a note, not a fault. Threads: one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#include "tools/mqstore/findings.h"
#include "tools/mqstore/index_check.h"
#include "tools/mqstore/log_reader.h"
#include "tools/mqstore/memory.h"
#include "tools/mqstore/mqstore.h"
#include "tools/mqstore/queue_check.h"

struct verify {
    struct store_dir dir;
    const struct mqstore_options *options;
    struct findings *findings; /* large, so on the heap */
    struct log_reader reader;
    struct queue_check *queues;
    struct index_check *indexes;
    struct progress progress;
    uint64_t records;
    uint64_t fillers;
    int64_t log_min, log_end;
    int64_t first_ms, newest_ms; /* store times */
};

/* Name of the segment that should hold the offset, and where in it. */
static int64_t place_of(const struct verify *v, int64_t phys_off, char name[STORE_NAME_BYTES])
{
    int64_t base = phys_off / v->dir.segment_bytes * v->dir.segment_bytes;
    store_dir_segment_name(name, base);
    return phys_off - base;
}

/* ---- before the log ---- */

static void check_segments(struct verify *v)
{
    for (uint32_t i = 0; i < v->dir.segment_count; i++) {
        const struct log_segment *segment = &v->dir.segments[i];
        bool last = i + 1 == v->dir.segment_count;
        char name[STORE_NAME_BYTES];
        store_dir_segment_name(name, segment->base);
        bool short_last =
            last && segment->file_bytes < v->dir.segment_bytes && store_dir_is_unsettled(&v->dir);
        if (segment->file_bytes != v->dir.segment_bytes && !short_last)
            findings_add(v->findings, FOUND_SEGMENT_LENGTH, name, -1,
                         "%" PRId64 " bytes instead of %" PRId64, segment->file_bytes,
                         v->dir.segment_bytes);
        if (segment->base % v->dir.segment_bytes != 0)
            findings_add(v->findings, FOUND_SEGMENT_LENGTH, name, -1,
                         "the name is no multiple of the length %" PRId64, v->dir.segment_bytes);
    }
    for (uint32_t i = 0; i < v->dir.stray_count; i++)
        findings_add(v->findings, FOUND_STRAY_FILE, v->dir.strays[i], -1, "left alone");
}

/* ---- the log ---- */

static enum tern_code on_record(struct verify *v, const struct log_item *item,
                                struct tern_error *err)
{
    const struct record *record = &item->record;
    char name[STORE_NAME_BYTES];
    int64_t at = place_of(v, item->phys_off, name);
    v->records++;
    if (item->kind == LOG_BAD_CRC)
        findings_add(v->findings, FOUND_BODY_CRC, name, at,
                     "the record says %08" PRIX32 ", its body gives %08" PRIX32 " (%.*s/%" PRId32
                     " offset %" PRId64 ")",
                     record->body_crc, record_body_crc(record->body, record->body_len),
                     (int)record->topic_len, (const char *)record->topic, record->queue_id,
                     record->queue_off);
    if (item->kind == LOG_BAD_POSITION)
        findings_add(v->findings, FOUND_PHYS_OFFSET, name, at,
                     "the record says %" PRId64 " and stands at %" PRId64, record->phys_off,
                     item->phys_off);
    if (v->first_ms == 0)
        v->first_ms = record->store_ms;
    if (record->store_ms > v->newest_ms)
        v->newest_ms = record->store_ms;
    enum tern_code code = queue_check_record(v->queues, record, item->phys_off, err);
    return code ? code : index_check_record(v->indexes, record, item->phys_off, err);
}

/*
 * Whether the bytes up to the flush mark are the beginning of one record: a slave receives and
 * flushes bytes, not records, so its log may end within one. An appender's never does.
 */
static enum tern_code is_partial_tail(const struct verify *v, bool *partial, struct tern_error *err)
{
    enum { HEAD_BYTES = 8 }; /* size, magic */
    uint8_t head[HEAD_BYTES] = {0};
    char name[STORE_NAME_BYTES];
    struct file *file;
    size_t got = 0;
    int64_t at = place_of(v, v->log_end, name);
    int64_t held = v->dir.mark - v->log_end;
    *partial = false;
    enum tern_code code = store_dir_open_file(&v->dir, name, &file);
    if (code == TERN_NOT_FOUND)
        return TERN_OK; /* the log ends with the segments */
    if (!code)
        code = file_pread(file, head, sizeof head, at, &got);
    file_close(file);
    if (code)
        return store_dir_io_error(&v->dir, name, code, err);
    uint32_t size = get_be32(head);
    if (held < HEAD_BYTES)
        *partial =
            memcmp(head + held, (const uint8_t[HEAD_BYTES]){0}, (size_t)(HEAD_BYTES - held)) == 0;
    else
        *partial = get_be32(head + 4) == RECORD_MAGIC && size >= RECORD_FIXED_BYTES &&
                   held < size && at + size + RECORD_BLANK_BYTES <= v->dir.segment_bytes;
    return TERN_OK;
}

/*
 * Bytes behind the end are a note: a crash leaves some, and RocketMQ's recovery cuts them in memory
 * only. That a whole record was there is told by our flush mark and by the checkpoint.
 */
static enum tern_code on_end(struct verify *v, const struct log_item *item, struct tern_error *err)
{
    char name[STORE_NAME_BYTES];
    bool partial = false;
    v->log_end = item->phys_off;
    bool beyond = v->dir.mark_known && v->dir.mark > v->log_end;
    enum tern_code code = beyond ? is_partial_tail(v, &partial, err) : TERN_OK;
    if (code)
        return code;
    int64_t at = place_of(v, v->log_end, name);
    if (partial) {
        findings_add(v->findings, FOUND_PARTIAL_TAIL, name, at,
                     "%" PRId64 " bytes of it were flushed; the rest had not come yet",
                     v->dir.mark - v->log_end);
        return TERN_OK;
    }
    if (beyond)
        findings_add(v->findings, FOUND_FLUSHED_LOST, name, at,
                     "the log ends at %" PRId64 " (%s), but all before %" PRId64 " was flushed",
                     v->log_end, item->why ? item->why : "no more segments", v->dir.mark);
    if (item->tail_end <= v->log_end)
        return TERN_OK;
    findings_add(v->findings, FOUND_TORN_TAIL, name, at,
                 "%s; %" PRId64 " bytes to the last that is not zero", item->why ? item->why : "",
                 item->tail_end - v->log_end);
    return TERN_OK;
}

static enum tern_code walk_log(struct verify *v, struct tern_error *err)
{
    int64_t all = 0;
    if (v->dir.segment_count)
        all = v->dir.segments[v->dir.segment_count - 1].base + v->dir.segment_bytes - v->log_min;
    for (;;) {
        struct log_item item;
        char name[STORE_NAME_BYTES];
        enum tern_code code = log_reader_next(&v->reader, &item, err);
        if (code)
            return code;
        if ((v->records & 1023) == 0)
            progress_show(&v->progress, "log", item.phys_off - v->log_min, all);
        switch (item.kind) {
        case LOG_RECORD:
        case LOG_BAD_CRC:
        case LOG_BAD_POSITION:
            code = on_record(v, &item, err);
            if (code)
                return code;
            break;
        case LOG_BLANK:
            v->fillers++;
            break;
        case LOG_DAMAGE: {
            int64_t at = place_of(v, item.phys_off, name);
            findings_add(v->findings, FOUND_LOG_DAMAGED, name, at, "%s; %" PRId64 " bytes skipped",
                         item.why, item.size_bytes);
            break;
        }
        case LOG_NO_SEGMENT:
            findings_add(v->findings, FOUND_SEGMENT_MISSING, NULL, -1,
                         "%" PRId64 " bytes from offset %" PRId64 " on have no file",
                         item.size_bytes, item.phys_off);
            break;
        case LOG_END:
            return on_end(v, &item, err);
        }
    }
}

/* ---- behind the log ---- */

static void check_time(struct verify *v, const char *what, int64_t ms, int64_t at)
{
    if (ms < 0)
        findings_add(v->findings, FOUND_CHECKPOINT, "checkpoint", at, "%s is %" PRId64, what, ms);
    else if (v->newest_ms && ms > v->newest_ms)
        findings_add(v->findings,
                     store_dir_is_unsettled(&v->dir) ? FOUND_CHECKPOINT_AHEAD : FOUND_CHECKPOINT,
                     "checkpoint", at,
                     "%s is %" PRId64 ", but the newest record was stored at %" PRId64, what, ms,
                     v->newest_ms);
}

static void check_checkpoint(struct verify *v)
{
    if (v->dir.checkpoint_bytes < 0) {
        if (v->records && !store_dir_is_unsettled(&v->dir))
            findings_add(v->findings, FOUND_CHECKPOINT, "checkpoint", -1, "there is none");
        return;
    }
    if (v->dir.checkpoint_bytes != CHECKPOINT_BYTES)
        findings_add(v->findings, FOUND_CHECKPOINT, "checkpoint", -1,
                     "%" PRId64 " bytes instead of %d", v->dir.checkpoint_bytes, CHECKPOINT_BYTES);
    check_time(v, "physicMsgTimestamp", v->dir.checkpoint.physic_ms, 0);
    check_time(v, "logicsMsgTimestamp", v->dir.checkpoint.logics_ms, 8);
    check_time(v, "indexMsgTimestamp", v->dir.checkpoint.index_ms, 16);
}

static enum tern_code run(struct verify *v, struct tern_error *err)
{
    enum tern_code code = queue_check_create(&v->dir, v->findings, &v->queues, err);
    if (code)
        return code;
    index_check_create(&v->dir, v->options->index_slots, v->findings, &v->indexes);
    v->log_min = v->log_end = log_reader_min(&v->dir);
    if (v->dir.segment_bytes > 0) {
        check_segments(v);
        log_reader_init(&v->reader, &v->dir, 0);
        code = walk_log(v, err);
        log_reader_fini(&v->reader);
    }
    if (!code)
        code = queue_check_end(v->queues, v->log_min, v->log_end, err);
    if (!code)
        code = index_check_end(v->indexes, v->log_end, err);
    if (!code)
        check_checkpoint(v);
    return code;
}

/* ---- printing ---- */

static void print_json(const struct verify *v, bool ok)
{
    json_t *json = json_pack("{s:b,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "ok", ok, "live",
                             store_dir_is_live(&v->dir), "aborted", v->dir.aborted, "logMin",
                             (json_int_t)v->log_min, "logEnd", (json_int_t)v->log_end, "records",
                             (json_int_t)v->records, "fillers", (json_int_t)v->fillers, "queues",
                             (json_int_t)queue_check_queues(v->queues), "units",
                             (json_int_t)queue_check_units(v->queues), "indexEntries",
                             (json_int_t)index_check_entries(v->indexes), "newestStoreTimestamp",
                             (json_int_t)v->newest_ms);
    findings_to_json(v->findings, json);
    mqstore_print_json(json, v->options);
}

static void print_text(const struct verify *v, bool ok)
{
    FILE *out = v->options->out;
    fprintf(out,
            "log      %" PRId64 " to %" PRId64 ", %" PRIu32 " segments, %" PRIu64
            " records, %" PRIu64 " fillers\n",
            v->log_min, v->log_end, v->dir.segment_count, v->records, v->fillers);
    fprintf(out, "queues   %" PRIu32 ", %" PRIu64 " units compared\n",
            queue_check_queues(v->queues), queue_check_units(v->queues));
    fprintf(out, "index    %" PRIu32 " files, %" PRIu64 " entries compared\n", v->dir.index_count,
            index_check_entries(v->indexes));
    findings_print(v->findings, out);
    fprintf(out, "%s\n", ok ? "ok" : "FAULTY");
}

int mqstore_verify(const struct env *env, const char *root, const struct mqstore_options *options)
{
    struct verify v = {.options = options};
    struct tern_error err = {TERN_OK, ""};
    int status = mqstore_open(&v.dir, env, root, true, options);
    if (status)
        return status;
    v.findings = tool_alloc(1, sizeof *v.findings);
    progress_init(&v.progress, env, options);
    enum tern_code code = run(&v, &err);
    progress_end(&v.progress);
    if (code) {
        status = mqstore_fail(options, code, &err);
    } else {
        bool ok = findings_faults(v.findings) == 0;
        status = ok ? MQSTORE_OK : MQSTORE_FAILED;
        if (options->json)
            print_json(&v, ok);
        else
            print_text(&v, ok);
    }
    index_check_destroy(v.indexes);
    queue_check_destroy(v.queues);
    free(v.findings);
    store_dir_close(&v.dir);
    return status;
}
