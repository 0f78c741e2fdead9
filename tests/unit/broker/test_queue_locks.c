/* Leases of queues, and their copies on the other members of a set. */
#include "tests/unit/broker/broker_unit.h"

#include "base/clock.h"
#include "broker/queue_locks.h"

static struct sim_env sim;
static struct queue_locks *master, *slave;

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 41);
    assert_ok(queue_locks_create(&sim.env, &master));
    assert_ok(queue_locks_create(&sim.env, &slave));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    queue_locks_destroy(master);
    queue_locks_destroy(slave);
    sim_env_fini(&sim);
    return 0;
}

static enum queue_lock_result lock(struct queue_locks *locks, int32_t queue, const char *client,
                                   bool grant_new)
{
    return queue_locks_lock(locks, "G", "T", queue, client, grant_new);
}

/* "" when nobody holds it. */
static const char *owner(struct queue_locks *locks, int32_t queue)
{
    static char client[CLIENT_ID_MAX + 1];
    int64_t remaining_ms;
    if (!queue_locks_owner(locks, "G", "T", queue, client, &remaining_ms))
        return "";
    assert_in_range(remaining_ms, 0, QUEUE_LOCK_LEASE_MS);
    return client;
}

static void pass_ms(int64_t ms)
{
    sim_run_for(sim.sched, ms_to_ns(ms));
}

static bool merge_one(void *arg, const struct queue_lock_change *change)
{
    assert_ok(queue_locks_merge(arg, change));
    return true;
}

static void sync_locks(struct queue_locks *from, struct queue_locks *to)
{
    queue_locks_changes(from, 0, UINT64_MAX, 1000, false, merge_one, to);
}

static bool merge_late(void *arg, const struct queue_lock_change *change)
{
    pass_ms(5);
    return merge_one(arg, change);
}

static void sync_slowly(struct queue_locks *from, struct queue_locks *to)
{
    queue_locks_changes(from, 0, UINT64_MAX, 1000, false, merge_late, to);
}

static void another_group_topic_or_queue_is_another_lock(void **state)
{
    (void)state;
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    assert_int_equal(lock(master, 0, "c2", true), QUEUE_LOCK_OTHERS);
    assert_int_equal(lock(master, 1, "c2", true), QUEUE_LOCKED);
    assert_int_equal(queue_locks_lock(master, "H", "T", 0, "c2", true), QUEUE_LOCKED);
    assert_int_equal(queue_locks_lock(master, "G", "U", 0, "c2", true), QUEUE_LOCKED);
    queue_locks_unlock(master, "G", "T", 0, "c2");
    assert_string_equal(owner(master, 0), "c1");
    queue_locks_unlock(master, "G", "T", 0, "c1");
    assert_string_equal(owner(master, 0), "");
}

static void only_known_owners_are_renewed_where_nothing_new_is_granted(void **state)
{
    (void)state;
    assert_int_equal(lock(master, 0, "c1", false), QUEUE_LOCK_NOT_NEW);
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    pass_ms(50000);
    assert_int_equal(lock(master, 0, "c1", false), QUEUE_LOCKED);
    pass_ms(50000);
    assert_string_equal(owner(master, 0), "c1");
    pass_ms(10001);
    assert_int_equal(lock(master, 0, "c1", false), QUEUE_LOCK_NOT_NEW); /* its lease is over */
}

static void ended_leases_make_room(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 1000; i++)
        assert_int_equal(lock(master, i, "c1", true), QUEUE_LOCKED);
    pass_ms(2 * QUEUE_LOCK_LEASE_MS + 1); /* a lease, and one more for the count of tries */
    for (int32_t i = 0; i < 600; i++)
        assert_int_equal(lock(master, 5000 + i % 10, "c2", true), QUEUE_LOCKED);
    assert_int_equal(queue_locks_count(master), 10);
}

