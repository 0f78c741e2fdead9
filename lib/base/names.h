/*
 * Grammar of topic, group and other names, checked wherever a name comes from the wire, a file or a
 * command line. A name is bytes with a length; it becomes part of a path only after this check.
 */
#ifndef BASE_NAMES_H
#define BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    TOPIC_NAME_MAX = 127, /* the record's length byte is a signed one */
    GROUP_NAME_MAX = 255, /* RocketMQ's Validators */
    BROKER_NAME_MAX = 127,
    CLIENT_ID_MAX = 255
};

#define RETRY_TOPIC_PREFIX "%RETRY%"
#define DLQ_TOPIC_PREFIX "%DLQ%"
#define SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"    /* delay levels wait here */
#define TIMER_TOPIC "rmq_sys_wheel_timer"       /* due times wait here */
#define DELAY_MARKS_TOPIC "rmq_sys_delay_marks" /* ours: cancelled and given up ones */
#define DELAY_DEAD_TOPIC "rmq_sys_delay_dead"   /* ours: those that could not be delivered */
#define TX_HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"
#define TX_OP_TOPIC "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#define TX_DISCARD_TOPIC "TRANS_CHECK_MAX_TIME_TOPIC"
#define DEFAULT_TOPIC "TBW102" /* the template of auto-created topics */

/* ^[%|a-zA-Z0-9_-]+$ and at most the maximum; TERN_INVALID with a text that names the fault. */
MUST_CHECK enum tern_code topic_name_check(const void *name, size_t len, struct tern_error *err);
MUST_CHECK enum tern_code group_name_check(const void *name, size_t len, struct tern_error *err);
/*
 * A group that an application or a request names: none that begins as a retry or dead letter topic
 * does, since nobody could tell its topics and progress from another group's. What is stored is
 * read with group_name_check().
 */
MUST_CHECK enum tern_code group_use_check(const void *name, size_t len, struct tern_error *err);
/* Broker and cluster names: ^[a-zA-Z0-9_.@-]+$ that does not begin with '.'; "room@name" says where
 * a broker stands. */
MUST_CHECK enum tern_code broker_name_check(const void *name, size_t len, struct tern_error *err);
/* Client ids: printable UTF-8 without control characters, 1 to CLIENT_ID_MAX bytes. */
MUST_CHECK enum tern_code client_id_check(const void *id, size_t len, struct tern_error *err);
/* RocketMQ's system topics and the rmq_sys_ prefix. */
bool topic_is_system(const void *name, size_t len);
/* System topics that clients may not send to (facts 8.4: SCHEDULE_TOPIC_XXXX, half topics, …). */
bool topic_send_forbidden(const void *name, size_t len);

/* Well-formed UTF-8 without NUL, surrogates and overlong forms. */
bool utf8_valid(const void *text, size_t len);
/* Well-formed UTF-8 without control characters, line separators, byte order marks and
 * non-characters. */
bool utf8_printable(const void *text, size_t len);

/* Java's String.hashCode() of a UTF-8 text: over UTF-16 units, 32-bit wrap-around. Ill-formed bytes
 * count as U+FFFD. */
int32_t java_hash(const void *text, size_t len);
/* The tagsCode of a ConsumeQueue unit: java_hash sign-extended, 0 for no or an empty tag. */
int64_t tags_code(const void *tag, size_t len);

#endif
