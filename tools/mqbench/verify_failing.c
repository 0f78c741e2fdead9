/*
 * Reading back by a consumer whose listener fails as verify_fails() says, each time for the
 * shortest delay there is, and at most VERIFY_RETRIES times; and from the group's dead letters.
 *
 *   topic, %RETRY%group ─► consumer ─► listener: noted, fails or not ─► sent back, or done
 *   %DLQ%group          ─► undertaker: noted
 *
 * Committed offsets are not watched (verify_watch.c): a commit made beside the consumer would pass
 * messages that are on their way back.
 *
 * Threads: the consumer's pool, the undertaker. Failure modes: dead letters that cannot be read are
 * asked for again until the end; what has not shown by then counts as lost.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqbench/verify.h"

enum {
    COMMIT_INTERVAL_MS = 500,
    THREADS = 4,
    DELAY_LEVEL = 1, /* a second, at every broker of these checks */
    LEAVE_MS = 5000,
    PULL_COUNT = 64,
    QUEUES_MOST = 256,
    LOOK_PERIOD_NS = 200000000
};

static const char retry_prefix[] = "%RETRY%";

struct verify_failing {
    struct verify *verify;
    char group[128], dead_topic[256];
    struct tern_push_consumer *consumer;
    struct tern_pull_consumer *undertaker;
    pthread_t thread;
    bool looking; /* the thread runs */
    bool stop;    /* under verify.lock */
    /* the undertaker's: the next offset of each queue */
    struct tern_queue queues[QUEUES_MOST];
    int64_t next[QUEUES_MOST];
    size_t queue_count;
};

static bool note(struct verify *verify, enum verify_place place, const struct tern_message *message)
{
    struct verify_arrival arrival = {.broker = tern_message_broker_name(message),
                                     .queue_id = tern_message_queue_id(message),
                                     .queue_offset = tern_message_queue_offset(message),
                                     .store_ms = tern_message_store_ms(message),
                                     .delivered_ms = bench_wall_ms()};
    arrival.body = tern_message_body(message, &arrival.size);
    return verify_note_delivery(verify, place, tern_message_reconsume_times(message), &arrival);
}

/* ---- the consumer ---- */

/* Messages come one at a time. */
static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count, struct tern_consume_context *context)
{
    struct verify_failing *failing = arg;
    struct verify *verify = failing->verify;
    enum verify_place place =
        strncmp(context->queue.topic, retry_prefix, sizeof retry_prefix - 1) == 0 ? PLACE_RETRY
                                                                                  : PLACE_TOPIC;
    bool fails = false;
    pthread_mutex_lock(&verify->lock);
    verify_note_arrival(verify, count, bench_now_ns());
    for (size_t i = 0; i < count; i++)
        fails = note(verify, place, messages[i]);
    pthread_cond_broadcast(&verify->changed);
    pthread_mutex_unlock(&verify->lock);
    context->delay_level_when_next_consume = DELAY_LEVEL;
    return fails ? TERN_RECONSUME_LATER : TERN_CONSUME_SUCCESS;
}

static struct tern_consumer_options *make_options(const struct verify_failing *failing,
                                                  const char *group)
{
    struct tern_consumer_options *o = tern_consumer_options_create();
    if (o && (tern_consumer_options_namesrv(o, failing->verify->options->namesrv) != TERN_OK ||
              tern_consumer_options_group(o, group) != TERN_OK ||
              tern_consumer_options_from(o, TERN_FROM_FIRST, 0) != TERN_OK ||
              tern_consumer_options_threads(o, THREADS) != TERN_OK ||
              tern_consumer_options_max_reconsume_times(o, VERIFY_RETRIES) != TERN_OK ||
              tern_consumer_options_commit_interval_ms(o, COMMIT_INTERVAL_MS) != TERN_OK)) {
        tern_consumer_options_destroy(o);
        o = NULL;
    }
    return o;
}

static enum tern_code start_consumer(struct verify_failing *failing, struct tern_error *err)
{
    struct tern_consumer_options *o = make_options(failing, failing->group);
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_push_consumer_create(o, &failing->consumer, err);
    if (code == TERN_OK)
        code = verify_subscribe(failing->verify, failing->consumer, err);
    if (code == TERN_OK)
        code = tern_push_consumer_context_listener(failing->consumer, on_messages, failing);
    if (code == TERN_OK)
        code = tern_push_consumer_start(failing->consumer, err);
    tern_consumer_options_destroy(o);
    return code;
}

/* ---- the dead letters ---- */

/* false: it ends. */
static bool wait_a_period(struct verify_failing *failing)
{
    struct verify *verify = failing->verify;
    int64_t until = bench_now_ns() + LOOK_PERIOD_NS;
    pthread_mutex_lock(&verify->lock);
    while (!failing->stop && bench_now_ns() < until)
        verify_wait_until(verify, until);
    bool stop = failing->stop;
    pthread_mutex_unlock(&verify->lock);
    return !stop;
}

