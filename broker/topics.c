/*
 * The topic table in memory; topics_file.c reads and writes its file.
 *
 * Its place: every send and pull finds its topic here; heartbeats and the admin lane change it;
 * the registrar reads it for the nameservers.
 *
 * Invariants: names passed topic_name_check(), numbers are in range. System topics are always in
 * memory, whatever the file says; TBW102 exactly when topics may be created automatically.
 *
 * Threads: any; one of persist, rollback and replace at a time (file_lock). Failure modes: a
 * refused change changes nothing; a failed persist leaves the changes to be persisted or rolled
 * back.
 */
#include "broker/topics_internal.h"

#include <inttypes.h>

enum { CLUSTER_TOPIC_QUEUES = 16, SCHEDULE_QUEUES = 18 };

/* ---- checks ---- */

static bool is_added(const struct topics *topics, const char *name, size_t len)
{
    for (size_t i = 0; i < topics->own_count; i++)
        if (len == strlen(topics->own[i]) && !memcmp(name, topics->own[i], len))
            return true;
    return false;
}

static bool is_system(const struct topics *topics, const char *name, size_t len)
{
    return topic_is_system(name, len) || is_added(topics, name, len) ||
           (len == strlen(topics->cluster) && !memcmp(name, topics->cluster, len)) ||
           (len == strlen(topics->broker_name) && !memcmp(name, topics->broker_name, len));
}

enum tern_code topics_check_range(const char *topic, const char *what, int64_t value, int64_t min,
                                  int64_t max, struct tern_error *err)
{
    if (value >= min && value <= max)
        return TERN_OK;
    return error_set(err, TERN_INVALID,
                     "topic %s: %s is %" PRId64 ", allowed %" PRId64 "..%" PRId64, topic, what,
                     value, min, max);
}

static enum tern_code check_config(const struct topic_config *config, int32_t min_queues,
                                   struct tern_error *err)
{
    size_t len = strnlen(config->name, sizeof config->name);
    enum tern_code code = topic_name_check(config->name, len, err);
    if (!code)
        code = topics_check_range(config->name, "read queue count", config->read_queues, min_queues,
                                  TOPIC_QUEUES_MAX, err);
    if (!code)
        code = topics_check_range(config->name, "write queue count", config->write_queues,
                                  min_queues, TOPIC_QUEUES_MAX, err);
    if (!code)
        code = topics_check_range(config->name, "perm", config->perm, 0, TOPIC_PERM_ALL, err);
    return code;
}

/* The same values in memory without stray bytes, as named_table compares rows. */
static void tidy(struct topic_config *out, const struct topic_config *config)
{
    size_t len = strlen(config->name);
    memset(out, 0, sizeof *out);
    memcpy(out->name, config->name, len);
    out->name_len = (uint8_t)len;
    out->read_queues = config->read_queues;
    out->write_queues = config->write_queues;
    out->perm = config->perm;
    out->sys_flag = config->sys_flag;
    out->order = config->order;
}

/* ---- life ---- */

static enum tern_code add_system(struct topics *topics, const char *name, int32_t queues,
                                 int32_t perm)
{
    struct topic_config config;
    size_t len = strlen(name);
    if (topic_name_check(name, len, NULL) || named_table_row(&topics->table, name, len))
        return TERN_OK; /* a cluster's name may be none of a topic; what the file says stays */
    memset(&config, 0, sizeof config);
    memcpy(config.name, name, len);
    config.name_len = (uint8_t)len;
    config.read_queues = config.write_queues = queues;
    config.perm = perm;
    return named_table_set(&topics->table, &config);
}

/* What the broker itself writes to, and is read by tools. */
static const struct {
    const char *name;
    int32_t queues;
} own_topics[] = {
    {"SELF_TEST_TOPIC", 1}, {SCHEDULE_TOPIC, SCHEDULE_QUEUES},
    {TIMER_TOPIC, 1},       {DELAY_MARKS_TOPIC, 1},
    {DELAY_DEAD_TOPIC, 1},  {TX_DISCARD_TOPIC, 1},
};

