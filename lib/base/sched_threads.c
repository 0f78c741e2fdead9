/*
 * Tasks as threads, latches as futexes.
 *
 * A task's whole state is one word:
 *
 *   WOKEN     somebody wants a step; taken (cleared) by the thread just before the step
 *   STOP      no further step; never cleared
 *   SLEEPING  the thread is in, or about to enter, the futex wait; only then does a wake cost a
 * system call
 *
 * A wake is not lost: WOKEN is set by one atomic operation, and the thread sleeps only while the
 * word is exactly SLEEPING, which the kernel compares. A wake that comes during a step stays in the
 * word until the step has returned.
 *
 * A latch is 0 (clear), 1 (set) or 2 (clear, and a thread sleeps). The setter's futex call may come
 * after the waiter has left and dropped the latch: it then wakes nobody or makes an unrelated wait
 * look again at its own word, and it does not read the memory.
 *
 * Threads: wake and set from any. Signals: tasks run with all blocked but those of faults, so that
 * a daemon's main thread gets them. Failure modes: TERN_LIMIT when no thread can be made.
 */
#include "base/sched.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/rlimit.h"

enum { TASK_WOKEN = 1, TASK_STOP = 2, TASK_SLEEPING = 4 };
enum { LATCH_CLEAR = 0, LATCH_SET = 1, LATCH_WAITED = 2 };

struct thread_task {
    struct task base;
    task_step_fn step;
    void *arg;
    pthread_t thread;
    _Atomic uint32_t state;
    char name[16];
};

static const struct sched_ops thread_ops;

/* Sleeps while *word is `expected`, at most until the monotonic deadline. Wakes spuriously at
 * times. */
