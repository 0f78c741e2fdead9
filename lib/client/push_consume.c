/*
 * The pool: from pulled messages to finished ones.
 *
 *   push_pool_add ──► fresh ──take──► open (begun, with messages left) ──► batches ──► listener
 *                       ▲ due                                                 success │ │ failed
 *                     later ◄── nobody takes it back ── push_send_back ◄──────────────┼─┘
 *                                                              └── OK ──► window_mark ◄┘
 *
 * Messages come and are claimed a pull's answer at a time: one lock per chunk, one atomic addition
 * per batch. Several workers may share a chunk, so that a slow message does not hold back its
 * neighbours.
 *
 * How many workers run: as many as it takes to work off what waits within a millisecond at the
 * listener's measured speed, at least one, at most options.threads; options.threads_min of them are
 * there from the start. A worker whose listener has
 * been busy for longer than that does not count. With a fast listener one or two workers do
 * everything and nobody is woken; with a slow one all of them run. The control task looks every few
 * milliseconds while anything waits, because a listener that hangs tells nobody.
 *
 * Invariants: a claimed message is either marked, or sent back, or tried again, or its queue is
 * ours no more; nothing else lets it go, so that the window cannot pass it. A batch is finished by
 * its worker or taken by the one who expires it, never both: worker->state decides. After
 * push_pool_stop() nothing is added. A message whose tries are used up never meets the listener
 * again: what comes due goes back to message_retry.c.
 *
 * Threads: workers, the control task, link threads (adding). Failure modes: no thread to be had:
 * those that run do the work, without any the next look tries again; a listener beyond
 * the consume timeout: its messages are sent back and its late result is ignored.
 */
#include "client/push_internal.h"

#include <limits.h>
#include <stdlib.h>

#include "client/message_internal.h"
#include "client/push_order.h"
#include "client/push_trace.h"

enum {
    KEEP_UP_NS = 1000000, /* what waits is to be done in that time; longer in a listener: stuck */
    WATCH_MS = 5,
    WATCH_IDLE_STEPS = 20, /* how long the watch goes on with nothing waiting */
};

static _Thread_local const struct tern_push_consumer *listening;

bool push_pool_in_listener(const struct tern_push_consumer *consumer)
{
    return listening == consumer;
}

void push_pool_enter_listener(const struct tern_push_consumer *consumer)
{
    listening = consumer;
}

void push_pool_leave_listener(void)
{
    listening = NULL;
}

/* ---- how many workers ---- */

/* @locks holds:CONSUMER */
static uint64_t waiting_messages(const struct push_pool *pool)
{
    if (pool->suspended || pool->stopping)
        return 0;
    uint64_t waiting = pool->fresh_messages;
    for (const struct push_chunk *chunk = pool->open; chunk; chunk = chunk->next)
        waiting += push_chunk_unclaimed(chunk);
    return waiting;
}

/*
 * One more worker when those that move are too few for what waits: marked awake, to be woken by the
 * caller after the lock, or NULL; *start says that a new one is wanted. @locks holds:CONSUMER
 */
static struct push_worker *one_more(struct tern_push_consumer *consumer, int64_t now_ns,
                                    bool *start)
{
    struct push_pool *pool = &consumer->pool;
    *start = false;
    uint64_t waiting = waiting_messages(pool);
    if (waiting == 0)
        return NULL;
    uint32_t count = atomic_load_explicit(&pool->worker_count, memory_order_relaxed);
    struct push_worker *asleep = NULL;
    uint64_t moving = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct push_worker *worker = pool->workers[i];
        int64_t since_ns = atomic_load_explicit(&worker->since_ns, memory_order_relaxed);
        if (!worker->awake)
            asleep = worker;
        else if (since_ns == 0 || now_ns - since_ns < KEEP_UP_NS)
            moving++;
    }
    int64_t average_ns = atomic_load_explicit(&pool->average_ns, memory_order_relaxed);
    uint64_t need = 1 + waiting * (uint64_t)average_ns / KEEP_UP_NS;
    if (moving >= need)
        return NULL;
    if (asleep)
        asleep->awake = true;
    else
        *start = count < (uint32_t)consumer->options.threads;
    return asleep;
}

/* @thread any @locks takes:CONSUMER */
static void call_help(struct tern_push_consumer *consumer)
{
    struct push_pool *pool = &consumer->pool;
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    bool start;
    lock_acquire(&pool->lock);
    struct push_worker *worker = one_more(consumer, now_ns, &start);
    lock_release(&pool->lock);
    if (worker)
        task_wake(worker->task);
    if (start && !atomic_exchange(&pool->want_worker, true))
        push_wake(consumer);
}