static enum tern_code add_all_system(struct topics *topics, bool auto_create,
                                     int32_t default_queues, struct tern_error *err)
{
    struct named_row *row = named_table_row(&topics->table, DEFAULT_TOPIC, strlen(DEFAULT_TOPIC));
    if (row && !auto_create)
        named_table_drop(&topics->table, row);
    enum tern_code code = add_system(topics, topics->cluster, CLUSTER_TOPIC_QUEUES, TOPIC_PERM_ALL);
    if (!code)
        code = add_system(topics, topics->broker_name, 1, TOPIC_PERM_ALL);
    for (size_t i = 0; !code && i < sizeof own_topics / sizeof own_topics[0]; i++)
        code = add_system(topics, own_topics[i].name, own_topics[i].queues, PERM_READ | PERM_WRITE);
    if (!code && auto_create)
        code = add_system(topics, DEFAULT_TOPIC, default_queues, TOPIC_PERM_ALL);
    return code ? error_set(err, code, "system topics cannot be added to %s", topics->path)
                : TERN_OK;
}

enum tern_code topics_create(const struct env *env, const char *path, const char *cluster,
                             const char *broker_name, bool auto_create, int32_t default_queues,
                             struct topics **out, struct tern_error *err)
{
    *out = NULL;
    if (strlen(path) >= FS_PATH_BYTES || strlen(cluster) > BROKER_NAME_MAX ||
        strlen(broker_name) > BROKER_NAME_MAX)
        return error_set(err, TERN_INVALID, "path or name of the topic table is too long");
    struct topics *topics = calloc(1, sizeof *topics);
    if (!topics)
        return error_set(err, TERN_NO_MEMORY, "no memory for the topic table");
    topics->env = *env;
    memcpy(topics->path, path, strlen(path) + 1);
    memcpy(topics->cluster, cluster, strlen(cluster) + 1);
    memcpy(topics->broker_name, broker_name, strlen(broker_name) + 1);
    named_table_init(&topics->table, &topics->env, "topics", sizeof(struct topic_config),
                     TOPICS_MAX);
    enum tern_code code = topics_load(topics, err);
    if (code == TERN_NOT_FOUND)
        code = TERN_OK;
    if (!code)
        code = add_all_system(topics, auto_create, default_queues, err);
    if (code)
        topics_destroy(topics);
    else
        *out = topics;
    return code;
}

enum tern_code topics_add_own(struct topics *topics, const char *name, int32_t queues, int32_t perm)
{
    size_t len = strlen(name);
    if (topic_name_check(name, len, NULL) != TERN_OK || topics_is_own(topics, name, len))
        return TERN_OK;
    if (topics->own_count == TOPICS_OWN_MAX)
        return TERN_LIMIT;
    memcpy(topics->own[topics->own_count++], name, len + 1);
    return add_system(topics, name, queues, perm);
}

void topics_destroy(struct topics *topics)
{
    if (!topics)
        return;
    named_table_fini(&topics->table);
    free(topics);
}

/* ---- reading ---- */

bool topics_find(struct topics *topics, const char *name, size_t len, struct topic_config *out)
{
    return named_table_find(&topics->table, name, len, out);
}

uint64_t topics_version(struct topics *topics)
{
    return named_table_version(&topics->table);
}

uint32_t topics_count(struct topics *topics)
{
    lock_acquire(&topics->table.lock);
    uint32_t count = HASH_COUNT(topics->table.rows);
    lock_release(&topics->table.lock);
    return count;
}

struct topic_config *topics_snapshot(struct topics *topics, size_t *count, uint64_t *version)
{
    uint64_t mark;
    return named_table_snapshot(&topics->table, count, version, &mark);
}

/* ---- changing ---- */

enum tern_code topics_put_internal(struct topics *topics, const struct topic_config *config,
                                   struct tern_error *err)
{
    struct topic_config row;
    enum tern_code code = check_config(config, 1, err);
    if (code)
        return code;
    tidy(&row, config);
    return named_table_put(&topics->table, &row, err);
}

enum tern_code topics_put(struct topics *topics, const struct topic_config *config,
                          struct tern_error *err)
{
    size_t len = strnlen(config->name, sizeof config->name);
    if (is_system(topics, config->name, len))
        return error_set(err, TERN_INVALID, "%.*s is a system topic and cannot be changed",
                         (int)len, config->name);
    return topics_put_internal(topics, config, err);
}

void topics_touch(struct topics *topics)
{
    lock_acquire(&topics->table.lock);
    named_table_changed(&topics->table);
    lock_release(&topics->table.lock);
}

