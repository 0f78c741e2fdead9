/*
 * Parsing delay levels and computing due times.
 *
 * Threads: any; no state. Failure modes: a table that does not parse is refused as a whole. A level
 * that the table does not have is due one second after it was stored, as in RocketMQ, so that a
 * message kept by another configuration still comes.
 */
#include "broker/store/delay_level.h"

#include <string.h>

enum { UNKNOWN_LEVEL_MS = 1000, WORD_DIGITS_MAX = 9 };

static int64_t unit_ms(char unit)
{
    switch (unit) {
    case 's':
        return 1000;
    case 'm':
        return 60 * 1000;
    case 'h':
        return 60 * 60 * 1000;
    case 'd':
        return 24 * 60 * 60 * 1000;
    default:
        return 0;
    }
}

/* One word, e.g. "10m"; 0 when it is none. */
static int64_t word_ms(const char *word, size_t len)
{
    int64_t value = 0;
    if (len < 2 || len > WORD_DIGITS_MAX + 1)
        return 0;
    for (size_t i = 0; i + 1 < len; i++) {
        if (word[i] < '0' || word[i] > '9')
            return 0;
        value = value * 10 + (word[i] - '0');
    }
    return value * unit_ms(word[len - 1]);
}

enum tern_code delay_levels_parse(const char *text, struct delay_levels *out,
                                  struct tern_error *err)
{
    struct delay_levels levels = {0};
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        int64_t delay_ms = word_ms(at, len);
        if (delay_ms <= 0)
            return error_set(err, TERN_CONFIG,
                             "messageDelayLevel: \"%.*s\" is not a number and s, m, h or d",
                             (int)(len < 32 ? len : 32), at);
        if (levels.count == DELAY_LEVELS_MAX)
            return error_set(err, TERN_CONFIG, "messageDelayLevel: more than %d levels",
                             DELAY_LEVELS_MAX);
        levels.delay_ms[levels.count++] = delay_ms;
        at += len;
    }
    if (levels.count == 0)
        return error_set(err, TERN_CONFIG, "messageDelayLevel: no level");
    *out = levels;
    return TERN_OK;
}

int32_t delay_level_of(const struct delay_levels *levels, const void *text, size_t len)
{
    const char *digits = text;
    int32_t level = 0;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return 0;
        if (level <= DELAY_LEVELS_MAX)
            level = level * 10 + (digits[i] - '0');
    }
    return level > (int32_t)levels->count ? (int32_t)levels->count : level;
}

int64_t delay_level_due_ms(const struct delay_levels *levels, int32_t level, int64_t store_ms)
{
    if (level < 1 || level > (int32_t)levels->count)
        return store_ms + UNKNOWN_LEVEL_MS;
    return store_ms + levels->delay_ms[level - 1];
}
