/*
 * A broker registers: who may take whose place. A registration is judged against what is known,
 * first all refusals, then the changes:
 *
 *   same id, same UUID       refresh; a new address or connection replaces the old one
 *   same id, other UUID      refused while the old one lives (heard within expire_ns)
 *   name in another cluster  refused while another store lives there; else the set begins anew
 *   other id, same address   refused while another store lives there; else that entry goes
 *
 * Requests of one connection are handled in parallel, so an older registration may come here after
 * a newer one: it is known by the time it was received, and changes nothing. Likewise the death of
 * a connection may overtake its last registration: the latest dead connections are remembered and
 * refused.
 *
 * Threads: see route_table.h. Failure modes: limits and conflicts are refused with both sides
 * named.
 */
#include "namesrv/route_internal.h"

#include <stdlib.h>
#include <string.h>

static bool same_uuid(const struct route_member *member, const struct route_registration *reg)
{
    return memcmp(member->uuid, reg->uuid, ROUTE_UUID_BYTES) == 0;
}

/* Another store than the registering one, and heard of lately. */
static bool is_live_other(const struct route_table *table, const struct route_member *member,
                          const struct route_registration *reg)
{
    return !same_uuid(member, reg) && route_member_lives(table, member, reg->now_ns);
}

static enum tern_code refuse_conflicts(const struct route_table *table, const struct route_set *set,
                                       const struct route_registration *reg, struct tern_error *err)
{
    bool same_cluster = strcmp(set->cluster, reg->cluster) == 0;
    for (size_t i = 0; i < set->member_count; i++) {
        const struct route_member *member = &set->members[i];
        if (!is_live_other(table, member, reg))
            continue;
        if (!same_cluster)
            return error_set(err, TERN_NAME_CONFLICT,
                             "broker %s at %s says cluster %s, but %s id %lld at %s lives in "
                             "cluster %s: a brokerName belongs to one cluster",
                             reg->name, reg->address, reg->cluster, set->name,
                             (long long)member->id, member->address, set->cluster);
        if (member->id == reg->id)
            return error_set(err, TERN_NAME_CONFLICT,
                             "broker %s id %lld at %s is refused: another store is registered "
                             "under this name and id from %s; give one of them another brokerName "
                             "or brokerId",
                             reg->name, (long long)reg->id, reg->address, member->address);
        if (strcmp(member->address, reg->address) == 0)
            return error_set(err, TERN_NAME_CONFLICT,
                             "broker %s id %lld at %s is refused: id %lld of another store is "
                             "registered from %s too; check advertiseAddr and listenPort",
                             reg->name, (long long)reg->id, reg->address, (long long)member->id,
                             member->address);
    }
    return TERN_OK;
}

/*
 * Whether the registration's table should become the set's (NULL: a new set). Slaves have adopted
 * their master's versions, so those of one set can be compared.
 */
static bool table_wanted(const struct route_table *table, const struct route_set *set,
                         const struct route_registration *reg)
{
    bool master = reg->id == 0;
    if (!master && !reg->readable)
        return false;
    if (!set || set->source == ROUTE_TABLE_NONE)
        return true;
    bool same_source = memcmp(set->table_uuid, reg->uuid, ROUTE_UUID_BYTES) == 0;
    if (master)
        return set->source == ROUTE_TABLE_SLAVE || !same_source ||
               set->table_version != reg->topics_version;
    if (route_set_has_master(set) && route_member_lives(table, &set->members[0], reg->now_ns))
        return false;
    return same_source ? set->table_version != reg->topics_version
                       : set->table_version < reg->topics_version;
}

static enum tern_code add_set(struct route_table *table, const struct route_registration *reg,
                              struct route_set **out, struct tern_error *err)
{
    if (table->set_count == table->set_cap) {
        size_t cap = table->set_cap ? table->set_cap * 2 : 16;
        struct route_set **sets = realloc(table->sets, cap * sizeof *sets);
        if (!sets)
            return error_set(err, TERN_NO_MEMORY, "broker %s", reg->name);
        table->sets = sets;
        table->set_cap = cap;
    }
    struct route_set *set = calloc(1, sizeof *set);
    if (!set)
        return error_set(err, TERN_NO_MEMORY, "broker %s", reg->name);
    route_copy_text(set->cluster, sizeof set->cluster, reg->cluster);
    route_copy_text(set->name, sizeof set->name, reg->name);
    bool found;
    size_t at = route_set_position(table, reg->name, &found);
    memmove(&table->sets[at + 1], &table->sets[at],
            (table->set_count - at) * sizeof table->sets[0]);
    table->sets[at] = set;
    table->set_count++;
    *out = set;
    return TERN_OK;
}

/* A place for the member among the set's, by id; NULL without memory. */
static struct route_member *add_member(struct route_table *table, struct route_set *set, int64_t id)
{
    struct route_member *members = realloc(set->members, (set->member_count + 1) * sizeof *members);
    if (!members)
        return NULL;
    set->members = members;
    size_t at = 0;
    while (at < set->member_count && members[at].id < id)
        at++;
    memmove(&members[at + 1], &members[at], (set->member_count - at) * sizeof *members);
    members[at] = (struct route_member){.id = id};
    set->member_count++;
    table->member_count++;
    return &members[at];
}

