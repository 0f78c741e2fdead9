/*
 * The topic table's file, config/topics.json, RocketMQ's shape:
 *
 *   {"dataVersion": {"counter": VERSION, "timestamp": MS},
 *    "topicConfigTable": {"T": {"order": false, "perm": 6, "readQueueNums": 4, "topicFilterType":
 *     "SINGLE_TAG", "topicName": "T", "topicSysFlag": 0, "writeQueueNums": 4}}}
 *
 * The companion holds the version once more: a file without it was changed by a hand or by RocketMQ
 * and gets a new version.
 *
 * Threads: one writer at a time (file_lock): the admin lane, or who replaces the table. Failure
 * modes: a damaged generation or a value out of range makes durable_read try the other one; both
 * bad: TERN_CORRUPT, nothing deleted.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/durable_file.h"
#include "base/json.h"
#include "broker/topics_internal.h"

enum { ROCKETMQ_QUEUES = 16 }; /* of a topic whose file names no number */

/* ---- reading ---- */

/* An optional number of an object. */
static enum tern_code take_int(const json_t *object, const char *topic, const char *field,
                               int64_t fallback, int64_t min, int64_t max, int32_t *out,
                               struct tern_error *err)
{
    const json_t *value = json_object_get(object, field);
    if (value && !json_is_integer(value))
        return error_set(err, TERN_CORRUPT, "topic %s: %s is no integer", topic, field);
    int64_t number = value ? json_integer_value(value) : fallback;
    if (topics_check_range(topic, field, number, min, max, err))
        return TERN_CORRUPT;
    *out = (int32_t)number;
    return TERN_OK;
}

static enum tern_code take_topic(struct topics *topics, const char *name, const json_t *object,
                                 struct tern_error *err)
{
    struct topic_config config;
    memset(&config, 0, sizeof config);
    size_t len = strlen(name);
    if (topic_name_check(name, len, err) || !json_is_object(object))
        return error_set(err, TERN_CORRUPT, "topicConfigTable holds what is no topic: %.64s", name);
    memcpy(config.name, name, len);
    config.name_len = (uint8_t)len;
    config.order = json_is_true(json_object_get(object, "order"));
    /* RocketMQ knows topics that were shrunk to no queue */
    enum tern_code code = take_int(object, name, "readQueueNums", ROCKETMQ_QUEUES, 0,
                                   TOPIC_QUEUES_MAX, &config.read_queues, err);
    if (!code)
        code = take_int(object, name, "writeQueueNums", ROCKETMQ_QUEUES, 0, TOPIC_QUEUES_MAX,
                        &config.write_queues, err);
    if (!code)
        code = take_int(object, name, "perm", PERM_READ | PERM_WRITE, 0, TOPIC_PERM_ALL,
                        &config.perm, err);
    if (!code)
        code = take_int(object, name, "topicSysFlag", 0, 0, INT32_MAX, &config.sys_flag, err);
    if (!code)
        code = named_table_set(&topics->table, &config);
    if (code == TERN_LIMIT)
        return error_set(err, TERN_CORRUPT, "more than %d topics", (int)TOPICS_MAX);
    return code;
}

/* durable_parse_fn: begins anew for each generation. */
static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct topics *topics = arg;
    json_t *root = NULL;
    named_table_clear(&topics->table);
    enum tern_code code = json_parse_fastjson(text, len, &root, err);
    if (code)
        return code;
    json_t *table = json_object_get(root, "topicConfigTable");
    if (!json_is_object(table))
        code = error_set(err, TERN_CORRUPT, "no topicConfigTable in it");
    const char *name;
    json_t *object;
    json_object_foreach(table, name, object)
    {
        if (code)
            break;
        code = take_topic(topics, name, object, err);
    }
    json_int_t counter =
        json_integer_value(json_object_get(json_object_get(root, "dataVersion"), "counter"));
    if (!code && counter < 0)
        code = error_set(err, TERN_CORRUPT, "dataVersion.counter is negative");
    if (!code)
        named_table_loaded(&topics->table, (uint64_t)counter, extra);
    json_decref(root);
    return code;
}

enum tern_code topics_load(struct topics *topics, struct tern_error *err)
{
    return durable_read(&topics->env, topics->path, parse, topics, err);
}

/* ---- writing ---- */

static json_t *topic_json(const struct topic_config *config)
{
    return json_pack("{s:b, s:i, s:i, s:s, s:s, s:i, s:i}", "order", (int)config->order, "perm",
                     (int)config->perm, "readQueueNums", (int)config->read_queues,
                     "topicFilterType", "SINGLE_TAG", "topicName", config->name, "topicSysFlag",
                     (int)config->sys_flag, "writeQueueNums", (int)config->write_queues);
}

/* NULL: no memory. The text is the caller's. */
static char *format(const struct topics *topics, const struct topic_config *rows, size_t count,
                    uint64_t version, size_t *len)
{
    char *text = NULL;
    json_t *table = json_object();
    bool good = table != NULL;
    for (size_t i = 0; good && i < count; i++)
        good = json_object_set_new(table, rows[i].name, topic_json(&rows[i])) == 0;
    json_t *root =
        json_pack("{s:{s:I, s:I}, s:O}", "dataVersion", "counter", (json_int_t)version, "timestamp",
                  (json_int_t)clock_wall_ms(topics->env.clock), "topicConfigTable", table);
    if (good && root)
        text = json_format_pretty(root, len);
    json_decref(root);
    json_decref(table);
    return text;
}

enum tern_code topics_write(struct topics *topics, const struct topic_config *rows, size_t count,
                            uint64_t version, struct tern_error *err)
{
    char known[24];
    size_t len = 0;
    char *text = format(topics, rows, count, version, &len);
    if (!text)
        return error_set(err, TERN_NO_MEMORY, "no memory to write %s", topics->path);
    snprintf(known, sizeof known, "%" PRIu64, version);
    enum tern_code code = durable_write(&topics->env, topics->path, text, len, known, err);
    free(text);
    return code;
}

/* @locks holds:BROKER_FILES */
static enum tern_code persist(struct topics *topics, struct tern_error *err)
{
    size_t count;
    uint64_t version;
    uint64_t mark;
    struct topic_config *rows = named_table_snapshot(&topics->table, &count, &version, &mark);
    if (!rows)
        return error_set(err, TERN_NO_MEMORY, "no memory to write %s", topics->path);
    enum tern_code code = topics_write(topics, rows, count, version, err);
    if (!code)
        named_table_settled(&topics->table, version, mark);
    free(rows);
    return code;
}

enum tern_code topics_persist(struct topics *topics, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    lock_acquire(&topics->table.file_lock);
    bool dirty = named_table_dirty(&topics->table);
    if (dirty)
        code = persist(topics, err);
    lock_release(&topics->table.file_lock);
    if (dirty && !code)
        named_table_tell(&topics->table);
    return code;
}
