/* Compressed bodies: the first byte chooses the type, the rest is the stream. */
#include "client/compress.h"

#include <stdlib.h>

#include "base/record.h"
#include "tests/fuzz/fuzz.h"

enum { BODY_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *body;
    size_t body_len;
    struct tern_error err;
    if (size == 0)
        return 0;
    uint32_t sys_flag = SYS_COMPRESSED | ((data[0] & 7u) << 8);
    enum tern_code code =
        decompress_body(sys_flag, data + 1, size - 1, BODY_MAX, &body, &body_len, &err);
    ENSURE((code == TERN_OK) == (body != NULL));
    ENSURE(body_len <= BODY_MAX);
    free(body);
    return 0;
}
