/*
 * What delayed and transactional messages build on: the store tells of records that stand for
 * earlier ones, in log order, and walks over the records of its log.
 */
#include "tests/unit/base/unit.h"

#include "base/names.h"
#include "base/props.h"
#include "broker/store/consume_queue_internal.h"
#include "broker/store/delay_level.h"
#include "tests/unit/store/store_world.h"

enum { HEARD_MAX = 64 };

struct fixture {
    struct world w;
    int64_t heard[HEARD_MAX];
    int heard_count;
    int64_t walked[HEARD_MAX];
    int walked_count, stop_after;
};

static void on_sequel(void *arg, const struct record *record)
{
    struct fixture *f = arg;
    assert_in_range(f->heard_count, 0, HEARD_MAX - 1);
    f->heard[f->heard_count++] = record->phys_off;
}

static bool on_record(void *arg, const struct record *record)
{
    struct fixture *f = arg;
    assert_in_range(f->walked_count, 0, HEARD_MAX - 1);
    f->walked[f->walked_count++] = record->phys_off;
    return f->walked_count != f->stop_after;
}

static void on_appended(struct store_append *append)
{
    assert_ok(append->result);
    store_queue_unref(append->queue);
}

/* Appends one record; its physical offset. */
static int64_t append(struct fixture *f, const char *topic, const char *name, const char *value,
                      uint32_t sys_flag, size_t body_bytes)
{
    uint8_t props[128];
    size_t props_len = 0;
    uint8_t *bytes = calloc(1, 256 + body_bytes);
    uint8_t *body = calloc(1, body_bytes + 1);
    if (name)
        assert_ok(props_append(props, &props_len, sizeof props, name, strlen(name), value,
                               strlen(value)));
    const struct record record = {.body = body,
                                  .body_len = (uint32_t)body_bytes,
                                  .sys_flag = sys_flag,
                                  .topic = (const uint8_t *)topic,
                                  .topic_len = (uint8_t)strlen(topic),
                                  .props = props,
                                  .props_len = (uint16_t)props_len};
    struct store_append append = {.records = bytes, .count = 1, .on_appended = on_appended};
    append.size_bytes = (uint32_t)record_encode(bytes, 256 + body_bytes, &record);
    assert_ok(store_queue_ref(f->w.store, topic, strlen(topic), 0, &append.queue));
    store_append(f->w.store, &append);
    world_run(&f->w, 20);
    free(bytes);
    free(body);
    return append.first_phys_off;
}

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    world_init(&f->w, 1);
    f->w.options.observer = (struct store_observer){.arg = f, .on_sequel = on_sequel};
    world_open(&f->w);
}

/* D-1: delivered ones, commits and what begins to wait are told, others are not. */
static void sequels_are_told_in_log_order(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    append(&f, "T", NULL, NULL, 0, 10);
    int64_t delivered = append(&f, "T", PROP_SEQUEL_OF, "S.0.0", 0, 10);
    append(&f, "T", PROP_TAGS, PROP_SEQUEL_OF, 0, 10);
    append(&f, "T", NULL, NULL, SYS_TX_PREPARED, 10);
    int64_t committed = append(&f, "T", NULL, NULL, SYS_TX_COMMIT, 10);
    int64_t waiting = append(&f, TIMER_TOPIC, PROP_TIMER_OUT_MS, "5", 0, 10);
    assert_int_equal(f.heard_count, 3);
    assert_int_equal(f.heard[0], delivered);
    assert_int_equal(f.heard[1], committed);
    assert_int_equal(f.heard[2], waiting);
    world_fini(&f.w);
}

static void sequels_are_told_again_when_dispatched_again(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    int64_t delivered = append(&f, "T", PROP_SEQUEL_OF, "S.0.0", 0, 10);
    world_process_crash(&f.w);
    f.heard_count = 0;
    world_open(&f.w);
    assert_int_equal(f.heard_count, 1);
    assert_int_equal(f.heard[0], delivered);
    world_fini(&f.w);
}

