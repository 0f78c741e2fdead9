/*
 * mqstore: looking at a store offline. Each command is one function, so that tests can call it.
 *
 * Data goes to options->out, warnings and progress to options->warn. What a function returns is the
 * program's exit status: 0 ok, 1 the check failed or the store cannot be read, 2 wrong usage (also:
 * no store in the directory).
 */
#ifndef MQSTORE_MQSTORE_H
#define MQSTORE_MQSTORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/env.h"
#include "tools/mqstore/store_dir.h"

enum { MQSTORE_OK = 0, MQSTORE_FAILED = 1, MQSTORE_USAGE = 2 };

struct mqstore_options {
    bool json;
    int64_t segment_bytes; /* 0: the first segment's length */
    uint32_t index_slots;  /* 0: found out */
    int64_t from, to;      /* dump: records that begin in [from, to) */
    const char *topic;     /* dump: only of this one; NULL: all */
    uint64_t count;        /* dump: at most so many */
    bool body;             /* dump: with bodies */
    bool progress;         /* verify, diff */
    bool yes;              /* repair: write */
    FILE *out;
    FILE *warn;
};

void mqstore_options_init(struct mqstore_options *options);

int mqstore_ls(const struct env *env, const char *root, const struct mqstore_options *options);
int mqstore_dump(const struct env *env, const char *root, const struct mqstore_options *options);
int mqstore_verify(const struct env *env, const char *root, const struct mqstore_options *options);
int mqstore_repair(const struct env *env, const char *root, const struct mqstore_options *options);
int mqstore_diff(const struct env *env, const char *root_a, const char *root_b,
                 const struct mqstore_options *options);

/* The whole program. */
int mqstore_main(const struct env *env, int argc, char **argv, FILE *out, FILE *warn);

/* ---- shared by the commands ---- */

/*
 * store_dir_open(), and a warning when the store is in use or that cannot be told. MQSTORE_OK or
 * the exit status, the error having been printed.
 */
int mqstore_open(struct store_dir *dir, const struct env *env, const char *root, bool keep_lock,
                 const struct mqstore_options *options);
/* Prints the error; returns MQSTORE_FAILED. */
int mqstore_fail(const struct mqstore_options *options, enum tern_code code,
                 const struct tern_error *err);
/* One line of JSON and the end of its life. */
void mqstore_print_json(json_t *json, const struct mqstore_options *options);

/* A line on a terminal that tells how far it is, at most a few times a second. */
struct progress {
    const struct mqstore_options *options;
    const struct env *env;
    int64_t next_ns;
    bool shown;
};
void progress_init(struct progress *progress, const struct env *env,
                   const struct mqstore_options *options);
void progress_show(struct progress *progress, const char *what, int64_t done, int64_t all);
void progress_end(struct progress *progress);

#endif
