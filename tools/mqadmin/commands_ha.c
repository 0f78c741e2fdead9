/* Replication: how the sets stand, opening a master by force, letting a detached slave rejoin. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/ha_status.h"

/* One broker's status; a new reference, NULL: code and err say why. */
static json_t *fetch(struct invocation *invocation, const char *address, enum tern_code *code,
                     struct tern_error *err)
{
    Tern__Wire__HaStatusRequest body = TERN__WIRE__HA_STATUS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call = NULL;
    json_t *json = NULL;
    request.body_case = TERN__WIRE__REQUEST__BODY_HA_STATUS;
    request.ha_status = &body;
    *code = admin_call_broker(invocation->admin, address, &request, NULL, 0, &call, err);
    if (*code == TERN_OK && call->response->body_case == TERN__WIRE__RESPONSE__BODY_HA_STATUS)
        json = ha_status_to_json(call->response->ha_status);
    else if (*code == TERN_OK)
        *code = error_set(err, TERN_PROTOCOL, "%s: the answer is no replication status", address);
    rpc_call_unref(call);
    return json;
}

/* ---- haStatus ---- */

/* A broker that was given by its address says itself what it is called. */
static void take_names(struct admin_broker *broker, const json_t *member)
{
    const char *name = json_string_value(json_object_get(member, "brokerName"));
    const char *cluster = json_string_value(json_object_get(member, "clusterName"));
    if (!broker->name[0] && name && cluster) {
        snprintf(broker->name, sizeof broker->name, "%s", name);
        snprintf(broker->cluster, sizeof broker->cluster, "%s", cluster);
    }
}

/* Members of the list's last set when that is the broker's, else of a new one. */
static json_t *members_of(json_t *sets, const struct admin_broker *broker)
{
    json_t *set = json_array_get(sets, json_array_size(sets) - 1);
    const char *name = json_string_value(json_object_get(set, "brokerName"));
    const char *cluster = json_string_value(json_object_get(set, "clusterName"));
    if (!name || strcmp(name, broker->name) != 0 || strcmp(cluster, broker->cluster) != 0) {
        set = json_object();
        json_object_set_new(set, "clusterName", text_of(broker->cluster));
        json_object_set_new(set, "brokerName", text_of(broker->name));
        json_object_set_new(set, "members", json_array());
        json_array_append_new(sets, set);
    }
    return json_object_get(set, "members");
}

static void print_sets(const json_t *sets)
{
    size_t i, j;
    const json_t *set, *member;
    json_array_foreach(sets, i, set)
    {
        const char *name = json_string_value(json_object_get(set, "brokerName"));
        const char *cluster = json_string_value(json_object_get(set, "clusterName"));
        if (name && name[0])
            printf("%s%s of %s\n", i ? "\n" : "", name, cluster);
        json_array_foreach(json_object_get(set, "members"), j, member)
            ha_status_print(member, stdout);
    }
}

static int run_ha_status(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    if (!command_members(invocation, option_value(invocation, "clusterName"),
                         option_value(invocation, "brokerName"), -1, &brokers, &count, &status))
        return status;
    json_t *sets = json_array();
    for (size_t i = 0; i < count; i++) {
        enum tern_code code;
        json_t *member = fetch(invocation, brokers[i].address, &code, &err);
        if (!member) {
            status = command_fail(invocation, code, &err);
            member = ha_status_no_answer(brokers[i].id, brokers[i].address, error_text(&err, code));
        }
        take_names(&brokers[i], member);
        json_array_append_new(members_of(sets, &brokers[i]), member);
    }
    free(brokers);
    if (invocation->json) {
        json_print(sets);
    } else {
        print_sets(sets);
        json_decref(sets);
    }
    return status;
}

/* ---- forceOpen, rejoin ---- */

/* The one broker that -a, or -b with this id, names. */
static bool find_one(struct invocation *invocation, int64_t id, char address[ADDRESS_BYTES],
                     int *status)
{
    const char *given = option_value(invocation, "address");
    struct admin_broker *brokers;
    size_t count;
    if (given) {
        if (!command_is_address(given)) {
            *status = command_usage(invocation, "-a: '%s' is not host:port", given);
            return false;
        }
        snprintf(address, ADDRESS_BYTES, "%s", given);
        return true;
    }
    const char *name = option_value(invocation, "brokerName");
    if (command_is_address(name)) {
        *status = command_usage(invocation, "-b takes a broker's name; an address goes with -a");
        return false;
    }
    if (!command_members(invocation, NULL, name, id, &brokers, &count, status)) {
        if (*status == EXIT_NO)
            fputs("give its address with -a HOST:PORT when it runs without being registered\n",
                  stderr);
        return false;
    }
    snprintf(address, ADDRESS_BYTES, "%s", brokers[0].address);
    free(brokers);
    return true;
}

