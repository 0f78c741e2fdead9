/*
 * Delayed messages on virtual time when something breaks: every one comes once, whatever stops, is
 * damaged or fails meanwhile (MD-08, DL-02, DL-03, DL-06). SIM_LOG=1 prints the log.
 */
#include "tests/cluster/delay_world.h"

#include <errno.h>
#include <inttypes.h>

#include "base/rng.h"
#include "broker/schedule/buckets.h"

/* ---- stops ---- */

static bool all_came(void *arg)
{
    (void)arg;
    read_topic(world.master, WORLD_TOPIC);
    for (uint32_t i = 0; i < sent_count; i++)
        if (sent[i].acked && !sent[i].cancelled && !sent[i].times)
            return false;
    return true;
}

static void await_all(int64_t patience_ms)
{
    for (int64_t waited = 0; waited < patience_ms && !all_came(NULL); waited += 1000)
        world_run_ms(&world, 1000);
    check_once(world.master);
}

enum { SAVED_MAX = 65536 };

struct saved {
    uint8_t bytes[SAVED_MAX];
    size_t size;
};

/* One of the files that say what was delivered, as it stands on the master's disk. */
static void read_saved(const char *name, struct saved *out)
{
    char path[FS_PATH_BYTES];
    struct file *file;
    snprintf(path, sizeof path, "%.500s/%s", world.master->config.store_root, name);
    assert_int_equal(fs_open(world.master->env.fs, path, FS_READ, &file), TERN_OK);
    assert_int_equal(file_pread(file, out->bytes, sizeof out->bytes, 0, &out->size), TERN_OK);
    assert_in_range(out->size, 1, sizeof out->bytes - 1);
    file_close(file);
}

static const char *const saved_names[] = {"config/delayOffset.json", "ternmq/delay/checkpoint"};
enum { SAVED = sizeof saved_names / sizeof saved_names[0], SLOW_READ_MS = 5000 };

/* Each look at those files takes as long as several savings are apart; they stay what they were. */
struct slow_load {
    struct saved before[SAVED];
    int reads;
    bool looking;
};

static int read_slowly(void *arg, enum sim_fs_op op, const char *path)
{
    static struct saved now;
    struct slow_load *load = arg;
    if (load->looking || (op != SIM_FS_OPEN && op != SIM_FS_PREAD) ||
        (!strstr(path, saved_names[0]) && !strstr(path, "ternmq/delay")))
        return 0;
    load->looking = true;
    load->reads++;
    world_run_ms(&world, SLOW_READ_MS);
    for (int i = 0; i < SAVED; i++) {
        read_saved(saved_names[i], &now);
        assert_int_equal(now.size, load->before[i].size);
        assert_memory_equal(now.bytes, load->before[i].bytes, now.size);
    }
    load->looking = false;
    return 0;
}

/* DL-02: what runs now and then does not write what was not read yet; what came due meanwhile, and
 * before, comes once. */
static void a_slow_start_saves_nothing_before_it_has_read_what_was_saved(void **state)
{
    (void)state;
    static struct slow_load load;
    for (int killed = 0; killed < 2; killed++) {
        memset(&load, 0, sizeof load);
        prepare(5 + (uint64_t)killed);
        world_start(&world);
        for (int i = 0; i < 100; i++) {
            send_level(1 + i % 4);
            send_in(100 + i * 450);
        }
        world_run_ms(&world, 22 * SECOND);
        if (killed)
            node_kill(world.master);
        else
            node_stop(world.master);
        for (int i = 0; i < SAVED; i++)
            read_saved(saved_names[i], &load.before[i]);
        sim_fs_set_hook(world.master->disk, read_slowly, &load);
        node_start(world.master);
        sim_fs_set_hook(world.master->disk, NULL, NULL);
        assert_in_range(load.reads, 3, 1000); /* 15 s at least */
        await_all(60 * SECOND);
        world_run_ms(&world, 60 * SECOND);
        check_once(world.master);
        world_end(&world);
    }
}

