/* Sending and receiving from the command line; the work is in pipe_send.c and pipe_consume.c. */
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/pipe.h"

const struct command pipe_commands[] = {
    {.name = "sendMessage",
     .help = "send one message, a file, or one message a line from stdin",
     .example = "mqadmin sendMessage -t Orders --lines < orders.txt",
     .options = {{'t', "topic", "TOPIC", true, "the topic"},
                 {'p', "body", "TEXT", false, "the body"},
                 {0, "file", "FILE", false, "the body is the file's contents; - for stdin"},
                 {0, "lines", NULL, false, "one message a line of stdin, in order per queue"},
                 {'c', "tags", "TAG", false, "the tag"},
                 {'k', "keys", "KEYS", false, "keys, separated by spaces"},
                 {0, "property", "NAME=VALUE", false, "a property; may be repeated"},
                 {'b', "brokerName", "NAME", false, "to this broker set, with -i"},
                 {'i', "qid", "N", false, "to this queue, with -b"}},
     .run = pipe_send,
     .repeats = "property"},
    {.name = "consumeMessage",
     .help = "print what a topic holds and what comes",
     .example = "mqadmin consumeMessage -t Orders --body-only --idle-exit 2000 > orders.txt",
     .options = {{'t', "topic", "TOPIC", true, "the topic"},
                 {'g', "consumerGroup", "GROUP", false, "as a member that commits; else anonymous"},
                 {0, "expr", "'A || B'", false, "only these tags (*)"},
                 {0, "sql", "CONDITION", false, "only those whose properties fulfil this (SQL92)"},
                 {0, "from", "WHERE", false, "first, last, or ms since 1970 (first)"},
                 {'c', "count", "N", false, "end after so many messages"},
                 {0, "idle-exit", "MS", false, "end when nothing came for so long"},
                 {0, "body-only", NULL, false, "a body and a newline each, nothing else"},
                 {'b', "brokerName", "NAME", false, "only this broker set"},
                 {'i', "queueId", "N", false, "only this queue"},
                 {'o', "offset", "N", false, "begin at this offset, counted in messages"},
                 {'s', "beginTimestamp", "TIME", false, "stored at or after; as --from MS"},
                 {'e', "endTimestamp", "TIME", false, "stored at or before; then it ends"}},
     .run = pipe_consume},
};
const size_t pipe_command_count = sizeof pipe_commands / sizeof pipe_commands[0];
