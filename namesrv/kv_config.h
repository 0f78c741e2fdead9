/*
 * The nameserver's KV configuration: namespace → key → value, in RocketMQ's kvConfig.json
 * ({"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}), readable both ways.
 *
 * A change is on the disk before it is seen or answered: changes are made on a copy, the copy is
 * written, then it takes the table's place. What cannot be written has not happened.
 *
 * One writer at a time, any number of readers. The file has one owner: at its first change this
 * process locks `<file>.lock` and reads the file once more; two nameservers that were given the
 * same file can both start and read, but only one of them can change it.
 */
#ifndef NAMESRV_KV_CONFIG_H
#define NAMESRV_KV_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/env.h"
#include "base/error.h"

enum {
    KV_ENTRIES_MAX = 10000,
    KV_NAME_MAX = 255,        /* bytes of a namespace or key */
    KV_VALUE_MAX = 64 * 1024, /* bytes of a value */
    KV_TOTAL_MAX = 8 << 20    /* bytes of all names and values: a list fits into one answer */
};

struct kv_config;

struct kv_entry {
    const char *key;
    const char *value;
};

/* One change. The texts are borrowed for the call. */
struct kv_change {
    const char *name_space, *key;
    const char *value;   /* NULL: delete; deleting what is not there succeeds */
    enum tern_code code; /* set by kv_config_apply() */
    struct tern_error err;
};

/* env is borrowed, path copied. */
MUST_CHECK enum tern_code kv_config_create(const struct env *env, const char *path,
                                           struct kv_config **out);
void kv_config_destroy(struct kv_config *kv); /* NULL allowed */

/*
 * Reads the newest good generation; no file is an empty table. TERN_CORRUPT when files are there
 * but none is good: the caller must not start, nothing is deleted. @blocks on the disk
 */
MUST_CHECK enum tern_code kv_config_load(struct kv_config *kv, struct tern_error *err);

/* TERN_INVALID unless it is 1 to KV_NAME_MAX bytes of printable UTF-8; `what` names it. */
MUST_CHECK enum tern_code kv_name_check(const char *what, const char *name, struct tern_error *err);

/*
 * Makes the changes in their order and writes the file once, if anything is different. Each gets a
 * code of its own: TERN_OK, TERN_INVALID (a name or value), TERN_LIMIT; or for all that would have
 * been made: TERN_IN_USE (another nameserver has the file), TERN_NO_MEMORY, or why it could not be
 * written. @blocks on the disk @thread one at a time
 */
void kv_config_apply(struct kv_config *kv, struct kv_change *changes, size_t count);

/* Copies the value into the arena. TERN_QUERY_NOT_FOUND; TERN_NO_MEMORY. @thread any */
MUST_CHECK enum tern_code kv_config_get(struct kv_config *kv, const char *name_space,
                                        const char *key, struct arena *arena, const char **value);

/* All entries of a namespace, by key, copied into the arena. TERN_QUERY_NOT_FOUND: no such one. */
MUST_CHECK enum tern_code kv_config_list(struct kv_config *kv, const char *name_space,
                                         struct arena *arena, struct kv_entry **entries,
                                         size_t *count);

/* Entries now. @thread any */
size_t kv_config_count(struct kv_config *kv);

#endif
