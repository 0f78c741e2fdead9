/*
 * The settings of consumers: one setter each, checked when set; texts are copied into the struct.
 *
 * Threads: one at a time. Failure modes: TERN_INVALID leaves the old value, and a text that names
 * the setting as RocketMQ does, the value and the range.
 */
#include "client/consumer_options.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/allocation.h"
#include "client/broker_pick.h"
#include "client/compress.h"
#include "client/message_internal.h"
#include "client/sim_hooks.h"
#include "client/trace_codec.h"

enum {
    PULL_BATCH_MAX = 1024,
    CONSUME_BATCH_MAX = 1024,
    THREADS_MAX = 1000,
    THRESHOLD_MAX = 65535,
    TOPIC_THRESHOLD_MAX = 6553500,
    RECONSUME_MAX = 10000,
    BODY_LIMIT_LEAST = 1024,
    CONSUME_TIMEOUT_MS = 15 * 60 * 1000,
    CONSUME_TIMEOUT_MIN_MS = 1000,
    CONSUME_TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000,
    SUSPEND_MIN_MS = 10,
    SUSPEND_MAX_MS = 30000,
    COMMIT_INTERVAL_MIN_MS = 100,
    COMMIT_INTERVAL_MAX_MS = 600000,
    FIXED_QUEUES_MAX = 65536
};
#define MIB ((int64_t)1 << 20)

struct tern_consumer_options *tern_consumer_options_create(void)
{
    struct tern_consumer_options *options = calloc(1, sizeof *options);
    if (!options)
        return NULL;
    options->from = TERN_FROM_LAST;
    options->pull_batch = 32;
    options->consume_batch = 1;
    options->threads = 20;
    options->pull_threshold = 1000;
    options->pull_threshold_bytes = 100 * MIB;
    options->topic_threshold = -1;
    options->topic_threshold_bytes = -1;
    options->max_span = 2000;
    options->commit_interval_ms = 5000;
    options->max_reconsume_times = -1;
    snprintf(options->allocate, sizeof options->allocate, "AVG");
    options->max_body_bytes = COMPRESS_BODY_MAX;
    options->consume_timeout_ms = CONSUME_TIMEOUT_MS;
    options->suspend_ms = 1000;
    return options;
}

static void list_unref(struct queue_list *list)
{
    if (list && atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) == 1)
        free(list);
}

void consumer_options_copy(struct tern_consumer_options *to,
                           const struct tern_consumer_options *from)
{
    *to = *from;
    if (to->fixed)
        atomic_fetch_add_explicit(&to->fixed->refs, 1, memory_order_relaxed);
}

void consumer_options_fini(struct tern_consumer_options *options)
{
    list_unref(options->fixed);
    options->fixed = NULL;
}

void tern_consumer_options_destroy(struct tern_consumer_options *options)
{
    if (!options)
        return;
    consumer_options_fini(options);
    free(options);
}

const char *tern_consumer_options_error(const struct tern_consumer_options *options)
{
    return options->refusal;
}

/* ---- checking, and saying what was wrong ---- */

static enum tern_code refuse(struct tern_consumer_options *options, const char *fmt, ...)
    PRINTF_LIKE(2, 3);
static enum tern_code refuse(struct tern_consumer_options *options, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(options->refusal, sizeof options->refusal, fmt, args);
    va_end(args);
    return TERN_INVALID;
}

static enum tern_code set_text(struct tern_consumer_options *options, const char *what, char *dst,
                               size_t max, const char *text)
{
    size_t len = text ? strnlen(text, max + 1) : 0;
    if (len == 0 || len > max)
        return refuse(options, "%s has %s%zu bytes, allowed are 1 to %zu", what,
                      len > max ? "more than " : "", len > max ? max : len, max);
    memcpy(dst, text, len + 1);
    return TERN_OK;
}

static enum tern_code set_i64(struct tern_consumer_options *options, const char *what, int64_t *dst,
                              int64_t value, int64_t least, int64_t most)
{
    if (value < least || value > most)
        return refuse(options, "%s is %lld, allowed are %lld to %lld", what, (long long)value,
                      (long long)least, (long long)most);
    *dst = value;
    return TERN_OK;
}

static enum tern_code set_i32(struct tern_consumer_options *options, const char *what, int32_t *dst,
                              int value, int least, int most)
{
    int64_t wide;
    enum tern_code code = set_i64(options, what, &wide, value, least, most);
    if (code == TERN_OK)
        *dst = value;
    return code;
}

