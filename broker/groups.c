/*
 * The table of subscription groups and its file, config/subscriptionGroup.json:
 *
 *   {"dataVersion": {"counter": VERSION, "timestamp": MS},
 *    "subscriptionGroupTable": {"G": {"brokerId": 0, "consumeBroadcastEnable": true,
 *     "consumeEnable": true, "consumeFromMinEnable": true, "groupName": "G",
 *     "notifyConsumerIdsChangedEnable": true, "retryMaxTimes": 16, "retryQueueNums": 1,
 *     "subscriptionConsistency": "warn", "whichBrokerWhenConsumeSlowly": 1}}}
 *
 * Its place: every pull and heartbeat finds its group here, and makes it when that is allowed.
 *
 * Invariants: names passed group_name_check(), numbers are in range.
 *
 * Threads and failure modes: as the topic table, see topics.c.
 */
#include "broker/groups.h"

#include <stdatomic.h>
#include <inttypes.h>
#include <limits.h>

#include "base/durable_file.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "broker/named_table.h"

enum { RETRY_QUEUES_MAX = 65536, DEFAULT_RETRY_TIMES = 16 };

struct groups {
    struct env env;
    struct named_table table;
    _Atomic bool auto_create;
    char path[FS_PATH_BYTES];
};

/* One row of the file's fields that hold a number. */
struct number_field {
    const char *name;
    int64_t fallback, max;
};
static const struct number_field retry_queues_field = {"retryQueueNums", 1, RETRY_QUEUES_MAX};
static const struct number_field retry_times_field = {"retryMaxTimes", DEFAULT_RETRY_TIMES,
                                                      INT32_MAX};
static const struct number_field broker_field = {"brokerId", 0, INT64_MAX};
static const struct number_field slow_field = {"whichBrokerWhenConsumeSlowly", 1, INT64_MAX};

void group_config_init(struct group_config *config, const char *name, size_t len)
{
    memset(config, 0, sizeof *config);
    if (len > GROUP_NAME_MAX) /* too long for any group: put refuses the empty name */
        len = 0;
    memcpy(config->name, name, len);
    config->consume_enable = true;
    config->consume_from_min_enable = true;
    config->consume_broadcast_enable = true;
    config->retry_queues = (int32_t)retry_queues_field.fallback;
    config->retry_max_times = (int32_t)retry_times_field.fallback;
    config->broker_id = broker_field.fallback;
    config->which_broker_when_slow = slow_field.fallback;
    config->notify_members_changed = true;
}

/* ---- checks ---- */

/* Groups that exist wherever they are asked for (facts 8.5, 8.6). */
static bool is_system(const char *name, size_t len)
{
    static const char prefix[] = "CID_RMQ_SYS_";
    static const char *const built_in[] = {
        "TOOLS_CONSUMER",        "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",   "CID_ONS-HTTP-PROXY"};
    if (len >= sizeof prefix - 1 && !memcmp(name, prefix, sizeof prefix - 1))
        return true;
    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++)
        if (len == strlen(built_in[i]) && !memcmp(name, built_in[i], len))
            return true;
    return false;
}

static enum tern_code check_number(const char *group, const struct number_field *field,
                                   int64_t value, struct tern_error *err)
{
    if (value >= 0 && value <= field->max)
        return TERN_OK;
    return error_set(err, TERN_INVALID, "group %s: %s is %" PRId64 ", allowed 0..%" PRId64, group,
                     field->name, value, field->max);
}

static enum tern_code check_config(const struct group_config *config, struct tern_error *err)
{
    size_t len = strnlen(config->name, sizeof config->name);
    enum tern_code code = group_name_check(config->name, len, err);
    if (!code)
        code = check_number(config->name, &retry_queues_field, config->retry_queues, err);
    if (!code)
        code = check_number(config->name, &retry_times_field, config->retry_max_times, err);
    if (!code)
        code = check_number(config->name, &broker_field, config->broker_id, err);
    if (!code)
        code = check_number(config->name, &slow_field, config->which_broker_when_slow, err);
    if (!code &&
        (config->consistency < CONSISTENCY_WARN || config->consistency > CONSISTENCY_ISOLATE))
        code = error_set(err, TERN_INVALID,
                         "group %s: subscriptionConsistency is %" PRId32
                         ", allowed 0 (warn), 1 (refuse), 2 (isolate)",
                         config->name, config->consistency);
    if (!code && config->consistency == CONSISTENCY_ISOLATE && len > ISOLATED_NAME_MAX)
        code = error_set(err, TERN_INVALID,
                         "group %s has %zu bytes, to isolate (subscriptionConsistency) at most %d",
                         config->name, len, (int)ISOLATED_NAME_MAX);
    return code;
}

