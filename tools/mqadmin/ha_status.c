/*
 * Place: between the answer to HaStatusRequest and the terminal. The JSON is made first, the text
 * is printed from it, so both say the same. Threads: one. Failure modes: without memory jansson
 * leaves a part out.
 */
#include "tools/mqadmin/ha_status.h"

#include <inttypes.h>
#include <string.h>

#include "tools/mqadmin/output.h"

static const double mib = 1 << 20;

static const char *state_name(Tern__Wire__HaState state)
{
    switch (state) {
    case TERN__WIRE__HA_STATE__HA_RECOVERING:
        return "recovering";
    case TERN__WIRE__HA_STATE__HA_OPEN:
        return "open";
    case TERN__WIRE__HA_STATE__HA_FOLLOWING:
        return "following";
    case TERN__WIRE__HA_STATE__HA_SEEKING:
        return "seeking";
    case TERN__WIRE__HA_STATE__HA_DETACHED:
        return "detached";
    default:
        return "unknown";
    }
}

static json_t *uuid_of(const ProtobufCBinaryData *uuid)
{
    char text[HA_UUID_TEXT_BYTES] = "";
    if (uuid->len == HA_UUID_RAW_BYTES)
        for (size_t i = 0; i < HA_UUID_RAW_BYTES; i++)
            snprintf(text + 2 * i, sizeof text - 2 * i, "%02x", uuid->data[i]);
    return text_of(text);
}

/* Who a member is; `member` may be NULL (hostile or older peer): an empty object. */
static json_t *member_head(const Tern__Wire__HaMember *member)
{
    json_t *json = json_object();
    if (!member)
        return json;
    json_object_set_new(json, "brokerId", number_of(member->broker_id));
    json_object_set_new(json, "address", bytes_of(member->address.data, member->address.len));
    json_object_set_new(json, "haAddress",
                        bytes_of(member->ha_address.data, member->ha_address.len));
    json_object_set_new(json, "storeUuid", uuid_of(&member->store_uuid));
    return json;
}

static json_t *epochs_of(const Tern__Wire__HaMember *member)
{
    json_t *list = json_array();
    for (size_t i = 0; member && i < member->n_epochs; i++)
        json_array_append_new(list, json_pack("{s:I,s:I}", "number",
                                              (json_int_t)member->epochs[i]->number, "start",
                                              (json_int_t)member->epochs[i]->start));
    return list;
}

static json_t *slave_to_json(const Tern__Wire__HaSlaveStatus *slave)
{
    json_t *json = member_head(slave->member);
    const Tern__Wire__HaMember *m = slave->member;
    json_object_set_new(json, "inSync", json_boolean(slave->in_sync));
    json_object_set_new(json, "linkUp", json_boolean(slave->link_up));
    json_object_set_new(json, "readable", json_boolean(m && m->readable));
    json_object_set_new(json, "position", number_of(m ? m->log_end : 0));
    json_object_set_new(json, "flushed", number_of(m ? m->flushed : 0));
    json_object_set_new(json, "dispatched", number_of(m ? m->dispatched : 0));
    json_object_set_new(json, "lagBytes", number_of(slave->lag_bytes));
    json_object_set_new(json, "lagMs", number_of(slave->lag_ms));
    json_object_set_new(json, "heardAgeMs", number_of(slave->heard_age_ms));
    json_object_set_new(json, "transferMibPerSecond",
                        json_real(slave->transfer_bytes_per_second / mib));
    return json;
}

static json_t *awaited_to_json(const Tern__Wire__HaMember *member)
{
    json_t *json = member_head(member);
    json_object_set_new(json, "epochs", epochs_of(member));
    json_object_set_new(json, "position", number_of(member->log_end));
    return json;
}

json_t *ha_status_to_json(const Tern__Wire__HaStatusResponse *status)
{
    const Tern__Wire__HaMember *self = status->self;
    json_t *json = member_head(self);
    if (self) {
        json_object_set_new(json, "clusterName",
                            bytes_of(self->cluster_name.data, self->cluster_name.len));
        json_object_set_new(json, "brokerName",
                            bytes_of(self->broker_name.data, self->broker_name.len));
    }
    json_object_set_new(json, "state", text_of(self ? state_name(self->state) : "unknown"));
    json_object_set_new(json, "stateText", text_of(status->state_text));
    json_object_set_new(json, "writable", json_boolean(status->writable));
    json_object_set_new(json, "readable", json_boolean(self && self->readable));
    json_object_set_new(json, "epochs", epochs_of(self));
    if (self)
        json_object_set_new(
            json, "positions",
            json_pack("{s:I,s:I,s:I,s:I,s:I}", "min", (json_int_t)self->log_min, "appended",
                      (json_int_t)self->log_end, "flushed", (json_int_t)self->flushed, "confirmed",
                      (json_int_t)status->confirmed, "dispatched", (json_int_t)self->dispatched));
    json_object_set_new(json, "transferMibPerSecond",
                        json_real(status->transfer_bytes_per_second / mib));
    json_object_set_new(json, "cutBytes", number_of((int64_t)status->cut_bytes));
    json_t *slaves = json_array();
    for (size_t i = 0; i < status->n_slaves; i++)
        json_array_append_new(slaves, slave_to_json(status->slaves[i]));
    json_t *awaited = json_array();
    for (size_t i = 0; i < status->n_awaited; i++)
        json_array_append_new(awaited, awaited_to_json(status->awaited[i]));
    json_object_set_new(json, "slaves", slaves);
    json_object_set_new(json, "awaited", awaited);
    if (status->master) {
        json_t *master = member_head(status->master);
        json_object_set_new(master, "position", number_of(status->master->log_end));
        json_object_set_new(json, "master", master);
    }
    return json;
}

