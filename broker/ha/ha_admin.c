/*
 * What an operator asks of replication and tells it: haStatus, forceOpen, rejoin. Answered at once,
 * from memory; what they set going is the ha task's. Threads: the link's.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/ha_parts.h"

/* ---- status ---- */

const char *ha_state_text(int state)
{
    switch (state) {
    case TERN__WIRE__HA_STATE__HA_RECOVERING:
        return "RECOVERING";
    case TERN__WIRE__HA_STATE__HA_OPEN:
        return "OPEN";
    case TERN__WIRE__HA_STATE__HA_FOLLOWING:
        return "FOLLOWING";
    case TERN__WIRE__HA_STATE__HA_SEEKING:
        return "SEEKING";
    case TERN__WIRE__HA_STATE__HA_DETACHED:
        return "DETACHED";
    default:
        return "UNKNOWN";
    }
}

/* A member of the set that has not answered: what is known of it. */
static Tern__Wire__HaMember *awaited_row(struct arena *arena, const struct insync_member *member)
{
    Tern__Wire__HaMember *row = arena_alloc(arena, sizeof *row);
    struct insync_member *copy = arena_alloc(arena, sizeof *copy);
    if (!row || !copy)
        return NULL;
    *copy = *member;
    tern__wire__ha_member__init(row);
    row->broker_id = copy->id;
    row->store_uuid = (ProtobufCBinaryData){sizeof copy->uuid, copy->uuid};
    row->ha_address = frame_bytes(copy->ha_address, strlen(copy->ha_address));
    return row;
}

static enum tern_code add_awaited(struct ha *ha, struct arena *arena,
                                  Tern__Wire__HaStatusResponse *body)
{
    struct insync_member awaited[INSYNC_MAX];
    size_t count = opening_awaited(ha->opening, awaited);
    if (opening_done(ha->opening))
        count = 0;
    body->awaited = arena_alloc(arena, (count + 1) * sizeof body->awaited[0]);
    if (!body->awaited)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        body->awaited[i] = awaited_row(arena, &awaited[i]);
        if (!body->awaited[i])
            return TERN_NO_MEMORY;
    }
    body->n_awaited = count;
    return TERN_OK;
}

/* Everything but the texts of `self`, in the request's memory. */
static enum tern_code fill_status(struct ha *ha, struct arena *arena,
                                  Tern__Wire__HaStatusResponse *body, char *text, size_t text_size)
{
    struct ha_member *self = arena_alloc(arena, sizeof *self);
    struct replica_status *replica = arena_alloc(arena, sizeof *replica);
    enum tern_code code = TERN_OK;
    enum tern_code unwritable;
    struct ha_acknowledged acknowledged;
    if (!self || !replica)
        return TERN_NO_MEMORY;
    ha_fill_self(ha, self);
    body->self = ha_member_to_wire(arena, self);
    if (!body->self)
        return TERN_NO_MEMORY;
    ha_acknowledged(ha, &acknowledged);
    body->confirmed = acknowledged.confirmed;
    body->writable = ha_writable(ha, &unwritable, text, text_size);
    replica_status(ha->replica, replica);
    body->transfer_bytes_per_second = replica->bytes_per_second;
    body->cut_bytes = replica->cut_bytes;
    if (ha_is_master(ha)) {
        if (!opening_done(ha->opening))
            opening_text(ha->opening, text, text_size);
        else if (body->writable)
            snprintf(text, text_size, "open for writes");
        code = add_awaited(ha, arena, body);
        if (code == TERN_OK)
            code = source_status(ha->source, arena, &body->slaves, &body->n_slaves);
    } else {
        snprintf(text, text_size, "%s", replica->text);
        body->master = replica->source_known ? ha_member_to_wire(arena, &replica->source) : NULL;
    }
    body->state_text = text;
    return code;
}

void ha_handle_status(struct ha *ha, struct rpc_request *request)
{
    Tern__Wire__HaStatusResponse body = TERN__WIRE__HA_STATUS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    char text[384];
    if (fill_status(ha, rpc_request_arena(request), &body, text, sizeof text) != TERN_OK) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the status");
        return;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_STATUS;
    response.ha_status = &body;
    rpc_reply(request, &response, 0);
}

/* ---- commands ---- */

void ha_handle_force_open(struct ha *ha, struct rpc_request *request)
{
    const ProtobufCBinaryData *discard = &request->header->force_open->discard_slave;
    struct tern_error err;
    if (!ha_is_master(ha)) {
        rpc_reply_error(request, TERN_STATE,
                        "broker %s id %" PRId64 " is a slave: forceOpen is for the master",
                        ha->name, ha->options.id);
        return;
    }
    if (discard->len && discard->len != HA_UUID_BYTES) {
        rpc_reply_error(request, TERN_INVALID, "discard_slave has %zu bytes, a UUID has %d",
                        discard->len, (int)HA_UUID_BYTES);
        return;
    }
    enum tern_code code = opening_force(ha->opening, discard->len ? discard->data : NULL, &err);
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    log_warn(ha->env.log, "force_open", "broker=%s by=operator", ha->name);
    ha_wake(ha);
    rpc_reply_ok(request);
}

void ha_handle_rejoin(struct ha *ha, struct rpc_request *request)
{
    if (atomic_load(&ha->state) != TERN__WIRE__HA_STATE__HA_DETACHED) {
        rpc_reply_error(request, TERN_STATE,
                        "broker %s id %" PRId64 " is not detached: rejoin is for a slave that has "
                        "no epoch in common with its master",
                        ha->name, ha->options.id);
        return;
    }
    log_warn(ha->env.log, "rejoin", "broker=%s id=%" PRId64 " by=operator", ha->name,
             ha->options.id);
    replica_rejoin(ha->replica);
    ha_wake(ha);
    rpc_reply_ok(request);
}
