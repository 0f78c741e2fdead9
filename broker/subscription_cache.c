/*
 * A set-associative table: the text's hash chooses the set, its ways are replaced in turn.
 * Compiling happens without the lock; two that compile the same at once both put it, which does no
 * harm.
 *
 * Its place: every pull with an expression and every heartbeat ask here. Threads: any; the lock is
 * held for a few comparisons. Failure modes: TERN_NO_MEMORY, and what does not parse.
 */
#include "broker/subscription_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/names.h"

struct cache_set {
    struct subscription *ways[SUBSCRIPTION_CACHE_WAYS]; /* references */
    unsigned next;                                      /* way to be replaced */
};

struct subscription_cache {
    struct lock lock; /* protects the rest */
    struct cache_set sets[SUBSCRIPTION_CACHE_SETS];
};

enum tern_code subscription_cache_create(struct subscription_cache **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return TERN_NO_MEMORY;
    lock_init(&(*out)->lock, LOCK_BROKER_FILTERS);
    return TERN_OK;
}

void subscription_cache_destroy(struct subscription_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < SUBSCRIPTION_CACHE_SETS; i++)
        for (int w = 0; w < SUBSCRIPTION_CACHE_WAYS; w++)
            subscription_free(cache->sets[i].ways[w]);
    lock_fini(&cache->lock);
    free(cache);
}

/* A reference, or NULL. @locks holds:BROKER_FILTERS */
static struct subscription *find(const struct cache_set *set, enum subscription_type type,
                                 const char *expression)
{
    for (int w = 0; w < SUBSCRIPTION_CACHE_WAYS; w++) {
        struct subscription *held = set->ways[w];
        if (held && subscription_type(held) == type && !strcmp(subscription_text(held), expression))
            return subscription_ref(held);
    }
    return NULL;
}

enum tern_code subscription_cache_get(struct subscription_cache *cache, enum subscription_type type,
                                      const char *expression, struct subscription **out,
                                      struct tern_error *err)
{
    size_t len = strlen(expression);
    uint32_t hash = (uint32_t)java_hash(expression, len) + (uint32_t)type;
    struct cache_set *set = &cache->sets[hash % SUBSCRIPTION_CACHE_SETS];
    lock_acquire(&cache->lock);
    *out = find(set, type, expression);
    lock_release(&cache->lock);
    if (*out)
        return TERN_OK;
    enum tern_code code = subscription_compile(type, expression, len, out, err);
    if (code || strcmp(subscription_text(*out), expression) != 0) /* has blanks around: not found */
        return code;
    lock_acquire(&cache->lock);
    struct subscription *old = set->ways[set->next];
    set->ways[set->next] = subscription_ref(*out);
    set->next = (set->next + 1) % SUBSCRIPTION_CACHE_WAYS;
    lock_release(&cache->lock);
    subscription_free(old);
    return TERN_OK;
}
