/*
 * Small files that survive a power loss at any moment.
 *
 * Files of path `f`:   f        the newest generation      f.bak       the one before
 *                      f.meta   what we know of both       f.tmp, f.meta.tmp   being written
 *
 * The companion lists generations by content, not by file: a generation is the one whose length and
 * CRC a file has. It is written before the files move, with the new generation and those that lie
 * there now; so at each moment it knows whatever is in f and f.bak.
 *
 *   1  write and sync f.tmp
 *   2  write and sync f.meta.tmp (new, f's, f.bak's generation), rename to f.meta, sync the
 * directory 3  f known to the companion, or no f.bak: rename f to f.bak 4  rename f.tmp to f, sync
 * the directory
 *
 * Power loss in 1 or 2: f and f.bak as before. Between 3 and 4: no f, f.bak is what f was. After 4:
 * the new. Step 3 never replaces a backup by an f that may be damaged: such an f is replaced itself
 * in step 4.
 *
 * Reading: f when it parses; else f.bak when it parses. A file the companion does not know but
 * which parses was written by a hand or by RocketMQ. Neither file there: nothing was written, or
 * the first write was cut short; a companion that knows of two generations tells that somebody
 * removed them, which is logged.
 *
 * Threads: one writer or reader per path; the caller sees to it. Failure modes: an unreadable
 * sector counts as a damaged file; being out of memory or handles, or not permitted, is reported,
 * since a second try may find the newest generation.
 */
#include "base/durable_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>

#include "base/fs.h"
#include "base/log.h"

enum {
    FILE_MAX_BYTES = 64 << 20,
    EXTRA_MAX_BYTES = 16 << 10,
    GENERATIONS_MAX = 3, /* the new one, f's, f.bak's */
    META_MAX_BYTES = GENERATIONS_MAX * (EXTRA_MAX_BYTES + 128) + 64
};

#define META_MAGIC "ternmq-generations 1 "

struct generation {
    uint64_t number;
    size_t len;
    uint32_t crc;
    const char *extra; /* terminated, inside meta.text, or the caller's */
    size_t extra_len;
};

struct meta {
    char *text; /* owned; generations point into it */
    struct generation items[GENERATIONS_MAX];
    size_t count;
};

struct paths {
    char file[FS_PATH_BYTES];
    char tmp[FS_PATH_BYTES];
    char bak[FS_PATH_BYTES];
    char meta[FS_PATH_BYTES];
    char meta_tmp[FS_PATH_BYTES];
    char dir[FS_PATH_BYTES];
};

/* One file's content, or why there is none. */
struct content {
    enum tern_code code; /* OK, NOT_FOUND, CORRUPT (unreadable or too large) */
    char *text;          /* owned, terminated */
    size_t len;
    const struct generation *known; /* NULL: the companion does not know it */
};

static uint32_t text_crc(const char *text, size_t len)
{
    return crc32_gzip_refl(0, (const unsigned char *)text, len);
}

static enum tern_code make_paths(struct paths *p, const char *path, struct tern_error *err)
{
    size_t len = strlen(path);
    if (len == 0 || len + sizeof ".meta.tmp" > FS_PATH_BYTES)
        return error_set(err, TERN_INVALID, "path of %zu bytes", len);
    memcpy(p->file, path, len + 1);
    snprintf(p->tmp, sizeof p->tmp, "%s.tmp", path);
    snprintf(p->bak, sizeof p->bak, "%s.bak", path);
    snprintf(p->meta, sizeof p->meta, "%s.meta", path);
    snprintf(p->meta_tmp, sizeof p->meta_tmp, "%s.meta.tmp", path);
    const char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(p->dir, sizeof p->dir, ".");
    else if (slash == path)
        snprintf(p->dir, sizeof p->dir, "/");
    else
        snprintf(p->dir, sizeof p->dir, "%.*s", (int)(slash - path), path);
    return TERN_OK;
}

/* ---- whole files ---- */

