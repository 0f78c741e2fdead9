/*
 * Simulated disk: paths, handles, faults. What lies on the disk and what a power loss leaves of it
 * is in sim_disk.c.
 *
 * Every operation begins with enter(), which counts the call, asks the hook and applies the faults.
 * errno is set as the real call would, the code follows from it.
 *
 * Threads: one. Failure modes: those of the real file system, plus what a test asks for.
 */
#include "tests/sim/sim_fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_disk.h"

struct sim_fs {
    struct fs fs; /* first */
    struct clock *clock;
    struct rng *rng;
    struct sim_disk disk;
    struct sim_fs_fault faults[SIM_FS_FAULTS];
    unsigned fault_count;
    uint64_t calls[SIM_FS_OP_COUNT];
    int64_t capacity_pages;
    unsigned cold_percent;
    sim_fs_hook_fn hook;
    void *hook_arg;
    unsigned open_handles;
    uint64_t epoch; /* handles of an older one are dead */
};

struct sim_file {
    struct file file; /* first */
    struct sim_fs *fs;
    struct sim_inode *inode; /* a reference */
    unsigned flags;
    uint64_t epoch;
    char path[FS_PATH_BYTES];
};

static const struct fs_ops sim_ops;

static enum tern_code fail_with(int errno_value)
{
    errno = errno_value;
    return error_from_errno(errno_value);
}

/* ---- faults ---- */

static int faults_apply(struct sim_fs *fs, enum sim_fs_op op, const char *path)
{
    int result = 0;
    for (unsigned i = 0; i < fs->fault_count; i++) {
        struct sim_fs_fault *fault = &fs->faults[i];
        bool matches = (fault->op == SIM_FS_ANY || fault->op == op) &&
                       (!fault->path_part || strstr(path, fault->path_part));
        if (!matches || fault->nth == 0)
            continue;
        if (fault->nth > 1) {
            fault->nth--;
            continue;
        }
        result = result ? result : fault->errno_value;
        if (!fault->forever)
            fault->nth = 0;
    }
    return result;
}

/* Returns 0 or the errno this call is to fail with. */
static int enter(struct sim_fs *fs, enum sim_fs_op op, const char *path)
{
    fs->calls[op]++;
    fs->calls[SIM_FS_ANY]++;
    int result = fs->hook ? fs->hook(fs->hook_arg, op, path) : 0;
    int fault = faults_apply(fs, op, path);
    return result ? result : fault;
}

static int enter_file(struct sim_file *file, enum sim_fs_op op, unsigned needs)
{
    int result = enter(file->fs, op, file->path);
    if (file->epoch != file->fs->epoch)
        return EIO;
    if (!result && needs && !(file->flags & needs))
        return EBADF;
    return result;
}

/* ---- paths ---- */

struct place {
    struct sim_inode *dir;   /* that holds the last component; the root itself for "/" */
    struct sim_inode *inode; /* NULL when absent */
    char name[256];          /* last component; empty for the root */
};

/* Finds where a path points; 0, or an errno when the way there does not exist. */
static int locate(struct sim_fs *fs, const char *path, struct place *out)
{
    *out = (struct place){.dir = fs->disk.root, .inode = fs->disk.root};
    if (!*path)
        return ENOENT;
    if (strlen(path) >= FS_PATH_BYTES)
        return ENAMETOOLONG;
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len == 0 || (len == 1 && path[0] == '.')) {
            path += len + (path[len] == '/');
            continue;
        }
        if (len == 2 && path[0] == '.' && path[1] == '.')
            return EINVAL;
        if (len >= sizeof out->name)
            return ENAMETOOLONG;
        if (!out->inode)
            return ENOENT;
        if (!out->inode->is_dir)
            return ENOTDIR;
        out->dir = out->inode;
        memcpy(out->name, path, len);
        out->name[len] = 0;
        out->inode = sim_dir_find(out->dir, path, len);
        path += len + (path[len] == '/');
    }
    return 0;
}

/* enter() and locate() in one; 0 or an errno. */
static int begin(struct sim_fs *fs, enum sim_fs_op op, const char *path, struct place *place)
{
    int result = enter(fs, op, path);
    return result ? result : locate(fs, path, place);
}

static int begin_present(struct sim_fs *fs, enum sim_fs_op op, const char *path,
                         struct place *place)
{
    int result = begin(fs, op, path, place);
    return result ? result : place->inode ? 0 : ENOENT;
}

static void set_entry(struct sim_fs *fs, const struct place *place, struct sim_inode *target)
{
    sim_dir_set(&fs->disk, sim_disk_next_seq(&fs->disk), place->dir, place->name, target);
}

