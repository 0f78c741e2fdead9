/*
 * What the checker makes of what it hears: tries, acknowledgements, arrivals, committed offsets. No
 * thread, no clock, no network.
 *
 * Invariants: `waiting` is the number of acknowledged messages without a first occurrence, so what
 * is lost is known at any time; `ids` of a queue never goes back to 0. Threads: under verify.lock.
 * Failure modes: without memory a message counts as altered, so the check fails rather than passes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/mqbench/verify.h"

/* At an offset whose message is of another run or damaged. */
static const uint64_t foreign_id = UINT64_MAX;
static const uint64_t numbers_max = UINT64_C(1) << 40;

/* A queue whose sends were not answered for longer has no master just now. */
enum { ABSENCE_MS = 500 };

static bool grow(uint64_t **array, uint64_t *cap, uint64_t needed, uint64_t per_word)
{
    if (needed < *cap)
        return true;
    uint64_t wanted = *cap ? *cap * 2 : 4096;
    while (wanted <= needed)
        wanted *= 2;
    uint64_t *bigger = realloc(*array, wanted / per_word * sizeof *bigger);
    if (!bigger)
        return false;
    memset(bigger + *cap / per_word, 0, (wanted - *cap) / per_word * sizeof *bigger);
    *array = bigger;
    *cap = wanted;
    return true;
}

/* ---- pauses ---- */

static void gap_event(struct verify_gap *gap, int64_t now_ns)
{
    if (gap->last_ns && now_ns - gap->last_ns > gap->longest_ns)
        gap->longest_ns = now_ns - gap->last_ns;
    gap->last_ns = now_ns;
}

void verify_note_phase(struct verify *verify, bool sending, int64_t now_ns)
{
    if (sending) {
        verify->send_gap.last_ns = now_ns;
    } else if (verify->sending) {
        gap_event(&verify->send_gap, now_ns);
        if (verify->receive_gap.last_ns)
            gap_event(&verify->receive_gap, now_ns);
    }
    verify->sending = sending;
}

void verify_note_arrival(struct verify *verify, size_t count, int64_t now_ns)
{
    if (verify->sending)
        gap_event(&verify->receive_gap, now_ns);
    if (verify->waiting > 0)
        gap_event(&verify->wait_gap, now_ns);
    verify->received += count;
}

/* ---- sending ---- */

bool verify_note_try(struct verify_stream *stream, uint64_t first, uint32_t count)
{
    if (stream->tried != first + 1) {
        stream->tried = first + 1;
        return true;
    }
    struct verify_retry *last =
        stream->retry_count ? &stream->retries[stream->retry_count - 1] : NULL;
    if (last && last->first == first) {
        last->tries++;
        return true;
    }
    if (stream->retry_count == stream->retry_cap) {
        size_t cap = stream->retry_cap ? stream->retry_cap * 2 : 16;
        struct verify_retry *bigger = realloc(stream->retries, cap * sizeof *bigger);
        if (!bigger)
            return false;
        stream->retries = bigger;
        stream->retry_cap = cap;
    }
    stream->retries[stream->retry_count++] =
        (struct verify_retry){.first = first, .count = count, .tries = 2};
    return true;
}

bool verify_is_seen(const struct verify_stream *stream, uint64_t number)
{
    return number < stream->seen_cap && (stream->seen[number / 64] >> (number % 64) & 1);
}

void verify_note_acked(struct verify *verify, struct verify_stream *stream, uint64_t count,
                       int64_t now_ns)
{
    uint64_t wanted = 0, unseen = 0;
    for (uint64_t n = stream->acked; n < stream->acked + count; n++) {
        if (!verify_wanted(verify, stream->id, n))
            continue;
        wanted++;
        unseen += !verify_is_seen(stream, n);
    }
    stream->acked += count;
    verify->settled += count;
    verify->acked += wanted;
    if (verify->waiting == 0)
        verify->wait_gap.last_ns = now_ns; /* only now there is something to wait for */
    verify->waiting += unseen;
    if (verify->sending)
        gap_event(&verify->send_gap, now_ns);
}

/* ---- reading ---- */

