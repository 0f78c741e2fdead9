/* The checker's findings: what it makes of tries, acknowledgements, arrivals and offsets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tools/mqbench/verify.h"

enum { BODY_BYTES = 64, MS = 1000000 };

struct world {
    struct bench_options options;
    struct verify verify;
    struct verify_stream streams[2];
    struct verify_offsets queues[2];
    int64_t now_ns, store_ms;
    const char *mark; /* of messages that arrive */
    char path[64];
};

static int set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof *w);
    w->options = (struct bench_options){.topic = "T", .size_bytes = BODY_BYTES};
    w->verify = (struct verify){.options = &w->options,
                                .run_id = 42,
                                .streams = w->streams,
                                .stream_count = 2,
                                .queues = w->queues,
                                .queue_count = 2};
    for (int i = 0; i < 2; i++) {
        struct tern_queue queue = {.queue_id = i};
        snprintf(queue.topic, sizeof queue.topic, "T");
        snprintf(queue.broker_name, sizeof queue.broker_name, "broker-a");
        w->streams[i].queue = w->queues[i].queue = queue;
        w->streams[i].id = (uint32_t)i;
        w->queues[i].delivered = w->queues[i].promised = -1;
    }
    w->now_ns = 1000 * (int64_t)MS;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 2; i++) {
        free(w->streams[i].seen);
        free(w->streams[i].retries);
        free(w->queues[i].ids);
    }
    if (w->path[0])
        unlink(w->path);
    return 0;
}

/* A frame of stream 0 is sent; acknowledged or not. */
static void send_frame(struct world *w, uint32_t count, bool acked)
{
    struct verify_stream *stream = &w->streams[0];
    assert_true(verify_note_try(stream, stream->acked, count));
    if (acked)
        verify_note_acked(&w->verify, stream, count, w->now_ns);
}

static void note(struct world *w, const char *broker, int32_t queue_id, int64_t offset,
                 const uint8_t *body, size_t size)
{
    verify_note_message(&w->verify, &(struct verify_arrival){.broker = broker,
                                                             .queue_id = queue_id,
                                                             .queue_offset = offset,
                                                             .store_ms = w->store_ms,
                                                             .mark = w->mark,
                                                             .body = body,
                                                             .size = size});
}

/* Message `number` of stream 0 stands at the queue offset. */
static void arrive(struct world *w, uint64_t number, int64_t offset)
{
    uint8_t body[BODY_BYTES];
    size_t size = verify_body_size(&w->verify, 0, number);
    verify_fill(&w->verify, 0, number, body, size);
    verify_note_arrival(&w->verify, 1, w->now_ns);
    note(w, "broker-a", 0, offset, body, size);
}

static void acknowledged_is_lost_until_it_is_seen(void **state)
{
    struct world *w = *state;
    send_frame(w, 3, true);
    assert_int_equal(w->verify.waiting, 3);
    arrive(w, 0, 0);
    arrive(w, 1, 1);
    assert_int_equal(w->verify.waiting, 1);
    arrive(w, 2, 2);
    assert_int_equal(w->verify.waiting, 0);
    assert_int_equal(w->verify.seen, 3);
    assert_int_equal(w->verify.reordered + w->verify.altered + w->verify.duplicated, 0);
}

static void seen_before_its_acknowledgement_counts_once(void **state)
{
    struct world *w = *state;
    assert_true(verify_note_try(&w->streams[0], 0, 2));
    arrive(w, 0, 0);
    verify_note_acked(&w->verify, &w->streams[0], 2, w->now_ns);
    assert_int_equal(w->verify.waiting, 1);
    arrive(w, 1, 1);
    assert_int_equal(w->verify.waiting, 0);
}

static void first_occurrences_out_of_order_are_reordered(void **state)
{
    struct world *w = *state;
    send_frame(w, 3, true);
    arrive(w, 1, 0);
    arrive(w, 0, 1);
    arrive(w, 2, 2);
    assert_int_equal(w->verify.reordered, 1);
    assert_int_equal(w->verify.waiting, 0);
}

/* ---- duplicates ---- */

