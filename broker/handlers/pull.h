/* How parked pulls go on; given to long_poll by broker.c. */
#ifndef BROKER_HANDLERS_PULL_H
#define BROKER_HANDLERS_PULL_H

#include "broker/long_poll.h"

/* Runs a woken pull once and answers it. @thread dispatcher, poll task, appender */
void pull_resume(void *broker, struct parked_pull *parked);
/* Whether what came meanwhile is for a pull that looks into records; moves it on when not. @thread
 * as pull_resume */
bool pull_concerns(void *broker, struct parked_pull *parked);
/* Its peer is gone. */
void pull_drop(void *broker, struct parked_pull *parked);

#endif
