/*
 * Stands in for the rpc server: requests are made by the test, answers are packed, kept and
 * counted, so that a test sees exactly what would go over the wire.
 */
#ifndef TESTS_UNIT_BROKER_FAKE_RPC_H
#define TESTS_UNIT_BROKER_FAKE_RPC_H

#include "rpc/server.h"

struct fake_request {
    struct rpc_request pub; /* first */
    TernRequest header;     /* filled by the test */
    struct arena arena;
    int answers;            /* a second one aborts the test */
    TernResponse *response; /* as unpacked from the packed answer */
    int64_t answered_ns;
    struct clock *clock;
};

/* body_case and the body are the test's to set; client_id is borrowed. */
struct fake_request *fake_request_new(struct clock *clock, const char *client_id, uint64_t peer_id,
                                      int64_t timeout_ms);
/* Must have been answered. */
void fake_request_free(struct fake_request *request);
/* The wire code of its answer, -1 when there is none yet. */
int fake_request_code(const struct fake_request *request);

#endif
