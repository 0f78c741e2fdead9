/* Tasks as threads, latches. Real time is only used as an upper limit that a broken wake would
 * reach. */
#include "tests/unit/base/unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sched.h"

static int64_t now_ns(void)
{
    return clock_mono_ns(clock_system());
}

static int64_t soon(void) /* far enough for a loaded machine */
{
    return now_ns() + ms_to_ns(60000);
}

/* A task that answers each request by setting the latch that was handed over. */
struct echo {
    struct latch *_Atomic request;
    atomic_uint steps;
};

static int64_t echo_step(void *arg, int64_t now)
{
    struct echo *echo = arg;
    (void)now;
    atomic_fetch_add(&echo->steps, 1);
    struct latch *latch = atomic_exchange(&echo->request, NULL);
    if (latch)
        latch_set(sched_threads(), latch);
    return SCHED_NEVER;
}

static void no_wake_is_lost(void **state)
{
    (void)state;
    struct echo echo = {.request = NULL};
    struct task *task;
    assert_ok(task_start(sched_threads(), "echo", echo_step, &echo, &task));
    static struct latch latches[20000]; /* each one alive until the end */
    for (int i = 0; i < 20000; i++) {
        latch_init(&latches[i]);
        atomic_store(&echo.request, &latches[i]);
        task_wake(task);
        if (!latch_wait(sched_threads(), &latches[i], soon()))
            fail_msg("wake %d was lost", i);
    }
    task_stop(task);
}

static int64_t first_step(void *arg, int64_t now)
{
    (void)now;
    latch_set(sched_threads(), arg);
    return SCHED_NEVER;
}

static void the_first_step_runs_without_a_wake(void **state)
{
    (void)state;
    struct latch latch;
    struct task *task;
    latch_init(&latch);
    assert_ok(task_start(sched_threads(), "first", first_step, &latch, &task));
    assert_true(latch_wait(sched_threads(), &latch, soon()));
    task_stop(task);
    task_stop(NULL);
}

struct ticker {
    int64_t deadline_ns;
    int count;
    bool early;
    struct latch done;
};

static int64_t tick(void *arg, int64_t now)
{
    struct ticker *ticker = arg;
    if (now < ticker->deadline_ns)
        ticker->early = true;
    if (++ticker->count == 5) {
        latch_set(sched_threads(), &ticker->done);
        return SCHED_NEVER;
    }
    ticker->deadline_ns = now + ms_to_ns(2);
    return ticker->deadline_ns;
}

static void deadlines_run_the_step_and_not_early(void **state)
{
    (void)state;
    struct ticker ticker = {.deadline_ns = 0};
    struct task *task;
    latch_init(&ticker.done);
    assert_ok(task_start(sched_threads(), "ticker", tick, &ticker, &task));
    assert_true(latch_wait(sched_threads(), &ticker.done, soon()));
    task_stop(task);
    assert_false(ticker.early);
    assert_int_equal(ticker.count, 5);
}

static void a_latch_that_is_not_set_times_out(void **state)
{
    (void)state;
    struct latch latch;
    latch_init(&latch);
    int64_t deadline = now_ns() + ms_to_ns(5);
    assert_false(latch_wait(sched_threads(), &latch, deadline));
    assert_true(now_ns() >= deadline);
    assert_false(latch_wait(sched_threads(), &latch, 0));
    assert_false(latch_wait(sched_threads(), &latch, now_ns() - 1));
    latch_set(sched_threads(), &latch);
    assert_true(latch_wait(sched_threads(), &latch, 0));
    assert_true(latch_wait(sched_threads(), &latch, SCHED_NEVER));
}

static int64_t busy_step(void *arg, int64_t now)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
    return now;
}

static void stop_ends_a_busy_task(void **state)
{
    (void)state;
    atomic_uint steps = 0;
    struct task *task;
    assert_ok(task_start(sched_threads(), "busy", busy_step, &steps, &task));
    while (atomic_load(&steps) < 100)
        task_wake(task);
    task_stop(task);
    unsigned after = atomic_load(&steps);
    assert_int_equal(after, atomic_load(&steps));
}

struct seen {
    struct latch done;
    char name[16];
    sigset_t blocked;
};

static int64_t look_step(void *arg, int64_t now)
{
    struct seen *seen = arg;
    (void)now;
    pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
    latch_set(sched_threads(), &seen->done);
    return SCHED_NEVER;
}

static void tasks_have_their_name_and_leave_signals_to_others(void **state)
{
    (void)state;
    struct seen seen;
    struct task *task;
    latch_init(&seen.done);
    assert_ok(task_start(sched_threads(), "fifteen-letters", look_step, &seen, &task));
    assert_true(latch_wait(sched_threads(), &seen.done, soon()));
    task_stop(task);
    assert_string_equal(seen.name, "fifteen-letters");
    assert_true(sigismember(&seen.blocked, SIGTERM));
    assert_true(sigismember(&seen.blocked, SIGINT));
    assert_false(sigismember(&seen.blocked, SIGSEGV));
    sigset_t own;
    pthread_sigmask(SIG_SETMASK, NULL, &own);
    assert_false(sigismember(&own, SIGTERM));
}

/* In a child, which may not make a further thread under this limit: task_start_cause() says so. */
static void expect_cause(unsigned resource, rlim_t most, const char *words)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {most, most};
        struct echo echo = {.request = NULL};
        struct task *task;
        /* The superuser may have any number of threads. */
        bool ready = (geteuid() != 0 || setresuid(65534, 65534, 65534) == 0) &&
                     setrlimit(resource, &limit) == 0;
        enum tern_code code =
            ready ? task_start(sched_threads(), "echo", echo_step, &echo, &task) : TERN_STATE;
        fprintf(stderr, "%s: %s\n", tern_code_name(code), task_start_cause());
        _exit(code == TERN_LIMIT && strstr(task_start_cause(), words) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void refused_thread_names_the_limit_of_threads(void **state)
{
    (void)state;
    expect_cause(RLIMIT_NPROC, 0, "limit of the user's threads: 0 (ulimit -u");
}

static void refused_thread_names_the_limit_of_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer's own addresses are beyond any limit */
#endif
    expect_cause(RLIMIT_AS, 4 << 20, "limit of addresses in KiB: 4096 (ulimit -v");
}

static void no_cause_is_left_when_a_thread_was_made(void **state)
{
    (void)state;
    struct echo echo = {.request = NULL};
    struct task *task;
    assert_ok(task_start(sched_threads(), "echo", echo_step, &echo, &task));
    assert_string_equal(task_start_cause(), "");
    task_stop(task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_thread_names_the_limit_of_memory), /* no old stack is there yet */
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(the_first_step_runs_without_a_wake),
        cmocka_unit_test(deadlines_run_the_step_and_not_early),
        cmocka_unit_test(a_latch_that_is_not_set_times_out),
        cmocka_unit_test(stop_ends_a_busy_task),
        cmocka_unit_test(tasks_have_their_name_and_leave_signals_to_others),
        cmocka_unit_test(refused_thread_names_the_limit_of_threads),
        cmocka_unit_test(no_cause_is_left_when_a_thread_was_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
