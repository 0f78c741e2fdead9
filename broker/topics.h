/*
 * The topic table of a broker: config/topics.json in RocketMQ's shape, in memory as a hash table.
 *
 * Changes are made durable in batches by the admin lane: topics_put() and topics_remove() change
 * memory and remember how to undo it; topics_persist() writes the file, topics_rollback() takes
 * everything since the last persist back. Readers always see the newest state.
 */
#ifndef BROKER_TOPICS_H
#define BROKER_TOPICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/names.h"

enum {
    PERM_READ = 4,
    PERM_WRITE = 2,
    PERM_INHERIT = 1,
    TOPIC_QUEUES_MAX = 65536,
    TOPICS_MAX = 100000
};

struct topic_config {
    char name[TOPIC_NAME_MAX + 1];
    uint8_t name_len;
    int32_t read_queues, write_queues;
    int32_t perm;
    int32_t sys_flag;
    bool order;
};

struct topics;

/*
 * Loads config/topics.json (`path`). Absent: empty. TERN_CORRUPT: files are there but none is good;
 * nothing is deleted (ST-04). The system topics of facts 8.4 that this product uses are added in
 * memory: SELF_TEST_TOPIC, the cluster's and broker's name, SCHEDULE_TOPIC_XXXX, and TBW102 with
 * auto_create.
 */
MUST_CHECK enum tern_code topics_create(const struct env *env, const char *path,
                                        const char *cluster, const char *broker_name,
                                        bool auto_create, int32_t default_queues,
                                        struct topics **out, struct tern_error *err);
/*
 * One more system topic, in memory, before anybody uses the table: what the file says of it stays;
 * it can be neither changed nor deleted, and is not taken from another copy. A name that no topic
 * may have is left out. TERN_LIMIT: more than TOPICS_OWN_MAX.
 */
enum { TOPICS_OWN_MAX = 4 };
MUST_CHECK enum tern_code topics_add_own(struct topics *topics, const char *name, int32_t queues,
                                         int32_t perm);
void topics_destroy(struct topics *topics);

/* Copies the config; false when absent. @thread any */
bool topics_find(struct topics *topics, const char *name, size_t len, struct topic_config *out);

/* Creates or replaces. TERN_INVALID: name, queue counts (1…TOPIC_QUEUES_MAX), perm (only bits 7),
 * or a system topic; TERN_LIMIT. */
MUST_CHECK enum tern_code topics_put(struct topics *topics, const struct topic_config *config,
                                     struct tern_error *err);
/* As topics_put for topics that the broker makes itself (%RETRY%, %DLQ%, system ones). */
MUST_CHECK enum tern_code topics_put_internal(struct topics *topics,
                                              const struct topic_config *config,
                                              struct tern_error *err);
/* TERN_TOPIC_NOT_EXIST; TERN_INVALID for a system topic. */
MUST_CHECK enum tern_code topics_remove(struct topics *topics, const char *name, size_t len,
                                        struct tern_error *err);

/* A new version though no topic changed: what nameservers are told of them did (brokerPermission).
 */
void topics_touch(struct topics *topics);

/* Writes the file when something changed since the last time. @blocks on the disk */
MUST_CHECK enum tern_code topics_persist(struct topics *topics, struct tern_error *err);
void topics_rollback(struct topics *topics);

/*
 * Another copy's whole table instead of ours, under its version; the system topics that each broker
 * makes for itself stay as they are. Readers see the old table or the new one. Durable when it
 * returns; on failure the old one stays. TERN_INVALID: a name, number or the version; a name twice.
 * TERN_LIMIT. What was put since the last persist is gone. @blocks on the disk
 */
MUST_CHECK enum tern_code topics_replace(struct topics *topics, const struct topic_config *configs,
                                         size_t count, uint64_t version, struct tern_error *err);
/*
 * A table that follows another copy keeps that one's version whatever is changed in it; when it
 * ends, such changes get a version. @thread any
 */
void topics_follow(struct topics *topics, bool follows);
/* fn is called, without locks, when changes have become durable. Before the table is shared. */
void topics_watch(struct topics *topics, void (*fn)(void *arg), void *arg);
/* Whether each broker makes this topic for itself, with queues as it is configured. */
bool topics_is_own(const struct topics *topics, const char *name, size_t len);

/* Changes with every change of the table but of one that follows; survives restarts and only grows.
 * Without a lock. */
uint64_t topics_version(struct topics *topics);
uint32_t topics_count(struct topics *topics);

/* A malloc'ed copy of the whole table sorted by name (free()), and its version. NULL: no memory. */
struct topic_config *topics_snapshot(struct topics *topics, size_t *count, uint64_t *version);

#endif
