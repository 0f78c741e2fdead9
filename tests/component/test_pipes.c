/*
 * mqadmin in pipes: `sendMessage --lines` and `consumeMessage --body-only` give back what went in,
 * in order, whatever lines hold, whoever dies meanwhile.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { LINES = 100000 };

enum { DONE = 0 };

static struct cluster cluster;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=64MiB", NULL});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_down(&cluster);
    return 0;
}

/* Real text repeated with numbers, and all that lines may hold: nothing, CR, NUL, bytes of no text.
 */
static char *make_lines(size_t *size)
{
    static const char *const sources[] = {"/usr/share/common-licenses/GPL-3",
                                          SOURCE_DIR "/LICENSE"};
    static const char odd[] = "\n\r\n\0\n\0\0 in the middle\0\n\xff\xfe\x01\x02\n\n";
    size_t text_size = 0, cap, lines = 0;
    const char *source = sources[access(sources[0], R_OK) == 0 ? 0 : 1];
    char *text = file_read(source, &text_size);
    cap = (size_t)LINES * 256;
    char *out = malloc(cap);
    assert_non_null(out);
    memcpy(out, odd, sizeof odd - 1);
    *size = sizeof odd - 1;
    for (const char *at = text; lines < LINES; lines++) {
        int len = (int)strcspn(at, "\n");
        *size += (size_t)snprintf(out + *size, cap - *size, "%zu %.*s\n", lines,
                                  len < 200 ? len : 200, at);
        at += len;
        at = *at ? at + 1 : text;
    }
    free(text);
    return out;
}

static void make_topic(const char *topic, const char *queues)
{
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", queues,
                 "-w", queues));
}

static void send_lines(const char *topic, const void *text, size_t size)
{
    struct tool tool;
    tool_run(&tool, "mqadmin",
             (const char *const[]){"sendMessage", "-n", cluster.namesrv_list, "-t", topic,
                                   "--lines", NULL},
             text, size);
    if (tool.status != DONE)
        fail_msg("sendMessage --lines ended with %d: %s", tool.status, tool.err);
    tool_free(&tool);
}

static void expect_same(const char *got, size_t got_size, const char *wanted, size_t wanted_size)
{
    size_t same = 0;
    while (same < got_size && same < wanted_size && got[same] == wanted[same])
        same++;
    if (same != wanted_size || got_size != wanted_size)
        fail_msg("%zu bytes instead of %zu, the first other one at %zu", got_size, wanted_size,
                 same);
}

/* The contract: one queue, the same order, every byte */
static void lines_sent_are_the_lines_consumed(void **state)
{
    size_t size;
    struct tool tool;
    (void)state;
    char *text = make_lines(&size);
    make_topic("Lines", "1");
    send_lines("Lines", text, size);
    tool_run(&tool, "mqadmin",
             (const char *const[]){"consumeMessage", "-n", cluster.namesrv_list, "-t", "Lines",
                                   "--body-only", "--idle-exit", "1500", NULL},
             NULL, 0);
    assert_int_equal(tool.status, DONE);
    expect_same(tool.out, tool.out_size, text, size);
    tool_free(&tool);
    tool_run(&tool, "mqadmin",
             (const char *const[]){"consumeMessage", "-n", cluster.namesrv_list, "-t", "Lines",
                                   "-g", "liners", "--body-only", "--idle-exit", "1500", NULL},
             NULL, 0);
    assert_int_equal(tool.status, DONE);
    expect_same(tool.out, tool.out_size, text, size);
    tool_free(&tool);
    free(text);
}

/* Starts sending the file's lines in the background. */
static void start_sending(struct daemon *sender, const struct cluster *to, const char *topic,
                          const char *path)
{
    char command[512], log[DAEMON_PATH_BYTES];
    snprintf(command, sizeof command,
             "exec " BIN_DIR "/mqadmin sendMessage -n %s -t %s --lines <%s", to->namesrv_list,
             topic, path);
    snprintf(log, sizeof log, "%s/sender.log", to->dir);
    memset(sender, 0, sizeof *sender);
    daemon_spawn(sender, "/bin/sh", log, (const char *const[]){"-c", command, NULL}, NULL);
}

static void await_stored(const struct cluster *at, int64_t count)
{
    struct wire wire;
    int64_t deadline = now_ms() + PATIENCE_MS;
    wire_open(&wire, at->broker.address, "127.0.0.1@watch");
    while (wire_status(&wire, "putMessageTimesTotal") < count)
        assert_true(now_ms() < deadline);
    wire_close(&wire);
}

/* Every number below LINES once in order, but for lines that were sent again */
static void expect_numbers_in_order(const char *text)
{
    long next = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        long number = strtol(at, NULL, 10);
        if (number > next)
            fail_msg("line %ld comes where line %ld should", number, next);
        next += number == next;
    }
    assert_int_equal(next, LINES);
}