static struct verify_offsets *offsets_of(struct verify *verify, const char *broker, int32_t queue)
{
    for (size_t i = 0; i < verify->queue_count; i++)
        if (verify->queues[i].queue.queue_id == queue &&
            !strcmp(verify->queues[i].queue.broker_name, broker))
            return &verify->queues[i];
    return NULL;
}

/* Whether the message is new at this offset. Another one than before at a known offset is an
 * alteration, whatever the new one is. */
static bool note_offset(struct verify *verify, const char *broker, int32_t queue_id, int64_t offset,
                        uint64_t id)
{
    struct verify_offsets *queue = offsets_of(verify, broker, queue_id);
    if (!queue || offset < 0 || (uint64_t)offset >= numbers_max ||
        !grow(&queue->ids, &queue->cap, (uint64_t)offset, 1)) {
        verify->altered++;
        return false;
    }
    uint64_t before = queue->ids[offset];
    queue->ids[offset] = id;
    queue->delivered = offset + 1; /* one listener: in order, or from an earlier offset again */
    if (before == id)
        verify->redelivered++;
    else if (before != 0)
        verify->altered++;
    return before != id;
}

/* The frame of this number, when it was sent more than once; else NULL. */
static struct verify_retry *retry_of(const struct verify_stream *stream, uint64_t number)
{
    size_t low = 0, high = stream->retry_count;
    while (low < high) { /* the first that begins behind the number */
        size_t middle = low + (high - low) / 2;
        if (stream->retries[middle].first <= number)
            low = middle + 1;
        else
            high = middle;
    }
    struct verify_retry *retry = low > 0 ? &stream->retries[low - 1] : NULL;
    return retry && number - retry->first < retry->count ? retry : NULL;
}

uint32_t verify_tries(const struct verify_stream *stream, uint64_t number)
{
    const struct verify_retry *retry = retry_of(stream, number);
    return retry ? retry->tries : 1;
}

/* Once more at another offset: explained by the tries of its frame, or not. Of a transaction's
 * tries one at most was committed. */
static void note_copy(struct verify *verify, struct verify_stream *stream, uint64_t number)
{
    struct verify_retry *retry = retry_of(stream, number);
    verify->duplicated++;
    if (!retry || verify->options->check == CHECK_TRANSACTIONAL ||
        ++retry->copies > (uint64_t)(retry->tries - 1) * retry->count)
        verify->duplicated_unexplained++;
}

/* Whether numbers of a stream come in order. */
static bool is_ordered(const struct verify *verify)
{
    return verify->options->check != CHECK_DELAYED && verify->options->check != CHECK_TRANSACTIONAL;
}

bool verify_note_seen(struct verify *verify, struct verify_stream *stream, uint64_t number)
{
    if (!grow(&stream->seen, &stream->seen_cap, number, 64))
        return false;
    stream->seen[number / 64] |= UINT64_C(1) << (number % 64);
    verify->seen++;
    if (number < stream->acked)
        verify->waiting--;
    return true;
}

static void note_number(struct verify *verify, struct verify_stream *stream, uint64_t number)
{
    if (verify_is_seen(stream, number)) {
        note_copy(verify, stream, number);
        return;
    }
    if (!verify_note_seen(verify, stream, number)) {
        verify->altered++;
        return;
    }
    if (number >= stream->next_expected)
        stream->next_expected = number + 1;
    else if (is_ordered(verify))
        verify->reordered++;
}

/*
 * How late it is: from its due time, or from when its set answered again after a pause. While sends
 * go on and none was answered just before it was stored, or when the last one failed, the master is
 * away or was, and it is late only in all.
 */
static void note_due(struct verify *verify, const struct verify_stream *stream, int64_t due_ms,
                     int64_t store_ms)
{
    const struct verify_offsets *queue =
        offsets_of(verify, stream->queue.broker_name, stream->queue.queue_id);
    int64_t late_ms = store_ms - due_ms;
    if (late_ms < 0)
        verify->early++;
    if (late_ms > verify->late_in_all_ms)
        verify->late_in_all_ms = late_ms;
    if (!queue || queue->answered_ms == 0 ||
        (verify->sending && store_ms - queue->answered_ms > ABSENCE_MS))
        return;
    if (due_ms < queue->back_ms)
        late_ms = store_ms - queue->back_ms;
    if (late_ms > verify->late_ms)
        verify->late_ms = late_ms;
}

