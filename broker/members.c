/*
 * Who is there: what heartbeats, leaving and dying connections change.
 *
 *   heartbeat ─► client ─► membership per group ─┬─ joined, left, other topics ─► group is
 * "changed" └─ other expression ───────────► report the lock is released, then reports and changed
 * groups are told
 *
 * Its place: handlers/membership.c feeds it, rebalancing consumers ask it, events carry its changes
 * to the clients.
 *
 * Invariants: a client is in the age list and in its peer's list exactly once; a membership belongs
 * to one client and one group; subscriptions belong to a membership, so no member's heartbeat
 * touches another's (F-3). A heartbeat of a dead connection is refused: a
 * client that went would else stay until it expires.
 *
 * Threads: any. One lock; callbacks and log lines come after it was released, changes of a group
 * that pile up meanwhile are told once. Failure modes: without memory a heartbeat ends with
 * TERN_NO_MEMORY and what it did up to there stays; the client's next one completes it.
 */
#include "broker/members_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* Tells every group that changed, with its members as they are now. @locks none */
static void tell_changes(struct members *members)
{
    char name[GROUP_NAME_MAX + 1];
    for (;;) {
        lock_acquire(&members->lock);
        struct member_group *group = members->changed;
        if (!group) {
            lock_release(&members->lock);
            return;
        }
        size_t count;
        LL_DELETE2(members->changed, group, changed_next);
        group->changed = false;
        memcpy(name, group->name, strlen(group->name) + 1);
        const char **ids = members_ids(group, 0, &count);
        lock_release(&members->lock);
        if (members->options.on_changed)
            members->options.on_changed(members->options.arg, name, ids, count);
        free(ids);
    }
}

/* ---- pieces; @locks holds:BROKER_MEMBERS ---- */

static void mark_changed(struct members *members, struct member_group *group)
{
    if (group->changed)
        return;
    group->changed = true;
    LL_APPEND2(members->changed, group, changed_next);
}

struct member_group *members_group(struct members *members, const char *name)
{
    struct member_group *group;
    HASH_FIND_STR(members->groups, name, group);
    return group;
}

static void group_free(struct members *members, struct member_group *group)
{
    struct last_expression *e;
    struct last_expression *next;
    HASH_ITER (hh, group->expressions, e, next) {
        HASH_DELETE(hh, group->expressions, e);
        free(e->expression);
        free(e);
    }
    HASH_DELETE(hh, members->groups, group);
    free(group);
}

/* Forgets groups that have no member. */
static void drop_empty_groups(struct members *members)
{
    struct member_group *group;
    struct member_group *next;
    HASH_ITER (hh, members->groups, group, next)
        if (group->member_count == 0 && !group->changed)
            group_free(members, group);
}

static enum tern_code want_group(struct members *members, const char *name,
                                 struct member_group **out)
{
    *out = members_group(members, name);
    if (*out)
        return TERN_OK;
    if (HASH_COUNT(members->groups) >= MEMBER_GROUPS_MAX)
        drop_empty_groups(members);
    if (HASH_COUNT(members->groups) >= MEMBER_GROUPS_MAX)
        return TERN_LIMIT;
    size_t len = strlen(name);
    struct member_group *group = calloc(1, sizeof *group + len + 1);
    if (!group)
        return TERN_NO_MEMORY;
    memcpy(group->name, name, len + 1);
    HASH_ADD_KEYPTR(hh, members->groups, group->name, (unsigned)len, group);
    if (!group->hh.tbl) {
        free(group);
        return TERN_NO_MEMORY;
    }
    *out = group;
    return TERN_OK;
}

static void peer_leave(struct members *members, struct member_client *client)
{
    struct member_peer *peer = client->peer;
    if (!peer)
        return;
    DL_DELETE2(peer->clients, client, peer_prev, peer_next);
    client->peer = NULL;
    if (!peer->clients) {
        HASH_DELETE(hh, members->peers, peer);
        free(peer);
    }
}

