/* The process's limits (getrlimit(2)) as texts for messages. */
#ifndef BASE_RLIMIT_H
#define BASE_RLIMIT_H

#include <stdio.h>
#include <sys/resource.h>

enum { RLIMIT_TEXT_BYTES = 24 };

/* What holds now, in units of `unit`: "100", or "unlimited". Returns out. */
static inline const char *rlimit_text(unsigned resource, rlim_t unit, char out[RLIMIT_TEXT_BYTES])
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        snprintf(out, RLIMIT_TEXT_BYTES, "unlimited");
    else
        snprintf(out, RLIMIT_TEXT_BYTES, "%llu", (unsigned long long)(limit.rlim_cur / unit));
    return out;
}

#endif
