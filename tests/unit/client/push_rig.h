/*
 * One push consumer of group "group" in a scripted cluster, with a listener that remembers.
 *
 *   struct rig rig = rig_create(4);
 *   fake_publish(rig.fake, 0, NULL, 10);
 *   rig_start(&rig, "*");
 *   fake_run_ms(rig.fake, 1000);
 *   assert_int_equal(rig.heard->count, 10);
 *   rig_destroy(&rig);
 */
#ifndef TESTS_UNIT_CLIENT_PUSH_RIG_H
#define TESTS_UNIT_CLIENT_PUSH_RIG_H

#include "tests/unit/client/heard.h"

struct rig {
    struct fake *fake;
    struct heard *heard;
    struct tern_consumer_options *options;
    struct tern_push_consumer *consumer;
};

/* A consumer that is not started yet; its group, without progress, begins at each queue's first. */
struct rig rig_create(int queue_count);
/* Subscribes to FAKE_TOPIC by tags and starts. */
void rig_start(struct rig *rig, const char *expression);
void rig_destroy(struct rig *rig);
struct tern_consumer_stats rig_stats(struct rig *rig);

#endif
