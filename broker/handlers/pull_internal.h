/* A pull on its way, for pull.c and pull_checks.c. */
#ifndef BROKER_HANDLERS_PULL_INTERNAL_H
#define BROKER_HANDLERS_PULL_INTERNAL_H

#include "base/subscription.h"
#include "broker/guard.h"
#include "broker/handlers/handlers.h"
#include "broker/handlers/pull.h"

/* Lives in its request's memory until the answer, but for the subscription. */
struct pull {
    struct broker *broker;
    struct rpc_request *request;
    const char *group, *topic, *client_id;
    struct group_view view; /* whose progress it moves */
    struct group_config group_config;
    struct subscription *subscription; /* a reference; NULL: all */
    struct store_filter filter;
    int64_t offset;     /* where to look: the one asked for, moved over what was looked at */
    uint32_t looked_at; /* while it was parked: units from there that do not match */
    uint64_t resets;    /* long_poll_resets() when it came */
    bool may_park;
    bool cold; /* its messages were fetched by the cold lane */
    struct parked_pull parked;
};

/* Answers with the failure and ends the pull. */
void pull_refuse(struct pull *pull, enum tern_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* ---- pull_checks.c; false: refused, answered ---- */

/* Of the request's raw names, and fills group_config. */
MUST_CHECK bool pull_check_names(struct pull *pull);
/* After the names were taken; fills view. */
MUST_CHECK bool pull_check_view(struct pull *pull);
/* After the names were taken; fills subscription. */
MUST_CHECK bool pull_check_subscription(struct pull *pull);

#endif