json_t *ha_status_no_answer(int64_t id, const char *address, const char *why)
{
    json_t *json = json_object();
    if (id >= 0)
        json_object_set_new(json, "brokerId", number_of(id));
    json_object_set_new(json, "address", text_of(address));
    json_object_set_new(json, "state", text_of("no answer"));
    json_object_set_new(json, "stateText", text_of(why));
    return json;
}

/* ---- text ---- */

static const char *text_at(const json_t *json, const char *key)
{
    const char *value = json_string_value(json_object_get(json, key));
    return value && value[0] ? value : "-";
}

static json_int_t number_at(const json_t *json, const char *key)
{
    return json_integer_value(json_object_get(json, key));
}

static bool true_at(const json_t *json, const char *key)
{
    return json_is_true(json_object_get(json, key));
}

static bool state_is(const json_t *broker, const char *state)
{
    return !strcmp(text_at(broker, "state"), state);
}

static void print_slaves(const json_t *slaves, FILE *out)
{
    size_t i;
    const json_t *row;
    if (json_array_size(slaves) == 0)
        return;
    fprintf(out, "    #Slave %-22s %-8s %-5s %14s %12s %9s %10s %9s\n", "Address", "InSync", "Link",
            "Position", "LagBytes", "LagMs", "HeardMs", "MiB/s");
    json_array_foreach(slaves, i, row)
    {
        fprintf(out,
                "    %6" JSON_INTEGER_FORMAT " %-22s %-8s %-5s %14" JSON_INTEGER_FORMAT
                " %12" JSON_INTEGER_FORMAT " %9" JSON_INTEGER_FORMAT " %10" JSON_INTEGER_FORMAT
                " %9.2f\n",
                number_at(row, "brokerId"), text_at(row, "address"),
                true_at(row, "inSync") ? "in sync" : "no", true_at(row, "linkUp") ? "up" : "down",
                number_at(row, "position"), number_at(row, "lagBytes"), number_at(row, "lagMs"),
                number_at(row, "heardAgeMs"),
                json_real_value(json_object_get(row, "transferMibPerSecond")));
    }
}

static void print_epochs(const json_t *epochs, FILE *out)
{
    enum { SHOWN = 8 };
    size_t count = json_array_size(epochs);
    size_t from = count > SHOWN ? count - SHOWN : 0;
    fputs("    epochs     ", out);
    if (from > 0)
        fprintf(out, "(%zu earlier) ", from);
    for (size_t i = from; i < count; i++) {
        const json_t *row = json_array_get(epochs, i);
        fprintf(out, "%s%" JSON_INTEGER_FORMAT " from %" JSON_INTEGER_FORMAT, i > from ? ", " : "",
                number_at(row, "number"), number_at(row, "start"));
    }
    fputs(count ? "\n" : "none\n", out);
}

/* "id 1 (10.0.0.2:10912, store 0123…)" */
static void print_who(const json_t *member, FILE *out)
{
    fprintf(out, "id %" JSON_INTEGER_FORMAT " (%s, store %s)", number_at(member, "brokerId"),
            text_at(member, "haAddress"), text_at(member, "storeUuid"));
}

