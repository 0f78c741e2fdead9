/*
 * Groups of real processes: who reads a queue when a member is killed or joins, and broadcasting
 * with its local file (R-1, R-3, R-7, RO-11, RO-13).
 */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <tern/tern.h>

#include "tests/component/daemons.h"
#include "tests/unit/base/unit.h"

enum { QUEUES = 8, ROUNDS = 5, TAKEOVER_MS = 15000 };

static struct cluster cluster;
static struct tern_producer *producer;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, NULL);
    struct tern_producer_options *options = tern_producer_options_create();
    assert_ok(tern_producer_options_namesrv(options, cluster.namesrv_list));
    assert_ok(tern_producer_options_send_timeout_ms(options, PATIENCE_MS));
    assert_ok(tern_producer_create(options, &producer, NULL));
    tern_producer_options_destroy(options);
    assert_ok(tern_producer_start(producer, NULL));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tern_producer_destroy(producer);
    cluster_down(&cluster);
    return 0;
}

static void make_topic(const char *topic)
{
    free(MQADMIN(&cluster, 0, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "8", "-w",
                 "8"));
}

static void send_numbers(const char *topic, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        char body[16];
        struct tern_message *message;
        struct tern_send_result result;
        snprintf(body, sizeof body, "%d", i);
        assert_ok(tern_message_create(topic, body, strlen(body), &message, NULL));
        assert_ok(tern_producer_send(producer, message, &result, NULL));
        tern_message_unref(message);
    }
}

/* ---- a member in this process ---- */

enum { NUMBERS_MAX = 256 };

struct inbox {
    pthread_mutex_t lock;
    unsigned times[NUMBERS_MAX], count;
};

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct inbox *inbox = arg;
    pthread_mutex_lock(&inbox->lock);
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const char *body = tern_message_body(messages[i], &size);
        char text[16] = "";
        memcpy(text, body, size < sizeof text - 1 ? size : sizeof text - 1);
        long number = strtol(text, NULL, 10);
        if (number >= 0 && number < NUMBERS_MAX)
            inbox->times[number]++;
        inbox->count++;
    }
    pthread_mutex_unlock(&inbox->lock);
    return TERN_CONSUME_SUCCESS;
}

static struct tern_consumer_options *options_of(const char *group, const char *name)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    assert_ok(tern_consumer_options_namesrv(options, cluster.namesrv_list));
    assert_ok(tern_consumer_options_group(options, group));
    assert_ok(tern_consumer_options_instance(options, name));
    return options;
}

/* Takes the options. */
static struct tern_push_consumer *start_member(struct tern_consumer_options *options,
                                               const char *topic, struct inbox *inbox)
{
    struct tern_push_consumer *consumer;
    struct tern_error err = {.text = ""};
    assert_ok(tern_push_consumer_create(options, &consumer, &err));
    tern_consumer_options_destroy(options);
    assert_ok(tern_push_consumer_subscribe(consumer, topic, "*", &err));
    assert_ok(tern_push_consumer_listener(consumer, on_messages, inbox));
    if (tern_push_consumer_start(consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
    return consumer;
}

static struct tern_push_consumer *start_broadcast(const char *group, const char *name,
                                                  const char *topic, struct inbox *inbox)
{
    struct tern_consumer_options *options = options_of(group, name);
    assert_ok(tern_consumer_options_model(options, TERN_BROADCASTING));
    assert_ok(tern_consumer_options_offset_dir(options, cluster.dir));
    return start_member(options, topic, inbox);
}

static unsigned heard(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    unsigned count = inbox->count;
    pthread_mutex_unlock(&inbox->lock);
    return count;
}

static void await_heard(struct inbox *inbox, unsigned count)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (heard(inbox) < count) {
        if (now_ms() >= deadline)
            fail_msg("%u of %u messages came", heard(inbox), count);
        look_again_soon();
    }
}

/* Milliseconds until the member owns that many queues of the topic; it may own the one of its retry
 * topic, too. */
static int64_t await_queues(struct tern_push_consumer *consumer, uint32_t queues)
{
    int64_t begin = now_ms();
    struct tern_consumer_stats stats;
    do {
        look_again_soon();
        tern_push_consumer_stats(consumer, &stats);
        if (now_ms() - begin > PATIENCE_MS)
            fail_msg("%u queues are owned, %u expected", stats.queues, queues);
    } while (stats.queues != queues && stats.queues != queues + 1);
    return now_ms() - begin;
}

/* ---- a member of another process ---- */

static void spawn_member(struct daemon *member, const char *topic, const char *group)
{
    char log[DAEMON_PATH_BYTES];
    snprintf(log, sizeof log, "%s/member.log", cluster.dir);
    daemon_spawn(member, "mqadmin", log,
                 (const char *const[]){"consumeMessage", "-n", cluster.namesrv_list, "-t", topic,
                                       "-g", group, NULL},
                 NULL);
}

/* at once when a member joins or dies. Asserted generously, printed as it was. */
static void a_killed_members_queues_are_taken_over_at_once(void **state)
{
    (void)state;
    static struct inbox inbox = {.lock = PTHREAD_MUTEX_INITIALIZER};
    make_topic("Shared");
    struct tern_push_consumer *consumer =
        start_member(options_of("SharedGroup", "first"), "Shared", &inbox);
    (void)await_queues(consumer, QUEUES);
    int64_t longest_join = 0;
    int64_t longest_death = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct daemon member = {.pid = 0};
        spawn_member(&member, "Shared", "SharedGroup");
        int64_t join = await_queues(consumer, QUEUES / 2); /* from its exec on */
        assert_int_equal(kill(member.pid, SIGKILL), 0);
        int64_t death = await_queues(consumer, QUEUES);
        (void)daemon_stop(&member, SIGKILL);
        longest_join = join > longest_join ? join : longest_join;
        longest_death = death > longest_death ? death : longest_death;
        assert_true(death < TAKEOVER_MS);
    }
    print_message("longest of %d: joined %lld ms after exec, taken over %lld ms after SIGKILL\n",
                  ROUNDS, (long long)longest_join, (long long)longest_death);
    send_numbers("Shared", 0, 2 * QUEUES);
    await_heard(&inbox, 2 * QUEUES);
    tern_push_consumer_destroy(consumer);
}