/* DL-03 */
static void a_restart_repeats_nothing_and_loses_nothing(void **state)
{
    (void)state;
    prepare(4);
    world_start(&world);
    for (int i = 0; i < 100; i++) {
        send_level(1 + i % 3);
        send_in(100 + i * 150);
    }
    world_run_ms(&world, 6 * SECOND);
    node_stop(world.master);
    world_run_ms(&world, 1 * SECOND);
    node_start(world.master);
    await_all(60 * SECOND);
    world_run_ms(&world, 60 * SECOND);
    check_once(world.master);
    world_end(&world);
}

static void stop_somehow(struct sim_node *node, uint64_t dice)
{
    if (dice == 0)
        node_stop(node);
    else if (dice == 1)
        node_kill(node);
    else
        node_power_off(node, dice == 2 ? SIM_TORN_NONE : SIM_TORN_PAGES);
}

/* MD-08: crashes at random moments of master and slave, sync or not; each comes once. */
static void crashes_at_random_moments_repeat_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 130; seed++) {
        struct rng *rng;
        prepare(seed);
        rng = &world.cluster.sim.rng.rng;
        world.master->config.role = seed % 2 ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER;
        world_start(&world);
        for (int round = 0; round < 6; round++) {
            for (int i = 0; i < 30; i++) {
                if (i % 2)
                    send_in((int64_t)rng_below(rng, 20 * SECOND) + 50);
                else
                    send_level(1 + (int)rng_below(rng, 3));
            }
            if (round % 2)
                cancel((uint32_t)rng_below(rng, sent_count));
            world_run_ms(&world, (int64_t)rng_below(rng, 12 * SECOND));
            struct sim_node *node = rng_below(rng, 3) ? world.master : world.slave;
            stop_somehow(node, rng_below(rng, 4));
            world_run_ms(&world, (int64_t)rng_below(rng, 3 * SECOND));
            node_start(node);
            assert_true(world_await(&world, world_is_open, 60000));
        }
        await_all(120 * SECOND);
        world_run_ms(&world, 30 * SECOND);
        check_once(world.master);
        assert_true(world_await(&world, world_in_step, 60000));
        check_once(world.slave);
        world_end(&world);
    }
}

/* A mark of what was delivered must not outlive the record that says so. */
static void what_a_lost_tail_delivered_comes_again(void **state)
{
    (void)state;
    for (uint64_t seed = 200; seed < 210; seed++) {
        prepare(seed);
        world.master->config.flush_type = FLUSH_ASYNC;
        world.master->config.flush_interval_ms = 3000;
        world_start(&world);
        node_kill(world.slave);
        for (int i = 0; i < 50; i++) {
            send_in(4000 + i * 20);
            send_level(2);
        }
        world_run_ms(&world, 4500 + 100 * (int64_t)(seed % 10));
        node_power_off(world.master, SIM_TORN_NONE);
        world.master->config.role = ROLE_ASYNC_MASTER;
        world.master->config.recover_timeout_ms = 1000;
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 60000));
        /* What the disk never got is gone; what is left comes once. */
        for (uint32_t i = 0; i < sent_count; i++)
            sent[i].acked =
                sent[i].phys_off >= 0 && sent[i].phys_off < world_at(world.master).whole;
        await_all(60 * SECOND);
        world_end(&world);
    }
}

/* The checkpoint that a slave cannot replace says what a cut took back: it must not be read again.
 */
static void a_checkpoint_from_before_a_cut_is_not_believed(void **state)
{
    (void)state;
    const struct sim_fs_fault full = {SIM_FS_PWRITEV, "checkpoint.tmp", 1, ENOSPC, true};
    prepare(220);
    world.master->config.flush_type = FLUSH_ASYNC;
    world.master->config.flush_interval_ms = 600000;
    world.master->config.recover_timeout_ms = 2000;
    world_start(&world);
    world_put_some(&world, 0, 20);
    node_stop(world.master); /* so much is on its disk */
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 10000));
    for (int i = 0; i < 10; i++)
        send_in(20 * MINUTE);
    world_run_ms(&world, 15 * SECOND);
    sim_fs_fail(world.slave->disk, &full);
    world_put_some(&world, 0, 5);
    world_run_ms(&world, 15 * SECOND);
    assert_int_equal(status_of(world.slave).timer_pending, 10);
    node_power_off(world.master, SIM_TORN_NONE);
    sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 10000));
    for (int i = 0; i < 100; i++)
        (void)world_put(&world, 0);
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 20000));
    node_kill(world.slave);
    sim_fs_fail_clear(world.slave->disk);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_run_ms(&world, SECOND);
    assert_int_equal(status_of(world.master).timer_pending, 0);
    assert_int_equal(status_of(world.slave).timer_pending, 0);
    world_end(&world);
}

