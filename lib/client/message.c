/*
 * Messages as applications make them: creation, setters, references. First on a message's way;
 * encoding is in message_record.c, what C programs read in message_texts.c.
 *
 * Invariants: props_len counts well-formed pairs, each name once; the buffer has PROPS_SLACK_BYTES
 * more. The topic passed topic_name_check().
 *
 * Threads: setters by the creator only; references and the unique id by any thread.
 *
 * Failure modes: a setter that fails leaves the message as it was.
 */
#include "client/message_struct.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/names.h"
#include "base/props.h"
#include "client/message_id.h"
#include "client/message_internal.h"
#include "client/namespace.h"

enum {
    FIRST_PROPS_BYTES = 64 + PROPS_SLACK_BYTES,
    DELAY_LEVEL_MAX = 64, /* what a broker's messageDelayLevel can have */
    BODY_MAX = 1 << 30    /* far above every broker's limit */
};

#define WAIT_MARK                                                                                  \
    "\x02" PROP_WAIT "\x01"                                                                        \
    "false"

enum tern_code tern_message_create(const char *topic, const void *body, size_t body_size,
                                   struct tern_message **out, struct tern_error *err)
{
    *out = NULL;
    if (!topic || (!body && body_size > 0))
        return error_set(err, TERN_INVALID, "%s is NULL", topic ? "body" : "topic");
    size_t topic_len = strlen(topic);
    enum tern_code code = topic_name_check(topic, topic_len, err);
    if (code != TERN_OK)
        return code;
    if (body_size > BODY_MAX)
        return error_set(err, TERN_INVALID, "body has %zu bytes, allowed 0..%d", body_size,
                         (int)BODY_MAX);
    struct tern_message *m = malloc(sizeof *m + topic_len + 1 + FIRST_PROPS_BYTES + body_size);
    if (!m)
        return error_set(err, TERN_NO_MEMORY, "message of %zu bytes", body_size);
    *m = (struct tern_message){.refs = 1, .wait_store_ok = true, .topic_len = (uint8_t)topic_len};
    char *text = (char *)(m + 1);
    memcpy(text, topic, topic_len + 1);
    m->topic = text;
    m->props = (uint8_t *)text + topic_len + 1;
    m->props_cap = FIRST_PROPS_BYTES;
    uint8_t *bytes = m->props + FIRST_PROPS_BYTES;
    if (body_size > 0)
        memcpy(bytes, body, body_size);
    m->body = bytes;
    m->body_len = (uint32_t)body_size;
    *out = m;
    return TERN_OK;
}