enum tern_code topics_remove(struct topics *topics, const char *name, size_t len,
                             struct tern_error *err)
{
    enum tern_code code = topic_name_check(name, len, err);
    if (code)
        return code;
    if (is_system(topics, name, len))
        return error_set(err, TERN_INVALID, "%.*s is a system topic and cannot be deleted",
                         (int)len, name);
    code = named_table_remove(&topics->table, name, len, err);
    if (code == TERN_NOT_FOUND)
        return error_set(err, TERN_TOPIC_NOT_EXIST, "topic %.*s does not exist here", (int)len,
                         name);
    return code;
}

void topics_rollback(struct topics *topics)
{
    lock_acquire(&topics->table.file_lock);
    named_table_rollback(&topics->table);
    lock_release(&topics->table.file_lock);
}

void topics_follow(struct topics *topics, bool follows)
{
    named_table_follow(&topics->table, follows);
}

void topics_watch(struct topics *topics, void (*fn)(void *arg), void *arg)
{
    topics->table.on_settled = fn;
    topics->table.settled_arg = arg;
}

/* ---- replacing ---- */

/* As add_all_system() makes them. */
bool topics_is_own(const struct topics *topics, const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof own_topics / sizeof own_topics[0]; i++)
        if (len == strlen(own_topics[i].name) && !memcmp(name, own_topics[i].name, len))
            return true;
    return is_added(topics, name, len) ||
           (len == strlen(DEFAULT_TOPIC) && !memcmp(name, DEFAULT_TOPIC, len)) ||
           (len == strlen(topics->cluster) && !memcmp(name, topics->cluster, len)) ||
           (len == strlen(topics->broker_name) && !memcmp(name, topics->broker_name, len));
}

static enum tern_code take_config(struct topics *topics, struct named_table *fresh,
                                  const struct topic_config *config, struct tern_error *err)
{
    struct topic_config row;
    enum tern_code code = check_config(config, 0, err); /* 0: shrunk, as in the file */
    if (code)
        return code;
    tidy(&row, config);
    if (topics_is_own(topics, row.name, row.name_len))
        return TERN_OK;
    if (named_table_row(fresh, row.name, row.name_len))
        return error_set(err, TERN_INVALID, "topic %s is there twice", row.name);
    code = named_table_set(fresh, &row);
    return code ? error_set(err, code, "the table of %d topics takes no more", (int)TOPICS_MAX)
                : TERN_OK;
}

static enum tern_code keep_own(struct topics *topics, struct named_table *fresh)
{
    enum tern_code code = TERN_OK;
    struct named_row *row;
    struct named_row *next;
    lock_acquire(&topics->table.lock);
    HASH_ITER (hh, topics->table.rows, row, next) {
        const struct topic_config *config = (const struct topic_config *)(const void *)row->data;
        if (!code && topics_is_own(topics, config->name, config->name_len))
            code = named_table_set(fresh, config);
    }
    lock_release(&topics->table.lock);
    return code;
}

/* @locks holds:BROKER_FILES */
static enum tern_code write_fresh(struct topics *topics, struct named_table *fresh,
                                  struct tern_error *err)
{
    size_t count;
    uint64_t version;
    uint64_t mark;
    struct topic_config *rows = named_table_snapshot(fresh, &count, &version, &mark);
    if (!rows)
        return error_set(err, TERN_NO_MEMORY, "no memory for a table of topics");
    enum tern_code code = topics_write(topics, rows, count, version, err);
    free(rows);
    return code;
}

enum tern_code topics_replace(struct topics *topics, const struct topic_config *configs,
                              size_t count, uint64_t version, struct tern_error *err)
{
    struct named_table fresh;
    enum tern_code code = TERN_OK;
    named_table_init(&fresh, &topics->env, "topics", sizeof(struct topic_config), TOPICS_MAX);
    atomic_store(&fresh.version, version);
    if (version > INT64_MAX)
        code =
            error_set(err, TERN_INVALID, "version %" PRIu64 " of the topics is too high", version);
    for (size_t i = 0; !code && i < count; i++)
        code = take_config(topics, &fresh, &configs[i], err);
    lock_acquire(&topics->table.file_lock);
    if (!code && (code = keep_own(topics, &fresh)))
        error_set(err, code, "no room for the system topics");
    if (!code) {
        code = write_fresh(topics, &fresh, err);
        if (code)
            named_table_unsettle(&topics->table);
        else
            named_table_swap(&topics->table, &fresh);
    }
    lock_release(&topics->table.file_lock);
    named_table_fini(&fresh);
    if (!code)
        named_table_tell(&topics->table);
    return code;
}
