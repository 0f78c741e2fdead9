/* Frames: what is built comes back, and what is hostile does not get in. */
#include "tests/unit/rpc/rpc_world.h"

#include "base/arena.h"
#include "base/bytes.h"
#include "base/rng.h"

enum { BUDGET = 1 << 20 };

static struct world world;
static struct arena arena;
static struct tern_error err;

static int set_up(void **state)
{
    (void)state;
    world_init(&world);
    arena_init(&arena, BUDGET);
    memset(&err, 0, sizeof err);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_fini(&arena);
    world_fini(&world);
    return 0;
}

static struct link_msg *build(const TernRequest *header, const void *payload, size_t size,
                              size_t cap)
{
    struct link_msg *msg;
    assert_ok(frame_reserve(world.link, cap, &msg));
    if (size > 0)
        memcpy(frame_payload(world.link, msg), payload, size);
    assert_ok(frame_finish_request(world.link, &msg, header, size));
    return msg;
}

static const TernRequest *unpack_bytes(const void *frame, size_t size)
{
    const uint8_t *payload;
    size_t payload_size;
    err.text[0] = 0;
    return frame_unpack_request(&arena, frame, size, &payload, &payload_size, &err);
}

/* A frame of this header, without payload. */
static const TernRequest *unpack_header(const void *header, size_t size)
{
    uint8_t *frame = malloc(size + 4);
    put_be32(frame, (uint32_t)size);
    memcpy(frame + 4, header, size);
    const TernRequest *request = unpack_bytes(frame, size + 4);
    free(frame);
    return request;
}

static void request_with_payload_comes_back(void **state)
{
    (void)state;
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    char payload[3000];
    memset(payload, 'p', sizeof payload);
    header.version = 1;
    header.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    header.send = &send;
    send.topic = frame_bytes("T\0x", 3);
    send.queue_id = -1;
    struct link_msg *msg = build(&header, payload, sizeof payload, 5000);
    const uint8_t *got;
    size_t size;
    const TernRequest *back = frame_unpack_request(
        &arena, link_msg_body(world.link, msg), link_msg_size(world.link, msg), &got, &size, &err);
    assert_non_null(back);
    assert_int_equal(back->body_case, TERN__WIRE__REQUEST__BODY_SEND);
    assert_int_equal(back->send->topic.len, 3);
    assert_memory_equal(back->send->topic.data, "T\0x", 3);
    assert_int_equal(back->send->queue_id, -1);
    assert_int_equal(size, sizeof payload);
    assert_memory_equal(got, payload, size);
    assert_true(link_msg_size(world.link, msg) < sizeof payload + 64);
    link_msg_free(world.link, msg);
}

static void header_above_the_headroom_comes_back(void **state)
{
    (void)state;
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    char properties[32767];
    memset(properties, 'q', sizeof properties);
    header.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    header.send = &send;
    for (size_t len = 400; len < sizeof properties; len += len < 600 ? 1 : 5000) {
        send.properties = frame_bytes(properties, len);
        struct link_msg *msg = build(&header, "body", 4, 4);
        const uint8_t *got;
        size_t size;
        arena_reset(&arena);
        const TernRequest *back =
            frame_unpack_request(&arena, link_msg_body(world.link, msg),
                                 link_msg_size(world.link, msg), &got, &size, &err);
        assert_non_null(back);
        assert_int_equal(back->send->properties.len, len);
        assert_int_equal(size, 4);
        assert_memory_equal(got, "body", 4);
        link_msg_free(world.link, msg);
    }
}

static void lying_lengths_are_refused(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 5, 0x7fffffff, 0x80000000u, 0xffffffffu};
    uint8_t frame[8] = {0};
    assert_null(unpack_bytes(frame, 0));
    assert_null(unpack_bytes(frame, 3));
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put_be32(frame, lengths[i]);
        assert_null(unpack_bytes(frame, 4));
        assert_int_equal(err.code, TERN_PROTOCOL);
    }
    put_be32(frame, 0);
    assert_non_null(unpack_bytes(frame, 4)); /* an empty header is a message without body */
}

