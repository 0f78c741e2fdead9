/*
 * One configuration value: from text into the program's struct and back.
 *
 * Invariant: a field is written only after its whole text was accepted, so a refused value changes
 * nothing; what is printed is accepted again and gives the same value.
 *
 * Threads: any, as far as the caller guards the struct. Failure modes: TERN_CONFIG with what is
 * allowed.
 */
#include "base/config_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/names.h"

struct unit {
    const char *name;
    int64_t factor;
};

/* Largest first: printing takes the first that divides. */
static const struct unit size_units[] = {
    {"GiB", INT64_C(1) << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}};
static const struct unit duration_units[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

enum {
    SIZE_UNITS = sizeof size_units / sizeof size_units[0],
    DURATION_UNITS = sizeof duration_units / sizeof duration_units[0]
};

const char *config_type_name(enum config_type type)
{
    static const char *const names[] = {"boolean", "number", "size", "duration", "text", "choice"};
    return names[type];
}

const char *config_show(const char *text, size_t len, char out[64])
{
    enum { SHOWN = 48 };
    size_t shown = len < SHOWN ? len : SHOWN;
    bool printable = utf8_valid(text, len);
    while (printable && shown < len && shown > 0 && ((unsigned char)text[shown] & 0xC0) == 0x80)
        shown--; /* not inside a character */
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i] = c < ' ' || c == 0x7F || (c >= 0x80 && !printable) ? '?' : text[i];
    }
    memcpy(out + shown, shown < len ? "..." : "", shown < len ? 4 : 1);
    return out;
}

/* ---- numbers ---- */

/* An optional '-' and digits; what follows is the unit. false: no number, or beyond 64 bits. */
static bool parse_number(const char *text, size_t len, int64_t *value, size_t *used)
{
    size_t i = 0;
    bool negative = len > 0 && text[0] == '-';
    i += negative;
    size_t first = i;
    int64_t sum = 0;
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
        int64_t digit = negative ? '0' - text[i] : text[i] - '0';
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, digit, &sum))
            return false;
    }
    *value = sum;
    *used = i;
    return i > first;
}

static const struct unit *find_unit(const struct unit *units, size_t count, const char *text,
                                    size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == len && memcmp(units[i].name, text, len) == 0)
            return &units[i];
    return NULL;
}

static bool parse_with_unit(const char *text, size_t len, const struct unit *units, size_t count,
                            int64_t plain_factor, int64_t *value)
{
    size_t used;
    if (!parse_number(text, len, value, &used))
        return false;
    while (used < len && text[used] == ' ')
        used++;
    int64_t factor = plain_factor;
    if (used < len) {
        const struct unit *unit = find_unit(units, count, text + used, len - used);
        if (!unit)
            return false;
        factor = unit->factor;
    }
    return !__builtin_mul_overflow(*value, factor, value);
}

static void format_with_unit(int64_t value, const struct unit *units, size_t count, char *out,
                             size_t size)
{
    size_t i = 0;
    while (i < count - 1 && (value == 0 || value % units[i].factor != 0))
        i++;
    snprintf(out, size, "%" PRId64 "%s", value / units[i].factor, units[i].name);
}

static void format_number(const struct config_row *row, int64_t value, char *out, size_t size)
{
    if (row->type == CONFIG_SIZE)
        format_with_unit(value, size_units, SIZE_UNITS, out, size);
    else if (row->type == CONFIG_DURATION)
        format_with_unit(value, duration_units, DURATION_UNITS, out, size);
    else
        snprintf(out, size, "%" PRId64, value);
}

static bool has_range(const struct config_row *row)
{
    return row->min != 0 || row->max != 0;
}

static size_t string_max(const struct config_row *row)
{
    return row->max > 0 ? (size_t)row->max : CONFIG_STRING_BYTES - 1;
}

/* ---- what is allowed ---- */

static void allowed_choices(const char *choices, char *out, size_t size)
{
    size_t n = 0;
    for (; *choices && n + 3 < size; choices++) {
        out[n++] = *choices == '|' ? ',' : *choices;
        if (*choices == '|')
            out[n++] = ' ';
    }
    out[n] = 0;
}

void config_value_allowed(const struct config_row *row, char *out, size_t size)
{
    char least[40];
    char most[40];
    switch (row->type) {
    case CONFIG_BOOL:
        snprintf(out, size, "true, false");
        return;
    case CONFIG_ENUM:
        allowed_choices(row->choices, out, size);
        return;
    case CONFIG_STRING:
        snprintf(out, size, "%" PRId64 "..%zu bytes", row->min, string_max(row));
        return;
    case CONFIG_INT:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        break;
    }
    if (!has_range(row)) {
        snprintf(out, size, "any %s", config_type_name(row->type));
        return;
    }
    format_number(row, row->min, least, sizeof least);
    format_number(row, row->max, most, sizeof most);
    snprintf(out, size, "%s..%s", least, most);
}

static enum tern_code refuse(const struct config_row *row, const char *text, size_t len,
                             const char *why, struct tern_error *err)
{
    char shown[64];
    char allowed[256];
    config_value_allowed(row, allowed, sizeof allowed);
    return error_set(err, TERN_CONFIG, "\"%s\" %s, allowed %s", config_show(text, len, shown), why,
                     allowed);
}

