/*
 * Consume queues on a simulated disk: bytes, ring and files, recovery, cuts, holes after a power
 * loss, expiry, deletion, failing calls; and readers on real threads while the head expires.
 */
#include "tests/unit/base/unit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/store/consume_queue_internal.h"
#include "tests/sim/sim_env.h"

enum { UNIT_BYTES = QUEUE_UNIT_BYTES, FILE_UNITS = 500, FILE_BYTES = FILE_UNITS * UNIT_BYTES };
enum { RECORD_BYTES = 100 };

#define DIR "/store/consumequeue"
#define TOPIC "TopicTest"

struct fixture {
    struct sim_env sim;
    struct queue_table *table;
    struct consume_queue *queue; /* TOPIC, 0 */
    struct tern_error err;
    int64_t max_phys;
};

static struct queue_unit unit_at(int64_t offset)
{
    return (struct queue_unit){offset * RECORD_BYTES, RECORD_BYTES, offset * 7 + 1};
}

static void open_table(struct fixture *f)
{
    assert_ok(queue_table_create(&f->sim.env, DIR, FILE_BYTES, 2, false, &f->table));
}

static void open_queue(struct fixture *f)
{
    assert_ok(queue_table_ref(f->table, TOPIC, strlen(TOPIC), 0, &f->queue));
}

static void set_up(struct fixture *f, uint64_t seed)
{
    memset(f, 0, sizeof *f);
    sim_env_init(&f->sim, seed);
    open_table(f);
    open_queue(f);
}

static void close_table(struct fixture *f)
{
    consume_queue_unref(f->queue);
    queue_table_destroy(f->table);
    f->queue = NULL;
    f->table = NULL;
}

static void tear_down(struct fixture *f)
{
    close_table(f);
    sim_env_fini(&f->sim);
}

static void recover(struct fixture *f, int64_t log_min, int64_t log_end)
{
    enum tern_code rc = queue_table_recover(f->table, log_min, log_end, &f->max_phys, &f->err);
    if (rc)
        fail_msg("%s", error_text(&f->err, rc));
    open_queue(f);
}

/* What a new process finds; power loss first unless torn is negative. */
static void restart(struct fixture *f, int torn, int64_t log_min, int64_t log_end)
{
    if (torn >= 0)
        sim_fs_power_loss(f->sim.fs, (enum sim_torn)torn);
    close_table(f);
    open_table(f);
    recover(f, log_min, log_end);
}

static enum tern_code try_put(struct consume_queue *queue, int64_t from, int64_t end)
{
    enum tern_code code = TERN_OK;
    while (from < end && code == TERN_OK) {
        struct queue_unit units[37];
        uint32_t n = 0;
        while (n < 37 && from + n < end) {
            units[n] = unit_at(from + n);
            n++;
        }
        code = consume_queue_put(queue, from, units, n);
        from += n;
    }
    return code;
}

static void put(struct fixture *f, int64_t from, int64_t end)
{
    assert_ok(try_put(f->queue, from, end));
}

static void flush(struct fixture *f, bool durable)
{
    assert_ok(queue_table_flush(f->table, durable, &f->err));
}

static void check_range(struct consume_queue *queue, int64_t from, int64_t end)
{
    while (from < end) {
        struct queue_unit units[64];
        uint32_t got;
        uint32_t want = end - from < 64 ? (uint32_t)(end - from) : 64;
        assert_ok(consume_queue_read(queue, from, units, want, false, &got));
        assert_in_range(got, 1, want);
        for (uint32_t i = 0; i < got; i++) {
            struct queue_unit right = unit_at(from + i);
            assert_int_equal(units[i].phys_off, right.phys_off);
            assert_int_equal(units[i].size, right.size);
            assert_int_equal(units[i].tags_code, right.tags_code);
        }
        from += got;
    }
}

static void check(struct fixture *f, int64_t min, int64_t max)
{
    assert_int_equal(consume_queue_min(f->queue), min);
    assert_int_equal(consume_queue_max(f->queue), max);
    check_range(f->queue, min, max);
}

static void replay(struct fixture *f, int64_t from, int64_t end)
{
    for (; from < end; from += 50) {
        struct queue_unit units[50];
        uint32_t n = 0;
        for (; n < 50 && from + n < end; n++)
            units[n] = unit_at(from + n);
        assert_ok(consume_queue_replay(f->queue, from, units, n));
    }
}

/* Raw bytes of a file, from the disk. */
static void read_file(struct fixture *f, const char *name, void *buf, size_t size, int64_t at)
{
    char path[FS_PATH_BYTES];
    struct file *file;
    size_t got;
    assert_ok(fs_join(path, DIR "/" TOPIC "/0", name));
    assert_ok(fs_open(f->sim.env.fs, path, FS_READ, &file));
    assert_ok(file_pread(file, buf, size, at, &got));
    assert_int_equal(got, size);
    file_close(file);
}