static void copies_up_to_the_tries_are_explained(void **state)
{
    struct world *w = *state;
    send_frame(w, 2, false);
    send_frame(w, 2, false);
    send_frame(w, 2, true);
    for (int64_t i = 0; i < 6; i++)
        arrive(w, (uint64_t)i % 2, i);
    assert_int_equal(w->verify.duplicated, 4);
    assert_int_equal(w->verify.duplicated_unexplained, 0);
    arrive(w, 1, 6);
    assert_int_equal(w->verify.duplicated, 5);
    assert_int_equal(w->verify.duplicated_unexplained, 1);
}

static void copy_of_a_frame_sent_once_is_unexplained(void **state)
{
    struct world *w = *state;
    send_frame(w, 1, true);
    send_frame(w, 1, false);
    send_frame(w, 1, true);
    send_frame(w, 1, true);
    arrive(w, 0, 0);
    arrive(w, 1, 1);
    arrive(w, 1, 2);
    arrive(w, 2, 3);
    assert_int_equal(w->verify.duplicated_unexplained, 0);
    arrive(w, 2, 4);
    arrive(w, 0, 5);
    assert_int_equal(w->verify.duplicated, 3);
    assert_int_equal(w->verify.duplicated_unexplained, 2);
}

static void same_message_at_the_same_offset_is_redelivered(void **state)
{
    struct world *w = *state;
    send_frame(w, 1, true);
    arrive(w, 0, 7);
    arrive(w, 0, 7);
    assert_int_equal(w->verify.redelivered, 1);
    assert_int_equal(w->verify.duplicated, 0);
}

/* ---- alterations ---- */

/* HA-16: the offset's message was lost and the offset given to another, which is there. */
static void offset_that_changes_its_meaning_is_altered(void **state)
{
    struct world *w = *state;
    send_frame(w, 2, true);
    arrive(w, 0, 0);
    arrive(w, 1, 0);
    assert_int_equal(w->verify.altered, 1);
    assert_int_equal(w->verify.waiting, 0);
}

static void damaged_and_misplaced_messages_are_altered(void **state)
{
    struct world *w = *state;
    uint8_t body[BODY_BYTES];
    size_t size = verify_body_size(&w->verify, 0, 0);
    verify_fill(&w->verify, 0, 0, body, size);
    body[size - 1] ^= 1;
    note(w, "broker-a", 0, 0, body, size);
    assert_int_equal(w->verify.altered, 1);
    body[size - 1] ^= 1;
    note(w, "broker-a", 1, 0, body, size);
    assert_int_equal(w->verify.altered, 2);
    note(w, "broker-z", 0, 0, body, size);
    assert_true(w->verify.altered > 2);
}

static void messages_of_others_are_left_alone(void **state)
{
    struct world *w = *state;
    note(w, "broker-a", 0, 0, (const uint8_t *)"hello", 5);
    note(w, "broker-z", 9, 0, (const uint8_t *)"hello", 5);
    assert_int_equal(w->verify.foreign, 2);
    assert_int_equal(w->verify.altered, 0);
}

/* ---- committed offsets ---- */

static void delivered_is_behind_the_last_arrival(void **state)
{
    struct world *w = *state;
    send_frame(w, 3, true);
    arrive(w, 0, 5);
    assert_int_equal(w->queues[0].delivered, 6);
    note(w, "broker-a", 0, 6, (const uint8_t *)"other", 5);
    assert_int_equal(w->queues[0].delivered, 7);
    arrive(w, 0, 5);
    assert_int_equal(w->queues[0].delivered, 6);
    assert_int_equal(w->queues[1].delivered, -1);
}

/* Offsets that were lost with their messages must not be committed for the new ones there. */
static void raised_version_forgets_what_was_delivered_before(void **state)
{
    struct world *w = *state;
    struct verify_offsets *queue = &w->queues[0];
    send_frame(w, 2, true);
    arrive(w, 0, 9);
    verify_note_progress(&w->verify, queue, -1, 0, 0);
    assert_int_equal(queue->delivered, 10);
    verify_note_progress(&w->verify, queue, 4, 2, 0);
    assert_int_equal(queue->delivered, -1);
    arrive(w, 1, 4);
    verify_note_progress(&w->verify, queue, 4, 2, 0);
    assert_int_equal(queue->delivered, 5);
    assert_int_equal(w->verify.offset_regressions, 0);
}

