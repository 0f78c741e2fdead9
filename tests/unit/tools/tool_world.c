/* A small store for mqstore's tests. Threads: one. Failure modes: cmocka assertions. */
#include "tests/unit/tools/tool_world.h"

#include "base/bytes.h"
#include "base/props.h"

enum { COPY_BYTES = 1 << 20 };

void tool_world_init(struct tool_world *w)
{
    memset(w, 0, sizeof *w);
    sim_env_init(&w->sim, 7);
}

void tool_world_fini(struct tool_world *w)
{
    if (w->store)
        (void)store_close(w->store, NULL);
    free(w->out);
    free(w->warn);
    sim_env_fini(&w->sim);
}

/* ---- filling ---- */

void tool_open(struct tool_world *w, const char *root)
{
    struct store_options options;
    struct tern_error err = {TERN_OK, ""};
    store_options_init(&options);
    options.root_dir = root;
    options.segment_bytes = TOOL_SEGMENT_BYTES;
    options.queue_file_bytes = TOOL_QUEUE_FILE_BYTES;
    options.index_slots = TOOL_INDEX_SLOTS;
    options.index_entries = TOOL_INDEX_ENTRIES;
    options.max_message_bytes = 8192;
    options.delete_hours = 0;
    if (store_open(&w->sim.env, &options, &w->store, NULL, &err))
        fail_msg("store_open: %s", err.text);
}

void tool_close(struct tool_world *w)
{
    struct tern_error err = {TERN_OK, ""};
    if (store_close(w->store, &err))
        fail_msg("store_close: %s", err.text);
    w->store = NULL;
}

void tool_crash(struct tool_world *w)
{
    struct sim_fs_fault all = {.op = SIM_FS_ANY, .nth = 1, .errno_value = 5, .forever = true};
    sim_fs_process_crash(w->sim.fs);
    sim_fs_fail(w->sim.fs, &all); /* a dead process writes nothing any more */
    (void)store_close(w->store, NULL);
    w->store = NULL;
    sim_fs_fail_clear(w->sim.fs);
}

struct one_append {
    struct store_append append; /* first */
    bool done;
};

static void on_appended(struct store_append *append)
{
    assert_int_equal(append->result, TERN_OK);
    ((struct one_append *)append)->done = true;
}

static bool is_done(void *arg)
{
    return ((struct one_append *)arg)->done;
}

void tool_append(struct tool_world *w, const char *topic, int32_t queue_id)
{
    struct one_append one = {.append = {.count = 1, .on_appended = on_appended}};
    uint8_t bytes[TOOL_RECORD_BYTES];
    uint8_t body[TOOL_RECORD_BYTES];
    char props[128];
    uint32_t n = w->serial++;
    int props_len =
        snprintf(props, sizeof props, "UNIQ_KEY\001U%07u\002KEYS\001key-%03u both\002TAGS\001Tag%u",
                 n, n % 1000, n % 3);
    struct record record = {.queue_id = queue_id,
                            .born_ms = SIM_START_WALL_MS,
                            .born_host = {.ip = {127, 0, 0, 1}, .port = 1234},
                            .store_host = {.ip = {127, 0, 0, 1}, .port = 10911},
                            .topic = (const uint8_t *)topic,
                            .topic_len = (uint8_t)strlen(topic),
                            .props = (const uint8_t *)props,
                            .props_len = (uint16_t)props_len,
                            .body = body};
    record.body_len =
        (uint32_t)(TOOL_RECORD_BYTES - record_size(0, record.topic_len, record.props_len, 0));
    for (uint32_t i = 0; i < record.body_len; i++)
        body[i] = (uint8_t)('a' + (n + i) % 26);
    one.append.records = bytes;
    one.append.size_bytes = (uint32_t)record_encode(bytes, sizeof bytes, &record);
    assert_int_equal(one.append.size_bytes, TOOL_RECORD_BYTES);
    assert_int_equal(store_queue_ref(w->store, topic, strlen(topic), queue_id, &one.append.queue),
                     TERN_OK);
    store_append(w->store, &one.append);
    assert_true(
        sim_run_until_true(w->sim.sched, is_done, &one, w->sim.clock.now_ns + ms_to_ns(1000)));
    store_queue_unref(one.append.queue);
    sim_run_for(w->sim.sched, ms_to_ns(100)); /* so that store times differ */
}

