/* A store that takes no records of its own: nothing slips in among a copy's bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "broker/store/store_internal.h"
#include "broker/store/store_still.h"
#include "tests/unit/store/copy_world.h"

struct send {
    struct store_append append; /* first */
    bool answered;
    uint8_t bytes[256];
};

static void on_appended(struct store_append *append)
{
    ((struct send *)append)->answered = true;
}

static void submit(struct store *store, struct send *send)
{
    static const char topic[] = "TopicTest";
    struct record record = {.topic = (const uint8_t *)topic,
                            .topic_len = sizeof topic - 1,
                            .body = (const uint8_t *)"body",
                            .body_len = 4};
    *send = (struct send){.answered = false};
    send->append.records = send->bytes;
    send->append.size_bytes = (uint32_t)record_encode(send->bytes, sizeof send->bytes, &record);
    send->append.count = 1;
    send->append.on_appended = on_appended;
    assert_int_equal(store_queue_ref(store, topic, sizeof topic - 1, 0, &send->append.queue),
                     TERN_OK);
    store_append(store, &send->append);
}

static enum tern_code result_of(struct world *w, struct send *send)
{
    world_run(w, 50);
    assert_true(send->answered);
    store_queue_unref(send->append.queue);
    return send->append.result;
}

static int64_t end_of(struct store *store)
{
    struct store_positions at;
    store_positions(store, &at);
    return at.appended;
}

static void a_closed_store_takes_copied_bytes_but_no_records(void **state)
{
    struct world w;
    struct copy c;
    struct send send;
    char text[256];
    (void)state;
    world_init(&w, 1);
    world_open(&w);
    copy_init(&c, &w);
    copy_open(&c);
    submit(w.store, &send);
    assert_int_equal(result_of(&w, &send), TERN_OK);

    store_set_appends(c.store, false);
    submit(c.store, &send);
    assert_int_equal(result_of(&w, &send), TERN_SERVICE_NOT_AVAILABLE);
    store_refusal_text(c.store, send.append.result, text, sizeof text);
    assert_non_null(strstr(text, "takes no messages now"));
    assert_int_equal(end_of(c.store), 0);
    copy_feed(&c, w.store, 64, INT64_MAX);
    copy_settle(&c);
    assert_int_equal(end_of(c.store), end_of(w.store));

    store_set_appends(c.store, true);
    submit(c.store, &send);
    assert_int_equal(result_of(&w, &send), TERN_OK);
    assert_int_equal(send.append.first_queue_off, 1);
    copy_fini(&c);
    world_close(&w);
    world_fini(&w);
}

/* Sends wait in the queue while something else stands in their way, and it is closed meanwhile. */
static void what_waits_when_it_closes_is_not_written_afterwards(void **state)
{
    struct world w;
    struct send sends[3];
    (void)state;
    world_init(&w, 2);
    world_open(&w);
    store_hold(w.store);
    for (size_t i = 0; i < 3; i++)
        submit(w.store, &sends[i]);
    assert_false(sends[0].answered);
    atomic_store(&w.store->gate.closed, true); /* its second half waits for who holds the store */
    store_let_go(w.store);
    store_set_appends(w.store, false);
    int64_t end = end_of(w.store);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(result_of(&w, &sends[i]), TERN_SERVICE_NOT_AVAILABLE);
    assert_int_equal(end, 0);
    assert_int_equal(end_of(w.store), 0);
    world_close(&w);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_store_takes_copied_bytes_but_no_records),
        cmocka_unit_test(what_waits_when_it_closes_is_not_written_afterwards),
    };
    return cmocka_run_group_tests_name("store closed", tests, NULL, NULL);
}
