/*
 * Frames: header length | protobuf header | payload. The payload is never copied by protobuf: on
 * sending it is written where it will leave from, on receiving it is a pointer into the received
 * message.
 *
 *   frame_reserve                  frame_finish
 *   [ 512 headroom | payload cap ] ──► [ trimmed | length | header | payload | chopped ]
 *
 * What a hostile header could do, and what keeps it from it:
 *   - lie about its length: it is compared with the frame before anything is read;
 *   - make us allocate without end: protobuf-c allocates from an arena with a budget, and headers
 *     are capped far below the sizes where protobuf-c's own arithmetic wraps;
 *   - nest without end: no message type of ours is recursive; unknown fields are not descended
 *     into; check_strings() has its own small stack with a limit;
 *   - hide bytes behind a NUL: `string` fields become C strings and would lose what follows, so
 *     such headers are refused. Names are `bytes` and checked by their length.
 *
 * Threads: any, each frame one at a time. Failure modes: NULL or a code, and a text.
 */
#include "rpc/frame.h"

#include <string.h>

#include "base/bytes.h"

enum {
    PAYLOAD_SLACK_BYTES = 64 * 1024, /* properties, envelope of one record, and the header */
    STRING_CHECK_DEPTH_MAX = 8
};

size_t frame_max_bytes(int64_t max_message_bytes)
{
    size_t payload = max_message_bytes > 0 ? (size_t)max_message_bytes : 0;
    size_t most = payload + PAYLOAD_SLACK_BYTES;
    if (most < FRAME_HEADER_MAX)
        most = FRAME_HEADER_MAX;
    return FRAME_PREFIX_BYTES + most;
}

/* ---- unpacking ---- */

struct unpack_memory {
    struct arena *arena;
    bool exhausted;
};

static void *unpack_alloc(void *data, size_t size)
{
    struct unpack_memory *memory = data;
    void *out = arena_alloc(memory->arena, size);
    if (!out)
        memory->exhausted = true;
    return out;
}

static void unpack_free(void *data, void *pointer)
{
    (void)data;
    (void)pointer;
}

/* Reads a varint; returns the bytes it took, 0 when it is cut or too long. */
static size_t read_varint(const uint8_t *data, size_t size, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && i < 10; i++) {
        value |= (uint64_t)(data[i] & 0x7f) << (7 * i);
        if (!(data[i] & 0x80)) {
            *out = value;
            return i + 1;
        }
    }
    return 0;
}

/* Bytes of a value that is not length-prefixed; 0 when malformed. */
static size_t fixed_value_size(unsigned wire_type, const uint8_t *data, size_t size)
{
    uint64_t ignored;
    switch (wire_type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        return read_varint(data, size, &ignored);
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        return size >= 8 ? 8 : 0;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        return size >= 4 ? 4 : 0;
    default:
        return 0;
    }
}

struct message_span {
    const ProtobufCMessageDescriptor *type;
    const uint8_t *at, *end;
};

/*
 * One field of *span, which moves on. A known message goes to *inner. false when malformed, or when
 * a string holds NUL.
 */
static bool check_field(struct message_span *span, struct message_span *inner)
{
    uint64_t tag;
    size_t used = read_varint(span->at, (size_t)(span->end - span->at), &tag);
    if (used == 0 || tag >> 3 > UINT32_MAX)
        return false;
    span->at += used;
    unsigned wire_type = (unsigned)(tag & 7);
    if (wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
        used = fixed_value_size(wire_type, span->at, (size_t)(span->end - span->at));
        span->at += used;
        return used > 0;
    }
    uint64_t length;
    used = read_varint(span->at, (size_t)(span->end - span->at), &length);
    if (used == 0 || length > (uint64_t)(span->end - span->at) - used)
        return false;
    const uint8_t *value = span->at + used;
    span->at = value + length;
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(span->type, (unsigned)(tag >> 3));
    if (!field)
        return true;
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return memchr(value, 0, length) == NULL;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        *inner = (struct message_span){field->descriptor, value, value + length};
    return true;
}

