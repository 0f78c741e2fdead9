/*
 * The least that SYNC_FLUSH can cost: one pwritev of a frame's bytes and one fdatasync, again and
 * again, into a file that was reserved and zeroed before, as the store's segments are.
 *
 * usage: flush_floor FILE BYTES SECONDS → frames/s and bytes/s
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PIECES = 8, FILE_FRAMES = 512 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: flush_floor FILE BYTES SECONDS\n");
        return 2;
    }
    size_t bytes = strtoul(argv[2], NULL, 10), piece = bytes / PIECES;
    double seconds = strtod(argv[3], NULL);
    char *frame = calloc(1, bytes);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || !frame || !piece)
        die(argv[1]);
    for (int i = 0; i < FILE_FRAMES; i++)
        if (pwrite(fd, frame, bytes, (off_t)(bytes * (size_t)i)) != (ssize_t)bytes)
            die("pwrite");
    if (fdatasync(fd) != 0)
        die("fdatasync");
    unlink(argv[1]);
    memset(frame, 'x', bytes);
    struct iovec iov[PIECES];
    for (int i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){frame + piece * (size_t)i, piece};
    double start = now_s();
    long frames = 0;
    for (; now_s() - start < seconds; frames++) {
        off_t at = (off_t)(bytes * (size_t)(frames % FILE_FRAMES));
        if (pwritev(fd, iov, PIECES, at) != (ssize_t)(piece * PIECES) || fdatasync(fd) != 0)
            die("writing");
    }
    double took = now_s() - start;
    printf("flush-floor    bytes=%zu: %.1f flushes/s %.0f MB/s\n", bytes, (double)frames / took,
           (double)frames * (double)bytes / took / 1e6);
    return 0;
}
