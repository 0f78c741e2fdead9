/*
 * Progress: where a queue begins, and telling the broker how far we are. (Where somebody else keeps
 * progress, push_store.c asks and tells, and only the policy is from here.)
 *
 *   NEW ──QueryOffset──► has progress: there
 *                   ├──► QUERY_NOT_FOUND, from the master: by the consumer's policy
 *                   │        last    max offset
 *                   │        first   0
 *                   │        time    SearchOffset
 *                   │        a retry topic always at 0: what failed before it was looked for
 *                   └──► anything else: unknown, another address of the set is asked, then all
 *                        again, every 200 ms growing to 1 s; nothing pulled, nothing committed
 *
 * "No progress" and "cannot tell" never share a value: only the master's QUERY_NOT_FOUND lets the
 * policy decide. A negative offset in an answer is an error.
 *
 * Commits carry the window's left edge of every queue where it is beyond what the broker has
 * acknowledged, one request per broker. A queue that left us stays in consumer->leaving until its
 * last progress is acknowledged, or LEAVE_COMMITS_MAX attempts failed.
 *
 * Invariants: committed <= left edge; what is acknowledged within a version only grows.
 *
 * Threads: asking and committing by the control task (or by shutdown, when it has stopped), answers
 * on the link's threads. Failure modes: an address that cannot tell where to begin is not asked
 * again for a while, the others of the set are; a commit that is not answered with success is made
 * again: once at once at another address of the set, when the master is away or does not take it,
 * else at the next interval; what no broker has taken at the end is what shutdown returns.
 */
#include "client/push_internal.h"

#include <stdlib.h>
#include <string.h>

enum { COMMIT_QUEUES_MAX = 1024 }; /* in one request */

static ProtobufCBinaryData text_bytes(const char *text)
{
    return frame_bytes(text, strlen(text));
}

/* ---- where a queue begins ---- */

/* Asks again in a while. */
void push_queue_ask_later(struct push_queue *queue, enum tern_code code, const char *what,
                          const char *reason)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int64_t pause_ms = push_queue_backoff_ms(queue, START_ASK_MS, ELSEWHERE_MAX_MS);
    if (queue->failures < 3 || queue->failures % 100 == 0)
        log_warn(
            consumer->env->log, "consumer_start_offset_unknown",
            "group=%s topic=%s broker=%s queue=%d asked=%s code=%s reason=\"%s\" retry_ms=%lld",
            consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
            what, tern_code_name(code), reason, (long long)pause_ms);
    push_queue_yield(queue, QUEUE_NEW, pause_ms);
}

/* Starts a call of an ASKING queue. master_only: the answer decides where a group begins. */
static void start_asking(struct push_queue *queue, TernRequest *request, bool master_only,
                         rpc_done_fn done, const char *what)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct broker_choice choice;
    struct tern_error err = {.code = TERN_OK};
    struct rpc_call *call;
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    const struct broker_wish wish = {.master_only = master_only, .shuns = &queue->shuns};
    enum tern_code code =
        broker_pick_cached(consumer->instance, &consumer->failed, &queue->id, &wish, &choice, &err);
    if (code == TERN_OK && !choice.good && choice.again_ns > now_ns) {
        rpc_peer_unref(choice.peer);
        push_queue_yield(queue, QUEUE_NEW, (choice.again_ns - now_ns) / 1000000 + 1);
        return;
    }
    if (code == TERN_OK)
        code = rpc_call_create(choice.peer, 0, &call);
    if (code != TERN_OK) {
        if (choice.peer)
            rpc_peer_unref(choice.peer);
        push_queue_ask_later(queue, code, what, error_text(&err, code));
        return;
    }
    lock_acquire(&consumer->lock);
    queue->state = QUEUE_ASKING;
    lock_release(&consumer->lock);
    queue->asked_id = choice.broker_id;
    call->user = choice.peer; /* its reference */
    push_queue_ref(queue);
    rpc_call_start(call, request, 0, RPC_TIMEOUT_MS, done, queue);
}

