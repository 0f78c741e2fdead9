/*
 * Producers over NNG on the loopback, with real threads: concurrency, order, ends. For the thread
 * sanitizer too.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tern/tern.h>

#include "base/sched.h"
#include "fake_servers.h"
#include "tests/unit/base/held_port.h"

enum { THREADS = 4, SENDS_EACH = 300 };

struct real {
    struct env env;
    struct link *link;
    struct fake_namesrv ns;
    struct fake_broker *broker;
    char address[64]; /* the broker's, kept while it is away */
    int held;
};

static struct real real;

static int start_servers(void **state)
{
    (void)state;
    struct tern_error err;
    env_init_system(&real.env, NULL);
    assert_int_equal(link_nng_create(&real.env, &real.link, &err), TERN_OK);
    real.broker = calloc(1, sizeof *real.broker);
    assert_non_null(real.broker);
    fake_namesrv_start(&real.ns, &real.env, real.link, "127.0.0.1:0");
    uint16_t port;
    real.held = port_hold(&port);
    snprintf(real.address, sizeof real.address, "127.0.0.1:%u", port);
    fake_broker_start(real.broker, &real.env, real.link, "broker-a", real.address);
    struct fake_queues part = {
        .broker = "broker-a", .read_queues = 4, .write_queues = 4, .perm = 6};
    snprintf(part.address, sizeof part.address, "%s", real.broker->address);
    fake_namesrv_put(&real.ns, "T", &part);
    return 0;
}

static int stop_servers(void **state)
{
    (void)state;
    fake_broker_stop(real.broker);
    fake_namesrv_stop(&real.ns);
    link_destroy(real.link);
    close(real.held);
    free(real.broker);
    return 0;
}

static int clear_broker(void **state)
{
    (void)state;
    pthread_mutex_lock(&real.broker->mutex);
    real.broker->send_count = 0;
    real.broker->messages = 0;
    real.broker->script_count = 0;
    real.broker->script_at = 0;
    memset(real.broker->next_offset, 0, sizeof real.broker->next_offset);
    pthread_mutex_unlock(&real.broker->mutex);
    return 0;
}

static struct tern_producer *producer(void)
{
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *made;
    struct tern_error err;
    assert_non_null(options);
    assert_int_equal(tern_producer_options_namesrv(options, real.ns.address), TERN_OK);
    assert_int_equal(tern_producer_options_send_timeout_ms(options, 10000), TERN_OK);
    assert_int_equal(tern_producer_create(options, &made, &err), TERN_OK);
    tern_producer_options_destroy(options);
    assert_int_equal(tern_producer_start(made, &err), TERN_OK);
    return made;
}

static struct tern_message *message(const char *body)
{
    struct tern_message *m;
    assert_int_equal(tern_message_create("T", body, strlen(body), &m, NULL), TERN_OK);
    return m;
}

/* ---- synchronous sends of several threads ---- */

struct sender {
    pthread_t thread;
    struct tern_producer *producer;
    int good;
};

static void *send_many(void *arg)
{
    struct sender *sender = arg;
    for (int i = 0; i < SENDS_EACH; i++) {
        struct tern_message *m = message("x");
        struct tern_send_result result;
        struct tern_error err;
        sender->good += tern_producer_send(sender->producer, m, &result, &err) == TERN_OK;
        tern_message_unref(m);
    }
    return NULL;
}

static void threads_share_a_producer(void **state)
{
    (void)state;
    struct sender senders[THREADS] = {0};
    struct tern_producer *shared = producer();
    for (int i = 0; i < THREADS; i++) {
        senders[i].producer = shared;
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_many, &senders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(senders[i].thread, NULL);
        assert_int_equal(senders[i].good, SENDS_EACH);
    }
    assert_int_equal(real.broker->messages, THREADS * SENDS_EACH);
    for (int i = 0; i < 4; i++)
        assert_int_equal(real.broker->next_offset[i], THREADS * SENDS_EACH / 4);
    tern_producer_destroy(shared);
}

static void *send_shared(void *arg)
{
    struct tern_message *m = arg;
    struct tern_producer *own = producer();
    assert_int_equal(tern_producer_send(own, m, NULL, NULL), TERN_OK);
    tern_producer_destroy(own);
    return (void *)(uintptr_t)tern_message_id(m);
}

static void one_message_sent_by_two_threads_has_one_id(void **state)
{
    (void)state;
    pthread_t threads[2];
    void *ids[2];
    struct tern_message *m = message("x");
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, send_shared, m), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], &ids[i]);
    assert_ptr_equal(ids[0], ids[1]);
    assert_string_equal(real.broker->sends[0].props, real.broker->sends[1].props);
    tern_message_unref(m);
}

/* ---- asynchronous sends ---- */

struct counter {
    _Atomic int calls, failures;
    int expected;
    struct latch all;
    struct sched *sched;
};

static void count_in(void *arg, enum tern_code code, const struct tern_send_result *result,
                     const struct tern_error *err)
{
    struct counter *counter = arg;
    (void)result;
    (void)err;
    if (code != TERN_OK)
        atomic_fetch_add(&counter->failures, 1);
    if (atomic_fetch_add(&counter->calls, 1) + 1 == counter->expected)
        latch_set(counter->sched, &counter->all);
}

