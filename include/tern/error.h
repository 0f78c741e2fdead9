/*
 * Errors of TernMQ: one enum for the whole product, 0 is success.
 *
 * Every function that can fail returns an enum tern_code. Many also take an optional, caller-owned
 * struct tern_error that receives the text for people: what failed, where (file, line, key, limit
 * and its value) and what to do. Passing NULL is always allowed. The struct needs no clean-up.
 */
#ifndef TERN_ERROR_H
#define TERN_ERROR_H

#include <stdbool.h>

#include <tern/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One row per code: name, text, retriable.
 * retriable: the same call, made again later or at another broker, may succeed without anybody
 * changing anything. A send that failed with a retriable code may still have been stored
 * (TERN_TIMEOUT, TERN_CONNECTION_LOST): repeating it can store it twice.
 */
#define TERN_ERROR_TABLE(X)                                                                        \
    X(OK, "success", false)                                                                        \
    /* this process */                                                                             \
    X(INVALID, "invalid argument", false)                                                          \
    X(STATE, "wrong state for this call", false)                                                   \
    X(NO_MEMORY, "out of memory", true)                                                            \
    X(IO, "input/output error", false)                                                             \
    X(NO_SPACE, "no space left on the device", true)                                               \
    X(CORRUPT, "data is damaged", false)                                                           \
    X(NOT_FOUND, "not found", false)                                                               \
    X(EXISTS, "exists already", false)                                                             \
    X(IN_USE, "in use by another process", false)                                                  \
    X(AGAIN, "not available at once", true)                                                        \
    X(LIMIT, "a limit is reached", true)                                                           \
    X(TOO_LARGE, "too large", false)                                                               \
    X(CANCELED, "canceled", false)                                                                 \
    X(CONFIG, "configuration error", false)                                                        \
    X(NOT_SUPPORTED, "not supported", false)                                                       \
    /* the transport */                                                                            \
    X(TIMEOUT, "deadline passed", true)                                                            \
    X(UNREACHABLE, "peer cannot be reached", true)                                                 \
    X(CONNECTION_LOST, "connection lost before the answer came", true)                             \
    X(PROTOCOL, "malformed frame or message", false)                                               \
    /* answers of a broker or nameserver; RocketMQ's response codes (docs/protocol.md) */          \
    X(SYSTEM_ERROR, "the server reports an internal error", true)                                  \
    X(SYSTEM_BUSY, "the server is busy", true)                                                     \
    X(TRANSACTION_FAILED, "the transaction was decided otherwise, or is not known", false)         \
    X(MESSAGE_ILLEGAL, "message refused", false)                                                   \
    X(SERVICE_NOT_AVAILABLE, "the broker does not accept this now", true)                          \
    X(NO_PERMISSION, "no permission", false)                                                       \
    X(TOPIC_NOT_EXIST, "topic does not exist", false)                                              \
    X(GROUP_NOT_EXIST, "subscription group does not exist", false)                                 \
    X(QUERY_NOT_FOUND, "nothing found", false)                                                     \
    X(SUBSCRIPTION_PARSE_FAILED, "subscription expression does not parse", false)                  \
    X(SUBSCRIPTION_NOT_EXIST, "the broker does not know this subscription yet", true)              \
    X(SUBSCRIPTION_NOT_LATEST, "the broker has an older subscription", true)                       \
    X(FILTER_DATA_NOT_EXIST, "the broker has no filter data for this subscription", true)          \
    X(FILTER_DATA_NOT_LATEST, "the broker has older filter data", true)                            \
    X(CONSUMER_NOT_ONLINE, "no member of this group is online", true)                              \
    X(FLOW_CONTROL, "the broker asks to slow down", true)                                          \
    X(FLUSH_DISK_TIMEOUT, "stored, but not flushed within the deadline", true)                     \
    X(FLUSH_SLAVE_TIMEOUT, "stored, but not replicated within the deadline", true)                 \
    X(SLAVE_NOT_AVAILABLE, "stored, but no slave is in sync", true)                                \
    X(PULL_NOT_FOUND, "no new message", true)                                                      \
    X(PULL_RETRY_IMMEDIATELY, "no matching message in what was scanned", true)                     \
    X(PULL_OFFSET_MOVED, "the offset asked for is outside the queue", false)                       \
    X(PROGRESS_UNKNOWN, "this broker cannot tell the group's progress", true)                      \
    X(OFFSET_VERSION_OLD, "the group's offset was reset since", false)                             \
    X(NAME_CONFLICT, "another live broker holds this name and id", false)                          \
    X(SUBSCRIPTION_DIFFERS, "members of the group subscribe differently", false)

/* clang-format off */
enum tern_code {
#define TERN_ERROR_ENUM_(name, text, retriable) TERN_##name,
    TERN_ERROR_TABLE(TERN_ERROR_ENUM_)
#undef TERN_ERROR_ENUM_
    TERN_CODE_COUNT
};
/* clang-format on */

enum { TERN_ERROR_TEXT_BYTES = 512 };

struct tern_error {
    enum tern_code code;
    char text[TERN_ERROR_TEXT_BYTES]; /* UTF-8, always terminated, cut when longer */
};

/* The code's short text, e.g. "deadline passed". Never NULL; static storage. */
TERN_API const char *tern_code_text(enum tern_code code);

/* The code's name without prefix, e.g. "TIMEOUT". Never NULL; static storage. */
TERN_API const char *tern_code_name(enum tern_code code);

/* Whether the same call may succeed later or elsewhere; see TERN_ERROR_TABLE. */
TERN_API bool tern_code_retriable(enum tern_code code);

#ifdef __cplusplus
}
#endif
#endif
