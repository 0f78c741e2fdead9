/*
 * What the checker makes of deliveries to listeners that fail. A number's life, by the tries that
 * were counted before a delivery:
 *
 *   came[0] ─fails─► failed[0] ─► came[1] ─fails─► failed[1] ─► … ─► failed[VERIFY_RETRIES] ─► dead
 *      └─ consumed                   └─ consumed                                   (the last
 * came[])
 *
 * Each failure leads to one delivery with one try more, in this process or through the broker; one
 * without a failure before it is a fork. Forks are explained by messages that were sent back
 * without an answer, of which a copy may be stored all the same: so many in all may be, no more.
 * With that, a count that falls, a message that is consumed twice, or consumed and dead, all are
 * forks: nothing else makes them. The same record with no greater count is no new delivery but a
 * redelivery: its queue began anew, as it does when the master comes back, so sends to its set must
 * have failed about then; its failures count, too.
 *
 * Invariants: `waiting` as in verify_note.c, where arriving is being consumed or dead. Threads:
 * under verify.lock. Failure modes: without memory a message counts as altered.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqbench/verify.h"

enum { DEAD = VERIFY_RETRIES + 1 }; /* the count of a dead letter */

/* A set whose sends succeed again may have queues that have yet to begin anew, behind messages that
 * wait to be sent back. */
enum { TROUBLE_MS = 10000 };

/* As in verify_note.c. */
static const uint64_t foreign_id = UINT64_MAX;
static const uint64_t numbers_max = UINT64_C(1) << 40;

/* So that `index` is inside; what is new is zeroed. */
static bool grow(void **array, size_t *cap, uint64_t index, size_t item_bytes)
{
    if (index < *cap)
        return true;
    uint64_t wanted = *cap ? *cap : 1024;
    while (wanted <= index)
        wanted *= 2;
    char *bigger = realloc(*array, wanted * item_bytes);
    if (!bigger)
        return false;
    memset(bigger + *cap * item_bytes, 0, (wanted - *cap) * item_bytes);
    *array = bigger;
    *cap = wanted;
    return true;
}

static struct verify_life *life_of(struct verify_stream *stream, uint64_t number)
{
    void *lives = stream->lives;
    bool there = grow(&lives, &stream->lives_cap, number, sizeof *stream->lives);
    stream->lives = lives;
    return there ? &stream->lives[number] : NULL;
}

/* ---- records ---- */

static struct verify_spots *spots_of(struct verify *verify, enum verify_place place,
                                     const struct verify_arrival *arrival)
{
    for (size_t i = 0; i < verify->spots_count; i++) {
        struct verify_spots *spots = &verify->spots[i];
        if (spots->place == place && spots->queue.queue_id == arrival->queue_id &&
            !strcmp(spots->queue.broker_name, arrival->broker))
            return spots;
    }
    struct verify_spots *more =
        realloc(verify->spots, (verify->spots_count + 1) * sizeof *verify->spots);
    if (!more)
        return NULL;
    verify->spots = more;
    struct verify_spots *spots = &more[verify->spots_count++];
    *spots = (struct verify_spots){.place = place, .queue.queue_id = arrival->queue_id};
    snprintf(spots->queue.broker_name, sizeof spots->queue.broker_name, "%s", arrival->broker);
    return spots;
}

/* Whether a send to the set failed since then, or just before; without sends nobody can tell. */
static bool was_in_trouble(const struct verify *verify, const char *broker, int64_t since_ms)
{
    if (!verify->sending)
        return true;
    for (size_t i = 0; i < verify->queue_count; i++)
        if (!strcmp(verify->queues[i].queue.broker_name, broker) &&
            verify->queues[i].failed_ms > 0 && verify->queues[i].failed_ms + TROUBLE_MS >= since_ms)
            return true;
    return false;
}

static void note_redelivered(struct verify *verify, const struct verify_spots *spots,
                             const struct verify_arrival *arrival, int32_t times, int32_t before)
{
    static const char *const places[] = {
        [PLACE_TOPIC] = "topic", [PLACE_RETRY] = "retry topic", [PLACE_DEAD] = "dead letters"};
    verify->redelivered_unexplained++;
    fprintf(stderr,
            "mqbench verify: %" PRId64 " ms: %s of %s queue %" PRId32 " offset %" PRId64
            " came again though its set was well, try %" PRId32 " (before %" PRId32 ")\n",
            arrival->delivered_ms, places[spots->place], spots->queue.broker_name,
            spots->queue.queue_id, arrival->queue_offset, times, before);
}

enum spot_news { SPOT_ALTERED, SPOT_REDELIVERED, SPOT_DELIVERED };