static void only_an_answered_commit_is_a_promise(void **state)
{
    struct world *w = *state;
    struct verify_offsets *queue = &w->queues[0];
    verify_note_progress(&w->verify, queue, 10, 0, 0);
    verify_note_progress(&w->verify, queue, 8, 0, 0); /* 10 was promised to nobody */
    assert_int_equal(w->verify.offset_regressions, 0);
    verify_note_promise(queue, 9);
    verify_note_progress(&w->verify, queue, 9, 0, 0);
    verify_note_promise(queue, 7);
    assert_int_equal(w->verify.offset_regressions, 0);
    verify_note_progress(&w->verify, queue, 8, 1, 0); /* a raised version explains nothing */
    verify_note_progress(&w->verify, queue, 8, 1, 0);
    assert_int_equal(w->verify.offset_regressions, 1);
}

/* ---- pauses ---- */

static void pause_at_the_phases_end_counts(void **state)
{
    struct world *w = *state;
    verify_note_phase(&w->verify, true, w->now_ns);
    w->now_ns += 10 * MS;
    send_frame(w, 1, true);
    arrive(w, 0, 0);
    w->now_ns += 500 * MS;
    verify_note_phase(&w->verify, false, w->now_ns);
    assert_int_equal(w->verify.send_gap.longest_ns, 500 * MS);
    assert_int_equal(w->verify.receive_gap.longest_ns, 500 * MS);
    w->now_ns += 900 * MS;
    send_frame(w, 1, true); /* was in flight */
    assert_int_equal(w->verify.send_gap.longest_ns, 500 * MS);
}

static void waiting_counts_only_while_something_is_to_come(void **state)
{
    struct world *w = *state;
    verify_note_phase(&w->verify, true, w->now_ns);
    send_frame(w, 1, true);
    w->now_ns += 5 * MS;
    arrive(w, 0, 0);
    w->now_ns += 3000 * (int64_t)MS; /* the master is away: nothing is sent, nothing is to come */
    send_frame(w, 1, true);
    w->now_ns += 20 * MS;
    send_frame(w, 1, true);
    w->now_ns += 20 * MS;
    arrive(w, 1, 1);
    arrive(w, 2, 2);
    assert_int_equal(w->verify.wait_gap.longest_ns, 40 * MS);
    assert_int_equal(w->verify.receive_gap.longest_ns, 3040 * (int64_t)MS);
}

/* ---- delayed ---- */

static void due(struct world *w, uint64_t number, const char *due_ms, int64_t store_ms)
{
    w->mark = due_ms;
    w->store_ms = store_ms;
    arrive(w, number, (int64_t)number);
}

/* D-1: never before its time; order is not promised. */
static void message_before_its_time_is_early(void **state)
{
    struct world *w = *state;
    w->options.check = CHECK_DELAYED;
    send_frame(w, 3, true);
    due(w, 1, "10000", 10000);
    due(w, 0, "10000", 9999);
    assert_int_equal(w->verify.early, 1);
    assert_int_equal(w->verify.reordered, 0);
    due(w, 2, NULL, 10000);
    assert_int_equal(w->verify.altered, 1);
}

/* What was due while its master was away is late from its return on. */
static void absence_of_the_master_is_late_only_in_all(void **state)
{
    struct world *w = *state;
    struct verify_stream *stream = &w->streams[0];
    w->options.check = CHECK_DELAYED;
    verify_note_phase(&w->verify, true, w->now_ns);
    send_frame(w, 6, true);
    verify_note_answer(&w->verify, stream, true, 10000);
    verify_note_answer(&w->verify, stream, true, 10200);
    due(w, 0, "10100", 10130);
    assert_int_equal(w->verify.late_ms, 30);
    verify_note_answer(&w->verify, stream, false, 11000);
    due(w, 1, "11000", 15000); /* back, and nothing was answered yet */
    assert_int_equal(w->verify.late_ms, 30);
    assert_int_equal(w->verify.late_in_all_ms, 4000);
    verify_note_answer(&w->verify, stream, true, 15100);
    due(w, 2, "11000", 15140);
    assert_int_equal(w->verify.late_ms, 40);
    due(w, 3, "15100", 15180);
    assert_int_equal(w->verify.late_ms, 80);
    verify_note_phase(&w->verify, false, w->now_ns);
    due(w, 4, "17000", 17200); /* no sends any more that could tell */
    assert_int_equal(w->verify.late_ms, 200);
    verify_note_answer(&w->verify, stream, false, 17500); /* ended while the master was away */
    due(w, 5, "17600", 19000);
    assert_int_equal(w->verify.late_ms, 200);
}