static bool file_exists(struct fixture *f, int64_t start)
{
    char path[FS_PATH_BYTES];
    snprintf(path, sizeof path, DIR "/" TOPIC "/0/%020lld", (long long)start);
    return fs_exists(f->sim.env.fs, path);
}

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

/* ---- recovery ---- */

static void what_was_flushed_is_found_again(void **state)
{
    (void)state;
    for (int64_t count = 1; count < 1600; count += count < 600 ? 101 : 499) {
        struct fixture f;
        set_up(&f, (uint64_t)count);
        put(&f, 0, count);
        flush(&f, true);
        restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
        check(&f, 0, count);
        assert_int_equal(f.max_phys, count * RECORD_BYTES);
        queue_table_settle(f.table);
        assert_int_equal(consume_queue_next(f.queue), count);
        put(&f, count, count + 600);
        check(&f, 0, count + 600);
        tear_down(&f);
    }
}

static void units_beyond_the_logs_end_are_cut_for_good(void **state)
{
    (void)state;
    static const int64_t ends[] = {0, 1, 203, 204, 205, 499, 500, 501, 1000, 1399};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct fixture f;
        set_up(&f, 1);
        put(&f, 0, 1400);
        flush(&f, true);
        restart(&f, SIM_TORN_NONE, 0, ends[i] * RECORD_BYTES + RECORD_BYTES - 1);
        check(&f, 0, ends[i]);
        restart(&f, SIM_TORN_NONE, 0, INT64_MAX); /* the cut itself survives a power loss */
        check(&f, 0, ends[i]);
        for (int64_t start = 0; start < 3 * FILE_BYTES; start += FILE_BYTES) {
            static uint8_t raw[FILE_BYTES];
            char name[32];
            if (!file_exists(&f, start))
                continue;
            snprintf(name, sizeof name, "%020lld", (long long)start);
            read_file(&f, name, raw, sizeof raw, 0);
            for (int64_t at = 0; at < FILE_BYTES; at++)
                if (start + at >= ends[i] * UNIT_BYTES && raw[at] != 0)
                    fail_msg("byte %lld is left", (long long)(start + at));
        }
        put(&f, ends[i], 1500);
        check(&f, 0, 1500);
        tear_down(&f);
    }
}

static void a_clean_stop_needs_no_cut_but_makes_one_when_there_is_something(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 0, 700);
    flush(&f, true);
    close_table(&f);
    open_table(&f);
    queue_table_assume_synced(f.table);
    uint64_t before = sim_fs_calls(f.sim.fs, SIM_FS_TRUNCATE);
    recover(&f, 0, INT64_MAX);
    assert_int_equal(sim_fs_calls(f.sim.fs, SIM_FS_TRUNCATE), before);
    close_table(&f);
    open_table(&f);
    queue_table_assume_synced(f.table);
    recover(&f, 0, 650 * RECORD_BYTES);
    check(&f, 0, 650);
    restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
    check(&f, 0, 650);
    tear_down(&f);
}

/* Power is lost with pages of several files unsynced; the replay starts where everything before was
 * synced. */
static void holes_after_a_power_loss_are_mended_by_the_replay(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct fixture f;
        set_up(&f, seed);
        struct rng *rng = f.sim.env.rng;
        int64_t synced = 0;
        int64_t max = 0;
        for (int step = 0; step < 12; step++) {
            int64_t n = (int64_t)rng_below(rng, 400);
            put(&f, max, max + n);
            max += n;
            if (rng_below(rng, 3) > 0) {
                bool durable = rng_below(rng, 3) == 0;
                flush(&f, durable);
                synced = durable ? max : synced;
            }
        }
        int64_t log_end = max - (int64_t)rng_below(rng, (uint64_t)(max - synced) + 1);
        restart(&f, SIM_TORN_PAGES, 0, log_end * RECORD_BYTES);
        assert_true(consume_queue_max(f.queue) >= synced);
        assert_true(consume_queue_max(f.queue) <= log_end);
        replay(&f, synced, log_end);
        check(&f, 0, log_end);
        put(&f, log_end, log_end + 300); /* other records now stand where lost ones were */
        restart(&f, SIM_TORN_PAGES, 0, (log_end + 300) * RECORD_BYTES);
        replay(&f, synced, log_end + 300); /* what was mended is not synced either */
        check(&f, 0, log_end + 300);
        tear_down(&f);
    }
}

