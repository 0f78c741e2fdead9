/*
 * JSON as RocketMQ's config files have it. fastjson writes integer map keys without quotes
 * ({0:12,1:3}), which is no JSON: accepted here, written quoted. Everything else is jansson.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/error.h"

/* *out is a new reference. At most 64 MiB, at most 64 levels. */
MUST_CHECK enum tern_code json_parse_fastjson(const char *text, size_t len, json_t **out,
                                              struct tern_error *err);
/* Sorted keys, tab-indented as RocketMQ's pretty form; malloc'ed text, *len without NUL. NULL: no
 * memory. */
char *json_format_pretty(const json_t *json, size_t *len);

#endif
