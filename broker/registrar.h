/*
 * Keeps the nameservers informed: registers at start, every registerNameServerPeriod, and at once
 * when topics change or a nameserver is there again; says goodbye at a clean stop. Nameservers
 * share nothing, so each is told by itself. Each also tells who else is there of our name:
 * replication learns it after every round.
 *
 * A detached slave (ha.h) says goodbye and stays away until it has rejoined.
 */
#ifndef BROKER_REGISTRAR_H
#define BROKER_REGISTRAR_H

#include <stdint.h>

#include "base/error.h"

struct broker;
struct registrar;

enum { NAMESERVERS_MAX = 16 };

/* The addresses come from broker->config.namesrv_addr. */
MUST_CHECK enum tern_code registrar_create(struct broker *broker, struct registrar **out,
                                           struct tern_error *err);
/* Not before registrar_stop(), when it was started. Ends the calls of a round that was abandoned.
 */
void registrar_destroy(struct registrar *registrar);

/* Starts the periodic task. */
MUST_CHECK enum tern_code registrar_start(struct registrar *registrar);

/*
 * Registers with all nameservers now and waits for their answers, at most until the deadline
 * (monotonic). TERN_NAME_CONFLICT when one of them knows another live broker of our name and id; a
 * nameserver that does not answer is logged, not an error: it will be told later. @thread not-link
 * @locks none
 */
MUST_CHECK enum tern_code registrar_publish(struct registrar *registrar, int64_t deadline_ns,
                                            struct tern_error *err);

/* A round soon: something that is registered has changed. @thread any */
void registrar_poke(struct registrar *registrar);

/*
 * Abandons a round under way, stops the task, unregisters, waits a little for the answers and lets
 * go of the nameservers. Does nothing the second time. @thread not-link
 */
void registrar_stop(struct registrar *registrar);

#endif