static void replaying_five_times_leaves_the_same_bytes(void **state)
{
    (void)state;
    struct fixture f;
    static uint8_t first[FILE_BYTES];
    static uint8_t now[FILE_BYTES];
    set_up(&f, 1);
    put(&f, 0, 420);
    flush(&f, true);
    read_file(&f, "00000000000000000000", first, sizeof first, 0);
    for (int i = 0; i < 5; i++) {
        restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
        replay(&f, 0, 420);
        flush(&f, true);
        check(&f, 0, 420);
        read_file(&f, "00000000000000000000", now, sizeof now, 0);
        assert_memory_equal(first, now, sizeof now);
    }
    tear_down(&f);
}

static void wrong_units_are_rewritten_by_the_replay(void **state)
{
    (void)state;
    struct fixture f;
    struct file *file;
    set_up(&f, 1);
    put(&f, 0, 900);
    flush(&f, true);
    assert_ok(fs_open(f.sim.env.fs, DIR "/TopicTest/0/00000000000000000000", FS_WRITE, &file));
    assert_ok(file_zero(file, 100 * UNIT_BYTES, 30 * UNIT_BYTES));
    assert_ok(file_pwrite(file, "junk", 4, 300 * UNIT_BYTES + 5));
    file_close(file);
    restart(&f, SIM_TORN_PAGES, 0, INT64_MAX);
    replay(&f, 0, 900);
    check(&f, 0, 900);
    tear_down(&f);
}

static void a_gap_in_the_replay_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 0, 10);
    const struct queue_unit unit = unit_at(12);
    assert_int_equal(consume_queue_replay(f.queue, 12, &unit, 1), TERN_CORRUPT);
    check(&f, 0, 10);
    tear_down(&f);
}

static void a_topic_made_anew_begins_at_its_new_records(void **state)
{
    (void)state;
    struct fixture f;
    struct queue_unit units[20];
    set_up(&f, 1);
    put(&f, 0, 1100); /* the first life, as the log still has it */
    for (int64_t i = 0; i < 20; i++)
        units[i] = (struct queue_unit){1000000 + i * RECORD_BYTES, RECORD_BYTES, 0};
    assert_ok(consume_queue_replay(f.queue, 0, units, 20));
    assert_int_equal(consume_queue_min(f.queue), 0);
    assert_int_equal(consume_queue_max(f.queue), 20);
    replay(&f, 500, 600); /* records of the first life are not taken for missing ones */
    assert_int_equal(consume_queue_max(f.queue), 20);
    flush(&f, true);
    restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
    assert_int_equal(consume_queue_max(f.queue), 20);
    assert_int_equal(f.max_phys, 1000000 + 20 * RECORD_BYTES);
    tear_down(&f);
}

static void a_queue_whose_files_came_back_empty_begins_where_the_log_says(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 1234, 1300);
    flush(&f, true);
    struct file *file;
    assert_ok(fs_open(f.sim.env.fs, DIR "/TopicTest/0/00000000000000020000", FS_WRITE, &file));
    assert_ok(file_zero(file, 0, FILE_BYTES));
    file_close(file);
    restart(&f, -1, 0, INT64_MAX);
    replay(&f, 1234, 1300);
    check(&f, 1234, 1300);
    tear_down(&f);
}

static void foreign_names_are_reported_and_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct file *file;
    set_up(&f, 1);
    put(&f, 0, 10);
    flush(&f, true);
    static const char *const dirs[] = {DIR "/bad topic", DIR "/TopicTest/01", DIR "/TopicTest/x"};
    for (size_t i = 0; i < 3; i++)
        assert_ok(fs_mkdir(f.sim.env.fs, dirs[i]));
    assert_ok(fs_open(f.sim.env.fs, DIR "/TopicTest/0/notes.txt", FS_WRITE | FS_CREATE, &file));
    file_close(file);
    restart(&f, -1, 0, INT64_MAX);
    check(&f, 0, 10);
    assert_int_equal(queue_table_count(f.table), 1);
    assert_int_equal(sim_log_count(&f.sim, "queue_folder_ignored"), 3);
    assert_int_equal(sim_log_count(&f.sim, "queue_file_ignored"), 1);
    assert_true(fs_exists(f.sim.env.fs, DIR "/TopicTest/0/notes.txt"));
    tear_down(&f);
}

static void files_of_another_length_are_refused_and_kept(void **state)
{
    (void)state;
    static const int64_t lengths[] = {FILE_BYTES / 2, FILE_BYTES * 2};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, 1);
        put(&f, 0, 3 * FILE_UNITS);
        flush(&f, true);
        close_table(&f);
        assert_ok(queue_table_create(&f.sim.env, DIR, lengths[i], 2, false, &f.table));
        assert_int_equal(queue_table_recover(f.table, 0, INT64_MAX, &f.max_phys, &f.err),
                         TERN_CORRUPT);
        assert_contains(f.err.text, "mappedFileSizeConsumeQueue");
        assert_contains(f.err.text, DIR "/TopicTest/0/000000000000");
        close_table(&f);
        open_table(&f);
        recover(&f, 0, INT64_MAX);
        check(&f, 0, 3 * FILE_UNITS);
        tear_down(&f);
    }
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

