/*
 * The log: makes a line from an event and its pairs, limits repeats, hands it to the sink.
 *
 *   2024-05-06T07:08:09.123Z WARN flush_slow segment=00000000001073741824 took_ms=812
 *
 * Invariants: a line holds no control character, whatever the values hold: a value that is empty or
 * has a space, a quote, '=' or such is quoted, and what is inside is escaped. So a hostile name
 * cannot forge a line or a pair. A line has at most LINE_BYTES; a longer one is cut.
 *
 * How values are found: the blanks of the format, which separate the pairs, are replaced by a
 * separator before formatting; the text is then split there. When a value brings the separator
 * itself, the text does not split into as many pairs as the format has, and is quoted as one.
 *
 * Threads: any; the sink runs under the log's lock, lines do not mix. Failure modes: none; a clock
 * that jumps only restarts the limit.
 */
#include "base/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/names.h"

enum { LINE_BYTES = 2048, FORMAT_BYTES = 512, SEPARATOR = 0x1F };

struct log {
    struct clock *clock; /* borrowed */
    log_sink_fn sink;
    void *arg;
    _Atomic int least;
    int64_t id; /* keeps the limits of two logs in one process apart */
    struct lock lock;
};

struct line {
    char text[LINE_BYTES];
    size_t len;
};

static void stderr_sink(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

enum tern_code log_create(struct clock *clock, enum log_level least, log_sink_fn sink, void *arg,
                          struct log **out)
{
    static _Atomic int64_t next_id = 1;
    *out = NULL;
    struct log *log = malloc(sizeof *log);
    if (!log)
        return TERN_NO_MEMORY;
    log->clock = clock;
    log->sink = sink ? sink : stderr_sink;
    log->arg = arg;
    atomic_init(&log->least, (int)least);
    log->id = atomic_fetch_add(&next_id, 1);
    lock_init(&log->lock, LOCK_LOG);
    *out = log;
    return TERN_OK;
}

void log_destroy(struct log *log)
{
    if (!log)
        return;
    lock_fini(&log->lock);
    free(log);
}

void log_set_level(struct log *log, enum log_level least)
{
    if (log)
        atomic_store_explicit(&log->least, (int)least, memory_order_relaxed);
}

/* Whether this line may be written; *suppressed gets the number of lines left out before it. */
static bool site_admit(const struct log *log, struct log_site *site, uint32_t *suppressed)
{
    int64_t second = (log->id << 36) + clock_mono_ns(log->clock) / 1000000000;
    int64_t seen = atomic_load_explicit(&site->second, memory_order_relaxed);
    *suppressed = 0;
    if (seen != second && atomic_compare_exchange_strong(&site->second, &seen, second)) {
        uint32_t count = atomic_exchange(&site->count, 0);
        if (count > LOG_BURST && seen >> 36 == log->id)
            *suppressed = count - LOG_BURST;
    }
    return atomic_fetch_add(&site->count, 1) < LOG_BURST;
}

static void put_bytes(struct line *line, const char *text, size_t len)
{
    size_t room = sizeof line->text - 1 - line->len;
    if (len > room)
        len = room;
    memcpy(line->text + line->len, text, len);
    line->len += len;
}

static bool value_needs_quotes(const char *value, size_t len)
{
    if (len == 0 || !utf8_valid(value, len))
        return true;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)value[i];
        if (c <= ' ' || c == 0x7F || c == '"' || c == '\\' || c == '=')
            return true;
    }
    return false;
}

static void put_value(struct line *line, const char *value, size_t len)
{
    if (!value_needs_quotes(value, len)) {
        put_bytes(line, value, len);
        return;
    }
    bool utf8 = utf8_valid(value, len);
    put_bytes(line, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)value[i];
        char escape[8];
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if (c < ' ' || c == 0x7F || (c >= 0x80 && !utf8))
            snprintf(escape, sizeof escape, "\\x%02X", c);
        else
            snprintf(escape, sizeof escape, "%c", c);
        put_bytes(line, escape, strlen(escape));
    }
    put_bytes(line, "\"", 1);
}

