/*
 * Pulling: one pull under way per queue, its answer into the window and to the pool, and the next
 * pull.
 *
 *   READY ──room?──► PULLING ──answer──► decode, compare tags, window_admit, push_pool_add ─┐
 *     ▲  no: 50 ms                                                                          │
 *     └── slow way, the control task: pauses, another address ◄── else ── at once: same peer ◄┘
 *
 * The usual case never leaves the transport's thread: the callback of one pull starts the next.
 * Whatever needs a choice (another address, a pause, a new beginning) goes through the control
 * task.
 *
 * Invariants: next_offset never falls within a queue object's life; an offset becomes "done"
 * without a listener only when the answer of a broker has passed it; nothing that a slave says
 * moves a queue to an offset that no message led to.
 *
 * Which address: the one that the broker suggests for this queue, usually the master. When that is
 * away, refuses, or is a slave that does not have the offset (yet), another of the set serves the
 * same offset; then the wanted one is looked for again every second, at the price of a choice per
 * second, and a slave holds pulls no longer than that.
 *
 * Failure modes: no answer or no connection → another address of the set at once, then with growing
 * pauses; refused by a slave, or for now by the master → that address is shunned by this queue for
 * a second; other errors → 3 s; answers without progress → growing pauses, so that no broker can
 * make this spin; an offset outside the queue, says the master → a new queue object at the
 * corrected one, once nothing is in flight; says a slave → the offset stands.
 */
#include "client/push_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/props.h"
#include "client/message_internal.h"
#include "client/message_retry.h"

enum { PULL_COUNT_MAX = 1024 };

enum flow_cause { FLOW_COUNT, FLOW_BYTES, FLOW_SPAN, FLOW_NONE };
static const char *const flow_names[] = {"count", "bytes", "span"};

/* ---- flow control ---- */

/* A queue's share of its topic's limit when that is set, at least `least`; else its own limit. */
static int64_t limit_share(int64_t own, int64_t topics, size_t owned, int64_t least)
{
    if (topics < 0)
        return own;
    int64_t share = topics / (owned > 0 ? (int64_t)owned : 1);
    return share > least ? share : least;
}

static void set_limits(struct push_queue *queue, size_t owned)
{
    const struct tern_consumer_options *options = &queue->consumer->options;
    atomic_store_explicit(&queue->limit,
                          limit_share(options->pull_threshold, options->topic_threshold, owned, 1),
                          memory_order_relaxed);
    atomic_store_explicit(
        &queue->limit_bytes,
        limit_share(options->pull_threshold_bytes, options->topic_threshold_bytes, owned, 1 << 20),
        memory_order_relaxed);
}

void push_queue_init_limits(struct push_queue *queue)
{
    set_limits(queue, 1);
}

void push_topic_set_limits(struct push_topic *topic, size_t owned)
{
    struct tern_push_consumer *consumer = topic->consumer;
    lock_acquire(&consumer->lock);
    for (struct push_queue *queue = consumer->queues; queue; queue = queue->next)
        if (strcmp(queue->id.topic, topic->name) == 0)
            set_limits(queue, owned);
    lock_release(&consumer->lock);
}

void push_queues_hurry(struct tern_push_consumer *consumer)
{
    lock_acquire(&consumer->lock);
    for (struct push_queue *queue = consumer->queues; queue; queue = queue->next)
        atomic_store(&queue->hurry, true);
    lock_release(&consumer->lock);
    push_wake(consumer);
}

static enum flow_cause flow_cause(struct push_queue *queue, bool half)
{
    const struct tern_consumer_options *options = &queue->consumer->options;
    int64_t cached = atomic_load_explicit(&queue->cached, memory_order_relaxed);
    int64_t bytes = atomic_load_explicit(&queue->cached_bytes, memory_order_relaxed);
    int64_t limit = atomic_load_explicit(&queue->limit, memory_order_relaxed);
    int64_t limit_bytes = atomic_load_explicit(&queue->limit_bytes, memory_order_relaxed);
    if (cached > (half ? limit / 2 : limit))
        return FLOW_COUNT;
    if (bytes > (half ? limit_bytes / 2 : limit_bytes))
        return FLOW_BYTES;
    bool wide = queue->newest - window_left(&queue->window) > options->max_span;
    /* One by one there are no holes: what is cached is the limit (RocketMQ too). */
    if ((wide && !queue->consumer->orderly) || window_full(&queue->window))
        return FLOW_SPAN;
    return FLOW_NONE;
}

