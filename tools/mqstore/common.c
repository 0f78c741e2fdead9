/* What the commands share. Threads: one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "tools/mqstore/mqstore.h"

static const int64_t progress_every_ns = INT64_C(200) * 1000 * 1000;

void mqstore_options_init(struct mqstore_options *options)
{
    memset(options, 0, sizeof *options);
    options->to = INT64_MAX;
    options->count = UINT64_MAX;
    options->out = stdout;
    options->warn = stderr;
}

int mqstore_fail(const struct mqstore_options *options, enum tern_code code,
                 const struct tern_error *err)
{
    fprintf(options->warn, "mqstore: %s\n", error_text(err, code));
    return MQSTORE_FAILED;
}

int mqstore_open(struct store_dir *dir, const struct env *env, const char *root, bool keep_lock,
                 const struct mqstore_options *options)
{
    struct tern_error err = {TERN_OK, ""};
    enum tern_code code = store_dir_open(dir, env, root, options->segment_bytes, keep_lock, &err);
    if (code) {
        store_dir_close(dir);
        (void)mqstore_fail(options, code, &err);
        return code == TERN_NOT_FOUND || code == TERN_NOT_SUPPORTED ? MQSTORE_USAGE
                                                                    : MQSTORE_FAILED;
    }
    if (dir->lock_state == LOCK_HELD)
        fprintf(options->warn,
                "mqstore: %s is in use: a broker is writing to it; only what is settled is looked "
                "at\n",
                root);
    if (dir->lock_state == LOCK_UNKNOWN)
        fprintf(options->warn,
                "mqstore: %s/lock cannot be opened for writing: whether the store is in use is not "
                "known; it is taken as not in use\n",
                root);
    return MQSTORE_OK;
}

void mqstore_print_json(json_t *json, const struct mqstore_options *options)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    if (!text) {
        fputs("mqstore: out of memory\n", options->warn);
        exit(MQSTORE_FAILED);
    }
    fputs(text, options->out);
    fputc('\n', options->out);
    free(text);
}

/* ---- progress ---- */

void progress_init(struct progress *progress, const struct env *env,
                   const struct mqstore_options *options)
{
    *progress = (struct progress){.options = options, .env = env};
}

void progress_show(struct progress *progress, const char *what, int64_t done, int64_t all)
{
    if (!progress->options->progress)
        return;
    int64_t now = clock_mono_ns(progress->env->clock);
    if (now < progress->next_ns)
        return;
    progress->next_ns = now + progress_every_ns;
    progress->shown = true;
    fprintf(progress->options->warn, "\r%s: %" PRId64 " of %" PRId64 " MiB ", what, done >> 20,
            all >> 20);
    fflush(progress->options->warn);
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        fprintf(progress->options->warn, "\r%40s\r", "");
    progress->shown = false;
}