static void watch(struct tern_push_consumer *consumer)
{
    if (!atomic_load_explicit(&consumer->pool.watching, memory_order_relaxed) &&
        !atomic_exchange(&consumer->pool.watching, true))
        push_wake(consumer);
}

void push_pool_call_help(struct tern_push_consumer *consumer)
{
    call_help(consumer);
    watch(consumer);
}

void push_pool_add(struct tern_push_consumer *consumer, struct push_chunk *chunk)
{
    if (chunk->count == 0) {
        push_chunk_unref(chunk);
        return;
    }
    if (consumer->orderly) {
        push_order_add(chunk);
        return;
    }
    lock_acquire(&consumer->pool.lock);
    bool late = consumer->pool.stopping;
    if (!late)
        push_pool_insert_fresh(&consumer->pool, chunk);
    lock_release(&consumer->pool.lock);
    if (late)
        push_chunk_unref(chunk);
    else
        push_pool_call_help(consumer);
}

void push_pool_add_later(struct tern_push_consumer *consumer, struct push_chunk *chunk)
{
    struct push_pool *pool = &consumer->pool;
    lock_acquire(&pool->lock);
    bool late = pool->stopping;
    if (!late)
        push_pool_insert_later(pool, chunk);
    lock_release(&pool->lock);
    if (late)
        push_chunk_unref(chunk);
    else
        push_wake(consumer);
}

/* ---- batches ---- */

/* Calls the listener; how many of the first messages are done with, the others at which level. */
static uint32_t listen(struct push_queue *queue, struct tern_message **messages, uint32_t count,
                       int32_t *delay_level)
{
    struct tern_push_consumer *consumer = queue->consumer;
    const struct tern_message *const *shown = (const struct tern_message *const *)messages;
    struct tern_consume_context context = {.queue = queue->id, .ack_index = INT_MAX};
    namespace_strip(consumer->options.ns, context.queue.topic);
    enum tern_consume_result result =
        consumer->context_listener
            ? consumer->context_listener(consumer->listener_arg, shown, count, &context)
            : consumer->listener(consumer->listener_arg, shown, count);
    *delay_level = context.delay_level_when_next_consume;
    if (result != TERN_CONSUME_SUCCESS || context.ack_index < 0)
        return 0;
    return (uint32_t)context.ack_index >= count ? count : (uint32_t)context.ack_index + 1;
}

/* What the listener said about a batch. Takes the messages. */
static void finish_batch(struct push_queue *queue, struct tern_message **messages, uint32_t count,
                         uint32_t done, int32_t delay_level)
{
    struct tern_push_consumer *consumer = queue->consumer;
    for (uint32_t i = 0; i < done; i++)
        window_mark(&queue->window, tern_message_queue_offset(messages[i]));
    counter_add(&consumer->consumed, done);
    push_let_go(queue, messages, done);
    counter_add(&consumer->failed_messages, count - done);
    for (uint32_t i = done; i < count; i++)
        push_send_back(queue, messages[i], delay_level);
}

/* Waits until an expirer that has begun is through; true when it took the batch. */
static bool batch_was_taken(struct push_worker *worker)
{
    int expected = BATCH_RUNNING;
    if (atomic_compare_exchange_strong(&worker->state, &expected, BATCH_NONE))
        return false;
    struct push_pool *pool = &worker->consumer->pool;
    lock_acquire(&pool->lock);
    bool taken = atomic_load(&worker->state) == BATCH_EXPIRED;
    atomic_store(&worker->state, BATCH_NONE);
    lock_release(&pool->lock);
    return taken;
}

/*
 * Opens the compressed bodies of a batch, on the thread that will run the listener. What cannot be
 * opened is sent back, as if the listener had failed with it, and leaves the batch; returns how
 * many are left.
 */
static uint32_t open_bodies(struct push_queue *queue, struct tern_message **messages,
                            uint32_t count)
{
    struct tern_push_consumer *consumer = queue->consumer;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct tern_error err = {.code = TERN_OK};
        if (tern_message_open(messages[i], &err) == TERN_OK) {
            messages[kept++] = messages[i];
            continue;
        }
        log_warn(consumer->env->log, "consumer_body_unreadable",
                 "group=%s topic=%s broker=%s queue=%d offset=%lld reason=\"%s\"",
                 consumer->options.group, queue->id.topic, queue->id.broker_name,
                 queue->id.queue_id, (long long)tern_message_queue_offset(messages[i]), err.text);
        counter_add(&consumer->failed_messages, 1);
        push_send_back(queue, messages[i], 0);
    }
    return kept;
}

