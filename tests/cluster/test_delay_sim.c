/*
 * Delayed messages on virtual time: every one comes once and in time, is cancelled, or kept where
 * it cannot go (D-1, D-2, DL-04, DL-06). SIM_LOG=1 prints the log.
 */
#include "tests/cluster/delay_world.h"

#include <inttypes.h>

#include "base/names.h"
#include "base/props.h"
#include "base/rng.h"
#include "broker/store/consume_queue_internal.h"
#include "broker/store/store_internal.h"

/* ---- what came ---- */

static void check_in_time(void)
{
    for (uint32_t i = 0; i < sent_count; i++)
        if (sent[i].times && (sent[i].late_ms < 0 || sent[i].late_ms > ACCURACY_MS))
            fail_msg("message %" PRIu32 " came %" PRId64 " ms late", i, sent[i].late_ms);
}

/* ---- levels and due times ---- */

/* D-1 */
static void each_level_is_delivered_once_and_on_time(void **state)
{
    (void)state;
    prepare(1);
    world_start(&world);
    for (int round = 0; round < 3; round++) {
        for (int level = 1; level <= 18; level++)
            send_level(level);
        world_run_ms(&world, 777);
    }
    world_run_ms(&world, 2 * 60 * MINUTE + 5 * SECOND);
    check_once(world.master);
    check_in_time();
    check_once(world.slave);
    world_end(&world);
}

/* A ladder longer than RocketMQ's preset one: each of its levels has its queue. */
static void a_ladder_of_sixty_four_levels_is_kept(void **state)
{
    (void)state;
    char text[256] = "";
    size_t len = 0;
    struct tern_error err;
    prepare(12);
    for (int i = 0; i < DELAY_LEVELS_MAX; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%ds", i ? " " : "", 1 + i % 9);
    for (int i = 0; i < 2; i++) {
        struct sim_node *node = i ? world.slave : world.master;
        snprintf(node->config.delay_level_text, sizeof node->config.delay_level_text, "%s", text);
        assert_int_equal(delay_levels_parse(text, &node->config.delay_levels, &err), TERN_OK);
        assert_int_equal(node->config.delay_levels.count, DELAY_LEVELS_MAX);
    }
    world_start(&world);
    for (int level = 1; level <= DELAY_LEVELS_MAX; level++)
        send_level(level);
    world_run_ms(&world, 12 * SECOND);
    check_once(world.master);
    check_in_time();
    check_once(world.slave);
    world_end(&world);
}

/* D-2 */
static void any_due_time_is_kept(void **state)
{
    (void)state;
    prepare(2);
    world_start(&world);
    for (int i = 0; i < 600; i++)
        send_in((int64_t)rng_below(&world.cluster.sim.rng.rng, i % 2 ? 5 * SECOND : 180 * MINUTE) +
                100);
    world_run_ms(&world, 181 * MINUTE);
    check_once(world.master);
    check_in_time();
    assert_int_equal(status_of(world.master).timer_pending, 0);
    assert_int_equal(status_of(world.slave).timer_pending, 0);
    world_run_ms(&world, 60 * MINUTE);
    assert_int_equal(status_of(world.master).delivered, 600);
    world_end(&world);
}

static void files_of_what_was_delivered_go(void **state)
{
    (void)state;
    prepare(3);
    world_start(&world);
    for (int i = 0; i < 40; i++)
        send_in(i * MINUTE + 100);
    world_run_ms(&world, 30 * SECOND);
    assert_true(status_of(world.master).timer_files >= 4);
    for (int i = 0; i < 200; i++) { /* checkpoints come with traffic */
        world_run_ms(&world, 30 * SECOND);
        world_put_some(&world, 0, 1);
    }
    assert_int_equal(status_of(world.master).timer_files, 0);
    assert_int_equal(status_of(world.slave).timer_files, 0);
    world_end(&world);
}

/* ---- longer than retention, and what is gone ---- */

/* DL-04 */
static void a_delay_longer_than_retention_is_put_again(void **state)
{
    (void)state;
    prepare(5);
    world.master->config.retention_ms = world.slave->config.retention_ms = 20 * SECOND;
    world_start(&world);
    for (int i = 0; i < 20; i++)
        send_in(60 * SECOND + i * SECOND);
    for (int i = 0; i < 90; i++) {
        world_run_ms(&world, SECOND);
        world_put_segments(&world, 1);
        store_expire_now(world.master->broker->store);
        store_expire_now(world.slave->broker->store);
        read_topic(world.master, WORLD_TOPIC);
    }
    struct schedule_status status = status_of(world.master);
    assert_int_equal(status.delivered, 20);
    assert_int_equal(status.discarded + status.expired + status.dead, 0);
    assert_true(status.rolled >= 40);
    assert_int_equal(status_of(world.slave).timer_pending, 0);
    world_end(&world);
}

/* DL-06: what a full disk took is skipped and counted; others come in time. */
static void what_expired_is_counted_and_blocks_nobody(void **state)
{
    (void)state;
    prepare(6);
    world_start(&world);
    node_kill(world.slave);
    for (int i = 0; i < 10; i++) {
        send_in(30 * SECOND);
        send_level(4);
    }
    world_put_segments(&world, 3);
    world.master->broker->config.retention_ms = 1;
    node_stop(world.master);
    world.master->config.retention_ms = 1;
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 60000));
    world_run_ms(&world, 100);
    store_expire_now(world.master->broker->store);
    send_in(31 * SECOND);
    world_run_ms(&world, 60 * SECOND);
    struct schedule_status status = status_of(world.master);
    assert_int_equal(status.expired, 20);
    read_topic(world.master, WORLD_TOPIC);
    assert_int_equal(sent[20].times, 1);
    assert_int_equal(status.timer_pending, 0);
    world_end(&world);
}

