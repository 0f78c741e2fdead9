/*
 * A broker's tables (topics, progress) that are damaged or say too much when it starts: one
 * generation is as good as two, nothing is forgotten or deleted, and what was changed is logged.
 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum damage { EMPTY, ZEROS, HALF, GARBAGE, DAMAGES };

static void damage_file(const char *path, enum damage damage)
{
    size_t size;
    char *text = file_read(path, &size);
    switch (damage) {
    case EMPTY:
        size = 0;
        break;
    case ZEROS:
        memset(text, 0, size);
        break;
    case HALF:
        size /= 2;
        break;
    default:
        for (size_t i = 0; i < size; i++)
            text[i] = (char)(text[i] ^ 0x55);
    }
    file_write(path, text, size);
    free(text);
}

static void commit(struct wire *wire, int64_t offset)
{
    Tern__Wire__CommitOffset commit = TERN__WIRE__COMMIT_OFFSET__INIT;
    Tern__Wire__CommitOffset *commits[] = {&commit};
    Tern__Wire__CommitOffsetRequest body = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    body.group = bytes_of_text("G");
    commit.topic = bytes_of_text("T");
    commit.offset = offset;
    body.commits = commits;
    body.n_commits = 1;
    WIRE_REQUEST(request, COMMIT_OFFSET, commit_offset, &body);
    wire_expect(wire, &request, NULL, 0, CODE(SUCCESS), NULL);
}

static int64_t progress(struct wire *wire)
{
    Tern__Wire__QueryOffsetRequest body = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    body.group = bytes_of_text("G");
    body.topic = bytes_of_text("T");
    WIRE_REQUEST(request, QUERY_OFFSET, query_offset, &body);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    int64_t offset =
        call->response->code == CODE(SUCCESS) ? call->response->query_offset->offset : -1;
    rpc_call_unref(call);
    return offset;
}

/* A stopped broker with a message in T, group G at 1, and two generations of each table. */
static void tables_up(struct cluster *cluster)
{
    struct wire wire;
    cluster_up_alone(cluster, (const char *const[]){"flushConsumerOffsetInterval=100", NULL});
    wire_open(&wire, cluster->broker.address, "127.0.0.1@tables");
    wire_make_topic(&wire, "T", 1);
    for (int i = 0; i < 3; i++)
        wire_send(&wire, "T", 0, "x", NULL);
    wire_await_offset(&wire, "T", 0, 3);
    commit(&wire, 1);
    wire_make_topic(&wire, "Later", 1);
    wire_close(&wire);
    assert_int_equal(daemon_stop(&cluster->broker, SIGTERM), 0);
    cluster_start_broker(cluster);
    wire_open(&wire, cluster->broker.address, "127.0.0.1@tables");
    commit(&wire, 2);
    wire_close(&wire);
    assert_int_equal(daemon_stop(&cluster->broker, SIGTERM), 0);
}

static const char *const tables[] = {"config/topics.json", "config/consumerOffset.json"};

/* ST-20: starts from the other generation and says so */
static void damaged_table_is_replaced_by_its_other_generation_with_a_warning(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        for (int damage = 0; damage < DAMAGES; damage++) {
            struct cluster cluster;
            struct wire wire;
            char path[DAEMON_PATH_BYTES];
            tables_up(&cluster);
            damage_file(store_file(&cluster, tables[i], path), (enum damage)damage);
            assert_int_equal(truncate(cluster.broker.log, 0), 0);
            cluster_start_broker(&cluster);
            assert_true(file_contains(cluster.broker.log, "WARN"));
            assert_true(file_contains(cluster.broker.log, tables[i]));
            wire_open(&wire, cluster.broker.address, "127.0.0.1@after");
            wire_expect_readable(&wire, 3);
            assert_in_range(progress(&wire), 1, 2); /* the last commit, or the one before */
            wire_close(&wire);
            cluster_down(&cluster);
        }
    }
}

/* ST-04: no topic is forgotten, no data deleted; the good file put back, it starts */
static void table_with_both_generations_damaged_is_refused_and_nothing_deleted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct cluster cluster;
        struct wire wire;
        char path[DAEMON_PATH_BYTES], backup[DAEMON_PATH_BYTES + 8];
        size_t size;
        tables_up(&cluster);
        store_file(&cluster, tables[i], path);
        snprintf(backup, sizeof backup, "%s.bak", path);
        char *good = file_read(path, &size);
        damage_file(path, ZEROS);
        damage_file(backup, HALF);
        size_t files = files_below(cluster.store, "");
        cluster_spawn_broker(&cluster);
        assert_false(daemon_wait_ready(&cluster.broker));
        assert_int_equal(daemon_wait(&cluster.broker, PATIENCE_MS), 1);
        assert_true(file_contains(cluster.broker.log, path));
        assert_true(files_below(cluster.store, "") >= files);
        file_write(path, good, size);
        free(good);
        cluster_start_broker(&cluster);
        wire_open(&wire, cluster.broker.address, "127.0.0.1@after");
        wire_expect_readable(&wire, 3);
        assert_int_equal(progress(&wire), 2);
        wire_close(&wire);
        cluster_down(&cluster);
    }
}

/* ST-06: progress beyond what the log holds would pass messages that are still to come */
static void progress_beyond_the_log_is_lowered_and_logged(void **state)
{
    static const char ahead[] = "{\"offsetTable\":{\"T@G\":{0:1000}}}";
    struct cluster cluster;
    struct wire wire;
    char path[DAEMON_PATH_BYTES];
    (void)state;
    tables_up(&cluster);
    file_write(store_file(&cluster, "config/consumerOffset.json", path), ahead, sizeof ahead - 1);
    cluster_start_broker(&cluster);
    assert_true(file_contains(cluster.broker.log, "offsets_lowered"));
    wire_open(&wire, cluster.broker.address, "127.0.0.1@after");
    assert_int_equal(progress(&wire), 3);
    wire_close(&wire);
    cluster_down(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_table_is_replaced_by_its_other_generation_with_a_warning),
        cmocka_unit_test(table_with_both_generations_damaged_is_refused_and_nothing_deleted),
        cmocka_unit_test(progress_beyond_the_log_is_lowered_and_logged),
    };
    return cmocka_run_group_tests_name("tables", tests, NULL, NULL);
}
