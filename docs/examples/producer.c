/*
 * A producer: one message at a time, and one whose queue is chosen by a key.
 *
 *   NAMESRV_ADDR=127.0.0.1:9876 example_producer TOPIC [COUNT]
 *
 * Prints where each message was stored. The topic must exist:
 *   mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t TOPIC
 */
#include <stdio.h>
#include <stdlib.h>

#include <tern/tern.h>

static int failed(const char *what, const struct tern_error *err)
{
    fprintf(stderr, "%s: %s: %s\n", what, tern_code_text(err->code), err->text);
    return 1;
}

/*
 * Sends one message; its order number decides the queue, so that one order's messages stay in
 * order.
 */
static int send_order_step(struct tern_producer *producer, const char *topic, int number)
{
    char body[64];
    char order[16];
    struct tern_error err;
    struct tern_message *message;
    struct tern_send_result result;
    int length = snprintf(body, sizeof body, "step %d of an order", number);
    snprintf(order, sizeof order, "order-%d", number % 3);
    if (tern_message_create(topic, body, (size_t)length, &message, &err) != TERN_OK)
        return failed("message", &err);
    /* A tag to subscribe by, a key to find the message by later. */
    if (tern_message_set_tag(message, "orders") != TERN_OK ||
        tern_message_set_keys(message, order) != TERN_OK) {
        fputs("a tag or key is not allowed\n", stderr);
        tern_message_unref(message);
        return 1;
    }
    enum tern_code code =
        tern_producer_send_select(producer, message, tern_select_by_hash, order, &result, &err);
    tern_message_unref(message);
    if (code != TERN_OK)
        return failed("send", &err);
    printf("%s %s %d %lld%s\n", result.message_id, result.queue.broker_name,
           (int)result.queue.queue_id, (long long)result.queue_offset,
           result.status == TERN_OK ? "" : " (stored, not confirmed)");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s TOPIC [COUNT]\n", argv[0]);
        return 2;
    }
    long count = argc > 2 ? strtol(argv[2], NULL, 10) : 10;
    struct tern_error err;
    struct tern_producer *producer = NULL;
    struct tern_producer_options *options = tern_producer_options_create();
    if (!options || tern_producer_options_group(options, "example_producer") != TERN_OK)
        return 1;
    /* The nameserver comes from NAMESRV_ADDR; tern_producer_options_namesrv() would set it here. */
    enum tern_code code = tern_producer_create(options, &producer, &err);
    tern_producer_options_destroy(options);
    if (code == TERN_OK)
        code = tern_producer_start(producer, &err);
    int status = code == TERN_OK ? 0 : failed("producer", &err);
    for (int i = 0; i < count && status == 0; i++)
        status = send_order_step(producer, argv[1], i);
    tern_producer_destroy(producer); /* shuts down first */
    return status;
}
