/*
 * The part of the file layer that is the same for every implementation: dispatch through the table
 * of operations, and what can be built from them (making parents, zeroing, joining paths).
 *
 * Invariant: after a failure errno says what went wrong, as with the operations themselves.
 * Threads: any; nothing here has state.
 * Failure modes: those of the operation that failed; a negative offset or size is a bug and aborts.
 */
#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ZERO_BLOCK_BYTES = 64 * 1024, ZERO_BLOCKS = 16 };

static const uint8_t zero_block[ZERO_BLOCK_BYTES];

enum tern_code fs_open(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    ENSURE(flags & (FS_READ | FS_WRITE));
    *out = NULL;
    return fs->ops->open(fs, path, flags, out);
}

enum tern_code fs_rename(struct fs *fs, const char *from, const char *to)
{
    return fs->ops->rename(fs, from, to);
}

enum tern_code fs_unlink(struct fs *fs, const char *path)
{
    return fs->ops->unlink(fs, path);
}

enum tern_code fs_mkdir(struct fs *fs, const char *path)
{
    return fs->ops->mkdir(fs, path);
}

enum tern_code fs_rmdir(struct fs *fs, const char *path)
{
    return fs->ops->rmdir(fs, path);
}

/* What a sync did not write is gone, whatever the reason. */
static enum tern_code sync_code(enum tern_code code)
{
    return code == TERN_NO_SPACE || code == TERN_NO_MEMORY || code == TERN_AGAIN ? TERN_IO : code;
}

enum tern_code fs_sync_dir(struct fs *fs, const char *path)
{
    return sync_code(fs->ops->sync_dir(fs, path));
}

enum tern_code fs_sync_parent(struct fs *fs, const char *path)
{
    char parent[FS_PATH_BYTES];
    int len = snprintf(parent, sizeof parent, "%s", path);
    if (len < 0 || (size_t)len >= sizeof parent) {
        errno = ENAMETOOLONG;
        return TERN_TOO_LARGE;
    }
    char *slash = strrchr(parent, '/');
    if (!slash)
        return fs_sync_dir(fs, ".");
    slash[slash == parent ? 1 : 0] = 0;
    return fs_sync_dir(fs, parent);
}

void fs_write_back(struct fs *fs, const char *path)
{
    int saved = errno;
    fs->ops->write_back(fs, path);
    errno = saved;
}

enum tern_code fs_list(struct fs *fs, const char *path, fs_list_fn fn, void *arg)
{
    return fs->ops->list(fs, path, fn, arg);
}

enum tern_code fs_stat(struct fs *fs, const char *path, struct fs_stat *out)
{
    memset(out, 0, sizeof *out);
    return fs->ops->stat(fs, path, out);
}

enum tern_code fs_space(struct fs *fs, const char *path, struct fs_space *out)
{
    memset(out, 0, sizeof *out);
    return fs->ops->space(fs, path, out);
}

bool fs_exists(struct fs *fs, const char *path)
{
    struct fs_stat st;
    return fs_stat(fs, path, &st) == TERN_OK;
}

/* Makes one directory and its entry in the parent durable; present is success. */
static enum tern_code make_one(struct fs *fs, const char *path, const char *parent)
{
    enum tern_code code = fs_mkdir(fs, path);
    if (code == TERN_OK)
        return fs_sync_dir(fs, parent);
    int saved = errno;
    struct fs_stat st;
    /* A read-only or foreign parent answers with other errors although the directory is there. */
    if (fs_stat(fs, path, &st) == TERN_OK) {
        if (st.is_dir)
            return TERN_OK;
        errno = ENOTDIR;
        return TERN_EXISTS;
    }
    errno = saved;
    return code;
}

