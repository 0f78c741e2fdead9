/*
 * Grammar of names, well-formed UTF-8, and Java's string hash.
 *
 * Invariant: a name that passed its check can stand in a path as one component: it has no '/', no
 * NUL, is neither empty nor "." nor "..", and is not too long.
 *
 * Threads: any; no state. Failure modes: TERN_INVALID with a text that shows the offending byte in
 * hex only.
 */
#include "base/names.h"

#include <string.h>

/*
 * Decodes one code point of the `avail` > 0 bytes at p; *used is its length. false: ill-formed,
 * *used is then the length of the longest beginning of a code point, at least 1, which is what Java
 * replaces by one U+FFFD.
 */
static bool utf8_decode(const uint8_t *p, size_t avail, uint32_t *code, size_t *used)
{
    uint8_t lead = p[0];
    *used = 1;
    *code = lead;
    if (lead < 0x80)
        return true;
    size_t more;
    uint8_t low = 0x80; /* allowed range of the second byte: no overlong forms, no surrogates */
    uint8_t high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
        more = 1;
        *code = lead & 0x1F;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        more = 2;
        *code = lead & 0x0F;
        if (lead == 0xE0)
            low = 0xA0;
        if (lead == 0xED)
            high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        more = 3;
        *code = lead & 0x07;
        if (lead == 0xF0)
            low = 0x90;
        if (lead == 0xF4)
            high = 0x8F;
    } else {
        return false;
    }
    for (size_t i = 1; i <= more; i++) {
        if (i >= avail || p[i] < low || p[i] > high)
            return false;
        *code = (*code << 6) | (p[i] & 0x3Fu);
        *used = i + 1;
        low = 0x80;
        high = 0xBF;
    }
    return true;
}

bool utf8_valid(const void *text, size_t len)
{
    const uint8_t *p = text;
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t code;
        if (!utf8_decode(p + i, len - i, &code, &used) || code == 0)
            return false;
    }
    return true;
}

bool utf8_printable(const void *text, size_t len)
{
    const uint8_t *p = text;
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t code;
        if (!utf8_decode(p + i, len - i, &code, &used))
            return false;
        if (code < 0x20 || (code >= 0x7F && code < 0xA0)) /* C0, DEL, C1 */
            return false;
        if (code == 0xFEFF || code == 0x2028 || code == 0x2029 || (code & 0xFFFE) == 0xFFFE)
            return false;
    }
    return true;
}

int32_t java_hash(const void *text, size_t len)
{
    const uint8_t *p = text;
    uint32_t hash = 0;
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t code;
        if (!utf8_decode(p + i, len - i, &code, &used))
            code = 0xFFFD;
        if (code >= 0x10000) {
            code -= 0x10000;
            hash = 31 * hash + (0xD800 + (code >> 10));
            code = 0xDC00 + (code & 0x3FF);
        }
        hash = 31 * hash + code;
    }
    return (int32_t)hash;
}

int64_t tags_code(const void *tag, size_t len)
{
    return len ? java_hash(tag, len) : 0;
}

static bool is_alnum(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Letters, digits and the characters in `extra`; 1 to max bytes. */
static enum tern_code check_chars(const char *what, const void *name, size_t len, size_t max,
                                  const char *extra, struct tern_error *err)
{
    if (len == 0)
        return error_set(err, TERN_INVALID, "%s is empty", what);
    if (len > max)
        return error_set(err, TERN_INVALID, "%s has %zu bytes, allowed 1..%zu", what, len, max);
    const uint8_t *p = name;
    for (size_t i = 0; i < len; i++)
        if (!is_alnum(p[i]) && (p[i] == 0 || !strchr(extra, p[i])))
            return error_set(err, TERN_INVALID,
                             "%s has byte 0x%02X at position %zu, allowed are letters, digits and "
                             "%s",
                             what, p[i], i, extra);
    return TERN_OK;
}

enum tern_code topic_name_check(const void *name, size_t len, struct tern_error *err)
{
    return check_chars("topic name", name, len, TOPIC_NAME_MAX, "%|_-", err);
}

enum tern_code group_name_check(const void *name, size_t len, struct tern_error *err)
{
    return check_chars("group name", name, len, GROUP_NAME_MAX, "%|_-", err);
}

enum tern_code group_use_check(const void *name, size_t len, struct tern_error *err)
{
    static const char *const prefixes[] = {RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX};
    enum tern_code code = group_name_check(name, len, err);
    for (size_t i = 0; code == TERN_OK && i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (len >= strlen(prefixes[i]) && !memcmp(name, prefixes[i], strlen(prefixes[i])))
            code = error_set(err, TERN_INVALID,
                             "group name begins with %s, which is for the topics of a group's "
                             "failed messages",
                             prefixes[i]);
    return code;
}

enum tern_code broker_name_check(const void *name, size_t len, struct tern_error *err)
{
    enum tern_code code =
        check_chars("broker or cluster name", name, len, BROKER_NAME_MAX, "_.@-", err);
    if (code == TERN_OK && *(const char *)name == '.')
        return error_set(err, TERN_INVALID, "broker or cluster name begins with '.'");
    return code;
}

enum tern_code client_id_check(const void *id, size_t len, struct tern_error *err)
{
    if (len == 0)
        return error_set(err, TERN_INVALID, "client id is empty");
    if (len > CLIENT_ID_MAX)
        return error_set(err, TERN_INVALID, "client id has %zu bytes, allowed 1..%d", len,
                         (int)CLIENT_ID_MAX);
    if (!utf8_printable(id, len))
        return error_set(err, TERN_INVALID, "client id is not printable UTF-8");
    return TERN_OK;
}

static bool equals(const void *name, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(name, text, len) == 0;
}

static bool one_of(const void *name, size_t len, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (equals(name, len, list[i]))
            return true;
    return false;
}

bool topic_is_system(const void *name, size_t len)
{
    static const char prefix[] = "rmq_sys_";
    static const char *const others[] = {DEFAULT_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"};
    size_t prefix_len = sizeof prefix - 1;
    return topic_send_forbidden(name, len) ||
           one_of(name, len, others, sizeof others / sizeof others[0]) ||
           (len >= prefix_len && memcmp(name, prefix, prefix_len) == 0);
}

bool topic_send_forbidden(const void *name, size_t len)
{
    static const char *const forbidden[] = {
        SCHEDULE_TOPIC, TIMER_TOPIC,      DELAY_MARKS_TOPIC, DELAY_DEAD_TOPIC,     TX_HALF_TOPIC,
        TX_OP_TOPIC,    TX_DISCARD_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    };
    return one_of(name, len, forbidden, sizeof forbidden / sizeof forbidden[0]);
}
