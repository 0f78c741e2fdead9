/* Times on the command line. Threads: one. Failure modes: said on stderr. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqadmin/command.h"

/* yyyy-MM-dd#HH:mm:ss:SSS in local time; false: it is not of this form, or no such time. */
static bool parse_date(const char *text, int64_t *wall_ms)
{
    struct tm parts;
    int ms;
    char *end;
    memset(&parts, 0, sizeof parts);
    const char *rest = strptime(text, "%Y-%m-%d#%H:%M:%S", &parts);
    if (!rest || rest[0] != ':' || rest[1] < '0' || rest[1] > '9')
        return false;
    ms = (int)strtol(rest + 1, &end, 10);
    if (*end || ms > 999)
        return false;
    parts.tm_isdst = -1;
    time_t seconds = mktime(&parts);
    *wall_ms = (int64_t)seconds * 1000 + ms;
    return seconds != (time_t)-1;
}

bool option_time(const struct invocation *invocation, const char *name, int64_t fallback,
                 int64_t *wall_ms)
{
    const char *text = option_value(invocation, name);
    char *end;
    *wall_ms = fallback;
    if (!text)
        return true;
    if (!strcmp(text, "now")) {
        *wall_ms = -1;
        return true;
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!errno && end != text && !*end && value >= 0) {
        *wall_ms = value;
        return true;
    }
    if (parse_date(text, wall_ms))
        return true;
    command_usage(invocation,
                  "--%s: '%s' is not now, milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS", name,
                  text);
    return false;
}
