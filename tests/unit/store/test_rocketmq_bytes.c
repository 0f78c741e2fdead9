/*
 * What RocketMQ 4.9.8 has written, written by ours: the same messages give the same bytes, and its
 * configuration files parse.
 */
#include "tests/unit/store/rocketmq_world.h"

#include "tests/sim/sim_env.h"
#include "tools/mqstore/log_reader.h"

/* ---- the same bytes ---- */

#define REPLAY_ROOT "/replayed"

struct replay {
    struct sim_env sim;
    struct store *store;
};

static void store_options_of_replay(struct store_options *options)
{
    store_options_init(options);
    options->root_dir = REPLAY_ROOT;
    options->segment_bytes = 64 * 1024;
    options->queue_file_bytes = 4000;
    options->index_slots = 100;
    options->index_entries = 400;
    options->max_message_bytes = 48 * 1024;
    options->delete_hours = 0;
}

/* Appends the record's bytes without what the store stamps, at the same time of the wall clock. */
static void replay_record(struct replay *r, const uint8_t *bytes, const struct record *record)
{
    struct one_append one = {.append = {.count = 1, .on_appended = on_appended}};
    uint8_t *copy = malloc(record->total_size);
    assert_non_null(copy);
    memcpy(copy, bytes, record->total_size);
    record_stamp_position(copy, 0, 0);
    record_stamp_store_time(copy, 0);
    one.append.records = copy;
    one.append.size_bytes = record->total_size;
    assert_int_equal(store_queue_ref(r->store, (const char *)record->topic, record->topic_len,
                                     record->queue_id, &one.append.queue),
                     TERN_OK);
    sim_clock_set_wall(&r->sim.clock, record->store_ms);
    store_append(r->store, &one.append);
    while (!one.done && sim_run_one(r->sim.sched))
        ;
    for (int ms = 0; ms < 1000 && !one.done; ms++)
        sim_run_for(r->sim.sched, ms_to_ns(1));
    assert_true(one.done);
    assert_int_equal(one.append.result, TERN_OK);
    assert_int_equal(one.append.first_phys_off, record->phys_off);
    assert_int_equal(one.append.first_queue_off, record->queue_off);
    store_queue_unref(one.append.queue);
    free(copy);
}

static void replay_all(struct fixture *f, struct replay *r)
{
    struct store_dir dir;
    struct log_reader reader;
    struct log_item item = {.kind = LOG_RECORD};
    struct tern_error err;
    struct store_options options;
    sim_env_init(&r->sim, 498);
    store_options_of_replay(&options);
    assert_int_equal(store_open(&r->sim.env, &options, &r->store, NULL, &err), TERN_OK);
    assert_int_equal(store_dir_open(&dir, &f->env, f->root, 0, false, &err), TERN_OK);
    log_reader_init(&reader, &dir, 0);
    while (item.kind != LOG_END) {
        assert_int_equal(log_reader_next(&reader, &item, &err), TERN_OK);
        if (item.kind == LOG_RECORD)
            replay_record(r, item.bytes, &item.record);
    }
    log_reader_fini(&reader);
    store_dir_close(&dir);
    if (store_close(r->store, &err) != TERN_OK)
        fail_msg("store_close: %s", err.text);
}