static void send_async(struct tern_producer *made, const char *body, const struct tern_queue *queue,
                       struct counter *counter)
{
    struct tern_message *m = message(body);
    enum tern_code code;
    while ((code = tern_producer_send_async(made, &m, 1, queue, count_in, counter, NULL)) ==
           TERN_LIMIT)
        sched_yield();
    assert_int_equal(code, TERN_OK);
    tern_message_unref(m);
}

static void callbacks_come_once_each(void **state)
{
    (void)state;
    struct counter counter = {.expected = 3000, .sched = sched_threads()};
    struct tern_producer *made = producer();
    latch_init(&counter.all);
    for (int i = 0; i < counter.expected; i++)
        send_async(made, "x", NULL, &counter);
    assert_true(latch_wait(counter.sched, &counter.all, SCHED_NEVER));
    assert_int_equal(atomic_load(&counter.failures), 0);
    assert_int_equal(real.broker->messages, counter.expected);
    tern_producer_destroy(made);
    assert_int_equal(atomic_load(&counter.calls), counter.expected);
}

static void named_queue_keeps_the_order_of_calls(void **state)
{
    (void)state;
    struct counter counter = {.expected = 1000, .sched = sched_threads()};
    struct tern_producer *made = producer();
    struct tern_queue queue = {.topic = "T", .broker_name = "broker-a", .queue_id = 2};
    latch_init(&counter.all);
    for (int i = 0; i < counter.expected; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        send_async(made, body, &queue, &counter);
    }
    assert_true(latch_wait(counter.sched, &counter.all, SCHED_NEVER));
    pthread_mutex_lock(&real.broker->mutex);
    for (int i = 0; i < counter.expected; i++)
        assert_int_equal(atoi(real.broker->sends[i].body), i);
    pthread_mutex_unlock(&real.broker->mutex);
    tern_producer_destroy(made);
}

static void shutdown_at_any_moment_loses_no_callback(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct counter counter = {.expected = 50 + round * 10, .sched = sched_threads()};
        struct tern_producer *made = producer();
        struct tern_queue queue = {.topic = "T", .broker_name = "broker-a", .queue_id = 1};
        latch_init(&counter.all);
        for (int i = 0; i < counter.expected; i++)
            send_async(made, "x", i % 2 ? &queue : NULL, &counter);
        tern_producer_shutdown(made);
        assert_int_equal(atomic_load(&counter.calls), counter.expected);
        tern_producer_destroy(made);
    }
}

/* The link's thread tells of the connection while the table of brokers is given up. */
static void producer_may_end_while_its_broker_comes_up(void **state)
{
    (void)state;
    for (useconds_t round = 0; round < 200; round++) {
        struct tern_queue queues[4];
        size_t count;
        struct tern_producer *made = producer();
        assert_int_equal(tern_producer_queues(made, "T", queues, 4, &count, NULL), TERN_OK);
        usleep(round * 7 % 1009);
        tern_producer_destroy(made);
    }
}

static void dead_broker_ends_sends_with_an_error(void **state)
{
    (void)state;
    struct counter counter = {.expected = 3, .sched = sched_threads()};
    struct tern_producer *made = producer();
    latch_init(&counter.all);
    struct tern_message *m = message("x");
    assert_int_equal(tern_producer_send(made, m, NULL, NULL), TERN_OK);
    pthread_mutex_lock(&real.broker->mutex);
    real.broker->hold = true;
    pthread_mutex_unlock(&real.broker->mutex);
    struct tern_queue queue = {.topic = "T", .broker_name = "broker-a", .queue_id = 1};
    for (int i = 0; i < counter.expected; i++)
        send_async(made, "x", &queue, &counter);
    fake_broker_stop(real.broker);
    assert_true(latch_wait(counter.sched, &counter.all, SCHED_NEVER));
    assert_int_equal(atomic_load(&counter.failures), counter.expected);
    real.broker->hold = false;
    fake_broker_start(real.broker, &real.env, real.link, "broker-a", real.address);
    /* The connection is made again by itself. */
    enum tern_code code = TERN_UNREACHABLE;
    for (int i = 0; i < 10 && code != TERN_OK; i++)
        code = tern_producer_send(made, m, NULL, NULL);
    assert_int_equal(code, TERN_OK);
    tern_message_unref(m);
    tern_producer_destroy(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_share_a_producer, clear_broker),
        cmocka_unit_test_setup(one_message_sent_by_two_threads_has_one_id, clear_broker),
        cmocka_unit_test_setup(callbacks_come_once_each, clear_broker),
        cmocka_unit_test_setup(named_queue_keeps_the_order_of_calls, clear_broker),
        cmocka_unit_test_setup(shutdown_at_any_moment_loses_no_callback, clear_broker),
        cmocka_unit_test_setup(producer_may_end_while_its_broker_comes_up, clear_broker),
        cmocka_unit_test_setup(dead_broker_ends_sends_with_an_error, clear_broker),
    };
    return cmocka_run_group_tests(tests, start_servers, stop_servers);
}