/* The address could not tell: asks the next of the set, or, when all were asked, again in a while.
 */
static void ask_elsewhere(struct push_queue *queue, enum tern_code code, const char *what,
                          const char *reason)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int64_t shun_ms = push_queue_backoff_ms(queue, START_ASK_MS, ELSEWHERE_MAX_MS);
    if (queue->failures < 3 || queue->failures % 100 == 0)
        log_warn(consumer->env->log, "consumer_start_offset_unknown",
                 "group=%s topic=%s broker=%s broker_id=%lld queue=%d asked=%s code=%s "
                 "reason=\"%s\" times=%u",
                 consumer->options.group, queue->id.topic, queue->id.broker_name,
                 (long long)queue->asked_id, queue->id.queue_id, what, tern_code_name(code), reason,
                 queue->failures);
    push_queue_leave_address(queue, shun_ms);
    push_queue_yield(queue, QUEUE_NEW, 0);
}

/* Common end of a callback: failed addresses and references. */
static void end_asking(struct push_queue *queue, struct rpc_call *call, enum tern_code code)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct rpc_peer *peer = call->user;
    failed_addresses_note(&consumer->failed, rpc_peer_address(peer), code,
                          clock_mono_ns(consumer->env->clock));
    rpc_peer_unref(peer);
}

static bool still_ours(struct push_queue *queue)
{
    return !atomic_load(&queue->dropped) && push_state(queue->consumer) == PUSH_RUNNING;
}

/* The queue begins at offset; committed: what the broker has, -1 when it has nothing yet. */
void push_queue_begin(struct push_queue *queue, int64_t offset, int64_t committed,
                      const Tern__Wire__OffsetVersion *version)
{
    struct tern_push_consumer *consumer = queue->consumer;
    log_info(consumer->env->log, "consumer_queue_begins",
             "group=%s topic=%s broker=%s queue=%d offset=%lld progress=%d",
             consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
             (long long)offset, committed >= 0);
    push_queue_position(queue, offset, committed, version);
    if (committed < 0)
        atomic_store(&consumer->commit_wanted,
                     true); /* decided once: a restart must not decide anew */
    push_queue_yield(queue, QUEUE_READY, 0);
}

/*
 * Broadcasting from the last: a queue that was found after start had returned begins at the time of
 * the start, since what was sent since then was promised.
 */
static bool begins_at_start(const struct push_queue *queue)
{
    const struct tern_push_consumer *consumer = queue->consumer;
    return consumer->options.model == TERN_BROADCASTING &&
           consumer->options.from == TERN_FROM_LAST && atomic_load(&consumer->started);
}

/* The end of the queue, or the offset of a time, came from the master. @thread link's */
static void on_policy_answer(struct rpc_call *call, void *arg)
{
    struct push_queue *queue = arg;
    enum tern_code code = rpc_call_result(call);
    int64_t offset = -1;
    bool is_end =
        code == TERN_OK && call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUEUE_RANGE;
    if (is_end)
        offset = call->response->queue_range->max_offset;
    else if (code == TERN_OK &&
             call->response->body_case == TERN__WIRE__RESPONSE__BODY_SEARCH_OFFSET)
        offset = call->response->search_offset->offset;
    end_asking(queue, call, code);
    if (still_ours(queue)) {
        if (is_end && begins_at_start(queue)) /* the end came too late */
            push_queue_begin_by_policy(queue);
        else if (offset >= 0)
            push_queue_begin(queue, offset, -1, NULL);
        else
            ask_elsewhere(queue, code == TERN_OK ? TERN_PROTOCOL : code, "range",
                          error_text(&call->error, code));
    }
    rpc_call_unref(call);
    push_queue_unref(queue);
}

