/*
 * What a record of the log says about delayed messages: one begins to wait with the timer, one that
 * waited is delivered, rolled, cancelled or given up. All that is known of them is made of these.
 */
#ifndef SCHEDULE_DELAY_EVENT_H
#define SCHEDULE_DELAY_EVENT_H

#include <stdbool.h>

#include "base/props.h"
#include "base/record.h"

/* Properties of our own on waiting records. */
#define PROP_TIMER_ROLL_MS "TIMER_ROLL_MS" /* when it is put again, before retention takes it */
#define PROP_DELAY_TRIES "DELAY_TRIES"     /* how often it could not be delivered */

/* Names a waiting message; the value of SEQUEL_OF: "S.queue.offset" or "T.key.offset". */
struct waiting {
    bool timer;        /* else of a level */
    int32_t queue_id;  /* of a level: level − 1 */
    int64_t key_ms;    /* of the timer: its time or, when that is earlier, that of its rolling */
    int64_t queue_off; /* in its queue of the waiting topic */
};

enum { WAITING_TEXT_BYTES = 48 };
void waiting_format(char out[WAITING_TEXT_BYTES], const struct waiting *waiting);
/* false: the text is of no such form, or a number is out of range. */
bool waiting_parse(const struct slice *text, struct waiting *out);

struct delay_event {
    int64_t phys_off, end; /* of the record */
    bool adds;             /* the record waits with the timer */
    int64_t add_key_ms, add_off;
    bool ends;    /* it is the sequel of a waiting one */
    bool by_mark; /* which was cancelled or given up, so nobody delivers it */
    struct waiting ended;
};

/* false: it says nothing, or nothing that can be. @thread any */
bool delay_event_of(const struct record *record, struct delay_event *out);

/* Times of a record that waits with the timer: when it is due, and its key. false: none, or ones
 * that cannot be (further than WAIT_DAYS_MAX from when it was stored). */
enum { WAIT_DAYS_MAX = 400 };
bool delay_times_of(const struct record *record, int64_t *due_ms, int64_t *key_ms);

/* A property as a whole number, at most 18 digits. */
bool delay_number_of(const struct record *record, const char *name, int64_t *out);
bool delay_topic_is(const struct record *record, const char *topic);

#endif
