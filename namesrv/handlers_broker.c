/*
 * What brokers tell: that they are there, that they go; and what an administrator changes in the
 * route.
 *
 * Each handler checks its request first, then changes the tables in one short critical section,
 * then logs and answers with the lock released. A registration's answer lists the live members of
 * the sender's name, so that a set's brokers find one another without asking again.
 *
 * Threads: the transport's. Failure modes: refusals that name the field or both sides of a
 * conflict.
 */
#include "namesrv/namesrv_internal.h"

#include <string.h>

#include "base/log.h"

void namesrv_log_removed(struct namesrv *ns, const struct route_removed *removed,
                         const char *reason)
{
    log_info(ns->env->log, "broker_removed",
             "cluster=%s broker=%s id=%lld address=%s reason=%s last_of_name=%s", removed->cluster,
             removed->name, (long long)removed->id, removed->address, reason,
             removed->set_gone ? "yes" : "no");
}

static void log_registered(struct namesrv *ns, const struct route_registration *reg,
                           const struct route_registered *done)
{
    if (done->joined)
        log_info(ns->env->log, "broker_registered",
                 "cluster=%s broker=%s id=%lld address=%s ha_address=%s readable=%s", reg->cluster,
                 reg->name, (long long)reg->id, reg->address, reg->ha_address,
                 reg->readable ? "yes" : "no");
    if (done->moved) /* again and again: two processes run copies of one store */
        log_warn(ns->env->log, "broker_moved", "cluster=%s broker=%s id=%lld address=%s",
                 reg->cluster, reg->name, (long long)reg->id, reg->address);
    if (done->table_replaced)
        log_info(ns->env->log, "topics_replaced", "broker=%s id=%lld version=%llu topics=%zu",
                 reg->name, (long long)reg->id, (unsigned long long)reg->topics_version,
                 reg->topic_count);
}

static bool copy_bytes(struct rpc_request *request, const void *bytes, size_t len,
                       ProtobufCBinaryData *out)
{
    out->data = rpc_request_alloc(request, len);
    out->len = len;
    if (out->data)
        memcpy(out->data, bytes, len);
    return out->data != NULL;
}

/* The live members of the set, into the request's memory. @locks holds:NAMESRV */
static enum tern_code copy_members(const struct namesrv *ns, struct rpc_request *request,
                                   const struct route_registration *reg,
                                   Tern__Wire__RegisterBrokerResponse *out, struct tern_error *err)
{
    const struct route_set *set = route_find_set(&ns->table, reg->name);
    if (!set)
        return TERN_OK;
    out->members = rpc_request_alloc(request, set->member_count * sizeof *out->members);
    for (size_t i = 0; i < set->member_count && out->members; i++) {
        const struct route_member *from = &set->members[i];
        if (!route_member_lives(&ns->table, from, reg->now_ns))
            continue;
        Tern__Wire__SetMember *member = rpc_request_alloc(request, sizeof *member);
        if (!member)
            return error_set(err, TERN_NO_MEMORY, "members of %s", reg->name);
        tern__wire__set_member__init(member);
        member->broker_id = from->id;
        member->readable = from->readable;
        if (!copy_bytes(request, from->address, strlen(from->address), &member->address) ||
            !copy_bytes(request, from->ha_address, strlen(from->ha_address), &member->ha_address) ||
            !copy_bytes(request, from->uuid, sizeof from->uuid, &member->store_uuid))
            return error_set(err, TERN_NO_MEMORY, "members of %s", reg->name);
        out->members[out->n_members++] = member;
    }
    return out->members ? TERN_OK : error_set(err, TERN_NO_MEMORY, "members of %s", reg->name);
}

