/*
 * consumeMessage: prints what a topic holds and what comes.
 *
 * With -g it is a member of the group: a push consumer with one thread, which heartbeats and
 * commits. Without, it is an anonymous reader: one pull under way per queue, printed by the main
 * thread. Ends after -c messages, after --idle-exit without any, or at SIGINT and SIGTERM (which
 * commit first).
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tern/tern.h>

#include "base/subscription.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/pipe.h"
#include "tools/mqadmin/show_message.h"

enum {
    QUEUES_MAX = 4096,
    PULL_MESSAGES = 256,
    PULL_WAIT_MS = 15000,
    LOOK_EVERY_MS = 100,
    PAUSE_AFTER_ERROR_MS = 500,
    SHUTDOWN_MS = 3000
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

struct reader {
    struct invocation *invocation;
    const char *topic, *expression;
    bool by_sql; /* the expression is an SQL92 condition */
    bool body_only;
    int64_t most;         /* messages to print; INT64_MAX: no limit */
    int64_t idle_exit_ms; /* 0: never */
    enum tern_consume_from from;
    int64_t from_ms;
    int64_t until_ms; /* store time of the last one wanted; -1: no bound */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t printed;    /* under lock */
    int64_t last_ms;    /* under lock: when the last message came */
    bool output_failed; /* under lock: stdout is gone */
    struct tern_push_consumer *member;
    struct tern_pull_consumer *anonymous;
    struct queue_pull *pulls;
    size_t pull_count;
};