static bool check_strings(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
    struct message_span stack[STRING_CHECK_DEPTH_MAX];
    size_t depth = 1;
    stack[0] = (struct message_span){type, data, data + size};
    while (depth > 0) {
        struct message_span *span = &stack[depth - 1];
        if (span->at == span->end) {
            depth--;
            continue;
        }
        struct message_span inner = {0};
        if (!check_field(span, &inner))
            return false;
        if (!inner.type)
            continue;
        if (depth == STRING_CHECK_DEPTH_MAX)
            return false;
        stack[depth++] = inner;
    }
    return true;
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *type, struct arena *arena,
                                const uint8_t *frame, size_t size, const uint8_t **payload,
                                size_t *payload_size, struct tern_error *err)
{
    *payload = NULL;
    *payload_size = 0;
    if (size < FRAME_PREFIX_BYTES) {
        error_set(err, TERN_PROTOCOL, "frame of %zu bytes is shorter than its length prefix", size);
        return NULL;
    }
    size_t header_size = get_be32(frame);
    if (header_size > FRAME_HEADER_MAX || header_size > size - FRAME_PREFIX_BYTES) {
        error_set(err, TERN_PROTOCOL,
                  "header length %zu does not fit a frame of %zu bytes, or is above %d",
                  header_size, size, (int)FRAME_HEADER_MAX);
        return NULL;
    }
    const uint8_t *header = frame + FRAME_PREFIX_BYTES;
    /* Most headers hold no zero byte at all, then no string does. */
    if (memchr(header, 0, header_size) && !check_strings(type, header, header_size)) {
        error_set(err, TERN_PROTOCOL,
                  "protobuf header of %zu bytes is malformed or has NUL in a string", header_size);
        return NULL;
    }
    struct unpack_memory memory = {.arena = arena};
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, &memory};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, header_size, header);
    if (!message) {
        if (memory.exhausted)
            error_set(err, TERN_LIMIT, "header of %zu bytes needs more memory than the %zu allowed",
                      header_size, arena->budget_bytes);
        else
            error_set(err, TERN_PROTOCOL, "protobuf header of %zu bytes is malformed", header_size);
        return NULL;
    }
    *payload = header + header_size;
    *payload_size = size - FRAME_PREFIX_BYTES - header_size;
    return message;
}

TernRequest *frame_unpack_request(struct arena *arena, const uint8_t *frame, size_t size,
                                  const uint8_t **payload, size_t *payload_size,
                                  struct tern_error *err)
{
    return (TernRequest *)unpack(&tern__wire__request__descriptor, arena, frame, size, payload,
                                 payload_size, err);
}

TernResponse *frame_unpack_response(struct arena *arena, const uint8_t *frame, size_t size,
                                    const uint8_t **payload, size_t *payload_size,
                                    struct tern_error *err)
{
    return (TernResponse *)unpack(&tern__wire__response__descriptor, arena, frame, size, payload,
                                  payload_size, err);
}

/* ---- building ---- */

enum tern_code frame_reserve(struct link *link, size_t payload_cap, struct link_msg **out)
{
    return link_msg_alloc(link, FRAME_HEADROOM_BYTES + payload_cap, out);
}

uint8_t *frame_payload(struct link *link, struct link_msg *msg)
{
    return link_msg_body(link, msg) + FRAME_HEADROOM_BYTES;
}

static void put_header(uint8_t *at, const ProtobufCMessage *header, size_t header_size)
{
    put_be32(at, (uint32_t)header_size);
    size_t packed = protobuf_c_message_pack(header, at + FRAME_PREFIX_BYTES);
    ENSURE(packed == header_size);
}

/* The rare way: a header above the headroom. */
static enum tern_code rebuild(struct link *link, struct link_msg **msg,
                              const ProtobufCMessage *header, size_t header_size,
                              size_t payload_size)
{
    struct link_msg *larger;
    enum tern_code code =
        link_msg_alloc(link, FRAME_PREFIX_BYTES + header_size + payload_size, &larger);
    if (code == TERN_OK) {
        uint8_t *body = link_msg_body(link, larger);
        put_header(body, header, header_size);
        memcpy(body + FRAME_PREFIX_BYTES + header_size, frame_payload(link, *msg), payload_size);
    } else {
        larger = NULL;
    }
    link_msg_free(link, *msg);
    *msg = larger;
    return code;
}

static enum tern_code finish(struct link *link, struct link_msg **msg,
                             const ProtobufCMessage *header, size_t payload_size)
{
    size_t size = link_msg_size(link, *msg);
    ENSURE(size >= FRAME_HEADROOM_BYTES && payload_size <= size - FRAME_HEADROOM_BYTES);
    size_t header_size = protobuf_c_message_get_packed_size(header);
    if (header_size > FRAME_HEADER_MAX) {
        link_msg_free(link, *msg);
        *msg = NULL;
        return TERN_TOO_LARGE;
    }
    if (header_size > FRAME_HEADROOM_BYTES - FRAME_PREFIX_BYTES)
        return rebuild(link, msg, header, header_size, payload_size);
    size_t unused = FRAME_HEADROOM_BYTES - FRAME_PREFIX_BYTES - header_size;
    put_header(link_msg_body(link, *msg) + unused, header, header_size);
    link_msg_chop(link, *msg, size - FRAME_HEADROOM_BYTES - payload_size);
    link_msg_trim(link, *msg, unused);
    return TERN_OK;
}

enum tern_code frame_finish_request(struct link *link, struct link_msg **msg,
                                    const TernRequest *header, size_t payload_size)
{
    return finish(link, msg, &header->base, payload_size);
}

enum tern_code frame_finish_response(struct link *link, struct link_msg **msg,
                                     const TernResponse *header, size_t payload_size)
{
    return finish(link, msg, &header->base, payload_size);
}

/* ---- text ---- */

const char *frame_text(struct arena *arena, const ProtobufCBinaryData *bytes)
{
    if (bytes->len > 0 && memchr(bytes->data, 0, bytes->len))
        return NULL;
    char *out = arena_alloc(arena, bytes->len + 1);
    if (!out)
        return NULL;
    if (bytes->len > 0)
        memcpy(out, bytes->data, bytes->len);
    out[bytes->len] = 0;
    return out;
}
