/*
 * Progress in a store of the application's: where queues begin, what the store is told, what its
 * failures cost.
 */
#include "tests/unit/client/broadcast_member.h"

/* ---- a store of the application's ---- */

enum { STORE_QUEUES = 4 };

struct app_store {
    int64_t offsets[STORE_QUEUES], durable[STORE_QUEUES]; /* -1: none */
    unsigned loads, queries, persists, removes;
    enum tern_code load_code, query_code, persist_code;
    bool refuses_first; /* updates of queue 0 */
};

static enum tern_code app_load(void *arg, struct tern_error *err)
{
    struct app_store *store = arg;
    store->loads++;
    if (store->load_code != TERN_OK)
        snprintf(err->text, sizeof err->text, "the database is away");
    return store->load_code;
}

static enum tern_code app_query(void *arg, const struct tern_queue *queue, int64_t *offset,
                                struct tern_error *err)
{
    struct app_store *store = arg;
    (void)err;
    store->queries++;
    if (store->query_code != TERN_OK)
        return store->query_code;
    *offset = store->offsets[queue->queue_id];
    return *offset < 0 ? TERN_QUERY_NOT_FOUND : TERN_OK;
}

static enum tern_code app_update(void *arg, const struct tern_queue *queue, int64_t offset,
                                 struct tern_error *err)
{
    struct app_store *store = arg;
    (void)err;
    if (store->refuses_first && queue->queue_id == 0)
        return TERN_LIMIT;
    store->offsets[queue->queue_id] = offset;
    return TERN_OK;
}

static enum tern_code app_persist(void *arg, struct tern_error *err)
{
    struct app_store *store = arg;
    (void)err;
    store->persists++;
    if (store->persist_code == TERN_OK)
        memcpy(store->durable, store->offsets, sizeof store->durable);
    return store->persist_code;
}

static void app_remove(void *arg, const struct tern_queue *queue)
{
    struct app_store *store = arg;
    (void)queue;
    store->removes++;
}

/* A clustering member with the store. */
static struct member member_with(struct fake *fake, const char *name, struct app_store *store)
{
    struct member member = member_create(fake, name);
    struct tern_offset_store ops = {.arg = store,
                                    .load = app_load,
                                    .query = app_query,
                                    .update = app_update,
                                    .persist = app_persist,
                                    .remove = app_remove};
    assert_ok(tern_consumer_options_model(member.options, TERN_CLUSTERING));
    assert_ok(tern_consumer_options_from(member.options, TERN_FROM_FIRST, 0));
    assert_ok(tern_consumer_options_offset_store(member.options, &ops));
    return member;
}

static struct app_store empty_store(void)
{
    struct app_store store = {.loads = 0};
    for (int i = 0; i < STORE_QUEUES; i++)
        store.offsets[i] = store.durable[i] = -1;
    return store;
}

static void a_custom_store_decides_where_queues_begin_and_hears_of_progress(void **state)
{
    (void)state;
    struct fake *fake = fake_create(2);
    struct app_store store = empty_store();
    store.offsets[0] = 40;
    fake->queues[0].committed = 7; /* means nothing here */
    fake->queues[0].version = 3;
    fake_publish(fake, 0, NULL, 50);
    fake_publish(fake, 1, NULL, 20);
    struct member member = member_with(fake, "a", &store);
    member_start(&member);
    fake_run_ms(fake, 6000);
    assert_int_equal(member.heard->count, 10 + 20); /* none: by the policy, from the first */
    assert_int_equal(store.loads, 1);
    assert_int_equal(store.durable[0], 50);
    assert_int_equal(store.durable[1], 20);
    assert_int_equal(fake->commits, 0);
    assert_int_equal(fake->queries, 0);
    unsigned persists = store.persists;
    fake_run_ms(fake, 20000);
    assert_int_equal(store.persists, persists); /* nothing changed */
    fake_publish(fake, 0, NULL, 1);
    fake_run_ms(fake, 100);
    member_end(&member);
    assert_int_equal(store.durable[0], 51);
    fake_destroy(fake);
}