static void put_pair(struct line *line, const char *pair, size_t len)
{
    const char *equals = memchr(pair, '=', len);
    put_bytes(line, " ", 1);
    if (!equals) {
        put_value(line, pair, len);
        return;
    }
    const char *value = equals + 1;
    size_t value_len = len - (size_t)(value - pair);
    put_bytes(line, pair, (size_t)(value - pair));
    /* A format may quote by itself; the quotes are made anew. */
    if (value_len >= 2 && value[0] == '"' && value[value_len - 1] == '"') {
        value++;
        value_len -= 2;
    }
    put_value(line, value, value_len);
}

/* Copies fmt with SEPARATOR for the blanks between pairs; returns how many, or -1 when it is too
 * long. */
static int separate_format(char out[FORMAT_BYTES], const char *fmt)
{
    size_t n = 0;
    int separators = 0;
    bool quoted = false;
    for (size_t i = 0; fmt[i]; i++) {
        if (n + 1 >= FORMAT_BYTES)
            return -1;
        out[n] = fmt[i];
        if (fmt[i] == '"') {
            quoted = !quoted;
        } else if (fmt[i] == ' ' && !quoted) {
            out[n] = SEPARATOR;
            separators++;
        } else if (fmt[i] == '%' && fmt[i + 1] == ' ') { /* the blank is a flag of the conversion */
            if (n + 2 >= FORMAT_BYTES)
                return -1;
            out[++n] = fmt[++i];
        }
        n++;
    }
    out[n] = 0;
    return separators;
}

static void put_pairs(struct line *line, const char *fmt, va_list args)
{
    char separated[FORMAT_BYTES];
    char text[LINE_BYTES];
    int separators = separate_format(separated, fmt);
    int made = vsnprintf(text, sizeof text, separators < 0 ? fmt : separated, args);
    size_t len = made < 0 ? 0 : (size_t)made < sizeof text ? (size_t)made : sizeof text - 1;
    int found = 0;
    for (size_t i = 0; i < len; i++)
        found += text[i] == SEPARATOR;
    bool cut = made < 0 || (size_t)made >= sizeof text;
    if (len == 0)
        return;
    if (separators < 0 || found > separators || (found < separators && !cut)) {
        put_bytes(line, " text=", 6);
        put_value(line, text, len);
        return;
    }
    size_t start = 0;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && text[i] != SEPARATOR)
            continue;
        if (i > start)
            put_pair(line, text + start, i - start);
        start = i + 1;
    }
}

static void put_head(struct line *line, const struct log *log, enum log_level level,
                     const char *event)
{
    static const char *const level_names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    int64_t wall_ms = clock_wall_ms(log->clock);
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    char head[128];
    gmtime_r(&seconds, &tm);
    size_t used = strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", &tm);
    put_bytes(line, head, used);
    snprintf(head, sizeof head, ".%03dZ %s %s", (int)(wall_ms % 1000), level_names[level & 3],
             event);
    put_bytes(line, head, strlen(head));
}

void log_write(struct log *log, struct log_site *site, enum log_level level, const char *event,
               const char *fmt, ...)
{
    if (!log || (int)level < atomic_load_explicit(&log->least, memory_order_relaxed))
        return;
    uint32_t suppressed;
    if (!site_admit(log, site, &suppressed))
        return;
    struct line line = {.len = 0};
    put_head(&line, log, level, event);
    va_list args;
    va_start(args, fmt);
    put_pairs(&line, fmt, args);
    va_end(args);
    if (suppressed > 0) {
        char note[40];
        int n = snprintf(note, sizeof note, " suppressed=%u", suppressed);
        size_t most = sizeof line.text - 1 - (size_t)n;
        if (line.len > most)
            line.len = most;
        put_bytes(&line, note, (size_t)n);
    }
    line.text[line.len] = 0;
    lock_acquire(&log->lock);
    log->sink(log->arg, level, line.text);
    lock_release(&log->lock);
}
