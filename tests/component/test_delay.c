/*
 * Delayed messages with real daemons: a master is killed while thousands of them come due, and
 * comes back; each is there once (D-1, D-2, MD-08, DL-02). And the tools.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/props.h"
#include "base/record.h"
#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { MESSAGES = 2000, IN_FLIGHT = 50, COMES_MS = 60000, KILLS = 2 };

struct seen {
    uint32_t times[MESSAGES];
    uint32_t all;
    int64_t late_ms[MESSAGES]; /* of those with a due time */
    size_t timed;
};

/* Sends [from, to): every third by level 1 or 2, the others by due times up to 6 s ahead. */
static void send_delayed(struct wire *wire, int from, int to)
{
    static struct wire_pending pending[IN_FLIGHT];
    for (int first = from; first < to; first += IN_FLIGHT) {
        for (int i = 0; i < IN_FLIGHT; i++) {
            Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
            char props[64];
            char body[16];
            int number = first + i;
            snprintf(body, sizeof body, "%d", number);
            if (number % 3 == 0)
                snprintf(props, sizeof props, "DELAY\001%d\002", 1 + number % 2);
            else
                snprintf(props, sizeof props, "TIMER_DELAY_MS\001%d\002", 500 + number * 7 % 5500);
            send.topic = bytes_of_text("T");
            send.properties = bytes_of_text(props);
            WIRE_REQUEST(request, SEND, send, &send);
            wire_start_within(wire, &request, body, strlen(body), PATIENCE_MS, &pending[i]);
        }
        for (int i = 0; i < IN_FLIGHT; i++) {
            assert_true(wire_wait(&pending[i], PATIENCE_MS));
            assert_int_equal(pending[i].call->status, TERN_OK);
            assert_int_equal(pending[i].call->response->code, CODE(SUCCESS));
            rpc_call_unref(pending[i].call);
        }
    }
}

/* SEQUEL_OF tells when it was due. */
static void note_lateness(struct seen *seen, const struct record *record)
{
    struct slice value;
    char text[64] = "";
    long long due_ms;
    assert_true(props_get(record->props, record->props_len, PROP_SEQUEL_OF, &value));
    memcpy(text, value.ptr, value.len < sizeof text ? value.len : sizeof text - 1);
    if (sscanf(text, "T.%lld.", &due_ms) != 1)
        return;
    assert_true(record->store_ms >= due_ms);
    seen->late_ms[seen->timed++] = record->store_ms - due_ms;
}

static int compare_late(const void *a, const void *b)
{
    const int64_t *left = a;
    const int64_t *right = b;
    return *left < *right ? -1 : *left > *right;
}

static void read_all(struct wire *wire, struct seen *seen)
{
    int64_t offset = 0;
    int64_t end = wire_max_offset(wire, "T", 0);
    memset(seen, 0, sizeof *seen);
    while (offset < end) {
        struct rpc_call *call = pull_from(wire, "readers", "T", 0, offset);
        assert_int_equal(call->response->code, CODE(SUCCESS));
        for (size_t at = 0; at < call->payload_size;) {
            struct record record;
            char body[16] = "";
            assert_int_equal(
                record_parse(call->payload + at, call->payload_size - at, INT32_MAX, true, &record),
                RECORD_WHOLE);
            memcpy(body, record.body, record.body_len < 15 ? record.body_len : 15);
            int number = (int)strtol(body, NULL, 10);
            assert_in_range(number, 0, MESSAGES - 1);
            seen->times[number]++;
            note_lateness(seen, &record);
            seen->all++;
            at += record.total_size;
        }
        offset = call->response->pull->next_offset;
        rpc_call_unref(call);
    }
}

static void killed_while_messages_come_due_each_comes_once(void **state)
{
    struct broker_set set;
    static struct seen seen;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, NULL);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int round = 0; round < KILLS; round++) {
        struct wire *wire = set_wire(&set, 0);
        send_delayed(wire, MESSAGES / KILLS * round, MESSAGES / KILLS * (round + 1));
        int64_t begin = now_ms();
        int64_t before = wire_max_offset(wire, "T", 0);
        while (wire_max_offset(wire, "T", 0) < before + 100) /* they come just now */
            assert_true(now_ms() - begin < PATIENCE_MS);
        set_kill(&set, 0);
        set_start(&set, 0);
        set_await_in_sync(&set, 1);
    }
    int64_t begin = now_ms();
    while (wire_max_offset(set_wire(&set, 0), "T", 0) < MESSAGES)
        assert_true(now_ms() - begin < COMES_MS);
    wire_await_status(set_wire(&set, 0), "timerPending", 0);
    for (size_t node = 0; node < 2; node++) {
        if (node == 1)
            set_await_equal(&set, 1);
        read_all(set_wire(&set, node), &seen);
        assert_int_equal(seen.all, MESSAGES);
        for (int i = 0; i < MESSAGES; i++)
            assert_int_equal(seen.times[i], 1);
    }
    set_down(&set);
}

