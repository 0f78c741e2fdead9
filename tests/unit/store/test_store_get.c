/*
 * Reading on a log in memory: each state of a get with its next offset, limits, filters, progress,
 * waiting or not, what was expired; by position, by time, by key; failing calls.
 */
#include "tests/unit/base/unit.h"
#include "tests/unit/store/fake_log.h"

#include <errno.h>

#include "base/names.h"
#include "broker/store/dispatcher.h"
#include "broker/store/store_internal.h"
#include "tests/sim/sim_env.h"

enum { SEGMENT_BYTES = 256 * 1024, LOG_BYTES = 16 << 20, RECORD_SIZE = RECORD_FIXED_BYTES + 9 };

#define TOPIC "TopicTest"

struct fixture {
    struct sim_env sim;
    struct commit_log log;
    struct store store;
    struct tern_error err;
    int64_t next[4];
    uint8_t *memory;
    size_t reserved;
    unsigned reserves;
    struct store_get_result result;
};

static void set_up(struct fixture *f)
{
    int64_t end_phys;
    int64_t records;
    memset(f, 0, sizeof *f);
    sim_env_init(&f->sim, 1);
    fake_log_init(&f->log, LOG_BYTES, SEGMENT_BYTES);
    f->store.env = &f->sim.env;
    f->store.log = &f->log;
    f->store.options = (struct store_options){
        .queue_file_bytes = 20 * 1000, .max_message_bytes = 1 << 20, .offset_correction = true};
    f->store.limits.memory_window_bytes = INT64_MAX / 2;
    f->store.limits.memory_count = 32;
    f->store.limits.disk_count = 8;
    f->store.limits.memory_bytes = 262144;
    f->store.limits.disk_bytes = 65536;
    assert_ok(queue_table_create(&f->sim.env, "/store/consumequeue", 20 * 1000, 4, false,
                                 &f->store.queues));
    assert_ok(
        index_service_create(&f->sim.env, "/store/index", 1000, 100000, false, &f->store.index));
    const struct index_recovery recovery = {.clean = true, .log_end = INT64_MAX};
    enum index_state found;
    assert_ok(index_service_load(f->store.index, &recovery, &found, &f->err));
    assert_ok(index_service_mend(f->store.index, &recovery, &end_phys, &f->err));
    const struct dispatcher_options options = {
        .log = &f->log, .queues = f->store.queues, .index = f->store.index};
    assert_ok(dispatcher_create(&f->sim.env, &options, &f->store.dispatcher));
    assert_ok(dispatcher_replay(f->store.dispatcher, 0, 0, &records, &f->err));
    f->memory = malloc(LOG_BYTES);
}

static void tear_down(struct fixture *f)
{
    free(f->memory);
    dispatcher_destroy(f->store.dispatcher);
    index_service_destroy(f->store.index);
    queue_table_destroy(f->store.queues);
    fake_log_fini(&f->log);
    sim_env_fini(&f->sim);
}

static void put(struct fixture *f, struct fake_record record)
{
    record.queue_off = f->next[record.queue_id]++;
    int64_t at = fake_append(&f->log, &record);
    dispatcher_offer(f->store.dispatcher, at, f->log.bytes + at,
                     (size_t)(commit_log_end(&f->log) - at));
}

static void put_many(struct fixture *f, int count)
{
    for (int i = 0; i < count; i++)
        put(f, (struct fake_record){.queue_id = 0});
}

static void expire(struct fixture *f, int64_t log_min)
{
    atomic_store(&f->log.min, log_min);
    assert_ok(queue_table_expire(f->store.queues, log_min, &f->err));
}

static uint8_t *reserve(void *arg, size_t size)
{
    struct fixture *f = arg;
    f->reserves++;
    f->reserved = size;
    return size <= LOG_BYTES ? f->memory : NULL;
}

static enum tern_code try_get(struct fixture *f, int64_t offset, uint32_t max_count, bool nowait,
                              const struct store_filter *filter)
{
    const struct store_get get = {.topic = TOPIC,
                                  .queue_id = 0,
                                  .offset = offset,
                                  .max_count = max_count,
                                  .nowait = nowait,
                                  .filter = filter,
                                  .reserve = reserve,
                                  .arg = f};
    f->reserves = 0;
    enum tern_code code = store_get(&f->store, &get, &f->result);
    assert_true(f->reserves <= 1);
    return code;
}

static enum get_status get(struct fixture *f, int64_t offset, uint32_t max_count)
{
    assert_ok(try_get(f, offset, max_count, false, NULL));
    return f->result.status;
}

