/*
 * Subscription groups: config/subscriptionGroup.json in RocketMQ's shape. Durable in batches by the
 * admin lane, like the topic table; see topics.h for put, persist and rollback.
 */
#ifndef BROKER_GROUPS_H
#define BROKER_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/names.h"

enum { GROUPS_MAX = 100000, GROUP_SLOW_BROKER_DEFAULT = 1 };

/* When members subscribe differently (guard.h). The wire's values. */
enum group_consistency { CONSISTENCY_WARN, CONSISTENCY_REFUSE, CONSISTENCY_ISOLATE };
/* Longest name of a group that isolates: its cohorts' have 9 bytes more. */
enum { ISOLATED_NAME_MAX = GROUP_NAME_MAX - 9 };

struct group_config {
    char name[GROUP_NAME_MAX + 1];
    bool consume_enable, consume_from_min_enable, consume_broadcast_enable;
    int32_t retry_queues, retry_max_times;
    int64_t broker_id, which_broker_when_slow;
    bool notify_members_changed;
    int32_t consistency; /* enum group_consistency */
};

struct groups;

/* Defaults of facts 8.6: all enabled, 1 retry queue, 16 retries, broker 0, slow 1. */
void group_config_init(struct group_config *config, const char *name, size_t len);

MUST_CHECK enum tern_code groups_create(const struct env *env, const char *path, bool auto_create,
                                        struct groups **out, struct tern_error *err);
void groups_destroy(struct groups *groups);

bool groups_find(struct groups *groups, const char *name, size_t len, struct group_config *out);
/*
 * Finds, or with auto_create (or a system group, CID_RMQ_SYS_…) makes the group with defaults; it
 * becomes durable with the next persist. TERN_GROUP_NOT_EXIST; TERN_INVALID: the name; TERN_LIMIT.
 */
MUST_CHECK enum tern_code groups_find_or_create(struct groups *groups, const char *name, size_t len,
                                                struct group_config *out, struct tern_error *err);
MUST_CHECK enum tern_code groups_put(struct groups *groups, const struct group_config *config,
                                     struct tern_error *err);
MUST_CHECK enum tern_code groups_remove(struct groups *groups, const char *name, size_t len,
                                        struct tern_error *err);
/* Changes groups_create()'s auto_create. @thread any */
void groups_set_auto_create(struct groups *groups, bool auto_create);
bool groups_dirty(struct groups *groups);
MUST_CHECK enum tern_code groups_persist(struct groups *groups, struct tern_error *err);
void groups_rollback(struct groups *groups);
uint64_t groups_version(struct groups *groups);
/* As topics_replace(), topics_follow() and topics_watch(). */
MUST_CHECK enum tern_code groups_replace(struct groups *groups, const struct group_config *configs,
                                         size_t count, uint64_t version, struct tern_error *err);
void groups_follow(struct groups *groups, bool follows);
void groups_watch(struct groups *groups, void (*fn)(void *arg), void *arg);
struct group_config *groups_snapshot(struct groups *groups, size_t *count, uint64_t *version);

#endif
