/*
 * Evidence of what groups got (F-6).
 *
 *   shard (by group) ─► buckets ─► counts of (group, topic, queue): totals
 *                    │                └► counts of each (member, expression), last puller first
 *                    └► buckets ─► rate of the group: delivered in each of the last seconds
 *
 * Its place: every answered pull adds to it; consumerProgress shows it.
 *
 * Invariants: all of a group lies in one shard, so one lock covers a pull. A pull that is like the
 * one before allocates nothing. Of more than PULL_STATS_MEMBERS the one that pulled longest ago is
 * forgotten; the totals keep what it got.
 *
 * Threads: any. One lock per shard, of rank METRICS: nothing is called with it held. Failure modes:
 * beyond PULL_STATS_MAX or without memory a new queue is not counted, which is logged; nothing else
 * suffers.
 */
#include "broker/pull_stats.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

enum {
    SHARDS = 16,
    BUCKETS = 4096, /* of one shard */
    RATE_BUCKETS = 256,
    RATE_SECONDS = 10
};

/* Delivered messages of the second that is running and of the ten before. */
struct rate {
    struct rate *next;
    uint32_t hash;
    int64_t first_second; /* of the group's first pull */
    int64_t seconds[RATE_SECONDS + 1];
    uint64_t delivered[RATE_SECONDS + 1];
    char group[];
};

/* What one member got with one expression. */
struct member_counts {
    struct member_counts *next;
    uint64_t scanned, delivered, filtered;
    const char *expression; /* in texts */
    char texts[];           /* client id, expression, terminated each */
};

struct counts {
    struct counts *next;
    uint32_t hash;
    int32_t queue_id;
    uint64_t scanned, delivered, filtered;
    struct member_counts *members; /* owned, the last puller first; NULL: none could be kept */
    struct rate *rate;             /* of the group */
    const char *topic;             /* in names */
    char names[];                  /* group, topic, terminated each */
};

struct shard {
    struct lock lock; /* protects the rest */
    struct counts *counts[BUCKETS];
    struct rate *rates[RATE_BUCKETS];
};

struct pull_stats {
    struct env env;
    _Atomic uint32_t count;
    struct shard shards[SHARDS];
};

static uint32_t hash_text(uint32_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT32_C(16777619);
    return hash;
}

static uint32_t hash_group(const char *group)
{
    uint32_t hash = hash_text(UINT32_C(2166136261), group);
    return hash ^ hash >> 15;
}

static struct shard *shard_of(struct pull_stats *stats, uint32_t group_hash)
{
    return &stats->shards[group_hash % SHARDS];
}

static uint32_t hash_queue(uint32_t group_hash, const char *topic, int32_t queue_id)
{
    uint32_t hash = hash_text(group_hash, topic);
    hash = (hash ^ (uint32_t)queue_id) * UINT32_C(0x9E3779B1);
    return hash ^ hash >> 16;
}

/* ---- finding and making; @locks holds:METRICS ---- */

static struct counts *find(struct shard *shard, uint32_t hash, const char *group, const char *topic,
                           int32_t queue_id)
{
    struct counts *c = shard->counts[hash % BUCKETS];
    while (c && !(c->hash == hash && c->queue_id == queue_id && !strcmp(c->names, group) &&
                  !strcmp(c->topic, topic)))
        c = c->next;
    return c;
}

static struct rate *find_rate(struct shard *shard, uint32_t hash, const char *group)
{
    struct rate *rate = shard->rates[hash / SHARDS % RATE_BUCKETS];
    while (rate && !(rate->hash == hash && !strcmp(rate->group, group)))
        rate = rate->next;
    return rate;
}

static struct rate *want_rate(struct shard *shard, uint32_t hash, const char *group, int64_t second)
{
    struct rate *rate = find_rate(shard, hash, group);
    if (rate)
        return rate;
    size_t len = strlen(group) + 1;
    rate = calloc(1, sizeof *rate + len);
    if (!rate)
        return NULL;
    memcpy(rate->group, group, len);
    rate->hash = hash;
    rate->first_second = second;
    struct rate **bucket = &shard->rates[hash / SHARDS % RATE_BUCKETS];
    rate->next = *bucket;
    *bucket = rate;
    return rate;
}

