/*
 * The list is kept sorted by position; appends complete nearly in order, so insertion looks back
 * from the tail a few steps. Completion unlinks under the lock and calls out without it.
 *
 * Who answers: whoever moved the position when it has nothing else to do, which saves a hand-over;
 * else the ack task, so that e.g. the next flush runs while answers are written. The task also
 * wakes for deadlines: it is told when the earliest one comes nearer.
 */
#include "broker/ack_wait.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/sched.h"

struct ack_wait {
    struct env env;
    struct lock lock;              /* ACK_WAIT */
    struct ack_entry *head, *tail; /* under lock, sorted by position */
    uint32_t count;                /* under lock */
    int64_t position;              /* under lock */
    enum tern_code code;           /* under lock; what passing it means */
    enum tern_code failed;         /* under lock; not OK: everything ends with it */
    int64_t next_deadline_ns;      /* under lock; when the task will look */
    _Atomic bool soon;             /* the task is to advance to the two below */
    _Atomic int64_t soon_position;
    _Atomic int soon_code;
    struct latch *drained; /* under lock: set when count gets 0; somebody in ack_wait_drain() */
    struct task *task;
};

static int64_t ack_step(void *arg, int64_t now_ns)
{
    struct ack_wait *acks = arg;
    if (atomic_exchange(&acks->soon, false))
        ack_wait_advance(acks, atomic_load(&acks->soon_position),
                         (enum tern_code)atomic_load(&acks->soon_code));
    return ack_wait_step(acks, now_ns);
}

enum tern_code ack_wait_create(const struct env *env, const char *name, struct ack_wait **out)
{
    struct ack_wait *acks = calloc(1, sizeof *acks);
    if (!acks)
        return TERN_NO_MEMORY;
    acks->env = *env;
    acks->next_deadline_ns = SCHED_NEVER;
    lock_init(&acks->lock, LOCK_ACK_WAIT);
    enum tern_code code = task_start(env->sched, name, ack_step, acks, &acks->task);
    if (code != TERN_OK) {
        lock_fini(&acks->lock);
        free(acks);
        return code;
    }
    *out = acks;
    return TERN_OK;
}

void ack_wait_destroy(struct ack_wait *acks)
{
    if (!acks)
        return;
    task_stop(acks->task);
    ENSURE(acks->count == 0);
    lock_fini(&acks->lock);
    free(acks);
}

/* @locks holds:ACK_WAIT */
static void tell_drained(struct ack_wait *acks)
{
    if (acks->count == 0 && acks->drained) {
        latch_set(acks->env.sched, acks->drained);
        acks->drained = NULL;
    }
}

/* @locks holds:ACK_WAIT */
static void unlink_entry(struct ack_wait *acks, struct ack_entry *entry)
{
    *(entry->prev ? &entry->prev->next : &acks->head) = entry->next;
    *(entry->next ? &entry->next->prev : &acks->tail) = entry->prev;
    acks->count--;
}

/* @locks holds:ACK_WAIT */
static void insert_sorted(struct ack_wait *acks, struct ack_entry *entry)
{
    struct ack_entry *after = acks->tail;
    while (after && after->position > entry->position)
        after = after->prev;
    entry->prev = after;
    entry->next = after ? after->next : acks->head;
    *(after ? &after->next : &acks->head) = entry;
    *(entry->next ? &entry->next->prev : &acks->tail) = entry;
    acks->count++;
}

void ack_wait_add(struct ack_wait *acks, struct ack_entry *entry)
{
    enum tern_code code = TERN_OK;
    bool finished, wake = false;

    lock_acquire(&acks->lock);
    if (entry->position <= acks->position) {
        finished = true;
        code = acks->code;
    } else if (acks->failed != TERN_OK) {
        finished = true;
        code = acks->failed;
    } else {
        finished = false;
        insert_sorted(acks, entry);
        if (entry->deadline_ns < acks->next_deadline_ns) {
            acks->next_deadline_ns = entry->deadline_ns;
            wake = true;
        }
    }
    lock_release(&acks->lock);
    if (finished)
        entry->done(entry, code);
    else if (wake)
        task_wake(acks->task);
}

