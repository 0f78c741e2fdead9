/* The UUID of a store, made once and kept in ROOT/ternmq/identity.json. */
#ifndef BROKER_STORE_IDENTITY_H
#define BROKER_STORE_IDENTITY_H

#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

/* Reads it, or makes and writes it durably. TERN_CORRUPT: a file is there but damaged. @blocks on
 * the disk */
MUST_CHECK enum tern_code store_identity_load(const struct env *env, const char *root_dir,
                                              uint8_t uuid[16], struct tern_error *err);

#endif
