/*
 * Reading is hostile: a log may come from another broker, and a record may be damaged; whatever is
 * not exactly what was asked for says nothing.
 */
#include "broker/tx/tx_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/names.h"

enum { NUMBER_CHARS_MAX = 20, IMMUNITY_S_MAX = 86400 };

static bool topic_is(const struct record *record, const char *topic)
{
    size_t len = strlen(topic);
    return record->topic_len == len && !memcmp(record->topic, topic, len);
}

/* Decimal digits only, below 2^63. */
static bool number_of(const uint8_t *text, size_t len, int64_t *out)
{
    int64_t number = 0;
    if (len == 0 || len >= NUMBER_CHARS_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        int digit = text[i] - '0';
        if (digit < 0 || digit > 9 || number > (INT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *out = number;
    return true;
}

bool tx_asked(const uint8_t *props, size_t props_len)
{
    struct slice value;
    return props_get(props, props_len, PROP_TRAN_MSG, &value) && value.len == 4 &&
           !strncasecmp((const char *)value.ptr, "true", 4);
}

int64_t tx_immunity_ms(const uint8_t *props, size_t props_len)
{
    struct slice value;
    int64_t seconds;
    if (!props_get(props, props_len, PROP_CHECK_IMMUNITY, &value) ||
        !number_of(value.ptr, value.len, &seconds))
        return 0;
    return (seconds < IMMUNITY_S_MAX ? seconds : IMMUNITY_S_MAX) * 1000;
}

static void read_mark(const struct record *record, struct tx_said *out)
{
    struct slice tag;
    struct slice times;
    int64_t checks;
    if (!number_of(record->body, record->body_len, &out->half_off) ||
        !props_get(record->props, record->props_len, PROP_TAGS, &tag) || tag.len != 1)
        return;
    if (tag.ptr[0] == 'd') {
        out->word = TX_WORD_ENDED;
    } else if (tag.ptr[0] == 'r') {
        out->word = TX_WORD_RESUMED;
    } else if (tag.ptr[0] == 'p') {
        out->word = TX_WORD_PLACE;
        out->phys_off = out->half_off;
    } else if (tag.ptr[0] == 'c' &&
               props_get(record->props, record->props_len, PROP_CHECK_TIMES, &times) &&
               number_of(times.ptr, times.len, &checks) && checks <= UINT16_MAX) {
        out->word = TX_WORD_CHECKED;
        out->checks = (uint16_t)checks;
    }
}

void tx_record_read(const struct record *record, struct tx_said *out)
{
    *out = (struct tx_said){.word = TX_WORD_NONE};
    if (topic_is(record, TX_HALF_TOPIC) && record->queue_id == 0) {
        *out = (struct tx_said){
            .word = TX_WORD_HALF,
            .half_off = record->queue_off,
            .phys_off = record->phys_off,
            .store_ms = record->store_ms,
            .immunity_ms = tx_immunity_ms(record->props, record->props_len),
            .size = record->total_size,
        };
    } else if (topic_is(record, TX_OP_TOPIC)) {
        read_mark(record, out);
    } else if (topic_is(record, TX_DISCARD_TOPIC)) {
        *out = (struct tx_said){.word = TX_WORD_DISCARDED, .phys_off = record->prepared_tx_off};
    } else if ((record->sys_flag & SYS_TX_MASK) == SYS_TX_COMMIT) {
        *out = (struct tx_said){.word = TX_WORD_COMMITTED, .phys_off = record->prepared_tx_off};
    }
}

/* ---- half messages ---- */

enum tern_code tx_half_props(uint8_t *props, size_t *props_len, const char *topic, int32_t queue_id,
                             struct tern_error *err)
{
    static const char *const delays[] = {PROP_DELAY, "TIMER_DELIVER_MS", "TIMER_DELAY_MS",
                                         "TIMER_DELAY_SEC"};
    char number[16];
    struct slice value;
    for (size_t i = 0; i < sizeof delays / sizeof delays[0]; i++)
        if (props_get(props, *props_len, delays[i], &value))
            return error_set(err, TERN_MESSAGE_ILLEGAL,
                             "a transactional message may not be delayed: leave %s or TRAN_MSG out",
                             delays[i]);
    if (!props_get(props, *props_len, PROP_PGROUP, &value))
        return error_set(err, TERN_MESSAGE_ILLEGAL,
                         "a transactional message needs PGROUP, the producer group that is asked "
                         "about its outcome");
    enum tern_code code = group_name_check(value.ptr, value.len, err);
    if (code != TERN_OK) {
        error_prefix(err, code, PROP_PGROUP);
        return TERN_MESSAGE_ILLEGAL;
    }
    *props_len = props_remove(props, props, *props_len, PROP_REAL_TOPIC);
    *props_len = props_remove(props, props, *props_len, PROP_REAL_QID);
    *props_len = props_remove(props, props, *props_len, PROP_CHECK_TIMES);
    int len = snprintf(number, sizeof number, "%" PRId32, queue_id);
    if (props_append(props, props_len, RECORD_PROPS_MAX, PROP_REAL_TOPIC, strlen(PROP_REAL_TOPIC),
                     topic, strlen(topic)) != TERN_OK ||
        props_append(props, props_len, RECORD_PROPS_MAX, PROP_REAL_QID, strlen(PROP_REAL_QID),
                     number, (size_t)len) != TERN_OK)
        return error_set(err, TERN_MESSAGE_ILLEGAL,
                         "properties of %zu bytes with the real topic and queue added are above "
                         "the limit of %d",
                         *props_len, RECORD_PROPS_MAX);
    return TERN_OK;
}

static const char *half_fault(struct tx_half *half, int64_t half_off, int64_t phys_off)
{
    const struct record *record = &half->record;
    struct slice queue;
    int64_t queue_id;
    if (record->phys_off != phys_off || record->queue_off != half_off)
        return "its offsets are others";
    if (!topic_is(record, TX_HALF_TOPIC) || record->queue_id != 0)
        return "it is of another topic";
    if (!props_get(record->props, record->props_len, PROP_PGROUP, &half->group) ||
        group_name_check(half->group.ptr, half->group.len, NULL) != TERN_OK)
        return "it has no sound PGROUP";
    if (!props_get(record->props, record->props_len, PROP_REAL_TOPIC, &half->topic) ||
        topic_name_check(half->topic.ptr, half->topic.len, NULL) != TERN_OK ||
        topic_send_forbidden(half->topic.ptr, half->topic.len))
        return "it has no sound REAL_TOPIC";
    if (!props_get(record->props, record->props_len, PROP_REAL_QID, &queue) ||
        !number_of(queue.ptr, queue.len, &queue_id) || queue_id > INT32_MAX)
        return "it has no sound REAL_QID";
    half->queue_id = (int32_t)queue_id;
    if (!props_get(record->props, record->props_len, PROP_UNIQ_KEY, &half->message_id))
        half->message_id = (struct slice){NULL, 0};
    return NULL;
}

enum tern_code tx_half_read(const uint8_t *bytes, size_t size, int64_t half_off, int64_t phys_off,
                            struct tx_half *out, struct tern_error *err)
{
    const char *fault = "no whole record is there, or its checksum does not fit";
    if (record_parse(bytes, size, size, true, &out->record) == RECORD_WHOLE)
        fault = half_fault(out, half_off, phys_off);
    if (!fault)
        return TERN_OK;
    return error_set(err, TERN_CORRUPT,
                     "half message %" PRId64 " at physical offset %" PRId64 ": %s", half_off,
                     phys_off, fault);
}

/* ---- what follows from them ---- */

void tx_committed_fields(const struct tx_half *half, const struct host *store_host, uint8_t *props,
                         struct record *out)
{
    static const char *const inner[] = {PROP_TRAN_MSG,    PROP_REAL_TOPIC,     PROP_REAL_QID,
                                        PROP_CHECK_TIMES, PROP_CHECK_IMMUNITY, PROP_PGROUP};
    size_t len = half->record.props_len;
    if (len)
        memcpy(props, half->record.props, len);
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++)
        len = props_remove(props, props, len, inner[i]);
    *out = half->record;
    out->topic = half->topic.ptr;
    out->topic_len = (uint8_t)half->topic.len;
    out->queue_id = half->queue_id;
    out->sys_flag = (half->record.sys_flag & ~(uint32_t)SYS_TX_MASK) | SYS_TX_COMMIT;
    out->store_host = *store_host;
    out->prepared_tx_off = half->record.phys_off;
    out->props = props;
    out->props_len = (uint16_t)len;
}

void tx_discarded_fields(const struct tx_half *half, const struct host *store_host,
                         struct record *out)
{
    *out = half->record;
    out->topic = (const uint8_t *)TX_DISCARD_TOPIC;
    out->topic_len = sizeof TX_DISCARD_TOPIC - 1;
    out->queue_id = 0;
    out->sys_flag &= ~(uint32_t)SYS_TX_MASK;
    out->store_host = *store_host;
    out->prepared_tx_off = half->record.phys_off;
}

void tx_mark_fields(char tag, int64_t half_off, uint16_t checks, int64_t born_ms,
                    const struct host *host, uint8_t *body, uint8_t *props, struct record *out)
{
    char number[16];
    size_t props_len = 0;
    int body_len = snprintf((char *)body, TX_MARK_BODY_BYTES, "%" PRId64, half_off);
    enum tern_code code =
        props_append(props, &props_len, TX_MARK_PROPS_BYTES, PROP_TAGS, strlen(PROP_TAGS), &tag, 1);
    if (code == TERN_OK && tag == 'c') {
        int len = snprintf(number, sizeof number, "%u", checks);
        code = props_append(props, &props_len, TX_MARK_PROPS_BYTES, PROP_CHECK_TIMES,
                            strlen(PROP_CHECK_TIMES), number, (size_t)len);
    }
    ENSURE(code == TERN_OK);
    *out = (struct record){
        .born_ms = born_ms,
        .born_host = *host,
        .store_host = *host,
        .body = body,
        .body_len = (uint32_t)body_len,
        .topic = (const uint8_t *)TX_OP_TOPIC,
        .topic_len = sizeof TX_OP_TOPIC - 1,
        .props = props,
        .props_len = (uint16_t)props_len,
    };
}