/* The delivered message's topic went; the waiting one was delivered all the same. */
static void a_sequel_in_a_deleted_topic_is_told(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    store_set_dispatch_limit(f.w.store, 0);
    append(&f, "Gone", PROP_SEQUEL_OF, "S.0.0", 0, 10);
    assert_int_equal(f.heard_count, 0);
    assert_ok(store_delete_topic(f.w.store, "Gone", NULL));
    store_set_dispatch_limit(f.w.store, INT64_MAX);
    world_run(&f.w, 20);
    assert_int_equal(f.heard_count, 1);
    int64_t min, max;
    store_queue_range(f.w.store, "Gone", 0, &min, &max);
    assert_int_equal(max, 0);
    world_fini(&f.w);
}

static void every_record_is_walked_over_segments(void **state)
{
    struct fixture f;
    int64_t at[20], next;
    (void)state;
    set_up(&f);
    for (int i = 0; i < 20; i++) /* three or four a segment */
        at[i] = append(&f, "T", NULL, NULL, 0, 4000);
    struct store_positions positions;
    store_positions(f.w.store, &positions);
    assert_ok(store_each_record(f.w.store, 0, positions.whole, on_record, &f, &next));
    assert_int_equal(f.walked_count, 20);
    assert_memory_equal(f.walked, at, sizeof at);
    assert_int_equal(next, positions.whole);
    world_fini(&f.w);
}

static void a_walk_ends_where_it_is_told_to(void **state)
{
    struct fixture f;
    int64_t at[5], next;
    (void)state;
    set_up(&f);
    for (int i = 0; i < 5; i++)
        at[i] = append(&f, "T", NULL, NULL, 0, 100);
    f.stop_after = 2;
    assert_ok(store_each_record(f.w.store, at[1], at[4], on_record, &f, &next));
    assert_int_equal(f.walked_count, 2);
    assert_int_equal(f.walked[0], at[1]);
    assert_int_equal(next, at[3]);
    f.stop_after = f.walked_count = 0;
    assert_ok(store_each_record(f.w.store, at[3], at[4] + 1, on_record, &f, &next));
    assert_int_equal(f.walked_count, 1); /* the one at `upto` is not whole before it */
    assert_int_equal(next, at[4]);
    world_fini(&f.w);
}

static void a_walk_from_within_a_record_is_refused(void **state)
{
    struct fixture f;
    int64_t next;
    (void)state;
    set_up(&f);
    int64_t at = append(&f, "T", NULL, NULL, 0, 100);
    int64_t end = append(&f, "T", NULL, NULL, 0, 100);
    assert_int_equal(store_each_record(f.w.store, at + 1, end, on_record, &f, &next), TERN_CORRUPT);
    assert_int_equal(f.walked_count, 0);
    assert_int_equal(next, at + 1);
    world_fini(&f.w);
}

/* D-1: the due time in tagsCode follows the levels that were configured. */
static void configured_levels_decide_the_due_time(void **state)
{
    struct fixture f;
    struct delay_levels levels;
    int64_t code = 0;
    (void)state;
    memset(&f, 0, sizeof f);
    assert_ok(delay_levels_parse("7s 9s", &levels, NULL));
    world_init(&f.w, 1);
    f.w.options.delay_levels = &levels;
    world_open(&f.w);
    append(&f, SCHEDULE_TOPIC, PROP_DELAY, "2", 0, 10);
    struct consume_queue *queue;
    struct queue_unit unit;
    uint32_t got;
    assert_ok(store_queue_ref(f.w.store, SCHEDULE_TOPIC, strlen(SCHEDULE_TOPIC), 0, &queue));
    assert_ok(consume_queue_read(queue, 0, &unit, 1, false, &got));
    store_queue_unref(queue);
    assert_ok(store_time_of(f.w.store, SCHEDULE_TOPIC, 0, 0, &code));
    assert_int_equal(unit.tags_code, code + 9000);
    world_fini(&f.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequels_are_told_in_log_order),
        cmocka_unit_test(sequels_are_told_again_when_dispatched_again),
        cmocka_unit_test(a_sequel_in_a_deleted_topic_is_told),
        cmocka_unit_test(every_record_is_walked_over_segments),
        cmocka_unit_test(a_walk_ends_where_it_is_told_to),
        cmocka_unit_test(a_walk_from_within_a_record_is_refused),
        cmocka_unit_test(configured_levels_decide_the_due_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
