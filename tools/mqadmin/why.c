/* The command why: which question, and how the answer is printed. */
#include "tools/mqadmin/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE_BYTES = 1024 };

void why_say(struct why *why, bool ok, const char *fact, const char *fmt, ...)
{
    char text[SENTENCE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    why->problem |= !ok;
    json_array_append_new(
        why->facts, json_pack("{s:s, s:b, s:o}", "fact", fact, "ok", ok, "text", text_of(text)));
}

void why_next(struct why *why, const char *fmt, ...)
{
    char text[SENTENCE_BYTES];
    size_t i;
    json_t *told;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_array_foreach(why->next, i, told) if (!strcmp(json_string_value(told), text)) return;
    json_array_append_new(why->next, text_of(text));
}

static void print_answer(struct why *why)
{
    size_t i;
    json_t *one;
    if (why->invocation->json) {
        json_print(json_pack("{s:b, s:O, s:O}", "ok", !why->problem, "facts", why->facts, "next",
                             why->next));
        return;
    }
    json_array_foreach(why->facts, i, one)
        printf("%s %s\n", json_is_true(json_object_get(one, "ok")) ? "-" : "!",
               json_string_value(json_object_get(one, "text")));
    json_array_foreach(why->next, i, one)
        printf("%s%s\n", i ? "      " : "next: ", json_string_value(one));
}

static int run_why(struct invocation *invocation)
{
    const char *id = option_value(invocation, "msgId"), *key = option_value(invocation, "key");
    const char *group = option_value(invocation, "group");
    const char *topic = option_value(invocation, "topic");
    if ((id != NULL) + (key != NULL) + (group != NULL) != 1)
        return command_usage(invocation, "give a message id, or -k KEY -t TOPIC, or -g GROUP");
    if (key && !topic)
        return command_usage(invocation, "-k goes with -t TOPIC");
    struct why why = {.invocation = invocation, .facts = json_array(), .next = json_array()};
    int status =
        group ? why_about_group(&why, group, topic) : why_about_message(&why, id, key, topic);
    if (json_array_size(why.facts) > 0)
        print_answer(&why);
    json_decref(why.facts);
    json_decref(why.next);
    return status;
}

const struct command why_commands[] = {
    {.name = "why",
     .help = "where a message is, and why a group does or does not get it",
     .example = "mqadmin why C0000202014E97C38F18F4C3B1670000",
     .options = {{'i', "msgId", "ID", false, "the message's id or offset id; may stand bare"},
                 {'k', "key", "KEY", false, "instead: messages with this key, with -t"},
                 {'g', "group", "GROUP", false, "instead: what keeps this group from its messages"},
                 {'t', "topic", "TOPIC", false, "the topic; without, all are searched"}},
     .run = run_why,
     .bare = "msgId"},
};
const size_t why_command_count = sizeof why_commands / sizeof why_commands[0];