static enum tern_code peer_enter(struct members *members, struct member_client *client,
                                 uint64_t peer_id)
{
    struct member_peer *peer;
    if (client->peer && client->peer->id == peer_id)
        return TERN_OK;
    HASH_FIND(hh, members->peers, &peer_id, sizeof peer_id, peer);
    if (!peer) {
        peer = calloc(1, sizeof *peer);
        if (!peer)
            return TERN_NO_MEMORY;
        peer->id = peer_id;
        HASH_ADD(hh, members->peers, id, sizeof peer->id, peer);
        if (!peer->hh.tbl) {
            free(peer);
            return TERN_NO_MEMORY;
        }
    }
    peer_leave(members, client);
    client->peer = peer;
    DL_APPEND2(peer->clients, client, peer_prev, peer_next);
    return TERN_OK;
}

static enum tern_code want_client(struct members *members, const char *id,
                                  struct member_client **out)
{
    HASH_FIND_STR(members->clients, id, *out);
    if (*out)
        return TERN_OK;
    if (HASH_COUNT(members->clients) >= MEMBERS_MAX)
        return TERN_LIMIT;
    size_t len = strlen(id);
    struct member_client *client = calloc(1, sizeof *client + len + 1);
    if (!client)
        return TERN_NO_MEMORY;
    memcpy(client->id, id, len + 1);
    HASH_ADD_KEYPTR(hh, members->clients, client->id, (unsigned)len, client);
    if (!client->hh.tbl) {
        free(client);
        return TERN_NO_MEMORY;
    }
    DL_APPEND(members->oldest, client);
    *out = client;
    return TERN_OK;
}

static struct membership *client_membership(const struct member_client *client, const char *group)
{
    struct membership *m = client->memberships;
    while (m && strcmp(m->group->name, group))
        m = m->client_next;
    return m;
}

static void membership_leave(struct members *members, struct membership *m, const char *why,
                             struct member_report **reports)
{
    member_report_add(reports, REPORT_LEFT, m->group->name, m->client->id, why, "", "");
    LL_DELETE2(m->client->memberships, m, client_next);
    DL_DELETE(m->group->members, m);
    m->group->member_count--;
    mark_changed(members, m->group);
    free(m->subscriptions);
    free(m);
}

static void client_remove(struct members *members, struct member_client *client, const char *why,
                          struct member_report **reports)
{
    while (client->memberships)
        membership_leave(members, client->memberships, why, reports);
    peer_leave(members, client);
    DL_DELETE(members->oldest, client);
    HASH_DELETE(hh, members->clients, client);
    free(client->producers);
    free(client->checked);
    free(client);
}

/* ---- subscriptions; @locks holds:BROKER_MEMBERS ---- */

/* Remembers the group's expression of a topic; reports when it is another than before. */
static void note_expression(struct member_group *group, const char *client_id,
                            const struct member_subscription *now,
                            const struct member_subscription *before,
                            struct member_report **reports)
{
    struct last_expression *last;
    HASH_FIND_STR(group->expressions, now->topic, last);
    const char *old = before ? before->expression : last ? last->expression : NULL;
    if (old && strcmp(old, now->expression))
        member_report_add(reports, REPORT_EXPRESSION, group->name, client_id, now->topic, old,
                          now->expression);
    if (last && !strcmp(last->expression, now->expression))
        return;
    char *text = strdup(now->expression);
    if (!text)
        return;
    if (!last && HASH_COUNT(group->expressions) < MEMBER_EXPRESSIONS_MAX) {
        size_t len = strlen(now->topic);
        last = calloc(1, sizeof *last + len + 1);
        if (last) {
            memcpy(last->topic, now->topic, len + 1);
            HASH_ADD_KEYPTR(hh, group->expressions, last->topic, (unsigned)len, last);
            if (!last->hh.tbl) {
                free(last);
                last = NULL;
            }
        }
    }
    if (!last) {
        free(text);
        return;
    }
    free(last->expression);
    last->expression = text;
}