static bool dir_is_empty(const struct sim_inode *dir)
{
    return dir->live.count == 0;
}

/* ---- operations on paths ---- */

static int open_inode(struct sim_fs *fs, const struct place *place, unsigned flags,
                      struct sim_inode **out)
{
    if (place->inode) {
        if ((flags & FS_CREATE) && (flags & FS_EXCLUSIVE))
            return EEXIST;
        if (place->inode->is_dir)
            return EISDIR;
        sim_inode_ref(place->inode);
        *out = place->inode;
        if (flags & FS_TRUNCATE)
            sim_file_truncate(&fs->disk, place->inode, 0);
        return 0;
    }
    if (!(flags & FS_CREATE))
        return ENOENT;
    *out = sim_inode_create(&fs->disk, false);
    (*out)->mtime_ms = clock_wall_ms(fs->clock);
    set_entry(fs, place, *out);
    return 0;
}

static enum tern_code sim_open(struct fs *base, const char *path, unsigned flags, struct file **out)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    struct sim_inode *inode = NULL;
    int result = begin(fs, SIM_FS_OPEN, path, &place);
    if (!result)
        result = open_inode(fs, &place, flags, &inode);
    if (result)
        return fail_with(result);
    struct sim_file *file = calloc(1, sizeof *file);
    ENSURE(file);
    file->file.ops = &sim_ops;
    file->fs = fs;
    file->inode = inode;
    file->flags = flags;
    file->epoch = fs->epoch;
    memcpy(file->path, path, strlen(path) + 1);
    fs->open_handles++;
    *out = &file->file;
    return TERN_OK;
}

static int rename_check(const struct place *from, const struct place *to)
{
    if (!from->name[0] || !to->name[0])
        return EBUSY;
    if (!to->inode || to->inode == from->inode)
        return 0;
    if (from->inode->is_dir != to->inode->is_dir)
        return from->inode->is_dir ? ENOTDIR : EISDIR;
    return to->inode->is_dir && !dir_is_empty(to->inode) ? ENOTEMPTY : 0;
}

static enum tern_code sim_rename(struct fs *base, const char *from_path, const char *to_path)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place from;
    struct place to;
    int result = begin_present(fs, SIM_FS_RENAME, from_path, &from);
    if (!result)
        result = locate(fs, to_path, &to);
    if (!result)
        result = rename_check(&from, &to);
    if (result)
        return fail_with(result);
    if (to.inode == from.inode)
        return TERN_OK;
    uint64_t seq = sim_disk_next_seq(&fs->disk);
    struct sim_inode *moved = from.inode;
    sim_inode_ref(moved);
    sim_dir_set(&fs->disk, seq, from.dir, from.name, NULL);
    sim_dir_set(&fs->disk, seq, to.dir, to.name, moved);
    sim_inode_unref(&fs->disk, moved);
    return TERN_OK;
}

static enum tern_code sim_unlink(struct fs *base, const char *path)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    int result = begin_present(fs, SIM_FS_UNLINK, path, &place);
    if (!result && place.inode->is_dir)
        result = EISDIR;
    if (result)
        return fail_with(result);
    set_entry(fs, &place, NULL);
    return TERN_OK;
}

static enum tern_code sim_mkdir(struct fs *base, const char *path)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    int result = begin(fs, SIM_FS_MKDIR, path, &place);
    if (!result && place.inode)
        result = EEXIST;
    if (result)
        return fail_with(result);
    struct sim_inode *dir = sim_inode_create(&fs->disk, true);
    dir->mtime_ms = clock_wall_ms(fs->clock);
    set_entry(fs, &place, dir);
    sim_inode_unref(&fs->disk, dir);
    return TERN_OK;
}

static enum tern_code sim_rmdir(struct fs *base, const char *path)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    int result = begin_present(fs, SIM_FS_RMDIR, path, &place);
    if (!result && !place.name[0])
        result = EBUSY;
    if (!result && !place.inode->is_dir)
        result = ENOTDIR;
    if (!result && !dir_is_empty(place.inode))
        result = ENOTEMPTY;
    if (result)
        return fail_with(result);
    set_entry(fs, &place, NULL);
    return TERN_OK;
}

static enum tern_code sim_sync_dir(struct fs *base, const char *path)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    int result = begin_present(fs, SIM_FS_SYNC_DIR, path, &place);
    if (!result && !place.inode->is_dir)
        result = ENOTDIR;
    if (result)
        return fail_with(result);
    sim_dir_sync(&fs->disk, place.inode);
    return TERN_OK;
}

struct listed {
    char *name;
    bool is_dir;
};

