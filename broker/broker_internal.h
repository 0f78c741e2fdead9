/*
 * What the broker is made of. Only the daemon's own files (broker/ and broker/handlers/) include
 * this.
 */
#ifndef BROKER_INTERNAL_H
#define BROKER_INTERNAL_H

#include "base/lock.h"
#include "base/metrics.h"
#include "base/sched.h"
#include "broker/broker.h"
#include "broker/broker_config.h"
#include "broker/events.h"
#include "broker/groups.h"
#include "broker/members.h"
#include "broker/offsets.h"
#include "broker/pull_stats.h"
#include "broker/rates.h"
#include "broker/request_table.h"
#include "broker/stages.h"
#include "broker/store/store.h"
#include "broker/topics.h"
#include "rpc/client.h"
#include "rpc/server.h"

/*
 * Keys that updateBrokerConfig changes (rows marked live): whoever uses them reads them here, never
 * in broker.config, which stays as it was at the start. The store, the groups and the log are told.
 */
struct live_config {
    _Atomic int64_t broker_permission, sync_flush_timeout_ms, short_polling_ms;
    _Atomic int64_t flush_offset_interval_ms, retention_ms;
    _Atomic bool long_polling_enable;
    struct lock lock;
    struct broker_config config;                  /* under lock: what is in effect */
    _Atomic bool changed[BROKER_CONFIG_ROWS_MAX]; /* by row: since the start */
};

struct ack_wait;
struct admin_lane;
struct cold_lane;
struct ha;
struct long_poll;
struct queue_locks;
struct registrar;
struct schedule;
struct set_tables;
struct subscription_cache;
struct tx;

struct broker {
    struct env env;              /* copied */
    struct link *link;           /* borrowed */
    struct broker_config config; /* as it was at the start */
    struct live_config live;
    struct host store_host;                 /* stamped into records: the advertised address */
    char address[CONFIG_STRING_BYTES + 16]; /* host:port that clients use */
    int64_t started_ms;                     /* wall clock */
    int64_t started_ns;                     /* monotonic */
    uint8_t store_uuid[16];                 /* identifies the store to nameservers and peers */
    bool recovered_unclean;                 /* the store, at start */
    _Atomic bool stopping;

    struct store *store;
    struct topics *topics;
    struct groups *groups;
    struct offsets *offsets;
    struct members *members;
    struct subscription_cache *subscriptions; /* compiled */
    struct events *events;
    struct pull_stats *pull_stats;
    struct queue_locks *locks;
    struct set_tables *set_tables;
    struct ack_wait *acks;    /* sends, by physical offset */
    struct ack_wait *commits; /* commits, by change number */
    struct long_poll *polls;
    struct cold_lane *cold;
    struct tx *tx; /* transactions */
    struct admin_lane *admin;
    struct schedule *schedule; /* delayed messages */
    struct registrar *registrar;
    struct rpc_server *server;
    struct ha *_Atomic ha; /* set while the store already runs; NULL only before and in tests */
    struct latch opened;   /* set when a master is open for writes the first time */
    _Atomic bool opened_set;
    struct task *housekeeper;

    struct request_stats request_stats[REQUEST_KINDS];
    _Atomic uint64_t flush_timeouts, replica_timeouts, no_replica;
    _Atomic uint64_t expression_changes, subscription_differences;
    int64_t next_persist_ns; /* the housekeeper's */
    struct rates rates;
    struct stages stages;
    _Atomic uint64_t retries_stored, dead_letters; /* messages sent back */
};

/* Whether this broker takes writes; when not, sets the code and text that refuse them. */
bool broker_writable(struct broker *broker, enum tern_code *code, char *text, size_t size);

/* broker_store.c: opens and recovers the store, with those there whom it tells. @blocks on the disk
 */
MUST_CHECK enum tern_code broker_open_store(struct broker *broker, struct tern_error *err);

#endif
