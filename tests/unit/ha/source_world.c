/* See source_world.h. */
#include "tests/unit/ha/source_world.h"

#include "base/clock.h"
#include "base/lock.h"

/* ---- tables that are only versions ---- */

static Tern__Wire__HaTables *fill(void *arg, const struct ha_held *held, bool progress_only,
                                  struct arena *arena)
{
    struct source_world *w = arg;
    lock_assert_none_held();
    assert_false(progress_only);
    w->fills++;
    Tern__Wire__HaTables *tables = w->no_memory ? NULL : arena_alloc(arena, sizeof *tables);
    if (!tables)
        return NULL;
    tern__wire__ha_tables__init(tables);
    tables->has_topics = held->topics_version != w->own.topics_version;
    tables->topics_version = w->own.topics_version;
    tables->deletions_version = w->own.deletions_version;
    tables->has_progress = held->progress != w->own.progress;
    tables->progress_to = w->own.progress;
    return tables;
}

static bool topics_agree(void *arg, const struct ha_held *held)
{
    struct source_world *w = arg;
    return held->topics_version == w->own.topics_version &&
           held->deletions_version == w->own.deletions_version;
}

static bool differs(void *arg, const struct ha_held *held, bool progress_only)
{
    struct source_world *w = arg;
    (void)progress_only;
    bool differs_now = !topics_agree(arg, held) || held->progress != w->own.progress;
    void (*meanwhile)(struct source_world *) = w->meanwhile;
    w->meanwhile = NULL;
    if (meanwhile)
        meanwhile(w);
    return differs_now;
}

static enum tern_code apply(void *arg, const Tern__Wire__HaTables *tables, struct ha_held *held,
                            struct tern_error *err)
{
    struct source_world *w = arg;
    lock_assert_none_held();
    if (w->apply_code != TERN_OK)
        return error_set(err, w->apply_code, "not taken");
    if (tables->has_progress)
        held->progress = tables->progress_to;
    return TERN_OK;
}

static void own(void *arg, struct ha_held *held)
{
    struct source_world *w = arg;
    *held = w->own;
}

/* ---- what the source tells ---- */

static void self(void *arg, struct ha_member *out)
{
    struct source_world *w = arg;
    lock_assert_none_held();
    memset(out, 0, sizeof *out);
    snprintf(out->cluster, sizeof out->cluster, "%s", w->ha.cluster);
    snprintf(out->name, sizeof out->name, "%s", w->ha.name);
    out->id = w->ha.id;
    memcpy(out->uuid, w->ha.uuid, sizeof out->uuid);
    snprintf(out->ha_address, sizeof out->ha_address, "10.0.0.1:10912");
    out->epoch_count = epochs_copy(w->epochs, out->epochs);
    out->highest_epoch = epochs_highest(w->epochs);
    out->log_min = w->store.min;
    out->log_end = w->store.whole;
    out->flushed = w->store.flushed;
    out->segment_bytes = w->ha.segment_bytes;
    void (*after_self)(struct source_world *) = w->after_self;
    w->after_self = NULL;
    if (after_self)
        after_self(w);
}

static void wake(void *arg)
{
    ((struct source_world *)arg)->woken = true;
}

static void on_heard(void *arg, const struct ha_member *member, bool has_cut, int64_t cut_at)
{
    struct source_world *w = arg;
    lock_assert_none_held();
    w->heard++;
    w->heard_last = *member;
    w->heard_cut = has_cut;
    w->heard_cut_at = cut_at;
}

static void on_refused(void *arg, const struct ha_member *slave)
{
    (void)slave;
    lock_assert_none_held();
    ((struct source_world *)arg)->refused++;
}

static void on_confirmed(void *arg, int64_t confirmed, bool alone)
{
    struct source_world *w = arg;
    lock_assert_none_held();
    assert_true(confirmed >= w->confirmed && !w->telling);
    w->telling = true;
    void (*while_told)(struct source_world *) = w->while_told;
    w->while_told = NULL;
    if (while_told)
        while_told(w);
    w->telling = false;
    w->told++;
    w->confirmed = confirmed;
    w->alone = alone;
}

static void on_progress_seen(void *arg, uint64_t change)
{
    lock_assert_none_held();
    ((struct source_world *)arg)->progress_seen = change;
}

/* ---- life ---- */

static void make_epochs(struct source_world *w)
{
    struct tern_error err;
    struct ha_epoch list[] = {{1, 11, 0}, {3, 33, 600}};
    assert_ok(epochs_open(&w->sim.env, WORLD_ROOT, 0, &w->epochs, &err));
    assert_ok(epochs_adopt(w->epochs, list, 2, INT64_MAX, &err));
}

