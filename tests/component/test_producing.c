/*
 * What producers send, against two real masters: compressed bodies that other programs open,
 * namespaces that do not meet, replies over either broker, traces that mqadmin shows.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <tern/tern.h>

#include "tests/component/daemons.h"
#include "tests/unit/base/unit.h"

static struct cluster cluster;
static struct daemon second; /* broker-b */
static char second_store[DAEMON_PATH_BYTES];

static void start_second(void)
{
    char root[DAEMON_PATH_BYTES + 32], log[DAEMON_PATH_BYTES];
    snprintf(second_store, sizeof second_store, "%.60s/store-b", cluster.dir);
    snprintf(root, sizeof root, "storePathRootDir=%s", second_store);
    snprintf(log, sizeof log, "%.60s/broker-b.log", cluster.dir);
    daemon_spawn(&second, "mqbroker", log,
                 (const char *const[]){"-o", "brokerName=broker-b", "-o", "haListenPort=0", "-o",
                                       "listenPort=0", "-o", root, "-o", "traceTopicEnable=true",
                                       "-n", cluster.namesrv_list, NULL},
                 NULL);
    assert_true(daemon_wait_ready(&second));
}

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"traceTopicEnable=true", NULL});
    start_second();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(daemon_stop(&second, SIGTERM), 0);
    cluster_down(&cluster);
    return 0;
}

static void make_topic(const char *topic)
{
    free(MQADMIN(&cluster, 0, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w",
                 "2"));
}

struct want {
    enum tern_compression type;
    const char *ns;
    bool trace;
};

static struct tern_producer *start_producer(const char *group, struct want want)
{
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *producer;
    struct tern_error err = {.text = ""};
    assert_ok(tern_producer_options_namesrv(options, cluster.namesrv_list));
    assert_ok(tern_producer_options_group(options, group));
    assert_ok(tern_producer_options_send_timeout_ms(options, PATIENCE_MS));
    assert_ok(tern_producer_options_compression(options, want.type, 5));
    assert_ok(tern_producer_options_namespace(options, want.ns ? want.ns : ""));
    assert_ok(tern_producer_options_trace(options, want.trace, NULL));
    assert_ok(tern_producer_create(options, &producer, &err));
    tern_producer_options_destroy(options);
    if (tern_producer_start(producer, &err) != TERN_OK)
        fail_msg("%s", err.text);
    return producer;
}

static struct tern_push_consumer *start_consumer(const char *group, const char *topic,
                                                 struct want want, tern_message_listener listener,
                                                 void *arg)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer;
    assert_ok(tern_consumer_options_namesrv(options, cluster.namesrv_list));
    assert_ok(tern_consumer_options_group(options, group));
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    assert_ok(tern_consumer_options_namespace(options, want.ns ? want.ns : ""));
    assert_ok(tern_consumer_options_trace(options, want.trace, NULL));
    assert_ok(tern_push_consumer_create(options, &consumer, NULL));
    tern_consumer_options_destroy(options);
    assert_ok(tern_push_consumer_subscribe(consumer, topic, "*", NULL));
    assert_ok(tern_push_consumer_listener(consumer, listener, arg));
    assert_ok(tern_push_consumer_start(consumer, NULL));
    return consumer;
}

/* ---- compression ---- */

enum { BODY_BYTES = 20000 };

struct opened {
    _Atomic int count;
    _Atomic int wrong;
};

static char letter_at(size_t i)
{
    return (char)('a' + (i / 7 + i) % 23);
}

static void fill(char *body, size_t size)
{
    for (size_t i = 0; i < size; i++)
        body[i] = letter_at(i);
}

static bool is_filled(const char *body, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (body[i] != letter_at(i))
            return false;
    return true;
}

static enum tern_consume_result check_body(void *arg, const struct tern_message *const *messages,
                                           size_t count)
{
    struct opened *opened = arg;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const void *body = tern_message_body(messages[i], &size);
        if (size != BODY_BYTES || !is_filled(body, size))
            atomic_fetch_add(&opened->wrong, 1);
        atomic_fetch_add(&opened->count, 1);
    }
    return TERN_CONSUME_SUCCESS;
}

static void await_count(_Atomic int *count, int wanted)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (atomic_load(count) < wanted) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
}

