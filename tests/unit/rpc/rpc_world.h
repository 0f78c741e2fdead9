/*
 * What the tests of lib/rpc share: the real world (threads, loopback), a link-level echo server,
 * and clients made of plain sockets that can misbehave.
 */
#ifndef TESTS_UNIT_RPC_RPC_WORLD_H
#define TESTS_UNIT_RPC_RPC_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/lock.h"
#include "base/sched.h"
#include "rpc/client.h"
#include "rpc/server.h"

#define assert_ok(expr) assert_int_equal((expr), TERN_OK)

enum { WORLD_MESSAGE_MAX = 1 << 20, WORLD_PARKED_MAX = 4096, WORLD_WAIT_MS = 20000 };

struct world {
    struct env env;
    struct link *link;
    char address[32]; /* for one listener at a time, which finds it free when it comes again */
    int held;         /* the socket that keeps it */
};

void world_init(struct world *world);
void world_fini(struct world *world);
int64_t world_now_ms(const struct world *world);
/* Waits until *value is at least `least`; fails the test when that takes too long. */
void world_wait(const struct world *world, const _Atomic uint32_t *value, uint32_t least);

/*
 * A link-level server that echoes; requests whose first byte is 'P' are parked, 'D' are dropped,
 * 'B' get an answer of ECHO_BIG_BYTES.
 */
enum { ECHO_BIG_BYTES = 4096 };
struct echo {
    struct world *world;
    struct link_listener *listener;
    char address[64];
    _Atomic uint32_t requests, over_cap, ups, downs, pressures, parked_count;
    struct lock lock;
    struct link_request *parked[WORLD_PARKED_MAX]; /* lock */
};

/* options may be NULL; without an address it listens at the world's. Callbacks are set here. */
void echo_start(struct echo *echo, struct world *world, const struct link_listen_options *options);
/* Answers all parked requests by echoing. Returns how many. */
uint32_t echo_answer_parked(struct echo *echo);
void echo_stop(struct echo *echo);

/* A link-level client connection that counts states. */
struct dialled {
    struct world *world;
    struct link_conn *conn;
    _Atomic uint32_t ups, downs; /* downs: also failed attempts */
};

void dial_start(struct dialled *dialled, struct world *world, const char *address,
                int64_t connect_wait_ms);
void dial_stop(struct dialled *dialled);

/* Results of calls, by status. */
struct results {
    struct world *world;
    _Atomic uint32_t done;
    _Atomic uint32_t by_status[TERN_CODE_COUNT];
    _Atomic uint64_t reply_bytes;
};

void results_init(struct results *results, struct world *world);
void results_done(void *arg, enum tern_code status, struct link_msg *reply);
/* One call with a body of `size` bytes, all of them `fill`. */
void call_with(struct dialled *dialled, char fill, size_t size, int64_t timeout_ms,
               struct results *results);

/* Plain sockets. */
int raw_listen(uint16_t *port); /* on any port; says which */
int raw_connect(uint16_t port);
/* Closes with RST. */
void raw_reset(int fd);
void raw_send(int fd, const void *bytes, size_t size);
/* Reads exactly size bytes within 5 s; false at the end of the stream or in error. */
bool raw_recv(int fd, void *bytes, size_t size);
/* Sends the handshake of a REQ client and reads the server's. */
void raw_handshake(int fd);
/* One REQ message: length, request id, body. */
void raw_request(int fd, uint32_t id, const void *body, size_t size);
/* Whether the peer hangs up within 5 s. */
bool raw_closed(int fd);

uint16_t port_of(const char *address);
/* Resident memory of this process. */
size_t resident_bytes(void);

#endif
