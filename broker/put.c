/*
 * The broker's own appends: the second half of handlers/send.c, without a request.
 *
 * Threads: any. Failure modes: what store_append() refuses with; a broker that stops ends the wait
 * of what it has stored with FLUSH_DISK_TIMEOUT, for the record is there.
 */
#include "broker/put.h"

#include <stdlib.h>

#include "broker/broker_internal.h"

static struct put *put_of_append(struct store_append *append)
{
    return (struct put *)(void *)((char *)append - offsetof(struct put, append));
}

static void on_acknowledged(struct ack_entry *ack, enum tern_code code)
{
    struct put *put = (struct put *)(void *)((char *)ack - offsetof(struct put, ack));
    bool slaves = put->broker->config.role == ROLE_SYNC_MASTER;
    if (code == TERN_TIMEOUT && slaves)
        code = TERN_FLUSH_SLAVE_TIMEOUT;
    else if (!put_stored(code))
        code = TERN_FLUSH_DISK_TIMEOUT;
    put->done(put, code);
}

static void on_appended(struct store_append *append)
{
    struct put *put = put_of_append(append);
    const struct broker_config *config = &put->broker->config;
    store_queue_unref(append->queue);
    free(put->bytes);
    put->bytes = NULL;
    if (append->result == TERN_OK && put->appended)
        put->appended(put);
    if (append->result != TERN_OK ||
        (config->flush_type == FLUSH_ASYNC && config->role != ROLE_SYNC_MASTER)) {
        put->done(put, append->result);
        return;
    }
    put->ack = (struct ack_entry){
        .position = append->end_phys_off, .deadline_ns = put->deadline_ns, .done = on_acknowledged};
    ack_wait_add(put->broker->acks, &put->ack);
}

enum tern_code put_start(struct broker *broker, struct put *put, const struct record *fields)
{
    struct consume_queue *queue;
    uint32_t sys_flag = fields->sys_flag & ~(uint32_t)(SYS_BORN_V6 | SYS_STORE_V6);
    sys_flag |= fields->born_host.v6 ? SYS_BORN_V6 : 0;
    sys_flag |= fields->store_host.v6 ? SYS_STORE_V6 : 0;
    if (fields->topic_len == 0 || fields->props_len > RECORD_PROPS_MAX)
        return TERN_INVALID;
    size_t size = record_size(fields->body_len, fields->topic_len, fields->props_len, sys_flag);
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return TERN_NO_MEMORY;
    size = record_encode(bytes, size, fields);
    enum tern_code code = size ? store_queue_ref(broker->store, (const char *)fields->topic,
                                                 fields->topic_len, fields->queue_id, &queue)
                               : TERN_INVALID;
    if (code != TERN_OK) {
        free(bytes);
        return code;
    }
    put->broker = broker;
    put->bytes = bytes;
    put->append = (struct store_append){.records = bytes,
                                        .size_bytes = (uint32_t)size,
                                        .count = 1,
                                        .queue = queue,
                                        .on_appended = on_appended};
    store_append(broker->store, &put->append);
    return TERN_OK;
}