/* The stored body begins behind the record's head; Python's zlib opens it from the log's file. */
static void python_opens_what_the_broker_stored(const struct tern_send_result *result)
{
    static const char script[] =
        "import sys,glob,struct,zlib\n"
        "want=b''.join(bytes([97+(i//7+i)%23]) for i in range(20000))\n"
        "for root in sys.argv[1:]:\n"
        "  for f in sorted(glob.glob(root+'/commitlog/*')):\n"
        "    b=open(f,'rb').read(); at=0\n"
        "    while at+88<len(b):\n"
        "      size,magic=struct.unpack('>II',b[at:at+8])\n"
        "      if magic!=0xDAA320A7: break\n"
        "      flag,=struct.unpack('>I',b[at+36:at+40])\n"
        "      n,=struct.unpack('>I',b[at+84:at+88])\n"
        "      if flag&0x701==0x301 and zlib.decompress(b[at+88:at+88+n])==want:\n"
        "        print('opened',n); sys.exit(0)\n"
        "      at+=size\n"
        "sys.exit(1)\n";
    (void)result;
    char command[4096];
    snprintf(command, sizeof command, "python3 -c \"%s\" %s %s >/dev/null", script, cluster.store,
             second_store);
    assert_int_equal(system(command), 0);
}

static void bodies_of_every_type_are_stored_small_and_arrive_whole(void **state)
{
    (void)state;
    static const enum tern_compression types[] = {TERN_COMPRESS_ZLIB, TERN_COMPRESS_LZ4,
                                                  TERN_COMPRESS_ZSTD, TERN_COMPRESS_NONE};
    static char body[BODY_BYTES];
    struct opened opened = {0};
    fill(body, sizeof body);
    make_topic("Packed");
    for (int t = 0; t < 4; t++) {
        struct tern_producer *producer = start_producer("packers", (struct want){.type = types[t]});
        struct tern_message *message;
        struct tern_send_result result;
        struct tern_producer_stats stats;
        assert_ok(tern_message_create("Packed", body, sizeof body, &message, NULL));
        assert_ok(tern_producer_send(producer, message, &result, NULL));
        tern_producer_stats(producer, &stats);
        assert_true((stats.bytes < sizeof body / 2) == (types[t] != TERN_COMPRESS_NONE));
        if (types[t] == TERN_COMPRESS_ZLIB)
            python_opens_what_the_broker_stored(&result);
        char *shown = MQADMIN(&cluster, 0, "queryMsgById", "-i", result.offset_id);
        assert_non_null(strstr(shown, "20000"));
        free(shown);
        tern_message_unref(message);
        tern_producer_destroy(producer);
    }
    struct tern_push_consumer *consumer =
        start_consumer("unpackers", "Packed", (struct want){.ns = ""}, check_body, &opened);
    await_count(&opened.count, 4);
    assert_int_equal(atomic_load(&opened.wrong), 0);
    tern_push_consumer_destroy(consumer);
}

/* ---- namespaces ---- */

struct seen {
    _Atomic int count;
    char topic[128], body[32];
};

static enum tern_consume_result see(void *arg, const struct tern_message *const *messages,
                                    size_t count)
{
    struct seen *seen = arg;
    size_t size;
    const char *body = tern_message_body(messages[0], &size);
    snprintf(seen->topic, sizeof seen->topic, "%s", tern_message_topic(messages[0]));
    snprintf(seen->body, sizeof seen->body, "%.*s", (int)size, body);
    atomic_fetch_add(&seen->count, (int)count);
    return TERN_CONSUME_SUCCESS;
}

static void send_text(struct tern_producer *producer, const char *topic, const char *text,
                      struct tern_send_result *result)
{
    struct tern_message *message;
    struct tern_error err = {.text = ""};
    assert_ok(tern_message_create(topic, text, strlen(text), &message, NULL));
    if (tern_producer_send(producer, message, result, &err) != TERN_OK)
        fail_msg("%s", err.text);
    tern_message_unref(message);
}