void source_world_init(struct source_world *w, enum ha_mode mode)
{
    memset(w, 0, sizeof *w);
    sim_env_init(&w->sim, 21);
    assert_ok(fs_mkdirs(w->sim.env.fs, WORLD_ROOT));
    make_epochs(w);
    w->store.segment_bytes = WORLD_SEGMENT_BYTES;
    w->store.whole = WORLD_END;
    w->store.flushed = WORLD_END;
    w->store.dispatched = WORLD_END;
    w->own = (struct ha_held){.topics_version = 5, .groups_version = 6, .deletions_version = 7};
    w->ha = (struct ha_options){
        .mode = mode,
        .cluster = "DefaultCluster",
        .name = "broker-a",
        .id = mode == HA_MODE_SLAVE ? 9 : 0,
        .root_dir = WORLD_ROOT,
        .segment_bytes = WORLD_SEGMENT_BYTES,
        .insync = {.replicas = 1, .max_behind_ns = ms_to_ns(WORLD_MAX_BEHIND_MS)},
        .confirmed_visibility = true,
        .store = (struct store *)&w->store,
        .tables = {.arg = w,
                   .fill = fill,
                   .topics_agree = topics_agree,
                   .differs = differs,
                   .apply = apply,
                   .own = own},
        .arg = w};
    memset(w->ha.uuid, 0xEE, sizeof w->ha.uuid);
    struct source_options options = {.part = {.env = &w->sim.env,
                                              .ha = &w->ha,
                                              .epochs = w->epochs,
                                              .arg = w,
                                              .self = self,
                                              .wake = wake},
                                     .on_heard = on_heard,
                                     .on_refused = on_refused,
                                     .on_confirmed = on_confirmed,
                                     .on_progress_seen = on_progress_seen};
    assert_ok(source_create(&options, &w->source));
}

void source_world_fini(struct source_world *w)
{
    source_stop(w->source);
    source_destroy(w->source);
    epochs_close(w->epochs);
    sim_env_fini(&w->sim);
}

void source_world_open(struct source_world *w)
{
    struct insync_set none = {0};
    source_open(w->source, &none, 0);
}

void world_step(struct source_world *w)
{
    int rounds = 0;
    do {
        assert_true(rounds++ < 100);
        w->woken = false;
        w->next_ns = source_step(w->source, w->sim.clock.now_ns);
    } while (w->woken || w->next_ns <= w->sim.clock.now_ns);
}

void world_pass_ms(struct source_world *w, int64_t ms)
{
    int64_t end_ns = w->sim.clock.now_ns + ms_to_ns(ms);
    world_step(w);
    while (w->next_ns <= end_ns) {
        sim_clock_advance(&w->sim.clock, w->next_ns - w->sim.clock.now_ns);
        world_step(w);
    }
    sim_clock_advance(&w->sim.clock, end_ns - w->sim.clock.now_ns);
}

void world_append(struct source_world *w, int64_t bytes)
{
    w->store.whole += bytes;
    source_on_end(w->source, w->store.whole);
}

void world_flush(struct source_world *w)
{
    w->store.flushed = (int64_t)w->store.whole;
    source_on_flushed(w->source, w->store.flushed);
}

struct insync_set world_saved_set(struct source_world *w)
{
    struct insync_set set;
    struct tern_error err;
    bool known;
    assert_ok(insync_load(&w->sim.env, WORLD_ROOT, &set, &known, &err));
    return set;
}

/* ---- slaves ---- */

struct slave slave_of(struct source_world *w, int64_t id)
{
    struct slave slave;
    memset(&slave, 0, sizeof slave);
    self(w, &slave.member);
    slave.member.id = id;
    memset(slave.member.uuid, (int)id + 1, sizeof slave.member.uuid);
    snprintf(slave.member.ha_address, sizeof slave.member.ha_address, "10.0.1.%d:10912", (int)id);
    slave.peer_id = (uint64_t)id + 100;
    slave.held = w->own;
    slave.readable = true;
    return slave;
}

struct fake_ask *slave_greet(struct source_world *w, struct slave *slave,
                             Tern__Wire__HaPurpose purpose)
{
    struct fake_ask *ask = fake_ask_new(&w->sim.env, slave->peer_id);
    ask->handshake.from = ha_member_to_wire(&ask->arena, &slave->member);
    ask->handshake.purpose = purpose;
    ask->header.body_case = TERN__WIRE__REQUEST__BODY_HA_HANDSHAKE;
    ask->header.ha_handshake = &ask->handshake;
    source_handshake(w->source, &ask->pub);
    return ask;
}

