/*
 * The classic loss (FI-01, F-3): two members of one group, one wants tag A, the other tag B. What
 * each setting of subscriptionConsistency makes of it, with real daemons and the library.
 */
#include <pthread.h>

#include <tern/tern.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { QUEUES = 4, EACH = 20 /* of each tag in each queue */, TOTAL = QUEUES * EACH };

static struct cluster cluster;
static struct wire wire;
static struct broker_set set;
static const char *namesrv;

static int start_all(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=16MiB",
                                               "flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@guard");
    namesrv = cluster.namesrv_list;
    return 0;
}

static int stop_all(void **state)
{
    (void)state;
    wire_close(&wire);
    cluster_down(&cluster);
    return 0;
}

/* ---- members ---- */

struct member {
    struct tern_push_consumer *consumer;
    pthread_mutex_t lock;
    size_t by_tag[2]; /* A, B */
    bool fails;       /* at the first time */
    bool seen[QUEUES][2 * EACH];
    size_t distinct[2];
};

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count, struct tern_consume_context *context)
{
    struct member *member = arg;
    int times = tern_message_reconsume_times(messages[0]);
    context->delay_level_when_next_consume = 1;
    assert_int_equal(count, 1);
    int tag = strcmp(tern_message_tag(messages[0]), "A") != 0;
    pthread_mutex_lock(&member->lock);
    member->by_tag[tag]++;
    int32_t queue = tern_message_queue_id(messages[0]);
    int64_t offset = tern_message_queue_offset(messages[0]);
    if (times == 0 && queue < QUEUES && offset < 2 * EACH && !member->seen[queue][offset]) {
        member->seen[queue][offset] = true;
        member->distinct[tag]++;
    }
    bool fails = member->fails && times == 0;
    pthread_mutex_unlock(&member->lock);
    return fails ? TERN_RECONSUME_LATER : TERN_CONSUME_SUCCESS;
}

static enum tern_code member_start(struct member *member, const char *group, const char *topic,
                                   const char *name, const char *expression, struct tern_error *err)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    *member = (struct member){.lock = PTHREAD_MUTEX_INITIALIZER};
    assert_ok(tern_consumer_options_namesrv(options, namesrv));
    assert_ok(tern_consumer_options_group(options, group));
    assert_ok(tern_consumer_options_instance(options, name));
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    assert_ok(tern_consumer_options_commit_interval_ms(options, 100));
    assert_ok(tern_push_consumer_create(options, &member->consumer, err));
    tern_consumer_options_destroy(options);
    assert_ok(tern_push_consumer_subscribe(member->consumer, topic, expression, err));
    assert_ok(tern_push_consumer_context_listener(member->consumer, on_messages, member));
    return tern_push_consumer_start(member->consumer, err);
}

static void member_set_fails(struct member *member, bool fails)
{
    pthread_mutex_lock(&member->lock);
    member->fails = fails;
    pthread_mutex_unlock(&member->lock);
}

static size_t member_got(struct member *member, int tag)
{
    pthread_mutex_lock(&member->lock);
    size_t got = member->by_tag[tag];
    pthread_mutex_unlock(&member->lock);
    return got;
}

/* Until it owns so many queues; its retry topic's one may be among them. */
static void await_queues(struct member *member, uint32_t least, uint32_t most)
{
    struct tern_consumer_stats stats = {.queues = UINT32_MAX};
    for (int64_t begin = now_ms(); now_ms() - begin < PATIENCE_MS; look_again_soon()) {
        tern_push_consumer_stats(member->consumer, &stats);
        if (stats.queues >= least && stats.queues <= most)
            return;
    }
    fail_msg("a member owns %u queues, not %u to %u", stats.queues, least, most);
}

static void await_got(struct member *member, int tag, size_t wanted)
{
    for (int64_t begin = now_ms(); now_ms() - begin < PATIENCE_MS; look_again_soon())
        if (member_got(member, tag) >= wanted)
            break;
    assert_int_equal(member_got(member, tag), wanted);
}

static void send_all(const char *topic)
{
    for (int i = 0; i < EACH; i++)
        for (int32_t q = 0; q < QUEUES; q++) {
            wire_send(&wire, topic, q, "a", "TAGS\001A");
            wire_send(&wire, topic, q, "b", "TAGS\001B");
        }
}

static void put_group(const char *group, const char *consistency)
{
    free(MQADMIN(&cluster, 0, "updateSubGroup", "-c", "DefaultCluster", "-g", group,
                 "--subscriptionConsistency", consistency));
}

/* ---- settings ---- */