static void slave_knows_the_owners_and_how_long(void **state)
{
    (void)state;
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    pass_ms(20000);
    sync_locks(master, slave);
    assert_string_equal(owner(slave, 0), "c1");
    assert_int_equal(lock(slave, 0, "c2", true), QUEUE_LOCK_OTHERS);
    pass_ms(40001);
    assert_string_equal(owner(slave, 0), "");
}

static void release_and_next_owner_reach_the_slave(void **state)
{
    (void)state;
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    assert_int_equal(lock(master, 1, "c1", true), QUEUE_LOCKED);
    sync_locks(master, slave);
    queue_locks_unlock(master, "G", "T", 0, "c1");
    queue_locks_unlock(master, "G", "T", 1, "c1");
    assert_int_equal(lock(master, 1, "c2", true), QUEUE_LOCKED);
    sync_locks(master, slave);
    assert_string_equal(owner(slave, 0), "");
    assert_string_equal(owner(slave, 1), "c2");
}

static void owner_who_locked_here_wins_until_the_lease_ends(void **state)
{
    (void)state;
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    assert_int_equal(lock(slave, 0, "c2", true), QUEUE_LOCKED);
    sync_locks(slave, master);
    assert_string_equal(owner(master, 0), "c1");
    pass_ms(30000);
    assert_int_equal(lock(slave, 0, "c2", false), QUEUE_LOCKED);
    pass_ms(30001);
    sync_locks(slave, master);
    assert_string_equal(owner(master, 0), "c2");
}

static void longer_lease_of_the_same_client_counts_and_does_not_go_to_and_fro(void **state)
{
    (void)state;
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    sync_locks(master, slave);
    pass_ms(40000);
    assert_int_equal(lock(slave, 0, "c1", false), QUEUE_LOCKED); /* the master was away */
    sync_locks(slave, master);
    pass_ms(40000);
    assert_string_equal(owner(master, 0), "c1");
    struct change_counter shared = {.last = 0};
    queue_locks_share_counter(master, &shared);
    uint64_t before = shared.last;
    for (int i = 0; i < 10; i++) { /* each way takes its time, and the lease seems longer */
        sync_slowly(slave, master);
        sync_slowly(master, slave);
    }
    assert_true(shared.last == before);
}

struct listing {
    uint32_t count;
    uint64_t last;
};

static bool list(void *arg, const struct queue_lock_change *change)
{
    struct listing *listing = arg;
    assert_true(change->number > listing->last);
    assert_in_range(change->remaining_ms, 1, QUEUE_LOCK_LEASE_MS);
    listing->last = change->number;
    listing->count++;
    return true;
}

static void changes_are_bounded_go_on_and_end_at_the_number_asked_for(void **state)
{
    (void)state;
    struct listing all = {0}, none = {0}, upto = {0}, merged = {0};
    for (int32_t i = 0; i < 100; i++)
        assert_int_equal(lock(master, i, "c1", true), QUEUE_LOCKED);
    uint64_t to = 0;
    for (int i = 0; i < 5; i++)
        to = queue_locks_changes(master, to, UINT64_MAX, 25, false, list, &all);
    assert_int_equal(all.count, 100);
    assert_true(to == 100);
    assert_true(queue_locks_changes(master, 0, 40, 1000, false, list, &upto) == 40);
    assert_int_equal(upto.count, 40);
    sync_locks(master, slave);
    assert_true(queue_locks_changes(slave, 0, UINT64_MAX, 1000, true, list, &merged) == 100);
    assert_int_equal(merged.count, 0);
    pass_ms(QUEUE_LOCK_LEASE_MS + 1);
    assert_true(queue_locks_changes(master, 0, UINT64_MAX, 1000, false, list, &none) == 100);
    assert_int_equal(none.count, 0);
}

static void forgotten_locks_are_free(void **state)
{
    (void)state;
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    queue_locks_forget(master);
    assert_int_equal(queue_locks_count(master), 0);
    assert_int_equal(lock(master, 0, "c2", true), QUEUE_LOCKED);
}

