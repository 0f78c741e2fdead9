/*
 * Progress kept elsewhere than at the broker: in a local file (broadcasting) or by the
 * application's own store.
 *
 *   NEW ──push_store_ask──► ASKING ──store task: query──► has progress: there
 *                                                    ├──► TERN_QUERY_NOT_FOUND: by the policy
 *                                                    └──► anything else: asked again, slower
 *   every commit interval ──► update (what changed) … persist
 *
 * A store may wait for a disk or for a database, so all its functions but load are called by one
 * task that does nothing else. Broker and pulls hear nothing of such progress.
 *
 * Invariants: committed is what update took and persist has confirmed, of each queue for itself; an
 * object's progress only grows, a queue that begins elsewhere is a new object and may tell a lower
 * one.
 *
 * Threads: the store task; load by who starts, the last commit by who shuts down, when the task has
 * ended. Failure modes: a failed update or persist is made again at the next interval, and logged;
 * a queue that left us is forgotten after LEAVE_COMMITS_MAX failures; of the last commit, shutdown
 * returns what it failed with.
 */
#include "client/push_internal.h"

#include <stdlib.h>

enum tern_code push_store_open(struct tern_push_consumer *consumer, struct tern_error *err)
{
    const struct tern_consumer_options *options = &consumer->options;
    enum tern_code code = TERN_OK;
    if (options->store.query) {
        consumer->store.ops = options->store;
    } else if (options->model == TERN_BROADCASTING) {
        const char *instance =
            options->instance_name[0] ? options->instance_name : BROADCAST_INSTANCE;
        code = local_offsets_open(consumer->env, options->offset_dir, instance, options->group,
                                  &consumer->store.local, err);
        if (code == TERN_OK)
            consumer->store.ops = local_offsets_store(consumer->store.local);
    }
    const struct tern_offset_store *ops = &consumer->store.ops;
    if (code == TERN_OK && ops->load) {
        code = ops->load(ops->arg, err);
        if (code != TERN_OK)
            error_prefix(err, code, "offsets of group %s", options->group);
    }
    return code;
}

/* ---- where queues begin ---- */

/* A queue that waits for an answer; holds a reference. NULL: none. @locks takes:CONSUMER */
static struct push_queue *next_asking(struct tern_push_consumer *consumer)
{
    lock_acquire(&consumer->lock);
    struct push_queue *queue = consumer->queues;
    while (queue && !queue->store_asked)
        queue = queue->next;
    if (queue) {
        queue->store_asked = false;
        push_queue_ref(queue);
    }
    lock_release(&consumer->lock);
    return queue;
}

static void answer(struct push_queue *queue)
{
    const struct tern_offset_store *ops = &queue->consumer->store.ops;
    struct tern_error err = {.text = ""};
    int64_t offset = -1;
    enum tern_code code = ops->query(ops->arg, &queue->id, &offset, &err);
    if (code == TERN_OK && offset < 0)
        code = error_set(&err, TERN_INVALID, "the store says %lld", (long long)offset);
    if (code == TERN_OK)
        push_queue_begin(queue, offset, offset, NULL);
    else if (code == TERN_QUERY_NOT_FOUND)
        push_queue_begin_by_policy(queue);
    else
        push_queue_ask_later(queue, code, "store", error_text(&err, code));
}

void push_store_ask(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    lock_acquire(&consumer->lock);
    queue->state = QUEUE_ASKING;
    queue->store_asked = true;
    lock_release(&consumer->lock);
    task_wake(consumer->store.task);
}

/* ---- telling the store ---- */

struct told {
    struct push_queue *queue; /* holds a reference */
    int64_t offset;
    bool taken; /* by update */
};

/* What changed, up to cap; counts all when told is NULL. @locks holds:CONSUMER */
static size_t claim(struct tern_push_consumer *consumer, struct told *told, size_t cap)
{
    size_t count = 0;
    for (int list = 0; list < 2; list++) {
        for (struct push_queue *queue = list ? consumer->leaving : consumer->queues; queue;
             queue = queue->next) {
            if (!push_queue_commit_due(queue) || (told && count == cap))
                continue;
            if (told) {
                queue->committing = true;
                push_queue_ref(queue);
                told[count] = (struct told){queue, window_left(&queue->window), false};
            }
            count++;
        }
    }
    return count;
}

static void finish(struct tern_push_consumer *consumer, const struct told *told, size_t count,
                   bool persisted)
{
    lock_acquire(&consumer->lock);
    for (size_t i = 0; i < count; i++) {
        struct push_queue *queue = told[i].queue;
        queue->committing = false;
        if (persisted && told[i].taken)
            queue->committed = told[i].offset;
        else if (atomic_load(&queue->dropped))
            queue->leave_attempts++;
    }
    lock_release(&consumer->lock);
    for (size_t i = 0; i < count; i++)
        push_queue_unref(told[i].queue);
}