void handle_register_broker(struct namesrv *ns, struct rpc_request *request)
{
    Tern__Wire__RegisterBrokerResponse body = TERN__WIRE__REGISTER_BROKER_RESPONSE__INIT;
    struct tern_error err = {0};
    enum tern_code code;
    struct route_registered done;
    struct route_registration *reg = registration_from_request(request, &code, &err);
    if (reg) {
        lock_acquire(&ns->lock);
        code = route_register(&ns->table, reg, &done, &err);
        if (code == TERN_OK)
            code = copy_members(ns, request, reg, &body, &err);
        lock_release(&ns->lock);
    }
    if (code != TERN_OK) {
        char peer[HOST_TEXT_BYTES];
        host_format(peer, &request->peer.remote);
        counter_add(&ns->counters.registrations_refused, 1);
        log_warn(ns->env->log, "registration_refused", "peer=%s code=%s reason=\"%s\"", peer,
                 tern_code_name(code), error_text(&err, code));
        rpc_reply_failure(request, code, &err);
        return;
    }
    counter_add(&ns->counters.registrations, 1);
    log_registered(ns, reg, &done);

    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    body.master_address = frame_bytes(done.master_address, strlen(done.master_address));
    body.master_ha_address = frame_bytes(done.master_ha_address, strlen(done.master_ha_address));
    body.need_topics = done.need_topics;
    response.body_case = TERN__WIRE__RESPONSE__BODY_REGISTER_BROKER;
    response.register_broker = &body;
    rpc_reply(request, &response, 0);
}

void handle_unregister_broker(struct namesrv *ns, struct rpc_request *request)
{
    const Tern__Wire__UnregisterBrokerRequest *in = request->header->unregister_broker;
    struct tern_error err = {0};
    enum tern_code code;
    struct route_removed removed;
    bool found = false;
    const char *name = request_name(request, &in->broker_name, broker_name_check, &code, &err);
    if (!name) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    /* An address that never could register is not found. */
    const char *address = frame_text(rpc_request_arena(request), &in->address);
    if (address) {
        lock_acquire(&ns->lock);
        found =
            route_unregister(&ns->table, name, in->broker_id, address, request->peer.id, &removed);
        lock_release(&ns->lock);
    }
    if (found) {
        counter_add(&ns->counters.brokers_unregistered, 1);
        namesrv_log_removed(ns, &removed, "unregistered");
    }
    rpc_reply_ok(request); /* what is not there needs no removing */
}

void handle_wipe_write_perm(struct namesrv *ns, struct rpc_request *request)
{
    const Tern__Wire__WipeWritePermRequest *in = request->header->wipe_write_perm;
    struct tern_error err = {0};
    enum tern_code code;
    const char *name = request_name(request, &in->broker_name, broker_name_check, &code, &err);
    if (!name) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    lock_acquire(&ns->lock);
    size_t touched = route_wipe(&ns->table, name, in->restore);
    lock_release(&ns->lock);
    log_info(ns->env->log, in->restore ? "write_perm_restored" : "write_perm_wiped",
             "broker=%s topics=%zu", name, touched);

    Tern__Wire__WipeWritePermResponse body = TERN__WIRE__WIPE_WRITE_PERM_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    body.topics = (int32_t)touched;
    response.body_case = TERN__WIRE__RESPONSE__BODY_WIPE_WRITE_PERM;
    response.wipe_write_perm = &body;
    rpc_reply(request, &response, 0);
}

void handle_delete_topic_route(struct namesrv *ns, struct rpc_request *request)
{
    const Tern__Wire__DeleteTopicRouteRequest *in = request->header->delete_topic_route;
    struct tern_error err = {0};
    enum tern_code code;
    const char *cluster = "";
    const char *topic = request_name(request, &in->topic, topic_name_check, &code, &err);
    if (topic && in->cluster_name.len > 0)
        cluster = request_name(request, &in->cluster_name, broker_name_check, &code, &err);
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    lock_acquire(&ns->lock);
    size_t removed = route_delete_topic(&ns->table, topic, in->topic.len, cluster);
    lock_release(&ns->lock);
    if (removed > 0)
        log_info(ns->env->log, "topic_route_deleted", "topic=%s cluster=%s brokers=%zu", topic,
                 cluster, removed);
    rpc_reply_ok(request);
}