/* The group has no progress: the consumer's policy says where to begin. */
void push_queue_begin_by_policy(struct push_queue *queue)
{
    const struct tern_consumer_options *options = &queue->consumer->options;
    bool retry = strncmp(queue->id.topic, RETRY_TOPIC_PREFIX, strlen(RETRY_TOPIC_PREFIX)) == 0;
    if (options->from == TERN_FROM_FIRST || retry) {
        push_queue_begin(queue, 0, -1, NULL);
        return;
    }
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    bool at_start = begins_at_start(queue);
    if (!at_start && options->from == TERN_FROM_LAST) {
        Tern__Wire__QueueRangeRequest range = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
        range.topic = text_bytes(queue->id.topic);
        range.queue_id = queue->id.queue_id;
        request.body_case = TERN__WIRE__REQUEST__BODY_QUEUE_RANGE;
        request.queue_range = &range;
        start_asking(queue, &request, true, on_policy_answer, "range");
    } else {
        Tern__Wire__SearchOffsetRequest search = TERN__WIRE__SEARCH_OFFSET_REQUEST__INIT;
        search.topic = text_bytes(queue->id.topic);
        search.queue_id = queue->id.queue_id;
        search.store_ms = at_start ? queue->consumer->started_ms : options->from_timestamp_ms;
        request.body_case = TERN__WIRE__REQUEST__BODY_SEARCH_OFFSET;
        request.search_offset = &search;
        start_asking(queue, &request, true, on_policy_answer, "search");
    }
}

/* @thread link's */
static void on_progress(struct rpc_call *call, void *arg)
{
    struct push_queue *queue = arg;
    enum tern_code code = rpc_call_result(call);
    const Tern__Wire__QueryOffsetResponse *body = NULL;
    if (call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET)
        body = call->response->query_offset;
    end_asking(queue, call, code);
    if (still_ours(queue)) {
        if (code == TERN_OK && body && body->offset >= 0)
            push_queue_begin(queue, body->offset, body->offset, body->version);
        else if (code == TERN_QUERY_NOT_FOUND && queue->asked_id == 0) {
            /* The version of what is no longer there, or our commits would be taken for older. */
            if (body && body->version)
                queue->version = offset_version_of(body->version);
            push_queue_begin_by_policy(queue);
        } else
            ask_elsewhere(queue, code == TERN_OK ? TERN_PROTOCOL : code, "progress",
                          error_text(&call->error, code));
    }
    rpc_call_unref(call);
    push_queue_unref(queue);
}

void push_offsets_ask(struct push_queue *queue, int64_t now_ns)
{
    queue->active_ns = now_ns;
    if (push_store_used(queue->consumer)) {
        push_store_ask(queue);
        return;
    }
    Tern__Wire__QueryOffsetRequest query = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    query.group = text_bytes(queue->consumer->options.group);
    query.topic = text_bytes(queue->id.topic);
    query.queue_id = queue->id.queue_id;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_OFFSET;
    request.query_offset = &query;
    start_asking(queue, &request, false, on_progress, "progress");
}

/* ---- commits ---- */

/* One request under way. */
struct commit_op {
    struct tern_push_consumer *consumer; /* holds a reference */
    struct rpc_peer *peer;
    size_t count;
    struct {
        struct push_queue *queue; /* holds a reference */
        int64_t offset;
    } items[];
};

/* @locks holds:CONSUMER */
bool push_queue_commit_due(struct push_queue *queue)
{
    return queue->positioned && !queue->no_commit && !queue->committing &&
           window_left(&queue->window) > queue->committed;
}

/* @locks holds:CONSUMER */
static size_t claim_list(struct push_queue *list, const char *broker_name, struct commit_op *op)
{
    for (struct push_queue *queue = list; queue; queue = queue->next) {
        if (op->count == COMMIT_QUEUES_MAX || !push_queue_commit_due(queue) ||
            strcmp(queue->id.broker_name, broker_name) != 0)
            continue;
        queue->committing = true;
        push_queue_ref(queue);
        op->items[op->count].queue = queue;
        op->items[op->count++].offset = window_left(&queue->window);
    }
    return op->count;
}

/* The next broker that has something to commit after the name given; *pulled_id is where one of its
 * queues was pulled from. false: none. @locks takes:CONSUMER */
