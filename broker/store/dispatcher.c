/*
 * The dispatcher's token, its two users, and its positions.
 *
 *   appender ─offer─► token free, nothing pending before it?
 *                       yes ──► batch straight from the appender's memory, arrivals kept
 *                       no  ──► wake the task
 *   task ──► take the token, read a chunk of the log, batch, release, deliver; until caught up
 *   who raises the limit ──► token free, little pending? ──► the same, one batch, else wake the
 * task
 *
 * No wake-up is lost: who lets the token go looks at limit and end once more and wakes the task
 * when something is left; who finds the token taken relies on that, or is the task, which is woken
 * then. A limit below the end wakes the task once each time it rises, not with each offer that it
 * holds back: `stuck` remembers the target at which no whole record was left.
 *
 * A cut of the log or a deletion holds the token for its time and may move the position back.
 *
 * Arrivals: those of offers are kept until dispatcher_notify(), in arrays of fixed size; when they
 * are full the rest is left to the task, which delivers its own at once, without the token.
 *
 * Failure modes: no space, no memory or no descriptor: the records stay undispatched (late, not
 * lost) and the task tries again each second; what was put of the batch is then compared, not put
 * twice. Any other code, and bytes that are no record, end dispatching: on_error, the store
 * latches. A record that is not all there, at the log's end or the limit, is waited for.
 */
#include "broker/store/dispatcher.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sched.h"
#include "broker/store/commit_log.h"
#include "broker/store/dispatch_arrivals.h"
#include "broker/store/dispatch_batch.h"
#include "broker/store/record_head.h"
#include "broker/store/turn.h"

enum {
    CHUNK_BYTES = 256 * 1024,
    HERE_BYTES = 32 * 1024, /* pending, that who raises the limit dispatches himself */
    RETRY_MS = 1000
};

struct dispatcher {
    const struct env *env;
    struct dispatcher_options options;
    struct delay_levels delays;
    struct task *task;

    struct turn token;
    _Atomic bool failed;
    _Atomic int64_t position; /* written by the token's holder */
    _Atomic int64_t limit;
    _Atomic int64_t stuck; /* the target up to which no whole record is left */

    /* the token's holder's */
    int64_t verify_until; /* what lies before may be partly put */

    /* the task's (and the recovery's before it starts) */
    struct dispatch_batch *task_batch;
    uint8_t *chunk; /* bytes [chunk_at, chunk_at + chunk_len) of the log */
    size_t chunk_capacity, chunk_len;
    int64_t chunk_at;

    _Atomic bool here; /* somebody is in dispatch_here(): its batch is his */
    struct dispatch_batch *here_batch;

    /* the append token's holder's */
    struct dispatch_batch *offer_batch;
    struct arrivals arrivals; /* of offers, until dispatcher_notify() */
};

/* ---- token and positions ---- */

static bool token_take(struct dispatcher *d)
{
    return !atomic_load(&d->failed) && turn_try(&d->token);
}

static int64_t target_of(struct dispatcher *d)
{
    int64_t limit = atomic_load(&d->limit);
    int64_t end = commit_log_whole(d->options.log);
    return limit < end ? limit : end;
}

static void wake_task(struct dispatcher *d)
{
    if (d->task)
        task_wake(d->task);
}

/* Whether a record may be dispatched: none is when the limit lies inside the next one. */
static bool is_behind(struct dispatcher *d)
{
    int64_t target = target_of(d);
    return atomic_load(&d->position) < target && target != atomic_load(&d->stuck);
}

void dispatcher_follow(struct dispatcher *d)
{
    if (is_behind(d))
        wake_task(d);
}

static void token_release(struct dispatcher *d)
{
    turn_release(&d->token);
    dispatcher_follow(d);
}

int64_t dispatcher_position(const struct dispatcher *d)
{
    return atomic_load(&d->position);
}

int64_t dispatcher_limit(const struct dispatcher *d)
{
    return atomic_load(&d->limit);
}

static int64_t next_segment(const struct dispatcher *d, int64_t phys_off)
{
    int64_t segment = commit_log_segment_bytes(d->options.log);
    return phys_off - phys_off % segment + segment;
}

