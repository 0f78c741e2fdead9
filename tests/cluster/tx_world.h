/*
 * Transactions on virtual time: a broker set, a transaction producer whose "database" is this
 * struct, and the log as the judge of what was delivered how often.
 *
 *   tx_begin(&tx, seed, ROLE_SYNC_MASTER);
 *   tx.execute[7] = TERN_TRANSACTION_UNKNOWN;  what the local transaction of number 7 says
 *   tx.check[7] = TERN_TRANSACTION_COMMIT;     and what a check finds
 *   tx_send(&tx, 7, &result);
 *   … tx_delivered(&tx, tx.world.master, 7) …
 *   tx_end(&tx);
 */
#ifndef TESTS_CLUSTER_TX_WORLD_H
#define TESTS_CLUSTER_TX_WORLD_H

#include <tern/transaction.h>

#include "broker/tx/tx.h"
#include "tests/cluster/set_world.h"

enum { TX_NUMBERS = 12000 };
#define TX_GROUP "tellers"

struct tx_world {
    struct world world;
    struct tern_transaction_producer *producer; /* NULL: away */
    unsigned producers;                         /* so far: each is another client */
    bool listens;                               /* for checks before its first send */
    int64_t timeout_ms;
    int64_t execute_ms;                             /* how long a local transaction takes */
    int64_t check_ms[TX_NUMBERS];                   /* and its check */
    uint8_t execute[TX_NUMBERS], check[TX_NUMBERS]; /* enum tern_transaction_outcome */
    uint8_t database[TX_NUMBERS]; /* what a check finds once it was executed; 0: as before */
    uint8_t executed[TX_NUMBERS], checked[TX_NUMBERS]; /* how often */
    uint32_t checks;
};

/* The set runs, in sync; the producer, too. */
void tx_begin(struct tx_world *tx, uint64_t seed, int32_t role);
/* The same in two steps, to change configurations between them. */
void tx_prepare(struct tx_world *tx, uint64_t seed, int32_t role);
void tx_start_all(struct tx_world *tx);
void tx_end(struct tx_world *tx);

/* A producer comes, as another client each time; goes. */
void tx_producer_up(struct tx_world *tx);
void tx_producer_down(struct tx_world *tx);

/* The code of the call; result may be NULL. */
enum tern_code tx_send(struct tx_world *tx, uint32_t number,
                       struct tern_transaction_result *result);
/* Sends one that says UNKNOWN, and must be stored. */
struct tern_transaction_result tx_send_open(struct tx_world *tx, uint32_t number);

/* How often the node's log has the number in the topic. */
uint32_t tx_delivered(struct tx_world *tx, const struct sim_node *node, uint32_t number);
/* The same for all below `count` at once. */
void tx_count_all(struct tx_world *tx, const struct sim_node *node, uint8_t *times, uint32_t count);
struct tx_status tx_status_of(const struct sim_node *node);
void tx_run_ms(struct tx_world *tx, int64_t duration_ms);
/* The master takes outcomes, within a minute. */
void tx_await_ready(struct tx_world *tx);
/* An EndTransaction by a request of its own; the code. NULL message_id: none. */
enum tern_code tx_tell(struct tx_world *tx, struct sim_node *node, const char *group,
                       int64_t half_off, int64_t phys_off, int outcome, const char *message_id);
int64_t tx_phys_of(const struct tern_transaction_result *result);
/* Entries that the node's broker lists, and the first one's phys_off and checks. */
size_t tx_listed(struct tx_world *tx, struct sim_node *node, bool discarded, int64_t *phys_off,
                 uint32_t *checks);
/* Both generations, of a node that does not run: it reads the log from where all was decided, as a
 * slave that becomes a master does. */
void tx_lose_snapshot(struct sim_node *node);
enum tern_code tx_resume_at(struct tx_world *tx, struct sim_node *node, int64_t phys_off);

#endif
