#include "tests/unit/ha/opening_world.h"

#include "base/clock.h"

struct opening_world world;

static void self(void *arg, struct ha_member *out)
{
    (void)arg;
    *out = world.self;
}

static void wake(void *arg)
{
    (void)arg;
    world.wakes++;
}

static void look(void *arg, const char *ha_address)
{
    (void)arg;
    world.looks++;
    snprintf(world.looked, sizeof world.looked, "%s", ha_address);
}

static void take(void *arg, const char *ha_address, bool force)
{
    (void)arg;
    world.takes++;
    world.forced = force;
    snprintf(world.took, sizeof world.took, "%s", ha_address);
}

static enum tern_code open_writes(void *arg, const struct insync_set *set, bool raise,
                                  uint64_t number, struct tern_error *err)
{
    struct insync_member missing[INSYNC_MAX];
    (void)arg;
    if (world.fail_opens > 0) {
        world.fail_opens--;
        return error_set(err, TERN_IO, "the disk does not write");
    }
    world.opens++;
    world.set = *set;
    world.raise = raise;
    world.number = number;
    world.awaited_at_open = opening_awaited(world.opening, missing);
    return TERN_OK;
}

int set_up(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    sim_env_init(&world.sim, 7);
    world.ha = (struct ha_options){.mode = HA_MODE_SYNC_MASTER,
                                   .cluster = "C",
                                   .name = "broker-a",
                                   .root_dir = "/store",
                                   .recover = true,
                                   .recover_timeout_ms = TIMEOUT_MS,
                                   .has_nameservers = true};
    memset(world.ha.uuid, 1, HA_UUID_BYTES);
    world.self = (struct ha_member){.cluster = "C",
                                    .name = "broker-a",
                                    .epoch_count = 1,
                                    .epochs = {{.number = 3, .id = 33, .start = 0}},
                                    .highest_epoch = 3,
                                    .log_end = 1000,
                                    .segment_bytes = SEGMENT};
    struct opening_options options = {
        .part = {.env = &world.sim.env, .ha = &world.ha, .self = self, .wake = wake},
        .look = look,
        .take = take,
        .open = open_writes};
    assert_ok(opening_create(&options, &world.opening));
    return 0;
}

int tear_down(void **state)
{
    (void)state;
    opening_destroy(world.opening);
    sim_env_fini(&world.sim);
    return 0;
}

int64_t now_ns(void)
{
    return clock_mono_ns(world.sim.env.clock);
}

int64_t step(void)
{
    return opening_step(world.opening, now_ns());
}

int64_t step_after(int64_t ms)
{
    sim_clock_advance(&world.sim.clock, ms_to_ns(ms));
    return step();
}

struct insync_member record(int64_t id)
{
    struct insync_member member = {.id = id};
    memset(member.uuid, (int)(10 + id), sizeof member.uuid);
    snprintf(member.ha_address, sizeof member.ha_address, "10.0.0.%d:10912", (int)id);
    return member;
}

void save_set(size_t count)
{
    struct insync_set set = {.count = count};
    struct tern_error err;
    for (size_t i = 0; i < count; i++)
        set.members[i] = record((int64_t)i + 1);
    assert_ok(fs_mkdirs(world.sim.env.fs, "/store/ternmq"));
    assert_ok(insync_save(&world.sim.env, "/store", &set, &err));
}

void begin(void)
{
    struct tern_error err;
    assert_ok(opening_begin(world.opening, now_ns(), &err));
}

struct ha_member slave(int64_t id, uint64_t number, uint64_t epoch_id, int64_t end)
{
    struct ha_member member = world.self;
    struct insync_member known = record(id);
    member.id = id;
    memcpy(member.uuid, known.uuid, sizeof member.uuid);
    memcpy(member.ha_address, known.ha_address, sizeof member.ha_address);
    member.epochs[0] = (struct ha_epoch){.number = 3, .id = 33, .start = 0};
    member.epoch_count = 1;
    if (number != 3 || epoch_id != 33) {
        member.epochs[1] = (struct ha_epoch){.number = number, .id = epoch_id, .start = 500};
        member.epoch_count = 2;
    }
    member.highest_epoch = number;
    member.log_end = end;
    return member;
}

void hear(const struct ha_member *member)
{
    opening_heard(world.opening, member);
    step();
}

void taken(enum tern_code code)
{
    opening_taken(world.opening, code);
    step();
}

void take_over(const struct ha_member *member)
{
    memcpy(world.self.epochs, member->epochs, sizeof world.self.epochs);
    world.self.epoch_count = member->epoch_count;
    world.self.log_end = member->log_end;
}

void force_ok(const uint8_t *discard)
{
    struct tern_error err;
    enum tern_code code = opening_force(world.opening, discard, &err);
    if (code != TERN_OK)
        fail_msg("%s", err.text);
    step();
}

void force_refused(const uint8_t *discard, const char *words)
{
    struct tern_error err;
    assert_int_equal(opening_force(world.opening, discard, &err), TERN_STATE);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

struct ha_seen_member listed(int64_t id)
{
    struct insync_member known = record(id);
    struct ha_seen_member member = {.id = id};
    memcpy(member.uuid, known.uuid, sizeof member.uuid);
    memcpy(member.ha_address, known.ha_address, sizeof member.ha_address);
    return member;
}
