/*
 * Getting from a log in memory: each state with its next offset, limits, progress, waiting or not,
 * what was expired, failing calls.
 */
#include "tests/unit/store/get_world.h"

#include <errno.h>

/* ---- states ---- */

static void each_offset_has_its_state_and_next_offset(void **state)
{
    (void)state;
    static const struct {
        int64_t offset;
        enum get_status status;
        int64_t next;
    } rows[] = {
        {INT64_MIN, GET_OFFSET_TOO_SMALL, 40},
        {-1, GET_OFFSET_TOO_SMALL, 40},
        {0, GET_OFFSET_TOO_SMALL, 40},
        {39, GET_OFFSET_TOO_SMALL, 40},
        {40, GET_FOUND, 72},
        {99, GET_FOUND, 100},
        {100, GET_OFFSET_OVERFLOW_ONE, 100},
        {101, GET_OFFSET_OVERFLOW_BADLY, 100},
        {1000, GET_OFFSET_OVERFLOW_BADLY, 100},
        {1ll << 62, GET_OFFSET_OVERFLOW_BADLY, 100},
        {INT64_MAX, GET_OFFSET_OVERFLOW_BADLY, 100},
    };
    struct fixture f;
    set_up(&f);
    put_many(&f, 100);
    expire(&f, 40 * RECORD_SIZE);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(get(&f, rows[i].offset, 32), rows[i].status);
        assert_int_equal(f.result.next_off, rows[i].next);
        assert_int_equal(f.result.min_off, 40);
        assert_int_equal(f.result.max_off, 100);
        if (rows[i].status != GET_FOUND)
            assert_int_equal(f.result.count + f.reserves, 0);
    }
    f.store.options.offset_correction = false; /* a slave leaves the offset alone */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(get(&f, rows[i].offset, 32), rows[i].status);
        assert_int_equal(f.result.next_off,
                         rows[i].status == GET_FOUND ? rows[i].next : rows[i].offset);
    }
    tear_down(&f);
}

static void overflow_with_minimum_0_goes_to_max_never_to_0(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 100);
    assert_int_equal(get(&f, 101, 32), GET_OFFSET_OVERFLOW_BADLY);
    assert_int_equal(f.result.next_off, 100);
    assert_int_equal(get(&f, -1, 32), GET_OFFSET_TOO_SMALL);
    assert_int_equal(f.result.next_off, 0);
    tear_down(&f);
}

static void a_queue_without_messages_and_no_queue_are_told_apart(void **state)
{
    (void)state;
    struct fixture f;
    struct consume_queue *queue;
    set_up(&f);
    assert_int_equal(get(&f, 5, 32), GET_NO_MATCHED_LOGIC_QUEUE);
    assert_int_equal(f.result.next_off, 0);
    assert_ok(queue_table_ref(f.store.queues, TOPIC, strlen(TOPIC), 0, &queue));
    consume_queue_unref(queue);
    assert_int_equal(get(&f, 5, 32), GET_NO_MESSAGE_IN_QUEUE);
    assert_int_equal(f.result.next_off, 0);
    f.store.options.offset_correction = false;
    assert_int_equal(get(&f, 5, 32), GET_NO_MESSAGE_IN_QUEUE);
    assert_int_equal(f.result.next_off, 5);
    tear_down(&f);
}

static void states_have_rocketmqs_names(void **state)
{
    (void)state;
    assert_string_equal(get_status_text(GET_FOUND), "FOUND");
    assert_string_equal(get_status_text(GET_OFFSET_FOUND_NULL), "OFFSET_FOUND_NULL");
    assert_string_equal(get_status_text(GET_OFFSET_OVERFLOW_BADLY), "OFFSET_OVERFLOW_BADLY");
    assert_string_equal(get_status_text((enum get_status)99), "UNKNOWN");
}

static void units_that_cannot_be_found_move_the_offset_to_the_next_file(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 2500);
    assert_ok(queue_table_flush(f.store.queues, true, &f.err));
    queue_table_destroy(f.store.queues); /* without open handles of it */
    assert_ok(queue_table_create(&f.sim.env, "/store/consumequeue", 20 * 1000, 1, false,
                                 &f.store.queues));
    int64_t max_phys;
    assert_ok(queue_table_recover(f.store.queues, 0, INT64_MAX, &max_phys, &f.err));
    assert_int_equal(get(&f, 2400, 32), GET_FOUND); /* another file is the open one */
    sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_OPEN,
                                                 .path_part = "/00000000000000000000",
                                                 .nth = 1,
                                                 .errno_value = ENOENT,
                                                 .forever = true});
    assert_int_equal(get(&f, 5, 32), GET_OFFSET_FOUND_NULL);
    assert_int_equal(f.result.next_off, 1000);
    sim_fs_fail_clear(f.sim.fs);
    assert_int_equal(get(&f, 5, 32), GET_FOUND);
    tear_down(&f);
}

