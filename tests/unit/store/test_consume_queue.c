/*
 * Consume queues on a simulated disk: bytes, ring and files, expiry, deletion; and readers on real
 * threads while the head expires.
 */
#include <errno.h>

#include "tests/unit/store/queue_world.h"

#include <pthread.h>
#include <unistd.h>

/* ---- bytes ---- */

static void a_unit_has_rocketmqs_bytes_and_its_file_full_length(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t expected[UNIT_BYTES];
    uint8_t raw[UNIT_BYTES];
    struct fs_stat st;
    set_up(&f, 1);
    const struct queue_unit unit = {0x1000, 0xA5, 0x27A807};
    assert_ok(consume_queue_put(f.queue, 0, &unit, 1));
    assert_false(fs_exists(f.sim.env.fs, DIR)); /* nothing yet: a put makes no call */
    flush(&f, true);
    from_hex("0000000000001000 000000A5 000000000027A807", expected);
    read_file(&f, "00000000000000000000", raw, sizeof raw, 0);
    assert_memory_equal(raw, expected, sizeof raw);
    assert_ok(fs_stat(f.sim.env.fs, DIR "/TopicTest/0/00000000000000000000", &st));
    assert_int_equal(st.size_bytes, FILE_BYTES);
    tear_down(&f);
}

static void a_queue_without_messages_has_no_file(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    flush(&f, true);
    assert_false(fs_exists(f.sim.env.fs, DIR));
    assert_int_equal(consume_queue_min(f.queue), 0);
    assert_int_equal(consume_queue_max(f.queue), 0);
    tear_down(&f);
}

static void room_before_a_late_first_unit_is_filler(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t filler[UNIT_BYTES];
    uint8_t raw[UNIT_BYTES];
    set_up(&f, 1);
    put(&f, 1234, 1300);
    check(&f, 1234, 1300);
    flush(&f, true);
    from_hex("0000000000000000 7FFFFFFF 0000000000000000", filler);
    for (int64_t offset = 1000; offset < 1234; offset++) {
        read_file(&f, "00000000000000020000", raw, sizeof raw, (offset - 1000) * UNIT_BYTES);
        assert_memory_equal(raw, filler, sizeof raw);
    }
    assert_false(file_exists(&f, 0));
    restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
    check(&f, 1234, 1300);
    assert_int_equal(f.max_phys, 1300 * RECORD_BYTES);
    tear_down(&f);
}

/* ---- putting and reading ---- */

static void units_are_read_back_from_ring_and_files(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    for (int64_t offset = 0; offset < 1700; offset++) {
        put(&f, offset, offset + 1);
        check_range(f.queue, offset > 300 ? offset - 300 : 0, offset + 1);
    }
    check(&f, 0, 1700);
    flush(&f, false);
    flush(&f, false); /* idle: the ring is gone */
    assert_null(f.queue->ring);
    check(&f, 0, 1700);
    put(&f, 1700, 1800);
    check(&f, 0, 1800);
    tear_down(&f);
}

static void reading_outside_gives_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct queue_unit unit;
    uint32_t got = 7;
    set_up(&f, 1);
    put(&f, 100, 200);
    static const int64_t outside[] = {INT64_MIN, -1, 0, 99, 200, 201, INT64_MAX};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_ok(consume_queue_read(f.queue, outside[i], &unit, 1, false, &got));
        assert_int_equal(got, 0);
    }
    tear_down(&f);
}

static void a_put_out_of_order_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 0, 10);
    const struct queue_unit unit = unit_at(3);
    assert_int_equal(consume_queue_put(f.queue, 9, &unit, 1), TERN_CORRUPT);
    assert_int_equal(consume_queue_put(f.queue, 11, &unit, 1), TERN_CORRUPT);
    check(&f, 0, 10);
    put(&f, 10, 20);
    check(&f, 0, 20);
    tear_down(&f);
}

