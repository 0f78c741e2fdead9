/*
 * The parts of the schedule: what records say, progress of levels, the heap, the timer's files,
 * loading them, and checkpoints, each with what can be damaged or hostile.
 */
#include "tests/unit/broker/broker_unit.h"

#include <errno.h>

#include "base/names.h"
#include "base/props.h"
#include "broker/schedule/bucket_loader.h"
#include "broker/schedule/delay_checkpoint.h"

#define DIR "/store/ternmq/delay"

static struct sim_env sim;
static struct buckets buckets;
static struct tern_error err;

static int set_up(void **state)
{
    (void)state;
    sim_env_init(&sim, 1);
    assert_ok(buckets_init(&buckets, &sim.env, DIR, &err));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    buckets_fini(&buckets);
    sim_env_fini(&sim);
    return 0;
}

/* ---- events ---- */

static bool parse(const char *text, struct waiting *out)
{
    const struct slice slice = {(const uint8_t *)text, strlen(text)};
    return waiting_parse(&slice, out);
}

static void names_of_waiting_messages_are_read_or_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "S",
                                      "S.1",
                                      "S..1",
                                      "S.1.",
                                      "X.1.2",
                                      "S.64.1",
                                      "T.1.2.3",
                                      "T.-1.2",
                                      "T.1.2 ",
                                      "S.1.1234567890123456789",
                                      "T.9999999999999999999.1"};
    char text[WAITING_TEXT_BYTES];
    struct waiting waiting;
    (void)state;
    assert_true(parse("S.17.123456", &waiting));
    assert_true(!waiting.timer && waiting.queue_id == 17 && waiting.queue_off == 123456);
    waiting_format(text, &waiting);
    assert_string_equal(text, "S.17.123456");
    assert_true(parse("T.1700000000123.5", &waiting));
    assert_true(waiting.timer && waiting.key_ms == 1700000000123 && waiting.queue_off == 5);
    waiting_format(text, &waiting);
    assert_string_equal(text, "T.1700000000123.5");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(parse(bad[i], &waiting));
}

static bool event_of(const char *topic, const char *name, const char *value,
                     struct delay_event *event)
{
    uint8_t props[256];
    size_t len = 0;
    assert_ok(props_append(props, &len, sizeof props, name, strlen(name), value, strlen(value)));
    const struct record record = {.topic = (const uint8_t *)topic,
                                  .topic_len = (uint8_t)strlen(topic),
                                  .queue_off = 9,
                                  .phys_off = 1000,
                                  .total_size = 100,
                                  .store_ms = 1700000000000,
                                  .props = props,
                                  .props_len = (uint16_t)len};
    return delay_event_of(&record, event);
}

static void records_say_what_waits_and_what_is_done(void **state)
{
    struct delay_event event;
    (void)state;
    assert_true(event_of(TIMER_TOPIC, PROP_TIMER_OUT_MS, "1700000005000", &event));
    assert_true(event.adds && !event.ends && event.add_key_ms == 1700000005000);
    assert_true(event.add_off == 9 && event.phys_off == 1000 && event.end == 1100);
    assert_true(event_of("T", PROP_SEQUEL_OF, "S.2.7", &event));
    assert_true(event.ends && !event.adds && !event.by_mark && event.ended.queue_off == 7);
    assert_true(event_of(DELAY_MARKS_TOPIC, PROP_SEQUEL_OF, "T.5.7", &event));
    assert_true(event.ends && event.by_mark);
    assert_false(event_of("T", PROP_TIMER_OUT_MS, "1700000005000", &event));
    assert_false(event_of("T", PROP_SEQUEL_OF, "nonsense", &event));
    assert_false(event_of(TIMER_TOPIC, PROP_TIMER_OUT_MS, "1", &event)); /* years before */
    assert_false(event_of(TIMER_TOPIC, PROP_TIMER_OUT_MS, "9000000000000000", &event));
}

/* ---- levels ---- */

