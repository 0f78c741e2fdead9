/*
 * Files of the machine: the table of operations of fs.h over POSIX and Linux calls.
 *
 * Invariants: interrupted calls are repeated, short reads and writes are continued, so that an
 * operation does everything or reports an error. Descriptors are close-on-exec.
 *
 * Threads: any number may use one file; the kernel orders positioned reads and writes. The only
 * state besides the descriptor is a flag that non-waiting reads do not work on this file system.
 *
 * Failure modes: every errno becomes a tern_code by error_from_errno() and stays in errno. A failed
 * sync is not repeated, since the kernel has dropped what it could not write. A failed reservation
 * gives back what it had grown the file by.
 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct posix_file {
    struct file base;
    int fd;
    atomic_bool nowait_unsupported; /* learnt from the first refusal, e.g. on tmpfs */
};

static const struct fs_ops posix_ops;

static struct posix_file *posix_file(struct file *file)
{
    return (struct posix_file *)file;
}

/* Code of the errno that a failed call left; keeps errno. */
static enum tern_code failed(void)
{
    return error_from_errno(errno);
}

static enum tern_code posix_open(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    (void)fs;
    int mode = O_CLOEXEC;
    if ((flags & FS_READ) && (flags & FS_WRITE))
        mode |= O_RDWR;
    else
        mode |= flags & FS_WRITE ? O_WRONLY : O_RDONLY;
    mode |= flags & FS_CREATE ? O_CREAT : 0;
    mode |= flags & FS_EXCLUSIVE ? O_EXCL : 0;
    mode |= flags & FS_TRUNCATE ? O_TRUNC : 0;
    struct posix_file *file = malloc(sizeof *file);
    if (!file)
        return TERN_NO_MEMORY;
    do
        file->fd = open(path, mode, 0644);
    while (file->fd < 0 && errno == EINTR);
    if (file->fd < 0) {
        int saved = errno;
        free(file);
        errno = saved;
        return failed();
    }
    file->base.ops = &posix_ops;
    atomic_init(&file->nowait_unsupported, false);
    *out = &file->base;
    return TERN_OK;
}

static enum tern_code posix_rename(struct fs *fs, const char *from, const char *to)
{
    (void)fs;
    return rename(from, to) ? failed() : TERN_OK;
}

static enum tern_code posix_unlink(struct fs *fs, const char *path)
{
    (void)fs;
    return unlink(path) ? failed() : TERN_OK;
}

static enum tern_code posix_mkdir(struct fs *fs, const char *path)
{
    (void)fs;
    return mkdir(path, 0755) ? failed() : TERN_OK;
}

static enum tern_code posix_rmdir(struct fs *fs, const char *path)
{
    (void)fs;
    return rmdir(path) ? failed() : TERN_OK;
}

static enum tern_code posix_sync_dir(struct fs *fs, const char *path)
{
    (void)fs;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return failed();
    int saved = fsync(fd) ? errno : 0;
    close(fd);
    errno = saved;
    return failed();
}

static bool entry_is_dir(DIR *dir, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    struct stat st;
    return fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static enum tern_code posix_list(struct fs *fs, const char *path, fs_list_fn fn, void *arg)
{
    (void)fs;
    DIR *dir = opendir(path);
    if (!dir)
        return failed();
    int saved = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            saved = errno;
            break;
        }
        const char *name = entry->d_name;
        if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
            continue;
        if (!fn(arg, name, entry_is_dir(dir, entry)))
            break;
    }
    closedir(dir);
    errno = saved;
    return failed();
}

static enum tern_code posix_stat(struct fs *fs, const char *path, struct fs_stat *out)
{
    (void)fs;
    struct stat st;
    if (stat(path, &st))
        return failed();
    out->size_bytes = st.st_size;
    out->mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    out->is_dir = S_ISDIR(st.st_mode);
    return TERN_OK;
}

static enum tern_code posix_space(struct fs *fs, const char *path, struct fs_space *out)
{
    (void)fs;
    struct statvfs st;
    int rc;
    do
        rc = statvfs(path, &st);
    while (rc && errno == EINTR);
    if (rc)
        return failed();
    out->total_bytes = (int64_t)(st.f_blocks * st.f_frsize);
    out->free_bytes = (int64_t)(st.f_bavail * st.f_frsize);
    return TERN_OK;
}

/* Only a hint: what went wrong here, the sync of the file that it happened to reports. */
static void posix_write_back(struct fs *fs, const char *path)
{
    (void)fs;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!syncfs(fd);
    close(fd);
}

static void posix_close(struct file *base)
{
    struct posix_file *file = posix_file(base);
    close(file->fd);
    free(file);
}

/* One non-waiting read. *unsupported: this file system cannot tell, ask again with waiting. */
static enum tern_code read_nowait(struct posix_file *file, void *buf, size_t size, int64_t offset,
                                  size_t *got, bool *unsupported)
{
    struct iovec iov = {.iov_base = buf, .iov_len = size};
    ssize_t n;
    do
        n = preadv2(file->fd, &iov, 1, offset, RWF_NOWAIT);
    while (n < 0 && errno == EINTR);
    if (n >= 0) {
        *got = (size_t)n;
        return TERN_OK;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
        atomic_store_explicit(&file->nowait_unsupported, true, memory_order_relaxed);
        *unsupported = true;
        return TERN_OK;
    }
    return failed();
}