/* Makes room for what was admitted: the set in its cluster, the member; stale ones in the way go.
 */
static enum tern_code place_member(struct route_table *table, const struct route_registration *reg,
                                   struct route_set **set_out, struct route_member **out,
                                   bool *joined, struct tern_error *err)
{
    struct route_set *set = route_get_set(table, reg->name);
    if (set && strcmp(set->cluster, reg->cluster) != 0) {
        route_remove_set(table, set); /* dead, or this very store under its former cluster */
        set = NULL;
    }
    if (!set) {
        enum tern_code code = add_set(table, reg, &set, err);
        if (code != TERN_OK)
            return code;
    }
    struct route_member *member = route_find_member(set, reg->id);
    *joined = !member || !same_uuid(member, reg);
    if (!member)
        member = add_member(table, set, reg->id);
    if (!member) {
        if (set->member_count == 0)
            route_remove_set(table, set);
        return error_set(err, TERN_NO_MEMORY, "broker %s", reg->name);
    }
    for (size_t i = set->member_count; i-- > 0;)
        if (set->members[i].id != reg->id && strcmp(set->members[i].address, reg->address) == 0)
            route_remove_member(table, set, &set->members[i], NULL);
    *set_out = set;
    *out = route_find_member(set, reg->id);
    return TERN_OK;
}

static enum tern_code take_table(struct route_table *table, struct route_set *set,
                                 const struct route_registration *reg, struct tern_error *err)
{
    if (set->source != ROUTE_TABLE_NONE && set->table_version != reg->topics_version)
        set->write_wiped = false;
    set->source = ROUTE_TABLE_NONE; /* unless all goes well: it is asked for again */
    enum tern_code code = route_rows_replace(table, set, reg->topics, reg->topic_count, err);
    if (code != TERN_OK)
        return code;
    set->source = reg->id == 0 ? ROUTE_TABLE_MASTER : ROUTE_TABLE_SLAVE;
    set->table_version = reg->topics_version;
    memcpy(set->table_uuid, reg->uuid, ROUTE_UUID_BYTES);
    return TERN_OK;
}

static void fill_master(const struct route_set *set, const struct route_registration *reg,
                        struct route_registered *out)
{
    const struct route_member *master = reg->id != 0 ? route_find_member(set, 0) : NULL;
    if (!master)
        return;
    route_copy_text(out->master_address, sizeof out->master_address, master->address);
    route_copy_text(out->master_ha_address, sizeof out->master_ha_address, master->ha_address);
}

enum tern_code route_register(struct route_table *table,
                              const struct route_registration *registration,
                              struct route_registered *out, struct tern_error *err)
{
    const struct route_registration *reg = registration;
    *out = (struct route_registered){0};
    if (route_peer_known_gone(table, reg->peer_id))
        return error_set(err, TERN_CONNECTION_LOST, "broker %s has disconnected", reg->name);
    struct route_set *set = route_get_set(table, reg->name);
    struct route_member *member = set ? route_find_member(set, reg->id) : NULL;
    if (member && same_uuid(member, reg) && member->peer_id == reg->peer_id &&
        reg->now_ns < member->heard_ns) {
        fill_master(set, reg, out); /* overtaken by a newer one */
        return TERN_OK;
    }
    enum tern_code code = set ? refuse_conflicts(table, set, reg, err) : TERN_OK;
    if (code != TERN_OK)
        return code;
    if (!member && table->member_count >= ROUTE_BROKERS_MAX)
        return error_set(err, TERN_LIMIT, "%d brokers are registered, no more are taken",
                         (int)ROUTE_BROKERS_MAX);
    if (set && strcmp(set->cluster, reg->cluster) != 0)
        set = NULL; /* it will begin anew */
    if (set && !member && set->member_count >= ROUTE_SET_MEMBERS_MAX)
        return error_set(err, TERN_LIMIT,
                         "%d brokers of the name %s are registered, no more are taken",
                         (int)ROUTE_SET_MEMBERS_MAX, reg->name);
    bool wanted = table_wanted(table, set, reg);
    if (wanted && reg->has_topics) {
        code = route_rows_admit(table, set, reg->topics, reg->topic_count, err);
        if (code != TERN_OK)
            return code;
    }
    code = place_member(table, reg, &set, &member, &out->joined, err);
    if (code != TERN_OK)
        return code;
    out->moved = !out->joined && strcmp(member->address, reg->address) != 0;
    route_copy_text(member->address, sizeof member->address, reg->address);
    route_copy_text(member->ha_address, sizeof member->ha_address, reg->ha_address);
    memcpy(member->uuid, reg->uuid, ROUTE_UUID_BYTES);
    member->peer_id = reg->peer_id;
    member->heard_ns = reg->now_ns;
    member->readable = reg->readable;
    member->store_host_v6 = reg->store_host_v6;
    fill_master(set, reg, out);

    out->need_topics = wanted && !reg->has_topics;
    out->table_replaced = wanted && reg->has_topics;
    return out->table_replaced ? take_table(table, set, reg, err) : TERN_OK;
}
