/*
 * Orderly consumption against real daemons, on real threads: hand-over at a clean stop, a master
 * that is killed, a member that is killed, order topics. (D-3, R-1, RO-06, RO-10)
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tern/tern.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { QUEUES = 4, BODIES_MAX = 4000, LEASE_MS = 60000 };

/* ---- members ---- */

/* What all members did, in the order of the listeners' beginnings. */
static struct {
    pthread_mutex_t lock;
    size_t count;
    struct {
        int32_t queue_id;
        int64_t offset, at_ms;
        int member;
    } items[BODIES_MAX];
    int running[QUEUES];
    bool overlapped;
} played = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int listener_ms;

static void sleep_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static enum tern_orderly_result play(void *arg, const struct tern_message *const *messages,
                                     size_t count)
{
    int32_t queue_id = tern_message_queue_id(messages[0]);
    pthread_mutex_lock(&played.lock);
    played.overlapped = played.overlapped || played.running[queue_id]++ > 0;
    for (size_t i = 0; i < count && played.count < BODIES_MAX; i++) {
        played.items[played.count].queue_id = queue_id;
        played.items[played.count].offset = tern_message_queue_offset(messages[i]);
        played.items[played.count].member = (int)(intptr_t)arg;
        played.items[played.count++].at_ms = now_ms();
    }
    pthread_mutex_unlock(&played.lock);
    sleep_ms(listener_ms);
    pthread_mutex_lock(&played.lock);
    played.running[queue_id]--;
    pthread_mutex_unlock(&played.lock);
    return TERN_ORDERLY_SUCCESS;
}

static void begin(int handler_ms)
{
    pthread_mutex_lock(&played.lock);
    played.count = 0;
    played.overlapped = false;
    memset(played.running, 0, sizeof played.running);
    pthread_mutex_unlock(&played.lock);
    listener_ms = handler_ms;
}

static struct tern_push_consumer *join(const struct broker_set *set, int number)
{
    char name[16];
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer;
    snprintf(name, sizeof name, "member%d", number);
    assert_ok(tern_consumer_options_namesrv(options, set->namesrv_list));
    assert_ok(tern_consumer_options_group(options, "orderly"));
    assert_ok(tern_consumer_options_instance(options, name));
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    assert_ok(tern_push_consumer_create(options, &consumer, NULL));
    tern_consumer_options_destroy(options);
    assert_ok(tern_push_consumer_subscribe(consumer, "T", "*", NULL));
    assert_ok(tern_push_consumer_listener_orderly(consumer, play, (void *)(intptr_t)number));
    assert_ok(tern_push_consumer_start(consumer, NULL));
    return consumer;
}

static size_t played_count(void)
{
    pthread_mutex_lock(&played.lock);
    size_t count = played.count;
    pthread_mutex_unlock(&played.lock);
    return count;
}

static void await_count(size_t count, int64_t patience_ms)
{
    int64_t deadline = now_ms() + patience_ms;
    while (played_count() < count) {
        if (now_ms() >= deadline)
            fail_msg("%zu of %zu came in %lld ms", played_count(), count, (long long)patience_ms);
        look_again_soon();
    }
}

/* Each queue's offsets from 0 on, one by one. */
static void check_order(void)
{
    int64_t next[QUEUES] = {0};
    assert_false(played.overlapped);
    for (size_t i = 0; i < played.count; i++)
        assert_int_equal(played.items[i].offset, next[played.items[i].queue_id]++);
}

static struct tern_producer *make_producer(const struct broker_set *set)
{
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *producer;
    assert_ok(tern_producer_options_namesrv(options, set->namesrv_list));
    assert_ok(tern_producer_options_send_timeout_ms(options, PATIENCE_MS));
    assert_ok(tern_producer_create(options, &producer, NULL));
    tern_producer_options_destroy(options);
    assert_ok(tern_producer_start(producer, NULL));
    return producer;
}

static void send_each(struct tern_producer *producer, int per_queue)
{
    for (int i = 0; i < per_queue * QUEUES; i++) {
        struct tern_queue queue = {.topic = "T", .broker_name = "broker-a", .queue_id = i % QUEUES};
        struct tern_message *message;
        assert_ok(tern_message_create("T", "x", 1, &message, NULL));
        assert_ok(tern_producer_send_to(producer, message, &queue, NULL, NULL));
        tern_message_unref(message);
    }
}

static void set_with_topic(struct broker_set *set, const char *role, size_t slaves)
{
    set_up(set, role, slaves, NULL);
    free(SET_MQADMIN(set, 0, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w",
                     "4"));
}

/* ---- tests ---- */

