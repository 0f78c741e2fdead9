#include "tests/unit/store/get_world.h"

#include "base/names.h"
#include "broker/store/dispatcher.h"

void set_up(struct fixture *f)
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

void tear_down(struct fixture *f)
{
    free(f->memory);
    dispatcher_destroy(f->store.dispatcher);
    index_service_destroy(f->store.index);
    queue_table_destroy(f->store.queues);
    fake_log_fini(&f->log);
    sim_env_fini(&f->sim);
}

void put(struct fixture *f, struct fake_record record)
{
    record.queue_off = f->next[record.queue_id]++;
    int64_t at = fake_append(&f->log, &record);
    dispatcher_offer(f->store.dispatcher, at, f->log.bytes + at,
                     (size_t)(commit_log_end(&f->log) - at));
}

void put_many(struct fixture *f, int count)
{
    for (int i = 0; i < count; i++)
        put(f, (struct fake_record){.queue_id = 0});
}

void expire(struct fixture *f, int64_t log_min)
{
    atomic_store(&f->log.min, log_min);
    assert_ok(queue_table_expire(f->store.queues, log_min, &f->err));
}

uint8_t *reserve(void *arg, size_t size)
{
    struct fixture *f = arg;
    f->reserves++;
    f->reserved = size;
    return size <= LOG_BYTES ? f->memory : NULL;
}

enum tern_code try_get(struct fixture *f, int64_t offset, uint32_t max_count, bool nowait,
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

enum get_status get(struct fixture *f, int64_t offset, uint32_t max_count)
{
    assert_ok(try_get(f, offset, max_count, false, NULL));
    return f->result.status;
}

void check_got(struct fixture *f, int64_t first, uint32_t count, int64_t step)
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

bool is_tag_a(void *arg, int64_t code)
{
    ++*(unsigned *)arg;
    return code == tags_code("TagA", 4);
}

bool body_is_odd(void *arg, const struct record *record)
{
    ++*(unsigned *)arg;
    return record->body_len % 2;
}