/* *text is the caller's, terminated. TERN_CORRUPT: unreadable, or larger than `most`. */
static enum tern_code read_file(struct fs *fs, const char *path, size_t most, char **text,
                                size_t *len, struct tern_error *err)
{
    struct file *file = NULL;
    int64_t size = 0;
    *text = NULL;
    *len = 0;
    enum tern_code code = fs_open(fs, path, FS_READ, &file);
    if (!code)
        code = file_size(file, &size);
    if (!code && size > (int64_t)most) {
        errno = EFBIG;
        code = TERN_IO;
    }
    if (!code) {
        *text = malloc((size_t)size + 1);
        if (!*text) {
            errno = ENOMEM;
            code = TERN_NO_MEMORY;
        }
    }
    if (!code)
        code = file_pread(file, *text, (size_t)size, 0, len);
    int saved = errno;
    file_close(file);
    if (!code) {
        (*text)[*len] = 0;
        return TERN_OK;
    }
    free(*text);
    *text = NULL;
    if (code == TERN_NOT_FOUND)
        return code;
    return error_set_errno(err, code == TERN_IO ? TERN_CORRUPT : code, saved, "%s", path);
}

static enum tern_code write_file(struct fs *fs, const char *path, const char *text, size_t len,
                                 struct tern_error *err)
{
    struct file *file = NULL;
    enum tern_code code = fs_open(fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (!code)
        code = file_pwrite(file, text, len, 0);
    if (!code)
        code = file_sync(file);
    int saved = errno;
    file_close(file);
    return code ? error_set_errno(err, code, saved, "%s", path) : TERN_OK;
}

/* ---- the companion ---- */

/*
 * ternmq-generations 1 CRC          of everything behind this line
 * NUMBER LEN CRC EXTRA_LEN          one line and the extra's bytes for each
 * EXTRA
 */
static size_t meta_format(char *out, size_t size, const struct generation *items, size_t count)
{
    size_t head = sizeof META_MAGIC - 1 + 8 + 1;
    size_t n = head;
    for (size_t i = 0; i < count; i++) {
        const struct generation *g = &items[i];
        n += (size_t)snprintf(out + n, size - n, "%" PRIu64 " %zu %08" PRIX32 " %zu\n", g->number,
                              g->len, g->crc, g->extra_len);
        ENSURE(n + g->extra_len + 2 < size);
        memcpy(out + n, g->extra, g->extra_len);
        n += g->extra_len;
        out[n++] = '\n';
    }
    char line[64];
    snprintf(line, sizeof line, META_MAGIC "%08" PRIX32 "\n", text_crc(out + head, n - head));
    memcpy(out, line, head);
    return n;
}

/* A number in the given base that `end` follows; the cursor moves behind it. */
static bool take_number(char **cursor, int base, char end, uint64_t *value)
{
    char *stop;
    if (!(**cursor >= '0' && **cursor <= '9') &&
        !(base == 16 && **cursor >= 'A' && **cursor <= 'F'))
        return false;
    errno = 0;
    *value = strtoull(*cursor, &stop, base);
    if (errno || *stop != end)
        return false;
    *cursor = stop + 1;
    return true;
}

static bool meta_parse(struct meta *meta, size_t len)
{
    char *at = meta->text;
    const char *end = meta->text + len;
    uint64_t crc;
    size_t magic = sizeof META_MAGIC - 1;
    if (len < magic || memcmp(at, META_MAGIC, magic) != 0)
        return false;
    at += magic;
    if (!take_number(&at, 16, '\n', &crc) || crc != text_crc(at, (size_t)(end - at)))
        return false;
    while (at < end && meta->count < GENERATIONS_MAX) {
        uint64_t number;
        uint64_t size;
        uint64_t extra_len;
        if (!take_number(&at, 10, ' ', &number) || !take_number(&at, 10, ' ', &size) ||
            !take_number(&at, 16, ' ', &crc) || !take_number(&at, 10, '\n', &extra_len))
            return false;
        if (end - at < 1 || extra_len > (uint64_t)(end - at - 1) || at[extra_len] != '\n')
            return false;
        at[extra_len] = 0;
        meta->items[meta->count++] = (struct generation){.number = number,
                                                         .len = (size_t)size,
                                                         .crc = (uint32_t)crc,
                                                         .extra = at,
                                                         .extra_len = (size_t)extra_len};
        at += extra_len + 1;
    }
    return at == end;
}

/* A missing or damaged companion knows nothing; that is no error. */
static enum tern_code meta_load(const struct env *env, const struct paths *p, struct meta *meta,
                                struct tern_error *err)
{
    size_t len;
    *meta = (struct meta){0};
    enum tern_code code = read_file(env->fs, p->meta, META_MAX_BYTES, &meta->text, &len, err);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    if (code && code != TERN_CORRUPT)
        return code;
    if (code == TERN_CORRUPT || !meta_parse(meta, len)) {
        meta->count = 0;
        log_warn(env->log, "companion_damaged", "path=%s", p->meta);
    }
    return TERN_OK;
}

/* The newest generation with this content. */
static const struct generation *meta_find(const struct meta *meta, const char *text, size_t len)
{
    const struct generation *found = NULL;
    uint32_t crc = text_crc(text, len);
    for (size_t i = 0; i < meta->count; i++) {
        const struct generation *g = &meta->items[i];
        if (g->len == len && g->crc == crc && (!found || g->number > found->number))
            found = g;
    }
    return found;
}

/* Only errors that say nothing about the file are returned; the others are in content->code. */
static enum tern_code content_load(const struct env *env, const char *path, const struct meta *meta,
                                   struct content *content, struct tern_error *err)
{
    *content = (struct content){0};
    content->code = read_file(env->fs, path, FILE_MAX_BYTES, &content->text, &content->len, err);
    if (content->code == TERN_OK)
        content->known = meta_find(meta, content->text, content->len);
    if (content->code == TERN_NOT_FOUND || content->code == TERN_CORRUPT)
        return TERN_OK;
    return content->code;
}

/* ---- writing ---- */

/* Steps 1 and 2. */
static enum tern_code write_new(const struct env *env, const struct paths *p,
                                const struct generation *items, size_t count, const char *text,
                                size_t len, struct tern_error *err)
{
    char *meta_text = malloc(META_MAX_BYTES);
    if (!meta_text)
        return error_set(err, TERN_NO_MEMORY, "no memory to write %s", p->file);
    size_t meta_len = meta_format(meta_text, META_MAX_BYTES, items, count);
    enum tern_code code = write_file(env->fs, p->tmp, text, len, err);
    if (!code)
        code = write_file(env->fs, p->meta_tmp, meta_text, meta_len, err);
    free(meta_text);
    if (code)
        return code;
    code = fs_rename(env->fs, p->meta_tmp, p->meta);
    if (code)
        return error_set_errno(err, code, errno, "rename to %s", p->meta);
    code = fs_sync_dir(env->fs, p->dir);
    return code ? error_set_errno(err, code, errno, "sync of directory %s", p->dir) : TERN_OK;
}

/* Steps 3 and 4. */
static enum tern_code move_in(const struct env *env, const struct paths *p, bool keep_old,
                              struct tern_error *err)
{
    enum tern_code code = keep_old ? fs_rename(env->fs, p->file, p->bak) : TERN_OK;
    if (code)
        return error_set_errno(err, code, errno, "rename to %s", p->bak);
    code = fs_rename(env->fs, p->tmp, p->file);
    if (code)
        return error_set_errno(err, code, errno, "rename to %s", p->file);
    code = fs_sync_dir(env->fs, p->dir);
    return code ? error_set_errno(err, code, errno, "sync of directory %s", p->dir) : TERN_OK;
}

/* Not needed for safety, only for tidiness and room: errors do not matter. */
static void remove_leftovers(const struct env *env, const struct paths *p)
{
    enum tern_code ignored = fs_unlink(env->fs, p->tmp);
    ignored = fs_unlink(env->fs, p->meta_tmp);
    (void)ignored;
}

enum tern_code durable_write(const struct env *env, const char *path, const char *text, size_t len,
                             const char *extra, struct tern_error *err)
{
    struct paths p;
    struct meta meta = {0};
    struct content file = {0};
    struct content bak = {0};
    size_t extra_len = extra ? strlen(extra) : 0;
    enum tern_code code = make_paths(&p, path, err);
    if (code)
        return code;
    if (len > FILE_MAX_BYTES || extra_len > EXTRA_MAX_BYTES)
        return error_set(err, TERN_TOO_LARGE, "%s: %zu bytes with %zu of extra, allowed %d and %d",
                         path, len, extra_len, (int)FILE_MAX_BYTES, (int)EXTRA_MAX_BYTES);
    code = meta_load(env, &p, &meta, err);
    if (!code)
        code = content_load(env, p.file, &meta, &file, err);
    if (!code)
        code = content_load(env, p.bak, &meta, &bak, err);
    if (code)
        goto out;
    uint64_t number = 1;
    for (size_t i = 0; i < meta.count; i++)
        if (meta.items[i].number >= number)
            number = meta.items[i].number + 1;
    struct generation items[GENERATIONS_MAX];
    size_t count = 0;
    items[count++] = (struct generation){.number = number,
                                         .len = len,
                                         .crc = text_crc(text, len),
                                         .extra = extra ? extra : "",
                                         .extra_len = extra_len};
    if (file.known)
        items[count++] = *file.known;
    if (bak.known && bak.known != file.known)
        items[count++] = *bak.known;
    code = write_new(env, &p, items, count, text, len, err);
    bool keep_old = file.known || (file.code == TERN_OK && bak.code == TERN_NOT_FOUND);
    if (!code)
        code = move_in(env, &p, keep_old, err);
    if (code)
        remove_leftovers(env, &p);
out:
    free(file.text);
    free(bak.text);
    free(meta.text);
    return code;
}

/* ---- reading ---- */

/* Gives one file to the parser; what it says against it is kept in err. */
static enum tern_code try_parse(const struct content *content, const char *path,
                                durable_parse_fn parse, void *arg, struct tern_error *err)
{
    if (content->code)
        return content->code;
    const char *extra = content->known ? content->known->extra : NULL;
    enum tern_code code = parse(arg, content->text, content->len, extra, err);
    return code ? error_prefix(err, code, "%s", path) : TERN_OK;
}

/* A file that is not there is no failure by itself; here it is half of one. */
static const char *failed_text(const struct content *content, const char *path,
                               struct tern_error *err)
{
    if (content->code == TERN_NOT_FOUND)
        error_set(err, TERN_NOT_FOUND, "%s: missing", path);
    return err->text;
}

static void warn_unknown(const struct env *env, const struct content *content, const char *path,
                         const struct meta *meta)
{
    if (!content->known && meta->count > 0)
        log_warn(env->log, "file_changed_by_others", "path=%s length=%zu", path, content->len);
}

enum tern_code durable_read(const struct env *env, const char *path, durable_parse_fn parse,
                            void *arg, struct tern_error *err)
{
    struct paths p;
    struct meta meta = {0};
    struct content file = {0};
    struct content bak = {0};
    struct tern_error file_err = {.text = ""};
    struct tern_error bak_err = {.text = ""};
    enum tern_code code = make_paths(&p, path, err);
    if (code)
        return code;
    code = meta_load(env, &p, &meta, err);
    if (code)
        goto out;
    code = content_load(env, p.file, &meta, &file, &file_err);
    if (code) {
        error_set(err, code, "%s", file_err.text);
        goto out;
    }
    if (try_parse(&file, p.file, parse, arg, &file_err) == TERN_OK) {
        warn_unknown(env, &file, p.file, &meta);
        goto out;
    }
    code = content_load(env, p.bak, &meta, &bak, &bak_err);
    if (code) {
        error_set(err, code, "%s", bak_err.text);
        goto out;
    }
    if (file.code == TERN_NOT_FOUND && bak.code == TERN_NOT_FOUND) {
        if (meta.count > 1)
            log_error(
                env->log, "generations_missing",
                "path=%s companion=%s effect=\"begins anew, as if it had never been written\"",
                p.file, p.meta);
        code = error_set(err, TERN_NOT_FOUND, "%s", path);
    } else if (try_parse(&bak, p.bak, parse, arg, &bak_err) == TERN_OK) {
        log_warn(env->log, "previous_generation_used", "path=%s reason=%s", p.file,
                 file.code == TERN_NOT_FOUND ? "missing" : file_err.text);
        warn_unknown(env, &bak, p.bak, &meta);
    } else {
        code = error_set(err, TERN_CORRUPT, "%.250s; %.250s", failed_text(&file, p.file, &file_err),
                         failed_text(&bak, p.bak, &bak_err));
    }
out:
    free(file.text);
    free(bak.text);
    free(meta.text);
    return code;
}
