/*
 * What a push consumer tells its trace, around the call of the listener. Does nothing when the
 * consumer is not traced.
 */
#ifndef CLIENT_PUSH_TRACE_H
#define CLIENT_PUSH_TRACE_H

#include "client/push_internal.h"

/* The consumer's dispatcher, when its options want one. */
MUST_CHECK enum tern_code push_trace_create(struct tern_push_consumer *consumer,
                                            struct tern_error *err);

/* Between before and after; on the worker's stack. */
struct push_traced {
    char request_id[33];
    int64_t begun_ns;
};

/* The batch is about to be handed to the listener. @thread worker @locks none */
void push_trace_before(struct tern_push_consumer *consumer, struct tern_message *const *messages,
                       uint32_t count, struct push_traced *traced);
/* The listener has returned, with the first `done` of them consumed; expired: too late, somebody
 * sent the batch back. */
void push_trace_after(struct tern_push_consumer *consumer, struct tern_message *const *messages,
                      uint32_t count, uint32_t done, const struct push_traced *traced,
                      bool expired);

#endif
