/*
 * sendMessage: one message from -p or --file, or one a line from stdin with --lines.
 *
 * Lines travel in batches to one queue after the other (or all to -b/-i), each queue has one frame in
 * flight, so the order within a queue is the order of the lines. A frame that failed in a way that may pass
 * is sent again for up to RETRY_FOR_MS; when its fate was unknown, stderr says which lines may now be there
 * twice. The end tells how many lines were acknowledged.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tern/tern.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/pipe.h"

enum {
    LINES_A_FRAME = 64,
    FRAME_BYTES = 256 << 10,
    FRAMES_WAITING = 64,
    RETRY_FOR_MS = 30000,
    RETRY_PAUSE_MS = 100,
    SEND_TIMEOUT_MS = 5000,
    QUEUES_MAX = 4096,
    FILE_MAX_BYTES = 64 << 20
};

struct sender {
    struct invocation *invocation;
    struct tern_producer *producer;
    const char *topic;
    struct tern_queue queues[QUEUES_MAX];
    size_t queue_count, next_queue;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t flying;                 /* under lock */
    uint64_t acked, may_be_twice;  /* under lock; lines */
    enum tern_code failed;         /* under lock; the first failure that stays */
    struct tern_error err;
    struct frame *retry;           /* under lock: frames to send again, oldest first */
};

struct frame {
    struct sender *sender;
    struct tern_message *messages[LINES_A_FRAME];
    size_t count;
    size_t queue;
    uint64_t first_line;
    int64_t give_up_ms;
    bool unknown; /* an earlier try may have been stored */
    struct frame *next;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- one message ---- */

static enum tern_code apply_options(struct invocation *invocation, struct tern_message *message,
                                    struct tern_error *err)
{
    const char *tag = option_value(invocation, "tags"), *keys = option_value(invocation, "keys");
    enum tern_code code = TERN_OK;
    if (tag && (code = tern_message_set_tag(message, tag)) != TERN_OK)
        return error_set(err, code, "-c: '%s' is no tag", tag);
    if (keys && (code = tern_message_set_keys(message, keys)) != TERN_OK)
        return error_set(err, code, "-k: '%s' are no keys", keys);
    for (size_t i = 0; i < invocation->repeated_count; i++) {
        char name[256];
        const char *equals = strchr(invocation->repeated[i], '=');
        size_t len = equals ? (size_t)(equals - invocation->repeated[i]) : 0;
        if (!len || len >= sizeof name)
            return error_set(err, TERN_INVALID, "--property: '%s' is not name=value",
                             invocation->repeated[i]);
        memcpy(name, invocation->repeated[i], len);
        name[len] = 0;
        if ((code = tern_message_set_property(message, name, equals + 1)) != TERN_OK)
            return error_set(err, code, "--property: '%s' cannot be set",
                             invocation->repeated[i]);
    }
    return TERN_OK;
}

static enum tern_code make_message(struct sender *sender, const void *body, size_t size,
                                   struct tern_message **out, struct tern_error *err)
{
    enum tern_code code = tern_message_create(sender->topic, body, size, out, err);
    if (code == TERN_OK && (code = apply_options(sender->invocation, *out, err)) != TERN_OK)
        tern_message_unref(*out);
    return code;
}

static int print_result(const struct invocation *invocation, const struct tern_send_result *result)
{
    static const char *const columns[] = {"Broker Name", "QID", "Send Result", "MsgId",
                                          "OffsetMsgId", NULL};
    static const char *const keys[] = {"brokerName", "queueId", "sendResult", "msgId",
                                       "offsetMsgId", NULL};
    struct table table;
    const char *status =
        result->status == TERN_OK ? "SEND_OK" : tern_code_name(result->status);
    table_init(&table, columns, keys);
    table_add(&table,
              (json_t *[]){text_of(result->queue.broker_name), number_of(result->queue.queue_id),
                           text_of(status), text_of(result->message_id),
                           text_of(result->offset_id)});
    table_print(&table, invocation->json);
    return result->status == TERN_OK ? EXIT_DONE : EXIT_NO;
}

static int send_one(struct sender *sender, const void *body, size_t size)
{
    struct tern_send_result result;
    struct tern_error err = {.text = ""};
    struct tern_message *message;
    enum tern_code code = make_message(sender, body, size, &message, &err);
    if (code != TERN_OK)
        return command_fail(sender->invocation, code, &err);
    code = option_given(sender->invocation, "brokerName")
               ? tern_producer_send_to(sender->producer, message, &sender->queues[0], &result, &err)
               : tern_producer_send(sender->producer, message, &result, &err);
    tern_message_unref(message);
    return code == TERN_OK ? print_result(sender->invocation, &result)
                           : command_fail(sender->invocation, code, &err);
}

static int send_file(struct sender *sender, const char *path)
{
    struct tern_error err;
    FILE *file = !strcmp(path, "-") ? stdin : fopen(path, "rb");
    if (!file) {
        error_set(&err, TERN_NOT_FOUND, "--file: %s: %s", path, strerror(errno));
        return command_fail(sender->invocation, TERN_NOT_FOUND, &err);
    }
    char *body = malloc(FILE_MAX_BYTES + 1);
    size_t size = body ? fread(body, 1, FILE_MAX_BYTES + 1, file) : 0;
    int status;
    if (!body || ferror(file) || size > FILE_MAX_BYTES) {
        error_set(&err, TERN_TOO_LARGE, "--file: %s: cannot be read, or is above %d bytes", path,
                  FILE_MAX_BYTES);
        status = command_fail(sender->invocation, TERN_TOO_LARGE, &err);
    } else {
        status = send_one(sender, body, size);
    }
    if (file != stdin)
        fclose(file);
    free(body);
    return status;
}

/* ---- lines ---- */

static void frame_free(struct frame *frame)
{
    for (size_t i = 0; i < frame->count; i++)
        tern_message_unref(frame->messages[i]);
    free(frame);
}

static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct frame *frame = arg;
    struct sender *sender = frame->sender;
    bool done = true;
    if (code == TERN_OK && result->status != TERN_OK)
        code = result->status; /* stored, but not as durable as promised */

