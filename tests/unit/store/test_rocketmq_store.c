/*
 * Stores that RocketMQ 4.9.8 has written, opened by ours: a clean one and one whose process died
 * with a torn record at the end. What they hold is told by RocketMQ's own reader (tests/oracle).
 */
#include "tests/unit/store/rocketmq_world.h"

#include <unistd.h>

#include "base/props.h"
#include "tools/mqstore/mqstore.h"

/* ---- the world ---- */

static int setup_crash(void **state)
{
    return setup(state, "crash");
}

/* Sizes as tests/oracle has them; nothing is ever too old or the disk too full. */
static void open_store(struct fixture *f)
{
    struct store_options options;
    struct tern_error err = {TERN_OK, ""};
    store_options_init(&options);
    options.root_dir = f->root;
    options.segment_bytes = 64 * 1024;
    options.queue_file_bytes = 4000;
    options.index_slots = 100;
    options.index_entries = 400;
    options.max_message_bytes = 48 * 1024;
    options.retention_ms = INT64_MAX / 2;
    options.delete_hours = 0;
    options.disk_max_used_ratio = options.disk_clean_ratio = options.disk_warning_ratio = 2;
    if (store_open(&f->env, &options, &f->store, &f->recovery, &err) != TERN_OK)
        fail_msg("store_open: %s", err.text);
}

static void close_store(struct fixture *f)
{
    struct tern_error err = {TERN_OK, ""};
    if (store_close(f->store, &err) != TERN_OK)
        fail_msg("store_close: %s", err.text);
    f->store = NULL;
}

/* ---- reading ---- */

static uint8_t *reserve(void *arg, size_t size)
{
    struct fixture *f = arg;
    return size <= GET_BYTES ? f->bytes : NULL;
}

static bool note_code(void *arg, int64_t code)
{
    struct fixture *f = arg;
    if (f->code_count < sizeof f->codes / sizeof f->codes[0])
        f->codes[f->code_count++] = code;
    return true;
}

