/*
 * Why an address cannot be reached: the link only knows that no connection with a handshake came
 * about. A plain connect tells the cases apart that an operator treats differently: a process that
 * is gone, one that is stopped or of another kind, a host that is silent, a name that is wrong.
 *
 * Threads: any that may wait, never a transport's. Failure modes: what cannot be told leaves the
 * text as it was.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/admin.h"

enum { CONNECT_MS = 1000 };

/* "host:port" or "[v6]:port" in its two parts. */
static bool split_address(const char *address, char host[ADDRESS_BYTES], char port[8])
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || strlen(colon + 1) >= 8 || strlen(address) >= ADDRESS_BYTES)
        return false;
    bool bracketed = address[0] == '[' && colon[-1] == ']';
    const char *begin = address + bracketed;
    snprintf(host, ADDRESS_BYTES, "%.*s", (int)(colon - begin) - bracketed, begin);
    snprintf(port, 8, "%s", colon + 1);
    return true;
}

/* 0: somebody took the connection; else why not. */
static int try_connect(const struct addrinfo *at)
{
    int error = 0;
    socklen_t len = sizeof error;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS)
            error = poll(&ready, 1, CONNECT_MS) == 1 ? 0 : ETIMEDOUT;
        if (error == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
            error = errno;
    }
    close(fd);
    return error;
}

static const char *cause_of(int error)
{
    switch (error) {
    case 0:
        return "somebody listens there, but does not answer: a process that is stopped or stuck, "
               "or no process of this cluster";
    case ECONNREFUSED:
        return "nobody listens there";
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "its host does not answer";
    default:
        return NULL;
    }
}

void admin_explain_unreachable(const char *address, struct tern_error *err)
{
    char host[ADDRESS_BYTES], port[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list;
    if (!err || !split_address(address, host, port))
        return;
    if (getaddrinfo(host, port, &hints, &list) != 0) {
        error_set(err, TERN_UNREACHABLE, "%s: cannot be reached: the name does not resolve",
                  address);
        return;
    }
    const char *cause = cause_of(try_connect(list));
    freeaddrinfo(list);
    if (cause)
        error_set(err, TERN_UNREACHABLE, "%s: cannot be reached: %s", address, cause);
}
