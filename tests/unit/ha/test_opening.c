/* How a master starts: whom it waits for, whose log it takes, with which set it opens. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "broker/ha/opening.h"
#include "tests/sim/sim_env.h"

#define assert_ok(expr) assert_int_equal((expr), TERN_OK)

enum { TIMEOUT_MS = 30000, SEGMENT = 1 << 20 };

/* The owner: what the opening asked it to do. */
static struct {
    struct sim_env sim;
    struct ha_options ha;
    struct opening *opening;
    struct ha_member self;
    unsigned looks, takes, opens, wakes, fail_opens;
    char looked[HA_ADDRESS_BYTES], took[HA_ADDRESS_BYTES];
    bool forced, raise;
    uint64_t number;
    struct insync_set set;
    size_t awaited_at_open;
} world;

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

static int set_up(void **state)
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

static int tear_down(void **state)
{
    (void)state;
    opening_destroy(world.opening);
    sim_env_fini(&world.sim);
    return 0;
}

static int64_t now_ns(void)
{
    return clock_mono_ns(world.sim.env.clock);
}

static int64_t step(void)
{
    return opening_step(world.opening, now_ns());
}

static int64_t step_after(int64_t ms)
{
    sim_clock_advance(&world.sim.clock, ms_to_ns(ms));
    return step();
}

static struct insync_member record(int64_t id)
{
    struct insync_member member = {.id = id};
    memset(member.uuid, (int)(10 + id), sizeof member.uuid);
    snprintf(member.ha_address, sizeof member.ha_address, "10.0.0.%d:10912", (int)id);
    return member;
}

static void save_set(size_t count)
{
    struct insync_set set = {.count = count};
    struct tern_error err;
    for (size_t i = 0; i < count; i++)
        set.members[i] = record((int64_t)i + 1);
    assert_ok(fs_mkdirs(world.sim.env.fs, "/store/ternmq"));
    assert_ok(insync_save(&world.sim.env, "/store", &set, &err));
}

static void begin(void)
{
    struct tern_error err;
    assert_ok(opening_begin(world.opening, now_ns(), &err));
}

/* A slave whose log is our first 3 epochs up to `end` when number is 3, else has one more. */
static struct ha_member slave(int64_t id, uint64_t number, uint64_t epoch_id, int64_t end)
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

static void hear(const struct ha_member *member)
{
    opening_heard(world.opening, member);
    step();
}

static void taken(enum tern_code code)
{
    opening_taken(world.opening, code);
    step();
}

/* Our log becomes the member's. */
static void take_over(const struct ha_member *member)
{
    memcpy(world.self.epochs, member->epochs, sizeof world.self.epochs);
    world.self.epoch_count = member->epoch_count;
    world.self.log_end = member->log_end;
}

static void force_ok(const uint8_t *discard)
{
    struct tern_error err;
    enum tern_code code = opening_force(world.opening, discard, &err);
    if (code != TERN_OK)
        fail_msg("%s", err.text);
    step();
}

static void force_refused(const uint8_t *discard, const char *words)
{
    struct tern_error err;
    assert_int_equal(opening_force(world.opening, discard, &err), TERN_STATE);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

/* ---- a set on record ---- */

static void opens_at_once_without_a_set(void **state)
{
    (void)state;
    save_set(0);
    begin();
    assert_false(opening_done(world.opening));
    assert_int_equal(step(), SCHED_NEVER);
    assert_true(opening_done(world.opening));
    assert_true(opening_merged(world.opening));
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 0);
    assert_false(world.raise);
    assert_int_equal(world.number, 3);
    assert_int_equal(world.looks, 0);
}

/* The store was a slave's until now: what the master had beyond it is not known. */
static void a_store_with_epochs_and_no_set_on_record_raises_versions(void **state)
{
    (void)state;
    begin();
    step();
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
}

static void asks_each_member_at_once_and_every_second(void **state)
{
    (void)state;
    save_set(2);
    begin();
    int64_t next = step();
    assert_int_equal(world.looks, 2);
    assert_int_equal(next, now_ns() + ms_to_ns(1000));
    step_after(999);
    assert_int_equal(world.looks, 2);
    step_after(1);
    assert_int_equal(world.looks, 4);
    struct insync_member awaited[INSYNC_MAX];
    assert_int_equal(opening_awaited(world.opening, awaited), 2);
    char text[200];
    opening_text(world.opening, text, sizeof text);
    assert_non_null(strstr(text, "2 (10.0.0.2:10912)"));
}

