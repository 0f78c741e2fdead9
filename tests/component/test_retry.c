/*
 * Failing messages on real daemons: sent back over the wire, listed and driven once more by mqadmin
 * (R-6, RO-04).
 */
#include <unistd.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { DONE, NO, USAGE };

static struct cluster cluster;
static struct wire wire;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=64MiB", NULL});
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "1", "-w",
                 "1"));
    wire_open(&wire, cluster.broker.address, "tester");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_close(&wire);
    cluster_down(&cluster);
    return 0;
}

static int64_t send_body(const char *body, const char *properties)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    send.producer_group = bytes_of_text("producers");
    send.topic = bytes_of_text("T");
    send.properties = bytes_of_text(properties);
    WIRE_REQUEST(request, SEND, send, &send);
    struct rpc_call *call = wire_ask(&wire, &request, body, strlen(body));
    assert_int_equal(call->response->code, CODE(SUCCESS));
    int64_t phys_off = call->response->send->physical_offset;
    rpc_call_unref(call);
    return phys_off;
}

static void send_back(int64_t phys_off, int32_t level)
{
    Tern__Wire__SendBackRequest back = TERN__WIRE__SEND_BACK_REQUEST__INIT;
    back.group = bytes_of_text("G");
    back.origin_topic = bytes_of_text("T");
    back.physical_offset = phys_off;
    back.delay_level = level;
    WIRE_REQUEST(request, SEND_BACK, send_back, &back);
    wire_expect(&wire, &request, NULL, 0, CODE(SUCCESS), NULL);
}

/* Level 1 is a second. */
static void a_message_sent_back_comes_again_after_its_delay(void **state)
{
    (void)state;
    int64_t begin = now_ms();
    send_back(send_body("again", ""), 1);
    wire_await_offset(&wire, "%RETRY%G", 0, 1);
    int64_t took = now_ms() - begin;
    assert_true(took >= 950 && took < 5000);
    wire_await_status(&wire, "retriesStored", 1);
}

/* RO-04: listed, readable, driven again once, and only once by accident. */
static void dead_letters_are_listed_and_driven_again_once(void **state)
{
    (void)state;
    send_back(send_body("dead", "UNIQ_KEY\x01"
                                "ID-1\x02KEYS\x01k"),
              -1);
    wire_await_offset(&wire, "%DLQ%G", 0, 1);
    char *list = MQADMIN(&cluster, DONE, "dlqList", "-g", "G", "--json");
    assert_non_null(strstr(list, "\"msgId\": \"ID-1\""));
    assert_non_null(strstr(list, "\"originTopic\": \"T\""));
    assert_non_null(strstr(list, "\"times\": 1"));
    free(list);
    int64_t before = wire_max_offset(&wire, "T", 0);
    char *out =
        MQADMIN(&cluster, DONE, "dlqRedrive", "-g", "G", "--all", "--to", "topic", "--dry-run");
    assert_non_null(strstr(out, "would be sent"));
    free(out);
    assert_int_equal(wire_max_offset(&wire, "T", 0), before);
    free(MQADMIN(&cluster, DONE, "dlqRedrive", "-g", "G", "-i", "ID-1", "--to", "topic"));
    wire_await_offset(&wire, "T", 0, before + 1);
    out = MQADMIN(&cluster, DONE, "dlqRedrive", "-g", "G", "-i", "ID-1", "--to", "topic");
    assert_non_null(strstr(out, "sent before"));
    free(out);
    assert_int_equal(wire_max_offset(&wire, "T", 0), before + 1);
    int64_t retries = wire_max_offset(&wire, "%RETRY%G", 0);
    free(MQADMIN(&cluster, DONE, "dlqRedrive", "-g", "G", "--all"));
    wire_await_offset(&wire, "%RETRY%G", 0, retries + 1);
    assert_int_equal(wire_max_offset(&wire, "%DLQ%G", 0), 1);
    free(MQADMIN(&cluster, NO, "dlqRedrive", "-g", "G", "-i", "ID-2"));
    free(MQADMIN(&cluster, USAGE, "dlqRedrive", "-g", "G"));
    struct tool tool;
    tool_run(&tool, "mqadmin",
             (const char *const[]){"dlqList", "-n", cluster.namesrv_list, "-g", "nobody", NULL},
             NULL, 0);
    assert_int_equal(tool.status, NO);
    assert_contains(tool.err, "group nobody has no dead letters");
    tool_free(&tool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_sent_back_comes_again_after_its_delay),
        cmocka_unit_test(dead_letters_are_listed_and_driven_again_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
