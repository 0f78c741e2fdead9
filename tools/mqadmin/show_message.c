/* Messages as text and JSON. */
#include "tools/mqadmin/show_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "tools/mqadmin/output.h"

enum { BODY_SHOWN_BYTES = 1024 };

static json_t *base64_of(const uint8_t *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((size + 2) / 3 * 4 + 1), *at = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t v = (uint32_t)data[i] << 16;
        v |= i + 1 < size ? (uint32_t)data[i + 1] << 8 : 0;
        v |= i + 2 < size ? data[i + 2] : 0;
        *at++ = digits[v >> 18];
        *at++ = digits[v >> 12 & 63];
        *at++ = i + 1 < size ? digits[v >> 6 & 63] : '=';
        *at++ = i + 2 < size ? digits[v & 63] : '=';
    }
    json_t *json = json_stringn(text, (size_t)(at - text));
    free(text);
    return json;
}

json_t *message_json(const struct tern_message *message)
{
    size_t size;
    const void *body = tern_message_body(message, &size);
    json_t *properties = json_object();
    const char *name, *value;
    for (size_t i = 0; tern_message_property_at(message, i, &name, &value); i++)
        json_object_set_new(properties, name, text_of(value));
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:i, s:I, s:I, s:s, s:s, s:i, s:o}", "msgId",
                  tern_message_id(message), "offsetMsgId", tern_message_offset_id(message), "topic",
                  tern_message_topic(message), "brokerName", tern_message_broker_name(message),
                  "queueId", (int)tern_message_queue_id(message), "queueOffset",
                  (json_int_t)tern_message_queue_offset(message), "commitLogOffset",
                  (json_int_t)tern_message_physical_offset(message), "reconsumeTimes",
                  tern_message_reconsume_times(message), "bornTimestamp",
                  (json_int_t)tern_message_born_ms(message), "storeTimestamp",
                  (json_int_t)tern_message_store_ms(message), "bornHost",
                  tern_message_born_host(message), "storeHost", tern_message_store_host(message),
                  "sysFlag", (int)tern_message_sys_flag(message), "properties", properties);
    if (size == 0 || utf8_valid(body, size))
        json_object_set_new(json, "body", bytes_of(body, size));
    else
        json_object_set_new(json, "bodyBase64", base64_of(body, size));
    return json;
}

static const char *or_dash(const char *text)
{
    return text && text[0] ? text : "-";
}

/* Control characters would let a body steer the terminal. */
static void print_body(const struct tern_message *message)
{
    size_t size;
    const unsigned char *body = tern_message_body(message, &size);
    size_t shown = size < BODY_SHOWN_BYTES ? size : BODY_SHOWN_BYTES;
    for (size_t i = 0; i < shown; i++)
        putchar(body[i] < 0x20 || body[i] == 0x7F ? '.' : body[i]);
    if (shown < size)
        printf("… (%zu bytes)", size);
    putchar('\n');
}

void message_print_fields(const struct tern_message *message)
{
    char born[32], stored[32];
    const char *name, *value;
    time_text(born, tern_message_born_ms(message));
    time_text(stored, tern_message_store_ms(message));
    printf("%-20s %s\n", "OffsetID:", or_dash(tern_message_offset_id(message)));
    printf("%-20s %s\n", "MessageID:", or_dash(tern_message_id(message)));
    printf("%-20s %s\n", "Topic:", tern_message_topic(message));
    printf("%-20s [%s]\n", "Tags:", or_dash(tern_message_tag(message)));
    printf("%-20s [%s]\n", "Keys:", or_dash(tern_message_keys(message)));
    printf("%-20s %" PRId32 "\n", "Queue ID:", tern_message_queue_id(message));
    printf("%-20s %" PRId64 "\n", "Queue Offset:", tern_message_queue_offset(message));
    printf("%-20s %" PRId64 "\n", "CommitLog Offset:", tern_message_physical_offset(message));
    printf("%-20s %d\n", "Reconsume Times:", tern_message_reconsume_times(message));
    printf("%-20s %s\n", "Born Timestamp:", born);
    printf("%-20s %s\n", "Store Timestamp:", stored);
    printf("%-20s %s\n", "Born Host:", tern_message_born_host(message));
    printf("%-20s %s\n", "Store Host:", tern_message_store_host(message));
    printf("%-20s %" PRIu32 "\n", "System Flag:", tern_message_sys_flag(message));
    printf("%-20s {", "Properties:");
    for (size_t i = 0; tern_message_property_at(message, i, &name, &value); i++)
        printf("%s%s=%s", i ? ", " : "", name, value);
    printf("}\n%-20s ", "Message Body:");
    print_body(message);
}

void message_print_line(const struct tern_message *message)
{
    printf("MSGID: %s queue=%s/%" PRId32 " offset=%" PRId64 " tags=%s keys=%s BODY: ",
           or_dash(tern_message_id(message)), or_dash(tern_message_broker_name(message)),
           tern_message_queue_id(message), tern_message_queue_offset(message),
           or_dash(tern_message_tag(message)), or_dash(tern_message_keys(message)));
    print_body(message);
}