/* Members of another cohort share no queues with it when the group isolates: they are told, too. */
static void take_cohort(struct members *members, struct membership *m, bool isolated,
                        struct member_report **reports)
{
    struct member_conflict conflict = {.found = false};
    uint32_t cohort = members_cohort_of(m->subscriptions, m->subscription_count);
    if (cohort == m->cohort)
        return;
    m->cohort = cohort;
    if (isolated)
        mark_changed(members, m->group);
    if (members_find_conflict(m->group, m, m->subscriptions, m->subscription_count, &conflict))
        member_report_differ(reports, m->group->name, m->client->id, &conflict);
}

/*
 * What the heartbeat says of this membership replaces what was known. When it came on the same
 * connection as the one before it may be the older of two that passed each other.
 */
static enum tern_code set_subscriptions(struct members *members, struct membership *m,
                                        const struct member_consumer *consumer, bool same_peer,
                                        struct member_report **reports)
{
    size_t count = 0;
    struct member_subscription *fresh = members_copy_subscriptions(consumer, &count);
    if (!fresh)
        return TERN_NO_MEMORY;
    bool topics_same = members_same_topics(m, fresh, count);
    bool older = false;
    bool same = topics_same;
    for (size_t i = 0; i < count; i++) {
        const struct member_subscription *held = membership_find(m, fresh[i].topic);
        older = older || (same_peer && held && held->version > fresh[i].version);
        same = same && held && members_same_subscription(held, &fresh[i]);
    }
    if (same || older) {
        free(fresh);
        return TERN_OK;
    }
    for (size_t i = 0; i < count; i++)
        note_expression(m->group, m->client->id, &fresh[i], membership_find(m, fresh[i].topic),
                        reports);
    if (!topics_same)
        mark_changed(members, m->group);
    free(m->subscriptions);
    m->subscriptions = fresh;
    m->subscription_count = count;
    take_cohort(members, m, consumer->isolated, reports);
    return TERN_OK;
}

/* ---- heartbeats ---- */

/* Whether the group refuses this: it joins or changes, and differs from another member. */
static enum tern_code check_conflict(const struct member_group *group, const struct membership *m,
                                     const struct member_consumer *consumer)
{
    size_t count;
    struct member_subscription *own = members_copy_subscriptions(consumer, &count);
    if (!own)
        return TERN_NO_MEMORY;
    bool changes = !m || m->cohort != members_cohort_of(own, count);
    if (changes)
        members_find_conflict(group, m, own, count, consumer->conflict);
    free(own);
    return TERN_OK;
}

static enum tern_code beat_consumer(struct members *members, struct member_client *client,
                                    const struct member_consumer *consumer, bool same_peer,
                                    struct member_report **reports)
{
    struct membership *m = client_membership(client, consumer->group);
    struct member_group *group;
    enum tern_code code = want_group(members, consumer->group, &group);
    if (!code && consumer->conflict)
        code = check_conflict(group, m, consumer);
    if (code)
        return code;
    if (consumer->conflict && consumer->conflict->found) {
        if (m)
            m->beat = client->beats;
        return TERN_OK;
    }
    if (!m) {
        m = calloc(1, sizeof *m);
        if (!m)
            return TERN_NO_MEMORY;
        m->client = client;
        m->group = group;
        LL_PREPEND2(client->memberships, m, client_next);
        DL_APPEND(group->members, m);
        group->member_count++;
        mark_changed(members, group);
        member_report_joined(reports, consumer, client->id);
    }
    m->beat = client->beats;
    m->type = consumer->type;
    m->model = consumer->model;
    m->from = consumer->from;
    return set_subscriptions(members, m, consumer, same_peer, reports);
}

