/*
 * mqstore dump: records in the order of the log, as text or as a JSON object a line.
 *
 * Damage is told on the warning stream and gone over; the exit status is 1 then. Threads: one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "tools/mqstore/log_reader.h"
#include "tools/mqstore/memory.h"
#include "tools/mqstore/mqstore.h"

/* ---- JSON ---- */

/* A text as it is, or what is no UTF-8 as {"hex": …}. */
static json_t *text_or_hex(const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    if (len == 0)
        return json_string("");
    if (utf8_valid(bytes, len))
        return json_stringn((const char *)bytes, len);
    char *hex = tool_alloc(len, 2);
    for (size_t i = 0; i < len; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_t *json = json_pack("{s:o}", "hex", json_stringn(hex, 2 * len));
    free(hex);
    return json;
}

static json_t *props_to_json(const struct record *record)
{
    json_t *json = json_object();
    size_t cursor = 0;
    struct slice name;
    struct slice value;
    while (props_next(record->props, record->props_len, &cursor, &name, &value)) {
        char key[RECORD_PROPS_MAX + 1];
        memcpy(key, name.ptr, name.len);
        key[name.len] = 0;
        if (utf8_valid(key, name.len))
            json_object_set_new(json, key, text_or_hex(value.ptr, value.len));
    }
    return json;
}

static void print_json(const struct log_item *item, const struct mqstore_options *options)
{
    const struct record *r = &item->record;
    char id[MESSAGE_ID_BYTES];
    char born[HOST_TEXT_BYTES];
    char store[HOST_TEXT_BYTES];
    message_id_format(id, &r->store_host, item->phys_off);
    host_format(born, &r->born_host);
    host_format(store, &r->store_host);
    json_t *json =
        json_pack("{s:o,s:i,s:I,s:I,s:I,s:s,s:i,s:I,s:I,s:s,s:I,s:s,s:i,s:I,s:I,s:I,s:o}", "topic",
                  text_or_hex(r->topic, r->topic_len), "queueId", (int)r->queue_id, "queueOffset",
                  (json_int_t)r->queue_off, "physOffset", (json_int_t)item->phys_off, "size",
                  (json_int_t)r->total_size, "msgId", id, "flag", (int)r->flag, "sysFlag",
                  (json_int_t)r->sys_flag, "bornTimestamp", (json_int_t)r->born_ms, "bornHost",
                  born, "storeTimestamp", (json_int_t)r->store_ms, "storeHost", store,
                  "reconsumeTimes", (int)r->reconsume_times, "preparedTransactionOffset",
                  (json_int_t)r->prepared_tx_off, "bodyLength", (json_int_t)r->body_len, "bodyCRC",
                  (json_int_t)r->body_crc, "properties", props_to_json(r));
    if (item->kind != LOG_RECORD)
        json_object_set_new(json, "damaged", json_true());
    if (options->body)
        json_object_set_new(json, "body", text_or_hex(r->body, r->body_len));
    mqstore_print_json(json, options);
}

/* ---- text ---- */

/* Control characters and what is no UTF-8 as \xNN. */
static void print_escaped(const uint8_t *bytes, size_t len, FILE *out)
{
    bool text = utf8_valid(bytes, len);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] < ' ' || bytes[i] == 0x7F || (!text && bytes[i] >= 0x80))
            fprintf(out, "\\x%02x", bytes[i]);
        else
            fputc(bytes[i], out);
    }
}

static void print_text(const struct log_item *item, const struct mqstore_options *options)
{
    const struct record *r = &item->record;
    FILE *out = options->out;
    char born[HOST_TEXT_BYTES];
    size_t cursor = 0;
    struct slice name;
    struct slice value;
    host_format(born, &r->born_host);
    fprintf(out, "%" PRId64 " size=%" PRIu32 " ", item->phys_off, r->total_size);
    print_escaped(r->topic, r->topic_len, out);
    fprintf(out,
            "/%" PRId32 " offset=%" PRId64 " stored=%" PRId64 " born=%" PRId64 "@%s flag=%" PRId32
            " sysFlag=0x%" PRIx32 " body=%" PRIu32,
            r->queue_id, r->queue_off, r->store_ms, r->born_ms, born, r->flag, r->sys_flag,
            r->body_len);
    while (props_next(r->props, r->props_len, &cursor, &name, &value)) {
        fputc(' ', out);
        print_escaped(name.ptr, name.len, out);
        fputc('=', out);
        print_escaped(value.ptr, value.len, out);
    }
    fputs(item->kind == LOG_RECORD ? "\n" : " DAMAGED\n", out);
    if (options->body && r->body_len) {
        fputs("    ", out);
        print_escaped(r->body, r->body_len, out);
        fputc('\n', out);
    }
}

/* ---- the walk ---- */

static bool is_wanted(const struct log_item *item, const struct mqstore_options *options)
{
    const struct record *r = &item->record;
    if (!options->topic)
        return true;
    return strlen(options->topic) == r->topic_len &&
           memcmp(options->topic, r->topic, r->topic_len) == 0;
}

static enum tern_code walk(const struct store_dir *dir, const struct mqstore_options *options,
                           bool *damaged, struct tern_error *err)
{
    struct log_reader reader;
    uint64_t shown = 0;
    enum tern_code code = TERN_OK;
    if (dir->segment_bytes == 0)
        return TERN_OK;
    log_reader_init(&reader, dir, options->from);
    int64_t from = reader.at;
    while (shown < options->count) {
        struct log_item item;
        code = log_reader_next(&reader, &item, err);
        if (code || item.kind == LOG_END || item.phys_off >= options->to)
            break;
        bool record =
            item.kind == LOG_RECORD || item.kind == LOG_BAD_CRC || item.kind == LOG_BAD_POSITION;
        bool asked_inside = item.kind == LOG_DAMAGE && item.phys_off == from &&
                            from > log_reader_min(dir); /* the middle of a record */
        if (item.kind != LOG_RECORD && item.kind != LOG_BLANK && !asked_inside) {
            *damaged = true;
            fprintf(options->warn, "mqstore: at %" PRId64 ": %s, %" PRId64 " bytes\n",
                    item.phys_off,
                    record     ? "a damaged record"
                    : item.why ? item.why
                               : "no segment",
                    item.size_bytes);
        }
        if (!record || !is_wanted(&item, options))
            continue;
        if (options->json)
            print_json(&item, options);
        else
            print_text(&item, options);
        shown++;
    }
    log_reader_fini(&reader);
    return code;
}

int mqstore_dump(const struct env *env, const char *root, const struct mqstore_options *options)
{
    struct store_dir dir;
    struct tern_error err = {TERN_OK, ""};
    bool damaged = false;
    int status = mqstore_open(&dir, env, root, false, options);
    if (status)
        return status;
    enum tern_code code = walk(&dir, options, &damaged, &err);
    if (code)
        status = mqstore_fail(options, code, &err);
    else if (damaged)
        status = MQSTORE_FAILED;
    store_dir_close(&dir);
    return status;
}
