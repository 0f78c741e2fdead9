/*
 * Writes a store of ours for RocketMQ to read: write_store clean|crash DIR.
 *
 * Sizes are those of StoreOracle.java. "crash" ends the process without closing, and leaves half of
 * a record behind the log's end. Several queues, tags and keys (also such that share a hash), both
 * address families, every transaction type, delayed messages, runs of records in one append, bodies
 * from 0 bytes to most of a segment.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/props.h"
#include "broker/store/store.h"

enum {
    SEGMENT_BYTES = 64 * 1024,
    QUEUE_FILE_BYTES = 200 * 20,
    INDEX_SLOTS = 100,
    INDEX_ENTRIES = 400,
    BODY_MAX = 44000,
    RECORD_MAX = BODY_MAX + 1024,
    RUN_MAX = 8
};

static const char *const tags[] = {"TagA", "TagB", "标签", "Aa", "BB", "été", "😀", NULL};

struct spec {
    const char *topic;
    int32_t queue_id;
    const char *tag;
    const char *keys;
    const char *delay; /* level, for the schedule topic */
    uint32_t body_bytes;
    uint32_t sys_flag;
    bool born_v6, store_v6;
};

struct appending {
    struct store_append append; /* first */
    atomic_bool done;
};

static struct store *store;
static unsigned serial;

static void die(const char *what)
{
    fprintf(stderr, "write_store: %s\n", what);
    exit(1);
}

static void add(uint8_t *props, size_t *len, const char *name, const char *value)
{
    if (value &&
        props_append(props, len, RECORD_PROPS_MAX, name, strlen(name), value, strlen(value)))
        die("properties");
}

static size_t encode(uint8_t *out, const struct spec *spec)
{
    static uint8_t body[BODY_MAX];
    uint8_t props[1024];
    size_t props_len = 0;
    char unique[33];
    serial++;
    snprintf(unique, sizeof unique, "C0000202%024X", serial);
    add(props, &props_len, PROP_UNIQ_KEY, unique);
    add(props, &props_len, PROP_TAGS, spec->tag);
    add(props, &props_len, PROP_KEYS, spec->keys);
    add(props, &props_len, PROP_DELAY, spec->delay);
    add(props, &props_len, PROP_CLUSTER, "DefaultCluster");
    for (uint32_t i = 0; i < spec->body_bytes; i++)
        body[i] = (uint8_t)((i * 31 + serial * 2654435761u) >> 7);
    struct record record = {.queue_id = spec->queue_id,
                            .flag = (int32_t)serial,
                            .sys_flag = spec->sys_flag,
                            .born_ms = 1700000000000,
                            .born_host = {{192, 0, 2, 1}, 54321, false},
                            .store_host = {{127, 0, 0, 1}, 10911, false},
                            .reconsume_times = (int32_t)(serial % 3),
                            .body = body,
                            .body_len = spec->body_bytes,
                            .topic = (const uint8_t *)spec->topic,
                            .topic_len = (uint8_t)strlen(spec->topic),
                            .props = props,
                            .props_len = (uint16_t)props_len};
    struct host v6 = {{0x20, 0x01, 0x0d, 0xb8, [15] = 1}, 40000, true};
    if (spec->born_v6)
        record.born_host = v6;
    if (spec->store_v6)
        record.store_host = v6;
    return record_encode(out, RECORD_MAX, &record);
}

static void on_appended(struct store_append *append)
{
    atomic_store(&((struct appending *)append)->done, true);
}

/* `count` records in one append. */
static void put(const struct spec *spec, uint32_t count)
{
    static uint8_t bytes[RUN_MAX * RECORD_MAX];
    struct appending one = {
        .append = {.records = bytes, .count = count, .on_appended = on_appended}};
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += encode(bytes + size, spec);
    one.append.size_bytes = (uint32_t)size;
    if (store_queue_ref(store, spec->topic, strlen(spec->topic), spec->queue_id, &one.append.queue))
        die("queue");
    store_append(store, &one.append);
    while (!atomic_load(&one.done))
        usleep(100);
    store_queue_unref(one.append.queue);
    if (one.append.result)
        die(tern_code_text(one.append.result));
}

