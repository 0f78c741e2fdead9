/*
 * The kinds of trace records as rows of fields: writing and reading walk the same row.
 *
 * Threads: any. Failure modes: a record that does not fit is not written at all; one that cannot be
 * read is skipped.
 */
#include "client/trace_codec.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum field_type { FIELD_TEXT, FIELD_I64, FIELD_I32, FIELD_BOOL };

enum { FIELDS_MAX = 16, FIELD_END = '\x01', RECORD_END = '\x02' };

/* Where a field lies in a record, and where a decoded text of it is kept. */
struct field {
    enum field_type type;
    size_t at, text_at, text_cap;
};
#define TEXT(name)                                                                                 \
    {                                                                                              \
        FIELD_TEXT, offsetof(struct trace_record, name), offsetof(struct trace_decoded, name),     \
            sizeof(((struct trace_decoded *)0)->name)                                              \
    }
#define NUMBER(kind, name)                                                                         \
    {                                                                                              \
        kind, offsetof(struct trace_record, name), 0, 0                                            \
    }

static const struct row {
    const char *name;
    size_t required; /* fields without which it is no record */
    size_t count;
    struct field fields[FIELDS_MAX];
} rows[] = {
    [TRACE_PUB] = {"Pub",
                   11,
                   13,
                   {NUMBER(FIELD_I64, time_ms), TEXT(region), TEXT(group), TEXT(topic),
                    TEXT(message_id), TEXT(tags), TEXT(keys), TEXT(store_host),
                    NUMBER(FIELD_I64, body_bytes), NUMBER(FIELD_I64, cost_ms),
                    NUMBER(FIELD_I32, message_type), TEXT(offset_id), NUMBER(FIELD_BOOL, success)}},
    [TRACE_SUB_BEFORE] = {"SubBefore",
                          7,
                          7,
                          {NUMBER(FIELD_I64, time_ms), TEXT(region), TEXT(group), TEXT(request_id),
                           TEXT(message_id), NUMBER(FIELD_I32, times), TEXT(keys)}},
    [TRACE_SUB_AFTER] = {"SubAfter",
                         5,
                         8,
                         {TEXT(request_id), TEXT(message_id), NUMBER(FIELD_I64, cost_ms),
                          NUMBER(FIELD_BOOL, success), TEXT(keys), NUMBER(FIELD_I32, context),
                          NUMBER(FIELD_I64, time_ms), TEXT(group)}},
    [TRACE_END_TRANSACTION] = {"EndTransaction",
                               12,
                               12,
                               {NUMBER(FIELD_I64, time_ms), TEXT(region), TEXT(group), TEXT(topic),
                                TEXT(message_id), TEXT(tags), TEXT(keys), TEXT(store_host),
                                NUMBER(FIELD_I32, message_type), TEXT(transaction_id),
                                TEXT(transaction_state), NUMBER(FIELD_BOOL, from_check)}},
};

/* ---- writing ---- */

struct writer {
    char *dst;
    size_t len, cap;
    bool full;
};

static void put(struct writer *w, const char *text)
{
    size_t len = strlen(text);
    if (w->full || len > w->cap - w->len) {
        w->full = true;
        return;
    }
    memcpy(w->dst + w->len, text, len);
    w->len += len;
}

/* An application's text: cut where it is too long, without our separators. */
static void put_text(struct writer *w, const char *text)
{
    size_t begin = w->len;
    char cut[TRACE_KEYS_MAX + 1];
    snprintf(cut, sizeof cut, "%s", text);
    put(w, cut);
    for (size_t i = begin; i < w->len; i++)
        if (w->dst[i] == FIELD_END || w->dst[i] == RECORD_END)
            w->dst[i] = ' ';
}

static void put_field(struct writer *w, const struct field *field,
                      const struct trace_record *record)
{
    const char *base = (const char *)record + field->at;
    char number[24];
    const char *text = number;
    switch (field->type) {
    case FIELD_TEXT:
        memcpy(&text, base, sizeof text);
        break;
    case FIELD_I64: {
        int64_t value;
        memcpy(&value, base, sizeof value);
        snprintf(number, sizeof number, "%" PRId64, value);
        break;
    }
    case FIELD_I32: {
        int32_t value;
        memcpy(&value, base, sizeof value);
        snprintf(number, sizeof number, "%" PRId32, value);
        break;
    }
    case FIELD_BOOL: {
        bool value;
        memcpy(&value, base, sizeof value);
        text = value ? "true" : "false";
        break;
    }
    }
    put(w, "\x01");
    put_text(w, text ? text : "");
}

