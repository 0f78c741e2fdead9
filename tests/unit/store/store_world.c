/* A store in a simulated world. Threads: one. Failure modes: cmocka assertions. */
#include "tests/unit/store/store_world.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "broker/store/commit_log_internal.h"
#include "broker/store/log_scanner.h"

enum { WAIT_LIMIT_MS = 20000, UNITS_AT_ONCE = 64 };

static void on_flushed(void *arg, int64_t flushed, bool more)
{
    (void)more;
    struct world *w = arg;
    assert_true(flushed > w->flushed);
    w->flushed = flushed;
    if (!w->options.sync_flush)
        return;
    for (size_t i = 0; i < w->sent_count; i++) {
        struct sent *s = w->sent[i];
        if (s->answered && !s->gone && s->append.result == TERN_OK &&
            s->append.end_phys_off <= flushed)
            s->acked = true;
    }
}

static void on_arrival(void *arg, const struct store_arrival *arrival)
{
    struct world *w = arg;
    w->arrivals += arrival->count;
}

static void on_latched(void *arg, enum tern_code code, const char *text)
{
    struct world *w = arg;
    w->latched++;
    w->latch_code = code;
    snprintf(w->latch_text, sizeof w->latch_text, "%s", text);
}

static void on_expired(void *arg, int64_t min_phys)
{
    struct world *w = arg;
    w->expired++;
    w->expired_min = min_phys;
}

void world_init(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    sim_env_init(&w->sim, seed);
    store_options_init(&w->options);
    w->options.root_dir = WORLD_ROOT;
    w->options.segment_bytes = WORLD_SEGMENT_BYTES;
    w->options.queue_file_bytes = 200 * QUEUE_UNIT_BYTES;
    w->options.index_slots = 64;
    w->options.index_entries = 512;
    w->options.max_message_bytes = 64 * 1024;
    w->options.delete_hours = 0;
    w->options.observer = (struct store_observer){.arg = w,
                                                  .on_flushed = on_flushed,
                                                  .on_arrival = on_arrival,
                                                  .on_latched = on_latched,
                                                  .on_expired = on_expired};
}

static void free_ledger(struct world *w)
{
    for (size_t i = 0; i < w->sent_count; i++) {
        free(w->sent[i]->bytes);
        free(w->sent[i]->append.records);
        free(w->sent[i]);
    }
    free(w->sent);
}

static void drop_store(struct world *w)
{
    if (!w->store)
        return;
    for (size_t i = 0; i < w->sent_count; i++)
        if (!w->sent[i]->answered)
            world_run(w, 10);
    (void)store_close(w->store, NULL);
    w->store = NULL;
}

void world_fini(struct world *w)
{
    drop_store(w);
    free_ledger(w);
    sim_env_fini(&w->sim);
}

enum tern_code world_try_open(struct world *w)
{
    assert_null(w->store);
    w->flushed = 0;
    w->latched = 0;
    memset(&w->err, 0, sizeof w->err);
    return store_open(&w->sim.env, &w->options, &w->store, &w->recovery, &w->err);
}

void world_open(struct world *w)
{
    enum tern_code code = world_try_open(w);
    if (code)
        fail_msg("store_open: %s: %s", tern_code_name(code), w->err.text);
}

void world_close(struct world *w)
{
    struct tern_error err = {TERN_OK, ""};
    enum tern_code code = store_close(w->store, &err);
    w->store = NULL;
    if (code)
        fail_msg("store_close: %s: %s", tern_code_name(code), err.text);
}

void world_run(struct world *w, int64_t ms)
{
    sim_run_for(w->sim.sched, ms_to_ns(ms));
}

void world_kill_disk(struct world *w)
{
    struct sim_fs_fault all = {.op = SIM_FS_ANY, .nth = 1, .errno_value = EIO, .forever = true};
    sim_fs_fail(w->sim.fs, &all);
}

void world_revive_disk(struct world *w)
{
    sim_fs_fail_clear(w->sim.fs);
    sim_fs_set_hook(w->sim.fs, NULL, NULL);
}

static void die(struct world *w)
{
    world_kill_disk(w); /* a dead process writes nothing any more */
    drop_store(w);
    world_revive_disk(w);
    for (size_t i = 0; i < w->sent_count; i++)
        if (!w->sent[i]->acked)
            w->sent[i]->gone = true;
}

