/*
 * Putting namespaces on names and taking them off. Pure functions on texts.
 *
 * Invariants: strip(wrap(name)) is the name; wrap(wrap(name)) is wrap(name).
 *
 * Threads: any.
 */
#include "client/namespace.h"

#include <string.h>

enum { SEPARATOR = '%' };

enum tern_code namespace_check(const char *ns, struct tern_error *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t len = strnlen(ns, NAMESPACE_MAX + 1);
    if (len > NAMESPACE_MAX)
        return error_set(err, TERN_INVALID, "namespace has more than %d characters",
                         (int)NAMESPACE_MAX);
    if (strspn(ns, allowed) != len)
        return error_set(err, TERN_INVALID, "namespace %s has a character other than a-zA-Z0-9_-",
                         ns);
    return TERN_OK;
}

/* Bytes of a retry or dead letter prefix. */
static size_t prefix_len(const char *name)
{
    static const char *const prefixes[] = {RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return strlen(prefixes[i]);
    return 0;
}

size_t namespace_skip(const char *ns, const char *topic)
{
    size_t len = strlen(ns);
    bool has = len > 0 && strncmp(topic, ns, len) == 0 && topic[len] == SEPARATOR;
    return has ? len + 1 : 0;
}

bool namespace_within(const char *ns, const char *topic)
{
    size_t prefix = prefix_len(topic);
    return prefix > 0 && namespace_skip(ns, topic + prefix) > 0;
}

enum tern_code namespace_wrap(const char *ns, const char *name, size_t max, char *out,
                              struct tern_error *err)
{
    size_t ns_len = strlen(ns);
    size_t len = strnlen(name, max + 1);
    size_t prefix = prefix_len(name);
    bool bare = ns_len == 0 || namespace_skip(ns, name + prefix) > 0 || topic_is_system(name, len);
    size_t added = bare ? 0 : ns_len + 1;
    if (len + added > max)
        return error_set(err, TERN_INVALID,
                         "%.255s has more than %zu characters with its "
                         "namespace %s",
                         name, max, ns);
    memcpy(out, name, prefix);
    if (!bare) {
        memcpy(out + prefix, ns, ns_len);
        out[prefix + ns_len] = SEPARATOR;
    }
    memcpy(out + prefix + added, name + prefix, len - prefix + 1);
    return TERN_OK;
}

void namespace_strip(const char *ns, char topic[TOPIC_NAME_MAX + 1])
{
    char *name = topic + prefix_len(topic);
    size_t skip = namespace_skip(ns, name);
    memmove(name, name + skip, strlen(name + skip) + 1);
}
