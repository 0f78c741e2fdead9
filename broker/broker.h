/*
 * A broker: the store, the tables and the request handlers of one brokerName and id, on one
 * address. Passive: everything it needs of the world comes with the env and the link, so a test can
 * run several in one process on virtual time.
 */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

#include "base/env.h"
#include "base/error.h"
#include "rpc/link.h"

struct broker;
struct broker_config;

/* env and link are borrowed and outlive the broker; config is copied. No file is touched yet. */
MUST_CHECK enum tern_code broker_create(const struct env *env, struct link *link,
                                        const struct broker_config *config, struct broker **out,
                                        struct tern_error *err);
/* Recovers the store, listens, registers. On failure the broker can only be destroyed. @blocks on
 * the disk */
MUST_CHECK enum tern_code broker_start(struct broker *broker, struct tern_error *err);
/* Unregisters, stops taking requests, answers the parked, persists, flushes. Errors are logged and
 * returned. */
enum tern_code broker_stop(struct broker *broker, struct tern_error *err);
void broker_destroy(struct broker *broker);
/* "host:port" that clients use; the port is the bound one. */
const char *broker_address(const struct broker *broker);

#endif
