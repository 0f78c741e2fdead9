/*
 * RocketMQ's order configuration of a topic, "broker-a:4;broker-b:4": the queues that keyed sends
 * choose from, whether their brokers are there or not, so that no key moves when one is away. Kept
 * by the nameservers in the KV namespace ORDER_TOPIC_CONFIG, given to producers with the route.
 */
#ifndef BASE_ORDER_CONF_H
#define BASE_ORDER_CONF_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/names.h"

#define ORDER_CONF_NAMESPACE "ORDER_TOPIC_CONFIG"

enum {
    ORDER_CONF_BROKERS_MAX = 1024,
    ORDER_CONF_QUEUES_MAX = 65536,      /* of all brokers */
    ORDER_CONF_TEXT_MAX = 64 * 1024 - 1 /* bytes; a KV value */
};

struct order_conf_row {
    char broker[BROKER_NAME_MAX + 1];
    int32_t queues; /* 1 or more: ids 0 to queues - 1 */
};

/*
 * The rows in their order, malloc'ed; a ';' at the end is allowed, names are checked and come once.
 * TERN_INVALID says what is wrong where; TERN_NO_MEMORY. *out is NULL then. @thread any
 */
MUST_CHECK enum tern_code order_conf_parse(const char *text, size_t len,
                                           struct order_conf_row **out, size_t *count,
                                           struct tern_error *err);

/* Whether it parses. */
MUST_CHECK enum tern_code order_conf_check(const char *text, struct tern_error *err);

#endif