/* The same values in memory without stray bytes, as named_table compares rows. */
static void tidy(struct group_config *row, const struct group_config *config)
{
    group_config_init(row, config->name, strlen(config->name));
    row->consume_enable = config->consume_enable;
    row->consume_from_min_enable = config->consume_from_min_enable;
    row->consume_broadcast_enable = config->consume_broadcast_enable;
    row->retry_queues = config->retry_queues;
    row->retry_max_times = config->retry_max_times;
    row->broker_id = config->broker_id;
    row->which_broker_when_slow = config->which_broker_when_slow;
    row->notify_members_changed = config->notify_members_changed;
    row->consistency = config->consistency;
}

/* ---- the file ---- */

static enum tern_code take_number(const json_t *object, const char *group,
                                  const struct number_field *field, int64_t *out,
                                  struct tern_error *err)
{
    const json_t *value = json_object_get(object, field->name);
    if (value && !json_is_integer(value))
        return error_set(err, TERN_CORRUPT, "group %s: %s is no integer", group, field->name);
    *out = value ? json_integer_value(value) : field->fallback;
    return check_number(group, field, *out, err) ? TERN_CORRUPT : TERN_OK;
}

/* Absent counts as true, as in RocketMQ's new objects. */
static bool take_bool(const json_t *object, const char *field)
{
    return !json_is_false(json_object_get(object, field));
}

static const char *const consistency_texts[] = {[CONSISTENCY_WARN] = "warn",
                                                [CONSISTENCY_REFUSE] = "refuse",
                                                [CONSISTENCY_ISOLATE] = "isolate"};

/* Absent, as RocketMQ writes it: warn. */
static enum tern_code take_consistency(const json_t *object, const char *group, int32_t *out,
                                       struct tern_error *err)
{
    const json_t *value = json_object_get(object, "subscriptionConsistency");
    const char *text = value ? json_string_value(value) : consistency_texts[CONSISTENCY_WARN];
    for (*out = CONSISTENCY_WARN; *out <= CONSISTENCY_ISOLATE; ++*out)
        if (text && !strcmp(text, consistency_texts[*out]))
            return TERN_OK;
    return error_set(err, TERN_CORRUPT,
                     "group %s: subscriptionConsistency is none of warn, refuse, isolate", group);
}

static enum tern_code take_group(struct groups *groups, const char *name, const json_t *object,
                                 struct tern_error *err)
{
    struct group_config config;
    int64_t retry_queues = 0;
    int64_t retry_times = 0;
    size_t len = strlen(name);
    if (group_name_check(name, len, err) || !json_is_object(object))
        return error_set(err, TERN_CORRUPT, "subscriptionGroupTable holds what is no group: %.64s",
                         name);
    group_config_init(&config, name, len);
    config.consume_enable = take_bool(object, "consumeEnable");
    config.consume_from_min_enable = take_bool(object, "consumeFromMinEnable");
    config.consume_broadcast_enable = take_bool(object, "consumeBroadcastEnable");
    config.notify_members_changed = take_bool(object, "notifyConsumerIdsChangedEnable");
    enum tern_code code = take_number(object, name, &retry_queues_field, &retry_queues, err);
    if (!code)
        code = take_number(object, name, &retry_times_field, &retry_times, err);
    if (!code)
        code = take_number(object, name, &broker_field, &config.broker_id, err);
    if (!code)
        code = take_number(object, name, &slow_field, &config.which_broker_when_slow, err);
    if (!code)
        code = take_consistency(object, name, &config.consistency, err);
    config.retry_queues = (int32_t)retry_queues;
    config.retry_max_times = (int32_t)retry_times;
    if (!code)
        code = named_table_set(&groups->table, &config);
    if (code == TERN_LIMIT)
        return error_set(err, TERN_CORRUPT, "more than %d groups", (int)GROUPS_MAX);
    return code;
}

/* durable_parse_fn: begins anew for each generation. */
static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct groups *groups = arg;
    json_t *root = NULL;
    named_table_clear(&groups->table);
    enum tern_code code = json_parse_fastjson(text, len, &root, err);
    if (code)
        return code;
    json_t *table = json_object_get(root, "subscriptionGroupTable");
    if (!json_is_object(table))
        code = error_set(err, TERN_CORRUPT, "no subscriptionGroupTable in it");
    const char *name;
    json_t *object;
    json_object_foreach(table, name, object)
    {
        if (code)
            break;
        code = take_group(groups, name, object, err);
    }
    json_int_t counter =
        json_integer_value(json_object_get(json_object_get(root, "dataVersion"), "counter"));
    if (!code && counter < 0)
        code = error_set(err, TERN_CORRUPT, "dataVersion.counter is negative");
    if (!code)
        named_table_loaded(&groups->table, (uint64_t)counter, extra);
    json_decref(root);
    return code;
}