/* ---- broadcasting ---- */

static void members_that_broadcast_hear_all_and_go_on_after_a_restart(void **state)
{
    (void)state;
    static struct inbox first = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static struct inbox second = {.lock = PTHREAD_MUTEX_INITIALIZER};
    make_topic("Told");
    struct tern_push_consumer *a = start_broadcast("ToldGroup", "a", "Told", &first);
    struct tern_push_consumer *b = start_broadcast("ToldGroup", "b", "Told", &second);
    send_numbers("Told", 0, 50); /* at once after their start */
    await_heard(&first, 50);
    await_heard(&second, 50);
    tern_push_consumer_destroy(b);
    send_numbers("Told", 50, 20);
    b = start_broadcast("ToldGroup", "b", "Told", &second);
    await_heard(&first, 70);
    await_heard(&second, 70);
    tern_push_consumer_destroy(a);
    tern_push_consumer_destroy(b);
    for (int i = 0; i < 70; i++) {
        assert_int_equal(first.times[i], 1);
        assert_int_equal(second.times[i], 1);
    }
    assert_int_equal(files_below(cluster.dir, "offsets"), 2 * 3); /* with .bak and .meta */
}

/* RO-11 */
static void what_is_sent_right_after_start_is_heard(void **state)
{
    (void)state;
    make_topic("Early");
    for (int round = 0; round < 10; round++) {
        struct inbox inbox = {.lock = PTHREAD_MUTEX_INITIALIZER};
        char group[32];
        snprintf(group, sizeof group, "Early%d", round);
        send_numbers("Early", 100, 16); /* before: not for it */
        struct tern_push_consumer *consumer = start_broadcast(group, "a", "Early", &inbox);
        send_numbers("Early", 0, 16);
        await_heard(&inbox, 16);
        tern_push_consumer_destroy(consumer);
        assert_int_equal(inbox.count, 16);
        for (int i = 0; i < 16; i++)
            assert_int_equal(inbox.times[i], 1);
    }
}

/* The group's consumeBroadcastEnable */
static void a_group_that_may_not_broadcast_gets_nothing_until_it_may(void **state)
{
    (void)state;
    static struct inbox inbox = {.lock = PTHREAD_MUTEX_INITIALIZER};
    make_topic("Narrow");
    free(MQADMIN(&cluster, 0, "updateSubGroup", "-c", "DefaultCluster", "-g", "NarrowGroup", "-d",
                 "false"));
    struct tern_push_consumer *consumer = start_broadcast("NarrowGroup", "a", "Narrow", &inbox);
    send_numbers("Narrow", 0, 16);
    int64_t until = now_ms() + 500;
    while (now_ms() < until)
        look_again_soon();
    assert_int_equal(heard(&inbox), 0);
    free(MQADMIN(&cluster, 0, "updateSubGroup", "-c", "DefaultCluster", "-g", "NarrowGroup", "-d",
                 "true"));
    await_heard(&inbox, 16); /* within the 3 s that an error waits */
    tern_push_consumer_destroy(consumer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_members_queues_are_taken_over_at_once),
        cmocka_unit_test(members_that_broadcast_hear_all_and_go_on_after_a_restart),
        cmocka_unit_test(what_is_sent_right_after_start_is_heard),
        cmocka_unit_test(a_group_that_may_not_broadcast_gets_nothing_until_it_may),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
