/*
 * The log: lines of `time level event key=value …`, event names stable, values quoted when they
 * need it. No message bodies, no secrets. Repeats of one event are limited: after LOG_BURST lines
 * of one call site in a second the rest of that second is only counted, and the count is printed
 * with the next line.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum { LOG_BURST = 20 };

struct clock;

/* Takes one finished line without newline. @thread any @locks holds:LOG */
typedef void (*log_sink_fn)(void *arg, enum log_level level, const char *line);

struct log;

/* clock is borrowed. sink NULL: stderr. *out is destroyed with log_destroy(). */
MUST_CHECK enum tern_code log_create(struct clock *clock, enum log_level least, log_sink_fn sink,
                                     void *arg, struct log **out);
void log_destroy(struct log *log);
void log_set_level(struct log *log, enum log_level least);

struct log_site {
    _Atomic int64_t second;
    _Atomic uint32_t count;
};

/*
 * log may be NULL. fmt gives the pairs, e.g. "topic=%s queue=%d". @thread any but hot paths
 */
#define log_debug(log, event, ...) LOG_AT_(log, LOG_DEBUG, event, __VA_ARGS__)
#define log_info(log, event, ...) LOG_AT_(log, LOG_INFO, event, __VA_ARGS__)
#define log_warn(log, event, ...) LOG_AT_(log, LOG_WARN, event, __VA_ARGS__)
#define log_error(log, event, ...) LOG_AT_(log, LOG_ERROR, event, __VA_ARGS__)

#define LOG_AT_(log, level, event, ...)                                                            \
    do {                                                                                           \
        static struct log_site site_;                                                              \
        log_write(log, &site_, level, event, __VA_ARGS__);                                         \
    } while (0)

void log_write(struct log *log, struct log_site *site, enum log_level level, const char *event,
               const char *fmt, ...) PRINTF_LIKE(5, 6);

#endif