/* How late they come is printed; what a busy machine does to it is not a failure. */
static void due_times_are_kept(void **state)
{
    struct broker_set set;
    static struct seen seen;
    (void)state;
    set_up(&set, "ASYNC_MASTER", 0, NULL);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    send_delayed(set_wire(&set, 0), 0, MESSAGES);
    int64_t begin = now_ms();
    while (wire_max_offset(set_wire(&set, 0), "T", 0) < MESSAGES)
        assert_true(now_ms() - begin < COMES_MS);
    read_all(set_wire(&set, 0), &seen);
    qsort(seen.late_ms, seen.timed, sizeof seen.late_ms[0], compare_late);
    print_message("%zu due times: late by %" PRId64 " ms (median), %" PRId64 " (99 %%), %" PRId64
                  " (most)\n",
                  seen.timed, seen.late_ms[seen.timed / 2], seen.late_ms[seen.timed * 99 / 100],
                  seen.late_ms[seen.timed - 1]);
    assert_true(seen.late_ms[seen.timed / 2] < 5000);
    set_down(&set);
}

/* The word behind `key` in a JSON answer; the caller frees it. */
static char *value_of(const char *json, const char *key)
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\"", key);
    const char *at = strstr(json, pattern);
    assert_non_null(at);
    at = strchr(at + strlen(pattern), '"');
    assert_non_null(at);
    return strndup(at + 1, strcspn(at + 1, "\""));
}

/* mqadmin sends them one a frame: they travel alone. */
static void lines_of_a_pipe_are_delayed(void **state)
{
    struct cluster cluster;
    char command[1024];
    (void)state;
    cluster_up(&cluster, NULL);
    free(MQADMIN(&cluster, 0, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "1", "-w",
                 "1"));
    snprintf(command, sizeof command,
             "seq 1 300 | " BIN_DIR "/mqadmin sendMessage -n %s -t T --lines --delay-level 1",
             cluster.namesrv_list);
    assert_int_equal(system(command), 0);
    char *got = MQADMIN(&cluster, 0, "consumeMessage", "-t", "T", "--body-only", "-c", "300",
                        "--idle-exit", "20000");
    char *at = got;
    for (long i = 1; i <= 300; i++)
        assert_int_equal(strtol(at, &at, 10), i);
    free(got);
    cluster_down(&cluster);
}

static void the_tools_delay_and_cancel(void **state)
{
    struct cluster cluster;
    (void)state;
    cluster_up(&cluster, NULL);
    free(MQADMIN(&cluster, 0, "updateTopic", "-c", "DefaultCluster", "-t", "T"));
    char *sent = MQADMIN(&cluster, 0, "sendMessage", "-t", "T", "-p", "taken back", "--delay-level",
                         "5", "--json");
    char *place = value_of(sent, "offsetMsgId");
    char *id = value_of(sent, "msgId");
    free(MQADMIN(&cluster, 0, "sendMessage", "-t", "T", "-p", "comes", "--delay-level", "1"));
    static const char *const wrong[] = {"-1", "65", "1x", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        free(MQADMIN(&cluster, 2, "sendMessage", "-t", "T", "-p", "never", "--delay-level",
                     wrong[i]));
    free(MQADMIN(&cluster, 2, "sendMessage", "-t", "T", "-p", "never", "--deliver-at", "-1"));
    free(MQADMIN(&cluster, 2, "sendMessage", "-t", "T", "-p", "never", "--deliver-at", "5",
                 "--delay-level", "1"));
    free(MQADMIN(&cluster, 0, "cancelMessage", "-i", place, "-k", id));
    free(MQADMIN(&cluster, 1, "cancelMessage", "-i", place, "-k", id));
    char *got = MQADMIN(&cluster, 0, "consumeMessage", "-t", "T", "--body-only", "-c", "1",
                        "--idle-exit", "20000");
    assert_string_equal(got, "comes\n");
    free(got);
    free(sent);
    free(place);
    free(id);
    cluster_down(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_while_messages_come_due_each_comes_once),
        cmocka_unit_test(due_times_are_kept),
        cmocka_unit_test(lines_of_a_pipe_are_delayed),
        cmocka_unit_test(the_tools_delay_and_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
