/*
 * Trace records as text, RocketMQ's (TraceDataEncoder): fields joined by \x01, each record ended by
 * \x02. One message of the trace topic holds many; its keys are the ids and keys of the traced
 * messages.
 *
 *   Pub             time region group topic id tags keys store-host body-bytes cost type offset-id
 * ok SubBefore       time region group request id times keys SubAfter        request id cost ok
 * keys context time group EndTransaction  time region group topic id tags keys store-host type
 * transaction state check
 *
 * Pure functions. Texts are cut at TRACE_KEYS_MAX bytes, separators in them become spaces.
 */
#ifndef CLIENT_TRACE_CODEC_H
#define CLIENT_TRACE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum trace_kind { TRACE_PUB, TRACE_SUB_BEFORE, TRACE_SUB_AFTER, TRACE_END_TRANSACTION };

/* RocketMQ's MessageType by number. */
enum trace_message_type { TRACE_NORMAL, TRACE_HALF, TRACE_COMMIT, TRACE_DELAY };

/* What RocketMQ calls ConsumeReturnType. */
enum trace_context { TRACE_CONSUMED = 0, TRACE_TIME_OUT = 1, TRACE_FAILED = 4 };

#define TRACE_TOPIC "RMQ_SYS_TRACE_TOPIC"
#define TRACE_REGION "DefaultRegion"

enum { TRACE_FIELD_MAX = 255, TRACE_KEYS_MAX = 1023 };

/* Texts are borrowed; NULL is "". What a kind has no field for is ignored, or empty when decoded.
 */
struct trace_record {
    enum trace_kind kind;
    int64_t time_ms;
    const char *region, *group, *topic, *message_id, *tags, *keys, *store_host, *offset_id;
    const char *request_id;
    const char *transaction_id, *transaction_state;
    int64_t body_bytes, cost_ms;
    int32_t message_type, times, context;
    bool success, from_check;
};

/* Writes one record; returns its length, 0 when it does not fit into cap. */
size_t trace_encode(const struct trace_record *record, char *dst, size_t cap);

/* A decoded record with its texts inside; longer ones are cut. */
struct trace_decoded {
    struct trace_record record; /* its texts point below */
    char region[TRACE_FIELD_MAX + 1], group[TRACE_FIELD_MAX + 1], topic[TRACE_FIELD_MAX + 1];
    char message_id[TRACE_FIELD_MAX + 1], tags[TRACE_FIELD_MAX + 1], keys[TRACE_KEYS_MAX + 1];
    char store_host[TRACE_FIELD_MAX + 1], offset_id[TRACE_FIELD_MAX + 1];
    char request_id[TRACE_FIELD_MAX + 1];
    char transaction_id[TRACE_FIELD_MAX + 1], transaction_state[TRACE_FIELD_MAX + 1];
};

/*
 * The next record of a text. *cursor starts at 0; false at the end. Records that are damaged or of
 * an unknown kind are skipped and counted in *skipped. Fields that older clients leave out at the
 * end are empty.
 */
bool trace_decode(const char *text, size_t len, size_t *cursor, struct trace_decoded *out,
                  size_t *skipped);

#endif