static void merges_every_member_then_opens_with_the_whole_set(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    struct ha_member second = slave(2, 3, 33, 1000);
    hear(&first);
    assert_int_equal(world.takes, 0);
    hear(&second);
    assert_int_equal(world.takes, 1);
    assert_string_equal(world.took, "10.0.0.2:10912");
    assert_false(opening_merged(world.opening));
    taken(TERN_OK);
    assert_int_equal(world.takes, 2);
    assert_string_equal(world.took, "10.0.0.1:10912");
    assert_int_equal(world.opens, 0);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 2);
    assert_false(world.raise);
    assert_false(world.forced);
}

static void takes_the_highest_epoch_before_the_longest_log(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member longer = slave(1, 3, 33, 5000);
    struct ha_member newer = slave(2, 4, 44, 1200);
    hear(&longer);
    hear(&newer);
    assert_string_equal(world.took, "10.0.0.2:10912");
}

static void a_cut_of_our_own_log_raises_versions(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member newer = slave(1, 4, 44, 1200); /* our 500 to 1000 are not in it */
    hear(&newer);
    take_over(&newer);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
    assert_int_equal(world.number, 4);
}

static void a_longer_tail_alone_raises_nothing(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member longer = slave(1, 3, 33, 5000);
    hear(&longer);
    take_over(&longer);
    taken(TERN_OK);
    assert_false(world.raise);
}

static void an_unclean_stop_raises_versions_once(void **state)
{
    (void)state;
    world.ha.recovered_unclean = true;
    save_set(0);
    begin();
    step();
    assert_true(world.raise);
    begin();
    step();
    assert_int_equal(world.opens, 2);
    assert_false(world.raise);
}

static void another_uuid_under_the_id_is_no_answer(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member other = slave(1, 3, 33, 900);
    memset(other.uuid, 99, sizeof other.uuid);
    hear(&other);
    assert_int_equal(world.takes, 0);
    assert_false(opening_done(world.opening));
}

static void other_names_and_copies_of_us_are_not_heard(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member member = slave(1, 9, 99, 9000);
    memcpy(member.name, "broker-b", 9);
    hear(&member);
    member = slave(1, 9, 99, 9000);
    memcpy(member.cluster, "D", 2);
    hear(&member);
    member = slave(0, 9, 99, 9000);
    hear(&member);
    member = slave(1, 9, 99, 9000);
    memcpy(member.uuid, world.ha.uuid, sizeof member.uuid);
    hear(&member);
    assert_int_equal(world.takes, 0);
    struct insync_member awaited[INSYNC_MAX];
    assert_int_equal(opening_awaited(world.opening, awaited), 1);
}

static void a_listed_address_replaces_the_recorded_one(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct insync_member known = record(1);
    struct ha_seen_member listed = {.id = 1, .ha_address = "10.9.9.9:1"};
    memcpy(listed.uuid, known.uuid, sizeof listed.uuid);
    opening_members(world.opening, &listed, 1, 1);
    step_after(1000);
    assert_string_equal(world.looked, "10.9.9.9:1");
}

/* ---- members that do not answer ---- */

static void an_async_master_opens_without_the_missing(void **state)
{
    (void)state;
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    hear(&first);
    step_after(TIMEOUT_MS - 1);
    assert_int_equal(world.opens, 0);
    step_after(1); /* who answered is still merged */
    assert_int_equal(world.takes, 1);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 1);
    assert_int_equal(world.set.members[0].id, 1);
    assert_true(world.raise);
    assert_int_equal(world.awaited_at_open, 1);
    assert_int_equal(sim_log_count(&world.sim, "opens_without_members"), 1);
    assert_int_equal(sim_log_count(&world.sim, "2 (10.0.0.2:10912)"), 1);
}

static void a_sync_master_waits_for_an_operator(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    hear(&first);
    assert_false(opening_merged(world.opening));
    step_after(TIMEOUT_MS);
    taken(TERN_OK);
    assert_true(opening_merged(world.opening)); /* nobody else to ask for progress */
    for (int i = 0; i < 61; i++)
        step_after(1000);
    assert_int_equal(world.opens, 0);
    assert_int_equal(sim_log_count(&world.sim, "mqadmin forceOpen"), 3);
    force_ok(NULL);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 1);
    assert_true(world.raise);
    force_refused(NULL, "is open");
}

