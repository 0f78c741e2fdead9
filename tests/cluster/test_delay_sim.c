/*
 * Delayed messages on virtual time: every one comes once, in time, whatever stops meanwhile
 * (D-1, D-2, MD-08, DL-02, DL-03, DL-04, DL-06). What came is read from the nodes' logs.
 * SIM_LOG=1 prints the log.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/names.h"
#include "base/props.h"
#include "base/rng.h"
#include "broker/schedule/buckets.h"
#include "broker/schedule/delay_event.h"
#include "broker/schedule/schedule.h"
#include "tests/cluster/set_world.h"

enum { DELAYED_MAX = 4096, PATIENCE_MS = 3000, ACCURACY_MS = 50, SECOND = 1000, MINUTE = 60000 };

struct delayed {
    bool acked, cancelled;
    int64_t due_ms, phys_off;
    uint32_t times;
    int64_t late_ms;
    char key[16];
};

static struct world world;
static struct delayed sent[DELAYED_MAX];
static uint32_t sent_count;

static int64_t now_ms(void)
{
    return clock_wall_ms(world.cluster.sim.env.clock);
}

static void prepare(uint64_t seed)
{
    memset(sent, 0, sizeof sent);
    sent_count = 0;
    world_prepare(&world, seed);
}

/* One message to queue number % 4, with one property that delays it. */
static enum tern_code send_to(const char *topic, const char *name, int64_t value, int64_t delay_ms)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    uint8_t props[256];
    size_t len = 0;
    char text[24];
    uint32_t number = sent_count++;
    struct delayed *d = &sent[number];
    assert_true(number < DELAYED_MAX);
    snprintf(text, sizeof text, "%" PRId64, value);
    snprintf(d->key, sizeof d->key, "K%" PRIu32, number);
    assert_int_equal(
        props_append(props, &len, sizeof props, name, strlen(name), text, strlen(text)), TERN_OK);
    assert_int_equal(props_append(props, &len, sizeof props, "UNIQ_KEY", 8, d->key, strlen(d->key)),
                     TERN_OK);
    assert_int_equal(props_append(props, &len, sizeof props, "TAGS", 4, "TagA", 4), TERN_OK);
    d->due_ms = now_ms() + delay_ms;
    send.producer_group = frame_bytes("putters", 7);
    send.topic = frame_bytes(topic, strlen(topic));
    send.queue_id = (int32_t)(number % WORLD_QUEUES);
    send.born_ms = 77;
    send.flag = 5;
    send.properties = frame_bytes((const char *)props, len);
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &send;
    enum tern_code code = world_ask(&world, world.master, "putter", &request, &number,
                                    sizeof number, PATIENCE_MS, &call);
    d->phys_off = -1;
    if (call && call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_SEND) {
        d->phys_off = call->response->send->physical_offset;
        /* The waiting begins when it was stored. */
        if (!strcmp(name, PROP_DELAY))
            d->due_ms = call->response->send->store_ms + delay_ms;
    }
    world_answer_free(call);
    d->acked = code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE ||
               code == TERN_FLUSH_SLAVE_TIMEOUT || code == TERN_FLUSH_DISK_TIMEOUT;
    return code;
}

static void send_in(int64_t delay_ms)
{
    enum tern_code code = send_to(WORLD_TOPIC, PROP_TIMER_DELAY_MS, delay_ms, delay_ms);
    assert_true(code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE);
}

static void send_level(int level)
{
    const struct delay_levels *levels = &world.master->config.delay_levels;
    enum tern_code code = send_to(WORLD_TOPIC, PROP_DELAY, level, levels->delay_ms[level - 1]);
    assert_true(code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE);
}

static char remark[512]; /* what the last cancelling was answered with */

static enum tern_code cancel(uint32_t number)
{
    struct rpc_call *call;
    Tern__Wire__CancelDelayedRequest body = TERN__WIRE__CANCEL_DELAYED_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.physical_offset = sent[number].phys_off;
    body.message_id = frame_bytes(sent[number].key, strlen(sent[number].key));
    request.body_case = TERN__WIRE__REQUEST__BODY_CANCEL_DELAYED;
    request.cancel_delayed = &body;
    enum tern_code code =
        world_ask(&world, world.master, "putter", &request, NULL, 0, PATIENCE_MS, &call);
    snprintf(remark, sizeof remark, "%s", call && call->response ? call->response->remark : "");
    world_answer_free(call);
    sent[number].cancelled = sent[number].cancelled || code == TERN_OK;
    return code;
}