static void progress_moves_over_what_was_done_out_of_order(void **state)
{
    struct level_progress levels = {0};
    (void)state;
    assert_ok(level_progress_done(&levels, 3, 0, 10, 0));
    assert_ok(level_progress_done(&levels, 3, 2, 20, 0));
    assert_ok(level_progress_done(&levels, 3, 2, 20, 0));
    assert_int_equal(levels.base[3], 1);
    assert_int_equal(levels.count, 1);
    assert_true(level_progress_is_done(&levels, 3, 2));
    assert_false(level_progress_is_done(&levels, 3, 1));
    assert_false(level_progress_is_done(&levels, 2, 2));
    assert_ok(level_progress_done(&levels, 3, 1, 30, 0));
    assert_int_equal(levels.base[3], 3);
    level_progress_fini(&levels);
}

static void progress_begins_where_its_queue_does(void **state)
{
    struct level_progress levels = {0};
    (void)state;
    assert_ok(level_progress_done(&levels, 0, 500, 10, 500));
    assert_int_equal(levels.base[0], 501);
    assert_int_equal(levels.count, 0);
    level_progress_fini(&levels);
}

static void a_cut_takes_progress_and_marks_back(void **state)
{
    struct level_progress levels = {0};
    int64_t before[DELAY_LEVELS_MAX] = {5};
    (void)state;
    for (int64_t off = 0; off < 8; off++)
        assert_ok(level_progress_done(&levels, 0, off, 100 * off, 0));
    assert_ok(level_progress_done(&levels, 0, 20, 650, 0));
    assert_ok(level_progress_done(&levels, 0, 21, 750, 0));
    level_progress_cut(&levels, 700, before);
    assert_int_equal(levels.base[0], 5);
    assert_true(level_progress_is_done(&levels, 0, 20));
    assert_false(level_progress_is_done(&levels, 0, 21));
    before[0] = 21;
    level_progress_prune(&levels, before);
    assert_int_equal(levels.count, 0);
    level_progress_fini(&levels);
}

static void marks_are_bounded(void **state)
{
    struct level_progress levels = {0};
    (void)state;
    for (int64_t i = 0; i < LEVEL_MARKS_MAX; i++)
        assert_ok(level_progress_done(&levels, 1, 2 * i + 1, i, 0));
    assert_int_equal(level_progress_done(&levels, 1, 1 << 20, 1, 0), TERN_LIMIT);
    assert_int_equal(levels.dropped, 1);
    level_progress_fini(&levels);
}

/* ---- the heap ---- */

static void the_heap_gives_the_earliest_and_sheds_the_latest(void **state)
{
    struct due_heap heap;
    int64_t last = -1;
    (void)state;
    assert_ok(due_heap_init(&heap, 1000));
    for (int64_t i = 0; i < 1000; i++) {
        const struct due_entry entry = {{i * 7919 % 1000, i}, i};
        due_heap_push(&heap, &entry);
    }
    const struct due_key gone = {250, 250 * 679 % 1000};
    for (uint32_t i = 0; i < heap.count; i++)
        if (heap.entries[i].key.key_ms == 250)
            last = heap.entries[i].key.queue_off;
    const struct due_key key = {gone.key_ms, last};
    assert_true(due_heap_remove(&heap, &key));
    assert_false(due_heap_remove(&heap, &key));
    const struct due_key upto = due_heap_shed(&heap);
    assert_int_equal(heap.count, 500);
    assert_int_equal(upto.key_ms, 500);
    last = -1;
    for (const struct due_entry *first; (first = due_heap_first(&heap)); due_heap_pop(&heap)) {
        assert_true(first->key.key_ms > last && first->key.key_ms != 250);
        last = first->key.key_ms;
    }
    due_heap_fini(&heap);
}

/* ---- files ---- */

static struct delay_event adds(int64_t key_ms, int64_t off, int64_t phys_off)
{
    return (struct delay_event){
        .phys_off = phys_off, .adds = true, .add_key_ms = key_ms, .add_off = off};
}

static struct delay_event ends(int64_t key_ms, int64_t off, int64_t phys_off)
{
    return (struct delay_event){.phys_off = phys_off,
                                .ends = true,
                                .ended = {.timer = true, .key_ms = key_ms, .queue_off = off}};
}

/* `count` messages, ten keys apart, in bucket 5. */
static void fill(int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        struct delay_event event = adds(5 * BUCKET_MS + i * 10 % BUCKET_MS, i, 100 + i);
        assert_ok(buckets_append(&buckets, &event, 1, &err));
    }
}