static void futex_wait_until(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    const struct timespec *timeout = deadline_ns == SCHED_NEVER ? NULL : &ts;
    if (deadline_ns < 0)
        return;
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected, timeout, NULL,
                      FUTEX_BITSET_MATCH_ANY);
    ENSURE(rc == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Returns when a step is due or the task is to stop. */
static void task_sleep(struct thread_task *task, int64_t deadline_ns)
{
    for (;;) {
        uint32_t state = atomic_load_explicit(&task->state, memory_order_acquire);
        if (state & (TASK_WOKEN | TASK_STOP))
            return;
        if (deadline_ns != SCHED_NEVER && clock_mono_ns(clock_system()) >= deadline_ns)
            return;
        uint32_t expected = 0;
        if (atomic_compare_exchange_strong(&task->state, &expected, TASK_SLEEPING)) {
            futex_wait_until(&task->state, TASK_SLEEPING, deadline_ns);
            atomic_fetch_and(&task->state, ~(uint32_t)TASK_SLEEPING);
        }
    }
}

static void *task_main(void *arg)
{
    struct thread_task *task = arg;
    pthread_setname_np(pthread_self(), task->name);
    for (;;) {
        uint32_t state = atomic_fetch_and(&task->state, ~(uint32_t)TASK_WOKEN);
        if (state & TASK_STOP)
            return NULL;
        int64_t now_ns = clock_mono_ns(clock_system());
        int64_t next_ns = task->step(task->arg, now_ns);
        lock_assert_none_held();
        if (next_ns > now_ns)
            task_sleep(task, next_ns);
    }
}

/* Creates the thread with all signals blocked but those that a fault of its own raises. */
static int create_thread(struct thread_task *task)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked;
    sigset_t old;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    ENSURE(pthread_sigmask(SIG_SETMASK, &blocked, &old) == 0);
    int rc = pthread_create(&task->thread, NULL, task_main, task);
    ENSURE(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
    return rc;
}

static _Thread_local char start_cause[256];

const char *task_start_cause(void)
{
    return start_cause;
}

/* EAGAIN is what pthread_create() gives for either: whether there is room for a stack tells. */
static void note_cause(int rc)
{
    char limit[RLIMIT_TEXT_BYTES];
    struct stat threads;
    size_t stack_bytes = 0;
    pthread_attr_t attr;
    unsigned long count = stat("/proc/self/task", &threads) == 0 ? threads.st_nlink - 2 : 0;
    if (pthread_attr_init(&attr) == 0) {
        if (pthread_attr_getstacksize(&attr, &stack_bytes) != 0)
            stack_bytes = 0;
        pthread_attr_destroy(&attr);
    }
    void *stack = MAP_FAILED;
    if (stack_bytes)
        stack =
            mmap(NULL, stack_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack_bytes && stack == MAP_FAILED) {
        snprintf(start_cause, sizeof start_cause,
                 "no memory for the stack of a thread, %zu KiB: %s; %lu threads run; limit of "
                 "addresses in KiB: %s (ulimit -v, LimitAS=)",
                 stack_bytes / 1024, strerror(errno), count, rlimit_text(RLIMIT_AS, 1024, limit));
        return;
    }
    if (stack != MAP_FAILED)
        munmap(stack, stack_bytes);
    snprintf(start_cause, sizeof start_cause,
             "no further thread: %s; %lu run here; limit of the user's threads: %s (ulimit -u, "
             "LimitNPROC=), else of the unit's (TasksMax=)",
             strerror(rc), count, rlimit_text(RLIMIT_NPROC, 1, limit));
}

static enum tern_code thread_task_start(struct sched *sched, const char *name, task_step_fn step,
                                        void *arg, struct task **out)
{
    (void)sched;
    start_cause[0] = 0;
    struct thread_task *task = calloc(1, sizeof *task);
    if (!task)
        return TERN_NO_MEMORY;
    task->base.ops = &thread_ops;
    task->step = step;
    task->arg = arg;
    atomic_init(&task->state, 0);
    snprintf(task->name, sizeof task->name, "%s", name);
    /* Stored before the thread runs: its first step may wake the task through the owner's pointer.
     */
    *out = &task->base;
    int rc = create_thread(task);
    if (rc != 0) {
        note_cause(rc);
        *out = NULL;
        free(task);
        return TERN_LIMIT;
    }
    return TERN_OK;
}

static void thread_task_wake(struct task *base)
{
    struct thread_task *task = (struct thread_task *)base;
    uint32_t old = atomic_fetch_or(&task->state, TASK_WOKEN);
    if ((old & (TASK_WOKEN | TASK_SLEEPING)) == TASK_SLEEPING)
        futex_wake_all(&task->state);
}

static void thread_task_stop(struct task *base)
{
    struct thread_task *task = (struct thread_task *)base;
    ENSURE(!pthread_equal(task->thread, pthread_self()));
    atomic_fetch_or(&task->state, TASK_STOP);
    futex_wake_all(&task->state);
    ENSURE(pthread_join(task->thread, NULL) == 0);
    free(task);
}

static bool thread_latch_wait(struct sched *sched, struct latch *latch, int64_t deadline_ns)
{
    (void)sched;
    for (;;) {
        uint32_t state = atomic_load_explicit(&latch->state, memory_order_acquire);
        if (state == LATCH_SET)
            return true;
        if (deadline_ns != SCHED_NEVER && clock_mono_ns(clock_system()) >= deadline_ns)
            return false;
        if (state == LATCH_CLEAR &&
            !atomic_compare_exchange_strong(&latch->state, &state, LATCH_WAITED))
            continue;
        futex_wait_until(&latch->state, LATCH_WAITED, deadline_ns);
    }
}

static void thread_latch_set(struct sched *sched, struct latch *latch)
{
    (void)sched;
    if (atomic_exchange(&latch->state, LATCH_SET) == LATCH_WAITED)
        futex_wake_all(&latch->state);
}

static const struct sched_ops thread_ops = {
    .task_start = thread_task_start,
    .task_wake = thread_task_wake,
    .task_stop = thread_task_stop,
    .latch_wait = thread_latch_wait,
    .latch_set = thread_latch_set,
};

struct sched *sched_threads(void)
{
    static struct sched sched = {.ops = &thread_ops};
    return &sched;
}
