#include "tests/unit/store/dispatcher_world.h"

#include "base/lock.h"
#include "base/names.h"

#define DIR "/store/consumequeue"

static void on_arrival(void *arg, const struct store_arrival *arrival)
{
    struct fixture *f = arg;
    lock_assert_none_held();
    assert_in_range(arrival->queue_id, 0, QUEUES - 1);
    assert_int_equal(arrival->first_off, f->arrived[arrival->queue_id]);
    f->arrived[arrival->queue_id] += arrival->count;
    f->arrivals++;
    struct consume_queue *queue =
        queue_table_find(f->queues, arrival->topic, strlen(arrival->topic), arrival->queue_id);
    assert_true(consume_queue_max(queue) >=
                f->arrived[arrival->queue_id]); /* it can be read by now */
    for (uint32_t i = 0; i < arrival->count; i++) {
        struct queue_unit unit;
        uint32_t got;
        assert_ok(consume_queue_read(queue, arrival->first_off + i, &unit, 1, false, &got));
        assert_int_equal(unit.tags_code, arrival->tags_codes[i]);
    }
    consume_queue_unref(queue);
}

void on_error(void *arg, enum tern_code code, const char *text)
{
    struct fixture *f = arg;
    assert_int_equal(f->error, TERN_OK); /* once */
    f->error = code;
    snprintf(f->error_text, sizeof f->error_text, "%s", text);
}

void create(struct fixture *f, int64_t from)
{
    int64_t records;
    const struct dispatcher_options options = {
        .log = &f->log,
        .queues = f->queues,
        .observer = {.arg = f, .on_arrival = on_arrival},
        .on_error = on_error,
        .arg = f,
    };
    assert_ok(dispatcher_create(&f->sim.env, &options, &f->dispatcher));
    assert_ok(dispatcher_replay(f->dispatcher, from, commit_log_end(&f->log), &records, &f->err));
}

void set_up(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    sim_env_init(&f->sim, 1);
    fake_log_init(&f->log, LOG_BYTES, SEGMENT_BYTES);
    assert_ok(queue_table_create(&f->sim.env, DIR, 20 * 1000, 4, false, &f->queues));
    create(f, 0);
    assert_ok(dispatcher_start(f->dispatcher));
    sim_run_for(f->sim.sched, 1);
}

void tear_down(struct fixture *f)
{
    dispatcher_destroy(f->dispatcher);
    queue_table_destroy(f->queues);
    fake_log_fini(&f->log);
    sim_env_fini(&f->sim);
}

int64_t append(struct fixture *f, int32_t queue_id, const char *tags)
{
    const struct fake_record record = {.queue_id = queue_id,
                                       .queue_off = f->next[queue_id]++,
                                       .tags = tags,
                                       .body_bytes = (size_t)(f->next[queue_id] % 50)};
    return fake_append(&f->log, &record);
}

void offer(struct fixture *f, int64_t from)
{
    dispatcher_offer(f->dispatcher, from, f->log.bytes + from,
                     (size_t)(commit_log_end(&f->log) - from));
}

int64_t max_of(struct fixture *f, int32_t queue_id)
{
    struct consume_queue *queue = queue_table_find(f->queues, "TopicTest", 9, queue_id);
    int64_t max = queue ? consume_queue_max(queue) : -1;
    consume_queue_unref(queue);
    return max;
}

struct queue_unit unit_of(struct fixture *f, const char *topic, int32_t queue_id, int64_t at)
{
    struct queue_unit unit = {0};
    uint32_t got = 0;
    struct consume_queue *queue = queue_table_find(f->queues, topic, strlen(topic), queue_id);
    assert_non_null(queue);
    assert_ok(consume_queue_read(queue, at, &unit, 1, false, &got));
    assert_int_equal(got, 1);
    consume_queue_unref(queue);
    return unit;
}

void run(struct fixture *f)
{
    sim_run_for(f->sim.sched, 1);
}

void check_all_arrived(struct fixture *f)
{
    for (int32_t q = 0; q < QUEUES; q++) {
        assert_int_equal(f->arrived[q], f->next[q]);
        if (f->next[q] > 0)
            assert_int_equal(max_of(f, q), f->next[q]);
    }
    assert_int_equal(dispatcher_position(f->dispatcher), commit_log_end(&f->log));
    assert_int_equal(dispatcher_oldest_pending_ms(f->dispatcher), 0);
}
