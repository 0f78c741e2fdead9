/*
 * mqadmin's commands: one row each, from which parsing, help, completion and the reference page
 * come. Names and letters are RocketMQ's; every command also takes -n, -h and --json.
 */
#ifndef MQADMIN_COMMAND_H
#define MQADMIN_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/admin.h"
#include "tools/mqadmin/output.h"

enum exit_status { EXIT_DONE = 0, EXIT_NO = 1, EXIT_USAGE = 2, EXIT_UNREACHABLE = 3 };

enum { OPTIONS_MAX = 20 };

struct command_option {
    char letter; /* 0: long form only */
    const char *name;
    const char *argument; /* NULL: a flag; else what it takes, e.g. "TOPIC" */
    bool required;
    const char *help;
};

/* What the command line said. */
struct invocation {
    const struct command *command;
    const char *
        values[OPTIONS_MAX]; /* by the option's index; "" for a flag that was given, NULL: absent */
    const char **repeated;   /* every value of the option marked so, in order */
    size_t repeated_count;
    const char *namesrv;
    bool json;
    struct admin *admin; /* open while the command runs */
};

struct command {
    const char *name;
    const char *other;   /* a second name that finds it, too; NULL: none */
    const char *help;    /* one sentence */
    const char *example; /* a whole command line */
    struct command_option options[OPTIONS_MAX];
    int (*run)(struct invocation *invocation);
    const char *one_of;  /* letters of which exactly one must be given, e.g. "bc"; NULL: none */
    const char *repeats; /* long name of the option that may come several times */
    const char *bare;    /* long name of the option that a bare argument fills; NULL: none */
    const char *subject; /* under which help lists it; set by commands() */
};

#define SUBJECT_TOPICS "topics and queues"
#define SUBJECT_GROUPS "groups and clients"
#define SUBJECT_MESSAGES "messages"
#define SUBJECT_CLUSTER "brokers and nameservers"
#define SUBJECT_REPLICATION "replication"

size_t commands(const struct command **rows);

/* The value of an option by its long name; NULL when absent. The name must be in the row (ENSUREd).
 */
const char *option_value(const struct invocation *invocation, const char *name);
static inline bool option_given(const struct invocation *invocation, const char *name)
{
    return option_value(invocation, name) != NULL;
}
/*
 * Number in a range. false: said on stderr, the command ends with EXIT_USAGE. Absent: `fallback`.
 */
bool option_number(const struct invocation *invocation, const char *name, int64_t min, int64_t max,
                   int64_t fallback, int64_t *out);
/*
 * A time: "now" (-1), milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS in local time. false:
 * said, EXIT_USAGE.
 */
bool option_time(const struct invocation *invocation, const char *name, int64_t fallback,
                 int64_t *wall_ms);
/* true or false (RocketMQ's values of flags with an argument); absent: fallback. */
bool option_bool(const struct invocation *invocation, const char *name, bool fallback, bool *out);

/* One line on stderr; returns the exit status that fits the code. */
int command_fail(const struct invocation *invocation, enum tern_code code,
                 const struct tern_error *err);
int command_usage(const struct invocation *invocation, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * Brokers that -b ADDR or -c CLUSTER name: masters, or all. malloc'ed. false: said on stderr,
 * *status set. Sets whose master is away are said, too, and leave EXIT_NO in *status.
 */
bool command_targets(struct invocation *invocation, bool masters_only, struct admin_broker **out,
                     size_t *count, int *status);
/*
 * Of a sorted list, moved to its front: the masters, for what changes something; a set without one
 * is said on stderr and leaves EXIT_NO in *status. Or the lowest id of each set, for what is only
 * looked at; that a slave speaks is said.
 */
size_t command_keep_masters(const struct invocation *invocation, struct admin_broker *brokers,
                            size_t count, int *status);
size_t command_keep_first(const struct invocation *invocation, struct admin_broker *brokers,
                          size_t count);
/* host:port with a port in 1..65535; whether the host is there shows when it is called. */
bool command_is_address(const char *text);
/*
 * Members of sets: name NULL: of all; else a brokerName, or an address for that one broker (its id
 * is then -1: not known). id -1: all ids. malloc'ed, by cluster, name and id, at least one. false:
 * said, *status set.
 */
bool command_members(struct invocation *invocation, const char *cluster, const char *name,
                     int64_t id, struct admin_broker **out, size_t *count, int *status);
/* Address of a broker's id 0 by name; else (no master) of any id. false: said, *status set. */
bool command_broker_address(struct invocation *invocation, const char *topic, const char *name,
                            char address[ADDRESS_BYTES], int *status);

/* commands_*.c: the rows of one subject each. */
extern const struct command subscription_commands[];
extern const size_t subscription_command_count;
extern const struct command topic_commands[], cluster_commands[], group_commands[],
    message_commands[], trace_commands[], pipe_commands[], kv_commands[], ha_commands[],
    queue_commands[], config_commands[], clean_commands[], export_commands[], reset_commands[],
    member_commands[], stats_commands[], print_commands[], probe_commands[], why_commands[],
    transaction_commands[], order_commands[], dlq_commands[];
extern const size_t topic_command_count, cluster_command_count, group_command_count,
    message_command_count, trace_command_count, pipe_command_count, kv_command_count,
    ha_command_count, queue_command_count, config_command_count, clean_command_count,
    export_command_count, reset_command_count, member_command_count, stats_command_count,
    print_command_count, probe_command_count, why_command_count, transaction_command_count,
    order_command_count, dlq_command_count;

#endif