void ha_status_print(const json_t *broker, FILE *out)
{
    size_t i;
    const json_t *row;
    const json_t *positions = json_object_get(broker, "positions");
    const json_t *master = json_object_get(broker, "master");
    char id[32] = "-";
    if (json_object_get(broker, "brokerId"))
        snprintf(id, sizeof id, "%" JSON_INTEGER_FORMAT, number_at(broker, "brokerId"));
    fprintf(out, "  id %s  %s  %s%s%s\n", id, text_at(broker, "address"), text_at(broker, "state"),
            !positions                    ? ""
            : true_at(broker, "writable") ? ", writable"
            : !strcmp(id, "0")            ? ", not writable"
                                          : "",
            positions && !true_at(broker, "readable") ? ", not readable" : "");
    if (strcmp(text_at(broker, "stateText"), "-") != 0)
        fprintf(out, "    %s\n", text_at(broker, "stateText"));
    if (!positions)
        return;
    fprintf(out, "    store      %s, replication at %s\n", text_at(broker, "storeUuid"),
            text_at(broker, "haAddress"));
    print_epochs(json_object_get(broker, "epochs"), out);
    fprintf(out,
            "    positions  min %" JSON_INTEGER_FORMAT ", appended %" JSON_INTEGER_FORMAT
            ", flushed %" JSON_INTEGER_FORMAT ", confirmed %" JSON_INTEGER_FORMAT
            ", dispatched %" JSON_INTEGER_FORMAT "\n",
            number_at(positions, "min"), number_at(positions, "appended"),
            number_at(positions, "flushed"), number_at(positions, "confirmed"),
            number_at(positions, "dispatched"));
    if (master)
        fprintf(out, "    master     %s, at %" JSON_INTEGER_FORMAT ", receiving %.2f MiB/s\n",
                text_at(master, "haAddress"), number_at(master, "position"),
                json_real_value(json_object_get(broker, "transferMibPerSecond")));
    if (number_at(broker, "cutBytes") > 0)
        fprintf(out,
                "    cut        %" JSON_INTEGER_FORMAT
                " bytes since the start, saved under diverged/ in the store\n",
                number_at(broker, "cutBytes"));
    json_array_foreach(json_object_get(broker, "awaited"), i, row)
    {
        fputs("    waits for  ", out);
        print_who(row, out);
        fputc('\n', out);
    }
    print_slaves(json_object_get(broker, "slaves"), out);
}

/* ---- what an operator is asked to take upon himself ---- */

static void print_awaited_cost(const json_t *member, json_int_t own_end, FILE *out)
{
    json_int_t end = number_at(member, "position");
    fputs("  ", out);
    print_who(member, out);
    if (end > 0)
        fprintf(out,
                ": last known to end at %" JSON_INTEGER_FORMAT
                "; what it has beyond the common point is given up\n",
                end);
    else
        fprintf(out,
                ": not heard; it may have messages beyond %" JSON_INTEGER_FORMAT
                " that were acknowledged, and they are given up\n",
                own_end);
}

bool ha_force_warning(const json_t *broker, FILE *out)
{
    size_t i;
    const json_t *row;
    const json_t *awaited = json_object_get(broker, "awaited");
    json_int_t end = number_at(json_object_get(broker, "positions"), "appended");
    if (!state_is(broker, "recovering")) {
        fprintf(out, "%s is %s: there is nothing to force\n", text_at(broker, "address"),
                text_at(broker, "state"));
        return false;
    }
    fprintf(out, "%s is recovering: %s\n", text_at(broker, "address"),
            text_at(broker, "stateText"));
    fprintf(out,
            "Its log ends at %" JSON_INTEGER_FORMAT
            ". Opened by force, it goes on from there without:\n",
            end);
    json_array_foreach(awaited, i, row) print_awaited_cost(row, end, out);
    if (json_array_size(awaited) == 0)
        fputs("  members that refuse to be cut, or a slave that is not empty: see the line above\n",
              out);
    fputs(
        "When they come back, what they have beyond the common point is cut from their logs (saved "
        "under\ndiverged/ there), and consumers' offsets beyond it are lowered. Start them "
        "instead if that is\npossible: the master then takes what they have and opens by "
        "itself.\n",
        out);
    return true;
}

bool ha_rejoin_warning(const json_t *broker, FILE *out)
{
    const json_t *positions = json_object_get(broker, "positions");
    fprintf(out, "id %" JSON_INTEGER_FORMAT " at %s is %s: %s\n", number_at(broker, "brokerId"),
            text_at(broker, "address"), text_at(broker, "state"), text_at(broker, "stateText"));
    if (!state_is(broker, "detached")) {
        fputs("only a detached slave needs to rejoin\n", out);
        return false;
    }
    fprintf(
        out,
        "Its store, log %" JSON_INTEGER_FORMAT "..%" JSON_INTEGER_FORMAT
        ", is saved aside under diverged/ and a copy of the master's begins in its place;\nuntil "
        "that is complete it does not count for acknowledgements.\n",
        number_at(positions, "min"), number_at(positions, "appended"));
    return true;
}

bool ha_uuid_parse(const char *text, uint8_t out[HA_UUID_RAW_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    size_t count = 0;
    for (; *text; text++) {
        char c = *text >= 'A' && *text <= 'F' ? (char)(*text - 'A' + 'a') : *text;
        const char *at = strchr(digits, c);
        if (c == '-')
            continue;
        if (!at || count == 2 * HA_UUID_RAW_BYTES)
            return false;
        uint8_t value = (uint8_t)(at - digits);
        out[count / 2] =
            count % 2 ? (uint8_t)(((unsigned)out[count / 2] << 4 | value) & 0xff) : value;
        count++;
    }
    return count == 2 * HA_UUID_RAW_BYTES;
}
