/* The checker's judgement of messages whose listeners fail: from deliveries alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tools/mqbench/verify.h"

enum { BODY_BYTES = 64, DEAD = VERIFY_RETRIES + 1 };

struct world {
    struct bench_options options;
    struct verify verify;
    struct verify_stream stream;
    struct verify_offsets queue;
    int64_t now_ms;
};

static int set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof *w);
    w->options = (struct bench_options){
        .topic = "T", .size_bytes = BODY_BYTES, .check = CHECK_FAILING, .fail_percent = 50};
    w->verify = (struct verify){.options = &w->options,
                                .run_id = 42,
                                .streams = &w->stream,
                                .stream_count = 1,
                                .queues = &w->queue,
                                .queue_count = 1};
    snprintf(w->stream.queue.broker_name, sizeof w->stream.queue.broker_name, "broker-a");
    w->queue.queue = w->stream.queue;
    w->now_ms = 1000000;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    verify_lives_fini(&w->verify);
    free(w->stream.seen);
    free(w->stream.retries);
    return 0;
}

/* ---- what happens ---- */

/* The first number whose listener fails so often, and all before it, acknowledged. */
static uint64_t failing(struct world *w, int32_t failures)
{
    uint64_t number = 0;
    for (;; number++) {
        int32_t times = 0;
        while (times <= VERIFY_RETRIES && verify_fails(&w->verify, 0, number, times))
            times++;
        if (times == failures)
            break;
    }
    assert_true(verify_note_try(&w->stream, 0, (uint32_t)number + 1));
    verify_note_acked(&w->verify, &w->stream, number + 1, 1);
    w->verify.waiting = 1; /* the others are nobody's business here */
    return number;
}

static bool come_from(struct world *w, const char *broker, enum verify_place place, int32_t times,
                      uint64_t number, int64_t offset)
{
    uint8_t body[BODY_BYTES];
    size_t size = verify_body_size(&w->verify, 0, number);
    verify_fill(&w->verify, 0, number, body, size);
    return verify_note_delivery(&w->verify, place, times,
                                &(struct verify_arrival){.broker = broker,
                                                         .queue_offset = offset,
                                                         .delivered_ms = w->now_ms,
                                                         .body = body,
                                                         .size = size});
}

static bool come(struct world *w, enum verify_place place, int32_t times, uint64_t number,
                 int64_t offset)
{
    return come_from(w, "broker-a", place, times, number, offset);
}

/* From its topic through so many failures, each copy a record of its own. */
static void live(struct world *w, uint64_t number, int32_t failures)
{
    for (int32_t times = 0; times < failures; times++)
        assert_true(come(w, times == 0 ? PLACE_TOPIC : PLACE_RETRY, times, number,
                         (int64_t)number + times));
}

static void expect(const struct world *w, uint64_t waiting, uint64_t duplicated_unexplained)
{
    const struct verify *v = &w->verify;
    assert_int_equal(v->waiting, waiting);
    assert_int_equal(v->duplicated_unexplained, duplicated_unexplained);
    assert_int_equal(v->altered + v->beyond_count + v->wrongly_dead + v->redelivered_unexplained,
                     0);
}

/* ---- as it should be ---- */

static void failed_is_lost_until_it_is_consumed(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, 2);
    live(w, number, 2);
    expect(w, 1, 0);
    assert_false(come(w, PLACE_RETRY, 2, number, 100));
    verify_note_unanswered(&w->verify, 0);
    expect(w, 0, 0);
    assert_int_equal(w->verify.retried, 2);
    assert_int_equal(w->verify.duplicated + w->verify.dead_lettered, 0);
}

static void failed_to_the_end_is_lost_until_it_is_a_dead_letter(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, DEAD);
    live(w, number, DEAD);
    expect(w, 1, 0);
    assert_false(come(w, PLACE_DEAD, DEAD, number, 0));
    verify_note_unanswered(&w->verify, 0);
    expect(w, 0, 0);
    assert_int_equal(w->verify.dead_lettered, 1);
    assert_int_equal(w->verify.consumed_and_dead, 0);
}

static void consumer_may_try_the_same_record_again_counted(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, 2);
    for (int32_t times = 0; times <= 2; times++)
        assert_int_equal(come(w, PLACE_TOPIC, times, number, 7), times < 2);
    verify_note_unanswered(&w->verify, 0);
    expect(w, 0, 0);
    assert_int_equal(w->verify.redelivered, 0);
}

/* Each try of a frame may be a record, with a life of its own. */
static void copies_of_a_frame_sent_again_live_each(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, 1);
    w->stream.retries = calloc(1, sizeof *w->stream.retries);
    assert_non_null(w->stream.retries);
    w->stream.retries[0] = (struct verify_retry){.first = number, .count = 1, .tries = 2};
    w->stream.retry_count = w->stream.retry_cap = 1;
    for (int64_t copy = 0; copy < 2; copy++) {
        assert_true(come(w, PLACE_TOPIC, 0, number, 10 + copy));
        assert_false(come(w, PLACE_RETRY, 1, number, 10 + copy));
    }
    verify_note_unanswered(&w->verify, 0);
    expect(w, 0, 0);
    assert_true(come(w, PLACE_TOPIC, 0, number, 12));
    expect(w, 0, 1);
}

static void failures_are_drawn_try_by_try(void **state)
{
    struct world *w = *state;
    int failed[VERIFY_RETRIES + 1] = {0}, both = 0;
    w->options.fail_percent = 20;
    for (uint64_t n = 0; n < 10000; n++) {
        for (int32_t times = 0; times <= VERIFY_RETRIES; times++)
            failed[times] += verify_fails(&w->verify, 0, n, times);
        both += verify_fails(&w->verify, 0, n, 0) && verify_fails(&w->verify, 0, n, 1);
    }
    for (int32_t times = 0; times <= VERIFY_RETRIES; times++)
        assert_in_range(failed[times], 1800, 2200);
    assert_in_range(both, 320, 480);
}

