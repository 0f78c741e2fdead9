/* The replica's world. Threads: one. */
#include "tests/unit/ha/replica_world.h"

struct replica_world world;

/* ---- the owner ---- */

static void self(void *arg, struct ha_member *out)
{
    (void)arg;
    memset(out, 0, sizeof *out);
    snprintf(out->cluster, sizeof out->cluster, "%s", world.ha.cluster);
    snprintf(out->name, sizeof out->name, "%s", world.ha.name);
    snprintf(out->address, sizeof out->address, "10.0.0.2:10911");
    snprintf(out->ha_address, sizeof out->ha_address, "10.0.0.2:10912");
    out->id = world.ha.id;
    memcpy(out->uuid, world.ha.uuid, sizeof out->uuid);
    out->life = 77;
    out->state = TERN__WIRE__HA_STATE__HA_SEEKING;
    out->epoch_count = epochs_copy(world.epochs, out->epochs);
    out->highest_epoch = epochs_highest(world.epochs);
    out->log_min = world.store.at.min;
    out->log_end = world.store.at.whole;
    out->flushed = world.store.at.flushed;
    out->dispatched = world.store.at.dispatched;
    out->segment_bytes = world.ha.segment_bytes;
}

static void wake(void *arg)
{
    (void)arg;
    if (world.task)
        task_wake(world.task);
}

static void on_event(void *arg, enum replica_event event, const struct ha_member *source)
{
    (void)arg;
    switch (event) {
    case REPLICA_SETTLED:
        world.settled++;
        fake_store_note(&world.store, 'S');
        assert_int_equal(source->life, world.source.member.life);
        break;
    case REPLICA_LOST:
        world.lost++;
        fake_store_note(&world.store, 'l');
        break;
    case REPLICA_DETACHED:
        world.detached++;
        fake_store_note(&world.store, 'D');
        break;
    case REPLICA_CAUGHT_UP:
        world.caught_up++;
        fake_store_note(&world.store, 'U');
        break;
    }
}

static void on_confirmed(void *arg, int64_t confirmed, bool settled)
{
    (void)arg;
    world.confirmed = confirmed;
    world.confirmed_settled = settled;
}

static void on_progress_seen(void *arg, uint64_t change)
{
    (void)arg;
    world.progress_seen = change;
}

/* ---- its tables ---- */

static Tern__Wire__HaTables *fill(void *arg, const struct ha_held *held, bool progress_only,
                                  struct arena *arena)
{
    (void)arg;
    assert_true(progress_only);
    Tern__Wire__HaTables *tables = arena_alloc(arena, sizeof *tables);
    if (!tables || held->progress >= world.own.progress)
        return NULL;
    tern__wire__ha_tables__init(tables);
    tables->has_progress = true;
    tables->progress_to = world.own.progress;
    return tables;
}

static bool topics_agree(void *arg, const struct ha_held *held)
{
    (void)arg;
    return held->topics_version == world.own.topics_version;
}

static bool differs(void *arg, const struct ha_held *held, bool progress_only)
{
    (void)arg;
    (void)progress_only;
    return held->progress < world.own.progress && world.own_merged < world.own.progress;
}

static enum tern_code apply(void *arg, const Tern__Wire__HaTables *tables, struct ha_held *held,
                            struct tern_error *err)
{
    (void)arg;
    fake_store_note(&world.store, 'T');
    if (world.apply_code != TERN_OK)
        return error_set(err, world.apply_code, "as the test wants it");
    if (tables->has_topics) {
        world.own.topics_version = held->topics_version = tables->topics_version;
        world.applied_topics = tables->topics_version;
    }
    if (tables->has_progress)
        world.applied_progress = held->progress = tables->progress_to;
    return TERN_OK;
}

static void own(void *arg, struct ha_held *held)
{
    (void)arg;
    *held = world.own;
}