/* A copy of the entries in random order: the callback may change the directory. */
static struct listed *copy_entries(struct sim_fs *fs, const struct sim_inode *dir)
{
    struct listed *names = calloc(dir->live.count + 1, sizeof *names);
    ENSURE(names);
    for (size_t i = 0; i < dir->live.count; i++) {
        size_t j = (size_t)rng_below(fs->rng, i + 1);
        names[i] = names[j];
        names[j].name = strdup(dir->live.items[i].name);
        names[j].is_dir = dir->live.items[i].inode->is_dir;
        ENSURE(names[j].name);
    }
    return names;
}

static enum tern_code sim_list(struct fs *base, const char *path, fs_list_fn fn, void *arg)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    int result = begin_present(fs, SIM_FS_LIST, path, &place);
    if (!result && !place.inode->is_dir)
        result = ENOTDIR;
    if (result)
        return fail_with(result);
    struct listed *names = copy_entries(fs, place.inode);
    bool more = true;
    for (size_t i = 0; names[i].name; i++) {
        more = more && fn(arg, names[i].name, names[i].is_dir);
        free(names[i].name);
    }
    free(names);
    return TERN_OK;
}

static enum tern_code sim_stat(struct fs *base, const char *path, struct fs_stat *out)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    int result = begin_present(fs, SIM_FS_STAT, path, &place);
    if (result)
        return fail_with(result);
    out->size_bytes = place.inode->size;
    out->mtime_ms = place.inode->mtime_ms;
    out->is_dir = place.inode->is_dir;
    return TERN_OK;
}

static enum tern_code sim_space(struct fs *base, const char *path, struct fs_space *out)
{
    struct sim_fs *fs = (struct sim_fs *)base;
    struct place place;
    int result = begin_present(fs, SIM_FS_SPACE, path, &place);
    if (result)
        return fail_with(result);
    int64_t free_pages = fs->capacity_pages - fs->disk.used_pages;
    out->total_bytes = fs->capacity_pages * SIM_PAGE_BYTES;
    out->free_bytes = free_pages > 0 ? free_pages * SIM_PAGE_BYTES : 0;
    return TERN_OK;
}

/* Does nothing: who relies on the hint is found out. */
static void sim_write_back(struct fs *base, const char *path)
{
    (void)enter((struct sim_fs *)base, SIM_FS_WRITE_BACK, path);
}

/* ---- operations on handles ---- */

static struct sim_file *sim_file_of(struct file *file)
{
    return (struct sim_file *)file;
}

static void sim_close(struct file *base)
{
    struct sim_file *file = sim_file_of(base);
    if (file->inode->locked_by == file)
        file->inode->locked_by = NULL;
    sim_inode_unref(&file->fs->disk, file->inode);
    file->fs->open_handles--;
    free(file);
}

static enum tern_code sim_pread(struct file *base, void *buf, size_t size, int64_t offset,
                                bool nowait, size_t *got)
{
    struct sim_file *file = sim_file_of(base);
    int result = enter_file(file, SIM_FS_PREAD, FS_READ);
    if (!result && nowait && rng_below(file->fs->rng, 100) < file->fs->cold_percent)
        result = EAGAIN;
    if (result)
        return fail_with(result);
    *got = sim_file_read(file->inode, buf, size, offset);
    return TERN_OK;
}

static bool has_room(const struct sim_file *file, int64_t offset, int64_t size)
{
    const struct sim_fs *fs = file->fs;
    return sim_file_new_pages(file->inode, offset, size) <=
           fs->capacity_pages - fs->disk.used_pages;
}

static enum tern_code sim_pwritev(struct file *base, const struct iovec *iov, int count,
                                  int64_t offset)
{
    struct sim_file *file = sim_file_of(base);
    int result = enter_file(file, SIM_FS_PWRITEV, FS_WRITE);
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (file->epoch != file->fs->epoch || result == EBADF)
        return fail_with(result);
    if (!has_room(file, offset, (int64_t)total))
        return fail_with(result ? result : ENOSPC);
    if (result)
        total = (size_t)rng_below(file->fs->rng, total + 1);
    for (int i = 0; i < count && total > 0; i++) {
        size_t len = iov[i].iov_len < total ? iov[i].iov_len : total;
        sim_file_write(&file->fs->disk, file->inode, iov[i].iov_base, len, offset);
        offset += (int64_t)len;
        total -= len;
    }
    file->inode->mtime_ms = clock_wall_ms(file->fs->clock);
    return result ? fail_with(result) : TERN_OK;
}

