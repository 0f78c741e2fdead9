/* Payloads of pull answers as the client library decodes them. */
#include "client/message_internal.h"
#include "tests/fuzz/fuzz.h"

enum { MESSAGES_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tern_message *messages[MESSAGES_MAX];
    struct tern_error err;
    size_t count = 0;
    enum tern_code code =
        message_decode_all(NULL, data, size, "broker-a", messages, MESSAGES_MAX, &count, &err);
    ENSURE(code == TERN_OK || code == TERN_CORRUPT || code == TERN_NO_MEMORY || code == TERN_LIMIT);
    ENSURE(count <= MESSAGES_MAX);
    for (size_t i = 0; i < count; i++) {
        size_t body_size;
        const char *name, *value;
        (void)tern_message_body(messages[i], &body_size);
        (void)tern_message_tag(messages[i]);
        for (size_t j = 0; tern_message_property_at(messages[i], j, &name, &value); j++)
            ENSURE(name != NULL && value != NULL);
        tern_message_unref(messages[i]);
    }
    return 0;
}