static enum tern_code lower(void *arg, int64_t phys_off, struct tern_error *err)
{
    (void)arg;
    if (world.lower_code != TERN_OK)
        return error_set(err, world.lower_code, "as the test wants it");
    world.lowered_at = phys_off;
    fake_store_note(&world.store, 'L');
    return TERN_OK;
}

static enum tern_code forget(void *arg, struct tern_error *err)
{
    (void)arg;
    (void)err;
    fake_store_note(&world.store, 'F');
    return TERN_OK;
}

/* ---- life ---- */

static int64_t step(void *arg, int64_t now_ns)
{
    (void)arg;
    return replica_step(world.replica, now_ns);
}

static void set_options(void)
{
    world.ha = (struct ha_options){.mode = HA_MODE_SLAVE,
                                   .cluster = "C",
                                   .name = "broker-a",
                                   .id = 1,
                                   .root_dir = "/store",
                                   .segment_bytes = FAKE_SEGMENT_BYTES,
                                   .readable = true,
                                   .store = &world.store,
                                   .tables = {.fill = fill,
                                              .topics_agree = topics_agree,
                                              .differs = differs,
                                              .apply = apply,
                                              .own = own,
                                              .lower = lower,
                                              .forget = forget}};
    memset(world.ha.uuid, 2, HA_UUID_BYTES);
    world.store.diary = world.diary;
    world.store.diary_size = sizeof world.diary;
    world.store.flushes = true;
    world.confirmed = -1;
}

static void set_source(void)
{
    struct ha_member *member = &world.source.member;
    snprintf(member->cluster, sizeof member->cluster, "C");
    snprintf(member->name, sizeof member->name, "broker-a");
    snprintf(member->address, sizeof member->address, "10.0.0.1:10911");
    snprintf(member->ha_address, sizeof member->ha_address, SOURCE_ADDRESS);
    memset(member->uuid, 1, HA_UUID_BYTES);
    member->life = 5;
    member->state = TERN__WIRE__HA_STATE__HA_OPEN;
    member->segment_bytes = FAKE_SEGMENT_BYTES;
    member->epoch_count = 2;
    member->epochs[0] = (struct ha_epoch){.number = 2, .id = 20, .start = 0};
    member->epochs[1] = (struct ha_epoch){.number = 4, .id = 40, .start = 3000};
    member->highest_epoch = 4;
    member->log_end = 10000;
}

void world_start_source(void)
{
    world.source_link = sim_net_link(world.net, "10.0.0.1");
    fake_source_start(&world.source, &world.sim.env, world.sim.sched, world.source_link,
                      SOURCE_ADDRESS);
}

void world_stop_source(void)
{
    sim_net_crash(world.net, "10.0.0.1");
    fake_source_stop(&world.source);
    link_destroy(world.source_link);
    world.source_link = NULL;
}

int world_set_up(void **state)
{
    (void)state;
    struct tern_error err = {.text = ""};
    memset(&world, 0, sizeof world);
    sim_env_init(&world.sim, 11);
    world.net = sim_net_create(&world.sim);
    world.own_link = sim_net_link(world.net, "10.0.0.2");
    set_options();
    set_source();
    assert_ok(fs_mkdirs(world.sim.env.fs, "/store/ternmq"));
    assert_ok(epochs_open(&world.sim.env, "/store", 0, &world.epochs, &err));
    struct rpc_client_options client = {.max_message_bytes = FRAME_HEADER_MAX,
                                        .connect_wait_ms = 1000,
                                        .reconnect_min_ms = 50,
                                        .reconnect_max_ms = 500,
                                        .client_id = ""};
    assert_ok(rpc_client_create(&world.sim.env, world.own_link, &client, &world.client));
    struct replica_options options = {.part = {.env = &world.sim.env,
                                               .ha = &world.ha,
                                               .epochs = world.epochs,
                                               .self = self,
                                               .wake = wake},
                                      .client = world.client,
                                      .on_event = on_event,
                                      .on_confirmed = on_confirmed,
                                      .on_progress_seen = on_progress_seen};
    assert_ok(replica_create(&options, &world.replica));
    assert_ok(task_start(world.sim.env.sched, "ha", step, NULL, &world.task));
    world_start_source();
    return 0;
}

