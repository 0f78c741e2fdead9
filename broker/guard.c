/*
 * The subscription guard: which group a client's request means, and the words of warning and
 * refusal.
 *
 *   group, client ─► setting ─┬─ warn, refuse ─► the group
 *                             └─ isolate ─► member's cohort ─┬─ known ─► group%xxxxxxxx
 *                                                            └─ not known ─► PROGRESS_UNKNOWN
 *
 * Why nothing is skipped under isolate: a cohort's progress passes only what its members asked for
 * and got, or did not ask for; it begins where the group stood. A client that changes cohorts, by
 * another expression or another setting, carries the old one in its OffsetVersion: its commits and
 * pulls are then refused as of an older version, and it asks where to begin. A client that is not
 * known is never taken for anybody: it waits for its heartbeat.
 *
 * Threads: any. Failure modes: as the header says.
 */
#include "broker/guard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

bool guard_isolates(struct broker *broker, const char *group)
{
    struct group_config config;
    return groups_find(broker->groups, group, strlen(group), &config) &&
           config.consistency == CONSISTENCY_ISOLATE;
}

enum tern_code guard_view(struct broker *broker, const char *group, const char *client_id,
                          struct group_view *out, struct tern_error *err)
{
    *out = (struct group_view){.cohort = 0};
    snprintf(out->name, sizeof out->name, "%s", group);
    if (!guard_isolates(broker, group))
        return TERN_OK;
    if (!members_cohort(broker->members, group, client_id, &out->cohort))
        return error_set(err, TERN_PROGRESS_UNKNOWN,
                         "group %s is isolated (subscriptionConsistency) and client %s has sent no "
                         "heartbeat for it to %s yet: send one and ask again",
                         group, client_id[0] ? client_id : "without id",
                         broker->config.broker_name);
    size_t len = strlen(out->name); /* the setting's check leaves room for the suffix */
    snprintf(out->name + len, sizeof out->name - len, "%%%08" PRIx32, out->cohort);
    return TERN_OK;
}

uint32_t guard_cohort_of(struct broker *broker, const char *group,
                         const ProtobufCBinaryData *client)
{
    struct group_view view;
    char id[CLIENT_ID_MAX + 1];
    if (client->len > CLIENT_ID_MAX || client_id_check(client->data, client->len, NULL) != TERN_OK)
        return 0;
    memcpy(id, client->data, client->len);
    id[client->len] = 0;
    return guard_view(broker, group, id, &view, NULL) == TERN_OK ? view.cohort : 0;
}

bool guard_is_cohort(const char *name, const char *group)
{
    size_t len = strlen(group);
    return !strncmp(name, group, len) && name[len] == '%' &&
           strspn(name + len + 1, "0123456789abcdef") == COHORT_SUFFIX_BYTES - 1 &&
           name[len + COHORT_SUFFIX_BYTES] == 0;
}

/* ---- cohorts with progress ---- */

struct collecting {
    const char *group;
    cohort_name *names; /* room for COHORTS_MAX */
    size_t count;
};

static bool on_offset(void *arg, const char *group, const char *topic, int32_t queue_id,
                      int64_t offset)
{
    struct collecting *collecting = arg;
    (void)topic;
    (void)queue_id;
    (void)offset;
    if (!guard_is_cohort(group, collecting->group))
        return true;
    for (size_t i = 0; i < collecting->count; i++)
        if (!strcmp(collecting->names[i], group))
            return true;
    snprintf(collecting->names[collecting->count++], sizeof(cohort_name), "%s", group);
    return collecting->count < COHORTS_MAX;
}

enum tern_code guard_cohorts(struct broker *broker, const char *group, cohort_name **names,
                             size_t *count)
{
    *names = NULL;
    *count = 0;
    struct collecting collecting = {.group = group,
                                    .names = calloc(COHORTS_MAX, sizeof(cohort_name))};
    if (!collecting.names)
        return TERN_NO_MEMORY;
    enum tern_code code = offsets_each(broker->offsets, NULL, NULL, on_offset, &collecting);
    if (code) {
        free(collecting.names);
        return code;
    }
    *names = collecting.names;
    *count = collecting.count;
    return TERN_OK;
}

/* ---- words ---- */

enum tern_code guard_refusal(const char *group, const char *client_id,
                             const struct member_conflict *conflict, struct tern_error *err)
{
    return error_set(
        err, TERN_SUBSCRIPTION_DIFFERS,
        "group %.64s: client %.64s wants \"%.80s\" of topic %.64s, member %.64s \"%.80s\": "
        "subscribe alike, use another group, or set subscriptionConsistency to warn or "
        "isolate",
        group, client_id[0] ? client_id : "without id", conflict->own, conflict->topic,
        conflict->other, conflict->others);
}

void guard_on_differ(void *arg, const char *group, const char *client_id,
                     const struct member_conflict *conflict)
{
    struct broker *broker = arg;
    bool isolated = guard_isolates(broker, group);
    counter_add(&broker->subscription_differences, 1);
    log_warn(broker->env.log, "subscriptions_differ",
             "group=%s topic=%s client=\"%s\" expression=\"%s\" other=\"%s\" "
             "other_expression=\"%s\" note=\"%s\"",
             group, conflict->topic, client_id, conflict->own, conflict->other, conflict->others,
             isolated ? "each gets what it asked for (isolate)"
                      : "messages are lost: each queue is read by one member with its expression "
                        "only (mqadmin subscriptionCheck)");
}
