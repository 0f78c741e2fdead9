/*
 * Preloaded into a daemon: fsync() and fdatasync() of a file whose path holds FAIL_SYNC_OF fail
 * once with EIO each time the file FAIL_SYNC_TRIGGER is there, which the failure removes.
 * Afterwards they succeed, as a kernel does that has dropped the pages it could not write. Those of
 * a file whose path holds SLOW_SYNC_OF take a second.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*sync_fn)(int fd);

/* Whether the file's path holds what the variable says. */
static int is_of(int fd, const char *variable)
{
    const char *of = getenv(variable);
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = of ? readlink(link, path, sizeof path - 1) : -1;
    if (len < 0)
        return 0;
    path[len] = 0;
    return strstr(path, of) != NULL;
}

static int fails(int fd)
{
    const char *trigger = getenv("FAIL_SYNC_TRIGGER");
    return is_of(fd, "FAIL_SYNC_OF") && trigger && unlink(trigger) == 0;
}

static int sync_or_fail(const char *name, int fd)
{
    sync_fn real;
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(&real, &symbol, sizeof real);
    if (is_of(fd, "SLOW_SYNC_OF"))
        sleep(1);
    if (fails(fd)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    return sync_or_fail("fsync", fd);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    return sync_or_fail("fdatasync", fd);
}
