/* What the parts of the simulated network share: net, links, sessions, messages in flight. */
#ifndef TESTS_SIM_LINK_SIM_LINK_INTERNAL_H
#define TESTS_SIM_LINK_SIM_LINK_INTERNAL_H

#include "tests/sim/link/sim_link.h"

#include "base/clock.h"

enum { SIM_HOST_BYTES = 64 };

struct link_msg {
    uint8_t *bytes;
    size_t offset, size;
};

struct sim_cut {
    struct sim_cut *next;
    char a[SIM_HOST_BYTES], b[SIM_HOST_BYTES];
};

struct sim_link {
    struct link base; /* first */
    struct sim_net *net;
    struct sim_link *next;
    char host[SIM_HOST_BYTES];
    struct host address; /* port counts up with every connection made */
    bool dead;
    uint64_t arrived;
    struct link_listener *listeners;
    struct link_conn *conns;
};

/* One connection, as long as either end knows it. */
struct sim_session {
    struct sim_session *next; /* net->sessions */
    struct sim_net *net;
    struct link_conn *conn;         /* NULL when that end is gone */
    struct link_listener *listener; /* NULL when that end is gone */
    char client_host[SIM_HOST_BYTES], server_host[SIM_HOST_BYTES];
    struct link_peer peer;
    uint32_t pending;        /* requests at the server, not answered */
    uint32_t refs;           /* flights and requests */
    int64_t last_arrival[2]; /* by direction, for ordered delivery */
};

enum sim_flight_kind { FLIGHT_REQUEST, FLIGHT_REPLY, FLIGHT_RESET };

/* Something on its way. */
struct sim_flight {
    struct sim_flight *next; /* net->held */
    struct sim_session *session;
    enum sim_flight_kind kind;
    bool to_server;
    uint64_t call_id;
    struct link_msg *msg;
};

struct sim_net {
    struct sim_env *sim;
    struct sim_link *links;
    struct sim_session *sessions;
    struct sim_cut *cuts;
    struct sim_flight *held, **last_held; /* by cuts, in order */
    int64_t least_ns, most_ns;
    bool ordered;
    bool hold; /* all messages */
    uint64_t last_id;
    uint32_t names;
};

/* malloc that aborts. */
void *sim_net_alloc(size_t size);
int64_t sim_net_delay(struct sim_net *net);
bool sim_net_is_cut(const struct sim_net *net, const char *a, const char *b);
struct sim_link *sim_net_find(struct sim_net *net, const char *host);
void sim_msg_free(struct link_msg *msg);

/* Splits "host:port"; TERN_INVALID when it is not that. */
enum tern_code sim_split_address(const char *address, char host[SIM_HOST_BYTES], uint16_t *port);

void sim_session_unref(struct sim_session *session);
/* Takes msg. */
void sim_send(struct sim_session *session, enum sim_flight_kind kind, bool to_server,
              uint64_t call_id, struct link_msg *msg);

/* sim_link_server.c */
enum tern_code sim_server_listen(struct link *link, const struct link_listen_options *options,
                                 struct link_listener **out, struct tern_error *err);
uint16_t sim_server_port(const struct link_listener *listener);
void sim_server_close(struct link_listener *listener);
struct link_msg *sim_server_request_msg(struct link_request *request);
void sim_server_request_peer(const struct link_request *request, struct link_peer *out);
bool sim_server_request_over_cap(const struct link_request *request);
void sim_server_request_release(struct link_request *request);
void sim_server_reply(struct link_request *request, struct link_msg *msg);
void sim_server_peer_close(struct link_listener *listener, uint64_t peer_id);
/* A connection from the client; NULL when nobody listens or there are too many. */
struct sim_session *sim_server_accept(struct sim_link *server, uint16_t port,
                                      struct sim_link *client);
void sim_server_arrival(struct sim_session *session, uint64_t call_id, struct link_msg *msg);
/* The server's end goes; tells the owner unless its process is dead. */
void sim_server_drop(struct sim_session *session);
void sim_server_crash(struct sim_link *link);

/* sim_link_client.c */
enum tern_code sim_client_dial(struct link *link, const struct link_dial_options *options,
                               struct link_conn **out, struct tern_error *err);
void sim_client_call(struct link_conn *conn, struct link_msg *msg, int64_t deadline_ns,
                     link_done_fn done, void *arg);
void sim_client_retry_now(struct link_conn *conn);
void sim_client_drop_soon(struct link_conn *conn);
void sim_client_close(struct link_conn *conn);
void sim_client_arrival(struct sim_session *session, uint64_t call_id, struct link_msg *msg);
/* The client's end goes: calls under way are lost; tells the owner unless its process is dead. */
void sim_client_drop(struct sim_session *session);
void sim_client_crash(struct sim_link *link);

#endif