static void table_is_bounded_and_still_renews(void **state)
{
    (void)state;
    char topic[32];
    for (int i = 0; i < QUEUE_LOCKS_MAX; i++) {
        snprintf(topic, sizeof topic, "T%d", i / 1000);
        assert_int_equal(queue_locks_lock(master, "G", topic, i % 1000, "c", true), QUEUE_LOCKED);
    }
    assert_int_equal(lock(master, 0, "c", true), QUEUE_LOCK_FULL);
    assert_int_equal(queue_locks_lock(master, "G", "T5", 5, "c", true), QUEUE_LOCKED);
}

/* RO-01: whoever has the queue next goes on counting; also at a slave. */
static void failed_tries_reach_the_next_owner(void **state)
{
    (void)state;
    const struct queue_lock_claim three = {.has_tries = true, .tries_offset = 5, .tries = 3};
    struct queue_lock_answer answer;
    assert_int_equal(queue_locks_claim(master, "G", "T", 0, "c1", true, NULL, &answer),
                     QUEUE_LOCKED);
    assert_int_equal(answer.tries, 0);
    assert_int_equal(queue_locks_claim(master, "G", "T", 0, "c1", true, &three, &answer),
                     QUEUE_LOCKED);
    sync_locks(master, slave);
    /* Somebody else's word does not count. */
    const struct queue_lock_claim lie = {.has_tries = true, .tries_offset = 9, .tries = 9};
    assert_int_equal(queue_locks_claim(master, "G", "T", 0, "c2", true, &lie, &answer),
                     QUEUE_LOCK_OTHERS);
    assert_in_range(answer.remaining_ms, 1, QUEUE_LOCK_LEASE_MS);
    queue_locks_release(master, "G", "T", 0, "c2", &lie);
    queue_locks_release(master, "G", "T", 0, "c1", NULL);
    assert_int_equal(queue_locks_claim(master, "G", "T", 0, "c2", true, &lie, &answer),
                     QUEUE_LOCKED);
    assert_int_equal(answer.tries_offset, 5);
    assert_int_equal(answer.tries, 3);
    pass_ms(QUEUE_LOCK_LEASE_MS + 1000); /* nobody said that it ended */
    assert_int_equal(queue_locks_claim(slave, "G", "T", 0, "c3", true, NULL, &answer),
                     QUEUE_LOCKED);
    assert_int_equal(answer.tries_offset, 5);
    assert_int_equal(answer.tries, 3);
}

/* D-3: who held a queue before the broker was restarted comes before those who want it. */
static void restarted_broker_gives_queues_to_their_owners_first(void **state)
{
    (void)state;
    const struct queue_lock_claim held = {.held = true};
    struct queue_lock_answer answer;
    queue_locks_await_claims(master);
    assert_int_equal(queue_locks_claim(master, "G", "T", 0, "c2", true, NULL, &answer),
                     QUEUE_LOCK_NOT_NEW);
    assert_int_equal(answer.remaining_ms, QUEUE_LOCK_CLAIMS_MS);
    assert_int_equal(queue_locks_claim(master, "G", "T", 0, "c1", true, &held, &answer),
                     QUEUE_LOCKED);
    queue_locks_unlock(master, "G", "T", 0, "c1"); /* granted since, and given back */
    assert_int_equal(lock(master, 0, "c2", true), QUEUE_LOCKED);
    /* A copy of a release says nothing of who was granted the queue after it. */
    assert_int_equal(lock(slave, 2, "c1", true), QUEUE_LOCKED);
    queue_locks_unlock(slave, "G", "T", 2, "c1");
    sync_locks(slave, master);
    assert_int_equal(lock(master, 2, "c2", true), QUEUE_LOCK_NOT_NEW);
    pass_ms(QUEUE_LOCK_CLAIMS_MS);
    assert_int_equal(lock(master, 2, "c2", true), QUEUE_LOCKED);
    queue_locks_unlock(master, "G", "T", 0, "c2");
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCKED);
    assert_int_equal(queue_locks_claim(master, "G", "T", 0, "c2", true, &held, &answer),
                     QUEUE_LOCK_OTHERS);
    assert_int_equal(queue_locks_claim(master, "G", "T", 1, "c2", true, NULL, &answer),
                     QUEUE_LOCKED);
}

