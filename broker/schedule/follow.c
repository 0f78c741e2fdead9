/*
 * Following the log: what its records say becomes progress of the levels and items of the buckets.
 *
 *                    intake full, a write failed, a cut, start
 *        ┌──────────────────────────────────────────────────────────┐
 *        │                                                          ▼
 *   the dispatcher tells (intake) ◄── up to the end when the ── the log is read (lagging)
 *                                     intake counts again
 *
 * fed: everything before it is in levels and buckets. It only grows, but for cuts. When the intake
 * counts again, what lies before the log's end at that moment is read once more: a record may have
 * been told while nobody listened, and not be counted as dispatched yet. Hearing a thing twice
 * changes nothing: buckets know up to which record they are (last_phys), levels what is done.
 *
 * Threads: the schedule's task, or who holds its turn. Failure modes: a file that cannot be written
 * is tried again each second, from the log; a damaged one has all of them made anew from the log;
 * nothing is delivered from a bucket meanwhile. A damaged record of the log is passed.
 */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/names.h"
#include "broker/schedule/schedule_internal.h"

enum { FOLLOW_RETRY_MS = 1000 };

static void set_lagging(struct schedule *s)
{
    lock_acquire(&s->lock);
    s->lagging = true;
    s->intake_count = 0;
    lock_release(&s->lock);
}

/* ---- starting, cutting, beginning anew ---- */

static enum tern_code begin_anew(struct schedule *s, struct tern_error *err)
{
    struct delay_snapshots fresh = {.count = 1};
    fresh.rows[0].taken_ms = clock_wall_ms(s->broker->env.clock);
    level_progress_fini(&s->levels);
    memset(&s->levels, 0, sizeof s->levels);
    s->fed = 0;
    s->snapshots = fresh;
    enum tern_code code = buckets_clear(&s->buckets, err);
    return code ? code : save_now(s, &fresh, err);
}

void follow_rebuild(struct schedule *s, const char *cause)
{
    struct tern_error err;
    log_error(s->broker->env.log, "delay_files_damaged",
              "dir=%s cause=\"%s\" effect=\"made anew from the log; due messages wait for it\"",
              s->dir, cause);
    set_lagging(s);
    schedule_reset_delivery(s, SCHEDULE_FOLLOWING);
    turn_wait(&s->save_turn, &s->broker->env); /* nothing is being written meanwhile */
    save_discard(s);
    s->closing_to = 0;
    s->rebuilt++;
    enum tern_code code = begin_anew(s, &err);
    s->rebuild_wanted = code != TERN_OK;
    turn_release(&s->save_turn);
    if (code)
        log_error(s->broker->env.log, "delay_files_not_removed", "cause=\"%s\"",
                  error_text(&err, code));
}

/* The log ends at phys_off; it is read again from where progress is known to be true. */
static enum tern_code go_back(struct schedule *s, int64_t phys_off, struct tern_error *err)
{
    struct delay_snapshots left = s->snapshots;
    bool durable = left.count > 0 && left.rows[left.count - 1].position <= phys_off;
    const struct delay_snapshot *to = delay_snapshots_cut(&left, phys_off);
    if (!to)
        return begin_anew(s, err);
    enum tern_code code = buckets_cut(&s->buckets, phys_off, err);
    if (code)
        return begin_anew(s, err); /* what cannot be cut is made anew */
    level_progress_cut(&s->levels, phys_off, to->base);
    s->fed = to->position;
    s->snapshots = left;
    return durable ? TERN_OK : save_now(s, &left, err);
}

enum tern_code follow_cut(struct schedule *s, int64_t phys_off, struct tern_error *err)
{
    save_discard(s);
    schedule_reset_delivery(s, SCHEDULE_FOLLOWING);
    set_lagging(s);
    s->closing_to = 0;
    if (phys_off <= 0)
        return begin_anew(s, err);
    if (phys_off >= s->fed && s->buckets.last_phys < phys_off)
        return TERN_OK;
    return go_back(s, phys_off, err);
}

