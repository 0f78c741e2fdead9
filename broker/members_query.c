/*
 * Questions to the member table, and the lists of subscriptions that it is made of: copying,
 * finding, comparing. Answers are copies in one block each, so the asker holds no lock.
 *
 * Its place: handlers of pulls (a subscription by name), rebalancing (member ids) and the admin
 * tool's views; members.c for the lists.
 *
 * Threads: any; one short lock, a copy is made under it. Failure modes: TERN_NO_MEMORY.
 */
#include "broker/members_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* ---- lists of subscriptions ---- */

static int compare_topics(const void *a, const void *b)
{
    const struct member_subscription *left = a;
    const struct member_subscription *right = b;
    int order = strcmp(left->topic, right->topic);
    if (order)
        return order;
    return left->version < right->version ? 1 : left->version > right->version ? -1 : 0;
}

struct member_subscription *members_copy_subscriptions(const struct member_consumer *consumer,
                                                       size_t *count)
{
    size_t n = consumer->subscription_count;
    size_t size = n * sizeof consumer->subscriptions[0] + 1;
    for (size_t i = 0; i < n; i++)
        size += strlen(consumer->subscriptions[i].expression) + 1 +
                strlen(member_normal(&consumer->subscriptions[i])) + 1;
    struct member_subscription *copy = malloc(size);
    if (!copy)
        return NULL;
    char *text = (char *)(copy + n);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(consumer->subscriptions[i].expression) + 1;
        copy[i] = consumer->subscriptions[i];
        memcpy(text, consumer->subscriptions[i].expression, len);
        copy[i].expression = text;
        text += len;
        len = strlen(member_normal(&consumer->subscriptions[i])) + 1;
        memcpy(text, member_normal(&consumer->subscriptions[i]), len);
        copy[i].normal = text;
        text += len;
    }
    qsort(copy, n, sizeof *copy, compare_topics);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(copy[kept - 1].topic, copy[i].topic))
            copy[kept++] = copy[i];
    *count = kept;
    return copy;
}

