/*
 * The link over NNG's TCP: messages are nng_msg, a listener is a REP socket, a connection a REQ
 * socket.
 *
 * The task owns everything that has an order in time: it hears of peers that came and went, runs
 * the connections' attempts and back-off, and gives the completions that could not be given where
 * they arose. NNG's callbacks only leave a note and wake it. Messages do not pass through it.
 *
 *   link->members --> listener (peer events) --> connection (attempts) --> ...
 *
 * Invariant: a member leaves the list only on the task, so a member that is being stepped stays
 * valid.
 *
 * Failure modes: without memory or threads creation fails; afterwards nothing here can.
 */
#include "rpc/link_nng_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/resource.h>

/* ---- errors and addresses ---- */

enum tern_code link_code_of(int nng_rv)
{
    switch (nng_rv) {
    case 0:
        return TERN_OK;
    case NNG_ENOMEM:
        return TERN_NO_MEMORY;
    case NNG_EINVAL:
    case NNG_EADDRINVAL:
        return TERN_INVALID;
    case NNG_EADDRINUSE:
        return TERN_IN_USE;
    case NNG_EPERM:
        return TERN_NO_PERMISSION;
    case NNG_ENOFILES:
        return TERN_LIMIT;
    case NNG_ETIMEDOUT:
        return TERN_TIMEOUT;
    case NNG_ECANCELED:
        return TERN_CANCELED;
    case NNG_ECLOSED:
    case NNG_ECONNRESET:
    case NNG_ECONNABORTED:
    case NNG_ECONNSHUT:
        return TERN_CONNECTION_LOST;
    case NNG_ECONNREFUSED:
    case NNG_EUNREACHABLE:
        return TERN_UNREACHABLE;
    case NNG_EMSGSIZE:
        return TERN_TOO_LARGE;
    case NNG_EPROTO:
        return TERN_PROTOCOL;
    default:
        return TERN_IO;
    }
}

enum tern_code link_error(struct tern_error *err, int nng_rv, const char *what, const char *address)
{
    return error_set(err, link_code_of(nng_rv), "%s %s: %s", what, address, nng_strerror(nng_rv));
}

enum tern_code link_check_address(const char *address, bool *literal, struct tern_error *err)
{
    char host[256];
    uint8_t ip[16];
    const char *colon = strrchr(address, ':');
    bool bracketed = address[0] == '[';
    const char *start = address + (bracketed ? 1 : 0);
    const char *end = colon;
    char *port_end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &port_end, 10) : 65536;
    if (!colon || colon[1] < '0' || colon[1] > '9' || *port_end || port > 65535)
        return error_set(err, TERN_INVALID, "address \"%s\": no port after the last colon",
                         address);
    if (bracketed && (end == start || *--end != ']'))
        return error_set(err, TERN_INVALID, "address \"%s\": \"[\" without \"]:\"", address);
    size_t len = (size_t)(end - start);
    if (len == 0 || len >= sizeof host)
        return error_set(err, TERN_INVALID,
                         "address \"%s\": host has %zu characters, allowed 1 to 255", address, len);
    memcpy(host, start, len);
    host[len] = 0;
    if (strpbrk(host, bracketed ? "/;@?# []" : "/;@?# []:"))
        return error_set(err, TERN_INVALID, "address \"%s\": host \"%s\" is malformed", address,
                         host);
    *literal = inet_pton(bracketed ? AF_INET6 : AF_INET, host, ip) == 1;
    if (bracketed && !*literal)
        return error_set(err, TERN_INVALID, "address \"%s\": not an IPv6 address", address);
    return TERN_OK;
}

/* A v4 address mapped into v6 counts as v4. */
static void set_v6(const uint8_t *ip, struct host *out)
{
    static const uint8_t mapped_v4[12] = {[10] = 0xff, [11] = 0xff};
    out->v6 = memcmp(ip, mapped_v4, sizeof mapped_v4) != 0;
    memcpy(out->ip, ip + (out->v6 ? 0 : 12), out->v6 ? 16 : 4);
}