/* RocketMQ's progress, or an operator's. */
static enum tern_code take_offsets_file(struct schedule *s, bool fresh, struct tern_error *err)
{
    int64_t base[DELAY_LEVELS_MAX];
    bool edited = false;
    enum tern_code code = delay_offsets_read(&s->broker->env, s->offsets_path, base, &edited, err);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    if (code || !edited)
        return code;
    log_warn(s->broker->env.log, "delay_offsets_taken",
             "file=%s note=\"it was written by somebody else: levels go on from there\"",
             s->offsets_path);
    struct delay_snapshot *last = &s->snapshots.rows[s->snapshots.count - 1];
    memcpy(s->levels.base, base, sizeof base);
    memcpy(last->base, base, sizeof base);
    s->snapshots.rows[0] = *last;
    s->snapshots.count = 1;
    if (fresh) { /* whoever wrote it leaves no sequels in the log */
        struct store_positions at;
        store_positions(s->broker->store, &at);
        s->fed = s->snapshots.rows[0].position = at.whole;
    }
    return save_now(s, &s->snapshots, err);
}

enum tern_code follow_start(struct schedule *s, struct tern_error *err)
{
    struct store_positions at;
    const struct env *env = &s->broker->env;
    store_positions(s->broker->store, &at);
    enum tern_code code = buckets_init(&s->buckets, env, s->dir, err);
    if (code)
        return code;
    code = delay_checkpoint_read(env, s->dir, &s->snapshots, &s->levels, &s->buckets, err);
    bool fresh = code == TERN_NOT_FOUND;
    if (!code) {
        s->fed = s->snapshots.rows[s->snapshots.count - 1].position;
        code = buckets_settle(&s->buckets, err);
    }
    if (code == TERN_CORRUPT) {
        log_error(env->log, "delay_files_damaged", "cause=\"%s\" effect=\"made anew from the log\"",
                  err->text);
        s->rebuilt++;
    }
    if (fresh || code == TERN_CORRUPT)
        code = begin_anew(s, err);
    if (!code && (s->fed > at.whole || s->buckets.last_phys >= at.whole))
        code = go_back(s, at.whole, err); /* the log lost its tail */
    if (!code)
        code = take_offsets_file(s, fresh, err);
    s->lagging = true;
    return code ? error_prefix(err, code, "delayed messages") : TERN_OK;
}

/* ---- taking events ---- */

static void feed_level(struct schedule *s, const struct delay_event *event)
{
    const struct waiting *ended = &event->ended;
    int64_t min = 0;
    int64_t max;
    if (ended->queue_off > s->levels.base[ended->queue_id])
        store_queue_range(s->broker->store, SCHEDULE_TOPIC, ended->queue_id, &min, &max);
    enum tern_code code =
        level_progress_done(&s->levels, ended->queue_id, ended->queue_off, event->phys_off, min);
    if (code)
        log_error(s->broker->env.log, "delay_mark_dropped",
                  "level=%" PRId32 " offset=%" PRId64 " limit=%d effect=\"it may come twice\"",
                  ended->queue_id + 1, ended->queue_off, LEVEL_MARKS_MAX);
}

/* All or none; false: not now. */
static bool feed(struct schedule *s, const struct delay_event *events, uint32_t count,
                 int64_t now_ns)
{
    struct tern_error err;
    int64_t known = s->buckets.last_phys;
    enum tern_code code = buckets_append(&s->buckets, events, count, &err);
    if (code) {
        log_error(s->broker->env.log, "delay_files_not_written",
                  "code=%s cause=\"%s\" effect=\"tried again from the log\"", tern_code_name(code),
                  error_text(&err, code));
        set_lagging(s);
        s->closing_to = 0;
        s->follow_retry_ns = now_ns + ms_to_ns(FOLLOW_RETRY_MS);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct delay_event *event = &events[i];
        if (event->ends && !event->ended.timer)
            feed_level(s, event);
        if (event->phys_off <= known)
            continue;
        if (event->adds) {
            const struct due_entry entry = {{event->add_key_ms, event->add_off}, event->phys_off};
            window_add(s, &entry);
        }
        if (event->ends && event->ended.timer && event->by_mark) {
            const struct due_key key = {event->ended.key_ms, event->ended.queue_off};
            window_strike(s, &key);
        }
    }
    return true;
}