const struct member_subscription *membership_find(const struct membership *membership,
                                                  const char *topic)
{
    size_t low = 0;
    size_t high = membership->subscription_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(membership->subscriptions[mid].topic, topic);
        if (order == 0)
            return &membership->subscriptions[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

bool members_same_topics(const struct membership *m, const struct member_subscription *other,
                         size_t count)
{
    if (m->subscription_count != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(m->subscriptions[i].topic, other[i].topic))
            return false;
    return true;
}

bool members_same_subscription(const struct member_subscription *a,
                               const struct member_subscription *b)
{
    return a->version == b->version && !strcmp(a->expression, b->expression) &&
           !strcmp(a->expression_type, b->expression_type);
}

/* ---- questions ---- */

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **members_ids(const struct member_group *group, uint32_t cohort, size_t *count)
{
    size_t n = group->member_count;
    size_t size = n * sizeof(char *);
    const struct membership *m;
    *count = 0;
    if (n == 0)
        return NULL;
    DL_FOREACH (group->members, m)
        size += strlen(m->client->id) + 1;
    const char **ids = malloc(size);
    if (!ids)
        return NULL;
    char *text = (char *)(ids + n);
    DL_FOREACH (group->members, m) {
        size_t len = strlen(m->client->id) + 1;
        if (cohort && m->cohort != cohort)
            continue;
        memcpy(text, m->client->id, len);
        ids[(*count)++] = text;
        text += len;
    }
    qsort(ids, *count, sizeof *ids, compare_strings);
    return ids;
}

enum tern_code members_of(struct members *members, const char *group, const char ***ids,
                          size_t *count)
{
    return members_of_cohort(members, group, 0, ids, count);
}

/* The client's subscription, or with an empty id the newest of any member. @locks holds */
static const struct member_subscription *look_up(const struct member_group *group,
                                                 const char *client_id, const char *topic,
                                                 const struct membership **owner)
{
    const struct member_subscription *best = NULL;
    const struct membership *m;
    DL_FOREACH (group->members, m) {
        if (client_id[0] && strcmp(m->client->id, client_id))
            continue;
        const struct member_subscription *s = membership_find(m, topic);
        if (s && (!best || s->version > best->version)) {
            best = s;
            *owner = m;
        }
    }
    return best;
}

enum member_lookup members_subscription(struct members *members, const char *group,
                                        const char *client_id, const char *topic,
                                        struct member_view *view, char **expression)
{
    enum member_lookup result = MEMBER_NO_GROUP;
    *expression = NULL;
    *view = (struct member_view){.version = 0};
    lock_acquire(&members->lock);
    const struct member_group *found = members_group(members, group);
    if (found && found->members) {
        const struct membership *owner = found->members;
        const struct member_subscription *s = look_up(found, client_id, topic, &owner);
        result = MEMBER_NO_SUBSCRIPTION;
        view->model = owner->model;
        if (s)
            *expression = strdup(s->expression);
        if (*expression) {
            result = MEMBER_FOUND;
            view->version = s->version;
            memcpy(view->expression_type, s->expression_type, sizeof view->expression_type);
        }
    }
    lock_release(&members->lock);
    return result;
}

/* Bytes of the texts that belong to one member. */
static size_t text_bytes(const struct membership *m)
{
    size_t size =
        strlen(m->client->id) + strlen(m->client->language) + strlen(m->client->version) + 3;
    for (size_t i = 0; i < m->subscription_count; i++)
        size += strlen(m->subscriptions[i].expression) + 1 + strlen(m->subscriptions[i].normal) + 1;
    return size;
}

static const char *put_text(char **at, const char *text)
{
    size_t len = strlen(text) + 1;
    char *start = *at;
    memcpy(start, text, len);
    *at += len;
    return start;
}

/* Takes what it needs off *subscriptions and *text. */
static void fill_info(struct member_info *info, const struct membership *m, int64_t now_ns,
                      struct member_subscription **subscriptions, char **text)
{
    *info = (struct member_info){
        .client_id = put_text(text, m->client->id),
        .language = put_text(text, m->client->language),
        .version = put_text(text, m->client->version),
        .remote = m->client->remote,
        .heartbeat_age_ms = (now_ns - m->client->heartbeat_ns) / 1000000,
        .type = m->type,
        .model = m->model,
        .from = m->from,
        .subscriptions = *subscriptions,
        .subscription_count = m->subscription_count,
    };
    for (size_t i = 0; i < m->subscription_count; i++) {
        (*subscriptions)[i] = m->subscriptions[i];
        (*subscriptions)[i].expression = put_text(text, m->subscriptions[i].expression);
        (*subscriptions)[i].normal = put_text(text, m->subscriptions[i].normal);
    }
    *subscriptions += m->subscription_count;
}

static int compare_infos(const void *a, const void *b)
{
    return strcmp(((const struct member_info *)a)->client_id,
                  ((const struct member_info *)b)->client_id);
}

/* @locks holds:BROKER_MEMBERS */
static struct member_info *copy_group(const struct member_group *group, int64_t now_ns)
{
    size_t subscription_count = 0;
    size_t text_size = 0;
    const struct membership *m;
    DL_FOREACH (group->members, m) {
        subscription_count += m->subscription_count;
        text_size += text_bytes(m);
    }
    struct member_info *infos =
        malloc(group->member_count * sizeof *infos +
               subscription_count * sizeof(struct member_subscription) + text_size);
    if (!infos)
        return NULL;
    struct member_subscription *subscriptions =
        (struct member_subscription *)(void *)(infos + group->member_count);
    char *text = (char *)(subscriptions + subscription_count);
    size_t n = 0;
    DL_FOREACH (group->members, m)
        fill_info(&infos[n++], m, now_ns, &subscriptions, &text);
    return infos;
}

enum tern_code members_snapshot(struct members *members, const char *group,
                                struct member_info **out, size_t *count)
{
    int64_t now_ns = clock_mono_ns(members->env.clock);
    *out = NULL;
    *count = 0;
    lock_acquire(&members->lock);
    const struct member_group *found = members_group(members, group);
    if (found && found->member_count > 0) {
        *out = copy_group(found, now_ns);
        *count = found->member_count;
    }
    lock_release(&members->lock);
    if (*count && !*out) {
        *count = 0;
        return TERN_NO_MEMORY;
    }
    if (*count)
        qsort(*out, *count, sizeof **out, compare_infos);
    return TERN_OK;
}

enum tern_code members_groups(struct members *members, const char ***groups, size_t *count)
{
    size_t n = 0;
    size_t size = 0;
    const struct member_group *group;
    *groups = NULL;
    *count = 0;
    lock_acquire(&members->lock);
    for (group = members->groups; group; group = group->hh.next)
        if (group->member_count > 0) {
            n++;
            size += sizeof(char *) + strlen(group->name) + 1;
        }
    if (n)
        *groups = malloc(size);
    if (*groups) {
        char *text = (char *)(*groups + n);
        for (group = members->groups; group; group = group->hh.next)
            if (group->member_count > 0)
                (*groups)[(*count)++] = put_text(&text, group->name);
    }
    lock_release(&members->lock);
    if (n && !*groups)
        return TERN_NO_MEMORY;
    if (n)
        qsort(*groups, n, sizeof **groups, compare_strings);
    return TERN_OK;
}

uint32_t members_count(struct members *members)
{
    lock_acquire(&members->lock);
    uint32_t count = HASH_COUNT(members->clients);
    lock_release(&members->lock);
    return count;
}

/* ---- who answers for transactions ---- */

static bool has_name(const char *names, size_t bytes, const char *name)
{
    for (size_t at = 0; at < bytes; at += strlen(names + at) + 1)
        if (!strcmp(names + at, name))
            return true;
    return false;
}

uint32_t members_checker(struct members *members, const char *group, uint64_t turn,
                         char out[CLIENT_ID_MAX + 1])
{
    uint32_t count = 0;
    const struct member_client *client;
    out[0] = 0;
    lock_acquire(&members->lock);
    DL_FOREACH (members->oldest, client)
        count += has_name(client->checked, client->checked_bytes, group);
    uint64_t wanted = count ? turn % count : 0;
    uint32_t at = 0;
    for (client = members->oldest; client && count && !out[0]; client = client->next)
        if (has_name(client->checked, client->checked_bytes, group) && at++ == wanted)
            memcpy(out, client->id, strlen(client->id) + 1);
    lock_release(&members->lock);
    return count;
}
