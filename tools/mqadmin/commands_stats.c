/* Backlogs and rates of all groups and topics. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/names.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

enum { RATE_WINDOW_S = 60, DAY_MS = 86400000 };

/* ---- brokerConsumeStats ---- */

static int64_t diff_of(const Tern__Wire__GroupQueueStats *q)
{
    return q->broker_offset - (q->consumer_offset < 0 ? 0 : q->consumer_offset);
}

static int64_t add_queues(struct table *table, const char *broker,
                          const Tern__Wire__GroupStats *group, int64_t least)
{
    int64_t total = 0;
    for (size_t i = 0; i < group->n_queues; i++) {
        const Tern__Wire__GroupQueueStats *q = group->queues[i];
        char last[32];
        if (diff_of(q) < least)
            continue;
        time_text(last, q->last_ms);
        total += diff_of(q);
        table_add(table, (json_t *[]){bytes_of(q->topic.data, q->topic.len),
                                      bytes_of(group->group.data, group->group.len),
                                      text_of(broker), number_of(q->queue_id),
                                      number_of(q->broker_offset), number_of(q->consumer_offset),
                                      number_of(diff_of(q)), text_of(last)});
    }
    return total;
}

static int run_broker_consume_stats(struct invocation *invocation)
{
    static const char *const columns[] = {"Topic", "Group",         "Broker Name",
                                          "QID",   "Broker Offset", "Consumer Offset",
                                          "Diff",  "LastTime",      NULL};
    static const char *const keys[] = {"topic",   "group",        "brokerName",
                                       "queueId", "brokerOffset", "consumerOffset",
                                       "diff",    "lastTime",     NULL};
    const char *address = option_value(invocation, "brokerAddr");
    struct tern_error err = {.text = ""};
    struct rpc_call *call, *status_call;
    struct table table;
    int64_t least, timeout_ms, total = 0;
    bool order;
    if (!option_number(invocation, "level", 0, INT64_MAX, 0, &least) ||
        !option_number(invocation, "timeoutMillis", 1, 600000, ADMIN_TIMEOUT_MS, &timeout_ms) ||
        !option_bool(invocation, "order", false, &order))
        return EXIT_USAGE;
    if (!command_is_address(address))
        return command_usage(invocation, "-b: '%s' is not host:port", address);
    enum tern_code code = fetch_status(invocation, address, &status_call, &err);
    char name[128] = "-";
    if (code == TERN_OK && status_value(status_call, "brokerName"))
        snprintf(name, sizeof name, "%s", status_value(status_call, "brokerName"));
    rpc_call_unref(status_call);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    code = fetch_progress(invocation, address, NULL, NULL, &call, &err);
    table_init(&table, columns, keys);
    for (size_t i = 0; code == TERN_OK && i < call->response->consume_stats->n_groups; i++)
        total += add_queues(&table, name, call->response->consume_stats->groups[i], least);
    rpc_call_unref(call);
    table_print(&table, invocation->json);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    if (!invocation->json)
        printf("\nDiff Total: %" PRId64 "\n", total);
    return EXIT_DONE;
}

/* ---- statsAll ---- */

static int64_t wall_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Messages of a topic at one broker: stored in the last minute and in the last day. */
struct arrivals {
    int64_t minute, day;
};

/* Counted in the queues, by store time, so it needs no counters and survives restarts. */
static enum tern_code count_arrivals(struct invocation *invocation,
                                     const struct admin_broker *broker, const char *topic,
                                     struct arrivals *out, struct tern_error *err)
{
    int64_t now_ms = wall_now_ms();
    struct rpc_call *call;
    enum tern_code code = fetch_topic_stats(invocation, broker->address, topic, &call, err);
    for (size_t i = 0; code == TERN_OK && i < call->response->topic_stats->n_queues; i++) {
        const Tern__Wire__QueueStats *q = call->response->topic_stats->queues[i];
        int64_t from;
        if (q->last_update_ms >= now_ms - RATE_WINDOW_S * 1000) {
            code = fetch_offset_by_time(invocation, broker->address, topic, q->queue_id,
                                        now_ms - RATE_WINDOW_S * 1000, &from, err);
            out->minute += code == TERN_OK ? q->max_offset - from : 0;
        }
        if (code == TERN_OK && q->last_update_ms >= now_ms - DAY_MS) {
            code = fetch_offset_by_time(invocation, broker->address, topic, q->queue_id,
                                        now_ms - DAY_MS, &from, err);
            out->day += code == TERN_OK ? q->max_offset - from : 0;
        }
    }
    rpc_call_unref(call);
    return code;
}

static void add_stats_row(struct table *table, const char *topic, json_t *group,
                          int64_t accumulation, const struct arrivals *in, double out_tps,
                          json_t *out_total)
{
    table_add(table, (json_t *[]){text_of(topic), group, number_of(accumulation),
                                  json_real((double)in->minute / RATE_WINDOW_S), json_real(out_tps),
                                  number_of(in->day), out_total});
}

/* A group of a topic, summed over the topic's brokers. */
struct group_sum {
    char name[GROUP_NAME_MAX + 1];
    int64_t accumulation, delivered;
    double out_tps;
};

struct topic_sum {
    struct arrivals in;
    struct group_sum *groups;
    size_t count;
};