int64_t dispatcher_oldest_pending_ms(const struct dispatcher *d)
{
    struct commit_log *log = d->options.log;
    struct record_head head;
    int64_t position = atomic_load(&d->position);
    if (position >= commit_log_whole(log))
        return 0;
    if (record_head_read(log, position, true, &head) == TERN_OK ||
        record_head_read(log, next_segment(d, position), true, &head) == TERN_OK)
        return head.store_ms;
    return 0;
}

/* ---- failing ---- */

static bool is_transient(enum tern_code code)
{
    return code == TERN_NO_SPACE || code == TERN_NO_MEMORY || code == TERN_LIMIT;
}

/* Dispatching ends here. @thread the token's holder @locks none */
static void fail(struct dispatcher *d, enum tern_code code, const char *text)
{
    if (atomic_exchange(&d->failed, true))
        return;
    log_error(d->env->log, "dispatch_failed", "position=%lld cause=\"%s\"",
              (long long)atomic_load(&d->position), text);
    if (d->options.on_error)
        d->options.on_error(d->options.arg, code, text);
}

static void describe(char *out, size_t size, enum tern_code code, const struct dispatch_run *run)
{
    if (run)
        snprintf(out, size, "consume queue %s/%d: %s putting %u units at %lld, max %lld",
                 consume_queue_topic(run->queue), consume_queue_id(run->queue),
                 tern_code_name(code), run->count, (long long)run->first_off,
                 (long long)consume_queue_max(run->queue));
    else
        snprintf(out, size, "consume queues or index: %s", tern_code_text(code));
}

/* ---- one batch ---- */

struct outcome {
    enum batch_stop stop;
    size_t taken, need;
    char text[TERN_ERROR_TEXT_BYTES]; /* when a code is returned */
};

static enum batch_stop fill(struct dispatcher *d, struct dispatch_batch *batch, int64_t phys_off,
                            const uint8_t *bytes, size_t size, struct outcome *out,
                            enum tern_code *code)
{
    const struct batch_source source = {d->options.queues, d->options.index, d->options.deletions,
                                        &d->delays, &d->options.observer};
    batch_init(batch, d->options.queues);
    out->stop = batch_fill(batch, &source, phys_off, bytes, size, &out->taken, &out->need, code);
    if (out->stop == BATCH_FAILED)
        describe(out->text, sizeof out->text, *code, NULL);
    return out->stop;
}

/* Puts a filled batch and moves the position behind it. @thread the token's holder */
static enum tern_code apply(struct dispatcher *d, struct dispatch_batch *batch, int64_t phys_off,
                            bool replay, struct outcome *out)
{
    const struct dispatch_run *failed = NULL;
    enum tern_code code = batch_apply(batch, replay || phys_off < d->verify_until, &failed);
    if (code) {
        describe(out->text, sizeof out->text, code, failed);
        if (d->verify_until < phys_off + (int64_t)out->taken)
            d->verify_until = phys_off + (int64_t)out->taken;
        return code;
    }
    atomic_store(&d->position, phys_off + (int64_t)out->taken);
    return TERN_OK;
}

/* ---- reading the log ---- */

/* Bytes from phys_off on, at least `need` when there are as many; *avail of them. */
static enum tern_code get_chunk(struct dispatcher *d, int64_t phys_off, int64_t target, bool nowait,
                                size_t need, const uint8_t **bytes, size_t *avail)
{
    int64_t inside = phys_off - d->chunk_at;
    size_t want = need > CHUNK_BYTES ? need : CHUNK_BYTES;
    if (inside >= 0 && inside < (int64_t)d->chunk_len &&
        (need == 0 || d->chunk_len - (size_t)inside >= need)) {
        *bytes = d->chunk + inside;
        *avail = d->chunk_len - (size_t)inside;
        return TERN_OK;
    }
    if (want > d->chunk_capacity || d->chunk_capacity > want * 2) {
        uint8_t *chunk = malloc(want);
        if (!chunk)
            return TERN_NO_MEMORY;
        free(d->chunk);
        d->chunk = chunk;
        d->chunk_capacity = want;
    }
    d->chunk_len = 0;
    d->chunk_at = phys_off;
    if ((int64_t)want > target - phys_off)
        want = (size_t)(target - phys_off);
    enum tern_code code =
        commit_log_read(d->options.log, phys_off, d->chunk, want, nowait, &d->chunk_len);
    if (code)
        d->chunk_len = 0;
    *bytes = d->chunk;
    *avail = d->chunk_len;
    return code;
}

