/*
 * Sending: one thread launches frames for all streams, each has one in flight. A frame that failed,
 * or that was not SEND_OK, is tried again after a pause, for as long as the phase lasts: the
 * streams of a set without a master go on trying, those of other sets go on. When the phase is
 * over, frames in flight are waited for (each has its deadline) but not repeated.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "tools/mqbench/verify.h"

enum { RETRY_PAUSE_NS = 20000000, SEND_TIMEOUT_MS = 3000 };

struct sending {
    struct verify *verify;
    struct tern_producer *producer;
    size_t batch;
    size_t flying; /* under verify.lock */
    uint8_t *body;
};

struct frame {
    struct sending *sending;
    struct verify_stream *stream;
    uint64_t count;
};

static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct frame *frame = arg;
    struct sending *sending = frame->sending;
    struct verify *verify = sending->verify;
    int64_t now = bench_now_ns();
    (void)err;

    pthread_mutex_lock(&verify->lock);
    bool acked = code == TERN_OK && result->status == TERN_OK;
    verify_note_answer(verify, frame->stream, code == TERN_OK, bench_wall_ms());
    if (acked) {
        verify_all_note_acked(verify, frame->stream, frame->count, now);
    } else {
        verify->send_errors++;
        verify->launched -= frame->count;
        frame->stream->not_before_ns = now + RETRY_PAUSE_NS;
    }
    frame->stream->flying = false;
    sending->flying--;
    pthread_cond_broadcast(&verify->changed);
    pthread_mutex_unlock(&verify->lock);
    free(frame);
}

/* Makes and sends the stream's next frame. @locks none */
static enum tern_code launch(struct sending *sending, struct verify_stream *stream, uint64_t first,
                             struct tern_error *err)
{
    struct verify *verify = sending->verify;
    struct tern_message *messages[1024];
    size_t made = 0;
    struct frame *frame = malloc(sizeof *frame);
    enum tern_code code = frame ? TERN_OK : TERN_NO_MEMORY;
    while (code == TERN_OK && made < sending->batch) {
        size_t size = verify_body_size(verify, stream->id, first + made);
        verify_fill(verify, stream->id, first + made, sending->body, size);
        code =
            tern_message_create(verify->options->topic, sending->body, size, &messages[made], err);
        if (code != TERN_OK)
            break;
        code = verify_dress(verify, stream->id, first + made, messages[made]);
        made++;
    }
    if (code == TERN_OK) {
        *frame = (struct frame){sending, stream, made};
        code = tern_producer_send_async(sending->producer, messages, made, &stream->queue, on_sent,
                                        frame, err);
    }
    for (size_t i = 0; i < made; i++)
        tern_message_unref(messages[i]);
    if (code != TERN_OK)
        free(frame);
    return code;
}

/* The next stream that may send, NULL when none; *wake_ns is when to look again. @locks holds:lock
 */
static struct verify_stream *next_ready(struct verify *verify, size_t *cursor, int64_t now,
                                        int64_t *wake_ns)
{
    *wake_ns = now + 50000000;
    for (size_t i = 0; i < verify->stream_count; i++) {
        struct verify_stream *stream = &verify->streams[(*cursor + i) % verify->stream_count];
        if (stream->flying)
            continue;
        if (stream->not_before_ns <= now) {
            *cursor = (*cursor + i + 1) % verify->stream_count;
            return stream;
        }
        if (stream->not_before_ns < *wake_ns)
            *wake_ns = stream->not_before_ns;
    }
    return NULL;
}

/*
 * The first ^C ends the sending phase: what was sent is checked all the same. Another one a second
 * later kills; sooner it is the same, which a process group may be told twice.
 */
static volatile sig_atomic_t interrupted;
static time_t interrupted_at; /* the handler's */

