/* Frames as a client gets them. */
#include "rpc/frame.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct tern_error err;
    const uint8_t *payload = NULL;
    size_t payload_size = 0;
    arena_init(&arena, 1 << 20);
    const TernResponse *response =
        frame_unpack_response(&arena, data, size, &payload, &payload_size, &err);
    if (response) {
        ENSURE(payload_size <= size);
        ENSURE(tern_code_text(wire_code_to(response->code)) != NULL);
    }
    ENSURE(arena.used_bytes <= arena.budget_bytes);
    arena_fini(&arena);
    return 0;
}