/* Hands one batch to the listener and does with it what that says; takes the messages. */
static void run_batch(struct push_worker *worker, struct push_queue *queue,
                      struct tern_message **messages, uint32_t count)
{
    struct tern_push_consumer *consumer = worker->consumer;
    if (atomic_load_explicit(&queue->dropped, memory_order_relaxed)) {
        push_let_go(queue, messages, count);
        return;
    }
    count = open_bodies(queue, messages, count);
    if (count == 0)
        return;
    worker->queue = queue;
    worker->messages = messages;
    worker->count = count;
    atomic_store_explicit(&worker->state, BATCH_RUNNING, memory_order_release);
    struct push_traced traced;
    push_trace_before(consumer, messages, count, &traced);
    listening = consumer;
    int32_t delay_level;
    uint32_t done = listen(queue, messages, count, &delay_level);
    listening = NULL;
    bool taken = batch_was_taken(worker);
    push_trace_after(consumer, messages, count, done, &traced, taken);
    if (!taken) {
        finish_batch(queue, messages, count, done, delay_level);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        tern_message_unref(
            messages[i]); /* what is counted as cached went with the other reference */
}

/* ---- workers ---- */

/* Claims and runs batches of the chunk until none is left or the pool halts. */
static void work_on(struct push_worker *worker, struct push_chunk *chunk)
{
    struct tern_push_consumer *consumer = worker->consumer;
    struct push_pool *pool = &consumer->pool;
    uint32_t batch = (uint32_t)consumer->options.consume_batch;
    int64_t begin_ns = clock_mono_ns(consumer->env->clock);
    int64_t now_ns = begin_ns;
    uint32_t done = 0;
    while (!atomic_load_explicit(&pool->halted, memory_order_relaxed)) {
        uint32_t first = atomic_fetch_add_explicit(&chunk->claimed, batch, memory_order_relaxed);
        if (first >= chunk->count) {
            atomic_store_explicit(&chunk->claimed, chunk->count, memory_order_relaxed);
            break;
        }
        uint32_t count = chunk->count - first < batch ? chunk->count - first : batch;
        atomic_store_explicit(&worker->since_ns, now_ns, memory_order_relaxed);
        run_batch(worker, chunk->queue, &chunk->messages[first], count);
        now_ns = clock_mono_ns(consumer->env->clock);
        done += count;
    }
    atomic_store_explicit(&worker->since_ns, 0, memory_order_relaxed);
    if (done > 0)
        push_pool_note_speed(pool, (now_ns - begin_ns) / done);
}

void push_pool_note_speed(struct push_pool *pool, int64_t sample_ns)
{
    int64_t average_ns = atomic_load_explicit(&pool->average_ns, memory_order_relaxed);
    atomic_store_explicit(&pool->average_ns, average_ns + (sample_ns - average_ns) / 4,
                          memory_order_relaxed);
}

/* A chunk for the worker, or NULL: it goes to sleep. @locks takes:CONSUMER */
static struct push_chunk *take(struct push_worker *worker)
{
    struct push_pool *pool = &worker->consumer->pool;
    struct push_chunk *chunk = NULL;
    lock_acquire(&pool->lock);
    if (!pool->suspended && !pool->stopping) {
        if (pool->fresh) {
            chunk = push_pool_pop_fresh(pool);
            if (worker->consumer->orderly) {
                push_order_taken(chunk);
            } else if (chunk->count > (uint32_t)worker->consumer->options.consume_batch) {
                push_pool_open(pool, chunk);
                atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
            }
        } else {
            chunk = pool->open;
            while (chunk && push_chunk_unclaimed(chunk) == 0)
                chunk = chunk->next;
            if (chunk)
                atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
        }
    }
    worker->awake = chunk != NULL;
    pool->running += chunk != NULL;
    lock_release(&pool->lock);
    return chunk;
}

/* Gives the chunk back. @locks takes:CONSUMER */
static void put(struct push_worker *worker, struct push_chunk *chunk)
{
    struct push_pool *pool = &worker->consumer->pool;
    lock_acquire(&pool->lock);
    bool done = chunk->listed && push_chunk_unclaimed(chunk) == 0;
    if (done)
        push_pool_close(pool, chunk);
    else if (!chunk->listed && push_chunk_unclaimed(chunk) > 0) {
        push_pool_open(pool, chunk); /* halted before it was begun */
        atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
    }
    lock_release(&pool->lock);
    if (done)
        push_chunk_unref(chunk);
    push_chunk_unref(chunk);
}

/* The worker runs nothing any more; a shutdown may wait for that. @locks takes:CONSUMER */
static void end_turn(struct tern_push_consumer *consumer)
{
    struct push_pool *pool = &consumer->pool;
    lock_acquire(&pool->lock);
    pool->running--;
    struct latch *idle = pool->running == 0 && waiting_messages(pool) == 0 ? pool->idle : NULL;
    if (idle)
        pool->idle = NULL;
    lock_release(&pool->lock);
    if (idle)
        latch_set(consumer->env->sched, idle);
}

/* One chunk. @thread worker */
static int64_t worker_step(void *arg, int64_t now_ns)
{
    struct push_worker *worker = arg;
    struct push_chunk *chunk = take(worker);
    if (!chunk)
        return SCHED_NEVER;
    call_help(worker->consumer);
    if (worker->consumer->orderly) {
        push_order_work(worker, chunk);
    } else {
        work_on(worker, chunk);
        put(worker, chunk);
    }
    end_turn(worker->consumer);
    return now_ns;
}

/* @thread control */
static void start_worker(struct tern_push_consumer *consumer)
{
    struct push_pool *pool = &consumer->pool;
    uint32_t count = atomic_load_explicit(&pool->worker_count, memory_order_relaxed);
    if (count >= (uint32_t)consumer->options.threads)
        return;
    struct push_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return;
    worker->consumer = consumer;
    worker->awake = true;
    enum tern_code code =
        task_start(consumer->env->sched, "tern-consume", worker_step, worker, &worker->task);
    if (code != TERN_OK) {
        log_error(consumer->env->log, "consumer_no_thread", "group=%s threads=%u code=%s",
                  consumer->options.group, count, tern_code_name(code));
        free(worker);
        return;
    }
    lock_acquire(&pool->lock);
    pool->workers[count] = worker;
    atomic_store_explicit(&pool->worker_count, count + 1, memory_order_relaxed);
    lock_release(&pool->lock);
}

/* ---- the control task's part ---- */

/* Due retries become fresh chunks, or are sent back once more; returns when the next one is due.
 * @locks takes:CONSUMER */
static int64_t retries_due(struct push_pool *pool, int64_t now_ns)
{
    int64_t next_ns = SCHED_NEVER;
    struct push_chunk *again = NULL, **again_end = &again;
    lock_acquire(&pool->lock);
    while (pool->later && pool->later->due_ns <= now_ns) {
        struct push_chunk *chunk = pool->later;
        pool->later = chunk->next;
        if (!chunk->send_only) {
            push_pool_insert_fresh(pool, chunk);
            continue;
        }
        chunk->next = NULL;
        *again_end = chunk;
        again_end = &chunk->next;
    }
    if (pool->later)
        next_ns = pool->later->due_ns;
    lock_release(&pool->lock);
    while (again) {
        struct push_chunk *chunk = again;
        again = chunk->next;
        push_send_again(chunk);
    }
    return next_ns;
}

/* Looks whether enough workers move while anything waits. */
static int64_t watch_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    struct push_pool *pool = &consumer->pool;
    if (!atomic_load(&pool->watching))
        return SCHED_NEVER;
    lock_acquire(&pool->lock);
    bool waiting = waiting_messages(pool) > 0;
    lock_release(&pool->lock);
    pool->idle_steps = waiting ? 0 : pool->idle_steps + 1;
    if (pool->idle_steps < WATCH_IDLE_STEPS)
        return now_ns + ms_to_ns(WATCH_MS);
    pool->idle_steps = 0;
    atomic_store(&pool->watching, false);
    lock_acquire(&pool->lock);
    waiting = waiting_messages(pool) > 0; /* came just before the flag fell */
    lock_release(&pool->lock);
    if (waiting)
        watch(consumer);
    return SCHED_NEVER;
}

