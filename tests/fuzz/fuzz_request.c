/* Frames as a server gets them: whatever comes, memory stays within the budget and the payload in
 * the frame. */
#include "rpc/frame.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct tern_error err;
    const uint8_t *payload = NULL;
    size_t payload_size = 0;
    arena_init(&arena, 1 << 20);
    const TernRequest *request =
        frame_unpack_request(&arena, data, size, &payload, &payload_size, &err);
    if (request) {
        ENSURE(payload_size <= size);
        ENSURE(payload_size == 0 || (payload >= data && payload + payload_size == data + size));
        (void)frame_text(&arena, &request->client_id);
    }
    ENSURE(arena.used_bytes <= arena.budget_bytes);
    arena_fini(&arena);
    return 0;
}