/* ---- transactional ---- */

/* The next number from `from` on whose transaction ends so. */
static uint64_t with_outcome(struct world *w, uint64_t from, enum verify_outcome outcome)
{
    while (verify_outcome(&w->verify, 0, from) != outcome)
        from++;
    return from;
}

/* P-3: committed ones are all delivered, of the try that ran, once; the others never. */
static void only_what_was_committed_may_arrive(void **state)
{
    struct world *w = *state;
    w->options.check = CHECK_TRANSACTIONAL;
    uint64_t committed = with_outcome(w, 0, OUTCOME_COMMIT);
    uint64_t rolled_back = with_outcome(w, 0, OUTCOME_LATE_ROLLBACK);
    for (uint64_t n = 0; n <= committed || n <= rolled_back; n++)
        send_frame(w, 1, true);
    uint64_t acked = w->verify.acked;
    assert_true(acked > 0 && acked < w->verify.settled);
    w->mark = "1";
    arrive(w, committed, 0);
    assert_int_equal(w->verify.waiting, acked - 1);
    assert_int_equal(w->verify.unwanted, 0);
    arrive(w, rolled_back, 1);
    assert_int_equal(w->verify.unwanted, 1);
    w->mark = "2"; /* it was sent once only */
    arrive(w, committed, 2);
    assert_int_equal(w->verify.unwanted, 2);
    w->mark = "1";
    arrive(w, committed, 3);
    assert_int_equal(w->verify.duplicated_unexplained, 1);
}

static void only_the_last_try_of_a_number_may_arrive(void **state)
{
    struct world *w = *state;
    w->options.check = CHECK_TRANSACTIONAL;
    uint64_t number = with_outcome(w, 0, OUTCOME_LATE_COMMIT);
    for (uint64_t n = 0; n < number; n++)
        send_frame(w, 1, true);
    send_frame(w, 1, false);
    send_frame(w, 1, true);
    assert_int_equal(verify_tries(&w->streams[0], number), 2);
    w->mark = "1";
    arrive(w, number, 0);
    assert_int_equal(w->verify.unwanted, 1);
    w->mark = "2";
    arrive(w, number, 1);
    assert_int_equal(w->verify.unwanted, 1);
    assert_true(verify_is_seen(&w->streams[0], number));
    assert_int_equal(w->verify.duplicated, 0);
}

/* ---- filtered ---- */

/* F-1, F-2: what a view's reader gets is what matches, and all of it. */
static void views_want_what_matches(void **state)
{
    struct world *w = *state;
    w->options.check = CHECK_FILTERED;
    send_frame(w, 64, true);
    assert_int_equal(w->verify.waiting, 64);
    for (enum verify_view kind = VIEW_TAGS; kind <= VIEW_CONDITION; kind++) {
        struct verify_stream stream = {.queue = w->streams[0].queue};
        struct verify_offsets queue = {.queue = w->queues[0].queue};
        struct verify *view = &w->verify;
        view->view = kind;
        view->streams = &stream;
        view->queues = &queue;
        view->stream_count = view->queue_count = 1;
        view->waiting = view->unwanted = view->acked = 0;
        verify_note_acked(view, &stream, 64, w->now_ns);
        uint64_t wanted = view->waiting;
        assert_true(wanted > 10 && wanted < 54);
        for (uint64_t n = 0; n < 64; n++)
            arrive(w, n, (int64_t)n);
        assert_int_equal(view->waiting, 0);
        assert_int_equal(view->unwanted, 64 - wanted);
        free(stream.seen);
        free(queue.ids);
    }
    w->verify.streams = w->streams;
}

/* ---- state ---- */

static void state_of_another_check_is_refused(void **state)
{
    struct world *w = *state;
    struct verify later = {.options = &w->options};
    snprintf(w->path, sizeof w->path, "test_mqbench_verify.%ld.state", (long)getpid());
    w->options.check = CHECK_TRANSACTIONAL;
    for (int i = 0; i < 16; i++)
        send_frame(w, 1, true);
    assert_int_equal(verify_state_save(&w->verify, w->path), EXIT_OK);
    w->options.check = CHECK_DELAYED;
    assert_int_equal(verify_state_load(&later, w->path), EXIT_USAGE);
    w->options.check = CHECK_TRANSACTIONAL;
    assert_int_equal(verify_state_load(&later, w->path), EXIT_OK);
    assert_int_equal(later.settled, 16);
    assert_int_equal(later.acked, w->verify.acked);
    assert_int_equal(later.waiting, w->verify.waiting);
    free(later.streams);
}

