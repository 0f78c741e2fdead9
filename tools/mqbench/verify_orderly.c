/*
 * Reading back by orderly members of one group that come and go while messages are in their hands.
 *
 *   stirrer: every 0.3 to 2 s one of the members leaves or joins, one is always there
 *   members: a message of a queue begins ─► is another one of it running? ─► noted ─► a while ─►
 * ends
 *
 * A stream is a key here: all its messages are in one queue, and must be processed one by one. What
 * runs beside another message of its queue counts as overlapped; order, loss and damage are noted
 * as with the usual reader.
 *
 * Threads: the members' pools, the stirrer. Failure modes: a member that cannot start is tried
 * again with the next turn.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqbench/verify.h"

enum {
    MEMBERS = 4,
    FIRST_MEMBERS = 2,
    STIR_LEAST_MS = 300,
    STIR_MOST_MS = 2000,
    LEAVE_MS = 10000,
    COMMIT_INTERVAL_MS = 500,
    SUSPEND_MS = 20,
    THREADS = 8,
    SLOW_ONE_IN = 500, /* takes SLOW_US; the others nothing */
    SLOW_US = 50000,
    FAIL_ONE_IN = 1000 /* fails once, and must come again before any other */
};

struct verify_orderly {
    struct verify *verify;
    struct verify_watch *watch;
    char group[128];
    struct tern_push_consumer *members[MEMBERS]; /* the stirrer's, and before and after it */
    pthread_t stirrer;
    bool stirring;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping; /* lock */
    struct {
        _Atomic int running;
        _Atomic int64_t last_failed; /* offset; -1: none */
    } * queues;                      /* as verify->queues */
    uint32_t moves;
};

/* ---- members ---- */

/* Index of the message's queue; queue_count: none of ours. */
static size_t queue_of(const struct verify *verify, const struct tern_message *message)
{
    size_t at = 0;
    while (at < verify->queue_count &&
           (verify->queues[at].queue.queue_id != tern_message_queue_id(message) ||
            strcmp(verify->queues[at].queue.broker_name, tern_message_broker_name(message)) != 0))
        at++;
    return at;
}

static void take_time(void)
{
    struct timespec t = {.tv_nsec = (long)SLOW_US * 1000};
    nanosleep(&t, NULL);
}

/* A message that fails does so once, by its offset, whoever has it. */
static bool fails(struct verify_orderly *orderly, size_t queue, int64_t offset)
{
    if (offset % FAIL_ONE_IN != FAIL_ONE_IN / 2)
        return false;
    return atomic_exchange(&orderly->queues[queue].last_failed, offset) != offset;
}

static enum tern_orderly_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct verify_orderly *orderly = arg;
    struct verify *verify = orderly->verify;
    size_t queue = queue_of(verify, messages[0]);
    int64_t offset = tern_message_queue_offset(messages[0]);
    enum tern_orderly_result result = TERN_ORDERLY_SUCCESS;
    if (queue == verify->queue_count) {
        verify_take(verify, messages, count);
        return result;
    }
    if (atomic_fetch_add(&orderly->queues[queue].running, 1) > 0) {
        pthread_mutex_lock(&verify->lock);
        verify->overlapped++;
        pthread_mutex_unlock(&verify->lock);
    }
    if (fails(orderly, queue, offset))
        result = TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT;
    else
        verify_take(verify, messages, count);
    if (offset % SLOW_ONE_IN == 0)
        take_time();
    atomic_fetch_sub(&orderly->queues[queue].running, 1);
    return result;
}

static struct tern_consumer_options *make_options(const struct verify_orderly *orderly)
{
    char name[64];
    struct tern_consumer_options *o = tern_consumer_options_create();
    bench_unique_name(name, sizeof name, "orderly");
    if (o && (tern_consumer_options_namesrv(o, orderly->verify->options->namesrv) != TERN_OK ||
              tern_consumer_options_group(o, orderly->group) != TERN_OK ||
              tern_consumer_options_instance(o, name) != TERN_OK ||
              tern_consumer_options_from(o, TERN_FROM_FIRST, 0) != TERN_OK ||
              tern_consumer_options_threads(o, THREADS) != TERN_OK ||
              tern_consumer_options_suspend_ms(o, SUSPEND_MS) != TERN_OK ||
              tern_consumer_options_commit_interval_ms(o, COMMIT_INTERVAL_MS) != TERN_OK)) {
        tern_consumer_options_destroy(o);
        o = NULL;
    }
    return o;
}

