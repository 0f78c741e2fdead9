/*
 * Sending in transactions. The local transactions are what the checker notes: a number whose
 * execute() ran is acknowledged, and its outcome follows from the number (verify_outcome()).
 *
 *   sender: number k, try t ─► half message ─► execute(): the outcome, or UNKNOWN ─► k + 1
 *                                  └ failed, perhaps stored ─► number k, try t + 1
 *   questions, to any producer of the group ─► did this try of this number run? what came of it?
 *
 * So the try that ran is a number's last one, and all others are rolled back when they are asked
 * about. Now and then a sender goes after a local transaction whose outcome it has not told, and
 * another one takes its place: the rest is left to the questions, and to the member that only
 * answers them.
 *
 * Threads: the senders, each with streams of its own, and the producers' own. Failure modes: a
 * producer that cannot start is tried again for as long as the phase lasts.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqbench/verify.h"

enum {
    SENDERS_MOST = 32,
    SEND_TIMEOUT_MS = 3000,
    CHECK_THREADS = 2,
    RETRY_PAUSE_NS = 20000000,
    ABANDON_LEAST_MS = 500,
    ABANDON_MOST_MS = 3000
};

struct verify_answerer {
    struct tern_transaction_producer *producer;
};

struct sender {
    struct verify *verify;
    pthread_t thread;
    size_t first, step; /* its streams */
    uint8_t *body;
    struct tern_transaction_producer *producer; /* NULL: none just now */
    int64_t abandon_ns;                         /* when to go with a transaction open */
};

/* What execute() is told. */
struct attempt {
    const struct verify *verify;
    uint32_t stream;
    uint64_t number;
    bool abandon; /* do not tell the outcome */
};

/* ---- the local transactions ---- */

static enum tern_transaction_outcome on_execute(void *arg, const struct tern_message *message,
                                                void *send_arg)
{
    const struct attempt *attempt = send_arg;
    (void)arg;
    (void)message;
    if (attempt->abandon)
        return TERN_TRANSACTION_UNKNOWN;
    switch (verify_outcome(attempt->verify, attempt->stream, attempt->number)) {
    case OUTCOME_COMMIT:
        return TERN_TRANSACTION_COMMIT;
    case OUTCOME_ROLLBACK:
        return TERN_TRANSACTION_ROLLBACK;
    case OUTCOME_LATE_COMMIT:
    case OUTCOME_LATE_ROLLBACK:
        break;
    }
    return TERN_TRANSACTION_UNKNOWN;
}

/* @locks holds:lock */
static enum tern_transaction_outcome decide(const struct verify *verify,
                                            const struct verify_stream *stream, uint64_t number,
                                            int64_t try)
{
    bool last = try == verify_tries(stream, number);
    if (number == stream->acked && stream->flying && last)
        return TERN_TRANSACTION_UNKNOWN; /* may run yet */
    bool ran = number < stream->acked && last;
    return ran && verify_wanted(verify, stream->id, number) ? TERN_TRANSACTION_COMMIT
                                                            : TERN_TRANSACTION_ROLLBACK;
}

static enum tern_transaction_outcome on_check(void *arg, const struct tern_message *message)
{
    struct verify *verify = arg;
    size_t size;
    uint32_t id;
    uint64_t number;
    enum tern_transaction_outcome outcome = TERN_TRANSACTION_UNKNOWN;
    const uint8_t *body = tern_message_body(message, &size);
    const char *mark = tern_message_property(message, verify_mark_name);
    int kind = verify_parse(verify, body, size, &id, &number);
    pthread_mutex_lock(&verify->lock);
    if (kind == 0 && id < verify->stream_count && mark) {
        outcome = decide(verify, &verify->streams[id], number, strtoll(mark, NULL, 10));
        verify->checks++;
    } else {
        verify->altered++;
    }
    pthread_mutex_unlock(&verify->lock);
    return outcome;
}

/* ---- producers ---- */