static bool next_broker(struct tern_push_consumer *consumer, const char *after,
                        struct tern_queue *out, int64_t *pulled_id)
{
    bool any = false;
    lock_acquire(&consumer->lock);
    for (int list = 0; list < 2; list++) {
        for (struct push_queue *queue = list ? consumer->leaving : consumer->queues; queue;
             queue = queue->next) {
            if (!push_queue_commit_due(queue) || strcmp(queue->id.broker_name, after) <= 0 ||
                (any && strcmp(queue->id.broker_name, out->broker_name) >= 0))
                continue;
            *out = queue->id;
            *pulled_id = queue->peer_id;
            any = true;
        }
    }
    lock_release(&consumer->lock);
    return any;
}

static void op_free(struct commit_op *op)
{
    for (size_t i = 0; i < op->count; i++)
        push_queue_unref(op->items[i].queue);
    if (op->peer)
        rpc_peer_unref(op->peer);
    push_unref(op->consumer);
    free(op);
}

/* A queue whose commit the broker refused because its progress was reset there. @locks
 * holds:CONSUMER */
static const Tern__Wire__CommitOffset *find_refused(const Tern__Wire__CommitOffsetResponse *body,
                                                    const struct push_queue *queue)
{
    for (size_t i = 0; body && i < body->n_refused; i++) {
        const Tern__Wire__CommitOffset *refused = body->refused[i];
        size_t len = strlen(queue->id.topic);
        if (refused->queue_id == queue->id.queue_id && refused->topic.len == len &&
            memcmp(refused->topic.data, queue->id.topic, len) == 0)
            return refused;
    }
    return NULL;
}

/*
 * Writes the answer into the queues. A refused one learns of its new version by its next pull,
 * which is answered with it; until then it must not commit.
 */
static void op_finish(struct commit_op *op, enum tern_code code,
                      const Tern__Wire__CommitOffsetResponse *body)
{
    struct tern_push_consumer *consumer = op->consumer;
    lock_acquire(&consumer->lock);
    for (size_t i = 0; i < op->count; i++) {
        struct push_queue *queue = op->items[i].queue;
        queue->committing = false;
        bool refused = find_refused(body, queue) != NULL;
        if (refused)
            queue->no_commit = true;
        else if ((code == TERN_OK || code == TERN_OFFSET_VERSION_OLD) &&
                 queue->committed < op->items[i].offset)
            queue->committed = op->items[i].offset;
        if (code != TERN_OK && atomic_load(&queue->dropped))
            queue->leave_attempts++;
    }
    if (code != TERN_OK)
        atomic_store(&consumer->commit_failure, code);
    consumer->commits_open--;
    struct latch *done = consumer->commits_open == 0 ? consumer->commits_done : NULL;
    if (done)
        consumer->commits_done = NULL;
    lock_release(&consumer->lock);
    if (done)
        latch_set(consumer->env->sched, done);
}

/* Whoever waits for queues that have left waits for their last commit. */
static void hurry_left(const struct commit_op *op, enum tern_code code)
{
    struct tern_push_consumer *consumer = op->consumer;
    lock_acquire(&consumer->lock);
    for (size_t i = 0; i < op->count && code == TERN_OK; i++)
        if (atomic_load(&op->items[i].queue->dropped) && push_queue_commit_due(op->items[i].queue))
            atomic_store(&consumer->commit_wanted, true);
    lock_release(&consumer->lock);
    push_wake(consumer);
}

/* @thread link's */
static void on_committed(struct rpc_call *call, void *arg)
{
    struct commit_op *op = arg;
    struct tern_push_consumer *consumer = op->consumer;
    enum tern_code code = rpc_call_result(call);
    const Tern__Wire__CommitOffsetResponse *body = NULL;
    if (call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_COMMIT_OFFSET)
        body = call->response->commit_offset;
    if (code != TERN_OK) {
        log_warn(consumer->env->log, "consumer_commit_failed",
                 "group=%s broker=%s address=%s queues=%zu code=%s reason=\"%s\"",
                 consumer->options.group, op->items[0].queue->id.broker_name,
                 rpc_peer_address(op->peer), op->count, tern_code_name(code),
                 error_text(&call->error, code));
        push_note_declined(consumer, op->peer, code);
    }
    bool again = false;
    if (!code_means_elsewhere(code))
        atomic_store(&consumer->commit_failures, 0);
    else /* once at another address at once, then at the usual pace */
        again = atomic_fetch_add(&consumer->commit_failures, 1) == 0;
    op_finish(op, code, body);
    if (consumer->orderly)
        hurry_left(op, code);
    if (again && push_state(consumer) == PUSH_RUNNING) {
        atomic_store(&consumer->commit_wanted, true);
        push_wake(consumer);
    }
    rpc_call_unref(call);
    op_free(op);
}