/* ---- damage ---- */

static void damaged_files_are_made_anew_from_the_log(void **state)
{
    (void)state;
    static const char *const names[] = {"checkpoint", ".bucket"};
    for (uint64_t round = 0; round < 6; round++) {
        char dir[FS_PATH_BYTES], path[FS_PATH_BYTES];
        prepare(300 + round);
        world_start(&world);
        int64_t bucket = bucket_id_of(now_ms() + 30 * SECOND);
        for (int i = 0; i < 50; i++) {
            send_in(i < 25 ? 100 : 30 * SECOND);
            send_level(i < 25 ? 1 : 4);
        }
        world_run_ms(&world, 15 * SECOND);
        node_stop(world.master);
        snprintf(dir, sizeof dir, "%.500s/ternmq/delay", world.master->config.store_root);
        if (round % 2 == 0)
            snprintf(path, sizeof path, "%.600s/%s", dir, names[0]);
        else
            snprintf(path, sizeof path, "%.600s/%" PRId64 ".bucket", dir, bucket);
        struct file *file;
        uint8_t junk[40];
        memset(junk, 0xA5, sizeof junk);
        assert_int_equal(fs_open(world.master->env.fs, path, FS_READ | FS_WRITE, &file), TERN_OK);
        if (round < 4)
            assert_int_equal(file_pwrite(file, junk, sizeof junk, 33), TERN_OK);
        else
            assert_int_equal(file_truncate(file, 50), TERN_OK);
        assert_int_equal(file_sync(file), TERN_OK);
        file_close(file);
        node_start(world.master);
        await_all(90 * SECOND);
        world_run_ms(&world, 30 * SECOND);
        check_once(world.master);
        assert_true(status_of(world.master).rebuilt >= 1);
        world_end(&world);
    }
}

