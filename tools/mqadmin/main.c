/*
 * mqadmin: finds the command, reads its options by the row, opens the connection, runs it.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/help.h"

enum { COMMANDS_MAX = 256, REPEATS_MAX = 256 };

static struct command all_commands[COMMANDS_MAX];
static size_t command_count;

static void collect(const char *subject, const struct command *rows, size_t count)
{
    ENSURE(command_count + count <= COMMANDS_MAX);
    for (size_t i = 0; i < count; i++) {
        all_commands[command_count] = rows[i];
        all_commands[command_count++].subject = subject;
    }
}

static int by_name(const void *a, const void *b)
{
    const struct command *x = a, *y = b;
    return strcmp(x->name, y->name);
}

size_t commands(const struct command **rows)
{
    if (!command_count) {
        collect(SUBJECT_TOPICS, topic_commands, topic_command_count);
        collect(SUBJECT_TOPICS, order_commands, order_command_count);
        collect(SUBJECT_TOPICS, queue_commands, queue_command_count);
        collect(SUBJECT_CLUSTER, cluster_commands, cluster_command_count);
        collect(SUBJECT_CLUSTER, config_commands, config_command_count);
        collect(SUBJECT_CLUSTER, clean_commands, clean_command_count);
        collect(SUBJECT_CLUSTER, kv_commands, kv_command_count);
        collect(SUBJECT_CLUSTER, export_commands, export_command_count);
        collect(SUBJECT_REPLICATION, ha_commands, ha_command_count);
        collect(SUBJECT_GROUPS, group_commands, group_command_count);
        collect(SUBJECT_GROUPS, subscription_commands, subscription_command_count);
        collect(SUBJECT_GROUPS, reset_commands, reset_command_count);
        collect(SUBJECT_GROUPS, member_commands, member_command_count);
        collect(SUBJECT_GROUPS, stats_commands, stats_command_count);
        collect(SUBJECT_MESSAGES, message_commands, message_command_count);
        collect(SUBJECT_MESSAGES, dlq_commands, dlq_command_count);
        collect(SUBJECT_MESSAGES, trace_commands, trace_command_count);
        collect(SUBJECT_MESSAGES, print_commands, print_command_count);
        collect(SUBJECT_MESSAGES, pipe_commands, pipe_command_count);
        collect(SUBJECT_MESSAGES, probe_commands, probe_command_count);
        collect(SUBJECT_MESSAGES, why_commands, why_command_count);
        collect(SUBJECT_MESSAGES, transaction_commands, transaction_command_count);
        qsort(all_commands, command_count, sizeof all_commands[0], by_name);
    }
    *rows = all_commands;
    return command_count;
}

static const struct command *find_command(const char *name)
{
    const struct command *rows;
    size_t count = commands(&rows);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(rows[i].name, name) || (rows[i].other && !strcmp(rows[i].other, name)))
            return &rows[i];
    return NULL;
}

/* ---- options ---- */

enum { LONG_BASE = 1000, LONG_JSON = 2000 };