static json_t *group_json(const struct group_config *config)
{
    return json_pack(
        "{s:I, s:b, s:b, s:b, s:s, s:b, s:i, s:i, s:s, s:I}", "brokerId",
        (json_int_t)config->broker_id, "consumeBroadcastEnable",
        (int)config->consume_broadcast_enable, "consumeEnable", (int)config->consume_enable,
        "consumeFromMinEnable", (int)config->consume_from_min_enable, "groupName", config->name,
        "notifyConsumerIdsChangedEnable", (int)config->notify_members_changed, "retryMaxTimes",
        (int)config->retry_max_times, "retryQueueNums", (int)config->retry_queues,
        "subscriptionConsistency", consistency_texts[config->consistency],
        "whichBrokerWhenConsumeSlowly", (json_int_t)config->which_broker_when_slow);
}

/* NULL: no memory. The text is the caller's. */
static char *format(const struct groups *groups, const struct group_config *rows, size_t count,
                    uint64_t version, size_t *len)
{
    char *text = NULL;
    json_t *table = json_object();
    bool good = table != NULL;
    for (size_t i = 0; good && i < count; i++)
        good = json_object_set_new(table, rows[i].name, group_json(&rows[i])) == 0;
    json_t *root =
        json_pack("{s:{s:I, s:I}, s:O}", "dataVersion", "counter", (json_int_t)version, "timestamp",
                  (json_int_t)clock_wall_ms(groups->env.clock), "subscriptionGroupTable", table);
    if (good && root)
        text = json_format_pretty(root, len);
    json_decref(root);
    json_decref(table);
    return text;
}

/* ---- life ---- */

enum tern_code groups_create(const struct env *env, const char *path, bool auto_create,
                             struct groups **out, struct tern_error *err)
{
    *out = NULL;
    if (strlen(path) >= FS_PATH_BYTES)
        return error_set(err, TERN_INVALID, "path of the group table is too long");
    struct groups *groups = calloc(1, sizeof *groups);
    if (!groups)
        return error_set(err, TERN_NO_MEMORY, "no memory for the group table");
    groups->env = *env;
    groups->auto_create = auto_create;
    memcpy(groups->path, path, strlen(path) + 1);
    named_table_init(&groups->table, &groups->env, "groups", sizeof(struct group_config),
                     GROUPS_MAX);
    enum tern_code code = durable_read(&groups->env, path, parse, groups, err);
    if (code && code != TERN_NOT_FOUND) {
        groups_destroy(groups);
        return code;
    }
    *out = groups;
    return TERN_OK;
}

void groups_set_auto_create(struct groups *groups, bool auto_create)
{
    atomic_store(&groups->auto_create, auto_create);
}

void groups_destroy(struct groups *groups)
{
    if (!groups)
        return;
    named_table_fini(&groups->table);
    free(groups);
}

/* ---- reading ---- */

bool groups_find(struct groups *groups, const char *name, size_t len, struct group_config *out)
{
    return named_table_find(&groups->table, name, len, out);
}

bool groups_dirty(struct groups *groups)
{
    return named_table_dirty(&groups->table);
}

uint64_t groups_version(struct groups *groups)
{
    return named_table_version(&groups->table);
}

struct group_config *groups_snapshot(struct groups *groups, size_t *count, uint64_t *version)
{
    uint64_t mark;
    return named_table_snapshot(&groups->table, count, version, &mark);
}

/* ---- changing ---- */

enum tern_code groups_find_or_create(struct groups *groups, const char *name, size_t len,
                                     struct group_config *out, struct tern_error *err)
{
    if (named_table_find(&groups->table, name, len, out))
        return TERN_OK;
    enum tern_code code = group_use_check(name, len, err);
    if (code)
        return code;
    if (!groups->auto_create && !is_system(name, len))
        return error_set(err, TERN_GROUP_NOT_EXIST,
                         "group %.*s does not exist here: create it with mqadmin updateSubGroup, "
                         "or set autoCreateSubscriptionGroup",
                         (int)len, name);
    group_config_init(out, name, len);
    code = named_table_put(&groups->table, out, err);
    if (!code)
        log_info(groups->env.log, "group_created", "group=%s", out->name);
    return code;
}