/* ---- topics that do not take their messages ---- */

static void a_deleted_topic_blocks_nobody_and_its_messages_are_kept(void **state)
{
    (void)state;
    prepare(7);
    world_start(&world);
    assert_int_equal(world_create_topic(&world, "Gone"), TERN_OK);
    assert_int_equal(send_to("Gone", PROP_DELAY, 2, 5 * SECOND), TERN_OK);
    assert_int_equal(send_to("Gone", PROP_TIMER_DELAY_MS, 5000, 5 * SECOND), TERN_OK);
    sent[0].acked = sent[1].acked = false;
    assert_int_equal(world_delete_topic(&world, "Gone"), TERN_OK);
    send_level(2);
    send_in(5 * SECOND);
    world_run_ms(&world, 6 * SECOND);
    check_once(world.master);
    check_in_time();
    assert_true(status_of(world.master).retried >= 2);
    world_run_ms(&world, 3 * 60 * MINUTE);
    assert_int_equal(status_of(world.master).dead, 2);
    int64_t min, max;
    store_queue_range(world.master->broker->store, DELAY_DEAD_TOPIC, 0, &min, &max);
    assert_int_equal(max, 2);
    assert_int_equal(status_of(world.master).timer_pending, 0);
    world_end(&world);
}

static void a_topic_that_comes_back_gets_its_messages(void **state)
{
    (void)state;
    prepare(8);
    world_start(&world);
    assert_int_equal(world_create_topic(&world, "Back"), TERN_OK);
    assert_int_equal(send_to("Back", PROP_DELAY, 1, SECOND), TERN_OK);
    assert_int_equal(world_delete_topic(&world, "Back"), TERN_OK);
    world_run_ms(&world, 10 * SECOND);
    assert_int_equal(world_create_topic(&world, "Back"), TERN_OK);
    world_run_ms(&world, 30 * SECOND);
    assert_int_equal(read_topic(world.master, "Back"), 1);
    world_end(&world);
}

/* As if the master had all the queues that it can have; returns what to give back. */
static uint32_t take_all_queues(void)
{
    struct queue_table *table = world.master->broker->store->queues;
    uint32_t taken = QUEUES_MAX - table->count;
    table->count += taken;
    return taken;
}

