/* Appends that do not fit the store: records of another queue, malformed ones, deleted topics. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "tests/unit/store/store_world.h"

enum { REQUEST_BYTES = 4096 };

/* A request for one queue whose records may say something else. */
struct request {
    struct store_append append;
    uint8_t records[REQUEST_BYTES];
    bool answered;
};

static int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    world_init(w, 11);
    world_open(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    free(*state);
    return 0;
}

static void on_answer(struct store_append *append)
{
    struct request *request = (struct request *)append;
    assert_false(request->answered);
    request->answered = true;
}

static void add_record(struct request *request, const char *topic, int32_t queue_id)
{
    struct record record = {
        .queue_id = queue_id,
        .born_host = {.ip = {127, 0, 0, 1}, .port = 1},
        .store_host = {.ip = {127, 0, 0, 1}, .port = 2},
        .body = (const uint8_t *)"body",
        .body_len = 4,
        .topic = (const uint8_t *)topic,
        .topic_len = (uint8_t)strlen(topic),
    };
    size_t size = record_encode(request->records + request->append.size_bytes,
                                REQUEST_BYTES - request->append.size_bytes, &record);
    assert_true(size > 0);
    request->append.size_bytes += (uint32_t)size;
    request->append.count++;
}

/* For `topic`, with so many of its records. */
static struct request *request_new(struct world *w, const char *topic, int32_t queue_id,
                                   uint32_t count)
{
    struct request *request = calloc(1, sizeof *request);
    assert_non_null(request);
    request->append.records = request->records;
    request->append.on_appended = on_answer;
    assert_int_equal(
        store_queue_ref(w->store, topic, strlen(topic), queue_id, &request->append.queue), TERN_OK);
    for (uint32_t i = 0; i < count; i++)
        add_record(request, topic, queue_id);
    return request;
}

/* Appends and lets the world run; *first_off is its queue offset when it was taken. */
static enum tern_code send(struct world *w, struct request *request, int64_t *first_off)
{
    request->answered = false;
    store_append(w->store, &request->append);
    world_run(w, 10);
    assert_true(request->answered);
    if (first_off)
        *first_off = request->append.first_queue_off;
    return request->append.result;
}

static void done(struct request *request)
{
    store_queue_unref(request->append.queue);
    free(request);
}

static enum tern_code send_one(struct world *w, const char *topic, int32_t queue_id,
                               int64_t *first_off)
{
    struct request *request = request_new(w, topic, queue_id, 1);
    enum tern_code code = send(w, request, first_off);
    done(request);
    return code;
}

static void expect_range(struct world *w, const char *topic, int64_t min, int64_t max)
{
    int64_t min_off;
    int64_t max_off;
    store_queue_range(w->store, topic, 0, &min_off, &max_off);
    assert_int_equal(min_off, min);
    assert_int_equal(max_off, max);
}

/* The store must go on, with the next offset. */
static void expect_refused(struct world *w, struct request *request)
{
    int64_t off = -1;
    char text[256];
    expect_range(w, "T", 0, 1);
    assert_int_equal(send(w, request, NULL), TERN_MESSAGE_ILLEGAL);
    assert_int_equal(request->append.end_phys_off, 0);
    store_refusal_text(w->store, request->append.result, text, sizeof text);
    assert_non_null(strstr(text, "whole records of one queue"));
    done(request);
    assert_int_equal(send_one(w, "T", 1, NULL), TERN_OK);
    assert_int_equal(send_one(w, "T", 0, &off), TERN_OK);
    assert_int_equal(off, 1);
    world_run(w, 2000);
    assert_int_equal(w->latched, 0);
    world_close(w);
    world_open(w);
    expect_range(w, "T", 0, 2);
}

static void records_of_another_queue_are_refused(void **state)
{
    struct world *w = *state;
    assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    struct request *request = request_new(w, "T", 0, 1);
    add_record(request, "T", 1);
    expect_refused(w, request);
}

static void records_of_another_topic_are_refused(void **state)
{
    struct world *w = *state;
    assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    struct request *request = request_new(w, "T", 0, 1);
    add_record(request, "U", 0);
    expect_refused(w, request);
}

