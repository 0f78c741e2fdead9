/*
 * Small files that must survive a power loss at any moment: the JSON files of config/ and the like.
 *
 * RocketMQ's file `f` stays exactly in its shape; beside it `f.bak` holds the previous generation
 * and `f.meta` our companion: for each generation its length, CRC-32, generation number and an
 * opaque extra text (e.g. versions). Writing: f.tmp, fsync, verify the old `f` and rename it to
 * f.bak only when it is good, rename, directory fsync.
 *
 * Reading: a generation is good when it parses (the caller's parse function accepts it) and, where
 * the companion knows it, its checksum fits. A file whose checksum does not fit but which parses
 * was edited by hand or by RocketMQ: it wins, with a warning and without extra.
 */
#ifndef BASE_DURABLE_FILE_H
#define BASE_DURABLE_FILE_H

#include <stddef.h>

#include "base/env.h"
#include "base/error.h"

/*
 * Accepts or refuses one generation's text (terminated, len without the NUL); fills what arg points
 * to, but only when it accepts. extra is NULL when the companion does not know this text.
 */
typedef enum tern_code (*durable_parse_fn)(void *arg, const char *text, size_t len,
                                           const char *extra, struct tern_error *err);

/* Replaces the file durably. After an error the previous generation is intact. @blocks on the disk
 */
MUST_CHECK enum tern_code durable_write(const struct env *env, const char *path, const char *text,
                                        size_t len, const char *extra, struct tern_error *err);

/*
 * Reads the newest good generation. TERN_NOT_FOUND when neither file exists; TERN_CORRUPT when
 * there are files but none is good, with a text that names them: the caller refuses to start and
 * deletes nothing.
 */
MUST_CHECK enum tern_code durable_read(const struct env *env, const char *path,
                                       durable_parse_fn parse, void *arg, struct tern_error *err);

#endif