/* ---- what is got ---- */

static void messages_are_got_right_behind_a_put(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    for (int64_t i = 0; i < 3000; i++) {
        put_many(&f, 1);
        assert_int_equal(get(&f, i, 32), GET_FOUND);
        check_got(&f, i, 1, 1);
        assert_int_equal(f.result.next_off, i + 1);
    }
    int64_t next = 0;
    while (get(&f, next, 32) == GET_FOUND) {
        check_got(&f, next, next + 32 <= 3000 ? 32 : 24, 1);
        next = f.result.next_off;
    }
    assert_int_equal(next, 3000);
    assert_int_equal(f.store.get_found, 3000 + 94);
    assert_int_equal(f.store.get_missed, 1);
    tear_down(&f);
}

static void adjacent_records_take_one_read_of_the_log(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 100);
    assert_int_equal(get(&f, 10, 20), GET_FOUND);
    check_got(&f, 10, 20, 1);
    assert_int_equal(f.reserves, 1);
    assert_int_equal(f.reserved, 20 * RECORD_SIZE);
    tear_down(&f);
}

/* Whoever is suggested must have dispatched the record at next_off. */
static void what_is_wanted_next_is_told_by_its_end(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 100);
    assert_int_equal(get(&f, 10, 20), GET_FOUND);
    assert_int_equal(f.result.want_end, 0); /* it is in memory */
    f.store.limits.memory_window_bytes = 10;
    for (uint32_t count = 1; count < 8; count += 3) { /* by the count asked for, or by the limit */
        f.store.limits.disk_count = count == 4 ? 2 : 100;
        assert_int_equal(get(&f, 10, count), GET_FOUND);
        assert_true(f.result.beyond_memory);
        assert_int_equal(f.result.next_off, 10 + (count == 4 ? 2 : (int64_t)count));
        assert_int_equal(f.result.want_end, (f.result.next_off + 1) * RECORD_SIZE);
    }
    assert_int_equal(get(&f, 90, 32), GET_FOUND);
    assert_int_equal(f.result.next_off, 100);
    assert_true(f.result.beyond_memory);
    assert_int_equal(f.result.want_end, 0); /* there is none */
    tear_down(&f);
}

static void limits_by_count_and_bytes_in_memory_and_beyond(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    for (int i = 0; i < 60; i++)
        put(&f, (struct fake_record){.body_bytes = i < 10 ? 30000 : 1000});
    assert_int_equal(get(&f, 0, 32), GET_FOUND);
    assert_int_equal(f.result.count, 8); /* 8 × 30 KB below 256 KiB */
    assert_false(f.result.beyond_memory);
    assert_int_equal(get(&f, 10, 100), GET_FOUND);
    assert_int_equal(f.result.count, 32);
    assert_int_equal(get(&f, 10, 5), GET_FOUND);
    assert_int_equal(f.result.count, 5);
    f.store.limits.memory_window_bytes = 10;
    assert_int_equal(get(&f, 0, 32), GET_FOUND);
    assert_int_equal(f.result.count, 2); /* below 64 KiB */
    assert_true(f.result.beyond_memory);
    assert_int_equal(get(&f, 10, 32), GET_FOUND);
    assert_int_equal(f.result.count, 8);
    tear_down(&f);
}

static void the_first_message_comes_whatever_its_size(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.log.segment_bytes = 4 << 20;
    put(&f, (struct fake_record){.body_bytes = 1000000});
    put_many(&f, 1);
    f.store.limits.memory_window_bytes = 0;
    assert_int_equal(get(&f, 0, 1), GET_FOUND);
    check_got(&f, 0, 1, 1);
    assert_int_equal(get(&f, 0, 0), GET_FOUND);
    check_got(&f, 0, 1, 1);
    tear_down(&f);
}

/* ---- expired, cold, failing ---- */

static void expired_records_are_stepped_over(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 1000);
    atomic_store(&f.log.min, 900 * RECORD_SIZE); /* the queue does not know yet */
    assert_int_equal(get(&f, 0, 32), GET_MESSAGE_WAS_REMOVING);
    assert_int_equal(f.result.next_off, 800);
    assert_int_equal(get(&f, 800, 32), GET_FOUND);
    check_got(&f, 900, 32, 1);
    assert_int_equal(f.result.next_off, 932);
    tear_down(&f);
}

