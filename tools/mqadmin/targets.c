/*
 * Which brokers a command speaks to: what -b, -c and -i name, looked up at the nameserver where an
 * address is not given. Threads: one. Failure modes: said on stderr, with the exit status that
 * fits.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "tools/mqadmin/command.h"

/* host:port, as a peer's address must be; whether the host is there shows when it is called. */
bool command_is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    char *end;
    if (!colon || colon == text || colon[1] < '0' || colon[1] > '9')
        return false;
    unsigned long port = strtoul(colon + 1, &end, 10);
    return !*end && port > 0 && port <= 65535 && strlen(text) < ADDRESS_BYTES;
}

static bool begins_set(const struct admin_broker *brokers, size_t i)
{
    return i == 0 || strcmp(brokers[i].name, brokers[i - 1].name) != 0 ||
           strcmp(brokers[i].cluster, brokers[i - 1].cluster) != 0;
}

size_t command_keep_masters(const struct invocation *invocation, struct admin_broker *brokers,
                            size_t count, int *status)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (brokers[i].id != 0 && begins_set(brokers, i)) {
            fprintf(stderr,
                    "mqadmin %s: the master of %s is not registered: nothing was done there; "
                    "repeat it when it is back\n",
                    invocation->command->name, brokers[i].name);
            *status = EXIT_NO;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (brokers[i].id == 0)
            brokers[kept++] = brokers[i];
    return kept;
}

size_t command_keep_first(const struct invocation *invocation, struct admin_broker *brokers,
                          size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        /* What lies before `kept` was moved there from a place that is no later. */
        bool same = kept > 0 && !strcmp(brokers[i].name, brokers[kept - 1].name) &&
                    !strcmp(brokers[i].cluster, brokers[kept - 1].cluster);
        if (same)
            continue;
        if (brokers[i].id != 0)
            fprintf(
                stderr,
                "mqadmin %s: the master of %s is not registered: this is what its slave %" PRId64
                " at %s holds\n",
                invocation->command->name, brokers[i].name, brokers[i].id, brokers[i].address);
        brokers[kept++] = brokers[i];
    }
    return kept;
}

bool command_targets(struct invocation *invocation, bool masters_only, struct admin_broker **out,
                     size_t *count, int *status)
{
    const char *address = option_value(invocation, "brokerAddr");
    struct tern_error err = {.text = ""};
    if (address && !command_is_address(address)) {
        *status = command_usage(invocation, "-b: '%s' is not host:port", address);
        return false;
    }
    if (address) {
        *out = calloc(1, sizeof **out);
        ENSURE(*out != NULL);
        snprintf((*out)->address, sizeof(*out)->address, "%s", address);
        *count = 1;
        return true;
    }
    enum tern_code code = admin_brokers(invocation->admin, option_value(invocation, "clusterName"),
                                        false, out, count, &err);
    if (code != TERN_OK)
        *status = command_fail(invocation, code, &err);
    else if (masters_only)
        *count = command_keep_masters(invocation, *out, *count, status);
    return code == TERN_OK;
}

bool command_broker_address(struct invocation *invocation, const char *topic, const char *name,
                            char address[ADDRESS_BYTES], int *status)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    enum tern_code code =
        topic ? admin_topic_brokers(invocation->admin, topic, false, &brokers, &count, &err)
              : admin_brokers(invocation->admin, NULL, false, &brokers, &count, &err);
    if (code != TERN_OK) {
        *status = command_fail(invocation, code, &err);
        return false;
    }
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) { /* sorted: id 0 comes first */
        found = !strcmp(brokers[i].name, name);
        if (found)
            snprintf(address, ADDRESS_BYTES, "%s", brokers[i].address);
    }
    free(brokers);
    if (!found) {
        error_set(&err, TERN_NOT_FOUND, "no broker %s%s%s is registered", name,
                  topic ? " of topic " : "", topic ? topic : "");
        *status = command_fail(invocation, TERN_NOT_FOUND, &err);
    }
    return found;
}

/* Of a list: those of the name and id, moved to its front. */
static size_t keep_matching(struct admin_broker *brokers, size_t count, const char *name,
                            int64_t id)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if ((!name || !strcmp(brokers[i].name, name)) && (id < 0 || brokers[i].id == id))
            brokers[kept++] = brokers[i];
    return kept;
}

bool command_members(struct invocation *invocation, const char *cluster, const char *name,
                     int64_t id, struct admin_broker **out, size_t *count, int *status)
{
    struct tern_error err = {.text = ""};
    if (name && command_is_address(name)) {
        *out = calloc(1, sizeof **out);
        ENSURE(*out != NULL);
        snprintf((*out)->address, sizeof(*out)->address, "%s", name);
        (*out)->id = -1;
        *count = 1;
        return true;
    }
    enum tern_code code = name ? broker_name_check(name, strlen(name), &err) : TERN_OK;
    if (code != TERN_OK) {
        *status =
            command_usage(invocation, "-b: '%s' is neither a broker's name nor host:port", name);
        return false;
    }
    code = admin_brokers(invocation->admin, cluster, false, out, count, &err);
    if (code == TERN_OK) {
        *count = keep_matching(*out, *count, name, id);
        if (*count > 0)
            return true;
        free(*out);
        *out = NULL;
        char which[32] = "";
        if (id >= 0)
            snprintf(which, sizeof which, " id %" PRId64, id);
        code = error_set(&err, TERN_NOT_FOUND, "no broker %s%s is registered%s%s", name ? name : "",
                         which, cluster ? " in cluster " : "", cluster ? cluster : "");
    }
    *status = command_fail(invocation, code, &err);
    return false;
}
