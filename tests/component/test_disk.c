/*
 * A disk that is full, that fails, or that is slow: senders are told, readers are served, and
 * nothing that was acknowledged goes away.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { DISK_BYTES = 64 << 20, BODY = 16 << 10 };

/* The answer's code to one send of a body to queue 0 of T. */
static int32_t try_send(struct wire *wire, const char *words)
{
    static char body[BODY];
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    send.topic = bytes_of_text("T");
    WIRE_REQUEST(request, SEND, send, &send);
    struct rpc_call *call = wire_ask(wire, &request, body, sizeof body);
    int32_t code = call->response->code;
    if (code != CODE(SUCCESS) && words && !strstr(call->response->remark, words))
        fail_msg("code %d, \"%s\" is missing in: %s", code, words, call->response->remark);
    rpc_call_unref(call);
    return code;
}

/* ---- full ---- */

/* A small disk of its own in a mount namespace that ends with this process; false: not allowed. */
static bool mount_small_disk(const char *dir, const char *limits)
{
    static bool separated;
    if (!separated &&
        (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)) {
        print_message("no disk of a known size: %s\n", strerror(errno));
        return false;
    }
    separated = true;
    if (mkdir(dir, 0755) == 0 && mount("tmpfs", dir, "tmpfs", 0, limits) == 0)
        return true;
    print_message("no disk of a known size: %s\n", strerror(errno));
    return false;
}

/* A broker whose store lies on a small disk, with topic T; false: skipped. */
static bool small_disk_up(struct cluster *cluster, struct wire *wire, const char *limits,
                          const char *const *more)
{
    static const char *const overrides[] = {"mappedFileSizeCommitLog=4MiB",
                                            "maxMessageSize=1MiB",
                                            "cleanResourceInterval=100",
                                            "maxHashSlotNum=1000",
                                            "maxIndexNum=4000",
                                            "mappedFileSizeConsumeQueue=20000",
                                            NULL};
    memset(cluster, 0, sizeof *cluster);
    work_dir_make(cluster->dir);
    snprintf(cluster->store, sizeof cluster->store, "%s/store", cluster->dir);
    if (!mount_small_disk(cluster->store, limits)) {
        work_dir_remove(cluster->dir);
        return false;
    }
    memcpy(cluster->overrides, overrides, sizeof overrides);
    size_t count = sizeof overrides / sizeof overrides[0] - 1;
    while (*more)
        cluster->overrides[count++] = *more++;
    cluster_start_broker(cluster);
    wire_open(wire, cluster->broker.address, "127.0.0.1@full");
    wire_make_topic(wire, "T", 1);
    return true;
}

static bool full_disk_up(struct cluster *cluster, struct wire *wire)
{
    char limits[32];
    snprintf(limits, sizeof limits, "size=%d", DISK_BYTES);
    return small_disk_up(cluster, wire, limits, (const char *const[]){NULL});
}

static void full_disk_down(struct cluster *cluster, struct wire *wire)
{
    wire_close(wire);
    assert_int_equal(daemon_stop(&cluster->broker, SIGTERM), 0);
    assert_int_equal(umount(cluster->store), 0);
    work_dir_remove(cluster->dir);
}

