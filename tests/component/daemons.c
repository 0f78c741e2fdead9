/*
 * How: programs are found in BIN_DIR, which the build defines. A child gets PR_SET_PDEATHSIG, so
 * that a test that crashes leaves nothing running. Ends are awaited with a pidfd, which has a
 * deadline; a tool's streams are memory files, so no pipe can fill.
 */
#include "tests/component/daemons.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/base/held_port.h"

enum { STOP_LIMIT_MS = 20000, LINE_BYTES = 256 };

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void look_again_soon(void)
{
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
}

/* ---- files ---- */

void work_dir_make(char dir[WORK_DIR_BYTES])
{
    snprintf(dir, WORK_DIR_BYTES, "/tmp/ternmq-component-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static int remove_entry(const char *path, const struct stat *stat, int flag, struct FTW *walk)
{
    (void)stat;
    (void)flag;
    (void)walk;
    return remove(path);
}

void work_dir_remove(const char *dir)
{
    assert_int_equal(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static const char *wanted_prefix;
static size_t found_files;

static int count_entry(const char *path, const struct stat *stat, int flag, struct FTW *walk)
{
    (void)stat;
    if (flag == FTW_F && !strncmp(path + walk->base, wanted_prefix, strlen(wanted_prefix)))
        found_files++;
    return 0;
}

size_t files_below(const char *dir, const char *prefix)
{
    wanted_prefix = prefix;
    found_files = 0;
    if (nftw(dir, count_entry, 16, FTW_PHYS) != 0 && errno != ENOENT)
        fail_msg("walking %s: %s", dir, strerror(errno));
    return found_files;
}

static char *read_all(int fd, size_t *size)
{
    struct stat stat;
    assert_int_equal(fstat(fd, &stat), 0);
    char *text = malloc((size_t)stat.st_size + 1);
    assert_non_null(text);
    ssize_t got = pread(fd, text, (size_t)stat.st_size, 0);
    assert_int_equal(got, stat.st_size);
    text[got] = 0;
    if (size)
        *size = (size_t)got;
    return text;
}

char *file_read(const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    char *text = read_all(fd, size);
    close(fd);
    return text;
}

void file_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "we");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

bool file_contains(const char *path, const char *text)
{
    char *all = file_read(path, NULL);
    bool found = strstr(all, text) != NULL;
    free(all);
    return found;
}

/* ---- processes ---- */

/* In the child: becomes the program. The descriptors are its stdin, stdout and stderr. */
static _Noreturn void become(const char *program, const char *const *args,
                             const char *const *environment, const int fds[3])
{
    char path[DAEMON_PATH_BYTES];
    const char *argv[DAEMON_ARGS_MAX + 2] = {program};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(path, sizeof path, program[0] == '/' ? "%s" : BIN_DIR "/%s", program);
    for (size_t i = 0; args[i] && i < DAEMON_ARGS_MAX; i++)
        argv[i + 1] = args[i];
    for (int i = 0; i < 3; i++)
        dup2(fds[i], i);
    unsetenv("NAMESRV_ADDR");
    for (size_t i = 0; environment && environment[i]; i++)
        putenv((char *)(uintptr_t)environment[i]);
    execv(path, (char *const *)(uintptr_t)argv);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

/* Exit status or minus the signal; fails the test (and kills the process) after limit_ms. */
static int wait_end(pid_t pid, int64_t limit_ms)
{
    int status, fd = pidfd_open(pid, 0);
    assert_true(fd >= 0);
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    bool late = poll(&ended, 1, (int)limit_ms) != 1;
    close(fd);
    if (late)
        kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (late)
        fail_msg("process %d did not end within %lld ms", (int)pid, (long long)limit_ms);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void daemon_spawn(struct daemon *daemon, const char *program, const char *log,
                  const char *const *args, const char *const *environment)
{
    int pipe_fds[2];
    snprintf(daemon->log, sizeof daemon->log, "%s", log);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    int err = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(err >= 0 && in >= 0);
    daemon->ready_us = -now_us();
    daemon->pid = fork();
    assert_true(daemon->pid >= 0);
    if (daemon->pid == 0)
        become(program, args, environment, (const int[]){in, pipe_fds[1], err});
    close(pipe_fds[1]);
    close(err);
    close(in);
    daemon->out = pipe_fds[0];
}

bool daemon_wait_ready(struct daemon *daemon)
{
    char line[LINE_BYTES];
    size_t len = 0;
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (len == 0 || line[len - 1] != '\n') {
        struct pollfd readable = {.fd = daemon->out, .events = POLLIN};
        int64_t left = deadline - now_ms();
        if (left <= 0 || poll(&readable, 1, (int)left) != 1)
            daemon_fail(daemon, "no ready line within %d ms", PATIENCE_MS);
        ssize_t got = read(daemon->out, line + len, sizeof line - 1 - len);
        if (got <= 0)
            return false;
        len += (size_t)got;
    }
    daemon->ready_us += now_us();
    line[len - 1] = 0;
    assert_contains(line, " ready ");
    snprintf(daemon->address, sizeof daemon->address, "%s", strrchr(line, ' ') + 1);
    return true;
}

int daemon_wait(struct daemon *daemon, int64_t limit_ms)
{
    int status = wait_end(daemon->pid, limit_ms);
    daemon->pid = 0;
    close(daemon->out);
    return status;
}

int daemon_stop(struct daemon *daemon, int signo)
{
    assert_int_equal(kill(daemon->pid, signo), 0);
    return daemon_wait(daemon, signo == SIGKILL ? PATIENCE_MS : STOP_LIMIT_MS);
}

void daemon_show_log(const struct daemon *daemon)
{
    char *log = file_read(daemon->log, NULL);
    print_error("%s:\n%s\n", daemon->log, log);
    free(log);
}

/* The number behind `key` in a file of "key: number" lines; -1 when it is gone. */
static long proc_number(const char *path, const char *key)
{
    char line[LINE_BYTES];
    long value = -1;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)))
            value = strtol(line + strlen(key) + 1, NULL, 10);
    if (file)
        fclose(file);
    return value;
}

int64_t daemon_rss_kib(const struct daemon *daemon)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->pid);
    return proc_number(path, "VmRSS");
}

