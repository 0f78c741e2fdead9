/* The scheduler on virtual time. */
#include "tests/unit/base/unit.h"

#include "tests/sim/sim_env.h"

static struct sim_env sim;

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 11);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_env_fini(&sim);
    return 0;
}

struct periodic {
    int64_t period_ns;
    int64_t last_ns;
    int runs;
};

static int64_t periodic_step(void *arg, int64_t now)
{
    struct periodic *p = arg;
    p->runs++;
    p->last_ns = now;
    return now + p->period_ns;
}

static void time_jumps_to_the_deadlines(void **state)
{
    (void)state;
    struct periodic p = {.period_ns = ms_to_ns(10)};
    struct task *task;
    assert_ok(task_start(sim.env.sched, "periodic", periodic_step, &p, &task));
    assert_int_equal(p.runs, 0);
    sim_run_for(sim.sched, ms_to_ns(1000));
    assert_int_equal(p.runs, 101); /* at 0, 10, … 1000 */
    assert_true(p.last_ns == SIM_START_NS + ms_to_ns(1000));
    assert_true(clock_mono_ns(sim.env.clock) == p.last_ns);
    assert_true(clock_wall_ms(sim.env.clock) == SIM_START_WALL_MS + 1000);
    assert_false(sim_run_until_idle(sim.sched, sim.clock.now_ns + ms_to_ns(5)));
    task_stop(task);
    assert_true(sim_run_until_idle(sim.sched, SCHED_NEVER - 1));
}

struct woken {
    struct task *task;
    struct task *other;
    int runs;
};

static int64_t wake_other_step(void *arg, int64_t now)
{
    struct woken *w = arg;
    (void)now;
    if (w->runs++ < 3) {
        task_wake(w->task); /* a wake during the step makes it run once more */
        task_wake(w->task);
    }
    return SCHED_NEVER;
}

static void a_wake_during_the_step_runs_it_again(void **state)
{
    (void)state;
    struct woken w = {.runs = 0};
    assert_ok(task_start(sim.env.sched, "woken", wake_other_step, &w, &w.task));
    assert_true(sim_run_until_idle(sim.sched, SCHED_NEVER - 1));
    assert_int_equal(w.runs, 4);
    task_wake(w.task);
    assert_true(sim_run_one(sim.sched));
    assert_false(sim_run_one(sim.sched));
    assert_int_equal(w.runs, 5);
    task_stop(w.task);
}

static char order[64];

static void note(void *arg)
{
    strcat(order, arg);
}

static void timers_run_in_the_order_of_their_times(void **state)
{
    (void)state;
    order[0] = 0;
    sim_after(sim.sched, 300, note, "c");
    sim_after(sim.sched, 100, note, "a");
    uint64_t id = sim_after(sim.sched, 250, note, "X");
    sim_after(sim.sched, 200, note, "b");
    assert_true(sim_cancel(sim.sched, id));
    assert_false(sim_cancel(sim.sched, id));
    sim_run_for(sim.sched, 200);
    assert_string_equal(order, "ab");
    assert_true(sim_run_until_idle(sim.sched, SCHED_NEVER - 1));
    assert_string_equal(order, "abc");
}

static void order_with_seed(uint64_t seed, char out[64])
{
    static char names[10][2] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    struct sim_env other;
    sim_env_init(&other, seed);
    order[0] = 0;
    for (int i = 0; i < 10; i++)
        sim_after(other.sched, 5, note, names[i]);
    assert_true(sim_run_until_idle(other.sched, SCHED_NEVER - 1));
    strncpy(out, order, 64);
    sim_env_fini(&other);
}

static void ties_are_broken_by_the_seed(void **state)
{
    (void)state;
    char a[64];
    char b[64];
    bool differs = false;
    order_with_seed(1, a);
    order_with_seed(1, b);
    assert_string_equal(a, b);
    assert_int_equal(strlen(a), 10);
    for (uint64_t seed = 2; seed < 10; seed++) {
        order_with_seed(seed, b);
        differs = differs || strcmp(a, b) != 0;
    }
    assert_true(differs);
}

