/*
 * The link's functions: each goes through the table of operations. No logic here, so that the
 * simulated network and NNG cannot differ but in what they carry messages with.
 *
 * Threads and failure modes: those of the implementation, see link.h.
 */
#include "rpc/link.h"

void link_destroy(struct link *link)
{
    if (link)
        link->ops->destroy(link);
}

enum tern_code link_msg_alloc(struct link *link, size_t size_bytes, struct link_msg **out)
{
    return link->ops->msg_alloc(link, size_bytes, out);
}

void link_msg_free(struct link *link, struct link_msg *msg)
{
    if (msg)
        link->ops->msg_free(msg);
}

uint8_t *link_msg_body(struct link *link, struct link_msg *msg)
{
    return link->ops->msg_body(msg);
}

size_t link_msg_size(struct link *link, const struct link_msg *msg)
{
    return link->ops->msg_size(msg);
}

void link_msg_trim(struct link *link, struct link_msg *msg, size_t front_bytes)
{
    link->ops->msg_trim(msg, front_bytes);
}

void link_msg_chop(struct link *link, struct link_msg *msg, size_t end_bytes)
{
    link->ops->msg_chop(msg, end_bytes);
}

enum tern_code link_listen(struct link *link, const struct link_listen_options *options,
                           struct link_listener **out, struct tern_error *err)
{
    return link->ops->listen(link, options, out, err);
}

uint16_t link_listener_port(struct link *link, const struct link_listener *listener)
{
    return link->ops->listener_port(listener);
}

void link_listener_close(struct link *link, struct link_listener *listener)
{
    link->ops->listener_close(listener);
}

struct link_msg *link_request_msg(struct link *link, struct link_request *request)
{
    return link->ops->request_msg(request);
}

void link_request_peer(struct link *link, const struct link_request *request, struct link_peer *out)
{
    link->ops->request_peer(request, out);
}

bool link_request_over_cap(struct link *link, const struct link_request *request)
{
    return link->ops->request_over_cap && link->ops->request_over_cap(request);
}

void link_request_release(struct link *link, struct link_request *request)
{
    link->ops->request_release(request);
}

void link_reply(struct link *link, struct link_request *request, struct link_msg *msg)
{
    link->ops->reply(request, msg);
}

void link_peer_close(struct link *link, struct link_listener *listener, uint64_t peer_id)
{
    link->ops->peer_close(listener, peer_id);
}

enum tern_code link_dial(struct link *link, const struct link_dial_options *options,
                         struct link_conn **out, struct tern_error *err)
{
    return link->ops->dial(link, options, out, err);
}

void link_call(struct link *link, struct link_conn *conn, struct link_msg *msg, int64_t deadline_ns,
               link_done_fn done, void *arg)
{
    link->ops->call(conn, msg, deadline_ns, done, arg);
}

void link_conn_retry_now(struct link *link, struct link_conn *conn)
{
    link->ops->conn_retry_now(conn);
}

void link_conn_drop(struct link *link, struct link_conn *conn)
{
    link->ops->conn_drop(conn);
}

void link_conn_close(struct link *link, struct link_conn *conn)
{
    link->ops->conn_close(conn);
}