static void give_back_queues(uint32_t taken)
{
    world.master->broker->store->queues->count -= taken;
}

/* Its queue was there when it was sent, empty, and is not there after a restart. It waits on as the
 * timer's, with growing pauses; where that has no queue either, as it is. Others come in time. */
static void a_message_without_a_queue_waits_on_and_blocks_nobody(void **state)
{
    (void)state;
    for (int timer = 0; timer < 2; timer++) {
        prepare(20);
        world_start(&world);
        world_put_some(&world, 1, 1);
        assert_int_equal(world_create_topic(&world, "Late"), TERN_OK);
        assert_int_equal(send_to("Late", PROP_DELAY, 4, 30 * SECOND), TERN_OK);
        send_level(4);
        if (timer) {
            assert_int_equal(send_to("Late", PROP_TIMER_DELAY_MS, 30 * SECOND, 30 * SECOND),
                             TERN_OK);
            sent[2].acked = false;
        }
        sent[0].acked = false; /* not to the world's topic */
        node_stop(world.master);
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 10000));
        uint32_t taken = take_all_queues();
        world_run_ms(&world, 60 * SECOND);
        check_once(world.master);
        check_in_time();
        assert_int_equal(read_topic(world.master, "Late"), 0);
        assert_int_equal(status_of(world.master).delivered, 1);
        assert_int_equal(status_of(world.master).dead, 0);
        assert_in_range(status_of(world.master).retried, timer ? 4 : 0, timer ? 12 : 0);
        give_back_queues(taken);
        world_run_ms(&world, 2 * MINUTE);
        assert_int_equal(read_topic(world.master, "Late"), timer ? 2 : 1);
        assert_int_equal(sent[0].times, 1);
        world_end(&world);
    }
}

/* ---- cancelling ---- */

static void a_cancelled_message_never_comes(void **state)
{
    (void)state;
    prepare(9);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    for (int i = 0; i < 20; i++) {
        send_in(i < 10 ? 20 * SECOND : 40 * MINUTE);
        send_level(i < 10 ? 3 : 5);
    }
    for (uint32_t i = 0; i < sent_count; i += 3)
        assert_int_equal(cancel(i), TERN_OK);
    for (uint32_t i = 0; i < sent_count; i += 3)
        assert_int_equal(cancel(i), TERN_QUERY_NOT_FOUND);
    node_power_off(world.master, SIM_TORN_NONE);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 60000));
    world_run_ms(&world, 41 * MINUTE);
    check_once(world.master);
    check_once(world.slave);
    for (uint32_t i = 0; i < sent_count; i++)
        assert_int_equal(cancel(i), TERN_QUERY_NOT_FOUND);
    world_end(&world);
}

/* One winner: what was cancelled does not come, what came was not cancelled. */
static void cancelling_races_with_delivering(void **state)
{
    (void)state;
    prepare(10);
    world_start(&world);
    for (int i = 0; i < 200; i++) {
        send_in(50 + i % 7);
        world_run_ms(&world, 45 + (int64_t)rng_below(&world.cluster.sim.rng.rng, 12));
        enum tern_code code = cancel(sent_count - 1);
        assert_true(code == TERN_OK || code == TERN_QUERY_NOT_FOUND);
    }
    world_run_ms(&world, SECOND);
    check_once(world.master);
    world_end(&world);
}

/* What, where, and what to do now. */
static void a_refused_cancelling_says_where_and_what_to_do(void **state)
{
    (void)state;
    char where[64];
    prepare(13);
    world_start(&world);
    send_in(20 * SECOND);
    assert_int_equal(cancel(0), TERN_OK);
    assert_int_equal(cancel(0), TERN_QUERY_NOT_FOUND);
    snprintf(where, sizeof where, "position %" PRId64 " of broker broker-a", sent[0].phys_off);
    assert_non_null(strstr(remark, where));
    assert_non_null(strstr(remark, "mqadmin why"));
    sent[0].phys_off += 1000000;
    assert_int_equal(cancel(0), TERN_QUERY_NOT_FOUND);
    assert_non_null(strstr(remark, "does not reach there"));
    world_end(&world);
}

