/*
 * A message's properties as one text: name \x01 value \x02 name \x01 value, with or without a
 * trailing \x02 (RocketMQ before 4.9.2 wrote one). Reading follows
 * MessageDecoder#string2messageProperties.
 */
#ifndef BASE_PROPS_H
#define BASE_PROPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define PROP_KEYS "KEYS"
#define PROP_TAGS "TAGS"
#define PROP_WAIT "WAIT"
#define PROP_DELAY "DELAY"
#define PROP_UNIQ_KEY "UNIQ_KEY"
#define PROP_CLUSTER "CLUSTER"
#define PROP_TRAN_MSG "TRAN_MSG"
#define PROP_RETRY_TOPIC "RETRY_TOPIC"
#define PROP_RETRY_COHORT "RETRY_COHORT" /* ours: whose retry it is, in an isolated group */
#define PROP_REAL_TOPIC "REAL_TOPIC"
#define PROP_REAL_QID "REAL_QID"
#define PROP_ORIGIN_MESSAGE_ID "ORIGIN_MESSAGE_ID"
#define PROP_PGROUP "PGROUP"
#define PROP_CHECK_TIMES "TRANSACTION_CHECK_TIMES"
#define PROP_CHECK_IMMUNITY "CHECK_IMMUNITY_TIME_IN_SECONDS"
#define PROP_TIMER_DELIVER_MS "TIMER_DELIVER_MS" /* wall clock */
#define PROP_TIMER_DELAY_MS "TIMER_DELAY_MS"
#define PROP_TIMER_DELAY_SEC "TIMER_DELAY_SEC"
#define PROP_TIMER_OUT_MS "TIMER_OUT_MS" /* of a waiting message: when it is due, wall clock */
#define PROP_SEQUEL_OF "SEQUEL_OF"       /* ours: which delayed message a delivered one was */

struct slice {
    const uint8_t *ptr;
    size_t len;
};

/* Walks the pairs: *cursor starts at 0; false at the end. Pairs that RocketMQ drops are skipped. */
bool props_next(const uint8_t *props, size_t len, size_t *cursor, struct slice *name,
                struct slice *value);

/* Value of a name, the last one when it occurs several times, as in RocketMQ's map; false when
 * absent. */
bool props_get(const uint8_t *props, size_t len, const char *name, struct slice *value);

/*
 * Appends a pair (with the separator that is needed) to text of *len bytes in dst; TERN_TOO_LARGE
 * when it would exceed cap, TERN_INVALID when name or value is empty or holds \x01 or \x02; dst is
 * then unchanged.
 */
MUST_CHECK enum tern_code props_append(uint8_t *dst, size_t *len, size_t cap, const void *name,
                                       size_t name_len, const void *value, size_t value_len);

/* Writes src without the pairs of that name to dst (cap >= len, may be src); returns the new
 * length. */
size_t props_remove(uint8_t *dst, const uint8_t *src, size_t len, const char *name);

/* Names that an application may not set itself (RocketMQ's MessageConst.STRING_HASH_SET). */
bool props_name_reserved(const void *name, size_t len);

#endif
