/*
 * Reading back from the slaves themselves: what a consumer would find if the masters never came
 * back. One thread per set asks its lowest living slave id for each of the set's queues in turn,
 * from the queue's beginning to the slave's end, and goes on from there.
 *
 *   route? ─► slave's address ─► pull queue 0, 1, … ─► nothing anywhere: a short pause
 *      ▲                            │ no answer, refusal
 *      └──── the next slave ◄───────┘
 *
 * An offset only moves by what was read, or up to the slave's minimum; "beyond my end" means wait.
 * Nothing is committed. Threads: one per set. Failure modes: a slave that cannot be asked is asked
 * again until the end; what it has not shown by then counts as lost.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/admin.h"
#include "client/message_internal.h"
#include "tools/mqbench/verify.h"

enum {
    PULL_COUNT = 256,
    PULL_TIMEOUT_MS = 2000,
    IDLE_PAUSE_NS = 10000000,
    FAILURE_PAUSE_NS = 100000000
};

static const char reader_group[] = "TOOLS_CONSUMER"; /* known to every broker */

struct slave_set {
    struct verify_slaves *slaves;
    const char *name;
    int64_t *next; /* per verify->queues; those of other sets are not used */
    size_t turn;   /* which of the set's slaves is asked */
    struct rpc_peer *peer;
    pthread_t thread;
    bool running;
};

struct verify_slaves {
    struct verify *verify;
    struct admin *admin;
    struct slave_set *sets;
    size_t set_count;
    bool stop; /* under verify.lock */
};

/* false: it ends. */
static bool pause_ns(struct verify_slaves *slaves, int64_t ns)
{
    struct verify *verify = slaves->verify;
    int64_t until = bench_now_ns() + ns;
    struct timespec t = {until / 1000000000, until % 1000000000};
    pthread_mutex_lock(&verify->lock);
    while (!slaves->stop && bench_now_ns() < until)
        pthread_cond_timedwait(&verify->changed, &verify->lock, &t);
    bool stop = slaves->stop;
    pthread_mutex_unlock(&verify->lock);
    return !stop;
}

static void forget_slave(struct slave_set *set)
{
    if (set->peer)
        rpc_peer_unref(set->peer);
    set->peer = NULL;
    set->turn++;
}