static void a_wrong_count_or_length_is_refused(void **state)
{
    struct world *w = *state;
    assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    struct request *request = request_new(w, "T", 0, 2);
    request->append.count = 1;
    assert_int_equal(send(w, request, NULL), TERN_MESSAGE_ILLEGAL);
    request->append.count = 3;
    assert_int_equal(send(w, request, NULL), TERN_MESSAGE_ILLEGAL);
    request->append.count = 0;
    assert_int_equal(send(w, request, NULL), TERN_MESSAGE_ILLEGAL);
    request->append.count = 2;
    put_be32(request->records, UINT32_MAX);
    assert_int_equal(send(w, request, NULL), TERN_MESSAGE_ILLEGAL);
    put_be32(request->records, 0);
    expect_refused(w, request);
}

/* ---- deleted topics ---- */

static void a_request_that_waits_while_its_topic_is_deleted_is_refused(void **state)
{
    struct world *w = *state;
    int64_t off = -1;
    char text[256];
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    struct request *old = request_new(w, "T", 0, 1);
    assert_int_equal(store_delete_topic(w->store, "T", &w->err), TERN_OK);
    assert_int_equal(send_one(w, "T", 0, &off), TERN_OK);
    assert_int_equal(off, 0); /* a new life */
    assert_int_equal(send(w, old, NULL), TERN_TOPIC_NOT_EXIST);
    store_refusal_text(w->store, old->append.result, text, sizeof text);
    assert_non_null(strstr(text, "deleted"));
    done(old);
    assert_int_equal(send_one(w, "T", 0, &off), TERN_OK);
    assert_int_equal(off, 1);
    world_run(w, 2000);
    assert_int_equal(w->latched, 0);
    expect_range(w, "T", 0, 2);
    world_process_crash(w);
    world_open(w);
    expect_range(w, "T", 0, 2);
}

/* Its records are dispatched after the deletion, then those of its next life. */
static void records_dispatched_after_the_deletion_give_way_to_the_next_life(void **state)
{
    struct world *w = *state;
    int64_t off = -1;
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    struct store_status status;
    store_status(w->store, &status);
    store_set_dispatch_limit(w->store, status.appended);
    assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    assert_int_equal(store_delete_topic(w->store, "T", &w->err), TERN_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(send_one(w, "T", 0, &off), TERN_OK);
    assert_int_equal(off, 2);
    store_set_dispatch_limit(w->store, INT64_MAX);
    world_run(w, 2000);
    assert_int_equal(w->latched, 0);
    expect_range(w, "T", 0, 3);
}

static void a_deleted_topic_stays_away_after_a_clean_stop(void **state)
{
    struct world *w = *state;
    int64_t off = -1;
    assert_int_equal(send_one(w, "Other", 0, NULL), TERN_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    assert_int_equal(store_delete_topic(w->store, "T", &w->err), TERN_OK);
    world_close(w);
    world_open(w);
    assert_int_equal(w->recovery.replayed_records, 0);
    expect_range(w, "T", 0, 0);
    assert_int_equal(send_one(w, "T", 0, &off), TERN_OK);
    assert_int_equal(off, 0);
}

/* Whoever wants the queues built anew removes them all. */
static void queues_removed_after_a_clean_stop_are_built_again(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_one(w, "T", 0, NULL), TERN_OK);
    world_close(w);
    assert_int_equal(fs_rename(w->sim.env.fs, WORLD_ROOT "/consumequeue", "/away"), TERN_OK);
    world_open(w);
    expect_range(w, "T", 0, 5);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(records_of_another_queue_are_refused),
        T(records_of_another_topic_are_refused),
        T(a_wrong_count_or_length_is_refused),
        T(a_request_that_waits_while_its_topic_is_deleted_is_refused),
        T(records_dispatched_after_the_deletion_give_way_to_the_next_life),
        T(a_deleted_topic_stays_away_after_a_clean_stop),
        T(queues_removed_after_a_clean_stop_are_built_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
