/*
 * Sets and members: who lives, where, and who goes. Who may come is decided in route_register.c.
 *
 * Sets stand in one array by name, members of a set in one array by id: there are few of them, they
 * are listed in that order, and a look-up is a binary search.
 *
 * Threads: see route_table.h. Failure modes: none, removing needs no memory.
 */
#include "namesrv/route_internal.h"

#include <stdlib.h>
#include <string.h>

void route_table_init(struct route_table *table, int64_t expire_ns)
{
    memset(table, 0, sizeof *table);
    table->expire_ns = expire_ns;
}

void route_table_fini(struct route_table *table)
{
    route_rows_fini(table);
    for (size_t i = 0; i < table->set_count; i++) {
        free(table->sets[i]->members);
        free(table->sets[i]);
    }
    free(table->sets);
    memset(table, 0, sizeof *table);
}

size_t route_set_position(const struct route_table *table, const char *name, bool *found)
{
    size_t low = 0;
    size_t high = table->set_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(table->sets[middle]->name, name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

struct route_set *route_get_set(const struct route_table *table, const char *name)
{
    bool found;
    size_t at = route_set_position(table, name, &found);
    return found ? table->sets[at] : NULL;
}

const struct route_set *route_find_set(const struct route_table *table, const char *name)
{
    return route_get_set(table, name);
}

struct route_member *route_find_member(const struct route_set *set, int64_t id)
{
    for (size_t i = 0; i < set->member_count; i++)
        if (set->members[i].id == id)
            return &set->members[i];
    return NULL;
}

bool route_member_routable(const struct route_member *member)
{
    return member->id == 0 || member->readable;
}

bool route_set_routable(const struct route_set *set)
{
    for (size_t i = 0; i < set->member_count; i++)
        if (route_member_routable(&set->members[i]))
            return true;
    return false;
}

bool route_set_has_master(const struct route_set *set)
{
    return set->member_count > 0 && set->members[0].id == 0; /* they stand by id */
}

bool route_member_lives(const struct route_table *table, const struct route_member *member,
                        int64_t now_ns)
{
    return now_ns - member->heard_ns <= table->expire_ns;
}

void route_copy_text(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    ENSURE(len < size); /* the caller checked */
    memcpy(out, text, len + 1);
}

void route_remove_set(struct route_table *table, struct route_set *set)
{
    bool found;
    size_t at = route_set_position(table, set->name, &found);
    ENSURE(found && table->sets[at] == set);
    route_rows_drop(table, set);
    table->member_count -= set->member_count;
    table->set_count--;
    memmove(&table->sets[at], &table->sets[at + 1],
            (table->set_count - at) * sizeof table->sets[0]);
    free(set->members);
    free(set);
}

static bool peer_in_use(const struct route_table *table, uint64_t peer_id)
{
    for (size_t i = 0; i < table->set_count; i++)
        for (size_t k = 0; k < table->sets[i]->member_count; k++)
            if (table->sets[i]->members[k].peer_id == peer_id)
                return true;
    return false;
}

void route_remove_member(struct route_table *table, struct route_set *set,
                         struct route_member *member, struct route_removed *out)
{
    uint64_t peer_id = member->peer_id;
    if (out) {
        *out = (struct route_removed){.id = member->id, .peer_id = peer_id};
        route_copy_text(out->cluster, sizeof out->cluster, set->cluster);
        route_copy_text(out->name, sizeof out->name, set->name);
        route_copy_text(out->address, sizeof out->address, member->address);
        out->set_gone = set->member_count == 1;
    }
    size_t at = (size_t)(member - set->members);
    set->member_count--;
    table->member_count--;
    memmove(member, member + 1, (set->member_count - at) * sizeof *member);
    if (set->member_count == 0)
        route_remove_set(table, set);
    if (out)
        out->peer_free = !peer_in_use(table, peer_id);
}

bool route_unregister(struct route_table *table, const char *name, int64_t id, const char *address,
                      uint64_t peer_id, struct route_removed *out)
{
    struct route_set *set = route_get_set(table, name);
    struct route_member *member = set ? route_find_member(set, id) : NULL;
    if (!member || member->peer_id != peer_id || strcmp(member->address, address) != 0)
        return false;
    route_remove_member(table, set, member, out);
    return true;
}

bool route_peer_known_gone(const struct route_table *table, uint64_t peer_id)
{
    size_t held = table->gone_count < ROUTE_GONE_PEERS ? table->gone_count : ROUTE_GONE_PEERS;
    for (size_t i = 0; i < held; i++)
        if (table->gone_peers[i] == peer_id)
            return true;
    return false;
}

bool route_peer_gone(struct route_table *table, uint64_t peer_id, struct route_removed *out)
{
    if (!route_peer_known_gone(table, peer_id))
        table->gone_peers[table->gone_count++ % ROUTE_GONE_PEERS] = peer_id;
    for (size_t i = 0; i < table->set_count; i++) {
        struct route_set *set = table->sets[i];
        for (size_t k = 0; k < set->member_count; k++) {
            if (set->members[k].peer_id == peer_id) {
                route_remove_member(table, set, &set->members[k], out);
                return true;
            }
        }
    }
    return false;
}

bool route_expire(struct route_table *table, int64_t now_ns, struct route_removed *out)
{
    for (size_t i = 0; i < table->set_count; i++) {
        struct route_set *set = table->sets[i];
        for (size_t k = 0; k < set->member_count; k++) {
            if (!route_member_lives(table, &set->members[k], now_ns)) {
                route_remove_member(table, set, &set->members[k], out);
                return true;
            }
        }
    }
    return false;
}

size_t route_wipe(struct route_table *table, const char *name, bool restore)
{
    struct route_set *set = route_get_set(table, name);
    if (!set)
        return 0;
    set->write_wiped = !restore && set->row_count > 0;
    return set->row_count;
}
