/* A pull on its way, for pull.c and pull_checks.c. */
#ifndef BROKER_HANDLERS_PULL_INTERNAL_H
#define BROKER_HANDLERS_PULL_INTERNAL_H

#include "base/subscription.h"
#include "broker/guard.h"
#include "broker/handlers/handlers.h"
#include "broker/handlers/pull.h"

/* What a pull of an isolated group's retry topic has found out on its way. */
struct pull_retries {
    bool used;                         /* it is such a pull */
    uint32_t cohort;                   /* whose members were looked for last; 0: none yet */
    bool has_members;                  /* … and whether there are some */
    bool asked, wants_all;             /* of the topic below */
    struct subscription *subscription; /* a reference; NULL: it does not subscribe, or to all */
    char topic[TOPIC_NAME_MAX + 1];
};

/* Lives in its request's memory until the answer, but for the subscriptions. */
struct pull {
    struct broker *broker;
    struct rpc_request *request;
    const char *group, *topic, *client_id;
    struct group_view view; /* whose progress it moves */
    struct group_config group_config;
    struct subscription *subscription; /* a reference; NULL: all */
    struct pull_retries retries;
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

/* ---- pull_retries.c ---- */

/* After the view; before the first get. */
void pull_retries_begin(struct pull *pull);
/* Whether this member gets the retry. @thread any */
MUST_CHECK bool pull_retries_match(struct pull *pull, const struct record *record);
void pull_retries_end(struct pull *pull);

#endif
