/*
 * KV configuration: a JSON object of objects of strings, replaced as a whole by each batch.
 *
 *   apply: own the file ► copy ► change the copy ► write it durably ► swap under the lock
 *   get, list: under the lock, copy out
 *
 * Invariant: `table` is what a restart would read. Only the writer changes the pointer, so it may
 * read the table without the lock; nobody changes what the pointer points to.
 *
 * Threads: one writer, any readers. Failure modes: a failed write leaves the table as it was and
 * is each change's answer; durable_write keeps the previous generation whole.
 */
#include "namesrv/kv_config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/durable_file.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/names.h"

struct kv_config {
    const struct env *env; /* borrowed */
    char path[FS_PATH_BYTES];
    struct file *lock_file; /* open and locked since the first change; writer only */
    struct lock lock;
    json_t *table;                   /* lock; see the invariant */
    size_t entry_count, total_bytes; /* lock; of `table` */
};

/* A table under construction, and its measures. */
struct kv_draft {
    json_t *table;
    size_t entry_count, total_bytes;
    bool changed;
};

enum tern_code kv_config_create(const struct env *env, const char *path, struct kv_config **out)
{
    *out = NULL;
    if (strlen(path) >= FS_PATH_BYTES - sizeof ".lock")
        return TERN_TOO_LARGE;
    struct kv_config *kv = calloc(1, sizeof *kv);
    if (!kv)
        return TERN_NO_MEMORY;
    kv->table = json_object();
    if (!kv->table) {
        free(kv);
        return TERN_NO_MEMORY;
    }
    kv->env = env;
    strncpy(kv->path, path, sizeof kv->path - 1);
    lock_init(&kv->lock, LOCK_NAMESRV);
    *out = kv;
    return TERN_OK;
}

void kv_config_destroy(struct kv_config *kv)
{
    if (!kv)
        return;
    file_close(kv->lock_file);
    json_decref(kv->table);
    lock_fini(&kv->lock);
    free(kv);
}

enum tern_code kv_name_check(const char *what, const char *name, struct tern_error *err)
{
    size_t len = strlen(name);
    if (len < 1 || len > KV_NAME_MAX)
        return error_set(err, TERN_INVALID, "%s has %zu bytes, allowed 1..%d", what, len,
                         (int)KV_NAME_MAX);
    if (!utf8_printable(name, len))
        return error_set(err, TERN_INVALID, "%s is not printable UTF-8", what);
    return TERN_OK;
}

static enum tern_code value_check(const char *value, struct tern_error *err)
{
    size_t len = strlen(value);
    if (len > KV_VALUE_MAX)
        return error_set(err, TERN_INVALID, "value has %zu bytes, allowed 0..%d", len,
                         (int)KV_VALUE_MAX);
    if (!utf8_valid(value, len))
        return error_set(err, TERN_INVALID, "value is not UTF-8");
    return TERN_OK;
}

/* ---- changing ---- */

static enum tern_code draft_delete(struct kv_draft *draft, const struct kv_change *change)
{
    json_t *space = json_object_get(draft->table, change->name_space);
    const char *old = json_string_value(json_object_get(space, change->key));
    if (!old)
        return TERN_OK;
    draft->total_bytes -= strlen(change->name_space) + strlen(change->key) + strlen(old);
    draft->entry_count--;
    draft->changed = true;
    json_object_del(space, change->key);
    if (json_object_size(space) == 0)
        json_object_del(draft->table, change->name_space);
    return TERN_OK;
}

static enum tern_code draft_put(struct kv_draft *draft, struct kv_change *change)
{
    json_t *space = json_object_get(draft->table, change->name_space);
    const char *old = json_string_value(json_object_get(space, change->key));
    if (old && strcmp(old, change->value) == 0)
        return TERN_OK;
    size_t names = strlen(change->name_space) + strlen(change->key);
    size_t total = draft->total_bytes + names + strlen(change->value);
    if (old)
        total -= names + strlen(old);
    if (!old && draft->entry_count >= KV_ENTRIES_MAX)
        return error_set(&change->err, TERN_LIMIT, "%d entries are stored, no more are taken",
                         (int)KV_ENTRIES_MAX);
    if (total > KV_TOTAL_MAX)
        return error_set(&change->err, TERN_LIMIT,
                         "all entries together would have %zu bytes, allowed %d", total,
                         (int)KV_TOTAL_MAX);
    if (!space) {
        space = json_object();
        if (json_object_set_new(draft->table, change->name_space, space) != 0)
            return error_set(&change->err, TERN_NO_MEMORY, "namespace");
    }
    bool new_space = json_object_size(space) == 0;
    if (json_object_set_new(space, change->key, json_string(change->value)) != 0) {
        if (new_space)
            json_object_del(draft->table, change->name_space);
        return error_set(&change->err, TERN_NO_MEMORY, "entry");
    }
    draft->entry_count += !old;
    draft->total_bytes = total;
    draft->changed = true;
    return TERN_OK;
}

