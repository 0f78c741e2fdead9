/*
 * Members of an orderly group in a scripted cluster, and what all of them did, in the order of
 * virtual time. One world at a time.
 */
#ifndef TESTS_UNIT_CLIENT_ORDER_MEMBER_H
#define TESTS_UNIT_CLIENT_ORDER_MEMBER_H

#include "tests/unit/client/fake_cluster.h"

enum { MEMBERS = 3, PLAYED_MAX = 20000 };

/* What all members of a world did, in the order of virtual time. */
struct played {
    struct fake *fake;
    unsigned count;
    struct {
        int member;
        int32_t queue_id;
        int64_t offset;
        int reconsume;
        int64_t at_ms;
    } items[PLAYED_MAX];
    int running[FAKE_QUEUES + 1]; /* listeners of the queue now */
    bool overlapped;
    int64_t handler_ms;
    int64_t fail_offset; /* fails this one, -1: none */
    int fail_times;      /* -1: always */
    unsigned failed;
    size_t largest_batch;
};

struct order_member {
    struct played *played;
    int number;
    struct tern_push_consumer *consumer;
};

extern struct played *played;
extern struct order_member order_members[MEMBERS];

/* Their listener; arg is the member. */
enum tern_orderly_result order_play(void *arg, const struct tern_message *const *messages,
                                    size_t count);
/* Of virtual time. */
int64_t order_now_ms(void);
/* Queues with nothing in them; no members. */
void order_begin(int queue_count);
void order_end(void);
void order_run_ms(int64_t ms);
/* Of member `number`, to be changed before it joins. */
struct tern_consumer_options *order_options(int number);
/* Takes the options. */
void order_join_with(int number, struct tern_consumer_options *options);
void order_join(int number);
void order_leave(int number);
/* Each queue's offsets came 0, 1, 2, …, repeated ones only of the failing message. */
void order_check(int64_t per_queue);

#endif