/* The records got are those of these queue offsets, in order, whole. */
static void check_got(struct fixture *f, int64_t first, uint32_t count, int64_t step)
{
    size_t at = 0;
    assert_int_equal(f->result.status, GET_FOUND);
    assert_int_equal(f->result.count, count);
    for (uint32_t i = 0; i < count; i++) {
        struct record record;
        assert_int_equal(
            record_parse(f->memory + at, f->result.size_bytes - at, LOG_BYTES, true, &record),
            RECORD_WHOLE);
        assert_int_equal(record.queue_off, first + i * step);
        at += record.total_size;
    }
    assert_int_equal(at, f->result.size_bytes);
}

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

/* ---- filters ---- */

static bool is_tag_a(void *arg, int64_t code)
{
    ++*(unsigned *)arg;
    return code == tags_code("TagA", 4);
}

static bool body_is_odd(void *arg, const struct record *record)
{
    ++*(unsigned *)arg;
    return record->body_len % 2;
}

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

/* ---- by position ---- */

static void a_record_is_got_by_its_position_only(void **state)
{
    (void)state;
    struct fixture f;
    size_t size;
    set_up(&f);
    put_many(&f, 3);
    assert_ok(store_get_by_phys(&f.store, RECORD_SIZE, reserve, &f, &size));
    assert_int_equal(size, RECORD_SIZE);
    assert_memory_equal(f.memory, f.log.bytes + RECORD_SIZE, size);
    static const int64_t none[] = {-1, INT64_MIN, 1, RECORD_SIZE + 4, 3 * RECORD_SIZE, INT64_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        f.reserves = 0;
        assert_int_equal(store_get_by_phys(&f.store, none[i], reserve, &f, &size), TERN_NOT_FOUND);
        assert_int_equal(f.reserves, 0);
    }
    tear_down(&f);
}

static void ranges_are_0_0_for_a_queue_that_never_had_a_message(void **state)
{
    (void)state;
    struct fixture f;
    int64_t min = 7;
    int64_t max = 7;
    set_up(&f);
    store_queue_range(&f.store, TOPIC, 0, &min, &max);
    assert_int_equal(min | max, 0);
    assert_int_equal(store_topic_last_queue(&f.store, TOPIC), -1);
    put_many(&f, 10);
    expire(&f, 4 * RECORD_SIZE);
    store_queue_range(&f.store, TOPIC, 0, &min, &max);
    assert_int_equal(min, 4);
    assert_int_equal(max, 10);
    assert_int_equal(store_topic_last_queue(&f.store, TOPIC), 0);
    tear_down(&f);
}

/* ---- by time ---- */

static void the_offset_nearest_to_a_time_is_found(void **state)
{
    (void)state;
    static const struct {
        int64_t time, offset;
    } rows[] = {{0, 0},    {1000, 0},  {1040, 0},  {1050, 0},  {1051, 1},
                {1100, 1}, {1990, 10}, {2000, 10}, {5000, 19}, {2900, 19}};
    struct fixture f;
    int64_t offset;
    int64_t time;
    set_up(&f);
    assert_ok(store_offset_by_time(&f.store, TOPIC, 0, 1000, &offset));
    assert_int_equal(offset, 0);
    for (int i = 0; i < 20; i++)
        put(&f, (struct fake_record){.store_ms = 1000 + i * 100});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_ok(store_offset_by_time(&f.store, TOPIC, 0, rows[i].time, &offset));
        assert_int_equal(offset, rows[i].offset);
    }
    assert_ok(store_time_of(&f.store, TOPIC, 0, 7, &time));
    assert_int_equal(time, 1700);
    assert_int_equal(store_time_of(&f.store, TOPIC, 0, 20, &time), TERN_NOT_FOUND);
    assert_int_equal(store_time_of(&f.store, TOPIC, 0, -1, &time), TERN_NOT_FOUND);
    assert_int_equal(store_time_of(&f.store, "other", 0, 0, &time), TERN_NOT_FOUND);
    atomic_store(&f.log.min, 5 * RECORD_SIZE); /* gone from the log, not yet from the queue */
    assert_ok(store_offset_by_time(&f.store, TOPIC, 0, 0, &offset));
    assert_int_equal(offset, 5);
    assert_int_equal(store_time_of(&f.store, TOPIC, 0, 2, &time), TERN_NOT_FOUND);
    tear_down(&f);
}

/* ---- by key ---- */

struct found {
    int64_t offs[100];
    uint32_t count, limit;
};