void tool_fill(struct tool_world *w, const char *root)
{
    tool_open(w, root);
    for (int32_t i = 0; i < TOOL_RECORDS; i++)
        tool_append(w, i % 4 < 2 ? "TopicA" : "TopicB", i % 2);
    tool_close(w);
}

int64_t tool_record_at(uint32_t n)
{
    return (int64_t)(n / TOOL_PER_SEGMENT) * TOOL_SEGMENT_BYTES +
           (int64_t)(n % TOOL_PER_SEGMENT) * TOOL_RECORD_BYTES;
}

/* ---- files ---- */

static struct file *open_file(struct tool_world *w, const char *path, unsigned flags)
{
    struct file *file;
    enum tern_code code = fs_open(w->sim.env.fs, path, flags, &file);
    if (code)
        fail_msg("%s: %s", path, tern_code_name(code));
    return file;
}

void tool_poke(struct tool_world *w, const char *path, int64_t at, const void *bytes, size_t size)
{
    struct file *file = open_file(w, path, FS_READ | FS_WRITE);
    assert_int_equal(file_pwrite(file, bytes, size, at), TERN_OK);
    file_close(file);
}

void tool_poke32(struct tool_world *w, const char *path, int64_t at, uint32_t value)
{
    uint8_t raw[4];
    put_be32(raw, value);
    tool_poke(w, path, at, raw, sizeof raw);
}

void tool_poke64(struct tool_world *w, const char *path, int64_t at, uint64_t value)
{
    uint8_t raw[8];
    put_be64(raw, value);
    tool_poke(w, path, at, raw, sizeof raw);
}

static void peek(struct tool_world *w, const char *path, int64_t at, uint8_t *raw, size_t size)
{
    size_t got;
    struct file *file = open_file(w, path, FS_READ);
    assert_int_equal(file_pread(file, raw, size, at, &got), TERN_OK);
    assert_int_equal(got, size);
    file_close(file);
}

uint32_t tool_peek32(struct tool_world *w, const char *path, int64_t at)
{
    uint8_t raw[4];
    peek(w, path, at, raw, sizeof raw);
    return get_be32(raw);
}

uint64_t tool_peek64(struct tool_world *w, const char *path, int64_t at)
{
    uint8_t raw[8];
    peek(w, path, at, raw, sizeof raw);
    return get_be64(raw);
}

void tool_truncate(struct tool_world *w, const char *path, int64_t size)
{
    struct file *file = open_file(w, path, FS_READ | FS_WRITE);
    assert_int_equal(file_truncate(file, size), TERN_OK);
    file_close(file);
}

void tool_remove(struct tool_world *w, const char *path)
{
    assert_int_equal(fs_unlink(w->sim.env.fs, path), TERN_OK);
}

void tool_create(struct tool_world *w, const char *path)
{
    file_close(open_file(w, path, FS_READ | FS_WRITE | FS_CREATE));
}

static bool first_name(void *arg, const char *name, bool is_dir)
{
    char *path = arg;
    (void)is_dir;
    if (!path[0] || strcmp(name, strrchr(path, '/') + 1) < 0)
        snprintf(path, FS_PATH_BYTES, ROOT "/index/%s", name);
    return true;
}

const char *tool_index_path(struct tool_world *w)
{
    static char path[FS_PATH_BYTES];
    path[0] = 0;
    assert_int_equal(fs_list(w->sim.env.fs, ROOT "/index", first_name, path), TERN_OK);
    assert_true(path[0]);
    return path;
}