enum tern_code consumer_options_check(const struct tern_consumer_options *options,
                                      struct tern_error *err)
{
    if (!options || !options->group[0])
        return error_set(err, TERN_INVALID, "a consumer needs a group");
    if (options->threads_min > options->threads)
        return error_set(err, TERN_INVALID,
                         "consumeThreadMin is %d, allowed are 0 to consumeThreadMax, which is %d",
                         options->threads_min, options->threads);
    return TERN_OK;
}

/* ---- the setters ---- */

enum tern_code tern_consumer_options_namesrv(struct tern_consumer_options *options,
                                             const char *addresses)
{
    return set_text(options, "namesrvAddr", options->namesrv, NAMESRV_TEXT_MAX, addresses);
}

enum tern_code tern_consumer_options_group(struct tern_consumer_options *options, const char *group)
{
    static const char reserved[] = "DEFAULT_CONSUMER";
    struct tern_error err = {.text = ""};
    if (group && strcmp(group, reserved) == 0)
        return refuse(options, "consumerGroup %s is reserved: choose another", reserved);
    if (group && group_use_check(group, strnlen(group, GROUP_NAME_MAX + 1), &err) != TERN_OK)
        return refuse(options, "consumerGroup: %s", err.text);
    return set_text(options, "consumerGroup", options->group, GROUP_NAME_MAX, group);
}

enum tern_code tern_consumer_options_instance(struct tern_consumer_options *options,
                                              const char *name)
{
    struct tern_error err = {.text = ""};
    if (name && client_id_check(name, strnlen(name, CLIENT_ID_MAX + 1), &err) != TERN_OK)
        return refuse(options, "instanceName: %s", err.text);
    return set_text(options, "instanceName", options->instance_name, INSTANCE_NAME_MAX, name);
}

enum tern_code tern_consumer_options_from(struct tern_consumer_options *options,
                                          enum tern_consume_from from, int64_t timestamp_ms)
{
    if ((unsigned)from > TERN_FROM_TIMESTAMP)
        return refuse(options, "consumeFromWhere is %u, allowed are last, first, timestamp",
                      (unsigned)from);
    if (from == TERN_FROM_TIMESTAMP && timestamp_ms < 0)
        return refuse(options, "consumeTimestamp is %lld ms, allowed is 0 or more",
                      (long long)timestamp_ms);
    options->from = from;
    options->from_timestamp_ms = timestamp_ms;
    return TERN_OK;
}

enum tern_code tern_consumer_options_model(struct tern_consumer_options *options,
                                           enum tern_message_model model)
{
    if ((unsigned)model > TERN_BROADCASTING)
        return refuse(options, "messageModel is %u, allowed are clustering, broadcasting",
                      (unsigned)model);
    options->model = model;
    return TERN_OK;
}

enum tern_code tern_consumer_options_offset_dir(struct tern_consumer_options *options,
                                                const char *dir)
{
    return set_text(options, "the directory of offsets", options->offset_dir, OFFSET_DIR_MAX, dir);
}

enum tern_code tern_consumer_options_offset_store(struct tern_consumer_options *options,
                                                  const struct tern_offset_store *store)
{
    if (!store || !store->query || !store->update || !store->persist)
        return refuse(options, "an offset store needs the functions query, update and persist");
    options->store = *store;
    return TERN_OK;
}

enum tern_code tern_consumer_options_pull_batch(struct tern_consumer_options *options, int messages)
{
    return set_i32(options, "pullBatchSize", &options->pull_batch, messages, 1, PULL_BATCH_MAX);
}

enum tern_code tern_consumer_options_consume_batch(struct tern_consumer_options *options,
                                                   int messages)
{
    return set_i32(options, "consumeMessageBatchMaxSize", &options->consume_batch, messages, 1,
                   CONSUME_BATCH_MAX);
}

enum tern_code tern_consumer_options_threads(struct tern_consumer_options *options, int threads)
{
    return set_i32(options, "consumeThreadMax", &options->threads, threads, 1, THREADS_MAX);
}

enum tern_code tern_consumer_options_threads_min(struct tern_consumer_options *options, int threads)
{
    return set_i32(options, "consumeThreadMin", &options->threads_min, threads, 0, THREADS_MAX);
}

enum tern_code tern_consumer_options_pull_threshold(struct tern_consumer_options *options,
                                                    int messages)
{
    return set_i32(options, "pullThresholdForQueue", &options->pull_threshold, messages, 1,
                   THRESHOLD_MAX);
}

enum tern_code tern_consumer_options_pull_threshold_bytes(struct tern_consumer_options *options,
                                                          int64_t size_bytes)
{
    return set_i64(options, "pullThresholdSizeForQueue", &options->pull_threshold_bytes, size_bytes,
                   MIB, 1024 * MIB);
}