static void a_late_member_of_a_sync_master_is_still_taken(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 1100);
    struct ha_member second = slave(2, 3, 33, 1200);
    hear(&first);
    step_after(TIMEOUT_MS);
    take_over(&first);
    taken(TERN_OK);
    hear(&second);
    assert_string_equal(world.took, "10.0.0.2:10912");
    take_over(&second);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 2);
    assert_false(world.raise);
}

static void a_broken_take_waits_for_the_member_anew(void **state)
{
    (void)state;
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    save_set(1);
    begin();
    step();
    struct ha_member longer = slave(1, 3, 33, 5000);
    sim_clock_advance(&world.sim.clock, ms_to_ns(TIMEOUT_MS - 1));
    hear(&longer);
    assert_int_equal(world.takes, 1);
    sim_clock_advance(&world.sim.clock, ms_to_ns(5000)); /* the copy takes its time */
    taken(TERN_UNREACHABLE);
    assert_int_equal(world.opens, 0);
    unsigned looks = world.looks;
    step_after(1000);
    assert_int_equal(world.looks, looks + 1);
    hear(&longer);
    assert_int_equal(world.takes, 2);
    take_over(&longer);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
}

static void without_recovery_it_opens_at_once_and_the_set_is_emptied(void **state)
{
    (void)state;
    world.ha.recover = false;
    save_set(2);
    begin();
    step();
    assert_int_equal(world.looks, 0);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 0);
    assert_true(world.raise);
    assert_int_equal(world.awaited_at_open, 2);
    assert_int_equal(sim_log_count(&world.sim, "recoverFromSlave"), 1);
}

/* ---- contradictions ---- */

static void a_refused_take_wants_force_in_every_mode(void **state)
{
    (void)state;
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    save_set(1);
    begin();
    step();
    struct ha_member other = slave(1, 3, 34, 2000); /* the same number, another life */
    hear(&other);
    assert_false(world.forced);
    taken(TERN_STATE);
    for (int i = 0; i < 40; i++) {
        step_after(1000);
        if (world.takes > 1 && i % 6 == 0)
            taken(TERN_STATE);
    }
    assert_int_equal(world.opens, 0);
    assert_true(sim_log_count(&world.sim, "mqadmin forceOpen") > 0);
    taken(TERN_STATE);
    force_ok(NULL);
    assert_true(world.forced); /* it is beyond ours: ours is cut */
    take_over(&other);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
    assert_int_equal(world.set.count, 1);
}

static void force_passes_over_who_is_behind_us(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member other = slave(1, 3, 34, 700);
    hear(&other);
    taken(TERN_STATE);
    unsigned takes = world.takes;
    force_ok(NULL);
    assert_int_equal(world.takes, takes);
    assert_int_equal(world.opens, 1);
    assert_int_equal(sim_log_count(&world.sim, "member_passed_over"), 1);
}

/* Merging somebody behind us is no reason to cut what we have. */
static void force_is_not_meant_for_who_is_behind_us(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member behind = slave(1, 3, 33, 700);
    opening_heard(world.opening, &behind);
    force_ok(NULL);
    assert_int_equal(world.takes, 1);
    assert_false(world.forced);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
}

static void a_refuser_outside_the_set_is_waited_for(void **state)
{
    (void)state;
    begin();
    struct ha_member refuser = slave(5, 8, 88, 1500);
    opening_heard(world.opening, &refuser);
    step();
    assert_int_equal(world.takes, 1);
    assert_int_equal(world.opens, 0);
    take_over(&refuser);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.number, 8);
    assert_int_equal(world.set.count, 0); /* it joins as everybody does */
    assert_true(world.raise);
}

static void a_slave_behind_us_outside_the_set_is_not(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member behind = slave(5, 3, 33, 400);
    hear(&behind);
    struct ha_member member = slave(1, 3, 33, 1000);
    hear(&member);
    assert_string_equal(world.took, "10.0.0.1:10912");
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.takes, 1);
}

/* ---- an empty store ---- */

static void empty(void)
{
    world.self.epoch_count = 0;
    world.self.highest_epoch = 0;
    world.self.log_end = world.self.log_min = 0;
}

