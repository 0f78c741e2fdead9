/* Whether the members of a group subscribe alike; for the commands that show members. */
#ifndef MQADMIN_SUBSCRIPTION_CHECK_H
#define MQADMIN_SUBSCRIPTION_CHECK_H

#include "rpc/frame.h"

bool subscriptions_differ(const Tern__Wire__ConsumerConnectionResponse *connection);

#endif
