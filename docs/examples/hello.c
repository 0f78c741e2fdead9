/* The least that sends a message: NAMESRV_ADDR=127.0.0.1:9876 example_hello TOPIC */
#include <stdio.h>

#include <tern/tern.h>

int main(int argc, char **argv)
{
    struct tern_error err = {.text = "usage: example_hello TOPIC"};
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *producer = NULL;
    struct tern_message *message = NULL;
    struct tern_send_result result;
    bool sent = argc == 2 && options && tern_producer_create(options, &producer, &err) == TERN_OK &&
                tern_producer_start(producer, &err) == TERN_OK &&
                tern_message_create(argv[1], "hello", 5, &message, &err) == TERN_OK &&
                tern_producer_send(producer, message, &result, &err) == TERN_OK;
    if (sent)
        printf("%s in queue %d\n", result.message_id, (int)result.queue.queue_id);
    else
        fprintf(stderr, "example_hello: %s\n", err.text);
    tern_message_unref(message);
    tern_producer_destroy(producer);
    tern_producer_options_destroy(options);
    return sent ? 0 : 1;
}