/* One queue of an anonymous reader. */
struct queue_pull {
    struct reader *reader;
    struct tern_queue queue;
    int64_t offset;
    int64_t end;  /* with a bound in time: the queue's end when it began */
    bool flying;  /* under lock */
    bool arrived; /* under lock: result or error is to be taken */
    enum tern_code code;
    struct tern_pull_result result;
    struct tern_error err;
    int64_t not_before_ms;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- printing ---- */

static void print_message(struct reader *reader, const struct tern_message *message)
{
    if (reader->body_only) {
        size_t size;
        const void *body = tern_message_body(message, &size);
        fwrite(body, 1, size, stdout);
        putchar('\n');
    } else if (reader->invocation->json) {
        json_t *json = message_json(message);
        json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(json);
    } else {
        message_print_line(message);
    }
}

/* false: enough, or stdout is gone. */
static bool take_message(struct reader *reader, const struct tern_message *message)
{
    pthread_mutex_lock(&reader->lock);
    bool wanted = reader->printed < reader->most && !reader->output_failed;
    if (wanted) {
        print_message(reader, message);
        reader->output_failed = ferror(stdout) != 0;
        reader->printed++;
        reader->last_ms = now_ms();
        if (reader->printed == reader->most || reader->output_failed)
            pthread_cond_broadcast(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    return wanted;
}

/* @locks holds:lock */
static bool finished(const struct reader *reader)
{
    return interrupted || reader->output_failed || reader->printed >= reader->most ||
           (reader->idle_exit_ms && now_ms() - reader->last_ms >= reader->idle_exit_ms);
}

/* @locks holds:lock */
static void wait_a_little(struct reader *reader)
{
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += LOOK_EVERY_MS * 1000000L;
    deadline.tv_sec += deadline.tv_nsec / 1000000000;
    deadline.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&reader->changed, &reader->lock, &deadline);
}

/* ---- as a member of a group ---- */

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct reader *reader = arg;
    for (size_t i = 0; i < count; i++)
        if (!take_message(reader, messages[i]))
            return TERN_RECONSUME_LATER;
    pthread_mutex_lock(&reader->lock);
    bool enough = reader->printed >= reader->most;
    pthread_mutex_unlock(&reader->lock);
    if (enough)
        tern_push_consumer_suspend(reader->member); /* what follows stays for the next member */
    return TERN_CONSUME_SUCCESS;
}

static enum tern_code make_options(const struct reader *reader, const char *group,
                                   struct tern_consumer_options **out, struct tern_error *err)
{
    struct tern_consumer_options *o = tern_consumer_options_create();
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_consumer_options_namesrv(o, reader->invocation->namesrv);
    if (code == TERN_OK)
        code = tern_consumer_options_group(o, group);
    if (code == TERN_OK)
        code = tern_consumer_options_from(o, reader->from, reader->from_ms);
    if (code == TERN_OK)
        code = tern_consumer_options_threads(o, 1);
    if (code == TERN_OK)
        code = tern_consumer_options_pull_batch(o, PULL_MESSAGES);
    *out = o;
    return code && o ? error_set(err, code, "%s", tern_consumer_options_error(o)) : code;
}

static enum tern_code start_member(struct reader *reader, const char *group, struct tern_error *err)
{
    struct tern_consumer_options *o;
    enum tern_code code = make_options(reader, group, &o, err);
    if (code == TERN_OK)
        code = tern_push_consumer_create(o, &reader->member, err);
    tern_consumer_options_destroy(o);
    if (code == TERN_OK)
        code = reader->by_sql ? tern_push_consumer_subscribe_sql(reader->member, reader->topic,
                                                                 reader->expression, err)
                              : tern_push_consumer_subscribe(reader->member, reader->topic,
                                                             reader->expression, err);
    if (code == TERN_OK)
        code = tern_push_consumer_listener(reader->member, on_messages, reader);
    return code == TERN_OK ? tern_push_consumer_start(reader->member, err) : code;
}

/* A member starts without anybody there and waits; who reads a pipe wants to know at once. */
static enum tern_code check_topic(const struct reader *reader, struct tern_error *err)
{
    struct admin_broker *brokers = NULL;
    size_t count;
    enum tern_code code =
        admin_topic_brokers(reader->invocation->admin, reader->topic, false, &brokers, &count, err);
    free(brokers);
    return code;
}

static int read_as_member(struct reader *reader, const char *group)
{
    struct tern_error err = {.text = ""};
    int status = EXIT_DONE;
    enum tern_code code = check_topic(reader, &err);
    if (code == TERN_OK)
        code = start_member(reader, group, &err);
    if (code != TERN_OK) {
        status = command_fail(reader->invocation, code, &err);
    } else {
        pthread_mutex_lock(&reader->lock);
        reader->last_ms = now_ms();
        while (!finished(reader))
            wait_a_little(reader);
        pthread_mutex_unlock(&reader->lock);
        code = tern_push_consumer_shutdown(reader->member, SHUTDOWN_MS);
        if (code != TERN_OK) {
            error_set(&err, code,
                      "the group's last progress was not written: what was printed since the last "
                      "that was comes again");
            status = command_fail(reader->invocation, code, &err);
        }
    }
    tern_push_consumer_destroy(reader->member);
    return status;
}

/* ---- as an anonymous reader ---- */

static void on_pull(void *arg, enum tern_code code, struct tern_pull_result *result,
                    const struct tern_error *err)
{
    struct queue_pull *pull = arg;
    pthread_mutex_lock(&pull->reader->lock);
    pull->code = code;
    if (result)
        pull->result = *result;
    if (err)
        pull->err = *err;
    pull->flying = false;
    pull->arrived = true;
    pthread_cond_broadcast(&pull->reader->changed);
    pthread_mutex_unlock(&pull->reader->lock);
}

static enum tern_code start_offset(struct reader *reader, struct queue_pull *pull,
                                   struct tern_error *err)
{
    int64_t min, max;
    if (reader->from == TERN_FROM_TIMESTAMP)
        return tern_pull_consumer_search(reader->anonymous, &pull->queue, reader->from_ms,
                                         &pull->offset, err);
    enum tern_code code =
        tern_pull_consumer_range(reader->anonymous, &pull->queue, &min, &max, err);
    pull->offset = reader->from == TERN_FROM_LAST ? max : min;
    return code;
}

/* With -e a queue ends where it ended at the beginning, or at the first younger message. */
static enum tern_code end_offset(struct reader *reader, struct queue_pull *pull,
                                 struct tern_error *err)
{
    int64_t min;
    pull->end = INT64_MAX;
    return reader->until_ms < 0
               ? TERN_OK
               : tern_pull_consumer_range(reader->anonymous, &pull->queue, &min, &pull->end, err);
}

/* Keeps the queues that -b and -i name; all without them. */
static bool wanted_queue(const struct invocation *invocation, const struct tern_queue *queue,
                         int64_t queue_id)
{
    const char *broker = option_value(invocation, "brokerName");
    return (!broker || !strcmp(broker, queue->broker_name)) &&
           (queue_id < 0 || queue_id == queue->queue_id);
}

static enum tern_code start_anonymous(struct reader *reader, int64_t queue_id, int64_t offset,
                                      struct tern_error *err)
{
    struct tern_consumer_options *o;
    struct tern_queue *queues = calloc(QUEUES_MAX, sizeof *queues);
    size_t count = 0;
    enum tern_code code = make_options(reader, "TOOLS_CONSUMER", &o, err);
    if (code == TERN_OK && !queues)
        code = TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_pull_consumer_create(o, &reader->anonymous, err);
    tern_consumer_options_destroy(o);
    if (code == TERN_OK)
        code = tern_pull_consumer_start(reader->anonymous, err);
    if (code == TERN_OK)
        code = tern_pull_consumer_queues(reader->anonymous, reader->topic, queues, QUEUES_MAX,
                                         &count, err);
    reader->pulls = calloc(count ? count : 1, sizeof *reader->pulls);
    for (size_t i = 0; code == TERN_OK && i < count && i < QUEUES_MAX; i++) {
        struct queue_pull *pull = &reader->pulls[reader->pull_count];
        if (!wanted_queue(reader->invocation, &queues[i], queue_id))
            continue;
        pull->reader = reader;
        pull->queue = queues[i];
        pull->offset = offset;
        if (offset < 0)
            code = start_offset(reader, pull, err);
        if (code == TERN_OK)
            code = end_offset(reader, pull, err);
        reader->pull_count++;
    }
    free(queues);
    if (code == TERN_OK && reader->pull_count == 0)
        code = error_set(err, TERN_NOT_FOUND, "topic %s has no such queue", reader->topic);
    return code;
}

/* Prints one answer and moves on. @locks none */
static void take_answer(struct reader *reader, struct queue_pull *pull)
{
    if (pull->code != TERN_OK) {
        fprintf(stderr, "mqadmin consumeMessage: %s/%" PRId32 ": %s\n", pull->queue.broker_name,
                pull->queue.queue_id, error_text(&pull->err, pull->code));
        pull->not_before_ms = now_ms() + PAUSE_AFTER_ERROR_MS;
        return;
    }
    bool younger = false;
    for (size_t i = 0; i < pull->result.count && !younger; i++) {
        const struct tern_message *message = pull->result.messages[i];
        younger = reader->until_ms >= 0 && (tern_message_store_ms(message) > reader->until_ms ||
                                            tern_message_queue_offset(message) >= pull->end);
        if (!younger && !take_message(reader, message))
            break;
    }
    if (pull->result.next_offset == pull->offset && pull->result.status != TERN_PULL_NO_NEW_MSG)
        pull->not_before_ms = now_ms() + PAUSE_AFTER_ERROR_MS; /* no progress: do not spin */
    pull->offset = younger ? pull->end : pull->result.next_offset;
    tern_pull_result_clear(&pull->result);
}

static void launch(struct reader *reader, struct queue_pull *pull)
{
    pull->flying = true;
    enum tern_code code =
        (reader->by_sql ? tern_pull_consumer_pull_sql_async : tern_pull_consumer_pull_async)(
            reader->anonymous, &pull->queue, reader->expression, pull->offset, PULL_MESSAGES,
            PULL_WAIT_MS, on_pull, pull, &pull->err);
    if (code != TERN_OK)
        on_pull(pull, code, NULL, &pull->err);
}

/* One turn over all queues; whether anything was done. @locks none */
static bool turn(struct reader *reader)
{
    bool busy = false;
    for (size_t i = 0; i < reader->pull_count; i++) {
        struct queue_pull *pull = &reader->pulls[i];
        pthread_mutex_lock(&reader->lock);
        bool arrived = pull->arrived, idle = !pull->flying && now_ms() >= pull->not_before_ms;
        pull->arrived = false;
        bool end = finished(reader);
        pthread_mutex_unlock(&reader->lock);
        if (arrived)
            take_answer(reader, pull);
        else if (idle && !end && pull->offset < pull->end)
            launch(reader, pull);
        busy |= arrived;
    }
    return busy;
}

/* Every queue was read to its end, which only -e gives it. @locks none */
static bool all_read(struct reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    bool all = true;
    for (size_t i = 0; i < reader->pull_count; i++)
        all &= !reader->pulls[i].flying && !reader->pulls[i].arrived &&
               reader->pulls[i].offset >= reader->pulls[i].end;
    pthread_mutex_unlock(&reader->lock);
    return all;
}

static int read_anonymously(struct reader *reader, int64_t queue_id, int64_t offset)
{
    struct tern_error err = {.text = ""};
    int status = EXIT_DONE;
    enum tern_code code = start_anonymous(reader, queue_id, offset, &err);
    if (code != TERN_OK)
        status = command_fail(reader->invocation, code, &err);
    reader->last_ms = now_ms();
    for (bool end = code != TERN_OK; !end;) {
        bool busy = turn(reader), read = all_read(reader);
        pthread_mutex_lock(&reader->lock);
        end = read || finished(reader);
        if (!busy && !end) {
            fflush(stdout);
            wait_a_little(reader);
        }
        pthread_mutex_unlock(&reader->lock);
    }
    if (reader->anonymous)
        tern_pull_consumer_destroy(
            reader->anonymous); /* ends the pulls: their callbacks come first */
    for (size_t i = 0; i < reader->pull_count; i++)
        if (reader->pulls[i].arrived && reader->pulls[i].code == TERN_OK)
            tern_pull_result_clear(&reader->pulls[i].result);
    free(reader->pulls);
    return status;
}

/* ---- the command ---- */

static bool parse_from(struct invocation *invocation, struct reader *reader)
{
    const char *from = option_value(invocation, "from");
    char *end;
    reader->from = TERN_FROM_FIRST;
    if (option_given(invocation, "beginTimestamp")) {
        reader->from = TERN_FROM_TIMESTAMP;
        if (!option_time(invocation, "beginTimestamp", 0, &reader->from_ms))
            return false;
        if (reader->from_ms < 0) /* now */
            reader->from = TERN_FROM_LAST;
        return true;
    }
    if (!from || !strcmp(from, "first"))
        return true;
    if (!strcmp(from, "last")) {
        reader->from = TERN_FROM_LAST;
        return true;
    }
    errno = 0;
    reader->from_ms = strtoll(from, &end, 10);
    reader->from = TERN_FROM_TIMESTAMP;
    if (!errno && end != from && !*end && reader->from_ms >= 0)
        return true;
    command_usage(invocation, "--from: '%s' is not first, last or milliseconds since 1970", from);
    return false;
}

static enum tern_code check_expression(const struct reader *reader, struct tern_error *err)
{
    struct subscription *parsed;
    enum tern_code code =
        subscription_compile(reader->by_sql ? SUBSCRIPTION_SQL92 : SUBSCRIPTION_TAG,
                             reader->expression, strlen(reader->expression), &parsed, err);
    if (code == TERN_OK)
        subscription_free(parsed);
    return code;
}

int pipe_consume(struct invocation *invocation)
{
    const char *expression = option_value(invocation, "expr");
    const char *condition = option_value(invocation, "sql");
    const char *group = option_value(invocation, "consumerGroup");
    struct reader reader = {.invocation = invocation,
                            .topic = option_value(invocation, "topic"),
                            .expression = condition    ? condition
                                          : expression ? expression
                                                       : "*",
                            .by_sql = condition != NULL,
                            .body_only = option_given(invocation, "body-only")};
    struct tern_error err = {.text = ""};
    int64_t queue_id, offset;
    if (!option_number(invocation, "count", 1, INT64_MAX, INT64_MAX, &reader.most) ||
        !option_number(invocation, "idle-exit", 1, 86400000, 0, &reader.idle_exit_ms) ||
        !option_number(invocation, "queueId", 0, 65535, -1, &queue_id) ||
        !option_number(invocation, "offset", 0, INT64_MAX, -1, &offset) ||
        !option_time(invocation, "endTimestamp", INT64_MIN, &reader.until_ms) ||
        !parse_from(invocation, &reader))
        return EXIT_USAGE;
    if (reader.until_ms == -1) /* now: to where the queues end when it begins */
        reader.until_ms = INT64_MAX;
    if (group && (queue_id >= 0 || offset >= 0 || option_given(invocation, "brokerName") ||
                  reader.until_ms >= 0))
        return command_usage(invocation, "-b, -i, -o and -e are for reading without -g");
    if (expression && condition)
        return command_usage(invocation, "--expr and --sql exclude each other");
    enum tern_code code = check_expression(&reader, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    pthread_condattr_t attr;
    pthread_mutex_init(&reader.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&reader.changed, &attr);
    pthread_condattr_destroy(&attr);
    int status =
        group ? read_as_member(&reader, group) : read_anonymously(&reader, queue_id, offset);
    pthread_cond_destroy(&reader.changed);
    pthread_mutex_destroy(&reader.lock);
    if (status == EXIT_DONE && reader.most != INT64_MAX && reader.printed < reader.most)
        status = EXIT_NO;
    return status;
}