void daemon_wakeups(const struct daemon *daemon, struct wakeups *out)
{
    char path[64], task[128];
    snprintf(path, sizeof path, "/proc/%d/task", (int)daemon->pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    out->count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t n = out->count;
        if (entry->d_name[0] == '.' || n == sizeof out->threads / sizeof out->threads[0])
            continue;
        out->threads[n].tid = (pid_t)strtol(entry->d_name, NULL, 10);
        snprintf(task, sizeof task, "%s/%d/status", path, (int)out->threads[n].tid);
        out->threads[n].switches = proc_number(task, "voluntary_ctxt_switches");
        snprintf(task, sizeof task, "%s/%d/comm", path, (int)out->threads[n].tid);
        FILE *comm = fopen(task, "re");
        if (!comm || !fgets(out->threads[n].name, sizeof out->threads[n].name, comm))
            out->threads[n].name[0] = 0;
        if (comm)
            fclose(comm);
        out->threads[n].name[strcspn(out->threads[n].name, "\n")] = 0;
        out->count++;
    }
    closedir(dir);
}

/* ---- clusters ---- */

static void start_namesrv(struct cluster *cluster)
{
    char kv[DAEMON_PATH_BYTES], log[DAEMON_PATH_BYTES];
    snprintf(kv, sizeof kv, "kvConfigPath=%s/kvConfig.json", cluster->dir);
    snprintf(log, sizeof log, "%s/namesrv.log", cluster->dir);
    daemon_spawn(&cluster->namesrv, "mqnamesrv", log,
                 (const char *const[]){"-o", "listenPort=0", "-o", kv, NULL}, NULL);
    assert_true(daemon_wait_ready(&cluster->namesrv));
    snprintf(cluster->namesrv_list, sizeof cluster->namesrv_list, "%s", cluster->namesrv.address);
}

