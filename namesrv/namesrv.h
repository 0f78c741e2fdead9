/*
 * The nameserver as a whole: tables, KV configuration, one served address. Passive: it is given its
 * world (clocks, files, tasks) and its link, so that main.c runs it on NNG and a simulation on
 * virtual time.
 *
 *   namesrv_create ► namesrv_start ► (serves) ► namesrv_stop ► namesrv_destroy
 *
 * RocketMQ: NamesrvController. Nameservers do not know of each other.
 */
#ifndef NAMESRV_NAMESRV_H
#define NAMESRV_NAMESRV_H

#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "namesrv/namesrv_config.h"

struct link;
struct namesrv;

/* What it holds and did since its creation. */
struct namesrv_stats {
    uint64_t registrations, registrations_refused;
    uint64_t brokers_expired, brokers_disconnected, brokers_unregistered;
    uint64_t routes, routes_missing;
    uint64_t kv_changes, kv_changes_failed;
    uint64_t requests_unknown;
    uint64_t brokers, sets, topics, kv_entries; /* now */
};

/* env and link are borrowed and outlive it; config is copied. */
MUST_CHECK enum tern_code namesrv_create(const struct env *env, struct link *link,
                                         const struct namesrv_config *config, struct namesrv **out,
                                         struct tern_error *err);
/*
 * Reads the KV file, then serves. TERN_CORRUPT: no generation of the KV file is good; TERN_IN_USE:
 * the address is taken; TERN_INVALID: it is none of this machine's. After a failure it can only be
 * destroyed. @thread not-link
 */
MUST_CHECK enum tern_code namesrv_start(struct namesrv *ns, struct tern_error *err);
/* The port that is served, between start and stop. */
uint16_t namesrv_port(const struct namesrv *ns);
/* Takes no more requests, answers what it holds; returns when no thread of it runs. @thread
 * not-link */
void namesrv_stop(struct namesrv *ns);
/* Stopped or never started. NULL allowed. */
void namesrv_destroy(struct namesrv *ns);
/* @thread any */
void namesrv_stats(struct namesrv *ns, struct namesrv_stats *out);

#endif
