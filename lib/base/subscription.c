/*
 * Subscriptions: tag expressions, and SQL92 ones around sql.h.
 *
 * Invariants: immutable after parsing, hence readable from any thread. Tags are sorted by (hash,
 * text) and unique; both kinds of match are binary searches. One allocation holds everything but a
 * compiled SQL92 expression:
 *
 *   [ struct | tags … | text, with NUL | normal form, with NUL ]      tags point into the text
 *
 * Follows RocketMQ's FilterAPI: split at "||", trim, skip blank parts. An expression of separators
 * only is refused, as there. Failure modes: TERN_SUBSCRIPTION_PARSE_FAILED, TERN_NO_MEMORY.
 */
#include "base/subscription.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "base/sql.h"

struct tag {
    int32_t code;
    uint32_t len;
    const char *text; /* into subscription.text */
};

struct subscription {
    _Atomic uint32_t refs;
    enum subscription_type type;
    bool all;
    struct sql *sql; /* NULL: TAG */
    size_t tag_count;
    char *text;
    char *normal; /* NULL: sql's */
    struct tag tags[];
};

/* Java's String.trim(): everything up to the blank goes. */
static void trim(const char **text, size_t *len)
{
    while (*len > 0 && (unsigned char)(*text)[0] <= ' ') {
        (*text)++;
        (*len)--;
    }
    while (*len > 0 && (unsigned char)(*text)[*len - 1] <= ' ')
        (*len)--;
}

/* Takes the next trimmed part off *rest; false at the end. */
static bool next_part(const char **rest, size_t *rest_len, const char **part, size_t *part_len)
{
    if (!*rest)
        return false;
    const char *separator = *rest_len ? memmem(*rest, *rest_len, "||", 2) : NULL;
    *part = *rest;
    *part_len = separator ? (size_t)(separator - *rest) : *rest_len;
    if (separator) {
        *rest_len -= *part_len + 2;
        *rest = separator + 2;
    } else {
        *rest = NULL;
    }
    trim(part, part_len);
    return true;
}