void cluster_spawn_broker(struct cluster *cluster)
{
    char port[32], root[DAEMON_PATH_BYTES + 32], log[DAEMON_PATH_BYTES];
    const char *args[DAEMON_ARGS_MAX + 1] = {
        "-o", "brokerName=broker-a", "-o", "haListenPort=0", "-o", port, "-o", root};
    size_t n = 8;
    if (!cluster->port)
        cluster->held = port_hold(&cluster->port);
    snprintf(port, sizeof port, "listenPort=%u", cluster->port);
    snprintf(root, sizeof root, "storePathRootDir=%s", cluster->store);
    snprintf(log, sizeof log, "%s/broker.log", cluster->dir);
    if (cluster->namesrv_list[0]) {
        args[n++] = "-n";
        args[n++] = cluster->namesrv_list;
    }
    for (size_t i = 0; cluster->overrides[i] && n + 2 < DAEMON_ARGS_MAX; i++) {
        args[n++] = "-o";
        args[n++] = cluster->overrides[i];
    }
    daemon_spawn(&cluster->broker, "mqbroker", log, args, cluster->environment);
}

void cluster_start_broker(struct cluster *cluster)
{
    cluster_spawn_broker(cluster);
    if (!daemon_wait_ready(&cluster->broker))
        daemon_fail(&cluster->broker, "the broker did not start");
}

static void prepare(struct cluster *cluster, const char *const *overrides)
{
    memset(cluster, 0, sizeof *cluster);
    work_dir_make(cluster->dir);
    snprintf(cluster->store, sizeof cluster->store, "%s/store", cluster->dir);
    for (size_t i = 0; overrides && overrides[i]; i++)
        cluster->overrides[i] = overrides[i];
}

void cluster_up(struct cluster *cluster, const char *const *overrides)
{
    prepare(cluster, overrides);
    start_namesrv(cluster);
    cluster_start_broker(cluster);
}

void cluster_up_alone(struct cluster *cluster, const char *const *overrides)
{
    prepare(cluster, overrides);
    cluster_start_broker(cluster);
}

static void expect_clean(struct daemon *daemon)
{
    if (!daemon->pid)
        return;
    int status = daemon_stop(daemon, SIGTERM);
    if (status != 0)
        daemon_fail(daemon, "ended with %d", status);
}

void cluster_down(struct cluster *cluster)
{
    expect_clean(&cluster->broker);
    expect_clean(&cluster->namesrv);
    close(cluster->held);
    work_dir_remove(cluster->dir);
}

const char *store_file(const struct cluster *cluster, const char *name,
                       char path[DAEMON_PATH_BYTES])
{
    int len = snprintf(path, DAEMON_PATH_BYTES, "%s/%s", cluster->store, name);
    assert_in_range(len, 1, DAEMON_PATH_BYTES - 1);
    return path;
}

/* ---- tools ---- */

void tool_run(struct tool *tool, const char *program, const char *const *args, const void *in,
              size_t in_size)
{
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = memfd_create("stream", MFD_CLOEXEC);
        assert_true(fds[i] >= 0);
    }
    if (in_size)
        assert_int_equal(pwrite(fds[0], in, in_size, 0), (ssize_t)in_size);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        become(program, args, NULL, fds);
    tool->status = wait_end(pid, 4 * PATIENCE_MS);
    tool->out = read_all(fds[1], &tool->out_size);
    tool->err = read_all(fds[2], &tool->err_size);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

void tool_free(struct tool *tool)
{
    free(tool->out);
    free(tool->err);
}

char *mqadmin(const struct cluster *cluster, int status, const char *const *args)
{
    const char *all[DAEMON_ARGS_MAX] = {args[0], "-n", cluster->namesrv_list};
    struct tool tool;
    for (size_t i = 1; args[i] && i + 3 < DAEMON_ARGS_MAX; i++)
        all[i + 2] = args[i];
    tool_run(&tool, "mqadmin", all, NULL, 0);
    if (tool.status != status)
        fail_msg("mqadmin %s ended with %d, not %d:\n%s%s", args[0], tool.status, status, tool.out,
                 tool.err);
    free(tool.err);
    return tool.out;
}
