/* The inside of a member's tables, for set_tables.c (exchange) and set_tables_open.c (cuts,
 * opening). */
#ifndef BROKER_SET_TABLES_INTERNAL_H
#define BROKER_SET_TABLES_INTERNAL_H

#include <stdatomic.h>

#include "broker/broker_internal.h"
#include "broker/set_tables.h"

struct recovered;

struct set_tables {
    struct broker *broker;
    _Atomic(struct recovered *) recovered; /* where queues ended at the opening; NULL: not known */
    struct change_counter counter;
    /* A slave: its master began with nothing when our changes were so far; until then it gets all.
     */
    _Atomic uint64_t full_until;
    _Atomic uint64_t refused_version; /* of a table that does not fit: said once */
    bool raised; /* the ha task's: versions were raised, but that is not on the disk yet */
};

static inline bool set_tables_is_slave(const struct set_tables *tables)
{
    return tables->broker->config.role == ROLE_SLAVE;
}

/* A master that takes writes. */
static inline bool set_tables_is_open(const struct set_tables *tables)
{
    struct ha *ha = tables->broker->ha;
    return !set_tables_is_slave(tables) && ha && ha_state(ha) == TERN__WIRE__HA_STATE__HA_OPEN;
}

/* Members of struct ha_tables. */
enum tern_code set_tables_lower(void *arg, int64_t phys_off, struct tern_error *err);
enum tern_code set_tables_forget(void *arg, struct tern_error *err);
enum tern_code set_tables_open(void *arg, bool raise, uint64_t number, struct tern_error *err);
/* For offsets_set_recovered(): where a queue ended at the opening, 0 where there was none. @thread
 * any */
int64_t set_tables_recovered_end(void *arg, const char *topic, int32_t queue_id);
/* A master's, at its start: what the last recovery kept still counts when a member gives it only
 * now. @blocks on the disk */
enum tern_code set_tables_take_up_recovery(struct set_tables *tables);
void set_tables_free_recovered(struct set_tables *tables);

#endif