static uint32_t load(uint32_t cap, struct due_key after, struct due_key *upto)
{
    struct bucket_loader loader;
    bool done = false;
    uint32_t live = 0;
    assert_ok(bucket_loader_init(&loader, cap));
    bucket_loader_begin(&loader, 5, &after);
    while (!done)
        assert_ok(bucket_loader_step(&loader, &buckets, &done, upto, &err));
    for (uint32_t i = 0; i < loader.found.count; i++)
        live += loader.found.entries[i].phys_off >= 0;
    bucket_loader_fini(&loader);
    return live;
}

static const struct due_key ANY = {INT64_MIN, INT64_MIN};

static void what_waits_is_loaded_without_what_is_done(void **state)
{
    struct due_key upto;
    (void)state;
    fill(10000);
    for (int64_t i = 0; i < 10000; i += 2) {
        struct delay_event event = ends(5 * BUCKET_MS + i * 10, i, 20000 + i);
        assert_ok(buckets_append(&buckets, &event, 1, &err));
    }
    assert_int_equal(load(20000, ANY, &upto), 5000);
    assert_int_equal(upto.queue_off, INT64_MAX);
    const struct due_key half = {5 * BUCKET_MS + 50000, 5000};
    assert_int_equal(load(20000, half, &upto), 2500);
}

/* One million pending do not need one million places (R: bounded). */
static void a_full_bucket_is_loaded_in_parts(void **state)
{
    struct due_key upto = ANY;
    uint32_t all = 0;
    int parts = 0;
    (void)state;
    fill(10000);
    do {
        struct due_key after = upto;
        all += load(1000, after, &upto);
        parts++;
    } while (upto.queue_off != INT64_MAX);
    assert_int_equal(all, 10000);
    assert_in_range(parts, 10, 21);
}

/* A bucket in which nothing waits may go while it is read. */
static void a_bucket_that_goes_while_it_is_read_has_nothing(void **state)
{
    struct bucket_loader loader;
    struct due_key upto;
    bool done;
    (void)state;
    fill(10000);
    assert_ok(bucket_loader_init(&loader, 20000));
    bucket_loader_begin(&loader, 5, &ANY);
    assert_ok(bucket_loader_step(&loader, &buckets, &done, &upto, &err));
    assert_false(done);
    buckets_drop_row(&buckets, 5);
    while (!done)
        assert_ok(bucket_loader_step(&loader, &buckets, &done, &upto, &err));
    assert_int_equal(loader.found.count, 0);
    assert_int_equal(upto.queue_off, INT64_MAX);
    bucket_loader_fini(&loader);
}

static void items_of_known_records_are_not_written_again(void **state)
{
    (void)state;
    fill(10);
    fill(10);
    assert_int_equal(buckets_find(&buckets, 5)->adds, 10);
}

static void the_end_of_what_never_waited_here_is_not_noted(void **state)
{
    (void)state;
    struct delay_event event = ends(5 * BUCKET_MS, 3, 50);
    assert_ok(buckets_append(&buckets, &event, 1, &err));
    assert_null(buckets_find(&buckets, 5));
}

/* A delivered mark whose record was cut must not survive. */
static void a_cut_takes_items_back(void **state)
{
    struct due_key upto;
    (void)state;
    fill(100);
    for (int64_t i = 0; i < 100; i++) {
        struct delay_event event = ends(5 * BUCKET_MS + i * 10, i, 1000 + i);
        assert_ok(buckets_append(&buckets, &event, 1, &err));
    }
    uint64_t opened = sim_fs_calls(sim.fs, SIM_FS_OPEN);
    assert_ok(buckets_cut(&buckets, 1040, &err));
    assert_int_equal(sim_fs_calls(sim.fs, SIM_FS_OPEN) - opened, 1); /* not for each item */
    assert_int_equal(buckets.pending, 60);
    assert_int_equal(load(1000, ANY, &upto), 60);
    assert_ok(buckets_cut(&buckets, 150, &err));
    assert_int_equal(load(1000, ANY, &upto), 50);
    struct delay_event event = adds(5 * BUCKET_MS, 777, 160); /* another record there now */
    assert_ok(buckets_append(&buckets, &event, 1, &err));
    assert_int_equal(load(1000, ANY, &upto), 51);
    assert_int_equal(buckets.pending, 51);
}