/* The contract's "in order per queue" holds over a death of the broker; lines may come twice */
static void lines_keep_their_order_though_the_broker_dies(void **state)
{
    static char text[LINES * 8];
    struct cluster own;
    struct daemon sender;
    char path[DAEMON_PATH_BYTES];
    size_t size = 0;
    (void)state;
    cluster_up(&own, NULL);
    free(MQADMIN(&own, DONE, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "1", "-w",
                 "1"));
    for (int i = 0; i < LINES; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "%d\n", i);
    snprintf(path, sizeof path, "%s/lines", own.dir);
    file_write(path, text, size);
    start_sending(&sender, &own, "T", path);
    for (int death = 0; death < 3; death++) {
        await_stored(&own, 3000);
        assert_int_equal(daemon_stop(&own.broker, SIGKILL), -SIGKILL);
        cluster_start_broker(&own);
    }
    int status = daemon_wait(&sender, 2 * PATIENCE_MS);
    if (status != DONE)
        daemon_fail(&sender, "sendMessage ended with %d", status);
    char *got =
        MQADMIN(&own, DONE, "consumeMessage", "-t", "T", "--body-only", "--idle-exit", "1500");
    expect_numbers_in_order(got);
    free(got);
    cluster_down(&own);
}

/* A pipe that pauses, as tail -f does, must not keep its lines back until many have come */
static void lines_of_a_pipe_that_pauses_are_sent_at_once(void **state)
{
    char command[512];
    (void)state;
    make_topic("Paused", "1");
    snprintf(command, sizeof command,
             BIN_DIR "/mqadmin sendMessage -n %s -t Paused --lines >/dev/null",
             cluster.namesrv_list);
    FILE *pipe = popen(command, "w");
    assert_non_null(pipe);
    fputs("one\ntwo\nthr", pipe);
    fflush(pipe);
    char *read = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Paused", "--body-only", "-c", "2",
                         "--idle-exit", "15000");
    assert_string_equal(read, "one\ntwo\n");
    free(read);
    fputs("ee", pipe); /* the end of the input ends a line too */
    assert_int_equal(pclose(pipe), 0);
    read = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Paused", "--body-only", "-c", "3",
                   "--idle-exit", "15000");
    assert_string_equal(read, "one\ntwo\nthree\n");
    free(read);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, NUL-terminated lines of a text, which they point into; the caller frees the list. */
static const char **sorted_lines(char *text, size_t *count)
{
    const char **lines = calloc(LINES + 1, sizeof *lines);
    assert_non_null(lines);
    *count = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && rest;) {
        assert_true(*count < LINES);
        lines[(*count)++] = line;
    }
    qsort(lines, *count, sizeof *lines, by_text);
    return lines;
}

/* Several readers of one group, one after the other, get everything and nothing twice */
static void readers_that_take_a_few_each_share_the_lines(void **state)
{
    enum { ALL = 400, EACH = 100 };
    char text[ALL * 24], got[ALL * 32] = "", each[16];
    size_t size = 0, count;
    (void)state;
    for (int i = 0; i < ALL; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "line-%06d\n", i);
    snprintf(each, sizeof each, "%d", EACH);
    make_topic("Shared", "4");
    send_lines("Shared", text, size);
    for (int i = 0; i < ALL / EACH; i++) {
        char *part = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Shared", "-g", "sharers",
                             "--body-only", "-c", each, "--idle-exit", "10000");
        strncat(got, part, sizeof got - strlen(got) - 1);
        free(part);
    }
    const char **lines = sorted_lines(got, &count);
    assert_int_equal(count, ALL);
    for (int i = 0; i < ALL; i++) {
        char wanted[24];
        snprintf(wanted, sizeof wanted, "line-%06d", i);
        assert_string_equal(lines[i], wanted);
    }
    free(lines);
}

static void reader_whose_pipe_is_closed_ends(void **state)
{
    char command[512], line[16];
    size_t size;
    (void)state;
    char *text = make_lines(&size);
    make_topic("Head", "1");
    send_lines("Head", text, size);
    free(text);
    snprintf(command, sizeof command,
             BIN_DIR "/mqadmin consumeMessage -n %s -t Head --body-only --idle-exit 60000 | "
                     "tail -n +8 | head -n 1",
             cluster.namesrv_list);
    int64_t begin = now_ms();
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    assert_int_not_equal(pclose(pipe), -1);
    assert_true(now_ms() - begin < PATIENCE_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_sent_are_the_lines_consumed),
        cmocka_unit_test(lines_keep_their_order_though_the_broker_dies),
        cmocka_unit_test(lines_of_a_pipe_that_pauses_are_sent_at_once),
        cmocka_unit_test(readers_that_take_a_few_each_share_the_lines),
        cmocka_unit_test(reader_whose_pipe_is_closed_ends),
    };
    return cmocka_run_group_tests_name("pipes", tests, set_up, tear_down);
}
