/*
 * Reading what records say.
 *
 * Threads: any; no state. Failure modes: a record whose properties make no sense says nothing; the
 * broker writes them itself, so that is damage or another program's work, and nothing is taken from
 * it.
 */
#include "broker/schedule/delay_event.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "broker/store/delay_level.h"

enum { DIGITS_MAX = 18 };

/* Digits up to `end` or the text's end; the number of characters read, 0: none or too many. */
static size_t read_number(const uint8_t *text, size_t len, int64_t *out)
{
    int64_t value = 0;
    size_t at = 0;
    for (; at < len && text[at] >= '0' && text[at] <= '9'; at++) {
        if (at == DIGITS_MAX)
            return 0;
        value = value * 10 + (text[at] - '0');
    }
    *out = value;
    return at;
}

void waiting_format(char out[WAITING_TEXT_BYTES], const struct waiting *waiting)
{
    if (waiting->timer)
        snprintf(out, WAITING_TEXT_BYTES, "T.%" PRId64 ".%" PRId64, waiting->key_ms,
                 waiting->queue_off);
    else
        snprintf(out, WAITING_TEXT_BYTES, "S.%" PRId32 ".%" PRId64, waiting->queue_id,
                 waiting->queue_off);
}

bool waiting_parse(const struct slice *text, struct waiting *out)
{
    int64_t first;
    if (text->len < 5 || (text->ptr[0] != 'S' && text->ptr[0] != 'T') || text->ptr[1] != '.')
        return false;
    size_t at = 2;
    size_t digits = read_number(text->ptr + at, text->len - at, &first);
    at += digits;
    if (digits == 0 || at >= text->len || text->ptr[at] != '.')
        return false;
    *out = (struct waiting){.timer = text->ptr[0] == 'T'};
    digits = read_number(text->ptr + at + 1, text->len - at - 1, &out->queue_off);
    if (digits == 0 || at + 1 + digits != text->len)
        return false;
    if (!out->timer && first >= DELAY_LEVELS_MAX)
        return false;
    if (out->timer)
        out->key_ms = first;
    else
        out->queue_id = (int32_t)first;
    return true;
}

bool delay_number_of(const struct record *record, const char *name, int64_t *out)
{
    struct slice value;
    return props_get(record->props, record->props_len, name, &value) && value.len > 0 &&
           read_number(value.ptr, value.len, out) == value.len;
}

bool delay_topic_is(const struct record *record, const char *topic)
{
    return record->topic_len == strlen(topic) && !memcmp(record->topic, topic, record->topic_len);
}

bool delay_times_of(const struct record *record, int64_t *due_ms, int64_t *key_ms)
{
    int64_t roll_ms;
    if (!delay_number_of(record, PROP_TIMER_OUT_MS, due_ms))
        return false;
    *key_ms = *due_ms;
    if (delay_number_of(record, PROP_TIMER_ROLL_MS, &roll_ms) && roll_ms < *due_ms)
        *key_ms = roll_ms;
    const int64_t far_ms = (int64_t)WAIT_DAYS_MAX * 86400000;
    return *key_ms<record->store_ms + far_ms && * key_ms> record->store_ms - far_ms;
}

bool delay_event_of(const struct record *record, struct delay_event *out)
{
    struct slice value;
    int64_t due_ms;
    *out = (struct delay_event){.phys_off = record->phys_off,
                                .end = record->phys_off + record->total_size};
    if (delay_topic_is(record, TIMER_TOPIC) && record->queue_id == 0 &&
        delay_times_of(record, &due_ms, &out->add_key_ms)) {
        out->adds = true;
        out->add_off = record->queue_off;
    }
    if (props_get(record->props, record->props_len, PROP_SEQUEL_OF, &value) &&
        waiting_parse(&value, &out->ended)) {
        out->ends = true;
        out->by_mark = delay_topic_is(record, DELAY_MARKS_TOPIC);
    }
    return out->adds || out->ends;
}