/* What a round of reading and dispatching came to. */
enum round { ROUND_MORE, ROUND_CAUGHT_UP, ROUND_RETRY, ROUND_FAILED };

/* Who dispatches: reads without waiting for the disk or not, and compares what is there or not. */
enum pace { PACE_TASK, PACE_REPLAY, PACE_HERE };

/* After a batch: what is to be done about the byte at which it stopped. */
static enum round after_stop(struct dispatcher *d, int64_t at, int64_t target, size_t avail,
                             size_t *need, struct outcome *out, enum tern_code *code)
{
    int64_t left = target - at;
    switch (out->stop) {
    case BATCH_BLANK:
        if (next_segment(d, at) > target)
            return ROUND_CAUGHT_UP;
        atomic_store(&d->position, next_segment(d, at));
        return ROUND_MORE;
    case BATCH_PARTIAL:
        *need = out->need ? out->need : RECORD_BLANK_BYTES;
        if (at + (int64_t)*need > next_segment(d, at))
            break; /* no record crosses a segment's end */
        if ((int64_t)*need > left)
            return ROUND_CAUGHT_UP; /* the rest will come */
        if (avail < *need)
            return ROUND_MORE; /* the chunk was too small */
        break;
    case BATCH_BAD:
    case BATCH_FAILED:
        break;
    case BATCH_END:
    case BATCH_FULL:
        return ROUND_MORE;
    }
    snprintf(out->text, sizeof out->text, "no record begins at physical offset %lld of the log",
             (long long)at);
    *code = TERN_CORRUPT;
    return ROUND_FAILED;
}

/*
 * Dispatches one batch from the log up to `target`; the batch keeps its runs for the arrivals.
 * @thread the token's holder
 */
static enum round dispatch_round(struct dispatcher *d, struct dispatch_batch *batch, int64_t target,
                                 enum pace pace, size_t *need, struct outcome *out,
                                 enum tern_code *code)
{
    const uint8_t *bytes = NULL;
    size_t avail = 0;
    int64_t at = atomic_load(&d->position);
    batch_init(batch, d->options.queues);
    out->text[0] = 0;
    if (at >= target)
        return ROUND_CAUGHT_UP;
    int64_t log_min = commit_log_min(d->options.log);
    if (at < log_min) {
        log_warn(d->env->log, "dispatch_skips_expired", "from=%lld to=%lld", (long long)at,
                 (long long)log_min);
        atomic_store(&d->position, log_min);
        return ROUND_MORE;
    }
    *code = get_chunk(d, at, target, pace == PACE_HERE, *need, &bytes, &avail);
    *need = 0;
    if (*code == TERN_NOT_FOUND && at < commit_log_min(d->options.log))
        return ROUND_MORE; /* expired just now */
    if (*code == TERN_AGAIN)
        return ROUND_RETRY; /* not in memory */
    if (*code == TERN_OK && fill(d, batch, at, bytes, avail, out, code) != BATCH_FAILED)
        *code = apply(d, batch, at, pace == PACE_REPLAY, out);
    if (*code) {
        if (!out->text[0])
            snprintf(out->text, sizeof out->text, "reading the log at %lld: %s", (long long)at,
                     tern_code_text(*code));
        return is_transient(*code) ? ROUND_RETRY : ROUND_FAILED;
    }
    return after_stop(d, at + (int64_t)out->taken, target, avail - out->taken, need, out, code);
}

/* ---- the task ---- */

