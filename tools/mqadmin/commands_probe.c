/* Sending probes and measuring how long the answers take. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tern/tern.h>

#include "tools/mqadmin/command.h"

enum { PROBE_SIZE_MAX = 4 << 20, PROBES_MAX = 1000000, PROBE_TIMEOUT_MS = 5000 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

struct prober {
    struct invocation *invocation;
    struct tern_producer *producer;
    char *body;
    size_t size;
};

static enum tern_code prober_open(struct prober *prober, struct invocation *invocation, size_t size,
                                  struct tern_error *err)
{
    struct tern_producer_options *o = tern_producer_options_create();
    *prober = (struct prober){.invocation = invocation, .size = size, .body = malloc(size + 1)};
    enum tern_code code = o && prober->body ? TERN_OK : TERN_NO_MEMORY;
    if (prober->body)
        memset(prober->body, 'a', size);
    if (code == TERN_OK)
        code = tern_producer_options_namesrv(o, invocation->namesrv);
    if (code == TERN_OK)
        code = tern_producer_options_group(o, "TOOLS_PRODUCER");
    if (code == TERN_OK)
        code = tern_producer_options_send_timeout_ms(o, PROBE_TIMEOUT_MS);
    if (code == TERN_OK) /* a second try, or a body packed to nothing, is no measure */
        code = tern_producer_options_retries(o, 0);
    if (code == TERN_OK)
        code = tern_producer_options_compression(o, TERN_COMPRESS_NONE, 0);
    if (code == TERN_OK)
        code = tern_producer_create(o, &prober->producer, err);
    tern_producer_options_destroy(o);
    return code == TERN_OK ? tern_producer_start(prober->producer, err) : code;
}

static void prober_close(struct prober *prober)
{
    tern_producer_destroy(prober->producer);
    free(prober->body);
}

/* One probe, sent once and as it is. */
static enum tern_code probe(struct prober *prober, const char *topic,
                            struct tern_send_result *result, double *took_ms,
                            struct tern_error *err)
{
    struct tern_message *message;
    enum tern_code code = tern_message_create(topic, prober->body, prober->size, &message, err);
    if (code != TERN_OK)
        return code;
    double begin = now_ms();
    code = tern_producer_send(prober->producer, message, result, err);
    *took_ms = now_ms() - begin;
    tern_message_unref(message);
    return code;
}

/* ---- checkMsgSendRT ---- */

static int run_check_rt(struct invocation *invocation)
{
    static const char *const columns[] = {"Broker Name", "QID", "Send Result", "RT", NULL};
    static const char *const keys[] = {"brokerName", "queueId", "sendResult", "rtMs", NULL};
    const char *topic = option_value(invocation, "topic");
    struct tern_error err = {.text = ""};
    struct prober prober;
    struct table table;
    int64_t amount, size, failed = 0;
    double sum_ms = 0;
    if (!option_number(invocation, "amount", 1, PROBES_MAX, 100, &amount) ||
        !option_number(invocation, "size", 0, PROBE_SIZE_MAX, 128, &size))
        return EXIT_USAGE;
    enum tern_code code = prober_open(&prober, invocation, (size_t)size, &err);
    table_init(&table, columns, keys);
    for (int64_t i = 0; code == TERN_OK && i < amount; i++) {
        struct tern_send_result result;
        double took_ms = 0;
        memset(&result, 0, sizeof result);
        enum tern_code sent = probe(&prober, topic, &result, &took_ms, &err);
        bool ok = sent == TERN_OK && result.status == TERN_OK;
        if (sent == TERN_TOPIC_NOT_EXIST)
            code = sent;
        failed += !ok;
        sum_ms += i > 0 ? took_ms : 0; /* the first one connects */
        table_add(&table,
                  (json_t *[]){text_of(result.queue.broker_name), number_of(result.queue.queue_id),
                               json_boolean(ok), json_real(took_ms)});
    }
    prober_close(&prober);
    if (code != TERN_OK) {
        json_decref(table.rows);
        return command_fail(invocation, code, &err);
    }
    table_print(&table, invocation->json);
    if (!invocation->json)
        printf("Avg RT: %.2f\n", amount > 1 ? sum_ms / (double)(amount - 1) : sum_ms);
    return failed ? EXIT_NO : EXIT_DONE;
}

/* ---- sendMsgStatus ---- */

