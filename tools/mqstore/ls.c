/*
 * mqstore ls: what lies in a store. Reads heads only, never the whole log. Threads: one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqstore/index_check.h"
#include "tools/mqstore/log_reader.h"
#include "tools/mqstore/memory.h"
#include "tools/mqstore/mqstore.h"
#include "tools/mqstore/queue_reader.h"

struct name_list {
    char **names;
    size_t count;
};

static bool add_name(void *arg, const char *name, bool is_dir)
{
    struct name_list *list = arg;
    if (is_dir)
        return true;
    list->names = tool_grow(list->names, list->count, sizeof *list->names);
    list->names[list->count++] = tool_strdup(name);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* [{name, bytes}]; an absent folder has none. */
static json_t *list_config(const struct store_dir *dir)
{
    struct name_list list = {NULL, 0};
    json_t *files = json_array();
    char folder[FS_PATH_BYTES];
    if (fs_join(folder, dir->root, "config") == TERN_OK)
        (void)!fs_list(dir->env->fs, folder, add_name, &list);
    if (list.count)
        qsort(list.names, list.count, sizeof *list.names, compare_names);
    for (size_t i = 0; i < list.count; i++) {
        char path[FS_PATH_BYTES];
        struct fs_stat stat;
        if (fs_join(path, folder, list.names[i]) == TERN_OK &&
            fs_stat(dir->env->fs, path, &stat) == TERN_OK)
            json_array_append_new(files, json_pack("{s:s,s:I}", "name", list.names[i], "bytes",
                                                   (json_int_t)stat.size_bytes));
        free(list.names[i]);
    }
    free(list.names);
    return files;
}

/* ---- replication ---- */

/* What ternmq/epochs.json says; NULL: no such file, or none that can be read. */
static json_t *list_epochs(const struct store_dir *dir)
{
    enum { MOST_BYTES = 1 << 18 }; /* 1024 epochs fit */
    char *bytes = tool_alloc(1, MOST_BYTES);
    struct file *file;
    size_t got = 0;
    json_t *json = NULL;
    if (store_dir_open_file(dir, "ternmq/epochs.json", &file) == TERN_OK) {
        if (file_pread(file, bytes, MOST_BYTES, 0, &got) == TERN_OK)
            json = json_loadb(bytes, got, 0, NULL);
        file_close(file);
    }
    free(bytes);
    json_t *epochs = json_incref(json_object_get(json, "epochs"));
    json_decref(json);
    return epochs;
}

static bool add_diverged(void *arg, const char *name, bool is_dir)
{
    struct name_list *list = arg;
    char shown[STORE_NAME_BYTES];
    snprintf(shown, sizeof shown, "%s%s", name, is_dir ? "/" : "");
    list->names = tool_grow(list->names, list->count, sizeof *list->names);
    list->names[list->count++] = tool_strdup(shown);
    return true;
}

/* [{name, bytes}] of what cuts of the log have left; a folder (a whole log) has no bytes. */
static json_t *list_diverged(const struct store_dir *dir)
{
    struct name_list list = {NULL, 0};
    json_t *files = json_array();
    char folder[FS_PATH_BYTES];
    if (fs_join(folder, dir->root, "diverged") == TERN_OK)
        (void)!fs_list(dir->env->fs, folder, add_diverged, &list);
    if (list.count)
        qsort(list.names, list.count, sizeof *list.names, compare_names);
    for (size_t i = 0; i < list.count; i++) {
        char path[FS_PATH_BYTES];
        struct fs_stat stat = {0};
        bool is_file = list.names[i][strlen(list.names[i]) - 1] != '/';
        if (is_file && fs_join(path, folder, list.names[i]) == TERN_OK)
            (void)!fs_stat(dir->env->fs, path, &stat);
        json_array_append_new(files, json_pack("{s:s,s:I}", "name", list.names[i], "bytes",
                                               (json_int_t)(is_file ? stat.size_bytes : 0)));
        free(list.names[i]);
    }
    free(list.names);
    return files;
}

/* ---- gathering ---- */

static enum tern_code list_segments(const struct store_dir *dir, json_t *out,
                                    struct tern_error *err)
{
    for (uint32_t i = 0; i < dir->segment_count; i++) {
        const struct log_segment *segment = &dir->segments[i];
        struct log_reader reader;
        struct log_item item;
        char name[STORE_NAME_BYTES];
        log_reader_init(&reader, dir, segment->base);
        reader.limit = segment->base + 1; /* only what stands at its beginning */
        enum tern_code code = log_reader_next(&reader, &item, err);
        bool record = !code && item.kind == LOG_RECORD;
        store_dir_segment_name(name, segment->base);
        json_array_append_new(out, json_pack("{s:s,s:I,s:I,s:I}", "file", name, "firstOffset",
                                             (json_int_t)segment->base, "bytes",
                                             (json_int_t)segment->file_bytes, "firstStoreTimestamp",
                                             (json_int_t)(record ? item.record.store_ms : 0)));
        log_reader_fini(&reader);
        if (code)
            return code;
    }
    return TERN_OK;
}