enum tern_code fs_mkdirs(struct fs *fs, const char *path)
{
    size_t len = strlen(path);
    if (len == 0 || len >= FS_PATH_BYTES) {
        errno = len ? ENAMETOOLONG : ENOENT;
        return len ? TERN_TOO_LARGE : TERN_NOT_FOUND;
    }
    struct fs_stat st;
    if (fs_stat(fs, path, &st) == TERN_OK && st.is_dir)
        return TERN_OK;
    char part[FS_PATH_BYTES];
    char parent[FS_PATH_BYTES];
    memcpy(part, path, len + 1);
    snprintf(parent, sizeof parent, "%s", path[0] == '/' ? "/" : ".");
    size_t i = 0;
    while (part[i] == '/')
        i++;
    while (part[i]) {
        while (part[i] && part[i] != '/')
            i++;
        char kept = part[i];
        part[i] = 0;
        enum tern_code code = make_one(fs, part, parent);
        if (code)
            return code;
        memcpy(parent, part, i + 1);
        part[i] = kept;
        while (part[i] == '/')
            i++;
    }
    return TERN_OK;
}

void file_close(struct file *file)
{
    if (file)
        file->ops->close(file);
}

enum tern_code file_pread(struct file *file, void *buf, size_t size, int64_t offset, size_t *got)
{
    ENSURE(offset >= 0);
    *got = 0;
    return file->ops->pread(file, buf, size, offset, false, got);
}

enum tern_code file_pread_nowait(struct file *file, void *buf, size_t size, int64_t offset,
                                 size_t *got)
{
    ENSURE(offset >= 0);
    *got = 0;
    return file->ops->pread(file, buf, size, offset, true, got);
}

enum tern_code file_pwritev(struct file *file, const struct iovec *iov, int count, int64_t offset)
{
    ENSURE(offset >= 0 && count >= 0);
    return file->ops->pwritev(file, iov, count, offset);
}

enum tern_code file_pwrite(struct file *file, const void *buf, size_t size, int64_t offset)
{
    ENSURE(offset >= 0);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = size};
    return file->ops->pwritev(file, &iov, 1, offset);
}

enum tern_code file_sync(struct file *file)
{
    return sync_code(file->ops->sync(file));
}

enum tern_code file_reserve(struct file *file, int64_t offset, int64_t size)
{
    ENSURE(offset >= 0 && size >= 0);
    return size ? file->ops->reserve(file, offset, size) : TERN_OK;
}

enum tern_code file_truncate(struct file *file, int64_t size)
{
    ENSURE(size >= 0);
    return file->ops->truncate(file, size);
}

enum tern_code file_size(struct file *file, int64_t *out)
{
    *out = 0;
    return file->ops->size(file, out);
}

enum tern_code file_zero(struct file *file, int64_t offset, int64_t size)
{
    ENSURE(offset >= 0 && size >= 0);
    while (size > 0) {
        struct iovec iov[ZERO_BLOCKS];
        int count = 0;
        int64_t chunk = 0;
        while (count < ZERO_BLOCKS && chunk < size) {
            int64_t left = size - chunk;
            size_t len = left < ZERO_BLOCK_BYTES ? (size_t)left : (size_t)ZERO_BLOCK_BYTES;
            iov[count++] =
                (struct iovec){.iov_base = (void *)(uintptr_t)zero_block, .iov_len = len};
            chunk += (int64_t)len;
        }
        enum tern_code code = file->ops->pwritev(file, iov, count, offset);
        if (code)
            return code;
        offset += chunk;
        size -= chunk;
    }
    return TERN_OK;
}

enum tern_code file_lock(struct file *file)
{
    return file->ops->lock(file);
}

enum tern_code fs_join(char out[FS_PATH_BYTES], const char *dir, const char *name)
{
    size_t dir_len = strlen(dir);
    const char *slash = dir_len > 0 && dir[dir_len - 1] != '/' ? "/" : "";
    int len = snprintf(out, FS_PATH_BYTES, "%s%s%s", dir, slash, name);
    if (len < 0 || len >= FS_PATH_BYTES) {
        out[0] = 0;
        errno = ENAMETOOLONG;
        return TERN_TOO_LARGE;
    }
    return TERN_OK;
}
