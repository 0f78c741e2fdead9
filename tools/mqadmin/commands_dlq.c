/* Dead letters: listing them, and sending them once more. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/dlq.h"

enum { LISTED_MAX = 100000, CHOSEN_MAX = 100000 };

/* ---- dlqList ---- */

struct listing {
    struct table table;
    int64_t left;
    bool more;
};

static bool list_one(void *arg, const struct admin_broker *broker,
                     const struct tern_message *message)
{
    struct listing *listing = arg;
    char born[32], stored[32];
    char topic[TOPIC_NAME_MAX + 1] = "";
    const char *origin = tern_message_property(message, "ORIGIN_MESSAGE_ID");
    if (listing->left == 0) {
        listing->more = true;
        return false;
    }
    listing->left--;
    (void)dlq_origin_topic(message, topic);
    time_text(born, tern_message_born_ms(message));
    time_text(stored, tern_message_store_ms(message));
    table_add(&listing->table,
              (json_t *[]){text_of(tern_message_id(message)),
                           text_of(tern_message_offset_id(message)), text_of(origin ? origin : ""),
                           text_of(topic), number_of(tern_message_reconsume_times(message)),
                           text_of(broker->name), number_of(tern_message_queue_id(message)),
                           number_of(tern_message_queue_offset(message)), text_of(born),
                           text_of(stored)});
    return true;
}

static int run_list(struct invocation *invocation)
{
    static const char *const columns[] = {"Message ID", "Offset ID",   "Origin ID", "Origin Topic",
                                          "Times",      "Broker Name", "QID",       "Offset",
                                          "Born",       "Stored",      NULL};
    static const char *const keys[] = {"msgId",    "offsetMsgId", "originMsgId", "originTopic",
                                       "times",    "brokerName",  "queueId",     "offset",
                                       "bornTime", "storeTime",   NULL};
    struct listing listing = {.more = false};
    int status = EXIT_DONE;
    if (!option_number(invocation, "count", 1, LISTED_MAX, LISTED_MAX, &listing.left))
        return EXIT_USAGE;
    table_init(&listing.table, columns, keys);
    bool there =
        dlq_each(invocation, option_value(invocation, "group"), list_one, &listing, &status);
    if (there || invocation->json)
        table_print(&listing.table, invocation->json);
    else
        json_decref(listing.table.rows);
    if (listing.more)
        fprintf(stderr, "mqadmin dlqList: there are more; -c says how many are shown\n");
    return status;
}

/* ---- dlqRedrive ---- */

/* A dead letter that is to be sent, and who has it. */
struct chosen {
    struct tern_message *message;
    struct admin_broker broker;
};

struct redrive {
    struct invocation *invocation;
    const char *group;
    bool all, origin, again, dry;
    struct chosen *items;
    size_t count, cap;
    bool *named; /* which of the -i were found */
    bool no_memory;
    struct admin_broker *masters;
    size_t master_count;
    struct table table;
    int status;
};

static bool is_named(struct redrive *redrive, const struct tern_message *message)
{
    bool is = false;
    const struct invocation *invocation = redrive->invocation;
    const char *origin = tern_message_property(message, "ORIGIN_MESSAGE_ID");
    for (size_t i = 0; i < invocation->repeated_count; i++) {
        const char *id = invocation->repeated[i];
        if (strcmp(id, tern_message_id(message)) != 0 &&
            strcmp(id, tern_message_offset_id(message)) != 0 && (!origin || strcmp(id, origin)))
            continue;
        redrive->named[i] = is = true;
    }
    return is;
}

static bool choose_one(void *arg, const struct admin_broker *broker,
                       const struct tern_message *message)
{
    struct redrive *redrive = arg;
    if (!redrive->all && !is_named(redrive, message))
        return true;
    if (redrive->count == redrive->cap) {
        size_t cap = redrive->cap ? redrive->cap * 2 : 64;
        struct chosen *bigger =
            cap <= CHOSEN_MAX ? realloc(redrive->items, cap * sizeof *bigger) : NULL;
        if (!bigger) {
            redrive->no_memory = true;
            return false;
        }
        redrive->items = bigger;
        redrive->cap = cap;
    }
    struct chosen *item = &redrive->items[redrive->count++];
    item->message = tern_message_ref((struct tern_message *)(uintptr_t)message);
    item->broker = *broker;
    return true;
}

static void add_row(struct redrive *redrive, const struct chosen *item, const char *topic,
                    const char *result)
{
    table_add(&redrive->table,
              (json_t *[]){text_of(tern_message_id(item->message)),
                           text_of(tern_message_offset_id(item->message)),
                           text_of(item->broker.name), text_of(topic), text_of(result)});
}

/* The master that has the topic: the dead letter's own when it is among them. NULL: none. */
static const char *master_for(struct redrive *redrive, const struct chosen *item)
{
    for (size_t i = 0; i < redrive->master_count; i++)
        if (!strcmp(redrive->masters[i].name, item->broker.name))
            return redrive->masters[i].address;
    return redrive->origin && redrive->master_count ? redrive->masters[0].address : NULL;
}