static struct ha_seen_member listed(int64_t id)
{
    struct insync_member known = record(id);
    struct ha_seen_member member = {.id = id};
    memcpy(member.uuid, known.uuid, sizeof member.uuid);
    memcpy(member.ha_address, known.ha_address, sizeof member.ha_address);
    return member;
}

static void empty_store_waits_for_a_nameserver(void **state)
{
    (void)state;
    empty();
    begin();
    assert_int_equal(step(), now_ns() + ms_to_ns(TIMEOUT_MS));
    opening_members(world.opening, NULL, 0, 0);
    step();
    assert_int_equal(world.opens, 0);
    struct ha_seen_member us = {.id = 0, .ha_address = "10.0.0.7:10912"};
    opening_members(world.opening, &us, 1, 1);
    step();
    assert_int_equal(world.opens, 1);
    assert_false(world.raise);
}

static void empty_store_opens_when_no_nameserver_answers(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    step_after(TIMEOUT_MS);
    assert_int_equal(world.opens, 1);
}

static void empty_store_without_nameservers_opens_at_once(void **state)
{
    (void)state;
    empty();
    world.ha.has_nameservers = false;
    begin();
    step();
    assert_int_equal(world.opens, 1);
}

static void empty_store_copies_the_slave_that_has_the_most(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[2] = {listed(1), listed(2)};
    opening_members(world.opening, slaves, 2, 1);
    step();
    assert_int_equal(world.looks, 2);
    struct ha_member first = slave(1, 3, 33, 900);
    struct ha_member second = slave(2, 4, 44, 800);
    hear(&first);
    assert_int_equal(world.takes, 0);
    hear(&second);
    assert_string_equal(world.took, "10.0.0.2:10912");
    take_over(&second);
    taken(TERN_OK);
    assert_string_equal(world.took, "10.0.0.1:10912");
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.number, 4);
    assert_true(world.raise); /* what the lost store had beyond is not known */
}

static void empty_slaves_hold_nothing_up(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    struct ha_member none = slave(1, 3, 33, 0);
    none.epoch_count = 0;
    hear(&none);
    assert_int_equal(world.takes, 0);
    assert_int_equal(world.opens, 1);
}

static void empty_beside_a_full_slave_needs_its_uuid(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    struct ha_member full = slave(1, 3, 33, 900);
    hear(&full);
    uint8_t unknown[HA_UUID_BYTES] = {1, 2, 3};
    force_refused(unknown, "UUID");
    force_refused(full.uuid, "being copied");
    taken(TERN_UNREACHABLE); /* it goes in the middle of it */
    force_refused(NULL, "--discard-slave");
    force_ok(full.uuid);
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
    hear(&full);
    assert_int_equal(world.takes, 1);
}

static void a_listed_slave_that_never_answers_is_given_up_by_force(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    step_after(TIMEOUT_MS);
    assert_int_equal(world.opens, 0); /* a SYNC_MASTER */
    force_ok(NULL);
    assert_int_equal(world.opens, 1);
}

static void an_empty_async_master_waits_for_a_listed_slave(void **state)
{
    (void)state;
    empty();
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    step_after(2 * TIMEOUT_MS);
    assert_int_equal(world.opens, 0);
    opening_members(world.opening, NULL, 0, 0); /* nobody to ask: that says nothing */
    step();
    assert_int_equal(world.opens, 0);
    opening_members(world.opening, NULL, 0, 1); /* forgotten */
    step();
    assert_int_equal(world.opens, 1);
}

static void a_forgotten_slave_that_is_listed_again_is_waited_for(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[2] = {listed(1), listed(2)};
    opening_members(world.opening, slaves, 2, 1);
    opening_members(world.opening, slaves, 1, 1);
    opening_members(world.opening, slaves, 2, 1);
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    hear(&first);
    assert_int_equal(world.takes, 0); /* the other one may have more */
    opening_members(world.opening, slaves, 1, 1);
    step();
    assert_int_equal(world.takes, 1);
}

/* ---- failures ---- */