static void a_cold_file_answers_again_and_the_ring_does_not(void **state)
{
    (void)state;
    struct fixture f;
    struct queue_unit units[8];
    uint32_t got;
    set_up(&f, 1);
    put(&f, 0, 600);
    sim_fs_set_cold(f.sim.fs, 100);
    assert_int_equal(consume_queue_read(f.queue, 0, units, 8, true, &got), TERN_AGAIN);
    assert_ok(consume_queue_read(f.queue, 590, units, 8, true, &got));
    assert_int_equal(got, 8);
    tear_down(&f);
}

static void a_hundred_queues_share_two_open_files(void **state)
{
    (void)state;
    struct fixture f;
    struct consume_queue *queues[100];
    set_up(&f, 1);
    for (int32_t q = 0; q < 100; q++)
        assert_ok(queue_table_ref(f.table, TOPIC, strlen(TOPIC), q, &queues[q]));
    for (int64_t offset = 0; offset < 1200; offset += 100)
        for (int32_t q = 0; q < 100; q++)
            assert_ok(try_put(queues[q], offset, offset + 100));
    flush(&f, true);
    assert_true(sim_fs_open_handles(f.sim.fs) <= 2);
    for (int32_t q = 0; q < 100; q++) {
        check_range(queues[q], 0, 1200);
        consume_queue_unref(queues[q]);
    }
    assert_true(sim_fs_open_handles(f.sim.fs) <= 2);
    assert_int_equal(queue_table_count(f.table), 100);
    assert_int_equal(queue_table_last_queue(f.table, TOPIC), 99);
    assert_int_equal(queue_table_last_queue(f.table, "other"), -1);
    tear_down(&f);
}

static void queues_are_found_by_topic_and_id(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    for (int i = 0; i < 2000; i++) {
        char name[32];
        struct consume_queue *queue;
        int len = snprintf(name, sizeof name, "Topic%d", i / 4);
        assert_ok(queue_table_ref(f.table, name, (size_t)len, i % 4, &queue));
        assert_string_equal(consume_queue_topic(queue), name);
        struct consume_queue *found = queue_table_find(f.table, name, (size_t)len, i % 4);
        assert_ptr_equal(found, queue);
        consume_queue_unref(found);
        consume_queue_unref(queue);
        assert_null(queue_table_find(f.table, name, (size_t)len, 99));
        assert_null(queue_table_find(f.table, name, (size_t)len - 1, 5));
    }
    tear_down(&f);
}

/* ---- expiry ---- */

static void expiry_moves_the_minimum_and_removes_whole_files(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 0, 2100);
    assert_ok(queue_table_expire(f.table, 333 * RECORD_BYTES - 1, &f.err));
    check(&f, 333, 2100);
    assert_true(file_exists(&f, 0));
    assert_ok(queue_table_expire(f.table, 1500 * RECORD_BYTES, &f.err));
    check(&f, 1500, 2100);
    assert_false(file_exists(&f, 0));
    assert_false(file_exists(&f, 2 * FILE_BYTES));
    assert_true(file_exists(&f, 3 * FILE_BYTES));
    assert_ok(queue_table_expire(f.table, 700 * RECORD_BYTES, &f.err)); /* never back */
    check(&f, 1500, 2100);
    flush(&f, true);
    restart(&f, SIM_TORN_NONE, 1500 * RECORD_BYTES, INT64_MAX);
    check(&f, 1500, 2100);
    tear_down(&f);
}

static void a_queue_that_is_wholly_expired_never_restarts_from_0(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture f;
        set_up(&f, seed);
        put(&f, 0, 1700);
        flush(&f, false); /* not even synced by us: the expiry sees to what it leaves */
        assert_ok(queue_table_expire(f.table, INT64_MAX, &f.err));
        assert_int_equal(consume_queue_min(f.queue), 1700);
        assert_int_equal(consume_queue_max(f.queue), 1700);
        restart(&f, SIM_TORN_PAGES, INT64_MAX, INT64_MAX);
        assert_int_equal(consume_queue_min(f.queue), 1700);
        assert_int_equal(consume_queue_max(f.queue), 1700);
        put(&f, 1700, 1800);
        check(&f, 1700, 1800);
        tear_down(&f);
    }
}