/* @thread the task's */
static int64_t dispatch_step(void *arg, int64_t now_ns)
{
    struct dispatcher *d = arg;
    struct outcome out;
    enum tern_code code = TERN_OK;
    enum round round = ROUND_MORE;
    size_t need = 0;
    while (round == ROUND_MORE) {
        if (!token_take(d))
            return SCHED_NEVER; /* its holder wakes us if something is left */
        int64_t before = atomic_load(&d->position);
        int64_t target = target_of(d);
        round = dispatch_round(d, d->task_batch, target, PACE_TASK, &need, &out, &code);
        if (round == ROUND_CAUGHT_UP)
            atomic_store(&d->stuck, target);
        bool delivers = atomic_load(&d->position) > before;
        if (round == ROUND_FAILED)
            fail(d, code, out.text);
        turn_release(&d->token);
        if (round == ROUND_CAUGHT_UP)
            dispatcher_follow(d);
        if (delivers)
            arrivals_of_batch(&d->options.observer, d->task_batch);
        batch_release(d->task_batch);
    }
    if (round == ROUND_RETRY) {
        log_warn(d->env->log, "dispatch_waits", "cause=\"%s\" retry_ms=%d", out.text, RETRY_MS);
        return now_ns + ms_to_ns(RETRY_MS);
    }
    return SCHED_NEVER;
}

/* ---- here ---- */

/*
 * Dispatches what is pending when that is little, in memory, and nobody else does: waking a thread
 * costs more. What is left, and every failure, is the task's. @thread any @locks none
 */
static void dispatch_here(struct dispatcher *d)
{
    struct outcome out;
    enum tern_code code = TERN_OK;
    size_t need = 0;
    int64_t target = target_of(d);
    if (target - atomic_load(&d->position) > HERE_BYTES ||
        (d->options.index && index_service_busy(d->options.index)) ||
        atomic_exchange(&d->here, true))
        return;
    if (token_take(d)) {
        int64_t before = atomic_load(&d->position);
        target = target_of(d);
        if (target - before <= HERE_BYTES && dispatch_round(d, d->here_batch, target, PACE_HERE,
                                                            &need, &out, &code) == ROUND_CAUGHT_UP)
            atomic_store(&d->stuck, target);
        turn_release(&d->token);
        if (atomic_load(&d->position) > before)
            arrivals_of_batch(&d->options.observer, d->here_batch);
        batch_release(d->here_batch);
    }
    atomic_store(&d->here, false);
}

void dispatcher_set_limit(struct dispatcher *d, int64_t phys_off)
{
    atomic_store(&d->limit, phys_off);
    if (d->task && is_behind(d))
        dispatch_here(d);
    dispatcher_follow(d); /* whoever has the token looks at the limit after letting it go */
}

/* ---- offers ---- */

/* The filler between the position and an offer that begins the next segment. */
static void skip_filler(struct dispatcher *d, int64_t phys_off)
{
    int64_t at = atomic_load(&d->position);
    uint8_t head[RECORD_BLANK_BYTES];
    if (at >= phys_off || next_segment(d, at) != phys_off ||
        record_read_bytes(d->options.log, at, head, sizeof head, true) ||
        get_be32(head + 4) != BLANK_MAGIC || phys_off - at != (int64_t)get_be32(head))
        return;
    atomic_store(&d->position, phys_off);
}

/* Dispatches from the appender's memory as long as nothing stands against it. @thread both tokens'
 * holder */
static void dispatch_offer(struct dispatcher *d, int64_t phys_off, const uint8_t *records,
                           size_t size)
{
    int64_t limit = atomic_load(&d->limit);
    struct outcome out;
    enum tern_code code = TERN_OK;
    skip_filler(d, phys_off);
    if (atomic_load(&d->position) != phys_off || phys_off < d->verify_until)
        return;
    if (limit - phys_off < (int64_t)size)
        size = limit > phys_off ? (size_t)(limit - phys_off) : 0;
    while (size > 0) {
        if (d->options.index && index_service_busy(d->options.index))
            return;
        enum batch_stop stop = fill(d, d->offer_batch, phys_off, records, size, &out, &code);
        ENSURE(stop != BATCH_BAD && stop != BATCH_BLANK); /* our own */
        bool room = arrivals_room(&d->arrivals, d->offer_batch);
        if (!code && room)
            code = apply(d, d->offer_batch, phys_off, false, &out);
        if (!code && room)
            arrivals_move(&d->arrivals, d->offer_batch);
        batch_release(d->offer_batch);
        if (code && !is_transient(code))
            fail(d, code, out.text);
        if (code || !room || out.taken == 0)
            return; /* the task goes on from here */
        phys_off += (int64_t)out.taken;
        records += out.taken;
        size -= out.taken;
    }
}