/* Replaces a list of names by these, terminated and back to back. */
static enum tern_code set_names(char **names, size_t *bytes, const char *const *groups,
                                size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += strlen(groups[i]) + 1;
    char *fresh = size ? malloc(size) : NULL;
    if (size && !fresh)
        return TERN_NO_MEMORY;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(groups[i]) + 1;
        memcpy(fresh + at, groups[i], len);
        at += len;
    }
    free(*names);
    *names = fresh;
    *bytes = size;
    return TERN_OK;
}

static enum tern_code set_producers(struct member_client *client,
                                    const struct member_heartbeat *heartbeat)
{
    enum tern_code code = set_names(&client->producers, &client->producers_bytes,
                                    heartbeat->producer_groups, heartbeat->producer_group_count);
    return code ? code
                : set_names(&client->checked, &client->checked_bytes, heartbeat->checked_groups,
                            heartbeat->checked_group_count);
}

static void copy_text(char out[MEMBER_TEXT_BYTES], const char *text)
{
    size_t len = text ? strnlen(text, MEMBER_TEXT_BYTES - 1) : 0;
    if (len)
        memcpy(out, text, len);
    out[len] = 0;
}

/* @locks holds:BROKER_MEMBERS */
static enum tern_code beat(struct members *members, const struct member_heartbeat *heartbeat,
                           int64_t now_ns, struct member_report **reports)
{
    struct member_client *client;
    for (size_t i = 0; i < PEERS_GONE_KEPT; i++)
        if (heartbeat->peer_id && members->gone[i] == heartbeat->peer_id)
            return TERN_CONNECTION_LOST;
    enum tern_code code = want_client(members, heartbeat->client_id, &client);
    if (code)
        return code;
    client->beats++;
    client->heartbeat_ns = now_ns;
    client->remote = heartbeat->remote;
    copy_text(client->language, heartbeat->language);
    copy_text(client->version, heartbeat->client_version);
    DL_DELETE(members->oldest, client);
    DL_APPEND(members->oldest, client);
    bool same_peer = client->peer && client->peer->id == heartbeat->peer_id;
    code = peer_enter(members, client, heartbeat->peer_id);
    if (!code)
        code = set_producers(client, heartbeat);
    for (size_t i = 0; !code && i < heartbeat->consumer_count; i++)
        code = beat_consumer(members, client, &heartbeat->consumers[i], same_peer, reports);
    if (code)
        return code;
    struct membership *m;
    struct membership *next;
    LL_FOREACH_SAFE2(client->memberships, m, next, client_next)
    {
        if (m->beat != client->beats)
            membership_leave(members, m, "heartbeat without it", reports);
    }
    return TERN_OK;
}

static enum tern_code check_sizes(const struct member_heartbeat *heartbeat, struct tern_error *err)
{
    if (heartbeat->consumer_count > MEMBER_GROUPS_PER_CLIENT ||
        heartbeat->producer_group_count > MEMBER_GROUPS_PER_CLIENT ||
        heartbeat->checked_group_count > MEMBER_GROUPS_PER_CLIENT)
        return error_set(err, TERN_LIMIT,
                         "a client with %zu consumer and %zu producer groups, "
                         "allowed %d each",
                         heartbeat->consumer_count, heartbeat->producer_group_count,
                         (int)MEMBER_GROUPS_PER_CLIENT);
    for (size_t i = 0; i < heartbeat->consumer_count; i++)
        if (heartbeat->consumers[i].subscription_count > MEMBER_SUBSCRIPTIONS_MAX)
            return error_set(err, TERN_LIMIT, "group %s subscribes to %zu topics, allowed %d",
                             heartbeat->consumers[i].group,
                             heartbeat->consumers[i].subscription_count,
                             (int)MEMBER_SUBSCRIPTIONS_MAX);
    return TERN_OK;
}