/* ---- deleting ---- */

static void a_deleted_topic_leaves_nothing_and_begins_anew(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 0, 1000);
    flush(&f, true);
    struct consume_queue *old = f.queue;
    put(&f, 1000, 1010);
    assert_ok(queue_table_delete_topic(f.table, TOPIC, &f.err));
    assert_false(fs_exists(f.sim.env.fs, DIR "/" TOPIC));
    assert_int_equal(queue_table_count(f.table), 0);
    open_queue(&f);
    assert_ptr_not_equal(old, f.queue);
    assert_int_equal(consume_queue_max(f.queue), 0);
    put(&f, 0, 10);
    assert_ok(try_put(old, 1010, 1500)); /* somebody still had it: nothing comes of that */
    flush(&f, true);
    consume_queue_unref(old);
    check(&f, 0, 10);
    assert_false(file_exists(&f, FILE_BYTES));
    assert_ok(queue_table_delete_topic(f.table, "NeverThere", &f.err));
    restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
    check(&f, 0, 10);
    tear_down(&f);
}

/* ---- threads, on real files ---- */

enum { READERS = 16, TOTAL = 60000 };

struct shared {
    struct queue_table *table;
    struct consume_queue *queue;
    _Atomic bool stop;
    _Atomic int wrong;
};

static void *read_at_random(void *arg)
{
    struct shared *s = arg;
    uint64_t random = (uint64_t)(uintptr_t)&random | 1;
    while (!atomic_load(&s->stop)) {
        struct queue_unit units[32];
        uint32_t got = 0;
        int64_t min = consume_queue_min(s->queue);
        int64_t max = consume_queue_max(s->queue);
        random = random * 6364136223846793005u + 1442695040888963407u;
        int64_t offset = min + (max > min ? (int64_t)((random >> 20) % (uint64_t)(max - min)) : 0);
        if (consume_queue_read(s->queue, offset, units, 32, false, &got))
            atomic_fetch_add(&s->wrong, 1);
        for (uint32_t i = 0; i < got; i++)
            if (units[i].phys_off != (offset + i) * RECORD_BYTES)
                atomic_fetch_add(&s->wrong, 1);
    }
    return NULL;
}

static void *flush_often(void *arg)
{
    struct shared *s = arg;
    while (!atomic_load(&s->stop))
        if (queue_table_flush(s->table, false, NULL))
            atomic_fetch_add(&s->wrong, 1);
    return NULL;
}

