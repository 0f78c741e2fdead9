/*
 * One bounded FIFO, COLD_THREADS tasks that empty it. A request waits in its own arena: nothing is
 * allocated from the heap.
 */
#include "broker/cold_lane.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/sched.h"

struct cold_job {
    struct rpc_request *request;
    request_handler handler;
    struct cold_job *next;
};

struct cold_lane {
    struct broker *broker;
    struct lock lock;              /* BROKER_LANE */
    struct cold_job *head, **tail; /* under lock */
    uint32_t depth;                /* under lock */
    uint32_t next_worker;          /* under lock: whom to wake */
    struct task *workers[COLD_THREADS];
};

static struct cold_job *take(struct cold_lane *lane)
{
    lock_acquire(&lane->lock);
    struct cold_job *job = lane->head;
    if (job) {
        lane->head = job->next;
        if (!lane->head)
            lane->tail = &lane->head;
        lane->depth--;
    }
    lock_release(&lane->lock);
    return job;
}

static int64_t work_step(void *arg, int64_t now_ns)
{
    struct cold_lane *lane = arg;
    struct cold_job *job = take(lane);
    if (!job)
        return SCHED_NEVER;
    job->handler(lane->broker, job->request);
    return now_ns;
}

enum tern_code cold_lane_create(struct broker *broker, const struct env *env,
                                struct cold_lane **out)
{
    struct cold_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return TERN_NO_MEMORY;
    lane->broker = broker;
    lane->tail = &lane->head;
    lock_init(&lane->lock, LOCK_BROKER_LANE);
    for (int i = 0; i < COLD_THREADS; i++) {
        enum tern_code code =
            task_start(env->sched, "broker-cold", work_step, lane, &lane->workers[i]);
        if (code != TERN_OK) {
            cold_lane_destroy(lane);
            return code;
        }
    }
    *out = lane;
    return TERN_OK;
}

void cold_lane_destroy(struct cold_lane *lane)
{
    if (!lane)
        return;
    for (int i = 0; i < COLD_THREADS; i++)
        task_stop(lane->workers[i]);
    for (struct cold_job *job; (job = take(lane));)
        job->handler(lane->broker, job->request);
    lock_fini(&lane->lock);
    free(lane);
}

void cold_lane_submit(struct cold_lane *lane, struct rpc_request *request, request_handler handler)
{
    struct cold_job *job = rpc_request_alloc(request, sizeof *job);
    if (!job) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory to queue the request");
        return;
    }
    *job = (struct cold_job){.request = request, .handler = handler};

    struct task *worker = NULL;
    lock_acquire(&lane->lock);
    if (lane->depth < COLD_QUEUE_MAX) {
        *lane->tail = job;
        lane->tail = &job->next;
        lane->depth++;
        worker = lane->workers[lane->next_worker];
        lane->next_worker = (lane->next_worker + 1) % COLD_THREADS;
    }
    lock_release(&lane->lock);
    if (worker)
        task_wake(worker);
    else
        rpc_reply_error(request, TERN_SYSTEM_BUSY,
                        "%d requests wait for the disk already; try again or at a slave",
                        COLD_QUEUE_MAX);
}

uint32_t cold_lane_depth(struct cold_lane *lane)
{
    lock_acquire(&lane->lock);
    uint32_t depth = lane->depth;
    lock_release(&lane->lock);
    return depth;
}
