/* The small texts: expressions, names, JSON as RocketMQ writes it, ids. The first byte chooses. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "base/record.h"
#include "base/subscription.h"
#include "tests/fuzz/fuzz.h"

static void try_subscription(const uint8_t *data, size_t size)
{
    struct subscription *sub;
    struct tern_error err;
    if (subscription_parse(data, size, &sub, &err) != TERN_OK)
        return;
    ENSURE(!subscription_match_tag(sub, data, size) ||
           subscription_match_code(sub, tags_code(data, size)));
    subscription_free(sub);
}

static void try_json(const uint8_t *data, size_t size)
{
    json_t *json;
    struct tern_error err;
    if (json_parse_fastjson((const char *)data, size, &json, &err) == TERN_OK)
        json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tern_error err;
    struct host host;
    int64_t phys_off;
    if (size < 1 || size > 1 << 16)
        return 0;
    char *text = malloc(size);
    ENSURE(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    switch (data[0] % 4) {
    case 0:
        try_subscription(data + 1, size - 1);
        break;
    case 1:
        try_json((const uint8_t *)text, size - 1);
        break;
    case 2:
        if (topic_name_check(data + 1, size - 1, &err) == TERN_OK)
            ENSURE(!memchr(data + 1, '/', size - 1) && utf8_valid(data + 1, size - 1));
        break;
    default:
        if (message_id_parse(text, &host, &phys_off) == TERN_OK)
            ENSURE(phys_off >= 0);
        if (host_parse(text, &host) == TERN_OK)
            ENSURE(host.port <= 65535);
    }
    free(text);
    return 0;
}