/* All producers of a run, and of a later one with its state, are one group. */
static enum tern_code set_options(const struct verify *verify, struct tern_producer_options *o)
{
    char group[64], instance[64];
    enum tern_code code = tern_producer_options_namesrv(o, verify->options->namesrv);
    snprintf(group, sizeof group, "MQBENCH_TRANSACT_%016" PRIx64, verify->run_id);
    bench_unique_name(instance, sizeof instance, "transact");
    if (code == TERN_OK)
        code = tern_producer_options_group(o, group);
    if (code == TERN_OK)
        code = tern_producer_options_instance(o, instance);
    if (code == TERN_OK)
        code = tern_producer_options_send_timeout_ms(o, SEND_TIMEOUT_MS);
    if (code == TERN_OK)
        code = tern_producer_options_max_message_bytes(o, 64 << 20);
    return code;
}

static enum tern_code open_producer(struct verify *verify, struct tern_transaction_producer **out,
                                    struct tern_error *err)
{
    const struct tern_transaction_listener listener = {
        .arg = verify, .execute = on_execute, .check = on_check};
    struct tern_producer_options *o = tern_producer_options_create();
    enum tern_code code = o ? set_options(verify, o) : TERN_NO_MEMORY;
    *out = NULL;
    if (code == TERN_OK)
        code = tern_transaction_producer_create(o, &listener, out, err);
    if (code == TERN_OK)
        code = tern_transaction_producer_check_threads(*out, CHECK_THREADS);
    if (code == TERN_OK)
        code = tern_transaction_producer_listen(*out, verify->options->topic, err);
    if (code == TERN_OK)
        code = tern_transaction_producer_start(*out, err);
    tern_producer_options_destroy(o);
    if (code != TERN_OK) {
        tern_transaction_producer_destroy(*out);
        *out = NULL;
    }
    return code;
}

struct verify_answerer *verify_answerer_start(struct verify *verify, int *status)
{
    struct tern_error err = {.text = ""};
    struct verify_answerer *answerer = calloc(1, sizeof *answerer);
    enum tern_code code =
        answerer ? open_producer(verify, &answerer->producer, &err) : TERN_NO_MEMORY;
    *status = EXIT_OK;
    if (code == TERN_OK)
        return answerer;
    *status = bench_fail("starting a transaction producer", code, &err);
    free(answerer);
    return NULL;
}

void verify_answerer_stop(struct verify_answerer *answerer)
{
    if (!answerer)
        return;
    tern_transaction_producer_destroy(answerer->producer);
    free(answerer);
}

/* ---- sending ---- */

/* Sends one; true: its local transaction ran. @locks none */
static bool send_one(struct sender *sender, struct attempt *attempt, uint32_t try)
{
    const struct verify *verify = sender->verify;
    struct tern_transaction_result result = {.executed = false};
    struct tern_message *message;
    char mark[16];
    size_t size = verify_body_size(verify, attempt->stream, attempt->number);
    verify_fill(verify, attempt->stream, attempt->number, sender->body, size);
    snprintf(mark, sizeof mark, "%" PRIu32, try);
    enum tern_code code =
        tern_message_create(verify->options->topic, sender->body, size, &message, NULL);
    if (code != TERN_OK)
        return false;
    code = tern_message_set_property(message, verify_mark_name, mark);
    if (code == TERN_OK)
        code = tern_transaction_producer_send(sender->producer, message, attempt, &result, NULL);
    tern_message_unref(message);
    return code == TERN_OK && result.executed;
}