/* Takes what is left of the disk but `keep` bytes. */
static void fill_disk(const struct cluster *cluster, const char *name, off_t size)
{
    char path[DAEMON_PATH_BYTES];
    int fd = open(store_file(cluster, name, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    if (posix_fallocate(fd, 0, size) != 0) {
        static char block[4096];
        while (write(fd, block, sizeof block) > 0)
            ;
    }
    close(fd);
}

static void free_disk(const struct cluster *cluster, const char *name)
{
    char path[DAEMON_PATH_BYTES];
    assert_int_equal(unlink(store_file(cluster, name, path)), 0);
}

static void await_send(struct wire *wire, int32_t code, const char *words)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (try_send(wire, words) != code) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
}

/* S-7, ST-10: above the warning level sends are refused by name of the key, and resume by
 * themselves */
static void above_the_warning_level_sends_are_refused_until_there_is_room(void **state)
{
    struct cluster cluster;
    struct wire wire;
    (void)state;
    if (!full_disk_up(&cluster, &wire))
        skip();
    for (int i = 0; i < 10; i++)
        assert_int_equal(try_send(&wire, NULL), CODE(SUCCESS));
    fill_disk(&cluster, "filler", DISK_BYTES / 100 * 80);
    await_send(&wire, CODE(SERVICE_NOT_AVAILABLE), "diskSpaceWarningLevelRatio");
    int64_t stored = wire_max_offset(&wire, "T", 0);
    assert_true(stored >= 10);
    assert_int_equal(try_send(&wire, "0.9"), CODE(SERVICE_NOT_AVAILABLE));
    wire_expect_readable(&wire, stored);
    free_disk(&cluster, "filler");
    await_send(&wire, CODE(SUCCESS), "diskSpaceWarningLevelRatio");
    assert_int_equal(wire_max_offset(&wire, "T", 0), stored + 1); /* no offset was used up: ST-15 */
    full_disk_down(&cluster, &wire);
}

/* ST-09: not one byte left */
static void full_disk_refuses_sends_and_serves_reads(void **state)
{
    struct cluster cluster;
    struct wire wire;
    int64_t stored = 0;
    (void)state;
    if (!full_disk_up(&cluster, &wire))
        skip();
    assert_int_equal(try_send(&wire, NULL), CODE(SUCCESS));
    fill_disk(&cluster, "filler", 2 * (off_t)DISK_BYTES);
    for (int refused = 0; refused < 50;) {
        int32_t code = try_send(&wire, NULL);
        assert_true(code == CODE(SUCCESS) || code == CODE(SERVICE_NOT_AVAILABLE));
        refused += code != CODE(SUCCESS);
    }
    stored = wire_max_offset(&wire, "T", 0);
    wire_expect_readable(&wire, stored);
    assert_int_equal(kill(cluster.broker.pid, 0), 0);
    /* A death now, and a start on the full disk: what was acknowledged is still read. */
    assert_int_equal(daemon_stop(&cluster.broker, SIGKILL), -SIGKILL);
    cluster_start_broker(&cluster);
    wire_expect_readable(&wire, stored);
    free_disk(&cluster, "filler");
    await_send(&wire, CODE(SUCCESS), NULL);
    wire_expect_readable(&wire, stored + 1);
    full_disk_down(&cluster, &wire);
}

/* ---- killed when it was full ---- */

/* Takes all inodes that are left. */
static int take_inodes(const struct cluster *cluster)
{
    char name[32], path[DAEMON_PATH_BYTES];
    for (int count = 0;; count++) {
        snprintf(name, sizeof name, "inode-%d", count);
        int fd = open(store_file(cluster, name, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return count;
        close(fd);
    }
}

static void give_inodes(const struct cluster *cluster, int count)
{
    char name[32];
    while (count-- > 0) {
        snprintf(name, sizeof name, "inode-%d", count);
        free_disk(cluster, name);
    }
}

static bool status_says(struct wire *wire, const char *key, const char *value)
{
    Tern__Wire__BrokerStatusRequest body = TERN__WIRE__BROKER_STATUS_REQUEST__INIT;
    WIRE_REQUEST(request, BROKER_STATUS, broker_status, &body);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    const Tern__Wire__BrokerStatusResponse *status = call->response->broker_status;
    bool says = false;
    for (size_t i = 0; i < status->n_entries && !says; i++)
        says = !strcmp(status->entries[i]->key, key) && !strcmp(status->entries[i]->value, value);
    rpc_call_unref(call);
    return says;
}

/*
 * The queues lack most of what was acknowledged when the process dies, and the next ones find no
 * room for that: all is served, nothing more is taken, until there is.
 */
static void killed_on_full_disk(const char *limits, bool inodes)
{
    static const char unnoticed[] = "flushIntervalConsumeQueue=600000";
    static const char noticed[] = "flushIntervalConsumeQueue=100";
    enum { MESSAGES = 1500, STARTS = 2 };
    struct cluster cluster;
    struct wire wire;
    int taken = 0;
    if (!small_disk_up(&cluster, &wire, limits,
                       (const char *const[]){"diskMaxUsedSpaceRatio=95",
                                             "diskSpaceCleanForciblyRatio=100",
                                             "diskSpaceWarningLevelRatio=100", unnoticed, NULL}))
        skip();
    if (inodes)
        taken = take_inodes(&cluster);
    else
        fill_disk(&cluster, "filler", 2 * (off_t)DISK_BYTES);
    for (int i = 0; i < MESSAGES; i++)
        wire_send(&wire, "T", 0, "x", NULL);
    for (int start = 0; start < STARTS; start++) {
        assert_int_equal(daemon_stop(&cluster.broker, SIGKILL), -SIGKILL);
        for (const char **key = cluster.overrides; *key; key++)
            *key = *key == unnoticed ? noticed : *key;
        cluster_start_broker(&cluster);
        wire_expect_readable(&wire, MESSAGES);
        await_send(&wire, CODE(SERVICE_NOT_AVAILABLE), "space left");
        assert_true(status_says(&wire, "diskFull", "true"));
    }
    if (inodes)
        give_inodes(&cluster, taken);
    else
        free_disk(&cluster, "filler");
    await_send(&wire, CODE(SUCCESS), NULL);
    wire_expect_readable(&wire, MESSAGES + 1);
    full_disk_down(&cluster, &wire);
}

static void killed_without_a_free_block_it_starts_and_serves_all(void **state)
{
    char limits[32];
    (void)state;
    snprintf(limits, sizeof limits, "size=%d", DISK_BYTES);
    killed_on_full_disk(limits, false);
}

static void killed_without_a_free_inode_it_starts_and_serves_all(void **state)
{
    (void)state;
    killed_on_full_disk("nr_inodes=100", true);
}

/* ---- expired ---- */

/* The queue's minimum once it has moved above `above`. */
static int64_t await_min(struct wire *wire, int64_t above)
{
    Tern__Wire__QueueRangeRequest range = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
    int64_t deadline = now_ms() + PATIENCE_MS, min = 0;
    range.topic = bytes_of_text("T");
    WIRE_REQUEST(request, QUEUE_RANGE, queue_range, &range);
    while (min <= above) {
        struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
        assert_int_equal(call->response->code, CODE(SUCCESS));
        min = call->response->queue_range->min_offset;
        rpc_call_unref(call);
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
    return min;
}

static void expect_told_too_small(struct wire *wire, int64_t min)
{
    Tern__Wire__PullRequest pull;
    wire_fill_pull(&pull, "T", 0, min - 1);
    WIRE_REQUEST(request, PULL, pull, &pull);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(PULL_OFFSET_MOVED));
    assert_string_equal(call->response->remark, "OFFSET_TOO_SMALL");
    assert_true(call->response->pull->next_offset >= min);
    rpc_call_unref(call);
}

/* S-7, OF-01: readers behind are told where the queue begins now, also after a restart */
static void expired_messages_move_the_minimum_up_and_never_back(void **state)
{
    enum { MESSAGES = 200 };
    struct cluster cluster;
    struct wire wire;
    (void)state;
    cluster_up_alone(&cluster,
                     (const char *const[]){
                         "mappedFileSizeCommitLog=256KiB", "maxMessageSize=64KiB",
                         "fileReservedTime=1ms", "cleanResourceInterval=100",
                         "deleteWhen=0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
                         "flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@expired");
    wire_make_topic(&wire, "T", 1);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(try_send(&wire, NULL), CODE(SUCCESS));
    int64_t min = await_min(&wire, 100);
    expect_told_too_small(&wire, min);
    for (int signo = SIGTERM; signo; signo = signo == SIGTERM ? SIGKILL : 0) {
        daemon_stop(&cluster.broker, signo);
        cluster_start_broker(&cluster);
        min = await_min(&wire, min - 1);
        expect_told_too_small(&wire, min);
        assert_true(wire_max_offset(&wire, "T", 0) >= MESSAGES);
    }
    wire_close(&wire);
    cluster_down(&cluster);
}

/* ---- failing ---- */

static char sync_of[64], sync_trigger[DAEMON_PATH_BYTES + 32], preload[DAEMON_PATH_BYTES];
static const char *const failing_sync[] = {preload, sync_of, sync_trigger,
                                           "ASAN_OPTIONS=verify_asan_link_order=0", NULL};

static void failing_disk_up(struct cluster *cluster, struct wire *wire, const char *flush)
{
    memset(cluster, 0, sizeof *cluster);
    work_dir_make(cluster->dir);
    snprintf(cluster->store, sizeof cluster->store, "%s/store", cluster->dir);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", FSYNC_SHIM);
    snprintf(sync_of, sizeof sync_of, "FAIL_SYNC_OF=/commitlog/");
    snprintf(sync_trigger, sizeof sync_trigger, "FAIL_SYNC_TRIGGER=%s/fail", cluster->dir);
    cluster->overrides[0] = flush;
    cluster->environment = failing_sync;
    cluster_start_broker(cluster);
    wire_open(wire, cluster->broker.address, "127.0.0.1@sync");
    wire_make_topic(wire, "T", 1);
}

static void let_next_sync_fail(const struct cluster *cluster)
{
    char path[DAEMON_PATH_BYTES];
    snprintf(path, sizeof path, "%s/fail", cluster->dir);
    file_write(path, "", 0);
}

/* Refused for good, read all the same, until a restart. */
static void expect_read_only(struct cluster *cluster, struct wire *wire, int64_t acknowledged)
{
    enum { TRIES = 20 };
    for (int i = 0; i < TRIES; i++)
        assert_int_equal(try_send(wire, "read-only"), CODE(SERVICE_NOT_AVAILABLE));
    wire_expect_readable(wire, acknowledged);
    assert_true(file_contains(cluster->broker.log, "store_read_only"));
    daemon_stop(&cluster->broker, SIGTERM); /* not clean, so its status is not asked for */
    cluster_start_broker(cluster);
    wire_expect_readable(wire, acknowledged);
    assert_int_equal(try_send(wire, NULL), CODE(SUCCESS));
    wire_close(wire);
    cluster_down(cluster);
}

/* ST-07: the failure is never forgotten, though the next sync would succeed */
static void failed_sync_is_no_success_and_makes_the_store_read_only(void **state)
{
    struct cluster cluster;
    struct wire wire;
    (void)state;
    failing_disk_up(&cluster, &wire, "flushDiskType=SYNC_FLUSH");
    assert_int_equal(try_send(&wire, NULL), CODE(SUCCESS));
    let_next_sync_fail(&cluster);
    assert_int_not_equal(try_send(&wire, NULL), CODE(SUCCESS));
    expect_read_only(&cluster, &wire, 1);
}

/* The same when nobody waits for the disk. */
static void failed_sync_in_the_background_makes_the_store_read_only(void **state)
{
    struct cluster cluster;
    struct wire wire;
    (void)state;
    failing_disk_up(&cluster, &wire, "flushDiskType=ASYNC_FLUSH");
    let_next_sync_fail(&cluster);
    assert_int_equal(try_send(&wire, NULL), CODE(SUCCESS));
    await_send(&wire, CODE(SERVICE_NOT_AVAILABLE), NULL);
    expect_read_only(&cluster, &wire, 1);
}

/* ---- slow ---- */

/* Who waits for nobody is ready when it takes sends, however long its own disk takes. */
static void ready_on_a_slow_disk_means_writable(void **state)
{
    static const char *const slow_sync[] = {preload, "SLOW_SYNC_OF=/epochs.json",
                                            "ASAN_OPTIONS=verify_asan_link_order=0", NULL};
    struct cluster cluster = {.environment = slow_sync};
    struct wire wire;
    (void)state;
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", FSYNC_SHIM);
    work_dir_make(cluster.dir);
    snprintf(cluster.store, sizeof cluster.store, "%s/store", cluster.dir);
    cluster_start_broker(&cluster);
    wire_open(&wire, cluster.broker.address, "127.0.0.1@slow");
    wire_make_topic(&wire, "T", 1);
    assert_int_equal(try_send(&wire, NULL), CODE(SUCCESS));
    assert_int_equal(daemon_stop(&cluster.broker, SIGTERM), 0);
    cluster_start_broker(&cluster);
    assert_int_equal(try_send(&wire, NULL), CODE(SUCCESS));
    wire_close(&wire);
    cluster_down(&cluster);
}

/* ---- not to be had ---- */

static void store_that_cannot_be_made_is_refused_with_its_path(void **state)
{
    char dir[WORK_DIR_BYTES], file[DAEMON_PATH_BYTES], root[DAEMON_PATH_BYTES + 32];
    struct tool tool;
    (void)state;
    work_dir_make(dir);
    snprintf(file, sizeof file, "%s/file", dir);
    file_write(file, "x", 1);
    snprintf(root, sizeof root, "storePathRootDir=%s/store", file);
    tool_run(&tool, "mqbroker", (const char *const[]){"-o", "listenPort=0", "-o", root, NULL}, NULL,
             0);
    assert_int_equal(tool.status, 1);
    assert_contains(tool.err, file);
    tool_free(&tool);
    work_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(above_the_warning_level_sends_are_refused_until_there_is_room),
        cmocka_unit_test(full_disk_refuses_sends_and_serves_reads),
        cmocka_unit_test(killed_without_a_free_block_it_starts_and_serves_all),
        cmocka_unit_test(killed_without_a_free_inode_it_starts_and_serves_all),
        cmocka_unit_test(expired_messages_move_the_minimum_up_and_never_back),
        cmocka_unit_test(failed_sync_is_no_success_and_makes_the_store_read_only),
        cmocka_unit_test(failed_sync_in_the_background_makes_the_store_read_only),
        cmocka_unit_test(ready_on_a_slow_disk_means_writable),
        cmocka_unit_test(store_that_cannot_be_made_is_refused_with_its_path),
    };
    return cmocka_run_group_tests_name("disk", tests, NULL, NULL);
}