/* F-3: half of each tag is lost, and it is said in every place */
static void warn_says_who_loses_what(void **state)
{
    struct member a;
    struct member b;
    (void)state;
    wire_make_topic(&wire, "Warn", QUEUES);
    put_group("G-warn", "warn");
    assert_ok(member_start(&a, "G-warn", "Warn", "wa", "A", NULL));
    await_queues(&a, QUEUES, QUEUES + 1);
    int64_t before = wire_status(&wire, "groupsSubscribingDifferently");
    assert_ok(member_start(&b, "G-warn", "Warn", "wb", "B", NULL));
    await_queues(&a, QUEUES / 2, QUEUES / 2 + 1);
    await_queues(&b, QUEUES / 2, QUEUES / 2 + 1);
    send_all("Warn");
    await_got(&a, 0, TOTAL / 2);
    await_got(&b, 1, TOTAL / 2);
    assert_int_equal(member_got(&a, 1) + member_got(&b, 0), 0);
    assert_int_equal(wire_status(&wire, "groupsSubscribingDifferently"), before + 1);
    assert_true(wire_status(&wire, "subscriptionDifferences") >= 1);
    assert_true(file_contains(cluster.broker.log, "subscriptions_differ group=G-warn topic=Warn"));
    char *out = MQADMIN(&cluster, 1, "subscriptionCheck", "-g", "G-warn", "--json");
    assert_contains(out, "\"expression\": \"A\"");
    assert_contains(out, "\"expression\": \"B\"");
    assert_contains(out, "@wa");
    free(out);
    out = MQADMIN(&cluster, 0, "consumerConnection", "-g", "G-warn", "-c", "DefaultCluster");
    assert_contains(out, "subscribe differently");
    free(out);
    tern_push_consumer_destroy(a.consumer);
    tern_push_consumer_destroy(b.consumer);
    free(MQADMIN(&cluster, 0, "subscriptionCheck", "-g", "G-warn"));
}

/* F-3: written otherwise is not different; the newcomer that differs does not start */
static void refuse_lets_no_newcomer_differ(void **state)
{
    struct member a;
    struct member b;
    struct member c;
    struct tern_error err = {.text = ""};
    Tern__Wire__PullRequest pull;
    (void)state;
    wire_make_topic(&wire, "Refuse", QUEUES);
    put_group("G-refuse", "refuse");
    assert_ok(member_start(&a, "G-refuse", "Refuse", "ra", "A || B", NULL));
    assert_ok(member_start(&b, "G-refuse", "Refuse", "rb", "B||A", &err));
    assert_int_equal(member_start(&c, "G-refuse", "Refuse", "rc", "C", &err),
                     TERN_SUBSCRIPTION_DIFFERS);
    assert_contains(err.text, "\"C\"");
    assert_contains(err.text, "subscriptionConsistency");
    tern_push_consumer_destroy(c.consumer);
    wire_fill_pull(&pull, "Refuse", 0, 0);
    pull.group = bytes_of_text("G-refuse");
    pull.expression = (char *)(uintptr_t) "C";
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_expect(&wire, &request, NULL, 0, CODE(SUBSCRIPTION_DIFFERS), "\"C\"");
    send_all("Refuse");
    for (int64_t begin = now_ms(); now_ms() - begin < PATIENCE_MS; look_again_soon())
        if (member_got(&a, 0) + member_got(&b, 0) == TOTAL &&
            member_got(&a, 1) + member_got(&b, 1) == TOTAL)
            break;
    assert_int_equal(member_got(&a, 0) + member_got(&b, 0), TOTAL);
    assert_int_equal(member_got(&a, 1) + member_got(&b, 1), TOTAL);
    tern_push_consumer_destroy(a.consumer);
    tern_push_consumer_destroy(b.consumer);
    free(MQADMIN(&cluster, 0, "subscriptionCheck"));
}

