/* Getting with a filter from a log in memory: what is delivered, how far it moves, what it reads.
 */
#include "tests/unit/store/get_world.h"

/* ---- filters ---- */

static void a_tag_filter_delivers_what_matches_and_moves_by_what_was_scanned(void **state)
{
    (void)state;
    struct fixture f;
    unsigned asked = 0;
    const struct store_filter filter = {.arg = &asked, .match_code = is_tag_a};
    set_up(&f);
    for (int i = 0; i < 200; i++)
        put(&f, (struct fake_record){.tags = i % 5 ? "TagB" : "TagA"});
    assert_ok(try_get(&f, 0, 10, false, &filter));
    check_got(&f, 0, 10, 5);
    assert_int_equal(f.result.next_off, 46); /* right behind the last one */
    assert_int_equal(f.result.scanned, 46);
    assert_ok(try_get(&f, 196, 10, false, &filter));
    assert_int_equal(f.result.status, GET_NO_MATCHED_MESSAGE);
    assert_int_equal(f.result.next_off, 200);
    assert_int_equal(f.reserves, 0);
    tear_down(&f);
}

static void a_scan_without_matches_ends_and_makes_progress(void **state)
{
    (void)state;
    struct fixture f;
    unsigned asked = 0;
    const struct store_filter filter = {.arg = &asked, .match_code = is_tag_a};
    set_up(&f);
    put_many(&f, 5000);
    int64_t next = 0;
    unsigned gets = 0;
    while (next < 5000) {
        asked = 0;
        assert_ok(try_get(&f, next, 32, false, &filter));
        assert_int_equal(f.result.status, GET_NO_MATCHED_MESSAGE);
        assert_true(f.result.next_off > next);
        assert_true(asked <= 800);
        next = f.result.next_off;
        gets++;
    }
    assert_int_equal(gets, 7); /* 800 units a get */
    assert_ok(try_get(&f, 0, 1000, false, &filter));
    assert_int_equal(f.result.scanned, 1000);
    tear_down(&f);
}

static void a_record_filter_keeps_what_matches(void **state)
{
    (void)state;
    struct fixture f;
    unsigned asked = 0;
    const struct store_filter filter = {.arg = &asked, .match_record = body_is_odd};
    set_up(&f);
    for (int i = 0; i < 200; i++)
        put(&f, (struct fake_record){.body_bytes = (size_t)i});
    assert_ok(try_get(&f, 0, 10, false, &filter));
    check_got(&f, 1, 10, 2);
    assert_int_equal(f.result.next_off, 20);
    assert_int_equal(f.reserved, f.result.size_bytes);
    const struct store_filter both = {
        .arg = &asked, .match_code = is_tag_a, .match_record = body_is_odd};
    asked = 0;
    assert_ok(try_get(&f, 0, 10, false, &both));
    assert_int_equal(f.result.status, GET_NO_MATCHED_MESSAGE);
    assert_int_equal(f.result.next_off, 200);
    assert_int_equal(asked, 200); /* all by their code: no record was looked at */
    tear_down(&f);
}

/* Records that lie together come with few reads of the log, those that do not are read alone; what
 * is found is the same. */
static void records_that_lie_together_are_read_together(void **state)
{
    (void)state;
    struct fixture f;
    unsigned asked = 0;
    const struct store_filter filter = {.arg = &asked, .match_record = body_is_odd};
    set_up(&f);
    for (int i = 0; i < 200; i++)
        put(&f, (struct fake_record){.body_bytes = (size_t)i});
    unsigned reads = f.log.reads;
    assert_ok(try_get(&f, 0, 100, false, &filter));
    check_got(&f, 1, 32, 2);
    assert_true(f.log.reads - reads < 20);
    for (int i = 0; i < 40; i++) { /* from here on another queue's lie between */
        put(&f, (struct fake_record){.queue_id = 1, .body_bytes = 3000});
        put(&f, (struct fake_record){.body_bytes = (size_t)i});
    }
    reads = f.log.reads;
    assert_ok(try_get(&f, 200, 32, false, &filter));
    check_got(&f, 201, 20, 2);
    assert_int_equal(f.log.reads - reads, 40);
    f.log.cold_from = commit_log_end(&f.log) - 4000; /* ahead of what is there: as if read alone */
    assert_ok(try_get(&f, 0, 100, true, &filter));
    check_got(&f, 1, 32, 2);
    tear_down(&f);
}

static void an_ext_address_is_filtered_by_the_records_tag(void **state)
{
    (void)state;
    struct fixture f;
    unsigned asked = 0;
    struct consume_queue *queue;
    const struct store_filter filter = {.arg = &asked, .match_code = is_tag_a};
    set_up(&f);
    assert_ok(queue_table_ref(f.store.queues, TOPIC, strlen(TOPIC), 0, &queue));
    for (int64_t i = 0; i < 20; i++) {
        const struct fake_record record = {.queue_off = i, .tags = i % 4 ? "TagB" : "TagA"};
        int64_t at = fake_append(&f.log, &record);
        const struct queue_unit unit = {at, (int32_t)(commit_log_end(&f.log) - at),
                                        INT64_MIN + i * 50};
        assert_ok(consume_queue_put(queue, i, &unit, 1));
    }
    consume_queue_unref(queue);
    assert_ok(try_get(&f, 0, 32, false, &filter));
    check_got(&f, 0, 5, 4);
    assert_int_equal(f.result.next_off, 20);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tag_filter_delivers_what_matches_and_moves_by_what_was_scanned),
        cmocka_unit_test(a_scan_without_matches_ends_and_makes_progress),
        cmocka_unit_test(a_record_filter_keeps_what_matches),
        cmocka_unit_test(records_that_lie_together_are_read_together),
        cmocka_unit_test(an_ext_address_is_filtered_by_the_records_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