int world_tear_down(void **state)
{
    (void)state;
    struct task *task = world.task;
    world.task = NULL;
    task_stop(task);
    if (world.replica)
        replica_stop(world.replica);
    rpc_client_destroy(world.client);
    replica_destroy(world.replica);
    if (world.source_link) {
        fake_source_stop(&world.source);
        link_destroy(world.source_link);
    }
    epochs_close(world.epochs);
    link_destroy(world.own_link);
    sim_net_destroy(world.net);
    sim_env_fini(&world.sim);
    return 0;
}

/* ---- logs ---- */

static uint64_t source_epoch_id(int64_t phys_off)
{
    int64_t end;
    const struct ha_member *member = &world.source.member;
    const struct ha_epoch *epoch =
        ha_epochs_at(member->epochs, member->epoch_count, phys_off, &end);
    assert_non_null(epoch);
    return epoch->id;
}

static void have(int64_t end)
{
    struct tern_error err;
    const struct ha_member *member = &world.source.member;
    for (size_t i = 0; i < member->epoch_count && member->epochs[i].start < end; i++) {
        int64_t until = i + 1 < member->epoch_count ? member->epochs[i + 1].start : end;
        fake_store_write(&world.store, until < end ? until : end, member->epochs[i].id);
    }
    assert_ok(epochs_adopt(world.epochs, member->epochs, member->epoch_count, end, &err));
}

void world_have(int64_t end)
{
    have(end);
}

void world_have_forked(int64_t fork, int64_t end, uint64_t number, uint64_t id)
{
    struct tern_error err;
    struct ha_epoch epoch = {.number = number, .id = id, .start = fork};
    have(fork);
    assert_ok(epochs_add(world.epochs, &epoch, &err));
    fake_store_write(&world.store, end, id);
}

void world_check_same(void)
{
    struct ha_epoch *list = calloc(EPOCHS_MAX, sizeof *list);
    const struct ha_member *member = &world.source.member;
    assert_non_null(list);
    assert_int_equal(world.store.at.appended, member->log_end);
    for (int64_t at = world.store.at.min; at < member->log_end; at++)
        if (world.store.bytes[at] != fake_byte(at, source_epoch_id(at)))
            fail_msg("byte %lld differs", (long long)at);
    assert_int_equal(epochs_copy(world.epochs, list), member->epoch_count);
    assert_memory_equal(list, member->epochs, member->epoch_count * sizeof *list);
    free(list);
}

/* ---- running ---- */

void world_follow(void)
{
    replica_follow(world.replica, SOURCE_ADDRESS);
}

void world_run(int64_t ms)
{
    sim_run_for(world.sim.sched, ms_to_ns(ms));
}

struct goal {
    const unsigned *value;
    unsigned least;
};

static bool reached(void *arg)
{
    const struct goal *goal = arg;
    return *goal->value >= goal->least;
}

void world_until(const unsigned *value, unsigned least)
{
    struct goal goal = {value, least};
    int64_t limit = clock_mono_ns(world.sim.env.clock) + ms_to_ns(60000);
    if (!sim_run_until_true(world.sim.sched, reached, &goal, limit)) {
        struct replica_status *status = calloc(1, sizeof *status);
        assert_non_null(status);
        replica_status(world.replica, status);
        fail_msg("%u of %u after a minute; %s; diary %s", *value, least, status->text, world.diary);
    }
}

void assert_readable(bool readable)
{
    char text[256] = "";
    assert_int_equal(replica_readable(world.replica, text, sizeof text), readable);
}

void assert_text(const char *words)
{
    struct replica_status *status = calloc(1, sizeof *status);
    assert_non_null(status);
    replica_status(world.replica, status);
    if (!strstr(status->text, words))
        fail_msg("\"%s\" does not say \"%s\"", status->text, words);
    free(status);
}
