/*
 * Whose retries a member of an isolated group gets (docs/subscriptions.md). All cohorts share the
 * group's retry topic, each with a progress of its own, so that each reads all of it; here what is
 * not its own is left out:
 *
 *   RETRY_COHORT is its own ─────────────────────────────────────────────► it gets it
 *   another cohort's, which has members ─────────────────────────────────► that gets it
 *   one that has none (they changed what they ask for, or are gone),
 *   or not marked (the group was not isolated, the sender not known) ────► whoever subscribes to it
 *
 * Why nothing is lost: a retry is left out only by who did not ask for the message, or by who has a
 * delivery of its own of it, since each cohort reads everything that it asked for. Members that
 * change cohorts after that begin where the group stood, or at the retry topic's start.
 *
 * In doubt (no memory, the client not known any more) it is delivered.
 *
 * Threads: who runs the pull, one at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/props.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/pull_internal.h"
#include "broker/retry.h"

enum { COHORT_DIGITS = COHORT_SUFFIX_BYTES - 1 };

void pull_retries_begin(struct pull *pull)
{
    const char *group = retry_group_of(pull->topic);
    pull->retries.used = pull->view.cohort != 0 && group && !strcmp(group, pull->group);
}

void pull_retries_end(struct pull *pull)
{
    subscription_free(pull->retries.subscription);
    pull->retries.subscription = NULL;
    pull->retries.asked = false;
}

/* The record's mark; 0: none. */
static uint32_t cohort_of(const struct record *record)
{
    struct slice mark;
    char digits[COHORT_DIGITS + 1];
    if (!props_get(record->props, record->props_len, PROP_RETRY_COHORT, &mark) ||
        mark.len != COHORT_DIGITS)
        return 0;
    memcpy(digits, mark.ptr, COHORT_DIGITS);
    digits[COHORT_DIGITS] = 0;
    if (strspn(digits, "0123456789abcdef") != COHORT_DIGITS)
        return 0;
    return (uint32_t)strtoul(digits, NULL, 16);
}

static bool has_members(struct pull *pull, uint32_t cohort)
{
    struct pull_retries *retries = &pull->retries;
    if (retries->cohort != cohort) {
        const char **ids;
        size_t count;
        if (members_of_cohort(pull->broker->members, pull->group, cohort, &ids, &count) != TERN_OK)
            return false;
        free(ids);
        retries->cohort = cohort;
        retries->has_members = count > 0;
    }
    return retries->has_members;
}

/* Fills what the client wants of the topic. */
static void ask_member(struct pull *pull, const struct slice *topic)
{
    struct pull_retries *retries = &pull->retries;
    struct member_view view;
    uint32_t cohort;
    char *expression = NULL;
    pull_retries_end(pull);
    memcpy(retries->topic, topic->ptr, topic->len);
    retries->topic[topic->len] = 0;
    enum member_lookup found = members_subscription(
        pull->broker->members, pull->group, pull->client_id, retries->topic, &view, &expression);
    retries->wants_all =
        found != MEMBER_FOUND &&
        !members_cohort(pull->broker->members, pull->group, pull->client_id, &cohort);
    if (found == MEMBER_FOUND &&
        broker_compile(pull->broker, view.expression_type, expression ? expression : "*",
                       &retries->subscription, NULL) != TERN_OK)
        retries->subscription = NULL;
    if (found == MEMBER_FOUND && !retries->subscription)
        retries->wants_all = true;
    retries->asked = true;
    free(expression);
}

static bool subscribes(struct pull *pull, const struct record *record)
{
    struct pull_retries *retries = &pull->retries;
    struct slice topic;
    if (!props_get(record->props, record->props_len, PROP_RETRY_TOPIC, &topic) ||
        topic.len > TOPIC_NAME_MAX)
        return true; /* sent there by hand */
    if (!retries->asked || strlen(retries->topic) != topic.len ||
        memcmp(retries->topic, topic.ptr, topic.len) != 0)
        ask_member(pull, &topic);
    if (retries->subscription)
        return subscription_match_props(retries->subscription, record->props, record->props_len);
    return retries->wants_all;
}

bool pull_retries_match(struct pull *pull, const struct record *record)
{
    uint32_t cohort = cohort_of(record);
    if (cohort == pull->view.cohort)
        return true;
    if (cohort != 0 && has_members(pull, cohort))
        return false;
    return subscribes(pull, record);
}