static void two_namespaces_do_not_see_each_other(void **state)
{
    (void)state;
    static const char *const spaces[] = {"left", "right"};
    static struct seen seen[2];
    struct tern_producer *producers[2];
    struct tern_push_consumer *consumers[2];
    struct tern_send_result result;
    make_topic("left%Shared");
    make_topic("right%Shared");
    for (int i = 0; i < 2; i++) {
        producers[i] = start_producer("p", (struct want){.ns = spaces[i]});
        consumers[i] =
            start_consumer("same", "Shared", (struct want){.ns = spaces[i]}, see, &seen[i]);
        send_text(producers[i], "Shared", spaces[i], &result);
        assert_string_equal(result.queue.topic, "Shared");
    }
    for (int i = 0; i < 2; i++) {
        await_count(&seen[i].count, 1);
        assert_string_equal(seen[i].topic, "Shared");
        assert_string_equal(seen[i].body, spaces[i]);
    }
    char *progress = MQADMIN(&cluster, 0, "consumerProgress", "-g", "left%same");
    assert_non_null(strstr(progress, "left%Shared"));
    free(progress);
    for (int i = 0; i < 2; i++) {
        tern_push_consumer_destroy(consumers[i]);
        tern_producer_destroy(producers[i]);
        assert_int_equal(atomic_load(&seen[i].count), 1);
    }
}

/* ---- request and reply ---- */

static enum tern_consume_result answer(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    struct tern_producer *producer = arg;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const char *body = tern_message_body(messages[i], &size);
        struct tern_message *reply;
        char text[64];
        int len = snprintf(text, sizeof text, "re:%.*s", (int)size, body);
        if (size == 6 && memcmp(body, "silent", 6) == 0)
            continue;
        if (tern_reply_message_create(messages[i], text, (size_t)len, &reply, NULL) != TERN_OK)
            continue;
        enum tern_code code = tern_producer_send(producer, reply, NULL, NULL);
        tern_message_unref(reply);
        if (code != TERN_OK)
            return TERN_RECONSUME_LATER;
    }
    return TERN_CONSUME_SUCCESS;
}

static enum tern_code ask(struct tern_producer *producer, const char *text, int64_t timeout_ms,
                          char *reply_text, struct tern_error *err)
{
    struct tern_message *message;
    struct tern_message *reply;
    assert_ok(tern_message_create("Questions", text, strlen(text), &message, NULL));
    enum tern_code code = tern_producer_request(producer, message, timeout_ms, &reply, err);
    tern_message_unref(message);
    reply_text[0] = 0;
    if (code != TERN_OK)
        return code;
    size_t size;
    const char *body = tern_message_body(reply, &size);
    snprintf(reply_text, 64, "%.*s", (int)size, body);
    tern_message_unref(reply);
    return TERN_OK;
}

/* Each round's reply goes to either broker in turn, the requester hears both. With and without a
 * namespace: the reply topic has none. */
static void replies_come_from_whichever_broker_stores_them(void **state)
{
    (void)state;
    make_topic("Questions");
    make_topic("quiz%Questions");
    for (int round = 0; round < 2; round++) {
        struct want want = {.ns = round ? "quiz" : ""};
        struct tern_producer *asker = start_producer("askers", want);
        struct tern_producer *replier = start_producer("repliers", want);
        struct tern_push_consumer *responder =
            start_consumer("responders", "Questions", want, answer, replier);
        struct tern_error err = {.text = ""};
        char text[32], expected[32], got[64];
        for (int i = 0; i < 12; i++) {
            snprintf(text, sizeof text, "q%d", i);
            snprintf(expected, sizeof expected, "re:q%d", i);
            if (ask(asker, text, PATIENCE_MS, got, &err) != TERN_OK)
                fail_msg("request %d: %s", i, err.text);
            assert_string_equal(got, expected);
        }
        assert_int_equal(ask(asker, "silent", 300, got, &err), TERN_TIMEOUT);
        assert_non_null(strstr(err.text, "REQUEST_TIMEOUT"));
        tern_push_consumer_destroy(responder);
        tern_producer_destroy(asker);
        tern_producer_destroy(replier);
    }
    char *status = MQADMIN(&cluster, 0, "topicStatus", "-t", "DefaultCluster_REPLY_TOPIC");
    assert_non_null(strstr(status, "broker-a"));
    assert_non_null(strstr(status, "broker-b"));
    free(status);
}

/* ---- figures over both ---- */

