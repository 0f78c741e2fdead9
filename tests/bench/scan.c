/*
 * How fast a queue is scanned for what is rare: a store of its own with one match in 1,000
 * messages, read from end to end by store_get() as pulls do, by tag and by an SQL92 condition.
 *
 * usage: scan DIR MESSAGES SECONDS → entries per second of the thread's processor time, so that a
 * busy machine disturbs less, and the longest single get (OF-13)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/props.h"
#include "base/subscription.h"
#include "broker/store/store.h"

enum { RARE = 1000, RUN = 256, RECORD_MAX_BYTES = 512, REPLY_BYTES = 1 << 20 };

static struct store *store;
static struct env env;

static void die(const char *what)
{
    fprintf(stderr, "scan: %s\n", what);
    exit(1);
}

static size_t encode(uint8_t *out, long number)
{
    uint8_t props[256];
    size_t len = 0;
    char text[24];
    const char *tag = number % RARE ? "Common" : "Rare";
    snprintf(text, sizeof text, "%ld", number % RARE);
    if (props_append(props, &len, sizeof props, PROP_TAGS, 4, tag, strlen(tag)) ||
        props_append(props, &len, sizeof props, "n", 1, text, strlen(text)) ||
        props_append(props, &len, sizeof props, "region", 6, "eu", 2))
        die("properties");
    struct record record = {.topic = (const uint8_t *)"T",
                            .topic_len = 1,
                            .body = (const uint8_t *)"x",
                            .body_len = 1,
                            .props = props,
                            .props_len = (uint16_t)len};
    return record_encode(out, RECORD_MAX_BYTES, &record);
}

static void on_appended(struct store_append *append)
{
    if (append->result)
        die("an append was refused");
}

static void fill(long messages)
{
    static uint8_t bytes[RUN * RECORD_MAX_BYTES];
    struct consume_queue *queue;
    if (store_queue_ref(store, "T", 1, 0, &queue))
        die("no queue");
    for (long done = 0; done < messages;) {
        struct store_append append = {.records = bytes, .queue = queue, .on_appended = on_appended};
        for (; append.count < RUN && done < messages; append.count++, done++)
            append.size_bytes += (uint32_t)encode(bytes + append.size_bytes, done);
        store_append(store, &append);
        if (!append.end_phys_off && append.result)
            die("an append waits");
    }
    store_queue_unref(queue);
    int64_t min;
    int64_t max = 0;
    while (max < messages)
        store_queue_range(store, "T", 0, &min, &max);
}

static bool match_code(void *arg, int64_t code)
{
    return subscription_match_code(arg, code);
}

static bool match_record(void *arg, const struct record *record)
{
    return subscription_match_props(arg, record->props, record->props_len);
}

static uint8_t *reserve(void *arg, size_t size_bytes)
{
    return size_bytes <= REPLY_BYTES ? arg : NULL;
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void measure(const char *name, enum subscription_type type, const char *expression,
                    double seconds)
{
    static uint8_t reply[REPLY_BYTES];
    struct subscription *sub;
    if (subscription_compile(type, expression, strlen(expression), &sub, NULL))
        die("expression");
    const bool by_record = type == SUBSCRIPTION_SQL92;
    const struct store_filter filter = {.arg = sub,
                                        .match_code = by_record ? NULL : match_code,
                                        .match_record = by_record ? match_record : NULL};
    struct store_get get = {
        .topic = "T", .max_count = 32, .filter = &filter, .reserve = reserve, .arg = reply};
    uint64_t scanned = 0;
    uint64_t found = 0;
    int64_t longest_ns = 0;
    double begin_cpu_s = cpu_s();
    int64_t begin_ns = clock_mono_ns(env.clock);
    int64_t last_ns = begin_ns;
    while ((double)(last_ns - begin_ns) < seconds * 1e9) {
        struct store_get_result result;
        if (store_get(store, &get, &result))
            die("a get failed");
        int64_t now_ns = clock_mono_ns(env.clock);
        longest_ns = now_ns - last_ns > longest_ns ? now_ns - last_ns : longest_ns;
        last_ns = now_ns;
        scanned += result.scanned;
        found += result.count;
        get.offset = result.next_off < result.max_off ? result.next_off : 0;
    }
    printf("scan %-24s %.2f million entries/s, %lu found, longest get %.2f ms\n", name,
           (double)scanned / 1e6 / (cpu_s() - begin_cpu_s), (unsigned long)found,
           (double)longest_ns / 1e6);
    subscription_free(sub);
}

int main(int argc, char **argv)
{
    struct store_options options;
    struct store_recovery recovery;
    struct tern_error err = {.text = "usage: scan DIR MESSAGES SECONDS"};
    if (argc != 4)
        die(err.text);
    env_init_system(&env, NULL);
    store_options_init(&options);
    options.root_dir = argv[1];
    options.sync_flush = false;
    options.index_enabled = false;
    if (store_open(&env, &options, &store, &recovery, &err))
        die(err.text);
    fill(strtol(argv[2], NULL, 10));
    double seconds = strtod(argv[3], NULL);
    measure("tag, 1 in 1000", SUBSCRIPTION_TAG, "Rare", seconds);
    measure("two tags, none there", SUBSCRIPTION_TAG, "Absent || Gone", seconds);
    measure("SQL92, 1 in 1000", SUBSCRIPTION_SQL92, "n = 0 AND region IN ('eu', 'us')", seconds);
    return store_close(store, &err) ? 1 : 0;
}
