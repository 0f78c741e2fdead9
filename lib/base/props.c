/*
 * Properties text: name \x01 value, pairs between \x02.
 *
 * Invariant: what is read here is what RocketMQ's MessageDecoder reads from the same bytes. A
 * segment counts as a pair when its first \x01 is neither its first nor its last byte; others are
 * skipped. Of several pairs with one name the last counts.
 *
 * Threads: any; no state, no allocation. Failure modes: none when reading; codes when appending.
 */
#include "base/props.h"

#include <string.h>

enum { NAME_VALUE_SEPARATOR = 1, PAIR_SEPARATOR = 2 };

/* The segment at `start` ends before the returned index. */
static size_t segment_end(const uint8_t *props, size_t len, size_t start)
{
    const uint8_t *end = memchr(props + start, PAIR_SEPARATOR, len - start);
    return end ? (size_t)(end - props) : len;
}

static bool split_pair(const uint8_t *segment, size_t len, struct slice *name, struct slice *value)
{
    const uint8_t *separator = len ? memchr(segment, NAME_VALUE_SEPARATOR, len) : NULL;
    if (!separator || separator == segment || separator == segment + len - 1)
        return false;
    name->ptr = segment;
    name->len = (size_t)(separator - segment);
    value->ptr = separator + 1;
    value->len = len - name->len - 1;
    return true;
}

static bool slice_equals(const struct slice *slice, const char *text, size_t len)
{
    return slice->len == len && memcmp(slice->ptr, text, len) == 0;
}

bool props_next(const uint8_t *props, size_t len, size_t *cursor, struct slice *name,
                struct slice *value)
{
    while (*cursor < len) {
        size_t start = *cursor;
        size_t end = segment_end(props, len, start);
        *cursor = end + 1;
        if (split_pair(props + start, end - start, name, value))
            return true;
    }
    return false;
}

bool props_get(const uint8_t *props, size_t len, const char *name, struct slice *value)
{
    size_t name_len = strlen(name);
    size_t cursor = 0;
    bool found = false;
    struct slice n;
    struct slice v;
    while (props_next(props, len, &cursor, &n, &v)) {
        if (slice_equals(&n, name, name_len)) {
            *value = v;
            found = true;
        }
    }
    return found;
}

static bool is_clean(const void *text, size_t len)
{
    return len > 0 && !memchr(text, NAME_VALUE_SEPARATOR, len) &&
           !memchr(text, PAIR_SEPARATOR, len);
}

enum tern_code props_append(uint8_t *dst, size_t *len, size_t cap, const void *name,
                            size_t name_len, const void *value, size_t value_len)
{
    if (!is_clean(name, name_len) || !is_clean(value, value_len))
        return TERN_INVALID;
    size_t at = *len;
    bool separate = at > 0 && dst[at - 1] != PAIR_SEPARATOR;
    size_t room = cap > at ? cap - at : 0;
    size_t extra = separate ? 2 : 1;
    if (name_len > room || value_len > room - name_len || extra > room - name_len - value_len)
        return TERN_TOO_LARGE;
    if (separate)
        dst[at++] = PAIR_SEPARATOR;
    memcpy(dst + at, name, name_len);
    at += name_len;
    dst[at++] = NAME_VALUE_SEPARATOR;
    memcpy(dst + at, value, value_len);
    *len = at + value_len;
    return TERN_OK;
}

size_t props_remove(uint8_t *dst, const uint8_t *src, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    size_t out = 0;
    for (size_t start = 0; start < len;) {
        size_t end = segment_end(src, len, start);
        size_t next = end < len ? end + 1 : len; /* the separator goes with its segment */
        struct slice n;
        struct slice v;
        bool drop =
            split_pair(src + start, end - start, &n, &v) && slice_equals(&n, name, name_len);
        if (!drop) {
            memmove(dst + out, src + start, next - start);
            out += next - start;
        }
        start = next;
    }
    /* The last pair went and had no separator behind it: the one before needs none now either. */
    bool had_trailing = len > 0 && src[len - 1] == PAIR_SEPARATOR;
    if (out > 0 && out < len && dst[out - 1] == PAIR_SEPARATOR && !had_trailing)
        out--;
    return out;
}

bool props_name_reserved(const void *name, size_t len)
{
    static const char *const reserved[] = {
        PROP_KEYS,
        PROP_TAGS,
        PROP_WAIT,
        PROP_DELAY,
        PROP_RETRY_TOPIC,
        PROP_RETRY_COHORT,
        PROP_REAL_TOPIC,
        PROP_REAL_QID,
        PROP_TRAN_MSG,
        PROP_PGROUP,
        PROP_SEQUEL_OF,
        PROP_TIMER_DELIVER_MS,
        PROP_TIMER_DELAY_MS,
        PROP_TIMER_DELAY_SEC,
        PROP_TIMER_OUT_MS,
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        PROP_ORIGIN_MESSAGE_ID,
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "MSG_REGION",
        "TRACE_ON",
        PROP_UNIQ_KEY,
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        PROP_CLUSTER,
        "MSG_TYPE",
        "INNER_MULTI_QUEUE_OFFSET",
    };
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (len == strlen(reserved[i]) && memcmp(name, reserved[i], len) == 0)
            return true;
    return false;
}