/* The sum that is shown follows every way in which rows change. */
static void what_waits_is_counted_as_it_changes(void **state)
{
    (void)state;
    const struct sim_fs_fault full = {SIM_FS_PWRITEV, ".bucket", 2, ENOSPC, false};
    struct delay_event two[2] = {adds(8 * BUCKET_MS, 900, 5000), adds(9 * BUCKET_MS, 901, 5001)};
    fill(10000); /* longer than what is read at a time */
    assert_int_equal(buckets.pending, 10000);
    assert_ok(buckets_cut(&buckets, 110, &err));
    assert_int_equal(buckets.pending, 10);
    assert_int_equal(buckets_find(&buckets, 5)->last_phys, 109);
    sim_fs_fail(sim.fs, &full);
    assert_int_not_equal(buckets_append(&buckets, two, 2, &err), TERN_OK);
    sim_fs_fail_clear(sim.fs);
    assert_int_equal(buckets.pending, 10);
    assert_ok(buckets_append(&buckets, two, 2, &err));
    assert_int_equal(buckets.pending, 12);
    buckets_drop_row(&buckets, 8);
    assert_int_equal(buckets.pending, 11);
    const struct bucket row = {.id = 9, .adds = 7, .dones = 3, .last_phys = 5001};
    assert_ok(buckets_put_row(&buckets, &row));
    assert_int_equal(buckets.pending, 14);
    assert_ok(buckets_clear(&buckets, &err));
    assert_int_equal(buckets.pending, 0);
}

static void damaged_items_are_found(void **state)
{
    struct bucket_item item;
    char path[FS_PATH_BYTES];
    (void)state;
    fill(3);
    bucket_path(&buckets, 5, path);
    for (size_t at = 0; at < BUCKET_ITEM_BYTES; at++) {
        size_t len;
        char *text = get_file(&sim, path, &len);
        text[BUCKET_ITEM_BYTES + at] = (char)(text[BUCKET_ITEM_BYTES + at] ^ 0x10);
        put_file(&sim, path, text, len);
        if (at != 4) /* the sum's top bits are not used */
            assert_int_equal(bucket_read(&buckets, buckets_find(&buckets, 5), 1, 1, &item, &err),
                             TERN_CORRUPT);
        text[BUCKET_ITEM_BYTES + at] = (char)(text[BUCKET_ITEM_BYTES + at] ^ 0x10);
        put_file(&sim, path, text, len);
        free(text);
        assert_ok(bucket_read(&buckets, buckets_find(&buckets, 5), 1, 1, &item, &err));
    }
}

/* ---- checkpoints ---- */

static void make_checkpoint(void)
{
    struct delay_snapshots snapshots = {.count = 2};
    struct level_progress levels = {0};
    size_t size;
    snapshots.rows[0].position = 50;
    snapshots.rows[1].position = 120;
    snapshots.rows[1].base[2] = 7;
    assert_ok(level_progress_done(&levels, 2, 9, 110, 0));
    fill(20);
    uint8_t *bytes = delay_checkpoint_encode(&snapshots, &levels, &buckets, &size);
    assert_non_null(bytes);
    assert_ok(delay_checkpoint_write(&sim.env, DIR, bytes, size, &err));
    free(bytes);
    level_progress_fini(&levels);
}

static enum tern_code read_checkpoint(struct delay_snapshots *snapshots,
                                      struct level_progress *levels, struct buckets *into)
{
    memset(snapshots, 0, sizeof *snapshots);
    memset(levels, 0, sizeof *levels);
    assert_ok(buckets_init(into, &sim.env, DIR, &err));
    return delay_checkpoint_read(&sim.env, DIR, snapshots, levels, into, &err);
}

static void a_checkpoint_comes_back_as_it_was(void **state)
{
    struct delay_snapshots snapshots;
    struct level_progress levels;
    struct buckets into;
    (void)state;
    make_checkpoint();
    assert_ok(read_checkpoint(&snapshots, &levels, &into));
    assert_int_equal(snapshots.count, 2);
    assert_int_equal(levels.base[2], 7);
    assert_int_equal(levels.count, 1);
    assert_int_equal(into.count, 1);
    assert_int_equal(into.rows[0].adds, 20);
    assert_int_equal(into.last_phys, 119);
    assert_ok(buckets_settle(&into, &err));
    level_progress_fini(&levels);
    buckets_fini(&into);
}