static enum tern_code draft_apply(struct kv_draft *draft, struct kv_change *change)
{
    enum tern_code code = kv_name_check("namespace", change->name_space, &change->err);
    if (code == TERN_OK)
        code = kv_name_check("key", change->key, &change->err);
    if (code == TERN_OK && change->value)
        code = value_check(change->value, &change->err);
    if (code != TERN_OK)
        return code;
    return change->value ? draft_put(draft, change) : draft_delete(draft, change);
}

/* ---- reading the file ---- */

/* Adds one namespace of the file to the draft, under the same rules as a change from the wire. */
static enum tern_code parse_space(struct kv_draft *draft, const char *name, json_t *entries,
                                  struct tern_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(entries))
        return error_set(err, TERN_CORRUPT, "namespace '%.64s' is not an object", name);
    json_object_foreach(entries, key, value)
    {
        struct kv_change change = {.name_space = name, .key = key};
        change.value = json_string_value(value);
        if (!change.value)
            return error_set(err, TERN_CORRUPT, "value of '%.64s' is not a string", key);
        enum tern_code code = draft_apply(draft, &change);
        if (code != TERN_OK)
            return error_set(err, code == TERN_NO_MEMORY ? code : TERN_CORRUPT, "'%.64s': %s", key,
                             error_text(&change.err, code));
    }
    return TERN_OK;
}

/* durable_parse_fn: arg is the draft, its table is replaced when the text is good. */
static enum tern_code parse_file(void *arg, const char *text, size_t len, const char *extra,
                                 struct tern_error *err)
{
    struct kv_draft *draft = arg;
    struct kv_draft made = {.table = json_object()};
    json_t *root = NULL;
    const char *name;
    json_t *entries;
    (void)extra;
    enum tern_code code = made.table ? json_parse_fastjson(text, len, &root, err) : TERN_NO_MEMORY;
    if (code != TERN_OK)
        goto out;
    json_t *config_table = json_object_get(root, "configTable");
    if (!json_is_object(root) || (config_table && !json_is_object(config_table))) {
        code = error_set(err, TERN_CORRUPT, "configTable is not an object");
        goto out;
    }
    json_object_foreach(config_table, name, entries)
    {
        code = parse_space(&made, name, entries, err);
        if (code != TERN_OK)
            goto out;
    }
    json_decref(draft->table);
    *draft = made;
    made.table = NULL;
out:
    json_decref(root);
    json_decref(made.table);
    return code;
}

/* Makes the draft the table; takes its reference. */
static void publish(struct kv_config *kv, struct kv_draft *draft)
{
    lock_acquire(&kv->lock);
    json_t *old = kv->table;
    kv->table = draft->table;
    kv->entry_count = draft->entry_count;
    kv->total_bytes = draft->total_bytes;
    lock_release(&kv->lock);
    json_decref(old);
    draft->table = NULL;
}