static void on_interrupt(int signal_number)
{
    struct timespec now = {.tv_sec = 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (interrupted && now.tv_sec > interrupted_at + 1) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    if (!interrupted)
        interrupted_at = now.tv_sec;
    interrupted = 1;
}

/* With a count and no time: until they are acknowledged, or nothing has been for the drain time. */
bool verify_phase_goes_on(const struct verify *verify, int64_t now)
{
    const struct bench_options *o = verify->options;
    if (interrupted || now >= verify->end_ns || (o->count && verify->settled >= (uint64_t)o->count))
        return false;
    return o->seconds > 0 || (double)(now - verify->send_gap.last_ns) < o->drain_seconds * 1e9;
}

static void show(const struct verify *verify)
{
    bench_progress("acked %llu, received %llu, errors %llu", (unsigned long long)verify->acked,
                   (unsigned long long)verify->received, (unsigned long long)verify->send_errors);
}

void verify_wait_until(struct verify *verify, int64_t mono_ns)
{
    struct timespec deadline = {.tv_sec = mono_ns / 1000000000, .tv_nsec = mono_ns % 1000000000};
    pthread_cond_timedwait(&verify->changed, &verify->lock, &deadline);
}

/* @locks takes:lock */
static void run_phase(struct sending *sending)
{
    struct verify *verify = sending->verify;
    size_t cursor = 0;
    int64_t wake_ns, now;

    pthread_mutex_lock(&verify->lock);
    while (now = bench_now_ns(), verify_phase_goes_on(verify, now)) {
        bool enough =
            verify->options->count && verify->launched >= (uint64_t)verify->options->count;
        struct verify_stream *stream = enough ? NULL : next_ready(verify, &cursor, now, &wake_ns);
        show(verify);
        if (!stream) {
            verify_wait_until(verify, enough ? now + 50000000 : wake_ns);
            continue;
        }
        uint64_t first = stream->acked;
        stream->flying = true;
        sending->flying++;
        verify->launched += sending->batch;
        struct tern_error err = {.text = ""};
        enum tern_code code = verify_all_note_try(verify, stream, first, (uint32_t)sending->batch)
                                  ? TERN_OK
                                  : TERN_NO_MEMORY;
        pthread_mutex_unlock(&verify->lock);
        if (code == TERN_OK)
            code = launch(sending, stream, first, &err);
        pthread_mutex_lock(&verify->lock);
        if (code != TERN_OK) {
            verify->send_errors++;
            verify->launched -= sending->batch;
            stream->flying = false;
            stream->not_before_ns = bench_now_ns() + RETRY_PAUSE_NS;
            sending->flying--;
        }
    }
    verify_note_phase(verify, false, now);
    while (sending->flying > 0)
        verify_wait_until(verify, bench_now_ns() + 100000000);
    pthread_mutex_unlock(&verify->lock);
}

void verify_phase_begin(struct verify *verify)
{
    struct sigaction on_sigint = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    double seconds = verify->options->seconds;
    ENSURE(sigaction(SIGINT, &on_sigint, NULL) == 0);
    pthread_mutex_lock(&verify->lock);
    int64_t now = bench_now_ns();
    verify_note_phase(verify, true, now);
    verify->end_ns = seconds > 0 ? now + (int64_t)(seconds * 1e9) : INT64_MAX;
    pthread_mutex_unlock(&verify->lock);
}

int verify_send(struct verify *verify)
{
    const struct bench_options *o = verify->options;
    struct sending sending = {.verify = verify,
                              .batch = o->mode == MODE_BATCH ? (size_t)o->batch : 1};
    int status;
    sending.body = malloc((size_t)o->size_bytes + VERIFY_HEADER_BYTES);
    if (!sending.body)
        return bench_fail("verify", TERN_NO_MEMORY, NULL);
    sending.producer = bench_producer(o, "MQBENCH_VERIFY_PRODUCER", SEND_TIMEOUT_MS, &status);
    if (sending.producer) {
        verify_phase_begin(verify);
        run_phase(&sending);
        tern_producer_destroy(sending.producer);
    }
    free(sending.body);
    return status;
}
