/*
 * What the system grants a daemon: how many files it may have open, and which limit it was that
 * ended its start.
 *
 *   files that may be open │ connections: a half │ cache: a quarter │ the rest: log, index, …  │
 *
 * A store without a descriptor at the wrong moment latches read-only, so clients must not be able
 * to take the last one: what they and the cache may have at most is cut to their shares. What a
 * daemon has open when nobody talks to it is well below the rest of the least number that it
 * accepts.
 *
 * Threads: the first one only. Failure modes: too few files are refused with a line on stderr.
 */
#include "base/program.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/rlimit.h"
#include "base/sched.h"

enum { CONNECTIONS_WANTED = 1000 };

static uint64_t raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return UINT64_MAX; /* not known: whoever needs a file will say so */
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            limit = raised;
    }
    return limit.rlim_cur;
}

/* Whether it had to be cut. */
static bool cut_to(int64_t *most, uint64_t share)
{
    if (*most < 0 || (uint64_t)*most <= share)
        return false;
    *most = (int64_t)share;
    return true;
}

enum program_exit program_share_files(const struct program_info *info, struct log *log,
                                      const struct program_files *files)
{
    uint64_t limit = raise_file_limit();
    if (limit < files->least) {
        fprintf(stderr,
                "%s: only %" PRIu64 " files may be open at once, at least %" PRIu64
                " are needed: raise the hard limit (ulimit -n, LimitNOFILE= of the unit)\n",
                info->name, limit, files->least);
        return PROGRAM_FAILED;
    }
    char bounds[96] = "";
    bool fewer_clients = cut_to(files->connections, limit / 2);
    bool fewer_files = files->cache && cut_to(files->cache, limit / 4);
    int len = snprintf(bounds, sizeof bounds, "limit=%" PRIu64 " maxConnections=%" PRId64, limit,
                       *files->connections);
    if (files->cache)
        snprintf(bounds + len, sizeof bounds - (size_t)len, " openFilesMax=%" PRId64,
                 *files->cache);
    if (fewer_files || (fewer_clients && *files->connections < CONNECTIONS_WANTED))
        log_warn(log, "file_limit",
                 "%s next=\"raise the hard limit of open files: ulimit -n, LimitNOFILE= of the "
                 "unit\"",
                 bounds);
    else if (fewer_clients)
        log_info(log, "file_limit", "%s", bounds);
    return PROGRAM_GO_ON;
}

void program_print_cause(enum tern_code code)
{
    char addresses[RLIMIT_TEXT_BYTES], threads[RLIMIT_TEXT_BYTES];
    if ((code == TERN_LIMIT || code == TERN_NO_MEMORY) && *task_start_cause())
        fprintf(stderr, " (%s)", task_start_cause());
    else if (code == TERN_NO_MEMORY) /* the transport says so of threads, too */
        fprintf(stderr,
                " (limit of addresses in KiB: %s (ulimit -v, LimitAS=); of threads: %s (ulimit "
                "-u, LimitNPROC=, TasksMax=))",
                rlimit_text(RLIMIT_AS, 1024, addresses), rlimit_text(RLIMIT_NPROC, 1, threads));
}