static bool on_record(void *arg, const uint8_t *bytes, size_t size)
{
    struct found *found = arg;
    struct record record;
    assert_int_equal(record_parse(bytes, size, size, true, &record), RECORD_WHOLE);
    found->offs[found->count++] = record.queue_off;
    return found->count < found->limit;
}

static struct found *query(struct fixture *f, const char *key, uint32_t max_count,
                           struct store_query_info *info)
{
    static struct found found;
    found = (struct found){.limit = 100};
    const struct store_query query = {.topic = TOPIC,
                                      .key = key,
                                      .max_count = max_count,
                                      .end_ms = INT64_MAX,
                                      .on_record = on_record,
                                      .arg = &found};
    assert_ok(store_query(&f->store, &query, info));
    assert_int_equal(info->found, found.count);
    return &found;
}

static void a_key_finds_records_that_really_have_it_newest_first(void **state)
{
    (void)state;
    struct fixture f;
    struct store_query_info info;
    set_up(&f);
    put(&f, (struct fake_record){.keys = "AaAa x", .uniq_key = "id0"});
    put(&f, (struct fake_record){.keys = "BBBB", .uniq_key = "id1"}); /* the same hash */
    put(&f, (struct fake_record){.topic = "TopicOther", .queue_id = 1, .keys = "AaAa"});
    put(&f, (struct fake_record){.keys = "AaBB AaAa AaAa"});
    struct found *found = query(&f, "AaAa", 32, &info);
    assert_int_equal(found->count, 2);
    assert_int_equal(found->offs[0], 2);
    assert_int_equal(found->offs[1], 0);
    assert_int_equal(query(&f, "id1", 32, &info)->offs[0], 1);
    assert_int_equal(query(&f, "x", 32, &info)->count, 1);
    assert_int_equal(query(&f, "AaAa x", 32, &info)->count, 0);
    assert_int_equal(query(&f, "nothing", 32, &info)->count, 0);
    assert_int_equal(info.indexed_begin_ms, 1700000000000);
    assert_true(info.indexed_end_ms > info.indexed_begin_ms);
    assert_int_equal(info.log_end, commit_log_end(&f.log));
    /* A store at rest is not behind, whatever its last record is. */
    assert_int_equal(info.index_phys, info.log_end);
    tear_down(&f);
}

static void a_query_is_capped_and_can_be_stopped(void **state)
{
    (void)state;
    struct fixture f;
    struct store_query_info info;
    struct found found = {.limit = 3};
    set_up(&f);
    for (int i = 0; i < 100; i++)
        put(&f, (struct fake_record){.keys = "k"});
    assert_int_equal(query(&f, "k", 1000, &info)->count, 64);
    assert_int_equal(query(&f, "k", 5, &info)->count, 5);
    assert_int_equal(query(&f, "k", 0, &info)->count, 0);
    const struct store_query stopped = {.topic = TOPIC,
                                        .key = "k",
                                        .max_count = 32,
                                        .end_ms = INT64_MAX,
                                        .on_record = on_record,
                                        .arg = &found};
    assert_ok(store_query(&f.store, &stopped, &info));
    assert_int_equal(found.count, 3);
    const struct store_query later = {.topic = TOPIC,
                                      .key = "k",
                                      .max_count = 32,
                                      .begin_ms = 1800000000000,
                                      .end_ms = INT64_MAX,
                                      .on_record = on_record,
                                      .arg = &found};
    assert_ok(store_query(&f.store, &later, &info));
    assert_int_equal(info.found, 0);
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
        cmocka_unit_test(a_tag_filter_delivers_what_matches_and_moves_by_what_was_scanned),
        cmocka_unit_test(a_scan_without_matches_ends_and_makes_progress),
        cmocka_unit_test(a_record_filter_keeps_what_matches),
        cmocka_unit_test(records_that_lie_together_are_read_together),
        cmocka_unit_test(an_ext_address_is_filtered_by_the_records_tag),
        cmocka_unit_test(expired_records_are_stepped_over),
        cmocka_unit_test(without_waiting_cold_messages_answer_again),
        cmocka_unit_test(without_waiting_cold_units_answer_again),
        cmocka_unit_test(a_filtered_beginning_counts_though_the_match_is_cold),
        cmocka_unit_test(failures_are_codes),
        cmocka_unit_test(a_record_is_got_by_its_position_only),
        cmocka_unit_test(ranges_are_0_0_for_a_queue_that_never_had_a_message),
        cmocka_unit_test(the_offset_nearest_to_a_time_is_found),
        cmocka_unit_test(a_key_finds_records_that_really_have_it_newest_first),
        cmocka_unit_test(a_query_is_capped_and_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
