/* The inside of the topic table, for topics.c (memory) and topics_file.c (its file). */
#ifndef BROKER_TOPICS_INTERNAL_H
#define BROKER_TOPICS_INTERNAL_H

#include "base/fs.h"
#include "broker/named_table.h"
#include "broker/topics.h"

enum { TOPIC_PERM_ALL = PERM_READ | PERM_WRITE | PERM_INHERIT };

struct topics {
    struct env env;
    struct named_table table; /* of struct topic_config */
    char path[FS_PATH_BYTES];
    char cluster[BROKER_NAME_MAX + 1];
    char broker_name[BROKER_NAME_MAX + 1];
    char own[TOPICS_OWN_MAX][TOPIC_NAME_MAX + 1]; /* topics_add_own() */
    size_t own_count;
};

/* TERN_INVALID with topic, what, value and range. */
MUST_CHECK enum tern_code topics_check_range(const char *topic, const char *what, int64_t value,
                                             int64_t min, int64_t max, struct tern_error *err);

/* Writes rows as the file's content. @locks holds:BROKER_FILES */
MUST_CHECK enum tern_code topics_write(struct topics *topics, const struct topic_config *rows,
                                       size_t count, uint64_t version, struct tern_error *err);

/* Reads the file. TERN_NOT_FOUND: there is none. */
MUST_CHECK enum tern_code topics_load(struct topics *topics, struct tern_error *err);

#endif
