/*
 * Broadcasting: all to all, what "started" means, and the directory that progress is in,
 * R-7, RO-11, RO-13, OF-03.
 */
#include "tests/unit/client/broadcast_member.h"

#include <errno.h>

#include "base/fs.h"

#define FILE_OF_DEFAULT DIR_TEXT "/DEFAULT/group/offsets"

/* ---- files of the simulated disk ---- */

static void put_file(struct fake *fake, const char *path, const char *text)
{
    struct file *file;
    char dir[FS_PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = '\0';
    assert_ok(fs_mkdirs(fake->env.fs, dir));
    assert_ok(fs_open(fake->env.fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file));
    assert_ok(file_pwrite(file, text, strlen(text), 0));
    file_close(file);
}

static void expect_file(struct fake *fake, const char *path, const char *expected)
{
    struct file *file;
    char text[4096];
    size_t got;
    assert_ok(fs_open(fake->env.fs, path, FS_READ, &file));
    assert_ok(file_pread(file, text, sizeof text - 1, 0, &got));
    file_close(file);
    text[got] = '\0';
    assert_string_equal(text, expected);
}

/* ---- all to all ---- */

static void every_member_gets_every_message_of_every_queue(void **state)
{
    (void)state;
    struct fake *fake = fake_create(4);
    struct member members[2] = {member_create(fake, "a"), member_create(fake, "b")};
    for (int i = 0; i < 2; i++)
        member_start(&members[i]);
    assert_int_equal(sim_log_count(&fake->sim, "model=BROADCASTING"), 2);
    for (int q = 0; q < 4; q++)
        fake_publish(fake, q, NULL, 50);
    fake_run_ms(fake, 6000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(members[i].heard->count, 200);
        assert_int_equal(member_stats(&members[i]).queues, 4);
    }
    assert_int_equal(fake->queues[0].committed, -1); /* the broker hears of no progress */
    assert_int_equal(fake->last_pull_commit, -1);
    assert_int_equal(fake->brokers[0].members_asked, 0);
    assert_int_equal(fake->queries, 0);
    for (int i = 0; i < 2; i++)
        member_end(&members[i]);
    fake_destroy(fake);
}

/* RO-13: without a name of its own a member is the same one after a restart */
static void a_restarted_member_goes_on_where_it_was(void **state)
{
    (void)state;
    struct fake *fake = fake_create(2);
    struct member member = member_create(fake, NULL);
    member_start(&member);
    fake_publish(fake, 0, NULL, 10);
    fake_publish(fake, 1, NULL, 20);
    fake_run_ms(fake, 6000);
    assert_int_equal(member.heard->count, 30);
    expect_file(fake, FILE_OF_DEFAULT, "ternmq-offsets 1\nT broker-a 0 10\nT broker-a 1 20\n");
    fake_publish(fake, 0, NULL, 5); /* just before the end: no interval has passed */
    fake_run_ms(fake, 100);
    member_stop(&member);
    expect_file(fake, FILE_OF_DEFAULT, "ternmq-offsets 1\nT broker-a 0 15\nT broker-a 1 20\n");
    fake_publish(fake, 1, NULL, 7); /* while it is away */
    member_start(&member);
    fake_run_ms(fake, 1000);
    assert_int_equal(member.heard->count, 42);
    assert_int_equal(heard_times(member.heard, 1, 20), 1);
    member_end(&member);
    fake_destroy(fake);
}

/* What was consumed since the last write comes again after a power loss; nothing is skipped. */
static void a_power_loss_repeats_but_skips_nothing(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_create(fake, NULL);
    member_start(&member);
    fake_publish(fake, 0, NULL, 10);
    fake_run_ms(fake, 6000);
    struct fs_stat stat;
    assert_ok(fs_stat(fake->env.fs, FILE_OF_DEFAULT, &stat));
    member_stop(&member);
    sim_fs_power_loss(fake->sim.fs, SIM_TORN_NONE);
    fake_publish(fake, 0, NULL, 10);
    member_start(&member);
    fake_run_ms(fake, 1000);
    assert_int_equal(heard_times(member.heard, 0, 10), 1);
    assert_int_equal(member.heard->count, 20);
    member_end(&member);
    fake_destroy(fake);
}

/* Whichever call of the first write fails: listeners go on, and the next interval writes. */
static void a_disk_that_fails_once_is_written_again(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth < 40; nth++) {
        struct fake *fake = fake_create(1);
        struct member member = member_create(fake, NULL);
        member_start(&member);
        fake_run_ms(fake, 1000);
        const struct sim_fs_fault fault = {SIM_FS_ANY, "offsets", nth, ENOSPC, false};
        sim_fs_fail(fake->sim.fs, &fault);
        fake_publish(fake, 0, NULL, 10);
        fake_run_ms(fake, 12000);
        assert_int_equal(member.heard->count, 10);
        sim_fs_fail_clear(fake->sim.fs);
        expect_file(fake, FILE_OF_DEFAULT, "ternmq-offsets 1\nT broker-a 0 10\n");
        member_end(&member);
        fake_destroy(fake);
    }
}

