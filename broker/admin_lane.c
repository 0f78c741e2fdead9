/*
 * The lane of changes, and beside it one of questions that may wait for the disk.
 *
 *   submit ─► queue ─► batch: apply each ─► persist both tables ─┬─ good ─► settle ─► nameservers
 * ─► answers └─ bad ──► roll back ─► errors run ────► queue ─► handler, which answers
 *
 * A batch is what is queued, up to BATCH_MAX and to the first request that settles: what it
 * destroys must not belong to a later change.
 *
 * Invariants: a request is answered with success only after its change is durable; the nameservers
 * are told before, and given up on after PUBLISH_MS: they learn of it with the next registration.
 *
 * Threads: submit on any; two tasks, one per queue. Failure modes: a request whose sender has
 * stopped waiting is not applied; when the disk refuses, the whole batch is taken back.
 */
#include "broker/admin_lane.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sched.h"
#include "broker/broker_internal.h"
#include "broker/registrar.h"

enum { PUBLISH_MS = 2000, BATCH_MAX = 1000 };

/* Lives in its request's memory. */
struct admin_job {
    struct rpc_request *request;
    admin_apply_fn apply;
    admin_settle_fn settle;
    admin_answer_fn answer;
    request_handler handler; /* of a question */
    struct admin_job *next;
};

struct job_queue {
    struct admin_job *head, **tail;
    uint32_t depth;
};

struct admin_lane {
    struct broker *broker;
    uint64_t published_version; /* of the topic table; the changing task's */
    struct task *changer, *asker;

    struct lock lock; /* BROKER_LANE; protects the rest */
    struct job_queue changes, questions;
    bool poked;
};

/* ---- queues ---- */

static void queue_init(struct job_queue *queue)
{
    *queue = (struct job_queue){.head = NULL};
    queue->tail = &queue->head;
}

/* @locks holds:BROKER_LANE */
static struct admin_job *queue_take(struct job_queue *queue)
{
    struct admin_job *job = queue->head;
    if (!job)
        return NULL;
    queue->head = job->next;
    if (!queue->head)
        queue->tail = &queue->head;
    queue->depth--;
    job->next = NULL;
    return job;
}

static void submit(struct admin_lane *lane, const struct admin_job *what)
{
    struct rpc_request *request = what->request;
    if (!lane) {
        rpc_reply_error(request, TERN_SERVICE_NOT_AVAILABLE, "the broker is starting");
        return;
    }
    struct admin_job *job = rpc_request_alloc(request, sizeof *job);
    if (!job) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory to queue the request");
        return;
    }
    *job = *what;
    struct job_queue *queue = job->handler ? &lane->questions : &lane->changes;
    lock_acquire(&lane->lock);
    bool taken = queue->depth < ADMIN_QUEUE_MAX;
    if (taken) {
        *queue->tail = job;
        queue->tail = &job->next;
        queue->depth++;
    }
    lock_release(&lane->lock);
    if (taken)
        task_wake(what->handler ? lane->asker : lane->changer);
    else
        rpc_reply_error(request, TERN_SYSTEM_BUSY, "%d requests wait already, more are not taken",
                        (int)ADMIN_QUEUE_MAX);
}

void admin_lane_submit(struct admin_lane *lane, struct rpc_request *request, admin_apply_fn apply,
                       admin_answer_fn answer)
{
    submit(lane, &(struct admin_job){.request = request, .apply = apply, .answer = answer});
}

void admin_lane_submit_settled(struct admin_lane *lane, struct rpc_request *request,
                               admin_apply_fn apply, admin_settle_fn settle)
{
    submit(lane, &(struct admin_job){.request = request, .apply = apply, .settle = settle});
}

void admin_lane_submit_answered(struct admin_lane *lane, struct rpc_request *request,
                                admin_apply_fn apply, admin_settle_fn settle,
                                admin_answer_fn answer)
{
    submit(lane, &(struct admin_job){
                     .request = request, .apply = apply, .settle = settle, .answer = answer});
}

void admin_lane_run(struct admin_lane *lane, struct rpc_request *request, request_handler handler)
{
    submit(lane, &(struct admin_job){.request = request, .handler = handler});
}

void admin_lane_poke(struct admin_lane *lane)
{
    if (!lane)
        return;
    lock_acquire(&lane->lock);
    lane->poked = true;
    lock_release(&lane->lock);
    task_wake(lane->changer);
}

/* ---- a batch ---- */

/* false: answered, its sender has stopped waiting. */
static bool still_wanted(struct admin_lane *lane, struct rpc_request *request)
{
    if (clock_mono_ns(lane->broker->env.clock) < request->deadline_ns)
        return true;
    rpc_reply_error(request, TERN_TIMEOUT, "the request waited too long and was not carried out");
    return false;
}

