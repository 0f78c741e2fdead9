/* Two nodes on real files, threads and the loopback: written to, re-attached and stopped at once.
 */
#include "tests/unit/ha/ha_node.h"

#include <pthread.h>

enum { SENDERS = 2, PER_SENDER = 1500, ATTACHES = 12, WAIT_MS = 60000 };

static char root[128];
static struct env env;
static struct link *links[2];
static struct node nodes[2];
static uint64_t number;

static int set_up(void **state)
{
    char dir[160];
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/tern-pair-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(root))
        return -1;
    env_init_system(&env, NULL);
    number = 0;
    for (size_t i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "%s/%zu", root, i);
        node_init(&nodes[i], &env, "127.0.0.1", dir, (uint8_t)(i + 1));
        assert_ok(link_nng_create(&env, &links[i], NULL));
        node_start(&nodes[i], links[i], 0, (int64_t)i, i == 0, &number);
    }
    return 0;
}

static int tear_down(void **state)
{
    char command[256];
    (void)state;
    for (size_t i = 0; i < 2; i++)
        node_stop(&nodes[i]);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void *send_many(void *arg)
{
    int32_t queue_id = *(const int32_t *)arg;
    for (int i = 0; i < PER_SENDER; i++)
        node_send(&nodes[0], queue_id, (size_t)(i * 37 % 900), (uint8_t)i);
    return NULL;
}

/* Waits until the condition holds; fails the test when that takes too long. */
static void wait_for(bool (*done)(void *arg), void *arg)
{
    struct latch never;
    latch_init(&never);
    int64_t limit_ns = clock_mono_ns(env.clock) + ms_to_ns(WAIT_MS);
    while (!done(arg)) {
        if (clock_mono_ns(env.clock) > limit_ns)
            fail_msg("not within a minute");
        (void)!latch_wait(env.sched, &never, clock_mono_ns(env.clock) + ms_to_ns(2));
    }
}

/* So many messages were answered, and the slave has them. */
static bool is_same(void *arg)
{
    return atomic_load(&nodes[0].appended) == *(const uint64_t *)arg &&
           nodes_are_same(&nodes[0], &nodes[1]);
}

static bool has_settled(void *arg)
{
    return atomic_load(&nodes[1].settled) >= *(const uint32_t *)arg;
}

static void a_slave_follows_while_everything_moves(void **state)
{
    (void)state;
    pthread_t senders[SENDERS];
    int32_t queues[SENDERS];
    struct replica_status *status = calloc(1, sizeof *status);
    uint64_t sent = SENDERS * PER_SENDER;
    char text[256];
    assert_non_null(status);
    node_follow(&nodes[1], &nodes[0]);
    for (int i = 0; i < SENDERS; i++) {
        queues[i] = i;
        assert_int_equal(pthread_create(&senders[i], NULL, send_many, &queues[i]), 0);
    }
    for (uint32_t i = 0; i < ATTACHES; i++) {
        uint32_t settled = atomic_load(&nodes[1].settled) + 1;
        replica_idle(nodes[1].replica);
        node_follow(&nodes[1], &nodes[0]);
        replica_on_change(nodes[1].replica);
        wait_for(has_settled, &settled);
        replica_status(nodes[1].replica, status);
        assert_true(replica_readable(nodes[1].replica, text, sizeof text));
    }
    for (int i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_join(senders[i], NULL), 0);
    wait_for(is_same, &sent);
    nodes_check_same(&nodes[0], &nodes[1]);
    free(status);
}

/* Stopping in the middle of copying ends at once and whole. */
static void a_slave_stops_while_it_copies(void **state)
{
    (void)state;
    int32_t queue = 0;
    uint32_t once = 1;
    uint32_t twice = 2;
    uint64_t sent = PER_SENDER;
    pthread_t sender;
    node_follow(&nodes[1], &nodes[0]);
    assert_int_equal(pthread_create(&sender, NULL, send_many, &queue), 0);
    wait_for(has_settled, &once);
    node_stop(&nodes[1]);
    assert_int_equal(pthread_join(sender, NULL), 0);
    assert_ok(link_nng_create(&env, &links[1], NULL));
    node_start(&nodes[1], links[1], 0, 1, false, &number);
    node_follow(&nodes[1], &nodes[0]);
    wait_for(has_settled, &twice);
    wait_for(is_same, &sent);
    nodes_check_same(&nodes[0], &nodes[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slave_follows_while_everything_moves),
        TEST(a_slave_stops_while_it_copies),
    };
    return cmocka_run_group_tests_name("ha pair, threads", tests, NULL, NULL);
}