enum tern_code tern_consumer_options_pull_threshold_for_topic(struct tern_consumer_options *options,
                                                              int messages)
{
    if (messages == -1) {
        options->topic_threshold = -1;
        return TERN_OK;
    }
    return set_i32(options, "pullThresholdForTopic", &options->topic_threshold, messages, 1,
                   TOPIC_THRESHOLD_MAX);
}

enum tern_code
tern_consumer_options_pull_threshold_bytes_for_topic(struct tern_consumer_options *options,
                                                     int64_t size_bytes)
{
    if (size_bytes == -1) {
        options->topic_threshold_bytes = -1;
        return TERN_OK;
    }
    return set_i64(options, "pullThresholdSizeForTopic", &options->topic_threshold_bytes,
                   size_bytes, MIB, 102400 * MIB);
}

enum tern_code tern_consumer_options_max_span(struct tern_consumer_options *options, int offsets)
{
    return set_i32(options, "consumeConcurrentlyMaxSpan", &options->max_span, offsets, 1,
                   THRESHOLD_MAX);
}

enum tern_code tern_consumer_options_pull_interval_ms(struct tern_consumer_options *options,
                                                      int64_t ms)
{
    return set_i64(options, "pullInterval", &options->pull_interval_ms, ms, 0, THRESHOLD_MAX);
}

enum tern_code tern_consumer_options_commit_interval_ms(struct tern_consumer_options *options,
                                                        int64_t ms)
{
    return set_i64(options, "persistConsumerOffsetInterval", &options->commit_interval_ms, ms,
                   COMMIT_INTERVAL_MIN_MS, COMMIT_INTERVAL_MAX_MS);
}

enum tern_code tern_consumer_options_max_reconsume_times(struct tern_consumer_options *options,
                                                         int times)
{
    return set_i32(options, "maxReconsumeTimes", &options->max_reconsume_times, times, -1,
                   RECONSUME_MAX);
}

/* ---- sharing queues ---- */

enum tern_code tern_consumer_options_allocate(struct tern_consumer_options *options,
                                              const char *strategy)
{
    if (!strategy || !allocation_name_known(strategy))
        return refuse(
            options,
            "allocateMessageQueueStrategy %.64s is not known: AVG, AVG_BY_CIRCLE, CONFIG, "
            "MACHINE_ROOM, CONSISTENT_HASH, MACHINE_ROOM_NEARBY-<one of these>",
            strategy ? strategy : "NULL");
    return set_text(options, "allocateMessageQueueStrategy", options->allocate, ALLOCATE_NAME_MAX,
                    strategy);
}

/* A text in a field of the application's, which may have forgotten the end. */
static bool field_good(const char *text, size_t size,
                       enum tern_code (*check)(const void *, size_t, struct tern_error *))
{
    size_t len = strnlen(text, size);
    return len < size && check(text, len, NULL) == TERN_OK;
}

enum tern_code tern_consumer_options_allocate_queues(struct tern_consumer_options *options,
                                                     const struct tern_queue *queues, size_t count)
{
    if (count < 1 || count > FIXED_QUEUES_MAX)
        return refuse(options, "%zu queues are given, allowed are 1 to %d", count,
                      FIXED_QUEUES_MAX);
    for (size_t i = 0; i < count; i++)
        if (!field_good(queues[i].topic, sizeof queues[i].topic, topic_name_check) ||
            !field_good(queues[i].broker_name, sizeof queues[i].broker_name, broker_name_check) ||
            queues[i].queue_id < 0)
            return refuse(options, "queue %zu of %zu is none: topic, broker name or number", i + 1,
                          count);
    struct queue_list *list = malloc(sizeof *list + count * sizeof list->queues[0]);
    if (!list)
        return TERN_NO_MEMORY;
    list->refs = 1;
    list->count = count;
    memcpy(list->queues, queues, count * sizeof list->queues[0]);
    list_unref(options->fixed);
    options->fixed = list;
    return TERN_OK;
}

enum tern_code tern_consumer_options_allocate_rooms(struct tern_consumer_options *options,
                                                    const char *rooms)
{
    return set_text(options, "the list of rooms", options->rooms, ROOMS_TEXT_MAX, rooms);
}

enum tern_code tern_consumer_options_allocate_resolver(struct tern_consumer_options *options,
                                                       const struct tern_room_resolver *resolver)
{
    if (!resolver || !resolver->broker_room || !resolver->client_room)
        return refuse(options, "a resolver of rooms needs both functions");
    options->resolver = *resolver;
    return TERN_OK;
}

