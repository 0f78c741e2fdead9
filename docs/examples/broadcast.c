/* Every instance of a service hears everything: NAMESRV_ADDR=127.0.0.1:9876 example_broadcast TOPIC
 * GROUP [NAME], until Enter is pressed. Two on one machine need a NAME each. */
#include <stdio.h>

#include <tern/tern.h>

static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const char *body = tern_message_body(messages[i], &size);
        printf("reload %.*s\n", (int)size, body);
    }
    return TERN_CONSUME_SUCCESS; /* a failure would be logged and passed: nobody tries again */
}

int main(int argc, char **argv)
{
    struct tern_error err = {.text = "usage: example_broadcast TOPIC GROUP [NAME]"};
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer = NULL;
    bool running = (argc == 3 || argc == 4) && options &&
                   tern_consumer_options_group(options, argv[2]) == TERN_OK &&
                   tern_consumer_options_model(options, TERN_BROADCASTING) == TERN_OK &&
                   (argc == 3 || tern_consumer_options_instance(options, argv[3]) == TERN_OK) &&
                   tern_push_consumer_create(options, &consumer, &err) == TERN_OK &&
                   tern_push_consumer_subscribe(consumer, argv[1], "*", &err) == TERN_OK &&
                   tern_push_consumer_listener(consumer, listen, NULL) == TERN_OK &&
                   tern_push_consumer_start(consumer, &err) == TERN_OK;
    if (running) {
        printf("ready\n"); /* what is sent from now on is heard */
        getchar();
    } else {
        fprintf(stderr, "example_broadcast: %s\n", err.text);
    }
    tern_push_consumer_destroy(consumer); /* writes how far it came */
    tern_consumer_options_destroy(options);
    return running ? 0 : 1;
}