static void flow_log(struct push_queue *queue, enum flow_cause cause)
{
    uint64_t times = ++queue->flow_waits[cause];
    struct tern_push_consumer *consumer = queue->consumer;
    counter_add(&consumer->flow_controlled, 1);
    if (times != 1 && times % 1000 != 0)
        return;
    int64_t bytes = atomic_load_explicit(&queue->cached_bytes, memory_order_relaxed);
    log_warn(consumer->env->log, "consumer_flow_control",
             "cause=%s group=%s topic=%s broker=%s queue=%d min_offset=%lld max_offset=%lld "
             "cached=%u mib=%.1f times=%llu",
             flow_names[cause], consumer->options.group, queue->id.topic, queue->id.broker_name,
             queue->id.queue_id, (long long)window_left(&queue->window), (long long)queue->newest,
             (unsigned)atomic_load_explicit(&queue->cached, memory_order_relaxed),
             (double)bytes / (1024 * 1024), (unsigned long long)times);
}

/* true: too much is cached, the queue pauses; a worker that makes room shortens the pause. */
static bool flow_paused(struct push_queue *queue)
{
    enum flow_cause cause = flow_cause(queue, false);
    if (cause == FLOW_NONE)
        return false;
    flow_log(queue, cause);
    if (cause != FLOW_SPAN) {
        atomic_store(&queue->throttled, true);
        /* Room made before the flag was seen would be announced by nobody. */
        if (flow_cause(queue, true) == FLOW_NONE)
            atomic_store(&queue->hurry, true);
    }
    return true;
}

/* ---- asking ---- */

static void on_pulled(struct rpc_call *call, void *arg);

/*
 * The connection of the last pull when the broker wants no other, or could not have it a moment
 * ago; else NULL. The caller's.
 */
static struct rpc_peer *same_peer(struct push_queue *queue, int64_t now_ns)
{
    lock_acquire(&queue->consumer->lock);
    struct rpc_peer *peer = NULL;
    if (queue->peer && (queue->peer_id == queue->suggested_id ||
                        (queue->peer_wanted == queue->suggested_id && now_ns < queue->look_ns)))
        peer = rpc_peer_ref(queue->peer);
    lock_release(&queue->consumer->lock);
    if (peer && !rpc_peer_up(peer)) {
        rpc_peer_unref(peer);
        peer = NULL;
    }
    return peer;
}

/* Keeps the chosen peer for the next pulls. @locks takes:CONSUMER */
static void keep_peer(struct push_queue *queue, const struct broker_choice *choice, int64_t now_ns)
{
    queue->peer_wanted = queue->suggested_id;
    queue->look_ns = now_ns + ms_to_ns(MASTER_LOOK_MS);
    lock_acquire(&queue->consumer->lock);
    struct rpc_peer *old = queue->peer;
    bool dropped = atomic_load(&queue->dropped);
    queue->peer = dropped ? NULL : rpc_peer_ref(choice->peer);
    queue->peer_id = choice->broker_id;
    lock_release(&queue->consumer->lock);
    if (old)
        rpc_peer_unref(old);
}

/* So many queues at one broker that their parked pulls would leave no room for heartbeats and
 * commits: the rest is asked for what is there, again and again. */
static uint32_t suspend_ms(const struct push_queue *queue, const struct rpc_peer *peer)
{
    if (rpc_peer_crowded(peer))
        return 0;
    return queue->asked_id == 0 ? PULL_SUSPEND_MS : SLAVE_SUSPEND_MS;
}