enum tern_code tern_consumer_options_max_body_bytes(struct tern_consumer_options *options,
                                                    int64_t size_bytes)
{
    return set_i64(options, "maxBodyBytes", &options->max_body_bytes, size_bytes, BODY_LIMIT_LEAST,
                   COMPRESS_BODY_MAX);
}

enum tern_code tern_consumer_options_namespace(struct tern_consumer_options *options,
                                               const char *name)
{
    struct tern_error err;
    if (!name)
        return refuse(options, "namespace is NULL");
    if (namespace_check(name, &err) != TERN_OK)
        return refuse(options, "%s", err.text);
    memcpy(options->ns, name, strlen(name) + 1);
    return TERN_OK;
}

enum tern_code tern_consumer_options_trace(struct tern_consumer_options *options, bool enabled,
                                           const char *topic)
{
    const char *name = topic ? topic : TRACE_TOPIC;
    size_t len = strnlen(name, TOPIC_NAME_MAX + 1);
    if (topic_name_check(name, len, NULL) != TERN_OK || topic_send_forbidden(name, len))
        return refuse(options, "%.127s can be no trace topic", name);
    options->trace = enabled;
    memcpy(options->trace_topic, name, len + 1);
    return TERN_OK;
}

/* A list of its own, with the topics as the cluster knows them. */
static enum tern_code wrap_fixed(struct tern_consumer_options *options, struct tern_error *err)
{
    const struct queue_list *from = options->fixed;
    struct queue_list *list = malloc(sizeof *list + from->count * sizeof list->queues[0]);
    if (!list)
        return error_set(err, TERN_NO_MEMORY, "%zu queues", from->count);
    enum tern_code code = TERN_OK;
    list->refs = 1;
    list->count = from->count;
    memcpy(list->queues, from->queues, from->count * sizeof list->queues[0]);
    for (size_t i = 0; i < list->count && code == TERN_OK; i++)
        code = namespace_wrap(options->ns, from->queues[i].topic, TOPIC_NAME_MAX,
                              list->queues[i].topic, err);
    list_unref(code == TERN_OK ? options->fixed : list);
    if (code == TERN_OK)
        options->fixed = list;
    return code;
}

enum tern_code consumer_options_use_namespace(struct tern_consumer_options *options,
                                              struct tern_error *err)
{
    char group[GROUP_NAME_MAX + 1];
    if (!options->ns[0])
        return TERN_OK;
    enum tern_code code = namespace_wrap(options->ns, options->group, GROUP_NAME_MAX, group, err);
    if (code == TERN_OK)
        memcpy(options->group, group, sizeof group);
    if (code == TERN_OK && options->fixed)
        code = wrap_fixed(options, err);
    return code;
}

enum tern_code consumer_wire_queue(const struct tern_consumer_options *options,
                                   const struct tern_queue *queue, struct tern_queue *out,
                                   struct tern_error *err)
{
    if (!broker_queue_key(queue, out))
        return error_set(err, TERN_INVALID, "the queue's names are not terminated");
    return namespace_wrap(options->ns, queue->topic, TOPIC_NAME_MAX, out->topic, err);
}

void consumer_prepare_message(const struct tern_consumer_options *options,
                              struct tern_message *message)
{
    message_hide_namespace(message, options->ns);
    message_limit_body(message, (size_t)options->max_body_bytes);
}

enum tern_code tern_consumer_options_consume_timeout_ms(struct tern_consumer_options *options,
                                                        int64_t ms)
{
    return set_i64(options, "consumeTimeout", &options->consume_timeout_ms, ms,
                   CONSUME_TIMEOUT_MIN_MS, CONSUME_TIMEOUT_MAX_MS);
}

enum tern_code tern_consumer_options_suspend_ms(struct tern_consumer_options *options, int64_t ms)
{
    return set_i64(options, "suspendCurrentQueueTimeMillis", &options->suspend_ms, ms,
                   SUSPEND_MIN_MS, SUSPEND_MAX_MS);
}

void tern_consumer_options_world(struct tern_consumer_options *options, const struct env *env,
                                 struct link *link)
{
    ENSURE(!env == !link);
    options->env = env;
    options->link = link;
}

void consumer_options_instance(const struct tern_consumer_options *options,
                               struct instance_options *out)
{
    *out = (struct instance_options){
        .namesrv = options->namesrv[0] ? options->namesrv : NULL,
        .instance_name = options->instance_name[0]             ? options->instance_name
                         : options->model == TERN_BROADCASTING ? BROADCAST_INSTANCE
                                                               : NULL,
        .env = options->env,
        .link = options->link,
    };
}