static void without_waiting_cold_messages_answer_again(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 40);
    put(&f, (struct fake_record){.queue_id = 1}); /* a gap between two runs */
    put_many(&f, 40);
    f.log.cold = true;
    assert_int_equal(try_get(&f, 0, 32, true, NULL), TERN_AGAIN);
    assert_ok(try_get(&f, 0, 32, false, NULL));
    f.log.cold = false;
    f.log.cold_from = 10 * RECORD_SIZE + 50; /* within the run */
    assert_ok(try_get(&f, 0, 32, true, NULL));
    check_got(&f, 0, 10, 1);
    assert_int_equal(f.result.next_off, 10);
    assert_int_equal(try_get(&f, 10, 32, true, NULL), TERN_AGAIN);
    f.log.cold_from = 41 * RECORD_SIZE; /* the second run */
    assert_ok(try_get(&f, 30, 32, true, NULL));
    check_got(&f, 30, 10, 1);
    assert_int_equal(f.result.next_off, 40);
    assert_int_equal(try_get(&f, 40, 32, true, NULL), TERN_AGAIN);
    assert_int_equal(f.store.get_again, 3);
    tear_down(&f);
}

static void without_waiting_cold_units_answer_again(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 1000);
    sim_fs_set_cold(f.sim.fs, 100);
    assert_int_equal(try_get(&f, 0, 32, true, NULL), TERN_AGAIN);
    assert_ok(try_get(&f, 990, 32, true, NULL));
    check_got(&f, 990, 10, 1);
    tear_down(&f);
}

static void a_filtered_beginning_counts_though_the_match_is_cold(void **state)
{
    (void)state;
    struct fixture f;
    unsigned asked = 0;
    set_up(&f);
    for (int i = 0; i < 30; i++)
        put(&f, (struct fake_record){.tags = i < 20 ? "TagB" : "TagA"});
    f.log.cold = true;
    const struct store_filter filter = {.arg = &asked, .match_code = is_tag_a};
    assert_ok(try_get(&f, 0, 32, true, &filter));
    assert_int_equal(f.result.status, GET_NO_MATCHED_MESSAGE);
    assert_int_equal(f.result.next_off, 20);
    const struct store_filter by_record = {
        .arg = &asked, .match_code = is_tag_a, .match_record = body_is_odd};
    assert_ok(try_get(&f, 0, 32, true, &by_record));
    assert_int_equal(f.result.next_off, 20);
    assert_int_equal(try_get(&f, 20, 32, true, &by_record), TERN_AGAIN);
    tear_down(&f);
}

static uint8_t *reserve_nothing(void *arg, size_t size)
{
    (void)arg;
    (void)size;
    return NULL;
}

static void failures_are_codes(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    put_many(&f, 1000);
    struct store_get request = {.topic = TOPIC, .max_count = 32, .reserve = reserve_nothing};
    assert_int_equal(store_get(&f.store, &request, &f.result), TERN_NO_MEMORY);
    f.log.failing = TERN_IO;
    assert_int_equal(try_get(&f, 0, 32, false, NULL), TERN_IO);
    f.log.failing = TERN_OK;
    sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_PREAD, .nth = 1, .errno_value = EIO});
    assert_int_equal(try_get(&f, 0, 32, false, NULL), TERN_IO);
    sim_fs_fail_clear(f.sim.fs);
    assert_ok(try_get(&f, 0, 32, false, NULL));
    check_got(&f, 0, 32, 1);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_offset_has_its_state_and_next_offset),
        cmocka_unit_test(overflow_with_minimum_0_goes_to_max_never_to_0),
        cmocka_unit_test(a_queue_without_messages_and_no_queue_are_told_apart),
        cmocka_unit_test(states_have_rocketmqs_names),
        cmocka_unit_test(units_that_cannot_be_found_move_the_offset_to_the_next_file),
        cmocka_unit_test(messages_are_got_right_behind_a_put),
        cmocka_unit_test(adjacent_records_take_one_read_of_the_log),
        cmocka_unit_test(what_is_wanted_next_is_told_by_its_end),
        cmocka_unit_test(limits_by_count_and_bytes_in_memory_and_beyond),
        cmocka_unit_test(the_first_message_comes_whatever_its_size),
        cmocka_unit_test(expired_records_are_stepped_over),
        cmocka_unit_test(without_waiting_cold_messages_answer_again),
        cmocka_unit_test(without_waiting_cold_units_answer_again),
        cmocka_unit_test(a_filtered_beginning_counts_though_the_match_is_cold),
        cmocka_unit_test(failures_are_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
