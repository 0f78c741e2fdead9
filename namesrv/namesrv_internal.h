/*
 * Between namesrv.c (assembly, tasks), request_table.c and the handlers.
 *
 * Who may touch what: `table` under `lock`; the queue of KV changes under `kv_lock`; `kv` guards
 * itself. No two of these locks are ever held together, and none while answering, logging or
 * writing.
 */
#ifndef NAMESRV_INTERNAL_H
#define NAMESRV_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/metrics.h"
#include "namesrv/kv_config.h"
#include "namesrv/namesrv.h"
#include "namesrv/route_table.h"
#include "rpc/server.h"

enum {
    NAMESRV_KV_QUEUE_MAX = 256, /* KV changes waiting for the disk; more get SYSTEM_BUSY */
    NAMESRV_KV_BATCH_MAX = 64,  /* changes per write of the file */
    NAMESRV_ARENA_BYTES =
        64 << 20, /* per request: the largest topic table and what is made of it */
    NAMESRV_REQUESTS_MAX = 2048,
    NAMESRV_REQUESTS_PER_PEER_MAX = 64,
    NAMESRV_REPLY_TIMEOUT_MS = 10000,
    NAMESRV_IDLE_CLOSE_MS = 120000 /* clients and brokers ask every 30 s */
};

/* Counters of struct namesrv_stats that only grow. */
struct namesrv_counters {
    _Atomic uint64_t registrations, registrations_refused;
    _Atomic uint64_t brokers_expired, brokers_disconnected, brokers_unregistered;
    _Atomic uint64_t routes, routes_missing;
    _Atomic uint64_t kv_changes, kv_changes_failed;
    _Atomic uint64_t requests_unknown;
};

struct namesrv {
    const struct env *env; /* borrowed */
    struct link *link;     /* borrowed */
    struct namesrv_config config;
    struct rpc_server *server; /* from start to stop */
    struct task *expiry_task, *kv_task;
    struct namesrv_counters counters;

    struct lock lock;
    struct route_table table; /* lock */

    struct kv_config *kv;
    struct lock kv_lock;
    struct rpc_request *kv_first, *kv_last;          /* kv_lock; oldest first, linked by next */
    uint32_t kv_waiting;                             /* kv_lock */
    bool kv_closed;                                  /* kv_lock: no change is taken any more */
    struct kv_change kv_batch[NAMESRV_KV_BATCH_MAX]; /* the KV task's, while it runs a step */
};

/* rpc_server's callback: finds the request's row and runs it. @thread nng */
void namesrv_on_request(void *arg, struct rpc_request *request);

/* One row's function: answers now or hands the request to the KV queue. @thread nng @locks none */
typedef void (*namesrv_handler_fn)(struct namesrv *ns, struct rpc_request *request);

void handle_register_broker(struct namesrv *ns, struct rpc_request *request);
void handle_unregister_broker(struct namesrv *ns, struct rpc_request *request);
void handle_wipe_write_perm(struct namesrv *ns, struct rpc_request *request);
void handle_delete_topic_route(struct namesrv *ns, struct rpc_request *request);
void handle_route(struct namesrv *ns, struct rpc_request *request);
void handle_cluster_info(struct namesrv *ns, struct rpc_request *request);
void handle_topic_list(struct namesrv *ns, struct rpc_request *request);
void handle_config(struct namesrv *ns, struct rpc_request *request);
void handle_kv(struct namesrv *ns, struct rpc_request *request);

/*
 * A checked registration from its request, in the request's memory; NULL after having set err.
 * TERN_INVALID names the field; TERN_LIMIT, TERN_NO_MEMORY.
 */
struct route_registration *registration_from_request(struct rpc_request *request,
                                                     enum tern_code *code, struct tern_error *err);
/* A name of the wire as a terminated text in the request's memory; NULL after having set code and
 * err. */
typedef enum tern_code (*name_check_fn)(const void *name, size_t len, struct tern_error *err);
const char *request_name(struct rpc_request *request, const ProtobufCBinaryData *bytes,
                         name_check_fn check, enum tern_code *code, struct tern_error *err);

/* A broker left: one line in the log. @locks none */
void namesrv_log_removed(struct namesrv *ns, const struct route_removed *removed,
                         const char *reason);

/* Step of the KV task: makes the waiting changes durable and answers them. @thread its own */
int64_t kv_queue_step(void *arg, int64_t now_ns);
/* Answers whatever still waits with "not done", and takes no more. @thread not-link */
void kv_queue_close(struct namesrv *ns);

#endif