/* Where to go on in a queue; NULL: of more queues there are no dead letters. */
static int64_t *next_of(struct verify_failing *failing, const struct tern_queue *queue)
{
    size_t at = 0;
    while (at < failing->queue_count &&
           (failing->queues[at].queue_id != queue->queue_id ||
            strcmp(failing->queues[at].broker_name, queue->broker_name) != 0))
        at++;
    if (at == QUEUES_MOST)
        return NULL;
    if (at == failing->queue_count) {
        failing->queues[failing->queue_count++] = *queue;
        failing->next[at] = 0;
    }
    return &failing->next[at];
}

/* Reads what the queue has. Only what was read moves the offset, or the queue's beginning. */
static void look_into(struct verify_failing *failing, const struct tern_queue *queue)
{
    struct verify *verify = failing->verify;
    int64_t *next = next_of(failing, queue);
    for (bool more = next != NULL; more;) {
        struct tern_pull_result result;
        if (tern_pull_consumer_pull(failing->undertaker, queue, "*", *next, PULL_COUNT, 0, &result,
                                    NULL) != TERN_OK)
            return;
        more = result.status == TERN_PULL_FOUND;
        pthread_mutex_lock(&verify->lock);
        if (more)
            verify_note_arrival(verify, result.count, bench_now_ns());
        for (size_t i = 0; more && i < result.count; i++)
            (void)note(verify, PLACE_DEAD, result.messages[i]);
        pthread_cond_broadcast(&verify->changed);
        pthread_mutex_unlock(&verify->lock);
        if (more && result.next_offset > *next)
            *next = result.next_offset;
        else if (result.min_offset > *next)
            *next = result.min_offset;
        tern_pull_result_clear(&result);
    }
}

static void *undertaker_main(void *arg)
{
    struct verify_failing *failing = arg;
    while (wait_a_period(failing)) {
        struct tern_queue queues[QUEUES_MOST];
        size_t count;
        if (tern_pull_consumer_queues(failing->undertaker, failing->dead_topic, queues, QUEUES_MOST,
                                      &count, NULL) != TERN_OK)
            continue; /* nobody died yet */
        for (size_t i = 0; i < count && i < QUEUES_MOST; i++)
            look_into(failing, &queues[i]);
    }
    return NULL;
}

static enum tern_code start_undertaker(struct verify_failing *failing, struct tern_error *err)
{
    struct tern_consumer_options *o = make_options(failing, "TOOLS_CONSUMER"); /* always known */
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_pull_consumer_create(o, &failing->undertaker, err);
    if (code == TERN_OK)
        code = tern_pull_consumer_start(failing->undertaker, err);
    tern_consumer_options_destroy(o);
    failing->looking =
        code == TERN_OK && pthread_create(&failing->thread, NULL, undertaker_main, failing) == 0;
    return code == TERN_OK && !failing->looking ? TERN_LIMIT : code;
}

/* ---- life ---- */

struct verify_failing *verify_failing_start(struct verify *verify, int *status)
{
    struct tern_error err = {.text = ""};
    struct verify_failing *failing = calloc(1, sizeof *failing);
    if (!failing) {
        *status = bench_fail("verify", TERN_NO_MEMORY, NULL);
        return NULL;
    }
    failing->verify = verify;
    verify_group_name(verify, failing->group, sizeof failing->group);
    snprintf(failing->dead_topic, sizeof failing->dead_topic, "%%DLQ%%%s", failing->group);
    enum tern_code code = start_consumer(failing, &err);
    if (code == TERN_OK)
        code = start_undertaker(failing, &err);
    *status = EXIT_OK;
    if (code != TERN_OK) {
        *status = bench_fail("starting the failing reader", code, &err);
        verify_failing_stop(failing);
        failing = NULL;
    }
    return failing;
}

static void stop_consumer(struct verify_failing *failing)
{
    struct tern_consumer_stats stats;
    enum tern_code code = tern_push_consumer_shutdown(failing->consumer, LEAVE_MS);
    if (code != TERN_OK)
        (void)bench_fail("the failing reader did not stop cleanly", code, NULL);
    tern_push_consumer_stats(failing->consumer, &stats);
    tern_push_consumer_destroy(failing->consumer);
    pthread_mutex_lock(&failing->verify->lock);
    verify_note_unanswered(failing->verify, stats.sent_back_unknown);
    pthread_mutex_unlock(&failing->verify->lock);
}

void verify_failing_stop(struct verify_failing *failing)
{
    if (!failing)
        return;
    pthread_mutex_lock(&failing->verify->lock);
    failing->stop = true;
    pthread_cond_broadcast(&failing->verify->changed);
    pthread_mutex_unlock(&failing->verify->lock);
    if (failing->looking)
        pthread_join(failing->thread, NULL);
    tern_pull_consumer_destroy(failing->undertaker);
    if (failing->consumer)
        stop_consumer(failing);
    free(failing);
}
