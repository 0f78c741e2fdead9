/*
 * Configuration files: the part of YAML that a table of settings needs, read event by event.
 *
 *   stream ─► (nothing) ─────────────────────────────────► end
 *          └► document ─► mapping ─► (key ─► value)* ─► end of mapping, document, stream
 *
 * Anything else is refused at the event where it shows: lists, nesting, aliases, anchors, tags, a
 * second document, a key given twice. So a hostile file costs at most its own, limited size.
 *
 * Threads: any, as far as the caller guards the struct. Failure modes: the code of an unreadable
 * file, else TERN_CONFIG with FILE:LINE; what was read before the error stays set.
 */
#include "base/config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { WHERE_BYTES = 320 };

struct reader {
    const struct config_table *table;
    void *config;
    const char *path;
    struct tern_error *err;
    yaml_parser_t parser;
    size_t *seen_line; /* of each row, 0: not yet */
    char where[WHERE_BYTES];
};

static const char *set_where(struct reader *r, size_t line)
{
    snprintf(r->where, sizeof r->where, "%s:%zu", r->path, line);
    return r->where;
}

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

static enum tern_code next_event(struct reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event))
        return TERN_OK;
    const char *problem = r->parser.problem ? r->parser.problem : "unreadable";
    if (r->parser.error == YAML_MEMORY_ERROR)
        return error_set(r->err, TERN_NO_MEMORY, "%s: no memory", r->path);
    return error_set(r->err, TERN_CONFIG, "%s: not valid YAML: %s",
                     set_where(r, r->parser.problem_mark.line + 1), problem);
}

static enum tern_code unexpected(struct reader *r, const yaml_event_t *event, const char *context)
{
    const char *what = "this";
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        what = "an alias";
        break;
    case YAML_SEQUENCE_START_EVENT:
        what = "a list";
        break;
    case YAML_MAPPING_START_EVENT:
        what = "a nested mapping";
        break;
    case YAML_DOCUMENT_START_EVENT:
        what = "a second document";
        break;
    case YAML_SCALAR_EVENT:
        what = memchr(event->data.scalar.value, '=', event->data.scalar.length)
                   ? "key=value, as in a properties file,"
                   : "an anchor, a tag or a lone value";
        break;
    default:
        break;
    }
    return error_set(r->err, TERN_CONFIG,
                     "%s: %s%s is not allowed, the file has lines of key: value",
                     set_where(r, line_of(event)), context, what);
}

static bool is_simple_scalar(const yaml_event_t *event)
{
    return event->type == YAML_SCALAR_EVENT && !event->data.scalar.anchor &&
           !event->data.scalar.tag;
}

static enum tern_code assign(struct reader *r, const yaml_event_t *key, const yaml_event_t *value)
{
    const char *name = (const char *)key->data.scalar.value;
    size_t len = key->data.scalar.length;
    const struct config_row *row = config_find(r->table, name, len);
    if (row) {
        size_t *seen = &r->seen_line[row - r->table->rows];
        if (*seen)
            return error_set(r->err, TERN_CONFIG, "%s: %s: given before in line %zu",
                             set_where(r, line_of(key)), row->key, *seen);
        *seen = line_of(key);
    }
    return config_assign(r->table, r->config, name, len, (const char *)value->data.scalar.value,
                         value->data.scalar.length, set_where(r, line_of(key)), r->err);
}

static enum tern_code read_value(struct reader *r, const yaml_event_t *key)
{
    yaml_event_t value;
    char shown[64];
    char context[80];
    enum tern_code code = next_event(r, &value);
    if (code)
        return code;
    if (is_simple_scalar(&value)) {
        code = assign(r, key, &value);
    } else {
        config_show((const char *)key->data.scalar.value, key->data.scalar.length, shown);
        snprintf(context, sizeof context, "%s: ", shown);
        code = unexpected(r, &value, context);
    }
    yaml_event_delete(&value);
    return code;
}

/* The pairs of the mapping that has begun. */
static enum tern_code read_pairs(struct reader *r)
{
    for (;;) {
        yaml_event_t event;
        enum tern_code code = next_event(r, &event);
        if (code)
            return code;
        bool end = event.type == YAML_MAPPING_END_EVENT;
        if (is_simple_scalar(&event))
            code = read_value(r, &event);
        else if (!end)
            code = unexpected(r, &event, "");
        yaml_event_delete(&event);
        if (code || end)
            return code;
    }
}

/* The document's content: a mapping, or the empty scalar that a document of comments has. */
static enum tern_code read_root(struct reader *r)
{
    yaml_event_t event;
    enum tern_code code = next_event(r, &event);
    if (code)
        return code;
    bool empty = is_simple_scalar(&event) && event.data.scalar.length == 0;
    if (event.type == YAML_MAPPING_START_EVENT && !event.data.mapping_start.anchor &&
        !event.data.mapping_start.tag)
        code = read_pairs(r);
    else if (!empty)
        code = unexpected(r, &event, "");
    yaml_event_delete(&event);
    return code;
}

static enum tern_code read_stream(struct reader *r)
{
    bool had_document = false;
    for (;;) {
        yaml_event_t event;
        enum tern_code code = next_event(r, &event);
        if (code)
            return code;
        yaml_event_type_t type = event.type;
        if (type == YAML_DOCUMENT_START_EVENT) {
            code = had_document ? unexpected(r, &event, "") : read_root(r);
            had_document = true;
        }
        yaml_event_delete(&event);
        if (code || type == YAML_STREAM_END_EVENT)
            return code;
    }
}

static enum tern_code parse_text(const struct config_table *table, void *config, const char *path,
                                 const char *text, size_t len, struct tern_error *err)
{
    struct reader r = {.table = table, .config = config, .path = path, .err = err};
    r.seen_line = calloc(table->count + 1, sizeof r.seen_line[0]);
    if (!r.seen_line)
        return error_set(err, TERN_NO_MEMORY, "%s: no memory", path);
    if (!yaml_parser_initialize(&r.parser)) {
        free(r.seen_line);
        return error_set(err, TERN_NO_MEMORY, "%s: no memory", path);
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    enum tern_code code = read_stream(&r);
    yaml_parser_delete(&r.parser);
    free(r.seen_line);
    return code;
}

enum tern_code config_load_file(const struct config_table *table, void *config, const char *path,
                                struct tern_error *err)
{
    enum tern_code code;
    size_t len = 0;
    char *text = malloc(CONFIG_FILE_MAX_BYTES + 1);
    FILE *in = text ? fopen(path, "re") : NULL;
    if (!in) {
        int saved = text ? errno : ENOMEM;
        code = error_set_errno(err, error_from_errno(saved), saved, "%s", path);
        goto out;
    }
    len = fread(text, 1, CONFIG_FILE_MAX_BYTES + 1, in);
    if (ferror(in)) {
        code = error_set_errno(err, error_from_errno(errno), errno, "%s", path);
        goto out;
    }
    if (len > CONFIG_FILE_MAX_BYTES) {
        code = error_set(err, TERN_CONFIG, "%s: larger than %d bytes", path,
                         (int)CONFIG_FILE_MAX_BYTES);
        goto out;
    }
    code = parse_text(table, config, path, text, len, err);
out:
    if (in)
        fclose(in);
    free(text);
    return code;
}
