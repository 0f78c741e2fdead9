/*
 * What others ask of an opening: how far it is, and whom it waits for. See opening.h.
 *
 * Threads: any. Nothing here changes anything.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "broker/ha/opening_internal.h"

bool opening_done(struct opening *opening)
{
    lock_acquire(&opening->lock);
    bool done = opening->stage == OPENING_OPEN;
    lock_release(&opening->lock);
    return done;
}

bool opening_alone(struct opening *opening)
{
    lock_acquire(&opening->lock);
    bool alone = !opening->failure[0] &&
                 (opening->stage == OPENING_IDLE || opening->stage == OPENING_BEGINNING ||
                  (opening->stage == OPENING_WAITING && opening_missing(opening) == 0 &&
                   !opening_untaken(opening)));
    lock_release(&opening->lock);
    return alone;
}

bool opening_merged(struct opening *opening)
{
    int64_t now_ns = clock_mono_ns(opening->env->clock);
    lock_acquire(&opening->lock);
    bool merged = opening->stage == OPENING_OPEN || opening->stage == OPENING_BEGINNING;
    if (opening->stage == OPENING_WAITING)
        merged = now_ns >= opening->deadline_ns && !opening_untaken(opening);
    lock_release(&opening->lock);
    return merged;
}

void opening_text(struct opening *opening, char *out, size_t size)
{
    lock_acquire(&opening->lock);
    const struct insync_member *taking = &opening->members[opening->taking].member;
    switch (opening->stage) {
    case OPENING_SEARCHING:
        snprintf(out, size, "its store is empty: waits for a nameserver to tell of its slaves");
        break;
    case OPENING_WAITING:
        if (opening_missing(opening) > 0) {
            snprintf(out, size, "%s%swaits for members ", opening->failure,
                     opening->failure[0] ? "; " : "");
            opening_name_missing(opening, out, size);
        } else {
            snprintf(out, size, "%s", opening->failure[0] ? opening->failure : "looks at its set");
        }
        break;
    case OPENING_TAKING:
        snprintf(out, size, "takes what member %" PRId64 " (%s) has", taking->id,
                 taking->ha_address);
        break;
    case OPENING_BEGINNING:
        snprintf(out, size, "begins an epoch%s%s", opening->failure[0] ? ": " : "",
                 opening->failure);
        break;
    case OPENING_OPEN:
        snprintf(out, size, "open");
        break;
    case OPENING_IDLE:
        snprintf(out, size, "%s", opening->failure[0] ? opening->failure : "starting");
        break;
    }
    lock_release(&opening->lock);
}