int64_t push_pool_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    struct push_pool *pool = &consumer->pool;
    int64_t next_ns = retries_due(pool, now_ns);
    call_help(consumer);
    bool few = atomic_load_explicit(&pool->worker_count, memory_order_relaxed) <
               (uint32_t)consumer->options.threads_min;
    if (atomic_exchange(&pool->want_worker, false) || few)
        start_worker(consumer);
    if (few) /* one more each step; without a thread to be had the next look tries again */
        next_ns = now_ns + ms_to_ns(WATCH_MS);
    int64_t watch_ns = watch_step(consumer, now_ns);
    int64_t expire_ns = push_expire_step(consumer, now_ns);
    if (watch_ns < next_ns)
        next_ns = watch_ns;
    return expire_ns < next_ns ? expire_ns : next_ns;
}

/* ---- life ---- */

enum tern_code push_pool_init(struct tern_push_consumer *consumer)
{
    struct push_pool *pool = &consumer->pool;
    pool->workers = calloc((size_t)consumer->options.threads, sizeof pool->workers[0]);
    if (!pool->workers)
        return TERN_NO_MEMORY;
    lock_init(&pool->lock, LOCK_CONSUMER);
    pool->average_ns = KEEP_UP_NS; /* slow until measured */
    return TERN_OK;
}

