/*
 * The watch over what the checker's group committed. Every 200 ms, for each queue: what does the
 * broker hold, and, unless that says otherwise, commit what was delivered.
 *
 *   query ─► (offset, version) ─► below a promise? regression
 *                │ same version, delivered within the queue
 *                └─► commit under that version ─► answered: a promise
 *
 * It commits beside the consumer, since only a commit that was answered is a promise and the
 * consumer does not tell of its own. It speaks to the brokers itself, since a commit under a
 * version that it has not seen would carry an offset over a loss: then the consumer would pass
 * messages, and the checker would report what it did itself. The master is asked, a slave when it
 * cannot be reached.
 *
 * Threads: one. Failure modes: a broker that does not answer says nothing.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/admin.h"
#include "tools/mqbench/verify.h"

enum { WATCH_PERIOD_NS = 200000000 };

struct verify_watch {
    struct verify *verify;
    const char *group; /* the reader's */
    struct admin *admin;
    pthread_t thread;
    bool stop; /* under verify.lock */
};

/* Where a set's queues are asked in this round. */
struct place {
    const struct admin_broker *brokers;
    size_t count;
};

static bool is_down(enum tern_code code)
{
    return code == TERN_UNREACHABLE || code == TERN_CONNECTION_LOST || code == TERN_TIMEOUT;
}

/* Asks the set's members by id until one is up. *call is the caller's whenever it is not NULL. */
static enum tern_code ask(struct verify_watch *watch, const struct place *place, const char *name,
                          TernRequest *request, struct rpc_call **call)
{
    enum tern_code code = TERN_UNREACHABLE;
    *call = NULL;
    for (size_t i = 0; i < place->count && is_down(code); i++) {
        if (strcmp(place->brokers[i].name, name) != 0)
            continue;
        rpc_call_unref(*call);
        code = admin_call_broker(watch->admin, place->brokers[i].address, request, NULL, 0, call,
                                 NULL);
    }
    return code;
}

/* false: nobody answered, or not yet (a recovering master, a slave that knows of no progress). */
static bool query(struct verify_watch *watch, const struct place *place,
                  const struct tern_queue *queue, int64_t *offset,
                  Tern__Wire__OffsetVersion *version)
{
    Tern__Wire__QueryOffsetRequest body = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.group = frame_bytes(watch->group, strlen(watch->group));
    body.topic = frame_bytes(queue->topic, strlen(queue->topic));
    body.queue_id = queue->queue_id;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_OFFSET;
    request.query_offset = &body;
    enum tern_code code = ask(watch, place, queue->broker_name, &request, &call);
    bool known = call && call->response &&
                 call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET &&
                 (code == TERN_OK || code == TERN_QUERY_NOT_FOUND);
    if (known) {
        const Tern__Wire__QueryOffsetResponse *answer = call->response->query_offset;
        *offset = code == TERN_OK ? answer->offset : -1;
        tern__wire__offset_version__init(version);
        if (answer->version) {
            version->epoch = answer->version->epoch;
            version->counter = answer->version->counter;
        }
    }
    rpc_call_unref(call);
    return known;
}

static bool lies_within(struct verify_watch *watch, const struct place *place,
                        const struct tern_queue *queue, int64_t offset)
{
    Tern__Wire__QueueRangeRequest body = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.topic = frame_bytes(queue->topic, strlen(queue->topic));
    body.queue_id = queue->queue_id;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUEUE_RANGE;
    request.queue_range = &body;
    bool within = ask(watch, place, queue->broker_name, &request, &call) == TERN_OK &&
                  call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUEUE_RANGE &&
                  offset <= call->response->queue_range->max_offset;
    rpc_call_unref(call);
    return within;
}

static bool commit(struct verify_watch *watch, const struct place *place,
                   const struct tern_queue *queue, int64_t offset,
                   Tern__Wire__OffsetVersion *version)
{
    Tern__Wire__CommitOffset one = TERN__WIRE__COMMIT_OFFSET__INIT, *list[] = {&one};
    Tern__Wire__CommitOffsetRequest body = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    one.topic = frame_bytes(queue->topic, strlen(queue->topic));
    one.queue_id = queue->queue_id;
    one.offset = offset;
    one.version = version;
    body.group = frame_bytes(watch->group, strlen(watch->group));
    body.commits = list;
    body.n_commits = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_COMMIT_OFFSET;
    request.commit_offset = &body;
    enum tern_code code = ask(watch, place, queue->broker_name, &request, &call);
    rpc_call_unref(call);
    return code == TERN_OK;
}