/* Every byte, and every length. */
static void a_damaged_checkpoint_is_refused_as_a_whole(void **state)
{
    struct delay_snapshots snapshots;
    struct level_progress levels;
    struct buckets into;
    size_t len;
    (void)state;
    make_checkpoint();
    char *text = get_file(&sim, DIR "/checkpoint", &len);
    for (size_t at = 0; at < 2 * len; at++) {
        size_t place = at % len;
        char kept = text[place];
        text[place] = (char)(kept ^ 0x04);
        put_file(&sim, DIR "/checkpoint", text, at < len ? len : place);
        text[place] = kept;
        assert_int_equal(read_checkpoint(&snapshots, &levels, &into), TERN_CORRUPT);
        level_progress_fini(&levels);
        buckets_fini(&into);
    }
    free(text);
}

static void snapshots_are_kept_a_minute_apart(void **state)
{
    struct delay_snapshots snapshots = {0};
    (void)state;
    for (int64_t i = 0; i < 1000; i++) {
        const struct delay_snapshot now = {.position = i, .taken_ms = i * 10000};
        delay_snapshots_add(&snapshots, &now);
    }
    assert_int_equal(snapshots.count, SNAPSHOTS_MAX);
    assert_int_equal(snapshots.rows[SNAPSHOTS_MAX - 1].position, 999);
    assert_true(snapshots.rows[0].position <= 999 - 6 * (SNAPSHOTS_MAX - 2));
    assert_non_null(delay_snapshots_cut(&snapshots, 950));
    assert_true(snapshots.rows[snapshots.count - 1].position <= 950);
    assert_null(delay_snapshots_cut(&snapshots, 1));
}

/* D-1: RocketMQ's shape; what it or a person wrote is told apart from ours. */
static void delay_offsets_are_in_rocketmqs_shape(void **state)
{
    int64_t base[DELAY_LEVELS_MAX] = {12, 0, 3};
    int64_t read[DELAY_LEVELS_MAX];
    const char *path = "/store/delayOffset.json";
    const char *theirs = "{\n\t\"offsetTable\":{1:44,18:2}\n}";
    bool edited;
    (void)state;
    assert_int_equal(delay_offsets_read(&sim.env, path, read, &edited, &err), TERN_NOT_FOUND);
    assert_ok(delay_offsets_write(&sim.env, path, base, DELAY_LEVELS_MAX, &err));
    assert_ok(delay_offsets_read(&sim.env, path, read, &edited, &err));
    assert_false(edited);
    assert_memory_equal(read, base, sizeof base);
    put_file(&sim, path, theirs, strlen(theirs));
    assert_ok(delay_offsets_read(&sim.env, path, read, &edited, &err));
    assert_true(edited);
    assert_int_equal(read[0], 44);
    assert_int_equal(read[17], 2);
}

int main(void)
{
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_waiting_messages_are_read_or_refused),
        cmocka_unit_test(records_say_what_waits_and_what_is_done),
        cmocka_unit_test(progress_moves_over_what_was_done_out_of_order),
        cmocka_unit_test(progress_begins_where_its_queue_does),
        cmocka_unit_test(a_cut_takes_progress_and_marks_back),
        cmocka_unit_test(marks_are_bounded),
        cmocka_unit_test(the_heap_gives_the_earliest_and_sheds_the_latest),
        WITH_FILES(what_waits_is_loaded_without_what_is_done),
        WITH_FILES(a_full_bucket_is_loaded_in_parts),
        WITH_FILES(a_bucket_that_goes_while_it_is_read_has_nothing),
        WITH_FILES(items_of_known_records_are_not_written_again),
        WITH_FILES(the_end_of_what_never_waited_here_is_not_noted),
        WITH_FILES(a_cut_takes_items_back),
        WITH_FILES(what_waits_is_counted_as_it_changes),
        WITH_FILES(damaged_items_are_found),
        WITH_FILES(a_checkpoint_comes_back_as_it_was),
        WITH_FILES(a_damaged_checkpoint_is_refused_as_a_whole),
        cmocka_unit_test(snapshots_are_kept_a_minute_apart),
        WITH_FILES(delay_offsets_are_in_rocketmqs_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