static void copy_file(struct tool_world *w, const char *from, const char *to)
{
    uint8_t *bytes = malloc(COPY_BYTES);
    size_t got;
    struct file *source = open_file(w, from, FS_READ);
    struct file *target = open_file(w, to, FS_READ | FS_WRITE | FS_CREATE);
    assert_non_null(bytes);
    assert_int_equal(file_pread(source, bytes, COPY_BYTES, 0, &got), TERN_OK);
    assert_true(got < COPY_BYTES);
    if (got)
        assert_int_equal(file_pwrite(target, bytes, got, 0), TERN_OK);
    file_close(source);
    file_close(target);
    free(bytes);
}

struct copying {
    struct tool_world *w;
    const char *from, *to;
};

static bool copy_entry(void *arg, const char *name, bool is_dir)
{
    struct copying *c = arg;
    char from[FS_PATH_BYTES];
    char to[FS_PATH_BYTES];
    assert_int_equal(fs_join(from, c->from, name), TERN_OK);
    assert_int_equal(fs_join(to, c->to, name), TERN_OK);
    if (!is_dir)
        copy_file(c->w, from, to);
    return true;
}

/* The log's files and the small ones: what the commands on two stores read. */
void tool_copy(struct tool_world *w, const char *from, const char *to)
{
    static const char *const folders[] = {"commitlog", "ternmq"};
    struct copying root = {w, from, to};
    assert_int_equal(fs_mkdirs(w->sim.env.fs, to), TERN_OK);
    assert_int_equal(fs_list(w->sim.env.fs, from, copy_entry, &root), TERN_OK);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char source[FS_PATH_BYTES];
        char target[FS_PATH_BYTES];
        struct copying c = {w, source, target};
        assert_int_equal(fs_join(source, from, folders[i]), TERN_OK);
        assert_int_equal(fs_join(target, to, folders[i]), TERN_OK);
        assert_int_equal(fs_mkdirs(w->sim.env.fs, target), TERN_OK);
        assert_int_equal(fs_list(w->sim.env.fs, source, copy_entry, &c), TERN_OK);
    }
}

/* ---- running ---- */

void tool_run(struct tool_world *w, int status, const char *const *argv)
{
    size_t sizes[2];
    char *args[16];
    int argc = 0;
    free(w->out);
    free(w->warn);
    w->out = w->warn = NULL;
    for (; argv[argc]; argc++) {
        assert_true(argc < 15);
        args[argc] = strdup(argv[argc]);
    }
    args[argc] = NULL;
    char *given[16]; /* getopt reorders */
    memcpy(given, args, sizeof given);
    FILE *out = open_memstream(&w->out, &sizes[0]);
    FILE *warn = open_memstream(&w->warn, &sizes[1]);
    assert_true(out && warn);
    int got = mqstore_main(&w->sim.env, argc, args, out, warn);
    fclose(out);
    fclose(warn);
    for (int i = 0; i < argc; i++)
        free(given[i]);
    if (got != status)
        fail_msg("status %d instead of %d\n%s%s", got, status, w->out, w->warn);
}

json_t *tool_verify(struct tool_world *w, const char *root, int status)
{
    RUN(w, status, "verify", "--json", root);
    json_t *json = json_loads(w->out, 0, NULL);
    assert_non_null(json);
    assert_true(json_is_boolean(json_object_get(json, "ok")));
    assert_int_equal(json_is_true(json_object_get(json, "ok")), status == MQSTORE_OK);
    return json;
}

int64_t tool_count(const json_t *json, const char *group, const char *kind)
{
    const json_t *found = json_object_get(json_object_get(json, group), kind);
    return json_integer_value(json_object_get(found, "count"));
}

void tool_expect_fault(struct tool_world *w, const char *kind, int64_t count)
{
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    if (tool_count(json, "faults", kind) != count ||
        json_object_size(json_object_get(json, "faults")) != 1)
        fail_msg("expected %d × %s: %s", (int)count, kind, w->out);
    json_decref(json);
}