void world_power_loss(struct world *w, enum sim_torn torn)
{
    sim_fs_power_loss(w->sim.fs, torn);
    die(w);
}

void world_process_crash(struct world *w)
{
    sim_fs_process_crash(w->sim.fs);
    die(w);
}

/* ---- appending ---- */

static void on_appended(struct store_append *append)
{
    struct sent *s = (struct sent *)append;
    assert_false(s->answered);
    s->answered = true;
    memcpy(s->bytes, append->records, append->size_bytes);
    if (append->result == TERN_OK && s->world->options.sync_flush &&
        append->end_phys_off <= s->world->flushed)
        s->acked = true;
    free(append->records);
    append->records = NULL;
    store_queue_unref(append->queue);
    append->queue = NULL;
}

static struct record record_of(int32_t queue_id, uint32_t sys_flag)
{
    return (struct record){
        .queue_id = queue_id,
        .sys_flag = sys_flag,
        .born_ms = SIM_START_WALL_MS,
        .born_host = {.ip = {127, 0, 0, 1}, .port = 1234},
        .store_host = {.ip = {127, 0, 0, 1}, .port = 10911},
        .topic = (const uint8_t *)WORLD_TOPIC,
        .topic_len = sizeof WORLD_TOPIC - 1,
    };
}

uint32_t world_pick(struct world *w, uint32_t bound)
{
    return (uint32_t)rng_below(&w->sim.rng.rng, bound);
}

size_t world_record_bytes(size_t body_bytes)
{
    return record_size(body_bytes, sizeof WORLD_TOPIC - 1, 0, 0);
}

static void keep(struct world *w, struct sent *s)
{
    if (w->sent_count == w->sent_cap) {
        w->sent_cap = w->sent_cap ? w->sent_cap * 2 : 64;
        w->sent = realloc(w->sent, w->sent_cap * sizeof(struct sent *));
        assert_non_null(w->sent);
    }
    w->sent[w->sent_count++] = s;
}

struct sent *world_append_typed(struct world *w, int32_t queue_id, size_t body_bytes,
                                uint32_t count, uint32_t sys_flag)
{
    struct sent *s = calloc(1, sizeof *s);
    uint8_t *body = malloc(body_bytes + 1);
    assert_true(s && body);
    char props[32];
    if (w->keys)
        snprintf(s->key, sizeof s->key, "k%zu", w->sent_count);
    int props_len = w->keys ? snprintf(props, sizeof props, "KEYS\001%s", s->key) : 0;
    size_t size = world_record_bytes(body_bytes) + (size_t)props_len;
    s->world = w;
    s->queue_id = queue_id;
    s->bytes = malloc(size * count);
    s->append.records = malloc(size * count);
    assert_true(s->bytes && s->append.records);
    struct record record = record_of(queue_id, sys_flag);
    record.props = (const uint8_t *)props;
    record.props_len = (uint16_t)props_len;
    for (uint32_t i = 0; i < count; i++) {
        for (size_t b = 0; b < body_bytes; b++)
            body[b] = (uint8_t)(++w->body_seed * 2654435761u >> 13);
        record.body = body;
        record.body_len = (uint32_t)body_bytes;
        assert_int_equal(record_encode(s->append.records + i * size, size, &record), size);
    }
    free(body);
    s->append.size_bytes = (uint32_t)(size * count);
    s->append.count = count;
    s->append.on_appended = on_appended;
    assert_int_equal(
        store_queue_ref(w->store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, queue_id, &s->append.queue),
        TERN_OK);
    keep(w, s);
    store_append(w->store, &s->append);
    return s;
}

struct sent *world_append(struct world *w, int32_t queue_id, size_t body_bytes, uint32_t count)
{
    return world_append_typed(w, queue_id, body_bytes, count, 0);
}

static bool is_done(void *arg)
{
    const struct sent *s = arg;
    if (!s->answered)
        return false;
    return s->append.result != TERN_OK || !s->world->options.sync_flush || s->acked ||
           s->world->latched;
}

void world_wait(struct world *w, struct sent *sent)
{
    int64_t limit = w->sim.clock.now_ns + ms_to_ns(WAIT_LIMIT_MS);
    assert_true(sim_run_until_true(w->sim.sched, is_done, sent, limit));
    if (sent->append.result)
        fail_msg("append: %s", tern_code_name(sent->append.result));
    assert_true(!w->options.sync_flush || sent->acked);
}