static void a_failed_opening_is_tried_again_each_second(void **state)
{
    (void)state;
    world.fail_opens = 2;
    begin();
    int64_t next = step();
    assert_int_equal(next, now_ns() + ms_to_ns(1000));
    char text[200];
    opening_text(world.opening, text, sizeof text);
    assert_non_null(strstr(text, "the disk does not write"));
    assert_true(opening_merged(world.opening));
    step_after(1000);
    assert_int_equal(world.opens, 0);
    step_after(1000);
    assert_int_equal(world.opens, 1);
}

static void a_damaged_set_stops_the_start(void **state)
{
    (void)state;
    struct tern_error err;
    save_set(1);
    save_set(2);
    const char *const names[] = {"/store/ternmq/insync.json", "/store/ternmq/insync.json.bak"};
    for (size_t i = 0; i < 2; i++) {
        struct file *file;
        assert_ok(fs_open(world.sim.env.fs, names[i], FS_WRITE | FS_TRUNCATE, &file));
        assert_ok(file_pwrite(file, "{", 1, 0));
        file_close(file);
    }
    assert_int_equal(opening_begin(world.opening, now_ns(), &err), TERN_CORRUPT);
    force_refused(NULL, "try again");
    assert_false(opening_merged(world.opening));
}

static void a_set_that_cannot_be_read_is_no_empty_set(void **state)
{
    (void)state;
    struct tern_error err;
    save_set(1);
    sim_fs_fail(
        world.sim.fs,
        &(struct sim_fs_fault){.op = SIM_FS_OPEN, .nth = 1, .errno_value = EIO, .forever = true});
    assert_int_not_equal(opening_begin(world.opening, now_ns(), &err), TERN_OK);
    sim_fs_fail_clear(world.sim.fs);
}

static void many_strangers_do_not_overflow_the_list(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    for (int i = 2; i < 100; i++) {
        struct ha_member stranger = slave(i, (uint64_t)(4 + i), 5, 2000);
        opening_heard(world.opening, &stranger);
    }
    struct insync_member awaited[INSYNC_MAX];
    assert_int_equal(opening_awaited(world.opening, awaited), 1);
    struct ha_member member = slave(1, 3, 33, 1000);
    hear(&member);
    assert_int_equal(world.takes, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_at_once_without_a_set),
        TEST(a_store_with_epochs_and_no_set_on_record_raises_versions),
        TEST(asks_each_member_at_once_and_every_second),
        TEST(merges_every_member_then_opens_with_the_whole_set),
        TEST(takes_the_highest_epoch_before_the_longest_log),
        TEST(a_cut_of_our_own_log_raises_versions),
        TEST(a_longer_tail_alone_raises_nothing),
        TEST(an_unclean_stop_raises_versions_once),
        TEST(another_uuid_under_the_id_is_no_answer),
        TEST(other_names_and_copies_of_us_are_not_heard),
        TEST(a_listed_address_replaces_the_recorded_one),
        TEST(an_async_master_opens_without_the_missing),
        TEST(a_sync_master_waits_for_an_operator),
        TEST(a_late_member_of_a_sync_master_is_still_taken),
        TEST(a_broken_take_waits_for_the_member_anew),
        TEST(without_recovery_it_opens_at_once_and_the_set_is_emptied),
        TEST(a_refused_take_wants_force_in_every_mode),
        TEST(force_passes_over_who_is_behind_us),
        TEST(force_is_not_meant_for_who_is_behind_us),
        TEST(a_refuser_outside_the_set_is_waited_for),
        TEST(a_slave_behind_us_outside_the_set_is_not),
        TEST(empty_store_waits_for_a_nameserver),
        TEST(empty_store_opens_when_no_nameserver_answers),
        TEST(empty_store_without_nameservers_opens_at_once),
        TEST(empty_store_copies_the_slave_that_has_the_most),
        TEST(empty_slaves_hold_nothing_up),
        TEST(empty_beside_a_full_slave_needs_its_uuid),
        TEST(a_listed_slave_that_never_answers_is_given_up_by_force),
        TEST(an_empty_async_master_waits_for_a_listed_slave),
        TEST(a_forgotten_slave_that_is_listed_again_is_waited_for),
        TEST(a_failed_opening_is_tried_again_each_second),
        TEST(a_damaged_set_stops_the_start),
        TEST(a_set_that_cannot_be_read_is_no_empty_set),
        TEST(many_strangers_do_not_overflow_the_list),
    };
    return cmocka_run_group_tests_name("ha opening", tests, NULL, NULL);
}