/* ---- failing calls ---- */

/* Whatever call fails: a code comes back, nothing that was put is lost, and it goes on when the
 * fault is over. */
static void any_failing_call_is_reported_and_survived(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (unsigned nth = 1; nth < 200; nth++) {
        struct fixture f;
        set_up(&f, nth);
        uint64_t calls = sim_fs_calls(f.sim.fs, SIM_FS_ANY);
        sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_ANY,
                                                     .nth = nth,
                                                     .errno_value = nth % 2 ? ENOSPC : EIO});
        int64_t max = 0;
        bool failed = false;
        for (int64_t to = 150; to <= 1500; to += 150) {
            failed |= try_put(f.queue, max, to) != TERN_OK;
            max = consume_queue_max(f.queue);
            failed |= queue_table_flush(f.table, to % 300 == 0, &f.err) != TERN_OK;
        }
        bool done = sim_fs_calls(f.sim.fs, SIM_FS_ANY) - calls < nth;
        failures += failed;
        sim_fs_fail_clear(f.sim.fs);
        check(&f, 0, max);
        put(&f, max, 1600);
        flush(&f, true);
        check(&f, 0, 1600);
        restart(&f, -1, 0, INT64_MAX);
        replay(&f, 0, 1600);
        check(&f, 0, 1600);
        tear_down(&f);
        if (done)
            break;
    }
    assert_true(failures > 20);
}

static void recovery_reports_any_failing_call(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth < 200; nth++) {
        struct fixture f;
        set_up(&f, nth);
        put(&f, 0, 1300);
        flush(&f, true);
        close_table(&f);
        open_table(&f);
        uint64_t calls = sim_fs_calls(f.sim.fs, SIM_FS_ANY);
        sim_fs_fail(f.sim.fs,
                    &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
        enum tern_code code =
            queue_table_recover(f.table, 0, 1200 * RECORD_BYTES, &f.max_phys, &f.err);
        bool done = sim_fs_calls(f.sim.fs, SIM_FS_ANY) - calls < nth;
        sim_fs_fail_clear(f.sim.fs);
        if (!done) {
            assert_int_equal(code, TERN_IO);
            assert_true(f.err.text[0] != 0);
        }
        restart(&f, SIM_TORN_NONE, 0, 1200 * RECORD_BYTES);
        check(&f, 0, 1200);
        tear_down(&f);
        if (done)
            return;
    }
    fail_msg("recovery makes too many calls");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_has_rocketmqs_bytes_and_its_file_full_length),
        cmocka_unit_test(a_queue_without_messages_has_no_file),
        cmocka_unit_test(room_before_a_late_first_unit_is_filler),
        cmocka_unit_test(units_are_read_back_from_ring_and_files),
        cmocka_unit_test(reading_outside_gives_nothing),
        cmocka_unit_test(a_put_out_of_order_is_refused_and_changes_nothing),
        cmocka_unit_test(a_cold_file_answers_again_and_the_ring_does_not),
        cmocka_unit_test(a_hundred_queues_share_two_open_files),
        cmocka_unit_test(queues_are_found_by_topic_and_id),
        cmocka_unit_test(what_was_flushed_is_found_again),
        cmocka_unit_test(units_beyond_the_logs_end_are_cut_for_good),
        cmocka_unit_test(a_clean_stop_needs_no_cut_but_makes_one_when_there_is_something),
        cmocka_unit_test(holes_after_a_power_loss_are_mended_by_the_replay),
        cmocka_unit_test(replaying_five_times_leaves_the_same_bytes),
        cmocka_unit_test(wrong_units_are_rewritten_by_the_replay),
        cmocka_unit_test(a_gap_in_the_replay_is_refused),
        cmocka_unit_test(a_topic_made_anew_begins_at_its_new_records),
        cmocka_unit_test(a_queue_whose_files_came_back_empty_begins_where_the_log_says),
        cmocka_unit_test(foreign_names_are_reported_and_left_alone),
        cmocka_unit_test(files_of_another_length_are_refused_and_kept),
        cmocka_unit_test(expiry_moves_the_minimum_and_removes_whole_files),
        cmocka_unit_test(a_queue_that_is_wholly_expired_never_restarts_from_0),
        cmocka_unit_test(a_deleted_topic_leaves_nothing_and_begins_anew),
        cmocka_unit_test(a_put_ends_when_its_topic_is_deleted_meanwhile),
        cmocka_unit_test(any_failing_call_is_reported_and_survived),
        cmocka_unit_test(recovery_reports_any_failing_call),
        cmocka_unit_test(readers_see_right_units_while_the_head_expires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
