/*
 * The cold lane: a few threads for requests that may wait for the disk (messages that are not in
 * the page cache, queries by key). Transport threads hand over and go on.
 */
#ifndef BROKER_COLD_LANE_H
#define BROKER_COLD_LANE_H

#include "broker/request_table.h"

struct cold_lane;

enum { COLD_THREADS = 2, COLD_QUEUE_MAX = 10000 };

MUST_CHECK enum tern_code cold_lane_create(struct broker *broker, const struct env *env,
                                           struct cold_lane **out);
/* Runs what is queued, then stops. */
void cold_lane_destroy(struct cold_lane *lane);
/* Runs handler(broker, request) soon; beyond COLD_QUEUE_MAX the request is answered SYSTEM_BUSY.
 * @thread any */
void cold_lane_submit(struct cold_lane *lane, struct rpc_request *request, request_handler handler);
uint32_t cold_lane_depth(struct cold_lane *lane);

#endif