/* Sends the pull; the queue is PULLING, or dropped. @locks takes:CONSUMER */
static void start_pull(struct push_queue *queue, struct rpc_peer *peer)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct rpc_call *call;
    enum tern_code code = rpc_call_create(peer, 0, &call);
    if (code != TERN_OK) {
        push_queue_yield(queue, QUEUE_READY, push_queue_backoff_ms(queue, 100, ERROR_PAUSE_MS));
        return;
    }
    lock_acquire(&consumer->lock);
    queue->state = QUEUE_PULLING;
    struct push_filter *filter = queue->filter;
    atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    lock_release(&consumer->lock);

    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    offset_version_fill(&version, &queue->version);
    Tern__Wire__PullRequest pull = TERN__WIRE__PULL_REQUEST__INIT;
    pull.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    pull.topic = frame_bytes(queue->id.topic, strlen(queue->id.topic));
    pull.queue_id = queue->id.queue_id;
    pull.offset = queue->next_offset;
    pull.max_count = consumer->options.pull_batch;
    pull.suspend_timeout_ms = suspend_ms(queue, peer);
    bool brokers = !push_store_used(consumer); /* else progress and its versions are not theirs */
    pull.commit_offset = brokers ? window_left(&queue->window) : 0;
    pull.has_commit = pull.commit_offset > 0;
    pull.has_subscription = true;
    pull.expression = (char *)(uintptr_t)subscription_text(filter->tags);
    pull.expression_type =
        (char *)(uintptr_t)subscription_type_name(subscription_type(filter->tags));
    pull.subscription_version = filter->version;
    pull.offset_version = brokers ? &version : NULL;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &pull;

    call->user = filter; /* the one that the answer is compared with */
    queue->pulled_ns = clock_mono_ns(consumer->env->clock);
    push_queue_ref(queue);
    rpc_call_start(call, &request, 0, PULL_TIMEOUT_MS, on_pulled, queue);
}

/* An address to pull from, the caller's; NULL: the queue was handed over, to look again later. */
static struct rpc_peer *choose_peer(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    const struct broker_wish wish = {.id = queue->suggested_id, .shuns = &queue->shuns};
    struct broker_choice choice;
    struct tern_error err;
    if (broker_pick_cached(consumer->instance, &consumer->failed, &queue->id, &wish, &choice,
                           &err) != TERN_OK) {
        log_warn(consumer->env->log, "consumer_pull_nowhere", "group=%s queue=%d reason=\"%s\"",
                 consumer->options.group, queue->id.queue_id, err.text);
        push_queue_yield(queue, QUEUE_READY, push_queue_backoff_ms(queue, 100, ELSEWHERE_MAX_MS));
        return NULL;
    }
    if (!choice.good && choice.again_ns > now_ns) {
        rpc_peer_unref(choice.peer);
        push_queue_yield(queue, QUEUE_READY, (choice.again_ns - now_ns) / 1000000 + 1);
        return NULL;
    }
    keep_peer(queue, &choice, now_ns);
    return choice.peer;
}

void push_queue_pull(struct push_queue *queue, bool may_choose)
{
    struct tern_push_consumer *consumer = queue->consumer;
    if (atomic_load_explicit(&consumer->pool.halted, memory_order_relaxed)) {
        push_queue_yield(queue, QUEUE_READY, SUSPENDED_PAUSE_MS); /* or until resumed */
        return;
    }
    if (!push_lease_good(&queue->lease, clock_mono_ns(consumer->env->clock))) {
        push_queue_yield(queue, QUEUE_READY, LEASE_LOOK_MS);
        return;
    }
    if (flow_paused(queue)) {
        push_queue_yield(queue, QUEUE_READY, FLOW_PAUSE_MS);
        return;
    }
    struct rpc_peer *peer = same_peer(queue, clock_mono_ns(consumer->env->clock));
    if (!peer && !may_choose) {
        push_queue_yield(queue, QUEUE_READY, 0);
        return;
    }
    if (!peer)
        peer = choose_peer(queue);
    if (!peer)
        return;
    queue->asked_id = queue->peer_id;
    start_pull(queue, peer);
    rpc_peer_unref(peer);
}

/* ---- answers ---- */

/* What the callback decides: pull at once (0 or more ms), or the queue was handed over already. */
enum { PULL_AT_ONCE = 0, HANDED_OVER = -1 };

/* To begin anew elsewhere; offset -1: where the broker says when asked. */
static int64_t move_queue(struct push_queue *queue, int64_t offset,
                          const Tern__Wire__OffsetVersion *version, bool reset)
{
    queue->moved_offset = offset;
    queue->moved_version = queue->version;
    if (version)
        queue->moved_version = offset_version_of(version);
    queue->moved_reset = reset;
    push_queue_yield(queue, QUEUE_MOVING, 0);
    return HANDED_OVER;
}

static int64_t pause_queue(struct push_queue *queue, int64_t pause_ms)
{
    push_queue_yield(queue, QUEUE_READY, pause_ms);
    return HANDED_OVER;
}

