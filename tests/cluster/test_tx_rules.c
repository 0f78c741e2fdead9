/* What transactions promise, one rule a test, hours of checks in milliseconds (P-3, TX-*, HA-13).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/durable_file.h"
#include "base/fs.h"
#include "broker/live_config.h"
#include "tests/cluster/tx_world.h"

static struct tx_world tx;

static void committed_is_delivered_once_and_rolled_back_never(void **state)
{
    (void)state;
    struct tern_transaction_result result;
    tx_begin(&tx, 1, ROLE_SYNC_MASTER);
    for (uint32_t n = 0; n < 20; n++) {
        tx.execute[n] = n % 2 ? TERN_TRANSACTION_COMMIT : TERN_TRANSACTION_ROLLBACK;
        assert_int_equal(tx_send(&tx, n, &result), TERN_OK);
        assert_int_equal(result.told, TERN_OK);
        assert_int_equal(result.outcome, tx.execute[n]);
        assert_true(result.executed);
    }
    tx_run_ms(&tx, 600000);
    for (uint32_t n = 0; n < 20; n++)
        assert_int_equal(tx_delivered(&tx, tx.world.master, n), n % 2);
    struct tx_status status = tx_status_of(tx.world.master);
    assert_int_equal(status.pending, 0);
    assert_int_equal(status.committed, 10);
    assert_int_equal(status.rolled_back, 10);
    assert_int_equal(status.checks, 0);
    tx_end(&tx);
}

static void half_message_is_seen_by_nobody(void **state)
{
    (void)state;
    tx_begin(&tx, 2, ROLE_SYNC_MASTER);
    world_consume(&tx.world);
    tx.check[3] = TERN_TRANSACTION_UNKNOWN;
    tx_send_open(&tx, 3);
    tx_run_ms(&tx, 200000);
    assert_int_equal(tx.world.inbox.count, 0);
    tx.check[3] = TERN_TRANSACTION_COMMIT;
    tx_run_ms(&tx, 70000);
    assert_int_equal(tx.world.inbox.times[3], 1);
    assert_int_equal(tx.world.inbox.count, 1);
    tx_end(&tx);
}

static void unknown_is_asked_after_the_timeout_then_at_each_interval(void **state)
{
    (void)state;
    tx_begin(&tx, 3, ROLE_SYNC_MASTER);
    tx_send_open(&tx, 0);
    tx_run_ms(&tx, 5500);
    assert_int_equal(tx.checks, 0);
    tx_run_ms(&tx, 1000);
    assert_int_equal(tx.checks, 1);
    tx_run_ms(&tx, 58000);
    assert_int_equal(tx.checks, 1);
    tx_run_ms(&tx, 3000);
    assert_int_equal(tx.checks, 2);
    tx.check[0] = TERN_TRANSACTION_ROLLBACK;
    tx_run_ms(&tx, 600000);
    assert_int_equal(tx.checks, 3);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 0);
    assert_int_equal(tx_status_of(tx.world.master).pending, 0);
    tx_end(&tx);
}

/* TX-03 */
static void ten_thousand_commits_at_speed_cause_no_check(void **state)
{
    (void)state;
    struct tern_transaction_result result;
    static uint8_t times[10000];
    tx_begin(&tx, 4, ROLE_ASYNC_MASTER);
    for (uint32_t n = 0; n < 10000; n++) {
        tx.execute[n] = TERN_TRANSACTION_COMMIT;
        assert_int_equal(tx_send(&tx, n, &result), TERN_OK);
        assert_int_equal(result.told, TERN_OK);
    }
    tx_run_ms(&tx, 300000);
    tx_count_all(&tx, tx.world.master, times, 10000);
    for (uint32_t n = 0; n < 10000; n++)
        assert_int_equal(times[n], 1);
    assert_int_equal(tx.checks, 0);
    assert_int_equal(tx_status_of(tx.world.master).checks, 0);
    tx_end(&tx);
}

/* TX-02: what nobody was asked is not counted. */
static void producer_away_for_long_is_asked_when_it_is_back(void **state)
{
    (void)state;
    tx_begin(&tx, 5, ROLE_SYNC_MASTER);
    tx_send_open(&tx, 0);
    tx_producer_down(&tx);
    tx_run_ms(&tx, INT64_C(40) * 60000);
    assert_int_equal(tx_status_of(tx.world.master).checks, 0);
    assert_int_equal(tx_status_of(tx.world.master).pending, 1);
    tx.check[0] = TERN_TRANSACTION_COMMIT;
    tx.listens = true; /* it has sent nothing yet in its new life, under another client id: TX-04 */
    tx_producer_up(&tx);
    tx_run_ms(&tx, 20000);
    assert_int_equal(tx.checked[0], 1);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 1);
    tx_end(&tx);
}

