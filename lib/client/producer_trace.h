/*
 * What a producer tells its trace. Does nothing when the producer is not traced.
 */
#ifndef CLIENT_PRODUCER_TRACE_H
#define CLIENT_PRODUCER_TRACE_H

#include <stdbool.h>

struct send;
struct tern_producer;

/* A send that has ended; before its callback. @thread any @locks none */
void producer_trace_send(const struct send *send);

/*
 * A transaction whose outcome a broker has taken: state is RocketMQ's LocalTransactionState
 * ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE"), store_host the broker's address, topic "" when it is not
 * known. @thread any @locks none
 */
void producer_trace_end_transaction(struct tern_producer *producer, const char *topic,
                                    const char *message_id, const char *store_host,
                                    const char *state, bool from_check);

#endif
