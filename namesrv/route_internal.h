/* Between route_table.c (sets, members), route_register.c and route_topics.c (topics, rows). */
#ifndef NAMESRV_ROUTE_INTERNAL_H
#define NAMESRV_ROUTE_INTERNAL_H

#include "namesrv/route_table.h"

/* Where the set is among table->sets, or would be; *found says which. */
size_t route_set_position(const struct route_table *table, const char *name, bool *found);
struct route_set *route_get_set(const struct route_table *table, const char *name);
/* NULL when the set has no member of that id. */
struct route_member *route_find_member(const struct route_set *set, int64_t id);
/* Removes the member, and its set when it was the last one. out may be NULL. */
void route_remove_member(struct route_table *table, struct route_set *set,
                         struct route_member *member, struct route_removed *out);
/* Removes the set with its members and rows. */
void route_remove_set(struct route_table *table, struct route_set *set);
/* Whether the connection is among the latest dead ones. */
bool route_peer_known_gone(const struct route_table *table, uint64_t peer_id);
/* Copies a text that is known to fit. */
void route_copy_text(char *out, size_t size, const char *text);

/* TERN_LIMIT when the table with these topics of `set` (NULL: a new one) would exceed a maximum. */
MUST_CHECK enum tern_code route_rows_admit(const struct route_table *table,
                                           const struct route_set *set,
                                           const struct route_topic_config *topics, size_t count,
                                           struct tern_error *err);
/* Makes these the rows of `set`, dropping all others of it. TERN_NO_MEMORY: half done, to be
 * repeated. */
MUST_CHECK enum tern_code route_rows_replace(struct route_table *table, struct route_set *set,
                                             const struct route_topic_config *topics, size_t count,
                                             struct tern_error *err);
/* Drops all rows of `set`. */
void route_rows_drop(struct route_table *table, struct route_set *set);
/* Drops all topics and rows. */
void route_rows_fini(struct route_table *table);

#endif