static enum tern_code list_queues(const struct store_dir *dir, json_t *out, struct tern_error *err)
{
    struct queue_reader reader;
    enum tern_code code = queue_reader_init(&reader, dir, err);
    for (uint32_t i = 0; i < dir->queue_count && !code; i++) {
        int64_t min = 0;
        int64_t max = 0;
        code = queue_reader_range(&reader, i, log_reader_min(dir), &min, &max, err);
        json_array_append_new(
            out, json_pack("{s:s,s:i,s:I,s:I,s:i,s:I}", "topic", dir->queues[i].topic, "queueId",
                           (int)dir->queues[i].queue_id, "minOffset", (json_int_t)min, "maxOffset",
                           (json_int_t)max, "files", (int)dir->queues[i].file_count, "fileBytes",
                           (json_int_t)dir->queues[i].file_bytes));
    }
    queue_reader_fini(&reader);
    return code;
}

static enum tern_code list_indexes(const struct store_dir *dir, uint32_t slots, json_t *out,
                                   struct tern_error *err)
{
    for (uint32_t i = 0; i < dir->index_count; i++) {
        struct index_shape shape;
        char name[STORE_NAME_BYTES];
        enum tern_code code = index_shape_read(dir, &dir->indexes[i], slots, &shape, err);
        if (code)
            return code;
        const struct index_header *header = &shape.header;
        bool unfinished = header->end_ms == INDEX_UNFINISHED_MS;
        store_dir_index_name(name, &dir->indexes[i]);
        json_array_append_new(
            out, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "file", name, "bytes",
                           (json_int_t)dir->indexes[i].file_bytes, "slots", (json_int_t)shape.slots,
                           "entries", (json_int_t)(header->count ? header->count - 1 : 0),
                           "beginTimestamp", (json_int_t)header->begin_ms, "endTimestamp",
                           (json_int_t)(unfinished ? 0 : header->end_ms), "beginPhyOffset",
                           (json_int_t)header->begin_phys, "endPhyOffset",
                           (json_int_t)header->end_phys, "unfinished", (int)unfinished));
    }
    return TERN_OK;
}

static json_t *list_state(const struct store_dir *dir)
{
    static const char *const locks[] = {
        [LOCK_FREE] = "free", [LOCK_HELD] = "held", [LOCK_UNKNOWN] = "unknown"};
    json_t *json = json_pack("{s:s,s:b,s:s}", "lock", locks[dir->lock_state], "abort",
                             (int)dir->aborted, "kind", dir->ours ? "TernMQ" : "RocketMQ");
    if (dir->mark_known)
        json_object_set_new(json, "flushed", json_integer(dir->mark));
    if (dir->checkpoint_bytes >= 0)
        json_object_set_new(json, "checkpoint",
                            json_pack("{s:I,s:I,s:I}", "physicMsgTimestamp",
                                      (json_int_t)dir->checkpoint.physic_ms, "logicsMsgTimestamp",
                                      (json_int_t)dir->checkpoint.logics_ms, "indexMsgTimestamp",
                                      (json_int_t)dir->checkpoint.index_ms));
    return json;
}

/* ---- text ---- */

