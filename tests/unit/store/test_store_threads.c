/* The store on real files and threads: appending, reading and expiring at once; a second process.
 */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/sched.h"
#include "broker/store/commit_log_internal.h"
#include "broker/store/store.h"
#include "broker/store/store_internal.h"

enum { THREADS = 8, PER_THREAD = 2000, QUEUES = 4, SEGMENT_BYTES = 256 * 1024, BODY_MAX = 600 };

static char root[128];

static void remove_root(void)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/tern-store-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    remove_root();
    return 0;
}

static _Atomic int64_t flushed_seen;

static void on_flushed(void *arg, int64_t flushed, bool more)
{
    (void)more;
    (void)arg;
    atomic_store(&flushed_seen, flushed);
}

static struct store *open_store(const struct env *env, bool sync_flush)
{
    struct store_options options;
    store_options_init(&options);
    options.root_dir = root;
    options.segment_bytes = SEGMENT_BYTES;
    options.index_slots = 1000;
    options.index_entries = 4000;
    options.sync_flush = sync_flush;
    options.queue_flush_interval_ms = 20;
    options.retention_ms = 0; /* everything is old enough for store_expire_now() */
    options.delete_hours = 0;
    options.disk_max_used_ratio = 1;
    options.disk_clean_ratio = 1;
    options.disk_warning_ratio = 1;
    options.observer.on_flushed = on_flushed;
    struct store *store = NULL;
    struct tern_error err;
    if (store_open(env, &options, &store, NULL, &err))
        fail_msg("%s", err.text);
    return store;
}

struct pushed {
    struct store_append append; /* first */
    struct latch answered;
    uint8_t bytes[1024];
};

static void on_appended(struct store_append *append)
{
    latch_set(sched_threads(), &((struct pushed *)append)->answered);
}

struct pusher {
    pthread_t thread;
    struct store *store;
    unsigned number;
    bool topic_goes; /* now and then, so an append may be refused for that */
    int64_t end[PER_THREAD];
    int64_t queue_off[PER_THREAD];
};

static void *push(void *arg)
{
    struct pusher *p = arg;
    struct pushed *pushed = calloc(1, sizeof *pushed);
    uint8_t body[BODY_MAX];
    ENSURE(pushed);
    for (unsigned i = 0; i < PER_THREAD; i++) {
        int32_t queue_id = (int32_t)(p->number % QUEUES);
        size_t body_len = 8 + (p->number * 37 + i * 101) % (BODY_MAX - 8);
        memset(body, (int)(p->number + i), body_len);
        struct record record = {.queue_id = queue_id,
                                .topic = (const uint8_t *)"T",
                                .topic_len = 1,
                                .body = body,
                                .body_len = (uint32_t)body_len};
        latch_init(&pushed->answered);
        struct store_append *append = &pushed->append;
        append->records = pushed->bytes;
        append->size_bytes = (uint32_t)record_encode(pushed->bytes, sizeof pushed->bytes, &record);
        append->count = 1;
        append->on_appended = on_appended;
        ENSURE(store_queue_ref(p->store, "T", 1, queue_id, &append->queue) == TERN_OK);
        store_append(p->store, append);
        ENSURE(latch_wait(sched_threads(), &pushed->answered, SCHED_NEVER));
        ENSURE(append->result == TERN_OK ||
               (p->topic_goes && append->result == TERN_TOPIC_NOT_EXIST));
        store_queue_unref(append->queue);
        p->end[i] = append->end_phys_off;
        p->queue_off[i] = append->first_queue_off;
    }
    free(pushed);
    return NULL;
}

static _Atomic bool stop_reading;

/* Reads records at random places: right bytes or "not found", never anything else (ST-13). */
static void *read_about(void *arg)
{
    struct store *store = arg;
    struct rng_seeded rng;
    rng_seeded_init(&rng, (uint64_t)(uintptr_t)&rng);
    uint8_t bytes[2048];
    while (!atomic_load(&stop_reading)) {
        int64_t min = commit_log_min(store->log);
        int64_t end = commit_log_end(store->log);
        int64_t segment = min / SEGMENT_BYTES +
                          (int64_t)rng_below(&rng.rng, (uint64_t)((end - min) / SEGMENT_BYTES + 1));
        int64_t at = segment * SEGMENT_BYTES;
        size_t got;
        enum tern_code code = commit_log_read(store->log, at, bytes, sizeof bytes, false, &got);
        if (code == TERN_NOT_FOUND)
            continue;
        ENSURE(code == TERN_OK);
        struct record record;
        enum record_state state = record_parse(bytes, got, sizeof bytes, true, &record);
        ENSURE(state == RECORD_WHOLE && record.phys_off == at);
        int64_t min_off;
        int64_t max_off;
        store_queue_range(store, "T", (int32_t)rng_below(&rng.rng, QUEUES), &min_off, &max_off);
        ENSURE(min_off <= max_off);
        struct store_status status;
        store_status(store, &status);
        ENSURE(status.flushed <= status.appended);
    }
    return NULL;
}

