/*
 * Do the members of each group subscribe alike (F-3)? Members and their subscriptions are asked of
 * every broker set, compared by what they ask for, and what differs is shown with who asks for it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/subscription.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"
#include "tools/mqadmin/subscription_check.h"

enum { CHECKED_GROUPS_MAX = 100000 };

/* One subscription of one member. */
struct asked {
    char client[CLIENT_ID_MAX + 1];
    char topic[TOPIC_NAME_MAX + 1];
    struct subscription *subscription;
};

struct check {
    struct invocation *invocation;
    const struct admin_broker *brokers;
    size_t broker_count;
    struct table table;
    size_t differing; /* groups */
    int status;
};

static bool copy_name(char *out, size_t size, ProtobufCBinaryData name)
{
    if (name.len >= size || memchr(name.data, 0, name.len))
        return false;
    memcpy(out, name.data, name.len);
    out[name.len] = 0;
    return true;
}

/* ---- one group ---- */

/* Adds what a member asks for; false: it is malformed or there is no memory. */
static bool add_asked(struct asked **list, size_t *count, const Tern__Wire__MemberInfo *member,
                      const Tern__Wire__Subscription *from)
{
    struct asked one = {.subscription = NULL};
    enum subscription_type type;
    if (!copy_name(one.client, sizeof one.client, member->client_id) ||
        !copy_name(one.topic, sizeof one.topic, from->topic) ||
        subscription_type_parse(from->expression_type, &type, NULL) != TERN_OK)
        return false;
    for (size_t i = 0; i < *count; i++)
        if (!strcmp((*list)[i].client, one.client) && !strcmp((*list)[i].topic, one.topic))
            return true; /* another broker said it */
    if (subscription_compile(type, from->expression, strlen(from->expression), &one.subscription,
                             NULL) != TERN_OK)
        return false;
    struct asked *grown = realloc(*list, (*count + 1) * sizeof *grown);
    if (!grown) {
        subscription_free(one.subscription);
        return false;
    }
    grown[(*count)++] = one;
    *list = grown;
    return true;
}

/* What all members of the group ask for, as its brokers know it. */
static void collect(struct check *check, const char *group, struct asked **list, size_t *count)
{
    for (size_t i = 0; i < check->broker_count; i++) {
        struct tern_error err = {.text = ""};
        struct rpc_call *call = NULL;
        enum tern_code code =
            fetch_members(check->invocation, check->brokers[i].address, group, &call, &err);
        if (code == TERN_OK) {
            const Tern__Wire__ConsumerConnectionResponse *body =
                call->response->consumer_connection;
            for (size_t m = 0; m < body->n_members; m++)
                for (size_t s = 0; s < body->members[m]->n_subscriptions; s++)
                    if (!add_asked(list, count, body->members[m],
                                   body->members[m]->subscriptions[s]))
                        code = error_set(&err, TERN_PROTOCOL, "%s: a subscription of group %s",
                                         check->brokers[i].address, group);
        }
        if (code != TERN_OK && code != TERN_CONSUMER_NOT_ONLINE)
            check->status = command_fail(check->invocation, code, &err);
        rpc_call_unref(call);
    }
}

static const struct asked *find(const struct asked *list, size_t count, const char *client,
                                const char *topic)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].client, client) && !strcmp(list[i].topic, topic))
            return &list[i];
    return NULL;
}

static bool alike(const struct asked *a, const struct asked *b)
{
    return a && b && subscription_type(a->subscription) == subscription_type(b->subscription) &&
           !strcmp(subscription_normal(a->subscription), subscription_normal(b->subscription));
}

/* Whether every member asks for the topic of `one` as that one does. */
static bool all_alike(const struct asked *list, size_t count, const struct asked *one)
{
    for (size_t i = 0; i < count; i++)
        if (!alike(one, find(list, count, list[i].client, one->topic)))
            return false;
    return true;
}