static const char *text(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static bool is_kind(const json_t *row, const char *kind)
{
    return strcmp(text(row, "kind"), kind) == 0;
}

static void check_host(const json_t *row, const char *key, const struct host *host)
{
    char expected[HOST_TEXT_BYTES];
    char actual[HOST_TEXT_BYTES];
    struct host parsed;
    const char *space = strchr(text(row, key), ' ');
    assert_non_null(space);
    int len = (int)(space - text(row, key));
    snprintf(expected, sizeof expected, host->v6 ? "[%.*s]:%s" : "%.*s:%s", len, text(row, key),
             space + 1);
    assert_int_equal(host_parse(expected, &parsed), TERN_OK);
    host_format(expected, &parsed);
    host_format(actual, host);
    assert_string_equal(actual, expected);
}

/* A batch's own properties come behind each message's, so a name may be there twice. */
static void check_props(const json_t *row, const struct record *record)
{
    const char *name;
    json_t *value;
    size_t cursor = 0;
    struct slice found_name;
    struct slice found;
    json_t *props = json_object_get(row, "properties");
    json_object_foreach(props, name, value)
    {
        assert_true(props_get(record->props, record->props_len, name, &found));
        assert_int_equal(found.len, json_string_length(value));
        assert_memory_equal(found.ptr, json_string_value(value), found.len);
    }
    while (props_next(record->props, record->props_len, &cursor, &found_name, &found)) {
        char key[64];
        assert_true(found_name.len < sizeof key);
        snprintf(key, sizeof key, "%.*s", (int)found_name.len, (const char *)found_name.ptr);
        assert_non_null(json_object_get(props, key));
    }
}

static void check_message(const json_t *row, const struct record *record, int64_t code)
{
    char id[MESSAGE_ID_BYTES];
    assert_int_equal(record->queue_id, number(row, "queueId"));
    assert_int_equal(record->queue_off, number(row, "queueOffset"));
    assert_int_equal(record->phys_off, number(row, "physOffset"));
    assert_int_equal(record->total_size, number(row, "size"));
    assert_int_equal(code, number(row, "tagsCode"));
    assert_int_equal(record->flag, number(row, "flag"));
    assert_int_equal(record->sys_flag, number(row, "sysFlag"));
    assert_int_equal(record->born_ms, number(row, "bornTimestamp"));
    assert_int_equal(record->store_ms, number(row, "storeTimestamp"));
    assert_int_equal(record->reconsume_times, number(row, "reconsumeTimes"));
    assert_int_equal(record->prepared_tx_off, number(row, "preparedTransactionOffset"));
    assert_int_equal(record->body_len, number(row, "bodyLength"));
    assert_int_equal(record->body_crc, number(row, "bodyCRC"));
    assert_int_equal(record_body_crc(record->body, record->body_len), number(row, "bodyCRC"));
    message_id_format(id, &record->store_host, record->phys_off);
    assert_string_equal(id, text(row, "msgId"));
    check_host(row, "bornHost", &record->born_host);
    check_host(row, "storeHost", &record->store_host);
    check_props(row, record);
}

/* Gets from `offset` on and compares with the rows from `at` on; returns how many came. */
static uint32_t check_get(struct fixture *f, const char *topic, int32_t queue_id, int64_t offset,
                          size_t at)
{
    struct store_filter filter = {.arg = f, .match_code = note_code};
    struct store_get get = {.topic = topic,
                            .queue_id = queue_id,
                            .offset = offset,
                            .max_count = 32,
                            .filter = &filter,
                            .reserve = reserve,
                            .arg = f};
    struct store_get_result result;
    f->code_count = 0;
    assert_int_equal(store_get(f->store, &get, &result), TERN_OK);
    assert_int_equal(result.status, GET_FOUND);
    assert_true(result.count > 0 && f->code_count >= result.count);
    size_t done = 0;
    for (uint32_t i = 0; i < result.count; i++) {
        struct record record;
        const json_t *row = json_array_get(f->manifest, at + i);
        assert_true(is_kind(row, "message"));
        assert_int_equal(
            record_parse(f->bytes + done, result.size_bytes - done, GET_BYTES, true, &record),
            RECORD_WHOLE);
        assert_string_equal(text(row, "topic"), topic);
        check_message(row, &record, f->codes[i]);
        done += record.total_size;
    }
    assert_int_equal(done, result.size_bytes);
    return result.count;
}

static size_t check_queues(struct fixture *f)
{
    size_t at;
    json_t *row;
    size_t messages = 0;
    json_array_foreach(f->manifest, at, row)
    {
        if (!is_kind(row, "queue"))
            continue;
        const char *topic = text(row, "topic");
        int32_t id = (int32_t)number(row, "queueId");
        int64_t min;
        int64_t max;
        store_queue_range(f->store, topic, id, &min, &max);
        assert_int_equal(min, number(row, "minOffset"));
        assert_int_equal(max, number(row, "maxOffset"));
        for (int64_t next = min; next < max;) {
            uint32_t n = check_get(f, topic, id, next, at + 1 + (size_t)(next - min));
            next += n;
            messages += n;
        }
    }
    return messages;
}

static bool note_hit(void *arg, const uint8_t *bytes, size_t size)
{
    json_t *found = arg;
    struct record record;
    assert_int_equal(record_parse(bytes, size, size, true, &record), RECORD_WHOLE);
    json_array_append_new(found, json_integer(record.phys_off));
    return true;
}

/*
 * Newest first here, oldest first there. RocketMQ stops after 64 entries with the key's hash,
 * whoever they belong to ("Aa" and "BB" share one); ours after 64 messages that have the key.
 */
static void check_query(struct fixture *f, const json_t *row)
{
    json_t *found = json_array();
    const json_t *expected = json_object_get(row, "physOffsets");
    struct store_query query = {.topic = text(row, "topic"),
                                .key = text(row, "key"),
                                .max_count = QUERY_MAX,
                                .end_ms = INT64_MAX,
                                .on_record = note_hit,
                                .arg = found};
    struct store_query_info info;
    assert_int_equal(store_query(f->store, &query, &info), TERN_OK);
    size_t all = (size_t)number(row, "inQueues");
    size_t theirs = json_array_size(expected);
    size_t ours = json_array_size(found);
    assert_int_equal(ours, all < QUERY_MAX ? all : QUERY_MAX);
    assert_true(theirs > 0 && theirs <= ours);
    for (size_t i = 0; i < theirs; i++)
        assert_int_equal(json_integer_value(json_array_get(found, i)),
                         json_integer_value(json_array_get(expected, theirs - 1 - i)));
    json_decref(found);
}

static size_t check_queries(struct fixture *f)
{
    size_t at;
    json_t *row;
    size_t queries = 0;
    json_array_foreach(f->manifest, at, row)
    {
        if (!is_kind(row, "query"))
            continue;
        check_query(f, row);
        queries++;
    }
    return queries;
}

static void check_all(struct fixture *f)
{
    const json_t *head = json_array_get(f->manifest, 0);
    struct store_status status;
    assert_true(is_kind(head, "store"));
    store_status(f->store, &status);
    assert_int_equal(status.min_phys, number(head, "minPhysOffset"));
    assert_int_equal(status.appended, number(head, "maxPhysOffset"));
    assert_true(check_queues(f) > 700);
    assert_true(check_queries(f) > 700);
}

/* verify's answer as JSON; it must be that all is well. */
static json_t *verify(struct fixture *f)
{
    struct mqstore_options options;
    char *out = NULL;
    size_t size = 0;
    mqstore_options_init(&options);
    options.json = true;
    options.out = open_memstream(&out, &size);
    assert_non_null(options.out);
    int status = mqstore_verify(&f->env, f->root, &options);
    fclose(options.out);
    if (status != MQSTORE_OK)
        fail_msg("mqstore verify: %d: %s", status, out);
    json_t *json = json_loads(out, 0, NULL);
    free(out);
    assert_non_null(json);
    return json;
}

/* ---- the tests ---- */

static void mqstore_finds_no_fault(void **state)
{
    struct fixture *f = *state;
    json_t *json = verify(f);
    const json_t *head = json_array_get(f->manifest, 0);
    assert_int_equal(number(json, "records"), number(head, "records"));
    assert_int_equal(number(json, "logEnd"), number(head, "recordsEnd"));
    assert_int_equal(json_object_size(json_object_get(json, "faults")), 0);
    json_decref(json);
}

static void clean_store_reads_as_rocketmq_reads_it(void **state)
{
    struct fixture *f = *state;
    open_store(f);
    assert_true(f->recovery.clean);
    assert_int_equal(f->recovery.cut_bytes, 0);
    assert_int_equal(f->recovery.replayed_records, 0);
    check_all(f);
}

static void crashed_store_is_recovered_as_rocketmq_recovers_it(void **state)
{
    struct fixture *f = *state;
    open_store(f);
    assert_false(f->recovery.clean);
    assert_true(f->recovery.cut_bytes > 0);
    check_all(f);
}

static void mqstore_finds_no_fault_after_our_stop(void **state)
{
    struct fixture *f = *state;
    open_store(f);
    close_store(f);
    json_decref(verify(f));
    open_store(f);
    assert_true(f->recovery.clean);
    check_all(f);
}

static void appending_goes_on_where_rocketmq_stopped(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[256];
    struct record record = {.queue_id = 2,
                            .born_ms = 1,
                            .topic = (const uint8_t *)"small-topic",
                            .topic_len = 11,
                            .body = (const uint8_t *)"next",
                            .body_len = 4};
    struct one_append one = {.append = {.records = bytes, .count = 1, .on_appended = on_appended}};
    open_store(f);
    one.append.size_bytes = (uint32_t)record_encode(bytes, sizeof bytes, &record);
    assert_int_equal(store_queue_ref(f->store, "small-topic", 11, 2, &one.append.queue), TERN_OK);
    store_append(f->store, &one.append);
    for (int i = 0; i < 10000 && !one.done; i++)
        usleep(1000);
    assert_true(one.done);
    store_queue_unref(one.append.queue);
    assert_int_equal(one.append.result, TERN_OK);
    assert_int_equal(one.append.first_queue_off, 450);
    assert_int_equal(one.append.first_phys_off,
                     number(json_array_get(f->manifest, 0), "maxPhysOffset"));
    close_store(f);
    json_decref(verify(f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mqstore_finds_no_fault, setup_clean, teardown),
        cmocka_unit_test_setup_teardown(clean_store_reads_as_rocketmq_reads_it, setup_clean,
                                        teardown),
        cmocka_unit_test_setup_teardown(mqstore_finds_no_fault_after_our_stop, setup_clean,
                                        teardown),
        cmocka_unit_test_setup_teardown(appending_goes_on_where_rocketmq_stopped, setup_clean,
                                        teardown),
        {"mqstore_finds_no_fault_in_a_crashed_store", mqstore_finds_no_fault, setup_crash, teardown,
         NULL},
        cmocka_unit_test_setup_teardown(crashed_store_is_recovered_as_rocketmq_recovers_it,
                                        setup_crash, teardown),
        {"mqstore_finds_no_fault_after_our_recovery", mqstore_finds_no_fault_after_our_stop,
         setup_crash, teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