/* There is no next interval: who shuts down is told, and consumes the rest again. */
static void a_last_write_that_fails_is_what_shutdown_returns(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_create(fake, NULL);
    member_start(&member);
    fake_publish(fake, 0, NULL, 10);
    fake_run_ms(fake, 6000);
    fake_publish(fake, 0, NULL, 5);
    fake_run_ms(fake, 100);
    assert_int_equal(member.heard->count, 15);
    const struct sim_fs_fault fault = {SIM_FS_ANY, "offsets", 1, ENOSPC, true};
    sim_fs_fail(fake->sim.fs, &fault);
    assert_int_equal(tern_push_consumer_shutdown(member.consumer, 1000), TERN_NO_SPACE);
    assert_int_equal(tern_push_consumer_shutdown(member.consumer, 1000), TERN_STATE);
    assert_int_equal(sim_log_count(&fake->sim, FILE_OF_DEFAULT), 1);
    sim_fs_fail_clear(fake->sim.fs);
    member_stop(&member);
    expect_file(fake, FILE_OF_DEFAULT, "ternmq-offsets 1\nT broker-a 0 10\n");
    member_start(&member);
    fake_run_ms(fake, 1000);
    assert_int_equal(member.heard->count, 20);
    assert_int_equal(heard_times(member.heard, 0, 12), 2);
    assert_int_equal(tern_push_consumer_shutdown(member.consumer, 1000), TERN_OK);
    member_end(&member);
    fake_destroy(fake);
}

/* OF-03 */
static void an_illegal_stored_offset_is_corrected_once(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_create(fake, NULL);
    fake_publish(fake, 0, NULL, 100);
    put_file(fake, FILE_OF_DEFAULT, "ternmq-offsets 1\nT broker-a 0 1000000000\n");
    member_start(&member);
    fake_run_ms(fake, 6000);
    assert_int_equal(sim_log_count(&fake->sim, "consumer_offset_illegal"), 1);
    expect_file(fake, FILE_OF_DEFAULT, "ternmq-offsets 1\nT broker-a 0 100\n");
    fake_publish(fake, 0, NULL, 3);
    fake_run_ms(fake, 6000);
    assert_int_equal(member.heard->count, 3);
    member_stop(&member);
    member_start(&member);
    fake_run_ms(fake, 6000);
    assert_int_equal(sim_log_count(&fake->sim, "consumer_offset_illegal"), 1);
    assert_int_equal(member.heard->count, 3);
    member_end(&member);
    fake_destroy(fake);
}