/* false: nobody of the set answers now. @locks takes:verify.lock */
static bool watch_queue(struct verify_watch *watch, const struct place *place,
                        struct verify_offsets *queue)
{
    struct verify *verify = watch->verify;
    Tern__Wire__OffsetVersion version;
    int64_t offset, delivered;
    if (!query(watch, place, &queue->queue, &offset, &version))
        return false;
    pthread_mutex_lock(&verify->lock);
    verify_note_progress(verify, queue, offset, version.epoch, version.counter);
    delivered = queue->delivered;
    bool newer = delivered > queue->promised;
    pthread_mutex_unlock(&verify->lock);
    if (!newer || !lies_within(watch, place, &queue->queue, delivered) ||
        !commit(watch, place, &queue->queue, delivered, &version))
        return true;
    pthread_mutex_lock(&verify->lock);
    verify_note_promise(queue, delivered);
    pthread_mutex_unlock(&verify->lock);
    return true;
}

/* ---- life ---- */

static bool stops(struct verify_watch *watch)
{
    pthread_mutex_lock(&watch->verify->lock);
    bool stop = watch->stop;
    pthread_mutex_unlock(&watch->verify->lock);
    return stop;
}

/* false: it ends. */
static bool pause_for(struct verify_watch *watch, int64_t ns)
{
    struct verify *verify = watch->verify;
    int64_t until = bench_now_ns() + ns;
    struct timespec t = {until / 1000000000, until % 1000000000};
    pthread_mutex_lock(&verify->lock);
    while (!watch->stop && bench_now_ns() < until)
        pthread_cond_timedwait(&verify->changed, &verify->lock, &t);
    bool stop = watch->stop;
    pthread_mutex_unlock(&verify->lock);
    return !stop;
}

static void *watch_main(void *arg)
{
    struct verify_watch *watch = arg;
    struct verify *verify = watch->verify;
    while (pause_for(watch, WATCH_PERIOD_NS)) {
        struct admin_broker *brokers;
        size_t count;
        const char *silent = ""; /* a set whose next queues are not worth waiting for */
        if (admin_brokers(watch->admin, NULL, false, &brokers, &count, NULL) != TERN_OK)
            continue;
        struct place place = {brokers, count};
        for (size_t i = 0; i < verify->queue_count && !stops(watch); i++) {
            const char *name = verify->queues[i].queue.broker_name;
            if (strcmp(name, silent) != 0 && !watch_queue(watch, &place, &verify->queues[i]))
                silent = name;
        }
        free(brokers);
    }
    return NULL;
}

struct verify_watch *verify_watch_start(struct verify *verify, const char *group,
                                        enum tern_code *code, struct tern_error *err)
{
    struct verify_watch *watch = calloc(1, sizeof *watch);
    if (!watch) {
        *code = error_set(err, TERN_NO_MEMORY, "watch");
        return NULL;
    }
    watch->verify = verify;
    watch->group = group;
    *code = admin_open(verify->options->namesrv, &watch->admin, err);
    if (*code == TERN_OK && pthread_create(&watch->thread, NULL, watch_main, watch) != 0)
        *code = error_set(err, TERN_LIMIT, "no more threads");
    if (*code != TERN_OK) {
        admin_close(watch->admin);
        free(watch);
        watch = NULL;
    }
    return watch;
}

void verify_watch_stop(struct verify_watch *watch)
{
    if (!watch)
        return;
    pthread_mutex_lock(&watch->verify->lock);
    watch->stop = true;
    pthread_cond_broadcast(&watch->verify->changed);
    pthread_mutex_unlock(&watch->verify->lock);
    pthread_join(watch->thread, NULL);
    admin_close(watch->admin);
    free(watch);
}