static int compare_bytes(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t shorter = a_len < b_len ? a_len : b_len;
    int order = memcmp(a, b, shorter);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_tags(const void *a, const void *b)
{
    const struct tag *x = a;
    const struct tag *y = b;
    if (x->code != y->code)
        return x->code < y->code ? -1 : 1;
    return compare_bytes(x->text, x->len, y->text, y->len);
}

static void fill_tags(struct subscription *sub, size_t len)
{
    const char *rest = sub->text;
    const char *part;
    size_t part_len;
    while (next_part(&rest, &len, &part, &part_len))
        if (part_len > 0)
            sub->tags[sub->tag_count++] = (struct tag){
                .code = java_hash(part, part_len), .len = (uint32_t)part_len, .text = part};
    qsort(sub->tags, sub->tag_count, sizeof sub->tags[0], compare_tags);
    size_t kept = 0;
    for (size_t i = 0; i < sub->tag_count; i++)
        if (kept == 0 || compare_tags(&sub->tags[kept - 1], &sub->tags[i]) != 0)
            sub->tags[kept++] = sub->tags[i];
    sub->tag_count = kept;
}

static int compare_texts(const void *a, const void *b)
{
    const struct tag *x = a;
    const struct tag *y = b;
    return compare_bytes(x->text, x->len, y->text, y->len);
}

/* "A || B", tags by their text; there is room for as much as the text has and a separator each. */
static void write_normal(struct subscription *sub)
{
    char *at = sub->normal;
    if (sub->all) {
        memcpy(at, "*", 2);
        return;
    }
    qsort(sub->tags, sub->tag_count, sizeof sub->tags[0], compare_texts);
    for (size_t i = 0; i < sub->tag_count; i++) {
        if (i)
            at = mempcpy(at, " || ", 4);
        at = mempcpy(at, sub->tags[i].text, sub->tags[i].len);
    }
    *at = 0;
    qsort(sub->tags, sub->tag_count, sizeof sub->tags[0], compare_tags);
}

static enum tern_code check_text(const char *text, size_t len, struct tern_error *err)
{
    if (len > SUBSCRIPTION_TEXT_MAX)
        return error_set(err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "expression has %zu bytes, allowed up to %d", len,
                         (int)SUBSCRIPTION_TEXT_MAX);
    if (utf8_valid(text, len))
        return TERN_OK;
    size_t good = 0; /* longest valid beginning that ends with a code point */
    for (size_t i = 1; i <= len && i <= good + 4; i++)
        if (utf8_valid(text + good, i - good))
            good = i;
    return error_set(err, TERN_SUBSCRIPTION_PARSE_FAILED,
                     "ill-formed UTF-8 or NUL at position %zu of the expression", good);
}

/* With its text; room for `count` tags and for `more` bytes of normal form beyond the text's. */
static struct subscription *make(enum subscription_type type, size_t count, const char *text,
                                 size_t len, size_t more)
{
    struct subscription *sub = NULL;
    sub = malloc(sizeof *sub + count * sizeof sub->tags[0] + 2 * (len + 1) + more);
    if (!sub)
        return NULL;
    *sub = (struct subscription){.refs = 1, .type = type, .text = (char *)&sub->tags[count]};
    memcpy(sub->text, text, len);
    sub->text[len] = 0;
    if (type == SUBSCRIPTION_TAG)
        sub->normal = sub->text + len + 1;
    return sub;
}

enum tern_code subscription_parse(const void *expression, size_t len, struct subscription **out,
                                  struct tern_error *err)
{
    *out = NULL;
    const char *text = len ? expression : "";
    enum tern_code code = check_text(text, len, err);
    if (code)
        return code;
    const char *start = text;
    trim(&text, &len);
    bool all = len == 0 || (len == 1 && text[0] == '*');
    if (len == 0) {
        text = "*";
        len = 1;
    }
    size_t count = 0;
    const char *rest = all ? NULL : text;
    size_t rest_len = len;
    const char *part;
    size_t part_len;
    while (next_part(&rest, &rest_len, &part, &part_len)) {
        count += part_len > 0;
        if (count > SUBSCRIPTION_TAGS_MAX)
            return error_set(err, TERN_SUBSCRIPTION_PARSE_FAILED,
                             "more than %d tags, at position %zu", (int)SUBSCRIPTION_TAGS_MAX,
                             (size_t)(part - start));
    }
    if (!all && count == 0)
        return error_set(err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "no tag around the \"||\" at position %zu", (size_t)(text - start));
    struct subscription *sub = make(SUBSCRIPTION_TAG, count, text, len, count * 4);
    if (!sub)
        return error_set(err, TERN_NO_MEMORY, "no memory for a subscription");
    sub->all = all;
    if (!all)
        fill_tags(sub, len);
    write_normal(sub);
    *out = sub;
    return TERN_OK;
}

static enum tern_code compile_sql(const void *expression, size_t len, struct subscription **out,
                                  struct tern_error *err)
{
    struct sql *sql;
    *out = NULL;
    enum tern_code code = check_text(len ? expression : "", len, err);
    if (!code)
        code = sql_compile(len ? expression : "", len, &sql, err);
    if (code)
        return code;
    const char *text = expression;
    trim(&text, &len);
    struct subscription *sub = make(SUBSCRIPTION_SQL92, 0, text, len, 0);
    if (!sub) {
        sql_free(sql);
        return error_set(err, TERN_NO_MEMORY, "no memory for a subscription");
    }
    sub->sql = sql;
    *out = sub;
    return TERN_OK;
}

enum tern_code subscription_compile(enum subscription_type type, const void *expression, size_t len,
                                    struct subscription **out, struct tern_error *err)
{
    return type == SUBSCRIPTION_SQL92 ? compile_sql(expression, len, out, err)
                                      : subscription_parse(expression, len, out, err);
}

void subscription_free(struct subscription *sub)
{
    if (!sub || atomic_fetch_sub_explicit(&sub->refs, 1, memory_order_acq_rel) > 1)
        return;
    sql_free(sub->sql);
    free(sub);
}

struct subscription *subscription_ref(struct subscription *sub)
{
    atomic_fetch_add_explicit(&sub->refs, 1, memory_order_relaxed);
    return sub;
}

/* ---- types ---- */

static const char *const type_names[] = {
    [SUBSCRIPTION_TAG] = "TAG", [SUBSCRIPTION_SQL92] = "SQL92"};

const char *subscription_type_name(enum subscription_type type)
{
    return type_names[type];
}

enum tern_code subscription_type_parse(const char *name, enum subscription_type *out,
                                       struct tern_error *err)
{
    *out = SUBSCRIPTION_TAG;
    if (!name[0] || !strcmp(name, type_names[SUBSCRIPTION_TAG]))
        return TERN_OK;
    *out = SUBSCRIPTION_SQL92;
    if (!strcmp(name, type_names[SUBSCRIPTION_SQL92]))
        return TERN_OK;
    size_t len = strnlen(name, 32);
    return error_set(err, TERN_INVALID, "expression type %.*s is none of TAG, SQL92", (int)len,
                     len < 32 && utf8_printable(name, len) ? name : "?");
}

enum subscription_type subscription_type(const struct subscription *sub)
{
    return sub->type;
}

/* ---- matching ---- */

bool subscription_matches_all(const struct subscription *sub)
{
    return sub->all;
}

/* Index of the first tag whose code is at least `code`. */
static size_t lower_bound(const struct subscription *sub, int32_t code)
{
    size_t low = 0;
    size_t high = sub->tag_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sub->tags[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool subscription_match_code(const struct subscription *sub, int64_t tags_code)
{
    if (sub->all || sub->sql || tags_code < INT32_MIN || tags_code > INT32_MAX)
        return true;
    size_t i = lower_bound(sub, (int32_t)tags_code);
    return i < sub->tag_count && sub->tags[i].code == tags_code;
}

bool subscription_match_tag(const struct subscription *sub, const void *tag, size_t len)
{
    if (sub->all)
        return true;
    if (len == 0)
        return false;
    int32_t code = java_hash(tag, len);
    for (size_t i = lower_bound(sub, code); i < sub->tag_count && sub->tags[i].code == code; i++)
        if (sub->tags[i].len == len && memcmp(sub->tags[i].text, tag, len) == 0)
            return true;
    return false;
}

bool subscription_match_props(const struct subscription *sub, const uint8_t *props, size_t len)
{
    struct slice tag = {.ptr = NULL, .len = 0};
    if (sub->all)
        return true;
    if (sub->sql)
        return sql_match(sub->sql, props, len);
    return props_get(props, len, PROP_TAGS, &tag) && subscription_match_tag(sub, tag.ptr, tag.len);
}

const char *subscription_text(const struct subscription *sub)
{
    return sub->text;
}

const char *subscription_normal(const struct subscription *sub)
{
    return sub->sql ? sql_normal(sub->sql) : sub->normal;
}
