/*
 * The net: who can reach whom, and messages on their way. Listeners are in sim_link_server.c,
 * connections in sim_link_client.c.
 *
 * A message on its way is a flight: a timer of the scheduler that hands it to the other end when
 * that end still exists and no cut lies between. A flight that meets a cut is held until it is
 * healed. A session is kept while either end or a flight or an unanswered request refers to it.
 *
 * Threads: the test's. Failure modes: aborts without memory.
 */
#include "tests/sim/link/sim_link_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/record.h"

void *sim_net_alloc(size_t size)
{
    void *out = calloc(1, size ? size : 1);
    ENSURE(out);
    return out;
}

enum tern_code sim_split_address(const char *address, char host[SIM_HOST_BYTES], uint16_t *port)
{
    const char *colon = strrchr(address, ':');
    char *end = NULL;
    unsigned long number = colon ? strtoul(colon + 1, &end, 10) : 0;
    if (!colon || colon == address || colon - address >= SIM_HOST_BYTES || !colon[1] || *end ||
        number > 65535)
        return TERN_INVALID;
    snprintf(host, SIM_HOST_BYTES, "%.*s", (int)(colon - address), address);
    *port = (uint16_t)number;
    return TERN_OK;
}

/* ---- messages ---- */

static enum tern_code sim_msg_alloc(struct link *link, size_t size, struct link_msg **out)
{
    (void)link;
    struct link_msg *msg = sim_net_alloc(sizeof *msg);
    msg->bytes = malloc(size ? size : 1);
    ENSURE(msg->bytes);
    msg->size = size;
    *out = msg;
    return TERN_OK;
}

void sim_msg_free(struct link_msg *msg)
{
    if (!msg)
        return;
    free(msg->bytes);
    free(msg);
}

static uint8_t *sim_msg_body(struct link_msg *msg)
{
    return msg->bytes + msg->offset;
}

static size_t sim_msg_size(const struct link_msg *msg)
{
    return msg->size;
}

static void sim_msg_trim(struct link_msg *msg, size_t front_bytes)
{
    ENSURE(front_bytes <= msg->size);
    msg->offset += front_bytes;
    msg->size -= front_bytes;
}

static void sim_msg_chop(struct link_msg *msg, size_t end_bytes)
{
    ENSURE(end_bytes <= msg->size);
    msg->size -= end_bytes;
}

/* ---- flights ---- */

int64_t sim_net_delay(struct sim_net *net)
{
    uint64_t spread = (uint64_t)(net->most_ns - net->least_ns) + 1;
    return net->least_ns + (int64_t)rng_below(&net->sim->rng.rng, spread);
}

bool sim_net_is_cut(const struct sim_net *net, const char *a, const char *b)
{
    for (const struct sim_cut *cut = net->cuts; cut; cut = cut->next)
        if ((strcmp(cut->a, a) == 0 && strcmp(cut->b, b) == 0) ||
            (strcmp(cut->a, b) == 0 && strcmp(cut->b, a) == 0))
            return true;
    return false;
}

void sim_session_unref(struct sim_session *session)
{
    ENSURE(session->refs > 0);
    if (--session->refs > 0 || session->conn || session->listener)
        return;
    struct sim_session **at = &session->net->sessions;
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    free(session);
}

static void end_flight(struct sim_flight *flight)
{
    sim_msg_free(flight->msg);
    sim_session_unref(flight->session);
    free(flight);
}

static void arrive(void *arg)
{
    struct sim_flight *flight = arg;
    struct sim_session *session = flight->session;
    struct sim_net *net = session->net;
    bool held = net->hold && flight->kind != FLIGHT_RESET;
    if (held || sim_net_is_cut(net, session->client_host, session->server_host)) {
        flight->next = NULL;
        *net->last_held = flight;
        net->last_held = &flight->next;
        return;
    }
    struct link_msg *msg = flight->msg;
    flight->msg = NULL;
    bool there = flight->to_server ? session->listener != NULL : session->conn != NULL;
    if (!there) {
        sim_msg_free(msg);
    } else if (flight->kind == FLIGHT_RESET) {
        if (flight->to_server)
            sim_server_drop(session);
        else
            sim_client_drop(session);
    } else if (flight->to_server) {
        sim_server_arrival(session, flight->call_id, msg);
    } else {
        sim_client_arrival(session, flight->call_id, msg);
    }
    end_flight(flight);
}

