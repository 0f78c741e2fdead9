/*
 * What the member table tells others, noted under its lock and told after it was released: log
 * lines and the owner's callbacks.
 *
 * Threads: noting holds the lock of the table, telling holds none. Failure modes: without memory a
 * report is lost, nothing else.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/members_internal.h"

/* One block. */
struct member_report {
    struct member_report *next;
    enum report_kind kind;
    const struct member_consumer *consumer;        /* JOINED: the heartbeat's */
    struct member_conflict conflict;               /* DIFFER */
    char *group, *client, *topic, *before, *after; /* topic: why, when LEFT */
};

struct member_report *member_report_add(struct member_report **list, enum report_kind kind,
                                        const char *group, const char *client, const char *topic,
                                        const char *before, const char *after)
{
    const char *texts[] = {group, client, topic, before, after};
    size_t size = sizeof(struct member_report);
    for (size_t i = 0; i < 5; i++)
        size += strlen(texts[i]) + 1;
    struct member_report *report = calloc(1, size);
    if (!report)
        return NULL;
    char *at = (char *)(report + 1);
    char **fields[] = {&report->group, &report->client, &report->topic, &report->before,
                       &report->after};
    for (size_t i = 0; i < 5; i++) {
        size_t len = strlen(texts[i]) + 1;
        memcpy(at, texts[i], len);
        *fields[i] = at;
        at += len;
    }
    report->kind = kind;
    LL_PREPEND(*list, report);
    return report;
}

void member_report_joined(struct member_report **list, const struct member_consumer *consumer,
                          const char *client)
{
    struct member_report *report =
        member_report_add(list, REPORT_JOINED, consumer->group, client, "", "", "");
    if (report)
        report->consumer = consumer;
}

void member_report_differ(struct member_report **list, const char *group, const char *client,
                          const struct member_conflict *conflict)
{
    struct member_report *report =
        member_report_add(list, REPORT_DIFFER, group, client, "", "", "");
    if (report)
        report->conflict = *conflict;
}

static void log_joined(struct members *members, const char *client_id,
                       const struct member_consumer *consumer)
{
    char text[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < consumer->subscription_count && used < sizeof text - 1; i++) {
        const struct member_subscription *s = &consumer->subscriptions[i];
        int n = snprintf(text + used, sizeof text - used, "%s%s:%s", i ? ", " : "", s->topic,
                         s->expression);
        used += n > 0 ? (size_t)n : 0;
    }
    log_info(members->env.log, "member_joined",
             "group=%s client=\"%s\" type=%" PRId32 " model=%" PRId32 " from=%" PRId32
             " subscriptions=\"%s\"",
             consumer->group, client_id, consumer->type, consumer->model, consumer->from, text);
}

static void tell(struct members *members, const struct member_report *report)
{
    const struct members_options *options = &members->options;
    switch (report->kind) {
    case REPORT_JOINED:
        log_joined(members, report->client, report->consumer);
        break;
    case REPORT_LEFT:
        log_info(members->env.log, "member_left", "group=%s client=\"%s\" cause=\"%s\"",
                 report->group, report->client, report->topic);
        break;
    case REPORT_EXPRESSION:
        if (options->on_expression_changed)
            options->on_expression_changed(options->arg, report->group, report->topic,
                                           report->client, report->before, report->after);
        break;
    case REPORT_DIFFER:
        if (options->on_differ)
            options->on_differ(options->arg, report->group, report->client, &report->conflict);
        break;
    }
}

void member_reports_tell(struct members *members, struct member_report *list)
{
    while (list) {
        struct member_report *report = list;
        list = report->next;
        tell(members, report);
        free(report);
    }
}

void member_reports_free(struct member_report *list)
{
    while (list) {
        struct member_report *next = list->next;
        free(list);
        list = next;
    }
}
