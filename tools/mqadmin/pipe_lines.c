/*
 * sendMessage --lines: one message a line of stdin, in order per queue.
 *
 *   stdin ─► frame: LINES_A_FRAME lines (one when they are delayed), or what had come when stdin
 * paused └─► lane of a queue, in turn: a FIFO whose head is in flight ├─ acknowledged ─► next └─
 * failed in a way that may pass ─► the same again, for up to RETRY_FOR_MS
 *
 * Invariants: a lane has one frame in flight, and nothing of it goes before a frame that has to be
 * sent again: within a queue the order is that of the lines, whatever dies meanwhile. When the fate
 * of a try was unknown, stderr says how many lines may now be there twice. The end tells how many
 * were acknowledged.
 *
 * Threads: the command's reads and sends again; the transport's takes answers and sends the lane's
 * next. Failure modes: the first failure that stays ends the reading; what flies is waited for.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/mqadmin/pipe_send.h"

enum {
    LINES_A_FRAME = 64,
    FRAME_BYTES = 256 << 10,
    FRAMES_WAITING = 128,
    RETRY_FOR_MS = 30000,
    RETRY_PAUSE_MS = 100,
    PAUSED_AFTER_MS = 5,
    INPUT_BYTES = 256 << 10
};

struct frame {
    struct lane *lane;
    struct tern_message *messages[LINES_A_FRAME];
    size_t count, bytes;
    uint64_t first_line;
    int64_t give_up_ms; /* 0: not tried yet */
    bool unknown;       /* an earlier try may have been stored */
    struct frame *next;
};

struct lane {
    struct lines *lines;
    const struct tern_queue *queue;
    struct frame *head, **tail; /* under lock */
    bool flying;                /* under lock: the head is with the library */
    int64_t not_before_ms;      /* under lock: the head failed, the pause lasts until then */
};

struct lines {
    struct sender *sender;
    uint64_t read;      /* lines so far; the command's thread */
    struct frame *open; /* being filled; the command's thread */
    size_t next_lane;   /* the command's thread */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t waiting, flying;       /* under lock: frames in lanes, and of them with the library */
    uint64_t acked, may_be_twice; /* under lock; lines */
    struct tern_error err;        /* under lock: of the first failure that stays; OK: none yet */
    struct lane lanes[];          /* one a queue */
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- lanes ---- */

static void frame_free(struct frame *frame)
{
    for (size_t i = 0; i < frame->count; i++)
        tern_message_unref(frame->messages[i]);
    free(frame);
}

/* @locks holds:lock */
static void pop(struct lane *lane)
{
    struct frame *frame = lane->head;
    lane->head = frame->next;
    if (!lane->head)
        lane->tail = &lane->head;
    lane->lines->waiting--;
}

static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err);

/* Sends the lane's head when nothing of it flies and no pause is on. @locks takes:lock */
static void kick(struct lane *lane)
{
    struct lines *lines = lane->lines;
    struct tern_error err = {.text = ""};
    pthread_mutex_lock(&lines->lock);
    struct frame *frame = lane->head;
    int64_t now = now_ms();
    bool go = frame && !lane->flying && now >= lane->not_before_ms && lines->err.code == TERN_OK;
    if (go) {
        lane->flying = true;
        lines->flying++;
        if (!frame->give_up_ms)
            frame->give_up_ms = now + RETRY_FOR_MS;
    }
    pthread_mutex_unlock(&lines->lock);
    if (!go)
        return;
    enum tern_code code = tern_producer_send_async(lines->sender->producer, frame->messages,
                                                   frame->count, lane->queue, on_sent, frame, &err);
    if (code != TERN_OK)
        on_sent(frame, code, NULL, &err);
}

/* Whether the frame is done with; else it stays the head and waits a little. @locks holds:lock */
static bool settle(struct frame *frame, enum tern_code code, const struct tern_error *err)
{
    struct lines *lines = frame->lane->lines;
    if (code == TERN_OK) {
        lines->acked += frame->count;
        if (frame->unknown)
            lines->may_be_twice += frame->count;
        return true;
    }
    if (tern_code_retriable(code) && now_ms() < frame->give_up_ms) {
        frame->unknown |= code != TERN_UNREACHABLE && code != TERN_SYSTEM_BUSY;
        frame->lane->not_before_ms = now_ms() + RETRY_PAUSE_MS;
        return false;
    }
    if (lines->err.code == TERN_OK)
        error_set(&lines->err, code, "line %" PRIu64 ": %s", frame->first_line,
                  error_text(err, code));
    return true;
}