/* F-3: each gets all that it asked for, also after it asks for something else */
static void isolate_gives_each_what_it_asked_for(void **state)
{
    struct member a;
    struct member b;
    (void)state;
    wire_make_topic(&wire, "Isolate", QUEUES);
    put_group("G-isolate", "isolate");
    assert_ok(member_start(&a, "G-isolate", "Isolate", "ia", "A", NULL));
    assert_ok(member_start(&b, "G-isolate", "Isolate", "ib", "B", NULL));
    await_queues(&a, QUEUES, QUEUES + 1);
    await_queues(&b, QUEUES, QUEUES + 1);
    send_all("Isolate");
    await_got(&a, 0, TOTAL);
    await_got(&b, 1, TOTAL);
    assert_int_equal(member_got(&a, 1) + member_got(&b, 0), 0);
    char *progress = NULL;
    for (int64_t begin = now_ms(); now_ms() - begin < PATIENCE_MS; look_again_soon()) {
        free(progress);
        progress =
            MQADMIN(&cluster, 0, "consumerProgress", "-g", "G-isolate", "-t", "Isolate", "--json");
        if (strstr(progress, "\"consumerOffset\": 40"))
            break;
    }
    assert_contains(progress, "\"cohort\": \"G-isolate%");
    assert_null(strstr(progress, "\"consumerOffset\": -1")); /* only cohorts have progress */
    free(progress);
    char *why = MQADMIN(&cluster, 0, "why", "-g", "G-isolate");
    assert_null(strstr(why, "lost to the group"));
    assert_null(strstr(why, "no member has pulled"));
    free(why);
    /* From now on it wants both: a cohort of its own, which begins where the group stood, at the
     * beginning. */
    assert_ok(tern_push_consumer_subscribe(a.consumer, "Isolate", "A || B", NULL));
    await_got(&a, 1, TOTAL);
    assert_true(member_got(&a, 0) >= TOTAL);
    assert_int_equal(member_got(&b, 1), TOTAL);
    tern_push_consumer_destroy(a.consumer);
    tern_push_consumer_destroy(b.consumer);
}

/* A change of something else must not take the setting back: half would be lost again */
static void other_settings_leave_the_consistency_as_it_is(void **state)
{
    (void)state;
    put_group("G-kept", "isolate");
    char *out =
        MQADMIN(&cluster, 0, "updateSubGroup", "-c", "DefaultCluster", "-g", "G-kept", "-r", "3");
    assert_contains(out, "subscriptionConsistency=isolate");
    free(out);
    out = MQADMIN(&cluster, 0, "getConsumerConfig", "-g", "G-kept", "--json");
    assert_contains(out, "\"retryMaxTimes\": 3");
    assert_contains(out, "\"subscriptionConsistency\": \"isolate\"");
    free(out);
    put_group("G-kept", "warn");
    out = MQADMIN(&cluster, 0, "getConsumerConfig", "-g", "G-kept");
    assert_contains(out, "warn");
    free(out);
}

/* Members that subscribe alike share their cohort's queues and progress */
static void cohorts_share_queues_among_their_members(void **state)
{
    struct member a[2];
    struct member b;
    (void)state;
    wire_make_topic(&wire, "Cohorts", QUEUES);
    put_group("G-cohorts", "isolate");
    assert_ok(member_start(&a[0], "G-cohorts", "Cohorts", "ca", "A", NULL));
    assert_ok(member_start(&a[1], "G-cohorts", "Cohorts", "cb", "A", NULL));
    assert_ok(member_start(&b, "G-cohorts", "Cohorts", "cc", "B", NULL));
    await_queues(&a[0], QUEUES / 2, QUEUES / 2 + 1);
    await_queues(&a[1], QUEUES / 2, QUEUES / 2 + 1);
    await_queues(&b, QUEUES, QUEUES + 1);
    send_all("Cohorts");
    await_got(&a[0], 0, TOTAL / 2);
    await_got(&a[1], 0, TOTAL / 2);
    await_got(&b, 1, TOTAL);
    for (int i = 0; i < 2; i++)
        tern_push_consumer_destroy(a[i].consumer);
    tern_push_consumer_destroy(b.consumer);
}