/* Only what was asked is counted: what waits behind a check() that hangs is not. */
static void check_that_hangs_uses_up_only_its_own(void **state)
{
    (void)state;
    enum { OTHERS = 100 };
    tx_begin(&tx, 19, ROLE_SYNC_MASTER);
    for (uint32_t n = 0; n <= OTHERS; n++)
        tx_send_open(&tx, n);
    tx.check_ms[0] = INT64_C(40) * 60000;
    tx_run_ms(&tx, INT64_C(30) * 60000);
    assert_int_equal(tx.checked[0], 1);
    assert_int_equal(tx.checks, 1);
    assert_int_equal(tx_status_of(tx.world.master).discarded, 1);
    assert_int_equal(tx_status_of(tx.world.master).pending, OTHERS);
    assert_true(tx_status_of(tx.world.master).not_asked > 10 * OTHERS);
    for (uint32_t n = 1; n <= OTHERS; n++)
        tx.check[n] = TERN_TRANSACTION_COMMIT;
    tx_run_ms(&tx, INT64_C(15) * 60000);
    assert_int_equal(tx_status_of(tx.world.master).pending, 0);
    for (uint32_t n = 0; n <= OTHERS; n++)
        assert_int_equal(tx_delivered(&tx, tx.world.master, n), n > 0);
    tx_end(&tx);
}

static void asked_too_often_is_discarded_kept_listed_and_can_be_resumed(void **state)
{
    (void)state;
    int64_t phys_off = -1;
    int64_t min;
    int64_t max;
    uint32_t checks = 0;
    tx_begin(&tx, 6, ROLE_SYNC_MASTER);
    struct tern_transaction_result sent = tx_send_open(&tx, 0);
    assert_int_equal(tx_listed(&tx, tx.world.master, false, &phys_off, &checks), 1);
    assert_int_equal(phys_off, tx_phys_of(&sent));
    tx_run_ms(&tx, INT64_C(20) * 60000);
    assert_int_equal(tx.checked[0], 15);
    assert_int_equal(tx_status_of(tx.world.master).discarded, 1);
    assert_int_equal(tx_listed(&tx, tx.world.master, false, &phys_off, &checks), 0);
    assert_int_equal(tx_listed(&tx, tx.world.master, true, &phys_off, &checks), 1);
    assert_int_equal(phys_off, tx_phys_of(&sent));
    assert_int_equal(checks, 15);
    store_queue_range(tx.world.master->broker->store, TX_DISCARD_TOPIC, 0, &min, &max);
    assert_int_equal(max, 1);
    assert_int_equal(
        tx_tell(&tx, tx.world.master, TX_GROUP, sent.send.queue_offset, phys_off, 1, NULL),
        TERN_TRANSACTION_FAILED);
    /* All of that is in the log, too. */
    node_kill(tx.world.master);
    node_start(tx.world.master);
    tx_await_ready(&tx);
    assert_int_equal(tx_listed(&tx, tx.world.master, true, &phys_off, &checks), 1);
    tx.check[0] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_resume_at(&tx, tx.world.master, phys_off), TERN_OK);
    tx_run_ms(&tx, 60000);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 1);
    assert_int_equal(tx_resume_at(&tx, tx.world.master, phys_off), TERN_TRANSACTION_FAILED);
    assert_int_equal(tx_resume_at(&tx, tx.world.master, 12345), TERN_QUERY_NOT_FOUND);
    tx_end(&tx);
}

static void count_of_checks_survives_a_restart(void **state)
{
    (void)state;
    int64_t phys_off;
    uint32_t checks = 0;
    tx_begin(&tx, 7, ROLE_SYNC_MASTER);
    tx_send_open(&tx, 0);
    tx_run_ms(&tx, 250000);
    uint8_t before = tx.checked[0];
    assert_true(before >= 4);
    node_power_off(tx.world.master, SIM_TORN_NONE);
    node_start(tx.world.master);
    tx_await_ready(&tx);
    assert_int_equal(tx_listed(&tx, tx.world.master, false, &phys_off, &checks), 1);
    assert_int_equal(checks, before);
    tx_run_ms(&tx, INT64_C(20) * 60000);
    assert_int_equal(tx.checked[0], 15);
    tx_end(&tx);
}