/* OF-04 for stores: an error is not "none" */
static void a_store_that_cannot_tell_is_asked_again(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct app_store store = empty_store();
    store.offsets[0] = 40;
    store.query_code = TERN_TIMEOUT;
    fake_publish(fake, 0, NULL, 50);
    struct member member = member_with(fake, "a", &store);
    member_start(&member);
    fake_run_ms(fake, 20000);
    assert_in_range(store.queries, 10, 40);
    assert_int_equal(member.heard->count, 0);
    assert_int_equal(store.offsets[0], 40);
    store.query_code = TERN_OK;
    fake_run_ms(fake, 2000);
    assert_int_equal(member.heard->count, 10);
    member_end(&member);
    fake_destroy(fake);
}

static void a_store_that_fails_is_told_again_and_refuses_a_start(void **state)
{
    (void)state;
    struct fake *fake = fake_create(1);
    struct app_store store = empty_store();
    struct tern_error err;
    store.load_code = TERN_UNREACHABLE;
    struct member member = member_with(fake, "a", &store);
    assert_int_equal(member_try_start(&member, &err), TERN_UNREACHABLE);
    assert_contains(err.text, "the database is away");
    member_stop(&member);
    store.load_code = TERN_OK;
    store.persist_code = TERN_IO;
    member_start(&member);
    fake_publish(fake, 0, NULL, 10);
    fake_run_ms(fake, 16000);
    assert_in_range(store.persists, 3, 5);
    assert_int_equal(store.durable[0], -1);
    assert_true(sim_log_count(&fake->sim, "consumer_store_failed") >= 3);
    store.persist_code = TERN_OK;
    fake_run_ms(fake, 6000);
    assert_int_equal(store.durable[0], 10);
    member_end(&member);
    fake_destroy(fake);
}

/* Nor at the end, when there is no next interval. */
static void a_queue_that_the_store_refuses_keeps_no_other_back(void **state)
{
    (void)state;
    struct fake *fake = fake_create(4);
    struct app_store store = empty_store();
    store.refuses_first = true;
    struct member member = member_with(fake, "a", &store);
    member_start(&member);
    for (int q = 0; q < 4; q++)
        fake_publish(fake, q, NULL, 10);
    fake_run_ms(fake, 6000);
    for (int q = 1; q < 4; q++)
        assert_int_equal(store.durable[q], 10);
    assert_int_equal(store.durable[0], -1);
    for (int q = 0; q < 4; q++)
        fake_publish(fake, q, NULL, 5);
    fake_run_ms(fake, 100);
    assert_int_equal(tern_push_consumer_shutdown(member.consumer, 1000), TERN_LIMIT);
    member_stop(&member);
    for (int q = 1; q < 4; q++)
        assert_int_equal(store.durable[q], 15);
    assert_int_equal(store.durable[0], -1);
    assert_true(sim_log_count(&fake->sim, "consumer_store_failed") >= 2);
    member_end(&member);
    fake_destroy(fake);
}

static void queues_that_leave_are_told_and_removed(void **state)
{
    (void)state;
    struct fake *fake = fake_create(4);
    struct app_store store = empty_store();
    struct app_store others = empty_store();
    struct member first = member_with(fake, "a", &store);
    member_start(&first);
    fake_run_ms(fake, 1000);
    for (int q = 0; q < 4; q++)
        fake_publish(fake, q, NULL, 9);
    fake_run_ms(fake, 500);
    struct member second = member_with(fake, "b", &others);
    member_start(&second);
    fake_run_ms(fake, 1000);
    assert_int_equal(member_stats(&first).queues, 2);
    assert_int_equal(store.durable[3], 9); /* at once, not at the interval */
    assert_int_equal(store.removes, 2);
    member_end(&second);
    member_end(&first);
    fake_destroy(fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_custom_store_decides_where_queues_begin_and_hears_of_progress),
        cmocka_unit_test(a_store_that_cannot_tell_is_asked_again),
        cmocka_unit_test(a_store_that_fails_is_told_again_and_refuses_a_start),
        cmocka_unit_test(a_queue_that_the_store_refuses_keeps_no_other_back),
        cmocka_unit_test(queues_that_leave_are_told_and_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