/* RO-06, and a hand-over within a second of the last message's end. */
static void clean_stop_hands_over_within_a_second(void **state)
{
    struct broker_set set;
    (void)state;
    set_with_topic(&set, "ASYNC_MASTER", 0);
    struct tern_producer *producer = make_producer(&set);
    begin(20);
    send_each(producer, 50);
    int64_t started_ms = now_ms();
    struct tern_push_consumer *first = join(&set, 1);
    await_count(1, PATIENCE_MS);
    print_message("first message %lld ms after the call of start\n",
                  (long long)(played.items[0].at_ms - started_ms));
    struct tern_push_consumer *second = join(&set, 2);
    await_count(150, PATIENCE_MS);
    assert_ok(tern_push_consumer_shutdown(first, PATIENCE_MS));
    int64_t left_ms = now_ms();
    size_t before = played_count();
    send_each(producer, 50);
    await_count(100 * QUEUES, PATIENCE_MS);
    /* The first one of each queue after the stop. */
    int64_t slowest_ms = 0;
    bool begun[QUEUES] = {false};
    for (size_t i = before; i < played.count; i++) {
        if (begun[played.items[i].queue_id])
            continue;
        begun[played.items[i].queue_id] = true;
        assert_int_equal(played.items[i].member, 2);
        if (played.items[i].at_ms - left_ms > slowest_ms)
            slowest_ms = played.items[i].at_ms - left_ms;
    }
    print_message("handed over within %lld ms\n", (long long)slowest_ms);
    assert_true(slowest_ms < 10000); /* and not when a lease ends */
    check_order();
    tern_push_consumer_destroy(first);
    tern_push_consumer_destroy(second);
    tern_producer_destroy(producer);
    set_down(&set);
}

static struct tool verdict;

static void *run_verify(void *arg)
{
    const struct broker_set *set = arg;
    tool_run(&verdict, "mqbench",
             (const char *const[]){"verify", "-n", set->namesrv_list, "-t", "T", "--orderly",
                                   "--seconds", "12", "--mode", "sync", "--size", "200", "--drain",
                                   "90", "--json", NULL},
             NULL, 0);
    return NULL;
}

/* D-3: members come and go, and the master is killed and comes back, twice. */
static void order_holds_over_the_masters_kills_and_returns(void **state)
{
    struct broker_set set;
    pthread_t thread;
    (void)state;
    set_with_topic(&set, "SYNC_MASTER", 1);
    assert_int_equal(pthread_create(&thread, NULL, run_verify, &set), 0);
    sleep_ms(2500);
    for (int i = 0; i < 2; i++) {
        set_kill(&set, 0);
        sleep_ms(2000);
        set_start(&set, 0);
        set_await_in_sync(&set, 1);
        sleep_ms(1000);
    }
    pthread_join(thread, NULL);
    print_message("%s", verdict.out);
    if (verdict.status != 0)
        fail_msg("mqbench verify --orderly: %d: %s%s", verdict.status, verdict.out, verdict.err);
    assert_contains(verdict.out, "\"overlapped\":0");
    tool_free(&verdict);
    set_down(&set);
}