static struct counts *make(struct pull_stats *stats, struct shard *shard, uint32_t group_hash,
                           uint32_t hash, const char *group, const char *topic, int64_t second)
{
    size_t group_size = strlen(group) + 1;
    size_t topic_size = strlen(topic) + 1;
    if (atomic_load(&stats->count) >= PULL_STATS_MAX)
        return NULL;
    struct rate *rate = want_rate(shard, group_hash, group, second);
    struct counts *c = rate ? calloc(1, sizeof *c + group_size + topic_size) : NULL;
    if (!c)
        return NULL;
    memcpy(c->names, group, group_size);
    memcpy(c->names + group_size, topic, topic_size);
    c->topic = c->names + group_size;
    c->hash = hash;
    c->rate = rate;
    c->next = shard->counts[hash % BUCKETS];
    shard->counts[hash % BUCKETS] = c;
    atomic_fetch_add(&stats->count, 1);
    return c;
}

static void counts_free(struct counts *c)
{
    for (struct member_counts *m = c->members, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    free(c);
}

/* Takes the member's counts out of the list, or the last of a full one, which is freed; NULL when
 * it is not there. */
static struct member_counts *take_member(struct counts *c, const char *client_id,
                                         const char *expression)
{
    uint32_t seen = 0;
    for (struct member_counts **link = &c->members; *link; link = &(*link)->next) {
        struct member_counts *m = *link;
        bool same = !strcmp(m->texts, client_id) && !strcmp(m->expression, expression);
        if (!same && ++seen < PULL_STATS_MEMBERS)
            continue;
        *link = m->next;
        if (same)
            return m;
        free(m);
        return NULL;
    }
    return NULL;
}

/* The member's counts, at the head of the list; NULL: no memory. */
static struct member_counts *want_member(struct counts *c, const char *client_id,
                                         const char *expression)
{
    struct member_counts *m = take_member(c, client_id, expression);
    if (!m) {
        size_t id_size = strlen(client_id) + 1;
        size_t expression_size = strlen(expression) + 1;
        m = calloc(1, sizeof *m + id_size + expression_size);
        if (!m)
            return NULL;
        memcpy(m->texts, client_id, id_size);
        memcpy(m->texts + id_size, expression, expression_size);
        m->expression = m->texts + id_size;
    }
    m->next = c->members;
    c->members = m;
    return m;
}

static void rate_add(struct rate *rate, int64_t second, uint32_t delivered)
{
    size_t i = (size_t)(second % (RATE_SECONDS + 1));
    if (rate->seconds[i] != second) {
        rate->seconds[i] = second;
        rate->delivered[i] = 0;
    }
    rate->delivered[i] += delivered;
}

/* ---- outside ---- */

enum tern_code pull_stats_create(const struct env *env, struct pull_stats **out)
{
    struct pull_stats *stats = calloc(1, sizeof *stats);
    *out = stats;
    if (!stats)
        return TERN_NO_MEMORY;
    stats->env = *env;
    for (int i = 0; i < SHARDS; i++)
        lock_init(&stats->shards[i].lock, LOCK_METRICS);
    return TERN_OK;
}

void pull_stats_destroy(struct pull_stats *stats)
{
    if (!stats)
        return;
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &stats->shards[i];
        for (int b = 0; b < BUCKETS; b++)
            for (struct counts *c = shard->counts[b], *next; c; c = next) {
                next = c->next;
                counts_free(c);
            }
        for (int b = 0; b < RATE_BUCKETS; b++)
            for (struct rate *r = shard->rates[b], *next; r; r = next) {
                next = r->next;
                free(r);
            }
        lock_fini(&shard->lock);
    }
    free(stats);
}

void pull_stats_add(struct pull_stats *stats, const char *group, const char *topic,
                    int32_t queue_id, const char *client_id, const char *expression,
                    uint32_t scanned, uint32_t delivered, uint32_t filtered)
{
    int64_t second = clock_mono_ns(stats->env.clock) / INT64_C(1000000000);
    uint32_t group_hash = hash_group(group);
    uint32_t hash = hash_queue(group_hash, topic, queue_id);
    struct shard *shard = shard_of(stats, group_hash);
    lock_acquire(&shard->lock);
    struct counts *c = find(shard, hash, group, topic, queue_id);
    if (!c) {
        c = make(stats, shard, group_hash, hash, group, topic, second);
        if (c)
            c->queue_id = queue_id;
    }
    if (c) {
        c->scanned += scanned;
        c->delivered += delivered;
        c->filtered += filtered;
        struct member_counts *m = want_member(c, client_id, expression);
        if (m) {
            m->scanned += scanned;
            m->delivered += delivered;
            m->filtered += filtered;
        }
        rate_add(c->rate, second, delivered);
    }
    lock_release(&shard->lock);
    if (!c)
        log_warn(stats->env.log, "pull_not_counted", "group=%s topic=%s queue=%" PRId32, group,
                 topic, queue_id);
}

