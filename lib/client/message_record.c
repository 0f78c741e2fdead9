/*
 * Messages to and from records. Sending writes a message straight into the payload of its call, in
 * the layout of the CommitLog; the broker checks it and stamps in place what only it knows:
 * offsets, store time, CRC, hosts. Receiving copies the answer once and makes messages that share
 * the copy.
 *
 *   message_encode_record()                  broker                   message_decode_all()
 *   body, topic, properties, born time  ──►  stamps, stores    ──►    one message per record
 *
 * Invariant: message_encode_record() writes exactly message_record_size() bytes.
 *
 * Threads: any. Failure modes: a damaged record ends the decoding; the messages before it stay
 * good.
 */
#include "client/message_struct.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/props.h"
#include "client/message_internal.h"

static size_t cluster_pair_len(size_t props_len, size_t cluster_len)
{
    return cluster_len ? (props_len > 0) + sizeof PROP_CLUSTER + cluster_len : 0;
}

struct message_form message_plain_form(const struct tern_message *message)
{
    return (struct message_form){.topic = message->topic,
                                 .topic_len = message->topic_len,
                                 .body = message->body,
                                 .body_len = message->body_len};
}

size_t message_record_size(const struct tern_message *message, const struct message_form *form,
                           size_t cluster_len, bool born_v6, bool store_v6)
{
    struct message_form plain = message_plain_form(message);
    if (!form)
        form = &plain;
    size_t props_len = atomic_load_explicit(&message->props_len, memory_order_acquire);
    return RECORD_FIXED_BYTES + (born_v6 + store_v6) * (size_t)RECORD_V6_EXTRA_BYTES +
           form->body_len + form->topic_len + props_len + cluster_pair_len(props_len, cluster_len);
}

bool message_props_fit_record(const struct tern_message *message, size_t cluster_len)
{
    size_t props_len = atomic_load_explicit(&message->props_len, memory_order_acquire);
    return props_len + cluster_pair_len(props_len, cluster_len) <= RECORD_PROPS_MAX;
}

static uint8_t *put_zeros(uint8_t *p, size_t count)
{
    memset(p, 0, count);
    return p + count;
}

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t count)
{
    if (count > 0)
        memcpy(p, bytes, count);
    return p + count;
}

static uint8_t *put_u32(uint8_t *p, uint32_t value)
{
    put_be32(p, value);
    return p + 4;
}

/* Properties with the cluster's name: 2 bytes of length, then the text. */
static uint8_t *put_props(uint8_t *p, const struct tern_message *m, const char *cluster,
                          size_t cluster_len)
{
    size_t len = atomic_load_explicit(&m->props_len, memory_order_acquire);
    put_be16(p, (uint16_t)(len + cluster_pair_len(len, cluster_len)));
    p = put_bytes(p + 2, m->props, len);
    if (cluster_len == 0)
        return p;
    if (len > 0)
        *p++ = 2;
    p = put_bytes(p, PROP_CLUSTER "\x01", sizeof PROP_CLUSTER);
    return put_bytes(p, cluster, cluster_len);
}

size_t message_encode_record(const struct tern_message *message, const struct message_form *form,
                             const char *cluster, size_t cluster_len, bool born_v6, bool store_v6,
                             int32_t queue_id, int64_t born_ms, uint8_t *dst, size_t cap)
{
    struct message_form plain = message_plain_form(message);
    if (!form)
        form = &plain;
    size_t size = message_record_size(message, form, cluster_len, born_v6, store_v6);
    if (size > cap)
        return 0;
    uint8_t *p = put_u32(dst, (uint32_t)size);
    p = put_u32(p, RECORD_MAGIC);
    p = put_u32(p, 0); /* CRC: the broker's */
    p = put_u32(p, (uint32_t)queue_id);
    p = put_u32(p, (uint32_t)message->flag);
    p = put_zeros(p, 16); /* queue and physical offset */
    p = put_u32(p, form->sys_flag | (born_v6 ? SYS_BORN_V6 : 0u) | (store_v6 ? SYS_STORE_V6 : 0u));
    put_be64(p, (uint64_t)born_ms);
    p = put_zeros(p + 8, born_v6 ? 20 : 8);      /* born host */
    p = put_zeros(p, 8 + (store_v6 ? 20u : 8u)); /* store time and host */
    p = put_zeros(p, 12);                        /* reconsume times, prepared transaction */
    p = put_u32(p, (uint32_t)form->body_len);
    p = put_bytes(p, form->body, form->body_len);
    *p++ = (uint8_t)form->topic_len;
    p = put_bytes(p, form->topic, form->topic_len);
    p = put_props(p, message, cluster, cluster_len);
    ENSURE((size_t)(p - dst) == size);
    return size;
}

