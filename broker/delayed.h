/*
 * Delayed messages: what a message asks for, where it waits, and how it comes out again
 * (RocketMQ: ScheduleMessageService; docs/delay.md).
 *
 *   DELAY=n            SCHEDULE_TOPIC_XXXX, queue n − 1, in the order of arrival
 *   TIMER_DELIVER_MS   rmq_sys_wheel_timer, queue 0, by due time
 *                           │ due
 *                           ▼
 *   REAL_TOPIC, REAL_QID: put there, with SEQUEL_OF naming where it waited
 *
 * What was delivered is told by the log itself: the delivered record names the waiting one, so that
 * every copy of the log knows what is still to come, and nothing is delivered twice after a restart
 * or a failover.
 */
#ifndef BROKER_DELAYED_H
#define BROKER_DELAYED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/names.h"

struct broker;

/* A message as it is about to be stored. */
struct delayed_message {
    char topic[TOPIC_NAME_MAX + 1];
    size_t topic_len;
    int32_t queue_id;
    uint8_t *props; /* RECORD_PROPS_MAX bytes of room */
    size_t props_len;
};

/*
 * If its properties ask for a delay (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC),
 * makes it the message that waits: topic, queue, REAL_TOPIC and REAL_QID. A due time in the past,
 * and DELAY of 0 or less: no delay, and the property goes. Otherwise it stays as it is.
 * TERN_MESSAGE_ILLEGAL: beyond the longest delay, both kinds at once, no number, or no room for the
 * properties; with a text. @thread any
 */
MUST_CHECK enum tern_code delayed_wrap(struct broker *broker, struct delayed_message *message,
                                       struct tern_error *err);

/*
 * A message must not wait longer than this in one place, or retention may take it (DL-04): then it
 * is put again. Half of fileReservedTime as it is now, at least a second.
 */
int64_t delayed_roll_after_ms(const struct broker *broker);

#endif