/* TX-04 */
static void damaged_half_record_stops_no_other(void **state)
{
    (void)state;
    struct file *file;
    char path[320];
    tx_begin(&tx, 8, ROLE_ASYNC_MASTER);
    for (uint32_t n = 0; n < 3; n++)
        tx.check[n] = TERN_TRANSACTION_COMMIT;
    tx_send_open(&tx, 0);
    struct tern_transaction_result middle = tx_send_open(&tx, 1);
    tx_send_open(&tx, 2);
    snprintf(path, sizeof path, "%s/commitlog/00000000000000000000",
             tx.world.master->config.store_root);
    assert_int_equal(fs_open(tx.world.master->env.fs, path, FS_READ | FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_pwrite(file, "garbage", 7, tx_phys_of(&middle) + 90), TERN_OK);
    file_close(file);
    tx_run_ms(&tx, 130000);
    assert_int_equal(tx_delivered(&tx, tx.world.slave, 0), 1);
    assert_int_equal(tx_delivered(&tx, tx.world.slave, 1), 0);
    assert_int_equal(tx_delivered(&tx, tx.world.slave, 2), 1);
    assert_true(tx_status_of(tx.world.master).damaged >= 2);
    assert_int_equal(tx_status_of(tx.world.master).pending, 1);
    tx_end(&tx);
}

static void first_outcome_counts(void **state)
{
    (void)state;
    tx_begin(&tx, 9, ROLE_SYNC_MASTER);
    struct tern_transaction_result sent = tx_send_open(&tx, 0);
    int64_t at = sent.send.queue_offset;
    int64_t phys = tx_phys_of(&sent);
    struct sim_node *master = tx.world.master;
    assert_int_equal(tx_tell(&tx, master, "others", at, phys, 1, NULL), TERN_INVALID);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 1, "not its id"), TERN_INVALID);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at + 1, phys, 1, NULL),
                     TERN_TRANSACTION_FAILED);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys + 1, 1, NULL),
                     TERN_TRANSACTION_FAILED);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, -1, phys, 1, NULL), TERN_INVALID);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 7, NULL), TERN_INVALID);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 0, NULL), TERN_OK);
    assert_int_equal(tx_tell(&tx, tx.world.slave, TX_GROUP, at, phys, 1, NULL),
                     TERN_SERVICE_NOT_AVAILABLE);
    assert_int_equal(tx_delivered(&tx, master, 0), 0);
    const char *id = sent.send.message_id;
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 1, id), TERN_OK);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 1, id), TERN_OK);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 2, id), TERN_TRANSACTION_FAILED);
    assert_int_equal(tx_delivered(&tx, master, 0), 1);
    /* Also after a restart. */
    node_kill(master);
    node_start(master);
    tx_await_ready(&tx);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 1, id), TERN_OK);
    assert_int_equal(tx_tell(&tx, master, TX_GROUP, at, phys, 2, id), TERN_TRANSACTION_FAILED);
    assert_int_equal(tx_delivered(&tx, master, 0), 1);
    tx_end(&tx);
}

/* SE-04 */
static void undecided_ones_are_bounded(void **state)
{
    (void)state;
    tx_prepare(&tx, 10, ROLE_ASYNC_MASTER);
    tx.world.master->config.transaction_pending_max = 3;
    tx_start_all(&tx);
    for (uint32_t n = 0; n < 3; n++)
        tx_send_open(&tx, n);
    assert_int_equal(tx_send(&tx, 3, NULL), TERN_SYSTEM_BUSY);
    assert_int_equal(tx.executed[3], 0);
    memset(tx.check, TERN_TRANSACTION_ROLLBACK, 3);
    tx_run_ms(&tx, 10000);
    tx.execute[3] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_send(&tx, 3, NULL), TERN_OK);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 3), 1);
    tx_end(&tx);
}

static void may_be_refused_by_configuration(void **state)
{
    (void)state;
    tx_prepare(&tx, 11, ROLE_ASYNC_MASTER);
    tx.world.master->config.reject_transactions = true;
    tx_start_all(&tx);
    assert_int_equal(tx_send(&tx, 0, NULL), TERN_NO_PERMISSION);
    assert_int_equal(tx.executed[0], 0);
    tx_end(&tx);
}

