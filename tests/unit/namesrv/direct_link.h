/*
 * A link without a network, for tests of one server: a request is handed to the server's callback
 * at once, as any peer the test likes; its answer is kept for the test to look at.
 */
#ifndef TESTS_NAMESRV_DIRECT_LINK_H
#define TESTS_NAMESRV_DIRECT_LINK_H

#include "rpc/frame.h"

struct direct_link;

struct direct_call {
    const TernResponse *response; /* NULL until answered */
    /* the link's */
    struct direct_link *owner;
    uint64_t peer_id;
    struct link_msg *request;
    struct link_msg *reply;
    struct arena arena;
};

struct direct_link *direct_link_create(void);
struct link *direct_link_base(struct direct_link *direct);

/* Sends; the answer may have come when this returns. To be freed when it has. */
struct direct_call *direct_send(struct direct_link *direct, uint64_t peer_id, TernRequest *header);
/* Like direct_send(), for bytes that need not be a frame. */
struct direct_call *direct_send_bytes(struct direct_link *direct, uint64_t peer_id,
                                      const void *bytes, size_t size);
void direct_call_free(struct direct_call *call);

/* The peer's connection goes. */
void direct_peer_gone(struct direct_link *direct, uint64_t peer_id);
/* The last peer whose connection the server closed, 0: none. */
uint64_t direct_closed_peer(const struct direct_link *direct);

#endif
