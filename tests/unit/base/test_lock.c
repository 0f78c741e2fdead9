/* Locks: ranks are checked in debug builds. */
#include "tests/unit/base/unit.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"

static struct lock outer;
static struct lock inner;

static void rising_ranks_are_allowed_in_any_order_of_release(void **state)
{
    (void)state;
    lock_acquire(&outer);
    lock_acquire(&inner);
    lock_release(&outer);
    lock_release(&inner);
    lock_assert_none_held();
}

#ifdef TERN_DEBUG_CHECKS

static void take_in_wrong_order(void)
{
    lock_acquire(&inner);
    lock_acquire(&outer);
}

static void take_one_rank_twice(void)
{
    struct lock second;
    lock_init(&second, LOCK_BROKER_TABLES);
    lock_acquire(&outer);
    lock_acquire(&second);
}

static void release_what_is_not_held(void)
{
    lock_release(&outer);
}

static void wait_with_a_lock_held(void)
{
    lock_acquire(&outer);
    lock_assert_none_held();
}

/* Runs fn in a child and expects it to abort. */
static void expect_abort(void (*fn)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        fn();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void rank_violations_abort(void **state)
{
    (void)state;
    expect_abort(take_in_wrong_order);
    expect_abort(take_one_rank_twice);
    expect_abort(release_what_is_not_held);
    expect_abort(wait_with_a_lock_held);
}

#else

static void rank_violations_abort(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rising_ranks_are_allowed_in_any_order_of_release),
        cmocka_unit_test(rank_violations_abort),
    };
    lock_init(&outer, LOCK_BROKER_TABLES);
    lock_init(&inner, LOCK_LOG);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lock_fini(&outer);
    lock_fini(&inner);
    return failed;
}