static void log_no_progress(const struct push_queue *queue, const char *what)
{
    const struct tern_push_consumer *consumer = queue->consumer;
    if (queue->failures == 1 || queue->failures % 1000 == 0)
        log_warn(consumer->env->log, "consumer_no_progress",
                 "group=%s topic=%s broker=%s queue=%d offset=%lld broker_id=%lld answer=%s "
                 "times=%u",
                 consumer->options.group, queue->id.topic, queue->id.broker_name,
                 queue->id.queue_id, (long long)queue->next_offset, (long long)queue->asked_id,
                 what, queue->failures);
}

/*
 * A slave does not have what was asked for: it may be behind. The offset stands; the master is
 * asked, or the slave again when there is no master, for a while in growing steps. Who came here by
 * a suggestion has a master, and does not come back soon.
 */
static int64_t slave_lags(struct push_queue *queue, const char *what)
{
    bool suggested = queue->asked_id == queue->suggested_id;
    int64_t shun_ms = push_queue_backoff_ms(queue, ELSEWHERE_PAUSE_MS, ELSEWHERE_MAX_MS);
    log_no_progress(queue, what);
    push_queue_leave_address(queue, suggested ? ELSEWHERE_MAX_MS : shun_ms);
    return pause_queue(queue, 0);
}

/* The same offset was answered again. */
static int64_t no_progress(struct push_queue *queue, const char *what)
{
    if (queue->asked_id != 0)
        return slave_lags(queue, what);
    int64_t pause_ms = push_queue_backoff_ms(queue, ELSEWHERE_PAUSE_MS, ERROR_PAUSE_MS);
    log_no_progress(queue, what);
    return pause_queue(queue, pause_ms);
}

/* Whether the consumer wants the message: hashes of tags collide. A condition was the broker's to
 * evaluate. */
static bool wanted(const struct push_filter *filter, const struct tern_message *message)
{
    if (subscription_type(filter->tags) == SUBSCRIPTION_SQL92)
        return true;
    size_t len;
    const uint8_t *props = message_props(message, &len);
    return subscription_match_props(filter->tags, props, len);
}

static void chunk_discard(struct push_chunk *chunk, uint32_t from)
{
    for (uint32_t i = from; i < chunk->count; i++)
        tern_message_unref(chunk->messages[i]);
    chunk->count = from;
}

/*
 * Drops from the chunk what was not asked for (counted as duplicates) and what does not match;
 * fills the offsets of the rest and raises *next above them.
 */
static void sift(struct push_queue *queue, const struct push_filter *filter,
                 struct push_chunk *chunk, int64_t *offsets, int64_t *next)
{
    uint32_t kept = 0;
    int64_t least = queue->next_offset;
    for (uint32_t i = 0; i < chunk->count; i++) {
        struct tern_message *message = chunk->messages[i];
        int64_t offset = tern_message_queue_offset(message);
        bool asked_for = offset >= least;
        if (!asked_for)
            counter_add(&queue->consumer->duplicates, 1);
        else
            least = offset + 1;
        if (asked_for && wanted(filter, message)) {
            offsets[kept] = offset;
            chunk->messages[kept++] = message;
        } else {
            tern_message_unref(message);
        }
    }
    chunk->count = kept;
    if (*next < least)
        *next = least;
}

/* Hands the chunk to the pool, or frees it when nothing is left in it. */
static void deliver(struct push_queue *queue, struct push_chunk *chunk)
{
    struct tern_push_consumer *consumer = queue->consumer;
    bool retry = strcmp(queue->id.topic, consumer->retry_topic) == 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        size_t size;
        (void)message_stored_body(chunk->messages[i], &size);
        bytes += (int64_t)size;
        if (retry)
            message_restore_topic(chunk->messages[i]);
        consumer_prepare_message(&consumer->options, chunk->messages[i]);
    }
    atomic_fetch_add_explicit(&queue->cached, chunk->count, memory_order_relaxed);
    atomic_fetch_add_explicit(&queue->cached_bytes, bytes, memory_order_relaxed);
    counter_add(&consumer->pulled, chunk->count);
    push_pool_add(consumer, chunk);
}

