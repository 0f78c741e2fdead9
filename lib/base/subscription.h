/*
 * A tag expression: "*" (or empty) for all, else tags between "||". The broker matches the 64-bit
 * tagsCode of ConsumeQueue units, the consumer then matches the real text, since hashes collide
 * (FilterAPI).
 */
#ifndef BASE_SUBSCRIPTION_H
#define BASE_SUBSCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SUBSCRIPTION_TAGS_MAX = 1024, SUBSCRIPTION_TEXT_MAX = 16384 };

struct subscription;

/* *out is the caller's: subscription_free(). TERN_SUBSCRIPTION_PARSE_FAILED with position and
 * cause. */
MUST_CHECK enum tern_code subscription_parse(const void *expression, size_t len,
                                             struct subscription **out, struct tern_error *err);
void subscription_free(struct subscription *sub);
bool subscription_matches_all(const struct subscription *sub);
/*
 * By hash, never a false negative: a code outside 32 bits is no hash (a ConsumeQueueExt address, a
 * delivery time) and matches, so that the text decides. @thread any
 */
bool subscription_match_code(const struct subscription *sub, int64_t tags_code);
/* By text; a message without a tag has len 0 and matches only "*". */
bool subscription_match_tag(const struct subscription *sub, const void *tag, size_t len);
/* The expression as given, trimmed; "*" for all. */
const char *subscription_text(const struct subscription *sub);

#endif