void verify_note_answer(struct verify *verify, const struct verify_stream *stream, bool answered,
                        int64_t wall_ms)
{
    struct verify_offsets *queue =
        offsets_of(verify, stream->queue.broker_name, stream->queue.queue_id);
    if (!queue)
        return;
    if (!answered) {
        queue->failed_ms = wall_ms;
        queue->answered_ms = 0;
        return;
    }
    if (wall_ms - queue->answered_ms > ABSENCE_MS)
        queue->back_ms = wall_ms;
    queue->answered_ms = wall_ms;
}

/* What the check asks for beyond the number: false when it may not be here at all. */
static bool note_mark(struct verify *verify, const struct verify_stream *stream, uint64_t number,
                      const struct verify_arrival *arrival)
{
    if (!is_ordered(verify)) { /* those that carry a mark */
        char *end;
        int64_t mark = arrival->mark ? strtoll(arrival->mark, &end, 10) : 0;
        if (mark <= 0 || *end)
            verify->altered++;
        else if (verify->options->check == CHECK_DELAYED)
            note_due(verify, stream, mark, arrival->store_ms);
        else if (mark != verify_tries(stream, number)) {
            verify->unwanted++;
            return false;
        }
    }
    bool wanted = verify_wanted(verify, stream->id, number);
    verify->unwanted += !wanted;
    return wanted;
}

void verify_note_message(struct verify *verify, const struct verify_arrival *arrival)
{
    const char *broker = arrival->broker;
    int32_t queue_id = arrival->queue_id;
    int64_t queue_offset = arrival->queue_offset;
    uint32_t id = 0;
    uint64_t number = 0;
    int kind = verify_parse(verify, arrival->body, arrival->size, &id, &number);
    if (kind == 0 && (id >= verify->stream_count || number >= numbers_max))
        kind = 2;
    if (kind != 0) {
        if (kind == 1)
            verify->foreign++;
        else
            verify->altered++;
        if (offsets_of(verify, broker, queue_id)) /* others' queues may be beyond ours */
            (void)note_offset(verify, broker, queue_id, queue_offset, foreign_id);
        return;
    }
    struct verify_stream *stream = &verify->streams[id];
    if (verify->options->check != CHECK_TRANSACTIONAL &&
        (stream->queue.queue_id != queue_id || strcmp(stream->queue.broker_name, broker) != 0))
        verify->altered++; /* in a queue it was not sent to */
    if (note_offset(verify, broker, queue_id, queue_offset, ((uint64_t)(id + 1) << 40) | number) &&
        note_mark(verify, stream, number, arrival))
        note_number(verify, stream, number);
}

/* ---- committed offsets ---- */

/*
 * A raised version means that offsets may have been given to other messages: what was delivered
 * under the former one is not to be committed any more.
 */
void verify_note_progress(struct verify *verify, struct verify_offsets *queue, int64_t offset,
                          uint64_t version_epoch, uint64_t version_counter)
{
    uint64_t before_epoch = queue->version_epoch;
    uint64_t before_counter = queue->version_counter;
    if (!queue->version_known || queue->version_epoch != version_epoch ||
        queue->version_counter != version_counter) {
        if (queue->version_known)
            queue->delivered = -1;
        queue->version_known = true;
        queue->version_epoch = version_epoch;
        queue->version_counter = version_counter;
    }
    if (offset >= queue->promised)
        return;
    verify->offset_regressions++;
    fprintf(stderr,
            "mqbench verify: %" PRId64 " ms: progress of %s queue %" PRId32 " fell from %" PRId64
            " to %" PRId64 ", version %" PRIu64 ".%" PRIu64 " (before %" PRIu64 ".%" PRIu64 ")\n",
            clock_wall_ms(clock_system()), queue->queue.broker_name, queue->queue.queue_id,
            queue->promised, offset, version_epoch, version_counter, before_epoch, before_counter);
    queue->promised = offset; /* one fall is one regression */
}

void verify_note_promise(struct verify_offsets *queue, int64_t offset)
{
    if (offset > queue->promised)
        queue->promised = offset;
}