struct tern_message *tern_message_ref(const struct tern_message *message)
{
    struct tern_message *m = (struct tern_message *)(uintptr_t)message;
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void tern_message_unref(struct tern_message *message)
{
    if (!message || atomic_fetch_sub_explicit(&message->refs, 1, memory_order_acq_rel) > 1)
        return;
    message_texts_free(atomic_load(&message->texts));
    if (message->props_on_heap)
        free(message->props);
    opened_body_free(atomic_load(&message->opened));
    shared_bytes_unref(message->owner);
    free(message->shown_topic);
    free(message);
}

/* ---- properties ---- */

static size_t wait_mark_len(size_t props_len)
{
    return sizeof WAIT_MARK - 1 - (props_len == 0);
}

/* The WAIT mark stands behind the last pair; written anew whenever that moves. */
static void put_wait_mark(struct tern_message *m)
{
    size_t len = atomic_load_explicit(&m->props_len, memory_order_relaxed);
    if (!m->wait_store_ok)
        memcpy(m->props + len, &WAIT_MARK[len == 0], wait_mark_len(len));
}

/* Publishes new properties of len bytes. */
static void props_changed(struct tern_message *m, size_t len)
{
    atomic_store_explicit(&m->props_len, (uint32_t)len, memory_order_release);
    put_wait_mark(m);
    atomic_fetch_add_explicit(&m->props_version, 1, memory_order_release);
}

/* Makes room for properties of len bytes and the slack. */
static enum tern_code props_reserve(struct tern_message *m, size_t len)
{
    if (len + PROPS_SLACK_BYTES <= m->props_cap)
        return TERN_OK;
    size_t cap = len + len / 2 + PROPS_SLACK_BYTES;
    uint8_t *grown = malloc(cap);
    if (!grown)
        return TERN_NO_MEMORY;
    memcpy(grown, m->props, atomic_load_explicit(&m->props_len, memory_order_relaxed));
    if (m->props_on_heap)
        free(m->props);
    m->props = grown;
    m->props_cap = (uint32_t)cap;
    m->props_on_heap = true;
    return TERN_OK;
}

static bool text_fits_property(const char *text)
{
    return text && text[0] && !strpbrk(text, "\x01\x02");
}

/* Replaces or adds a pair; everything that can fail comes before the first change. */
static enum tern_code set_pair(struct tern_message *m, const char *name, const char *value)
{
    if (m->received || !text_fits_property(name) || !text_fits_property(value))
        return TERN_INVALID;
    size_t name_len = strlen(name);
    size_t value_len = strlen(value);
    if (name_len > RECORD_PROPS_MAX || value_len > RECORD_PROPS_MAX)
        return TERN_TOO_LARGE;
    size_t len = atomic_load_explicit(&m->props_len, memory_order_relaxed);
    size_t kept = len;
    struct slice old;
    if (props_get(m->props, len, name, &old)) {
        size_t pair = name_len + 1 + old.len;
        kept = pair == len ? 0 : len - pair - 1;
    }
    size_t total = kept + (kept > 0) + name_len + 1 + value_len;
    if (total > RECORD_PROPS_MAX)
        return TERN_TOO_LARGE;
    enum tern_code code = props_reserve(m, total > len ? total : len);
    if (code != TERN_OK)
        return code;
    if (kept != len)
        len = props_remove(m->props, m->props, len, name);
    code = props_append(m->props, &len, RECORD_PROPS_MAX, name, name_len, value, value_len);
    ENSURE(code == TERN_OK);
    props_changed(m, len);
    return TERN_OK;
}

enum tern_code message_reserved_failed(const struct tern_message *message, const char *whose,
                                       enum tern_code code, struct tern_error *err)
{
    size_t len = atomic_load_explicit(&message->props_len, memory_order_relaxed);
    if (code != TERN_TOO_LARGE)
        return error_set(err, code, "the properties of %s: %s", whose, tern_code_text(code));
    return error_set(err, code,
                     "the properties of %s do not fit: the message has %zu bytes of properties, at "
                     "most %d are stored",
                     whose, len, (int)RECORD_PROPS_MAX);
}

enum tern_code tern_message_set_tag(struct tern_message *message, const char *tag)
{
    return set_pair(message, PROP_TAGS, tag);
}

enum tern_code tern_message_set_keys(struct tern_message *message, const char *keys)
{
    return set_pair(message, PROP_KEYS, keys);
}

enum tern_code tern_message_set_property(struct tern_message *message, const char *name,
                                         const char *value)
{
    if (!name || props_name_reserved(name, strlen(name)))
        return TERN_INVALID;
    return set_pair(message, name, value);
}

void tern_message_set_flag(struct tern_message *message, int32_t flag)
{
    if (!message->received)
        message->flag = flag;
}

/* A message has one delay: the last one set. NULL: none. */
static enum tern_code set_delay(struct tern_message *message, const char *name, int64_t value)
{
    static const char *const all[] = {PROP_DELAY, PROP_TIMER_DELIVER_MS, PROP_TIMER_DELAY_MS};
    char text[24];
    enum tern_code code = TERN_OK;
    snprintf(text, sizeof text, "%" PRId64, value);
    if (name)
        code = set_pair(message, name, text);
    for (size_t i = 0; code == TERN_OK && i < sizeof all / sizeof all[0]; i++) {
        size_t len = atomic_load_explicit(&message->props_len, memory_order_relaxed);
        if (!name || strcmp(all[i], name) != 0)
            props_changed(message, props_remove(message->props, message->props, len, all[i]));
    }
    if (code == TERN_OK)
        message->delayed = name != NULL;
    return code;
}

enum tern_code tern_message_set_delay_level(struct tern_message *message, int level)
{
    if (message->received || level < 0 || level > DELAY_LEVEL_MAX)
        return TERN_INVALID;
    return set_delay(message, level ? PROP_DELAY : NULL, level);
}

enum tern_code tern_message_set_deliver_at_ms(struct tern_message *message, int64_t wall_ms)
{
    if (message->received || wall_ms < 0)
        return TERN_INVALID;
    return set_delay(message, wall_ms ? PROP_TIMER_DELIVER_MS : NULL, wall_ms);
}

enum tern_code tern_message_set_delay_ms(struct tern_message *message, int64_t delay_ms)
{
    if (message->received || delay_ms < 0)
        return TERN_INVALID;
    return set_delay(message, delay_ms ? PROP_TIMER_DELAY_MS : NULL, delay_ms);
}

void tern_message_set_wait_store_ok(struct tern_message *message, bool wait)
{
    if (message->received)
        return;
    message->wait_store_ok = wait;
    put_wait_mark(message);
}

/* ---- what the library itself reads and sets ---- */

enum tern_code message_set_reserved(struct tern_message *message, const char *name,
                                    const char *value)
{
    return message->received ? TERN_INVALID : set_pair(message, name, value);
}

void message_remove_reserved(struct tern_message *message, const char *name)
{
    size_t len = atomic_load_explicit(&message->props_len, memory_order_relaxed);
    if (!message->received)
        props_changed(message, props_remove(message->props, message->props, len, name));
}

void message_assign_id(struct tern_message *message, struct id_maker *maker, int64_t wall_ms)
{
    if (message->received ||
        atomic_load_explicit(&message->id_state, memory_order_acquire) == ID_SET)
        return;
    uint32_t expected = ID_NONE;
    if (!atomic_compare_exchange_strong(&message->id_state, &expected, ID_BUSY)) {
        /* Another thread sends the same message and is a few instructions from having its id. */
        while (atomic_load_explicit(&message->id_state, memory_order_acquire) != ID_SET)
            ;
        return;
    }
    id_maker_next(maker, wall_ms, message->id);
    size_t len = atomic_load_explicit(&message->props_len, memory_order_relaxed);
    uint8_t *end = message->props + len;
    if (len > 0)
        *end++ = 2;
    memcpy(end, PROP_UNIQ_KEY "\x01", sizeof PROP_UNIQ_KEY);
    end += sizeof PROP_UNIQ_KEY;
    memcpy(end, message->id, UNIQ_ID_CHARS);
    props_changed(message, (size_t)(end + UNIQ_ID_CHARS - message->props));
    atomic_store_explicit(&message->id_state, ID_SET, memory_order_release);
}

void message_ensure_id(struct tern_message *message, const struct env *env)
{
    message_assign_id(message, id_maker_process(), clock_wall_ms(env->clock));
}

const uint8_t *message_props(const struct tern_message *message, size_t *len)
{
    *len = atomic_load_explicit(&message->props_len, memory_order_acquire);
    if (!message->wait_store_ok)
        *len += wait_mark_len(*len);
    return message->props;
}

bool message_wait_store_ok(const struct tern_message *message)
{
    return message->wait_store_ok;
}

bool message_is_received(const struct tern_message *message)
{
    return message->received;
}

bool message_topic_is_absolute(const struct tern_message *message)
{
    return message->absolute_topic;
}

void message_topic_set_absolute(struct tern_message *message)
{
    message->absolute_topic = true;
}

const char *message_wire_topic(const struct tern_message *message)
{
    return message->topic;
}

void message_hide_namespace(struct tern_message *message, const char *ns)
{
    message->topic_skip = (uint8_t)namespace_skip(ns, message->topic);
    /* Retry topics and dead letters have it in their midst; without memory they are shown whole. */
    if (!message->shown_topic && namespace_within(ns, message->topic))
        message->shown_topic = strdup(message->topic);
    if (message->shown_topic)
        namespace_strip(ns, message->shown_topic);
}

bool message_is_delayed(const struct tern_message *message)
{
    return message->delayed;
}