/* ---- grants ---- */

static int64_t take(struct queue_locks *locks, const char *client, int64_t renews)
{
    const struct queue_lock_claim claim = {.held = renews > 0, .grant = renews};
    struct queue_lock_answer answer;
    assert_int_equal(
        queue_locks_claim(locks, "G", "T", 0, client, QUEUE_LOCK_GRANTS_ALL, &claim, &answer),
        QUEUE_LOCKED);
    assert_true(answer.grant > 0);
    return answer.grant;
}

static void give_back(struct queue_locks *locks, const char *client, int64_t grant, bool first)
{
    const struct queue_lock_claim claim = {.held = first, .grant = grant};
    queue_locks_release(locks, "G", "T", 0, client, &claim);
}

static enum queue_lock_result hand_on(struct queue_locks *locks, const char *client)
{
    return queue_locks_claim(locks, "G", "T", 0, client, QUEUE_LOCK_GRANTS_FREED, NULL, NULL);
}

static void each_grant_has_a_higher_number_and_renewing_keeps_it(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    assert_true(take(master, "c1", one) == one);
    int64_t two = take(master, "c1", 0); /* a new object of the same client */
    assert_true(two > one);
    give_back(master, "c1", two, true);
    assert_true(take(master, "c2", 0) > two);
    queue_locks_forget(master); /* restarted */
    pass_ms(1000);
    assert_true(take(master, "c1", 0) > two);
}

static void late_release_frees_no_later_grant(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    int64_t two = take(master, "c1", 0);
    give_back(master, "c1", one, true);
    assert_string_equal(owner(master, 0), "c1");
    give_back(master, "c1", two, true);
    assert_string_equal(owner(master, 0), "");
    take(master, "c2", 0);
    give_back(master, "c1", two, false);
    assert_string_equal(owner(master, 0), "c2");
    int64_t four = take(master, "c2", 0);
    give_back(master, "c2", four, true);
    take(master, "c1", 0);
    give_back(master, "c1", two, false);
    assert_string_equal(owner(master, 0), "c1");
}

/* Else a number could be so high that no grant ever rises above it. */
static void release_of_what_nobody_can_have_granted_keeps_no_grant_from_rising(void **state)
{
    (void)state;
    give_back(master, "c1", INT64_MAX, true);
    int64_t one = take(master, "c1", 0);
    give_back(master, "c1", INT64_MAX, true);
    assert_string_equal(owner(master, 0), ""); /* it was its own */
    int64_t two = take(master, "c2", 0);
    assert_true(two > one);
    give_back(master, "c2", two, true);
    assert_true(take(master, "c2", 0) > two);
}

static void renewal_that_its_release_overtook_takes_nothing(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    give_back(master, "c1", one, true);
    const struct queue_lock_claim late = {.held = true, .grant = one};
    assert_int_equal(
        queue_locks_claim(master, "G", "T", 0, "c1", QUEUE_LOCK_GRANTS_ALL, &late, NULL),
        QUEUE_LOCK_NOT_NEW);
    take(master, "c2", 0);
}

/* The renewal is under way when its owner gives the queue back, naming what it knows of: a broker
 * that does not know the lock any more goes on with that number. */