static void state_comes_back_with_tries(void **state)
{
    struct world *w = *state;
    struct verify later = {.options = &w->options};
    snprintf(w->path, sizeof w->path, "test_mqbench_verify.%ld.state", (long)getpid());
    send_frame(w, 2, true);
    send_frame(w, 2, false);
    send_frame(w, 2, true);
    assert_int_equal(verify_state_save(&w->verify, w->path), EXIT_OK);
    assert_int_equal(verify_state_load(&later, w->path), EXIT_OK);
    assert_int_equal(later.run_id, 42);
    assert_int_equal(later.stream_count, 2);
    assert_int_equal(later.acked, 4);
    assert_int_equal(later.waiting, 4);
    assert_int_equal(later.streams[0].acked, 4);
    assert_string_equal(later.streams[1].queue.broker_name, "broker-a");
    assert_int_equal(later.streams[1].queue.queue_id, 1);
    assert_int_equal(later.streams[0].retry_count, 1);
    assert_int_equal(later.streams[0].retries[0].first, 2);
    assert_int_equal(later.streams[0].retries[0].tries, 2);
    free(later.streams[0].retries);
    free(later.streams);
}

static void malformed_state_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{\"topic\":\"U\",\"run\":\"1\",\"streams\":[{}]}",
        "{\"topic\":\"T\",\"run\":\"1\",\"streams\":[]}",
        "{\"topic\":\"T\",\"run\":\"1\",\"streams\":[{\"broker\":\"b\",\"queue\":0,\"acked\":-1}]}",
        ("{\"topic\":\"T\",\"run\":\"1\",\"streams\":[{\"broker\":\"b\",\"queue\":0,\"acked\":1,"
         "\"retries\":[[0,0,2]]}]}")};
    struct world *w = *state;
    snprintf(w->path, sizeof w->path, "test_mqbench_verify.%ld.state", (long)getpid());
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct verify later = {.options = &w->options};
        FILE *file = fopen(w->path, "w");
        assert_non_null(file);
        fputs(texts[i], file);
        fclose(file);
        assert_int_equal(verify_state_load(&later, w->path), EXIT_USAGE);
        for (size_t k = 0; later.streams && k < later.stream_count; k++)
            free(later.streams[k].retries);
        free(later.streams);
    }
}

/* ---- the pulse of produce and consume ---- */

static void pulse_keeps_the_longest_pause(void **state)
{
    struct bench_pulse pulse = {.last_ns = 0};
    (void)state;
    bench_pulse(&pulse, 100);
    assert_int_equal(pulse.longest_ns, 0);
    bench_pulse(&pulse, 300);
    bench_pulse(&pulse, 250); /* told late by another thread */
    bench_pulse(&pulse, 350);
    assert_int_equal(pulse.longest_ns, 200);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(acknowledged_is_lost_until_it_is_seen),
        CASE(seen_before_its_acknowledgement_counts_once),
        CASE(first_occurrences_out_of_order_are_reordered),
        CASE(copies_up_to_the_tries_are_explained),
        CASE(copy_of_a_frame_sent_once_is_unexplained),
        CASE(same_message_at_the_same_offset_is_redelivered),
        CASE(offset_that_changes_its_meaning_is_altered),
        CASE(damaged_and_misplaced_messages_are_altered),
        CASE(messages_of_others_are_left_alone),
        CASE(delivered_is_behind_the_last_arrival),
        CASE(raised_version_forgets_what_was_delivered_before),
        CASE(only_an_answered_commit_is_a_promise),
        CASE(pause_at_the_phases_end_counts),
        CASE(waiting_counts_only_while_something_is_to_come),
        CASE(message_before_its_time_is_early),
        CASE(absence_of_the_master_is_late_only_in_all),
        CASE(only_what_was_committed_may_arrive),
        CASE(only_the_last_try_of_a_number_may_arrive),
        CASE(views_want_what_matches),
        CASE(state_of_another_check_is_refused),
        CASE(state_comes_back_with_tries),
        CASE(malformed_state_is_refused),
        CASE(pulse_keeps_the_longest_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