/* R-6 for broadcasting: nobody to send it back to */
static void a_failed_message_is_dropped_and_counted(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_create(fake, NULL);
    member.heard->fail_offset = 3;
    member.heard->fail_times = -1;
    member_start(&member);
    fake_publish(fake, 0, NULL, 10);
    fake_run_ms(fake, 6000);
    struct tern_consumer_stats stats = member_stats(&member);
    assert_int_equal(stats.dropped, 1);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.consumed, 9);
    assert_int_equal(stats.cached, 0);
    assert_int_equal(fake->sent_back, 0);
    assert_int_equal(sim_log_count(&fake->sim, "consumer_message_dropped"), 1);
    assert_int_equal(heard_times(member.heard, 0, 3), 1);
    expect_file(fake, FILE_OF_DEFAULT, "ternmq-offsets 1\nT broker-a 0 10\n");
    member_end(&member);
    fake_destroy(fake);
}

/* ---- started means: from here on all (RO-11) ---- */

struct sender {
    struct fake *fake;
    bool running;
};

static void send_one(void *arg)
{
    struct sender *sender = arg;
    struct fake *fake = sender->fake;
    if (!sender->running)
        return;
    fake_publish(fake, (int)(fake->queues[0].max % fake->queue_count), NULL, 1);
    fake_publish(fake, 0, NULL, 1);
    sim_after(fake->sim.sched, ms_to_ns(10), send_one, sender);
}

static void a_member_hears_all_that_is_sent_after_its_start(void **state)
{
    (void)state;
    struct fake *fake = fake_create(4);
    struct sender sender = {fake, true};
    send_one(&sender);
    for (int round = 0; round < 20; round++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", round);
        struct member member = member_create(fake, name);
        sim_net_set_delay(fake->net, ms_to_ns(1 + round), ms_to_ns(3 + 3 * round));
        member_start(&member);
        int64_t from[4];
        for (int q = 0; q < 4; q++)
            from[q] = fake->queues[q].max;
        fake_run_ms(fake, 300 + 17 * round);
        int64_t to[4];
        for (int q = 0; q < 4; q++)
            to[q] = fake->queues[q].max;
        fake_run_ms(fake, 500);
        for (int q = 0; q < 4; q++)
            for (int64_t o = from[q]; o < to[q]; o++)
                assert_int_equal(heard_times(member.heard, q, o), 1);
        member_end(&member);
    }
    sender.running = false;
    fake_destroy(fake);
}

/* What is found later begins at the time of the start. */
static void a_queue_that_appears_later_begins_at_the_members_start(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_create(fake, NULL);
    member_start(&member);
    fake_run_ms(fake, 5000);
    fake_publish(fake, 1, NULL, 30);
    fake->search_answer = 12; /* the first ones are older than the start */
    fake->queue_count = 2;
    fake_run_ms(fake, 31000);
    assert_int_equal(member.heard->count, 18);
    assert_int_equal(member.heard->items[0].offset, 12);
    int64_t ago_ms = clock_wall_ms(fake->env.clock) - fake->last_search_ms;
    assert_in_range(ago_ms, 35900, 36100);
    member_end(&member);
    fake_destroy(fake);
}

static void a_start_without_brokers_returns_and_says_so(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_create(fake, NULL);
    fake_node_down(&fake->brokers[0]);
    fake_node_down(&fake->brokers[1]);
    int64_t begin_ns = clock_mono_ns(fake->env.clock);
    member_start(&member);
    assert_true(clock_mono_ns(fake->env.clock) - begin_ns < ms_to_ns(8000));
    assert_int_equal(sim_log_count(&fake->sim, "consumer_begins_late"), 1);
    fake_node_up(&fake->brokers[0]);
    fake->search_answer = 0;
    fake_publish(fake, 0, NULL, 10);
    fake_run_ms(fake, 35000);
    assert_int_equal(member.heard->count, 10);
    member_end(&member);
    fake_destroy(fake);
}

/* ---- the directory ---- */

/* Two processes of one machine, both without a name: one file for two would lose progress. */
static void two_processes_do_not_share_a_file(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member first = member_create(fake, NULL);
    struct member second = member_create(fake, NULL);
    struct link *other = sim_net_link(fake->net, "10.0.0.10");
    struct tern_error err;
    tern_consumer_options_world(second.options, &fake->env, other);
    member_start(&first);
    assert_int_equal(member_try_start(&second, &err), TERN_IN_USE);
    assert_contains(err.text, DIR_TEXT "/DEFAULT/group");
    assert_contains(err.text, "instance name");
    member_stop(&second);
    member_stop(&first);
    member_start(&second); /* the lock went with its holder */
    member_end(&second);
    member_end(&first);
    link_destroy(other);
    fake_destroy(fake);
}