static void copy_text(char *out, size_t size, const char *text)
{
    size_t len = text ? strnlen(text, size - 1) : 0;
    if (len)
        memcpy(out, text, len);
    while (len > 0 && text[len] && (text[len] & 0xC0) == 0x80) /* not inside a UTF-8 sequence */
        len--;
    out[len] = 0;
}

static void copy_member(const struct member_counts *m, struct pull_stats_view *out)
{
    copy_text(out->client_id, sizeof out->client_id, m ? m->texts : "");
    copy_text(out->expression, sizeof out->expression, m ? m->expression : "");
}

bool pull_stats_get(struct pull_stats *stats, const char *group, const char *topic,
                    int32_t queue_id, struct pull_stats_view *out)
{
    uint32_t group_hash = hash_group(group);
    struct shard *shard = shard_of(stats, group_hash);
    lock_acquire(&shard->lock);
    const struct counts *c =
        find(shard, hash_queue(group_hash, topic, queue_id), group, topic, queue_id);
    if (c) {
        out->scanned = c->scanned;
        out->delivered = c->delivered;
        out->filtered = c->filtered;
        copy_member(c->members, out);
    }
    lock_release(&shard->lock);
    return c != NULL;
}

size_t pull_stats_members(struct pull_stats *stats, const char *group, const char *topic,
                          int32_t queue_id, struct pull_stats_view out[PULL_STATS_MEMBERS])
{
    uint32_t group_hash = hash_group(group);
    struct shard *shard = shard_of(stats, group_hash);
    size_t count = 0;
    lock_acquire(&shard->lock);
    const struct counts *c =
        find(shard, hash_queue(group_hash, topic, queue_id), group, topic, queue_id);
    for (const struct member_counts *m = c ? c->members : NULL; m; m = m->next) {
        struct pull_stats_view *view = &out[count++];
        view->scanned = m->scanned;
        view->delivered = m->delivered;
        view->filtered = m->filtered;
        copy_member(m, view);
    }
    lock_release(&shard->lock);
    return count;
}

double pull_stats_group_rate(struct pull_stats *stats, const char *group)
{
    int64_t now = clock_mono_ns(stats->env.clock) / INT64_C(1000000000);
    uint32_t group_hash = hash_group(group);
    struct shard *shard = shard_of(stats, group_hash);
    uint64_t sum = 0;
    int64_t span = 0;
    lock_acquire(&shard->lock);
    const struct rate *rate = find_rate(shard, group_hash, group);
    if (rate) { /* whole seconds only, the running one is not over */
        span = now - rate->first_second;
        for (int i = 0; i <= RATE_SECONDS; i++)
            if (rate->seconds[i] < now && rate->seconds[i] >= now - RATE_SECONDS)
                sum += rate->delivered[i];
    }
    lock_release(&shard->lock);
    if (span > RATE_SECONDS)
        span = RATE_SECONDS;
    return span > 0 ? (double)sum / (double)span : 0;
}

/* Forgets what matches; group or topic NULL: any. @locks holds:METRICS */
static void forget(struct pull_stats *stats, struct shard *shard, const char *group,
                   const char *topic)
{
    for (int b = 0; b < BUCKETS; b++)
        for (struct counts **link = &shard->counts[b]; *link;) {
            struct counts *c = *link;
            if ((group && strcmp(c->names, group)) || (topic && strcmp(c->topic, topic))) {
                link = &c->next;
                continue;
            }
            *link = c->next;
            counts_free(c);
            atomic_fetch_sub(&stats->count, 1);
        }
}

void pull_stats_forget_topic(struct pull_stats *stats, const char *topic)
{
    for (int i = 0; i < SHARDS; i++) {
        lock_acquire(&stats->shards[i].lock);
        forget(stats, &stats->shards[i], NULL, topic);
        lock_release(&stats->shards[i].lock);
    }
}

void pull_stats_forget_group(struct pull_stats *stats, const char *group)
{
    uint32_t hash = hash_group(group);
    struct shard *shard = shard_of(stats, hash);
    lock_acquire(&shard->lock);
    forget(stats, shard, group, NULL);
    struct rate *rate = find_rate(shard, hash, group);
    if (rate) {
        struct rate **link = &shard->rates[hash / SHARDS % RATE_BUCKETS];
        while (*link != rate)
            link = &(*link)->next;
        *link = rate->next;
        free(rate);
    }
    lock_release(&shard->lock);
}