enum tern_code groups_put(struct groups *groups, const struct group_config *config,
                          struct tern_error *err)
{
    struct group_config row;
    enum tern_code code = check_config(config, err);
    if (code)
        return code;
    tidy(&row, config);
    return named_table_put(&groups->table, &row, err);
}

enum tern_code groups_remove(struct groups *groups, const char *name, size_t len,
                             struct tern_error *err)
{
    enum tern_code code = group_name_check(name, len, err);
    if (!code)
        code = named_table_remove(&groups->table, name, len, err);
    if (code == TERN_NOT_FOUND)
        return error_set(err, TERN_GROUP_NOT_EXIST, "group %.*s does not exist here", (int)len,
                         name);
    return code;
}

/* @locks holds:BROKER_FILES */
static enum tern_code write_rows(struct groups *groups, const struct group_config *rows,
                                 size_t count, uint64_t version, struct tern_error *err)
{
    size_t len = 0;
    char known[24];
    char *text = format(groups, rows, count, version, &len);
    if (!text)
        return error_set(err, TERN_NO_MEMORY, "no memory to write %s", groups->path);
    snprintf(known, sizeof known, "%" PRIu64, version);
    enum tern_code code = durable_write(&groups->env, groups->path, text, len, known, err);
    free(text);
    return code;
}

/* Writes a table's rows; *version and *mark are for named_table_settled().
 * @locks holds:BROKER_FILES */
static enum tern_code write_table(struct groups *groups, struct named_table *table,
                                  uint64_t *version, uint64_t *mark, struct tern_error *err)
{
    size_t count;
    struct group_config *rows = named_table_snapshot(table, &count, version, mark);
    if (!rows)
        return error_set(err, TERN_NO_MEMORY, "no memory to write %s", groups->path);
    enum tern_code code = write_rows(groups, rows, count, *version, err);
    free(rows);
    return code;
}

enum tern_code groups_persist(struct groups *groups, struct tern_error *err)
{
    uint64_t version;
    uint64_t mark;
    enum tern_code code = TERN_OK;
    lock_acquire(&groups->table.file_lock);
    bool dirty = named_table_dirty(&groups->table);
    if (dirty) {
        code = write_table(groups, &groups->table, &version, &mark, err);
        if (!code)
            named_table_settled(&groups->table, version, mark);
    }
    lock_release(&groups->table.file_lock);
    if (dirty && !code)
        named_table_tell(&groups->table);
    return code;
}

void groups_rollback(struct groups *groups)
{
    lock_acquire(&groups->table.file_lock);
    named_table_rollback(&groups->table);
    lock_release(&groups->table.file_lock);
}

/* ---- copying ---- */

void groups_follow(struct groups *groups, bool follows)
{
    named_table_follow(&groups->table, follows);
}

void groups_watch(struct groups *groups, void (*fn)(void *arg), void *arg)
{
    groups->table.on_settled = fn;
    groups->table.settled_arg = arg;
}

static enum tern_code take_config(struct named_table *fresh, const struct group_config *config,
                                  struct tern_error *err)
{
    struct group_config row;
    enum tern_code code = check_config(config, err);
    if (code)
        return code;
    tidy(&row, config);
    if (named_table_row(fresh, row.name, strlen(row.name)))
        return error_set(err, TERN_INVALID, "group %s is there twice", row.name);
    code = named_table_set(fresh, &row);
    return code ? error_set(err, code, "the table of %d groups takes no more", (int)GROUPS_MAX)
                : TERN_OK;
}

enum tern_code groups_replace(struct groups *groups, const struct group_config *configs,
                              size_t count, uint64_t version, struct tern_error *err)
{
    struct named_table fresh;
    uint64_t its_version;
    uint64_t mark;
    enum tern_code code = TERN_OK;
    named_table_init(&fresh, &groups->env, "groups", sizeof(struct group_config), GROUPS_MAX);
    atomic_store(&fresh.version, version);
    if (version > INT64_MAX)
        code =
            error_set(err, TERN_INVALID, "version %" PRIu64 " of the groups is too high", version);
    for (size_t i = 0; !code && i < count; i++)
        code = take_config(&fresh, &configs[i], err);
    if (!code) {
        lock_acquire(&groups->table.file_lock);
        code = write_table(groups, &fresh, &its_version, &mark, err);
        if (code)
            named_table_unsettle(&groups->table);
        else
            named_table_swap(&groups->table, &fresh);
        lock_release(&groups->table.file_lock);
    }
    named_table_fini(&fresh);
    if (!code)
        named_table_tell(&groups->table);
    return code;
}