size_t trace_encode(const struct trace_record *record, char *dst, size_t cap)
{
    const struct row *row = &rows[record->kind];
    struct writer w = {.dst = dst, .cap = cap};
    put(&w, row->name);
    for (size_t i = 0; i < row->count; i++)
        put_field(&w, &row->fields[i], record);
    put(&w, "\x02");
    return w.full ? 0 : w.len;
}

/* ---- reading ---- */

static bool parse_number(const char *text, size_t len, int64_t *out)
{
    char copy[24];
    char *end;
    if (len == 0 || len >= sizeof copy)
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    *out = strtoll(copy, &end, 10);
    return *end == 0;
}

/* Java writes what it does not have as "null". */
static bool is_null(const char *text, size_t len)
{
    return len == 4 && memcmp(text, "null", 4) == 0;
}

static bool take_field(struct trace_decoded *out, const struct field *field, const char *text,
                       size_t len)
{
    char *base = (char *)&out->record + field->at;
    int64_t number = 0;
    if (field->type == FIELD_TEXT) {
        char *copy = (char *)out + field->text_at;
        size_t kept = is_null(text, len) ? 0 : len < field->text_cap ? len : field->text_cap - 1;
        memcpy(copy, text, kept);
        copy[kept] = 0;
        return memchr(text, 0, len) == NULL;
    }
    if (field->type == FIELD_BOOL) {
        bool value = len == 4 && memcmp(text, "true", 4) == 0;
        memcpy(base, &value, sizeof value);
        return value || (len == 5 && memcmp(text, "false", 5) == 0);
    }
    if (!parse_number(text, len, &number))
        return false;
    if (field->type == FIELD_I64) {
        memcpy(base, &number, sizeof number);
        return true;
    }
    int32_t narrow = (int32_t)number;
    memcpy(base, &narrow, sizeof narrow);
    return narrow == number;
}

/* All texts empty, and pointed to. */
static void reset(struct trace_decoded *out, enum trace_kind kind)
{
    memset(out, 0, sizeof *out);
    struct trace_record *r = &out->record;
    r->kind = kind;
    r->region = out->region;
    r->group = out->group;
    r->topic = out->topic;
    r->message_id = out->message_id;
    r->tags = out->tags;
    r->keys = out->keys;
    r->store_host = out->store_host;
    r->offset_id = out->offset_id;
    r->request_id = out->request_id;
    r->transaction_id = out->transaction_id;
    r->transaction_state = out->transaction_state;
    r->success = true; /* what older clients do not say */
}

static const struct row *row_named(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (len == strlen(rows[i].name) && memcmp(name, rows[i].name, len) == 0)
            return &rows[i];
    return NULL;
}

static size_t field_len(const char *text, size_t len)
{
    const char *end = memchr(text, FIELD_END, len);
    return end ? (size_t)(end - text) : len;
}

/* One record without its end. */
static bool read_record(const char *text, size_t len, struct trace_decoded *out)
{
    size_t first = field_len(text, len);
    const struct row *row = row_named(text, first);
    if (!row)
        return false;
    reset(out, (enum trace_kind)(row - rows));
    size_t at = first;
    size_t taken = 0;
    while (at < len && taken < row->count) {
        at++; /* the separator */
        size_t n = field_len(text + at, len - at);
        if (!take_field(out, &row->fields[taken], text + at, n))
            return false;
        at += n;
        taken++;
    }
    return taken >= row->required;
}

bool trace_decode(const char *text, size_t len, size_t *cursor, struct trace_decoded *out,
                  size_t *skipped)
{
    while (*cursor < len) {
        const char *begin = text + *cursor;
        const char *end = memchr(begin, RECORD_END, len - *cursor);
        size_t size = end ? (size_t)(end - begin) : len - *cursor;
        *cursor += size + (end != NULL);
        if (size > 0 && read_record(begin, size, out))
            return true;
        if (size > 0)
            ++*skipped;
    }
    return false;
}
