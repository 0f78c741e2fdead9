/*
 * SQL92 filter expressions over a message's properties (RocketMQ's MessageSelector.bySql). The
 * language, its three-valued logic and where it departs from RocketMQ: docs/filtering.md.
 *
 *   text ──► tokens (sql_lexer.c) ──► program (sql_parse.c) ──► match (sql_match.c) per message
 *
 * Compiled once, then matched without allocation and without recursion: one walk over the
 * properties picks the values that the expression names, then the program runs over them.
 *
 * Limits: SQL_TEXT_MAX bytes, SQL_DEPTH_MAX levels of parentheses and NOT, SQL_NAMES_MAX different
 * properties. Positions in errors count bytes from 0.
 */
#ifndef BASE_SQL_H
#define BASE_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SQL_TEXT_MAX = 16384, SQL_DEPTH_MAX = 64, SQL_NAMES_MAX = 128 };

struct sql;

/*
 * text is borrowed for the call, well-formed UTF-8; *out is the caller's: sql_free().
 * TERN_SUBSCRIPTION_PARSE_FAILED with position and cause; TERN_NO_MEMORY. @thread any
 */
MUST_CHECK enum tern_code sql_compile(const char *text, size_t len, struct sql **out,
                                      struct tern_error *err);
void sql_free(struct sql *sql);

/* Whether a message with these properties (props.h) matches: the expression is TRUE, neither FALSE
 * nor unknown. @thread any, also several at once */
bool sql_match(const struct sql *sql, const uint8_t *props, size_t len);

/*
 * The expression without what does not matter: one blank between tokens, keywords in capitals, no
 * comments. Two texts with the same normal form ask for the same. Lives as long as sql.
 */
const char *sql_normal(const struct sql *sql);

#endif