static enum tern_code sim_sync(struct file *base)
{
    struct sim_file *file = sim_file_of(base);
    int result = enter_file(file, SIM_FS_SYNC, 0);
    if (file->epoch == file->fs->epoch)
        sim_file_sync(file->inode, result != 0);
    return result ? fail_with(result) : TERN_OK;
}

static enum tern_code sim_reserve(struct file *base, int64_t offset, int64_t size)
{
    struct sim_file *file = sim_file_of(base);
    int result = enter_file(file, SIM_FS_RESERVE, FS_WRITE);
    if (!result && !has_room(file, offset, size))
        result = ENOSPC;
    if (result)
        return fail_with(result);
    sim_file_reserve(&file->fs->disk, file->inode, offset, size);
    return TERN_OK;
}

static enum tern_code sim_truncate(struct file *base, int64_t size)
{
    struct sim_file *file = sim_file_of(base);
    int result = enter_file(file, SIM_FS_TRUNCATE, FS_WRITE);
    if (result)
        return fail_with(result);
    sim_file_truncate(&file->fs->disk, file->inode, size);
    file->inode->mtime_ms = clock_wall_ms(file->fs->clock);
    return TERN_OK;
}

static enum tern_code sim_size(struct file *base, int64_t *out)
{
    struct sim_file *file = sim_file_of(base);
    int result = enter_file(file, SIM_FS_SIZE, 0);
    if (result)
        return fail_with(result);
    *out = file->inode->size;
    return TERN_OK;
}

static enum tern_code sim_lock(struct file *base)
{
    struct sim_file *file = sim_file_of(base);
    int result = enter_file(file, SIM_FS_LOCK, FS_WRITE);
    if (result)
        return fail_with(result);
    if (file->inode->locked_by && file->inode->locked_by != file) {
        errno = EAGAIN;
        return TERN_IN_USE;
    }
    file->inode->locked_by = file;
    return TERN_OK;
}

static const struct fs_ops sim_ops = {
    .open = sim_open,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .mkdir = sim_mkdir,
    .rmdir = sim_rmdir,
    .sync_dir = sim_sync_dir,
    .list = sim_list,
    .stat = sim_stat,
    .space = sim_space,
    .write_back = sim_write_back,
    .close = sim_close,
    .pread = sim_pread,
    .pwritev = sim_pwritev,
    .sync = sim_sync,
    .reserve = sim_reserve,
    .truncate = sim_truncate,
    .size = sim_size,
    .lock = sim_lock,
};

/* ---- for tests ---- */

struct sim_fs *sim_fs_create(struct clock *clock, struct rng *rng)
{
    struct sim_fs *fs = calloc(1, sizeof *fs);
    ENSURE(fs);
    fs->fs.ops = &sim_ops;
    fs->clock = clock;
    fs->rng = rng;
    fs->capacity_pages = INT64_C(1) << 28; /* 1 TiB */
    sim_disk_init(&fs->disk);
    return fs;
}

void sim_fs_destroy(struct sim_fs *fs)
{
    if (!fs)
        return;
    ENSURE(fs->open_handles == 0);
    sim_disk_fini(&fs->disk);
    free(fs);
}

struct fs *sim_fs_base(struct sim_fs *fs)
{
    return &fs->fs;
}

void sim_fs_power_loss(struct sim_fs *fs, enum sim_torn torn)
{
    fs->epoch++;
    sim_disk_power_loss(&fs->disk, torn, fs->rng);
}

void sim_fs_process_crash(struct sim_fs *fs)
{
    fs->epoch++;
    for (struct sim_inode *inode = fs->disk.inodes; inode; inode = inode->next)
        inode->locked_by = NULL;
}

void sim_fs_fail(struct sim_fs *fs, const struct sim_fs_fault *fault)
{
    ENSURE(fs->fault_count < SIM_FS_FAULTS && fault->nth > 0 && fault->errno_value > 0);
    fs->faults[fs->fault_count++] = *fault;
}

void sim_fs_fail_clear(struct sim_fs *fs)
{
    fs->fault_count = 0;
}

uint64_t sim_fs_calls(const struct sim_fs *fs, enum sim_fs_op op)
{
    return fs->calls[op];
}

void sim_fs_set_capacity(struct sim_fs *fs, int64_t bytes)
{
    fs->capacity_pages = bytes / SIM_PAGE_BYTES;
}

void sim_fs_set_cold(struct sim_fs *fs, unsigned percent)
{
    fs->cold_percent = percent;
}

void sim_fs_set_hook(struct sim_fs *fs, sim_fs_hook_fn hook, void *arg)
{
    fs->hook = hook;
    fs->hook_arg = arg;
}

unsigned sim_fs_open_handles(const struct sim_fs *fs)
{
    return fs->open_handles;
}