    pthread_mutex_lock(&sender->lock);
    if (code == TERN_OK) {
        sender->acked += frame->count;
        if (frame->unknown)
            sender->may_be_twice += frame->count;
    } else if (tern_code_retriable(code) && now_ms() < frame->give_up_ms) {
        frame->unknown |= code != TERN_UNREACHABLE && code != TERN_SYSTEM_BUSY;
        struct frame **at = &sender->retry;
        while (*at)
            at = &(*at)->next;
        frame->next = NULL;
        *at = frame;
        done = false;
    } else if (sender->failed == TERN_OK) {
        sender->failed = code;
        error_set(&sender->err, code, "line %" PRIu64 ": %s", frame->first_line,
                  error_text(err, code));
    }
    sender->flying--;
    pthread_cond_broadcast(&sender->changed);
    pthread_mutex_unlock(&sender->lock);
    if (done)
        frame_free(frame);
}

/* Hands a frame to the library; waits while too many are under way. Takes the frame. @locks none */
static void launch(struct frame *frame)
{
    struct sender *sender = frame->sender;
    struct tern_error err = {.text = ""};
    pthread_mutex_lock(&sender->lock);
    while (sender->flying >= FRAMES_WAITING)
        pthread_cond_wait(&sender->changed, &sender->lock);
    sender->flying++;
    pthread_mutex_unlock(&sender->lock);
    enum tern_code code =
        tern_producer_send_async(sender->producer, frame->messages, frame->count,
                                 &sender->queues[frame->queue], on_sent, frame, &err);
    if (code != TERN_OK)
        on_sent(frame, code, NULL, &err);
}