/* A local transaction that takes longer than the timeout is not asked about by its own process. */
static void running_transaction_is_not_asked_about(void **state)
{
    (void)state;
    tx_begin(&tx, 12, ROLE_SYNC_MASTER);
    tx.execute_ms = 100000;
    tx.execute[0] = TERN_TRANSACTION_COMMIT;
    tx.check[0] = TERN_TRANSACTION_ROLLBACK;
    assert_int_equal(tx_send(&tx, 0, NULL), TERN_OK);
    assert_int_equal(tx.checks, 0);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 1);
    tx_end(&tx);
}

/* HA-13: no slave in sync: the master alone counts, as for every send. */
static void without_a_slave_the_transaction_runs(void **state)
{
    (void)state;
    struct tern_transaction_result result;
    tx_begin(&tx, 13, ROLE_SYNC_MASTER);
    node_stop(tx.world.slave);
    tx_run_ms(&tx, 30000);
    tx.execute[0] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_send(&tx, 0, &result), TERN_OK);
    assert_int_equal(result.send.status, TERN_SLAVE_NOT_AVAILABLE);
    assert_true(result.executed);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 1);
    node_start(tx.world.slave);
    assert_true(world_await(&tx.world, world_in_step, 60000));
    assert_int_equal(tx_delivered(&tx, tx.world.slave, 0), 1);
    tx_end(&tx);
}

/* HA-13: stored, but not known to be safe: not run, rolled back for good. */
static void half_message_that_is_not_replicated_in_time_is_rolled_back(void **state)
{
    (void)state;
    struct tern_transaction_result result;
    tx_begin(&tx, 14, ROLE_SYNC_MASTER);
    tx.execute[0] = tx.check[0] = TERN_TRANSACTION_COMMIT;
    tx.execute[1] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_send(&tx, 1, NULL), TERN_OK);
    sim_net_cut(tx.world.cluster.net, tx.world.master->host, tx.world.slave->host);
    assert_int_equal(tx_send(&tx, 0, &result), TERN_OK);
    assert_int_equal(result.send.status, TERN_FLUSH_SLAVE_TIMEOUT);
    assert_false(result.executed);
    assert_int_equal(result.outcome, TERN_TRANSACTION_ROLLBACK);
    sim_net_heal_all(tx.world.cluster.net);
    tx_run_ms(&tx, INT64_C(30) * 60000);
    assert_int_equal(tx.executed[0], 0);
    assert_int_equal(tx.checked[0], 0);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 0);
    assert_int_equal(tx_delivered(&tx, tx.world.slave, 1), 1);
    assert_int_equal(tx_status_of(tx.world.master).pending, 0);
    tx_end(&tx);
}

/* The outcome is told when the master is back; and a new master machine knows of it by its slave.
 */
static void outcome_outlives_the_master(void **state)
{
    (void)state;
    struct tern_transaction_result result;
    tx_begin(&tx, 15, ROLE_SYNC_MASTER);
    struct tern_transaction_result first = tx_send_open(&tx, 0);
    tx_send_open(&tx, 1);
    tx.check[1] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_tell(&tx, tx.world.master, TX_GROUP, first.send.queue_offset,
                             tx_phys_of(&first), 1, NULL),
                     TERN_OK);
    tx.execute[2] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_send(&tx, 2, &result), TERN_OK);
    node_kill(tx.world.master);
    node_new_disk(tx.world.master);
    node_start(tx.world.master);
    tx_await_ready(&tx);
    assert_int_equal(tx_status_of(tx.world.master).pending, 1);
    tx_run_ms(&tx, 120000);
    for (uint32_t n = 0; n < 3; n++)
        assert_int_equal(tx_delivered(&tx, tx.world.master, n), 1);
    assert_int_equal(tx_status_of(tx.world.master).pending, 0);
    tx_end(&tx);
}

static void about_to_expire_is_discarded(void **state)
{
    (void)state;
    int64_t phys_off;
    uint32_t checks;
    tx_prepare(&tx, 16, ROLE_ASYNC_MASTER);
    tx.world.master->config.retention_ms = INT64_C(3600000);
    tx_start_all(&tx);
    tx_send_open(&tx, 0);
    tx_producer_down(&tx);
    tx_run_ms(&tx, INT64_C(58) * 60000);
    assert_int_equal(tx_listed(&tx, tx.world.master, true, &phys_off, &checks), 1);
    assert_int_equal(checks, 0);
    assert_int_equal(tx_status_of(tx.world.master).checks, 0);
    tx_end(&tx);
}

/* ---- the snapshot ---- */