/* The last byte of a message's number, which is its body, rots in the master's log. */
static void rot(uint32_t number)
{
    char path[FS_PATH_BYTES];
    struct file *file;
    snprintf(path, sizeof path, "%.500s/commitlog/00000000000000000000",
             world.master->config.store_root);
    assert_int_equal(fs_open(world.master->env.fs, path, FS_READ | FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_pwrite(file, "\7", 1, sent[number].phys_off + RECORD_FIXED_BYTES),
                     TERN_OK);
    assert_int_equal(file_sync(file), TERN_OK);
    file_close(file);
}

/* DL-06: it is not given a sound checksum; the others come. The slave's log can still be read. */
static void a_damaged_body_is_given_up_not_delivered(void **state)
{
    (void)state;
    prepare(310);
    world_start(&world);
    for (int i = 0; i < 3; i++) {
        send_in(20 * SECOND);
        send_level(4);
    }
    rot(2);
    rot(3);
    world_run_ms(&world, 60 * SECOND);
    assert_int_equal(read_topic(world.slave, WORLD_TOPIC), 4);
    assert_int_equal(sent[2].times + sent[3].times, 0);
    assert_int_equal(status_of(world.master).discarded, 2);
    world_end(&world);
}

/* A rotten message in the way of following the log costs itself, not all that wait. */
static void a_damaged_record_does_not_stop_the_others(void **state)
{
    (void)state;
    const struct sim_fs_fault full = {SIM_FS_PWRITEV, ".bucket", 1, ENOSPC, true};
    prepare(311);
    world_start(&world);
    sim_fs_fail(world.master->disk, &full); /* so that the log is read again */
    for (int i = 0; i < 10; i++) {
        send_in(20 * SECOND);
        send_level(4);
    }
    rot(4);
    sim_fs_fail_clear(world.master->disk);
    world_run_ms(&world, 60 * SECOND);
    assert_int_equal(read_topic(world.slave, WORLD_TOPIC), 19);
    assert_int_equal(sent[4].times, 0);
    assert_int_equal(status_of(world.master).discarded, 1);
    world_end(&world);
}

/* ---- a disk that fails ---- */

/* Messages that wait in memory, in the levels, and in a file that is read later. */
static void send_some(void)
{
    for (int i = 0; i < 10; i++) {
        send_level(1 + i % 3);
        send_in(200 + i * 900);
        send_in(11 * MINUTE + i * 100);
    }
}

/* One call of the files behind the schedule fails, or all from it on; then the process dies, or the
 * power goes. What the files do not know is in the log: each message comes, and once. */
static void try_fault(enum sim_fs_op op, const char *part, unsigned nth, bool forever,
                      uint64_t seed)
{
    struct tern_error err = {.text = ""};
    const struct sim_fs_fault fault = {op, part, nth, op == SIM_FS_PWRITEV ? ENOSPC : EIO, forever};
    prepare(seed);
    world.master->config.role = ROLE_SYNC_MASTER; /* no tail of the log is lost with the power */
    world_start(&world);
    send_some();
    sim_fs_fail(world.master->disk, &fault);
    world_run_ms(&world, 4 * SECOND);
    send_some();
    world_run_ms(&world, 12 * SECOND);
    send_some();
    world_run_ms(&world, 11 * MINUTE);
    if (nth % 2)
        node_kill(world.master);
    else
        node_power_off(world.master, SIM_TORN_PAGES);
    sim_fs_fail_clear(world.master->disk);
    sim_fs_fail(world.master->disk, &fault); /* the start meets it, too: it goes on, or refuses */
    if (node_try_start(world.master, &err) != TERN_OK) {
        assert_true(err.text[0]);
        sim_fs_fail_clear(world.master->disk);
        node_start(world.master);
    }
    world_run_ms(&world, 3 * SECOND);
    sim_fs_fail_clear(world.master->disk);
    assert_true(world_await(&world, world_is_open, 60000));
    await_all(13 * MINUTE);
    world_run_ms(&world, MINUTE);
    check_once(world.master);
    assert_true(world_await(&world, world_in_step, 60000));
    check_once(world.slave);
    world_end(&world);
}

static void a_failing_disk_loses_and_repeats_nothing(void **state)
{
    (void)state;
    static const enum sim_fs_op ops[] = {SIM_FS_OPEN, SIM_FS_PREAD,  SIM_FS_PWRITEV,
                                         SIM_FS_SYNC, SIM_FS_RENAME, SIM_FS_SYNC_DIR,
                                         SIM_FS_STAT, SIM_FS_LIST,   SIM_FS_UNLINK};
    static const char *const parts[] = {"/ternmq/delay", "config/delayOffset"};
    uint64_t seed = 400;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
            for (unsigned nth = 1; nth <= 4; nth++) {
                try_fault(ops[i], parts[p], nth, false, seed++);
                try_fault(ops[i], parts[p], nth, true, seed++);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_repeats_nothing_and_loses_nothing),
        cmocka_unit_test(a_slow_start_saves_nothing_before_it_has_read_what_was_saved),
        cmocka_unit_test(crashes_at_random_moments_repeat_nothing),
        cmocka_unit_test(what_a_lost_tail_delivered_comes_again),
        cmocka_unit_test(a_checkpoint_from_before_a_cut_is_not_believed),
        cmocka_unit_test(damaged_files_are_made_anew_from_the_log),
        cmocka_unit_test(a_damaged_body_is_given_up_not_delivered),
        cmocka_unit_test(a_damaged_record_does_not_stop_the_others),
        cmocka_unit_test(a_failing_disk_loses_and_repeats_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