/*
 * Sends again what failed. A queue's later frames must not overtake, so nothing new is launched until all
 * retries went through: the caller waits until nothing flies.
 */
static bool settle(struct sender *sender)
{
    for (;;) {
        pthread_mutex_lock(&sender->lock);
        while (sender->flying > 0)
            pthread_cond_wait(&sender->changed, &sender->lock);
        struct frame *frame = sender->retry;
        bool failed = sender->failed != TERN_OK;
        if (frame)
            sender->retry = frame->next;
        pthread_mutex_unlock(&sender->lock);
        if (!frame)
            return !failed;
        if (failed) {
            frame_free(frame);
            continue;
        }
        struct timespec pause = {.tv_nsec = RETRY_PAUSE_MS * 1000000L};
        nanosleep(&pause, NULL);
        launch(frame);
    }
}

static bool trouble(struct sender *sender)
{
    pthread_mutex_lock(&sender->lock);
    bool yes = sender->retry != NULL || sender->failed != TERN_OK;
    pthread_mutex_unlock(&sender->lock);
    return yes;
}

/* Sends the frame in order; false: give up. Takes the frame. */
static bool send_frame(struct sender *sender, struct frame *frame)
{
    if (trouble(sender) && !settle(sender)) {
        frame_free(frame);
        return false;
    }
    frame->queue = sender->next_queue;
    frame->give_up_ms = now_ms() + RETRY_FOR_MS;
    sender->next_queue = (sender->next_queue + 1) % sender->queue_count;
    launch(frame);
    return true;
}

static struct frame *new_frame(struct sender *sender, uint64_t first_line)
{
    struct frame *frame = calloc(1, sizeof *frame);
    if (frame) {
        frame->sender = sender;
        frame->first_line = first_line;
    }
    return frame;
}

static int report_lines(struct sender *sender, uint64_t lines)
{
    if (sender->may_be_twice)
        fprintf(stderr,
                "mqadmin sendMessage: up to %" PRIu64 " lines may be stored twice: their answers "
                "were lost and they were sent again\n",
                sender->may_be_twice);
    if (sender->failed != TERN_OK) {
        fprintf(stderr, "mqadmin sendMessage: %" PRIu64 " of %" PRIu64 " lines were acknowledged\n",
                sender->acked, lines);
        return command_fail(sender->invocation, sender->failed, &sender->err);
    }
    if (sender->invocation->json)
        json_print(json_pack("{s:I, s:I}", "messages", (json_int_t)sender->acked, "mayBeTwice",
                             (json_int_t)sender->may_be_twice));
    else
        printf("%" PRIu64 " messages sent\n", sender->acked);
    return EXIT_DONE;
}

static int send_lines(struct sender *sender)
{
    struct tern_error err = {.text = ""};
    struct frame *frame = NULL;
    char *line = NULL;
    size_t line_cap = 0, bytes = 0;
    uint64_t lines = 0;
    ssize_t len;
    bool go_on = true;
    enum tern_code code = TERN_OK;

    while (go_on && code == TERN_OK && (len = getline(&line, &line_cap, stdin)) >= 0) {
        size_t size = (size_t)len - (len > 0 && line[len - 1] == '\n');
        lines++;
        if (frame && (frame->count == LINES_A_FRAME || bytes + size > FRAME_BYTES)) {
            go_on = send_frame(sender, frame);
            frame = NULL;
        }
        if (!frame) {
            frame = new_frame(sender, lines);
            bytes = 0;
        }
        code = frame ? make_message(sender, line, size, &frame->messages[frame->count], &err)
                     : TERN_NO_MEMORY;
        frame->count += code == TERN_OK;
        bytes += size;
    }
    free(line);
    if (frame && frame->count && go_on)
        send_frame(sender, frame);
    else if (frame)
        frame_free(frame);
    (void)settle(sender); /* its verdict is sender->failed */
    if (code != TERN_OK) {
        sender->failed = code;
        error_set(&sender->err, code, "line %" PRIu64 ": %s", lines, error_text(&err, code));
    } else if (ferror(stdin)) {
        sender->failed = error_set(&sender->err, TERN_IO, "reading stdin: %s", strerror(errno));
    }
    return report_lines(sender, lines);
}