/* Packs and starts; the op goes to the callback. */
static void op_start(struct commit_op *op, Tern__Wire__CommitOffset *wire,
                     Tern__Wire__CommitOffset **pointers, Tern__Wire__OffsetVersion *versions)
{
    struct tern_push_consumer *consumer = op->consumer;
    for (size_t i = 0; i < op->count; i++) {
        struct push_queue *queue = op->items[i].queue;
        tern__wire__offset_version__init(&versions[i]);
        offset_version_fill(&versions[i], &queue->version);
        tern__wire__commit_offset__init(&wire[i]);
        wire[i].topic = text_bytes(queue->id.topic);
        wire[i].queue_id = queue->id.queue_id;
        wire[i].offset = op->items[i].offset;
        wire[i].version = &versions[i];
        pointers[i] = &wire[i];
    }
    Tern__Wire__CommitOffsetRequest commit = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    commit.group = text_bytes(consumer->options.group);
    commit.n_commits = op->count;
    commit.commits = pointers;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_COMMIT_OFFSET;
    request.commit_offset = &commit;
    struct rpc_call *call;
    enum tern_code code = rpc_call_create(op->peer, 0, &call);
    if (code != TERN_OK) {
        op_finish(op, code, NULL);
        op_free(op);
        return;
    }
    rpc_call_start(call, &request, 0, RPC_TIMEOUT_MS, on_committed, op);
}

/* Commits the changed queues of one broker; true when there were too many for one request. */
static bool commit_broker(struct tern_push_consumer *consumer, const struct tern_queue *any,
                          int64_t pulled_id)
{
    struct {
        Tern__Wire__CommitOffset wire[COMMIT_QUEUES_MAX];
        Tern__Wire__CommitOffset *pointers[COMMIT_QUEUES_MAX];
        Tern__Wire__OffsetVersion versions[COMMIT_QUEUES_MAX];
    } *room = malloc(sizeof *room);
    struct commit_op *op = malloc(sizeof *op + COMMIT_QUEUES_MAX * sizeof op->items[0]);
    if (!room || !op) {
        free(room);
        free(op);
        atomic_store(&consumer->commit_failure, TERN_NO_MEMORY);
        return false; /* at the next interval */
    }
    op->consumer = consumer;
    op->peer = NULL;
    op->count = 0;
    push_ref(consumer);
    lock_acquire(&consumer->lock);
    claim_list(consumer->queues, any->broker_name, op);
    claim_list(consumer->leaving, any->broker_name, op);
    consumer->commits_open++;
    lock_release(&consumer->lock);
    bool more = op->count == COMMIT_QUEUES_MAX;

    const struct broker_wish wish = {.second_id = pulled_id};
    struct broker_choice choice;
    struct tern_error err;
    enum tern_code code =
        broker_pick_cached(consumer->instance, &consumer->declined, any, &wish, &choice, &err);
    if (code == TERN_OK) {
        op->peer = choice.peer;
        op_start(op, room->wire, room->pointers, room->versions);
    } else {
        log_warn(consumer->env->log, "consumer_commit_nowhere", "group=%s reason=\"%s\"",
                 consumer->options.group, err.text);
        op_finish(op, code, NULL);
        op_free(op);
        more = false;
    }
    free(room);
    return more;
}

/* One CommitOffsetRequest per broker for all that changed. @thread control, or when it is stopped
 */