static void log_failed(struct tern_push_consumer *consumer, const char *call, size_t queues,
                       enum tern_code code, const struct tern_error *err)
{
    log_error(consumer->env->log, "consumer_store_failed",
              "group=%s call=%s queues=%zu code=%s reason=\"%s\"", consumer->options.group, call,
              queues, tern_code_name(code), error_text(err, code));
}

/* Tells each queue's progress; one that the store does not take keeps no other back. Returns how
 * many were taken; *failure: of the last that was not. */
static size_t update_all(struct tern_push_consumer *consumer, struct told *told, size_t count,
                         enum tern_code *failure)
{
    const struct tern_offset_store *ops = &consumer->store.ops;
    struct tern_error last = {.text = ""};
    size_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        enum tern_code code = ops->update(ops->arg, &told[i].queue->id, told[i].offset, &err);
        told[i].taken = code == TERN_OK;
        taken += code == TERN_OK;
        if (code == TERN_OK)
            continue;
        *failure = code;
        last = err;
    }
    if (*failure != TERN_OK)
        log_failed(consumer, "update", count - taken, *failure, &last);
    return taken;
}

/* What the store said of the last that failed. @thread store task, or when that has ended */
static enum tern_code commit(struct tern_push_consumer *consumer)
{
    const struct tern_offset_store *ops = &consumer->store.ops;
    lock_acquire(&consumer->lock);
    size_t cap = claim(consumer, NULL, 0);
    lock_release(&consumer->lock);
    struct told *told = cap > 0 ? malloc(cap * sizeof *told) : NULL;
    if (!told)
        return cap > 0 ? TERN_NO_MEMORY : TERN_OK; /* at the next interval; or nothing to tell */
    lock_acquire(&consumer->lock);
    size_t count = claim(consumer, told, cap);
    lock_release(&consumer->lock);
    struct tern_error err = {.text = ""};
    enum tern_code refused = TERN_OK;
    size_t taken = update_all(consumer, told, count, &refused);
    enum tern_code code = taken > 0 ? ops->persist(ops->arg, &err) : TERN_OK;
    if (code != TERN_OK)
        log_failed(consumer, "persist", taken, code, &err);
    finish(consumer, told, count, code == TERN_OK);
    free(told);
    return code != TERN_OK ? code : refused;
}

/* Whether a queue is ours (again). @locks takes:CONSUMER */
static bool owned(struct tern_push_consumer *consumer, const struct tern_queue *id)
{
    lock_acquire(&consumer->lock);
    const struct push_queue *queue = consumer->queues;
    while (queue && !push_same_queue(&queue->id, id))
        queue = queue->next;
    lock_release(&consumer->lock);
    return queue != NULL;
}

/* Queues that left us and have told everything. */
static void forget(struct tern_push_consumer *consumer)
{
    const struct tern_offset_store *ops = &consumer->store.ops;
    struct push_queue *queue = push_offsets_take_left(consumer);
    while (queue) {
        struct push_queue *next = queue->next;
        if (ops->remove && !owned(consumer, &queue->id))
            ops->remove(ops->arg, &queue->id);
        push_queue_unref(queue);
        queue = next;
    }
}

/* @thread store */
static int64_t store_step(void *arg, int64_t now_ns)
{
    struct tern_push_consumer *consumer = arg;
    (void)now_ns;
    for (struct push_queue *queue; (queue = next_asking(consumer)) != NULL;) {
        if (!atomic_load(&queue->dropped) && push_state(consumer) == PUSH_RUNNING)
            answer(queue);
        push_queue_unref(queue);
    }
    if (atomic_exchange(&consumer->store.commit_wanted, false))
        (void)commit(consumer); /* logged, and told again at the next interval */
    forget(consumer);
    return SCHED_NEVER;
}

enum tern_code push_store_start(struct tern_push_consumer *consumer, struct tern_error *err)
{
    if (!push_store_used(consumer))
        return TERN_OK;
    enum tern_code code = task_start(consumer->env->sched, "tern-offsets", store_step, consumer,
                                     &consumer->store.task);
    return code == TERN_OK
               ? code
               : error_set(err, code, "task of the offsets of group %s", consumer->options.group);
}

void push_store_commit(struct tern_push_consumer *consumer)
{
    atomic_store(&consumer->store.commit_wanted, true);
    task_wake(consumer->store.task);
}

enum tern_code push_store_close(struct tern_push_consumer *consumer)
{
    if (!push_store_used(consumer))
        return TERN_OK;
    task_stop(consumer->store.task);
    consumer->store.task = NULL;
    enum tern_code code = commit(consumer);
    local_offsets_close(consumer->store.local);
    consumer->store.local = NULL;
    return code;
}