static void fill_getopt(const struct command *command, struct option *longs, char *shorts)
{
    size_t at = 0, short_at = 0;
    for (size_t i = 0; i < OPTIONS_MAX && command->options[i].name; i++) {
        const struct command_option *o = &command->options[i];
        longs[at++] = (struct option){o->name, o->argument ? required_argument : no_argument, NULL,
                                      LONG_BASE + (int)i};
        if (o->letter) {
            shorts[short_at++] = o->letter;
            if (o->argument)
                shorts[short_at++] = ':';
        }
    }
    longs[at++] = (struct option){"namesrvAddr", required_argument, NULL, 'n'};
    longs[at++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[at++] = (struct option){"json", no_argument, NULL, LONG_JSON};
    longs[at] = (struct option){NULL, 0, NULL, 0};
    memcpy(shorts + short_at, "n:h", 4);
}

static size_t option_index(const struct command *command, int found)
{
    if (found >= LONG_BASE && found < LONG_BASE + OPTIONS_MAX)
        return (size_t)(found - LONG_BASE);
    for (size_t i = 0; i < OPTIONS_MAX && command->options[i].name; i++)
        if (command->options[i].letter == found)
            return i;
    return OPTIONS_MAX;
}

static int check_required(const struct invocation *invocation)
{
    const struct command *command = invocation->command;
    int one_of = 0;
    for (size_t i = 0; i < OPTIONS_MAX && command->options[i].name; i++) {
        const struct command_option *o = &command->options[i];
        if (o->required && !invocation->values[i])
            return command_usage(invocation, "-%c (--%s) is required", o->letter, o->name);
        if (command->one_of && o->letter && strchr(command->one_of, o->letter))
            one_of += invocation->values[i] != NULL;
    }
    if (command->one_of && one_of != 1)
        return command_usage(invocation, "exactly one of -%c and -%c is required",
                             command->one_of[0], command->one_of[1]);
    return EXIT_DONE;
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct invocation *invocation)
{
    const struct command *command = invocation->command;
    struct option longs[OPTIONS_MAX + 4];
    char shorts[2 * OPTIONS_MAX + 4];
    int found;
    fill_getopt(command, longs, shorts);
    while ((found = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        size_t index = option_index(command, found);
        if (index < OPTIONS_MAX) {
            invocation->values[index] = optarg ? optarg : "";
            if (command->repeats && !strcmp(command->repeats, command->options[index].name) &&
                invocation->repeated_count < REPEATS_MAX)
                invocation->repeated[invocation->repeated_count++] = optarg;
        } else if (found == 'n') {
            invocation->namesrv = optarg;
        } else if (found == LONG_JSON) {
            invocation->json = true;
        } else if (found == 'h') {
            help_command(command, stdout);
            return EXIT_DONE;
        } else { /* getopt has said what is wrong */
            fprintf(stderr, "see mqadmin help %s\n", command->name);
            return EXIT_USAGE;
        }
    }
    for (size_t i = 0; command->bare && optind < argc && i < OPTIONS_MAX; i++)
        if (command->options[i].name && !strcmp(command->bare, command->options[i].name) &&
            !invocation->values[i])
            invocation->values[i] = argv[optind++];
    if (optind < argc)
        return command_usage(invocation, "unexpected argument '%s'", argv[optind]);
    int status = check_required(invocation);
    return status == EXIT_DONE ? -1 : status;
}

const char *option_value(const struct invocation *invocation, const char *name)
{
    size_t i = 0;
    while (i < OPTIONS_MAX && invocation->command->options[i].name &&
           strcmp(invocation->command->options[i].name, name))
        i++;
    ENSURE(i < OPTIONS_MAX && invocation->command->options[i].name);
    return invocation->values[i];
}

bool option_number(const struct invocation *invocation, const char *name, int64_t min, int64_t max,
                   int64_t fallback, int64_t *out)
{
    const char *text = option_value(invocation, name);
    char *end;
    *out = fallback;
    if (!text)
        return true;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max) {
        command_usage(invocation, "--%s: '%s' is not a number in %" PRId64 "..%" PRId64, name, text,
                      min, max);
        return false;
    }
    *out = value;
    return true;
}

bool option_bool(const struct invocation *invocation, const char *name, bool fallback, bool *out)
{
    const char *text = option_value(invocation, name);
    *out = fallback;
    if (!text)
        return true;
    if (strcmp(text, "true") && strcmp(text, "false")) {
        command_usage(invocation, "--%s: '%s' is neither true nor false", name, text);
        return false;
    }
    *out = text[0] == 't';
    return true;
}

/* ---- failing ---- */

int command_usage(const struct invocation *invocation, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "mqadmin %s: %s; see mqadmin help %s\n", invocation->command->name, text,
            invocation->command->name);
    return EXIT_USAGE;
}

int command_fail(const struct invocation *invocation, enum tern_code code,
                 const struct tern_error *err)
{
    fprintf(stderr, "mqadmin %s: %s: %s\n", invocation->command->name, tern_code_name(code),
            error_text(err, code));
    switch (code) {
    case TERN_TIMEOUT:
    case TERN_UNREACHABLE:
    case TERN_CONNECTION_LOST:
        return EXIT_UNREACHABLE;
    case TERN_CONFIG:
        return EXIT_USAGE;
    default:
        return EXIT_NO;
    }
}

/* ---- main ---- */

static int run(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    enum tern_code code = admin_open(invocation->namesrv, &invocation->admin, &err);
    if (code == TERN_INVALID)
        return command_usage(invocation, "-n or NAMESRV_ADDR: %s", err.text);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    int status = invocation->command->run(invocation);
    print_done_end(status == EXIT_DONE);
    admin_close(invocation->admin);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "mqadmin: writing the output: %s\n", strerror(errno));
        status = EXIT_NO;
    }
    return status;
}

int main(int argc, char **argv)
{
    const char *repeated[REPEATS_MAX];
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2 || !strcmp(name, "-h") || !strcmp(name, "--help") ||
        (!strcmp(name, "help") && argc == 2)) {
        help_commands(argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_USAGE : EXIT_DONE;
    }
    if (!strcmp(name, "--version")) {
        printf("mqadmin %s\n", tern_version());
        return EXIT_DONE;
    }
    if (!strcmp(name, "--reference") || !strcmp(name, "--completion")) {
        if (name[2] == 'r')
            help_reference();
        else
            help_completion();
        return EXIT_DONE;
    }
    bool help = !strcmp(name, "help");
    const struct command *command = find_command(help ? argv[2] : name);
    const char *why_not = command ? NULL : command_not_offered(help ? argv[2] : name);
    if (why_not) {
        fprintf(stderr, "mqadmin %s: not offered: %s\n", help ? argv[2] : name, why_not);
        return EXIT_NO;
    }
    if (!command) {
        fprintf(stderr, "mqadmin: The sub command %s not exist. mqadmin help lists them.\n",
                help ? argv[2] : name);
        return EXIT_USAGE;
    }
    if (help) {
        help_command(command, stdout);
        return EXIT_DONE;
    }
    struct invocation invocation = {.command = command, .repeated = repeated};
    int status = parse(argc - 1, argv + 1, &invocation);
    if (status != -1)
        return status;
    if (!invocation.namesrv)
        invocation.namesrv = getenv("NAMESRV_ADDR");
    if (!invocation.namesrv || !invocation.namesrv[0])
        invocation.namesrv = "127.0.0.1:9876";
    return run(&invocation);
}
