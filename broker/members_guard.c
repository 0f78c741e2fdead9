/*
 * Do the members of a group subscribe alike (F-3)? Comparing members' subscriptions by what they
 * ask for, not by how it is written; finding the first difference; and cohorts, the members of a
 * group that ask for the same.
 *
 * Its place: members.c asks at each heartbeat, handlers of pulls and of progress ask through
 * guard.h. A cohort's number depends on nothing but the subscriptions, so every broker of a set
 * comes to the same.
 *
 * Threads: any; one short lock. Failure modes: TERN_NO_MEMORY when ids are listed.
 */
#include "broker/members_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *member_normal(const struct member_subscription *s)
{
    return s->normal ? s->normal : s->expression;
}

bool members_ask_alike(const struct member_subscription *a, const struct member_subscription *b)
{
    return !strcmp(a->expression_type, b->expression_type) &&
           !strcmp(member_normal(a), member_normal(b));
}

/* FNV-1a, of the text and its end. */
static uint32_t hash_text(uint32_t hash, const char *text)
{
    do {
        hash = (hash ^ (uint8_t)*text) * UINT32_C(16777619);
    } while (*text++);
    return hash;
}

uint32_t members_cohort_of(const struct member_subscription *subscriptions, size_t count)
{
    uint32_t hash = UINT32_C(2166136261);
    for (size_t i = 0; i < count; i++) {
        hash = hash_text(hash, subscriptions[i].topic);
        hash = hash_text(hash, subscriptions[i].expression_type);
        hash = hash_text(hash, member_normal(&subscriptions[i]));
    }
    hash ^= hash >> 16; /* close texts end far apart */
    hash *= UINT32_C(0x85EBCA6B);
    hash ^= hash >> 13;
    return hash ? hash : 1; /* 0 says: no cohort */
}

/* ---- differences ---- */

static void show(char out[CONFLICT_EXPRESSION_BYTES], const struct member_subscription *s)
{
    if (!s)
        snprintf(out, CONFLICT_EXPRESSION_BYTES, "(not subscribed)");
    else if (snprintf(out, CONFLICT_EXPRESSION_BYTES, "%s", s->expression) >=
             CONFLICT_EXPRESSION_BYTES)
        memcpy(out + CONFLICT_EXPRESSION_BYTES - 4, "...", 4);
}

static void fill_conflict(struct member_conflict *out, const struct membership *other,
                          const char *topic, const struct member_subscription *own,
                          const struct member_subscription *others)
{
    out->found = true;
    snprintf(out->other, sizeof out->other, "%s", other->client->id);
    snprintf(out->topic, sizeof out->topic, "%s", topic);
    show(out->own, own);
    show(out->others, others);
}

/* The first topic that both lists, sorted, do not ask for alike. */
static bool differ(const struct membership *other, const struct member_subscription *own,
                   size_t count, struct member_conflict *out)
{
    size_t i = 0;
    size_t k = 0;
    while (i < count || k < other->subscription_count) {
        const struct member_subscription *a = i < count ? &own[i] : NULL;
        const struct member_subscription *b =
            k < other->subscription_count ? &other->subscriptions[k] : NULL;
        int order = !a ? 1 : !b ? -1 : strcmp(a->topic, b->topic);
        if (order != 0 || !members_ask_alike(a, b)) {
            fill_conflict(out, other, order <= 0 ? a->topic : b->topic, order <= 0 ? a : NULL,
                          order >= 0 ? b : NULL);
            return true;
        }
        i++;
        k++;
    }
    return false;
}

bool members_find_conflict(const struct member_group *group, const struct membership *self,
                           const struct member_subscription *own, size_t count,
                           struct member_conflict *out)
{
    const struct membership *m;
    uint32_t cohort = members_cohort_of(own, count);
    DL_FOREACH (group->members, m)
        if (m != self && m->cohort != cohort && differ(m, own, count, out))
            return true;
    return false;
}

/* ---- questions ---- */

static const struct membership *find_member(const struct member_group *group, const char *client_id)
{
    const struct membership *m = group->members;
    while (m && strcmp(m->client->id, client_id) != 0)
        m = m->next;
    return m;
}

bool members_pull_differs(struct members *members, const char *group, const char *client_id,
                          const struct member_subscription *wanted, struct member_conflict *out)
{
    out->found = false;
    lock_acquire(&members->lock);
    const struct member_group *found = members_group(members, group);
    const struct membership *self = found ? find_member(found, client_id) : NULL;
    const struct member_subscription *own = self ? membership_find(self, wanted->topic) : NULL;
    const struct membership *m = found ? found->members : NULL;
    if (own && members_ask_alike(own, wanted))
        m = NULL; /* it is a member with just this */
    for (; m && !out->found; m = m->next) {
        const struct member_subscription *s = membership_find(m, wanted->topic);
        if (m != self && s && !members_ask_alike(s, wanted))
            fill_conflict(out, m, wanted->topic, wanted, s);
    }
    lock_release(&members->lock);
    return out->found;
}

bool members_cohort(struct members *members, const char *group, const char *client_id,
                    uint32_t *cohort)
{
    lock_acquire(&members->lock);
    const struct member_group *found = members_group(members, group);
    const struct membership *m = found ? find_member(found, client_id) : NULL;
    *cohort = m ? m->cohort : 0;
    lock_release(&members->lock);
    return m != NULL;
}

enum tern_code members_of_cohort(struct members *members, const char *group, uint32_t cohort,
                                 const char ***ids, size_t *count)
{
    bool some = false;
    *ids = NULL;
    *count = 0;
    lock_acquire(&members->lock);
    const struct member_group *found = members_group(members, group);
    if (found) {
        some = found->member_count > 0;
        *ids = members_ids(found, cohort, count);
    }
    lock_release(&members->lock);
    return some && !*ids ? TERN_NO_MEMORY : TERN_OK;
}

uint32_t members_differing_groups(struct members *members)
{
    uint32_t count = 0;
    lock_acquire(&members->lock);
    for (const struct member_group *g = members->groups; g; g = g->hh.next) {
        const struct membership *m = g->members;
        while (m && m->cohort == g->members->cohort)
            m = m->next;
        count += m != NULL;
    }
    lock_release(&members->lock);
    return count;
}
