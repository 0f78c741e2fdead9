/*
 * What a group's failed messages become: the topics that they wait and end in, when they end, and
 * the properties of their copies (docs/retry.md).
 *
 *   %RETRY%group   tried again after a delay; retry_queues queues
 *   %DLQ%group     dead letters, for people: one queue, readable like any topic
 *
 * Used by whoever makes such a copy: handlers/send_back.c from the stored record, handlers/
 * send_plain.c from a consumer's own bytes.
 */
#ifndef BROKER_RETRY_H
#define BROKER_RETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/names.h"
#include "broker/groups.h"

struct broker;

enum retry_kind { RETRY_AGAIN, RETRY_DEAD };

enum {
    RETRY_FIRST_LEVEL = 3,     /* of the first try, when nobody asks for another */
    RETRY_TIMES_MAX = 1000000, /* of a count on the wire */
    RETRY_GROUP_MAX = TOPIC_NAME_MAX - (int)(sizeof RETRY_TOPIC_PREFIX - 1)
};

/* The topic's name; TERN_INVALID, with a text: the group's name is too long to have one. */
MUST_CHECK enum tern_code retry_topic_name(enum retry_kind kind, const char *group,
                                           char out[TOPIC_NAME_MAX + 1], struct tern_error *err);

/*
 * Makes the topic in memory when it is missing; *made is set when something was made, which becomes
 * durable with the admin lane's next batch. TERN_INVALID, TERN_LIMIT. @thread any
 */
MUST_CHECK enum tern_code retry_topic_want(struct broker *broker, const struct group_config *group,
                                           enum retry_kind kind, bool *made,
                                           struct tern_error *err);

/* The group whose retry topic this is, inside `topic`; NULL: it is none. */
const char *retry_group_of(const char *topic);

/*
 * Again or dead: `times` tries were counted before, the consumer allows max_times (0: the group's)
 * and asks for a level (−1: dead). A group without retry queues has only dead letters.
 */
enum retry_kind retry_decide(const struct group_config *group, int32_t times, int32_t max_times,
                             int32_t level);

/* What a copy carries beside the message's own properties. */
struct retry_marks {
    const char *topic;     /* RETRY_TOPIC: what the listener sees; NULL: none */
    const char *origin_id; /* ORIGIN_MESSAGE_ID, unless the message has one; NULL: none */
    int32_t delay_level;   /* DELAY; 0: none */
    uint32_t cohort;       /* RETRY_COHORT: of an isolated group's member that failed; 0: none */
};

/*
 * The copy's properties, into RECORD_PROPS_MAX bytes of dst: those of src without what asked for a
 * delay, a transaction or a wait, told where a message waited, or is in *marks. Without room the
 * origin's id is left out first. TERN_MESSAGE_ILLEGAL with a text: no room. @thread any
 */
MUST_CHECK enum tern_code retry_props(uint8_t *dst, size_t *dst_len, const uint8_t *src,
                                      size_t src_len, const struct retry_marks *marks,
                                      struct tern_error *err);

#endif