/* ---- storing ---- */

static void *field(const struct config_row *row, void *config)
{
    return (char *)config + row->offset;
}

static enum tern_code store_number(const struct config_row *row, void *config, const char *text,
                                   size_t len, struct tern_error *err)
{
    int64_t value = 0;
    size_t used = 0;
    bool ok;
    const char *why = "is no number";
    if (row->type == CONFIG_SIZE) {
        ok = parse_with_unit(text, len, size_units, SIZE_UNITS, 1, &value);
        why = "is no size (a number with KiB, MiB, GiB or no unit)";
    } else if (row->type == CONFIG_DURATION) {
        int64_t plain = row->plain_unit_ms > 0 ? row->plain_unit_ms : 1;
        ok = parse_with_unit(text, len, duration_units, DURATION_UNITS, plain, &value);
        why = "is no duration (a number with ms, s, m, h, d or no unit)";
    } else {
        ok = parse_number(text, len, &value, &used) && used == len;
    }
    if (!ok)
        return refuse(row, text, len, why, err);
    if (has_range(row) && (value < row->min || value > row->max))
        return refuse(row, text, len, "is out of range", err);
    memcpy(field(row, config), &value, sizeof value);
    return TERN_OK;
}

static enum tern_code store_string(const struct config_row *row, void *config, const char *text,
                                   size_t len, struct tern_error *err)
{
    ENSURE(string_max(row) < CONFIG_STRING_BYTES);
    if (!utf8_printable(text, len))
        return refuse(row, text, len, "is not printable UTF-8", err);
    if ((int64_t)len < row->min)
        return refuse(row, text, len, "is too short", err);
    if (len > string_max(row))
        return refuse(row, text, len, "is too long", err);
    char *out = field(row, config);
    memcpy(out, text, len);
    out[len] = 0;
    return TERN_OK;
}

static enum tern_code store_enum(const struct config_row *row, void *config, const char *text,
                                 size_t len, struct tern_error *err)
{
    int32_t index = 0;
    for (const char *choice = row->choices;; index++) {
        size_t choice_len = strcspn(choice, "|");
        if (choice_len == len && memcmp(choice, text, len) == 0) {
            memcpy(field(row, config), &index, sizeof index);
            return TERN_OK;
        }
        if (!choice[choice_len])
            return refuse(row, text, len, "is no choice", err);
        choice += choice_len + 1;
    }
}

static enum tern_code store_bool(const struct config_row *row, void *config, const char *text,
                                 size_t len, struct tern_error *err)
{
    bool yes = len == 4 && memcmp(text, "true", 4) == 0;
    bool no = len == 5 && memcmp(text, "false", 5) == 0;
    if (!yes && !no)
        return refuse(row, text, len, "is no boolean", err);
    memcpy(field(row, config), &yes, sizeof yes);
    return TERN_OK;
}

enum tern_code config_value_store(const struct config_row *row, void *config, const char *text,
                                  size_t len, struct tern_error *err)
{
    switch (row->type) {
    case CONFIG_BOOL:
        return store_bool(row, config, text, len, err);
    case CONFIG_STRING:
        return store_string(row, config, text, len, err);
    case CONFIG_ENUM:
        return store_enum(row, config, text, len, err);
    case CONFIG_INT:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        break;
    }
    return store_number(row, config, text, len, err);
}

/* ---- printing ---- */

static bool plain_in_yaml(const char *text)
{
    size_t len = strlen(text);
    size_t safe =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-");
    return len > 0 && safe == len && text[0] != '-' && text[0] != '.';
}

static void format_string(const char *text, char *out, size_t size)
{
    if (plain_in_yaml(text)) {
        snprintf(out, size, "%s", text);
        return;
    }
    size_t n = 0;
    if (size < 3)
        return;
    out[n++] = '"';
    for (; *text && n + 3 < size; text++) {
        if (*text == '"' || *text == '\\')
            out[n++] = '\\';
        out[n++] = *text;
    }
    out[n++] = '"';
    out[n] = 0;
}

static void format_enum(const struct config_row *row, int32_t index, char *out, size_t size)
{
    const char *choice = row->choices;
    for (; index > 0 && *choice; index--) {
        choice += strcspn(choice, "|");
        choice += *choice == '|';
    }
    snprintf(out, size, "%.*s", (int)strcspn(choice, "|"), choice);
}

void config_format_value(const struct config_row *row, const void *config, char *out, size_t size)
{
    const char *at = (const char *)config + row->offset;
    int64_t number;
    int32_t index;
    bool flag;
    switch (row->type) {
    case CONFIG_BOOL:
        memcpy(&flag, at, sizeof flag);
        snprintf(out, size, "%s", flag ? "true" : "false");
        return;
    case CONFIG_STRING:
        format_string(at, out, size);
        return;
    case CONFIG_ENUM:
        memcpy(&index, at, sizeof index);
        format_enum(row, index, out, size);
        return;
    case CONFIG_INT:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        break;
    }
    memcpy(&number, at, sizeof number);
    format_number(row, number, out, size);
}