static bool on_scanned(void *arg, const struct record *record)
{
    struct schedule *s = arg;
    if (delay_event_of(record, &s->scanned[s->scanned_count]))
        s->scanned_count++;
    s->scanned_records++;
    s->scanned_bytes += record->total_size;
    return s->scanned_count < SCAN_EVENTS_MAX && s->scanned_records < SCAN_RECORDS_MAX &&
           s->scanned_bytes < SCAN_BYTES_MAX;
}

/*
 * The log cannot be read on at *at. A record whose body is damaged still says what it says, and is
 * taken. Where there is none, the position may be wrong: everything is made anew, once; when it
 * leads there again, the rest of the segment is lost. false: not now.
 */
static bool pass_damage(struct schedule *s, int64_t upto, int64_t *at)
{
    struct record record;
    int64_t segment = s->broker->config.segment_bytes;
    bool body = !schedule_read(s, *at, &record) && record.phys_off == *at;
    if (!body && s->fed > 0 && s->damaged_at != *at) {
        s->damaged_at = *at;
        follow_rebuild(s, "the log has no record where it was followed to");
        return false;
    }
    log_error(s->broker->env.log, "delay_log_damaged", "position=%" PRId64 " what=\"%s\"", *at,
              body ? "the body of a record" : "the rest of the segment, which is passed over");
    if (body)
        (void)on_scanned(s, &record);
    int64_t next = body ? *at + record.total_size : (*at / segment + 1) * segment;
    *at = next < upto ? next : upto;
    return true;
}

/* Reads on in the log, a bounded part. false: not now. */
static bool scan(struct schedule *s, int64_t upto, int64_t now_ns)
{
    int64_t next = s->fed;
    s->scanned_count = s->scanned_records = 0;
    s->scanned_bytes = 0;
    enum tern_code code = store_each_record(s->broker->store, s->fed, upto, on_scanned, s, &next);
    if (code == TERN_CORRUPT && s->scanned_records == 0) {
        if (!pass_damage(s, upto, &next))
            return false;
    } else if (code && s->scanned_records == 0) {
        log_error(s->broker->env.log, "delay_log_not_read",
                  "code=%s position=%" PRId64 " effect=\"tried again\"", tern_code_name(code),
                  s->fed);
        s->follow_retry_ns = now_ns + ms_to_ns(FOLLOW_RETRY_MS);
        return false;
    }
    if (!feed(s, s->scanned, s->scanned_count, now_ns))
        return false;
    s->fed = s->scanned_records == 0 && next < upto ? upto : next;
    return true;
}

bool follow_step(struct schedule *s, int64_t now_ns)
{
    struct store_positions at;
    uint32_t count = 0;
    if (now_ns < s->follow_retry_ns)
        return false;
    if (s->rebuild_wanted) {
        s->follow_retry_ns = now_ns + ms_to_ns(FOLLOW_RETRY_MS);
        follow_rebuild(s, "they could not be removed before");
        return true;
    }
    /* The position first: what was dispatched before it has been told by now. */
    store_positions(s->broker->store, &at);
    lock_acquire(&s->lock);
    bool lagging = s->lagging;
    if (!lagging && s->fed >= s->closing_to) {
        struct delay_event *taken = s->taken;
        s->taken = s->intake;
        s->intake = taken;
        count = s->intake_count;
        s->intake_count = 0;
    }
    lock_release(&s->lock);
    if (!lagging && s->fed < s->closing_to) {
        scan(s, s->closing_to, now_ns);
        return true;
    }
    if (!lagging) {
        if (count > 0 && !feed(s, s->taken, count, now_ns))
            return false;
        /* They are told in log order: nothing before the last one is still to come. */
        if (count > 0 && s->taken[count - 1].end > s->fed)
            s->fed = s->taken[count - 1].end;
        if (at.dispatched > s->fed)
            s->fed = at.dispatched;
        return count > 0;
    }
    if (s->fed < at.whole) {
        if (!scan(s, at.whole, now_ns) || s->fed < at.whole)
            return true;
    }
    lock_acquire(&s->lock);
    s->lagging = false;
    s->intake_count = 0;
    lock_release(&s->lock);
    store_positions(s->broker->store, &at);
    s->closing_to = at.whole;
    return true;
}