/* ---- what came ---- */

static bool on_record(void *arg, const struct record *record)
{
    const char *topic = arg;
    uint32_t number;
    struct slice value;
    if (!delay_topic_is(record, topic) || record->body_len != sizeof number)
        return true;
    memcpy(&number, record->body, sizeof number);
    assert_true(number < sent_count);
    struct delayed *d = &sent[number];
    d->times++;
    d->late_ms = record->store_ms - d->due_ms;
    assert_int_equal(record->queue_id, number % WORLD_QUEUES);
    assert_int_equal(record->born_ms, 77);
    assert_int_equal(record->flag, 5);
    static const char *const gone[] = {PROP_DELAY,        PROP_REAL_TOPIC,    PROP_REAL_QID,
                                       PROP_TIMER_OUT_MS, PROP_TIMER_ROLL_MS, PROP_DELAY_TRIES};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        assert_false(props_get(record->props, record->props_len, gone[i], &value));
    assert_true(props_get(record->props, record->props_len, PROP_UNIQ_KEY, &value));
    return true;
}

static uint32_t read_topic(const struct sim_node *node, const char *topic)
{
    int64_t next;
    uint32_t all = 0;
    for (uint32_t i = 0; i < sent_count; i++)
        sent[i].times = 0;
    assert_int_equal(store_each_record(node->broker->store, 0, world_at(node).whole, on_record,
                                       (void *)(uintptr_t)topic, &next),
                     TERN_OK);
    for (uint32_t i = 0; i < sent_count; i++)
        all += sent[i].times;
    return all;
}

static void check_once(const struct sim_node *node)
{
    read_topic(node, WORLD_TOPIC);
    for (uint32_t i = 0; i < sent_count; i++) {
        uint32_t wanted = sent[i].cancelled ? 0 : 1;
        if (sent[i].times != wanted && (sent[i].acked || sent[i].times > 1))
            fail_msg("message %" PRIu32 " came %" PRIu32 " times at %s", i, sent[i].times,
                     node->address);
    }
}

static void check_in_time(void)
{
    for (uint32_t i = 0; i < sent_count; i++)
        if (sent[i].times && (sent[i].late_ms < 0 || sent[i].late_ms > ACCURACY_MS))
            fail_msg("message %" PRIu32 " came %" PRId64 " ms late", i, sent[i].late_ms);
}

static struct schedule_status status_of(const struct sim_node *node)
{
    struct schedule_status status;
    schedule_status(node->broker->schedule, &status);
    return status;
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

/* DL-03, DL-02 */
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
        cmocka_unit_test(each_level_is_delivered_once_and_on_time),
        cmocka_unit_test(a_ladder_of_sixty_four_levels_is_kept),
        cmocka_unit_test(any_due_time_is_kept),
        cmocka_unit_test(files_of_what_was_delivered_go),
        cmocka_unit_test(a_restart_repeats_nothing_and_loses_nothing),
        cmocka_unit_test(crashes_at_random_moments_repeat_nothing),
        cmocka_unit_test(what_a_lost_tail_delivered_comes_again),
        cmocka_unit_test(a_checkpoint_from_before_a_cut_is_not_believed),
        cmocka_unit_test(a_delay_longer_than_retention_is_put_again),
        cmocka_unit_test(what_expired_is_counted_and_blocks_nobody),
        cmocka_unit_test(a_deleted_topic_blocks_nobody_and_its_messages_are_kept),
        cmocka_unit_test(a_topic_that_comes_back_gets_its_messages),
        cmocka_unit_test(a_cancelled_message_never_comes),
        cmocka_unit_test(cancelling_races_with_delivering),
        cmocka_unit_test(a_refused_cancelling_says_where_and_what_to_do),
        cmocka_unit_test(a_rolled_message_is_cancelled_by_what_its_sender_knows),
        cmocka_unit_test(damaged_files_are_made_anew_from_the_log),
        cmocka_unit_test(a_damaged_body_is_given_up_not_delivered),
        cmocka_unit_test(a_damaged_record_does_not_stop_the_others),
        cmocka_unit_test(a_failing_disk_loses_and_repeats_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
