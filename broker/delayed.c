/*
 * Making a message one that waits: which delay it asks for, whether that is allowed, and what is
 * stored instead.
 *
 *   properties in                                    properties stored
 *   DELAY=3                                          DELAY=3, REAL_TOPIC, REAL_QID
 *   TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC    TIMER_OUT_MS, REAL_TOPIC, REAL_QID
 *
 * A level above the last becomes the last, so that what is stored says which queue it is in.
 *
 * Threads: any; reads the configuration and the wall clock. Failure modes: a refused message is as
 * it was, but for its properties, which are then of no use.
 */
#include "broker/delayed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/props.h"
#include "base/record.h"
#include "broker/broker_internal.h"
#include "broker/schedule/delay_event.h"

enum {
    DIGITS_MAX = 18,
    ROLL_MIN_MS = 1000,
    SEQUEL_ROOM_BYTES = 96 /* for what is added when it is put again, or delivered */
};

int64_t delayed_roll_after_ms(const struct broker *broker)
{
    int64_t half_ms = atomic_load_explicit(&broker->live.retention_ms, memory_order_relaxed) / 2;
    return half_ms < ROLL_MIN_MS ? ROLL_MIN_MS : half_ms;
}

static bool parse_number(const struct slice *text, int64_t *out)
{
    int64_t value = 0;
    bool negative = text->len > 0 && text->ptr[0] == '-';
    size_t at = negative;
    if (text->len == at || text->len - at > DIGITS_MAX)
        return false;
    for (; at < text->len; at++) {
        if (text->ptr[at] < '0' || text->ptr[at] > '9')
            return false;
        value = value * 10 + (text->ptr[at] - '0');
    }
    *out = negative ? -value : value;
    return true;
}

/* The ways to say when, one row each. */
static const struct {
    const char *name;
    bool relative;
    int64_t unit_ms;
} kinds[] = {
    {PROP_TIMER_DELIVER_MS, false, 1},
    {PROP_TIMER_DELAY_MS, true, 1},
    {PROP_TIMER_DELAY_SEC, true, 1000},
};

static void drop(struct delayed_message *message, const char *name)
{
    message->props_len = props_remove(message->props, message->props, message->props_len, name);
}

static enum tern_code append(struct delayed_message *message, const char *name, const char *value,
                             struct tern_error *err)
{
    if (props_append(message->props, &message->props_len, RECORD_PROPS_MAX - SEQUEL_ROOM_BYTES,
                     name, strlen(name), value, strlen(value)) == TERN_OK)
        return TERN_OK;
    return error_set(err, TERN_MESSAGE_ILLEGAL,
                     "properties of %zu bytes have no room for %s, which a delayed message gets: "
                     "the limit is %d",
                     message->props_len, name, RECORD_PROPS_MAX - SEQUEL_ROOM_BYTES);
}

static enum tern_code append_number(struct delayed_message *message, const char *name,
                                    int64_t value, struct tern_error *err)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return append(message, name, text, err);
}

/* Where it waits instead of where it goes. */
static enum tern_code wrap(struct delayed_message *message, const char *waiting_topic,
                           int32_t waiting_queue, struct tern_error *err)
{
    drop(message, PROP_REAL_TOPIC);
    drop(message, PROP_REAL_QID);
    enum tern_code code = append(message, PROP_REAL_TOPIC, message->topic, err);
    if (code == TERN_OK)
        code = append_number(message, PROP_REAL_QID, message->queue_id, err);
    if (code != TERN_OK)
        return code;
    message->topic_len = strlen(waiting_topic);
    memcpy(message->topic, waiting_topic, message->topic_len + 1);
    message->queue_id = waiting_queue;
    return TERN_OK;
}

