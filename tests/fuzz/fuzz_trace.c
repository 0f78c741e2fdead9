/* Trace records as mqadmin decodes them. */
#include "base/error.h"
#include "client/trace_codec.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trace_decoded out;
    static char again[sizeof(struct trace_decoded)];
    size_t cursor = 0, skipped = 0;
    while (trace_decode((const char *)data, size, &cursor, &out, &skipped))
        ENSURE(trace_encode(&out.record, again, sizeof again) > 0);
    ENSURE(cursor == size);
    return 0;
}