/* Where the dead letter goes; false: nowhere, and the row says why. */
static bool find_target(struct redrive *redrive, const struct chosen *item,
                        char topic[sizeof RETRY_TOPIC_PREFIX + GROUP_NAME_MAX],
                        struct dlq_target *target, struct tern_error *err)
{
    char origin[TOPIC_NAME_MAX + 1];
    if (redrive->origin && !dlq_origin_topic(item->message, origin)) {
        error_set(err, TERN_MESSAGE_ILLEGAL, "the message names no origin topic");
        return false;
    }
    snprintf(topic, sizeof RETRY_TOPIC_PREFIX + GROUP_NAME_MAX, "%s%s",
             redrive->origin ? "" : RETRY_TOPIC_PREFIX, redrive->origin ? origin : redrive->group);
    free(redrive->masters);
    redrive->masters = NULL;
    redrive->master_count = 0;
    enum tern_code code = admin_topic_brokers(redrive->invocation->admin, topic, true,
                                              &redrive->masters, &redrive->master_count, err);
    *target = (struct dlq_target){.topic = topic,
                                  .address = code ? NULL : master_for(redrive, item),
                                  .origin = redrive->origin};
    if (!code && !target->address)
        error_set(err, TERN_UNREACHABLE, "topic %s has no master at %s now", topic,
                  item->broker.name);
    return target->address != NULL;
}

static void redrive_one(struct redrive *redrive, const struct chosen *item)
{
    char topic[sizeof RETRY_TOPIC_PREFIX + GROUP_NAME_MAX] = "";
    char failed[600];
    struct tern_error err = {.text = ""};
    struct dlq_target target;
    bool sent = false;
    enum tern_code code = TERN_OK;
    const char *result = redrive->dry ? "would be sent" : "sent";
    if (!find_target(redrive, item, topic, &target, &err))
        code = TERN_UNREACHABLE;
    if (!code && !redrive->again)
        code = dlq_was_sent(redrive->invocation, &target, item->message, &sent, &err);
    if (!code && sent)
        result = "sent before: left out (--again sends it once more)";
    else if (!code && !redrive->dry)
        code = dlq_send(redrive->invocation, &target, redrive->group, item->message, &err);
    if (code) {
        snprintf(failed, sizeof failed, "failed: %s", error_text(&err, code));
        result = failed;
        redrive->status = EXIT_NO;
    }
    add_row(redrive, item, topic, result);
}

static int redrive_all(struct redrive *redrive)
{
    static const char *const columns[] = {"Message ID", "Offset ID", "Broker Name",
                                          "Target",     "Result",    NULL};
    static const char *const keys[] = {"msgId",  "offsetMsgId", "brokerName",
                                       "target", "result",      NULL};
    const struct invocation *invocation = redrive->invocation;
    table_init(&redrive->table, columns, keys);
    for (size_t i = 0; i < redrive->count; i++)
        redrive_one(redrive, &redrive->items[i]);
    table_print(&redrive->table, invocation->json);
    for (size_t i = 0; i < invocation->repeated_count && !redrive->all; i++) {
        if (redrive->named[i])
            continue;
        fprintf(stderr, "mqadmin dlqRedrive: no dead letter of group %s has the id %s\n",
                redrive->group, invocation->repeated[i]);
        redrive->status = EXIT_NO;
    }
    return redrive->status;
}

static int run_redrive(struct invocation *invocation)
{
    const char *to = option_value(invocation, "to");
    struct redrive redrive = {.invocation = invocation,
                              .group = option_value(invocation, "group"),
                              .all = option_given(invocation, "all"),
                              .again = option_given(invocation, "again"),
                              .dry = option_given(invocation, "dry-run"),
                              .origin = to && !strcmp(to, "topic"),
                              .status = EXIT_DONE};
    if (to && strcmp(to, "topic") != 0 && strcmp(to, "retry") != 0)
        return command_usage(invocation, "--to: '%s' is neither retry nor topic", to);
    if (redrive.all == (invocation->repeated_count > 0))
        return command_usage(invocation, "give either -i, once or more, or --all");
    redrive.named = calloc(invocation->repeated_count + 1, sizeof *redrive.named);
    if (!redrive.named)
        return command_fail(invocation, TERN_NO_MEMORY, NULL);
    bool there = dlq_each(invocation, redrive.group, choose_one, &redrive, &redrive.status);
    if (redrive.no_memory) {
        fprintf(stderr,
                "mqadmin dlqRedrive: more than %d dead letters at once, or no memory: "
                "nothing was sent; choose some with -i\n",
                (int)CHOSEN_MAX);
        redrive.status = EXIT_NO;
    } else if (there) {
        redrive.status = redrive_all(&redrive);
    }
    for (size_t i = 0; i < redrive.count; i++)
        tern_message_unref(redrive.items[i].message);
    free(redrive.items);
    free(redrive.named);
    free(redrive.masters);
    return redrive.status;
}

const struct command dlq_commands[] = {
    {.name = "dlqList",
     .help = "messages that a group has given up, the oldest first",
     .example = "mqadmin dlqList -g order-service",
     .options = {{'g', "group", "GROUP", true, "the group"},
                 {'c', "count", "N", false, "at most so many (100000)"}},
     .run = run_list},
    {.name = "dlqRedrive",
     .help = "sends dead letters once more; they stay where they are",
     .example = "mqadmin dlqRedrive -g order-service --all --dry-run",
     .options = {{'g', "group", "GROUP", true, "the group"},
                 {'i', "msgId", "ID", false,
                  "a message id, offset message id or origin id; again for more"},
                 {0, "all", NULL, false, "every dead letter of the group"},
                 {0, "to", "WHERE", false,
                  "retry: to this group alone, by its retry topic (default); topic: to the topic "
                  "it was sent to, and so to every group"},
                 {0, "dry-run", NULL, false, "only says what would be sent"},
                 {0, "again", NULL, false, "also what was sent before"}},
     .run = run_redrive,
     .repeats = "msgId"},
};
const size_t dlq_command_count = sizeof dlq_commands / sizeof dlq_commands[0];