/* Applies until the queue is empty, something must settle, or BATCH_MAX; the applied, in order. */
static struct admin_job *apply_batch(struct admin_lane *lane)
{
    struct admin_job *applied = NULL;
    struct admin_job **tail = &applied;
    int room = BATCH_MAX;
    while (room-- > 0) {
        struct tern_error err = {.text = ""};
        lock_acquire(&lane->lock);
        struct admin_job *job = queue_take(&lane->changes);
        lock_release(&lane->lock);
        if (!job)
            break;
        if (!still_wanted(lane, job->request))
            continue;
        enum tern_code code = job->apply(lane->broker, job->request, &err);
        if (code) {
            rpc_reply_failure(job->request, code, &err);
            continue;
        }
        *tail = job;
        tail = &job->next;
        if (job->settle)
            break;
    }
    return applied;
}

static enum tern_code persist(struct admin_lane *lane, struct tern_error *err)
{
    struct broker *broker = lane->broker;
    enum tern_code code = topics_persist(broker->topics, err);
    if (!code)
        code = groups_persist(broker->groups, err);
    if (!code)
        return TERN_OK;
    topics_rollback(broker->topics);
    groups_rollback(broker->groups);
    log_error(broker->env.log, "tables_not_persisted", "code=%s cause=\"%s\"", tern_code_name(code),
              error_text(err, code));
    return error_prefix(err, code, "the change could not be made durable and was taken back");
}

static void publish(struct admin_lane *lane)
{
    struct broker *broker = lane->broker;
    struct tern_error err = {.text = ""};
    uint64_t version = topics_version(broker->topics);
    if (version == lane->published_version)
        return;
    enum tern_code code = registrar_publish(
        broker->registrar, clock_mono_ns(broker->env.clock) + ms_to_ns(PUBLISH_MS), &err);
    if (code)
        log_warn(broker->env.log, "topics_not_published", "code=%s cause=\"%s\"",
                 tern_code_name(code), error_text(&err, code));
    lane->published_version = version;
}

static void answer(struct admin_lane *lane, struct admin_job *job, enum tern_code code,
                   const struct tern_error *err)
{
    if (code)
        rpc_reply_failure(job->request, code, err);
    else if (job->answer)
        job->answer(lane->broker, job->request);
    else
        rpc_reply_ok(job->request);
}

/* At most the batch's last job settles. */
static void run_batch(struct admin_lane *lane)
{
    struct tern_error err = {.text = ""};
    struct tern_error settle_err = {.text = ""};
    enum tern_code settled = TERN_OK;
    struct admin_job *applied = apply_batch(lane);
    enum tern_code code = persist(lane, &err);
    for (struct admin_job *job = applied; !code && job; job = job->next)
        if (job->settle)
            settled = job->settle(lane->broker, job->request, &settle_err);
    if (!code)
        publish(lane);
    while (applied) {
        struct admin_job *job = applied;
        applied = job->next; /* the answer frees the job */
        if (!code && job->settle)
            answer(lane, job, settled, &settle_err);
        else
            answer(lane, job, code, &err);
    }
}

static int64_t change_step(void *arg, int64_t now_ns)
{
    struct admin_lane *lane = arg;
    lock_acquire(&lane->lock);
    bool work = lane->changes.head || lane->poked;
    lane->poked = false;
    lock_release(&lane->lock);
    if (!work)
        return SCHED_NEVER;
    run_batch(lane);
    return now_ns; /* once more, until there is nothing */
}

static int64_t ask_step(void *arg, int64_t now_ns)
{
    struct admin_lane *lane = arg;
    lock_acquire(&lane->lock);
    struct admin_job *job = queue_take(&lane->questions);
    lock_release(&lane->lock);
    if (!job)
        return SCHED_NEVER;
    if (still_wanted(lane, job->request))
        job->handler(lane->broker, job->request);
    return now_ns;
}

/* ---- life ---- */

enum tern_code admin_lane_create(struct broker *broker, struct admin_lane **out)
{
    struct admin_lane *lane = calloc(1, sizeof *lane);
    *out = NULL;
    if (!lane)
        return TERN_NO_MEMORY;
    lane->broker = broker;
    lane->published_version = topics_version(broker->topics);
    lock_init(&lane->lock, LOCK_BROKER_LANE);
    queue_init(&lane->changes);
    queue_init(&lane->questions);
    enum tern_code code =
        task_start(broker->env.sched, "broker-admin", change_step, lane, &lane->changer);
    if (!code)
        code = task_start(broker->env.sched, "broker-ask", ask_step, lane, &lane->asker);
    if (code) {
        admin_lane_destroy(lane);
        return code;
    }
    *out = lane;
    return TERN_OK;
}

void admin_lane_destroy(struct admin_lane *lane)
{
    if (!lane)
        return;
    task_stop(lane->asker);
    task_stop(lane->changer);
    while (change_step(lane, 0) != SCHED_NEVER)
        ;
    while (ask_step(lane, 0) != SCHED_NEVER)
        ;
    lock_fini(&lane->lock);
    free(lane);
}