enum tern_code members_heartbeat(struct members *members, const struct member_heartbeat *heartbeat,
                                 struct tern_error *err)
{
    struct member_report *reports = NULL;
    enum tern_code code = check_sizes(heartbeat, err);
    if (code)
        return code;
    int64_t now_ns = clock_mono_ns(members->env.clock);
    lock_acquire(&members->lock);
    code = beat(members, heartbeat, now_ns, &reports);
    lock_release(&members->lock);
    member_reports_tell(members, reports);
    tell_changes(members);
    if (code == TERN_LIMIT)
        return error_set(err, code, "%d clients or %d groups are there, more are not allowed",
                         (int)MEMBERS_MAX, (int)MEMBER_GROUPS_MAX);
    return code ? error_set(err, code, "heartbeat of %s", heartbeat->client_id) : TERN_OK;
}

/* ---- leaving ---- */

/* Takes one name out of a list. @locks holds:BROKER_MEMBERS */
static void remove_name(char *names, size_t *bytes, const char *group)
{
    size_t len = strlen(group) + 1;
    for (size_t at = 0; at < *bytes;) {
        size_t here = strlen(names + at) + 1;
        if (here == len && !memcmp(names + at, group, len)) {
            memmove(names + at, names + at + len, *bytes - at - len);
            *bytes -= len;
        } else {
            at += here;
        }
    }
}

void members_unregister(struct members *members, const char *client_id, const char *producer_group,
                        const char *consumer_group)
{
    struct member_report *reports = NULL;
    struct member_client *client;
    lock_acquire(&members->lock);
    HASH_FIND_STR(members->clients, client_id, client);
    if (client) {
        struct membership *m = consumer_group ? client_membership(client, consumer_group) : NULL;
        if (m)
            membership_leave(members, m, "unregistered", &reports);
        if (producer_group) {
            remove_name(client->producers, &client->producers_bytes, producer_group);
            remove_name(client->checked, &client->checked_bytes, producer_group);
        }
        if (!client->memberships && !client->producers_bytes)
            client_remove(members, client, "unregistered", &reports);
    }
    lock_release(&members->lock);
    member_reports_tell(members, reports);
    tell_changes(members);
}

void members_peer_gone(struct members *members, uint64_t peer_id)
{
    struct member_report *reports = NULL;
    struct member_peer *peer;
    lock_acquire(&members->lock);
    members->gone[members->gone_next++ % PEERS_GONE_KEPT] = peer_id;
    HASH_FIND(hh, members->peers, &peer_id, sizeof peer_id, peer);
    while (peer) {
        bool last = !peer->clients->peer_next;
        client_remove(members, peer->clients, "connection lost", &reports);
        if (last) /* the peer went with its last client */
            peer = NULL;
    }
    lock_release(&members->lock);
    member_reports_tell(members, reports);
    tell_changes(members);
}

int64_t members_expire(struct members *members, int64_t now_ns)
{
    const int64_t most_ns = ms_to_ns(MEMBER_EXPIRE_MS);
    struct member_report *reports = NULL;
    lock_acquire(&members->lock);
    while (members->oldest && now_ns - members->oldest->heartbeat_ns >= most_ns)
        client_remove(members, members->oldest, "no heartbeat", &reports);
    int64_t next_ns = (members->oldest ? members->oldest->heartbeat_ns : now_ns) + most_ns;
    lock_release(&members->lock);
    member_reports_tell(members, reports);
    tell_changes(members);
    return next_ns;
}

/* ---- life ---- */

enum tern_code members_create(const struct env *env, const struct members_options *options,
                              struct members **out)
{
    struct members *members = calloc(1, sizeof *members);
    *out = members;
    if (!members)
        return TERN_NO_MEMORY;
    members->env = *env;
    members->options = *options;
    lock_init(&members->lock, LOCK_BROKER_MEMBERS);
    return TERN_OK;
}

void members_destroy(struct members *members)
{
    if (!members)
        return;
    struct member_report *reports = NULL;
    while (members->oldest)
        client_remove(members, members->oldest, "broker stops", &reports);
    member_reports_free(reports);
    struct member_group *group;
    struct member_group *next;
    HASH_ITER (hh, members->groups, group, next)
        group_free(members, group);
    lock_fini(&members->lock);
    free(members);
}
