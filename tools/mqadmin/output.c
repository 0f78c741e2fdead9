/* Tables: column widths from the contents, numbers to the right, '#' before the first heading. */
#include "tools/mqadmin/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS_MAX = 24, CELL_BYTES = 1024 };

/* What print_done() was told: a script reads one JSON value a command. */
static json_t *done_lines;

static _Noreturn void out_of_memory(void)
{
    fputs("mqadmin: out of memory\n", stderr);
    exit(1);
}

static json_t *checked(json_t *json)
{
    if (!json)
        out_of_memory();
    return json;
}

json_t *bytes_of(const void *bytes, size_t len)
{
    json_t *json = json_stringn(bytes ? bytes : "", bytes ? len : 0);
    return json ? json : checked(json_string("(not UTF-8)"));
}

json_t *text_of(const char *text)
{
    return bytes_of(text, text ? strlen(text) : 0);
}

json_t *number_of(int64_t number)
{
    return checked(json_integer(number));
}

void time_text(char out[32], int64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm local;
    char text[24];
    if (wall_ms <= 0 || !localtime_r(&seconds, &local)) {
        snprintf(out, 32, "-");
        return;
    }
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(out, 32, "%s,%03d", text, (int)(wall_ms % 1000));
}

void table_init(struct table *table, const char *const *columns, const char *const *keys)
{
    *table = (struct table){columns, keys, checked(json_array())};
}

void table_add(struct table *table, json_t *const *values)
{
    json_t *row = checked(json_object());
    for (size_t i = 0; table->keys[i]; i++)
        if (json_object_set_new(row, table->keys[i], values[i]) != 0)
            out_of_memory();
    if (json_array_append_new(table->rows, row) != 0)
        out_of_memory();
}

static void cell_text(char out[CELL_BYTES], const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        snprintf(out, CELL_BYTES, "%s", json_string_value(value));
        break;
    case JSON_INTEGER:
        snprintf(out, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(out, CELL_BYTES, "%.2f", json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(out, CELL_BYTES, "%s", json_is_true(value) ? "true" : "false");
        break;
    default:
        snprintf(out, CELL_BYTES, "-");
    }
}

static void print_cell(const char *text, int width, bool right, bool last)
{
    const char *end = last ? "\n" : "  ";
    printf("%*s%s", right ? width : last ? 0 : -width, text, end);
}

static void print_table(const struct table *table)
{
    int widths[COLUMNS_MAX] = {0};
    size_t columns = 0, index;
    char text[CELL_BYTES];
    json_t *row;
    for (; table->columns[columns] && columns < COLUMNS_MAX; columns++)
        widths[columns] = (int)strlen(table->columns[columns]) + 1;
    json_array_foreach(table->rows, index, row)
    {
        for (size_t i = 0; i < columns; i++) {
            cell_text(text, json_object_get(row, table->keys[i]));
            if ((int)strlen(text) > widths[i])
                widths[i] = (int)strlen(text);
        }
    }
    for (size_t i = 0; i < columns; i++) {
        snprintf(text, sizeof text, "#%s", table->columns[i]);
        print_cell(text, widths[i], false, i + 1 == columns);
    }
    json_array_foreach(table->rows, index, row)
    {
        for (size_t i = 0; i < columns; i++) {
            const json_t *value = json_object_get(row, table->keys[i]);
            cell_text(text, value);
            print_cell(text, widths[i], json_is_number(value), i + 1 == columns);
        }
    }
}

void json_print(json_t *json)
{
    if (json_dumpf(checked(json), stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0)
        out_of_memory();
    putchar('\n');
    json_decref(json);
}

void table_print(struct table *table, bool json)
{
    if (json) {
        json_print(table->rows);
        return;
    }
    print_table(table);
    json_decref(table->rows);
}

void print_done(bool json, const char *fmt, ...)
{
    char text[CELL_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!json) {
        puts(text);
        return;
    }
    json_t *lines =
        done_lines ? json_sprintf("%s\n%s", json_string_value(done_lines), text) : text_of(text);
    json_decref(done_lines);
    done_lines = checked(lines);
}

void print_done_end(bool ok)
{
    if (done_lines)
        json_print(checked(json_pack("{s:b, s:o}", "ok", ok, "text", done_lines)));
    done_lines = NULL;
}
