/*
 * Configuration: one table of rows per program; values come from the defaults, a YAML file, and -o
 * key=value, in that order. Unknown keys, wrong types and values out of range are refused with
 * file, line, key and the allowed range. The reference page and -p are printed from the same rows.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum config_type {
    CONFIG_BOOL,
    CONFIG_INT,      /* int64_t, plain number */
    CONFIG_SIZE,     /* int64_t bytes; 64KiB, 4MiB, 1GiB, or a plain number of bytes */
    CONFIG_DURATION, /* int64_t milliseconds; 15s, 500ms, 2h, 3d, or a bare number */
    CONFIG_STRING,   /* char[CONFIG_STRING_BYTES] */
    CONFIG_ENUM      /* int32_t, index into `choices` */
};

enum { CONFIG_STRING_BYTES = 256, CONFIG_FILE_MAX_BYTES = 1 << 20, CONFIG_DEPTH_MAX = 4 };

struct config_row {
    const char *key;
    enum config_type type;
    size_t offset;         /* of the field in the program's config struct */
    const char *fallback;  /* default, in the same syntax as in a file; NULL: zero or empty */
    int64_t min, max;      /* INT, SIZE, DURATION: range, both 0: none; STRING: bytes, max 0: 255 */
    const char *choices;   /* ENUM: "A|B|C" */
    int64_t plain_unit_ms; /* DURATION: unit of a bare number, RocketMQ's for this key; 0: ms */
    bool live;             /* may be changed at run time by updateBrokerConfig */
    bool secret;           /* its value is never shown to who asks from outside */
    const char *refused;   /* not offered: this text says why and what to use instead; else NULL */
    const char *help;      /* one sentence for the reference */
};

struct config_table {
    const struct config_row *rows;
    size_t count;
    const char *program;
};

/* Fills *config (the program's struct) with the defaults. */
void config_defaults(const struct config_table *table, void *config);
/*
 * Reads a YAML file of `key: value` lines (one mapping, no aliases, no nesting). After an error the
 * settings before it have been made: start again from config_defaults.
 */
MUST_CHECK enum tern_code config_load_file(const struct config_table *table, void *config,
                                           const char *path, struct tern_error *err);
/* Sets one "key=value"; `where` names the source in errors, e.g. "-o". */
MUST_CHECK enum tern_code config_set(const struct config_table *table, void *config,
                                     const char *assignment, const char *where,
                                     struct tern_error *err);
/* Prints `key: value` lines that config_load_file accepts. */
void config_print(const struct config_table *table, const void *config, FILE *out);
/* Prints the Markdown table of the reference page. */
void config_print_reference(const struct config_table *table, FILE *out);
/* One value as text, as config_print shows it. */
void config_format_value(const struct config_row *row, const void *config, char *out, size_t size);

/* The same for whoever asks from outside: a secret that is set is a row of stars. */
void config_show_value(const struct config_row *row, const void *config, char *out, size_t size);

/* A value's text is at most this, with its end: an escaped string is the longest. */
enum { CONFIG_VALUE_TEXT_BYTES = 4 * CONFIG_STRING_BYTES };

/* The row of a key, or NULL. */
const struct config_row *config_find(const struct config_table *table, const char *key, size_t len);
/*
 * At run time: sets a live key. TERN_INVALID with key and reason: unknown, not offered, only read
 * at the start, or a value that is not allowed; then nothing was set.
 */
MUST_CHECK enum tern_code config_change(const struct config_table *table, void *config,
                                        const char *key, const char *value, struct tern_error *err);

#endif
