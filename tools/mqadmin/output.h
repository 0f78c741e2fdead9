/*
 * A command's result: rows of named cells, printed as an aligned table for people or as JSON for
 * scripts.
 */
#ifndef MQADMIN_OUTPUT_H
#define MQADMIN_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A table under construction: a JSON array of objects with the same keys. */
struct table {
    const char *const
        *columns; /* headings as RocketMQ prints them, e.g. "Broker Name"; NULL-terminated */
    const char *const *keys; /* the JSON's, e.g. "brokerName"; NULL-terminated */
    json_t *rows;
};

/* Without memory the process ends with a line on stderr: a tool has nothing better to do. */
void table_init(struct table *table, const char *const *columns, const char *const *keys);
/* Takes the reference of every value, in the order of the keys. */
void table_add(struct table *table, json_t *const *values);
/* Prints it and frees it. */
void table_print(struct table *table, bool json);
/* Prints a JSON value and a newline, and frees it. */
void json_print(json_t *json);

json_t *text_of(const char *text);
json_t *bytes_of(const void *bytes, size_t len);
json_t *number_of(int64_t number);
/* "2026-11-30 12:00:00,123" in local time; "-" for 0. */
void time_text(char out[32], int64_t wall_ms);
/* Every command that only says that it worked, once for each that it worked at: lines for people,
 * kept for print_done_end() for scripts. */
void print_done(bool json, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* After the command: what was kept as one {"ok", "text"}, a line each in text; nothing when nothing
 * was. ok: nothing of it failed. */
void print_done_end(bool ok);

#endif
