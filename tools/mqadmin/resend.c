/*
 * A copy of a stored message, sent as a plain send: the broker checks it as any other, so what lies
 * in a system topic is refused there. Threads: one. Failure modes: said on stderr.
 */
#include "tools/mqadmin/resend.h"

#include <stdlib.h>
#include <string.h>

#include "base/record.h"

#define RESEND_GROUP "TOOLS_PRODUCER"

/* The master of the message's set, else the first of the topic. false: *err says why none. */
static bool find_master(struct invocation *invocation, const struct tern_message *message,
                        struct admin_broker *out, struct tern_error *err)
{
    const char *topic = tern_message_topic(message), *name = tern_message_broker_name(message);
    struct admin_broker *masters;
    size_t count;
    if (admin_topic_brokers(invocation->admin, topic, true, &masters, &count, err) != TERN_OK)
        return false;
    const struct admin_broker *chosen = count ? masters : NULL;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(masters[i].name, name) ||
            !strcmp(masters[i].address, tern_message_store_host(message)))
            chosen = &masters[i];
    if (chosen)
        *out = *chosen;
    else
        error_set(err, TERN_UNREACHABLE, "no master of topic %s is registered", topic);
    free(masters);
    return chosen != NULL;
}

static enum tern_code send_copy(struct invocation *invocation, const struct tern_message *message,
                                const struct admin_broker *master, struct rpc_call **call,
                                struct tern_error *err)
{
    const char *topic = tern_message_topic(message);
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    size_t body_len;
    const void *body = message_stored_body(message, &body_len);
    send.producer_group = frame_bytes(RESEND_GROUP, strlen(RESEND_GROUP));
    send.topic = frame_bytes(topic, strlen(topic));
    send.queue_id = -1;
    send.flag = tern_message_flag(message);
    send.sys_flag = tern_message_sys_flag(message) & (SYS_COMPRESSED | SYS_COMPRESSION_TYPE);
    send.born_ms = tern_message_born_ms(message);
    send.properties.data = (uint8_t *)(uintptr_t)message_props(message, &send.properties.len);
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &send;
    return admin_call_broker(invocation->admin, master->address, &request, body, body_len, call,
                             err);
}

static void offset_id_of(const Tern__Wire__SendResponse *sent, char out[MESSAGE_ID_BYTES])
{
    const Tern__Wire__Address *at = sent->store_host;
    struct host host = {.v6 = at && at->ip.len == 16};
    out[0] = 0;
    if (!at || (at->ip.len != 4 && at->ip.len != 16))
        return;
    memcpy(host.ip, at->ip.data, at->ip.len);
    host.port = at->port;
    message_id_format(out, &host, sent->physical_offset);
}

int resend(struct invocation *invocation, const struct tern_message *message, struct table *table)
{
    struct tern_error err = {.text = ""};
    struct admin_broker master;
    struct rpc_call *call;
    if (!find_master(invocation, message, &master, &err))
        return command_fail(invocation, err.code ? err.code : TERN_NOT_FOUND, &err);
    enum tern_code code = send_copy(invocation, message, &master, &call, &err);
    bool answered =
        call && call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_SEND;
    int status = EXIT_DONE;
    if (answered) {
        const Tern__Wire__SendResponse *sent = call->response->send;
        char offset_id[MESSAGE_ID_BYTES];
        offset_id_of(sent, offset_id);
        table_add(table, (json_t *[]){text_of(master.name), number_of(sent->queue_id),
                                      text_of(code ? tern_code_name(code) : "SEND_OK"),
                                      text_of(tern_message_id(message)), text_of(offset_id)});
        status = code == TERN_OK ? EXIT_DONE : EXIT_NO;
    } else {
        status = command_fail(invocation, code, &err);
    }
    rpc_call_unref(call);
    return status;
}