void link_pipe_address(nng_pipe pipe, const char *option, struct host *out)
{
    nng_sockaddr address;
    memset(out, 0, sizeof *out);
    if (nng_pipe_get_addr(pipe, option, &address) != 0)
        return;
    if (address.s_family == NNG_AF_INET) {
        memcpy(out->ip, &address.s_in.sa_addr, 4);
        out->port = ntohs(address.s_in.sa_port);
    } else if (address.s_family == NNG_AF_INET6) {
        set_v6(address.s_in6.sa_addr, out);
        out->port = ntohs(address.s_in6.sa_port);
    }
}

void link_socket_address(const struct sockaddr *address, struct host *out)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memset(out, 0, sizeof *out);
    if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        memcpy(out->ip, &v4.sin_addr, 4);
        out->port = ntohs(v4.sin_port);
    } else if (address->sa_family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        set_v6(v6.sin6_addr.s6_addr, out);
        out->port = ntohs(v6.sin6_port);
    }
}

bool link_same_host(const struct host *a, const struct host *b)
{
    return a->v6 == b->v6 && a->port == b->port && memcmp(a->ip, b->ip, a->v6 ? 16 : 4) == 0;
}

nng_duration link_timeout_ms(int64_t deadline_ns, int64_t now_ns)
{
    enum { DAY_MS = 24 * 3600 * 1000 };
    if (deadline_ns <= now_ns)
        return 1;
    int64_t ms = (deadline_ns - now_ns) / 1000000;
    return ms >= DAY_MS ? DAY_MS : (nng_duration)ms + 1;
}

/* ---- messages ---- */

static enum tern_code nng_link_msg_alloc(struct link *link, size_t size, struct link_msg **out)
{
    (void)link;
    nng_msg *msg;
    if (nng_msg_alloc(&msg, size) != 0)
        return TERN_NO_MEMORY;
    *out = msg_from_nng(msg);
    return TERN_OK;
}

static void nng_link_msg_free(struct link_msg *msg)
{
    nng_msg_free(msg_to_nng(msg));
}

static uint8_t *nng_link_msg_body(struct link_msg *msg)
{
    return nng_msg_body(msg_to_nng(msg));
}

static size_t nng_link_msg_size(const struct link_msg *msg)
{
    return nng_msg_len((const nng_msg *)msg);
}

static void nng_link_msg_trim(struct link_msg *msg, size_t front_bytes)
{
    ENSURE(nng_msg_trim(msg_to_nng(msg), front_bytes) == 0);
}

static void nng_link_msg_chop(struct link_msg *msg, size_t end_bytes)
{
    ENSURE(nng_msg_chop(msg_to_nng(msg), end_bytes) == 0);
}

/* ---- members and deferred completions ---- */

void link_member_add(struct nng_link *link, struct link_member *member)
{
    lock_acquire(&link->lock);
    member->next = link->members;
    link->members = member;
    lock_release(&link->lock);
    task_wake(link->task);
}

void link_member_remove(struct nng_link *link, struct link_member *member)
{
    struct latch detached;
    latch_init(&detached);
    lock_acquire(&link->lock);
    member->detached = &detached;
    lock_release(&link->lock);
    task_wake(link->task);
    ENSURE(latch_wait(link->env.sched, &detached, SCHED_NEVER));
}

void link_defer(struct nng_link *link, struct link_conn *conn, link_done_fn done, void *arg,
                enum tern_code status)
{
    struct deferred *item = malloc(sizeof *item);
    ENSURE(item); /* a completion must not be lost, and there is nowhere else to note it */
    *item = (struct deferred){.conn = conn, .done = done, .arg = arg, .status = status};
    lock_acquire(&link->lock);
    *link->last_deferred = item;
    link->last_deferred = &item->next;
    lock_release(&link->lock);
    task_wake(link->task);
}

static void give_deferred(struct nng_link *link)
{
    lock_acquire(&link->lock);
    struct deferred *item = link->deferred;
    link->deferred = NULL;
    link->last_deferred = &link->deferred;
    lock_release(&link->lock);
    while (item) {
        struct deferred *next = item->next;
        item->done(item->arg, item->status, NULL);
        client_call_left(item->conn);
        free(item);
        item = next;
    }
}

