/*
 * Listeners of the simulated network. Requests arrive by timers and are handed over at once;
 * answers may come at any time, also after the peer or the listener has gone.
 *
 * Threads: the test's. Failure modes: aborts without memory.
 */
#include "tests/sim/link/sim_link_internal.h"

#include <stdlib.h>
#include <string.h>

enum { PEERS_MAX = 10000, REQUESTS_MAX = 65536, REQUESTS_PER_PEER_MAX = 4096 };

struct link_listener {
    struct sim_link *link; /* NULL when closed */
    struct sim_net *net;
    struct link_listener *next;
    struct link_listen_options options;
    uint16_t port;
    uint32_t peers;
    uint32_t pending; /* requests not answered; a closed listener lives until they are */
};

struct link_request {
    struct link_listener *listener;
    struct sim_session *session;
    uint64_t call_id;
    struct link_msg *msg;
    bool over_cap;
};

static struct link_listener *find_listener(struct sim_link *link, uint16_t port)
{
    struct link_listener *listener = link->listeners;
    while (listener && listener->port != port)
        listener = listener->next;
    return listener;
}

enum tern_code sim_server_listen(struct link *base, const struct link_listen_options *options,
                                 struct link_listener **out, struct tern_error *err)
{
    struct sim_link *link = (struct sim_link *)base;
    char host[SIM_HOST_BYTES];
    uint16_t port;
    *out = NULL;
    if (sim_split_address(options->address, host, &port) != TERN_OK ||
        (strcmp(host, link->host) != 0 && strcmp(host, "0.0.0.0") != 0))
        return error_set(err, TERN_INVALID, "listening at %s: not an address of %s",
                         options->address, link->host);
    if (port == 0)
        for (port = 30000; find_listener(link, port);)
            port++;
    if (find_listener(link, port))
        return error_set(err, TERN_IN_USE, "listening at %s", options->address);
    struct link_listener *listener = sim_net_alloc(sizeof *listener);
    listener->link = link;
    listener->net = link->net;
    listener->options = *options;
    listener->options.address = NULL;
    listener->port = port;
    if (listener->options.max_peers == 0)
        listener->options.max_peers = PEERS_MAX;
    if (listener->options.max_requests == 0)
        listener->options.max_requests = REQUESTS_MAX;
    if (listener->options.max_requests_per_peer == 0)
        listener->options.max_requests_per_peer = REQUESTS_PER_PEER_MAX;
    listener->next = link->listeners;
    link->listeners = listener;
    *out = listener;
    return TERN_OK;
}

uint16_t sim_server_port(const struct link_listener *listener)
{
    return listener->port;
}

/* ---- peers ---- */

struct sim_session *sim_server_accept(struct sim_link *server, uint16_t port,
                                      struct sim_link *client)
{
    struct sim_net *net = server->net;
    struct link_listener *listener = find_listener(server, port);
    if (!listener || listener->peers >= listener->options.max_peers)
        return NULL;
    struct sim_session *session = sim_net_alloc(sizeof *session);
    session->net = net;
    session->listener = listener;
    memcpy(session->client_host, client->host, sizeof session->client_host);
    memcpy(session->server_host, server->host, sizeof session->server_host);
    client->address.port = client->address.port >= 65535 ? 40000 : client->address.port + 1;
    session->peer = (struct link_peer){.id = ++net->last_id, .remote = client->address};
    session->next = net->sessions;
    net->sessions = session;
    listener->peers++;
    session->refs++;
    if (listener->options.on_peer)
        listener->options.on_peer(listener->options.arg, &session->peer, true);
    session->refs--; /* the caller makes it the connection's */
    return session;
}

/* Takes the listener's end off the session. */
static void leave_session(struct sim_session *session)
{
    session->listener->peers--;
    session->listener = NULL;
}

void sim_server_drop(struct sim_session *session)
{
    struct link_listener *listener = session->listener;
    session->refs++;
    leave_session(session);
    if (!listener->link->dead && listener->options.on_peer)
        listener->options.on_peer(listener->options.arg, &session->peer, false);
    sim_session_unref(session);
}

static struct sim_session *session_of(struct link_listener *listener)
{
    struct sim_session *session = listener->net->sessions;
    while (session && session->listener != listener)
        session = session->next;
    return session;
}

void sim_server_peer_close(struct link_listener *listener, uint64_t peer_id)
{
    struct sim_session *session = listener->net->sessions;
    while (session && (session->listener != listener || session->peer.id != peer_id))
        session = session->next;
    if (!session)
        return;
    sim_send(session, FLIGHT_RESET, false, 0, NULL);
    sim_server_drop(session);
}

/* Leaves all its sessions without a word to the owner. */
static void hang_up(struct link_listener *listener)
{
    struct sim_session *session;
    while ((session = session_of(listener)) != NULL) {
        sim_send(session, FLIGHT_RESET, false, 0, NULL);
        leave_session(session);
    }
}

void sim_server_crash(struct sim_link *link)
{
    for (struct link_listener *listener = link->listeners; listener; listener = listener->next)
        hang_up(listener);
}

void sim_server_close(struct link_listener *listener)
{
    struct sim_link *link = listener->link;
    hang_up(listener);
    struct link_listener **at = &link->listeners;
    while (*at != listener)
        at = &(*at)->next;
    *at = listener->next;
    listener->link = NULL;
    if (listener->pending == 0)
        free(listener);
}

/* ---- requests ---- */

static bool near_cap(uint32_t pending, uint32_t cap)
{
    return pending > cap - cap / 8;
}

void sim_server_arrival(struct sim_session *session, uint64_t call_id, struct link_msg *msg)
{
    struct link_listener *listener = session->listener;
    const struct link_listen_options *options = &listener->options;
    if (msg->size > options->max_message_bytes) {
        sim_msg_free(msg);
        sim_send(session, FLIGHT_RESET, false, 0, NULL);
        sim_server_drop(session);
        return;
    }
    struct link_request *request = sim_net_alloc(sizeof *request);
    request->listener = listener;
    request->session = session;
    request->call_id = call_id;
    request->msg = msg;
    session->refs++;
    uint32_t of_peer = ++session->pending;
    uint32_t all = ++listener->pending;
    listener->link->arrived++;
    request->over_cap = of_peer > options->max_requests_per_peer || all > options->max_requests;
    if (options->on_pressure && near_cap(of_peer, options->max_requests_per_peer))
        options->on_pressure(options->arg, &session->peer);
    if (options->on_pressure && near_cap(all, options->max_requests))
        options->on_pressure(options->arg, NULL);
    options->on_request(options->arg, request);
}

struct link_msg *sim_server_request_msg(struct link_request *request)
{
    return request->msg;
}

void sim_server_request_peer(const struct link_request *request, struct link_peer *out)
{
    *out = request->session->peer;
}

bool sim_server_request_over_cap(const struct link_request *request)
{
    return request->over_cap;
}

void sim_server_request_release(struct link_request *request)
{
    sim_msg_free(request->msg);
    request->msg = NULL;
}

void sim_server_reply(struct link_request *request, struct link_msg *msg)
{
    struct link_listener *listener = request->listener;
    struct sim_session *session = request->session;
    session->pending--;
    listener->pending--;
    if (msg && session->listener == listener && !listener->link->dead)
        sim_send(session, FLIGHT_REPLY, false, request->call_id, msg);
    else
        sim_msg_free(msg);
    sim_server_request_release(request);
    sim_session_unref(session);
    free(request);
    if (!listener->link && listener->pending == 0)
        free(listener);
}
