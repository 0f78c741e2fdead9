/*
 * A dispatcher on a log in memory and queues on a simulated disk, with an observer that checks what
 * it hears.
 */
#ifndef TESTS_UNIT_STORE_DISPATCHER_WORLD_H
#define TESTS_UNIT_STORE_DISPATCHER_WORLD_H

#include "tests/unit/base/unit.h"
#include "tests/unit/store/fake_log.h"

#include "broker/store/dispatcher.h"
#include "broker/store/queue_table.h"
#include "tests/sim/sim_env.h"

enum { SEGMENT_BYTES = 64 * 1024, LOG_BYTES = 8 << 20, QUEUES = 8 };

struct fixture {
    struct sim_env sim;
    struct commit_log log;
    struct queue_table *queues;
    struct dispatcher *dispatcher;
    struct tern_error err;
    int64_t next[QUEUES]; /* offsets given out */
    /* what the observer heard */
    int64_t arrived[QUEUES];
    unsigned arrivals;
    enum tern_code error;
    char error_text[512];
};

/* Notes the error, which may come once. */
void on_error(void *arg, enum tern_code code, const char *text);
/* A dispatcher that has replayed the log from there. */
void create(struct fixture *f, int64_t from);
/* An empty log, and a dispatcher that is started. */
void set_up(struct fixture *f);
void tear_down(struct fixture *f);
/* Appends a record to a queue without telling the dispatcher. */
int64_t append(struct fixture *f, int32_t queue_id, const char *tags);
/* Tells the dispatcher of the bytes from there to the log's end. */
void offer(struct fixture *f, int64_t from);
/* Queue offsets of "TopicTest": the next one; -1 without such a queue. */
int64_t max_of(struct fixture *f, int32_t queue_id);
/* The unit at an offset; it must be there. */
struct queue_unit unit_of(struct fixture *f, const char *topic, int32_t queue_id, int64_t at);
/* Runs what is due now. */
void run(struct fixture *f);
/* Every record is dispatched and was told, each once. */
void check_all_arrived(struct fixture *f);

#endif
