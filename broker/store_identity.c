/* Kept as {"storeUuid":"<32 hex digits>"} through durable_file. */
#include "broker/store_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/durable_file.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/rng.h"

static bool parse_hex(const char *text, uint8_t uuid[16])
{
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return false;
    for (int i = 0; i < 16; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        uuid[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

static enum tern_code parse_identity(void *arg, const char *text, size_t len, const char *extra,
                                     struct tern_error *err)
{
    json_t *json;
    (void)extra;
    enum tern_code code = json_parse_fastjson(text, len, &json, err);
    if (code != TERN_OK)
        return code;
    const char *hex = json_string_value(json_object_get(json, "storeUuid"));
    if (!hex || !parse_hex(hex, arg))
        code = error_set(err, TERN_CORRUPT, "storeUuid is not 32 hex digits");
    json_decref(json);
    return code;
}

static enum tern_code make_identity(const struct env *env, const char *path, uint8_t uuid[16],
                                    struct tern_error *err)
{
    char text[64] = "{\"storeUuid\":\"";
    size_t at = strlen(text);
    for (int i = 0; i < 16; i++) {
        uuid[i] = (uint8_t)rng_below(env->rng, 256);
        at += (size_t)snprintf(text + at, sizeof text - at, "%02x", uuid[i]);
    }
    at += (size_t)snprintf(text + at, sizeof text - at, "\"}\n");
    return durable_write(env, path, text, at, "", err);
}

enum tern_code store_identity_load(const struct env *env, const char *root_dir, uint8_t uuid[16],
                                   struct tern_error *err)
{
    char dir[FS_PATH_BYTES], path[FS_PATH_BYTES];
    enum tern_code code = fs_join(dir, root_dir, "ternmq");
    if (code == TERN_OK)
        code = fs_join(path, dir, "identity.json");
    if (code != TERN_OK)
        return error_set(err, code, "storePathRootDir: '%s' is too long", root_dir);
    if ((code = fs_mkdirs(env->fs, dir)))
        return error_set(err, code, "cannot make %s: %s", dir, tern_code_text(code));
    code = durable_read(env, path, parse_identity, uuid, err);
    return code == TERN_NOT_FOUND ? make_identity(env, path, uuid, err) : code;
}