static void commit_all(struct tern_push_consumer *consumer)
{
    struct tern_queue queue = {.queue_id = 0};
    char after[sizeof queue.broker_name] = "";
    int64_t pulled_id = 0;
    while (next_broker(consumer, after, &queue, &pulled_id)) {
        if (!commit_broker(consumer, &queue, pulled_id))
            memcpy(after, queue.broker_name, sizeof after);
    }
}

struct push_queue *push_offsets_take_left(struct tern_push_consumer *consumer)
{
    struct push_queue *left = NULL;
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    lock_acquire(&consumer->lock);
    for (struct push_queue **link = &consumer->leaving; *link;) {
        struct push_queue *queue = *link;
        bool running = atomic_load_explicit(&queue->cached, memory_order_acquire) > 0;
        bool finished = !running && !push_queue_commit_due(queue);
        if (queue->committing || (consumer->orderly && push_lease_keeps(queue, now_ns)) ||
            !(finished || queue->no_commit || queue->leave_attempts >= LEAVE_COMMITS_MAX)) {
            link = &queue->next;
            continue;
        }
        *link = queue->next;
        queue->next = left;
        left = queue;
    }
    lock_release(&consumer->lock);
    if (left && consumer->needs_leases)
        push_leases_forgotten(consumer, left);
    if (left && consumer->orderly)
        push_wake(consumer); /* who takes their places may begin */
    return left;
}

static void forget_left(struct tern_push_consumer *consumer)
{
    struct push_queue *queue = push_offsets_take_left(consumer);
    while (queue) {
        struct push_queue *next = queue->next;
        push_queue_unref(queue);
        queue = next;
    }
}

int64_t push_offsets_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    bool elsewhere = push_store_used(consumer);
    if (!elsewhere)
        forget_left(consumer);
    if (atomic_exchange(&consumer->commit_wanted, false) || consumer->commit_due_ns <= now_ns) {
        consumer->commit_due_ns = now_ns + ms_to_ns(consumer->options.commit_interval_ms);
        if (elsewhere)
            push_store_commit(consumer);
        else
            commit_all(consumer);
    }
    return consumer->commit_due_ns;
}

/* Waits until no commit is under way; false: the deadline came before. @locks takes:CONSUMER */
static bool wait_for_commits(struct tern_push_consumer *consumer, int64_t deadline_ns)
{
    struct latch done;
    latch_init(&done);
    lock_acquire(&consumer->lock);
    bool wait = consumer->commits_open > 0;
    if (wait)
        consumer->commits_done = &done;
    lock_release(&consumer->lock);
    if (!wait || latch_wait(consumer->env->sched, &done, deadline_ns))
        return true;
    lock_acquire(&consumer->lock);
    bool taken = consumer->commits_done == NULL; /* somebody is about to set it */
    consumer->commits_done = NULL;
    lock_release(&consumer->lock);
    if (taken)
        ENSURE(latch_wait(consumer->env->sched, &done, SCHED_NEVER));
    return false;
}

/* What the progress that is still to be told failed with. @locks takes:CONSUMER */
static enum tern_code untold(struct tern_push_consumer *consumer)
{
    bool any = false;
    lock_acquire(&consumer->lock);
    for (int list = 0; list < 2; list++)
        for (struct push_queue *queue = list ? consumer->leaving : consumer->queues; queue;
             queue = queue->next)
            any = any || queue->committing || push_queue_commit_due(queue);
    lock_release(&consumer->lock);
    enum tern_code code = (enum tern_code)atomic_load(&consumer->commit_failure);
    return !any ? TERN_OK : code == TERN_OK ? TERN_TIMEOUT : code;
}

enum tern_code push_offsets_flush(struct tern_push_consumer *consumer, int64_t deadline_ns)
{
    atomic_store(&consumer->commit_failure, TERN_OK);
    /* The first round may find commits under way with older offsets, or an address that is gone;
     * the second says the rest. */
    bool answered = true;
    for (int round = 0; answered && round < 2; round++) {
        commit_all(consumer);
        answered = wait_for_commits(consumer, deadline_ns);
    }
    return untold(consumer);
}
