/* Queue locks on the wire: what is granted, renewed, left out and refused. */
#include "tests/unit/broker/broker_unit.h"

#include "broker/handlers/handlers.h"
#include "broker/queue_locks.h"
#include "tests/unit/broker/fake_broker.h"

enum { QUEUES = 4, MANY = 10001 };

static int setup(void **state)
{
    (void)state;
    fake_broker_begin();
    fake_broker_topic("T", QUEUES);
    fake_broker_ha(false, TERN__WIRE__HA_STATE__HA_OPEN);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_broker_end();
    return 0;
}

static Tern__Wire__MessageQueue queues[MANY];
static Tern__Wire__MessageQueue *pointers[MANY];

/* `count` queues of T from 0 on. */
static void name_queues(size_t count, const char *topic, const char *broker_name)
{
    for (size_t i = 0; i < count; i++) {
        tern__wire__message_queue__init(&queues[i]);
        queues[i].topic = NAME(topic);
        queues[i].broker_name = NAME(broker_name);
        queues[i].queue_id = (int32_t)i;
        pointers[i] = &queues[i];
    }
}

static struct fake_request *call(bool unlock, const char *client, size_t count)
{
    static Tern__Wire__LockQueuesRequest lock;
    static Tern__Wire__UnlockQueuesRequest release;
    struct fake_request *request = fake_call(client, 1);
    tern__wire__lock_queues_request__init(&lock);
    tern__wire__unlock_queues_request__init(&release);
    lock.group = release.group = NAME("G");
    lock.queues = release.queues = pointers;
    lock.n_queues = release.n_queues = count;
    if (unlock) {
        request->header.body_case = TERN__WIRE__REQUEST__BODY_UNLOCK_QUEUES;
        request->header.unlock_queues = &release;
    } else {
        request->header.body_case = TERN__WIRE__REQUEST__BODY_LOCK_QUEUES;
        request->header.lock_queues = &lock;
    }
    fake_run(request, unlock ? handle_unlock_queues : handle_lock_queues);
    return request;
}

/* How many of the named queues the client holds now. */
static int lock(const char *client, size_t count)
{
    struct fake_request *request = call(false, client, count);
    assert_int_equal(fake_request_code(request), 0);
    return (int)request->response->lock_queues->n_locked;
}

static void queue_has_one_owner_until_it_is_given_back(void **state)
{
    (void)state;
    name_queues(QUEUES, "T", "broker-a");
    assert_int_equal(lock("c1", 2), 2);
    int changes = fake.ha.changes;
    assert_true(changes > 0); /* slaves are told */
    struct fake_request *request = call(false, "c2", QUEUES);
    assert_int_equal(request->response->lock_queues->n_locked, 2);
    assert_int_equal(request->response->lock_queues->locked[0]->queue_id, 2);
    assert_memory_equal(request->response->lock_queues->locked[0]->topic.data, "T", 1);
    assert_int_equal(fake_request_code(call(true, "c2", 1)), 0); /* not its own */
    assert_int_equal(lock("c2", 1), 0);
    assert_int_equal(fake_request_code(call(true, "c1", 1)), 0);
    assert_int_equal(lock("c2", 1), 1);
}

static void lease_that_is_not_renewed_ends(void **state)
{
    (void)state;
    name_queues(1, "T", "broker-a");
    assert_int_equal(lock("c1", 1), 1);
    sim_run_for(fake.sim.sched, ms_to_ns(QUEUE_LOCK_LEASE_MS - 1000));
    assert_int_equal(lock("c2", 1), 0);
    assert_int_equal(lock("c1", 1), 1);
    sim_run_for(fake.sim.sched, ms_to_ns(QUEUE_LOCK_LEASE_MS - 1000));
    assert_int_equal(lock("c2", 1), 0);
    sim_run_for(fake.sim.sched, ms_to_ns(2000));
    assert_int_equal(lock("c2", 1), 1);
}

static void who_may_not_grant_renews_known_owners_only(void **state)
{
    (void)state;
    name_queues(2, "T", "broker-a");
    assert_int_equal(lock("c1", 1), 1);
    fake_broker_ha(true, TERN__WIRE__HA_STATE__HA_SEEKING);
    assert_int_equal(lock("c1", 2), 1);
    assert_int_equal(lock("c2", 2), 0);
    fake.ha.decides_locks = true;
    assert_int_equal(lock("c2", 2), 1);
}

static void queues_that_are_not_here_are_left_out(void **state)
{
    (void)state;
    name_queues(1, "T", "broker-b");
    assert_int_equal(lock("c1", 1), 0);
    name_queues(1, "deleted", "broker-a");
    assert_int_equal(lock("c1", 1), 0);
    name_queues(QUEUES + 2, "T", "");
    assert_int_equal(lock("c1", QUEUES + 2), QUEUES);
    assert_int_equal(queue_locks_count(fake.broker.locks), QUEUES);
}

/* Who is refused learns why, and when to ask again. */
static void refusals_say_why(void **state)
{
    (void)state;
    name_queues(QUEUES + 1, "T", "broker-a");
    assert_int_equal(lock("c1", 1), 1);
    struct fake_request *request = call(false, "c2", QUEUES + 1);
    const Tern__Wire__LockQueuesResponse *body = request->response->lock_queues;
    assert_int_equal(body->n_locked, QUEUES - 1);
    assert_int_equal(body->n_tries, QUEUES - 1);
    assert_int_equal(body->n_refused, 2);
    assert_int_equal(body->refused[0]->index, 0);
    assert_int_equal(body->refused[0]->reason, TERN__WIRE__LOCK_REFUSAL__LOCK_OTHERS);
    assert_in_range(body->refused[0]->remaining_ms, 1, QUEUE_LOCK_LEASE_MS);
    assert_int_equal(body->refused[1]->index, QUEUES);
    assert_int_equal(body->refused[1]->reason, TERN__WIRE__LOCK_REFUSAL__LOCK_NO_QUEUE);
    fake_broker_ha(true, TERN__WIRE__HA_STATE__HA_SEEKING);
    queues[0].queue_id = 0;
    queue_locks_forget(fake.broker.locks);
    request = call(false, "c2", 1);
    assert_int_equal(request->response->lock_queues->refused[0]->reason,
                     TERN__WIRE__LOCK_REFUSAL__LOCK_UNDECIDED);
}

static void requests_with_what_can_be_no_queue_are_refused(void **state)
{
    (void)state;
    name_queues(MANY, "T", "broker-a");
    assert_int_equal(fake_request_code(call(false, "", 1)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(call(true, "", 1)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(call(false, "c1", MANY)), TERN__WIRE__CODE__INVALID_REQUEST);
    queues[1].queue_id = -1;
    assert_int_equal(fake_request_code(call(false, "c1", 2)), TERN__WIRE__CODE__INVALID_REQUEST);
    queues[1].queue_id = 65536;
    assert_int_equal(fake_request_code(call(true, "c1", 2)), TERN__WIRE__CODE__INVALID_REQUEST);
    queues[1].topic = NAME("../x");
    assert_int_equal(fake_request_code(call(false, "c1", 2)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(queue_locks_count(fake.broker.locks), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(queue_has_one_owner_until_it_is_given_back),
        TEST(lease_that_is_not_renewed_ends),
        TEST(who_may_not_grant_renews_known_owners_only),
        TEST(queues_that_are_not_here_are_left_out),
        TEST(requests_with_what_can_be_no_queue_are_refused),
        TEST(refusals_say_why),
    };
    return cmocka_run_group_tests_name("locks", tests, NULL, NULL);
}
