/* Messages as mqadmin shows them. */
#ifndef MQADMIN_SHOW_MESSAGE_H
#define MQADMIN_SHOW_MESSAGE_H

#include <jansson.h>
#include <tern/message.h>

/* All fields; the body as text when it is UTF-8, else as base64 under "bodyBase64". */
json_t *message_json(const struct tern_message *message);
/* RocketMQ's lines of queryMsgById: "OffsetID:  …" and so on, and the body's first KiB. */
void message_print_fields(const struct tern_message *message);
/* One line: id, place, tag, keys, body. */
void message_print_line(const struct tern_message *message);

#endif