static void set_latch(void *arg)
{
    latch_set(sim.env.sched, arg);
}

struct waiter {
    struct latch latch;
    int64_t until_ns;
    bool got;
    int runs;
    int64_t returned_ns;
};

static int64_t waiting_step(void *arg, int64_t now)
{
    struct waiter *w = arg;
    (void)now;
    w->runs++;
    w->got = latch_wait(sim.env.sched, &w->latch, w->until_ns);
    w->returned_ns = sim.clock.now_ns;
    return SCHED_NEVER;
}

static void a_wait_lets_others_run_until_the_latch_is_set(void **state)
{
    (void)state;
    struct periodic p = {.period_ns = ms_to_ns(10)};
    struct waiter w = {.until_ns = SCHED_NEVER};
    struct task *periodic;
    struct task *waiter;
    latch_init(&w.latch);
    assert_ok(task_start(sim.env.sched, "periodic", periodic_step, &p, &periodic));
    assert_ok(task_start(sim.env.sched, "waiter", waiting_step, &w, &waiter));
    task_wake(waiter);
    sim_after(sim.sched, ms_to_ns(55), set_latch, &w.latch);
    sim_run_for(sim.sched, ms_to_ns(100));
    assert_true(w.got);
    assert_true(w.returned_ns == SIM_START_NS + ms_to_ns(55));
    assert_int_equal(w.runs, 1);
    assert_int_equal(p.runs, 11);
    assert_int_equal(sim_task_count(sim.sched), 2);
    task_stop(periodic);
    task_stop(waiter);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    struct latch latch;
    latch_init(&latch);
    assert_false(latch_wait(sim.env.sched, &latch, SIM_START_NS + 500));
    assert_true(sim.clock.now_ns == SIM_START_NS + 500);
    sim_after(sim.sched, 100, set_latch, &latch); /* at the very deadline: still in time */
    assert_true(latch_wait(sim.env.sched, &latch, SIM_START_NS + 600));
}

static bool ran_thrice(void *arg)
{
    return ((struct periodic *)arg)->runs >= 3;
}

static void running_until_a_condition_stops_there(void **state)
{
    (void)state;
    struct periodic p = {.period_ns = ms_to_ns(10)};
    struct task *task;
    assert_ok(task_start(sim.env.sched, "periodic", periodic_step, &p, &task));
    assert_true(sim_run_until_true(sim.sched, ran_thrice, &p, SIM_START_NS + ms_to_ns(1000)));
    assert_true(sim.clock.now_ns == SIM_START_NS + ms_to_ns(20));
    p.runs = -1000;
    assert_false(sim_run_until_true(sim.sched, ran_thrice, &p, SIM_START_NS + ms_to_ns(1000)));
    assert_true(sim.clock.now_ns == SIM_START_NS + ms_to_ns(1000));
    task_stop(task);
}

static void the_wall_clock_can_jump_alone(void **state)
{
    (void)state;
    sim_clock_set_wall(&sim.clock, 5000);
    assert_int_equal(clock_wall_ms(sim.env.clock), 5000);
    sim_run_for(sim.sched, ms_to_ns(7));
    assert_int_equal(clock_wall_ms(sim.env.clock), 5007);
    assert_true(clock_mono_ns(sim.env.clock) == SIM_START_NS + ms_to_ns(7));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(time_jumps_to_the_deadlines),
        TEST(a_wake_during_the_step_runs_it_again),
        TEST(timers_run_in_the_order_of_their_times),
        TEST(ties_are_broken_by_the_seed),
        TEST(a_wait_lets_others_run_until_the_latch_is_set),
        TEST(a_wait_ends_at_its_deadline),
        TEST(running_until_a_condition_stops_there),
        TEST(the_wall_clock_can_jump_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
