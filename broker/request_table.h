/*
 * The one table of requests: which handler serves which request, and how often and how fast.
 * mqadmin brokerStatus and the reference page are printed from it.
 */
#ifndef BROKER_REQUEST_TABLE_H
#define BROKER_REQUEST_TABLE_H

#include "base/metrics.h"
#include "rpc/server.h"

struct broker;

typedef void (*request_handler)(struct broker *broker, struct rpc_request *request);

struct request_row {
    Tern__Wire__Request__BodyCase body;
    const char *name; /* the field's name in ternmq.proto */
    request_handler handler;
    const char *help;
};

enum { REQUEST_KINDS = 64 };

struct request_stats {
    _Atomic uint64_t count;
    struct histogram *latency_ns; /* time in the handler's first run, on the transport's thread */
};

size_t request_table(const struct request_row **rows);
/* Row index of a body case, -1 when this broker does not serve it. */
int request_table_find(Tern__Wire__Request__BodyCase body);
/* rpc_server's on_request: finds the row, counts, runs the handler. @thread nng */
void request_dispatch(void *broker, struct rpc_request *request);

#endif