/* What failed comes again where it failed, and to nobody else, whatever they want */
static void retries_come_to_the_cohort_where_it_failed(void **state)
{
    struct member a;
    struct member b;
    struct member both;
    (void)state;
    wire_make_topic(&wire, "Retries", QUEUES);
    put_group("G-retries", "isolate");
    assert_ok(member_start(&a, "G-retries", "Retries", "ra", "A", NULL));
    assert_ok(member_start(&b, "G-retries", "Retries", "rb", "B", NULL));
    assert_ok(member_start(&both, "G-retries", "Retries", "rc", "A || B", NULL));
    member_set_fails(&a, true);
    member_set_fails(&b, true);
    await_queues(&a, QUEUES + 1, QUEUES + 1);
    await_queues(&b, QUEUES + 1, QUEUES + 1);
    await_queues(&both, QUEUES + 1, QUEUES + 1);
    for (int32_t q = 0; q < QUEUES; q++) {
        wire_send(&wire, "Retries", q, "a", "TAGS\001A");
        wire_send(&wire, "Retries", q, "b", "TAGS\001B");
    }
    await_got(&a, 0, 2 * (size_t)QUEUES);
    await_got(&b, 1, 2 * (size_t)QUEUES);
    await_got(&both, 0, QUEUES);
    await_got(&both, 1, QUEUES);
    assert_int_equal(member_got(&a, 1) + member_got(&b, 0), 0);
    /* A retry that no cohort owns comes to who subscribes to it. */
    member_set_fails(&a, false);
    wire_send(&wire, "%RETRY%G-retries", 0, "a", "TAGS\001A\002RETRY_TOPIC\001Retries");
    await_got(&a, 0, 2 * (size_t)QUEUES + 1);
    await_got(&both, 0, (size_t)QUEUES + 1);
    assert_int_equal(member_got(&a, 1) + member_got(&b, 0), 0);
    /* One whose cohort has gone meanwhile, too. */
    member_set_fails(&a, true);
    wire_send(&wire, "Retries", 0, "a", "TAGS\001A");
    await_got(&a, 0, 2 * (size_t)QUEUES + 2);
    tern_push_consumer_destroy(a.consumer);
    await_got(&both, 0, (size_t)QUEUES + 3);
    assert_int_equal(member_got(&b, 0), 0);
    tern_push_consumer_destroy(b.consumer);
    tern_push_consumer_destroy(both.consumer);
}

static size_t member_distinct(struct member *member, int tag)
{
    pthread_mutex_lock(&member->lock);
    size_t distinct = member->distinct[tag];
    pthread_mutex_unlock(&member->lock);
    return distinct;
}

static void await_distinct(struct member *member, int tag, size_t wanted)
{
    for (int64_t begin = now_ms(); now_ms() - begin < PATIENCE_MS; look_again_soon())
        if (member_distinct(member, tag) >= wanted)
            break;
    assert_int_equal(member_distinct(member, tag), wanted);
}

/* The slave serves each cohort what it asked for, from where it stood, and the master after it */
static void cohorts_go_on_over_a_failover(void **state)
{
    static struct member a;
    static struct member b;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    namesrv = set.namesrv_list;
    free(SET_MQADMIN(&set, 0, "updateTopic", "-c", "DefaultCluster", "-t", "Failing", "-r", "4",
                     "-w", "4"));
    free(SET_MQADMIN(&set, 0, "updateSubGroup", "-c", "DefaultCluster", "-g", "G-failing",
                     "--subscriptionConsistency", "isolate"));
    assert_ok(member_start(&a, "G-failing", "Failing", "fa", "A", NULL));
    assert_ok(member_start(&b, "G-failing", "Failing", "fb", "B", NULL));
    await_queues(&a, QUEUES, QUEUES + 1);
    await_queues(&b, QUEUES, QUEUES + 1);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < EACH / 2; i++)
            for (int32_t q = 0; q < QUEUES; q++) {
                wire_send(set_wire(&set, 0), "Failing", q, "a", "TAGS\001A");
                wire_send(set_wire(&set, 0), "Failing", q, "b", "TAGS\001B");
            }
        if (half == 0)
            await_distinct(&a, 0, TOTAL / 2);
    }
    set_kill(&set, 0);
    await_distinct(&a, 0, TOTAL);
    await_distinct(&b, 1, TOTAL);
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
    wire_send(set_wire(&set, 0), "Failing", 0, "a", "TAGS\001A");
    wire_send(set_wire(&set, 0), "Failing", 0, "b", "TAGS\001B");
    size_t before = member_got(&a, 0);
    for (int64_t begin = now_ms(); now_ms() - begin < PATIENCE_MS; look_again_soon())
        if (member_got(&a, 0) > before && member_got(&b, 1) > TOTAL)
            break;
    assert_true(member_got(&b, 1) > TOTAL);
    assert_int_equal(member_got(&a, 1) + member_got(&b, 0), 0);
    tern_push_consumer_destroy(a.consumer);
    tern_push_consumer_destroy(b.consumer);
    set_down(&set);
    namesrv = cluster.namesrv_list;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warn_says_who_loses_what),
        cmocka_unit_test(refuse_lets_no_newcomer_differ),
        cmocka_unit_test(isolate_gives_each_what_it_asked_for),
        cmocka_unit_test(other_settings_leave_the_consistency_as_it_is),
        cmocka_unit_test(retries_come_to_the_cohort_where_it_failed),
        cmocka_unit_test(cohorts_go_on_over_a_failover),
        cmocka_unit_test(cohorts_share_queues_among_their_members),
    };
    return cmocka_run_group_tests(tests, start_all, stop_all);
}
