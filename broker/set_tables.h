/*
 * What a set's members exchange besides the log: topics, groups, deletions, consumer progress and
 * queue locks, behind the interface that replication sees (struct ha_tables of broker/ha/ha.h).
 *
 *   master:  own tables ──fill──► wire ──apply──► slave: replaced whole, under the master's version
 *   both:    progress, locks, one number a change ──fill──► wire ──apply──► merged
 */
#ifndef BROKER_SET_TABLES_H
#define BROKER_SET_TABLES_H

#include <stdint.h>

#include "base/error.h"
#include "broker/ha/ha.h"

struct broker;
struct set_tables;

/*
 * For a broker whose topics, groups, offsets and locks are there and not used yet: they are
 * numbered by one counter from now on, and whatever changes in them is told to broker->ha, if that
 * is set. The tables follow other copies until a master opens.
 */
MUST_CHECK enum tern_code set_tables_create(struct broker *broker, struct set_tables **out);
/* After ha_stop() and the last request, before the tables. NULL allowed. */
void set_tables_destroy(struct set_tables *tables);
void set_tables_ops(struct set_tables *tables, struct ha_tables *out);

/* The change that a commit of just now waits for: when the others have seen it, they have the
 * commit. @thread any */
uint64_t set_tables_awaited(struct set_tables *tables);

#endif
