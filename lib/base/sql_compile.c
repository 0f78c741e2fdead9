/*
 * Compiling SQL92 expressions: the first pass counts tokens, from which every array's size follows;
 * the second (sql_parse.c) fills them; the normal form is written last. The result is one
 * allocation:
 *
 *   [ struct | constants | texts of IN | sets | operations | bytes of literals | normal form ]
 *
 * Threads: any, no state. Failure modes: as sql.h says.
 */
#include <stdlib.h>
#include <string.h>

#include "base/sql_internal.h"

/* Adds a token to the normal form, which has room. */
static void add_normal(char **at, const struct sql_token *token, bool first)
{
    bool word = token->kind >= TOKEN_AND;
    if (!first)
        *(*at)++ = ' ';
    for (size_t i = 0; i < token->len; i++) {
        char c = token->text[i];
        *(*at)++ = (char)(word && c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
}

static enum tern_code count_tokens(const char *text, size_t len, size_t *count,
                                   struct tern_error *err)
{
    struct sql_lexer lexer = {.text = text, .len = len};
    struct sql_token token;
    enum tern_code code;
    *count = 0;
    while ((code = sql_next(&lexer, &token, err)) == TERN_OK && token.kind != TOKEN_END)
        (*count)++;
    if (!code && *count == 0)
        code = error_set(err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "SQL92: the expression is empty (\"TRUE\" matches all)");
    return code;
}

/* Room for a text of so many tokens: no token emits more than two operations. */
static struct sql *sql_alloc(size_t tokens, size_t len)
{
    size_t ops = tokens * 2 + 2;
    struct sql *sql =
        calloc(1, sizeof *sql + tokens * (sizeof(struct sql_value) + sizeof(struct slice)) +
                      tokens * sizeof(struct sql_set) + ops * sizeof(struct sql_op) + 2 * len +
                      tokens + 1);
    if (!sql)
        return NULL;
    sql->constants = (struct sql_value *)(sql + 1);
    sql->members = (struct slice *)(sql->constants + tokens);
    sql->sets = (struct sql_set *)(sql->members + tokens);
    sql->ops = (struct sql_op *)(sql->sets + tokens);
    sql->texts = (char *)(sql->ops + ops);
    sql->normal = sql->texts + len;
    return sql;
}

static void write_normal(struct sql *sql, const char *text, size_t len)
{
    struct sql_lexer lexer = {.text = text, .len = len};
    struct sql_token token;
    char *at = sql->normal;
    while (sql_next(&lexer, &token, NULL) == TERN_OK && token.kind != TOKEN_END)
        add_normal(&at, &token, at == sql->normal);
    *at = 0;
}

enum tern_code sql_compile(const char *text, size_t len, struct sql **out, struct tern_error *err)
{
    size_t tokens;
    *out = NULL;
    if (len > SQL_TEXT_MAX)
        return error_set(err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "SQL92: the expression has %zu bytes, allowed up to %d", len,
                         (int)SQL_TEXT_MAX);
    enum tern_code code = count_tokens(text, len, &tokens, err);
    if (code)
        return code;
    struct sql *sql = sql_alloc(tokens, len);
    if (!sql)
        return error_set(err, TERN_NO_MEMORY, "no memory for a subscription");
    code = sql_parse(sql, text, len, err);
    if (code) {
        sql_free(sql);
        return code;
    }
    write_normal(sql, text, len);
    *out = sql;
    return TERN_OK;
}

void sql_free(struct sql *sql)
{
    free(sql);
}

const char *sql_normal(const struct sql *sql)
{
    return sql->normal;
}
