/*
 * A broker set that delays messages: each one sent is remembered with its due time, and what came
 * of it, which is read from the nodes' logs.
 */
#ifndef TESTS_CLUSTER_DELAY_WORLD_H
#define TESTS_CLUSTER_DELAY_WORLD_H

#include "tests/unit/base/unit.h"

#include "broker/schedule/schedule.h"
#include "tests/cluster/set_world.h"

enum { DELAYED_MAX = 4096, PATIENCE_MS = 3000, ACCURACY_MS = 50, SECOND = 1000, MINUTE = 60000 };

struct delayed {
    bool acked, cancelled;
    int64_t due_ms, phys_off;
    uint32_t times;
    int64_t late_ms;
    char key[16];
};

extern struct world world;
extern struct delayed sent[DELAYED_MAX];
extern uint32_t sent_count;

extern char remark[512]; /* what the last cancelling was answered with */

/* Of the wall clock that stamps. */
int64_t now_ms(void);
/* A world whose nodes do not run yet, and nothing sent. */
void prepare(uint64_t seed);
/* One message to queue number % 4, with one property that delays it. */
enum tern_code send_to(const char *topic, const char *name, int64_t value, int64_t delay_ms);
/* To the world's topic, due in so long. */
void send_in(int64_t delay_ms);
/* The same by a delay level. */
void send_level(int level);
/* Cancels what was sent as `number`; `remark` has the answer's words. */
enum tern_code cancel(uint32_t number);
/* Takes note of what came to a topic, as the node's log has it; returns how many. */
uint32_t read_topic(const struct sim_node *node, const char *topic);
/* What was acknowledged came once, what was cancelled not at all, the rest at most once. */
void check_once(const struct sim_node *node);
/* What the node says of its delayed messages. */
struct schedule_status status_of(const struct sim_node *node);

#endif