/* @thread the transport's, or whoever kicked when the library took nothing */
static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct frame *frame = arg;
    struct lane *lane = frame->lane;
    struct lines *lines = lane->lines;
    if (code == TERN_OK && result->status != TERN_OK)
        code = result->status; /* stored, but not as durable as promised */

    pthread_mutex_lock(&lines->lock);
    bool done = settle(frame, code, err);
    if (done)
        pop(lane);
    lane->flying = false;
    pthread_mutex_unlock(&lines->lock);
    if (done) {
        frame_free(frame);
        kick(lane);
    }
    /* Last: when nothing flies, the lanes may go. */
    pthread_mutex_lock(&lines->lock);
    lines->flying--;
    pthread_cond_broadcast(&lines->changed);
    pthread_mutex_unlock(&lines->lock);
}

static void kick_all(struct lines *lines)
{
    for (size_t i = 0; i < lines->sender->queue_count; i++)
        kick(&lines->lanes[i]);
}

/* Waits for a change, or until lanes that pause may go on; then those are kicked. @locks holds:lock
 */
static void wait_a_little(struct lines *lines)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += RETRY_PAUSE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&lines->changed, &lines->lock, &until) != ETIMEDOUT)
        return;
    pthread_mutex_unlock(&lines->lock);
    kick_all(lines);
    pthread_mutex_lock(&lines->lock);
}

/* Puts the open frame into the next lane, when there is room. */
static void submit(struct lines *lines)
{
    struct frame *frame = lines->open;
    if (!frame)
        return;
    lines->open = NULL;
    struct lane *lane = &lines->lanes[lines->next_lane];
    lines->next_lane = (lines->next_lane + 1) % lines->sender->queue_count;
    frame->lane = lane;
    pthread_mutex_lock(&lines->lock);
    while (lines->waiting >= FRAMES_WAITING && lines->err.code == TERN_OK)
        wait_a_little(lines);
    *lane->tail = frame;
    lane->tail = &frame->next;
    lines->waiting++;
    pthread_mutex_unlock(&lines->lock);
    kick(lane);
}

/* Until everything is acknowledged, or something failed and nothing flies. Frees what is left. */
static void drain(struct lines *lines)
{
    pthread_mutex_lock(&lines->lock);
    while (lines->flying || (lines->waiting && lines->err.code == TERN_OK))
        wait_a_little(lines);
    for (size_t i = 0; i < lines->sender->queue_count; i++)
        while (lines->lanes[i].head) {
            struct frame *frame = lines->lanes[i].head;
            pop(&lines->lanes[i]);
            frame_free(frame);
        }
    pthread_mutex_unlock(&lines->lock);
}

static bool failed(struct lines *lines)
{
    pthread_mutex_lock(&lines->lock);
    bool yes = lines->err.code != TERN_OK;
    pthread_mutex_unlock(&lines->lock);
    return yes;
}

static void fail(struct lines *lines, enum tern_code code, const char *text)
{
    pthread_mutex_lock(&lines->lock);
    if (lines->err.code == TERN_OK)
        error_set(&lines->err, code, "line %" PRIu64 ": %s", lines->read, text);
    pthread_mutex_unlock(&lines->lock);
}

/* ---- stdin ---- */

struct input {
    char *bytes;
    size_t begin, end, cap;
    size_t looked; /* bytes from begin on that hold no newline */
    bool ended;
};

/* Room behind what is there, by moving it to the front or by growing. */
static bool make_room(struct input *input)
{
    if (input->begin > 0) {
        memmove(input->bytes, input->bytes + input->begin, input->end - input->begin);
        input->end -= input->begin;
        input->begin = 0;
    }
    if (input->end < input->cap)
        return true;
    size_t cap = input->cap ? 2 * input->cap : INPUT_BYTES;
    char *bytes = cap <= 2 * (size_t)SENDER_BODY_MAX ? realloc(input->bytes, cap) : NULL;
    if (!bytes)
        return false;
    input->bytes = bytes;
    input->cap = cap;
    return true;
}

/* The next whole line that was read already, without its newline; at the end, what is left. */
static bool take_line(struct input *input, const char **line, size_t *size)
{
    size_t have = input->end - input->begin;
    char *start = input->bytes + input->begin;
    char *newline =
        have > input->looked ? memchr(start + input->looked, '\n', have - input->looked) : NULL;
    if (!newline && !(input->ended && have > 0)) {
        input->looked = have;
        return false;
    }
    *line = start;
    *size = newline ? (size_t)(newline - start) : have;
    input->begin += *size + (newline != NULL);
    input->looked = 0;
    return true;
}

