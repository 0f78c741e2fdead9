/*
 * Daemons and tools as real processes, for the component tests: started in a directory of their
 * own on free ports of loopback, watched through /proc, ended by signals.
 *
 *   work_dir_make ─► daemon_spawn ─► daemon_wait_ready ─► … ─► daemon_stop ─► work_dir_remove
 *
 * Every wait has a deadline far above what is expected; passing it fails the test. Whatever was
 * spawned dies with the test process, however that ends.
 */
#ifndef TESTS_COMPONENT_DAEMONS_H
#define TESTS_COMPONENT_DAEMONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PATIENCE_MS = 30000, /* for what takes milliseconds on an idle machine */
    WORK_DIR_BYTES = 64,
    DAEMON_PATH_BYTES = 256,
    DAEMON_ARGS_MAX = 40
};

/* A new directory under /tmp. */
void work_dir_make(char dir[WORK_DIR_BYTES]);
/* Deletes it and all below. */
void work_dir_remove(const char *dir);
/* Files below a directory, at any depth, whose name begins with `prefix`. */
size_t files_below(const char *dir, const char *prefix);
/* The whole file, terminated; the caller frees it. *size may be NULL. */
char *file_read(const char *path, size_t *size);
void file_write(const char *path, const void *bytes, size_t size);
/* Whether a line that holds all of `text` is in the file. */
bool file_contains(const char *path, const char *text);

/* One daemon process. Zero it before the first use. */
struct daemon {
    pid_t pid;                   /* 0: not running */
    int out;                     /* its stdout */
    int64_t ready_us;            /* from exec to the ready line */
    char address[64];            /* host:port of the ready line */
    char log[DAEMON_PATH_BYTES]; /* its stderr, appended over restarts */
};

/*
 * Starts `program` (of this build) with args, NULL-terminated. environment: NULL, or a
 * NULL-terminated list of NAME=value to add. Its stderr goes to log.
 */
void daemon_spawn(struct daemon *daemon, const char *program, const char *log,
                  const char *const *args, const char *const *environment);
/* Until the ready line; false when it ended without one. */
bool daemon_wait_ready(struct daemon *daemon);
/* Until it ends: its exit status, or minus the signal that ended it. */
int daemon_wait(struct daemon *daemon, int64_t limit_ms);
/* Sends the signal and waits; a clean stop, 5 s at most by itself, has 20 s on a loaded machine. */
int daemon_stop(struct daemon *daemon, int signo);

/* Fails the test with these words, after showing the daemon's log. */
#define daemon_fail(daemon, ...)                                                                   \
    do {                                                                                           \
        daemon_show_log(daemon);                                                                   \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)
void daemon_show_log(const struct daemon *daemon);

/* Resident memory. Under the thread sanitizer most of it is the sanitizer's own and says nothing.
 */
#ifdef __SANITIZE_THREAD__
#define RSS_IS_OURS 0
#else
#define RSS_IS_OURS 1
#endif
int64_t daemon_rss_kib(const struct daemon *daemon);
/* Voluntary context switches of its busiest thread since `before` (NULL: since its start). */
struct wakeups {
    size_t count;
    struct {
        pid_t tid;
        long switches;
        char name[32];
    } threads[128];
};
void daemon_wakeups(const struct daemon *daemon, struct wakeups *out);

/* A nameserver and one broker "broker-a" that registers with it, in a directory of their own. */
struct cluster {
    char dir[WORK_DIR_BYTES];
    char store[DAEMON_PATH_BYTES];
    char namesrv_list[80]; /* for -n */
    struct daemon namesrv, broker;
    uint16_t port; /* the broker's; 0: it gets one when it starts */
    int held;      /* the socket that keeps it while the broker is away */
    const char *overrides[DAEMON_ARGS_MAX / 2]; /* key=value for the broker, NULL at the end */
    const char *const *environment;             /* the broker's, may be NULL */
};

/* overrides: key=value for the broker, NULL-terminated or NULL; kept for restarts. */
void cluster_up(struct cluster *cluster, const char *const *overrides);
/* Without nameserver. */
void cluster_up_alone(struct cluster *cluster, const char *const *overrides);
/* Spawns the broker again, on its port; the caller waits for ready. */
void cluster_spawn_broker(struct cluster *cluster);
/* The same, and waits. */
void cluster_start_broker(struct cluster *cluster);
/* Stops what runs, expecting exit status 0, and removes the directory. */
void cluster_down(struct cluster *cluster);
/* A file below the broker's store. */
const char *store_file(const struct cluster *cluster, const char *name,
                       char path[DAEMON_PATH_BYTES]);

/* A program run to its end. */
struct tool {
    int status;      /* exit status, or minus the signal */
    char *out, *err; /* terminated */
    size_t out_size, err_size;
};

/* args NULL-terminated; stdin gives in_size bytes of `in`. */
void tool_run(struct tool *tool, const char *program, const char *const *args, const void *in,
              size_t in_size);
void tool_free(struct tool *tool);
/*
 * mqadmin with -n of the cluster, then args up to NULL. Fails the test unless it exits with
 * `status`, showing what it said. Returns what it printed; the caller frees.
 */
char *mqadmin(const struct cluster *cluster, int status, const char *const *args);
#define MQADMIN(cluster, status, ...)                                                              \
    mqadmin(cluster, status, (const char *const[]){__VA_ARGS__, NULL})

/* Milliseconds of the monotonic clock. */
int64_t now_ms(void);
/* Gives the processor away for a moment, between two looks at something that will come. */
void look_again_soon(void);

#endif
