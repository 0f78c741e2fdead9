/*
 * KV configuration over the wire. Reading is answered at once. A change must be on the disk before
 * its answer, and no transport thread may wait for a disk: changes queue up, and a task writes all
 * that wait as one.
 *
 *   handle_kv ─► queue (at most 256, else SYSTEM_BUSY) ─► kv_queue_step: apply, write once ─►
 * answers
 *
 * Threads: handle_kv on the transport's, the step on its own. Failure modes: what could not be
 * written is answered as such to each of the batch, and the table is as it was.
 */
#include "namesrv/namesrv_internal.h"

#include <string.h>

#include "base/order_conf.h"
#include "base/sched.h"

static bool is_delete(const struct rpc_request *request)
{
    return request->header->kv->operation == TERN__WIRE__KV_REQUEST__OPERATION__DELETE;
}

static void answer_change(struct namesrv *ns, struct rpc_request *request, enum tern_code code,
                          const struct tern_error *err)
{
    counter_add(code == TERN_OK ? &ns->counters.kv_changes : &ns->counters.kv_changes_failed, 1);
    if (code == TERN_OK)
        rpc_reply_ok(request);
    else
        rpc_reply_failure(request, code, err);
}

static void queue_change(struct namesrv *ns, struct rpc_request *request)
{
    struct tern_error err = {0};
    enum tern_code code = TERN_OK;
    lock_acquire(&ns->kv_lock);
    if (ns->kv_closed)
        code = error_set(&err, TERN_CANCELED, "the nameserver is stopping");
    else if (ns->kv_waiting >= NAMESRV_KV_QUEUE_MAX)
        code = error_set(&err, TERN_SYSTEM_BUSY, "%d KV changes wait for the disk already",
                         (int)NAMESRV_KV_QUEUE_MAX);
    if (code == TERN_OK) {
        request->next = NULL;
        if (ns->kv_last)
            ns->kv_last->next = request;
        else
            ns->kv_first = request;
        ns->kv_last = request;
        ns->kv_waiting++;
    }
    lock_release(&ns->kv_lock);
    if (code == TERN_OK)
        task_wake(ns->kv_task);
    else
        answer_change(ns, request, code, &err);
}

/* The oldest waiting changes, at most `most`, linked by next; *more says whether others are left.
 */
static struct rpc_request *take_changes(struct namesrv *ns, uint32_t most, uint32_t *count,
                                        bool *more)
{
    *count = 0;
    lock_acquire(&ns->kv_lock);
    struct rpc_request *first = ns->kv_first;
    struct rpc_request *last = NULL;
    for (struct rpc_request *r = first; r && *count < most; r = r->next) {
        last = r;
        (*count)++;
    }
    if (last) {
        ns->kv_first = last->next;
        last->next = NULL;
        if (!ns->kv_first)
            ns->kv_last = NULL;
        ns->kv_waiting -= *count;
    }
    *more = ns->kv_first != NULL;
    lock_release(&ns->kv_lock);
    return first;
}

int64_t kv_queue_step(void *arg, int64_t now_ns)
{
    struct namesrv *ns = arg;
    uint32_t count;
    bool more;
    struct rpc_request *request = take_changes(ns, NAMESRV_KV_BATCH_MAX, &count, &more);
    struct rpc_request *first = request;
    if (count == 0)
        return SCHED_NEVER;
    for (uint32_t i = 0; i < count; i++, request = request->next) {
        const Tern__Wire__KvRequest *in = request->header->kv;
        ns->kv_batch[i] = (struct kv_change){.name_space = in->namespace_,
                                             .key = in->key,
                                             .value = is_delete(request) ? NULL : in->value};
    }
    kv_config_apply(ns->kv, ns->kv_batch, count);
    request = first;
    for (uint32_t i = 0; i < count; i++) {
        struct rpc_request *next = request->next; /* answering frees the request */
        answer_change(ns, request, ns->kv_batch[i].code, &ns->kv_batch[i].err);
        request = next;
    }
    return more ? now_ns : SCHED_NEVER;
}

