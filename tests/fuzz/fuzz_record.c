/*
 * Records as they come from the wire and from a damaged disk. A whole one must lie within its
 * bytes, and encoding its fields again must give the same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/props.h"
#include "base/record.h"
#include "tests/fuzz/fuzz.h"

static void walk_props(const struct record *record)
{
    struct slice name, value;
    size_t pairs = 0;
    for (size_t cursor = 0; props_next(record->props, record->props_len, &cursor, &name, &value);
         pairs++) {
        ENSURE(name.ptr >= record->props &&
               value.ptr + value.len <= record->props + record->props_len);
        ENSURE(name.len > 0 && value.len > 0);
    }
    ENSURE(pairs <= record->props_len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct record record;
    if (record_parse(data, size, 1 << 20, false, &record) != RECORD_WHOLE)
        return 0;
    ENSURE(record.total_size <= size);
    ENSURE(record.body >= data && record.body + record.body_len <= data + size);
    walk_props(&record);
    uint8_t *again = malloc(record.total_size);
    ENSURE(again != NULL);
    ENSURE(record_encode(again, record.total_size, &record) == record.total_size);
    record_stamp_crc(again, record.body_crc); /* the only field that encoding does not take over */
    ENSURE(!memcmp(again, data, record.total_size));
    free(again);
    return 0;
}