static enum tern_code posix_pread(struct file *base, void *buf, size_t size, int64_t offset,
                                  bool nowait, size_t *got)
{
    struct posix_file *file = posix_file(base);
    if (nowait && !atomic_load_explicit(&file->nowait_unsupported, memory_order_relaxed)) {
        bool unsupported = false;
        enum tern_code code = read_nowait(file, buf, size, offset, got, &unsupported);
        if (!unsupported)
            return code;
    }
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(file->fd, (char *)buf + done, size - done, offset + (int64_t)done);
        if (n == 0)
            break;
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            return failed();
    }
    *got = done;
    return TERN_OK;
}

/* Writes all of one buffer. */
static enum tern_code write_all(int fd, const char *buf, size_t size, int64_t offset)
{
    while (size > 0) {
        ssize_t n = pwrite(fd, buf, size, offset);
        if (n > 0) {
            buf += n;
            size -= (size_t)n;
            offset += n;
        } else if (n == 0) {
            errno = EIO;
            return failed();
        } else if (errno != EINTR) {
            return failed();
        }
    }
    return TERN_OK;
}

static enum tern_code posix_pwritev(struct file *base, const struct iovec *iov, int count,
                                    int64_t offset)
{
    int fd = posix_file(base)->fd;
    while (count > 0) {
        if (iov->iov_len == 0) {
            iov++;
            count--;
            continue;
        }
        ssize_t n = pwritev(fd, iov, count < IOV_MAX ? count : IOV_MAX, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return failed();
        offset += n;
        size_t left = (size_t)n;
        while (count > 0 && left >= iov->iov_len) {
            left -= iov->iov_len;
            iov++;
            count--;
        }
        if (left > 0) { /* stopped inside a buffer: finish that one by itself */
            size_t rest = iov->iov_len - left;
            enum tern_code code = write_all(fd, (const char *)iov->iov_base + left, rest, offset);
            if (code)
                return code;
            offset += (int64_t)rest;
            iov++;
            count--;
        }
    }
    return TERN_OK;
}

static enum tern_code posix_sync(struct file *base)
{
    return fdatasync(posix_file(base)->fd) ? failed() : TERN_OK;
}

static enum tern_code posix_size(struct file *base, int64_t *out)
{
    struct stat st;
    if (fstat(posix_file(base)->fd, &st))
        return failed();
    *out = st.st_size;
    return TERN_OK;
}

static enum tern_code posix_truncate(struct file *base, int64_t size)
{
    int rc;
    do
        rc = ftruncate(posix_file(base)->fd, size);
    while (rc && errno == EINTR);
    return rc ? failed() : TERN_OK;
}

/*
 * Where the file system cannot allocate, zeros are written behind the present end; holes before it
 * stay holes, since a write there could destroy what another thread has put in.
 */
static enum tern_code posix_reserve(struct file *base, int64_t offset, int64_t size)
{
    int fd = posix_file(base)->fd;
    int64_t old_size = 0;
    enum tern_code code = posix_size(base, &old_size);
    if (code)
        return code;
    int rc;
    do
        rc = fallocate(fd, 0, offset, size);
    while (rc && errno == EINTR);
    if (rc == 0)
        return TERN_OK;
    code = failed();
    int saved = errno;
    if (saved == EOPNOTSUPP || saved == ENOSYS) {
        int64_t end = offset + size;
        code = end > old_size ? file_zero(base, old_size, end - old_size) : TERN_OK;
        saved = code ? errno : 0;
    }
    int64_t new_size = 0;
    if (code && posix_size(base, &new_size) == TERN_OK && new_size > old_size &&
        posix_truncate(base, old_size) != TERN_OK)
        code = TERN_IO; /* the file is longer than its owner thinks: not usable */
    errno = saved;
    return code;
}

/*
 * A lock of the open file description: it goes with this handle only, not with any other descriptor
 * of the process, and it conflicts with the record locks that a JVM takes with FileLock.
 */
static enum tern_code posix_lock(struct file *base)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(posix_file(base)->fd, F_OFD_SETLK, &range) == 0)
        return TERN_OK;
    return errno == EAGAIN || errno == EACCES ? TERN_IN_USE : failed();
}

static const struct fs_ops posix_ops = {
    .open = posix_open,
    .rename = posix_rename,
    .unlink = posix_unlink,
    .mkdir = posix_mkdir,
    .rmdir = posix_rmdir,
    .sync_dir = posix_sync_dir,
    .list = posix_list,
    .stat = posix_stat,
    .space = posix_space,
    .write_back = posix_write_back,
    .close = posix_close,
    .pread = posix_pread,
    .pwritev = posix_pwritev,
    .sync = posix_sync,
    .reserve = posix_reserve,
    .truncate = posix_truncate,
    .size = posix_size,
    .lock = posix_lock,
};

struct fs *fs_posix(void)
{
    static struct fs fs = {.ops = &posix_ops};
    return &fs;
}
