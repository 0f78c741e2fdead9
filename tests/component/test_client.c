/*
 * libternmq against real daemons, through its public headers only: sends that are ordered by key,
 * batches that are one unit, tags from the sender to the listener.
 */
#include <pthread.h>
#include <time.h>

#include <tern/tern.h>

#include "tests/component/daemons.h"
#include "tests/unit/base/unit.h"

enum { KEYS = 5, EACH = 40, TAGGED = 300 };

static struct cluster cluster;
static struct tern_producer *producer;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster,
               (const char *const[]){"maxMessageSize=65536", "mappedFileSizeCommitLog=4MiB", NULL});
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
    free(MQADMIN(&cluster, 0, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "4", "-w",
                 "4"));
}

static struct tern_message *make_message(const char *topic, const char *body, const char *tag)
{
    struct tern_message *message;
    assert_ok(tern_message_create(topic, body, strlen(body), &message, NULL));
    if (tag)
        assert_ok(tern_message_set_tag(message, tag));
    return message;
}

/* ---- receiving ---- */

/* What a listener got, in the order of the calls. */
struct inbox {
    pthread_mutex_t lock;
    size_t count;
    struct {
        char body[32], tag[16];
        int32_t queue_id;
        int64_t queue_offset;
    } messages[TAGGED];
};

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct inbox *inbox = arg;
    pthread_mutex_lock(&inbox->lock);
    for (size_t i = 0; i < count && inbox->count < TAGGED; i++) {
        size_t size, n = inbox->count++;
        const char *body = tern_message_body(messages[i], &size);
        const char *tag = tern_message_tag(messages[i]);
        snprintf(inbox->messages[n].body, sizeof inbox->messages[n].body, "%.*s", (int)size, body);
        snprintf(inbox->messages[n].tag, sizeof inbox->messages[n].tag, "%s", tag ? tag : "");
        inbox->messages[n].queue_id = tern_message_queue_id(messages[i]);
        inbox->messages[n].queue_offset = tern_message_queue_offset(messages[i]);
    }
    pthread_mutex_unlock(&inbox->lock);
    return TERN_CONSUME_SUCCESS;
}

static struct tern_push_consumer *listen_to(const char *topic, const char *expression,
                                            struct inbox *inbox)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer;
    memset(inbox, 0, sizeof *inbox);
    pthread_mutex_init(&inbox->lock, NULL);
    assert_ok(tern_consumer_options_namesrv(options, cluster.namesrv_list));
    assert_ok(tern_consumer_options_group(options, topic));
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    assert_ok(tern_push_consumer_create(options, &consumer, NULL));
    tern_consumer_options_destroy(options);
    assert_ok(tern_push_consumer_subscribe(consumer, topic, expression, NULL));
    assert_ok(tern_push_consumer_listener(consumer, on_messages, inbox));
    assert_ok(tern_push_consumer_start(consumer, NULL));
    return consumer;
}

static size_t received(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    size_t count = inbox->count;
    pthread_mutex_unlock(&inbox->lock);
    return count;
}

static void await_received(struct inbox *inbox, size_t count)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (received(inbox) < count) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
}

/* ---- tests ---- */

/* P-1: all of a key in one queue, in the order of the calls */
static void messages_of_one_key_keep_their_order(void **state)
{
    static struct inbox inbox;
    char body[32], key[8];
    (void)state;
    make_topic("Keyed");
    for (int i = 0; i < KEYS * EACH; i++) {
        struct tern_send_result result;
        snprintf(key, sizeof key, "key-%d", i % KEYS);
        snprintf(body, sizeof body, "%d %d", i % KEYS, i / KEYS);
        struct tern_message *message = make_message("Keyed", body, NULL);
        assert_ok(
            tern_producer_send_select(producer, message, tern_select_by_hash, key, &result, NULL));
        assert_int_equal(result.status, TERN_OK);
        tern_message_unref(message);
    }
    struct tern_push_consumer *consumer = listen_to("Keyed", "*", &inbox);
    await_received(&inbox, KEYS * EACH);
    tern_push_consumer_destroy(consumer);
    int32_t queue_of[KEYS];
    int64_t last_offset[KEYS][EACH];
    for (int k = 0; k < KEYS; k++)
        queue_of[k] = -1;
    for (size_t i = 0; i < KEYS * EACH; i++) {
        char *end;
        long k = strtol(inbox.messages[i].body, &end, 10), n = strtol(end, NULL, 10);
        assert_in_range(k, 0, KEYS - 1);
        assert_in_range(n, 0, EACH - 1);
        assert_true(queue_of[k] < 0 || queue_of[k] == inbox.messages[i].queue_id);
        queue_of[k] = inbox.messages[i].queue_id;
        last_offset[k][n] = inbox.messages[i].queue_offset;
    }
    for (int k = 0; k < KEYS; k++)
        for (int n = 1; n < EACH; n++)
            assert_true(last_offset[k][n] > last_offset[k][n - 1]);
}