static void write_all(void)
{
    for (int i = 0; i < 240; i++) {
        char keys[32];
        snprintf(keys, sizeof keys, i % 2 ? "order-%d" : "Aa order-%d  BB", i);
        put(&(struct spec){.topic = "TopicTest",
                           .queue_id = i % 4,
                           .tag = tags[i % 8],
                           .keys = keys,
                           .body_bytes = (uint32_t)(i * 7 % 400)},
            1);
        if (i % 30 == 29)
            put(&(struct spec){.topic = "Orders", .tag = "标签", .keys = "run", .body_bytes = 40},
                RUN_MAX);
    }
    for (uint32_t i = 0; i < 7; i++)
        put(&(struct spec){.topic = "large_topic", .tag = "TagB", .body_bytes = 20000 + i * 4000},
            1);
    for (int i = 0; i < 450; i++)
        put(&(struct spec){.topic = "small-topic", .queue_id = 2, .body_bytes = 8}, 1);
    put(&(struct spec){.topic = "TopicTest", .keys = "v6", .body_bytes = 50, .born_v6 = true}, 1);
    put(&(struct spec){.topic = "TopicTest",
                       .keys = "v6",
                       .body_bytes = 50,
                       .born_v6 = true,
                       .store_v6 = true},
        1);
    put(
        &(struct spec){
            .topic = "SCHEDULE_TOPIC_XXXX", .queue_id = 17, .delay = "18", .body_bytes = 60},
        1);
    for (uint32_t type = SYS_TX_PREPARED; type <= SYS_TX_ROLLBACK; type += SYS_TX_PREPARED)
        put(
            &(struct spec){
                .topic = "TopicTest", .queue_id = 1, .keys = "transaction", .sys_flag = type},
            1);
}

static void open_store(const char *dir)
{
    static struct env env;
    struct store_options options;
    struct tern_error err = {TERN_OK, ""};
    env_init_system(&env, NULL);
    store_options_init(&options);
    options.root_dir = dir;
    options.segment_bytes = SEGMENT_BYTES;
    options.queue_file_bytes = QUEUE_FILE_BYTES;
    options.index_slots = INDEX_SLOTS;
    options.index_entries = INDEX_ENTRIES;
    options.max_message_bytes = BODY_MAX;
    options.disk_max_used_ratio = options.disk_clean_ratio = options.disk_warning_ratio = 2;
    if (store_open(&env, &options, &store, NULL, &err))
        die(err.text);
}

/* What an appender leaves whose process dies in the middle of a write. */
static void tear(const char *dir)
{
    static uint8_t bytes[RECORD_MAX];
    struct spec spec = {.topic = "TopicTest", .tag = "TagA", .keys = "torn", .body_bytes = 900};
    struct store_status status;
    char path[512];
    store_status(store, &status);
    long long base = status.appended / SEGMENT_BYTES * SEGMENT_BYTES;
    size_t size = encode(bytes, &spec);
    snprintf(path, sizeof path, "%s/commitlog/%020lld", dir, base);
    FILE *file = fopen(path, "r+");
    if (!file || fseek(file, (long)(status.appended - base), SEEK_SET) != 0 ||
        fwrite(bytes, 1, size / 2, file) != size / 2 || fclose(file) != 0)
        die(path);
}

int main(int argc, char **argv)
{
    struct tern_error err = {TERN_OK, ""};
    if (argc != 3 || (strcmp(argv[1], "clean") != 0 && strcmp(argv[1], "crash") != 0)) {
        fputs("usage: write_store clean|crash DIR\n", stderr);
        return 2;
    }
    open_store(argv[2]);
    write_all();
    if (strcmp(argv[1], "crash") == 0) {
        tear(argv[2]);
        _exit(0);
    }
    if (store_close(store, &err))
        die(err.text);
    return 0;
}
