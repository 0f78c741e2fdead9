/*
 * The lane for changes of topics and groups: a task that applies a batch of requests in memory,
 * makes the tables durable once, registers with the nameservers once, and then answers all of them.
 * Nothing is answered before it is durable; when the disk refuses, the batch is taken back and told
 * so.
 */
#ifndef BROKER_ADMIN_LANE_H
#define BROKER_ADMIN_LANE_H

#include "broker/request_table.h"
#include "rpc/server.h"

struct admin_lane;
struct broker;

/*
 * Applies one request in memory. TERN_OK: it will be answered with success after the persist (by
 * `answer` when it is not NULL, else with an empty success). Other codes: answered with *err at
 * once. @thread lane
 */
typedef enum tern_code (*admin_apply_fn)(struct broker *broker, struct rpc_request *request,
                                         struct tern_error *err);
typedef void (*admin_answer_fn)(struct broker *broker, struct rpc_request *request);

enum { ADMIN_QUEUE_MAX = 10000 };

MUST_CHECK enum tern_code admin_lane_create(struct broker *broker, struct admin_lane **out);
/* Finishes what is queued. */
void admin_lane_destroy(struct admin_lane *lane);
/*
 * Takes the request; beyond ADMIN_QUEUE_MAX it is answered SYSTEM_BUSY, before the lane exists
 * (NULL) SERVICE_NOT_AVAILABLE. @thread any
 */
void admin_lane_submit(struct admin_lane *lane, struct rpc_request *request, admin_apply_fn apply,
                       admin_answer_fn answer);
/*
 * What cannot be taken back: runs when the change is durable, before the nameservers and the
 * answer. The request is then answered with success, or with the settling's error. @thread lane
 */
typedef enum tern_code (*admin_settle_fn)(struct broker *broker, struct rpc_request *request,
                                          struct tern_error *err);
/* Like admin_lane_submit; nothing that came later is applied before it is settled. */
void admin_lane_submit_settled(struct admin_lane *lane, struct rpc_request *request,
                               admin_apply_fn apply, admin_settle_fn settle);
/* Both: `answer` as in admin_lane_submit() when the settling succeeded. */
void admin_lane_submit_answered(struct admin_lane *lane, struct rpc_request *request,
                                admin_apply_fn apply, admin_settle_fn settle,
                                admin_answer_fn answer);
/*
 * Runs a handler that may wait for the disk and answers by itself, on a task of its own: it waits
 * for no change and no nameserver. Limits as admin_lane_submit. @thread any
 */
void admin_lane_run(struct admin_lane *lane, struct rpc_request *request, request_handler handler);
/* Something (an auto-created group) wants to be persisted soon. NULL allowed. @thread any */
void admin_lane_poke(struct admin_lane *lane);

#endif