/* Takes members that are to leave off the list. */
static void detach_members(struct nng_link *link)
{
    for (;;) {
        lock_acquire(&link->lock);
        struct link_member **at = &link->members;
        while (*at && !(*at)->detached)
            at = &(*at)->next;
        struct link_member *member = *at;
        if (member)
            *at = member->next;
        lock_release(&link->lock);
        if (!member)
            return;
        latch_set(link->env.sched, member->detached);
    }
}

static int64_t link_step(void *arg, int64_t now_ns)
{
    struct nng_link *link = arg;
    int64_t next_ns = SCHED_NEVER;
    give_deferred(link);
    detach_members(link);
    lock_acquire(&link->lock);
    struct link_member *member = link->members;
    lock_release(&link->lock);
    while (member) {
        int64_t wanted_ns = member->step(member, now_ns);
        if (wanted_ns < next_ns)
            next_ns = wanted_ns;
        lock_acquire(&link->lock);
        member = member->next;
        lock_release(&link->lock);
    }
    return next_ns;
}

/* ---- dialers and listeners ---- */

static void hold_handshakes(struct nng_link *link)
{
    if (nng_shim_hold_handshakes && !nng_shim_hold_handshakes(LINK_HANDSHAKE_WAIT_MS))
        log_warn(link->env.log, "rpc.handshake_stuck", "waited_ms=%d", LINK_HANDSHAKE_WAIT_MS);
}

static void release_handshakes(void)
{
    if (nng_shim_release_handshakes)
        nng_shim_release_handshakes();
}

void link_end_dialer(struct nng_link *link, nng_dialer dialer)
{
    hold_handshakes(link);
    nng_dialer_close(dialer);
    release_handshakes();
}

void link_end_listener(struct nng_link *link, nng_listener listener)
{
    hold_handshakes(link);
    nng_listener_close(listener);
    release_handshakes();
}

/* ---- life ---- */

static void check_shim(const struct nng_link *link)
{
    if (nng_version()[0] == '1' && !link_can_hang_up())
        log_warn(link->env.log, "rpc.nng_unguarded",
                 "nng=%s effect=\"hang-ups may end a listener, or the noticing of hang-ups\"",
                 nng_version());
}

/* Every peer is a descriptor; the soft limit is often 1024. */
static void raise_file_limit(const struct nng_link *link)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        log_warn(link->env.log, "rpc.file_limit", "wanted=%llu",
                 (unsigned long long)limit.rlim_max);
}

static void nng_link_destroy(struct link *base)
{
    struct nng_link *link = (struct nng_link *)base;
    task_stop(link->task);
    ENSURE(!link->members && !link->deferred);
    lock_fini(&link->lock);
    free(link);
}

static const struct link_ops nng_link_ops = {
    .msg_alloc = nng_link_msg_alloc,
    .msg_free = nng_link_msg_free,
    .msg_body = nng_link_msg_body,
    .msg_size = nng_link_msg_size,
    .msg_trim = nng_link_msg_trim,
    .msg_chop = nng_link_msg_chop,
    .listen = server_listen,
    .listener_port = server_port,
    .listener_close = server_close,
    .request_msg = server_request_msg,
    .request_peer = server_request_peer,
    .request_over_cap = server_request_over_cap,
    .request_release = server_request_release,
    .reply = server_reply,
    .peer_close = server_peer_close,
    .dial = client_dial,
    .call = client_call,
    .conn_retry_now = client_retry_now,
    .conn_drop = client_drop,
    .conn_close = client_close,
    .destroy = nng_link_destroy,
};

enum tern_code link_nng_create(const struct env *env, struct link **out, struct tern_error *err)
{
    *out = NULL;
    struct nng_link *link = calloc(1, sizeof *link);
    if (!link)
        return error_set(err, TERN_NO_MEMORY, "link of %zu bytes", sizeof *link);
    link->base.ops = &nng_link_ops;
    link->env = *env;
    link->last_deferred = &link->deferred;
    lock_init(&link->lock, LOCK_LINK);
    raise_file_limit(link);
    check_shim(link);
    enum tern_code code = task_start(env->sched, "rpc-link", link_step, link, &link->task);
    if (code != TERN_OK) {
        lock_fini(&link->lock);
        free(link);
        return error_set(err, code, "thread \"rpc-link\"");
    }
    *out = &link->base;
    return TERN_OK;
}
