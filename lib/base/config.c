/*
 * Configuration tables: defaults, single settings, printing. Files are read in config_yaml.c,
 * values in config_value.c.
 *
 * Threads: any, as far as the caller guards the struct. Failure modes: TERN_CONFIG with a text that
 * begins with where the value came from and its key; a default that its own row refuses is a bug
 * and aborts.
 */
#include "base/config_internal.h"

#include <ctype.h>
#include <string.h>

enum { KEY_MAX = 64 };

const struct config_row *config_find(const struct config_table *table, const char *key, size_t len)
{
    for (size_t i = 0; i < table->count; i++) {
        const char *candidate = table->rows[i].key;
        if (strlen(candidate) == len && memcmp(candidate, key, len) == 0)
            return &table->rows[i];
    }
    return NULL;
}

static size_t field_bytes(enum config_type type)
{
    switch (type) {
    case CONFIG_BOOL:
        return sizeof(bool);
    case CONFIG_STRING:
        return CONFIG_STRING_BYTES;
    case CONFIG_ENUM:
        return sizeof(int32_t);
    case CONFIG_INT:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        break;
    }
    return sizeof(int64_t);
}

void config_defaults(const struct config_table *table, void *config)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct config_row *row = &table->rows[i];
        if (row->refused)
            continue;
        memset((char *)config + row->offset, 0, field_bytes(row->type));
        if (row->fallback)
            ENSURE(config_value_store(row, config, row->fallback, strlen(row->fallback), NULL) ==
                   TERN_OK);
    }
}

/* Edit distance of two keys without regard to case; KEY_MAX when one is too long. */
static size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t row[KEY_MAX + 1];
    if (a_len > KEY_MAX || b_len > KEY_MAX)
        return KEY_MAX;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            size_t best = diagonal + !same;
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_len];
}

/* The key that was probably meant, or NULL. */
static const char *closest_key(const struct config_table *table, const char *key, size_t len)
{
    const char *best = NULL;
    size_t limit = len / 3 < 3 ? len / 3 : 3; /* further away is another word */
    for (size_t i = 0; i < table->count; i++) {
        const char *candidate = table->rows[i].key;
        size_t distance = edit_distance(key, len, candidate, strlen(candidate));
        if (distance < limit || (distance == limit && !best)) {
            best = candidate;
            limit = distance;
        }
    }
    return best;
}

enum tern_code config_assign(const struct config_table *table, void *config, const char *key,
                             size_t key_len, const char *value, size_t value_len, const char *where,
                             struct tern_error *err)
{
    char shown[64];
    config_show(key, key_len, shown);
    const struct config_row *row = config_find(table, key, key_len);
    if (!row) {
        const char *meant = closest_key(table, key, key_len);
        if (meant)
            return error_set(err, TERN_CONFIG, "%s: %s: unknown key, did you mean %s?", where,
                             shown, meant);
        return error_set(err, TERN_CONFIG, "%s: %s: unknown key of %s", where, shown,
                         table->program);
    }
    if (row->refused)
        return error_set(err, TERN_CONFIG, "%s: %s: not offered: %s", where, shown, row->refused);
    enum tern_code code = config_value_store(row, config, value, value_len, err);
    return code ? error_prefix(err, code, "%s: %s", where, shown) : TERN_OK;
}

enum tern_code config_set(const struct config_table *table, void *config, const char *assignment,
                          const char *where, struct tern_error *err)
{
    const char *equals = strchr(assignment, '=');
    char shown[64];
    if (!equals || equals == assignment)
        return error_set(err, TERN_CONFIG, "%s: \"%s\" is not of the form key=value", where,
                         config_show(assignment, strlen(assignment), shown));
    return config_assign(table, config, assignment, (size_t)(equals - assignment), equals + 1,
                         strlen(equals + 1), where, err);
}

enum tern_code config_change(const struct config_table *table, void *config, const char *key,
                             const char *value, struct tern_error *err)
{
    char shown[64];
    const struct config_row *row = config_find(table, key, strlen(key));
    if (row && !row->refused && !row->live)
        return error_set(err, TERN_INVALID,
                         "%s cannot be changed while %s runs: set it in its file and restart it",
                         row->key, table->program);
    struct tern_error cause = {.text = ""};
    enum tern_code code =
        config_assign(table, config, key, strlen(key), value, strlen(value), "request", &cause);
    if (code != TERN_CONFIG)
        return code;
    return error_set(err, TERN_INVALID, "%s; the value was \"%s\"", cause.text,
                     config_show(value, strlen(value), shown));
}

void config_show_value(const struct config_row *row, const void *config, char *out, size_t size)
{
    config_format_value(row, config, out, size);
    if (row->secret && out[0])
        snprintf(out, size, "******");
}

void config_print(const struct config_table *table, const void *config, FILE *out)
{
    char value[CONFIG_VALUE_TEXT_BYTES];
    for (size_t i = 0; i < table->count; i++) {
        const struct config_row *row = &table->rows[i];
        if (row->refused)
            continue;
        config_format_value(row, config, value, sizeof value);
        fprintf(out, "%s: %s\n", row->key, value);
    }
}

/* A table cell: '|' would end it. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
    fputs(" | ", out);
}

static void print_default_cell(FILE *out, const char *fallback)
{
    if (fallback && *fallback)
        fprintf(out, "`%s` | ", fallback);
    else
        fprintf(out, "%s | ", fallback ? "(empty)" : "(none)");
}

void config_print_reference(const struct config_table *table, FILE *out)
{
    bool any_refused = false;
    fprintf(out, "| %s key | Type | Default | Allowed | Live | Meaning |\n", table->program);
    fprintf(out, "| --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < table->count; i++) {
        const struct config_row *row = &table->rows[i];
        char allowed[256];
        any_refused = any_refused || row->refused;
        if (row->refused)
            continue;
        config_value_allowed(row, allowed, sizeof allowed);
        fprintf(out, "| `%s` | %s | ", row->key, config_type_name(row->type));
        print_default_cell(out, row->fallback);
        print_cell(out, allowed);
        fprintf(out, "%s | ", row->live ? "yes" : "no");
        print_cell(out, row->help ? row->help : "");
        fputc('\n', out);
    }
    if (!any_refused)
        return;
    fprintf(out, "\n| Key not offered | Why, and what instead |\n| --- | --- |\n");
    for (size_t i = 0; i < table->count; i++) {
        const struct config_row *row = &table->rows[i];
        if (!row->refused)
            continue;
        fprintf(out, "| `%s` | ", row->key);
        print_cell(out, row->refused);
        fputc('\n', out);
    }
}