static enum tern_code join(struct verify_orderly *orderly, size_t member, struct tern_error *err)
{
    struct tern_push_consumer *consumer = NULL;
    struct tern_consumer_options *o = make_options(orderly);
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_push_consumer_create(o, &consumer, err);
    if (code == TERN_OK)
        code = tern_push_consumer_subscribe(consumer, orderly->verify->options->topic, "*", err);
    if (code == TERN_OK)
        code = tern_push_consumer_listener_orderly(consumer, on_messages, orderly);
    if (code == TERN_OK)
        code = tern_push_consumer_start(consumer, err);
    tern_consumer_options_destroy(o);
    if (code == TERN_OK)
        orderly->members[member] = consumer;
    else
        tern_push_consumer_destroy(consumer);
    return code;
}

static void leave(struct verify_orderly *orderly, size_t member)
{
    struct tern_push_consumer *consumer = orderly->members[member];
    orderly->members[member] = NULL;
    enum tern_code code = consumer ? tern_push_consumer_shutdown(consumer, LEAVE_MS) : TERN_OK;
    if (code != TERN_OK)
        (void)bench_fail("an orderly member did not stop cleanly", code, NULL);
    tern_push_consumer_destroy(consumer);
}

/* ---- coming and going ---- */

/* Waits; false: it is over. */
static bool wait_a_turn(struct verify_orderly *orderly, int64_t ms)
{
    int64_t until = bench_now_ns() + ms * 1000000;
    struct timespec t = {until / 1000000000, until % 1000000000};
    int waited = 0;
    pthread_mutex_lock(&orderly->lock);
    while (!orderly->stopping && waited == 0)
        waited = pthread_cond_timedwait(&orderly->changed, &orderly->lock, &t);
    bool on = !orderly->stopping;
    pthread_mutex_unlock(&orderly->lock);
    return on;
}

static void *stir(void *arg)
{
    struct verify_orderly *orderly = arg;
    struct tern_error err;
    uint64_t x = orderly->verify->run_id | 1;
    for (;;) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift */
        if (!wait_a_turn(orderly, STIR_LEAST_MS + (int64_t)(x % (STIR_MOST_MS - STIR_LEAST_MS))))
            return NULL;
        size_t member = (size_t)(x >> 32) % MEMBERS;
        size_t there = 0;
        for (size_t i = 0; i < MEMBERS; i++)
            there += orderly->members[i] != NULL;
        if (!orderly->members[member])
            (void)join(orderly, member, &err);
        else if (there > 1)
            leave(orderly, member);
        orderly->moves++;
    }
}

/* ---- life ---- */

static enum tern_code start(struct verify_orderly *orderly, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    for (size_t i = 0; i < FIRST_MEMBERS && code == TERN_OK; i++)
        code = join(orderly, i, err);
    if (code == TERN_OK)
        orderly->watch = verify_watch_start(orderly->verify, orderly->group, &code, err);
    if (code == TERN_OK && pthread_create(&orderly->stirrer, NULL, stir, orderly) != 0)
        code = TERN_LIMIT;
    orderly->stirring = code == TERN_OK;
    return code;
}

struct verify_orderly *verify_orderly_start(struct verify *verify, int *status)
{
    struct tern_error err = {.text = ""};
    struct verify_orderly *orderly = calloc(1, sizeof *orderly);
    pthread_condattr_t attr;
    *status = EXIT_OK;
    if (orderly)
        orderly->queues = calloc(verify->queue_count + 1, sizeof *orderly->queues);
    if (!orderly || !orderly->queues) {
        free(orderly);
        *status = bench_fail("verify", TERN_NO_MEMORY, NULL);
        return NULL;
    }
    for (size_t i = 0; i < verify->queue_count; i++)
        orderly->queues[i].last_failed = -1;
    orderly->verify = verify;
    pthread_mutex_init(&orderly->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&orderly->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (verify->options->group)
        snprintf(orderly->group, sizeof orderly->group, "%s", verify->options->group);
    else
        bench_unique_name(orderly->group, sizeof orderly->group, "MQBENCH_ORDERLY");
    enum tern_code code = start(orderly, &err);
    if (code != TERN_OK) {
        *status = bench_fail("starting orderly readers", code, &err);
        verify_orderly_stop(orderly);
        orderly = NULL;
    }
    return orderly;
}

void verify_orderly_stop(struct verify_orderly *orderly)
{
    if (!orderly)
        return;
    pthread_mutex_lock(&orderly->lock);
    orderly->stopping = true;
    pthread_cond_broadcast(&orderly->changed);
    pthread_mutex_unlock(&orderly->lock);
    if (orderly->stirring)
        pthread_join(orderly->stirrer, NULL);
    verify_watch_stop(orderly->watch);
    for (size_t i = 0; i < MEMBERS; i++)
        leave(orderly, i);
    orderly->verify->moves = orderly->moves;
    pthread_cond_destroy(&orderly->changed);
    pthread_mutex_destroy(&orderly->lock);
    free(orderly->queues);
    free(orderly);
}
