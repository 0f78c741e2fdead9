/*
 * Orders that are announced when they were booked, and only then:
 *   NAMESRV_ADDR=127.0.0.1:9876 example_transaction TOPIC GROUP LEDGER KEY…
 * LEDGER is a file, this example's database: a line for each booked order. A KEY that begins with
 * '-' cannot be booked; one that begins with '?' is booked, but its outcome is not told: the broker
 * asks. Ends when every outcome is known to the broker.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tern/tern.h>

/* Whether the ledger has the order. */
static bool booked(const char *ledger, const char *key)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(ledger, "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        found = !strcmp(line, key);
    }
    if (file)
        fclose(file);
    return found;
}

/* The local transaction. */
static enum tern_transaction_outcome book(void *arg, const struct tern_message *message,
                                          void *send_arg)
{
    const char *ledger = arg;
    const char *key = send_arg;
    (void)message;
    if (key[0] == '-')
        return TERN_TRANSACTION_ROLLBACK;
    FILE *file = fopen(ledger, "a");
    bool good = file && fprintf(file, "%s\n", key) > 0;
    if (file && fclose(file) != 0)
        good = false;
    if (!good)
        return TERN_TRANSACTION_UNKNOWN; /* did it come to the disk? a check will see */
    return key[0] == '?' ? TERN_TRANSACTION_UNKNOWN : TERN_TRANSACTION_COMMIT;
}

/* What became of it? The ledger knows, whoever booked it. */
static enum tern_transaction_outcome look_up(void *arg, const struct tern_message *message)
{
    const char *ledger = arg;
    const char *key = tern_message_keys(message);
    bool there = key && booked(ledger, key);
    printf("asked about %s: %s\n", key ? key : "", there ? "booked" : "not booked");
    return there ? TERN_TRANSACTION_COMMIT : TERN_TRANSACTION_ROLLBACK;
}

static bool announce(struct tern_transaction_producer *producer, const char *topic, char *key,
                     struct tern_error *err)
{
    static const char *const words[] = {"unknown", "committed", "rolled back"};
    struct tern_transaction_result result;
    struct tern_message *message;
    if (tern_message_create(topic, key, strlen(key), &message, err) != TERN_OK)
        return false;
    bool good = tern_message_set_keys(message, key) == TERN_OK &&
                tern_transaction_producer_send(producer, message, key, &result, err) == TERN_OK;
    if (good)
        printf("%s %s %s\n", key, words[result.outcome], result.send.offset_id);
    tern_message_unref(message);
    return good;
}

/* Until the broker has asked about each of `open`, for at most two minutes. */
static bool await_checks(struct tern_transaction_producer *producer, uint64_t open)
{
    struct tern_transaction_stats stats;
    for (int i = 0; i < 1200; i++) {
        tern_transaction_producer_stats(producer, &stats);
        if (stats.checks >= open)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return false;
}

int main(int argc, char **argv)
{
    struct tern_error err = {.text = "usage: example_transaction TOPIC GROUP LEDGER KEY..."};
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_transaction_producer *producer = NULL;
    struct tern_transaction_listener listener = {NULL, book, look_up};
    uint64_t open = 0;
    if (argc > 3)
        listener.arg = argv[3];
    bool good = argc > 4 && options && tern_producer_options_group(options, argv[2]) == TERN_OK &&
                tern_transaction_producer_create(options, &listener, &producer, &err) == TERN_OK &&
                tern_transaction_producer_listen(producer, argv[1], &err) == TERN_OK &&
                tern_transaction_producer_start(producer, &err) == TERN_OK;
    for (int i = 4; good && i < argc; i++) {
        good = announce(producer, argv[1], argv[i], &err);
        open += argv[i][0] == '?';
    }
    if (good && !await_checks(producer, open)) {
        snprintf(err.text, sizeof err.text, "the broker did not ask within two minutes");
        good = false;
    }
    if (!good)
        fprintf(stderr, "example_transaction: %s\n", err.text);
    tern_transaction_producer_destroy(producer); /* waits for checks that are being answered */
    tern_producer_options_destroy(options);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