/* ---- what is found ---- */

static void delivery_without_a_failure_needs_a_message_that_nobody_answered(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, 1);
    live(w, number, 1);
    assert_false(come(w, PLACE_RETRY, 1, number, 20));
    assert_false(come(w, PLACE_RETRY, 1, number, 21)); /* consumed once more */
    assert_int_equal(w->verify.duplicated, 1);
    verify_note_unanswered(&w->verify, 1);
    expect(w, 0, 0);
    assert_false(come(w, PLACE_RETRY, 1, number, 22));
    verify_note_unanswered(&w->verify, 0);
    expect(w, 0, 1);
}

static void consumed_and_dead_is_found(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, VERIFY_RETRIES);
    live(w, number, VERIFY_RETRIES);
    assert_false(come(w, PLACE_RETRY, VERIFY_RETRIES, number, 20));
    assert_false(come(w, PLACE_DEAD, DEAD, number, 0));
    verify_note_unanswered(&w->verify, 0);
    expect(w, 0, 1);
    assert_int_equal(w->verify.consumed_and_dead, 1);
}

static void count_that_falls_is_found(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, DEAD);
    live(w, number, 3);
    assert_true(come(w, PLACE_RETRY, 1, number, 30)); /* after 2 */
    verify_note_unanswered(&w->verify, 0);
    expect(w, 1, 1);
}

static void count_that_jumps_is_found(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, DEAD);
    live(w, number, 1);
    assert_true(come(w, PLACE_RETRY, 3, number, 30));
    verify_note_unanswered(&w->verify, 0);
    expect(w, 1, 1);
}

static void delivery_after_the_last_try_is_beyond(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, DEAD);
    live(w, number, DEAD);
    assert_false(come(w, PLACE_RETRY, DEAD, number, 30));
    assert_int_equal(w->verify.beyond_count, 1);
    assert_int_equal(w->verify.waiting, 1); /* and makes up for nothing */
}

static void dead_with_tries_left_is_wrong(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, DEAD);
    live(w, number, 2);
    assert_false(come(w, PLACE_DEAD, 2, number, 0));
    assert_int_equal(w->verify.wrongly_dead, 1);
}

/* Its queue begins anew when the master comes back; then what was here may come with its old count.
 */
static void redelivery_needs_a_set_in_trouble(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, 2);
    verify_note_phase(&w->verify, true, 1);
    assert_true(come(w, PLACE_TOPIC, 0, number, 7));
    assert_true(come(w, PLACE_TOPIC, 1, number, 7));
    verify_note_answer(&w->verify, &w->stream, false, w->now_ms + 1);
    w->now_ms += 3000;
    assert_true(come(w, PLACE_TOPIC, 0, number, 7));
    w->now_ms += 1000;
    assert_true(come(w, PLACE_TOPIC, 0, number, 7)); /* was in hand when the set was back */
    expect(w, 1, 0);
    assert_int_equal(w->verify.redelivered, 2);
    w->now_ms += 60000;
    assert_true(come(w, PLACE_TOPIC, 1, number, 7));
    assert_true(come(w, PLACE_TOPIC, 0, number, 7));
    assert_int_equal(w->verify.redelivered_unexplained, 1);
    verify_note_phase(&w->verify, false, 2); /* nothing is sent that could tell */
    assert_true(come(w, PLACE_TOPIC, 0, number, 7));
    assert_int_equal(w->verify.redelivered_unexplained, 1);
}

static void what_is_elsewhere_or_took_its_place_is_altered(void **state)
{
    struct world *w = *state;
    uint64_t number = failing(w, 1);
    live(w, number, 1);
    assert_false(come_from(w, "broker-b", PLACE_RETRY, 1, number, 0)); /* another set's */
    assert_int_equal(w->verify.altered, 1);
    assert_int_equal(w->verify.waiting, 0);
    (void)come(w, PLACE_TOPIC, 0, number + 1, (int64_t)number);
    assert_int_equal(w->verify.altered, 2);
}

static void any_finding_fails_the_check(void **state)
{
    struct world *w = *state;
    struct verify *v = &w->verify;
    uint64_t *const findings[] = {&v->waiting,      &v->altered,      &v->duplicated_unexplained,
                                  &v->beyond_count, &v->wrongly_dead, &v->redelivered_unexplained};
    w->options.json = true;
    v->acked = v->seen = 1;
    assert_int_equal(verify_report(v), EXIT_OK);
    for (size_t i = 0; i < sizeof findings / sizeof findings[0]; i++) {
        *findings[i] = 1;
        assert_int_equal(verify_report(v), EXIT_NO);
        *findings[i] = 0;
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(failed_is_lost_until_it_is_consumed),
        CASE(failed_to_the_end_is_lost_until_it_is_a_dead_letter),
        CASE(consumer_may_try_the_same_record_again_counted),
        CASE(copies_of_a_frame_sent_again_live_each),
        CASE(failures_are_drawn_try_by_try),
        CASE(delivery_without_a_failure_needs_a_message_that_nobody_answered),
        CASE(consumed_and_dead_is_found),
        CASE(count_that_falls_is_found),
        CASE(count_that_jumps_is_found),
        CASE(delivery_after_the_last_try_is_beyond),
        CASE(dead_with_tries_left_is_wrong),
        CASE(redelivery_needs_a_set_in_trouble),
        CASE(what_is_elsewhere_or_took_its_place_is_altered),
        CASE(any_finding_fails_the_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
