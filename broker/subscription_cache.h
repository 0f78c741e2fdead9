/*
 * Compiled subscriptions by type and text, so that pulls which carry their expression every time
 * compile it once. A few hundred are kept; of those that share a place the one that was put there
 * first goes. What does not parse is not kept.
 */
#ifndef BROKER_SUBSCRIPTION_CACHE_H
#define BROKER_SUBSCRIPTION_CACHE_H

#include "base/error.h"
#include "base/subscription.h"

enum { SUBSCRIPTION_CACHE_SETS = 128, SUBSCRIPTION_CACHE_WAYS = 4 };

struct subscription_cache;

MUST_CHECK enum tern_code subscription_cache_create(struct subscription_cache **out);
/* References that were given out stay valid. NULL allowed. */
void subscription_cache_destroy(struct subscription_cache *cache);
/*
 * *out is a reference, the caller's: subscription_free(). Errors as subscription_compile().
 * @thread any @locks takes:BROKER_FILTERS
 */
MUST_CHECK enum tern_code subscription_cache_get(struct subscription_cache *cache,
                                                 enum subscription_type type,
                                                 const char *expression, struct subscription **out,
                                                 struct tern_error *err);

#endif
