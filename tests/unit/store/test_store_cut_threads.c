/* Cuts on real files while other threads read: they get whole records of the queue or none. */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/sched.h"
#include "broker/store/store.h"

enum { READERS = 3, ROUNDS = 60, APPENDS = 150, SEGMENT_BYTES = 128 * 1024, BODY_MAX = 1500 };

static char root[128];

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/tern-cut-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
    return 0;
}

struct reader {
    pthread_t thread;
    struct store *store;
    _Atomic bool *stop;
    uint64_t seed;
    uint64_t records, refused;
    uint8_t *memory; /* 1 MiB */
};

static uint8_t *lend(void *arg, size_t size_bytes)
{
    struct reader *r = arg;
    return size_bytes <= 1 << 20 ? r->memory : NULL;
}

/* What a get brought: whole records of the queue, one after the other. */
static void look_at(struct reader *r, const struct store_get_result *result, int64_t offset)
{
    size_t at = 0;
    for (uint32_t i = 0; i < result->count; i++) {
        struct record record;
        ENSURE(record_parse(r->memory + at, result->size_bytes - at, 1 << 20, true, &record) ==
               RECORD_WHOLE);
        ENSURE(record.queue_off == offset + i && record.queue_id == 0 && record.topic_len == 1);
        at += record.total_size;
        r->records++;
    }
    ENSURE(at == result->size_bytes);
}

static void *read_all_the_time(void *arg)
{
    struct reader *r = arg;
    struct rng_seeded rng;
    rng_seeded_init(&rng, r->seed);
    while (!atomic_load(r->stop)) {
        int64_t min;
        int64_t max;
        store_queue_range(r->store, "T", 0, &min, &max);
        int64_t back = (int64_t)rng_below(&rng.rng, 200);
        int64_t offset = max > back ? max - back : 0;
        struct store_get get = {.topic = "T",
                                .offset = offset,
                                .max_count = 32,
                                .nowait = r->seed % 2 == 0,
                                .reserve = lend,
                                .arg = r};
        struct store_get_result result;
        enum tern_code code = store_get(r->store, &get, &result);
        ENSURE(!code || code == TERN_SERVICE_NOT_AVAILABLE || code == TERN_AGAIN);
        if (code)
            r->refused++;
        else if (result.status == GET_FOUND)
            look_at(r, &result, offset);
        else
            ENSURE(result.next_off <= max || result.next_off == offset);
    }
    return NULL;
}

struct pushed {
    struct store_append append; /* first */
    struct latch answered;
    uint8_t bytes[2048];
};

static void on_appended(struct store_append *append)
{
    latch_set(sched_threads(), &((struct pushed *)append)->answered);
}

static void append_one(struct store *store, struct rng *rng, int fill)
{
    static uint8_t body[BODY_MAX];
    struct pushed pushed;
    memset(body, fill, sizeof body);
    struct record record = {.topic = (const uint8_t *)"T",
                            .topic_len = 1,
                            .body = body,
                            .body_len = (uint32_t)rng_below(rng, BODY_MAX)};
    memset(&pushed.append, 0, sizeof pushed.append);
    latch_init(&pushed.answered);
    struct store_append *append = &pushed.append;
    append->records = pushed.bytes;
    append->size_bytes = (uint32_t)record_encode(pushed.bytes, sizeof pushed.bytes, &record);
    append->count = 1;
    append->on_appended = on_appended;
    assert_int_equal(store_queue_ref(store, "T", 1, 0, &append->queue), TERN_OK);
    store_append(store, append);
    assert_true(latch_wait(sched_threads(), &pushed.answered, SCHED_NEVER));
    assert_int_equal(append->result, TERN_OK);
    store_queue_unref(append->queue);
}

static struct store *open_store(const struct env *env)
{
    struct store_options options;
    struct store *store = NULL;
    struct tern_error err;
    store_options_init(&options);
    options.root_dir = root;
    options.segment_bytes = SEGMENT_BYTES;
    options.queue_file_bytes = 4000;
    options.index_slots = 1000;
    options.index_entries = 4000;
    options.sync_flush = false;
    options.queue_flush_interval_ms = 5;
    options.delete_hours = 0;
    options.disk_max_used_ratio = options.disk_clean_ratio = options.disk_warning_ratio = 1;
    if (store_open(env, &options, &store, NULL, &err))
        fail_msg("%s", err.text);
    return store;
}

static void readers_get_whole_records_or_none_while_the_log_is_cut(void **state)
{
    (void)state;
    struct env env;
    struct rng_seeded rng;
    struct reader readers[READERS];
    _Atomic bool stop = false;
    env_init_system(&env, NULL);
    rng_seeded_init(&rng, 5);
    struct store *store = open_store(&env);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){
            .store = store, .stop = &stop, .seed = (uint64_t)i, .memory = malloc(1 << 20)};
        assert_non_null(readers[i].memory);
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_all_the_time, &readers[i]),
                         0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct store_positions at;
        struct store_cut cut;
        struct tern_error err;
        for (int i = 0; i < APPENDS; i++)
            append_one(store, &rng.rng, round);
        store_positions(store, &at);
        int64_t place = at.appended - (int64_t)rng_below(&rng.rng, 100000);
        if (store_cut(store, place, true, &cut, &err))
            fail_msg("%s", err.text);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_true(readers[i].records > 0);
        free(readers[i].memory);
    }
    assert_int_equal(store_close(store, NULL), TERN_OK);
    store = open_store(&env);
    assert_int_equal(store_close(store, NULL), TERN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(readers_get_whole_records_or_none_while_the_log_is_cut,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