/* As RocketMQ's statsAll: a topic's group has one row, whatever the number of its brokers. */
static void a_group_is_told_once_over_all_brokers(void **state)
{
    (void)state;
    static const char *const brokers[] = {"broker-a", "broker-b"};
    make_topic("Both");
    for (size_t i = 0; i < 2; i++)
        free(MQADMIN(&cluster, 0, "sendMessage", "-t", "Both", "-p", "x", "-b", brokers[i], "-i",
                     "0"));
    free(MQADMIN(&cluster, 0, "consumeMessage", "-t", "Both", "-g", "once", "-c", "2",
                 "--idle-exit", "20000"));
    char *out = MQADMIN(&cluster, 0, "statsAll", "-t", "Both", "--json");
    const char *row = strstr(out, "\"consumerGroup\": \"once\"");
    assert_non_null(row);
    assert_null(strstr(row + 1, "\"consumerGroup\""));
    assert_contains(out, "\"inMsg24Hour\": 2");
    assert_contains(out, "\"accumulation\": 0");
    assert_contains(out, "\"outSinceStart\": 2");
    free(out);
}

/* ---- trace ---- */

/* Until mqadmin shows all of it; the records are sent and indexed a little later. */
static void await_trace(const char *id, const char *const *texts, size_t count)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    for (;;) {
        struct tool tool;
        tool_run(&tool, "mqadmin",
                 (const char *const[]){"queryMsgTraceById", "-n", cluster.namesrv_list, "-i", id,
                                       "--json", NULL},
                 NULL, 0);
        size_t found = 0;
        for (size_t i = 0; i < count; i++)
            found += strstr(tool.out, texts[i]) != NULL;
        if (found == count) {
            tool_free(&tool);
            return;
        }
        if (now_ms() > deadline)
            fail_msg("the trace shows only:\n%s%s", tool.out, tool.err);
        tool_free(&tool);
        look_again_soon();
    }
}

static void trace_leads_from_producer_to_consumer(void **state)
{
    (void)state;
    static struct seen seen;
    struct want want = {.trace = true};
    struct tern_send_result result;
    make_topic("Traced");
    struct tern_producer *producer = start_producer("traced-producers", want);
    struct tern_push_consumer *consumer =
        start_consumer("traced-consumers", "Traced", want, see, &seen);
    send_text(producer, "Traced", "look", &result);
    await_count(&seen.count, 1);
    await_trace(result.message_id,
                (const char *const[]){"traced-producers", "\"Pub\"", "traced-consumers", "SubAfter",
                                      "success"},
                5);
    struct tern_producer_stats stats;
    tern_producer_stats(producer, &stats);
    assert_int_equal(stats.trace_dropped, 0);
    free(MQADMIN(&cluster, 1, "queryMsgTraceById", "-i", "00000000000000000000000000000000"));
    tern_push_consumer_destroy(consumer);
    tern_producer_destroy(producer);
}

static void tool_traces_what_it_sends_when_told_to(void **state)
{
    char id[64];
    (void)state;
    make_topic("TracedByTool");
    char *sent = MQADMIN(&cluster, 0, "sendMessage", "-t", "TracedByTool", "-p", "look", "-m",
                         "true", "--json");
    const char *at = strstr(sent, "\"msgId\": \"");
    assert_non_null(at);
    at += strlen("\"msgId\": \"");
    snprintf(id, sizeof id, "%.*s", (int)strcspn(at, "\""), at);
    free(sent);
    await_trace(id, (const char *const[]){"TOOLS_PRODUCER", "\"Pub\""}, 2);
}

/* A group whose topics only one master has is known there alone: deleting it everywhere is done */
static void a_group_is_deleted_where_it_is_known(void **state)
{
    (void)state;
    free(MQADMIN(&cluster, 0, "updateSubGroup", "-b", second.address, "-g", "half-known"));
    char *out = MQADMIN(&cluster, 0, "deleteSubGroup", "-c", "DefaultCluster", "-g", "half-known",
                        "-r", "true");
    assert_non_null(strstr(out, second.address));
    assert_null(strstr(out, cluster.broker.address));
    free(out);
    free(MQADMIN(&cluster, 1, "deleteSubGroup", "-c", "DefaultCluster", "-g", "half-known"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_of_every_type_are_stored_small_and_arrive_whole),
        cmocka_unit_test(two_namespaces_do_not_see_each_other),
        cmocka_unit_test(replies_come_from_whichever_broker_stores_them),
        cmocka_unit_test(a_group_is_told_once_over_all_brokers),
        cmocka_unit_test(a_group_is_deleted_where_it_is_known),
        cmocka_unit_test(trace_leads_from_producer_to_consumer),
        cmocka_unit_test(tool_traces_what_it_sends_when_told_to),
    };
    return cmocka_run_group_tests_name("producing", tests, set_up, tear_down);
}