/* P-1: one unit in one queue; one that is too large leaves nothing behind */
static void batch_is_stored_whole_or_not_at_all(void **state)
{
    enum { BATCH = 10 };
    static char large[20000];
    struct tern_message *messages[BATCH];
    struct tern_send_result result;
    (void)state;
    make_topic("Batched");
    for (int i = 0; i < BATCH; i++)
        messages[i] = make_message("Batched", "small", NULL);
    assert_ok(tern_producer_send_batch(producer, messages, BATCH, NULL, &result, NULL));
    assert_int_equal(result.queue_offset, 0);
    struct tern_queue queue = result.queue;
    for (int i = 0; i < BATCH; i++)
        tern_message_unref(messages[i]);
    uint32_t noise = 1; /* nothing to compress */
    for (size_t i = 0; i < sizeof large - 1; i++)
        large[i] = (char)('!' + ((noise = noise * 1664525 + 1013904223) >> 24) % 94);
    for (int i = 0; i < BATCH; i++)
        messages[i] = make_message("Batched", large, NULL);
    assert_int_not_equal(tern_producer_send_batch(producer, messages, BATCH, &queue, &result, NULL),
                         TERN_OK);
    for (int i = 0; i < BATCH; i++)
        tern_message_unref(messages[i]);
    struct tern_message *next = make_message("Batched", "next", NULL);
    assert_ok(tern_producer_send_to(producer, next, &queue, &result, NULL));
    tern_message_unref(next);
    assert_int_equal(result.queue_offset, BATCH);
}

/* F-1, end to end: only what was asked for reaches the listener, also of tags that collide */
static void listener_gets_only_the_tags_it_asked_for(void **state)
{
    /* "Aa" and "BB" have the same hash code, which is all that the broker compares. */
    static const char *const tags[] = {"Aa", "BB", "C", "D", NULL};
    static struct inbox inbox;
    size_t wanted = 0;
    (void)state;
    make_topic("Tagged");
    for (size_t i = 0; i < TAGGED; i++) {
        const char *tag = tags[i % 5];
        struct tern_message *message = make_message("Tagged", "x", tag);
        assert_ok(tern_producer_send_oneway(producer, message, NULL));
        tern_message_unref(message);
        wanted += tag && (!strcmp(tag, "Aa") || !strcmp(tag, "C"));
    }
    struct tern_push_consumer *consumer = listen_to("Tagged", "Aa || C", &inbox);
    await_received(&inbox, wanted);
    struct timespec more_would_come = {.tv_nsec = 200000000};
    nanosleep(&more_would_come, NULL);
    assert_int_equal(received(&inbox), wanted);
    tern_push_consumer_destroy(consumer);
    for (size_t i = 0; i < wanted; i++)
        assert_true(!strcmp(inbox.messages[i].tag, "Aa") || !strcmp(inbox.messages[i].tag, "C"));
    char *progress = MQADMIN(&cluster, 0, "consumerProgress", "-g", "Tagged");
    assert_contains(progress, "Diff Total: 0"); /* OF-14: what was filtered is done with */
    free(progress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_one_key_keep_their_order),
        cmocka_unit_test(batch_is_stored_whole_or_not_at_all),
        cmocka_unit_test(listener_gets_only_the_tags_it_asked_for),
    };
    return cmocka_run_group_tests_name("client", tests, set_up, tear_down);
}
