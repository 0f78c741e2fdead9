/*
 * The ring of flushes is sorted by position, so the flush that covered a send is found by halving.
 *
 * Threads: the flusher adds, whoever answers a send looks. Failure modes: none; a flush that was
 * forgotten leaves the whole wait to the replicas' stage.
 */
#include "broker/stages.h"

void stages_init(struct stages *stages)
{
    lock_init(&stages->lock, LOCK_METRICS);
}

void stages_fini(struct stages *stages)
{
    lock_fini(&stages->lock);
}

static uint32_t slot(const struct stages *stages, uint32_t i)
{
    return (stages->first + i) % STAGES_FLUSHES;
}

void stages_flushed(struct stages *stages, int64_t flushed, int64_t now_ns)
{
    lock_acquire(&stages->lock);
    if (stages->count && stages->flushes[slot(stages, stages->count - 1)].flushed > flushed)
        stages->count = 0;
    if (stages->count == STAGES_FLUSHES) {
        stages->first = slot(stages, 1);
        stages->count--;
    }
    uint32_t at = slot(stages, stages->count++);
    stages->flushes[at].flushed = flushed;
    stages->flushes[at].at_ns = now_ns;
    lock_release(&stages->lock);
}

/*
 * When the disk had everything before `end`; as early as appended_ns when it is not known: the
 * flush is not remembered, or there was none.
 */
static int64_t flushed_ns(struct stages *stages, int64_t end, int64_t appended_ns)
{
    int64_t at_ns = appended_ns;
    lock_acquire(&stages->lock);
    uint32_t low = 0;
    uint32_t high = stages->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (stages->flushes[slot(stages, middle)].flushed < end)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < stages->count)
        at_ns = stages->flushes[slot(stages, low)].at_ns;
    lock_release(&stages->lock);
    return at_ns > appended_ns ? at_ns : appended_ns;
}

void stages_waited(struct stages *stages, const struct stages_wait *wait)
{
    int64_t safe_ns = wait->appended_ns; /* the disk has it */
    if (wait->flush && !wait->replicas)
        safe_ns = wait->answered_ns;
    else if (wait->flush)
        safe_ns = flushed_ns(stages, wait->end_phys_off, wait->appended_ns);
    if (safe_ns > wait->answered_ns)
        safe_ns = wait->answered_ns;
    if (wait->flush)
        histogram_add(&stages->flush_wait_ns, safe_ns - wait->appended_ns);
    if (wait->replicas)
        histogram_add(&stages->replica_wait_ns, wait->answered_ns - safe_ns);
}

void stages_pulled(struct stages *stages, uint32_t scanned, uint32_t returned, bool from_disk)
{
    if (!scanned)
        return;
    counter_add(&stages->scanned, scanned);
    counter_add(&stages->returned, returned);
    counter_add(from_disk ? &stages->from_disk : &stages->from_memory, 1);
}
