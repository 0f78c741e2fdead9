/*
 * A simulated network: every simulated process gets a link of its own, with an address, and all of
 * them share one net on virtual time. What NNG's link promises holds here too; what the real
 * network does to it can be done here on purpose.
 *
 *   struct sim_net *net = sim_net_create(&sim);
 *   struct link *master = sim_net_link(net, "10.0.0.1");
 *   struct link *client = sim_net_link(net, "10.0.0.9");
 *   … servers listen at "10.0.0.1:10911", clients dial it …
 *   sim_net_cut(net, "10.0.0.1", "10.0.0.9");
 *   sim_run_for(sim.sched, ms_to_ns(5000));
 *   sim_net_heal(net, "10.0.0.1", "10.0.0.9");
 *
 * Addresses: a host is an IPv4 address or any name without colon (which gets an address of
 * 10.99.0.0/16). Listening at "0.0.0.0:port" is listening at the link's host. Port 0 takes a free
 * one. Everybody can reach everybody until cut.
 *
 * Every message takes the net's delay: a random time between two bounds. Requests of one connection
 * overtake each other, as they do when several threads serve them, unless order is asked for. A cut
 * is silent, as a pulled cable is: messages wait for the healing, attempts time out, connections
 * stay until somebody resets them. A crash is loud: the others' connections are lost after a delay.
 *
 * Not simulated: the size of socket buffers (reply_timeout_ms), idle_close_ms.
 */
#ifndef TESTS_SIM_LINK_SIM_LINK_H
#define TESTS_SIM_LINK_SIM_LINK_H

#include "rpc/link.h"
#include "tests/sim/sim_env.h"

struct sim_net;

/* sim is borrowed. Delays are 50 to 200 µs at first. */
struct sim_net *sim_net_create(struct sim_env *sim);
/* All links must have been destroyed. */
void sim_net_destroy(struct sim_net *net);

/* A new process at `host`; one at a time, the one before must have crashed or been destroyed. */
struct link *sim_net_link(struct sim_net *net, const char *host);

/* Each message takes between the two, from now on. */
void sim_net_set_delay(struct sim_net *net, int64_t least_ns, int64_t most_ns);
/* Messages of one direction of a connection arrive in the order they were sent. */
void sim_net_set_ordered(struct sim_net *net, bool ordered);

/*
 * Connections are made, but what is sent on them waits, as at a process that is stopped while its
 * kernel still accepts. What waited is on its way again afterwards.
 */
void sim_net_hold_messages(struct sim_net *net, bool hold);

/* Nothing passes between the two hosts, silently. */
void sim_net_cut(struct sim_net *net, const char *a, const char *b);
/* What waited is on its way again. */
void sim_net_heal(struct sim_net *net, const char *a, const char *b);
void sim_net_heal_all(struct sim_net *net);
/* Breaks the connections between the two, both ends at once; they may be made again. */
void sim_net_reset(struct sim_net *net, const char *a, const char *b);
/*
 * The process at `host` is dead: its connections and listeners are gone, it hears of nothing, and
 * what it sends goes nowhere. Its calls end at their deadlines, so that a wait further up the stack
 * returns. Its objects are still to be closed and its link destroyed.
 */
void sim_net_crash(struct sim_net *net, const char *host);

/* Messages that arrived at `host` so far, requests and replies. */
uint64_t sim_net_arrived(const struct sim_net *net, const char *host);

#endif
