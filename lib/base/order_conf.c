/*
 * Parsing of order configurations. The text comes from people, files and the wire: nothing of it is
 * used before it was checked.
 *
 * Threads: any. Failure modes: TERN_INVALID with the place.
 */
#include "base/order_conf.h"

#include <stdlib.h>
#include <string.h>

/* Digits only, 1 to ORDER_CONF_QUEUES_MAX; 0: no such number. */
static int32_t queues_of(const char *text, size_t len)
{
    int32_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || value > ORDER_CONF_QUEUES_MAX)
            return 0;
        value = value * 10 + (text[i] - '0');
    }
    return value <= ORDER_CONF_QUEUES_MAX ? value : 0;
}

static enum tern_code parse_row(const char *text, size_t len, size_t at, struct order_conf_row *out,
                                struct tern_error *err)
{
    const char *colon = memchr(text, ':', len);
    size_t name_len = colon ? (size_t)(colon - text) : len;
    if (!colon)
        return error_set(err, TERN_INVALID,
                         "order configuration: at byte %zu stands no broker:queues", at);
    enum tern_code code = broker_name_check(text, name_len, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "order configuration: at byte %zu", at);
    out->queues = queues_of(colon + 1, len - name_len - 1);
    if (out->queues == 0)
        return error_set(err, TERN_INVALID,
                         "order configuration: the number of queues at byte %zu is none of 1 to %d",
                         at + name_len + 1, (int)ORDER_CONF_QUEUES_MAX);
    memcpy(out->broker, text, name_len);
    out->broker[name_len] = '\0';
    return TERN_OK;
}

static enum tern_code check_row(const struct order_conf_row *rows, size_t count, int64_t *queues,
                                struct tern_error *err)
{
    const struct order_conf_row *last = &rows[count];
    *queues += last->queues;
    if (*queues > ORDER_CONF_QUEUES_MAX)
        return error_set(err, TERN_INVALID, "order configuration: more than %d queues",
                         (int)ORDER_CONF_QUEUES_MAX);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].broker, last->broker) == 0)
            return error_set(err, TERN_INVALID, "order configuration: broker %s stands there twice",
                             last->broker);
    return TERN_OK;
}

static size_t count_rows(const char *text, size_t len)
{
    size_t rows = 1;
    for (size_t i = 0; i + 1 < len; i++)
        rows += text[i] == ';';
    return rows;
}

enum tern_code order_conf_parse(const char *text, size_t len, struct order_conf_row **out,
                                size_t *count, struct tern_error *err)
{
    *out = NULL;
    *count = 0;
    size_t most = count_rows(text, len);
    if (len == 0 || len > ORDER_CONF_TEXT_MAX || most > ORDER_CONF_BROKERS_MAX)
        return error_set(err, TERN_INVALID,
                         "order configuration of %zu bytes and %zu brokers: broker:queues;… of 1 "
                         "to %d brokers in at most %d bytes is needed",
                         len, len ? most : 0, (int)ORDER_CONF_BROKERS_MAX,
                         (int)ORDER_CONF_TEXT_MAX);
    struct order_conf_row *rows = calloc(most, sizeof *rows);
    if (!rows)
        return error_set(err, TERN_NO_MEMORY, "order configuration of %zu brokers", most);
    enum tern_code code = TERN_OK;
    int64_t queues = 0;
    size_t at = 0;
    while (code == TERN_OK && at < len) {
        const char *end = memchr(text + at, ';', len - at);
        size_t row_len = end ? (size_t)(end - (text + at)) : len - at;
        code = parse_row(text + at, row_len, at, &rows[*count], err);
        if (code == TERN_OK)
            code = check_row(rows, *count, &queues, err);
        *count += code == TERN_OK;
        at += row_len + 1;
    }
    if (code != TERN_OK) {
        free(rows);
        *count = 0;
        return code;
    }
    *out = rows;
    return TERN_OK;
}

enum tern_code order_conf_check(const char *text, struct tern_error *err)
{
    struct order_conf_row *rows;
    size_t count;
    enum tern_code code = order_conf_parse(text, strlen(text), &rows, &count, err);
    free(rows);
    return code;
}
