/*
 * Tag expressions.
 *
 * Invariants: immutable after parsing, hence readable from any thread. Tags are sorted by (hash,
 * text) and unique; both kinds of match are binary searches. One allocation holds everything:
 *
 *   [ struct | tags … | text, with NUL ]      tags point into the text
 *
 * Follows RocketMQ's FilterAPI: split at "||", trim, skip blank parts. An expression of separators
 * only is refused, as there. Failure modes: TERN_SUBSCRIPTION_PARSE_FAILED, TERN_NO_MEMORY.
 */
#include "base/subscription.h"

#include <stdlib.h>
#include <string.h>

#include "base/names.h"

struct tag {
    int32_t code;
    uint32_t len;
    const char *text; /* into subscription.text */
};

struct subscription {
    bool all;
    size_t tag_count;
    char *text;
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
    struct subscription *sub = malloc(sizeof *sub + count * sizeof sub->tags[0] + len + 1);
    if (!sub)
        return error_set(err, TERN_NO_MEMORY, "no memory for a subscription");
    sub->all = all;
    sub->tag_count = 0;
    sub->text = (char *)&sub->tags[count];
    memcpy(sub->text, text, len);
    sub->text[len] = 0;
    if (!all)
        fill_tags(sub, len);
    *out = sub;
    return TERN_OK;
}

void subscription_free(struct subscription *sub)
{
    free(sub);
}

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
    if (sub->all || tags_code < INT32_MIN || tags_code > INT32_MAX)
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

const char *subscription_text(const struct subscription *sub)
{
    return sub->text;
}
