/*
 * JSON with fastjson's integer keys.
 *
 * Reading takes two passes: the text is scanned once, which bounds its depth and finds integer keys
 * without quotes; only when there are some it is copied with the quotes put in. The rest is
 * jansson's.
 *
 * The scanner knows just enough: strings, brackets, and that in an object a key may stand after '{'
 * and ','. It accepts more than JSON; jansson then refuses what is none.
 *
 * Threads: any. Failure modes: TERN_TOO_LARGE, TERN_CORRUPT with line and cause, TERN_NO_MEMORY.
 */
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH_MAX = 64, JSON_MAX_BYTES = 64 << 20 };

struct scanner {
    const char *text;
    size_t len;
    size_t at;
    unsigned depth;
    uint64_t objects; /* bit d: level d is an object, not an array */
    bool key_may_follow;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Behind the string that begins at `at`, or the end of the text. */
static size_t skip_string(const char *text, size_t len, size_t at)
{
    for (at++; at < len && text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at < len ? at + 1 : len;
}

/* Length of an integer at `at` that a ':' follows, else 0. */
static size_t integer_key_len(const char *text, size_t len, size_t at)
{
    size_t i = at;
    if (i < len && text[i] == '-')
        i++;
    size_t first = i;
    while (i < len && text[i] >= '0' && text[i] <= '9')
        i++;
    size_t end = i;
    while (i < len && is_space(text[i]))
        i++;
    return end > first && i < len && text[i] == ':' ? end - at : 0;
}

/*
 * Goes on to the next integer key: true, *start and *key_len say where. false at the end of the
 * text, or when it is nested too deep (depth is then above the limit).
 */
static bool scan_to_key(struct scanner *s, size_t *start, size_t *key_len)
{
    while (s->at < s->len) {
        char c = s->text[s->at];
        if (is_space(c)) {
            s->at++;
            continue;
        }
        if (s->key_may_follow) {
            s->key_may_follow = false;
            *key_len = integer_key_len(s->text, s->len, s->at);
            *start = s->at;
            s->at += *key_len;
            if (*key_len)
                return true;
        }
        if (c == '"') {
            s->at = skip_string(s->text, s->len, s->at);
            continue;
        }
        if (c == '{' || c == '[') {
            if (++s->depth > JSON_DEPTH_MAX)
                return false;
            uint64_t bit = UINT64_C(1) << (s->depth - 1);
            s->objects = c == '{' ? s->objects | bit : s->objects & ~bit;
            s->key_may_follow = c == '{';
        } else if ((c == '}' || c == ']') && s->depth > 0) {
            s->depth--;
        } else if (c == ',' && s->depth > 0) {
            s->key_may_follow = s->objects >> (s->depth - 1) & 1;
        }
        s->at++;
    }
    return false;
}

/* Number of integer keys, or -1 when the text is nested too deep. */
static int64_t count_keys(const char *text, size_t len)
{
    struct scanner s = {.text = text, .len = len};
    size_t start;
    size_t key_len;
    int64_t count = 0;
    while (scan_to_key(&s, &start, &key_len))
        count++;
    return s.depth > JSON_DEPTH_MAX ? -1 : count;
}

/* A copy with all integer keys quoted; NULL without memory. */
static char *quote_keys(const char *text, size_t len, size_t count, size_t *out_len)
{
    char *out = malloc(len + 2 * count + 1);
    if (!out)
        return NULL;
    struct scanner s = {.text = text, .len = len};
    size_t start;
    size_t key_len;
    size_t copied = 0;
    size_t n = 0;
    while (scan_to_key(&s, &start, &key_len)) {
        memcpy(out + n, text + copied, start - copied);
        n += start - copied;
        out[n++] = '"';
        memcpy(out + n, text + start, key_len);
        n += key_len;
        out[n++] = '"';
        copied = start + key_len;
    }
    memcpy(out + n, text + copied, len - copied);
    *out_len = n + len - copied;
    return out;
}

enum tern_code json_parse_fastjson(const char *text, size_t len, json_t **out,
                                   struct tern_error *err)
{
    *out = NULL;
    if (len > JSON_MAX_BYTES)
        return error_set(err, TERN_TOO_LARGE, "JSON text of %zu bytes, allowed up to %d", len,
                         (int)JSON_MAX_BYTES);
    int64_t keys = count_keys(text, len);
    if (keys < 0)
        return error_set(err, TERN_CORRUPT, "JSON is nested deeper than %d levels",
                         (int)JSON_DEPTH_MAX);
    char *quoted = NULL;
    if (keys > 0) {
        quoted = quote_keys(text, len, (size_t)keys, &len);
        if (!quoted)
            return error_set(err, TERN_NO_MEMORY, "no memory for JSON of %zu bytes", len);
        text = quoted;
    }
    json_error_t problem;
    *out = json_loadb(text, len, 0, &problem);
    free(quoted);
    if (*out)
        return TERN_OK;
    if (json_error_code(&problem) == json_error_out_of_memory)
        return error_set(err, TERN_NO_MEMORY, "no memory for JSON of %zu bytes", len);
    return error_set(err, TERN_CORRUPT, "not valid JSON in line %d: %s", problem.line,
                     problem.text);
}

char *json_format_pretty(const json_t *json, size_t *len)
{
    *len = 0;
    char *text = json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT | JSON_INDENT(1));
    if (!text)
        return NULL;
    /* jansson indents with one blank a level; a raw line break occurs nowhere else, strings escape
     * theirs. */
    bool line_start = true;
    char *p = text;
    for (; *p; p++) {
        if (line_start && *p == ' ')
            *p = '\t';
        else
            line_start = *p == '\n';
    }
    *len = (size_t)(p - text);
    return text;
}