void kv_queue_close(struct namesrv *ns)
{
    struct tern_error err = {0};
    uint32_t count;
    bool more;
    lock_acquire(&ns->kv_lock);
    ns->kv_closed = true;
    lock_release(&ns->kv_lock);
    struct rpc_request *request = take_changes(ns, UINT32_MAX, &count, &more);
    error_set(&err, TERN_CANCELED, "the nameserver is stopping");
    while (request) {
        struct rpc_request *next = request->next;
        answer_change(ns, request, TERN_CANCELED, &err);
        request = next;
    }
}

/* One entry or a namespace's, as KvResponse. */
static void answer_entries(struct rpc_request *request, const struct kv_entry *entries,
                           size_t count)
{
    Tern__Wire__KvResponse body = TERN__WIRE__KV_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    Tern__Wire__KeyValue *pairs = rpc_request_alloc(request, count * sizeof *pairs);
    body.entries = rpc_request_alloc(request, count * sizeof *body.entries);
    if (!pairs || !body.entries) {
        rpc_reply_error(request, TERN_NO_MEMORY, "%zu KV entries", count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        tern__wire__key_value__init(&pairs[i]);
        pairs[i].key = (char *)(uintptr_t)entries[i].key;
        pairs[i].value = (char *)(uintptr_t)entries[i].value;
        body.entries[i] = &pairs[i];
    }
    body.n_entries = count;
    response.body_case = TERN__WIRE__RESPONSE__BODY_KV;
    response.kv = &body;
    rpc_reply(request, &response, 0);
}

static void answer_get(struct namesrv *ns, struct rpc_request *request)
{
    const Tern__Wire__KvRequest *in = request->header->kv;
    struct kv_entry entry = {.key = in->key};
    enum tern_code code =
        kv_config_get(ns->kv, in->namespace_, in->key, rpc_request_arena(request), &entry.value);
    if (code == TERN_OK)
        answer_entries(request, &entry, 1);
    else
        rpc_reply_error(request, code, "No config item, Namespace: %s Key: %s", in->namespace_,
                        in->key);
}

static void answer_list(struct namesrv *ns, struct rpc_request *request)
{
    const Tern__Wire__KvRequest *in = request->header->kv;
    struct kv_entry *entries;
    size_t count;
    enum tern_code code =
        kv_config_list(ns->kv, in->namespace_, rpc_request_arena(request), &entries, &count);
    if (code == TERN_OK)
        answer_entries(request, entries, count);
    else
        rpc_reply_error(request, code, "No config item, Namespace: %s", in->namespace_);
}

void handle_kv(struct namesrv *ns, struct rpc_request *request)
{
    const Tern__Wire__KvRequest *in = request->header->kv;
    struct tern_error err = {0};
    bool list = in->operation == TERN__WIRE__KV_REQUEST__OPERATION__LIST;
    enum tern_code code = kv_name_check("namespace", in->namespace_, &err);
    if (code == TERN_OK && !list)
        code = kv_name_check("key", in->key, &err);
    /* Producers of the topic would refuse a route with anything else. */
    if (code == TERN_OK && in->operation == TERN__WIRE__KV_REQUEST__OPERATION__PUT &&
        strcmp(in->namespace_, ORDER_CONF_NAMESPACE) == 0)
        code = order_conf_check(in->value, &err);
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    switch (in->operation) {
    case TERN__WIRE__KV_REQUEST__OPERATION__GET:
        answer_get(ns, request);
        break;
    case TERN__WIRE__KV_REQUEST__OPERATION__LIST:
        answer_list(ns, request);
        break;
    case TERN__WIRE__KV_REQUEST__OPERATION__PUT:
    case TERN__WIRE__KV_REQUEST__OPERATION__DELETE:
        queue_change(ns, request);
        break;
    default:
        rpc_reply_error(request, TERN_INVALID, "operation %d of KV is not known",
                        (int)in->operation);
    }
}
