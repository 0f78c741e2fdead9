/*
 * Ports of loopback that a listener finds again after it was away. A port that the system handed
 * out goes to somebody else as soon as nobody is bound to it, and tests run side by side.
 */
#ifndef TESTS_UNIT_BASE_HELD_PORT_H
#define TESTS_UNIT_BASE_HELD_PORT_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include "tests/unit/base/unit.h"

/*
 * Puts a free port into *port and returns the socket that holds it until it is closed: bound and
 * not listening, so that who asks for this very port may listen there (with SO_REUSEADDR, as every
 * server has it), while the system gives it neither to who asks for any nor to what connects.
 */
static inline int port_hold(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

#endif