static void launch(struct sim_flight *flight)
{
    struct sim_session *session = flight->session;
    struct sim_net *net = session->net;
    int64_t now_ns = clock_mono_ns(&net->sim->clock.clock);
    int64_t at_ns = now_ns + sim_net_delay(net);
    int64_t *last_ns = &session->last_arrival[flight->to_server];
    /* a reset comes after all that was sent before it */
    if ((net->ordered || flight->kind == FLIGHT_RESET) && at_ns <= *last_ns)
        at_ns = *last_ns + 1;
    if (at_ns > *last_ns)
        *last_ns = at_ns;
    sim_after(net->sim->sched, at_ns - now_ns, arrive, flight);
}

void sim_send(struct sim_session *session, enum sim_flight_kind kind, bool to_server,
              uint64_t call_id, struct link_msg *msg)
{
    struct sim_flight *flight = sim_net_alloc(sizeof *flight);
    flight->session = session;
    flight->kind = kind;
    flight->to_server = to_server;
    flight->call_id = call_id;
    flight->msg = msg;
    session->refs++;
    launch(flight);
}

/* ---- links ---- */

struct sim_link *sim_net_find(struct sim_net *net, const char *host)
{
    struct sim_link *link = net->links;
    while (link && (link->dead || strcmp(link->host, host) != 0))
        link = link->next;
    return link;
}

static void sim_link_destroy(struct link *base)
{
    struct sim_link *link = (struct sim_link *)base;
    ENSURE(!link->listeners && !link->conns);
    struct sim_link **at = &link->net->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    free(link);
}

static const struct link_ops sim_link_ops = {
    .msg_alloc = sim_msg_alloc,
    .msg_free = sim_msg_free,
    .msg_body = sim_msg_body,
    .msg_size = sim_msg_size,
    .msg_trim = sim_msg_trim,
    .msg_chop = sim_msg_chop,
    .listen = sim_server_listen,
    .listener_port = sim_server_port,
    .listener_close = sim_server_close,
    .request_msg = sim_server_request_msg,
    .request_peer = sim_server_request_peer,
    .request_over_cap = sim_server_request_over_cap,
    .request_release = sim_server_request_release,
    .reply = sim_server_reply,
    .peer_close = sim_server_peer_close,
    .dial = sim_client_dial,
    .call = sim_client_call,
    .conn_retry_now = sim_client_retry_now,
    .conn_drop = sim_client_drop_soon,
    .conn_close = sim_client_close,
    .destroy = sim_link_destroy,
};

struct link *sim_net_link(struct sim_net *net, const char *host)
{
    ENSURE(!sim_net_find(net, host) && strlen(host) < SIM_HOST_BYTES && !strchr(host, ':'));
    struct sim_link *link = sim_net_alloc(sizeof *link);
    char text[SIM_HOST_BYTES + 8];
    link->base.ops = &sim_link_ops;
    link->net = net;
    snprintf(link->host, sizeof link->host, "%s", host);
    snprintf(text, sizeof text, "%s:40000", host);
    if (host_parse(text, &link->address) != TERN_OK) {
        uint32_t number = ++net->names;
        link->address =
            (struct host){.ip = {10, 99, (uint8_t)(number >> 8), (uint8_t)number}, .port = 40000};
    }
    link->next = net->links;
    net->links = link;
    return &link->base;
}

/* ---- the net ---- */

struct sim_net *sim_net_create(struct sim_env *sim)
{
    struct sim_net *net = sim_net_alloc(sizeof *net);
    net->sim = sim;
    net->least_ns = 50000;
    net->most_ns = 200000;
    net->last_held = &net->held;
    return net;
}

