/*
 * The in-sync set's file, ROOT/ternmq/insync.json:
 *
 *   {"members": [{"haAddress": "10.0.0.2:10912", "id": 1, "uuid": "<32 hex digits>"}]}
 *
 * Its place: written before who counts changes (source), read when a master starts (opening).
 * Threads: one at a time, the ha task and whoever starts it. Failure modes: a damaged generation is
 * passed over for the other; both damaged: TERN_CORRUPT, nothing is deleted, and the master asks
 * for help instead of guessing for whom it should wait.
 */
#include "broker/ha/insync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/durable_file.h"
#include "base/fs.h"
#include "base/json.h"

static enum tern_code make_path(const char *root_dir, char dir[FS_PATH_BYTES],
                                char path[FS_PATH_BYTES], struct tern_error *err)
{
    enum tern_code code = fs_join(dir, root_dir, "ternmq");
    if (code == TERN_OK)
        code = fs_join(path, dir, "insync.json");
    if (code != TERN_OK)
        return error_set(err, code, "storePathRootDir: '%s' is too long", root_dir);
    return TERN_OK;
}

static bool parse_uuid(const char *text, uint8_t uuid[HA_UUID_BYTES])
{
    if (!text || strlen(text) != 2 * HA_UUID_BYTES ||
        strspn(text, "0123456789abcdef") != 2 * HA_UUID_BYTES)
        return false;
    for (int i = 0; i < HA_UUID_BYTES; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        uuid[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

static bool take_member(const json_t *object, struct insync_member *out)
{
    const json_t *id = json_object_get(object, "id");
    const char *address = json_string_value(json_object_get(object, "haAddress"));
    if (!json_is_integer(id) || json_integer_value(id) < 0 || !address ||
        strlen(address) >= sizeof out->ha_address)
        return false;
    memset(out, 0, sizeof *out);
    out->id = json_integer_value(id);
    memcpy(out->ha_address, address, strlen(address) + 1);
    return parse_uuid(json_string_value(json_object_get(object, "uuid")), out->uuid);
}

/* durable_parse_fn */
static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct insync_set *set = arg;
    struct insync_set read;
    json_t *root = NULL;
    (void)extra;
    enum tern_code code = json_parse_fastjson(text, len, &root, err);
    if (code)
        return code;
    const json_t *array = json_object_get(root, "members");
    memset(&read, 0, sizeof read);
    bool good = json_is_array(array) && json_array_size(array) <= INSYNC_MAX;
    for (size_t i = 0; good && i < json_array_size(array); i++) {
        good = take_member(json_array_get(array, i), &read.members[i]);
        for (size_t j = 0; good && j < i; j++)
            good = read.members[j].id != read.members[i].id;
        read.count = i + 1;
    }
    json_decref(root);
    if (!good)
        return error_set(err, TERN_CORRUPT,
                         "it is no list of at most %d members (id, uuid, haAddress)",
                         (int)INSYNC_MAX);
    *set = read;
    return TERN_OK;
}

enum tern_code insync_load(const struct env *env, const char *root_dir, struct insync_set *out,
                           bool *known, struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    char path[FS_PATH_BYTES];
    memset(out, 0, sizeof *out);
    *known = false;
    enum tern_code code = make_path(root_dir, dir, path, err);
    if (code == TERN_OK)
        code = durable_read(env, path, parse, out, err);
    if (code == TERN_NOT_FOUND)
        return TERN_OK;
    *known = code == TERN_OK;
    return code;
}

/* NULL: no memory. */
static json_t *member_json(const struct insync_member *member)
{
    char hex[2 * HA_UUID_BYTES + 1];
    for (size_t i = 0; i < HA_UUID_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", member->uuid[i]);
    return json_pack("{s:I, s:s, s:s}", "id", (json_int_t)member->id, "uuid", hex, "haAddress",
                     member->ha_address);
}

enum tern_code insync_save(const struct env *env, const char *root_dir,
                           const struct insync_set *set, struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    char path[FS_PATH_BYTES];
    char *text = NULL;
    size_t len = 0;
    enum tern_code code = make_path(root_dir, dir, path, err);
    if (code)
        return code;
    if ((code = fs_mkdirs(env->fs, dir)))
        return error_set(err, code, "cannot make %s: %s", dir, tern_code_text(code));
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; good && i < set->count; i++)
        good = json_array_append_new(array, member_json(&set->members[i])) == 0;
    json_t *root = good ? json_pack("{s:O}", "members", array) : NULL;
    if (root)
        text = json_format_pretty(root, &len);
    json_decref(root);
    json_decref(array);
    if (!text)
        return error_set(err, TERN_NO_MEMORY, "no memory to write %s", path);
    code = durable_write(env, path, text, len, "", err);
    free(text);
    return code;
}
