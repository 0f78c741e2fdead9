/*
 * Configuration that changes while the broker runs: checked like at the start, all keys of a
 * request or none, in effect when the call returns. Nothing is written to a file: the next start
 * reads the broker's own again.
 */
#ifndef BROKER_LIVE_CONFIG_H
#define BROKER_LIVE_CONFIG_H

#include "broker/broker_config.h"
#include "broker/store/store.h"

struct broker;

/* From broker.config; before anything reads broker.live. */
void live_config_init(struct broker *broker);
void live_config_fini(struct broker *broker);
/* The store's limits that a configuration means; a pull's answer is kept within a frame. */
void live_config_limits(const struct broker *broker, const struct broker_config *config,
                        struct store_limits *out);
/* The configuration in effect. @thread any */
void live_config_copy(struct broker *broker, struct broker_config *out);

struct config_assignment {
    const char *key, *value;
};
enum { CONFIG_ASSIGNMENTS_MAX = 64 };
/*
 * TERN_INVALID, nothing changed: a key that is unknown or not live, a value out of its range, keys
 * that do not go together. before and after (may be NULL) receive the whole configurations.
 * @thread the lane for changes, one at a time
 */
MUST_CHECK enum tern_code live_config_change(struct broker *broker,
                                             const struct config_assignment *list, size_t count,
                                             struct broker_config *before,
                                             struct broker_config *after, struct tern_error *err);

#endif