static bool nothing_on_its_way(void *arg)
{
    const struct sim_net *net = arg;
    return net->sessions == NULL;
}

void sim_net_destroy(struct sim_net *net)
{
    ENSURE(!net->links);
    sim_net_heal_all(net);
    int64_t now_ns = clock_mono_ns(&net->sim->clock.clock);
    ENSURE(sim_run_until_true(net->sim->sched, nothing_on_its_way, net,
                              now_ns + 2 * net->most_ns + ms_to_ns(1000)));
    free(net);
}

void sim_net_set_delay(struct sim_net *net, int64_t least_ns, int64_t most_ns)
{
    ENSURE(least_ns >= 0 && most_ns >= least_ns);
    net->least_ns = least_ns;
    net->most_ns = most_ns;
}

void sim_net_set_ordered(struct sim_net *net, bool ordered)
{
    net->ordered = ordered;
}

void sim_net_cut(struct sim_net *net, const char *a, const char *b)
{
    if (sim_net_is_cut(net, a, b))
        return;
    struct sim_cut *cut = sim_net_alloc(sizeof *cut);
    snprintf(cut->a, sizeof cut->a, "%s", a);
    snprintf(cut->b, sizeof cut->b, "%s", b);
    cut->next = net->cuts;
    net->cuts = cut;
}

/* Lets go what no cut holds any more. */
static void release_held(struct sim_net *net)
{
    struct sim_flight *flight = net->held;
    net->held = NULL;
    net->last_held = &net->held;
    while (flight) {
        struct sim_flight *next = flight->next;
        launch(flight); /* held again when it meets another cut */
        flight = next;
    }
}

void sim_net_hold_messages(struct sim_net *net, bool hold)
{
    net->hold = hold;
    if (!hold)
        release_held(net);
}

void sim_net_heal(struct sim_net *net, const char *a, const char *b)
{
    struct sim_cut **at = &net->cuts;
    while (*at) {
        struct sim_cut *cut = *at;
        bool this_one = (strcmp(cut->a, a) == 0 && strcmp(cut->b, b) == 0) ||
                        (strcmp(cut->a, b) == 0 && strcmp(cut->b, a) == 0);
        if (this_one) {
            *at = cut->next;
            free(cut);
        } else {
            at = &cut->next;
        }
    }
    release_held(net);
}

void sim_net_heal_all(struct sim_net *net)
{
    while (net->cuts) {
        struct sim_cut *cut = net->cuts;
        net->cuts = cut->next;
        free(cut);
    }
    release_held(net);
}

/* A session between the two that has both ends, or NULL. */
static struct sim_session *find_session(struct sim_net *net, const char *a, const char *b)
{
    struct sim_session *session = net->sessions;
    for (; session; session = session->next) {
        bool same = strcmp(session->client_host, a) == 0 && strcmp(session->server_host, b) == 0;
        bool back = strcmp(session->client_host, b) == 0 && strcmp(session->server_host, a) == 0;
        if ((same || back) && session->conn && session->listener)
            return session;
    }
    return NULL;
}

void sim_net_reset(struct sim_net *net, const char *a, const char *b)
{
    struct sim_session *session;
    while ((session = find_session(net, a, b)) != NULL) {
        session->refs++;
        sim_server_drop(session);
        if (session->conn)
            sim_client_drop(session);
        sim_session_unref(session);
    }
}

void sim_net_crash(struct sim_net *net, const char *host)
{
    struct sim_link *link = sim_net_find(net, host);
    if (!link)
        return;
    link->dead = true;
    sim_server_crash(link);
    sim_client_crash(link);
}

uint64_t sim_net_arrived(const struct sim_net *net, const char *host)
{
    uint64_t arrived = 0;
    for (const struct sim_link *link = net->links; link; link = link->next)
        if (strcmp(link->host, host) == 0)
            arrived += link->arrived;
    return arrived;
}