void world_append_ok(struct world *w, int32_t queue_id, size_t body_bytes, uint32_t count)
{
    world_wait(w, world_append(w, queue_id, body_bytes, count));
}

void world_forget_from(struct world *w, int64_t end)
{
    for (size_t i = 0; i < w->sent_count; i++) {
        if (w->sent[i]->append.end_phys_off > end) {
            w->sent[i]->acked = false;
            w->sent[i]->gone = true;
        }
    }
}

/* ---- checking ---- */

struct walk {
    struct world *w;
    struct queue_unit *units[WORLD_QUEUES]; /* that the queues must hold, in order */
    int64_t first[WORLD_QUEUES];
    size_t count[WORLD_QUEUES];
    size_t seen; /* in the ledger */
};

/*
 * The ledger's append that has this record, stamped as it is. One whose write failed or was never
 * answered as done may be in the log all the same.
 */
static struct sent *find_sent(struct world *w, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < w->sent_count; i++) {
        struct sent *s = w->sent[i];
        size_t at = 0;
        while (s->answered && at + size <= s->append.size_bytes) {
            if (memcmp(s->bytes + at, bytes, size) == 0)
                return s;
            at += get_be32(s->bytes + at);
        }
    }
    return NULL;
}

static void expect_unit(struct walk *walk, const struct record *record, int64_t phys_off)
{
    uint32_t type = record->sys_flag & SYS_TX_MASK;
    if (type == SYS_TX_PREPARED || type == SYS_TX_ROLLBACK)
        return;
    int32_t q = record->queue_id;
    assert_in_range(q, 0, WORLD_QUEUES - 1);
    size_t n = walk->count[q];
    walk->units[q] = realloc(walk->units[q], (n + 1) * sizeof *walk->units[q]);
    assert_non_null(walk->units[q]);
    if (n == 0)
        walk->first[q] = record->queue_off;
    assert_int_equal(record->queue_off, walk->first[q] + (int64_t)n);
    walk->units[q][n] = (struct queue_unit){phys_off, (int32_t)record->total_size, 0};
    walk->count[q]++;
}

/* Every record of the log is known. A record of an unanswered or lost append may be there whole. */
static void walk_log(struct walk *walk)
{
    struct store *store = walk->w->store;
    struct log_scanner scanner;
    assert_int_equal(log_scanner_init(&scanner, &store->log->segments), TERN_OK);
    int64_t at = commit_log_min(store->log);
    int64_t end = commit_log_whole(store->log);
    while (at < end) {
        enum scan_state state;
        struct record record;
        assert_int_equal(log_scanner_at(&scanner, at, &state, &record), TERN_OK);
        if (state == SCAN_BLANK) {
            at = (at / store->options.segment_bytes + 1) * store->options.segment_bytes;
            continue;
        }
        if (state != SCAN_RECORD)
            fail_msg("no record at %" PRId64 " of %" PRId64, at, end);
        const uint8_t *bytes = scanner.buffer + (at - scanner.buffer_off);
        struct sent *s = find_sent(walk->w, bytes, record.total_size);
        if (!s)
            fail_msg("made-up record at %" PRId64, at);
        expect_unit(walk, &record, at);
        at += record.total_size;
    }
    assert_int_equal(at, end);
    log_scanner_fini(&scanner);
}

static void check_acked(struct world *w)
{
    uint8_t *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    int64_t min = commit_log_min(w->store->log);
    for (size_t i = 0; i < w->sent_count; i++) {
        const struct sent *s = w->sent[i];
        if (!s->acked || s->append.first_phys_off < min)
            continue;
        size_t got = 0;
        enum tern_code code = commit_log_read(w->store->log, s->append.first_phys_off, bytes,
                                              s->append.size_bytes, false, &got);
        if (code || got != s->append.size_bytes || memcmp(bytes, s->bytes, got) != 0)
            fail_msg("acknowledged append at %" PRId64 " is lost or altered",
                     s->append.first_phys_off);
    }
    free(bytes);
}

static bool on_key_record(void *arg, const uint8_t *bytes, size_t size)
{
    const struct sent *s = arg;
    assert_true(size <= s->append.size_bytes);
    assert_memory_equal(bytes + 88, s->bytes + s->append.size_bytes - size + 88, 8);
    return false;
}