/* -1: go on, the operator said yes; else the exit status. What it costs is on stderr. */
static int ask(struct invocation *invocation, const char *address,
               bool (*warning)(const json_t *broker, FILE *out))
{
    struct tern_error err = {.text = ""};
    enum tern_code code;
    json_t *broker = fetch(invocation, address, &code, &err);
    if (!broker)
        return command_fail(invocation, code, &err);
    bool sensible = warning(broker, stderr);
    json_decref(broker);
    if (!sensible)
        return EXIT_NO;
    if (option_given(invocation, "yes"))
        return -1;
    fputs("nothing was changed; give --yes to do it\n", stderr);
    return EXIT_NO;
}

static int tell(struct invocation *invocation, const char *address, TernRequest *request,
                const char *done)
{
    struct tern_error err = {.text = ""};
    enum tern_code code =
        admin_call_broker(invocation->admin, address, request, NULL, 0, NULL, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "%s: %s", address, done);
    return EXIT_DONE;
}

static int run_force_open(struct invocation *invocation)
{
    const char *discard = option_value(invocation, "discard-slave");
    Tern__Wire__ForceOpenRequest body = TERN__WIRE__FORCE_OPEN_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    uint8_t uuid[HA_UUID_RAW_BYTES];
    char address[ADDRESS_BYTES];
    int status;
    if (discard && !ha_uuid_parse(discard, uuid))
        return command_usage(invocation,
                             "--discard-slave: '%s' is not a store's UUID (32 hex digits, as "
                             "haStatus shows it)",
                             discard);
    if (!find_one(invocation, 0, address, &status))
        return status;
    status = ask(invocation, address, ha_force_warning);
    if (status != -1)
        return status;
    if (discard)
        body.discard_slave = (ProtobufCBinaryData){.len = sizeof uuid, .data = uuid};
    request.body_case = TERN__WIRE__REQUEST__BODY_FORCE_OPEN;
    request.force_open = &body;
    return tell(invocation, address, &request, "opens by force; haStatus shows when it is open");
}

static int run_rejoin(struct invocation *invocation)
{
    Tern__Wire__RejoinRequest body = TERN__WIRE__REJOIN_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    char address[ADDRESS_BYTES];
    int64_t id;
    int status;
    if (!option_number(invocation, "brokerId", 1, INT64_MAX, -1, &id))
        return EXIT_USAGE;
    if (option_given(invocation, "brokerName") && id < 0)
        return command_usage(invocation, "-b NAME needs -i ID, the slave's");
    if (!find_one(invocation, id, address, &status))
        return status;
    status = ask(invocation, address, ha_rejoin_warning);
    if (status != -1)
        return status;
    request.body_case = TERN__WIRE__REQUEST__BODY_REJOIN;
    request.rejoin = &body;
    return tell(invocation, address, &request,
                "saves its store aside and copies its master's; haStatus shows how far it is");
}

#define YES                                                                                        \
    {                                                                                              \
        0, "yes", NULL, false, "do it; without, only what it would cost is shown"                  \
    }
#define NAME                                                                                       \
    {                                                                                              \
        'b', "brokerName", "NAME", false, "the set's name"                                         \
    }

const struct command ha_commands[] = {
    {.name = "haStatus",
     .help = "replication of broker sets: states, epochs, positions, slaves and their lags",
     .example = "mqadmin haStatus -b broker-a",
     .options = {{'b', "brokerName", "NAME|HOST:PORT", false, "only this set, or this broker"},
                 {'c', "clusterName", "CLUSTER", false, "only this cluster's sets"}},
     .run = run_ha_status},
    {.name = "forceOpen",
     .help = "let a recovering master take writes without members that do not answer; shows what "
             "that may lose",
     .example = "mqadmin forceOpen -b broker-a --yes",
     .options = {NAME,
                 {'a', "address", "HOST:PORT", false, "the master's address, when not registered"},
                 {0, "discard-slave", "UUID", false,
                  "open an empty store beside this slave, whose log is given up"},
                 YES},
     .run = run_force_open,
     .one_of = "ba"},
    {.name = "rejoin",
     .help = "let a detached slave save its store aside and copy its master afresh",
     .example = "mqadmin rejoin -a 127.0.0.1:10921 --yes",
     .options = {NAME,
                 {'i', "brokerId", "ID", false, "with -b: the slave's id"},
                 {'a', "address", "HOST:PORT", false,
                  "the slave's address: a detached one is not registered"},
                 YES},
     .run = run_rejoin,
     .one_of = "ba"},
};
const size_t ha_command_count = sizeof ha_commands / sizeof ha_commands[0];