static int run_send_status(struct invocation *invocation)
{
    const char *broker = option_value(invocation, "brokerName");
    struct tern_error err = {.text = ""};
    struct prober prober;
    int64_t amount, size;
    int status = EXIT_DONE;
    if (!option_number(invocation, "count", 1, PROBES_MAX, 50, &amount) ||
        !option_number(invocation, "messageSize", 0, PROBE_SIZE_MAX, 128, &size))
        return EXIT_USAGE;
    enum tern_code code = prober_open(&prober, invocation, (size_t)size, &err);
    json_t *results = json_array();
    for (int64_t i = 0; code == TERN_OK && i < amount; i++) {
        struct tern_send_result result;
        double took_ms = 0;
        code =
            probe(&prober, broker, &result, &took_ms, &err); /* each broker has a topic so named */
        if (code != TERN_OK)
            break;
        const char *name = result.status == TERN_OK ? "SEND_OK" : tern_code_name(result.status);
        if (result.status != TERN_OK)
            status = EXIT_NO;
        json_array_append_new(results, json_pack("{s:f, s:s, s:s}", "rtMs", took_ms, "sendStatus",
                                                 name, "msgId", result.message_id));
        if (!invocation->json)
            printf("rt=%.2fms, SendResult=SendResult [sendStatus=%s, msgId=%s, offsetMsgId=%s, "
                   "queue=%s/%" PRId32 "]\n",
                   took_ms, name, result.message_id, result.offset_id, result.queue.broker_name,
                   result.queue.queue_id);
    }
    prober_close(&prober);
    if (invocation->json)
        json_print(results);
    else
        json_decref(results);
    return code == TERN_OK ? status : command_fail(invocation, code, &err);
}

/* ---- clusterRT ---- */

/* One round of probes to one broker; its row. */
static void probe_broker(struct prober *prober, const struct admin_broker *broker, int64_t amount,
                         struct table *table, int64_t *failed)
{
    int64_t ok = 0, no = 0;
    double sum_ms = 0;
    for (int64_t i = 0; i < amount; i++) {
        struct tern_error err = {.text = ""};
        struct tern_send_result result;
        double took_ms = 0;
        enum tern_code code = probe(prober, broker->name, &result, &took_ms, &err);
        if (code == TERN_OK && result.status == TERN_OK)
            ok++;
        else
            no++;
        sum_ms += i > 0 ? took_ms : 0;
    }
    *failed += no;
    table_add(table, (json_t *[]){text_of(broker->cluster), text_of(broker->name),
                                  json_real(amount > 1 ? sum_ms / (double)(amount - 1) : sum_ms),
                                  number_of(ok), number_of(no)});
}

static int probe_cluster(struct prober *prober, int64_t amount)
{
    static const char *const columns[] = {"Cluster Name", "Broker Name", "RT",
                                          "successCount", "failCount",   NULL};
    static const char *const keys[] = {"clusterName",  "brokerName", "rtMs",
                                       "successCount", "failCount",  NULL};
    struct invocation *invocation = prober->invocation;
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    size_t count;
    int64_t failed = 0;
    enum tern_code code = admin_brokers(invocation->admin, option_value(invocation, "cluster"),
                                        true, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    table_init(&table, columns, keys);
    for (size_t i = 0; i < count; i++)
        probe_broker(prober, &brokers[i], amount, &table, &failed);
    free(brokers);
    table_print(&table, invocation->json);
    return failed ? EXIT_NO : EXIT_DONE;
}

static int run_cluster_rt(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct prober prober;
    int64_t amount, size, interval_s;
    if (!option_number(invocation, "amount", 1, PROBES_MAX, 100, &amount) ||
        !option_number(invocation, "size", 0, PROBE_SIZE_MAX, 128, &size) ||
        !option_number(invocation, "interval", 1, 86400, 0, &interval_s))
        return EXIT_USAGE;
    enum tern_code code = prober_open(&prober, invocation, (size_t)size, &err);
    if (code != TERN_OK) {
        prober_close(&prober);
        return command_fail(invocation, code, &err);
    }
    int status = probe_cluster(&prober, amount);
    while (interval_s > 0 && fflush(stdout) == 0) { /* until it is interrupted */
        sleep((unsigned)interval_s);
        status = probe_cluster(&prober, amount);
    }
    prober_close(&prober);
    return status;
}

const struct command probe_commands[] = {
    {.name = "checkMsgSendRT",
     .help = "send probes to a topic and show how long each took, in ms",
     .example = "mqadmin checkMsgSendRT -t Orders -a 20",
     .options = {{'t', "topic", "TOPIC", true, "the topic; consumers of it get the probes"},
                 {'a', "amount", "N", false, "so many probes (100)"},
                 {'s', "size", "BYTES", false, "of this size (128)"}},
     .run = run_check_rt},
    {.name = "sendMsgStatus",
     .help = "send probes to the topic that each broker has under its own name",
     .example = "mqadmin sendMsgStatus -b broker-a -c 5",
     .options = {{'b', "brokerName", "NAME", true, "the broker set"},
                 {'s', "messageSize", "BYTES", false, "of this size (128)"},
                 {'c', "count", "N", false, "so many probes (50)"}},
     .run = run_send_status},
    {.name = "clusterRT",
     .help = "send probes to every master and show the mean of what they took, in ms",
     .example = "mqadmin clusterRT -c DefaultCluster -a 20",
     .options = {{'a', "amount", "N", false, "so many probes to each (100)"},
                 {'s', "size", "BYTES", false, "of this size (128)"},
                 {'c', "cluster", "CLUSTER", false, "only this cluster's"},
                 {'p', "printLog", "BOOL", false, "accepted; a line per broker is always printed"},
                 {'m', "machineRoom", "NAME", false, "accepted"},
                 {'i', "interval", "SECONDS", false, "again and again, so often"}},
     .run = run_cluster_rt},
};
const size_t probe_command_count = sizeof probe_commands / sizeof probe_commands[0];