static enum spot_news note_spot(struct verify *verify, enum verify_place place, int32_t times,
                                const struct verify_arrival *arrival, uint64_t id)
{
    struct verify_spots *spots = spots_of(verify, place, arrival);
    void *array = spots ? spots->spots : NULL;
    bool there = spots && arrival->queue_offset >= 0 &&
                 (uint64_t)arrival->queue_offset < numbers_max &&
                 grow(&array, &spots->cap, (uint64_t)arrival->queue_offset, sizeof *spots->spots);
    if (spots)
        spots->spots = array;
    if (!there) {
        verify->altered++;
        return SPOT_ALTERED;
    }
    struct verify_spot *spot = &spots->spots[arrival->queue_offset];
    const struct verify_spot before = *spot;
    *spot = (struct verify_spot){id, arrival->delivered_ms, times};
    if (before.id == 0 || (before.id == id && times > before.times))
        return SPOT_DELIVERED;
    if (before.id != id) {
        verify->altered++;
        return SPOT_ALTERED;
    }
    verify->redelivered++;
    if (!was_in_trouble(verify, arrival->broker, before.delivered_ms))
        note_redelivered(verify, spots, arrival, times, before.times);
    return SPOT_REDELIVERED;
}

/* ---- lives ---- */

/* One more delivery at this count: of a record of its own, of a failure, or a fork. */
static void note_coming(struct verify *verify, const struct verify_stream *stream, uint64_t number,
                        struct verify_life *life, int32_t times)
{
    life->came[times]++;
    uint32_t most = times == 0 ? verify_tries(stream, number) : life->failed[times - 1];
    bool copy = times == 0 ? life->came[0] > 1 : life->came[times] > most;
    verify->duplicated += copy;
    if (life->came[times] <= most)
        return;
    if (times == 0)
        verify->duplicated_unexplained++;
    else
        verify->forked++;
}

/* It came to one of its two ends. */
static void conclude(struct verify *verify, struct verify_stream *stream, uint64_t number,
                     const struct verify_life *life)
{
    verify->consumed_and_dead += life->consumed > 0 && life->came[DEAD] > 0;
    if (!verify_is_seen(stream, number) && !verify_note_seen(verify, stream, number))
        verify->altered++;
}

static void note_dead(struct verify *verify, struct verify_stream *stream, uint64_t number,
                      struct verify_life *life, int32_t times)
{
    verify->wrongly_dead += times != DEAD;
    if (life->came[DEAD] > 1)
        return;
    verify->dead_lettered++;
    conclude(verify, stream, number, life);
}

static bool note_try(struct verify *verify, struct verify_stream *stream, uint64_t number,
                     struct verify_life *life, int32_t times)
{
    verify->retried += times > 0;
    if (verify_fails(verify, stream->id, number, times)) {
        life->failed[times]++;
        return true;
    }
    if (++life->consumed == 1)
        conclude(verify, stream, number, life);
    return false;
}

/* Ours and whole: its stream. NULL: noted otherwise. */
static struct verify_stream *whose(struct verify *verify, enum verify_place place,
                                   const struct verify_arrival *arrival, uint64_t *number)
{
    uint32_t id = 0;
    int kind = verify_parse(verify, arrival->body, arrival->size, &id, number);
    if (kind == 0 && id < verify->stream_count && *number < numbers_max) {
        struct verify_stream *stream = &verify->streams[id];
        bool here = !strcmp(stream->queue.broker_name, arrival->broker) &&
                    (place != PLACE_TOPIC || stream->queue.queue_id == arrival->queue_id);
        verify->altered += !here; /* another set's, or another queue */
        return stream;
    }
    if (kind == 1)
        verify->foreign++;
    else
        verify->altered++;
    (void)note_spot(verify, place, 0, arrival, foreign_id);
    return NULL;
}

bool verify_note_delivery(struct verify *verify, enum verify_place place, int32_t times,
                          const struct verify_arrival *arrival)
{
    uint64_t number = 0;
    struct verify_stream *stream = whose(verify, place, arrival, &number);
    if (!stream)
        return false;
    struct verify_life *life = life_of(stream, number);
    if (!life || times < 0) {
        verify->altered++;
        return false;
    }
    uint64_t id = ((uint64_t)(stream->id + 1) << 40) | number;
    enum spot_news news = note_spot(verify, place, times, arrival, id);
    if (place != PLACE_DEAD && times > VERIFY_RETRIES) {
        verify->beyond_count++;
        return false;
    }
    if (news == SPOT_DELIVERED)
        note_coming(verify, stream, number, life, place == PLACE_DEAD ? DEAD : times);
    if (place != PLACE_DEAD)
        return note_try(verify, stream, number, life, times);
    if (news == SPOT_DELIVERED)
        note_dead(verify, stream, number, life, times);
    return false;
}

void verify_note_unanswered(struct verify *verify, uint64_t count)
{
    verify->unanswered += count;
    if (verify->forked > verify->unanswered)
        verify->duplicated_unexplained += verify->forked - verify->unanswered;
}

void verify_lives_fini(struct verify *verify)
{
    for (size_t i = 0; i < verify->stream_count && verify->streams; i++)
        free(verify->streams[i].lives);
    for (size_t i = 0; i < verify->spots_count; i++)
        free(verify->spots[i].spots);
    free(verify->spots);
}
