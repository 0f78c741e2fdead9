/*
 * The settings of consumers: one setter each, checked when set; texts are copied into the struct.
 *
 * Threads: one at a time. Failure modes: TERN_INVALID leaves the old value.
 */
#include "client/consumer_options.h"

#include <stdlib.h>
#include <string.h>

#include "client/sim_hooks.h"

enum {
    PULL_BATCH_MAX = 1024,
    CONSUME_BATCH_MAX = 1024,
    THREADS_MAX = 1000,
    THRESHOLD_MAX = 65535,
    RECONSUME_MAX = 10000,
    COMMIT_INTERVAL_MIN_MS = 100,
    COMMIT_INTERVAL_MAX_MS = 600000
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
    options->max_span = 2000;
    options->commit_interval_ms = 5000;
    options->max_reconsume_times = -1;
    return options;
}

void tern_consumer_options_destroy(struct tern_consumer_options *options)
{
    free(options);
}

static enum tern_code set_text(char *dst, size_t max, const char *text)
{
    size_t len = text ? strnlen(text, max + 1) : 0;
    if (len == 0 || len > max)
        return TERN_INVALID;
    memcpy(dst, text, len + 1);
    return TERN_OK;
}

static enum tern_code set_i32(int32_t *dst, int value, int least, int most)
{
    if (value < least || value > most)
        return TERN_INVALID;
    *dst = value;
    return TERN_OK;
}

static enum tern_code set_i64(int64_t *dst, int64_t value, int64_t least, int64_t most)
{
    if (value < least || value > most)
        return TERN_INVALID;
    *dst = value;
    return TERN_OK;
}

enum tern_code tern_consumer_options_namesrv(struct tern_consumer_options *options,
                                             const char *addresses)
{
    return set_text(options->namesrv, NAMESRV_TEXT_MAX, addresses);
}

enum tern_code tern_consumer_options_group(struct tern_consumer_options *options, const char *group)
{
    static const char reserved[] = "DEFAULT_CONSUMER";
    if (!group || strcmp(group, reserved) == 0 ||
        group_name_check(group, strnlen(group, GROUP_NAME_MAX + 1), NULL) != TERN_OK)
        return TERN_INVALID;
    return set_text(options->group, GROUP_NAME_MAX, group);
}

enum tern_code tern_consumer_options_instance(struct tern_consumer_options *options,
                                              const char *name)
{
    if (!name || client_id_check(name, strnlen(name, CLIENT_ID_MAX + 1), NULL) != TERN_OK)
        return TERN_INVALID;
    return set_text(options->instance_name, INSTANCE_NAME_MAX, name);
}

enum tern_code tern_consumer_options_from(struct tern_consumer_options *options,
                                          enum tern_consume_from from, int64_t timestamp_ms)
{
    if ((unsigned)from > TERN_FROM_TIMESTAMP || (from == TERN_FROM_TIMESTAMP && timestamp_ms < 0))
        return TERN_INVALID;
    options->from = from;
    options->from_timestamp_ms = timestamp_ms;
    return TERN_OK;
}

enum tern_code tern_consumer_options_pull_batch(struct tern_consumer_options *options, int messages)
{
    return set_i32(&options->pull_batch, messages, 1, PULL_BATCH_MAX);
}

enum tern_code tern_consumer_options_consume_batch(struct tern_consumer_options *options,
                                                   int messages)
{
    return set_i32(&options->consume_batch, messages, 1, CONSUME_BATCH_MAX);
}

enum tern_code tern_consumer_options_threads(struct tern_consumer_options *options, int threads)
{
    return set_i32(&options->threads, threads, 1, THREADS_MAX);
}

enum tern_code tern_consumer_options_pull_threshold(struct tern_consumer_options *options,
                                                    int messages)
{
    return set_i32(&options->pull_threshold, messages, 1, THRESHOLD_MAX);
}

enum tern_code tern_consumer_options_pull_threshold_bytes(struct tern_consumer_options *options,
                                                          int64_t size_bytes)
{
    return set_i64(&options->pull_threshold_bytes, size_bytes, MIB, 1024 * MIB);
}

enum tern_code tern_consumer_options_max_span(struct tern_consumer_options *options, int offsets)
{
    return set_i32(&options->max_span, offsets, 1, THRESHOLD_MAX);
}

enum tern_code tern_consumer_options_pull_interval_ms(struct tern_consumer_options *options,
                                                      int64_t ms)
{
    return set_i64(&options->pull_interval_ms, ms, 0, THRESHOLD_MAX);
}

enum tern_code tern_consumer_options_commit_interval_ms(struct tern_consumer_options *options,
                                                        int64_t ms)
{
    return set_i64(&options->commit_interval_ms, ms, COMMIT_INTERVAL_MIN_MS,
                   COMMIT_INTERVAL_MAX_MS);
}

enum tern_code tern_consumer_options_max_reconsume_times(struct tern_consumer_options *options,
                                                         int times)
{
    return set_i32(&options->max_reconsume_times, times, -1, RECONSUME_MAX);
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
        .instance_name = options->instance_name[0] ? options->instance_name : NULL,
        .env = options->env,
        .link = options->link,
    };
}