/* Messages came. */
static int64_t found(struct push_queue *queue, struct rpc_call *call,
                     const Tern__Wire__PullResponse *body)
{
    struct tern_push_consumer *consumer = queue->consumer;
    uint32_t cap = body->count < 1                ? 1
                   : body->count > PULL_COUNT_MAX ? PULL_COUNT_MAX
                                                  : (uint32_t)body->count;
    /* One more, to see that there are not more than announced: next_offset would pass them. */
    struct push_chunk *chunk = push_chunk_create(queue, cap + 1);
    if (!chunk)
        return pause_queue(queue, ERROR_PAUSE_MS);
    size_t count = 0;
    struct tern_error err;
    enum tern_code code =
        message_decode_all(call, call->payload, call->payload_size, queue->id.broker_name,
                           chunk->messages, cap + 1, &count, &err);
    chunk->count = (uint32_t)count;
    if (code == TERN_OK && count != cap)
        code = error_set(&err, TERN_PROTOCOL, "%zu messages came, %d were announced", count,
                         (int)body->count);
    int64_t next = body->next_offset;
    if (code != TERN_OK) {
        log_error(consumer->env->log, "consumer_answer_damaged",
                  "group=%s topic=%s broker=%s queue=%d offset=%lld reason=\"%s\"",
                  consumer->options.group, queue->id.topic, queue->id.broker_name,
                  queue->id.queue_id, (long long)queue->next_offset, err.text);
        next = queue->next_offset; /* what follows the last whole message is asked for again */
    }
    int64_t asked = queue->next_offset;
    int64_t offsets[PULL_COUNT_MAX + 1];
    sift(queue, call->user, chunk, offsets, &next);
    size_t admitted =
        window_admit(&queue->window, next, offsets, chunk->count, &queue->next_offset);
    chunk_discard(chunk, (uint32_t)admitted);
    if (admitted > 0)
        queue->newest = offsets[admitted - 1];
    deliver(queue, chunk);
    if (code != TERN_OK)
        return pause_queue(queue, ERROR_PAUSE_MS);
    if (queue->next_offset == asked)
        return no_progress(queue, "FOUND");
    queue->failures = 0;
    return admitted > 0 ? consumer->options.pull_interval_ms : PULL_AT_ONCE;
}

/*
 * Nothing for us up to next: passed over. A slave that passes what it does not hold any more has
 * not looked whether it was for us; the master may.
 */
static int64_t passed(struct push_queue *queue, const Tern__Wire__PullResponse *body,
                      const char *remark)
{
    if (queue->asked_id != 0 && strcmp(remark, "MESSAGE_WAS_REMOVING") == 0)
        return slave_lags(queue, remark);
    if (body->next_offset <= queue->next_offset)
        return no_progress(queue, "NO_MATCHED_MSG");
    int64_t asked = queue->next_offset;
    window_admit(&queue->window, body->next_offset, NULL, 0, &queue->next_offset);
    if (queue->next_offset > asked)
        queue->failures = 0;
    return PULL_AT_ONCE; /* a full window pauses there */
}

/*
 * The end of the queue, after the broker's wait. At a slave it is only as far as that has come: the
 * master is looked for, and what the slave would pass over stays to be asked for.
 */
static int64_t nothing_new(struct push_queue *queue, const Tern__Wire__PullResponse *body,
                           int64_t now_ns)
{
    if (queue->asked_id != 0)
        queue->suggested_id = 0;
    else if (body->next_offset > queue->next_offset)
        window_admit(&queue->window, body->next_offset, NULL, 0, &queue->next_offset);
    if (now_ns - queue->pulled_ns >= ms_to_ns(QUICK_ANSWER_MS)) {
        queue->failures = 0;
        return PULL_AT_ONCE;
    }
    if (queue->asked_id != 0 && body->max_offset < queue->next_offset)
        return slave_lags(queue, "PULL_NOT_FOUND");
    /* Answered early: once is the broker's good right, again and again would spin. */
    if (queue->failures++ == 0)
        return PULL_AT_ONCE;
    int64_t pause_ms = (int64_t)10 << (queue->failures < 8 ? queue->failures : 8);
    return pause_queue(queue, pause_ms < 1000 ? pause_ms : 1000);
}

