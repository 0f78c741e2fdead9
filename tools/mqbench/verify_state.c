/*
 * What was acknowledged and what was sent more than once, kept as JSON so that a later run can
 * finish the check. Written beside the file and renamed, so that a run that dies leaves no half.
 * Threads: one. Failure modes: said on stderr.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqbench/verify.h"

enum { PATH_BYTES = 4096 };

/* Beyond what any run sends, so that a damaged file does not keep the check busy for long. */
static const json_int_t acked_max = 1000000000;

/* Of what a run sent; orderly and failing readers read what a plain one sends. */
static const char *kind_of(const struct verify *verify)
{
    switch (verify->options->check) {
    case CHECK_DELAYED:
        return "delayed";
    case CHECK_TRANSACTIONAL:
        return "transactional";
    case CHECK_FILTERED:
        return "filtered";
    case CHECK_PLAIN:
    case CHECK_ORDERLY:
    case CHECK_FAILING:
        break;
    }
    return "plain";
}

static json_t *stream_to_json(const struct verify_stream *stream)
{
    json_t *retries = json_array();
    for (size_t i = 0; i < stream->retry_count; i++)
        json_array_append_new(retries, json_pack("[I, I, I]", (json_int_t)stream->retries[i].first,
                                                 (json_int_t)stream->retries[i].count,
                                                 (json_int_t)stream->retries[i].tries));
    return json_pack("{s:s, s:i, s:I, s:o}", "broker", stream->queue.broker_name, "queue",
                     (int)stream->queue.queue_id, "acked", (json_int_t)stream->acked, "retries",
                     retries);
}

int verify_state_save(const struct verify *verify, const char *path)
{
    char beside[PATH_BYTES];
    char run_id[32];
    json_t *streams = json_array();
    for (size_t i = 0; i < verify->stream_count; i++)
        json_array_append_new(streams, stream_to_json(&verify->streams[i]));
    snprintf(run_id, sizeof run_id, "%016" PRIx64, verify->run_id);
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:o}", "topic", verify->options->topic, "run",
                             run_id, "check", kind_of(verify), "size",
                             (json_int_t)verify->options->size_bytes, "streams", streams);
    bool done = json && snprintf(beside, sizeof beside, "%s.new", path) < PATH_BYTES &&
                json_dump_file(json, beside, JSON_INDENT(1)) == 0 && rename(beside, path) == 0;
    json_decref(json);
    if (done)
        return EXIT_OK;
    fprintf(stderr, "mqbench: --state: cannot write %s\n", path);
    return EXIT_NO;
}

static bool retries_from_json(struct verify_stream *stream, const json_t *list)
{
    size_t count = json_array_size(list);
    if (count == 0)
        return true;
    stream->retries = calloc(count, sizeof *stream->retries);
    if (!stream->retries)
        return false;
    for (size_t i = 0; i < count; i++) {
        json_int_t first, messages, tries;
        if (json_unpack(json_array_get(list, i), "[I, I, I]", &first, &messages, &tries) != 0 ||
            first < 0 || messages < 1 || messages > UINT32_MAX || tries < 2 || tries > UINT32_MAX)
            return false;
        stream->retries[i] = (struct verify_retry){
            .first = (uint64_t)first, .count = (uint32_t)messages, .tries = (uint32_t)tries};
    }
    stream->retry_count = stream->retry_cap = count;
    return true;
}

static bool stream_from_json(struct verify *verify, struct verify_stream *stream,
                             const json_t *json)
{
    const char *broker;
    int queue;
    json_int_t acked;
    if (json_unpack((json_t *)(uintptr_t)json, "{s:s, s:i, s:I}", "broker", &broker, "queue",
                    &queue, "acked", &acked) != 0 ||
        acked < 0 || acked > acked_max ||
        !retries_from_json(stream, json_object_get(json, "retries")))
        return false;
    snprintf(stream->queue.topic, sizeof stream->queue.topic, "%s", verify->options->topic);
    snprintf(stream->queue.broker_name, sizeof stream->queue.broker_name, "%s", broker);
    stream->queue.queue_id = queue;
    verify_note_acked(verify, stream, (uint64_t)acked, 0);
    return true;
}

int verify_state_load(struct verify *verify, const char *path)
{
    json_error_t at;
    json_t *json = json_load_file(path, 0, &at), *streams;
    const char *topic, *run_id, *kind = "plain"; /* what states of before the other kinds are */
    if (!json) {
        fprintf(stderr, "mqbench: --state: %s:%d: %s\n", path, at.line, at.text);
        return EXIT_USAGE;
    }
    int status = EXIT_USAGE;
    if (json_unpack_ex(json, &at, 0, "{s:s, s:s, s?s, s:o}", "topic", &topic, "run", &run_id,
                       "check", &kind, "streams", &streams) != 0 ||
        strcmp(topic, verify->options->topic) || json_array_size(streams) == 0 ||
        json_array_size(streams) > VERIFY_STREAMS_MAX) {
        fprintf(stderr, "mqbench: --state: %s is no state of topic %s\n", path,
                verify->options->topic);
        goto out;
    }
    if (strcmp(kind, kind_of(verify)) != 0) {
        fprintf(stderr, "mqbench: --state: %s is of a %s check, and this one is %s\n", path, kind,
                kind_of(verify));
        goto out;
    }
    verify->run_id = strtoull(run_id, NULL, 16);
    verify->stream_count = json_array_size(streams);
    verify->streams = calloc(verify->stream_count, sizeof *verify->streams);
    if (!verify->streams) {
        status = bench_fail("verify", TERN_NO_MEMORY, NULL);
        goto out;
    }
    for (size_t i = 0; i < verify->stream_count; i++) {
        verify->streams[i].id = (uint32_t)i;
        if (!stream_from_json(verify, &verify->streams[i], json_array_get(streams, i))) {
            fprintf(stderr, "mqbench: --state: %s: stream %zu is malformed\n", path, i);
            goto out;
        }
    }
    status = EXIT_OK;
out:
    json_decref(json);
    return status;
}