/* Whether there is a slave to ask. */
static bool find_slave(struct slave_set *set)
{
    struct admin *admin = set->slaves->admin;
    struct admin_broker *brokers;
    size_t count, kept = 0;
    if (set->peer)
        return true;
    if (admin_brokers(admin, NULL, false, &brokers, &count, NULL) != TERN_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        if (brokers[i].id > 0 && !strcmp(brokers[i].name, set->name))
            brokers[kept++] = brokers[i];
    bool found = kept > 0 && instance_peer(admin_instance(admin), brokers[set->turn % kept].address,
                                           &set->peer, NULL) == TERN_OK;
    free(brokers);
    return found;
}

/* @locks takes:verify.lock */
static void note_all(struct slave_set *set, const struct rpc_call *call)
{
    struct tern_message *messages[PULL_COUNT];
    size_t count = 0;
    /* Damage ends it; what came before it counts, and the missing rest will show as lost. */
    (void)!message_decode_all(NULL, call->payload, call->payload_size, set->name, messages,
                              PULL_COUNT, &count, NULL);
    verify_take(set->slaves->verify, (const struct tern_message *const *)messages, count);
    for (size_t i = 0; i < count; i++)
        tern_message_unref(messages[i]);
}

/* One pull. TERN_OK: *moved says whether the offset did; else the slave is of no use now. */
static enum tern_code pull(struct slave_set *set, const struct tern_queue *queue, int64_t *next,
                           bool *moved)
{
    Tern__Wire__PullRequest body = TERN__WIRE__PULL_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call = NULL;
    int64_t before = *next;
    body.group = frame_bytes(reader_group, strlen(reader_group));
    body.topic = frame_bytes(queue->topic, strlen(queue->topic));
    body.queue_id = queue->queue_id;
    body.offset = before;
    body.max_count = PULL_COUNT;
    body.has_subscription = true;
    body.expression = (char *)(uintptr_t) "*";
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &body;
    enum tern_code code = rpc_call_wait(set->peer, &request, NULL, 0, PULL_TIMEOUT_MS, &call, NULL);
    const Tern__Wire__PullResponse *answer =
        call && call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_PULL
            ? call->response->pull
            : NULL;
    bool known = answer && (code == TERN_OK || code == TERN_PULL_NOT_FOUND ||
                            code == TERN_PULL_RETRY_IMMEDIATELY || code == TERN_PULL_OFFSET_MOVED);
    if (known && code == TERN_OK)
        note_all(set, call);
    if (known && code != TERN_PULL_OFFSET_MOVED && answer->next_offset > before)
        *next = answer->next_offset;
    if (known && answer->min_offset > *next)
        *next = answer->min_offset;
    *moved = *next > before;
    rpc_call_unref(call);
    return known ? TERN_OK : code == TERN_OK ? TERN_PROTOCOL : code;
}

static void *set_main(void *arg)
{
    struct slave_set *set = arg;
    const struct verify *verify = set->slaves->verify;
    int64_t pause = 0;
    while (pause_ns(set->slaves, pause)) {
        bool any = false;
        enum tern_code code = find_slave(set) ? TERN_OK : TERN_UNREACHABLE;
        for (size_t i = 0; i < verify->queue_count && code == TERN_OK; i++) {
            bool moved = false;
            if (strcmp(verify->queues[i].queue.broker_name, set->name) != 0)
                continue;
            code = pull(set, &verify->queues[i].queue, &set->next[i], &moved);
            any = any || moved;
        }
        if (code != TERN_OK)
            forget_slave(set);
        pause = code != TERN_OK ? FAILURE_PAUSE_NS : any ? 0 : IDLE_PAUSE_NS;
    }
    return NULL;
}

/* A set per brokerName of the queues. */
static enum tern_code make_sets(struct verify_slaves *slaves)
{
    const struct verify *verify = slaves->verify;
    slaves->sets = calloc(verify->queue_count, sizeof *slaves->sets);
    if (!slaves->sets)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < verify->queue_count; i++) {
        const char *name = verify->queues[i].queue.broker_name;
        size_t at = 0;
        while (at < slaves->set_count && strcmp(slaves->sets[at].name, name) != 0)
            at++;
        if (at < slaves->set_count)
            continue;
        struct slave_set *set = &slaves->sets[slaves->set_count++];
        set->slaves = slaves;
        set->name = name;
        set->next = calloc(verify->queue_count, sizeof *set->next);
        if (!set->next)
            return TERN_NO_MEMORY;
    }
    return TERN_OK;
}

struct verify_slaves *verify_slaves_start(struct verify *verify, int *status)
{
    struct tern_error err = {.text = ""};
    struct verify_slaves *slaves = calloc(1, sizeof *slaves);
    enum tern_code code = slaves ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK) {
        slaves->verify = verify;
        code = make_sets(slaves);
    }
    if (code == TERN_OK)
        code = admin_open(verify->options->namesrv, &slaves->admin, &err);
    for (size_t i = 0; code == TERN_OK && i < slaves->set_count; i++) {
        struct slave_set *set = &slaves->sets[i];
        set->running = pthread_create(&set->thread, NULL, set_main, set) == 0;
        code = set->running ? TERN_OK : TERN_LIMIT;
    }
    *status = EXIT_OK;
    if (code != TERN_OK) {
        *status = bench_fail("starting to read from the slaves", code, &err);
        verify_slaves_stop(slaves);
        slaves = NULL;
    }
    return slaves;
}

void verify_slaves_stop(struct verify_slaves *slaves)
{
    if (!slaves)
        return;
    pthread_mutex_lock(&slaves->verify->lock);
    slaves->stop = true;
    pthread_cond_broadcast(&slaves->verify->changed);
    pthread_mutex_unlock(&slaves->verify->lock);
    for (size_t i = 0; i < slaves->set_count; i++) {
        struct slave_set *set = &slaves->sets[i];
        if (set->running)
            pthread_join(set->thread, NULL);
        if (set->peer)
            rpc_peer_unref(set->peer);
        free(set->next);
    }
    admin_close(slaves->admin);
    free(slaves->sets);
    free(slaves);
}
