/*
 * A listener that remembers what it heard, and can be told to fail one message.
 *
 *   struct heard *heard = heard_create(fake);
 *   tern_push_consumer_listener(consumer, listen_and_remember, heard);
 *   …
 *   assert_int_equal(heard_times(heard, 0, 7), 1);
 *   free(heard);
 *
 * Not for several threads at once.
 */
#ifndef TESTS_UNIT_CLIENT_HEARD_H
#define TESTS_UNIT_CLIENT_HEARD_H

#include "tests/unit/client/fake_cluster.h"

enum { HEARD_MAX = 100000 };

struct heard {
    struct fake *fake;
    unsigned count;
    struct {
        int32_t queue_id;
        int64_t offset;
        int reconsume;
    } items[HEARD_MAX];
    int64_t fail_offset; /* fails this one, -1: none */
    int fail_times;      /* so often; -1: always */
    char topic[128];     /* of the last message */
    size_t largest_batch;
};

/* Remembers nothing yet and fails nothing; free(). */
struct heard *heard_create(struct fake *fake);
enum tern_consume_result listen_and_remember(void *arg, const struct tern_message *const *messages,
                                             size_t count);
/* How often an offset of a queue was heard. */
unsigned heard_times(const struct heard *heard, int32_t queue_id, int64_t offset);

#endif