static void release_beside_a_renewal_frees_what_the_renewal_brought_back(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    queue_locks_forget(master); /* restarted */
    pass_ms(1000);
    assert_true(take(master, "c1", one) == one); /* not heard of */
    give_back(master, "c1", one, true);
    assert_string_equal(owner(master, 0), "");
    int64_t two = take(master, "c2", 0);
    pass_ms(QUEUE_LOCK_LEASE_MS + 1); /* known, and ended */
    assert_true(take(master, "c2", two) == two);
    give_back(master, "c2", two, true);
    assert_string_equal(owner(master, 0), "");
}

/* Its number is no room for those to come. */
static void renewal_of_what_nobody_can_have_granted_is_a_grant_anew(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", INT64_MAX);
    assert_true(one < INT64_MAX);
    give_back(master, "c1", one, true);
    assert_true(take(master, "c2", 0) > one);
}

/* … neither when the client has got the queue anew, nor when others had it meanwhile. */
static void late_renewal_of_an_older_grant_keeps_no_queue(void **state)
{
    (void)state;
    const struct queue_lock_claim failed = {.held = true, .has_tries = true, .tries = 7};
    struct queue_lock_claim late = failed;
    struct queue_lock_answer answer;
    int64_t one = late.grant = take(master, "c1", 0);
    int64_t two = take(master, "c1", 0); /* a new object of the same client */
    assert_int_equal(
        queue_locks_claim(master, "G", "T", 0, "c1", QUEUE_LOCK_GRANTS_ALL, &late, &answer),
        QUEUE_LOCKED);
    assert_true(answer.grant == two);
    assert_int_equal(answer.tries, 0); /* that was another time */
    give_back(master, "c1", two, true);
    assert_string_equal(owner(master, 0), "");
    int64_t three = take(master, "c2", 0);
    give_back(master, "c2", three, true);
    late.grant = one;
    assert_int_equal(
        queue_locks_claim(master, "G", "T", 0, "c1", QUEUE_LOCK_GRANTS_ALL, &late, &answer),
        QUEUE_LOCK_OTHERS);
    assert_string_equal(owner(master, 0), "");
    assert_true(take(master, "c1", 0) > three); /* as a new object asks */
}

/* The release was told to the slave: no copy of before brings the lock back, and the owner's own
 * master gives way. */
static void release_is_overtaken_by_no_older_copy(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    sync_locks(master, slave);
    give_back(slave, "c1", one, false);
    sync_locks(master, slave);
    assert_string_equal(owner(slave, 0), "");
    sync_locks(slave, master);
    assert_string_equal(owner(master, 0), "");
    take(master, "c2", 0);
    sync_locks(slave, master); /* told twice */
    assert_string_equal(owner(master, 0), "c2");
}

/* … also not at a broker that was restarted meanwhile, or does not know of that grant yet. */
static void release_is_kept_where_nothing_is_known(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    sync_locks(master, slave);
    queue_locks_forget(master);
    queue_locks_await_claims(master);
    give_back(master, "c1", one, false);
    sync_locks(slave, master);
    assert_string_equal(owner(master, 0), "");
    assert_int_equal(lock(master, 0, "c2", true), QUEUE_LOCK_NOT_NEW); /* others may claim it */
    pass_ms(QUEUE_LOCK_CLAIMS_MS);
    int64_t two = take(master, "c2", 0);
    give_back(slave, "c2", two, true); /* the slave still thinks of c1: not its to free */
    assert_string_equal(owner(slave, 0), "c1");
    pass_ms(QUEUE_LOCK_LEASE_MS);
    give_back(slave, "c2", two, true);
    sync_locks(master, slave);
    assert_string_equal(owner(slave, 0), "");
}

static void slave_hands_on_what_its_owner_gave_back_first(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    sync_locks(master, slave);
    pass_ms(20000);
    assert_int_equal(hand_on(slave, "c2"), QUEUE_LOCK_OTHERS);
    give_back(slave, "c1", one, true);
    assert_int_equal(lock(slave, 0, "c2", false), QUEUE_LOCK_NOT_NEW);
    assert_int_equal(hand_on(slave, "c2"), QUEUE_LOCKED);
    assert_int_equal(hand_on(slave, "c3"), QUEUE_LOCK_OTHERS);
    queue_locks_forget(master);
    sync_locks(slave, master); /* it is back, and knows */
    assert_int_equal(lock(master, 0, "c3", true), QUEUE_LOCK_OTHERS);
}

