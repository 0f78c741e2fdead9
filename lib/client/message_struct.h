/*
 * The inside of a message, for the message_*.c files only.
 *
 * A message that was made here is one block: struct, topic, body and a first buffer of properties.
 * One that was received is a struct and its topic; body and properties lie in a copy of the pull's
 * answer that all its messages share. They do not borrow from the call itself: an application may
 * keep a message for longer than the client that received it.
 *
 *   props   name \x01 value \x02 … name \x01 value   \x02 WAIT \x01 false
 *           ◄────────── props_len ────────────────►  only when !wait_store_ok, never in a record
 *
 * Behind the properties there is always room for the unique id and the WAIT mark
 * (PROPS_SLACK_BYTES), so that giving an id cannot fail.
 */
#ifndef CLIENT_MESSAGE_STRUCT_H
#define CLIENT_MESSAGE_STRUCT_H

#include <stdatomic.h>

#include <tern/message.h>

#include "base/record.h"

enum {
    UNIQ_ID_CHARS = 32,
    /* \x02 UNIQ_KEY \x01 id, then \x02 WAIT \x01 false */
    PROPS_SLACK_BYTES = (1 + 8 + 1 + UNIQ_ID_CHARS) + (1 + 4 + 1 + 5)
};

/* Texts that C programs can read, derived from the bytes; immutable once published. */
struct message_texts {
    struct message_texts *next; /* an older one: its texts may still be borrowed by somebody */
    uint32_t props_version;     /* of the properties that these are */
    char offset_id[MESSAGE_ID_BYTES];
    char born_host[HOST_TEXT_BYTES];
    char store_host[HOST_TEXT_BYTES];
    size_t count;
    struct {
        const char *name, *value;
    } pairs[];
};

/* The bytes of one answer, freed with the last message that lies in them. */
struct shared_bytes {
    _Atomic uint32_t refs;
    uint8_t bytes[];
};
void shared_bytes_unref(struct shared_bytes *shared); /* NULL allowed */

/* What a compressed body opened to, or why it did not. */
struct opened_body {
    enum tern_code code;
    uint8_t *bytes; /* NULL unless code is TERN_OK */
    size_t len;
    struct tern_error err;
};
void opened_body_free(struct opened_body *opened); /* NULL allowed */

enum message_id_state { ID_NONE, ID_BUSY, ID_SET };

struct tern_message {
    _Atomic uint32_t refs;
    _Atomic uint32_t id_state; /* enum message_id_state; ID_SET publishes id */
    bool received;             /* setters refuse */
    bool wait_store_ok;
    bool props_on_heap;
    bool delayed;        /* has a property that delays it */
    bool absolute_topic; /* no namespace is put before it */
    bool half;           /* of a transaction that is being sent */
    uint8_t topic_len;
    uint8_t topic_skip; /* of a namespace before the topic, which applications do not see */
    int32_t flag;
    const char *topic;   /* terminated */
    char *shown_topic;   /* without the namespace that stands within it; NULL: topic + topic_skip */
    const uint8_t *body; /* as stored */
    uint32_t body_len;
    uint32_t props_cap; /* of a buffer of our own */
    uint8_t *props;
    _Atomic uint32_t props_len; /* published after the bytes */
    _Atomic uint32_t props_version;
    _Atomic(struct message_texts *) texts; /* newest first; a stack that only grows */
    char id[UNIQ_ID_CHARS + 1];

    /* received only */
    struct shared_bytes *owner;           /* body and props lie there; holds a reference */
    const char *broker_name;              /* terminated */
    _Atomic(struct opened_body *) opened; /* of a compressed body; NULL: not yet */
    uint32_t open_max;                    /* bytes that it may open to; 0: the library's limit */
    int32_t queue_id;
    _Atomic int32_t reconsume_times; /* grows while a listener that ran out of time may read it */
    int32_t tries_here;              /* of them: counted since, here or by a last owner */
    uint32_t sys_flag;
    int64_t queue_off, phys_off, born_ms, store_ms;
    struct host born_host, store_host;
};

/*
 * The readable texts of now, made when needed; NULL without memory. Borrowed from the message.
 * @thread any
 */
const struct message_texts *message_texts(const struct tern_message *message);
const char *message_texts_find(const struct message_texts *texts, const char *name);
void message_texts_free(struct message_texts *newest);

#endif
