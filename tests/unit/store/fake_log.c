#include "tests/unit/store/fake_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/props.h"

int64_t commit_log_min(const struct commit_log *log)
{
    return atomic_load(&log->min);
}

int64_t commit_log_end(const struct commit_log *log)
{
    return atomic_load(&log->end);
}

int64_t commit_log_whole(const struct commit_log *log)
{
    return atomic_load(&log->end);
}

uint32_t commit_log_cuts(const struct commit_log *log)
{
    (void)log;
    return 0;
}

int64_t commit_log_flushed(const struct commit_log *log)
{
    return atomic_load(&log->end);
}

int64_t commit_log_segment_bytes(const struct commit_log *log)
{
    return log->segment_bytes;
}

enum tern_code commit_log_read(struct commit_log *log, int64_t phys_off, void *buf, size_t size,
                               bool nowait, size_t *got)
{
    int64_t end = commit_log_end(log);
    atomic_fetch_add(&log->reads, 1);
    *got = 0;
    if (log->failing)
        return log->failing;
    if (phys_off < commit_log_min(log) || phys_off >= end)
        return TERN_NOT_FOUND;
    int64_t segment_end = phys_off - phys_off % log->segment_bytes + log->segment_bytes;
    if (segment_end < end)
        end = segment_end;
    if (nowait && log->cold_from > 0 && log->cold_from < end)
        end = log->cold_from;
    if (nowait && (log->cold || end <= phys_off))
        return TERN_AGAIN;
    if ((int64_t)size > end - phys_off)
        size = (size_t)(end - phys_off);
    memcpy(buf, log->bytes + phys_off, size);
    *got = size;
    return TERN_OK;
}

void fake_log_init(struct commit_log *log, size_t capacity, int64_t segment_bytes)
{
    memset(log, 0, sizeof *log);
    log->bytes = calloc(1, capacity);
    log->capacity = capacity;
    log->segment_bytes = segment_bytes;
}

void fake_log_fini(struct commit_log *log)
{
    free(log->bytes);
}

static void fake_prop(uint8_t *props, size_t *len, const char *name, const char *value)
{
    if (value &&
        props_append(props, len, RECORD_PROPS_MAX, name, strlen(name), value, strlen(value)))
        abort();
}

int64_t fake_append(struct commit_log *log, const struct fake_record *what)
{
    static uint8_t props[RECORD_PROPS_MAX];
    size_t props_len = 0;
    uint8_t *body = calloc(1, what->body_bytes + 1);
    const char *topic = what->topic ? what->topic : "TopicTest";
    int64_t at = commit_log_end(log);
    fake_prop(props, &props_len, PROP_UNIQ_KEY, what->uniq_key);
    fake_prop(props, &props_len, PROP_KEYS, what->keys);
    fake_prop(props, &props_len, PROP_TAGS, what->tags);
    fake_prop(props, &props_len, PROP_DELAY, what->delay);
    int64_t size = (int64_t)record_size(what->body_bytes, strlen(topic), props_len, what->sys_flag);
    int64_t left = log->segment_bytes - at % log->segment_bytes;
    if (size + RECORD_BLANK_BYTES > left) {
        put_be32(log->bytes + at, (uint32_t)left);
        put_be32(log->bytes + at + 4, BLANK_MAGIC);
        at += left;
    }
    struct record record = {.queue_id = what->queue_id,
                            .queue_off = what->queue_off,
                            .phys_off = at,
                            .sys_flag = what->sys_flag,
                            .store_ms = what->store_ms ? what->store_ms : 1700000000000 + at,
                            .body = body,
                            .body_len = (uint32_t)what->body_bytes,
                            .topic = (const uint8_t *)topic,
                            .topic_len = (uint8_t)strlen(topic),
                            .props = props,
                            .props_len = (uint16_t)props_len};
    if ((size_t)(at + size) > log->capacity ||
        record_encode(log->bytes + at, (size_t)size, &record) != (size_t)size)
        abort();
    free(body);
    atomic_store(&log->end, at + size);
    return at;
}