static void *expire_now_and_then(void *arg)
{
    struct store *store = arg;
    struct latch never;
    latch_init(&never);
    while (!atomic_load(&stop_reading)) {
        (void)store_expire_now(store);
        (void)!latch_wait(sched_threads(), &never, clock_mono_ns(clock_system()) + ms_to_ns(20));
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Each queue's offsets were given out once each, without a hole. */
static void check_offsets(const struct pusher *pushers)
{
    enum { PER_QUEUE = THREADS / QUEUES * PER_THREAD };
    int64_t *all = malloc(PER_QUEUE * sizeof *all);
    assert_non_null(all);
    for (unsigned q = 0; q < QUEUES; q++) {
        size_t n = 0;
        for (unsigned t = q; t < THREADS; t += QUEUES) {
            memcpy(all + n, pushers[t].queue_off, sizeof pushers[t].queue_off);
            n += PER_THREAD;
        }
        qsort(all, n, sizeof *all, by_value);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(all[i], i);
    }
    free(all);
}

static void threads_append_read_and_expire(bool sync_flush)
{
    struct env env;
    env_init_system(&env, NULL);
    struct store *store = open_store(&env, sync_flush);
    struct pusher *pushers = calloc(THREADS, sizeof *pushers);
    assert_non_null(pushers);
    pthread_t readers[2];
    pthread_t expirer;
    atomic_store(&stop_reading, false);
    for (unsigned i = 0; i < THREADS; i++) {
        pushers[i].store = store;
        pushers[i].number = i;
        assert_int_equal(pthread_create(&pushers[i].thread, NULL, push, &pushers[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_about, store), 0);
    assert_int_equal(pthread_create(&expirer, NULL, expire_now_and_then, store), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(pushers[i].thread, NULL), 0);
    atomic_store(&stop_reading, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_int_equal(pthread_join(expirer, NULL), 0);
    check_offsets(pushers);
    struct store_status status;
    store_status(store, &status);
    assert_int_equal(status.append_records, THREADS * PER_THREAD);
    int64_t end = status.appended;
    struct tern_error err;
    assert_int_equal(store_close(store, &err), TERN_OK);
    assert_int_equal(atomic_load(&flushed_seen), end);

    store = open_store(&env, sync_flush);
    store_status(store, &status);
    assert_true(status.recovered_clean);
    assert_int_equal(status.appended, end);
    for (int32_t q = 0; q < QUEUES; q++) {
        int64_t min_off;
        int64_t max_off;
        store_queue_range(store, "T", q, &min_off, &max_off);
        assert_int_equal(max_off, THREADS / QUEUES * PER_THREAD);
    }
    assert_int_equal(store_close(store, &err), TERN_OK);
    free(pushers);
}

static void threads_with_sync_flush(void **state)
{
    (void)state;
    threads_append_read_and_expire(true);
}

static void threads_with_async_flush(void **state)
{
    (void)state;
    threads_append_read_and_expire(false);
}

static void store_in_use_by_another_process_is_refused(void **state)
{
    (void)state;
    struct env env;
    env_init_system(&env, NULL);
    int ready[2];
    int leave[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(leave), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char byte = 'x';
        struct store *store = open_store(&env, true);
        bool ok = write(ready[1], &byte, 1) == 1 && read(leave[0], &byte, 1) == 1;
        (void)store;
        _exit(ok ? 0 : 1); /* as a killed process: no close */
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct store_options options;
    store_options_init(&options);
    options.root_dir = root;
    options.segment_bytes = SEGMENT_BYTES;
    struct store *store = NULL;
    struct store_recovery recovery;
    struct tern_error err;
    assert_int_equal(store_open(&env, &options, &store, &recovery, &err), TERN_IN_USE);
    assert_int_equal(write(leave[1], "x", 1), 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(store_open(&env, &options, &store, &recovery, &err), TERN_OK);
    assert_false(recovery.clean);
    assert_int_equal(store_close(store, &err), TERN_OK);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(leave[i]);
    }
}

/* Whoever holds a queue of a deleted topic is refused or meets its end; the store goes on. */
static void threads_append_while_their_topic_is_deleted(void **state)
{
    (void)state;
    struct env env;
    env_init_system(&env, NULL);
    struct store *store = open_store(&env, false);
    struct pusher *pushers = calloc(THREADS, sizeof *pushers);
    struct tern_error err;
    assert_non_null(pushers);
    for (unsigned i = 0; i < THREADS; i++) {
        pushers[i].store = store;
        pushers[i].number = i;
        pushers[i].topic_goes = true;
        assert_int_equal(pthread_create(&pushers[i].thread, NULL, push, &pushers[i]), 0);
    }
    struct store_status status;
    do { /* as often as it goes while they are at work */
        assert_int_equal(store_delete_topic(store, "T", &err), TERN_OK);
        store_status(store, &status);
        assert_false(status.latched);
    } while (status.append_requests + status.append_failed < THREADS * PER_THREAD);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(pushers[i].thread, NULL);
    assert_int_equal(store_delete_topic(store, "T", &err), TERN_OK);
    assert_int_equal(store_close(store, &err), TERN_OK);
    store = open_store(&env, false);
    store_status(store, &status);
    assert_true(status.recovered_clean);
    assert_int_equal(store_close(store, &err), TERN_OK);
    free(pushers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(store_in_use_by_another_process_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(threads_with_sync_flush, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_with_async_flush, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_append_while_their_topic_is_deleted, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