static enum tern_code wrap_level(struct broker *broker, struct delayed_message *message,
                                 int64_t wanted, struct tern_error *err)
{
    int64_t last = broker->config.delay_levels.count;
    int64_t level = wanted > last ? last : wanted;
    drop(message, PROP_DELAY);
    if (level <= 0)
        return TERN_OK;
    enum tern_code code = append_number(message, PROP_DELAY, level, err);
    return code ? code : wrap(message, SCHEDULE_TOPIC, (int32_t)level - 1, err);
}

/* The due time asked for; *found: there is one. Drops what asked. */
static enum tern_code take_due(struct delayed_message *message, int64_t now_ms, bool *found,
                               int64_t *due_ms, struct tern_error *err)
{
    const char *first = NULL;
    *found = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct slice value;
        int64_t number;
        if (!props_get(message->props, message->props_len, kinds[i].name, &value))
            continue;
        if (first)
            return error_set(err, TERN_MESSAGE_ILLEGAL,
                             "%s and %s: a message has one due time, leave one out", first,
                             kinds[i].name);
        first = kinds[i].name;
        if (!parse_number(&value, &number))
            return error_set(err, TERN_MESSAGE_ILLEGAL, "%s=%.*s is no whole number", kinds[i].name,
                             (int)(value.len < 32 ? value.len : 32), (const char *)value.ptr);
        if (number > INT64_MAX / 2 / kinds[i].unit_ms || number < -INT64_MAX / 2 / kinds[i].unit_ms)
            number =
                number < 0 ? -INT64_MAX / 2 / kinds[i].unit_ms : INT64_MAX / 2 / kinds[i].unit_ms;
        *due_ms = number * kinds[i].unit_ms;
        if (kinds[i].relative)
            *due_ms += now_ms;
        *found = true;
    }
    if (first)
        drop(message, first);
    return TERN_OK;
}

static enum tern_code wrap_due(struct broker *broker, struct delayed_message *message,
                               int64_t due_ms, int64_t now_ms, struct tern_error *err)
{
    int64_t most_ms = broker->config.timer_max_delay_ms;
    if (due_ms <= now_ms)
        return TERN_OK;
    if (due_ms - now_ms > most_ms)
        return error_set(err, TERN_MESSAGE_ILLEGAL,
                         "a due time %" PRId64 " ms ahead is beyond timerMaxDelay, %" PRId64 " ms",
                         due_ms - now_ms, most_ms);
    int64_t roll_ms = now_ms + delayed_roll_after_ms(broker);
    enum tern_code code = append_number(message, PROP_TIMER_OUT_MS, due_ms, err);
    if (code == TERN_OK && roll_ms < due_ms)
        code = append_number(message, PROP_TIMER_ROLL_MS, roll_ms, err);
    return code ? code : wrap(message, TIMER_TOPIC, 0, err);
}

enum tern_code delayed_wrap(struct broker *broker, struct delayed_message *message,
                            struct tern_error *err)
{
    int64_t now_ms = clock_wall_ms(broker->env.clock);
    int64_t level = 0;
    int64_t due_ms = 0;
    bool timed;
    struct slice value;
    bool levelled = props_get(message->props, message->props_len, PROP_DELAY, &value);
    if (levelled && !parse_number(&value, &level))
        return error_set(err, TERN_MESSAGE_ILLEGAL, "DELAY=%.*s is no whole number",
                         (int)(value.len < 32 ? value.len : 32), (const char *)value.ptr);
    drop(message, PROP_TIMER_OUT_MS); /* these are ours alone */
    drop(message, PROP_TIMER_ROLL_MS);
    drop(message, PROP_DELAY_TRIES);
    enum tern_code code = take_due(message, now_ms, &timed, &due_ms, err);
    if (code != TERN_OK)
        return code;
    if (levelled && level > 0 && timed)
        return error_set(err, TERN_MESSAGE_ILLEGAL,
                         "DELAY and a due time at once: a message has one delay, leave one out");
    if (timed) {
        drop(message, PROP_DELAY);
        return wrap_due(broker, message, due_ms, now_ms, err);
    }
    return levelled ? wrap_level(broker, message, level, err) : TERN_OK;
}