static json_int_t number(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

static const char *text(const json_t *row, const char *key)
{
    const char *value = json_string_value(json_object_get(row, key));
    return value ? value : "";
}

static const char *time_text(char out[40], int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (ms <= 0 || !localtime_r(&seconds, &tm)) {
        snprintf(out, 40, "-");
        return out;
    }
    size_t len = strftime(out, 40, "%Y-%m-%d %H:%M:%S", &tm);
    snprintf(out + len, 40 - len, ",%03d", (int)(ms % 1000));
    return out;
}

static void print_state(const json_t *json, FILE *out)
{
    const json_t *state = json_object_get(json, "state");
    const json_t *checkpoint = json_object_get(state, "checkpoint");
    char a[40], b[40], c[40];
    bool aborted = json_is_true(json_object_get(state, "abort"));
    fprintf(out, "store       %s's, lock %s, %s\n", text(state, "kind"), text(state, "lock"),
            aborted ? "abort mark is there: running, or not stopped cleanly" : "stopped cleanly");
    if (json_object_get(state, "flushed"))
        fprintf(out, "flushed     %" JSON_INTEGER_FORMAT "\n", number(state, "flushed"));
    if (checkpoint)
        fprintf(out, "checkpoint  log %s, queues %s, index %s\n",
                time_text(a, number(checkpoint, "physicMsgTimestamp")),
                time_text(b, number(checkpoint, "logicsMsgTimestamp")),
                time_text(c, number(checkpoint, "indexMsgTimestamp")));
}

/* Nothing when the store was never replicated. */
static void print_replication(const json_t *json, FILE *out)
{
    size_t i;
    const json_t *row;
    if (json_object_get(json, "epochs"))
        fprintf(out, "\n%-10s %20s  %s\n", "epoch", "from", "id");
    json_array_foreach(json_object_get(json, "epochs"), i, row)
        fprintf(out, "%-10" JSON_INTEGER_FORMAT " %20" JSON_INTEGER_FORMAT "  %s\n",
                number(row, "number"), number(row, "start"), text(row, "id"));
    if (json_array_size(json_object_get(json, "diverged")))
        fprintf(out, "\n%-62s %14s\n", "cut from the log, kept in diverged/", "bytes");
    json_array_foreach(json_object_get(json, "diverged"), i, row)
        fprintf(out, "%-62s %14" JSON_INTEGER_FORMAT "\n", text(row, "name"), number(row, "bytes"));
}

static void print_text(const json_t *json, FILE *out)
{
    size_t i;
    const json_t *row;
    char a[40], b[40];
    print_state(json, out);
    print_replication(json, out);
    fprintf(out, "\n%-32s %14s  %s\n", "segment", "bytes", "first record stored");
    json_array_foreach(json_object_get(json, "segments"), i, row)
        fprintf(out, "%-32s %14" JSON_INTEGER_FORMAT "  %s\n", text(row, "file"),
                number(row, "bytes"), time_text(a, number(row, "firstStoreTimestamp")));
    fprintf(out, "\n%-40s %6s %14s %14s %6s\n", "topic", "queue", "min", "max", "files");
    json_array_foreach(json_object_get(json, "queues"), i, row)
        fprintf(out,
                "%-40s %6" JSON_INTEGER_FORMAT " %14" JSON_INTEGER_FORMAT " %14" JSON_INTEGER_FORMAT
                " %6" JSON_INTEGER_FORMAT "\n",
                text(row, "topic"), number(row, "queueId"), number(row, "minOffset"),
                number(row, "maxOffset"), number(row, "files"));
    fprintf(out, "\n%-26s %12s  %-24s %s\n", "index", "entries", "from", "to");
    json_array_foreach(json_object_get(json, "indexes"), i, row)
        fprintf(out, "%-26s %12" JSON_INTEGER_FORMAT "  %-24s %s\n", text(row, "file"),
                number(row, "entries"), time_text(a, number(row, "beginTimestamp")),
                json_is_true(json_object_get(row, "unfinished"))
                    ? "unfinished"
                    : time_text(b, number(row, "endTimestamp")));
    fprintf(out, "\n%-32s %14s\n", "config", "bytes");
    json_array_foreach(json_object_get(json, "config"), i, row)
        fprintf(out, "%-32s %14" JSON_INTEGER_FORMAT "\n", text(row, "name"), number(row, "bytes"));
    if (json_array_size(json_object_get(json, "strays")))
        fputs("\nfiles that belong to no part of a store:\n", out);
    json_array_foreach(json_object_get(json, "strays"), i, row)
        fprintf(out, "%s\n", json_string_value(row));
}

int mqstore_ls(const struct env *env, const char *root, const struct mqstore_options *options)
{
    struct store_dir dir;
    struct tern_error err = {TERN_OK, ""};
    int status = mqstore_open(&dir, env, root, false, options);
    if (status)
        return status;
    json_t *segments = json_array();
    json_t *queues = json_array();
    json_t *indexes = json_array();
    json_t *strays = json_array();
    for (uint32_t i = 0; i < dir.stray_count; i++)
        json_array_append_new(strays, json_string(dir.strays[i]));
    enum tern_code code = list_segments(&dir, segments, &err);
    if (!code)
        code = list_queues(&dir, queues, &err);
    if (!code)
        code = list_indexes(&dir, options->index_slots, indexes, &err);
    json_t *json =
        json_pack("{s:o,s:I,s:o,s:o,s:o,s:o,s:o}", "state", list_state(&dir), "segmentBytes",
                  (json_int_t)dir.segment_bytes, "segments", segments, "queues", queues, "indexes",
                  indexes, "config", list_config(&dir), "strays", strays);
    json_t *epochs = list_epochs(&dir);
    if (epochs)
        json_object_set_new(json, "epochs", epochs);
    json_object_set_new(json, "diverged", list_diverged(&dir));
    if (code) {
        status = mqstore_fail(options, code, &err);
        json_decref(json);
    } else if (options->json) {
        mqstore_print_json(json, options);
    } else {
        print_text(json, options->out);
        json_decref(json);
    }
    store_dir_close(&dir);
    return status;
}
