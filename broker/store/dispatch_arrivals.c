/*
 * Arrivals: kept in arrays of fixed size, told in order.
 *
 * Threads: as said in the header. Failure modes: none; without an observer nothing is kept.
 */
#include "broker/store/dispatch_arrivals.h"

#include <string.h>

bool arrivals_room(const struct arrivals *arrivals, const struct dispatch_batch *batch)
{
    return !arrivals->observer->on_arrival ||
           (arrivals->count + batch->run_count <= ARRIVALS_MAX &&
            arrivals->code_count + batch->unit_count <= ARRIVAL_CODES_MAX);
}

void arrivals_move(struct arrivals *arrivals, struct dispatch_batch *batch)
{
    for (uint32_t i = 0; arrivals->observer->on_arrival && i < batch->run_count; i++) {
        struct dispatch_run *run = &batch->runs[i];
        struct kept_arrival *last = arrivals->count ? &arrivals->kept[arrivals->count - 1] : NULL;
        if (last && last->queue == run->queue && last->first_off + last->count == run->first_off) {
            last->count += run->count; /* one that goes on from the last */
        } else {
            arrivals->kept[arrivals->count++] =
                (struct kept_arrival){.queue = run->queue,
                                      .first_off = run->first_off,
                                      .count = run->count,
                                      .start = arrivals->code_count};
            run->queue = NULL; /* its reference went along */
        }
        memcpy(arrivals->codes + arrivals->code_count, batch->codes + run->start,
               run->count * sizeof *arrivals->codes);
        arrivals->code_count += run->count;
    }
}

static void tell(const struct store_observer *observer, const struct consume_queue *queue,
                 int64_t first_off, uint32_t count, const int64_t *tags_codes)
{
    const struct store_arrival arrival = {.topic = consume_queue_topic(queue),
                                          .queue_id = consume_queue_id(queue),
                                          .first_off = first_off,
                                          .count = count,
                                          .tags_codes = tags_codes};
    observer->on_arrival(observer->arg, &arrival);
}

void arrivals_deliver(struct arrivals *arrivals)
{
    for (uint32_t i = 0; i < arrivals->count; i++) {
        const struct kept_arrival *kept = &arrivals->kept[i];
        tell(arrivals->observer, kept->queue, kept->first_off, kept->count,
             arrivals->codes + kept->start);
    }
    arrivals_drop(arrivals);
}

void arrivals_drop(struct arrivals *arrivals)
{
    for (uint32_t i = 0; i < arrivals->count; i++)
        consume_queue_unref(arrivals->kept[i].queue);
    arrivals->count = arrivals->code_count = 0;
}

void arrivals_of_batch(const struct store_observer *observer, const struct dispatch_batch *batch)
{
    for (uint32_t i = 0; observer->on_arrival && i < batch->run_count; i++) {
        const struct dispatch_run *run = &batch->runs[i];
        tell(observer, run->queue, run->first_off, run->count, batch->codes + run->start);
    }
}