/* Every acknowledged append that is still there is found by its key. */
static void check_keys(struct world *w)
{
    for (size_t i = 0; w->keys && i < w->sent_count; i++) {
        struct sent *s = w->sent[i];
        if (!s->acked || s->append.first_phys_off < commit_log_min(w->store->log))
            continue;
        struct store_query query = {.topic = WORLD_TOPIC,
                                    .key = s->key,
                                    .max_count = 1,
                                    .begin_ms = 0,
                                    .end_ms = INT64_MAX,
                                    .on_record = on_key_record,
                                    .arg = s};
        struct store_query_info info;
        assert_int_equal(store_query(w->store, &query, &info), TERN_OK);
        if (info.found != 1)
            fail_msg("key %s of the record at %" PRId64 " is not indexed", s->key,
                     s->append.first_phys_off);
    }
}

/* The queue holds exactly these units at its end. */
static void check_queue(struct walk *walk, int32_t q)
{
    struct store *store = walk->w->store;
    struct consume_queue *queue =
        queue_table_find(store->queues, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, q);
    size_t count = walk->count[q];
    if (!queue) {
        assert_int_equal(count, 0);
        return;
    }
    if (count > 0)
        assert_int_equal(consume_queue_max(queue), walk->first[q] + (int64_t)count);
    for (size_t i = 0; i < count; i += UNITS_AT_ONCE) {
        struct queue_unit units[UNITS_AT_ONCE];
        uint32_t want = count - i < UNITS_AT_ONCE ? (uint32_t)(count - i) : UNITS_AT_ONCE;
        uint32_t done = 0;
        while (done < want) {
            uint32_t got = 0;
            assert_int_equal(consume_queue_read(queue, walk->first[q] + (int64_t)i + done,
                                                units + done, want - done, false, &got),
                             TERN_OK);
            assert_true(got > 0);
            done += got;
        }
        for (uint32_t u = 0; u < want; u++) {
            assert_int_equal(units[u].phys_off, walk->units[q][i + u].phys_off);
            assert_int_equal(units[u].size, walk->units[q][i + u].size);
        }
    }
    consume_queue_unref(queue);
}

static bool all_dispatched(void *arg)
{
    struct world *w = arg;
    return dispatcher_position(w->store->dispatcher) >= commit_log_whole(w->store->log);
}

void world_check(struct world *w)
{
    assert_true(sim_run_until_true(w->sim.sched, all_dispatched, w,
                                   w->sim.clock.now_ns + ms_to_ns(WAIT_LIMIT_MS)));
    struct walk walk = {.w = w};
    walk_log(&walk);
    check_acked(w);
    check_keys(w);
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        check_queue(&walk, q);
        free(walk.units[q]);
    }
}

/* ---- behind the store's back ---- */

void world_segment_path(int64_t base, char out[FS_PATH_BYTES])
{
    snprintf(out, FS_PATH_BYTES, WORLD_ROOT "/commitlog/%020" PRId64, base);
}

static struct file *open_segment(struct world *w, int64_t phys_off, int64_t *at)
{
    char path[FS_PATH_BYTES];
    struct file *file = NULL;
    *at = phys_off % w->options.segment_bytes;
    world_segment_path(phys_off - *at, path);
    assert_int_equal(fs_open(w->sim.env.fs, path, FS_READ | FS_WRITE, &file), TERN_OK);
    return file;
}

void world_poke(struct world *w, int64_t phys_off, const void *bytes, size_t size)
{
    int64_t at;
    struct file *file = open_segment(w, phys_off, &at);
    assert_int_equal(file_pwrite(file, bytes, size, at), TERN_OK);
    assert_int_equal(file_sync(file), TERN_OK);
    file_close(file);
}

void world_peek(struct world *w, int64_t phys_off, void *bytes, size_t size)
{
    int64_t at;
    struct file *file = open_segment(w, phys_off, &at);
    size_t got = 0;
    assert_int_equal(file_pread(file, bytes, size, at, &got), TERN_OK);
    assert_int_equal(got, size);
    file_close(file);
}

bool world_all_zero(struct world *w, int64_t from, int64_t end)
{
    for (int64_t at = from; at < end; at++) {
        uint8_t byte;
        world_peek(w, at, &byte, 1);
        if (byte)
            return false;
    }
    return true;
}