static void complete(struct ack_entry *list, enum tern_code code)
{
    while (list) {
        struct ack_entry *entry = list;
        list = entry->next;
        entry->done(entry, code);
    }
}

static void move_to(struct ack_wait *acks, int64_t position, enum tern_code code, bool may_fall)
{
    lock_acquire(&acks->lock);
    acks->code = code;
    if (position > acks->position || may_fall)
        acks->position = position;
    struct ack_entry *passed = acks->head, *last = NULL;
    while (acks->head && acks->head->position <= acks->position) {
        last = acks->head;
        acks->head = last->next;
        acks->count--;
    }
    if (acks->head)
        acks->head->prev = NULL;
    else
        acks->tail = NULL;
    tell_drained(acks);
    lock_release(&acks->lock);
    if (!last)
        return;
    last->next = NULL;
    complete(passed, code);
}

void ack_wait_advance(struct ack_wait *acks, int64_t position, enum tern_code code)
{
    move_to(acks, position, code, false);
}

void ack_wait_set(struct ack_wait *acks, int64_t position, enum tern_code code)
{
    move_to(acks, position, code, true);
}

void ack_wait_advance_soon(struct ack_wait *acks, int64_t position, enum tern_code code)
{
    atomic_store(&acks->soon_code, (int)code);
    atomic_store(&acks->soon_position, position); /* only grows: one caller */
    atomic_store(&acks->soon, true);
    task_wake(acks->task);
}

/* @locks holds:ACK_WAIT */
static struct ack_entry *take_all(struct ack_wait *acks)
{
    struct ack_entry *list = acks->head;
    acks->head = acks->tail = NULL;
    acks->count = 0;
    tell_drained(acks);
    return list;
}

void ack_wait_fail_all(struct ack_wait *acks, enum tern_code code)
{
    lock_acquire(&acks->lock);
    acks->failed = code;
    struct ack_entry *list = take_all(acks);
    lock_release(&acks->lock);
    complete(list, code);
}

void ack_wait_restart(struct ack_wait *acks, int64_t position, enum tern_code code)
{
    lock_acquire(&acks->lock);
    acks->position = position;
    atomic_store(&acks->soon, false);
    struct ack_entry *list = take_all(acks);
    lock_release(&acks->lock);
    complete(list, code);
}

int64_t ack_wait_step(struct ack_wait *acks, int64_t now_ns)
{
    struct ack_entry *late = NULL;
    int64_t next = SCHED_NEVER;

    lock_acquire(&acks->lock);
    for (struct ack_entry *entry = acks->head, *following; entry; entry = following) {
        following = entry->next;
        if (entry->deadline_ns <= now_ns) {
            unlink_entry(acks, entry);
            entry->next = late;
            late = entry;
        } else if (entry->deadline_ns < next) {
            next = entry->deadline_ns;
        }
    }
    acks->next_deadline_ns = next;
    tell_drained(acks);
    lock_release(&acks->lock);
    complete(late, TERN_TIMEOUT);
    return next;
}

uint32_t ack_wait_count(struct ack_wait *acks)
{
    lock_acquire(&acks->lock);
    uint32_t count = acks->count;
    lock_release(&acks->lock);
    return count;
}

bool ack_wait_drain(struct ack_wait *acks, int64_t deadline_ns)
{
    struct latch drained;
    latch_init(&drained);
    lock_acquire(&acks->lock);
    bool empty = acks->count == 0;
    if (!empty)
        acks->drained = &drained;
    lock_release(&acks->lock);
    if (empty || latch_wait(acks->env.sched, &drained, deadline_ns))
        return true;
    lock_acquire(&acks->lock);
    empty = acks->drained == NULL; /* set just now */
    acks->drained = NULL;
    lock_release(&acks->lock);
    return empty;
}
