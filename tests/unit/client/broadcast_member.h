/*
 * Members of a group that broadcasts, in a scripted cluster: each with a listener that remembers.
 */
#ifndef TESTS_UNIT_CLIENT_BROADCAST_MEMBER_H
#define TESTS_UNIT_CLIENT_BROADCAST_MEMBER_H

#include "tests/unit/client/heard.h"

#define DIR_TEXT "/home/somebody/offsets"

struct member {
    struct tern_consumer_options *options;
    struct tern_push_consumer *consumer;
    struct heard *heard;
};

/* name NULL: none of its own. Not started. */
struct member member_create(struct fake *fake, const char *name);
enum tern_code member_try_start(struct member *member, struct tern_error *err);
void member_start(struct member *member);
void member_stop(struct member *member);
void member_end(struct member *member);
struct tern_consumer_stats member_stats(const struct member *member);

#endif