static void a_rolled_message_is_cancelled_by_what_its_sender_knows(void **state)
{
    (void)state;
    prepare(11);
    world.master->config.retention_ms = world.slave->config.retention_ms = 20 * SECOND;
    world_start(&world);
    send_in(60 * SECOND);
    world_run_ms(&world, 25 * SECOND);
    assert_true(status_of(world.master).rolled >= 2);
    assert_int_equal(cancel(0), TERN_OK);
    world_run_ms(&world, 60 * SECOND);
    check_once(world.master);
    world_end(&world);
}

/* ---- a wall clock that jumps ---- */

static void wall_jumps_ms(int64_t delta_ms)
{
    sim_clock_set_wall(&world.cluster.sim.clock, now_ms() + delta_ms);
}

/* How many came until `wait_ms` from now. */
static uint32_t came_after(int64_t wait_ms)
{
    world_run_ms(&world, wait_ms);
    return read_topic(world.master, WORLD_TOPIC);
}

static void a_clock_set_back_does_not_stretch_a_level(void **state)
{
    (void)state;
    prepare(13);
    world_start(&world);
    send_level(3); /* 10 s */
    world_run_ms(&world, 2 * SECOND);
    send_level(3);
    wall_jumps_ms(-60 * MINUTE);
    assert_int_equal(came_after(8 * SECOND - ACCURACY_MS), 0);
    assert_int_equal(came_after(2 * ACCURACY_MS), 1);
    world_run_ms(&world, 10 * SECOND);
    check_once(world.master);
    world_end(&world);
}

/* Store times stand still until the clock has caught up with them: no message, and no retry, may
 * come at once because of that. */
static void a_clock_that_was_ahead_does_not_shorten_a_level(void **state)
{
    (void)state;
    prepare(14);
    world_start(&world);
    wall_jumps_ms(60 * MINUTE);
    send_level(1);
    assert_int_equal(came_after(2 * SECOND), 1);
    wall_jumps_ms(-60 * MINUTE);
    send_level(3);
    int64_t sent_ms = now_ms();
    world_run_ms(&world, 5 * SECOND);
    for (int i = 0; i < 100; i++)
        send_level(3); /* takes time, too */
    assert_int_equal(came_after(sent_ms + 10 * SECOND - ACCURACY_MS - now_ms()), 1);
    assert_int_equal(came_after(2 * ACCURACY_MS), 2);
    assert_int_equal(came_after(5 * SECOND - 2 * ACCURACY_MS), 2);
    assert_int_equal(came_after(5 * SECOND + 2 * ACCURACY_MS), 102);
    check_once(world.master);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_level_is_delivered_once_and_on_time),
        cmocka_unit_test(a_ladder_of_sixty_four_levels_is_kept),
        cmocka_unit_test(any_due_time_is_kept),
        cmocka_unit_test(files_of_what_was_delivered_go),
        cmocka_unit_test(a_delay_longer_than_retention_is_put_again),
        cmocka_unit_test(what_expired_is_counted_and_blocks_nobody),
        cmocka_unit_test(a_deleted_topic_blocks_nobody_and_its_messages_are_kept),
        cmocka_unit_test(a_topic_that_comes_back_gets_its_messages),
        cmocka_unit_test(a_message_without_a_queue_waits_on_and_blocks_nobody),
        cmocka_unit_test(a_cancelled_message_never_comes),
        cmocka_unit_test(cancelling_races_with_delivering),
        cmocka_unit_test(a_refused_cancelling_says_where_and_what_to_do),
        cmocka_unit_test(a_rolled_message_is_cancelled_by_what_its_sender_knows),
        cmocka_unit_test(a_clock_set_back_does_not_stretch_a_level),
        cmocka_unit_test(a_clock_that_was_ahead_does_not_shorten_a_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