/* A file of each store, named below its root. */
static void check_same_file(struct fixture *f, struct replay *r, const char *theirs,
                            const char *ours, int64_t size)
{
    char path[FS_PATH_BYTES];
    struct file *files[2];
    uint8_t *bytes[2] = {malloc((size_t)size), malloc((size_t)size)};
    assert_int_equal(fs_join(path, f->root, theirs), TERN_OK);
    assert_int_equal(fs_open(f->env.fs, path, FS_READ, &files[0]), TERN_OK);
    assert_int_equal(fs_join(path, REPLAY_ROOT, ours), TERN_OK);
    assert_int_equal(fs_open(r->sim.env.fs, path, FS_READ, &files[1]), TERN_OK);
    for (int i = 0; i < 2; i++) {
        size_t got;
        int64_t actual;
        assert_non_null(bytes[i]);
        assert_int_equal(file_size(files[i], &actual), TERN_OK);
        assert_int_equal(actual, size);
        assert_int_equal(file_pread(files[i], bytes[i], (size_t)size, 0, &got), TERN_OK);
        assert_int_equal(got, size);
        file_close(files[i]);
    }
    for (int64_t at = 0; at < size; at++)
        if (bytes[0][at] != bytes[1][at])
            fail_msg("%s and our %s differ at %lld", theirs, ours, (long long)at);
    free(bytes[0]);
    free(bytes[1]);
}

/* Commit log, queues and index, whole files: as if RocketMQ had written them. */
static void the_same_messages_give_the_same_bytes(void **state)
{
    struct fixture *f = *state;
    struct replay r = {.store = NULL};
    struct store_dir theirs;
    struct store_dir ours;
    struct tern_error err;
    replay_all(f, &r);
    assert_int_equal(store_dir_open(&theirs, &f->env, f->root, 0, false, &err), TERN_OK);
    assert_int_equal(store_dir_open(&ours, &r.sim.env, REPLAY_ROOT, 0, false, &err), TERN_OK);
    assert_int_equal(ours.segment_count, theirs.segment_count);
    assert_int_equal(ours.queue_count, theirs.queue_count);
    assert_int_equal(ours.index_count, theirs.index_count);
    for (uint32_t i = 0; i < theirs.segment_count; i++) {
        char name[STORE_NAME_BYTES];
        store_dir_segment_name(name, theirs.segments[i].base);
        check_same_file(f, &r, name, name, theirs.segment_bytes);
    }
    for (uint32_t i = 0; i < theirs.queue_count; i++) {
        const struct queue_dir *queue = &theirs.queues[i];
        assert_int_equal(ours.queues[i].file_count, queue->file_count);
        for (uint32_t file = 0; file < queue->file_count; file++) {
            char name[STORE_NAME_BYTES];
            store_dir_queue_name(name, queue, queue->files[file].start);
            check_same_file(f, &r, name, name, queue->file_bytes);
        }
    }
    for (uint32_t i = 0; i < theirs.index_count; i++) {
        char names[2][STORE_NAME_BYTES];
        store_dir_index_name(names[0], &theirs.indexes[i]);
        store_dir_index_name(names[1], &ours.indexes[i]);
        check_same_file(f, &r, names[0], names[1], theirs.indexes[i].file_bytes);
    }
    store_dir_close(&theirs);
    store_dir_close(&ours);
    sim_env_fini(&r.sim);
}

static void config_files_parse(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *file, *table;
    } files[] = {{"topics.json", "topicConfigTable"},
                 {"topics.json.bak", "topicConfigTable"},
                 {"subscriptionGroup.json", "subscriptionGroupTable"},
                 {"consumerOffset.json", "offsetTable"},
                 {"consumerOffset.json.bak", "offsetTable"},
                 {"delayOffset.json", "offsetTable"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[192];
        struct tern_error err;
        json_t *json = NULL;
        snprintf(path, sizeof path, "%s/config/%s", f->root, files[i].file);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        size_t len = fread(f->bytes, 1, GET_BYTES, file);
        fclose(file);
        assert_int_equal(json_parse_fastjson((const char *)f->bytes, len, &json, &err), TERN_OK);
        const json_t *table = json_object_get(json, files[i].table);
        assert_true(json_object_size(table) > 0);
        if (strcmp(files[i].file, "consumerOffset.json") == 0) /* 0:1,1:6,… without quotes */
            assert_int_equal(number(json_object_get(table, "TopicTest@group_a"), "3"), 16);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_messages_give_the_same_bytes, setup_clean,
                                        teardown),
        cmocka_unit_test_setup_teardown(config_files_parse, setup_clean, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