static void nul_in_a_string_is_refused(void **state)
{
    (void)state; /* NN-10. pull (12) { expression (10) = "a\0b" } */
    static const uint8_t pull[] = {12 << 3 | 2, 5, 10 << 3 | 2, 3, 'a', 0, 'b'};
    static const uint8_t good[] = {12 << 3 | 2, 5, 10 << 3 | 2, 3, 'a', '|', 'b'};
    static const uint8_t name[] = {12 << 3 | 2, 5, 2 << 3 | 2, 3, 'a', 0, 'b'};
    assert_null(unpack_header(pull, sizeof pull));
    assert_int_equal(err.code, TERN_PROTOCOL);
    assert_string_equal(unpack_header(good, sizeof good)->pull->expression, "a|b");
    assert_int_equal(unpack_header(name, sizeof name)->pull->topic.len, 3);
}

static void cut_and_swollen_fields_are_refused(void **state)
{
    (void)state; /* NN-10: 2^29 elements announced, 2^63 bytes announced, cut varints */
    static const struct {
        uint8_t bytes[20];
        size_t size;
    } headers[] = {
        {{0xf2, 1, 0x80, 0x80, 0x80, 0x80, 2}, 7},
        {{0xf2, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, 11},
        {{0xf2, 1, 6, 0x0a, 0x80, 0x80, 0x80, 0x80, 2}, 9},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 11},
        {{0x08}, 1},
        {{0x08, 0x80}, 2},
        {{12 << 3 | 2, 5, 1}, 3},
        {{12 << 3 | 3, 12 << 3 | 4}, 2},
        {{0, 0}, 2},
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        assert_null(unpack_header(headers[i].bytes, headers[i].size));
}

static void many_empty_elements_end_at_the_budget(void **state)
{
    (void)state; /* heartbeat (30) { consumers (2) {} × 1,000,000 }: 2 bytes each on the wire */
    size_t inner = 2 * 1000000;
    uint8_t *header = malloc(inner + 8);
    const uint8_t head[] = {0xf2, 1, 0x80 | (inner & 0x7f), 0x80 | (inner >> 7 & 0x7f),
                            (uint8_t)(inner >> 14)};
    memcpy(header, head, sizeof head);
    for (size_t i = 0; i < inner; i += 2) {
        header[sizeof head + i] = 0x12;
        header[sizeof head + i + 1] = 0;
    }
    assert_null(unpack_header(header, inner + sizeof head));
    assert_int_equal(err.code, TERN_LIMIT);
    assert_true(arena.used_bytes <= BUDGET);
    free(header);
}

static void deep_nesting_is_not_followed(void **state)
{
    (void)state; /* NN-10: an unknown field that nests 50,000 times is skipped as bytes */
    size_t depth = 50000;
    uint8_t *header = calloc(1, depth * 4 + 8);
    size_t at = depth * 4 + 8;
    size_t inner = 0;
    for (size_t i = 0; i < depth && at >= 8; i++) {
        uint8_t head[4];
        size_t n = 0;
        head[n++] = 15 << 3 | 2; /* field 15 of Request does not exist */
        for (size_t left = inner; n < 4; left >>= 7) {
            head[n++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
            if (left <= 0x7f)
                break;
        }
        at -= n;
        memcpy(header + at, head, n);
        inner += n;
    }
    assert_non_null(unpack_header(header + at, inner));
    free(header);
}

static void mutated_frames_do_no_harm(void **state)
{
    (void)state;
    struct rng_seeded rng;
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__HeartbeatRequest heartbeat = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    Tern__Wire__ConsumerData data = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__Subscription *subscriptions[3] = {&subscription, &subscription, &subscription};
    Tern__Wire__ConsumerData *consumers[2] = {&data, &data};
    ProtobufCBinaryData groups[3] = {frame_bytes("g1", 2), frame_bytes("g2", 2),
                                     frame_bytes("", 0)};
    rng_seeded_init(&rng, 7);
    subscription.topic = frame_bytes("TopicTest", 9);
    subscription.expression = (char *)(uintptr_t) "TagA || TagB";
    data.group = frame_bytes("group", 5);
    data.n_subscriptions = 3;
    data.subscriptions = subscriptions;
    heartbeat.n_producer_groups = 3;
    heartbeat.producer_groups = groups;
    heartbeat.n_consumers = 2;
    heartbeat.consumers = consumers;
    heartbeat.language = (char *)(uintptr_t) "C";
    header.version = 1;
    header.body_case = TERN__WIRE__REQUEST__BODY_HEARTBEAT;
    header.heartbeat = &heartbeat;
    struct link_msg *msg = build(&header, "payload", 7, 7);
    size_t size = link_msg_size(world.link, msg);
    uint8_t *frame = malloc(size);
    unsigned accepted = 0;
    for (int i = 0; i < 20000; i++) {
        memcpy(frame, link_msg_body(world.link, msg), size);
        for (uint64_t n = 1 + rng_below(&rng.rng, 4); n > 0; n--)
            frame[rng_below(&rng.rng, size)] = (uint8_t)rng_next(&rng.rng);
        arena_reset(&arena);
        size_t cut = rng_below(&rng.rng, 4) == 0 ? rng_below(&rng.rng, size + 1) : size;
        uint8_t *exact = malloc(cut ? cut : 1); /* so that a read beyond is seen */
        memcpy(exact, frame, cut);
        accepted += unpack_bytes(exact, cut) != NULL;
        free(exact);
    }
    assert_in_range(accepted, 1, 19999);
    free(frame);
    link_msg_free(world.link, msg);
}

static void text_is_copied_and_nul_refused(void **state)
{
    (void)state;
    ProtobufCBinaryData good = frame_bytes("name", 4);
    ProtobufCBinaryData bad = frame_bytes("na\0me", 5);
    ProtobufCBinaryData empty = {.len = 0, .data = NULL};
    assert_string_equal(frame_text(&arena, &good), "name");
    assert_string_equal(frame_text(&arena, &empty), "");
    assert_null(frame_text(&arena, &bad));
}

static void every_code_goes_out_and_the_wires_come_back(void **state)
{
    (void)state;
    const ProtobufCEnumDescriptor *wire = &tern__wire__code__descriptor;
    for (unsigned code = 0; code < TERN_CODE_COUNT; code++) {
        int32_t out = wire_code_of((enum tern_code)code);
        assert_non_null(protobuf_c_enum_descriptor_get_value(wire, out));
        assert_true((out == 0) == (code == TERN_OK));
        /* what the receiver makes of it goes out the same way again */
        assert_int_equal(wire_code_of(wire_code_to(out)), out);
        if (code >= TERN_SYSTEM_ERROR)
            assert_int_equal(wire_code_to(out), code);
    }
    for (unsigned i = 0; i < wire->n_values; i++) {
        int32_t number = wire->values[i].value;
        enum tern_code code = wire_code_to(number);
        if (number == TERN__WIRE__CODE__VERSION_NOT_SUPPORTED)
            assert_int_equal(code, TERN_NOT_SUPPORTED);
        else
            assert_int_equal(wire_code_of(code), number);
    }
    assert_int_equal(wire_code_to(-1), TERN_SYSTEM_ERROR);
    assert_int_equal(wire_code_to(99999), TERN_SYSTEM_ERROR);
    assert_int_equal(wire_code_of(TERN_CODE_COUNT), TERN__WIRE__CODE__SYSTEM_ERROR);
    assert_int_equal(wire_code_of(TERN_INVALID), 300);
    assert_int_equal(wire_code_of(TERN_GROUP_NOT_EXIST), 26);
}

static void limits_follow_the_message_size(void **state)
{
    (void)state;
    assert_int_equal(frame_max_bytes(4 << 20), FRAME_PREFIX_BYTES + FRAME_HEADER_MAX);
    assert_true(frame_max_bytes(64 << 20) > (64 << 20) + 32767 + 91 + 255);
}

int main(void)
{
#define TEST_(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST_(request_with_payload_comes_back),
        TEST_(header_above_the_headroom_comes_back),
        TEST_(lying_lengths_are_refused),
        TEST_(nul_in_a_string_is_refused),
        TEST_(cut_and_swollen_fields_are_refused),
        TEST_(many_empty_elements_end_at_the_budget),
        TEST_(deep_nesting_is_not_followed),
        TEST_(mutated_frames_do_no_harm),
        TEST_(text_is_copied_and_nul_refused),
        TEST_(every_code_goes_out_and_the_wires_come_back),
        TEST_(limits_follow_the_message_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