void slave_attach(struct source_world *w, struct slave *slave)
{
    struct fake_ask *ask = slave_greet(w, slave, TERN__WIRE__HA_PURPOSE__HA_FOLLOW);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    const Tern__Wire__HaHandshakeResponse *got = ask->response->ha_handshake;
    assert_true(got->session != 0);
    slave->session = got->session;
    slave->appended = got->has_common ? got->common_end : got->source->log_min;
    if (slave->flushed > slave->appended)
        slave->flushed = slave->appended;
    fake_ask_free(ask);
}

struct fake_ask *slave_fetch_with(struct source_world *w, struct slave *slave, uint32_t max_bytes,
                                  uint32_t suspend_ms)
{
    struct fake_ask *ask = fake_ask_new(&w->sim.env, slave->peer_id);
    ask->position.appended = slave->appended;
    ask->position.flushed = slave->flushed;
    ask->position.dispatched = slave->dispatched;
    ask->position.readable = slave->readable;
    ask->held.topics_version = slave->held.topics_version;
    ask->held.groups_version = slave->held.groups_version;
    ask->held.deletions_version = slave->held.deletions_version;
    ask->held.progress = slave->held.progress;
    ask->fetch.session = slave->session;
    ask->fetch.from = slave->appended;
    ask->fetch.max_bytes = max_bytes;
    ask->fetch.suspend_timeout_ms = suspend_ms;
    ask->fetch.position = &ask->position;
    ask->fetch.held = &ask->held;
    ask->fetch.gave_progress = slave->gave;
    ask->header.body_case = TERN__WIRE__REQUEST__BODY_HA_FETCH;
    ask->header.ha_fetch = &ask->fetch;
    source_fetch(w->source, &ask->pub);
    return ask;
}

struct fake_ask *slave_fetch(struct source_world *w, struct slave *slave)
{
    return slave_fetch_with(w, slave, HA_CHUNK_MAX, HA_PARK_MAX_MS);
}

size_t slave_take(struct source_world *w, struct slave *slave, struct fake_ask *ask)
{
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    const Tern__Wire__HaFetchResponse *got = ask->response->ha_fetch;
    assert_non_null(got);
    assert_int_equal(got->from, slave->appended);
    assert_true(got->confirmed <= got->appended);
    size_t size = ask->payload_size;
    assert_true((got->epoch != NULL) == (size > 0));
    for (size_t i = 0; i < size; i++)
        assert_int_equal(ask->reserved[i], fake_byte(slave->appended + (int64_t)i));
    if (size) {
        struct ha_epoch epoch;
        int64_t end;
        assert_true(epochs_find(w->epochs, slave->appended, &epoch, &end));
        assert_true(epoch.number == got->epoch->number && epoch.id == got->epoch->id);
        assert_true(slave->appended + (int64_t)size <= end);
    }
    if (got->tables) {
        slave->held.topics_version = got->tables->topics_version;
        slave->held.deletions_version = got->tables->deletions_version;
        slave->held.progress = got->tables->progress_to;
    }
    slave->appended += (int64_t)size;
    fake_ask_free(ask);
    return size;
}

struct fake_ask *slave_catch_up(struct source_world *w, struct slave *slave)
{
    struct fake_ask *ask = slave_fetch(w, slave);
    while (ask->answers) {
        slave_take(w, slave, ask);
        ask = slave_fetch(w, slave);
    }
    return ask;
}

struct fake_ask *slave_report(struct source_world *w, struct slave *slave, uint64_t progress_seen,
                              bool with_tables)
{
    struct fake_ask *ask = fake_ask_new(&w->sim.env, slave->peer_id);
    ask->position.appended = slave->appended;
    ask->position.flushed = slave->flushed;
    ask->position.dispatched = slave->dispatched;
    ask->position.readable = slave->readable;
    ask->report.session = slave->session;
    ask->report.position = &ask->position;
    ask->report.progress_seen = progress_seen;
    ask->tables.has_progress = true;
    ask->tables.progress_to = 77;
    ask->report.tables = with_tables ? &ask->tables : NULL;
    ask->header.body_case = TERN__WIRE__REQUEST__BODY_HA_REPORT;
    ask->header.ha_report = &ask->report;
    source_report(w->source, &ask->pub);
    return ask;
}

void expect_code(struct fake_ask *ask, enum tern_code code)
{
    assert_int_equal(fake_ask_code(ask), wire_code_of(code));
    fake_ask_free(ask);
}
