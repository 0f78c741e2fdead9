/*
 * Events to clients: member changes, resets, checks of transactions, replies. Each client id has a
 * numbered queue; the client parks a WaitEvents call, each call acknowledges what was seen, what
 * was not acknowledged is sent again, and an overflow (EVENTS_PER_CLIENT) says "resync".
 */
#ifndef BROKER_EVENTS_H
#define BROKER_EVENTS_H

#include "base/env.h"
#include "base/error.h"
#include "rpc/server.h"

enum {
    EVENTS_PER_CLIENT = 64,
    EVENT_REPLIES_PER_CLIENT = 4096, /* besides; the next one is lost, its requester times out */
    EVENTS_PER_ANSWER = 256,
    EVENT_CHECKS_PER_CLIENT = 48, /* of these; a check is put off rather than others lost */
    EVENT_CLIENTS_MAX = 100000,
    EVENT_MESSAGE_ID_BYTES = 256
};

struct events;

MUST_CHECK enum tern_code events_create(const struct env *env, struct events **out);
/* Answers everything that is parked. */
void events_destroy(struct events *events);

/* The WaitEvents handler: answers at once when something is pending, else parks until then or the
 * time is up. */
void events_wait(struct events *events, struct rpc_request *request);
/* @thread any @locks none */
void events_post_members_changed(struct events *events, const char *client_id, const char *group);
void events_post_offset_reset(struct events *events, const char *client_id, const char *group,
                              const char *topic);

/* What became of this transaction? Texts are borrowed for the call. */
struct event_check {
    const char *group, *message_id;
    int64_t half_off, phys_off;
    int32_t times;
};
/*
 * Hands it to a client that listens: one whose call is parked, or was answered a moment ago.
 * NOT_FOUND: it does not listen; LIMIT: it has EVENT_CHECKS_PER_CLIENT to fetch; NO_MEMORY.
 * @thread any @locks none
 */
MUST_CHECK enum tern_code events_post_check_transaction(struct events *events,
                                                        const char *client_id,
                                                        const struct event_check *check);
/* A reply to a request of that client was stored at phys_off. It waits for a client that has not
 * come yet, too. */
void events_post_reply(struct events *events, const char *client_id, const char *correlation_id,
                       int64_t phys_off);
void events_peer_gone(struct events *events, uint64_t peer_id);
/* Answers parked calls whose time is up, forgets clients silent for long; returns when to come
 * again. */
int64_t events_step(struct events *events, int64_t now_ns);
/* Answers the oldest parked calls early (caps nearly reached); peer 0: of any. */
void events_relieve(struct events *events, uint64_t peer_id);
uint32_t events_parked(struct events *events);

#endif