/* … and a master that lived all the time, and still holds the lock, believes it. */
static void master_that_lived_takes_what_was_handed_on(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    sync_locks(master, slave);
    pass_ms(20000);
    give_back(slave, "c1", one, true);
    assert_int_equal(hand_on(slave, "c2"), QUEUE_LOCKED);
    sync_locks(slave, master);
    assert_string_equal(owner(master, 0), "c2");
    assert_int_equal(lock(master, 0, "c1", true), QUEUE_LOCK_OTHERS);
    sync_locks(master, slave);
    assert_string_equal(owner(slave, 0), "c2");
    /* Of a grant that nobody is known to have given back the owner is kept. */
    assert_int_equal(lock(master, 0, "c2", true), QUEUE_LOCKED);
    queue_locks_forget(slave);
    assert_true(take(slave, "c3", 0) > 0);
    sync_locks(slave, master);
    assert_string_equal(owner(master, 0), "c2");
}

static void slave_hands_on_nothing_that_others_may_have(void **state)
{
    (void)state;
    int64_t one = take(master, "c1", 0);
    sync_locks(master, slave);
    give_back(slave, "c1", one, false); /* another broker was told, and may have granted it */
    assert_int_equal(hand_on(slave, "c2"), QUEUE_LOCK_NOT_NEW);

    pass_ms(2 * QUEUE_LOCK_LEASE_MS);
    queue_locks_forget(master);
    queue_locks_forget(slave);
    int64_t two = take(master, "c1", 0);
    sync_locks(master, slave);
    pass_ms(40000); /* renewed here alone: by the master's account it ends 20 s from now */
    assert_true(take(slave, "c1", two) == two);
    give_back(slave, "c1", two, true);
    pass_ms(16000);
    assert_int_equal(hand_on(slave, "c2"), QUEUE_LOCK_NOT_NEW);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_group_topic_or_queue_is_another_lock),
        TEST(only_known_owners_are_renewed_where_nothing_new_is_granted),
        TEST(ended_leases_make_room),
        TEST(slave_knows_the_owners_and_how_long),
        TEST(release_and_next_owner_reach_the_slave),
        TEST(owner_who_locked_here_wins_until_the_lease_ends),
        TEST(longer_lease_of_the_same_client_counts_and_does_not_go_to_and_fro),
        TEST(changes_are_bounded_go_on_and_end_at_the_number_asked_for),
        TEST(forgotten_locks_are_free),
        TEST(table_is_bounded_and_still_renews),
        TEST(failed_tries_reach_the_next_owner),
        TEST(each_grant_has_a_higher_number_and_renewing_keeps_it),
        TEST(late_release_frees_no_later_grant),
        TEST(release_of_what_nobody_can_have_granted_keeps_no_grant_from_rising),
        TEST(renewal_that_its_release_overtook_takes_nothing),
        TEST(release_beside_a_renewal_frees_what_the_renewal_brought_back),
        TEST(renewal_of_what_nobody_can_have_granted_is_a_grant_anew),
        TEST(late_renewal_of_an_older_grant_keeps_no_queue),
        TEST(release_is_overtaken_by_no_older_copy),
        TEST(release_is_kept_where_nothing_is_known),
        TEST(slave_hands_on_what_its_owner_gave_back_first),
        TEST(master_that_lived_takes_what_was_handed_on),
        TEST(slave_hands_on_nothing_that_others_may_have),
        TEST(restarted_broker_gives_queues_to_their_owners_first),
    };
    return cmocka_run_group_tests_name("queue_locks", tests, NULL, NULL);
}