/* The stream's next number, once. @locks holds:lock, given up meanwhile */
static void attempt_next(struct sender *sender, struct verify_stream *stream)
{
    struct verify *verify = sender->verify;
    struct attempt attempt = {.verify = verify,
                              .stream = stream->id,
                              .number = stream->acked,
                              .abandon = bench_now_ns() >= sender->abandon_ns};
    bool ran = false, noted = verify_note_try(stream, attempt.number, 1);
    uint32_t try = verify_tries(stream, attempt.number);
    stream->flying = noted;
    verify->launched++;
    if (noted) {
        pthread_mutex_unlock(&verify->lock);
        ran = send_one(sender, &attempt, try);
        pthread_mutex_lock(&verify->lock);
    }
    stream->flying = false;
    int64_t now = bench_now_ns();
    if (ran) {
        verify_note_acked(verify, stream, 1, now);
    } else {
        verify->send_errors++;
        verify->launched--;
        stream->not_before_ns = now + RETRY_PAUSE_NS;
    }
    verify->abandoned += ran && attempt.abandon;
    pthread_cond_broadcast(&verify->changed);
    if (ran && attempt.abandon) {
        pthread_mutex_unlock(&verify->lock);
        tern_transaction_producer_destroy(sender->producer);
        sender->producer = NULL;
        pthread_mutex_lock(&verify->lock);
    }
}

/* A producer when there is none, and when it will go. @locks none */
static bool has_producer(struct sender *sender)
{
    if (sender->producer)
        return true;
    uint64_t draw = verify_draw(sender->verify, (uint32_t)sender->first, (uint64_t)bench_now_ns()) %
                    (ABANDON_MOST_MS - ABANDON_LEAST_MS);
    sender->abandon_ns = bench_now_ns() + (ABANDON_LEAST_MS + (int64_t)draw) * 1000000;
    return open_producer(sender->verify, &sender->producer, NULL) == TERN_OK;
}

static void *sender_main(void *arg)
{
    struct sender *sender = arg;
    struct verify *verify = sender->verify;
    const struct bench_options *o = verify->options;
    size_t at = sender->first;
    int64_t now;
    pthread_mutex_lock(&verify->lock);
    while (now = bench_now_ns(), verify_phase_goes_on(verify, now)) {
        pthread_mutex_unlock(&verify->lock);
        bool ready = has_producer(sender);
        pthread_mutex_lock(&verify->lock);
        struct verify_stream *stream = &verify->streams[at];
        bool enough = o->count && verify->launched >= (uint64_t)o->count;
        if (!ready || enough || stream->not_before_ns > now) {
            verify_wait_until(verify, now + RETRY_PAUSE_NS);
        } else {
            bench_progress("settled %" PRIu64 ", errors %" PRIu64, verify->settled,
                           verify->send_errors);
            attempt_next(sender, stream);
        }
        at = at + sender->step < verify->stream_count ? at + sender->step : sender->first;
    }
    verify_note_phase(verify, false, now);
    pthread_mutex_unlock(&verify->lock);
    tern_transaction_producer_destroy(sender->producer);
    sender->producer = NULL;
    return NULL;
}

int verify_transact(struct verify *verify)
{
    struct sender senders[SENDERS_MOST];
    size_t count = verify->stream_count < SENDERS_MOST ? verify->stream_count : SENDERS_MOST;
    size_t started = 0;
    enum tern_code code = TERN_OK;
    verify_phase_begin(verify);
    for (size_t i = 0; i < count && code == TERN_OK; i++) {
        struct sender *sender = &senders[i];
        *sender = (struct sender){.verify = verify, .first = i, .step = count};
        sender->body = malloc((size_t)verify->options->size_bytes + VERIFY_HEADER_BYTES);
        code = sender->body ? TERN_OK : TERN_NO_MEMORY;
        if (code == TERN_OK && pthread_create(&sender->thread, NULL, sender_main, sender) != 0) {
            free(sender->body);
            code = TERN_LIMIT;
        }
        started += code == TERN_OK;
    }
    if (code != TERN_OK) {
        pthread_mutex_lock(&verify->lock);
        verify->end_ns = 0;
        pthread_mutex_unlock(&verify->lock);
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(senders[i].thread, NULL);
        free(senders[i].body);
    }
    return code == TERN_OK ? EXIT_OK : bench_fail("starting senders", code, NULL);
}