enum tern_code kv_config_load(struct kv_config *kv, struct tern_error *err)
{
    struct kv_draft draft = {0};
    enum tern_code code = durable_read(kv->env, kv->path, parse_file, &draft, err);
    if (code == TERN_OK)
        publish(kv, &draft);
    json_decref(draft.table);
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

/* ---- writing the file ---- */

/* Locks the file for this process, once; then reads it again: its last owner may have changed it.
 */
static enum tern_code own_file(struct kv_config *kv, struct tern_error *err)
{
    char path[FS_PATH_BYTES + sizeof ".lock"];
    struct fs *fs = kv->env->fs;
    struct file *file = NULL;
    if (kv->lock_file)
        return TERN_OK;
    const char *slash = strrchr(kv->path, '/');
    enum tern_code code = TERN_OK;
    if (slash && slash != kv->path) {
        snprintf(path, sizeof path, "%.*s", (int)(slash - kv->path), kv->path);
        code = fs_mkdirs(fs, path);
    }
    snprintf(path, sizeof path, "%s.lock", kv->path);
    if (code == TERN_OK)
        code = fs_open(fs, path, FS_READ | FS_WRITE | FS_CREATE, &file);
    if (code == TERN_OK)
        code = file_lock(file);
    if (code == TERN_IN_USE)
        error_set(err, code, "another nameserver changes %s: give each its own kvConfigPath",
                  kv->path);
    else if (code != TERN_OK)
        error_set(err, code, "cannot lock %s: %s", path, tern_code_text(code));
    if (code == TERN_OK)
        code = kv_config_load(kv, err);
    if (code != TERN_OK) {
        file_close(file);
        return code;
    }
    kv->lock_file = file;
    return TERN_OK;
}

static enum tern_code persist(struct kv_config *kv, const struct kv_draft *draft,
                              struct tern_error *err)
{
    size_t len;
    char *text = NULL;
    json_t *root = json_object();
    enum tern_code code = TERN_NO_MEMORY;
    if (root && json_object_set(root, "configTable", draft->table) == 0)
        text = json_format_pretty(root, &len);
    if (text)
        code = durable_write(kv->env, kv->path, text, len, "", err);
    else
        error_set(err, code, "%s", kv->path);
    free(text);
    json_decref(root);
    return code;
}

void kv_config_apply(struct kv_config *kv, struct kv_change *changes, size_t count)
{
    struct kv_draft draft = {0};
    struct tern_error err = {0};
    enum tern_code code = own_file(kv, &err);
    if (code == TERN_OK) {
        draft = (struct kv_draft){.table = json_deep_copy(kv->table),
                                  .entry_count = kv->entry_count,
                                  .total_bytes = kv->total_bytes};
        if (!draft.table)
            code = error_set(&err, TERN_NO_MEMORY, "copy of the table");
    }
    for (size_t i = 0; i < count; i++) {
        changes[i].err = (struct tern_error){0};
        changes[i].code = code == TERN_OK ? draft_apply(&draft, &changes[i]) : TERN_OK;
    }
    if (code == TERN_OK && draft.changed)
        code = persist(kv, &draft, &err);
    if (code == TERN_OK && draft.changed)
        publish(kv, &draft);
    for (size_t i = 0; code != TERN_OK && i < count; i++) {
        if (changes[i].code != TERN_OK)
            continue; /* it would not have been made anyway */
        changes[i].code = code;
        changes[i].err = err;
    }
    if (code != TERN_OK)
        log_error(kv->env->log, "kv_not_changed", "path=%s changes=%zu error=\"%s\"", kv->path,
                  count, error_text(&err, code));
    json_decref(draft.table);
}

/* ---- reading ---- */

static const char *copy_text(struct arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *out = arena_alloc(arena, size);
    return out ? memcpy(out, text, size) : NULL;
}

enum tern_code kv_config_get(struct kv_config *kv, const char *name_space, const char *key,
                             struct arena *arena, const char **value)
{
    enum tern_code code = TERN_QUERY_NOT_FOUND;
    lock_acquire(&kv->lock);
    const json_t *space = json_object_get(kv->table, name_space);
    const char *found = json_string_value(json_object_get(space, key));
    if (found) {
        *value = copy_text(arena, found);
        code = *value ? TERN_OK : TERN_NO_MEMORY;
    }
    lock_release(&kv->lock);
    return code;
}

static int by_key(const void *a, const void *b)
{
    const struct kv_entry *left = a;
    const struct kv_entry *right = b;
    return strcmp(left->key, right->key);
}

enum tern_code kv_config_list(struct kv_config *kv, const char *name_space, struct arena *arena,
                              struct kv_entry **entries, size_t *count)
{
    enum tern_code code = TERN_QUERY_NOT_FOUND;
    const char *key;
    json_t *value;
    *count = 0;
    lock_acquire(&kv->lock);
    json_t *space = json_object_get(kv->table, name_space);
    if (!space)
        goto out;
    code = TERN_NO_MEMORY;
    *entries = arena_alloc(arena, json_object_size(space) * sizeof **entries);
    if (!*entries)
        goto out;
    json_object_foreach(space, key, value)
    {
        struct kv_entry *entry = &(*entries)[*count];
        entry->key = copy_text(arena, key);
        entry->value = copy_text(arena, json_string_value(value));
        if (!entry->key || !entry->value)
            goto out;
        (*count)++;
    }
    code = TERN_OK;
out:
    lock_release(&kv->lock);
    if (code == TERN_OK)
        qsort(*entries, *count, sizeof **entries, by_key);
    return code;
}

size_t kv_config_count(struct kv_config *kv)
{
    lock_acquire(&kv->lock);
    size_t count = kv->entry_count;
    lock_release(&kv->lock);
    return count;
}