/* The newest snapshot's text, of a node that does not run; free(). */
static char *read_snapshot(char path[FS_PATH_BYTES])
{
    struct file *file;
    int64_t size;
    size_t got;
    snprintf(path, FS_PATH_BYTES, "%.900s/ternmq/transactions", tx.world.master->config.store_root);
    assert_int_equal(fs_open(tx.world.master->env.fs, path, FS_READ, &file), TERN_OK);
    assert_int_equal(file_size(file, &size), TERN_OK);
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(file_pread(file, text, (size_t)size, 0, &got), TERN_OK);
    file_close(file);
    return text;
}

static void write_snapshot(const char *path, const char *text)
{
    struct file *file;
    assert_int_equal(
        fs_open(tx.world.master->env.fs, path, FS_READ | FS_WRITE | FS_TRUNCATE, &file), TERN_OK);
    assert_int_equal(file_pwrite(file, text, strlen(text), 0), TERN_OK);
    file_close(file);
}

/* One pending transaction, in a snapshot of a master that does not run. */
static char *snapshot_of_one_pending(uint64_t seed, char path[FS_PATH_BYTES])
{
    tx_begin(&tx, seed, ROLE_ASYNC_MASTER);
    tx.check[0] = TERN_TRANSACTION_COMMIT;
    tx_send_open(&tx, 0);
    tx_producer_down(&tx);
    node_stop(tx.world.master);
    char *text = read_snapshot(path);
    assert_string_equal(text + strlen(text) - 3, " 0\n");
    return text;
}

static void check_still_pending(void)
{
    node_start(tx.world.master);
    tx_await_ready(&tx);
    assert_int_equal(tx_status_of(tx.world.master).pending, 1);
    tx.listens = true;
    tx_producer_up(&tx);
    tx_run_ms(&tx, 130000);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 1);
    tx_end(&tx);
}

/* A digit that rotted on the disk decides no transaction; 9 is no state at all. */
static void a_damaged_snapshot_decides_nothing(void **state)
{
    static const char *const states[] = {"2", "3", "9"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char path[FS_PATH_BYTES];
        char *text = snapshot_of_one_pending(30 + i, path);
        text[strlen(text) - 2] = states[i][0];
        write_snapshot(path, text);
        free(text);
        check_still_pending();
    }
}

/* It may know of outcomes behind its position: when the log has not got so far, they never were. */
static void a_snapshot_that_saw_more_than_the_log_has_decides_nothing(void **state)
{
    char path[FS_PATH_BYTES], beyond[1024];
    long long position, end;
    int head;
    (void)state;
    char *text = snapshot_of_one_pending(40, path);
    assert_int_equal(sscanf(text, "ternmq-transactions 2\n%lld %lld%n", &position, &end, &head), 2);
    text[strlen(text) - 2] = '2';
    snprintf(beyond, sizeof beyond, "ternmq-transactions 2\n%lld %lld%s", position, end + 1,
             text + head);
    assert_int_equal(
        durable_write(&tx.world.master->env, path, beyond, strlen(beyond), "broker", NULL),
        TERN_OK);
    snprintf(beyond, sizeof beyond, "%.900s.bak", path);
    assert_int_equal(fs_unlink(tx.world.master->env.fs, beyond), TERN_OK);
    free(text);
    check_still_pending();
}

/* fileReservedTime is a key that changes while the broker runs. */
/* The master comes back without its snapshot, as a slave that becomes one. */
static void come_back_without_snapshot(void)
{
    node_kill(tx.world.master);
    tx_lose_snapshot(tx.world.master);
    node_start(tx.world.master);
    tx_await_ready(&tx);
}

static void commit_some(uint32_t from, uint32_t count)
{
    for (uint32_t n = from; n < from + count; n++) {
        tx.execute[n] = TERN_TRANSACTION_COMMIT;
        assert_int_equal(tx_send(&tx, n, NULL), TERN_OK);
        tx_run_ms(&tx, 3000);
    }
}

static void a_new_master_reads_from_where_all_was_decided(void **state)
{
    (void)state;
    struct tern_transaction_result lately;
    tx_begin(&tx, 41, ROLE_ASYNC_MASTER);
    commit_some(0, 300);
    tx.execute[300] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_send(&tx, 300, &lately), TERN_OK);
    tx_send_open(&tx, 301);
    tx.check[301] = TERN_TRANSACTION_COMMIT;
    come_back_without_snapshot();
    int64_t end = world_at(tx.world.master).appended;
    struct tx_status status = tx_status_of(tx.world.master);
    assert_true(status.read_from > end / 2 && status.read_from < end);
    assert_int_equal(status.pending, 1);
    /* What was decided lately is known, for who did not hear of it. */
    assert_int_equal(tx_tell(&tx, tx.world.master, TX_GROUP, lately.send.queue_offset,
                             tx_phys_of(&lately), 1, NULL),
                     TERN_OK);
    tx_run_ms(&tx, 130000);
    assert_int_equal(tx_status_of(tx.world.master).pending, 0);
    for (uint32_t n = 0; n < 302; n += 43)
        assert_int_equal(tx_delivered(&tx, tx.world.master, n), 1);
    tx_end(&tx);
}