void dispatcher_offer(struct dispatcher *d, int64_t phys_off, const uint8_t *records,
                      size_t size_bytes)
{
    if (!token_take(d)) {
        wake_task(d);
        return;
    }
    dispatch_offer(d, phys_off, records, size_bytes);
    token_release(d);
}

void dispatcher_notify(struct dispatcher *d)
{
    arrivals_deliver(&d->arrivals);
}

/* ---- standing still ---- */

void dispatcher_hold(struct dispatcher *d)
{
    turn_wait(&d->token, d->env);
}

void dispatcher_let_go(struct dispatcher *d)
{
    turn_release(&d->token);
    wake_task(d); /* it may have met the token taken */
}

void dispatcher_rewind(struct dispatcher *d, int64_t position, int64_t verify_until)
{
    d->chunk_len = 0;
    d->verify_until = verify_until;
    atomic_store(&d->stuck, -1);
    atomic_store(&d->position, position);
}

/* ---- recovery ---- */

enum tern_code dispatcher_replay(struct dispatcher *d, int64_t from, int64_t end, int64_t *records,
                                 struct tern_error *err)
{
    struct outcome out;
    enum tern_code code = TERN_OK;
    enum round round = ROUND_MORE;
    size_t need = 0;
    ENSURE(!d->task);
    *records = 0;
    atomic_store(&d->position, from);
    while (round == ROUND_MORE) {
        round = dispatch_round(d, d->task_batch, end, PACE_REPLAY, &need, &out, &code);
        *records += d->task_batch->record_count;
        batch_release(d->task_batch);
    }
    if (round != ROUND_CAUGHT_UP)
        return error_set(err, code, "dispatching again: %s%s", out.text,
                         code == TERN_NO_SPACE
                             ? "; there is no room for what the queues lack: make some, start again"
                             : "");
    if (atomic_load(&d->position) < end) {
        /* A filler may reach to the end; anything else is a record that is not all there. */
        if (next_segment(d, atomic_load(&d->position)) > end)
            log_warn(d->env->log, "replay_stops_short", "position=%lld end=%lld",
                     (long long)atomic_load(&d->position), (long long)end);
    } else if (from >= end) {
        atomic_store(&d->position, end);
    }
    return TERN_OK;
}

/* ---- life ---- */

enum tern_code dispatcher_create(const struct env *env, const struct dispatcher_options *options,
                                 struct dispatcher **out)
{
    *out = NULL;
    struct dispatcher *d = calloc(1, sizeof *d);
    if (!d)
        return TERN_NO_MEMORY;
    d->env = env;
    d->options = *options;
    d->arrivals.observer = &d->options.observer;
    atomic_init(&d->limit, INT64_MAX);
    atomic_init(&d->stuck, -1);
    d->task_batch = malloc(sizeof *d->task_batch);
    d->offer_batch = malloc(sizeof *d->offer_batch);
    d->here_batch = malloc(sizeof *d->here_batch);
    if (!d->task_batch || !d->offer_batch || !d->here_batch ||
        delay_levels_parse(DELAY_LEVELS_DEFAULT, &d->delays, NULL)) {
        dispatcher_destroy(d);
        return TERN_NO_MEMORY;
    }
    batch_init(d->task_batch, d->options.queues);
    batch_init(d->offer_batch, d->options.queues);
    batch_init(d->here_batch, d->options.queues);
    *out = d;
    return TERN_OK;
}

void dispatcher_set_delay_levels(struct dispatcher *d, const struct delay_levels *levels)
{
    d->delays = *levels;
}

enum tern_code dispatcher_start(struct dispatcher *d)
{
    return task_start(d->env->sched, "store-dispatch", dispatch_step, d, &d->task);
}

void dispatcher_destroy(struct dispatcher *d)
{
    if (!d)
        return;
    task_stop(d->task);
    arrivals_drop(&d->arrivals);
    free(d->chunk);
    free(d->task_batch);
    free(d->offer_batch);
    free(d->here_batch);
    free(d);
}
