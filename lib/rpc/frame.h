/*
 * Frames: header length 4 bytes big-endian | protobuf header | payload. Built in one buffer:
 * headroom for the header is left in front of the payload, and what is not needed of it is trimmed
 * off.
 */
#ifndef RPC_FRAME_H
#define RPC_FRAME_H

#include "base/arena.h"
#include "rpc/link.h"
#include "proto/ternmq.pb-c.h"

typedef Tern__Wire__Request TernRequest;
typedef Tern__Wire__Response TernResponse;

enum {
    FRAME_PREFIX_BYTES = 4,
    FRAME_HEADER_MAX = 16 << 20, /* route and topic tables can be large */
    FRAME_HEADROOM_BYTES = 512,  /* enough for the headers of hot requests */
    PROTOCOL_VERSION = 1
};

/* What a frame may hold: body, properties and record envelope above maxMessageSize. */
size_t frame_max_bytes(int64_t max_message_bytes);

/* Unpack into memory of the arena; NULL with a text when malformed or over budget. Borrow from
 * `msg`. */
TernRequest *frame_unpack_request(struct arena *arena, const uint8_t *frame, size_t size,
                                  const uint8_t **payload, size_t *payload_size,
                                  struct tern_error *err);
TernResponse *frame_unpack_response(struct arena *arena, const uint8_t *frame, size_t size,
                                    const uint8_t **payload, size_t *payload_size,
                                    struct tern_error *err);

/*
 * A frame under construction: reserve the payload, fill it, then finish with the header.
 * frame_reserve(): room for payload_cap bytes behind FRAME_HEADROOM_BYTES; frame_payload() is where
 * to write. frame_finish_*(): packs the header in front of payload_size bytes (≤ cap); a header
 * larger than the headroom costs one copy. On failure the message is freed.
 */
MUST_CHECK enum tern_code frame_reserve(struct link *link, size_t payload_cap,
                                        struct link_msg **out);
uint8_t *frame_payload(struct link *link, struct link_msg *msg);
MUST_CHECK enum tern_code frame_finish_request(struct link *link, struct link_msg **msg,
                                               const TernRequest *header, size_t payload_size);
MUST_CHECK enum tern_code frame_finish_response(struct link *link, struct link_msg **msg,
                                                const TernResponse *header, size_t payload_size);

/* tern_code <-> Response.code: the one place where they are mapped. */
int32_t wire_code_of(enum tern_code code);
enum tern_code wire_code_to(int32_t wire_code);

/* A `bytes` field as a bounded C string in the arena; NULL when it holds NUL or memory is short. */
const char *frame_text(struct arena *arena, const ProtobufCBinaryData *bytes);
/* Borrows a C string as a bytes field. */
static inline ProtobufCBinaryData frame_bytes(const char *text, size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)text};
}

#endif