bool subscriptions_differ(const Tern__Wire__ConsumerConnectionResponse *connection)
{
    struct asked *list = NULL;
    size_t count = 0;
    bool differ = false;
    for (size_t m = 0; m < connection->n_members; m++)
        for (size_t s = 0; s < connection->members[m]->n_subscriptions; s++)
            (void)add_asked(&list, &count, connection->members[m],
                            connection->members[m]->subscriptions[s]);
    for (size_t i = 0; i < count; i++)
        differ = differ || !all_alike(list, count, &list[i]);
    for (size_t i = 0; i < count; i++)
        subscription_free(list[i].subscription);
    free(list);
    return differ;
}

static void check_group(struct check *check, const char *group)
{
    struct asked *list = NULL;
    size_t count = 0;
    bool differs = false;
    collect(check, group, &list, &count);
    for (size_t i = 0; i < count; i++) {
        if (all_alike(list, count, &list[i]))
            continue;
        differs = true;
        table_add(
            &check->table,
            (json_t *[]){text_of(group), text_of(list[i].topic), text_of(list[i].client),
                         text_of(subscription_type_name(subscription_type(list[i].subscription))),
                         text_of(subscription_text(list[i].subscription))});
    }
    check->differing += differs;
    for (size_t i = 0; i < count; i++)
        subscription_free(list[i].subscription);
    free(list);
}

/* ---- all groups ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

typedef char group_name[GROUP_NAME_MAX + 1];

/* Names of the groups that the brokers know, sorted, may be there twice. */
static group_name *all_groups(struct check *check, size_t *count)
{
    group_name *names = NULL;
    *count = 0;
    for (size_t i = 0; i < check->broker_count; i++) {
        struct tern_error err = {.text = ""};
        struct rpc_call *call = NULL;
        enum tern_code code =
            fetch_groups(check->invocation, check->brokers[i].address, &call, &err);
        size_t n = code == TERN_OK ? call->response->list_groups->n_groups : 0;
        group_name *grown = n && *count + n <= CHECKED_GROUPS_MAX
                                ? realloc(names, (*count + n) * sizeof *grown)
                                : NULL;
        if (n && !grown)
            code = error_set(&err, TERN_NO_MEMORY, "no memory for %zu groups", *count + n);
        if (grown) {
            names = grown;
            for (size_t g = 0; g < n; g++)
                *count += copy_name(names[*count], sizeof *names,
                                    call->response->list_groups->groups[g]->name);
        }
        if (code != TERN_OK)
            check->status = command_fail(check->invocation, code, &err);
        rpc_call_unref(call);
    }
    if (*count)
        qsort(names, *count, sizeof *names, compare_names);
    return names;
}

static void check_all(struct check *check)
{
    size_t count;
    group_name *names = all_groups(check, &count);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(names[i - 1], names[i]) != 0)
            check_group(check, names[i]);
    free(names);
}

static int run_check(struct invocation *invocation)
{
    static const char *const columns[] = {"Group", "Topic", "ClientId", "Type", "Expression", NULL};
    static const char *const keys[] = {"group", "topic", "clientId", "type", "expression", NULL};
    const char *group = option_value(invocation, "groupName");
    struct check check = {.invocation = invocation, .status = EXIT_DONE};
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    enum tern_code code =
        admin_brokers(invocation->admin, NULL, false, &brokers, &check.broker_count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    check.broker_count = command_keep_first(invocation, brokers, check.broker_count);
    check.brokers = brokers;
    table_init(&check.table, columns, keys);
    if (group)
        check_group(&check, group);
    else
        check_all(&check);
    table_print(&check.table, invocation->json);
    if (!invocation->json)
        printf("%zu group%s with members that subscribe differently\n", check.differing,
               check.differing == 1 ? "" : "s");
    free(brokers);
    return check.differing && check.status == EXIT_DONE ? EXIT_NO : check.status;
}

const struct command subscription_commands[] = {
    {.name = "subscriptionCheck",
     .help = "groups whose members subscribe differently; exit status 1 when there is one",
     .example = "mqadmin subscriptionCheck -g billing",
     .options = {{'g', "groupName", "GROUP", false, "one group; else all"}},
     .run = run_check},
};
const size_t subscription_command_count =
    sizeof subscription_commands / sizeof subscription_commands[0];