/* The offset is outside the queue. */
static int64_t offset_illegal(struct push_queue *queue, const Tern__Wire__PullResponse *body)
{
    struct tern_push_consumer *consumer = queue->consumer;
    if (queue->asked_id != 0)
        return no_progress(queue, "OFFSET_ILLEGAL");
    log_warn(consumer->env->log, "consumer_offset_illegal",
             "group=%s topic=%s broker=%s queue=%d offset=%lld min=%lld max=%lld corrected=%lld",
             consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
             (long long)queue->next_offset, (long long)body->min_offset,
             (long long)body->max_offset, (long long)body->next_offset);
    if (body->next_offset < 0 || body->next_offset == queue->next_offset)
        return pause_queue(queue, ERROR_PAUSE_MS);
    return move_queue(queue, body->next_offset, NULL, false);
}

/* How to go on after a failure: at another address of the set when one may do better. */
static int64_t after_failure(struct push_queue *queue, enum tern_code code)
{
    if (code_means_unreachable(code)) {
        bool first = queue->failures == 0;
        int64_t pause_ms = push_queue_backoff_ms(queue, ELSEWHERE_PAUSE_MS, ELSEWHERE_MAX_MS);
        return pause_queue(queue, first ? 0 : pause_ms);
    }
    queue->failures++;
    if (queue->asked_id == 0 && !code_means_elsewhere(code))
        return pause_queue(queue, ERROR_PAUSE_MS);
    push_queue_leave_address(queue, REFUSED_MS);
    return pause_queue(queue, 0);
}

/* No answer, or a refusal. */
static int64_t pull_failed(struct push_queue *queue, const struct rpc_call *call,
                           enum tern_code code, int64_t now_ns)
{
    struct tern_push_consumer *consumer = queue->consumer;
    if (code == TERN_FLOW_CONTROL)
        return pause_queue(queue, BROKER_FLOW_PAUSE_MS);
    struct rpc_peer *peer = push_queue_take_peer(queue);
    if (queue->failures < 3 || queue->failures % 100 == 0)
        log_warn(
            consumer->env->log, "consumer_pull_failed",
            "group=%s topic=%s broker=%s broker_id=%lld address=%s queue=%d offset=%lld code=%s "
            "reason=\"%s\"",
            consumer->options.group, queue->id.topic, queue->id.broker_name,
            (long long)queue->asked_id, peer ? rpc_peer_address(peer) : "", queue->id.queue_id,
            (long long)queue->next_offset, tern_code_name(code), error_text(&call->error, code));
    if (peer) {
        failed_addresses_note(&consumer->failed, rpc_peer_address(peer), code, now_ns);
        rpc_peer_unref(peer);
    }
    instance_route_refresh(consumer->instance, queue->id.topic);
    return after_failure(queue, code);
}

static int64_t handle_answer(struct push_queue *queue, struct rpc_call *call, int64_t now_ns)
{
    enum tern_code code = rpc_call_result(call);
    const Tern__Wire__PullResponse *body = NULL;
    if (call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_PULL)
        body = call->response->pull;
    if (body && offset_version_newer(body->offset_version, &queue->version) &&
        body->committed_offset >= 0)
        return move_queue(queue, body->committed_offset, body->offset_version, true);
    if (code == TERN_OFFSET_VERSION_OLD)
        return move_queue(queue, -1, NULL, true);
    if (body && body->suggest_broker_id >= 0)
        queue->suggested_id = body->suggest_broker_id;
    if (body && code == TERN_OK)
        return found(queue, call, body);
    if (body && code == TERN_PULL_NOT_FOUND)
        return nothing_new(queue, body, now_ns);
    if (body && code == TERN_PULL_RETRY_IMMEDIATELY)
        return passed(queue, body, call->response->remark);
    if (body && code == TERN_PULL_OFFSET_MOVED)
        return offset_illegal(queue, body);
    return pull_failed(queue, call, code == TERN_OK ? TERN_PROTOCOL : code, now_ns);
}

/* @thread link's */
static void on_pulled(struct rpc_call *call, void *arg)
{
    struct push_queue *queue = arg;
    struct tern_push_consumer *consumer = queue->consumer;
    struct push_filter *filter = call->user;
    if (!atomic_load(&queue->dropped) && push_state(consumer) == PUSH_RUNNING) {
        int64_t now_ns = clock_mono_ns(consumer->env->clock);
        queue->active_ns = now_ns;
        int64_t delay_ms = handle_answer(queue, call, now_ns);
        if (delay_ms == PULL_AT_ONCE)
            push_queue_pull(queue, false);
        else if (delay_ms > 0)
            pause_queue(queue, delay_ms);
    }
    rpc_call_unref(call);
    push_filter_unref(filter);
    push_queue_unref(queue);
}
