/* The topic table takes another copy's: what it keeps, what it tells, what readers see meanwhile.
 */
#include "tests/unit/broker/topics_world.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- another copy's table ---- */

static enum tern_code replace(const char *first, const char *second, uint64_t version,
                              struct tern_error *err)
{
    struct topic_config configs[] = {topic(first, 4), topic(second, 5)};
    return topics_replace(topics, configs, 2, version, err);
}

/* The reply topic, and the trace topic where the configuration wants one. */
static void added_topics_are_the_brokers_own(void **state)
{
    (void)state;
    assert_ok(topics_add_own(topics, "DefaultCluster_REPLY_TOPIC", 1, PERM_READ | PERM_WRITE));
    assert_ok(topics_add_own(topics, "no.topic", 1, PERM_READ)); /* left out */
    assert_int_equal(queues_of("DefaultCluster_REPLY_TOPIC"), 1);
    assert_int_equal(queues_of("no.topic"), -1);
    assert_int_equal(put("DefaultCluster_REPLY_TOPIC", 4), TERN_INVALID);
    assert_int_equal(topics_remove(topics, "DefaultCluster_REPLY_TOPIC", 26, NULL), TERN_INVALID);
    assert_ok(replace("A", "DefaultCluster_REPLY_TOPIC", 18, NULL));
    assert_int_equal(queues_of("DefaultCluster_REPLY_TOPIC"), 1);
}

static void replaced_table_has_the_given_version_and_keeps_the_own_topics(void **state)
{
    (void)state;
    assert_ok(put("old", 4));
    assert_ok(topics_persist(topics, NULL));
    assert_ok(put("unsettled", 4));
    assert_ok(replace("A", "SELF_TEST_TOPIC", 17, NULL));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(queues_of("A"), 4);
        assert_int_equal(queues_of("old"), -1);
        assert_int_equal(queues_of("unsettled"), -1);
        assert_int_equal(queues_of("SELF_TEST_TOPIC"), 1); /* ours */
        assert_int_equal(queues_of("broker-a"), 1);
        assert_true(topics_version(topics) == 17);
        topics_rollback(topics); /* there is nothing to take back */
        sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
        reopen();
    }
    assert_ok(put("B", 2));
    assert_true(topics_version(topics) > 17);
}

static void table_that_follows_keeps_its_version_until_it_ends(void **state)
{
    (void)state;
    topics_follow(topics, true);
    assert_ok(replace("A", "B", 17, NULL));
    assert_ok(put("met", 1));
    assert_true(topics_version(topics) == 17);
    assert_ok(topics_persist(topics, NULL));
    reopen();
    assert_int_equal(queues_of("met"), 1); /* durable all the same */
    assert_true(topics_version(topics) == 17);
    topics_follow(topics, true);
    assert_ok(put("met", 2));
    topics_follow(topics, false);
    assert_true(topics_version(topics) > 17);
    uint64_t version = topics_version(topics);
    topics_follow(topics, true);
    topics_follow(topics, false); /* nothing was changed */
    assert_true(topics_version(topics) == version);
}

static void bad_replacement_changes_nothing(void **state)
{
    (void)state;
    struct tern_error err;
    assert_ok(replace("A", "B", 17, NULL));
    assert_int_equal(replace("C", "a/b", 18, &err), TERN_INVALID);
    assert_int_equal(replace("C", "C", 18, &err), TERN_INVALID);
    assert_contains(err.text, "C is there twice");
    assert_int_equal(replace("C", "D", UINT64_MAX, &err), TERN_INVALID);
    struct topic_config shrunk = topic("A", 0);
    shrunk.write_queues = -1;
    assert_int_equal(topics_replace(topics, &shrunk, 1, 18, &err), TERN_INVALID);
    assert_int_equal(queues_of("C"), -1);
    assert_int_equal(queues_of("B"), 5);
    assert_true(topics_version(topics) == 17);
    shrunk.write_queues = 0;
    assert_ok(topics_replace(topics, &shrunk, 1, 18, &err));
    assert_int_equal(queues_of("A"), 0);
}

static void replacement_that_fails_anywhere_leaves_the_old_table(void **state)
{
    (void)state;
    unsigned failed = 0;
    assert_ok(replace("A", "B", 17, NULL));
    for (unsigned round = 2; round <= 61; round++) { /* each call, with and without a power loss */
        unsigned nth = round / 2;
        struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO};
        uint64_t before = topics_version(topics);
        int32_t queues = queues_of("B");
        struct topic_config config = topic("B", (int32_t)round + 10);
        sim_fs_fail(sim.fs, &fault);
        enum tern_code code = topics_replace(topics, &config, 1, 100 + round, NULL);
        sim_fs_fail_clear(sim.fs);
        failed += code != TERN_OK;
        assert_true(topics_version(topics) == (code ? before : 100 + round));
        assert_int_equal(queues_of("B"), code ? queues : (int32_t)round + 10);
        assert_ok(topics_persist(topics, NULL)); /* the file is the table's again */
        if (round % 2)
            sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
        reopen();
        assert_int_equal(queues_of("B"), code ? queues : (int32_t)round + 10);
    }
    assert_in_range(failed, 10, 59);
}

static void told(void *arg)
{
    ++*(int *)arg;
}

static void what_becomes_durable_is_told(void **state)
{
    (void)state;
    int times = 0;
    topics_watch(topics, told, &times);
    assert_ok(put("A", 4));
    assert_int_equal(times, 0);
    assert_ok(topics_persist(topics, NULL));
    assert_int_equal(times, 1);
    assert_ok(topics_persist(topics, NULL));
    assert_int_equal(times, 1);
    assert_ok(replace("A", "B", 17, NULL));
    assert_int_equal(times, 2);
}

struct reader {
    _Atomic bool stop;
    _Atomic unsigned missed, rounds;
};

static void *poll_topics(void *arg)
{
    struct reader *reader = arg;
    while (!atomic_load(&reader->stop)) {
        if (queues_of("always") != 4 || queues_of("broker-a") != 1)
            atomic_fetch_add(&reader->missed, 1);
        atomic_fetch_add(&reader->rounds, 1);
    }
    return NULL;
}

static void no_reader_ever_misses_a_topic_that_is_in_both_tables_MD_01(void **state)
{
    (void)state;
    pthread_t thread;
    struct reader reader = {.stop = false};
    unsigned replaced = 0;
    char other[32];
    assert_ok(replace("always", "B", 1, NULL));
    assert_int_equal(pthread_create(&thread, NULL, poll_topics, &reader), 0);
    while (replaced < 200 || atomic_load(&reader.rounds) < 200) {
        snprintf(other, sizeof other, "other-%u", replaced);
        enum tern_code code = replace("always", other, 2 + replaced++, NULL);
        if (code)
            atomic_fetch_add(&reader.missed, 1);
    }
    atomic_store(&reader.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&reader.missed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(replaced_table_has_the_given_version_and_keeps_the_own_topics),
        TEST(table_that_follows_keeps_its_version_until_it_ends),
        TEST(bad_replacement_changes_nothing),
        TEST(added_topics_are_the_brokers_own),
        TEST(replacement_that_fails_anywhere_leaves_the_old_table),
        TEST(what_becomes_durable_is_told),
        TEST(no_reader_ever_misses_a_topic_that_is_in_both_tables_MD_01),
    };
    return cmocka_run_group_tests_name("topics_replace", tests, NULL, NULL);
}