static void what_may_still_be_decided_is_read_however_old(void **state)
{
    (void)state;
    int64_t phys_off;
    uint32_t checks;
    tx_begin(&tx, 42, ROLE_ASYNC_MASTER);
    struct tern_transaction_result discarded = tx_send_open(&tx, 0);
    commit_some(1, 400); /* 20 minutes: it is discarded meanwhile */
    tx_send_open(&tx, 401);
    assert_int_equal(tx_status_of(tx.world.master).discarded, 1);
    commit_some(402, 50);
    come_back_without_snapshot();
    assert_true(tx_status_of(tx.world.master).read_from <= tx_phys_of(&discarded));
    assert_int_equal(tx_listed(&tx, tx.world.master, true, &phys_off, &checks), 1);
    assert_int_equal(phys_off, tx_phys_of(&discarded));
    assert_int_equal(tx_listed(&tx, tx.world.master, false, &phys_off, &checks), 1);
    tx.check[0] = tx.check[401] = TERN_TRANSACTION_COMMIT;
    assert_int_equal(tx_resume_at(&tx, tx.world.master, tx_phys_of(&discarded)), TERN_OK);
    tx_run_ms(&tx, 130000);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 0), 1);
    assert_int_equal(tx_delivered(&tx, tx.world.master, 401), 1);
    commit_some(452, 100);
    come_back_without_snapshot(); /* nothing holds it back any more */
    assert_true(tx_status_of(tx.world.master).read_from > tx_phys_of(&discarded));
    assert_int_equal(tx_listed(&tx, tx.world.master, true, &phys_off, &checks), 0);
    tx_end(&tx);
}

static void shorter_retention_discards_before_it_expires(void **state)
{
    (void)state;
    int64_t phys_off;
    uint32_t checks;
    static struct broker_config before, after;
    const struct config_assignment shorter = {"fileReservedTime", "1h"};
    tx_begin(&tx, 17, ROLE_ASYNC_MASTER);
    tx_send_open(&tx, 0);
    tx_producer_down(&tx);
    assert_int_equal(
        live_config_change(tx.world.master->broker, &shorter, 1, &before, &after, NULL), TERN_OK);
    tx_run_ms(&tx, INT64_C(58) * 60000);
    assert_int_equal(tx_listed(&tx, tx.world.master, true, &phys_off, &checks), 1);
    tx_end(&tx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_is_delivered_once_and_rolled_back_never),
        cmocka_unit_test(half_message_is_seen_by_nobody),
        cmocka_unit_test(unknown_is_asked_after_the_timeout_then_at_each_interval),
        cmocka_unit_test(ten_thousand_commits_at_speed_cause_no_check),
        cmocka_unit_test(producer_away_for_long_is_asked_when_it_is_back),
        cmocka_unit_test(check_that_hangs_uses_up_only_its_own),
        cmocka_unit_test(asked_too_often_is_discarded_kept_listed_and_can_be_resumed),
        cmocka_unit_test(count_of_checks_survives_a_restart),
        cmocka_unit_test(damaged_half_record_stops_no_other),
        cmocka_unit_test(first_outcome_counts),
        cmocka_unit_test(undecided_ones_are_bounded),
        cmocka_unit_test(may_be_refused_by_configuration),
        cmocka_unit_test(running_transaction_is_not_asked_about),
        cmocka_unit_test(without_a_slave_the_transaction_runs),
        cmocka_unit_test(half_message_that_is_not_replicated_in_time_is_rolled_back),
        cmocka_unit_test(outcome_outlives_the_master),
        cmocka_unit_test(about_to_expire_is_discarded),
        cmocka_unit_test(a_damaged_snapshot_decides_nothing),
        cmocka_unit_test(a_snapshot_that_saw_more_than_the_log_has_decides_nothing),
        cmocka_unit_test(a_new_master_reads_from_where_all_was_decided),
        cmocka_unit_test(what_may_still_be_decided_is_read_however_old),
        cmocka_unit_test(shorter_retention_discards_before_it_expires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
