/* Reading and changing order configurations at the nameservers. */
#ifndef MQADMIN_ORDER_CONF_EDIT_H
#define MQADMIN_ORDER_CONF_EDIT_H

#include "tools/mqadmin/command.h"

/* malloc'ed. TERN_QUERY_NOT_FOUND: the topic has none. */
MUST_CHECK enum tern_code order_conf_get(struct admin *admin, const char *topic, char **out,
                                         struct tern_error *err);
/* At every nameserver. TERN_INVALID: it is none. */
MUST_CHECK enum tern_code order_conf_put(struct admin *admin, const char *topic, const char *conf,
                                         struct tern_error *err);
/*
 * `before` (NULL: none) with these brokers' queues changed, or added behind. malloc'ed; NULL:
 * without memory, or too long.
 */
char *order_conf_merge(const char *before, const char *const *names, size_t count, int64_t queues);

#endif
