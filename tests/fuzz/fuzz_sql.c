/*
 * SQL92 expressions over properties: the text up to the first newline is the expression, the rest
 * are the properties. The normal form must compile to what asks for the same.
 */
#include <string.h>

#include "base/names.h"
#include "base/sql.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *end = size ? memchr(text, '\n', size) : NULL;
    size_t len = end ? (size_t)(end - text) : size;
    const uint8_t *props = data + len;
    struct sql *sql;
    struct sql *again;
    struct tern_error err;
    if (!utf8_valid(text, len) || sql_compile(text, len, &sql, &err) != TERN_OK)
        return 0;
    const char *normal = sql_normal(sql);
    if (strlen(normal) <= SQL_TEXT_MAX) {
        ENSURE(sql_compile(normal, strlen(normal), &again, &err) == TERN_OK);
        ENSURE(!strcmp(normal, sql_normal(again)));
        ENSURE(sql_match(sql, props, size - len) == sql_match(again, props, size - len));
        sql_free(again);
    }
    sql_free(sql);
    return 0;
}