void push_pool_suspend(struct tern_push_consumer *consumer, bool suspended)
{
    struct push_pool *pool = &consumer->pool;
    lock_acquire(&pool->lock);
    pool->suspended = suspended;
    atomic_store(&pool->halted, suspended || pool->stopping);
    lock_release(&pool->lock);
    if (suspended)
        return;
    call_help(consumer);
    watch(consumer);
}

/*
 * Waits until nobody runs and nothing waits, or the deadline; sees meanwhile that enough workers
 * move, since the control task has ended. *done says which.
 */
static void drain(struct tern_push_consumer *consumer, struct latch *idle, int64_t deadline_ns,
                  bool *done)
{
    struct push_pool *pool = &consumer->pool;
    int64_t now_ns;
    do {
        call_help(consumer);
        if (atomic_exchange(&pool->want_worker, false))
            start_worker(consumer);
        now_ns = clock_mono_ns(consumer->env->clock);
        int64_t look_ns = now_ns + ms_to_ns(WATCH_MS);
        *done =
            latch_wait(consumer->env->sched, idle, look_ns < deadline_ns ? look_ns : deadline_ns);
    } while (!*done && now_ns < deadline_ns);
}

bool push_pool_stop(struct tern_push_consumer *consumer, int64_t deadline_ns)
{
    struct push_pool *pool = &consumer->pool;
    struct latch idle;
    latch_init(&idle);
    lock_acquire(&pool->lock);
    if (consumer->orderly) { /* the next owner waits: what has not begun is its */
        pool->stopping = true;
        atomic_store(&pool->halted, true);
    }
    bool done = pool->running == 0 && waiting_messages(pool) == 0;
    if (!done)
        pool->idle = &idle;
    lock_release(&pool->lock);
    if (!done)
        drain(consumer, &idle, deadline_ns, &done);
    lock_acquire(&pool->lock);
    pool->stopping = true;
    atomic_store(&pool->halted, true);
    bool taken = !done && pool->idle == NULL; /* somebody is about to set it */
    pool->idle = NULL;
    bool nobody = pool->running == 0;
    lock_release(&pool->lock);
    if (taken && !latch_wait(consumer->env->sched, &idle, SCHED_NEVER))
        return false;
    return nobody;
}

void push_pool_join(struct tern_push_consumer *consumer)
{
    struct push_pool *pool = &consumer->pool;
    uint32_t count = atomic_load_explicit(&pool->worker_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        task_stop(pool->workers[i]->task);
        free(pool->workers[i]);
    }
    atomic_store_explicit(&pool->worker_count, 0, memory_order_relaxed);
}

void push_pool_fini(struct tern_push_consumer *consumer)
{
    struct push_pool *pool = &consumer->pool;
    free(pool->workers);
    lock_fini(&pool->lock);
}

void push_pool_discard(struct tern_push_consumer *consumer)
{
    struct push_pool *pool = &consumer->pool;
    lock_acquire(&pool->lock);
    struct push_chunk *lists[] = {pool->fresh, pool->open, pool->later};
    pool->fresh = pool->open = pool->later = NULL;
    pool->fresh_messages = 0;
    lock_release(&pool->lock);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        while (lists[i]) {
            struct push_chunk *chunk = lists[i];
            lists[i] = chunk->next;
            chunk->listed = false;
            push_chunk_unref(chunk);
        }
    }
}