/* Reads what there is. When stdin pauses, what was gathered goes out and lanes are looked after. */
static void read_more(struct lines *lines, struct input *input)
{
    struct pollfd readable = {.fd = STDIN_FILENO, .events = POLLIN};
    if (!make_room(input)) {
        lines->read++;
        fail(lines, TERN_TOO_LARGE, "longer than a message can be, or out of memory");
        return;
    }
    int ready = poll(&readable, 1, lines->open ? PAUSED_AFTER_MS : RETRY_PAUSE_MS);
    if (ready == 0) {
        submit(lines);
        kick_all(lines);
        return;
    }
    ssize_t got = read(STDIN_FILENO, input->bytes + input->end, input->cap - input->end);
    if (got > 0)
        input->end += (size_t)got;
    else if (got == 0)
        input->ended = true;
    else if (errno != EINTR && errno != EAGAIN)
        fail(lines, TERN_IO, strerror(errno));
}

/* ---- the command ---- */

/* Delayed messages travel alone. */
static size_t frame_lines_max(const struct lines *lines)
{
    const struct invocation *invocation = lines->sender->invocation;
    bool delayed =
        option_given(invocation, "delay-level") || option_given(invocation, "deliver-at");
    return delayed ? 1 : LINES_A_FRAME;
}

static void add_line(struct lines *lines, const char *line, size_t size)
{
    struct tern_error err = {.text = ""};
    struct frame *frame = lines->open;
    lines->read++;
    if (frame && (frame->count == frame_lines_max(lines) || frame->bytes + size > FRAME_BYTES)) {
        submit(lines);
        frame = NULL;
    }
    if (!frame) {
        frame = lines->open = calloc(1, sizeof *frame);
        if (!frame) {
            fail(lines, TERN_NO_MEMORY, "out of memory");
            return;
        }
        frame->first_line = lines->read;
    }
    enum tern_code code =
        sender_message(lines->sender, line, size, &frame->messages[frame->count], &err);
    if (code != TERN_OK) {
        fail(lines, code, error_text(&err, code));
        return;
    }
    frame->count++;
    frame->bytes += size;
}

static int report(struct lines *lines)
{
    struct sender *sender = lines->sender;
    if (lines->may_be_twice)
        fprintf(stderr,
                "mqadmin sendMessage: up to %" PRIu64 " lines may be stored twice: their answers "
                "were lost and they were sent again\n",
                lines->may_be_twice);
    if (lines->err.code != TERN_OK) {
        fprintf(stderr, "mqadmin sendMessage: %" PRIu64 " of %" PRIu64 " lines were acknowledged\n",
                lines->acked, lines->read);
        return command_fail(sender->invocation, lines->err.code, &lines->err);
    }
    if (sender->invocation->json)
        json_print(json_pack("{s:I, s:I}", "messages", (json_int_t)lines->acked, "mayBeTwice",
                             (json_int_t)lines->may_be_twice));
    else
        printf("%" PRIu64 " messages sent\n", lines->acked);
    return EXIT_DONE;
}

static struct lines *lines_create(struct sender *sender)
{
    struct lines *lines = calloc(1, sizeof *lines + sender->queue_count * sizeof lines->lanes[0]);
    pthread_condattr_t attr;
    if (!lines)
        return NULL;
    lines->sender = sender;
    for (size_t i = 0; i < sender->queue_count; i++) {
        struct lane *lane = &lines->lanes[i];
        lane->lines = lines;
        lane->queue = &sender->queues[i];
        lane->tail = &lane->head;
    }
    pthread_mutex_init(&lines->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&lines->changed, &attr);
    pthread_condattr_destroy(&attr);
    return lines;
}

static void lines_destroy(struct lines *lines)
{
    if (lines->open)
        frame_free(lines->open);
    pthread_cond_destroy(&lines->changed);
    pthread_mutex_destroy(&lines->lock);
    free(lines);
}

int send_lines(struct sender *sender)
{
    struct input input = {.bytes = NULL};
    struct lines *lines = lines_create(sender);
    const char *line;
    size_t size;
    if (!lines)
        return command_fail(sender->invocation, TERN_NO_MEMORY, NULL);
    while (!failed(lines)) {
        if (take_line(&input, &line, &size))
            add_line(lines, line, size);
        else if (input.ended)
            break;
        else
            read_more(lines, &input);
    }
    if (!failed(lines))
        submit(lines);
    drain(lines);
    int status = report(lines);
    free(input.bytes);
    lines_destroy(lines);
    return status;
}