static void readers_see_right_units_while_the_head_expires(void **state)
{
    (void)state;
    struct env env;
    struct shared s = {0};
    char dir[] = "/tmp/tern_queue_XXXXXX";
    char path[FS_PATH_BYTES];
    pthread_t readers[READERS];
    pthread_t flusher;
    struct tern_error err;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/consumequeue", dir);
    env_init_system(&env, NULL);
    assert_ok(queue_table_create(&env, path, FILE_BYTES, 2, false, &s.table));
    assert_ok(queue_table_ref(s.table, TOPIC, strlen(TOPIC), 0, &s.queue));
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_at_random, &s), 0);
    assert_int_equal(pthread_create(&flusher, NULL, flush_often, &s), 0);
    for (int64_t offset = 0; offset < TOTAL; offset += 100) {
        assert_ok(try_put(s.queue, offset, offset + 100));
        if (offset % 1000 == 0)
            assert_ok(queue_table_expire(s.table, (offset - 3000) * RECORD_BYTES, &err));
    }
    atomic_store(&s.stop, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    pthread_join(flusher, NULL);
    assert_int_equal(atomic_load(&s.wrong), 0);
    assert_ok(queue_table_delete_topic(s.table, TOPIC, &err));
    consume_queue_unref(s.queue);
    queue_table_destroy(s.table);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* The topic goes while a put is writing a full ring out. */
static int die_at_write(void *arg, enum sim_fs_op op, const char *path)
{
    struct fixture *f = arg;
    (void)path;
    if (op == SIM_FS_PWRITEV)
        atomic_store(&f->queue->dead, true);
    return 0;
}

static void a_put_ends_when_its_topic_is_deleted_meanwhile(void **state)
{
    (void)state;
    struct fixture f;
    struct queue_unit units[4 * QUEUE_RING_UNITS_MAX];
    set_up(&f, 1);
    for (int i = 0; i < 4 * QUEUE_RING_UNITS_MAX; i++)
        units[i] = unit_at(i);
    sim_fs_set_hook(f.sim.fs, die_at_write, &f);
    assert_ok(consume_queue_put(f.queue, 0, units, 4 * QUEUE_RING_UNITS_MAX));
    sim_fs_set_hook(f.sim.fs, NULL, NULL);
    uint64_t writes = sim_fs_calls(f.sim.fs, SIM_FS_PWRITEV);
    assert_ok(consume_queue_put(f.queue, 0, units, 1));
    assert_ok(queue_table_flush(f.table, true, &f.err));
    assert_int_equal(sim_fs_calls(f.sim.fs, SIM_FS_PWRITEV), writes);
    tear_down(&f);
}

/* A start on a full disk: a ring that grows, as far as the table allows. */
static void units_that_find_no_room_are_kept_while_that_is_wanted(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    sim_fs_fail(f.sim.fs,
                &(struct sim_fs_fault){
                    .op = SIM_FS_PWRITEV, .nth = 1, .errno_value = ENOSPC, .forever = true});
    assert_int_equal(try_put(f.queue, 0, 300), TERN_NO_SPACE);
    int64_t max = consume_queue_max(f.queue);
    assert_int_equal(max, QUEUE_RING_UNITS_MAX);
    assert_int_equal(queue_table_keep(f.table, 3 * QUEUE_RING_UNITS_MAX), 0);
    assert_int_equal(try_put(f.queue, max, 2000), TERN_NO_SPACE);
    assert_int_equal(queue_table_keep(f.table, 0), 3 * QUEUE_RING_UNITS_MAX);
    max = consume_queue_max(f.queue);
    assert_int_equal(max, 4 * QUEUE_RING_UNITS_MAX);
    check(&f, 0, max);
    sim_fs_fail_clear(f.sim.fs);
    flush(&f, false);
    check(&f, 0, max);
    put(&f, max, max + 700);
    flush(&f, true);
    flush(&f, false);
    assert_null(f.queue->ring);
    restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
    check(&f, 0, max + 700);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_has_rocketmqs_bytes_and_its_file_full_length),
        cmocka_unit_test(a_queue_without_messages_has_no_file),
        cmocka_unit_test(room_before_a_late_first_unit_is_filler),
        cmocka_unit_test(units_are_read_back_from_ring_and_files),
        cmocka_unit_test(units_that_find_no_room_are_kept_while_that_is_wanted),
        cmocka_unit_test(reading_outside_gives_nothing),
        cmocka_unit_test(a_put_out_of_order_is_refused_and_changes_nothing),
        cmocka_unit_test(a_cold_file_answers_again_and_the_ring_does_not),
        cmocka_unit_test(a_hundred_queues_share_two_open_files),
        cmocka_unit_test(queues_are_found_by_topic_and_id),
        cmocka_unit_test(expiry_moves_the_minimum_and_removes_whole_files),
        cmocka_unit_test(a_queue_that_is_wholly_expired_never_restarts_from_0),
        cmocka_unit_test(a_deleted_topic_leaves_nothing_and_begins_anew),
        cmocka_unit_test(a_put_ends_when_its_topic_is_deleted_meanwhile),
        cmocka_unit_test(readers_see_right_units_while_the_head_expires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
