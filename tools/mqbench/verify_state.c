/* What was acknowledged, kept as JSON so that a later run can finish the check. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqbench/verify.h"

int verify_state_save(const struct verify *verify, const char *path)
{
    json_t *streams = json_array();
    for (size_t i = 0; i < verify->stream_count; i++) {
        const struct verify_stream *stream = &verify->streams[i];
        json_array_append_new(
            streams, json_pack("{s:s, s:i, s:I}", "broker", stream->queue.broker_name, "queue",
                               (int)stream->queue.queue_id, "acked", (json_int_t)stream->acked));
    }
    char run_id[32];
    snprintf(run_id, sizeof run_id, "%016" PRIx64, verify->run_id);
    json_t *json = json_pack("{s:s, s:s, s:I, s:o}", "topic", verify->options->topic, "run", run_id,
                             "size", (json_int_t)verify->options->size_bytes, "streams", streams);
    int rv = json ? json_dump_file(json, path, JSON_INDENT(1)) : -1;
    json_decref(json);
    if (rv == 0)
        return EXIT_OK;
    fprintf(stderr, "mqbench: --state: cannot write %s\n", path);
    return EXIT_NO;
}

int verify_state_load(struct verify *verify, const char *path)
{
    json_error_t at;
    json_t *json = json_load_file(path, 0, &at), *streams;
    const char *topic, *run_id;
    if (!json) {
        fprintf(stderr, "mqbench: --state: %s:%d: %s\n", path, at.line, at.text);
        return EXIT_USAGE;
    }
    int status = EXIT_USAGE;
    if (json_unpack_ex(json, &at, 0, "{s:s, s:s, s:o}", "topic", &topic, "run", &run_id, "streams",
                       &streams) != 0 ||
        strcmp(topic, verify->options->topic) || json_array_size(streams) == 0 ||
        json_array_size(streams) > VERIFY_STREAMS_MAX) {
        fprintf(stderr, "mqbench: --state: %s is no state of topic %s\n", path,
                verify->options->topic);
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
        struct verify_stream *stream = &verify->streams[i];
        const char *broker;
        int queue;
        json_int_t acked;
        if (json_unpack(json_array_get(streams, i), "{s:s, s:i, s:I}", "broker", &broker, "queue",
                        &queue, "acked", &acked) != 0) {
            fprintf(stderr, "mqbench: --state: %s: stream %zu is malformed\n", path, i);
            goto out;
        }
        snprintf(stream->queue.topic, sizeof stream->queue.topic, "%s", topic);
        snprintf(stream->queue.broker_name, sizeof stream->queue.broker_name, "%s", broker);
        stream->queue.queue_id = queue;
        stream->id = (uint32_t)i;
        stream->acked = (uint64_t)acked;
    }
    status = EXIT_OK;
out:
    json_decref(json);
    return status;
}
