/*
 * What a nameserver knows: which broker processes live, and which topics they serve.
 *
 *   set (brokerName) ──► members by brokerId: address, store UUID, connection, last heard
 *    ▲
 *    │ row: read and write queues, perm, sysFlag of one topic on one set
 *   topic ──► rows by brokerName
 *
 * Pure tables: no threads, no clock, no network. The caller holds one lock around every call and
 * while it looks at what the structs below show; pointers into the table are valid until the next
 * changing call.
 *
 * Invariants
 *  - A set has at least one member, a topic at least one row; what loses its last goes too.
 *  - A set has one cluster: clients know queues by brokerName, so a name cannot stand in two.
 *  - A set's rows are one broker's table as a whole, of one version: the master's. While no master
 *    lives, a readable slave's stands in when none is known (this nameserver was restarted) or
 *    when it is newer (the master died between telling the slave and telling here).
 *  - Without a master among its members a set's rows never show write permission.
 *  - Only the connection of a member's latest registration can remove it by its death.
 *
 * RocketMQ: RouteInfoManager. It differs in that tables are replaced, not merged, and that identity
 * is the store's UUID, not the address.
 */
#ifndef NAMESRV_ROUTE_TABLE_H
#define NAMESRV_ROUTE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Without memory uthash is not to end the process, but to say "not added": see add_topic(). */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->name_len = SIZE_MAX)
#include <uthash.h>

#include "base/error.h"
#include "base/names.h"

enum {
    ROUTE_BROKERS_MAX = 4096,       /* members of all sets */
    ROUTE_SET_MEMBERS_MAX = 256,    /* of one set: what a registration's answer lists */
    ROUTE_TOPICS_MAX = 100000,      /* in one registration, and known in all */
    ROUTE_ROWS_MAX = 1000000,       /* topic on a set, in all */
    ROUTE_TOPIC_QUEUES_MAX = 65536, /* of one topic on one set */
    ROUTE_PERM_MAX = 15,            /* RocketMQ's bits: priority 8, read 4, write 2, inherit 1 */
    ROUTE_PERM_WRITE = 2,
    ROUTE_ADDRESS_BYTES = 264, /* "[host]:port" and NUL */
    ROUTE_UUID_BYTES = 16,
    ROUTE_GONE_PEERS = 256 /* connections remembered as dead, see route_peer_gone() */
};

struct route_member {
    int64_t id; /* 0: master */
    char address[ROUTE_ADDRESS_BYTES];
    char ha_address[ROUTE_ADDRESS_BYTES]; /* may be empty */
    uint8_t uuid[ROUTE_UUID_BYTES];
    uint64_t peer_id; /* connection of the latest registration */
    int64_t heard_ns; /* monotonic, of the latest registration */
    bool readable;    /* a slave that serves pulls */
    bool store_host_v6;
};

enum route_source { ROUTE_TABLE_NONE, ROUTE_TABLE_SLAVE, ROUTE_TABLE_MASTER };

struct route_set {
    char cluster[BROKER_NAME_MAX + 1];
    char name[BROKER_NAME_MAX + 1];
    struct route_member *members; /* by id */
    size_t member_count;
    enum route_source source; /* whose table the rows are */
    uint8_t table_uuid[ROUTE_UUID_BYTES];
    uint64_t table_version;
    bool write_wiped; /* until the table's version changes */
    size_t row_count;
    uint32_t generation; /* of the table that is being applied, see route_topics.c */
};

struct route_row {
    struct route_set *set;
    int32_t read_queues, write_queues, perm, sys_flag; /* as registered */
    uint32_t generation;
};

struct route_topic {
    UT_hash_handle hh;      /* by name */
    struct route_row *rows; /* by the sets' names */
    size_t row_count, row_cap;
    size_t name_len;
    char name[]; /* terminated */
};

struct route_table {
    struct route_set **sets; /* by name */
    size_t set_count, set_cap;
    struct route_topic *topics; /* uthash */
    size_t member_count, row_count;
    int64_t expire_ns; /* a member silent for longer is dead */
    uint64_t gone_peers[ROUTE_GONE_PEERS];
    size_t gone_count;
};

/* One topic of a registration. The name is borrowed and passes topic_name_check(). */
struct route_topic_config {
    const char *name;
    size_t name_len;
    int32_t read_queues, write_queues, perm, sys_flag; /* within the limits above */
};

/* A broker's registration, checked by the caller: grammar, lengths, ranges. Everything is borrowed.
 */