/* The owner's process is gone without a word: its lease decides, and nobody waits longer. */
static void queues_of_a_killed_member_go_on_when_its_lease_ends(void **state)
{
    struct broker_set set;
    int to_child[2], from_child[2];
    char byte;
    (void)state;
    set_with_topic(&set, "ASYNC_MASTER", 0);
    struct tern_producer *producer = make_producer(&set);
    assert_int_equal(pipe(to_child), 0);
    assert_int_equal(pipe(from_child), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(to_child[0], 0);
        dup2(from_child[1], 1);
        setenv("NAMESRV_ADDR", set.namesrv_list, 1);
        execl(BIN_DIR "/example_orderly", "example_orderly", "T", "orderly", "k1", "k2", "k3",
              (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 9; i++) /* three steps of three keys, a line each */
        do
            assert_int_equal(read(from_child[0], &byte, 1), 1);
        while (byte != '\n');
    sleep_ms(6000); /* committed, renewed */
    int64_t killed_ms = now_ms();
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    begin(0);
    struct tern_push_consumer *member = join(&set, 1);
    send_each(producer, 5);
    await_count((size_t)5 * QUEUES, LEASE_MS + PATIENCE_MS);
    int64_t waited_ms = now_ms() - killed_ms;
    print_message("its queues went on after %lld ms\n", (long long)waited_ms);
    assert_true(waited_ms > LEASE_MS - 15000 && waited_ms < LEASE_MS + PATIENCE_MS);
    assert_int_equal(played_count(), 5 * QUEUES);
    assert_false(played.overlapped);
    tern_push_consumer_destroy(member);
    tern_producer_destroy(producer);
    close(to_child[0]), close(to_child[1]), close(from_child[0]), close(from_child[1]);
    set_down(&set);
}

static size_t by_number(void *arg, const struct tern_message *message,
                        const struct tern_queue *queues, size_t count)
{
    (void)message;
    (void)queues;
    return (size_t)(uintptr_t)arg % count;
}

static enum tern_code send_key(struct tern_producer *producer, const char *topic, unsigned key,
                               struct tern_error *err)
{
    struct tern_message *message;
    assert_ok(tern_message_create(topic, "x", 1, &message, NULL));
    enum tern_code code =
        tern_producer_send_select(producer, message, by_number, (void *)(uintptr_t)key, NULL, err);
    tern_message_unref(message);
    return code;
}

/* A name that nobody has is a slip, as long as it is not said to be meant; nothing is written. */
static void refuse_unknown_broker(struct broker_set *set)
{
    struct tool tool;
    tool_run(&tool, "mqadmin",
             (const char *const[]){"updateOrderConf", "-n", set->namesrv_list, "-t", "Orders", "-m",
                                   "put", "-v", "broker-a:4;brocker-b:4", NULL},
             NULL, 0);
    assert_int_equal(tool.status, 1);
    assert_contains(tool.err, "no broker brocker-b is registered, nor in the topic's list");
    assert_contains(tool.err, "registered: broker-a;");
    assert_contains(tool.err, "-f true");
    tool_free(&tool);
    char *said = SET_MQADMIN(set, 0, "updateOrderConf", "-t", "Orders", "-m", "get");
    assert_contains(said, "orderConf=[broker-a:4]");
    free(said);
}

/* facts 11: updateTopic -o, updateOrderConf; keys of a broker that is away fail and do not move. */
static void order_topic_keeps_its_list_of_queues(void **state)
{
    struct broker_set set;
    struct tern_error err = {.text = ""};
    (void)state;
    set_up(&set, "ASYNC_MASTER", 0, NULL);
    char *said = SET_MQADMIN(&set, 0, "updateTopic", "-c", "DefaultCluster", "-t", "Orders", "-w",
                             "4", "-r", "4", "-o", "true");
    assert_contains(said, "set cluster orderConf. isOrder=true, orderConf=[broker-a:4]");
    assert_contains(said, "order=true");
    free(said);
    said = SET_MQADMIN(&set, 0, "updateOrderConf", "-t", "Orders", "-m", "get");
    assert_contains(said, "orderConf=[broker-a:4]");
    free(said);
    free(SET_MQADMIN(&set, 1, "updateOrderConf", "-t", "Orders", "-m", "put", "-v", "broker-a=4"));
    free(
        SET_MQADMIN(&set, 1, "updateOrderConf", "-t", "no topic", "-m", "put", "-v", "broker-a:4"));
    free(SET_MQADMIN(&set, 2, "updateOrderConf", "-t", "Orders", "-m", "put"));
    free(SET_MQADMIN(&set, 2, "updateOrderConf", "-t", "Orders", "-m", "look"));
    refuse_unknown_broker(&set);
    said = SET_MQADMIN(&set, 0, "updateOrderConf", "-t", "Orders", "-m", "put", "-v",
                       "broker-b:4;broker-a:4", "-f", "true");
    assert_contains(said, "update orderConf success. topic=[Orders], orderConf=[broker-b:4;");
    free(said);
    /* What the list has already is known, although its broker is away. */
    said = SET_MQADMIN(&set, 0, "updateOrderConf", "-t", "Orders", "-m", "put", "-v",
                       "broker-b:4;broker-a:4");
    free(said);
    struct tern_producer *producer = make_producer(&set);
    assert_int_equal(send_key(producer, "Orders", 1, &err), TERN_UNREACHABLE);
    assert_contains(err.text, "order topic Orders");
    assert_contains(err.text, "broker-b");
    assert_ok(send_key(producer, "Orders", 5, &err));
    tern_producer_destroy(producer);
    free(SET_MQADMIN(&set, 0, "updateOrderConf", "-t", "Orders", "-m", "delete"));
    free(SET_MQADMIN(&set, 1, "updateOrderConf", "-t", "Orders", "-m", "get"));
    producer = make_producer(&set);
    assert_ok(send_key(producer, "Orders", 1, &err));
    tern_producer_destroy(producer);
    set_down(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_stop_hands_over_within_a_second),
        cmocka_unit_test(order_holds_over_the_masters_kills_and_returns),
        cmocka_unit_test(queues_of_a_killed_member_go_on_when_its_lease_ends),
        cmocka_unit_test(order_topic_keeps_its_list_of_queues),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
