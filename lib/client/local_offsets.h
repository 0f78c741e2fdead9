/*
 * Progress in a local file: what a broadcasting consumer keeps, who has nobody to keep it for him.
 *
 *   DIR/INSTANCE/GROUP/offsets        one line a queue, the newest generation
 *                      offsets.bak    the one before; .meta: lengths and checksums of both
 *                      lock           held while a consumer uses the directory
 *
 *   ternmq-offsets 1
 *   TopicA broker-a 0 1234
 *
 * INSTANCE and GROUP have every byte that is no letter, digit, '_' or '-' written as %XX. The file
 * may be edited by hand while no consumer runs: what parses is believed, with a warning. An offset
 * may fall: a queue that begins elsewhere says so.
 *
 * Threads: one at a time. Everything but the vtable's update and remove blocks on the disk.
 */
#ifndef CLIENT_LOCAL_OFFSETS_H
#define CLIENT_LOCAL_OFFSETS_H

#include <tern/consumer.h>

#include "base/env.h"
#include "base/error.h"

struct local_offsets;

enum { LOCAL_QUEUES_MAX = 65536 };

/*
 * Makes and locks the directory; reads nothing yet (load does). env is borrowed. dir NULL or "":
 * $HOME/.ternmq_offsets. TERN_IN_USE: another consumer of this group and instance name has it;
 * TERN_INVALID: no HOME; else what the disk says. *out is the caller's: local_offsets_close().
 */
MUST_CHECK enum tern_code local_offsets_open(const struct env *env, const char *dir,
                                             const char *instance, const char *group,
                                             struct local_offsets **out, struct tern_error *err);
/* NULL allowed. Writes nothing. */
void local_offsets_close(struct local_offsets *offsets);
/* The store's functions; arg is the offsets, which must outlive it. */
struct tern_offset_store local_offsets_store(struct local_offsets *offsets);

#endif