struct route_registration {
    const char *cluster, *name;
    int64_t id;
    const char *address;
    const char *ha_address; /* "" for none */
    const uint8_t *uuid;    /* ROUTE_UUID_BYTES */
    uint64_t peer_id;
    int64_t now_ns; /* monotonic, when the request came in */
    bool readable;
    bool store_host_v6;
    uint64_t topics_version;
    bool has_topics;
    const struct route_topic_config *topics; /* the whole table */
    size_t topic_count;
};

/* What a registration did, for the answer and the log. */
struct route_registered {
    char master_address[ROUTE_ADDRESS_BYTES]; /* of the set's master; empty for itself or without
                                                 one */
    char master_ha_address[ROUTE_ADDRESS_BYTES];
    bool need_topics;    /* this version of the table is not known here */
    bool joined;         /* the member is new, or another store than before */
    bool moved;          /* it has another address than before */
    bool table_replaced; /* the set's rows are this registration's */
};

/* A member that was removed. */
struct route_removed {
    char cluster[BROKER_NAME_MAX + 1];
    char name[BROKER_NAME_MAX + 1];
    int64_t id;
    char address[ROUTE_ADDRESS_BYTES];
    uint64_t peer_id;
    bool set_gone;  /* it was the set's last: the rows went too */
    bool peer_free; /* no other member came on this connection */
};

void route_table_init(struct route_table *table, int64_t expire_ns);
void route_table_fini(struct route_table *table);

/*
 * Enters or refreshes a member, and replaces the set's rows when the registration brings a table
 * that counts and is not known yet. On an error nothing has changed, but for TERN_NO_MEMORY, where
 * the rows may be half replaced and the table counts as unknown.
 *
 * TERN_NAME_CONFLICT: another live store holds this name and id, or the name stands in another
 * cluster, or the address belongs to another live member; the text names both. TERN_LIMIT: too many
 * brokers, of this name or in all, topics or rows. TERN_CONNECTION_LOST: the connection is known to
 * be gone, nobody waits for the answer.
 *
 * Cost: one hash look-up per topic of a new table; a known one costs nothing.
 */
MUST_CHECK enum tern_code route_register(struct route_table *table,
                                         const struct route_registration *registration,
                                         struct route_registered *out, struct tern_error *err);

/* Removes the member if address and connection are those of its latest registration; else false. */
bool route_unregister(struct route_table *table, const char *name, int64_t id, const char *address,
                      uint64_t peer_id, struct route_removed *out);

/*
 * A connection died: removes one member whose latest registration came on it; false when there is
 * none (left). To be called until false. The connection is remembered, so that its registration, if
 * another thread still has one in hand, does not enter a dead member.
 */
bool route_peer_gone(struct route_table *table, uint64_t peer_id, struct route_removed *out);

/* Removes one member that is silent for longer than expire_ns. To be called until false. */
bool route_expire(struct route_table *table, int64_t now_ns, struct route_removed *out);

/* The set of that brokerName, or NULL. */
const struct route_set *route_find_set(const struct route_table *table, const char *name);

/* The topic, or NULL when no broker has it. */
const struct route_topic *route_find_topic(const struct route_table *table, const void *name,
                                           size_t name_len);
/* All topics, in no order: route_first_topic(), then route_next_topic() until NULL. */
const struct route_topic *route_first_topic(const struct route_table *table);
const struct route_topic *route_next_topic(const struct route_topic *topic);
size_t route_topic_count(const struct route_table *table);

/* Whether clients are shown this member: the master, and slaves that serve pulls. */
bool route_member_routable(const struct route_member *member);
/* Whether a set has anybody to show. */
bool route_set_routable(const struct route_set *set);
/* Whether its id 0 is among the members. */
bool route_set_has_master(const struct route_set *set);
/* Whether the member was heard within expire_ns before now. */
bool route_member_lives(const struct route_table *table, const struct route_member *member,
                        int64_t now_ns);
/* A row's permission: as registered, without write while the set is wiped or has no master. */
int32_t route_row_perm(const struct route_row *row);

/*
 * Takes the write permission of all topics on a set away, or gives back what was registered;
 * returns how many topics the set has, 0 also when it is unknown. A wipe lasts until the set's
 * table changes.
 */
size_t route_wipe(struct route_table *table, const char *name, bool restore);

/* Drops a topic's rows, of one cluster's sets when cluster is not empty; returns how many went. */
size_t route_delete_topic(struct route_table *table, const void *name, size_t name_len,
                          const char *cluster);

#endif