/* ---- decoding ---- */

void shared_bytes_unref(struct shared_bytes *shared)
{
    if (shared && atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) == 1)
        free(shared);
}

/* One received message; the record lies in `owner`, which gets one reference more. */
static struct tern_message *message_from_record(struct shared_bytes *owner, const struct record *r,
                                                const char *broker_name, size_t broker_len)
{
    struct tern_message *m = malloc(sizeof *m + r->topic_len + 1u + broker_len + 1);
    if (!m)
        return NULL;
    *m = (struct tern_message){.refs = 1,
                               .received = true,
                               .wait_store_ok = true,
                               .topic_len = r->topic_len,
                               .flag = r->flag,
                               .body = r->body,
                               .body_len = r->body_len,
                               .props = (uint8_t *)(uintptr_t)r->props,
                               .props_len = r->props_len,
                               .owner = owner,
                               .queue_id = r->queue_id,
                               .reconsume_times = r->reconsume_times,
                               .sys_flag = r->sys_flag,
                               .queue_off = r->queue_off,
                               .phys_off = r->phys_off,
                               .born_ms = r->born_ms,
                               .store_ms = r->store_ms,
                               .born_host = r->born_host,
                               .store_host = r->store_host};
    char *text = (char *)(m + 1);
    m->topic = text;
    put_bytes((uint8_t *)text, r->topic, r->topic_len);
    text[r->topic_len] = 0;
    m->broker_name = text + r->topic_len + 1;
    memcpy(text + r->topic_len + 1, broker_name, broker_len + 1);
    atomic_fetch_add_explicit(&owner->refs, 1, memory_order_relaxed);
    return m;
}

static struct shared_bytes *share(const uint8_t *bytes, size_t size)
{
    struct shared_bytes *shared = malloc(sizeof *shared + size);
    if (!shared)
        return NULL;
    shared->refs = 1;
    put_bytes(shared->bytes, bytes, size);
    return shared;
}

enum tern_code message_decode_all(struct rpc_call *owner, const uint8_t *records, size_t size,
                                  const char *broker_name, struct tern_message **messages,
                                  size_t cap, size_t *count, struct tern_error *err)
{
    (void)owner;
    size_t broker_len = strlen(broker_name);
    enum tern_code code = TERN_OK;
    *count = 0;
    struct shared_bytes *shared = share(records, size);
    if (!shared)
        return error_set(err, TERN_NO_MEMORY, "%zu bytes of messages of %s", size, broker_name);
    for (size_t at = 0; at < size && *count < cap;) {
        struct record record;
        enum record_state state =
            record_parse(shared->bytes + at, size - at, size - at, true, &record);
        if (state != RECORD_WHOLE || memchr(record.topic, 0, record.topic_len)) {
            code = error_set(err, TERN_CORRUPT,
                             "answer of %s: no whole record at byte %zu of %zu, after %zu messages",
                             broker_name, at, size, *count);
            break;
        }
        struct tern_message *m = message_from_record(shared, &record, broker_name, broker_len);
        if (!m) {
            code = error_set(err, TERN_NO_MEMORY, "message %zu of an answer of %s", *count,
                             broker_name);
            break;
        }
        messages[(*count)++] = m;
        at += record.total_size;
    }
    shared_bytes_unref(shared);
    return code;
}