/* ---- the command ---- */

static enum tern_code start_producer(struct sender *sender, struct tern_error *err)
{
    struct tern_producer_options *o = tern_producer_options_create();
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_producer_options_namesrv(o, sender->invocation->namesrv);
    if (code == TERN_OK)
        code = tern_producer_options_group(o, "TOOLS_PRODUCER");
    if (code == TERN_OK)
        code = tern_producer_options_send_timeout_ms(o, SEND_TIMEOUT_MS);
    if (code == TERN_OK)
        code = tern_producer_options_max_message_bytes(o, FILE_MAX_BYTES);
    if (code == TERN_OK)
        code = tern_producer_create(o, &sender->producer, err);
    tern_producer_options_destroy(o);
    return code == TERN_OK ? tern_producer_start(sender->producer, err) : code;
}

static enum tern_code choose_queues(struct sender *sender, int64_t queue_id, struct tern_error *err)
{
    const char *broker = option_value(sender->invocation, "brokerName");
    if (broker) {
        snprintf(sender->queues[0].topic, sizeof sender->queues[0].topic, "%s", sender->topic);
        snprintf(sender->queues[0].broker_name, sizeof sender->queues[0].broker_name, "%s", broker);
        sender->queues[0].queue_id = (int32_t)queue_id;
        sender->queue_count = 1;
        return TERN_OK;
    }
    enum tern_code code = tern_producer_queues(sender->producer, sender->topic, sender->queues,
                                               QUEUES_MAX, &sender->queue_count, err);
    if (code == TERN_OK && sender->queue_count > QUEUES_MAX)
        sender->queue_count = QUEUES_MAX;
    if (code == TERN_OK && sender->queue_count == 0)
        code = error_set(err, TERN_UNREACHABLE, "topic %s has no writable queue now: no master of "
                         "it is registered", sender->topic);
    return code;
}

static int check_sources(const struct invocation *invocation)
{
    int sources = option_given(invocation, "body") + option_given(invocation, "file") +
                  option_given(invocation, "lines");
    if (sources != 1)
        return command_usage(invocation, "exactly one of -p, --file and --lines is required");
    if (option_given(invocation, "brokerName") != option_given(invocation, "qid"))
        return command_usage(invocation, "-b and -i belong together");
    return EXIT_DONE;
}

int pipe_send(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    int64_t queue_id;
    int status = check_sources(invocation);
    if (status != EXIT_DONE)
        return status;
    if (!option_number(invocation, "qid", 0, 65535, 0, &queue_id))
        return EXIT_USAGE;
    struct sender *sender = calloc(1, sizeof *sender);
    if (!sender)
        return command_fail(invocation, TERN_NO_MEMORY, NULL);
    sender->invocation = invocation;
    sender->topic = option_value(invocation, "topic");
    pthread_mutex_init(&sender->lock, NULL);
    pthread_cond_init(&sender->changed, NULL);
    enum tern_code code = start_producer(sender, &err);
    if (code == TERN_OK)
        code = choose_queues(sender, queue_id, &err);
    const char *body = option_value(invocation, "body");
    if (code != TERN_OK)
        status = command_fail(invocation, code, &err);
    else if (body)
        status = send_one(sender, body, strlen(body));
    else if (option_given(invocation, "file"))
        status = send_file(sender, option_value(invocation, "file"));
    else
        status = send_lines(sender);
    tern_producer_destroy(sender->producer);
    pthread_cond_destroy(&sender->changed);
    pthread_mutex_destroy(&sender->lock);
    free(sender);
    return status;
}