static void the_same_group_twice_in_one_instance_is_refused(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member first = member_create(fake, NULL);
    struct member second = member_create(fake, NULL);
    struct tern_error err;
    member_start(&first);
    assert_int_equal(member_try_start(&second, &err), TERN_EXISTS);
    assert_contains(err.text, "has been created before");
    fake_publish(fake, 0, NULL, 1);
    fake_run_ms(fake, 1000);
    assert_int_equal(first.heard->count, 1);
    member_end(&second);
    member_end(&first);
    fake_destroy(fake);
}

static void a_damaged_file_refuses_the_start_and_stays(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "ternmq-offsets 2\n",
        "ternmq-offsets 1\nT broker-a 0\n",
        "ternmq-offsets 1\nT broker-a 0 -1\n",
        "ternmq-offsets 1\nT broker-a 0 99999999999999999999\n",
        "ternmq-offsets 1\nT broker-a 4294967296 1\n",
        "ternmq-offsets 1\nT bro/ker 0 1\n",
        "ternmq-offsets 1\nT broker-a 0 1",
        "ternmq-offsets 1\n\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct fake *fake = fake_create(1);
        struct member member = member_create(fake, NULL);
        struct tern_error err;
        put_file(fake, FILE_OF_DEFAULT, texts[i]);
        assert_int_equal(member_try_start(&member, &err), TERN_CORRUPT);
        assert_contains(err.text, FILE_OF_DEFAULT);
        assert_int_equal(fake->member_count, 0);
        expect_file(fake, FILE_OF_DEFAULT, texts[i]);
        member_end(&member);
        fake_destroy(fake);
    }
}

/* Names may hold anything; the path does not. */
static void names_become_paths_safely(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct member member = member_create(fake, "../a b/%");
    struct fs_stat stat;
    member_start(&member);
    fake_run_ms(fake, 6000);
    assert_ok(fs_stat(fake->env.fs, DIR_TEXT "/%2E%2E%2Fa%20b%2F%25/group/offsets", &stat));
    member_end(&member);
    fake_destroy(fake);
}

static void settings_of_broadcasting_are_checked(void **state)
{
    (void)state;
    struct tern_consumer_options *options = tern_consumer_options_create();
    assert_int_equal(tern_consumer_options_model(options, (enum tern_message_model)7),
                     TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "messageModel is 7");
    assert_int_equal(tern_consumer_options_offset_dir(options, ""), TERN_INVALID);
    struct tern_offset_store half = {.arg = options};
    assert_int_equal(tern_consumer_options_offset_store(options, &half), TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "query");
    tern_consumer_options_destroy(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_gets_every_message_of_every_queue),
        cmocka_unit_test(a_restarted_member_goes_on_where_it_was),
        cmocka_unit_test(a_power_loss_repeats_but_skips_nothing),
        cmocka_unit_test(a_disk_that_fails_once_is_written_again),
        cmocka_unit_test(a_last_write_that_fails_is_what_shutdown_returns),
        cmocka_unit_test(an_illegal_stored_offset_is_corrected_once),
        cmocka_unit_test(a_failed_message_is_dropped_and_counted),
        cmocka_unit_test(a_member_hears_all_that_is_sent_after_its_start),
        cmocka_unit_test(a_queue_that_appears_later_begins_at_the_members_start),
        cmocka_unit_test(a_start_without_brokers_returns_and_says_so),
        cmocka_unit_test(two_processes_do_not_share_a_file),
        cmocka_unit_test(the_same_group_twice_in_one_instance_is_refused),
        cmocka_unit_test(a_damaged_file_refuses_the_start_and_stays),
        cmocka_unit_test(names_become_paths_safely),
        cmocka_unit_test(settings_of_broadcasting_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
