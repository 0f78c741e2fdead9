/*
 * What the daemons' main() functions share: options, configuration, limits, signals and the end.
 *
 *   program_parse ► program_configure ► program_block_signals ► program_share_files ─┐
 *        0 ◄ stop, destroy ◄ program_wait_stop ◄ program_ready ◄ create, start ◄─────┘
 *
 * A main() calls these from its first thread only; the exit statuses are those of every program of
 * the project. Errors are one line on stderr that begins with the program's name; data goes to
 * stdout.
 */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/error.h"

struct log;

enum program_exit {
    PROGRAM_GO_ON = -1, /* no exit status: nothing ended yet */
    PROGRAM_DONE = 0,
    PROGRAM_FAILED = 1,      /* could not start or go on: port in use, damaged files, … */
    PROGRAM_WRONG_USAGE = 2, /* an option or the configuration is wrong */
    PROGRAM_UNREACHABLE = 3  /* nobody could be reached in time */
};

enum {
    PROGRAM_OVERRIDES_MAX = 256, /* -o options on one command line */
    PROGRAM_ADDRESS_BYTES = 272  /* "[host]:port" of the longest host name */
};

struct program_info {
    const char *name;    /* "mqnamesrv" */
    const char *summary; /* one sentence for --help */
    bool takes_namesrv;  /* -n is an option; it sets namesrvAddr */
};

/* What the command line said. Pointers borrow from argv. */
struct program_options {
    const char *config_path;                      /* -c, NULL: none */
    const char *namesrv;                          /* -n, the last one; NULL: none */
    size_t namesrv_at;                            /* how many -o stand before it */
    const char *overrides[PROGRAM_OVERRIDES_MAX]; /* -o, in the order given */
    size_t override_count;
    bool print_config;    /* -p */
    bool print_reference; /* --config-reference: the table of docs/, from the rows */
};

/*
 * Reads -c FILE, -o key=value (repeatable), -p, -n (where taken), --config-reference, --help,
 * --version. PROGRAM_GO_ON: *out is filled. Else the exit status, everything having been printed.
 */
MUST_CHECK enum program_exit program_parse(const struct program_info *info, int argc, char **argv,
                                           struct program_options *out);

/* Checks and completes a configuration as a whole: derived defaults, keys that must fit each other.
 */
typedef enum tern_code (*program_finish_fn)(void *config, struct tern_error *err);

/*
 * Fills *config: defaults, the file, -o and -n in the order given; then finish (may be NULL).
 * Answers -p and
 * --config-reference. PROGRAM_GO_ON, or the exit status, everything having been printed.
 */
MUST_CHECK enum program_exit program_configure(const struct program_info *info,
                                               const struct program_options *options,
                                               const struct config_table *table, void *config,
                                               program_finish_fn finish);

/* Prints "NAME: text" to stderr, the text from err or else the code's own, with the limit of the
 * process that was in the way; returns PROGRAM_FAILED.
 */
enum program_exit program_fail(const struct program_info *info, enum tern_code code,
                               const struct tern_error *err);

/*
 * Blocks SIGTERM, SIGINT and (unless it is ignored, as under nohup) SIGHUP in this thread and all
 * that it starts later, so that program_wait_stop() gets them; ignores SIGPIPE. Before the first
 * thread is made, hence before the first call into a library that makes threads.
 */
void program_block_signals(void);

/* Prints "NAME ready …" as one line to stdout and flushes: scripts wait for it. */
void program_ready(const struct program_info *info, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * Sleeps until a blocked signal comes and returns its number. From then on a watchdog runs: when
 * the process is still there after grace_s seconds, it says so on stderr and ends with
 * PROGRAM_FAILED.
 */
int program_wait_stop(unsigned grace_s);

/* What a program does with open files; connections and cache are the bounds of its configuration.
 */
struct program_files {
    uint64_t least;       /* with fewer it does not start */
    int64_t *connections; /* at most so many peers */
    int64_t *cache;       /* at most so many files kept open; NULL: none are */
};

/*
 * Raises the soft limit of open files to the hard one and cuts the bounds to what that allows, a
 * half for connections and a quarter for the cache; what was cut is in the log. PROGRAM_GO_ON, or
 * PROGRAM_FAILED when even the least is too much, which was printed.
 */
MUST_CHECK enum program_exit program_share_files(const struct program_info *info, struct log *log,
                                                 const struct program_files *files);

/* Prints in brackets to stderr which limit of the process made this code, where that is known;
 * program_fail() does. */
void program_print_cause(enum tern_code code);

/* Whether a host ("127.0.0.1", "::1", "localhost") can be reached from this machine only. */
bool program_host_is_loopback(const char *host);

/* Warns in the log when `host`, the value of `key`, lets other machines in: there is no
 * authentication. */
void program_warn_exposed(struct log *log, const char *key, const char *host);

/* "host:port", an IPv6 address in brackets. TERN_CONFIG when host is empty or too long. */
MUST_CHECK enum tern_code program_join_address(char out[PROGRAM_ADDRESS_BYTES], const char *host,
                                               int64_t port, struct tern_error *err);

#endif