/* The group's sum, begun when it is new; NULL without memory. */
static struct group_sum *sum_of(struct topic_sum *sum, const Tern__Wire__GroupStats *group)
{
    for (size_t i = 0; i < sum->count; i++)
        if (wire_is(&group->group, sum->groups[i].name))
            return &sum->groups[i];
    struct group_sum *more = realloc(sum->groups, (sum->count + 1) * sizeof *more);
    if (!more)
        return NULL;
    sum->groups = more;
    more[sum->count] = (struct group_sum){.out_tps = 0};
    wire_text(more[sum->count].name, sizeof more->name, &group->group);
    return &more[sum->count++];
}

static enum tern_code add_group(struct topic_sum *sum, const Tern__Wire__GroupStats *group,
                                struct tern_error *err)
{
    struct group_sum *into = sum_of(sum, group);
    if (!into)
        return error_set(err, TERN_NO_MEMORY, "no memory for one more group");
    for (size_t i = 0; i < group->n_queues; i++) {
        into->accumulation += diff_of(group->queues[i]);
        into->delivered += (int64_t)group->queues[i]->delivered;
    }
    into->out_tps += group->consume_tps;
    return TERN_OK;
}

static enum tern_code add_broker(struct invocation *invocation, const struct admin_broker *broker,
                                 const char *topic, struct topic_sum *sum, struct tern_error *err)
{
    struct rpc_call *call = NULL;
    enum tern_code code = count_arrivals(invocation, broker, topic, &sum->in, err);
    if (code == TERN_OK)
        code = fetch_progress(invocation, broker->address, NULL, topic, &call, err);
    for (size_t i = 0; code == TERN_OK && i < call->response->consume_stats->n_groups; i++)
        code = add_group(sum, call->response->consume_stats->groups[i], err);
    rpc_call_unref(call);
    return code;
}

/* One topic: a row per group, or one that says that nobody consumes it. */
static enum tern_code add_topic(struct invocation *invocation, struct table *table,
                                const char *topic, struct tern_error *err)
{
    struct topic_sum sum = {.count = 0};
    struct admin_broker *brokers;
    size_t count;
    enum tern_code code =
        admin_topic_brokers(invocation->admin, topic, false, &brokers, &count, err);
    if (code != TERN_OK)
        return code;
    count = command_keep_first(invocation, brokers, count);
    for (size_t i = 0; code == TERN_OK && i < count; i++)
        code = add_broker(invocation, &brokers[i], topic, &sum, err);
    bool shown = code == TERN_OK && (sum.in.day > 0 || !option_given(invocation, "activeTopic"));
    for (size_t i = 0; shown && i < sum.count; i++)
        add_stats_row(table, topic, text_of(sum.groups[i].name), sum.groups[i].accumulation,
                      &sum.in, sum.groups[i].out_tps, number_of(sum.groups[i].delivered));
    if (shown && sum.count == 0 && count > 0)
        add_stats_row(table, topic, text_of(""), 0, &sum.in, 0, text_of("NO_CONSUMER"));
    free(sum.groups);
    free(brokers);
    return code;
}

/* %RETRY% and %DLQ% belong to their groups' rows elsewhere: RocketMQ leaves them out, too. */
static bool is_listed(const char *topic)
{
    return strncmp(topic, "%RETRY%", 7) != 0 && strncmp(topic, "%DLQ%", 5) != 0;
}

static int run_stats_all(struct invocation *invocation)
{
    static const char *const columns[] = {"Topic",  "Consumer Group", "Accumulation",  "InTPS",
                                          "OutTPS", "InMsg24Hour",    "OutSinceStart", NULL};
    static const char *const keys[] = {"topic",  "consumerGroup", "accumulation",  "inTps",
                                       "outTps", "inMsg24Hour",   "outSinceStart", NULL};
    const char *only = option_value(invocation, "topic");
    struct tern_error err = {.text = ""};
    struct table table;
    struct rpc_call *call = NULL;
    int status = EXIT_DONE;
    enum tern_code code = only ? TERN_OK : fetch_topic_list(invocation, NULL, &call, &err);
    table_init(&table, columns, keys);
    if (only)
        code = add_topic(invocation, &table, only, &err);
    if (code != TERN_OK)
        status = command_fail(invocation, code, &err);
    for (size_t i = 0; !only && code == TERN_OK && i < call->response->topic_list->n_topics; i++) {
        char topic[TOPIC_NAME_MAX + 1];
        wire_text(topic, sizeof topic, &call->response->topic_list->topics[i]);
        enum tern_code one =
            is_listed(topic) ? add_topic(invocation, &table, topic, &err) : TERN_OK;
        if (one != TERN_OK)
            status = command_fail(invocation, one, &err);
    }
    rpc_call_unref(call);
    table_print(&table, invocation->json);
    return status;
}

const struct command stats_commands[] = {
    {.name = "brokerConsumeStats",
     .help = "backlog of every group at one broker, queue by queue",
     .example = "mqadmin brokerConsumeStats -b 127.0.0.1:10911 -l 1000",
     .options = {{'b', "brokerAddr", "HOST:PORT", true, "the broker"},
                 {'l', "level", "N", false, "only queues with a Diff of at least this (0)"},
                 {'t', "timeoutMillis", "MS", false, "accepted; the answer is awaited 5000 ms"},
                 {'o', "order", "BOOL", false, "accepted; all topics are shown"}},
     .run = run_broker_consume_stats},
    {.name = "statsAll",
     .help = "each topic with its groups: backlog, rates, messages of the last day",
     .example = "mqadmin statsAll -t Orders",
     .options = {{'a', "activeTopic", NULL, false, "only topics that got messages in 24 hours"},
                 {'t', "topic", "TOPIC", false, "only this topic"}},
     .run = run_stats_all},
};
const size_t stats_command_count = sizeof stats_commands / sizeof stats_commands[0];
