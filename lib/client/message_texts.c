/*
 * What applications read of a message, as terminated C texts.
 *
 * In records texts have lengths and properties are one string with separators. The readable form is
 * made when somebody first asks, as one block, and pushed onto the message's stack of texts. After
 * a setter, or when the unique id was given, the next reader makes a newer one; older ones stay
 * until the message goes, because their texts may still be borrowed. Two first readers at once may
 * make two alike; that does no harm.
 *
 * Threads: any. Failure modes: without memory a property reads as absent, a text as "".
 */
#include "client/message_struct.h"

#include <stdlib.h>
#include <string.h>

#include "base/props.h"
#include "client/message_internal.h"

static struct tern_message *writable(const struct tern_message *message)
{
    return (struct tern_message *)(uintptr_t)message;
}

void message_texts_free(struct message_texts *newest)
{
    while (newest) {
        struct message_texts *next = newest->next;
        free(newest);
        newest = next;
    }
}

static const char *copy_text(char **at, const struct slice *text)
{
    char *out = *at;
    memcpy(out, text->ptr, text->len);
    out[text->len] = 0;
    *at += text->len + 1;
    return out;
}

static struct message_texts *texts_make(const struct tern_message *m, uint32_t version)
{
    size_t len = atomic_load_explicit(&m->props_len, memory_order_acquire);
    struct slice name;
    struct slice value;
    size_t count = 0;
    for (size_t cursor = 0; props_next(m->props, len, &cursor, &name, &value);)
        count++;
    /* A pair's text and its separators take at least the room of its two terminators. */
    struct message_texts *t = calloc(1, sizeof *t + count * sizeof t->pairs[0] + len + 2);
    if (!t)
        return NULL;
    t->props_version = version;
    t->count = count;
    char *at = (char *)&t->pairs[count];
    size_t cursor = 0;
    for (size_t i = 0; i < count && props_next(m->props, len, &cursor, &name, &value); i++) {
        t->pairs[i].name = copy_text(&at, &name);
        t->pairs[i].value = copy_text(&at, &value);
    }
    if (m->received) {
        message_id_format(t->offset_id, &m->store_host, m->phys_off);
        host_format(t->born_host, &m->born_host);
        host_format(t->store_host, &m->store_host);
    }
    return t;
}

const struct message_texts *message_texts(const struct tern_message *message)
{
    struct tern_message *m = writable(message);
    uint32_t version = atomic_load_explicit(&m->props_version, memory_order_acquire);
    struct message_texts *newest = atomic_load_explicit(&m->texts, memory_order_acquire);
    if (newest && newest->props_version == version)
        return newest;
    struct message_texts *made = texts_make(m, version);
    if (!made)
        return NULL;
    made->next = newest;
    while (!atomic_compare_exchange_weak(&m->texts, &made->next, made))
        ;
    return made;
}

const char *message_texts_find(const struct message_texts *texts, const char *name)
{
    /* Of several pairs with one name the last counts, as in props_get(). */
    for (size_t i = texts ? texts->count : 0; i > 0; i--)
        if (strcmp(texts->pairs[i - 1].name, name) == 0)
            return texts->pairs[i - 1].value;
    return NULL;
}

/* ---- public getters ---- */

const char *tern_message_topic(const struct tern_message *message)
{
    return message->shown_topic ? message->shown_topic : message->topic + message->topic_skip;
}

const char *tern_message_property(const struct tern_message *message, const char *name)
{
    return message_texts_find(message_texts(message), name);
}

const char *tern_message_tag(const struct tern_message *message)
{
    return tern_message_property(message, PROP_TAGS);
}

const char *tern_message_keys(const struct tern_message *message)
{
    return tern_message_property(message, PROP_KEYS);
}

bool tern_message_property_at(const struct tern_message *message, size_t index, const char **name,
                              const char **value)
{
    const struct message_texts *texts = message_texts(message);
    if (!texts || index >= texts->count)
        return false;
    *name = texts->pairs[index].name;
    *value = texts->pairs[index].value;
    return true;
}

int32_t tern_message_flag(const struct tern_message *message)
{
    return message->flag;
}

int tern_message_delay_level(const struct tern_message *message)
{
    const char *text = tern_message_property(message, PROP_DELAY);
    long level = text ? strtol(text, NULL, 10) : 0;
    return level > 0 && level < INT32_MAX ? (int)level : 0;
}

const char *tern_message_id(const struct tern_message *message)
{
    if (!message->received)
        return atomic_load_explicit(&writable(message)->id_state, memory_order_acquire) == ID_SET
                   ? message->id
                   : "";
    const struct message_texts *texts = message_texts(message);
    const char *unique = message_texts_find(texts, PROP_UNIQ_KEY);
    if (unique)
        return unique;
    return texts ? texts->offset_id : "";
}

const char *tern_message_offset_id(const struct tern_message *message)
{
    const struct message_texts *texts = message->received ? message_texts(message) : NULL;
    return texts ? texts->offset_id : "";
}

const char *tern_message_born_host(const struct tern_message *message)
{
    const struct message_texts *texts = message->received ? message_texts(message) : NULL;
    return texts ? texts->born_host : "";
}

const char *tern_message_store_host(const struct tern_message *message)
{
    const struct message_texts *texts = message->received ? message_texts(message) : NULL;
    return texts ? texts->store_host : "";
}

const char *tern_message_broker_name(const struct tern_message *message)
{
    return message->broker_name ? message->broker_name : "";
}

int32_t tern_message_queue_id(const struct tern_message *message)
{
    return message->queue_id;
}

int64_t tern_message_queue_offset(const struct tern_message *message)
{
    return message->queue_off;
}

int64_t tern_message_physical_offset(const struct tern_message *message)
{
    return message->phys_off;
}

int64_t tern_message_born_ms(const struct tern_message *message)
{
    return message->born_ms;
}

int64_t tern_message_store_ms(const struct tern_message *message)
{
    return message->store_ms;
}

int tern_message_reconsume_times(const struct tern_message *message)
{
    return atomic_load_explicit(&message->reconsume_times, memory_order_relaxed);
}

uint32_t tern_message_sys_flag(const struct tern_message *message)
{
    return message->sys_flag;
}
