/*
 * A producer of transactional messages (RocketMQ's TransactionMQProducer): a message that is
 * delivered when, and only when, a local transaction was committed.
 *
 *   send ─► half message stored, nobody sees it ─► execute() ─► COMMIT    delivered
 *                                                          └──► ROLLBACK  never delivered
 *   UNKNOWN, or the outcome was lost ─► later the broker asks: check() ─► COMMIT, ROLLBACK, UNKNOWN
 *
 * The outcome is told to the broker again and again within the send timeout, and kept by this
 * process until it was: a check that comes meanwhile is answered from it, and one for a transaction
 * whose execute() still runs is left for the next time. check() therefore speaks of transactions
 * that this process does not remember: those of an earlier life, of another member of the group, or
 * whose execute() said UNKNOWN. It must find out from where the local transaction is durable;
 * "there is no trace of it" means ROLLBACK once none can come any more.
 *
 * The half message is stored as safely as any message. OK and SLAVE_NOT_AVAILABLE (no slave is in
 * sync, the master alone counts) run the local transaction; FLUSH_DISK_TIMEOUT and
 * FLUSH_SLAVE_TIMEOUT do not: that transaction is rolled back, here and for good.
 *
 * Checks come to members of the group that are running and know the broker: from their own sends,
 * or from tern_transaction_producer_listen(). Life and threads as of tern_producer; check() runs on
 * threads of the producer's own.
 */
#ifndef TERN_TRANSACTION_H
#define TERN_TRANSACTION_H

#include <tern/message.h>
#include <tern/producer.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_transaction_producer;

enum tern_transaction_outcome {
    TERN_TRANSACTION_UNKNOWN, /* not decided yet: the broker asks later */
    TERN_TRANSACTION_COMMIT,
    TERN_TRANSACTION_ROLLBACK
};

/* RocketMQ's TransactionListener. Any other value counts as UNKNOWN. */
struct tern_transaction_listener {
    void *arg;
    /*
     * The local transaction. Its message is borrowed for the call. @thread the sender's; may wait
     */
    enum tern_transaction_outcome (*execute)(void *arg, const struct tern_message *message,
                                             void *send_arg);
    /*
     * What became of it? The message is the half message as the broker keeps it, with the topic it
     * was sent to, borrowed for the call. @thread one of check_threads, several at once; may wait,
     * but must end for shutdown to end
     */
    enum tern_transaction_outcome (*check)(void *arg, const struct tern_message *message);
};

struct tern_transaction_result {
    struct tern_send_result
        send; /* of the half message; queue is the one it will be delivered to */
    enum tern_transaction_outcome outcome; /* what execute() said; ROLLBACK when it was not run */
    bool executed;
    /*
     * TERN_OK, or FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE: the broker knows
     * the outcome. TERN_STATE: there is none to tell (UNKNOWN). Else it does not know it yet, and
     * asks; TRANSACTION_FAILED: it was decided otherwise there.
     */
    enum tern_code told;
};

/*
 * options are a producer's: group, nameservers, send timeout and so on; the group names who is
 * asked about the transactions, so every process that can answer for them uses the same. The
 * listener is copied, both functions are needed. TERN_INVALID, TERN_NO_MEMORY. *out is the
 * caller's.
 */
TERN_API enum tern_code
tern_transaction_producer_create(const struct tern_producer_options *options,
                                 const struct tern_transaction_listener *listener,
                                 struct tern_transaction_producer **out, struct tern_error *err);
/* Before start: how many threads run check(), 1…16, default 1. TERN_INVALID, TERN_STATE. */
TERN_API enum tern_code
tern_transaction_producer_check_threads(struct tern_transaction_producer *producer, int threads);
/*
 * Before start: be there for checks from the brokers of this topic, also before the first send to
 * it; what a restarted process with open transactions wants. At most 64 topics: TERN_LIMIT.
 * TERN_INVALID, TERN_STATE, TERN_NO_MEMORY.
 */
TERN_API enum tern_code tern_transaction_producer_listen(struct tern_transaction_producer *producer,
                                                         const char *topic, struct tern_error *err);
/* As tern_producer_start(). */
TERN_API enum tern_code tern_transaction_producer_start(struct tern_transaction_producer *producer,
                                                        struct tern_error *err);
/*
 * Waits for sends and checks under way, with their execute() and check(), however long those take.
 * Outcomes that were not told yet are asked for later. Not to be called in execute() or check().
 */
TERN_API void tern_transaction_producer_shutdown(struct tern_transaction_producer *producer);
/* Shuts down, as above; NULL allowed. No call of this producer may run or come any more. */
TERN_API void tern_transaction_producer_destroy(struct tern_transaction_producer *producer);

/*
 * Sends in a transaction (RocketMQ's sendMessageInTransaction): half message, execute(), outcome;
 * waits for all three, the outer ones each at most the send timeout. send_arg goes to execute().
 * TERN_OK: the half message was stored; *result tells what came of it. Else the local transaction
 * was not run: errors as of tern_producer_send(); TERN_TIMEOUT and TERN_CONNECTION_LOST: the half
 * message may be stored all the same, and check() is then asked about it. A half message is tried
 * again only when it cannot have been stored. TERN_INVALID: a delayed message.
 */
TERN_API enum tern_code tern_transaction_producer_send(struct tern_transaction_producer *producer,
                                                       struct tern_message *message, void *send_arg,
                                                       struct tern_transaction_result *result,
                                                       struct tern_error *err);

struct tern_transaction_stats {
    uint64_t committed, rolled_back, unknown; /* what execute() said, or was decided for it */
    uint64_t checks;                          /* answered by check() */
    uint64_t remembered;                      /* answered without it */
    uint64_t checks_dropped;                  /* more than 2000 waited; the broker asks again */
    uint64_t untold;                          /* outcomes that wait for a check now */
};
TERN_API void tern_transaction_producer_stats(struct tern_transaction_producer *producer,
                                              struct tern_transaction_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
