/*
 * What a consumer wants of a topic, compiled: one type for both kinds of expression.
 *
 *   TAG    "*" (or empty) for all, else tags between "||". The broker matches the 64-bit tagsCode
 *          of ConsumeQueue units, the consumer then matches the real text, since hashes collide
 *          (FilterAPI).
 *   SQL92  a condition over the message's properties (sql.h). The broker matches the record.
 */
#ifndef BASE_SUBSCRIPTION_H
#define BASE_SUBSCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SUBSCRIPTION_TAGS_MAX = 1024, SUBSCRIPTION_TEXT_MAX = 16384 };

enum subscription_type { SUBSCRIPTION_TAG, SUBSCRIPTION_SQL92 };

struct subscription;

/* The wire's name, "TAG" or "SQL92". */
const char *subscription_type_name(enum subscription_type type);
/* "" counts as TAG. TERN_INVALID for any other name, with those that there are. */
MUST_CHECK enum tern_code subscription_type_parse(const char *name, enum subscription_type *out,
                                                  struct tern_error *err);

/* A tag expression. *out is the caller's: subscription_free(). TERN_SUBSCRIPTION_PARSE_FAILED with
 * position and cause. */
MUST_CHECK enum tern_code subscription_parse(const void *expression, size_t len,
                                             struct subscription **out, struct tern_error *err);
/* Of either type; as subscription_parse(). */
MUST_CHECK enum tern_code subscription_compile(enum subscription_type type, const void *expression,
                                               size_t len, struct subscription **out,
                                               struct tern_error *err);
/* Frees it; of one that is shared (subscription_ref), the caller's reference. NULL allowed. */
void subscription_free(struct subscription *sub);
/* One more reference to be freed. @thread any */
struct subscription *subscription_ref(struct subscription *sub);
enum subscription_type subscription_type(const struct subscription *sub);
bool subscription_matches_all(const struct subscription *sub);
/*
 * By hash, never a false negative: a code outside 32 bits is no hash (a ConsumeQueueExt address, a
 * delivery time) and matches, so that the text decides; for SQL92 everything matches. @thread any
 */
bool subscription_match_code(const struct subscription *sub, int64_t tags_code);
/* By the tag's text; a message without a tag has len 0 and matches only "*". TAG only. */
bool subscription_match_tag(const struct subscription *sub, const void *tag, size_t len);
/* By the properties (props.h): the tag's text, or the SQL92 condition. @thread any */
bool subscription_match_props(const struct subscription *sub, const uint8_t *props, size_t len);
/* The expression as given, trimmed; "*" for all. */
const char *subscription_text(const struct subscription *sub);
/*
 * What it asks for, whatever way it is written: equal for expressions that match alike because
 * their tags are the same set, or their SQL92 tokens are the same. The type is no part of it.
 */
const char *subscription_normal(const struct subscription *sub);

#endif
