/*
 * Mutexes with ranks.
 *
 * Invariant, checked in debug builds: the ranks a thread holds are strictly rising in the order
 * they were taken, hence no two threads can wait for each other. The check is a small list per
 * thread; releasing in another order than the reverse is allowed.
 *
 * Threads: any. Failure modes: none that can be handled; misuse aborts.
 */
#include "base/lock.h"

#include "base/error.h"

#ifdef TERN_DEBUG_CHECKS

#include <stdio.h>
#include <stdlib.h>

enum { HELD_MAX = LOCK_RANK_COUNT };

static const char *const rank_names[] = {
#define NAME_(name) #name,
    LOCK_RANK_TABLE(NAME_)
#undef NAME_
};

static _Thread_local struct {
    const struct lock *locks[HELD_MAX];
    int count;
} held;

static _Noreturn void fail_order(const char *what, enum lock_rank rank)
{
    fprintf(stderr, "fatal: lock order: %s %s while holding:", what, rank_names[rank]);
    for (int i = 0; i < held.count; i++)
        fprintf(stderr, " %s", rank_names[held.locks[i]->rank]);
    fputc('\n', stderr);
    abort();
}

static void held_check(const struct lock *lock)
{
    for (int i = 0; i < held.count; i++)
        if (held.locks[i]->rank >= lock->rank)
            fail_order("taking", lock->rank);
}

static void held_push(const struct lock *lock)
{
    ENSURE(held.count < HELD_MAX);
    held.locks[held.count++] = lock;
}

static void held_remove(const struct lock *lock)
{
    int i = held.count - 1;
    while (i >= 0 && held.locks[i] != lock)
        i--;
    if (i < 0)
        fail_order("releasing, without having it,", lock->rank);
    held.count--;
    for (; i < held.count; i++)
        held.locks[i] = held.locks[i + 1];
}

void lock_assert_none_held(void)
{
    if (held.count > 0)
        fail_order("waiting or calling out, the last lock", held.locks[held.count - 1]->rank);
}

#else

static void held_check(const struct lock *lock)
{
    (void)lock;
}

static void held_push(const struct lock *lock)
{
    (void)lock;
}

static void held_remove(const struct lock *lock)
{
    (void)lock;
}

void lock_assert_none_held(void)
{
}

#endif

void lock_init(struct lock *lock, enum lock_rank rank)
{
    ENSURE((unsigned)rank < LOCK_RANK_COUNT);
    ENSURE(pthread_mutex_init(&lock->mutex, NULL) == 0);
    lock->rank = rank;
}

void lock_fini(struct lock *lock)
{
    ENSURE(pthread_mutex_destroy(&lock->mutex) == 0);
}

void lock_acquire(struct lock *lock)
{
    held_check(lock);
    ENSURE(pthread_mutex_lock(&lock->mutex) == 0);
    held_push(lock);
}

void lock_release(struct lock *lock)
{
    held_remove(lock);
    ENSURE(pthread_mutex_unlock(&lock->mutex) == 0);
}
