/*
 * Namespaces: names that applications of different owners use without meeting each other.
 *
 *   application   T             group            (never sees the namespace)
 *   cluster       NS%T          NS%group         (brokers and mqadmin know nothing of it)
 *   retries       %RETRY%NS%group, %DLQ%NS%group
 *
 * A namespace is put on and taken off at the edges of the library: where an application names a
 * topic or group, and where it sees one. System topics are everybody's and stay as they are.
 */
#ifndef CLIENT_NAMESPACE_H
#define CLIENT_NAMESPACE_H

#include <stddef.h>

#include "base/error.h"
#include "base/names.h"

enum { NAMESPACE_MAX = 64 };

/* ^[a-zA-Z0-9_-]+$, at most NAMESPACE_MAX; "" (none) is good. TERN_INVALID with a text. */
MUST_CHECK enum tern_code namespace_check(const char *ns, struct tern_error *err);

/*
 * NS%name into out, which has room for max bytes and a terminator. Names that carry the namespace
 * already, system topics, and everything when ns is "" stay as they are; the prefixes of retry and
 * dead letter topics stay in front. TERN_INVALID above max, with both lengths.
 */
MUST_CHECK enum tern_code namespace_wrap(const char *ns, const char *name, size_t max, char *out,
                                         struct tern_error *err);

/* How many bytes of the topic an application does not see: those of "NS%", or 0. */
size_t namespace_skip(const char *ns, const char *topic);

/* Whether the namespace stands behind the prefix of a retry or dead letter topic. */
bool namespace_within(const char *ns, const char *topic);

/* The topic without the namespace, in place; a retry topic keeps its prefix. */
void namespace_strip(const char *ns, char topic[TOPIC_NAME_MAX + 1]);

#endif
